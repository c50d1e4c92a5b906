/* ------------------------------------------------------------------------------------------------
 * >>redis-greeting - a connection from the first attempt until it can be used
 */

#ifndef RLOCK_STORE_REDIS_GREETING_H
#define RLOCK_STORE_REDIS_GREETING_H

#include "public/head.h"
#include "public/loop.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "core/token.h"
#include "store/redis/state.h"
#include "store/redis/dialect.h"
#include "store/redis/link.h"
#include "store/redis/push.h"

/* The greeting is over. What was lost and is not surely gone stays open from there on. */
static void rlock__redis_greeted(rlock__redis *redis) {
    if (redis->lost_epoch > redis->gone_epoch) {
        redis->open_epoch = redis->lost_epoch;
    }
    redis->lost_id = 0;
    redis->tracking_refused = redis->push_refused = redis->notify_refused = false;
    redis->batches = redis->wire == RLOCK_WIRE_STRING; /* HEXISTS has no form that is no read */
    redis->events->up(redis->owner, NULL);
}

static void rlock__conn_ready_to_use(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(conn->ac);
    conn->state = RLOCK__CONN_READY;
    conn->text[0] = 0;
    conn->ready_us = rlock_client_now_us(redis->client);
    rlock__conn_log(conn, RLOCK_LOG_INFO, "ready", NULL);
    if (conn == &redis->commands) {
        rlock__redis_greeted(redis);
    }
    rlock__track(redis);
}

/* Whether a refusal of this step leaves a connection that can be used. */
static bool rlock__step_optional(int step, const char *text) {
    return step >= RLOCK__STEP_NAME &&
           (strncmp(text, "NOPERM", 6) == 0 || strncmp(text, "ERR", 3) == 0) &&
           rlock__classify(text) != RLOCK_FAULT_BUSY;
}

/* Another type of reply is another command's: one too many came, and all later ones would be taken
 * for the answer to the wrong request. */
static bool rlock__step_answered(int step, int type) {
    static const uint8_t types[RLOCK__STEPS] = {
        REDIS_REPLY_STATUS, REDIS_REPLY_STATUS, REDIS_REPLY_STATUS, REDIS_REPLY_INTEGER,
        REDIS_REPLY_STRING, REDIS_REPLY_ARRAY,  REDIS_REPLY_INTEGER};
    RLOCK_ASSERT(step >= 0 && step < RLOCK__STEPS);
    return type == REDIS_REPLY_ERROR || type == types[step];
}

static void rlock__conn_greet(rlock__conn *conn);

static void rlock__on_greeting(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    redisReply *reply = (redisReply *)raw;
    rlock__redis *redis;
    (void)data;
    if (!conn || !reply) {
        return;
    }
    redis = conn->redis;
    rlock__conn_answered(conn);
    if (reply->type == REDIS_REPLY_ERROR && !rlock__step_optional(conn->step, reply->str)) {
        rlock__conn_doom(conn, rlock__classify(reply->str), reply->str);
        return;
    }
    if (!rlock__step_answered(conn->step, reply->type)) {
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        rlock__conn_log(conn, RLOCK_LOG_WARNING, "refused while connecting", reply->str);
    } else if (conn->step == RLOCK__STEP_ID) {
        conn->id = reply->integer;
    } else if (conn->step == RLOCK__STEP_KILL) {
        redis->gone_epoch = redis->lost_epoch;
    }
    if (conn->step == RLOCK__STEP_SERVER) {
        rlock__conn_identify(conn, reply->type == REDIS_REPLY_STRING ? reply->str : "");
    } else if (conn->step == RLOCK__STEP_NATIVE) { /* nil stands for a command it does not know */
        redis->native = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
                        reply->element[0]->type == REDIS_REPLY_ARRAY;
    }
    conn->step++;
    rlock__conn_greet(conn);
}

