/* ------------------------------------------------------------------------------------------------
 * >>claim - one token at the store, its gate and its handle: what they consist of
 */

#ifndef RLOCK_LOCK_CLAIM_H
#define RLOCK_LOCK_CLAIM_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/lock.h"
#include "base/platform.h"
#include "base/foreign.h"
#include "base/list.h"
#include "base/map.h"
#include "base/pool.h"
#include "runtime/client.h"
#include "runtime/token.h"
#include "lock/deadline.h"

/* The columns of FAULT x OPERATION. */
enum { RLOCK__IN_WAIT, RLOCK__IN_ATTEMPT, RLOCK__IN_RENEW, RLOCK__IN_WATCHDOG, RLOCK__IN_RELEASE };
#define RLOCK__RETRY 1

static const int8_t rlock__on_fault[7][5] = {
    /* [rlock_fault][column]: the end, or RLOCK__RETRY */
    {RLOCK__RETRY, RLOCK_ERR_CONN, RLOCK_ERR_CONN, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK__RETRY, RLOCK_ERR_UNKNOWN, RLOCK_ERR_UNKNOWN, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK__RETRY, RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK_ERR_AUTH, RLOCK_ERR_AUTH, RLOCK_ERR_AUTH, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK_ERR_WRONG_TYPE, RLOCK_ERR_WRONG_TYPE, RLOCK_ERR_LOST, RLOCK_ERR_LOST,
     RLOCK_ERR_NOT_HELD},
    {RLOCK_ERR_NOMEM, RLOCK_ERR_NOMEM, RLOCK_ERR_NOMEM, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RLOCK__RETRY, RLOCK__RETRY}};

/* The rows of STATE x CALL. */
typedef enum rlock__state {
    RLOCK__IDLE_STATE,
    RLOCK__WAITING_STATE,
    RLOCK__HELD_STATE,
    RLOCK__LOST_STATE,
    RLOCK__RELEASING_STATE,
    RLOCK__FOLLOWED_STATE, /* releasing, and an acquire follows the release */
    RLOCK__CLOSED_STATE
} rlock__state;

/* One client's handles of a key, or of a set of keys: the waiters in their order, while there are
 * any; the holders, and the claims that are let go. */
typedef struct rlock__gate {
    rlock_client *client;
    rlock__waiters *waiters;  /* NULL: nobody waits */
    rlock_link claims;        /* those that hold it, of which a writer is the first, or let it go */
    struct rlock__kind *kind; /* NULL: a mutex with one key */
    uint32_t references;      /* handles, questions, and who is at work on it */
    uint8_t pushing;          /* RLOCK_PUSH_...: what is pushed of its keys */
    bool tracked;
    rlock__item item; /* of the first key. Behind it the bytes of each key, and a NUL */
} rlock__gate;

/* What a gate has if it is not for a mutex with one key. Owners and weights belong to the handles:
 * they share one queue, as at the server. */
typedef struct rlock__kind {
    char letter;        /* see rlock__letter */
    uint32_t permits;   /* see rlock_terms */
    uint32_t count;     /* how many keys */
    uint32_t *lens;     /* `count` lengths: see rlock_terms */
    rlock__item *items; /* `count - 1`: of the other keys */
} rlock__kind;

static rlock__gate *rlock__gate_at(const rlock__item *item) {
    return (rlock__gate *)item->thing;
}

/* What a claim has only while a request of it is with the store. */
typedef struct rlock__flight {
    rlock_request request;
    struct rlock__claim *claim;
} rlock__flight;

/* So many flights are kept for the claims, one each and one more, which an answer needs until it
 * was dealt with; and so many of what waiters need. Above that, memory is asked for when they are
 * needed. */
#ifndef RLOCK__FLIGHTS
#define RLOCK__FLIGHTS 1024
#endif

/* One token's life at the server, from acquire until it is surely gone: what it is there, and
 * nothing of what its handle was asked for. A local hand-over gives it to another handle. It is an
 * orphan, which is still to be cleaned up, if its handle has another claim or none: a handle that
 * was freed stays for its orphans. */
