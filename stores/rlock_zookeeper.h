/* rlock_zookeeper.h - the store of rlock.h in ZooKeeper, by libzookeeper_st 3.5 or newer - MIT
 *
 *     rlock_store *store;
 *     rlock_zookeeper_new(&store, "zookeeper://zk1,zk2,zk3/locks", NULL);
 *     config.store = store;                                              before rlock_client_new
 *     ...
 *     rlock_zookeeper_free(store);                                       after the clients
 *
 * Each key is a container node, and each token an ephemeral sequential node in it, so the order in
 * which they were made is the queue: FAIR, READ, WRITE and SEMAPHORE come from it, and a MUTEX is
 * its first. Fencing tokens are the zxid of the node. Several keys at once are refused.
 *
 * One session a client. All its holds last as long as the session, so a lease is at most the
 * session's timeout less a tick of the server, whatever was asked for: ask the server's operator
 * for both. A hold whose lease is shorter is deleted by its own client when that ends; if the client
 * is gone, the server keeps it for the session's timeout.
 *
 * Everything here is static inline: include it after rlock.h, link with -lzookeeper_st, not with
 * the library that has threads (-lzookeeper_mt). Names are resolved by the loop. The server speaks
 * plain text: that library has no TLS. A key has at most 1,000 bytes. */

#ifndef RLOCK_ZOOKEEPER_H
#define RLOCK_ZOOKEEPER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <zookeeper/zookeeper.h>

#include "rlock.h"

RLOCK__C_CASTS_BEGIN

/* What rlock_zookeeper_new reads, and copies. Zero is the default of each. */
typedef struct rlock_zookeeper_options {
    int session_ms; /* the timeout to ask for; default 10,000. The server gives 2 to 20 ticks */
    int tick_ms;    /* the server's tickTime, which may come off a lease; default 2,000 */
} rlock_zookeeper_options;

#define RLOCK__ZK_KEY_MAX 1000u
#define RLOCK__ZK_PATH 2400u /* bytes of a path */
#define RLOCK__ZK_HOSTS 16
#define RLOCK__ZK_BUCKETS 256
#define RLOCK__ZK_OF(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

/* A node of ours. */
typedef struct rlock__zk_node {
    rlock_link link; /* in its bucket */
    uint64_t token;
    bool holds, gone; /* gone: the server has said so */
    uint8_t waits;    /* nobody, or for the node `before`, or for any change of the line */
    int64_t czxid;    /* 0 = not known */
    int64_t end_us;   /* of the lease of a hold */
    uint32_t before;
    bool queued;
    size_t parent; /* bytes of the path that are the key's */
    char path[1];  /* longer; without a name behind the parent's: it is not known */
} rlock__zk_node;

enum { RLOCK__ZK_WAITS_NOT, RLOCK__ZK_WAITS_FOR_ONE, RLOCK__ZK_WAITS_FOR_ANY };

/* What is being done for a request, which may be forgotten meanwhile. */
typedef struct rlock__zk_op {
    rlock_link link;
    struct rlock__zk *zk;
    rlock_request *request; /* NULL: it was forgotten */
    uint8_t op, flags;
    char sort;
    bool made, looked; /* the parent was made; a list was read before */
    int made_rc;       /* of the node */
    int64_t czxid, sent_us, lease_ms;
    uint64_t token, writer;
    uint32_t permits, weight, number;
    uint32_t fences;
    int left; /* answers that are awaited, of FORCE */
    int64_t count;
    size_t parent;
    char path[RLOCK__ZK_PATH]; /* the parent's, then a node's */
} rlock__zk_op;

typedef struct rlock__zk { /* the store as one client sees it */
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_stats *stats;
    zhandle_t *zh;
    int fd;
    rlock_io io;
    rlock_timer timer;
    rlock_link requests, ops; /* submitted, and not sent; being done */
    rlock_link buckets[RLOCK__ZK_BUCKETS];
    bool up, expired, resolving, closing, busy;
    int64_t timeout_us, alive_us, next_us, backoff_ms;
    int64_t session_ms, tick_ms;
    char hosts[512], chroot[256];
    char addresses[1024], asking[128];
    const char *at; /* the host that is being resolved */
    rlock_name name;
    rlock_info info;
    char holder[64], words[128];
} rlock__zk;

typedef struct rlock__zk_store {
    rlock_store store;
    rlock_zookeeper_options options;
    char url[1];
} rlock__zk_store;

static inline void rlock__zk_begin(rlock__zk *zk, rlock__zk_op *op);
static inline void rlock__zk_turn(rlock__zk *zk, int events);

/* --- small things --- */

static inline void rlock__zk_list_init(rlock_link *list) {
    list->prev = list->next = list;
}

static inline void rlock__zk_list_remove(rlock_link *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    rlock__zk_list_init(link);
}

static inline void rlock__zk_list_add(rlock_link *list, rlock_link *link) {
    link->prev = list->prev;
    link->next = list;
    link->prev->next = list->prev = link;
}

static inline char rlock__zk_sort(const rlock_request *request) {
    return "mfrws"[request->terms ? request->terms->kind : RLOCK_KIND_MUTEX]; /* [rlock_kind] */
}

/* READ and WRITE go with each other; d is a reader beside the writer of its owner. */
static inline char rlock__zk_group(char sort) {
    return sort == 'r' || sort == 'd' ? 'w' : sort;
}

static inline rlock_fault rlock__zk_fault(int rc) {
    switch (rc) {
    case ZNOAUTH:
    case ZAUTHFAILED: return RLOCK_FAULT_AUTH;
    case ZNOTREADONLY: return RLOCK_FAULT_BUSY;
    case ZSYSTEMERROR:
    case ZMARSHALLINGERROR: return RLOCK_FAULT_NOMEM;
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZSESSIONEXPIRED:
    case ZSESSIONMOVED:
    case ZCLOSING:
    case ZINVALIDSTATE: return RLOCK_FAULT_UNKNOWN;
    default: return RLOCK_FAULT_OTHER;
    }
}

/* --- nodes --- */

static inline rlock_link *rlock__zk_bucket(rlock__zk *zk, uint64_t token) {
    return &zk->buckets[token % RLOCK__ZK_BUCKETS];
}

static inline rlock__zk_node *rlock__zk_find(rlock__zk *zk, uint64_t token) {
    rlock_link *list = rlock__zk_bucket(zk, token), *at = list->next;
    while (at != list && RLOCK__ZK_OF(at, rlock__zk_node, link)->token != token) {
        at = at->next;
    }
    return at == list ? NULL : RLOCK__ZK_OF(at, rlock__zk_node, link);
}

static inline void rlock__zk_drop(rlock__zk_node *node) {
    if (node) {
        rlock__zk_list_remove(&node->link);
        free(node);
    }
}

