/* rlock_loop_check.h - does a loop keep the promises of the loop contract?
 * SPDX-License-Identifier: MIT
 *
 *     #define RLOCK_IMPLEMENTATION
 *     #include "rlock.h"
 *     #include "my_adapter.h"
 *     #include "rlock_loop_check.h"
 *
 *     static void run(void *loop, int ms) {
 *         my_loop_run_for((my_loop *)loop, ms);
 *     }
 *
 *     int main(void) {
 *         my_loop *loop = my_loop_new();
 *         rlock_loop_check_options options;
 *         memset(&options, 0, sizeof options);
 *         options.loop = my_adapter(loop);
 *         options.run = run;
 *         options.user = loop;
 *         return rlock_loop_check(&options, stdout);
 *     }
 *
 * This is the whole test of an adapter of your own (>>loop-contract in rlock.h). It needs no server
 * and no network, and takes two seconds or three. The checks play the library: they call the hooks
 * and hear what the loop calls. What goes wrong only now and then, a sanitizer finds sooner: build
 * it with -fsanitize=address,undefined too.
 *
 * Everything here is static inline. It needs POSIX, and rlock.h with its implementation linked.
 */

#ifndef RLOCK_LOOP_CHECK_H
#define RLOCK_LOOP_CHECK_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "rlock.h"

RLOCK__C_CASTS_BEGIN

#ifndef CLOCK_MONOTONIC
#error "rlock_loop_check.h needs POSIX: use -std=gnu99 or -D_POSIX_C_SOURCE=200809L"
#endif

/* Zero it first. */
typedef struct rlock_loop_check_options {
    rlock_loop loop; /* required; the hooks, as in rlock_config */

    /* Required. Runs the loop for some `ms` milliseconds, and then returns, also if nothing is
     * ready. It may return earlier, but not before it has looked once. */
    void (*run)(void *user, int ms);
    void *user; /* for `run` */

    /* None; for a loop with the hook `idle`. True if the loop would go on by itself: it has
     * something to wait for. It may let the loop look once. */
    bool (*alive)(void *user);

    int patience_ms; /* 5000; what has not come by then is missing */
    int only;        /* all; the number of the only check to run */
} rlock_loop_check_options;

#define RLOCK__CHECK_IOS 3
#define RLOCK__CHECK_CLIENTS 2
#define RLOCK__CHECK_TRAIL 64

struct rlock__loop_check;

/* A pair of sockets, one of which is watched. */
typedef struct rlock__check_io {
    rlock_io io; /* first: a pointer to it is one to all of this */
    struct rlock__loop_check *check;
    void *state; /* of the hooks that watch it; NULL = none do */
    int fd, other;
    char letter;
} rlock__check_io;

/* A client that is on no loop. Its store hears of each dispatch, and so of those of the timer. */
typedef struct rlock__check_client {
    struct rlock__loop_check *check;
    rlock_client *client;
    rlock_store store;
    void *state; /* of the hooks under test; NULL = closed */
    bool told;   /* of this dispatch, as one of a descriptor or a name */
    char letter;
} rlock__check_client;

typedef struct rlock__check_name {
    rlock_name name; /* first, as above */
    struct rlock__loop_check *check;
    int heard;
    unsigned count;
    bool closes;  /* the client, when it is heard */
    bool strange; /* an address was neither IPv4 nor IPv6 */
} rlock__check_name;

typedef struct rlock__loop_check {
    const rlock_loop_check_options *o;
    const char *why;                /* the check at hand has failed */
    bool inside;                    /* a hook */
    bool from_hook;                 /* a call came from inside one */
    char trail[RLOCK__CHECK_TRAIL]; /* what was called: a, b, c = descriptors, t, u = timers */
    unsigned events[RLOCK__CHECK_TRAIL];
    unsigned len;
    unsigned ticks;                                      /* of t, also where the trail is full */
    int64_t ticked_us;                                   /* when the last of them came */
    void (*then)(struct rlock__loop_check *c, char who); /* what the library would do in a call */
    rlock__check_client clients[RLOCK__CHECK_CLIENTS];
    rlock__check_io ios[RLOCK__CHECK_IOS];
    rlock__check_name name;
} rlock__loop_check;

static inline int64_t rlock__check_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline void rlock__check_sleep(int ms) {
    struct timespec rest;
    rest.tv_sec = 0;
    rest.tv_nsec = (long)ms * 1000000;
    nanosleep(&rest, NULL);
}

/* ---- what the loop calls ---- */

static inline void rlock__check_heard(rlock__loop_check *c, char who, unsigned events) {
    c->from_hook = c->from_hook || c->inside;
    if (c->len < RLOCK__CHECK_TRAIL - 1) {
        c->events[c->len] = events;
        c->trail[c->len++] = who;
    }
    if (who == 't') {
        c->ticks++;
        c->ticked_us = rlock__check_now_us();
    }
    if (c->then != NULL) {
        c->then(c, who);
    }
}

