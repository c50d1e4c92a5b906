/* ------------------------------------------------------------------------------------------------
 * >>redis-handshake - a connection from the first attempt until it can be used
 */

#ifndef RLOCK_STORE_REDIS_HANDSHAKE_H
#define RLOCK_STORE_REDIS_HANDSHAKE_H

#include "public/head.h"
#include "public/status.h"
#include "public/loop.h"
#include "public/store.h"
#include "public/client.h"
#include "public/report.h"
#include "base/platform.h"
#include "store/redis/state.h"
#include "store/redis/address.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"
#include "store/redis/wait.h"
#include "store/redis/push.h"
#include "store/redis/sentinel.h"
#include "store/redis/quarantine.h"
#include "store/redis/credentials.h"

/* The handshake is over. What was lost and is not surely gone stays open from there on. */
static void rlock__handshake_over(rlock__redis *redis) {
    RLOCK_ASSERT(redis->commands.state == RLOCK__CONN_READY && redis->dead_up_to <= redis->epoch);
    if (redis->lost_epoch > redis->dead_up_to) {
        redis->alive_up_to = redis->lost_epoch;
    }
    redis->lost_id = 0;
    redis->changes = RLOCK__CHANGES_TRACKED;
    redis->shards_refused = false;
    if (RLOCK__HAS_KINDS && redis->notify == RLOCK__NOTIFY_REFUSED) {
        redis->notify = RLOCK__NOTIFY_WANTED;
    }
    redis->batches = RLOCK__BATCHES_KNOWN;
    if (rlock__is_redisson(redis) || rlock__is_node(redis)) {
        redis->batches = RLOCK__BATCHES_NONE; /* HEXISTS always reads; a node has several slots */
    }
    redis->events->up(redis->owner, NULL);
}

static void rlock__conn_ready_to_use(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(conn->ac);
    RLOCK_ASSERT(conn->state == RLOCK__CONN_HANDSHAKE && !conn->outstanding);
    conn->state = RLOCK__CONN_READY;
    conn->ready_us = rlock_client_now_us(redis->client);
    rlock__conn_report(conn, RLOCK_REPORT_CONNECTED, 0);
    rlock__credentials_tell(conn);
    if (rlock__is_sentinel(conn)) {
        rlock__sentinel_ask(redis);
        return;
    }
    conn->text[0] = 0;
    rlock__conn_log(conn, RLOCK_LOG_INFO, "ready", NULL);
    if (conn == &redis->commands) {
        rlock__endpoint_worked(conn->endpoint);
        rlock__sentinel_proved(redis);
        rlock__handshake_over(redis);
    }
#if RLOCK__HAS_REPLICAS
    if (conn != &redis->commands && redis->sync) {
        redis->sync->opens = false;
    }
#endif
    rlock__track(redis);
}

/* True if a refusal of this step leaves a connection that can be used: in whatever words, since a
 * proxy has its own, unless nothing is allowed here, or not now. */
static bool rlock__step_optional(int step, const char *text) {
    rlock_fault fault = rlock__classify(text);
    bool alone = fault != RLOCK_FAULT_AUTH || strncmp(text, "NOPERM", 6) == 0;
    RLOCK_ASSERT(step >= 0 && step < RLOCK__STEPS);
    return step == RLOCK__STEP_QUARANTINE ||
           (step >= RLOCK__STEP_NAME && alone && fault != RLOCK_FAULT_BUSY);
}

/* True if the answer to HELLO, names and values, has the role of a replica. */
static bool rlock__hello_replica(const redisReply *reply) {
    size_t i;
    for (i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            strcmp(name->str, "role") == 0) {
            return strcmp(value->str, "replica") == 0 || strcmp(value->str, "slave") == 0;
        }
    }
    return false;
}

/* Another type of reply is another command's: one too many came, and all later ones would be taken
 * for the answer to the wrong request. */
static bool rlock__step_answered(int step, int type) {
    static const uint8_t types[RLOCK__STEPS] = {
        REDIS_REPLY_STATUS, REDIS_REPLY_STATUS, REDIS_REPLY_STATUS, REDIS_REPLY_INTEGER,
        REDIS_REPLY_STRING, REDIS_REPLY_STRING, REDIS_REPLY_ARRAY,  REDIS_REPLY_INTEGER,
        REDIS_REPLY_ARRAY,  REDIS_REPLY_INTEGER};
    RLOCK_ASSERT(step >= 0 && step < RLOCK__STEPS);
    return type == REDIS_REPLY_ERROR || type == types[step];
}