/* Sends the next step of the greeting, or declares the connection ready. */
static void rlock__conn_greet(rlock__conn *conn) {
    static const char *const words[RLOCK__STEPS] = {
        "AUTH", "SELECT", "CLIENT SETNAME", "CLIENT", "INFO", "COMMAND INFO", "CLIENT KILL ID"};
    rlock__redis *redis = conn->redis;
    const char *user, *last[RLOCK__STEPS]; /* the last word of each; NULL: it is left out */
    char number[21];
    last[RLOCK__STEP_AUTH] = redis->password;
    last[RLOCK__STEP_SELECT] = redis->database ? number : NULL;
    last[RLOCK__STEP_NAME] = redis->name;
    last[RLOCK__STEP_ID] = "ID";
    last[RLOCK__STEP_SERVER] = "server";
    last[RLOCK__STEP_NATIVE] = /* Valkey 9.0 knows it: https://valkey.io/commands/delifeq/ */
        conn == &redis->commands && redis->wire == RLOCK_WIRE_STRING ? "delifeq" : NULL;
    /* After its answer the old connection can execute nothing any more. */
    last[RLOCK__STEP_KILL] = redis->lost_id && conn == &redis->commands ? number : NULL;
    while (conn->step < RLOCK__STEPS && !last[conn->step]) {
        conn->step++;
    }
    if (conn->step == RLOCK__STEPS) {
        rlock__conn_ready_to_use(conn);
        return;
    }
    number[rlock__digits(number, conn->step == RLOCK__STEP_SELECT ? (uint64_t)redis->database
                                                                  : (uint64_t)redis->lost_id)] = 0;
    user = conn->step == RLOCK__STEP_AUTH ? redis->username : NULL;
    rlock__put_words(redis, words[conn->step], user ? 2 : 1);
    if (user) {
        rlock__put_text(redis, user);
    }
    rlock__put_text(redis, last[conn->step]);
    rlock__conn_say(conn, rlock__on_greeting);
}

static void rlock__on_connect(const redisAsyncContext *ac, int status) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    if (!conn) {
        return;
    }
    if (status != REDIS_OK) {
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, ac->errstr);
        return; /* hiredis frees it, through rlock__want_nothing */
    }
    conn->state = RLOCK__CONN_GREETING;
    conn->redis->stats->connects++;
    conn->step = 0;
}

static void rlock__on_disconnect(const redisAsyncContext *ac, int status) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    if (conn) {
        rlock__conn_doom(conn, rlock__why_down(ac->errstr), status == REDIS_OK ? "" : ac->errstr);
    }
}

/* After every visit to hiredis: bury what is dead, watch what it wants. */
static void rlock__conn_tend(rlock__conn *conn) {
    if (!conn->doomed && conn->ac && conn->state == RLOCK__CONN_GREETING && conn->step == 0 &&
        !conn->outstanding) {
        rlock__conn_greet(conn);
    }
    if (conn->ac && !conn->doomed && conn->ac->err) {
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, conn->ac->errstr);
    }
    if (conn->ac && !conn->doomed &&
        rlock_io_watch(conn->redis->client, &conn->io, conn->fd, conn->want) != 0) {
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, "the loop does not watch the descriptor");
    }
    conn->doomed = conn->doomed || (conn->strayed && !conn->outstanding);
    if (conn->doomed) {
        rlock__conn_bury(conn);
    }
}

/* hiredis 0.14 takes a spurious event for an established connection: ask the socket first. */
static bool rlock__conn_settled(const rlock__conn *conn) {
    struct pollfd ask;
    if (conn->state != RLOCK__CONN_OPENING) {
        return true;
    }
    ask.fd = conn->fd;
    ask.events = POLLOUT;
    ask.revents = 0;
    return poll(&ask, 1, 0) > 0;
}

