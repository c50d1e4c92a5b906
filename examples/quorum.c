/* How do I keep a lock when the server dies that it is on?
 * By several servers, of which a majority has to live: quorum URL..., each as redis://host:port or
 * unix:///path. Kill some of them meanwhile. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"

#define LEASE_MS 1000
#define WORK_S 4.0 /* several leases: the watchdog keeps the lock alive */

static rlock *lock;
static ev_timer work;
static int failed = 1; /* the exit status: 0 after a release that succeeded */

static void on_released(rlock *l, const rlock_event *event, void *user) {
    (void)l;
    (void)user;
    printf("released: %s\n", rlock_strerror(event->status));
    failed = event->status != RLOCK_OK;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_work_done(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)timer;
    (void)revents;
    printf("worked for %.0f leases; held now: %s\n", WORK_S * 1000 / LEASE_MS,
           rlock_is_held(lock) ? "yes" : "no");
    if (rlock_release(lock, on_released, NULL) != RLOCK_OK) {
        ev_break(loop, EVBREAK_ALL);
    }
}

static void on_acquired(rlock *l, const rlock_event *event, void *user) {
    (void)l;
    (void)user;
    printf("acquired: %s\n", rlock_strerror(event->status));
    if (event->status != RLOCK_OK) {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
        return;
    }
    ev_timer_init(&work, on_work_done, WORK_S, 0.);
    ev_timer_start(EV_DEFAULT, &work);
}

static void on_lost(rlock *l, const rlock_event *event, void *user) {
    (void)l;
    (void)user;
    printf("lost: %s\n", rlock_strerror(event->status)); /* stop the work here */
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "  %s\n", line);
    }
}

int main(int argc, char **argv) {
    rlock_config servers[15], config;
    rlock_options options;
    rlock_store *quorum;
    rlock_client *client;
    int i, count = argc - 1;

    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    memset(servers, 0, sizeof servers);
    for (i = 0; i < count && i < 15; i++) {
        servers[i].url = argv[i + 1];
    }
    if (rlock_quorum_new(&quorum, servers, count) != RLOCK_OK) {
        fprintf(stderr, "usage: quorum URL..., 1 to 15 of them\n");
        return 2;
    }
    memset(&config, 0, sizeof config);
    memset(&options, 0, sizeof options);
    config.loop = rlock_libev_loop(EV_DEFAULT);
    config.store = quorum;
    config.watchdog_lease_ms = LEASE_MS;
    config.log = on_log;
    options.key = "quorum";
    options.on_lost = on_lost;
    if (rlock_client_new(&client, &config) != RLOCK_OK ||
        rlock_new(&lock, client, &options) != RLOCK_OK) {
        return 1;
    }
    rlock_acquire(lock, 5000, 0, on_acquired, NULL);
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    rlock_quorum_free(quorum); /* after its clients */
    return failed;
}

/* SPDX-License-Identifier: MIT */
