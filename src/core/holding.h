/* ------------------------------------------------------------------------------------------------
 * >>holding - when a hold is renewed or checked, and what the answer means for it
 */

#ifndef RLOCK_CORE_HOLDING_H
#define RLOCK_CORE_HOLDING_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/list.h"
#include "core/client.h"
#include "core/claim.h"
#include "core/report.h"
#include "core/due.h"
#include "core/gate.h"
#include "core/mode.h"
#include "core/leaving.h"
#include "core/attempt.h"

/* Returns why a hold ends at its deadline that no fault kept from being renewed, or NULL. */
static const char *rlock__expired_words(const rlock__claim *held) {
    int64_t now_us = rlock__client_of(held->lock->gate)->now_us;
    const rlock__more *more = held->lock->more;
    if (more && more->hold_ms && more->until_us <= now_us) {
        return "max_hold_ms is over";
    }
    if (!held->lock->renews && !rlock__renewal(held->lock)) {
        return NULL; /* nobody wanted it to be renewed */
    }
    return held->next_us <= now_us ? "nothing was renewed: the process or its loop stood still"
                                   : "no renewal was answered in time";
}

/* Ends a hold as lost. `exists`: the token may be at the server, or arrive there: release it. */
static void rlock__claim_lose(rlock__claim *claim, rlock_reason reason, bool exists) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim));
    if (lock->ready.event) {
        rlock__acquire_again(claim, exists); /* nobody was told of it yet */
        return;
    }
    gate->references++;
    if (claim->faulted) {
        rlock__hold_fault(claim, rlock__client_of(gate)->fault_text);
    }
    if (reason == RLOCK_REASON_EXPIRED && !(lock->more && lock->more->text)) {
        rlock__lock_words(lock, rlock__expired_words(claim));
    }
    if (rlock__renewal(lock)) {
        rlock__op_event(rlock__renewal(lock), RLOCK_ERR_LOST, lock->more ? lock->more->text : NULL);
    }
    if (reason != RLOCK_REASON_CLOSED) { /* else it is released, and counted as that */
        rlock__client_of(gate)->stats.lost++;
        claim->counted = false;
    }
    rlock__report_lost(claim, reason);
    rlock__claim_part(claim, RLOCK_LOST, RLOCK_ERR_LOST, reason);
    if (exists) {
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
    rlock_client *client = rlock__client_of(claim->lock->gate);
    int64_t lease_ms = claim->lock->lease_ms, third_us = lease_ms * 1000 / 3;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(lease_ms >= RLOCK_LEASE_MIN_MS);
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
    if (claim->lock->renews) {
        claim->next_us = due_us;
    } else {
        claim->of.check_us = due_us;
        claim->again = true;
    }
    rlock__claim_arm(claim);
}

/* Submits the renewal by hand that waits, else a renewal, or with lease 0 a check. */
static void rlock__holding_submit(rlock__claim *claim, int64_t lease_ms, bool urgent) {
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t now_us = rlock__client_of(claim->lock->gate)->now_us;
    rlock_request *request;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && claim->exists);
    lease_ms = renewal ? renewal->lease_ms : lease_ms;
    if (claim->cut) {
        lease_ms = rlock__min(lease_ms, claim->longest_ms);
    }
    request =
        rlock__claim_request(claim, RLOCK_OP_RENEW, lease_ms, urgent ? now_us : claim->until_us);
    if (request) {
        claim->again = false;
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
    if (claim->work) {
        claim->again = true;
    } else {
        rlock__holding_submit(claim, 0, true);
    }
}

/* The connection is back: renews or checks before anything else. */
static void rlock__holding_up(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    if (!claim->work) {
        rlock__holding_submit(claim, claim->lock->renews ? claim->lock->lease_ms : 0, true);
    }
}

/* True for a shared hold whose client is notified: it is not registered for push. When
 * notifications start it is checked: rlock__gate_pushing. */
static bool rlock__heard(const rlock__claim *claim) {
    return rlock__shared(claim) && (claim->lock->gate->pushing & RLOCK_PUSH_NOTIFICATIONS);
}

/* Plans the next check of a hold that is registered for push, if no renewal comes before. */
static void rlock__holding_plan_check(rlock__claim *claim) {
    const rlock_client *client = rlock__client_of(claim->lock->gate);
    claim->of.check_us = rlock__shared(claim)
                             ? RLOCK__NEVER
                             : rlock__add_ms(client->now_us, rlock__check_interval_ms(client));
}

