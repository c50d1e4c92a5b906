/* ------------------------------------------------------------------------------------------------
 * >>redis-resp - requests as RESP, replies as answers, errors as faults
 */

#ifndef RLOCK_STORE_REDIS_RESP_H
#define RLOCK_STORE_REDIS_RESP_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"
#include "base/foreign.h"
#include "runtime/token.h"
#include "store/redis/state.h"
#include "store/redis/scripts.h"

/* What error replies mean, by the whole words that they begin with, after an ERR if there is one.
 * A server sends each of these before it executes anything; of other errors that is not known. */
typedef struct rlock__error {
    const char *words; /* each with its NUL */
    rlock_fault fault;
} rlock__error;

enum { RLOCK__ERROR_MOVED, RLOCK__ERROR_ASTRAY }; /* rows: the address leads elsewhere */

static const rlock__error rlock__errors[] = {
    {"MOVED\0", RLOCK_FAULT_BUSY},
    {"READONLY\0"
     "MASTERDOWN\0",
     RLOCK_FAULT_BUSY},
    {"LOADING\0"
     "BUSY\0"
     "OOM\0"
     "MISCONF\0"
     "NOREPLICAS\0"
     "CLUSTERDOWN\0"
     "ASK\0"
     "TRYAGAIN\0"
     "max number of clients\0",
     RLOCK_FAULT_BUSY},
    {"NOAUTH\0"
     "WRONGPASS\0"
     "NOPERM\0"
     "DENIED\0"
     "invalid password\0"
     "AUTH\0"
     "Client sent AUTH\0"
     "The user executing the script\0" /* an ACL inside one, to Redis 7 */
     "ACL failure in script\0",        /* ... Redis 8, Valkey */
     RLOCK_FAULT_AUTH},
    {"WRONGTYPE\0", RLOCK_FAULT_TYPE},
    {"CROSSSLOT\0"
     "NOSCRIPT\0"
     "unknown command\0"
     "wrong number of arguments\0"
     "syntax error\0"
     "Error compiling script\0",
     RLOCK_FAULT_OTHER},
    {"", RLOCK_FAULT_OTHER}}; /* anything else */

#define RLOCK__SCRIPT_FAILED "ERR Error running script"
#define RLOCK__NO_TIME "ERR fences, queues and quarantine need TIME in scripts: " /* time.lua */

/* Before Redis 7 the words follow others about the script's failure, and the line of the script:
 * `ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: -OOM ...`. */
static const char *rlock__error_text(const char *text) {
    const char *at = text;
    if (strncmp(text, RLOCK__SCRIPT_FAILED, sizeof RLOCK__SCRIPT_FAILED - 1) == 0) {
        at = strstr(text, "): ") ? strstr(text, "): ") + 3 : text;
    } else if (strncmp(text, RLOCK__NO_TIME, sizeof RLOCK__NO_TIME - 1) == 0) {
        at = text + sizeof RLOCK__NO_TIME - 1;
    }
    while (at != text && strncmp(at, "@user_script:", 13) == 0 && strstr(at + 13, ": ")) {
        at = strstr(at + 13, ": ") + 2;
    }
    if (at != text && *at == '-') {
        at++;
    }
    return strncmp(at, "ERR ", 4) == 0 ? at + 4 : at;
}

static bool rlock__begins(const char *text, const char *words) {
    size_t len = strlen(words);
    char next = strncmp(text, words, len) == 0 ? text[len] : '_';
    return !len || !(next == '_' || rlock__alnum(next));
}

/* Returns the row for an error. Names of users and keys play no part: they stand further on. */
static const rlock__error *rlock__error_of(const char *text) {
    const rlock__error *error = rlock__errors;
    const char *words = rlock__error_text(text), *known = error->words;
    while (!rlock__begins(words, known)) {
        known += strlen(known) + 1;
        known = *known ? known : (++error)->words;
    }
    RLOCK_ASSERT((size_t)(error - rlock__errors) < sizeof rlock__errors / sizeof *rlock__errors);
    return error;
}

static rlock_fault rlock__classify(const char *text) {
    return rlock__error_of(text)->fault;
}

/* True if a node of a cluster says which other one to ask. */
static bool rlock__redirected(const char *text) {
    const char *words = rlock__error_text(text);
    return rlock__begins(words, "MOVED") || rlock__begins(words, "ASK");
}

