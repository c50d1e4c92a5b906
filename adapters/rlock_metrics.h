/* rlock_metrics.h - metrics of rlock.h for Prometheus, on the hook config.on_event
 * SPDX-License-Identifier: MIT
 *
 *     static rlock_metrics metrics;
 *
 *     rlock_metrics_init(&metrics, "stock");      the label client="stock"; NULL: no label
 *     config.on_event = rlock_metrics_report;
 *     config.event_user = &metrics;
 *     ...
 *     char page[RLOCK_METRICS_ROOM];              when the page of metrics is asked for
 *     size_t length = rlock_metrics_write(&metrics, 1, page, sizeof page);
 *
 * Everything here is static inline, needs no memory but the struct, and links with nothing. A hook
 * of your own goes before: let it call rlock_metrics_report. Any number of clients may share the
 * struct, and any number of structs stand on one page. All of that belongs to one thread; where
 * clients live on several threads, give each its struct, and a lock of yours to hook and page.
 *
 *     rlock_wait_seconds           histogram: from the acquire to its grant
 *     rlock_hold_seconds           histogram: how long holds lasted, those that were lost too
 *     rlock_hand_over_seconds      histogram: between two holders, where a hold was handed on
 *     rlock_renewal_late_seconds   histogram: from when a renewal was due to its answer
 *     rlock_acquires_total         counter, by result: ok, busy, timeout, canceled, conn ...
 *     rlock_releases_total         counter, by result: ok, not_held, unknown ...
 *     rlock_losses_total           counter, by reason: expired, stolen, deleted, closed
 *     rlock_cleanups_total         counter: tokens of abandoned requests, gone from the server
 *     rlock_connects_total, rlock_disconnects_total       counters
 *     rlock_holds, rlock_waiters   gauges: now
 *     rlock_least_left_seconds     gauge: the least time that was left of any hold when it was
 *                                  renewed, released or lost, of the last 5 to 10 minutes in which
 *                                  anything happened; 0: one was lost by its deadline
 */

#ifndef RLOCK_METRICS_H
#define RLOCK_METRICS_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "rlock.h"

/* Bytes that the page of one struct takes at most, if its name has up to 64. */
#define RLOCK_METRICS_ROOM 20480

#define RLOCK__BUCKETS 14
#define RLOCK__LEAST_US 300000000 /* how long a least time counts, up to twice that */
#define RLOCK__RESULTS (1 - RLOCK_STATUS_LAST)

typedef struct rlock__histogram {
    int64_t counts[RLOCK__BUCKETS + 1]; /* the last one: above all bounds */
    int64_t sum_us;
} rlock__histogram;

/* What was counted. */
typedef struct rlock_metrics {
    const char *name;
    rlock__histogram waits, holds, hand_overs, renewals;
    int64_t acquires[RLOCK__RESULTS], releases[RLOCK__RESULTS]; /* [-status] */
    int64_t losses[RLOCK__RESULTS];                             /* [rlock_reason] */
    int64_t cleanups, connects, disconnects, held, waiting;
    int64_t least_left_us; /* of both below; -1: none. Set it to -1 to begin again */
    int64_t least_us[2];   /* since the time below, and in the five minutes before; -1: none */
    int64_t since_us;
} rlock_metrics;

/* `name` is what the label `client` says, in UTF-8, or NULL; it is not copied. */
static inline void rlock_metrics_init(rlock_metrics *metrics, const char *name) {
    memset(metrics, 0, sizeof *metrics);
    metrics->name = name;
    metrics->least_left_us = metrics->least_us[0] = metrics->least_us[1] = -1;
}

/* No time in a bucket is longer than this. The words are the same in seconds, in every locale. */
static inline int64_t rlock__bucket_us(int bucket, const char **seconds) {
    static const int64_t bounds_us[RLOCK__BUCKETS] = {
        100,    500,     1000,    5000,     10000,    50000,     100000,
        500000, 1000000, 5000000, 10000000, 60000000, 600000000, 3600000000};
    static const char *const words[RLOCK__BUCKETS + 1] = {
        "0.0001", "0.0005", "0.001", "0.005", "0.01", "0.05", "0.1", "0.5",
        "1",      "5",      "10",    "60",    "600",  "3600", "+Inf"};
    *seconds = words[bucket];
    return bucket < RLOCK__BUCKETS ? bounds_us[bucket] : INT64_MAX;
}

static inline void rlock__observe(rlock__histogram *histogram, int64_t span_us) {
    const char *seconds;
    int bucket = 0;
    while (span_us > rlock__bucket_us(bucket, &seconds)) {
        bucket++;
    }
    histogram->counts[bucket]++;
    histogram->sum_us += span_us;
}

/* Returns the least of two times of which -1 is none. */
static inline int64_t rlock__least(int64_t one_us, int64_t other_us) {
    return one_us < 0 || (other_us >= 0 && other_us < one_us) ? other_us : one_us;
}