/* Notes the node of an operation's token; NULL: no memory. */
static inline rlock__zk_node *rlock__zk_note(rlock__zk_op *op, const char *path) {
    rlock__zk_node *node = rlock__zk_find(op->zk, op->token);
    size_t len = strlen(path);
    if (node && strcmp(node->path, path) != 0) {
        rlock__zk_drop(node);
        node = NULL;
    }
    if (!node) {
        node = (rlock__zk_node *)calloc(1, sizeof *node + len);
        if (!node) {
            return NULL;
        }
        memcpy(node->path, path, len + 1);
        node->token = op->token;
        node->parent = op->parent;
        node->queued = op->sort != 'm';
        rlock__zk_list_add(rlock__zk_bucket(op->zk, op->token), &node->link);
    }
    return node;
}

/* --- a line: the children of a key --- */

typedef struct rlock__zk_child {
    const char *name;
    size_t token_len; /* of the token, at the head of the name */
    char sort;        /* p: a number of permits that was set */
    uint32_t weight, seq;
} rlock__zk_child;

/* False: it is not one of ours. */
static inline bool rlock__zk_child_of(const char *name, rlock__zk_child *child) {
    size_t len = strlen(name);
    const char *at = strchr(name, ':'), *kind = at ? strchr(at + 1, ':') : NULL;
    const char *seq = kind ? strchr(kind + 1, ':') : NULL;
    memset(child, 0, sizeof *child);
    child->name = name;
    if (!seq || len < 10 || strspn(seq + 1, "0123456789") != strlen(seq + 1)) {
        return false;
    }
    child->token_len = (size_t)(kind - name);
    child->sort = kind[1];
    child->weight = (uint32_t)strtoul(kind + 2, NULL, 10);
    child->seq = (uint32_t)strtoul(seq + 1, NULL, 10);
    return strchr("mfrwdsp", child->sort) != NULL;
}

/* The line as one token sees it. */
typedef struct rlock__zk_line {
    bool found, holds, differs;
    rlock__zk_child own, blocks; /* blocks: whose end may let it in; the last that is before it */
    uint32_t permits;
    uint64_t used; /* by those that hold */
    int64_t holders, waiters, position;
    rlock__zk_child holder;
    int others;
} rlock__zk_line;

static inline bool rlock__zk_is(const rlock__zk_child *child, const char *token) {
    return strlen(token) == child->token_len && memcmp(child->name, token, child->token_len) == 0;
}

/* Whether one that is before keeps another out, of all sorts but semaphores. */
static inline bool rlock__zk_keeps_out(const rlock__zk_child *before, const rlock__zk_child *own) {
    bool first = before->seq < own->seq;
    if (own->sort == 'r') {
        return before->sort == 'w' && first;
    }
    return before->sort == 'd' || first;
}

/* Reads who holds, by the names alone: everybody who reads the same line comes to the same. */
static inline void rlock__zk_read(const struct String_vector *names, char sort, uint32_t permits,
                                  const char *token, rlock__zk_line *line) {
    rlock__zk_child child, other;
    int i, k;
    memset(line, 0, sizeof *line);
    line->permits = permits;
    line->position = -1;
    for (i = 0; i < names->count; i++) {
        if (rlock__zk_child_of(names->data[i], &child)) {
            if (child.sort == 'p') {
                line->permits = child.weight;
                line->differs = line->differs || sort != 's';
            } else if (rlock__zk_is(&child, token)) {
                line->found = true;
                line->own = child;
            } else {
                line->differs =
                    line->differs || rlock__zk_group(child.sort) != rlock__zk_group(sort);
                line->others++;
            }
        }
    }
    for (i = 0; i < names->count; i++) {
        uint64_t before = 0;
        bool holds = true, mine;
        if (!rlock__zk_child_of(names->data[i], &child) || child.sort == 'p') {
            continue;
        }
        mine = line->found && child.seq == line->own.seq;
        for (k = 0; k < names->count; k++) {
            bool valid = rlock__zk_child_of(names->data[k], &other) && other.sort != 'p' && k != i;
            if (!valid) {
                continue;
            }
            if (child.sort == 's') {
                before += other.seq < child.seq && other.weight <= line->permits ? other.weight : 0;
                if (mine && other.seq < child.seq && other.seq >= line->blocks.seq) {
                    line->blocks = other;
                }
            } else if (child.sort != 'd' && rlock__zk_keeps_out(&other, &child)) {
                holds = false;
                if (mine && (!line->blocks.name || other.seq > line->blocks.seq)) {
                    line->blocks = other;
                }
            }
        }
        holds = child.sort == 's' ? before + child.weight <= line->permits : holds;
        if (mine) {
            line->holds = holds;
        }
        if (holds) {
            line->holders++;
            line->used += child.weight;
            line->holder = child;
        } else {
            line->waiters++;
        }
    }
    for (i = 0; i < names->count && line->found && !line->holds;
         i++) { /* how many wait before it */
        if (rlock__zk_child_of(names->data[i], &child) && child.sort != 'p') {
            line->position += child.seq < line->own.seq;
        }
    }
    if (line->found && !line->holds) {
        line->position += 1 - line->holders;
        line->position = line->position < 0 ? 0 : line->position;
    }
}

/* --- answers --- */

static inline void rlock__zk_end(rlock__zk_op *op) {
    rlock__zk_list_remove(&op->link);
    free(op);
}

static inline void rlock__zk_answer(rlock__zk_op *op, const rlock_answer *answer) {
    rlock__zk *zk = op->zk;
    rlock_request *request = op->request;
    rlock__zk_end(op);
    if (request) {
        zk->events->answered(zk->owner, request, answer);
    }
}

static inline void rlock__zk_answer_fault(rlock__zk_op *op, rlock_fault fault, const char *text,
                                          bool undone) {
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_FAULT;
    answer.fault = fault;
    answer.text = text;
    answer.undone = undone;
    rlock__zk_answer(op, &answer);
}

static inline void rlock__zk_answer_rc(rlock__zk_op *op, int rc) {
    rlock__zk_answer_fault(op, rlock__zk_fault(rc), zerror(rc), false);
}

/* An earlier request of a session is done before a later one, or never: so each answer is sure. */
static inline void rlock__zk_answer_plain(rlock__zk_op *op, rlock_outcome outcome) {
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.outcome = outcome;
    answer.sure = true;
    answer.left_ms = -1;
    rlock__zk_answer(op, &answer);
}

/* A hold, or its renewal. The server counts from what it heard last, and a follower that dies may
 * have kept that to itself for a tick. */
