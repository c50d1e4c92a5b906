/* ------------------------------------------------------------------------------------------------
 * >>redis-link - a connection under hiredis: what it says, reads and leads to, and its end
 */

#ifndef RLOCK_STORE_REDIS_LINK_H
#define RLOCK_STORE_REDIS_LINK_H

#include "public/head.h"
#include "public/status.h"
#include "public/loop.h"
#include "public/store.h"
#include "public/client.h"
#include "public/report.h"
#include "base/platform.h"
#include "runtime/token.h"
#include "store/redis/state.h"
#include "store/redis/address.h"
#include "store/redis/resp.h"

/* hiredis' hooks, on top of one watched descriptor. */
static void rlock__want_read(void *conn) {
    ((rlock__conn *)conn)->want |= RLOCK_IO_READ;
}
static void rlock__want_no_read(void *conn) {
    ((rlock__conn *)conn)->want &= ~RLOCK_IO_READ;
}
static void rlock__want_write(void *conn) {
    ((rlock__conn *)conn)->want |= RLOCK_IO_WRITE;
}
static void rlock__want_no_write(void *conn) {
    ((rlock__conn *)conn)->want &= ~RLOCK_IO_WRITE;
}

#if RLOCK__HAS_NAMES

/* Returns the lookup of a host's name, or with NULL of any, that was not answered yet; or NULL. */
static rlock__lookup *rlock__conn_lookup(const rlock__conn *conn, const char *host) {
    rlock__lookup *at = conn->lookups;
    while (at && (!at->host || (host && strcmp(at->host, host) != 0))) {
        at = at->next;
    }
    return at;
}

#else

static const void *rlock__conn_lookup(const rlock__conn *conn, const char *host) {
    (void)conn;
    (void)host;
    return NULL;
}

#endif /* RLOCK__HAS_NAMES */

/* True for the connection that asks a Sentinel. */
static bool rlock__is_sentinel(const rlock__conn *conn) {
    return RLOCK__HAS_SENTINEL && conn->endpoint != &conn->redis->endpoint;
}

/* True if there is another address to try. Where a server of localhost was reached that was the
 * one, whatever is the matter with it. */
static bool rlock__conn_more(const rlock__conn *conn) {
    return rlock__endpoint_more(conn->endpoint) &&
           (conn->state == RLOCK__CONN_OPENING || !rlock__is_localhost(conn->endpoint->host));
}

/* True if an attempt that fails goes on at the next address, or at the next Sentinel: not if no
 * address would help, and not on the push connection, which follows the other one. */
static bool rlock__conn_walks(const rlock__conn *conn, rlock_fault fault) {
    bool more = rlock__conn_more(conn);
#if RLOCK__HAS_SENTINEL
    if (rlock__is_sentinel(conn)) {
        const rlock__sentinel *sentinel = conn->redis->sentinel;
        return (more && !sentinel->heard) || sentinel->silent + 1 < sentinel->count;
    }
#endif
    return more && conn->state != RLOCK__CONN_READY && conn == &conn->redis->commands &&
           fault != RLOCK_FAULT_AUTH;
}

static void rlock__conn_error(rlock__conn *conn, rlock_fault fault, const char *text) {
    bool same = strncmp(conn->text, text, sizeof conn->text - 1) == 0;
    if (conn->error_kept) {
        return; /* the first reason is the one that counts */
    }
    conn->error_kept = true;
    conn->walks = rlock__conn_walks(conn, fault);
    if (conn->walks) {
        return; /* the last address of the attempt says why */
    }
    conn->fault = fault;
    conn->repeats = same ? conn->repeats + 1 : 0;
    strncpy(conn->text, text, sizeof conn->text - 1); /* its last byte stays a NUL */
    RLOCK_ASSERT(!conn->text[sizeof conn->text - 1]);
}

/* Ends a connection at the next safe place: never inside hiredis' callbacks. */
static void rlock__conn_fail(rlock__conn *conn, rlock_fault fault, const char *text) {
    rlock__conn_error(conn, fault, text);
    conn->failing = true;
}

/* A server that is full says so in a last reply, which hiredis gives as the connection's error. */
RLOCK__NOINLINE static rlock_fault rlock__why_down(const char *text) {
    rlock_fault fault = rlock__classify(text);
    return fault == RLOCK_FAULT_OTHER ? RLOCK_FAULT_DOWN : fault;
}

/* Returns the hooks of a connection that is encrypted, or NULL. */
static const rlock_tls *rlock__conn_tls(const rlock__conn *conn) {
#if RLOCK__HAS_TLS
    return conn->endpoint->tls;
#else
    (void)conn;
    return NULL;
#endif
}

/* Before each read and write, as rlock_tls.before promises. */
static void rlock__conn_prepare(const rlock__conn *conn) {
    const rlock_tls *tls = rlock__conn_tls(conn);
    if (tls) {
        tls->before(tls->ctx);
    }
}

