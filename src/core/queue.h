/* ------------------------------------------------------------------------------------------------
 * >>queue - the waiters of a queued kind: each joins the queue at the server, and is notified
 */

#ifndef RLOCK_CORE_QUEUE_H
#define RLOCK_CORE_QUEUE_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"
#include "core/client.h"
#include "core/claim.h"
#include "core/gate.h"

/* The server keeps the waiters in their order, and offers the lock to the first. So each makes one
 * attempt to join, and one when it is notified of its offer. The first of each client makes more,
 * now and then: this keeps its queue alive, and finds an offer whose notification was lost. */

static bool rlock__queue_join(rlock__claim *claim) {
    if (!claim->work) {
        rlock__claim_attempt(claim, false);
    }
    return true;
}

/* The waiter stands in the queue now. */
static void rlock__queue_refused(rlock__claim *claim, const rlock_answer *answer) {
    claim->exists = true;
    if (claim->again) {
        rlock__claim_attempt(claim, true); /* notified meanwhile */
    } else {
        rlock__claim_sleep(claim, answer->left_ms, !rlock__pushed(claim->lock->gate));
    }
}

/* Makes an attempt for the first waiter, which serves the queue for the others, and for those whose
 * attempt failed. The server removes a waiter that weighs more than there are permits now; so each
 * waiter that weighs less than all before it makes an attempt too. */
static void rlock__queue_attempt(rlock__gate *gate) {
    bool weighed = rlock__things_of(gate)->sort == 's';
    uint32_t least = UINT32_MAX;
    rlock_link *at = gate->crowd->waiting.next;
    for (; at != &gate->crowd->waiting; at = at->next) {
        rlock__claim *claim = RLOCK__OF(at, rlock__claim, link);
        uint32_t weight = claim->lock->more->terms.weight;
        if (!claim->work && (claim->again || weight < least)) {
            rlock__claim_attempt(claim, false);
        }
        least = weighed && weight < least ? weight : weighed ? least : 0;
    }
}

/* The server keeps with each waiter whether to notify it, and a notification may have been lost:
 * each waiter makes an attempt, after the answer to one in flight, which may be stale. */
static void rlock__queue_again(rlock__gate *gate) {
    rlock_link *at = gate->crowd->waiting.next;
    for (; at != &gate->crowd->waiting; at = at->next) {
        RLOCK__OF(at, rlock__claim, link)->again = true;
    }
    rlock__queue_attempt(gate);
}

/* A change that was pushed may be any waiter that comes or goes: it means nothing. */
static void rlock__queue_wake(rlock__gate *gate, int hint) {
    if (hint == RLOCK__HINT_MISSED) {
        rlock__queue_again(gate);
    } else if (hint == RLOCK__HINT_OURS) {
        gate->crowd->polls = 0;
        if (!rlock__pushed(gate)) {
            rlock__queue_attempt(gate);
        }
    }
}

/* The next waiter has its position already, and sleeps. */
static void rlock__queue_next(rlock__gate *gate) {
    if (rlock__waiter(gate) && !gate->crowd->timer.index) {
        rlock__gate_sleep(gate, -1, !rlock__pushed(gate));
    }
}

/* Next to a writer the readers of its owner are granted, whatever their position: a downgrade. */
static void rlock__queue_granted(rlock__claim *claim, const rlock_request *request,
                                 const rlock_answer *answer) {
    rlock_link *list = &claim->lock->gate->crowd->waiting, *at = list->next;
    (void)request;
    (void)answer;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    for (; rlock__owner_of(claim) && at != list; at = at->next) {
        rlock__claim *reader = RLOCK__OF(at, rlock__claim, link);
        if (rlock__may_downgrade(reader, claim)) {
            reader->again = true;
            if (!reader->work) {
                rlock__claim_attempt(reader, true);
            }
        }
    }
    rlock__queue_next(claim->lock->gate);
}

static const rlock__mode rlock__queueing = {
    rlock__queue_join,  rlock__queue_attempt, rlock__queue_next,   rlock__queue_wake,
    rlock__queue_again, rlock__queue_refused, rlock__queue_granted};

#endif /* RLOCK_CORE_QUEUE_H */
