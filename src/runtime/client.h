/* ------------------------------------------------------------------------------------------------
 * >>client - one clock sample per dispatch, one loop timer, ready list, deferred frees
 */

#ifndef RLOCK_RUNTIME_CLIENT_H
#define RLOCK_RUNTIME_CLIENT_H

#include "public/head.h"
#include "public/status.h"
#include "public/loop.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "base/foreign.h"
#include "base/list.h"
#include "base/map.h"
#include "base/heap.h"
#include "base/pool.h"

/* Something a callback is owed for; delivered at the end of an entry, or by a zero timer. */
typedef struct rlock__ready {
    rlock_link link;
    uint8_t of;      /* RLOCK__OF_... */
    uint8_t event;   /* of a handle or an operation: rlock_event_kind, 0 = none */
    int8_t status;   /* the event's; before that, how the last attempt ended */
    uint8_t reason;  /* the event's */
    int32_t left_ms; /* of the holder's lease, when last heard: for event.remaining_ms */
} rlock__ready;

enum {
    RLOCK__OF_HANDLE,
    RLOCK__OF_OPERATION,
    RLOCK__OF_QUESTION,
    RLOCK__OF_SHUTDOWN,
    RLOCK__OF_DRAIN
};

/* Leaves the client before it calls the user, and touches nothing of it after that. *words are
 * freed after it. */
typedef void rlock__deliverer(rlock__ready *ready, char **words);

/* What a claim (see >>claim) does with the server. */
enum { RLOCK__ATTEMPTING, RLOCK__HOLDING, RLOCK__RELEASING, RLOCK__PHASES };

/* Those who wait at one gate. */
typedef struct rlock__waiters {
    rlock_link list; /* claims, first come first */
    struct rlock__gate *gate;
    struct rlock__claim *attempting; /* of a mutex: the one whose acquire is with the store */
    uint8_t polls;                   /* attempts since the last wake-up: exponent of the back-off */
    bool dirty;                      /* woken during an attempt: its answer may be stale */
    bool taken;                      /* a holder was known since the first waiter began to wait */
    bool yields;                     /* the next attempt is put off: other clients come first */
    rlock_timer timer;               /* the next attempt, if nothing wakes the gate before */
} rlock__waiters;

typedef enum rlock__life {
    RLOCK__LIVE,
    RLOCK__DRAINING, /* nothing is acquired any more; then it is being shut down */
    RLOCK__ENDING,   /* it is being shut down */
    RLOCK__ENDED,    /* that has ended, or nobody is told of it any more */
    RLOCK__CLOSED    /* freed, or shut down: only its memory waits, for the entry's end, the handles
                      and, after a shutdown, for rlock_client_free */
} rlock__life;

