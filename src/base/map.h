/* ------------------------------------------------------------------------------------------------
 * >>map - from keys to things, by items that the things hold
 */

#ifndef RLOCK_BASE_MAP_H
#define RLOCK_BASE_MAP_H

#include "public/head.h"
#include "base/platform.h"

/* A key of a thing. Several things may have the same key. */
typedef struct rlock__item {
    struct rlock__item *next;
    const char *key; /* its bytes, which the thing keeps */
    void *thing;
    uint32_t key_len, hash;
} rlock__item;

typedef struct rlock__map {
    rlock__item **buckets;
    uint32_t size, count; /* size: a power of two */
    uint32_t seed[2];     /* of its own: who chooses keys does not know which fall together */
} rlock__map;

/* HalfSipHash-1-3: https://cr.yp.to/siphash/siphash-20120918.pdf, on words of 32 bits. */
static void rlock__hash_round(uint32_t *v) {
    v[0] += v[1];
    v[1] = (v[1] << 5 | v[1] >> 27) ^ v[0];
    v[0] = v[0] << 16 | v[0] >> 16;
    v[2] += v[3];
    v[3] = (v[3] << 8 | v[3] >> 24) ^ v[2];
    v[0] += v[3];
    v[3] = (v[3] << 7 | v[3] >> 25) ^ v[0];
    v[2] += v[1];
    v[1] = (v[1] << 13 | v[1] >> 19) ^ v[2];
    v[2] = v[2] << 16 | v[2] >> 16;
}

static uint32_t rlock__hash(const rlock__map *map, const char *key, size_t len) {
    uint32_t v[4], word = (uint32_t)len << 24;
    size_t i;
    v[0] = map->seed[0];
    v[1] = map->seed[1];
    v[2] = map->seed[0] ^ 0x6c796765u;
    v[3] = map->seed[1] ^ 0x74656462u;
    for (i = 0; i + 4 <= len; i += 4) {
        const unsigned char *at = (const unsigned char *)key + i;
        uint32_t four =
            at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        v[3] ^= four;
        rlock__hash_round(v);
        v[0] ^= four;
    }
    for (; i < len; i++) {
        word |= (uint32_t)(unsigned char)key[i] << 8 * (i & 3);
    }
    v[3] ^= word;
    rlock__hash_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    rlock__hash_round(v);
    rlock__hash_round(v);
    rlock__hash_round(v);
    return v[1] ^ v[3];
}

static bool rlock__map_init(rlock__map *map) {
    unsigned char seed[8];
    int i;
    if (!RLOCK_RANDOM(seed, sizeof seed)) {
        return false;
    }
    for (i = 0; i < 8; i++) { /* the same on every machine */
        map->seed[i / 4] = map->seed[i / 4] << 8 | seed[i];
    }
    map->size = 16;
    map->count = 0;
    map->buckets = (rlock__item **)rlock__alloc(map->size * sizeof *map->buckets);
    return map->buckets != NULL;
}

static bool rlock__key_is(const rlock__item *item, uint32_t hash, const char *key, size_t len) {
    return item->hash == hash && item->key_len == len && memcmp(item->key, key, len) == 0;
}

static rlock__item *rlock__map_find(const rlock__map *map, const char *key, size_t len) {
    uint32_t hash = rlock__hash(map, key, len);
    rlock__item *item = map->buckets[hash & (map->size - 1)];
    RLOCK_ASSERT(map->size && !(map->size & (map->size - 1)));
    while (item && !rlock__key_is(item, hash, key, len)) {
        item = item->next;
    }
    return item;
}

/* Another item with the key of this one, or NULL. */
static rlock__item *rlock__map_same(const rlock__item *item) {
    rlock__item *same = RLOCK__HAS_KINDS ? item->next : NULL; /* else each thing has its own key */
    RLOCK_ASSERT(item->thing);
    while (same && !rlock__key_is(same, item->hash, item->key, item->key_len)) {
        same = same->next;
    }
    return same;
}

static void rlock__map_grow(rlock__map *map) {
    uint32_t size = map->size * 2, i;
    rlock__item **buckets = (rlock__item **)rlock__alloc(size * sizeof *buckets);
    RLOCK_ASSERT(map->buckets && size > map->size);
    if (!buckets) {
        return; /* longer chains, nothing worse */
    }
    for (i = 0; i < map->size; i++) {
        rlock__item *item = map->buckets[i];
        while (item) {
            rlock__item *next = item->next;
            item->next = buckets[item->hash & (size - 1)];
            buckets[item->hash & (size - 1)] = item;
            item = next;
        }
    }
    rlock__dealloc(map->buckets);
    map->buckets = buckets;
    map->size = size;
}

/* Adds an item, which leads from the key to the thing. */
RLOCK__NOINLINE static void rlock__map_add(rlock__map *map, rlock__item *item, void *thing,
                                           const char *key, size_t len) {
    rlock__item **bucket;
    RLOCK_ASSERT(thing && key && len && len <= UINT32_MAX);
    if (map->count / 2 >= map->size && map->size < (1u << 30)) { /* two a bucket: few look up */
        rlock__map_grow(map);
    }
    item->thing = thing;
    item->key = key;
    item->key_len = (uint32_t)len;
    item->hash = rlock__hash(map, key, len);
    bucket = &map->buckets[item->hash & (map->size - 1)];
    item->next = *bucket;
    *bucket = item;
    map->count++;
}

RLOCK__NOINLINE static void rlock__map_remove(rlock__map *map, rlock__item *item) {
    rlock__item **at = &map->buckets[item->hash & (map->size - 1)];
    RLOCK_ASSERT(map->count);
    RLOCK_ASSERT(rlock__hash(map, item->key, item->key_len) == item->hash);
    while (*at != item) {
        RLOCK_ASSERT(*at);
        at = &(*at)->next;
    }
    *at = item->next;
    map->count--;
}

/* The item after `item`, in no order; the first after NULL. Ask before `item` goes. */
static rlock__item *rlock__map_next(const rlock__map *map, const rlock__item *item) {
    uint32_t i = item ? (item->hash & (map->size - 1)) + 1 : 0;
    RLOCK_ASSERT(!item || map->count);
    if (item && item->next) {
        return item->next;
    }
    while (i < map->size && !map->buckets[i]) {
        i++;
    }
    return i < map->size ? map->buckets[i] : NULL;
}

#endif /* RLOCK_BASE_MAP_H */