static inline void rlock__check_ready(rlock_io *io, unsigned events) {
    rlock__check_io *at = (rlock__check_io *)(void *)io;
    rlock__check_client *client = &at->check->clients[at->letter == 'c'];
    client->told = true;
    rlock__check_heard(at->check, at->letter, events);
}

/* The end of a dispatch: that of a timer, if it was not noted before. */
static inline void rlock__check_flush(void *state) {
    rlock__check_client *client = (rlock__check_client *)state;
    if (!client->told) {
        rlock__check_heard(client->check, client->letter, 0);
    }
    client->told = false;
}

static inline int rlock__check_store_open(const rlock_store *store, rlock_client *client,
                                          const rlock_config *config,
                                          const rlock_store_events *events, void *owner,
                                          void **state) {
    (void)client, (void)config, (void)events, (void)owner;
    *state = store->ctx;
    return RLOCK_OK;
}

static inline void rlock__check_store_close(void *state) {
    (void)state;
}

static inline void rlock__check_submit(void *state, rlock_request *request) {
    (void)state, (void)request;
}

static inline bool rlock__check_forget(void *state, rlock_request *request) {
    (void)state, (void)request;
    return false;
}

static inline void rlock__check_track(void *state, const char *key, size_t key_len, bool on) {
    (void)state, (void)key, (void)key_len, (void)on;
}

static inline void *rlock__check_no_open(void *ctx, rlock_client *client) {
    (void)client;
    return ctx;
}

static inline int rlock__check_no_watch(void *state, rlock_io *io, int fd, unsigned events) {
    (void)state, (void)io, (void)fd, (void)events;
    return -1;
}

static inline void rlock__check_no_timer(void *state, int64_t delay_us) {
    (void)state, (void)delay_us;
}

static inline bool rlock__check_new_client(rlock__loop_check *c, int i) {
    rlock__check_client *client = &c->clients[i];
    rlock_config config;
    client->check = c;
    client->letter = (char)('t' + i);
    client->store.ctx = client;
    client->store.open = rlock__check_store_open;
    client->store.close = rlock__check_store_close;
    client->store.submit = rlock__check_submit;
    client->store.forget = rlock__check_forget;
    client->store.track = rlock__check_track;
    client->store.flush = rlock__check_flush;
    memset(&config, 0, sizeof config);
    config.loop.ctx = c;
    config.loop.open = rlock__check_no_open;
    config.loop.watch = rlock__check_no_watch;
    config.loop.set_timer = rlock__check_no_timer;
    config.loop.close = rlock__check_store_close;
    config.store = &client->store;
    return rlock_client_new(&client->client, &config) == RLOCK_OK;
}

/* ---- what the library calls ---- */

static inline void *rlock__check_open(rlock__loop_check *c, int i) {
    rlock__check_client *client = &c->clients[i];
    c->inside = true;
    client->state = c->o->loop.open(c->o->loop.ctx, client->client);
    c->inside = false;
    if (client->state == NULL) {
        c->why = i == 0 ? "open failed" : "open failed for a second client";
    }
    return client->state;
}

static inline int rlock__check_watch(rlock__loop_check *c, int i, unsigned events) {
    rlock__check_io *io = &c->ios[i];
    int status;
    io->state = events != 0 ? c->clients[i == 2].state : io->state;
    if (io->state == NULL) {
        return 0;
    }
    c->inside = true;
    status = c->o->loop.watch(io->state, &io->io, io->fd, events);
    c->inside = false;
    if (events == 0) {
        io->io.data = NULL;
        io->state = NULL;
    } else if (status < 0) {
        c->why = "watch failed";
    }
    return status;
}

static inline void rlock__check_timer(rlock__loop_check *c, int i, int64_t delay_us) {
    if (c->clients[i].state != NULL) {
        c->inside = true;
        c->o->loop.set_timer(c->clients[i].state, delay_us);
        c->inside = false;
    }
}

static inline void rlock__check_close(rlock__loop_check *c, int i) {
    int j;
    for (j = 0; j < RLOCK__CHECK_IOS; j++) {
        if ((j == 2) == (i == 1)) {
            rlock__check_watch(c, j, 0);
        }
    }
    if (c->clients[i].state != NULL) {
        c->inside = true;
        c->o->loop.close(c->clients[i].state);
        c->inside = false;
        c->clients[i].state = NULL;
    }
}

/* ---- the words of the checks ---- */

#define RLOCK__CHECK(condition, words) \
    do {                               \
        if (!(condition)) {            \
            c->why = (words);          \
            return;                    \
        }                              \
    } while (0)

#define RLOCK__CHECK_UNTIL(condition, words)                                                \
    do {                                                                                    \
        int64_t end_us_ = rlock__check_now_us() + (int64_t)rlock__check_patience(c) * 1000; \
        while (!(condition) && c->why == NULL && rlock__check_now_us() < end_us_) {         \
            c->o->run(c->o->user, 10);                                                      \
        }                                                                                   \
        RLOCK__CHECK(c->why == NULL, c->why);                                               \
        RLOCK__CHECK(condition, words);                                                     \
    } while (0)

static inline int rlock__check_patience(const rlock__loop_check *c) {
    return c->o->patience_ms > 0 ? c->o->patience_ms : 5000;
}