static void rlock__conn_handshake(rlock__conn *conn);

static void rlock__on_handshake(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    redisReply *reply = (redisReply *)raw;
    int step = (int)(intptr_t)data;
    rlock__redis *redis;
    const char *words;
    if (!conn || !reply) {
        return;
    }
    redis = conn->redis;
    words = reply->type == REDIS_REPLY_STRING ? reply->str : "";
    RLOCK_ASSERT(conn->state == RLOCK__CONN_HANDSHAKE);
    rlock__conn_answered(conn);
    if (reply->type == REDIS_REPLY_ERROR && !rlock__step_optional(step, reply->str)) {
        rlock__credentials_refused(conn, rlock__classify(reply->str));
        rlock__conn_fail(conn, rlock__classify(reply->str), reply->str);
        return;
    }
    if (!rlock__step_answered(step, reply->type)) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return;
    }
#if RLOCK__HAS_REPLICAS
    if (step == RLOCK__STEP_QUARANTINE) {
        rlock__quarantine_told(redis, reply);
    }
#endif
    if (reply->type == REDIS_REPLY_ERROR && step != RLOCK__STEP_QUARANTINE &&
        step != RLOCK__STEP_REPLICATION && step != RLOCK__STEP_ROLE) { /* SERVER says so */
        rlock__conn_log(conn, RLOCK_LOG_WARNING, "refused while connecting", reply->str);
    }
    if (step == RLOCK__STEP_ID && reply->type == REDIS_REPLY_INTEGER) {
        conn->id = reply->integer;
    } else if (step == RLOCK__STEP_REPLICATION) {
        rlock__redis_inherit(redis, words);
    } else if (step == RLOCK__STEP_ROLE && rlock__hello_replica(reply)) {
        rlock__redis_is_replica(redis);
        return;
    } else if (step == RLOCK__STEP_SERVER) {
        rlock__conn_identify(conn, words);
    } else if (step == RLOCK__STEP_NATIVE) { /* nil stands for a command it does not know */
        redis->native = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
                        reply->element[0]->type == REDIS_REPLY_ARRAY;
    } else if (step == RLOCK__STEP_KILL && reply->type == REDIS_REPLY_INTEGER) {
        redis->dead_up_to = redis->lost_epoch;
    }
    if (!conn->outstanding) {
        rlock__conn_handshake(conn);
    }
}

/* Sends a step of the handshake: a command, perhaps the name of a user, and its last word. */
static void rlock__step_say(rlock__conn *conn, int step, const char *user, const char *last) {
    static const char *const words[RLOCK__STEPS] = {
        "AUTH",         "SELECT", "CLIENT SETNAME", "CLIENT",        "INFO", "INFO",
        "COMMAND INFO", NULL,     "HELLO",          "CLIENT KILL ID"};
    rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(step >= 0 && step < RLOCK__STEPS);
    RLOCK_ASSERT(conn->state == RLOCK__CONN_HANDSHAKE);
#if RLOCK__HAS_REPLICAS
    if (step == RLOCK__STEP_QUARANTINE) {
        rlock__put_quarantine(redis);
        redis->quarantine->late = false;
        rlock__conn_say(conn, rlock__on_handshake, (void *)(intptr_t)step);
        return;
    }
#endif
    rlock__put_words(redis, words[step], user ? 2 : 1);
    if (user) {
        rlock__put_text(redis, user);
    }
    rlock__put_text(redis, last);
    rlock__conn_say(conn, rlock__on_handshake, (void *)(intptr_t)step);
}

/* Sends the next step of the handshake, and those that leave together with it; or declares the
 * connection ready. A Sentinel has users of its own, and is told no more than a name. */
