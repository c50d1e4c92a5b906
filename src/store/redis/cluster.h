/* ------------------------------------------------------------------------------------------------
 * >>cluster - a store made of the nodes of a cluster: each has some of the slots
 *
 * Each node is a Redis store of its own, opened when a slot of it is first wanted. A request goes,
 * as it is, to the node that has the slot of its key, and is answered by it: so what one server can
 * do a node can, and a node that is down stops its own keys only.
 *
 * - The map of the slots is what a node answers to CLUSTER SLOTS, and nothing else: at the first
 *   request, after MOVED, CLUSTERDOWN and a lost connection, once a second at most.
 * - A node that has not this key did nothing with the request, and says which one has. That one is
 *   asked at once, a few times in a row at most; then the answer is BUSY, and the core waits.
 * - What was sent to a node, and not answered, may happen there, whoever has the slot by now. The
 *   epochs of all nodes differ; so no other node takes such a token for surely gone.
 * - Each node has a quarantine of its own, and a marker in its highest slot. What a client knows of
 *   a node holds good when that slot leaves it: it says so in the next one.
 * - A slot that comes to another node takes with it what waits to be sent. What is watched there
 *   was not told of changes: for these keys `pushing` is raised anew. While a slot is on its way,
 *   and nodes say ASK, its keys are polled.
 */

#ifndef RLOCK_STORE_REDIS_CLUSTER_H
#define RLOCK_STORE_REDIS_CLUSTER_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "base/list.h"
#include "store/redis/state.h"
#include "store/redis/address.h"
#include "store/redis/resp.h"
#include "store/redis/link.h"
#include "store/redis/quarantine.h"
#include "store/redis/credentials.h"
#include "store/redis/store.h"
#include "store/redis/cluster_map.h"

#define RLOCK__MAP_US 1000000   /* the least time between two questions for the map */
#define RLOCK__HOPS_MAX 5       /* to so many nodes a request is led in a row */
#define RLOCK__EPOCHS 1024u     /* of a node, before it gets others */
#define RLOCK__EPOCHS_LEAST 16u /* for the attempts until the next event */
#define RLOCK__CLUSTER_TEXTS 5

enum { RLOCK__NODE_NEW, RLOCK__NODE_UP, RLOCK__NODE_DOWN };

typedef struct rlock__node { /* a node: one of a cluster, as one client sees it */
    struct rlock__cluster *cluster;
    rlock__redis *redis; /* NULL: nothing of it was wanted yet */
    char *host;
    int port;
    uint32_t slots;  /* how many it has */
    int marked;      /* the slot of its marker; -1: it has no slot */
    uint16_t number; /* in the map */
    bool gains;      /* slots have come to it just now */
    bool joins;      /* ... for some of them more than a check is due */
    uint8_t where;
    uint8_t pushing; /* RLOCK_PUSH_... */
    bool asked;      /* for the map */
} rlock__node;

typedef struct rlock__cluster { /* one client of it */
    rlock_client *client;
    const rlock_store_events *events, *of_nodes; /* the core's; those that nodes raise */
    void *owner;
    rlock_config config; /* of a node, but for its address */
    char *texts[RLOCK__CLUSTER_TEXTS];
    char *seeds_text;
    rlock__host *seeds;
    uint32_t seed_count, turn; /* whose turn it is to be opened, for the map */
    rlock__node **nodes;       /* NULL where one has gone */
    uint32_t node_count;
    uint32_t epochs;                   /* given to nodes */
    rlock_link waiting;                /* requests, until there is a map */
    rlock_link refused;                /* those to be answered with the fault that they note */
    rlock_timer timer;                 /* the next question for the map, and the answers to those */
    rlock__node *map_source;           /* who said MOVED last, and so knows more */
    int64_t asked_us;                  /* when the map was asked for last; 0 = never */
    bool mapped;                       /* there is a map */
    bool wanted;                       /* ... and should be a newer one */
    bool hurry;                        /* ... soon: acquires wait for it */
    bool barren;                       /* who was asked last knew none */
    bool sweeps;                       /* who has no slots is closed when this dispatch ends */
    bool tracks;                       /* some key was to be watched */
    uint32_t left;                     /* of a set of keys that is looked at, how many follow */
    unsigned left_slot;                /* ... and its slot */
    uint16_t map[RLOCK__SLOTS];        /* the number of the node; 0 = none */
    uint8_t changed[RLOCK__SLOTS / 8]; /* bits: has come to its node just now */
    uint8_t seen[RLOCK__SLOTS / 8];    /* stands in the answer at hand */
    uint8_t asking[RLOCK__SLOTS / 8];  /* is on its way: a node said ASK */
} rlock__cluster;

struct rlock__cluster;

static bool rlock__bit(const uint8_t *bits, unsigned i) {
    RLOCK_ASSERT(i < RLOCK__SLOTS);
    return (bits[i / 8] >> i % 8 & 1) != 0;
}

static void rlock__bit_set(uint8_t *bits, unsigned i) {
    RLOCK_ASSERT(i < RLOCK__SLOTS);
    bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << i % 8);
}

/* Some of the slots, in an event. */
typedef struct rlock__slots_part {
    rlock_part part;
    const rlock__cluster *cluster;
    const uint8_t *bits; /* these; NULL = all */
    uint16_t number;     /* ... that this node has; 0 = any */
    bool still;          /* ... and that are not on their way */
} rlock__slots_part;