/* Time for what should not come. */
static inline void rlock__check_rest(rlock__loop_check *c) {
    int64_t end_us = rlock__check_now_us() + 20000;
    do {
        c->o->run(c->o->user, 10);
    } while (rlock__check_now_us() < end_us);
}

static inline void rlock__check_forget_trail(rlock__loop_check *c) {
    memset(c->trail, 0, sizeof c->trail);
    c->len = c->ticks = 0;
}

/* A call too many does no harm, but calls without end do. */
static inline bool rlock__check_quiet(rlock__loop_check *c) {
    rlock__check_rest(c);
    rlock__check_forget_trail(c);
    rlock__check_rest(c);
    return c->len == 0;
}

/* What was reported, in one call or in several. */
static inline unsigned rlock__check_seen(const rlock__loop_check *c) {
    unsigned i, seen = 0;
    for (i = 0; i < c->len; i++) {
        seen |= c->events[i];
    }
    return seen;
}

static inline void rlock__check_fill(rlock__loop_check *c, int i) {
    if (write(c->ios[i].other, "x", 1) != 1) {
        c->why = "cannot write to a socket";
    }
}

static inline void rlock__check_drain(rlock__loop_check *c, char who) {
    char bytes[16];
    if (who >= 'a' && who <= 'c' && read(c->ios[who - 'a'].fd, bytes, sizeof bytes) < 0) {
        /* called too early, which is allowed */
    }
}

static inline bool rlock__check_has(const rlock__loop_check *c, char who) {
    return strchr(c->trail, who) != NULL;
}

static inline bool rlock__check_before(const rlock__loop_check *c, char who, char other) {
    return rlock__check_has(c, who) && strchr(c->trail, who) < strchr(c->trail, other);
}

/* ---- timers ---- */

static inline void rlock__check_zero_timer(rlock__loop_check *c) {
    c->then = rlock__check_drain;
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_watch(c, 1, RLOCK_IO_READ);
    rlock__check_timer(c, 0, 0);
    rlock__check_fill(c, 0);
    rlock__check_fill(c, 1);
    RLOCK__CHECK_UNTIL(c->ticks > 0, "the timer does not fire");
    RLOCK__CHECK(rlock__check_before(c, 'a', 't') && rlock__check_before(c, 'b', 't'),
                 "the timer fires before descriptors that a poll since it was set found ready");
}

static inline void rlock__check_then_zero_and_byte(rlock__loop_check *c, char who) {
    rlock__check_drain(c, who);
    if (who == 'a') {
        rlock__check_timer(c, 0, 0);
        rlock__check_fill(c, 1);
    }
}

static inline void rlock__check_zero_timer_in_callback(rlock__loop_check *c) {
    c->then = rlock__check_then_zero_and_byte;
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_watch(c, 1, RLOCK_IO_READ);
    rlock__check_fill(c, 0);
    RLOCK__CHECK_UNTIL(c->ticks > 0, "the timer does not fire");
    RLOCK__CHECK(rlock__check_before(c, 'b', 't'),
                 "the timer fires before a descriptor that a poll since it was set found ready");
}

static inline void rlock__check_then_zero_again(rlock__loop_check *c, char who) {
    if (who == 't') {
        rlock__check_timer(c, 0, 0);
    }
}

static inline void rlock__check_zero_timer_for_ever(rlock__loop_check *c) {
    c->then = rlock__check_then_zero_again;
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_fill(c, 0); /* and it is not read */
    rlock__check_timer(c, 0, 0);
    RLOCK__CHECK_UNTIL(c->len > 20, "the timer does not fire repeatedly");
    RLOCK__CHECK(strstr(c->trail, "tt") == NULL, "the timer fires twice without a poll in between");
}

static inline void rlock__check_then_zero_from_io(rlock__loop_check *c, char who) {
    if (who == 'a') {
        rlock__check_timer(c, 0, 0);
    }
}

static inline void rlock__check_zero_timer_keeps_turn(rlock__loop_check *c) {
    c->then = rlock__check_then_zero_from_io;
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_fill(c, 0);
    RLOCK__CHECK_UNTIL(c->ticks > 0, "a timer that is set again in each turn never fires");
}

static inline void rlock__check_timer_fires_once(rlock__loop_check *c) {
    int64_t since_us;
    int i;
    rlock__check_rest(c);
    rlock__check_sleep(30); /* a time that the loop took before is old now */
    since_us = rlock__check_now_us();
    rlock__check_timer(c, 0, 1); /* replaced */
    rlock__check_timer(c, 0, 20001);
    RLOCK__CHECK_UNTIL(c->len > 0, "the timer does not fire");
    RLOCK__CHECK(rlock__check_now_us() - since_us >= 20001, "the timer fires early");
    rlock__check_rest(c);
    RLOCK__CHECK(c->len == 1, "the timer fires more than once");
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_fill(c, 0); /* now the loop never sleeps */
    for (i = 0; i < 20; i++) {
        rlock__check_forget_trail(c);
        since_us = rlock__check_now_us();
        rlock__check_timer(c, 0, 1000);
        RLOCK__CHECK_UNTIL(c->ticks > 0, "the timer does not fire");
        RLOCK__CHECK(rlock__check_now_us() - since_us >= 1000, "the timer fires early");
    }
}

