/* ------------------------------------------------------------------------------------------------
 * >>deliver - events become callbacks
 */

#ifndef RLOCK_LOCK_DELIVER_H
#define RLOCK_LOCK_DELIVER_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/pool.h"
#include "runtime/client.h"
#include "lock/claim.h"
#include "lock/report.h"
#include "lock/life.h"

/* Takes an operation away from the handle. */
static void rlock__op_free(rlock *lock, rlock__op *op) {
    rlock_client *client = lock->gate->client;
    rlock__op **at = &lock->ops;
    RLOCK_ASSERT(op->lock == lock);
    while (*at != op) {
        RLOCK_ASSERT(*at);
        at = &(*at)->next;
    }
    *at = op->next;
    rlock__list_remove(&op->ready.link);
    rlock__dealloc(op->text);
    rlock__pool_put(&client->ops, op);
}

/* Returns the state at a time: a deadline that has passed counts although no timer fired yet. An
 * acquire that follows a release counts for what may be called. */
static rlock__state rlock__state_at(const rlock *lock, int64_t now_us) {
    const rlock_client *client = lock->gate->client;
    rlock__state state = rlock__state_of(lock);
    if (client->life == RLOCK__CLOSED && !client->shut) {
        return RLOCK__CLOSED_STATE;
    }
    if (state == RLOCK__HELD_STATE && lock->claim->until_us <= now_us) {
        return RLOCK__LOST_STATE;
    }
    return state == RLOCK__RELEASING_STATE && rlock__following(lock) ? RLOCK__FOLLOWED_STATE
                                                                     : state;
}

/* Returns the clock for a call on a handle; that of a closed client is not read any more. */
static int64_t rlock__read_clock(const rlock *lock) {
    rlock_client *client = lock->gate->client;
    return client->life == RLOCK__CLOSED ? client->now_us : rlock_client_clock_us(client);
}

RLOCK__NOINLINE static int64_t rlock__left_ms(const rlock *lock, int64_t now_us) {
    RLOCK_ASSERT(lock->claim);
    RLOCK_ASSERT(lock->claim->phase == RLOCK__HOLDING && lock->claim->until_us > now_us);
    return (lock->claim->until_us - now_us) / 1000;
}

static void rlock__op_deliver(rlock__ready *ready, char **words) {
    rlock__op *op = RLOCK__OF(ready, rlock__op, ready);
    rlock *lock = op->lock;
    rlock_client *client = lock->gate->client;
    int64_t now_us = rlock__read_clock(lock);
    rlock_callback *done = op->done;
    void *user = op->user;
    char *text = op->text;
    rlock_event event;
    RLOCK_ASSERT(client->depth);
    RLOCK_ASSERT(op->ready.event && !op->waits && !op->follows);
    memset(&event, 0, sizeof event);
    event.kind = (rlock_event_kind)op->ready.event;
    event.status = op->ready.status;
    if (op->ready.event != RLOCK_RELEASED && op->ready.status == RLOCK_OK &&
        rlock__state_at(lock, now_us) != RLOCK__HELD_STATE) {
        event.status =
            rlock__state_of(lock) == RLOCK__RELEASING_STATE ? RLOCK_ERR_CANCELED : RLOCK_ERR_LOST;
    }
    if (event.status == RLOCK_OK) {
        event.remaining_ms = op->ready.event == RLOCK_RELEASED ? 0 : rlock__left_ms(lock, now_us);
        event.fence = lock->claim ? lock->claim->fence : lock->lost_fence;
    }
    event.text = text;
    op->text = NULL;
    if (op->ready.event == RLOCK_ACQUIRED && event.status == RLOCK_OK) {
        op->ready.event = 0; /* it is the spare of its release */
    } else {
        rlock__op_free(lock, op);
    }
    *words = text;
    rlock__leave(client);
    if (done) {
        done(lock, &event, user);
    }
}

