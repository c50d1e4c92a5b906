/* ------------------------------------------------------------------------------------------------
 * >>redis-address - where an attempt to connect leads: a host, its addresses, the walk along them
 */

#ifndef RLOCK_STORE_REDIS_ADDRESS_H
#define RLOCK_STORE_REDIS_ADDRESS_H

#include "public/head.h"
#include "public/client.h"
#include "base/platform.h"
#include "store/redis/state.h"

static bool rlock__is_localhost(const char *host) {
    return strcmp(host, "localhost") == 0;
}

/* A text that redisAsyncConnect takes without asking a name server; IPv6 may have a scope. */
static const char *rlock__numeric(const char *host) {
    unsigned char address[sizeof(struct in6_addr)];
    char text[INET6_ADDRSTRLEN] = "";
    size_t len = strcspn(host, "%");
    if (rlock__is_localhost(host)) {
        return "127.0.0.1";
    }
    if (len < sizeof text) {
        memcpy(text, host, len);
    }
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, text, address) == 1 ? host
                                                                                             : NULL;
}

/* True for what may be a name or an address: not for a URL, nor for what came with a user. */
static bool rlock__is_host(const char *host, size_t len) {
    char text[RLOCK__HOST_MAX + 1];
    size_t i;
    for (i = 0; i < len && len <= RLOCK__HOST_MAX; i++) {
        text[i] = host[i];
        if ((unsigned char)text[i] <= ' ' || strchr("\177/?#@[],\"\\", text[i])) {
            return false;
        }
    }
    RLOCK_ASSERT(i <= RLOCK__HOST_MAX && (!i || i == len)); /* nothing of one that is too long */
    text[i] = 0;
    return i && (!strchr(text, ':') || rlock__numeric(text));
}

#if RLOCK__HAS_SENTINEL || RLOCK__HAS_CLUSTER

/* Takes the next one out of "host:port,[::1]:port"; the port may be left out. False: it is none. */
static bool rlock__hosts_next(const char **at, const char **host, size_t *len, int *port) {
    bool bracket = **at == '[';
    const char *end;
    *host = *at + bracket;
    *len = strcspn(*host, bracket ? "]" : ":,");
    end = *host + *len;
    if (!*len || (bracket && *end++ != ']')) {
        return false;
    }
    if (*end == ':') {
        size_t digits = strspn(++end, "0123456789");
        long number = strtol(end, NULL, 10);
        if (!digits || digits > 5 || number < 1 || number > 65535) {
            return false;
        }
        *port = (int)number;
        end += digits;
    }
    *at = end + (*end == ',');
    return (!*end || *end == ',') && rlock__is_host(*host, *len);
}

/* Returns what is wrong with a list of hosts, or NULL. *detail: the host that is meant; none of a
 * list that has something else in it, which may be a password. */
static const char *rlock__hosts_fault(const rlock_config *config, const char *list,
                                      const char *wrong, const char **detail) {
    const char *name = NULL;
    do {
        char text[RLOCK__ADDRESS_MAX] = "";
        const char *host;
        size_t len;
        int port;
        if (!rlock__hosts_next(&list, &host, &len, &port)) {
            return wrong;
        }
        memcpy(text, host, len < sizeof text ? len : 0);
        if (!name && !rlock__numeric(text)) {
            name = host;
        }
    } while (*list);
    if (name && !RLOCK__HAS_NAMES) {
        *detail = name;
        return "a host name needs RLOCK_WITH_NAMES; use an address";
    }
    if (name && !config->loop.resolve) {
        *detail = name;
        return "a host name needs loop.resolve; use an address";
    }
    return NULL;
}

/* Cuts a list of hosts into its parts. Returns them, for which the text has to stay; NULL: there is
 * no memory. */
static rlock__host *rlock__hosts_split(char *text, int standard, uint32_t *count) {
    const char *at;
    rlock__host *hosts;
    size_t most = 1;
    for (at = text; *at; at++) {
        most += *at == ',';
    }
    hosts = (rlock__host *)rlock__alloc(most * sizeof *hosts);
    *count = 0;
    for (at = text; hosts && *at; (*count)++) {
        rlock__host *one = &hosts[*count];
        const char *host;
        size_t len;
        RLOCK_ASSERT(*count < most);
        one->port = standard;
        rlock__hosts_next(&at, &host, &len, &one->port);
        one->name = text + (host - text);
        one->name[len] = 0;
    }
    return hosts;
}

/* Replaces an address that a server announced by the one that config.map_address has for it. There
 * is room for RLOCK__HOST_MAX bytes of the host, and a NUL. */
