/* ------------------------------------------------------------------------------------------------
 * >>events - what a store reports
 */

#ifndef RLOCK_LOCK_EVENTS_H
#define RLOCK_LOCK_EVENTS_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"
#include "base/map.h"
#include "base/pool.h"
#include "runtime/client.h"
#include "lock/claim.h"
#include "lock/gate.h"
#include "lock/mode.h"
#include "lock/life.h"
#include "lock/question.h"

static void rlock__store_answered(void *owner, rlock_request *request, const rlock_answer *answer) {
    rlock__flight *flight = RLOCK__OF(request, rlock__flight, request);
    rlock__claim *claim;
    if (RLOCK__HAS_KINDS && request->op >= RLOCK_OP_INSPECT) {
        rlock__question *question = RLOCK__OF(request, rlock__question, request);
        RLOCK_ASSERT(question->out);
        question->out = false;
        rlock__question_answered(question, answer);
        return;
    }
    claim = flight->claim;
    RLOCK_ASSERT(claim->in_flight == flight);
    RLOCK_ASSERT(claim->lock->gate->client == owner && claim->token == request->token);
    claim->in_flight = NULL;
    claim->note = request->store.note;
    if (rlock__adopting(claim)) {
        rlock__adopt_answered(claim, request, answer);
    } else if (claim->phase == RLOCK__ATTEMPTING) {
        rlock__attempt_answered(claim, request, answer);
    } else if (claim->phase == RLOCK__HOLDING) {
        rlock__holding_answered(claim, request, answer);
    } else {
        rlock__releasing_answered(claim, request, answer);
    }
    rlock__pool_put(&((rlock_client *)owner)->flights, flight);
}

/* True if it is not of the first key of its gate. */
static bool rlock__is_another_key(const rlock__item *item) {
    return RLOCK__HAS_KINDS && item != &rlock__gate_at(item)->item;
}

/* Calls visit for every gate of a part; it may free that one. */
static void rlock__gates_each(rlock_client *client, const rlock_part *part,
                              void (*visit)(rlock__gate *gate, const void *with),
                              const void *with) {
    rlock__item *item = rlock__map_next(&client->gates, NULL), *next;
    for (; item; item = next) {
        next = rlock__map_next(&client->gates, item);
        while (next && rlock__is_another_key(next)) { /* it may go with this gate */
            next = rlock__map_next(&client->gates, next);
        }
        if (!rlock__is_another_key(item) && rlock__gate_in(rlock__gate_at(item), part)) {
            visit(rlock__gate_at(item), with);
        }
    }
}

static void rlock__gate_up(rlock__gate *gate, const void *with) {
    rlock__claim *claim = NULL, *next;
    (void)with;
    gate->references++;
    while ((claim = rlock__claim_next(gate, claim, RLOCK__RELEASING)) != NULL) {
        rlock__releasing_up(claim);
    }
    while ((claim = rlock__claim_next(gate, claim, RLOCK__HOLDING)) != NULL) {
        rlock__holding_up(claim);
    }
    for (claim = rlock__waiter(gate); claim; claim = next) {
        next = rlock__waiter_next(claim);
        rlock__acquire_join(claim);
    }
    rlock__gate_unref(gate);
}

static void rlock__store_up(void *owner, const rlock_part *part) {
    rlock_client *client = (rlock_client *)owner;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->up = true;
    rlock__gates_each(client, part, rlock__gate_up, NULL);
}

static void rlock__gate_down(rlock__gate *gate, const void *with) {
    const rlock_answer *why = (const rlock_answer *)with;
    rlock__claim *other = NULL, *claim, *next;
    RLOCK_ASSERT(gate->client->life != RLOCK__CLOSED);
    gate->references++;
    while ((other = rlock__claim_next(gate, other, RLOCK__HOLDING)) != NULL) {
        rlock__op *renewal = rlock__renewal(other->lock);
        if (renewal) {
            rlock__op_event(renewal, rlock__on_fault[why->fault][RLOCK__IN_RENEW], why->text);
        }
        if (gate->client->up) { /* the client's words are not about this part */
            rlock__hold_fault(other, why->text);
        } else {
            other->faulted = true;
        }
    }
    for (claim = rlock__waiter(gate); claim; claim = next) {
        int verdict =
            rlock__on_fault[why->fault][claim->lock->once ? RLOCK__IN_ATTEMPT : RLOCK__IN_WAIT];
        next = rlock__waiter_next(claim);
        rlock__lock_note(claim->lock, why->fault, why->text, verdict != RLOCK__RETRY);
        if (verdict != RLOCK__RETRY) {
            rlock__acquire_end(claim, verdict);
        }
    }
    while (RLOCK__HAS_TOKENS &&
           (other = rlock__claim_next(gate, NULL, RLOCK__ATTEMPTING)) != NULL) {
        rlock__lock_note(other->lock, why->fault, why->text, true);
        rlock__acquire_end(other, other->lock->ready.status);
    }
    while ((other = rlock__claim_next(gate, other, RLOCK__RELEASING)) != NULL) {
        if (rlock__handle_of(other)) {
            rlock__lock_note(other->lock, why->fault, why->text, false);
        }
    }
    rlock__gate_unref(gate);
}

