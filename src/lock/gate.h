/* ------------------------------------------------------------------------------------------------
 * >>gate - one gate for each key: the waiters of this process; only the first asks the server
 */

#ifndef RLOCK_LOCK_GATE_H
#define RLOCK_LOCK_GATE_H

#include "public/head.h"
#include "public/store.h"
#include "public/lock.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/map.h"
#include "runtime/client.h"
#include "runtime/token.h"
#include "lock/claim.h"

#define RLOCK__SLEEP_MS 10000    /* the longest sleep of a waiter that is woken by push */
#define RLOCK__MANY_KEYS 100     /* with so many tracked keys push alone is not relied on */
#define RLOCK__CHECK_KEY_MS 5    /* each is asked for after so long times their number */
#define RLOCK__CHECK_MIN_MS 1000 /* the least such time */

/* Returns how long push alone is relied on. A server remembers only so many keys for it
 * (tracking-table-max-keys), and does not report those that a command of this client drives out. So
 * a client that tracks many keys asks for each now and then, the more seldom the more they are. */
RLOCK__NOINLINE static int64_t rlock__check_interval_ms(const rlock_client *client) {
    int64_t interval_ms = (int64_t)client->tracked * RLOCK__CHECK_KEY_MS;
    if (client->tracked < RLOCK__MANY_KEYS) {
        return RLOCK__SLEEP_MS;
    }
    return interval_ms < RLOCK__CHECK_MIN_MS ? RLOCK__CHECK_MIN_MS : interval_ms;
}

#define RLOCK__SOON_US 10000         /* until what failed for lack of memory is tried again */
#define RLOCK__GIVE_WAY_MAX_US 50000 /* the longest pause for the sake of other processes */

/* How the waiters of a gate come to a grant: they contend (see >>contend), or queue (>>queue). */
typedef struct rlock__mode {
    bool (*join)(rlock__claim *claim);         /* to begin, or again; false: the key is taken */
    void (*attempt)(rlock__gate *gate);        /* makes the attempts that are due */
    void (*next)(rlock__gate *gate);           /* there is another first waiter */
    void (*wake)(rlock__gate *gate, int hint); /* something may have changed */
    void (*pushing)(rlock__gate *gate);        /* what is pushed for the waiters began or ended */
    void (*refused)(rlock__claim *claim, const rlock_answer *answer);
    void (*granted)(rlock__claim *claim, const rlock_request *request, const rlock_answer *answer);
} rlock__mode;

/* What wakes a gate: a change of our own, one that was pushed, or any that may have been missed. */
enum { RLOCK__HINT_OURS, RLOCK__HINT_PUSHED, RLOCK__HINT_MISSED };

/* Returns what the store pushes for the waiters: changes, or notifications. */
static unsigned rlock__push_of(const rlock__gate *gate) {
    return rlock__queued(gate) ? RLOCK_PUSH_NOTIFICATIONS : RLOCK_PUSH_CHANGES;
}

static bool rlock__pushed(const rlock__gate *gate) {
    return (gate->pushing & rlock__push_of(gate)) != 0;
}

/* Calls visit for every gate of this client that wants the key. */
static void rlock__key_each(rlock_client *client, const char *key, size_t len,
                            void (*visit)(rlock__gate *gate, const void *with), const void *with) {
    rlock__item *item = rlock__map_find(&client->gates, key, len), *next;
    for (; item; item = next) {
        next = rlock__map_same(item);
        visit(rlock__gate_at(item), with);
    }
}

/* True if one of the gate's keys belongs to a part; NULL is the whole. */
static bool rlock__gate_in(rlock__gate *gate, const rlock_part *part) {
    const rlock__item *item;
    uint32_t i;
    if (!part) {
        return true;
    }
    for (i = 0; (item = rlock__gate_key(gate, i)) != NULL; i++) {
        if (part->has(part, item->key, item->key_len)) {
            return true;
        }
    }
    return false;
}

/* Returns options.owner of a claim that is no mutex with one key. */
static uint64_t rlock__owner_of(const rlock__claim *claim) {
    RLOCK_ASSERT(rlock__terms_of(claim->lock));
    return claim->lock->more->terms.owner;
}

/* True if a reader may hold next to this writer: it has the same owner, a downgrade. */
static bool rlock__may_downgrade(const rlock__claim *reader, const rlock__claim *writer) {
    RLOCK_ASSERT(reader->lock->gate == writer->lock->gate);
    return rlock__is_kind(reader, RLOCK_KIND_READ) && rlock__is_kind(writer, RLOCK_KIND_WRITE) &&
           rlock__owner_of(reader) && rlock__owner_of(reader) == rlock__owner_of(writer);
}