static bool rlock__slots_have(const rlock_part *part, const char *key, size_t len) {
    const rlock__slots_part *some = RLOCK__OF(part, const rlock__slots_part, part);
    unsigned slot = rlock__key_slot(key, len);
    return (!some->bits || rlock__bit(some->bits, slot)) &&
           (!some->number || some->cluster->map[slot] == some->number) &&
           !(some->still && rlock__bit(some->cluster->asking, slot));
}

static rlock__slots_part rlock__slots_of(const rlock__cluster *cluster, const uint8_t *bits,
                                         uint16_t number, bool still) {
    rlock__slots_part some;
    RLOCK_ASSERT(number <= cluster->node_count);
    some.part.has = rlock__slots_have;
    some.cluster = cluster;
    some.bits = bits;
    some.number = number;
    some.still = still;
    return some;
}

/* --- nodes --- */

static rlock__node *rlock__slot_node(const rlock__cluster *cluster, unsigned slot) {
    RLOCK_ASSERT(slot < RLOCK__SLOTS && cluster->map[slot] <= cluster->node_count);
    return cluster->map[slot] ? cluster->nodes[cluster->map[slot] - 1] : NULL;
}

/* Makes a place in the list of nodes; NULL: no memory, or too many. */
static rlock__node **rlock__node_room(rlock__cluster *cluster) {
    rlock__node **nodes;
    uint32_t i = 0;
    while (i < cluster->node_count && cluster->nodes[i]) {
        i++;
    }
    if (i < cluster->node_count) {
        return &cluster->nodes[i];
    }
    nodes = i + 8 > UINT16_MAX ? NULL : (rlock__node **)rlock__alloc((i + 8) * sizeof *nodes);
    if (!nodes) {
        return NULL;
    }
    if (i) {
        memcpy(nodes, cluster->nodes, i * sizeof *nodes);
    }
    rlock__dealloc(cluster->nodes);
    cluster->nodes = nodes;
    cluster->node_count = i + 8;
    return &cluster->nodes[i];
}

/* Returns the node at an address, which need not be open; NULL: no memory. */
static rlock__node *rlock__node_at(rlock__cluster *cluster, const char *host, size_t len,
                                   int port) {
    rlock__node *node, **room;
    uint32_t i;
    RLOCK_ASSERT(len && port > 0 && port <= 65535);
    for (i = 0; i < cluster->node_count; i++) {
        node = cluster->nodes[i];
        if (node && node->port == port && strlen(node->host) == len &&
            memcmp(node->host, host, len) == 0) {
            return node;
        }
    }
    room = rlock__node_room(cluster);
    node = room ? (rlock__node *)rlock__alloc(sizeof *node) : NULL;
    if (!node) {
        return NULL;
    }
    node->host = rlock__copy(host, len);
    if (!node->host) {
        rlock__dealloc(node);
        return NULL;
    }
    node->cluster = cluster;
    node->port = port;
    node->number = (uint16_t)(room - cluster->nodes + 1);
    RLOCK_ASSERT(node->number && !*room);
    *room = node;
    return node;
}

/* Returns the node that another one means, where that is to be reached; NULL: no memory. */
static rlock__node *rlock__node_meant(const rlock__node *says, const rlock__slots *slots) {
    const rlock_config *config = &says->cluster->config;
    const char *named = slots->host ? slots->host : says->host;
    size_t len = slots->host ? slots->host_len : strlen(says->host);
    char host[RLOCK__HOST_MAX + 1];
    int port = slots->port;
    RLOCK_ASSERT(len && len <= RLOCK__HOST_MAX);
    memcpy(host, named, len);
    host[len] = 0;
    rlock__announced(config->map_address, config->map_user, host, &port);
    return rlock__node_at(says->cluster, host, strlen(host), port);
}

/* Gives it epochs that no other node has. What was noted with those before is not surely gone. */
static void rlock__node_epochs(rlock__node *node) {
    rlock__redis *redis = node->redis;
    uint32_t first = node->cluster->epochs;
    node->cluster->epochs =
        first < RLOCK__EPOCHS_MIXED - 2 * RLOCK__EPOCHS ? first + RLOCK__EPOCHS : 0;
    redis->first_epoch = redis->epoch = redis->dead_up_to = first;
    redis->alive_up_to = redis->moved_up_to = redis->lost_epoch = first;
    redis->last_epoch = first + RLOCK__EPOCHS;
    RLOCK_ASSERT(redis->last_epoch > first);
}

#if RLOCK__HAS_REPLICAS

/* Returns the highest slot of a node; -1: it has none. */
static int rlock__node_top(const rlock__node *node) {
    int slot = node->slots ? (int)RLOCK__SLOTS - 1 : -1;
    while (slot >= 0 && node->cluster->map[slot] != node->number) {
        slot--;
    }
    return slot;
}

/* Names the marker of a node, prefix + "quarantine:{N}", where N is the first number of its highest
 * slot: so those with the same map agree, and as slots are moved from the lowest on it stays for
 * long. A marker is good for the process that it names alone; so one that came with a slot from
 * another node says nothing, and no marker is a quarantine. If the name is another one now the node
 * is asked at once, and is told what is known of it: it need not wait because its slot has left.
 * A node of which no slot is known cannot have a marker, and grants no lock. */
