/* ------------------------------------------------------------------------------------------------
 * >>pool - things of one size, kept for the next one: so that what is in use again needs no memory
 */

#ifndef RLOCK_BASE_POOL_H
#define RLOCK_BASE_POOL_H

#include "public/head.h"
#include "base/platform.h"

typedef struct rlock__pool {
    void *kept;     /* the first word of each leads to the next one */
    uint32_t count; /* with those in use */
    uint32_t most;  /* none is kept while there are more */
} rlock__pool;

/* Returns memory that is all zero, or NULL. */
static void *rlock__pool_take(rlock__pool *pool, size_t size) {
    void *thing = pool->kept;
    RLOCK_ASSERT(size >= sizeof pool->kept && (!thing || pool->count));
    if (thing) {
        memcpy(&pool->kept, thing, sizeof pool->kept);
        return memset(thing, 0, size);
    }
    thing = rlock__alloc(size);
    if (thing) {
        pool->count++;
    }
    return thing;
}

/* Frees what is kept until there are no more than so many in all, now and with each put. */
RLOCK__NOINLINE static void rlock__pool_limit(rlock__pool *pool, uint32_t most) {
    pool->most = most;
    while (pool->kept && pool->count > most) {
        void *thing = pool->kept;
        memcpy(&pool->kept, thing, sizeof pool->kept);
        rlock__dealloc(thing);
        pool->count--;
    }
}

/* Sees that there are so many, with those in use, and one that is not. False: no memory. */
static bool rlock__pool_reserve(rlock__pool *pool, size_t size, uint32_t count) {
    RLOCK_ASSERT(size >= sizeof pool->kept);
    while (pool->count < count || !pool->kept) {
        void *thing = rlock__alloc(size);
        if (!thing) {
            return false;
        }
        memcpy(thing, &pool->kept, sizeof pool->kept);
        pool->kept = thing;
        pool->count++;
    }
    return true;
}

RLOCK__NOINLINE static void rlock__pool_put(rlock__pool *pool, void *thing) {
    RLOCK_ASSERT(pool->count);
    RLOCK_ASSERT(thing && thing != pool->kept);
    memcpy(thing, &pool->kept, sizeof pool->kept);
    pool->kept = thing;
    rlock__pool_limit(pool, pool->most);
}

#endif /* RLOCK_BASE_POOL_H */