static bool rlock__reserve(rlock__redis *redis, size_t room) {
    char *buffer = room > redis->room ? (char *)RLOCK_MALLOC(room) : NULL;
    RLOCK_ASSERT(redis->length <= redis->room);
    if (buffer) {
        memcpy(buffer, redis->buffer, redis->length);
        rlock__dealloc(redis->buffer);
        redis->buffer = buffer;
        redis->room = room;
    }
    return room <= redis->room;
}

/* Returns where so many bytes more go; NULL: there is no room for them, nor for what follows. */
static char *rlock__put_at(rlock__redis *redis, size_t len) {
    RLOCK_ASSERT(redis->overflow || redis->length < redis->room);
    if (redis->length + len >= redis->room && !redis->overflow) {
        redis->overflow = !rlock__reserve(redis, (redis->length + len) * 2);
    }
    return redis->overflow ? NULL : redis->buffer + redis->length;
}

static void rlock__put(rlock__redis *redis, const char *bytes, size_t len) {
    char *at = rlock__put_at(redis, len);
    if (at) {
        memcpy(at, bytes, len);
        redis->length += len;
        at[len] = 0; /* hiredis looks for '$' with strchr */
    }
}

/* Writes what begins an array or a text, and a NUL; returns how long that is: 23 bytes at most. */
static size_t rlock__head_text(char *at, char kind, size_t count) {
    size_t n = 1 + rlock__digits(at + 1, count);
    RLOCK_ASSERT(kind == '*' || kind == '$');
    at[0] = kind;
    memcpy(at + n, "\r\n", 3);
    return n + 2;
}

static void rlock__put_count(rlock__redis *redis, char kind, size_t count) {
    char *at = rlock__put_at(redis, 23);
    if (at) {
        redis->length += rlock__head_text(at, kind, count);
    }
}

RLOCK__NOINLINE static void rlock__put_command(rlock__redis *redis, size_t arguments) {
    RLOCK_ASSERT(arguments > 0);
    redis->length = 0;
    redis->overflow = false;
    rlock__put_count(redis, '*', arguments);
}

static void rlock__put_bytes(rlock__redis *redis, const char *bytes, size_t len) {
    char *at = rlock__put_at(redis, len + 26);
    if (at) {
        size_t n = rlock__head_text(at, '$', len);
        memcpy(at + n, bytes, len);
        memcpy(at + n + len, "\r\n", 3);
        redis->length += n + len + 2;
        RLOCK_ASSERT(redis->length < redis->room);
    }
}

static void rlock__put_text(rlock__redis *redis, const char *text) {
    rlock__put_bytes(redis, text, strlen(text));
}

/* What stands as it is sent. */
static void rlock__put_sent(rlock__redis *redis, const char *text) {
    rlock__put(redis, text, strlen(text));
}

/* A command that begins with these words; so many arguments follow. */
static void rlock__put_words(rlock__redis *redis, const char *words, size_t more) {
    const char *at;
    size_t len;
    for (at = words; *at; at++) {
        more += *at == ' ';
    }
    rlock__put_command(redis, 1 + more);
    for (at = words; *at; at += len + (at[len] == ' ')) {
        len = strcspn(at, " ");
        rlock__put_bytes(redis, at, len);
    }
}

static void rlock__put_number(rlock__redis *redis, uint64_t number) {
    char digits[20];
    rlock__put_bytes(redis, digits, rlock__digits(digits, number));
}

/* An argument made of a head, the key, in braces or not, and a tail. */
static void rlock__put_around(rlock__redis *redis, const char *head, bool braces, const char *key,
                              size_t len, const char *tail) {
    rlock__put_count(redis, '$', strlen(head) + len + 2u * braces + strlen(tail));
    rlock__put(redis, head, strlen(head));
    rlock__put(redis, "{", braces);
    rlock__put(redis, key, len);
    rlock__put(redis, "}", braces);
    rlock__put(redis, tail, strlen(tail));
    rlock__put(redis, "\r\n", 2);
}

#define RLOCK__CHANNEL_HEAD "redisson_lock__channel:"
#define RLOCK__INVALIDATE "__redis__:invalidate"