static void rlock__node_mark(rlock__node *node) {
    rlock__quarantine *quarantine = node->redis->quarantine;
    char digits[21];
    int slot = rlock__node_top(node);
    uint64_t number = 0;
    size_t n = 0;
    if (slot == node->marked && !quarantine->unmapped) {
        return;
    }
    node->marked = slot;
    quarantine->unmapped = false;
    quarantine->marker[0] = 0;
    if (slot < 0) {
        quarantine->until_us = RLOCK__NEVER;
        rlock__line_add(quarantine->refusal, 0, "quarantine: no slot of the node is known", "");
        rlock_timer_set(node->cluster->client, &quarantine->timer, -1);
        return;
    }
    while (!n || rlock__crc16(digits, n) % RLOCK__SLOTS != (unsigned)slot) {
        n = rlock__digits(digits, number++);
        digits[n] = 0;
    }
    n = rlock__line_add(quarantine->marker, 0, RLOCK__MARKER_NAME ":{", digits);
    rlock__line_add(quarantine->marker, n, "}", "");
    rlock__quarantine_ask(node->redis);
}

#endif /* RLOCK__HAS_REPLICAS */

/* Opens the store of a node, if it is not open. It connects when it has something to say. */
static int rlock__node_open(rlock__node *node) {
    rlock__cluster *cluster = node->cluster;
    rlock_config config = cluster->config;
    void *state;
    int status;
    if (node->redis) {
        return RLOCK_OK;
    }
    config.host = node->host;
    config.port = node->port;
    status = rlock__redis_open(&rlock__redis_store, cluster->client, &config, cluster->of_nodes,
                               node, &state);
    if (status == RLOCK_OK) {
        node->redis = (rlock__redis *)state;
        node->redis->of_cluster = true;
        node->redis->push_wanted = cluster->tracks;
        node->where = RLOCK__NODE_NEW;
        rlock__node_epochs(node);
#if RLOCK__HAS_REPLICAS
        if (config.quarantine_ms) {
            node->marked = RLOCK__SLOTS; /* none yet */
            rlock__node_mark(node);
        }
#endif
    }
    return status;
}

/* True if a node has something to do, or an answer of it or for its name is awaited. */
static bool rlock__node_busy(const rlock__node *node) {
    const rlock__redis *redis = node->redis;
    bool busy = redis && redis->commands.outstanding;
    int i;
    if (redis && rlock__conn_lookup(&redis->commands, NULL)) {
        busy = true;
    }
    for (i = 0; redis && i < RLOCK__QUEUES; i++) {
        if (!rlock__list_empty(&redis->queues[i])) {
            busy = true;
        }
    }
    return busy || (redis && rlock__redis_owes(redis));
}

static bool rlock__node_ready(const rlock__node *node) {
    const rlock__redis *redis = node->redis;
    return redis && redis->commands.state == RLOCK__CONN_READY && !redis->commands.failing &&
           !redis->commands.strayed;
}

static void rlock__node_free(rlock__node *node) {
    rlock__cluster *cluster = node->cluster;
    RLOCK_ASSERT(cluster->nodes[node->number - 1] == node);
    if (node->redis) {
        rlock__redis_close(node->redis);
    }
    if (cluster->map_source == node) {
        cluster->map_source = NULL;
    }
    cluster->nodes[node->number - 1] = NULL;
    rlock__dealloc(node->host);
    rlock__dealloc(node);
}

/* --- where a request goes --- */

/* Returns the least time between two questions for the map. */
static int64_t rlock__cluster_pause_us(const rlock__cluster *cluster) {
    return cluster->mapped && !cluster->hurry ? RLOCK__MAP_US : RLOCK__PATIENCE_MS * 1000;
}

/* Has the timer fire when the next thing is due. */
static void rlock__cluster_plan(rlock__cluster *cluster) {
    int64_t now_us = rlock_client_now_us(cluster->client);
    int64_t pause_us = rlock__cluster_pause_us(cluster);
    int64_t due_us = now_us + RLOCK__MAP_US; /* to close who has nothing to do any more */
    if (cluster->wanted) {
        due_us = cluster->asked_us ? cluster->asked_us + pause_us : now_us;
    }
    if (!rlock__list_empty(&cluster->refused)) {
        due_us = now_us;
    }
    rlock_timer_set(cluster->client, &cluster->timer, due_us);
}

/* A newer map is wanted. */
static void rlock__cluster_want(rlock__cluster *cluster) {
    cluster->wanted = true;
    rlock__cluster_plan(cluster);
}

/* Answers a request with a fault, but not in here. */
static void rlock__cluster_refuse(rlock__cluster *cluster, rlock_request *request,
                                  rlock_fault fault) {
    request->sent_us = rlock_client_now_us(cluster->client);
    request->store.stage = RLOCK__QUEUED;
    request->store.own[RLOCK__FAULT] = (uint8_t)fault;
    rlock__list_append(&cluster->refused, &request->store.link);
    rlock__cluster_plan(cluster);
}

static void rlock__node_submit(rlock__node *node, rlock_request *request, bool asks) {
    int status = rlock__node_open(node);
    if (status != RLOCK_OK) {
        rlock__cluster_refuse(node->cluster, request,
                              status == RLOCK_ERR_NOMEM ? RLOCK_FAULT_NOMEM : RLOCK_FAULT_BUSY);
        return;
    }
#if RLOCK__HAS_REPLICAS
    if (node->redis->quarantine && !node->slots) {
        node->redis->quarantine->unmapped = true; /* a map that has its slots is on its way */
    }
#endif
    rlock__redis_submit(node->redis, request);
    request->store.own[RLOCK__ASKING] = asks;
}

