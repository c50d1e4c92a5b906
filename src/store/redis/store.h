/* ------------------------------------------------------------------------------------------------
 * >>redis-store - requests in their order, many in one command, and what is answered
 */

#ifndef RLOCK_STORE_REDIS_STORE_H
#define RLOCK_STORE_REDIS_STORE_H

#include "public/head.h"
#include "public/status.h"
#include "public/loop.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "base/list.h"
#include "runtime/token.h"
#include "store/redis/state.h"
#include "store/redis/scripts.h"
#include "store/redis/address.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"
#include "store/redis/wait.h"
#include "store/redis/push.h"
#include "store/redis/sentinel.h"
#include "store/redis/quarantine.h"
#include "store/redis/credentials.h"
#include "store/redis/handshake.h"
#include "store/redis/who.h"

static void rlock__redis_submit(void *state, rlock_request *request) {
    rlock__redis *redis = (rlock__redis *)state;
    bool urgent =
        request->op == RLOCK_OP_RELEASE || request->due_us <= rlock_client_now_us(redis->client);
    RLOCK_ASSERT(request->key_len);
    RLOCK_ASSERT(urgent || request->op <= RLOCK_OP_RENEW);
    RLOCK_ASSERT(!redis->closing);
    request->store.own[RLOCK__ENCODING] = RLOCK__AS_BEST;
    request->store.stage = RLOCK__QUEUED;
    request->store.own[RLOCK__ASKING] = 0;
    if (rlock__is_queued(request) && redis->notify == RLOCK__NOTIFY_UNUSED) {
        redis->notify = RLOCK__NOTIFY_WANTED; /* with the push connection, once that is wanted */
        rlock__notify_subscribe(redis);
    }
    rlock__list_append(&redis->queues[urgent ? RLOCK__URGENT : 1 + request->op],
                       &request->store.link);
    rlock__conn_wanted(&redis->commands);
}

static bool rlock__redis_forget(void *state, rlock_request *request) {
    bool maybe = request->store.stage == RLOCK__FLYING;
    RLOCK_ASSERT(maybe || request->store.stage == RLOCK__QUEUED);
    (void)state;
    if (maybe) {
        rlock__command *command = (rlock__command *)request->store.data;
        uint32_t i = 0;
        while (command->requests[i] != request) {
            RLOCK_ASSERT(i < command->count);
            i++;
        }
        command->requests[i] = NULL;
    } else {
        rlock__list_remove(&request->store.link);
    }
    return maybe;
}

/* Lets it go out once more, in another way. */
RLOCK__NOINLINE static void rlock__request_again(rlock__redis *redis, rlock_request *request,
                                                 uint8_t encoding) {
    RLOCK_ASSERT(request->store.stage == RLOCK__FLYING);
    RLOCK_ASSERT(encoding != RLOCK__AS_PLAIN && !redis->closing);
    request->store.own[RLOCK__ENCODING] = encoding;
    request->next = 0; /* it may have asked already */
    request->store.stage = RLOCK__QUEUED;
    rlock__list_append(&redis->queues[RLOCK__URGENT], &request->store.link);
}

/* Whether the reply only says that it has to be asked in another way. */
static bool rlock__other_way(rlock__redis *redis, rlock_request *request, const redisReply *reply) {
    bool error = reply->type == REDIS_REPLY_ERROR, again = false;
    bool behind = request->store.own[RLOCK__ENCODING] == RLOCK__AS_BEHIND;
    RLOCK_ASSERT(request->store.own[RLOCK__ENCODING] <= RLOCK__AS_FULL);
    if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN && request->op == RLOCK_OP_ACQUIRE) {
        again = reply->type == REDIS_REPLY_NIL; /* held: by whom, and for how long? */
    } else if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN) {
        again = (error && !rlock__redirected(reply->str)) ||
                (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0);
        redis->native =
            redis->native && !(error && rlock__classify(reply->str) == RLOCK_FAULT_AUTH);
    }
    if (rlock__credentials_again(redis, request, reply)) {
        rlock__request_again(redis, request, RLOCK__AS_BEST);
        return true;
    }
    if (again) {
        rlock__request_again(redis, request, RLOCK__AS_SCRIPT);
    } else if (error && (request->store.own[RLOCK__ENCODING] == RLOCK__AS_SCRIPT || behind) &&
               strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        rlock__request_again(redis, request, behind ? RLOCK__AS_FULL : RLOCK__AS_EVAL);
        again = true;
    }
    return again;
}