/* The channel of a key: Redisson puts the name into braces unless there is one in it. */
static void rlock__put_channel(rlock__redis *redis, const char *key, size_t len) {
    rlock__put_around(redis, RLOCK__CHANNEL_HEAD, !memchr(key, '{', len), key, len, "");
}

/* True if a key has a hash tag: then every key with the same one shares its cluster slot.
 * https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags */
static bool rlock__has_tag(const char *key, size_t len) {
    const char *open = (const char *)memchr(key, '{', len);
    const char *shut = open ? (const char *)memchr(open, '}', len - (size_t)(open - key)) : NULL;
    return shut && shut > open + 1;
}

/* A key of the library in the cluster slot of the user's: key:name, or prefix{key}:name. */
static void rlock__put_own_key(rlock__redis *redis, const char *key, size_t len,
                               const char *colon_name) {
    bool tagged = rlock__has_tag(key, len);
    rlock__put_around(redis, tagged ? "" : redis->prefix, !tagged, key, len, colon_name);
}

/* True if a key has a sharded channel too, of the same name: at a node of a cluster. */
static bool rlock__has_shards(const rlock__redis *redis) {
    return rlock__is_node(redis);
}

static void rlock__put_token(rlock__redis *redis, const rlock_request *request) {
    char text[RLOCK__TOKEN_MAX];
    const char *id = rlock__request_id(redis->client, request);
    rlock__put_bytes(redis, text, rlock__token(id, text, request->token));
}

/* Of a queued kind: the token, what it weighs and what it is. */
static void rlock__put_member(rlock__redis *redis, const char *id, uint64_t token, uint32_t weight,
                              char letter) {
    char text[RLOCK__TOKEN_MAX + 1 + 20 + 1];
    size_t n = rlock__token(id, text, token);
    RLOCK_ASSERT(letter && letter != 'm');
    text[n++] = ':';
    n += rlock__digits(text + n, weight);
    text[n++] = letter;
    rlock__put_bytes(redis, text, n);
}

static void rlock__put_member_or_none(rlock__redis *redis, uint64_t token, uint32_t weight,
                                      char letter) {
    if (token) {
        rlock__put_member(redis, rlock_client_id(redis->client), token, weight, letter);
    } else {
        rlock__put_text(redis, "");
    }
}

RLOCK__NOINLINE static uint8_t rlock__encoding(const rlock__redis *redis,
                                               const rlock_request *request) {
    unsigned flags = request->flags & ~RLOCK_REQUEST_ONCE;
    bool terms = RLOCK__HAS_KINDS && request->terms;
    bool more = flags || request->fences || terms || rlock__is_redisson(redis);
    bool plain = (request->op == RLOCK_OP_ACQUIRE && !more) ||
                 (request->op == RLOCK_OP_RELEASE && redis->native && !terms);
    bool forced = RLOCK__HAS_KINDS && request->op == RLOCK_OP_FORCE;
    if (forced) { /* else an acquire after it could overtake it, and would be taken away by it */
        return RLOCK__AS_EVAL;
    }
    return plain ? RLOCK__AS_PLAIN : RLOCK__AS_SCRIPT;
}

static void rlock__put_plain(rlock__redis *redis, const rlock_request *request) {
    bool acquire = request->op == RLOCK_OP_ACQUIRE;
    RLOCK_ASSERT(!RLOCK__HAS_KINDS || !request->terms);
    RLOCK_ASSERT(!acquire || request->lease_ms > 0);
    rlock__put_command(redis, acquire ? 6 : 3);
    rlock__put_sent(redis, acquire ? "$3\r\nSET\r\n" : "$7\r\nDELIFEQ\r\n");
    rlock__put_bytes(redis, request->key, request->key_len);
    rlock__put_token(redis, request);
    if (acquire) {
        rlock__put_sent(redis, "$2\r\nNX\r\n$2\r\nPX\r\n");
        rlock__put_number(redis, (uint64_t)request->lease_ms);
    }
}

static int rlock__row(const rlock__redis *redis, const rlock_request *request) {
#if RLOCK__HAS_KINDS
    if (request->terms) {
        return rlock__is_queued(request) ? RLOCK__ROW_QUEUE : RLOCK__ROW_KEYS;
    }
#endif
#if RLOCK__HAS_REDISSON
    if (rlock__is_redisson(redis)) {
        return RLOCK__ROW_REDISSON;
    }
#endif
    (void)redis;
    (void)request;
    return RLOCK__ROW_STRING;
}