/* Sends a request to the node that has the slot of its key, as far as is known. */
static void rlock__cluster_route(rlock__cluster *cluster, rlock_request *request) {
    rlock__node *node = rlock__slot_node(cluster, rlock__key_slot(request->key, request->key_len));
    if (node) {
        rlock__node_submit(node, request, false);
        return;
    }
    if (cluster->mapped) {
        rlock__cluster_refuse(cluster, request, RLOCK_FAULT_BUSY); /* nobody has it now */
    } else {
        request->store.stage = RLOCK__QUEUED;
        rlock__list_append(&cluster->waiting, &request->store.link);
    }
    rlock__cluster_want(cluster);
}

/* A node has said that another one has the key of this request, which it did nothing with. */
static bool rlock__node_redirects(rlock__node *node, rlock_request *request,
                                  const rlock_answer *answer) {
    rlock__cluster *cluster = node->cluster;
    rlock__node *next;
    rlock__slots there;
    unsigned slot;
    bool ask;
    if (!rlock__slots_redirect(rlock__error_text(answer->text), &there, &ask)) {
        return false;
    }
    cluster->map_source = ask ? cluster->map_source : node;
    rlock__cluster_want(cluster);
#if RLOCK__HAS_REPLICAS
    if (!ask && node->redis->quarantine && !rlock__quarantine_waits(node->redis)) {
        rlock__quarantine_ask(node->redis); /* perhaps it was a replica meanwhile */
    }
#endif
    RLOCK_ASSERT(request->store.stage == RLOCK__FLYING);
    if (request->store.own[RLOCK__HOPS] >= RLOCK__HOPS_MAX) {
        return false;
    }
    next = rlock__node_meant(node, &there);
    if (!next) {
        return false;
    }
    slot = rlock__key_slot(request->key, request->key_len);
    request->store.own[RLOCK__HOPS]++;
    rlock__node_submit(next, request, ask);
    if (ask && !rlock__bit(cluster->asking, slot)) {
        rlock__slots_part way = rlock__slots_of(cluster, cluster->asking, 0, false);
        rlock__bit_set(cluster->asking, slot);
        cluster->events->pushing(cluster->owner, &way.part, 0);
    }
    return true;
}

/* --- the map --- */

/* Notes that a slot is at a node now, or at none (NULL). */
static void rlock__slot_moves(rlock__cluster *cluster, unsigned slot, rlock__node *to) {
    rlock__node *from = rlock__slot_node(cluster, slot);
    if (from != to) {
        if (from) {
            RLOCK_ASSERT(from->slots);
            from->slots--;
        }
        if (to) {
            to->slots++;
            RLOCK_ASSERT(to->slots <= RLOCK__SLOTS);
            to->gains = true;
            if (!from || from->where != RLOCK__NODE_UP || cluster->config.replicas) {
                to->joins = true; /* the replicas of the new node may be late */
            }
        }
        cluster->map[slot] = to ? to->number : 0;
        rlock__bit_set(cluster->changed, slot);
    }
}

/* Puts a whole answer to CLUSTER SLOTS, of that node, into the map. A row for which there is no
 * memory stays as it was. */
static void rlock__map_read(rlock__cluster *cluster, const rlock__node *says,
                            const redisReply *reply) {
    unsigned slot;
    size_t i;
    memcpy(cluster->changed, cluster->asking, sizeof cluster->changed);
    memset(cluster->asking, 0, sizeof cluster->asking);
    memset(cluster->seen, 0, sizeof cluster->seen);
    for (i = 0; i < reply->elements; i++) {
        rlock__slots row;
        rlock__node *node;
        rlock__slots_row(reply->element[i], &row);
        RLOCK_ASSERT(row.from <= row.to && row.to < RLOCK__SLOTS);
        node = rlock__node_meant(says, &row);
        for (slot = row.from; slot <= row.to; slot++) {
            rlock__bit_set(cluster->seen, slot);
            if (node) {
                rlock__slot_moves(cluster, slot, node);
            }
        }
    }
    for (slot = 0; slot < RLOCK__SLOTS; slot++) {
        rlock__node *node = rlock__slot_node(cluster, slot);
        if (!rlock__bit(cluster->seen, slot)) {
            rlock__slot_moves(cluster, slot, NULL);
        } else if (node && rlock__bit(cluster->changed, slot)) {
            node->gains = true; /* also what was on its way, and is here */
        }
    }
}

/* Sends what waits at a node, and is of a slot that it has no more, to the one that has it now. */
static void rlock__node_loses(rlock__node *node) {
    rlock__cluster *cluster = node->cluster;
    int i;
    for (i = 0; i < RLOCK__QUEUES; i++) {
        rlock_link *queue = &node->redis->queues[i], *at, *next;
        for (at = queue->next; at != queue; at = next) {
            rlock_request *request = RLOCK__OF(at, rlock_request, store.link);
            unsigned slot = rlock__key_slot(request->key, request->key_len);
            next = at->next;
            if (rlock__bit(cluster->changed, slot) && cluster->map[slot] != node->number &&
                !request->store.own[RLOCK__ASKING]) {
                rlock__list_remove(at);
                rlock__cluster_route(cluster, request);
            }
        }
    }
}

