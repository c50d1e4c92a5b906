/* My program has a loop of its own. What do I have to write? Four small hooks, here around select,
 * and a fifth one for names. adapters/rlock_poll.h does the same for any number of clients. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <time.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_resolve.h"

#define FDS_MAX 8

static struct {
    rlock_io *io; /* NULL = free */
    int fd;
    unsigned events;
} fds[FDS_MAX];
static rlock_lookup *lookups; /* names that are being resolved */
static rlock_client *timer_client;
static int64_t timer_due_us = -1;
static int64_t work_done_us = -1;
static bool running = true;
static int failed = 1; /* the exit status: 0 after a release that succeeded */

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- the hooks ---- */

static void *hook_open(void *ctx, rlock_client *client) {
    (void)ctx;
    timer_client = client; /* one client is enough for this program */
    return fds;
}

static int hook_watch(void *state, rlock_io *io, int fd, unsigned events) {
    int i, place = -1;
    (void)state;
    for (i = 0; i < FDS_MAX && fds[i].io != io; i++) {
        place = fds[i].io == NULL ? i : place;
    }
    place = i < FDS_MAX ? i : place;
    if (place < 0 || fd >= FD_SETSIZE) {
        return -1;
    }
    fds[place].io = events != 0 ? io : NULL;
    fds[place].fd = fd;
    fds[place].events = events;
    return 0;
}

static void hook_set_timer(void *state, int64_t delay_us) {
    int64_t now = now_us();
    (void)state;
    if (delay_us == 0 && timer_due_us >= 0 && timer_due_us <= now) {
        return; /* due already: it keeps its turn */
    }
    timer_due_us = delay_us < 0 ? -1 : now + delay_us;
}

/* Without it the host has to be an address. */
static int hook_resolve(void *state, rlock_name *name, const char *host) {
    return rlock_resolve(&lookups, hook_watch, state, name, host);
}

static void hook_close(void *state) {
    (void)state;
    rlock_resolve_forget(&lookups);
    timer_due_us = -1;
}

/* ---- one turn of the loop ---- */

static void turn(void) {
    fd_set readable, writable;
    int64_t due_us = timer_due_us, now = now_us(), wait_us = 100000; /* a tick every 100 ms */
    struct timeval wait;
    int i, found;

    FD_ZERO(&readable);
    FD_ZERO(&writable);
    for (i = 0; i < FDS_MAX; i++) {
        if (fds[i].io != NULL && (fds[i].events & RLOCK_IO_READ)) {
            FD_SET(fds[i].fd, &readable);
        }
        if (fds[i].io != NULL && (fds[i].events & RLOCK_IO_WRITE)) {
            FD_SET(fds[i].fd, &writable);
        }
    }
    if (due_us >= 0 && due_us - now < wait_us) {
        wait_us = due_us > now ? due_us - now : 0;
    }
    wait.tv_sec = 0;
    wait.tv_usec = (suseconds_t)wait_us;
    found = select(FD_SETSIZE, &readable, &writable, NULL, &wait);
    now = now_us();
    for (i = 0; found > 0 && i < FDS_MAX; i++) { /* looked up anew: a call may forget any of them */
        unsigned events = 0;
        if (fds[i].io != NULL) {
            events |= FD_ISSET(fds[i].fd, &readable) ? RLOCK_IO_READ : 0;
            events |= FD_ISSET(fds[i].fd, &writable) ? RLOCK_IO_WRITE : 0;
        }
        if (events != 0) {
            rlock_on_io(fds[i].io, events);
        }
    }
    /* only if it was set before the look: a zero timer means after one more look at the sockets */
    if (due_us >= 0 && due_us == timer_due_us && due_us <= now) {
        timer_due_us = -1;
        rlock_on_timer(timer_client);
    }
}

/* ---- the program ---- */

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    printf("released %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
    failed = event->status != RLOCK_OK;
    running = false;
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    printf("lost %s: %s\n", rlock_key(lock, NULL), rlock_reason_str(event->reason));
    running = false; /* stop the work: another may hold the lock now */
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    printf("acquired %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
    running = event->status == RLOCK_OK;
    work_done_us = now_us() + 2000000;
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
    rlock *lock;
    int status;

    signal(SIGPIPE, SIG_IGN);
    config.loop.open = hook_open;
    config.loop.watch = hook_watch;
    config.loop.set_timer = hook_set_timer;
    config.loop.close = hook_close;
    config.loop.resolve = hook_resolve;
    config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    config.log = on_log;
    options.key = "own-loop";
    options.on_lost = on_lost;
    if ((status = rlock_client_new(&client, &config)) != RLOCK_OK ||
        (status = rlock_new(&lock, client, &options)) != RLOCK_OK ||
        (status = rlock_acquire(lock, 5000, 0, on_acquired, NULL)) != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    while (running) {
        turn();
        if (running && work_done_us >= 0 && now_us() >= work_done_us) {
            work_done_us = -1;
            running = rlock_release(lock, on_released, NULL) == RLOCK_OK; /* else it is lost */
        }
    }
    rlock_free(lock);
    rlock_client_free(client);
    return failed;
}

/* SPDX-License-Identifier: MIT */
