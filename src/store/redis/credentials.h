/* ------------------------------------------------------------------------------------------------
 * >>redis-credentials - credentials that are replaced while connections live
 *
 * The command connection, and that to a Sentinel, are sent AUTH: the server executes what stands
 * before it with the old rights, and what comes behind it with the new ones. If it refuses the
 * AUTH, the connection keeps the rights that it had. An acquire that is refused while an AUTH is
 * out was sent before it, and is sent once more behind it.
 *
 * The push connection is subscribed, where RESP2 allows no AUTH, and a server that knows when the
 * old token ends closes it then. So it is opened anew, as soon as the command connection's AUTH was
 * accepted: not with credentials that are refused. No wake-up is lost by that: waiters poll until
 * it listens again, and then each looks at its key, as after every push connection that was lost.
 *
 * If a handshake is refused that used the old credentials, another one begins at once.
 */

#ifndef RLOCK_STORE_REDIS_CREDENTIALS_H
#define RLOCK_STORE_REDIS_CREDENTIALS_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "public/report.h"
#include "base/platform.h"
#include "store/redis/state.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"

#if RLOCK__HAS_CREDENTIALS

/* Returns how often those of a connection were replaced. */
static uint32_t rlock__credentials_count(const rlock__conn *conn) {
#if RLOCK__HAS_SENTINEL
    if (rlock__is_sentinel(conn)) {
        return conn->redis->sentinel->credentials;
    }
#endif
    return conn->redis->credentials;
}

/* An attempt to connect begins. */
static void rlock__credentials_opens(rlock__conn *conn) {
    conn->renews = false;
}

/* The handshake uses those that are there now. */
static void rlock__credentials_used(rlock__conn *conn) {
    conn->credentials = rlock__credentials_count(conn);
}

/* The handshake is refused: where newer ones are there they are tried before anybody is told. */
static void rlock__credentials_refused(rlock__conn *conn, rlock_fault fault) {
    RLOCK_ASSERT(conn->state == RLOCK__CONN_HANDSHAKE);
    conn->renews = fault == RLOCK_FAULT_AUTH && conn->credentials != rlock__credentials_count(conn);
}

/* True if an acquire is refused that was sent before an AUTH which is not answered yet. */
static bool rlock__credentials_again(const rlock__redis *redis, const rlock_request *request,
                                     const redisReply *reply) {
    return redis->auths && request->op == RLOCK_OP_ACQUIRE && reply->type == REDIS_REPLY_ERROR &&
           rlock__classify(reply->str) == RLOCK_FAULT_AUTH && rlock__undone(request, reply->str);
}

/* The push connection is opened anew, unless it uses the new ones already. */
static void rlock__credentials_push(rlock__redis *redis) {
    rlock__conn *push = &redis->push;
    if (push->state >= RLOCK__CONN_HANDSHAKE && push->credentials != redis->credentials) {
        rlock__conn_fail(push, RLOCK_FAULT_DOWN, "reconnecting with new credentials");
        push->renews = true;
    }
}

static void rlock__on_credentials(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    rlock__redis *redis;
    bool main;
    (void)data;
    if (!conn) {
        return;
    }
    redis = conn->redis;
    main = conn == &redis->commands;
    RLOCK_ASSERT(!main || redis->auths);
    redis->auths -= main;
    if (!reply) {
        return;
    }
    rlock__conn_answered(conn);
    if (reply->type == REDIS_REPLY_ERROR) {
        rlock__conn_log(conn, RLOCK_LOG_WARNING, "new credentials are refused", reply->str);
        rlock__conn_report_text(conn, RLOCK_REPORT_REFUSED, 0, reply->str);
    } else if (reply->type != REDIS_REPLY_STATUS) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
    } else if (main && !redis->auths) {
        rlock__conn_log(conn, RLOCK_LOG_INFO, "new credentials are accepted", NULL);
        rlock__credentials_push(redis);
    }
}