static void rlock__answer_one(rlock__redis *redis, rlock_request *request,
                              const redisReply *reply) {
    rlock_answer answer;
    rlock_info info;
    RLOCK_ASSERT(request->store.stage == RLOCK__FLYING && request->store.data);
    if (rlock__other_way(redis, request, reply)) {
        return;
    }
    memset(&answer, 0, sizeof answer);
    rlock__parse(request, reply, &answer, &info);
    if (reply->type != REDIS_REPLY_ERROR) {
        rlock__who_fill(redis, request, &info);
    }
    if (answer.outcome == RLOCK_OUTCOME_FAULT && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_fail(&redis->commands, RLOCK_FAULT_DOWN, answer.text);
    }
    if (answer.outcome == RLOCK_OUTCOME_HELD && rlock__is_queued(request) &&
        !(request->flags & RLOCK_REQUEST_ONCE) && !redis->queue_wanted) {
        redis->queue_wanted = true;
        rlock__track(redis);
    }
    answer.watched = answer.outcome == RLOCK_OUTCOME_HELD &&
                     ((const rlock__command *)request->store.data)->heard;
    rlock__answer(redis, request, &answer);
    rlock__told_forget(redis);
}

/* Of a batch: a word for each, or one for all. Where the script cannot run each is asked alone. */
static void rlock__answer_batch(rlock__redis *redis, const rlock__command *command,
                                const redisReply *reply) {
    bool each = reply->type == REDIS_REPLY_STRING && reply->len == command->count;
    bool refused = reply->type == REDIS_REPLY_ERROR && /* it speaks of the script */
                   rlock__classify(reply->str) != RLOCK_FAULT_BUSY;
    uint8_t encoding = RLOCK__AS_SCRIPT;
    uint32_t i;
    RLOCK_ASSERT(command->count > 1 && command->op == RLOCK_OP_RENEW);
    if (refused && command->encoding == RLOCK__AS_SCRIPT &&
        strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        redis->batches = RLOCK__BATCHES_UNTOLD;
        encoding = RLOCK__AS_BEST;
    } else if (refused) {
        redis->batches = RLOCK__BATCHES_NONE;
    }
    for (i = 0; i < command->count; i++) {
        rlock_request *request = command->requests[i];
        rlock_answer answer;
        if (!request) {
            continue;
        }
        memset(&answer, 0, sizeof answer); /* done, if nothing else is said */
        if (each && reply->str[i] == '1') {
            rlock__answer(redis, request, &answer);
        } else if (each || refused) {
            rlock__request_again(redis, request, encoding);
        } else {
            rlock__answer_one(redis, request, reply);
        }
    }
}

/* A replica, or a node of a cluster that has not this key: the address may lead elsewhere by now,
 * and is asked for anew. A node that serves other keys is given up for a MOVED now and then. */
static void rlock__redis_astray(rlock__redis *redis, const redisReply *reply) {
    const rlock__error *error;
    bool moved;
    if (reply->type != REDIS_REPLY_ERROR) {
        redis->served = true;
        return;
    }
    error = rlock__error_of(reply->str);
    moved = error == &rlock__errors[RLOCK__ERROR_MOVED];
    if (rlock__is_node(redis) || (!moved && error != &rlock__errors[RLOCK__ERROR_ASTRAY])) {
        return;
    }
    if (moved) {
        int64_t now_us = rlock_client_now_us(redis->client);
        if (redis->served && redis->moved_us && now_us - redis->moved_us < RLOCK__MOVED_MS * 1000) {
            return;
        }
        redis->moved_us = now_us;
    }
    rlock__redis_strays(redis, reply->str);
}

static void rlock__on_reply(redisAsyncContext *ac, void *raw, void *data) {
    rlock__command *command = (rlock__command *)data;
    rlock__redis *redis = command->redis;
    const redisReply *reply = (const redisReply *)raw;
    uint32_t i;
    RLOCK_ASSERT(redis->bytes >= command->bytes);
    RLOCK_ASSERT(command->count && command->count <= RLOCK__BATCH);
    RLOCK_ASSERT(command->kept == 0 && command->requests);
    (void)ac;
    redis->bytes -= command->bytes;
    redis->script_in_flight = command->tells ? NULL : redis->script_in_flight;
    if (reply) {
        rlock__conn_answered(&redis->commands);
    } else if (command->op == RLOCK_OP_ACQUIRE ||
               (RLOCK__HAS_KINDS && command->op > RLOCK_OP_INSPECT)) {
        redis->lost_epoch = redis->epoch; /* no other does harm when it is executed late */
    }
    if (reply && !redis->closing) {
        rlock__redis_astray(redis, reply);
        if (command->count > 1) {
            rlock__answer_batch(redis, command, reply);
        } else if (command->requests[0]) {
            rlock__answer_one(redis, command->requests[0], reply);
        }
    }
    for (i = 0; i < command->count && !reply && !redis->closing; i++) {
        if (command->requests[i]) {
            rlock__answer_unknown(redis, command->requests[i]);
        }
    }
    rlock__command_done(redis, command);
}

