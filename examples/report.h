/* A nightly report that is written on many machines and must be written once. examples/report.c
 * runs it on libev and a server; examples/tested.c tests it without either, which is why all that
 * it needs of the outside is given to it.
 *
 * The machine that gets the lock writes the pages, one after the other, and goes on where another
 * one has stopped. The others wait until it is done, or until it is gone. */
#ifndef REPORT_H
#define REPORT_H

#include <stdio.h>
#include <string.h>

#include "rlock.h"

#define REPORT_PAGES 3
#define REPORT_PAGE_MS 200    /* a page takes so long */
#define REPORT_AGAIN_MS 10000 /* after an error that only an operator can mend */
#define REPORT_LEASE_MS 5000  /* a machine that dies is followed after that */

typedef struct report_world { /* the outside */
    rlock_config config;      /* the loop; the server, or a store */
    void *ctx;                /* for the functions */
    /* Calls report_tick once, after so long; replaces the last; negative = stop. */
    void (*set_timer)(void *ctx, int64_t ms);
    int (*pages)(void *ctx); /* how many are in the archive */
    /* False: the disk failed, or a later holder of the lock has written already. */
    bool (*write_page)(void *ctx, int page, uint64_t fence);
    void (*say)(void *ctx, const char *line);
    void (*done)(void *ctx); /* all pages are there, and the lock is released */
} report_world;

typedef struct report {
    report_world world;
    rlock_client *client;
    rlock *lock;
} report;

static void report_on_acquired(rlock *lock, const rlock_event *event, void *user);

static void report_on_released(rlock *lock, const rlock_event *event, void *user) {
    report *r = (report *)user;
    (void)lock, (void)event; /* the pages are there, however the release ended */
    r->world.done(r->world.ctx);
}

static void report_try(report *r) {
    if (rlock_acquire(r->lock, RLOCK_FOREVER, 0, report_on_acquired, r) != RLOCK_OK) {
        r->world.set_timer(r->world.ctx, REPORT_AGAIN_MS); /* no memory; or on_lost is due */
    }
}

/* A page is ready, or it is time to try again. */
static void report_tick(report *r) {
    int page = r->world.pages(r->world.ctx) + 1;
    char line[64];
    if (!rlock_is_held(r->lock)) {
        report_try(r); /* it has lost the lock, or could not acquire it */
    } else if (page > REPORT_PAGES) {
        rlock_release(r->lock, report_on_released, r);
    } else {
        bool written = r->world.write_page(r->world.ctx, page, rlock_fence(r->lock));
        snprintf(line, sizeof line, "page %d %s", page, written ? "is written" : "is refused");
        r->world.say(r->world.ctx, line);
        r->world.set_timer(r->world.ctx, written ? REPORT_PAGE_MS : REPORT_AGAIN_MS);
    }
}

static void report_on_acquired(rlock *lock, const rlock_event *event, void *user) {
    report *r = (report *)user;
    char line[128];
    (void)lock;
    if (event->status == RLOCK_OK) {
        r->world.set_timer(r->world.ctx, REPORT_PAGE_MS);
    } else if (event->status != RLOCK_ERR_CLOSED) {
        snprintf(line, sizeof line, "cannot acquire: %s", rlock_strerror(event->status));
        r->world.say(r->world.ctx, line);
        r->world.set_timer(r->world.ctx, REPORT_AGAIN_MS);
    }
}

/* Nothing more is written: another one may write now. This one waits for its turn. */
static void report_on_lost(rlock *lock, const rlock_event *event, void *user) {
    report *r = (report *)user;
    char line[64];
    (void)lock;
    snprintf(line, sizeof line, "lost the lock: %s", rlock_reason_str(event->reason));
    r->world.say(r->world.ctx, line);
    r->world.set_timer(r->world.ctx, -1);
    if (event->reason != RLOCK_REASON_CLOSED) {
        report_try(r);
    }
}

static void report_stop(report *r) {
    r->world.set_timer(r->world.ctx, -1);
    rlock_free(r->lock);
    rlock_client_free(r->client);
    r->lock = NULL;
    r->client = NULL;
}

/* Begins. Returns RLOCK_OK or why it cannot; `done` is called at the end, report_stop ends it. */
static int report_start(report *r, const report_world *world) {
    rlock_options options;
    int status;
    memset(r, 0, sizeof *r);
    memset(&options, 0, sizeof options);
    r->world = *world;
    r->world.config.watchdog_lease_ms = REPORT_LEASE_MS;
    options.key = "nightly";
    options.fencing = true;
    options.on_lost = report_on_lost;
    options.user = r;
    status = rlock_client_new(&r->client, &r->world.config);
    if (status == RLOCK_OK) {
        status = rlock_new(&r->lock, r->client, &options);
    }
    if (status == RLOCK_OK) {
        report_try(r);
    } else {
        report_stop(r);
    }
    return status;
}

#endif

/* SPDX-License-Identifier: MIT */