/* Sends AUTH on a connection that is in use, if it was told others last. One without a password
 * keeps what it has. */
static void rlock__credentials_tell(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    const char *user = redis->username, *password = redis->password;
    bool main = conn == &redis->commands;
#if RLOCK__HAS_SENTINEL
    if (rlock__is_sentinel(conn)) {
        user = redis->sentinel->username;
        password = redis->sentinel->password;
    }
#endif
    if (conn == &redis->push || !rlock__conn_usable(conn) || !password ||
        conn->credentials == rlock__credentials_count(conn)) {
        return;
    }
    rlock__credentials_used(conn);
    rlock__put_words(redis, "AUTH", user ? 2 : 1);
    if (user) {
        rlock__put_text(redis, user);
    }
    rlock__put_text(redis, password);
    redis->auths += main;
    if (!rlock__conn_say(conn, rlock__on_credentials, NULL)) {
        redis->auths -= main;
    }
}

/* Tells a connection of new ones; if the old ones were refused, it tries these at once. */
static void rlock__credentials_arrive(rlock__conn *conn) {
    rlock_client *client = conn->redis->client;
    if (conn->state == RLOCK__CONN_DOWN && conn->timer.index && conn->fault == RLOCK_FAULT_AUTH) {
        rlock_timer_set(client, &conn->timer, 0);
    }
    rlock__credentials_tell(conn);
}

/* Replaces two texts by copies of others. False: no memory, and nothing has changed. */
static bool rlock__credentials_copy(char **username, char **password, const char *its_username,
                                    const char *its_password) {
    bool failed = false;
    char *user = rlock__copy_text(its_username, &failed);
    char *word = rlock__copy_text(its_password, &failed);
    if (failed) {
        rlock__dealloc(user);
        rlock__dealloc(word);
        return false;
    }
    rlock__dealloc(*username);
    rlock__dealloc(*password);
    *username = user;
    *password = word;
    return true;
}

#if RLOCK__HAS_SENTINEL
static int rlock__sentinel_set_credentials(rlock__redis *redis, const char *username,
                                           const char *password) {
    rlock__sentinel *sentinel = redis->sentinel;
    if (!sentinel) {
        return RLOCK_ERR_ARG;
    }
    if (!rlock__credentials_copy(&sentinel->username, &sentinel->password, username, password)) {
        return RLOCK_ERR_NOMEM;
    }
    sentinel->credentials++;
    rlock__credentials_arrive(&sentinel->conn);
    rlock__credentials_arrive(&redis->commands); /* it waits for what the Sentinels know */
    return RLOCK_OK;
}
#endif

static int rlock__redis_set_credentials(void *state, bool sentinels, const char *username,
                                        const char *password) {
    rlock__redis *redis = (rlock__redis *)state;
    size_t room = RLOCK__ROOM + rlock__length(username) + rlock__length(password);
    RLOCK_ASSERT(!redis->closing);
    if (!rlock__reserve(redis, room)) {
        return RLOCK_ERR_NOMEM;
    }
    if (sentinels) {
#if RLOCK__HAS_SENTINEL
        return rlock__sentinel_set_credentials(redis, username, password);
#else
        return RLOCK_ERR_ARG;
#endif
    }
    if (!rlock__credentials_copy(&redis->username, &redis->password, username, password)) {
        return RLOCK_ERR_NOMEM;
    }
    redis->credentials++;
    rlock__credentials_arrive(&redis->commands);
    return RLOCK_OK;
}

#else

#define rlock__credentials_opens(conn) (void)(conn)
#define rlock__credentials_used(conn) (void)(conn)
#define rlock__credentials_refused(conn, fault) (void)(conn)
#define rlock__credentials_tell(conn) (void)(conn)
#define rlock__credentials_again(redis, request, reply) false
#define rlock__redis_set_credentials NULL

#endif /* RLOCK__HAS_CREDENTIALS */

#endif /* RLOCK_STORE_REDIS_CREDENTIALS_H */
