/* rlock_poll.h - a small loop of its own for rlock.h, on poll(2)
 * SPDX-License-Identifier: MIT
 *
 *     rlock_poll *loop = rlock_poll_new();
 *     config.loop = rlock_poll_loop(loop);
 *     ... make the client, acquire ...
 *     rlock_poll_run(loop);
 *
 * For programs that have no loop: any number of clients, and descriptors of your own. Link with
 * -pthread: names are resolved by rlock_resolve.h, unless RLOCK_NO_THREADS is defined. It is also
 * the page to read before you write an adapter for another loop: four hooks, each with the promises
 * of the loop contract (>>loop-contract in rlock.h) that it keeps.
 */

#ifndef RLOCK_POLL_H
#define RLOCK_POLL_H

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rlock.h"
#include "rlock_resolve.h"

RLOCK__C_CASTS_BEGIN

#ifndef CLOCK_MONOTONIC
#error "rlock_poll.h needs POSIX: compile with -D_POSIX_C_SOURCE=200809L or -std=gnu99"
#endif

/* One client on one loop: what `open` returns and the other hooks are given. */
typedef struct rlock__poll_client {
    struct rlock_poll *loop;
    rlock_client *client;
    int64_t due_us; /* its timer; negative = none */
    unsigned turn;  /* the turn in which the timer was set */
    rlock_lookup *lookups;
    size_t watched; /* descriptors of this client */
    bool idle;      /* neither these nor the timer keep the loop from ending */
    struct rlock__poll_client *next;
} rlock__poll_client;

/* A loop. Its members are its own. */
typedef struct rlock_poll {
    struct pollfd *fds; /* fds[i].fd is negative where place i is free: poll(2) skips it */
    rlock_io **ios;     /* whose descriptor it is */
    size_t size, used;
    rlock__poll_client *clients;
    rlock__poll_client *cursor; /* the next one to look at: any callback may close any client */
    unsigned turn;
    bool stopped;
} rlock_poll;

static inline int64_t rlock__poll_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline unsigned rlock__poll_events(int bits) {
    return (bits & POLLIN ? RLOCK_IO_READ : 0) | (bits & POLLOUT ? RLOCK_IO_WRITE : 0);
}

/* Watches a descriptor of your own: an rlock_io, zero but for `ready`, which is called. Events 0
 * forget it. 0, or -1 = no memory. The hook `watch` is this too; io->data is the place + 1. */
static inline int rlock_poll_watch(rlock_poll *loop, rlock_io *io, int fd, unsigned events) {
    size_t i = (size_t)(uintptr_t)io->data;
    if (events == 0) {
        if (i-- > 0) {
            loop->fds[i].fd = -1; /* promise 3: not called any more, even if an event was fetched */
            loop->used--;
        }
        io->data = NULL;
        return 0;
    }
    if (i-- == 0) {
        for (i = 0; i < loop->size && loop->fds[i].fd >= 0; i++) {
        }
        if (i == loop->size) {
            struct pollfd *fds = (struct pollfd *)realloc(loop->fds, (i + 1) * sizeof *fds);
            rlock_io **ios = (rlock_io **)realloc(loop->ios, (i + 1) * sizeof *ios);
            loop->fds = fds != NULL ? fds : loop->fds;
            loop->ios = ios != NULL ? ios : loop->ios;
            if (fds == NULL || ios == NULL) {
                return -1; /* promise 5: this hook may fail, the connection is given up */
            }
            loop->size++;
        }
        loop->used++;
    }
    loop->fds[i].fd = fd;
    loop->fds[i].events =
        (short)((events & RLOCK_IO_READ ? POLLIN : 0) | (events & RLOCK_IO_WRITE ? POLLOUT : 0));
    loop->fds[i].revents = 0; /* what was fetched was another's, or for other events */
    loop->ios[i] = io;
    io->data = (void *)(uintptr_t)(i + 1);
    return 0;
}

static inline int rlock__poll_watch(void *state, rlock_io *io, int fd, unsigned events) {
    rlock__poll_client *s = (rlock__poll_client *)state;
    size_t before = s->loop->used;
    int status = rlock_poll_watch(s->loop, io, fd, events);
    s->watched += s->loop->used - before;
    return status;
}

/* Hook `open`: all that the other hooks but `watch` will need is allocated here (promise 5). */
static inline void *rlock__poll_open(void *ctx, rlock_client *client) {
    rlock__poll_client *s = (rlock__poll_client *)calloc(1, sizeof *s);
    if (s != NULL) {
        s->loop = (rlock_poll *)ctx;
        s->client = client;
        s->due_us = -1;
        s->next = s->loop->clients;
        s->loop->clients = s;
    }
    return s;
}

/* Hook `set_timer`: replaces the last, and calls nothing itself (promise 1). */
static inline void rlock__poll_set_timer(void *state, int64_t delay_us) {
    rlock__poll_client *s = (rlock__poll_client *)state;
    int64_t now_us = rlock__poll_now_us(); /* a time cached by the loop would cut the delay short */
    if (delay_us == 0 && s->due_us >= 0 && s->due_us <= now_us) {
        return; /* due already: it keeps its turn, else setting it often would put it off */
    }
    s->due_us = delay_us < 0 ? -1 : now_us + delay_us;
    s->turn = s->loop->turn; /* promise 4: not in this turn, one more look comes first */
}