static inline void rlock__check_then_long_callback(rlock__loop_check *c, char who) {
    if (who == 'a') {
        rlock__check_drain(c, who);
        rlock__check_sleep(30);
        rlock__check_timer(c, 0, 20001);
    }
}

static inline void rlock__check_timer_after_long_callback(rlock__loop_check *c) {
    int64_t since_us = rlock__check_now_us();
    c->then = rlock__check_then_long_callback;
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_fill(c, 0);
    RLOCK__CHECK_UNTIL(c->ticks > 0, "the timer does not fire");
    RLOCK__CHECK(rlock__check_now_us() - since_us >= 30000 + 20001, "the timer fires early");
}

/* More than the bound of the contract, and than what the machine adds itself just now, is late:
 * where it is busy each is now and then, so that a few have to be in time. A loop that counts in
 * long steps is in time once, by chance. */
static inline void rlock__check_timer_in_time(rlock__loop_check *c) {
    static const int delays_us[] = {1999, 4001, 2999, 7999};
    int64_t end_us = rlock__check_now_us() + (int64_t)rlock__check_patience(c) * 1000;
    int tries, good = 0;
    for (tries = 0; tries < 40 && good < 4 && rlock__check_now_us() < end_us; tries++) {
        int64_t delay_us = delays_us[tries % 4], since_us = rlock__check_now_us(), own_us, took_us;
        rlock__check_sleep(2);
        own_us = rlock__check_now_us() - since_us - 2000;
        rlock__check_forget_trail(c);
        since_us = rlock__check_now_us();
        rlock__check_timer(c, 0, delay_us);
        RLOCK__CHECK_UNTIL(c->ticks > 0, "the timer does not fire, or much too late");
        took_us = c->ticked_us - since_us;
        RLOCK__CHECK(took_us >= delay_us, "the timer fires early");
        good += took_us - delay_us <= own_us + 10000;
    }
    RLOCK__CHECK(good >= 4, "the timer fires more than 10 ms too late");
}

static inline void rlock__check_timer_stops(rlock__loop_check *c) {
    rlock__check_timer(c, 0, 0);
    rlock__check_timer(c, 0, -1);
    rlock__check_rest(c);
    rlock__check_timer(c, 0, 1000);
    rlock__check_timer(c, 0, -1);
    rlock__check_rest(c);
    RLOCK__CHECK(c->len == 0, "the timer fires although it was stopped");
}

static inline void rlock__check_two_timers(rlock__loop_check *c) {
    int64_t since_us = rlock__check_now_us();
    if (rlock__check_open(c, 1) == NULL) {
        return;
    }
    rlock__check_timer(c, 0, 30000);
    rlock__check_timer(c, 1, 0);
    RLOCK__CHECK_UNTIL(rlock__check_has(c, 'u'), "the second client's timer does not fire");
    RLOCK__CHECK(c->ticks == 0 || rlock__check_now_us() - since_us >= 30000,
                 "the first client's timer fires early");
    rlock__check_timer(c, 1, 1000);
    rlock__check_close(c, 1);
    RLOCK__CHECK_UNTIL(c->ticks > 0, "the first client's timer does not fire");
    rlock__check_rest(c);
    RLOCK__CHECK(strchr(c->trail, 'u') == strrchr(c->trail, 'u'), "a closed client's timer fires");
}

/* ---- descriptors ---- */

static inline void rlock__check_level(rlock__loop_check *c) {
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    RLOCK__CHECK(rlock__check_quiet(c), "the descriptor is reported although nothing can be read");
    rlock__check_fill(c, 0);
    RLOCK__CHECK_UNTIL(c->len >= 3, "the descriptor is not reported again while it is not read");
    RLOCK__CHECK(rlock__check_seen(c) == RLOCK_IO_READ,
                 "something else than RLOCK_IO_READ is reported");
    rlock__check_drain(c, 'a');
    RLOCK__CHECK(rlock__check_quiet(c), "the descriptor is reported when all has been read");
}

static inline void rlock__check_change(rlock__loop_check *c) {
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    RLOCK__CHECK(rlock__check_quiet(c), "the descriptor is reported although nothing can be read");
    rlock__check_watch(c, 0, RLOCK_IO_READ | RLOCK_IO_WRITE);
    RLOCK__CHECK_UNTIL(rlock__check_seen(c) & RLOCK_IO_WRITE, "RLOCK_IO_WRITE is not reported");
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    RLOCK__CHECK(rlock__check_quiet(c), "an event that is no longer watched is reported");
    rlock__check_fill(c, 0);
    RLOCK__CHECK_UNTIL(c->len > 0, "RLOCK_IO_READ is no longer reported");
}

