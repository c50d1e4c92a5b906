/* ------------------------------------------------------------------------------------------------
 * >>attempt - an acquire that begins, is refused, fails, is repeated or ends
 */

#ifndef RLOCK_CORE_ATTEMPT_H
#define RLOCK_CORE_ATTEMPT_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/pool.h"
#include "core/client.h"
#include "core/gone.h"
#include "core/claim.h"
#include "core/report.h"
#include "core/due.h"
#include "core/gate.h"
#include "core/mode.h"
#include "core/leaving.h"

/* Ends an acquire without a grant; its token is cleaned up, the next waiter makes an attempt. */
static void rlock__acquire_end(rlock__claim *claim, int status) {
    rlock__gate *gate = claim->lock->gate;
    bool head = rlock__waiter(gate) == claim;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(status != RLOCK_OK);
    gate->references++;
    if (rlock__handle_of(claim) &&
        status != claim->lock->ready.status) { /* the words were of another end */
        rlock__lock_words(claim->lock, NULL);
    }
    rlock__report(claim, RLOCK_REPORT_FAILED, status);
    rlock__claim_part(claim, RLOCK_ACQUIRED, status, RLOCK_REASON_NONE);
    rlock__claim_let_go(claim);
    if (head) {
        rlock__mode_of(gate)->next(gate);
    }
    rlock__gate_unref(gate);
}

/* An acquire began, or the connection is back. */
static void rlock__acquire_join(rlock__claim *claim) {
    if (!rlock__mode_of(claim->lock->gate)->join(claim)) {
        rlock__acquire_end(claim, RLOCK_ERR_BUSY);
    }
}

static rlock__claim *rlock__claim_new(rlock *lock) {
    rlock_client *client = rlock__client_of(lock->gate);
    rlock__claim *claim;
    RLOCK_ASSERT(!lock->claim);
    claim = (rlock__claim *)rlock__pool_take(&client->claims, sizeof *claim);
    if (!claim) {
        return NULL;
    }
    if (!rlock__pool_reserve(&client->works, sizeof(rlock__work),
                             rlock__works_for(client->claims.count))) {
        rlock__pool_put(&client->claims, claim, rlock__keeps(client));
        return NULL;
    }
    rlock__ring_reserve(client);
    rlock__list_init(&claim->link);
    rlock__list_init(&claim->due);
    rlock__claim_give(claim, lock);
    claim->token = ++client->tokens;
    claim->until_us = claim->next_us = RLOCK__NEVER;
    claim->phase = RLOCK__ATTEMPTING;
    client->phases[RLOCK__ATTEMPTING]++;
    return claim;
}

RLOCK__NOINLINE static int32_t rlock__lease_of(const rlock *lock, int64_t lease_ms) {
    int32_t own_ms = lock->more ? lock->more->watchdog_lease_ms : 0;
    int32_t watchdog_ms = own_ms ? own_ms : rlock__client_of(lock->gate)->watchdog_lease_ms;
    return lease_ms ? (int32_t)lease_ms : watchdog_ms;
}

/* True if a hold that is acquired with this lease is renewed until it is released. */
static bool rlock__renews(const rlock *lock, int64_t lease_ms) {
    return lock->watchdog == RLOCK_WATCHDOG_ON ||
           (lock->watchdog == RLOCK_WATCHDOG_AUTO && lease_ms == 0);
}

/* Begins an acquire on a handle that is idle. */
static int rlock__acquire_start(rlock *lock, int64_t until_us, bool once, int64_t lease_ms,
                                rlock_callback *done, void *user) {
    rlock__gate *gate = lock->gate;
    const rlock__claim *held = rlock__holder(gate);
    rlock__claim *claim = rlock__claim_new(lock);
    rlock__crowd *crowd;
    RLOCK_ASSERT(!lock->ready.event);
    RLOCK_ASSERT(!rlock__op_of(lock, 0) && !rlock__renewal(lock));
    if (claim && !rlock__gate_crowd(gate)) {
        rlock__claim_gone(claim);
        claim = NULL;
    }
    if (!claim) {
        return RLOCK_ERR_NOMEM;
    }
    lock->done = done;
    lock->user = user;
    lock->once = once;
    lock->ready.status = RLOCK_OK;
    lock->ready.left_ms = -1;
    lock->lease_ms = rlock__lease_of(lock, lease_ms);
    lock->renews = rlock__renews(lock, lease_ms);
    lock->of.wait_until_us = claim->until_us = until_us;
    rlock__claim_arm(claim);
    crowd = gate->crowd;
    crowd->taken = crowd->taken || (held && !rlock__shared(held));
    rlock__list_append(&crowd->waiting, &claim->link);
    rlock__report(claim, RLOCK_REPORT_ASKED, RLOCK_OK);
    rlock__acquire_join(claim);
    return RLOCK_OK;
}