/* Returns the token of the writer next to which the reader may hold; 0 = none. */
static uint64_t rlock__writer(const rlock__claim *reader) {
    const rlock__claim *holds = rlock__holder(reader->lock->gate);
    RLOCK_ASSERT(reader->phase == RLOCK__ATTEMPTING);
    while (holds && rlock__is_kind(holds, RLOCK_KIND_WRITE) &&
           !rlock__may_downgrade(reader, holds)) {
        holds = rlock__claim_next(reader->lock->gate, holds, RLOCK__HOLDING);
    }
    return holds && rlock__is_kind(holds, RLOCK_KIND_WRITE) && !rlock__claim_id(holds)
               ? holds->token
               : 0;
}

static void rlock__claim_attempt(rlock__claim *claim, bool urgent) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    unsigned flags = 0;
    uint16_t fences = 0;
    rlock_request *request;
    RLOCK_ASSERT(rlock__handle_of(claim));
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(!claim->in_flight);
    RLOCK_ASSERT(claim->lock->lease_ms >= RLOCK_LEASE_MIN_MS);
    RLOCK_ASSERT(gate->waiters &&
                 (!gate->waiters->attempting || gate->waiters->attempting == claim));
    flags |= claim->may_exist ? RLOCK_REQUEST_RETRY : 0u;
    flags |= gate->tracked && !claim->lock->once ? RLOCK_REQUEST_TRACK : 0u;
    flags |= claim->lock->once ? RLOCK_REQUEST_ONCE : 0u;
    claim->retry = false;
    if (claim->lock->fencing) { /* one also for each who may follow without the server */
        const rlock_link *at = claim->link.next;
        int more = rlock__queued(gate) ? 0 : client->handovers;
        fences = 1;
        for (; at != &gate->waiters->list && fences <= more; at = at->next) {
            fences++;
        }
    }
    request = rlock__claim_request(
        claim, RLOCK_OP_ACQUIRE, claim->lock->lease_ms,
        rlock__add_ms(client->now_us, urgent ? 0 : client->command_timeout_ms));
    if (request) {
        request->flags = (uint8_t)flags;
        request->fences = fences;
        if (RLOCK__HAS_KINDS && request->terms && request->terms->kind == RLOCK_KIND_READ) {
            request->writer = rlock__writer(claim);
        }
        rlock__claim_submit(claim, request);
    } else { /* soon */
        rlock__lock_note(claim->lock, RLOCK_FAULT_NOMEM, NULL, false);
        claim->retry = true;
        gate->waiters->attempting = NULL;
        rlock_timer_set(client, &gate->waiters->timer, client->now_us + RLOCK__SOON_US);
    }
}

/* Puts the next attempt off for a moment. */
static void rlock__gate_give_way(rlock__gate *gate, int64_t pause_us) {
    rlock__waiters *waiters = gate->waiters;
    RLOCK_ASSERT(pause_us >= 0);
    RLOCK_ASSERT(gate->references);
    if (!waiters) {
        return;
    }
    waiters->polls = 0;
    if (waiters->attempting) { /* it may have been refused before this release */
        waiters->dirty = true;
    } else if (!rlock__holder(gate)) {
        waiters->yields = true;
        rlock_timer_set(gate->client, &waiters->timer,
                        gate->client->now_us + rlock__min(pause_us, RLOCK__GIVE_WAY_MAX_US));
    }
}

static bool rlock__key_tracked(const rlock_client *client, const char *key, size_t len) {
    rlock__item *item = rlock__map_find(&client->gates, key, len);
    while (item && !rlock__gate_at(item)->tracked) {
        item = rlock__map_same(item);
    }
    return item != NULL;
}

/* Begins or stops to track the gate's keys; another gate may track one of them too. */
static void rlock__gate_track_keys(rlock__gate *gate, bool on) {
    rlock_client *client = gate->client;
    const rlock__item *item;
    uint32_t i;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    RLOCK_ASSERT((on || gate->tracked) && (!gate->tracked || client->tracked));
    if (!on) {
        client->tracked--;
    } else if (!gate->tracked) {
        client->tracked++;
    }
    gate->tracked = on;
    for (i = 0; (item = rlock__gate_key(gate, i)) != NULL; i++) {
        if (on || !rlock__key_tracked(client, item->key, item->key_len)) {
            client->store->track(client->store_state, item->key, item->key_len, on);
        }
    }
}

