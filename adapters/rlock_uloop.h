/* rlock_uloop.h - rlock.h on uloop, the loop of OpenWrt's libubox
 * SPDX-License-Identifier: MIT
 *
 *     uloop_init();
 *     config.loop = rlock_uloop_loop();
 *
 * Everything here is static inline: include it in any file, link with -lubox -pthread. Names are
 * resolved by rlock_resolve.h, unless RLOCK_NO_THREADS is defined. A process has one uloop. Each
 * client takes two descriptors of its own, a pipe. uloop counts time in milliseconds.
 */

#ifndef RLOCK_ULOOP_H
#define RLOCK_ULOOP_H

#ifdef __cplusplus
extern "C" {
#endif
#include <libubox/uloop.h>
#ifdef __cplusplus
}
#endif
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rlock.h"
#include "rlock_resolve.h"

RLOCK__C_CASTS_BEGIN

/* Those of an older uloop have no such flag, and forget a descriptor in error. */
#ifdef ULOOP_ERROR_CB
enum { RLOCK__ULOOP_KEEPS = ULOOP_ERROR_CB };
#else
enum { RLOCK__ULOOP_KEEPS = 0 };
#endif

typedef struct rlock__uloop_fd {
    struct uloop_fd fd; /* first: a pointer to it is one to all of this */
    rlock_io *io;
    unsigned wanted;
} rlock__uloop_fd;

/* One client. uloop calls timers that are due before each event, without a look at the descriptors
 * in between. So a delay of 0 is a descriptor of its own, one that is always ready. */
typedef struct rlock__uloop {
    struct uloop_timeout timer; /* a delay above 0; first, as above */
    struct uloop_fd zero;       /* a delay of 0: watches the writing end of a pipe */
    bool looked;                /* it was found ready once already */
    int ends[2];                /* the pipe, which stays empty */
    rlock_client *client;
    rlock_lookup *lookups;
} rlock__uloop;

static inline unsigned rlock__uloop_flags(unsigned events) {
    /* ULOOP_BLOCKING: it is left as it is */
    return (events & RLOCK_IO_READ ? (unsigned)ULOOP_READ : 0) |
           (events & RLOCK_IO_WRITE ? (unsigned)ULOOP_WRITE : 0) | (unsigned)ULOOP_BLOCKING |
           (unsigned)RLOCK__ULOOP_KEEPS;
}

static inline void rlock__uloop_on_io(struct uloop_fd *fd, unsigned found) {
    rlock__uloop_fd *watcher = (rlock__uloop_fd *)(void *)fd;
    unsigned events =
        (found & ULOOP_READ ? RLOCK_IO_READ : 0) | (found & ULOOP_WRITE ? RLOCK_IO_WRITE : 0);
    if (fd->error) { /* or a hang-up: everything watched, until it is forgotten */
        fd->error = false;
        events = watcher->wanted;
        if (!fd->registered) {
            uloop_fd_add(fd, rlock__uloop_flags(events));
        }
    }
    rlock_on_io(watcher->io, events & watcher->wanted);
}

static inline void rlock__uloop_on_timer(struct uloop_timeout *timer) {
    rlock_on_timer(((rlock__uloop *)(void *)timer)->client);
}

static inline void rlock__uloop_on_zero(struct uloop_fd *fd, unsigned found) {
    rlock__uloop *s = (rlock__uloop *)(void *)((char *)fd - offsetof(rlock__uloop, zero));
    (void)found;
    if (!s->looked) {
        s->looked = true; /* what was found with it, and stands behind it, comes first */
        return;
    }
    uloop_fd_delete(fd);
    rlock_on_timer(s->client);
}

static inline void *rlock__uloop_open(void *ctx, rlock_client *client) {
    rlock__uloop *s = (rlock__uloop *)calloc(1, sizeof *s);
    (void)ctx;
    if (s == NULL || pipe(s->ends) != 0) {
        free(s);
        return NULL;
    }
    fcntl(s->ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(s->ends[1], F_SETFD, FD_CLOEXEC);
    s->client = client;
    s->timer.cb = rlock__uloop_on_timer;
    s->zero.cb = rlock__uloop_on_zero;
    s->zero.fd = s->ends[1];
    return s;
}

static inline int rlock__uloop_watch(void *state, rlock_io *io, int fd, unsigned events) {
    rlock__uloop_fd *watcher = (rlock__uloop_fd *)io->data;
    (void)state;
    if (events != 0 && watcher == NULL) {
        watcher = (rlock__uloop_fd *)calloc(1, sizeof *watcher);
        if (watcher == NULL) {
            return -1;
        }
        watcher->fd.fd = fd;
        watcher->fd.cb = rlock__uloop_on_io;
        watcher->io = io;
        io->data = watcher;
    }
    if (events != 0) {
        watcher->wanted = events;
        if (uloop_fd_add(&watcher->fd, rlock__uloop_flags(events)) == 0) {
            return 0;
        }
    }
    if (watcher != NULL) {
        uloop_fd_delete(&watcher->fd); /* takes back a fetched event too */
        free(watcher);
        io->data = NULL;
    }
    return events == 0 ? 0 : -1;
}

static inline void rlock__uloop_set_timer(void *state, int64_t delay_us) {
    rlock__uloop *s = (rlock__uloop *)state;
    int64_t ms = 1;
    if (delay_us == 0 && s->zero.registered) {
        return; /* it keeps its turn: else setting it in every turn would put it off without end */
    }
    uloop_timeout_cancel(&s->timer);
    uloop_fd_delete(&s->zero);
    s->looked = false;
    if (delay_us < 0 ||
        (delay_us == 0 && uloop_fd_add(&s->zero, rlock__uloop_flags(RLOCK_IO_WRITE)) == 0)) {
        return; /* the kernel may refuse to watch it: then 1 ms has to do */
    }
    if (delay_us > 0) { /* rounded up, and one more, because uloop is early by a part of one */
        ms = (delay_us + 999) / 1000 + 1;
    }
    uloop_timeout_set(&s->timer, ms < INT_MAX ? (int)ms : INT_MAX);
}

static inline int rlock__uloop_resolve(void *state, rlock_name *name, const char *host) {
    return rlock_resolve(&((rlock__uloop *)state)->lookups, rlock__uloop_watch, state, name, host);
}

static inline void rlock__uloop_close(void *state) {
    rlock__uloop *s = (rlock__uloop *)state;
    rlock_resolve_forget(&s->lookups);
    uloop_timeout_cancel(&s->timer);
    uloop_fd_delete(&s->zero);
    close(s->ends[0]);
    close(s->ends[1]);
    free(s);
}

/* The loop to put into rlock_config, after uloop_init. Free the clients before uloop_done. */
static inline rlock_loop rlock_uloop_loop(void) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks); /* an optional hook that this does not know is NULL */
    hooks.open = rlock__uloop_open;
    hooks.watch = rlock__uloop_watch;
    hooks.set_timer = rlock__uloop_set_timer;
    hooks.close = rlock__uloop_close;
    hooks.resolve = RLOCK_RESOLVES ? rlock__uloop_resolve : NULL;
    return hooks;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_ULOOP_H */

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
