/* SIGTERM: the piece of work in hand is finished, the lock is released, then the program leaves.
 * Whoever waits goes on at once, and not after the lease of 30 s. A second SIGTERM does not wait
 * for the work. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "rlock.h"
#include "rlock_libev.h"

#define PIECE_S 0.2
static rlock_client *client;
static int busy, ending, failed;

static void on_shutdown(rlock_client *c, int status, void *user) {
    (void)c, (void)user;
    printf("leaves: %s\n", status == RLOCK_OK ? "ok" : "no answer, its lease has to run out");
    failed |= status != RLOCK_OK;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void leave(void) { /* releases everything; on_shutdown follows within 2 s in any case */
    rlock_client_shutdown(client, 2000, on_shutdown, NULL);
}

static void on_piece(int revents, void *lock) {
    (void)revents;
    busy = !ending && rlock_is_held(lock);
    if (busy) {
        ev_once(EV_DEFAULT, -1, 0, PIECE_S, on_piece, lock); /* one more piece of work */
    } else if (ending) {
        printf("finished its piece\n");
        leave();
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    if (event->status == RLOCK_OK) {
        printf("works\n");
        on_piece(0, lock);
    } else if (event->status != RLOCK_ERR_CLOSED) { /* CLOSED: it leaves */
        fprintf(stderr, "%s\n", event->text ? event->text : rlock_strerror(event->status));
        failed = 1;
        leave();
    }
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    printf("stops: %s\n", rlock_reason_str(event->reason));
    if (event->reason != RLOCK_REASON_CLOSED) { /* CLOSED: it leaves already */
        failed = 1;
        leave();
    }
}

static void on_term(struct ev_loop *loop, ev_signal *watcher, int revents) {
    (void)loop, (void)watcher, (void)revents;
    if (ending++ || !busy) {
        leave();
    }
}

static void on_log(void *file, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(file, "%s\n", line);
    }
}

int main(void) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log, .user = stderr};
    rlock_options options = {.key = "shift", .on_lost = on_lost};
    ev_signal term;
    rlock *lock;
    int status;
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0); /* each line at once */
    ev_signal_init(&term, on_term, SIGTERM);
    ev_signal_start(EV_DEFAULT, &term);
    config.url = getenv("RLOCK_URL");
    if ((status = rlock_client_new(&client, &config)) != RLOCK_OK ||
        (status = rlock_new(&lock, client, &options)) != RLOCK_OK ||
        (status = rlock_acquire(lock, RLOCK_FOREVER, 0, on_acquired, NULL)) != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    return failed;
}
/* SPDX-License-Identifier: MIT */
