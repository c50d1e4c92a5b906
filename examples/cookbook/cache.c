/* A value that is costly to make is missing in the cache, and many want it at once: one makes it,
 * the others wait for that one and then read it. The cache is a file here, and could be any:
 *
 *     cache FILE REQUESTS                          so many requests come at once */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "rlock.h"
#include "rlock_libev.h"

static const char *path;
static char draft[4096]; /* of this process alone */
static int pending, made, answered;

static bool look(void) {
    char value[8];
    FILE *file = fopen(path, "r");
    bool found = file && fgets(value, sizeof value, file);
    return file && fclose(file) == 0 && found;
}

static void answer(rlock *lock) {
    answered += look();
    rlock_free(lock); /* if it holds the lock, that is released: the next one may look */
    if (--pending == 0) {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
}

static bool write_draft(void) {
    FILE *file = fopen(draft, "w");
    bool written = file && fputs("42\n", file) >= 0;
    return file && fclose(file) == 0 && written; /* a full disk may be told at the end only */
}

static void on_made(int revents, void *lock) {
    (void)revents;
    if (write_draft() && rename(draft, path) == 0) { /* nobody reads half a value */
        made++;
    } else {
        perror(draft);
        remove(draft);
    }
    answer(lock); /* releases it only now: who looks next finds the value */
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    if (look()) { /* again: another may have made it while this one waited */
        answer(lock);
    } else { /* also without the lock, as in an outage: a second time is better than never */
        if (event->status != RLOCK_OK) {
            fprintf(stderr, "makes it without the lock: %s\n", rlock_strerror(event->status));
        }
        ev_once(EV_DEFAULT, -1, 0, 0.3, on_made, lock); /* it takes long to make */
    }
}

static void request(rlock *lock) {
    pending++;
    if (look()) {
        answer(lock); /* nearly always: the lock costs nothing then */
    } else if (rlock_acquire(lock, 5000, 0, on_acquired, NULL) != RLOCK_OK) {
        on_made(0, lock);
    }
}

static void on_log(void *file, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(file, "%s\n", line);
    }
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log, .user = stderr};
    rlock_options options = {.key = "answer"};
    int i, status, requests = argc > 2 ? atoi(argv[2]) : 0;
    rlock_client *client;
    rlock *lock;
    if (requests < 1) {
        fprintf(stderr, "usage: cache FILE REQUESTS\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    path = argv[1];
    config.url = getenv("RLOCK_URL");
    if ((status = rlock_client_new(&client, &config)) != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    snprintf(draft, sizeof draft, "%s.%s", path, rlock_client_id(client));
    for (i = 0; i < requests && rlock_new(&lock, client, &options) == RLOCK_OK; i++) {
        request(lock);
    }
    ev_run(EV_DEFAULT, 0);
    printf("%d of %d answered, made %d times\n", answered, requests, made);
    rlock_client_free(client);
    return answered != requests;
}
/* SPDX-License-Identifier: MIT */