typedef struct rlock__claim {
    rlock_link link; /* among the gate's waiters, or in its claims */
    rlock_link due;  /* among those of its client, while it has something to do at a time */
    rlock *lock;     /* for which it was made, or to which it was handed over */
    rlock__flight *in_flight; /* with the store, or NULL */
    uint16_t handovers;       /* how many local hand-overs may follow */
    unsigned phase : 4;       /* RLOCK__ATTEMPTING to RLOCK__RELEASING */
    bool cut : 1;             /* a renewal may come late, and cut a longer lease to longest_ms */
    bool yields : 1;          /* after local hand-overs: when let go, other clients come first */
    bool ours : 1;            /* granted, and the next waiter at the server was of this client */
    bool counted : 1;         /* as acquired, and not as lost */
    bool may_exist : 1;       /* the token may be at the server */
    bool registered : 1;      /* the store watches the key for this hold */
    bool retry : 1;      /* woken or notified during a request, or an attempt failed: once more */
    bool faulted : 1;    /* there was no connection since the hold was granted or renewed */
    bool joined : 1;     /* let go before it was granted: it may be in the queue at the server */
    bool stays : 1;      /* let go, but the key is to stay ours until check_us: a last renewal */
    bool adopted : 1;    /* another client's token: see rlock__adopted */
    int32_t longest_ms;  /* of all leases asked for: the token may be there for that long */
    uint32_t note;       /* the store's, of the last request */
    uint32_t granted_us; /* when the acquire was sent that the server granted: the lower bits */
    uint64_t token;      /* see rlock_request */
    int64_t until_us; /* the end of the wait; of a hold, and of its release, the local deadline */
    int64_t next_us;  /* of a hold the next renewal; of a clean-up the next attempt */
    int64_t check_us; /* of a hold the next check, without a renewal; of one that stays its end */
    int64_t over_us;  /* of a clean-up its end, 0 = not known yet */
    uint64_t fence;
} rlock__claim;

/* A claim of a token that another client made. While it is ATTEMPTING it stands in the gate's
 * claims, among no waiters: it asks by a renewal, which takes no key that is free. */
typedef struct rlock__adopted {
    rlock__claim claim;
    char id[RLOCK__TOKEN_HEAD]; /* of that client, with a NUL */
} rlock__adopted;

/* An operation next to the claim's own: a renewal by hand, a nested acquire or release, an acquire
 * that follows the release. Without an event it is a spare: see rlock.ops. */
typedef struct rlock__op {
    rlock__ready ready;
    bool waits; /* it needs the store, and has not ended */
    bool sent;
    bool watchdog;          /* the hold has one once this has succeeded */
    bool follows;           /* an acquire that begins when the release of the handle has ended */
    bool once;              /* of that: wait_ms was 0 */
    struct rlock__op *next; /* of the same handle */
    rlock *lock;
    rlock_callback *done;
    void *user;
    char *text;
    int64_t lease_ms;
    int64_t until_us; /* of an acquire that follows: the end of its wait */
} rlock__op;

/* What few handles have. */
typedef struct rlock__more {
    rlock_terms terms;         /* if it is no mutex with one key */
    int64_t hold_ms;           /* max_hold_ms of the options, 0 = none; ... */
    int64_t until_us;          /* ... of the present hold: no deadline is later */
    int32_t watchdog_lease_ms; /* of the options, 0 = the client's */
    bool refused;              /* a renewal of the present hold was, and was logged */
    rlock_deadline *deadline;  /* of the options */
    char *text;                /* the server's words for the event */
} rlock__more;

/* A handle: what it was asked for, and the event that ends this. Its state follows from the event,
 * and without one from its claim: see rlock__state_of. */
struct rlock {
    rlock__ready ready; /* the event is to be delivered */
    int32_t lease_ms;
    uint32_t references : 26; /* the user's, until it is freed, and its claims' */
    uint32_t watchdog : 2;    /* RLOCK_WATCHDOG_... */
    bool renews : 1;          /* the hold has a watchdog */
    bool once : 1;            /* wait_ms was 0 */
    bool fencing : 1, reentrant : 1;
    rlock__gate *gate;
    rlock__claim *claim; /* NULL: it is idle, or the event below ends it */
    rlock__op *ops;      /* accepted and not ended; and a spare for each nested release to come */
    rlock__more *more;   /* NULL: it has nothing of that */
    rlock_callback *on_lost, *done; /* done: of the acquire or the release under way */
    void *lost_user, *user;
    int64_t wait_until_us; /* of the acquire; of a hold: when it was granted, as its event said */
    uint64_t lost_fence;   /* of the hold that ended: of the event */
};