/* True if it may go in a batch of renewals whose leases are those of the first one. */
static bool rlock__batched(const rlock_request *request, const rlock_request *first) {
    return request->op == RLOCK_OP_RENEW && request->store.own[RLOCK__ENCODING] == RLOCK__AS_BEST &&
           request->lease_ms == first->lease_ms && request->longest_ms == first->longest_ms &&
           !(RLOCK__HAS_KINDS && request->terms) && !(RLOCK__HAS_TOKENS && request->id);
}

/* Takes the next request out of a queue, and the renewals behind it that can go with it. NULL: no
 * memory, and none is taken. */
static rlock__command *rlock__command_take(rlock__redis *redis, rlock_link *queue) {
    rlock_request *first = RLOCK__OF(queue->next, rlock_request, store.link), *request;
    rlock__command *command = RLOCK__FIRST(&redis->spare, rlock__command, link);
    size_t bytes = first->key_len;
    if (command) {
        rlock__list_remove(&command->link);
    } else {
        command = (rlock__command *)rlock__alloc(sizeof *command);
    }
    if (!command) {
        return NULL;
    }
    rlock__list_remove(&first->store.link);
    command->redis = redis;
    command->one = first;
    command->requests = &command->one;
    command->count = 1;
    command->kept = 0;
    command->op = first->op;
    command->encoding = RLOCK__AS_SCRIPT;
    if (redis->batches == RLOCK__BATCHES_NONE || !rlock__batched(first, first) ||
        rlock__list_empty(queue)) {
        return command;
    }
    if (!command->batch && rlock__reserve(redis, RLOCK__BATCH_ROOM)) {
        command->batch = (rlock_request **)RLOCK_MALLOC(RLOCK__BATCH * sizeof first);
    }
    if (!command->batch) {
        return command; /* each alone */
    }
    command->batch[0] = first;
    command->requests = command->batch;
    while (command->count < RLOCK__BATCH &&
           (request = RLOCK__FIRST(queue, rlock_request, store.link)) != NULL &&
           rlock__batched(request, first) && bytes + request->key_len <= RLOCK__BATCH_BYTES) {
        rlock__list_remove(&request->store.link);
        bytes += request->key_len;
        command->requests[command->count++] = request;
    }
    return command;
}

static void rlock__command_put(rlock__redis *redis, rlock__command *command) {
    RLOCK_ASSERT(command->count);
    RLOCK_ASSERT(command->count <= RLOCK__BATCH && command->redis == redis);
    command->tells = false;
    command->heard = (redis->pushing & RLOCK_PUSH_CHANGES) && !rlock__by_channel(redis);
    if (command->count == 1) {
        rlock_request *request = command->requests[0];
        if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_EVAL &&
            redis->script_in_flight == rlock__script_of(redis, request)) {
            request->store.own[RLOCK__ENCODING] = RLOCK__AS_BEHIND;
        }
        command->tells = request->store.own[RLOCK__ENCODING] == RLOCK__AS_EVAL;
        rlock__put_request(redis, request);
        return;
    }
    if (redis->batches == RLOCK__BATCHES_UNTOLD) {
        redis->batches = RLOCK__BATCHES_KNOWN;
        command->encoding = RLOCK__AS_EVAL;
    }
    rlock__put_batch(redis, command);
}

/* Of a release with its script, which may not fail for want of memory. */
static size_t rlock__release_room(const rlock__redis *redis, const rlock_request *request) {
    size_t bytes = RLOCK__ROOM + 3 * request->key_len + 2 * strlen(redis->prefix);
    uint32_t i;
#if RLOCK__HAS_KINDS
    if (rlock__is_queued(request)) {
        bytes += sizeof rlock__lua_queue;
    }
#endif
    for (i = 1; i < rlock__request_keys(request); i++) {
        bytes += request->terms->lens[i] + 16u;
    }
    return bytes;
}

/* Returns the epoch to note with a token of which an attempt leaves now: the oldest one that is not
 * surely gone; of two nodes of a cluster none says so. */