static inline void rlock__check_several(rlock__loop_check *c) {
    int i;
    if (rlock__check_open(c, 1) == NULL) {
        return;
    }
    c->then = rlock__check_drain;
    for (i = 0; i < RLOCK__CHECK_IOS; i++) {
        rlock__check_watch(c, i, RLOCK_IO_READ);
    }
    for (i = RLOCK__CHECK_IOS - 1; i >= 0; i--) {
        rlock__check_forget_trail(c);
        rlock__check_fill(c, i);
        RLOCK__CHECK_UNTIL(rlock__check_has(c, (char)('a' + i)),
                           "one descriptor is not reported, or another one instead");
    }
    rlock__check_forget_trail(c);
    for (i = 0; i < RLOCK__CHECK_IOS; i++) {
        rlock__check_fill(c, i);
    }
    RLOCK__CHECK_UNTIL(rlock__check_has(c, 'a') && rlock__check_has(c, 'b') &&
                           rlock__check_has(c, 'c'),
                       "one of several ready descriptors is not reported");
}

static inline void rlock__check_both(rlock__loop_check *c) {
    rlock__check_fill(c, 0);
    rlock__check_watch(c, 0, RLOCK_IO_READ | RLOCK_IO_WRITE);
    RLOCK__CHECK_UNTIL(c->len >= 4, "it is not reported");
    RLOCK__CHECK(rlock__check_seen(c) == (RLOCK_IO_READ | RLOCK_IO_WRITE),
                 "only one of them is reported");
}

static inline void rlock__check_everything_watched(rlock__loop_check *c) {
    rlock__check_watch(c, 0, RLOCK_IO_READ | RLOCK_IO_WRITE);
    RLOCK__CHECK_UNTIL(c->len >= 4, "the descriptor is not reported, or only once");
    RLOCK__CHECK(rlock__check_seen(c) == (RLOCK_IO_READ | RLOCK_IO_WRITE),
                 "only a part of the watched events is reported");
}

static inline void rlock__check_hang_up(rlock__loop_check *c) {
    close(c->ios[0].other);
    c->ios[0].other = -1;
    rlock__check_everything_watched(c);
}

static inline void rlock__check_error(rlock__loop_check *c) {
    int ends[2]; /* a pipe without a reader */
    RLOCK__CHECK(pipe(ends) == 0, "cannot make a pipe");
    close(ends[0]);
    close(c->ios[0].fd);
    c->ios[0].fd = ends[1];
    rlock__check_everything_watched(c);
}

static inline void rlock__check_then_forget(rlock__loop_check *c, char who) {
    (void)who;
    rlock__check_watch(c, 0, 0);
    rlock__check_watch(c, 1, 0);
}

static inline void rlock__check_forgotten(rlock__loop_check *c) {
    c->then = rlock__check_then_forget;
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_watch(c, 1, RLOCK_IO_READ);
    rlock__check_fill(c, 0);
    rlock__check_fill(c, 1);
    RLOCK__CHECK_UNTIL(c->len > 0, "none is reported");
    rlock__check_rest(c);
    RLOCK__CHECK(c->len == 1, "one is reported after watch(0)");
}

static inline void rlock__check_number(rlock__loop_check *c) {
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_rest(c);
    rlock__check_watch(c, 0, 0);
    rlock__check_forget_trail(c);
    /* b has the number that a had */
    RLOCK__CHECK(dup2(c->ios[1].fd, c->ios[0].fd) == c->ios[0].fd, "cannot copy a descriptor");
    close(c->ios[1].fd);
    c->ios[1].fd = c->ios[0].fd;
    c->ios[0].fd = -1;
    rlock__check_watch(c, 1, RLOCK_IO_READ);
    rlock__check_fill(c, 1);
    RLOCK__CHECK_UNTIL(c->len > 0, "it is not reported");
    RLOCK__CHECK(c->trail[0] == 'b', "it is reported as the one before it");
}

/* ---- calls at the wrong time ---- */

static inline void rlock__check_then_close(rlock__loop_check *c, char who) {
    (void)who;
    rlock__check_close(c, 1);
    rlock__check_close(c, 0);
}

static inline void rlock__check_close_in_io(rlock__loop_check *c) {
    c->then = rlock__check_then_close;
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_watch(c, 1, RLOCK_IO_READ);
    rlock__check_fill(c, 0);
    rlock__check_fill(c, 1);
    rlock__check_timer(c, 0, 0);
    RLOCK__CHECK_UNTIL(c->len > 0, "nothing is reported");
    rlock__check_rest(c);
    RLOCK__CHECK(c->len == 1, "a call is made after close");
}

static inline void rlock__check_close_in_timer(rlock__loop_check *c) {
    if (rlock__check_open(c, 1) == NULL) {
        return;
    }
    c->then = rlock__check_then_close;
    rlock__check_timer(c, 0, 1000);
    rlock__check_timer(c, 1, 1000);
    rlock__check_sleep(5); /* both are due */
    RLOCK__CHECK_UNTIL(c->len > 0, "nothing is reported");
    rlock__check_rest(c);
    RLOCK__CHECK(c->len == 1, "a call is made after close");
}

