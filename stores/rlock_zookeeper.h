/* rlock_zookeeper.h - the store of rlock.h in ZooKeeper, by libzookeeper_st 3.5 or newer
 * SPDX-License-Identifier: MIT
 *
 *     rlock_store *store;
 *     rlock_zookeeper_new(&store, "zookeeper://zk1,zk2,zk3/locks");
 *     config.store = store;                                              before rlock_client_new
 *     ...
 *     rlock_zookeeper_free(store);                                       after the clients
 *
 * Each key is a container node, and each token an ephemeral sequential node in it. The order in
 * which they were made is the queue: FAIR, READ, WRITE and SEMAPHORE come from it, and a MUTEX is
 * its first. A fencing token is the zxid of the node. Several keys at once are refused.
 *
 * One session a client. All its holds last as long as the session, which the client proves by a
 * beat: a write that changes nothing, but that a majority of the servers must agree to, once in a
 * tick of theirs or a tenth of the session's timeout, whichever is longer. A lease is at most that
 * timeout less two beats, whatever was asked for. A hold whose lease is shorter is deleted by its
 * own client when that ends; if the client is gone, the server keeps it for the session's timeout.
 *
 * Everything here is static inline: include it after rlock.h, link with -lzookeeper_st, not with
 * the library that has threads (-lzookeeper_mt). Names are resolved by the loop. The server speaks
 * plain text: that library has no TLS. A key has at most 1,000 bytes. */

#ifndef RLOCK_ZOOKEEPER_H
#define RLOCK_ZOOKEEPER_H

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <zookeeper/zookeeper.h>

#include "rlock.h"

RLOCK__C_CASTS_BEGIN

#define RLOCK__ZK_SESSION_MS 10000
#define RLOCK__ZK_TICK_MS 2000
#define RLOCK__ZK_BEATS 10 /* at most, in a session's timeout */
#define RLOCK__ZK_KEY_MAX 1000u
#define RLOCK__ZK_LAST 2147000000u /* number that is given out, well before the server's last */
#define RLOCK__ZK_FAREWELLS 1000
#define RLOCK__ZK_TOGETHER 256 /* nodes in one request, which has at most a megabyte */
#define RLOCK__ZK_PATH 2400u   /* bytes of a path */
#define RLOCK__ZK_NAME 256u    /* of the name of a node in it, after the key's */
#define RLOCK__ZK_TRIES 8      /* to make a node in a line that goes away meanwhile */
#define RLOCK__ZK_HOSTS 16
#define RLOCK__ZK_BUCKETS 256
#define RLOCK__ZK_WINDOW 64 /* requests of the core that are being done at a time */
#define RLOCK__ZK_OF(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

/* A node of ours. */
typedef struct rlock__zk_node {
    rlock_link link; /* in its bucket */
    uint64_t token;
    bool holds, leaves; /* leaves: its deletion was sent, so it is no hold any more */
    uint8_t waits;      /* nobody, or for the node `before`, or for any change of the line */
    int64_t czxid;      /* 0 = not known */
    int64_t end_us;     /* of the lease of a hold */
    uint32_t before, seq, permits;
    bool queued;
    bool first;    /* a hold of ours was right before it in a FAIR line, and is gone */
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
    bool looked;             /* a list was read before */
    bool watch;              /* the list that it waits for is to be watched */
    bool made;               /* it may have made a node */
    bool making;             /* that is not answered yet */
    bool alone;              /* its list failed meanwhile, as `rc` says */
    rlock_link look;         /* among the lists that are out, or in one of the next two */
    rlock_link served, next; /* of others: by the same list, and by the one after that */
    const char *text;        /* of a fault that is told when its own node is away */
    int tries;
    int64_t sent_us, lease_ms;
    uint64_t token, writer;
    uint32_t permits, weight, number;
    uint32_t fences;
    int awaited, rc; /* of FORCE: answers that are out, and what went wrong */
    int64_t count;
    void (*left)(struct rlock__zk_op *op); /* what follows when its own node is away */
    size_t parent;
    size_t room;  /* bytes of each path */
    char *before; /* the path of whom it waits for, after its own */
    char path[1]; /* longer: the parent's, then a node's */
} rlock__zk_op;

/* A host of the list whose name may be being resolved. */
typedef struct rlock__zk_host {
    rlock_name name;
    struct rlock__zk *zk;
    const char *at; /* in the list */
    bool asked;     /* the loop has not answered yet */
} rlock__zk_host;

typedef struct rlock__zk { /* the store as one client sees it */
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_stats *stats;
    zhandle_t *zh;
    int fd;
    rlock_io io;
    rlock_timer timer;
    rlock_link urgent, requests; /* submitted, and not sent; urgent: about what is held */
    rlock_link ops, looks;       /* being done; of these, whose lists of children are out */
    int out;                     /* how many are being done */
    rlock_link buckets[RLOCK__ZK_BUCKETS];
    bool up, expired, refused, resolving, closing, watched;
    bool served;       /* this handle was up: its watches would be set anew with one packet */
    int count, failed; /* servers; of them, those that were tried in vain one after the other */
    int rounds;        /* in which all of them were */
    int state;         /* the library's, after the last turn */
    int64_t tried_us;  /* when the server that is not there yet was asked last */
    int64_t session;   /* its id, or 0 */
    int64_t given_ms;  /* the timeout of the session, or 0 */
    int64_t timeout_us, alive_us, next_us, backoff_ms;
    int64_t ready_us; /* when it was up last */
    int64_t heard_us; /* while it is down: when it went, or the attempt to connect began */
    int64_t session_ms, tick_ms;
    int64_t asked_us;                  /* before the connection was asked for */
    int64_t beat_sent_us, beat_due_us; /* the last beat and the next */
    int64_t beat_us;                   /* when the last was sent that is answered, or asked_us */
    int64_t base_us; /* the same before that: the session's timeout begins no earlier */
    int beats;       /* that are out */
    char hosts[512], chroot[256], password[256]; /* user:password, or nothing */
    const struct ACL_vector *acl;
    char addresses[1024];
    rlock__zk_host named[RLOCK__ZK_HOSTS];
    rlock_info info;
    char holder[64], words[128];
} rlock__zk;

typedef struct rlock__zk_store {
    rlock_store store;
    char url[1];
} rlock__zk_store;

static inline void rlock__zk_begin(rlock__zk *zk, rlock__zk_op *op);
static inline void rlock__zk_turn(rlock__zk *zk, int events);
static inline void rlock__zk_leave(rlock__zk_op *op, const char *name,
                                   void (*then)(rlock__zk_op *op));

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

/* Moves all of a list to one that was not set before, or is empty. */
static inline void rlock__zk_list_move(rlock_link *to, rlock_link *from) {
    rlock__zk_list_init(to);
    rlock__zk_list_add(from, to); /* among them, in place of the head */
    rlock__zk_list_remove(from);
}

static inline char rlock__zk_sort(const rlock_request *request) {
    return "mfrws"[request->terms ? request->terms->kind : RLOCK_KIND_MUTEX]; /* [rlock_kind] */
}

/* READ and WRITE go with each other; d is a reader beside the writer of its owner. */
static inline char rlock__zk_group(char sort) {
    return sort == 'r' || sort == 'd' ? 'w' : sort;
}

