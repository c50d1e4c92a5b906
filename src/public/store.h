/* ------------------------------------------------------------------------------------------------
 * >>store-contract - where locks are kept: requests go down, answers and events come up
 *
 * A store knows nothing of handles, callbacks or waiting; the core knows nothing of connections,
 * scripts or replies. No function of a store may block, and none may call `answered` from inside
 * submit: a store answers from a timer or a descriptor. docs/writing-a-store.md walks through one.
 */

#ifndef RLOCK_PUBLIC_STORE_H
#define RLOCK_PUBLIC_STORE_H

#include "public/head.h"
#include "public/loop.h"

/* What a lock excludes. FAIR, READ, WRITE and SEMAPHORE are queued: the server keeps their waiters
 * in a queue, first come, first served, offers the lock to the first and notifies it. Each hold has
 * a lease of its own. On one key FAIR goes with FAIR, READ with WRITE, SEMAPHORE with SEMAPHORE,
 * MUTEX with MUTEX; every other combination is RLOCK_ERR_WRONG_TYPE, and changes nothing. */
typedef enum rlock_kind {
    RLOCK_KIND_MUTEX = 0, /* one holder; among clients, the first whose attempt finds it free */
    RLOCK_KIND_FAIR,      /* one holder, in the order of the queue */
    RLOCK_KIND_READ,      /* any number of readers, while no writer holds; but see options.owner */
    RLOCK_KIND_WRITE,     /* one writer, while no reader holds */
    RLOCK_KIND_SEMAPHORE  /* any number of holders that together take no more than `permits` */
} rlock_kind;

/* What a request wants. INSPECT and those after it are questions about a key, independent of any
 * hold. */
typedef enum rlock_op {
    RLOCK_OP_ACQUIRE = 0,
    RLOCK_OP_RENEW,
    RLOCK_OP_RELEASE,
    RLOCK_OP_INSPECT,    /* report how the key stands: see rlock_info */
    RLOCK_OP_FORCE,      /* remove every hold, and notify the holders */
    RLOCK_OP_SET_PERMITS /* set the number of permits that the semaphore has from now on */
} rlock_op;

/* Flags of an acquire.
 * RETRY: this token may be there already, from an attempt that was not answered.
 * TRACK: the handle waits; if the key is held, say for how long, and report a change by `woken`.
 * ONCE: the handle does not wait: it may not join the queue of a queued kind.
 * Flag of INSPECT. DESCRIBE: rlock_info.who is wanted too, if the store knows it.
 * Of a renewal, LAST: it leaves the hold. If it is done, nothing more is asked of this token. */
#define RLOCK_REQUEST_RETRY 1u
#define RLOCK_REQUEST_TRACK 2u
#define RLOCK_REQUEST_ONCE 4u
#define RLOCK_REQUEST_DESCRIBE 8u
#define RLOCK_REQUEST_LAST 16u

/* A place in a list of the store's. */
typedef struct rlock_link {
    struct rlock_link *prev, *next;
} rlock_link;

/* A timer of a store: see rlock_timer_add. */
typedef struct rlock_timer {
    int64_t due_us;
    uint32_t index;     /* where it is in its heap, counted from 1; 0 = not in one */
    uint32_t iteration; /* of its client, in which it was set */
    void (*fire)(struct rlock_timer *timer);
} rlock_timer;

/* What kind of lock a request means, if it is not a MUTEX with one key. */
typedef struct rlock_terms {
    rlock_kind kind;
    uint32_t permits;     /* queued kinds: the permits of the key */
    uint32_t weight;      /* queued kinds: how many permits one hold takes */
    uint64_t owner;       /* see options.owner */
    uint32_t count;       /* keys: they follow each other at request.key, each with a NUL */
    const uint32_t *lens; /* the lengths of the keys */
} rlock_terms;

/* What a store keeps in a request. Nothing else reads or writes it, so a store made of stores has
 * one for itself, and one in each request that it makes. `note` is 0 when a token is new, and
 * what the store leaves there it finds in the next request of the same token. The other members
 * mean something only while the store has the request, and nothing before. */
typedef struct rlock_private {
    rlock_link link;
    void *data;
    uint32_t note;
    uint8_t stage;  /* of the request in the store, by numbers of the store */
    uint8_t own[7]; /* what else it keeps */
} rlock_private;

