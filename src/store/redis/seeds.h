/* ------------------------------------------------------------------------------------------------
 * >>seeds - a cluster as a store of the user's own: the nodes that are asked first
 */

#ifndef RLOCK_STORE_REDIS_SEEDS_H
#define RLOCK_STORE_REDIS_SEEDS_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "store/redis/cluster.h"
#include "store/combined/members.h"

#define RLOCK__SEEDS 64 /* at most */

/* Appends the address of a node to a list of them. Returns where the list ends. */
static char *rlock__seed_add(char *end, const rlock_config *seed) {
    const char *host = seed->host ? seed->host : "127.0.0.1";
    bool bracket = strchr(host, ':') != NULL;
    size_t len = strlen(host);
    if (bracket) {
        *end++ = '[';
    }
    memcpy(end, host, len);
    end += len;
    if (bracket) {
        *end++ = ']';
    }
    *end++ = ':';
    end += rlock__digits(end, (uint64_t)(seed->port ? seed->port : 6379));
    *end++ = ',';
    return end;
}

static int rlock__seeds_open(const rlock_store *store, rlock_client *client,
                             const rlock_config *config, const rlock_store_events *events,
                             void *owner, void **state) {
    const rlock__members *members = (const rlock__members *)store->ctx;
    rlock_config one = *config;
    size_t room = 1;
    char *list, *end;
    int i, status;
    for (i = 0; i < members->count; i++) {
        const rlock_config *seed = &members->servers[i];
        room += (seed->host ? strlen(seed->host) : 9) + sizeof "[]:65535,";
        if (seed->url || seed->store || seed->unix_path || seed->connect || seed->sentinels ||
            seed->port < 0 || seed->port > 65535) {
            rlock_client_log(client, RLOCK_LOG_ERROR,
                             "a cluster node needs host and port, and no other address", NULL);
            return RLOCK_ERR_ARG;
        }
    }
    list = (char *)rlock__alloc(room);
    if (!list) {
        return RLOCK_ERR_NOMEM;
    }
    rlock__member_config(&members->servers[0], &one);
    for (i = 0, end = list; i < members->count; i++) {
        end = rlock__seed_add(end, &members->servers[i]);
    }
    RLOCK_ASSERT(end > list && (size_t)(end - list) <= room);
    end[-1] = 0;
    one.host = NULL;
    one.port = 0;
    one.cluster = list;
    status = rlock__cluster_open(store, client, &one, events, owner, state);
    rlock__dealloc(list);
    return status;
}

int rlock_cluster_new(rlock_store **out, const struct rlock_config *seeds, int count) {
    rlock_store functions = rlock__cluster_store;
    functions.open = rlock__seeds_open;
    return rlock__members_new(out, seeds, count, RLOCK__SEEDS, &functions);
}

void rlock_cluster_free(rlock_store *store) {
    rlock__members_free(store);
}

#endif /* RLOCK_STORE_REDIS_SEEDS_H */
