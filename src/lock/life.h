/* ------------------------------------------------------------------------------------------------
 * >>life - of a token: its acquire, its hold with the watchdog, its release until it is surely gone
 */

#ifndef RLOCK_LOCK_LIFE_H
#define RLOCK_LOCK_LIFE_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/pool.h"
#include "runtime/client.h"
#include "runtime/gone.h"
#include "lock/claim.h"
#include "lock/report.h"
#include "lock/due.h"
#include "lock/gate.h"
#include "lock/mode.h"

/* queue.lua keeps a queue for so many command timeouts after a waiter joined it. */
#define RLOCK__QUEUE_TIMEOUTS 30

/* Ends a claim of which nothing is left at the server. */
static void rlock__claim_gone(rlock__claim *claim) {
    rlock *lock = claim->lock;
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    RLOCK_ASSERT(!claim->in_flight || client->life == RLOCK__CLOSED);
    RLOCK_ASSERT(client->phases[claim->phase]);
    RLOCK_ASSERT(lock->references && gate->references);
    gate->references++;
    if (rlock__handle_of(claim)) {
        rlock__claim_orphan(claim);
    }
    if (claim->in_flight) { /* the store is closed */
        rlock__pool_put(&client->flights, claim->in_flight);
    }
    client->phases[claim->phase]--;
    rlock__claim_unlink(claim);
    rlock__pool_put(&client->claims, claim);
    rlock__shutdown_end(client, RLOCK_OK);
    rlock__lock_unref(lock);
    rlock__gate_unref(gate);
}

/* Returns for how long the server remembers a position in the queue, if nobody else joins. */
static int64_t rlock__position_ms(const rlock_client *client) {
    return (int64_t)client->command_timeout_ms * RLOCK__QUEUE_TIMEOUTS;
}

/* Returns for how long a hold that stays is still to be there; 0 = its time is over. */
static int64_t rlock__stay_ms(const rlock__claim *claim) {
    int64_t left_us = claim->check_us - claim->lock->gate->client->now_us;
    RLOCK_ASSERT(claim->stays && claim->phase == RLOCK__RELEASING);
    if (left_us <= 0) {
        return 0;
    }
    return left_us < RLOCK_LEASE_MIN_MS * 1000 ? RLOCK_LEASE_MIN_MS : (left_us + 999) / 1000;
}

/* The last renewal of a hold that stays was answered. True: nothing more is to be done. If the
 * token was not there, what may still come of it is cleaned up, as after a release. A quorum may
 * give less than was asked for, if one of its servers did not answer an earlier renewal. */
static bool rlock__stay_answered(rlock__claim *claim, const rlock_request *request,
                                 const rlock_answer *answer, bool gone) {
    RLOCK_ASSERT(claim->stays && claim->phase == RLOCK__RELEASING);
    if (answer->outcome == RLOCK_OUTCOME_DONE) {
        if (rlock__given_ms(request, answer) < request->lease_ms) {
            claim->cut = true;
        }
        return true; /* whoever has the token may use it from now on */
    }
    if (answer->outcome != RLOCK_OUTCOME_FAULT || answer->fault == RLOCK_FAULT_TYPE) {
        claim->stays = false;
    } else if (!answer->undone && answer->fault != RLOCK_FAULT_DOWN) {
        claim->cut = true;
    }
    return gone;
}

/* Queued kinds: returns the waiter whose acquire follows the release in the same write, or NULL:
 * the first of this client, if it is likely the first at the server too. */
static rlock__claim *rlock__follower(const rlock__claim *held) {
    rlock__claim *first = rlock__waiter(held->lock->gate);
    bool named = first && held->ours && !first->in_flight && first->may_exist;
    RLOCK_ASSERT(held->phase == RLOCK__RELEASING);
    return RLOCK__HAS_KINDS && named ? first : NULL;
}

static void rlock__releasing_arm(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING);
    RLOCK_ASSERT(claim->may_exist);
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
        rlock__releasing_arm(lock->claim);
    }
}

/* The wait of that acquire is over before the release has ended. Nothing was sent for it: so it
 * does not end with UNKNOWN, as the release may. */
static void rlock__following_over(rlock *lock) {
    const rlock_client *client = lock->gate->client;
    int status = lock->ready.status;
    RLOCK_ASSERT(lock->claim && lock->claim->phase == RLOCK__RELEASING);
    if (status != RLOCK_OK && status != RLOCK_ERR_UNKNOWN) {
        rlock__following_end(lock, status, lock->more ? lock->more->text : NULL);
    } else {
        rlock__following_end(lock, RLOCK_ERR_CONN, rlock__unsent_text(client));
    }
}

/* True if a release was refused, and the waiter may be in the queue still: no lease ends that. */
static bool rlock__position_stays(const rlock__claim *claim, const rlock_answer *answer) {
    const rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING);
    RLOCK_ASSERT(!claim->joined || rlock__queued(claim->lock->gate));
    return claim->joined && answer->outcome == RLOCK_OUTCOME_FAULT &&
           answer->fault != RLOCK_FAULT_TYPE &&
           client->now_us < claim->over_us + rlock__position_ms(client) * 1000;
}

