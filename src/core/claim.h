/* ------------------------------------------------------------------------------------------------
 * >>claim - one token at the store, its gate and its handle: what they consist of
 */

#ifndef RLOCK_CORE_CLAIM_H
#define RLOCK_CORE_CLAIM_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/lock.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/map.h"
#include "base/pool.h"
#include "core/client.h"

/* The columns of FAULT x OPERATION. */
enum { RLOCK__IN_WAIT, RLOCK__IN_ATTEMPT, RLOCK__IN_RENEW, RLOCK__IN_WATCHDOG, RLOCK__IN_RELEASE };
#define RLOCK__RETRY 1

static const int rlock__on_fault[7][5] = {
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
    RLOCK__CLOSED_STATE
} rlock__state;

/* One client's handles of a key, or of a set of keys: the waiters in their order, while there are
 * any; the holders, and the claims that are let go. Of a mutex only the first waiter makes
 * attempts; of a queued kind the queue is at the server, and each waiter makes one attempt to join
 * it, and one when notified. */
typedef struct rlock__gate {
    rlock__node node;
    rlock_client *client;
    rlock__crowd *crowd; /* the client's `nobody` if none waits */
    rlock_link claims;   /* those that hold it, of which a writer is the first, or let it go */
    uint32_t references; /* handles and claims */
    uint8_t pushing;     /* RLOCK_PUSH_...: what is pushed of its keys */
    bool tracked;
    bool special; /* no mutex with one key: rlock__things follow */
} rlock__gate;    /* then each key's bytes and a NUL */

/* What a gate has if it is not for a mutex with one key. Owners and weights belong to the handles:
 * they share one queue, as at the server. */
typedef struct rlock__things {
    char sort;                    /* of the kind: see rlock__sort */
    uint32_t permits;             /* see rlock_terms */
    uint32_t count;               /* how many keys */
    uint32_t *lens;               /* `count` lengths */
    struct rlock__alias *aliases; /* `count` of them; the first is not used */
} rlock__things;

/* NULL: a mutex with one key. */
static rlock__things *rlock__things_of(const rlock__gate *gate) {
    return RLOCK__HAS_KINDS && gate->special ? (rlock__things *)(void *)(gate + 1) : NULL;
}

/* What a handle wants that is no mutex with one key. Its claims may outlive it. */
typedef struct rlock__wish {
    rlock_terms terms; /* first: requests point to it */
    uint32_t references;
} rlock__wish;

typedef struct rlock__alias { /* another key of a gate than its first */
    rlock__node node;
    rlock__gate *gate;
} rlock__alias;

static rlock__gate *rlock__gate_at(rlock__node *node) {
    return RLOCK__HAS_KINDS && node->alias ? RLOCK__OF(node, rlock__alias, node)->gate
                                           : RLOCK__OF(node, rlock__gate, node);
}

/* What a claim has only while a request of it is with the store. */
typedef struct rlock__work {
    rlock_request request;
    struct rlock__claim *claim;
} rlock__work;

/* So many works are kept for the claims, one each and one more, which an answer needs until it was
 * dealt with. Above that, memory is asked for when they are needed. */
#ifndef RLOCK__WORKS
#define RLOCK__WORKS 1024
#endif

/* One token's life at the server, from acquire until it is surely gone: what it is there, and
 * nothing of what its handle was asked for. A local hand-over gives it to another handle. Without a
 * handle it is an orphan, which is still to be cleaned up. */
