/* ------------------------------------------------------------------------------------------------
 * >>redis-quarantine - a server that may have lost holds grants none until they would have ended
 *
 * A marker at the server says whose data it has, and since when: src/lua/quarantine.lua. The
 * handshake of each command connection asks how long the server has to grant no lock, counted by
 * this client's config.quarantine_ms. Until then no acquire is sent; all else is. A server that
 * cannot tell grants no lock either, and is asked again. A replica says here that it is one, since
 * no acquire is sent to which it could.
 *
 * A node of a cluster keeps its marker in a slot of its own: see rlock__node_mark. While a question
 * is on its way after the handshake, acquires wait for the answer.
 */

#ifndef RLOCK_STORE_REDIS_QUARANTINE_H
#define RLOCK_STORE_REDIS_QUARANTINE_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "base/list.h"
#include "store/redis/state.h"
#include "store/redis/scripts.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"
#include "store/redis/wait.h"
#include "store/redis/sentinel.h"

#if RLOCK__HAS_REPLICAS

#define RLOCK__MARKER_NAME "quarantine" /* the marker's key, after the prefix */
#define RLOCK__QUARANTINE_ASK_MS 1000   /* until a server that cannot tell is asked again */

/* True if the server may grant nothing now. */
static bool rlock__quarantined(const rlock__redis *redis) {
    RLOCK_ASSERT(redis->quarantine);
    return rlock_client_now_us(redis->client) < redis->quarantine->until_us;
}

/* True if an acquire waits until it is known whether the server may grant. */
static bool rlock__quarantine_waits(const rlock__redis *redis) {
    RLOCK_ASSERT(redis->quarantine);
    return redis->quarantine->asked || redis->quarantine->unmapped;
}

/* Returns what is wrong with the key of a lock where there are markers, or NULL: it may be that of
 * one; in a cluster that of any node. */
static const char *rlock__marker_refuses(const char *prefix, bool node, const char *key,
                                         size_t len) {
    size_t head = strlen(prefix), name = sizeof RLOCK__MARKER_NAME - 1;
    bool marker = len >= head + name && memcmp(key, prefix, head) == 0 &&
                  memcmp(key + head, RLOCK__MARKER_NAME, name) == 0 &&
                  (node ? len > head + name && key[head + name] == ':' : len == head + name);
    return marker ? "the library uses a key of this name for the quarantine marker; rename it"
                  : NULL;
}

/* Returns why nothing is granted, perhaps in the line. */
static const char *rlock__quarantine_text(const rlock__redis *redis, char *line) {
    const rlock__quarantine *quarantine = redis->quarantine;
    int64_t left_us = quarantine->until_us - rlock_client_now_us(redis->client);
    char number[21];
    RLOCK_ASSERT(left_us > 0);
    if (*quarantine->refusal) {
        return quarantine->refusal;
    }
    number[rlock__digits(number, (uint64_t)(left_us + 999) / 1000)] = 0;
    rlock__line_add(line, rlock__line_add(line, 0, "quarantine: nothing is granted for ", number),
                    " ms more", "");
    return line;
}

/* True if an acquire is not sent now: it waits until it is known whether the server may grant, or
 * is refused. */
static bool rlock__quarantine_keeps(rlock__redis *redis, rlock_request *request) {
    char line[RLOCK__LINE];
    bool waits = rlock__quarantine_waits(redis);
    if (!waits && !rlock__quarantined(redis)) {
        return false;
    }
    rlock__list_remove(&request->store.link);
    if (waits) {
        rlock__list_append(&redis->queues[RLOCK__PARKED], &request->store.link);
    } else {
        rlock__answer_fault(redis, request, RLOCK_FAULT_BUSY, rlock__quarantine_text(redis, line));
    }
    return true;
}

/* Formats the question. It goes in full: a server that was started anew knows no script. */
static void rlock__put_quarantine(rlock__redis *redis) {
    const rlock__quarantine *quarantine = redis->quarantine;
    int64_t known_us = rlock_client_now_us(redis->client) - quarantine->known_us;
    bool known = *quarantine->run_id != 0;
    RLOCK_ASSERT(*quarantine->marker && quarantine->ms > 0);
    RLOCK_ASSERT(!known || known_us >= 0);
    rlock__put_command(redis, known ? 8 : 5);
    rlock__put_eval(redis, rlock__lua_quarantine, true, 1);
    rlock__put_around(redis, redis->prefix, false, quarantine->marker, strlen(quarantine->marker),
                      "");
    rlock__put_number(redis, (uint64_t)quarantine->ms);
    if (known) {
        rlock__put_text(redis, quarantine->run_id);
        rlock__put_text(redis, quarantine->replid);
        rlock__put_number(redis, (uint64_t)known_us / 1000);
    }
}

/* Notes that a node has been the process that it is, with the history that it has, since a time:
 * where its marker leaves it a client can say so. */
