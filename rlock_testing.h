/* rlock_testing.h - time, faults and theft on command, for the tests of a program
 * SPDX-License-Identifier: MIT
 *
 *     rlock_testing *t = rlock_testing_new(NULL);
 *     config.loop = rlock_testing_loop(t);       replaces the loop of your program
 *     config.store = rlock_testing_store(t);     replaces the server
 *     ... let the program acquire its lock ...
 *     rlock_testing_pass(t, 1000);               a second passes, and all that is due happens
 *     rlock_testing_steal(t, "report");
 *     rlock_testing_pass(t, 100);                now on_lost was called
 *
 * A loop whose clock only the test moves, and a server inside the process that fails when the test
 * says so: a program goes through an outage of an hour in a millisecond. Each run is the same, but
 * for the jitter of renewals and retries, which RLOCK_RANDOM fixes. No server, no hiredis, no
 * thread, no sleep and no test framework is needed. For C99 and C++11; everything is static inline,
 * one file of the test has RLOCK_IMPLEMENTATION, and RLOCK_NO_REDIS may be defined there.
 * docs/testing-your-program.md tests a whole program with it. rlock_testing_new_on makes the same
 * server on the loop of the program, where time passes by itself: for integration tests.
 *
 * The server is the store of rlock_memory_new behind a connection that fails, and gives a program
 * what a Redis would: the same statuses and reasons. What only a real one has is not there: URLs,
 * TLS, Sentinels, clusters, config.replicas and quarantine_ms. What is sent reaches the server at
 * the end of a dispatch, at once; answers come back in a dispatch of their own.
 *
 * All of this belongs to one thread. Unless a function says otherwise, it may be called from the
 * callbacks of the program, as every function of rlock.h may; from the hook `log` nothing may.
 * A test that cannot go on (a client is left at the end; the program spins) is ended: a line on
 * stderr says why, and abort is called.
 */

#ifndef RLOCK_TESTING_H
#define RLOCK_TESTING_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rlock.h"

/* ------------------------------------------------------------------------------------------------
 * What a test uses
 */

/* One process: the program under test, or another one that is tested with it. */
typedef struct rlock_testing rlock_testing;

/* How the server treats one process. The statuses are those of FAULT x OPERATION in rlock.h. */
typedef enum rlock_testing_condition {
    RLOCK_TESTING_UP = 0, /* it answers */
    RLOCK_TESTING_DOWN,   /* its connections are closed, new ones refused: RLOCK_ERR_CONN */
    RLOCK_TESTING_SILENT, /* it is stopped, or the network is cut: nothing is answered or pushed.
                             After a command timeout the client gives the connection up: what was
                             sent on it is RLOCK_ERR_UNKNOWN, and was not executed. If it is UP
                             again before that, it executes and answers all of it */
    RLOCK_TESTING_DENIED, /* the user's password was changed: connections are closed, new ones are
                             refused: RLOCK_ERR_AUTH */
    RLOCK_TESTING_FULL    /* it has no memory: a free key is refused for now, with RLOCK_ERR_SERVER
                             at the end of the wait. Where a key of a queued kind is held or waited
                             for, waiters join and are served. Holds are renewed and released */
} rlock_testing_condition;

/* Makes a process, with a clock and a server that is UP; or, `beside` another process, one with the
 * clock and the server of that one. NULL: no memory. */
static inline rlock_testing *rlock_testing_new(rlock_testing *beside);

/* Makes a process whose time is real: the loop of the program runs it, instead of
 * rlock_testing_pass and rlock_testing_until, which end the test here. The hooks are copied. Its
 * clients still need rlock_testing_loop, which runs on this loop, and keeps it from ending as a
 * connection does. rlock_testing_new adds more processes on the same loop. Free all of
 * them before the loop. NULL: no memory. */
static inline rlock_testing *rlock_testing_new_on(rlock_loop loop);

/* Frees a process; after its clients. NULL is allowed. Not from a callback. */
static inline void rlock_testing_free(rlock_testing *t);

/* Return the loop and the store for the rlock_config of every client of the process. The store
 * needs the loop: rlock_client_new with this store and another loop is RLOCK_ERR_ARG. The loop
 * watches no descriptors, so of other stores it serves those that need none. */
static inline rlock_loop rlock_testing_loop(rlock_testing *t);
static inline const rlock_store *rlock_testing_store(rlock_testing *t);

/* --- time --- */

/* Returns the clock of all processes, in milliseconds; it does not begin at 0. In real time it is
 * that of the loop. */
static inline int64_t rlock_testing_now_ms(const rlock_testing *t);

/* Lets ms of time pass (0 or more): everything that is due by then happens, in its order, in each
 * process. If a callback takes longer than that, what is due when it returns happens too, and no
 * more: what that delays is for the next step of the test. Called from a callback it runs the loop
 * inside of the loop. A time in milliseconds that is given to the kit is at most a hundred years,
 * and a longer one means that. */
static inline void rlock_testing_pass(rlock_testing *t, int64_t ms);

/* Lets time pass until done(user) is true, and no longer than max_ms; it is asked before the first
 * step, and after each. Returns what it said last. */
static inline bool rlock_testing_until(rlock_testing *t, bool (*done)(void *user), void *user,
                                       int64_t max_ms);

/* Stops the process for ms, as SIGSTOP, a debugger or a suspended machine does: nothing of it
 * is dispatched, while the server and the other processes go on. Then all that is due happens; of
 * one handle the loss comes before an answer that is too late. Called from a callback, that
 * callback takes this long, and what is due waits until it has returned. In real time it
 * returns at once, and only the clients of the process stand still meanwhile. */
static inline void rlock_testing_freeze(rlock_testing *t, int64_t ms);

/* Kills the process: nothing of it is dispatched any more, and nothing that it does reaches the
 * server, whatever rlock_testing_server says of it later. What it holds stays until its lease is
 * over. Free its clients as usual. */
static inline void rlock_testing_kill(rlock_testing *t);

/* Calls fire(user) once, after ms, as a timer of the program's own does.
 * Returns RLOCK_OK or RLOCK_ERR_NOMEM. rlock_testing_cancel takes back all with this fire and user,
 * and returns how many that were. */
static inline int rlock_testing_after(rlock_testing *t, int64_t ms, void (*fire)(void *user),
                                      void *user);
static inline int rlock_testing_cancel(rlock_testing *t, void (*fire)(void *user), void *user);

/* Returns how many of these timers are set: 0 at the end of a program that leaves none behind. */
static inline int rlock_testing_pending(const rlock_testing *t);

/* Returns how many handles the clients of the process have: before its clients are freed, 0 for a
 * program that freed each handle. */
static inline int rlock_testing_handles(const rlock_testing *t);

/* --- faults, between this process and the server --- */

/* Sets the condition from now on, for all clients of the process. As with a real server, a client
 * whose connection has failed connects again after at most a second. */
static inline void rlock_testing_server(rlock_testing *t, rlock_testing_condition condition);

/* The next n requests are executed, but their answers are lost, and the connection with them. So an
 * acquire may hold the key and not know it: RLOCK_ERR_UNKNOWN, or with a wait it is repeated. */
static inline void rlock_testing_drop_answers(rlock_testing *t, int n);

/* How long each answer, push and attempt to connect is under way; 0 at the beginning. */
static inline void rlock_testing_latency(rlock_testing *t, int64_t ms);

/* --- what others do with a key; no condition keeps them from the server --- */

/* Another process acquires the key for lease_ms (10 to 86400000), and renews nothing: unless it
 * releases the key it dies, and the key is free when the lease ends. It takes all of a key: of a
 * READ or WRITE it is the writer, of a SEMAPHORE it has all permits. The kind is that of the last
 * handle made for the key here, at first a MUTEX.
 * Returns RLOCK_OK, RLOCK_ERR_BUSY (the key is held, or waited for), RLOCK_ERR_WRONG_TYPE,
 * RLOCK_ERR_ARG (the lease, an empty key) or RLOCK_ERR_NOMEM. */
static inline int rlock_testing_hold(rlock_testing *t, const char *key, int64_t lease_ms);

/* It releases the key. Returns RLOCK_OK or RLOCK_ERR_NOT_HELD. */
static inline int rlock_testing_let_go(rlock_testing *t, const char *key);