/* Notes what was left of a hold, with -1 only that time has passed. */
static inline void rlock__least_left(rlock_metrics *metrics, int64_t now_us, int64_t left_us) {
    int64_t *least_us = metrics->least_us, age_us = now_us - metrics->since_us;
    if (metrics->least_left_us < 0) {
        least_us[0] = least_us[1] = -1;
    }
    if (age_us >= RLOCK__LEAST_US) {
        least_us[1] = age_us < 2 * (int64_t)RLOCK__LEAST_US ? least_us[0] : -1;
        least_us[0] = -1;
        metrics->since_us = now_us;
    }
    least_us[0] = rlock__least(least_us[0], left_us);
    metrics->least_left_us = rlock__least(least_us[0], least_us[1]);
}

/* The hook: config.on_event, with a metrics as config.event_user. */
static inline void rlock_metrics_report(void *user, const rlock_report *report) {
    rlock_metrics *metrics = (rlock_metrics *)user;
    rlock_report_kind kind = report->kind;
    int result = report->status <= 0 && report->status > -RLOCK__RESULTS ? -report->status : 0;
    if (kind == RLOCK_REPORT_ASKED) {
        metrics->waiting++;
    } else if (kind == RLOCK_REPORT_GRANTED || kind == RLOCK_REPORT_FAILED) {
        metrics->waiting--;
        metrics->acquires[result]++;
    } else if (kind == RLOCK_REPORT_RENEWED) {
        rlock__observe(&metrics->renewals, report->span_us);
        rlock__least_left(metrics, report->now_us, report->left_us);
    } else if (kind == RLOCK_REPORT_LET_GO) {
        metrics->releases[result]++;
    }
    if (kind == RLOCK_REPORT_GRANTED) {
        metrics->held++;
        rlock__observe(&metrics->waits, report->span_us);
        if (report->hand_us >= 0) {
            rlock__observe(&metrics->hand_overs, report->hand_us);
        }
    } else if (kind == RLOCK_REPORT_RELEASED || kind == RLOCK_REPORT_HANDED_ON ||
               kind == RLOCK_REPORT_LOST) {
        metrics->held--;
        metrics->losses[kind == RLOCK_REPORT_LOST ? report->reason : RLOCK_REASON_NONE]++;
        rlock__observe(&metrics->holds, report->span_us);
        rlock__least_left(metrics, report->now_us, report->left_us);
    } else {
        rlock__least_left(metrics, report->now_us, -1);
    }
    metrics->cleanups += kind == RLOCK_REPORT_CLEANED;
    metrics->connects += kind == RLOCK_REPORT_CONNECTED;
    metrics->disconnects += kind == RLOCK_REPORT_DISCONNECTED;
}

/* --- the page --- */

typedef struct rlock__page {
    const rlock_metrics *metrics; /* `count` of them */
    size_t count;
    char *out;
    size_t room, length;
} rlock__page;

static inline void rlock__page_add(rlock__page *page, const char *format, ...) {
    size_t left = page->room > page->length ? page->room - page->length : 0;
    va_list arguments;
    va_start(arguments, format);
    page->length +=
        (size_t)vsnprintf(left ? page->out + page->length : NULL, left, format, arguments);
    va_end(arguments);
}

/* One line: name_part{client="stock",label="word"} value; with per_s 1000000 the value counts
 * microseconds. */
static inline void rlock__page_line(rlock__page *page, size_t i, const char *name, const char *part,
                                    const char *label, const char *word, int64_t value, int per_s) {
    const char *client = page->metrics[i].name, *at = client;
    rlock__page_add(page, "%s%s%s", name, part, client ? "{client=\"" : label ? "{" : "");
    for (; at && *at; at++) {
        bool quoted = *at == '"' || *at == '\\' || *at == '\n';
        rlock__page_add(page, "%s%c", quoted ? "\\" : "", *at == '\n' ? 'n' : *at);
    }
    rlock__page_add(page, "%s", !client ? "" : label ? "\"," : "\"");
    if (label) {
        rlock__page_add(page, "%s=\"%s\"", label, word);
    }
    rlock__page_add(page, "%s %lld", client || label ? "}" : "", (long long)(value / per_s));
    rlock__page_add(page, per_s > 1 ? ".%06lld\n" : "\n", (long long)(value % per_s));
}

static inline void rlock__page_histogram(rlock__page *page, size_t i, const char *name,
                                         const int64_t *counts) {
    const char *seconds;
    int64_t count = 0;
    int k;
    for (k = 0; k <= RLOCK__BUCKETS; k++) {
        rlock__bucket_us(k, &seconds);
        count += counts[k];
        rlock__page_line(page, i, name, "_bucket", "le", seconds, count, 1);
    }
    rlock__page_line(page, i, name, "_sum", NULL, NULL, counts[k], 1000000); /* behind them */
    rlock__page_line(page, i, name, "_count", NULL, NULL, count, 1);
}