/* Returns the handle that waits for this claim, holds or releases it; NULL: it is an orphan. */
static rlock *rlock__handle_of(const rlock__claim *claim) {
    return claim->lock->claim == claim ? claim->lock : NULL;
}

/* Returns the id of the client that made the token; NULL: this one did. */
static const char *rlock__claim_id(const rlock__claim *claim) {
    return RLOCK__HAS_TOKENS && claim->adopted ? ((const rlock__adopted *)(const void *)claim)->id
                                               : NULL;
}

/* True if the claim asks for a hold that another client has given away. */
static bool rlock__adopting(const rlock__claim *claim) {
    return RLOCK__HAS_TOKENS && claim->adopted && claim->phase == RLOCK__ATTEMPTING;
}

/* NULL: a mutex with one key. */
static const rlock_terms *rlock__terms_of(const rlock *lock) {
    RLOCK_ASSERT(!lock->gate->kind || lock->more);
    return RLOCK__HAS_KINDS && lock->gate->kind ? &lock->more->terms : NULL;
}

/* What a handle is about to tell goes before what its claim is about to do. */
RLOCK__NOINLINE static rlock__state rlock__state_of(const rlock *lock) {
    static const uint8_t by_event[] = {/* [rlock_event_kind] */
                                       RLOCK__IDLE_STATE, RLOCK__WAITING_STATE, RLOCK__IDLE_STATE,
                                       RLOCK__RELEASING_STATE, RLOCK__LOST_STATE};
    static const uint8_t by_phase[] = {/* [phase] */
                                       RLOCK__WAITING_STATE, RLOCK__HELD_STATE,
                                       RLOCK__RELEASING_STATE};
    RLOCK_ASSERT(lock->ready.event < sizeof by_event);
    RLOCK_ASSERT(!lock->claim || lock->claim->lock == lock);
    RLOCK_ASSERT(!lock->claim || lock->claim->phase < RLOCK__PHASES);
    return (rlock__state)(lock->ready.event || !lock->claim ? by_event[lock->ready.event]
                                                            : by_phase[lock->claim->phase]);
}

RLOCK__NOINLINE static int64_t rlock__add_ms(int64_t us, int64_t ms) {
    RLOCK_ASSERT(ms >= 0);
    return ms > (RLOCK__NEVER - us) / 1000 ? RLOCK__NEVER : us + ms * 1000;
}

/* Returns the operation of the handle that needs the store, or NULL: there is one at most. */
static rlock__op *rlock__renewal(const rlock *lock) {
    rlock__op *op = lock->ops;
    while (op && !op->waits) {
        op = op->next;
    }
    RLOCK_ASSERT(!op || (op->ready.event && !op->follows));
    return op;
}

/* Returns the acquire that begins when the release of the handle has ended, or NULL. */
static rlock__op *rlock__following(const rlock *lock) {
    rlock__op *op = lock->ops;
    while (op && !op->follows) {
        op = op->next;
    }
    RLOCK_ASSERT(!op || (op->ready.event == RLOCK_ACQUIRED && !op->waits));
    return op;
}

/* Returns an operation of that kind, or with 0 a spare; NULL: there is none. */
static rlock__op *rlock__op_of(const rlock *lock, int kind) {
    rlock__op *op = lock->ops;
    while (op && op->ready.event != kind) {
        op = op->next;
    }
    return op;
}

/* Returns the local deadline of a lease that was asked for at sent_us. */
static int64_t rlock__lease_end(const rlock_client *client, int64_t sent_us, int64_t lease_ms) {
    int64_t drift_us = lease_ms * client->drift_permille;
    RLOCK_ASSERT(lease_ms >= 0 && lease_ms <= RLOCK_LEASE_MAX_MS);
    RLOCK_ASSERT(client->drift_permille > 0 && client->drift_permille <= 500);
    return sent_us + lease_ms * 1000 - drift_us - 2000;
}

/* Returns the local deadline of a hold with such a lease: max_hold_ms may end it before. */
static int64_t rlock__deadline(const rlock__claim *claim, int64_t sent_us, int64_t lease_ms) {
    int64_t end_us = rlock__lease_end(claim->lock->gate->client, sent_us, lease_ms);
    const rlock__more *more = claim->lock->more;
    return more && more->hold_ms ? rlock__min(end_us, more->until_us) : end_us;
}