static void rlock__conn_handshake(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    bool main = conn == &redis->commands, sentinel = rlock__is_sentinel(conn);
    const char *user = redis->username;
    const char *last[RLOCK__STEPS]; /* the last word of each; NULL: it is left out */
    char database[21], id[21];
    RLOCK_ASSERT(!conn->outstanding && !conn->failing);
    RLOCK_ASSERT(conn->step >= 0 && conn->step <= RLOCK__STEPS);
    database[rlock__digits(database, (uint64_t)redis->database)] = 0;
    id[rlock__digits(id, (uint64_t)redis->lost_id)] = 0;
    last[RLOCK__STEP_AUTH] = redis->password;
    last[RLOCK__STEP_SELECT] = redis->database && !sentinel ? database : NULL;
    last[RLOCK__STEP_NAME] = redis->name;
    last[RLOCK__STEP_ID] = sentinel ? NULL : "ID";
    last[RLOCK__STEP_REPLICATION] = main ? "replication" : NULL;
    last[RLOCK__STEP_SERVER] = sentinel ? NULL : "server";
    last[RLOCK__STEP_NATIVE] = /* Valkey 9.0 knows it: https://valkey.io/commands/delifeq/ */
        main && !rlock__is_redisson(redis) ? "delifeq" : NULL;
    last[RLOCK__STEP_QUARANTINE] = NULL;
#if RLOCK__HAS_REPLICAS
    if (main && redis->quarantine && *redis->quarantine->marker) {
        last[RLOCK__STEP_QUARANTINE] = "";
    }
#endif
    last[RLOCK__STEP_ROLE] = main && redis->roleless ? "2" : NULL; /* which is the default */
    /* After its answer the old connection can execute nothing any more. */
    last[RLOCK__STEP_KILL] = redis->lost_id && main ? id : NULL;
#if RLOCK__HAS_SENTINEL
    if (sentinel) {
        user = redis->sentinel->username;
        last[RLOCK__STEP_AUTH] = redis->sentinel->password;
    }
#endif
    if (!conn->step) {
        rlock__credentials_used(conn);
    }
    while (conn->step < RLOCK__STEPS &&
           (!conn->outstanding || /* what follows the name waits for no answer */
            (conn->step > RLOCK__STEP_NAME && conn->step <= RLOCK__STEP_QUARANTINE))) {
        if (last[conn->step]) {
            rlock__step_say(conn, conn->step, conn->step == RLOCK__STEP_AUTH ? user : NULL,
                            last[conn->step]);
        }
        conn->step++;
    }
    if (!conn->outstanding && !conn->failing) {
        rlock__conn_ready_to_use(conn);
    }
}

static void rlock__on_connect(const redisAsyncContext *ac, int status) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const rlock_tls *tls;
    if (!conn) {
        return;
    }
    if (status != REDIS_OK) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, ac->errstr);
        return; /* hiredis frees it, through rlock__want_nothing */
    }
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING && !conn->outstanding);
    conn->state = RLOCK__CONN_HANDSHAKE;
    conn->redis->stats->connects++;
    conn->step = 0;
    tls = rlock__conn_tls(conn);
    if (tls && tls->start(tls->ctx, conn->ac, conn->endpoint->host) < 0) {
        rlock__conn_fail_why(conn, RLOCK_FAULT_DOWN, "TLS cannot start");
    }
}

static void rlock__on_disconnect(const redisAsyncContext *ac, int status) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    if (conn) {
        rlock__conn_fail(conn, rlock__why_down(ac->errstr), status == REDIS_OK ? "" : ac->errstr);
    }
}

/* After every visit to hiredis: close what has failed, watch what it wants. */
static void rlock__conn_tend(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    if (!conn->failing && conn->ac && conn->state == RLOCK__CONN_HANDSHAKE && conn->step == 0) {
        rlock__conn_handshake(conn);
    }
    if (conn->ac && !conn->failing && conn->ac->err) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, conn->ac->errstr);
    }
    if (conn->ac && !conn->failing &&
        rlock_io_watch(redis->client, &conn->io, conn->fd, conn->want) != 0) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "the loop cannot watch the connection");
    }
    if (conn->strayed && !conn->outstanding && !rlock__redis_owes(redis)) {
        conn->failing = true;
    }
    if (conn->failing && rlock__is_sentinel(conn)) {
        rlock__sentinel_closed(redis);
    } else if (conn->failing && conn == &redis->commands) {
        rlock__commands_failed(redis);
    } else if (conn->failing) {
        rlock__conn_closed(conn);
    }
}

