/* ------------------------------------------------------------------------------------------------
 * >>redis-state - the store on hiredis: what a connection, a command and the store consist of
 */

#ifndef RLOCK_STORE_REDIS_STATE_H
#define RLOCK_STORE_REDIS_STATE_H

#include "public/head.h"
#include "public/loop.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#ifndef __HIREDIS_ASYNC_H /* else it is included already, from wherever it is */
#ifndef RLOCK_HIREDIS_ASYNC
#define RLOCK_HIREDIS_ASYNC <hiredis/async.h>
#endif
#ifdef __cplusplus
extern "C" { /* hiredis 0.14 leaves it out of async.h */
#endif
#include RLOCK_HIREDIS_ASYNC
#ifdef __cplusplus
}
#endif
#endif

#define RLOCK__WINDOW 262144u /* bytes sent and not answered; what is more waits in order */
#define RLOCK__HEARTBEAT 3    /* command timeouts of silence on the push connection */
#define RLOCK__BACKOFF_MIN_MS 10
#define RLOCK__BACKOFF_MAX_MS 1000
#define RLOCK__ADDRESSES 8      /* of one name, that are tried */
#define RLOCK__LOOKUPS 16       /* names of one connection that are resolved at the same time */
#define RLOCK__PATIENCE_MS 250  /* with an address, while another one waits to be tried */
#define RLOCK__SENTINEL_MS 1000 /* from the answer of a Sentinel to the next question */
#define RLOCK__MOVED_MS 10000   /* a connection that serves is given up for a MOVED so seldom */
#define RLOCK__IDENTITY 40      /* characters of a run_id and a master_replid */
#define RLOCK__MARKER 24u       /* of the name of a marker, after the prefix, with a NUL */
#define RLOCK__ROOM 1024u       /* of a release of a mutex with its script, but for the key */
#define RLOCK__EPOCHS_MIXED UINT32_MAX /* in a note: attempts at several nodes, or no epoch left */
#define RLOCK__ELEMENTS_MAX 65536u     /* of one array in a reply */
#define RLOCK__HOST_MAX 255u           /* bytes of a name that a resolver takes */
#define RLOCK__REPLY_TEXT 128u         /* a reply of fewer bytes needs no memory */
#define RLOCK__ADDRESS_MAX (INET6_ADDRSTRLEN + 24)     /* of IPv6 with its scope */
#define RLOCK__BATCH 64                                /* most renewals in one command */
#define RLOCK__BATCH_BYTES 16384u                      /* most bytes of their keys together */
#define RLOCK__BATCH_ROOM (RLOCK__BATCH_BYTES + 4096u) /* with all the rest of it */

enum { RLOCK__QUEUED, RLOCK__FLYING }; /* rlock_request.store.stage */

/* What the bytes of rlock_request.store.own are. */
enum {
    RLOCK__ENCODING, /* RLOCK__AS_... */
    RLOCK__HOPS,     /* of a cluster: by how many redirects the request came to its node */
    RLOCK__ASKING,   /* of a cluster: the last of them was ASK */
    RLOCK__FAULT     /* of a cluster: why no node has the request */
};

/* The queues of requests: urgent ones, then one for each operation, then acquires that wait until
 * it is known whether the server is in quarantine. */
enum { RLOCK__URGENT = 0, RLOCK__PARKED = 4, RLOCK__QUEUES };

enum { /* how a request is sent */
       RLOCK__AS_BEST = 0,
       RLOCK__AS_PLAIN,  /* by one command of the server */
       RLOCK__AS_SCRIPT, /* by the script's SHA-1: that one said no, or more is wanted */
       RLOCK__AS_EVAL,   /* by the script in full: the server does not know it */
       RLOCK__AS_BEHIND, /* by its SHA-1 after another request that sends it in full now */
       RLOCK__AS_FULL    /* by the script in full, after BEHIND did not help */
};

enum { RLOCK__CONN_DOWN, RLOCK__CONN_OPENING, RLOCK__CONN_HANDSHAKE, RLOCK__CONN_READY };

/* What a connection says before it is used, in this order, each where it applies. What stands from
 * NAME to QUARANTINE leaves together. ROLE is asked for where INFO does not tell it: no ACL forbids
 * HELLO. */
