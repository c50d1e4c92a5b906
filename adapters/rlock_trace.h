/* rlock_trace.h - a trace of rlock.h for chrome://tracing and Perfetto, on config.on_event
 * SPDX-License-Identifier: MIT
 *
 *     static rlock_trace trace;
 *
 *     rlock_trace_begin(&trace, write, user);       or rlock_trace_to(&trace, fopen("a.json", "w"))
 *     config.on_event = rlock_trace_report;
 *     config.event_user = &trace;
 *     ...
 *     rlock_trace_end(&trace);                      after the clients
 *
 * What is written is a JSON array of trace events; open it at https://ui.perfetto.dev or in
 * chrome://tracing. Each client is a process there, and each handle a track named by its key: on it
 * stand its waits and holds, as long as they were, the time a hold took from hand to hand, and
 * renewals, losses and the ends of releases as instants. Connections have a track of their own,
 * with what was cleaned up. An array without its end, as after a crash, both programs open too.
 *
 * Everything here is static inline, needs no memory but the struct, and links with nothing. Each
 * report is written by one or a few calls: give `write` a buffer if that is slow. A hook of your
 * own goes before: let it call rlock_trace_report. A trace belongs to one thread; its clients may
 * be several.
 */

#ifndef RLOCK_TRACE_H
#define RLOCK_TRACE_H

#include <stdio.h>
#include <string.h>

#include "rlock.h"

#define RLOCK__TRACE_TEXT 64 /* bytes of a key or of words that are shown, ... */
#define RLOCK__TRACE_QUOTED (RLOCK__TRACE_TEXT * 6 + 4) /* ... as a JSON string */
#define RLOCK__TRACE_LINE 1536 /* bytes of the arguments of an event, with three of these */
#define RLOCK__TRACE_NAMES 256

/* A trace of one client or several. It is yours: rlock_trace_begin fills it in. */
typedef struct rlock_trace {
    void (*write)(void *user, const char *bytes, size_t length);
    void *user;
    bool began;                         /* an event was written */
    int64_t since_us;                   /* the time of the first report */
    uint32_t names[RLOCK__TRACE_NAMES]; /* clients, and handles of before that, that have a name */
} rlock_trace;

/* Begins a trace: all of it goes through `write`, which may not call the library. */
static inline void rlock_trace_begin(rlock_trace *trace,
                                     void (*write)(void *user, const char *bytes, size_t length),
                                     void *user) {
    memset(trace, 0, sizeof *trace);
    trace->write = write;
    trace->user = user;
    write(user, "[", 1);
}

static inline void rlock__trace_file(void *file, const char *bytes, size_t length) {
    fwrite(bytes, 1, length, (FILE *)file);
}

/* Begins a trace in a file, which remains yours: close it after rlock_trace_end, and look there
 * whether all of it could be written. */
static inline void rlock_trace_to(rlock_trace *trace, FILE *file) {
    rlock_trace_begin(trace, rlock__trace_file, file);
}

/* Ends the trace. What is reported after that is not written. */
static inline void rlock_trace_end(rlock_trace *trace) {
    if (trace->write) {
        trace->write(trace->user, "\n]\n", 3);
        trace->write = NULL;
    }
}

/* Returns how many bytes at `text` are one character of UTF-8; 0: they are none. */
static inline size_t rlock__trace_utf8(const unsigned char *text, size_t left) {
    size_t n = text[0] < 0xc2   ? 0
               : text[0] < 0xe0 ? 2
               : text[0] < 0xf0 ? 3
               : text[0] < 0xf5 ? 4
                                : 0;
    size_t i;
    bool low = (text[0] == 0xe0 && left > 1 && text[1] < 0xa0) ||
               (text[0] == 0xf0 && left > 1 && text[1] < 0x90);
    bool high = (text[0] == 0xed && left > 1 && text[1] > 0x9f) ||
                (text[0] == 0xf4 && left > 1 && text[1] > 0x8f);
    for (i = 1; i < n && i < left && (text[i] & 0xc0) == 0x80; i++) {
    }
    return n && i == n && !low && !high ? n : 0;
}

/* Writes any bytes as the inside of a JSON string, with a NUL: what is not UTF-8 as \u00XX. */
static inline void rlock__trace_quote(char *out, const char *bytes, size_t len) {
    const unsigned char *at = (const unsigned char *)bytes;
    size_t shown = len < RLOCK__TRACE_TEXT ? len : RLOCK__TRACE_TEXT, i = 0;
    while (i < shown) {
        size_t n = at[i] < 0x80 ? 1 : rlock__trace_utf8(at + i, len - i);
        if (n > shown - i) {
            break;
        }
        if (!n || at[i] < ' ' || at[i] == 0x7f) {
            out += sprintf(out, "\\u00%02x", at[i]);
            n = 1;
        } else {
            *out = '\\';
            out += at[i] == '"' || at[i] == '\\';
            memcpy(out, at + i, n);
            out += n;
        }
        i += n;
    }
    strcpy(out, i < len ? "..." : "");
}