/* Tells of the slots that have come to a node. */
static void rlock__node_gains(rlock__node *node) {
    rlock__cluster *cluster = node->cluster;
    rlock__slots_part some = rlock__slots_of(cluster, cluster->changed, node->number, false);
    bool joins = node->joins;
    node->gains = node->joins = false;
    if (node->redis && cluster->tracks && !node->redis->push_wanted) {
        rlock__redis_track(node->redis, "", 0, true);
    }
    if (joins && node->where == RLOCK__NODE_UP) { /* what stood still at the other one goes on */
        cluster->events->up(cluster->owner, &some.part);
    }
    cluster->events->pushing(cluster->owner, &some.part, node->pushing);
}

/* There is a map: what waits for it goes out, and what has moved is told of. */
static void rlock__cluster_mapped(rlock__cluster *cluster) {
    bool down = false;
    rlock_link waiting;
    uint32_t i;
    cluster->mapped = true;
    cluster->hurry = false;
    for (i = 0; i < cluster->node_count; i++) {
        if (cluster->nodes[i] && cluster->nodes[i]->redis) {
            rlock__node_loses(cluster->nodes[i]);
#if RLOCK__HAS_REPLICAS
            if (cluster->config.quarantine_ms) {
                rlock__node_mark(cluster->nodes[i]);
            }
#endif
        }
    }
    rlock__list_init(&waiting);
    rlock__list_move(&waiting, &cluster->waiting);
    while (!rlock__list_empty(&waiting)) {
        rlock_request *request = RLOCK__OF(waiting.next, rlock_request, store.link);
        rlock__list_remove(&request->store.link);
        rlock__cluster_route(cluster, request);
    }
    for (i = 0; i < cluster->node_count; i++) {
        rlock__node *node = cluster->nodes[i];
        if (node && node->gains) {
            rlock__node_gains(node);
        }
        if (node && node->slots && node->where == RLOCK__NODE_DOWN) {
            down = true;
        }
    }
    cluster->barren = false;
    /* Somebody else may have its slots soon; or a node said MOVED after the question had left. */
    cluster->wanted = down || cluster->map_source;
    rlock__cluster_plan(cluster);
}

/* Returns the next node that was named and is not open, or NULL. */
static rlock__node *rlock__cluster_closed(rlock__cluster *cluster) {
    rlock__node *node = NULL;
    uint32_t i;
    for (i = 0; i < cluster->seed_count; i++) {
        const rlock__host *seed = &cluster->seeds[i];
        node = rlock__node_at(cluster, seed->name, strlen(seed->name), seed->port);
        if (node && !node->redis) {
            return node;
        }
    }
    for (i = 0; i < cluster->node_count; i++) {
        node = cluster->nodes[i];
        if (node && !node->redis) {
            return node;
        }
    }
    return NULL;
}

/* A node knows no map: it is none, or of the cluster no more, or not yet. Before there is a map the
 * next node that was named is asked at once. */
static void rlock__cluster_unmapped(rlock__cluster *cluster, const rlock__conn *conn,
                                    const char *why) {
    rlock__conn_log_failure(conn, "no slot map of the cluster", why);
    cluster->barren = true;
    if (cluster->mapped) {
        return;
    }
    if (rlock__cluster_closed(cluster)) {
        cluster->asked_us = 0;
        rlock__cluster_plan(cluster);
    } else {
        cluster->events->down(cluster->owner, NULL, rlock__classify(why), why);
    }
}

static void rlock__on_slots(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    rlock__node *node = (rlock__node *)data;
    rlock__cluster *cluster = node->cluster;
    const redisReply *reply = (const redisReply *)raw;
    RLOCK_ASSERT(node->asked);
    node->asked = false;
    if (!conn || !reply) {
        return;
    }
    rlock__conn_answered(conn);
    if (reply->type == REDIS_REPLY_ERROR) {
        rlock__cluster_unmapped(cluster, conn, reply->str);
    } else if (!rlock__slots_whole(reply)) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
    } else if (!reply->elements) { /* it was taken out of the cluster, or is not in it yet */
        rlock__conn_fail(conn, RLOCK_FAULT_BUSY, "the node has no slots");
        conn->walks =
            rlock__endpoint_more(conn->endpoint); /* another one of its name may know some */
    } else {
        rlock__map_read(cluster, node, reply);
        rlock__cluster_mapped(cluster);
    }
}

/* Returns a node that can be asked for the map, or NULL: the one that knows more, or the next. */
static rlock__node *rlock__cluster_ready(rlock__cluster *cluster) {
    rlock__node *node = cluster->map_source;
    uint32_t i;
    cluster->map_source = NULL;
    if (node && rlock__node_ready(node) && !node->asked) {
        return node;
    }
    for (i = 0; i < cluster->node_count; i++) {
        node = cluster->nodes[(cluster->turn + i) % cluster->node_count];
        if (node && rlock__node_ready(node) && !node->asked) {
            cluster->turn += i + 1;
            return node;
        }
    }
    return NULL;
}

/* Asks for the map: a node that is connected, or else one more is connected to; that comes first
 * where the last one knew none. */
static void rlock__cluster_ask(rlock__cluster *cluster) {
    rlock__node *node = cluster->barren ? rlock__cluster_closed(cluster) : NULL;
    cluster->asked_us = rlock_client_now_us(cluster->client);
    node = node ? node : rlock__cluster_ready(cluster);
    node = node ? node : rlock__cluster_closed(cluster);
    if (node && rlock__node_ready(node)) {
        rlock__put_words(node->redis, "CLUSTER SLOTS", 0);
        node->asked = rlock__conn_say(&node->redis->commands, rlock__on_slots, node);
    } else if (node && rlock__node_open(node) == RLOCK_OK) {
        rlock__conn_wanted(&node->redis->commands);
    }
}