static uint32_t rlock__epoch_noted(const rlock__redis *redis, uint32_t note) {
    uint32_t epoch = !note || rlock__epoch_gone(redis, note) ? redis->epoch : note;
    return rlock__epoch_ours(redis, epoch) ? epoch : RLOCK__EPOCHS_MIXED;
}

/* Sends what comes first in a queue. */
static void rlock__queue_send(rlock__redis *redis, rlock_link *queue, int64_t sent_us) {
    rlock_request *first = RLOCK__OF(queue->next, rlock_request, store.link);
    rlock__command *command;
    uint32_t i;
    bool sent;
    RLOCK_ASSERT(redis->commands.state == RLOCK__CONN_READY || redis->closing);
    RLOCK_ASSERT(!rlock__list_empty(queue) && first->store.stage == RLOCK__QUEUED);
#if RLOCK__HAS_REPLICAS
    if (redis->quarantine && first->op == RLOCK_OP_ACQUIRE &&
        rlock__quarantine_keeps(redis, first)) {
        return;
    }
#endif
    command = rlock__command_take(redis, queue);
    if (!command) {
        rlock__list_remove(&first->store.link);
        rlock__answer_fault(redis, first, RLOCK_FAULT_NOMEM, NULL);
        return;
    }
    sent = first->op != RLOCK_OP_ACQUIRE || /* room also for its release */
           rlock__reserve(redis, rlock__release_room(redis, first));
    if (sent) {
        sent = rlock__command_leads(redis, command);
    }
    rlock__command_put(redis, command);
    if (sent) {
        sent = rlock__command_send(redis, command, rlock__on_reply);
    }
    if (sent && command->tells) {
        redis->script_in_flight = rlock__script_of(redis, command->requests[0]);
    }
    command->bytes = (uint32_t)redis->length;
    redis->bytes += sent ? command->bytes : 0;
#if RLOCK__HAS_REPLICAS
    if (sent && rlock__syncs(redis, first)) {
        redis->sync->wanted = true;
    }
#endif
    for (i = 0; i < command->count; i++) {
        rlock_request *request = command->requests[i];
        request->sent_us = sent_us;
        request->store.data = command;
        request->store.stage = RLOCK__FLYING;
        if (sent && request->op == RLOCK_OP_ACQUIRE) {
            request->store.note = rlock__epoch_noted(redis, request->store.note);
        }
    }
    for (i = 0; i < command->count && !sent; i++) {
        if (command->requests[i]) {
            rlock__answer_fault(redis, command->requests[i], RLOCK_FAULT_NOMEM, NULL);
        }
    }
    if (!sent) {
        rlock__list_append(&redis->spare, &command->link);
    }
}

/* Urgent ones first, then of the heads of the queues the one that is due first. NULL: all empty. */
static rlock_link *rlock__redis_next(rlock__redis *redis) {
    rlock_link *next = NULL;
    int64_t due_us = 0;
    int i;
    if (!rlock__list_empty(&redis->queues[RLOCK__URGENT])) {
        return &redis->queues[RLOCK__URGENT];
    }
    for (i = 1; i < RLOCK__PARKED; i++) {
        const rlock_request *head = RLOCK__FIRST(&redis->queues[i], rlock_request, store.link);
        if (head && (!next || head->due_us < due_us)) {
            next = &redis->queues[i];
            due_us = head->due_us;
        }
    }
    return next;
}

/* Writes now; a socket that took no more is waited for. */
static void rlock__conn_flush(rlock__conn *conn) {
    if (conn->ac && conn->state >= RLOCK__CONN_HANDSHAKE && !conn->blocked) {
        rlock__conn_visit(conn, RLOCK_IO_WRITE);
    } else {
        rlock__conn_tend(conn);
    }
}

/* One write for all that was submitted. */
static void rlock__redis_flush(void *state) {
    rlock__redis *redis = (rlock__redis *)state;
    rlock_link *queue;
    int64_t now_us = 0;
    RLOCK_ASSERT(!redis->closing);
#if RLOCK__HAS_REPLICAS
    if (redis->quarantine && !rlock__quarantine_waits(redis)) {
        rlock__list_move(&redis->queues[RLOCK__URGENT], &redis->queues[RLOCK__PARKED]);
    }
#endif
    while (rlock__conn_usable(&redis->commands) && redis->bytes < RLOCK__WINDOW &&
           (queue = rlock__redis_next(redis)) != NULL) {
        if (!now_us) { /* callbacks may have taken long */
            now_us = rlock_client_clock_us(redis->client);
        }
        rlock__queue_send(redis, queue, now_us);
    }
#if RLOCK__HAS_REPLICAS
    if (redis->sync) {
        rlock__sync_ask(redis);
    }
#endif
    rlock__conn_flush(&redis->commands);
    rlock__conn_flush(&redis->push);
#if RLOCK__HAS_SENTINEL
    if (redis->sentinel) {
        rlock__conn_flush(&redis->sentinel->conn);
    }
#endif
}