/* Plans one more release. */
static void rlock__releasing_again(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    int64_t lease_ms = rlock__handle_of(claim) ? claim->lock->lease_ms : claim->longest_ms;
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING && claim->may_exist);
    RLOCK_ASSERT(!claim->in_flight && lease_ms >= RLOCK_LEASE_MIN_MS);
    if (claim->joined && claim->over_us && claim->over_us <= client->now_us) {
        /* Each lease is over, as far as that is known: only its position is left. */
        lease_ms = rlock__position_ms(client);
    }
    claim->next_us = client->now_us + rlock__clean_up_pause_us(lease_ms);
    rlock__releasing_arm(claim);
}

/* Submits a release; `next` is the waiter whose acquire follows it. Of a hold that stays it is a
 * renewal, until its time is over. */
static void rlock__releasing_ask(rlock__claim *claim, uint64_t next) {
    int64_t stay_ms = RLOCK__HAS_TOKENS && claim->stays ? rlock__stay_ms(claim) : 0;
    rlock_request *request;
    RLOCK_ASSERT(claim->may_exist && next != claim->token);
    claim->stays = RLOCK__HAS_TOKENS && stay_ms > 0;
    request = rlock__claim_request(claim, stay_ms ? RLOCK_OP_RENEW : RLOCK_OP_RELEASE, stay_ms,
                                   claim->lock->gate->client->now_us);
    if (request) {
        request->flags = (uint8_t)(stay_ms ? RLOCK_REQUEST_LAST : 0u);
        request->next = next;
        rlock__claim_submit(claim, request);
    } else {
        if (rlock__handle_of(claim)) {
            rlock__lock_note(claim->lock, RLOCK_FAULT_NOMEM, NULL, false);
        }
        claim->over_us = 0; /* a server that is not asked does not count */
        rlock__releasing_again(claim);
    }
}

/* Lets the token go at the server, until it is surely gone. The claim may be freed by this. */
static void rlock__claim_let_go(rlock__claim *claim) {
    rlock__claim *follower;
    bool held = claim->phase == RLOCK__HOLDING;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(!held || claim->may_exist);
    RLOCK_ASSERT(held || !rlock__handle_of(claim));
    rlock__claim_recall(claim);
    if (!held && !claim->may_exist) {
        rlock__claim_gone(claim);
        return;
    }
    claim->may_exist = true;
    claim->joined = !held && rlock__queued(claim->lock->gate);
    claim->over_us = 0;
    claim->next_us = RLOCK__NEVER;
    rlock__claim_phase(claim, RLOCK__RELEASING);
    rlock__shutdown_end(claim->lock->gate->client, RLOCK_OK); /* or a drain */
    rlock__releasing_arm(claim);
    follower = held && !(RLOCK__HAS_TOKENS && claim->stays) ? rlock__follower(claim) : NULL;
    rlock__releasing_ask(claim, follower ? follower->token : 0);
    if (follower) {
        rlock__claim_attempt(follower, true);
    }
}

/* The connection is back: cleans up before any attempt for the key. */
static void rlock__releasing_up(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING);
    if (!claim->in_flight) {
        claim->next_us = RLOCK__NEVER;
        rlock__releasing_arm(claim);
        rlock__releasing_ask(claim, 0);
    }
}

static void rlock__releasing_fire(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    rlock *lock = rlock__handle_of(claim);
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING);
    RLOCK_ASSERT(!lock || !lock->ready.event);
    if (lock && rlock__following(lock) && rlock__following(lock)->until_us <= client->now_us) {
        rlock__following_over(lock);
    }
    if (lock && claim->until_us <= client->now_us) {
        if (client->up && claim->in_flight) {
            rlock__lock_note(lock, RLOCK_FAULT_UNKNOWN, NULL, false); /* it is out just now */
        } else if (lock->ready.status == RLOCK_OK) {
            rlock__lock_note(lock, client->fault, client->fault_text, false);
        }
        rlock__report(claim, RLOCK_REPORT_LET_GO, lock->ready.status);
        rlock__claim_part(claim, RLOCK_RELEASED, lock->ready.status, RLOCK_REASON_NONE);
    }
    if (claim->next_us <= client->now_us) {
        claim->next_us = RLOCK__NEVER;
        rlock__releasing_ask(claim, 0);
    }
    rlock__releasing_arm(claim);
}

/* The token is not there now; `gone`: and never again. */
static void rlock__releasing_done(rlock__claim *claim, int64_t sent_us, bool gone) {
    rlock__gate *gate = claim->lock->gate;
    int64_t trip_us = gate->client->now_us - sent_us;
    bool yields = claim->yields;
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING && !claim->in_flight);
    gate->references++;
    if (gone) {
        rlock__claim_gone(claim);
    } else {
        rlock__releasing_again(claim);
    }
    if (yields) { /* others were kept waiting: a push to them, and their attempt, come first */
        rlock__gate_give_way(gate, trip_us > 0 ? 2 * trip_us : 0); /* 0: sent in this dispatch */
    } else {
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS); /* nobody tells us of our own deletes */
    }
    if (RLOCK__HAS_KINDS && gate->client->mixed) {
        rlock__gate_wake_others(gate);
    }
    rlock__gate_unref(gate);
}

