/* ------------------------------------------------------------------------------------------------
 * >>store - which store a configuration means, and at which address
 */

#ifndef RLOCK_STORE_DEFAULT_H
#define RLOCK_STORE_DEFAULT_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "store/redis/store.h"
#include "store/redis/url.h"
#include "store/redis/cluster.h"

/* Stores of other engines, which config.url names: stores/rlock_stores.h. */
#if defined(RLOCK_WITH_POSTGRES) || defined(RLOCK_WITH_ZOOKEEPER) || defined(RLOCK_WITH_MARIADB)
#define RLOCK__HAS_STORES 1
#include "rlock_stores.h" /* in stores/ */
#else
#define RLOCK__HAS_STORES 0
#endif

static const rlock_store *rlock__store_of(const rlock_config *config) {
#if RLOCK__HAS_CLUSTER
    if (config->cluster && !config->store) {
        return &rlock__cluster_store;
    }
#endif
#if RLOCK__HAS_REDIS
    return config->store ? config->store : &rlock__redis_store;
#else
    return config->store;
#endif
}

/* Frees a store that was made of a URL, or NULL. */
static void rlock__made_free(const rlock_store *made) {
#if RLOCK__HAS_STORES
    rlock_stores_free((rlock_store *)(uintptr_t)made);
#else
    (void)made;
#endif
}

#if RLOCK__HAS_STORES
/* Makes the store of another engine. */
static int rlock__url_store(rlock_config *config, char *line) {
    rlock_store *store;
    int status = rlock_stores_new(&store, config->url);
    config->store = store;
    config->url = NULL;
    if (status == RLOCK_ERR_ARG) {
        rlock__line_add(line, 0, RLOCK__TEXT("config.url: a parameter's value is not valid"), "");
    }
    return status;
}
#endif

/* What this build says of each URL that it does not read. */
#if RLOCK__HAS_REDIS
#define RLOCK__URL_FAULT "config.url needs RLOCK_WITH_URL"
#else
#define RLOCK__URL_FAULT "config.url: unsupported scheme in this build, which has RLOCK_NO_REDIS"
#endif

#if RLOCK__HAS_URL || RLOCK__HAS_STORES
static int rlock__url_take(rlock_config *config, bool member, char **texts, char *line) {
    const char *wrong = "config.url cannot be combined with config.store";
    const char *at;
    for (at = config->url; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 127) {
            rlock__line_add(
                line, 0,
                RLOCK__TEXT(
                    "config.url contains a control character: remove it, or write it as %XX"),
                "");
            return RLOCK_ERR_ARG;
        }
    }
    if (config->host || config->port || config->unix_path || config->username || config->password ||
        config->database || config->connect || config->sentinels || config->cluster ||
        config->sentinel_primary || config->sentinel_username || config->sentinel_password) {
        wrong =
            "config.url cannot be combined with host to database, sentinels, cluster or connect";
    } else if (!config->store) {
#if RLOCK__HAS_STORES
        if (!member && rlock_stores_has(config->url)) {
            return rlock__url_store(config, line);
        }
#endif
#if RLOCK__HAS_URL
        return rlock__url_read(config, member, texts, line);
#else
        (void)texts;
        wrong = RLOCK__URL_FAULT;
#endif
    }
    rlock__line_add(line, 0, wrong, "");
    return RLOCK_ERR_ARG;
}
#endif

/* Puts what config->url says into the other fields. `member`: it is a server's of a quorum, and may
 * say nothing of the client. *texts is what the caller frees once the store has copied it, also
 * after an error; the line says what is wrong. A store of another engine is the caller's. */
static int rlock__url_resolve(rlock_config *config, bool member, char **texts, char *line) {
    *texts = NULL;
    if (!config->url) {
        return RLOCK_OK;
    }
#if RLOCK__HAS_URL || RLOCK__HAS_STORES
    return rlock__url_take(config, member, texts, line);
#else
    (void)member;
    rlock__line_add(line, 0, RLOCK__URL_FAULT, "");
    return RLOCK_ERR_ARG;
#endif
}

#endif /* RLOCK_STORE_DEFAULT_H */