static void rlock__conn_visit(rlock__conn *conn, unsigned events) {
    RLOCK_ASSERT(conn->ac);
    rlock__conn_prepare(conn);
    if (!conn->failing && (events & conn->want & RLOCK_IO_READ)) {
        redisAsyncHandleRead(conn->ac); /* first: a refusal is read before a write fails */
    }
    if (conn->ac && !conn->failing && (events & conn->want & RLOCK_IO_WRITE) &&
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
    struct pollfd ask; /* hiredis 0.14 takes a spurious event for an established connection */
    ask.fd = conn->fd;
    ask.events = POLLOUT;
    ask.revents = 0;
    if (conn->state != RLOCK__CONN_OPENING || poll(&ask, 1, 0) > 0) {
        rlock__conn_visit(conn, events);
    }
}

/* Takes over a context on which a connect was started. */
static void rlock__conn_adopt(rlock__conn *conn, redisAsyncContext *ac) {
    RLOCK_ASSERT(!conn->ac);
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING);
    if (!ac || ac->err) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, ac ? ac->errstr : "no connection yet");
        if (ac) {
            memset(&ac->ev, 0, sizeof ac->ev);
            redisAsyncFree(ac);
        }
        return;
    }
    conn->ac = ac;
    conn->fd = ac->c.fd;
    fcntl(conn->fd, F_SETFD, fcntl(conn->fd, F_GETFD) | FD_CLOEXEC); /* no program that this one
                                                                        starts keeps it open */
    conn->want = 0;
    ac->data = conn;
    ac->ev.data = conn;
    ac->ev.addRead = rlock__want_read;
    ac->ev.delRead = rlock__want_no_read;
    ac->ev.addWrite = rlock__want_write;
    ac->ev.delWrite = rlock__want_no_write;
    ac->ev.cleanup = rlock__want_nothing;
    ac->onConnect = rlock__on_connect; /* a connect hook may have set its own */
    ac->onDisconnect = rlock__on_disconnect;
#if HIREDIS_MAJOR > 1 || (HIREDIS_MAJOR == 1 && HIREDIS_MINOR >= 1)
    ac->onConnectNC = NULL;
#endif
    rlock__conn_guard(conn, ac);
    conn->want = RLOCK_IO_READ | RLOCK_IO_WRITE;
    if (conn == &conn->redis->commands) {
        conn->redis->epoch++;
        RLOCK_ASSERT(conn->redis->dead_up_to < conn->redis->epoch);
    }
}

/* Connects to the address whose turn it is. */
static void rlock__conn_dial(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    int64_t patience_us = rlock__conn_timeout_us(conn);
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING && !conn->ac);
    if (rlock__endpoint_more(conn->endpoint)) {
        patience_us = rlock__endpoint_patience_us(conn->endpoint, redis->timeout_us);
    }
    rlock__conn_wait(conn, patience_us);
    rlock__conn_adopt(conn, rlock__endpoint_connect(conn->endpoint));
}

/* True if an attempt waits for a Sentinel, whatever name was asked for before. */
static bool rlock__conn_asks(const rlock__conn *conn) {
    return conn == &conn->redis->commands && rlock__sentinel_waited(conn->redis);
}

#if RLOCK__HAS_NAMES

/* The resolver has answered, or fails and says why: then the address that worked last is used. */
static void rlock__conn_found(rlock__conn *conn, const struct sockaddr *const *addresses,
                              unsigned count, const char *why) {
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING && !conn->ac);
    rlock__endpoint_found(conn->endpoint, addresses, count);
    if (conn->endpoint->count) {
        rlock__conn_dial(conn);
    } else {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, why);
    }
}

/* Uses the addresses if they are those of the host that the attempt waits for, or of a Sentinel
 * whose turn it was before: else the attempt went on without them. */