/* Returns the lease that the store gave: at most the one that it was asked for. */
static int64_t rlock__given_ms(const rlock_request *request, const rlock_answer *answer) {
    RLOCK_ASSERT(request->lease_ms >= 0 && request->lease_ms <= RLOCK_LEASE_MAX_MS);
    return answer->lease_ms > 0 ? rlock__min(answer->lease_ms, request->lease_ms)
                                : request->lease_ms;
}

/* Notes the lease that the hold has now: the watchdog follows it, and asks for as much again. */
RLOCK__NOINLINE static void rlock__claim_lease(rlock__claim *claim, int64_t lease_ms) {
    RLOCK_ASSERT(claim->phase <= RLOCK__HOLDING && lease_ms <= RLOCK_LEASE_MAX_MS);
    lease_ms = lease_ms < RLOCK_LEASE_MIN_MS ? RLOCK_LEASE_MIN_MS : lease_ms;
    claim->lock->lease_ms = (int32_t)rlock__min(claim->lock->lease_ms, lease_ms);
    RLOCK_ASSERT(claim->lock->lease_ms >= RLOCK_LEASE_MIN_MS);
}

/* Returns when the lease of a hold was asked for, by its deadline: or before, if something else
 * than the lease has brought the deadline forward. */
static int64_t rlock__since(const rlock__claim *held) {
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && rlock__handle_of(held));
    return held->until_us - rlock__lease_end(held->lock->gate->client, 0, held->lock->lease_ms);
}

/* Returns why a request has not left: the words of the store, or what stands before it. */
RLOCK__NOINLINE static const char *rlock__unsent_text(const rlock_client *client) {
    return client->up ? "an earlier request has not been answered yet" : client->fault_text;
}

/* Keeps foreign words, or with NULL none, for an event or a question. */
static void rlock__set_text(const rlock_client *client, char **text, const char *words) {
    char line[RLOCK__LINE];
    size_t len = rlock__line_foreign(client->secrets, line, 0, "", words);
    RLOCK_ASSERT(len < RLOCK__LINE);
    rlock__dealloc(*text);
    *text = rlock__copy(words ? line : NULL, len);
}

/* Keeps the server's words for the event to come, or with NULL none. Without memory: none. */
static void rlock__lock_text(rlock *lock, const char *words) {
    if (words && !lock->more) {
        lock->more = (rlock__more *)rlock__alloc(sizeof *lock->more);
    }
    if (lock->more) {
        rlock__set_text(lock->gate->client, &lock->more->text, words);
    }
}

/* Keeps the words of a renewal that failed, for the event of the loss. */
static void rlock__hold_fault(rlock__claim *held, const char *words) {
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && rlock__handle_of(held));
    if (words && !held->lock->ready.event) { /* else its grant was not told yet */
        rlock__lock_text(held->lock, words);
        held->faulted = false; /* that was before */
    }
}

static bool rlock__queued(const rlock__gate *gate) {
    return RLOCK__HAS_KINDS && gate->kind && gate->kind->letter != 'm';
}

static bool rlock__is_kind(const rlock__claim *claim, rlock_kind kind) {
    const rlock_terms *terms = rlock__terms_of(claim->lock);
    return RLOCK__HAS_KINDS && terms && terms->kind == kind;
}

/* True if others may hold next to it. Of a semaphore also with one permit: that may change. */
static bool rlock__shared(const rlock__claim *claim) {
    const rlock_terms *terms = rlock__terms_of(claim->lock);
    return terms && (terms->kind == RLOCK_KIND_READ || terms->kind == RLOCK_KIND_SEMAPHORE);
}

/* Returns the item of the i-th key, or NULL: there is none. */
static rlock__item *rlock__gate_key(rlock__gate *gate, uint32_t i) {
    RLOCK_ASSERT(!gate->kind || gate->kind->count);
    if (i == 0) {
        return &gate->item;
    }
    return RLOCK__HAS_KINDS && gate->kind && i < gate->kind->count ? &gate->kind->items[i - 1]
                                                                   : NULL;
}

/* Returns the next claim of the gate in that phase, HOLDING, RELEASING, or ATTEMPTING to adopt; the
 * first after NULL. */