/* The key is deleted, as by DEL: the holder loses it as RLOCK_REASON_DELETED, or STOLEN if a waiter
 * has it by then. A READ or a SEMAPHORE learns of that only at its next renewal. Returns RLOCK_OK
 * or an error as above; RLOCK_ERR_NOT_HELD: it was free. Without the part KINDS nothing can be
 * taken away: RLOCK_ERR_NOT_HELD. */
static inline int rlock_testing_delete(rlock_testing *t, const char *key);

/* The key is taken from its holder, and at once held by another process, for 30 s as
 * rlock_testing_hold does: the holder loses it as RLOCK_REASON_STOLEN. Returns what
 * rlock_testing_hold does; BUSY: of a queued kind the next waiter was served first.
 * Without the part KINDS a key that is held is BUSY. */
static inline int rlock_testing_steal(rlock_testing *t, const char *key);

/* Returns the number of holders of the key at the server, which no client can know; or an error as
 * above. Without the part KINDS always 0. */
static inline int rlock_testing_holders(rlock_testing *t, const char *key);

/* ------------------------------------------------------------------------------------------------
 * How it is done
 */

#define RLOCK__TESTING_OF(at, type, member) \
    ((type *)(void *)((char *)(uintptr_t)(at)-offsetof(type, member)))
#define RLOCK__TESTING_SPINS 100000 /* dispatches at one moment, after which it is ended */
#define RLOCK__TESTING_LONGEST_MS 3155760000000 /* a hundred years */
#define RLOCK__TESTING_STEAL_MS 30000
#define RLOCK__TESTING_BACKOFF_MIN_MS 10 /* between two attempts to connect, as the Redis store */
#define RLOCK__TESTING_BACKOFF_MAX_MS 1000
#define RLOCK__TESTING_TOKEN_MAX 64
#define RLOCK__TESTING_TOKENS 40 /* bits of a token of a client; above them is its number */
#define RLOCK__TESTING_TOKEN_BITS (((uint64_t)1 << RLOCK__TESTING_TOKENS) - 1)

/* What happens at a time: a timer of a client, a connection with something to read, a timer of the
 * program. */
typedef struct rlock__testing_event {
    rlock_link link; /* of its world */
    rlock_testing *process;
    int64_t due_us; /* -1 = never */
    uint64_t order; /* of two that are due at once the one set first happens first */
    void (*happen)(struct rlock__testing_event *event);
} rlock__testing_event;

/* A key that was named here. */
typedef struct rlock__testing_key {
    rlock_link link;
    rlock_kind kind;    /* of the last handle */
    rlock_kind held_as; /* of the last hold */
    bool unheard;       /* no waiter is notified now */
    uint32_t permits;
    uint64_t token; /* with which the rival acquired it last */
    size_t len;     /* its bytes follow */
} rlock__testing_key;

struct rlock_testing {
    struct rlock__testing_world *world;
    rlock_store store;
    rlock_testing_condition condition;
    unsigned stopped; /* by how many freezes, or for ever */
    bool killed;
    int clients, timers, drops;
    int64_t latency_us;
    rlock_link conns;
};

/* What several processes share. The server runs on a client of its own, which is never stopped: so
 * it executes what was sent to it while the sender is frozen. */
typedef struct rlock__testing_world {
    int64_t now_us;
    rlock_client *driver; /* on the program's loop; NULL = time passes only when the test says so */
    rlock_timer turn;     /* of it: lets happen what is due */
    uint64_t orders;
    unsigned processes, depth;
    rlock_link events, keys;
    rlock_store *memory;
    rlock_client *server;
    rlock_testing own; /* the process of the server: nothing stops it */
    void *rival; /* the other process, at the server: without a client, so without a watchdog */
    uint64_t tokens, numbers; /* of the rival; of clients */
} rlock__testing_world;

typedef struct rlock__testing_client { /* a client on the loop */
    rlock__testing_event event;
    rlock_client *client;
    bool busy;
} rlock__testing_client;

typedef struct rlock__testing_timer { /* one of the program's own */
    rlock__testing_event event;
    void (*fire)(void *user);
    void *user;
} rlock__testing_timer;

enum {
    RLOCK__TESTING_ANSWER,
    RLOCK__TESTING_WOKEN,
    RLOCK__TESTING_NOTIFIED,
    RLOCK__TESTING_CLOSED
};

typedef struct rlock__testing_letter { /* a request under way, or what comes from the server */
    rlock_link link;
    struct rlock__testing_conn *conn;
    int kind;
    bool sent, executing;
    uint32_t looking;     /* at this key, from 1, before it is executed; 0 = at none */
    bool lost;            /* the connection that it was sent on is gone */
    rlock_request *asked; /* the client's; NULL = it was forgotten */
    rlock_request request;
    rlock_terms terms;
    rlock_answer answer;
    rlock_info info;
    int64_t due_us; /* when the client can read it */
    char token[RLOCK__TESTING_TOKEN_MAX];
} rlock__testing_letter; /* the lengths of the keys follow, and these, each with a NUL */

enum { RLOCK__TESTING_WAITS, RLOCK__TESTING_OPENS, RLOCK__TESTING_READY };

typedef struct rlock__testing_conn { /* a client at the server */
    rlock__testing_event event;      /* there is something to read */
    rlock_link link;
    rlock_client *client;
    const rlock_store_events *events;
    void *owner, *inner; /* inner: what the server has of it */
    rlock_io io;
    rlock_timer timer; /* the next attempt to connect, or the end of the patience */
    uint64_t number;   /* of the client; 0 is the rival */
    int phase;
    unsigned expected; /* answers */
    bool wanted, doubted, closing;
    int64_t timeout_us, due_us, alive_us, ready_us, backoff_ms;
    int64_t asked_us, heard_us; /* of an attempt to connect: when it began; when it is answered */
    const char *words;          /* with which it failed last */
    rlock_link unsent, sent, inbox;
    rlock_link refused; /* requests for which there was no memory */
    rlock__testing_letter closed;
} rlock__testing_conn;

static inline void rlock__testing_fail(const char *why) {
    fprintf(stderr, "rlock_testing: %s\n", why);
    abort();
}

/* --- lists --- */

static inline void rlock__testing_list(rlock_link *list) {
    list->prev = list->next = list;
}

static inline void rlock__testing_remove(rlock_link *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    rlock__testing_list(link);
}