static void rlock__redis_track(void *state, const char *key, size_t len, bool on) {
    rlock__redis *redis = (rlock__redis *)state;
    if (on && !redis->push_wanted) {
        redis->push_wanted = true;
        rlock__track(redis);
    }
    if (rlock__by_channel(redis) && redis->subscribed) {
        rlock__channel_listen(redis, key, len, on);
    }
}

/* Ends what was opened of a store, wherever that stopped. */
static void rlock__redis_free(rlock__redis *redis) {
    rlock__conn_end(&redis->commands);
    rlock__conn_end(&redis->push);
    rlock__told_free(redis);
#if RLOCK__HAS_SENTINEL
    if (redis->sentinel) {
        rlock__conn_end(&redis->sentinel->conn);
        rlock__sentinel_free(redis->sentinel);
    }
#endif
#if RLOCK__HAS_REPLICAS
    rlock__quarantine_free(redis);
    rlock__sync_free(redis);
#endif
    while (!rlock__list_empty(&redis->spare)) {
        rlock__command *command = RLOCK__OF(redis->spare.next, rlock__command, link);
        rlock__list_remove(&command->link);
        rlock__dealloc(command->batch);
        rlock__dealloc(command);
    }
    rlock__dealloc(redis->endpoint.host);
    rlock__dealloc(redis->unix_path);
    rlock__dealloc(redis->username);
    rlock__dealloc(redis->password);
    rlock__dealloc(redis->name);
    rlock__dealloc(redis->prefix);
    rlock__dealloc(redis->buffer);
    rlock__dealloc(redis);
}

static void rlock__on_nothing(redisAsyncContext *ac, void *raw, void *data) {
    (void)ac;
    (void)raw;
    (void)data;
}

/* True if a last command may be sent on a connection. */
static bool rlock__conn_speaks(const rlock__conn *conn) {
    return conn->ac && conn->state == RLOCK__CONN_READY && !conn->failing;
}

/* Sends what was formatted last, of whose answer nobody hears. */
RLOCK__NOINLINE static void rlock__goodbye_say(rlock__redis *redis, bool aside) {
    RLOCK_ASSERT(redis->closing);
    rlock__conn_send(&redis->commands, rlock__on_nothing, NULL);
    if (aside) {
        rlock__conn_add(&redis->push);
    }
}

/* Where nothing is subscribed to, a connection takes all commands. */
static void rlock__push_unsubscribe(rlock__redis *redis) {
    RLOCK_ASSERT(redis->closing && redis->push.ac);
    rlock__put_words(redis, "UNSUBSCRIBE", 0);
    rlock__conn_add(&redis->push);
    if (redis->sharded) {
        rlock__put_words(redis, "SUNSUBSCRIBE", 0);
        rlock__conn_add(&redis->push);
    }
}

static void rlock__goodbye_write(rlock__conn *conn) {
    RLOCK_ASSERT(conn->ac && conn->redis->closing);
    rlock__conn_prepare(conn);
    redisAsyncHandleWrite(conn->ac);
}

/* The last write: all releases, of each script the first in full: a server may not know it yet.
 * Answers are switched off: a server that cannot deliver one drops what it has not executed yet.
 *
 * A connection that ends while a WAIT of it is out is dropped with all that came behind. So the
 * releases go out on the push connection as well. On the command connection they end what stands
 * before them, if the WAIT is answered first. */