static void rlock__releasing_answered(rlock__claim *claim, const rlock_request *request,
                                      const rlock_answer *answer) {
    rlock_client *client = claim->lock->gate->client;
    int verdict = RLOCK_ERR_NOT_HELD;
    rlock_reason reason =
        answer->outcome == RLOCK_OUTCOME_GONE ? RLOCK_REASON_DELETED : RLOCK_REASON_STOLEN;
    bool gone = rlock__surely_gone(answer, &claim->over_us, client->now_us, claim->longest_ms,
                                   client->command_timeout_ms) &&
                !rlock__position_stays(claim, answer);
    RLOCK_ASSERT(request->op == (claim->stays ? RLOCK_OP_RENEW : RLOCK_OP_RELEASE));
    RLOCK_ASSERT(claim->may_exist);
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING && !claim->in_flight);
    RLOCK_ASSERT(claim->longest_ms >= RLOCK_LEASE_MIN_MS);
    if (RLOCK__HAS_TOKENS && claim->stays) {
        gone = rlock__stay_answered(claim, request, answer, gone);
    }
    if (answer->outcome == RLOCK_OUTCOME_FAULT) {
        verdict = rlock__on_fault[answer->fault][RLOCK__IN_RELEASE];
    } else if (answer->outcome == RLOCK_OUTCOME_DONE) {
        /* Of one that stays an earlier renewal, not answered, may come late and cut it. */
        verdict = RLOCK__HAS_TOKENS && claim->stays && claim->cut ? RLOCK_ERR_UNKNOWN : RLOCK_OK;
        reason = RLOCK_REASON_NONE;
    }
    if (verdict != RLOCK__RETRY && rlock__handle_of(claim)) { /* those of a repeated one go */
        rlock__lock_text(claim->lock, verdict == RLOCK_OK ? NULL : answer->text);
    }
    if (gone && !rlock__handle_of(claim)) {
        rlock__report(claim, RLOCK_REPORT_CLEANED, RLOCK_OK);
    } else if (verdict != RLOCK__RETRY && rlock__handle_of(claim)) {
        rlock__report(claim, RLOCK_REPORT_LET_GO, verdict);
    }
    if (verdict != RLOCK__RETRY) {
        if (verdict == RLOCK_OK && claim->counted) {
            client->stats.released++;
        }
        rlock__claim_part(claim, RLOCK_RELEASED, verdict, reason);
        rlock__releasing_done(claim, request->sent_us, gone);
    } else if (gone && !rlock__handle_of(claim)) { /* its lease is over, whatever was said */
        rlock__releasing_done(claim, request->sent_us, true);
    } else {
        if (rlock__handle_of(claim)) {
            rlock__lock_note(claim->lock, answer->fault, answer->text, false);
        }
        rlock__releasing_again(claim);
    }
}

/* Ends an acquire without a grant; its token is cleaned up, the next waiter makes an attempt. */
static void rlock__acquire_end(rlock__claim *claim, int status) {
    rlock__gate *gate = claim->lock->gate;
    bool head = rlock__waiter(gate) == claim;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(status != RLOCK_OK);
    RLOCK_ASSERT(status != RLOCK__RETRY);
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->lock->ready.event == RLOCK_ACQUIRED);
    gate->references++;
    if (rlock__handle_of(claim) &&
        status != claim->lock->ready.status) { /* the words were of another end */
        rlock__lock_text(claim->lock, NULL);
    }
    rlock__report(claim, RLOCK_REPORT_FAILED, status);
    rlock__claim_part(claim, RLOCK_ACQUIRED, status, RLOCK_REASON_NONE);
    if (RLOCK__HAS_TOKENS && claim->adopted) { /* it may be another's yet: only its lease ends it */
        rlock__claim_recall(claim);
        rlock__claim_gone(claim);
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS); /* it kept waiters from asking */
    } else {
        rlock__claim_let_go(claim);
    }
    if (head) {
        rlock__mode_of(gate)->next(gate);
    }
    rlock__gate_unref(gate);
}

/* An acquire began, or the connection is back. */
static void rlock__acquire_join(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    if (!rlock__mode_of(claim->lock->gate)->join(claim)) {
        rlock__acquire_end(claim, RLOCK_ERR_BUSY);
    }
}

