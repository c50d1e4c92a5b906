/* ------------------------------------------------------------------------------------------------
 * >>redis-address - where an attempt to connect leads: a host, its addresses, the walk along them
 */

#ifndef RLOCK_STORE_REDIS_ADDRESS_H
#define RLOCK_STORE_REDIS_ADDRESS_H

#include "public/head.h"
#include "base/platform.h"
#include "store/redis/state.h"

/* A text that redisAsyncConnect takes without asking a name server; IPv6 may have a scope. */
static const char *rlock__numeric(const char *host) {
    unsigned char address[sizeof(struct in6_addr)];
    char text[INET6_ADDRSTRLEN] = "";
    size_t len = strcspn(host, "%");
    if (strcmp(host, "localhost") == 0) {
        return "127.0.0.1";
    }
    if (len < sizeof text) {
        memcpy(text, host, len);
    }
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, text, address) == 1 ? host
                                                                                             : NULL;
}

/* Writes an address as such a text. */
static void rlock__address_text(const rlock__address *address, char *text) {
    text[0] = 0;
    if (address->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &address->in.sin_addr, text, RLOCK__ADDRESS_MAX);
    } else {
        inet_ntop(AF_INET6, &address->in6.sin6_addr, text, RLOCK__ADDRESS_MAX);
        if (address->in6.sin6_scope_id) {
            size_t n = strlen(text);
            text[n++] = '%';
            n += rlock__digits(text + n, address->in6.sin6_scope_id);
            text[n] = 0;
        }
    }
}

/* Takes over what a name stands for now: what is no address of the internet is passed over. Where
 * nothing is left, the address that worked last is tried once more. */
static void rlock__place_found(rlock__place *place, const struct sockaddr *const *addresses,
                               unsigned count) {
    unsigned i;
    place->count = place->at = 0;
    for (i = 0; i < count && place->count < RLOCK__ADDRESSES; i++) {
        rlock__address *address = &place->found[place->count];
        if (addresses[i]->sa_family == AF_INET) {
            memcpy(&address->in, addresses[i], sizeof address->in);
            place->count++;
        } else if (addresses[i]->sa_family == AF_INET6) {
            memcpy(&address->in6, addresses[i], sizeof address->in6);
            place->count++;
        }
    }
    if (!place->count && place->good.any.sa_family) {
        place->found[0] = place->good;
        place->count = 1;
    }
}

/* True if another address follows the one that is tried now. */
static bool rlock__place_more(const rlock__place *place) {
    RLOCK_ASSERT(!place->count || place->at < place->count);
    return place->at + 1 < place->count;
}

/* How long an address may be silent while another one waits to be tried: the longer, the more
 * attempts have failed, so that one that is slow and good is not given up for ever. */
static int64_t rlock__place_patience_us(const rlock__place *place, int64_t timeout_ms) {
    int64_t ms = RLOCK__PATIENCE_MS;
    uint32_t i;
    for (i = 0; i < place->failures && ms < timeout_ms; i++) {
        ms *= 2;
    }
    return rlock__min(ms, timeout_ms) * 1000;
}

static void rlock__place_worked(rlock__place *place) {
    place->failures = 0;
    if (place->count) {
        place->good = place->found[place->at];
    }
}

/* Starts to connect to the address whose turn it is. */
static redisAsyncContext *rlock__place_connect(const rlock__place *place) {
    char text[RLOCK__ADDRESS_MAX];
    if (!place->count) {
        RLOCK_ASSERT(rlock__numeric(place->host));
        return redisAsyncConnect(rlock__numeric(place->host), place->port);
    }
    rlock__address_text(&place->found[place->at], text);
    return redisAsyncConnect(text, place->port);
}

#endif /* RLOCK_STORE_REDIS_ADDRESS_H */
