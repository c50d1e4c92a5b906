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

static rlock_client *client;
static int pending, failed;

static void done(rlock *lock) {
    rlock_free(lock);
    if (--pending == 0) {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    failed |= event->status != RLOCK_OK;
    done(lock);
}

static void on_worked(int revents, void *job) {
    rlock *lock = job;
    (void)revents;
    printf("end %s %d\n", rlock_key(lock, NULL), (int)getpid());
    if (rlock_release(lock, on_released, NULL) != RLOCK_OK) {
        failed = 1; /* it was lost in the middle: put the job back into its queue */
        done(lock);
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    if (event->status != RLOCK_OK) {
        fprintf(stderr, "%s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
        failed = 1;
        done(lock);
        return;
    }
    printf("begin %s %d\n", rlock_key(lock, NULL), (int)getpid());
    ev_once(EV_DEFAULT, -1, 0, JOB_S, on_worked, lock); /* the job itself */
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .url = getenv("RLOCK_URL")};
    rlock_options options = {.kind = RLOCK_KIND_FAIR};
    int i;

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (rlock_client_new(&client, &config) != RLOCK_OK) {
        return 1;
    }
    for (i = 1; i < argc; i++) { /* a handle for each job */
        rlock *lock;
        options.key = argv[i];
        if (rlock_new(&lock, client, &options) != RLOCK_OK ||
            rlock_acquire(lock, RLOCK_FOREVER, 0, on_acquired, NULL) != RLOCK_OK) {
            return 1;
        }
        pending++;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_client_free(client);
    return failed;
}
