/* ------------------------------------------------------------------------------------------------
 * >>redis-wait - a grant or a renewal counts when enough replicas have it: config.replicas
 *
 * One WAIT follows the acquires and renewals of a flush. What they were answered is kept until the
 * WAIT is answered: replies come in the order of the commands, so that answer is about all of them.
 * If too few replicas have it, a grant is given back before it is answered as refused for now. A
 * renewal is answered so at once: the hold has the deadline that it had.
 *
 * The server runs nothing else of a client while a WAIT of it is out, so a second one would only
 * stand behind the first. One is out at a time; what was sent meanwhile is covered by the next.
 */

#ifndef RLOCK_STORE_REDIS_WAIT_H
#define RLOCK_STORE_REDIS_WAIT_H

#include "public/head.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "base/list.h"
#include "store/redis/state.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"

static void rlock__answer_now(rlock__redis *redis, rlock_request *request, rlock_answer *answer) {
    RLOCK_ASSERT(request->store.stage == RLOCK__FLYING);
    RLOCK_ASSERT(!redis->closing);
    answer->settled = !request->store.note || request->store.note == redis->epoch ||
                      rlock__epoch_gone(redis, request->store.note);
    if (answer->settled && (answer->outcome != RLOCK_OUTCOME_FAULT || !redis->commands.failing)) {
        request->store.note = 0; /* also if it was refused: this attempt is over */
    }
    redis->events->answered(redis->owner, request, answer);
}

static void rlock__answer_fault(rlock__redis *redis, rlock_request *request, rlock_fault fault,
                                const char *text) {
    rlock_answer answer;
    RLOCK_ASSERT(!redis->closing);
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_FAULT;
    answer.fault = fault;
    answer.text = text;
    redis->events->answered(redis->owner, request, &answer);
}

/* Why the connection ended, or NULL. */
static const char *rlock__lost_text(const rlock__redis *redis) {
    return redis->commands.text[0] ? redis->commands.text : NULL;
}

/* Answers that the connection ended, or the server's words did not say what was done. */
static void rlock__answer_unknown(rlock__redis *redis, rlock_request *request) {
    rlock__answer_fault(redis, request, RLOCK_FAULT_UNKNOWN, rlock__lost_text(redis));
}

#if RLOCK__HAS_REPLICAS

/* True if a success of the request counts only when replicas have it. */
static bool rlock__syncs(const rlock__redis *redis, const rlock_request *request) {
    return redis->sync && (request->op == RLOCK_OP_ACQUIRE ||
                           (request->op == RLOCK_OP_RENEW && request->lease_ms));
}

/* Answers a request, at once or when replicas have what was done for it. Those of a command that
 * are kept move to its head: those before have been answered. */
static void rlock__answer(rlock__redis *redis, rlock_request *request, rlock_answer *answer) {
    rlock__command *command = (rlock__command *)request->store.data;
    RLOCK_ASSERT(command && command->redis == redis);
    if (answer->outcome != RLOCK_OUTCOME_DONE || !rlock__syncs(redis, request)) {
        rlock__answer_now(redis, request, answer);
        return;
    }
    RLOCK_ASSERT(command->kept < command->count);
    command->requests[command->kept++] = request;
    command->fence = answer->fence; /* of an acquire, which is alone in its command */
    command->ours = answer->ours;
}

/* Puts a command away whose reply was read. */
static void rlock__command_done(rlock__redis *redis, rlock__command *command) {
    RLOCK_ASSERT(command->kept <= command->count);
    if (command->kept) {
        command->count = command->kept;
        rlock__list_append(&redis->sync->kept, &command->link);
    } else { /* first: few get room for a batch */
        rlock__list_append(redis->spare.next, &command->link);
    }
}

/* What was granted and not copied is surely gone, or may still be there. If the release of it was
 * not answered, a server may execute it late: at any time, wherever the client is by then. So that
 * token is spent. */
static void rlock__on_given_back(redisAsyncContext *ac, void *raw, void *data) {
    rlock__command *command = (rlock__command *)data;
    rlock__redis *redis = command->redis;
    rlock_request *request = command->requests[0];
    const redisReply *reply = (const redisReply *)raw;
    bool answers = request && !redis->closing;
    bool back = reply && reply->type == REDIS_REPLY_INTEGER;
    rlock_answer answer;
    RLOCK_ASSERT(command->count && redis->sync);
    (void)ac;
    if (reply) {
        rlock__conn_answered(&redis->commands);
    }
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_FAULT;
    if (answers && back) {
        answer.fault = RLOCK_FAULT_BUSY;
        answer.text = redis->sync->words;
        rlock__answer_now(redis, request, &answer); /* this attempt is over */
    } else if (answers) {
        answer.fault = RLOCK_FAULT_UNKNOWN;
        answer.text = reply ? reply->str : rlock__lost_text(redis);
        answer.spent = !reply;
        redis->events->answered(redis->owner, request, &answer);
    }
    command->kept = 0;
    rlock__command_done(redis, command);
}

/* Gives back what a command was granted, in the way it was asked for. False: it cannot be sent. */
static bool rlock__give_back(rlock__redis *redis, rlock__command *command) {
    rlock_request back = *command->requests[0];
    RLOCK_ASSERT(command->requests[0]->op == RLOCK_OP_ACQUIRE);
    back.op = RLOCK_OP_RELEASE;
    back.flags = 0;
    back.fences = 0;
    back.next = 0;
    back.store.own[RLOCK__ENCODING] = RLOCK__AS_EVAL;
    if (!rlock__command_asks(redis, command)) {
        return false;
    }
    rlock__put_request(redis, &back);
    return rlock__command_send(redis, command, rlock__on_given_back);
}

