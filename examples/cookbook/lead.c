/* One of several processes leads: whatever happens to it, to its server or to its rights there,
 * another one leads soon, or it again. SIGTERM hands the lead over. */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "rlock.h"
#include "rlock_elect.h"
#include "rlock_libev.h"

static rlock_election *election;
static int failed;

static void on_lead(rlock_election *e, const rlock_event *event, void *user) {
    (void)e, (void)user;
    printf("leads, fence %llu\n", (unsigned long long)event->fence);
}

static void on_step_down(rlock_election *e, const rlock_event *event, void *user) {
    (void)e, (void)user;
    printf("steps down: %s\n", rlock_reason_str(event->reason));
}

/* What only the leader does, in small pieces: each begins with a look. */
static void on_work(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop, (void)timer, (void)revents;
    if (rlock_elect_leads(election)) {
        /* a piece of work; what it writes has rlock_elect_fence(election) in it */
    }
}

static void on_shutdown(rlock_client *client, int status, void *user) {
    (void)client, (void)user;
    printf("leaves: %s\n", status == RLOCK_OK ? "ok" : "no answer, its lease has to run out");
    failed = status != RLOCK_OK;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_term(struct ev_loop *loop, ev_signal *watcher, int revents) {
    (void)loop, (void)revents;
    rlock_client_shutdown((rlock_client *)watcher->data, 0, on_shutdown, NULL);
}

static void on_log(void *file, int level, const char *line) {
    (void)level; /* all of it: who stands by says so too */
    fprintf(file, "%s\n", line);
}

int main(void) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log, .user = stderr};
    rlock_options options = {.key = "cookbook:leader", .fencing = true};
    rlock_client *client;
    ev_signal term;
    ev_timer work;
    int status;

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    config.watchdog_lease_ms = 1000;  /* for so long nobody leads after a leader was killed */
    if ((status = rlock_client_new(&client, &config)) != RLOCK_OK ||
        (status = rlock_elect(&election, client, &options, on_lead, on_step_down, NULL)) !=
            RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    ev_signal_init(&term, on_term, SIGTERM);
    term.data = client;
    ev_signal_start(EV_DEFAULT, &term);
    ev_timer_init(&work, on_work, 0.1, 0.1);
    ev_timer_start(EV_DEFAULT, &work);
    ev_run(EV_DEFAULT, 0);
    rlock_elect_free(election);
    rlock_client_free(client);
    return failed;
}
/* SPDX-License-Identifier: MIT */
