/* Can I run and test my program with no server? Yes: the store inside the process has the same
 * leases, the same waiting and the same loss. Neither Redis nor hiredis is needed here. */
#include <stdio.h>
#define RLOCK_NO_REDIS
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_poll.h"

static rlock *alice, *bob;
static rlock_poll *loop;

static void on_bob_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    printf("bob:   released: %s\n", rlock_strerror(event->status));
    rlock_poll_stop(loop);
}

static void on_bob_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    printf("bob:   acquired: %s, fence %s\n", rlock_strerror(event->status),
           event->fence > *(uint64_t *)user ? "higher than alice's" : "too low");
    rlock_release(lock, on_bob_released, NULL);
}

static void on_bob_tried(rlock *lock, const rlock_event *event, void *alices_fence) {
    printf("bob:   tried once: %s for %s 500 ms\n", rlock_strerror(event->status),
           event->remaining_ms <= 500 ? "at most" : "more than");
    rlock_acquire(lock, RLOCK_FOREVER, 0, on_bob_acquired, alices_fence);
}

static void on_alice_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    printf("alice: %s, her lease is over\n", rlock_strerror(event->status));
}

static void on_alice_acquired(rlock *lock, const rlock_event *event, void *user) {
    static uint64_t fence;
    (void)lock;
    (void)user;
    printf("alice: acquired: %s, for 500 ms without a watchdog\n", rlock_strerror(event->status));
    fence = event->fence;
    rlock_acquire(bob, 0, 0, on_bob_tried, &fence);
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "%s\n", line);
    }
}

int main(void) {
    rlock_config config = {0};
    rlock_options options = {0};
    rlock_client *client;
    rlock_store *store;

    loop = rlock_poll_new();
    if (loop == NULL || rlock_memory_new(&store) != RLOCK_OK) {
        return 1;
    }
    config.loop = rlock_poll_loop(loop);
    config.log = on_log;
    config.store = store; /* this line is the difference */
    options.key = "door";
    options.fencing = true;
    options.on_lost = on_alice_lost;
    if (rlock_client_new(&client, &config) != RLOCK_OK ||
        rlock_new(&alice, client, &options) != RLOCK_OK) {
        return 1;
    }
    options.on_lost = NULL;
    if (rlock_new(&bob, client, &options) != RLOCK_OK) {
        return 1;
    }
    rlock_acquire(alice, 0, 500, on_alice_acquired, NULL);
    rlock_poll_run(loop);
    rlock_free(alice);
    rlock_free(bob);
    rlock_client_free(client);
    rlock_memory_free(store);
    rlock_poll_free(loop);
    return 0;
}

/* SPDX-License-Identifier: MIT */
