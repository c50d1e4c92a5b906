/* How do I take a lock, work, and let it go? The argument is how many seconds the work takes. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"

static double work_s;  /* 0 without an argument */
static int failed = 1; /* the exit status: 0 after a release that succeeded */

static void on_log(void *file, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(file, "log: %s\n", line);
    }
}

static void on_lost(rlock *lock, const rlock_event *event, void *loop) {
    printf("lost %s: %s\n", rlock_key(lock, NULL), rlock_reason_str(event->reason));
    ev_break(loop, EVBREAK_ALL); /* stop the work: another may hold the lock now */
}

static void on_released(rlock *lock, const rlock_event *event, void *loop) {
    printf("released %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
    failed = event->status != RLOCK_OK;
    ev_break(loop, EVBREAK_ALL);
}

static void on_worked(int revents, void *lock) {
    (void)revents;
    if (rlock_release(lock, on_released, EV_DEFAULT) != RLOCK_OK) {
        ev_break(EV_DEFAULT, EVBREAK_ALL); /* it is not held any more */
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *loop) {
    if (event->status == RLOCK_OK) {
        printf("acquired %s\n", rlock_key(lock, NULL));
        ev_once(loop, -1, 0, work_s, on_worked, lock); /* here the work begins */
    } else {
        printf("cannot acquire %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
        if (event->text) { /* the server's words, or what failed on the way to it */
            printf("  %s\n", event->text);
        }
        ev_break(loop, EVBREAK_ALL);
    }
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log, .user = stderr};
    rlock_options options = {.key = "stock:42", .on_lost = on_lost, .user = EV_DEFAULT};
    rlock_client *client;
    rlock *lock;
    int status;
    signal(SIGPIPE, SIG_IGN);         /* a closed socket is an error, not the end of the program */
    config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    config.watchdog_lease_ms = 10000; /* if this process dies, others wait that long */
    work_s = argc > 1 ? atof(argv[1]) : 0;
    /* wait_ms 5000: it waits for 5 s at most; lease_ms 0: the watchdog renews */
    if ((status = rlock_client_new(&client, &config)) != RLOCK_OK ||
        (status = rlock_new(&lock, client, &options)) != RLOCK_OK ||
        (status = rlock_acquire(lock, 5000, 0, on_acquired, EV_DEFAULT)) != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    return failed;
}
/* SPDX-License-Identifier: MIT */