typedef struct rlock__claim {
    rlock_link link; /* in the gate's crowd, or in its claims */
    union {
        rlock_timer timer;
        rlock_link ring; /* in a slot of the client's, of a hold that waits for its renewal */
    } at;
    rlock__gate *gate;
    rlock *lock;       /* it waits for this claim, holds or releases it; NULL: an orphan */
    rlock__work *work; /* with the store, or NULL */
    rlock__wish *wish; /* NULL: a mutex with one key */
    uint64_t token;    /* see rlock_request */
    int64_t until_us;  /* the local deadline */
    int64_t next_us;   /* of a hold the next renewal; of a clean-up the next attempt */
    union {
        int64_t check_us; /* of a hold the next check, without a renewal */
        int64_t over_us;  /* of a clean-up its end, 0 = not known yet */
    } of;
    uint64_t fence;
    int32_t longest_ms;  /* of all leases asked for: the token may be there for that long */
    uint32_t note;       /* the store's, of the last request */
    uint32_t granted_us; /* when the acquire was sent that the server granted: the lower bits */
    uint16_t fences;     /* how many fencing tokens in a row were reserved */
    uint16_t handed;     /* how many local hand-overs there were since that grant */
    uint8_t phase;       /* RLOCK__ATTEMPTING to RLOCK__LETTING_GO */
    bool ringed;         /* it waits in the ring */
    bool yields;         /* after local hand-overs: when it is let go, other clients come first */
    bool ours;           /* granted, and the next waiter at the server was of this client */
    bool counted;        /* as acquired, and not as lost */
    bool exists;         /* the token may be at the server */
    bool registered;     /* the store watches the key for this hold */
    bool again;          /* woken or notified during a request, or an attempt failed: once more */
} rlock__claim;

/* An operation next to the claim's own: a renewal by hand, a nested acquire or release. */
typedef struct rlock__op {
    rlock__ready ready;
    struct rlock__op *next; /* of the same handle */
    rlock *lock;
    rlock_callback *done;
    void *user;
    char *text;
    int64_t lease_ms;
    int status;
    uint8_t kind; /* rlock_event_kind; 0: a spare, see rlock.ops */
    bool waits;   /* it needs the store, and has not ended */
    bool sent;
    bool watchdog; /* the hold has one once this has succeeded */
} rlock__op;

/* max_hold_ms of the options, and what it means for the present hold. */
typedef struct rlock__limit {
    int64_t hold_ms;
    int64_t until_us; /* no deadline is later than this one */
} rlock__limit;

/* A handle: what it was asked for, and the event that ends this. Its state follows from the event,
 * and without one from its claim: see rlock__state_of. */
struct rlock {
    rlock__gate *gate;
    rlock__wish *wish;   /* NULL: a mutex with one key */
    rlock__claim *claim; /* NULL: it is idle, or the event below ends it */
    rlock__op *ops;      /* accepted and not ended; and a spare for each nested release to come */
    rlock_callback *on_lost, *done; /* done: of the acquire or the release under way */
    void *lost_user, *user;
    rlock__limit *limit; /* NULL: no max_hold_ms */
    rlock__ready ready;  /* the event is to be delivered */
    char *text;          /* the server's words for it */
    int64_t left_ms;     /* of the holder's lease, when last heard */
    union {
        int64_t wait_until_us; /* of the acquire */
        uint64_t fence;        /* of the hold that ended: of the event */
    } of;
    int32_t lease_ms;
    int8_t status; /* the event's; before that, how the last attempt ended */
    uint8_t event; /* rlock_event_kind to be delivered, 0 = none */
    uint8_t reason;
    uint8_t watchdog; /* RLOCK_WATCHDOG_... */
    bool renews;      /* the hold has a watchdog */
    bool once;        /* wait_ms was 0 */
    bool fencing, reentrant;
};

/* What a handle is about to tell goes before what its claim is about to do. */
static rlock__state rlock__state_of(const rlock *lock) {
    static const uint8_t told[] = {/* [rlock_event_kind] */
                                   RLOCK__IDLE_STATE, RLOCK__WAITING_STATE, RLOCK__IDLE_STATE,
                                   RLOCK__RELEASING_STATE, RLOCK__LOST_STATE};
    static const uint8_t doing[] = {/* [phase] */
                                    RLOCK__WAITING_STATE, RLOCK__HELD_STATE,
                                    RLOCK__RELEASING_STATE};
    RLOCK_ASSERT(lock->event < sizeof told);
    return (rlock__state)(lock->event || !lock->claim ? told[lock->event]
                                                      : doing[lock->claim->phase]);
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
    return op;
}

