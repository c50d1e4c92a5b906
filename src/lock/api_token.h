/* ------------------------------------------------------------------------------------------------
 * >>api-token - a hold that goes on without this process: until a time, or in another process
 */

#ifndef RLOCK_LOCK_API_TOKEN_H
#define RLOCK_LOCK_API_TOKEN_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/list.h"
#include "runtime/client.h"
#include "runtime/token.h"
#include "lock/claim.h"
#include "lock/report.h"
#include "lock/due.h"
#include "lock/life.h"
#include "lock/api_handle.h"

/* True if the store can do it; else the reason is logged. */
static bool rlock__store_can(const rlock_client *client, unsigned what) {
    if ((client->store->can & what) == what) {
        return true;
    }
    RLOCK_ASSERT(client->life != RLOCK__CLOSED); /* where nothing is held, nor adopted */
    rlock_client_log(
        client, RLOCK_LOG_ERROR,
        what == RLOCK_STORE_STAYS
            ? RLOCK__TEXT("rlock_release_after: in this store a hold ends with its client")
            : RLOCK__TEXT("rlock_token and rlock_adopt: in this store only the client that "
                          "acquired a token can use it"),
        NULL);
    return false;
}

int rlock_release_after(rlock *lock, int64_t ms, rlock_callback *done, void *user) {
    int status = rlock__call(lock, RLOCK__CALL_RELEASE, 0);
    if (status == RLOCK_ERR_ARG || ms < 0 || ms > lock->gate->client->lease_most_ms) {
        return RLOCK_ERR_ARG;
    }
    if (status != RLOCK_OK) {
        return status;
    }
    if (!rlock__store_can(lock->gate->client, RLOCK_STORE_STAYS)) {
        return RLOCK_ERR_ARG;
    }
    rlock__release(lock, rlock__add_ms(lock->wait_until_us, ms), done, user);
    return RLOCK_OK;
}

/* --- the text that proves a hold: the client's id, the number of the token, the fence --- */

typedef struct rlock__proof {
    char id[RLOCK__TOKEN_HEAD];
    uint64_t token, fence;
} rlock__proof;

/* Reads a number that ends with this character. Returns what stands behind it; NULL: there is none,
 * or it is too large. */
static const char *rlock__proof_number(const char *text, char end, uint64_t *number) {
    *number = 0;
    do {
        unsigned digit = (unsigned)(unsigned char)*text - '0';
        if (digit > 9 || *number > (UINT64_MAX - digit) / 10) {
            return NULL;
        }
        *number = *number * 10 + digit;
    } while (*++text != end);
    return text + 1;
}

/* False: the text is no such proof. */
static bool rlock__proof_read(rlock__proof *proof, const char *text) {
    size_t i;
    for (i = 0; i < RLOCK__TOKEN_HEAD - 1; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !text[i] || !strchr("0123456789abcdef", text[i])) {
            return false;
        }
    }
    memcpy(proof->id, text, RLOCK__TOKEN_HEAD - 1);
    proof->id[RLOCK__TOKEN_HEAD - 1] = 0;
    if (text[RLOCK__TOKEN_HEAD - 1] != ':') {
        return false;
    }
    text = rlock__proof_number(text + RLOCK__TOKEN_HEAD, ':', &proof->token);
    return text && proof->token && rlock__proof_number(text, 0, &proof->fence);
}

int rlock_token(const rlock *lock, char *buffer, size_t size) {
    char text[RLOCK_TOKEN_MAX];
    const rlock__claim *claim;
    const char *id;
    size_t n;
    if (!lock || !buffer || !size) {
        return RLOCK_ERR_ARG;
    }
    buffer[0] = 0;
    if (rlock__call_forked(lock->gate->client)) {
        return RLOCK_ERR_STATE;
    }
    if (!rlock_is_held(lock)) {
        return RLOCK_ERR_NOT_HELD;
    }
    claim = lock->claim;
    id = rlock__claim_id(claim);
    n = rlock__token(id ? id : lock->gate->client->id, text, claim->token);
    text[n++] = ':';
    n += rlock__digits(text + n, claim->fence);
    RLOCK_ASSERT(n < sizeof text);
    if (n >= size || !rlock__store_can(lock->gate->client, RLOCK_STORE_ADOPTS)) {
        return RLOCK_ERR_ARG;
    }
    lock->claim->handovers = 0; /* its token is no other hold's from now on */
    memcpy(buffer, text, n);
    buffer[n] = 0;
    return (int)n;
}

