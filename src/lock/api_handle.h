/* ------------------------------------------------------------------------------------------------
 * >>api-handle - the public functions of a handle, and the questions
 */

#ifndef RLOCK_LOCK_API_HANDLE_H
#define RLOCK_LOCK_API_HANDLE_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/list.h"
#include "runtime/client.h"
#include "runtime/settings.h"
#include "lock/claim.h"
#include "lock/report.h"
#include "lock/due.h"
#include "lock/gate.h"
#include "lock/life.h"
#include "lock/deliver.h"
#include "lock/question.h"
#include "lock/api_client.h"

enum { RLOCK__CALL_ACQUIRE, RLOCK__CALL_RENEW, RLOCK__CALL_RELEASE, RLOCK__CALL_CANCEL };

#define RLOCK__NESTED 2  /* RLOCK_ERR_STATE, if the handle is not re-entrant */
#define RLOCK__FOLLOWS 3 /* the acquire waits for the release before it */

static const int8_t rlock__on_call[7][4] = {
    /* [rlock__state][call] */
    {RLOCK_OK, RLOCK_ERR_NOT_HELD, RLOCK_ERR_NOT_HELD, RLOCK_ERR_STATE},
    {RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_OK},
    {RLOCK__NESTED, RLOCK_OK, RLOCK_OK, RLOCK_ERR_STATE},
    {RLOCK_ERR_STATE, RLOCK_ERR_LOST, RLOCK_OK, RLOCK_ERR_STATE},
    {RLOCK__FOLLOWS, RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_ERR_STATE},
    {RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_OK},
    {RLOCK_ERR_CLOSED, RLOCK_ERR_CLOSED, RLOCK_ERR_CLOSED, RLOCK_ERR_CLOSED}};

/* --- what is wanted --- */

#define RLOCK__ALL RLOCK_PERMITS_MAX

/* Queued kinds: the permits of the key, and how many one hold takes; 0: as the options say. */
static const struct {
    uint32_t permits, weight;
} rlock__kinds[] = {/* [rlock_kind] */
                    {0, 0},
                    {1, 1},
                    {RLOCK__ALL, 1},
                    {RLOCK__ALL, RLOCK__ALL},
                    {0, 0}};

#define RLOCK__KINDS (sizeof rlock__kinds / sizeof *rlock__kinds)

