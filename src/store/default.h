/* ------------------------------------------------------------------------------------------------
 * >>store - which store a configuration means
 */

#ifndef RLOCK_STORE_DEFAULT_H
#define RLOCK_STORE_DEFAULT_H

#include "public/store.h"
#include "public/client.h"
#include "store/redis/store.h"

static const rlock_store *rlock__store_of(const rlock_config *config) {
#ifndef RLOCK_NO_REDIS
    return config->store ? config->store : &rlock__redis_store;
#else
    return config->store;
#endif
}

#endif /* RLOCK_STORE_DEFAULT_H */