struct rlock_client { /* small members first: they are reached with less code */
    bool unsent;      /* something was submitted and not flushed */
    bool up;
    bool warned;  /* in a forked child: it was logged that it is one */
    bool refused; /* a renewal was refused, which was logged, and none has succeeded since */
    bool idle;    /* the loop was told that it is */
    bool shut;    /* its shutdown closed it: the user has it still, which is one of its frames */
    rlock__life life;
    unsigned depth;    /* calls and entries on the stack that are at work; ... */
    unsigned frames;   /* ... and those that a callback of the user stands on */
    unsigned pushing;  /* RLOCK_PUSH_... */
    rlock_fault fault; /* why it is not up ... */
    char *fault_text;  /* ... in the words of the store */
    rlock__secret *secrets;
    const rlock_store *store;
    const rlock_store *made; /* of config.url, and freed with the client; or NULL */
    void *store_state;
    void *loop_state;
    const volatile uint32_t *process; /* NULL: the pid has to be compared */
    uint32_t process_number;
    pid_t pid;
    int drift_permille, handovers;
    int32_t watchdog_lease_ms, lease_most_ms, command_timeout_ms, poll_ms;
    uint32_t handles;
    uint32_t tracked;   /* gates whose changes are told */
    uint32_t mixed;     /* so many things are wanted that are others' keys too: 0 = none */
    uint32_t iteration; /* how often timers were fired */
    uint32_t phases[RLOCK__PHASES];
    uint32_t plans;                   /* of what is built on handles: see rlock_client_plans */
    rlock__deliverer *const *deliver; /* [RLOCK__OF_...] */
    void (*log)(void *user, int level, const char *line);
    void *log_user;
    void (*on_event)(void *user, const struct rlock_report *report);
    void *event_user;
    uint32_t numbers;   /* of handles: how many were given out, for reports */
    int64_t now_us;     /* the clock of this entry */
    int64_t clock_us;   /* ... and of the last look at it */
    int64_t stepped_us; /* by how much it has stepped back */
    int64_t armed_us;   /* when the loop's timer fires; RLOCK__NEVER = stopped */
    uint64_t random;
    uint64_t tokens;      /* how many were given out */
    rlock_link ready;     /* to be delivered in a later turn */
    rlock_link batch;     /* being delivered */
    rlock_link questions; /* asked and not answered */
    rlock_link due;       /* see >>due */
    rlock_link *ring;     /* NULL until there are many claims */
    int64_t ring_tick;
    rlock_timer due_timer;
    rlock__heap timers;
    rlock__map gates;
    rlock__pool claims, waiters, flights, ops;
    rlock_loop loop;
    rlock_stats stats;

    rlock_timer shutdown_timer; /* the end of the drain, or of the shutdown */
    rlock__ready shutdown_ready, drain_ready;
    rlock_client_callback *shutdown_done, *drain_done; /* drain_: of one that was cut short */
    void *shutdown_user, *drain_user;
    char id[37];
};

static bool rlock__forked(const rlock_client *client) {
    return client->process ? *client->process != client->process_number : client->pid != getpid();
}

/* A fresh clock. One that steps back goes on from what it showed last: so a step costs no more than
 * the time between the two samples. */
int64_t rlock_client_clock_us(rlock_client *client) {
    int64_t now_us = client->loop.now_us ? client->loop.now_us(client->loop.ctx) : RLOCK_NOW_US();
    if (now_us + client->stepped_us < client->clock_us) {
        client->stepped_us = client->clock_us - now_us;
    }
    RLOCK_ASSERT(client->stepped_us >= 0);
    client->clock_us = now_us + client->stepped_us;
    return client->clock_us;
}

uint64_t rlock_client_random(rlock_client *client) { /* xorshift64: for jitter only */
    client->random ^= client->random << 13;
    client->random ^= client->random >> 7;
    client->random ^= client->random << 17;
    return client->random;
}

/* Writes a line that begins with the first digits of the client's id. */
void rlock_client_log(const rlock_client *client, int level, const char *what, const char *detail) {
    char line[RLOCK__LINE];
    size_t n;
    if (client->log) {
        memcpy(line, client->id, 8);
        n = rlock__line_foreign(client->secrets, line, 8, ": ", what);
        rlock__line_foreign(client->secrets, line, n, ": ", detail);
        client->log(client->log_user, level, line);
    }
}

/* True if a call is made in a forked child; the first one is logged. */
RLOCK__NOINLINE static bool rlock__call_forked(rlock_client *client) {
    bool forked = rlock__forked(client);
    if (forked && !client->warned && client->life != RLOCK__CLOSED) {
        client->warned = true;
        rlock_client_log(client, RLOCK_LOG_ERROR, "client used after fork()",
                         "create a new client in this process");
    }
    return forked;
}

/* True if work may go on after a call of the user's code: that may have freed the client, or
 * forked, and this is the child. */
static bool rlock__alive(const rlock_client *client) {
    return client->life != RLOCK__CLOSED && !rlock__forked(client);
}

static int64_t rlock__due_us(const rlock_client *client) {
    RLOCK_ASSERT(client->timers.count <= client->timers.reserved);
    if (client->unsent || !rlock__list_empty(&client->ready) ||
        !rlock__list_empty(&client->batch)) {
        return 0;
    }
    return client->timers.count ? client->timers.items[1]->due_us : RLOCK__NEVER;
}