/* One event. `phase`: B and E begin and end a slice, i is an instant, M the name of a track. */
static inline void rlock__trace_event(rlock_trace *trace, const rlock_report *report, char phase,
                                      int64_t us, const char *name, const char *args) {
    char line[RLOCK__TRACE_LINE + 256];
    unsigned process = 0;
    int n;
    sscanf(report->client_id, "%7x", &process); /* as many digits of it as both programs take */
    n = snprintf(
        line, sizeof line,
        "%s\n{\"ph\":\"%c\",\"pid\":%u,\"tid\":%u,\"ts\":%lld,\"name\":\"%s\"%s,\"args\":{%s}}",
        trace->began ? "," : "", phase, process, (unsigned)report->handle, (long long)us, name,
        phase == 'i' ? ",\"s\":\"t\"" : "", args);
    trace->began = true;
    trace->write(trace->user, line, (size_t)n);
}

/* True if the client of a report, or its handle, is to be named: it is noted that it was. */
static inline bool rlock__trace_unnamed(rlock_trace *trace, const char *id, uint32_t handle) {
    uint32_t track = 1 + handle, *named;
    bool unnamed;
    while (*id) {
        track = track * 31 + (unsigned char)*id++;
    }
    named = &trace->names[track % RLOCK__TRACE_NAMES];
    unnamed = *named != track;
    *named = track;
    return unnamed;
}

/* Names what a report is about, unless that was done: a client, and a handle at its first acquire.
 * A handle that is older than the trace may be named again where two share a place. */
static inline void rlock__trace_name(rlock_trace *trace, const rlock_report *report,
                                     const char *key) {
    bool first = report->kind == RLOCK_REPORT_ASKED && report->begun_us == report->now_us;
    char args[RLOCK__TRACE_LINE];
    if (!trace->began) {
        trace->since_us = report->now_us;
    }
    if (rlock__trace_unnamed(trace, report->client_id, 0)) {
        rlock_report client = *report;
        client.handle = 0;
        snprintf(args, sizeof args, "\"name\":\"rlock %.8s\"", report->client_id);
        rlock__trace_event(trace, &client, 'M', report->now_us, "process_name", args);
        rlock__trace_event(trace, &client, 'M', report->now_us, "thread_name",
                           "\"name\":\"client\"");
    }
    if (report->handle && (report->begun_us < trace->since_us
                               ? rlock__trace_unnamed(trace, report->client_id, report->handle)
                               : first)) {
        snprintf(args, sizeof args, "\"name\":\"%s (%u)\"", key, (unsigned)report->handle);
        rlock__trace_event(trace, report, 'M', report->now_us, "thread_name", args);
    }
}

/* The hook: config.on_event, with a trace as config.event_user. */
static inline void rlock_trace_report(void *user, const rlock_report *report) {
    rlock_trace *trace = (rlock_trace *)user;
    rlock_report_kind kind = report->kind;
    bool ends = kind == RLOCK_REPORT_RELEASED || kind == RLOCK_REPORT_HANDED_ON ||
                kind == RLOCK_REPORT_LOST;
    char key[RLOCK__TRACE_QUOTED], text[RLOCK__TRACE_QUOTED], where[RLOCK__TRACE_QUOTED];
    char args[RLOCK__TRACE_LINE];
    if (!trace->write) {
        return;
    }
    rlock__trace_quote(key, report->key, report->key_len);
    rlock__trace_quote(text, report->text, report->text ? strlen(report->text) : 0);
    rlock__trace_quote(where, report->where, report->where ? strlen(report->where) : 0);
    if (report->link) {
        snprintf(args, sizeof args, "\"link\":\"%s\",\"where\":\"%s\",\"text\":\"%s\"",
                 report->link, where, text);
    } else {
        snprintf(args, sizeof args,
                 "\"key\":\"%s\",\"status\":\"%s\",\"reason\":\"%s\",\"text\":\"%s\","
                 "\"span_us\":%lld,\"left_us\":%lld,\"fence\":%llu",
                 key, rlock_strerror(report->status), rlock_reason_str(report->reason), text,
                 (long long)report->span_us, (long long)report->left_us,
                 (unsigned long long)report->fence);
    }
    rlock__trace_name(trace, report, key);
    if (kind == RLOCK_REPORT_GRANTED && report->hand_us >= 0) {
        rlock__trace_event(trace, report, 'B', report->now_us - report->hand_us, "hand-over", "");
        rlock__trace_event(trace, report, 'E', report->now_us, "hand-over", "");
    }
    if (kind == RLOCK_REPORT_GRANTED || kind == RLOCK_REPORT_FAILED) {
        rlock__trace_event(trace, report, 'E', report->now_us, "wait", args);
    } else if (ends) {
        rlock__trace_event(trace, report, 'E', report->now_us, "hold", args);
    }
    if (kind == RLOCK_REPORT_ASKED || kind == RLOCK_REPORT_GRANTED) {
        rlock__trace_event(trace, report, 'B', report->now_us,
                           kind == RLOCK_REPORT_ASKED ? "wait" : "hold", args);
    } else {
        rlock__trace_event(trace, report, 'i', report->now_us, rlock_report_str(kind), args);
    }
}

#endif /* RLOCK_TRACE_H */

/*
 * Copyright (c) 2026 the rlock authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