static inline void rlock__testing_append(rlock_link *list, rlock_link *link) {
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

/* Everything of `from` goes to the end of `list`. */
static inline void rlock__testing_move(rlock_link *list, rlock_link *from) {
    while (from->next != from) {
        rlock_link *link = from->next;
        rlock__testing_remove(link);
        rlock__testing_append(list, link);
    }
}

/* --- events: the loop --- */

static inline void rlock__testing_event_add(rlock_testing *t, rlock__testing_event *event,
                                            void (*happen)(rlock__testing_event *event)) {
    event->process = t;
    event->due_us = -1;
    event->happen = happen;
    rlock__testing_append(&t->world->events, &event->link);
}

/* Returns the time: in real time that of the program's loop. */
static inline int64_t rlock__testing_time(rlock__testing_world *world) {
    if (world->driver) {
        int64_t now_us = rlock_client_clock_us(world->driver);
        world->now_us = now_us > world->now_us ? now_us : world->now_us;
    }
    return world->now_us;
}

/* Sets the timer of the program's loop, if there is one, to the next event. */
static inline void rlock__testing_arm(rlock__testing_world *world) {
    int64_t due_us = -1;
    rlock_link *at;
    if (!world->driver) {
        return;
    }
    for (at = world->events.next; at != &world->events; at = at->next) {
        const rlock__testing_event *event = RLOCK__TESTING_OF(at, rlock__testing_event, link);
        if (event->due_us >= 0 && !event->process->stopped &&
            (due_us < 0 || event->due_us < due_us)) {
            due_us = event->due_us;
        }
    }
    rlock_timer_set(world->driver, &world->turn, due_us);
}

/* One thing more, or less, for which the program's loop has to go on. */
static inline void rlock__testing_keep(rlock__testing_world *world, bool more) {
    if (world->driver) {
        rlock_client_plans(world->driver, more);
    }
}

static inline void rlock__testing_event_set(rlock__testing_event *event, int64_t due_us) {
    event->due_us = due_us;
    event->order = ++event->process->world->orders;
    rlock__testing_arm(event->process->world);
}

#ifdef __GNUC__
#define RLOCK__TESTING_ENDS_BY(end) __attribute__((cleanup(end)))
#else
#define RLOCK__TESTING_ENDS_BY(end)
#endif

static inline void rlock__testing_out(rlock__testing_world **world) {
    if (*world) {
        (*world)->depth--;
        *world = NULL;
    }
}

/* Lets an event happen, which may be gone after it, and which an exception may end. */
static inline void rlock__testing_happens(rlock__testing_event *event) {
    RLOCK__TESTING_ENDS_BY(rlock__testing_out)
    rlock__testing_world *world = event->process->world;
    world->depth++;
    event->happen(event);
    rlock__testing_out(&world);
}

static inline int64_t rlock__testing_us(int64_t ms) {
    return ms <= 0                          ? 0
           : ms < RLOCK__TESTING_LONGEST_MS ? ms * 1000
                                            : RLOCK__TESTING_LONGEST_MS * 1000;
}

/* Lets the next event happen that is due by then. False: there is none. */
static inline bool rlock__testing_step(rlock__testing_world *world, int64_t until_us) {
    rlock__testing_event *next = NULL;
    rlock_link *at;
    for (at = world->events.next; at != &world->events; at = at->next) {
        rlock__testing_event *event = RLOCK__TESTING_OF(at, rlock__testing_event, link);
        if (event->due_us < 0 || event->due_us > until_us || event->process->stopped) {
            continue;
        }
        if (!next || event->due_us < next->due_us ||
            (event->due_us == next->due_us && event->order < next->order)) {
            next = event;
        }
    }
    if (!next) {
        return false;
    }
    if (next->due_us > world->now_us) {
        world->now_us = next->due_us;
    }
    next->due_us = -1;
    rlock__testing_happens(next);
    return true;
}

/* Runs for this long, or until done(user), which may be NULL. Returns what that said last. If a
 * callback takes longer, the end is when it returns: only once, because a program that is always
 * late would never come to an end. */
static inline bool rlock__testing_run(rlock__testing_world *world, int64_t ms,
                                      bool (*done)(void *user), void *user) {
    int64_t moment_us = world->now_us, until_us = moment_us + rlock__testing_us(ms);
    int spins = 0;
    bool late = false, ended = done && done(user);
    if (world->driver) {
        rlock__testing_fail("time is real here: run the loop of the program");
    }
    while (!ended && rlock__testing_step(world, until_us)) {
        ended = done && done(user);
        spins = world->now_us == moment_us ? spins + 1 : 0;
        moment_us = world->now_us;
        if (!late && moment_us > until_us) {
            late = true;
            until_us = moment_us;
        }
        if (spins > RLOCK__TESTING_SPINS) {
            rlock__testing_fail("the program never comes to rest: no time passes any more");
        }
    }
    if (!ended && world->now_us < until_us) {
        world->now_us = until_us;
        ended = done && done(user);
    }
    return ended;
}

/* In real time: a turn of the program's loop. What is due only then waits for the next one, so that
 * the loop gets to all else. An exception leaves the rest to the next one too. */
static inline void rlock__testing_turn(rlock_timer *timer) {
    rlock__testing_world *world = RLOCK__TESTING_OF(timer, rlock__testing_world, turn);
    int64_t now_us = rlock__testing_time(world);
    rlock_timer_set(world->driver, timer, now_us);
    while (rlock__testing_step(world, now_us)) {
    }
    rlock__testing_arm(world);
}

static inline void rlock__testing_on_timer(rlock__testing_event *event) {
    rlock_on_timer(RLOCK__TESTING_OF(event, rlock__testing_client, event)->client);
}

/* The server keeps no loop from ending. */
static inline void rlock__testing_idle(void *state, bool idle) {
    rlock__testing_client *s = (rlock__testing_client *)state;
    rlock__testing_world *world = s->event.process->world;
    if (s->busy == idle && s->event.process != &world->own) {
        s->busy = !idle;
        rlock__testing_keep(world, s->busy);
    }
}

static inline void *rlock__testing_open(void *ctx, rlock_client *client) {
    rlock_testing *t = (rlock_testing *)ctx;
    rlock__testing_client *s = (rlock__testing_client *)calloc(1, sizeof *s);
    if (s) {
        s->client = client;
        rlock__testing_event_add(t, &s->event, rlock__testing_on_timer);
        t->clients++;
        rlock__testing_idle(s, false);
    }
    return s;
}

/* There are no descriptors: what a connection has to read is an event. */
static inline int rlock__testing_watch(void *state, rlock_io *io, int fd, unsigned events) {
    (void)state, (void)io, (void)fd, (void)events;
    return 0;
}

static inline void rlock__testing_set_timer(void *state, int64_t delay_us) {
    rlock__testing_event *event = &((rlock__testing_client *)state)->event;
    int64_t now_us = rlock__testing_time(event->process->world);
    if (delay_us == 0 && event->due_us >= 0 && event->due_us <= now_us) {
        return; /* due already: it keeps its turn */
    }
    rlock__testing_event_set(event, delay_us < 0 ? -1 : now_us + delay_us);
}

static inline void rlock__testing_close(void *state) {
    rlock__testing_client *s = (rlock__testing_client *)state;
    rlock__testing_idle(s, true);
    s->event.process->clients--;
    rlock__testing_remove(&s->event.link);
    free(s);
}

static inline int64_t rlock__testing_now_us(void *ctx) {
    return rlock__testing_time(((rlock_testing *)ctx)->world);
}

/* --- letters --- */

static inline uint32_t rlock__testing_count(const rlock_request *request) {
    return request->terms && request->terms->count > 1 ? request->terms->count : 1;
}

/* All clients are one at the server, where a token has the number of its client before it. */
static inline uint64_t rlock__testing_token(const rlock__testing_conn *conn, uint64_t token) {
    return token ? conn->number << RLOCK__TESTING_TOKENS | token : 0;
}

/* Returns a letter with a copy of the request, whose keys go when it is forgotten. NULL: no memory.
 */
static inline rlock__testing_letter *rlock__testing_letter_new(rlock__testing_conn *conn, int kind,
                                                               const rlock_request *request) {
    uint32_t i, count = rlock__testing_count(request);
    const rlock_terms *terms = request->terms;
    size_t size = request->key_len + 1;
    rlock__testing_letter *letter;
    uint32_t *lens;
    for (i = 1; i < count; i++) {
        size += terms->lens[i] + 1;
    }
    letter = (rlock__testing_letter *)calloc(1, sizeof *letter + count * sizeof(uint32_t) + size);
    if (!letter) {
        return NULL;
    }
    lens = (uint32_t *)(void *)(letter + 1);
    letter->conn = conn;
    letter->kind = kind;
    letter->request = *request;
    letter->request.token = rlock__testing_token(conn, request->token);
    letter->request.next = rlock__testing_token(conn, request->next);
    letter->request.writer = rlock__testing_token(conn, request->writer);
    memset(&letter->request.store, 0, sizeof letter->request.store);
    letter->request.key = (char *)(lens + count);
    memcpy(lens + count, request->key, count > 1 ? size : request->key_len);
    if (terms) {
        letter->terms = *terms;
        for (i = 0; i < count; i++) {
            lens[i] = terms->lens ? terms->lens[i] : request->key_len;
        }
        letter->terms.lens = lens;
        letter->request.terms = &letter->terms;
    }
    return letter;
}

static inline void rlock__testing_letter_free(rlock__testing_letter *letter) {
    rlock__testing_remove(&letter->link);
    free(letter);
}

/* The client reads when the first of its letters has come. */
static inline void rlock__testing_ring(rlock__testing_conn *conn) {
    const rlock_testing *t = conn->event.process;
    if (conn->inbox.next == &conn->inbox || t->condition == RLOCK_TESTING_SILENT) {
        conn->event.due_us = -1;
    } else if (conn->event.due_us < 0) {
        int64_t due_us = RLOCK__TESTING_OF(conn->inbox.next, rlock__testing_letter, link)->due_us;
        int64_t now_us = rlock__testing_time(t->world);
        rlock__testing_event_set(&conn->event, due_us > now_us ? due_us : now_us);
    }
}

/* The server sends something to the client; nothing overtakes what it sent before. */
static inline void rlock__testing_say(rlock__testing_letter *letter) {
    rlock__testing_conn *conn = letter->conn;
    const rlock_testing *t = conn->event.process;
    letter->due_us = rlock__testing_time(t->world) + t->latency_us;
    if (conn->inbox.prev != &conn->inbox) {
        int64_t last_us = RLOCK__TESTING_OF(conn->inbox.prev, rlock__testing_letter, link)->due_us;
        letter->due_us = letter->due_us < last_us ? last_us : letter->due_us;
    }
    rlock__testing_append(&conn->inbox, &letter->link);
    rlock__testing_ring(conn);
}

/* The server closes the connection. */
static inline void rlock__testing_hang_up(rlock__testing_conn *conn) {
    if (conn->phase == RLOCK__TESTING_READY && !conn->closing) {
        conn->closing = true;
        conn->closed.conn = conn;
        conn->closed.kind = RLOCK__TESTING_CLOSED;
        rlock__testing_say(&conn->closed);
    }
}

static inline void rlock__testing_execute(rlock__testing_letter *letter) {
    letter->executing = true;
    letter->conn->event.process->world->memory->submit(letter->conn->inner, &letter->request);
}

/* There is no memory for it. */
static inline void rlock__testing_refuse(rlock__testing_letter *letter) {
    letter->answer.outcome = RLOCK_OUTCOME_FAULT;
    letter->answer.fault = RLOCK_FAULT_BUSY;
    letter->answer.settled = true;
    letter->answer.text = "OOM command not allowed when used memory > 'maxmemory'.";
    rlock__testing_remove(&letter->link);
    rlock__testing_say(letter);
}

/* A request reaches the server. One without memory refuses what makes a key: a SET at once, while a
 * script looks first whether the key is held. */
static inline void rlock__testing_arrive(rlock__testing_letter *letter) {
    const rlock_request *request = &letter->request;
    bool acquires = request->op == RLOCK_OP_ACQUIRE;
    if (letter->conn->event.process->condition != RLOCK_TESTING_FULL ||
        (!acquires && request->op != RLOCK_OP_SET_PERMITS)) {
        rlock__testing_execute(letter);
    } else if (acquires && (request->terms || request->fences)) {
        letter->looking = 1;
        letter->request.op = RLOCK_OP_INSPECT;
        rlock__testing_execute(letter);
    } else {
        rlock__testing_refuse(letter);
    }
}

/* The answer to a look at one key of an acquire. */
static inline void rlock__testing_looked(rlock__testing_letter *letter,
                                         const rlock_answer *answer) {
    rlock_request *request = &letter->request;
    const rlock_info *info = answer->info; /* NULL without the part KINDS: it is refused */
    bool used = answer->outcome == RLOCK_OUTCOME_FAULT ||
                (info && (info->holders > 0 || info->waiters > 0));
    uint32_t count = rlock__testing_count(request);
    if (!used && letter->looking < count) {
        request->key += request->key_len + 1;
        request->key_len = letter->terms.lens[letter->looking++];
        rlock__testing_execute(letter);
        return;
    }
    letter->looking = 0;
    request->op = RLOCK_OP_ACQUIRE;
    request->key = (char *)(void *)((uint32_t *)(void *)(letter + 1) + count);
    request->key_len = count > 1 ? letter->terms.lens[0] : request->key_len;
    if (used) {
        rlock__testing_execute(letter);
    } else {
        rlock__testing_refuse(letter);
    }
}

/* --- what the server answers and reports --- */

static inline void rlock__testing_on_io(rlock__testing_event *event) {
    rlock_on_io(&RLOCK__TESTING_OF(event, rlock__testing_conn, event)->io, RLOCK_IO_READ);
}

/* Writes the token of a holder as the client whose it is writes it. */
static inline void rlock__testing_name(rlock__testing_letter *letter) {
    rlock_link *events = &letter->conn->event.process->world->events, *at;
    uint64_t token = strtoull(strchr(letter->info.token, ':') + 1, NULL, 10);
    const char *id = rlock_client_id(letter->conn->event.process->world->server);
    for (at = events->next; at != events; at = at->next) {
        const rlock__testing_conn *conn = RLOCK__TESTING_OF(at, rlock__testing_conn, event.link);
        if (conn->event.happen == rlock__testing_on_io &&
            conn->number == token >> RLOCK__TESTING_TOKENS) {
            id = rlock_client_id(conn->client);
        }
    }
    snprintf(letter->token, sizeof letter->token, "%s:%llu", id,
             (unsigned long long)(token & RLOCK__TESTING_TOKEN_BITS));
    letter->info.token = letter->token;
    letter->info.token_len = strlen(letter->token);
}

static inline rlock__testing_key *rlock__testing_key_of(rlock__testing_world *world,
                                                        const char *key, size_t len);

/* Remembers as what a key is held: of a shared hold a deletion is not reported. */
static inline void rlock__testing_note(const rlock__testing_letter *letter,
                                       const rlock_answer *answer) {
    if (letter->request.op == RLOCK_OP_ACQUIRE && answer->outcome == RLOCK_OUTCOME_DONE) {
        rlock__testing_key *known = rlock__testing_key_of(
            letter->conn->event.process->world, letter->request.key, letter->request.key_len);
        if (known) {
            known->held_as = letter->terms.kind;
        }
    }
}

static inline void rlock__testing_answered(void *owner, rlock_request *request,
                                           const rlock_answer *answer) {
    rlock__testing_letter *letter = RLOCK__TESTING_OF(request, rlock__testing_letter, request);
    rlock__testing_conn *conn = (rlock__testing_conn *)owner;
    rlock_testing *t = conn->event.process;
    letter->executing = false;
    if (letter->lost) {
        rlock__testing_letter_free(letter);
        return;
    }
    if (letter->looking) {
        rlock__testing_looked(letter, answer);
        return;
    }
    rlock__testing_note(letter, answer);
    if (t->drops > 0) {
        t->drops--;
        rlock__testing_hang_up(conn);
    }
    if (conn->closing) {
        return; /* it stays among those that are not answered */
    }
    letter->answer = *answer;
    if (answer->info) {
        letter->info = *answer->info;
        letter->answer.info = &letter->info;
        if (letter->info.token) {
            rlock__testing_name(letter);
        }
    }
    rlock__testing_remove(&letter->link);
    rlock__testing_say(letter);
}

/* A push. Without memory it is lost: it is a hint. */
static inline void rlock__testing_push(void *owner, int kind, const char *key, size_t key_len,
                                       uint64_t token) {
    rlock__testing_conn *conn = (rlock__testing_conn *)owner;
    rlock__testing_letter *letter;
    rlock_request request;
    memset(&request, 0, sizeof request);
    request.key = key;
    request.key_len = (uint32_t)key_len;
    request.token = token;
    letter = conn->phase == RLOCK__TESTING_READY && !conn->closing
                 ? rlock__testing_letter_new(conn, kind, &request)
                 : NULL;
    if (letter) {
        rlock__testing_say(letter);
    }
}

static inline void rlock__testing_woken(void *owner, const char *key, size_t key_len) {
    rlock__testing_push(owner, RLOCK__TESTING_WOKEN, key, key_len, 0);
}

/* A waiter whose client is not connected loses its position, and what it was offered. */
static inline void rlock__testing_pass_over(rlock__testing_conn *conn,
                                            const rlock__testing_key *known, uint64_t token) {
    rlock__testing_letter *letter;
    rlock_request request;
    rlock_terms terms;
    memset(&request, 0, sizeof request);
    memset(&terms, 0, sizeof terms);
    request.key = (const char *)(known + 1);
    request.key_len = (uint32_t)known->len;
    request.op = RLOCK_OP_RELEASE;
    request.token = token;
    request.terms = &terms;
    terms.kind = known->kind;
    terms.permits = known->permits;
    terms.weight = terms.count = 1;
    terms.lens = &request.key_len;
    letter = rlock__testing_letter_new(conn, RLOCK__TESTING_ANSWER, &request);
    if (letter) { /* without memory the offer stands for as long as it lasts */
        letter->lost = true;
        rlock__testing_append(&conn->sent, &letter->link);
        rlock__testing_execute(letter);
    }
}

static inline void rlock__testing_notified(void *owner, const char *key, size_t key_len,
                                           uint64_t token) {
    rlock__testing_conn *conn = (rlock__testing_conn *)owner;
    const rlock_testing *t = conn->event.process;
    const rlock__testing_key *known = rlock__testing_key_of(t->world, key, key_len);
    bool connected = conn->phase == RLOCK__TESTING_READY && !conn->closing;
    if (known && known->unheard) {
        return;
    }
    if (known && (t->killed || (!connected && t->condition != RLOCK_TESTING_SILENT))) {
        rlock__testing_pass_over(conn, known, token);
    } else {
        rlock__testing_push(owner, RLOCK__TESTING_NOTIFIED, key, key_len, token);
    }
}

/* The server itself is always up: how its clients reach it is decided here. */
static inline void rlock__testing_up(void *owner, const rlock_part *part) {
    (void)owner, (void)part;
}
static inline void rlock__testing_down(void *owner, const rlock_part *part, rlock_fault fault,
                                       const char *text) {
    (void)owner, (void)part, (void)fault, (void)text;
}
static inline void rlock__testing_pushing(void *owner, const rlock_part *part, unsigned what) {
    (void)owner, (void)part, (void)what;
}

/* --- a connection, in dispatches of its client --- */

static inline void rlock__testing_conn_wait(rlock__testing_conn *conn, int64_t us) {
    conn->due_us = rlock_client_now_us(conn->client) + us;
    rlock_timer_set(conn->client, &conn->timer, conn->due_us);
}

/* Why it has failed, and when it is tried again: at once, and then later and later. */
static inline void rlock__testing_conn_failed(rlock__testing_conn *conn, rlock_fault fault,
                                              const char *words) {
    int64_t pause_ms = fault == RLOCK_FAULT_DOWN ? conn->backoff_ms : RLOCK__TESTING_BACKOFF_MAX_MS;
    conn->phase = RLOCK__TESTING_WAITS;
    conn->backoff_ms = conn->backoff_ms * 2 + RLOCK__TESTING_BACKOFF_MIN_MS;
    if (conn->backoff_ms > RLOCK__TESTING_BACKOFF_MAX_MS) {
        conn->backoff_ms = RLOCK__TESTING_BACKOFF_MAX_MS;
    }
    rlock__testing_conn_wait(conn, pause_ms * 1000);
    if (words != conn->words) {
        conn->words = words;
        rlock_client_log(conn->client, RLOCK_LOG_WARNING, "connection to the test's server", words);
    }
    conn->events->down(conn->owner, NULL, fault, words);
}

/* The connection is gone. What was sent and not answered may have been executed. */
static inline void rlock__testing_conn_lose(rlock__testing_conn *conn, const char *words) {
    int64_t age_us = rlock_client_now_us(conn->client) - conn->ready_us;
    rlock_answer unknown;
    rlock_link lost;
    memset(&unknown, 0, sizeof unknown);
    unknown.outcome = RLOCK_OUTCOME_FAULT;
    unknown.fault = RLOCK_FAULT_UNKNOWN;
    unknown.text = words;
    rlock__testing_list(&lost);
    if (conn->closing) {
        conn->closing = false;
        rlock__testing_remove(&conn->closed.link);
    }
    rlock__testing_move(&lost, &conn->inbox);
    rlock__testing_move(&lost, &conn->sent);
    conn->phase = RLOCK__TESTING_WAITS;
    conn->expected = 0;
    rlock__testing_ring(conn);
    rlock_io_watch(conn->client, &conn->io, -1, 0);
    while (lost.next != &lost) {
        rlock__testing_letter *letter = RLOCK__TESTING_OF(lost.next, rlock__testing_letter, link);
        rlock_request *request = letter->asked;
        letter->asked = NULL;
        rlock__testing_remove(&letter->link);
        if (letter->executing) {
            letter->lost = true;
            rlock__testing_append(&conn->sent, &letter->link);
        } else {
            free(letter);
        }
        if (request) {
            conn->events->answered(conn->owner, request, &unknown);
        }
    }
    if (age_us >= RLOCK__TESTING_BACKOFF_MAX_MS * 1000) {
        conn->backoff_ms = 0;
    }
    conn->events->pushing(conn->owner, NULL, 0);
    rlock__testing_conn_failed(conn, RLOCK_FAULT_DOWN, words);
}

static inline void rlock__testing_conn_opened(rlock__testing_conn *conn) {
    rlock_testing_condition condition = conn->event.process->condition;
    if (condition == RLOCK_TESTING_DOWN) {
        rlock__testing_conn_failed(conn, RLOCK_FAULT_DOWN, "Connection refused");
    } else if (condition == RLOCK_TESTING_DENIED) {
        rlock__testing_conn_failed(conn, RLOCK_FAULT_AUTH,
                                   "WRONGPASS invalid username-password pair or user is disabled.");
    } else {
        conn->phase = RLOCK__TESTING_READY;
        conn->doubted = false;
        conn->words = NULL;
        conn->ready_us = conn->alive_us = rlock_client_now_us(conn->client);
        rlock_timer_set(conn->client, &conn->timer, -1);
        rlock_client_counters(conn->client)->connects++;
        rlock_client_log(conn->client, RLOCK_LOG_INFO, "connection to the test's server", "ready");
        rlock_io_watch(conn->client, &conn->io, -1, RLOCK_IO_READ);
        conn->events->up(conn->owner, NULL);
        conn->events->pushing(conn->owner, NULL, RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
    }
}

/* Is the attempt to connect answered, or is no answer to be expected any more? */
static inline void rlock__testing_conn_opens(rlock__testing_conn *conn) {
    bool silent = conn->event.process->condition == RLOCK_TESTING_SILENT;
    int64_t now_us = rlock_client_now_us(conn->client), end_us = conn->asked_us + conn->timeout_us;
    if (!silent && conn->heard_us <= now_us && conn->heard_us < end_us) {
        rlock__testing_conn_opened(conn);
    } else if (end_us <= now_us) {
        rlock__testing_conn_failed(conn, RLOCK_FAULT_DOWN, "no answer while connecting");
    } else {
        conn->due_us = silent || conn->heard_us > end_us ? end_us : conn->heard_us;
    }
}

/* Sets the timer to when the connection has something to do. */
static inline void rlock__testing_conn_arm(rlock__testing_conn *conn) {
    int64_t due_us = conn->wanted ? conn->due_us : -1;
    if (conn->phase == RLOCK__TESTING_READY) {
        due_us = conn->doubted    ? rlock_client_now_us(conn->client) + 1
                 : conn->expected ? conn->alive_us + conn->timeout_us
                                  : -1;
    }
    rlock_timer_set(conn->client, &conn->timer, due_us);
}

/* Is it time to connect, or is no answer to be expected any more? */
static inline void rlock__testing_conn_tend(rlock__testing_conn *conn) {
    int64_t now_us = rlock_client_now_us(conn->client);
    if (conn->phase == RLOCK__TESTING_WAITS && conn->wanted && conn->due_us <= now_us) {
        conn->phase = RLOCK__TESTING_OPENS;
        conn->asked_us = now_us;
        conn->heard_us = now_us + conn->event.process->latency_us;
    }
    if (conn->phase == RLOCK__TESTING_OPENS) {
        rlock__testing_conn_opens(conn);
    } else if (conn->phase == RLOCK__TESTING_READY && conn->expected &&
               conn->alive_us + conn->timeout_us <= now_us) {
        if (conn->doubted) {
            rlock__testing_conn_lose(conn, "the server does not answer");
        } else {
            conn->doubted = true; /* the process may have slept: first it reads what has come */
        }
    }
}

static inline void rlock__testing_conn_fire(rlock_timer *timer) {
    rlock__testing_conn *conn = RLOCK__TESTING_OF(timer, rlock__testing_conn, timer);
    rlock_link refused;
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_FAULT;
    answer.fault = RLOCK_FAULT_NOMEM;
    answer.settled = true;
    rlock__testing_list(&refused);
    rlock__testing_move(&refused, &conn->refused);
    while (refused.next != &refused) {
        rlock_request *request = RLOCK__TESTING_OF(refused.next, rlock_request, store.link);
        rlock__testing_remove(&request->store.link);
        conn->events->answered(conn->owner, request, &answer);
    }
    rlock__testing_conn_tend(conn);
    rlock__testing_conn_arm(conn);
}

/* Reads one letter. */
static inline void rlock__testing_conn_read(rlock__testing_conn *conn) {
    rlock__testing_letter *letter =
        RLOCK__TESTING_OF(conn->inbox.next, rlock__testing_letter, link);
    rlock_request *request = letter->asked;
    if (letter == &conn->closed) {
        rlock__testing_conn_lose(conn, "Server closed the connection");
        return;
    }
    rlock__testing_remove(&letter->link);
    letter->asked = NULL;
    conn->expected -= letter->kind == RLOCK__TESTING_ANSWER;
    if (letter->kind == RLOCK__TESTING_WOKEN) {
        conn->events->woken(conn->owner, letter->request.key, letter->request.key_len);
    } else if (letter->kind == RLOCK__TESTING_NOTIFIED) {
        conn->events->notified(conn->owner, letter->request.key, letter->request.key_len,
                               letter->request.token & RLOCK__TESTING_TOKEN_BITS);
    } else if (request) {
        conn->events->answered(conn->owner, request, &letter->answer);
    }
    free(letter);
}

/* The connection has something to read. */
static inline void rlock__testing_conn_ready(rlock_io *io, unsigned events) {
    rlock__testing_conn *conn = RLOCK__TESTING_OF(io, rlock__testing_conn, io);
    int64_t now_us = rlock_client_now_us(conn->client);
    (void)events;
    conn->alive_us = now_us;
    conn->doubted = false;
    while (conn->phase == RLOCK__TESTING_READY && conn->inbox.next != &conn->inbox &&
           RLOCK__TESTING_OF(conn->inbox.next, rlock__testing_letter, link)->due_us <= now_us) {
        rlock__testing_conn_read(conn);
    }
    rlock__testing_conn_arm(conn);
    rlock__testing_ring(conn);
}

/* --- the store --- */

static inline rlock__testing_key *rlock__testing_key_of(rlock__testing_world *world,
                                                        const char *key, size_t len) {
    rlock__testing_key *known = NULL;
    rlock_link *at;
    for (at = world->keys.next; at != &world->keys; at = at->next) {
        known = RLOCK__TESTING_OF(at, rlock__testing_key, link);
        if (known->len == len && memcmp(known + 1, key, len) == 0) {
            return known;
        }
    }
    known = (rlock__testing_key *)calloc(1, sizeof *known + len);
    if (known) {
        known->len = len;
        memcpy(known + 1, key, len);
        rlock__testing_append(&world->keys, &known->link);
    }
    return known;
}

/* A handle or a question is made: its kind is noted. */
static inline const char *rlock__testing_refuses(void *state, const char *key, size_t key_len,
                                                 const rlock_terms *terms, bool fencing) {
    rlock__testing_conn *conn = (rlock__testing_conn *)state;
    rlock__testing_key *known = rlock__testing_key_of(conn->event.process->world, key, key_len);
    (void)fencing;
    if (known) {
        known->kind = terms ? terms->kind : RLOCK_KIND_MUTEX;
        known->permits = terms ? terms->permits : 1;
    }
    return NULL;
}

static inline void rlock__testing_submit(void *state, rlock_request *request) {
    rlock__testing_conn *conn = (rlock__testing_conn *)state;
    rlock__testing_letter *letter = rlock__testing_letter_new(conn, RLOCK__TESTING_ANSWER, request);
    int64_t now_us = rlock_client_now_us(conn->client);
    request->sent_us = now_us;
    request->store.data = letter;
    if (!letter) {
        rlock__testing_append(&conn->refused, &request->store.link);
        rlock_timer_set(conn->client, &conn->timer, now_us);
        return;
    }
    letter->asked = request;
    rlock__testing_append(&conn->unsent, &letter->link);
    if (!conn->wanted) { /* it connects when the first request needs it */
        conn->wanted = true;
        rlock__testing_conn_wait(conn, 0);
    }
}

static inline bool rlock__testing_forget(void *state, rlock_request *request) {
    rlock__testing_letter *letter = (rlock__testing_letter *)request->store.data;
    (void)state;
    if (!letter) {
        rlock__testing_remove(&request->store.link);
        return false;
    }
    if (!letter->sent) {
        rlock__testing_letter_free(letter);
        return false;
    }
    letter->asked = NULL;
    return true;
}

/* Not by the connection, unlike all else: where there is none, no change is reported. */
static inline void rlock__testing_track(void *state, const char *key, size_t key_len, bool on) {
    rlock__testing_conn *conn = (rlock__testing_conn *)state;
    const rlock__testing_world *world = conn->event.process->world;
    rlock_client_clock_us(world->server); /* which may have slept since its last dispatch */
    world->memory->track(conn->inner, key, key_len, on);
}

static inline void rlock__testing_flush(void *state) {
    rlock__testing_conn *conn = (rlock__testing_conn *)state;
    if (conn->phase != RLOCK__TESTING_READY || conn->closing ||
        conn->unsent.next == &conn->unsent) {
        return;
    }
    if (!conn->expected) {
        conn->alive_us = rlock_client_clock_us(conn->client);
        conn->doubted = false;
        rlock_timer_set(conn->client, &conn->timer, conn->alive_us + conn->timeout_us);
    }
    while (conn->unsent.next != &conn->unsent) {
        rlock__testing_letter *letter =
            RLOCK__TESTING_OF(conn->unsent.next, rlock__testing_letter, link);
        letter->sent = true;
        conn->expected++;
        letter->asked->sent_us = rlock_client_clock_us(conn->client);
        rlock__testing_remove(&letter->link);
        rlock__testing_append(&conn->sent, &letter->link);
        rlock_client_counters(conn->client)->commands++;
        if (conn->event.process->condition != RLOCK_TESTING_SILENT) {
            rlock__testing_arrive(letter);
        }
    }
}

static inline void rlock__testing_shut(void *state) {
    rlock__testing_conn *conn = (rlock__testing_conn *)state;
    const rlock__testing_world *world = conn->event.process->world;
    rlock__testing_flush(state); /* the last requests: releases */
    rlock_client_clock_us(world->server);
    world->memory->close(conn->inner); /* which executes what has arrived */
    if (conn->closing) {
        rlock__testing_remove(&conn->closed.link);
    }
    rlock__testing_move(&conn->unsent, &conn->sent);
    rlock__testing_move(&conn->unsent, &conn->inbox);
    while (conn->unsent.next != &conn->unsent) {
        rlock__testing_letter_free(
            RLOCK__TESTING_OF(conn->unsent.next, rlock__testing_letter, link));
    }
    rlock_io_watch(conn->client, &conn->io, -1, 0);
    rlock_timer_drop(conn->client, &conn->timer);
    rlock__testing_remove(&conn->event.link);
    rlock__testing_remove(&conn->link);
    free(conn);
}

static const rlock_store_events rlock__testing_events = {
    rlock__testing_answered, rlock__testing_up,    rlock__testing_down,
    rlock__testing_pushing,  rlock__testing_woken, rlock__testing_notified};

static inline int rlock__testing_join(const rlock_store *store, rlock_client *client,
                                      const struct rlock_config *config,
                                      const rlock_store_events *events, void *owner, void **state) {
    rlock_testing *t = (rlock_testing *)store->ctx;
    rlock__testing_conn *conn;
    int status;
    if (config->loop.ctx != t) {
        rlock_client_log(client, RLOCK_LOG_ERROR,
                         "rlock_testing_store needs rlock_testing_loop of the same process", NULL);
        return RLOCK_ERR_ARG;
    }
    conn = (rlock__testing_conn *)calloc(1, sizeof *conn);
    if (!conn || rlock_timer_add(client, &conn->timer, rlock__testing_conn_fire) != RLOCK_OK) {
        free(conn);
        return RLOCK_ERR_NOMEM;
    }
    status = t->world->memory->open(t->world->memory, t->world->server, config,
                                    &rlock__testing_events, conn, &conn->inner);
    if (status != RLOCK_OK) {
        rlock_timer_drop(client, &conn->timer);
        free(conn);
        return status;
    }
    conn->number = ++t->world->numbers;
    conn->client = client;
    conn->events = events;
    conn->owner = owner;
    conn->io.ready = rlock__testing_conn_ready;
    conn->timeout_us = config->command_timeout_ms * 1000;
    rlock__testing_list(&conn->unsent);
    rlock__testing_list(&conn->sent);
    rlock__testing_list(&conn->inbox);
    rlock__testing_list(&conn->refused);
    rlock__testing_list(&conn->closed.link);
    rlock__testing_append(&t->conns, &conn->link);
    rlock__testing_event_add(t, &conn->event, rlock__testing_on_io);
    *state = conn;
    return RLOCK_OK;
}

/* --- the rival: the other process that holds, steals and deletes --- */

typedef struct rlock__testing_ask {
    rlock_request request;
    rlock_terms terms;
    rlock_answer answer;
    int holders;
    bool answered;
} rlock__testing_ask;

static inline void rlock__testing_rival_answered(void *owner, rlock_request *request,
                                                 const rlock_answer *answer) {
    rlock__testing_ask *ask = RLOCK__TESTING_OF(request, rlock__testing_ask, request);
    (void)owner;
    ask->answered = true;
    ask->answer = *answer;
    ask->holders = answer->info ? (int)answer->info->holders : 0;
}

static inline void rlock__testing_rival_woken(void *owner, const char *key, size_t key_len) {
    (void)owner, (void)key, (void)key_len;
}

static inline void rlock__testing_rival_notified(void *owner, const char *key, size_t key_len,
                                                 uint64_t token) {
    (void)owner, (void)key, (void)key_len, (void)token;
}

static const rlock_store_events rlock__testing_rival_events = {
    rlock__testing_rival_answered, rlock__testing_up,          rlock__testing_down,
    rlock__testing_pushing,        rlock__testing_rival_woken, rlock__testing_rival_notified};

/* Hands a request of the rival to the server, which executes it in its next dispatch. */
static inline void rlock__testing_rival(rlock__testing_world *world, rlock__testing_ask *ask,
                                        const rlock__testing_key *known, rlock_op op,
                                        int64_t lease_ms) {
    memset(ask, 0, sizeof *ask);
    ask->request.key = (const char *)(known + 1);
    ask->request.key_len = (uint32_t)known->len;
    ask->request.op = (uint8_t)op;
    ask->request.flags = op == RLOCK_OP_ACQUIRE ? RLOCK_REQUEST_ONCE : 0;
    ask->request.lease_ms = lease_ms;
    ask->request.token = op == RLOCK_OP_ACQUIRE   ? ++world->tokens
                         : op == RLOCK_OP_RELEASE ? known->token
                                                  : 0;
    if (known->kind != RLOCK_KIND_MUTEX) {
        ask->terms.kind = known->kind == RLOCK_KIND_READ ? RLOCK_KIND_WRITE : known->kind;
        ask->terms.permits = ask->terms.weight = known->permits;
        ask->terms.count = 1;
        ask->terms.lens = &ask->request.key_len;
        ask->request.terms = &ask->terms;
    }
    world->memory->submit(world->rival, &ask->request);
}

/* Returns when the server has executed it: what was sent before may put it off by a dispatch. */
static inline void rlock__testing_await(rlock__testing_world *world,
                                        const rlock__testing_ask *ask) {
    while (!ask->answered && !rlock_client_forked(world->server)) {
        rlock_on_timer(world->server);
    }
}

static inline int rlock__testing_status(const rlock__testing_ask *ask) {
    bool acquire = ask->request.op == RLOCK_OP_ACQUIRE;
    if (ask->answer.outcome == RLOCK_OUTCOME_FAULT) {
        return ask->answer.fault == RLOCK_FAULT_TYPE ? RLOCK_ERR_WRONG_TYPE : RLOCK_ERR_NOMEM;
    }
    return ask->answer.outcome == RLOCK_OUTCOME_DONE ? RLOCK_OK
           : acquire                                 ? RLOCK_ERR_BUSY
                                                     : RLOCK_ERR_NOT_HELD;
}

/* Does it now. */
static inline int rlock__testing_do(rlock_testing *t, const char *key, rlock_op op,
                                    int64_t lease_ms, rlock__testing_ask *ask) {
    size_t len = key ? strlen(key) : 0;
    rlock__testing_key *known;
    int status;
    if (!len || len > RLOCK_KEY_MAX) {
        return RLOCK_ERR_ARG;
    }
    known = rlock__testing_key_of(t->world, key, len);
    if (!known) {
        return RLOCK_ERR_NOMEM;
    }
    rlock__testing_rival(t->world, ask, known, op, lease_ms);
    rlock__testing_await(t->world, ask);
    status = rlock__testing_status(ask);
    if (op == RLOCK_OP_ACQUIRE && status == RLOCK_OK) {
        known->token = ask->request.token;
    }
    return status;
}

static inline int rlock_testing_hold(rlock_testing *t, const char *key, int64_t lease_ms) {
    rlock__testing_ask ask;
    return lease_ms < RLOCK_LEASE_MIN_MS || lease_ms > RLOCK_LEASE_MAX_MS
               ? RLOCK_ERR_ARG
               : rlock__testing_do(t, key, RLOCK_OP_ACQUIRE, lease_ms, &ask);
}

static inline int rlock_testing_let_go(rlock_testing *t, const char *key) {
    rlock__testing_ask ask;
    return rlock__testing_do(t, key, RLOCK_OP_RELEASE, 0, &ask);
}

static inline int rlock_testing_delete(rlock_testing *t, const char *key) {
    size_t len = key ? strlen(key) : 0;
    rlock__testing_key *known = len ? rlock__testing_key_of(t->world, key, len) : NULL;
    rlock__testing_ask ask;
    int status;
    if (known) {
        known->unheard =
            known->held_as == RLOCK_KIND_READ || known->held_as == RLOCK_KIND_SEMAPHORE;
    }
    status = rlock__testing_do(t, key, RLOCK_OP_FORCE, 0, &ask);
    rlock_on_timer(t->world->server); /* who is to be notified */
    if (known) {
        known->unheard = false;
    }
    return status == RLOCK_OK && ask.holders == 0 ? RLOCK_ERR_NOT_HELD : status;
}

static inline int rlock_testing_steal(rlock_testing *t, const char *key) {
    size_t len = key ? strlen(key) : 0;
    rlock__testing_key *known = len ? rlock__testing_key_of(t->world, key, len) : NULL;
    rlock__testing_ask force, acquire;
    if (!known || len > RLOCK_KEY_MAX) {
        return rlock_testing_hold(t, key, RLOCK__TESTING_STEAL_MS);
    }
    rlock__testing_rival(t->world, &force, known, RLOCK_OP_FORCE, 0);
    rlock__testing_rival(t->world, &acquire, known, RLOCK_OP_ACQUIRE, RLOCK__TESTING_STEAL_MS);
    rlock__testing_await(t->world, &acquire); /* in one step: no waiter of a mutex comes between */
    if (rlock__testing_status(&acquire) == RLOCK_OK) {
        known->token = acquire.request.token;
    }
    return rlock__testing_status(&acquire);
}

static inline int rlock_testing_holders(rlock_testing *t, const char *key) {
    rlock__testing_ask ask;
    int status = rlock__testing_do(t, key, RLOCK_OP_INSPECT, 0, &ask);
    return status == RLOCK_OK ? ask.holders : status;
}

/* --- time and faults --- */

static inline int64_t rlock_testing_now_ms(const rlock_testing *t) {
    return rlock__testing_time(t->world) / 1000;
}

static inline void rlock_testing_pass(rlock_testing *t, int64_t ms) {
    rlock__testing_run(t->world, ms, NULL, NULL);
}

static inline bool rlock_testing_until(rlock_testing *t, bool (*done)(void *user), void *user,
                                       int64_t max_ms) {
    return rlock__testing_run(t->world, max_ms, done, user);
}

/* The process goes on, after a freeze in real time. */
static inline void rlock__testing_thaw(void *process) {
    ((rlock_testing *)process)->stopped--;
}

static inline void rlock_testing_freeze(rlock_testing *t, int64_t ms) {
    t->stopped++;
    if (t->world->driver) {
        if (rlock_testing_after(&t->world->own, ms, rlock__testing_thaw, t) != RLOCK_OK) {
            rlock__testing_fail("out of memory for a freeze");
        }
        return;
    }
    rlock_testing_pass(t, ms);
    t->stopped--;
    if (!t->world->depth) {
        rlock_testing_pass(t, 0);
    }
}

static inline void rlock_testing_kill(rlock_testing *t) {
    if (!t->killed) {
        t->stopped++;
        rlock_testing_server(t, RLOCK_TESTING_SILENT);
        t->killed = true;
    }
}

static inline void rlock__testing_timer_end(rlock__testing_timer *timer) {
    timer->event.process->timers--;
    rlock__testing_keep(timer->event.process->world, false);
    rlock__testing_remove(&timer->event.link);
    free(timer);
}

static inline void rlock__testing_timer_happens(rlock__testing_event *event) {
    rlock__testing_timer *timer = RLOCK__TESTING_OF(event, rlock__testing_timer, event);
    void (*fire)(void *user) = timer->fire;
    void *user = timer->user;
    rlock__testing_timer_end(timer);
    fire(user);
}

static inline int rlock_testing_after(rlock_testing *t, int64_t ms, void (*fire)(void *user),
                                      void *user) {
    rlock__testing_timer *timer = (rlock__testing_timer *)calloc(1, sizeof *timer);
    if (!timer) {
        return RLOCK_ERR_NOMEM;
    }
    timer->fire = fire;
    timer->user = user;
    rlock__testing_event_add(t, &timer->event, rlock__testing_timer_happens);
    rlock__testing_event_set(&timer->event, rlock__testing_time(t->world) + rlock__testing_us(ms));
    rlock__testing_keep(t->world, true);
    t->timers++;
    return RLOCK_OK;
}

/* Ends the timers of the process with this fire and user; all with fire NULL. */
static inline int rlock_testing_cancel(rlock_testing *t, void (*fire)(void *user), void *user) {
    rlock_link *events = &t->world->events, *at, *next;
    int count = 0;
    for (at = events->next; at != events; at = next) {
        rlock__testing_event *event = RLOCK__TESTING_OF(at, rlock__testing_event, link);
        rlock__testing_timer *timer = RLOCK__TESTING_OF(at, rlock__testing_timer, event.link);
        next = at->next;
        if (event->process == t && event->happen == rlock__testing_timer_happens &&
            (!fire || (timer->fire == fire && timer->user == user))) {
            rlock__testing_timer_end(timer);
            count++;
        }
    }
    return count;
}

static inline int rlock_testing_pending(const rlock_testing *t) {
    return t->timers;
}

static inline int rlock_testing_handles(const rlock_testing *t) {
    const rlock_link *at;
    rlock_stats stats;
    int count = 0;
    for (at = t->conns.next; at != &t->conns; at = at->next) {
        rlock_client_stats(RLOCK__TESTING_OF(at, rlock__testing_conn, link)->client, &stats);
        count += (int)stats.handles;
    }
    return count;
}

static inline void rlock_testing_server(rlock_testing *t, rlock_testing_condition condition) {
    rlock_link *at, *letter, *next;
    if (t->killed) {
        return;
    }
    t->condition = condition;
    for (at = t->conns.next; at != &t->conns; at = at->next) {
        rlock__testing_conn *conn = RLOCK__TESTING_OF(at, rlock__testing_conn, link);
        if (condition == RLOCK_TESTING_DOWN || condition == RLOCK_TESTING_DENIED) {
            rlock__testing_hang_up(conn);
        } else if (condition != RLOCK_TESTING_SILENT && !conn->closing) {
            for (letter = conn->sent.next; letter != &conn->sent; letter = next) {
                rlock__testing_letter *sent =
                    RLOCK__TESTING_OF(letter, rlock__testing_letter, link);
                next = letter->next;
                if (!sent->executing) {
                    rlock__testing_arrive(sent); /* it had to wait until now */
                }
            }
        }
        rlock__testing_ring(conn);
        if (conn->phase == RLOCK__TESTING_OPENS) {
            rlock_timer_set(conn->client, &conn->timer, 0);
        }
    }
}

static inline void rlock_testing_drop_answers(rlock_testing *t, int n) {
    t->drops = n;
}

static inline void rlock_testing_latency(rlock_testing *t, int64_t ms) {
    t->latency_us = rlock__testing_us(ms);
}

/* --- processes --- */

static inline rlock_loop rlock_testing_loop(rlock_testing *t) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks);
    hooks.ctx = t;
    hooks.open = rlock__testing_open;
    hooks.watch = rlock__testing_watch;
    hooks.set_timer = rlock__testing_set_timer;
    hooks.close = rlock__testing_close;
    hooks.now_us = rlock__testing_now_us;
    hooks.idle = rlock__testing_idle;
    return hooks;
}