/* Makes the loop's timer fire when the next thing is due. An earlier alarm stays, harmlessly. A
 * child of fork() leaves the loop alone: no caller is one. */
static void rlock__arm(rlock_client *client) {
    int64_t due_us, delay_us;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    if (!client->armed_us) {
        return; /* as in every call from a callback but the first */
    }
    due_us = rlock__due_us(client);
    if (due_us >= client->armed_us) {
        return;
    }
    RLOCK_ASSERT(due_us >= 0);
    client->armed_us = due_us;
    delay_us = due_us ? due_us - rlock_client_clock_us(client) : 0;
    client->loop.set_timer(client->loop_state, delay_us > 0 ? delay_us : 0);
}

/* Tells the loop when the client has nothing more to do than to keep its connections, and when it
 * has again: the one place that says what idle means. */
static void rlock__rest(rlock_client *client) {
    bool idle = !client->phases[RLOCK__ATTEMPTING] && !client->phases[RLOCK__HOLDING] &&
                !client->phases[RLOCK__RELEASING] && !client->stats.cleaning && !client->plans &&
                rlock__list_empty(&client->questions) && rlock__list_empty(&client->ready) &&
                rlock__list_empty(&client->batch);
    if (idle != client->idle) {
        client->idle = idle;
        client->loop.idle(client->loop_state, idle);
    }
}

static void rlock__enter(rlock_client *client) {
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->now_us = rlock_client_clock_us(client);
    client->depth++;
}

static void rlock__client_destroy(rlock_client *client) {
    if (client->depth || client->handles) {
        return;
    }
    RLOCK_ASSERT(!client->gates.count && rlock__list_empty(&client->questions));
    rlock__dealloc(client->gates.buckets);
    RLOCK_ASSERT(!client->claims.count && !client->waiters.count && !client->ops.count &&
                 !client->flights.count);
    rlock__dealloc(client->timers.items);
    rlock__dealloc(client->ring);
    rlock__dealloc(client->fault_text);
    while (client->secrets) {
        rlock__secret *secret = client->secrets;
        client->secrets = secret->next;
        rlock__dealloc(secret);
    }
    client->gates.buckets = NULL;
    client->timers.items = NULL;
    client->ring = NULL;
    client->fault_text = NULL;
    if (!client->frames) { /* else the last of them frees it */
        rlock__dealloc(client);
    }
}

static void rlock__leave(rlock_client *client) {
    RLOCK_ASSERT(client->depth);
    if (client->depth == 1 && rlock__alive(client)) { /* a child leaves the loop alone */
        if (client->loop.idle) {
            rlock__rest(client);
        }
        rlock__arm(client);
    }
    client->depth--;
    if (client->life == RLOCK__CLOSED) {
        rlock__client_destroy(client); /* if nothing refers to it any more */
    }
}

/* Begins a dispatch, and fires what is due: before replies are read, so that expiry is settled
 * first. What becomes due in here waits for the next loop iteration, and keeps nothing else
 * waiting. False: no work may go on. */
static bool rlock__settle(rlock_client *client) {
    uint32_t iteration = ++client->iteration;
    rlock__enter(client);
    while (client->timers.count && client->timers.items[1]->due_us <= client->now_us &&
           client->timers.items[1]->iteration != iteration) {
        rlock_timer *timer = client->timers.items[1];
        rlock__heap_stop(&client->timers, timer);
        RLOCK_ASSERT(!timer->index && timer->fire);
        timer->fire(timer);
        if (!rlock__alive(client)) {
            return false;
        }
    }
    return true;
}

/* A frame on the stack that callbacks are called from. It ends also when one of them does not come
 * back, by an exception: in C++, and in C that is compiled with -fexceptions. */
typedef struct rlock__frame {
    rlock_client *client;
    char *words; /* of the event that is told just now */
} rlock__frame;