static inline rlock_fault rlock__zk_fault(int rc) {
    switch (rc) { /* not an enum: servers say what is newer than the header, too */
    case ZNOAUTH:
    case ZAUTHFAILED: return RLOCK_FAULT_AUTH;
    case ZNOTREADONLY:
    case ZTHROTTLEDOP:
    case -125: return RLOCK_FAULT_BUSY; /* ZQUOTAEXCEEDED, which not every header names */
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

/* --- a line: the children of a key --- */

typedef struct rlock__zk_child {
    const char *name;
    size_t token_len; /* of the token, at the head of the name */
    char sort;        /* p: a number of permits that was set */
    bool holds;
    uint32_t weight, seq;
    int blocks, position; /* of one that does not hold: whose end may let it in, or -1; how many
                             wait before it */
    uint64_t writer; /* of d: the token of the writer that it came beside, of the same client */
} rlock__zk_child;

/* False: it is not one of ours. */
static inline bool rlock__zk_child_of(const char *name, rlock__zk_child *child) {
    const char *at = strchr(name, ':'), *kind = at ? strchr(at + 1, ':') : NULL;
    const char *seq = kind ? strchr(kind + 1, ':') : NULL;
    char *end;
    size_t sign = seq && seq[1] == '-'; /* after 2,147,483,647 the server goes on below zero */
    memset(child, 0, sizeof *child);
    child->name = name;
    if (!seq || strlen(seq + 1) < 10 || strlen(name) >= RLOCK__ZK_NAME - 1 ||
        strspn(seq + 1 + sign, "0123456789") != strlen(seq + 1 + sign)) {
        return false;
    }
    child->token_len = (size_t)(kind - name);
    child->sort = kind[1];
    child->weight = (uint32_t)strtoul(kind + 2, &end, 10);
    child->writer = *end == '.' ? strtoull(end + 1, NULL, 10) : 0;
    child->seq = (uint32_t)strtol(seq + 1, NULL, 10);
    return child->sort && strchr("mfrwdsp", child->sort) != NULL;
}

/* Notes the node of an operation's token; NULL: no memory. */
static inline rlock__zk_node *rlock__zk_note(rlock__zk_op *op, const char *path) {
    rlock__zk_node *node = rlock__zk_find(op->zk, op->token);
    size_t len = strlen(path);
    rlock__zk_child child;
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
        node->seq = rlock__zk_child_of(path + op->parent + 1, &child) ? child.seq : 0;
        node->queued = op->sort != 'm';
        node->permits = op->permits;
        rlock__zk_list_add(rlock__zk_bucket(op->zk, op->token), &node->link);
    }
    return node;
}

static inline bool rlock__zk_is(const rlock__zk_child *child, const char *token) {
    return strlen(token) == child->token_len && memcmp(child->name, token, child->token_len) == 0;
}

static inline int rlock__zk_by_seq(const void *one, const void *other) {
    uint32_t a = ((const rlock__zk_child *)one)->seq, b = ((const rlock__zk_child *)other)->seq;
    return a == b ? 0 : (int32_t)(a - b) < 0 ? -1 : 1;
}

/* The line, and how one token sees it. */
typedef struct rlock__zk_line {
    rlock__zk_child *members; /* in their order */
    int count, own;           /* own: of the token's, or -1 */
    int blocks;               /* whose end may let it in, or -1 */
    unsigned sorts;           /* a bit for each kind of lock: RLOCK__ZK_SORTS */
    bool differs;             /* there are others, of another kind of lock */
    bool set;                 /* a number of permits was set */
    bool judged;
    uint32_t number, permits; /* the one that was set; the one that counts */
    uint64_t used;            /* by those that hold */
    int64_t holders, waiters, position;
    int last; /* of those that hold, or -1 */
} rlock__zk_line;

#define RLOCK__ZK_SORTS "mfws"

static inline unsigned rlock__zk_sort_bit(char sort) {
    return 1u << (strchr(RLOCK__ZK_SORTS, rlock__zk_group(sort)) - RLOCK__ZK_SORTS);
}

/* Who came beside another writer than this one, and so keeps it out; or -1. */
static inline int rlock__zk_aside(const rlock__zk_line *line, const rlock__zk_child *writer) {
    const char *token = strchr(writer->name, ':');
    size_t uuid_len = (size_t)(token - writer->name);
    uint64_t number = strtoull(token + 1, NULL, 10);
    int i = line->count - 1;
    while (i >= 0 && (line->members[i].sort != 'd' ||
                      (line->members[i].writer == number &&
                       memcmp(line->members[i].name, writer->name, uuid_len) == 0))) {
        i--;
    }
    return i;
}

/* Says of each member whether it holds. A WRITE comes after all that are before it, a READ after
 * the writers, a SEMAPHORE when the weights before it leave room; d is out of the line, and keeps
 * other writers out. `blocks` of a MUTEX, whose waiters do not stay, is its holder. */
static inline void rlock__zk_judge(rlock__zk_line *line) {
    uint64_t weights = 0;
    int i, before = -1, writer = -1, first = -1;
    line->judged = true;
    line->used = 0;
    line->holders = line->waiters = 0;
    line->last = -1;
    for (i = 0; i < line->count; i++) {
        rlock__zk_child *at = &line->members[i];
        at->blocks = at->sort == 'm' ? first : at->sort == 'r' ? writer : before;
        at->position = (int)line->waiters;
        switch (at->sort) {
        case 'd': at->holds = true; break;
        case 'r': at->holds = writer < 0; break;
        case 's': at->holds = weights + at->weight <= line->permits; break;
        case 'w':
            at->blocks = first < 0 ? rlock__zk_aside(line, at) : before;
            at->holds = at->blocks < 0;
            break;
        default: at->holds = first < 0;
        }
        if (at->sort != 'd') {
            first = first < 0 ? i : first;
            writer = at->sort == 'w' ? i : writer;
        }
        before = i;
        weights += at->weight <= line->permits ? at->weight : 0;
        line->used += at->holds ? at->weight : 0;
        line->holders += at->holds;
        line->waiters += !at->holds;
        line->last = at->holds ? i : line->last;
    }
}

/* Reads who is there, by the names alone: everybody who reads the same line comes to the same.
 * False: no memory. Free line->members. */
static inline bool rlock__zk_read(const struct String_vector *names, rlock__zk_line *line) {
    rlock__zk_child child;
    uint32_t last = 0;
    int i;
    memset(line, 0, sizeof *line);
    line->members = (rlock__zk_child *)malloc(((size_t)names->count + 1) * sizeof child);
    if (!line->members) {
        return false;
    }
    for (i = 0; i < names->count; i++) {
        if (!rlock__zk_child_of(names->data[i], &child)) {
            continue;
        }
        if (child.sort == 'p') { /* the last that was set, while the one before it goes */
            if (!line->set || (int32_t)(child.seq - last) > 0) {
                line->number = child.weight;
                last = child.seq;
            }
            line->set = true;
            line->sorts |= rlock__zk_sort_bit('s');
        } else {
            line->members[line->count++] = child;
            line->sorts |= rlock__zk_sort_bit(child.sort);
        }
    }
    qsort(line->members, (size_t)line->count, sizeof child, rlock__zk_by_seq);
    return true;
}

/* Which of the line is a token's, or -1. Where its node is known, its number is looked for. */
static inline int rlock__zk_place(const rlock__zk_line *line, const char *token,
                                  const rlock__zk_node *node) {
    int i = line->count - 1;
    while (node && i >= 0 &&
           (line->members[i].seq != node->seq || !rlock__zk_is(&line->members[i], token))) {
        i--;
    }
    for (i = node && i >= 0 ? i : line->count - 1; i >= 0; i--) {
        if (rlock__zk_is(&line->members[i], token)) {
            return i;
        }
    }
    return -1;
}

/* Says who holds, if there are so many permits where no number was set. */
static inline void rlock__zk_count(rlock__zk_line *line, uint32_t permits) {
    permits = line->set ? line->number : permits;
    if (!line->judged || permits != line->permits) {
        line->permits = permits;
        rlock__zk_judge(line);
    }
}

/* How the line stands for one token. */
static inline void rlock__zk_see(rlock__zk_line *line, char sort, uint32_t permits,
                                 const char *token, const rlock__zk_node *node) {
    const rlock__zk_child *own;
    rlock__zk_count(line, permits);
    line->differs = (line->sorts & ~rlock__zk_sort_bit(sort)) != 0;
    line->own = rlock__zk_place(line, token, node);
    own = line->own < 0 ? NULL : &line->members[line->own];
    line->blocks = own && !own->holds ? own->blocks : -1;
    line->position = own && !own->holds ? own->position : -1;
}

static inline const rlock__zk_child *rlock__zk_own(const rlock__zk_line *line) {
    return line->own < 0 ? NULL : &line->members[line->own];
}

/* --- answers --- */

static inline void rlock__zk_end(rlock__zk_op *op) {
    op->zk->out--;
    rlock__zk_list_remove(&op->link);
    rlock__zk_list_remove(&op->look);
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

static inline void rlock__zk_answer_failed(rlock__zk_op *op) {
    rlock__zk_answer_fault(op, RLOCK_FAULT_AUTH, op->text, false);
}

/* An operation failed. After an acquire whose node may be there this is no sure failure, and the
 * core cleans up; but a right that is missing is told when the node is away. */
static inline void rlock__zk_fail(rlock__zk_op *op, rlock_fault fault, const char *text) {
    rlock__zk_node *node = rlock__zk_find(op->zk, op->token);
    if (op->op != RLOCK_OP_ACQUIRE || !(op->made || node) || fault == RLOCK_FAULT_OTHER) {
        rlock__zk_answer_fault(op, fault, text, false);
    } else if (fault == RLOCK_FAULT_AUTH && node) {
        op->text = text;
        rlock__zk_leave(op, node->path + node->parent + 1, rlock__zk_answer_failed);
    } else {
        rlock__zk_answer_fault(op, RLOCK_FAULT_UNKNOWN, text, false);
    }
}

static inline void rlock__zk_answer_rc(rlock__zk_op *op, int rc) {
    rlock__zk_fail(op, rlock__zk_fault(rc), zerror(rc));
}

/* An earlier request of a session is done before a later one, or never: so each answer is sure. */
static inline void rlock__zk_answer_plain(rlock__zk_op *op, rlock_outcome outcome) {
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.outcome = outcome;
    answer.settled = true;
    answer.left_ms = -1;
    rlock__zk_answer(op, &answer);
}

static inline void rlock__zk_due(rlock__zk *zk, int64_t end_us) {
    zk->next_us = zk->next_us < 0 || end_us < zk->next_us ? end_us : zk->next_us;
}

/* From beat to beat: the leader asks its followers twice a tick which sessions they have heard. */
static inline int64_t rlock__zk_beat_us(const rlock__zk *zk) {
    int64_t tenth_us = zoo_recv_timeout(zk->zh) * (int64_t)1000 / RLOCK__ZK_BEATS;
    return zk->tick_ms * 1000 > tenth_us ? zk->tick_ms * 1000 : tenth_us;
}

/* A hold, or its renewal. The servers may say that the node is there when the session has ended
 * without them, as one that stood still does before it hears of the others: what a lease is counted
 * from is a beat. */
static inline void rlock__zk_answer_held(rlock__zk_op *op, rlock__zk_node *node) {
    rlock__zk *zk = op->zk;
    rlock_answer answer;
    int64_t timeout_us = zoo_recv_timeout(zk->zh) * (int64_t)1000;
    int64_t most_ms = (timeout_us - 2 * rlock__zk_beat_us(zk)) / 1000, proved_us;
    const char *wrong = NULL;
    int64_t lease_ms = most_ms < op->lease_ms ? (most_ms > 0 ? most_ms : 1) : op->lease_ms;
    memset(&answer, 0, sizeof answer);
    answer.settled = true;
    answer.lease_ms = lease_ms == op->lease_ms ? 0 : lease_ms;
    if (op->lease_ms && node->end_us < op->sent_us + lease_ms * 1000) {
        node->end_us = op->sent_us + lease_ms * 1000;
        rlock__zk_due(zk, node->end_us);
    }
    if (!node->end_us) {
        node->end_us = zk->base_us + timeout_us; /* of a hold that was only looked for */
        rlock__zk_due(zk, node->end_us);
    }
    proved_us = zk->base_us + timeout_us - lease_ms * 1000; /* the latest that is proved */
    if (node->leaves) {
        wrong = "its lease has ended";
    } else if (timeout_us < 5 * rlock__zk_beat_us(zk)) {
        wrong = "the server's session timeout is below five tick_ms";
    } else if (op->lease_ms && proved_us + lease_ms * 1000 / 3 <= rlock_client_now_us(zk->client)) {
        wrong = "no answer from a majority of the servers";
    }
    if (wrong) {
        rlock__zk_answer_fault(op, RLOCK_FAULT_UNKNOWN, wrong, false);
        return;
    }
    if (op->op == RLOCK_OP_ACQUIRE && op->fences) {
        answer.fence = (uint64_t)node->czxid;
        answer.fences = 1; /* so a hold that has one is not handed on in this process */
    }
    if (op->request) {
        op->request->sent_us = op->sent_us < proved_us ? op->sent_us : proved_us;
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

/* Notifies those of ours in this line who wait for it, or for the node of that number. first: that
 * was the first of a FAIR line. */
static inline void rlock__zk_notify(rlock__zk *zk, const char *path, size_t parent, bool any,
                                    uint32_t seq, bool first) {
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
                node->first = first;
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
    uint64_t token;
    bool first = false;
    if (!name || !rlock__zk_child_of(name + 1, &child)) {
        return;
    }
    zk->stats->woken++;
    if (strncmp(child.name, rlock_client_id(zk->client), 36) == 0) {
        token = strtoull(child.name + 37, NULL, 10);
        node = rlock__zk_find(zk, token);
        if (node && strcmp(node->path, path) == 0) {
            bool tells = node->holds && node->queued;
            first = node->holds && child.sort == 'f';
            rlock__zk_drop(node);
            if (tells) {
                zk->events->notified(zk->owner, key, len, token);
            }
        }
    }
    rlock__zk_notify(zk, path, (size_t)(name - path), false, child.seq, first);
    zk->events->woken(zk->owner, key, len);
}

static inline void rlock__zk_report(const rlock__zk *zk, rlock_report_kind kind, const char *text) {
    rlock_report report;
    memset(&report, 0, sizeof report);
    report.kind = kind;
    report.link = "commands";
    report.span_us = zk->up ? rlock_client_now_us(zk->client) - zk->ready_us : 0;
    report.text = text;
    rlock_client_report(zk->client, &report);
}

/* What is out may have been done. The library says so of each later, when nobody asks any more. */
static inline void rlock__zk_down(rlock__zk *zk, rlock_fault fault, const char *text) {
    rlock_link *at = zk->ops.next;
    rlock__zk_report(zk, RLOCK_REPORT_DISCONNECTED, text);
    if (zk->up) {
        rlock_client_log(zk->client, RLOCK_LOG_WARNING, "connection to ZooKeeper", text);
        zk->heard_us = rlock_client_now_us(zk->client);
    }
    zk->up = false;
    for (; at != &zk->ops; at = at->next) {
        rlock__zk_op *op = RLOCK__ZK_OF(at, rlock__zk_op, link);
        rlock_request *request = op->request;
        op->request = NULL;
        if (request) {
            rlock_answer answer;
            memset(&answer, 0, sizeof answer);
            answer.outcome = RLOCK_OUTCOME_FAULT;
            answer.fault = RLOCK_FAULT_UNKNOWN;
            answer.text = text;
            zk->events->answered(zk->owner, request, &answer);
        }
    }
    zk->events->down(zk->owner, NULL, fault, text);
}

static inline bool rlock__zk_awaits(const rlock__zk *zk) {
    return zk->beats > 0 || zk->ops.next != &zk->ops;
}

/* A majority of the servers has agreed to a beat. */
static inline void rlock__zk_ready(rlock__zk *zk) {
    rlock__zk_report(zk, RLOCK_REPORT_CONNECTED, NULL);
    zk->ready_us = rlock_client_now_us(zk->client);
    zk->up = zk->served = true;
    zk->failed = zk->rounds = 0;
    zk->backoff_ms = 0;
    zk->stats->connects++;
    zk->events->up(zk->owner, NULL);
    zk->events->pushing(zk->owner, NULL, RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
}

/* What a majority agrees to is in one order, in which a follower also tells its leader, twice a
 * tick, whom it has heard: after a beat is answered, the leader has counted the timeout anew since
 * the one before was sent. A beat that was answered late proves nothing, since a leader that stood
 * still meanwhile may not have asked yet. */
static inline void rlock__zk_on_beat(int rc, const void *data) {
    rlock__zk *zk = (rlock__zk *)(uintptr_t)data;
    int64_t now_us = rlock_client_clock_us(zk->client), every_us = rlock__zk_beat_us(zk);
    bool timely = now_us - zk->beat_sent_us <= every_us;
    zk->beats--;
    zk->alive_us = rlock_client_now_us(zk->client);
    zk->beat_due_us = now_us + every_us;
    if (rc == ZNOAUTH && !zk->closing) { /* a server may say that without the others */
        rlock__zk_down(zk, RLOCK_FAULT_AUTH, "no right to delete nodes below the URL's path");
    }
    if ((rc != ZOK && rc != ZNONODE) || zk->beats > 0) { /* which of two it was is not known */
        return;
    }
    zk->base_us = timely && zk->beat_us > zk->base_us ? zk->beat_us : zk->base_us;
    zk->beat_us = zk->beat_sent_us;
    if (timely && !zk->up && !zk->closing && !zk->expired) {
        rlock__zk_ready(zk);
    }
}

/* Deletes what is never there. Where this fails, the connection has ended. */
static inline void rlock__zk_beat(rlock__zk *zk) {
    char path[sizeof zk->chroot + 64];
    snprintf(path, sizeof path, "%s/%s", zk->chroot, rlock_client_id(zk->client));
    if (!rlock__zk_awaits(zk)) {
        zk->alive_us = rlock_client_now_us(zk->client);
    }
    zk->beat_sent_us = rlock_client_clock_us(zk->client);
    zk->beat_due_us = zk->beat_sent_us + rlock__zk_beat_us(zk);
    zk->beats += zoo_adelete(zk->zh, path, -1, rlock__zk_on_beat, zk) == ZOK;
    zk->stats->commands++;
}

static inline void rlock__zk_connected(rlock__zk *zk) {
    int64_t session = zoo_client_id(zk->zh)->client_id;
    if (zk->session && zk->session != session) {
        zk->expired = true; /* an old library may not say so */
        return;
    }
    zk->session = session;
    zk->given_ms = zoo_recv_timeout(zk->zh);
    zk->alive_us = rlock_client_now_us(zk->client);
    zk->beat_us = zk->asked_us;
    rlock__zk_beat(zk);
}

/* A call about a hold or a line, which may not be there any more when it is answered. */
typedef struct rlock__zk_call {
    rlock__zk *zk;
    char path[1];
} rlock__zk_call;

static inline rlock__zk_call *rlock__zk_call_new(rlock__zk *zk, const char *path) {
    rlock__zk_call *call = (rlock__zk_call *)malloc(sizeof *call + strlen(path));
    if (call) {
        call->zk = zk;
        memcpy(call->path, path, strlen(path) + 1);
        zk->stats->commands++;
    }
    return call;
}

/* Notifies those of ours in this line who hold by now; or all of them, if one is not there. */
static inline void rlock__zk_notify_served(rlock__zk *zk, const char *path, rlock__zk_line *line) {
    char key[RLOCK__ZK_KEY_MAX];
    size_t parent = strlen(path), len = rlock__zk_key(zk, path, key);
    int i, missing = 0;
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        rlock_link *at = zk->buckets[i].next;
        for (; at != &zk->buckets[i]; at = at->next) {
            const rlock__zk_node *node = RLOCK__ZK_OF(at, rlock__zk_node, link);
            missing += node->waits == RLOCK__ZK_WAITS_FOR_ANY && node->parent == parent &&
                       memcmp(node->path, path, parent) == 0;
        }
    }
    for (i = 0; i < line->count; i++) {
        const rlock__zk_child *at = &line->members[i];
        bool ours = strncmp(at->name, rlock_client_id(zk->client), 36) == 0;
        rlock__zk_node *node = ours ? rlock__zk_find(zk, strtoull(at->name + 37, NULL, 10)) : NULL;
        if (!node || node->waits != RLOCK__ZK_WAITS_FOR_ANY || node->seq != at->seq) {
            continue;
        }
        missing--;
        rlock__zk_count(line, node->permits);
        if (at->holds) {
            node->waits = RLOCK__ZK_WAITS_NOT;
            zk->events->notified(zk->owner, key, len, node->token);
        }
    }
    if (missing > 0) {
        rlock__zk_notify(zk, path, parent, true, 0, false);
    }
}

static inline void rlock__zk_on_changed(int rc, const struct String_vector *names,
                                        const void *data) {
    rlock__zk_call *call = (rlock__zk_call *)(uintptr_t)data;
    rlock__zk *zk = call->zk;
    rlock__zk_line line;
    if (zk->closing) {
        rc = ZCLOSING;
    } else if (rc == ZOK && rlock__zk_read(names, &line)) {
        rlock__zk_notify_served(zk, call->path, &line);
        free(line.members);
    } else { /* where it is lost, who is notified too often asks again */
        rlock__zk_notify(zk, call->path, strlen(call->path), true, 0, false);
    }
    free(call);
}

/* A line changed for which some of ours wait: it is read once for all of them, and watched anew.
 * Without memory each reads it. */
static inline void rlock__zk_changed(rlock__zk *zk, const char *path) {
    rlock__zk_call *call = rlock__zk_call_new(zk, path);
    if (!call || zoo_aget_children(zk->zh, path, 1, rlock__zk_on_changed, call) != ZOK) {
        free(call);
        rlock__zk_notify(zk, path, strlen(path), true, 0, false);
    }
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
        rlock__zk_connected(zk);
    } else if (type == ZOO_SESSION_EVENT &&
               (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE)) {
        zk->expired = true;
        zk->refused = state == ZOO_AUTH_FAILED_STATE;
    } else if (type == ZOO_SESSION_EVENT && zk->up) {
        rlock__zk_down(zk, RLOCK_FAULT_DOWN, "the connection ended");
    } else if (type == ZOO_DELETED_EVENT) {
        rlock__zk_deleted(zk, path);
    } else if (type == ZOO_CHILD_EVENT) {
        rlock__zk_changed(zk, path);
    }
}

/* --- what is answered --- */

static inline void rlock__zk_on_line(int rc, const struct String_vector *names, const void *data);
static inline void rlock__zk_on_left(int rc, const void *data);
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

static inline void rlock__zk_on_watched(int rc, const char *value, int value_len,
                                        const struct Stat *stat, const void *data) {
    rlock__zk_call *call = (rlock__zk_call *)(uintptr_t)data;
    (void)value, (void)value_len, (void)stat;
    if (rc == ZNONODE && !call->zk->closing) {
        rlock__zk_deleted(call->zk, call->path);
    }
    free(call);
}

/* Asks to be told when a hold is taken away. Without memory its next renewal tells it. A node is
 * watched by zoo_aget: of one that is not there that leaves no watch, but zoo_aexists does, for a
 * name that never comes back. */
static inline void rlock__zk_watch_own(rlock__zk *zk, const char *path) {
    rlock__zk_call *call = rlock__zk_call_new(zk, path);
    if (call && zoo_aget(zk->zh, path, 1, rlock__zk_on_watched, call) != ZOK) {
        free(call);
    }
}

/* No list comes for it: that waits for the answer about its node. */
static inline void rlock__zk_unlisted(rlock__zk_op *op, int rc) {
    rlock__zk_list_remove(&op->look);
    if (op->making) {
        op->alone = true;
        op->rc = rc;
    } else {
        rlock__zk_answer_rc(op, rc);
    }
}

static inline void rlock__zk_all_unlisted(rlock_link *ops, int rc) {
    while (ops->next != ops) {
        rlock__zk_unlisted(RLOCK__ZK_OF(ops->next, rlock__zk_op, look), rc);
    }
}

/* Asks for the children of the key, for this operation and those that it serves too. */
static inline void rlock__zk_list(rlock__zk_op *op) {
    rlock_link *at = op->served.next;
    bool watch = op->watch;
    int rc;
    for (; at != &op->served; at = at->next) {
        watch = watch || RLOCK__ZK_OF(at, rlock__zk_op, look)->watch;
    }
    op->zk->stats->commands++;
    rlock__zk_list_add(&op->zk->looks, &op->look);
    rc = zoo_aget_children(op->zk->zh, op->path, watch, rlock__zk_on_line, op);
    if (rc != ZOK) {
        rlock__zk_all_unlisted(&op->served, rc);
        rlock__zk_unlisted(op, rc);
    }
}

/* Reads the line. One list of a key is out at a time: who comes while it is waits for the next one,
 * together with all others who do. */
static inline void rlock__zk_look(rlock__zk_op *op, bool watch) {
    rlock_link *looks = &op->zk->looks, *at = looks->next;
    op->watch = watch;
    op->path[op->parent] = 0;
    while (at != looks && strcmp(RLOCK__ZK_OF(at, rlock__zk_op, look)->path, op->path) != 0) {
        at = at->next;
    }
    if (at != looks) {
        rlock__zk_list_add(&RLOCK__ZK_OF(at, rlock__zk_op, look)->next, &op->look);
    } else {
        rlock__zk_list(op);
    }
}

static inline void rlock__zk_token(const rlock__zk *zk, char text[64], uint64_t token) {
    snprintf(text, 64, "%s:%llu", rlock_client_id(zk->client), (unsigned long long)token);
}

/* The path of a child of this key. */
static inline const char *rlock__zk_path(rlock__zk_op *op, const char *name) {
    snprintf(op->path + op->parent, op->room - op->parent, "/%s", name);
    return op->path;
}

/* Takes the operation's own node away, and goes on with `then`. Nothing may be answered before that
 * is: a node that stayed would keep all others out for as long as the session lasts. */
static inline void rlock__zk_leave(rlock__zk_op *op, const char *name,
                                   void (*then)(rlock__zk_op *op)) {
    int rc;
    op->zk->stats->commands++;
    op->left = then;
    rc = zoo_adelete(op->zk->zh, rlock__zk_path(op, name), -1, rlock__zk_on_left, op);
    rlock__zk_drop(rlock__zk_find(op->zk, op->token));
    op->path[op->parent] = 0;
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
    }
}

static inline void rlock__zk_on_left(int rc, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    if (rc == ZOK || rc == ZNONODE) {
        op->made = false;
        op->left(op);
    } else {
        rlock__zk_answer_rc(op, rc);
    }
}

static inline void rlock__zk_answer_type(rlock__zk_op *op) {
    rlock__zk_answer_fault(op, RLOCK_FAULT_TYPE, "the key is in use as another kind of lock", true);
}

/* What the server does after its last number is not known to keep the order. */
static inline void rlock__zk_answer_full(rlock__zk_op *op) {
    rlock__zk_answer_fault(op, RLOCK_FAULT_OTHER,
                           "the key's sequence numbers are used up: delete its node", true);
}

static inline void rlock__zk_answer_busy(rlock__zk_op *op) {
    rlock__zk_answer_plain(op, RLOCK_OUTCOME_HELD);
}

/* Whether who is before is watched; or it is gone, and the line is read again. */
static inline void rlock__zk_on_before(int rc, const char *value, int value_len,
                                       const struct Stat *stat, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    rlock_answer answer;
    (void)value, (void)value_len, (void)stat;
    if (rc == ZNONODE) {
        rlock__zk_look(op, false);
        return;
    }
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
        return;
    }
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_HELD;
    answer.settled = answer.watched = true;
    answer.left_ms = -1;
    rlock__zk_answer(op, &answer);
}

/* Asks to be told when who is before goes, and answers then. */
static inline void rlock__zk_watch_before(rlock__zk_op *op) {
    int rc = zoo_aget(op->zk->zh, op->before, 1, rlock__zk_on_before, op);
    op->zk->stats->commands++;
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
    }
}

