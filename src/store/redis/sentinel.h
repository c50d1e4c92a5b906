/* ------------------------------------------------------------------------------------------------
 * >>redis-sentinel - where the primary is, asked of Sentinels
 *
 * One connection asks one Sentinel: at each attempt to connect to the primary, and every second. An
 * answer that takes long, or is none, leads to the next Sentinel. What Sentinels publish is not
 * listened to: their answers are right earlier.
 *
 * Two Sentinels may differ. The address of the higher config-epoch is right, which is asked for
 * where an address is not the one that is known; then the address is asked for once more: if it
 * changed meanwhile, nobody knows which one the epoch is of. So a connection that serves ends only
 * for a higher epoch, and an address of a lower one is not used, unless every Sentinel has only
 * such, or most have and the address that is known fails. Where the address that was told leads to
 * no primary, another Sentinel is asked, and nothing is known.
 * https://redis.io/docs/latest/develop/reference/sentinel-clients/
 */

#ifndef RLOCK_STORE_REDIS_SENTINEL_H
#define RLOCK_STORE_REDIS_SENTINEL_H

#include "public/head.h"
#include "public/store.h"
#include "public/client.h"
#include "public/report.h"
#include "base/platform.h"
#include "store/redis/state.h"
#include "store/redis/address.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"
#include "store/redis/wait.h"

#if RLOCK__HAS_SENTINEL

/* Returns what is wrong with the Sentinels of a configuration, or NULL. */
static const char *rlock__sentinel_fault(const rlock_config *config, const char **detail) {
    if (!config->sentinels) {
        return config->sentinel_primary || config->sentinel_username || config->sentinel_password ||
                       config->sentinel_tls
                   ? "config.sentinel_... requires config.sentinels"
                   : NULL;
    }
    if (!rlock__length(config->sentinel_primary)) {
        return RLOCK__TEXT("config.sentinels requires config.sentinel_primary, the primary's name "
                           "in the Sentinels");
    }
    if (config->unix_path || config->connect) {
        return RLOCK__TEXT(
            "config.sentinels cannot be combined with config.unix_path or config.connect");
    }
    if (config->sentinel_username && !config->sentinel_password) {
        return RLOCK__TEXT("config.sentinel_username requires config.sentinel_password");
    }
    if (config->tls && !config->sentinel_tls && !config->tls->own_name &&
        !config->trust_plain_sentinels) {
        return RLOCK__TEXT(
            "TLS to the server, but not to the Sentinels, which name the host to verify: set "
            "config.sentinel_tls or server_name of rlock_tls.h, or accept that risk by "
            "trust_plain_sentinels");
    }
    return rlock__hosts_fault(
        config, config->sentinels,
        "config.sentinels: expected host:26379,[::1]:26379, without a user, a "
        "scheme or a blank",
        detail);
}

static void rlock__sentinel_free(rlock__sentinel *sentinel) {
    rlock__dealloc(sentinel->text);
    rlock__dealloc(sentinel->hosts);
    rlock__dealloc(sentinel->primary);
    rlock__dealloc(sentinel->username);
    rlock__dealloc(sentinel->password);
    rlock__dealloc(sentinel->named);
    rlock__dealloc(sentinel);
}

/* Returns NULL if there is no memory. */
static rlock__sentinel *rlock__sentinel_new(const rlock_config *config) {
    rlock__sentinel *sentinel = (rlock__sentinel *)rlock__alloc(sizeof *sentinel);
    bool failed = false;
    if (!sentinel) {
        return NULL;
    }
    sentinel->epoch = -1;
    sentinel->map = config->map_address;
    sentinel->map_user = config->map_user;
#if RLOCK__HAS_TLS
    sentinel->endpoint.tls = config->sentinel_tls;
#endif
    sentinel->text = rlock__copy_text(config->sentinels, &failed);
    sentinel->primary = rlock__copy_text(config->sentinel_primary, &failed);
    sentinel->username = rlock__copy_text(config->sentinel_username, &failed);
    sentinel->password = rlock__copy_text(config->sentinel_password, &failed);
    sentinel->hosts = failed ? NULL : rlock__hosts_split(sentinel->text, 26379, &sentinel->count);
    if (!sentinel->hosts) {
        rlock__sentinel_free(sentinel);
        return NULL;
    }
    return sentinel;
}

/* Leads a connection to another host. */
static void rlock__endpoint_move(rlock__conn *conn, char *host, int port) {
    rlock__endpoint *endpoint = conn->endpoint;
    RLOCK_ASSERT(host && port > 0 && port <= 65535);
    endpoint->host = host;
    endpoint->port = port;
#if RLOCK__HAS_NAMES
    endpoint->good.any.sa_family = 0;
    endpoint->count = endpoint->at = 0;
#endif
    conn->moved = true;
}