/* A grant came too late, or was lost before it was delivered: retries while there is time. */
static void rlock__acquire_again(rlock__claim *claim, bool exists) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = rlock__client_of(gate);
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim) && rlock__state_of(lock) == RLOCK__WAITING_STATE);
    if (claim->phase == RLOCK__HOLDING) {
        rlock__claim_recall(claim);
        rlock__claim_phase(claim, RLOCK__ATTEMPTING);
        if (!rlock__gate_crowd(gate)) {
            claim->exists = exists;
            rlock__acquire_end(claim, RLOCK_ERR_NOMEM);
            return;
        }
        rlock__list_append(gate->crowd->waiting.next, &claim->link); /* first, as it was */
    }
    lock->ready.event = 0;
    rlock__list_remove(&lock->ready.link);
    rlock__lock_words(lock, NULL);
    claim->exists = exists;
    claim->again = true; /* of a queued kind it is asked for although others stand before it */
    lock->ready.status = RLOCK_ERR_UNKNOWN;
    if (lock->once || lock->of.wait_until_us <= client->now_us) {
        rlock__acquire_end(claim, RLOCK_ERR_UNKNOWN);
        return;
    }
    claim->until_us = lock->of.wait_until_us;
    claim->next_us = RLOCK__NEVER;
    rlock__claim_arm(claim);
    rlock__mode_of(gate)->attempt(gate);
}

static void rlock__refused(rlock__claim *claim, const rlock_answer *answer) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    claim->exists = claim->exists && !answer->sure;
    rlock__lock_left(lock, answer->left_ms);
    lock->ready.status = RLOCK_ERR_TIMEOUT;
    gate->crowd->taken = true;
    rlock__lock_words(lock, NULL);
    if (lock->once) {
        rlock__acquire_end(claim, RLOCK_ERR_BUSY);
    } else {
        rlock__mode_of(gate)->refused(claim, answer);
    }
}

/* Makes another claim take the place of one whose token is spent, and lets that one go. Returns the
 * one that waits now, or NULL: without memory the acquire has ended. */
static rlock__claim *rlock__attempt_anew(rlock__claim *spent) {
    rlock *lock = spent->lock;
    rlock__claim *claim;
    RLOCK_ASSERT(spent->phase == RLOCK__ATTEMPTING && spent->exists && !spent->work);
    rlock__claim_orphan(spent);
    claim = rlock__claim_new(lock);
    if (!claim) {
        lock->claim = spent;
        rlock__acquire_end(spent, RLOCK_ERR_NOMEM);
        return NULL;
    }
    claim->until_us = spent->until_us;
    rlock__claim_arm(claim);
    rlock__list_append(&spent->link, &claim->link);
    rlock__claim_let_go(spent);
    return claim;
}

static void rlock__attempt_failed(rlock__claim *claim, const rlock_answer *answer) {
    int column = claim->lock->once ? RLOCK__IN_ATTEMPT : RLOCK__IN_WAIT;
    int verdict = rlock__on_fault[answer->fault][column];
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    claim->exists = claim->exists || rlock__may_exist(answer) || answer->spent;
    claim->lock->ready.left_ms = -1;
    rlock__lock_note(claim->lock, answer->fault, answer->text, verdict != RLOCK__RETRY);
    if (verdict != RLOCK__RETRY) {
        rlock__acquire_end(claim, verdict);
        return;
    }
    claim = answer->spent ? rlock__attempt_anew(claim) : claim;
    if (claim) {
        claim->again = true; /* it may not be in the queue, or has an offer that ends */
        rlock__claim_sleep(claim, -1, true);
    }
}

/* The wait is over. */
static void rlock__attempt_fire(rlock__claim *claim) {
    rlock_client *client = rlock__client_of(claim->lock->gate);
    rlock *lock = claim->lock;
    bool up = client->up, existed = claim->exists;
    int status = lock->ready.status;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(lock->of.wait_until_us != RLOCK__NEVER);
    rlock__claim_recall(claim);
    if (status != RLOCK_ERR_TIMEOUT && claim->exists && !existed) {
        status = RLOCK_ERR_UNKNOWN;
    } else if (status == RLOCK_OK && up &&
               claim->lock->gate->crowd->taken) { /* others were before it */
        status = lock->once ? RLOCK_ERR_BUSY : RLOCK_ERR_TIMEOUT;
    } else if (status == RLOCK_OK) {
        rlock__lock_note(lock, up ? RLOCK_FAULT_DOWN : client->fault, rlock__unsent_words(client),
                         false);
        status = lock->ready.status;
    }
    rlock__acquire_end(claim, status);
}

#endif /* RLOCK_CORE_ATTEMPT_H */