static inline void rlock__zk_answer_gone(rlock__zk_op *op) {
    rlock__zk_answer_plain(op, RLOCK_OUTCOME_GONE);
}

/* Whether a hold is there: its czxid was not known, or it is renewed. A node of an earlier session
 * ends with that, which the servers may not have ended yet: it is no hold of this one. */
static inline void rlock__zk_on_own(int rc, const char *value, int value_len,
                                    const struct Stat *stat, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    rlock__zk_node *node = rlock__zk_find(op->zk, op->token);
    (void)value, (void)value_len;
    if (rc == ZOK && node && stat->ephemeralOwner != zoo_client_id(op->zk->zh)->client_id) {
        char name[128];
        snprintf(name, sizeof name, "%s", node->path + node->parent + 1);
        rlock__zk_leave(op, name,
                        op->op == RLOCK_OP_RENEW ? rlock__zk_answer_gone : rlock__zk_make);
    } else if (rc == ZOK && node) {
        node->czxid = stat->czxid;
        node->holds = true;
        node->waits = RLOCK__ZK_WAITS_NOT;
        rlock__zk_answer_held(op, node);
    } else if (rc != ZOK && rc != ZNONODE) {
        rlock__zk_answer_rc(op, rc);
    } else if (op->op == RLOCK_OP_RENEW) {
        rlock__zk_drop(node);
        rlock__zk_look(op, false); /* gone, or is somebody else there? */
    } else {
        rlock__zk_drop(node);
        rlock__zk_answer_rc(op, ZCONNECTIONLOSS); /* taken away in between */
    }
}