RLOCK__NOINLINE static const char *rlock__script_of(const rlock__redis *redis,
                                                    const rlock_request *request) {
    RLOCK_ASSERT(request->op < sizeof rlock__scripts[0] / sizeof rlock__scripts[0][0]);
    return rlock__scripts[rlock__row(redis, request)][request->op];
}

/* A script in full or by its SHA-1, and how many keys follow. */
static void rlock__put_eval(rlock__redis *redis, const char *script, bool full, uint32_t keys) {
    RLOCK_ASSERT(script && keys);
    if (full) {
        rlock__put_text(redis, "EVAL");
        rlock__put_text(redis, script + RLOCK__SHA);
    } else {
        rlock__put_sent(redis, "$7\r\nEVALSHA\r\n"); /* many commands begin so */
        rlock__put_bytes(redis, script, RLOCK__SHA);
    }
    rlock__put_number(redis, keys);
}

/* The command, its script, and how many keys follow. */
static void rlock__put_head(rlock__redis *redis, const rlock_request *request, uint32_t keys,
                            uint32_t arguments) {
    bool full = request->store.own[RLOCK__ENCODING] == RLOCK__AS_EVAL ||
                request->store.own[RLOCK__ENCODING] == RLOCK__AS_FULL;
    rlock__put_command(redis, 3u + keys + arguments);
    rlock__put_eval(redis, rlock__script_of(redis, request), full, keys);
}

#define RLOCK__NO_CUT (UINT64_C(1) << 52) /* ms: no time to live is as long */

/* To what a renewal may cut a time to live. */
RLOCK__NOINLINE static void rlock__put_cut(rlock__redis *redis, const rlock_request *request) {
    rlock__put_number(redis, request->longest_ms ? (uint64_t)request->longest_ms : RLOCK__NO_CUT);
}

static void rlock__put_mutex(rlock__redis *redis, const rlock_request *request) {
    bool fence = request->op == RLOCK_OP_ACQUIRE && request->fences;
    bool question = RLOCK__HAS_KINDS && request->op >= RLOCK_OP_INSPECT;
    bool lease = request->op == RLOCK_OP_ACQUIRE || request->op == RLOCK_OP_RENEW;
    bool channel = !lease && request->op != RLOCK_OP_INSPECT && rlock__is_redisson(redis);
    bool sharded = channel && rlock__has_shards(redis);
    bool renew = request->op == RLOCK_OP_RENEW;
    uint32_t keys = rlock__request_keys(request), arguments = 0, i;
    const char *key;
    size_t len;
    RLOCK_ASSERT(!(renew && sharded) && !rlock__is_queued(request));
    if (!question) { /* they are put below, in this order */
        arguments++;
    }
    if (lease || channel) {
        arguments++;
    }
    if (renew || sharded) { /* never both */
        arguments++;
    }
    if (fence) {
        keys *= 2;
        arguments++;
    }
    rlock__put_head(redis, request, keys, arguments);
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        rlock__put_bytes(redis, key, len);
    }
    for (i = 0; fence && rlock__request_key(request, i, &key, &len); i++) {
        rlock__put_own_key(redis, key, len, ":fence");
    }
    if (!question) {
        rlock__put_token(redis, request);
    }
    if (lease) {
        rlock__put_number(redis, (uint64_t)request->lease_ms);
        if (renew) {
            rlock__put_cut(redis, request);
        }
    } else if (channel) {
        rlock__put_channel(redis, request->key, request->key_len);
    }
    if (sharded) {
        rlock__put_text(redis, "1");
    }
    if (fence) {
        rlock__put_number(redis, request->fences);
    }
}

