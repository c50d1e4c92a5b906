/* ------------------------------------------------------------------------------------------------
 * >>members - a store that keeps the configurations of those it is made of
 */

#ifndef RLOCK_STORE_COMBINED_MEMBERS_H
#define RLOCK_STORE_COMBINED_MEMBERS_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "store/default.h"

typedef struct rlock__members {
    rlock_store store; /* first: it is what the user sees */
    rlock_config *servers;
    int count;
} rlock__members;

/* The texts that such a configuration may have of its own. */
#define RLOCK__TEXTS 10
static const char **rlock__server_text(rlock_config *config, int i) {
    static const size_t at[RLOCK__TEXTS] = {
        offsetof(rlock_config, url),
        offsetof(rlock_config, host),
        offsetof(rlock_config, unix_path),
        offsetof(rlock_config, username),
        offsetof(rlock_config, password),
        offsetof(rlock_config, sentinels),
        offsetof(rlock_config, sentinel_primary),
        offsetof(rlock_config, sentinel_username),
        offsetof(rlock_config, sentinel_password),
        offsetof(rlock_config, cluster),
    };
    RLOCK_ASSERT(i >= 0 && i < RLOCK__TEXTS);
    return (const char **)(void *)((char *)config + at[i]);
}

/* Puts what a member has of its own into a copy of the client's configuration. */
static void rlock__member_config(const rlock_config *member, rlock_config *one) {
    rlock_config its = *member;
    int text;
    for (text = 0; text < RLOCK__TEXTS; text++) {
        *rlock__server_text(one, text) = *rlock__server_text(&its, text);
    }
    one->store = its.store;
    one->port = its.port;
    one->database = its.database;
    one->tls = its.tls;
    one->sentinel_tls = its.sentinel_tls;
    one->trust_plain_sentinels = its.trust_plain_sentinels;
    one->connect = its.connect;
    one->user = its.user;
    one->connect_user = its.connect_user;
    if (its.map_address) { /* else the client's is for all */
        one->map_address = its.map_address;
        one->map_user = its.map_user;
    }
}

static void rlock__members_free(rlock_store *store) {
    rlock__members *members = store ? (rlock__members *)store->ctx : NULL;
    int i, text;
    for (i = 0; members && i < members->count; i++) {
        for (text = 0; text < RLOCK__TEXTS; text++) {
            rlock__dealloc((char *)(uintptr_t)*rlock__server_text(&members->servers[i], text));
        }
    }
    rlock__dealloc(members);
}

/* Makes a store with such functions out of 1 to `most` configurations, which are copied. */
static int rlock__members_new(rlock_store **out, const rlock_config *servers, int count, int most,
                              const rlock_store *functions) {
    rlock__members *members;
    bool failed = false;
    int i, text;
    if (!out) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    if (!servers || count < 1 || count > most) {
        return RLOCK_ERR_ARG;
    }
    for (i = 0; i < count; i++) {
        if (!rlock__store_of(&servers[i])) {
            return RLOCK_ERR_ARG;
        }
    }
    members = (rlock__members *)rlock__alloc(sizeof *members + (size_t)count * sizeof *servers);
    if (!members) {
        return RLOCK_ERR_NOMEM;
    }
    RLOCK_ASSERT(functions->open && functions->submit);
    members->servers = (rlock_config *)(void *)(members + 1);
    members->count = count;
    for (i = 0; i < count; i++) {
        rlock_config *copy = &members->servers[i];
        *copy = servers[i];
        for (text = 0; text < RLOCK__TEXTS; text++) {
            const char **its = rlock__server_text(copy, text);
            *its = rlock__copy_text(*its, &failed);
        }
    }
    members->store = *functions;
    for (i = 0; i < count; i++) {
        members->store.can &= rlock__store_of(&servers[i])->can;
    }
    members->store.ctx = members;
    if (failed) {
        rlock__members_free(&members->store);
        return RLOCK_ERR_NOMEM;
    }
    *out = &members->store;
    return RLOCK_OK;
}

#endif /* RLOCK_STORE_COMBINED_MEMBERS_H */