static inline void rlock__zk_answer_held(rlock__zk_op *op, rlock__zk_node *node) {
    rlock__zk *zk = op->zk;
    rlock_answer answer;
    int64_t lease_ms = zoo_recv_timeout(zk->zh) - zk->tick_ms;
    memset(&answer, 0, sizeof answer);
    answer.sure = true;
    answer.lease_ms = lease_ms < op->lease_ms ? (lease_ms > 0 ? lease_ms : 1) : 0;
    if (op->lease_ms && node->end_us < op->sent_us + op->lease_ms * 1000) {
        node->end_us = op->sent_us + op->lease_ms * 1000;
        if (zk->next_us < 0 || node->end_us < zk->next_us) {
            zk->next_us = node->end_us;
        }
    }
    if (op->op == RLOCK_OP_ACQUIRE && op->fences) {
        answer.fence = (uint64_t)node->czxid;
        answer.fences = 1; /* so a hold that has one is not handed on in this process */
    }
    if (op->request) {
        op->request->sent_us = op->sent_us;
    }
    rlock__zk_answer(op, &answer);
}

/* --- what changes --- */

/* The key of a path, from hex. Returns its length. */
static inline size_t rlock__zk_key(const rlock__zk *zk, const char *path, char *key) {
    const char *hex = path + strlen(zk->chroot) + 1;
    size_t n = 0;
    unsigned byte;
    while (hex[0] && hex[0] != '/' && n < RLOCK__ZK_KEY_MAX && sscanf(hex, "%2x", &byte) == 1) {
        key[n++] = (char)byte;
        hex += 2;
    }
    return n;
}

/* Notifies those of ours in this line who wait for it, or for the node of that number. */
static inline void rlock__zk_call(rlock__zk *zk, const char *path, size_t parent, bool any,
                                  uint32_t seq) {
    char key[RLOCK__ZK_KEY_MAX];
    size_t len = rlock__zk_key(zk, path, key);
    int i;
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        rlock_link *at = zk->buckets[i].next, *next;
        for (; at != &zk->buckets[i]; at = next) {
            rlock__zk_node *node = RLOCK__ZK_OF(at, rlock__zk_node, link);
            bool called =
                node->waits == RLOCK__ZK_WAITS_FOR_ANY
                    ? any
                    : node->waits == RLOCK__ZK_WAITS_FOR_ONE && !any && node->before == seq;
            next = at->next;
            if (called && node->parent == parent && memcmp(node->path, path, parent) == 0) {
                node->waits = RLOCK__ZK_WAITS_NOT;
                zk->events->notified(zk->owner, key, len, node->token);
            }
        }
    }
}

/* A node that was watched is gone: a hold of ours, or who was before somebody of ours. */
static inline void rlock__zk_deleted(rlock__zk *zk, const char *path) {
    const char *name = strrchr(path, '/');
    char key[RLOCK__ZK_KEY_MAX];
    size_t len = rlock__zk_key(zk, path, key);
    rlock__zk_child child;
    rlock__zk_node *node;
    if (!name || !rlock__zk_child_of(name + 1, &child)) {
        return;
    }
    zk->stats->woken++;
    if (strncmp(child.name, rlock_client_id(zk->client), 36) == 0) {
        node = rlock__zk_find(zk, strtoull(child.name + 37, NULL, 10));
        if (node && strcmp(node->path, path) == 0) {
            node->gone = true;
            if (node->holds && node->queued) {
                zk->events->notified(zk->owner, key, len, node->token);
            }
        }
    }
    rlock__zk_call(zk, path, (size_t)(name - path), false, child.seq);
    zk->events->woken(zk->owner, key, len);
}

static inline void rlock__zk_down(rlock__zk *zk, const char *text) {
    rlock_report report;
    if (zk->up) {
        memset(&report, 0, sizeof report);
        report.kind = RLOCK_REPORT_DISCONNECTED;
        report.text = text;
        rlock_client_report(zk->client, &report);
        rlock_client_log(zk->client, RLOCK_LOG_WARNING, "connection to ZooKeeper", text);
    }
    zk->up = false;
    zk->events->down(zk->owner, NULL, RLOCK_FAULT_DOWN, text);
}

static inline void rlock__zk_ready(rlock__zk *zk) {
    rlock_report report;
    memset(&report, 0, sizeof report);
    report.kind = RLOCK_REPORT_CONNECTED;
    rlock_client_report(zk->client, &report);
    zk->up = true;
    zk->backoff_ms = 0;
    zk->stats->connects++;
    zk->events->up(zk->owner, NULL);
    zk->events->pushing(zk->owner, NULL, RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
}

/* Of the session, and of each node that is watched. */
static inline void rlock__zk_on_event(zhandle_t *zh, int type, int state, const char *path,
                                      void *data) {
    rlock__zk *zk = (rlock__zk *)data;
    (void)zh;
    if (zk->closing) {
        return;
    }
    if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE) {
        rlock__zk_ready(zk);
    } else if (type == ZOO_SESSION_EVENT &&
               (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE)) {
        zk->expired = true;
    } else if (type == ZOO_SESSION_EVENT && zk->up) {
        rlock__zk_down(zk, "the connection ended");
    } else if (type == ZOO_DELETED_EVENT) {
        rlock__zk_deleted(zk, path);
    } else if (type == ZOO_CHILD_EVENT) {
        rlock__zk_call(zk, path, strlen(path), true, 0);
    }
}

/* --- what is answered --- */

static inline void rlock__zk_on_line(int rc, const struct String_vector *names, const void *data);
static inline void rlock__zk_make(rlock__zk_op *op);

static inline rlock__zk_op *rlock__zk_heard(const void *data) {
    rlock__zk_op *op = (rlock__zk_op *)(uintptr_t)data;
    op->zk->alive_us = rlock_client_now_us(op->zk->client);
    return op;
}

static inline void rlock__zk_on_nothing(int rc, const void *data) {
    (void)rc, (void)data;
}

static inline void rlock__zk_on_ignored(int rc, const char *value, const void *data) {
    (void)rc, (void)value, (void)data;
}

/* The watch on a hold: the path is the caller's. */
typedef struct rlock__zk_watch {
    rlock__zk *zk;
    char path[1];
} rlock__zk_watch;

static inline void rlock__zk_on_watched(int rc, const struct Stat *stat, const void *data) {
    rlock__zk_watch *watch = (rlock__zk_watch *)(uintptr_t)data;
    (void)stat;
    if (rc == ZNONODE && !watch->zk->closing) {
        rlock__zk_deleted(watch->zk, watch->path);
    }
    free(watch);
}

/* Asks to be told when a hold is taken away. Without memory its next renewal tells it. */
static inline void rlock__zk_watch_own(rlock__zk *zk, const char *path) {
    rlock__zk_watch *watch = (rlock__zk_watch *)malloc(sizeof *watch + strlen(path));
    if (watch) {
        watch->zk = zk;
        memcpy(watch->path, path, strlen(path) + 1);
        zk->stats->commands++;
        if (zoo_aexists(zk->zh, path, 1, rlock__zk_on_watched, watch) != ZOK) {
            free(watch);
        }
    }
}

static inline void rlock__zk_look(rlock__zk_op *op, int watch) {
    int rc;
    op->zk->stats->commands++;
    op->path[op->parent] = 0;
    rc = zoo_aget_children(op->zk->zh, op->path, watch, rlock__zk_on_line, op);
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
    }
}

