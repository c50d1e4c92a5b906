/* How do I serve several processes strictly in the order in which they asked? With the fair kind.
 * Three counters of an office draw nine tickets in turn; who waits can ask how many are before it.
 * Then one counter is killed: its tickets are passed over, and the order of the others stays. */
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

#define COUNTERS 3
#define TICKETS 9

static rlock_client *client;
static rlock *tickets[TICKETS + 1]; /* 0 is the office's own, which keeps the door shut */
static int me, to_parent;
static ev_io commands;

static int number_of(const rlock *ticket) {
    int i;
    for (i = 0; tickets[i] != ticket; i++) {
    }
    return i;
}

static void say(int to, int number) {
    if (write(to, &number, sizeof number) != sizeof number) {
        exit(1);
    }
}

static void on_position(rlock_client *of, const rlock_info *info, void *ticket) {
    (void)of;
    if (info->position < 0) { /* its asking is still on the way */
        rlock_queue_position(ticket, on_position, ticket);
        return;
    }
    printf("ticket %d, at counter %d: %d before it\n", number_of(ticket), me, (int)info->position);
    say(to_parent, number_of(ticket));
}

static void on_turn(rlock *ticket, const rlock_event *event, void *user) {
    (void)user;
    if (event->status != RLOCK_OK) {
        fprintf(stderr, "ticket %d: %s\n", number_of(ticket), rlock_strerror(event->status));
        exit(1);
    }
    say(to_parent, number_of(ticket));
    if (number_of(ticket) > 0) {
        rlock_release(ticket, NULL, NULL); /* served: the next one's turn */
    }
}

static void draw(int number) {
    rlock_options options = {.key = "office", .kind = RLOCK_KIND_FAIR};

    if (rlock_new(&tickets[number], client, &options) != RLOCK_OK ||
        rlock_acquire(tickets[number], 20000, 0, on_turn, NULL) != RLOCK_OK) {
        exit(1);
    }
    if (number > 0) {
        rlock_queue_position(tickets[number], on_position, tickets[number]);
    }
}

/* The parent says which ticket to draw; again the number 0: open the door. */
static void on_command(struct ev_loop *loop, ev_io *watcher, int revents) {
    int number;
    (void)revents;
    if (read(watcher->fd, &number, sizeof number) != sizeof number) {
        ev_break(loop, EVBREAK_ALL);
    } else if (tickets[number] == NULL) {
        draw(number);
    } else {
        rlock_release(tickets[number], NULL, NULL);
    }
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "%s\n", line);
    }
}

static int counter(int from_parent) {
    const char *url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    rlock_config config = {.url = url, .loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    int i;

    alarm(30); /* should the parent be gone */
    signal(SIGPIPE, SIG_IGN);
    if (rlock_client_new(&client, &config) != RLOCK_OK) {
        return 1;
    }
    ev_io_init(&commands, on_command, from_parent, EV_READ);
    ev_io_start(EV_DEFAULT, &commands);
    ev_run(EV_DEFAULT, 0);
    for (i = 0; i <= TICKETS; i++) {
        rlock_free(tickets[i]);
    }
    rlock_client_free(client);
    return 0;
}

static int said(int from_children) {
    int number;
    return read(from_children, &number, sizeof number) == sizeof number ? number : -1;
}

int main(void) {
    int up[2], down[COUNTERS + 1][2], i, last = 0, status, failed = 0;
    pid_t pids[COUNTERS + 1];

    setvbuf(stdout, NULL, _IOLBF, 0);
    failed = pipe(up);
    to_parent = up[1];
    for (me = 1; me <= COUNTERS; me++) {
        if (failed || pipe(down[me]) != 0 || (pids[me] = fork()) < 0) {
            return 1;
        }
        if (pids[me] == 0) {
            for (i = 1; i <= me; i++) {
                close(down[i][1]);
            }
            exit(counter(down[me][0]));
        }
    }
    close(up[1]);
    for (i = 0; i <= TICKETS; i++) { /* one after the other, each at another counter */
        say(down[1 + (i + COUNTERS - 1) % COUNTERS][1], i);
        failed |= said(up[0]) != i;
    }
    kill(pids[2], SIGKILL);
    waitpid(pids[2], &status, 0);
    printf("counter 2 is killed; the door opens\n");
    say(down[COUNTERS][1], 0); /* it holds number 0 */
    for (i = 0; i < TICKETS - TICKETS / COUNTERS; i++) {
        int served = said(up[0]);
        printf("ticket %d is served\n", served);
        failed |= served <= last;
        last = served;
    }
    for (i = 1; i <= COUNTERS; i += 2) {
        close(down[i][1]);
        waitpid(pids[i], &status, 0);
        failed |= status != 0;
    }
    printf(failed ? "OUT OF TURN\n" : "in the order in which they asked\n");
    return failed;
}

/* SPDX-License-Identifier: MIT */
