/* ------------------------------------------------------------------------------------------------
 * >>store-contract - where locks are kept: requests go down, answers and events come up
 *
 * A store knows nothing of handles, callbacks or waiting; a lock knows nothing of connections,
 * scripts or replies. Nothing of a store may block, and no `answered` may be called from inside
 * submit: answer from a timer or a descriptor. docs/writing-a-store.md walks through one.
 */

#ifndef RLOCK_PUBLIC_STORE_H
#define RLOCK_PUBLIC_STORE_H

#include "public/head.h"
#include "public/loop.h"

/* The kinds below MUTEX are queued: who waits stands in a line at the server, first come, first
 * served, and is called when it is granted; each hold has a lease of its own. On one key FAIR goes
 * with FAIR, READ with WRITE, SEMAPHORE with SEMAPHORE, MUTEX with MUTEX: every other meeting is
 * RLOCK_ERR_WRONG_TYPE, and harms nothing. */
typedef enum rlock_kind {
    RLOCK_KIND_MUTEX = 0, /* one holder; who asks first when it is free has it */
    RLOCK_KIND_FAIR,      /* one holder, in the order in which they asked */
    RLOCK_KIND_READ,      /* on one key any number of readers ... */
    RLOCK_KIND_WRITE,     /* ... or one writer */
    RLOCK_KIND_SEMAPHORE  /* holders of no more than `permits` together */
} rlock_kind;

/* INSPECT and what follows are questions about a key, of nobody's hold. */
typedef enum rlock_op {
    RLOCK_OP_ACQUIRE = 0,
    RLOCK_OP_RENEW,
    RLOCK_OP_RELEASE,
    RLOCK_OP_INSPECT,    /* how things stand: see rlock_info */
    RLOCK_OP_FORCE,      /* away with every hold, and tell the holders */
    RLOCK_OP_SET_PERMITS /* the number in `token` is what the semaphore has from now on */
} rlock_op;

/* Flags of an acquire.
 * RETRY: this token may be there already, from an attempt that was not answered.
 * WATCH: somebody waits; if held, say for how long and call `woken` when it changes.
 * ONCE: nobody waits: of a queued kind, do not join the line. */
#define RLOCK_REQUEST_RETRY 1u
#define RLOCK_REQUEST_WATCH 2u
#define RLOCK_REQUEST_ONCE 4u

typedef struct rlock_link {
    struct rlock_link *prev, *next;
} rlock_link;

typedef struct rlock_timer {
    int64_t due_us;
    uint32_t index; /* place in its heap, counted from 1; 0 = not in one */
    uint32_t turn;  /* of its client, in which it was set */
    void (*fire)(struct rlock_timer *timer);
} rlock_timer;

/* What a key is asked for as, if not as a MUTEX of one key. */
typedef struct rlock_terms {
    rlock_kind kind;
    uint32_t permits;     /* of a queued kind: what all holders together may weigh; ... */
    uint32_t weight;      /* ... what one weighs */
    uint64_t owner;       /* see options.owner */
    uint64_t beside;      /* acquire: the hold of this token is no obstacle; 0 = none */
    uint32_t count;       /* keys, one behind the other at request.key, with a NUL behind each */
    const uint32_t *lens; /* their lengths */
} rlock_terms;

typedef struct rlock_request {
    const char *key;          /* the first, if there are several */
    const rlock_terms *terms; /* NULL: a MUTEX of one key */
    uint32_t key_len;
    uint8_t op, flags;
    uint8_t place;    /* the store's: where the request is now; 0 = not with the store */
    uint8_t how;      /* the store's */
    uint16_t fences;  /* acquire: how many fencing tokens in a row are wanted; 0 = none */
    uint32_t epoch;   /* the store's; 0 when the request is new */
    int64_t lease_ms; /* renew: 0 = only look whether the token is still there; never shorten
                         a time to live */
    uint64_t token;   /* together with rlock_client_id() unique in the world; inspect: whose place
                         in the line is wanted, 0 = nobody's */
    uint64_t next;    /* release: whose acquire is submitted right behind this, so that it need
                         not be called; 0 = nobody's */
    int64_t sent_us;  /* the store sets it: the clock before the request could leave */
    int64_t due_us;   /* of requests that have to wait, the earliest goes first */
    rlock_link link;  /* the store's */
    void *store;      /* the store's */
} rlock_request;

typedef enum rlock_outcome {
    RLOCK_OUTCOME_DONE = 0, /* granted, renewed or released */
    RLOCK_OUTCOME_HELD,     /* acquire: another's token is there, for left_ms more (-1: for ever) */
    RLOCK_OUTCOME_GONE,     /* renew, release: the key is not there */
    RLOCK_OUTCOME_STOLEN,   /* renew, release: another's token is there */
    RLOCK_OUTCOME_FAULT     /* none of these: see fault */
} rlock_outcome;

/* The rows of FAULT x OPERATION above. */
typedef enum rlock_fault {
    RLOCK_FAULT_DOWN = 0,
    RLOCK_FAULT_UNKNOWN,
    RLOCK_FAULT_BUSY,
    RLOCK_FAULT_AUTH,
    RLOCK_FAULT_TYPE,
    RLOCK_FAULT_NOMEM,
    RLOCK_FAULT_OTHER
} rlock_fault;

