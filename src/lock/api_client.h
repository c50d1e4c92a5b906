/* ------------------------------------------------------------------------------------------------
 * >>api-client - the public functions of a client
 */

#ifndef RLOCK_LOCK_API_CLIENT_H
#define RLOCK_LOCK_API_CLIENT_H

#include "public/head.h"
#include "public/status.h"
#include "public/loop.h"
#include "public/store.h"
#include "public/client.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/map.h"
#include "runtime/client.h"
#include "runtime/settings.h"
#include "store/default.h"
#include "lock/claim.h"
#include "lock/report.h"
#include "lock/gate.h"
#include "lock/life.h"
#include "lock/deliver.h"
#include "lock/question.h"
#include "lock/events.h"

const char *rlock_version(void) {
    return RLOCK_VERSION;
}

const char *rlock_strerror(int status) {
    static const char *const words[] = { /* [-status] */
#if RLOCK__HAS_TEXTS
#define RLOCK_X(name, value, text) text,
#else
#define RLOCK_X(name, value, text) #name,
#endif
                                         RLOCK_STATUS_MAP(RLOCK_X)
#undef RLOCK_X
    };
    return status <= 0 && status >= RLOCK_STATUS_LAST ? words[-status] : "unknown status";
}

static const char *rlock__word(const char *const *words, unsigned count, unsigned i) {
    return i < count ? words[i] : "unknown";
}

const char *rlock_reason_str(rlock_reason reason) {
    static const char *const words[] = {"none", "expired", "stolen", "deleted", "closed"};
    return rlock__word(words, sizeof words / sizeof *words, (unsigned)reason);
}

const char *rlock_report_str(rlock_report_kind kind) {
    static const char *const words[] = {
        "unknown",
#if RLOCK__HAS_REPORTS
        "asked",
        "granted",
        "failed",
        "renewed",
        "released",
        "handed on",
        "lost",
        "let go",
        "cleaned",
        "connected",
        "disconnected",
        "refused",
#endif
    };
    return rlock__word(words, sizeof words / sizeof *words, (unsigned)kind);
}

const char *rlock_kind_str(rlock_kind kind) {
    static const char *const words[] = {"mutex", "fair", "read", "write", "semaphore"};
    return rlock__word(words, sizeof words / sizeof *words, (unsigned)kind);
}

/* 16 random bytes as a version 4 UUID in lower case, and the seed of the jitter. */
static bool rlock__client_identify(rlock_client *client) {
    unsigned char bytes[16];
    char *out = client->id;
    int i;
    if (!RLOCK_RANDOM(bytes, sizeof bytes)) {
        return false;
    }
    bytes[6] = (unsigned char)(0x40 | (bytes[6] & 0x0f));
    bytes[8] = (unsigned char)(0x80 | (bytes[8] & 0x3f));
    for (i = 0; i < 16; i++) {
        client->random = client->random << 8 | bytes[i]; /* the same on every machine */
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *out++ = '-';
        }
        rlock__hex(out, bytes + i, 1);
        out += 2;
    }
    *out = 0;
    RLOCK_ASSERT(out == client->id + sizeof client->id - 1);
    client->random |= 1;
    return true;
}

/* Resolves the URL and the defaults, here and nowhere else, but for those of one store alone. The
 * line says what is wrong; *texts as rlock__url_resolve has it. */
static int rlock__config_resolve(rlock_config *config, char **texts, char *line) {
    const rlock_loop *loop = &config->loop;
    int status = rlock__url_resolve(config, false, texts, line);
    if (status != RLOCK_OK) {
        return status;
    }
    if (!loop->open || !loop->watch || !loop->set_timer || !loop->close) {
        rlock__line_add(line, 0, RLOCK__TEXT("config.loop: a required hook is NULL"), "");
        return RLOCK_ERR_ARG;
    }
    if (!rlock__store_of(config)) {
        rlock__line_add(line, 0,
                        RLOCK__TEXT("config.store is required in a build with RLOCK_NO_REDIS"), "");
        return RLOCK_ERR_ARG;
    }
    if (config->on_event && !RLOCK__HAS_REPORTS) {
        rlock__line_add(line, 0, "config.on_event needs RLOCK_WITH_REPORTS", "");
        return RLOCK_ERR_ARG;
    }
    config->prefix = config->prefix ? config->prefix : "rlock:";
    return rlock__numbers_resolve(config, line) ? RLOCK_OK : RLOCK_ERR_ARG;
}

