/* ------------------------------------------------------------------------------------------------
 * >>mode - how the waiters of a gate come to a grant: those of a mutex contend, others queue
 */

#ifndef RLOCK_LOCK_MODE_H
#define RLOCK_LOCK_MODE_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/map.h"
#include "base/pool.h"
#include "runtime/client.h"
#include "lock/claim.h"
#include "lock/gate.h"

/* The server knows nobody but the holder of a mutex. So one waiter of each client is enough to ask
 * for it: the first. A refused one is woken when the key changes, and a hold is handed over to it
 * inside the client. */

/* Makes an attempt for the first waiter, if none is in flight and this client does not hold it. */
static void rlock__contend_attempt(rlock__gate *gate) {
    rlock__waiters *waiters = gate->waiters;
    if (!waiters || waiters->attempting || rlock__holder(gate)) {
        return;
    }
    waiters->attempting = rlock__waiter(gate);
    RLOCK_ASSERT(waiters->attempting && waiters->attempting->phase == RLOCK__ATTEMPTING);
    waiters->dirty = waiters->yields = false;
    rlock_timer_set(gate->client, &waiters->timer, -1);
    rlock__claim_attempt(waiters->attempting, false);
}

/* False: an acquire with wait_ms 0 does not wait for another one, nor for a hold of this client. */
static bool rlock__contend_join(rlock__claim *claim) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    const rlock_client *client = gate->client;
    const rlock__claim *held = lock->once ? rlock__holder(gate) : NULL;
    bool first = rlock__waiter(gate) == claim;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    if (lock->once && (held || (!first && client->up))) { /* no need to ask the server */
        if (held) {
            int64_t end_us = rlock__add_ms(rlock__since(held), held->lock->lease_ms);
            rlock__lock_left(lock, end_us > client->now_us ? (end_us - client->now_us) / 1000 : 0);
        }
        return false;
    }
    if (first) { /* else the head is asking, or sleeps for a reason */
        rlock__contend_attempt(gate);
    }
    return true;
}

static void rlock__contend_refused(rlock__claim *claim, const rlock_answer *answer) {
    rlock__gate *gate = claim->lock->gate;
    bool watched = gate->tracked || answer->watched;
    RLOCK_ASSERT(!gate->waiters->attempting && !claim->lock->once);
    rlock__gate_track(gate);
    if ((!watched && rlock__pushed(gate)) || gate->waiters->dirty) {
        rlock__contend_attempt(gate); /* tracked only now, or changed since: no wake-up is missed */
    } else {
        rlock__claim_sleep(claim, answer->left_ms, !rlock__pushed(gate));
    }
}

/* True if other clients come first: after local hand-overs a hold is being let go, or was just now.
 * The question arises because a server without client tracking reports our own releases to us. */
static bool rlock__contend_yields(const rlock__gate *gate) {
    const rlock__claim *claim = NULL;
    RLOCK_ASSERT(gate->waiters);
    while ((claim = rlock__claim_next(gate, claim, RLOCK__RELEASING)) != NULL) {
        if (claim->yields && claim->in_flight) {
            return true;
        }
    }
    return gate->waiters->yields && gate->waiters->timer.index;
}

/* An attempt in flight may have been answered before the change. */
static void rlock__contend_wake(rlock__gate *gate, int hint) {
    (void)hint;
    RLOCK_ASSERT(hint >= RLOCK__HINT_OURS && hint <= RLOCK__HINT_MISSED);
    if (!gate->waiters) {
        return;
    }
    gate->waiters->polls = 0;
    if (gate->waiters->attempting) {
        gate->waiters->dirty = true;
    } else if (!rlock__contend_yields(gate)) {
        rlock__contend_attempt(gate);
    }
}

/* The first waiter polls from now on, if it is not told of changes any more. */
static void rlock__contend_pushing(rlock__gate *gate) {
    if (gate->tracked && !rlock__pushed(gate) && gate->waiters && !gate->waiters->attempting &&
        !rlock__holder(gate)) {
        rlock__gate_sleep(gate, -1, true);
    }
}

/* Notes how many local hand-overs may follow: a fencing token is reserved for each. */
static void rlock__contend_granted(rlock__claim *claim, const rlock_request *request,
                                   const rlock_answer *answer) {
    const rlock_client *client = claim->lock->gate->client;
    int64_t fences = request->fences;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && client->handovers >= 0);
    if (answer->fences) {
        fences = rlock__min(fences, answer->fences);
    }
    claim->handovers =
        (uint16_t)(fences ? rlock__min(fences - 1, client->handovers) : client->handovers);
}

static const rlock__mode rlock__contending = {
    rlock__contend_join,    rlock__contend_attempt, rlock__contend_attempt, rlock__contend_wake,
    rlock__contend_pushing, rlock__contend_refused, rlock__contend_granted};

/* The server keeps the waiters in their order, and offers the lock to the first. So each makes one
 * attempt to join, and one when it is notified of its offer. The first of each client makes more,
 * now and then: this keeps its queue alive, and finds an offer whose notification was lost. */

static bool rlock__queue_join(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING && rlock__queued(claim->lock->gate));
    if (!claim->in_flight) {
        rlock__claim_attempt(claim, false);
    }
    return true;
}