/* How a key stands at the server. */
typedef struct rlock_info {
    int status;        /* RLOCK_OK, or how the question failed: as of an acquire that tries once */
    int64_t holders;   /* 0 = nobody; of a FORCE: whose holds were taken away */
    int64_t left_ms;   /* until the last of their leases is over; -1: never */
    int64_t waiters;   /* in the line at the server; -1 of a MUTEX, which has none */
    int64_t permits;   /* what could be granted now; of a MUTEX 1 or 0 */
    int64_t position;  /* of rlock_queue_position: how many are before it; else -1 */
    const char *token; /* of a holder, NULL = none; any bytes, with a NUL behind; until the ... */
    size_t token_len;
    const char *text; /* the server's words of an error, or NULL; ... callback returns */
} rlock_info;

typedef struct rlock_answer {
    rlock_outcome outcome;
    rlock_fault fault;
    bool sure;   /* when this request ran, no earlier attempt of it could be executed any more; that
                  none can be now, when the answer is read, is not enough */
    bool ours;   /* acquire, of a queued kind: granted, and who is next in line is of this client */
    bool told;   /* acquire, HELD: `woken` comes for each change since this request ran */
    bool undone; /* a fault OTHER: this attempt was surely not executed, nor will it be */
    uint64_t fence;
    int64_t left_ms;
    const char *text;       /* the server's words, or NULL; valid during the call */
    const rlock_info *info; /* of a question that was answered; valid during the call */
} rlock_answer;

#define RLOCK_PUSH_CHANGES 1u /* `woken` comes for watched keys */
#define RLOCK_PUSH_CALLS 2u   /* `called` comes for who waits in a line */

/* A store calls these; `owner` is what open was given. */
typedef struct rlock_store_events {
    void (*answered)(void *owner, rlock_request *request, const rlock_answer *answer);

    /* Requests leave again; what was held must be checked. */
    void (*up)(void *owner);

    /* An attempt to connect failed, or a connection was lost. */
    void (*down)(void *owner, rlock_fault fault, const char *text);

    /* What is pushed now: RLOCK_PUSH_... */
    void (*pushing)(void *owner, unsigned what);

    /* A hint: the key changed; NULL = any may have. */
    void (*woken)(void *owner, const char *key, size_t key_len);

    /* A hint: this token of ours has come to the head of the line, or was taken away. */
    void (*called)(void *owner, const char *key, size_t key_len, uint64_t token);
} rlock_store_events;

struct rlock_config;

typedef struct rlock_store {
    /* Yours. */
    void *ctx;

    /* RLOCK_OK, or an error from >>status-codes. */
    int (*open)(const struct rlock_store *store, rlock_client *client,
                const struct rlock_config *config, const rlock_store_events *events, void *owner,
                void **state);

    /* Does or sends what was submitted, without waiting; nothing is called or answered any more. */
    void (*close)(void *state);

    /* Answered once, unless forgotten first. */
    void (*submit)(void *state, rlock_request *request);

    /* No answer any more; true: it may have been, or be, done. */
    bool (*forget)(void *state, rlock_request *request);

    /* `woken` is wanted; may be repeated. */
    void (*watch)(void *state, const char *key, size_t key_len, bool on);

    /* The end of an entry: send what was submitted. */
    void (*flush)(void *state);

    /* Optional: what it cannot do, in words for the log, or NULL. It is asked for each new handle;
     * the terms may be NULL, as in a request. */
    const char *(*refuses)(void *state, const char *key, size_t key_len, const rlock_terms *terms,
                           bool fencing);
} rlock_store;

/* What a store may ask of its client: the clock of this entry; its id, 36 characters, a random
 * UUID; timers and descriptors. Timers fire inside an entry, before anything else; a timer is
 * `added` once before its first set (RLOCK_ERR_NOMEM possible) and dropped before its memory goes;
 * set moves it, a negative time stops it. */
RLOCK_API int64_t rlock_client_now_us(const rlock_client *client);
RLOCK_API const char *rlock_client_id(const rlock_client *client);
RLOCK_API int rlock_timer_add(rlock_client *client, rlock_timer *timer,
                              void (*fire)(rlock_timer *timer));
RLOCK_API void rlock_timer_set(rlock_client *client, rlock_timer *timer, int64_t due_us);
RLOCK_API void rlock_timer_drop(rlock_client *client, rlock_timer *timer);
RLOCK_API int rlock_io_watch(rlock_client *client, rlock_io *io, int fd, unsigned events);

/* A store inside the process: same leases, waiting, waking and fencing, no server. Every client
 * whose config names it shares its keys; all of them on one thread. Free it after its clients.
 * NULL is allowed. Errors: RLOCK_ERR_ARG, RLOCK_ERR_NOMEM (also: no random bytes). */
RLOCK_API int rlock_memory_new(rlock_store **out);
RLOCK_API void rlock_memory_free(rlock_store *store);

/* A store made of 1 to 15 Redis servers that know nothing of each other: a key is held if a
 * majority of them says so, and goes on so while fewer than half of them fail (docs/guarantees.md).
 * Of each config only host, port, unix_path, username, password, database, connect with its user,
 * and store (NULL = Redis) are read, and copied; all else comes from the client's config, whose own
 * address is not used. Every client that locks the same keys must name the same servers. It gives
 * no fencing numbers. Any number of clients, on any threads; free it after them. NULL is allowed.
 * Not there with RLOCK_NO_REDIS or RLOCK_NO_KINDS. Errors: RLOCK_ERR_ARG, RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_quorum_new(rlock_store **out, const struct rlock_config *servers, int count);
RLOCK_API void rlock_quorum_free(rlock_store *store);

#endif /* RLOCK_PUBLIC_STORE_H */