enum {
    RLOCK__STEP_AUTH,
    RLOCK__STEP_SELECT,
    RLOCK__STEP_NAME,
    RLOCK__STEP_ID,
    RLOCK__STEP_REPLICATION,
    RLOCK__STEP_SERVER,
    RLOCK__STEP_NATIVE,
    RLOCK__STEP_QUARANTINE,
    RLOCK__STEP_ROLE,
    RLOCK__STEP_KILL,
    RLOCK__STEPS
};

typedef union rlock__address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
} rlock__address;

/* Where a server is: a host, and what its name stood for when it was last resolved. */
typedef struct rlock__endpoint {
    char *host;
    int port;
#if RLOCK__HAS_TLS
    const rlock_tls *tls; /* NULL: not encrypted */
#endif
    uint32_t failures; /* attempts that failed since one worked */
#if RLOCK__HAS_NAMES
    uint32_t count, at; /* how many addresses were found, and which is tried; 0: a numeric host */
    rlock__address found[RLOCK__ADDRESSES]; /* in the order in which to try them */
    rlock__address good;                    /* the one that worked last; its family 0: none yet */
#endif
} rlock__endpoint;

#if RLOCK__HAS_NAMES

/* A name that a connection asked for. The connection may lead to another host by now. */
typedef struct rlock__lookup {
    rlock_name name;
    struct rlock__conn *conn;
    struct rlock__lookup *next;
    char *host; /* NULL: it was answered, and may be used again */
} rlock__lookup;

#endif /* RLOCK__HAS_NAMES */

typedef struct rlock__conn { /* small members first: they are reached with less code */
    bool wanted, failing, blocked;
    bool moved;      /* the host has changed since this attempt's time began */
    bool walks;      /* this attempt goes on at the next address */
    bool error_kept; /* text and fault are of this attempt */
    bool strayed;    /* it led to the wrong server: ends when all in flight is answered */
    bool doubted;    /* late with an answer: its socket is read once more */
    bool shard;      /* what is read now came on a sharded channel */
    bool refused;    /* it ended with an error instead of an answer */
#if RLOCK__HAS_CREDENTIALS
    bool renews;          /* it is opened anew at once, for newer credentials */
    uint32_t credentials; /* which ones it was told last: see >>redis-credentials */
#endif
    struct rlock__redis *redis;
    rlock__endpoint *endpoint; /* where it leads, without a hook and a path */
    redisAsyncContext *ac;
    int state, fd;
    int step;      /* of the handshake, that is said next */
    unsigned want; /* what hiredis wants watched */
    uint32_t outstanding, backoff_ms;
    uint32_t repeats;  /* how many attempts before the last ended with the same text */
    rlock_fault fault; /* why it is going down, or went down last */
    int64_t ready_us;  /* when the handshake was over */
    int64_t alive_us;  /* the last complete reply, or the first command after silence */
    int64_t heard_us;  /* the last complete reply */
    long long id;      /* CLIENT ID; 0 = unknown */
    rlock_timer timer; /* the next attempt to connect, or the test whether it is alive */
    rlock_io io;
#if RLOCK__HAS_NAMES
    rlock__lookup *lookups; /* each of another name; none is freed before the connection's end */
#endif
    redisReplyObjectFunctions *make;    /* hiredis' own */
    redisReplyObjectFunctions guard;    /* the same, after rlock__reply_expected */
    redisReply reply;                   /* the one being read, where no tree is needed */
    char reply_text[RLOCK__REPLY_TEXT]; /* its text, with a NUL */
    char text[128];
    char run_id[RLOCK__IDENTITY +
                1]; /* of the server's process, of the last handshake; empty = unknown */
} rlock__conn;

typedef struct rlock__command { /* one request or more in flight; kept for the next ones */
    rlock_link link;
    uint8_t count, op, encoding; /* RLOCK__AS_... */
    uint8_t kept; /* how many of the requests, from the first on, are answered when synced */
    bool ours;
    bool tells; /* its request's script in full */
    bool heard; /* the keys that it reads are registered, and the push connection listens */
    uint32_t bytes;
    struct rlock__redis *redis;
    rlock_request *one, **requests; /* in the order of its arguments; NULL: forgotten */
    rlock_request **batch;          /* room for a batch, once there was one */
    uint64_t fence;                 /* of an acquire whose answer is kept, with `ours` */
} rlock__command;