/* Begins a claim in memory of the pool, or NULL. Returns it; NULL: no memory. */
static rlock__claim *rlock__claim_begin(rlock *lock, rlock__claim *claim) {
    rlock_client *client = lock->gate->client;
    RLOCK_ASSERT(!lock->claim);
    RLOCK_ASSERT(client->life == RLOCK__LIVE);
    if (!claim) {
        return NULL;
    }
    if (!rlock__pool_reserve(&client->flights, sizeof(rlock__flight),
                             rlock__flights_for(client->claims.count))) {
        rlock__pool_put(&client->claims, claim);
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

static rlock__claim *rlock__claim_new(rlock *lock) {
    rlock__pool *claims = &lock->gate->client->claims;
    return rlock__claim_begin(lock, (rlock__claim *)rlock__pool_take(claims, sizeof(rlock__claim)));
}

RLOCK__NOINLINE static int32_t rlock__lease_of(const rlock *lock, int64_t lease_ms) {
    int32_t own_ms = lock->more ? lock->more->watchdog_lease_ms : 0;
    int32_t watchdog_ms = own_ms ? own_ms : lock->gate->client->watchdog_lease_ms;
    RLOCK_ASSERT(lease_ms >= 0 && lease_ms <= RLOCK_LEASE_MAX_MS);
    RLOCK_ASSERT(watchdog_ms >= RLOCK_LEASE_MIN_MS);
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
    rlock__waiters *waiters;
    RLOCK_ASSERT(!lock->ready.event);
    RLOCK_ASSERT(!rlock__op_of(lock, 0) && !rlock__renewal(lock));
    RLOCK_ASSERT(done && (!once || until_us != RLOCK__NEVER));
    if (claim && !rlock__gate_opens(gate)) {
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
    lock->wait_until_us = claim->until_us = until_us;
    rlock__claim_arm(claim);
    waiters = gate->waiters;
    if (held && !rlock__shared(held)) {
        waiters->taken = true;
    }
    rlock__list_append(&waiters->list, &claim->link);
    rlock__report(claim, RLOCK_REPORT_ASKED, RLOCK_OK);
    rlock__acquire_join(claim);
    return RLOCK_OK;
}

/* A grant came too late, or was lost before it was delivered: retries while there is time. */
static void rlock__acquire_again(rlock__claim *claim, bool may_exist) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim) && rlock__state_of(lock) == RLOCK__WAITING_STATE);
    if (claim->phase == RLOCK__HOLDING) {
        rlock__claim_recall(claim);
        rlock__claim_phase(claim, RLOCK__ATTEMPTING);
        if (!rlock__gate_opens(gate)) {
            claim->may_exist = may_exist;
            rlock__acquire_end(claim, RLOCK_ERR_NOMEM);
            return;
        }
        rlock__list_append(gate->waiters->list.next, &claim->link); /* first, as it was */
    }
    lock->ready.event = 0;
    rlock__list_remove(&lock->ready.link);
    rlock__lock_text(lock, NULL);
    claim->may_exist = may_exist;
    claim->retry = true; /* of a queued kind it is asked for although others stand before it */
    lock->ready.status = RLOCK_ERR_UNKNOWN;
    if (lock->once || lock->wait_until_us <= client->now_us) {
        rlock__acquire_end(claim, RLOCK_ERR_UNKNOWN);
        return;
    }
    claim->until_us = lock->wait_until_us;
    claim->next_us = RLOCK__NEVER;
    rlock__claim_arm(claim);
    RLOCK_ASSERT(gate->waiters && !claim->in_flight);
    rlock__mode_of(gate)->attempt(gate);
}

static void rlock__refused(rlock__claim *claim, const rlock_answer *answer) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(gate->waiters && !claim->in_flight);
    RLOCK_ASSERT(rlock__handle_of(claim));
    if (answer->settled) {
        claim->may_exist = false;
    }
    rlock__lock_left(lock, answer->left_ms);
    lock->ready.status = RLOCK_ERR_TIMEOUT;
    gate->waiters->taken = true;
    rlock__lock_text(lock, NULL);
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
    RLOCK_ASSERT(spent->phase == RLOCK__ATTEMPTING && spent->may_exist && !spent->in_flight);
    rlock__claim_orphan(spent);
    claim = rlock__claim_new(lock);
    if (!claim) {
        lock->claim = spent;
        rlock__acquire_end(spent, RLOCK_ERR_NOMEM);
        return NULL;
    }
    RLOCK_ASSERT(claim->token != spent->token && lock->claim == claim);
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
    RLOCK_ASSERT(!claim->in_flight && rlock__handle_of(claim));
    if (rlock__may_exist(answer) || answer->spent) {
        claim->may_exist = true;
    }
    claim->lock->ready.left_ms = -1;
    rlock__lock_note(claim->lock, answer->fault, answer->text, verdict != RLOCK__RETRY);
    if (verdict != RLOCK__RETRY) {
        rlock__acquire_end(claim, verdict);
        return;
    }
    claim = answer->spent ? rlock__attempt_anew(claim) : claim;
    if (claim) {
        claim->retry = true; /* it may not be in the queue, or has an offer that ends */
        rlock__claim_sleep(claim, -1, true);
    }
}

/* The wait is over. */
static void rlock__attempt_fire(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    rlock *lock = claim->lock;
    bool up = client->up, existed = claim->may_exist;
    int status = lock->ready.status;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(lock->wait_until_us != RLOCK__NEVER);
    RLOCK_ASSERT(claim->until_us <= client->now_us && claim->next_us == RLOCK__NEVER);
    RLOCK_ASSERT(lock->gate->waiters && rlock__handle_of(claim));
    rlock__claim_recall(claim);
    if (status != RLOCK_ERR_TIMEOUT && claim->may_exist && !existed) {
        status = RLOCK_ERR_UNKNOWN;
    } else if (status == RLOCK_OK && up && lock->gate->waiters->taken) { /* by others before it */
        status = lock->once ? RLOCK_ERR_BUSY : RLOCK_ERR_TIMEOUT;
    } else if (status == RLOCK_OK) {
        rlock__lock_note(lock, up ? RLOCK_FAULT_DOWN : client->fault, rlock__unsent_text(client),
                         false);
        status = lock->ready.status;
    }
    rlock__acquire_end(claim, status);
}