/* The answer to an acquire of whom the line lets in. */
static inline void rlock__zk_enter(rlock__zk_op *op, const rlock__zk_child *own) {
    rlock__zk *zk = op->zk;
    rlock__zk_node *node = rlock__zk_note(op, rlock__zk_path(op, own->name));
    if (!node) {
        rlock__zk_fail(op, RLOCK_FAULT_NOMEM, NULL);
    } else if (node->czxid) {
        node->holds = true;
        node->waits = RLOCK__ZK_WAITS_NOT;
        rlock__zk_watch_own(zk, node->path);
        rlock__zk_answer_held(op, node);
    } else {
        int rc = zoo_aget(zk->zh, node->path, 1, rlock__zk_on_own, op);
        zk->stats->commands++;
        if (rc != ZOK) {
            rlock__zk_answer_rc(op, rc);
        }
    }
}

/* It stays in the line: who is before it is watched, or all of it. */
static inline void rlock__zk_stay(rlock__zk_op *op, const rlock__zk_line *line) {
    rlock__zk_node *node = rlock__zk_note(op, rlock__zk_path(op, rlock__zk_own(line)->name));
    if (!node) {
        rlock__zk_fail(op, RLOCK_FAULT_NOMEM, NULL);
        return;
    }
    node->holds = false;
    node->before = line->members[line->blocks].seq;
    node->waits = op->sort == 's' ? RLOCK__ZK_WAITS_FOR_ANY : RLOCK__ZK_WAITS_FOR_ONE;
    if (op->sort != 's') {
        rlock__zk_watch_before(op);
    } else if (op->looked) {
        rlock__zk_answer_busy(op);
    } else {
        op->looked = true; /* once more, and the line is watched */
        rlock__zk_look(op, true);
    }
}

/* The answer to an acquire that has to wait, or may not. */
static inline void rlock__zk_wait(rlock__zk_op *op, const rlock__zk_line *line) {
    bool once = (op->flags & RLOCK_REQUEST_ONCE) != 0, tracks = line->blocks >= 0;
    if (tracks) {
        const char *name = line->members[line->blocks].name;
        rlock__zk_path(op, "");
        snprintf(op->before, op->room, "%s%s", op->path, name);
    }
    if (op->sort == 'm') {
        tracks = tracks && (op->flags & RLOCK_REQUEST_TRACK);
        rlock__zk_leave(op, rlock__zk_own(line)->name,
                        tracks ? rlock__zk_watch_before : rlock__zk_answer_busy);
    } else if (once || !tracks) { /* who is alone, and does not fit, waits for a number */
        rlock__zk_leave(op, rlock__zk_own(line)->name, rlock__zk_answer_busy);
    } else {
        rlock__zk_stay(op, line);
    }
}

/* Whether the writer beside which a reader came is there still. */
static inline bool rlock__zk_has(const rlock__zk_line *line, const char *token) {
    int i;
    for (i = 0; i < line->count; i++) {
        const rlock__zk_child *at = &line->members[i];
        if (at->sort == 'w' && at->holds && rlock__zk_is(at, token)) {
            return true;
        }
    }
    return false;
}

static inline void rlock__zk_acquire(rlock__zk_op *op, const rlock__zk_line *line) {
    const rlock__zk_child *own = rlock__zk_own(line);
    char writer[64];
    bool beside;
    rlock__zk_token(op->zk, writer, op->writer);
    beside = op->writer && rlock__zk_has(line, writer);
    if (!own && op->rc != ZOK && op->rc != ZNONODE) {
        rlock__zk_answer_fault(op, rlock__zk_fault(op->rc), zerror(op->rc), true);
    } else if (!own) { /* or another client has made the line between the two requests */
        if (op->tries++ < RLOCK__ZK_TRIES) {
            rlock__zk_make(op);
        } else {
            rlock__zk_answer_rc(op, ZCONNECTIONLOSS);
        }
    } else if (own->seq >= RLOCK__ZK_LAST) {
        rlock__zk_leave(op, own->name, rlock__zk_answer_full);
    } else if (line->differs) {
        rlock__zk_leave(op, own->name, rlock__zk_answer_type);
    } else if (own->sort == 'd' && !beside) {
        op->writer = 0; /* it stands in the line like any other */
        rlock__zk_leave(op, own->name, rlock__zk_make);
    } else if (own->holds) {
        rlock__zk_enter(op, own);
    } else if (own->sort == 'r' && beside) {
        rlock__zk_leave(op, own->name,
                        rlock__zk_make); /* it comes beside its writer, out of the line */
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
        rlock__zk_look(op, false); /* gone, or is somebody else there? */
    } else {
        rlock__zk_answer_rc(op, rc);
    }
}

