/* How do I let one of several processes lead, and another take over when it dies?
 * Four gateways want one lock with a lease of one second; three times the leader is killed. With an
 * argument nobody is killed: for so many seconds they say who leads, and when that ends. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_elect.h"
#include "rlock_libev.h"

#define GATEWAYS 4
#define LEASE_MS 1000

static rlock_election *election;
static rlock_client *client;
static int to_parent, seconds;
static double worked; /* when it led last */
static char me;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void on_lead(rlock_election *e, const rlock_event *event, void *user) {
    (void)e, (void)event, (void)user;
    if (seconds) {
        worked = now();
        printf("%.3f gateway %d leads\n", worked, me);
    } else if (write(to_parent, &me, 1) != 1) {
        exit(1);
    }
}

static void on_step_down(rlock_election *e, const rlock_event *event, void *user) {
    (void)e, (void)user;
    if (seconds) {
        printf("%.3f gateway %d steps down: %s\n", worked, me, rlock_reason_str(event->reason));
    }
}

/* A piece of work. Before each it looks whether it still leads: if the process was stopped,
 * on_step_down comes late. */
static void on_work(struct ev_loop *loop, ev_timer *timer, int revents) {
    double at = now();
    (void)loop, (void)timer, (void)revents;
    if (rlock_elect_leads(election)) {
        worked = at;
    }
}

static void on_shutdown(rlock_client *c, int status, void *user) {
    (void)c, (void)user;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
    if (status != RLOCK_OK) {
        fprintf(stderr, "gateway %d: shutdown: no answer, its lease has to run out\n", me);
    }
}

/* A clean end gives the lead away at once; nobody has to wait for the lease. */
static void on_term(struct ev_loop *loop, ev_signal *watcher, int revents) {
    (void)loop, (void)watcher, (void)revents;
    rlock_client_shutdown(client, 0, on_shutdown, NULL);
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: who campaigns, leads, steps down */
        fprintf(stderr, "%s\n", line);
    }
}

static int gateway(void) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    rlock_options options = {.key = "leader"};
    ev_signal term;
    ev_timer work;

    signal(SIGPIPE, SIG_IGN);
    ev_signal_init(&term, on_term, SIGTERM);
    ev_signal_start(EV_DEFAULT, &term);
    config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    config.watchdog_lease_ms = LEASE_MS;
    if (rlock_client_new(&client, &config) != RLOCK_OK ||
        rlock_elect(&election, client, &options, on_lead, on_step_down, NULL) != RLOCK_OK) {
        return 1;
    }
    ev_timer_init(&work, on_work, 0, 0.01);
    ev_timer_start(EV_DEFAULT, &work);
    ev_run(EV_DEFAULT, 0);
    ev_timer_stop(EV_DEFAULT, &work);
    rlock_elect_free(election);
    rlock_client_free(client);
    return 0;
}

/* Kills the leader three times; the fourth gives the lead away. */
static int kill_leaders(const pid_t *pids, int from_gateways) {
    const struct timespec reign = {0, 500000000};
    int round, failed = 0;
    double killed = now();
    char leader;

    for (round = 1; round <= GATEWAYS; round++) {
        if (read(from_gateways, &leader, 1) != 1) {
            return 1;
        }
        printf("gateway %d leads after %.2f s\n", leader, now() - killed);
        nanosleep(&reign, NULL);
        killed = now();
        printf("  %s\n",
               round < GATEWAYS ? "it is killed" : "it is the last, and gives the lead away");
        kill(pids[leader - 1], round < GATEWAYS ? SIGKILL : SIGTERM);
        waitpid(pids[leader - 1], &failed, 0);
    }
    return failed != 0;
}

static void on_parents_term(int number) {
    (void)number; /* it ends the sleep */
}

/* Lets them be, for so many seconds or until SIGTERM, and ends them one after the other. */
static int watch_leaders(const pid_t *pids) {
    int i, status, failed = 0;

    signal(SIGTERM, on_parents_term);
    sleep((unsigned)seconds);
    for (i = 0; i < GATEWAYS; i++) {
        kill(pids[i], SIGTERM);
        waitpid(pids[i], &status, 0);
        failed |= status;
    }
    return failed != 0;
}

int main(int argc, char **argv) {
    pid_t pids[GATEWAYS];
    int ends[2];

    seconds = argc > 1 ? atoi(argv[1]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pipe(ends) != 0) {
        return 1;
    }
    to_parent = ends[1];
    for (me = 1; me <= GATEWAYS; me++) {
        pids[me - 1] = fork();
        if (pids[me - 1] == 0) {
            close(ends[0]);
            alarm((unsigned)seconds + 30); /* should the parent be gone */
            exit(gateway());
        }
    }
    close(ends[1]);
    return seconds > 0 ? watch_leaders(pids) : kill_leaders(pids, ends[0]);
}

/* SPDX-License-Identifier: MIT */