static bool rlock__keys_alike(const rlock__want *want, uint32_t count) {
    size_t len, other_len;
    uint32_t i, j;
    RLOCK_ASSERT(count && count <= RLOCK_KEYS_MAX);
    for (i = 0; i < count; i++) {
        const char *key = rlock__want_key(want, i, &len);
        for (j = 0; j < i; j++) {
            const char *other = rlock__want_key(want, j, &other_len);
            if (len == other_len && memcmp(key, other, len) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Returns what is wrong with how the options name their keys, or NULL. */
static const char *rlock__keys_wrong(const rlock_options *options) {
    size_t i;
    if (!options->keys == !options->key) {
        return RLOCK__TEXT("set either options.key or options.keys");
    }
    if (options->keys && options->key_len) {
        return RLOCK__TEXT("options.key_len requires options.key");
    }
    if (!options->keys && (options->key_count || options->key_lens)) {
        return RLOCK__TEXT("options.key_count and options.key_lens require options.keys");
    }
    if (!RLOCK__HAS_KINDS && options->key_count > 1) {
        return "several options.keys need RLOCK_WITH_KINDS";
    }
    if (options->keys && (!options->key_count || options->key_count > RLOCK_KEYS_MAX)) {
        return RLOCK__TEXT("options.key_count must be 1 to " RLOCK__QUOTE(RLOCK_KEYS_MAX));
    }
    for (i = 0; i < options->key_count; i++) {
        if (!options->keys[i]) {
            return RLOCK__TEXT("options.keys contains a NULL");
        }
    }
    return NULL;
}

/* The keys of the options. Returns what is wrong with them, or NULL. */
static const char *rlock__want_keys(rlock__want *want) {
    const rlock_options *options = want->options;
    const char *wrong = rlock__keys_wrong(options);
    size_t len;
    uint32_t i;
    if (wrong) {
        return wrong;
    }
    want->key = options->keys ? options->keys[0] : options->key;
    if (options->keys) {
        want->len = options->key_lens ? options->key_lens[0] : strlen(want->key);
    } else {
        want->len = options->key_len ? options->key_len : strlen(want->key);
    }
    want->terms.count = options->keys ? (uint32_t)options->key_count : 1;
    for (i = 0; i < want->terms.count; i++) {
        rlock__want_key(want, i, &len);
        if (len == 0 || len > RLOCK_KEY_MAX) {
            return RLOCK__TEXT(
                "options.key, and each of options.keys, must have a length of 1 to " RLOCK__QUOTE(
                    RLOCK_KEY_MAX));
        }
    }
    return RLOCK__HAS_KINDS && rlock__keys_alike(want, want->terms.count)
               ? "options.keys contains a duplicate"
               : NULL;
}

/* Returns what is wrong with the numbers of a kind, or NULL. */
static const char *rlock__terms_wrong(const rlock_terms *terms, const rlock_options *options) {
    bool semaphore = options->kind == RLOCK_KIND_SEMAPHORE;
    if (!semaphore && (options->permits || options->weight)) {
        return RLOCK__TEXT("options.permits and options.weight require RLOCK_KIND_SEMAPHORE");
    }
    if (semaphore && (terms->permits == 0 || terms->permits > RLOCK_PERMITS_MAX)) {
        return RLOCK__TEXT("options.permits must be 1 to " RLOCK__QUOTE(RLOCK_PERMITS_MAX));
    }
    if (semaphore && terms->weight > terms->permits) {
        return RLOCK__TEXT("options.weight must be 1 to options.permits");
    }
    if (terms->count > 1 && terms->kind != RLOCK_KIND_MUTEX) {
        return RLOCK__TEXT("several options.keys require RLOCK_KIND_MUTEX");
    }
    if (terms->owner && terms->kind != RLOCK_KIND_READ && terms->kind != RLOCK_KIND_WRITE) {
        return RLOCK__TEXT("options.owner requires RLOCK_KIND_READ or RLOCK_KIND_WRITE");
    }
    return NULL;
}

/* What the options want. Returns what is wrong with them, by the name of the field, or NULL. */
static const char *rlock__want_init(rlock__want *want, const rlock_options *options) {
    rlock_terms *terms = &want->terms;
    const char *wrong;
    memset(want, 0, sizeof *want);
    want->options = options;
    if ((unsigned)options->kind >= (RLOCK__HAS_KINDS ? RLOCK__KINDS : 1)) {
        return RLOCK__HAS_KINDS ? "options.kind must be one of rlock_kind"
                                : "options.kind needs RLOCK_WITH_KINDS";
    }
    wrong = rlock__want_keys(want);
    if (wrong) {
        return wrong;
    }
    terms->kind = options->kind;
    terms->permits = rlock__kinds[options->kind].permits;
    terms->weight = rlock__kinds[options->kind].weight;
    if (options->kind == RLOCK_KIND_SEMAPHORE) {
        terms->permits = options->permits;
        terms->weight = options->weight ? options->weight : 1;
    }
    terms->owner = options->owner;
    want->plain = terms->kind == RLOCK_KIND_MUTEX && terms->count == 1;
    return rlock__terms_wrong(terms, options);
}

/* The same for the options of a handle. */
static const char *rlock__options_init(rlock__want *want, const rlock_options *options,
                                       int64_t most_ms) {
    const char *wrong = rlock__want_init(want, options);
    if (!wrong &&
        (options->watchdog < RLOCK_WATCHDOG_AUTO || options->watchdog > RLOCK_WATCHDOG_OFF)) {
        wrong = "options.watchdog must be RLOCK_WATCHDOG_AUTO, _ON or _OFF";
    }
    if (!wrong && !rlock__within(options->max_hold_ms, 1, INT64_MAX)) {
        wrong = "options.max_hold_ms is negative";
    }
    if (!wrong && !rlock__within(options->watchdog_lease_ms, RLOCK_LEASE_MIN_MS, most_ms)) {
        wrong = "options.watchdog_lease_ms must be " RLOCK__QUOTE(
            RLOCK_LEASE_MIN_MS) " to " RLOCK__QUOTE(RLOCK_LEASE_MAX_MS) ", and at most "
                                                                        "config.quarantine_ms";
    }
    return wrong;
}

/* True if what is wanted is wrong, or the store refuses it; the reason is logged. */
static bool rlock__refused_by(const rlock_client *client, const rlock__want *want,
                              const char *wrong) {
    const rlock_terms *terms = want->plain ? NULL : &want->terms;
    const char *why = wrong;
    size_t len;
    uint32_t i;
    for (i = 0; !why && i < rlock__want_count(want) && client->store->refuses &&
                client->life != RLOCK__CLOSED;
         i++) {
        const char *key = rlock__want_key(want, i, &len);
        why = client->store->refuses(client->store_state, key, len, terms, want->options->fencing);
    }
    if (why && client->life != RLOCK__CLOSED) {
        rlock_client_log(client, RLOCK_LOG_ERROR, why, NULL);
    }
    return why != NULL;
}

/* --- the handle --- */

/* Returns what STATE x CALL says of a call on a handle, with a lease or 0; reads the clock for that
 * call. */
static int rlock__call(const rlock *lock, int call, int64_t lease_ms) {
    rlock_client *client = lock ? lock->gate->client : NULL;
    RLOCK_ASSERT(call >= RLOCK__CALL_ACQUIRE && call <= RLOCK__CALL_CANCEL);
    if (!client || !rlock__within(lease_ms, RLOCK_LEASE_MIN_MS, client->lease_most_ms)) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client)) {
        return RLOCK_ERR_STATE;
    }
    client->now_us = rlock__read_clock(lock);
    return rlock__on_call[rlock__state_at(lock, client->now_us)][call];
}

/* Notes what few handles want. False: no memory. */
static bool rlock__lock_wants(rlock *lock, const rlock__want *want) {
    const rlock_options *options = want->options;
    rlock_client *client = lock->gate->client;
    size_t times = rlock__reports(client) ? sizeof(rlock__times) : 0;
    RLOCK_ASSERT(!lock->more && lock->gate->references);
    if (want->plain && !options->max_hold_ms && !options->watchdog_lease_ms && !options->deadline &&
        !times) {
        return true;
    }
    lock->more = (rlock__more *)rlock__alloc(sizeof *lock->more + times);
    if (!lock->more) {
        return false;
    }
    if (times) {
        rlock__times_of(lock)->number = ++client->numbers;
    }
    lock->more->hold_ms = options->max_hold_ms;
    lock->more->watchdog_lease_ms = (int32_t)options->watchdog_lease_ms;
    lock->more->deadline = options->deadline;
    if (RLOCK__HAS_KINDS && !want->plain) {
        lock->more->terms = want->terms;
        lock->more->terms.lens = lock->gate->kind->lens;
    }
    return true;
}

int rlock_new(rlock **out, rlock_client *client, const rlock_options *options) {
    rlock *lock;
    rlock__want want;
    if (!out) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    if (!client || !options) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client)) {
        return RLOCK_ERR_STATE;
    }
    if (rlock__refused_by(client, &want,
                          rlock__options_init(&want, options, client->lease_most_ms))) {
        return RLOCK_ERR_ARG;
    }
    if (client->life != RLOCK__LIVE) {
        return RLOCK_ERR_CLOSED;
    }
    lock = (rlock *)rlock__alloc(sizeof *lock);
    if (lock) {
        lock->gate = rlock__gate_of(client, &want);
    }
    if (!lock || !lock->gate || !rlock__lock_wants(lock, &want)) {
        if (lock && lock->gate) {
            rlock__gate_unref(lock->gate);
        }
        rlock__dealloc(lock);
        return RLOCK_ERR_NOMEM;
    }
    lock->references = 1;
    lock->on_lost = options->on_lost;
    lock->lost_user = options->user;
    lock->ready.of = RLOCK__OF_HANDLE;
    rlock__list_init(&lock->ready.link);
    lock->watchdog = (unsigned)options->watchdog & 3u;
    lock->fencing = options->fencing;
    lock->reentrant = options->reentrant;
    client->handles++;
    rlock__pools_limit(client);
    RLOCK_ASSERT(rlock__state_of(lock) == RLOCK__IDLE_STATE);
    *out = lock;
    return RLOCK_OK;
}