/* Leads the connection to the Sentinel whose turn it is. */
static void rlock__sentinel_turn(rlock__sentinel *sentinel) {
    const rlock__host *host = &sentinel->hosts[sentinel->at];
    RLOCK_ASSERT(sentinel->at < sentinel->count);
    rlock__endpoint_move(&sentinel->conn, host->name, host->port);
}

#if RLOCK__HAS_NAMES

/* Leads the connection to the Sentinel whose name was asked for in its turn, but is known only
 * now. */
static void rlock__sentinel_turns_to(rlock__redis *redis, const char *name) {
    rlock__sentinel *sentinel = redis->sentinel;
    uint32_t i = 0;
    while (strcmp(sentinel->hosts[i].name, name) != 0) {
        i++;
        RLOCK_ASSERT(i < sentinel->count); /* no other name is asked for */
    }
    sentinel->at = i;
    rlock__sentinel_turn(sentinel);
}

#endif /* RLOCK__HAS_NAMES */

/* The command connection goes on, in the next loop iteration. */
static void rlock__sentinel_resumes(rlock__redis *redis) {
    redis->sentinel->waited = false;
    rlock_timer_set(redis->client, &redis->commands.timer, 0);
}

/* An answer was taken: this Sentinel is asked again in a second. */
static void rlock__sentinel_answered(rlock__redis *redis) {
    rlock__sentinel *sentinel = redis->sentinel;
    rlock__conn *conn = &sentinel->conn;
    RLOCK_ASSERT(conn->state == RLOCK__CONN_READY);
    if (!sentinel->heard) {
        sentinel->heard = true;
        conn->text[0] = 0;
        conn->backoff_ms = 0;
        rlock__endpoint_worked(conn->endpoint);
        rlock__conn_log(conn, RLOCK_LOG_INFO, "ready", NULL);
    }
    sentinel->silent = sentinel->behind = 0;
    if (sentinel->waited) {
        sentinel->misled = true; /* until the address has worked */
        rlock__sentinel_resumes(redis);
    }
}

/* Takes an address for that of the primary. What is under way to another one ends at once. */
static void rlock__sentinel_moved(rlock__redis *redis, char *host, int port) {
    rlock__conn *conn = &redis->commands;
    if (conn->ac) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "the primary moved");
        rlock__commands_failed(redis);
    }
    conn->walks = false;
    rlock__dealloc(redis->endpoint.host);
    rlock__endpoint_move(conn, host, port);
    redis->endpoint.failures = 0;
    RLOCK_ASSERT(conn->wanted);                      /* for it a Sentinel was asked */
    rlock_timer_set(redis->client, &conn->timer, 0); /* it waits for no name of another host */
}

static bool rlock__sentinel_agrees(const rlock__redis *redis) {
    const rlock__endpoint *endpoint = &redis->endpoint;
    return endpoint->host && strcmp(endpoint->host, redis->sentinel->named) == 0 &&
           endpoint->port == redis->sentinel->named_port;
}

/* The address that was told has this config-epoch; -1 = unknown, as where an ACL hides it. */
static void rlock__sentinel_judge(rlock__redis *redis, int64_t epoch) {
    rlock__sentinel *sentinel = redis->sentinel;
    bool newer = epoch < 0 || epoch > sentinel->epoch;
    if (!newer && epoch < sentinel->epoch) {
        sentinel->behind++;
        sentinel->heard = true; /* its other addresses are no other opinion */
        rlock__conn_fail(&sentinel->conn, RLOCK_FAULT_DOWN, "it has an older configuration");
        return;
    }
    RLOCK_ASSERT(sentinel->named && sentinel->conn.state == RLOCK__CONN_READY);
    if (!rlock__sentinel_agrees(redis) && (newer || redis->commands.state != RLOCK__CONN_READY)) {
        rlock__sentinel_moved(redis, sentinel->named, sentinel->named_port);
        sentinel->named = NULL;
    }
    sentinel->epoch = epoch;
    rlock__sentinel_answered(redis);
}

/* An array of names and values, of which the config-epoch is kept; -1 = unknown. */
static void rlock__on_sentinel_master(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    size_t i;
    (void)data;
    if (!conn || !reply) {
        return;
    }
    rlock__conn_answered(conn);
    conn->redis->sentinel->named_epoch = -1;
    for (i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            strcmp(name->str, "config-epoch") == 0) {
            conn->redis->sentinel->named_epoch = strtoll(value->str, NULL, 10);
        }
    }
}

