/* How do I write a program so that it can be tested with rlock_testing.h? It gets its loop and its
 * timer from outside, as report.h does. Here they are libev's; examples/tested.c has others.
 * The argument is the archive: a file, with a line for each page. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"
#include "report.h"

static report nightly;
static ev_timer timer;
static const char *archive;

static void on_timer(struct ev_loop *loop, ev_timer *at, int revents) {
    (void)loop;
    (void)at;
    (void)revents;
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

/* How many pages the archive has, and the highest fencing token that wrote one. */
static int read_archive(uint64_t *fence) {
    FILE *file = fopen(archive, "r");
    unsigned long long by;
    int page, pages = 0;
    *fence = 0;
    while (file && fscanf(file, "page %d, fence %llu\n", &page, &by) == 2) {
        pages = page;
        *fence = by > *fence ? by : *fence;
    }
    if (file) {
        fclose(file);
    }
    return pages;
}

static int pages(void *ctx) {
    uint64_t fence;
    (void)ctx;
    return read_archive(&fence);
}

/* A database compares and writes in one step: docs/protect-a-row.md. */
static bool write_page(void *ctx, int page, uint64_t fence) {
    uint64_t last;
    FILE *file;
    (void)ctx;
    read_archive(&last);
    file = fence < last ? NULL : fopen(archive, "a");
    if (!file) {
        return false;
    }
    fprintf(file, "page %d, fence %llu\n", page, (unsigned long long)fence);
    return fclose(file) == 0;
}

static void say(void *ctx, const char *line) {
    (void)ctx;
    puts(line);
}

static void done(void *ctx) {
    (void)ctx;
    puts("done");
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_log(void *file, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(file, "log: %s\n", line);
    }
}

int main(int argc, char **argv) {
    report_world world = {
        .set_timer = set_timer, .pages = pages, .write_page = write_page, .say = say, .done = done};
    int status;
    if (argc != 2) {
        fprintf(stderr, "usage: report ARCHIVE\n");
        return 2;
    }
    archive = argv[1];
    signal(SIGPIPE, SIG_IGN);
    ev_init(&timer, on_timer);
    world.config.loop = rlock_libev_loop(EV_DEFAULT);
    world.config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    world.config.log = on_log;
    world.config.user = stderr;
    status = report_start(&nightly, &world);
    if (status != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    report_stop(&nightly);
    return 0;
}

/* SPDX-License-Identifier: MIT */