static inline void rlock__check_hooks_are_silent(rlock__loop_check *c) {
    rlock__check_fill(c, 0);
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_watch(c, 0, RLOCK_IO_READ | RLOCK_IO_WRITE);
    rlock__check_timer(c, 0, 0);
    rlock__check_sleep(2);
    rlock__check_timer(c, 0, 0);
    rlock__check_timer(c, 0, 1);
    rlock__check_sleep(2);
    rlock__check_timer(c, 0, 1);
    rlock__check_timer(c, 0, -1);
    rlock__check_close(c, 0);
    RLOCK__CHECK(c->len == 0, "a call is made from inside a hook");
}

/* ---- idle ---- */

static inline void rlock__check_idle_hook(rlock__loop_check *c, bool idle) {
    c->inside = true;
    c->o->loop.idle(c->clients[0].state, idle);
    c->inside = false;
}

static inline bool rlock__check_alive(rlock__loop_check *c) {
    return c->o->alive(c->o->user);
}

/* The three ways in which a client keeps a loop: what it watches when it becomes idle, what it
 * watches from then on, and its timer. */
static inline void rlock__check_idle(rlock__loop_check *c) {
    c->then = rlock__check_drain;
    RLOCK__CHECK(!rlock__check_alive(c), "the loop keeps running before anything is watched");
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    RLOCK__CHECK(rlock__check_alive(c), "a descriptor does not keep the loop running");
    rlock__check_idle_hook(c, true);
    RLOCK__CHECK(!rlock__check_alive(c), "a descriptor of an idle client keeps the loop running");
    rlock__check_watch(c, 1, RLOCK_IO_READ | RLOCK_IO_WRITE);
    rlock__check_watch(c, 1, RLOCK_IO_READ);
    RLOCK__CHECK(!rlock__check_alive(c),
                 "a descriptor that an idle client watches keeps the loop running");
    rlock__check_timer(c, 0, 3600 * (int64_t)1000000);
    RLOCK__CHECK(!rlock__check_alive(c), "the timer of an idle client keeps the loop running");
    rlock__check_forget_trail(c);
    rlock__check_fill(c, 1);
    rlock__check_timer(c, 0, 1000);
    RLOCK__CHECK_UNTIL(rlock__check_has(c, 'b') && c->ticks > 0,
                       "an idle client is not served while the loop runs");
    rlock__check_watch(c, 1, 0);
    rlock__check_timer(c, 0, 3600 * (int64_t)1000000);
    rlock__check_idle_hook(c, false);
    RLOCK__CHECK(rlock__check_alive(c),
                 "a client that is no longer idle does not keep the loop running");
    rlock__check_watch(c, 0, 0);
    RLOCK__CHECK(rlock__check_alive(c),
                 "the timer of a client that is no longer idle does not keep the loop running");
    rlock__check_timer(c, 0, -1);
    RLOCK__CHECK(!rlock__check_alive(c), "the loop keeps running although nothing is watched");
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    rlock__check_idle_hook(c, true);
    rlock__check_close(c, 0);
    if (rlock__check_open(c, 0) == NULL) {
        return;
    }
    rlock__check_watch(c, 0, RLOCK_IO_READ);
    RLOCK__CHECK(rlock__check_alive(c), "a client that was closed while idle is still counted");
}

/* ---- names ---- */

static inline void rlock__check_resolved(rlock_name *name, const struct sockaddr *const *addresses,
                                         unsigned count) {
    rlock__check_name *at = (rlock__check_name *)(void *)name;
    unsigned i;
    at->check->clients[0].told = true;
    at->check->from_hook = at->check->from_hook || at->check->inside;
    at->heard++;
    at->count = count;
    for (i = 0; i < count; i++) {
        int family = addresses[i]->sa_family;
        at->strange = at->strange || (family != AF_INET && family != AF_INET6);
    }
    if (at->closes) {
        rlock__check_close(at->check, 0);
    }
}

static inline int rlock__check_ask(rlock__loop_check *c) {
    char host[] = "localhost";
    int status;
    memset(&c->name, 0, sizeof c->name);
    c->name.check = c;
    c->name.name.client = c->clients[0].client;
    c->name.name.resolved = rlock__check_resolved;
    c->inside = true;
    status = c->o->loop.resolve(c->clients[0].state, &c->name.name, host);
    c->inside = false;
    memset(host, '?', sizeof host - 1); /* it was good until then */
    return status;
}

static inline void rlock__check_name_once(rlock__loop_check *c) {
    RLOCK__CHECK(rlock__check_ask(c) == 0, "resolve failed");
    RLOCK__CHECK(c->name.heard == 0, "it is answered from inside the hook");
    RLOCK__CHECK_UNTIL(c->name.heard > 0, "it is not answered");
    rlock__check_rest(c);
    RLOCK__CHECK(c->name.heard == 1, "it is answered more than once");
    RLOCK__CHECK(!c->name.strange, "an address is neither IPv4 nor IPv6");
    RLOCK__CHECK(c->name.count > 0, "localhost has no address");
    RLOCK__CHECK(rlock__check_ask(c) == 0, "resolve failed the second time");
    c->name.closes = true;
    RLOCK__CHECK_UNTIL(c->name.heard > 0, "it is not answered the second time");
}

