/* How do I test my program on its own loop, with its own timers and sockets, and without a server?
 * The server of rlock_testing.h answers in real time there: here the program of report.h, on libev
 * as in report.c, whose lock is stolen after the first page, while the server is away for a second.
 * examples/tested.c tests the same program in virtual time, in milliseconds. */
#include <ev.h>
#include <stdio.h>
#define RLOCK_NO_REDIS
#define RLOCK_IMPLEMENTATION
#include "rlock_testing.h"
#include "rlock_libev.h"
#include "report.h"

static report nightly;
static rlock_testing *t;
static ev_timer timer, later;
static int archived[REPORT_PAGES + 1]; /* how often each page was written */

static void on_timer(struct ev_loop *loop, ev_timer *at, int revents) {
    (void)loop, (void)at, (void)revents;
    report_tick(&nightly);
}

static void set_timer(void *ctx, int64_t ms) {
    (void)ctx;
    ev_timer_stop(EV_DEFAULT, &timer);
    if (ms >= 0) {
        ev_timer_set(&timer, (double)ms / 1000, 0);
        ev_timer_start(EV_DEFAULT, &timer);
    }
}

static int pages(void *ctx) {
    int page = 0;
    (void)ctx;
    while (page < REPORT_PAGES && archived[page + 1]) {
        page++;
    }
    return page;
}

/* What others do: the test is a part of the program's loop. */
static void on_later(struct ev_loop *loop, ev_timer *at, int revents) {
    (void)loop, (void)at, (void)revents;
    puts("the server is back, and the thief is gone");
    rlock_testing_server(t, RLOCK_TESTING_UP);
    rlock_testing_let_go(t, "nightly");
}

static bool write_page(void *ctx, int page, uint64_t fence) {
    (void)ctx, (void)fence;
    archived[page]++;
    if (page == 1) {
        rlock_testing_steal(t, "nightly");
    }
    return true;
}

static void say(void *ctx, const char *line) {
    (void)ctx;
    puts(line);
    if (strcmp(line, "lost the lock: stolen") == 0) {
        rlock_testing_server(t, RLOCK_TESTING_DOWN);
        ev_timer_set(&later, 1, 0);
        ev_timer_start(EV_DEFAULT, &later);
    }
}

static void done(void *ctx) {
    (void)ctx;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

int main(void) {
    report_world world = {
        .set_timer = set_timer, .pages = pages, .write_page = write_page, .say = say, .done = done};
    ev_init(&timer, on_timer);
    ev_init(&later, on_later);
    t = rlock_testing_new_on(rlock_libev_loop(EV_DEFAULT));
    world.config.loop = rlock_testing_loop(t);
    world.config.store = rlock_testing_store(t);
    if (report_start(&nightly, &world) != RLOCK_OK) {
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    report_stop(&nightly);
    rlock_testing_free(t);
    puts(archived[1] == 1 && archived[2] == 1 && archived[3] == 1 ? "each page once" : "failed");
    return 0;
}

/* SPDX-License-Identifier: MIT */
