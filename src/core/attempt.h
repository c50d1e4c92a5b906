/* ------------------------------------------------------------------------------------------------
 * >>attempt - an acquire that is refused, fails, is repeated or ends
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

static void rlock__attempt_failed(rlock__claim *claim, const rlock_answer *answer) {
    int column = claim->lock->once ? RLOCK__IN_ATTEMPT : RLOCK__IN_WAIT;
    int verdict = rlock__on_fault[answer->fault][column];
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    claim->exists = claim->exists || rlock__may_exist(answer);
    claim->lock->ready.left_ms = -1;
    rlock__lock_note(claim->lock, answer->fault, answer->text);
    if (verdict != RLOCK__RETRY) {
        rlock__acquire_end(claim, verdict);
    } else {
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
        rlock__lock_note(lock, up ? RLOCK_FAULT_DOWN : client->fault,
                         up ? NULL : client->fault_text);
        status = lock->ready.status;
    }
    rlock__acquire_end(claim, status);
}

#endif /* RLOCK_CORE_ATTEMPT_H */