static void rlock__store_down(void *owner, const rlock_part *part, rlock_fault fault,
                              const char *text) {
    rlock_client *client = (rlock_client *)owner;
    rlock_answer why;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    memset(&why, 0, sizeof why);
    why.fault = fault;
    why.text = text;
    if (!part) {
        client->up = false;
    }
    if (!client->up) {
        client->fault = fault;
        rlock__set_text(client, &client->fault_text, text);
    }
    client->stats.faults++;
    rlock__gates_each(client, part, rlock__gate_down, &why);
    rlock__questions_down(client, part, fault, text);
}

/* The key changed, or with NULL any key may have. A key with a queue changes with each waiter that
 * comes and goes, and its client is notified of what matters: so a change is a hint only for a hold
 * that is not shared. */
static void rlock__gate_woken(rlock__gate *gate, const void *key) {
    rlock__claim *holds = NULL;
    while ((holds = rlock__claim_next(gate, holds, RLOCK__HOLDING)) != NULL) {
        if (key && rlock__shared(holds)) {
            break; /* so do all after it */
        }
        rlock__holding_check(holds);
    }
    rlock__mode_of(gate)->wake(gate, key ? RLOCK__HINT_PUSHED : RLOCK__HINT_MISSED);
}

static void rlock__gate_pushing(rlock__gate *gate, const void *with) {
    unsigned what = *(const unsigned *)with;
    unsigned changed = what != gate->pushing ? what ^ gate->pushing : what; /* or anew */
    rlock__claim *holds = NULL;
    gate->pushing = (uint8_t)what;
    if (changed & rlock__push_of(gate)) {
        rlock__mode_of(gate)->pushing(gate);
    }
    if (RLOCK__HAS_KINDS && (changed & RLOCK_PUSH_NOTIFICATIONS)) {
        while ((holds = rlock__claim_next(gate, holds, RLOCK__HOLDING)) != NULL) {
            if (rlock__shared(holds)) {
                rlock__holding_check(holds);
            }
        }
    }
    if (gate->tracked && (changed & what & RLOCK_PUSH_CHANGES)) { /* what changed was not told */
        rlock__gate_track_keys(gate, true);
        rlock__gate_woken(gate, gate->item.key);
    }
}

static void rlock__store_pushing(void *owner, const rlock_part *part, unsigned what) {
    rlock_client *client = (rlock_client *)owner;
    RLOCK_ASSERT(!(what & ~(RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS)));
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->pushing = part && !client->store->pushes ? client->pushing : what;
    rlock__gates_each(client, part, rlock__gate_pushing, &what);
}

static void rlock__store_woken(void *owner, const char *key, size_t key_len) {
    rlock_client *client = (rlock_client *)owner;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->stats.woken++;
    if (key) {
        rlock__key_each(client, key, key_len, rlock__gate_woken, key);
    } else {
        rlock__gates_each(client, NULL, rlock__gate_woken, NULL);
    }
}

/* Returns the claim with a token on a list, or NULL. It is nearly always the first. */
static rlock__claim *rlock__claim_find(const rlock_link *list, uint64_t token) {
    const rlock_link *at = list->next;
    while (at != list && (RLOCK__OF(at, rlock__claim, link)->token != token ||
                          rlock__claim_id(RLOCK__OF(at, rlock__claim, link)))) {
        at = at->next;
    }
    return at == list ? NULL : RLOCK__OF(at, rlock__claim, link);
}

static void rlock__gate_notified(rlock__gate *gate, const void *with) {
    const uint64_t *token = (const uint64_t *)with;
    rlock__claim *waits = gate->waiters ? rlock__claim_find(&gate->waiters->list, *token) : NULL;
    rlock__claim *holds = waits ? NULL : rlock__claim_find(&gate->claims, *token);
    if (!*token) { /* an offer was not accepted in time */
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_MISSED);
        return;
    }
    if (holds && holds->phase == RLOCK__HOLDING) {
        rlock__holding_check(holds);
    } else if (waits && rlock__queued(gate) && !waits->in_flight) {
        rlock__claim_attempt(waits, true); /* its offer ends soon */
    } else if (waits) {
        waits->retry = true;
    }
}

static void rlock__store_notified(void *owner, const char *key, size_t key_len, uint64_t token) {
    rlock_client *client = (rlock_client *)owner;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->stats.woken++;
    rlock__key_each(client, key, key_len, rlock__gate_notified, &token);
}

static const rlock_store_events rlock__events = {rlock__store_answered, rlock__store_up,
                                                 rlock__store_down,     rlock__store_pushing,
                                                 rlock__store_woken,    rlock__store_notified};

#endif /* RLOCK_LOCK_EVENTS_H */
