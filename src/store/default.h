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
#include "store/cluster.h"

static const rlock_store *rlock__store_of(const rlock_config *config) {
#if !defined(RLOCK_NO_REDIS) && !defined(RLOCK_NO_CLUSTER)
    if (config->cluster && !config->store) {
        return &rlock__cluster_store;
    }
#endif
#ifndef RLOCK_NO_REDIS
    return config->store ? config->store : &rlock__redis_store;
#else
    return config->store;
#endif
}

/* Puts what config->url says into the other fields. `member`: it is a server's of a quorum, and may
 * say nothing of the client. *texts is what the caller frees once the store has copied it, also
 * after an error; the line says what is wrong. */
static int rlock__url_resolve(rlock_config *config, bool member, char **texts, char *line) {
    *texts = NULL;
    if (!config->url) {
        return RLOCK_OK;
    }
#if !defined(RLOCK_NO_REDIS) && !defined(RLOCK_NO_URL)
    if (!config->store) {
        return rlock__url_read(config, member, texts, line);
    }
#endif
    (void)member;
    rlock__line_add(line, 0, "this store, or this build, reads no config.url", "");
    return RLOCK_ERR_ARG;
}

#endif /* RLOCK_STORE_DEFAULT_H */