static void rlock__on_name(rlock_name *name, const struct sockaddr *const *addresses,
                           unsigned count) {
    rlock__lookup *lookup = RLOCK__OF(name, rlock__lookup, name);
    rlock__conn *conn = lookup->conn;
    bool waits = conn->state == RLOCK__CONN_OPENING && !conn->ac && !rlock__conn_asks(conn);
    char *host = lookup->host; /* NULL: nobody asked */
    bool its = waits && host && strcmp(host, conn->endpoint->host) == 0;
    bool former = waits && host && !its && count && rlock__is_sentinel(conn);
    if (former) {
        rlock__sentinel_turns_to(conn->redis, host);
    }
    lookup->host = NULL;
    rlock__dealloc(host);
    if (its || former) {
        rlock__conn_found(conn, addresses, count, "the host's name was not found");
        rlock__conn_tend(conn);
    }
}

/* Returns a lookup to be used; NULL: so many names are being resolved, or there is no memory. */
static rlock__lookup *rlock__lookup_get(rlock__conn *conn) {
    rlock__lookup *lookup = conn->lookups;
    uint32_t count = 0;
    while (lookup && lookup->host) {
        lookup = lookup->next;
        count++;
    }
    RLOCK_ASSERT(count <= RLOCK__LOOKUPS);
    if (lookup || count == RLOCK__LOOKUPS) {
        return lookup;
    }
    lookup = (rlock__lookup *)rlock__alloc(sizeof *lookup);
    if (lookup) {
        lookup->conn = conn;
        lookup->name.resolved = rlock__on_name;
        lookup->next = conn->lookups;
        conn->lookups = lookup;
    }
    return lookup;
}

/* Connects to the host of the endpoint, whose name is resolved anew. Names are resolved side by
 * side, each once at a time: a lookup cannot be cancelled, and one that hangs delays no other. */
static void rlock__conn_resolve(rlock__conn *conn) {
    rlock__lookup *lookup;
    bool failed = false;
    if (rlock__is_localhost(conn->endpoint->host)) {
        rlock__endpoint_local(conn->endpoint);
    }
    if (rlock__numeric(conn->endpoint->host)) {
        rlock__conn_dial(conn);
        return;
    }
    if (rlock__conn_lookup(conn, conn->endpoint->host)) {
        return;
    }
    lookup = rlock__lookup_get(conn);
    if (!lookup) {
        rlock__conn_found(conn, NULL, 0, "too many names are being resolved");
        return;
    }
    lookup->host = rlock__copy_text(conn->endpoint->host, &failed);
    if (failed || rlock_name_resolve(conn->redis->client, &lookup->name, lookup->host) != 0) {
        rlock__dealloc(lookup->host);
        lookup->host = NULL;
        rlock__conn_found(conn, NULL, 0, "the loop cannot resolve the name");
    }
}

#else

/* Only a Sentinel can name a host here that is no address. */
static void rlock__conn_resolve(rlock__conn *conn) {
    if (RLOCK__HAS_SENTINEL && !rlock__numeric(conn->endpoint->host)) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "a host name needs RLOCK_WITH_NAMES");
        return;
    }
    rlock__conn_dial(conn);
}

#endif /* RLOCK__HAS_NAMES */

/* Begins an attempt, or goes on with it at the next address. The push connection goes where the
 * other one went. */
static void rlock__conn_open(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    bool walks = conn->walks;
    RLOCK_ASSERT(conn->state == RLOCK__CONN_DOWN && !conn->ac);
    RLOCK_ASSERT(!conn->failing && !conn->outstanding);
    conn->state = RLOCK__CONN_OPENING;
    conn->error_kept = conn->walks = conn->moved = conn->refused = false;
    rlock__credentials_opens(conn);
    rlock__conn_wait(conn, rlock__conn_timeout_us(conn));
    if (redis->connect) {
        rlock__conn_adopt(conn, redis->connect(redis->user));
    } else if (redis->unix_path) {
        rlock__conn_adopt(conn, redisAsyncConnectUnix(redis->unix_path));
    } else if (walks || conn == &redis->push) {
#if RLOCK__HAS_NAMES
        conn->endpoint->at += walks;
#endif
        rlock__conn_dial(conn);
    } else if (rlock__is_sentinel(conn) || !rlock__sentinel_wanted(redis)) {
        rlock__conn_resolve(conn);
    }
    rlock__conn_tend(conn);
}