void rlock_free(rlock *lock) {
    rlock_client *client;
    if (!lock || rlock__forked(lock->gate->client)) {
        return;
    }
    client = lock->gate->client;
    if (client->life == RLOCK__CLOSED) {
        client->depth++; /* its clock is not asked any more */
    } else {
        rlock__enter(client);
    }
    while (lock->ops) {
        rlock__op_free(lock, lock->ops);
    }
    rlock__list_remove(&lock->ready.link);
    if (lock->claim) {
        rlock__claim_abandon(lock->claim);
    }
    RLOCK_ASSERT(!lock->claim && !lock->ops);
    rlock__lock_unref(lock);
    RLOCK_ASSERT(client->handles);
    client->handles--;
    rlock__pools_limit(client);
    client->unsent = true; /* the store gives back at the end of the next entry what it kept */
    rlock__leave(client);
}

/* Acquires a hold once more: the hold count goes up; a longer lease is asked for. */
static int rlock__acquire_nested(rlock *lock, int64_t lease_ms, rlock_callback *done, void *user) {
    rlock__claim *claim = lock->claim;
    bool watchdog = lock->renews || rlock__renews(lock, lease_ms);
    bool longer = rlock__lease_of(lock, lease_ms) > lock->lease_ms;
    rlock__op *op;
    RLOCK_ASSERT(rlock__state_of(lock) == RLOCK__HELD_STATE);
    RLOCK_ASSERT(lock->reentrant);
    if (longer && rlock__renewal(lock)) {
        return RLOCK_ERR_STATE;
    }
    op = rlock__op_new(lock, RLOCK_ACQUIRED, done, user);
    if (!op) {
        return RLOCK_ERR_NOMEM;
    }
    if (!longer) {
        if (watchdog && !lock->renews) {
            lock->renews = true;
            rlock__holding_plan(claim, rlock__since(claim));
        }
        rlock__op_event(op, RLOCK_OK, NULL);
        return RLOCK_OK;
    }
    op->lease_ms = lock->lease_ms = rlock__lease_of(lock, lease_ms);
    op->watchdog = watchdog;
    op->waits = true;
    if (!claim->in_flight) {
        rlock__holding_submit(claim, op->lease_ms, true);
    }
    return RLOCK_OK;
}