static inline const rlock_store *rlock_testing_store(rlock_testing *t) {
    return &t->store;
}

static inline void rlock__testing_world_free(struct rlock__testing_world *world) {
    while (world->keys.next != &world->keys) {
        rlock__testing_key *known = RLOCK__TESTING_OF(world->keys.next, rlock__testing_key, link);
        rlock__testing_remove(&known->link);
        free(known);
    }
    if (world->rival) {
        world->memory->close(world->rival);
    }
    rlock_client_free(world->server);
    if (world->driver) {
        rlock_timer_drop(world->driver, &world->turn);
    }
    rlock_client_free(world->driver);
    rlock_memory_free(world->memory);
    free(world);
}

/* Makes what drives the world on the program's loop. */
static inline int rlock__testing_drive(struct rlock__testing_world *world, const rlock_loop *loop) {
    rlock_client *driver;
    rlock_config config;
    int status;
    memset(&config, 0, sizeof config);
    config.loop = *loop;
    config.store = world->memory;
    status = rlock_client_new(&driver, &config);
    if (status != RLOCK_OK) {
        return status;
    }
    status = rlock_timer_add(driver, &world->turn, rlock__testing_turn);
    if (status != RLOCK_OK) {
        rlock_client_free(driver);
        return status;
    }
    world->driver = driver;
    world->now_us = rlock_client_clock_us(driver);
    return RLOCK_OK;
}

