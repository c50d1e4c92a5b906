/* ------------------------------------------------------------------------------------------------
 * >>redis-who - what a client says of itself, in the names of its connections
 *
 * A connection is named rlock:ID:TEXT, where ID is that of the client, which begins its tokens, and
 * TEXT its description with %XX for what a name may not have. A question for descriptions goes out
 * as three commands on one connection: CLIENT LIST, a script that lists the tokens, the question
 * itself, whose answer ends it. What the first two answered is kept until then.
 */

#ifndef RLOCK_STORE_REDIS_WHO_H
#define RLOCK_STORE_REDIS_WHO_H

#include "public/head.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "base/foreign.h"
#include "runtime/token.h"
#include "runtime/who.h"
#include "store/redis/state.h"
#include "store/redis/scripts.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"

#if RLOCK__HAS_DESCRIPTIONS

#define RLOCK__NAME_HEAD "rlock:"
#define RLOCK__DESCRIPTION_MAX 128u

/* Returns what is wrong with the description of a configuration, or NULL. */
static const char *rlock__description_fault(const rlock_config *config) {
    const char *at = config->description;
    size_t left = rlock__length(at);
    bool good = left > 0 && left <= RLOCK__DESCRIPTION_MAX;
    if (!at) {
        return NULL;
    }
    if (config->client_name) {
        return RLOCK__TEXT("config.description cannot be combined with config.client_name: a "
                           "connection has one name");
    }
    while (good && left > 0) {
        uint32_t code;
        size_t size = rlock__utf8(at, left, &code);
        good = size && rlock__is_plain(code);
        at += size;
        left -= size;
    }
    return good ? NULL
                : RLOCK__TEXT("config.description: expected 1 to 128 bytes of UTF-8, without "
                              "control characters");
}

/* Returns the name of the connections of a client; NULL: no memory. */
static char *rlock__description_name(const rlock_client *client, const char *text) {
    static const char head[] = RLOCK__NAME_HEAD;
    char *name = (char *)RLOCK_MALLOC(sizeof head + RLOCK__TOKEN_HEAD + 3 * strlen(text)),
         *at = name;
    if (!name) {
        return NULL;
    }
    at += strlen(strcpy(at, head));
    at += strlen(strcpy(at, rlock_client_id(client)));
    *at++ = ':';
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte > ' ' && byte < 127 && byte != '%') {
            *at++ = *text;
            continue;
        }
        *at++ = '%';
        rlock__hex(at, text, 1);
        at += 2;
    }
    *at = 0;
    return name;
}

/* Puts the name of the connections of a client into its place. False: no memory. */
static bool rlock__description_configure(rlock__redis *redis, const rlock_config *config) {
    if (config->description) {
        redis->name = rlock__description_name(redis->client, config->description);
    }
    return !config->description || redis->name;
}

#else

static const char *rlock__description_fault(const rlock_config *config) {
    return config->description ? RLOCK__NEEDS("config.description", "RLOCK_WITH_DESCRIPTIONS")
                               : NULL;
}

#define rlock__description_configure(redis, config) true

#endif /* RLOCK__HAS_DESCRIPTIONS */

#if RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_KINDS

/* What a question has been answered up to now. */
struct rlock__told {
    char *names;  /* those of clients that describe themselves, each with its NUL, then one more */
    char *tokens; /* what the script said */
    size_t tokens_len;
    char *refusal;  /* why there are no names, or no tokens; NULL: there are */
    rlock_who *who; /* the list, while it is answered */
};

static void rlock__told_forget(rlock__redis *redis) {
    struct rlock__told *told = redis->told;
    if (told) {
        rlock__dealloc(told->names);
        rlock__dealloc(told->tokens);
        rlock__dealloc(told->refusal);
        rlock__dealloc(told->who);
        memset(told, 0, sizeof *told);
    }
}

static void rlock__told_free(rlock__redis *redis) {
    rlock__told_forget(redis);
    rlock__dealloc(redis->told);
}

static void rlock__told_refused(struct rlock__told *told, const redisReply *reply) {
    if (!told->refusal) {
        told->refusal = rlock__copy(reply->str, (size_t)reply->len);
    }
}

/* Copies the text of a name with each %XX decoded, but for a NUL. Returns where that ends. */
static char *rlock__name_decode(char *to, const char *text, size_t len) {
    const char *end = text + len;
    while (text < end) {
        char hex[3] = "";
        *to = *text++;
        if (*to == '%' && end - text >= 2) {
            memcpy(hex, text, 2);
            if (strspn(hex, "0123456789abcdefABCDEF") == 2 && strtol(hex, NULL, 16) > 0) {
                *to = (char)strtol(hex, NULL, 16);
                text += 2;
            }
        }
        to++;
    }
    return to;
}

/* Keeps the names that describe a client, out of the lines of CLIENT LIST. NULL: no memory. */
static char *rlock__names_kept(const char *list) {
    static const char field[] = " name=" RLOCK__NAME_HEAD;
    char *names = (char *)RLOCK_MALLOC(strlen(list) + 2), *to = names;
    const char *at = list;
    while (names && (at = strstr(at, field)) != NULL) {
        size_t len;
        at += sizeof field - 1;
        len = strcspn(at, " \n");
        if (len > RLOCK__TOKEN_HEAD) {
            to = rlock__name_decode(to, at, len);
            *to++ = 0;
        }
    }
    if (names) {
        *to = 0;
    }
    return names;
}

