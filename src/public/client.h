/* ------------------------------------------------------------------------------------------------
 * >>client-api - a client, one connection to one server, shared by any number of handles
 */

#ifndef RLOCK_PUBLIC_CLIENT_H
#define RLOCK_PUBLIC_CLIENT_H

#include "public/head.h"
#include "public/loop.h"
#include "public/store.h"

/* How a mutex is written at the server: with which other libraries it shares its keys. */
typedef enum rlock_wire {
    /* SET NX PX and compare-and-delete: excludes redis-py, redsync, node-redlock and others. */
    RLOCK_WIRE_STRING = 0,
    /* The hash and the channel of Redisson's RLock. */
    RLOCK_WIRE_REDISSON
} rlock_wire;

/* A line of the log begins with the first eight digits of the client's id, unless the config of one
 * is refused; one of a connection also says where that leads: "6fb2c1d0: connection to
 * 127.0.0.1:6379: Connection refused". */
#define RLOCK_LOG_ERROR 0   /* an argument is refused, or a setting */
#define RLOCK_LOG_WARNING 1 /* a connection ended, or lacks a right; a renewal is refused */
#define RLOCK_LOG_INFO 2    /* a connection is ready, or does without client tracking */

/* The forms of config.url. What is in [] is optional; valkey works like redis.
 *
 *     redis://[user:password@][host][:port][/database]
 *     unix://[user:password@]/path/of/the/socket
 *     redis+sentinel://[user:password@]host[:port][,host2[:port]...]/primary[/database]
 *     redis+cluster://[user:password@]host[:port][,host2[:port]...]
 *     rediss://, rediss+...://         as these without the second s, with TLS as config.tls says;
 *                                      without that s nothing is encrypted, config.tls or not
 *     postgres://, zookeeper://, mysql://  other engines, where the implementation is compiled with
 *                                      them: stores/rlock_stores.h, which has all about these forms
 *
 * What is omitted has the default of its field. User or password may be empty. IPv6 stands in
 * brackets: redis://[::1]:6379. After a "?" parameters may follow, as in ?db=1&poll_ms=100, each
 * once: db, client_name, prefix, wire (string or redisson), watchdog_lease_ms, command_timeout_ms,
 * poll_ms, drift_permille, handovers, quarantine_ms, replicas, replicas_ms; with Sentinels
 * sentinel_username, sentinel_password (their own), sentinel_tls (yes or no; the default is what
 * the scheme says) and trust_plain_sentinels (yes or no). They have the limits of their fields,
 * which must be zero. %XX stands for a byte: write % / ? # @ in a user or password as %25 %2F
 * %3F %23 %40, : in a user as %3A, & and = elsewhere as %26 %3D, and a control byte so everywhere.
 * The log names the part that is wrong, and never shows the password. */

struct redisAsyncContext;
struct rlock_report;

/* Says where an address that a server announced is to be reached from here: config.map_address.
 * Writes a host, in at most `room` bytes with its NUL, and a port, and returns true; or returns
 * false: the address is right as it is. */
typedef bool rlock_map_address(void *user, const char *host, int port, char *new_host, size_t room,
                               int *new_port);

/* What encrypts a connection. adapters/rlock_tls.h fills it in with OpenSSL; hooks of your own may
 * use another library. All are required, run on the client's thread, and may not call this library.
 * Of the context the members `data` and `ev` are the library's. */
typedef struct rlock_tls {
    void *ctx; /* passed to each hook */

    /* Begins the handshake on a context that has just connected, without blocking. `host` is what
     * the certificate must be for: the host as it was configured, as a Sentinel or a node of a
     * cluster named it, or as config.map_address wrote it instead.
     * Returns 0, or negative if it cannot begin. */
    int (*start)(void *ctx, struct redisAsyncContext *ac, const char *host);

    /* Called before each read and write: the place to forget the errors of others. */
    void (*before)(void *ctx);

    /* Writes why a connection ends that was given to `start`: at most `room` bytes with the NUL.
     * Returns RLOCK_ERR_AUTH if one side refused the other, RLOCK_ERR_CONN for any other reason
     * of TLS, RLOCK_OK if it knows none: then `words` is not read. */
    int (*why)(void *ctx, struct redisAsyncContext *ac, char *words, size_t room);

    /* False. True: `start` verifies a name of its own, whatever `host` is. */
    bool own_name;
} rlock_tls;