/* What the core wants of a store. */
typedef struct rlock_request {
    const char *key;          /* the first, if there are several */
    const rlock_terms *terms; /* NULL: a MUTEX with one key */
    uint32_t key_len;
    uint8_t op, flags;
    uint16_t fences;    /* acquire: how many fencing tokens in a row to reserve; 0 = none */
    uint32_t permits;   /* set permits: the number; 0 = what the terms say */
    bool out;           /* belongs to the submitter: the store has the request */
    int64_t lease_ms;   /* acquire, renew: the lease; renew with 0 is a check: it only reports
                         whether the token is still there. Never shorten a time to live ... */
    int64_t longest_ms; /* renew: ... but to this, the longest lease that the token was asked for:
                         it was made longer by a clock that was set back; 0 = not at all */
    uint64_t token;     /* together with rlock_client_id() unique in the world; inspect: the waiter
                         whose position is wanted, 0 = none */
    uint64_t next;      /* release: the waiter whose acquire is submitted right after this one, so
                         that it need not be notified; 0 = none */
    uint64_t writer;    /* acquire: ignore the hold of this token; 0 = none */
    const char *id;     /* renew, release: the rlock_client_id() of the client whose token it is,
                         which gave the hold away; NULL = this client's. See RLOCK_STORE_ADOPTS */
    int64_t sent_us;    /* the store sets it: the clock before the request could leave */
    int64_t due_us;     /* of the requests that have to wait, the earliest goes first */
    rlock_private store;
} rlock_request;

/* How a request ended. */
typedef enum rlock_outcome {
    RLOCK_OUTCOME_DONE = 0, /* granted, renewed or released */
    RLOCK_OUTCOME_HELD,     /* acquire: another holds it, for left_ms more (-1: without end) */
    RLOCK_OUTCOME_GONE,     /* renew, release: the key is not there */
    RLOCK_OUTCOME_STOLEN,   /* renew, release: another's token is there */
    RLOCK_OUTCOME_FAULT     /* none of these: see fault */
} rlock_outcome;

/* The rows of the table FAULT x OPERATION. */
typedef enum rlock_fault {
    RLOCK_FAULT_DOWN = 0,
    RLOCK_FAULT_UNKNOWN,
    RLOCK_FAULT_BUSY,
    RLOCK_FAULT_AUTH,
    RLOCK_FAULT_TYPE,
    RLOCK_FAULT_NOMEM,
    RLOCK_FAULT_OTHER
} rlock_fault;

/* A holder or a waiter of a key: see rlock_describe. */
typedef struct rlock_who {
    const char *token; /* any bytes, then a NUL; of a client of this library its id of 36
                          characters, a colon and a number */
    size_t token_len;
    const char *description; /* of its client, without control bytes, at most 255; NULL: it has
                                none, or is not connected to this server now */
    int64_t left_ms;         /* of a holder, until its lease ends; -1 = never. Of a waiter -1 */
    bool waits;              /* it waits in the queue at the server; false: it holds */
} rlock_who;

/* How a key stands at the server. */
typedef struct rlock_info {
    int status;        /* RLOCK_OK, or how the question failed: as an acquire with wait_ms 0 */
    int64_t holders;   /* number of holders; after a forced release: of those removed */
    int64_t left_ms;   /* until the last of their leases ends; -1 = never */
    int64_t waiters;   /* in the queue at the server; -1 for a MUTEX, which has no queue */
    int64_t permits;   /* what could be granted now; for a MUTEX 1 or 0 */
    int64_t position;  /* rlock_queue_position: how many waiters are ahead; else -1 */
    const char *token; /* a holder's token: any bytes, then a NUL; NULL if the key is free. Valid
                          until the callback returns */
    size_t token_len;
    const char *text; /* the server's words of an error, or NULL. Valid as long as `token` */

    /* rlock_describe: the holders, then the waiters in their order, at most 100 of each; NULL: not
     * asked, or not known. And why there are no descriptions, or no list, or NULL. Both are valid
     * as long as `token`. */
    const rlock_who *who;
    size_t who_count;
    const char *untold;
} rlock_info;

