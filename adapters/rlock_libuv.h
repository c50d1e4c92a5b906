/* rlock_libuv.h - rlock.h on libuv 1
 * SPDX-License-Identifier: MIT
 *
 *     config.loop = rlock_libuv_loop(uv_default_loop());
 *
 * Everything here is static inline: include it in any file, link with -luv. Names are resolved on
 * libuv's thread pool. Closing takes libuv a turn: after the last rlock_client_free let uv_run
 * return before you call uv_loop_close. It returns when only idle clients are left, whose names, if
 * they ask for some, are resolved.
 */

#ifndef RLOCK_LIBUV_H
#define RLOCK_LIBUV_H

#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "rlock.h"

RLOCK__C_CASTS_BEGIN

/* One client on one loop. Its memory outlives close() until libuv is done with all in it. */
typedef struct rlock__libuv {
    uv_loop_t *loop;
    rlock_client *client; /* NULL = closed */
    uv_timer_t timer;     /* a delay above 0 */
    uv_idle_t idler;      /* a delay of 0: this keeps the loop awake, and comes before the look, */
    uv_check_t check;     /* check comes behind it; a uv_timer of 0 would come before it */
    bool looking;         /* a look since the delay of 0 was asked for */
    bool idle;            /* what is in it does not keep uv_run */
    struct rlock__libuv_fd *fds;
    int pending; /* handles not closed yet, and names not resolved yet */
} rlock__libuv;

/* One descriptor. Its memory outlives watch(0) until libuv has closed the handle. */
typedef struct rlock__libuv_fd {
    uv_poll_t poll;
    rlock_io *io;
    int wanted;
    struct rlock__libuv_fd *next, **link; /* those of the client */
} rlock__libuv_fd;

typedef struct rlock__libuv_name {
    uv_getaddrinfo_t request;
    rlock_name *name;
    rlock__libuv *owner;
} rlock__libuv_name;

static inline void rlock__libuv_on_io(uv_poll_t *poll, int status, int ready) {
    rlock__libuv_fd *watcher = (rlock__libuv_fd *)poll->data;
    if (status < 0) { /* libuv stops it then, but an error is an event until watch(0) */
        uv_poll_start(poll, watcher->wanted, rlock__libuv_on_io);
        ready = watcher->wanted;
    }
    rlock_on_io(watcher->io, (ready & UV_READABLE ? RLOCK_IO_READ : 0) |
                                 (ready & UV_WRITABLE ? RLOCK_IO_WRITE : 0));
}

static inline void rlock__libuv_stop(rlock__libuv *s) {
    uv_timer_stop(&s->timer);
    uv_idle_stop(&s->idler);
    uv_check_stop(&s->check);
    s->looking = false;
}

static inline void rlock__libuv_on_timer(uv_timer_t *timer) {
    rlock_on_timer(((rlock__libuv *)timer->data)->client);
}

static inline void rlock__libuv_on_idle(uv_idle_t *idle) {
    ((rlock__libuv *)idle->data)->looking = true;
}

static inline void rlock__libuv_on_check(uv_check_t *check) {
    rlock__libuv *s = (rlock__libuv *)check->data;
    if (s->looking) { /* else it was armed after the look of this turn */
        rlock__libuv_stop(s);
        rlock_on_timer(s->client);
    }
}

static inline void *rlock__libuv_open(void *ctx, rlock_client *client) {
    rlock__libuv *s = (rlock__libuv *)calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->loop = (uv_loop_t *)ctx;
    s->client = client;
    uv_timer_init(s->loop, &s->timer); /* these three cannot fail */
    uv_idle_init(s->loop, &s->idler);
    uv_check_init(s->loop, &s->check);
    s->timer.data = s->idler.data = s->check.data = s;
    s->pending = 3;
    return s;
}

/* Counts a handle as one that keeps uv_run, or not. */
static inline void rlock__libuv_keep(void *handle, bool keep) {
    if (keep) {
        uv_ref((uv_handle_t *)handle);
    } else {
        uv_unref((uv_handle_t *)handle);
    }
}

static inline void rlock__libuv_idle(void *state, bool idle) {
    rlock__libuv *s = (rlock__libuv *)state;
    rlock__libuv_fd *watcher;
    s->idle = idle;
    rlock__libuv_keep(&s->timer, !idle);
    rlock__libuv_keep(&s->idler, !idle);
    rlock__libuv_keep(&s->check, !idle);
    for (watcher = s->fds; watcher != NULL; watcher = watcher->next) {
        rlock__libuv_keep(&watcher->poll, !idle);
    }
}

static inline void rlock__libuv_fd_closed(uv_handle_t *handle) {
    free(handle->data);
}

/* No event comes after it. */
static inline void rlock__libuv_fd_close(rlock_io *io) {
    rlock__libuv_fd *watcher = (rlock__libuv_fd *)io->data;
    *watcher->link = watcher->next;
    if (watcher->next != NULL) {
        watcher->next->link = watcher->link;
    }
    uv_close((uv_handle_t *)&watcher->poll, rlock__libuv_fd_closed);
    io->data = NULL;
}

