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
    bool six = address->any.sa_family == AF_INET6;
    const void *number =
        six ? (const void *)&address->in6.sin6_addr : (const void *)&address->in.sin_addr;
    text[0] = 0;
    inet_ntop(address->any.sa_family, number, text, RLOCK__ADDRESS_MAX);
    if (six && address->in6.sin6_scope_id) {
        size_t n = strlen(text);
        text[n++] = '%';
        n += rlock__digits(text + n, address->in6.sin6_scope_id);
        text[n] = 0;
    }
}

/* Takes over what a name stands for now: what is no address of the internet is passed over. Where
 * nothing is left, the address that worked last is tried once more. */
static void rlock__place_found(rlock__place *place, const struct sockaddr *const *addresses,
                               unsigned count) {
    unsigned i;
    place->count = place->at = 0;
    for (i = 0; i < count && place->count < RLOCK__ADDRESSES; i++) {
        sa_family_t family = addresses[i]->sa_family;
        if (family == AF_INET || family == AF_INET6) {
            memcpy(&place->found[place->count++], addresses[i],
                   family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
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
static int64_t rlock__place_patience_us(const rlock__place *place, int64_t timeout_us) {
    int64_t us = RLOCK__PATIENCE_MS * 1000;
    uint32_t i;
    for (i = 0; i < place->failures && us < timeout_us; i++) {
        us *= 2;
    }
    return rlock__min(us, timeout_us);
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