static void rlock__put_queued(rlock__redis *redis, const rlock_request *request) {
    static const uint8_t arguments[] = {9, 7, 6, 5, 5, 6}; /* [rlock_op] */
    const rlock_terms *terms = request->terms;
    bool acquire = request->op == RLOCK_OP_ACQUIRE, fence = acquire && request->fences;
    bool whose = request->op < RLOCK_OP_FORCE;
    char letter = rlock__letter(request);
    RLOCK_ASSERT(request->op < sizeof arguments);
    RLOCK_ASSERT(terms->weight && terms->permits);
    rlock__put_head(redis, request, fence ? 3 : 2, arguments[request->op]);
    rlock__put_bytes(redis, request->key, request->key_len);
    rlock__put_own_key(redis, request->key, request->key_len, ":queue");
    if (fence) {
        rlock__put_own_key(redis, request->key, request->key_len, ":fence");
    }
    rlock__put_number(redis, request->op);
    rlock__put_member(redis, rlock__request_id(redis->client, request), whose ? request->token : 0,
                      terms->weight, letter);
    rlock__put_number(redis, terms->permits);
    rlock__put_number(redis, (uint64_t)redis->timeout_us / 1000);
    rlock__put_text(redis, redis->prefix);
    if (request->op == RLOCK_OP_SET_PERMITS) {
        rlock__put_number(redis, request->permits);
    } else if (request->op == RLOCK_OP_RELEASE) {
        rlock__put_member_or_none(redis, request->next, terms->weight, letter);
    } else if (acquire || request->op == RLOCK_OP_RENEW) {
        rlock__put_number(redis, (uint64_t)request->lease_ms);
    }
    if (request->op == RLOCK_OP_RENEW) {
        rlock__put_cut(redis, request);
    }
    if (acquire) {
        const char *heard = redis->notify == RLOCK__NOTIFY_ON ? "1" : "1.5";
        rlock__put_text(redis, request->flags & RLOCK_REQUEST_ONCE ? "0" : heard);
        rlock__put_member_or_none(redis, request->writer, terms->permits, letter);
        rlock__put_number(redis, request->fences);
    }
}

static void rlock__put_request(rlock__redis *redis, rlock_request *request) {
    RLOCK_ASSERT(request->key_len);
    if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_BEST) {
        request->store.own[RLOCK__ENCODING] = rlock__encoding(redis, request);
    }
    if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN) {
        rlock__put_plain(redis, request);
    } else if (rlock__is_queued(request)) {
        rlock__put_queued(redis, request);
    } else {
        rlock__put_mutex(redis, request);
    }
}

static void rlock__put_batch(rlock__redis *redis, const rlock__command *command) {
    char head[RLOCK__TOKEN_MAX];
    uint32_t i;
    RLOCK_ASSERT(command->count > 1 && command->count <= RLOCK__BATCH);
    RLOCK_ASSERT(command->op == RLOCK_OP_RENEW);
    rlock__put_command(redis, 6u + 2u * command->count);
    rlock__put_eval(redis, rlock__lua_string_renew_many, command->encoding == RLOCK__AS_EVAL,
                    command->count);
    for (i = 0; i < command->count; i++) {
        rlock__put_bytes(redis, command->requests[i]->key, command->requests[i]->key_len);
    }
    rlock__token(rlock_client_id(redis->client), head, 0);
    rlock__put_bytes(redis, head, RLOCK__TOKEN_HEAD);
    rlock__put_number(redis, (uint64_t)command->requests[0]->lease_ms);
    rlock__put_cut(redis, command->requests[0]);
    for (i = 0; i < command->count; i++) {
        rlock__put_number(redis, command->requests[i]->token);
    }
}

static bool rlock__parse_fence(const char *text, size_t len, uint64_t *fence) {
    size_t i;
    *fence = 0;
    for (i = 0; i < len; i++) {
        unsigned digit = (unsigned)(unsigned char)text[i] - '0';
        if (digit > 9 || i > 18) {
            return false;
        }
        *fence = *fence * 10 + digit;
    }
    return len > 0;
}

/* Five numbers, a token: see string_inspect.lua. */
static bool rlock__parse_info(const redisReply *reply, rlock_info *info) {
    int64_t *numbers[5];
    const char *at = reply->str;
    int i;
    numbers[0] = &info->holders;
    numbers[1] = &info->left_ms;
    numbers[2] = &info->waiters;
    numbers[3] = &info->permits;
    numbers[4] = &info->position;
    for (i = 0; i < 5; i++) {
        char *end;
        *numbers[i] = strtoll(at, &end, 10);
        if (end == at || *end != ' ' || *numbers[i] < -1) {
            return false;
        }
        at = end + 1;
    }
    info->token_len = (size_t)reply->len - (size_t)(at - reply->str);
    info->token = info->token_len ? at : NULL;
    return true;
}

