/* ------------------------------------------------------------------------------------------------
 * >>cluster-map - the slots of a cluster: of which one a key is, what nodes say of where they are
 *
 * https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
 */

#ifndef RLOCK_STORE_REDIS_CLUSTER_MAP_H
#define RLOCK_STORE_REDIS_CLUSTER_MAP_H

#include "public/head.h"
#include "base/platform.h"
#include "store/redis/address.h"

#define RLOCK__SLOTS 16384u

/* The CRC16 of XMODEM: polynomial 0x1021, from 0; four bits at a time. */
static unsigned rlock__crc16(const char *bytes, size_t len) {
    static const uint16_t table[] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                     0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                     0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;
    size_t i;
    for (i = 0; i < len; i++) {
        unsigned byte = (unsigned char)bytes[i];
        crc = ((crc << 4) & 0xffff) ^ table[crc >> 12 ^ byte >> 4];
        crc = ((crc << 4) & 0xffff) ^ table[crc >> 12 ^ (byte & 15)];
    }
    return crc;
}

/* Returns the slot of a key: that of its hash tag, what stands between the first { and the next },
 * if that is not empty. */
static unsigned rlock__key_slot(const char *key, size_t len) {
    const char *open = (const char *)memchr(key, '{', len);
    const char *shut = open ? (const char *)memchr(open, '}', len - (size_t)(open - key)) : NULL;
    if (shut && shut > open + 1) {
        key = open + 1;
        len = (size_t)(shut - key);
    }
    return rlock__crc16(key, len) % RLOCK__SLOTS;
}

/* Where a node says that slots are. */
typedef struct rlock__slots {
    unsigned from, to;
    const char *host; /* not ended by a NUL, if host_len is shorter; NULL: that of who said it */
    size_t host_len;
    int port;
} rlock__slots;

static bool rlock__slots_number(const char **at, unsigned most, unsigned *number) {
    size_t digits = strspn(*at, "0123456789");
    unsigned long value = strtoul(*at, NULL, 10);
    RLOCK_ASSERT(most <= 65535);
    *at += digits;
    *number = (unsigned)value;
    return digits && digits <= 5 && value <= most;
}

/* Reads "MOVED slot host:port", or the same with ASK: the host may be left out, or be `?`, then it
 * is that of the node that says so, and may be IPv6 without brackets. *ask: it is ASK. False: it is
 * neither. */
static bool rlock__slots_redirect(const char *words, rlock__slots *slots, bool *ask) {
    const char *at = words, *colon;
    unsigned port;
    *ask = strncmp(at, "ASK ", 4) == 0;
    if (!*ask && strncmp(at, "MOVED ", 6) != 0) {
        return false;
    }
    at += *ask ? 4 : 6;
    if (!rlock__slots_number(&at, RLOCK__SLOTS - 1, &slots->from) || *at++ != ' ') {
        return false;
    }
    colon = strrchr(at, ':');
    slots->to = slots->from;
    slots->host_len = colon ? (size_t)(colon - at) : 0;
    slots->host = slots->host_len && strncmp(at, "?:", 2) != 0 ? at : NULL;
    at = colon ? colon + 1 : at;
    slots->port = 0;
    if (!colon || !rlock__slots_number(&at, 65535, &port) || (*at && *at != ' ')) {
        return false;
    }
    slots->port = (int)port;
    return port != 0 && (!slots->host || rlock__is_host(slots->host, slots->host_len));
}

/* Finds the value of "ip" among what a node tells of another one besides. */
static const redisReply *rlock__slots_ip(const redisReply *node) {
    const redisReply *more = node->elements > 3 ? node->element[3] : NULL;
    size_t i;
    for (i = 0; more && more->type == REDIS_REPLY_ARRAY && i + 1 < more->elements; i += 2) {
        const redisReply *name = more->element[i], *value = more->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            strcmp(name->str, "ip") == 0 && value->len) {
            return value;
        }
    }
    return NULL;
}

/* Reads a row of CLUSTER SLOTS: [from, to, [endpoint, port, id, [name, value ...]], replicas ...].
 * The endpoint is a host; nil or "" where the node knows none; "?" where it should be a name, and
 * the node has none: then the address stands behind. False: the row is none. */
static bool rlock__slots_row(const redisReply *row, rlock__slots *slots) {
    const redisReply *node, *host;
    bool whole = row->type == REDIS_REPLY_ARRAY && row->elements >= 3 &&
                 row->element[0]->type == REDIS_REPLY_INTEGER && row->element[0]->integer >= 0 &&
                 row->element[1]->type == REDIS_REPLY_INTEGER &&
                 row->element[1]->integer >= row->element[0]->integer &&
                 row->element[1]->integer < (long long)RLOCK__SLOTS &&
                 row->element[2]->type == REDIS_REPLY_ARRAY && row->element[2]->elements >= 2;
    if (!whole) {
        return false;
    }
    node = row->element[2];
    host = node->element[0];
    if (node->element[1]->type != REDIS_REPLY_INTEGER || node->element[1]->integer < 1 ||
        node->element[1]->integer > 65535 ||
        (host->type != REDIS_REPLY_STRING && host->type != REDIS_REPLY_NIL)) {
        return false;
    }
    host = host->type == REDIS_REPLY_STRING && strcmp(host->str, "?") == 0 ? rlock__slots_ip(node)
                                                                           : host;
    slots->from = (unsigned)row->element[0]->integer;
    slots->to = (unsigned)row->element[1]->integer;
    slots->host = host && host->type == REDIS_REPLY_STRING && host->len ? host->str : NULL;
    slots->host_len = slots->host ? strlen(host->str) : 0;
    slots->port = (int)node->element[1]->integer;
    return !slots->host || rlock__is_host(slots->host, slots->host_len);
}

/* True if an answer to CLUSTER SLOTS is one in each row, and has no more slots than there are. */
static bool rlock__slots_whole(const redisReply *reply) {
    unsigned most = RLOCK__SLOTS;
    size_t i;
    for (i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        rlock__slots slots;
        if (!rlock__slots_row(reply->element[i], &slots) || slots.to - slots.from >= most) {
            return false;
        }
        most -= slots.to - slots.from + 1;
    }
    return reply->type == REDIS_REPLY_ARRAY;
}

#endif /* RLOCK_STORE_REDIS_CLUSTER_MAP_H */
