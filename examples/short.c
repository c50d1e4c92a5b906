/* How does the shortest program take a lock? */
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    printf("lost %s: %s\n", rlock_key(lock, NULL), rlock_reason_str(event->reason));
    exit(1); /* stop the work: another may hold the lock now */
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    printf("acquired %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
    if (event->status == RLOCK_OK) {
        /* the work: no other process does it now */
        rlock_release(lock, NULL, user);
    }
}

int main(void) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .url = getenv("RLOCK_URL")};
    rlock_options options = {.key = "stock:42", .on_lost = on_lost};
    rlock_client *client;
    rlock *lock;
    if (rlock_client_new(&client, &config) || rlock_new(&lock, client, &options) ||
        rlock_acquire(lock, 5000, 0, on_acquired, NULL)) { /* it waits for 5 s at most */
        return 1;
    }
    ev_run(EV_DEFAULT, 0); /* returns when nothing is left to do */
    rlock_free(lock);
    rlock_client_free(client);
    return 0;
}
/* SPDX-License-Identifier: MIT */