/* A check is due. The first registers the hold for push; a later one finds what push missed. */
static void rlock__holding_due(rlock__claim *claim) {
    const rlock_client *client = rlock__client_of(claim->lock->gate);
    bool many =
        client->tracked >= RLOCK__MANY_KEYS && (claim->lock->gate->pushing & RLOCK_PUSH_CHANGES);
    bool check = claim->again || (claim->registered && many);
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    if (!claim->registered) {
        check = check || (claim->lock->gate->pushing && !rlock__heard(claim));
        claim->registered = true;
        rlock__gate_track(claim->lock->gate);
    }
    rlock__holding_plan_check(claim);
    if (check) {
        rlock__holding_check(claim);
    }
}

static void rlock__holding_fire(rlock__claim *claim) {
    rlock_client *client = rlock__client_of(claim->lock->gate);
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    if (claim->until_us <= client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
        return;
    }
    if (claim->of.check_us <= client->now_us) {
        rlock__holding_due(claim);
    }
    if (claim->next_us <= client->now_us) {
        claim->next_us = RLOCK__NEVER;
        if (claim->work && !claim->work->request.lease_ms) {
            rlock__claim_recall(claim); /* a renewal checks as well */
        }
        if (!claim->work) {
            rlock__holding_submit(claim, claim->lock->lease_ms, false);
        }
    }
    rlock__claim_arm(claim);
}

static void rlock__renewed(rlock__claim *claim, const rlock_request *request,
                           const rlock_answer *answer) {
    rlock_client *client = rlock__client_of(claim->lock->gate);
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t lease_ms = rlock__given_ms(request, answer), until_us;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    if (!request->lease_ms) {
        return;
    }
    until_us = rlock__deadline(claim, request->sent_us, lease_ms);
    if (lease_ms > claim->lock->lease_ms) { /* a shorter one was asked for since */
        until_us = rlock__min(until_us, claim->until_us);
    }
    rlock__report(claim, RLOCK_REPORT_RENEWED, RLOCK_OK);
    rlock__lock_words(claim->lock, NULL);
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
        claim->lock->renews = claim->lock->renews || renewal->watchdog;
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
    rlock_client *client = rlock__client_of(lock->gate);
    if (answer->fault > RLOCK_FAULT_UNKNOWN && lock->more && !lock->more->refused) {
        lock->more->refused = true;
        if (!client->refused) {
            client->refused = true;
            rlock__log(client, RLOCK_LOG_WARNING, "a renewal is refused", answer->text);
        }
    }
}

/* A renewal failed: the old deadline stands, the next attempt comes the sooner the nearer it is. */
static void rlock__renewal_failed(rlock__claim *claim, const rlock_request *request,
                                  const rlock_answer *answer) {
    rlock_client *client = rlock__client_of(claim->lock->gate);
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t delay_us = (claim->until_us - client->now_us) / 4;
    RLOCK_ASSERT(claim->until_us > client->now_us);
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
    if (claim->again || delay_us < RLOCK__HURRY_US) { /* it changed, perhaps behind this one */
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
    if (claim->until_us <= rlock__client_of(claim->lock->gate)->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED,
                          true); /* settled before what came too late */
        return;
    }
    if (answer->outcome == RLOCK_OUTCOME_GONE) {
        rlock__claim_lose(claim, RLOCK_REASON_DELETED, !answer->sure || others);
        return;
    }
    if (answer->outcome == RLOCK_OUTCOME_STOLEN || answer->outcome == RLOCK_OUTCOME_HELD ||
        (fault && rlock__on_fault[answer->fault][RLOCK__IN_WATCHDOG] != RLOCK__RETRY)) {
        if (fault) {
            rlock__hold_fault(claim, answer->text);
        }
        rlock__claim_lose(claim, RLOCK_REASON_STOLEN, (!answer->sure && !fault) || others);
        return;
    }
    if (fault) {
        rlock__renewal_failed(claim, request, answer);
    } else {
        rlock__renewed(claim, request, answer);
    }
    if (claim->phase == RLOCK__HOLDING && !claim->work &&
        (rlock__renewal(claim->lock) || (claim->again && !fault))) {
        rlock__holding_submit(claim, 0, true); /* asked for meanwhile */
    }
}

static void rlock__claims_fire(rlock_timer *timer) {
    rlock_client *client = RLOCK__OF(timer, rlock_client, due_timer);
    rlock_link due;
    rlock__list_init(&due);
    rlock__due_take(client, &due);
    while (!rlock__list_empty(&due)) {
        rlock__claim *claim = RLOCK__OF(due.next, rlock__claim, due);
        rlock__list_remove(&claim->due);
        if (!rlock__claim_is_due(claim)) {
            rlock__claim_arm(claim);
        } else if (claim->phase == RLOCK__ATTEMPTING) {
            rlock__attempt_fire(claim);
        } else if (claim->phase == RLOCK__HOLDING) {
            rlock__holding_fire(claim);
        } else {
            rlock__letting_go_fire(claim);
        }
    }
    rlock__due_wait(client);
}

#endif /* RLOCK_CORE_HOLDING_H */
