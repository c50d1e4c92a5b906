/* A real cluster for tests: nodes on free ports, each in a folder of its own, joined by hand.
 * Included after kit.h. */
#ifndef TESTS_CLUSTER_KIT_H
#define TESTS_CLUSTER_KIT_H

#include "kit.h"

#define CLUSTER_MAX 7
#define CLUSTER_LIMIT_MS 30000

static struct server nodes[CLUSTER_MAX];
static char node_ports[CLUSTER_MAX][8], node_ids[CLUSTER_MAX][41];
static char node_seeds[CLUSTER_MAX * 24]; /* "127.0.0.1:7000,..." of all */
static int node_count, primary_count;
static const char *node_timeout = "1000"; /* ms */

static inline void node_start(int i) {
    static const char *args[CLUSTER_MAX][16];
    const char **a = args[i];
    int n = 0;

    nodes[i].port = server_free_port();
    snprintf(node_ports[i], sizeof node_ports[i], "%d", server_free_port());
    a[n++] = "--cluster-enabled", a[n++] = "yes";
    a[n++] = "--cluster-config-file", a[n++] = "nodes.conf";
    a[n++] = "--cluster-node-timeout", a[n++] = node_timeout;
    a[n++] = "--cluster-port", a[n++] = node_ports[i];
    a[n++] = "--repl-diskless-sync-delay", a[n++] = "0";
    a[n] = NULL;
    assert_int_equal(server_start(&nodes[i], a), 0);
    snprintf(node_ids[i], sizeof node_ids[i], "%.40s", str(ask(&nodes[i], "CLUSTER MYID")));
    tell(ask(&nodes[i], "CLUSTER SET-CONFIG-EPOCH %d", i + 1));
}

static inline void node_meets(int i, int other) {
    tell(ask(&nodes[i], "CLUSTER MEET 127.0.0.1 %d %s", nodes[other].port, node_ports[other]));
}

/* The first slot of each primary, and behind the last one the end. */
static inline int slots_from(int i) {
    return 16384 * i / primary_count;
}

static inline int node_knows(int i, const char *what) {
    return strstr(str(ask(&nodes[i], "CLUSTER INFO")), what) != NULL;
}

/* All nodes that run are content, know each other, and the replicas are in step. */
static inline int cluster_is_whole(void *arg) {
    char known[40];
    int i;

    (void)arg;
    snprintf(known, sizeof known, "cluster_known_nodes:%d", node_count);
    for (i = 0; i < node_count; i++) {
        const char *role;

        if (nodes[i].pid == 0 || !node_knows(i, "cluster_state:ok") || !node_knows(i, known)) {
            return 0;
        }
        role = str(ask(&nodes[i], "INFO replication"));
        if (strstr(role, "role:slave") != NULL && strstr(role, "master_link_status:up") == NULL) {
            return 0;
        }
    }
    return 1;
}

static inline void cluster_heals(void) {
    int i;

    if (!kit_until(cluster_is_whole, NULL, CLUSTER_LIMIT_MS)) {
        for (i = 0; i < node_count; i++) {
            print_message("%s%s\n", str(ask(&nodes[i], "CLUSTER NODES")), node_ports[i]);
            print_message("%s\n", str(ask(&nodes[i], "CLUSTER INFO")));
        }
        fail_msg("the cluster is not whole");
    }
}

/* Starts so many primaries, with so many replicas each. */
static inline void cluster_start(int primaries, int replicas) {
    int i, n = 0;

    primary_count = primaries;
    node_count = primaries * (1 + replicas);
    for (i = 0; i < node_count; i++) {
        node_start(i);
        n += snprintf(node_seeds + n, sizeof node_seeds - (size_t)n, "%s127.0.0.1:%d", i ? "," : "",
                      nodes[i].port);
        if (i < primaries) {
            tell(ask(&nodes[i], "CLUSTER ADDSLOTSRANGE %d %d", slots_from(i),
                     slots_from(i + 1) - 1));
        }
        if (i > 0) {
            node_meets(i, 0);
        }
    }
    if (replicas > 0) {
        for (i = primaries; i < node_count; i++) {
            int64_t end_us = kit_now_us() + CLUSTER_LIMIT_MS * 1000;
            redisReply *reply;

            do { /* as soon as it has heard of its primary */
                server_sleep_ms(20);
                reply = ask(&nodes[i], "CLUSTER REPLICATE %s", node_ids[i % primaries]);
                n = reply->type == REDIS_REPLY_ERROR;
                freeReplyObject(reply);
            } while (n && kit_now_us() < end_us);
        }
    }
    cluster_heals();
}

static inline void cluster_stop(void) {
    int i;

    kit_hand_drop();
    for (i = 0; i < node_count; i++) {
        server_resume(&nodes[i]);
        server_stop(&nodes[i]);
    }
    node_count = 0;
}

static inline int key_slot(const char *key) {
    return (int)rlock__key_slot(key, strlen(key));
}

/* A key of that node, as the slots were given out: "<name><number>". */
static inline const char *key_at(int node, const char *name) {
    static char keys[64][40];
    static int used;
    char *key = keys[used++ % 64];
    int i = 0;

    do {
        snprintf(key, sizeof keys[0], "%s%d", name, i++);
    } while (key_slot(key) < slots_from(node) || key_slot(key) >= slots_from(node + 1));
    return key;
}