static inline void rlock__zk_token(const rlock__zk *zk, char text[64], uint64_t token) {
    snprintf(text, 64, "%s:%llu", rlock_client_id(zk->client), (unsigned long long)token);
}

/* The path of a child of this key. */
static inline const char *rlock__zk_path(rlock__zk_op *op, const char *name) {
    snprintf(op->path + op->parent, sizeof op->path - op->parent, "/%s", name);
    return op->path;
}

/* Takes the operation's own node away; what is not there is gone. */
static inline void rlock__zk_leave(rlock__zk_op *op, const rlock__zk_child *own) {
    op->zk->stats->commands++;
    zoo_adelete(op->zk->zh, rlock__zk_path(op, own->name), -1, rlock__zk_on_nothing, NULL);
    rlock__zk_drop(rlock__zk_find(op->zk, op->token));
    op->path[op->parent] = 0;
    op->made_rc = 0;
}

/* Whether who is before is watched; or it is gone, and the line is read again. */
static inline void rlock__zk_on_before(int rc, const struct Stat *stat, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    rlock_answer answer;
    (void)stat;
    if (rc == ZNONODE) {
        rlock__zk_look(op, 0);
        return;
    }
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
        return;
    }
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_HELD;
    answer.sure = answer.told = true;
    answer.left_ms = -1;
    rlock__zk_answer(op, &answer);
}

/* A hold whose node was made in an attempt before: its czxid is not known. */
static inline void rlock__zk_on_own(int rc, const struct Stat *stat, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    rlock__zk_node *node = rlock__zk_find(op->zk, op->token);
    if (rc == ZOK && node) {
        node->czxid = stat->czxid;
        node->holds = true;
        node->waits = RLOCK__ZK_WAITS_NOT;
        rlock__zk_answer_held(op, node);
    } else if (rc == ZNONODE && op->op == RLOCK_OP_RENEW) {
        rlock__zk_drop(node);
        rlock__zk_look(op, 0); /* gone, or is somebody else there? */
    } else if (rc == ZNONODE) {
        rlock__zk_answer_rc(op, ZCONNECTIONLOSS); /* taken away in between */
    } else {
        rlock__zk_answer_rc(op, rc);
    }
}

/* The answer to an acquire of whom the line lets in. */
static inline void rlock__zk_enter(rlock__zk_op *op, const rlock__zk_child *own) {
    rlock__zk *zk = op->zk;
    rlock__zk_node *node = rlock__zk_note(op, rlock__zk_path(op, own->name));
    if (!node) {
        rlock__zk_answer_fault(op, RLOCK_FAULT_NOMEM, NULL, false);
    } else if (node->czxid) {
        node->holds = true;
        node->waits = RLOCK__ZK_WAITS_NOT;
        rlock__zk_watch_own(zk, node->path);
        rlock__zk_answer_held(op, node);
    } else {
        int rc = zoo_aexists(zk->zh, node->path, 1, rlock__zk_on_own, op);
        zk->stats->commands++;
        if (rc != ZOK) {
            rlock__zk_answer_rc(op, rc);
        }
    }
}

/* The answer to an acquire that has to wait, or may not. */
static inline void rlock__zk_wait(rlock__zk_op *op, const rlock__zk_line *line) {
    rlock__zk *zk = op->zk;
    bool once = (op->flags & RLOCK_REQUEST_ONCE) != 0, stays = op->sort != 'm' && !once;
    bool tracks = stays || (op->sort == 'm' && (op->flags & RLOCK_REQUEST_TRACK));
    char before[RLOCK__ZK_PATH];
    rlock__zk_node *node;
    int rc;
    snprintf(before, sizeof before, "%s",
             rlock__zk_path(op, line->blocks.name ? line->blocks.name : ""));
    if (!stays) {
        rlock__zk_leave(op, &line->own);
    } else {
        node = rlock__zk_note(op, rlock__zk_path(op, line->own.name));
        if (!node) {
            rlock__zk_answer_fault(op, RLOCK_FAULT_NOMEM, NULL, false);
            return;
        }
        node->holds = false;
        node->before = line->blocks.seq;
        node->waits = op->sort == 's' ? RLOCK__ZK_WAITS_FOR_ANY : RLOCK__ZK_WAITS_FOR_ONE;
    }
    if (op->sort == 's' && stays && !op->looked) {
        op->looked = true; /* once more, and the line is watched */
        rlock__zk_look(op, 1);
    } else if (op->sort == 's' || !tracks || !line->blocks.name) {
        rlock__zk_answer_plain(op, RLOCK_OUTCOME_HELD);
    } else {
        zk->stats->commands++;
        rc = zoo_aexists(zk->zh, before, 1, rlock__zk_on_before, op);
        if (rc != ZOK) {
            rlock__zk_answer_rc(op, rc);
        }
    }
}

/* Whether the writer beside which a reader came is there still. */
static inline bool rlock__zk_has(const struct String_vector *names, const char *token) {
    rlock__zk_child child;
    int i;
    for (i = 0; i < names->count; i++) {
        if (rlock__zk_child_of(names->data[i], &child) && child.sort == 'w' &&
            rlock__zk_is(&child, token)) {
            return true;
        }
    }
    return false;
}

static inline void rlock__zk_acquire(rlock__zk_op *op, const struct String_vector *names,
                                     const rlock__zk_line *line) {
    char writer[64];
    rlock__zk_token(op->zk, writer, op->writer);
    if (!line->found) {
        if (op->count++ < 8) {
            rlock__zk_make(op);
        } else {
            rlock__zk_answer_rc(op, ZCONNECTIONLOSS);
        }
    } else if (line->differs) {
        rlock__zk_leave(op, &line->own);
        rlock__zk_answer_fault(op, RLOCK_FAULT_TYPE, "the key is in use as another kind of lock",
                               true);
    } else if (line->own.sort == 'd' && !rlock__zk_has(names, writer)) {
        rlock__zk_leave(op, &line->own); /* it stands in the line like any other */
        op->writer = 0;
        rlock__zk_make(op);
    } else if (line->holds) {
        rlock__zk_enter(op, &line->own);
    } else if (op->writer && line->own.sort == 'r' && rlock__zk_has(names, writer)) {
        rlock__zk_leave(op, &line->own); /* it comes beside its writer, out of the line */
        rlock__zk_make(op);
    } else {
        rlock__zk_wait(op, line);
    }
}

static inline void rlock__zk_on_deleted(int rc, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    if (rc == ZOK || (rc == ZNONODE && op->looked)) {
        rlock__zk_drop(rlock__zk_find(op->zk, op->token));
        rlock__zk_answer_plain(op,
                               rc == ZOK && op->count ? RLOCK_OUTCOME_DONE : RLOCK_OUTCOME_GONE);
    } else if (rc == ZNONODE) {
        rlock__zk_drop(rlock__zk_find(op->zk, op->token));
        rlock__zk_look(op, 0); /* gone, or is somebody else there? */
    } else {
        rlock__zk_answer_rc(op, rc);
    }
}