/* Returns why a hold ends at its deadline that no fault kept from being renewed, or NULL. */
static const char *rlock__expired_text(const rlock__claim *held) {
    int64_t now_us = held->lock->gate->client->now_us;
    const rlock__more *more = held->lock->more;
    if (more && more->hold_ms && more->until_us <= now_us) {
        return "max_hold_ms has passed";
    }
    if (!held->lock->renews && !rlock__renewal(held->lock)) {
        return NULL; /* nobody wanted it to be renewed */
    }
    return held->next_us <= now_us ? "no renewal was sent: the process or its event loop stalled"
                                   : "no renewal was answered in time";
}

/* Ends a hold as lost. `may_exist`: the token may be at the server, or arrive there: release it. */
static void rlock__claim_lose(rlock__claim *claim, rlock_reason reason, bool may_exist) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim));
    RLOCK_ASSERT(reason != RLOCK_REASON_NONE);
    RLOCK_ASSERT(reason != RLOCK_REASON_EXPIRED || claim->until_us <= gate->client->now_us);
    if (lock->ready.event) {
        rlock__acquire_again(claim, may_exist); /* nobody was told of it yet */
        return;
    }
    gate->references++;
    if (claim->faulted) {
        rlock__hold_fault(claim, gate->client->fault_text);
    }
    if (reason == RLOCK_REASON_EXPIRED && !(lock->more && lock->more->text)) {
        rlock__lock_text(lock, rlock__expired_text(claim));
    }
    if (rlock__renewal(lock)) {
        rlock__op_event(rlock__renewal(lock), RLOCK_ERR_LOST, lock->more ? lock->more->text : NULL);
    }
    if (reason != RLOCK_REASON_CLOSED) { /* else it is released, and counted as that */
        gate->client->stats.lost++;
        claim->counted = false;
    }
    rlock__report_lost(claim, reason);
    rlock__claim_part(claim, RLOCK_LOST, RLOCK_ERR_LOST, reason);
    if (may_exist) {
        rlock__claim_let_go(claim);
    } else {
        rlock__claim_recall(claim);
        rlock__claim_gone(claim);
    }
    rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS);
    rlock__gate_unref(gate);
}

#define RLOCK__HURRY_US 10000 /* the least time between two failed renewals */

/* Plans what comes next for a hold whose lease was asked for at since_us. */
static void rlock__holding_plan(rlock__claim *claim, int64_t since_us) {
    rlock_client *client = claim->lock->gate->client;
    int64_t lease_ms = claim->lock->lease_ms, third_us = lease_ms * 1000 / 3;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(lease_ms >= RLOCK_LEASE_MIN_MS);
    RLOCK_ASSERT(lease_ms <= RLOCK_LEASE_MAX_MS);
    claim->next_us = RLOCK__NEVER;
    if (claim->lock->renews) { /* a tenth earlier at random: holds of one age spread out */
        int64_t early_us = (int64_t)(rlock_client_random(client) % (uint64_t)(third_us / 10 + 1));
        claim->next_us =
            since_us - early_us + rlock__min(third_us, rlock__deadline(claim, 0, lease_ms) / 2);
        claim->next_us = claim->next_us < 0 ? 0 : claim->next_us; /* the clock began at 0 */
    }
    rlock__report_due(claim, claim->next_us, false);
    rlock__claim_arm(claim);
}

/* Plans the next renewal, or if there is no watchdog the next check. */
RLOCK__NOINLINE static void rlock__holding_retry(rlock__claim *claim, int64_t due_us) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && due_us > 0);
    if (claim->lock->renews) {
        claim->next_us = due_us;
    } else {
        claim->check_us = due_us;
        claim->retry = true;
    }
    rlock__claim_arm(claim);
}

/* Submits the renewal by hand that waits, else a renewal, or with lease 0 a check. */
static void rlock__holding_submit(rlock__claim *claim, int64_t lease_ms, bool urgent) {
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t now_us = claim->lock->gate->client->now_us;
    rlock_request *request;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && claim->may_exist);
    RLOCK_ASSERT(rlock__handle_of(claim));
    RLOCK_ASSERT(!renewal || (renewal->lease_ms && !renewal->sent));
    lease_ms = renewal ? renewal->lease_ms : lease_ms;
    if (claim->cut) {
        lease_ms = rlock__min(lease_ms, claim->longest_ms);
    }
    request =
        rlock__claim_request(claim, RLOCK_OP_RENEW, lease_ms, urgent ? now_us : claim->until_us);
    if (request) {
        claim->retry = false;
        if (renewal) {
            renewal->sent = true;
        }
        rlock__report_due(claim, lease_ms ? now_us : RLOCK__NEVER, true);
        rlock__claim_submit(claim, request);
    } else {
        rlock__holding_retry(claim, now_us + RLOCK__HURRY_US);
    }
}

/* A hint that the key changed: checks the hold, at once or after the request in flight. */
static void rlock__holding_check(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim));
    if (claim->in_flight) {
        claim->retry = true;
    } else {
        rlock__holding_submit(claim, 0, true);
    }
}

/* The connection is back: renews or checks before anything else. */
static void rlock__holding_up(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    if (!claim->in_flight) {
        rlock__holding_submit(claim, claim->lock->renews ? claim->lock->lease_ms : 0, true);
    }
}

/* True for a shared hold whose client is notified: it is not registered for push. When
 * notifications start it is checked: rlock__gate_pushing. */
static bool rlock__heard(const rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    return rlock__shared(claim) && !rlock__claim_id(claim) &&
           (claim->lock->gate->pushing & RLOCK_PUSH_NOTIFICATIONS);
}