static void rlock__redis_goodbye(rlock__redis *redis) {
    bool usable = rlock__conn_speaks(&redis->commands);
    bool aside = false;
    unsigned known = 0; /* the rows of scripts that were sent in full */
    rlock_link *queue;
    RLOCK_ASSERT(redis->closing);
#if RLOCK__HAS_REPLICAS
    aside = usable && redis->sync && redis->sync->out && rlock__conn_speaks(&redis->push);
    rlock__list_move(&redis->queues[RLOCK__URGENT], &redis->queues[RLOCK__PARKED]);
#endif
    queue = rlock__redis_next(redis);
    if (aside) {
        rlock__push_unsubscribe(redis);
    }
    if (usable && queue) {
        rlock__put_words(redis, "CLIENT REPLY OFF", 0);
        rlock__goodbye_say(redis, aside);
    }
    for (; queue; queue = rlock__redis_next(redis)) {
        rlock_request *request = RLOCK__OF(queue->next, rlock_request, store.link);
        bool stays = RLOCK__HAS_TOKENS && request->op == RLOCK_OP_RENEW; /* its last renewal */
        rlock__list_remove(&request->store.link);
        if (usable && (request->op == RLOCK_OP_RELEASE || stays)) {
            unsigned row = stays ? 0 : 1u << rlock__row(redis, request);
            request->store.own[RLOCK__ENCODING] = known & row ? RLOCK__AS_SCRIPT : RLOCK__AS_EVAL;
            rlock__put_request(redis, request); /* no DELIFEQ: if it is forbidden, who says so? */
            rlock__goodbye_say(redis, aside);
            known |= row;
        }
    }
    if (usable) { /* first: what it has sent before never runs alone after those of the other one */
        rlock__goodbye_write(&redis->commands);
    }
    if (aside) {
        rlock__goodbye_write(&redis->push);
    }
}

static void rlock__redis_close(void *state) {
    rlock__redis *redis = (rlock__redis *)state;
    if (rlock_client_forked(redis->client)) { /* by on_event, when another node was closed */
        return;
    }
    RLOCK_ASSERT(!redis->closing);
    redis->closing = true;
    rlock__redis_goodbye(redis);
    rlock__conn_left(&redis->commands);
    rlock__conn_left(&redis->push);
#if RLOCK__HAS_SENTINEL
    if (redis->sentinel) {
        rlock__conn_left(&redis->sentinel->conn);
    }
#endif
    if (!rlock_client_forked(redis->client)) {
        rlock__redis_free(redis);
    }
}

#define RLOCK__UNIX_PATH_MAX (sizeof((struct sockaddr_un *)0)->sun_path - 1)

#define RLOCK__DOTTED(a, b, c) RLOCK__QUOTE(a) "." RLOCK__QUOTE(b) "." RLOCK__QUOTE(c)
#define RLOCK__HIREDIS_VERSION RLOCK__DOTTED(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH)

/* Returns what is wrong if hiredis' header, by which this was compiled, and its library lay structs
 * out differently, or NULL; *detail: both versions. hiredis has no function that says its own. Up
 * to 0.14 the tasks of a reader stand inside it, behind maxbuf, and are zero in a new one; from 1.0
 * on a limit and a pointer stand there, which are not. */
static const char *rlock__hiredis_fault(const char **detail) {
    static const unsigned char zero[16] = {0};
    const size_t end = offsetof(redisReader, maxbuf) + sizeof(size_t);
    const bool old = offsetof(redisReader, ridx) - end > sizeof(redisReadTask); /* the header */
    redisReader *reader = redisReaderCreateWithFunctions(NULL);
    const char *fault = NULL;
    if (!reader) {
        return NULL; /* without memory for it there is none for a connection either */
    }
    if ((memcmp((const unsigned char *)reader + end, zero, sizeof zero) == 0) != old) {
        fault = "hiredis' header and library differ in version (see RLOCK_HIREDIS_ASYNC)";
        *detail = old ? "header " RLOCK__HIREDIS_VERSION ", library 1.0 or later"
                      : "header " RLOCK__HIREDIS_VERSION ", library 0.14 or earlier";
    }
    redisReaderFree(reader);
    return fault;
}

/* True if a table of hooks is not whole. */
#if RLOCK__HAS_TLS
RLOCK__NOINLINE static bool rlock__tls_lacks(const rlock_tls *tls) {
    return tls && (!tls->start || !tls->before || !tls->why);
}
#endif

/* Has the client hide the passwords of a configuration. */
static int rlock__redis_hide(rlock_client *client, const rlock_config *config) {
    int status = rlock_client_hide(client, config->password);
    if (RLOCK__HAS_SENTINEL && status == RLOCK_OK) {
        status = rlock_client_hide(client, config->sentinel_password);
    }
    return status;
}

/* Returns what is wrong with settings of parts that may be left out, or NULL. */
static const char *rlock__optional_fault(const rlock_config *config) {
#if !RLOCK__HAS_REDISSON
    if (config->wire == RLOCK_WIRE_REDISSON) {
        return RLOCK__NEEDS("config.wire", "RLOCK_WITH_REDISSON");
    }
#endif
#if !RLOCK__HAS_SENTINEL && !RLOCK__HAS_CLUSTER
    if (config->map_address) {
        return RLOCK__NEEDS("config.map_address", "RLOCK_WITH_SENTINEL");
    }
#endif
    return rlock__description_fault(config);
}

