/* rlock_sd_event.h - rlock.h on sd-event, the loop of systemd's library
 * SPDX-License-Identifier: MIT
 *
 *     config.loop = rlock_sd_event_loop(event);
 *
 * Everything here is static inline: include it in any file, link with -lsystemd -pthread. Names are
 * resolved by rlock_resolve.h, unless RLOCK_NO_THREADS is defined. Its sources have the priority
 * SD_EVENT_PRIORITY_NORMAL. Free the clients before the last sd_event_unref. After sd_event_exit
 * sd-event serves none of them any more: shut them down before.
 */

#ifndef RLOCK_SD_EVENT_H
#define RLOCK_SD_EVENT_H

#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>
#include <time.h>

#include "rlock.h"
#include "rlock_resolve.h"

RLOCK__C_CASTS_BEGIN

#ifndef CLOCK_BOOTTIME
#error "rlock_sd_event.h needs POSIX: compile with -D_POSIX_C_SOURCE=200809L or -std=gnu99"
#endif

/* One client on one loop. */
typedef struct rlock__sd_event {
    sd_event *event;
    rlock_client *client;
    sd_event_source *timer;
    rlock_lookup *lookups;
    bool zero;   /* the timer is armed with no delay ... */
    bool looked; /* ... and came up once already */
} rlock__sd_event;

static inline int rlock__sd_event_on_io(sd_event_source *source, int fd, uint32_t found, void *io) {
    (void)fd;
    if (found & (EPOLLERR | EPOLLHUP)) { /* without EPOLLIN and EPOLLOUT: everything watched */
        sd_event_source_get_io_events(source, &found);
    }
    rlock_on_io((rlock_io *)io,
                (found & EPOLLIN ? RLOCK_IO_READ : 0) | (found & EPOLLOUT ? RLOCK_IO_WRITE : 0));
    return 0; /* less would disable the source */
}

static inline int rlock__sd_event_on_timer(sd_event_source *timer, uint64_t due_us, void *state) {
    rlock__sd_event *s = (rlock__sd_event *)state;
    (void)due_us;
    if (s->zero && !s->looked) {
        /* sd-event looks at descriptors and clock together, then serves one source of those that
         * came up, the eldest first. So descriptors that came up with the timer for the first time
         * are served before it comes up for the second time. */
        s->looked = true;
        sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
        return 0;
    }
    s->zero = false;
    rlock_on_timer(s->client);
    return 0;
}

static inline void *rlock__sd_event_open(void *ctx, rlock_client *client) {
    rlock__sd_event *s = (rlock__sd_event *)calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->event = (sd_event *)ctx;
    s->client = client;
    /* a clock that goes on while a device sleeps, as leases do; to 1 us, as 0 would mean 250 ms */
    if (sd_event_add_time(s->event, &s->timer, CLOCK_BOOTTIME, 0, 1, rlock__sd_event_on_timer, s) <
        0) {
        free(s);
        return NULL;
    }
    sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
    return s;
}

/* Takes back what came up and is not served yet, too. */
static inline void rlock__sd_event_end(sd_event_source *source) {
    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    sd_event_source_unref(source);
}

static inline int rlock__sd_event_watch(void *state, rlock_io *io, int fd, unsigned events) {
    rlock__sd_event *s = (rlock__sd_event *)state;
    sd_event_source *source = (sd_event_source *)io->data;
    uint32_t wanted = (events & RLOCK_IO_READ ? (uint32_t)EPOLLIN : 0) |
                      (events & RLOCK_IO_WRITE ? (uint32_t)EPOLLOUT : 0);
    int status;

    if (events == 0) {
        if (source != NULL) {
            rlock__sd_event_end(source);
            io->data = NULL;
        }
        return 0;
    }
    if (source == NULL) {
        status = sd_event_add_io(s->event, &source, fd, wanted, rlock__sd_event_on_io, io);
    } else {
        status = sd_event_source_set_io_events(source, wanted);
    }
    if (status < 0) {
        if (io->data != NULL) {
            rlock__sd_event_end(source);
            io->data = NULL;
        }
        return -1;
    }
    io->data = source;
    return 0;
}

static inline void rlock__sd_event_set_timer(void *state, int64_t delay_us) {
    rlock__sd_event *s = (rlock__sd_event *)state;
    struct timespec now;
    if (delay_us == 0 && s->zero) {
        return; /* it keeps its turn: else setting it in every turn would put it off without end */
    }
    s->zero = delay_us == 0;
    s->looked = false;
    if (delay_us < 0) {
        sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
        return;
    }
    clock_gettime(CLOCK_BOOTTIME, &now); /* not sd_event_now: that of this turn is old */
    sd_event_source_set_time(s->timer, (uint64_t)now.tv_sec * 1000000 +
                                           (uint64_t)now.tv_nsec / 1000 + (uint64_t)delay_us);
    sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static inline int rlock__sd_event_resolve(void *state, rlock_name *name, const char *host) {
    return rlock_resolve(&((rlock__sd_event *)state)->lookups, rlock__sd_event_watch, state, name,
                         host);
}

static inline void rlock__sd_event_close(void *state) {
    rlock__sd_event *s = (rlock__sd_event *)state;
    rlock_resolve_forget(&s->lookups);
    rlock__sd_event_end(s->timer);
    free(s);
}

/* The loop to put into rlock_config. It must outlive the clients on it. */
static inline rlock_loop rlock_sd_event_loop(sd_event *event) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks); /* an optional hook that this does not know is NULL */
    hooks.ctx = event;
    hooks.open = rlock__sd_event_open;
    hooks.watch = rlock__sd_event_watch;
    hooks.set_timer = rlock__sd_event_set_timer;
    hooks.close = rlock__sd_event_close;
    hooks.resolve = RLOCK_RESOLVES ? rlock__sd_event_resolve : NULL;
    return hooks;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_SD_EVENT_H */

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