/* Plans the next check of a hold that is registered for push, if no renewal comes before. */
static void rlock__holding_plan_check(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && claim->registered);
    claim->check_us = rlock__shared(claim)
                          ? RLOCK__NEVER
                          : rlock__add_ms(client->now_us, rlock__check_interval_ms(client));
}

/* A check is due. The first registers the hold for push; a later one finds what push missed. */
static void rlock__holding_due(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    bool many =
        client->tracked >= RLOCK__MANY_KEYS && (claim->lock->gate->pushing & RLOCK_PUSH_CHANGES);
    bool check = claim->retry || (claim->registered && many);
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    if (!claim->registered) {
        if (claim->lock->gate->pushing && !rlock__heard(claim)) {
            check = true;
        }
        claim->registered = true;
        rlock__gate_track(claim->lock->gate);
    }
    rlock__holding_plan_check(claim);
    if (check) {
        rlock__holding_check(claim);
    }
}

static void rlock__holding_fire(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim));
    if (claim->until_us <= client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
        return;
    }
    if (claim->check_us <= client->now_us) {
        rlock__holding_due(claim);
    }
    if (claim->next_us <= client->now_us) {
        claim->next_us = RLOCK__NEVER;
        if (claim->in_flight && !claim->in_flight->request.lease_ms) {
            rlock__claim_recall(claim); /* a renewal checks as well */
        }
        if (!claim->in_flight) {
            rlock__holding_submit(claim, claim->lock->lease_ms, false);
        }
    }
    rlock__claim_arm(claim);
}

static void rlock__renewed(rlock__claim *claim, const rlock_request *request,
                           const rlock_answer *answer) {
    rlock_client *client = claim->lock->gate->client;
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t lease_ms = rlock__given_ms(request, answer), until_us;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(!claim->in_flight && claim->may_exist);
    RLOCK_ASSERT(claim->until_us > client->now_us && lease_ms <= request->lease_ms);
    if (!request->lease_ms) {
        return;
    }
    until_us = rlock__deadline(claim, request->sent_us, lease_ms);
    RLOCK_ASSERT(until_us <= request->sent_us + lease_ms * 1000);
    if (lease_ms > claim->lock->lease_ms) { /* a shorter one was asked for since */
        until_us = rlock__min(until_us, claim->until_us);
    }
    rlock__report(claim, RLOCK_REPORT_RENEWED, RLOCK_OK);
    rlock__lock_text(claim->lock, NULL);
    claim->faulted = false;
    claim->until_us = until_us;
    if (lease_ms < request->lease_ms || (claim->cut && lease_ms < claim->lock->lease_ms)) {
        rlock__claim_lease(claim, lease_ms);
    }
    client->refused = false;
    client->stats.renewed++;
    if (claim->until_us <= client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
        return;
    }
    if (!claim->lock->ready.event) {
        rlock__lock_show(claim->lock, claim->until_us);
    }
    if (renewal && renewal->sent) {
        if (renewal->watchdog) {
            claim->lock->renews = true;
        }
        rlock__op_event(renewal, RLOCK_OK, NULL);
    }
    if (claim->registered) {
        rlock__holding_plan_check(claim); /* a renewal checks as well */
    }
    rlock__holding_plan(claim, request->sent_us);
}

/* Logs that a renewal was refused: once a hold, and once for all holds until one is renewed. What a
 * connection brings about is logged as that of the connection. */
static void rlock__renewal_refused(rlock *lock, const rlock_answer *answer) {
    rlock_client *client = lock->gate->client;
    RLOCK_ASSERT(answer->outcome == RLOCK_OUTCOME_FAULT && lock->claim);
    if (answer->fault > RLOCK_FAULT_UNKNOWN && lock->more && !lock->more->refused) {
        lock->more->refused = true;
        if (!client->refused) {
            client->refused = true;
            rlock_client_log(client, RLOCK_LOG_WARNING, "a renewal is refused", answer->text);
        }
    }
}

/* A renewal failed: the old deadline stands, the next attempt comes the sooner the nearer it is. */
static void rlock__renewal_failed(rlock__claim *claim, const rlock_request *request,
                                  const rlock_answer *answer) {
    rlock_client *client = claim->lock->gate->client;
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t delay_us = (claim->until_us - client->now_us) / 4;
    RLOCK_ASSERT(claim->until_us > client->now_us);
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && !claim->in_flight);
    rlock__hold_fault(claim, answer->text);
    claim->cut =
        claim->cut || (request->lease_ms && !answer->undone && answer->fault != RLOCK_FAULT_DOWN);
    delay_us = rlock__min(delay_us, claim->lock->lease_ms * (int64_t)100);
    if (!claim->lock->renews) {
        rlock__report_due(claim, RLOCK__NEVER, false);
    }
    if (renewal && renewal->sent) {
        rlock__op_event(renewal, rlock__on_fault[answer->fault][RLOCK__IN_RENEW], answer->text);
    }
    if (claim->retry || delay_us < RLOCK__HURRY_US) { /* it changed, perhaps behind this one */
        delay_us = RLOCK__HURRY_US;
    }
    rlock__holding_retry(claim, client->now_us + delay_us);
    rlock__renewal_refused(claim->lock, answer);
}