/* What a store says of a request. */
typedef struct rlock_answer {
    rlock_outcome outcome;
    rlock_fault fault;
    bool settled; /* no earlier attempt could be executed any more when this request ran: that
                        none can be now, when the answer is read, is not enough */
    bool ours;    /* acquire of a queued kind, DONE: the next in the queue is of this client too */
    bool watched; /* acquire, HELD: `woken` reports each change since this request ran */
    bool undone;  /* fault OTHER: this attempt was surely not executed, nor will it be */
    bool spent;   /* acquire, a fault: the store sent a release of this token too, which may be
                    executed late; so it is not asked for again */
    uint16_t fences;  /* acquire, DONE: how many fencing tokens are reserved, if they are fewer than
                          were asked for; 0 = as asked for */
    uint64_t fence;   /* acquire, DONE: the first of them; 0 if none was wanted */
    int64_t lease_ms; /* acquire, renew, DONE: the lease that was given, if it is shorter than the
                         one that was asked for; 0 = as asked for */
    int64_t left_ms;  /* acquire, HELD: how long the lease of a holder runs; -1 = without end */
    const char *text; /* the server's words, or NULL; valid during the call */
    const rlock_info *info; /* the answer to a question, DONE; valid during the call */
} rlock_answer;

/* What a store reports unasked. */
#define RLOCK_PUSH_CHANGES 1u       /* `woken` comes for tracked keys */
#define RLOCK_PUSH_NOTIFICATIONS 2u /* `notified` comes for waiters in a queue */

/* Some of the keys of a store, for example those of one node of a cluster. A set of keys belongs to
 * a part if one of its keys does. */
typedef struct rlock_part {
    bool (*has)(const struct rlock_part *part, const char *key, size_t key_len);
} rlock_part;

/* A store calls these to report to the core; `owner` is what open was given. An event with a part
 * is about only its keys, one without (NULL) about all. */
typedef struct rlock_store_events {
    /* A request that was submitted is answered. */
    void (*answered)(void *owner, rlock_request *request, const rlock_answer *answer);

    /* Requests can leave again, or be granted again; the core checks its holds. */
    void (*up)(void *owner, const rlock_part *part);

    /* An attempt to connect failed, or a connection was lost. */
    void (*down)(void *owner, const rlock_part *part, rlock_fault fault, const char *text);

    /* What is pushed from now on: RLOCK_PUSH_CHANGES, RLOCK_PUSH_NOTIFICATIONS, both or 0. For a
     * key that the client did not use before, the last event about all keys counts. */
    void (*pushing)(void *owner, const rlock_part *part, unsigned what);

    /* A hint: the key changed; NULL = any key may have. */
    void (*woken)(void *owner, const char *key, size_t key_len);

    /* Notifies the client, which is a hint too: the key was offered to this token, or the hold of
     * this token was taken away. 0: the waiters of this client have lost their positions. */
    void (*notified)(void *owner, const char *key, size_t key_len, uint64_t token);
} rlock_store_events;

struct rlock_config;
struct rlock_report;
struct rlock_stats;

/* What a store can do with a hold that goes on without its client: rlock_store.can.
 * STAYS: a token is there until its lease ends, even if its client sends nothing more; a renewal
 * with a longest_ms below the token's lease shortens that lease; and close sends a renewal that was
 * submitted last.
 * ADOPTS: request.id counts. */
#define RLOCK_STORE_STAYS 1u
#define RLOCK_STORE_ADOPTS 2u