/* Makes the server, and the rival; on the program's loop unless that is NULL. NULL: no memory. */
static inline struct rlock__testing_world *rlock__testing_world_new(const rlock_loop *loop) {
    struct rlock__testing_world *world = (struct rlock__testing_world *)calloc(1, sizeof *world);
    rlock_config config;
    memset(&config, 0, sizeof config);
    if (!world || rlock_memory_new(&world->memory) != RLOCK_OK) {
        free(world);
        return NULL;
    }
    world->now_us = 1000000000; /* far from 0, which means "none" in many a program */
    world->own.world = world;
    rlock__testing_list(&world->events);
    rlock__testing_list(&world->keys);
    config.loop = rlock_testing_loop(&world->own);
    config.store = world->memory;
    if ((loop && rlock__testing_drive(world, loop) != RLOCK_OK) ||
        rlock_client_new(&world->server, &config) != RLOCK_OK) {
        rlock__testing_world_free(world);
        return NULL;
    }
    config.command_timeout_ms = 1000; /* as long as an offer made by the rival lasts */
    if (world->memory->open(world->memory, world->server, &config, &rlock__testing_rival_events,
                            world, &world->rival) != RLOCK_OK) {
        world->rival = NULL;
        rlock__testing_world_free(world);
        return NULL;
    }
    return world;
}

