/* ------------------------------------------------------------------------------------------------
 * >>client-api - one connection to one server, shared by any number of locks
 */

#ifndef RLOCK_PUBLIC_CLIENT_H
#define RLOCK_PUBLIC_CLIENT_H

#include "public/head.h"
#include "public/loop.h"
#include "public/store.h"

typedef enum rlock_wire {
    /* SET NX PX and compare-and-delete: excludes redis-py, redsync, node-redlock, ... */
    RLOCK_WIRE_STRING = 0,
    /* The hash and the channel of Redisson's RLock. */
    RLOCK_WIRE_REDISSON
} rlock_wire;

#define RLOCK_LOG_ERROR 0
#define RLOCK_LOG_WARNING 1
#define RLOCK_LOG_INFO 2

/* Zero = the default in the comment; everything is copied. */
typedef struct rlock_config {
    rlock_loop loop;         /* required */
    const char *host;        /* 127.0.0.1; a numeric address or localhost, other names need
                                   loop.resolve */
    int port;                /* 6379 */
    const char *unix_path;   /* none; instead of host and port; as long as a socket's may be:
                                   107 bytes on Linux */
    const char *username;    /* none: AUTH with the password alone */
    const char *password;    /* none */
    const char *client_name; /* none: no CLIENT SETNAME */
    int database;            /* 0 */
    rlock_wire wire;         /* RLOCK_WIRE_STRING */
    const char *prefix;      /* "rlock:", of the keys that the library makes beside the user's; the
                                   same for all who share a key */
    int64_t watchdog_lease_ms;  /* 30000; 10 to 86400000 */
    int64_t command_timeout_ms; /* 1000: no answer for that long = the connection is dead */
    int64_t poll_ms;            /* 250: how seldom a waiter asks where nothing can be pushed */
    int drift_permille;         /* 10: by how much two clocks may run apart; 1 to 500 */
    int handovers;              /* 256: how often a hold goes on inside this client, from who lets
                                   go to the next in line, before it is released; to 4096, -1 =
                                   never */

    /* None; instead of host, port and unix_path: makes a context on which a connect was started
     * (TLS, a proxy, anything else) and gives it to the library; NULL = not now, ask again after
     * the back-off. It is asked for the command connection, and behind that for the watching one,
     * which has to reach the same server. It may not call the library. */
    struct redisAsyncContext *(*connect)(void *user);

    const rlock_store *store;                             /* Redis */
    void (*log)(void *user, int level, const char *line); /* none; may not call the library */
    void *user;                                           /* for connect and log */
} rlock_config;

typedef struct rlock_stats {
    /* Holds granted; renewals that succeeded; holds let go; holds lost. */
    uint64_t acquired, renewed, released, lost;

    uint64_t handed_on; /* of the releases, those without the server: see config.handovers */
    uint64_t commands;  /* requests sent to the server, handshakes and heartbeats included */
    uint64_t woken;     /* pushes received */

    uint64_t connects, faults;        /* connections made; connections lost or refused */
    uint64_t held, waiting, cleaning; /* now: holds, waiting acquires, tokens being cleaned up */
    uint64_t handles;                 /* now */
    bool up, pushing;                 /* now: connected; waiters and holders are told by push */
} rlock_stats;

typedef void rlock_client_callback(rlock_client *client, int status, void *user);

/* Makes a client; it connects when the first request needs it.
 * Errors: RLOCK_ERR_ARG (with a log line that says which), RLOCK_ERR_NOMEM (also: no random bytes,
 * loop.open failed). */
RLOCK_API int rlock_client_new(rlock_client **out, const rlock_config *config);

/* Releases what is held with one non-blocking write (what the socket does not take at once, some
 * thousand releases, runs out with its lease), closes, frees. No callback runs any more, not
 * even for pending operations. Handles survive it: they answer RLOCK_ERR_CLOSED and still want
 * rlock_free. NULL is allowed. */
RLOCK_API void rlock_client_free(rlock_client *client);

/* Refuses new acquires, ends pending ones with RLOCK_ERR_CLOSED, tells every holder LOST with
 * RLOCK_REASON_CLOSED, releases everything, then calls `done` (may be NULL): RLOCK_OK, or
 * RLOCK_ERR_TIMEOUT if the server did not answer within timeout_ms (0 = the command timeout, at
 * most 24 h). The client still wants rlock_client_free.
 * Errors: RLOCK_ERR_ARG, RLOCK_ERR_STATE (it is being shut down already, or forked). */
RLOCK_API int rlock_client_shutdown(rlock_client *client, int64_t timeout_ms,
                                    rlock_client_callback *done, void *user);

/* Counters and gauges of a client; zeros in a forked child. */
RLOCK_API void rlock_client_stats(const rlock_client *client, rlock_stats *out);

#endif /* RLOCK_PUBLIC_CLIENT_H */
