/* One at a time for each key: jobs of one customer never run side by side, nor out of their order
 * in this process; those of different customers do. Any number of these processes share the work:
 *
 *     keyed ann bob ann carl
 *
 * FAIR serves the processes of a key in the order in which they asked. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "rlock.h"
#include "rlock_libev.h"

#define JOB_S 0.05

static int pending, failed;

static void done(rlock *lock, const char *why) { /* why: the job has to be done again */
    if (why) {
        fprintf(stderr, "%s: %s\n", rlock_key(lock, NULL), why);
        failed = 1;
    }
    rlock_free(lock);
    if (--pending == 0) {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    done(lock, event->status == RLOCK_OK ? NULL : rlock_strerror(event->status));
}

static void on_worked(int revents, void *job) {
    rlock *lock = job;
    (void)revents;
    printf("end %s %d\n", rlock_key(lock, NULL), (int)getpid());
    if (rlock_release(lock, on_released, NULL) != RLOCK_OK) {
        done(lock, "the lock was lost in the middle of the job");
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    if (event->status != RLOCK_OK) {
        done(lock, event->text ? event->text : rlock_strerror(event->status));
        return;
    }
    printf("begin %s %d\n", rlock_key(lock, NULL), (int)getpid());
    ev_once(EV_DEFAULT, -1, 0, JOB_S, on_worked, lock); /* the job itself */
}

static void on_log(void *file, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(file, "%s\n", line);
    }
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log, .user = stderr};
    rlock_options options = {.kind = RLOCK_KIND_FAIR};
    rlock_client *client;
    rlock *lock;
    int status;

    if (argc < 2) {
        fprintf(stderr, "usage: keyed KEY...\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    config.url = getenv("RLOCK_URL");
    status = rlock_client_new(&client, &config);
    for (; status == RLOCK_OK && argc > 1 + pending; pending++) { /* a handle for each job */
        options.key = argv[1 + pending];
        if ((status = rlock_new(&lock, client, &options)) == RLOCK_OK) {
            status = rlock_acquire(lock, RLOCK_FOREVER, 0, on_acquired, NULL);
        }
    }
    if (status != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_client_free(client);
    return failed;
}
/* SPDX-License-Identifier: MIT */