static inline void rlock__check_name_closed(rlock__loop_check *c) {
    int i;
    for (i = 0; i < 2; i++) { /* before it is answered, and when the loop has not looked yet */
        RLOCK__CHECK(rlock__check_ask(c) == 0, "resolve failed");
        rlock__check_sleep(i * 30);
        rlock__check_close(c, 0);
        rlock__check_rest(c);
        rlock__check_rest(c);
        RLOCK__CHECK(c->name.heard == 0, "it is answered after close");
        if (rlock__check_open(c, 0) == NULL) {
            return;
        }
    }
}

/* ---- the library itself ---- */

typedef struct rlock__check_world {
    rlock_store *store;
    rlock_client *clients[RLOCK__CHECK_CLIENTS];
    rlock *locks[RLOCK__CHECK_CLIENTS];
    int rounds, wrong;
} rlock__check_world;

static inline void rlock__check_granted(rlock *lock, const rlock_event *event, void *user);

static inline void rlock__check_released(rlock *lock, const rlock_event *event, void *user) {
    rlock__check_world *world = (rlock__check_world *)user;
    world->wrong += event->status != RLOCK_OK;
    if (++world->rounds < 20) {
        (void)rlock_acquire(lock, 1000, 0, rlock__check_granted, user);
    }
}

static inline void rlock__check_granted(rlock *lock, const rlock_event *event, void *user) {
    rlock__check_world *world = (rlock__check_world *)user;
    world->wrong += event->status != RLOCK_OK || !rlock_is_held(lock) ||
                    rlock_is_held(world->locks[lock == world->locks[0]]);
    world->wrong += rlock_release(lock, rlock__check_released, user) != RLOCK_OK;
}

static inline const char *rlock__check_begin_world(rlock__loop_check *c,
                                                   rlock__check_world *world) {
    rlock_config config;
    rlock_options options;
    int i;
    memset(&config, 0, sizeof config);
    memset(&options, 0, sizeof options);
    config.loop = c->o->loop;
    options.key = "rlock-loop-check";
    if (rlock_memory_new(&world->store) != RLOCK_OK) {
        return "cannot make a store";
    }
    config.store = world->store;
    for (i = 0; i < RLOCK__CHECK_CLIENTS; i++) {
        if (rlock_client_new(&world->clients[i], &config) != RLOCK_OK ||
            rlock_new(&world->locks[i], world->clients[i], &options) != RLOCK_OK ||
            rlock_acquire(world->locks[i], 1000, 0, rlock__check_granted, world) != RLOCK_OK) {
            return "rlock_client_new, rlock_new or rlock_acquire failed";
        }
    }
    return NULL;
}

static inline void rlock__check_turns(rlock__loop_check *c, rlock__check_world *world) {
    c->why = rlock__check_begin_world(c, world);
    RLOCK__CHECK(c->why == NULL, c->why);
    RLOCK__CHECK_UNTIL(world->rounds >= 20, "the two clients make no progress");
    RLOCK__CHECK(world->wrong == 0, "an operation failed, or both held the lock");
}

static inline void rlock__check_library(rlock__loop_check *c) {
    rlock__check_world world;
    int i;
    memset(&world, 0, sizeof world);
    rlock__check_turns(c, &world);
    for (i = 0; i < RLOCK__CHECK_CLIENTS; i++) {
        rlock_free(world.locks[i]);
        rlock_client_free(world.clients[i]);
    }
    rlock__check_rest(c);
    rlock_memory_free(world.store);
}

/* ---- all of it ---- */

static inline bool rlock__check_begin(rlock__loop_check *c) {
    int i, ends[2];
    c->why = NULL;
    c->then = NULL;
    rlock__check_forget_trail(c);
    for (i = 0; i < RLOCK__CHECK_IOS; i++) {
        rlock__check_io *io = &c->ios[i];
        memset(io, 0, sizeof *io);
        io->check = c;
        io->letter = (char)('a' + i);
        io->io.client = c->clients[i == 2].client;
        io->io.ready = rlock__check_ready;
        io->io.watched = RLOCK_IO_READ | RLOCK_IO_WRITE; /* what comes after watch(0) is heard */
        io->fd = io->other = -1;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
            c->why = "cannot make sockets";
            return false;
        }
        io->fd = ends[0];
        io->other = ends[1];
        fcntl(io->fd, F_SETFL, O_NONBLOCK);
    }
    return rlock__check_open(c, 0) != NULL;
}

static inline void rlock__check_end(rlock__loop_check *c) {
    int i;
    c->then = NULL;
    rlock__check_close(c, 1);
    rlock__check_close(c, 0);
    rlock__check_forget_trail(c);
    rlock__check_rest(c);
    if (c->len > 0 && c->why == NULL) {
        c->why = "a call is made after close";
    }
    if (c->from_hook && c->why == NULL) {
        c->why = "a call is made from inside a hook";
    }
    c->from_hook = false;
    for (i = 0; i < RLOCK__CHECK_IOS; i++) {
        if (c->ios[i].fd >= 0) {
            close(c->ios[i].fd);
        }
        if (c->ios[i].other >= 0) {
            close(c->ios[i].other);
        }
    }
}