/* Returns an operation of that kind, or with 0 a spare; NULL: there is none. */
static rlock__op *rlock__op_of(const rlock *lock, int kind) {
    rlock__op *op = lock->ops;
    while (op && op->kind != kind) {
        op = op->next;
    }
    return op;
}

/* Returns the local deadline of a lease that was asked for at sent_us. */
static int64_t rlock__lease_end(const rlock_client *client, int64_t sent_us, int64_t lease_ms) {
    int64_t drift_us = lease_ms * client->drift_permille;
    RLOCK_ASSERT(lease_ms >= 0 && lease_ms <= RLOCK_LEASE_MAX_MS);
    return sent_us + lease_ms * 1000 - drift_us - 2000;
}

/* Returns the local deadline of a hold with such a lease: max_hold_ms may end it before. */
static int64_t rlock__deadline(const rlock__claim *claim, int64_t sent_us, int64_t lease_ms) {
    int64_t end_us = rlock__lease_end(claim->gate->client, sent_us, lease_ms);
    const rlock__limit *limit;
    RLOCK_ASSERT(claim->lock && claim->lock->claim == claim);
    limit = claim->lock->limit;
    return limit ? rlock__min(end_us, limit->until_us) : end_us;
}

/* Returns the lease that the store gave: at most the one that it was asked for. */
static int64_t rlock__given_ms(const rlock_request *request, const rlock_answer *answer) {
    return answer->lease_ms > 0 ? rlock__min(answer->lease_ms, request->lease_ms)
                                : request->lease_ms;
}

/* Notes the lease that the hold has now: the watchdog follows it, and asks for as much again. */
static void rlock__claim_lease(rlock__claim *claim, int64_t lease_ms) {
    lease_ms = lease_ms < RLOCK_LEASE_MIN_MS ? RLOCK_LEASE_MIN_MS : lease_ms;
    claim->lock->lease_ms = (int32_t)rlock__min(claim->lock->lease_ms, lease_ms);
}

/* Returns when the lease of a hold was asked for, by its deadline: or before, if something else
 * than the lease has brought the deadline forward. */
static int64_t rlock__since(const rlock__claim *held) {
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && held->lock);
    return held->until_us - rlock__lease_end(held->gate->client, 0, held->lock->lease_ms);
}

static void rlock__set_text(char **text, const char *words) {
    rlock__dealloc(*text);
    *text = rlock__copy(words, rlock__length(words));
}

static bool rlock__queued(const rlock__gate *gate) {
    return RLOCK__HAS_KINDS && gate->special && rlock__things_of(gate)->sort != 'm';
}

static bool rlock__is_kind(const rlock__claim *claim, rlock_kind kind) {
    return RLOCK__HAS_KINDS && claim->wish && claim->wish->terms.kind == kind;
}

/* True if others may hold next to it. Of a semaphore also with one permit: that may change. */
static bool rlock__shared(const rlock__claim *claim) {
    return rlock__is_kind(claim, RLOCK_KIND_READ) || rlock__is_kind(claim, RLOCK_KIND_SEMAPHORE);
}

/* The length of one of its keys. */
static uint32_t rlock__gate_key_len(const rlock__gate *gate, uint32_t i) {
    const rlock__things *things = rlock__things_of(gate);
    return things ? things->lens[i] : gate->node.key_len;
}

/* Returns the next claim of the gate in that phase, HOLDING or LETTING_GO; the first after NULL. */
static rlock__claim *rlock__claim_next(const rlock__gate *gate, const rlock__claim *claim,
                                       int phase) {
    const rlock_link *at = claim ? claim->link.next : gate->claims.next;
    while (at != &gate->claims && RLOCK__OF(at, rlock__claim, link)->phase != phase) {
        at = at->next;
    }
    return at == &gate->claims ? NULL : RLOCK__OF(at, rlock__claim, link);
}

/* Returns the first holder of this client, or NULL. */
static rlock__claim *rlock__holder(const rlock__gate *gate) {
    return rlock__claim_next(gate, NULL, RLOCK__HOLDING);
}

