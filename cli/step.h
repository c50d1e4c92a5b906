/* step.h - a lock in steps, each a process of its own: rlock acquire, renew, release
 *
 * Between them nothing holds the lock but its lease: who has the token renews and releases it.
 */
#ifndef RLOCK_CLI_STEP_H
#define RLOCK_CLI_STEP_H

#include "cli.h"
#include "password.h"
#include "show.h"

#define STEP_TAKEN_MS 10000 /* rlock release: for so long at most it holds what it is to release */

enum step_kind { STEP_ACQUIRE, STEP_RENEW, STEP_RELEASE };

static struct {
    enum step_kind kind;
    rlock *lock;
    int status;
    int signal; /* this one ends it; 0 = none */
    bool leaves;
    ev_signal signals[4];
} step;

/* Ends rlock with this status; the key stays as it is. */
static void step_leave(int status) {
    step.status = status;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void step_on_shutdown(rlock_client *client, int status, void *user) {
    (void)client, (void)status, (void)user;
    step_leave(step.status);
}

/* Gives back what is held or waited for, and ends rlock. */
static void step_give_back(int status) {
    step.status = status;
    if (!step.leaves) {
        step.leaves = true;
        rlock_client_shutdown(cli.client, 0, step_on_shutdown, NULL);
    }
}

static void step_on_signal(struct ev_loop *loop, ev_signal *watcher, int revents) {
    (void)loop, (void)revents;
    step.signal = watcher->signum;
    step_give_back(CLI_SIGNAL + watcher->signum);
}

/* Prints the token. False: nobody can have read it. */
static bool step_print(const rlock *lock, int64_t fence) {
    char token[RLOCK_TOKEN_MAX];
    if (rlock_token(lock, token, sizeof token) <= 0) {
        return false;
    }
    if (cli.json) {
        fputs("{\"key\":\"", stdout);
        show_bytes(cli.keys[0], strlen(cli.keys[0]), 0);
        printf("\",\"token\":\"%s\",\"fence\":%lld,\"lease_ms\":%lld}\n", token, (long long)fence,
               (long long)cli.lease_ms);
    } else if (step.kind == STEP_ACQUIRE) {
        puts(token);
    }
    return fflush(stdout) == 0 && !ferror(stdout);
}

static void step_on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (event->status == RLOCK_OK) {
        step_leave(0);
    } else {
        cli_say_status(cli.shown, event->status, event->text);
        step_leave(event->status == RLOCK_ERR_NOT_HELD || event->status == RLOCK_ERR_LOST
                       ? CLI_LOST
                       : CLI_FAILED);
    }
}

static void step_refused(const rlock_event *event) {
    bool busy = event->status == RLOCK_ERR_BUSY || event->status == RLOCK_ERR_TIMEOUT;
    if (event->status == RLOCK_ERR_CLOSED) { /* by a signal */
        return;
    }
    if (event->status == RLOCK_ERR_NOT_HELD) {
        cli_say("rlock: %s: not held with this token: it was released, its lease is over, or "
                "--kind or --weight differs\n",
                cli.shown);
        step_leave(CLI_LOST);
        return;
    }
    if (!busy) {
        cli_say_status(cli.shown, event->status, event->text);
    } else if (cli.verbose || isatty(STDERR_FILENO)) {
        cli_say("rlock: %s: %s\n", cli.shown, rlock_strerror(event->status));
    }
    step_give_back(busy ? cli.busy_status : CLI_FAILED);
}

/* It is held. After a release the server is told; else this process goes, and tells nobody. */
static void step_on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    if (event->status != RLOCK_OK) {
        step_refused(event);
    } else if (step.kind == STEP_RELEASE) {
        int status = rlock_release(lock, step_on_released, NULL);
        if (status != RLOCK_OK) { /* its time is over */
            cli_say_status(cli.shown, status, NULL);
            step_leave(CLI_LOST);
        }
    } else if (step_print(lock, (int64_t)event->fence)) {
        step_leave(0);
    } else if (step.kind == STEP_ACQUIRE) { /* else nobody could release it */
        cli_say("rlock: standard output: %s; %s is released\n", strerror(errno), cli.shown);
        step_give_back(CLI_FAILED);
    } else {
        cli_say("rlock: standard output: %s\n", strerror(errno));
        step_leave(CLI_FAILED);
    }
}

/* Does one step. `token`: to renew or release. */
static int step_main(enum step_kind kind, const char *token) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    rlock_options options = cli_options();
    struct sigaction before;
    int64_t lease_ms = cli.lease_ms;
    size_t i;
    int status;
    step.kind = kind;
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ev_signal_init(&step.signals[i], step_on_signal, numbers[i]);
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            ev_signal_start(EV_DEFAULT, &step.signals[i]);
        }
    }
    cli_connect(NULL);
    password_begins();
    options.fencing = kind == STEP_ACQUIRE;
    options.watchdog = RLOCK_WATCHDOG_OFF;
    status = rlock_new(&step.lock, cli.client, &options);
    if (status != RLOCK_OK) {
        cli_fail_status("the lock's key or options", status, NULL);
    }
    if (kind == STEP_RELEASE) {
        lease_ms = cli_most_ms() < STEP_TAKEN_MS ? cli_most_ms() : STEP_TAKEN_MS;
    }
    if (kind == STEP_ACQUIRE) {
        status = rlock_acquire(step.lock, cli.wait_ms, lease_ms, step_on_acquired, NULL);
    } else {
        status = rlock_adopt(step.lock, token, lease_ms, step_on_acquired, NULL);
    }
    if (status == RLOCK_ERR_ARG && kind != STEP_ACQUIRE) {
        cli_fail(CLI_FAILED, "It is what rlock acquire printed", "%s: not a token", token);
    }
    if (status != RLOCK_OK) {
        cli_fail_status(cli.shown, status, NULL);
    }
    ev_run(EV_DEFAULT, 0);
    if (step.signal != 0) {
        cli_end_said();
        signal(step.signal, SIG_DFL);
        kill(getpid(), step.signal);
    }
    return step.status; /* without a word to the server: the key stays */
}

#endif /* RLOCK_CLI_STEP_H */