static void rlock__holding_answered(rlock__claim *claim, const rlock_request *request,
                                    const rlock_answer *answer) {
    bool fault = answer->outcome == RLOCK_OUTCOME_FAULT;
    const rlock_terms *terms = rlock__terms_of(claim->lock);
    bool others = RLOCK__HAS_KINDS && terms && terms->count > 1; /* keys still ours */
    RLOCK_ASSERT(request->op == RLOCK_OP_RENEW);
    RLOCK_ASSERT(rlock__handle_of(claim));
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && !claim->in_flight);
    RLOCK_ASSERT(claim->may_exist);
    if (claim->until_us <= claim->lock->gate->client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED,
                          true); /* settled before what came too late */
        return;
    }
    if (answer->outcome == RLOCK_OUTCOME_GONE) {
        rlock__claim_lose(claim, RLOCK_REASON_DELETED, !answer->settled || others);
        return;
    }
    if (answer->outcome == RLOCK_OUTCOME_STOLEN || answer->outcome == RLOCK_OUTCOME_HELD ||
        (fault && rlock__on_fault[answer->fault][RLOCK__IN_WATCHDOG] != RLOCK__RETRY)) {
        if (fault) {
            rlock__hold_fault(claim, answer->text);
        }
        rlock__claim_lose(claim, RLOCK_REASON_STOLEN, (!answer->settled && !fault) || others);
        return;
    }
    if (fault) {
        rlock__renewal_failed(claim, request, answer);
    } else {
        rlock__renewed(claim, request, answer);
    }
    if (claim->phase == RLOCK__HOLDING && !claim->in_flight &&
        (rlock__renewal(claim->lock) || (claim->retry && !fault))) {
        rlock__holding_submit(claim, 0, true); /* asked for meanwhile */
    }
}

#define RLOCK__AGE_MS 100 /* a hold that lives longer is registered for push */

/* A hold of the handle begins: max_hold_ms counts from now. */
static void rlock__limit_begin(rlock *lock) {
    RLOCK_ASSERT(lock->claim);
    if (lock->more) {
        lock->more->refused = false;
        lock->more->until_us = rlock__add_ms(lock->gate->client->now_us, lock->more->hold_ms);
    }
}

/* A hold begins that the store has given. False: it came too late. */
static bool rlock__hold_begin(rlock__claim *claim, const rlock_request *request, int64_t lease_ms) {
    claim->granted_us = (uint32_t)request->sent_us;
    claim->yields = false;
    rlock__limit_begin(claim->lock);
    claim->until_us = rlock__deadline(claim, request->sent_us, lease_ms);
    if (claim->until_us <= claim->lock->gate->client->now_us) {
        return false;
    }
    claim->may_exist = true;
    rlock__claim_lease(claim, lease_ms);
    RLOCK_ASSERT(claim->until_us <= request->sent_us + lease_ms * 1000);
    claim->check_us = request->sent_us + RLOCK__AGE_MS * 1000;
    claim->registered = false;
    claim->counted = claim->faulted = false;
    return true;
}