/* A release or a renewal, whose node's path was not known, or which is not there. */
static inline void rlock__zk_keep(rlock__zk_op *op, const rlock__zk_line *line) {
    rlock__zk *zk = op->zk;
    const rlock__zk_child *own = rlock__zk_own(line);
    if (line->differs && !own) {
        rlock__zk_answer_type(op);
    } else if (own && op->op == RLOCK_OP_RELEASE) {
        int rc = zoo_adelete(zk->zh, rlock__zk_path(op, own->name), -1, rlock__zk_on_deleted, op);
        op->looked = true;
        op->count = own->holds;
        zk->stats->commands++;
        if (rc != ZOK) {
            rlock__zk_answer_rc(op, rc);
        }
    } else if (own && own->holds) {
        rlock__zk_enter(op, own);
    } else {
        bool shared = op->sort == 's' || op->sort == 'r';
        bool full = !shared || line->used + op->weight > line->permits;
        rlock__zk_answer_plain(op, line->holders > 0 && full ? RLOCK_OUTCOME_STOLEN
                                                             : RLOCK_OUTCOME_GONE);
    }
}

static inline void rlock__zk_inspect(rlock__zk_op *op, const rlock__zk_line *line) {
    rlock__zk *zk = op->zk;
    rlock_info *info = &zk->info;
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    memset(info, 0, sizeof *info);
    answer.settled = true;
    answer.info = info;
    info->holders = line->holders;
    info->left_ms = line->holders ? -1 : 0;
    info->waiters = op->sort == 'm' ? -1 : line->waiters;
    info->permits = line->permits > line->used ? (int64_t)(line->permits - line->used) : 0;
    info->position = op->token ? line->position : -1;
    if (line->last >= 0) {
        const rlock__zk_child *last = &line->members[line->last];
        snprintf(zk->holder, sizeof zk->holder, "%.*s", (int)last->token_len, last->name);
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
    answer.settled = true;
    answer.info = &op->zk->info;
    rlock__zk_answer(op, &answer);
}

static inline void rlock__zk_forced_one(rlock__zk_op *op) {
    if (--op->awaited > 0) {
        return;
    }
    if (op->rc != ZOK) {
        rlock__zk_answer_rc(op, op->rc);
    } else {
        rlock__zk_answer_count(op);
    }
}

static inline void rlock__zk_on_forced(int rc, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    op->count += rc == ZOK;
    op->rc = rc != ZOK && rc != ZNONODE ? rc : op->rc;
    rlock__zk_forced_one(op);
}

static inline void rlock__zk_force(rlock__zk_op *op, const rlock__zk_line *line) {
    rlock__zk *zk = op->zk;
    int i;
    op->awaited = 1; /* this loop's own */
    op->rc = ZOK;
    op->count = 0;
    for (i = 0; i < line->count; i++) {
        if (line->members[i].holds) {
            int rc = zoo_adelete(zk->zh, rlock__zk_path(op, line->members[i].name), -1,
                                 rlock__zk_on_forced, op);
            zk->stats->commands++;
            op->awaited += rc == ZOK;
            op->rc = rc != ZOK ? rc : op->rc;
        }
    }
    rlock__zk_forced_one(op);
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

static inline void rlock__zk_parents(rlock__zk_op *op);

/* The number is a node among the others: who reads the line reads it too. The new one is made
 * before those that were there go. */
static inline void rlock__zk_set(rlock__zk_op *op, const struct String_vector *names) {
    rlock__zk *zk = op->zk;
    char name[48];
    int i;
    if (!names && op->number) {
        rlock__zk_parents(op);
    }
    if (op->number) {
        snprintf(name, sizeof name, "permits:0:p%u:", (unsigned)op->number);
        zk->stats->commands++;
        if (zoo_acreate(zk->zh, rlock__zk_path(op, name), "", 0, zk->acl, ZOO_PERSISTENT_SEQUENTIAL,
                        rlock__zk_on_set, op) != ZOK) {
            rlock__zk_answer_rc(op, ZCONNECTIONLOSS);
            return;
        }
    }
    for (i = 0; names && i < names->count; i++) {
        rlock__zk_child child;
        if (rlock__zk_child_of(names->data[i], &child) && child.sort == 'p') {
            zk->stats->commands++;
            zoo_adelete(zk->zh, rlock__zk_path(op, child.name), -1, rlock__zk_on_nothing, NULL);
        }
    }
    if (!op->number) {
        op->count = 0;
        rlock__zk_answer_count(op);
    }
}

/* The line was read: what it means for the request. */
static inline void rlock__zk_judged(rlock__zk_op *op, const struct String_vector *names,
                                    const rlock__zk_line *line) {
    if (op->op == RLOCK_OP_ACQUIRE) {
        rlock__zk_acquire(op, line);
    } else if (op->op < RLOCK_OP_INSPECT) {
        rlock__zk_keep(op, line);
    } else if (line->differs) {
        rlock__zk_answer_type(op);
    } else if (op->op == RLOCK_OP_INSPECT) {
        rlock__zk_inspect(op, line);
    } else if (op->op == RLOCK_OP_FORCE) {
        rlock__zk_force(op, line);
    } else {
        rlock__zk_set(op, names);
    }
}

/* A line was read, or there is none, or, line NULL, no memory for it. */
static inline void rlock__zk_listed(rlock__zk_op *op, int rc, const struct String_vector *names,
                                    rlock__zk_line *line) {
    char token[64];
    if (rc == ZNONODE && op->op == RLOCK_OP_ACQUIRE && op->tries++ < RLOCK__ZK_TRIES) {
        rlock__zk_parents(op);
        rlock__zk_make(op);
    } else if (rc == ZNONODE && op->op == RLOCK_OP_ACQUIRE) {
        rlock__zk_answer_rc(op, rc);
    } else if (rc == ZNONODE && op->op == RLOCK_OP_SET_PERMITS) {
        rlock__zk_set(op, NULL);
    } else if (!line) {
        rlock__zk_fail(op, RLOCK_FAULT_NOMEM, NULL);
    } else {
        rlock__zk_token(op->zk, token, op->token);
        rlock__zk_see(line, op->sort, op->permits, token, rlock__zk_find(op->zk, op->token));
        rlock__zk_judged(op, names, line);
    }
}

static inline void rlock__zk_on_line(int rc, const struct String_vector *names, const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data), *next;
    struct String_vector none = {0, NULL};
    rlock__zk_line line;
    rlock_link served, later;
    bool read;
    rlock__zk_list_move(&served, &op->served);
    rlock__zk_list_move(&later, &op->next);
    rlock__zk_list_remove(&op->look);
    rlock__zk_list_add(served.next, &op->look);
    if (rc != ZOK && rc != ZNONODE) {
        rlock__zk_all_unlisted(&served, rc);
        rlock__zk_all_unlisted(&later, rc);
        return;
    }
    if (later.next != &later) {
        next = RLOCK__ZK_OF(later.next, rlock__zk_op, look);
        rlock__zk_list_remove(&next->look);
        rlock__zk_list_move(&next->served, &later);
        rlock__zk_list(next);
    }
    read = rlock__zk_read(rc == ZOK ? names : &none, &line);
    while (served.next != &served) {
        op = RLOCK__ZK_OF(served.next, rlock__zk_op, look);
        rlock__zk_list_remove(&op->look);
        rlock__zk_listed(op, rc, names, read ? &line : NULL);
    }
    free(line.members);
}

static inline void rlock__zk_on_made(int rc, const char *value, const struct Stat *stat,
                                     const void *data) {
    rlock__zk_op *op = rlock__zk_heard(data);
    op->making = false;
    if (rc == ZOK) { /* the line is on its way behind this, and tells all the rest */
        rlock__zk_node *node = rlock__zk_note(op, value);
        if (node) {
            node->czxid = stat->czxid;
        }
    } else {
        op->made = rlock__zk_fault(rc) == RLOCK_FAULT_UNKNOWN;
    }
    if (op->alone) {
        rlock__zk_answer_rc(op, op->rc);
    } else {
        op->rc = rc;
    }
}

/* --- what is sent --- */

/* Makes the nodes above a line; those that are there stay. */
static inline void rlock__zk_parents(rlock__zk_op *op) {
    rlock__zk *zk = op->zk;
    char path[RLOCK__ZK_PATH];
    size_t i;
    for (i = 1; i <= op->parent; i++) {
        if (i < op->parent && op->path[i] != '/') {
            continue;
        }
        snprintf(path, sizeof path, "%.*s", (int)i, op->path);
        zk->stats->commands++;
        zoo_acreate(zk->zh, path, "", 0, zk->acl, i < op->parent ? ZOO_PERSISTENT : ZOO_CONTAINER,
                    rlock__zk_on_ignored, NULL);
    }
}

/* Makes the node of a token, and reads the line behind it: a session's requests run in order. */
static inline void rlock__zk_make(rlock__zk_op *op) {
    rlock__zk *zk = op->zk;
    char name[96], token[64];
    int rc;
    if (!op->request) { /* it was forgotten, and its release may be answered already */
        rlock__zk_end(op);
        return;
    }
    rlock__zk_token(zk, token, op->token);
    if (op->writer) {
        snprintf(name, sizeof name, "%s:d%u.%llu:", token, (unsigned)op->weight,
                 (unsigned long long)op->writer);
    } else {
        snprintf(name, sizeof name, "%s:%c%u:", token, op->sort, (unsigned)op->weight);
    }
    op->sent_us = rlock_client_clock_us(zk->client);
    op->looked = op->alone = false;
    op->rc = ZOK;
    zk->stats->commands++;
    rc = zoo_acreate2(zk->zh, rlock__zk_path(op, name), "", 0, zk->acl, ZOO_EPHEMERAL_SEQUENTIAL,
                      rlock__zk_on_made, op);
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
        return;
    }
    op->made = op->making = true;
    rlock__zk_look(op, false);
}

