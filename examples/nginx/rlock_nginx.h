/* rlock_nginx.h - rlock.h on the event loop of nginx 1.17.5 and later
 *
 *     config.loop = rlock_nginx_loop(ngx_cycle->log);
 *
 * Everything here is static: include it in a module, after ngx_core.h, and make the client in
 * init_process or later. Names are resolved by rlock_resolve.h, unless RLOCK_NO_THREADS is
 * defined. Each descriptor takes one of worker_connections. A worker that is told to quit ends
 * when only idle clients are left; free them in exit_process. nginx counts time in milliseconds; a
 * timer_resolution above 10 ms makes the timers late. */
#ifndef RLOCK_NGINX_H
#define RLOCK_NGINX_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "rlock.h"
#include "rlock_resolve.h"

#define NGX_RLOCK_KEEP 60000 /* ms; it only has to be there */

/* One client. ident stands behind three pointers, as fd does in ngx_connection_t: debug logs show
 * it of each timer. */
typedef struct {
    rlock_client *client;
    rlock_lookup *lookups;
    ngx_log_t *log;
    ngx_int_t ident;
    ngx_event_t timer; /* a delay above 0 */
    ngx_event_t zero;  /* a delay of 0: it is posted behind the next look at the descriptors */
    ngx_event_t keep;  /* while this timer is set, a worker that is told to quit does not end */
    ngx_uint_t watched;
    unsigned looked : 1;
    unsigned idle : 1;
} ngx_rlock_loop_t;

/* Only timers that are not cancelable keep a worker; descriptors and posted events do not. */
static void ngx_rlock_count(ngx_rlock_loop_t *l) {
    ngx_uint_t keep = !l->idle && (l->watched || l->timer.timer_set || l->zero.posted);

    if (keep && !l->keep.timer_set) {
        ngx_add_timer(&l->keep, NGX_RLOCK_KEEP);
    } else if (!keep && l->keep.timer_set) {
        ngx_del_timer(&l->keep);
    }
}

static void ngx_rlock_keep_handler(ngx_event_t *ev) {
    ngx_rlock_count(ev->data);
}

static void ngx_rlock_timer_handler(ngx_event_t *ev) {
    ngx_rlock_loop_t *l = ev->data;

    ngx_rlock_count(l);
    rlock_on_timer(l->client);
}

static void ngx_rlock_zero_handler(ngx_event_t *ev) {
    ngx_rlock_loop_t *l = ev->data;

    if (!l->looked) {
        /* with accept_mutex, what the look has found is posted too, and stands behind this */
        l->looked = 1;
        ngx_post_event(ev, &ngx_posted_events);
        return;
    }
    ngx_rlock_count(l);
    rlock_on_timer(l->client);
}

static void ngx_rlock_read_handler(ngx_event_t *rev) {
    ngx_connection_t *c = rev->data;

    rlock_on_io(c->data, RLOCK_IO_READ);
}

static void ngx_rlock_write_handler(ngx_event_t *wev) {
    ngx_connection_t *c = wev->data;

    rlock_on_io(c->data, RLOCK_IO_WRITE);
}

static void ngx_rlock_init_event(ngx_rlock_loop_t *l, ngx_event_t *ev,
                                 ngx_event_handler_pt handler) {
    ev->data = l;
    ev->log = l->log;
    ev->handler = handler;
}

static void *ngx_rlock_open(void *ctx, rlock_client *client) {
    ngx_rlock_loop_t *l = ngx_calloc(sizeof(ngx_rlock_loop_t), ctx);

    if (l == NULL) {
        return NULL;
    }
    l->client = client;
    l->log = ctx;
    l->ident = -1;
    ngx_rlock_init_event(l, &l->timer, ngx_rlock_timer_handler);
    ngx_rlock_init_event(l, &l->zero, ngx_rlock_zero_handler);
    ngx_rlock_init_event(l, &l->keep, ngx_rlock_keep_handler);
    l->timer.cancelable = 1;
    return l;
}

/* Level-triggered, also where nginx itself would ask for edges. */
static ngx_int_t ngx_rlock_switch(ngx_event_t *ev, ngx_int_t event, ngx_uint_t on) {
    ngx_int_t rc = NGX_OK;

    if (on && !ev->active) {
        rc = ngx_add_event(ev, event, NGX_LEVEL_EVENT);
    } else if (!on && ev->active) {
        rc = ngx_del_event(ev, event, 0);
    }
    if (!on && ev->posted) {
        ngx_delete_posted_event(ev);
    }
    return rc;
}