/* --- its hold in another process --- */

/* Makes a claim of another client's token. NULL: no memory. */
static rlock__claim *rlock__adopted_new(rlock *lock, const rlock__proof *proof) {
    rlock__adopted *adopted = (rlock__adopted *)rlock__alloc(sizeof *adopted);
    rlock__claim *claim;
    if (!adopted) {
        return NULL;
    }
    lock->gate->client->claims.count++; /* the pool takes it in the end, as large as it is */
    claim = rlock__claim_begin(lock, &adopted->claim);
    if (claim) {
        memcpy(adopted->id, proof->id, sizeof adopted->id);
        claim->adopted = true;
        claim->token = proof->token;
        claim->fence = proof->fence;
    }
    return claim;
}

/* Asks for it by a renewal: an acquire could take a key that is free. */
static void rlock__adopt_begin(rlock__claim *claim) {
    rlock__gate *gate = claim->lock->gate;
    rlock_request *request;
    RLOCK_ASSERT(rlock__adopting(claim));
    claim->may_exist = true;
    rlock__list_append(&gate->claims, &claim->link);
    request =
        rlock__claim_request(claim, RLOCK_OP_RENEW, claim->lock->lease_ms, gate->client->now_us);
    RLOCK_ASSERT(request); /* one was reserved when the claim began */
    rlock__claim_arm(claim);
    rlock__report(claim, RLOCK_REPORT_ASKED, RLOCK_OK);
    rlock__claim_submit(claim, request);
}

static int rlock__adopt_start(rlock *lock, const rlock__proof *proof, int64_t lease_ms,
                              rlock_callback *done, void *user) {
    rlock_client *client = lock->gate->client;
    rlock__claim *claim = rlock__adopted_new(lock, proof);
    RLOCK_ASSERT(!lock->ready.event && done);
    if (!claim) {
        return RLOCK_ERR_NOMEM;
    }
    lock->done = done;
    lock->user = user;
    lock->once = true;
    lock->ready.status = RLOCK_OK;
    lock->ready.left_ms = -1;
    lock->lease_ms = rlock__lease_of(lock, lease_ms);
    lock->renews = rlock__renews(lock, lease_ms);
    lock->wait_until_us = claim->until_us =
        rlock__add_ms(client->now_us, client->command_timeout_ms);
    rlock__adopt_begin(claim);
    return RLOCK_OK;
}

int rlock_adopt(rlock *lock, const char *token, int64_t lease_ms, rlock_callback *done,
                void *user) {
    int status = rlock__call(lock, RLOCK__CALL_ACQUIRE, lease_ms);
    rlock__proof proof;
    if (status == RLOCK_ERR_ARG || !token || !done || !rlock__proof_read(&proof, token) ||
        (lock->fencing && !proof.fence)) {
        return RLOCK_ERR_ARG;
    }
    if (status != RLOCK_OK) {
        return status < RLOCK_OK ? status : RLOCK_ERR_STATE;
    }
    if (lock->gate->client->life != RLOCK__LIVE) {
        return RLOCK_ERR_CLOSED;
    }
    if (!rlock__store_can(lock->gate->client, RLOCK_STORE_ADOPTS)) {
        return RLOCK_ERR_ARG;
    }
    lock->gate->client->depth++;
    status = rlock__adopt_start(lock, &proof, lease_ms, done, user);
    rlock__leave(lock->gate->client);
    return status;
}

#endif /* RLOCK_LOCK_API_TOKEN_H */