/* Notes what a WAIT was answered. True: enough replicas have what was written. */
static bool rlock__sync_told(rlock__redis *redis, const redisReply *reply) {
    rlock__sync *sync = redis->sync;
    bool counted = reply->type == REDIS_REPLY_INTEGER;
    char number[21];
    size_t n;
    RLOCK_ASSERT(sync->replicas > 0);
    if (counted) {
        number[rlock__digits(number, (uint64_t)(reply->integer < 0 ? 0 : reply->integer))] = 0;
        n = rlock__line_add(sync->words, 0, "WAIT: too few replicas confirmed the write: ", number);
        number[rlock__digits(number, (uint64_t)sync->replicas)] = 0;
        rlock__line_add(sync->words, n, " of ", number);
    } else {
        rlock__line_add(sync->words, 0, "WAIT is refused: ", reply->str);
    }
    if (!counted && !sync->refused) {
        rlock__conn_log(&redis->commands, RLOCK_LOG_WARNING, sync->words, NULL);
    }
    sync->refused = !counted;
    return counted && reply->integer >= sync->replicas;
}

/* Answers what was kept for one command. */
static void rlock__sync_settle(rlock__redis *redis, rlock__command *command, bool heard,
                               bool synced) {
    bool back = false;
    uint32_t i;
    RLOCK_ASSERT(command->count && command->kept == command->count);
    for (i = 0; i < command->count; i++) {
        rlock_request *request = command->requests[i];
        rlock_answer answer;
        if (request && synced) {
            memset(&answer, 0, sizeof answer);
            answer.fence = command->fence;
            answer.ours = command->ours;
            rlock__answer_now(redis, request, &answer);
        } else if (request && heard && request->op == RLOCK_OP_RENEW) {
            rlock__answer_fault(redis, request, RLOCK_FAULT_BUSY, redis->sync->words);
        } else if (request && heard && rlock__give_back(redis, command)) {
            back = true;
        } else if (request) {
            rlock__answer_unknown(redis, request);
        }
    }
    command->kept = 0;
    if (!back) {
        rlock__command_done(redis, command);
    }
}

/* Answers all that was kept. */
static void rlock__sync_end(rlock__redis *redis, bool heard, bool synced) {
    while (!rlock__list_empty(&redis->sync->kept)) {
        rlock__command *command = RLOCK__OF(redis->sync->kept.next, rlock__command, link);
        rlock__list_remove(&command->link);
        rlock__sync_settle(redis, command, heard, synced);
    }
}

static void rlock__on_synced(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    bool heard = reply && (reply->type == REDIS_REPLY_INTEGER || reply->type == REDIS_REPLY_ERROR);
    rlock__redis *redis;
    bool synced;
    (void)data;
    if (!conn) {
        return; /* rlock__redis_free finds what was kept */
    }
    redis = conn->redis;
    RLOCK_ASSERT(redis->sync->out);
    redis->sync->out = false;
    if (reply) {
        rlock__conn_answered(conn);
    }
    if (reply && !heard) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
    }
    synced = heard && rlock__sync_told(redis, reply);
    rlock__sync_end(redis, heard, synced);
}

/* After the last command of a flush: asks whether replicas have what was sent since the last time,
 * unless one is out. The first waits until the push connection is there, or failed. */
static void rlock__sync_ask(rlock__redis *redis) {
    rlock__sync *sync = redis->sync;
    if (sync->wanted && !sync->out && !sync->opens) {
        RLOCK_ASSERT(sync->replicas > 0 && sync->ms > 0);
        sync->wanted = false;
        rlock__put_words(redis, "WAIT", 2);
        rlock__put_number(redis, (uint64_t)sync->replicas);
        rlock__put_number(redis, (uint64_t)sync->ms);
        sync->out = rlock__conn_say(&redis->commands, rlock__on_synced, NULL);
    }
}

/* False: there is no memory. */
static bool rlock__sync_init(rlock__redis *redis, const rlock_config *config) {
    if (!config->replicas) {
        return true;
    }
    redis->sync = (rlock__sync *)rlock__alloc(sizeof *redis->sync);
    if (!redis->sync) {
        return false;
    }
    rlock__list_init(&redis->sync->kept);
    redis->sync->replicas = config->replicas;
    redis->sync->ms = config->replicas_ms;
    redis->sync->opens = true;
    return true;
}

static void rlock__sync_free(rlock__redis *redis) {
    if (redis->sync) {
        rlock__list_move(&redis->spare, &redis->sync->kept);
        rlock__dealloc(redis->sync);
    }
}

#else

static void rlock__answer(rlock__redis *redis, rlock_request *request, rlock_answer *answer) {
    rlock__answer_now(redis, request, answer);
}

static void rlock__command_done(rlock__redis *redis, rlock__command *command) {
    rlock__list_append(redis->spare.next, &command->link);
}

#endif /* RLOCK__HAS_REPLICAS */

/* Closes the command connection, which is failing: nobody is asked any more about what was sent on
 * it. */
static void rlock__commands_failed(rlock__redis *redis) {
    RLOCK_ASSERT(redis->commands.failing);
#if RLOCK__HAS_REPLICAS
    if (redis->sync) {
        redis->sync->wanted = false;
        rlock__sync_end(redis, false, false);
    }
#endif
    rlock__conn_closed(&redis->commands);
}

#endif /* RLOCK_STORE_REDIS_WAIT_H */