static void rlock__conn_visit(rlock__conn *conn, unsigned events) {
    if (!conn->doomed && (events & conn->want & RLOCK_IO_READ)) {
        redisAsyncHandleRead(conn->ac); /* first: a refusal is read before a write fails */
    }
    if (conn->ac && !conn->doomed && (events & conn->want & RLOCK_IO_WRITE) &&
        !rlock_client_forked(conn->redis->client)) { /* by config.log */
        redisAsyncHandleWrite(conn->ac);
    }
    if (events & RLOCK_IO_WRITE) {
        conn->blocked = conn->ac && (conn->want & RLOCK_IO_WRITE);
    }
    rlock__conn_tend(conn);
}

static void rlock__conn_on_io(rlock_io *io, unsigned events) {
    rlock__conn *conn = RLOCK__OF(io, rlock__conn, io);
    if (rlock__conn_settled(conn)) {
        rlock__conn_visit(conn, events);
    }
}

/* Takes over a context on which a connect was started. */
static void rlock__conn_adopt(rlock__conn *conn, redisAsyncContext *ac) {
    RLOCK_ASSERT(!conn->ac);
    if (!ac || ac->err) {
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, ac ? ac->errstr : "no connection yet");
        if (ac) {
            memset(&ac->ev, 0, sizeof ac->ev);
            redisAsyncFree(ac);
        }
        return;
    }
    conn->ac = ac;
    conn->fd = ac->c.fd;
    conn->want = 0;
    ac->data = conn;
    ac->ev.data = conn;
    ac->ev.addRead = rlock__want_read;
    ac->ev.delRead = rlock__want_no_read;
    ac->ev.addWrite = rlock__want_write;
    ac->ev.delWrite = rlock__want_no_write;
    ac->ev.cleanup = rlock__want_nothing;
    ac->onConnect = NULL; /* a connect hook may have set its own */
    ac->onDisconnect = NULL;
#if HIREDIS_MAJOR > 1 || (HIREDIS_MAJOR == 1 && HIREDIS_MINOR >= 1)
    ac->onConnectNC = NULL;
#endif
    rlock__conn_guard(conn, ac);
    redisAsyncSetConnectCallback(ac, rlock__on_connect);
    redisAsyncSetDisconnectCallback(ac, rlock__on_disconnect);
    conn->want = RLOCK_IO_READ | RLOCK_IO_WRITE;
    if (conn == &conn->redis->commands) {
        conn->redis->epoch++;
    }
}

/* A text that redisAsyncConnect takes without asking a name server; IPv6 may have a scope. */
static const char *rlock__numeric(const char *host) {
    unsigned char address[sizeof(struct in6_addr)];
    char text[INET6_ADDRSTRLEN] = "";
    size_t len = strcspn(host, "%");
    if (strcmp(host, "localhost") == 0) {
        return "127.0.0.1";
    }
    if (len < sizeof text) {
        memcpy(text, host, len);
    }
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, text, address) == 1 ? host
                                                                                             : NULL;
}

/* An address as such a text; empty: it is none. */
static void rlock__address_text(const struct sockaddr *address, char *text) {
    text[0] = 0;
    if (address && address->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, address, sizeof in);
        inet_ntop(AF_INET, &in.sin_addr, text, RLOCK__ADDRESS_MAX);
    } else if (address && address->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, address, sizeof in6);
        inet_ntop(AF_INET6, &in6.sin6_addr, text, RLOCK__ADDRESS_MAX);
        if (in6.sin6_scope_id) {
            size_t n = strlen(text);
            text[n++] = '%';
            n += rlock__digits(text + n, in6.sin6_scope_id);
            text[n] = 0;
        }
    }
}

static void rlock__on_name(rlock_name *name, const struct sockaddr *address) {
    rlock__conn *conn = RLOCK__OF(name, rlock__conn, name);
    rlock__redis *redis = conn->redis;
    if (!conn->resolving) {
        return;
    }
    conn->resolving = false;
    rlock__address_text(address, redis->address);
    rlock_timer_set(redis->client, &conn->timer,
                    rlock_client_now_us(redis->client) + redis->timeout_ms * 1000);
    if (redis->address[0]) {
        rlock__conn_adopt(conn, redisAsyncConnect(redis->address, redis->port));
    } else {
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, "the host's name was not found");
    }
    rlock__conn_tend(conn);
}