/* Tracks the gate's keys, if they are not tracked yet. */
RLOCK__NOINLINE static void rlock__gate_track(rlock__gate *gate) {
    if (!gate->tracked) {
        rlock__gate_track_keys(gate, true);
    }
}

/* Sleeps until the holder's lease must be over, or for one interval of polling. */
static void rlock__gate_sleep(rlock__gate *gate, int64_t left_ms, bool poll) {
    rlock_client *client = gate->client;
    rlock__waiters *waiters = gate->waiters;
    int64_t delay_ms =
        poll ? client->poll_ms : rlock__min(rlock__check_interval_ms(client), RLOCK__SLEEP_MS);
    RLOCK_ASSERT(rlock__waiter(gate));
    RLOCK_ASSERT(!waiters->attempting && waiters->polls <= 4);
    RLOCK_ASSERT(client->poll_ms > 0);
    waiters->yields = false;
    if (rlock__queued(gate)) { /* a waiter that is not notified must not miss its offer */
        delay_ms = rlock__min(delay_ms, client->command_timeout_ms / 2);
    }
    if (poll) { /* 1/16 of the interval, doubled with each try; half of it at random */
        delay_ms >>= waiters->polls < 4 ? 4 - waiters->polls : 0;
        delay_ms -= (int64_t)(rlock_client_random(client) % (uint64_t)(delay_ms / 2 + 1));
        waiters->polls = (uint8_t)(waiters->polls < 4 ? waiters->polls + 1 : 4);
    }
    if (left_ms >= 0) {
        delay_ms = rlock__min(delay_ms, left_ms);
    }
    rlock_timer_set(client, &waiters->timer, rlock__add_ms(client->now_us, delay_ms + 1));
}

/* A waiter was answered without a grant. The timer of the gate is set for the first of them. */
static void rlock__claim_sleep(rlock__claim *claim, int64_t left_ms, bool poll) {
    rlock__gate *gate = claim->lock->gate;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING && !claim->in_flight);
    RLOCK_ASSERT(gate->waiters && rlock__handle_of(claim));
    if (rlock__waiter(gate) == claim || !gate->waiters->timer.index) {
        rlock__gate_sleep(gate, left_ms, poll);
    }
}

/* What a handle or a question wants: the key, and the terms if they are no mutex with one key. */
typedef struct rlock__want {
    const rlock_options *options;
    const char *key;
    size_t len;
    rlock_terms terms;
    bool plain;
} rlock__want;

static uint32_t rlock__want_count(const rlock__want *want) {
    return RLOCK__HAS_KINDS ? want->terms.count : 1;
}

static const char *rlock__want_key(const rlock__want *want, uint32_t i, size_t *len) {
    const rlock_options *options = want->options;
    const char *key = i ? options->keys[i] : want->key;
    RLOCK_ASSERT(i < rlock__want_count(want));
    *len = i ? (options->key_lens ? options->key_lens[i] : strlen(key)) : want->len;
    return key;
}

static bool rlock__gate_is(rlock__gate *gate, const rlock__want *want) {
    const rlock__kind *has = gate->kind;
    const rlock_terms *wants = &want->terms;
    uint32_t i;
    if (!has || want->plain) {
        return !has && want->plain;
    }
    if (has->letter != rlock__letter_of(wants->kind) || has->permits != wants->permits ||
        has->count != wants->count) {
        return false;
    }
    for (i = 0; i < has->count; i++) {
        size_t len;
        const char *wanted = rlock__want_key(want, i, &len);
        const rlock__item *item = rlock__gate_key(gate, i);
        if (len != item->key_len || memcmp(item->key, wanted, len) != 0) {
            return false;
        }
    }
    return true;
}

/* False: no memory. */
static bool rlock__kind_new(rlock__gate *gate, const rlock__want *want) {
    uint32_t count = want->terms.count;
    rlock__kind *kind = (rlock__kind *)rlock__alloc(
        sizeof *kind + (count - 1) * sizeof *kind->items + count * sizeof *kind->lens);
    RLOCK_ASSERT(count >= 1);
    RLOCK_ASSERT(!want->plain && count <= RLOCK_KEYS_MAX);
    gate->kind = kind;
    if (kind) {
        kind->letter = rlock__letter_of(want->terms.kind);
        kind->permits = want->terms.permits;
        kind->count = count;
        kind->items = (rlock__item *)(void *)(kind + 1);
        kind->lens = (uint32_t *)(void *)(kind->items + (count - 1));
    }
    return kind != NULL;
}