/* True if the answer is one to a question that waits for it: a text, or an error. */
static bool rlock__told_hears(rlock__conn *conn, const redisReply *reply) {
    if (!conn || !reply) {
        return false;
    }
    rlock__conn_answered(conn);
    if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return false;
    }
    return true;
}

static void rlock__on_names(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    (void)data;
    if (!rlock__told_hears(conn, reply)) {
        return;
    }
    rlock__told_forget(conn->redis);
    if (reply->type == REDIS_REPLY_ERROR) {
        rlock__told_refused(conn->redis->told, reply);
    } else {
        conn->redis->told->names = rlock__names_kept(reply->str);
    }
}

static void rlock__on_tokens(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    struct rlock__told *told;
    (void)data;
    if (!rlock__told_hears(conn, reply)) {
        return;
    }
    told = conn->redis->told;
    if (reply->type == REDIS_REPLY_ERROR) {
        rlock__told_refused(told, reply);
    } else {
        RLOCK_ASSERT(!told->tokens); /* the names before them began anew */
        told->tokens = rlock__copy(reply->str, (size_t)reply->len);
        told->tokens_len = (size_t)reply->len;
    }
}

/* Sends what a command needs before it: ASKING, and what a question for descriptions asks first.
 * False: it is not sent. */
static bool rlock__command_leads(rlock__redis *redis, const rlock__command *command) {
    const rlock_request *request = command->requests[0];
    bool queued;
    if (!(request->flags & RLOCK_REQUEST_DESCRIBE)) {
        return rlock__command_asks(redis, command);
    }
    RLOCK_ASSERT(request->op == RLOCK_OP_INSPECT && command->count == 1);
    if (!redis->told) {
        redis->told = (struct rlock__told *)rlock__alloc(sizeof *redis->told);
    }
    if (!redis->told) {
        return false;
    }
    rlock__put_words(redis, "CLIENT LIST TYPE normal", 0);
    if (!rlock__conn_say(&redis->commands, rlock__on_names, NULL) ||
        !rlock__command_asks(redis, command)) {
        return false;
    }
    queued = rlock__is_queued(request);
    rlock__put_command(redis, queued ? 5 : 4);
    rlock__put_eval(redis, rlock__lua_who, true, queued ? 2 : 1);
    rlock__put_bytes(redis, request->key, request->key_len);
    if (queued) {
        rlock__put_own_key(redis, request->key, request->key_len, ":queue");
    }
    return rlock__conn_say(&redis->commands, rlock__on_tokens, NULL) &&
           rlock__command_asks(redis, command);
}

/* Returns what the client of a token says of itself, or NULL. */
static const char *rlock__told_of(const char *names, const char *token, size_t len) {
    size_t head = RLOCK__TOKEN_HEAD;
    const char *at = len > head && token[head - 1] == ':' ? names : NULL;
    for (; at && *at; at += strlen(at) + 1) {
        if (strlen(at) > head && memcmp(at, token, head) == 0) {
            return at + head;
        }
    }
    return NULL;
}

/* Reads the next holder or waiter that the script told of: see who.lua. False: there is none. */
static bool rlock__who_next(const char **at, const char *end, rlock_who *who) {
    const char *text = *at;
    char *rest;
    if (end - text < 6 || text[1] != ' ') {
        return false;
    }
    who->waits = text[0] == 'w';
    who->left_ms = strtoll(text + 2, &rest, 10);
    who->token_len = strtoul(rest, &rest, 10);
    if (*rest != ' ' || who->token_len > (size_t)(end - rest - 1)) {
        return false;
    }
    who->token = rest + 1;
    *at = rest + 1 + who->token_len;
    return true;
}

/* Puts the list into an answer that has one to a question for descriptions. */
static void rlock__who_fill(rlock__redis *redis, const rlock_request *request, rlock_info *info) {
    struct rlock__told *told = redis->told;
    const char *at, *end;
    rlock_who *who;
    if (!(request->flags & RLOCK_REQUEST_DESCRIBE)) {
        return;
    }
    RLOCK_ASSERT(told && !told->who);
    info->untold = told->refusal;
    who = told->tokens ? (rlock_who *)rlock__alloc(RLOCK__WHO_MAX * sizeof *who) : NULL;
    if (!who) {
        return;
    }
    at = told->tokens;
    end = at + told->tokens_len;
    while (info->who_count < RLOCK__WHO_MAX && rlock__who_next(&at, end, &who[info->who_count])) {
        rlock_who *one = &who[info->who_count++];
        one->description = rlock__told_of(told->names, one->token, one->token_len);
    }
    info->who = told->who = who;
}

#else

#define rlock__command_leads rlock__command_asks
#define rlock__told_forget(redis) ((void)(redis))
#define rlock__told_free(redis) ((void)(redis))
#define rlock__who_fill(redis, request, info) ((void)(info))

#endif /* RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_KINDS */

#endif /* RLOCK_STORE_REDIS_WHO_H */