typedef struct rlock__host {
    char *name;
    int port;
} rlock__host;

#if RLOCK__HAS_SENTINEL

/* Those that know where the primary is, and what they said. */
typedef struct rlock__sentinel {
    rlock__conn conn;
    rlock__endpoint endpoint; /* of the one that is asked */
    char *primary, *username, *password;
    char *text; /* the names of all hosts */
    rlock__host *hosts;
    uint32_t count, at; /* how many they are, and which one is asked */
    uint32_t silent;    /* how many in a row had no answer */
    uint32_t behind;    /* how many in a row knew less than is known */
    char *named;        /* the last answer: a host */
    int named_port;
    int64_t named_epoch; /* its config-epoch; -1 = unknown */
    int64_t epoch;       /* the config-epoch of the address in use; -1 = unknown */
    bool waited;         /* the command connection waits for an answer */
    bool misled;         /* the address was tried, and has not worked yet */
    bool heard;          /* on this connection there was an answer */
    rlock_map_address *map;
    void *map_user;
#if RLOCK__HAS_CREDENTIALS
    uint32_t credentials; /* how often they were replaced */
#endif
} rlock__sentinel;
#endif

#if RLOCK__HAS_REPLICAS

/* How many replicas must have what is granted or renewed: see rlock__answer. */
typedef struct rlock__sync {
    int replicas;
    int64_t ms;      /* how long one WAIT takes at most */
    rlock_link kept; /* commands whose answers wait for one */
    bool wanted;     /* something was sent that the next one has to cover */
    bool out;        /* one is; the server runs what comes behind it after its answer */
    bool refused;    /* the last one was; it was logged */
    bool opens;      /* none was sent yet: the push connection is opened first */
    char words[RLOCK__LINE];
} rlock__sync;

/* For how long the server grants no lock, by config.quarantine_ms. */
typedef struct rlock__quarantine {
    struct rlock__redis *redis;
    int64_t ms;
    int64_t until_us; /* nothing is granted before; RLOCK__NEVER: the server cannot tell */
    rlock_timer timer;
    uint32_t asked;                   /* questions on their way, besides that of the handshake */
    bool late;                        /* the handshake did not ask this */
    bool unmapped;                    /* of a node: waits for a map of its slots */
    bool led;                         /* ... because its marker was elsewhere */
    char marker[RLOCK__MARKER];       /* its key, after the prefix; empty: a node without slots */
    char refusal[RLOCK__LINE];        /* why it cannot tell; empty: it can */
    char run_id[RLOCK__IDENTITY + 1]; /* of a node: which process, with which history ... */
    char replid[RLOCK__IDENTITY + 1];
    int64_t known_us; /* ... it has been since then, or longer */
} rlock__quarantine;

#endif /* RLOCK__HAS_REPLICAS */

/* Whether a server runs the script of many renewals. */
enum {
    RLOCK__BATCHES_NONE,
    RLOCK__BATCHES_UNTOLD, /* it has to be sent that script in full first */
    RLOCK__BATCHES_KNOWN
};

/* By what a server tells of changes of keys. */
enum {
    RLOCK__CHANGES_TRACKED,  /* by client tracking */
    RLOCK__CHANGES_CHANNELS, /* by the channels of Redisson: tracking is refused */
    RLOCK__CHANGES_REFUSED   /* by nothing: keys are looked at again and again */
};

/* How notifications stand, on the client's own channel. */
enum {
    RLOCK__NOTIFY_UNUSED, /* no key is of a queued kind */
    RLOCK__NOTIFY_WANTED,
    RLOCK__NOTIFY_ON,     /* the channel is subscribed to */
    RLOCK__NOTIFY_REFUSED /* by an ACL of the server of this connection */
};