/* An attempt waits for a Sentinel or a resolver, or a Sentinel has answered. Instead of a name that
 * is not resolved the address that worked last is used. Without one the answer may come yet, and
 * another attempt would wait for it too. */
static void rlock__conn_waits(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    bool moved = conn->moved, resolving;
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING && !conn->ac);
    rlock__conn_wait(conn, rlock__conn_timeout_us(conn));
    if (rlock__conn_asks(conn)) {
        redis->events->down(redis->owner, NULL, RLOCK_FAULT_DOWN, "no Sentinel has answered");
        return;
    }
    resolving = rlock__conn_lookup(conn, conn->endpoint->host) != NULL;
    conn->moved = false;
    rlock__conn_resolve(conn);
#if RLOCK__HAS_NAMES
    if (resolving && !moved) {
        rlock__endpoint_found(conn->endpoint, NULL, 0);
        if (conn->endpoint->count) {
            rlock__conn_dial(conn);
        } else if (rlock__is_sentinel(conn)) { /* another one may have an answer */
            rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "the name is not resolved");
        } else {
            redis->events->down(redis->owner, NULL, RLOCK_FAULT_DOWN, "the name is not resolved");
        }
    }
#else
    (void)moved;
    (void)resolving;
#endif
    rlock__conn_tend(conn);
}

/* Does what is due on a connection on which no answer is late. */
static void rlock__conn_idles(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(conn->state >= RLOCK__CONN_HANDSHAKE && conn->ac);
    if (conn->outstanding ||
        conn->alive_us + rlock__conn_quiet_us(conn) > rlock_client_now_us(redis->client)) {
        return;
    }
    if (rlock__is_sentinel(conn)) { /* in a handshake an answer is out */
        rlock__sentinel_ask(redis);
    } else if (conn == &redis->push && redis->subscribed) {
        rlock__push_subscribe(redis); /* a PING's answer gets lost before hiredis 1.1 */
    }
}

/* Time for the next attempt, for a look whether the server still answers, or for a heartbeat. */
static void rlock__conn_fire(rlock_timer *timer) {
    rlock__conn *conn = RLOCK__OF(timer, rlock__conn, timer);
    rlock__redis *redis = conn->redis;
    int64_t now_us = rlock_client_now_us(redis->client);
    int64_t timeout_us = rlock__conn_timeout_us(conn);
    if (conn->state == RLOCK__CONN_DOWN) {
        if (conn != &redis->push || redis->commands.state == RLOCK__CONN_READY) {
            rlock__conn_open(conn); /* else rlock__track sees to it, once the other is there */
        }
        return;
    }
    if (conn->state == RLOCK__CONN_OPENING) {
        if (!conn->ac) {
            rlock__conn_waits(conn);
            return;
        }
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "no answer while connecting");
        rlock__conn_tend(conn);
        return;
    }
    if (conn->outstanding && conn->alive_us + timeout_us <= now_us) {
        if (!conn->doubted) { /* we may have slept: first a look at the socket, in the next turn, */
            conn->doubted = true; /* because what has expired comes before what is answered */
            rlock_timer_set(redis->client, timer, now_us + 1);
            return;
        }
        rlock__conn_fail_why(conn, RLOCK_FAULT_DOWN, "the server does not answer");
        rlock__conn_tend(conn);
    } else {
        rlock__conn_idles(conn);
    }
    conn->doubted = false;
    if (conn->state >= RLOCK__CONN_HANDSHAKE && (conn->outstanding || conn != &redis->commands)) {
        int64_t due_us = conn->alive_us + rlock__conn_quiet_us(conn);
        rlock_timer_set(redis->client, timer, due_us > now_us ? due_us : now_us + timeout_us);
    }
}

/* False: there is no memory. */
RLOCK__NOINLINE static bool rlock__conn_init(rlock__conn *conn, rlock__redis *redis,
                                             rlock__endpoint *endpoint) {
    bool added = rlock_timer_add(redis->client, &conn->timer, rlock__conn_fire) == RLOCK_OK;
    conn->redis = added ? redis : NULL;
    conn->endpoint = endpoint;
    conn->io.ready = rlock__conn_on_io;
    conn->fd = -1;
    return added;
}

#endif /* RLOCK_STORE_REDIS_HANDSHAKE_H */