static inline void rlock__zk_begin(rlock__zk *zk, rlock__zk_op *op) {
    rlock__zk_node *node = rlock__zk_find(zk, op->token);
    int rc = ZOK;
    op->sent_us = rlock_client_clock_us(zk->client);
    if (op->request) {
        op->request->sent_us = op->sent_us;
    }
    if (op->op == RLOCK_OP_ACQUIRE && !node && !(op->flags & RLOCK_REQUEST_RETRY)) {
        rlock__zk_make(op);
    } else if (node && (op->op == RLOCK_OP_RENEW ? node->holds
                                                 : op->op == RLOCK_OP_ACQUIRE && node->first)) {
        node->first = false;
        zk->stats->commands++;
        rc = zoo_aget(zk->zh, node->path, 1, rlock__zk_on_own, op);
    } else if (op->op == RLOCK_OP_RELEASE && node) {
        op->count = node->holds;
        node->leaves = true;
        zk->stats->commands++;
        rc = zoo_adelete(zk->zh, node->path, -1, rlock__zk_on_deleted, op);
    } else {
        rlock__zk_look(op, false);
    }
    if (rc != ZOK) {
        rlock__zk_answer_rc(op, rc);
    }
}

/* --- the session --- */

static inline void rlock__zk_quiet(const char *message) {
    (void)message;
}

/* The library closes its socket where it cannot send: so nothing is asked of it while that is
 * watched, and the next turn watches anew. */
static inline void rlock__zk_unwatch(rlock__zk *zk) {
    if (zk->watched) {
        rlock_io_watch(zk->client, &zk->io, zk->fd, 0);
        zk->watched = false;
    }
}

/* Ends the connection, or the attempt to make one, if the library has not closed it since the last
 * turn: else the number may be another socket's by now. */
static inline void rlock__zk_cut(const rlock__zk *zk) {
    if (zk->fd >= 0 && zoo_state(zk->zh) == zk->state) {
        shutdown(zk->fd, SHUT_RDWR);
    }
}

/* Ends the session here. Where it is connected the library would wait for its farewell: so the
 * connection is ended before. What is out is answered by this, as unknown. */
static inline void rlock__zk_shut(rlock__zk *zk) {
    int tries = 0;
    if (zk->zh) {
        rlock__zk_unwatch(zk);
        rlock__zk_cut(zk);
        zk->fd = -1;
        while (zoo_state(zk->zh) == ZOO_CONNECTED_STATE && tries++ < RLOCK__ZK_FAREWELLS) {
            zookeeper_process(zk->zh, ZOOKEEPER_READ); /* what came before that */
        }
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

static inline void rlock__zk_drop_all(rlock__zk *zk) {
    int i;
    zk->next_us = -1;
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        while (zk->buckets[i].next != &zk->buckets[i]) {
            rlock__zk_drop(RLOCK__ZK_OF(zk->buckets[i].next, rlock__zk_node, link));
        }
    }
}

/* Begins a new session, or takes up one that goes on. Of a new one the nodes of the one before go,
 * or are gone. */
static inline void rlock__zk_connect(rlock__zk *zk, const clientid_t *id) {
    zk->expired = zk->served = false;
    zk->session = id ? id->client_id : 0;
    zk->given_ms = id ? zk->given_ms : 0;
    zk->failed = zk->rounds = zk->state = 0;
    zk->tried_us = rlock_client_now_us(zk->client);
    zk->heard_us = id ? zk->heard_us : zk->tried_us;
    zk->zh = zookeeper_init2(zk->addresses, rlock__zk_on_event, (int)zk->session_ms, id, zk,
                             ZOO_NO_LOG_CLIENTENV, rlock__zk_quiet);
    if (!zk->zh) {
        rlock__zk_drop_all(zk);
        rlock__zk_down(zk, RLOCK_FAULT_DOWN, "out of memory, or an invalid address");
        rlock__zk_later(zk);
        return;
    }
    zoo_set_servers_resolution_delay(zk->zh, -1); /* it would ask for names in each turn */
    if (zk->password[0]) {
        zoo_add_auth(zk->zh, "digest", zk->password, (int)strlen(zk->password), NULL, NULL);
    }
    rlock__zk_turn(zk, 0);
}

static inline void rlock__zk_add_address(rlock__zk *zk, const char *host, const char *port) {
    size_t n = strlen(zk->addresses);
    if (n + strlen(host) + strlen(port) + 5 < sizeof zk->addresses) {
        zk->count++;
        snprintf(zk->addresses + n, sizeof zk->addresses - n,
                 strchr(host, ':') ? "%s[%s]:%s" : "%s%s:%s", n ? "," : "", host, port);
    }
}

/* The host at the head of a list, and its port. */
static inline void rlock__zk_host_of(const char *at, char host[256], char port[8]) {
    size_t len = strcspn(at, ","), name_len = strcspn(at, ":,");
    bool has = name_len < len;
    snprintf(host, 256, "%.*s", (int)name_len, at);
    snprintf(port, 8, "%.*s", has ? (int)(len - name_len - 1) : 4,
             has ? at + name_len + 1 : "2181");
}

static inline bool rlock__zk_asks(const rlock__zk *zk) {
    int i = 0;
    while (i < RLOCK__ZK_HOSTS && !zk->named[i].asked) {
        i++;
    }
    return i < RLOCK__ZK_HOSTS;
}

/* All names are answered, or enough time is over: connects to what is known. */
static inline void rlock__zk_resolved(rlock__zk *zk) {
    zk->resolving = false;
    if (zk->addresses[0]) {
        rlock__zk_connect(zk, NULL);
    } else {
        rlock__zk_down(zk, RLOCK_FAULT_DOWN, "the name is not resolved");
        rlock__zk_later(zk);
    }
}

static inline void rlock__zk_on_name(rlock_name *name, const struct sockaddr *const *addresses,
                                     unsigned count) {
    rlock__zk_host *its = RLOCK__ZK_OF(name, rlock__zk_host, name);
    rlock__zk *zk = its->zk;
    char text[INET6_ADDRSTRLEN], host[256], port[8];
    unsigned i;
    its->asked = false;
    if (zk->zh) {
        return; /* too late: it is asked again with the next session */
    }
    rlock__zk_host_of(its->at, host, port);
    for (i = 0; i < count; i++) {
        const struct sockaddr *a = addresses[i];
        const void *bytes =
            a->sa_family == AF_INET
                ? (const void *)&((const struct sockaddr_in *)(const void *)a)->sin_addr
                : (const void *)&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
        if (inet_ntop(a->sa_family, bytes, text, sizeof text)) {
            rlock__zk_add_address(zk, text, port);
        }
    }
    if (!zk->resolving ? zk->addresses[0] != 0 : !rlock__zk_asks(zk)) {
        rlock__zk_resolved(zk);
    }
}

/* Asks for all names at once: one that hangs hides no other server. */
static inline void rlock__zk_dial(rlock__zk *zk) {
    const char *at = zk->hosts;
    int i;
    zk->addresses[0] = 0;
    zk->count = 0;
    for (i = 0; *at; i++) {
        rlock__zk_host *its = &zk->named[i];
        unsigned char bytes[sizeof(struct in6_addr)];
        char host[256], port[8];
        rlock__zk_host_of(at, host, port);
        its->zk = zk;
        its->at = at;
        its->name.resolved = rlock__zk_on_name;
        if (inet_pton(AF_INET, host, bytes) == 1) {
            rlock__zk_add_address(zk, host, port);
        } else if (!its->asked) {
            its->asked = rlock_name_resolve(zk->client, &its->name, host) == 0;
        }
        at += strcspn(at, ",");
        at += *at == ',';
    }
    zk->resolving = rlock__zk_asks(zk);
    if (zk->resolving) {
        rlock_timer_set(zk->client, &zk->timer,
                        rlock_client_now_us(zk->client) + zk->timeout_us / 2);
    } else {
        rlock__zk_resolved(zk);
    }
}

/* A session that has ended took all of its nodes with it: the core looks at its holds when the next
 * one is there. */
static inline void rlock__zk_ended(rlock__zk *zk) {
    bool refused = zk->refused;
    zk->expired = true; /* whatever is still read */
    rlock__zk_shut(zk);
    rlock__zk_drop_all(zk);
    zk->expired = zk->refused = false;
    rlock__zk_down(zk, refused ? RLOCK_FAULT_AUTH : RLOCK_FAULT_DOWN,
                   refused ? "the password is refused" : "the session has expired");
    if (refused) {
        rlock__zk_later(zk);
    } else {
        rlock__zk_dial(zk);
    }
}

/* Whether a beat is to be sent when it is due. */
static inline bool rlock__zk_may_beat(const rlock__zk *zk) {
    return zoo_state(zk->zh) == ZOO_CONNECTED_STATE && !zk->beats;
}

/* True if a connection that was up is no more. */
static inline bool rlock__zk_lost(const rlock__zk *zk) {
    return zk->served && zoo_state(zk->zh) != ZOO_CONNECTED_STATE;
}

/* Takes up the session with a new handle. The old one would set all its watches anew with one
 * packet, of which a server takes no more than jute.maxbuffer. Who holds or waits asks again when
 * it is up, and watches again by that. */
static inline void rlock__zk_take_up(rlock__zk *zk) {
    clientid_t id = *zoo_client_id(zk->zh);
    if (zk->up) { /* the library tells of what it reads, not of a request that it could not send */
        rlock__zk_down(zk, RLOCK_FAULT_DOWN, "the connection ended");
    }
    rlock__zk_shut(zk);
    rlock__zk_connect(zk, &id);
}

/* Goes to the next server. Where all of them were tried there is none. Once it is through its list
 * the library steps over one after each that failed: of two it would try the same for ever. */
static inline void rlock__zk_next(rlock__zk *zk, int rc) {
    int i;
    for (i = 1; i < zk->count; i++) {
        zoo_cycle_next_server(zk->zh);
    }
    zk->tried_us = rlock_client_now_us(zk->client);
    if (++zk->failed >= zk->count) {
        zk->failed = 0;
        zk->rounds++;
        rlock__zk_down(zk, RLOCK_FAULT_DOWN, zerror(rc));
    }
}

/* When a server that says nothing is left, or -1. While there is none yet, the first round through
 * all of them takes no longer than a command may. */
static inline int64_t rlock__zk_leave_us(const rlock__zk *zk) {
    int64_t patience_us = zk->timeout_us;
    if (!zk->up) {
        patience_us = zk->timeout_us / zk->count * (zk->rounds < 10 ? 1 << zk->rounds : 1024);
        patience_us = patience_us < zk->timeout_us ? patience_us : zk->timeout_us;
    }
    if (zoo_state(zk->zh) != ZOO_CONNECTED_STATE) {
        return zk->fd >= 0 ? zk->tried_us + patience_us : -1;
    }
    return rlock__zk_awaits(zk) ? zk->alive_us + patience_us : -1;
}

/* Lets the library do what is due. Returns the descriptor that it waits for, or -1. */
static inline int rlock__zk_process(rlock__zk *zk, int events, int *interest, struct timeval *tv) {
    int rc = ZOK, fd = -1;
    if (events) {
        rc = zookeeper_process(zk->zh, events);
    }
    if (zk->expired || rlock__zk_lost(zk)) {
        return -1;
    }
    if (rc != ZOK && rc != ZNOTHING) {
        rlock__zk_next(zk, rc);
    }
    rc = zookeeper_interest(zk->zh, &fd, interest, tv);
    if (rc == ZOK || zk->expired || rlock__zk_lost(zk)) {
        return rc == ZOK ? fd : -1; /* else it is that of a socket which the call has closed */
    }
    rlock__zk_next(zk, rc);
    return -1;
}

/* Lets the library do what is due, and watches what it waits for. It may have another socket of the
 * same number afterwards, so the old one is forgotten before. */
static inline void rlock__zk_turn(rlock__zk *zk, int events) {
    int64_t now_us = rlock_client_now_us(zk->client), due_us, leave_us;
    struct timeval tv = {1, 0};
    int interest = 0, fd;
    rlock__zk_unwatch(zk);
    if (zoo_state(zk->zh) != ZOO_ASSOCIATING_STATE && zoo_state(zk->zh) != ZOO_CONNECTED_STATE) {
        zk->asked_us = rlock_client_clock_us(zk->client);
    }
    fd = rlock__zk_process(zk, events, &interest, &tv);
    if (zk->expired) {
        rlock__zk_ended(zk);
        return;
    }
    if (rlock__zk_lost(zk)) {
        rlock__zk_take_up(zk);
        return;
    }
    if (fd >= 0) {
        unsigned wants = (interest & ZOOKEEPER_READ ? RLOCK_IO_READ : 0u) |
                         (interest & ZOOKEEPER_WRITE ? RLOCK_IO_WRITE : 0u);
        zk->watched = true; /* where the loop cannot watch it, the session runs out */
        rlock_io_watch(zk->client, &zk->io, fd, wants ? wants : RLOCK_IO_READ);
    }
    zk->fd = fd;
    if (zk->state != zoo_state(zk->zh)) { /* it goes forward */
        zk->state = zoo_state(zk->zh);
        zk->tried_us = now_us;
    }
    due_us = now_us + (int64_t)tv.tv_sec * 1000000 + tv.tv_usec;
    if (due_us < now_us + 1000) {
        due_us = now_us + 1000; /* it says 0 where it has something to say at once */
    }
    if (zk->up && zk->next_us >= 0 && zk->next_us < due_us) {
        due_us = zk->next_us;
    }
    if (rlock__zk_may_beat(zk) && zk->beat_due_us < due_us) {
        due_us = zk->beat_due_us;
    }
    leave_us = rlock__zk_leave_us(zk);
    if (leave_us >= 0 && leave_us < due_us) {
        due_us = leave_us;
    }
    rlock_timer_set(zk->client, &zk->timer, due_us);
}

/* Where it was not deleted, that is tried again: a node lasts as long as the session. */
static inline void rlock__zk_on_outlived(int rc, const void *data) {
    rlock__zk_call *call = (rlock__zk_call *)(uintptr_t)data;
    rlock__zk *zk = call->zk;
    const char *name = strrchr(call->path, '/') + 1;
    rlock__zk_node *node = rlock__zk_find(zk, strtoull(name + 37, NULL, 10));
    if (node && strcmp(node->path, call->path) == 0 && !zk->closing) {
        if (rc == ZOK || rc == ZNONODE) {
            rlock__zk_drop(node);
        } else {
            node->end_us = rlock_client_now_us(zk->client) + 100000;
            rlock__zk_due(zk, node->end_us);
        }
    }
    free(call);
}

/* A lease that was shorter than the session has ended: its node goes. */
static inline void rlock__zk_leases(rlock__zk *zk, int64_t now_us) {
    int i;
    zk->next_us = -1;
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        rlock_link *at = zk->buckets[i].next;
        for (; at != &zk->buckets[i]; at = at->next) {
            rlock__zk_node *node = RLOCK__ZK_OF(at, rlock__zk_node, link);
            if (node->holds && node->end_us <= now_us) {
                rlock__zk_call *call = rlock__zk_call_new(zk, node->path);
                node->leaves = true;
                node->end_us = now_us + zk->timeout_us; /* until that is answered */
                if (call && zoo_adelete(zk->zh, node->path, -1, rlock__zk_on_outlived, call)) {
                    free(call);
                }
            }
            if (node->holds) {
                rlock__zk_due(zk, node->end_us);
            }
        }
    }
}