static rlock__op *rlock__op_new(rlock *lock, rlock_event_kind kind, rlock_callback *done,
                                void *user) {
    rlock_client *client = lock->gate->client;
    rlock__op *op = kind == RLOCK_RELEASED
                        ? rlock__op_of(lock, 0)
                        : (rlock__op *)rlock__pool_take(&client->ops, sizeof *op);
    RLOCK_ASSERT(kind >= RLOCK_ACQUIRED && kind <= RLOCK_RELEASED);
    if (!op) {
        return NULL;
    }
    if (kind != RLOCK_RELEASED) {
        rlock__list_init(&op->ready.link);
        op->ready.of = RLOCK__OF_OPERATION;
        op->lock = lock;
        op->next = lock->ops;
        lock->ops = op;
    }
    RLOCK_ASSERT(!op->ready.event && !op->waits && !op->follows);
    op->ready.event = (uint8_t)kind;
    op->done = done;
    op->user = user;
    return op;
}

/* The handle is idle again. */
static void rlock__lock_idle(rlock *lock) {
    rlock__op *op;
    RLOCK_ASSERT(!lock->claim && !rlock__renewal(lock));
    while ((op = rlock__op_of(lock, 0)) != NULL) {
        rlock__op_free(lock, op);
    }
}

/* The release has ended: the acquire that follows it begins. False in a child that a hook made
 * meanwhile: nothing more is delivered there. */
static bool rlock__lock_follow(rlock *lock) {
    rlock__op *op = rlock__following(lock);
    int status = RLOCK_ERR_CLOSED;
    RLOCK_ASSERT(!lock->claim && !lock->ready.event);
    if (!op) {
        return true;
    }
    if (lock->gate->client->life == RLOCK__LIVE) {
        status =
            rlock__acquire_start(lock, op->until_us, op->once, op->lease_ms, op->done, op->user);
    }
    if (status == RLOCK_OK) {
        rlock__op_free(lock, op);
    } else {
        rlock__following_end(lock, status, NULL);
    }
    return !rlock__forked(lock->gate->client);
}

static void rlock__lock_deliver(rlock__ready *ready, char **words) {
    rlock *lock = RLOCK__OF(ready, rlock, ready);
    rlock_client *client = lock->gate->client;
    rlock__claim *claim = lock->claim;
    rlock_callback *done = lock->ready.event == RLOCK_LOST ? lock->on_lost : lock->done;
    void *user = lock->ready.event == RLOCK_LOST ? lock->lost_user : lock->user;
    rlock_event event;
    RLOCK_ASSERT(lock->ready.event);
    RLOCK_ASSERT(client->depth);
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    memset(&event, 0, sizeof event);
    event.kind = (rlock_event_kind)lock->ready.event;
    event.status = lock->ready.status;
    event.reason = (rlock_reason)lock->ready.reason;
    event.text = lock->more ? lock->more->text : NULL;
    if (event.kind == RLOCK_ACQUIRED && event.status == RLOCK_OK) {
        /* A callback before this one may have taken long. */
        client->now_us = rlock_client_clock_us(client);
        RLOCK_ASSERT(claim && claim->phase == RLOCK__HOLDING);
        if (claim->until_us <= client->now_us) {
            rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
            rlock__leave(client);
            return;
        }
        client->stats.acquired++;
        claim->counted = true;
        if (RLOCK__HAS_TOKENS) {
            lock->wait_until_us = client->now_us;
        }
        rlock__lock_show(lock, claim->until_us);
        rlock__report(claim, RLOCK_REPORT_GRANTED, RLOCK_OK);
        done = rlock__reports(client) && rlock__forked(client) ? NULL : done;
        event.fence = claim->fence;
        event.remaining_ms = rlock__left_ms(lock, client->now_us);
    } else {
        event.fence = lock->lost_fence;
        if (event.status == RLOCK_ERR_BUSY || event.status == RLOCK_ERR_TIMEOUT) {
            event.remaining_ms = lock->ready.left_ms;
        }
        rlock__lock_idle(lock);
    }
    if (lock->more) {
        *words = lock->more->text;
        lock->more->text = NULL;
    }
    lock->ready.event = 0;
    if (event.kind == RLOCK_RELEASED && !rlock__lock_follow(lock)) {
        done = NULL;
    }
    rlock__leave(client);
    if (done) {
        done(lock, &event, user);
    }
}

#endif /* RLOCK_LOCK_DELIVER_H */