/* Returns the first waiter, or NULL. */
static rlock__claim *rlock__waiter(const rlock__gate *gate) {
    return RLOCK__FIRST(&gate->crowd->waiting, rlock__claim, link);
}

static void rlock__wish_unref(rlock__wish *wish) {
    if (RLOCK__HAS_KINDS && wish && --wish->references == 0) {
        rlock__dealloc(wish);
    }
}

static void rlock__request_init(rlock_request *request, const rlock__gate *gate,
                                const rlock_terms *terms) {
    RLOCK_ASSERT(gate->node.key_len);
    request->key = gate->node.key;
    request->key_len = gate->node.key_len;
    request->terms = terms;
}

/* Ends a shutdown if nothing is left to be done, or if its time is over (status is an error). */
static void rlock__shutdown_end(rlock_client *client, int status) {
    bool busy = client->phases[RLOCK__ATTEMPTING] || client->phases[RLOCK__HOLDING] ||
                client->phases[RLOCK__LETTING_GO];
    if (client->life == RLOCK__ENDING && (!busy || status != RLOCK_OK)) {
        client->life = RLOCK__ENDED;
        client->shutdown_status = status;
        rlock__ready_add(client, &client->shutdown_ready); /* behind the events of its holds */
    }
}

static void rlock__ring_leave(rlock__claim *claim) {
    if (claim->ringed) {
        rlock__list_remove(&claim->at.ring);
        claim->at.timer.index = 0;
        claim->ringed = false;
    }
}

/* Takes a claim out of its list, and the crowd away from a gate at which nobody waits any more. */
static void rlock__claim_unlink(rlock__claim *claim) {
    rlock__gate *gate = claim->gate;
    rlock_client *client = gate->client;
    rlock__list_remove(&claim->link);
    rlock__ring_leave(claim);
    if (gate->crowd != &client->nobody && rlock__list_empty(&gate->crowd->waiting)) {
        RLOCK_ASSERT(!gate->crowd->attempting);
        rlock_timer_drop(client, &gate->crowd->timer);
        rlock__pool_put(&client->crowds, gate->crowd, rlock__keeps(client));
        gate->crowd = &client->nobody;
    }
}

static void rlock__claim_phase(rlock__claim *claim, int phase) {
    rlock__gate *gate = claim->gate;
    rlock_client *client = gate->client;
    RLOCK_ASSERT(client->phases[claim->phase]);
    RLOCK_ASSERT(phase >= 0 && phase < RLOCK__PHASES);
    RLOCK_ASSERT(phase != RLOCK__HOLDING || claim->lock);
    client->phases[claim->phase]--;
    client->phases[phase]++;
    claim->phase = (uint8_t)phase;
    rlock__claim_unlink(claim);
    if (phase != RLOCK__ATTEMPTING) { /* a writer first: nobody looks for one among many readers */
        bool writer = phase == RLOCK__HOLDING && rlock__is_kind(claim, RLOCK_KIND_WRITE);
        rlock__list_append(writer ? gate->claims.next : &gate->claims, &claim->link);
    }
}

/* Gives a claim to a handle, or with NULL makes an orphan of it. */
static void rlock__claim_give(rlock__claim *claim, rlock *lock) {
    if (claim->lock) {
        claim->lock->claim = NULL;
    }
    claim->lock = lock;
    if (lock) {
        lock->claim = claim;
    }
}

/* Owes the handle an event; one that was owed is replaced. */
static void rlock__lock_event(rlock *lock, rlock_event_kind kind, int status, rlock_reason reason) {
    RLOCK_ASSERT(kind == RLOCK_ACQUIRED || kind == RLOCK_RELEASED || kind == RLOCK_LOST);
    lock->event = (uint8_t)kind;
    lock->status = (int8_t)status;
    lock->reason = (uint8_t)reason;
    rlock__list_remove(&lock->ready.link);
    rlock__ready_add(lock->gate->client, &lock->ready);
}