/* What a client is made of. Each comment begins with the default, which zero stands for. All but
 * what tls points to is copied. */
typedef struct rlock_config {
    rlock_loop loop;            /* required; the loop's adapter fills it in */
    const char *host;           /* "127.0.0.1"; an address, localhost, or a name, which needs
                                   loop.resolve: the adapters have it */
    int port;                   /* 6379; 1 to 65535 */
    const char *unix_path;      /* none; replaces host and port; as long as a socket's path may be:
                                   107 bytes on Linux */
    const char *username;       /* none: AUTH with only the password; needs a password */
    const char *password;       /* none: no AUTH */
    const char *client_name;    /* none: no CLIENT SETNAME; without spaces */
    int database;               /* 0; 0 or more */
    rlock_wire wire;            /* RLOCK_WIRE_STRING */
    const char *prefix;         /* "rlock:"; without braces; begins the names of the keys that the
                                   library adds; give all clients of a key the same */
    int64_t watchdog_lease_ms;  /* 30000 ms; 10 to 86400000; the lease that lease_ms 0 means */
    int64_t command_timeout_ms; /* 1000 ms; 1 to 86400000; after this time without an answer
                                   the connection is dead */
    int64_t poll_ms;            /* 250 ms; 1 to 86400000; the longest pause between two polls of a
                                   waiter when push is unavailable */
    int drift_permille;         /* 10; 1 to 500; by how much two clocks may run apart */
    int handovers;              /* 256; -1 to 4096; how many times in a row a release may hand the
                                   hold to this client's next waiter without the server; -1 =
                                   never */

    /* None; replaces host, port, unix_path and tls. Makes a context on which a connect was started
     * (through a proxy, or in another way) and gives it to the library; NULL = not now, call again
     * after the back-off. The library calls it for the command connection, and after that for the
     * push connection, which has to reach the same server. It may not call the library. */
    struct redisAsyncContext *(*connect)(void *user);

    /* Redis, as configured above. Another store says what it reads of host to database, of wire and
     * of connect; then nothing else checks them. */
    const rlock_store *store;

    void (*log)(void *user, int level, const char *line); /* none; may not call the library */
    void *user; /* for connect and log, unless they have their own: connect_user, log_user */

    /* What came after 0.1.0 stands here, so that initializers without names mean what they did. */

    /* None; a text of the forms above. Replaces all of the address: host to database, sentinels,
     * cluster and connect, with which it cannot be combined, and sets what else it names. The
     * store of another engine that it names is made with the client and freed with it. With a store
     * of your own it is RLOCK_ERR_ARG. */
    const char *url;

    /* None; "host:26379,host2:26379" (IPv6 in brackets; the port defaults to 26379); replaces host
     * and port. They are asked for the primary of that name, which is required. Username and
     * password are the Sentinels' own; the server's are never sent to them. */
    const char *sentinels, *sentinel_primary, *sentinel_username, *sentinel_password;

    /* None: not encrypted; rlock_tls_new of rlock_tls.h makes one, which must outlive the client. A
     * connection to a unix_path is never encrypted. sentinel_tls is for connections to Sentinels.
     * With a url, both apply only if the url requests TLS; if sentinel_tls is NULL, tls is used for
     * the Sentinels. */
    const rlock_tls *tls, *sentinel_tls;

    /* None; 10 to 86400000 ms; Redis, a quorum of it, each node of a cluster. How long this client
     * acquires nothing at a server that was restarted or promoted, or that is new to the library:
     * waiting goes on, and wait_ms 0 ends with RLOCK_ERR_SERVER. A client without it acquires as
     * usual, so give all clients of a server the same: at least the longest lease of any. A longer
     * lease of this client is RLOCK_ERR_ARG. See docs/guarantees.md. */
    int64_t quarantine_ms;

    /* None; "host:6379,host2:6379" (IPv6 in brackets; the port defaults to 6379): some nodes of a
     * Redis or Valkey cluster, or a name that stands for them; replaces host and port. The other
     * nodes are found by asking. All of them take the same username, password and tls. The
     * database is 0. */
    const char *cluster;

    /* None; 1 to 100; Redis, and what is made of it. How many replicas must have a grant or
     * a renewal before it counts (WAIT): else the grant is given back and refused for now, and the
     * hold has the deadline that it had before the renewal. */
    int replicas;
    int64_t replicas_ms; /* a quarter of the command timeout; 1 to a third of it; how long one WAIT
                            takes at most. Meanwhile the server answers this client nothing else */

    /* None; called with everything that happens: >>reports. It may not call the library, and costs
     * nothing if it is not set. */
    void (*on_event)(void *user, const struct rlock_report *report);
    void *event_user; /* for on_event */

    void *log_user, *connect_user; /* `user`; for log and connect */

    /* False: TLS to the server without TLS to the Sentinels is RLOCK_ERR_ARG. A Sentinel names the
     * host whose certificate is verified, so what answers in the place of a Sentinel can name a
     * host of its own, with a good certificate, and is sent the password. Where tls verifies a name
     * of its own (server_name of rlock_tls_options) it is allowed; true accepts the risk. */
    bool trust_plain_sentinels;

    /* None; Sentinels and clusters, behind NAT or a container's network. Called with each address
     * that a Sentinel has of the primary, or a node of another node, in CLUSTER SLOTS, MOVED and
     * ASK; not with what this config names. Where a node announces no host, the one is asked about
     * by which that node is reached. The host that it writes (256 bytes of room) is the one that
     * TLS verifies; one that is no host of a config, or a port out of range, is not used. It may
     * not call the library. A server of a quorum may have its own. */
    rlock_map_address *map_address;
    void *map_user; /* for map_address */

    /* None; 1 to 128 bytes of UTF-8 without control characters, as "web-3, pid 4711, nightly
     * report"; Redis, and what is made of it. What rlock_describe says of this client's holds and
     * waiters. The name of each of its connections has it (CLIENT SETNAME), so it is gone with
     * them, and every user of the server that may list clients can read it. With client_name it
     * is RLOCK_ERR_ARG: a connection has one name. */
    const char *description;
} rlock_config;

