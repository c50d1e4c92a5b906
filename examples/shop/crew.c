/* crew.c - the workers, as the front process sees them: started, given orders, heard, replaced */
#define _GNU_SOURCE 1
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "shop.h"

typedef struct member {
    pid_t pid;                /* 0 = its end was waited for: the number may be another's now */
    struct bufferevent *wire; /* NULL = its end was seen */
    struct event *timer;      /* of one who is frozen: wakes it. Of one who is gone: replaces it */
    int orders;               /* that it has not answered yet */
    bool frozen;
} member;

static member crew[WORKERS_MAX];
static struct event *sigchld;
static uint64_t holds_of_the_dead;
static const struct timeval replace_after = {1, 0};

static bool hire(int worker);

static int number_of(const member *m) {
    return (int)(m - crew) + 1;
}

static place *place_of(const member *m) {
    return &board->places[m - crew];
}

static bool send_signal(const member *m, int number) {
    return m->pid > 0 && kill(m->pid, number) == 0;
}

/* --- what a worker says --- */

static void on_news(struct bufferevent *from, void *user) {
    member *m = user;
    news said;

    while (evbuffer_get_length(bufferevent_get_input(from)) >= sizeof said) {
        bufferevent_read(from, &said, sizeof said);
        if (said.topic == NEWS_SOLD || said.topic == NEWS_SOLD_OUT || said.topic == NEWS_FAILED) {
            m->orders--;
        }
        sale_hear((int)(m - crew), &said);
    }
}

/* The socket ends after the last of its news, so nothing that a worker sent is missed. Another one
 * comes a second later, so that the loss can be seen; its place on the board stays until then. */
static void on_worker_gone(struct bufferevent *from, short what, void *user) {
    member *m = user;
    place *p = place_of(m);
    (void)what;

    bufferevent_free(from);
    m->wire = NULL;
    m->frozen = false;
    m->orders = 0;
    BOARD_SET(p->waiting, 0);
    tell("fault", "Worker %d died%s", number_of(m),
         BOARD_GET(p->holding) > 0
             ? " while it held the lock: the others get it when its lease of 1 s ends"
             : "");
    sale_lost_worker((int)(m - crew));
    event_del(m->timer);
    event_add(m->timer, &replace_after);
}

static void replace(member *m) {
    place *p = place_of(m);

    holds_of_the_dead += BOARD_GET(p->holds);
    memset(p, 0, sizeof *p);
    if (hire((int)(m - crew))) {
        tell("info", "Worker %d was replaced", number_of(m));
    } else {
        event_add(m->timer, &replace_after);
    }
}

/* --- what becomes of its process --- */

static void on_timer(evutil_socket_t fd, short what, void *user) {
    member *m = user;
    (void)fd, (void)what;

    if (m->wire == NULL) {
        replace(m);
    } else if (m->frozen) {
        m->frozen = false;
        tell("fault", "Worker %d goes on where it was", number_of(m));
        send_signal(m, SIGCONT);
    }
}

static void on_stopped(pid_t pid) {
    const struct timeval pause = {FREEZE_MS / 1000, FREEZE_MS % 1000 * 1000};
    member *m;

    for (m = crew; m < crew + shop.workers; m++) {
        if (m->pid == pid && m->wire != NULL) {
            m->frozen = true;
            event_add(m->timer, &pause);
            tell("fault", "Worker %d is frozen for %d s%s", number_of(m), FREEZE_MS / 1000,
                 BOARD_GET(place_of(m)->holding) > 0
                     ? ", between its last look at the lock and its write; the lease is 1 s"
                     : "");
        }
    }
}

static void on_sigchld(evutil_socket_t fd, short what, void *user) {
    int status;
    member *m;
    pid_t pid;
    (void)fd, (void)what, (void)user;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (WIFSTOPPED(status)) {
            on_stopped(pid);
        } else if (server_ended(pid)) {
            fprintf(stderr, "shop: the Redis server ended\n");
            event_base_loopbreak(base);
        }
        for (m = crew; m < crew + shop.workers && !WIFSTOPPED(status); m++) {
            m->pid = m->pid == pid ? 0 : m->pid;
        }
    }
}

/* --- starting and ending them --- */

/* A worker is forked where the front has a loop and connections. It may keep none of them: a
 * browser would not see that the front closed one. */