/* A release or a renewal, whose node's path was not known, or which is not there. */
static inline void rlock__zk_keep(rlock__zk_op *op, const rlock__zk_line *line) {
    rlock__zk *zk = op->zk;
    bool full = line->used + op->weight > line->permits;
    if (line->differs && !line->found) {
        rlock__zk_answer_fault(op, RLOCK_FAULT_TYPE, NULL, true);
    } else if (line->found && op->op == RLOCK_OP_RELEASE) {
        op->looked = true;
        op->count = line->holds;
        zk->stats->commands++;
        if (zoo_adelete(zk->zh, rlock__zk_path(op, line->own.name), -1, rlock__zk_on_deleted, op) !=
            ZOK) {
            rlock__zk_answer_rc(op, ZCONNECTIONLOSS);
        }
    } else if (line->found && line->holds) {
        rlock__zk_enter(op, &line->own);
    } else {
        bool stolen =
            op->sort == 's' || op->sort == 'r' ? full && line->holders > 0 : line->holders > 0;
        rlock__zk_answer_plain(op, stolen ? RLOCK_OUTCOME_STOLEN : RLOCK_OUTCOME_GONE);
    }
}

static inline void rlock__zk_inspect(rlock__zk_op *op, const rlock__zk_line *line) {
    rlock__zk *zk = op->zk;
    rlock_info *info = &zk->info;
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    memset(info, 0, sizeof *info);
    answer.sure = true;
    answer.info = info;
    info->holders = line->holders;
    info->left_ms = line->holders ? -1 : 0;
    info->waiters = op->sort == 'm' ? -1 : line->waiters;
    info->permits = line->permits > line->used ? (int64_t)(line->permits - line->used) : 0;
    info->position = line->found && !line->holds && op->token ? line->position : -1;
    if (line->holders) {
        snprintf(zk->holder, sizeof zk->holder, "%.*s", (int)line->holder.token_len,
                 line->holder.name);
        info->token = zk->holder;
        info->token_len = strlen(zk->holder);
    }
    rlock__zk_answer(op, &answer);
}

static inline void rlock__zk_answer_count(rlock__zk_op *op) {
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    memset(&op->zk->info, 0, sizeof op->zk->info);
    op->zk->info.holders = op->count;
    answer.sure = true;
    answer.info = &op->zk->info;
    rlock__zk_answer(op, &answer);
}

static inline void rlock__zk_on_forced(int rc, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    op->count += rc == ZOK;
    op->made_rc = rc != ZOK && rc != ZNONODE ? rc : op->made_rc;
    if (--op->left == 0) {
        if (op->made_rc) {
            rlock__zk_answer_rc(op, op->made_rc);
        } else {
            rlock__zk_answer_count(op);
        }
    }
}

static inline void rlock__zk_force(rlock__zk_op *op, const struct String_vector *names) {
    rlock__zk *zk = op->zk;
    int i;
    op->left = 1;
    op->made_rc = 0;
    op->count = 0;
    for (i = 0; i < names->count; i++) {
        rlock__zk_child child;
        rlock__zk_line line;
        char token[80];
        if (!rlock__zk_child_of(names->data[i], &child) || child.sort == 'p') {
            continue;
        }
        snprintf(token, sizeof token, "%.*s", (int)child.token_len, child.name);
        rlock__zk_read(names, op->sort, op->permits, token, &line);
        zk->stats->commands++;
        if (line.holds && zoo_adelete(zk->zh, rlock__zk_path(op, child.name), -1,
                                      rlock__zk_on_forced, op) == ZOK) {
            op->left++;
        }
    }
    if (--op->left == 0) {
        rlock__zk_answer_count(op);
    }
}

static inline void rlock__zk_on_set(int rc, const char *value, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    (void)value;
    op->count = 0;
    if (rc == ZOK) {
        rlock__zk_answer_count(op);
    } else {
        rlock__zk_answer_rc(op, rc);
    }
}

static inline void rlock__zk_parents(rlock__zk_op *op, string_completion_t done);

/* The number is a node among the others: who reads the line reads it too. */
static inline void rlock__zk_set(rlock__zk_op *op, const struct String_vector *names) {
    rlock__zk *zk = op->zk;
    char name[48];
    int i;
    for (i = 0; names && i < names->count; i++) {
        rlock__zk_child child;
        if (rlock__zk_child_of(names->data[i], &child) && child.sort == 'p') {
            zoo_adelete(zk->zh, rlock__zk_path(op, child.name), -1, rlock__zk_on_nothing, NULL);
        }
    }
    if (!op->number) {
        op->count = 0;
        rlock__zk_answer_count(op);
        return;
    }
    if (!names) {
        rlock__zk_parents(op, rlock__zk_on_ignored);
    }
    snprintf(name, sizeof name, "permits:0:p%u:", (unsigned)op->number);
    zk->stats->commands++;
    if (zoo_acreate(zk->zh, rlock__zk_path(op, name), "", 0, &ZOO_OPEN_ACL_UNSAFE,
                    ZOO_PERSISTENT_SEQUENTIAL, rlock__zk_on_set, op) != ZOK) {
        rlock__zk_answer_rc(op, ZCONNECTIONLOSS);
    }
}

/* The line was read: what it means for the request. */
static inline void rlock__zk_on_line(int rc, const struct String_vector *names, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    struct String_vector none = {0, NULL};
    rlock__zk_line line;
    char token[64];
    if (rc == ZNONODE && op->op == RLOCK_OP_ACQUIRE) {
        if (op->count++ < 8) {
            rlock__zk_parents(op, rlock__zk_on_ignored);
            rlock__zk_make(op);
        } else {
            rlock__zk_answer_rc(op, ZCONNECTIONLOSS);
        }
        return;
    }
    if (rc == ZNONODE && op->op == RLOCK_OP_SET_PERMITS) {
        rlock__zk_set(op, NULL);
        return;
    }
    if (rc != ZOK && rc != ZNONODE) {
        rlock__zk_answer_rc(op, rc);
        return;
    }
    names = rc == ZOK ? names : &none;
    rlock__zk_token(op->zk, token, op->token);
    rlock__zk_read(names, op->sort, op->permits, token, &line);
    if (op->op == RLOCK_OP_ACQUIRE) {
        rlock__zk_acquire(op, names, &line);
    } else if (op->op < RLOCK_OP_INSPECT) {
        rlock__zk_keep(op, &line);
    } else if (line.differs) {
        rlock__zk_answer_fault(op, RLOCK_FAULT_TYPE, NULL, true);
    } else if (op->op == RLOCK_OP_INSPECT) {
        rlock__zk_inspect(op, &line);
    } else if (op->op == RLOCK_OP_FORCE) {
        rlock__zk_force(op, names);
    } else {
        rlock__zk_set(op, names);
    }
}