static rlock__claim *rlock__claim_next(const rlock__gate *gate, const rlock__claim *claim,
                                       int phase) {
    const rlock_link *at = claim ? claim->link.next : gate->claims.next;
    RLOCK_ASSERT(RLOCK__HAS_TOKENS || phase != RLOCK__ATTEMPTING);
    RLOCK_ASSERT(!claim || claim->phase != RLOCK__ATTEMPTING || rlock__adopting(claim));
    RLOCK_ASSERT(!claim || claim->lock->gate == gate);
    while (at != &gate->claims && RLOCK__OF(at, rlock__claim, link)->phase != phase) {
        at = at->next;
    }
    return at == &gate->claims ? NULL : RLOCK__OF(at, rlock__claim, link);
}

/* Returns the first holder of this client, or NULL. */
static rlock__claim *rlock__holder(const rlock__gate *gate) {
    return rlock__claim_next(gate, NULL, RLOCK__HOLDING);
}

/* Returns the first waiter, or NULL: without one there are no rlock__waiters. */
static rlock__claim *rlock__waiter(const rlock__gate *gate) {
    RLOCK_ASSERT(!gate->waiters || gate->waiters->list.next != &gate->waiters->list);
    return gate->waiters ? RLOCK__OF(gate->waiters->list.next, rlock__claim, link) : NULL;
}

/* Returns the waiter behind this one, or NULL. */
static rlock__claim *rlock__waiter_next(const rlock__claim *claim) {
    rlock_link *next = claim->link.next;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(claim->lock->gate->waiters);
    return next == &claim->lock->gate->waiters->list ? NULL : RLOCK__OF(next, rlock__claim, link);
}

static void rlock__request_init(rlock_request *request, const rlock__gate *gate,
                                const rlock_terms *terms) {
    RLOCK_ASSERT(gate->item.key_len);
    RLOCK_ASSERT(gate->item.key_len <= RLOCK_KEY_MAX);
    RLOCK_ASSERT(!terms == !gate->kind);
    request->key = gate->item.key;
    request->key_len = gate->item.key_len;
    request->terms = terms;
}

/* Begins a shutdown, or the end of a drain. */
static void rlock__shutdown_begin(rlock_client *client, int64_t timeout_ms) {
    RLOCK_ASSERT(client->life <= RLOCK__DRAINING);
    client->life = RLOCK__ENDING;
    rlock_timer_set(
        client, &client->shutdown_timer,
        rlock__add_ms(client->now_us, timeout_ms ? timeout_ms : client->command_timeout_ms));
}

/* Ends a drain if nothing is held, and a shutdown if nothing is left to be done, or if its time is
 * over (status is an error). */
static void rlock__shutdown_end(rlock_client *client, int status) {
    bool held = client->phases[RLOCK__ATTEMPTING] || client->phases[RLOCK__HOLDING];
    bool busy = held || client->phases[RLOCK__RELEASING] || !rlock__list_empty(&client->questions);
    RLOCK_ASSERT(status <= RLOCK_OK);
    if (client->life == RLOCK__DRAINING && !held) {
        rlock__shutdown_begin(client, 0);
    }
    if (client->life == RLOCK__ENDING && (!busy || status != RLOCK_OK)) {
        client->life = RLOCK__ENDED;
        client->shutdown_ready.status = (int8_t)status;
        RLOCK_ASSERT(rlock__list_empty(&client->shutdown_ready.link));
        /* Behind the events of its holds. */
        rlock__list_append(&client->ready, &client->shutdown_ready.link);
    }
}

RLOCK__NOINLINE static uint32_t rlock__flights_for(uint32_t claims) {
    return claims < RLOCK__FLIGHTS ? claims + (claims > 0) : RLOCK__FLIGHTS;
}

/* After the number of handles has changed: for each as much is kept as one operation needs. */
static void rlock__pools_limit(rlock_client *client) {
    uint32_t handles = client->life == RLOCK__CLOSED ? 0 : client->handles;
    rlock__pool_limit(&client->claims, handles);
    rlock__pool_limit(&client->ops, handles);
    rlock__pool_limit(&client->waiters, rlock__flights_for(handles));
    rlock__pool_limit(&client->flights, rlock__flights_for(handles));
}