/* ... and is told. */
static void rlock__hold_owe(rlock__claim *claim, const rlock_request *request) {
    rlock__lock_text(claim->lock, NULL);
    rlock__claim_phase(claim, RLOCK__HOLDING);
    rlock__lock_event(claim->lock, RLOCK_ACQUIRED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__holding_plan(claim, request->sent_us);
}

/* --- a hold that another client has given away --- */

/* The command timeout is over. */
static void rlock__adopt_fire(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(rlock__adopting(claim) && claim->until_us <= client->now_us);
    rlock__claim_recall(claim);
    if (claim->cut) { /* it was sent */
        rlock__acquire_end(claim, RLOCK_ERR_UNKNOWN);
        return;
    }
    rlock__lock_note(claim->lock, client->up ? RLOCK_FAULT_DOWN : client->fault,
                     rlock__unsent_text(client), true);
    rlock__acquire_end(claim, claim->lock->ready.status);
}

static void rlock__adopt_answered(rlock__claim *claim, const rlock_request *request,
                                  const rlock_answer *answer) {
    rlock__waiters *waiters = claim->lock->gate->waiters;
    RLOCK_ASSERT(rlock__adopting(claim) && !claim->in_flight);
    RLOCK_ASSERT(request->op == RLOCK_OP_RENEW && rlock__handle_of(claim));
    if (answer->outcome == RLOCK_OUTCOME_FAULT) {
        rlock__lock_note(claim->lock, answer->fault, answer->text, true);
        rlock__acquire_end(claim, claim->lock->ready.status);
    } else if (answer->outcome != RLOCK_OUTCOME_DONE) {
        rlock__acquire_end(claim, RLOCK_ERR_NOT_HELD);
    } else if (!rlock__hold_begin(claim, request, rlock__given_ms(request, answer))) {
        rlock__acquire_end(claim, RLOCK_ERR_UNKNOWN);
    } else {
        rlock__hold_owe(claim, request);
        if (waiters && !rlock__shared(claim)) {
            waiters->taken = true;
        }
    }
}

static void rlock__claims_fire(rlock_timer *timer) {
    rlock_client *client = RLOCK__OF(timer, rlock_client, due_timer);
    rlock_link due;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    rlock__list_init(&due);
    rlock__due_take(client, &due);
    while (!rlock__list_empty(&due)) {
        rlock__claim *claim = RLOCK__OF(due.next, rlock__claim, due);
        rlock__list_remove(&claim->due);
        if (!rlock__claim_is_due(claim)) {
            rlock__claim_arm(claim);
        } else if (rlock__adopting(claim)) {
            rlock__adopt_fire(claim);
        } else if (claim->phase == RLOCK__ATTEMPTING) {
            rlock__attempt_fire(claim);
        } else if (claim->phase == RLOCK__HOLDING) {
            rlock__holding_fire(claim);
        } else {
            rlock__releasing_fire(claim);
        }
    }
    rlock__due_wait(client);
}

static void rlock__granted(rlock__claim *claim, const rlock_request *request,
                           const rlock_answer *answer) {
    rlock__waiters *waiters = claim->lock->gate->waiters;
    int64_t lease_ms = rlock__given_ms(request, answer);
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(waiters && !claim->in_flight);
    RLOCK_ASSERT(rlock__handle_of(claim) && !claim->lock->ready.event);
    if (!rlock__hold_begin(claim, request, lease_ms)) {
        rlock__acquire_again(claim, true);
        return;
    }
    claim->fence = answer->fence;
    waiters->polls = 0;
    if (!rlock__shared(claim)) {
        waiters->taken = true;
    }
    claim->ours = answer->ours;
    rlock__hold_owe(claim, request);
    if (claim->retry) { /* notified meanwhile: perhaps it was taken away already */
        rlock__holding_check(claim);
    }
    rlock__mode_of(claim->lock->gate)->granted(claim, request, answer);
}

static void rlock__attempt_answered(rlock__claim *claim, const rlock_request *request,
                                    const rlock_answer *answer) {
    rlock_answer nonsense;
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE);
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING && !claim->in_flight);
    RLOCK_ASSERT(rlock__queued(claim->lock->gate) ||
                 claim->lock->gate->waiters->attempting == claim);
    claim->lock->gate->waiters->attempting = NULL;
    if (answer->outcome == RLOCK_OUTCOME_DONE) {
        rlock__granted(claim, request, answer);
    } else if (answer->outcome == RLOCK_OUTCOME_HELD) {
        rlock__refused(claim, answer);
    } else {
        if (answer->outcome != RLOCK_OUTCOME_FAULT) { /* no answer to an acquire */
            nonsense = *answer;
            nonsense.outcome = RLOCK_OUTCOME_FAULT;
            nonsense.fault = RLOCK_FAULT_OTHER;
            nonsense.text = "unexpected reply";
            answer = &nonsense;
        }
        rlock__attempt_failed(claim, answer);
    }
}

#define RLOCK__HAND_OVER_MAX_US 20000 /* how long after its grant a hold may be handed on */

/* True if the hold may not be handed over locally any more: other clients want the key too, so it
 * stays in this one for at most 20 ms after its grant, however often it is renewed; and for less if
 * the lease is so short that too little of it would be left for the next holder. */
static bool rlock__hand_over_ends(const rlock__claim *held) {
    int64_t limit_us =
        rlock__min(RLOCK__HAND_OVER_MAX_US, held->lock->lease_ms * (int64_t)1000 / 16);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING);
    return held->registered || /* which it is from its 100 ms on */
           (uint32_t)held->lock->gate->client->now_us - held->granted_us > (uint32_t)limit_us;
}

/* True if the lease of the hold fits what the next waiter asked for, a sixteenth more or less: what
 * is left of it here, and how long the server would keep it if this process died. */
static bool rlock__lease_fits(const rlock__claim *held, const rlock__claim *next) {
    const rlock_client *client = held->lock->gate->client;
    int64_t lease_ms = next->lock->lease_ms;
    int64_t wanted_us = rlock__lease_end(client, client->now_us, lease_ms);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && next->phase == RLOCK__ATTEMPTING);
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
    if (held->in_flight || next->in_flight || next->may_exist) {
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
    rlock_client *client = held->lock->gate->client;
    rlock__claim *next = rlock__successor(held);
    int64_t since_us = rlock__since(held);
    rlock *to;
    RLOCK_ASSERT(rlock__handle_of(held));
    RLOCK_ASSERT(held->until_us > client->now_us);
    if (!next) {
        return false;
    }
    RLOCK_ASSERT(held->handovers && !held->in_flight);
    RLOCK_ASSERT(!rlock__queued(held->lock->gate));
    to = next->lock;
    RLOCK_ASSERT(next->phase == RLOCK__ATTEMPTING && !next->may_exist);
    RLOCK_ASSERT(to != held->lock);
    rlock__report_handed(held, next);
    rlock__claim_part(held, RLOCK_RELEASED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__claim_gone(next);
    rlock__lock_unref(held->lock);
    rlock__claim_give(held, to);
    rlock__limit_begin(to);
    held->until_us =
        rlock__min(held->until_us, rlock__deadline(held, client->now_us, to->lease_ms));
    if (to->fencing) {
        held->fence++;
    }
    held->handovers--;
    held->yields = true;
    held->counted = false;
    rlock__lock_text(to, NULL);
    rlock__lock_event(to, RLOCK_ACQUIRED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__holding_plan(held, since_us);
    client->stats.released++;
    client->stats.handed_on++;
    return true;
}

#endif /* RLOCK_LOCK_LIFE_H */