/* Ends what the handle wants of this claim, if it has one: it is owed an event. */
static void rlock__claim_part(rlock__claim *claim, rlock_event_kind kind, int status,
                              rlock_reason reason) {
    rlock *lock = claim->lock;
    if (lock) {
        lock->of.fence = kind == RLOCK_ACQUIRED ? 0 : claim->fence;
        rlock__claim_give(claim, NULL);
        rlock__lock_event(lock, kind, status, reason);
    }
}

static uint32_t rlock__works_for(uint32_t claims) {
    return claims < RLOCK__WORKS ? claims + (claims > 0) : RLOCK__WORKS;
}

static void rlock__work_put(rlock_client *client, rlock__work *work) {
    rlock__pool_put(&client->works, work, rlock__works_for(rlock__keeps(client)));
}

/* Returns a request of a claim that has none, to be submitted; NULL: no memory. */
static rlock_request *rlock__claim_request(rlock__claim *claim, rlock_op op, int64_t lease_ms,
                                           int64_t due_us) {
    rlock_client *client = claim->gate->client;
    rlock__work *work = (rlock__work *)rlock__pool_take(&client->works, sizeof *work);
    RLOCK_ASSERT(!claim->work);
    RLOCK_ASSERT(lease_ms >= 0 && (lease_ms || op != RLOCK_OP_ACQUIRE));
    RLOCK_ASSERT((op == RLOCK_OP_ACQUIRE) == (claim->phase == RLOCK__ATTEMPTING));
    RLOCK_ASSERT((op == RLOCK_OP_RELEASE) == (claim->phase == RLOCK__LETTING_GO));
    if (!work) {
        return NULL;
    }
    rlock__request_init(&work->request, claim->gate, claim->wish ? &claim->wish->terms : NULL);
    work->claim = claim;
    work->request.op = (uint8_t)op;
    work->request.token = claim->token;
    work->request.store.note = claim->note;
    work->request.lease_ms = lease_ms;
    work->request.due_us = due_us;
    return &work->request;
}

static void rlock__claim_submit(rlock__claim *claim, rlock_request *request) {
    rlock_client *client = claim->gate->client;
    if (request->lease_ms > claim->longest_ms) {
        claim->longest_ms = (int32_t)request->lease_ms;
    }
    claim->work = RLOCK__OF(request, rlock__work, request);
    client->unsent = true;
    client->store->submit(client->store_state, request);
}

/* Notes how an attempt ended, for when the time is over. After an attempt that may have been
 * executed the note stays UNKNOWN, even if a later one was surely not executed. */
static void rlock__lock_note(rlock *lock, rlock_fault fault, const char *text) {
    RLOCK_ASSERT(fault >= RLOCK_FAULT_DOWN && fault <= RLOCK_FAULT_OTHER);
    if (lock->status != RLOCK_ERR_UNKNOWN) {
        lock->status = (int8_t)rlock__on_fault[fault][RLOCK__IN_ATTEMPT];
        rlock__set_text(&lock->text, text);
    }
}

/* Withdraws the request from the store; an acquire that may have been sent may be executed. */
static void rlock__claim_recall(rlock__claim *claim) {
    rlock_client *client = claim->gate->client;
    rlock__work *work = claim->work;
    if (claim->gate->crowd->attempting == claim) {
        claim->gate->crowd->attempting = NULL;
    }
    if (work) {
        bool maybe = client->store->forget(client->store_state, &work->request);
        RLOCK_ASSERT(claim->exists || work->request.op == RLOCK_OP_ACQUIRE);
        claim->exists = claim->exists || maybe;
        claim->note = work->request.store.note;
        claim->work = NULL;
        rlock__work_put(client, work);
    }
}

/* Ends an operation next to the claim's own. */
static void rlock__op_event(rlock__op *op, int status, const char *text) {
    RLOCK_ASSERT(rlock__list_empty(&op->ready.link));
    op->waits = false;
    op->status = status;
    rlock__set_text(&op->text, status == RLOCK_OK ? NULL : text);
    rlock__ready_add(op->lock->gate->client, &op->ready);
}

#endif /* RLOCK_CORE_CLAIM_H */