/* Whether a key is at a node, which answers for its own keys alone. */
static inline bool key_is_at(int node, const char *key) {
    redisReply *reply = ask(&nodes[node], "EXISTS %s", key);
    bool there = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;

    freeReplyObject(reply);
    return there;
}

/* The node that has a slot, as one of them says; -1 = none. */
static inline int slot_node_by(int says, int slot) {
    redisReply *reply = ask(&nodes[says], "CLUSTER SLOTS");
    int port = 0, node = node_count - 1;
    size_t i;

    for (i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        const redisReply *row = reply->element[i];

        if (row->element[0]->integer <= slot && row->element[1]->integer >= slot) {
            port = (int)row->element[2]->element[1]->integer;
        }
    }
    freeReplyObject(reply);
    while (node >= 0 && nodes[node].port != port) {
        node--;
    }
    return node;
}

struct slot_at {
    int slot, node;
};

/* All primaries say so, and know of the last change: the next one is not taken for an older one. */
static inline int slot_is_at(void *arg) {
    const struct slot_at *at = (const struct slot_at *)arg;
    char epoch[40] = "";
    int i;

    for (i = 0; i < node_count; i++) {
        const char *found;

        if (i >= primary_count && i != at->node) {
            continue;
        }
        found = strstr(str(ask(&nodes[i], "CLUSTER INFO")), "cluster_current_epoch");
        if (found == NULL || (*epoch && strncmp(epoch, found, strlen(epoch)) != 0)) {
            return 0;
        }
        snprintf(epoch, sizeof epoch, "%.*s", (int)strcspn(found, "\r"), found);
        if (slot_node_by(i, at->slot) != at->node) {
            return 0;
        }
    }
    return 1;
}

/* --- a slot on its way, step by step --- */

static inline void slot_sets_out(int slot, int from, int to) {
    tell(ask(&nodes[to], "CLUSTER SETSLOT %d IMPORTING %s", slot, node_ids[from]));
    tell(ask(&nodes[from], "CLUSTER SETSLOT %d MIGRATING %s", slot, node_ids[to]));
}

/* Moves all keys of the slot. */
static inline void slot_keys_move(int slot, int from, int to) {
    redisReply *keys = ask(&nodes[from], "CLUSTER GETKEYSINSLOT %d 100", slot);
    size_t i;

    for (i = 0; i < keys->elements; i++) {
        tell(ask(&nodes[from], "MIGRATE 127.0.0.1 %d %s 0 2000", nodes[to].port,
                 keys->element[i]->str));
    }
    freeReplyObject(keys);
}

/* Tells a node who has the slot: the new one first. */
static inline void slot_arrives(int slot, int to) {
    struct slot_at at;
    int i;

    tell(ask(&nodes[to], "CLUSTER SETSLOT %d NODE %s", slot, node_ids[to]));
    for (i = 0; i < node_count; i++) {
        if (i != to && nodes[i].pid != 0 && i < primary_count) {
            tell(ask(&nodes[i], "CLUSTER SETSLOT %d NODE %s", slot, node_ids[to]));
        }
    }
    at.slot = slot;
    at.node = to;
    assert_true(kit_until(slot_is_at, &at, CLUSTER_LIMIT_MS));
}

/* --- a slot that moves whole, with all that is in it --- */

enum { BY_STEPS, BY_MIGRATESLOTS, BY_MIGRATION };

static int slots_move; /* how slot_moves does it: BY_... */

static inline bool node_has(const char *command) {
    redisReply *reply = ask(&nodes[0], "COMMAND INFO %s", command);
    bool has = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
               reply->element[0]->type == REDIS_REPLY_ARRAY;

    freeReplyObject(reply);
    return has;
}

/* How a slot moves whole: in Valkey 9, in Redis 8.4; BY_STEPS: these servers cannot do it. */
static inline int slots_move_whole(void) {
    return node_has("cluster|migrateslots") ? BY_MIGRATESLOTS
           : node_has("cluster|migration")  ? BY_MIGRATION
                                            : BY_STEPS;
}

/* The servers do it in the background, perhaps after another one. */
static inline void slot_sets_out_whole(int slot, int from, int to) {
    int64_t end_us = kit_now_us() + CLUSTER_LIMIT_MS * 1000;
    redisReply *reply;
    bool refused;

    do {
        reply = slots_move == BY_MIGRATION
                    ? ask(&nodes[to], "CLUSTER MIGRATION IMPORT %d %d", slot, slot)
                    : ask(&nodes[from], "CLUSTER MIGRATESLOTS SLOTSRANGE %d %d NODE %s", slot, slot,
                          node_ids[to]);
        refused = reply->type == REDIS_REPLY_ERROR;
        if (refused && kit_now_us() > end_us) {
            fail_msg("%s", reply->str);
        }
        freeReplyObject(reply);
        kit_run(refused ? 20 : 0);
    } while (refused);
}

static inline void slot_moves(int slot, int from, int to) {
    struct slot_at at;

    if (slots_move == BY_STEPS) {
        slot_sets_out(slot, from, to);
        slot_keys_move(slot, from, to);
        slot_arrives(slot, to);
        return;
    }
    slot_sets_out_whole(slot, from, to);
    at.slot = slot;
    at.node = to;
    assert_true(kit_until(slot_is_at, &at, CLUSTER_LIMIT_MS));
}

#endif