/* Takes a claim out of its lists, and what waiters need away from a gate at which none is left. */
static void rlock__claim_unlink(rlock__claim *claim) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    rlock__list_remove(&claim->link);
    rlock__list_remove(&claim->due);
    if (gate->waiters && rlock__list_empty(&gate->waiters->list)) {
        RLOCK_ASSERT(!gate->waiters->attempting);
        rlock_timer_drop(client, &gate->waiters->timer);
        rlock__pool_put(&client->waiters, gate->waiters);
        gate->waiters = NULL;
    }
}

static void rlock__claim_phase(rlock__claim *claim, int phase) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    RLOCK_ASSERT(client->phases[claim->phase]);
    RLOCK_ASSERT(phase >= 0 && phase < RLOCK__PHASES);
    RLOCK_ASSERT(claim->phase != RLOCK__RELEASING && claim->phase != (unsigned)phase);
    RLOCK_ASSERT(!claim->in_flight);
    client->phases[claim->phase]--;
    client->phases[phase]++;
    claim->phase = (unsigned)phase & 15u;
    rlock__claim_unlink(claim);
    if (phase != RLOCK__ATTEMPTING) { /* a writer first: nobody looks for one among many readers */
        bool writer = phase == RLOCK__HOLDING && rlock__is_kind(claim, RLOCK_KIND_WRITE);
        rlock__list_append(writer ? gate->claims.next : &gate->claims, &claim->link);
    }
}

/* Shows other threads until when the handle holds, by a clock that did not step; 0 = it does not.
 */
static void rlock__lock_show(const rlock *lock, int64_t until_us) {
    RLOCK_ASSERT(until_us >= 0);
    if (lock->more && lock->more->deadline) {
        const rlock_client *client = lock->gate->client;
        rlock__deadline_set(lock->more->deadline, until_us ? until_us - client->stepped_us : 0,
                            client->clock_us - client->stepped_us);
    }
}

/* Makes an orphan of a claim. */
static void rlock__claim_orphan(rlock__claim *claim) {
    RLOCK_ASSERT(rlock__handle_of(claim));
    rlock__lock_show(claim->lock, 0);
    claim->lock->claim = NULL;
}

/* Owes the handle an event; one that was owed is replaced. */
RLOCK__NOINLINE static void rlock__lock_event(rlock *lock, rlock_event_kind kind, int status,
                                              rlock_reason reason) {
    RLOCK_ASSERT(kind == RLOCK_ACQUIRED || kind == RLOCK_RELEASED || kind == RLOCK_LOST);
    RLOCK_ASSERT(status <= RLOCK_OK);
    RLOCK_ASSERT((kind == RLOCK_ACQUIRED && status == RLOCK_OK) == (lock->claim != NULL));
    lock->ready.event = (uint8_t)kind;
    lock->ready.status = (int8_t)status;
    lock->ready.reason = (uint8_t)reason;
    rlock__list_remove(&lock->ready.link);
    rlock__list_append(&lock->gate->client->ready, &lock->ready.link);
}

/* Ends what the handle wants of this claim, if it has one: it is owed an event. */
static void rlock__claim_part(rlock__claim *claim, rlock_event_kind kind, int status,
                              rlock_reason reason) {
    rlock *lock = rlock__handle_of(claim);
    RLOCK_ASSERT(kind != RLOCK_ACQUIRED || status != RLOCK_OK);
    if (lock) {
        lock->lost_fence = kind == RLOCK_ACQUIRED ? 0 : claim->fence;
        rlock__claim_orphan(claim);
        rlock__lock_event(lock, kind, status, reason);
    }
}

/* Returns a request of a claim that has none, to be submitted; NULL: no memory. */
static rlock_request *rlock__claim_request(rlock__claim *claim, rlock_op op, int64_t lease_ms,
                                           int64_t due_us) {
    rlock_client *client = claim->lock->gate->client;
    rlock__flight *flight = (rlock__flight *)rlock__pool_take(&client->flights, sizeof *flight);
    RLOCK_ASSERT(!claim->in_flight);
    RLOCK_ASSERT(lease_ms >= 0 && (lease_ms || op != RLOCK_OP_ACQUIRE));
    RLOCK_ASSERT((op == RLOCK_OP_ACQUIRE) ==
                 (claim->phase == RLOCK__ATTEMPTING && !claim->adopted));
    RLOCK_ASSERT((op == RLOCK_OP_RELEASE) == (claim->phase == RLOCK__RELEASING && !claim->stays));
    RLOCK_ASSERT(claim->token && lease_ms <= RLOCK_LEASE_MAX_MS);
    RLOCK_ASSERT(due_us >= 0);
    if (!flight) {
        return NULL;
    }
    rlock__request_init(&flight->request, claim->lock->gate, rlock__terms_of(claim->lock));
    flight->claim = claim;
    flight->request.op = (uint8_t)op;
    flight->request.token = claim->token;
    flight->request.id = rlock__claim_id(claim);
    flight->request.store.note = claim->note;
    flight->request.lease_ms = lease_ms;
    flight->request.due_us = due_us;
    return &flight->request;
}

