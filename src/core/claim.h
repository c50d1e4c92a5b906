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
#include "core/client.h"

/* The columns of FAULT x OPERATION. */
enum { RLOCK__IN_WAIT, RLOCK__IN_TRY, RLOCK__IN_RENEW, RLOCK__IN_WATCHDOG, RLOCK__IN_RELEASE };
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

/* One client's handles of a key, or of a set of keys: the waiters in their order, the holders, and
 * the claims that are let go. Of a mutex only the first waiter makes attempts; of a queued kind the
 * queue is at the server, and each waiter makes one attempt to join it, and one when notified. */
typedef struct rlock__gate {
    rlock__node node;
    rlock_client *client;
    rlock_link waiting;           /* claims that still want it, first come first */
    rlock_link holding;           /* claims that have it: of a mutex at most one */
    rlock_link leaving;           /* claims that are letting it go */
    struct rlock__things *things; /* NULL: a mutex with one key */
    struct rlock__claim *trying;  /* of a mutex: the one whose acquire is with the store */
    rlock_timer timer;            /* the next attempt, if nothing wakes the gate before */
    uint32_t references;          /* handles and claims */
    uint8_t polls;                /* attempts since the last wake-up: exponent of the back-off */
    bool dirty;                   /* woken during an attempt: its answer may be stale */
    bool taken;                   /* a holder was known since the first waiter began to wait */
    bool yields;                  /* the next attempt is put off: other clients come first */
    bool watched;
    uint8_t pushing; /* RLOCK_PUSH_...: what is pushed of its keys */
} rlock__gate;       /* each key's bytes and a NUL follow */

/* What a gate has if it is not for a mutex with one key. Owners and weights belong to the handles:
 * they share one queue, as at the server. */
typedef struct rlock__things {
    char sort;                    /* of the kind: see rlock__sort */
    uint32_t permits;             /* see rlock_terms */
    uint32_t count;               /* how many keys */
    const uint32_t *lens;         /* `count` lengths */
    struct rlock__alias *aliases; /* `count` of them; the first is not used */
} rlock__things;

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

/* One token's life at the server, from acquire until it is surely gone. It outlives the operation
 * that made it, and its handle: what is still to be cleaned up then is an orphan. */
typedef struct rlock__claim {
    rlock_request request;
    rlock_link link; /* in the gate's waiting, holding or leaving, or in the client's claims */
    rlock_link ring; /* in a slot of the client's, of a hold that waits for its renewal */
    rlock_timer timer;
    rlock__gate *gate;
    rlock *lock;          /* NULL: the handle has let go of it */
    rlock__ready ready;   /* the event below is to be delivered */
    rlock_callback *done; /* of the acquire or the release under way */
    void *user;
    char *text;            /* the server's words for the event */
    int64_t until_us;      /* the local deadline */
    int64_t since_us;      /* when the lease was asked for last */
    int64_t granted_us;    /* when the acquire was sent that the server granted to this client */
    int64_t next_us;       /* of a hold the next renewal; of a release the next attempt */
    int64_t look_us;       /* of a hold the next check, without a renewal */
    int64_t wait_until_us; /* of an acquire; of a clean-up its end, 0 = not known yet */
    int64_t max_until_us;  /* no deadline is later than this one */
    int64_t lease_ms, left_ms;
    int64_t longest_ms; /* of all leases asked for: the token may be there for that long */
    uint64_t fence;
    uint16_t handed; /* how many local hand-overs there were since that grant */
    bool yields;     /* after local hand-overs: when it is let go, other clients come first */
    bool ours;       /* granted, and the next waiter at the server was of this client */
    int status;      /* the event's; before that, how the last attempt ended */
    uint8_t phase;   /* RLOCK__TRYING to RLOCK__GONE */
    uint8_t event;   /* rlock_event_kind to be delivered, 0 = none */
    uint8_t reason;
    bool once; /* wait_ms was 0 */
    bool watchdog;
    bool counted;    /* as acquired, and not as lost */
    bool exists;     /* the token may be at the server */
    bool registered; /* the store watches the key for this hold */
    bool again;      /* woken or notified during a request, or an attempt failed: once more */
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
    uint8_t kind; /* rlock_event_kind */
    bool sent;
    bool watchdog; /* the hold has one once this has succeeded */
} rlock__op;

