/* ------------------------------------------------------------------------------------------------
 * >>due - when each claim has something to do: few stand in one list, many in a ring
 */

#ifndef RLOCK_LOCK_DUE_H
#define RLOCK_LOCK_DUE_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"
#include "base/list.h"
#include "runtime/client.h"
#include "lock/claim.h"

/* The claims that have something to do at a time stand in the client's list `due`, the first one
 * first; nothing has to be allocated for that. Where there are many, those whose time is not in the
 * present tick stand in a ring of slots instead, a tick each. When its tick begins, all that a slot
 * has to ask of the server is asked at once, up to a tick too early; a deadline is kept exactly.
 * What comes more than one round later is put off when the ring comes to it. */
#define RLOCK__RING 512
#ifndef RLOCK__TICK_US
#define RLOCK__TICK_US 16384
#endif
#ifndef RLOCK__RING_MIN
#define RLOCK__RING_MIN 64 /* fewer claims do without a ring */
#endif

RLOCK__NOINLINE static int64_t rlock__tick(int64_t us) {
    RLOCK_ASSERT(us >= 0);
    return (int64_t)((uint64_t)us / RLOCK__TICK_US);
}

static rlock_link *rlock__slot(const rlock_client *client, int64_t tick) {
    RLOCK_ASSERT(client->ring && tick >= 0);
    return &client->ring[(uint32_t)tick % RLOCK__RING];
}

/* Makes the ring, if there are many claims. Without memory for it the list is long, no worse. */
static void rlock__ring_reserve(rlock_client *client) {
    int i;
    if (!client->ring && client->claims.count >= RLOCK__RING_MIN) {
        client->ring = (rlock_link *)RLOCK_MALLOC(RLOCK__RING * sizeof *client->ring);
        for (i = 0; i < RLOCK__RING && client->ring; i++) {
            rlock__list_init(&client->ring[i]);
        }
        client->ring_tick = rlock__tick(client->now_us);
    }
}

/* Returns when the claim has something to do; RLOCK__NEVER: it waits for an answer. */
static int64_t rlock__claim_due_us(const rlock__claim *claim) {
    int64_t due_us = rlock__min(claim->until_us, claim->next_us);
    const rlock__op *op = NULL;
    if (claim->phase == RLOCK__HOLDING) {
        return rlock__min(due_us, claim->check_us);
    }
    if (claim->phase == RLOCK__RELEASING && rlock__handle_of(claim)) {
        op = rlock__following(claim->lock);
    }
    return op ? rlock__min(due_us, op->until_us) : due_us;
}

/* Puts a claim where it belongs, after its times have changed. */
static void rlock__claim_arm(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    int64_t due_us = rlock__claim_due_us(claim);
    rlock__list_remove(&claim->due);
    if (due_us == RLOCK__NEVER) {
        return;
    }
    if (client->ring && !client->due_timer.index) {
        client->ring_tick = rlock__tick(client->now_us); /* it stood still, and empty */
    }
    if (client->ring && rlock__tick(due_us) > rlock__tick(client->now_us)) {
        int64_t tick = rlock__min(rlock__tick(due_us), client->ring_tick + RLOCK__RING);
        RLOCK_ASSERT(tick > client->ring_tick);
        rlock__list_append(rlock__slot(client, tick), &claim->due);
        due_us = tick * RLOCK__TICK_US;
    } else {
        rlock_link *at = client->due.prev; /* nearly always it is one of the last */
        while (at != &client->due &&
               rlock__claim_due_us(RLOCK__OF(at, rlock__claim, due)) > due_us) {
            at = at->prev;
        }
        rlock__list_append(at->next, &claim->due);
    }
    if (!client->due_timer.index || client->due_timer.due_us > due_us) {
        rlock_timer_set(client, &client->due_timer, due_us);
    }
}

/* Moves to `list` what is due, and what the ring has for the ticks that have begun. */
static void rlock__due_take(rlock_client *client, rlock_link *list) {
    int64_t now = rlock__tick(client->now_us), tick = client->ring_tick;
    rlock__claim *first = RLOCK__FIRST(&client->due, rlock__claim, due);
    RLOCK_ASSERT(!client->ring || client->ring_tick <= now);
    while (first && rlock__claim_due_us(first) <= client->now_us) {
        rlock__list_remove(&first->due);
        rlock__list_append(list, &first->due);
        first = RLOCK__FIRST(&client->due, rlock__claim, due);
    }
    if (client->ring) {
        tick = now - tick > RLOCK__RING ? now - RLOCK__RING : tick;
        while (tick < now) {
            rlock__list_move(list, rlock__slot(client, ++tick));
        }
        client->ring_tick = now;
    }
}

/* Brings forward what a claim has to ask in this tick. False: nothing is due yet. */
static bool rlock__claim_is_due(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    int64_t now = rlock__tick(client->now_us);
    RLOCK_ASSERT(rlock__list_empty(&claim->due));
    if (client->ring && rlock__tick(claim->next_us) == now) {
        claim->next_us = client->now_us;
    }
    if (client->ring && claim->phase == RLOCK__HOLDING && rlock__tick(claim->check_us) == now) {
        claim->check_us = client->now_us;
    }
    return rlock__claim_due_us(claim) <= client->now_us;
}

/* Sets the timer to the next claim of the list, or the next slot of the ring that is in use. */
static void rlock__due_wait(rlock_client *client) {
    const rlock__claim *first = RLOCK__FIRST(&client->due, rlock__claim, due);
    int64_t due_us = first ? rlock__claim_due_us(first) : RLOCK__NEVER;
    int64_t tick = client->ring_tick + 1, last = client->ring_tick + RLOCK__RING;
    while (client->ring && tick <= last && rlock__list_empty(rlock__slot(client, tick))) {
        tick++;
    }
    if (client->ring && tick <= last) {
        due_us = rlock__min(due_us, tick * RLOCK__TICK_US);
    }
    RLOCK_ASSERT(due_us >= 0);
    rlock_timer_set(client, &client->due_timer, due_us == RLOCK__NEVER ? -1 : due_us);
}

#endif /* RLOCK_LOCK_DUE_H */
