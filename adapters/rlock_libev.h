/* rlock_libev.h - rlock.h on libev 4
 * SPDX-License-Identifier: MIT
 *
 *     config.loop = rlock_libev_loop(EV_DEFAULT);
 *
 * Everything here is static inline: include it in any file, link with -lev -pthread. Names are
 * resolved by rlock_resolve.h, unless RLOCK_NO_THREADS is defined. ev_run returns when only idle
 * clients are left. libev aborts the program when it gets no memory for its own tables: see
 * ev_set_allocator().
 */

#ifndef RLOCK_LIBEV_H
#define RLOCK_LIBEV_H

#include <ev.h>
#include <stdlib.h>
#include <string.h>

#include "rlock.h"
#include "rlock_resolve.h"

RLOCK__C_CASTS_BEGIN

#if !EV_MULTIPLICITY
#error "rlock_libev.h needs a libev with EV_MULTIPLICITY"
#endif

/* One client on one loop. The timer lives here, so that starting it needs no memory of ours. */
typedef struct rlock__libev {
    struct ev_loop *loop;
    rlock_client *client;
    ev_timer timer;
    rlock_lookup *lookups;
    bool zero; /* the timer is armed with no delay */
    bool idle;
    int watched; /* descriptors */
    int lent;    /* watchers that libev does not count, so that they do not keep ev_run */
} rlock__libev;

static inline void rlock__libev_count(rlock__libev *s) {
    int lent = s->idle ? s->watched + (ev_is_active(&s->timer) != 0) : 0;
    for (; s->lent < lent; s->lent++) {
        ev_unref(s->loop);
    }
    for (; s->lent > lent; s->lent--) {
        ev_ref(s->loop);
    }
}

static inline void rlock__libev_on_io(struct ev_loop *loop, ev_io *watcher, int revents) {
    unsigned events = 0;
    (void)loop;
    /* libev reports error and hang-up as everything watched, and a bad descriptor as EV_ERROR */
    if (revents & (EV_READ | EV_ERROR)) {
        events |= RLOCK_IO_READ;
    }
    if (revents & (EV_WRITE | EV_ERROR)) {
        events |= RLOCK_IO_WRITE;
    }
    rlock_on_io((rlock_io *)watcher->data, events);
}

static inline void rlock__libev_on_timer(struct ev_loop *loop, ev_timer *timer, int revents) {
    rlock__libev *s = (rlock__libev *)timer->data;
    (void)loop;
    (void)revents;
    s->zero = false;
    rlock__libev_count(s);
    rlock_on_timer(s->client);
}

static inline void *rlock__libev_open(void *ctx, rlock_client *client) {
    rlock__libev *s = (rlock__libev *)calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->loop = (struct ev_loop *)ctx;
    s->client = client;
    ev_timer_init(&s->timer, rlock__libev_on_timer, 0., 0.);
    /* unless they are less urgent, libev calls timers before the descriptors of the same turn */
    ev_set_priority(&s->timer, EV_MINPRI);
    s->timer.data = s;
    return s;
}

static inline int rlock__libev_watch(void *state, rlock_io *io, int fd, unsigned events) {
    rlock__libev *s = (rlock__libev *)state;
    ev_io *watcher = (ev_io *)io->data;
    int wanted =
        ((events & RLOCK_IO_READ) ? EV_READ : 0) | ((events & RLOCK_IO_WRITE) ? EV_WRITE : 0);

    if (events == 0) {
        if (watcher != NULL) {
            ev_io_stop(s->loop, watcher); /* takes back a fetched event too */
            free(watcher);
            io->data = NULL;
            s->watched--;
            rlock__libev_count(s);
        }
        return 0;
    }
    if (watcher == NULL) {
        watcher = (ev_io *)malloc(sizeof *watcher);
        if (watcher == NULL) {
            return -1;
        }
        ev_io_init(watcher, rlock__libev_on_io, fd, wanted);
        watcher->data = io;
        io->data = watcher;
        s->watched++;
    } else {
        ev_io_stop(s->loop, watcher);
        ev_io_set(watcher, fd, wanted);
    }
    ev_io_start(s->loop, watcher);
    rlock__libev_count(s);
    return 0;
}

static inline void rlock__libev_set_timer(void *state, int64_t delay_us) {
    rlock__libev *s = (rlock__libev *)state;
    if (delay_us == 0 && s->zero) {
        return; /* it keeps its turn: else setting it in every turn would put it off without end */
    }
    ev_timer_stop(s->loop, &s->timer);
    s->zero = delay_us == 0;
    if (delay_us > 0) {
        ev_now_update(s->loop); /* a delay would be short by the age of libev's cached time */
    }
    if (delay_us >= 0) { /* one of 0 is due in the next turn, where sockets come before timers */
        ev_timer_set(&s->timer, (double)delay_us * 1e-6, 0.);
        ev_timer_start(s->loop, &s->timer);
    }
    rlock__libev_count(s);
}

static inline void rlock__libev_idle(void *state, bool idle) {
    rlock__libev *s = (rlock__libev *)state;
    s->idle = idle;
    rlock__libev_count(s);
}

static inline int rlock__libev_resolve(void *state, rlock_name *name, const char *host) {
    return rlock_resolve(&((rlock__libev *)state)->lookups, rlock__libev_watch, state, name, host);
}

static inline void rlock__libev_close(void *state) {
    rlock__libev *s = (rlock__libev *)state;
    rlock_resolve_forget(&s->lookups);
    ev_timer_stop(s->loop, &s->timer);
    rlock__libev_idle(s, false);
    free(s);
}

/* The loop to put into rlock_config. It must outlive the clients on it. */
static inline rlock_loop rlock_libev_loop(struct ev_loop *loop) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks); /* an optional hook that this does not know is NULL */
    hooks.ctx = loop;
    hooks.open = rlock__libev_open;
    hooks.watch = rlock__libev_watch;
    hooks.set_timer = rlock__libev_set_timer;
    hooks.close = rlock__libev_close;
    hooks.resolve = RLOCK_RESOLVES ? rlock__libev_resolve : NULL;
    hooks.idle = rlock__libev_idle;
    return hooks;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_LIBEV_H */

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