struct rlock {
    rlock__gate *gate;
    rlock__wish *wish;   /* NULL: a mutex with one key */
    rlock__claim *claim; /* NULL when idle */
    rlock__op *ops;      /* accepted and not ended */
    rlock__op *spare;    /* one for each nested release to come, so that it needs no memory */
    rlock__op *renewal;  /* the one of ops that needs the store */
    rlock_callback *on_lost;
    void *user;
    int64_t max_hold_ms;
    int hold_count;
    uint8_t state, watchdog;
    bool fencing, reentrant;
};

RLOCK__NOINLINE static int64_t rlock__add_ms(int64_t us, int64_t ms) {
    RLOCK_ASSERT(ms >= 0);
    return ms > (RLOCK__NEVER - us) / 1000 ? RLOCK__NEVER : us + ms * 1000;
}

/* Returns the local deadline of a lease that was asked for at sent_us. */
static int64_t rlock__lease_end(const rlock_client *client, int64_t sent_us, int64_t lease_ms) {
    int64_t drift_us = lease_ms * client->drift_permille;
    RLOCK_ASSERT(lease_ms >= 0 && lease_ms <= RLOCK_LEASE_MAX_MS);
    return sent_us + lease_ms * 1000 - drift_us - 2000;
}

/* Returns the local deadline of a hold with such a lease: max_hold_ms may end it before. */
static int64_t rlock__deadline(const rlock__claim *claim, int64_t sent_us, int64_t lease_ms) {
    return rlock__min(rlock__lease_end(claim->gate->client, sent_us, lease_ms),
                      claim->max_until_us);
}

/* Returns the lease that the store gave: at most the one that it was asked for. */
static int64_t rlock__given_ms(const rlock__claim *claim, const rlock_answer *answer) {
    int64_t asked_ms = claim->request.lease_ms;
    return answer->lease_ms > 0 ? rlock__min(answer->lease_ms, asked_ms) : asked_ms;
}

/* Notes the lease that the hold has now: the watchdog follows it, and asks for as much again. */
static void rlock__claim_lease(rlock__claim *claim, int64_t lease_ms) {
    lease_ms = lease_ms < RLOCK_LEASE_MIN_MS ? RLOCK_LEASE_MIN_MS : lease_ms;
    claim->lease_ms = rlock__min(claim->lease_ms, lease_ms);
}

static void rlock__set_text(char **text, const char *words) {
    rlock__dealloc(*text);
    *text = rlock__copy(words, rlock__length(words));
}

static bool rlock__queued(const rlock__gate *gate) {
    return RLOCK__HAS_KINDS && gate->things && gate->things->sort != 'm';
}

static bool rlock__is_kind(const rlock__claim *claim, rlock_kind kind) {
    return RLOCK__HAS_KINDS && claim->request.terms && claim->request.terms->kind == kind;
}

/* True if others may hold next to it. Of a semaphore also with one permit: that may change. */
static bool rlock__shared(const rlock__claim *claim) {
    return rlock__is_kind(claim, RLOCK_KIND_READ) || rlock__is_kind(claim, RLOCK_KIND_SEMAPHORE);
}

/* The length of one of its keys. */
static uint32_t rlock__gate_key_len(const rlock__gate *gate, uint32_t i) {
    return RLOCK__HAS_KINDS && gate->things ? gate->things->lens[i] : gate->node.key_len;
}