/* The handle is being released: the acquire begins when its release has ended. */
static int rlock__acquire_follow(rlock *lock, int64_t until_us, bool once, int64_t lease_ms,
                                 rlock_callback *done, void *user) {
    rlock__op *op = rlock__op_new(lock, RLOCK_ACQUIRED, done, user);
    RLOCK_ASSERT(!rlock__following(lock) && rlock__state_of(lock) == RLOCK__RELEASING_STATE);
    if (!op) {
        return RLOCK_ERR_NOMEM;
    }
    op->follows = true;
    op->once = once;
    op->lease_ms = lease_ms;
    op->until_us = until_us;
    if (lock->claim) {
        rlock__releasing_arm(lock->claim);
    }
    return RLOCK_OK;
}

int rlock_acquire(rlock *lock, int64_t wait_ms, int64_t lease_ms, rlock_callback *done,
                  void *user) {
    rlock_client *client;
    int64_t until_us = RLOCK__NEVER;
    int status = rlock__call(lock, RLOCK__CALL_ACQUIRE, lease_ms);
    if (status == RLOCK_ERR_ARG || !done || wait_ms < RLOCK_FOREVER) {
        return RLOCK_ERR_ARG;
    }
    if (status == RLOCK__NESTED && !lock->reentrant) {
        return RLOCK_ERR_STATE;
    }
    if (status < RLOCK_OK) {
        return status;
    }
    client = lock->gate->client;
    if (client->life > RLOCK__DRAINING ||
        (client->life == RLOCK__DRAINING && status != RLOCK__NESTED)) {
        return RLOCK_ERR_CLOSED;
    }
    client->depth++;
    if (wait_ms != RLOCK_FOREVER) {
        until_us = rlock__add_ms(client->now_us, wait_ms ? wait_ms : client->command_timeout_ms);
    }
    switch (status) {
    case RLOCK__NESTED: status = rlock__acquire_nested(lock, lease_ms, done, user); break;
    case RLOCK__FOLLOWS:
        status = rlock__acquire_follow(lock, until_us, wait_ms == 0, lease_ms, done, user);
        break;
    default: status = rlock__acquire_start(lock, until_us, wait_ms == 0, lease_ms, done, user);
    }
    rlock__leave(client);
    return status;
}

