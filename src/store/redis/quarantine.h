/* ------------------------------------------------------------------------------------------------
 * >>redis-quarantine - a server that may have lost holds grants none until they would have ended
 *
 * A marker at the server says whose data it has, and since when: src/lua/quarantine.lua. The
 * greeting of each command connection asks how long the server has to grant nothing, counted by
 * this client's config.quarantine_ms. Until then no acquire is sent; all else is. A server that
 * cannot tell grants nothing either, and is asked again. A replica says here that it is one, since
 * no acquire is sent to which it could.
 */

#ifndef RLOCK_STORE_REDIS_QUARANTINE_H
#define RLOCK_STORE_REDIS_QUARANTINE_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "store/redis/state.h"
#include "store/redis/scripts.h"
#include "store/redis/dialect.h"
#include "store/redis/link.h"
#include "store/redis/sentinel.h"

#define RLOCK__MARKER "quarantine"    /* the marker's key, after the prefix */
#define RLOCK__QUARANTINE_ASK_MS 1000 /* until a server that cannot tell is asked again */

/* True if the server may grant nothing now. */
static bool rlock__quarantined(const rlock__redis *redis) {
    return rlock_client_now_us(redis->client) < redis->quarantine.until_us;
}

/* True for the key of the marker. */
static bool rlock__is_marker(const rlock__redis *redis, const char *key, size_t len) {
    size_t head = strlen(redis->prefix);
    return redis->quarantine.ms && len > head && memcmp(key, redis->prefix, head) == 0 &&
           rlock__is(key + head, len - head, RLOCK__MARKER);
}

/* Returns why nothing is granted, perhaps in the line. */
static const char *rlock__quarantine_words(const rlock__redis *redis, char *line) {
    const rlock__quarantine *quarantine = &redis->quarantine;
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

/* Formats the question. It goes in full: a server that was started anew knows no script. */
static void rlock__put_quarantine(rlock__redis *redis) {
    rlock__put_command(redis, 5);
    rlock__put_eval(redis, rlock__quarantine_script, true, 1);
    rlock__put_around(redis, redis->prefix, false, RLOCK__MARKER, sizeof RLOCK__MARKER - 1, "");
    rlock__put_number(redis, (uint64_t)redis->quarantine.ms);
}

/* Notes the answer, which is a number or an error. */
static void rlock__quarantine_told(rlock__redis *redis, const redisReply *reply) {
    rlock__quarantine *quarantine = &redis->quarantine;
    int64_t now_us = rlock_client_now_us(redis->client);
    bool told = reply->type == REDIS_REPLY_INTEGER;
    char line[RLOCK__LINE];
    bool news;
    if (told) {
        bool sane = reply->integer >= 0 && reply->integer <= quarantine->ms;
        int64_t left_ms = sane ? reply->integer : quarantine->ms;
        quarantine->until_us = now_us + left_ms * 1000;
        quarantine->refusal[0] = 0;
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
        rlock__conn_log(&redis->commands, RLOCK_LOG_WARNING, rlock__quarantine_words(redis, line),
                        NULL);
    }
}

static void rlock__on_quarantine(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    (void)data;
    if (!conn || !reply) {
        return;
    }
    rlock__conn_answered(conn);
    if (reply->type != REDIS_REPLY_INTEGER && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return;
    }
    rlock__quarantine_told(conn->redis, reply);
    if (!rlock__quarantined(conn->redis)) {
        conn->redis->events->up(conn->redis->owner, NULL);
    }
}

/* The quarantine is over, or it is time to ask once more. Without a connection the next greeting
 * asks. */
static void rlock__quarantine_fire(rlock_timer *timer) {
    rlock__redis *redis = RLOCK__OF(timer, rlock__redis, quarantine.timer);
    const rlock__conn *conn = &redis->commands;
    if (conn->state != RLOCK__CONN_READY || conn->doomed || conn->strayed) {
        return;
    }
    if (rlock__quarantined(redis)) {
        rlock__put_quarantine(redis);
        rlock__conn_say(&redis->commands, rlock__on_quarantine, NULL);
    } else {
        redis->events->up(redis->owner, NULL);
    }
}

/* False: there is no memory. */
static bool rlock__quarantine_init(rlock__redis *redis, int64_t ms) {
    bool added = !ms || rlock_timer_add(redis->client, &redis->quarantine.timer,
                                        rlock__quarantine_fire) == RLOCK_OK;
    redis->quarantine.ms = added ? ms : 0;
    return added;
}

static void rlock__quarantine_end(rlock__redis *redis) {
    if (redis->quarantine.ms) {
        rlock_timer_drop(redis->client, &redis->quarantine.timer);
    }
}

#endif /* RLOCK_STORE_REDIS_QUARANTINE_H */