#ifdef __GNUC__
#define RLOCK__ENDS_BY(end) __attribute__((cleanup(end)))
#else
#define RLOCK__ENDS_BY(end)
#endif

static void rlock__frame_end(rlock__frame *frame) {
    rlock_client *client = frame->client;
    if (client) {
        frame->client = NULL;
        RLOCK_ASSERT(client->frames);
        rlock__dealloc(frame->words);
        client->frames--;
        if (client->life == RLOCK__CLOSED) {
            rlock__client_destroy(client);
        }
    }
}

/* Delivers the batch, from inside an entry, which it leaves. While a callback runs nothing is half
 * done, and the timer is armed for what remains: it may run the loop, which then goes on with the
 * batch, or never come back. False: nothing more may be done, the client may be gone. */
static bool rlock__deliver(rlock_client *client) {
    RLOCK__ENDS_BY(rlock__frame_end) rlock__frame frame = {client, NULL};
    bool alive = true;
    RLOCK_ASSERT(client->depth);
    client->depth--;
    client->frames++;
    while (alive && !rlock__list_empty(&client->batch)) {
        rlock__ready *ready = RLOCK__OF(client->batch.next, rlock__ready, link);
        rlock__list_remove(&ready->link);
        client->depth++;
        client->deliver[ready->of](ready, &frame.words);
        rlock__dealloc(frame.words);
        frame.words = NULL;
        alive = rlock__alive(client);
    }
    rlock__frame_end(&frame);
    return alive;
}

/* Ends a dispatch: delivers what is ready now, then writes once. What the callbacks add waits for
 * the next loop iteration. */
static void rlock__finish(rlock_client *client) {
    RLOCK_ASSERT(client->depth);
    if (!rlock__alive(client)) {
        rlock__leave(client);
        return;
    }
    rlock__list_move(&client->batch, &client->ready);
    if (!rlock__list_empty(&client->batch)) {
        if (!rlock__deliver(client)) {
            return;
        }
        client->depth++;
    }
    client->unsent = false;
    client->store->flush(client->store_state);
    if (!client->armed_us && rlock__due_us(client)) {
        client->armed_us = RLOCK__NEVER; /* it was for the callbacks, and would cost a turn */
    }
    rlock__leave(client);
}

void rlock_on_io(rlock_io *io, unsigned events) {
    rlock_client *client = io->client;
    if (!client || !rlock__alive(client)) {
        return;
    }
    if (rlock__settle(client) && io->watched) {
        io->ready(io, events);
        rlock__finish(client);
    } else {
        rlock__leave(client);
    }
}

void rlock_on_timer(rlock_client *client) {
    if (!rlock__alive(client)) {
        return;
    }
    client->armed_us = RLOCK__NEVER;
    rlock__settle(client);
    rlock__finish(client);
}

void rlock_on_resolved_all(rlock_name *name, const struct sockaddr *const *addresses,
                           unsigned count) {
    rlock_client *client = name->client;
    if (!client || !rlock__alive(client)) {
        return;
    }
    if (rlock__settle(client)) {
        name->resolved(name, addresses, count);
    }
    rlock__finish(client);
}

void rlock_on_resolved(rlock_name *name, const struct sockaddr *address) {
    rlock_on_resolved_all(name, &address, address ? 1 : 0);
}

int64_t rlock_client_now_us(const rlock_client *client) {
    return client->now_us;
}

const char *rlock_client_id(const rlock_client *client) {
    return client->id;
}

int rlock_client_hide(rlock_client *client, const char *secret) {
    size_t size = rlock__length(secret) + 1;
    rlock__secret *one = client->secrets;
    while (one && size > 1 && strcmp(one->text, secret) != 0) {
        one = one->next;
    }
    if (size == 1 || one) {
        return RLOCK_OK;
    }
    one = (rlock__secret *)RLOCK_MALLOC(sizeof *one + size);
    if (!one) {
        return RLOCK_ERR_NOMEM;
    }
    memcpy(one + 1, secret, size);
    one->text = (const char *)(one + 1);
    one->next = client->secrets;
#if RLOCK__HAS_CREDENTIALS
    one->passing = 0;
#endif
    client->secrets = one;
    return RLOCK_OK;
}