static void rlock__conn_open(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    rlock_client *client = redis->client;
    RLOCK_ASSERT(conn->state == RLOCK__CONN_DOWN && !conn->ac);
    conn->state = RLOCK__CONN_OPENING;
    conn->blamed = false;
    rlock_timer_set(client, &conn->timer, rlock_client_now_us(client) + redis->timeout_ms * 1000);
    if (redis->connect) {
        rlock__conn_adopt(conn, redis->connect(redis->user));
    } else if (redis->unix_path) {
        rlock__conn_adopt(conn, redisAsyncConnectUnix(redis->unix_path));
    } else if (rlock__numeric(redis->host)) {
        rlock__conn_adopt(conn, redisAsyncConnect(rlock__numeric(redis->host), redis->port));
    } else if (conn == &redis->push) { /* where the other went */
        rlock__conn_adopt(conn, redisAsyncConnect(redis->address, redis->port));
    } else {
        conn->resolving = true;
        if (rlock_name_resolve(client, &conn->name, redis->host) != 0) {
            conn->resolving = false;
            rlock__conn_doom(conn, RLOCK_FAULT_DOWN, "the loop does not resolve the name");
        }
    }
    rlock__conn_tend(conn);
}

/* Time for the next attempt, for a look whether the server still answers, or for a heartbeat. */
static void rlock__conn_fire(rlock_timer *timer) {
    rlock__conn *conn = RLOCK__OF(timer, rlock__conn, timer);
    rlock__redis *redis = conn->redis;
    int64_t now_us = rlock_client_now_us(redis->client);
    int64_t timeout_us = redis->timeout_ms * 1000;
    if (conn->state == RLOCK__CONN_DOWN) {
        if (conn == &redis->commands || redis->commands.state == RLOCK__CONN_READY) {
            rlock__conn_open(conn); /* else rlock__track sees to it, once the other is there */
        }
        return;
    }
    if (conn->state == RLOCK__CONN_OPENING) {
        if (conn->resolving) { /* the answer may come yet; another attempt waits for it */
            rlock_timer_set(redis->client, timer, now_us + timeout_us);
            redis->events->down(redis->owner, NULL, RLOCK_FAULT_DOWN, "the name is not resolved");
            return;
        }
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, "no answer while connecting");
        rlock__conn_tend(conn);
        return;
    }
    if (conn->outstanding && conn->alive_us + timeout_us <= now_us) {
        if (!conn->doubted) { /* we may have slept: first a look at the socket, in the next turn, */
            conn->doubted = true; /* because what has expired comes before what is answered */
            rlock_timer_set(redis->client, timer, now_us + 1);
            return;
        }
        rlock__conn_doom(conn, RLOCK_FAULT_DOWN, "the server does not answer");
        rlock__conn_tend(conn);
    } else if (conn == &redis->push && !conn->outstanding && redis->subscribed &&
               conn->alive_us + timeout_us * RLOCK__HEARTBEAT <= now_us) {
        rlock__push_subscribe(redis); /* a PING's answer gets lost before hiredis 1.1 */
    }
    conn->doubted = false;
    if (conn->state >= RLOCK__CONN_GREETING && (conn->outstanding || conn == &redis->push)) {
        int64_t due_us = conn->alive_us + timeout_us * (conn->outstanding ? 1 : RLOCK__HEARTBEAT);
        rlock_timer_set(redis->client, timer, due_us > now_us ? due_us : now_us + timeout_us);
    }
}

RLOCK__NOINLINE static int rlock__conn_init(rlock__conn *conn, rlock__redis *redis) {
    conn->redis = redis;
    conn->io.ready = rlock__conn_on_io;
    conn->name.resolved = rlock__on_name;
    conn->fd = -1;
    return rlock_timer_add(redis->client, &conn->timer, rlock__conn_fire);
}

#endif /* RLOCK_STORE_REDIS_GREETING_H */