static inline void rlock__zk_on_made(int rc, const char *value, const struct Stat *stat,
                                     const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    if (rc == ZOK) { /* the line is on its way behind this, and tells all the rest */
        rlock__zk_node *node = rlock__zk_note(op, value);
        if (node) {
            node->czxid = stat->czxid;
        }
    }
}

/* --- what is sent --- */

/* Makes the nodes above a line; those that are there stay. */
static inline void rlock__zk_parents(rlock__zk_op *op, string_completion_t done) {
    rlock__zk *zk = op->zk;
    char path[RLOCK__ZK_PATH];
    size_t i;
    for (i = 1; i <= op->parent; i++) {
        if (i < op->parent && op->path[i] != '/') {
            continue;
        }
        snprintf(path, sizeof path, "%.*s", (int)i, op->path);
        zk->stats->commands++;
        zoo_acreate(zk->zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE,
                    i < op->parent ? ZOO_PERSISTENT : ZOO_CONTAINER, done, NULL);
    }
}

/* Makes the node of a token, and reads the line behind it: a session's requests run in order. */
static inline void rlock__zk_make(rlock__zk_op *op) {
    rlock__zk *zk = op->zk;
    char name[96], token[64];
    int rc;
    rlock__zk_token(zk, token, op->token);
    snprintf(name, sizeof name, "%s:%c%u:", token, op->writer ? 'd' : op->sort,
             (unsigned)op->weight);
    op->sent_us = rlock_client_clock_us(zk->client);
    op->looked = false;
    zk->stats->commands++;
    rc = zoo_acreate2(zk->zh, rlock__zk_path(op, name), "", 0, &ZOO_OPEN_ACL_UNSAFE,
                      ZOO_EPHEMERAL_SEQUENTIAL, rlock__zk_on_made, op);
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
    } else {
        rlock__zk_look(op, 0);
    }
}

static inline void rlock__zk_begin(rlock__zk *zk, rlock__zk_op *op) {
    rlock__zk_node *node = rlock__zk_find(zk, op->token);
    int rc = ZOK;
    op->sent_us = rlock_client_clock_us(zk->client);
    if (op->request) {
        op->request->sent_us = op->sent_us;
    }
    if (node && node->gone && op->op < RLOCK_OP_INSPECT) {
        rlock__zk_drop(node);
        node = NULL;
    }
    if (op->op == RLOCK_OP_ACQUIRE && !node && !(op->flags & RLOCK_REQUEST_RETRY)) {
        rlock__zk_make(op);
    } else if (op->op == RLOCK_OP_RENEW && node && node->holds) {
        zk->stats->commands++;
        rc = zoo_aexists(zk->zh, node->path, 1, rlock__zk_on_own, op);
    } else if (op->op == RLOCK_OP_RELEASE && node) {
        op->count = node->holds;
        zk->stats->commands++;
        rc = zoo_adelete(zk->zh, node->path, -1, rlock__zk_on_deleted, op);
    } else {
        rlock__zk_look(op, 0);
    }
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
    }
}

/* --- the session --- */

static inline void rlock__zk_quiet(const char *message) {
    (void)message;
}

/* Ends the session here. Where it is connected the library would wait for its farewell: so the
 * connection is ended before. What is out is answered by this, as unknown. */
static inline void rlock__zk_shut(rlock__zk *zk) {
    if (zk->fd >= 0) {
        rlock_io_watch(zk->client, &zk->io, zk->fd, 0);
        shutdown(zk->fd, SHUT_RDWR);
        zookeeper_process(zk->zh, ZOOKEEPER_READ);
        zk->fd = -1;
    }
    if (zk->zh && !rlock_client_forked(zk->client)) {
        zookeeper_close(zk->zh);
    }
    zk->zh = NULL;
}

static inline void rlock__zk_later(rlock__zk *zk) {
    zk->backoff_ms = zk->backoff_ms ? zk->backoff_ms * 2 : 10;
    zk->backoff_ms = zk->backoff_ms > 1000 ? 1000 : zk->backoff_ms;
    rlock_timer_set(
        zk->client, &zk->timer,
        rlock_client_now_us(zk->client) + zk->backoff_ms * 500 +
            (int64_t)(rlock_client_random(zk->client) % (uint64_t)(zk->backoff_ms * 1000)));
}

/* A new session: the nodes of the one before go, or are gone. */
static inline void rlock__zk_connect(rlock__zk *zk) {
    zk->expired = false;
    zk->zh = zookeeper_init2(zk->addresses, rlock__zk_on_event, (int)zk->session_ms, NULL, zk,
                             ZOO_NO_LOG_CLIENTENV, rlock__zk_quiet);
    if (!zk->zh) {
        rlock__zk_down(zk, "no memory to connect, or no such address");
        rlock__zk_later(zk);
        return;
    }
    zoo_set_servers_resolution_delay(zk->zh, -1); /* it would ask for names in each turn */
    rlock__zk_turn(zk, 0);
}

static inline void rlock__zk_add_address(rlock__zk *zk, const char *host, const char *port) {
    size_t n = strlen(zk->addresses);
    if (n + strlen(host) + strlen(port) + 5 < sizeof zk->addresses) {
        snprintf(zk->addresses + n, sizeof zk->addresses - n,
                 strchr(host, ':') ? "%s[%s]:%s" : "%s%s:%s", n ? "," : "", host, port);
    }
}

/* Goes on with the next host of the list; when all are known, connects. */
static inline void rlock__zk_names(rlock__zk *zk) {
    while (zk->at && *zk->at) {
        unsigned char bytes[sizeof(struct in6_addr)];
        size_t len = strcspn(zk->at, ",");
        const char *port = "2181";
        char *colon;
        snprintf(zk->asking, sizeof zk->asking, "%.*s", (int)len, zk->at);
        colon = strchr(zk->asking, ':');
        if (colon) {
            *colon = 0;
            port = colon + 1;
        }
        if (inet_pton(AF_INET, zk->asking, bytes) == 1) {
            rlock__zk_add_address(zk, zk->asking, port);
        } else if (rlock_name_resolve(zk->client, &zk->name, zk->asking) == 0) {
            zk->resolving = true;
            if (colon) {
                *colon = ':';
            }
            return; /* rlock__zk_on_name follows */
        }
        zk->at += len + (zk->at[len] == ',');
    }
    if (zk->addresses[0]) {
        rlock__zk_connect(zk);
    } else {
        rlock__zk_down(zk, "the name is not resolved");
        rlock__zk_later(zk);
    }
}