static void ngx_rlock_forget(ngx_connection_t *c) {
    (void)ngx_rlock_switch(c->read, NGX_READ_EVENT, 0);
    (void)ngx_rlock_switch(c->write, NGX_WRITE_EVENT, 0);
    ngx_free_connection(c); /* it looks at fd; the library closes that */
    c->fd = (ngx_socket_t)-1;
}

static int ngx_rlock_watch(void *state, rlock_io *io, int fd, unsigned events) {
    ngx_rlock_loop_t *l = state;
    ngx_connection_t *c = io->data;

    if (events == 0) {
        if (c != NULL) {
            io->data = NULL;
            ngx_rlock_forget(c);
            l->watched--;
            ngx_rlock_count(l);
        }
        return 0;
    }
    if (c == NULL) {
        c = ngx_get_connection(fd, l->log);
        if (c == NULL) {
            return -1;
        }
        c->data = io;
        c->read->handler = ngx_rlock_read_handler;
        c->write->handler = ngx_rlock_write_handler;
        c->read->log = l->log;
        c->write->log = l->log;
        io->data = c;
        l->watched++;
        ngx_rlock_count(l);
    }
    if (ngx_rlock_switch(c->read, NGX_READ_EVENT, events & RLOCK_IO_READ) != NGX_OK ||
        ngx_rlock_switch(c->write, NGX_WRITE_EVENT, events & RLOCK_IO_WRITE) != NGX_OK) {
        return -1; /* and is called with no events */
    }
    return 0;
}

/* By how much ngx_current_msec, from which timers count, is behind the clock. */
static ngx_msec_t ngx_rlock_age(void) {
    ngx_msec_t now;
    ngx_msec_int_t age;
#if (NGX_HAVE_CLOCK_MONOTONIC)
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    now = (ngx_msec_t)ts.tv_sec * 1000 + (ngx_msec_t)ts.tv_nsec / 1000000;
#else
    struct timeval tv;

    ngx_gettimeofday(&tv);
    now = (ngx_msec_t)tv.tv_sec * 1000 + (ngx_msec_t)tv.tv_usec / 1000;
#endif
    age = (ngx_msec_int_t)(now - ngx_current_msec);
    return age > 0 ? (ngx_msec_t)age : 0;
}

static void ngx_rlock_set_timer(void *state, int64_t delay_us) {
    ngx_rlock_loop_t *l = state;

    if (delay_us == 0 && l->zero.posted) {
        return; /* it keeps its turn */
    }
    if (l->timer.timer_set) {
        ngx_del_timer(&l->timer); /* else a new time that is near the old one is not taken */
    }
    if (l->zero.posted) {
        ngx_delete_posted_event(&l->zero);
    }
    if (delay_us == 0) {
        l->looked = 0;
        ngx_post_event(&l->zero, &ngx_posted_next_events);
    } else if (delay_us > 0) {
        /* rounded up, and one more, because the clock is rounded down */
        ngx_add_timer(&l->timer, (ngx_msec_t)((delay_us + 999) / 1000) + 1 + ngx_rlock_age());
    }
    ngx_rlock_count(l);
}

static void ngx_rlock_idle(void *state, bool idle) {
    ngx_rlock_loop_t *l = state;

    l->idle = idle;
    ngx_rlock_count(l);
}

static int ngx_rlock_resolve(void *state, rlock_name *name, const char *host) {
    ngx_rlock_loop_t *l = state;

    return rlock_resolve(&l->lookups, ngx_rlock_watch, l, name, host);
}

static void ngx_rlock_close(void *state) {
    ngx_rlock_loop_t *l = state;

    rlock_resolve_forget(&l->lookups);
    ngx_rlock_set_timer(l, -1);
    ngx_rlock_idle(l, true);
    ngx_free(l);
}

/* The loop to put into rlock_config. The log must outlive the clients. */
static rlock_loop rlock_nginx_loop(ngx_log_t *log) {
    rlock_loop hooks;

    ngx_memzero(&hooks, sizeof(rlock_loop));
    hooks.ctx = log;
    hooks.open = ngx_rlock_open;
    hooks.watch = ngx_rlock_watch;
    hooks.set_timer = ngx_rlock_set_timer;
    hooks.close = ngx_rlock_close;
    hooks.resolve = RLOCK_RESOLVES ? ngx_rlock_resolve : NULL;
    hooks.idle = ngx_rlock_idle;
    return hooks;
}

#endif /* RLOCK_NGINX_H */

/* SPDX-License-Identifier: MIT */