/* Answers what was refused. */
static void rlock__cluster_answers(rlock__cluster *cluster) {
    rlock_link refused;
    rlock__list_init(&refused);
    rlock__list_move(&refused, &cluster->refused);
    while (!rlock__list_empty(&refused)) {
        rlock_request *request = RLOCK__OF(refused.next, rlock_request, store.link);
        rlock_answer answer;
        RLOCK_ASSERT(request->store.stage == RLOCK__QUEUED);
        memset(&answer, 0, sizeof answer);
        answer.outcome = RLOCK_OUTCOME_FAULT;
        answer.fault = (rlock_fault)request->store.own[RLOCK__FAULT];
        answer.text = answer.fault == RLOCK_FAULT_BUSY ? "no known node has the key's slot" : NULL;
        rlock__list_remove(&request->store.link);
        cluster->events->answered(cluster->owner, request, &answer);
    }
}

/* Closes the nodes that have no slots, and nothing to do; those that have are looked at again. */
static void rlock__cluster_sweep(rlock__cluster *cluster) {
    bool stay = false;
    uint32_t i;
    for (i = 0; i < cluster->node_count; i++) {
        rlock__node *node = cluster->nodes[i];
        if (node && !node->slots && !rlock__node_busy(node)) {
            rlock__node_free(node);
        } else if (node && !node->slots) {
            stay = true;
        }
    }
    if (stay) {
        rlock__cluster_plan(cluster);
    }
}

static void rlock__cluster_fire(rlock_timer *timer) {
    rlock__cluster *cluster = RLOCK__OF(timer, rlock__cluster, timer);
    int64_t now_us = rlock_client_now_us(cluster->client);
    int64_t pause_us = rlock__cluster_pause_us(cluster);
    rlock__cluster_answers(cluster);
    RLOCK_ASSERT(cluster->wanted || cluster->mapped);
    if (!cluster->wanted) {
        cluster->sweeps = true; /* not now: a dispatch begins, perhaps for such a node */
        return;
    }
    if (!cluster->asked_us || cluster->asked_us + pause_us <= now_us) {
        rlock__cluster_ask(cluster);
    }
    rlock__cluster_plan(cluster);
}

/* --- what a node reports --- */

static void rlock__node_answered(void *owner, rlock_request *request, const rlock_answer *answer) {
    rlock__node *node = (rlock__node *)owner;
    const rlock__cluster *cluster = node->cluster;
    bool busy = answer->outcome == RLOCK_OUTCOME_FAULT && answer->fault == RLOCK_FAULT_BUSY;
    RLOCK_ASSERT(!busy || answer->text);
    RLOCK_ASSERT(request->store.own[RLOCK__HOPS] <= RLOCK__HOPS_MAX);
    if (busy && rlock__node_redirects(node, request, answer)) {
        return;
    }
    if (busy && rlock__begins(rlock__error_text(answer->text), "CLUSTERDOWN")) {
        rlock__cluster_want(node->cluster);
    }
#if RLOCK__HAS_REPLICAS
    if (busy && node->redis->quarantine && *node->redis->quarantine->refusal) {
        rlock__cluster_want(node->cluster);
    }
#endif
    cluster->events->answered(cluster->owner, request, answer);
}

static void rlock__node_up(void *owner, const rlock_part *part) {
    rlock__node *node = (rlock__node *)owner;
    rlock__cluster *cluster = node->cluster;
    (void)part;
    RLOCK_ASSERT(node->redis);
    node->where = RLOCK__NODE_UP;
    if (!cluster->mapped) {
        cluster->asked_us = 0;
    }
    if (cluster->wanted) {
        rlock__cluster_plan(cluster);
    }
#if RLOCK__HAS_REPLICAS
    if (node->redis->quarantine && node->redis->quarantine->late) {
        rlock__quarantine_ask(node->redis); /* its slots came to be known during the handshake */
    }
#endif
    if (node->slots) {
        rlock__slots_part its = rlock__slots_of(cluster, NULL, node->number, false);
        cluster->events->up(cluster->owner, &its.part);
    }
}

/* True if no node can be reached of those that were tried; without a map, of all that are named. */
static bool rlock__cluster_is_down(rlock__cluster *cluster) {
    uint32_t i;
    for (i = 0; i < cluster->node_count; i++) {
        const rlock__node *node = cluster->nodes[i];
        if (node && node->redis && node->where != RLOCK__NODE_DOWN) {
            return false;
        }
    }
    return cluster->mapped || !rlock__cluster_closed(cluster);
}

/* What waits at a node that is lost, and was led there by another one, goes back: nobody else would
 * be told, and whoever has the slot may answer by now. */
static void rlock__node_strands(rlock__node *node) {
    rlock__cluster *cluster = node->cluster;
    int i;
    for (i = 0; i < RLOCK__QUEUES; i++) {
        rlock_link *queue = &node->redis->queues[i], *at, *next;
        for (at = queue->next; at != queue; at = next) {
            rlock_request *request = RLOCK__OF(at, rlock_request, store.link);
            next = at->next;
            if (cluster->map[rlock__key_slot(request->key, request->key_len)] != node->number) {
                rlock__list_remove(at);
                rlock__cluster_refuse(cluster, request, RLOCK_FAULT_DOWN);
            }
        }
    }
}