typedef struct rlock__check_row {
    const char *name;
    void (*check)(rlock__loop_check *c);
    char needs; /* r: only if there is the hook `resolve`; i: `idle`, and options.alive */
} rlock__check_row;

static inline bool rlock__check_one(rlock__loop_check *c, const rlock__check_row *row, int number,
                                    FILE *out) {
    if (row->needs == 'r' && c->o->loop.resolve == NULL) {
        fprintf(out, "ok %d - %s # SKIP there is no hook resolve\n", number, row->name);
        return true;
    }
    if (row->needs == 'i' && (c->o->loop.idle == NULL || c->o->alive == NULL)) {
        fprintf(out, "ok %d - %s # SKIP there is no hook idle, or no options.alive\n", number,
                row->name);
        return true;
    }
    if (rlock__check_begin(c)) {
        row->check(c);
    }
    rlock__check_end(c);
    fprintf(out, "%s %d - %s\n", c->why == NULL ? "ok" : "not ok", number, row->name);
    if (c->why != NULL) {
        fprintf(out, "#   %s\n", c->why);
    }
    fflush(out);
    return c->why == NULL;
}

/* Runs every check on a loop, and prints a line of TAP for each, and why one failed. Returns how
 * many failed: 0 = the loop keeps the contract, as far as this can tell. If it cannot begin (no
 * memory, or a hook or `run` is missing), it says so and returns 1. The loop is left as it was. */
static inline int rlock_loop_check(const rlock_loop_check_options *options, FILE *out) {
    static const rlock__check_row rows[] = {
        {"a zero timer comes after one more poll", rlock__check_zero_timer, 0},
        {"so does one that is set in a callback", rlock__check_zero_timer_in_callback, 0},
        {"one that is set in its own callback lets descriptors in",
         rlock__check_zero_timer_for_ever, 0},
        {"one that is set in every turn still fires", rlock__check_zero_timer_keeps_turn, 0},
        {"a timer comes once, never early, and replaces the last", rlock__check_timer_fires_once,
         0},
        {"a timer is not early after a long callback", rlock__check_timer_after_long_callback, 0},
        {"a negative delay stops the timer", rlock__check_timer_stops, 0},
        {"each client has a timer of its own", rlock__check_two_timers, 0},
        {"events are level-triggered", rlock__check_level, 0},
        {"what is watched can change", rlock__check_change, 0},
        {"each of several descriptors is reported", rlock__check_several, 0},
        {"reading and writing are both reported", rlock__check_both, 0},
        {"a hang-up reports all watched events", rlock__check_hang_up, 0},
        {"an error reports all watched events", rlock__check_error, 0},
        {"a forgotten descriptor is silent, even if fetched", rlock__check_forgotten, 0},
        {"the number of a forgotten descriptor can be watched", rlock__check_number, 0},
        {"close in the callback of a descriptor silences all", rlock__check_close_in_io, 0},
        {"close in the callback of a timer silences others", rlock__check_close_in_timer, 0},
        {"no hook calls the library", rlock__check_hooks_are_silent, 0},
        {"a name is answered once, and never inside the hook", rlock__check_name_once, 'r'},
        {"a name is not answered after close", rlock__check_name_closed, 'r'},
        {"two clients of one store take turns", rlock__check_library, 0},
        {"a timer is neither rounded down nor more than 10 ms late", rlock__check_timer_in_time, 0},
        {"an idle client is served, and does not keep the loop running", rlock__check_idle, 'i'},
    };
    int i, count = (int)(sizeof rows / sizeof rows[0]), failed = 0;
    rlock__loop_check *c = (rlock__loop_check *)calloc(1, sizeof *c);
    bool begins = c != NULL && options->run != NULL && options->loop.open != NULL &&
                  options->loop.watch != NULL && options->loop.set_timer != NULL &&
                  options->loop.close != NULL;
    for (i = 0; begins && i < RLOCK__CHECK_CLIENTS; i++) {
        begins = rlock__check_new_client(c, i);
    }
    if (begins) {
        c->o = options;
        for (i = 0; i < count; i++) {
            if (options->only == 0 || options->only == i + 1) {
                failed += !rlock__check_one(c, &rows[i], i + 1, out);
            }
        }
        fprintf(out, "1..%d\n", options->only == 0 ? count : 1);
    } else {
        fprintf(out, "Bail out! no memory, or a hook or options.run is missing\n");
        failed = 1;
    }
    for (i = 0; c != NULL && i < RLOCK__CHECK_CLIENTS; i++) {
        rlock_client_free(c->clients[i].client);
    }
    free(c);
    return failed;
}

#undef RLOCK__CHECK
#undef RLOCK__CHECK_UNTIL

RLOCK__C_CASTS_END

#endif /* RLOCK_LOOP_CHECK_H */

/*
 * Copyright (c) 2026 the rlock authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
