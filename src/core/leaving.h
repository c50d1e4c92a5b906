/* ------------------------------------------------------------------------------------------------
 * >>leaving - a token is let go until it is surely gone
 */

#ifndef RLOCK_CORE_LEAVING_H
#define RLOCK_CORE_LEAVING_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/pool.h"
#include "core/client.h"
#include "core/gone.h"
#include "core/claim.h"
#include "core/report.h"
#include "core/due.h"
#include "core/gate.h"
#include "core/mode.h"

/* queue.lua keeps a queue for so many command timeouts after a waiter joined it. */
#define RLOCK__QUEUE_TIMEOUTS 30

/* Ends a claim of which nothing is left at the server. */
static void rlock__claim_gone(rlock__claim *claim) {
    rlock *lock = claim->lock;
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = rlock__client_of(gate);
    RLOCK_ASSERT(!claim->work || client->life == RLOCK__CLOSED);
    RLOCK_ASSERT(client->phases[claim->phase]);
    gate->references++;
    if (rlock__handle_of(claim)) {
        rlock__claim_orphan(claim);
    }
    if (claim->work) { /* the store is closed */
        rlock__work_put(client, claim->work);
    }
    client->phases[claim->phase]--;
    rlock__claim_unlink(claim);
    rlock__pool_put(&client->claims, claim, rlock__keeps(client));
    rlock__shutdown_end(client, RLOCK_OK);
    rlock__lock_unref(lock);
    rlock__gate_unref(gate);
}

/* Returns for how long the server remembers a position in the queue, if nobody else joins. */
static int64_t rlock__position_ms(const rlock_client *client) {
    return (int64_t)client->command_timeout_ms * RLOCK__QUEUE_TIMEOUTS;
}

/* Queued kinds: returns the waiter whose acquire follows the release in the same write, or NULL:
 * the first of this client, if it is likely the first at the server too. */
static rlock__claim *rlock__follower(const rlock__claim *held) {
    rlock__claim *first = rlock__waiter(held->lock->gate);
    return RLOCK__HAS_KINDS && first && held->ours && !first->work && first->exists ? first : NULL;
}

static void rlock__letting_go_arm(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__LETTING_GO);
    if (!rlock__handle_of(claim)) {
        claim->until_us = RLOCK__NEVER; /* nobody waits for it */
    }
    rlock__claim_arm(claim);
}

/* Ends the acquire that follows the release of a handle. */
static void rlock__following_end(rlock *lock, int status, const char *text) {
    rlock__op *op = rlock__following(lock);
    RLOCK_ASSERT(op && status != RLOCK_OK);
    op->follows = false;
    rlock__op_event(op, status, text);
    if (lock->claim) {
        rlock__letting_go_arm(lock->claim);
    }
}

/* The wait of that acquire is over before the release has ended. Nothing was sent for it: so it
 * does not end with UNKNOWN, as the release may. */
static void rlock__following_over(rlock *lock) {
    const rlock_client *client = rlock__client_of(lock->gate);
    int status = lock->ready.status;
    if (status != RLOCK_OK && status != RLOCK_ERR_UNKNOWN) {
        rlock__following_end(lock, status, lock->more ? lock->more->text : NULL);
    } else {
        rlock__following_end(lock, RLOCK_ERR_CONN, rlock__unsent_words(client));
    }
}

/* True if each lease of this token is over, as far as that is known. */
static bool rlock__letting_go_late(const rlock__claim *claim) {
    return claim->of.over_us && claim->of.over_us <= rlock__client_of(claim->lock->gate)->now_us;
}

/* True if a release was refused, and the waiter may be in the queue still: no lease ends that. */
static bool rlock__position_stays(const rlock__claim *claim, const rlock_answer *answer) {
    const rlock_client *client = rlock__client_of(claim->lock->gate);
    return claim->joined && answer->outcome == RLOCK_OUTCOME_FAULT &&
           answer->fault != RLOCK_FAULT_TYPE &&
           client->now_us < claim->of.over_us + rlock__position_ms(client) * 1000;
}

/* Plans one more release. */
static void rlock__letting_go_again(rlock__claim *claim) {
    const rlock_client *client = rlock__client_of(claim->lock->gate);
    int64_t lease_ms = rlock__handle_of(claim) ? claim->lock->lease_ms : claim->longest_ms;
    RLOCK_ASSERT(claim->phase == RLOCK__LETTING_GO && claim->exists);
    if (claim->joined && rlock__letting_go_late(claim)) { /* only its position is left */
        lease_ms = rlock__position_ms(client);
    }
    claim->next_us = client->now_us + rlock__clean_up_pause_us(lease_ms);
    rlock__letting_go_arm(claim);
}

/* Submits a release; `next` is the waiter whose acquire follows it. */
static void rlock__letting_go_ask(rlock__claim *claim, uint64_t next) {
    rlock_request *request = rlock__claim_request(claim, RLOCK_OP_RELEASE, 0,
                                                  rlock__client_of(claim->lock->gate)->now_us);
    if (request) {
        request->next = next;
        rlock__claim_submit(claim, request);
    } else {
        if (rlock__handle_of(claim)) {
            rlock__lock_note(claim->lock, RLOCK_FAULT_NOMEM, NULL, false);
        }
        claim->of.over_us = 0; /* a server that is not asked does not count */
        rlock__letting_go_again(claim);
    }
}