static void rlock__node_down(void *owner, const rlock_part *part, rlock_fault fault,
                             const char *text) {
    rlock__node *node = (rlock__node *)owner;
    rlock__cluster *cluster = node->cluster;
    (void)part;
    node->where = RLOCK__NODE_DOWN;
    if (node->redis->last_epoch - node->redis->epoch < RLOCK__EPOCHS_LEAST) {
        rlock__node_epochs(node);
    }
    rlock__node_strands(node);
    if (!cluster->mapped) {
        cluster->asked_us = 0; /* the next one at once */
    }
    if (node->slots || !cluster->mapped) { /* else it may be of the cluster no more */
        rlock__cluster_want(cluster);
    }
    if (rlock__cluster_is_down(cluster)) {
        cluster->events->down(cluster->owner, NULL, fault, text);
    } else if (node->slots) {
        rlock__slots_part its = rlock__slots_of(cluster, NULL, node->number, false);
        cluster->events->down(cluster->owner, &its.part, fault, text);
    } else {
        rlock_client_counters(cluster->client)->faults++;
    }
}

static void rlock__node_pushing(void *owner, const rlock_part *part, unsigned what) {
    rlock__node *node = (rlock__node *)owner;
    const rlock__cluster *cluster = node->cluster;
    rlock__slots_part its = rlock__slots_of(cluster, NULL, node->number, true);
    (void)part;
    node->pushing = (uint8_t)what;
    cluster->events->pushing(cluster->owner, &its.part, what);
}

/* A node that has the key no more still listens to its channel. */
static void rlock__node_woken(void *owner, const char *key, size_t key_len) {
    const rlock__node *node = (const rlock__node *)owner;
    const rlock__cluster *cluster = node->cluster;
    if (!key || node->number == cluster->map[rlock__key_slot(key, key_len)]) {
        cluster->events->woken(cluster->owner, key, key_len);
    }
}

/* What one node publishes all of them deliver. */
static void rlock__node_notified(void *owner, const char *key, size_t key_len, uint64_t token) {
    const rlock__node *node = (const rlock__node *)owner;
    const rlock__cluster *cluster = node->cluster;
    if (node->number == cluster->map[rlock__key_slot(key, key_len)]) {
        cluster->events->notified(cluster->owner, key, key_len, token);
    }
}

static const rlock_store_events rlock__node_events = {rlock__node_answered, rlock__node_up,
                                                      rlock__node_down,     rlock__node_pushing,
                                                      rlock__node_woken,    rlock__node_notified};

/* --- the store --- */

static void rlock__cluster_submit(void *state, rlock_request *request) {
    RLOCK_ASSERT(request->key_len);
    request->store.own[RLOCK__HOPS] = 0;
    rlock__cluster_route((rlock__cluster *)state, request);
}

static void rlock__cluster_track(void *state, const char *key, size_t len, bool on) {
    rlock__cluster *cluster = (rlock__cluster *)state;
    const rlock__node *node = rlock__slot_node(cluster, rlock__key_slot(key, len));
    RLOCK_ASSERT(on || cluster->tracks);
    cluster->tracks = true;
    if (node && node->redis) {
        rlock__redis_track(node->redis, key, len, on);
    }
}

static void rlock__cluster_flush(void *state) {
    rlock__cluster *cluster = (rlock__cluster *)state;
    uint32_t i;
    if (cluster->sweeps) {
        cluster->sweeps = false;
        rlock__cluster_sweep(cluster);
    }
    for (i = 0; i < cluster->node_count; i++) {
        rlock__node *node = cluster->nodes[i];
        if (!node || !node->redis) {
            continue;
        }
        rlock__redis_flush(node->redis);
        if (node->redis->shards_moved) {
            node->redis->shards_moved = false;
            cluster->map_source = node;
            rlock__cluster_want(cluster);
        }
#if RLOCK__HAS_REPLICAS
        if (node->redis->quarantine && node->redis->quarantine->unmapped && !cluster->hurry) {
            cluster->hurry = true;
            rlock__cluster_want(cluster);
        }
#endif
    }
}

/* The keys of a set come one after the other. */
static const char *rlock__cluster_refuses(void *state, const char *key, size_t len,
                                          const rlock_terms *terms, bool fencing) {
    rlock__cluster *cluster = (rlock__cluster *)state;
    const char *why = rlock__wire_refuses(cluster->config.wire == RLOCK_WIRE_REDISSON,
                                          cluster->config.prefix, key, len, terms, fencing);
    unsigned slot = rlock__key_slot(key, len);
    RLOCK_ASSERT(!terms || terms->count);
#if RLOCK__HAS_REPLICAS
    if (!why && cluster->config.quarantine_ms) {
        why = rlock__marker_refuses(cluster->config.prefix, true, key, len);
    }
#endif
    if (!why && cluster->left && slot != cluster->left_slot) {
        why = "the keys are in different cluster slots; give them one hash tag {...}";
    }
    if (why) {
        cluster->left = 0;
    } else if (cluster->left) {
        cluster->left--;
    } else if (terms) { /* the first of them */
        cluster->left = terms->count - 1;
    }
    cluster->left_slot = slot;
    return why;
}

static unsigned rlock__cluster_pushes(void *state, const char *key, size_t len) {
    const rlock__cluster *cluster = (const rlock__cluster *)state;
    unsigned slot = rlock__key_slot(key, len);
    const rlock__node *node = rlock__slot_node(cluster, slot);
    return node && !rlock__bit(cluster->asking, slot) ? node->pushing : 0u;
}