static inline int rlock__libuv_watch(void *state, rlock_io *io, int fd, unsigned events) {
    rlock__libuv *s = (rlock__libuv *)state;
    rlock__libuv_fd *watcher = (rlock__libuv_fd *)io->data;

    if (events == 0) {
        if (watcher != NULL) {
            rlock__libuv_fd_close(io);
        }
        return 0;
    }
    if (watcher == NULL) {
        watcher = (rlock__libuv_fd *)calloc(1, sizeof *watcher);
        if (watcher == NULL) {
            return -1;
        }
        if (uv_poll_init(s->loop, &watcher->poll, fd) != 0) {
            free(watcher);
            return -1;
        }
        watcher->poll.data = watcher;
        watcher->io = io;
        io->data = watcher;
        watcher->next = s->fds;
        watcher->link = &s->fds;
        if (s->fds != NULL) {
            s->fds->link = &watcher->next;
        }
        s->fds = watcher;
        rlock__libuv_keep(&watcher->poll, !s->idle);
    }
    watcher->wanted = ((events & RLOCK_IO_READ) ? UV_READABLE : 0) |
                      ((events & RLOCK_IO_WRITE) ? UV_WRITABLE : 0);
    if (uv_poll_start(&watcher->poll, watcher->wanted, rlock__libuv_on_io) != 0) {
        rlock__libuv_fd_close(io);
        return -1;
    }
    return 0;
}

static inline void rlock__libuv_set_timer(void *state, int64_t delay_us) {
    rlock__libuv *s = (rlock__libuv *)state;
    if (delay_us == 0 && uv_is_active((uv_handle_t *)&s->check)) {
        return; /* it keeps its turn: else setting it in every turn would put it off without end */
    }
    rlock__libuv_stop(s);
    if (delay_us == 0) {
        uv_idle_start(&s->idler, rlock__libuv_on_idle);
        uv_check_start(&s->check, rlock__libuv_on_check);
    } else if (delay_us > 0) { /* rounded up, and one more for what uv_now lacks of now */
        uv_update_time(s->loop);
        uv_timer_start(&s->timer, rlock__libuv_on_timer, (uint64_t)(delay_us + 999) / 1000 + 1, 0);
    }
}

static inline void rlock__libuv_done(rlock__libuv *s) {
    if (--s->pending == 0) {
        free(s);
    }
}

static inline void rlock__libuv_closed(uv_handle_t *handle) {
    rlock__libuv_done((rlock__libuv *)handle->data);
}

static inline void rlock__libuv_close(void *state) {
    rlock__libuv *s = (rlock__libuv *)state;
    s->client = NULL;
    uv_close((uv_handle_t *)&s->timer, rlock__libuv_closed);
    uv_close((uv_handle_t *)&s->idler, rlock__libuv_closed);
    uv_close((uv_handle_t *)&s->check, rlock__libuv_closed);
}

static inline void rlock__libuv_resolved(uv_getaddrinfo_t *request, int status,
                                         struct addrinfo *found) {
    rlock__libuv_name *lookup = (rlock__libuv_name *)request->data;
    rlock__libuv *s = lookup->owner;
    struct addrinfo *at = status == 0 ? found : NULL;
    const struct sockaddr *all[8]; /* at most this many addresses are reported: the first ones */
    unsigned count = 0;
    for (; at != NULL && count < sizeof all / sizeof all[0]; at = at->ai_next) {
        all[count++] = at->ai_addr;
    }
    if (s->client != NULL) {
        rlock_on_resolved_all(lookup->name, all, count);
    }
    uv_freeaddrinfo(found);
    free(lookup);
    rlock__libuv_done(s);
}

static inline int rlock__libuv_resolve(void *state, rlock_name *name, const char *host) {
    rlock__libuv *s = (rlock__libuv *)state;
    struct addrinfo hints;
    rlock__libuv_name *lookup = (rlock__libuv_name *)malloc(sizeof *lookup);
    if (lookup == NULL) {
        return -1;
    }
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    lookup->request.data = lookup;
    lookup->name = name;
    lookup->owner = s;
    if (uv_getaddrinfo(s->loop, &lookup->request, rlock__libuv_resolved, host, NULL, &hints)) {
        free(lookup);
        return -1;
    }
    s->pending++;
    return 0;
}

/* The loop to put into rlock_config. It must outlive the clients on it. */
static inline rlock_loop rlock_libuv_loop(uv_loop_t *loop) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks); /* an optional hook that this does not know is NULL */
    hooks.ctx = loop;
    hooks.open = rlock__libuv_open;
    hooks.watch = rlock__libuv_watch;
    hooks.set_timer = rlock__libuv_set_timer;
    hooks.close = rlock__libuv_close;
    hooks.resolve = rlock__libuv_resolve;
    hooks.idle = rlock__libuv_idle;
    return hooks;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_LIBUV_H */

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