/* What a client did since it was made, and how it stands now. */
typedef struct rlock_stats {
    /* Holds granted; renewals that succeeded; holds released, also by a shutdown; holds lost, but
     * not to a shutdown. */
    uint64_t acquired, renewed, released, lost;

    uint64_t handed_on; /* those of `released` that were local hand-overs: see config.handovers */
    uint64_t commands;  /* requests sent to the server, handshakes and heartbeats included */
    uint64_t woken;     /* pushes received */

    uint64_t connects, faults;        /* connections made; connections lost or refused */
    uint64_t held, waiting, cleaning; /* now: holds, pending acquires, tokens being cleaned up */
    uint64_t handles;                 /* now */
    bool up, pushing;                 /* now: connected; the server can push */
} rlock_stats;

/* Called once, when a shutdown or a drain has ended. */
typedef void rlock_client_callback(rlock_client *client, int status, void *user);

/* Makes a client. It connects when the first request needs it.
 * Errors: RLOCK_ERR_ARG (a log line says which field or part of the URL, or that hiredis is of
 * another version than its header), RLOCK_ERR_NOMEM (also: no random bytes, loop.open failed; a log
 * line has the words of errno); a store of your own may return others. */
RLOCK_API int rlock_client_new(rlock_client **out, const rlock_config *config);