/* The waiter stands in the queue now. */
static void rlock__queue_refused(rlock__claim *claim, const rlock_answer *answer) {
    RLOCK_ASSERT(!claim->in_flight && !claim->lock->once);
    claim->may_exist = true;
    if (claim->retry) {
        rlock__claim_attempt(claim, true); /* notified meanwhile */
    } else {
        rlock__claim_sleep(claim, answer->left_ms, !rlock__pushed(claim->lock->gate));
    }
}

/* Makes an attempt for the first waiter, which serves the queue for the others, and for those whose
 * attempt failed. The server removes a waiter that weighs more than there are permits now; so each
 * waiter that weighs less than all before it makes an attempt too. */
static void rlock__queue_attempt(rlock__gate *gate) {
    uint32_t least = UINT32_MAX; /* of those before it; only permits have a weight */
    rlock__claim *claim = rlock__waiter(gate);
    RLOCK_ASSERT(rlock__queued(gate));
    for (; claim; claim = rlock__waiter_next(claim)) {
        uint32_t weight = claim->lock->more->terms.weight;
        RLOCK_ASSERT(weight);
        if (!claim->in_flight && (claim->retry || weight < least)) {
            rlock__claim_attempt(claim, false);
        }
        if (gate->kind->letter != 's') {
            least = 0;
        } else if (weight < least) {
            least = weight;
        }
    }
}

/* The server keeps with each waiter whether to notify it, and a notification may have been lost:
 * each waiter makes an attempt, after the answer to one in flight, which may be stale. */
static void rlock__queue_again(rlock__gate *gate) {
    rlock__claim *claim = rlock__waiter(gate);
    RLOCK_ASSERT(rlock__queued(gate));
    for (; claim; claim = rlock__waiter_next(claim)) {
        claim->retry = true;
    }
    rlock__queue_attempt(gate);
}

/* A change that was pushed may be any waiter that comes or goes: it means nothing. */
static void rlock__queue_wake(rlock__gate *gate, int hint) {
    RLOCK_ASSERT(hint >= RLOCK__HINT_OURS && hint <= RLOCK__HINT_MISSED);
    if (!gate->waiters) {
        return;
    }
    if (hint == RLOCK__HINT_MISSED) {
        rlock__queue_again(gate);
    } else if (hint == RLOCK__HINT_OURS) {
        gate->waiters->polls = 0;
        if (!rlock__pushed(gate)) {
            rlock__queue_attempt(gate);
        }
    }
}

/* The next waiter has its position already, and sleeps. */
static void rlock__queue_next(rlock__gate *gate) {
    if (gate->waiters && !gate->waiters->timer.index) {
        rlock__gate_sleep(gate, -1, !rlock__pushed(gate));
    }
}

/* Next to a writer the readers of its owner are granted, whatever their position: a downgrade. */
static void rlock__queue_granted(rlock__claim *claim, const rlock_request *request,
                                 const rlock_answer *answer) {
    rlock__claim *reader = rlock__waiter(claim->lock->gate);
    (void)request;
    (void)answer;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    for (; reader && rlock__owner_of(claim); reader = rlock__waiter_next(reader)) {
        if (rlock__may_downgrade(reader, claim)) {
            reader->retry = true;
            if (!reader->in_flight) {
                rlock__claim_attempt(reader, true);
            }
        }
    }
    rlock__queue_next(claim->lock->gate);
}

static const rlock__mode rlock__queueing = {
    rlock__queue_join,  rlock__queue_attempt, rlock__queue_next,   rlock__queue_wake,
    rlock__queue_again, rlock__queue_refused, rlock__queue_granted};

static const rlock__mode *rlock__mode_of(const rlock__gate *gate) {
    return rlock__queued(gate) ? &rlock__queueing : &rlock__contending;
}

static void rlock__gate_fire(rlock_timer *timer) {
    rlock__gate *gate = RLOCK__OF(timer, rlock__waiters, timer)->gate;
    RLOCK_ASSERT(gate->waiters && &gate->waiters->timer == timer);
    rlock__mode_of(gate)->attempt(gate);
}

/* Sees that somebody can wait at the gate. False: no memory. */
static bool rlock__gate_opens(rlock__gate *gate) {
    rlock_client *client = gate->client;
    rlock__waiters *waiters = gate->waiters;
    if (waiters) {
        return true;
    }
    waiters = (rlock__waiters *)rlock__pool_take(&client->waiters, sizeof *waiters);
    if (!waiters) {
        return false;
    }
    if (rlock_timer_add(client, &waiters->timer, rlock__gate_fire) != RLOCK_OK) {
        rlock__pool_put(&client->waiters, waiters);
        return false;
    }
    rlock__list_init(&waiters->list);
    waiters->gate = gate;
    gate->waiters = waiters;
    return true;
}

static void rlock__gate_wake_other(rlock__gate *gate, const void *with) {
    if (gate != with) {
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS);
    }
}

/* The keys of this gate changed: others of this client may want one of them as something else. */
static void rlock__gate_wake_others(rlock__gate *gate) {
    const rlock__item *item;
    uint32_t i;
    for (i = 0; (item = rlock__gate_key(gate, i)) != NULL; i++) {
        rlock__key_each(gate->client, item->key, item->key_len, rlock__gate_wake_other, gate);
    }
}

#endif /* RLOCK_LOCK_MODE_H */