static void rlock__quarantine_knows(rlock__redis *redis, int64_t since_us) {
    rlock__quarantine *quarantine = redis->quarantine;
    const char *run_id = redis->commands.run_id;
    bool same = rlock__same_identity(run_id, quarantine->run_id) &&
                rlock__same_identity(redis->replid, quarantine->replid);
    if (!rlock__is_node(redis) || !*run_id || !*redis->replid ||
        (same && quarantine->known_us <= since_us)) {
        return;
    }
    memcpy(quarantine->run_id, run_id, sizeof quarantine->run_id);
    memcpy(quarantine->replid, redis->replid, sizeof quarantine->replid);
    quarantine->known_us = since_us;
}

/* Notes the answer, which is a number or an error. A node that has no slot any more may be a
 * replica by now. If the slot of the marker has left it, another map names another marker. */
static void rlock__quarantine_told(rlock__redis *redis, const redisReply *reply) {
    rlock__quarantine *quarantine = redis->quarantine;
    int64_t now_us = rlock_client_now_us(redis->client);
    bool known = reply->type == REDIS_REPLY_INTEGER;
    char line[RLOCK__LINE];
    bool news;
    if (!*quarantine->marker) {
        return;
    }
    if (rlock__is_node(redis) && !known && !quarantine->led && rlock__redirected(reply->str)) {
        quarantine->unmapped = quarantine->led = true;
        return;
    }
    if (known) {
        bool sane = reply->integer >= 0 && reply->integer <= quarantine->ms;
        int64_t left_ms = sane ? reply->integer : quarantine->ms;
        quarantine->led = false;
        quarantine->until_us = now_us + left_ms * 1000;
        quarantine->refusal[0] = 0;
        rlock__quarantine_knows(redis, quarantine->until_us - quarantine->ms * 1000);
        rlock_timer_set(redis->client, &quarantine->timer, left_ms ? quarantine->until_us : -1);
        news = left_ms > 0;
    } else {
        rlock__line_add(line, 0,
                        "quarantine: the server cannot tell whether it lost holds: ", reply->str);
        news = strcmp(line, quarantine->refusal) != 0;
        rlock__line_add(quarantine->refusal, 0, line, "");
        quarantine->until_us = RLOCK__NEVER;
        rlock_timer_set(redis->client, &quarantine->timer,
                        now_us + RLOCK__QUARANTINE_ASK_MS * 1000);
        if (rlock__error_of(reply->str) == &rlock__errors[RLOCK__ERROR_ASTRAY]) {
            rlock__redis_strays(redis, reply->str);
        }
    }
    if (news) {
        rlock__conn_log(&redis->commands, RLOCK_LOG_WARNING, rlock__quarantine_text(redis, line),
                        NULL);
    }
}

static void rlock__on_quarantine(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    rlock__redis *redis = (rlock__redis *)data;
    bool before;
    RLOCK_ASSERT(redis->quarantine->asked);
    redis->quarantine->asked--;
    if (!conn || !reply) {
        return;
    }
    rlock__conn_answered(conn);
    if (reply->type != REDIS_REPLY_INTEGER && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return;
    }
    before = rlock__quarantined(redis);
    rlock__quarantine_told(redis, reply);
    if (before && !rlock__quarantined(redis)) {
        redis->events->up(redis->owner, NULL);
    }
}

/* Asks once more. Without a connection the next handshake asks; if one has gone too far for that,
 * rlock__node_up does. */
static void rlock__quarantine_ask(rlock__redis *redis) {
    bool usable = rlock__conn_usable(&redis->commands);
    redis->quarantine->late = !usable;
    if (usable && *redis->quarantine->marker) {
        rlock__put_quarantine(redis);
        if (rlock__conn_say(&redis->commands, rlock__on_quarantine, redis)) {
            redis->quarantine->asked++;
        }
    }
}

/* The quarantine is over, or it is time to ask once more. */
static void rlock__quarantine_fire(rlock_timer *timer) {
    rlock__redis *redis = RLOCK__OF(timer, rlock__quarantine, timer)->redis;
    if (rlock__quarantined(redis)) {
        rlock__quarantine_ask(redis);
    } else if (rlock__conn_usable(&redis->commands)) {
        redis->events->up(redis->owner, NULL);
    }
}

/* False: there is no memory. */
static bool rlock__quarantine_init(rlock__redis *redis, const rlock_config *config) {
    rlock__quarantine *quarantine;
    RLOCK_ASSERT(!redis->quarantine);
    if (!config->quarantine_ms) {
        return true;
    }
    quarantine = (rlock__quarantine *)rlock__alloc(sizeof *quarantine);
    if (!quarantine) {
        return false;
    }
    if (rlock_timer_add(redis->client, &quarantine->timer, rlock__quarantine_fire) != RLOCK_OK) {
        rlock__dealloc(quarantine);
        return false;
    }
    quarantine->redis = redis;
    quarantine->ms = config->quarantine_ms;
    memcpy(quarantine->marker, RLOCK__MARKER_NAME, sizeof RLOCK__MARKER_NAME);
    redis->quarantine = quarantine;
    return true;
}

static void rlock__quarantine_free(rlock__redis *redis) {
    if (redis->quarantine) {
        rlock_timer_drop(redis->client, &redis->quarantine->timer);
        rlock__dealloc(redis->quarantine);
    }
}

#endif /* RLOCK__HAS_REPLICAS */

#endif /* RLOCK_STORE_REDIS_QUARANTINE_H */