#if RLOCK__HAS_CREDENTIALS

/* Hides a password that another one may replace, and of those that it replaces only the last ones:
 * a client that lives for years gets one every few minutes. */
static int rlock__hide_passing(rlock_client *client, bool sentinels, const char *secret) {
    rlock__secret *first = client->secrets, **at = &client->secrets, *one;
    uint8_t kind = sentinels ? 2 : 1;
    unsigned passed = 0;
    int status = rlock_client_hide(client, secret);
    if (client->secrets != first) {
        client->secrets->passing = kind;
    }
    while (secret && (one = *at) != NULL) {
        bool same = strcmp(one->text, secret) == 0;
        bool former = !same && (one->passing & kind);
        passed += former ? 1u : 0u;
        if (former && passed > RLOCK__SECRETS_KEPT) {
            one->passing &= (uint8_t)~kind;
        } else if (same && one->passing) {
            one->passing |= kind;
        }
        if (former && !one->passing) {
            *at = one->next;
            rlock__dealloc(one);
        } else if (same && one->passing && one != client->secrets) { /* it is the latest again */
            *at = one->next;
            one->next = client->secrets;
            client->secrets = one;
        } else {
            at = &one->next;
        }
    }
    return status;
}

#endif /* RLOCK__HAS_CREDENTIALS */

bool rlock_client_forked(const rlock_client *client) {
    return rlock__forked(client);
}

rlock_stats *rlock_client_counters(rlock_client *client) {
    return &client->stats;
}

int rlock_timer_add(rlock_client *client, rlock_timer *timer, void (*fire)(rlock_timer *timer)) {
    RLOCK_ASSERT(fire);
    timer->index = 0;
    timer->iteration = 0;
    timer->fire = fire;
    return rlock__heap_reserve(&client->timers) ? RLOCK_OK : RLOCK_ERR_NOMEM;
}

void rlock_timer_set(rlock_client *client, rlock_timer *timer, int64_t due_us) {
    RLOCK_ASSERT(timer->fire);
    if (due_us < 0) {
        rlock__heap_stop(&client->timers, timer);
        return;
    }
    timer->iteration = client->iteration;
    rlock__heap_set(&client->timers, timer, due_us < client->now_us ? client->now_us : due_us);
    if (!client->depth && rlock__alive(client)) {
        rlock__arm(client); /* set from another client's entry */
    }
}

void rlock_timer_drop(rlock_client *client, rlock_timer *timer) {
    RLOCK_ASSERT(client->timers.reserved);
    rlock__heap_stop(&client->timers, timer);
    RLOCK_ASSERT(!timer->index);
    rlock__heap_unreserve(&client->timers);
}

void rlock_client_plans(rlock_client *client, bool more) {
    RLOCK_ASSERT(more || client->plans);
    client->plans += more ? 1 : UINT32_MAX;
    if (!client->depth && rlock__alive(client)) {
        rlock__enter(client);
        rlock__leave(client);
    }
}

int rlock_io_watch(rlock_client *client, rlock_io *io, int fd, unsigned events) {
    int result = 0;
    io->client = client;
    if (events != io->watched && !rlock__forked(client)) {
        io->watched = events;
        result = client->loop.watch(client->loop_state, io, fd, events);
        if (!events) {
            io->data = NULL;
        }
    }
    return result;
}

int rlock_name_resolve(rlock_client *client, rlock_name *name, const char *host) {
    RLOCK_ASSERT(name->resolved);
    name->client = client;
    return client->loop.resolve && !rlock__forked(client)
               ? client->loop.resolve(client->loop_state, name, host)
               : -1;
}

#endif /* RLOCK_RUNTIME_CLIENT_H */