/* Makes a gate with room for so many bytes of keys. */
static rlock__gate *rlock__gate_make(rlock_client *client, const rlock__want *want, size_t bytes) {
    rlock__gate *gate = (rlock__gate *)rlock__alloc(sizeof *gate + bytes);
    RLOCK_ASSERT(bytes >= 2);
    if (!gate) {
        return NULL;
    }
    if (RLOCK__HAS_KINDS && !want->plain && !rlock__kind_new(gate, want)) {
        rlock__dealloc(gate);
        return NULL;
    }
    gate->client = client;
    rlock__list_init(&gate->claims);
    return gate;
}

/* Makes a gate, and adds its keys to the map: each leads to it. */
static rlock__gate *rlock__gate_new(rlock_client *client, const rlock__want *want) {
    uint32_t i, count = rlock__want_count(want);
    size_t bytes = 0, len;
    rlock__gate *gate;
    char *at;
    for (i = 0; i < count; i++) {
        rlock__want_key(want, i, &len);
        bytes += len + 1;
    }
    gate = rlock__gate_make(client, want, bytes);
    if (!gate) {
        return NULL;
    }
    gate->pushing = (uint8_t)(client->store->pushes
                                  ? client->store->pushes(client->store_state, want->key, want->len)
                                  : client->pushing);
    at = (char *)(gate + 1);
    for (i = 0; i < count; i++) {
        const char *key = rlock__want_key(want, i, &len);
        memcpy(at, key, len);
        if (RLOCK__HAS_KINDS && gate->kind) {
            gate->kind->lens[i] = (uint32_t)len;
        }
        if (RLOCK__HAS_KINDS && rlock__map_find(&client->gates, key, len)) {
            client->mixed++;
        }
        rlock__map_add(&client->gates, rlock__gate_key(gate, i), gate, at, len);
        at += len + 1;
    }
    RLOCK_ASSERT(at == (char *)(gate + 1) + bytes);
    return gate;
}

static rlock__gate *rlock__gate_of(rlock_client *client, const rlock__want *want) {
    rlock__item *item = rlock__map_find(&client->gates, want->key, want->len);
    rlock__gate *gate;
    RLOCK_ASSERT(want->key && want->len);
    RLOCK_ASSERT(client->life == RLOCK__LIVE);
    while (RLOCK__HAS_KINDS && item && !rlock__gate_is(rlock__gate_at(item), want)) {
        item = rlock__map_same(item);
    }
    gate = item ? rlock__gate_at(item) : rlock__gate_new(client, want);
    if (gate) {
        gate->references++;
    }
    return gate;
}

/* Removes one of the gate's keys from the map. */
static void rlock__gate_remove(rlock__gate *gate, rlock__item *item) {
    rlock_client *client = gate->client;
    rlock__map_remove(&client->gates, item);
    if (RLOCK__HAS_KINDS && rlock__map_find(&client->gates, item->key, item->key_len)) {
        RLOCK_ASSERT(client->mixed);
        client->mixed--;
    }
}

static void rlock__gate_unref(rlock__gate *gate) {
    rlock_client *client = gate->client;
    rlock__item *item;
    bool idle = rlock__list_empty(&gate->claims) && !rlock__waiter(gate);
    uint32_t i;
    RLOCK_ASSERT(gate->references);
    if (idle && gate->tracked && client->life != RLOCK__CLOSED) {
        rlock__gate_track_keys(gate, false);
    }
    if (--gate->references == 0) {
        RLOCK_ASSERT(idle && !gate->waiters);
        for (i = 0; (item = rlock__gate_key(gate, i)) != NULL; i++) {
            rlock__gate_remove(gate, item);
        }
        rlock__dealloc(gate->kind);
        rlock__dealloc(gate);
    }
}

/* A handle is not referred to any more: by its user, or by a claim. */
static void rlock__lock_unref(rlock *lock) {
    RLOCK_ASSERT(lock->references);
    if (--lock->references == 0) {
        RLOCK_ASSERT(!lock->claim && !lock->ops);
        RLOCK_ASSERT(rlock__list_empty(&lock->ready.link));
        rlock__lock_text(lock, NULL);
        rlock__gate_unref(lock->gate);
        rlock__dealloc(lock->more);
        rlock__dealloc(lock);
    }
}

/* Gives a new claim, or one that is handed over, to a handle. */
static void rlock__claim_give(rlock__claim *claim, rlock *lock) {
    RLOCK_ASSERT(!lock->claim);
    RLOCK_ASSERT(!lock->ready.event && lock->references);
    claim->lock = lock;
    lock->claim = claim;
    lock->references++;
}

#endif /* RLOCK_LOCK_GATE_H */