static void rlock__announced(rlock_map_address *map, void *user, char *host, int *port) {
    char new_host[RLOCK__HOST_MAX + 1] = "";
    int new_port = *port;
    RLOCK_ASSERT(*host && *port > 0);
    if (!map || !map(user, host, *port, new_host, sizeof new_host, &new_port)) {
        return;
    }
    new_host[RLOCK__HOST_MAX] = 0;
    if (rlock__is_host(new_host, strlen(new_host)) && new_port > 0 && new_port <= 65535) {
        strcpy(host, new_host);
        *port = new_port;
    }
}

#endif /* RLOCK__HAS_SENTINEL || RLOCK__HAS_CLUSTER */

#if RLOCK__HAS_NAMES

/* Writes an address as such a text. */
static void rlock__address_text(const rlock__address *address, char *text) {
    bool six = address->any.sa_family == AF_INET6;
    const void *number =
        six ? (const void *)&address->in6.sin6_addr : (const void *)&address->in.sin_addr;
    RLOCK_ASSERT(address->any.sa_family == AF_INET || six);
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
static void rlock__endpoint_found(rlock__endpoint *endpoint,
                                  const struct sockaddr *const *addresses, unsigned count) {
    unsigned i;
    endpoint->count = endpoint->at = 0;
    for (i = 0; i < count && endpoint->count < RLOCK__ADDRESSES; i++) {
        sa_family_t family = addresses[i]->sa_family;
        if (family == AF_INET || family == AF_INET6) {
            memcpy(&endpoint->found[endpoint->count++], addresses[i],
                   family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        }
    }
    RLOCK_ASSERT(endpoint->count <= RLOCK__ADDRESSES);
    if (!endpoint->count && endpoint->good.any.sa_family) {
        endpoint->found[0] = endpoint->good;
        endpoint->count = 1;
    }
}

/* Takes over what localhost stands for: 127.0.0.1, and ::1 if this machine has it. */
static void rlock__endpoint_local(rlock__endpoint *endpoint) {
    rlock__address *six = &endpoint->found[1];
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    memset(endpoint->found, 0, 2 * sizeof *endpoint->found);
    endpoint->found[0].in.sin_family = AF_INET;
    endpoint->found[0].in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    six->in6.sin6_family = AF_INET6;
    six->in6.sin6_addr.s6_addr[15] = 1;
    endpoint->at = 0;
    endpoint->count = fd >= 0 && bind(fd, &six->any, sizeof six->in6) == 0 ? 2 : 1;
    if (fd >= 0) {
        close(fd);
    }
}

/* True if another address follows the one that is tried now. */
static bool rlock__endpoint_more(const rlock__endpoint *endpoint) {
    RLOCK_ASSERT(!endpoint->count || endpoint->at < endpoint->count);
    return endpoint->at + 1 < endpoint->count;
}

/* True if the host is an address, or stands for one that is known. */
static bool rlock__endpoint_known(const rlock__endpoint *endpoint) {
    return endpoint->count || rlock__numeric(endpoint->host);
}

#else

static bool rlock__endpoint_more(const rlock__endpoint *endpoint) {
    (void)endpoint;
    return false;
}

static bool rlock__endpoint_known(const rlock__endpoint *endpoint) {
    return rlock__numeric(endpoint->host) != NULL;
}

#endif /* RLOCK__HAS_NAMES */

/* How long an address may be silent while another one waits to be tried: the longer, the more
 * attempts have failed, so that one that is slow and good is not given up for ever. */
static int64_t rlock__endpoint_patience_us(const rlock__endpoint *endpoint, int64_t timeout_us) {
    int64_t us = RLOCK__PATIENCE_MS * 1000;
    uint32_t i;
    RLOCK_ASSERT(timeout_us > 0);
    for (i = 0; i < endpoint->failures && us < timeout_us; i++) {
        us *= 2;
    }
    return rlock__min(us, timeout_us);
}

static void rlock__endpoint_worked(rlock__endpoint *endpoint) {
    endpoint->failures = 0;
#if RLOCK__HAS_NAMES
    if (endpoint->count) {
        RLOCK_ASSERT(endpoint->at < endpoint->count);
        endpoint->good = endpoint->found[endpoint->at];
    }
#endif
}

/* Starts to connect to the address whose turn it is. */
static redisAsyncContext *rlock__endpoint_connect(const rlock__endpoint *endpoint) {
    RLOCK_ASSERT(endpoint->port > 0 && endpoint->port <= 65535);
#if RLOCK__HAS_NAMES
    if (endpoint->count) {
        char text[RLOCK__ADDRESS_MAX];
        rlock__address_text(&endpoint->found[endpoint->at], text);
        return redisAsyncConnect(text, endpoint->port);
    }
#endif
    RLOCK_ASSERT(rlock__numeric(endpoint->host));
    return redisAsyncConnect(rlock__numeric(endpoint->host), endpoint->port);
}

#endif /* RLOCK_STORE_REDIS_ADDRESS_H */