/* Lets the token go at the server, until it is surely gone. The claim may be freed by this. */
static void rlock__claim_let_go(rlock__claim *claim) {
    rlock__claim *follower;
    bool held = claim->phase == RLOCK__HOLDING;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    rlock__claim_recall(claim);
    if (!held && !claim->exists) {
        rlock__claim_gone(claim);
        return;
    }
    claim->exists = true;
    claim->joined = !held && rlock__queued(claim->lock->gate);
    claim->of.over_us = 0;
    claim->next_us = RLOCK__NEVER;
    rlock__claim_phase(claim, RLOCK__LETTING_GO);
    rlock__shutdown_end(rlock__client_of(claim->lock->gate), RLOCK_OK); /* or a drain */
    rlock__letting_go_arm(claim);
    follower = held ? rlock__follower(claim) : NULL;
    rlock__letting_go_ask(claim, follower ? follower->token : 0);
    if (follower) {
        rlock__claim_attempt(follower, true);
    }
}

/* The connection is back: cleans up before any attempt for the key. */
static void rlock__letting_go_up(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__LETTING_GO);
    if (!claim->work) {
        claim->next_us = RLOCK__NEVER;
        rlock__letting_go_arm(claim);
        rlock__letting_go_ask(claim, 0);
    }
}

static void rlock__letting_go_fire(rlock__claim *claim) {
    rlock_client *client = rlock__client_of(claim->lock->gate);
    rlock *lock = rlock__handle_of(claim);
    RLOCK_ASSERT(claim->phase == RLOCK__LETTING_GO);
    if (lock && rlock__following(lock) && rlock__following(lock)->until_us <= client->now_us) {
        rlock__following_over(lock);
    }
    if (lock && claim->until_us <= client->now_us) {
        if (client->up && claim->work) {
            rlock__lock_note(lock, RLOCK_FAULT_UNKNOWN, NULL, false); /* it is out just now */
        } else if (lock->ready.status == RLOCK_OK) {
            rlock__lock_note(lock, client->fault, client->fault_text, false);
        }
        rlock__report(claim, RLOCK_REPORT_LET_GO, lock->ready.status);
        rlock__claim_part(claim, RLOCK_RELEASED, lock->ready.status, RLOCK_REASON_NONE);
    }
    if (claim->next_us <= client->now_us) {
        claim->next_us = RLOCK__NEVER;
        rlock__letting_go_ask(claim, 0);
    }
    rlock__letting_go_arm(claim);
}

/* The token is not there now; `gone`: and never again. */
static void rlock__letting_go_done(rlock__claim *claim, int64_t sent_us, bool gone) {
    rlock__gate *gate = claim->lock->gate;
    int64_t trip_us = rlock__client_of(gate)->now_us - sent_us;
    bool yields = claim->yields;
    RLOCK_ASSERT(claim->phase == RLOCK__LETTING_GO && !claim->work);
    gate->references++;
    if (gone) {
        rlock__claim_gone(claim);
    } else {
        rlock__letting_go_again(claim);
    }
    if (yields) { /* others were kept waiting: a push to them, and their attempt, come first */
        rlock__gate_give_way(gate, trip_us > 0 ? 2 * trip_us : 0); /* 0: sent in this dispatch */
    } else {
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS); /* nobody tells us of our own deletes */
    }
    if (RLOCK__HAS_KINDS && rlock__client_of(gate)->mixed) {
        rlock__gate_wake_others(gate);
    }
    rlock__gate_unref(gate);
}

static void rlock__letting_go_answered(rlock__claim *claim, const rlock_request *request,
                                       const rlock_answer *answer) {
    rlock_client *client = rlock__client_of(claim->lock->gate);
    int verdict = RLOCK_ERR_NOT_HELD;
    rlock_reason reason =
        answer->outcome == RLOCK_OUTCOME_GONE ? RLOCK_REASON_DELETED : RLOCK_REASON_STOLEN;
    bool gone = rlock__surely_gone(answer, &claim->of.over_us, client->now_us, claim->longest_ms,
                                   client->command_timeout_ms) &&
                !rlock__position_stays(claim, answer);
    RLOCK_ASSERT(request->op == RLOCK_OP_RELEASE);
    RLOCK_ASSERT(claim->exists);
    if (answer->outcome == RLOCK_OUTCOME_FAULT) {
        verdict = rlock__on_fault[answer->fault][RLOCK__IN_RELEASE];
    } else if (answer->outcome == RLOCK_OUTCOME_DONE) {
        verdict = RLOCK_OK;
        reason = RLOCK_REASON_NONE;
    }
    if (verdict != RLOCK__RETRY && rlock__handle_of(claim)) { /* those of a repeated one go */
        rlock__lock_words(claim->lock, verdict == RLOCK_OK ? NULL : answer->text);
    }
    if (gone && !rlock__handle_of(claim)) {
        rlock__report(claim, RLOCK_REPORT_CLEANED, RLOCK_OK);
    } else if (verdict != RLOCK__RETRY && rlock__handle_of(claim)) {
        rlock__report(claim, RLOCK_REPORT_LET_GO, verdict);
    }
    if (verdict != RLOCK__RETRY) {
        client->stats.released += verdict == RLOCK_OK && claim->counted;
        rlock__claim_part(claim, RLOCK_RELEASED, verdict, reason);
        rlock__letting_go_done(claim, request->sent_us, gone);
    } else if (gone && !rlock__handle_of(claim)) { /* its lease is over, whatever was said */
        rlock__letting_go_done(claim, request->sent_us, true);
    } else {
        if (rlock__handle_of(claim)) {
            rlock__lock_note(claim->lock, answer->fault, answer->text, false);
        }
        rlock__letting_go_again(claim);
    }
}

#endif /* RLOCK_CORE_LEAVING_H */