static bool rlock__client_configure(rlock_client *client, const rlock_config *config) {
    client->loop = config->loop;
    client->log = config->log;
    client->log_user = config->log_user ? config->log_user : config->user;
    client->on_event = config->on_event;
    client->event_user = config->event_user;
    client->store = rlock__store_of(config);
    client->watchdog_lease_ms = (int32_t)config->watchdog_lease_ms;
    client->lease_most_ms =
        (int32_t)(config->quarantine_ms ? config->quarantine_ms : RLOCK_LEASE_MAX_MS);
    client->command_timeout_ms = (int32_t)config->command_timeout_ms;
    client->poll_ms = (int32_t)config->poll_ms;
    client->drift_permille = config->drift_permille;
    client->handovers = config->handovers < 0 ? 0 : config->handovers;
    RLOCK_ASSERT(client->watchdog_lease_ms >= RLOCK_LEASE_MIN_MS);
    RLOCK_ASSERT(client->watchdog_lease_ms <= client->lease_most_ms);
    RLOCK_ASSERT(client->command_timeout_ms > 0 && client->poll_ms > 0);
    return rlock__map_init(&client->gates) && rlock__client_identify(client);
}

/* Takes the handle out of a claim: nobody is there to be told of its end. */
static void rlock__claim_abandon(rlock__claim *claim) {
    bool untold = claim->lock->ready.event != 0;
    rlock__claim_orphan(claim);
    if (claim->phase == RLOCK__ATTEMPTING || (RLOCK__HAS_TOKENS && claim->adopted && untold)) {
        rlock__acquire_end(claim, RLOCK_ERR_CLOSED);
    } else if (claim->phase == RLOCK__HOLDING) {
        rlock__report(claim, untold ? RLOCK_REPORT_FAILED : RLOCK_REPORT_RELEASED,
                      untold ? RLOCK_ERR_CLOSED : RLOCK_OK);
        rlock__claim_let_go(claim);
    } else {
        rlock__releasing_arm(claim); /* no acquire follows it any more */
    }
}

static void rlock__gate_abandon(rlock__gate *gate, const void *with) {
    rlock__claim *claim = NULL;
    (void)with;
    gate->references++;
    while ((claim = rlock__claim_next(gate, claim, RLOCK__RELEASING)) != NULL) {
        rlock__claim_recall(claim); /* a release that is out may not have been understood */
        rlock__releasing_ask(claim, 0);
    }
    while (rlock__waiter(gate)) {
        rlock__claim_abandon(RLOCK__OF(gate->waiters->list.prev, rlock__claim, link));
    }
    while (RLOCK__HAS_TOKENS &&
           (claim = rlock__claim_next(gate, NULL, RLOCK__ATTEMPTING)) != NULL) {
        rlock__claim_abandon(claim);
    }
    while (rlock__holder(gate)) {
        rlock__claim_abandon(rlock__holder(gate));
    }
    rlock__gate_unref(gate);
}

/* The requests of what is still to be cleaned up are the store's no more. */
static void rlock__gate_close(rlock__gate *gate, const void *with) {
    (void)with;
    RLOCK_ASSERT(gate->client->life == RLOCK__CLOSED && !gate->waiters);
    gate->references++;
    while (!rlock__list_empty(&gate->claims)) {
        rlock__claim_gone(RLOCK__OF(gate->claims.next, rlock__claim, link));
    }
    rlock__gate_unref(gate);
}

/* Releases what is left, as far as one write does, and closes the store and the loop. False in a
 * child that a hook made. */
static bool rlock__client_close(rlock_client *client, bool shuts) {
    uint32_t timers;
    RLOCK_ASSERT(client->depth && client->life != RLOCK__CLOSED);
    client->life = RLOCK__ENDED; /* nothing is owed to anybody any more */
    rlock__gates_each(client, NULL, rlock__gate_abandon, NULL);
    if (rlock__forked(client)) { /* nothing of the parent's is closed */
        return false;
    }
    RLOCK_ASSERT(!client->phases[RLOCK__ATTEMPTING] && !client->phases[RLOCK__HOLDING]);
    client->store->close(client->store_state);
    if (rlock__forked(client)) { /* by the hook on_event */
        return false;
    }
    client->loop.close(client->loop_state);
    rlock_timer_set(client, &client->due_timer, -1);
    rlock_timer_set(client, &client->shutdown_timer, -1);
    for (timers = shuts ? client->timers.count : 0; timers && client->timers.count; timers--) {
        rlock_timer *timer = client->timers.items[1]; /* of what is built on handles */
        rlock_timer_set(client, timer, -1);
        timer->fire(timer);
    }
    client->life = RLOCK__CLOSED;
    rlock__pools_limit(client);
    rlock__gates_each(client, NULL, rlock__gate_close, NULL);
    RLOCK_ASSERT(!client->phases[RLOCK__RELEASING]);
    while (RLOCK__HAS_KINDS && !rlock__list_empty(&client->questions)) {
        rlock__question_free(RLOCK__OF(client->questions.next, rlock__question, link));
    }
    rlock__made_free(client->made);
    return true;
}