/* True if these words end with `, on @user_script:1.`; any name may stand before that. */
static bool rlock__ends_in_script(const char *text) {
    static const char place[] = ", on @user_script:";
    size_t len = sizeof place - 1, n = strlen(text);
    n -= n && text[n - 1] == '.';
    while (n && text[n - 1] >= '0' && text[n - 1] <= '9') {
        n--;
    }
    return n >= len && memcmp(text + n - len, place, len) == 0;
}

/* True if an error says that nothing was done for an acquire. The scripts of the mutex write the
 * lock last; that of the queued kinds may have added a waiter, or made an offer, before. */
static bool rlock__undone(const rlock_request *request, const char *text) {
    bool inside = rlock__ends_in_script(text) || /* from Redis 7 on, or before it */
                  strncmp(text, RLOCK__SCRIPT_FAILED, sizeof RLOCK__SCRIPT_FAILED - 1) == 0;
    if (strncmp(text, RLOCK__NO_TIME, sizeof RLOCK__NO_TIME - 1) == 0) {
        return true; /* nothing is written before */
    }
    return inside ? !rlock__is_queued(request) : *rlock__error_of(text)->words != 0;
}

static void rlock__parse_question(const rlock_request *request, const redisReply *reply,
                                  rlock_answer *answer, rlock_info *info) {
    bool inspect = request->op == RLOCK_OP_INSPECT;
    memset(info, 0, sizeof *info);
    info->position = -1;
    if (reply->type == REDIS_REPLY_STRING && inspect && rlock__parse_info(reply, info)) {
        answer->outcome = RLOCK_OUTCOME_DONE;
    } else if (reply->type == REDIS_REPLY_INTEGER && !inspect && reply->integer >= 0) {
        info->holders = reply->integer;
        answer->outcome = RLOCK_OUTCOME_DONE;
    }
    answer->info = info;
}

/* Everything but the exact expected reply is a fault. What went out in a batch expects none here:
 * its way stays open, and a number is the answer to something else. */
static void rlock__parse(const rlock_request *request, const redisReply *reply,
                         rlock_answer *answer, rlock_info *info) {
    bool acquire = request->op == RLOCK_OP_ACQUIRE;
    bool fenced = request->fences != 0;
    answer->outcome = RLOCK_OUTCOME_FAULT;
    answer->fault = RLOCK_FAULT_OTHER;
    answer->text = "unexpected reply";
    if (reply->type == REDIS_REPLY_ERROR) {
        answer->fault = rlock__classify(reply->str);
        answer->undone = rlock__undone(request, reply->str);
        answer->text = reply->str;
    } else if (RLOCK__HAS_KINDS && request->op >= RLOCK_OP_INSPECT) {
        rlock__parse_question(request, reply, answer, info);
    } else if (acquire && request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN) {
        if (reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0) {
            answer->outcome = RLOCK_OUTCOME_DONE;
        }
    } else if (acquire && reply->type == REDIS_REPLY_STRING) {
        answer->ours = rlock__is_queued(request) && reply->len && reply->str[reply->len - 1] == '+';
        if (rlock__parse_fence(reply->str, (size_t)reply->len - answer->ours, &answer->fence) &&
            fenced == (answer->fence != 0)) {
            answer->outcome = RLOCK_OUTCOME_DONE;
        }
    } else if (reply->type == REDIS_REPLY_INTEGER && acquire) {
        if (reply->integer >= -1 && reply->integer <= INT64_MAX / 2000) {
            answer->outcome = RLOCK_OUTCOME_HELD;
            answer->left_ms = reply->integer;
        }
    } else if (reply->type == REDIS_REPLY_INTEGER &&
               request->store.own[RLOCK__ENCODING] != RLOCK__AS_BEST && reply->integer >= -1 &&
               reply->integer <= 1) {
        answer->outcome = reply->integer == 1   ? RLOCK_OUTCOME_DONE
                          : reply->integer == 0 ? RLOCK_OUTCOME_STOLEN
                                                : RLOCK_OUTCOME_GONE;
    }
    if (answer->outcome != RLOCK_OUTCOME_FAULT) {
        answer->text = NULL;
    }
}

#endif /* RLOCK_STORE_REDIS_RESP_H */