int rlock_renew(rlock *lock, int64_t lease_ms, rlock_callback *done, void *user) {
    int status = rlock__call(lock, RLOCK__CALL_RENEW, lease_ms);
    rlock_client *client;
    rlock__claim *claim;
    rlock__op *op;
    if (status != RLOCK_OK) {
        return status;
    }
    if (rlock__op_of(lock, RLOCK_RENEWED) || rlock__renewal(lock)) { /* or it was not told yet */
        return RLOCK_ERR_STATE;
    }
    RLOCK_ASSERT(rlock__state_of(lock) == RLOCK__HELD_STATE);
    op = rlock__op_new(lock, RLOCK_RENEWED, done, user);
    if (!op) {
        return RLOCK_ERR_NOMEM;
    }
    client = lock->gate->client;
    claim = lock->claim;
    client->depth++;
    op->lease_ms = lease_ms ? lease_ms : lock->lease_ms;
    lock->lease_ms = (int32_t)op->lease_ms;
    claim->until_us =
        rlock__min(claim->until_us, rlock__deadline(claim, client->now_us, op->lease_ms));
    rlock__lock_show(lock, claim->until_us);
    op->waits = true;
    rlock__claim_arm(claim);
    if (!claim->in_flight) {
        rlock__holding_submit(claim, op->lease_ms, true);
    }
    rlock__leave(client);
    return RLOCK_OK;
}

/* `stay_us`: until then the key is to stay ours; 0 = it is not. */
static void rlock__release_last(rlock *lock, int64_t stay_us, rlock_callback *done, void *user) {
    rlock__claim *claim = lock->claim;
    rlock__lock_show(lock, 0); /* before the release can leave */
    if (claim && claim->until_us <= lock->gate->client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
    }
    lock->done = done;
    lock->user = user;
    if (lock->ready.event) { /* on_lost is not called: this end tells of it */
        RLOCK_ASSERT(lock->ready.event == RLOCK_LOST);
        lock->ready.event = RLOCK_RELEASED;
        return;
    }
    RLOCK_ASSERT(claim && rlock__handle_of(claim) == lock);
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && claim->until_us > lock->gate->client->now_us);
    if (rlock__renewal(lock)) {
        rlock__op_event(rlock__renewal(lock), RLOCK_ERR_CANCELED, NULL);
    }
    rlock__lock_text(lock, NULL);
    if (RLOCK__HAS_TOKENS && stay_us > lock->gate->client->now_us) {
        claim->stays = true;
        claim->check_us = stay_us;
    }
    if ((RLOCK__HAS_TOKENS && claim->stays) || !rlock__hand_over(claim)) {
        rlock__report(claim, RLOCK_REPORT_RELEASED, RLOCK_OK);
        claim->yields =
            claim->yields || (!rlock__queued(claim->lock->gate) && rlock__hand_over_ends(claim));
        lock->ready.status = RLOCK_OK;
        rlock__claim_let_go(claim);
    }
}

/* Releases a hold where STATE x CALL allows it. */
static void rlock__release(rlock *lock, int64_t stay_us, rlock_callback *done, void *user) {
    RLOCK_ASSERT(stay_us >= 0);
    lock->gate->client->depth++;
    if (rlock__op_of(lock, 0) &&
        rlock__state_at(lock, lock->gate->client->now_us) == RLOCK__HELD_STATE) {
        rlock__op_event(rlock__op_new(lock, RLOCK_RELEASED, done, user), RLOCK_OK, NULL);
    } else {
        rlock__release_last(lock, stay_us, done, user);
    }
    rlock__leave(lock->gate->client);
}

int rlock_release(rlock *lock, rlock_callback *done, void *user) {
    int status = rlock__call(lock, RLOCK__CALL_RELEASE, 0);
    if (status == RLOCK_OK) {
        rlock__release(lock, 0, done, user);
    }
    return status;
}

int rlock_cancel(rlock *lock) {
    int status = rlock__call(lock, RLOCK__CALL_CANCEL, 0);
    rlock__claim *claim;
    if (status != RLOCK_OK) {
        return status;
    }
    claim = lock->claim;
    lock->gate->client->depth++;
    if (rlock__following(lock)) {
        rlock__following_end(lock, RLOCK_ERR_CANCELED, NULL);
    } else if (claim) {
        rlock__acquire_end(claim, RLOCK_ERR_CANCELED);
    } else {
        RLOCK_ASSERT(lock->ready.event == RLOCK_ACQUIRED);
        lock->ready.status = RLOCK_ERR_CANCELED; /* it had ended, and was not told yet */
        rlock__lock_text(lock, NULL);
    }
    rlock__leave(lock->gate->client);
    return RLOCK_OK;
}

/* Returns for how long the handle still holds; 0 = it does not hold. */
static int64_t rlock__left_us(const rlock *lock) {
    int64_t now_us;
    if (!lock || rlock__call_forked(lock->gate->client)) {
        return 0;
    }
    now_us = rlock__read_clock(lock);
    return rlock__state_at(lock, now_us) == RLOCK__HELD_STATE ? lock->claim->until_us - now_us : 0;
}