static void rlock__sentinel_question(rlock__sentinel *sentinel, const char *words,
                                     redisCallbackFn *fn, void *data) {
    rlock__put_words(sentinel->conn.redis, words, 1);
    rlock__put_text(sentinel->conn.redis, sentinel->primary);
    rlock__conn_say(&sentinel->conn, fn, data);
}

#define RLOCK__SENTINEL_ADDRESS "SENTINEL GET-MASTER-ADDR-BY-NAME"

/* Notes the address of an answer: a host, and a port in words. False: it has none, as where a host
 * has a line end. *again: it is the one that was noted before. */
static bool rlock__sentinel_told(rlock__sentinel *sentinel, const redisReply *reply, bool *again) {
    const redisReply *host, *port;
    char text[RLOCK__HOST_MAX + 1];
    bool failed = false;
    int former = sentinel->named_port;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        return false;
    }
    host = reply->element[0];
    port = reply->element[1];
    if (host->type != REDIS_REPLY_STRING || port->type != REDIS_REPLY_STRING ||
        !rlock__is_host(host->str, (size_t)host->len)) {
        return false;
    }
    sentinel->named_port = (int)strtol(port->str, NULL, 10);
    strcpy(text, host->str); /* a host is no longer */
    if (sentinel->named_port > 0 && sentinel->named_port <= 65535) {
        rlock__announced(sentinel->map, sentinel->map_user, text, &sentinel->named_port);
    }
    *again =
        sentinel->named && strcmp(sentinel->named, text) == 0 && sentinel->named_port == former;
    rlock__dealloc(sentinel->named);
    sentinel->named = rlock__copy_text(text, &failed);
    return !failed && sentinel->named_port > 0 && sentinel->named_port <= 65535;
}

/* data: not NULL for the second question, after that for the epoch. */
static void rlock__on_sentinel_address(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    rlock__sentinel *sentinel;
    bool again = false;
    if (!conn || !reply) {
        return;
    }
    sentinel = conn->redis->sentinel;
    rlock__conn_answered(conn);
    if (reply->type == REDIS_REPLY_ERROR) {
        bool auth = rlock__classify(reply->str) == RLOCK_FAULT_AUTH;
        rlock__conn_fail(conn, auth ? RLOCK_FAULT_AUTH : RLOCK_FAULT_DOWN, reply->str);
    } else if (reply->type == REDIS_REPLY_NIL) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "it knows no primary of this name");
    } else if (!rlock__sentinel_told(sentinel, reply, &again)) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
    } else if (data && !again) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "it is changing the primary");
    } else if (data) {
        rlock__sentinel_judge(conn->redis, sentinel->named_epoch);
    } else if (sentinel->epoch >= 0 && rlock__sentinel_agrees(conn->redis)) {
        rlock__sentinel_answered(conn->redis);
    } else {
        rlock__sentinel_question(sentinel, "SENTINEL MASTER", rlock__on_sentinel_master, NULL);
        rlock__sentinel_question(sentinel, RLOCK__SENTINEL_ADDRESS, rlock__on_sentinel_address,
                                 sentinel);
    }
}

/* Asks where the primary is. */
static void rlock__sentinel_ask(rlock__redis *redis) {
    RLOCK_ASSERT(redis->sentinel->conn.state == RLOCK__CONN_READY);
    rlock__sentinel_question(redis->sentinel, RLOCK__SENTINEL_ADDRESS, rlock__on_sentinel_address,
                             NULL);
}

/* An attempt of the command connection waits for an answer, or for the end of the round. False: no
 * Sentinel is asked. */
static bool rlock__sentinel_wanted(rlock__redis *redis) {
    rlock__sentinel *sentinel = redis->sentinel;
    rlock__conn *conn = sentinel ? &sentinel->conn : NULL;
    if (!sentinel) {
        return false;
    }
    RLOCK_ASSERT(redis->commands.state == RLOCK__CONN_OPENING && !redis->commands.ac);
    sentinel->waited = true;
    if (sentinel->misled) {
        sentinel->misled = false;
        sentinel->epoch = -1;
        if (sentinel->count > 1 && conn->state == RLOCK__CONN_READY) {
            rlock__conn_fail(conn, RLOCK_FAULT_DOWN,
                             "the address that it gave leads to no primary");
        }
    }
    conn->wanted = true;
    if (conn->state == RLOCK__CONN_DOWN) {
        rlock_timer_set(redis->client, &conn->timer, 0);
    } else if (conn->state == RLOCK__CONN_READY && !conn->outstanding && !conn->failing) {
        rlock__sentinel_ask(redis);
    }
    return true;
}

