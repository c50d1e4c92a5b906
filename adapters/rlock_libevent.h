/* rlock_libevent.h - rlock.h on libevent 2.1
 * SPDX-License-Identifier: MIT
 *
 *     config.loop = rlock_libevent_loop(base);
 *
 * Everything here is static inline: include it in any file, link with -levent_core -pthread. Names
 * are resolved by rlock_resolve.h, unless RLOCK_NO_THREADS is defined. A base counts time in ticks
 * of a coarse clock of some milliseconds, unless it was made with EVENT_BASE_FLAG_PRECISE_TIMER.
 */

#ifndef RLOCK_LIBEVENT_H
#define RLOCK_LIBEVENT_H

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "rlock.h"
#include "rlock_resolve.h"

RLOCK__C_CASTS_BEGIN

/* One client on one base. */
typedef struct rlock__libevent {
    struct event_base *base;
    struct event *timer;
    rlock_client *client;
    rlock_lookup *lookups;
    bool zero; /* the timer is armed with no delay */
} rlock__libevent;

static inline void rlock__libevent_on_io(evutil_socket_t fd, short what, void *arg) {
    unsigned events = 0;
    (void)fd;
    /* libevent's back ends report error and hang-up as everything watched */
    if (what & EV_READ) {
        events |= RLOCK_IO_READ;
    }
    if (what & EV_WRITE) {
        events |= RLOCK_IO_WRITE;
    }
    rlock_on_io((rlock_io *)arg, events);
}

static inline void rlock__libevent_on_timer(evutil_socket_t fd, short what, void *arg) {
    rlock__libevent *s = (rlock__libevent *)arg;
    (void)fd;
    (void)what;
    s->zero = false;
    rlock_on_timer(s->client);
}

static inline void *rlock__libevent_open(void *ctx, rlock_client *client) {
    rlock__libevent *s = (rlock__libevent *)calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->base = (struct event_base *)ctx;
    s->client = client;
    s->timer = event_new(s->base, -1, 0, rlock__libevent_on_timer, s);
    if (s->timer == NULL) {
        free(s);
        return NULL;
    }
    return s;
}

static inline int rlock__libevent_watch(void *state, rlock_io *io, int fd, unsigned events) {
    rlock__libevent *s = (rlock__libevent *)state;
    struct event *watcher = (struct event *)io->data;
    short wanted = (short)(EV_PERSIST | ((events & RLOCK_IO_READ) ? EV_READ : 0) |
                           ((events & RLOCK_IO_WRITE) ? EV_WRITE : 0));

    if (events == 0) {
        if (watcher != NULL) {
            event_free(watcher); /* takes back an event that is active and not yet delivered */
            io->data = NULL;
        }
        return 0;
    }
    if (watcher == NULL) {
        watcher = event_new(s->base, fd, wanted, rlock__libevent_on_io, io);
        if (watcher == NULL) {
            return -1;
        }
    } else {
        event_del(watcher); /* assigning to an event that is added is not allowed */
        event_assign(watcher, s->base, fd, wanted, rlock__libevent_on_io, io);
    }
    if (event_add(watcher, NULL) != 0) {
        event_free(watcher);
        io->data = NULL;
        return -1;
    }
    io->data = watcher;
    return 0;
}

static inline void rlock__libevent_set_timer(void *state, int64_t delay_us) {
    rlock__libevent *s = (rlock__libevent *)state;
    struct timeval delay;
    if (delay_us == 0 && s->zero) {
        return; /* it keeps its turn: else setting it in every turn would put it off without end */
    }
    event_del(s->timer);
    s->zero = delay_us == 0;
    if (delay_us < 0) {
        return;
    }
    if (delay_us > 0) {
        event_base_update_cache_time(s->base); /* a delay would be short by the age of that time */
    }
    /* A delay of 0 is due in the next turn, where sockets are looked at before timers. */
    delay.tv_sec = (time_t)(delay_us / 1000000);
    delay.tv_usec = (suseconds_t)(delay_us % 1000000);
    if (event_add(s->timer, &delay) != 0) {
        /* libevent got no memory for its heap. A timer may be early but not lost: it comes in the
         * next turn, before the sockets, and the library asks for the rest of the delay. */
        event_active(s->timer, EV_TIMEOUT, 0);
        event_base_loopcontinue(s->base);
    }
}

static inline int rlock__libevent_resolve(void *state, rlock_name *name, const char *host) {
    return rlock_resolve(&((rlock__libevent *)state)->lookups, rlock__libevent_watch, state, name,
                         host);
}

static inline void rlock__libevent_close(void *state) {
    rlock__libevent *s = (rlock__libevent *)state;
    rlock_resolve_forget(&s->lookups);
    event_free(s->timer);
    free(s);
}

/* The loop to put into rlock_config. It must outlive the clients on it. */
static inline rlock_loop rlock_libevent_loop(struct event_base *base) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks); /* an optional hook that this does not know is NULL */
    hooks.ctx = base;
    hooks.open = rlock__libevent_open;
    hooks.watch = rlock__libevent_watch;
    hooks.set_timer = rlock__libevent_set_timer;
    hooks.close = rlock__libevent_close;
    hooks.resolve = RLOCK_RESOLVES ? rlock__libevent_resolve : NULL;
    return hooks;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_LIBEVENT_H */

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