/* Ends a connection as rlock__conn_fail does, with the reason that TLS knows, if it does. */
static void rlock__conn_fail_why(rlock__conn *conn, rlock_fault fault, const char *text) {
    const rlock_tls *tls = rlock__conn_tls(conn);
    bool started = tls && conn->state >= RLOCK__CONN_HANDSHAKE;
    char words[sizeof conn->text] = "";
    int why = started ? tls->why(tls->ctx, conn->ac, words, sizeof words) : RLOCK_OK;
    RLOCK_ASSERT(conn->ac);
    if (why != RLOCK_OK) {
        fault = why == RLOCK_ERR_AUTH ? RLOCK_FAULT_AUTH : RLOCK_FAULT_DOWN;
        text = words;
    }
    rlock__conn_fail(conn, fault, text);
}

/* hiredis is about to close the descriptor and free the context. */
static void rlock__want_nothing(void *data) {
    rlock__conn *conn = (rlock__conn *)data;
    struct linger now; /* what the kernel still holds must not be sent later */
    RLOCK_ASSERT(conn->ac && conn->fd >= 0);
    now.l_onoff = 1;
    now.l_linger = 0;
    if (!conn->redis->closing && !rlock_client_forked(conn->redis->client)) {
        char words[64] = ""; /* a write that failed must not hide why the server closed */
        ssize_t n = conn->ac->err == REDIS_ERR_IO && !rlock__conn_tls(conn)
                        ? recv(conn->fd, words, sizeof words - 1, MSG_DONTWAIT)
                        : 0;
        bool last = n > 1 && words[0] == '-';
        const char *why = last ? words + 1 : conn->ac->errstr;
        words[last ? strcspn(words, "\r\n") : 0] = 0;
        conn->refused = conn->outstanding && conn->ac->err == REDIS_ERR_OTHER;
        rlock__conn_fail_why(conn, rlock__why_down(why), why);
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    conn->want = 0;
    conn->ac = NULL;
    rlock_io_watch(conn->redis->client, &conn->io, conn->fd, 0);
}

/* How long a connection may owe an answer: a Sentinel not as long as the server, since there are
 * others. */
static int64_t rlock__conn_timeout_us(const rlock__conn *conn) {
    int64_t timeout_us = conn->redis->timeout_us;
    RLOCK_ASSERT(timeout_us > 0);
    return rlock__is_sentinel(conn) ? rlock__endpoint_patience_us(conn->endpoint, timeout_us)
                                    : timeout_us;
}

/* How long after its last answer a connection is looked at: for an answer that is late, or because
 * something is to be said. */
static int64_t rlock__conn_quiet_us(const rlock__conn *conn) {
    int64_t timeout_us = rlock__conn_timeout_us(conn);
    if (conn->outstanding) {
        return timeout_us;
    }
    return rlock__is_sentinel(conn) ? RLOCK__SENTINEL_MS * 1000 : timeout_us * RLOCK__HEARTBEAT;
}

/* Sends what was formatted last. */
static bool rlock__conn_send(rlock__conn *conn, redisCallbackFn *fn, void *data) {
    rlock__redis *redis = conn->redis;
    int64_t timeout_us = rlock__conn_timeout_us(conn);
    RLOCK_ASSERT(conn->ac);
    RLOCK_ASSERT(redis->overflow || (redis->length && redis->length < redis->room));
    RLOCK_ASSERT(conn->state >= RLOCK__CONN_HANDSHAKE);
    if (redis->overflow ||
        redisAsyncFormattedCommand(conn->ac, fn, data, redis->buffer, redis->length) != REDIS_OK) {
        return false;
    }
    if (!conn->outstanding++) {
        conn->alive_us = rlock_client_clock_us(redis->client); /* callbacks may have taken long */
    }
    if (!conn->timer.index || conn->timer.due_us > conn->alive_us + timeout_us) {
        rlock_timer_set(redis->client, &conn->timer, conn->alive_us + timeout_us);
    }
    redis->stats->commands++;
    return true;
}

/* Sends what was formatted last. False: it is not, and the connection ends. */
static bool rlock__conn_say(rlock__conn *conn, redisCallbackFn *fn, void *data) {
    bool sent = rlock__conn_send(conn, fn, data);
    if (!sent) {
        rlock__conn_fail(conn, RLOCK_FAULT_NOMEM, "out of memory");
    }
    return sent;
}

/* Sends what was formatted last, of whose answer hiredis is to know nothing. */
static void rlock__conn_add(rlock__conn *conn) {
    const rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(conn->ac && (redis->overflow || redis->length < redis->room));
    if (redis->overflow ||
        redisAppendFormattedCommand(&conn->ac->c, redis->buffer, redis->length) != REDIS_OK) {
        rlock__conn_fail(conn, RLOCK_FAULT_NOMEM, "out of memory");
        return;
    }
    rlock__want_write(conn);
    redis->stats->commands++;
}

/* True if commands may be sent on a connection. */
static bool rlock__conn_usable(const rlock__conn *conn) {
    return conn->state == RLOCK__CONN_READY && !conn->failing && !conn->strayed;
}

static void rlock__conn_answered(rlock__conn *conn) {
    RLOCK_ASSERT(conn->state >= RLOCK__CONN_HANDSHAKE);
    if (conn->outstanding) {
        conn->outstanding--;
    }
    conn->alive_us = conn->heard_us = rlock_client_now_us(conn->redis->client);
}

static void rlock__on_asking(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    (void)data;
    if (conn && raw) {
        rlock__conn_answered(conn);
    }
}

/* True if the key of a request is on its way to this node. */
static bool rlock__request_asks(const rlock_request *request) {
    return RLOCK__HAS_CLUSTER && request->store.own[RLOCK__ASKING];
}

/* Says ASKING right before a command, if its key is on its way to this node. */
static bool rlock__command_asks(rlock__redis *redis, const rlock__command *command) {
    RLOCK_ASSERT(command->count && command->requests[0]);
    if (!rlock__request_asks(command->requests[0])) {
        return true;
    }
    rlock__put_words(redis, "ASKING", 0);
    return rlock__conn_send(&redis->commands, rlock__on_asking, NULL);
}

/* Sends the command that was formatted last. */
static bool rlock__command_send(rlock__redis *redis, rlock__command *command, redisCallbackFn *fn) {
    bool sent = rlock__conn_send(&redis->commands, fn, command);
    RLOCK_ASSERT(command->redis == redis && command->count);
    if (!sent &&
        rlock__request_asks(command->requests[0])) { /* else another one would have asked */
        rlock__conn_fail(&redis->commands, RLOCK_FAULT_NOMEM, "out of memory");
    }
    return sent;
}

/* True if that connection was one to this server, and not to another node of a cluster. */
static bool rlock__epoch_ours(const rlock__redis *redis, uint32_t epoch) {
    RLOCK_ASSERT(redis->first_epoch <= redis->last_epoch);
    return epoch > redis->first_epoch && epoch <= redis->last_epoch;
}

/* True if nothing that was sent on an earlier connection can be executed any more. */
static bool rlock__epoch_gone(const rlock__redis *redis, uint32_t epoch) {
    RLOCK_ASSERT(redis->dead_up_to <= redis->epoch);
    return epoch > redis->alive_up_to && epoch <= redis->dead_up_to &&
           rlock__epoch_ours(redis, epoch);
}

/* Finds a field in the words of INFO, which may be empty: what follows its name, or NULL. */
static const char *rlock__info_field(const char *info, const char *name) {
    const char *found = strstr(info, name);
    return found ? found + strlen(name) : NULL;
}

/* Returns where an identity of 40 characters stands; an empty text if there is none. */
static const char *rlock__info_identity(const char *info, const char *name) {
    const char *found = rlock__info_field(info, name);
    return found && strlen(found) >= RLOCK__IDENTITY ? found : "";
}

static bool rlock__same_identity(const char *one, const char *other) {
    return *one && strncmp(one, other, RLOCK__IDENTITY) == 0;
}

static void rlock__redis_is_replica(rlock__redis *redis) {
    rlock__conn_fail(&redis->commands, RLOCK_FAULT_BUSY,
                     "the server is a replica; give the address of its primary");
}

/* Notes what INFO says of the data, unless they are a replica's. The history of a replica that was
 * promoted has a new identity, and that of its primary as the second one. A server that was started
 * anew from a dump may say the same of itself; to take it for a replica is the safe mistake. */
static void rlock__redis_inherit(rlock__redis *redis, const char *info) {
    const char *role = rlock__info_field(info, "role:");
    const char *first = rlock__info_identity(info, "master_replid:");
    const char *second = rlock__info_identity(info, "master_replid2:");
    bool node = rlock__is_node(redis); /* a replica among the nodes says MOVED */
    redis->roleless = !role && !node;
    if (role && strncmp(role, "slave", 5) == 0 && !node) {
        rlock__redis_is_replica(redis);
        return;
    }
    redis->inherits =
        rlock__same_identity(redis->replid, first) || rlock__same_identity(redis->replid, second);
    strncpy(redis->replid, first, RLOCK__IDENTITY); /* a NUL follows */
}

/* Whether another process at this address is the one before, started anew: it began when that one
 * was last heard of, or later, and with other data. Else the address has moved to another server,
 * and may come back. The server counts in whole seconds of its own clock. */
static bool rlock__restarted(const rlock__redis *redis, const struct sockaddr_storage *peer,
                             const char *info) {
    const char *found = rlock__info_field(info, "uptime_in_seconds:");
    long long uptime_s = found ? strtoll(found, NULL, 10) : -1;
    int64_t heard_us = rlock_client_now_us(redis->client) - redis->heard_us;
    return uptime_s >= 0 && uptime_s <= heard_us / 1000000 + 1 && !redis->inherits &&
           peer->ss_family != AF_UNSPEC && memcmp(peer, &redis->peer, sizeof *peer) == 0;
}

/* A CLIENT ID means something in one process of the server only. Where it is not known which one
 * this is, nobody is killed. What was sent to one that died is not executed any more. */
static void rlock__redis_identify(rlock__redis *redis, const char *run_id, const char *info) {
    const char *former = redis->commands.run_id;
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    RLOCK_ASSERT(redis->epoch > redis->first_epoch);
    memset(&peer, 0, sizeof peer);
    if (getpeername(redis->commands.fd, (struct sockaddr *)&peer, &len) != 0) {
        peer.ss_family = AF_UNSPEC;
    }
    if (!rlock__same_identity(run_id, former)) {
        redis->lost_id = 0;
        if (*run_id && *former && rlock__restarted(redis, &peer, info)) {
            redis->dead_up_to = redis->epoch - 1;
            redis->alive_up_to =
                redis->alive_up_to > redis->moved_up_to ? redis->moved_up_to : redis->alive_up_to;
        } else {
            redis->moved_up_to = redis->epoch - 1;
            redis->alive_up_to =
                redis->lost_epoch > redis->dead_up_to ? redis->lost_epoch : redis->alive_up_to;
        }
    }
    memcpy(&redis->peer, &peer, sizeof peer);
}

/* What INFO says of the server's process; the words may be empty. */
static void rlock__conn_identify(rlock__conn *conn, const char *info) {
    const char *run_id = rlock__info_identity(info, "run_id:");
    if (conn == &conn->redis->commands) {
        rlock__redis_identify(conn->redis, run_id, info);
    }
    strncpy(conn->run_id, run_id, RLOCK__IDENTITY); /* a NUL follows */
}

static bool rlock__by_channel(const rlock__redis *redis) {
    return RLOCK__HAS_REDISSON && redis->changes == RLOCK__CHANGES_CHANNELS;
}

static void rlock__redis_pushing(rlock__redis *redis) {
    bool on = redis->subscribed && (redis->tracked || rlock__by_channel(redis));
    bool notifies = RLOCK__HAS_KINDS && redis->notify == RLOCK__NOTIFY_ON;
    unsigned what = (on ? RLOCK_PUSH_CHANGES : 0u) | (notifies ? RLOCK_PUSH_NOTIFICATIONS : 0u);
    RLOCK_ASSERT(!notifies || redis->subscribed);
    if (redis->pushing != what) {
        redis->pushing = what;
        redis->events->pushing(redis->owner, NULL, what);
    }
}

/* Sets the timer of a connection. */
RLOCK__NOINLINE static void rlock__conn_wait(rlock__conn *conn, int64_t us) {
    rlock_client *client = conn->redis->client;
    RLOCK_ASSERT(us >= 0);
    rlock_timer_set(client, &conn->timer, rlock_client_now_us(client) + us);
}

static int64_t rlock__backoff_us(rlock__conn *conn) {
    bool soon = conn->fault == RLOCK_FAULT_DOWN || (conn->strayed && !conn->backoff_ms);
    uint32_t limit = soon ? conn->backoff_ms : RLOCK__BACKOFF_MAX_MS;
    int64_t jittered = (int64_t)(rlock_client_random(conn->redis->client) % (limit * 500u + 1u));
    RLOCK_ASSERT(conn->backoff_ms <= RLOCK__BACKOFF_MAX_MS);
    conn->backoff_ms = conn->backoff_ms * 2 + RLOCK__BACKOFF_MIN_MS;
    if (conn->backoff_ms > RLOCK__BACKOFF_MAX_MS) {
        conn->backoff_ms = RLOCK__BACKOFF_MAX_MS;
    }
    return limit * 500u + jittered; /* half of it fixed, half at random; the first one at once */
}

/* What the push connection is wanted for, and not refused. */
static bool rlock__tracks(const rlock__redis *redis) {
    return redis->push_wanted && redis->changes != RLOCK__CHANGES_REFUSED;
}
static bool rlock__wants_notifications(const rlock__redis *redis) {
    return RLOCK__HAS_KINDS && redis->queue_wanted && redis->notify != RLOCK__NOTIFY_REFUSED;
}

/* True if something is to be heard on the push connection. */
RLOCK__NOINLINE static bool rlock__listens(const rlock__redis *redis) {
    return rlock__tracks(redis) || rlock__wants_notifications(redis);
}

/* True if the push connection is wanted for anything. With replicas it is there all the time: the
 * last releases are sent on it if a WAIT holds up the command connection. */
static bool rlock__pushes(const rlock__redis *redis) {
#if RLOCK__HAS_REPLICAS
    if (redis->sync) {
        return true;
    }
#endif
    return rlock__listens(redis);
}

/* True if a connection that ends is opened anew at once, and nobody is told. */
static bool rlock__conn_renews(const rlock__conn *conn) {
#if RLOCK__HAS_CREDENTIALS
    return conn->renews;
#else
    (void)conn;
    return false;
#endif
}

/* Appends to the n bytes of a line where a connection leads, if that is known. The port of a host
 * whose name was not found plays no part, and may be a password: in redis://shop:54321 it is. */
static size_t rlock__conn_endpoint(const rlock__conn *conn, char *line, size_t n,
                                   const char *between) {
    const rlock__redis *redis = conn->redis;
    const char *path = redis->unix_path, *host = conn->endpoint->host;
    if (!redis->connect) {
        n = rlock__line_add(line, n, between, path ? path : host);
        if (!path && host && rlock__endpoint_known(conn->endpoint)) {
            n = rlock__line_number(line, n, ":", conn->endpoint->port);
        }
    }
    return n;
}

/* For the hook config.on_event. */
static void rlock__conn_report_text(const rlock__conn *conn, rlock_report_kind kind,
                                    int64_t span_us, const char *text) {
    char where[RLOCK__LINE];
    rlock_report report;
    if (!RLOCK__HAS_REPORTS) {
        return;
    }
    memset(&report, 0, sizeof report);
    report.kind = kind;
    report.span_us = span_us;
    report.link = rlock__is_sentinel(conn)         ? "Sentinel"
                  : conn == &conn->redis->commands ? "commands"
                                                   : "push";
    report.where = rlock__conn_endpoint(conn, where, 0, "") ? where : NULL;
    report.text = text;
    rlock_client_report(conn->redis->client, &report);
}

static void rlock__conn_report(const rlock__conn *conn, rlock_report_kind kind, int64_t span_us) {
    bool says = kind == RLOCK_REPORT_DISCONNECTED && !conn->walks;
    rlock__conn_report_text(conn, kind, span_us, says ? conn->text : NULL);
}

/* Writes a line that says which connection it is of, where that leads, and above 1 how often that
 * has failed in a row. */
static void rlock__conn_log_times(const rlock__conn *conn, int level, const char *what,
                                  const char *detail, uint32_t times) {
    char line[RLOCK__LINE];
    const char *which = rlock__is_sentinel(conn) ? "Sentinel " : "push ";
    size_t n = rlock__line_add(line, 0, conn == &conn->redis->commands ? "" : which, "connection");
    n = rlock__conn_endpoint(conn, line, n, " to ");
    if (times > 1) {
        n = rlock__line_number(line, n, ": failure ", (int32_t)times);
    }
    rlock__line_add(line, n, ": ", what);
    rlock_client_log(conn->redis->client, level, line, detail);
}

static void rlock__conn_log(const rlock__conn *conn, int level, const char *what,
                            const char *detail) {
    rlock__conn_log_times(conn, level, what, detail, 1);
}

/* Writes why an attempt has ended: the 1st, 2nd, 4th, 8th time and so on that it is the same in a
 * row. */
static void rlock__conn_log_failure(const rlock__conn *conn, const char *what, const char *why) {
    uint32_t times = conn->error_kept ? conn->repeats + 1 : 1;
    if (times & (times - 1)) {
        return;
    }
    rlock__conn_log_times(conn, RLOCK_LOG_WARNING, what, why, times);
}

/* Closes a connection that is failing, and answers what was on it. */
static void rlock__conn_shut(rlock__conn *conn) {
    RLOCK_ASSERT(conn->failing);
    if (conn->ac) {
        redisAsyncFree(conn->ac); /* answers with NULL, then calls rlock__want_nothing */
    }
    conn->state = RLOCK__CONN_DOWN;
    conn->ac = NULL;
    conn->failing = conn->blocked = false;
    conn->outstanding = 0;
    conn->id = 0;
}

/* Buries a failing connection, and plans the next attempt. */
static void rlock__conn_closed(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    bool main = conn == &redis->commands, was_ready = conn->state == RLOCK__CONN_READY;
    int64_t age_us = rlock_client_now_us(redis->client) - conn->ready_us;
    long long id = conn->id;
    rlock__conn_shut(conn);
    if (main && was_ready) {
        redis->heard_us = conn->heard_us;
    }
    if (main && was_ready && redis->lost_epoch == redis->epoch) {
        redis->lost_id = id;
    } else if (main && (redis->lost_epoch <= redis->dead_up_to ||
                        redis->lost_epoch <= redis->alive_up_to)) {
        redis->dead_up_to = redis->epoch; /* every acquire on it was answered */
    }
    if (was_ready && age_us >= RLOCK__BACKOFF_MAX_MS * 1000) {
        conn->backoff_ms = 0; /* it was no connection of the kind that ends at once */
    }
    if (main) {
        redis->tracked = redis->native = redis->served = false;
        if (redis->push.state != RLOCK__CONN_DOWN) { /* it was registered there */
            rlock__conn_fail(&redis->push, RLOCK_FAULT_DOWN, "closed with the command connection");
        }
    } else { /* hiredis ends a connection whose SUBSCRIBE is refused: the last one */
        rlock_fault why = rlock__classify(conn->text);
        bool refused =
            was_ready && (why == RLOCK_FAULT_AUTH || (conn->refused && why != RLOCK_FAULT_BUSY));
        bool last = RLOCK__HAS_KINDS && redis->subscribed && redis->notify == RLOCK__NOTIFY_WANTED;
        if (RLOCK__HAS_KINDS && refused && redis->notify != RLOCK__NOTIFY_UNUSED) {
            redis->notify = RLOCK__NOTIFY_REFUSED;
        } else if (RLOCK__HAS_KINDS && redis->notify == RLOCK__NOTIFY_ON) {
            redis->notify = RLOCK__NOTIFY_WANTED;
        }
        if (refused && !last) {
            redis->changes = RLOCK__CHANGES_REFUSED;
        }
        redis->subscribed = redis->tracked = false;
        redis->sharded = conn->shard = false;
#if RLOCK__HAS_REPLICAS
        if (redis->sync) {
            redis->sync->opens = false;
        }
#endif
    }
    rlock__redis_pushing(redis);
    if (!conn->walks) {
        rlock__conn_report(conn, RLOCK_REPORT_DISCONNECTED, was_ready ? age_us : 0);
    }
    if (!main && !rlock__pushes(redis)) {
        conn->wanted = false; /* until the command connection is a new one */
        rlock_timer_set(redis->client, &conn->timer, -1);
        return;
    }
    if (conn->walks || rlock__conn_renews(conn)) { /* at once, and nobody is told */
        conn->strayed = false;
        rlock_timer_set(redis->client, &conn->timer, 0);
        return;
    }
    rlock__conn_wait(conn, rlock__backoff_us(conn));
    conn->strayed = false;
    rlock__conn_log_failure(conn, NULL, conn->text);
    if (main) {
        if (!was_ready) {
            conn->endpoint->failures++;
        }
        redis->events->down(redis->owner, NULL, conn->fault, conn->text);
    } else {
        redis->stats->faults++;
    }
}

RLOCK__NOINLINE static void rlock__reply_refused(rlock__conn *conn) {
    rlock__conn_error(conn, RLOCK_FAULT_DOWN, "unexpected reply");
}

/* True if something was asked for on this connection that may be said on a sharded channel. */
static bool rlock__sharded(const rlock__conn *conn) {
    return rlock__is_node(conn->redis) && conn->redis->sharded && conn == &conn->redis->push;
}

/* True while what is read came on a sharded channel. */
static bool rlock__in_shard(const rlock__conn *conn) {
    return rlock__is_node(conn->redis) && conn->shard;
}

/* hiredis asserts on replies that nobody asked for, and on messages of another shape than two words
 * and, but for what was published, a number; and it allocates what the head of an array promises.
 * A reply that is not as expected is not made, and hiredis ends the connection. */
static rlock__conn *rlock__reply_expected(const redisReadTask *task, int type, size_t elements) {
    rlock__conn *conn = (rlock__conn *)task->privdata;
    bool subscribed = (conn->ac->c.flags & REDIS_SUBSCRIBED) != 0;
    bool expected;
    if (conn->failing || elements > RLOCK__ELEMENTS_MAX) {
        expected = false; /* what comes behind a wrong reply is the answer to something else */
    } else if (task->parent && subscribed && !task->parent->parent) {
        const redisReply *message = (const redisReply *)task->parent->obj;
        expected = task->idx < 2 ? type == REDIS_REPLY_STRING
                                 : type == REDIS_REPLY_INTEGER ||
                                       (strcmp(message->element[0]->str, "message") == 0 &&
                                        !(rlock__in_shard(conn) && type != REDIS_REPLY_STRING));
    } else if (task->parent) {
        expected = true;
    } else if (type == REDIS_REPLY_ERROR) {
        expected = true; /* hiredis ends the connection with it */
    } else {
        expected = subscribed ? type == REDIS_REPLY_ARRAY && elements == 3
                              : conn->ac->replies.head != NULL;
    }
    if (!expected) {
        rlock__reply_refused(conn);
    }
    return expected ? conn : NULL;
}

static bool rlock__is(const char *text, size_t len, const char *word) {
    return len == strlen(word) && memcmp(text, word, len) == 0;
}

/* True for the channel on which this client is notified: prefix and id. */
static bool rlock__is_own_channel(const rlock__redis *redis, const char *text, size_t len) {
    size_t head = strlen(redis->prefix);
    return RLOCK__HAS_KINDS && redis->notify != RLOCK__NOTIFY_UNUSED &&
           len == head + RLOCK__TOKEN_HEAD - 1 && memcmp(text, redis->prefix, head) == 0 &&
           memcmp(text + head, rlock_client_id(redis->client), len - head) == 0;
}

/* The first two words of a message. hiredis 1.2 asserts on the answer to a subscription that it
 * does not know of: only those to our own count, and only where keys are channels one may end. */
static bool rlock__word_expected(const rlock__conn *conn, const redisReadTask *task,
                                 const char *text, size_t len) {
    size_t head = sizeof RLOCK__CHANNEL_HEAD - 1;
    const redisReply *message;
    const char *first;
    if (!(conn->ac->c.flags & REDIS_SUBSCRIBED) || task->parent->parent || task->idx > 1) {
        return true;
    }
    if (task->idx == 0) {
        return rlock__is(text, len, "message") || rlock__is(text, len, "subscribe") ||
               rlock__is(text, len, "unsubscribe") || rlock__in_shard(conn);
    }
    message = (const redisReply *)task->parent->obj;
    first = message->element[0]->str;
    if (strcmp(first, "message") == 0) {
        return true;
    }
    if (rlock__by_channel(conn->redis)) {
        return len > head && memcmp(text, RLOCK__CHANNEL_HEAD, head) == 0;
    }
    return first[0] == 's' && (rlock__is(text, len, RLOCK__INVALIDATE) ||
                               rlock__is_own_channel(conn->redis, text, len));
}

/* A reply that is no array is made in place: hiredis has one at a time, and frees it soon. */
#define RLOCK__IN_PLACE SIZE_MAX /* as its number of elements */

RLOCK__NOINLINE static redisReply *rlock__make_in_place(rlock__conn *conn, int type) {
    memset(&conn->reply, 0, sizeof conn->reply);
    conn->reply.type = type;
    conn->reply.elements = RLOCK__IN_PLACE;
    return &conn->reply;
}

static void rlock__free_reply(void *reply) {
    if (((const redisReply *)reply)->elements != RLOCK__IN_PLACE) {
        freeReplyObject(reply);
    }
}

/* Makes what came on a sharded channel, of which hiredis knows nothing, a message on the channel
 * that is always subscribed to. Its text is the channel that it came on: whatever was said there,
 * the key is to be asked for. */
static void *rlock__make_shard(rlock__conn *conn, const redisReadTask *task, char *text,
                               size_t len) {
    char always[sizeof RLOCK__CHANNEL_HEAD + 1 + 36] = RLOCK__CHANNEL_HEAD "{";
    char *end = always + sizeof RLOCK__CHANNEL_HEAD;
    redisReadTask last = *task;
    RLOCK_ASSERT(task->parent && task->idx >= 0 && task->idx <= 2);
    if (task->idx == 0) {
        memcpy(always, "message", 7);
        return conn->make->createString(task, always, 7);
    }
    if (task->idx == 2) {
        conn->shard = false;
        return ((const redisReply *)task->parent->obj)->element[2];
    }
    memcpy(end, rlock_client_id(conn->redis->client), 36);
    end[36] = '}';
    last.idx = 2;
    return conn->make->createString(&last, text, len)
               ? conn->make->createString(task, always, sizeof always)
               : NULL;
}

/* A text in an array: its first word says whether it came on a sharded channel. */
static void *rlock__make_word(rlock__conn *conn, const redisReadTask *task, char *text,
                              size_t len) {
    RLOCK_ASSERT(task->parent);
    if (rlock__sharded(conn) && !task->parent->parent && task->idx == 0 &&
        (rlock__is(text, len, "smessage") || rlock__is(text, len, "ssubscribe") ||
         rlock__is(text, len, "sunsubscribe"))) {
        conn->shard = true;
    }
    if (!rlock__word_expected(conn, task, text, len)) {
        rlock__reply_refused(conn);
        return NULL;
    }
    return rlock__in_shard(conn) ? rlock__make_shard(conn, task, text, len)
                                 : conn->make->createString(task, text, len);
}

/* True for an error that was said to a sharded channel. hiredis would end the connection with it.
 * One that is refused is done without; one that another node has comes with a newer map. */
static bool rlock__shard_error(const rlock__conn *conn, const char *text) {
    rlock__redis *redis = conn->redis;
    if (!rlock__sharded(conn)) {
        return false;
    }
    if (rlock__classify(text) == RLOCK_FAULT_BUSY) {
        redis->shards_moved = true;
    } else {
        redis->shards_refused = true;
    }
    return true;
}

static void *rlock__make_string(const redisReadTask *task, char *text, size_t len) {
    rlock__conn *conn = rlock__reply_expected(task, task->type, 0);
    redisReply *reply;
    if (!conn) {
        return NULL;
    }
    if (task->parent) {
        return rlock__make_word(conn, task, text, len);
    }
    if (task->type == REDIS_REPLY_ERROR && rlock__shard_error(conn, text)) {
        return rlock__make_in_place(conn, REDIS_REPLY_NIL);
    }
    if (len >= sizeof conn->reply_text) {
        return conn->make->createString(task, text, len);
    }
    reply = rlock__make_in_place(conn, task->type);
    memcpy(conn->reply_text, text, len);
    conn->reply_text[len] = 0;
    reply->str = conn->reply_text;
    reply->len = len;
    return reply;
}

#if HIREDIS_MAJOR >= 1
typedef size_t rlock__elements;
#else
typedef int rlock__elements;
#endif

static void *rlock__make_array(const redisReadTask *task, rlock__elements elements) {
    rlock__conn *conn = rlock__reply_expected(task, task->type, (size_t)elements);
    return conn ? conn->make->createArray(task, elements) : NULL;
}

static void *rlock__make_integer(const redisReadTask *task, long long value) {
    rlock__conn *conn = rlock__reply_expected(task, REDIS_REPLY_INTEGER, 0);
    if (conn && !task->parent) {
        redisReply *reply = rlock__make_in_place(conn, REDIS_REPLY_INTEGER);
        reply->integer = value;
        return reply;
    }
    if (conn && rlock__in_shard(conn)) {
        return rlock__make_shard(conn, task, NULL, 0);
    }
    return conn ? conn->make->createInteger(task, value) : NULL;
}

static void *rlock__make_nil(const redisReadTask *task) {
    rlock__conn *conn = rlock__reply_expected(task, REDIS_REPLY_NIL, 0);
    if (!conn || task->parent) {
        return conn ? conn->make->createNil(task) : NULL;
    }
    return rlock__make_in_place(conn, REDIS_REPLY_NIL);
}

#if HIREDIS_MAJOR >= 1
/* RESP3, which we never ask for; where a function is missing hiredis makes a wild pointer. */
static void *rlock__make_double(const redisReadTask *task, double value, char *text, size_t len) {
    (void)value;
    (void)text;
    (void)len;
    rlock__reply_refused((rlock__conn *)task->privdata);
    return NULL;
}

static void *rlock__make_bool(const redisReadTask *task, int value) {
    return rlock__make_double(task, value, NULL, 0);
}
#endif

static void rlock__conn_guard(rlock__conn *conn, redisAsyncContext *ac) {
    RLOCK_ASSERT(conn->ac == ac);
    conn->make = ac->c.reader->fn;
    conn->guard = *conn->make;
    conn->guard.createString = rlock__make_string;
    conn->guard.createArray = rlock__make_array;
    conn->guard.createInteger = rlock__make_integer;
    conn->guard.createNil = rlock__make_nil;
    conn->guard.freeObject = rlock__free_reply;
#if HIREDIS_MAJOR >= 1
    conn->guard.createDouble = rlock__make_double;
    conn->guard.createBool = rlock__make_bool;
#endif
    ac->c.reader->fn = &conn->guard;
    ac->c.reader->privdata = conn;
}

static void rlock__conn_wanted(rlock__conn *conn) {
    RLOCK_ASSERT(!conn->redis->closing);
    conn->wanted = true;
    if (conn->state == RLOCK__CONN_DOWN && !conn->timer.index) {
        rlock_timer_set(conn->redis->client, &conn->timer, 0);
    }
}

/* Reports the end of a connection, or of an attempt, that the client itself is about to close. */
static void rlock__conn_left(rlock__conn *conn) {
    int64_t now_us = rlock_client_now_us(conn->redis->client);
    if (RLOCK__HAS_REPORTS && conn->state != RLOCK__CONN_DOWN) {
        if (!conn->failing) {
            strcpy(conn->text, "closed by the client");
        }
        conn->walks = false;
        rlock__conn_report(conn, RLOCK_REPORT_DISCONNECTED,
                           conn->state == RLOCK__CONN_READY ? now_us - conn->ready_us : 0);
    }
}

/* Closes a connection for good, if it was made. */
static void rlock__conn_end(rlock__conn *conn) {
    redisAsyncContext *ac = conn->ac;
#if RLOCK__HAS_NAMES
    while (conn->lookups) {
        rlock__lookup *lookup = conn->lookups;
        conn->lookups = lookup->next;
        rlock__dealloc(lookup->host);
        rlock__dealloc(lookup);
    }
#endif
    if (ac) {
        ac->data = NULL;
        redisAsyncFree(ac);
    }
    RLOCK_ASSERT(!conn->ac);
    if (conn->redis) {
        rlock_timer_drop(conn->redis->client, &conn->timer);
    }
}

#endif /* RLOCK_STORE_REDIS_LINK_H */