static inline void rlock__zk_on_name(rlock_name *name, const struct sockaddr *const *addresses,
                                     unsigned count) {
    rlock__zk *zk = RLOCK__ZK_OF(name, rlock__zk, name);
    size_t len = strcspn(zk->at, ",");
    const char *colon = strchr(zk->asking, ':');
    char text[INET6_ADDRSTRLEN];
    unsigned i;
    zk->resolving = false;
    for (i = 0; i < count; i++) {
        const struct sockaddr *a = addresses[i];
        const void *bytes =
            a->sa_family == AF_INET
                ? (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr
                : (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        if (inet_ntop(a->sa_family, bytes, text, sizeof text)) {
            rlock__zk_add_address(zk, text, colon ? colon + 1 : "2181");
        }
    }
    zk->at += len + (zk->at[len] == ',');
    rlock__zk_names(zk);
}

static inline void rlock__zk_dial(rlock__zk *zk) {
    if (!zk->resolving) {
        zk->addresses[0] = 0;
        zk->at = zk->hosts;
        rlock__zk_names(zk);
    }
}

/* A session that has ended takes all of its nodes with it. */
static inline void rlock__zk_renewed_session(rlock__zk *zk) {
    int i;
    rlock__zk_shut(zk);
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        rlock_link *at = zk->buckets[i].next;
        for (; at != &zk->buckets[i]; at = at->next) {
            RLOCK__ZK_OF(at, rlock__zk_node, link)->gone = true;
        }
    }
    if (zk->up) {
        rlock__zk_down(zk, "the session has expired");
    }
    rlock__zk_dial(zk);
}

/* Lets the library do what is due, and watches what it waits for. It may have another socket of the
 * same number afterwards, so the old one is forgotten before. */
static inline void rlock__zk_turn(rlock__zk *zk, int events) {
    int64_t now_us = rlock_client_now_us(zk->client), due_us;
    struct timeval tv = {1, 0};
    int interest = 0, rc = ZOK, fd = -1;
    if (zk->fd >= 0) {
        rlock_io_watch(zk->client, &zk->io, zk->fd, 0);
        zk->fd = -1;
    }
    if (events) {
        rc = zookeeper_process(zk->zh, events);
    }
    if (!zk->expired) {
        rc = zookeeper_interest(zk->zh, &fd, &interest, &tv);
    }
    if (zk->expired) {
        rlock__zk_renewed_session(zk);
        return;
    }
    if (rc != ZOK && rc != ZNOTHING && !zk->up) {
        rlock__zk_down(zk, zerror(rc));
    }
    if (fd >= 0) {
        unsigned wants = (interest & ZOOKEEPER_READ ? RLOCK_IO_READ : 0u) |
                         (interest & ZOOKEEPER_WRITE ? RLOCK_IO_WRITE : 0u);
        zk->fd =
            rlock_io_watch(zk->client, &zk->io, fd, wants ? wants : RLOCK_IO_READ) == 0 ? fd : -1;
    }
    due_us = now_us + (int64_t)tv.tv_sec * 1000000 + tv.tv_usec;
    if (due_us < now_us + 1000) {
        due_us = now_us + 1000; /* it says 0 where it has something to say at once */
    }
    if (zk->next_us >= 0 && zk->next_us < due_us) {
        due_us = zk->next_us;
    }
    if (zk->ops.next != &zk->ops && due_us > zk->alive_us + zk->timeout_us) {
        due_us = zk->alive_us + zk->timeout_us;
    }
    rlock_timer_set(zk->client, &zk->timer, due_us);
}

/* A lease that was shorter than the session has ended: its node goes. */
static inline void rlock__zk_leases(rlock__zk *zk, int64_t now_us) {
    int i;
    zk->next_us = -1;
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        rlock_link *at = zk->buckets[i].next;
        for (; at != &zk->buckets[i]; at = at->next) {
            rlock__zk_node *node = RLOCK__ZK_OF(at, rlock__zk_node, link);
            if (node->holds && !node->gone && node->end_us <= now_us) {
                node->gone = true;
                zk->stats->commands++;
                zoo_adelete(zk->zh, node->path, -1, rlock__zk_on_nothing, NULL);
            } else if (node->holds && !node->gone &&
                       (zk->next_us < 0 || node->end_us < zk->next_us)) {
                zk->next_us = node->end_us;
            }
        }
    }
}

static inline void rlock__zk_fire(rlock_timer *timer) {
    rlock__zk *zk = RLOCK__ZK_OF(timer, rlock__zk, timer);
    int64_t now_us = rlock_client_now_us(zk->client);
    if (!zk->zh) {
        rlock__zk_dial(zk);
        return;
    }
    if (zk->up && zk->next_us >= 0 && zk->next_us <= now_us) {
        rlock__zk_leases(zk, now_us);
    }
    if (zk->up && zk->ops.next != &zk->ops && zk->fd >= 0 &&
        zk->alive_us + zk->timeout_us <= now_us) {
        shutdown(zk->fd, SHUT_RDWR); /* the server does not answer: another one */
        zk->alive_us = now_us;
    }
    rlock__zk_turn(zk, 0);
}

static inline void rlock__zk_on_io(rlock_io *io, unsigned events) {
    rlock__zk *zk = RLOCK__ZK_OF(io, rlock__zk, io);
    if (zk->zh) {
        rlock__zk_turn(zk, (events & RLOCK_IO_READ ? ZOOKEEPER_READ : 0) |
                               (events & RLOCK_IO_WRITE ? ZOOKEEPER_WRITE : 0));
    }
}

/* --- the store --- */

static inline void rlock__zk_submit(void *state, rlock_request *request) {
    rlock__zk *zk = (rlock__zk *)state;
    request->sent_us = rlock_client_now_us(zk->client);
    request->store.data = NULL;
    rlock__zk_list_add(&zk->requests, &request->store.link);
    if (!zk->zh && !zk->resolving) {
        rlock_timer_set(zk->client, &zk->timer, request->sent_us);
    }
}

static inline bool rlock__zk_forget(void *state, rlock_request *request) {
    rlock__zk_op *op = (rlock__zk_op *)request->store.data;
    (void)state;
    if (!op) {
        rlock__zk_list_remove(&request->store.link);
        return false;
    }
    op->request = NULL;
    return true;
}

static inline void rlock__zk_track(void *state, const char *key, size_t len, bool on) {
    (void)state, (void)key, (void)len, (void)on; /* who waits watches who is before */
}

/* What is to be done for a request; NULL: no memory. */
static inline rlock__zk_op *rlock__zk_op_new(rlock__zk *zk, rlock_request *request) {
    static const char digits[] = "0123456789abcdef";
    rlock__zk_op *op = (rlock__zk_op *)calloc(1, sizeof *op);
    size_t n, i;
    if (!op) {
        return NULL;
    }
    op->zk = zk;
    op->request = request;
    op->op = request->op;
    op->flags = request->flags;
    op->sort = rlock__zk_sort(request);
    op->token = request->token;
    op->writer = request->writer;
    op->lease_ms = request->lease_ms;
    op->fences = request->fences;
    op->number = request->permits;
    op->permits = op->sort != 'm' ? request->terms->permits : 1;
    op->weight = op->sort != 'm' ? request->terms->weight : 1;
    n = (size_t)snprintf(op->path, sizeof op->path, "%s/", zk->chroot);
    for (i = 0; i < request->key_len; i++) {
        op->path[n++] = digits[(unsigned char)request->key[i] >> 4];
        op->path[n++] = digits[(unsigned char)request->key[i] & 15];
    }
    op->parent = n;
    request->store.data = op;
    rlock__zk_list_add(&zk->ops, &op->link);
    return op;
}