static void rlock__cluster_close(void *state) {
    rlock__cluster *cluster = (rlock__cluster *)state;
    uint32_t i;
    for (i = 0; i < cluster->node_count; i++) {
        if (cluster->nodes[i]) {
            rlock__node_free(cluster->nodes[i]);
        }
    }
    rlock_timer_drop(cluster->client, &cluster->timer);
    for (i = 0; i < RLOCK__CLUSTER_TEXTS; i++) {
        rlock__dealloc(cluster->texts[i]);
    }
    rlock__dealloc(cluster->seeds_text);
    rlock__dealloc(cluster->seeds);
    rlock__dealloc(cluster->nodes);
    rlock__dealloc(cluster);
}

/* Returns what is wrong with the configuration of a cluster, or NULL. */
static const char *rlock__cluster_fault(const rlock_config *config, const char **detail) {
    if (config->host || config->unix_path || config->connect || config->sentinels) {
        return "config.cluster cannot be combined with config.host, unix_path, connect or "
               "sentinels";
    }
    if (config->database) {
        return "a cluster has only database 0";
    }
    return rlock__hosts_fault(
        config, config->cluster,
        "config.cluster: expected host:6379,[::1]:6379, without a user, a scheme "
        "or a blank",
        detail);
}

/* Keeps what its nodes need of a configuration. False: no memory. */
static bool rlock__cluster_keep(rlock__cluster *cluster, const rlock_config *config) {
    const char **texts[RLOCK__CLUSTER_TEXTS];
    bool failed = false;
    int i;
    cluster->config = *config;
    texts[0] = &cluster->config.username;
    texts[1] = &cluster->config.password;
    texts[2] = &cluster->config.client_name;
    texts[3] = &cluster->config.prefix;
    texts[4] = &cluster->config.description;
    for (i = 0; i < RLOCK__CLUSTER_TEXTS; i++) {
        cluster->texts[i] = rlock__copy_text(*texts[i], &failed);
        *texts[i] = cluster->texts[i];
    }
    cluster->seeds_text = rlock__copy_text(config->cluster, &failed);
    cluster->config.cluster = NULL;
    if (!failed) {
        cluster->seeds = rlock__hosts_split(cluster->seeds_text, 6379, &cluster->seed_count);
    }
    return cluster->seeds != NULL;
}

static int rlock__cluster_open(const rlock_store *store, rlock_client *client,
                               const rlock_config *config, const rlock_store_events *events,
                               void *owner, void **state) {
    const char *detail = NULL, *fault = rlock__cluster_fault(config, &detail);
    rlock__cluster *cluster;
    (void)store;
    if (!fault) {
        rlock_config node = *config;
        node.cluster = NULL;
        fault = rlock__redis_fault(&node, &detail);
    }
    if (fault) {
        rlock_client_log(client, RLOCK_LOG_ERROR, fault, detail);
        return RLOCK_ERR_ARG;
    }
    cluster = (rlock__cluster *)rlock__alloc(sizeof *cluster);
    if (!cluster || rlock__redis_hide(client, config) != RLOCK_OK ||
        rlock_timer_add(client, &cluster->timer, rlock__cluster_fire) != RLOCK_OK) {
        rlock__dealloc(cluster);
        return RLOCK_ERR_NOMEM;
    }
    cluster->client = client;
    cluster->events = events;
    cluster->of_nodes = &rlock__node_events;
    cluster->owner = owner;
    rlock__list_init(&cluster->waiting);
    rlock__list_init(&cluster->refused);
    if (!rlock__cluster_keep(cluster, config)) {
        rlock__cluster_close(cluster);
        return RLOCK_ERR_NOMEM;
    }
    *state = cluster;
    return RLOCK_OK;
}

#if RLOCK__HAS_CREDENTIALS
/* Gives them to all nodes that are there, and to those that come. */
static int rlock__cluster_set_credentials(void *state, bool sentinels, const char *username,
                                          const char *password) {
    rlock__cluster *cluster = (rlock__cluster *)state;
    int status = RLOCK_OK;
    uint32_t i;
    if (sentinels) {
        return RLOCK_ERR_ARG;
    }
    if (!rlock__credentials_copy(&cluster->texts[0], &cluster->texts[1], username, password)) {
        return RLOCK_ERR_NOMEM;
    }
    cluster->config.username = cluster->texts[0];
    cluster->config.password = cluster->texts[1];
    for (i = 0; i < cluster->node_count; i++) {
        const rlock__node *node = cluster->nodes[i];
        if (node && node->redis &&
            rlock__redis_set_credentials(node->redis, false, username, password) != RLOCK_OK) {
            status = RLOCK_ERR_NOMEM;
        }
    }
    return status;
}
#else
#define rlock__cluster_set_credentials NULL
#endif

static const rlock_store rlock__cluster_store = {NULL,
                                                 rlock__cluster_open,
                                                 rlock__cluster_close,
                                                 rlock__cluster_submit,
                                                 rlock__redis_forget,
                                                 rlock__cluster_track,
                                                 rlock__cluster_flush,
                                                 rlock__cluster_refuses,
                                                 rlock__cluster_pushes,
                                                 RLOCK_STORE_STAYS | RLOCK_STORE_ADOPTS,
                                                 rlock__cluster_set_credentials};

#endif /* RLOCK_STORE_REDIS_CLUSTER_H */