void rlock_client_free(rlock_client *client) {
    if (!client || rlock__forked(client)) {
        return;
    }
    if (client->shut) {
        client->shut = false;
        client->frames--;
        rlock__client_destroy(client);
    } else if (client->life != RLOCK__CLOSED) {
        rlock__enter(client);
        if (rlock__client_close(client, false)) {
            rlock__leave(client);
        } else {
            client->depth--;
        }
    }
}

static void rlock__hold_shutdown(rlock__claim *held) {
    rlock *lock = held->lock;
    rlock__op *renewal = rlock__renewal(lock);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && rlock__handle_of(held));
    if (renewal && renewal->ready.event == RLOCK_ACQUIRED) {
        rlock__op_event(renewal, RLOCK_ERR_CLOSED, NULL);
    }
    if (!lock->ready.event) {
        rlock__claim_lose(held, RLOCK_REASON_CLOSED, true);
    } else {
        rlock__acquire_end(held, RLOCK_ERR_CLOSED);
    }
}

/* Returns a hold that a shutdown ends; a drain ends one whose grant was not told yet. */
static rlock__claim *rlock__ending_hold(const rlock__gate *gate, bool drains) {
    rlock__claim *held = rlock__holder(gate);
    while (drains && held && !held->lock->ready.event) {
        held = rlock__claim_next(gate, held, RLOCK__HOLDING);
    }
    return held;
}

static void rlock__gate_shutdown(rlock__gate *gate, const void *with) {
    rlock__claim *leaves = NULL, *held = NULL;
    const bool *drains = (const bool *)with;
    RLOCK_ASSERT(gate->client->life != RLOCK__LIVE && gate->client->life != RLOCK__CLOSED);
    gate->references++;
    while ((leaves = rlock__claim_next(gate, leaves, RLOCK__RELEASING)) != NULL) {
        if (rlock__handle_of(leaves) && rlock__following(leaves->lock)) {
            rlock__following_end(leaves->lock, RLOCK_ERR_CLOSED, NULL);
        }
    }
    while (rlock__waiter(gate)) {
        rlock__claim *last = RLOCK__OF(gate->waiters->list.prev, rlock__claim, link);
        rlock__acquire_end(last, RLOCK_ERR_CLOSED);
    }
    while (RLOCK__HAS_TOKENS && (held = rlock__claim_next(gate, NULL, RLOCK__ATTEMPTING)) != NULL) {
        rlock__acquire_end(held, RLOCK_ERR_CLOSED);
    }
    while ((held = rlock__ending_hold(gate, *drains)) != NULL) {
        rlock__hold_shutdown(held);
    }
    rlock__gate_unref(gate);
}

/* The time of the shutdown is over: ends the releases and the questions that are not answered. */
static void rlock__gate_overdue(rlock__gate *gate, const void *with) {
    rlock__claim *leaves = NULL;
    (void)with;
    RLOCK_ASSERT(gate->client->life >= RLOCK__ENDING);
    while ((leaves = rlock__claim_next(gate, leaves, RLOCK__RELEASING)) != NULL) {
        leaves->until_us = gate->client->now_us;
        rlock__releasing_fire(leaves);
    }
}

static void rlock__shutdown_fire(rlock_timer *timer) {
    rlock_client *client = RLOCK__OF(timer, rlock_client, shutdown_timer);
    const bool drains = false;
    RLOCK_ASSERT(client->life != RLOCK__LIVE && client->life != RLOCK__CLOSED);
    if (client->life == RLOCK__DRAINING) {
        rlock__shutdown_begin(client, 0);
        rlock__gates_each(client, NULL, rlock__gate_shutdown, &drains);
        rlock__shutdown_end(client, RLOCK_OK);
        return;
    }
    rlock__gates_each(client, NULL, rlock__gate_overdue, NULL);
    rlock__questions_overdue(client);
    rlock__shutdown_end(client, RLOCK_ERR_TIMEOUT);
}

