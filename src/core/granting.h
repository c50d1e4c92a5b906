/* ------------------------------------------------------------------------------------------------
 * >>granting - a hold begins: by the server, or by a local hand-over inside this process
 */

#ifndef RLOCK_CORE_GRANTING_H
#define RLOCK_CORE_GRANTING_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/lock.h"
#include "base/platform.h"
#include "core/client.h"
#include "core/claim.h"
#include "core/report.h"
#include "core/gate.h"
#include "core/mode.h"
#include "core/leaving.h"
#include "core/attempt.h"
#include "core/holding.h"

#define RLOCK__AGE_MS 100             /* a hold that lives longer is registered for push */
#define RLOCK__HAND_OVER_MAX_US 20000 /* how long after its grant a hold may be handed on */

/* A hold of the handle begins: max_hold_ms counts from now. */
static void rlock__limit_begin(rlock *lock) {
    if (lock->more) {
        lock->more->refused = false;
        lock->more->until_us =
            rlock__add_ms(rlock__client_of(lock->gate)->now_us, lock->more->hold_ms);
    }
}

static void rlock__granted(rlock__claim *claim, const rlock_request *request,
                           const rlock_answer *answer) {
    rlock_client *client = rlock__client_of(claim->lock->gate);
    rlock__crowd *crowd = claim->lock->gate->crowd;
    int64_t lease_ms = rlock__given_ms(request, answer);
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    claim->granted_us = (uint32_t)request->sent_us;
    claim->yields = false;
    rlock__limit_begin(claim->lock);
    claim->until_us = rlock__deadline(claim, request->sent_us, lease_ms);
    if (claim->until_us <= client->now_us) {
        rlock__acquire_again(claim, true);
        return;
    }
    claim->exists = true;
    rlock__claim_lease(claim, lease_ms);
    RLOCK_ASSERT(claim->until_us <= request->sent_us + lease_ms * 1000);
    claim->fence = answer->fence;
    claim->of.check_us = request->sent_us + RLOCK__AGE_MS * 1000;
    claim->registered = false;
    crowd->polls = 0;
    crowd->taken = crowd->taken || !rlock__shared(claim);
    claim->ours = answer->ours;
    claim->counted = claim->faulted = false;
    rlock__lock_words(claim->lock, NULL);
    rlock__claim_phase(claim, RLOCK__HOLDING);
    rlock__lock_event(claim->lock, RLOCK_ACQUIRED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__holding_plan(claim, request->sent_us);
    if (claim->again) { /* notified meanwhile: perhaps it was taken away already */
        rlock__holding_check(claim);
    }
    rlock__mode_of(claim->lock->gate)->granted(claim, request, answer);
}

static void rlock__attempt_answered(rlock__claim *claim, const rlock_request *request,
                                    const rlock_answer *answer) {
    rlock_answer nonsense = *answer;
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE);
    claim->lock->gate->crowd->attempting = NULL;
    if (answer->outcome == RLOCK_OUTCOME_DONE) {
        rlock__granted(claim, request, answer);
    } else if (answer->outcome == RLOCK_OUTCOME_HELD) {
        rlock__refused(claim, answer);
    } else {
        if (answer->outcome != RLOCK_OUTCOME_FAULT) { /* no answer to an acquire */
            nonsense.outcome = RLOCK_OUTCOME_FAULT;
            nonsense.fault = RLOCK_FAULT_OTHER;
            nonsense.text = "unexpected reply";
        }
        rlock__attempt_failed(claim, &nonsense);
    }
}

/* True if the hold may not be handed over locally any more: other clients want the key too, so it
 * stays in this one for at most 20 ms after its grant, however often it is renewed; and for less if
 * the lease is so short that too little of it would be left for the next holder. */
static bool rlock__hand_over_ends(const rlock__claim *held) {
    int64_t limit_us =
        rlock__min(RLOCK__HAND_OVER_MAX_US, held->lock->lease_ms * (int64_t)1000 / 16);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING);
    return held->registered || /* which it is from its 100 ms on */
           (uint32_t)rlock__client_of(held->lock->gate)->now_us - held->granted_us >
               (uint32_t)limit_us;
}

/* True if the lease of the hold fits what the next waiter asked for, a sixteenth more or less: what
 * is left of it here, and how long the server would keep it if this process died. */
static bool rlock__lease_fits(const rlock__claim *held, const rlock__claim *next) {
    const rlock_client *client = rlock__client_of(held->lock->gate);
    int64_t lease_ms = next->lock->lease_ms;
    int64_t wanted_us = rlock__lease_end(client, client->now_us, lease_ms);
    return lease_ms <= held->lock->lease_ms && held->longest_ms <= lease_ms + lease_ms / 16 &&
           held->until_us + lease_ms * 1000 / 16 >= wanted_us;
}

/* Returns the waiter for a local hand-over, or NULL. Neither claim may have a request in flight;
 * the lease must be nearly fresh and at most 20 ms old, so that other clients get the key too. */
static rlock__claim *rlock__successor(const rlock__claim *held) {
    const rlock__gate *gate = held->lock->gate;
    rlock__claim *next = rlock__waiter(gate);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING);
    if (!next || !held->handovers || rlock__hand_over_ends(held)) {
        return NULL;
    }
    if (held->work || next->work || next->exists) {
        return NULL;
    }
    if (next->lock->fencing != (held->fence != 0)) {
        return NULL;
    }
    return rlock__lease_fits(held, next) ? next : NULL;
}

/* Hands the hold over to the next waiter of this client, if there is one: with its token, its lease
 * and the next fencing token, and without the server. The waiter's own claim, which nobody was
 * asked for, ends. False: the caller has to release. */
static bool rlock__hand_over(rlock__claim *held) {
    rlock_client *client = rlock__client_of(held->lock->gate);
    rlock__claim *next = rlock__successor(held);
    int64_t since_us = rlock__since(held);
    rlock *to;
    RLOCK_ASSERT(rlock__handle_of(held));
    if (!next) {
        return false;
    }
    to = next->lock;
    RLOCK_ASSERT(next->phase == RLOCK__ATTEMPTING && !next->exists);
    RLOCK_ASSERT(to != held->lock);
    rlock__report_handed(held, next);
    rlock__claim_part(held, RLOCK_RELEASED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__claim_gone(next);
    rlock__lock_unref(held->lock);
    rlock__claim_give(held, to);
    rlock__limit_begin(to);
    held->until_us =
        rlock__min(held->until_us, rlock__deadline(held, client->now_us, to->lease_ms));
    held->fence += to->fencing;
    held->handovers--;
    held->yields = true;
    held->counted = false;
    rlock__lock_words(to, NULL);
    rlock__lock_event(to, RLOCK_ACQUIRED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__holding_plan(held, since_us);
    client->stats.released++;
    client->stats.handed_on++;
    return true;
}

#endif /* RLOCK_CORE_GRANTING_H */