/* A store: where locks are kept. */
typedef struct rlock_store {
    /* Yours: the library does not touch it. */
    void *ctx;

    /* Makes the state for one client. Returns RLOCK_OK, or an error from >>status-codes. The config
     * is checked, and its defaults are resolved, except for what only the Redis store reads. */
    int (*open)(const struct rlock_store *store, rlock_client *client,
                const struct rlock_config *config, const rlock_store_events *events, void *owner,
                void **state);

    /* Sends the submitted requests without blocking; raises no event and answers nothing
     * afterwards. Frees the state. Never called in a forked child. */
    void (*close)(void *state);

    /* Takes a request, and answers it once, unless it is forgotten first. */
    void (*submit)(void *state, rlock_request *request);

    /* Withdraws a request: it must not be answered. True if it was, or still may be, executed. */
    bool (*forget)(void *state, rlock_request *request);

    /* Starts (on) or stops reporting changes of a key by `woken`; may be repeated. */
    void (*track)(void *state, const char *key, size_t key_len, bool on);

    /* Sends what was submitted; called at the end of each dispatch. */
    void (*flush)(void *state);

    /* Optional. Returns what the store cannot do, in words for the log, or NULL. It is called for
     * each new handle and each question, of several keys for each in turn; the terms may be NULL,
     * as in a request. */
    const char *(*refuses)(void *state, const char *key, size_t key_len, const rlock_terms *terms,
                           bool fencing);

    /* Optional. Returns what is pushed for a key now (RLOCK_PUSH_...), where that is not the same
     * for all keys. */
    unsigned (*pushes)(void *state, const char *key, size_t key_len);

    /* RLOCK_STORE_STAYS, RLOCK_STORE_ADOPTS, both or 0. */
    unsigned can;

    /* Optional, of the part CREDENTIALS. Copies what later connections give to the server, or with
     * `sentinels` to its Sentinels; an attempt to connect that the server refuses begins again with
     * them. The password, NULL if there is none, is hidden already. Returns RLOCK_OK, or
     * RLOCK_ERR_NOMEM: nothing has changed; or RLOCK_ERR_ARG: the store takes none. */
    int (*set_credentials)(void *state, bool sentinels, const char *username, const char *password);
} rlock_store;

/* What a client gives to its store: the clock of this dispatch, and a fresh one; its id, a random
 * UUID of 36 characters; random numbers, for jitter only; a line of the log, "what: detail", where
 * detail may be NULL; whether this is a forked child, as after a hook `log` that forks; and the
 * counters, of which a store keeps commands, connects, cleaning, and those faults that it does not
 * report by `down`. With rlock_client_report a store reports RLOCK_REPORT_CONNECTED and
 * RLOCK_REPORT_DISCONNECTED of each of its connections, with span_us, link, where and text; the
 * rest is filled in. */
RLOCK_API int64_t rlock_client_now_us(const rlock_client *client);
RLOCK_API int64_t rlock_client_clock_us(rlock_client *client);
RLOCK_API const char *rlock_client_id(const rlock_client *client);
RLOCK_API uint64_t rlock_client_random(rlock_client *client);
RLOCK_API void rlock_client_log(const rlock_client *client, int level, const char *what,
                                const char *detail);
RLOCK_API bool rlock_client_forked(const rlock_client *client);
RLOCK_API struct rlock_stats *rlock_client_counters(rlock_client *client);
RLOCK_API void rlock_client_report(const rlock_client *client, const struct rlock_report *report);

/* Names a secret, as a password: from then on it is shown as *** in every line of the log, in every
 * event and report of this client. Of what a store gives for these the library shows 255 bytes at
 * most, and \xNN for each byte that is not plain text. Call it before the secret is used. It is
 * copied, and kept as long as the client; one that is kept already, NULL and "" change nothing.
 * Errors: RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_client_hide(rlock_client *client, const char *secret);

/* Timers, descriptors and names. Timers fire in a dispatch, before anything else. A timer is added
 * once, before it is first set (Errors: RLOCK_ERR_NOMEM), and dropped before its memory is freed;
 * set moves it, a negative time stops it. What is built on handles, as rlock_elect.h, may have
 * timers too: these may call every function here, but no callback of a user, and are dropped before
 * the last handle of the client is freed. Those that are set fire when a shutdown ends. Between
 * rlock_client_plans(client, true) and the same with false a client is not idle: see loop.idle.
 * rlock_io_watch returns what the loop's hook `watch`
 * returned: 0, or negative if it cannot. Before a call that may close the descriptor and open
 * another one of the same number, watch it with 0, and after that call again. rlock_name_resolve
 * returns 0, and name->resolved follows, not from inside the call; or negative if the loop cannot.
 */
RLOCK_API int rlock_timer_add(rlock_client *client, rlock_timer *timer,
                              void (*fire)(rlock_timer *timer));
