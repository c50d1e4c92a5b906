/* rlock_glib.h - rlock.h on GLib 2.36 or newer
 * SPDX-License-Identifier: MIT
 *
 *     config.loop = rlock_glib_loop(NULL);
 *
 * The argument is a GMainContext; NULL is the default one, which GTK runs. A client is a source of
 * G_PRIORITY_DEFAULT on it, and a callback may run the context. Everything here is static inline:
 * include it in any file, compile and link with what `pkg-config --cflags --libs glib-2.0` says and
 * with -pthread. Names are resolved by rlock_resolve.h, unless RLOCK_NO_THREADS is defined. GLib
 * aborts the program when it gets no memory for its own tables.
 */

#ifndef RLOCK_GLIB_H
#define RLOCK_GLIB_H

#include <glib.h>
#include <stdlib.h>
#include <string.h>

#include "rlock.h"
#include "rlock_resolve.h"

RLOCK__C_CASTS_BEGIN

typedef struct rlock__glib_fd {
    rlock_io *io;
    gpointer tag;
    unsigned wanted;
    struct rlock__glib_fd *next, **link;
} rlock__glib_fd;

/* One client on one context. GLib makes it, and frees it after the dispatch that closes it. */
typedef struct rlock__glib {
    GSource source; /* first: a pointer to it is one to all of this */
    rlock_client *client;
    rlock_lookup *lookups;
    rlock__glib_fd *fds;
    rlock__glib_fd *cursor; /* the next one to look at: any callback may forget any of them */
    gint64 due_us;          /* the timer; negative = none */
    bool looked;            /* a poll follows, or followed, since the timer was set */
} rlock__glib;

static inline gboolean rlock__glib_prepare(GSource *source, gint *timeout_ms) {
    ((rlock__glib *)source)->looked = true;
    *timeout_ms = -1; /* GLib knows when the timer is due */
    return FALSE;
}

static inline unsigned rlock__glib_found(rlock__glib *s, const rlock__glib_fd *fd) {
    unsigned found = (unsigned)g_source_query_unix_fd(&s->source, fd->tag);
    if (found & (G_IO_ERR | G_IO_HUP | G_IO_NVAL)) {
        return fd->wanted;
    }
    return fd->wanted &
           ((found & G_IO_IN ? RLOCK_IO_READ : 0) | (found & G_IO_OUT ? RLOCK_IO_WRITE : 0));
}

/* What was found, then what is due. GLib would call a source of the timer before or after those of
 * the descriptors as it likes, so that all of them are one source. */
static inline gboolean rlock__glib_dispatch(GSource *source, GSourceFunc call, gpointer data) {
    rlock__glib *s = (rlock__glib *)source;
    rlock__glib_fd *fd;
    (void)call, (void)data;
    for (fd = s->fds; fd != NULL; fd = s->cursor) { /* NULL too if a callback ran the context */
        unsigned events = rlock__glib_found(s, fd);
        s->cursor = fd->next;
        if (events != 0) {
            rlock_on_io(fd->io, events);
        }
    }
    if (s->due_us >= 0 && s->looked && s->due_us <= g_get_monotonic_time()) {
        s->due_us = -1;
        g_source_set_ready_time(source, -1);
        rlock_on_timer(s->client);
    }
    return TRUE; /* it stays; if it was closed meanwhile that is ignored */
}

static inline void *rlock__glib_open(void *ctx, rlock_client *client) {
    static GSourceFuncs calls = {rlock__glib_prepare, NULL, rlock__glib_dispatch, NULL, NULL, NULL};
    rlock__glib *s = (rlock__glib *)g_source_new(&calls, sizeof *s);
    s->client = client;
    s->due_us = -1;
    g_source_set_can_recurse(&s->source, TRUE);
    g_source_attach(&s->source, (GMainContext *)ctx);
    return s;
}

static inline int rlock__glib_watch(void *state, rlock_io *io, int fd, unsigned events) {
    rlock__glib *s = (rlock__glib *)state;
    rlock__glib_fd *watcher = (rlock__glib_fd *)io->data;
    GIOCondition wanted = (GIOCondition)((events & RLOCK_IO_READ ? G_IO_IN : 0) |
                                         (events & RLOCK_IO_WRITE ? G_IO_OUT : 0));
    if (events == 0) {
        if (watcher != NULL) {
            g_source_remove_unix_fd(&s->source, watcher->tag);
            s->cursor = s->cursor == watcher ? watcher->next : s->cursor;
            *watcher->link = watcher->next;
            if (watcher->next != NULL) {
                watcher->next->link = watcher->link;
            }
            free(watcher);
            io->data = NULL;
        }
        return 0;
    }
    if (watcher != NULL) {
        g_source_modify_unix_fd(&s->source, watcher->tag, wanted);
    } else {
        watcher = (rlock__glib_fd *)calloc(1, sizeof *watcher);
        if (watcher == NULL) {
            return -1;
        }
        watcher->io = io;
        watcher->tag = g_source_add_unix_fd(&s->source, fd, wanted);
        watcher->next = s->fds;
        watcher->link = &s->fds;
        if (s->fds != NULL) {
            s->fds->link = &watcher->next;
        }
        s->fds = watcher;
        io->data = watcher;
    }
    watcher->wanted = events;
    return 0;
}

static inline void rlock__glib_set_timer(void *state, int64_t delay_us) {
    rlock__glib *s = (rlock__glib *)state;
    gint64 now_us = g_get_monotonic_time(); /* not g_source_get_time: that of this turn is old */
    if (delay_us == 0 && s->due_us >= 0 && s->due_us <= now_us) {
        return; /* it keeps its turn: else setting it in every turn would put it off without end */
    }
    s->due_us = delay_us < 0 ? -1 : now_us + delay_us;
    s->looked = false;
    g_source_set_ready_time(&s->source, s->due_us);
}

static inline int rlock__glib_resolve(void *state, rlock_name *name, const char *host) {
    return rlock_resolve(&((rlock__glib *)state)->lookups, rlock__glib_watch, state, name, host);
}

static inline void rlock__glib_close(void *state) {
    rlock__glib *s = (rlock__glib *)state;
    rlock_resolve_forget(&s->lookups);
    s->due_us = -1;
    g_source_destroy(&s->source);
    g_source_unref(&s->source);
}

/* The loop to put into rlock_config. The context must outlive the clients on it, and be run by
 * their thread. */
static inline rlock_loop rlock_glib_loop(GMainContext *context) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks); /* an optional hook that this does not know is NULL */
    hooks.ctx = context;
    hooks.open = rlock__glib_open;
    hooks.watch = rlock__glib_watch;
    hooks.set_timer = rlock__glib_set_timer;
    hooks.close = rlock__glib_close;
    hooks.resolve = RLOCK_RESOLVES ? rlock__glib_resolve : NULL;
    return hooks;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_GLIB_H */

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