/* Replaces the credentials that the client gives to its server, for example a token that expires
 * in minutes. All that it holds stays held. Both texts are copied, and the password is hidden in
 * the log as those of the config are. Every later handshake uses them. A living connection to Redis
 * is sent AUTH at once. If the server refuses that, the connection stays as it was: the log and
 * RLOCK_REPORT_REFUSED say so. No acquire ends with RLOCK_ERR_AUTH before newer credentials were
 * tried. PostgreSQL and MariaDB use them from the next connection on. A cluster, a quorum and
 * a store of rlock_both_new give them to all of their servers. username NULL: Redis takes only
 * the password, PostgreSQL and MariaDB keep the user. password NULL: none, and no AUTH; libpq then
 * looks for one in PGPASSWORD and .pgpass. It is of the part CREDENTIALS.
 * rlock_client_set_sentinel_credentials replaces those that the Sentinels take.
 * Errors: RLOCK_ERR_ARG (client is NULL, a username without a password, or a store that takes none,
 * such as ZooKeeper or the store inside the process; a log line says which), RLOCK_ERR_NOMEM (of
 * several servers some may have them: call it again), RLOCK_ERR_STATE (a forked child),
 * RLOCK_ERR_CLOSED (a shutdown has closed the client). */
#if RLOCK__HAS_CREDENTIALS
RLOCK_API int rlock_client_set_credentials(rlock_client *client, const char *username,
                                           const char *password);
RLOCK_API int rlock_client_set_sentinel_credentials(rlock_client *client, const char *username,
                                                    const char *password);
#endif

/* Releases every hold with one non-blocking write, closes the connections and frees the client.
 * The socket takes some thousand releases at once; a hold whose release it does not take ends with
 * its lease. So may every hold if an answer is on its way at that moment: a server that cannot
 * deliver it reads no further. rlock_client_shutdown avoids that. No callback runs any more, not
 * even for pending operations. Handles survive it: calls on them return RLOCK_ERR_CLOSED, and each
 * still needs rlock_free. NULL is allowed. In a forked child it does nothing. */
RLOCK_API void rlock_client_free(rlock_client *client);

/* Shuts a client down: refuses new acquires, ends pending ones with RLOCK_ERR_CLOSED, reports LOST
 * with RLOCK_REASON_CLOSED to every holder and releases everything. Then it closes the connections
 * and the timer, so that nothing of the client is left on the loop, and calls `done` (may be NULL):
 * with RLOCK_OK, or with RLOCK_ERR_TIMEOUT if the server did not answer within timeout_ms (0 = the
 * command timeout, at most 24 h). What is unanswered by then ends before that: a release, as at the
 * deadline of its hold. The client still needs rlock_client_free. To call only that is the simple
 * way to stop: it releases the holds too, and calls nothing, not even on_lost.
 * Errors: RLOCK_ERR_ARG (client is NULL, timeout_ms is out of range), RLOCK_ERR_STATE (it is being
 * shut down already, or this is a forked child). */
RLOCK_API int rlock_client_shutdown(rlock_client *client, int64_t timeout_ms,
                                    rlock_client_callback *done, void *user);

/* Shuts a client down when its holders have finished: refuses new acquires and ends pending ones
 * with RLOCK_ERR_CLOSED at once. A holder keeps its hold, is renewed, and may acquire a re-entrant
 * handle once more. When the last hold is released or lost, or when drain_ms have passed (0 = no
 * limit, at most 24 h), a shutdown with the default timeout follows, and `done` (may be NULL) is
 * called at its end. rlock_client_shutdown cuts a drain short: then `done` is called with
 * RLOCK_ERR_CANCELED.
 * Errors: as rlock_client_shutdown. */
RLOCK_API int rlock_client_drain(rlock_client *client, int64_t drain_ms,
                                 rlock_client_callback *done, void *user);

/* Fills in the counters and gauges of a client; zeros if it is NULL or in a forked child. */
RLOCK_API void rlock_client_stats(const rlock_client *client, rlock_stats *out);

#endif /* RLOCK_PUBLIC_CLIENT_H */
