/* ------------------------------------------------------------------------------------------------
 * >>contend - the waiters of a mutex: only the first of each client makes attempts
 */

#ifndef RLOCK_CORE_CONTEND_H
#define RLOCK_CORE_CONTEND_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"
#include "base/list.h"
#include "core/client.h"
#include "core/claim.h"
#include "core/gate.h"

/* The server knows nobody but the holder of a mutex. So one waiter of each client is enough to ask
 * for it: the first. A refused one is woken when the key changes, and a hold is handed over to it
 * inside the client. */

/* Makes an attempt for the first waiter, if none is in flight and this client does not hold it. */
static void rlock__contend_attempt(rlock__gate *gate) {
    rlock__crowd *crowd = gate->crowd;
    if (crowd->attempting || rlock__holder(gate) || rlock__list_empty(&crowd->waiting)) {
        return;
    }
    crowd->attempting = rlock__waiter(gate);
    RLOCK_ASSERT(crowd->attempting->phase == RLOCK__ATTEMPTING);
    crowd->dirty = crowd->yields = false;
    rlock_timer_set(rlock__client_of(gate), &crowd->timer, -1);
    rlock__claim_attempt(crowd->attempting, false);
}

/* False: an acquire with wait_ms 0 does not wait for another one, nor for a hold of this client. */
static bool rlock__contend_join(rlock__claim *claim) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    const rlock_client *client = rlock__client_of(gate);
    const rlock__claim *held = rlock__holder(gate);
    bool first = rlock__waiter(gate) == claim;
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
    bool told = gate->tracked || answer->told;
    rlock__gate_track(gate);
    if ((!told && rlock__pushed(gate)) || gate->crowd->dirty) {
        rlock__contend_attempt(gate); /* tracked only now, or changed since: no wake-up is missed */
    } else {
        rlock__claim_sleep(claim, answer->left_ms, !rlock__pushed(gate));
    }
}

/* True if other clients come first: after local hand-overs a hold is being let go, or was just now.
 * The question arises because a server without client tracking reports our own releases to us. */
static bool rlock__contend_yields(const rlock__gate *gate) {
    const rlock__claim *claim = NULL;
    while ((claim = rlock__claim_next(gate, claim, RLOCK__LETTING_GO)) != NULL) {
        if (claim->yields && claim->work) {
            return true;
        }
    }
    return gate->crowd->yields && gate->crowd->timer.index;
}

/* An attempt in flight may have been answered before the change. */
static void rlock__contend_wake(rlock__gate *gate, int hint) {
    (void)hint;
    gate->crowd->polls = 0;
    if (gate->crowd->attempting) {
        gate->crowd->dirty = true;
    } else if (!rlock__contend_yields(gate)) {
        rlock__contend_attempt(gate);
    }
}

/* The first waiter polls from now on, if it is not told of changes any more. */
static void rlock__contend_pushing(rlock__gate *gate) {
    if (gate->tracked && !rlock__pushed(gate) && rlock__waiter(gate) && !gate->crowd->attempting &&
        !rlock__holder(gate)) {
        rlock__gate_sleep(gate, -1, true);
    }
}

/* Notes how many local hand-overs may follow: a fencing token is reserved for each. */
static void rlock__contend_granted(rlock__claim *claim, const rlock_request *request,
                                   const rlock_answer *answer) {
    const rlock_client *client = rlock__client_of(claim->lock->gate);
    int64_t fences = request->fences;
    if (answer->fences) {
        fences = rlock__min(fences, answer->fences);
    }
    claim->handovers =
        (uint16_t)(fences ? rlock__min(fences - 1, client->handovers) : client->handovers);
}

static const rlock__mode rlock__contending = {
    rlock__contend_join,    rlock__contend_attempt, rlock__contend_attempt, rlock__contend_wake,
    rlock__contend_pushing, rlock__contend_refused, rlock__contend_granted};

#endif /* RLOCK_CORE_CONTEND_H */