/* Hook `resolve`, which may be NULL: by rlock_resolve.h, through the hook `watch`. */
static inline int rlock__poll_resolve(void *state, rlock_name *name, const char *host) {
    return rlock_resolve(&((rlock__poll_client *)state)->lookups, rlock__poll_watch, state, name,
                         host);
}

/* Hook `idle`, which may be NULL. */
static inline void rlock__poll_idle(void *state, bool idle) {
    ((rlock__poll_client *)state)->idle = idle;
}

/* Hook `close`: no call after it (promise 3). */
static inline void rlock__poll_close(void *state) {
    rlock__poll_client *s = (rlock__poll_client *)state, **link = &s->loop->clients;
    rlock_resolve_forget(&s->lookups);
    while (*link != s) {
        link = &(*link)->next;
    }
    *link = s->next;
    s->loop->cursor = s->loop->cursor == s ? s->next : s->loop->cursor;
    free(s);
}

/* What a look at the descriptors found. By index, because a callback may move the table. */
static inline void rlock__poll_serve(rlock_poll *loop, size_t looked) {
    unsigned turn = loop->turn; /* a callback may run the loop, which polls again */
    size_t i;
    for (i = 0; i < looked && loop->turn == turn; i++) {
        rlock_io *io = loop->ios[i];
        unsigned events = rlock__poll_events(loop->fds[i].revents);
        if (loop->fds[i].revents & (POLLERR | POLLHUP | POLLNVAL)) {
            events = rlock__poll_events(loop->fds[i].events); /* promise 2: everything watched */
        }
        if (loop->fds[i].fd < 0 || events == 0) {
            continue;
        }
        /* one of the program's own has no client; `io` may be gone behind the call */
        (io->client != NULL ? rlock_on_io : io->ready)(io, events);
    }
}

/* True if something is left to wait for: idle clients do not count. */
static inline bool rlock_poll_alive(const rlock_poll *loop) {
    size_t used = loop->used;
    const rlock__poll_client *s;
    for (s = loop->clients; s != NULL; s = s->next) {
        if (!s->idle && s->due_us >= 0) {
            return true;
        }
        used -= s->idle ? s->watched : 0;
    }
    return used > 0;
}

/* One turn: a look at the descriptors of at most max_ms (negative = no limit), then what is ready,
 * then what is due. False, and nothing done, if nothing is watched and no timer is set; without a
 * limit also if the loop is not alive. */
static inline bool rlock_poll_once(rlock_poll *loop, int max_ms) {
    int64_t now_us = rlock__poll_now_us(), sleep_ms = max_ms < 0 ? INT_MAX : max_ms;
    bool any = loop->used > 0, timed = max_ms >= 0;
    rlock__poll_client *s;
    int found;

    for (s = loop->clients; s != NULL; s = s->next) {
        if (s->due_us >= 0) { /* rounded up (promise 4): else it would spin through the last part */
            int64_t left_ms = s->due_us <= now_us ? 0 : (s->due_us - now_us + 999) / 1000;
            sleep_ms = left_ms < sleep_ms ? left_ms : sleep_ms;
            any = timed = true;
        }
    }
    if (!any || (max_ms < 0 && !rlock_poll_alive(loop))) {
        return false;
    }
    loop->turn++;
    found = poll(loop->fds, (nfds_t)loop->size, timed ? (int)sleep_ms : -1);
    now_us = rlock__poll_now_us();
    rlock__poll_serve(loop, found > 0 ? loop->size : 0); /* interrupted = nothing found */
    for (s = loop->clients; s != NULL; s = loop->cursor) {
        loop->cursor = s->next;
        if (s->due_us >= 0 && s->due_us <= now_us && s->turn != loop->turn) {
            s->due_us = -1;
            rlock_on_timer(s->client); /* `s` may be gone behind it (promise 1) */
        }
    }
    return true;
}

/* Turns until rlock_poll_stop is called or the loop is not alive. A callback may call it. */
static inline void rlock_poll_run(rlock_poll *loop) {
    loop->stopped = false;
    while (!loop->stopped && rlock_poll_once(loop, -1)) {
    }
    loop->stopped = false; /* one that runs around this goes on */
}

/* From a callback: ends rlock_poll_run after this turn, of several the innermost. */
static inline void rlock_poll_stop(rlock_poll *loop) {
    loop->stopped = true;
}

/* The loop to put into rlock_config. */
static inline rlock_loop rlock_poll_loop(rlock_poll *loop) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks); /* an optional hook that this does not know is NULL */
    hooks.ctx = loop;
    hooks.open = rlock__poll_open;
    hooks.watch = rlock__poll_watch;
    hooks.set_timer = rlock__poll_set_timer;
    hooks.close = rlock__poll_close;
    hooks.resolve = RLOCK_RESOLVES ? rlock__poll_resolve : NULL;
    hooks.idle = rlock__poll_idle;
    return hooks;
}

/* Makes a loop. NULL = no memory. */
static inline rlock_poll *rlock_poll_new(void) {
    return (rlock_poll *)calloc(1, sizeof(rlock_poll));
}

/* Frees a loop, after its clients. */
static inline void rlock_poll_free(rlock_poll *loop) {
    free(loop->fds);
    free(loop->ios);
    free(loop);
}

RLOCK__C_CASTS_END

#endif /* RLOCK_POLL_H */

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