/* Returns to what a renewal may cut a lease. A hold that stays is cut to what it is to have. Of an
 * adopted one nobody here knows the longest lease that its token was asked for. */
static int64_t rlock__cut_ms(const rlock__claim *claim, const rlock_request *request) {
    if (RLOCK__HAS_TOKENS && claim->stays) {
        return request->lease_ms;
    }
    return RLOCK__HAS_TOKENS && claim->adopted ? 0 : claim->longest_ms;
}

static void rlock__claim_submit(rlock__claim *claim, rlock_request *request) {
    rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(!claim->in_flight && client->life != RLOCK__CLOSED);
    RLOCK_ASSERT(request->token == claim->token);
    RLOCK_ASSERT(request->token <= client->tokens || claim->adopted);
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE || claim->may_exist);
    if (request->lease_ms > claim->longest_ms) {
        claim->longest_ms = (int32_t)request->lease_ms;
    }
    request->longest_ms = request->op == RLOCK_OP_RENEW ? rlock__cut_ms(claim, request) : 0;
    claim->in_flight = RLOCK__OF(request, rlock__flight, request);
    client->unsent = true;
    client->store->submit(client->store_state, request);
}

/* Notes how long the lease of the holder runs; -1 = for ever. */
static void rlock__lock_left(rlock *lock, int64_t left_ms) {
    lock->ready.left_ms = (int32_t)rlock__min(left_ms, INT32_MAX);
}

/* Notes how an attempt ended and its words, for when the time is over. After an attempt that may
 * have been executed the note stays UNKNOWN, even if a later one was surely not executed; unless
 * that one `ends` the operation, which then ends with the words of its own status. */
static void rlock__lock_note(rlock *lock, rlock_fault fault, const char *text, bool ends) {
    RLOCK_ASSERT(fault >= RLOCK_FAULT_DOWN && fault <= RLOCK_FAULT_OTHER);
    if (ends || lock->ready.status != RLOCK_ERR_UNKNOWN) {
        lock->ready.status = (int8_t)rlock__on_fault[fault][RLOCK__IN_ATTEMPT];
        rlock__lock_text(lock, text);
    }
}

/* Withdraws the request from the store; an acquire that may have been sent may be executed. */
static void rlock__claim_recall(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    rlock__waiters *waiters = claim->lock->gate->waiters;
    rlock__flight *flight = claim->in_flight;
    if (waiters && waiters->attempting == claim) {
        waiters->attempting = NULL;
    }
    if (flight) {
        bool maybe = client->store->forget(client->store_state, &flight->request);
        RLOCK_ASSERT(flight->claim == claim);
        RLOCK_ASSERT(claim->may_exist || flight->request.op == RLOCK_OP_ACQUIRE);
        if (maybe) {
            claim->may_exist = true;
        }
        if (maybe && flight->request.op == RLOCK_OP_RENEW && flight->request.lease_ms) {
            claim->cut = true;
        }
        claim->note = flight->request.store.note;
        claim->in_flight = NULL;
        rlock__pool_put(&client->flights, flight);
    }
}

/* Ends an operation next to the claim's own. */
static void rlock__op_event(rlock__op *op, int status, const char *text) {
    rlock_client *client = op->lock->gate->client;
    RLOCK_ASSERT(rlock__list_empty(&op->ready.link));
    RLOCK_ASSERT(op->ready.event && !op->follows);
    RLOCK_ASSERT(status <= RLOCK_OK);
    op->waits = false;
    op->ready.status = (int8_t)status;
    rlock__set_text(client, &op->text, status == RLOCK_OK ? NULL : text);
    rlock__list_append(&client->ready, &op->ready.link);
}

#endif /* RLOCK_LOCK_CLAIM_H */