/* Makes a process of a world, which may be NULL: there was no memory for it. */
static inline rlock_testing *rlock__testing_process(struct rlock__testing_world *world) {
    static const rlock_store functions = {NULL,
                                          rlock__testing_join,
                                          rlock__testing_shut,
                                          rlock__testing_submit,
                                          rlock__testing_forget,
                                          rlock__testing_track,
                                          rlock__testing_flush,
                                          rlock__testing_refuses,
                                          NULL,
                                          RLOCK_STORE_STAYS,
                                          NULL};
    rlock_testing *t = world ? (rlock_testing *)calloc(1, sizeof *t) : NULL;
    if (!t) {
        if (world && !world->processes) {
            rlock__testing_world_free(world);
        }
        return NULL;
    }
    t->world = world;
    t->world->processes++;
    t->store = functions;
    t->store.ctx = t;
    rlock__testing_list(&t->conns);
    return t;
}

static inline rlock_testing *rlock_testing_new(rlock_testing *beside) {
    return rlock__testing_process(beside ? beside->world : rlock__testing_world_new(NULL));
}

static inline rlock_testing *rlock_testing_new_on(rlock_loop loop) {
    return rlock__testing_process(rlock__testing_world_new(&loop));
}

static inline void rlock_testing_free(rlock_testing *t) {
    if (!t) {
        return;
    }
    if (t->clients) {
        rlock__testing_fail("a client is left: call rlock_client_free before rlock_testing_free");
    }
    rlock_testing_cancel(t, NULL, NULL);
    rlock_testing_cancel(&t->world->own, rlock__testing_thaw, t);
    if (--t->world->processes == 0) {
        rlock__testing_world_free(t->world);
    }
    free(t);
}

#endif /* RLOCK_TESTING_H */

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