/* For so long it tries to take up its session again. */
static inline int64_t rlock__zk_patience_us(const rlock__zk *zk) {
    int64_t lasts_ms = zk->given_ms > zk->session_ms ? zk->given_ms : zk->session_ms;
    return (lasts_ms + 2 * zk->tick_ms) * 1000;
}

static inline void rlock__zk_fire(rlock_timer *timer) {
    rlock__zk *zk = RLOCK__ZK_OF(timer, rlock__zk, timer);
    int64_t now_us = rlock_client_now_us(zk->client), leave_us;
    bool unread;
    char byte;
    if (!zk->zh && zk->resolving) {
        rlock__zk_resolved(zk);
        return;
    }
    if (!zk->zh) {
        rlock__zk_dial(zk);
        return;
    }
    if (!zk->up && zk->heard_us + rlock__zk_patience_us(zk) <= now_us) {
        /* A server that comes back says so too: each attempt has a handle of its own, which has
         * seen no change that the server does not know. */
        rlock__zk_ended(zk);
        return;
    }
    if (zk->up && zk->next_us >= 0 && zk->next_us <= now_us) {
        rlock__zk_unwatch(zk);
        rlock__zk_leases(zk, now_us);
    }
    if (rlock__zk_may_beat(zk) && zk->beat_due_us <= now_us) {
        rlock__zk_unwatch(zk);
        rlock__zk_beat(zk);
    }
    /* Before a silent server is left, what came while the process stood still is read. */
    leave_us = rlock__zk_leave_us(zk);
    unread = leave_us >= 0 && leave_us <= now_us && zk->fd >= 0 && zoo_state(zk->zh) == zk->state &&
             zk->state != ZOO_CONNECTING_STATE &&
             recv(zk->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    rlock__zk_turn(zk, unread ? ZOOKEEPER_READ : 0);
    leave_us = zk->zh ? rlock__zk_leave_us(zk) : -1;
    if (leave_us >= 0 && leave_us <= now_us) {
        rlock__zk_cut(zk); /* the server does not answer: another one */
        zk->alive_us = zk->tried_us = now_us;
    }
}

static inline void rlock__zk_on_io(rlock_io *io, unsigned events) {
    rlock__zk *zk = RLOCK__ZK_OF(io, rlock__zk, io);
    int what = (events & RLOCK_IO_READ ? ZOOKEEPER_READ : 0) |
               (events & RLOCK_IO_WRITE ? ZOOKEEPER_WRITE : 0);
    if (zk->zh) { /* told to read before it is connected, the library forgets 24 bytes */
        rlock__zk_turn(zk, zoo_state(zk->zh) == ZOO_CONNECTING_STATE ? ZOOKEEPER_WRITE : what);
    }
}

/* --- the store --- */

static inline void rlock__zk_submit(void *state, rlock_request *request) {
    rlock__zk *zk = (rlock__zk *)state;
    const rlock__zk_node *node;
    bool urgent;
    request->sent_us = rlock_client_now_us(zk->client);
    request->store.data = NULL;
    node = request->op == RLOCK_OP_ACQUIRE ? rlock__zk_find(zk, request->token) : NULL;
    urgent =
        request->op == RLOCK_OP_RENEW || request->op == RLOCK_OP_RELEASE || (node && node->first);
    rlock__zk_list_add(urgent ? &zk->urgent : &zk->requests, &request->store.link);
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
    size_t room = strlen(zk->chroot) + 1 + 2 * request->key_len + RLOCK__ZK_NAME;
    rlock__zk_op *op = (rlock__zk_op *)calloc(1, sizeof *op + 2 * room);
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
    op->room = room;
    op->before = op->path + room;
    n = (size_t)snprintf(op->path, room, "%s/", zk->chroot);
    for (i = 0; i < request->key_len; i++) {
        op->path[n++] = digits[(unsigned char)request->key[i] >> 4];
        op->path[n++] = digits[(unsigned char)request->key[i] & 15];
    }
    op->parent = n;
    request->store.data = op;
    rlock__zk_list_init(&op->look);
    rlock__zk_list_init(&op->served);
    rlock__zk_list_init(&op->next);
    rlock__zk_list_add(&zk->ops, &op->link);
    zk->out++;
    return op;
}

/* The next that is to be sent, or NULL. */
static inline rlock_request *rlock__zk_waiting(rlock__zk *zk) {
    rlock_link *list = zk->urgent.next != &zk->urgent ? &zk->urgent : &zk->requests;
    return list->next == list ? NULL : RLOCK__ZK_OF(list->next, rlock_request, store.link);
}

static inline void rlock__zk_flush(void *state) {
    rlock__zk *zk = (rlock__zk *)state;
    rlock_request *request = rlock__zk_waiting(zk);
    if (!zk->up || !request || zk->out >= RLOCK__ZK_WINDOW) {
        return;
    }
    if (!rlock__zk_awaits(zk)) {
        zk->alive_us = rlock_client_now_us(zk->client);
    }
    rlock__zk_unwatch(zk);
    for (; request && zk->out < RLOCK__ZK_WINDOW; request = rlock__zk_waiting(zk)) {
        rlock__zk_op *op = rlock__zk_op_new(zk, request);
        if (!op) {
            break; /* no memory: in the next turn */
        }
        rlock__zk_list_remove(&request->store.link);
        rlock__zk_begin(zk, op);
    }
    rlock_timer_set(zk->client, &zk->timer, rlock_client_now_us(zk->client)); /* the next turn */
}

static inline const char *rlock__zk_refuses(void *state, const char *key, size_t len,
                                            const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)fencing;
    return terms && terms->count > 1 ? "in ZooKeeper a lock has one key"
           : len > RLOCK__ZK_KEY_MAX ? "in ZooKeeper a key has at most 1,000 bytes"
                                     : NULL;
}

