/* Who holds this lock, and how do I take it away? A worker holds a lock and never lets go; another
 * waits behind it. The operator looks, takes the lock away, and the worker is told. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"

static const char *me;
static int to_parent;

static rlock_options job(void) {
    return (rlock_options){.key = "nightly-report", .kind = RLOCK_KIND_FAIR};
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "%s\n", line);
    }
}

static rlock_client *connect_to_server(void) {
    const char *url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    rlock_config config = {.url = url, .loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    rlock_client *client;

    signal(SIGPIPE, SIG_IGN);
    if (rlock_client_new(&client, &config) != RLOCK_OK) {
        exit(1);
    }
    return client;
}

static void tell_parent(char what) {
    if (write(to_parent, &what, 1) != 1) {
        exit(1);
    }
}

/* ---- a worker ---- */

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    printf("%s: stops: %s%s\n", me, rlock_strerror(event->status),
           event->reason == RLOCK_REASON_DELETED ? " (taken away)" : "");
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    printf("%s: released: %s\n", me, rlock_strerror(event->status));
    tell_parent('r');
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    printf("%s: acquired: %s\n", me, rlock_strerror(event->status));
    if (event->status != RLOCK_OK) {
        exit(1);
    }
    if (me[0] == 'B') {
        rlock_release(lock, on_released, NULL);
    } else {
        tell_parent('a'); /* and never lets go */
    }
}

static void on_position(rlock_client *client, const rlock_info *info, void *lock) {
    (void)client;
    if (info->position < 0) { /* its asking is still on the way */
        rlock_queue_position(lock, on_position, lock);
    } else {
        tell_parent('w');
    }
}

static int work(void) {
    rlock_client *client = connect_to_server();
    rlock_options options = job();
    rlock *lock;

    options.on_lost = on_lost;
    if (rlock_new(&lock, client, &options) != RLOCK_OK) {
        return 1;
    }
    rlock_acquire(lock, 20000, 0, on_acquired, NULL);
    if (me[0] == 'B') {
        rlock_queue_position(lock, on_position, lock);
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    return 0;
}

static pid_t start(const char *name, int *from, char hear) {
    int ends[2];
    pid_t pid;
    char got = 0;

    if (pipe(ends) != 0 || (pid = fork()) < 0) {
        exit(1);
    }
    if (pid == 0) {
        alarm(30); /* should the parent be gone */
        to_parent = ends[1];
        me = name;
        exit(work());
    }
    close(ends[1]); /* so the end of the worker is heard, too */
    *from = ends[0];
    if (read(*from, &got, 1) != 1 || got != hear) {
        fprintf(stderr, "%s has failed\n", name);
        exit(1);
    }
    return pid;
}

/* ---- the operator ---- */

static void on_info(rlock_client *client, const rlock_info *info, void *question) {
    (void)client;
    printf("%s: %s, %d held, %d waiting\n", (const char *)question, rlock_strerror(info->status),
           (int)info->holders, (int)info->waiters);
    if (info->token != NULL) { /* its client's id: compare rlock_client_id(), log it at start */
        printf("  by %.*s for %d s more\n", (int)info->token_len, info->token,
               (int)(info->left_ms / 1000));
    }
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

int main(void) {
    rlock_options options = job(); /* the same key and kind as the workers' */
    rlock_client *client;
    int from_a, from_b, failed_a, failed_b;
    pid_t a, b;
    char got;

    setvbuf(stdout, NULL, _IOLBF, 0);
    a = start("A", &from_a, 'a');
    b = start("B", &from_b, 'w');
    client = connect_to_server(); /* after the forks: a client belongs to one process */
    rlock_inspect(client, &options, on_info, (void *)(uintptr_t) "look");
    ev_run(EV_DEFAULT, 0);
    rlock_force_release(client, &options, on_info, (void *)(uintptr_t) "take away");
    ev_run(EV_DEFAULT, 0);
    waitpid(a, &failed_a, 0);
    waitpid(b, &failed_b, 0);
    rlock_inspect(client, &options, on_info, (void *)(uintptr_t) "look again");
    ev_run(EV_DEFAULT, 0);
    rlock_client_free(client);
    return failed_a != 0 || failed_b != 0 || read(from_b, &got, 1) != 1 || got != 'r';
}

/* SPDX-License-Identifier: MIT */