static void leave_the_front(int keep) {
    sigset_t none;
    int fd;

    event_reinit(base); /* the kernel's part of the loop is shared until then */
    event_base_free(base);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    for (fd = 3; fd < FILES_MAX; fd++) {
        if (fd != keep) {
            close(fd);
        }
    }
    setpgid(0, 0); /* Ctrl-C in the terminal is for the front, which ends all */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool hire(int worker) {
    member *m = &crew[worker];
    sigset_t all, before;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        perror("shop: socketpair");
        return false;
    }
    fflush(NULL);
    sigfillset(&all); /* the front's handlers must not run in the child: they write to its loop */
    sigprocmask(SIG_SETMASK, &all, &before);
    m->pid = fork();
    if (m->pid == 0) {
        leave_the_front(ends[1]);
        exit(work(worker + 1, ends[1]));
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (m->pid < 0) {
        perror("shop: fork");
        m->pid = 0;
        close(ends[0]);
        return false;
    }
    evutil_make_socket_nonblocking(ends[0]);
    m->wire = bufferevent_socket_new(base, ends[0], BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(m->wire, on_news, NULL, on_worker_gone, m);
    bufferevent_enable(m->wire, EV_READ | EV_WRITE);
    return true;
}

bool crew_start(void) {
    int i;

    sigchld = evsignal_new(base, SIGCHLD, on_sigchld, NULL);
    event_add(sigchld, NULL);
    for (i = 0; i < shop.workers; i++) {
        crew[i].timer = evtimer_new(base, on_timer, &crew[i]);
        if (!hire(i)) {
            return false;
        }
    }
    return true;
}

/* Waits for its end, for 2 s; then it is killed. */
static void see_off(member *m) {
    const struct timespec moment = {0, 10000000};
    int tries;

    for (tries = 0; m->pid > 0; tries++) {
        if (waitpid(m->pid, NULL, WNOHANG) != 0) {
            m->pid = 0;
        } else if (tries == 200) {
            send_signal(m, SIGKILL);
        }
        nanosleep(&moment, NULL);
    }
    if (m->wire != NULL) {
        bufferevent_free(m->wire);
    }
    if (m->timer != NULL) {
        event_free(m->timer);
    }
}

void crew_end(void) {
    member *m;

    for (m = crew; m < crew + shop.workers; m++) {
        send_signal(m, SIGTERM);
        send_signal(m, SIGCONT); /* it may be frozen */
    }
    for (m = crew; m < crew + shop.workers; m++) {
        see_off(m);
    }
    if (sigchld != NULL) {
        event_free(sigchld);
    }
}

/* --- what the front asks of them --- */

int crew_pick(int most) {
    int i, best = -1;

    for (i = 0; i < shop.workers; i++) {
        if (crew[i].wire != NULL && !crew[i].frozen && crew[i].orders < most) {
            most = crew[i].orders;
            best = i;
        }
    }
    return best;
}

void crew_send(int worker, const order *what) {
    crew[worker].orders++;
    bufferevent_write(crew[worker].wire, what, sizeof *what);
}

bool crew_kill_one(void) {
    int worker = crew_pick(INT32_MAX);

    return worker >= 0 && send_signal(&crew[worker], SIGKILL);
}

uint64_t crew_holds(void) {
    uint64_t holds = holds_of_the_dead;
    int i;

    for (i = 0; i < shop.workers; i++) {
        holds += BOARD_GET(board->places[i].holds);
    }
    return holds;
}

int crew_holder(void) {
    int i;

    for (i = 0; i < shop.workers; i++) {
        if (crew[i].wire != NULL && !crew[i].frozen && BOARD_GET(board->places[i].holding) > 0) {
            return i;
        }
    }
    return -1;
}

const char *crew_state(int worker) {
    const place *p = &board->places[worker];

    if (crew[worker].wire == NULL) {
        return "dead";
    }
    if (crew[worker].frozen) {
        return "frozen";
    }
    if (BOARD_GET(p->holding) > 0) {
        return "holds";
    }
    if (BOARD_GET(p->waiting) > 0) {
        return "waits";
    }
    return crew[worker].orders > 0 && !sale.with_lock ? "sells" : "idle";
}

/* SPDX-License-Identifier: MIT */
