/* ------------------------------------------------------------------------------------------------
 * >>redis-push - what the server reports unasked: a key changed, a token is notified
 */

#ifndef RLOCK_STORE_REDIS_PUSH_H
#define RLOCK_STORE_REDIS_PUSH_H

#include "public/head.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "runtime/token.h"
#include "store/redis/state.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"

/* Of the channel {a} both a and {a} may be the key. */
static void rlock__woken_by(rlock__redis *redis, const char *name, size_t len) {
    redis->events->woken(redis->owner, name, len);
    if (len > 2 && name[0] == '{' && name[len - 1] == '}') {
        redis->events->woken(redis->owner, name + 1, len - 2);
    }
}

/* A notification: the token's number, a colon, the key. */
static void rlock__notified_by(rlock__redis *redis, const char *text, size_t len) {
    char *end;
    uint64_t token = strtoull(text, &end, 10);
    if (end != text && *end == ':') {
        size_t head = (size_t)(end + 1 - text);
        redis->events->notified(redis->owner, end + 1, len - head, token);
    }
}

static void rlock__notify_subscribe(rlock__redis *redis);

static void rlock__on_subscribed(rlock__redis *redis, const redisReply *channel) {
    RLOCK_ASSERT(redis->push.state == RLOCK__CONN_READY);
    if (rlock__is_own_channel(redis, channel->str, (size_t)channel->len)) {
        redis->notify = RLOCK__NOTIFY_ON;
    } else if (!redis->subscribed) {
        redis->subscribed = true;
        rlock__notify_subscribe(redis);
    }
    rlock__redis_pushing(redis);
}

/* True for the name of the channel of a key. */
static bool rlock__is_channel(const redisReply *text) {
    size_t head = sizeof RLOCK__CHANNEL_HEAD - 1;
    return RLOCK__HAS_REDISSON && (size_t)text->len > head &&
           memcmp(text->str, RLOCK__CHANNEL_HEAD, head) == 0;
}

/* A message: [kind, channel, payload]. Of tracking the payload is the keys, or nil for all. */
static void rlock__on_message(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    redisReply *reply = (redisReply *)raw, *channel, *payload;
    const redisReply *named; /* the channel that is meant: see rlock__make_shard */
    rlock__redis *redis;
    size_t head = sizeof RLOCK__CHANNEL_HEAD - 1, i;
    (void)data;
    if (!conn || !reply || reply->type == REDIS_REPLY_NIL) {
        return; /* hiredis 0.14 gives what has no callback to the one before: rlock__shard_error */
    }
    RLOCK_ASSERT(reply->elements == 3); /* and two words first: see rlock__reply_expected */
    redis = conn->redis;
    RLOCK_ASSERT(conn == &redis->push);
    channel = reply->element[1];
    payload = reply->element[2];
    if (strcmp(reply->element[0]->str, "message") != 0) { /* an answer to SUBSCRIBE */
        rlock__conn_answered(conn);
        if (strcmp(reply->element[0]->str, "subscribe") == 0) {
            rlock__on_subscribed(redis, channel);
        }
    } else {
        conn->alive_us = rlock_client_now_us(redis->client);
    }
    named = payload->type == REDIS_REPLY_STRING && rlock__is_channel(payload) ? payload : channel;
    if (rlock__is_channel(named)) {
        rlock__woken_by(redis, named->str + head, (size_t)named->len - head);
    } else if (RLOCK__HAS_KINDS && payload->type == REDIS_REPLY_STRING) {
        rlock__notified_by(redis, payload->str, (size_t)payload->len);
    } else if (payload->type == REDIS_REPLY_ARRAY) {
        for (i = 0; i < payload->elements; i++) {
            if (payload->element[i]->type == REDIS_REPLY_STRING) {
                redis->events->woken(redis->owner, payload->element[i]->str,
                                     (size_t)payload->element[i]->len);
            }
        }
    } else if (payload->type == REDIS_REPLY_NIL) {
        redis->events->woken(redis->owner, NULL, 0);
    }
}

/* Subscribes to the channel that is always listened to. Its repetition is the heartbeat. */
static void rlock__push_subscribe(rlock__redis *redis) {
    RLOCK_ASSERT(redis->push.ac);
    RLOCK_ASSERT(redis->push.state == RLOCK__CONN_READY);
    rlock__put_words(redis, "SUBSCRIBE", 1);
    if (rlock__by_channel(redis)) {
        rlock__put_channel(redis, rlock_client_id(redis->client), 36);
    } else {
        rlock__put_text(redis, RLOCK__INVALIDATE);
    }
    rlock__conn_say(&redis->push, rlock__on_message, NULL);
}

/* Begins or ends to listen to the channel of a key, where there are no messages but on channels. A
 * node of a cluster may know two of that name: what is published to the sharded one only the node
 * of its slot delivers, and says when the slot has left it. */
