/* ------------------------------------------------------------------------------------------------
 * >>token - how a token is written, the letter of its kind, and the keys of a request
 */

#ifndef RLOCK_RUNTIME_TOKEN_H
#define RLOCK_RUNTIME_TOKEN_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"
#include "runtime/client.h"

#define RLOCK__TOKEN_HEAD 37u /* bytes that all tokens of a client share: its id and a colon */
#define RLOCK__TOKEN_MAX (RLOCK__TOKEN_HEAD + 20) /* with the number after it */

/* A token as others see it, without a NUL; returns its length. `id` is its client's. */
RLOCK__NOINLINE static size_t rlock__token(const char *id, char *text, uint64_t number) {
    memcpy(text, id, RLOCK__TOKEN_HEAD - 1);
    text[RLOCK__TOKEN_HEAD - 1] = ':';
    return RLOCK__TOKEN_HEAD + rlock__digits(text + RLOCK__TOKEN_HEAD, number);
}

/* Returns the id of the client whose token a request is about. */
static const char *rlock__request_id(const rlock_client *client, const rlock_request *request) {
    RLOCK_ASSERT(!request->id || request->op == RLOCK_OP_RENEW || request->op == RLOCK_OP_RELEASE);
    return RLOCK__HAS_TOKENS && request->id ? request->id : client->id;
}

/* True if the request is of a queued kind. */
static bool rlock__is_queued(const rlock_request *request) {
    return RLOCK__HAS_KINDS && request->terms && request->terms->kind != RLOCK_KIND_MUTEX;
}

static uint32_t rlock__request_keys(const rlock_request *request) {
    return RLOCK__HAS_KINDS && request->terms ? request->terms->count : 1;
}

/* The i-th key of a request, where *key is the one before it; false: there is none. */
static bool rlock__request_key(const rlock_request *request, uint32_t i, const char **key,
                               size_t *len) {
    const uint32_t *lens = RLOCK__HAS_KINDS && request->terms ? request->terms->lens : NULL;
    RLOCK_ASSERT(i <= rlock__request_keys(request));
    *key = i && lens ? *key + *len + 1 : request->key;
    *len = lens && i < request->terms->count ? lens[i] : request->key_len;
    return i < rlock__request_keys(request);
}

/* Returns the letter of a kind. The kinds that belong together on one key, and share its queue,
 * have the same letter; a request with another one is of the wrong type there. */
static char rlock__letter_of(rlock_kind kind) {
    RLOCK_ASSERT((unsigned)kind <= RLOCK_KIND_SEMAPHORE);
    return "mfwws"[kind]; /* [rlock_kind] */
}

static char rlock__letter(const rlock_request *request) {
    return rlock__is_queued(request) ? rlock__letter_of(request->terms->kind) : 'm';
}

#endif /* RLOCK_RUNTIME_TOKEN_H */
