/* How do I take a lock and let it go? */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"

static int failed = 1; /* until it was released */

static void on_log(void *user, int level, const char *line) {
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

static void on_released(rlock *lock, const rlock_event *event, void *loop) {
    printf("released %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
    failed = event->status != RLOCK_OK;
    ev_break(loop, EVBREAK_ALL);
}

static void on_acquired(rlock *lock, const rlock_event *event, void *loop) {
    printf("acquired %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
    if (event->status != RLOCK_OK || rlock_release(lock, on_released, loop) != RLOCK_OK) {
        ev_break(loop, EVBREAK_ALL);
    }
}

int main(void) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    rlock_options options = {.key = "stock:42"};
    rlock_client *client;
    rlock *lock;
    signal(SIGPIPE, SIG_IGN); /* a closed socket is an error, not the end of the program */
    config.unix_path = getenv("RLOCK_SOCKET"); /* not set: 127.0.0.1, port 6379 */
    if (rlock_client_new(&client, &config) || rlock_new(&lock, client, &options) ||
        rlock_acquire(lock, 5000, 0, on_acquired, EV_DEFAULT)) { /* waits up to 5 s */
        fprintf(stderr, "cannot begin\n");
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    return failed;
}