/* Returns what is wrong with what Redis alone understands of a configuration, or NULL; *detail: the
 * text that is meant. */
static const char *rlock__redis_fault(const rlock_config *config, const char **detail) {
    const char *host = config->host, *fault = rlock__hiredis_fault(detail);
    if (fault) {
        return fault;
    }
    if (config->port < 0 || config->port > 65535 || config->database < 0) {
        return RLOCK__TEXT("config.port or config.database is out of range");
    }
    if (config->wire != RLOCK_WIRE_STRING && config->wire != RLOCK_WIRE_REDISSON) {
        return RLOCK__TEXT("config.wire is unknown");
    }
    if (rlock__optional_fault(config)) {
        return rlock__optional_fault(config);
    }
    if (strpbrk(config->prefix, "{}")) {
        return RLOCK__TEXT(
            "config.prefix has a brace, which would move keys to other cluster slots");
    }
    if (config->username && !config->password) {
        return RLOCK__TEXT("config.username requires config.password");
    }
#if RLOCK__HAS_TLS
    if (rlock__tls_lacks(config->tls) || rlock__tls_lacks(config->sentinel_tls)) {
        return RLOCK__TEXT("config.tls: a required hook is NULL");
    }
#else
    if (config->tls || config->sentinel_tls) {
        return RLOCK__NEEDS("config.tls", "RLOCK_WITH_TLS");
    }
#endif
#if !RLOCK__HAS_CLUSTER
    if (config->cluster) {
        return RLOCK__NEEDS("config.cluster", "RLOCK_WITH_CLUSTER");
    }
#endif
    if (rlock__sentinel_fault(config, detail)) {
        return rlock__sentinel_fault(config, detail);
    }
    if (config->unix_path && strstr(config->unix_path, "://")) {
        return RLOCK__TEXT("config.unix_path: expected a path; a URL goes into config.url");
    }
    if (host && !rlock__is_host(host, strlen(host))) {
        return RLOCK__TEXT(
            "config.host: expected a name or an address, without a line end; a URL goes into "
            "config.url");
    }
    *detail = config->unix_path;
    if (rlock__length(config->unix_path) > RLOCK__UNIX_PATH_MAX) {
        return RLOCK__TEXT("config.unix_path is too long for a Unix socket");
    }
    if (!host || config->connect || config->unix_path || config->sentinels ||
        rlock__numeric(host)) {
        return NULL;
    }
    *detail = host;
#if RLOCK__HAS_NAMES
    return config->loop.resolve
               ? NULL
               : "a host name needs loop.resolve or config.connect; use an address";
#else
    return "a host name needs RLOCK_WITH_NAMES; use an address";
#endif
}

/* Takes from the config what a connection needs. False: no memory. */
static bool rlock__redis_configure(rlock__redis *redis, const rlock_config *config) {
    const char *host = config->host ? config->host : "127.0.0.1";
    bool failed = false;
#if RLOCK__HAS_TLS
    redis->endpoint.tls = config->connect || config->unix_path ? NULL : config->tls;
#endif
    redis->endpoint.host = rlock__copy_text(config->sentinels ? NULL : host, &failed);
    redis->unix_path = rlock__copy_text(config->unix_path, &failed);
    redis->username = rlock__copy_text(config->username, &failed);
    redis->password = rlock__copy_text(config->password, &failed);
    redis->name = rlock__copy_text(config->client_name, &failed);
    redis->prefix = rlock__copy_text(config->prefix, &failed);
    redis->endpoint.port = config->port ? config->port : 6379;
    redis->database = config->database;
#if RLOCK__HAS_REDISSON
    redis->wire = config->wire;
#endif
    return !failed && rlock__description_configure(redis, config);
}