static void rlock__channel_listen(rlock__redis *redis, const char *key, size_t len, bool on) {
    RLOCK_ASSERT(rlock__by_channel(redis) && redis->subscribed);
    rlock__put_words(redis, on ? "SUBSCRIBE" : "UNSUBSCRIBE", 1);
    rlock__put_channel(redis, key, len);
    rlock__conn_say(&redis->push, rlock__on_message, NULL);
    if (rlock__has_shards(redis) && !redis->shards_refused) {
        redis->sharded = true;
        rlock__put_words(redis, on ? "SSUBSCRIBE" : "SUNSUBSCRIBE", 1);
        rlock__put_channel(redis, key, len);
        rlock__conn_add(&redis->push);
    }
}

/* Subscribes to the channel on which this client is notified, if any key is of a queued kind. */
RLOCK__NOINLINE static void rlock__notify_subscribe(rlock__redis *redis) {
    if (!RLOCK__HAS_KINDS || redis->notify != RLOCK__NOTIFY_WANTED || !redis->subscribed) {
        return;
    }
    rlock__put_words(redis, "SUBSCRIBE", 1);
    rlock__put_around(redis, redis->prefix, false, rlock_client_id(redis->client),
                      RLOCK__TOKEN_HEAD - 1, "");
    rlock__conn_say(&redis->push, rlock__on_message, NULL);
}

/* Nothing is to be heard on the push connection: ends it, unless it is wanted all the same. */
static void rlock__push_spare(rlock__redis *redis) {
    if (!rlock__pushes(redis)) {
        rlock__conn_fail(&redis->push, RLOCK_FAULT_DOWN, "not needed");
    }
}

/* Changes are told on channels, or not at all. */
static void rlock__tracking_refused(rlock__redis *redis) {
    redis->changes = RLOCK__CHANGES_REFUSED;
    if (rlock__is_redisson(redis)) {
        redis->changes = RLOCK__CHANGES_CHANNELS;
    }
}

static void rlock__on_tracking(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    redisReply *reply = (redisReply *)raw;
    rlock__redis *redis;
    (void)data;
    if (!conn || !reply) {
        return;
    }
    redis = conn->redis;
    RLOCK_ASSERT(conn == &redis->commands);
    rlock__conn_answered(conn);
    redis->tracked = reply->type == REDIS_REPLY_STATUS;
    if (!redis->tracked && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR &&
        (strstr(reply->str, "does not exist") || rlock__classify(reply->str) == RLOCK_FAULT_BUSY)) {
        rlock__conn_fail(&redis->push, RLOCK_FAULT_DOWN, reply->str); /* and once more */
        return;
    }
    if (!redis->tracked) {
        rlock__tracking_refused(redis); /* ACL, or Redis before 6.0 */
        rlock__conn_log(conn, RLOCK_LOG_INFO, "no client tracking", reply->str);
    }
    if (redis->push.state != RLOCK__CONN_READY) {
        redis->tracked = false; /* it went meanwhile */
    } else if (rlock__listens(redis)) {
        rlock__push_subscribe(redis);
    } else {
        rlock__push_spare(redis);
    }
    rlock__redis_pushing(redis);
}

/* Has the server send the invalidations of what the command connection reads to the push
 * connection, if some key is to be tracked: notifications need none of them.
 * https://redis.io/docs/latest/develop/reference/client-side-caching/#two-connections-mode */
static void rlock__track(rlock__redis *redis) {
    rlock__conn *push = &redis->push;
    if (redis->commands.state != RLOCK__CONN_READY || !rlock__pushes(redis)) {
        return;
    }
    if (push->state != RLOCK__CONN_READY) {
        rlock__conn_wanted(push);
        return;
    }
    if (*push->run_id && *redis->commands.run_id &&
        strcmp(push->run_id, redis->commands.run_id) != 0) { /* its id is a stranger's there */
        rlock__conn_fail(push, RLOCK_FAULT_DOWN,
                         "connected to a different server than the command connection");
        return;
    }
    if (rlock__tracks(redis) && !push->id) { /* CLIENT ID is refused */
        rlock__tracking_refused(redis);
    }
    if (!rlock__listens(redis)) {
        rlock__push_spare(redis);
        return;
    }
    if (!rlock__tracks(redis) || rlock__by_channel(redis)) {
        rlock__push_subscribe(redis);
        return;
    }
    rlock__put_words(redis, "CLIENT TRACKING ON REDIRECT", 2);
    rlock__put_number(redis, (uint64_t)push->id);
    rlock__put_text(redis, "NOLOOP");
    rlock__conn_say(&redis->commands, rlock__on_tracking, NULL);
}

#endif /* RLOCK_STORE_REDIS_PUSH_H */