/* Closes the client, so that nothing of it is left on the loop, and tells that it is shut down. */
static void rlock__shutdown_deliver(rlock__ready *ready, char **words) {
    rlock_client *client = RLOCK__OF(ready, rlock_client, shutdown_ready);
    rlock_client_callback *done = client->shutdown_done;
    (void)words;
    RLOCK_ASSERT(client->depth && client->life == RLOCK__ENDED);
    if (!rlock__list_empty(&client->batch) || !rlock__list_empty(&client->ready)) {
        rlock__list_append(&client->ready, &ready->link); /* it comes last */
        done = NULL;
    } else if (rlock__client_close(client, true)) {
        client->shut = true;
        client->frames++;
    } else {
        done = NULL;
    }
    rlock__leave(client);
    if (done) {
        done(client, ready->status, client->shutdown_user);
    }
}

static void rlock__drain_deliver(rlock__ready *ready, char **words) {
    rlock_client *client = RLOCK__OF(ready, rlock_client, drain_ready);
    rlock_client_callback *done = client->drain_done;
    void *user = client->drain_user;
    (void)words;
    RLOCK_ASSERT(client->depth && client->life >= RLOCK__ENDING);
    rlock__leave(client);
    if (done) {
        done(client, RLOCK_ERR_CANCELED, user);
    }
}

static rlock__deliverer *const rlock__deliverers[] = {
    /* [RLOCK__OF_...] */
    rlock__lock_deliver, rlock__op_deliver, RLOCK__HAS_KINDS ? rlock__question_deliver : NULL,
    rlock__shutdown_deliver, rlock__drain_deliver};

/* Makes a client of a configuration that is resolved. */
static int rlock__client_make(rlock_client **out, const rlock_config *config) {
    rlock_client *client = (rlock_client *)rlock__alloc(sizeof *client);
    int status = RLOCK_ERR_NOMEM;
    if (!client) {
        return RLOCK_ERR_NOMEM;
    }
    client->pid = getpid();
    client->process = rlock__process();
    client->process_number = client->process ? *client->process : 0;
    client->armed_us = RLOCK__NEVER;
    rlock__list_init(&client->ready);
    rlock__list_init(&client->batch);
    rlock__list_init(&client->questions);
    rlock__list_init(&client->due);
    rlock__list_init(&client->shutdown_ready.link);
    rlock__list_init(&client->drain_ready.link);
    client->shutdown_ready.of = RLOCK__OF_SHUTDOWN;
    client->drain_ready.of = RLOCK__OF_DRAIN;
    client->deliver = rlock__deliverers;
    if (rlock__client_configure(client, config) &&
        rlock_timer_add(client, &client->shutdown_timer, rlock__shutdown_fire) == RLOCK_OK &&
        rlock_timer_add(client, &client->due_timer, rlock__claims_fire) == RLOCK_OK &&
        (client->loop_state = client->loop.open(client->loop.ctx, client)) != NULL) {
        rlock__enter(client);
        status = client->store->open(client->store, client, config, &rlock__events, client,
                                     &client->store_state);
        if (status == RLOCK_OK) {
            rlock__leave(client);
            *out = client;
            return RLOCK_OK;
        }
        client->depth--;
        client->loop.close(client->loop_state);
    }
    rlock__client_destroy(client);
    return status;
}

int rlock_client_new(rlock_client **out, const rlock_config *config) {
    rlock_config resolved;
    char line[RLOCK__LINE], *texts;
    bool said;
    int status;
    if (!out || !config) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    resolved = *config;
    errno = 0;
    status = rlock__config_resolve(&resolved, &texts, line);
    said = status == RLOCK_ERR_ARG;
    if (status == RLOCK_OK) {
        status = rlock__client_make(out, &resolved);
    }
    if (status == RLOCK_ERR_NOMEM && errno) { /* memory, descriptors or random bytes */
        rlock__line_add(line, 0, "cannot create a client: ", strerror(errno));
        said = true;
    }
    if (said && config->log) {
        config->log(config->log_user ? config->log_user : config->user, RLOCK_LOG_ERROR, line);
    }
    if (RLOCK__HAS_STORES && resolved.store != config->store) { /* it was made of the URL */
        if (status == RLOCK_OK) {
            (*out)->made = resolved.store;
        } else {
            rlock__made_free(resolved.store);
        }
    }
    rlock__dealloc(texts);
    return status;
}