RLOCK_API void rlock_timer_set(rlock_client *client, rlock_timer *timer, int64_t due_us);
RLOCK_API void rlock_timer_drop(rlock_client *client, rlock_timer *timer);
RLOCK_API void rlock_client_plans(rlock_client *client, bool more);
RLOCK_API int rlock_io_watch(rlock_client *client, rlock_io *io, int fd, unsigned events);
RLOCK_API int rlock_name_resolve(rlock_client *client, rlock_name *name, const char *host);

/* Makes, and frees, a store inside the process: the same kinds, leases, waiting, waking and
 * fencing, without a server. Every client whose config names it shares its keys; all of these
 * clients belong to one thread. Free it after its clients; NULL is allowed. It is of the part
 * MEMORY.
 * Errors: RLOCK_ERR_ARG (out is NULL), RLOCK_ERR_NOMEM (also: no random bytes). */
#if RLOCK__HAS_MEMORY
RLOCK_API int rlock_memory_new(rlock_store **out);
RLOCK_API void rlock_memory_free(rlock_store *store);
#endif

/* Makes, and frees, a store of 1 to 15 servers that know nothing of each other: a key is held if a
 * majority of them says so, and stays held while fewer than half of them fail (docs/guarantees.md).
 * It supports only a mutex with one key, without fencing tokens. Of each config the library reads
 * and copies only store (NULL = Redis), url, host, port, unix_path, username, password, database,
 * the Sentinels' fields, and connect with its user; and tls and sentinel_tls, which are not copied.
 * A url has no parameters but db and those of the Sentinels. All else comes from the client's
 * config, whose own address is not used. Every client that locks the same keys must name the same
 * servers. Any number of clients, on any threads, may use it if its stores allow it, as Redis does.
 * Free it after them; NULL is allowed. It is of the part QUORUM. rlock_client_new reports what is
 * wrong with a server's config. Errors: RLOCK_ERR_ARG (out or servers is NULL, count is
 * not 1 to 15; a store is NULL, with RLOCK_NO_REDIS), RLOCK_ERR_NOMEM. */
#if RLOCK__HAS_QUORUM
RLOCK_API int rlock_quorum_new(rlock_store **out, const struct rlock_config *servers, int count);
RLOCK_API void rlock_quorum_free(rlock_store *store);

/* Makes, and frees, a store that holds in two others at once, for as long as a service moves from
 * one to the other: first all clients are on `from`, then each restarts on both, and when all have,
 * each restarts on `to`. A client on both excludes those before it and those after it.
 * A key is held while both stores hold it, until the earlier of the two deadlines; what ends the
 * hold in one of them ends it. Both must be up. The store supports only a mutex with one key.
 * Fencing tokens rise over the whole move if both stores make them of the clock in microseconds, as
 * Redis, PostgreSQL, MariaDB and the store inside the process do, and their clocks are less than a
 * second apart; else an acquire with fencing ends with RLOCK_ERR_SERVER. Of each config the library
 * reads what it reads of a server's of a quorum; a url there is one of Redis, another engine is a
 * store. Every client must name the same two in the same order (docs/moving-stores.md). Free it
 * after its clients; NULL is allowed. It is of the part QUORUM. Errors: RLOCK_ERR_ARG
 * (an argument is NULL; a store is NULL, with RLOCK_NO_REDIS), RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_both_new(rlock_store **out, const struct rlock_config *from,
                             const struct rlock_config *to);
RLOCK_API void rlock_both_free(rlock_store *store);
#endif

/* Makes, and frees, a store of a Redis or Valkey cluster, as config.cluster does for one client:
 * for a list of nodes, or for a quorum of clusters. Of each config the
 * library reads and copies host and port of a node, of the first one also username, password and
 * tls, which is not copied. All else comes from the client's config, whose own address is not used.
 * 1 to 64 nodes; the others are found by asking. Any number of clients, on any threads, may use it.
 * Free it after them; NULL is allowed. It is of the part CLUSTER.
 * Errors: RLOCK_ERR_ARG (out or seeds is NULL, count is not 1 to 64), RLOCK_ERR_NOMEM. */
#if RLOCK__HAS_CLUSTER
RLOCK_API int rlock_cluster_new(rlock_store **out, const struct rlock_config *seeds, int count);
RLOCK_API void rlock_cluster_free(rlock_store *store);
#endif

#endif /* RLOCK_PUBLIC_STORE_H */