static inline void rlock__zk_flush(void *state) {
    rlock__zk *zk = (rlock__zk *)state;
    bool any = false;
    if (!zk->up || zk->requests.next == &zk->requests) {
        return;
    }
    if (zk->ops.next == &zk->ops) {
        zk->alive_us = rlock_client_now_us(zk->client);
    }
    while (zk->requests.next != &zk->requests) {
        rlock_request *request = RLOCK__ZK_OF(zk->requests.next, rlock_request, store.link);
        rlock__zk_op *op = rlock__zk_op_new(zk, request);
        rlock__zk_list_remove(&request->store.link);
        any = true;
        if (op) {
            rlock__zk_begin(zk, op);
        } else {
            rlock__zk_list_add(&zk->requests, &request->store.link);
            break; /* no memory: in the next turn */
        }
    }
    if (any) { /* what the socket did not take is waited for there */
        rlock_timer_set(zk->client, &zk->timer, rlock_client_now_us(zk->client));
    }
}

static inline const char *rlock__zk_refuses(void *state, const char *key, size_t len,
                                            const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)fencing;
    return terms && terms->count > 1 ? "in ZooKeeper a lock has one key"
           : len > RLOCK__ZK_KEY_MAX ? "in ZooKeeper a key has at most 1,000 bytes"
                                     : NULL;
}

static inline void rlock__zk_close(void *state) {
    rlock__zk *zk = (rlock__zk *)state;
    int i;
    zk->closing = true;
    while (zk->requests.next != &zk->requests) {
        rlock_request *request = RLOCK__ZK_OF(zk->requests.next, rlock_request, store.link);
        rlock__zk_list_remove(&request->store.link);
    }
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        while (zk->buckets[i].next != &zk->buckets[i]) {
            rlock__zk_node *node = RLOCK__ZK_OF(zk->buckets[i].next, rlock__zk_node, link);
            if (zk->up && !node->gone) {
                zoo_adelete(zk->zh, node->path, -1, rlock__zk_on_nothing, NULL);
            }
            rlock__zk_drop(node);
        }
    }
    while (zk->ops.next != &zk->ops) { /* nobody is answered any more */
        rlock__zk_op *op = RLOCK__ZK_OF(zk->ops.next, rlock__zk_op, link);
        rlock__zk_list_remove(&op->link);
        op->request = NULL;
    }
    rlock__zk_shut(zk);
    rlock_timer_drop(zk->client, &zk->timer);
    free(zk);
}

/* zookeeper://host:port,host/chroot */
static inline bool rlock__zk_parse(rlock__zk *zk, const char *url) {
    static const char scheme[] = "zookeeper://";
    const char *hosts = url + sizeof scheme - 1;
    size_t len;
    if (strncmp(url, scheme, sizeof scheme - 1) != 0) {
        rlock_client_log(zk->client, RLOCK_LOG_ERROR, "the URL is not like zookeeper://host/path",
                         NULL);
        return false;
    }
    len = strcspn(hosts, "/");
    snprintf(zk->hosts, sizeof zk->hosts, "%.*s", (int)len, hosts);
    snprintf(zk->chroot, sizeof zk->chroot, "%s",
             hosts[len] && hosts[len + 1] ? hosts + len : "/rlock");
    if (!len || len >= sizeof zk->hosts || strlen(hosts + len) >= sizeof zk->chroot ||
        strchr(hosts, '@') || strstr(zk->chroot, "//") ||
        zk->chroot[strlen(zk->chroot) - 1] == '/') {
        rlock_client_log(zk->client, RLOCK_LOG_ERROR,
                         "the URL needs hosts, a path without an empty part, and no password",
                         NULL);
        return false;
    }
    return true;
}

static inline int rlock__zk_open(const rlock_store *store, rlock_client *client,
                                 const struct rlock_config *config,
                                 const rlock_store_events *events, void *owner, void **state) {
    const rlock__zk_store *made = (const rlock__zk_store *)store->ctx;
    rlock__zk *zk = (rlock__zk *)calloc(1, sizeof *zk);
    int i;
    if (!zk || rlock_timer_add(client, &zk->timer, rlock__zk_fire) != RLOCK_OK) {
        free(zk);
        return RLOCK_ERR_NOMEM;
    }
    zk->client = client;
    zk->events = events;
    zk->owner = owner;
    zk->stats = rlock_client_counters(client);
    zk->timeout_us = config->command_timeout_ms * 1000;
    zk->session_ms = made->options.session_ms ? made->options.session_ms : 10000;
    zk->tick_ms = made->options.tick_ms ? made->options.tick_ms : 2000;
    zk->fd = -1;
    zk->next_us = -1;
    zk->io.ready = rlock__zk_on_io;
    zk->name.resolved = rlock__zk_on_name;
    rlock__zk_list_init(&zk->requests);
    rlock__zk_list_init(&zk->ops);
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        rlock__zk_list_init(&zk->buckets[i]);
    }
    if (!rlock__zk_parse(zk, made->url)) {
        rlock__zk_close(zk);
        return RLOCK_ERR_ARG;
    }
    *state = zk;
    return RLOCK_OK;
}

static inline void rlock_zookeeper_free(rlock_store *store) {
    free(store ? store->ctx : NULL);
}

/* Makes a store of the ZooKeeper that a URL leads to, zookeeper://host1:2181,host2/path; the path,
 * "/rlock" if there is none, is made when it is needed. Any number of clients, on any threads, may
 * use it; free it after them. options may be NULL. What is wrong with the URL rlock_client_new says.
 * Errors: RLOCK_ERR_ARG (out or url is NULL, an option is negative), RLOCK_ERR_NOMEM. */
static inline int rlock_zookeeper_new(rlock_store **out, const char *url,
                                      const rlock_zookeeper_options *options) {
    static const rlock_store functions = {NULL,
                                          rlock__zk_open,
                                          rlock__zk_close,
                                          rlock__zk_submit,
                                          rlock__zk_forget,
                                          rlock__zk_track,
                                          rlock__zk_flush,
                                          rlock__zk_refuses,
                                          NULL};
    rlock__zk_store *store;
    if (!out || !url || (options && (options->session_ms < 0 || options->tick_ms < 0))) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    store = (rlock__zk_store *)calloc(1, sizeof *store + strlen(url));
    if (!store) {
        return RLOCK_ERR_NOMEM;
    }
    store->store = functions;
    store->store.ctx = store;
    if (options) {
        store->options = *options;
    }
    memcpy(store->url, url, strlen(url) + 1);
    *out = &store->store;
    return RLOCK_OK;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_ZOOKEEPER_H */