bool rlock_is_held(const rlock *lock) {
    return rlock__left_us(lock) > 0;
}

int64_t rlock_remaining_ms(const rlock *lock) {
    return rlock__left_us(lock) / 1000;
}

uint64_t rlock_fence(const rlock *lock) {
    return rlock_is_held(lock) ? lock->claim->fence : 0;
}

int rlock_hold_count(const rlock *lock) {
    const rlock__op *op;
    int count = 1;
    if (!rlock_is_held(lock)) {
        return 0;
    }
    for (op = lock->ops; op; op = op->next) {
        if (!op->ready.event) {
            count++;
        }
    }
    return count;
}

/* --- questions --- */

static int rlock__question_new(rlock_client *client, const rlock_options *options, rlock_op op,
                               uint8_t flags, uint32_t permits, rlock_info_callback *done,
                               void *user) {
    const char *wrong;
    rlock__want want;
    rlock__gate *gate;
    int status;
    if (!client || !options || !RLOCK__HAS_KINDS) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client)) {
        return RLOCK_ERR_STATE;
    }
    wrong = rlock__want_init(&want, options);
    wrong = !wrong && want.terms.count > 1 ? "rlock_inspect and the like take one key" : wrong;
    if (rlock__refused_by(client, &want, wrong)) {
        return RLOCK_ERR_ARG;
    }
    if (client->life != RLOCK__LIVE) {
        return RLOCK_ERR_CLOSED;
    }
    rlock__enter(client);
    gate = rlock__gate_of(client, &want);
    status = gate ? rlock__ask(gate, &want.terms, op, flags, permits, done, user) : RLOCK_ERR_NOMEM;
    if (gate) {
        rlock__gate_unref(gate);
    }
    rlock__leave(client);
    return status;
}

int rlock_inspect(rlock_client *client, const rlock_options *options, rlock_info_callback *done,
                  void *user) {
    return done ? rlock__question_new(client, options, RLOCK_OP_INSPECT, 0, 0, done, user)
                : RLOCK_ERR_ARG;
}

int rlock_describe(rlock_client *client, const rlock_options *options, rlock_info_callback *done,
                   void *user) {
    return done && RLOCK__HAS_DESCRIPTIONS
               ? rlock__question_new(client, options, RLOCK_OP_INSPECT, RLOCK_REQUEST_DESCRIBE, 0,
                                     done, user)
               : RLOCK_ERR_ARG;
}

int rlock_force_release(rlock_client *client, const rlock_options *options,
                        rlock_info_callback *done, void *user) {
    return rlock__question_new(client, options, RLOCK_OP_FORCE, 0, 0, done, user);
}

int rlock_set_permits(rlock_client *client, const rlock_options *options, uint32_t permits,
                      rlock_info_callback *done, void *user) {
    if (permits > RLOCK_PERMITS_MAX || !options || options->kind != RLOCK_KIND_SEMAPHORE) {
        return RLOCK_ERR_ARG;
    }
    return rlock__question_new(client, options, RLOCK_OP_SET_PERMITS, 0, permits, done, user);
}

int rlock_queue_position(const rlock *lock, rlock_info_callback *done, void *user) {
    rlock_client *client;
    int status;
    if (!lock || !done) {
        return RLOCK_ERR_ARG;
    }
    client = lock->gate->client;
    if (rlock__call_forked(client) ||
        (client->life != RLOCK__CLOSED && rlock__state_of(lock) != RLOCK__WAITING_STATE) ||
        !rlock__queued(lock->gate)) {
        return RLOCK_ERR_STATE;
    }
    if (client->life != RLOCK__LIVE) {
        return RLOCK_ERR_CLOSED;
    }
    rlock__enter(client);
    status = rlock__ask(lock->gate, &lock->more->terms, RLOCK_OP_INSPECT, 0,
                        lock->claim && !rlock__claim_id(lock->claim) ? lock->claim->token : 0, done,
                        user);
    rlock__leave(client);
    return status;
}

const char *rlock_key(const rlock *lock, size_t *len) {
    if (!lock || rlock__forked(lock->gate->client)) {
        return NULL;
    }
    if (len) {
        *len = lock->gate->item.key_len;
    }
    return lock->gate->item.key;
}

#endif /* RLOCK_LOCK_API_HANDLE_H */