static bool rlock__sentinel_waited(const rlock__redis *redis) {
    return redis->sentinel && redis->sentinel->waited;
}

/* No Sentinel has an answer. Whoever waits goes on with the address that was told last. */
static void rlock__sentinel_round_ends(rlock__redis *redis) {
    rlock__sentinel *sentinel = redis->sentinel;
    rlock__conn *conn = &sentinel->conn;
    bool doubted = 2 * sentinel->behind > sentinel->count;
    RLOCK_ASSERT(sentinel->behind <= sentinel->count);
    rlock__conn_log_failure(conn, NULL, conn->text);
    redis->stats->faults++;
    conn->endpoint->failures++;
    sentinel->epoch = sentinel->behind == sentinel->count ? -1 : sentinel->epoch;
    sentinel->silent = sentinel->behind = 0;
    rlock__conn_wait(conn, rlock__backoff_us(conn));
    if (sentinel->waited && redis->endpoint.host) {
        sentinel->misled = doubted; /* until the address has worked */
        rlock__sentinel_resumes(redis);
    } else if (sentinel->waited) {
        char words[RLOCK__LINE];
        rlock__line_add(words, 0, "no Sentinel gives an address: ", conn->text);
        sentinel->waited = false;
        rlock__conn_fail(&redis->commands, conn->fault, words);
        rlock__commands_failed(redis); /* no event of its own comes */
    }
}

/* Closes a connection that is failing, and goes on: at the next address of this Sentinel, at the
 * next Sentinel, or later. */
static void rlock__sentinel_closed(rlock__redis *redis) {
    rlock__sentinel *sentinel = redis->sentinel;
    rlock__conn *conn = &sentinel->conn;
    bool more = !sentinel->heard && rlock__conn_more(conn);
    bool last = !conn->walks;
    RLOCK_ASSERT(sentinel->silent < sentinel->count);
    if (conn->state == RLOCK__CONN_READY) {
        rlock__conn_report(conn, RLOCK_REPORT_DISCONNECTED,
                           rlock_client_now_us(redis->client) - conn->ready_us);
    } else if (last) {
        rlock__conn_report(conn, RLOCK_REPORT_DISCONNECTED, 0);
    }
    rlock__conn_shut(conn);
    sentinel->heard = false;
    rlock_timer_set(redis->client, &conn->timer, 0);
    if (rlock__conn_renews(conn)) { /* the same address, with newer credentials */
        conn->walks = false;
        return;
    }
    if (more) {
        return;
    }
    conn->walks = false;
    if (last) {
        rlock__sentinel_round_ends(redis);
    } else {
        sentinel->silent++;
    }
    if (sentinel->count > 1) { /* one alone keeps what is known of its name */
        sentinel->at = (sentinel->at + 1) % sentinel->count;
        rlock__sentinel_turn(sentinel);
    }
}

/* The address that was told is that of a primary, as far as its handshake says. */
static void rlock__sentinel_proved(rlock__redis *redis) {
    if (redis->sentinel) {
        redis->sentinel->misled = false;
    }
}

/* It is not: a server whose handshake may not say so says it now. */
static void rlock__sentinel_disproved(rlock__redis *redis) {
    if (redis->sentinel) {
        redis->sentinel->misled = true;
    }
}

#else

static const char *rlock__sentinel_fault(const rlock_config *config, const char **detail) {
    (void)detail;
    return config->sentinels ? RLOCK__NEEDS("config.sentinels", "RLOCK_WITH_SENTINEL") : NULL;
}
static void rlock__sentinel_nothing(rlock__redis *redis) {
    (void)redis;
}
static bool rlock__sentinel_no(const rlock__redis *redis) {
    (void)redis;
    return false;
}
#define rlock__sentinel_ask rlock__sentinel_nothing
#define rlock__sentinel_closed rlock__sentinel_nothing
#define rlock__sentinel_proved rlock__sentinel_nothing
#define rlock__sentinel_disproved rlock__sentinel_nothing
#define rlock__sentinel_turns_to(redis, name) ((void)(redis), (void)(name))
#define rlock__sentinel_wanted rlock__sentinel_no
#define rlock__sentinel_waited rlock__sentinel_no

#endif /* RLOCK__HAS_SENTINEL */

/* The address led to a server that is not the one: it is left when all in flight is answered. */
static void rlock__redis_strays(rlock__redis *redis, const char *text) {
    redis->commands.strayed = true;
    rlock__sentinel_disproved(redis);
    rlock__conn_error(&redis->commands, RLOCK_FAULT_BUSY, text);
}

#endif /* RLOCK_STORE_REDIS_SENTINEL_H */
