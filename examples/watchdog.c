/* What if my work takes longer than the lease, and what if my process is frozen under the lock?
 * Two processes want one lock with a lease of one second. The parent only conducts. */
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

#define LEASE_MS 1000

static const char *me;
static int to_parent;

static void tell_parent(char what) {
    if (write(to_parent, &what, 1) != 1) {
        exit(1);
    }
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    printf("%s: released: %s\n", me, rlock_strerror(event->status));
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    printf("%s: notified: %s; held now: %s\n", me, rlock_strerror(event->status),
           rlock_is_held(lock) ? "yes" : "no");
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_worked(int revents, void *lock) {
    (void)revents;
    printf("%s: worked for three leases; held now: %s\n", me, rlock_is_held(lock) ? "yes" : "no");
    tell_parent('w');
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    printf("%s: acquired: %s\n", me, rlock_strerror(event->status));
    if (event->status != RLOCK_OK) {
        exit(1);
    }
    tell_parent('a');
    if (me[0] == 'A') { /* lease_ms 0: the watchdog renews it, every third of the lease */
        ev_once(EV_DEFAULT, -1, 0, 3 * LEASE_MS / 1e3, on_worked, lock);
    } else {
        rlock_release(lock, on_released, NULL);
    }
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "%s\n", line);
    }
}

static int contend(void) {
    rlock_config config = {0};
    rlock_options options = {0};
    rlock_client *client;
    rlock *lock;

    signal(SIGPIPE, SIG_IGN);
    config.loop = rlock_libev_loop(EV_DEFAULT);
    config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    config.log = on_log;
    config.watchdog_lease_ms = LEASE_MS;
    options.key = "watchdog";
    options.on_lost = on_lost;
    if (rlock_client_new(&client, &config) != RLOCK_OK ||
        rlock_new(&lock, client, &options) != RLOCK_OK) {
        return 1;
    }
    rlock_acquire(lock, 20000, 0, on_acquired, NULL);
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    return 0;
}

/* A client belongs to one process: fork first, make clients after. */
static pid_t start(const char *name, int *from_child) {
    int ends[2];
    pid_t pid;

    if (pipe(ends) != 0 || (pid = fork()) < 0) {
        exit(1);
    }
    if (pid == 0) {
        close(ends[0]);
        alarm(30); /* should the parent be gone */
        to_parent = ends[1];
        me = name;
        exit(contend());
    }
    close(ends[1]);
    *from_child = ends[0];
    return pid;
}

static void hear(int from_child, char what) {
    char got;
    if (read(from_child, &got, 1) != 1 || got != what) {
        fprintf(stderr, "no server?\n");
        exit(1);
    }
}

int main(void) {
    int from_a, from_b, failed_a, failed_b;
    pid_t a, b;

    setvbuf(stdout, NULL, _IOLBF, 0);
    a = start("A", &from_a);
    hear(from_a, 'a');
    b = start("B", &from_b);
    hear(from_a, 'w');
    printf("A is frozen, B waits\n");
    kill(a, SIGSTOP);
    hear(from_b, 'a');
    printf("A is woken\n");
    kill(a, SIGCONT);
    waitpid(a, &failed_a, 0);
    waitpid(b, &failed_b, 0);
    return failed_a != 0 || failed_b != 0;
}

/* SPDX-License-Identifier: MIT */