/* Returns the first holder of this client, or NULL. */
static rlock__claim *rlock__holder(const rlock__gate *gate) {
    return RLOCK__FIRST(&gate->holding, rlock__claim, link);
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

static void rlock__claim_dealloc(rlock_client *client, rlock__claim *claim) {
    RLOCK_ASSERT(client->claim_count);
    RLOCK_ASSERT(rlock__list_empty(&claim->link) && rlock__list_empty(&claim->ring));
    rlock_timer_drop(client, &claim->timer);
    rlock__dealloc(claim);
    client->claim_count--;
}

/* Frees what a claim refers to, except its gate. */
static void rlock__claim_empty(rlock__claim *claim) {
    RLOCK_ASSERT(!claim->request.out || claim->gate->client->closed);
    rlock__dealloc(claim->text);
    rlock__wish_unref((rlock__wish *)(void *)claim->request.terms);
}

/* Ends a shutdown if nothing is left to be done, or if its time is over (status is an error). */
static void rlock__shutdown_end(rlock_client *client, int status) {
    bool busy = client->phases[RLOCK__TRYING] || client->phases[RLOCK__HOLDING] ||
                client->phases[RLOCK__LETTING_GO];
    if (client->closing && !client->shut && (!busy || status != RLOCK_OK)) {
        client->shut = true;
        client->shutdown_status = status;
        rlock__ready_add(client, &client->shutdown_ready); /* behind the events of its holds */
    }
}

static void rlock__claim_phase(rlock__claim *claim, int phase) {
    rlock_client *client = claim->gate->client;
    RLOCK_ASSERT(client->phases[claim->phase]);
    RLOCK_ASSERT(phase >= 0 && phase < RLOCK__PHASES);
    RLOCK_ASSERT(claim->phase != RLOCK__GONE);
    client->phases[claim->phase]--;
    client->phases[phase]++;
    claim->phase = (uint8_t)phase;
    rlock__list_remove(&claim->link);
    rlock__list_remove(&claim->ring);
    if (phase == RLOCK__HOLDING) { /* writers first: nobody looks for one among many readers */
        bool writer = rlock__is_kind(claim, RLOCK_KIND_WRITE);
        rlock_link *holding = &claim->gate->holding;
        rlock__list_append(writer ? holding->next : holding, &claim->link);
    } else if (phase == RLOCK__LETTING_GO) {
        rlock__list_append(&claim->gate->leaving, &claim->link);
    }
    rlock__shutdown_end(client, RLOCK_OK);
}

/* Owes the handle an event, if the claim has one still; an event that was owed is replaced. */
static void rlock__claim_event(rlock__claim *claim, rlock_event_kind kind, int status,
                               rlock_reason reason) {
    RLOCK_ASSERT(kind == RLOCK_ACQUIRED || kind == RLOCK_RELEASED || kind == RLOCK_LOST);
    if (!claim->lock) {
        return;
    }
    claim->event = (uint8_t)kind;
    claim->status = status;
    claim->reason = (uint8_t)reason;
    rlock__list_remove(&claim->ready.link);
    rlock__ready_add(claim->gate->client, &claim->ready);
}

static void rlock__claim_submit(rlock__claim *claim, rlock_op op, int64_t lease_ms,
                                int64_t due_us) {
    rlock_client *client = claim->gate->client;
    RLOCK_ASSERT(!claim->request.out);
    RLOCK_ASSERT(claim->phase != RLOCK__GONE);
    RLOCK_ASSERT(lease_ms >= 0 && (lease_ms || op != RLOCK_OP_ACQUIRE));
    RLOCK_ASSERT((op == RLOCK_OP_ACQUIRE) == (claim->phase == RLOCK__TRYING));
    RLOCK_ASSERT((op == RLOCK_OP_RELEASE) == (claim->phase == RLOCK__LETTING_GO));
    claim->request.op = (uint8_t)op;
    claim->request.lease_ms = lease_ms;
    if (lease_ms > claim->longest_ms) {
        claim->longest_ms = lease_ms;
    }
    claim->request.due_us = due_us;
    claim->request.out = client->unsent = true;
    client->store->submit(client->store_state, &claim->request);
}

/* Notes how an attempt ended, for when the time is over. After an attempt that may have been
 * executed the note stays UNKNOWN, even if a later one was surely not executed. */
static void rlock__claim_note(rlock__claim *claim, rlock_fault fault, const char *text) {
    RLOCK_ASSERT(fault >= RLOCK_FAULT_DOWN && fault <= RLOCK_FAULT_OTHER);
    if (claim->status != RLOCK_ERR_UNKNOWN) {
        claim->status = rlock__on_fault[fault][RLOCK__IN_TRY];
        rlock__set_text(&claim->text, text);
    }
}

/* Takes a request back from the store, if it is there; true: it may have been executed. */
static bool rlock__forget(rlock_client *client, rlock_request *request) {
    bool maybe = request->out && client->store->forget(client->store_state, request);
    request->out = false;
    return maybe;
}

/* Withdraws the request from the store; an acquire that may have been sent may be executed. */
static void rlock__claim_recall(rlock__claim *claim) {
    rlock_client *client = claim->gate->client;
    RLOCK_ASSERT(claim->phase != RLOCK__GONE);
    if (claim->gate->trying == claim) {
        claim->gate->trying = NULL;
    }
    if (rlock__forget(client, &claim->request) && claim->request.op == RLOCK_OP_ACQUIRE) {
        claim->exists = true;
    }
}

/* Ends an operation next to the claim's own. */
static void rlock__op_event(rlock__op *op, int status, const char *text) {
    RLOCK_ASSERT(rlock__list_empty(&op->ready.link));
    if (op->lock->renewal == op) {
        op->lock->renewal = NULL;
    }
    op->status = status;
    rlock__set_text(&op->text, status == RLOCK_OK ? NULL : text);
    rlock__ready_add(op->lock->gate->client, &op->ready);
}

#endif /* RLOCK_CORE_CLAIM_H */