/* Stops to acquire. */
static int rlock__client_ends(rlock_client *client, int64_t ms, rlock_client_callback *done,
                              void *user, bool drains) {
    if (!client || ms < 0 || ms > RLOCK_LEASE_MAX_MS) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client) || client->life > RLOCK__DRAINING ||
        (drains && client->life == RLOCK__DRAINING)) {
        return RLOCK_ERR_STATE;
    }
    rlock__enter(client);
    if (client->life == RLOCK__DRAINING) {
        client->drain_done = client->shutdown_done;
        client->drain_user = client->shutdown_user;
        rlock__list_append(&client->ready, &client->drain_ready.link);
    }
    client->shutdown_done = done;
    client->shutdown_user = user;
    if (drains) {
        client->life = RLOCK__DRAINING;
        rlock_timer_set(client, &client->shutdown_timer,
                        ms ? rlock__add_ms(client->now_us, ms) : -1);
    } else {
        rlock__shutdown_begin(client, ms);
    }
    rlock__gates_each(client, NULL, rlock__gate_shutdown, &drains);
    rlock__shutdown_end(client, RLOCK_OK);
    rlock__leave(client);
    return RLOCK_OK;
}

int rlock_client_shutdown(rlock_client *client, int64_t timeout_ms, rlock_client_callback *done,
                          void *user) {
    return rlock__client_ends(client, timeout_ms, done, user, false);
}

int rlock_client_drain(rlock_client *client, int64_t drain_ms, rlock_client_callback *done,
                       void *user) {
    return rlock__client_ends(client, drain_ms, done, user, true);
}

#if RLOCK__HAS_CREDENTIALS

/* Gives them to the store. Returns what is wrong with that, or NULL. */
static const char *rlock__credentials_give(rlock_client *client, bool sentinels,
                                           const char *username, const char *password,
                                           int *status) {
    const rlock_store *store = client->store;
    *status = RLOCK_ERR_ARG;
    if (username && !password) {
        return RLOCK__TEXT("a username requires a password");
    }
    if (!store->set_credentials) {
        return RLOCK__TEXT("this store does not take credentials");
    }
    *status = rlock__hide_passing(client, sentinels, password);
    if (*status == RLOCK_OK) {
        *status = store->set_credentials(client->store_state, sentinels, username, password);
    }
    return sentinels ? RLOCK__TEXT("this store does not use Sentinels")
                     : RLOCK__TEXT("this store does not take credentials");
}

static int rlock__credentials_set(rlock_client *client, bool sentinels, const char *username,
                                  const char *password) {
    const char *wrong;
    int status;
    if (!client) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client)) {
        return RLOCK_ERR_STATE;
    }
    if (client->life == RLOCK__CLOSED) {
        return RLOCK_ERR_CLOSED;
    }
    rlock__enter(client);
    wrong = rlock__credentials_give(client, sentinels, username, password, &status);
    if (status == RLOCK_ERR_ARG) {
        rlock_client_log(client, RLOCK_LOG_ERROR, "rlock_client_set_credentials", wrong);
    }
    if (status == RLOCK_OK && !client->up && client->fault == RLOCK_FAULT_AUTH) {
        client->fault = RLOCK_FAULT_DOWN; /* of the former ones: nobody is told of it any more */
        rlock__set_text(client, &client->fault_text, NULL);
    }
    client->unsent = true;
    rlock__leave(client);
    return status;
}

int rlock_client_set_credentials(rlock_client *client, const char *username, const char *password) {
    return rlock__credentials_set(client, false, username, password);
}

int rlock_client_set_sentinel_credentials(rlock_client *client, const char *username,
                                          const char *password) {
    return rlock__credentials_set(client, true, username, password);
}

#endif /* RLOCK__HAS_CREDENTIALS */

void rlock_client_stats(const rlock_client *client, rlock_stats *out) {
    if (!out) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (!client || rlock__forked(client)) {
        return;
    }
    *out = client->stats;
    out->held = client->phases[RLOCK__HOLDING];
    out->waiting = client->phases[RLOCK__ATTEMPTING];
    out->cleaning += client->phases[RLOCK__RELEASING]; /* beside those of the store */
    out->handles = client->handles;
    out->up = client->up && client->life != RLOCK__CLOSED;
    out->pushing = client->pushing != 0 && client->life != RLOCK__CLOSED;
}

#endif /* RLOCK_LOCK_API_CLIENT_H */