static int rlock__redis_open(const rlock_store *store, rlock_client *client,
                             const rlock_config *config, const rlock_store_events *events,
                             void *owner, void **state) {
    const char *detail = NULL, *fault = rlock__redis_fault(config, &detail);
    rlock__redis *redis;
    bool failed;
    int i;
    (void)store;
    if (fault) {
        rlock_client_log(client, RLOCK_LOG_ERROR, fault, detail);
        return RLOCK_ERR_ARG;
    }
    redis = (rlock__redis *)rlock__alloc(sizeof *redis);
    if (!redis || rlock__redis_hide(client, config) != RLOCK_OK) {
        rlock__dealloc(redis);
        return RLOCK_ERR_NOMEM;
    }
    redis->client = client;
    redis->events = events;
    redis->owner = owner;
    redis->stats = rlock_client_counters(client);
    redis->connect = config->connect;
    redis->user = config->connect_user ? config->connect_user : config->user;
    failed = !rlock__redis_configure(redis, config);
    redis->timeout_us = config->command_timeout_ms * 1000;
    redis->last_epoch = RLOCK__EPOCHS_MIXED - 1;
    redis->room = 256; /* enough for a handshake */
    redis->buffer = (char *)RLOCK_MALLOC(redis->room);
    rlock__list_init(&redis->spare);
    for (i = 0; i < RLOCK__QUEUES; i++) {
        rlock__list_init(&redis->queues[i]);
    }
    if (!redis->buffer || !rlock__conn_init(&redis->commands, redis, &redis->endpoint) ||
        !rlock__conn_init(&redis->push, redis, &redis->endpoint)) {
        failed = true;
    }
#if RLOCK__HAS_REPLICAS
    if (!rlock__quarantine_init(redis, config) || !rlock__sync_init(redis, config)) {
        failed = true;
    }
#endif
#if RLOCK__HAS_SENTINEL
    if (config->sentinels && !failed) {
        redis->sentinel = rlock__sentinel_new(config);
        failed = !redis->sentinel ||
                 !rlock__conn_init(&redis->sentinel->conn, redis, &redis->sentinel->endpoint);
    }
#endif
    if (failed) {
        rlock__redis_free(redis);
        return RLOCK_ERR_NOMEM;
    }
#if RLOCK__HAS_SENTINEL
    if (redis->sentinel) {
        rlock__sentinel_turn(redis->sentinel);
    }
#endif
    *state = redis;
    return RLOCK_OK;
}

static bool rlock__ends_with(const char *key, size_t len, const char *end) {
    size_t n = strlen(end);
    return len >= n && memcmp(key + len - n, end, n) == 0;
}

/* Whether a key is called as rlock__put_own_key calls one beside another, or has that other's line:
 * prefix{other}. */
static bool rlock__is_own_key(const char *prefix, const char *key, size_t len) {
    size_t head = strlen(prefix);
    bool named = len > head + 2 && memcmp(key, prefix, head) == 0 && key[head] == '{' &&
                 memchr(key, '}', len) == key + len - 1;
    return rlock__has_tag(key, len) &&
           (named || rlock__ends_with(key, len, ":queue") || rlock__ends_with(key, len, ":fence"));
}

/* Returns what cannot be done on this wire, with such a prefix, or NULL. */
static const char *rlock__wire_refuses(bool redisson, const char *prefix, const char *key,
                                       size_t len, const rlock_terms *terms, bool fencing) {
    bool queued = RLOCK__HAS_KINDS && terms && terms->kind != RLOCK_KIND_MUTEX;
    if (redisson && terms) {
        return RLOCK__TEXT(
            "the Redisson wire supports only a mutex with one key; use RLOCK_WIRE_STRING");
    }
    if ((fencing || queued) && memchr(key, '}', len) && !rlock__has_tag(key, len)) {
        return RLOCK__TEXT(
            "key contains '}' but no hash tag {...}: fencing and queued kinds need one");
    }
    if (queued && rlock__is_own_key(prefix, key, len)) {
        return RLOCK__TEXT(
            "the library uses a key of this name for another lock's queue or fence; rename it");
    }
    return NULL;
}

static const char *rlock__redis_refuses(void *state, const char *key, size_t len,
                                        const rlock_terms *terms, bool fencing) {
    const rlock__redis *redis = (const rlock__redis *)state;
#if RLOCK__HAS_REPLICAS
    const char *why =
        redis->quarantine ? rlock__marker_refuses(redis->prefix, false, key, len) : NULL;
    if (why) {
        return why;
    }
#endif
    return rlock__wire_refuses(rlock__is_redisson(redis), redis->prefix, key, len, terms, fencing);
}

static const rlock_store rlock__redis_store = {NULL,
                                               rlock__redis_open,
                                               rlock__redis_close,
                                               rlock__redis_submit,
                                               rlock__redis_forget,
                                               rlock__redis_track,
                                               rlock__redis_flush,
                                               rlock__redis_refuses,
                                               NULL,
                                               RLOCK_STORE_STAYS | RLOCK_STORE_ADOPTS,
                                               rlock__redis_set_credentials};

#endif /* RLOCK_STORE_REDIS_STORE_H */