typedef struct rlock__redis { /* small members first, as in rlock__conn */
    bool served;              /* this connection has done something */
    bool native;              /* the server of this connection knows DELIFEQ */
    bool of_cluster;          /* the server is a node: see >>cluster */
    bool inherits;            /* the server of this connection goes on with the history before */
    bool roleless;            /* INFO did not say whether that server is a replica */
    bool push_wanted;         /* some key was to be watched */
    bool tracked, subscribed, closing;
    bool queue_wanted;   /* a handle of this client has waited in a queue */
    bool sharded;        /* this push connection asked for channels of slots */
    bool shards_refused; /* and may not, or the server knows none */
    bool shards_moved;   /* another node has the slot of one: a newer map is wanted */
    bool overflow;       /* of the buffer */
    uint8_t batches;     /* RLOCK__BATCHES_... of the server of this connection */
    uint8_t changes;     /* RLOCK__CHANGES_... of the server of this connection */
    uint8_t notify;      /* RLOCK__NOTIFY_... */
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_stats *stats;
#if RLOCK__HAS_REDISSON
    rlock_wire wire;
#endif
    unsigned pushing;                 /* what was reported last */
    uint32_t bytes;                   /* of commands in flight */
    uint32_t first_epoch, last_epoch; /* its epochs are above the one, and up to the other */
    uint32_t epoch;                   /* of the command connection, counted from first_epoch + 1 */
    uint32_t dead_up_to; /* connections above alive_up_to and up to this one execute nothing more */
    uint32_t alive_up_to; /* connections up to this one may still execute something; 0 = none */
    uint32_t moved_up_to; /* those up to this one were perhaps of another process */
    uint32_t lost_epoch;  /* the last one that was lost with a request that may not be done late */
    const char *script_in_flight; /* in full: it is not sent again meanwhile */
    char *buffer;                 /* where commands are formatted */
    size_t length, room;
    struct redisAsyncContext *(*connect)(void *user);
    void *user;
    char *unix_path, *username, *password, *name, *prefix;
#if RLOCK__HAS_CREDENTIALS
    uint32_t credentials; /* how often they were replaced */
    uint32_t auths;       /* AUTHs for newer ones that the command connection has not answered */
#endif
    int database;
    rlock_link queues[RLOCK__QUEUES]; /* each first come first */
    rlock_link spare;                 /* rlock__command */
    int64_t timeout_us;
    int64_t heard_us;  /* when the process before answered last */
    int64_t moved_us;  /* when a connection was last given up for a MOVED; 0 = never */
    long long lost_id; /* CLIENT ID of lost_epoch, to be killed at the same process of a server */
#if RLOCK__HAS_SENTINEL
    struct rlock__sentinel *sentinel; /* NULL: none is asked */
#endif
#if RLOCK__HAS_REPLICAS
    rlock__quarantine *quarantine; /* NULL: there is none */
    rlock__sync *sync;             /* NULL: no replica has to have anything */
#endif
#if RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_KINDS
    struct rlock__told *told; /* NULL: no question for descriptions was sent yet */
#endif
    rlock__conn commands, push;
    rlock__endpoint endpoint;         /* where both connections lead */
    char replid[RLOCK__IDENTITY + 1]; /* the history of the data of that server; empty = unknown */
    struct sockaddr_storage peer;     /* the address of that process; AF_UNSPEC = unknown */
} rlock__redis;

/* True if something was sent of which replicas have not been asked yet: see >>redis-wait. */
static bool rlock__redis_owes(const rlock__redis *redis) {
#if RLOCK__HAS_REPLICAS
    return redis->sync && redis->sync->wanted;
#else
    (void)redis;
    return false;
#endif
}

/* True if mutexes are those of Redisson, which other clients of it see. */
static bool rlock__is_redisson(const rlock__redis *redis) {
#if RLOCK__HAS_REDISSON
    return redis->wire == RLOCK_WIRE_REDISSON;
#else
    (void)redis;
    return false;
#endif
}

/* True for the store of a node: see >>cluster. */
static bool rlock__is_node(const rlock__redis *redis) {
#if !RLOCK__HAS_CLUSTER
    (void)redis;
    return false;
#else
    return redis->of_cluster;
#endif
}

#endif /* RLOCK_STORE_REDIS_STATE_H */