/* Takes many nodes away with one request: a connection that is closed here is reset by the first
 * answer, and what the server has not read by then is lost. */
static inline void rlock__zk_leave_all(rlock__zk *zk, zoo_op_result_t *results) {
    zoo_op_t ops[RLOCK__ZK_TOGETHER];
    int i, n = 0;
    for (i = 0; i < RLOCK__ZK_BUCKETS && zk->up; i++) {
        rlock_link *at = zk->buckets[i].next;
        for (; at != &zk->buckets[i]; at = at->next) {
            rlock__zk_node *node = RLOCK__ZK_OF(at, rlock__zk_node, link);
            if (node->path[node->parent] && !node->leaves) { /* else its name is not known */
                zoo_delete_op_init(&ops[n++], node->path, -1);
            }
            if (n == RLOCK__ZK_TOGETHER) {
                zoo_amulti(zk->zh, n, ops, results, rlock__zk_on_nothing, NULL);
                n = 0;
            }
        }
    }
    if (n > 0) {
        zoo_amulti(zk->zh, n, ops, results, rlock__zk_on_nothing, NULL);
    }
    for (i = 0; i < RLOCK__ZK_BUCKETS && zk->up; i++) {
        rlock_link *at = zk->buckets[i].next;
        for (; at != &zk->buckets[i]; at = at->next) { /* where one was gone, the others stayed */
            rlock__zk_node *node = RLOCK__ZK_OF(at, rlock__zk_node, link);
            zoo_adelete(zk->zh, node->path, -1, rlock__zk_on_nothing, NULL);
        }
    }
}

static inline void rlock__zk_close(void *state) {
    rlock__zk *zk = (rlock__zk *)state;
    zoo_op_result_t results[RLOCK__ZK_TOGETHER]; /* of requests that are out until it is shut */
    zk->closing = true;
    if (zk->zh) {
        rlock__zk_report(zk, RLOCK_REPORT_DISCONNECTED, "closed by the client");
    }
    if (rlock_client_forked(zk->client)) { /* by on_event */
        return;
    }
    rlock__zk_unwatch(zk);
    while (rlock__zk_waiting(zk)) {
        rlock__zk_list_remove(&rlock__zk_waiting(zk)->store.link);
    }
    rlock__zk_leave_all(zk, results);
    rlock__zk_drop_all(zk);
    while (zk->ops.next != &zk->ops) { /* nobody is answered any more */
        rlock__zk_op *op = RLOCK__ZK_OF(zk->ops.next, rlock__zk_op, link);
        rlock__zk_list_remove(&op->link);
        op->request = NULL;
    }
    rlock__zk_shut(zk);
    rlock__zk_drop_all(zk); /* what was made meanwhile */
    rlock_timer_drop(zk->client, &zk->timer);
    free(zk);
}

/* Takes the user and the password, with bytes for %XX. False: they are too long, or a % stands for
 * no byte. */
static inline bool rlock__zk_decode(rlock__zk *zk, const char *text, size_t len) {
    size_t i, n = 0;
    unsigned byte;
    for (i = 0; i < len && n < sizeof zk->password - 1; i++) {
        if (text[i] == '%') {
            if (i + 2 >= len || !isxdigit((unsigned char)text[i + 1]) ||
                !isxdigit((unsigned char)text[i + 2]) || sscanf(text + i + 1, "%2x", &byte) != 1 ||
                !byte) {
                return false;
            }
            zk->password[n++] = (char)byte;
            i += 2;
        } else {
            zk->password[n++] = text[i];
        }
    }
    return i == len;
}

/* Reads ?session_ms=N&tick_ms=N, or a part of it. False: there is something else. */
static inline bool rlock__zk_options(rlock__zk *zk, const char *query) {
    while (query && *query) {
        bool session = strncmp(query + 1, "session_ms=", 11) == 0;
        const char *number = query + (session ? 12 : 9);
        char *end;
        if (!session && strncmp(query + 1, "tick_ms=", 8) != 0) {
            return false;
        }
        *(session ? &zk->session_ms : &zk->tick_ms) = strtol(number, &end, 10);
        if (end == number || (*end && *end != '&')) {
            return false;
        }
        query = end;
    }
    return true;
}

/* zookeeper://user:password@host:port,host/path?session_ms=10000&tick_ms=2000. NULL: it is good. */
static inline const char *rlock__zk_parse(rlock__zk *zk, const char *url) {
    static const char scheme[] = "zookeeper://";
    const char *hosts = url + sizeof scheme - 1, *path, *query, *at;
    size_t len;
    int count = 1;
    if (strncmp(url, scheme, sizeof scheme - 1) != 0) {
        return "expected zookeeper://host1,host2/path";
    }
    at = strchr(hosts, '@');
    if (at) {
        len = (size_t)(at - hosts);
        if (strcspn(hosts, "/?") < len || strchr(at + 1, '@')) {
            return "the user or password contains / ? or @: write %2F %3F %40";
        }
        if (!rlock__zk_decode(zk, hosts, len) || !memchr(hosts, ':', len)) {
            return "expected user:password of at most 255 bytes before @";
        }
        hosts = at + 1;
    }
    path = hosts + strcspn(hosts, "/?");
    query = strchr(path, '?');
    len = (size_t)(path - hosts);
    if (!len || len >= sizeof zk->hosts) {
        return "expected hosts of at most 511 bytes in all";
    }
    memcpy(zk->hosts, hosts, len);
    for (at = zk->hosts; (at = strchr(at, ',')) != NULL; at++) {
        count++;
    }
    if (count > RLOCK__ZK_HOSTS) {
        return "the URL has more than 16 hosts";
    }
    len = query ? (size_t)(query - path) : strlen(path);
    if (len >= sizeof zk->chroot || (len > 1 && path[len - 1] == '/')) {
        return "expected a path of at most 255 bytes, without a / at its end";
    }
    memcpy(zk->chroot, len > 1 ? path : "/rlock", len > 1 ? len : sizeof "/rlock");
    if (!rlock__zk_options(zk, query)) {
        return "expected only session_ms and tick_ms after ?, in milliseconds";
    }
    if (strstr(zk->chroot, "//") || strstr(zk->chroot, "/./") || strstr(zk->chroot, "/../")) {
        return "the path of the URL has an empty part";
    }
    return zk->session_ms >= 100 && zk->session_ms <= 86400000 && zk->tick_ms >= 0 &&
                   zk->tick_ms <= zk->session_ms / 5
               ? NULL
               : "session_ms must be 100 to 86,400,000, and at least five times tick_ms";
}

static inline int rlock__zk_open(const rlock_store *store, rlock_client *client,
                                 const struct rlock_config *config,
                                 const rlock_store_events *events, void *owner, void **state) {
    const rlock__zk_store *made = (const rlock__zk_store *)store->ctx;
    rlock__zk *zk = (rlock__zk *)calloc(1, sizeof *zk);
    const char *wrong;
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
    zk->session_ms = RLOCK__ZK_SESSION_MS;
    zk->tick_ms = RLOCK__ZK_TICK_MS;
    zk->fd = -1;
    zk->next_us = -1;
    zk->io.ready = rlock__zk_on_io;
    rlock__zk_list_init(&zk->urgent);
    rlock__zk_list_init(&zk->requests);
    rlock__zk_list_init(&zk->ops);
    rlock__zk_list_init(&zk->looks);
    for (i = 0; i < RLOCK__ZK_BUCKETS; i++) {
        rlock__zk_list_init(&zk->buckets[i]);
    }
    wrong = rlock__zk_parse(zk, made->url);
    zk->acl = zk->password[0] ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
    if (wrong) {
        rlock_client_log(client, RLOCK_LOG_ERROR, "the URL of ZooKeeper is not valid", wrong);
        rlock__zk_close(zk);
        return RLOCK_ERR_ARG;
    }
    if (rlock_client_hide(client, strchr(zk->password, ':') ? strchr(zk->password, ':') + 1
                                                            : NULL) != RLOCK_OK) {
        rlock__zk_close(zk);
        return RLOCK_ERR_NOMEM;
    }
    *state = zk;
    return RLOCK_OK;
}

/* Frees a store that rlock_zookeeper_new made, after the last of its clients. NULL is allowed. */
static inline void rlock_zookeeper_free(rlock_store *store) {
    free(store ? store->ctx : NULL);
}

/* Makes a store of the ZooKeeper that a URL leads to, as
 * zookeeper://user:password@host1:2181,host2/path?session_ms=10000&tick_ms=2000, of which only
 * the scheme and one host are required. In the user and the password %XX stands for a byte. With a
 * password (as of `addauth digest`) the nodes belong to it, else to every client. The path,
 * "/rlock" if there is none, is made when it is needed. session_ms is the timeout to ask for: the
 * server gives 2 to 20 of its ticks. tick_ms is the server's tickTime, of which the session must
 * have five: a lease has the session's timeout less two ticks, or less a fifth of it where that is
 * more. Any number of clients, on any threads, may use the store; free it after them. A URL that is
 * wrong is refused by rlock_client_new.
 * Errors: RLOCK_ERR_ARG (out or url is NULL), RLOCK_ERR_NOMEM. */
static inline int rlock_zookeeper_new(rlock_store **out, const char *url) {
    static const rlock_store functions = {NULL,
                                          rlock__zk_open,
                                          rlock__zk_close,
                                          rlock__zk_submit,
                                          rlock__zk_forget,
                                          rlock__zk_track,
                                          rlock__zk_flush,
                                          rlock__zk_refuses,
                                          NULL,
                                          0, /* a node lives with its session */
                                          NULL};
    rlock__zk_store *store;
    if (!out || !url) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    store = (rlock__zk_store *)calloc(1, sizeof *store + strlen(url));
    if (!store) {
        return RLOCK_ERR_NOMEM;
    }
    store->store = functions;
    store->store.ctx = store;
    memcpy(store->url, url, strlen(url) + 1);
    *out = &store->store;
    return RLOCK_OK;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_ZOOKEEPER_H */

/*
 * Copyright (c) 2026 the rlock authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