/* A family of lines: what stands at an offset of each metrics. */
typedef struct rlock__family {
    const char *name, *type, *help, *label;
    const char *const *words; /* of the label, for a counter each; NULL: there is none */
    size_t offset;
    int per_s; /* of a single number: as rlock__page_line has it */
} rlock__family;

static inline void rlock__page_family(rlock__page *page, const rlock__family *family) {
    size_t i;
    int k;
    rlock__page_add(page, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help, family->name,
                    family->type);
    for (i = 0; i < page->count; i++) {
        const char *metrics = (const char *)&page->metrics[i];
        const int64_t *at = (const int64_t *)(const void *)(metrics + family->offset);
        for (k = 0; family->words && k < RLOCK__RESULTS; k++) {
            if (family->words[k]) {
                rlock__page_line(page, i, family->name, "", family->label, family->words[k], at[k],
                                 1);
            }
        }
        if (*family->type == 'h') {
            rlock__page_histogram(page, i, family->name, at);
        } else if (!family->words && *at >= 0) { /* least_left_us: none yet */
            rlock__page_line(page, i, family->name, "", NULL, NULL, *at, family->per_s);
        }
    }
}

#define RLOCK__AT(member) offsetof(rlock_metrics, member)

/* Writes the page of `count` metrics, whose names are different, in the text format of Prometheus
 * (Content-Type: text/plain; version=0.0.4). Returns its length without the NUL: if that is not
 * less than `room` the page was cut, and is of no use. With room 0 nothing is written, and `out`
 * may be NULL. */
static inline size_t rlock_metrics_write(const rlock_metrics *metrics, size_t count, char *out,
                                         size_t room) {
    static const char *const acquires[RLOCK__RESULTS] = {
        /* [-status] */
        "ok",   "busy",   "timeout",    "canceled", NULL, NULL, "unknown", "conn",
        "auth", "server", "wrong_type", "nomem",    NULL, NULL, "closed"};
    static const char *const releases[RLOCK__RESULTS] = {
        /* [-status] */
        "ok",   NULL,     NULL, NULL,    "not_held", NULL, "unknown", "conn",
        "auth", "server", NULL, "nomem", NULL,       NULL, NULL};
    static const char *const losses[RLOCK__RESULTS] = {/* [rlock_reason] */
                                                       NULL, "expired", "stolen", "deleted",
                                                       "closed"};
    static const rlock__family families[] = {
        {"rlock_wait_seconds", "histogram", "From an acquire to its grant.", NULL, NULL,
         RLOCK__AT(waits), 0},
        {"rlock_hold_seconds", "histogram", "How long holds lasted.", NULL, NULL, RLOCK__AT(holds),
         0},
        {"rlock_hand_over_seconds", "histogram", "From one holder to the next, handed over.", NULL,
         NULL, RLOCK__AT(hand_overs), 0},
        {"rlock_renewal_late_seconds", "histogram", "From when a renewal was due to its answer.",
         NULL, NULL, RLOCK__AT(renewals), 0},
        {"rlock_acquires_total", "counter", "Acquires that ended.", "result", acquires,
         RLOCK__AT(acquires), 1},
        {"rlock_releases_total", "counter", "Releases that ended.", "result", releases,
         RLOCK__AT(releases), 1},
        {"rlock_losses_total", "counter", "Holds that were lost.", "reason", losses,
         RLOCK__AT(losses), 1},
        {"rlock_cleanups_total", "counter", "Tokens of abandoned requests that were cleaned up.",
         NULL, NULL, RLOCK__AT(cleanups), 1},
        {"rlock_connects_total", "counter", "Connections that were ready.", NULL, NULL,
         RLOCK__AT(connects), 1},
        {"rlock_disconnects_total", "counter", "Connections, and attempts, that ended.", NULL, NULL,
         RLOCK__AT(disconnects), 1},
        {"rlock_holds", "gauge", "Holds now.", NULL, NULL, RLOCK__AT(held), 1},
        {"rlock_waiters", "gauge", "Acquires that wait now.", NULL, NULL, RLOCK__AT(waiting), 1},
        {"rlock_least_left_seconds", "gauge", "The least time left of a hold.", NULL, NULL,
         RLOCK__AT(least_left_us), 1000000}};
    rlock__page page;
    size_t i;
    page.metrics = metrics;
    page.count = count;
    page.out = out;
    page.room = room;
    page.length = 0;
    for (i = 0; i < sizeof families / sizeof *families; i++) {
        rlock__page_family(&page, &families[i]);
    }
    return page.length;
}

#undef RLOCK__AT

#endif /* RLOCK_METRICS_H */

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
