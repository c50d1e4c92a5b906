/* rlock.h - 0.2.0 - a distributed lock for event loops, in Redis or Valkey
 * SPDX-License-Identifier: MIT
 *
 * The library acquires, renews and releases a lock without blocking, keeps it alive with a
 * watchdog, and reports the moment it is lost. It is one header; it speaks to the server through
 * hiredis and to your event loop through an adapter.
 *
 * DO THIS
 *
 *     #define RLOCK_IMPLEMENTATION          in exactly one C or C++ file, before the include:
 *     #include "rlock.h"                    that file makes the code, and is linked with -lhiredis
 *                                           and, because adapters resolve names, with -pthread
 *
 *     #include "rlock.h"                    everywhere else
 *     #include "rlock_libev.h"              the adapter of your loop, from adapters/
 *
 *     In C++17 rlock.hpp has RAII, any callable and co_await on top of it: docs/use-from-cpp.md
 *
 * TL;DR
 *
 *     static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
 *         if (event->status != RLOCK_OK) { puts(rlock_strerror(event->status)); return; }
 *         ... we hold it; stop when on_lost is called; when the work is done:
 *         rlock_release(lock, on_released, user);
 *     }
 *
 *     rlock_config config = {0};                          rlock_options options = {0};
 *     config.loop = rlock_libev_loop(EV_DEFAULT);         options.key = "stock:42";
 *     rlock_client_new(&client, &config);                 options.on_lost = on_lost;
 *     rlock_new(&lock, client, &options);
 *     rlock_acquire(lock, RLOCK_FOREVER, 0, on_acquired, NULL);
 *
 * CONTENTS
 *
 *     Declarations.
 *     >>status-codes     what calls return and events carry
 *     >>loop-contract    how the library asks a loop to watch descriptors and to call it back
 *     >>store-contract   where locks are kept
 *     >>client-api       a client, one connection to one server, shared by any number of handles
 *     >>lock-api         a handle, one would-be holder of one key, or of a set of keys
 *     >>reports          what happens to the handles and connections of a client, for one hook
 *     Implementation. A section calls what stands above it. This file is joined from parts, one
 *     for each section: edit the parts (src/ in the repository; docs/design.md is their map).
 *     >>platform         clock, random bytes, allocation
 *     >>foreign          how text is shown that a server, a resolver or a configuration made
 *     >>list             doubly linked lists inside the things they link
 *     >>map              from keys to things, by items that the things hold
 *     >>heap             due times in one binary heap
 *     >>pool             things of one size, kept for the next one
 *     >>client           one clock sample per dispatch, one loop timer, ready list, deferred frees
 *     >>token            how a token is written, the letter of its kind, and the keys of a request
 *     >>gone             when a token that is let go is surely gone
 *     >>settings         the numbers of a configuration
 *     >>who              holders and waiters of a key, with what their clients say of themselves
 *     >>memory           the store inside the process
 *     >>redis-state      the store on hiredis
 *     >>redis-scripts    what a server does in one step, and cannot do by one command
 *     >>redis-address    where an attempt to connect leads
 *     >>redis-resp       requests as RESP, replies as answers, errors as faults
 *     >>redis-link       a connection under hiredis
 *     >>redis-wait       a grant or a renewal counts when enough replicas have it
 *     >>redis-push       what the server reports unasked
 *     >>redis-sentinel   where the primary is, asked of Sentinels
 *     >>redis-quarantine a server that may have lost holds grants none until they would have ended
 *     >>redis-credentials credentials that are replaced while connections live
 *     >>redis-handshake  a connection from the first attempt until it can be used
 *     >>redis-who        what a client says of itself, in the names of its connections
 *     >>redis-store      requests in their order, many in one command, and what is answered
 *     >>redis-url        config.url, one text for the address and all settings that a text can say
 *     >>cluster-map      the slots of a cluster
 *     >>cluster          a store made of the nodes of a cluster
 *     >>store            which store a configuration means, and at which address
 *     >>members          a store that keeps the configurations of those it is made of
 *     >>seeds            a cluster as a store of the user's own
 *     >>quorum           a store made of several servers that know nothing of each other
 *     >>both             a store made of two, while a service moves from one to the other
 *     >>deadline         the deadline of a hold, for other threads to read
 *     >>claim            one token at the store, its gate and its handle
 *     >>report           what the hook config.on_event is told
 *     >>due              when each claim has something to do
 *     >>gate             one gate for each key
 *     >>mode             how the waiters of a gate come to a grant
 *     >>life             of a token
 *     >>deliver          events become callbacks
 *     >>question         questions about a key, independent of any hold
 *     >>events           what a store reports
 *     >>api-client       the public functions of a client
 *     >>api-handle       the public functions of a handle, and the questions
 *     >>api-token        a hold that goes on without this process
 *
 * GUARANTEED
 *
 *     - "Held" is never reported past a deadline computed from a clock that was read before the
 *       request could leave: until = (clock when the request was handed to a connected
 *       socket) + lease - lease x drift - 2 ms.
 *     - Each accepted operation ends in exactly one callback, unless its handle or its client
 *       is freed first: then in none. A call that returns an error gets none. No callback
 *       runs inside a call, and none after a free.
 *     - on_lost is called once per lost hold: by the local deadline even with the network dead,
 *       and at once when the server says that the key is gone or another's. It is never called
 *       after RELEASED.
 *     - A key is deleted or extended only with its holder's token, compared on the server in the
 *       same step; only rlock_force_release takes a lock from any holder. No script shortens a
 *       time to live, unless it is above every lease that its token was asked for: then the
 *       server's clock was set back, or its time to live was set by hand; or its holder leaves it
 *       with rlock_release_after. A request that was
 *       sent and not answered may have been executed: its token is cleaned up in the background.
 *
 * NOT GUARANTEED
 *
 *     - Safety from a paused process or a late packet: a process that was stopped for longer
 *       than its lease may go on as if it held the lock. Only a resource that checks
 *       rlock_fence() is safe from it.
 *     - Anything across a server that loses data: a restart without persistence, a failover
 *       before replication, an eviction (set maxmemory-policy noeviction), an administrator's
 *       DEL. The loss is reported, not prevented; config.quarantine_ms keeps the first two from
 *       making a second holder.
 *     - docs/guarantees.md says what is assumed, deployment by deployment.
 *
 * LIFETIMES AND CALLBACKS
 *
 *     The library makes and frees handles. A handle is one would-be holder: two tasks that must
 *     exclude each other need two handles, even within one client.
 *     Callback safety: every function here may be called from every callback. That includes the
 *     two frees, even of the handle or client whose callback runs. The hooks `log`, `connect`,
 *     `map_address` and `on_event` and those of a loop are not callbacks: they may call nothing
 *     of this, and must return.
 *     One client, its handles and its loop belong to one thread. Strings in options are copied.
 *     An event and its `text` live until the callback returns.
 *     After fork(), every call in the child returns RLOCK_ERR_STATE (or false, 0, NULL), sends
 *     nothing and touches no descriptor; the two frees do nothing there either. The first such
 *     call is logged: a daemon makes its clients after it forks. Connections are closed by exec.
 *     While a callback runs, nothing of the library is half done, and the loop's timer is set
 *     for what remains to be delivered or sent. So a callback may also
 *     - run the loop, where the loop allows it: what is submitted in there can end in there;
 *     - fork: where the child returns from the callback, or from the hook `connect`, `log` or
 *       `on_event`, nothing is delivered, sent or armed in the child;
 *     - throw a C++ exception, or longjmp, where the loop's own code bears it: what remains is
 *       delivered in the next loop iteration. An exception leaks nothing if gcc or clang compiled
 *       the implementation, as C++ or as C with -fexceptions. Otherwise the text of that event
 *       stays allocated, and so does the bare struct of the client when it is freed.
 *     Writing to a closed socket raises SIGPIPE unless the program ignores it, as every
 *     network program should: signal(SIGPIPE, SIG_IGN). The library never changes a signal's
 *     disposition.
 *
 * STATE x CALL           what the call returns in each state of the handle (tested cell by cell)
 *
 *                        acquire      renew      release    cancel
 *     IDLE               OK           NOT_HELD   NOT_HELD   STATE
 *     WAITING            STATE        STATE      STATE      OK
 *     HELD               STATE  (1)   OK  (2)    OK         STATE
 *     LOST         (3)   STATE        LOST       OK  (4)    STATE
 *     RELEASING          OK  (5)      STATE      STATE      STATE
 *     FOLLOWED     (5)   STATE        STATE      STATE      OK
 *     CLOSED       (6)   CLOSED       CLOSED     CLOSED     CLOSED
 *
 *     A handle changes state when a callback is delivered. It stays WAITING until the acquire's
 *     callback runs, even if the server has granted the lock by then. If you cancel in between,
 *     the library releases that grant.
 *     (1) OK with .reentrant: the hold count goes up. That needs no round trip unless the lease
 *         asked for is longer than the hold's; then it counts as a renewal by hand, of which one
 *         at a time is possible. Lease 0 is the client's watchdog lease here too, and from then
 *         on the watchdog renews the hold, unless options.watchdog is OFF.
 *     (2) One renewal by hand at a time; a second one meanwhile is STATE.
 *     (3) The local deadline has passed, or the server said that the hold is gone, and on_lost
 *         has not been called yet.
 *     (4) Ends as RELEASED with status RLOCK_ERR_LOST, and on_lost is not called.
 *     (5) The acquire waits for the release before it; until that has ended the handle is
 *         FOLLOWED, and cancel ends the acquire. It begins just before the callback of the
 *         release, and its wait counts from the call. If the wait is over before, it ends with
 *         what holds up the release: CONN, SERVER, AUTH or NOMEM.
 *     (6) The client was freed. A client that is being shut down returns CLOSED to acquire only.
 *     rlock_release_after is a release. rlock_adopt is OK in IDLE, CLOSED in CLOSED, else STATE;
 *     until it has ended the handle is WAITING.
 *     A release while a renewal is in flight: the renewal by hand ends CANCELED, the release
 *     is sent after it.
 *     rlock_free in any state: pending operations end without a callback, a hold is released
 *     in the background.
 *
 * FAULT x OPERATION      what a fault does to each operation (tested cell by cell)
 *
 *                        acquire      acquire     renew        watchdog    release
 *                        wait > 0     wait = 0    by hand      (hold)
 *     DOWN     (1)       retry        CONN        CONN         retry       retry
 *     UNKNOWN  (2)       retry        UNKNOWN     UNKNOWN      retry       retry
 *     BUSY     (3)       retry        SERVER      SERVER       retry       retry
 *     AUTH     (4)       AUTH         AUTH        AUTH         retry       retry
 *     TYPE     (5)       WRONG_TYPE   WRONG_TYPE  LOST         LOST        NOT_HELD
 *     NOMEM    (6)       NOMEM        NOMEM       NOMEM        retry       retry
 *     OTHER    (7)       SERVER       SERVER      SERVER       retry       retry
 *
 *     rlock_adopt is as an acquire with wait = 0. rlock_release_after is as a release.
 *
 *     Retry ends with the operation. An acquire's ends when its wait is over, with the status of
 *     the wait = 0 column (TIMEOUT if the last answer was "held by another"); the watchdog's at
 *     the local deadline, with LOST; a release's at the hold's deadline, with CONN, UNKNOWN,
 *     SERVER, AUTH or NOMEM, after which the token is cleaned up in the background. After an
 *     UNKNOWN attempt, a later attempt that finds no connection does not make the status CONN. The
 *     text of the event is that of the fault which its status names (tested cell by cell too). A
 *     release whose first attempt was UNKNOWN may end NOT_HELD because that attempt succeeded.
 *     (1) Refused, unreachable, closed, or no answer while connecting: not sent. The same before
 *         the first connection and after it. CONN also while connected, if unanswered requests
 *         kept this one from being sent: the text says so.
 *     (2) Sent, and the connection died before the answer: it may have happened.
 *     (3) Refused for now, not executed: LOADING, BUSY, READONLY, OOM, MISCONF, NOREPLICAS,
 *         MASTERDOWN, CLUSTERDOWN, MOVED, ASK, TRYAGAIN, "max number of clients". After READONLY,
 *         MASTERDOWN and MOVED the address is looked up again: the name, or the connect hook. An
 *         acquire in quarantine (config.quarantine_ms), and what too few replicas have
 *         (config.replicas), are the same.
 *     (4) NOAUTH, WRONGPASS, NOPERM, and with config.tls a certificate or version that one side
 *         refused: only an operator can fix it, so it is reported to a waiter even with
 *         RLOCK_FOREVER, at the latest by the next attempt to connect, a second later.
 *     (5) WRONGTYPE: something that is not a lock, or a lock of another kind, is at the key.
 *     (6) This process could not get memory for the request.
 *     (7) Any other error, and an answer that no honest server gives. The token of an acquire is
 *         then cleaned up, unless the error comes before execution: docs/protocol.md, "Errors".
 *
 * CONFIGURATION MACROS   defined before the include with RLOCK_IMPLEMENTATION
 *
 *     RLOCK_API           linkage of the public functions (default: extern)
 *     RLOCK_ASSERT(x)     broken invariants of the library itself (default: assert; -Os: a trap)
 *     RLOCK_MALLOC(n),    both or neither (default: malloc, free). hiredis has its own.
 *     RLOCK_FREE(p)
 *     RLOCK_NOW_US()      int64_t microseconds of a clock that never steps; one step back costs
 *                         the time since the last reading (default: CLOCK_BOOTTIME, else
 *                         CLOCK_MONOTONIC)
 *     RLOCK_RANDOM(p, n)  fill n bytes; non-zero on success (default: getrandom, else
 *                         /dev/urandom)
 *     RLOCK_HIREDIS_ASYNC hiredis' header async.h, as in -DRLOCK_HIREDIS_ASYNC='"deps/async.h"'
 *                         (default: <hiredis/async.h>). One that is included before stays the one.
 *                         Its version is that of the library that is linked: else
 *                         rlock_client_new returns RLOCK_ERR_ARG, and logs both
 *     RLOCK_NO_REDIS      leave out the Redis store and hiredis with it
 *     RLOCK_WITH_POSTGRES  config.url may name PostgreSQL: see stores/rlock_stores.h
 *     RLOCK_WITH_ZOOKEEPER  ... ZooKeeper
 *     RLOCK_WITH_MARIADB  ... MariaDB
 *     RLOCK_NO_THREADS    before an adapter: resolve no names, which takes a thread
 *     RLOCK_MINIMAL       leave out all parts but those that are named. What stays is a mutex with
 *                         watchdog, fencing, re-entrance and push, on one server of Redis by its
 *                         address, or by the path of its socket. A setting of a part that is not
 *                         there is RLOCK_ERR_ARG, and the log names the macro. For a device, see
 *                         docs/embedding.md.
 *     RLOCK_WITH_KINDS    fair, read, write, semaphore; several keys; questions, forced release
 *     RLOCK_WITH_TOKENS   rlock_release_after, rlock_token, rlock_adopt
 *     RLOCK_WITH_URL      config.url
 *     RLOCK_WITH_NAMES    config.host and the Sentinels by names, which loop.resolve resolves
 *     RLOCK_WITH_TLS      config.tls
 *     RLOCK_WITH_SENTINEL  config.sentinels, config.map_address
 *     RLOCK_WITH_CLUSTER  config.cluster, rlock_cluster_new, config.map_address
 *     RLOCK_WITH_REPLICAS  config.replicas, config.quarantine_ms
 *     RLOCK_WITH_REDISSON  config.wire: mutexes of Redisson
 *     RLOCK_WITH_QUORUM   rlock_quorum_new, rlock_both_new
 *     RLOCK_WITH_MEMORY   rlock_memory_new
 *     RLOCK_WITH_REPORTS  config.on_event
 *     RLOCK_WITH_DESCRIPTIONS  config.description; with RLOCK_WITH_KINDS also rlock_describe
 *     RLOCK_WITH_CREDENTIALS  rlock_client_set_credentials
 *     RLOCK_WITH_TEXTS    sentences: rlock_strerror says "ERR_BUSY" without them, and the log
 *                         does not say what is wrong with an argument
 *
 *     Strict C99 hides the POSIX clock: compile with -D_POSIX_C_SOURCE=200809L or -std=gnu99.
 */

#ifdef __GNUC__ /* of RLOCK_API static a program need not use all, ... */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#ifdef __cplusplus /* ... and in C++ its casts are no fault, nor are those of the adapters */
#pragma GCC diagnostic ignored "-Wold-style-cast"
#endif
#endif

#ifndef RLOCK_H
#define RLOCK_H

/* What every part of the interface needs. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this file, as a text, and as a number that #if compares: 1,000,000 for each
 * major version, 1,000 for each minor one, 1 for each patch. */
#define RLOCK_VERSION "0.2.0"
#define RLOCK_VERSION_NUMBER 2000

/* The parts. By default all are there; RLOCK_MINIMAL leaves out those that are not asked for by an
 * RLOCK_WITH_... of their own: see CONFIGURATION MACROS. Each is 1 or 0 from here on. */

#if defined(RLOCK_NO_KINDS) || defined(RLOCK_NO_URL) || defined(RLOCK_NO_SENTINEL) || \
    defined(RLOCK_NO_CLUSTER) || defined(RLOCK_NO_REPORTS)
#error "RLOCK_NO_KINDS, _URL, _SENTINEL, _CLUSTER, _REPORTS became RLOCK_MINIMAL and RLOCK_WITH_..."
#endif

#ifdef RLOCK_NO_REDIS
#define RLOCK__HAS_REDIS 0
#else
#define RLOCK__HAS_REDIS 1
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_KINDS)
#define RLOCK__HAS_KINDS 1
#else
#define RLOCK__HAS_KINDS 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_QUORUM)
#define RLOCK__HAS_QUORUM 1
#else
#define RLOCK__HAS_QUORUM 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_MEMORY)
#define RLOCK__HAS_MEMORY 1
#else
#define RLOCK__HAS_MEMORY 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_REPORTS)
#define RLOCK__HAS_REPORTS 1
#else
#define RLOCK__HAS_REPORTS 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_DESCRIPTIONS))
#define RLOCK__HAS_DESCRIPTIONS 1
#else
#define RLOCK__HAS_DESCRIPTIONS 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_TOKENS)
#define RLOCK__HAS_TOKENS 1
#else
#define RLOCK__HAS_TOKENS 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_CREDENTIALS)
#define RLOCK__HAS_CREDENTIALS 1
#else
#define RLOCK__HAS_CREDENTIALS 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_URL))
#define RLOCK__HAS_URL 1
#else
#define RLOCK__HAS_URL 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_SENTINEL))
#define RLOCK__HAS_SENTINEL 1
#else
#define RLOCK__HAS_SENTINEL 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_CLUSTER))
#define RLOCK__HAS_CLUSTER 1
#else
#define RLOCK__HAS_CLUSTER 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_REPLICAS))
#define RLOCK__HAS_REPLICAS 1
#else
#define RLOCK__HAS_REPLICAS 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_REDISSON))
#define RLOCK__HAS_REDISSON 1
#else
#define RLOCK__HAS_REDISSON 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_NAMES))
#define RLOCK__HAS_NAMES 1
#else
#define RLOCK__HAS_NAMES 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_TLS))
#define RLOCK__HAS_TLS 1
#else
#define RLOCK__HAS_TLS 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_TEXTS)
#define RLOCK__HAS_TEXTS 1
#define RLOCK__TEXT(text) text
#define RLOCK__NEEDS(setting, macro) setting " needs " macro
#else
#define RLOCK__HAS_TEXTS 0
#define RLOCK__TEXT(text) ""
#define RLOCK__NEEDS(setting, macro) macro
#endif

/* The linkage of the public functions; define it yourself if you need another one. */
#ifndef RLOCK_API
#define RLOCK_API extern
#endif

#if defined(__cplusplus) && defined(__GNUC__)
#define RLOCK__C_CASTS_BEGIN \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"")
#define RLOCK__C_CASTS_END _Pragma("GCC diagnostic pop")
#else
#define RLOCK__C_CASTS_BEGIN
#define RLOCK__C_CASTS_END
#endif

struct redisAsyncContext;
struct sockaddr;

/* A handle, and a client. Only the library looks into them: see >>lock-api and >>client-api. Since
 * ::rlock is a type, a C++ program cannot have a namespace of that name. */
typedef struct rlock rlock;
typedef struct rlock_client rlock_client;

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * >>status-codes - what calls return and events carry: 0 or negative
 */

/* How a call or an operation ended. Only an acquire with wait_ms 0 ends with ERR_BUSY. With
 * ERR_SERVER event->text has the server's words. */
#define RLOCK_STATUS_MAP(X)                                                 \
    X(OK, 0, "ok")                                                          \
    X(ERR_BUSY, -1, "held by another")                                      \
    X(ERR_TIMEOUT, -2, "held by another for the whole wait")                \
    X(ERR_CANCELED, -3, "canceled")                                         \
    X(ERR_NOT_HELD, -4, "not held")                                         \
    X(ERR_LOST, -5, "lost before it was released")                          \
    X(ERR_UNKNOWN, -6, "not answered in time: the server may have done it") \
    X(ERR_CONN, -7, "the server was not reached")                           \
    X(ERR_AUTH, -8, "the user or a certificate is refused")                 \
    X(ERR_SERVER, -9, "the server answered with an error")                  \
    X(ERR_WRONG_TYPE, -10, "the key holds no lock, or one of another kind") \
    X(ERR_NOMEM, -11, "out of memory")                                      \
    X(ERR_ARG, -12, "bad argument")                                         \
    X(ERR_STATE, -13, "not allowed in this state")                          \
    X(ERR_CLOSED, -14, "the client is closed")

typedef enum rlock_status {
#define RLOCK_X(name, value, text) RLOCK_##name = value,
    RLOCK_STATUS_MAP(RLOCK_X)
#undef RLOCK_X
        RLOCK_STATUS_LAST = -14
} rlock_status;

/* Returns RLOCK_VERSION of the code that is linked, which may differ from that of the header where
 * the code is a library. It is static: do not free it. Any thread may call it. */
RLOCK_API const char *rlock_version(void);

/* Returns the text of a status, in English; "unknown status" for any other number. It is
 * static: do not free it. */
RLOCK_API const char *rlock_strerror(int status);

/* ------------------------------------------------------------------------------------------------
 * >>loop-contract - how the library asks a loop to watch descriptors and to call it back
 *
 * adapters/ fill this in; docs/writing-a-loop-adapter.md walks through one. A dispatch is one call
 * of the loop into the library: rlock_on_io, rlock_on_timer or rlock_on_resolved_all.
 *
 * The loop promises
 * 1. One thread. It never calls the library from inside a hook, and touches no state after an
 *    rlock_on_... returned.
 * 2. Level-triggered events. An error or a hang-up is reported as everything that is watched. What
 *    is ready for reading and writing may come in one call or in two. An extra or early call
 *    is harmless, unless they follow each other without end.
 * 3. After watch(io, ..., 0) returned, it never calls rlock_on_io(io), not even for an event that
 *    was fetched before; after close() it makes no call at all.
 * 4. set_timer(0) fires after the sockets have been polled once more, never before; a timer that is
 *    due already keeps its turn. Delays are rounded up, by less than 10 ms.
 * 5. watch may fail (that connection then fails, and watch(0) follows); set_timer and close may
 *    not: allocate in open. A name belongs to the library until it is resolved, or until close.
 *
 * The library promises
 * 1. No user callback ever runs inside a public call. What is decided at once is delivered by a
 *    zero timer.
 * 2. Each accepted operation gets exactly one callback, unless its handle or client is freed
 *    first: then none.
 * 3. Any public function, the two frees included, may be called from any callback.
 * 4. After rlock_free or rlock_client_free returned, nothing of that object is called or touched
 *    again: watch(0) of every descriptor and close have been called; only memory may wait for
 *    the end of the dispatch. The same hooks were called when a shutdown or a drain is done.
 * 5. Each dispatch samples the clock again, never a loop's cached time. The clock is CLOCK_BOOTTIME
 *    where there is one, because CLOCK_MONOTONIC stands still while a device sleeps and the
 *    server's time to live does not.
 * 6. One dispatch delivers a snapshot of what is ready; what callbacks add waits for the next loop
 *    iteration. Expiry is settled before replies are delivered. A callback may cause a dispatch,
 *    and need not return: the next dispatch goes on with the snapshot.
 * 7. After fork, every call in the child returns RLOCK_ERR_STATE, sends nothing and closes
 *    nothing of the parent's.
 */

/* What of a descriptor is watched, and what is ready. */
#define RLOCK_IO_READ 1u
#define RLOCK_IO_WRITE 2u

/* One watched descriptor. It belongs to the library; `data` belongs to the loop: NULL at the first
 * watch, and reset to NULL by the loop or left alone when watch(0) forgets the descriptor. The
 * other members are for stores: see >>store-contract. */
typedef struct rlock_io {
    void *data;
    rlock_client *client;
    void (*ready)(struct rlock_io *io, unsigned events);
    unsigned watched;
} rlock_io;

/* One name being resolved. It belongs to the library; `data` belongs to the loop. */
typedef struct rlock_name {
    void *data;
    rlock_client *client;
    void (*resolved)(struct rlock_name *name, const struct sockaddr *const *addresses,
                     unsigned count);
} rlock_name;

/* A loop: four hooks that are required, and others that are optional. Zero it, then fill it in. */
typedef struct rlock_loop {
    /* Yours: the ev_loop, the uv_loop_t, and so on. */
    void *ctx;

    /* Makes the state of the hooks, once for each client; NULL = failed. */
    void *(*open)(void *ctx, rlock_client *client);

    /* Watches for RLOCK_IO_READ, RLOCK_IO_WRITE or both; 0 = forget. Returns 0, or negative if it
     * cannot. */
    int (*watch)(void *state, rlock_io *io, int fd, unsigned events);

    /* Sets the one-shot timer and replaces the last; negative = stop. */
    void (*set_timer)(void *state, int64_t delay_us);

    /* Forgets the timer and every pending name, frees the state. */
    void (*close)(void *state);

    /* Optional; the default is RLOCK_NOW_US. */
    int64_t (*now_us)(void *ctx);

    /* Optional. Starts to resolve a name. Returns 0 or negative; after 0 one rlock_on_resolved_all
     * follows, never from inside resolve. `host` is good until resolve returns: copy it. */
    int (*resolve)(void *state, rlock_name *name, const char *host);

    /* Optional, for a loop that ends by itself when it has nothing more to wait for. `idle` is true
     * from when nothing is held, waited for, asked or cleaned up: until it is false the timer, the
     * descriptors and the names of this client are served, but do not keep the loop from ending.
     * Called when that changes, at the end of a call or a dispatch; before, it is not idle. */
    void (*idle)(void *state, bool idle);
} rlock_loop;

/* Dispatch: the loop calls these. `events` are those that are ready. The addresses of a name, IPv6
 * and IPv4, stand in the order in which to try them, as getaddrinfo sorts them; they are copied;
 * count 0 = not found. rlock_on_resolved is the same for one address; NULL = not found. */
RLOCK_API void rlock_on_io(rlock_io *io, unsigned events);
RLOCK_API void rlock_on_timer(rlock_client *client);
RLOCK_API void rlock_on_resolved_all(rlock_name *name, const struct sockaddr *const *addresses,
                                     unsigned count);
RLOCK_API void rlock_on_resolved(rlock_name *name, const struct sockaddr *address);

/* ------------------------------------------------------------------------------------------------
 * >>store-contract - where locks are kept: requests go down, answers and events come up
 *
 * A store knows nothing of handles, callbacks or waiting; the core knows nothing of connections,
 * scripts or replies. No function of a store may block, and none may call `answered` from inside
 * submit: a store answers from a timer or a descriptor. docs/writing-a-store.md walks through one.
 */

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

/* ------------------------------------------------------------------------------------------------
 * >>client-api - a client, one connection to one server, shared by any number of handles
 */

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

/* ------------------------------------------------------------------------------------------------
 * >>lock-api - a handle, one would-be holder of one key, or of a set of keys
 */

/* A wait without limit, and the limits of leases, keys and permits. */
#define RLOCK_FOREVER (-1)
#define RLOCK_LEASE_MIN_MS 10
#define RLOCK_LEASE_MAX_MS 86400000
#define RLOCK_KEY_MAX 65536
#define RLOCK_KEYS_MAX 128
#define RLOCK_TOKEN_MAX 80 /* bytes of the text of rlock_token, with its NUL */
#define RLOCK_PERMITS_MAX 1000000000

/* Which operation an event is about. */
typedef enum rlock_event_kind {
    RLOCK_ACQUIRED = 1,
    RLOCK_RENEWED,
    RLOCK_RELEASED,
    RLOCK_LOST
} rlock_event_kind;

/* Why a hold was lost. */
typedef enum rlock_reason {
    RLOCK_REASON_NONE = 0,
    RLOCK_REASON_EXPIRED, /* the local deadline came without a renewal, or max_hold_ms has passed */
    RLOCK_REASON_STOLEN,  /* another's token, or something that is not a lock, is at the key */
    RLOCK_REASON_DELETED, /* the key is gone; queued kinds: the hold in it is gone */
    RLOCK_REASON_CLOSED   /* the client was shut down during the hold: no fault */
} rlock_reason;

/* One word for a reason or a kind, in English, static: "expired", "semaphore"; "unknown" for any
 * other number. */
RLOCK_API const char *rlock_reason_str(rlock_reason reason);
RLOCK_API const char *rlock_kind_str(rlock_kind kind);

/* What a callback receives. */
typedef struct rlock_event {
    rlock_event_kind kind; /* which operation ended: read `status` to learn how */
    int status;            /* RLOCK_OK or an error; with RLOCK_LOST always RLOCK_ERR_LOST */
    rlock_reason reason;   /* of RLOCK_LOST, and of a release that found the hold lost */
    uint64_t fence;        /* fencing token of the hold, 0 if fencing is off */
    int64_t remaining_ms;  /* ACQUIRED or RENEWED with OK: the time until the local deadline. With
                              BUSY or TIMEOUT: what was left of the holder's lease when last heard,
                              at most 2147483647, -1 = unknown. Otherwise 0 */
    const char *text;      /* the words that belong to `status`, of the server or of what failed on
                              the way to it, or NULL; of RLOCK_LOST: the last fault since the lease
                              was granted or renewed, else what kept it from being renewed. At most
                              255 bytes, without control bytes and passwords: see
                              rlock_client_hide. Valid until the callback returns */
} rlock_event;

/* The local deadline of a hold, which any thread may read with rlock_still_held: see
 * options.deadline. All zeros: not held. Its members are the library's. */
typedef struct rlock_deadline {
    uint32_t count, high, low, latest, refuted;
} rlock_deadline;

/* Called once, when an operation has ended or a hold is lost. `user` is what was passed with it to
 * the call or in the options. */
typedef void rlock_callback(rlock *lock, const rlock_event *event, void *user);

/* Whether the watchdog renews a hold: options.watchdog. */
#define RLOCK_WATCHDOG_AUTO 0 /* on when acquired with lease_ms 0 */
#define RLOCK_WATCHDOG_ON 1
#define RLOCK_WATCHDOG_OFF 2

/* What a handle is made of. Each comment begins with the default, which zero stands for. Everything
 * is copied. */
typedef struct rlock_options {
    const char *key;         /* required, unless keys is set; any bytes, 1 to RLOCK_KEY_MAX */
    size_t key_len;          /* strlen(key) */
    rlock_kind kind;         /* RLOCK_KIND_MUTEX */
    uint32_t permits;        /* required with a SEMAPHORE, else 0; 1 to RLOCK_PERMITS_MAX; how many
                                permits the key has, unless rlock_set_permits says otherwise */
    uint32_t weight;         /* 1; 1 to permits, with a SEMAPHORE only; how many permits a hold
                                takes, all or none */
    uint64_t owner;          /* none; any number, with READ and WRITE only. While a WRITE is held, a
                                READ of the same client, key and owner is granted at once. So a
                                downgrade is possible: acquire the READ, then release the WRITE. An
                                upgrade is not: the WRITE would wait for your own READ */
    const char *const *keys; /* none; several keys, instead of key: all or none, in one command,
                                with one lease and one fencing token. With a MUTEX only */
    const size_t *key_lens;  /* the strlen of each of keys */
    size_t key_count;        /* the number of keys; to RLOCK_KEYS_MAX, no duplicates */
    bool fencing;            /* false: no fencing token */
    bool reentrant;          /* false: acquiring a held handle is RLOCK_ERR_STATE */
    int watchdog;            /* RLOCK_WATCHDOG_AUTO */
    int64_t max_hold_ms;     /* no limit; ms; then the hold ends as EXPIRED, watchdog or not */
    rlock_callback *on_lost; /* none; called once when a hold is lost */
    void *user;              /* for on_lost */

    /* What came after 0.1.0 stands here, so that initializers without names mean what they did. */

    int64_t watchdog_lease_ms; /* the client's; 10 to 86400000 ms; the lease that lease_ms 0 means
                                  for this handle: a dead holder is followed when it ends */

    /* None; zeroed by you, and yours until rlock_free or rlock_client_free has returned. While the
     * handle is HELD the library keeps the local deadline there, for threads that ask whether this
     * process still holds. */
    rlock_deadline *deadline;
} rlock_options;

/* Makes a handle, which is idle.
 * Errors: RLOCK_ERR_ARG, RLOCK_ERR_NOMEM, RLOCK_ERR_CLOSED (the client is being shut down),
 * RLOCK_ERR_STATE (a forked child). With RLOCK_ERR_ARG comes a log line that says why: which of the
 * options is not valid; or the store refuses them: it cannot do it; or fencing or a queued
 * kind is wanted on a key with a `}` and no hash tag {...}, next to which no other key can share
 * its cluster slot; or a queued kind is wanted on a key that is named like a key of the library's
 * own (docs/protocol.md, "Whose a key is"). */
RLOCK_API int rlock_new(rlock **out, rlock_client *client, const rlock_options *options);

/* Frees a handle in any state. Pending operations end without a callback, and a hold is released in
 * the background. NULL is allowed. In a forked child it does nothing. */
RLOCK_API void rlock_free(rlock *lock);

/* Acquires the lock, and reports to `done`, which is required.
 * wait_ms: 0 = one attempt, which ends by the command timeout at the latest; RLOCK_FOREVER; else
 * how many milliseconds to wait. lease_ms: 0 = the watchdog lease of the options, else that of the
 * client, which the watchdog renews every third of it until the release, unless options.watchdog is
 * OFF; 10 to 86400000 = this lease, which nothing renews unless options.watchdog is ON:
 * it ends as LOST, EXPIRED, if you neither release nor rlock_renew it before.
 * If the holder's process dies, others get the lock when the lease ends: with lease_ms 0 and the
 * default configuration that is up to 30 s later.
 * Ends as RLOCK_ACQUIRED with RLOCK_OK, RLOCK_ERR_BUSY (wait_ms was 0, and another holds it),
 * RLOCK_ERR_TIMEOUT (another held it for the whole wait), RLOCK_ERR_CANCELED, RLOCK_ERR_CLOSED
 * (rlock_client_shutdown), or by a fault: RLOCK_ERR_CONN, _UNKNOWN, _AUTH, _SERVER, _WRONG_TYPE or
 * _NOMEM. On a held re-entrant handle also with RLOCK_ERR_LOST. On a handle that is being released
 * it begins when the release has ended.
 * Errors: RLOCK_ERR_STATE (an acquire is pending; it is held without .reentrant; its hold is lost,
 * and on_lost was not called yet; a longer lease is asked for while a renewal is pending; a forked
 * child), RLOCK_ERR_CLOSED (the client was freed or
 * is being shut down), RLOCK_ERR_ARG (lock or done is NULL, a number is out of range),
 * RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_acquire(rlock *lock, int64_t wait_ms, int64_t lease_ms, rlock_callback *done,
                            void *user);

/* Renews the hold now for lease_ms (0 = the lease that it has), which is the lease of the watchdog
 * from then on. A shorter lease lowers the local deadline at once, however the renewal ends; the
 * server's time to live stays, unless it is above every lease that this hold was asked for. After a
 * renewal that was not answered a longer lease is granted only as the longest one before: see
 * remaining_ms. `done` may be NULL.
 * Ends as RLOCK_RENEWED with RLOCK_OK, RLOCK_ERR_LOST, RLOCK_ERR_CANCELED (released meanwhile), or
 * by a fault: RLOCK_ERR_CONN, _UNKNOWN, _AUTH, _SERVER or _NOMEM. Only RLOCK_OK moves the deadline
 * on; after a fault the hold lasts until the old one.
 * Errors: RLOCK_ERR_NOT_HELD (the handle is idle), RLOCK_ERR_LOST (its hold is lost),
 * RLOCK_ERR_STATE (it is waiting or releasing; another renewal is pending; a forked child),
 * RLOCK_ERR_CLOSED (the client was freed), RLOCK_ERR_ARG (lock is NULL, lease_ms is out of range),
 * RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_renew(rlock *lock, int64_t lease_ms, rlock_callback *done, void *user);

/* Releases the hold: from this call on the handle claims nothing. A hold that was acquired n times
 * (.reentrant) needs n releases: all but the last end with RLOCK_OK and lower the hold count.
 * `done` may be NULL.
 * Ends as RLOCK_RELEASED with RLOCK_OK, RLOCK_ERR_NOT_HELD (the server no longer had it),
 * RLOCK_ERR_LOST (it was lost, and on_lost was not called yet: it will not be called),
 * RLOCK_ERR_UNKNOWN (no answer until the hold's deadline), or by a fault that lasted until then:
 * RLOCK_ERR_CONN, _AUTH, _SERVER or _NOMEM. After UNKNOWN or a fault the release is repeated in the
 * background.
 * Errors: RLOCK_ERR_NOT_HELD (the handle is idle), RLOCK_ERR_STATE (it is waiting or releasing; a
 * forked child), RLOCK_ERR_CLOSED (the client was freed), RLOCK_ERR_ARG (lock is NULL). It needs no
 * memory. */
RLOCK_API int rlock_release(rlock *lock, rlock_callback *done, void *user);

#if RLOCK__HAS_TOKENS
/* Releases the hold, and keeps the key locked for the rest of `ms`, counted from the callback that
 * granted this hold. Until then no client gets it, even without this process. So a job that takes a
 * second is not repeated by a machine whose clock is late. ms: 0 to 86400000, at most
 * config.quarantine_ms. If nothing is left of it, this is rlock_release. It is one renewal, for the
 * rest, which also cuts a longer lease; from this call on the handle claims nothing. With
 * .reentrant only the last release counts. `done` may be NULL.
 * Ends as RLOCK_RELEASED, with what rlock_release ends with; with RLOCK_ERR_UNKNOWN also if an
 * earlier renewal was not answered, by one server of a quorum too: it may come late and shorten the
 * time. After a fault the renewal is repeated in the background, and when `ms` have passed, the
 * release.
 * Errors: those of rlock_release; RLOCK_ERR_ARG (ms is out of range; the store does not
 * support it, as ZooKeeper and rlock_both_new, which the log says). */
RLOCK_API int rlock_release_after(rlock *lock, int64_t ms, rlock_callback *done, void *user);

/* Writes the text that proves the hold, with a NUL, into a buffer of RLOCK_TOKEN_MAX bytes, or
 * fewer. Returns its length. Any program that knows it can renew and release the hold: keep it as
 * you keep a password. It is not a fencing token; it contains one.
 * Errors: RLOCK_ERR_NOT_HELD, RLOCK_ERR_ARG (lock or buffer is NULL, the buffer is too small; the
 * store does not support it: see rlock_adopt), RLOCK_ERR_STATE (a forked child). */
RLOCK_API int rlock_token(const rlock *lock, char *buffer, size_t size);

/* Makes an idle handle the holder of a hold of another handle, of any process, of which `token` is
 * the text of rlock_token. That handle must no longer hold it: rlock_release_after has ended with
 * RLOCK_OK, or its process has died. The options must be those of that handle: key, kind,
 * permits, weight. It is one renewal for lease_ms, which is as in rlock_acquire; so it does not
 * take a free key, and does not wait. From then on the hold is like any other: `on_lost`, the
 * watchdog, rlock_renew, rlock_release. Its fencing token is that of `token`, also without
 * options.fencing. `done` is required.
 * Ends as RLOCK_ACQUIRED with RLOCK_OK, RLOCK_ERR_NOT_HELD (the key is free, or has another token),
 * RLOCK_ERR_CANCELED, RLOCK_ERR_CLOSED, or by a fault, as an acquire with wait_ms 0. Without
 * RLOCK_OK the key is left as it is: nothing is released.
 * Errors: RLOCK_ERR_STATE (the handle is not idle; a forked child), RLOCK_ERR_CLOSED (the client
 * was freed or is being shut down), RLOCK_ERR_ARG (an argument is NULL; `token` is not such a
 * text, or has no fencing token, and options.fencing wants one; lease_ms is out of range; the store
 * does not support it, as ZooKeeper, a quorum and rlock_both_new, which the log says),
 * RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_adopt(rlock *lock, const char *token, int64_t lease_ms, rlock_callback *done,
                          void *user);
#endif

/* Ends the pending acquire with RLOCK_ERR_CANCELED. If the server has granted the lock by then, or
 * grants it later, the library releases it in the background.
 * Errors: RLOCK_ERR_STATE (the handle is not waiting, or this is a forked child), RLOCK_ERR_CLOSED
 * (the client was freed), RLOCK_ERR_ARG (lock is NULL). */
RLOCK_API int rlock_cancel(rlock *lock);

/* True if this handle holds the lock now, by its local deadline and a fresh clock. It sends
 * nothing. False for NULL and in a forked child. */
RLOCK_API bool rlock_is_held(const rlock *lock);

/* Returns the milliseconds until the local deadline, rounded down; 0 if not held. It sends
 * nothing, and takes NULL. */
RLOCK_API int64_t rlock_remaining_ms(const rlock *lock);

/* True if the hold of options.deadline is held now, by its local deadline and a fresh
 * RLOCK_NOW_US. Any thread may ask, at any time, also in a callback; nothing is locked. It becomes
 * false inside rlock_release, before on_lost is called, and when the deadline has passed, even if
 * the thread of the loop is stopped. It is false, too, once that clock shows an earlier time than
 * any asker or the loop has seen, until the hold is renewed. False for NULL. With a loop.now_us of
 * your own compare that with rlock_deadline_us, which returns the deadline by that clock, 0 = not
 * held. A forked child may not call it: it would see its parent's hold. */
RLOCK_API bool rlock_still_held(const rlock_deadline *deadline);
RLOCK_API int64_t rlock_deadline_us(const rlock_deadline *deadline);

/* Returns the fencing token of the hold, larger than that of every earlier hold of this key; 0 if
 * not held, or without options.fencing (but see rlock_adopt). It sends nothing, and takes NULL. */
RLOCK_API uint64_t rlock_fence(const rlock *lock);

/* Returns how many releases the hold needs: 0 if not held, above 1 only with .reentrant. It sends
 * nothing, and takes NULL. */
RLOCK_API int rlock_hold_count(const rlock *lock);

/* Returns the key, followed by a NUL; *len (len may be NULL) is its length. Of several keys it is
 * the first; the others follow it in the order of the options, each with its NUL. Valid until
 * rlock_free. NULL if lock is NULL or in a forked child. */
RLOCK_API const char *rlock_key(const rlock *lock, size_t *len);

/* --- questions: about a key, independent of any hold --- */

/* Called once with the state of a key, or why that is not known: info->status. */
typedef void rlock_info_callback(rlock_client *client, const rlock_info *info, void *user);

/* Reports the state of the key of these options; only their key, key_len, kind, permits and weight
 * count. `done` is required. It is called once, by the command timeout at the latest, unless the
 * client is freed first; info->status says how the question ended.
 * Errors: RLOCK_ERR_ARG (an argument is NULL; options that rlock_new refuses; several keys),
 * RLOCK_ERR_NOMEM, RLOCK_ERR_STATE (a forked child), RLOCK_ERR_CLOSED (being shut down). */
RLOCK_API int rlock_inspect(rlock_client *client, const rlock_options *options,
                            rlock_info_callback *done, void *user);

/* The same as rlock_inspect, and lists the holders and the waiters of the key: info->who. Redis, a
 * cluster and a quorum of it list them; with other stores info->untold says that they do not. No
 * server knows the waiters of a MUTEX. The server is asked for the names of its connections (CLIENT
 * LIST), which costs it more with more connections; if it refuses that, info->untold has its words,
 * and the list has no descriptions. Any client can name its connection as it likes: a description
 * is a hint.
 * Errors: those of rlock_inspect; RLOCK_ERR_ARG without RLOCK_WITH_DESCRIPTIONS. */
RLOCK_API int rlock_describe(rlock_client *client, const rlock_options *options,
                             rlock_info_callback *done, void *user);

/* For operators: removes every hold of the key, of any client; the next waiters are served. LOST
 * is reported to the holders that use this library, with RLOCK_REASON_DELETED, or STOLEN if another
 * holds the key by then. `done` may be NULL. It is called once, by the command timeout at the
 * latest, unless the client is freed first; info->holders is how many holds there were.
 * Errors: RLOCK_ERR_ARG (client or options is NULL; options that rlock_new refuses; several keys),
 * RLOCK_ERR_NOMEM, RLOCK_ERR_STATE (a forked child), RLOCK_ERR_CLOSED (being shut down). */
RLOCK_API int rlock_force_release(rlock_client *client, const rlock_options *options,
                                  rlock_info_callback *done, void *user);

/* Sets the number of permits of a semaphore for all clients; 0 = what the options of each say. It
 * lasts 24 h from now and from each grant that did not have to wait; in ZooKeeper until another one
 * is set. If the new number is below the permits in use, no hold is revoked, and none is granted
 * until enough permits return. `done` may be NULL. It is called once, by the command timeout at the
 * latest, unless the client is freed first; info->status says how it ended.
 * Errors: RLOCK_ERR_ARG (client or options is NULL; options that rlock_new refuses, or of another
 * kind; permits is above RLOCK_PERMITS_MAX), RLOCK_ERR_NOMEM, RLOCK_ERR_STATE (a forked child),
 * RLOCK_ERR_CLOSED (being shut down). */
RLOCK_API int rlock_set_permits(rlock_client *client, const rlock_options *options,
                                uint32_t permits, rlock_info_callback *done, void *user);

/* Reports how many waiters are ahead of a handle of a queued kind that is WAITING: info->position,
 * 0 = it is next, -1 = it is not in the queue. `done` is required. It is called once, by the
 * command timeout at the latest, unless the client is freed first; it may be called after
 * rlock_free.
 * Errors: RLOCK_ERR_STATE (not waiting; not a queued kind; a forked child), RLOCK_ERR_ARG (lock or
 * done is NULL), RLOCK_ERR_NOMEM, RLOCK_ERR_CLOSED (the client was freed or is being shut down). */
RLOCK_API int rlock_queue_position(const rlock *lock, rlock_info_callback *done, void *user);

/* ------------------------------------------------------------------------------------------------
 * >>reports - what happens to the handles and connections of a client, for one hook
 */

/* What config.on_event is called with. An event says how an operation of one handle ended; reports
 * bring what happens in all of them to one place in a program: adapters/rlock_metrics.h counts, and
 * adapters/rlock_trace.h draws.
 *
 * Of each handle they come in this order: ASKED, then GRANTED or FAILED; after GRANTED any number
 * of RENEWED, then one of RELEASED, HANDED_ON and LOST; LET_GO comes after RELEASED, unless the
 * handle was freed. So of each client, and at any time, ASKED = GRANTED + FAILED + those that wait,
 * and GRANTED = RELEASED + HANDED_ON + LOST + those that hold. Freeing a handle or a client
 * reports the end of what it ends, too. In a forked child nothing is reported. */
typedef enum rlock_report_kind {
    RLOCK_REPORT_ASKED = 1, /* an acquire began: it was accepted, or the release that it follows
                               has ended. Not reported for a held re-entrant handle */
    RLOCK_REPORT_GRANTED,   /* the callback of the acquire is about to get RLOCK_OK */
    RLOCK_REPORT_FAILED,    /* an acquire ended without a hold */
    RLOCK_REPORT_RENEWED,   /* a renewal succeeded, by hand or by the watchdog */
    RLOCK_REPORT_RELEASED,  /* a hold ended: its handle was released or freed */
    RLOCK_REPORT_HANDED_ON, /* a hold ended: it goes to this client's next waiter, without the
                               server (config.handovers) */
    RLOCK_REPORT_LOST,      /* a hold ended: it was lost. on_lost is called after that, unless the
                               handle is released or freed in between */
    RLOCK_REPORT_LET_GO,    /* the release has ended, with the status that its callback gets */
    RLOCK_REPORT_CLEANED,   /* a token that no operation waits for is gone from the server */
    RLOCK_REPORT_CONNECTED, /* a connection can be used */
    RLOCK_REPORT_DISCONNECTED, /* a connection ended, or an attempt to connect; also if the client
                                  itself closes it, and when it is freed */
    RLOCK_REPORT_REFUSED       /* a connection that is in use refused new credentials, and goes on
                                  as it was */
} rlock_report_kind;

/* All that it points to, except lock, is valid until the hook returns. Microseconds are those of
 * the client's clock; of now_us only differences mean something. */
typedef struct rlock_report {
    rlock_report_kind kind;
    int status;          /* FAILED, LET_GO: how it ended; LOST: RLOCK_ERR_LOST; else RLOCK_OK. A
                            handle or client that is freed fails with RLOCK_ERR_CLOSED */
    rlock_reason reason; /* LOST */
    int64_t now_us;      /* when it happened */
    int64_t span_us;     /* GRANTED, FAILED: since ASKED. RELEASED, HANDED_ON, LOST: since GRANTED.
                            LET_GO: since RELEASED. RENEWED: from when it was due, or was asked for
                            by hand, to its answer. DISCONNECTED: since CONNECTED. Else 0 */
    int64_t left_us;     /* GRANTED, RELEASED, HANDED_ON, LOST: until the local deadline, 0 if it
                            has passed. RENEWED: until the deadline before. Else 0 */
    int64_t hand_us;     /* GRANTED by a local hand-over: since the HANDED_ON; else -1 */
    uint64_t fence;      /* GRANTED to LOST: the fencing token of the hold, 0 if there is none */
    const char *key;     /* the first key of the handle, then a NUL; NULL of a connection */
    size_t key_len;
    const rlock *lock;     /* identifies the handle: do not call anything with it, it may be freed
                              already. NULL of CLEANED and of a connection */
    uint32_t handle;       /* the number of the handle, from 1 in each client; 0 if lock is NULL */
    const char *client_id; /* 36 characters, of which the lines of the log have the first eight */
    const char *link;      /* of a connection: "commands", "push" or "Sentinel"; else NULL */
    const char *where;     /* of a connection: "127.0.0.1:6379", or the path of a socket; NULL if
                              config.connect made it, and of all others */
    int64_t begun_us; /* when the first acquire of the handle began, by now_us; 0 if lock is NULL */
    const char *text; /* FAILED, LET_GO, LOST: as the event has it. DISCONNECTED: why. REFUSED: the
                         server's words. Or NULL */
} rlock_report;

/* One word for a report, in English, static: "granted", "handed on"; "unknown" for any other
 * number, and without the part REPORTS. */
RLOCK_API const char *rlock_report_str(rlock_report_kind kind);

#ifdef __cplusplus
}
#endif

#endif /* RLOCK_H */

#ifdef RLOCK_IMPLEMENTATION
#ifndef RLOCK_IMPLEMENTED
#define RLOCK_IMPLEMENTED

/* ------------------------------------------------------------------------------------------------
 * >>platform - clock, random bytes, allocation; knows nothing of locks
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__) && !defined(__ANDROID__) && defined(__has_include)
#if __has_include(<sys/random.h>)
#include <sys/random.h>
#endif
#endif

#if !defined CLOCK_MONOTONIC || !defined O_CLOEXEC
#error "rlock.h needs POSIX: compile with -D_POSIX_C_SOURCE=200809L or -std=gnu99"
#endif

#ifndef RLOCK_ASSERT
#if defined(__GNUC__) && defined(__OPTIMIZE_SIZE__) && !defined(NDEBUG) /* no text, no file */
#define RLOCK_ASSERT(x) ((x) ? (void)0 : __builtin_trap())
#else
#include <assert.h>
#define RLOCK_ASSERT(x) assert(x)
#endif
#endif

#if defined(RLOCK_MALLOC) != defined(RLOCK_FREE)
#error "define both of RLOCK_MALLOC and RLOCK_FREE, or neither"
#endif
#ifndef RLOCK_MALLOC
#define RLOCK_MALLOC(n) malloc(n)
#define RLOCK_FREE(p) free(p)
#endif

/* A function of several callers: where size counts, a call is less than a copy of it. */
#if defined(__GNUC__) && defined(__OPTIMIZE_SIZE__)
#define RLOCK__NOINLINE __attribute__((noinline))
#else
#define RLOCK__NOINLINE
#endif

/* What a macro stands for, as text. */
#define RLOCK__QUOTED(text) #text
#define RLOCK__QUOTE(macro) RLOCK__QUOTED(macro)

#define RLOCK__NEVER INT64_MAX
#define RLOCK__OF(pointer, type, member) \
    ((type *)(void *)((char *)(uintptr_t)(pointer)-offsetof(type, member))) /* of a const one too */

#ifndef RLOCK_NOW_US
#define RLOCK_NOW_US() rlock__system_now_us()
static int64_t rlock__system_now_us(void) {
    struct timespec now;
#ifdef CLOCK_BOOTTIME
    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0)
#endif
    {
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
#endif

#ifndef RLOCK_RANDOM
#define RLOCK_RANDOM(p, n) rlock__system_random(p, n)
/* An older kernel has the file alone; a chroot may not have it. */
static int rlock__system_random(void *bytes, size_t size) {
    ssize_t got = -1;
    int fd;
#ifdef GRND_NONBLOCK
    got = getrandom(bytes, size, GRND_NONBLOCK);
#endif
    if (got == (ssize_t)size) {
        return 1;
    }
    fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    got = fd < 0 ? -1 : read(fd, bytes, size);
    if (fd >= 0) {
        close(fd);
    }
    return got == (ssize_t)size;
}
#endif

/* Whether this process is the one that made a client, or a fork of it. Every call asks, so a page
 * that the kernel clears in the child says it, where there is such a thing; else getpid does. */
#if defined(MADV_WIPEONFORK) && defined(MAP_ANONYMOUS) && defined(__GNUC__)
/* What runs programs of another machine may say yes to every advice and do nothing (qemu-user 7.2).
 * Who knows this one refuses it for memory that is shared. */
static bool rlock__cleared_by_fork(void *map, size_t size) {
    void *shared = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool known = shared != MAP_FAILED && madvise(shared, size, MADV_WIPEONFORK) != 0;
    if (shared != MAP_FAILED) {
        munmap(shared, size);
    }
    return known && madvise(map, size, MADV_WIPEONFORK) == 0;
}

static uint32_t *rlock__process(void) {
    static uint32_t *page, processes;
    uint32_t *fresh;
    if (!page) { /* clients of several threads may be made at once */
        size_t size = (size_t)sysconf(_SC_PAGESIZE);
        void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fresh = map == MAP_FAILED ? NULL : (uint32_t *)map;
        if (fresh && (!rlock__cleared_by_fork(map, size) ||
                      !__sync_bool_compare_and_swap(&page, (uint32_t *)NULL, fresh))) {
            munmap(map, size);
        }
    }
    if (page && !*page) {
        __sync_bool_compare_and_swap(page, 0u, __sync_add_and_fetch(&processes, 1u));
    }
    return page;
}
#else
static uint32_t *rlock__process(void) {
    return NULL;
}
#endif

static void *rlock__alloc(size_t size) {
    void *memory = RLOCK_MALLOC(size);
    RLOCK_ASSERT(size > 0);
    if (memory) {
        memset(memory, 0, size);
    }
    return memory;
}

static void rlock__dealloc(void *memory) {
    if (memory) {
        RLOCK_FREE(memory);
    }
}

static char *rlock__copy(const char *text, size_t len) {
    char *copy = text ? (char *)RLOCK_MALLOC(len + 1) : NULL;
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = 0;
    }
    return copy;
}

RLOCK__NOINLINE static size_t rlock__length(const char *text) {
    return text ? strlen(text) : 0;
}

#if RLOCK__HAS_REDIS || RLOCK__HAS_QUORUM
/* Copies a text that may be NULL; *failed: there was no memory for it. */
static char *rlock__copy_text(const char *text, bool *failed) {
    char *copy = rlock__copy(text, rlock__length(text));
    *failed = *failed || (text && !copy);
    return copy;
}
#endif

#define RLOCK__LINE 256 /* bytes of a line of the log, with its NUL */

/* Appends words, if there are any, to the n bytes of a line; cuts what has no room. */
RLOCK__NOINLINE static size_t rlock__line_add(char *line, size_t n, const char *between,
                                              const char *words) {
    RLOCK_ASSERT(n < RLOCK__LINE);
    while (words && (*between || *words) && n < RLOCK__LINE - 1) {
        line[n++] = *between ? *between++ : *words++; /* a store may have written them */
    }
    line[n] = 0;
    return n;
}

/* Decimal digits of a number, without a NUL; returns how many (at most 20). */
static size_t rlock__digits(char *out, uint64_t number) {
    char digits[20];
    size_t n = 0;
    do {
        digits[sizeof digits - ++n] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    memcpy(out, digits + sizeof digits - n, n);
    return n;
}

/* Appends a number. */
static size_t rlock__line_number(char *line, size_t n, const char *between, int32_t value) {
    char number[22];
    size_t sign = value < 0;
    number[0] = '-';
    number[sign + rlock__digits(number + sign, (uint64_t)(sign ? -value : value))] = 0;
    return rlock__line_add(line, n, between, number);
}

static void rlock__hex(char *out, const void *bytes, size_t size) {
    const unsigned char *at = (const unsigned char *)bytes;
    while (size--) {
        *out++ = "0123456789abcdef"[*at >> 4];
        *out++ = "0123456789abcdef"[*at++ & 15];
    }
}

RLOCK__NOINLINE static int64_t rlock__min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* ------------------------------------------------------------------------------------------------
 * >>foreign - how text is shown that a server, a resolver or a configuration made
 */

#define RLOCK__SECRET_ALONE 4u /* a shorter secret is one only where it stands alone */
#define RLOCK__SECRET_PART 16u /* so much of its beginning is hidden too: servers cut arguments */
#define RLOCK__SECRET_CUT 63u  /* a text of so many bytes may have been cut at its end */
#define RLOCK__SECRETS_KEPT 8u /* so many passwords that were replaced stay hidden */

/* What is hidden wherever it stands. */
typedef struct rlock__secret {
    struct rlock__secret *next;
    const char *text; /* not empty */
#if RLOCK__HAS_CREDENTIALS
    uint8_t passing; /* others may replace it: 1 at the server, plus 2 at Sentinels; 0: it stays */
#endif
} rlock__secret;

static bool rlock__alnum(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Returns how many bytes at a place in a text are a secret, or what a cut has left of one. A server
 * that repeats an argument writes a blank for a control byte. */
static size_t rlock__secret_at(const rlock__secret *secret, const char *text, const char *at) {
    size_t most = 0;
    for (; secret; secret = secret->next) {
        const char *its = secret->text;
        size_t n = 0;
        bool hidden;
        while (its[n] && (its[n] == at[n] || (at[n] == ' ' && (unsigned char)its[n] < ' '))) {
            n++;
        }
        hidden = n >= RLOCK__SECRET_PART || (!its[n] && n >= RLOCK__SECRET_ALONE);
        if (!its[n] && !hidden) {
            hidden = !(at > text && rlock__alnum(at[-1])) && !rlock__alnum(at[n]);
        } else if (!at[n] && n >= RLOCK__SECRET_ALONE) {
            if ((size_t)(at + n - text) >= RLOCK__SECRET_CUT) {
                hidden = true;
            }
        }
        most = hidden && n > most ? n : most;
    }
    return most;
}

/* Returns how many bytes are hidden at a place: of a secret, and of each that begins within it. */
static size_t rlock__secret_span(const rlock__secret *secret, const char *text, const char *at) {
    size_t span = rlock__secret_at(secret, text, at), i;
    for (i = 1; i < span; i++) {
        size_t more = rlock__secret_at(secret, text, at + i);
        span = i + more > span ? i + more : span;
    }
    return span;
}

/* Returns how many bytes a character of UTF-8 has that begins so; 0: none does. */
static size_t rlock__utf8_size(unsigned char first) {
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc0) {
        return 0;
    }
    if (first < 0xe0) {
        return 2;
    }
    return first < 0xf0 ? 3 : 4;
}

/* Reads a character of UTF-8. Returns how many bytes it has; 0: these are none. */
static size_t rlock__utf8(const char *text, size_t len, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    size_t n = rlock__utf8_size(s[0]), i;
    RLOCK_ASSERT(n <= 4);
    *code = n == 1 ? s[0] : s[0] & (0xffu >> n);
    for (i = 1; i < n; i++) {
        if (i >= len || (s[i] & 0xc0) != 0x80) {
            return 0;
        }
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    return n == 0 || *code < least[n] || *code > 0x10ffff || *code >> 11 == 27 ? 0 : n;
}

/* True if a terminal shows a character as what it is: no control, nothing without a width, and
 * nothing that turns the direction of the line. */
static bool rlock__is_plain(uint32_t code) {
    static const uint32_t others[][2] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
    size_t i = 0;
    while (i < sizeof others / sizeof *others && (code < others[i][0] || code > others[i][1])) {
        i++;
    }
    return i == sizeof others / sizeof *others;
}

/* Appends foreign words, which may be NULL, to the n bytes of a line: cut, with \xNN for each byte
 * of what is not a plain character, and *** for a secret. Nothing foreign comes into the log, an
 * event or a report in another way. Words that were appended once may be appended again. */
RLOCK__NOINLINE static size_t rlock__line_foreign(const rlock__secret *secrets, char *line,
                                                  size_t n, const char *between,
                                                  const char *words) {
    const char *at = words;
    n = rlock__line_add(line, n, words ? between : "", "");
    while (at && *at && n < RLOCK__LINE - 1) {
        size_t hidden = rlock__secret_span(secrets, words, at), size;
        uint32_t code;
        if (hidden) {
            n = rlock__line_add(line, n, "***", "");
            at += hidden;
            continue;
        }
        size = rlock__utf8(at, 4, &code); /* a NUL ends it before */
        RLOCK_ASSERT(size <= 4);
        if (size && rlock__is_plain(code)) {
            char shown[5] = {0, 0, 0, 0, 0};
            memcpy(shown, at, size);
            n = rlock__line_add(line, n, shown, "");
            at += size;
            continue;
        }
        for (size = size ? size : 1; size; size--) {
            char shown[5] = {'\\', 'x', 0, 0, 0};
            rlock__hex(shown + 2, at++, 1);
            n = rlock__line_add(line, n, shown, "");
        }
    }
    return n;
}

/* ------------------------------------------------------------------------------------------------
 * >>list - doubly linked lists inside the things they link; an unlinked link points to itself
 */

static void rlock__list_init(rlock_link *list) {
    list->prev = list->next = list;
}

static bool rlock__list_empty(const rlock_link *list) {
    return list->next == list;
}

static void rlock__list_remove(rlock_link *link) {
    RLOCK_ASSERT(link->prev->next == link && link->next->prev == link);
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = link;
}

RLOCK__NOINLINE static void rlock__list_append(rlock_link *list, rlock_link *link) {
    RLOCK_ASSERT(list->prev->next == list && list->next->prev == list);
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

/* The first thing on a list, or NULL. */
#define RLOCK__FIRST(list, type, member) \
    (rlock__list_empty(list) ? (type *)NULL : RLOCK__OF((list)->next, type, member))

/* Everything in `from` goes to the end of `list`. */
RLOCK__NOINLINE static void rlock__list_move(rlock_link *list, rlock_link *from) {
    RLOCK_ASSERT(list != from);
    RLOCK_ASSERT(from->prev->next == from && list->prev->next == list);
    if (from->next != from) {
        from->next->prev = list->prev;
        list->prev->next = from->next;
        from->prev->next = list;
        list->prev = from->prev;
        from->prev = from->next = from;
    }
}

/* ------------------------------------------------------------------------------------------------
 * >>map - from keys to things, by items that the things hold
 */

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

/* ------------------------------------------------------------------------------------------------
 * >>heap - due times in one binary heap; room is reserved ahead, so that setting one cannot fail
 */

#define RLOCK__HEAP_MIN 16u /* what is reserved first, and never given back */

typedef struct rlock__heap {
    rlock_timer **items; /* items[1] is due first; items[0] is not used */
    uint32_t count, room, reserved;
} rlock__heap;

/* Of those that are due at one time the one that was set in an earlier turn. */
static bool rlock__sooner(const rlock_timer *one, const rlock_timer *other) {
    return one->due_us < other->due_us ||
           (one->due_us == other->due_us && (int32_t)(one->iteration - other->iteration) < 0);
}

/* Gives it so much room, which is enough for what is in it. False: no memory. */
static bool rlock__heap_resize(rlock__heap *heap, uint32_t room) {
    rlock_timer **items = (rlock_timer **)RLOCK_MALLOC(room * sizeof *items);
    RLOCK_ASSERT(heap->reserved < room && heap->count <= heap->reserved);
    if (!items) {
        return false;
    }
    if (heap->items) {
        memcpy(items, heap->items, (heap->count + 1) * sizeof *items);
    }
    rlock__dealloc(heap->items);
    heap->items = items;
    heap->room = room;
    return true;
}

static bool rlock__heap_reserve(rlock__heap *heap) {
    RLOCK_ASSERT(heap->count <= heap->reserved);
    if (heap->reserved + 1 >= heap->room &&
        !rlock__heap_resize(heap, heap->room ? heap->room * 2 : RLOCK__HEAP_MIN)) {
        return false;
    }
    heap->reserved++;
    RLOCK_ASSERT(heap->reserved < heap->room);
    return true;
}

/* Gives room back that is not needed any more: not the last of it, since half is soon wanted again.
 * Without memory for less it stays. */
static void rlock__heap_unreserve(rlock__heap *heap) {
    RLOCK_ASSERT(heap->reserved && heap->count < heap->reserved);
    heap->reserved--;
    if (heap->room > RLOCK__HEAP_MIN && heap->reserved < heap->room / 4) {
        (void)rlock__heap_resize(heap, heap->room / 2);
    }
}

static void rlock__heap_put(rlock__heap *heap, uint32_t index, rlock_timer *timer) {
    RLOCK_ASSERT(index && index < heap->room);
    RLOCK_ASSERT(index <= heap->reserved);
    heap->items[index] = timer;
    timer->index = index;
}

static void rlock__heap_rise(rlock__heap *heap, uint32_t index) {
    rlock_timer *timer = heap->items[index];
    RLOCK_ASSERT(index && index <= heap->count);
    RLOCK_ASSERT(heap->count <= heap->reserved);
    while (index > 1 && rlock__sooner(timer, heap->items[index / 2])) {
        rlock__heap_put(heap, index, heap->items[index / 2]);
        index /= 2;
    }
    rlock__heap_put(heap, index, timer);
}

static void rlock__heap_sink(rlock__heap *heap, uint32_t index) {
    rlock_timer *timer = heap->items[index];
    RLOCK_ASSERT(index && index <= heap->count);
    RLOCK_ASSERT(heap->count <= heap->reserved);
    while (index * 2 <= heap->count) {
        uint32_t child = index * 2;
        if (child < heap->count && rlock__sooner(heap->items[child + 1], heap->items[child])) {
            child++;
        }
        if (!rlock__sooner(heap->items[child], timer)) {
            break;
        }
        rlock__heap_put(heap, index, heap->items[child]);
        index = child;
    }
    rlock__heap_put(heap, index, timer);
}

static void rlock__heap_stop(rlock__heap *heap, rlock_timer *timer) {
    uint32_t index = timer->index;
    rlock_timer *last;
    if (!index) {
        return;
    }
    timer->index = 0;
    RLOCK_ASSERT(index <= heap->count && heap->items[index] == timer);
    last = heap->items[heap->count--];
    if (last != timer) {
        rlock__heap_put(heap, index, last);
        rlock__heap_rise(heap, index);
        rlock__heap_sink(heap, last->index);
    }
}

static void rlock__heap_set(rlock__heap *heap, rlock_timer *timer, int64_t due_us) {
    RLOCK_ASSERT(due_us >= 0);
    RLOCK_ASSERT(timer->fire);
    if (timer->index) {
        timer->due_us = due_us;
        rlock__heap_rise(heap, timer->index);
        rlock__heap_sink(heap, timer->index);
    } else {
        RLOCK_ASSERT(heap->count < heap->reserved);
        timer->due_us = due_us;
        heap->count++;
        rlock__heap_put(heap, heap->count, timer);
        rlock__heap_rise(heap, heap->count);
        RLOCK_ASSERT(heap->items[timer->index] == timer);
        RLOCK_ASSERT(heap->items[1] == timer || !rlock__sooner(timer, heap->items[1]));
    }
}

/* ------------------------------------------------------------------------------------------------
 * >>pool - things of one size, kept for the next one: so that what is in use again needs no memory
 */

typedef struct rlock__pool {
    void *kept;     /* the first word of each leads to the next one */
    uint32_t count; /* with those in use */
    uint32_t most;  /* none is kept while there are more */
} rlock__pool;

/* Returns memory that is all zero, or NULL. */
static void *rlock__pool_take(rlock__pool *pool, size_t size) {
    void *thing = pool->kept;
    RLOCK_ASSERT(size >= sizeof pool->kept && (!thing || pool->count));
    if (thing) {
        memcpy(&pool->kept, thing, sizeof pool->kept);
        return memset(thing, 0, size);
    }
    thing = rlock__alloc(size);
    if (thing) {
        pool->count++;
    }
    return thing;
}

/* Frees what is kept until there are no more than so many in all, now and with each put. */
RLOCK__NOINLINE static void rlock__pool_limit(rlock__pool *pool, uint32_t most) {
    pool->most = most;
    while (pool->kept && pool->count > most) {
        void *thing = pool->kept;
        memcpy(&pool->kept, thing, sizeof pool->kept);
        rlock__dealloc(thing);
        pool->count--;
    }
}

/* Sees that there are so many, with those in use, and one that is not. False: no memory. */
static bool rlock__pool_reserve(rlock__pool *pool, size_t size, uint32_t count) {
    RLOCK_ASSERT(size >= sizeof pool->kept);
    while (pool->count < count || !pool->kept) {
        void *thing = rlock__alloc(size);
        if (!thing) {
            return false;
        }
        memcpy(thing, &pool->kept, sizeof pool->kept);
        pool->kept = thing;
        pool->count++;
    }
    return true;
}

RLOCK__NOINLINE static void rlock__pool_put(rlock__pool *pool, void *thing) {
    RLOCK_ASSERT(pool->count);
    RLOCK_ASSERT(thing && thing != pool->kept);
    memcpy(thing, &pool->kept, sizeof pool->kept);
    pool->kept = thing;
    rlock__pool_limit(pool, pool->most);
}

/* ------------------------------------------------------------------------------------------------
 * >>client - one clock sample per dispatch, one loop timer, ready list, deferred frees
 */

/* Something a callback is owed for; delivered at the end of an entry, or by a zero timer. */
typedef struct rlock__ready {
    rlock_link link;
    uint8_t of;      /* RLOCK__OF_... */
    uint8_t event;   /* of a handle or an operation: rlock_event_kind, 0 = none */
    int8_t status;   /* the event's; before that, how the last attempt ended */
    uint8_t reason;  /* the event's */
    int32_t left_ms; /* of the holder's lease, when last heard: for event.remaining_ms */
} rlock__ready;

enum {
    RLOCK__OF_HANDLE,
    RLOCK__OF_OPERATION,
    RLOCK__OF_QUESTION,
    RLOCK__OF_SHUTDOWN,
    RLOCK__OF_DRAIN
};

/* Leaves the client before it calls the user, and touches nothing of it after that. *words are
 * freed after it. */
typedef void rlock__deliverer(rlock__ready *ready, char **words);

/* What a claim (see >>claim) does with the server. */
enum { RLOCK__ATTEMPTING, RLOCK__HOLDING, RLOCK__RELEASING, RLOCK__PHASES };

/* Those who wait at one gate. */
typedef struct rlock__waiters {
    rlock_link list; /* claims, first come first */
    struct rlock__gate *gate;
    struct rlock__claim *attempting; /* of a mutex: the one whose acquire is with the store */
    uint8_t polls;                   /* attempts since the last wake-up: exponent of the back-off */
    bool dirty;                      /* woken during an attempt: its answer may be stale */
    bool taken;                      /* a holder was known since the first waiter began to wait */
    bool yields;                     /* the next attempt is put off: other clients come first */
    rlock_timer timer;               /* the next attempt, if nothing wakes the gate before */
} rlock__waiters;

typedef enum rlock__life {
    RLOCK__LIVE,
    RLOCK__DRAINING, /* nothing is acquired any more; then it is being shut down */
    RLOCK__ENDING,   /* it is being shut down */
    RLOCK__ENDED,    /* that has ended, or nobody is told of it any more */
    RLOCK__CLOSED    /* freed, or shut down: only its memory waits, for the entry's end, the handles
                      and, after a shutdown, for rlock_client_free */
} rlock__life;

struct rlock_client { /* small members first: they are reached with less code */
    bool unsent;      /* something was submitted and not flushed */
    bool up;
    bool warned;  /* in a forked child: it was logged that it is one */
    bool refused; /* a renewal was refused, which was logged, and none has succeeded since */
    bool idle;    /* the loop was told that it is */
    bool shut;    /* its shutdown closed it: the user has it still, which is one of its frames */
    rlock__life life;
    unsigned depth;    /* calls and entries on the stack that are at work; ... */
    unsigned frames;   /* ... and those that a callback of the user stands on */
    unsigned pushing;  /* RLOCK_PUSH_... */
    rlock_fault fault; /* why it is not up ... */
    char *fault_text;  /* ... in the words of the store */
    rlock__secret *secrets;
    const rlock_store *store;
    const rlock_store *made; /* of config.url, and freed with the client; or NULL */
    void *store_state;
    void *loop_state;
    const volatile uint32_t *process; /* NULL: the pid has to be compared */
    uint32_t process_number;
    pid_t pid;
    int drift_permille, handovers;
    int32_t watchdog_lease_ms, lease_most_ms, command_timeout_ms, poll_ms;
    uint32_t handles;
    uint32_t tracked;   /* gates whose changes are told */
    uint32_t mixed;     /* so many things are wanted that are others' keys too: 0 = none */
    uint32_t iteration; /* how often timers were fired */
    uint32_t phases[RLOCK__PHASES];
    uint32_t plans;                   /* of what is built on handles: see rlock_client_plans */
    rlock__deliverer *const *deliver; /* [RLOCK__OF_...] */
    void (*log)(void *user, int level, const char *line);
    void *log_user;
    void (*on_event)(void *user, const struct rlock_report *report);
    void *event_user;
    uint32_t numbers;   /* of handles: how many were given out, for reports */
    int64_t now_us;     /* the clock of this entry */
    int64_t clock_us;   /* ... and of the last look at it */
    int64_t stepped_us; /* by how much it has stepped back */
    int64_t armed_us;   /* when the loop's timer fires; RLOCK__NEVER = stopped */
    uint64_t random;
    uint64_t tokens;      /* how many were given out */
    rlock_link ready;     /* to be delivered in a later turn */
    rlock_link batch;     /* being delivered */
    rlock_link questions; /* asked and not answered */
    rlock_link due;       /* see >>due */
    rlock_link *ring;     /* NULL until there are many claims */
    int64_t ring_tick;
    rlock_timer due_timer;
    rlock__heap timers;
    rlock__map gates;
    rlock__pool claims, waiters, flights, ops;
    rlock_loop loop;
    rlock_stats stats;

    rlock_timer shutdown_timer; /* the end of the drain, or of the shutdown */
    rlock__ready shutdown_ready, drain_ready;
    rlock_client_callback *shutdown_done, *drain_done; /* drain_: of one that was cut short */
    void *shutdown_user, *drain_user;
    char id[37];
};

static bool rlock__forked(const rlock_client *client) {
    return client->process ? *client->process != client->process_number : client->pid != getpid();
}

/* A fresh clock. One that steps back goes on from what it showed last: so a step costs no more than
 * the time between the two samples. */
int64_t rlock_client_clock_us(rlock_client *client) {
    int64_t now_us = client->loop.now_us ? client->loop.now_us(client->loop.ctx) : RLOCK_NOW_US();
    if (now_us + client->stepped_us < client->clock_us) {
        client->stepped_us = client->clock_us - now_us;
    }
    RLOCK_ASSERT(client->stepped_us >= 0);
    client->clock_us = now_us + client->stepped_us;
    return client->clock_us;
}

uint64_t rlock_client_random(rlock_client *client) { /* xorshift64: for jitter only */
    client->random ^= client->random << 13;
    client->random ^= client->random >> 7;
    client->random ^= client->random << 17;
    return client->random;
}

/* Writes a line that begins with the first digits of the client's id. */
void rlock_client_log(const rlock_client *client, int level, const char *what, const char *detail) {
    char line[RLOCK__LINE];
    size_t n;
    if (client->log) {
        memcpy(line, client->id, 8);
        n = rlock__line_foreign(client->secrets, line, 8, ": ", what);
        rlock__line_foreign(client->secrets, line, n, ": ", detail);
        client->log(client->log_user, level, line);
    }
}

/* True if a call is made in a forked child; the first one is logged. */
RLOCK__NOINLINE static bool rlock__call_forked(rlock_client *client) {
    bool forked = rlock__forked(client);
    if (forked && !client->warned && client->life != RLOCK__CLOSED) {
        client->warned = true;
        rlock_client_log(client, RLOCK_LOG_ERROR, "client used after fork()",
                         "create a new client in this process");
    }
    return forked;
}

/* True if work may go on after a call of the user's code: that may have freed the client, or
 * forked, and this is the child. */
static bool rlock__alive(const rlock_client *client) {
    return client->life != RLOCK__CLOSED && !rlock__forked(client);
}

static int64_t rlock__due_us(const rlock_client *client) {
    RLOCK_ASSERT(client->timers.count <= client->timers.reserved);
    if (client->unsent || !rlock__list_empty(&client->ready) ||
        !rlock__list_empty(&client->batch)) {
        return 0;
    }
    return client->timers.count ? client->timers.items[1]->due_us : RLOCK__NEVER;
}

/* Makes the loop's timer fire when the next thing is due. An earlier alarm stays, harmlessly. A
 * child of fork() leaves the loop alone: no caller is one. */
static void rlock__arm(rlock_client *client) {
    int64_t due_us, delay_us;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    if (!client->armed_us) {
        return; /* as in every call from a callback but the first */
    }
    due_us = rlock__due_us(client);
    if (due_us >= client->armed_us) {
        return;
    }
    RLOCK_ASSERT(due_us >= 0);
    client->armed_us = due_us;
    delay_us = due_us ? due_us - rlock_client_clock_us(client) : 0;
    client->loop.set_timer(client->loop_state, delay_us > 0 ? delay_us : 0);
}

/* Tells the loop when the client has nothing more to do than to keep its connections, and when it
 * has again: the one place that says what idle means. */
static void rlock__rest(rlock_client *client) {
    bool idle = !client->phases[RLOCK__ATTEMPTING] && !client->phases[RLOCK__HOLDING] &&
                !client->phases[RLOCK__RELEASING] && !client->stats.cleaning && !client->plans &&
                rlock__list_empty(&client->questions) && rlock__list_empty(&client->ready) &&
                rlock__list_empty(&client->batch);
    if (idle != client->idle) {
        client->idle = idle;
        client->loop.idle(client->loop_state, idle);
    }
}

static void rlock__enter(rlock_client *client) {
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->now_us = rlock_client_clock_us(client);
    client->depth++;
}

static void rlock__client_destroy(rlock_client *client) {
    if (client->depth || client->handles) {
        return;
    }
    RLOCK_ASSERT(!client->gates.count && rlock__list_empty(&client->questions));
    rlock__dealloc(client->gates.buckets);
    RLOCK_ASSERT(!client->claims.count && !client->waiters.count && !client->ops.count &&
                 !client->flights.count);
    rlock__dealloc(client->timers.items);
    rlock__dealloc(client->ring);
    rlock__dealloc(client->fault_text);
    while (client->secrets) {
        rlock__secret *secret = client->secrets;
        client->secrets = secret->next;
        rlock__dealloc(secret);
    }
    client->gates.buckets = NULL;
    client->timers.items = NULL;
    client->ring = NULL;
    client->fault_text = NULL;
    if (!client->frames) { /* else the last of them frees it */
        rlock__dealloc(client);
    }
}

static void rlock__leave(rlock_client *client) {
    RLOCK_ASSERT(client->depth);
    if (client->depth == 1 && rlock__alive(client)) { /* a child leaves the loop alone */
        if (client->loop.idle) {
            rlock__rest(client);
        }
        rlock__arm(client);
    }
    client->depth--;
    if (client->life == RLOCK__CLOSED) {
        rlock__client_destroy(client); /* if nothing refers to it any more */
    }
}

/* Begins a dispatch, and fires what is due: before replies are read, so that expiry is settled
 * first. What becomes due in here waits for the next loop iteration, and keeps nothing else
 * waiting. False: no work may go on. */
static bool rlock__settle(rlock_client *client) {
    uint32_t iteration = ++client->iteration;
    rlock__enter(client);
    while (client->timers.count && client->timers.items[1]->due_us <= client->now_us &&
           client->timers.items[1]->iteration != iteration) {
        rlock_timer *timer = client->timers.items[1];
        rlock__heap_stop(&client->timers, timer);
        RLOCK_ASSERT(!timer->index && timer->fire);
        timer->fire(timer);
        if (!rlock__alive(client)) {
            return false;
        }
    }
    return true;
}

/* A frame on the stack that callbacks are called from. It ends also when one of them does not come
 * back, by an exception: in C++, and in C that is compiled with -fexceptions. */
typedef struct rlock__frame {
    rlock_client *client;
    char *words; /* of the event that is told just now */
} rlock__frame;

#ifdef __GNUC__
#define RLOCK__ENDS_BY(end) __attribute__((cleanup(end)))
#else
#define RLOCK__ENDS_BY(end)
#endif

static void rlock__frame_end(rlock__frame *frame) {
    rlock_client *client = frame->client;
    if (client) {
        frame->client = NULL;
        RLOCK_ASSERT(client->frames);
        rlock__dealloc(frame->words);
        client->frames--;
        if (client->life == RLOCK__CLOSED) {
            rlock__client_destroy(client);
        }
    }
}

/* Delivers the batch, from inside an entry, which it leaves. While a callback runs nothing is half
 * done, and the timer is armed for what remains: it may run the loop, which then goes on with the
 * batch, or never come back. False: nothing more may be done, the client may be gone. */
static bool rlock__deliver(rlock_client *client) {
    RLOCK__ENDS_BY(rlock__frame_end) rlock__frame frame = {client, NULL};
    bool alive = true;
    RLOCK_ASSERT(client->depth);
    client->depth--;
    client->frames++;
    while (alive && !rlock__list_empty(&client->batch)) {
        rlock__ready *ready = RLOCK__OF(client->batch.next, rlock__ready, link);
        rlock__list_remove(&ready->link);
        client->depth++;
        client->deliver[ready->of](ready, &frame.words);
        rlock__dealloc(frame.words);
        frame.words = NULL;
        alive = rlock__alive(client);
    }
    rlock__frame_end(&frame);
    return alive;
}

/* Ends a dispatch: delivers what is ready now, then writes once. What the callbacks add waits for
 * the next loop iteration. */
static void rlock__finish(rlock_client *client) {
    RLOCK_ASSERT(client->depth);
    if (!rlock__alive(client)) {
        rlock__leave(client);
        return;
    }
    rlock__list_move(&client->batch, &client->ready);
    if (!rlock__list_empty(&client->batch)) {
        if (!rlock__deliver(client)) {
            return;
        }
        client->depth++;
    }
    client->unsent = false;
    client->store->flush(client->store_state);
    if (!client->armed_us && rlock__due_us(client)) {
        client->armed_us = RLOCK__NEVER; /* it was for the callbacks, and would cost a turn */
    }
    rlock__leave(client);
}

void rlock_on_io(rlock_io *io, unsigned events) {
    rlock_client *client = io->client;
    if (!client || !rlock__alive(client)) {
        return;
    }
    if (rlock__settle(client) && io->watched) {
        io->ready(io, events);
        rlock__finish(client);
    } else {
        rlock__leave(client);
    }
}

void rlock_on_timer(rlock_client *client) {
    if (!rlock__alive(client)) {
        return;
    }
    client->armed_us = RLOCK__NEVER;
    rlock__settle(client);
    rlock__finish(client);
}

void rlock_on_resolved_all(rlock_name *name, const struct sockaddr *const *addresses,
                           unsigned count) {
    rlock_client *client = name->client;
    if (!client || !rlock__alive(client)) {
        return;
    }
    if (rlock__settle(client)) {
        name->resolved(name, addresses, count);
    }
    rlock__finish(client);
}

void rlock_on_resolved(rlock_name *name, const struct sockaddr *address) {
    rlock_on_resolved_all(name, &address, address ? 1 : 0);
}

int64_t rlock_client_now_us(const rlock_client *client) {
    return client->now_us;
}

const char *rlock_client_id(const rlock_client *client) {
    return client->id;
}

int rlock_client_hide(rlock_client *client, const char *secret) {
    size_t size = rlock__length(secret) + 1;
    rlock__secret *one = client->secrets;
    while (one && size > 1 && strcmp(one->text, secret) != 0) {
        one = one->next;
    }
    if (size == 1 || one) {
        return RLOCK_OK;
    }
    one = (rlock__secret *)RLOCK_MALLOC(sizeof *one + size);
    if (!one) {
        return RLOCK_ERR_NOMEM;
    }
    memcpy(one + 1, secret, size);
    one->text = (const char *)(one + 1);
    one->next = client->secrets;
#if RLOCK__HAS_CREDENTIALS
    one->passing = 0;
#endif
    client->secrets = one;
    return RLOCK_OK;
}

#if RLOCK__HAS_CREDENTIALS

/* Hides a password that another one may replace, and of those that it replaces only the last ones:
 * a client that lives for years gets one every few minutes. */
static int rlock__hide_passing(rlock_client *client, bool sentinels, const char *secret) {
    rlock__secret *first = client->secrets, **at = &client->secrets, *one;
    uint8_t kind = sentinels ? 2 : 1;
    unsigned passed = 0;
    int status = rlock_client_hide(client, secret);
    if (client->secrets != first) {
        client->secrets->passing = kind;
    }
    while (secret && (one = *at) != NULL) {
        bool same = strcmp(one->text, secret) == 0;
        bool former = !same && (one->passing & kind);
        passed += former ? 1u : 0u;
        if (former && passed > RLOCK__SECRETS_KEPT) {
            one->passing &= (uint8_t)~kind;
        } else if (same && one->passing) {
            one->passing |= kind;
        }
        if (former && !one->passing) {
            *at = one->next;
            rlock__dealloc(one);
        } else if (same && one->passing && one != client->secrets) { /* it is the latest again */
            *at = one->next;
            one->next = client->secrets;
            client->secrets = one;
        } else {
            at = &one->next;
        }
    }
    return status;
}

#endif /* RLOCK__HAS_CREDENTIALS */

bool rlock_client_forked(const rlock_client *client) {
    return rlock__forked(client);
}

rlock_stats *rlock_client_counters(rlock_client *client) {
    return &client->stats;
}

int rlock_timer_add(rlock_client *client, rlock_timer *timer, void (*fire)(rlock_timer *timer)) {
    RLOCK_ASSERT(fire);
    timer->index = 0;
    timer->iteration = 0;
    timer->fire = fire;
    return rlock__heap_reserve(&client->timers) ? RLOCK_OK : RLOCK_ERR_NOMEM;
}

void rlock_timer_set(rlock_client *client, rlock_timer *timer, int64_t due_us) {
    RLOCK_ASSERT(timer->fire);
    if (due_us < 0) {
        rlock__heap_stop(&client->timers, timer);
        return;
    }
    timer->iteration = client->iteration;
    rlock__heap_set(&client->timers, timer, due_us < client->now_us ? client->now_us : due_us);
    if (!client->depth && rlock__alive(client)) {
        rlock__arm(client); /* set from another client's entry */
    }
}

void rlock_timer_drop(rlock_client *client, rlock_timer *timer) {
    RLOCK_ASSERT(client->timers.reserved);
    rlock__heap_stop(&client->timers, timer);
    RLOCK_ASSERT(!timer->index);
    rlock__heap_unreserve(&client->timers);
}

void rlock_client_plans(rlock_client *client, bool more) {
    RLOCK_ASSERT(more || client->plans);
    client->plans += more ? 1 : UINT32_MAX;
    if (!client->depth && rlock__alive(client)) {
        rlock__enter(client);
        rlock__leave(client);
    }
}

int rlock_io_watch(rlock_client *client, rlock_io *io, int fd, unsigned events) {
    int result = 0;
    io->client = client;
    if (events != io->watched && !rlock__forked(client)) {
        io->watched = events;
        result = client->loop.watch(client->loop_state, io, fd, events);
        if (!events) {
            io->data = NULL;
        }
    }
    return result;
}

int rlock_name_resolve(rlock_client *client, rlock_name *name, const char *host) {
    RLOCK_ASSERT(name->resolved);
    name->client = client;
    return client->loop.resolve && !rlock__forked(client)
               ? client->loop.resolve(client->loop_state, name, host)
               : -1;
}

/* ------------------------------------------------------------------------------------------------
 * >>token - how a token is written, the letter of its kind, and the keys of a request
 */

#define RLOCK__TOKEN_HEAD 37u /* bytes that all tokens of a client share: its id and a colon */
#define RLOCK__TOKEN_MAX (RLOCK__TOKEN_HEAD + 20) /* with the number after it */

/* A token as others see it, without a NUL; returns its length. `id` is its client's. */
RLOCK__NOINLINE static size_t rlock__token(const char *id, char *text, uint64_t number) {
    memcpy(text, id, RLOCK__TOKEN_HEAD - 1);
    text[RLOCK__TOKEN_HEAD - 1] = ':';
    return RLOCK__TOKEN_HEAD + rlock__digits(text + RLOCK__TOKEN_HEAD, number);
}

/* Returns the id of the client whose token a request is about. */
static const char *rlock__request_id(const rlock_client *client, const rlock_request *request) {
    RLOCK_ASSERT(!request->id || request->op == RLOCK_OP_RENEW || request->op == RLOCK_OP_RELEASE);
    return RLOCK__HAS_TOKENS && request->id ? request->id : client->id;
}

/* True if the request is of a queued kind. */
static bool rlock__is_queued(const rlock_request *request) {
    return RLOCK__HAS_KINDS && request->terms && request->terms->kind != RLOCK_KIND_MUTEX;
}

static uint32_t rlock__request_keys(const rlock_request *request) {
    return RLOCK__HAS_KINDS && request->terms ? request->terms->count : 1;
}

/* The i-th key of a request, where *key is the one before it; false: there is none. */
static bool rlock__request_key(const rlock_request *request, uint32_t i, const char **key,
                               size_t *len) {
    const uint32_t *lens = RLOCK__HAS_KINDS && request->terms ? request->terms->lens : NULL;
    RLOCK_ASSERT(i <= rlock__request_keys(request));
    *key = i && lens ? *key + *len + 1 : request->key;
    *len = lens && i < request->terms->count ? lens[i] : request->key_len;
    return i < rlock__request_keys(request);
}

/* Returns the letter of a kind. The kinds that belong together on one key, and share its queue,
 * have the same letter; a request with another one is of the wrong type there. */
static char rlock__letter_of(rlock_kind kind) {
    RLOCK_ASSERT((unsigned)kind <= RLOCK_KIND_SEMAPHORE);
    return "mfwws"[kind]; /* [rlock_kind] */
}

static char rlock__letter(const rlock_request *request) {
    return rlock__is_queued(request) ? rlock__letter_of(request->terms->kind) : 'm';
}

/* ------------------------------------------------------------------------------------------------
 * >>gone - when a token that is let go is surely gone: one rule, for claims and for votes
 */

/* True if an acquire that failed may have been executed all the same, or may be yet. */
static bool rlock__may_exist(const rlock_answer *answer) {
    RLOCK_ASSERT(answer->outcome == RLOCK_OUTCOME_FAULT);
    return answer->fault == RLOCK_FAULT_UNKNOWN ||
           (answer->fault == RLOCK_FAULT_OTHER && !answer->undone);
}

/* Returns how long to wait before a token is released once more: the longer, the longer its lease
 * may keep the key. */
static int64_t rlock__clean_up_pause_us(int64_t lease_ms) {
    RLOCK_ASSERT(lease_ms >= 0);
    return rlock__min(lease_ms < 200 ? 10000 : lease_ms * 50, 500000);
}

/* A release was answered. True: the token is gone for good. Either the server says so, or the time
 * is over in which an acquire of this token could arrive and last. It counts from an answer of the
 * server, to *over_us (0 = it does not count), and from anew after a connection that failed: a
 * server that stood still may execute then what lies in its sockets. */
RLOCK__NOINLINE static bool rlock__surely_gone(const rlock_answer *answer, int64_t *over_us,
                                               int64_t now_us, int64_t longest_ms,
                                               int64_t timeout_ms) {
    bool fault = answer->outcome == RLOCK_OUTCOME_FAULT && answer->fault != RLOCK_FAULT_TYPE;
    bool heard =
        !fault || (answer->fault != RLOCK_FAULT_UNKNOWN && answer->fault != RLOCK_FAULT_DOWN);
    RLOCK_ASSERT(longest_ms >= 0 && timeout_ms > 0);
    RLOCK_ASSERT(*over_us >= 0);
    if ((!fault && answer->settled) || (heard && *over_us && *over_us <= now_us)) {
        return true;
    }
    if (!heard) {
        *over_us = 0;
    } else if (!*over_us) {
        *over_us = now_us + (longest_ms + timeout_ms) * 1000;
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------
 * >>settings - the numbers of a configuration: their names, limits and defaults, once
 */

enum { RLOCK__INT, RLOCK__INT64, RLOCK__STRING, RLOCK__WIRE, RLOCK__YES_NO };

typedef struct rlock__setting { /* a field of rlock_config; zero stands for its default */
    const char *name;
    int32_t most; /* of a number, with least and standard */
    uint16_t standard;
    uint16_t at; /* its offset */
    int8_t least;
    uint8_t type;
} rlock__setting;

#define RLOCK__SETTING(name, type, least, most, standard) \
    { #name, most, standard, offsetof(rlock_config, name), least, type }

static const rlock__setting rlock__settings[] = {
    RLOCK__SETTING(watchdog_lease_ms, RLOCK__INT64, RLOCK_LEASE_MIN_MS, RLOCK_LEASE_MAX_MS, 30000),
    RLOCK__SETTING(command_timeout_ms, RLOCK__INT64, 1, RLOCK_LEASE_MAX_MS, 1000),
    RLOCK__SETTING(poll_ms, RLOCK__INT64, 1, RLOCK_LEASE_MAX_MS, 250),
    RLOCK__SETTING(drift_permille, RLOCK__INT, 1, 500, 10),
    RLOCK__SETTING(handovers, RLOCK__INT, -1, 4096, 256),
#if RLOCK__HAS_REPLICAS || !RLOCK__HAS_REDIS || RLOCK__HAS_URL /* which may set them in vain */
    RLOCK__SETTING(quarantine_ms, RLOCK__INT64, RLOCK_LEASE_MIN_MS, RLOCK_LEASE_MAX_MS, 0),
    RLOCK__SETTING(replicas, RLOCK__INT, 1, 100, 0),
    RLOCK__SETTING(replicas_ms, RLOCK__INT64, 1, RLOCK_LEASE_MAX_MS, 0),
#endif
};

#define RLOCK__SETTINGS (int)(sizeof rlock__settings / sizeof rlock__settings[0])

RLOCK__NOINLINE static int64_t rlock__number(const rlock_config *config,
                                             const rlock__setting *row) {
    const char *field = (const char *)config + row->at;
    RLOCK_ASSERT(row->type <= RLOCK__INT64);
    return row->type == RLOCK__INT64 ? *(const int64_t *)(const void *)field
                                     : *(const int *)(const void *)field;
}

RLOCK__NOINLINE static void rlock__set_number(rlock_config *config, const rlock__setting *row,
                                              int64_t value) {
    char *field = (char *)config + row->at;
    RLOCK_ASSERT(row->type <= RLOCK__INT64);
    if (row->type == RLOCK__INT64) {
        *(int64_t *)(void *)field = value;
    } else {
        *(int *)(void *)field = (int)value;
    }
}

static bool rlock__within(int64_t value, int64_t least, int64_t most) {
    RLOCK_ASSERT(least <= most);
    return value == 0 || (value >= least && value <= most);
}

/* Appends to the n bytes of a line what the limits of a number are. */
static void rlock__line_limits(char *line, size_t n, const rlock__setting *row) {
    RLOCK_ASSERT(row->least <= row->most);
    n = rlock__line_number(line, n, " must be ", row->least);
    rlock__line_number(line, n, " to ", row->most);
}

/* Returns what is wrong with what the settings for replicas and quarantine are together, or NULL;
 * puts the default that depends on another setting. */
static const char *rlock__replicas_fault(rlock_config *config) {
#if RLOCK__HAS_REPLICAS || !RLOCK__HAS_REDIS
    if (config->quarantine_ms && config->watchdog_lease_ms > config->quarantine_ms) {
        return RLOCK__TEXT("config.watchdog_lease_ms is above config.quarantine_ms");
    }
    if (!config->replicas_ms) {
        config->replicas_ms = config->command_timeout_ms < 4 ? 1 : config->command_timeout_ms / 4;
    }
    return config->replicas && config->replicas_ms > config->command_timeout_ms / 3
               ? RLOCK__TEXT("config.replicas: config.command_timeout_ms must be at least three "
                             "times config.replicas_ms, which is at least 1")
               : NULL;
#else
    return config->replicas || config->replicas_ms || config->quarantine_ms
               ? RLOCK__NEEDS("config.replicas or config.quarantine_ms", "RLOCK_WITH_REPLICAS")
               : NULL;
#endif
}

/* Checks the numbers, then puts the defaults where there are none. False: the line says what is
 * wrong. */
static bool rlock__numbers_resolve(rlock_config *config, char *line) {
    const rlock__setting *row;
    const char *wrong;
    for (row = rlock__settings; row < rlock__settings + RLOCK__SETTINGS; row++) {
        int64_t value = rlock__number(config, row);
        if (!rlock__within(value, row->least, row->most)) {
            rlock__line_limits(line, rlock__line_add(line, 0, "config.", row->name), row);
            return false;
        }
        rlock__set_number(config, row, value ? value : row->standard);
    }
    RLOCK_ASSERT(config->command_timeout_ms > 0 && config->poll_ms > 0);
    wrong = rlock__replicas_fault(config);
    if (wrong) {
        rlock__line_add(line, 0, wrong, "");
    }
    return wrong == NULL;
}

#if RLOCK__HAS_DESCRIPTIONS

/* ------------------------------------------------------------------------------------------------
 * >>who - holders and waiters of a key, with what their clients say of themselves
 */

#define RLOCK__WHO_MAX 200u /* holders and waiters together: see who.lua */

/* Appends foreign words, which may be NULL, to a block, as they may be shown. Returns where they
 * begin. */
static const char *rlock__who_text(const rlock_client *client, char **end, const char *words) {
    char *begin = *end;
    if (!words) {
        return NULL;
    }
    *end += rlock__line_foreign(client->secrets, begin, 0, "", words) + 1;
    return begin;
}

/* Appends bytes, which may be NULL, and a NUL. Returns where they begin. */
static const char *rlock__who_bytes(char **end, const char *bytes, size_t len) {
    char *begin = *end;
    if (!bytes) {
        return NULL;
    }
    memcpy(begin, bytes, len);
    *end += len + 1;
    return begin;
}

/* Copies the list of an answer, the words beside it and its token into one block, to which the
 * answer points then. Returns the block; NULL: no memory, and the answer has none of them. */
static char *rlock__who_copy(const rlock_client *client, rlock_info *info) {
    const rlock_who *from = info->who;
    rlock_who *to;
    size_t count = from ? info->who_count : 0, room = count * sizeof *to + RLOCK__LINE, i;
    char *block, *end;
    RLOCK_ASSERT(count <= RLOCK__WHO_MAX);
    room += info->token_len + 1;
    for (i = 0; i < count; i++) {
        room += from[i].token_len + 1 + (from[i].description ? RLOCK__LINE : 0);
    }
    block = (char *)rlock__alloc(room);
    to = (rlock_who *)(void *)block;
    end = block ? block + count * sizeof *to : NULL;
    for (i = 0; block && i < count; i++) {
        to[i] = from[i];
        to[i].token = rlock__who_bytes(&end, from[i].token, from[i].token_len);
        to[i].description = rlock__who_text(client, &end, from[i].description);
    }
    info->who = from ? to : NULL;
    info->who_count = block ? count : 0;
    info->untold = block ? rlock__who_text(client, &end, info->untold) : NULL;
    info->token = block ? rlock__who_bytes(&end, info->token, info->token_len) : NULL;
    RLOCK_ASSERT(end <= block + room);
    return block;
}

#endif /* RLOCK__HAS_DESCRIPTIONS */

#if RLOCK__HAS_MEMORY

/* ------------------------------------------------------------------------------------------------
 * >>memory - the store inside the process: what a server does, done in the next loop iteration
 */

typedef struct rlock__memory {
    rlock_store store; /* first: it is what the user sees */
    rlock__map map;
    rlock_link entries; /* all of them, the one looked at longest ago first */
    rlock_link spare;   /* members that are not in use */
    uint64_t fence;
    rlock_info info; /* of the question being answered, with its token */
    char token[RLOCK__TOKEN_MAX];
} rlock__memory;

typedef struct rlock__entry { /* one key; kept while it is held, waited for or watched */
    rlock_link link, watches;
    rlock_link holders, queue; /* members; of a mutex one holder at most, and no queue */
    int64_t permits_us;        /* until when `permits` counts */
    uint32_t permits;          /* the number that was set; 0 = what the terms say */
    uint32_t watching;         /* how many of the watches are on */
    rlock__item item;          /* its key stands behind the entry */
} rlock__entry;

typedef struct rlock__member { /* a token that holds a key, or waits in its queue */
    rlock_link link, notified;
    rlock__entry *entry;
    struct rlock__session *session; /* NULL: its client is gone, and the lease runs out */
    uint64_t token;
    int64_t expires_us; /* of a holder; with a call to come it stays for a while */
    uint32_t weight;
    char letter;                /* see rlock__letter */
    char id[RLOCK__TOKEN_HEAD]; /* of the client that made the token, with a NUL */
} rlock__member;

typedef struct rlock__session { /* one client of the store */
    rlock__memory *memory;
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_timer timer;
    int64_t offer_us; /* how long an offer lasts: one command timeout */
    rlock_link requests, woken, notified;
    bool up;
} rlock__session;

typedef struct rlock__tracking { /* one key that one client watches */
    rlock_link link, woken;
    rlock__entry *entry;
    rlock__session *session;
    bool on;
} rlock__tracking;

#define RLOCK__DAY_US 86400000000 /* for so long a number of permits lives that was set */

static rlock__entry *rlock__entry_find(rlock__memory *memory, const char *key, size_t len) {
    rlock__item *item = rlock__map_find(&memory->map, key, len);
    return item ? (rlock__entry *)item->thing : NULL;
}

/* --- members --- */

static void rlock__member_drop(rlock__memory *memory, rlock__member *member) {
    RLOCK_ASSERT(rlock__list_empty(&member->notified) || member->session);
    RLOCK_ASSERT(member->entry && member->link.next != &member->link);
    rlock__list_remove(&member->notified);
    rlock__list_remove(&member->link);
    rlock__list_append(&memory->spare, &member->link);
}

/* What a request wants comes to the end of a list of the entry; NULL: no memory. */
static rlock__member *rlock__member_add(rlock__session *session, rlock__entry *entry,
                                        rlock_link *list, const rlock_request *request) {
    rlock__member *member = RLOCK__FIRST(&session->memory->spare, rlock__member, link);
    RLOCK_ASSERT(entry && entry->item.thing == entry);
    if (member) {
        rlock__list_remove(&member->link);
    } else {
        member = (rlock__member *)RLOCK_MALLOC(sizeof *member);
    }
    if (!member) {
        return NULL;
    }
    memset(member, 0, sizeof *member);
    rlock__list_init(&member->notified);
    rlock__list_append(list, &member->link);
    member->entry = entry;
    member->session = session;
    member->token = request->token;
    memcpy(member->id, session->client->id, sizeof member->id);
    member->weight = rlock__is_queued(request) ? request->terms->weight : 1;
    member->letter = rlock__letter(request);
    return member;
}

static rlock__member *rlock__member_find(rlock_link *list, const char *id, uint64_t token) {
    rlock_link *at = list->next;
    while (at != list && (RLOCK__OF(at, rlock__member, link)->token != token ||
                          strcmp(RLOCK__OF(at, rlock__member, link)->id, id) != 0)) {
        at = at->next;
    }
    return at == list ? NULL : RLOCK__OF(at, rlock__member, link);
}

/* Its lease goes on for what the request says, unless it does anyway: but for no longer than
 * longest_ms, if that is given. True: it ends sooner than before. */
RLOCK__NOINLINE static bool rlock__member_extend(rlock__member *member,
                                                 const rlock_request *request, int64_t now_us) {
    int64_t expires_us = now_us + request->lease_ms * 1000;
    int64_t most_us = now_us + request->longest_ms * 1000;
    RLOCK_ASSERT(request->lease_ms >= 0);
    RLOCK_ASSERT(!request->longest_ms || request->longest_ms >= request->lease_ms);
    if (member->expires_us < expires_us) {
        member->expires_us = expires_us;
    }
    if (!request->lease_ms || !request->longest_ms || member->expires_us <= most_us) {
        return false;
    }
    member->expires_us = most_us;
    return true;
}

/* Notifies its client, in a dispatch of that client. */
static void rlock__member_notify(rlock__member *member) {
    RLOCK_ASSERT(member->entry);
    if (member->session && rlock__list_empty(&member->notified)) {
        rlock__list_append(&member->session->notified, &member->notified);
        rlock_timer_set(member->session->client, &member->session->timer, 0);
    }
}

/* --- keys --- */

/* What the holders weigh; those whose lease is over go. */
static uint64_t rlock__entry_used(rlock__memory *memory, rlock__entry *entry, int64_t now_us) {
    rlock_link *at = entry->holders.next;
    uint64_t used = 0;
    while (at != &entry->holders) {
        rlock__member *member = RLOCK__OF(at, rlock__member, link);
        at = at->next;
        if (member->expires_us > now_us) {
            used += member->weight;
        } else if (rlock__list_empty(&member->notified)) {
            rlock__member_drop(memory, member);
        }
    }
    return used;
}

static rlock__member *rlock__entry_holder(rlock__entry *entry, const char *id, uint64_t token,
                                          int64_t now_us) {
    rlock__member *member = rlock__member_find(&entry->holders, id, token);
    return member && member->expires_us > now_us ? member : NULL;
}

static uint32_t rlock__entry_permits(const rlock__entry *entry, const rlock_request *request,
                                     int64_t now_us) {
    if (!rlock__is_queued(request)) {
        return 1;
    }
    if (entry && entry->permits && entry->permits_us > now_us) {
        return entry->permits;
    }
    return request->terms->permits;
}

/* True if the key is in use as another kind of lock than the request means. All holders are of one
 * kind, so one of them tells it for all; so does the first waiter of the queue. A mutex knows
 * nothing of a queue. */
static bool rlock__entry_differs(const rlock__entry *entry, const rlock_request *request,
                                 int64_t now_us) {
    const rlock__member *first = RLOCK__OF(entry->queue.next, rlock__member, link);
    char letter = rlock__letter(request);
    const rlock_link *at;
    for (at = entry->holders.next; RLOCK__HAS_KINDS && at != &entry->holders; at = at->next) {
        const rlock__member *member = RLOCK__OF(at, rlock__member, link);
        if (member->expires_us > now_us) {
            return member->letter != letter;
        }
    }
    return (RLOCK__HAS_KINDS && entry->permits && entry->permits_us > now_us && letter != 's') ||
           (letter != 'm' && !rlock__list_empty(&entry->queue) && first->letter != letter);
}

/* Serves the queue while there is room: the first waiter holds for one command timeout, and is
 * notified unless this request is its own. False: somebody still waits. */
static bool rlock__entry_offer(rlock__session *session, rlock__entry *entry, uint32_t permits,
                               const rlock__member *asking, int64_t now_us) {
    uint64_t used = rlock__entry_used(session->memory, entry, now_us);
    while (!rlock__list_empty(&entry->queue)) {
        rlock__member *member = RLOCK__OF(entry->queue.next, rlock__member, link);
        if (member->weight > permits) {
            rlock__member_drop(session->memory, member);
            continue;
        }
        if (used + member->weight > permits) {
            return false;
        }
        RLOCK_ASSERT(member->weight && member->entry == entry);
        used += member->weight;
        member->expires_us = now_us + session->offer_us;
        rlock__list_remove(&member->link);
        rlock__list_append(&entry->holders, &member->link);
        if (member != asking) {
            rlock__member_notify(member);
        }
    }
    return true;
}

static void rlock__tracking_free(rlock__tracking *watch) {
    RLOCK_ASSERT(watch->entry->watching >= watch->on);
    if (watch->on) {
        watch->entry->watching--;
    }
    rlock__list_remove(&watch->link);
    rlock__list_remove(&watch->woken);
    rlock__dealloc(watch);
}

static void rlock__entry_free(rlock__memory *memory, rlock__entry *entry) {
    while (!rlock__list_empty(&entry->watches)) {
        rlock__tracking_free(RLOCK__OF(entry->watches.next, rlock__tracking, link));
    }
    RLOCK_ASSERT(!entry->watching);
    while (!rlock__list_empty(&entry->holders)) {
        rlock__member_drop(memory, RLOCK__OF(entry->holders.next, rlock__member, link));
    }
    rlock__list_remove(&entry->link);
    rlock__dealloc(entry);
}

/* Examines the entry that was examined longest ago: unused ones go bit by bit. */
static void rlock__entry_sweep(rlock__memory *memory, int64_t now_us) {
    rlock__entry *entry = RLOCK__OF(memory->entries.next, rlock__entry, link);
    bool held = rlock__entry_used(memory, entry, now_us) || !rlock__list_empty(&entry->holders);
    RLOCK_ASSERT(!rlock__list_empty(&memory->entries));
    if (!held && rlock__list_empty(&entry->queue) && !entry->watching &&
        entry->permits_us <= now_us) {
        rlock__map_remove(&memory->map, &entry->item);
        rlock__entry_free(memory, entry);
    } else {
        rlock__list_remove(&entry->link);
        rlock__list_append(&memory->entries, &entry->link);
    }
}

static rlock__entry *rlock__entry_new(rlock__memory *memory, const char *key, size_t len,
                                      int64_t now_us) {
    rlock__entry *entry;
    int i;
    RLOCK_ASSERT(len);
    RLOCK_ASSERT(!rlock__entry_find(memory, key, len));
    for (i = 0; i < 2 && !rlock__list_empty(&memory->entries); i++) {
        rlock__entry_sweep(memory, now_us);
    }
    entry = (rlock__entry *)rlock__alloc(sizeof *entry + len);
    if (entry) {
        memcpy(entry + 1, key, len);
        rlock__list_init(&entry->watches);
        rlock__list_init(&entry->holders);
        rlock__list_init(&entry->queue);
        rlock__list_append(&memory->entries, &entry->link);
        rlock__map_add(&memory->map, &entry->item, entry, (char *)(entry + 1), len);
    }
    return entry;
}

/* Reports a change to every client that watches the key, each in a dispatch of its own. */
static void rlock__entry_changed(rlock__entry *entry) {
    rlock_link *at;
    for (at = entry->watches.next; at != &entry->watches; at = at->next) {
        rlock__tracking *watch = RLOCK__OF(at, rlock__tracking, link);
        if (watch->on && rlock__list_empty(&watch->woken)) {
            rlock__list_append(&watch->session->woken, &watch->woken);
            rlock_timer_set(watch->session->client, &watch->session->timer, 0);
        }
    }
}

/* --- requests --- */

static void rlock__memory_fault(rlock_answer *answer, rlock_fault fault) {
    answer->outcome = RLOCK_OUTCOME_FAULT;
    answer->fault = fault;
}

/* True if there is room for a queued kind; else the request joins the queue, if it may. */
static bool rlock__memory_queue(rlock__session *session, const rlock_request *request,
                                rlock__entry *entry, rlock_answer *answer, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    uint32_t permits = rlock__entry_permits(entry, request, now_us);
    rlock__member *waits = rlock__member_find(&entry->queue, id, request->token);
    uint64_t writer = request->writer;
    RLOCK_ASSERT(rlock__is_queued(request) && request->op == RLOCK_OP_ACQUIRE);
    if (writer && rlock__entry_holder(entry, id, writer, now_us)) {
        if (waits) {
            rlock__member_drop(session->memory, waits);
        }
        return true;
    }
    if (rlock__entry_offer(session, entry, permits, waits, now_us) &&
        rlock__entry_used(session->memory, entry, now_us) + request->terms->weight <= permits) {
        return true;
    }
    if (rlock__entry_holder(entry, id, request->token, now_us)) {
        return true;
    }
    if (!(request->flags & RLOCK_REQUEST_ONCE) &&
        !rlock__member_find(&entry->queue, id, request->token) &&
        !rlock__member_add(session, entry, &entry->queue, request)) {
        rlock__memory_fault(answer, RLOCK_FAULT_NOMEM);
    }
    return false;
}

/* True if one of the keys can be had; else the answer says why not. */
static bool rlock__memory_may(rlock__session *session, const rlock_request *request,
                              rlock__entry *entry, rlock_answer *answer, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    int64_t end_us = RLOCK__NEVER;
    rlock_link *at;
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE);
    if (rlock__entry_differs(entry, request, now_us)) {
        rlock__memory_fault(answer, RLOCK_FAULT_TYPE);
        return false;
    }
    if (rlock__entry_holder(entry, id, request->token, now_us)) {
        return true;
    }
    answer->outcome = RLOCK_OUTCOME_HELD;
    if (rlock__is_queued(request) ? rlock__memory_queue(session, request, entry, answer, now_us)
                                  : !rlock__entry_used(session->memory, entry, now_us)) {
        answer->outcome = RLOCK_OUTCOME_DONE;
        return true;
    }
    for (at = entry->holders.next; at != &entry->holders; at = at->next) {
        int64_t expires_us = RLOCK__OF(at, rlock__member, link)->expires_us;
        end_us = expires_us > now_us && expires_us < end_us ? expires_us : end_us;
    }
    answer->left_ms = end_us == RLOCK__NEVER ? -1 : (end_us - now_us + 999) / 1000;
    return false;
}

/* Holds a key that is to be had; false: no memory. */
static bool rlock__memory_hold(rlock__session *session, const rlock_request *request,
                               const char *key, size_t len, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    rlock__entry *entry = rlock__entry_find(session->memory, key, len);
    rlock__member *member;
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE && request->lease_ms > 0);
    if (!entry) {
        entry = rlock__entry_new(session->memory, key, len, now_us);
    }
    member = entry ? rlock__member_find(&entry->holders, id, request->token) : NULL;
    if (entry && !member) {
        member = rlock__member_add(session, entry, &entry->holders, request);
    }
    if (!member) {
        return false;
    }
    (void)rlock__member_extend(member, request, now_us);
    if (RLOCK__HAS_KINDS && entry->permits && entry->permits_us > now_us) {
        entry->permits_us = now_us + RLOCK__DAY_US;
    }
    return true;
}

static void rlock__memory_acquire(rlock__session *session, const rlock_request *request,
                                  rlock_answer *answer, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    rlock__memory *memory = session->memory;
    const char *key;
    uint32_t i, k;
    size_t len;
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        rlock__entry *entry = rlock__entry_find(memory, key, len);
        if (entry && !rlock__memory_may(session, request, entry, answer, now_us)) {
            return;
        }
    }
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        if (!rlock__memory_hold(session, request, key, len, now_us)) {
            for (k = 0; RLOCK__HAS_KINDS && k < i; k++) {
                rlock__entry *entry;
                (void)rlock__request_key(request, k, &key, &len);
                entry = rlock__entry_find(memory, key, len);
                rlock__member_drop(memory, rlock__member_find(&entry->holders, id, request->token));
            }
            rlock__memory_fault(answer, RLOCK_FAULT_NOMEM);
            return;
        }
    }
    RLOCK_ASSERT(answer->outcome == RLOCK_OUTCOME_DONE);
    if (request->fences) {
        answer->fence = memory->fence + 1 > (uint64_t)now_us ? memory->fence + 1 : (uint64_t)now_us;
        memory->fence = answer->fence + request->fences - 1;
        RLOCK_ASSERT(memory->fence >= answer->fence && answer->fence);
    }
}

/* Takes a key away from its holder, and serves its queue or wakes its waiters. */
static void rlock__memory_release(rlock__session *session, const rlock_request *request,
                                  rlock__entry *entry, rlock__member *holder, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    uint32_t permits = rlock__entry_permits(entry, request, now_us);
    rlock__member *waits = rlock__member_find(&entry->queue, id, request->token);
    RLOCK_ASSERT(request->op == RLOCK_OP_RELEASE && (!holder || holder->entry == entry));
    if (RLOCK__HAS_KINDS && waits) {
        rlock__member_drop(session->memory, waits);
    }
    if (holder) {
        rlock__member_drop(session->memory, holder);
    }
    if (rlock__is_queued(request) && !rlock__entry_differs(entry, request, now_us)) {
        rlock__entry_offer(session, entry, permits, NULL, now_us);
    } else if (holder) {
        rlock__entry_changed(entry);
    }
}

/* A renewal, of all keys or none, or a release. */
static void rlock__memory_change(rlock__session *session, const rlock_request *request,
                                 rlock_answer *answer, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    uint64_t weight = rlock__is_queued(request) ? request->terms->weight : 1;
    bool release = request->op == RLOCK_OP_RELEASE;
    const char *key;
    size_t len;
    uint32_t i;
    RLOCK_ASSERT(request->op == RLOCK_OP_RENEW || release);
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        rlock__entry *entry = rlock__entry_find(session->memory, key, len);
        rlock__member *holder =
            entry ? rlock__entry_holder(entry, id, request->token, now_us) : NULL;
        if (!holder && answer->outcome == RLOCK_OUTCOME_DONE) {
            bool full = entry && rlock__entry_used(session->memory, entry, now_us) + weight >
                                     rlock__entry_permits(entry, request, now_us);
            answer->outcome = full ? RLOCK_OUTCOME_STOLEN : RLOCK_OUTCOME_GONE;
        }
        if (entry && release) {
            rlock__memory_release(session, request, entry, holder, now_us);
        }
    }
    if (release || answer->outcome != RLOCK_OUTCOME_DONE) {
        return;
    }
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        rlock__entry *entry = rlock__entry_find(session->memory, key, len);
        if (rlock__member_extend(rlock__entry_holder(entry, id, request->token, now_us), request,
                                 now_us)) {
            rlock__entry_changed(entry); /* who waits for its end hears of the new one */
        }
    }
}

/* --- questions --- */

static void rlock__memory_inspect(rlock__session *session, const rlock_request *request,
                                  rlock__entry *entry, int64_t now_us) {
    rlock__memory *memory = session->memory;
    rlock_info *info = &memory->info;
    uint64_t used = entry ? rlock__entry_used(memory, entry, now_us) : 0;
    uint32_t permits = rlock__entry_permits(entry, request, now_us);
    rlock_link *at;
    info->waiters = rlock__is_queued(request) ? 0 : -1;
    info->permits = used < permits ? (int64_t)(permits - used) : 0;
    for (at = entry ? entry->holders.next : NULL; entry && at != &entry->holders; at = at->next) {
        const rlock__member *member = RLOCK__OF(at, rlock__member, link);
        int64_t left_ms = (member->expires_us - now_us + 999) / 1000;
        if (member->expires_us <= now_us) {
            continue;
        }
        info->holders++;
        info->left_ms = left_ms > info->left_ms ? left_ms : info->left_ms;
        if (!info->token) {
            info->token_len = rlock__token(member->id, memory->token, member->token);
            info->token = memory->token;
        }
    }
    for (at = entry ? entry->queue.next : NULL; entry && at != &entry->queue; at = at->next) {
        const rlock__member *member = RLOCK__OF(at, rlock__member, link);
        if (member->session == session && member->token == request->token) {
            info->position = info->waiters;
        }
        info->waiters++;
    }
}

static void rlock__memory_force(rlock__memory *memory, rlock__entry *entry,
                                const rlock_request *request, int64_t now_us) {
    rlock_link *at;
    for (at = entry->holders.next; at != &entry->holders; at = at->next) {
        rlock__member *member = RLOCK__OF(at, rlock__member, link);
        if (member->expires_us > now_us) {
            memory->info.holders++;
            member->expires_us = 0;
            rlock__member_notify(member);
        }
    }
    if (!rlock__is_queued(request)) {
        rlock__entry_changed(entry);
    }
}

static void rlock__memory_question(rlock__session *session, const rlock_request *request,
                                   rlock_answer *answer, int64_t now_us) {
    rlock__memory *memory = session->memory;
    rlock__entry *entry = rlock__entry_find(memory, request->key, request->key_len);
    RLOCK_ASSERT(request->op >= RLOCK_OP_INSPECT);
    memset(&memory->info, 0, sizeof memory->info);
    memory->info.position = -1;
    answer->info = &memory->info;
    if (!entry && request->op == RLOCK_OP_SET_PERMITS &&
        (entry = rlock__entry_new(memory, request->key, request->key_len, now_us)) == NULL) {
        rlock__memory_fault(answer, RLOCK_FAULT_NOMEM);
    } else if (entry && rlock__entry_differs(entry, request, now_us)) {
        rlock__memory_fault(answer, RLOCK_FAULT_TYPE);
    } else if (request->op == RLOCK_OP_INSPECT) {
        rlock__memory_inspect(session, request, entry, now_us);
    } else if (entry) {
        if (request->op == RLOCK_OP_FORCE) {
            rlock__memory_force(memory, entry, request, now_us);
        } else {
            entry->permits = request->permits;
            entry->permits_us = entry->permits ? now_us + RLOCK__DAY_US : 0;
        }
        if (rlock__is_queued(request)) {
            rlock__entry_offer(session, entry, rlock__entry_permits(entry, request, now_us), NULL,
                               now_us);
        }
    }
}

/* The store's own time: what the clock under its clients shows. Each of them counts the steps back
 * by itself, so their own times come apart: no lease may end by another's. */
static int64_t rlock__memory_now_us(const rlock__session *session) {
    return session->client->clock_us - session->client->stepped_us;
}

/* Does what was sent. NULL: nobody is left to hear the answers. */
static void rlock__memory_execute(rlock__session *session, rlock_link *requests,
                                  void (*answered)(void *owner, rlock_request *request,
                                                   const rlock_answer *answer)) {
    int64_t now_us = rlock__memory_now_us(session);
    while (!rlock__list_empty(requests)) {
        rlock_request *request = RLOCK__OF(requests->next, rlock_request, store.link);
        rlock_answer answer;
        memset(&answer, 0, sizeof answer);
        answer.settled = true;
        RLOCK_ASSERT(request->key_len && request->op <= RLOCK_OP_SET_PERMITS);
        rlock__list_remove(&request->store.link);
        if (request->op == RLOCK_OP_ACQUIRE) {
            rlock__memory_acquire(session, request, &answer, now_us);
        } else if (request->op < RLOCK_OP_INSPECT) {
            rlock__memory_change(session, request, &answer, now_us);
        } else if (RLOCK__HAS_KINDS) {
            rlock__memory_question(session, request, &answer, now_us);
        }
        if (answered) {
            answered(session->owner, request, &answer);
        }
    }
}

static void rlock__memory_fire(rlock_timer *timer) {
    rlock__session *session = RLOCK__OF(timer, rlock__session, timer);
    rlock_link woken, notified, requests;
    const rlock__item *item;
    rlock__list_init(&woken);
    rlock__list_init(&notified);
    rlock__list_init(&requests);
    rlock__list_move(&woken, &session->woken);
    rlock__list_move(&notified, &session->notified);
    rlock__list_move(&requests, &session->requests);
    if (!session->up) {
        session->up = true;
        session->events->up(session->owner, NULL);
        session->events->pushing(session->owner, NULL,
                                 RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
    }
    rlock__memory_execute(session, &requests, session->events->answered);
    while (!rlock__list_empty(&woken)) {
        rlock__tracking *watch = RLOCK__OF(woken.next, rlock__tracking, woken);
        rlock__list_remove(&watch->woken);
        item = &watch->entry->item;
        session->events->woken(session->owner, item->key, item->key_len);
    }
    while (RLOCK__HAS_KINDS && !rlock__list_empty(&notified)) {
        rlock__member *member = RLOCK__OF(notified.next, rlock__member, notified);
        item = &member->entry->item;
        rlock__list_remove(&member->notified);
        session->events->notified(session->owner, item->key, item->key_len, member->token);
    }
}

static int rlock__memory_open(const rlock_store *store, rlock_client *client,
                              const rlock_config *config, const rlock_store_events *events,
                              void *owner, void **state) {
    rlock__session *session = (rlock__session *)rlock__alloc(sizeof *session);
    if (!session || rlock_timer_add(client, &session->timer, rlock__memory_fire) != RLOCK_OK) {
        rlock__dealloc(session);
        return RLOCK_ERR_NOMEM;
    }
    session->memory = (rlock__memory *)store->ctx;
    session->client = client;
    session->offer_us = config->command_timeout_ms * 1000;
    session->events = events;
    session->owner = owner;
    rlock__list_init(&session->requests);
    rlock__list_init(&session->woken);
    rlock__list_init(&session->notified);
    *state = session;
    return RLOCK_OK;
}

static void rlock__memory_submit(void *state, rlock_request *request) {
    rlock__session *session = (rlock__session *)state;
    request->sent_us = rlock_client_now_us(session->client);
    rlock__list_append(&session->requests, &request->store.link);
    rlock_timer_set(session->client, &session->timer, request->sent_us);
}

static bool rlock__memory_forget(void *state, rlock_request *request) {
    (void)state;
    rlock__list_remove(&request->store.link);
    return false;
}

static void rlock__memory_track(void *state, const char *key, size_t len, bool on) {
    rlock__session *session = (rlock__session *)state;
    int64_t now_us = rlock__memory_now_us(session);
    rlock__entry *entry = rlock__entry_find(session->memory, key, len);
    rlock__tracking *watch = NULL;
    rlock_link *at;
    if (!entry && on) {
        entry = rlock__entry_new(session->memory, key, len, now_us);
    }
    if (!entry) {
        return; /* no memory: a waiter's back-stop timer does without */
    }
    for (at = entry->watches.next; at != &entry->watches; at = at->next) {
        watch = RLOCK__OF(at, rlock__tracking, link);
        if (watch->session == session) {
            break;
        }
        watch = NULL;
    }
    if (!watch && on && (watch = (rlock__tracking *)rlock__alloc(sizeof *watch)) != NULL) {
        watch->entry = entry;
        watch->session = session;
        rlock__list_init(&watch->woken);
        rlock__list_append(&entry->watches, &watch->link);
    }
    if (watch && watch->on != on) {
        RLOCK_ASSERT(on || entry->watching);
        watch->on = on;
        entry->watching = on ? entry->watching + 1 : entry->watching - 1;
    }
}

static void rlock__memory_flush(void *state) {
    (void)state;
}

/* A client goes: it watches nothing, leaves the queues, and what it holds runs out. */
static void rlock__entry_leave(rlock__entry *entry, const rlock__session *session) {
    rlock_link *at, *next;
    for (at = entry->watches.next; at != &entry->watches; at = next) {
        next = at->next;
        if (RLOCK__OF(at, rlock__tracking, link)->session == session) {
            rlock__tracking_free(RLOCK__OF(at, rlock__tracking, link));
        }
    }
    for (at = entry->queue.next; RLOCK__HAS_KINDS && at != &entry->queue; at = next) {
        next = at->next;
        if (RLOCK__OF(at, rlock__member, link)->session == session) {
            rlock__member_drop(session->memory, RLOCK__OF(at, rlock__member, link));
        }
    }
    for (at = entry->holders.next; at != &entry->holders; at = at->next) {
        rlock__member *member = RLOCK__OF(at, rlock__member, link);
        if (member->session == session) {
            member->session = NULL;
            rlock__list_remove(&member->notified);
        }
    }
}

static void rlock__memory_close(void *state) {
    rlock__session *session = (rlock__session *)state;
    rlock_link *at;
    rlock__memory_execute(session, &session->requests, NULL); /* releases above all */
    RLOCK_ASSERT(rlock__list_empty(&session->requests));
    for (at = session->memory->entries.next; at != &session->memory->entries; at = at->next) {
        rlock__entry_leave(RLOCK__OF(at, rlock__entry, link), session);
    }
    RLOCK_ASSERT(rlock__list_empty(&session->woken) && rlock__list_empty(&session->notified));
    rlock_timer_drop(session->client, &session->timer);
    rlock__dealloc(session);
}

static const rlock_store rlock__memory_store = {NULL,
                                                rlock__memory_open,
                                                rlock__memory_close,
                                                rlock__memory_submit,
                                                rlock__memory_forget,
                                                rlock__memory_track,
                                                rlock__memory_flush,
                                                NULL,
                                                NULL,
                                                RLOCK_STORE_STAYS | RLOCK_STORE_ADOPTS,
                                                NULL};

int rlock_memory_new(rlock_store **out) {
    rlock__memory *memory;
    if (!out) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    memory = (rlock__memory *)rlock__alloc(sizeof *memory);
    if (!memory || !rlock__map_init(&memory->map)) {
        rlock__dealloc(memory);
        return RLOCK_ERR_NOMEM;
    }
    rlock__list_init(&memory->entries);
    rlock__list_init(&memory->spare);
    memory->store = rlock__memory_store;
    memory->store.ctx = memory;
    *out = &memory->store;
    return RLOCK_OK;
}

void rlock_memory_free(rlock_store *store) {
    rlock__memory *memory = store ? (rlock__memory *)store->ctx : NULL;
    if (!memory) {
        return;
    }
    while (!rlock__list_empty(&memory->entries)) {
        rlock__entry_free(memory, RLOCK__OF(memory->entries.next, rlock__entry, link));
    }
    while (!rlock__list_empty(&memory->spare)) {
        rlock_link *spare = memory->spare.next;
        rlock__list_remove(spare);
        rlock__dealloc(RLOCK__OF(spare, rlock__member, link));
    }
    rlock__dealloc(memory->map.buckets);
    rlock__dealloc(memory);
}

#endif /* RLOCK__HAS_MEMORY */

#if RLOCK__HAS_REDIS

/* ------------------------------------------------------------------------------------------------
 * >>redis-state - the store on hiredis: what a connection, a command and the store consist of
 */

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

/* ------------------------------------------------------------------------------------------------
 * >>redis-scripts - what a server does in one step, and cannot do by one command
 *
 * They stand here as they are sent, behind their SHA-1: `tools/join --script NAME` prints one. With
 * comments they are in src/lua/.
 */

/* A line of a script is a line here. */
/* clang-format off */

static const char rlock__lua_string_acquire[] =
    "bbb581d172423079595416b8a6b6623f25d2db74"
    "local key,call=KEYS[1],redis.call\n"
    "local holder=call('GET',key)\n"
    "if holder and holder~=ARGV[1]then\n"
    "return call('PTTL',key)\n"
    "end\n"
    "local fence='0'\n"
    "if KEYS[2]then\n"
    "local last=redis.pcall('GET',KEYS[2])or'0'\n"
    "if type(last)=='table'then\n"
    "return last\n"
    "end\n"
    "if not last:match('^%d+$')or last+ARGV[3]>=2^53 then\n"
    "return{err='ERR the fence counter is no number below 2^53'}\n"
    "end\n"
    "local time=redis.pcall('TIME')\n"
    "if time.err then\n"
    "return{err='ERR fences, queues and quarantine need TIME in scripts: '..time.err}\n"
    "end\n"
    "fence=time[1]*1000000+time[2]\n"
    "if last+1>fence then\n"
    "fence=last+1\n"
    "end\n"
    "call('SET',KEYS[2],string.format('%.0f',fence+ARGV[3]-1),'PX',ARGV[2]+86400000)\n"
    "fence=string.format('%.0f',fence)\n"
    "end\n"
    "if holder then\n"
    "local left_ms=call('PTTL',key)\n"
    "if ARGV[2]~='0'then\n"
    "if left_ms<0 then\n"
    "call('SET',key,ARGV[1],'XX')\n"
    "else\n"
    "call('PEXPIRE',key,math.max(math.min(left_ms,math.huge),ARGV[2]))\n"
    "end\n"
    "end\n"
    "else\n"
    "call('SET',key,ARGV[1],'PX',ARGV[2])\n"
    "end\n"
    "return fence";

static const char rlock__lua_string_renew[] =
    "096ff6e2d0ab80728337e95e47c9c043ccb9ae78"
    "local key,call=KEYS[1],redis.call\n"
    "local holder=call('GET',key)\n"
    "if holder~=ARGV[1]then\n"
    "return holder and 0 or-1\n"
    "end\n"
    "local left_ms=call('PTTL',key)\n"
    "if ARGV[2]~='0'then\n"
    "if left_ms<0 then\n"
    "call('SET',key,ARGV[1],'XX')\n"
    "else\n"
    "call('PEXPIRE',key,math.max(math.min(left_ms,ARGV[3]),ARGV[2]))\n"
    "end\n"
    "end\n"
    "call('PTTL',key)\n"
    "return 1";

static const char rlock__lua_string_release[] =
    "7bc779b0dc5cbd2f4c3fc70d0f52a577cce0603a"
    "local holder=redis.call('GET',KEYS[1])\n"
    "if holder~=ARGV[1]then\n"
    "return holder and 0 or-1\n"
    "end\n"
    "return redis.call('DEL',KEYS[1])";

static const char rlock__lua_string_renew_many[] =
    "3d077ea2fed6694a8e740346960aa1ce810dc81f"
    "local call,renewed,head,lease_ms,longest_ms=redis.call,{},ARGV[1],ARGV[2],ARGV[3]\n"
    "local holders=call('MGET',unpack(KEYS))\n"
    "for i,key in ipairs(KEYS)do\n"
    "renewed[i]='0'\n"
    "if holders[i]==head..ARGV[i+3]then\n"
    "renewed[i]=call('PEXPIRE',key,lease_ms,'GT')\n"
    "local left_ms=renewed[i]==0 and call('PTTL',key)or 0\n"
    "if left_ms>0 then\n"
    "renewed[i]=lease_ms=='0'and 1 or call('PEXPIRE',key,math.min(left_ms,longest_ms))\n"
    "end\n"
    "end\n"
    "end\n"
    "call('EXISTS',unpack(KEYS))\n"
    "return table.concat(renewed)";

#if RLOCK__HAS_REDISSON
static const char rlock__lua_redisson_acquire[] =
    "75e6a8ec0da361125a90c58cbea05736951277e2"
    "local key,call=KEYS[1],redis.call\n"
    "local mine=call('HEXISTS',key,ARGV[1])==1\n"
    "if not mine and call('EXISTS',key)==1 then\n"
    "return call('PTTL',key)\n"
    "end\n"
    "local fence='0'\n"
    "if KEYS[2]then\n"
    "local last=redis.pcall('GET',KEYS[2])or'0'\n"
    "if type(last)=='table'then\n"
    "return last\n"
    "end\n"
    "if not last:match('^%d+$')or last+ARGV[3]>=2^53 then\n"
    "return{err='ERR the fence counter is no number below 2^53'}\n"
    "end\n"
    "local time=redis.pcall('TIME')\n"
    "if time.err then\n"
    "return{err='ERR fences, queues and quarantine need TIME in scripts: '..time.err}\n"
    "end\n"
    "fence=time[1]*1000000+time[2]\n"
    "if last+1>fence then\n"
    "fence=last+1\n"
    "end\n"
    "call('SET',KEYS[2],string.format('%.0f',fence+ARGV[3]-1),'PX',ARGV[2]+86400000)\n"
    "fence=string.format('%.0f',fence)\n"
    "end\n"
    "if mine then\n"
    "local left_ms=call('PTTL',key)\n"
    "if ARGV[2]~='0'then\n"
    "if left_ms<0 then\n"
    "call('HSET',key,ARGV[1],1)\n"
    "else\n"
    "call('PEXPIRE',key,math.max(math.min(left_ms,math.huge),ARGV[2]))\n"
    "end\n"
    "end\n"
    "else\n"
    "call('HSET',key,ARGV[1],1)\n"
    "local expires=redis.pcall('PEXPIRE',key,ARGV[2])\n"
    "if type(expires)=='table'then\n"
    "call('DEL',key)\n"
    "return expires\n"
    "end\n"
    "end\n"
    "return fence";

static const char rlock__lua_redisson_renew[] =
    "2081ddd1f7ac5e384918ffe5acf69bfd6b87fc55"
    "local key,call=KEYS[1],redis.call\n"
    "if call('HEXISTS',key,ARGV[1])==0 then\n"
    "return call('EXISTS',key)-1\n"
    "end\n"
    "local left_ms=call('PTTL',key)\n"
    "if ARGV[2]~='0'then\n"
    "if left_ms<0 then\n"
    "call('HSET',key,ARGV[1],1)\n"
    "else\n"
    "call('PEXPIRE',key,math.max(math.min(left_ms,ARGV[3]),ARGV[2]))\n"
    "end\n"
    "end\n"
    "call('PTTL',key)\n"
    "return 1";

static const char rlock__lua_redisson_release[] =
    "57fc2e4d8567be1d5dcfdd51db54fec5b0099aa2"
    "local call=redis.call\n"
    "if call('HEXISTS',KEYS[1],ARGV[1])==0 then\n"
    "return call('EXISTS',KEYS[1])-1\n"
    "end\n"
    "call('DEL',KEYS[1])\n"
    "redis.pcall('PUBLISH',ARGV[2],'0')\n"
    "if ARGV[3]then\n"
    "redis.pcall('SPUBLISH',ARGV[2],'0')\n"
    "end\n"
    "return 1";

#endif
#if RLOCK__HAS_REPLICAS
static const char rlock__lua_quarantine[] =
    "4839d51204e6724ef8d122702852f58bdc648c4b"
    "local call=redis.call\n"
    "local time=redis.pcall('TIME')\n"
    "if time.err then\n"
    "return{err='ERR fences, queues and quarantine need TIME in scripts: '..time.err}\n"
    "end\n"
    "local server,data=call('INFO','server'),call('INFO','replication')\n"
    "local now_ms=time[1]*1000+math.floor(time[2]/1000)\n"
    "local run=server:match('run_id:(%x+)')\n"
    "local history,former=data:match('master_replid:(%x+).-master_replid2:(%x+)')\n"
    "local text=call('GET',KEYS[1])or'0 0 0'\n"
    "local old_run,old_history,since=text:match('^(%x+) (%x+) (%d+)$')\n"
    "if not history or not run or not since then\n"
    "return{err='ERR '..(since and'INFO names no run_id or master_replid'or'its marker is "
    "another key')}\n"
    "end\n"
    "if run~=old_run or history~=old_history and former:match('[^0]')or since+0>now_ms then\n"
    "since=string.format('%.0f',now_ms)\n"
    "end\n"
    "if run==ARGV[2]and history==ARGV[3]and now_ms-ARGV[4]<since+0 then\n"
    "since=string.format('%.0f',now_ms-ARGV[4])\n"
    "end\n"
    "if text~=run..' '..history..' '..since then\n"
    "call('SET',KEYS[1],run..' '..history..' '..since)\n"
    "end\n"
    "return math.max(since+ARGV[1]-now_ms,0)";

#endif

#if RLOCK__HAS_KINDS
#ifdef __GNUC__ /* C99 promises 4095 bytes of a string, these compilers have no limit */
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif
static const char rlock__lua_string_inspect[] =
    "61c4be86173a7ab427aef48dcdca7fda47c56084"
    "local holder=redis.call('GET',KEYS[1])\n"
    "if not holder then\n"
    "return'0 0 -1 1 -1 '\n"
    "end\n"
    "return'1 '..redis.call('PTTL',KEYS[1])..' -1 0 -1 '..holder";

static const char rlock__lua_string_force[] =
    "707d4771e9ce50ab7d845f9ec38e4a5fcdfb5be2"
    "return redis.call('GET',KEYS[1])and redis.call('DEL',KEYS[1])or 0";

static const char rlock__lua_keys_acquire[] =
    "16740676c353fbdca08151f83149cea13f2a0c26"
    "local call,keys,holders,fence=redis.call,#KEYS,{},'0'\n"
    "if ARGV[3]then\n"
    "keys=keys/2\n"
    "end\n"
    "for i=1,keys do\n"
    "holders[i]=call('GET',KEYS[i])\n"
    "if holders[i]and holders[i]~=ARGV[1]then\n"
    "return call('PTTL',KEYS[i])\n"
    "end\n"
    "end\n"
    "if ARGV[3]then\n"
    "local time=redis.pcall('TIME')\n"
    "if time.err then\n"
    "return{err='ERR fences, queues and quarantine need TIME in scripts: '..time.err}\n"
    "end\n"
    "fence=time[1]*1000000+time[2]\n"
    "for i=keys+1,#KEYS do\n"
    "local last=call('GET',KEYS[i])or'0'\n"
    "if not last:match('^%d+$')or last+ARGV[3]>=2^53 then\n"
    "return{err='ERR the fence counter is no number below 2^53'}\n"
    "end\n"
    "if last+1>fence then\n"
    "fence=last+1\n"
    "end\n"
    "end\n"
    "local next_last=string.format('%.0f',fence+ARGV[3]-1)\n"
    "fence=string.format('%.0f',fence)\n"
    "for i=keys+1,#KEYS do\n"
    "call('SET',KEYS[i],next_last,'PX',ARGV[2]+86400000)\n"
    "end\n"
    "end\n"
    "for i=1,keys do\n"
    "if not holders[i]then\n"
    "call('SET',KEYS[i],ARGV[1],'PX',ARGV[2])\n"
    "else\n"
    "local key=KEYS[i]\n"
    "local left_ms=call('PTTL',key)\n"
    "if ARGV[2]~='0'then\n"
    "if left_ms<0 then\n"
    "call('SET',key,ARGV[1],'XX')\n"
    "else\n"
    "call('PEXPIRE',key,math.max(math.min(left_ms,math.huge),ARGV[2]))\n"
    "end\n"
    "end\n"
    "end\n"
    "end\n"
    "return fence";

static const char rlock__lua_keys_renew[] =
    "300dd0408f115596eafc88ee13ce03ffb2eaf01f"
    "local call=redis.call\n"
    "for i,key in ipairs(KEYS)do\n"
    "local holder=call('GET',key)\n"
    "if holder~=ARGV[1]then\n"
    "return holder and 0 or-1\n"
    "end\n"
    "end\n"
    "for i,key in ipairs(KEYS)do\n"
    "local left_ms=call('PTTL',key)\n"
    "if ARGV[2]~='0'then\n"
    "if left_ms<0 then\n"
    "call('SET',key,ARGV[1],'XX')\n"
    "else\n"
    "call('PEXPIRE',key,math.max(math.min(left_ms,ARGV[3]),ARGV[2]))\n"
    "end\n"
    "end\n"
    "end\n"
    "call('EXISTS',unpack(KEYS))\n"
    "return 1";

static const char rlock__lua_keys_release[] =
    "197c0d03fe5d81180ceaa1d59dceaa0731dc1ec2"
    "local result=1\n"
    "for i,key in ipairs(KEYS)do\n"
    "local holder=redis.pcall('GET',key)\n"
    "if holder==ARGV[1]then\n"
    "redis.call('DEL',key)\n"
    "elseif type(holder)=='table'then\n"
    "result=holder\n"
    "elseif result==1 then\n"
    "result=holder and 0 or-1\n"
    "end\n"
    "end\n"
    "return result";

static const char rlock__lua_queue[] =
    "2c0333085ca7f16e8b5c5fc057f72a7dee9e4238"
    "local call,pcall,holders,queue,op,me,scores=\n"
    "redis.call,redis.pcall,KEYS[1],KEYS[2],ARGV[1],ARGV[2],'WITHSCORES'\n"
    "local used,permits,changed,first_end,mine,wrong,head\n"
    "local time=redis.pcall('TIME')\n"
    "if time.err then\n"
    "return{err='ERR fences, queues and quarantine need TIME in scripts: '..time.err}\n"
    "end\n"
    "local now=time[1]*1000+math.floor(time[2]/1000)\n"
    "local sort,pattern=me:sub(-1),'^[%x-]+:%d+:(%d+)([fws])$'\n"
    "if op=='0'and not KEYS[3]and call('EXISTS',holders,queue)==0 then\n"
    "local ends=now+ARGV[6]\n"
    "local negative=sort=='f'or me:match(':(%d+)%a$')+0>1\n"
    "local new=pcall('ZADD',holders,(negative and-ends or ends)..'',me)\n"
    "local lives=type(new)=='number'and pcall('PEXPIRE',holders,ARGV[6])\n"
    "if type(lives)=='table'then\n"
    "call('ZREM',holders,me)\n"
    "end\n"
    "return type(lives)=='number'and'0'or lives or new\n"
    "end\n"
    "if op=='2'and call('EXISTS',queue)==0 then\n"
    "local ends=math.abs(call('ZSCORE',holders,me)or 0)\n"
    "call('ZREM',holders,me)\n"
    "return ends>now and 1 or-1\n"
    "end\n"
    "local function weight(member,any)\n"
    "local number,its_sort=member:match(pattern)\n"
    "if its_sort==sort or any and its_sort then\n"
    "return number+0\n"
    "end\n"
    "if op~='2'then\n"
    "call('GET',holders)\n"
    "call('GET',queue)\n"
    "end\n"
    "wrong=true\n"
    "return 0\n"
    "end\n"
    "local function touch(ms)\n"
    "local result=pcall('PEXPIRE',holders,ms,'GT')\n"
    "if result==1 then\n"
    "return true\n"
    "end\n"
    "if result~=0 then\n"
    "pcall('ZREM',holders,me..sort)\n"
    "end\n"
    "result=call('PTTL',holders)\n"
    "return result==-1 or result>=ms+0\n"
    "end\n"
    "local function hold(member,number,ends,ms,lives)\n"
    "local new=pcall('ZADD',holders,((number>1 or sort=='f')and-ends or ends)..'',member)\n"
    "if type(new)=='table'then\n"
    "return new\n"
    "end\n"
    "lives=lives or pcall('PEXPIRE',holders,ms)\n"
    "if type(lives)~='table'then\n"
    "return\n"
    "end\n"
    "if new==1 then\n"
    "call('ZREM',holders,member)\n"
    "end\n"
    "return lives\n"
    "end\n"
    "local two=call('ZRANGE',holders,'0','1',scores)\n"
    "local function member_at(rank,found)\n"
    "found=found or call('ZRANGE',queue,rank,rank,scores)\n"
    "while found[1]and not found[1]:match(pattern)do\n"
    "call('ZREM',queue,found[1])\n"
    "found=call('ZRANGE',queue,rank,rank,scores)\n"
    "end\n"
    "return found\n"
    "end\n"
    "local my_end=math.abs(two[1]==me and two[2]or two[3]and call('ZSCORE',holders,me)or 0)\n"
    "local function renewed(ends)\n"
    "local most=now+math.huge\n"
    "return ends>most and most or math.max(now+ARGV[6],math.floor(ends)+1)\n"
    "end\n"
    "local function grant(new)\n"
    "local ends=renewed(my_end)\n"
    "local ms=changed and'86400000'or ends-now\n"
    "local lives=not new and touch(ms)\n"
    "local fence='0'\n"
    "if KEYS[3]then\n"
    "local last=pcall('GET',KEYS[3])or'0'\n"
    "if type(last)=='table'then\n"
    "return last\n"
    "end\n"
    "if not last:match('^%d+$')or last+ARGV[9]>=2^53 then\n"
    "return{err='ERR the fence counter is no number below 2^53'}\n"
    "end\n"
    "local time=redis.pcall('TIME')\n"
    "if time.err then\n"
    "return{err='ERR fences, queues and quarantine need TIME in scripts: '..time.err}\n"
    "end\n"
    "fence=time[1]*1000000+time[2]\n"
    "if last+1>fence then\n"
    "fence=last+1\n"
    "end\n"
    "call('SET',KEYS[3],string.format('%.0f',fence+ARGV[9]-1),'PX',ARGV[6]+86400000)\n"
    "fence=string.format('%.0f',fence)\n"
    "end\n"
    "lives=hold(me,weight(me),ends,ms,lives)\n"
    "if lives or new then\n"
    "return lives or fence\n"
    "end\n"
    "local next_member=pcall('ZRANGE',queue,'0','0')[1]\n"
    "return next_member and next_member:sub(1,36)==me:sub(1,36)and fence..'+'or fence\n"
    "end\n"
    "if op=='0'then\n"
    "if not two[1]and call('EXISTS',queue)==0 then\n"
    "return grant(true)\n"
    "end\n"
    "if my_end>now then\n"
    "return grant()\n"
    "end\n"
    "end\n"
    "if op=='2'then\n"
    "if my_end==0 then\n"
    "call('ZREM',queue,me)\n"
    "else\n"
    "call('ZREM',holders,me)\n"
    "if my_end<=now then\n"
    "pcall('ZREM',queue,me)\n"
    "end\n"
    "end\n"
    "if two[1]==me and not two[3]then\n"
    "two={}\n"
    "end\n"
    "head=pcall('ZRANGE',queue,'0','0',scores)\n"
    "if not head[1]then\n"
    "return my_end>now and 1 or-1\n"
    "end\n"
    "end\n"
    "local function between(least,most,...)\n"
    "return call('ZRANGEBYSCORE',holders,least,most,scores,...)\n"
    "end\n"
    "local function note(member,score)\n"
    "if score=='-inf'then\n"
    "changed=true\n"
    "permits=(sort=='s'and member:match('^permits:(%d+)$')or weight(''))+0\n"
    "return\n"
    "end\n"
    "local ends=math.abs(score)\n"
    "local number=weight(member,ends<=now)\n"
    "if ends>now then\n"
    "used,first_end=used+number,ends\n"
    "end\n"
    "end\n"
    "local function count_holders()\n"
    "used,permits=0,ARGV[3]+0\n"
    "if two[1]then\n"
    "note(two[1],two[2])\n"
    "end\n"
    "if not two[3]then\n"
    "return\n"
    "end\n"
    "note(two[3],two[4])\n"
    "if not first_end then\n"
    "local live=between('('..now,'+inf','LIMIT','0','1')\n"
    "if live[1]then\n"
    "note(live[1],live[2])\n"
    "end\n"
    "end\n"
    "used=call('ZCOUNT',holders,'('..now,'+inf')\n"
    "local heavy=between('-inf','('..-now)\n"
    "for i=1,#heavy,2 do\n"
    "note(heavy[i],heavy[i+1])\n"
    "end\n"
    "end\n"
    "local function drop(members,any)\n"
    "local expelled,waiters={}\n"
    "for i=1,#members,2 do\n"
    "weight(members[i],any)\n"
    "end\n"
    "for i=1,#members,2 do\n"
    "local client,ends=members[i]:sub(1,36),math.abs(members[i+1])\n"
    "call('ZREM',holders,members[i])\n"
    "if ends%1~=0 and ends<=now and client~=me:sub(1,36)and not expelled[client]then\n"
    "expelled[client],waiters=true,waiters or call('ZRANGE',queue,'0','-1')\n"
    "pcall('PUBLISH',ARGV[5]..client,'0:'..holders)\n"
    "end\n"
    "end\n"
    "for i=1,waiters and#waiters or 0 do\n"
    "if expelled[waiters[i]:sub(1,36)]then\n"
    "call('ZREM',queue,waiters[i])\n"
    "end\n"
    "end\n"
    "end\n"
    "local function notify(member)\n"
    "return pcall('PUBLISH',ARGV[5]..member:sub(1,36),\n"
    "member:match(':(%d+):')..':'..holders)~=0\n"
    "end\n"
    "local function offer()\n"
    "local stays_ms=ARGV[4]*2\n"
    "while used<permits do\n"
    "local first=member_at('0',head)\n"
    "head=nil\n"
    "local member=first[1]\n"
    "if not member then\n"
    "return true\n"
    "end\n"
    "local number=weight(member)\n"
    "if wrong then\n"
    "return\n"
    "end\n"
    "if number<=permits then\n"
    "if used+number>permits or\n"
    "hold(member,number,now+ARGV[4]-0.5,stays_ms,two[1]and touch(stays_ms))then\n"
    "return\n"
    "end\n"
    "used,two=used+number,{member,0,member,0}\n"
    "if member==me then\n"
    "mine=true\n"
    "elseif member~=ARGV[6]and first[2]%1==0 and not notify(member)then\n"
    "used=used-number\n"
    "call('ZREM',holders,member)\n"
    "end\n"
    "end\n"
    "call('ZREM',queue,member)\n"
    "end\n"
    "end\n"
    "if op>'2'then\n"
    "local light,heavy=between('('..now,'+inf'),between('(-inf','('..-now)\n"
    "local held=(#light+#heavy)/2\n"
    "count_holders()\n"
    "local first=call('ZRANGE',queue,'0','0')[1]\n"
    "if first and first:match(pattern)then\n"
    "weight(first)\n"
    "end\n"
    "if op=='3'then\n"
    "local ends=math.max(light[#light]or now,-(heavy[2]or-now))\n"
    "return('%d %d %d %d %d %s'):format(held,ends-now,call('ZCARD',queue),\n"
    "math.max(permits-used,0),call('ZRANK',queue,me)or-1,\n"
    "((light[1]or heavy[1]or''):gsub(':%d+.$','')))\n"
    "end\n"
    "if op=='4'then\n"
    "drop(between(-now..'',now..''),true)\n"
    "drop(light)\n"
    "drop(heavy)\n"
    "for i=1,#light,2 do\n"
    "notify(light[i])\n"
    "end\n"
    "for i=1,#heavy,2 do\n"
    "notify(heavy[i])\n"
    "end\n"
    "else\n"
    "held=0\n"
    "local member,day_ms='permits:'..ARGV[6],'86400000'\n"
    "local lives=touch(day_ms)\n"
    "if ARGV[6]~='0'then\n"
    "call('ZADD',holders,'-inf',member)\n"
    "if not lives then\n"
    "call('PEXPIRE',holders,day_ms)\n"
    "end\n"
    "end\n"
    "if two[2]=='-inf'and two[1]~=member then\n"
    "call('ZREM',holders,two[1])\n"
    "end\n"
    "end\n"
    "two={me,0,me,0}\n"
    "count_holders()\n"
    "offer()\n"
    "return held\n"
    "end\n"
    "count_holders()\n"
    "if op=='2'then\n"
    "if not wrong then\n"
    "offer()\n"
    "end\n"
    "return my_end>now and 1 or-1\n"
    "end\n"
    "local next_to_writer\n"
    "if used<permits and two[1]then\n"
    "drop(between(-now..'',now..''),true)\n"
    "end\n"
    "if ARGV[8]~=''and math.abs(call('ZSCORE',holders,ARGV[8])or 0)>now then\n"
    "next_to_writer=true\n"
    "call('ZREM',queue,me)\n"
    "end\n"
    "if next_to_writer or offer()and used+weight(me)<=permits or mine then\n"
    "local result=grant()\n"
    "if mine and type(result)=='table'then\n"
    "call('ZREM',holders,me)\n"
    "end\n"
    "return result\n"
    "end\n"
    "if ARGV[7]~='0'then\n"
    "local ms=ARGV[4]*30 ..''\n"
    "call('PEXPIRE',queue,ms)\n"
    "local last=member_at('-1')[2]\n"
    "if call('ZADD',queue,'NX',math.floor((last or 0)+1)+ARGV[7]-1 ..'',me)==0 then\n"
    "call('ZADD',queue,math.floor(call('ZSCORE',queue,me))+ARGV[7]-1 ..'',me)\n"
    "end\n"
    "if not last then\n"
    "call('PEXPIRE',queue,ms)\n"
    "end\n"
    "end\n"
    "local ends=two[3]and tonumber(between('('..now,'+inf','LIMIT','0','1')[2])\n"
    "ends=math.min(ends or first_end or 0,first_end or ends or 0)\n"
    "return ends>0 and math.ceil(ends-now)or-1";

static const char rlock__lua_queue_renew[] =
    "397493d82a7febd65967e98c3fa02095cf87088d"
    "local call,pcall,holders,queue,op,me,scores=\n"
    "redis.call,redis.pcall,KEYS[1],KEYS[2],ARGV[1],ARGV[2],'WITHSCORES'\n"
    "local used,permits,changed,first_end,mine,wrong,head\n"
    "local time=redis.pcall('TIME')\n"
    "if time.err then\n"
    "return{err='ERR fences, queues and quarantine need TIME in scripts: '..time.err}\n"
    "end\n"
    "local now=time[1]*1000+math.floor(time[2]/1000)\n"
    "local sort,pattern=me:sub(-1),'^[%x-]+:%d+:(%d+)([fws])$'\n"
    "local function weight(member,any)\n"
    "local number,its_sort=member:match(pattern)\n"
    "if its_sort==sort or any and its_sort then\n"
    "return number+0\n"
    "end\n"
    "if op~='2'then\n"
    "call('GET',holders)\n"
    "call('GET',queue)\n"
    "end\n"
    "wrong=true\n"
    "return 0\n"
    "end\n"
    "local function touch(ms)\n"
    "local result=pcall('PEXPIRE',holders,ms,'GT')\n"
    "if result==1 then\n"
    "return true\n"
    "end\n"
    "if result~=0 then\n"
    "pcall('ZREM',holders,me..sort)\n"
    "end\n"
    "result=call('PTTL',holders)\n"
    "return result==-1 or result>=ms+0\n"
    "end\n"
    "local function hold(member,number,ends,ms,lives)\n"
    "local new=pcall('ZADD',holders,((number>1 or sort=='f')and-ends or ends)..'',member)\n"
    "if type(new)=='table'then\n"
    "return new\n"
    "end\n"
    "lives=lives or pcall('PEXPIRE',holders,ms)\n"
    "if type(lives)~='table'then\n"
    "return\n"
    "end\n"
    "if new==1 then\n"
    "call('ZREM',holders,member)\n"
    "end\n"
    "return lives\n"
    "end\n"
    "local function renewed(ends)\n"
    "local most=now+ARGV[7]\n"
    "return ends>most and most or math.max(now+ARGV[6],math.floor(ends)+1)\n"
    "end\n"
    "local ends=math.abs(call('ZSCORE',holders,me)or 0)\n"
    "if ends<=now then\n"
    "return-1\n"
    "end\n"
    "if ARGV[6]~='0'then\n"
    "ends=renewed(ends)\n"
    "local failed=hold(me,weight(me),ends,ends-now,touch(ends-now))\n"
    "if failed then\n"
    "return failed\n"
    "end\n"
    "end\n"
    "call('ZSCORE',holders,me)\n"
    "return 1";

#endif /* RLOCK__HAS_KINDS */
#if RLOCK__HAS_KINDS && RLOCK__HAS_REDISSON
static const char rlock__lua_redisson_inspect[] =
    "2ff0092aa58590769fd52cce125ddbbf217ad82a"
    "local holder=redis.call('HKEYS',KEYS[1])[1]\n"
    "if not holder then\n"
    "return'0 0 -1 1 -1 '\n"
    "end\n"
    "return'1 '..redis.call('PTTL',KEYS[1])..' -1 0 -1 '..holder";

static const char rlock__lua_redisson_force[] =
    "04708c5ff02b011c30f15fca80ad41860faee0e3"
    "if redis.call('HLEN',KEYS[1])==0 then\n"
    "return 0\n"
    "end\n"
    "redis.call('DEL',KEYS[1])\n"
    "redis.pcall('PUBLISH',ARGV[1],'0')\n"
    "if ARGV[2]then\n"
    "redis.pcall('SPUBLISH',ARGV[1],'0')\n"
    "end\n"
    "return 1";

#endif
#if RLOCK__HAS_KINDS && RLOCK__HAS_DESCRIPTIONS
static const char rlock__lua_who[] =
    "ab95cfa9eedd5ea6668812075eb98cf18d6438df"
    "local key,call=KEYS[1],redis.call\n"
    "local what,all=call('TYPE',key).ok,''\n"
    "local function add(sort,left,token)\n"
    "all=all..sort..' '..left..' '..#token..' '..token\n"
    "end\n"
    "if what=='string'then\n"
    "add('h',call('PTTL',key),call('GET',key))\n"
    "elseif what=='hash'and call('HLEN',key)==1 then\n"
    "add('h',call('PTTL',key),call('HKEYS',key)[1])\n"
    "elseif what=='zset'and KEYS[2]then\n"
    "local time=redis.pcall('TIME')\n"
    "if time.err then\n"
    "return{err='ERR fences, queues and quarantine need TIME in scripts: '..time.err}\n"
    "end\n"
    "local now=time[1]*1000+math.floor(time[2]/1000)\n"
    "local function between(from,to)\n"
    "local some=call('ZRANGEBYSCORE',key,from,to,'WITHSCORES','LIMIT','0','100')\n"
    "for i=1,#some,2 do\n"
    "local left=math.abs(some[i+1])-now\n"
    "add('h',math.max(math.floor(left),0),(some[i]:gsub(':%d+.$','')))\n"
    "end\n"
    "end\n"
    "between('(-inf','('..-now)\n"
    "between('('..now,'+inf')\n"
    "end\n"
    "if KEYS[2]and call('TYPE',KEYS[2]).ok=='zset'then\n"
    "for _,member in ipairs(call('ZRANGE',KEYS[2],'0','99'))do\n"
    "add('w',-1,(member:gsub(':%d+.$','')))\n"
    "end\n"
    "end\n"
    "return all";

#endif

/* clang-format on */

#define RLOCK__SHA 40 /* digits of a SHA-1, before each script */

/* The rows of scripts: for a mutex on each wire, for several keys, for the queued kinds. */
enum {
    RLOCK__ROW_STRING,
#if RLOCK__HAS_REDISSON
    RLOCK__ROW_REDISSON,
#endif
#if RLOCK__HAS_KINDS
    RLOCK__ROW_KEYS,
    RLOCK__ROW_QUEUE,
#endif
    RLOCK__ROWS
};

#if RLOCK__HAS_KINDS
static const char *const rlock__scripts[RLOCK__ROWS][6] = {
    /* [row][rlock_op] */
    {rlock__lua_string_acquire, rlock__lua_string_renew, rlock__lua_string_release,
     rlock__lua_string_inspect, rlock__lua_string_force, NULL},
#if RLOCK__HAS_REDISSON
    {rlock__lua_redisson_acquire, rlock__lua_redisson_renew, rlock__lua_redisson_release,
     rlock__lua_redisson_inspect, rlock__lua_redisson_force, NULL},
#endif
    {rlock__lua_keys_acquire, rlock__lua_keys_renew, rlock__lua_keys_release, NULL, NULL, NULL},
    {rlock__lua_queue, rlock__lua_queue_renew, rlock__lua_queue, rlock__lua_queue, rlock__lua_queue,
     rlock__lua_queue}};
#else
static const char *const rlock__scripts[RLOCK__ROWS][3] = {
    {rlock__lua_string_acquire, rlock__lua_string_renew, rlock__lua_string_release},
#if RLOCK__HAS_REDISSON
    {rlock__lua_redisson_acquire, rlock__lua_redisson_renew, rlock__lua_redisson_release},
#endif
};
#endif

/* ------------------------------------------------------------------------------------------------
 * >>redis-address - where an attempt to connect leads: a host, its addresses, the walk along them
 */

static bool rlock__is_localhost(const char *host) {
    return strcmp(host, "localhost") == 0;
}

/* A text that redisAsyncConnect takes without asking a name server; IPv6 may have a scope. */
static const char *rlock__numeric(const char *host) {
    unsigned char address[sizeof(struct in6_addr)];
    char text[INET6_ADDRSTRLEN] = "";
    size_t len = strcspn(host, "%");
    if (rlock__is_localhost(host)) {
        return "127.0.0.1";
    }
    if (len < sizeof text) {
        memcpy(text, host, len);
    }
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, text, address) == 1 ? host
                                                                                             : NULL;
}

/* True for what may be a name or an address: not for a URL, nor for what came with a user. */
static bool rlock__is_host(const char *host, size_t len) {
    char text[RLOCK__HOST_MAX + 1];
    size_t i;
    for (i = 0; i < len && len <= RLOCK__HOST_MAX; i++) {
        text[i] = host[i];
        if ((unsigned char)text[i] <= ' ' || strchr("\177/?#@[],\"\\", text[i])) {
            return false;
        }
    }
    RLOCK_ASSERT(i <= RLOCK__HOST_MAX && (!i || i == len)); /* nothing of one that is too long */
    text[i] = 0;
    return i && (!strchr(text, ':') || rlock__numeric(text));
}

#if RLOCK__HAS_SENTINEL || RLOCK__HAS_CLUSTER

/* Takes the next one out of "host:port,[::1]:port"; the port may be left out. False: it is none. */
static bool rlock__hosts_next(const char **at, const char **host, size_t *len, int *port) {
    bool bracket = **at == '[';
    const char *end;
    *host = *at + bracket;
    *len = strcspn(*host, bracket ? "]" : ":,");
    end = *host + *len;
    if (!*len || (bracket && *end++ != ']')) {
        return false;
    }
    if (*end == ':') {
        size_t digits = strspn(++end, "0123456789");
        long number = strtol(end, NULL, 10);
        if (!digits || digits > 5 || number < 1 || number > 65535) {
            return false;
        }
        *port = (int)number;
        end += digits;
    }
    *at = end + (*end == ',');
    return (!*end || *end == ',') && rlock__is_host(*host, *len);
}

/* Returns what is wrong with a list of hosts, or NULL. *detail: the host that is meant; none of a
 * list that has something else in it, which may be a password. */
static const char *rlock__hosts_fault(const rlock_config *config, const char *list,
                                      const char *wrong, const char **detail) {
    const char *name = NULL;
    do {
        char text[RLOCK__ADDRESS_MAX] = "";
        const char *host;
        size_t len;
        int port;
        if (!rlock__hosts_next(&list, &host, &len, &port)) {
            return wrong;
        }
        memcpy(text, host, len < sizeof text ? len : 0);
        if (!name && !rlock__numeric(text)) {
            name = host;
        }
    } while (*list);
    if (name && !RLOCK__HAS_NAMES) {
        *detail = name;
        return "a host name needs RLOCK_WITH_NAMES; use an address";
    }
    if (name && !config->loop.resolve) {
        *detail = name;
        return "a host name needs loop.resolve; use an address";
    }
    return NULL;
}

/* Cuts a list of hosts into its parts. Returns them, for which the text has to stay; NULL: there is
 * no memory. */
static rlock__host *rlock__hosts_split(char *text, int standard, uint32_t *count) {
    const char *at;
    rlock__host *hosts;
    size_t most = 1;
    for (at = text; *at; at++) {
        most += *at == ',';
    }
    hosts = (rlock__host *)rlock__alloc(most * sizeof *hosts);
    *count = 0;
    for (at = text; hosts && *at; (*count)++) {
        rlock__host *one = &hosts[*count];
        const char *host;
        size_t len;
        RLOCK_ASSERT(*count < most);
        one->port = standard;
        rlock__hosts_next(&at, &host, &len, &one->port);
        one->name = text + (host - text);
        one->name[len] = 0;
    }
    return hosts;
}

/* Replaces an address that a server announced by the one that config.map_address has for it. There
 * is room for RLOCK__HOST_MAX bytes of the host, and a NUL. */
static void rlock__announced(rlock_map_address *map, void *user, char *host, int *port) {
    char new_host[RLOCK__HOST_MAX + 1] = "";
    int new_port = *port;
    RLOCK_ASSERT(*host && *port > 0);
    if (!map || !map(user, host, *port, new_host, sizeof new_host, &new_port)) {
        return;
    }
    new_host[RLOCK__HOST_MAX] = 0;
    if (rlock__is_host(new_host, strlen(new_host)) && new_port > 0 && new_port <= 65535) {
        strcpy(host, new_host);
        *port = new_port;
    }
}

#endif /* RLOCK__HAS_SENTINEL || RLOCK__HAS_CLUSTER */

#if RLOCK__HAS_NAMES

/* Writes an address as such a text. */
static void rlock__address_text(const rlock__address *address, char *text) {
    bool six = address->any.sa_family == AF_INET6;
    const void *number =
        six ? (const void *)&address->in6.sin6_addr : (const void *)&address->in.sin_addr;
    RLOCK_ASSERT(address->any.sa_family == AF_INET || six);
    text[0] = 0;
    inet_ntop(address->any.sa_family, number, text, RLOCK__ADDRESS_MAX);
    if (six && address->in6.sin6_scope_id) {
        size_t n = strlen(text);
        text[n++] = '%';
        n += rlock__digits(text + n, address->in6.sin6_scope_id);
        text[n] = 0;
    }
}

/* Takes over what a name stands for now: what is no address of the internet is passed over. Where
 * nothing is left, the address that worked last is tried once more. */
static void rlock__endpoint_found(rlock__endpoint *endpoint,
                                  const struct sockaddr *const *addresses, unsigned count) {
    unsigned i;
    endpoint->count = endpoint->at = 0;
    for (i = 0; i < count && endpoint->count < RLOCK__ADDRESSES; i++) {
        sa_family_t family = addresses[i]->sa_family;
        if (family == AF_INET || family == AF_INET6) {
            memcpy(&endpoint->found[endpoint->count++], addresses[i],
                   family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        }
    }
    RLOCK_ASSERT(endpoint->count <= RLOCK__ADDRESSES);
    if (!endpoint->count && endpoint->good.any.sa_family) {
        endpoint->found[0] = endpoint->good;
        endpoint->count = 1;
    }
}

/* Takes over what localhost stands for: 127.0.0.1, and ::1 if this machine has it. */
static void rlock__endpoint_local(rlock__endpoint *endpoint) {
    rlock__address *six = &endpoint->found[1];
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    memset(endpoint->found, 0, 2 * sizeof *endpoint->found);
    endpoint->found[0].in.sin_family = AF_INET;
    endpoint->found[0].in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    six->in6.sin6_family = AF_INET6;
    six->in6.sin6_addr.s6_addr[15] = 1;
    endpoint->at = 0;
    endpoint->count = fd >= 0 && bind(fd, &six->any, sizeof six->in6) == 0 ? 2 : 1;
    if (fd >= 0) {
        close(fd);
    }
}

/* True if another address follows the one that is tried now. */
static bool rlock__endpoint_more(const rlock__endpoint *endpoint) {
    RLOCK_ASSERT(!endpoint->count || endpoint->at < endpoint->count);
    return endpoint->at + 1 < endpoint->count;
}

/* True if the host is an address, or stands for one that is known. */
static bool rlock__endpoint_known(const rlock__endpoint *endpoint) {
    return endpoint->count || rlock__numeric(endpoint->host);
}

#else

static bool rlock__endpoint_more(const rlock__endpoint *endpoint) {
    (void)endpoint;
    return false;
}

static bool rlock__endpoint_known(const rlock__endpoint *endpoint) {
    return rlock__numeric(endpoint->host) != NULL;
}

#endif /* RLOCK__HAS_NAMES */

/* How long an address may be silent while another one waits to be tried: the longer, the more
 * attempts have failed, so that one that is slow and good is not given up for ever. */
static int64_t rlock__endpoint_patience_us(const rlock__endpoint *endpoint, int64_t timeout_us) {
    int64_t us = RLOCK__PATIENCE_MS * 1000;
    uint32_t i;
    RLOCK_ASSERT(timeout_us > 0);
    for (i = 0; i < endpoint->failures && us < timeout_us; i++) {
        us *= 2;
    }
    return rlock__min(us, timeout_us);
}

static void rlock__endpoint_worked(rlock__endpoint *endpoint) {
    endpoint->failures = 0;
#if RLOCK__HAS_NAMES
    if (endpoint->count) {
        RLOCK_ASSERT(endpoint->at < endpoint->count);
        endpoint->good = endpoint->found[endpoint->at];
    }
#endif
}

/* Starts to connect to the address whose turn it is. */
static redisAsyncContext *rlock__endpoint_connect(const rlock__endpoint *endpoint) {
    RLOCK_ASSERT(endpoint->port > 0 && endpoint->port <= 65535);
#if RLOCK__HAS_NAMES
    if (endpoint->count) {
        char text[RLOCK__ADDRESS_MAX];
        rlock__address_text(&endpoint->found[endpoint->at], text);
        return redisAsyncConnect(text, endpoint->port);
    }
#endif
    RLOCK_ASSERT(rlock__numeric(endpoint->host));
    return redisAsyncConnect(rlock__numeric(endpoint->host), endpoint->port);
}

/* ------------------------------------------------------------------------------------------------
 * >>redis-resp - requests as RESP, replies as answers, errors as faults
 */

/* What error replies mean, by the whole words that they begin with, after an ERR if there is one.
 * A server sends each of these before it executes anything; of other errors that is not known. */
typedef struct rlock__error {
    const char *words; /* each with its NUL */
    rlock_fault fault;
} rlock__error;

enum { RLOCK__ERROR_MOVED, RLOCK__ERROR_ASTRAY }; /* rows: the address leads elsewhere */

static const rlock__error rlock__errors[] = {
    {"MOVED\0", RLOCK_FAULT_BUSY},
    {"READONLY\0"
     "MASTERDOWN\0",
     RLOCK_FAULT_BUSY},
    {"LOADING\0"
     "BUSY\0"
     "OOM\0"
     "MISCONF\0"
     "NOREPLICAS\0"
     "CLUSTERDOWN\0"
     "ASK\0"
     "TRYAGAIN\0"
     "max number of clients\0",
     RLOCK_FAULT_BUSY},
    {"NOAUTH\0"
     "WRONGPASS\0"
     "NOPERM\0"
     "DENIED\0"
     "invalid password\0"
     "AUTH\0"
     "Client sent AUTH\0"
     "The user executing the script\0" /* an ACL inside one, to Redis 7 */
     "ACL failure in script\0",        /* ... Redis 8, Valkey */
     RLOCK_FAULT_AUTH},
    {"WRONGTYPE\0", RLOCK_FAULT_TYPE},
    {"CROSSSLOT\0"
     "NOSCRIPT\0"
     "unknown command\0"
     "wrong number of arguments\0"
     "syntax error\0"
     "Error compiling script\0",
     RLOCK_FAULT_OTHER},
    {"", RLOCK_FAULT_OTHER}}; /* anything else */

#define RLOCK__SCRIPT_FAILED "ERR Error running script"
#define RLOCK__NO_TIME "ERR fences, queues and quarantine need TIME in scripts: " /* time.lua */

/* Before Redis 7 the words follow others about the script's failure, and the line of the script:
 * `ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: -OOM ...`. */
static const char *rlock__error_text(const char *text) {
    const char *at = text;
    if (strncmp(text, RLOCK__SCRIPT_FAILED, sizeof RLOCK__SCRIPT_FAILED - 1) == 0) {
        at = strstr(text, "): ") ? strstr(text, "): ") + 3 : text;
    } else if (strncmp(text, RLOCK__NO_TIME, sizeof RLOCK__NO_TIME - 1) == 0) {
        at = text + sizeof RLOCK__NO_TIME - 1;
    }
    while (at != text && strncmp(at, "@user_script:", 13) == 0 && strstr(at + 13, ": ")) {
        at = strstr(at + 13, ": ") + 2;
    }
    if (at != text && *at == '-') {
        at++;
    }
    return strncmp(at, "ERR ", 4) == 0 ? at + 4 : at;
}

static bool rlock__begins(const char *text, const char *words) {
    size_t len = strlen(words);
    char next = strncmp(text, words, len) == 0 ? text[len] : '_';
    return !len || !(next == '_' || rlock__alnum(next));
}

/* Returns the row for an error. Names of users and keys play no part: they stand further on. */
static const rlock__error *rlock__error_of(const char *text) {
    const rlock__error *error = rlock__errors;
    const char *words = rlock__error_text(text), *known = error->words;
    while (!rlock__begins(words, known)) {
        known += strlen(known) + 1;
        known = *known ? known : (++error)->words;
    }
    RLOCK_ASSERT((size_t)(error - rlock__errors) < sizeof rlock__errors / sizeof *rlock__errors);
    return error;
}

static rlock_fault rlock__classify(const char *text) {
    return rlock__error_of(text)->fault;
}

/* True if a node of a cluster says which other one to ask. */
static bool rlock__redirected(const char *text) {
    const char *words = rlock__error_text(text);
    return rlock__begins(words, "MOVED") || rlock__begins(words, "ASK");
}

static bool rlock__reserve(rlock__redis *redis, size_t room) {
    char *buffer = room > redis->room ? (char *)RLOCK_MALLOC(room) : NULL;
    RLOCK_ASSERT(redis->length <= redis->room);
    if (buffer) {
        memcpy(buffer, redis->buffer, redis->length);
        rlock__dealloc(redis->buffer);
        redis->buffer = buffer;
        redis->room = room;
    }
    return room <= redis->room;
}

/* Returns where so many bytes more go; NULL: there is no room for them, nor for what follows. */
static char *rlock__put_at(rlock__redis *redis, size_t len) {
    RLOCK_ASSERT(redis->overflow || redis->length < redis->room);
    if (redis->length + len >= redis->room && !redis->overflow) {
        redis->overflow = !rlock__reserve(redis, (redis->length + len) * 2);
    }
    return redis->overflow ? NULL : redis->buffer + redis->length;
}

static void rlock__put(rlock__redis *redis, const char *bytes, size_t len) {
    char *at = rlock__put_at(redis, len);
    if (at) {
        memcpy(at, bytes, len);
        redis->length += len;
        at[len] = 0; /* hiredis looks for '$' with strchr */
    }
}

/* Writes what begins an array or a text, and a NUL; returns how long that is: 23 bytes at most. */
static size_t rlock__head_text(char *at, char kind, size_t count) {
    size_t n = 1 + rlock__digits(at + 1, count);
    RLOCK_ASSERT(kind == '*' || kind == '$');
    at[0] = kind;
    memcpy(at + n, "\r\n", 3);
    return n + 2;
}

static void rlock__put_count(rlock__redis *redis, char kind, size_t count) {
    char *at = rlock__put_at(redis, 23);
    if (at) {
        redis->length += rlock__head_text(at, kind, count);
    }
}

RLOCK__NOINLINE static void rlock__put_command(rlock__redis *redis, size_t arguments) {
    RLOCK_ASSERT(arguments > 0);
    redis->length = 0;
    redis->overflow = false;
    rlock__put_count(redis, '*', arguments);
}

static void rlock__put_bytes(rlock__redis *redis, const char *bytes, size_t len) {
    char *at = rlock__put_at(redis, len + 26);
    if (at) {
        size_t n = rlock__head_text(at, '$', len);
        memcpy(at + n, bytes, len);
        memcpy(at + n + len, "\r\n", 3);
        redis->length += n + len + 2;
        RLOCK_ASSERT(redis->length < redis->room);
    }
}

static void rlock__put_text(rlock__redis *redis, const char *text) {
    rlock__put_bytes(redis, text, strlen(text));
}

/* What stands as it is sent. */
static void rlock__put_sent(rlock__redis *redis, const char *text) {
    rlock__put(redis, text, strlen(text));
}

/* A command that begins with these words; so many arguments follow. */
static void rlock__put_words(rlock__redis *redis, const char *words, size_t more) {
    const char *at;
    size_t len;
    for (at = words; *at; at++) {
        more += *at == ' ';
    }
    rlock__put_command(redis, 1 + more);
    for (at = words; *at; at += len + (at[len] == ' ')) {
        len = strcspn(at, " ");
        rlock__put_bytes(redis, at, len);
    }
}

static void rlock__put_number(rlock__redis *redis, uint64_t number) {
    char digits[20];
    rlock__put_bytes(redis, digits, rlock__digits(digits, number));
}

/* An argument made of a head, the key, in braces or not, and a tail. */
static void rlock__put_around(rlock__redis *redis, const char *head, bool braces, const char *key,
                              size_t len, const char *tail) {
    rlock__put_count(redis, '$', strlen(head) + len + 2u * braces + strlen(tail));
    rlock__put(redis, head, strlen(head));
    rlock__put(redis, "{", braces);
    rlock__put(redis, key, len);
    rlock__put(redis, "}", braces);
    rlock__put(redis, tail, strlen(tail));
    rlock__put(redis, "\r\n", 2);
}

#define RLOCK__CHANNEL_HEAD "redisson_lock__channel:"
#define RLOCK__INVALIDATE "__redis__:invalidate"

/* The channel of a key: Redisson puts the name into braces unless there is one in it. */
static void rlock__put_channel(rlock__redis *redis, const char *key, size_t len) {
    rlock__put_around(redis, RLOCK__CHANNEL_HEAD, !memchr(key, '{', len), key, len, "");
}

/* True if a key has a hash tag: then every key with the same one shares its cluster slot.
 * https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags */
static bool rlock__has_tag(const char *key, size_t len) {
    const char *open = (const char *)memchr(key, '{', len);
    const char *shut = open ? (const char *)memchr(open, '}', len - (size_t)(open - key)) : NULL;
    return shut && shut > open + 1;
}

/* A key of the library in the cluster slot of the user's: key:name, or prefix{key}:name. */
static void rlock__put_own_key(rlock__redis *redis, const char *key, size_t len,
                               const char *colon_name) {
    bool tagged = rlock__has_tag(key, len);
    rlock__put_around(redis, tagged ? "" : redis->prefix, !tagged, key, len, colon_name);
}

/* True if a key has a sharded channel too, of the same name: at a node of a cluster. */
static bool rlock__has_shards(const rlock__redis *redis) {
    return rlock__is_node(redis);
}

static void rlock__put_token(rlock__redis *redis, const rlock_request *request) {
    char text[RLOCK__TOKEN_MAX];
    const char *id = rlock__request_id(redis->client, request);
    rlock__put_bytes(redis, text, rlock__token(id, text, request->token));
}

/* Of a queued kind: the token, what it weighs and what it is. */
static void rlock__put_member(rlock__redis *redis, const char *id, uint64_t token, uint32_t weight,
                              char letter) {
    char text[RLOCK__TOKEN_MAX + 1 + 20 + 1];
    size_t n = rlock__token(id, text, token);
    RLOCK_ASSERT(letter && letter != 'm');
    text[n++] = ':';
    n += rlock__digits(text + n, weight);
    text[n++] = letter;
    rlock__put_bytes(redis, text, n);
}

static void rlock__put_member_or_none(rlock__redis *redis, uint64_t token, uint32_t weight,
                                      char letter) {
    if (token) {
        rlock__put_member(redis, rlock_client_id(redis->client), token, weight, letter);
    } else {
        rlock__put_text(redis, "");
    }
}

RLOCK__NOINLINE static uint8_t rlock__encoding(const rlock__redis *redis,
                                               const rlock_request *request) {
    unsigned flags = request->flags & ~RLOCK_REQUEST_ONCE;
    bool terms = RLOCK__HAS_KINDS && request->terms;
    bool more = flags || request->fences || terms || rlock__is_redisson(redis);
    bool plain = (request->op == RLOCK_OP_ACQUIRE && !more) ||
                 (request->op == RLOCK_OP_RELEASE && redis->native && !terms);
    bool forced = RLOCK__HAS_KINDS && request->op == RLOCK_OP_FORCE;
    if (forced) { /* else an acquire after it could overtake it, and would be taken away by it */
        return RLOCK__AS_EVAL;
    }
    return plain ? RLOCK__AS_PLAIN : RLOCK__AS_SCRIPT;
}

static void rlock__put_plain(rlock__redis *redis, const rlock_request *request) {
    bool acquire = request->op == RLOCK_OP_ACQUIRE;
    RLOCK_ASSERT(!RLOCK__HAS_KINDS || !request->terms);
    RLOCK_ASSERT(!acquire || request->lease_ms > 0);
    rlock__put_command(redis, acquire ? 6 : 3);
    rlock__put_sent(redis, acquire ? "$3\r\nSET\r\n" : "$7\r\nDELIFEQ\r\n");
    rlock__put_bytes(redis, request->key, request->key_len);
    rlock__put_token(redis, request);
    if (acquire) {
        rlock__put_sent(redis, "$2\r\nNX\r\n$2\r\nPX\r\n");
        rlock__put_number(redis, (uint64_t)request->lease_ms);
    }
}

static int rlock__row(const rlock__redis *redis, const rlock_request *request) {
#if RLOCK__HAS_KINDS
    if (request->terms) {
        return rlock__is_queued(request) ? RLOCK__ROW_QUEUE : RLOCK__ROW_KEYS;
    }
#endif
#if RLOCK__HAS_REDISSON
    if (rlock__is_redisson(redis)) {
        return RLOCK__ROW_REDISSON;
    }
#endif
    (void)redis;
    (void)request;
    return RLOCK__ROW_STRING;
}

RLOCK__NOINLINE static const char *rlock__script_of(const rlock__redis *redis,
                                                    const rlock_request *request) {
    RLOCK_ASSERT(request->op < sizeof rlock__scripts[0] / sizeof rlock__scripts[0][0]);
    return rlock__scripts[rlock__row(redis, request)][request->op];
}

/* A script in full or by its SHA-1, and how many keys follow. */
static void rlock__put_eval(rlock__redis *redis, const char *script, bool full, uint32_t keys) {
    RLOCK_ASSERT(script && keys);
    if (full) {
        rlock__put_text(redis, "EVAL");
        rlock__put_text(redis, script + RLOCK__SHA);
    } else {
        rlock__put_sent(redis, "$7\r\nEVALSHA\r\n"); /* many commands begin so */
        rlock__put_bytes(redis, script, RLOCK__SHA);
    }
    rlock__put_number(redis, keys);
}

/* The command, its script, and how many keys follow. */
static void rlock__put_head(rlock__redis *redis, const rlock_request *request, uint32_t keys,
                            uint32_t arguments) {
    bool full = request->store.own[RLOCK__ENCODING] == RLOCK__AS_EVAL ||
                request->store.own[RLOCK__ENCODING] == RLOCK__AS_FULL;
    rlock__put_command(redis, 3u + keys + arguments);
    rlock__put_eval(redis, rlock__script_of(redis, request), full, keys);
}

#define RLOCK__NO_CUT (UINT64_C(1) << 52) /* ms: no time to live is as long */

/* To what a renewal may cut a time to live. */
RLOCK__NOINLINE static void rlock__put_cut(rlock__redis *redis, const rlock_request *request) {
    rlock__put_number(redis, request->longest_ms ? (uint64_t)request->longest_ms : RLOCK__NO_CUT);
}

static void rlock__put_mutex(rlock__redis *redis, const rlock_request *request) {
    bool fence = request->op == RLOCK_OP_ACQUIRE && request->fences;
    bool question = RLOCK__HAS_KINDS && request->op >= RLOCK_OP_INSPECT;
    bool lease = request->op == RLOCK_OP_ACQUIRE || request->op == RLOCK_OP_RENEW;
    bool channel = !lease && request->op != RLOCK_OP_INSPECT && rlock__is_redisson(redis);
    bool sharded = channel && rlock__has_shards(redis);
    bool renew = request->op == RLOCK_OP_RENEW;
    uint32_t keys = rlock__request_keys(request), arguments = 0, i;
    const char *key;
    size_t len;
    RLOCK_ASSERT(!(renew && sharded) && !rlock__is_queued(request));
    if (!question) { /* they are put below, in this order */
        arguments++;
    }
    if (lease || channel) {
        arguments++;
    }
    if (renew || sharded) { /* never both */
        arguments++;
    }
    if (fence) {
        keys *= 2;
        arguments++;
    }
    rlock__put_head(redis, request, keys, arguments);
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        rlock__put_bytes(redis, key, len);
    }
    for (i = 0; fence && rlock__request_key(request, i, &key, &len); i++) {
        rlock__put_own_key(redis, key, len, ":fence");
    }
    if (!question) {
        rlock__put_token(redis, request);
    }
    if (lease) {
        rlock__put_number(redis, (uint64_t)request->lease_ms);
        if (renew) {
            rlock__put_cut(redis, request);
        }
    } else if (channel) {
        rlock__put_channel(redis, request->key, request->key_len);
    }
    if (sharded) {
        rlock__put_text(redis, "1");
    }
    if (fence) {
        rlock__put_number(redis, request->fences);
    }
}

static void rlock__put_queued(rlock__redis *redis, const rlock_request *request) {
    static const uint8_t arguments[] = {9, 7, 6, 5, 5, 6}; /* [rlock_op] */
    const rlock_terms *terms = request->terms;
    bool acquire = request->op == RLOCK_OP_ACQUIRE, fence = acquire && request->fences;
    bool whose = request->op < RLOCK_OP_FORCE;
    char letter = rlock__letter(request);
    RLOCK_ASSERT(request->op < sizeof arguments);
    RLOCK_ASSERT(terms->weight && terms->permits);
    rlock__put_head(redis, request, fence ? 3 : 2, arguments[request->op]);
    rlock__put_bytes(redis, request->key, request->key_len);
    rlock__put_own_key(redis, request->key, request->key_len, ":queue");
    if (fence) {
        rlock__put_own_key(redis, request->key, request->key_len, ":fence");
    }
    rlock__put_number(redis, request->op);
    rlock__put_member(redis, rlock__request_id(redis->client, request), whose ? request->token : 0,
                      terms->weight, letter);
    rlock__put_number(redis, terms->permits);
    rlock__put_number(redis, (uint64_t)redis->timeout_us / 1000);
    rlock__put_text(redis, redis->prefix);
    if (request->op == RLOCK_OP_SET_PERMITS) {
        rlock__put_number(redis, request->permits);
    } else if (request->op == RLOCK_OP_RELEASE) {
        rlock__put_member_or_none(redis, request->next, terms->weight, letter);
    } else if (acquire || request->op == RLOCK_OP_RENEW) {
        rlock__put_number(redis, (uint64_t)request->lease_ms);
    }
    if (request->op == RLOCK_OP_RENEW) {
        rlock__put_cut(redis, request);
    }
    if (acquire) {
        const char *heard = redis->notify == RLOCK__NOTIFY_ON ? "1" : "1.5";
        rlock__put_text(redis, request->flags & RLOCK_REQUEST_ONCE ? "0" : heard);
        rlock__put_member_or_none(redis, request->writer, terms->permits, letter);
        rlock__put_number(redis, request->fences);
    }
}

static void rlock__put_request(rlock__redis *redis, rlock_request *request) {
    RLOCK_ASSERT(request->key_len);
    if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_BEST) {
        request->store.own[RLOCK__ENCODING] = rlock__encoding(redis, request);
    }
    if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN) {
        rlock__put_plain(redis, request);
    } else if (rlock__is_queued(request)) {
        rlock__put_queued(redis, request);
    } else {
        rlock__put_mutex(redis, request);
    }
}

static void rlock__put_batch(rlock__redis *redis, const rlock__command *command) {
    char head[RLOCK__TOKEN_MAX];
    uint32_t i;
    RLOCK_ASSERT(command->count > 1 && command->count <= RLOCK__BATCH);
    RLOCK_ASSERT(command->op == RLOCK_OP_RENEW);
    rlock__put_command(redis, 6u + 2u * command->count);
    rlock__put_eval(redis, rlock__lua_string_renew_many, command->encoding == RLOCK__AS_EVAL,
                    command->count);
    for (i = 0; i < command->count; i++) {
        rlock__put_bytes(redis, command->requests[i]->key, command->requests[i]->key_len);
    }
    rlock__token(rlock_client_id(redis->client), head, 0);
    rlock__put_bytes(redis, head, RLOCK__TOKEN_HEAD);
    rlock__put_number(redis, (uint64_t)command->requests[0]->lease_ms);
    rlock__put_cut(redis, command->requests[0]);
    for (i = 0; i < command->count; i++) {
        rlock__put_number(redis, command->requests[i]->token);
    }
}

static bool rlock__parse_fence(const char *text, size_t len, uint64_t *fence) {
    size_t i;
    *fence = 0;
    for (i = 0; i < len; i++) {
        unsigned digit = (unsigned)(unsigned char)text[i] - '0';
        if (digit > 9 || i > 18) {
            return false;
        }
        *fence = *fence * 10 + digit;
    }
    return len > 0;
}

/* Five numbers, a token: see string_inspect.lua. */
static bool rlock__parse_info(const redisReply *reply, rlock_info *info) {
    int64_t *numbers[5];
    const char *at = reply->str;
    int i;
    numbers[0] = &info->holders;
    numbers[1] = &info->left_ms;
    numbers[2] = &info->waiters;
    numbers[3] = &info->permits;
    numbers[4] = &info->position;
    for (i = 0; i < 5; i++) {
        char *end;
        *numbers[i] = strtoll(at, &end, 10);
        if (end == at || *end != ' ' || *numbers[i] < -1) {
            return false;
        }
        at = end + 1;
    }
    info->token_len = (size_t)reply->len - (size_t)(at - reply->str);
    info->token = info->token_len ? at : NULL;
    return true;
}

/* True if these words end with `, on @user_script:1.`; any name may stand before that. */
static bool rlock__ends_in_script(const char *text) {
    static const char place[] = ", on @user_script:";
    size_t len = sizeof place - 1, n = strlen(text);
    n -= n && text[n - 1] == '.';
    while (n && text[n - 1] >= '0' && text[n - 1] <= '9') {
        n--;
    }
    return n >= len && memcmp(text + n - len, place, len) == 0;
}

/* True if an error says that nothing was done for an acquire. The scripts of the mutex write the
 * lock last; that of the queued kinds may have added a waiter, or made an offer, before. */
static bool rlock__undone(const rlock_request *request, const char *text) {
    bool inside = rlock__ends_in_script(text) || /* from Redis 7 on, or before it */
                  strncmp(text, RLOCK__SCRIPT_FAILED, sizeof RLOCK__SCRIPT_FAILED - 1) == 0;
    if (strncmp(text, RLOCK__NO_TIME, sizeof RLOCK__NO_TIME - 1) == 0) {
        return true; /* nothing is written before */
    }
    return inside ? !rlock__is_queued(request) : *rlock__error_of(text)->words != 0;
}

static void rlock__parse_question(const rlock_request *request, const redisReply *reply,
                                  rlock_answer *answer, rlock_info *info) {
    bool inspect = request->op == RLOCK_OP_INSPECT;
    memset(info, 0, sizeof *info);
    info->position = -1;
    if (reply->type == REDIS_REPLY_STRING && inspect && rlock__parse_info(reply, info)) {
        answer->outcome = RLOCK_OUTCOME_DONE;
    } else if (reply->type == REDIS_REPLY_INTEGER && !inspect && reply->integer >= 0) {
        info->holders = reply->integer;
        answer->outcome = RLOCK_OUTCOME_DONE;
    }
    answer->info = info;
}

/* Everything but the exact expected reply is a fault. What went out in a batch expects none here:
 * its way stays open, and a number is the answer to something else. */
static void rlock__parse(const rlock_request *request, const redisReply *reply,
                         rlock_answer *answer, rlock_info *info) {
    bool acquire = request->op == RLOCK_OP_ACQUIRE;
    bool fenced = request->fences != 0;
    answer->outcome = RLOCK_OUTCOME_FAULT;
    answer->fault = RLOCK_FAULT_OTHER;
    answer->text = "unexpected reply";
    if (reply->type == REDIS_REPLY_ERROR) {
        answer->fault = rlock__classify(reply->str);
        answer->undone = rlock__undone(request, reply->str);
        answer->text = reply->str;
    } else if (RLOCK__HAS_KINDS && request->op >= RLOCK_OP_INSPECT) {
        rlock__parse_question(request, reply, answer, info);
    } else if (acquire && request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN) {
        if (reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0) {
            answer->outcome = RLOCK_OUTCOME_DONE;
        }
    } else if (acquire && reply->type == REDIS_REPLY_STRING) {
        answer->ours = rlock__is_queued(request) && reply->len && reply->str[reply->len - 1] == '+';
        if (rlock__parse_fence(reply->str, (size_t)reply->len - answer->ours, &answer->fence) &&
            fenced == (answer->fence != 0)) {
            answer->outcome = RLOCK_OUTCOME_DONE;
        }
    } else if (reply->type == REDIS_REPLY_INTEGER && acquire) {
        if (reply->integer >= -1 && reply->integer <= INT64_MAX / 2000) {
            answer->outcome = RLOCK_OUTCOME_HELD;
            answer->left_ms = reply->integer;
        }
    } else if (reply->type == REDIS_REPLY_INTEGER &&
               request->store.own[RLOCK__ENCODING] != RLOCK__AS_BEST && reply->integer >= -1 &&
               reply->integer <= 1) {
        answer->outcome = reply->integer == 1   ? RLOCK_OUTCOME_DONE
                          : reply->integer == 0 ? RLOCK_OUTCOME_STOLEN
                                                : RLOCK_OUTCOME_GONE;
    }
    if (answer->outcome != RLOCK_OUTCOME_FAULT) {
        answer->text = NULL;
    }
}

/* ------------------------------------------------------------------------------------------------
 * >>redis-link - a connection under hiredis: what it says, reads and leads to, and its end
 */

/* hiredis' hooks, on top of one watched descriptor. */
static void rlock__want_read(void *conn) {
    ((rlock__conn *)conn)->want |= RLOCK_IO_READ;
}
static void rlock__want_no_read(void *conn) {
    ((rlock__conn *)conn)->want &= ~RLOCK_IO_READ;
}
static void rlock__want_write(void *conn) {
    ((rlock__conn *)conn)->want |= RLOCK_IO_WRITE;
}
static void rlock__want_no_write(void *conn) {
    ((rlock__conn *)conn)->want &= ~RLOCK_IO_WRITE;
}

#if RLOCK__HAS_NAMES

/* Returns the lookup of a host's name, or with NULL of any, that was not answered yet; or NULL. */
static rlock__lookup *rlock__conn_lookup(const rlock__conn *conn, const char *host) {
    rlock__lookup *at = conn->lookups;
    while (at && (!at->host || (host && strcmp(at->host, host) != 0))) {
        at = at->next;
    }
    return at;
}

#else

static const void *rlock__conn_lookup(const rlock__conn *conn, const char *host) {
    (void)conn;
    (void)host;
    return NULL;
}

#endif /* RLOCK__HAS_NAMES */

/* True for the connection that asks a Sentinel. */
static bool rlock__is_sentinel(const rlock__conn *conn) {
    return RLOCK__HAS_SENTINEL && conn->endpoint != &conn->redis->endpoint;
}

/* True if there is another address to try. Where a server of localhost was reached that was the
 * one, whatever is the matter with it. */
static bool rlock__conn_more(const rlock__conn *conn) {
    return rlock__endpoint_more(conn->endpoint) &&
           (conn->state == RLOCK__CONN_OPENING || !rlock__is_localhost(conn->endpoint->host));
}

/* True if an attempt that fails goes on at the next address, or at the next Sentinel: not if no
 * address would help, and not on the push connection, which follows the other one. */
static bool rlock__conn_walks(const rlock__conn *conn, rlock_fault fault) {
    bool more = rlock__conn_more(conn);
#if RLOCK__HAS_SENTINEL
    if (rlock__is_sentinel(conn)) {
        const rlock__sentinel *sentinel = conn->redis->sentinel;
        return (more && !sentinel->heard) || sentinel->silent + 1 < sentinel->count;
    }
#endif
    return more && conn->state != RLOCK__CONN_READY && conn == &conn->redis->commands &&
           fault != RLOCK_FAULT_AUTH;
}

static void rlock__conn_error(rlock__conn *conn, rlock_fault fault, const char *text) {
    bool same = strncmp(conn->text, text, sizeof conn->text - 1) == 0;
    if (conn->error_kept) {
        return; /* the first reason is the one that counts */
    }
    conn->error_kept = true;
    conn->walks = rlock__conn_walks(conn, fault);
    if (conn->walks) {
        return; /* the last address of the attempt says why */
    }
    conn->fault = fault;
    conn->repeats = same ? conn->repeats + 1 : 0;
    strncpy(conn->text, text, sizeof conn->text - 1); /* its last byte stays a NUL */
    RLOCK_ASSERT(!conn->text[sizeof conn->text - 1]);
}

/* Ends a connection at the next safe place: never inside hiredis' callbacks. */
static void rlock__conn_fail(rlock__conn *conn, rlock_fault fault, const char *text) {
    rlock__conn_error(conn, fault, text);
    conn->failing = true;
}

/* A server that is full says so in a last reply, which hiredis gives as the connection's error. */
RLOCK__NOINLINE static rlock_fault rlock__why_down(const char *text) {
    rlock_fault fault = rlock__classify(text);
    return fault == RLOCK_FAULT_OTHER ? RLOCK_FAULT_DOWN : fault;
}

/* Returns the hooks of a connection that is encrypted, or NULL. */
static const rlock_tls *rlock__conn_tls(const rlock__conn *conn) {
#if RLOCK__HAS_TLS
    return conn->endpoint->tls;
#else
    (void)conn;
    return NULL;
#endif
}

/* Before each read and write, as rlock_tls.before promises. */
static void rlock__conn_prepare(const rlock__conn *conn) {
    const rlock_tls *tls = rlock__conn_tls(conn);
    if (tls) {
        tls->before(tls->ctx);
    }
}

/* Ends a connection as rlock__conn_fail does, with the reason that TLS knows, if it does. */
static void rlock__conn_fail_why(rlock__conn *conn, rlock_fault fault, const char *text) {
    const rlock_tls *tls = rlock__conn_tls(conn);
    bool started = tls && conn->state >= RLOCK__CONN_HANDSHAKE;
    char words[sizeof conn->text] = "";
    int why = started ? tls->why(tls->ctx, conn->ac, words, sizeof words) : RLOCK_OK;
    RLOCK_ASSERT(conn->ac);
    if (why != RLOCK_OK) {
        fault = why == RLOCK_ERR_AUTH ? RLOCK_FAULT_AUTH : RLOCK_FAULT_DOWN;
        text = words;
    }
    rlock__conn_fail(conn, fault, text);
}

/* hiredis is about to close the descriptor and free the context. */
static void rlock__want_nothing(void *data) {
    rlock__conn *conn = (rlock__conn *)data;
    struct linger now; /* what the kernel still holds must not be sent later */
    RLOCK_ASSERT(conn->ac && conn->fd >= 0);
    now.l_onoff = 1;
    now.l_linger = 0;
    if (!conn->redis->closing && !rlock_client_forked(conn->redis->client)) {
        char words[64] = ""; /* a write that failed must not hide why the server closed */
        ssize_t n = conn->ac->err == REDIS_ERR_IO && !rlock__conn_tls(conn)
                        ? recv(conn->fd, words, sizeof words - 1, MSG_DONTWAIT)
                        : 0;
        bool last = n > 1 && words[0] == '-';
        const char *why = last ? words + 1 : conn->ac->errstr;
        words[last ? strcspn(words, "\r\n") : 0] = 0;
        conn->refused = conn->outstanding && conn->ac->err == REDIS_ERR_OTHER;
        rlock__conn_fail_why(conn, rlock__why_down(why), why);
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    conn->want = 0;
    conn->ac = NULL;
    rlock_io_watch(conn->redis->client, &conn->io, conn->fd, 0);
}

/* How long a connection may owe an answer: a Sentinel not as long as the server, since there are
 * others. */
static int64_t rlock__conn_timeout_us(const rlock__conn *conn) {
    int64_t timeout_us = conn->redis->timeout_us;
    RLOCK_ASSERT(timeout_us > 0);
    return rlock__is_sentinel(conn) ? rlock__endpoint_patience_us(conn->endpoint, timeout_us)
                                    : timeout_us;
}

/* How long after its last answer a connection is looked at: for an answer that is late, or because
 * something is to be said. */
static int64_t rlock__conn_quiet_us(const rlock__conn *conn) {
    int64_t timeout_us = rlock__conn_timeout_us(conn);
    if (conn->outstanding) {
        return timeout_us;
    }
    return rlock__is_sentinel(conn) ? RLOCK__SENTINEL_MS * 1000 : timeout_us * RLOCK__HEARTBEAT;
}

/* Sends what was formatted last. */
static bool rlock__conn_send(rlock__conn *conn, redisCallbackFn *fn, void *data) {
    rlock__redis *redis = conn->redis;
    int64_t timeout_us = rlock__conn_timeout_us(conn);
    RLOCK_ASSERT(conn->ac);
    RLOCK_ASSERT(redis->overflow || (redis->length && redis->length < redis->room));
    RLOCK_ASSERT(conn->state >= RLOCK__CONN_HANDSHAKE);
    if (redis->overflow ||
        redisAsyncFormattedCommand(conn->ac, fn, data, redis->buffer, redis->length) != REDIS_OK) {
        return false;
    }
    if (!conn->outstanding++) {
        conn->alive_us = rlock_client_clock_us(redis->client); /* callbacks may have taken long */
    }
    if (!conn->timer.index || conn->timer.due_us > conn->alive_us + timeout_us) {
        rlock_timer_set(redis->client, &conn->timer, conn->alive_us + timeout_us);
    }
    redis->stats->commands++;
    return true;
}

/* Sends what was formatted last. False: it is not, and the connection ends. */
static bool rlock__conn_say(rlock__conn *conn, redisCallbackFn *fn, void *data) {
    bool sent = rlock__conn_send(conn, fn, data);
    if (!sent) {
        rlock__conn_fail(conn, RLOCK_FAULT_NOMEM, "out of memory");
    }
    return sent;
}

/* Sends what was formatted last, of whose answer hiredis is to know nothing. */
static void rlock__conn_add(rlock__conn *conn) {
    const rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(conn->ac && (redis->overflow || redis->length < redis->room));
    if (redis->overflow ||
        redisAppendFormattedCommand(&conn->ac->c, redis->buffer, redis->length) != REDIS_OK) {
        rlock__conn_fail(conn, RLOCK_FAULT_NOMEM, "out of memory");
        return;
    }
    rlock__want_write(conn);
    redis->stats->commands++;
}

/* True if commands may be sent on a connection. */
static bool rlock__conn_usable(const rlock__conn *conn) {
    return conn->state == RLOCK__CONN_READY && !conn->failing && !conn->strayed;
}

static void rlock__conn_answered(rlock__conn *conn) {
    RLOCK_ASSERT(conn->state >= RLOCK__CONN_HANDSHAKE);
    if (conn->outstanding) {
        conn->outstanding--;
    }
    conn->alive_us = conn->heard_us = rlock_client_now_us(conn->redis->client);
}

static void rlock__on_asking(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    (void)data;
    if (conn && raw) {
        rlock__conn_answered(conn);
    }
}

/* True if the key of a request is on its way to this node. */
static bool rlock__request_asks(const rlock_request *request) {
    return RLOCK__HAS_CLUSTER && request->store.own[RLOCK__ASKING];
}

/* Says ASKING right before a command, if its key is on its way to this node. */
static bool rlock__command_asks(rlock__redis *redis, const rlock__command *command) {
    RLOCK_ASSERT(command->count && command->requests[0]);
    if (!rlock__request_asks(command->requests[0])) {
        return true;
    }
    rlock__put_words(redis, "ASKING", 0);
    return rlock__conn_send(&redis->commands, rlock__on_asking, NULL);
}

/* Sends the command that was formatted last. */
static bool rlock__command_send(rlock__redis *redis, rlock__command *command, redisCallbackFn *fn) {
    bool sent = rlock__conn_send(&redis->commands, fn, command);
    RLOCK_ASSERT(command->redis == redis && command->count);
    if (!sent &&
        rlock__request_asks(command->requests[0])) { /* else another one would have asked */
        rlock__conn_fail(&redis->commands, RLOCK_FAULT_NOMEM, "out of memory");
    }
    return sent;
}

/* True if that connection was one to this server, and not to another node of a cluster. */
static bool rlock__epoch_ours(const rlock__redis *redis, uint32_t epoch) {
    RLOCK_ASSERT(redis->first_epoch <= redis->last_epoch);
    return epoch > redis->first_epoch && epoch <= redis->last_epoch;
}

/* True if nothing that was sent on an earlier connection can be executed any more. */
static bool rlock__epoch_gone(const rlock__redis *redis, uint32_t epoch) {
    RLOCK_ASSERT(redis->dead_up_to <= redis->epoch);
    return epoch > redis->alive_up_to && epoch <= redis->dead_up_to &&
           rlock__epoch_ours(redis, epoch);
}

/* Finds a field in the words of INFO, which may be empty: what follows its name, or NULL. */
static const char *rlock__info_field(const char *info, const char *name) {
    const char *found = strstr(info, name);
    return found ? found + strlen(name) : NULL;
}

/* Returns where an identity of 40 characters stands; an empty text if there is none. */
static const char *rlock__info_identity(const char *info, const char *name) {
    const char *found = rlock__info_field(info, name);
    return found && strlen(found) >= RLOCK__IDENTITY ? found : "";
}

static bool rlock__same_identity(const char *one, const char *other) {
    return *one && strncmp(one, other, RLOCK__IDENTITY) == 0;
}

static void rlock__redis_is_replica(rlock__redis *redis) {
    rlock__conn_fail(&redis->commands, RLOCK_FAULT_BUSY,
                     "the server is a replica; give the address of its primary");
}

/* Notes what INFO says of the data, unless they are a replica's. The history of a replica that was
 * promoted has a new identity, and that of its primary as the second one. A server that was started
 * anew from a dump may say the same of itself; to take it for a replica is the safe mistake. */
static void rlock__redis_inherit(rlock__redis *redis, const char *info) {
    const char *role = rlock__info_field(info, "role:");
    const char *first = rlock__info_identity(info, "master_replid:");
    const char *second = rlock__info_identity(info, "master_replid2:");
    bool node = rlock__is_node(redis); /* a replica among the nodes says MOVED */
    redis->roleless = !role && !node;
    if (role && strncmp(role, "slave", 5) == 0 && !node) {
        rlock__redis_is_replica(redis);
        return;
    }
    redis->inherits =
        rlock__same_identity(redis->replid, first) || rlock__same_identity(redis->replid, second);
    strncpy(redis->replid, first, RLOCK__IDENTITY); /* a NUL follows */
}

/* Whether another process at this address is the one before, started anew: it began when that one
 * was last heard of, or later, and with other data. Else the address has moved to another server,
 * and may come back. The server counts in whole seconds of its own clock. */
static bool rlock__restarted(const rlock__redis *redis, const struct sockaddr_storage *peer,
                             const char *info) {
    const char *found = rlock__info_field(info, "uptime_in_seconds:");
    long long uptime_s = found ? strtoll(found, NULL, 10) : -1;
    int64_t heard_us = rlock_client_now_us(redis->client) - redis->heard_us;
    return uptime_s >= 0 && uptime_s <= heard_us / 1000000 + 1 && !redis->inherits &&
           peer->ss_family != AF_UNSPEC && memcmp(peer, &redis->peer, sizeof *peer) == 0;
}

/* A CLIENT ID means something in one process of the server only. Where it is not known which one
 * this is, nobody is killed. What was sent to one that died is not executed any more. */
static void rlock__redis_identify(rlock__redis *redis, const char *run_id, const char *info) {
    const char *former = redis->commands.run_id;
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    RLOCK_ASSERT(redis->epoch > redis->first_epoch);
    memset(&peer, 0, sizeof peer);
    if (getpeername(redis->commands.fd, (struct sockaddr *)&peer, &len) != 0) {
        peer.ss_family = AF_UNSPEC;
    }
    if (!rlock__same_identity(run_id, former)) {
        redis->lost_id = 0;
        if (*run_id && *former && rlock__restarted(redis, &peer, info)) {
            redis->dead_up_to = redis->epoch - 1;
            redis->alive_up_to =
                redis->alive_up_to > redis->moved_up_to ? redis->moved_up_to : redis->alive_up_to;
        } else {
            redis->moved_up_to = redis->epoch - 1;
            redis->alive_up_to =
                redis->lost_epoch > redis->dead_up_to ? redis->lost_epoch : redis->alive_up_to;
        }
    }
    memcpy(&redis->peer, &peer, sizeof peer);
}

/* What INFO says of the server's process; the words may be empty. */
static void rlock__conn_identify(rlock__conn *conn, const char *info) {
    const char *run_id = rlock__info_identity(info, "run_id:");
    if (conn == &conn->redis->commands) {
        rlock__redis_identify(conn->redis, run_id, info);
    }
    strncpy(conn->run_id, run_id, RLOCK__IDENTITY); /* a NUL follows */
}

static bool rlock__by_channel(const rlock__redis *redis) {
    return RLOCK__HAS_REDISSON && redis->changes == RLOCK__CHANGES_CHANNELS;
}

static void rlock__redis_pushing(rlock__redis *redis) {
    bool on = redis->subscribed && (redis->tracked || rlock__by_channel(redis));
    bool notifies = RLOCK__HAS_KINDS && redis->notify == RLOCK__NOTIFY_ON;
    unsigned what = (on ? RLOCK_PUSH_CHANGES : 0u) | (notifies ? RLOCK_PUSH_NOTIFICATIONS : 0u);
    RLOCK_ASSERT(!notifies || redis->subscribed);
    if (redis->pushing != what) {
        redis->pushing = what;
        redis->events->pushing(redis->owner, NULL, what);
    }
}

/* Sets the timer of a connection. */
RLOCK__NOINLINE static void rlock__conn_wait(rlock__conn *conn, int64_t us) {
    rlock_client *client = conn->redis->client;
    RLOCK_ASSERT(us >= 0);
    rlock_timer_set(client, &conn->timer, rlock_client_now_us(client) + us);
}

static int64_t rlock__backoff_us(rlock__conn *conn) {
    bool soon = conn->fault == RLOCK_FAULT_DOWN || (conn->strayed && !conn->backoff_ms);
    uint32_t limit = soon ? conn->backoff_ms : RLOCK__BACKOFF_MAX_MS;
    int64_t jittered = (int64_t)(rlock_client_random(conn->redis->client) % (limit * 500u + 1u));
    RLOCK_ASSERT(conn->backoff_ms <= RLOCK__BACKOFF_MAX_MS);
    conn->backoff_ms = conn->backoff_ms * 2 + RLOCK__BACKOFF_MIN_MS;
    if (conn->backoff_ms > RLOCK__BACKOFF_MAX_MS) {
        conn->backoff_ms = RLOCK__BACKOFF_MAX_MS;
    }
    return limit * 500u + jittered; /* half of it fixed, half at random; the first one at once */
}

/* What the push connection is wanted for, and not refused. */
static bool rlock__tracks(const rlock__redis *redis) {
    return redis->push_wanted && redis->changes != RLOCK__CHANGES_REFUSED;
}
static bool rlock__wants_notifications(const rlock__redis *redis) {
    return RLOCK__HAS_KINDS && redis->queue_wanted && redis->notify != RLOCK__NOTIFY_REFUSED;
}

/* True if something is to be heard on the push connection. */
RLOCK__NOINLINE static bool rlock__listens(const rlock__redis *redis) {
    return rlock__tracks(redis) || rlock__wants_notifications(redis);
}

/* True if the push connection is wanted for anything. With replicas it is there all the time: the
 * last releases are sent on it if a WAIT holds up the command connection. */
static bool rlock__pushes(const rlock__redis *redis) {
#if RLOCK__HAS_REPLICAS
    if (redis->sync) {
        return true;
    }
#endif
    return rlock__listens(redis);
}

/* True if a connection that ends is opened anew at once, and nobody is told. */
static bool rlock__conn_renews(const rlock__conn *conn) {
#if RLOCK__HAS_CREDENTIALS
    return conn->renews;
#else
    (void)conn;
    return false;
#endif
}

/* Appends to the n bytes of a line where a connection leads, if that is known. The port of a host
 * whose name was not found plays no part, and may be a password: in redis://shop:54321 it is. */
static size_t rlock__conn_endpoint(const rlock__conn *conn, char *line, size_t n,
                                   const char *between) {
    const rlock__redis *redis = conn->redis;
    const char *path = redis->unix_path, *host = conn->endpoint->host;
    if (!redis->connect) {
        n = rlock__line_add(line, n, between, path ? path : host);
        if (!path && host && rlock__endpoint_known(conn->endpoint)) {
            n = rlock__line_number(line, n, ":", conn->endpoint->port);
        }
    }
    return n;
}

/* For the hook config.on_event. */
static void rlock__conn_report_text(const rlock__conn *conn, rlock_report_kind kind,
                                    int64_t span_us, const char *text) {
    char where[RLOCK__LINE];
    rlock_report report;
    if (!RLOCK__HAS_REPORTS) {
        return;
    }
    memset(&report, 0, sizeof report);
    report.kind = kind;
    report.span_us = span_us;
    report.link = rlock__is_sentinel(conn)         ? "Sentinel"
                  : conn == &conn->redis->commands ? "commands"
                                                   : "push";
    report.where = rlock__conn_endpoint(conn, where, 0, "") ? where : NULL;
    report.text = text;
    rlock_client_report(conn->redis->client, &report);
}

static void rlock__conn_report(const rlock__conn *conn, rlock_report_kind kind, int64_t span_us) {
    bool says = kind == RLOCK_REPORT_DISCONNECTED && !conn->walks;
    rlock__conn_report_text(conn, kind, span_us, says ? conn->text : NULL);
}

/* Writes a line that says which connection it is of, where that leads, and above 1 how often that
 * has failed in a row. */
static void rlock__conn_log_times(const rlock__conn *conn, int level, const char *what,
                                  const char *detail, uint32_t times) {
    char line[RLOCK__LINE];
    const char *which = rlock__is_sentinel(conn) ? "Sentinel " : "push ";
    size_t n = rlock__line_add(line, 0, conn == &conn->redis->commands ? "" : which, "connection");
    n = rlock__conn_endpoint(conn, line, n, " to ");
    if (times > 1) {
        n = rlock__line_number(line, n, ": failure ", (int32_t)times);
    }
    rlock__line_add(line, n, ": ", what);
    rlock_client_log(conn->redis->client, level, line, detail);
}

static void rlock__conn_log(const rlock__conn *conn, int level, const char *what,
                            const char *detail) {
    rlock__conn_log_times(conn, level, what, detail, 1);
}

/* Writes why an attempt has ended: the 1st, 2nd, 4th, 8th time and so on that it is the same in a
 * row. */
static void rlock__conn_log_failure(const rlock__conn *conn, const char *what, const char *why) {
    uint32_t times = conn->error_kept ? conn->repeats + 1 : 1;
    if (times & (times - 1)) {
        return;
    }
    rlock__conn_log_times(conn, RLOCK_LOG_WARNING, what, why, times);
}

/* Closes a connection that is failing, and answers what was on it. */
static void rlock__conn_shut(rlock__conn *conn) {
    RLOCK_ASSERT(conn->failing);
    if (conn->ac) {
        redisAsyncFree(conn->ac); /* answers with NULL, then calls rlock__want_nothing */
    }
    conn->state = RLOCK__CONN_DOWN;
    conn->ac = NULL;
    conn->failing = conn->blocked = false;
    conn->outstanding = 0;
    conn->id = 0;
}

/* Buries a failing connection, and plans the next attempt. */
static void rlock__conn_closed(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    bool main = conn == &redis->commands, was_ready = conn->state == RLOCK__CONN_READY;
    int64_t age_us = rlock_client_now_us(redis->client) - conn->ready_us;
    long long id = conn->id;
    rlock__conn_shut(conn);
    if (main && was_ready) {
        redis->heard_us = conn->heard_us;
    }
    if (main && was_ready && redis->lost_epoch == redis->epoch) {
        redis->lost_id = id;
    } else if (main && (redis->lost_epoch <= redis->dead_up_to ||
                        redis->lost_epoch <= redis->alive_up_to)) {
        redis->dead_up_to = redis->epoch; /* every acquire on it was answered */
    }
    if (was_ready && age_us >= RLOCK__BACKOFF_MAX_MS * 1000) {
        conn->backoff_ms = 0; /* it was no connection of the kind that ends at once */
    }
    if (main) {
        redis->tracked = redis->native = redis->served = false;
        if (redis->push.state != RLOCK__CONN_DOWN) { /* it was registered there */
            rlock__conn_fail(&redis->push, RLOCK_FAULT_DOWN, "closed with the command connection");
        }
    } else { /* hiredis ends a connection whose SUBSCRIBE is refused: the last one */
        rlock_fault why = rlock__classify(conn->text);
        bool refused =
            was_ready && (why == RLOCK_FAULT_AUTH || (conn->refused && why != RLOCK_FAULT_BUSY));
        bool last = RLOCK__HAS_KINDS && redis->subscribed && redis->notify == RLOCK__NOTIFY_WANTED;
        if (RLOCK__HAS_KINDS && refused && redis->notify != RLOCK__NOTIFY_UNUSED) {
            redis->notify = RLOCK__NOTIFY_REFUSED;
        } else if (RLOCK__HAS_KINDS && redis->notify == RLOCK__NOTIFY_ON) {
            redis->notify = RLOCK__NOTIFY_WANTED;
        }
        if (refused && !last) {
            redis->changes = RLOCK__CHANGES_REFUSED;
        }
        redis->subscribed = redis->tracked = false;
        redis->sharded = conn->shard = false;
#if RLOCK__HAS_REPLICAS
        if (redis->sync) {
            redis->sync->opens = false;
        }
#endif
    }
    rlock__redis_pushing(redis);
    if (!conn->walks) {
        rlock__conn_report(conn, RLOCK_REPORT_DISCONNECTED, was_ready ? age_us : 0);
    }
    if (!main && !rlock__pushes(redis)) {
        conn->wanted = false; /* until the command connection is a new one */
        rlock_timer_set(redis->client, &conn->timer, -1);
        return;
    }
    if (conn->walks || rlock__conn_renews(conn)) { /* at once, and nobody is told */
        conn->strayed = false;
        rlock_timer_set(redis->client, &conn->timer, 0);
        return;
    }
    rlock__conn_wait(conn, rlock__backoff_us(conn));
    conn->strayed = false;
    rlock__conn_log_failure(conn, NULL, conn->text);
    if (main) {
        if (!was_ready) {
            conn->endpoint->failures++;
        }
        redis->events->down(redis->owner, NULL, conn->fault, conn->text);
    } else {
        redis->stats->faults++;
    }
}

RLOCK__NOINLINE static void rlock__reply_refused(rlock__conn *conn) {
    rlock__conn_error(conn, RLOCK_FAULT_DOWN, "unexpected reply");
}

/* True if something was asked for on this connection that may be said on a sharded channel. */
static bool rlock__sharded(const rlock__conn *conn) {
    return rlock__is_node(conn->redis) && conn->redis->sharded && conn == &conn->redis->push;
}

/* True while what is read came on a sharded channel. */
static bool rlock__in_shard(const rlock__conn *conn) {
    return rlock__is_node(conn->redis) && conn->shard;
}

/* hiredis asserts on replies that nobody asked for, and on messages of another shape than two words
 * and, but for what was published, a number; and it allocates what the head of an array promises.
 * A reply that is not as expected is not made, and hiredis ends the connection. */
static rlock__conn *rlock__reply_expected(const redisReadTask *task, int type, size_t elements) {
    rlock__conn *conn = (rlock__conn *)task->privdata;
    bool subscribed = (conn->ac->c.flags & REDIS_SUBSCRIBED) != 0;
    bool expected;
    if (conn->failing || elements > RLOCK__ELEMENTS_MAX) {
        expected = false; /* what comes behind a wrong reply is the answer to something else */
    } else if (task->parent && subscribed && !task->parent->parent) {
        const redisReply *message = (const redisReply *)task->parent->obj;
        expected = task->idx < 2 ? type == REDIS_REPLY_STRING
                                 : type == REDIS_REPLY_INTEGER ||
                                       (strcmp(message->element[0]->str, "message") == 0 &&
                                        !(rlock__in_shard(conn) && type != REDIS_REPLY_STRING));
    } else if (task->parent) {
        expected = true;
    } else if (type == REDIS_REPLY_ERROR) {
        expected = true; /* hiredis ends the connection with it */
    } else {
        expected = subscribed ? type == REDIS_REPLY_ARRAY && elements == 3
                              : conn->ac->replies.head != NULL;
    }
    if (!expected) {
        rlock__reply_refused(conn);
    }
    return expected ? conn : NULL;
}

static bool rlock__is(const char *text, size_t len, const char *word) {
    return len == strlen(word) && memcmp(text, word, len) == 0;
}

/* True for the channel on which this client is notified: prefix and id. */
static bool rlock__is_own_channel(const rlock__redis *redis, const char *text, size_t len) {
    size_t head = strlen(redis->prefix);
    return RLOCK__HAS_KINDS && redis->notify != RLOCK__NOTIFY_UNUSED &&
           len == head + RLOCK__TOKEN_HEAD - 1 && memcmp(text, redis->prefix, head) == 0 &&
           memcmp(text + head, rlock_client_id(redis->client), len - head) == 0;
}

/* The first two words of a message. hiredis 1.2 asserts on the answer to a subscription that it
 * does not know of: only those to our own count, and only where keys are channels one may end. */
static bool rlock__word_expected(const rlock__conn *conn, const redisReadTask *task,
                                 const char *text, size_t len) {
    size_t head = sizeof RLOCK__CHANNEL_HEAD - 1;
    const redisReply *message;
    const char *first;
    if (!(conn->ac->c.flags & REDIS_SUBSCRIBED) || task->parent->parent || task->idx > 1) {
        return true;
    }
    if (task->idx == 0) {
        return rlock__is(text, len, "message") || rlock__is(text, len, "subscribe") ||
               rlock__is(text, len, "unsubscribe") || rlock__in_shard(conn);
    }
    message = (const redisReply *)task->parent->obj;
    first = message->element[0]->str;
    if (strcmp(first, "message") == 0) {
        return true;
    }
    if (rlock__by_channel(conn->redis)) {
        return len > head && memcmp(text, RLOCK__CHANNEL_HEAD, head) == 0;
    }
    return first[0] == 's' && (rlock__is(text, len, RLOCK__INVALIDATE) ||
                               rlock__is_own_channel(conn->redis, text, len));
}

/* A reply that is no array is made in place: hiredis has one at a time, and frees it soon. */
#define RLOCK__IN_PLACE SIZE_MAX /* as its number of elements */

RLOCK__NOINLINE static redisReply *rlock__make_in_place(rlock__conn *conn, int type) {
    memset(&conn->reply, 0, sizeof conn->reply);
    conn->reply.type = type;
    conn->reply.elements = RLOCK__IN_PLACE;
    return &conn->reply;
}

static void rlock__free_reply(void *reply) {
    if (((const redisReply *)reply)->elements != RLOCK__IN_PLACE) {
        freeReplyObject(reply);
    }
}

/* Makes what came on a sharded channel, of which hiredis knows nothing, a message on the channel
 * that is always subscribed to. Its text is the channel that it came on: whatever was said there,
 * the key is to be asked for. */
static void *rlock__make_shard(rlock__conn *conn, const redisReadTask *task, char *text,
                               size_t len) {
    char always[sizeof RLOCK__CHANNEL_HEAD + 1 + 36] = RLOCK__CHANNEL_HEAD "{";
    char *end = always + sizeof RLOCK__CHANNEL_HEAD;
    redisReadTask last = *task;
    RLOCK_ASSERT(task->parent && task->idx >= 0 && task->idx <= 2);
    if (task->idx == 0) {
        memcpy(always, "message", 7);
        return conn->make->createString(task, always, 7);
    }
    if (task->idx == 2) {
        conn->shard = false;
        return ((const redisReply *)task->parent->obj)->element[2];
    }
    memcpy(end, rlock_client_id(conn->redis->client), 36);
    end[36] = '}';
    last.idx = 2;
    return conn->make->createString(&last, text, len)
               ? conn->make->createString(task, always, sizeof always)
               : NULL;
}

/* A text in an array: its first word says whether it came on a sharded channel. */
static void *rlock__make_word(rlock__conn *conn, const redisReadTask *task, char *text,
                              size_t len) {
    RLOCK_ASSERT(task->parent);
    if (rlock__sharded(conn) && !task->parent->parent && task->idx == 0 &&
        (rlock__is(text, len, "smessage") || rlock__is(text, len, "ssubscribe") ||
         rlock__is(text, len, "sunsubscribe"))) {
        conn->shard = true;
    }
    if (!rlock__word_expected(conn, task, text, len)) {
        rlock__reply_refused(conn);
        return NULL;
    }
    return rlock__in_shard(conn) ? rlock__make_shard(conn, task, text, len)
                                 : conn->make->createString(task, text, len);
}

/* True for an error that was said to a sharded channel. hiredis would end the connection with it.
 * One that is refused is done without; one that another node has comes with a newer map. */
static bool rlock__shard_error(const rlock__conn *conn, const char *text) {
    rlock__redis *redis = conn->redis;
    if (!rlock__sharded(conn)) {
        return false;
    }
    if (rlock__classify(text) == RLOCK_FAULT_BUSY) {
        redis->shards_moved = true;
    } else {
        redis->shards_refused = true;
    }
    return true;
}

static void *rlock__make_string(const redisReadTask *task, char *text, size_t len) {
    rlock__conn *conn = rlock__reply_expected(task, task->type, 0);
    redisReply *reply;
    if (!conn) {
        return NULL;
    }
    if (task->parent) {
        return rlock__make_word(conn, task, text, len);
    }
    if (task->type == REDIS_REPLY_ERROR && rlock__shard_error(conn, text)) {
        return rlock__make_in_place(conn, REDIS_REPLY_NIL);
    }
    if (len >= sizeof conn->reply_text) {
        return conn->make->createString(task, text, len);
    }
    reply = rlock__make_in_place(conn, task->type);
    memcpy(conn->reply_text, text, len);
    conn->reply_text[len] = 0;
    reply->str = conn->reply_text;
    reply->len = len;
    return reply;
}

#if HIREDIS_MAJOR >= 1
typedef size_t rlock__elements;
#else
typedef int rlock__elements;
#endif

static void *rlock__make_array(const redisReadTask *task, rlock__elements elements) {
    rlock__conn *conn = rlock__reply_expected(task, task->type, (size_t)elements);
    return conn ? conn->make->createArray(task, elements) : NULL;
}

static void *rlock__make_integer(const redisReadTask *task, long long value) {
    rlock__conn *conn = rlock__reply_expected(task, REDIS_REPLY_INTEGER, 0);
    if (conn && !task->parent) {
        redisReply *reply = rlock__make_in_place(conn, REDIS_REPLY_INTEGER);
        reply->integer = value;
        return reply;
    }
    if (conn && rlock__in_shard(conn)) {
        return rlock__make_shard(conn, task, NULL, 0);
    }
    return conn ? conn->make->createInteger(task, value) : NULL;
}

static void *rlock__make_nil(const redisReadTask *task) {
    rlock__conn *conn = rlock__reply_expected(task, REDIS_REPLY_NIL, 0);
    if (!conn || task->parent) {
        return conn ? conn->make->createNil(task) : NULL;
    }
    return rlock__make_in_place(conn, REDIS_REPLY_NIL);
}

#if HIREDIS_MAJOR >= 1
/* RESP3, which we never ask for; where a function is missing hiredis makes a wild pointer. */
static void *rlock__make_double(const redisReadTask *task, double value, char *text, size_t len) {
    (void)value;
    (void)text;
    (void)len;
    rlock__reply_refused((rlock__conn *)task->privdata);
    return NULL;
}

static void *rlock__make_bool(const redisReadTask *task, int value) {
    return rlock__make_double(task, value, NULL, 0);
}
#endif

static void rlock__conn_guard(rlock__conn *conn, redisAsyncContext *ac) {
    RLOCK_ASSERT(conn->ac == ac);
    conn->make = ac->c.reader->fn;
    conn->guard = *conn->make;
    conn->guard.createString = rlock__make_string;
    conn->guard.createArray = rlock__make_array;
    conn->guard.createInteger = rlock__make_integer;
    conn->guard.createNil = rlock__make_nil;
    conn->guard.freeObject = rlock__free_reply;
#if HIREDIS_MAJOR >= 1
    conn->guard.createDouble = rlock__make_double;
    conn->guard.createBool = rlock__make_bool;
#endif
    ac->c.reader->fn = &conn->guard;
    ac->c.reader->privdata = conn;
}

static void rlock__conn_wanted(rlock__conn *conn) {
    RLOCK_ASSERT(!conn->redis->closing);
    conn->wanted = true;
    if (conn->state == RLOCK__CONN_DOWN && !conn->timer.index) {
        rlock_timer_set(conn->redis->client, &conn->timer, 0);
    }
}

/* Reports the end of a connection, or of an attempt, that the client itself is about to close. */
static void rlock__conn_left(rlock__conn *conn) {
    int64_t now_us = rlock_client_now_us(conn->redis->client);
    if (RLOCK__HAS_REPORTS && conn->state != RLOCK__CONN_DOWN) {
        if (!conn->failing) {
            strcpy(conn->text, "closed by the client");
        }
        conn->walks = false;
        rlock__conn_report(conn, RLOCK_REPORT_DISCONNECTED,
                           conn->state == RLOCK__CONN_READY ? now_us - conn->ready_us : 0);
    }
}

/* Closes a connection for good, if it was made. */
static void rlock__conn_end(rlock__conn *conn) {
    redisAsyncContext *ac = conn->ac;
#if RLOCK__HAS_NAMES
    while (conn->lookups) {
        rlock__lookup *lookup = conn->lookups;
        conn->lookups = lookup->next;
        rlock__dealloc(lookup->host);
        rlock__dealloc(lookup);
    }
#endif
    if (ac) {
        ac->data = NULL;
        redisAsyncFree(ac);
    }
    RLOCK_ASSERT(!conn->ac);
    if (conn->redis) {
        rlock_timer_drop(conn->redis->client, &conn->timer);
    }
}

/* ------------------------------------------------------------------------------------------------
 * >>redis-wait - a grant or a renewal counts when enough replicas have it: config.replicas
 *
 * One WAIT follows the acquires and renewals of a flush. What they were answered is kept until the
 * WAIT is answered: replies come in the order of the commands, so that answer is about all of them.
 * If too few replicas have it, a grant is given back before it is answered as refused for now. A
 * renewal is answered so at once: the hold has the deadline that it had.
 *
 * The server runs nothing else of a client while a WAIT of it is out, so a second one would only
 * stand behind the first. One is out at a time; what was sent meanwhile is covered by the next.
 */

static void rlock__answer_now(rlock__redis *redis, rlock_request *request, rlock_answer *answer) {
    RLOCK_ASSERT(request->store.stage == RLOCK__FLYING);
    RLOCK_ASSERT(!redis->closing);
    answer->settled = !request->store.note || request->store.note == redis->epoch ||
                      rlock__epoch_gone(redis, request->store.note);
    if (answer->settled && (answer->outcome != RLOCK_OUTCOME_FAULT || !redis->commands.failing)) {
        request->store.note = 0; /* also if it was refused: this attempt is over */
    }
    redis->events->answered(redis->owner, request, answer);
}

static void rlock__answer_fault(rlock__redis *redis, rlock_request *request, rlock_fault fault,
                                const char *text) {
    rlock_answer answer;
    RLOCK_ASSERT(!redis->closing);
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_FAULT;
    answer.fault = fault;
    answer.text = text;
    redis->events->answered(redis->owner, request, &answer);
}

/* Why the connection ended, or NULL. */
static const char *rlock__lost_text(const rlock__redis *redis) {
    return redis->commands.text[0] ? redis->commands.text : NULL;
}

/* Answers that the connection ended, or the server's words did not say what was done. */
static void rlock__answer_unknown(rlock__redis *redis, rlock_request *request) {
    rlock__answer_fault(redis, request, RLOCK_FAULT_UNKNOWN, rlock__lost_text(redis));
}

#if RLOCK__HAS_REPLICAS

/* True if a success of the request counts only when replicas have it. */
static bool rlock__syncs(const rlock__redis *redis, const rlock_request *request) {
    return redis->sync && (request->op == RLOCK_OP_ACQUIRE ||
                           (request->op == RLOCK_OP_RENEW && request->lease_ms));
}

/* Answers a request, at once or when replicas have what was done for it. Those of a command that
 * are kept move to its head: those before have been answered. */
static void rlock__answer(rlock__redis *redis, rlock_request *request, rlock_answer *answer) {
    rlock__command *command = (rlock__command *)request->store.data;
    RLOCK_ASSERT(command && command->redis == redis);
    if (answer->outcome != RLOCK_OUTCOME_DONE || !rlock__syncs(redis, request)) {
        rlock__answer_now(redis, request, answer);
        return;
    }
    RLOCK_ASSERT(command->kept < command->count);
    command->requests[command->kept++] = request;
    command->fence = answer->fence; /* of an acquire, which is alone in its command */
    command->ours = answer->ours;
}

/* Puts a command away whose reply was read. */
static void rlock__command_done(rlock__redis *redis, rlock__command *command) {
    RLOCK_ASSERT(command->kept <= command->count);
    if (command->kept) {
        command->count = command->kept;
        rlock__list_append(&redis->sync->kept, &command->link);
    } else { /* first: few get room for a batch */
        rlock__list_append(redis->spare.next, &command->link);
    }
}

/* What was granted and not copied is surely gone, or may still be there. If the release of it was
 * not answered, a server may execute it late: at any time, wherever the client is by then. So that
 * token is spent. */
static void rlock__on_given_back(redisAsyncContext *ac, void *raw, void *data) {
    rlock__command *command = (rlock__command *)data;
    rlock__redis *redis = command->redis;
    rlock_request *request = command->requests[0];
    const redisReply *reply = (const redisReply *)raw;
    bool answers = request && !redis->closing;
    bool back = reply && reply->type == REDIS_REPLY_INTEGER;
    rlock_answer answer;
    RLOCK_ASSERT(command->count && redis->sync);
    (void)ac;
    if (reply) {
        rlock__conn_answered(&redis->commands);
    }
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_FAULT;
    if (answers && back) {
        answer.fault = RLOCK_FAULT_BUSY;
        answer.text = redis->sync->words;
        rlock__answer_now(redis, request, &answer); /* this attempt is over */
    } else if (answers) {
        answer.fault = RLOCK_FAULT_UNKNOWN;
        answer.text = reply ? reply->str : rlock__lost_text(redis);
        answer.spent = !reply;
        redis->events->answered(redis->owner, request, &answer);
    }
    command->kept = 0;
    rlock__command_done(redis, command);
}

/* Gives back what a command was granted, in the way it was asked for. False: it cannot be sent. */
static bool rlock__give_back(rlock__redis *redis, rlock__command *command) {
    rlock_request back = *command->requests[0];
    RLOCK_ASSERT(command->requests[0]->op == RLOCK_OP_ACQUIRE);
    back.op = RLOCK_OP_RELEASE;
    back.flags = 0;
    back.fences = 0;
    back.next = 0;
    back.store.own[RLOCK__ENCODING] = RLOCK__AS_EVAL;
    if (!rlock__command_asks(redis, command)) {
        return false;
    }
    rlock__put_request(redis, &back);
    return rlock__command_send(redis, command, rlock__on_given_back);
}

/* Notes what a WAIT was answered. True: enough replicas have what was written. */
static bool rlock__sync_told(rlock__redis *redis, const redisReply *reply) {
    rlock__sync *sync = redis->sync;
    bool counted = reply->type == REDIS_REPLY_INTEGER;
    char number[21];
    size_t n;
    RLOCK_ASSERT(sync->replicas > 0);
    if (counted) {
        number[rlock__digits(number, (uint64_t)(reply->integer < 0 ? 0 : reply->integer))] = 0;
        n = rlock__line_add(sync->words, 0, "WAIT: too few replicas confirmed the write: ", number);
        number[rlock__digits(number, (uint64_t)sync->replicas)] = 0;
        rlock__line_add(sync->words, n, " of ", number);
    } else {
        rlock__line_add(sync->words, 0, "WAIT is refused: ", reply->str);
    }
    if (!counted && !sync->refused) {
        rlock__conn_log(&redis->commands, RLOCK_LOG_WARNING, sync->words, NULL);
    }
    sync->refused = !counted;
    return counted && reply->integer >= sync->replicas;
}

/* Answers what was kept for one command. */
static void rlock__sync_settle(rlock__redis *redis, rlock__command *command, bool heard,
                               bool synced) {
    bool back = false;
    uint32_t i;
    RLOCK_ASSERT(command->count && command->kept == command->count);
    for (i = 0; i < command->count; i++) {
        rlock_request *request = command->requests[i];
        rlock_answer answer;
        if (request && synced) {
            memset(&answer, 0, sizeof answer);
            answer.fence = command->fence;
            answer.ours = command->ours;
            rlock__answer_now(redis, request, &answer);
        } else if (request && heard && request->op == RLOCK_OP_RENEW) {
            rlock__answer_fault(redis, request, RLOCK_FAULT_BUSY, redis->sync->words);
        } else if (request && heard && rlock__give_back(redis, command)) {
            back = true;
        } else if (request) {
            rlock__answer_unknown(redis, request);
        }
    }
    command->kept = 0;
    if (!back) {
        rlock__command_done(redis, command);
    }
}

/* Answers all that was kept. */
static void rlock__sync_end(rlock__redis *redis, bool heard, bool synced) {
    while (!rlock__list_empty(&redis->sync->kept)) {
        rlock__command *command = RLOCK__OF(redis->sync->kept.next, rlock__command, link);
        rlock__list_remove(&command->link);
        rlock__sync_settle(redis, command, heard, synced);
    }
}

static void rlock__on_synced(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    bool heard = reply && (reply->type == REDIS_REPLY_INTEGER || reply->type == REDIS_REPLY_ERROR);
    rlock__redis *redis;
    bool synced;
    (void)data;
    if (!conn) {
        return; /* rlock__redis_free finds what was kept */
    }
    redis = conn->redis;
    RLOCK_ASSERT(redis->sync->out);
    redis->sync->out = false;
    if (reply) {
        rlock__conn_answered(conn);
    }
    if (reply && !heard) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
    }
    synced = heard && rlock__sync_told(redis, reply);
    rlock__sync_end(redis, heard, synced);
}

/* After the last command of a flush: asks whether replicas have what was sent since the last time,
 * unless one is out. The first waits until the push connection is there, or failed. */
static void rlock__sync_ask(rlock__redis *redis) {
    rlock__sync *sync = redis->sync;
    if (sync->wanted && !sync->out && !sync->opens) {
        RLOCK_ASSERT(sync->replicas > 0 && sync->ms > 0);
        sync->wanted = false;
        rlock__put_words(redis, "WAIT", 2);
        rlock__put_number(redis, (uint64_t)sync->replicas);
        rlock__put_number(redis, (uint64_t)sync->ms);
        sync->out = rlock__conn_say(&redis->commands, rlock__on_synced, NULL);
    }
}

/* False: there is no memory. */
static bool rlock__sync_init(rlock__redis *redis, const rlock_config *config) {
    if (!config->replicas) {
        return true;
    }
    redis->sync = (rlock__sync *)rlock__alloc(sizeof *redis->sync);
    if (!redis->sync) {
        return false;
    }
    rlock__list_init(&redis->sync->kept);
    redis->sync->replicas = config->replicas;
    redis->sync->ms = config->replicas_ms;
    redis->sync->opens = true;
    return true;
}

static void rlock__sync_free(rlock__redis *redis) {
    if (redis->sync) {
        rlock__list_move(&redis->spare, &redis->sync->kept);
        rlock__dealloc(redis->sync);
    }
}

#else

static void rlock__answer(rlock__redis *redis, rlock_request *request, rlock_answer *answer) {
    rlock__answer_now(redis, request, answer);
}

static void rlock__command_done(rlock__redis *redis, rlock__command *command) {
    rlock__list_append(redis->spare.next, &command->link);
}

#endif /* RLOCK__HAS_REPLICAS */

/* Closes the command connection, which is failing: nobody is asked any more about what was sent on
 * it. */
static void rlock__commands_failed(rlock__redis *redis) {
    RLOCK_ASSERT(redis->commands.failing);
#if RLOCK__HAS_REPLICAS
    if (redis->sync) {
        redis->sync->wanted = false;
        rlock__sync_end(redis, false, false);
    }
#endif
    rlock__conn_closed(&redis->commands);
}

/* ------------------------------------------------------------------------------------------------
 * >>redis-push - what the server reports unasked: a key changed, a token is notified
 */

/* Of the channel {a} both a and {a} may be the key. */
static void rlock__woken_by(rlock__redis *redis, const char *name, size_t len) {
    redis->events->woken(redis->owner, name, len);
    if (len > 2 && name[0] == '{' && name[len - 1] == '}') {
        redis->events->woken(redis->owner, name + 1, len - 2);
    }
}

/* A notification: the token's number, a colon, the key. */
static void rlock__notified_by(rlock__redis *redis, const char *text, size_t len) {
    char *end;
    uint64_t token = strtoull(text, &end, 10);
    if (end != text && *end == ':') {
        size_t head = (size_t)(end + 1 - text);
        redis->events->notified(redis->owner, end + 1, len - head, token);
    }
}

static void rlock__notify_subscribe(rlock__redis *redis);

static void rlock__on_subscribed(rlock__redis *redis, const redisReply *channel) {
    RLOCK_ASSERT(redis->push.state == RLOCK__CONN_READY);
    if (rlock__is_own_channel(redis, channel->str, (size_t)channel->len)) {
        redis->notify = RLOCK__NOTIFY_ON;
    } else if (!redis->subscribed) {
        redis->subscribed = true;
        rlock__notify_subscribe(redis);
    }
    rlock__redis_pushing(redis);
}

/* True for the name of the channel of a key. */
static bool rlock__is_channel(const redisReply *text) {
    size_t head = sizeof RLOCK__CHANNEL_HEAD - 1;
    return RLOCK__HAS_REDISSON && (size_t)text->len > head &&
           memcmp(text->str, RLOCK__CHANNEL_HEAD, head) == 0;
}

/* A message: [kind, channel, payload]. Of tracking the payload is the keys, or nil for all. */
static void rlock__on_message(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    redisReply *reply = (redisReply *)raw, *channel, *payload;
    const redisReply *named; /* the channel that is meant: see rlock__make_shard */
    rlock__redis *redis;
    size_t head = sizeof RLOCK__CHANNEL_HEAD - 1, i;
    (void)data;
    if (!conn || !reply || reply->type == REDIS_REPLY_NIL) {
        return; /* hiredis 0.14 gives what has no callback to the one before: rlock__shard_error */
    }
    RLOCK_ASSERT(reply->elements == 3); /* and two words first: see rlock__reply_expected */
    redis = conn->redis;
    RLOCK_ASSERT(conn == &redis->push);
    channel = reply->element[1];
    payload = reply->element[2];
    if (strcmp(reply->element[0]->str, "message") != 0) { /* an answer to SUBSCRIBE */
        rlock__conn_answered(conn);
        if (strcmp(reply->element[0]->str, "subscribe") == 0) {
            rlock__on_subscribed(redis, channel);
        }
    } else {
        conn->alive_us = rlock_client_now_us(redis->client);
    }
    named = payload->type == REDIS_REPLY_STRING && rlock__is_channel(payload) ? payload : channel;
    if (rlock__is_channel(named)) {
        rlock__woken_by(redis, named->str + head, (size_t)named->len - head);
    } else if (RLOCK__HAS_KINDS && payload->type == REDIS_REPLY_STRING) {
        rlock__notified_by(redis, payload->str, (size_t)payload->len);
    } else if (payload->type == REDIS_REPLY_ARRAY) {
        for (i = 0; i < payload->elements; i++) {
            if (payload->element[i]->type == REDIS_REPLY_STRING) {
                redis->events->woken(redis->owner, payload->element[i]->str,
                                     (size_t)payload->element[i]->len);
            }
        }
    } else if (payload->type == REDIS_REPLY_NIL) {
        redis->events->woken(redis->owner, NULL, 0);
    }
}

/* Subscribes to the channel that is always listened to. Its repetition is the heartbeat. */
static void rlock__push_subscribe(rlock__redis *redis) {
    RLOCK_ASSERT(redis->push.ac);
    RLOCK_ASSERT(redis->push.state == RLOCK__CONN_READY);
    rlock__put_words(redis, "SUBSCRIBE", 1);
    if (rlock__by_channel(redis)) {
        rlock__put_channel(redis, rlock_client_id(redis->client), 36);
    } else {
        rlock__put_text(redis, RLOCK__INVALIDATE);
    }
    rlock__conn_say(&redis->push, rlock__on_message, NULL);
}

/* Begins or ends to listen to the channel of a key, where there are no messages but on channels. A
 * node of a cluster may know two of that name: what is published to the sharded one only the node
 * of its slot delivers, and says when the slot has left it. */
static void rlock__channel_listen(rlock__redis *redis, const char *key, size_t len, bool on) {
    RLOCK_ASSERT(rlock__by_channel(redis) && redis->subscribed);
    rlock__put_words(redis, on ? "SUBSCRIBE" : "UNSUBSCRIBE", 1);
    rlock__put_channel(redis, key, len);
    rlock__conn_say(&redis->push, rlock__on_message, NULL);
    if (rlock__has_shards(redis) && !redis->shards_refused) {
        redis->sharded = true;
        rlock__put_words(redis, on ? "SSUBSCRIBE" : "SUNSUBSCRIBE", 1);
        rlock__put_channel(redis, key, len);
        rlock__conn_add(&redis->push);
    }
}

/* Subscribes to the channel on which this client is notified, if any key is of a queued kind. */
RLOCK__NOINLINE static void rlock__notify_subscribe(rlock__redis *redis) {
    if (!RLOCK__HAS_KINDS || redis->notify != RLOCK__NOTIFY_WANTED || !redis->subscribed) {
        return;
    }
    rlock__put_words(redis, "SUBSCRIBE", 1);
    rlock__put_around(redis, redis->prefix, false, rlock_client_id(redis->client),
                      RLOCK__TOKEN_HEAD - 1, "");
    rlock__conn_say(&redis->push, rlock__on_message, NULL);
}

/* Nothing is to be heard on the push connection: ends it, unless it is wanted all the same. */
static void rlock__push_spare(rlock__redis *redis) {
    if (!rlock__pushes(redis)) {
        rlock__conn_fail(&redis->push, RLOCK_FAULT_DOWN, "not needed");
    }
}

/* Changes are told on channels, or not at all. */
static void rlock__tracking_refused(rlock__redis *redis) {
    redis->changes = RLOCK__CHANGES_REFUSED;
    if (rlock__is_redisson(redis)) {
        redis->changes = RLOCK__CHANGES_CHANNELS;
    }
}

static void rlock__on_tracking(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    redisReply *reply = (redisReply *)raw;
    rlock__redis *redis;
    (void)data;
    if (!conn || !reply) {
        return;
    }
    redis = conn->redis;
    RLOCK_ASSERT(conn == &redis->commands);
    rlock__conn_answered(conn);
    redis->tracked = reply->type == REDIS_REPLY_STATUS;
    if (!redis->tracked && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR &&
        (strstr(reply->str, "does not exist") || rlock__classify(reply->str) == RLOCK_FAULT_BUSY)) {
        rlock__conn_fail(&redis->push, RLOCK_FAULT_DOWN, reply->str); /* and once more */
        return;
    }
    if (!redis->tracked) {
        rlock__tracking_refused(redis); /* ACL, or Redis before 6.0 */
        rlock__conn_log(conn, RLOCK_LOG_INFO, "no client tracking", reply->str);
    }
    if (redis->push.state != RLOCK__CONN_READY) {
        redis->tracked = false; /* it went meanwhile */
    } else if (rlock__listens(redis)) {
        rlock__push_subscribe(redis);
    } else {
        rlock__push_spare(redis);
    }
    rlock__redis_pushing(redis);
}

/* Has the server send the invalidations of what the command connection reads to the push
 * connection, if some key is to be tracked: notifications need none of them.
 * https://redis.io/docs/latest/develop/reference/client-side-caching/#two-connections-mode */
static void rlock__track(rlock__redis *redis) {
    rlock__conn *push = &redis->push;
    if (redis->commands.state != RLOCK__CONN_READY || !rlock__pushes(redis)) {
        return;
    }
    if (push->state != RLOCK__CONN_READY) {
        rlock__conn_wanted(push);
        return;
    }
    if (*push->run_id && *redis->commands.run_id &&
        strcmp(push->run_id, redis->commands.run_id) != 0) { /* its id is a stranger's there */
        rlock__conn_fail(push, RLOCK_FAULT_DOWN,
                         "connected to a different server than the command connection");
        return;
    }
    if (rlock__tracks(redis) && !push->id) { /* CLIENT ID is refused */
        rlock__tracking_refused(redis);
    }
    if (!rlock__listens(redis)) {
        rlock__push_spare(redis);
        return;
    }
    if (!rlock__tracks(redis) || rlock__by_channel(redis)) {
        rlock__push_subscribe(redis);
        return;
    }
    rlock__put_words(redis, "CLIENT TRACKING ON REDIRECT", 2);
    rlock__put_number(redis, (uint64_t)push->id);
    rlock__put_text(redis, "NOLOOP");
    rlock__conn_say(&redis->commands, rlock__on_tracking, NULL);
}

/* ------------------------------------------------------------------------------------------------
 * >>redis-sentinel - where the primary is, asked of Sentinels
 *
 * One connection asks one Sentinel: at each attempt to connect to the primary, and every second. An
 * answer that takes long, or is none, leads to the next Sentinel. What Sentinels publish is not
 * listened to: their answers are right earlier.
 *
 * Two Sentinels may differ. The address of the higher config-epoch is right, which is asked for
 * where an address is not the one that is known; then the address is asked for once more: if it
 * changed meanwhile, nobody knows which one the epoch is of. So a connection that serves ends only
 * for a higher epoch, and an address of a lower one is not used, unless every Sentinel has only
 * such, or most have and the address that is known fails. Where the address that was told leads to
 * no primary, another Sentinel is asked, and nothing is known.
 * https://redis.io/docs/latest/develop/reference/sentinel-clients/
 */

#if RLOCK__HAS_SENTINEL

/* Returns what is wrong with the Sentinels of a configuration, or NULL. */
static const char *rlock__sentinel_fault(const rlock_config *config, const char **detail) {
    if (!config->sentinels) {
        return config->sentinel_primary || config->sentinel_username || config->sentinel_password ||
                       config->sentinel_tls
                   ? "config.sentinel_... requires config.sentinels"
                   : NULL;
    }
    if (!rlock__length(config->sentinel_primary)) {
        return RLOCK__TEXT("config.sentinels requires config.sentinel_primary, the primary's name "
                           "in the Sentinels");
    }
    if (config->unix_path || config->connect) {
        return RLOCK__TEXT(
            "config.sentinels cannot be combined with config.unix_path or config.connect");
    }
    if (config->sentinel_username && !config->sentinel_password) {
        return RLOCK__TEXT("config.sentinel_username requires config.sentinel_password");
    }
    if (config->tls && !config->sentinel_tls && !config->tls->own_name &&
        !config->trust_plain_sentinels) {
        return RLOCK__TEXT(
            "TLS to the server, but not to the Sentinels, which name the host to verify: set "
            "config.sentinel_tls or server_name of rlock_tls.h, or accept that risk by "
            "trust_plain_sentinels");
    }
    return rlock__hosts_fault(
        config, config->sentinels,
        "config.sentinels: expected host:26379,[::1]:26379, without a user, a "
        "scheme or a blank",
        detail);
}

static void rlock__sentinel_free(rlock__sentinel *sentinel) {
    rlock__dealloc(sentinel->text);
    rlock__dealloc(sentinel->hosts);
    rlock__dealloc(sentinel->primary);
    rlock__dealloc(sentinel->username);
    rlock__dealloc(sentinel->password);
    rlock__dealloc(sentinel->named);
    rlock__dealloc(sentinel);
}

/* Returns NULL if there is no memory. */
static rlock__sentinel *rlock__sentinel_new(const rlock_config *config) {
    rlock__sentinel *sentinel = (rlock__sentinel *)rlock__alloc(sizeof *sentinel);
    bool failed = false;
    if (!sentinel) {
        return NULL;
    }
    sentinel->epoch = -1;
    sentinel->map = config->map_address;
    sentinel->map_user = config->map_user;
#if RLOCK__HAS_TLS
    sentinel->endpoint.tls = config->sentinel_tls;
#endif
    sentinel->text = rlock__copy_text(config->sentinels, &failed);
    sentinel->primary = rlock__copy_text(config->sentinel_primary, &failed);
    sentinel->username = rlock__copy_text(config->sentinel_username, &failed);
    sentinel->password = rlock__copy_text(config->sentinel_password, &failed);
    sentinel->hosts = failed ? NULL : rlock__hosts_split(sentinel->text, 26379, &sentinel->count);
    if (!sentinel->hosts) {
        rlock__sentinel_free(sentinel);
        return NULL;
    }
    return sentinel;
}

/* Leads a connection to another host. */
static void rlock__endpoint_move(rlock__conn *conn, char *host, int port) {
    rlock__endpoint *endpoint = conn->endpoint;
    RLOCK_ASSERT(host && port > 0 && port <= 65535);
    endpoint->host = host;
    endpoint->port = port;
#if RLOCK__HAS_NAMES
    endpoint->good.any.sa_family = 0;
    endpoint->count = endpoint->at = 0;
#endif
    conn->moved = true;
}

/* Leads the connection to the Sentinel whose turn it is. */
static void rlock__sentinel_turn(rlock__sentinel *sentinel) {
    const rlock__host *host = &sentinel->hosts[sentinel->at];
    RLOCK_ASSERT(sentinel->at < sentinel->count);
    rlock__endpoint_move(&sentinel->conn, host->name, host->port);
}

#if RLOCK__HAS_NAMES

/* Leads the connection to the Sentinel whose name was asked for in its turn, but is known only
 * now. */
static void rlock__sentinel_turns_to(rlock__redis *redis, const char *name) {
    rlock__sentinel *sentinel = redis->sentinel;
    uint32_t i = 0;
    while (strcmp(sentinel->hosts[i].name, name) != 0) {
        i++;
        RLOCK_ASSERT(i < sentinel->count); /* no other name is asked for */
    }
    sentinel->at = i;
    rlock__sentinel_turn(sentinel);
}

#endif /* RLOCK__HAS_NAMES */

/* The command connection goes on, in the next loop iteration. */
static void rlock__sentinel_resumes(rlock__redis *redis) {
    redis->sentinel->waited = false;
    rlock_timer_set(redis->client, &redis->commands.timer, 0);
}

/* An answer was taken: this Sentinel is asked again in a second. */
static void rlock__sentinel_answered(rlock__redis *redis) {
    rlock__sentinel *sentinel = redis->sentinel;
    rlock__conn *conn = &sentinel->conn;
    RLOCK_ASSERT(conn->state == RLOCK__CONN_READY);
    if (!sentinel->heard) {
        sentinel->heard = true;
        conn->text[0] = 0;
        conn->backoff_ms = 0;
        rlock__endpoint_worked(conn->endpoint);
        rlock__conn_log(conn, RLOCK_LOG_INFO, "ready", NULL);
    }
    sentinel->silent = sentinel->behind = 0;
    if (sentinel->waited) {
        sentinel->misled = true; /* until the address has worked */
        rlock__sentinel_resumes(redis);
    }
}

/* Takes an address for that of the primary. What is under way to another one ends at once. */
static void rlock__sentinel_moved(rlock__redis *redis, char *host, int port) {
    rlock__conn *conn = &redis->commands;
    if (conn->ac) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "the primary moved");
        rlock__commands_failed(redis);
    }
    conn->walks = false;
    rlock__dealloc(redis->endpoint.host);
    rlock__endpoint_move(conn, host, port);
    redis->endpoint.failures = 0;
    RLOCK_ASSERT(conn->wanted);                      /* for it a Sentinel was asked */
    rlock_timer_set(redis->client, &conn->timer, 0); /* it waits for no name of another host */
}

static bool rlock__sentinel_agrees(const rlock__redis *redis) {
    const rlock__endpoint *endpoint = &redis->endpoint;
    return endpoint->host && strcmp(endpoint->host, redis->sentinel->named) == 0 &&
           endpoint->port == redis->sentinel->named_port;
}

/* The address that was told has this config-epoch; -1 = unknown, as where an ACL hides it. */
static void rlock__sentinel_judge(rlock__redis *redis, int64_t epoch) {
    rlock__sentinel *sentinel = redis->sentinel;
    bool newer = epoch < 0 || epoch > sentinel->epoch;
    if (!newer && epoch < sentinel->epoch) {
        sentinel->behind++;
        sentinel->heard = true; /* its other addresses are no other opinion */
        rlock__conn_fail(&sentinel->conn, RLOCK_FAULT_DOWN, "it has an older configuration");
        return;
    }
    RLOCK_ASSERT(sentinel->named && sentinel->conn.state == RLOCK__CONN_READY);
    if (!rlock__sentinel_agrees(redis) && (newer || redis->commands.state != RLOCK__CONN_READY)) {
        rlock__sentinel_moved(redis, sentinel->named, sentinel->named_port);
        sentinel->named = NULL;
    }
    sentinel->epoch = epoch;
    rlock__sentinel_answered(redis);
}

/* An array of names and values, of which the config-epoch is kept; -1 = unknown. */
static void rlock__on_sentinel_master(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    size_t i;
    (void)data;
    if (!conn || !reply) {
        return;
    }
    rlock__conn_answered(conn);
    conn->redis->sentinel->named_epoch = -1;
    for (i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            strcmp(name->str, "config-epoch") == 0) {
            conn->redis->sentinel->named_epoch = strtoll(value->str, NULL, 10);
        }
    }
}

static void rlock__sentinel_question(rlock__sentinel *sentinel, const char *words,
                                     redisCallbackFn *fn, void *data) {
    rlock__put_words(sentinel->conn.redis, words, 1);
    rlock__put_text(sentinel->conn.redis, sentinel->primary);
    rlock__conn_say(&sentinel->conn, fn, data);
}

#define RLOCK__SENTINEL_ADDRESS "SENTINEL GET-MASTER-ADDR-BY-NAME"

/* Notes the address of an answer: a host, and a port in words. False: it has none, as where a host
 * has a line end. *again: it is the one that was noted before. */
static bool rlock__sentinel_told(rlock__sentinel *sentinel, const redisReply *reply, bool *again) {
    const redisReply *host, *port;
    char text[RLOCK__HOST_MAX + 1];
    bool failed = false;
    int former = sentinel->named_port;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        return false;
    }
    host = reply->element[0];
    port = reply->element[1];
    if (host->type != REDIS_REPLY_STRING || port->type != REDIS_REPLY_STRING ||
        !rlock__is_host(host->str, (size_t)host->len)) {
        return false;
    }
    sentinel->named_port = (int)strtol(port->str, NULL, 10);
    strcpy(text, host->str); /* a host is no longer */
    if (sentinel->named_port > 0 && sentinel->named_port <= 65535) {
        rlock__announced(sentinel->map, sentinel->map_user, text, &sentinel->named_port);
    }
    *again =
        sentinel->named && strcmp(sentinel->named, text) == 0 && sentinel->named_port == former;
    rlock__dealloc(sentinel->named);
    sentinel->named = rlock__copy_text(text, &failed);
    return !failed && sentinel->named_port > 0 && sentinel->named_port <= 65535;
}

/* data: not NULL for the second question, after that for the epoch. */
static void rlock__on_sentinel_address(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    rlock__sentinel *sentinel;
    bool again = false;
    if (!conn || !reply) {
        return;
    }
    sentinel = conn->redis->sentinel;
    rlock__conn_answered(conn);
    if (reply->type == REDIS_REPLY_ERROR) {
        bool auth = rlock__classify(reply->str) == RLOCK_FAULT_AUTH;
        rlock__conn_fail(conn, auth ? RLOCK_FAULT_AUTH : RLOCK_FAULT_DOWN, reply->str);
    } else if (reply->type == REDIS_REPLY_NIL) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "it knows no primary of this name");
    } else if (!rlock__sentinel_told(sentinel, reply, &again)) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
    } else if (data && !again) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "it is changing the primary");
    } else if (data) {
        rlock__sentinel_judge(conn->redis, sentinel->named_epoch);
    } else if (sentinel->epoch >= 0 && rlock__sentinel_agrees(conn->redis)) {
        rlock__sentinel_answered(conn->redis);
    } else {
        rlock__sentinel_question(sentinel, "SENTINEL MASTER", rlock__on_sentinel_master, NULL);
        rlock__sentinel_question(sentinel, RLOCK__SENTINEL_ADDRESS, rlock__on_sentinel_address,
                                 sentinel);
    }
}

/* Asks where the primary is. */
static void rlock__sentinel_ask(rlock__redis *redis) {
    RLOCK_ASSERT(redis->sentinel->conn.state == RLOCK__CONN_READY);
    rlock__sentinel_question(redis->sentinel, RLOCK__SENTINEL_ADDRESS, rlock__on_sentinel_address,
                             NULL);
}

/* An attempt of the command connection waits for an answer, or for the end of the round. False: no
 * Sentinel is asked. */
static bool rlock__sentinel_wanted(rlock__redis *redis) {
    rlock__sentinel *sentinel = redis->sentinel;
    rlock__conn *conn = sentinel ? &sentinel->conn : NULL;
    if (!sentinel) {
        return false;
    }
    RLOCK_ASSERT(redis->commands.state == RLOCK__CONN_OPENING && !redis->commands.ac);
    sentinel->waited = true;
    if (sentinel->misled) {
        sentinel->misled = false;
        sentinel->epoch = -1;
        if (sentinel->count > 1 && conn->state == RLOCK__CONN_READY) {
            rlock__conn_fail(conn, RLOCK_FAULT_DOWN,
                             "the address that it gave leads to no primary");
        }
    }
    conn->wanted = true;
    if (conn->state == RLOCK__CONN_DOWN) {
        rlock_timer_set(redis->client, &conn->timer, 0);
    } else if (conn->state == RLOCK__CONN_READY && !conn->outstanding && !conn->failing) {
        rlock__sentinel_ask(redis);
    }
    return true;
}

static bool rlock__sentinel_waited(const rlock__redis *redis) {
    return redis->sentinel && redis->sentinel->waited;
}

/* No Sentinel has an answer. Whoever waits goes on with the address that was told last. */
static void rlock__sentinel_round_ends(rlock__redis *redis) {
    rlock__sentinel *sentinel = redis->sentinel;
    rlock__conn *conn = &sentinel->conn;
    bool doubted = 2 * sentinel->behind > sentinel->count;
    RLOCK_ASSERT(sentinel->behind <= sentinel->count);
    rlock__conn_log_failure(conn, NULL, conn->text);
    redis->stats->faults++;
    conn->endpoint->failures++;
    sentinel->epoch = sentinel->behind == sentinel->count ? -1 : sentinel->epoch;
    sentinel->silent = sentinel->behind = 0;
    rlock__conn_wait(conn, rlock__backoff_us(conn));
    if (sentinel->waited && redis->endpoint.host) {
        sentinel->misled = doubted; /* until the address has worked */
        rlock__sentinel_resumes(redis);
    } else if (sentinel->waited) {
        char words[RLOCK__LINE];
        rlock__line_add(words, 0, "no Sentinel gives an address: ", conn->text);
        sentinel->waited = false;
        rlock__conn_fail(&redis->commands, conn->fault, words);
        rlock__commands_failed(redis); /* no event of its own comes */
    }
}

/* Closes a connection that is failing, and goes on: at the next address of this Sentinel, at the
 * next Sentinel, or later. */
static void rlock__sentinel_closed(rlock__redis *redis) {
    rlock__sentinel *sentinel = redis->sentinel;
    rlock__conn *conn = &sentinel->conn;
    bool more = !sentinel->heard && rlock__conn_more(conn);
    bool last = !conn->walks;
    RLOCK_ASSERT(sentinel->silent < sentinel->count);
    if (conn->state == RLOCK__CONN_READY) {
        rlock__conn_report(conn, RLOCK_REPORT_DISCONNECTED,
                           rlock_client_now_us(redis->client) - conn->ready_us);
    } else if (last) {
        rlock__conn_report(conn, RLOCK_REPORT_DISCONNECTED, 0);
    }
    rlock__conn_shut(conn);
    sentinel->heard = false;
    rlock_timer_set(redis->client, &conn->timer, 0);
    if (rlock__conn_renews(conn)) { /* the same address, with newer credentials */
        conn->walks = false;
        return;
    }
    if (more) {
        return;
    }
    conn->walks = false;
    if (last) {
        rlock__sentinel_round_ends(redis);
    } else {
        sentinel->silent++;
    }
    if (sentinel->count > 1) { /* one alone keeps what is known of its name */
        sentinel->at = (sentinel->at + 1) % sentinel->count;
        rlock__sentinel_turn(sentinel);
    }
}

/* The address that was told is that of a primary, as far as its handshake says. */
static void rlock__sentinel_proved(rlock__redis *redis) {
    if (redis->sentinel) {
        redis->sentinel->misled = false;
    }
}

/* It is not: a server whose handshake may not say so says it now. */
static void rlock__sentinel_disproved(rlock__redis *redis) {
    if (redis->sentinel) {
        redis->sentinel->misled = true;
    }
}

#else

static const char *rlock__sentinel_fault(const rlock_config *config, const char **detail) {
    (void)detail;
    return config->sentinels ? RLOCK__NEEDS("config.sentinels", "RLOCK_WITH_SENTINEL") : NULL;
}
static void rlock__sentinel_nothing(rlock__redis *redis) {
    (void)redis;
}
static bool rlock__sentinel_no(const rlock__redis *redis) {
    (void)redis;
    return false;
}
#define rlock__sentinel_ask rlock__sentinel_nothing
#define rlock__sentinel_closed rlock__sentinel_nothing
#define rlock__sentinel_proved rlock__sentinel_nothing
#define rlock__sentinel_disproved rlock__sentinel_nothing
#define rlock__sentinel_turns_to(redis, name) ((void)(redis), (void)(name))
#define rlock__sentinel_wanted rlock__sentinel_no
#define rlock__sentinel_waited rlock__sentinel_no

#endif /* RLOCK__HAS_SENTINEL */

/* The address led to a server that is not the one: it is left when all in flight is answered. */
static void rlock__redis_strays(rlock__redis *redis, const char *text) {
    redis->commands.strayed = true;
    rlock__sentinel_disproved(redis);
    rlock__conn_error(&redis->commands, RLOCK_FAULT_BUSY, text);
}

/* ------------------------------------------------------------------------------------------------
 * >>redis-quarantine - a server that may have lost holds grants none until they would have ended
 *
 * A marker at the server says whose data it has, and since when: src/lua/quarantine.lua. The
 * handshake of each command connection asks how long the server has to grant no lock, counted by
 * this client's config.quarantine_ms. Until then no acquire is sent; all else is. A server that
 * cannot tell grants no lock either, and is asked again. A replica says here that it is one, since
 * no acquire is sent to which it could.
 *
 * A node of a cluster keeps its marker in a slot of its own: see rlock__node_mark. While a question
 * is on its way after the handshake, acquires wait for the answer.
 */

#if RLOCK__HAS_REPLICAS

#define RLOCK__MARKER_NAME "quarantine" /* the marker's key, after the prefix */
#define RLOCK__QUARANTINE_ASK_MS 1000   /* until a server that cannot tell is asked again */

/* True if the server may grant nothing now. */
static bool rlock__quarantined(const rlock__redis *redis) {
    RLOCK_ASSERT(redis->quarantine);
    return rlock_client_now_us(redis->client) < redis->quarantine->until_us;
}

/* True if an acquire waits until it is known whether the server may grant. */
static bool rlock__quarantine_waits(const rlock__redis *redis) {
    RLOCK_ASSERT(redis->quarantine);
    return redis->quarantine->asked || redis->quarantine->unmapped;
}

/* Returns what is wrong with the key of a lock where there are markers, or NULL: it may be that of
 * one; in a cluster that of any node. */
static const char *rlock__marker_refuses(const char *prefix, bool node, const char *key,
                                         size_t len) {
    size_t head = strlen(prefix), name = sizeof RLOCK__MARKER_NAME - 1;
    bool marker = len >= head + name && memcmp(key, prefix, head) == 0 &&
                  memcmp(key + head, RLOCK__MARKER_NAME, name) == 0 &&
                  (node ? len > head + name && key[head + name] == ':' : len == head + name);
    return marker ? "the library uses a key of this name for the quarantine marker; rename it"
                  : NULL;
}

/* Returns why nothing is granted, perhaps in the line. */
static const char *rlock__quarantine_text(const rlock__redis *redis, char *line) {
    const rlock__quarantine *quarantine = redis->quarantine;
    int64_t left_us = quarantine->until_us - rlock_client_now_us(redis->client);
    char number[21];
    RLOCK_ASSERT(left_us > 0);
    if (*quarantine->refusal) {
        return quarantine->refusal;
    }
    number[rlock__digits(number, (uint64_t)(left_us + 999) / 1000)] = 0;
    rlock__line_add(line, rlock__line_add(line, 0, "quarantine: nothing is granted for ", number),
                    " ms more", "");
    return line;
}

/* True if an acquire is not sent now: it waits until it is known whether the server may grant, or
 * is refused. */
static bool rlock__quarantine_keeps(rlock__redis *redis, rlock_request *request) {
    char line[RLOCK__LINE];
    bool waits = rlock__quarantine_waits(redis);
    if (!waits && !rlock__quarantined(redis)) {
        return false;
    }
    rlock__list_remove(&request->store.link);
    if (waits) {
        rlock__list_append(&redis->queues[RLOCK__PARKED], &request->store.link);
    } else {
        rlock__answer_fault(redis, request, RLOCK_FAULT_BUSY, rlock__quarantine_text(redis, line));
    }
    return true;
}

/* Formats the question. It goes in full: a server that was started anew knows no script. */
static void rlock__put_quarantine(rlock__redis *redis) {
    const rlock__quarantine *quarantine = redis->quarantine;
    int64_t known_us = rlock_client_now_us(redis->client) - quarantine->known_us;
    bool known = *quarantine->run_id != 0;
    RLOCK_ASSERT(*quarantine->marker && quarantine->ms > 0);
    RLOCK_ASSERT(!known || known_us >= 0);
    rlock__put_command(redis, known ? 8 : 5);
    rlock__put_eval(redis, rlock__lua_quarantine, true, 1);
    rlock__put_around(redis, redis->prefix, false, quarantine->marker, strlen(quarantine->marker),
                      "");
    rlock__put_number(redis, (uint64_t)quarantine->ms);
    if (known) {
        rlock__put_text(redis, quarantine->run_id);
        rlock__put_text(redis, quarantine->replid);
        rlock__put_number(redis, (uint64_t)known_us / 1000);
    }
}

/* Notes that a node has been the process that it is, with the history that it has, since a time:
 * where its marker leaves it a client can say so. */
static void rlock__quarantine_knows(rlock__redis *redis, int64_t since_us) {
    rlock__quarantine *quarantine = redis->quarantine;
    const char *run_id = redis->commands.run_id;
    bool same = rlock__same_identity(run_id, quarantine->run_id) &&
                rlock__same_identity(redis->replid, quarantine->replid);
    if (!rlock__is_node(redis) || !*run_id || !*redis->replid ||
        (same && quarantine->known_us <= since_us)) {
        return;
    }
    memcpy(quarantine->run_id, run_id, sizeof quarantine->run_id);
    memcpy(quarantine->replid, redis->replid, sizeof quarantine->replid);
    quarantine->known_us = since_us;
}

/* Notes the answer, which is a number or an error. A node that has no slot any more may be a
 * replica by now. If the slot of the marker has left it, another map names another marker. */
static void rlock__quarantine_told(rlock__redis *redis, const redisReply *reply) {
    rlock__quarantine *quarantine = redis->quarantine;
    int64_t now_us = rlock_client_now_us(redis->client);
    bool known = reply->type == REDIS_REPLY_INTEGER;
    char line[RLOCK__LINE];
    bool news;
    if (!*quarantine->marker) {
        return;
    }
    if (rlock__is_node(redis) && !known && !quarantine->led && rlock__redirected(reply->str)) {
        quarantine->unmapped = quarantine->led = true;
        return;
    }
    if (known) {
        bool sane = reply->integer >= 0 && reply->integer <= quarantine->ms;
        int64_t left_ms = sane ? reply->integer : quarantine->ms;
        quarantine->led = false;
        quarantine->until_us = now_us + left_ms * 1000;
        quarantine->refusal[0] = 0;
        rlock__quarantine_knows(redis, quarantine->until_us - quarantine->ms * 1000);
        rlock_timer_set(redis->client, &quarantine->timer, left_ms ? quarantine->until_us : -1);
        news = left_ms > 0;
    } else {
        rlock__line_add(line, 0,
                        "quarantine: the server cannot tell whether it lost holds: ", reply->str);
        news = strcmp(line, quarantine->refusal) != 0;
        rlock__line_add(quarantine->refusal, 0, line, "");
        quarantine->until_us = RLOCK__NEVER;
        rlock_timer_set(redis->client, &quarantine->timer,
                        now_us + RLOCK__QUARANTINE_ASK_MS * 1000);
        if (rlock__error_of(reply->str) == &rlock__errors[RLOCK__ERROR_ASTRAY]) {
            rlock__redis_strays(redis, reply->str);
        }
    }
    if (news) {
        rlock__conn_log(&redis->commands, RLOCK_LOG_WARNING, rlock__quarantine_text(redis, line),
                        NULL);
    }
}

static void rlock__on_quarantine(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    rlock__redis *redis = (rlock__redis *)data;
    bool before;
    RLOCK_ASSERT(redis->quarantine->asked);
    redis->quarantine->asked--;
    if (!conn || !reply) {
        return;
    }
    rlock__conn_answered(conn);
    if (reply->type != REDIS_REPLY_INTEGER && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return;
    }
    before = rlock__quarantined(redis);
    rlock__quarantine_told(redis, reply);
    if (before && !rlock__quarantined(redis)) {
        redis->events->up(redis->owner, NULL);
    }
}

/* Asks once more. Without a connection the next handshake asks; if one has gone too far for that,
 * rlock__node_up does. */
static void rlock__quarantine_ask(rlock__redis *redis) {
    bool usable = rlock__conn_usable(&redis->commands);
    redis->quarantine->late = !usable;
    if (usable && *redis->quarantine->marker) {
        rlock__put_quarantine(redis);
        if (rlock__conn_say(&redis->commands, rlock__on_quarantine, redis)) {
            redis->quarantine->asked++;
        }
    }
}

/* The quarantine is over, or it is time to ask once more. */
static void rlock__quarantine_fire(rlock_timer *timer) {
    rlock__redis *redis = RLOCK__OF(timer, rlock__quarantine, timer)->redis;
    if (rlock__quarantined(redis)) {
        rlock__quarantine_ask(redis);
    } else if (rlock__conn_usable(&redis->commands)) {
        redis->events->up(redis->owner, NULL);
    }
}

/* False: there is no memory. */
static bool rlock__quarantine_init(rlock__redis *redis, const rlock_config *config) {
    rlock__quarantine *quarantine;
    RLOCK_ASSERT(!redis->quarantine);
    if (!config->quarantine_ms) {
        return true;
    }
    quarantine = (rlock__quarantine *)rlock__alloc(sizeof *quarantine);
    if (!quarantine) {
        return false;
    }
    if (rlock_timer_add(redis->client, &quarantine->timer, rlock__quarantine_fire) != RLOCK_OK) {
        rlock__dealloc(quarantine);
        return false;
    }
    quarantine->redis = redis;
    quarantine->ms = config->quarantine_ms;
    memcpy(quarantine->marker, RLOCK__MARKER_NAME, sizeof RLOCK__MARKER_NAME);
    redis->quarantine = quarantine;
    return true;
}

static void rlock__quarantine_free(rlock__redis *redis) {
    if (redis->quarantine) {
        rlock_timer_drop(redis->client, &redis->quarantine->timer);
        rlock__dealloc(redis->quarantine);
    }
}

#endif /* RLOCK__HAS_REPLICAS */

/* ------------------------------------------------------------------------------------------------
 * >>redis-credentials - credentials that are replaced while connections live
 *
 * The command connection, and that to a Sentinel, are sent AUTH: the server executes what stands
 * before it with the old rights, and what comes behind it with the new ones. If it refuses the
 * AUTH, the connection keeps the rights that it had. An acquire that is refused while an AUTH is
 * out was sent before it, and is sent once more behind it.
 *
 * The push connection is subscribed, where RESP2 allows no AUTH, and a server that knows when the
 * old token ends closes it then. So it is opened anew, as soon as the command connection's AUTH was
 * accepted: not with credentials that are refused. No wake-up is lost by that: waiters poll until
 * it listens again, and then each looks at its key, as after every push connection that was lost.
 *
 * If a handshake is refused that used the old credentials, another one begins at once.
 */

#if RLOCK__HAS_CREDENTIALS

/* Returns how often those of a connection were replaced. */
static uint32_t rlock__credentials_count(const rlock__conn *conn) {
#if RLOCK__HAS_SENTINEL
    if (rlock__is_sentinel(conn)) {
        return conn->redis->sentinel->credentials;
    }
#endif
    return conn->redis->credentials;
}

/* An attempt to connect begins. */
static void rlock__credentials_opens(rlock__conn *conn) {
    conn->renews = false;
}

/* The handshake uses those that are there now. */
static void rlock__credentials_used(rlock__conn *conn) {
    conn->credentials = rlock__credentials_count(conn);
}

/* The handshake is refused: where newer ones are there they are tried before anybody is told. */
static void rlock__credentials_refused(rlock__conn *conn, rlock_fault fault) {
    RLOCK_ASSERT(conn->state == RLOCK__CONN_HANDSHAKE);
    conn->renews = fault == RLOCK_FAULT_AUTH && conn->credentials != rlock__credentials_count(conn);
}

/* True if an acquire is refused that was sent before an AUTH which is not answered yet. */
static bool rlock__credentials_again(const rlock__redis *redis, const rlock_request *request,
                                     const redisReply *reply) {
    return redis->auths && request->op == RLOCK_OP_ACQUIRE && reply->type == REDIS_REPLY_ERROR &&
           rlock__classify(reply->str) == RLOCK_FAULT_AUTH && rlock__undone(request, reply->str);
}

/* The push connection is opened anew, unless it uses the new ones already. */
static void rlock__credentials_push(rlock__redis *redis) {
    rlock__conn *push = &redis->push;
    if (push->state >= RLOCK__CONN_HANDSHAKE && push->credentials != redis->credentials) {
        rlock__conn_fail(push, RLOCK_FAULT_DOWN, "reconnecting with new credentials");
        push->renews = true;
    }
}

static void rlock__on_credentials(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    rlock__redis *redis;
    bool main;
    (void)data;
    if (!conn) {
        return;
    }
    redis = conn->redis;
    main = conn == &redis->commands;
    RLOCK_ASSERT(!main || redis->auths);
    redis->auths -= main;
    if (!reply) {
        return;
    }
    rlock__conn_answered(conn);
    if (reply->type == REDIS_REPLY_ERROR) {
        rlock__conn_log(conn, RLOCK_LOG_WARNING, "new credentials are refused", reply->str);
        rlock__conn_report_text(conn, RLOCK_REPORT_REFUSED, 0, reply->str);
    } else if (reply->type != REDIS_REPLY_STATUS) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
    } else if (main && !redis->auths) {
        rlock__conn_log(conn, RLOCK_LOG_INFO, "new credentials are accepted", NULL);
        rlock__credentials_push(redis);
    }
}

/* Sends AUTH on a connection that is in use, if it was told others last. One without a password
 * keeps what it has. */
static void rlock__credentials_tell(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    const char *user = redis->username, *password = redis->password;
    bool main = conn == &redis->commands;
#if RLOCK__HAS_SENTINEL
    if (rlock__is_sentinel(conn)) {
        user = redis->sentinel->username;
        password = redis->sentinel->password;
    }
#endif
    if (conn == &redis->push || !rlock__conn_usable(conn) || !password ||
        conn->credentials == rlock__credentials_count(conn)) {
        return;
    }
    rlock__credentials_used(conn);
    rlock__put_words(redis, "AUTH", user ? 2 : 1);
    if (user) {
        rlock__put_text(redis, user);
    }
    rlock__put_text(redis, password);
    redis->auths += main;
    if (!rlock__conn_say(conn, rlock__on_credentials, NULL)) {
        redis->auths -= main;
    }
}

/* Tells a connection of new ones; if the old ones were refused, it tries these at once. */
static void rlock__credentials_arrive(rlock__conn *conn) {
    rlock_client *client = conn->redis->client;
    if (conn->state == RLOCK__CONN_DOWN && conn->timer.index && conn->fault == RLOCK_FAULT_AUTH) {
        rlock_timer_set(client, &conn->timer, 0);
    }
    rlock__credentials_tell(conn);
}

/* Replaces two texts by copies of others. False: no memory, and nothing has changed. */
static bool rlock__credentials_copy(char **username, char **password, const char *its_username,
                                    const char *its_password) {
    bool failed = false;
    char *user = rlock__copy_text(its_username, &failed);
    char *word = rlock__copy_text(its_password, &failed);
    if (failed) {
        rlock__dealloc(user);
        rlock__dealloc(word);
        return false;
    }
    rlock__dealloc(*username);
    rlock__dealloc(*password);
    *username = user;
    *password = word;
    return true;
}

#if RLOCK__HAS_SENTINEL
static int rlock__sentinel_set_credentials(rlock__redis *redis, const char *username,
                                           const char *password) {
    rlock__sentinel *sentinel = redis->sentinel;
    if (!sentinel) {
        return RLOCK_ERR_ARG;
    }
    if (!rlock__credentials_copy(&sentinel->username, &sentinel->password, username, password)) {
        return RLOCK_ERR_NOMEM;
    }
    sentinel->credentials++;
    rlock__credentials_arrive(&sentinel->conn);
    rlock__credentials_arrive(&redis->commands); /* it waits for what the Sentinels know */
    return RLOCK_OK;
}
#endif

static int rlock__redis_set_credentials(void *state, bool sentinels, const char *username,
                                        const char *password) {
    rlock__redis *redis = (rlock__redis *)state;
    size_t room = RLOCK__ROOM + rlock__length(username) + rlock__length(password);
    RLOCK_ASSERT(!redis->closing);
    if (!rlock__reserve(redis, room)) {
        return RLOCK_ERR_NOMEM;
    }
    if (sentinels) {
#if RLOCK__HAS_SENTINEL
        return rlock__sentinel_set_credentials(redis, username, password);
#else
        return RLOCK_ERR_ARG;
#endif
    }
    if (!rlock__credentials_copy(&redis->username, &redis->password, username, password)) {
        return RLOCK_ERR_NOMEM;
    }
    redis->credentials++;
    rlock__credentials_arrive(&redis->commands);
    return RLOCK_OK;
}

#else

#define rlock__credentials_opens(conn) (void)(conn)
#define rlock__credentials_used(conn) (void)(conn)
#define rlock__credentials_refused(conn, fault) (void)(conn)
#define rlock__credentials_tell(conn) (void)(conn)
#define rlock__credentials_again(redis, request, reply) false
#define rlock__redis_set_credentials NULL

#endif /* RLOCK__HAS_CREDENTIALS */

/* ------------------------------------------------------------------------------------------------
 * >>redis-handshake - a connection from the first attempt until it can be used
 */

/* The handshake is over. What was lost and is not surely gone stays open from there on. */
static void rlock__handshake_over(rlock__redis *redis) {
    RLOCK_ASSERT(redis->commands.state == RLOCK__CONN_READY && redis->dead_up_to <= redis->epoch);
    if (redis->lost_epoch > redis->dead_up_to) {
        redis->alive_up_to = redis->lost_epoch;
    }
    redis->lost_id = 0;
    redis->changes = RLOCK__CHANGES_TRACKED;
    redis->shards_refused = false;
    if (RLOCK__HAS_KINDS && redis->notify == RLOCK__NOTIFY_REFUSED) {
        redis->notify = RLOCK__NOTIFY_WANTED;
    }
    redis->batches = RLOCK__BATCHES_KNOWN;
    if (rlock__is_redisson(redis) || rlock__is_node(redis)) {
        redis->batches = RLOCK__BATCHES_NONE; /* HEXISTS always reads; a node has several slots */
    }
    redis->events->up(redis->owner, NULL);
}

static void rlock__conn_ready_to_use(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(conn->ac);
    RLOCK_ASSERT(conn->state == RLOCK__CONN_HANDSHAKE && !conn->outstanding);
    conn->state = RLOCK__CONN_READY;
    conn->ready_us = rlock_client_now_us(redis->client);
    rlock__conn_report(conn, RLOCK_REPORT_CONNECTED, 0);
    rlock__credentials_tell(conn);
    if (rlock__is_sentinel(conn)) {
        rlock__sentinel_ask(redis);
        return;
    }
    conn->text[0] = 0;
    rlock__conn_log(conn, RLOCK_LOG_INFO, "ready", NULL);
    if (conn == &redis->commands) {
        rlock__endpoint_worked(conn->endpoint);
        rlock__sentinel_proved(redis);
        rlock__handshake_over(redis);
    }
#if RLOCK__HAS_REPLICAS
    if (conn != &redis->commands && redis->sync) {
        redis->sync->opens = false;
    }
#endif
    rlock__track(redis);
}

/* True if a refusal of this step leaves a connection that can be used: in whatever words, since a
 * proxy has its own, unless nothing is allowed here, or not now. */
static bool rlock__step_optional(int step, const char *text) {
    rlock_fault fault = rlock__classify(text);
    bool alone = fault != RLOCK_FAULT_AUTH || strncmp(text, "NOPERM", 6) == 0;
    RLOCK_ASSERT(step >= 0 && step < RLOCK__STEPS);
    return step == RLOCK__STEP_QUARANTINE ||
           (step >= RLOCK__STEP_NAME && alone && fault != RLOCK_FAULT_BUSY);
}

/* True if the answer to HELLO, names and values, has the role of a replica. */
static bool rlock__hello_replica(const redisReply *reply) {
    size_t i;
    for (i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2) {
        const redisReply *name = reply->element[i], *value = reply->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            strcmp(name->str, "role") == 0) {
            return strcmp(value->str, "replica") == 0 || strcmp(value->str, "slave") == 0;
        }
    }
    return false;
}

/* Another type of reply is another command's: one too many came, and all later ones would be taken
 * for the answer to the wrong request. */
static bool rlock__step_answered(int step, int type) {
    static const uint8_t types[RLOCK__STEPS] = {
        REDIS_REPLY_STATUS, REDIS_REPLY_STATUS, REDIS_REPLY_STATUS, REDIS_REPLY_INTEGER,
        REDIS_REPLY_STRING, REDIS_REPLY_STRING, REDIS_REPLY_ARRAY,  REDIS_REPLY_INTEGER,
        REDIS_REPLY_ARRAY,  REDIS_REPLY_INTEGER};
    RLOCK_ASSERT(step >= 0 && step < RLOCK__STEPS);
    return type == REDIS_REPLY_ERROR || type == types[step];
}

static void rlock__conn_handshake(rlock__conn *conn);

static void rlock__on_handshake(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    redisReply *reply = (redisReply *)raw;
    int step = (int)(intptr_t)data;
    rlock__redis *redis;
    const char *words;
    if (!conn || !reply) {
        return;
    }
    redis = conn->redis;
    words = reply->type == REDIS_REPLY_STRING ? reply->str : "";
    RLOCK_ASSERT(conn->state == RLOCK__CONN_HANDSHAKE);
    rlock__conn_answered(conn);
    if (reply->type == REDIS_REPLY_ERROR && !rlock__step_optional(step, reply->str)) {
        rlock__credentials_refused(conn, rlock__classify(reply->str));
        rlock__conn_fail(conn, rlock__classify(reply->str), reply->str);
        return;
    }
    if (!rlock__step_answered(step, reply->type)) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return;
    }
#if RLOCK__HAS_REPLICAS
    if (step == RLOCK__STEP_QUARANTINE) {
        rlock__quarantine_told(redis, reply);
    }
#endif
    if (reply->type == REDIS_REPLY_ERROR && step != RLOCK__STEP_QUARANTINE &&
        step != RLOCK__STEP_REPLICATION && step != RLOCK__STEP_ROLE) { /* SERVER says so */
        rlock__conn_log(conn, RLOCK_LOG_WARNING, "refused while connecting", reply->str);
    }
    if (step == RLOCK__STEP_ID && reply->type == REDIS_REPLY_INTEGER) {
        conn->id = reply->integer;
    } else if (step == RLOCK__STEP_REPLICATION) {
        rlock__redis_inherit(redis, words);
    } else if (step == RLOCK__STEP_ROLE && rlock__hello_replica(reply)) {
        rlock__redis_is_replica(redis);
        return;
    } else if (step == RLOCK__STEP_SERVER) {
        rlock__conn_identify(conn, words);
    } else if (step == RLOCK__STEP_NATIVE) { /* nil stands for a command it does not know */
        redis->native = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
                        reply->element[0]->type == REDIS_REPLY_ARRAY;
    } else if (step == RLOCK__STEP_KILL && reply->type == REDIS_REPLY_INTEGER) {
        redis->dead_up_to = redis->lost_epoch;
    }
    if (!conn->outstanding) {
        rlock__conn_handshake(conn);
    }
}

/* Sends a step of the handshake: a command, perhaps the name of a user, and its last word. */
static void rlock__step_say(rlock__conn *conn, int step, const char *user, const char *last) {
    static const char *const words[RLOCK__STEPS] = {
        "AUTH",         "SELECT", "CLIENT SETNAME", "CLIENT",        "INFO", "INFO",
        "COMMAND INFO", NULL,     "HELLO",          "CLIENT KILL ID"};
    rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(step >= 0 && step < RLOCK__STEPS);
    RLOCK_ASSERT(conn->state == RLOCK__CONN_HANDSHAKE);
#if RLOCK__HAS_REPLICAS
    if (step == RLOCK__STEP_QUARANTINE) {
        rlock__put_quarantine(redis);
        redis->quarantine->late = false;
        rlock__conn_say(conn, rlock__on_handshake, (void *)(intptr_t)step);
        return;
    }
#endif
    rlock__put_words(redis, words[step], user ? 2 : 1);
    if (user) {
        rlock__put_text(redis, user);
    }
    rlock__put_text(redis, last);
    rlock__conn_say(conn, rlock__on_handshake, (void *)(intptr_t)step);
}

/* Sends the next step of the handshake, and those that leave together with it; or declares the
 * connection ready. A Sentinel has users of its own, and is told no more than a name. */
static void rlock__conn_handshake(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    bool main = conn == &redis->commands, sentinel = rlock__is_sentinel(conn);
    const char *user = redis->username;
    const char *last[RLOCK__STEPS]; /* the last word of each; NULL: it is left out */
    char database[21], id[21];
    RLOCK_ASSERT(!conn->outstanding && !conn->failing);
    RLOCK_ASSERT(conn->step >= 0 && conn->step <= RLOCK__STEPS);
    database[rlock__digits(database, (uint64_t)redis->database)] = 0;
    id[rlock__digits(id, (uint64_t)redis->lost_id)] = 0;
    last[RLOCK__STEP_AUTH] = redis->password;
    last[RLOCK__STEP_SELECT] = redis->database && !sentinel ? database : NULL;
    last[RLOCK__STEP_NAME] = redis->name;
    last[RLOCK__STEP_ID] = sentinel ? NULL : "ID";
    last[RLOCK__STEP_REPLICATION] = main ? "replication" : NULL;
    last[RLOCK__STEP_SERVER] = sentinel ? NULL : "server";
    last[RLOCK__STEP_NATIVE] = /* Valkey 9.0 knows it: https://valkey.io/commands/delifeq/ */
        main && !rlock__is_redisson(redis) ? "delifeq" : NULL;
    last[RLOCK__STEP_QUARANTINE] = NULL;
#if RLOCK__HAS_REPLICAS
    if (main && redis->quarantine && *redis->quarantine->marker) {
        last[RLOCK__STEP_QUARANTINE] = "";
    }
#endif
    last[RLOCK__STEP_ROLE] = main && redis->roleless ? "2" : NULL; /* which is the default */
    /* After its answer the old connection can execute nothing any more. */
    last[RLOCK__STEP_KILL] = redis->lost_id && main ? id : NULL;
#if RLOCK__HAS_SENTINEL
    if (sentinel) {
        user = redis->sentinel->username;
        last[RLOCK__STEP_AUTH] = redis->sentinel->password;
    }
#endif
    if (!conn->step) {
        rlock__credentials_used(conn);
    }
    while (conn->step < RLOCK__STEPS &&
           (!conn->outstanding || /* what follows the name waits for no answer */
            (conn->step > RLOCK__STEP_NAME && conn->step <= RLOCK__STEP_QUARANTINE))) {
        if (last[conn->step]) {
            rlock__step_say(conn, conn->step, conn->step == RLOCK__STEP_AUTH ? user : NULL,
                            last[conn->step]);
        }
        conn->step++;
    }
    if (!conn->outstanding && !conn->failing) {
        rlock__conn_ready_to_use(conn);
    }
}

static void rlock__on_connect(const redisAsyncContext *ac, int status) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const rlock_tls *tls;
    if (!conn) {
        return;
    }
    if (status != REDIS_OK) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, ac->errstr);
        return; /* hiredis frees it, through rlock__want_nothing */
    }
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING && !conn->outstanding);
    conn->state = RLOCK__CONN_HANDSHAKE;
    conn->redis->stats->connects++;
    conn->step = 0;
    tls = rlock__conn_tls(conn);
    if (tls && tls->start(tls->ctx, conn->ac, conn->endpoint->host) < 0) {
        rlock__conn_fail_why(conn, RLOCK_FAULT_DOWN, "TLS cannot start");
    }
}

static void rlock__on_disconnect(const redisAsyncContext *ac, int status) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    if (conn) {
        rlock__conn_fail(conn, rlock__why_down(ac->errstr), status == REDIS_OK ? "" : ac->errstr);
    }
}

/* After every visit to hiredis: close what has failed, watch what it wants. */
static void rlock__conn_tend(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    if (!conn->failing && conn->ac && conn->state == RLOCK__CONN_HANDSHAKE && conn->step == 0) {
        rlock__conn_handshake(conn);
    }
    if (conn->ac && !conn->failing && conn->ac->err) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, conn->ac->errstr);
    }
    if (conn->ac && !conn->failing &&
        rlock_io_watch(redis->client, &conn->io, conn->fd, conn->want) != 0) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "the loop cannot watch the connection");
    }
    if (conn->strayed && !conn->outstanding && !rlock__redis_owes(redis)) {
        conn->failing = true;
    }
    if (conn->failing && rlock__is_sentinel(conn)) {
        rlock__sentinel_closed(redis);
    } else if (conn->failing && conn == &redis->commands) {
        rlock__commands_failed(redis);
    } else if (conn->failing) {
        rlock__conn_closed(conn);
    }
}

static void rlock__conn_visit(rlock__conn *conn, unsigned events) {
    RLOCK_ASSERT(conn->ac);
    rlock__conn_prepare(conn);
    if (!conn->failing && (events & conn->want & RLOCK_IO_READ)) {
        redisAsyncHandleRead(conn->ac); /* first: a refusal is read before a write fails */
    }
    if (conn->ac && !conn->failing && (events & conn->want & RLOCK_IO_WRITE) &&
        !rlock_client_forked(conn->redis->client)) { /* by config.log */
        redisAsyncHandleWrite(conn->ac);
    }
    if (events & RLOCK_IO_WRITE) {
        conn->blocked = conn->ac && (conn->want & RLOCK_IO_WRITE);
    }
    rlock__conn_tend(conn);
}

static void rlock__conn_on_io(rlock_io *io, unsigned events) {
    rlock__conn *conn = RLOCK__OF(io, rlock__conn, io);
    struct pollfd ask; /* hiredis 0.14 takes a spurious event for an established connection */
    ask.fd = conn->fd;
    ask.events = POLLOUT;
    ask.revents = 0;
    if (conn->state != RLOCK__CONN_OPENING || poll(&ask, 1, 0) > 0) {
        rlock__conn_visit(conn, events);
    }
}

/* Takes over a context on which a connect was started. */
static void rlock__conn_adopt(rlock__conn *conn, redisAsyncContext *ac) {
    RLOCK_ASSERT(!conn->ac);
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING);
    if (!ac || ac->err) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, ac ? ac->errstr : "no connection yet");
        if (ac) {
            memset(&ac->ev, 0, sizeof ac->ev);
            redisAsyncFree(ac);
        }
        return;
    }
    conn->ac = ac;
    conn->fd = ac->c.fd;
    fcntl(conn->fd, F_SETFD, fcntl(conn->fd, F_GETFD) | FD_CLOEXEC); /* no program that this one
                                                                        starts keeps it open */
    conn->want = 0;
    ac->data = conn;
    ac->ev.data = conn;
    ac->ev.addRead = rlock__want_read;
    ac->ev.delRead = rlock__want_no_read;
    ac->ev.addWrite = rlock__want_write;
    ac->ev.delWrite = rlock__want_no_write;
    ac->ev.cleanup = rlock__want_nothing;
    ac->onConnect = rlock__on_connect; /* a connect hook may have set its own */
    ac->onDisconnect = rlock__on_disconnect;
#if HIREDIS_MAJOR > 1 || (HIREDIS_MAJOR == 1 && HIREDIS_MINOR >= 1)
    ac->onConnectNC = NULL;
#endif
    rlock__conn_guard(conn, ac);
    conn->want = RLOCK_IO_READ | RLOCK_IO_WRITE;
    if (conn == &conn->redis->commands) {
        conn->redis->epoch++;
        RLOCK_ASSERT(conn->redis->dead_up_to < conn->redis->epoch);
    }
}

/* Connects to the address whose turn it is. */
static void rlock__conn_dial(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    int64_t patience_us = rlock__conn_timeout_us(conn);
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING && !conn->ac);
    if (rlock__endpoint_more(conn->endpoint)) {
        patience_us = rlock__endpoint_patience_us(conn->endpoint, redis->timeout_us);
    }
    rlock__conn_wait(conn, patience_us);
    rlock__conn_adopt(conn, rlock__endpoint_connect(conn->endpoint));
}

/* True if an attempt waits for a Sentinel, whatever name was asked for before. */
static bool rlock__conn_asks(const rlock__conn *conn) {
    return conn == &conn->redis->commands && rlock__sentinel_waited(conn->redis);
}

#if RLOCK__HAS_NAMES

/* The resolver has answered, or fails and says why: then the address that worked last is used. */
static void rlock__conn_found(rlock__conn *conn, const struct sockaddr *const *addresses,
                              unsigned count, const char *why) {
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING && !conn->ac);
    rlock__endpoint_found(conn->endpoint, addresses, count);
    if (conn->endpoint->count) {
        rlock__conn_dial(conn);
    } else {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, why);
    }
}

/* Uses the addresses if they are those of the host that the attempt waits for, or of a Sentinel
 * whose turn it was before: else the attempt went on without them. */
static void rlock__on_name(rlock_name *name, const struct sockaddr *const *addresses,
                           unsigned count) {
    rlock__lookup *lookup = RLOCK__OF(name, rlock__lookup, name);
    rlock__conn *conn = lookup->conn;
    bool waits = conn->state == RLOCK__CONN_OPENING && !conn->ac && !rlock__conn_asks(conn);
    char *host = lookup->host; /* NULL: nobody asked */
    bool its = waits && host && strcmp(host, conn->endpoint->host) == 0;
    bool former = waits && host && !its && count && rlock__is_sentinel(conn);
    if (former) {
        rlock__sentinel_turns_to(conn->redis, host);
    }
    lookup->host = NULL;
    rlock__dealloc(host);
    if (its || former) {
        rlock__conn_found(conn, addresses, count, "the host's name was not found");
        rlock__conn_tend(conn);
    }
}

/* Returns a lookup to be used; NULL: so many names are being resolved, or there is no memory. */
static rlock__lookup *rlock__lookup_get(rlock__conn *conn) {
    rlock__lookup *lookup = conn->lookups;
    uint32_t count = 0;
    while (lookup && lookup->host) {
        lookup = lookup->next;
        count++;
    }
    RLOCK_ASSERT(count <= RLOCK__LOOKUPS);
    if (lookup || count == RLOCK__LOOKUPS) {
        return lookup;
    }
    lookup = (rlock__lookup *)rlock__alloc(sizeof *lookup);
    if (lookup) {
        lookup->conn = conn;
        lookup->name.resolved = rlock__on_name;
        lookup->next = conn->lookups;
        conn->lookups = lookup;
    }
    return lookup;
}

/* Connects to the host of the endpoint, whose name is resolved anew. Names are resolved side by
 * side, each once at a time: a lookup cannot be cancelled, and one that hangs delays no other. */
static void rlock__conn_resolve(rlock__conn *conn) {
    rlock__lookup *lookup;
    bool failed = false;
    if (rlock__is_localhost(conn->endpoint->host)) {
        rlock__endpoint_local(conn->endpoint);
    }
    if (rlock__numeric(conn->endpoint->host)) {
        rlock__conn_dial(conn);
        return;
    }
    if (rlock__conn_lookup(conn, conn->endpoint->host)) {
        return;
    }
    lookup = rlock__lookup_get(conn);
    if (!lookup) {
        rlock__conn_found(conn, NULL, 0, "too many names are being resolved");
        return;
    }
    lookup->host = rlock__copy_text(conn->endpoint->host, &failed);
    if (failed || rlock_name_resolve(conn->redis->client, &lookup->name, lookup->host) != 0) {
        rlock__dealloc(lookup->host);
        lookup->host = NULL;
        rlock__conn_found(conn, NULL, 0, "the loop cannot resolve the name");
    }
}

#else

/* Only a Sentinel can name a host here that is no address. */
static void rlock__conn_resolve(rlock__conn *conn) {
    if (RLOCK__HAS_SENTINEL && !rlock__numeric(conn->endpoint->host)) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "a host name needs RLOCK_WITH_NAMES");
        return;
    }
    rlock__conn_dial(conn);
}

#endif /* RLOCK__HAS_NAMES */

/* Begins an attempt, or goes on with it at the next address. The push connection goes where the
 * other one went. */
static void rlock__conn_open(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    bool walks = conn->walks;
    RLOCK_ASSERT(conn->state == RLOCK__CONN_DOWN && !conn->ac);
    RLOCK_ASSERT(!conn->failing && !conn->outstanding);
    conn->state = RLOCK__CONN_OPENING;
    conn->error_kept = conn->walks = conn->moved = conn->refused = false;
    rlock__credentials_opens(conn);
    rlock__conn_wait(conn, rlock__conn_timeout_us(conn));
    if (redis->connect) {
        rlock__conn_adopt(conn, redis->connect(redis->user));
    } else if (redis->unix_path) {
        rlock__conn_adopt(conn, redisAsyncConnectUnix(redis->unix_path));
    } else if (walks || conn == &redis->push) {
#if RLOCK__HAS_NAMES
        conn->endpoint->at += walks;
#endif
        rlock__conn_dial(conn);
    } else if (rlock__is_sentinel(conn) || !rlock__sentinel_wanted(redis)) {
        rlock__conn_resolve(conn);
    }
    rlock__conn_tend(conn);
}

/* An attempt waits for a Sentinel or a resolver, or a Sentinel has answered. Instead of a name that
 * is not resolved the address that worked last is used. Without one the answer may come yet, and
 * another attempt would wait for it too. */
static void rlock__conn_waits(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    bool moved = conn->moved, resolving;
    RLOCK_ASSERT(conn->state == RLOCK__CONN_OPENING && !conn->ac);
    rlock__conn_wait(conn, rlock__conn_timeout_us(conn));
    if (rlock__conn_asks(conn)) {
        redis->events->down(redis->owner, NULL, RLOCK_FAULT_DOWN, "no Sentinel has answered");
        return;
    }
    resolving = rlock__conn_lookup(conn, conn->endpoint->host) != NULL;
    conn->moved = false;
    rlock__conn_resolve(conn);
#if RLOCK__HAS_NAMES
    if (resolving && !moved) {
        rlock__endpoint_found(conn->endpoint, NULL, 0);
        if (conn->endpoint->count) {
            rlock__conn_dial(conn);
        } else if (rlock__is_sentinel(conn)) { /* another one may have an answer */
            rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "the name is not resolved");
        } else {
            redis->events->down(redis->owner, NULL, RLOCK_FAULT_DOWN, "the name is not resolved");
        }
    }
#else
    (void)moved;
    (void)resolving;
#endif
    rlock__conn_tend(conn);
}

/* Does what is due on a connection on which no answer is late. */
static void rlock__conn_idles(rlock__conn *conn) {
    rlock__redis *redis = conn->redis;
    RLOCK_ASSERT(conn->state >= RLOCK__CONN_HANDSHAKE && conn->ac);
    if (conn->outstanding ||
        conn->alive_us + rlock__conn_quiet_us(conn) > rlock_client_now_us(redis->client)) {
        return;
    }
    if (rlock__is_sentinel(conn)) { /* in a handshake an answer is out */
        rlock__sentinel_ask(redis);
    } else if (conn == &redis->push && redis->subscribed) {
        rlock__push_subscribe(redis); /* a PING's answer gets lost before hiredis 1.1 */
    }
}

/* Time for the next attempt, for a look whether the server still answers, or for a heartbeat. */
static void rlock__conn_fire(rlock_timer *timer) {
    rlock__conn *conn = RLOCK__OF(timer, rlock__conn, timer);
    rlock__redis *redis = conn->redis;
    int64_t now_us = rlock_client_now_us(redis->client);
    int64_t timeout_us = rlock__conn_timeout_us(conn);
    if (conn->state == RLOCK__CONN_DOWN) {
        if (conn != &redis->push || redis->commands.state == RLOCK__CONN_READY) {
            rlock__conn_open(conn); /* else rlock__track sees to it, once the other is there */
        }
        return;
    }
    if (conn->state == RLOCK__CONN_OPENING) {
        if (!conn->ac) {
            rlock__conn_waits(conn);
            return;
        }
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "no answer while connecting");
        rlock__conn_tend(conn);
        return;
    }
    if (conn->outstanding && conn->alive_us + timeout_us <= now_us) {
        if (!conn->doubted) { /* we may have slept: first a look at the socket, in the next turn, */
            conn->doubted = true; /* because what has expired comes before what is answered */
            rlock_timer_set(redis->client, timer, now_us + 1);
            return;
        }
        rlock__conn_fail_why(conn, RLOCK_FAULT_DOWN, "the server does not answer");
        rlock__conn_tend(conn);
    } else {
        rlock__conn_idles(conn);
    }
    conn->doubted = false;
    if (conn->state >= RLOCK__CONN_HANDSHAKE && (conn->outstanding || conn != &redis->commands)) {
        int64_t due_us = conn->alive_us + rlock__conn_quiet_us(conn);
        rlock_timer_set(redis->client, timer, due_us > now_us ? due_us : now_us + timeout_us);
    }
}

/* False: there is no memory. */
RLOCK__NOINLINE static bool rlock__conn_init(rlock__conn *conn, rlock__redis *redis,
                                             rlock__endpoint *endpoint) {
    bool added = rlock_timer_add(redis->client, &conn->timer, rlock__conn_fire) == RLOCK_OK;
    conn->redis = added ? redis : NULL;
    conn->endpoint = endpoint;
    conn->io.ready = rlock__conn_on_io;
    conn->fd = -1;
    return added;
}

/* ------------------------------------------------------------------------------------------------
 * >>redis-who - what a client says of itself, in the names of its connections
 *
 * A connection is named rlock:ID:TEXT, where ID is that of the client, which begins its tokens, and
 * TEXT its description with %XX for what a name may not have. A question for descriptions goes out
 * as three commands on one connection: CLIENT LIST, a script that lists the tokens, the question
 * itself, whose answer ends it. What the first two answered is kept until then.
 */

#if RLOCK__HAS_DESCRIPTIONS

#define RLOCK__NAME_HEAD "rlock:"
#define RLOCK__DESCRIPTION_MAX 128u

/* Returns what is wrong with the description of a configuration, or NULL. */
static const char *rlock__description_fault(const rlock_config *config) {
    const char *at = config->description;
    size_t left = rlock__length(at);
    bool good = left > 0 && left <= RLOCK__DESCRIPTION_MAX;
    if (!at) {
        return NULL;
    }
    if (config->client_name) {
        return RLOCK__TEXT("config.description cannot be combined with config.client_name: a "
                           "connection has one name");
    }
    while (good && left > 0) {
        uint32_t code;
        size_t size = rlock__utf8(at, left, &code);
        good = size && rlock__is_plain(code);
        at += size;
        left -= size;
    }
    return good ? NULL
                : RLOCK__TEXT("config.description: expected 1 to 128 bytes of UTF-8, without "
                              "control characters");
}

/* Returns the name of the connections of a client; NULL: no memory. */
static char *rlock__description_name(const rlock_client *client, const char *text) {
    static const char head[] = RLOCK__NAME_HEAD;
    char *name = (char *)RLOCK_MALLOC(sizeof head + RLOCK__TOKEN_HEAD + 3 * strlen(text)),
         *at = name;
    if (!name) {
        return NULL;
    }
    at += strlen(strcpy(at, head));
    at += strlen(strcpy(at, rlock_client_id(client)));
    *at++ = ':';
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte > ' ' && byte < 127 && byte != '%') {
            *at++ = *text;
            continue;
        }
        *at++ = '%';
        rlock__hex(at, text, 1);
        at += 2;
    }
    *at = 0;
    return name;
}

/* Puts the name of the connections of a client into its place. False: no memory. */
static bool rlock__description_configure(rlock__redis *redis, const rlock_config *config) {
    if (config->description) {
        redis->name = rlock__description_name(redis->client, config->description);
    }
    return !config->description || redis->name;
}

#else

static const char *rlock__description_fault(const rlock_config *config) {
    return config->description ? RLOCK__NEEDS("config.description", "RLOCK_WITH_DESCRIPTIONS")
                               : NULL;
}

#define rlock__description_configure(redis, config) true

#endif /* RLOCK__HAS_DESCRIPTIONS */

#if RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_KINDS

/* What a question has been answered up to now. */
struct rlock__told {
    char *names;  /* those of clients that describe themselves, each with its NUL, then one more */
    char *tokens; /* what the script said */
    size_t tokens_len;
    char *refusal;  /* why there are no names, or no tokens; NULL: there are */
    rlock_who *who; /* the list, while it is answered */
};

static void rlock__told_forget(rlock__redis *redis) {
    struct rlock__told *told = redis->told;
    if (told) {
        rlock__dealloc(told->names);
        rlock__dealloc(told->tokens);
        rlock__dealloc(told->refusal);
        rlock__dealloc(told->who);
        memset(told, 0, sizeof *told);
    }
}

static void rlock__told_free(rlock__redis *redis) {
    rlock__told_forget(redis);
    rlock__dealloc(redis->told);
}

static void rlock__told_refused(struct rlock__told *told, const redisReply *reply) {
    if (!told->refusal) {
        told->refusal = rlock__copy(reply->str, (size_t)reply->len);
    }
}

/* Copies the text of a name with each %XX decoded, but for a NUL. Returns where that ends. */
static char *rlock__name_decode(char *to, const char *text, size_t len) {
    const char *end = text + len;
    while (text < end) {
        char hex[3] = "";
        *to = *text++;
        if (*to == '%' && end - text >= 2) {
            memcpy(hex, text, 2);
            if (strspn(hex, "0123456789abcdefABCDEF") == 2 && strtol(hex, NULL, 16) > 0) {
                *to = (char)strtol(hex, NULL, 16);
                text += 2;
            }
        }
        to++;
    }
    return to;
}

/* Keeps the names that describe a client, out of the lines of CLIENT LIST. NULL: no memory. */
static char *rlock__names_kept(const char *list) {
    static const char field[] = " name=" RLOCK__NAME_HEAD;
    char *names = (char *)RLOCK_MALLOC(strlen(list) + 2), *to = names;
    const char *at = list;
    while (names && (at = strstr(at, field)) != NULL) {
        size_t len;
        at += sizeof field - 1;
        len = strcspn(at, " \n");
        if (len > RLOCK__TOKEN_HEAD) {
            to = rlock__name_decode(to, at, len);
            *to++ = 0;
        }
    }
    if (names) {
        *to = 0;
    }
    return names;
}

/* True if the answer is one to a question that waits for it: a text, or an error. */
static bool rlock__told_hears(rlock__conn *conn, const redisReply *reply) {
    if (!conn || !reply) {
        return false;
    }
    rlock__conn_answered(conn);
    if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_fail(conn, RLOCK_FAULT_DOWN, "unexpected reply");
        return false;
    }
    return true;
}

static void rlock__on_names(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    (void)data;
    if (!rlock__told_hears(conn, reply)) {
        return;
    }
    rlock__told_forget(conn->redis);
    if (reply->type == REDIS_REPLY_ERROR) {
        rlock__told_refused(conn->redis->told, reply);
    } else {
        conn->redis->told->names = rlock__names_kept(reply->str);
    }
}

static void rlock__on_tokens(redisAsyncContext *ac, void *raw, void *data) {
    rlock__conn *conn = (rlock__conn *)ac->data;
    const redisReply *reply = (const redisReply *)raw;
    struct rlock__told *told;
    (void)data;
    if (!rlock__told_hears(conn, reply)) {
        return;
    }
    told = conn->redis->told;
    if (reply->type == REDIS_REPLY_ERROR) {
        rlock__told_refused(told, reply);
    } else {
        RLOCK_ASSERT(!told->tokens); /* the names before them began anew */
        told->tokens = rlock__copy(reply->str, (size_t)reply->len);
        told->tokens_len = (size_t)reply->len;
    }
}

/* Sends what a command needs before it: ASKING, and what a question for descriptions asks first.
 * False: it is not sent. */
static bool rlock__command_leads(rlock__redis *redis, const rlock__command *command) {
    const rlock_request *request = command->requests[0];
    bool queued;
    if (!(request->flags & RLOCK_REQUEST_DESCRIBE)) {
        return rlock__command_asks(redis, command);
    }
    RLOCK_ASSERT(request->op == RLOCK_OP_INSPECT && command->count == 1);
    if (!redis->told) {
        redis->told = (struct rlock__told *)rlock__alloc(sizeof *redis->told);
    }
    if (!redis->told) {
        return false;
    }
    rlock__put_words(redis, "CLIENT LIST TYPE normal", 0);
    if (!rlock__conn_say(&redis->commands, rlock__on_names, NULL) ||
        !rlock__command_asks(redis, command)) {
        return false;
    }
    queued = rlock__is_queued(request);
    rlock__put_command(redis, queued ? 5 : 4);
    rlock__put_eval(redis, rlock__lua_who, true, queued ? 2 : 1);
    rlock__put_bytes(redis, request->key, request->key_len);
    if (queued) {
        rlock__put_own_key(redis, request->key, request->key_len, ":queue");
    }
    return rlock__conn_say(&redis->commands, rlock__on_tokens, NULL) &&
           rlock__command_asks(redis, command);
}

/* Returns what the client of a token says of itself, or NULL. */
static const char *rlock__told_of(const char *names, const char *token, size_t len) {
    size_t head = RLOCK__TOKEN_HEAD;
    const char *at = len > head && token[head - 1] == ':' ? names : NULL;
    for (; at && *at; at += strlen(at) + 1) {
        if (strlen(at) > head && memcmp(at, token, head) == 0) {
            return at + head;
        }
    }
    return NULL;
}

/* Reads the next holder or waiter that the script told of: see who.lua. False: there is none. */
static bool rlock__who_next(const char **at, const char *end, rlock_who *who) {
    const char *text = *at;
    char *rest;
    if (end - text < 6 || text[1] != ' ') {
        return false;
    }
    who->waits = text[0] == 'w';
    who->left_ms = strtoll(text + 2, &rest, 10);
    who->token_len = strtoul(rest, &rest, 10);
    if (*rest != ' ' || who->token_len > (size_t)(end - rest - 1)) {
        return false;
    }
    who->token = rest + 1;
    *at = rest + 1 + who->token_len;
    return true;
}

/* Puts the list into an answer that has one to a question for descriptions. */
static void rlock__who_fill(rlock__redis *redis, const rlock_request *request, rlock_info *info) {
    struct rlock__told *told = redis->told;
    const char *at, *end;
    rlock_who *who;
    if (!(request->flags & RLOCK_REQUEST_DESCRIBE)) {
        return;
    }
    RLOCK_ASSERT(told && !told->who);
    info->untold = told->refusal;
    who = told->tokens ? (rlock_who *)rlock__alloc(RLOCK__WHO_MAX * sizeof *who) : NULL;
    if (!who) {
        return;
    }
    at = told->tokens;
    end = at + told->tokens_len;
    while (info->who_count < RLOCK__WHO_MAX && rlock__who_next(&at, end, &who[info->who_count])) {
        rlock_who *one = &who[info->who_count++];
        one->description = rlock__told_of(told->names, one->token, one->token_len);
    }
    info->who = told->who = who;
}

#else

#define rlock__command_leads rlock__command_asks
#define rlock__told_forget(redis) ((void)(redis))
#define rlock__told_free(redis) ((void)(redis))
#define rlock__who_fill(redis, request, info) ((void)(info))

#endif /* RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_KINDS */

/* ------------------------------------------------------------------------------------------------
 * >>redis-store - requests in their order, many in one command, and what is answered
 */

static void rlock__redis_submit(void *state, rlock_request *request) {
    rlock__redis *redis = (rlock__redis *)state;
    bool urgent =
        request->op == RLOCK_OP_RELEASE || request->due_us <= rlock_client_now_us(redis->client);
    RLOCK_ASSERT(request->key_len);
    RLOCK_ASSERT(urgent || request->op <= RLOCK_OP_RENEW);
    RLOCK_ASSERT(!redis->closing);
    request->store.own[RLOCK__ENCODING] = RLOCK__AS_BEST;
    request->store.stage = RLOCK__QUEUED;
    request->store.own[RLOCK__ASKING] = 0;
    if (rlock__is_queued(request) && redis->notify == RLOCK__NOTIFY_UNUSED) {
        redis->notify = RLOCK__NOTIFY_WANTED; /* with the push connection, once that is wanted */
        rlock__notify_subscribe(redis);
    }
    rlock__list_append(&redis->queues[urgent ? RLOCK__URGENT : 1 + request->op],
                       &request->store.link);
    rlock__conn_wanted(&redis->commands);
}

static bool rlock__redis_forget(void *state, rlock_request *request) {
    bool maybe = request->store.stage == RLOCK__FLYING;
    RLOCK_ASSERT(maybe || request->store.stage == RLOCK__QUEUED);
    (void)state;
    if (maybe) {
        rlock__command *command = (rlock__command *)request->store.data;
        uint32_t i = 0;
        while (command->requests[i] != request) {
            RLOCK_ASSERT(i < command->count);
            i++;
        }
        command->requests[i] = NULL;
    } else {
        rlock__list_remove(&request->store.link);
    }
    return maybe;
}

/* Lets it go out once more, in another way. */
RLOCK__NOINLINE static void rlock__request_again(rlock__redis *redis, rlock_request *request,
                                                 uint8_t encoding) {
    RLOCK_ASSERT(request->store.stage == RLOCK__FLYING);
    RLOCK_ASSERT(encoding != RLOCK__AS_PLAIN && !redis->closing);
    request->store.own[RLOCK__ENCODING] = encoding;
    request->next = 0; /* it may have asked already */
    request->store.stage = RLOCK__QUEUED;
    rlock__list_append(&redis->queues[RLOCK__URGENT], &request->store.link);
}

/* Whether the reply only says that it has to be asked in another way. */
static bool rlock__other_way(rlock__redis *redis, rlock_request *request, const redisReply *reply) {
    bool error = reply->type == REDIS_REPLY_ERROR, again = false;
    bool behind = request->store.own[RLOCK__ENCODING] == RLOCK__AS_BEHIND;
    RLOCK_ASSERT(request->store.own[RLOCK__ENCODING] <= RLOCK__AS_FULL);
    if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN && request->op == RLOCK_OP_ACQUIRE) {
        again = reply->type == REDIS_REPLY_NIL; /* held: by whom, and for how long? */
    } else if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_PLAIN) {
        again = (error && !rlock__redirected(reply->str)) ||
                (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0);
        redis->native =
            redis->native && !(error && rlock__classify(reply->str) == RLOCK_FAULT_AUTH);
    }
    if (rlock__credentials_again(redis, request, reply)) {
        rlock__request_again(redis, request, RLOCK__AS_BEST);
        return true;
    }
    if (again) {
        rlock__request_again(redis, request, RLOCK__AS_SCRIPT);
    } else if (error && (request->store.own[RLOCK__ENCODING] == RLOCK__AS_SCRIPT || behind) &&
               strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        rlock__request_again(redis, request, behind ? RLOCK__AS_FULL : RLOCK__AS_EVAL);
        again = true;
    }
    return again;
}

static void rlock__answer_one(rlock__redis *redis, rlock_request *request,
                              const redisReply *reply) {
    rlock_answer answer;
    rlock_info info;
    RLOCK_ASSERT(request->store.stage == RLOCK__FLYING && request->store.data);
    if (rlock__other_way(redis, request, reply)) {
        return;
    }
    memset(&answer, 0, sizeof answer);
    rlock__parse(request, reply, &answer, &info);
    if (reply->type != REDIS_REPLY_ERROR) {
        rlock__who_fill(redis, request, &info);
    }
    if (answer.outcome == RLOCK_OUTCOME_FAULT && reply->type != REDIS_REPLY_ERROR) {
        rlock__conn_fail(&redis->commands, RLOCK_FAULT_DOWN, answer.text);
    }
    if (answer.outcome == RLOCK_OUTCOME_HELD && rlock__is_queued(request) &&
        !(request->flags & RLOCK_REQUEST_ONCE) && !redis->queue_wanted) {
        redis->queue_wanted = true;
        rlock__track(redis);
    }
    answer.watched = answer.outcome == RLOCK_OUTCOME_HELD &&
                     ((const rlock__command *)request->store.data)->heard;
    rlock__answer(redis, request, &answer);
    rlock__told_forget(redis);
}

/* Of a batch: a word for each, or one for all. Where the script cannot run each is asked alone. */
static void rlock__answer_batch(rlock__redis *redis, const rlock__command *command,
                                const redisReply *reply) {
    bool each = reply->type == REDIS_REPLY_STRING && reply->len == command->count;
    bool refused = reply->type == REDIS_REPLY_ERROR && /* it speaks of the script */
                   rlock__classify(reply->str) != RLOCK_FAULT_BUSY;
    uint8_t encoding = RLOCK__AS_SCRIPT;
    uint32_t i;
    RLOCK_ASSERT(command->count > 1 && command->op == RLOCK_OP_RENEW);
    if (refused && command->encoding == RLOCK__AS_SCRIPT &&
        strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        redis->batches = RLOCK__BATCHES_UNTOLD;
        encoding = RLOCK__AS_BEST;
    } else if (refused) {
        redis->batches = RLOCK__BATCHES_NONE;
    }
    for (i = 0; i < command->count; i++) {
        rlock_request *request = command->requests[i];
        rlock_answer answer;
        if (!request) {
            continue;
        }
        memset(&answer, 0, sizeof answer); /* done, if nothing else is said */
        if (each && reply->str[i] == '1') {
            rlock__answer(redis, request, &answer);
        } else if (each || refused) {
            rlock__request_again(redis, request, encoding);
        } else {
            rlock__answer_one(redis, request, reply);
        }
    }
}

/* A replica, or a node of a cluster that has not this key: the address may lead elsewhere by now,
 * and is asked for anew. A node that serves other keys is given up for a MOVED now and then. */
static void rlock__redis_astray(rlock__redis *redis, const redisReply *reply) {
    const rlock__error *error;
    bool moved;
    if (reply->type != REDIS_REPLY_ERROR) {
        redis->served = true;
        return;
    }
    error = rlock__error_of(reply->str);
    moved = error == &rlock__errors[RLOCK__ERROR_MOVED];
    if (rlock__is_node(redis) || (!moved && error != &rlock__errors[RLOCK__ERROR_ASTRAY])) {
        return;
    }
    if (moved) {
        int64_t now_us = rlock_client_now_us(redis->client);
        if (redis->served && redis->moved_us && now_us - redis->moved_us < RLOCK__MOVED_MS * 1000) {
            return;
        }
        redis->moved_us = now_us;
    }
    rlock__redis_strays(redis, reply->str);
}

static void rlock__on_reply(redisAsyncContext *ac, void *raw, void *data) {
    rlock__command *command = (rlock__command *)data;
    rlock__redis *redis = command->redis;
    const redisReply *reply = (const redisReply *)raw;
    uint32_t i;
    RLOCK_ASSERT(redis->bytes >= command->bytes);
    RLOCK_ASSERT(command->count && command->count <= RLOCK__BATCH);
    RLOCK_ASSERT(command->kept == 0 && command->requests);
    (void)ac;
    redis->bytes -= command->bytes;
    redis->script_in_flight = command->tells ? NULL : redis->script_in_flight;
    if (reply) {
        rlock__conn_answered(&redis->commands);
    } else if (command->op == RLOCK_OP_ACQUIRE ||
               (RLOCK__HAS_KINDS && command->op > RLOCK_OP_INSPECT)) {
        redis->lost_epoch = redis->epoch; /* no other does harm when it is executed late */
    }
    if (reply && !redis->closing) {
        rlock__redis_astray(redis, reply);
        if (command->count > 1) {
            rlock__answer_batch(redis, command, reply);
        } else if (command->requests[0]) {
            rlock__answer_one(redis, command->requests[0], reply);
        }
    }
    for (i = 0; i < command->count && !reply && !redis->closing; i++) {
        if (command->requests[i]) {
            rlock__answer_unknown(redis, command->requests[i]);
        }
    }
    rlock__command_done(redis, command);
}

/* True if it may go in a batch of renewals whose leases are those of the first one. */
static bool rlock__batched(const rlock_request *request, const rlock_request *first) {
    return request->op == RLOCK_OP_RENEW && request->store.own[RLOCK__ENCODING] == RLOCK__AS_BEST &&
           request->lease_ms == first->lease_ms && request->longest_ms == first->longest_ms &&
           !(RLOCK__HAS_KINDS && request->terms) && !(RLOCK__HAS_TOKENS && request->id);
}

/* Takes the next request out of a queue, and the renewals behind it that can go with it. NULL: no
 * memory, and none is taken. */
static rlock__command *rlock__command_take(rlock__redis *redis, rlock_link *queue) {
    rlock_request *first = RLOCK__OF(queue->next, rlock_request, store.link), *request;
    rlock__command *command = RLOCK__FIRST(&redis->spare, rlock__command, link);
    size_t bytes = first->key_len;
    if (command) {
        rlock__list_remove(&command->link);
    } else {
        command = (rlock__command *)rlock__alloc(sizeof *command);
    }
    if (!command) {
        return NULL;
    }
    rlock__list_remove(&first->store.link);
    command->redis = redis;
    command->one = first;
    command->requests = &command->one;
    command->count = 1;
    command->kept = 0;
    command->op = first->op;
    command->encoding = RLOCK__AS_SCRIPT;
    if (redis->batches == RLOCK__BATCHES_NONE || !rlock__batched(first, first) ||
        rlock__list_empty(queue)) {
        return command;
    }
    if (!command->batch && rlock__reserve(redis, RLOCK__BATCH_ROOM)) {
        command->batch = (rlock_request **)RLOCK_MALLOC(RLOCK__BATCH * sizeof first);
    }
    if (!command->batch) {
        return command; /* each alone */
    }
    command->batch[0] = first;
    command->requests = command->batch;
    while (command->count < RLOCK__BATCH &&
           (request = RLOCK__FIRST(queue, rlock_request, store.link)) != NULL &&
           rlock__batched(request, first) && bytes + request->key_len <= RLOCK__BATCH_BYTES) {
        rlock__list_remove(&request->store.link);
        bytes += request->key_len;
        command->requests[command->count++] = request;
    }
    return command;
}

static void rlock__command_put(rlock__redis *redis, rlock__command *command) {
    RLOCK_ASSERT(command->count);
    RLOCK_ASSERT(command->count <= RLOCK__BATCH && command->redis == redis);
    command->tells = false;
    command->heard = (redis->pushing & RLOCK_PUSH_CHANGES) && !rlock__by_channel(redis);
    if (command->count == 1) {
        rlock_request *request = command->requests[0];
        if (request->store.own[RLOCK__ENCODING] == RLOCK__AS_EVAL &&
            redis->script_in_flight == rlock__script_of(redis, request)) {
            request->store.own[RLOCK__ENCODING] = RLOCK__AS_BEHIND;
        }
        command->tells = request->store.own[RLOCK__ENCODING] == RLOCK__AS_EVAL;
        rlock__put_request(redis, request);
        return;
    }
    if (redis->batches == RLOCK__BATCHES_UNTOLD) {
        redis->batches = RLOCK__BATCHES_KNOWN;
        command->encoding = RLOCK__AS_EVAL;
    }
    rlock__put_batch(redis, command);
}

/* Of a release with its script, which may not fail for want of memory. */
static size_t rlock__release_room(const rlock__redis *redis, const rlock_request *request) {
    size_t bytes = RLOCK__ROOM + 3 * request->key_len + 2 * strlen(redis->prefix);
    uint32_t i;
#if RLOCK__HAS_KINDS
    if (rlock__is_queued(request)) {
        bytes += sizeof rlock__lua_queue;
    }
#endif
    for (i = 1; i < rlock__request_keys(request); i++) {
        bytes += request->terms->lens[i] + 16u;
    }
    return bytes;
}

/* Returns the epoch to note with a token of which an attempt leaves now: the oldest one that is not
 * surely gone; of two nodes of a cluster none says so. */
static uint32_t rlock__epoch_noted(const rlock__redis *redis, uint32_t note) {
    uint32_t epoch = !note || rlock__epoch_gone(redis, note) ? redis->epoch : note;
    return rlock__epoch_ours(redis, epoch) ? epoch : RLOCK__EPOCHS_MIXED;
}

/* Sends what comes first in a queue. */
static void rlock__queue_send(rlock__redis *redis, rlock_link *queue, int64_t sent_us) {
    rlock_request *first = RLOCK__OF(queue->next, rlock_request, store.link);
    rlock__command *command;
    uint32_t i;
    bool sent;
    RLOCK_ASSERT(redis->commands.state == RLOCK__CONN_READY || redis->closing);
    RLOCK_ASSERT(!rlock__list_empty(queue) && first->store.stage == RLOCK__QUEUED);
#if RLOCK__HAS_REPLICAS
    if (redis->quarantine && first->op == RLOCK_OP_ACQUIRE &&
        rlock__quarantine_keeps(redis, first)) {
        return;
    }
#endif
    command = rlock__command_take(redis, queue);
    if (!command) {
        rlock__list_remove(&first->store.link);
        rlock__answer_fault(redis, first, RLOCK_FAULT_NOMEM, NULL);
        return;
    }
    sent = first->op != RLOCK_OP_ACQUIRE || /* room also for its release */
           rlock__reserve(redis, rlock__release_room(redis, first));
    if (sent) {
        sent = rlock__command_leads(redis, command);
    }
    rlock__command_put(redis, command);
    if (sent) {
        sent = rlock__command_send(redis, command, rlock__on_reply);
    }
    if (sent && command->tells) {
        redis->script_in_flight = rlock__script_of(redis, command->requests[0]);
    }
    command->bytes = (uint32_t)redis->length;
    redis->bytes += sent ? command->bytes : 0;
#if RLOCK__HAS_REPLICAS
    if (sent && rlock__syncs(redis, first)) {
        redis->sync->wanted = true;
    }
#endif
    for (i = 0; i < command->count; i++) {
        rlock_request *request = command->requests[i];
        request->sent_us = sent_us;
        request->store.data = command;
        request->store.stage = RLOCK__FLYING;
        if (sent && request->op == RLOCK_OP_ACQUIRE) {
            request->store.note = rlock__epoch_noted(redis, request->store.note);
        }
    }
    for (i = 0; i < command->count && !sent; i++) {
        if (command->requests[i]) {
            rlock__answer_fault(redis, command->requests[i], RLOCK_FAULT_NOMEM, NULL);
        }
    }
    if (!sent) {
        rlock__list_append(&redis->spare, &command->link);
    }
}

/* Urgent ones first, then of the heads of the queues the one that is due first. NULL: all empty. */
static rlock_link *rlock__redis_next(rlock__redis *redis) {
    rlock_link *next = NULL;
    int64_t due_us = 0;
    int i;
    if (!rlock__list_empty(&redis->queues[RLOCK__URGENT])) {
        return &redis->queues[RLOCK__URGENT];
    }
    for (i = 1; i < RLOCK__PARKED; i++) {
        const rlock_request *head = RLOCK__FIRST(&redis->queues[i], rlock_request, store.link);
        if (head && (!next || head->due_us < due_us)) {
            next = &redis->queues[i];
            due_us = head->due_us;
        }
    }
    return next;
}

/* Writes now; a socket that took no more is waited for. */
static void rlock__conn_flush(rlock__conn *conn) {
    if (conn->ac && conn->state >= RLOCK__CONN_HANDSHAKE && !conn->blocked) {
        rlock__conn_visit(conn, RLOCK_IO_WRITE);
    } else {
        rlock__conn_tend(conn);
    }
}

/* One write for all that was submitted. */
static void rlock__redis_flush(void *state) {
    rlock__redis *redis = (rlock__redis *)state;
    rlock_link *queue;
    int64_t now_us = 0;
    RLOCK_ASSERT(!redis->closing);
#if RLOCK__HAS_REPLICAS
    if (redis->quarantine && !rlock__quarantine_waits(redis)) {
        rlock__list_move(&redis->queues[RLOCK__URGENT], &redis->queues[RLOCK__PARKED]);
    }
#endif
    while (rlock__conn_usable(&redis->commands) && redis->bytes < RLOCK__WINDOW &&
           (queue = rlock__redis_next(redis)) != NULL) {
        if (!now_us) { /* callbacks may have taken long */
            now_us = rlock_client_clock_us(redis->client);
        }
        rlock__queue_send(redis, queue, now_us);
    }
#if RLOCK__HAS_REPLICAS
    if (redis->sync) {
        rlock__sync_ask(redis);
    }
#endif
    rlock__conn_flush(&redis->commands);
    rlock__conn_flush(&redis->push);
#if RLOCK__HAS_SENTINEL
    if (redis->sentinel) {
        rlock__conn_flush(&redis->sentinel->conn);
    }
#endif
}

static void rlock__redis_track(void *state, const char *key, size_t len, bool on) {
    rlock__redis *redis = (rlock__redis *)state;
    if (on && !redis->push_wanted) {
        redis->push_wanted = true;
        rlock__track(redis);
    }
    if (rlock__by_channel(redis) && redis->subscribed) {
        rlock__channel_listen(redis, key, len, on);
    }
}

/* Ends what was opened of a store, wherever that stopped. */
static void rlock__redis_free(rlock__redis *redis) {
    rlock__conn_end(&redis->commands);
    rlock__conn_end(&redis->push);
    rlock__told_free(redis);
#if RLOCK__HAS_SENTINEL
    if (redis->sentinel) {
        rlock__conn_end(&redis->sentinel->conn);
        rlock__sentinel_free(redis->sentinel);
    }
#endif
#if RLOCK__HAS_REPLICAS
    rlock__quarantine_free(redis);
    rlock__sync_free(redis);
#endif
    while (!rlock__list_empty(&redis->spare)) {
        rlock__command *command = RLOCK__OF(redis->spare.next, rlock__command, link);
        rlock__list_remove(&command->link);
        rlock__dealloc(command->batch);
        rlock__dealloc(command);
    }
    rlock__dealloc(redis->endpoint.host);
    rlock__dealloc(redis->unix_path);
    rlock__dealloc(redis->username);
    rlock__dealloc(redis->password);
    rlock__dealloc(redis->name);
    rlock__dealloc(redis->prefix);
    rlock__dealloc(redis->buffer);
    rlock__dealloc(redis);
}

static void rlock__on_nothing(redisAsyncContext *ac, void *raw, void *data) {
    (void)ac;
    (void)raw;
    (void)data;
}

/* True if a last command may be sent on a connection. */
static bool rlock__conn_speaks(const rlock__conn *conn) {
    return conn->ac && conn->state == RLOCK__CONN_READY && !conn->failing;
}

/* Sends what was formatted last, of whose answer nobody hears. */
RLOCK__NOINLINE static void rlock__goodbye_say(rlock__redis *redis, bool aside) {
    RLOCK_ASSERT(redis->closing);
    rlock__conn_send(&redis->commands, rlock__on_nothing, NULL);
    if (aside) {
        rlock__conn_add(&redis->push);
    }
}

/* Where nothing is subscribed to, a connection takes all commands. */
static void rlock__push_unsubscribe(rlock__redis *redis) {
    RLOCK_ASSERT(redis->closing && redis->push.ac);
    rlock__put_words(redis, "UNSUBSCRIBE", 0);
    rlock__conn_add(&redis->push);
    if (redis->sharded) {
        rlock__put_words(redis, "SUNSUBSCRIBE", 0);
        rlock__conn_add(&redis->push);
    }
}

static void rlock__goodbye_write(rlock__conn *conn) {
    RLOCK_ASSERT(conn->ac && conn->redis->closing);
    rlock__conn_prepare(conn);
    redisAsyncHandleWrite(conn->ac);
}

/* The last write: all releases, of each script the first in full: a server may not know it yet.
 * Answers are switched off: a server that cannot deliver one drops what it has not executed yet.
 *
 * A connection that ends while a WAIT of it is out is dropped with all that came behind. So the
 * releases go out on the push connection as well. On the command connection they end what stands
 * before them, if the WAIT is answered first. */
static void rlock__redis_goodbye(rlock__redis *redis) {
    bool usable = rlock__conn_speaks(&redis->commands);
    bool aside = false;
    unsigned known = 0; /* the rows of scripts that were sent in full */
    rlock_link *queue;
    RLOCK_ASSERT(redis->closing);
#if RLOCK__HAS_REPLICAS
    aside = usable && redis->sync && redis->sync->out && rlock__conn_speaks(&redis->push);
    rlock__list_move(&redis->queues[RLOCK__URGENT], &redis->queues[RLOCK__PARKED]);
#endif
    queue = rlock__redis_next(redis);
    if (aside) {
        rlock__push_unsubscribe(redis);
    }
    if (usable && queue) {
        rlock__put_words(redis, "CLIENT REPLY OFF", 0);
        rlock__goodbye_say(redis, aside);
    }
    for (; queue; queue = rlock__redis_next(redis)) {
        rlock_request *request = RLOCK__OF(queue->next, rlock_request, store.link);
        bool stays = RLOCK__HAS_TOKENS && request->op == RLOCK_OP_RENEW; /* its last renewal */
        rlock__list_remove(&request->store.link);
        if (usable && (request->op == RLOCK_OP_RELEASE || stays)) {
            unsigned row = stays ? 0 : 1u << rlock__row(redis, request);
            request->store.own[RLOCK__ENCODING] = known & row ? RLOCK__AS_SCRIPT : RLOCK__AS_EVAL;
            rlock__put_request(redis, request); /* no DELIFEQ: if it is forbidden, who says so? */
            rlock__goodbye_say(redis, aside);
            known |= row;
        }
    }
    if (usable) { /* first: what it has sent before never runs alone after those of the other one */
        rlock__goodbye_write(&redis->commands);
    }
    if (aside) {
        rlock__goodbye_write(&redis->push);
    }
}

static void rlock__redis_close(void *state) {
    rlock__redis *redis = (rlock__redis *)state;
    if (rlock_client_forked(redis->client)) { /* by on_event, when another node was closed */
        return;
    }
    RLOCK_ASSERT(!redis->closing);
    redis->closing = true;
    rlock__redis_goodbye(redis);
    rlock__conn_left(&redis->commands);
    rlock__conn_left(&redis->push);
#if RLOCK__HAS_SENTINEL
    if (redis->sentinel) {
        rlock__conn_left(&redis->sentinel->conn);
    }
#endif
    if (!rlock_client_forked(redis->client)) {
        rlock__redis_free(redis);
    }
}

#define RLOCK__UNIX_PATH_MAX (sizeof((struct sockaddr_un *)0)->sun_path - 1)

#define RLOCK__DOTTED(a, b, c) RLOCK__QUOTE(a) "." RLOCK__QUOTE(b) "." RLOCK__QUOTE(c)
#define RLOCK__HIREDIS_VERSION RLOCK__DOTTED(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH)

/* Returns what is wrong if hiredis' header, by which this was compiled, and its library lay structs
 * out differently, or NULL; *detail: both versions. hiredis has no function that says its own. Up
 * to 0.14 the tasks of a reader stand inside it, behind maxbuf, and are zero in a new one; from 1.0
 * on a limit and a pointer stand there, which are not. */
static const char *rlock__hiredis_fault(const char **detail) {
    static const unsigned char zero[16] = {0};
    const size_t end = offsetof(redisReader, maxbuf) + sizeof(size_t);
    const bool old = offsetof(redisReader, ridx) - end > sizeof(redisReadTask); /* the header */
    redisReader *reader = redisReaderCreateWithFunctions(NULL);
    const char *fault = NULL;
    if (!reader) {
        return NULL; /* without memory for it there is none for a connection either */
    }
    if ((memcmp((const unsigned char *)reader + end, zero, sizeof zero) == 0) != old) {
        fault = "hiredis' header and library differ in version (see RLOCK_HIREDIS_ASYNC)";
        *detail = old ? "header " RLOCK__HIREDIS_VERSION ", library 1.0 or later"
                      : "header " RLOCK__HIREDIS_VERSION ", library 0.14 or earlier";
    }
    redisReaderFree(reader);
    return fault;
}

/* True if a table of hooks is not whole. */
#if RLOCK__HAS_TLS
RLOCK__NOINLINE static bool rlock__tls_lacks(const rlock_tls *tls) {
    return tls && (!tls->start || !tls->before || !tls->why);
}
#endif

/* Has the client hide the passwords of a configuration. */
static int rlock__redis_hide(rlock_client *client, const rlock_config *config) {
    int status = rlock_client_hide(client, config->password);
    if (RLOCK__HAS_SENTINEL && status == RLOCK_OK) {
        status = rlock_client_hide(client, config->sentinel_password);
    }
    return status;
}

/* Returns what is wrong with settings of parts that may be left out, or NULL. */
static const char *rlock__optional_fault(const rlock_config *config) {
#if !RLOCK__HAS_REDISSON
    if (config->wire == RLOCK_WIRE_REDISSON) {
        return RLOCK__NEEDS("config.wire", "RLOCK_WITH_REDISSON");
    }
#endif
#if !RLOCK__HAS_SENTINEL && !RLOCK__HAS_CLUSTER
    if (config->map_address) {
        return RLOCK__NEEDS("config.map_address", "RLOCK_WITH_SENTINEL");
    }
#endif
    return rlock__description_fault(config);
}

/* Returns what is wrong with what Redis alone understands of a configuration, or NULL; *detail: the
 * text that is meant. */
static const char *rlock__redis_fault(const rlock_config *config, const char **detail) {
    const char *host = config->host, *fault = rlock__hiredis_fault(detail);
    if (fault) {
        return fault;
    }
    if (config->port < 0 || config->port > 65535 || config->database < 0) {
        return RLOCK__TEXT("config.port or config.database is out of range");
    }
    if (config->wire != RLOCK_WIRE_STRING && config->wire != RLOCK_WIRE_REDISSON) {
        return RLOCK__TEXT("config.wire is unknown");
    }
    if (rlock__optional_fault(config)) {
        return rlock__optional_fault(config);
    }
    if (strpbrk(config->prefix, "{}")) {
        return RLOCK__TEXT(
            "config.prefix has a brace, which would move keys to other cluster slots");
    }
    if (config->username && !config->password) {
        return RLOCK__TEXT("config.username requires config.password");
    }
#if RLOCK__HAS_TLS
    if (rlock__tls_lacks(config->tls) || rlock__tls_lacks(config->sentinel_tls)) {
        return RLOCK__TEXT("config.tls: a required hook is NULL");
    }
#else
    if (config->tls || config->sentinel_tls) {
        return RLOCK__NEEDS("config.tls", "RLOCK_WITH_TLS");
    }
#endif
#if !RLOCK__HAS_CLUSTER
    if (config->cluster) {
        return RLOCK__NEEDS("config.cluster", "RLOCK_WITH_CLUSTER");
    }
#endif
    if (rlock__sentinel_fault(config, detail)) {
        return rlock__sentinel_fault(config, detail);
    }
    if (config->unix_path && strstr(config->unix_path, "://")) {
        return RLOCK__TEXT("config.unix_path: expected a path; a URL goes into config.url");
    }
    if (host && !rlock__is_host(host, strlen(host))) {
        return RLOCK__TEXT(
            "config.host: expected a name or an address, without a line end; a URL goes into "
            "config.url");
    }
    *detail = config->unix_path;
    if (rlock__length(config->unix_path) > RLOCK__UNIX_PATH_MAX) {
        return RLOCK__TEXT("config.unix_path is too long for a Unix socket");
    }
    if (!host || config->connect || config->unix_path || config->sentinels ||
        rlock__numeric(host)) {
        return NULL;
    }
    *detail = host;
#if RLOCK__HAS_NAMES
    return config->loop.resolve
               ? NULL
               : "a host name needs loop.resolve or config.connect; use an address";
#else
    return "a host name needs RLOCK_WITH_NAMES; use an address";
#endif
}

/* Takes from the config what a connection needs. False: no memory. */
static bool rlock__redis_configure(rlock__redis *redis, const rlock_config *config) {
    const char *host = config->host ? config->host : "127.0.0.1";
    bool failed = false;
#if RLOCK__HAS_TLS
    redis->endpoint.tls = config->connect || config->unix_path ? NULL : config->tls;
#endif
    redis->endpoint.host = rlock__copy_text(config->sentinels ? NULL : host, &failed);
    redis->unix_path = rlock__copy_text(config->unix_path, &failed);
    redis->username = rlock__copy_text(config->username, &failed);
    redis->password = rlock__copy_text(config->password, &failed);
    redis->name = rlock__copy_text(config->client_name, &failed);
    redis->prefix = rlock__copy_text(config->prefix, &failed);
    redis->endpoint.port = config->port ? config->port : 6379;
    redis->database = config->database;
#if RLOCK__HAS_REDISSON
    redis->wire = config->wire;
#endif
    return !failed && rlock__description_configure(redis, config);
}

static int rlock__redis_open(const rlock_store *store, rlock_client *client,
                             const rlock_config *config, const rlock_store_events *events,
                             void *owner, void **state) {
    const char *detail = NULL, *fault = rlock__redis_fault(config, &detail);
    rlock__redis *redis;
    bool failed;
    int i;
    (void)store;
    if (fault) {
        rlock_client_log(client, RLOCK_LOG_ERROR, fault, detail);
        return RLOCK_ERR_ARG;
    }
    redis = (rlock__redis *)rlock__alloc(sizeof *redis);
    if (!redis || rlock__redis_hide(client, config) != RLOCK_OK) {
        rlock__dealloc(redis);
        return RLOCK_ERR_NOMEM;
    }
    redis->client = client;
    redis->events = events;
    redis->owner = owner;
    redis->stats = rlock_client_counters(client);
    redis->connect = config->connect;
    redis->user = config->connect_user ? config->connect_user : config->user;
    failed = !rlock__redis_configure(redis, config);
    redis->timeout_us = config->command_timeout_ms * 1000;
    redis->last_epoch = RLOCK__EPOCHS_MIXED - 1;
    redis->room = 256; /* enough for a handshake */
    redis->buffer = (char *)RLOCK_MALLOC(redis->room);
    rlock__list_init(&redis->spare);
    for (i = 0; i < RLOCK__QUEUES; i++) {
        rlock__list_init(&redis->queues[i]);
    }
    if (!redis->buffer || !rlock__conn_init(&redis->commands, redis, &redis->endpoint) ||
        !rlock__conn_init(&redis->push, redis, &redis->endpoint)) {
        failed = true;
    }
#if RLOCK__HAS_REPLICAS
    if (!rlock__quarantine_init(redis, config) || !rlock__sync_init(redis, config)) {
        failed = true;
    }
#endif
#if RLOCK__HAS_SENTINEL
    if (config->sentinels && !failed) {
        redis->sentinel = rlock__sentinel_new(config);
        failed = !redis->sentinel ||
                 !rlock__conn_init(&redis->sentinel->conn, redis, &redis->sentinel->endpoint);
    }
#endif
    if (failed) {
        rlock__redis_free(redis);
        return RLOCK_ERR_NOMEM;
    }
#if RLOCK__HAS_SENTINEL
    if (redis->sentinel) {
        rlock__sentinel_turn(redis->sentinel);
    }
#endif
    *state = redis;
    return RLOCK_OK;
}

static bool rlock__ends_with(const char *key, size_t len, const char *end) {
    size_t n = strlen(end);
    return len >= n && memcmp(key + len - n, end, n) == 0;
}

/* Whether a key is called as rlock__put_own_key calls one beside another, or has that other's line:
 * prefix{other}. */
static bool rlock__is_own_key(const char *prefix, const char *key, size_t len) {
    size_t head = strlen(prefix);
    bool named = len > head + 2 && memcmp(key, prefix, head) == 0 && key[head] == '{' &&
                 memchr(key, '}', len) == key + len - 1;
    return rlock__has_tag(key, len) &&
           (named || rlock__ends_with(key, len, ":queue") || rlock__ends_with(key, len, ":fence"));
}

/* Returns what cannot be done on this wire, with such a prefix, or NULL. */
static const char *rlock__wire_refuses(bool redisson, const char *prefix, const char *key,
                                       size_t len, const rlock_terms *terms, bool fencing) {
    bool queued = RLOCK__HAS_KINDS && terms && terms->kind != RLOCK_KIND_MUTEX;
    if (redisson && terms) {
        return RLOCK__TEXT(
            "the Redisson wire supports only a mutex with one key; use RLOCK_WIRE_STRING");
    }
    if ((fencing || queued) && memchr(key, '}', len) && !rlock__has_tag(key, len)) {
        return RLOCK__TEXT(
            "key contains '}' but no hash tag {...}: fencing and queued kinds need one");
    }
    if (queued && rlock__is_own_key(prefix, key, len)) {
        return RLOCK__TEXT(
            "the library uses a key of this name for another lock's queue or fence; rename it");
    }
    return NULL;
}

static const char *rlock__redis_refuses(void *state, const char *key, size_t len,
                                        const rlock_terms *terms, bool fencing) {
    const rlock__redis *redis = (const rlock__redis *)state;
#if RLOCK__HAS_REPLICAS
    const char *why =
        redis->quarantine ? rlock__marker_refuses(redis->prefix, false, key, len) : NULL;
    if (why) {
        return why;
    }
#endif
    return rlock__wire_refuses(rlock__is_redisson(redis), redis->prefix, key, len, terms, fencing);
}

static const rlock_store rlock__redis_store = {NULL,
                                               rlock__redis_open,
                                               rlock__redis_close,
                                               rlock__redis_submit,
                                               rlock__redis_forget,
                                               rlock__redis_track,
                                               rlock__redis_flush,
                                               rlock__redis_refuses,
                                               NULL,
                                               RLOCK_STORE_STAYS | RLOCK_STORE_ADOPTS,
                                               rlock__redis_set_credentials};

#if RLOCK__HAS_URL

/* ------------------------------------------------------------------------------------------------
 * >>redis-url - config.url, one text for the address and all settings that a text can say
 *
 * A copy of the text is cut into its parts, which are decoded in place. The functions return what
 * is wrong with the part at hand, or NULL. The part is named, and not shown: a password that is not
 * encoded, or not in its place, must not come into the log. Shown are the names of parameters.
 */

#include <limits.h>

enum {                           /* rows of what a query may set, beside those of rlock__settings */
       RLOCK__URL_SENTINELS = 4, /* those before this one need Sentinels */
       RLOCK__URL_DB = 4,
       RLOCK__URL_CLIENT = 5, /* from this one on they are not for a server of a quorum */
       RLOCK__URL_ROWS = 8
};

static const rlock__setting rlock__url_rows[RLOCK__URL_ROWS] = {
    RLOCK__SETTING(sentinel_username, RLOCK__STRING, 0, 0, 0),
    RLOCK__SETTING(sentinel_password, RLOCK__STRING, 0, 0, 0),
    {"sentinel_tls", 0, 0, 0, 0, RLOCK__YES_NO},
    RLOCK__SETTING(trust_plain_sentinels, RLOCK__YES_NO, 0, 0, 0),
    {"db", INT_MAX, 0, offsetof(rlock_config, database), 0, RLOCK__INT},
    RLOCK__SETTING(client_name, RLOCK__STRING, 0, 0, 0),
    RLOCK__SETTING(prefix, RLOCK__STRING, 0, 0, 0),
    RLOCK__SETTING(wire, RLOCK__WIRE, 0, 0, 0),
};
static const rlock__setting rlock__url_port = RLOCK__SETTING(port, RLOCK__INT, 1, 65535, 0);

typedef struct rlock__url {
    rlock_config *config;
    const char *part, *shown;           /* the part at hand; of it what may be shown, or NULL */
    const rlock__setting *limits;       /* of a number that is not within them */
    uint32_t seen;                      /* the parameters that were set, a bit for each row */
    bool member;                        /* it is a server's of a quorum */
    bool tls, sentinel, cluster, local; /* its scheme */
    bool sentinel_tls;                  /* as its scheme says, or the parameter */
} rlock__url;

static const char *rlock__url_decode(char *text) {
    char *out = text, hex[3] = "";
    for (; *text; text++) {
        *out = *text;
        if (*text == '%') {
            memcpy(hex, text + 1, text[1] ? 2 : 1);
            if (strspn(hex, "0123456789abcdefABCDEF") != 2) {
                return " has a % without two hex digits";
            }
            *out = (char)strtol(hex, NULL, 16);
            if (!*out) {
                return " has a %00";
            }
            text += 2;
        }
        out++;
    }
    RLOCK_ASSERT(out <= text);
    *out = 0;
    return NULL;
}

static const char *rlock__url_number(rlock__url *url, const rlock__setting *row, const char *text,
                                     int32_t *value) {
    const char *digits = *text == '-' ? text + 1 : text;
    size_t count = strspn(digits, "0123456789");
    long long number = strtoll(text, NULL, 10); /* the nearest there is to one that is too long */
    if (count && !digits[count]) {
        *value = (int32_t)number;
        if (number >= row->least && number <= row->most) {
            return NULL;
        }
    }
    url->limits = row;
    return "";
}

/* Sets what row i stands for to a decoded text. */
static const char *rlock__url_set(rlock__url *url, int i, char *text) {
    const rlock__setting *row =
        i < RLOCK__URL_ROWS ? &rlock__url_rows[i] : &rlock__settings[i - RLOCK__URL_ROWS];
    rlock_config *config = url->config;
    const char **field = (const char **)(void *)((char *)config + row->at), *wrong;
    bool again = (url->seen >> i & 1u) != 0;
    int32_t value;
    RLOCK_ASSERT(i >= 0 && i < RLOCK__URL_ROWS + RLOCK__SETTINGS);
    url->seen |= 1u << i;
    if (row->type == RLOCK__STRING) {
        if (*field) {
            again = true;
        }
        *field = text;
    } else if (row->type == RLOCK__WIRE) {
        value = strcmp(text, "redisson") == 0;
        if (!value && strcmp(text, "string") != 0) {
            return " is not string or redisson";
        }
        if (config->wire) {
            again = true;
        }
        config->wire = value ? RLOCK_WIRE_REDISSON : RLOCK_WIRE_STRING;
    } else if (row->type == RLOCK__YES_NO) {
        bool *flag = row->at ? (bool *)(void *)((char *)config + row->at) : &url->sentinel_tls;
        if (row->at && *flag) {
            again = true;
        }
        *flag = strcmp(text, "yes") == 0;
        if (!*flag && strcmp(text, "no") != 0) {
            return " is not yes or no";
        }
    } else {
        wrong = rlock__url_number(url, row, text, &value);
        if (wrong) {
            return wrong;
        }
        if (rlock__number(config, row)) {
            again = true;
        }
        rlock__set_number(config, row, value);
    }
    return again ? " is set twice, in the URL or as a field" : NULL;
}

/* Returns the row of a parameter; -1: there is none, or it means nothing in this URL. */
static int rlock__url_row(const rlock__url *url, const char *name) {
    int i = url->sentinel ? 0 : RLOCK__URL_SENTINELS;
    int end = url->member ? RLOCK__URL_CLIENT : RLOCK__URL_ROWS + RLOCK__SETTINGS;
    for (; i < end; i++) {
        const rlock__setting *row =
            i < RLOCK__URL_ROWS ? &rlock__url_rows[i] : &rlock__settings[i - RLOCK__URL_ROWS];
        if (strcmp(row->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static const char *rlock__url_query(rlock__url *url, char *query) {
    const char *wrong = NULL;
    while (query && *query && !wrong) {
        char *name = query, *value;
        int row;
        query = strchr(name, '&');
        if (query) {
            *query++ = 0;
        }
        value = strchr(name, '=');
        url->part = "a parameter";
        url->shown = NULL;
        if (!value) {
            return " has no value";
        }
        *value++ = 0;
        url->part = "the parameter";
        url->shown = url->config->sentinel_password ? NULL : name; /* it may be the rest of that */
        row = rlock__url_row(url, name);
        if (row < 0) {
            return url->member ? " is unknown for a server of a quorum" : " is unknown";
        }
        url->shown = name;
        wrong = rlock__url_decode(value);
        wrong = wrong ? wrong : rlock__url_set(url, row, value);
    }
    return wrong;
}

/* Reads one "host:port", both optional, IPv6 in brackets. *end: where the host ends. */
static const char *rlock__url_host(rlock__url *url, char *text, char **end, int32_t *port) {
    char *at = text + strcspn(text, *text == '[' ? "]" : ":");
    *end = at;
    *port = 0;
    url->part = "the host";
    if (*text == '[') {
        if (!*at || (at[1] && at[1] != ':') || !memchr(text, ':', (size_t)(at - text))) {
            return " has brackets but is not an IPv6 address";
        }
        *end = ++at;
    }
    if (!*at) {
        return NULL;
    }
    if (strchr(at + 1, ':')) {
        return " has two \":\"; IPv6 needs brackets";
    }
    url->part = "the port";
    return rlock__url_number(url, &rlock__url_port, at + 1, port);
}

static const char *rlock__url_hosts(rlock__url *url, char *list) {
    rlock_config *config = url->config;
    bool several = url->sentinel || url->cluster;
    char *text = list, *end, *comma;
    const char *wrong;
    int32_t port;
    do {
        comma = several ? strchr(text, ',') : NULL;
        if (comma) {
            *comma = 0;
        }
        wrong = rlock__url_host(url, text, &end, &port);
        if (!wrong && several && end == text) {
            url->part = "the host";
            wrong = url->sentinel ? " of a Sentinel is missing" : " of a node is missing";
        }
        if (wrong) {
            return wrong;
        }
        if (comma) {
            *comma = ',';
            text = comma + 1;
        }
    } while (comma);
    url->part = "the host";
    if (several) {
        *(url->sentinel ? &config->sentinels : &config->cluster) = list;
        return rlock__url_decode(list);
    }
    *end = 0;
    if (*list == '[') {
        RLOCK_ASSERT(end > list);
        end[-1] = 0;
        list++;
    }
    config->host = *list ? list : NULL;
    config->port = port;
    return rlock__url_decode(list);
}

/* Reads "user:password", either of which may be empty. */
static const char *rlock__url_user(rlock__url *url, char *user) {
    rlock_config *config = url->config;
    char *password = strchr(user, ':');
    const char *wrong;
    url->part = "the user or the password";
    if (user[strcspn(user, "/?#@")]) {
        return " contains / ? # or @: write %2F %3F %23 %40";
    }
    url->part = "the user";
    if (!password) {
        return *user ? " has no password" : NULL;
    }
    *password++ = 0;
    config->username = *user ? user : NULL;
    config->password = *user || *password ? password : NULL;
    wrong = rlock__url_decode(user);
    if (!wrong) {
        url->part = "the password";
        wrong = rlock__url_decode(password);
    }
    return wrong;
}

/* Reads the path behind its "/": "database", with Sentinels "primary/database". */
static const char *rlock__url_path(rlock__url *url, char *path) {
    size_t n = strlen(path);
    const char *wrong = NULL;
    if (n && path[n - 1] == '/') {
        path[n - 1] = 0;
    }
    if (url->sentinel) {
        char *primary = path;
        path += strcspn(path, "/");
        if (*path) {
            *path++ = 0;
        }
        url->part = "the name of the primary";
        url->config->sentinel_primary = primary;
        wrong = *primary ? rlock__url_decode(primary) : " is missing";
    }
    if (wrong || !*path) {
        return wrong;
    }
    url->part = "the database";
    return rlock__url_set(url, RLOCK__URL_DB, path);
}

static char *rlock__after(char *text, const char *word) {
    size_t n = strlen(word);
    return strncmp(text, word, n) == 0 ? text + n : NULL;
}

/* Reads the scheme; returns what is behind its "://", or NULL. */
static char *rlock__url_scheme(rlock__url *url, char *text) {
    static const char *const words[] = {"unix", "redis", "valkey"};
    char *end = NULL, *next;
    int i;
    for (i = 0; i < 3 && !end; i++) {
        end = rlock__after(text, words[i]);
    }
    if (!end) {
        return NULL;
    }
    url->local = i == 1;
    if (!url->local) {
        url->tls = url->sentinel_tls = *end == 's';
        end += url->tls;
        next = rlock__after(end, "+sentinel");
        url->sentinel = next != NULL;
        end = next ? next : end;
        next = next ? NULL : rlock__after(end, "+cluster");
        url->cluster = next != NULL;
        end = next ? next : end;
    }
    return rlock__after(end, "://");
}

/* True for a scheme that rlock_stores.h may know. */
static bool rlock__url_other(char *text) {
    static const char *const words[] = {
        "postgres:", "postgresql:", "zookeeper:", "mysql:", "mariadb:"};
    bool other = false;
    int i;
    for (i = 0; i < 5; i++) {
        if (rlock__after(text, words[i])) {
            other = true;
        }
    }
    return other;
}

/* The URL decides what is encrypted, and config.tls how; the Sentinels may have hooks of theirs. */
static const char *rlock__url_tls(rlock__url *url) {
    rlock_config *config = url->config;
    const rlock_tls *of_sentinels = config->sentinel_tls ? config->sentinel_tls : config->tls;
    bool sentinel_tls = url->sentinel && url->sentinel_tls;
    config->tls = url->tls ? config->tls : NULL;
    config->sentinel_tls = sentinel_tls ? of_sentinels : NULL;
    url->part = "TLS";
    url->shown = NULL;
    return (url->tls && !config->tls) || (sentinel_tls && !config->sentinel_tls)
               ? " needs config.tls: see rlock_tls.h"
               : NULL;
}

static const char *rlock__url_parse(rlock__url *url, char *text) {
    char *rest = rlock__url_scheme(url, text), *at, *query, *path;
    const char *wrong = NULL;
    url->part = "the scheme";
    if (!rest) {
        return !url->member && rlock__url_other(text)
                   ? " is for another engine: build with RLOCK_WITH_POSTGRES, _ZOOKEEPER or "
                     "_MARIADB, see stores/rlock_stores.h"
                   : " is not redis, rediss, unix, redis+sentinel, redis+cluster or one of these "
                     "with rediss";
    }
    at = strrchr(rest, '@');
    if (at) {
        *at = 0;
        wrong = rlock__url_user(url, rest);
        rest = at + 1;
    }
    query = strchr(rest, '?');
    if (query) {
        *query++ = 0;
    }
    if (!wrong && strchr(rest, '=')) { /* it may be of a query that lost its head */
        url->part = "the address";
        wrong = " contains =: write %3D";
    }
    if (!wrong && url->local) {
        url->part = "the path";
        url->config->unix_path = rest;
        wrong = *rest == '/' ? rlock__url_decode(rest) : " does not begin with /";
    } else if (!wrong) {
        path = rest + strcspn(rest, "/");
        if (*path) {
            *path++ = 0;
        }
        wrong = rlock__url_hosts(url, rest);
        wrong = wrong ? wrong : rlock__url_path(url, path);
    }
    wrong = wrong ? wrong : rlock__url_query(url, query);
    return wrong ? wrong : rlock__url_tls(url);
}

/* Puts into a configuration what its URL says. *texts: the memory of its texts. The line says what
 * is wrong. */
static int rlock__url_read(rlock_config *config, bool member, char **texts, char *line) {
    rlock__url url;
    const char *wrong;
    size_t n;
    memset(&url, 0, sizeof url);
    url.config = config;
    url.member = member;
    *texts = rlock__copy(config->url, strlen(config->url));
    if (!*texts) {
        return RLOCK_ERR_NOMEM;
    }
    config->url = NULL; /* the texts are read in place of it */
    wrong = rlock__url_parse(&url, *texts);
    if (!wrong) {
        return RLOCK_OK;
    }
    n = rlock__line_add(line, 0, "config.url: ", url.part);
    n = rlock__line_foreign(NULL, line, n, " \"", url.shown);
    n = rlock__line_add(line, n, url.shown ? "\"" : "", wrong);
    if (url.limits) {
        rlock__line_limits(line, n, url.limits);
    }
    return RLOCK_ERR_ARG;
}

#endif /* RLOCK__HAS_URL */

#if RLOCK__HAS_CLUSTER

/* ------------------------------------------------------------------------------------------------
 * >>cluster-map - the slots of a cluster: of which one a key is, what nodes say of where they are
 *
 * https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
 */

#define RLOCK__SLOTS 16384u

/* The CRC16 of XMODEM: polynomial 0x1021, from 0; four bits at a time. */
static unsigned rlock__crc16(const char *bytes, size_t len) {
    static const uint16_t table[] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                     0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                     0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;
    size_t i;
    for (i = 0; i < len; i++) {
        unsigned byte = (unsigned char)bytes[i];
        crc = ((crc << 4) & 0xffff) ^ table[crc >> 12 ^ byte >> 4];
        crc = ((crc << 4) & 0xffff) ^ table[crc >> 12 ^ (byte & 15)];
    }
    return crc;
}

/* Returns the slot of a key: that of its hash tag, what stands between the first { and the next },
 * if that is not empty. */
static unsigned rlock__key_slot(const char *key, size_t len) {
    const char *open = (const char *)memchr(key, '{', len);
    const char *shut = open ? (const char *)memchr(open, '}', len - (size_t)(open - key)) : NULL;
    if (shut && shut > open + 1) {
        key = open + 1;
        len = (size_t)(shut - key);
    }
    return rlock__crc16(key, len) % RLOCK__SLOTS;
}

/* Where a node says that slots are. */
typedef struct rlock__slots {
    unsigned from, to;
    const char *host; /* not ended by a NUL, if host_len is shorter; NULL: that of who said it */
    size_t host_len;
    int port;
} rlock__slots;

static bool rlock__slots_number(const char **at, unsigned most, unsigned *number) {
    size_t digits = strspn(*at, "0123456789");
    unsigned long value = strtoul(*at, NULL, 10);
    RLOCK_ASSERT(most <= 65535);
    *at += digits;
    *number = (unsigned)value;
    return digits && digits <= 5 && value <= most;
}

/* Reads "MOVED slot host:port", or the same with ASK: the host may be left out, or be `?`, then it
 * is that of the node that says so, and may be IPv6 without brackets. *ask: it is ASK. False: it is
 * neither. */
static bool rlock__slots_redirect(const char *words, rlock__slots *slots, bool *ask) {
    const char *at = words, *colon;
    unsigned port;
    *ask = strncmp(at, "ASK ", 4) == 0;
    if (!*ask && strncmp(at, "MOVED ", 6) != 0) {
        return false;
    }
    at += *ask ? 4 : 6;
    if (!rlock__slots_number(&at, RLOCK__SLOTS - 1, &slots->from) || *at++ != ' ') {
        return false;
    }
    colon = strrchr(at, ':');
    slots->to = slots->from;
    slots->host_len = colon ? (size_t)(colon - at) : 0;
    slots->host = slots->host_len && strncmp(at, "?:", 2) != 0 ? at : NULL;
    at = colon ? colon + 1 : at;
    slots->port = 0;
    if (!colon || !rlock__slots_number(&at, 65535, &port) || (*at && *at != ' ')) {
        return false;
    }
    slots->port = (int)port;
    return port != 0 && (!slots->host || rlock__is_host(slots->host, slots->host_len));
}

/* Finds the value of "ip" among what a node tells of another one besides. */
static const redisReply *rlock__slots_ip(const redisReply *node) {
    const redisReply *more = node->elements > 3 ? node->element[3] : NULL;
    size_t i;
    for (i = 0; more && more->type == REDIS_REPLY_ARRAY && i + 1 < more->elements; i += 2) {
        const redisReply *name = more->element[i], *value = more->element[i + 1];
        if (name->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            strcmp(name->str, "ip") == 0 && value->len) {
            return value;
        }
    }
    return NULL;
}

/* Reads a row of CLUSTER SLOTS: [from, to, [endpoint, port, id, [name, value ...]], replicas ...].
 * The endpoint is a host; nil or "" where the node knows none; "?" where it should be a name, and
 * the node has none: then the address stands behind. False: the row is none. */
static bool rlock__slots_row(const redisReply *row, rlock__slots *slots) {
    const redisReply *node, *host;
    bool whole = row->type == REDIS_REPLY_ARRAY && row->elements >= 3 &&
                 row->element[0]->type == REDIS_REPLY_INTEGER && row->element[0]->integer >= 0 &&
                 row->element[1]->type == REDIS_REPLY_INTEGER &&
                 row->element[1]->integer >= row->element[0]->integer &&
                 row->element[1]->integer < (long long)RLOCK__SLOTS &&
                 row->element[2]->type == REDIS_REPLY_ARRAY && row->element[2]->elements >= 2;
    if (!whole) {
        return false;
    }
    node = row->element[2];
    host = node->element[0];
    if (node->element[1]->type != REDIS_REPLY_INTEGER || node->element[1]->integer < 1 ||
        node->element[1]->integer > 65535 ||
        (host->type != REDIS_REPLY_STRING && host->type != REDIS_REPLY_NIL)) {
        return false;
    }
    host = host->type == REDIS_REPLY_STRING && strcmp(host->str, "?") == 0 ? rlock__slots_ip(node)
                                                                           : host;
    slots->from = (unsigned)row->element[0]->integer;
    slots->to = (unsigned)row->element[1]->integer;
    slots->host = host && host->type == REDIS_REPLY_STRING && host->len ? host->str : NULL;
    slots->host_len = slots->host ? strlen(host->str) : 0;
    slots->port = (int)node->element[1]->integer;
    return !slots->host || rlock__is_host(slots->host, slots->host_len);
}

/* True if an answer to CLUSTER SLOTS is one in each row, and has no more slots than there are. */
static bool rlock__slots_whole(const redisReply *reply) {
    unsigned most = RLOCK__SLOTS;
    size_t i;
    for (i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        rlock__slots slots;
        if (!rlock__slots_row(reply->element[i], &slots) || slots.to - slots.from >= most) {
            return false;
        }
        most -= slots.to - slots.from + 1;
    }
    return reply->type == REDIS_REPLY_ARRAY;
}

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

#endif /* RLOCK__HAS_CLUSTER */

#endif /* RLOCK__HAS_REDIS */

/* ------------------------------------------------------------------------------------------------
 * >>store - which store a configuration means, and at which address
 */

/* Stores of other engines, which config.url names: stores/rlock_stores.h. */
#if defined(RLOCK_WITH_POSTGRES) || defined(RLOCK_WITH_ZOOKEEPER) || defined(RLOCK_WITH_MARIADB)
#define RLOCK__HAS_STORES 1
#include "rlock_stores.h" /* in stores/ */
#else
#define RLOCK__HAS_STORES 0
#endif

static const rlock_store *rlock__store_of(const rlock_config *config) {
#if RLOCK__HAS_CLUSTER
    if (config->cluster && !config->store) {
        return &rlock__cluster_store;
    }
#endif
#if RLOCK__HAS_REDIS
    return config->store ? config->store : &rlock__redis_store;
#else
    return config->store;
#endif
}

/* Frees a store that was made of a URL, or NULL. */
static void rlock__made_free(const rlock_store *made) {
#if RLOCK__HAS_STORES
    rlock_stores_free((rlock_store *)(uintptr_t)made);
#else
    (void)made;
#endif
}

#if RLOCK__HAS_STORES
/* Makes the store of another engine. */
static int rlock__url_store(rlock_config *config, char *line) {
    rlock_store *store;
    int status = rlock_stores_new(&store, config->url);
    config->store = store;
    config->url = NULL;
    if (status == RLOCK_ERR_ARG) {
        rlock__line_add(line, 0, RLOCK__TEXT("config.url: a parameter's value is not valid"), "");
    }
    return status;
}
#endif

/* What this build says of each URL that it does not read. */
#if RLOCK__HAS_REDIS
#define RLOCK__URL_FAULT "config.url needs RLOCK_WITH_URL"
#else
#define RLOCK__URL_FAULT "config.url: unsupported scheme in this build, which has RLOCK_NO_REDIS"
#endif

#if RLOCK__HAS_URL || RLOCK__HAS_STORES
static int rlock__url_take(rlock_config *config, bool member, char **texts, char *line) {
    const char *wrong = "config.url cannot be combined with config.store";
    const char *at;
    for (at = config->url; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 127) {
            rlock__line_add(
                line, 0,
                RLOCK__TEXT(
                    "config.url contains a control character: remove it, or write it as %XX"),
                "");
            return RLOCK_ERR_ARG;
        }
    }
    if (config->host || config->port || config->unix_path || config->username || config->password ||
        config->database || config->connect || config->sentinels || config->cluster ||
        config->sentinel_primary || config->sentinel_username || config->sentinel_password) {
        wrong =
            "config.url cannot be combined with host to database, sentinels, cluster or connect";
    } else if (!config->store) {
#if RLOCK__HAS_STORES
        if (!member && rlock_stores_has(config->url)) {
            return rlock__url_store(config, line);
        }
#endif
#if RLOCK__HAS_URL
        return rlock__url_read(config, member, texts, line);
#else
        (void)texts;
        wrong = RLOCK__URL_FAULT;
#endif
    }
    rlock__line_add(line, 0, wrong, "");
    return RLOCK_ERR_ARG;
}
#endif

/* Puts what config->url says into the other fields. `member`: it is a server's of a quorum, and may
 * say nothing of the client. *texts is what the caller frees once the store has copied it, also
 * after an error; the line says what is wrong. A store of another engine is the caller's. */
static int rlock__url_resolve(rlock_config *config, bool member, char **texts, char *line) {
    *texts = NULL;
    if (!config->url) {
        return RLOCK_OK;
    }
#if RLOCK__HAS_URL || RLOCK__HAS_STORES
    return rlock__url_take(config, member, texts, line);
#else
    (void)member;
    rlock__line_add(line, 0, RLOCK__URL_FAULT, "");
    return RLOCK_ERR_ARG;
#endif
}

#if RLOCK__HAS_QUORUM || RLOCK__HAS_CLUSTER

/* ------------------------------------------------------------------------------------------------
 * >>members - a store that keeps the configurations of those it is made of
 */

typedef struct rlock__members {
    rlock_store store; /* first: it is what the user sees */
    rlock_config *servers;
    int count;
} rlock__members;

/* The texts that such a configuration may have of its own. */
#define RLOCK__TEXTS 10
static const char **rlock__server_text(rlock_config *config, int i) {
    static const size_t at[RLOCK__TEXTS] = {
        offsetof(rlock_config, url),
        offsetof(rlock_config, host),
        offsetof(rlock_config, unix_path),
        offsetof(rlock_config, username),
        offsetof(rlock_config, password),
        offsetof(rlock_config, sentinels),
        offsetof(rlock_config, sentinel_primary),
        offsetof(rlock_config, sentinel_username),
        offsetof(rlock_config, sentinel_password),
        offsetof(rlock_config, cluster),
    };
    RLOCK_ASSERT(i >= 0 && i < RLOCK__TEXTS);
    return (const char **)(void *)((char *)config + at[i]);
}

/* Puts what a member has of its own into a copy of the client's configuration. */
static void rlock__member_config(const rlock_config *member, rlock_config *one) {
    rlock_config its = *member;
    int text;
    for (text = 0; text < RLOCK__TEXTS; text++) {
        *rlock__server_text(one, text) = *rlock__server_text(&its, text);
    }
    one->store = its.store;
    one->port = its.port;
    one->database = its.database;
    one->tls = its.tls;
    one->sentinel_tls = its.sentinel_tls;
    one->trust_plain_sentinels = its.trust_plain_sentinels;
    one->connect = its.connect;
    one->user = its.user;
    one->connect_user = its.connect_user;
    if (its.map_address) { /* else the client's is for all */
        one->map_address = its.map_address;
        one->map_user = its.map_user;
    }
}

static void rlock__members_free(rlock_store *store) {
    rlock__members *members = store ? (rlock__members *)store->ctx : NULL;
    int i, text;
    for (i = 0; members && i < members->count; i++) {
        for (text = 0; text < RLOCK__TEXTS; text++) {
            rlock__dealloc((char *)(uintptr_t)*rlock__server_text(&members->servers[i], text));
        }
    }
    rlock__dealloc(members);
}

/* Makes a store with such functions out of 1 to `most` configurations, which are copied. */
static int rlock__members_new(rlock_store **out, const rlock_config *servers, int count, int most,
                              const rlock_store *functions) {
    rlock__members *members;
    bool failed = false;
    int i, text;
    if (!out) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    if (!servers || count < 1 || count > most) {
        return RLOCK_ERR_ARG;
    }
    for (i = 0; i < count; i++) {
        if (!rlock__store_of(&servers[i])) {
            return RLOCK_ERR_ARG;
        }
    }
    members = (rlock__members *)rlock__alloc(sizeof *members + (size_t)count * sizeof *servers);
    if (!members) {
        return RLOCK_ERR_NOMEM;
    }
    RLOCK_ASSERT(functions->open && functions->submit);
    members->servers = (rlock_config *)(void *)(members + 1);
    members->count = count;
    for (i = 0; i < count; i++) {
        rlock_config *copy = &members->servers[i];
        *copy = servers[i];
        for (text = 0; text < RLOCK__TEXTS; text++) {
            const char **its = rlock__server_text(copy, text);
            *its = rlock__copy_text(*its, &failed);
        }
    }
    members->store = *functions;
    for (i = 0; i < count; i++) {
        members->store.can &= rlock__store_of(&servers[i])->can;
    }
    members->store.ctx = members;
    if (failed) {
        rlock__members_free(&members->store);
        return RLOCK_ERR_NOMEM;
    }
    *out = &members->store;
    return RLOCK_OK;
}

#endif

#if RLOCK__HAS_CLUSTER

/* ------------------------------------------------------------------------------------------------
 * >>seeds - a cluster as a store of the user's own: the nodes that are asked first
 */

#define RLOCK__SEEDS 64 /* at most */

/* Appends the address of a node to a list of them. Returns where the list ends. */
static char *rlock__seed_add(char *end, const rlock_config *seed) {
    const char *host = seed->host ? seed->host : "127.0.0.1";
    bool bracket = strchr(host, ':') != NULL;
    size_t len = strlen(host);
    if (bracket) {
        *end++ = '[';
    }
    memcpy(end, host, len);
    end += len;
    if (bracket) {
        *end++ = ']';
    }
    *end++ = ':';
    end += rlock__digits(end, (uint64_t)(seed->port ? seed->port : 6379));
    *end++ = ',';
    return end;
}

static int rlock__seeds_open(const rlock_store *store, rlock_client *client,
                             const rlock_config *config, const rlock_store_events *events,
                             void *owner, void **state) {
    const rlock__members *members = (const rlock__members *)store->ctx;
    rlock_config one = *config;
    size_t room = 1;
    char *list, *end;
    int i, status;
    for (i = 0; i < members->count; i++) {
        const rlock_config *seed = &members->servers[i];
        room += (seed->host ? strlen(seed->host) : 9) + sizeof "[]:65535,";
        if (seed->url || seed->store || seed->unix_path || seed->connect || seed->sentinels ||
            seed->port < 0 || seed->port > 65535) {
            rlock_client_log(client, RLOCK_LOG_ERROR,
                             "a cluster node needs host and port, and no other address", NULL);
            return RLOCK_ERR_ARG;
        }
    }
    list = (char *)rlock__alloc(room);
    if (!list) {
        return RLOCK_ERR_NOMEM;
    }
    rlock__member_config(&members->servers[0], &one);
    for (i = 0, end = list; i < members->count; i++) {
        end = rlock__seed_add(end, &members->servers[i]);
    }
    RLOCK_ASSERT(end > list && (size_t)(end - list) <= room);
    end[-1] = 0;
    one.host = NULL;
    one.port = 0;
    one.cluster = list;
    status = rlock__cluster_open(store, client, &one, events, owner, state);
    rlock__dealloc(list);
    return status;
}

int rlock_cluster_new(rlock_store **out, const struct rlock_config *seeds, int count) {
    rlock_store functions = rlock__cluster_store;
    functions.open = rlock__seeds_open;
    return rlock__members_new(out, seeds, count, RLOCK__SEEDS, &functions);
}

void rlock_cluster_free(rlock_store *store) {
    rlock__members_free(store);
}

#endif /* RLOCK__HAS_CLUSTER */

#if RLOCK__HAS_QUORUM

/* ------------------------------------------------------------------------------------------------
 * >>quorum - a store made of several servers that know nothing of each other: the majority counts
 *
 * Each token is a ballot with a vote of each server. An operation is a round: all servers are asked
 * in one turn, it ends as soon as enough of them have spoken, and what comes later is noted. Four
 * rules keep it safe:
 * - A vote stands if its server has confirmed it, and that lease still runs. In a renewal only
 *   votes that stood when it began may say yes. So from one renewal to the next there is a majority
 *   that had the token all the time, and nobody else had one.
 * - A vote that is missing is asked for again only while a majority stands.
 * - What is wanted no more is given back until each server surely does not have it.
 * - A release that was sent may be executed late. So a vote that was given back is asked for with a
 *   new token, and not before the old one is surely gone there.
 */

#define RLOCK__SERVERS 15         /* at most */
#define RLOCK__CONTESTED_MAX 10   /* how often the pause after a split vote doubles */
#define RLOCK__WIN_BACK_US 100000 /* not sooner: who takes all votes by force takes one by one */
#define RLOCK__STRAY_MAX_US 10000 /* the longest pause for a single vote that is given back */

enum { RLOCK__SERVER_NEW, RLOCK__SERVER_UP, RLOCK__SERVER_DOWN }; /* NEW: it was not heard of yet */

typedef struct rlock__server { /* one of them, as one client sees it */
    struct rlock__quorum *quorum;
    const rlock_store *store;
    void *state;
    uint8_t where;
    bool pushing;
    rlock_fault fault; /* why it is down */
    char text[128];    /* its last words */
} rlock__server;

struct rlock__vote;
struct rlock__ballot;

/* What depends on whose word counts: a row for the majority is below, one for both of two stores is
 * in store/combined/both.h. */
typedef struct rlock__rules {
    /* Asks one for something; where one waits for another, perhaps not now. */
    void (*ask)(struct rlock__vote *vote, uint8_t op, int64_t lease_ms);
    /* Notes what one has answered. */
    void (*heard)(struct rlock__vote *vote, const rlock_answer *answer);
    /* Whether enough has been said, and what it means. Else it may ask on. */
    bool (*decided)(struct rlock__ballot *ballot, rlock_answer *answer);
    /* Whether a refused acquire keeps what it got, for the next round or until the timer. */
    bool (*keeps)(struct rlock__ballot *ballot, rlock_answer *answer);
    size_t notes; /* bytes of theirs behind each ballot, which are 0 when a round begins */
} rlock__rules;

typedef struct rlock__quorum { /* one client of the quorum */
    bool up, pushing;
    bool gives_back;   /* config.replicas: its servers may be releasing what they granted */
    bool hears_itself; /* where there is no client tracking: what it publishes wakes it too */
    const rlock__rules *rules;
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_stats *stats;
    int64_t timeout_ms, poll_ms;
    rlock__server *servers;
    int count, need, may_fail; /* of them; a majority; how many may fail */
    rlock__map map;            /* ballots by their tokens */
    rlock_link ballots, unused;
    uint32_t unused_count; /* kept for the next ones: no more than there are handles */
    rlock_link refused;    /* requests for which there is no ballot */
    rlock_timer timer;     /* answers those */
    uint64_t tokens;       /* given out: two addresses of one server are not two votes */
    rlock_info info;       /* of the question being answered */
} rlock__quorum;

struct rlock__quorum;

enum { RLOCK__NOT_THERE, RLOCK__MAYBE_THERE, RLOCK__THERE }; /* rlock__vote.has */
enum { RLOCK__OPEN, RLOCK__YES, RLOCK__NO, RLOCK__FAILED, RLOCK__WORDS_OF_A_VOTE };

typedef struct rlock__vote { /* what one server knows of a token */
    uint8_t has;             /* whether the token is there */
    uint8_t word;            /* in this round. OPEN: being asked, or to be asked */
    uint8_t fault;
    bool refused; /* it may not say yes in this round */
    bool spent;   /* a release of this token was sent, and may come late: it is not used again */
    bool stolen;  /* another's token is there */
    bool watched; /* ... and what becomes of it is told */
    struct rlock__ballot *ballot;
    rlock__server *server;
    int64_t sent_us, lease_ms; /* as it was confirmed last */
    int64_t left_ms;           /* of another's lease */
    int64_t over_us;           /* when nothing of ours can come any more; 0 = not known yet */
    int64_t not_before_us;     /* when it may be won back */
    int64_t cut_ms; /* a renewal may come late, and cut a longer lease to this; 0 = none */
    rlock_request request;
} rlock__vote;

typedef struct rlock__ballot { /* one token, until no server has it */
    rlock_link link;
    uint8_t goal; /* ACQUIRE: get it; RENEW: keep it; RELEASE: give it back */
    uint8_t outcome, fault;
    bool paused;   /* the round is over, its answer waits */
    bool cleaning; /* counted as such */
    rlock__quorum *quorum;
    rlock_request *request; /* the round's, NULL = none */
    rlock__vote *votes;
    uint64_t token;
    int64_t since_us, lease_ms; /* of the majority's lease */
    int64_t longest_ms;         /* of all leases asked for */
    int64_t left_ms;            /* with `outcome` and `fault`: the answer that waits */
    uint32_t room;              /* for the key, behind the votes */
    rlock_timer timer;
    rlock__item item; /* its key are the bytes of the token */
#if RLOCK__HAS_DESCRIPTIONS
    rlock_info listed; /* of a question: the longest list that a server gave */
    char *list;        /* ... and where it stands; NULL: none */
#endif
} rlock__ballot;

/* --- votes --- */

static bool rlock__vote_stands(const rlock__vote *vote) {
    return vote->has == RLOCK__THERE && rlock_client_now_us(vote->server->quorum->client) <
                                            vote->sent_us + vote->lease_ms * 1000;
}

static int rlock__ballot_standing(const rlock__ballot *ballot) {
    int i, standing = 0;
    for (i = 0; i < ballot->quorum->count; i++) {
        standing += rlock__vote_stands(&ballot->votes[i]);
    }
    return standing;
}

/* What is left of the lease that the majority gave. */
RLOCK__NOINLINE static int64_t rlock__ballot_left_ms(const rlock__ballot *ballot) {
    int64_t age_us = rlock_client_now_us(ballot->quorum->client) - ballot->since_us;
    int64_t left_ms = ballot->lease_ms - age_us / 1000;
    RLOCK_ASSERT(ballot->lease_ms >= 0 && ballot->lease_ms <= RLOCK_LEASE_MAX_MS);
    return left_ms >= RLOCK_LEASE_MIN_MS ? left_ms : 0;
}

/* A renewal of this vote may be executed late, and cut a longer lease to the longest one that was
 * asked for by then: no longer one is asked for with this token, nor counted. */
static void rlock__vote_comes_late(rlock__vote *vote) {
    const rlock_request *ask = &vote->request;
    RLOCK_ASSERT(ask->op == RLOCK_OP_RENEW);
    if (ask->lease_ms && (!vote->cut_ms || ask->longest_ms < vote->cut_ms)) {
        vote->cut_ms = ask->longest_ms;
    }
}

/* Takes back what is out; what may have been sent may have happened. */
static void rlock__vote_recall(rlock__vote *vote) {
    const rlock__server *server = vote->server;
    bool maybe = vote->request.out && server->store->forget(server->state, &vote->request);
    vote->request.out = false;
    if (maybe && vote->request.op == RLOCK_OP_ACQUIRE) {
        vote->has = vote->has == RLOCK__NOT_THERE ? (uint8_t)RLOCK__MAYBE_THERE : vote->has;
        vote->spent = server->quorum->gives_back; /* no acquire leaves with a spent token */
    }
    if (maybe && vote->request.op == RLOCK_OP_RENEW) {
        rlock__vote_comes_late(vote);
    }
}

static void rlock__vote_ask(rlock__vote *vote, uint8_t op, int64_t lease_ms) {
    rlock__ballot *ballot = vote->ballot;
    rlock_request *ask = &vote->request;
    const rlock_request *round = ballot->request;
    unsigned flags = vote->has != RLOCK__NOT_THERE ? RLOCK_REQUEST_RETRY : 0u;
    RLOCK_ASSERT(!vote->request.out);
    RLOCK_ASSERT(op != RLOCK_OP_RENEW || vote->has == RLOCK__THERE);
    RLOCK_ASSERT(op != RLOCK_OP_ACQUIRE || lease_ms >= RLOCK_LEASE_MIN_MS);
    flags |= round ? round->flags & RLOCK_REQUEST_TRACK : 0u;
    if (op == RLOCK_OP_ACQUIRE && vote->spent) {
        vote->spent = false;
        vote->cut_ms = 0;
        ask->store.note = 0;
        ask->token = ++vote->server->quorum->tokens;
    } else if (op == RLOCK_OP_RELEASE) {
        vote->has = RLOCK__MAYBE_THERE; /* it stands no more, however it ends */
        vote->spent = true;
    }
    if (vote->cut_ms) {
        lease_ms = rlock__min(lease_ms, vote->cut_ms);
    }
    if (lease_ms > ballot->longest_ms) {
        ballot->longest_ms = lease_ms;
    }
    ask->op = op;
    ask->flags = (uint8_t)(op == RLOCK_OP_ACQUIRE ? flags : 0u);
    RLOCK_ASSERT(op < RLOCK_OP_INSPECT || round); /* behind its round a question is given back */
    if (op == RLOCK_OP_INSPECT) {
        ask->flags = round->flags;
    }
    ask->lease_ms = lease_ms;
    ask->longest_ms = op == RLOCK_OP_RENEW ? ballot->longest_ms : 0;
    if (op == RLOCK_OP_RENEW && round && (round->flags & RLOCK_REQUEST_LAST)) {
        ask->longest_ms = lease_ms;
    }
    ask->due_us = round ? round->due_us : rlock_client_now_us(ballot->quorum->client);
    ask->out = true;
    vote->server->store->submit(vote->server->state, ask);
}

/* Asks for what the ballot wants of an open vote, once its server has answered what was before. */
static void rlock__vote_next(rlock__vote *vote) {
    rlock__ballot *ballot = vote->ballot;
    const rlock_request *round = ballot->request;
    uint8_t op = ballot->goal;
    int64_t lease_ms = 0;
    RLOCK_ASSERT(vote->has <= RLOCK__THERE && vote->word < RLOCK__WORDS_OF_A_VOTE);
    if (vote->request.out || vote->word != RLOCK__OPEN) {
        return;
    }
    if (op == RLOCK_OP_RELEASE && vote->has == RLOCK__NOT_THERE) {
        vote->word = RLOCK__NO;
        return;
    }
    if (vote->server->where == RLOCK__SERVER_DOWN) {
        vote->word = RLOCK__FAILED;
        vote->fault = (uint8_t)vote->server->fault;
        return;
    }
    if (vote->spent && vote->has != RLOCK__NOT_THERE) {
        op = RLOCK_OP_RELEASE; /* first this one has to go */
    } else if (op != RLOCK_OP_RELEASE) {
        lease_ms = round ? round->lease_ms : rlock__ballot_left_ms(ballot);
    }
    if (op == RLOCK_OP_RENEW && vote->has != RLOCK__THERE) { /* win it, or win it back */
        op = RLOCK_OP_ACQUIRE;
        lease_ms = lease_ms ? lease_ms : rlock__ballot_left_ms(ballot);
        if (!lease_ms || vote->not_before_us > rlock_client_now_us(ballot->quorum->client) ||
            rlock__ballot_standing(ballot) < ballot->quorum->need) {
            vote->word = RLOCK__NO;
            return;
        }
    }
    ballot->quorum->rules->ask(vote, op, lease_ms);
}

/* --- ballots --- */

static rlock__ballot *rlock__ballot_of(const rlock__quorum *quorum, uint64_t token) {
    rlock__item *item = rlock__map_find(&quorum->map, (const char *)&token, sizeof token);
    return item ? (rlock__ballot *)item->thing : NULL;
}

/* Keeps the list of an answer, if no longer one is there; with NULL it forgets what is there. */
static void rlock__ballot_list(rlock__ballot *ballot, const rlock_info *info) {
#if RLOCK__HAS_DESCRIPTIONS
    bool shorter = ballot->list && info && info->who_count <= ballot->listed.who_count;
    if (shorter || (info && !info->who && !info->untold)) {
        return;
    }
    rlock__dealloc(ballot->list);
    ballot->list = NULL;
    if (info) {
        ballot->listed = *info;
        ballot->list = rlock__who_copy(ballot->quorum->client, &ballot->listed);
    }
#else
    (void)ballot;
    (void)info;
#endif
}

static void rlock__ballot_free(rlock__ballot *ballot) {
    rlock__ballot_list(ballot, NULL);
    rlock__list_remove(&ballot->link);
    rlock_timer_drop(ballot->quorum->client, &ballot->timer);
    rlock__dealloc(ballot);
}

/* Takes one out of those that are unused. */
static rlock__ballot *rlock__ballot_spare(rlock__quorum *quorum) {
    rlock__ballot *ballot = RLOCK__OF(quorum->unused.next, rlock__ballot, link);
    RLOCK_ASSERT(quorum->unused_count && !rlock__list_empty(&quorum->unused));
    rlock__list_remove(&ballot->link);
    quorum->unused_count--;
    return ballot;
}

/* Frees unused ballots until at most `keep` are left. */
static void rlock__quorum_trim(rlock__quorum *quorum, uint32_t keep) {
    while (quorum->unused_count > keep) {
        rlock__ballot_free(rlock__ballot_spare(quorum));
    }
}

/* After each change: a ballot that nobody wants any more goes when no server has it; until then it
 * is seen to that each is asked again. */
static void rlock__ballot_tend(rlock__ballot *ballot) {
    rlock__quorum *quorum = ballot->quorum;
    rlock_client *client = quorum->client;
    bool wanted = ballot->request || ballot->goal != RLOCK_OP_RELEASE;
    bool left = false, idle = false;
    int i;
    for (i = 0; i < quorum->count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        if (vote->has != RLOCK__NOT_THERE || vote->request.out) {
            left = true;
        }
        if (vote->has != RLOCK__NOT_THERE && !vote->request.out &&
            vote->server->where != RLOCK__SERVER_DOWN) {
            idle = true;
        }
    }
    RLOCK_ASSERT(!ballot->cleaning || quorum->stats->cleaning);
    quorum->stats->cleaning -= ballot->cleaning;
    ballot->cleaning = !wanted && left;
    quorum->stats->cleaning += ballot->cleaning;
    if (wanted) {
        return;
    }
    if (!left) {
        rlock_timer_set(client, &ballot->timer, -1);
        rlock__map_remove(&quorum->map, &ballot->item);
        rlock__list_remove(&ballot->link);
        rlock__list_append(&quorum->unused, &ballot->link);
        quorum->unused_count++;
    } else if (idle && !ballot->timer.index) {
        rlock_timer_set(client, &ballot->timer,
                        rlock_client_now_us(client) + rlock__clean_up_pause_us(ballot->longest_ms));
    }
}

static void rlock__ballot_give_back(rlock__ballot *ballot) {
    int i;
    ballot->goal = RLOCK_OP_RELEASE;
    for (i = 0; i < ballot->quorum->count; i++) {
        rlock__vote *vote = &ballot->votes[i];
        if (vote->request.op != RLOCK_OP_RELEASE && vote->request.op != RLOCK_OP_FORCE) {
            rlock__vote_recall(vote); /* of those every server is to hear */
        }
        if (vote->has != RLOCK__NOT_THERE) {
            vote->word = RLOCK__OPEN;
            rlock__vote_next(vote);
        }
    }
}

/* A majority has the last renewal of this token: nothing more is asked of it. */
static void rlock__ballot_leave(rlock__ballot *ballot) {
    int i;
    RLOCK_ASSERT(ballot->goal == RLOCK_OP_RENEW);
    ballot->goal = RLOCK_OP_RELEASE;
    for (i = 0; i < ballot->quorum->count; i++) {
        rlock__vote_recall(&ballot->votes[i]);
        ballot->votes[i].has = RLOCK__NOT_THERE;
    }
}

/* --- rounds --- */

/* The k-th largest, from 1; the values are put into order. */
static int64_t rlock__kth_largest(int64_t *values, int count, int k) {
    int i, j;
    RLOCK_ASSERT(k >= 1 && k <= count);
    for (i = 1; i < count; i++) {
        int64_t value = values[i];
        for (j = i; j > 0 && values[j - 1] < value; j--) {
            values[j] = values[j - 1];
        }
        values[j] = value;
    }
    return values[k - 1];
}

/* When the lease of a majority began: the earliest of the best of those that said yes. None of them
 * gave less than *lease_ms. */
static int64_t rlock__ballot_since(const rlock__ballot *ballot, int64_t *lease_ms) {
    int64_t since_us[RLOCK__SERVERS];
    int i, count = 0;
    for (i = 0; i < ballot->quorum->count; i++) {
        if (ballot->votes[i].word == RLOCK__YES) {
            since_us[count++] = ballot->votes[i].sent_us;
            *lease_ms = rlock__min(*lease_ms, ballot->votes[i].lease_ms);
        }
    }
    RLOCK_ASSERT(count >= ballot->quorum->need);
    RLOCK_ASSERT(count <= RLOCK__SERVERS && *lease_ms > 0);
    return rlock__kth_largest(since_us, count, ballot->quorum->need);
}

/* When a majority can be free; -1 = nobody knows. */
static int64_t rlock__ballot_free_ms(const rlock__ballot *ballot) {
    int64_t free_ms[RLOCK__SERVERS], left_ms;
    int i, count = ballot->quorum->count;
    RLOCK_ASSERT(count <= RLOCK__SERVERS);
    for (i = 0; i < count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        bool known = vote->word == RLOCK__NO && vote->left_ms >= 0;
        free_ms[i] = known ? -vote->left_ms : -RLOCK__NEVER;
    }
    left_ms = -rlock__kth_largest(free_ms, count, ballot->quorum->need);
    return left_ms == RLOCK__NEVER ? -1 : left_ms;
}

/* Of many faults the one to tell: one that time mends, unless too many want an operator. */
static rlock_fault rlock__quorum_fault(const rlock__quorum *quorum, const int *faults) {
    static const rlock_fault order[] = {RLOCK_FAULT_UNKNOWN, RLOCK_FAULT_BUSY, RLOCK_FAULT_DOWN,
                                        RLOCK_FAULT_TYPE,    RLOCK_FAULT_AUTH, RLOCK_FAULT_OTHER,
                                        RLOCK_FAULT_NOMEM};
    int lasting = faults[RLOCK_FAULT_TYPE] + faults[RLOCK_FAULT_AUTH] + faults[RLOCK_FAULT_OTHER] +
                  faults[RLOCK_FAULT_NOMEM];
    int i = lasting > quorum->may_fail ? 3 : 0;
    while (i < 6 && !faults[order[i]]) {
        i++;
    }
    return order[i];
}

static void rlock__round_failed(const rlock__ballot *ballot, const int *faults,
                                rlock_answer *answer) {
    int i;
    answer->outcome = RLOCK_OUTCOME_FAULT;
    answer->fault = rlock__quorum_fault(ballot->quorum, faults);
    for (i = 0; i < ballot->quorum->count && !answer->text; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        if (vote->word == RLOCK__FAILED && vote->fault == answer->fault && vote->server->text[0]) {
            answer->text = vote->server->text;
        }
    }
}

/* The answer to a question: held, if so many servers are, and as long as they are; 0 = free. */
static void rlock__round_info(const rlock__ballot *ballot, int held) {
    rlock_info *info = &ballot->quorum->info;
    int64_t left_ms[RLOCK__SERVERS];
    int i, count = 0;
    for (i = 0; i < ballot->quorum->count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        if (vote->word == RLOCK__YES) {
            left_ms[count++] = vote->left_ms < 0 ? RLOCK__NEVER : vote->left_ms;
        }
    }
    memset(info, 0, sizeof *info);
    info->waiters = info->position = -1;
#if RLOCK__HAS_DESCRIPTIONS
    if (ballot->list) {
        info->who = ballot->listed.who;
        info->who_count = ballot->listed.who_count;
        info->untold = ballot->listed.untold;
    }
#endif
    info->holders = held > 0;
    info->permits = !held;
    if (held) {
        RLOCK_ASSERT(held <= count);
        info->left_ms = rlock__kth_largest(left_ms, count, held);
        info->left_ms = info->left_ms == RLOCK__NEVER ? -1 : info->left_ms;
    }
}

/* Whether enough has been said, and what it means. */
static bool rlock__majority_decided(rlock__ballot *ballot, rlock_answer *answer) {
    const rlock_request *round = ballot->request;
    int need = ballot->quorum->need, may_fail = ballot->quorum->may_fail, stolen = 0, watched = 0,
        i;
    int words[RLOCK__WORDS_OF_A_VOTE] = {0}, faults[RLOCK_FAULT_OTHER + 1] = {0};
    int *yes = &words[RLOCK__YES], *no = &words[RLOCK__NO];
    int *failed = &words[RLOCK__FAILED], *open = &words[RLOCK__OPEN];
    bool renew = round->op == RLOCK_OP_RENEW, refused, done, possible;
    for (i = 0; i < ballot->quorum->count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        int word = vote->refused ? (int)RLOCK__NO : vote->word;
        words[word]++;
        if (word == RLOCK__FAILED) {
            faults[vote->fault]++;
        } else if (word == RLOCK__NO) {
            if (vote->stolen) {
                stolen++;
            }
            if (vote->watched) {
                watched++;
            }
        }
    }
    RLOCK_ASSERT(*yes + *no + *failed + *open == ballot->quorum->count);
    if (round->op == RLOCK_OP_RELEASE) { /* a majority is free for others; or none can have it */
        refused = *no > may_fail;
        possible = *open > 0;
        done = *yes >= need || (!possible && *yes + *no > may_fail);
    } else { /* of an acquire, faults that leave a majority do not hide that others are there */
        refused = renew ? *no > may_fail : *no + *failed > may_fail && *failed <= may_fail;
        possible = *yes + *open >= need;
        done = *yes >= need;
    }
    memset(answer, 0, sizeof *answer);
    answer->settled = true; /* what may come yet is cleaned up here */
    if (RLOCK__HAS_KINDS && round->op >= RLOCK_OP_INSPECT && (refused || done)) {
        rlock__round_info(ballot, done ? need : 0);
        answer->info = &ballot->quorum->info;
    } else if (refused && round->op == RLOCK_OP_ACQUIRE) {
        bool contested =
            *yes || *no <= may_fail; /* perhaps nobody has it: see rlock__round_pause */
        answer->outcome = RLOCK_OUTCOME_HELD;
        answer->left_ms = contested ? 0 : rlock__ballot_free_ms(ballot);
        answer->watched = !contested && watched >= need;
    } else if (refused) {
        answer->outcome = stolen * 2 > *no ? RLOCK_OUTCOME_STOLEN : RLOCK_OUTCOME_GONE;
    } else if (!done && possible) {
        return false;
    } else if (!done) {
        rlock__round_failed(ballot, faults, answer);
    }
    return true;
}

/* Whether a vote is being given back: behind rlock__ballot_give_back nothing else is out. */
static bool rlock__ballot_strays(const rlock__ballot *ballot) {
    int i = 0;
    while (i < ballot->quorum->count && !ballot->votes[i].request.out) {
        i++;
    }
    return i < ballot->quorum->count;
}

/* Whether nobody got a majority, or votes are given back, now or soon: news of that wakes all who
 * wait, this one too, and each would ask again at once, without end. */
static bool rlock__round_pauses(const rlock__ballot *ballot, const rlock_answer *answer) {
    bool held = answer->outcome == RLOCK_OUTCOME_HELD, mended = false;
    bool watched = (ballot->request->flags & RLOCK_REQUEST_TRACK) != 0;
    if (answer->outcome == RLOCK_OUTCOME_FAULT) { /* the others are told at once: they end it */
        mended = answer->fault == RLOCK_FAULT_DOWN || answer->fault == RLOCK_FAULT_BUSY ||
                 answer->fault == RLOCK_FAULT_UNKNOWN;
    }
    if (ballot->request->op != RLOCK_OP_ACQUIRE || !watched || !(held || mended)) {
        return false;
    }
    return ((mended || ballot->quorum->hears_itself) && rlock__ballot_strays(ballot)) ||
           (held && answer->left_ms == 0);
}

/* The vote was split. Whoever is told so asks again at once; so it is told after a while, at random
 * and the longer the more often, in which what is given back can become somebody's majority. News
 * of that to the waiter only marks its try, which is still out. */
static void rlock__round_pause(rlock__ballot *ballot, const rlock_answer *answer) {
    rlock_client *client = ballot->quorum->client;
    rlock_request *request = ballot->request;
    int64_t now_us = rlock_client_now_us(client);
    int64_t limit_us = now_us - request->sent_us + 1000, most_us = ballot->quorum->poll_ms * 1000;
    RLOCK_ASSERT(!ballot->paused);
    if (answer->outcome == RLOCK_OUTCOME_HELD && answer->left_ms != 0) {
        most_us = rlock__min(most_us, RLOCK__STRAY_MAX_US); /* somebody has it, and is waited for */
    }
    if (request->store.note < RLOCK__CONTESTED_MAX) {
        request->store.note++;
    }
    limit_us = rlock__min(limit_us << request->store.note, most_us);
    RLOCK_ASSERT(limit_us > 0 && request->store.note <= RLOCK__CONTESTED_MAX);
    ballot->paused = true;
    ballot->outcome = (uint8_t)answer->outcome;
    ballot->fault = (uint8_t)answer->fault;
    ballot->left_ms = answer->left_ms;
    rlock_timer_set(client, &ballot->timer,
                    now_us + (int64_t)(rlock_client_random(client) % (uint64_t)limit_us));
}

static void rlock__round_answer(rlock__ballot *ballot, const rlock_answer *answer) {
    const rlock__quorum *quorum = ballot->quorum;
    rlock_request *request = ballot->request;
    RLOCK_ASSERT(request && request->store.data == ballot);
    ballot->request = NULL;
    ballot->paused = false;
    rlock__ballot_tend(ballot);
    quorum->events->answered(quorum->owner, request, answer);
}

/* Ends the round if it can be. The ballot may be gone behind this. */
static void rlock__round_settle(rlock__ballot *ballot) {
    rlock_request *request = ballot->request;
    const rlock__rules *rules = ballot->quorum->rules;
    rlock_answer answer;
    if (!request || ballot->paused || !rules->decided(ballot, &answer)) {
        rlock__ballot_tend(ballot);
        return;
    }
    if (answer.outcome == RLOCK_OUTCOME_DONE && request->op < RLOCK_OP_RELEASE) {
        ballot->goal = RLOCK_OP_RENEW;
        if (request->lease_ms) {
            answer.lease_ms = request->lease_ms;
            request->sent_us = rlock__ballot_since(ballot, &answer.lease_ms);
            ballot->since_us = request->sent_us;
            ballot->lease_ms = answer.lease_ms;
            RLOCK_ASSERT(answer.lease_ms > 0 && answer.lease_ms <= request->lease_ms);
        }
        if (RLOCK__HAS_TOKENS && (request->flags & RLOCK_REQUEST_LAST)) {
            rlock__ballot_leave(ballot);
        }
    } else if (rules->keeps(ballot, &answer)) {
        rlock__round_answer(ballot, &answer);
        return;
    } else if (answer.outcome != RLOCK_OUTCOME_FAULT || request->op == RLOCK_OP_ACQUIRE ||
               request->op >= RLOCK_OP_INSPECT) {
        rlock__ballot_give_back(ballot);
    }
    if (rlock__round_pauses(ballot, &answer)) {
        rlock__round_pause(ballot, &answer);
        return;
    }
    if (answer.outcome == RLOCK_OUTCOME_HELD && answer.left_ms == 0) {
        answer.left_ms = -1;
    } else {
        request->store.note = 0; /* somebody has it: the next split is another one */
    }
    rlock__round_answer(ballot, &answer);
}

static void rlock__round_begin(rlock__ballot *ballot) {
    uint8_t op = ballot->request->op;
    int i;
    RLOCK_ASSERT(ballot->request && !ballot->paused);
    for (i = 0; i < ballot->quorum->count; i++) {
        rlock__vote *vote = &ballot->votes[i];
        if (vote->request.op != RLOCK_OP_RELEASE) { /* what is given back goes first */
            rlock__vote_recall(vote);
        }
        vote->refused = op == RLOCK_OP_RENEW && !rlock__vote_stands(vote);
        vote->stolen = false;
        if (op != RLOCK_OP_RELEASE || vote->has != RLOCK__NOT_THERE) {
            vote->word = RLOCK__OPEN;
        } else if (ballot->goal != RLOCK_OP_RELEASE || vote->word != RLOCK__YES) {
            vote->word = RLOCK__NO; /* else the release before this one has done it */
        }
    }
    ballot->goal = op;
    memset(ballot + 1, 0, ballot->quorum->rules->notes);
    for (i = 0; i < ballot->quorum->count; i++) {
        rlock__vote_next(&ballot->votes[i]);
    }
}

/* The round can be over with no server asked; or it is time to ask once more who still has it. */
static void rlock__ballot_fire(rlock_timer *timer) {
    rlock__ballot *ballot = RLOCK__OF(timer, rlock__ballot, timer);
    int i;
    if (ballot->paused) {
        rlock_answer answer;
        memset(&answer, 0, sizeof answer);
        answer.outcome = (rlock_outcome)ballot->outcome;
        answer.fault = (rlock_fault)ballot->fault;
        answer.left_ms = ballot->left_ms;
        answer.settled = true;
        rlock__round_answer(ballot, &answer);
        return;
    }
    if (!ballot->request && ballot->goal == RLOCK_OP_ACQUIRE) { /* it was kept in vain */
        rlock__ballot_give_back(ballot);
    }
    for (i = 0; i < ballot->quorum->count && !ballot->request; i++) {
        rlock__vote *vote = &ballot->votes[i];
        bool missing = ballot->goal == RLOCK_OP_RENEW && vote->has == RLOCK__NOT_THERE;
        if ((ballot->goal == RLOCK_OP_RELEASE || missing) && !vote->request.out) {
            vote->word = RLOCK__OPEN;
            rlock__vote_next(vote);
        }
    }
    if (ballot->request && ballot->goal == RLOCK_OP_RENEW) {
        rlock_timer_set(ballot->quorum->client, timer,
                        rlock_client_now_us(ballot->quorum->client) + RLOCK__WIN_BACK_US);
    }
    rlock__round_settle(ballot);
}

/* An unused one, or a new one. All that its release will need is there. */
static rlock__ballot *rlock__ballot_room(rlock__quorum *quorum, uint32_t key_len) {
    size_t votes = (size_t)quorum->count * sizeof(rlock__vote), notes = quorum->rules->notes;
    rlock__ballot *ballot;
    if (quorum->unused_count) {
        ballot = rlock__ballot_spare(quorum);
        if (ballot->room >= key_len) {
            RLOCK_ASSERT(ballot->quorum == quorum);
            return ballot;
        }
        rlock__ballot_free(ballot);
    }
    key_len = (key_len + 63u) & ~63u; /* so that it suits the next key too */
    ballot = (rlock__ballot *)rlock__alloc(sizeof *ballot + notes + votes + key_len);
    if (!ballot ||
        rlock_timer_add(quorum->client, &ballot->timer, rlock__ballot_fire) != RLOCK_OK) {
        rlock__dealloc(ballot);
        return NULL;
    }
    ballot->quorum = quorum;
    ballot->votes = (rlock__vote *)(void *)((char *)(ballot + 1) + notes);
    ballot->room = key_len;
    return ballot;
}

static rlock__ballot *rlock__ballot_new(rlock__quorum *quorum, const rlock_request *request) {
    rlock__ballot *ballot = rlock__ballot_room(quorum, request->key_len);
    bool question = request->op >= RLOCK_OP_INSPECT;
    char *key;
    int i;
    if (!ballot) {
        return NULL;
    }
    rlock__ballot_list(ballot, NULL);
    RLOCK_ASSERT(ballot->room >= request->key_len);
    RLOCK_ASSERT(question || !rlock__ballot_of(quorum, request->token));
    key = (char *)(ballot->votes + quorum->count);
    memcpy(key, request->key, request->key_len);
    memset(ballot->votes, 0, (size_t)quorum->count * sizeof *ballot->votes);
    for (i = 0; i < quorum->count; i++) {
        rlock__vote *vote = &ballot->votes[i];
        vote->ballot = ballot;
        vote->server = &quorum->servers[i];
        vote->request = *request;
        vote->request.key = key;
        memset(&vote->request.store, 0, sizeof vote->request.store);
        vote->request.out = false;
        vote->request.token = ++quorum->tokens;
    }
    ballot->request = NULL;
    ballot->token = question ? ~quorum->tokens : request->token; /* no claim's, no other's */
    ballot->since_us = ballot->lease_ms = ballot->longest_ms = 0;
    ballot->goal = RLOCK_OP_ACQUIRE;
    ballot->paused = ballot->cleaning = false;
    rlock__list_append(&quorum->ballots, &ballot->link);
    rlock__map_add(&quorum->map, &ballot->item, ballot, (const char *)&ballot->token,
                   sizeof ballot->token);
    return ballot;
}

/* --- what one server reports --- */

static void rlock__server_says(rlock__server *server, const char *text) {
    size_t n = 0;
    while (text && text[n] && n < sizeof server->text - 1) {
        server->text[n] = text[n];
        n++;
    }
    server->text[n] = 0;
}

static bool rlock__vote_gone(rlock__vote *vote, const rlock_answer *answer) {
    const rlock__quorum *quorum = vote->server->quorum;
    RLOCK_ASSERT(vote->request.op == RLOCK_OP_RELEASE);
    return rlock__surely_gone(answer, &vote->over_us, rlock_client_now_us(quorum->client),
                              vote->ballot->longest_ms, quorum->timeout_ms);
}

/* Notes what a server says of a token. */
static void rlock__vote_note(rlock__vote *vote, const rlock_answer *answer) {
    const rlock_request *asked = &vote->request;
    bool acquire = asked->op == RLOCK_OP_ACQUIRE, release = asked->op == RLOCK_OP_RELEASE;
    bool hold = release || asked->op == RLOCK_OP_RENEW;
    bool fault = answer->outcome == RLOCK_OUTCOME_FAULT &&
                 !(hold && answer->fault == RLOCK_FAULT_TYPE); /* no lock is there at all */
    RLOCK_ASSERT(!asked->out);
    vote->left_ms = answer->left_ms;
    vote->watched = answer->watched;
    if (release && rlock__vote_gone(vote, answer)) {
        vote->has = RLOCK__NOT_THERE;
        vote->over_us = 0;
    }
    if (fault) {
        bool maybe = acquire && (rlock__may_exist(answer) || answer->spent);
        vote->word = RLOCK__FAILED;
        vote->fault = (uint8_t)answer->fault;
        vote->has = maybe && !vote->has ? (uint8_t)RLOCK__MAYBE_THERE : vote->has;
        if (answer->spent) {
            vote->spent = true;
        }
        if (hold && !release && !answer->undone && answer->fault != RLOCK_FAULT_DOWN) {
            rlock__vote_comes_late(vote);
        }
        rlock__server_says(vote->server, answer->text);
    } else if (RLOCK__HAS_KINDS && answer->info) {
        rlock__ballot_list(vote->ballot, answer->info);
        vote->word = answer->info->holders ? RLOCK__YES : RLOCK__NO;
        vote->left_ms = answer->info->left_ms;
    } else if (answer->outcome == RLOCK_OUTCOME_DONE) {
        vote->word = RLOCK__YES;
        if (!release) {
            vote->has = RLOCK__THERE;
        }
        if (!release && asked->lease_ms) {
            vote->sent_us = asked->sent_us;
            vote->lease_ms = answer->lease_ms > 0 ? rlock__min(answer->lease_ms, asked->lease_ms)
                                                  : asked->lease_ms;
        }
    } else {
        bool gone = answer->settled || vote->has == RLOCK__NOT_THERE;
        vote->word = RLOCK__NO;
        vote->stolen = answer->outcome != RLOCK_OUTCOME_GONE;
        if (!release) {
            vote->has = gone ? RLOCK__NOT_THERE : RLOCK__MAYBE_THERE;
        }
    }
}

/* Notes what it means for the round, and for the next ones. */
static void rlock__vote_heard(rlock__vote *vote, const rlock_answer *answer) {
    const rlock__quorum *quorum = vote->server->quorum;
    const rlock_request *request = &vote->request;
    rlock__ballot *ballot = vote->ballot;
    rlock__vote_note(vote, answer);
    if (request->op == RLOCK_OP_RELEASE && ballot->goal != RLOCK_OP_RELEASE) {
        bool gone = vote->has == RLOCK__NOT_THERE; /* else not before it is sure */
        vote->fault = vote->word == RLOCK__FAILED ? vote->fault : (uint8_t)RLOCK_FAULT_UNKNOWN;
        vote->word = gone ? (uint8_t)RLOCK__OPEN : (uint8_t)RLOCK__FAILED;
    } else if (request->op == RLOCK_OP_RENEW && vote->word == RLOCK__NO) {
        vote->refused = true;
        vote->not_before_us = rlock_client_now_us(quorum->client) + RLOCK__WIN_BACK_US;
        rlock_timer_set(quorum->client, &ballot->timer, vote->not_before_us);
        if (!ballot->request && rlock__ballot_standing(ballot) < quorum->need) {
            quorum->events->woken(quorum->owner, request->key, request->key_len);
        }
    }
}

static void rlock__server_answered(void *owner, rlock_request *request,
                                   const rlock_answer *answer) {
    rlock__vote *vote = RLOCK__OF(request, rlock__vote, request);
    RLOCK_ASSERT(request->out);
    request->out = false;
    ((rlock__server *)owner)->quorum->rules->heard(vote, answer);
    rlock__vote_next(vote);
    rlock__round_settle(vote->ballot);
}

/* Calls visit for the vote of one server in every ballot of a part of its keys; it may free that
 * one, and make others. */
static void rlock__server_each(rlock__server *server, const rlock_part *part,
                               void (*visit)(rlock__vote *vote)) {
    rlock__quorum *quorum = server->quorum;
    rlock__vote *vote;
    rlock_link all;
    rlock__list_init(&all);
    rlock__list_move(&all, &quorum->ballots);
    while (!rlock__list_empty(&all)) {
        rlock__ballot *ballot = RLOCK__OF(all.next, rlock__ballot, link);
        rlock__list_remove(&ballot->link);
        rlock__list_append(&quorum->ballots, &ballot->link);
        vote = &ballot->votes[server - quorum->servers];
        if (!part || part->has(part, vote->request.key, vote->request.key_len)) {
            visit(vote);
        }
    }
}

static void rlock__vote_up(rlock__vote *vote) {
    RLOCK_ASSERT(vote->server->where == RLOCK__SERVER_UP);
    if (!vote->ballot->request || vote->word == RLOCK__FAILED) {
        vote->word = RLOCK__OPEN;
        rlock__vote_next(vote);
        rlock__round_settle(vote->ballot);
    }
}

/* A yes from before the connection was lost makes no majority: the server may have forgotten it,
 * and given its vote to others. It is asked once more. */
static void rlock__vote_down(rlock__vote *vote) {
    const rlock_request *round = vote->ballot->request;
    RLOCK_ASSERT(vote->server->where == RLOCK__SERVER_DOWN);
    rlock__vote_recall(vote);
    if (round && round->op == RLOCK_OP_ACQUIRE && vote->word == RLOCK__YES) {
        vote->word = RLOCK__OPEN;
    }
    rlock__vote_next(vote); /* which finds the server down */
    rlock__round_settle(vote->ballot);
}

static int rlock__quorum_where(const rlock__quorum *quorum, int where) {
    int i, count = 0;
    for (i = 0; i < quorum->count; i++) {
        count += quorum->servers[i].where == where;
    }
    return count;
}

static void rlock__server_up(void *owner, const rlock_part *part) {
    rlock__server *server = (rlock__server *)owner;
    rlock__quorum *quorum = server->quorum;
    server->where = RLOCK__SERVER_UP;
    if (!quorum->up && rlock__quorum_where(quorum, RLOCK__SERVER_UP) >= quorum->need) {
        quorum->up = true;
        quorum->events->up(quorum->owner, NULL);
    }
    rlock__server_each(server, part, rlock__vote_up);
}

static void rlock__server_down(void *owner, const rlock_part *part, rlock_fault fault,
                               const char *text) {
    rlock__server *server = (rlock__server *)owner;
    rlock__quorum *quorum = server->quorum;
    int faults[RLOCK_FAULT_OTHER + 1] = {0}, i;
    uint8_t where = server->where;
    server->where = RLOCK__SERVER_DOWN;
    server->fault = fault;
    rlock__server_says(server, text);
    rlock__server_each(server, part, rlock__vote_down);
    server->where = part ? where : server->where;
    if (rlock__quorum_where(quorum, RLOCK__SERVER_DOWN) <= quorum->may_fail) {
        quorum->stats->faults++;
        return;
    }
    for (i = 0; i < quorum->count; i++) {
        if (quorum->servers[i].where == RLOCK__SERVER_DOWN) {
            faults[quorum->servers[i].fault]++;
        }
    }
    quorum->up = false;
    fault = rlock__quorum_fault(quorum, faults);
    for (i = 0; server->fault != fault; i++) { /* the words of that fault */
        RLOCK_ASSERT(i < quorum->count);
        if (quorum->servers[i].where == RLOCK__SERVER_DOWN && quorum->servers[i].fault == fault) {
            server = &quorum->servers[i];
        }
    }
    quorum->events->down(quorum->owner, NULL, fault, server->text);
}

/* On where a majority pushes: it and the majority of whoever holds a key have a server in common.
 * Said again for each server that joins them: what changed there in between was not told. */
static void rlock__server_pushing(void *owner, const rlock_part *part, unsigned what) {
    rlock__server *server = (rlock__server *)owner;
    rlock__quorum *quorum = server->quorum;
    bool enough, on = (what & RLOCK_PUSH_CHANGES) && (!part || server->pushing);
    int i, count = 0;
    server->pushing = on;
    for (i = 0; i < quorum->count; i++) {
        count += quorum->servers[i].pushing;
    }
    enough = count >= quorum->need;
    if (enough ? on : quorum->pushing) {
        quorum->pushing = enough;
        quorum->events->pushing(quorum->owner, NULL, enough ? RLOCK_PUSH_CHANGES : 0u);
    }
}

static void rlock__server_woken(void *owner, const char *key, size_t key_len) {
    const rlock__quorum *quorum = ((rlock__server *)owner)->quorum;
    quorum->events->woken(quorum->owner, key, key_len);
}

/* There is no line. */
static void rlock__server_notified(void *owner, const char *key, size_t key_len, uint64_t token) {
    (void)owner;
    (void)key;
    (void)key_len;
    (void)token;
}

static const rlock_store_events rlock__server_events = {
    rlock__server_answered, rlock__server_up,    rlock__server_down,
    rlock__server_pushing,  rlock__server_woken, rlock__server_notified};

/* --- the store --- */

/* Answers what there is no ballot for: nobody has that token, or none could be made. */
static void rlock__quorum_fire(rlock_timer *timer) {
    rlock__quorum *quorum = RLOCK__OF(timer, rlock__quorum, timer);
    rlock_link refused;
    rlock__list_init(&refused);
    rlock__list_move(&refused, &quorum->refused);
    while (!rlock__list_empty(&refused)) {
        rlock_request *request = RLOCK__OF(refused.next, rlock_request, store.link);
        rlock_answer answer;
        memset(&answer, 0, sizeof answer);
        answer.settled = true;
        answer.outcome = RLOCK_OUTCOME_GONE;
        if (request->op == RLOCK_OP_ACQUIRE || request->op >= RLOCK_OP_INSPECT) {
            answer.outcome = RLOCK_OUTCOME_FAULT;
            answer.fault = RLOCK_FAULT_NOMEM;
        }
        rlock__list_remove(&request->store.link);
        quorum->events->answered(quorum->owner, request, &answer);
    }
}

static void rlock__quorum_submit(void *state, rlock_request *request) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    bool question = RLOCK__HAS_KINDS && request->op >= RLOCK_OP_INSPECT;
    rlock__ballot *ballot = question ? NULL : rlock__ballot_of(quorum, request->token);
    rlock_answer answer;
    request->sent_us = rlock_client_now_us(quorum->client);
    if (!ballot && (question || request->op == RLOCK_OP_ACQUIRE)) {
        ballot = rlock__ballot_new(quorum, request);
    }
    request->store.data = ballot;
    if (!ballot) {
        rlock__list_append(&quorum->refused, &request->store.link);
        rlock_timer_set(quorum->client, &quorum->timer, request->sent_us);
        return;
    }
    RLOCK_ASSERT(!ballot->request);
    ballot->request = request;
    rlock__round_begin(ballot);
    rlock__ballot_tend(ballot);
    if (quorum->rules->decided(ballot, &answer)) { /* but nothing is answered in here */
        rlock_timer_set(quorum->client, &ballot->timer, request->sent_us);
    }
}

static bool rlock__quorum_forget(void *state, rlock_request *request) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    rlock__ballot *ballot = (rlock__ballot *)request->store.data;
    bool maybe = request->op >= RLOCK_OP_INSPECT;
    int i;
    if (!ballot) {
        rlock__list_remove(&request->store.link);
        return false;
    }
    RLOCK_ASSERT(ballot->request == request);
    ballot->request = NULL;
    ballot->paused = false;
    if (request->op == RLOCK_OP_ACQUIRE || request->op >= RLOCK_OP_INSPECT) {
        rlock__ballot_give_back(ballot);
    }
    for (i = 0; i < quorum->count; i++) {
        if (ballot->votes[i].has != RLOCK__NOT_THERE) {
            maybe = true;
        }
    }
    rlock__ballot_tend(ballot);
    return maybe;
}

static void rlock__quorum_track(void *state, const char *key, size_t len, bool on) {
    const rlock__quorum *quorum = (const rlock__quorum *)state;
    int i;
    for (i = 0; i < quorum->count; i++) {
        quorum->servers[i].store->track(quorum->servers[i].state, key, len, on);
    }
}

static void rlock__quorum_flush(void *state) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    rlock_stats stats;
    int i;
    rlock_client_stats(quorum->client, &stats);
    rlock__quorum_trim(quorum, (uint32_t)stats.handles);
    for (i = 0; i < quorum->count; i++) {
        quorum->servers[i].store->flush(quorum->servers[i].state);
    }
}

/* What a majority can say of a server's counters and lines has not been proved. */
static const char *rlock__quorum_refuses(void *state, const char *key, size_t len,
                                         const rlock_terms *terms, bool fencing) {
    (void)state;
    (void)key;
    (void)len;
    return terms     ? "a quorum supports only a mutex with one key"
           : fencing ? "a quorum does not support fencing tokens"
                     : NULL;
}

static void rlock__quorum_free(rlock__quorum *quorum) {
    while (!rlock__list_empty(&quorum->ballots)) {
        rlock__ballot_free(RLOCK__OF(quorum->ballots.next, rlock__ballot, link));
    }
    rlock__quorum_trim(quorum, 0);
    RLOCK_ASSERT(!quorum->unused_count && rlock__list_empty(&quorum->ballots));
    rlock_timer_drop(quorum->client, &quorum->timer);
    rlock__dealloc(quorum->map.buckets);
    rlock__dealloc(quorum);
}

/* Each server is sent the release of all that it may have, or the last renewal of what stays. */
static void rlock__vote_last(rlock__vote *vote) {
    const rlock_request *round = vote->ballot->request;
    bool stays = RLOCK__HAS_TOKENS && round && (round->flags & RLOCK_REQUEST_LAST);
    rlock__vote_recall(vote);
    if (stays && vote->has == RLOCK__THERE) {
        rlock__vote_ask(vote, RLOCK_OP_RENEW, round->lease_ms);
    } else if (vote->has != RLOCK__NOT_THERE) {
        rlock__vote_ask(vote, RLOCK_OP_RELEASE, 0);
    }
}

static void rlock__quorum_close(void *state) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    int i;
    for (i = 0; i < quorum->count; i++) {
        rlock__server *server = &quorum->servers[i];
        rlock__server_each(server, NULL, rlock__vote_last);
        server->store->close(server->state);
    }
    rlock__quorum_free(quorum);
}

static int rlock__quorum_open_all(rlock__quorum *quorum, const rlock__members *members,
                                  const rlock_config *config) {
    int status = RLOCK_OK, i;
    for (i = 0; i < quorum->count && status == RLOCK_OK; i++) {
        rlock__server *server = &quorum->servers[i];
        rlock_config one = *config;
        char line[RLOCK__LINE], *texts;
        rlock__member_config(&members->servers[i], &one);
        server->quorum = quorum;
        status = rlock__url_resolve(&one, true, &texts, line);
        server->store = rlock__store_of(&one);
        if (status == RLOCK_OK) {
            status = server->store->open(server->store, quorum->client, &one, &rlock__server_events,
                                         server, &server->state);
        } else if (status == RLOCK_ERR_ARG) {
            rlock_client_log(quorum->client, RLOCK_LOG_ERROR, line, NULL);
        }
        rlock__dealloc(texts);
    }
    for (i -= 2; status != RLOCK_OK && i >= 0 && !rlock_client_forked(quorum->client);
         i--) { /* all before the one that failed */
        quorum->servers[i].store->close(quorum->servers[i].state);
    }
    return status;
}

/* What did not get enough is given back. */
static bool rlock__majority_keeps(rlock__ballot *ballot, rlock_answer *answer) {
    (void)ballot;
    (void)answer;
    return false;
}

static const rlock__rules rlock__majority = {rlock__vote_ask, rlock__vote_heard,
                                             rlock__majority_decided, rlock__majority_keeps, 0};

static int rlock__quorum_open(const rlock_store *store, rlock_client *client,
                              const rlock_config *config, const rlock_store_events *events,
                              void *owner, void **state) {
    const rlock__members *members = (const rlock__members *)store->ctx;
    size_t servers = (size_t)members->count * sizeof(rlock__server);
    rlock__quorum *quorum = (rlock__quorum *)rlock__alloc(sizeof *quorum + servers);
    int status;
    if (!quorum || !rlock__map_init(&quorum->map) ||
        rlock_timer_add(client, &quorum->timer, rlock__quorum_fire) != RLOCK_OK) {
        rlock__dealloc(quorum ? quorum->map.buckets : NULL);
        rlock__dealloc(quorum);
        return RLOCK_ERR_NOMEM;
    }
    quorum->client = client;
    quorum->events = events;
    quorum->owner = owner;
    quorum->rules = &rlock__majority;
    quorum->stats = rlock_client_counters(client);
    quorum->timeout_ms = config->command_timeout_ms;
    quorum->poll_ms = config->poll_ms;
    quorum->servers = (rlock__server *)(void *)(quorum + 1);
    quorum->gives_back = config->replicas > 0;
    quorum->hears_itself = config->wire == RLOCK_WIRE_REDISSON;
    quorum->count = members->count;
    quorum->need = members->count / 2 + 1;
    quorum->may_fail = members->count - quorum->need;
    RLOCK_ASSERT(quorum->count <= RLOCK__SERVERS && 2 * quorum->need > quorum->count);
    rlock__list_init(&quorum->ballots);
    rlock__list_init(&quorum->unused);
    rlock__list_init(&quorum->refused);
    status = rlock__quorum_open_all(quorum, members, config);
    if (status != RLOCK_OK) {
        rlock__quorum_free(quorum);
        return status;
    }
    *state = quorum;
    return RLOCK_OK;
}

#if RLOCK__HAS_CREDENTIALS
/* Gives them to each server whose store takes some. */
static int rlock__quorum_set_credentials(void *state, bool sentinels, const char *username,
                                         const char *password) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    int status = RLOCK_ERR_ARG, i;
    for (i = 0; i < quorum->count; i++) {
        rlock__server *server = &quorum->servers[i];
        int its = server->store->set_credentials
                      ? server->store->set_credentials(server->state, sentinels, username, password)
                      : RLOCK_ERR_ARG;
        if (its == RLOCK_ERR_NOMEM || status == RLOCK_ERR_ARG) {
            status = its;
        }
        if (its == RLOCK_OK && server->fault == RLOCK_FAULT_AUTH) {
            server->fault = RLOCK_FAULT_DOWN; /* of the former ones: no vote fails by it any more */
            rlock__server_says(server, NULL);
        }
    }
    return status;
}
#else
#define rlock__quorum_set_credentials NULL
#endif

static const rlock_store rlock__quorum_store = {NULL,
                                                rlock__quorum_open,
                                                rlock__quorum_close,
                                                rlock__quorum_submit,
                                                rlock__quorum_forget,
                                                rlock__quorum_track,
                                                rlock__quorum_flush,
                                                rlock__quorum_refuses,
                                                NULL,
                                                RLOCK_STORE_STAYS,
                                                rlock__quorum_set_credentials};

void rlock_quorum_free(rlock_store *store) {
    rlock__members_free(store);
}

int rlock_quorum_new(rlock_store **out, const struct rlock_config *servers, int count) {
    return rlock__members_new(out, servers, count, RLOCK__SERVERS, &rlock__quorum_store);
}

/* ------------------------------------------------------------------------------------------------
 * >>both - a store made of two, while a service moves from one to the other: it holds in both
 *
 * It is a quorum of two: neither may fail. What it has of its own:
 * - The second is asked only for what the first has granted, so that two clients never wait for
 *   each other, and whoever waits for the first stands in nobody's way at the second.
 * - A waiter keeps the first while it waits for the second.
 * - A hold has the fencing tokens that it has reserved in both.
 * - A key is held if one of them says so.
 */

#define RLOCK__KEEP_MS 250       /* in so long, or twice, who keeps the first store asks again */
#define RLOCK__FENCES_MAX 65535u /* that one request can reserve */
#define RLOCK__RAISES 16         /* how often in a round more of them are reserved */

typedef struct rlock__range { /* in one store, and given to nobody in between */
    uint64_t fence, last;     /* last 0 = none */
} rlock__range;

typedef struct rlock__both { /* its notes of a round */
    rlock__range reserved[2];
    bool kept; /* between two rounds, for a waiter that has the first and wants the second */
    uint8_t raises;
} rlock__both;

static rlock__both *rlock__both_notes(rlock__ballot *ballot) {
    RLOCK_ASSERT(ballot->quorum->count == 2 && ballot->quorum->rules->notes == sizeof(rlock__both));
    return (rlock__both *)(void *)(ballot + 1);
}

/* The second was not heard of yet. */
static bool rlock__both_unheard(const rlock__vote *second) {
    return !second->spent && second->server->where == RLOCK__SERVER_NEW;
}

/* Whether an acquire may not be asked of this one now. The second has its turn while the first is
 * had; and the first has none if the second fails, so that nobody is disturbed. Between two rounds,
 * what is kept has none. */
static bool rlock__both_waits(rlock__vote *vote) {
    rlock__vote *first = vote->ballot->votes, *second = first + 1;
    bool down = second->server->where == RLOCK__SERVER_DOWN;
    RLOCK_ASSERT(vote == first || vote == second);
    if (!vote->ballot->request) {
        return true;
    }
    if (vote == first && (down || second->word == RLOCK__FAILED)) {
        vote->word = RLOCK__FAILED;
        vote->fault = down ? (uint8_t)second->server->fault : second->fault;
    } else if (vote == second && (first->word == RLOCK__NO || first->word == RLOCK__FAILED)) {
        vote->word = RLOCK__NO;
    }
    if (vote->word != RLOCK__OPEN) {
        return true;
    }
    return vote == first ? rlock__both_unheard(second) || second->request.out
                         : !rlock__both_unheard(second) && first->word == RLOCK__OPEN &&
                               !rlock__vote_stands(first);
}

/* How many fencing tokens to reserve: what the round wants; and once more, of the one that is
 * behind, as far as the other one is. */
static uint16_t rlock__both_fences(const rlock__vote *vote) {
    rlock__ballot *ballot = vote->ballot;
    const rlock__range *reserved = rlock__both_notes(ballot)->reserved;
    uint64_t count = ballot->request->fences;
    int i = vote != ballot->votes;
    if (reserved[i].last) {
        count += reserved[!i].fence - reserved[i].last - 1;
    }
    return (uint16_t)(count < RLOCK__FENCES_MAX ? count : RLOCK__FENCES_MAX);
}

/* A second that was not heard of is sent a release of what nobody has: so it connects, and pushes,
 * before the first is taken. */
static void rlock__both_ask(rlock__vote *vote, uint8_t op, int64_t lease_ms) {
    rlock__ballot *ballot = vote->ballot;
    bool nobody = vote->has == RLOCK__NOT_THERE;
    if (ballot->goal == RLOCK_OP_ACQUIRE) {
        if (rlock__both_waits(vote)) {
            return;
        }
        if (vote != ballot->votes && rlock__both_unheard(vote)) {
            op = RLOCK_OP_RELEASE;
            lease_ms = 0;
        }
    }
    RLOCK_ASSERT(op != RLOCK_OP_ACQUIRE || ballot->request); /* of two, none is won back */
    vote->request.fences = op == RLOCK_OP_ACQUIRE ? rlock__both_fences(vote) : (uint16_t)0;
    rlock__vote_ask(vote, op, lease_ms);
    if (op == RLOCK_OP_RELEASE && nobody) {
        vote->has = RLOCK__NOT_THERE;
    }
}

static void rlock__both_heard(rlock__vote *vote, const rlock_answer *answer) {
    rlock__ballot *ballot = vote->ballot;
    const rlock__quorum *quorum = ballot->quorum;
    const rlock_request *request = &vote->request;
    rlock__both *both = rlock__both_notes(ballot);
    rlock__range *range = &both->reserved[vote != ballot->votes];
    bool release = request->op == RLOCK_OP_RELEASE, stood = rlock__vote_stands(vote);
    bool greeted = release && vote->has == RLOCK__NOT_THERE;
    RLOCK_ASSERT(!request->out);
    rlock__vote_heard(vote, answer);
    if (greeted && answer->outcome == RLOCK_OUTCOME_FAULT && answer->fault != RLOCK_FAULT_TYPE) {
        vote->word = RLOCK__FAILED;
    } else if (release && both->kept && vote->has == RLOCK__NOT_THERE) {
        both->kept = false; /* another waiter of this client may want it */
        quorum->events->woken(quorum->owner, request->key, request->key_len);
    } else if (request->op == RLOCK_OP_ACQUIRE && vote->word == RLOCK__YES && request->fences) {
        range->fence = range->last && stood ? range->fence : answer->fence;
        range->last = answer->fence + (answer->fences ? answer->fences : request->fences) - 1u;
    }
}

/* Both grant: the hold has the fencing tokens that it has reserved in both, which are above all
 * that either gave out, and below all that either will give out. If there are none, the store that
 * is behind reserves more, and is asked for them: false. The answer may become a fault. */
static bool rlock__both_fenced(rlock__ballot *ballot, rlock_answer *answer) {
    rlock__both *both = rlock__both_notes(ballot);
    const rlock__range *one = both->reserved, *other = one + 1;
    int i = one->last >= other->last;
    const rlock__range *behind = &both->reserved[i];
    uint64_t first = one->fence > other->fence ? one->fence : other->fence;
    uint64_t wanted = ballot->request->fences;
    RLOCK_ASSERT(one->last >= one->fence && other->last >= other->fence);
    if (behind->last >= first) {
        uint64_t count = behind->last - first + 1;
        answer->fence = first;
        answer->fences = (uint16_t)(count < wanted ? count : wanted);
        return true;
    }
    if (first - behind->last > (uint64_t)(RLOCK__RAISES - both->raises) * RLOCK__FENCES_MAX) {
        answer->outcome = RLOCK_OUTCOME_FAULT;
        answer->fault = RLOCK_FAULT_OTHER;
        answer->text = "the fencing tokens of the two stores are too far apart";
        return true;
    }
    RLOCK_ASSERT(both->raises < RLOCK__RAISES);
    both->raises++;
    ballot->votes[i].word = RLOCK__OPEN;
    rlock__vote_next(&ballot->votes[i]);
    RLOCK_ASSERT(ballot->votes[i].request.out); /* it granted, and was not lost since */
    return false;
}

/* An acquire and a question hear both. A majority of two is both; but a key is held if one says so,
 * whoever refuses an acquire says for how long, and of two that fail the words of the second are
 * told: perhaps the first was not asked for that reason. */
static bool rlock__both_decided(rlock__ballot *ballot, rlock_answer *answer) {
    rlock__vote *first = ballot->votes, *second = first + 1;
    const rlock_request *round = ballot->request;
    bool acquire = round->op == RLOCK_OP_ACQUIRE;
    if (acquire) { /* whose turn may it be? */
        rlock__vote_next(first);
        rlock__vote_next(second);
    }
    if ((acquire || round->op >= RLOCK_OP_INSPECT) &&
        (first->word == RLOCK__OPEN || second->word == RLOCK__OPEN)) {
        return false;
    }
    if (!rlock__majority_decided(ballot, answer)) {
        return false;
    }
    if (answer->info && (first->word == RLOCK__YES || second->word == RLOCK__YES)) {
        rlock__round_info(ballot, 1);
    } else if (answer->outcome == RLOCK_OUTCOME_HELD) {
        const rlock__vote *refused = first->word == RLOCK__NO ? first : second;
        answer->left_ms = refused->left_ms;
        answer->watched = refused->watched;
    } else if (answer->outcome == RLOCK_OUTCOME_FAULT && second->word == RLOCK__FAILED &&
               second->fault == answer->fault && second->server->text[0]) {
        answer->text = second->server->text;
    }
    return !acquire || !round->fences || answer->outcome != RLOCK_OUTCOME_DONE ||
           rlock__both_fenced(ballot, answer);
}

/* Keeps the first for a waiter that the second refuses. So it is one of those who wait there, and
 * whoever else wants both waits at the first and is not woken meanwhile. The waiter asks again
 * soon, or the first is given back. */
static bool rlock__both_keeps(rlock__ballot *ballot, rlock_answer *answer) {
    const rlock__quorum *quorum = ballot->quorum;
    int64_t pause_ms = rlock__min(quorum->poll_ms, RLOCK__KEEP_MS);
    if (ballot->request->op != RLOCK_OP_ACQUIRE || answer->outcome != RLOCK_OUTCOME_HELD ||
        (ballot->request->flags & RLOCK_REQUEST_ONCE) || ballot->votes[0].word != RLOCK__YES) {
        return false;
    }
    rlock__both_notes(ballot)->kept = true;
    answer->left_ms = answer->left_ms < 0 ? pause_ms : rlock__min(answer->left_ms, pause_ms);
    rlock_timer_set(quorum->client, &ballot->timer,
                    rlock_client_now_us(quorum->client) + 2 * RLOCK__KEEP_MS * 1000);
    return true;
}

static const rlock__rules rlock__of_both = {rlock__both_ask, rlock__both_heard, rlock__both_decided,
                                            rlock__both_keeps, sizeof(rlock__both)};

/* What one of them refuses, both do. */
static const char *rlock__both_refuses(void *state, const char *key, size_t len,
                                       const rlock_terms *terms, bool fencing) {
    const rlock__quorum *quorum = (const rlock__quorum *)state;
    const char *words = terms ? "two stores combined support only a mutex with one key" : NULL;
    int i;
    for (i = 0; i < quorum->count && !words; i++) {
        const rlock__server *server = &quorum->servers[i];
        words = server->store->refuses
                    ? server->store->refuses(server->state, key, len, terms, fencing)
                    : NULL;
    }
    return words;
}

static int rlock__both_open(const rlock_store *store, rlock_client *client,
                            const rlock_config *config, const rlock_store_events *events,
                            void *owner, void **state) {
    int status = rlock__quorum_open(store, client, config, events, owner, state);
    if (status == RLOCK_OK) { /* there is no ballot yet */
        ((rlock__quorum *)*state)->rules = &rlock__of_both;
    }
    return status;
}

static const rlock_store rlock__both_store = {NULL,
                                              rlock__both_open,
                                              rlock__quorum_close,
                                              rlock__quorum_submit,
                                              rlock__quorum_forget,
                                              rlock__quorum_track,
                                              rlock__quorum_flush,
                                              rlock__both_refuses,
                                              NULL,
                                              0,
                                              rlock__quorum_set_credentials};

void rlock_both_free(rlock_store *store) {
    rlock__members_free(store);
}

int rlock_both_new(rlock_store **out, const struct rlock_config *from,
                   const struct rlock_config *to) {
    rlock_config stores[2];
    if (out) {
        *out = NULL;
    }
    if (!from || !to) {
        return RLOCK_ERR_ARG;
    }
    stores[0] = *from;
    stores[1] = *to;
    return rlock__members_new(out, stores, 2, 2, &rlock__both_store);
}

#endif /* RLOCK__HAS_QUORUM */

/* ------------------------------------------------------------------------------------------------
 * >>deadline - the deadline of a hold, for other threads to read
 */

/* Time in one word, which comes round: of two such times the later is known for 25 days. */
static uint32_t rlock__clock_mark(int64_t us) {
    return (uint32_t)((uint64_t)us >> 10);
}

/* Two words with a count that is odd while they change: no machine needs a lock for that, also one
 * that has no atomic access to 64 bits. One thread writes. */
static void rlock__deadline_set(rlock_deadline *deadline, int64_t until_us, int64_t now_us) {
    uint32_t count = deadline->count + 1;
    __atomic_store_n(&deadline->latest, rlock__clock_mark(now_us), __ATOMIC_RELAXED);
    __atomic_store_n(&deadline->count, count, __ATOMIC_RELAXED);
    __atomic_store_n(&deadline->high, (uint32_t)((uint64_t)until_us >> 32), __ATOMIC_RELEASE);
    __atomic_store_n(&deadline->low, (uint32_t)((uint64_t)until_us & UINT32_MAX), __ATOMIC_RELEASE);
    __atomic_store_n(&deadline->count, count + 1, __ATOMIC_RELEASE);
}

/* Returns the deadline, 0 = not held. *of: the count of this one, which no later one has. */
static int64_t rlock__deadline_get(const rlock_deadline *deadline, uint32_t *of) {
    int tries;
    for (tries = 0; deadline && tries < 1000; tries++) { /* the writer may be stopped for long */
        uint32_t count = __atomic_load_n(&deadline->count, __ATOMIC_ACQUIRE);
        uint32_t high = __atomic_load_n(&deadline->high, __ATOMIC_ACQUIRE);
        uint32_t low = __atomic_load_n(&deadline->low, __ATOMIC_ACQUIRE);
        uint32_t changed = count ^ __atomic_load_n(&deadline->count, __ATOMIC_RELAXED);
        if (!(changed | count % 2)) {
            *of = count;
            return (int64_t)((uint64_t)high << 32 | low);
        }
    }
    return 0;
}

int64_t rlock_deadline_us(const rlock_deadline *deadline) {
    uint32_t of;
    return rlock__deadline_get(deadline, &of);
}

/* A clock that has gone back since anybody looked says nothing of a deadline, also when it has come
 * up with that time again: nobody knows how long ago that was. Who looks notes it, as the thread of
 * the loop may be stopped: it reads what was noted before its own clock. */
bool rlock_still_held(const rlock_deadline *deadline) {
    uint32_t of, seen, now;
    int64_t until_us = rlock__deadline_get(deadline, &of), now_us;
    rlock_deadline *noted = (rlock_deadline *)(uintptr_t)deadline;
    if (!until_us || __atomic_load_n(&noted->refuted, __ATOMIC_ACQUIRE) == of) {
        return false;
    }
    seen = __atomic_load_n(&noted->latest, __ATOMIC_ACQUIRE);
    now_us = RLOCK_NOW_US();
    now = rlock__clock_mark(now_us);
    if (now - seen > UINT32_MAX / 2) {
        __atomic_store_n(&noted->refuted, of, __ATOMIC_RELEASE);
        return false;
    }
    if (now != seen) {
        __atomic_store_n(&noted->latest, now, __ATOMIC_RELEASE);
    }
    return now_us < until_us;
}

/* ------------------------------------------------------------------------------------------------
 * >>claim - one token at the store, its gate and its handle: what they consist of
 */

/* The columns of FAULT x OPERATION. */
enum { RLOCK__IN_WAIT, RLOCK__IN_ATTEMPT, RLOCK__IN_RENEW, RLOCK__IN_WATCHDOG, RLOCK__IN_RELEASE };
#define RLOCK__RETRY 1

static const int8_t rlock__on_fault[7][5] = {
    /* [rlock_fault][column]: the end, or RLOCK__RETRY */
    {RLOCK__RETRY, RLOCK_ERR_CONN, RLOCK_ERR_CONN, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK__RETRY, RLOCK_ERR_UNKNOWN, RLOCK_ERR_UNKNOWN, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK__RETRY, RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK_ERR_AUTH, RLOCK_ERR_AUTH, RLOCK_ERR_AUTH, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK_ERR_WRONG_TYPE, RLOCK_ERR_WRONG_TYPE, RLOCK_ERR_LOST, RLOCK_ERR_LOST,
     RLOCK_ERR_NOT_HELD},
    {RLOCK_ERR_NOMEM, RLOCK_ERR_NOMEM, RLOCK_ERR_NOMEM, RLOCK__RETRY, RLOCK__RETRY},
    {RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RLOCK__RETRY, RLOCK__RETRY}};

/* The rows of STATE x CALL. */
typedef enum rlock__state {
    RLOCK__IDLE_STATE,
    RLOCK__WAITING_STATE,
    RLOCK__HELD_STATE,
    RLOCK__LOST_STATE,
    RLOCK__RELEASING_STATE,
    RLOCK__FOLLOWED_STATE, /* releasing, and an acquire follows the release */
    RLOCK__CLOSED_STATE
} rlock__state;

/* One client's handles of a key, or of a set of keys: the waiters in their order, while there are
 * any; the holders, and the claims that are let go. */
typedef struct rlock__gate {
    rlock_client *client;
    rlock__waiters *waiters;  /* NULL: nobody waits */
    rlock_link claims;        /* those that hold it, of which a writer is the first, or let it go */
    struct rlock__kind *kind; /* NULL: a mutex with one key */
    uint32_t references;      /* handles, questions, and who is at work on it */
    uint8_t pushing;          /* RLOCK_PUSH_...: what is pushed of its keys */
    bool tracked;
    rlock__item item; /* of the first key. Behind it the bytes of each key, and a NUL */
} rlock__gate;

/* What a gate has if it is not for a mutex with one key. Owners and weights belong to the handles:
 * they share one queue, as at the server. */
typedef struct rlock__kind {
    char letter;        /* see rlock__letter */
    uint32_t permits;   /* see rlock_terms */
    uint32_t count;     /* how many keys */
    uint32_t *lens;     /* `count` lengths: see rlock_terms */
    rlock__item *items; /* `count - 1`: of the other keys */
} rlock__kind;

static rlock__gate *rlock__gate_at(const rlock__item *item) {
    return (rlock__gate *)item->thing;
}

/* What a claim has only while a request of it is with the store. */
typedef struct rlock__flight {
    rlock_request request;
    struct rlock__claim *claim;
} rlock__flight;

/* So many flights are kept for the claims, one each and one more, which an answer needs until it
 * was dealt with; and so many of what waiters need. Above that, memory is asked for when they are
 * needed. */
#ifndef RLOCK__FLIGHTS
#define RLOCK__FLIGHTS 1024
#endif

/* One token's life at the server, from acquire until it is surely gone: what it is there, and
 * nothing of what its handle was asked for. A local hand-over gives it to another handle. It is an
 * orphan, which is still to be cleaned up, if its handle has another claim or none: a handle that
 * was freed stays for its orphans. */
typedef struct rlock__claim {
    rlock_link link; /* among the gate's waiters, or in its claims */
    rlock_link due;  /* among those of its client, while it has something to do at a time */
    rlock *lock;     /* for which it was made, or to which it was handed over */
    rlock__flight *in_flight; /* with the store, or NULL */
    uint16_t handovers;       /* how many local hand-overs may follow */
    unsigned phase : 4;       /* RLOCK__ATTEMPTING to RLOCK__RELEASING */
    bool cut : 1;             /* a renewal may come late, and cut a longer lease to longest_ms */
    bool yields : 1;          /* after local hand-overs: when let go, other clients come first */
    bool ours : 1;            /* granted, and the next waiter at the server was of this client */
    bool counted : 1;         /* as acquired, and not as lost */
    bool may_exist : 1;       /* the token may be at the server */
    bool registered : 1;      /* the store watches the key for this hold */
    bool retry : 1;      /* woken or notified during a request, or an attempt failed: once more */
    bool faulted : 1;    /* there was no connection since the hold was granted or renewed */
    bool joined : 1;     /* let go before it was granted: it may be in the queue at the server */
    bool stays : 1;      /* let go, but the key is to stay ours until check_us: a last renewal */
    bool adopted : 1;    /* another client's token: see rlock__adopted */
    int32_t longest_ms;  /* of all leases asked for: the token may be there for that long */
    uint32_t note;       /* the store's, of the last request */
    uint32_t granted_us; /* when the acquire was sent that the server granted: the lower bits */
    uint64_t token;      /* see rlock_request */
    int64_t until_us; /* the end of the wait; of a hold, and of its release, the local deadline */
    int64_t next_us;  /* of a hold the next renewal; of a clean-up the next attempt */
    int64_t check_us; /* of a hold the next check, without a renewal; of one that stays its end */
    int64_t over_us;  /* of a clean-up its end, 0 = not known yet */
    uint64_t fence;
} rlock__claim;

/* A claim of a token that another client made. While it is ATTEMPTING it stands in the gate's
 * claims, among no waiters: it asks by a renewal, which takes no key that is free. */
typedef struct rlock__adopted {
    rlock__claim claim;
    char id[RLOCK__TOKEN_HEAD]; /* of that client, with a NUL */
} rlock__adopted;

/* An operation next to the claim's own: a renewal by hand, a nested acquire or release, an acquire
 * that follows the release. Without an event it is a spare: see rlock.ops. */
typedef struct rlock__op {
    rlock__ready ready;
    bool waits; /* it needs the store, and has not ended */
    bool sent;
    bool watchdog;          /* the hold has one once this has succeeded */
    bool follows;           /* an acquire that begins when the release of the handle has ended */
    bool once;              /* of that: wait_ms was 0 */
    struct rlock__op *next; /* of the same handle */
    rlock *lock;
    rlock_callback *done;
    void *user;
    char *text;
    int64_t lease_ms;
    int64_t until_us; /* of an acquire that follows: the end of its wait */
} rlock__op;

/* What few handles have. */
typedef struct rlock__more {
    rlock_terms terms;         /* if it is no mutex with one key */
    int64_t hold_ms;           /* max_hold_ms of the options, 0 = none; ... */
    int64_t until_us;          /* ... of the present hold: no deadline is later */
    int32_t watchdog_lease_ms; /* of the options, 0 = the client's */
    bool refused;              /* a renewal of the present hold was, and was logged */
    rlock_deadline *deadline;  /* of the options */
    char *text;                /* the server's words for the event */
} rlock__more;

/* A handle: what it was asked for, and the event that ends this. Its state follows from the event,
 * and without one from its claim: see rlock__state_of. */
struct rlock {
    rlock__ready ready; /* the event is to be delivered */
    int32_t lease_ms;
    uint32_t references : 26; /* the user's, until it is freed, and its claims' */
    uint32_t watchdog : 2;    /* RLOCK_WATCHDOG_... */
    bool renews : 1;          /* the hold has a watchdog */
    bool once : 1;            /* wait_ms was 0 */
    bool fencing : 1, reentrant : 1;
    rlock__gate *gate;
    rlock__claim *claim; /* NULL: it is idle, or the event below ends it */
    rlock__op *ops;      /* accepted and not ended; and a spare for each nested release to come */
    rlock__more *more;   /* NULL: it has nothing of that */
    rlock_callback *on_lost, *done; /* done: of the acquire or the release under way */
    void *lost_user, *user;
    int64_t wait_until_us; /* of the acquire; of a hold: when it was granted, as its event said */
    uint64_t lost_fence;   /* of the hold that ended: of the event */
};

/* Returns the handle that waits for this claim, holds or releases it; NULL: it is an orphan. */
static rlock *rlock__handle_of(const rlock__claim *claim) {
    return claim->lock->claim == claim ? claim->lock : NULL;
}

/* Returns the id of the client that made the token; NULL: this one did. */
static const char *rlock__claim_id(const rlock__claim *claim) {
    return RLOCK__HAS_TOKENS && claim->adopted ? ((const rlock__adopted *)(const void *)claim)->id
                                               : NULL;
}

/* True if the claim asks for a hold that another client has given away. */
static bool rlock__adopting(const rlock__claim *claim) {
    return RLOCK__HAS_TOKENS && claim->adopted && claim->phase == RLOCK__ATTEMPTING;
}

/* NULL: a mutex with one key. */
static const rlock_terms *rlock__terms_of(const rlock *lock) {
    RLOCK_ASSERT(!lock->gate->kind || lock->more);
    return RLOCK__HAS_KINDS && lock->gate->kind ? &lock->more->terms : NULL;
}

/* What a handle is about to tell goes before what its claim is about to do. */
RLOCK__NOINLINE static rlock__state rlock__state_of(const rlock *lock) {
    static const uint8_t by_event[] = {/* [rlock_event_kind] */
                                       RLOCK__IDLE_STATE, RLOCK__WAITING_STATE, RLOCK__IDLE_STATE,
                                       RLOCK__RELEASING_STATE, RLOCK__LOST_STATE};
    static const uint8_t by_phase[] = {/* [phase] */
                                       RLOCK__WAITING_STATE, RLOCK__HELD_STATE,
                                       RLOCK__RELEASING_STATE};
    RLOCK_ASSERT(lock->ready.event < sizeof by_event);
    RLOCK_ASSERT(!lock->claim || lock->claim->lock == lock);
    RLOCK_ASSERT(!lock->claim || lock->claim->phase < RLOCK__PHASES);
    return (rlock__state)(lock->ready.event || !lock->claim ? by_event[lock->ready.event]
                                                            : by_phase[lock->claim->phase]);
}

RLOCK__NOINLINE static int64_t rlock__add_ms(int64_t us, int64_t ms) {
    RLOCK_ASSERT(ms >= 0);
    return ms > (RLOCK__NEVER - us) / 1000 ? RLOCK__NEVER : us + ms * 1000;
}

/* Returns the operation of the handle that needs the store, or NULL: there is one at most. */
static rlock__op *rlock__renewal(const rlock *lock) {
    rlock__op *op = lock->ops;
    while (op && !op->waits) {
        op = op->next;
    }
    RLOCK_ASSERT(!op || (op->ready.event && !op->follows));
    return op;
}

/* Returns the acquire that begins when the release of the handle has ended, or NULL. */
static rlock__op *rlock__following(const rlock *lock) {
    rlock__op *op = lock->ops;
    while (op && !op->follows) {
        op = op->next;
    }
    RLOCK_ASSERT(!op || (op->ready.event == RLOCK_ACQUIRED && !op->waits));
    return op;
}

/* Returns an operation of that kind, or with 0 a spare; NULL: there is none. */
static rlock__op *rlock__op_of(const rlock *lock, int kind) {
    rlock__op *op = lock->ops;
    while (op && op->ready.event != kind) {
        op = op->next;
    }
    return op;
}

/* Returns the local deadline of a lease that was asked for at sent_us. */
static int64_t rlock__lease_end(const rlock_client *client, int64_t sent_us, int64_t lease_ms) {
    int64_t drift_us = lease_ms * client->drift_permille;
    RLOCK_ASSERT(lease_ms >= 0 && lease_ms <= RLOCK_LEASE_MAX_MS);
    RLOCK_ASSERT(client->drift_permille > 0 && client->drift_permille <= 500);
    return sent_us + lease_ms * 1000 - drift_us - 2000;
}

/* Returns the local deadline of a hold with such a lease: max_hold_ms may end it before. */
static int64_t rlock__deadline(const rlock__claim *claim, int64_t sent_us, int64_t lease_ms) {
    int64_t end_us = rlock__lease_end(claim->lock->gate->client, sent_us, lease_ms);
    const rlock__more *more = claim->lock->more;
    return more && more->hold_ms ? rlock__min(end_us, more->until_us) : end_us;
}

/* Returns the lease that the store gave: at most the one that it was asked for. */
static int64_t rlock__given_ms(const rlock_request *request, const rlock_answer *answer) {
    RLOCK_ASSERT(request->lease_ms >= 0 && request->lease_ms <= RLOCK_LEASE_MAX_MS);
    return answer->lease_ms > 0 ? rlock__min(answer->lease_ms, request->lease_ms)
                                : request->lease_ms;
}

/* Notes the lease that the hold has now: the watchdog follows it, and asks for as much again. */
RLOCK__NOINLINE static void rlock__claim_lease(rlock__claim *claim, int64_t lease_ms) {
    RLOCK_ASSERT(claim->phase <= RLOCK__HOLDING && lease_ms <= RLOCK_LEASE_MAX_MS);
    lease_ms = lease_ms < RLOCK_LEASE_MIN_MS ? RLOCK_LEASE_MIN_MS : lease_ms;
    claim->lock->lease_ms = (int32_t)rlock__min(claim->lock->lease_ms, lease_ms);
    RLOCK_ASSERT(claim->lock->lease_ms >= RLOCK_LEASE_MIN_MS);
}

/* Returns when the lease of a hold was asked for, by its deadline: or before, if something else
 * than the lease has brought the deadline forward. */
static int64_t rlock__since(const rlock__claim *held) {
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && rlock__handle_of(held));
    return held->until_us - rlock__lease_end(held->lock->gate->client, 0, held->lock->lease_ms);
}

/* Returns why a request has not left: the words of the store, or what stands before it. */
RLOCK__NOINLINE static const char *rlock__unsent_text(const rlock_client *client) {
    return client->up ? "an earlier request has not been answered yet" : client->fault_text;
}

/* Keeps foreign words, or with NULL none, for an event or a question. */
static void rlock__set_text(const rlock_client *client, char **text, const char *words) {
    char line[RLOCK__LINE];
    size_t len = rlock__line_foreign(client->secrets, line, 0, "", words);
    RLOCK_ASSERT(len < RLOCK__LINE);
    rlock__dealloc(*text);
    *text = rlock__copy(words ? line : NULL, len);
}

/* Keeps the server's words for the event to come, or with NULL none. Without memory: none. */
static void rlock__lock_text(rlock *lock, const char *words) {
    if (words && !lock->more) {
        lock->more = (rlock__more *)rlock__alloc(sizeof *lock->more);
    }
    if (lock->more) {
        rlock__set_text(lock->gate->client, &lock->more->text, words);
    }
}

/* Keeps the words of a renewal that failed, for the event of the loss. */
static void rlock__hold_fault(rlock__claim *held, const char *words) {
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && rlock__handle_of(held));
    if (words && !held->lock->ready.event) { /* else its grant was not told yet */
        rlock__lock_text(held->lock, words);
        held->faulted = false; /* that was before */
    }
}

static bool rlock__queued(const rlock__gate *gate) {
    return RLOCK__HAS_KINDS && gate->kind && gate->kind->letter != 'm';
}

static bool rlock__is_kind(const rlock__claim *claim, rlock_kind kind) {
    const rlock_terms *terms = rlock__terms_of(claim->lock);
    return RLOCK__HAS_KINDS && terms && terms->kind == kind;
}

/* True if others may hold next to it. Of a semaphore also with one permit: that may change. */
static bool rlock__shared(const rlock__claim *claim) {
    const rlock_terms *terms = rlock__terms_of(claim->lock);
    return terms && (terms->kind == RLOCK_KIND_READ || terms->kind == RLOCK_KIND_SEMAPHORE);
}

/* Returns the item of the i-th key, or NULL: there is none. */
static rlock__item *rlock__gate_key(rlock__gate *gate, uint32_t i) {
    RLOCK_ASSERT(!gate->kind || gate->kind->count);
    if (i == 0) {
        return &gate->item;
    }
    return RLOCK__HAS_KINDS && gate->kind && i < gate->kind->count ? &gate->kind->items[i - 1]
                                                                   : NULL;
}

/* Returns the next claim of the gate in that phase, HOLDING, RELEASING, or ATTEMPTING to adopt; the
 * first after NULL. */
static rlock__claim *rlock__claim_next(const rlock__gate *gate, const rlock__claim *claim,
                                       int phase) {
    const rlock_link *at = claim ? claim->link.next : gate->claims.next;
    RLOCK_ASSERT(RLOCK__HAS_TOKENS || phase != RLOCK__ATTEMPTING);
    RLOCK_ASSERT(!claim || claim->phase != RLOCK__ATTEMPTING || rlock__adopting(claim));
    RLOCK_ASSERT(!claim || claim->lock->gate == gate);
    while (at != &gate->claims && RLOCK__OF(at, rlock__claim, link)->phase != phase) {
        at = at->next;
    }
    return at == &gate->claims ? NULL : RLOCK__OF(at, rlock__claim, link);
}

/* Returns the first holder of this client, or NULL. */
static rlock__claim *rlock__holder(const rlock__gate *gate) {
    return rlock__claim_next(gate, NULL, RLOCK__HOLDING);
}

/* Returns the first waiter, or NULL: without one there are no rlock__waiters. */
static rlock__claim *rlock__waiter(const rlock__gate *gate) {
    RLOCK_ASSERT(!gate->waiters || gate->waiters->list.next != &gate->waiters->list);
    return gate->waiters ? RLOCK__OF(gate->waiters->list.next, rlock__claim, link) : NULL;
}

/* Returns the waiter behind this one, or NULL. */
static rlock__claim *rlock__waiter_next(const rlock__claim *claim) {
    rlock_link *next = claim->link.next;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(claim->lock->gate->waiters);
    return next == &claim->lock->gate->waiters->list ? NULL : RLOCK__OF(next, rlock__claim, link);
}

static void rlock__request_init(rlock_request *request, const rlock__gate *gate,
                                const rlock_terms *terms) {
    RLOCK_ASSERT(gate->item.key_len);
    RLOCK_ASSERT(gate->item.key_len <= RLOCK_KEY_MAX);
    RLOCK_ASSERT(!terms == !gate->kind);
    request->key = gate->item.key;
    request->key_len = gate->item.key_len;
    request->terms = terms;
}

/* Begins a shutdown, or the end of a drain. */
static void rlock__shutdown_begin(rlock_client *client, int64_t timeout_ms) {
    RLOCK_ASSERT(client->life <= RLOCK__DRAINING);
    client->life = RLOCK__ENDING;
    rlock_timer_set(
        client, &client->shutdown_timer,
        rlock__add_ms(client->now_us, timeout_ms ? timeout_ms : client->command_timeout_ms));
}

/* Ends a drain if nothing is held, and a shutdown if nothing is left to be done, or if its time is
 * over (status is an error). */
static void rlock__shutdown_end(rlock_client *client, int status) {
    bool held = client->phases[RLOCK__ATTEMPTING] || client->phases[RLOCK__HOLDING];
    bool busy = held || client->phases[RLOCK__RELEASING] || !rlock__list_empty(&client->questions);
    RLOCK_ASSERT(status <= RLOCK_OK);
    if (client->life == RLOCK__DRAINING && !held) {
        rlock__shutdown_begin(client, 0);
    }
    if (client->life == RLOCK__ENDING && (!busy || status != RLOCK_OK)) {
        client->life = RLOCK__ENDED;
        client->shutdown_ready.status = (int8_t)status;
        RLOCK_ASSERT(rlock__list_empty(&client->shutdown_ready.link));
        /* Behind the events of its holds. */
        rlock__list_append(&client->ready, &client->shutdown_ready.link);
    }
}

RLOCK__NOINLINE static uint32_t rlock__flights_for(uint32_t claims) {
    return claims < RLOCK__FLIGHTS ? claims + (claims > 0) : RLOCK__FLIGHTS;
}

/* After the number of handles has changed: for each as much is kept as one operation needs. */
static void rlock__pools_limit(rlock_client *client) {
    uint32_t handles = client->life == RLOCK__CLOSED ? 0 : client->handles;
    rlock__pool_limit(&client->claims, handles);
    rlock__pool_limit(&client->ops, handles);
    rlock__pool_limit(&client->waiters, rlock__flights_for(handles));
    rlock__pool_limit(&client->flights, rlock__flights_for(handles));
}

/* Takes a claim out of its lists, and what waiters need away from a gate at which none is left. */
static void rlock__claim_unlink(rlock__claim *claim) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    rlock__list_remove(&claim->link);
    rlock__list_remove(&claim->due);
    if (gate->waiters && rlock__list_empty(&gate->waiters->list)) {
        RLOCK_ASSERT(!gate->waiters->attempting);
        rlock_timer_drop(client, &gate->waiters->timer);
        rlock__pool_put(&client->waiters, gate->waiters);
        gate->waiters = NULL;
    }
}

static void rlock__claim_phase(rlock__claim *claim, int phase) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    RLOCK_ASSERT(client->phases[claim->phase]);
    RLOCK_ASSERT(phase >= 0 && phase < RLOCK__PHASES);
    RLOCK_ASSERT(claim->phase != RLOCK__RELEASING && claim->phase != (unsigned)phase);
    RLOCK_ASSERT(!claim->in_flight);
    client->phases[claim->phase]--;
    client->phases[phase]++;
    claim->phase = (unsigned)phase & 15u;
    rlock__claim_unlink(claim);
    if (phase != RLOCK__ATTEMPTING) { /* a writer first: nobody looks for one among many readers */
        bool writer = phase == RLOCK__HOLDING && rlock__is_kind(claim, RLOCK_KIND_WRITE);
        rlock__list_append(writer ? gate->claims.next : &gate->claims, &claim->link);
    }
}

/* Shows other threads until when the handle holds, by a clock that did not step; 0 = it does not.
 */
static void rlock__lock_show(const rlock *lock, int64_t until_us) {
    RLOCK_ASSERT(until_us >= 0);
    if (lock->more && lock->more->deadline) {
        const rlock_client *client = lock->gate->client;
        rlock__deadline_set(lock->more->deadline, until_us ? until_us - client->stepped_us : 0,
                            client->clock_us - client->stepped_us);
    }
}

/* Makes an orphan of a claim. */
static void rlock__claim_orphan(rlock__claim *claim) {
    RLOCK_ASSERT(rlock__handle_of(claim));
    rlock__lock_show(claim->lock, 0);
    claim->lock->claim = NULL;
}

/* Owes the handle an event; one that was owed is replaced. */
RLOCK__NOINLINE static void rlock__lock_event(rlock *lock, rlock_event_kind kind, int status,
                                              rlock_reason reason) {
    RLOCK_ASSERT(kind == RLOCK_ACQUIRED || kind == RLOCK_RELEASED || kind == RLOCK_LOST);
    RLOCK_ASSERT(status <= RLOCK_OK);
    RLOCK_ASSERT((kind == RLOCK_ACQUIRED && status == RLOCK_OK) == (lock->claim != NULL));
    lock->ready.event = (uint8_t)kind;
    lock->ready.status = (int8_t)status;
    lock->ready.reason = (uint8_t)reason;
    rlock__list_remove(&lock->ready.link);
    rlock__list_append(&lock->gate->client->ready, &lock->ready.link);
}

/* Ends what the handle wants of this claim, if it has one: it is owed an event. */
static void rlock__claim_part(rlock__claim *claim, rlock_event_kind kind, int status,
                              rlock_reason reason) {
    rlock *lock = rlock__handle_of(claim);
    RLOCK_ASSERT(kind != RLOCK_ACQUIRED || status != RLOCK_OK);
    if (lock) {
        lock->lost_fence = kind == RLOCK_ACQUIRED ? 0 : claim->fence;
        rlock__claim_orphan(claim);
        rlock__lock_event(lock, kind, status, reason);
    }
}

/* Returns a request of a claim that has none, to be submitted; NULL: no memory. */
static rlock_request *rlock__claim_request(rlock__claim *claim, rlock_op op, int64_t lease_ms,
                                           int64_t due_us) {
    rlock_client *client = claim->lock->gate->client;
    rlock__flight *flight = (rlock__flight *)rlock__pool_take(&client->flights, sizeof *flight);
    RLOCK_ASSERT(!claim->in_flight);
    RLOCK_ASSERT(lease_ms >= 0 && (lease_ms || op != RLOCK_OP_ACQUIRE));
    RLOCK_ASSERT((op == RLOCK_OP_ACQUIRE) ==
                 (claim->phase == RLOCK__ATTEMPTING && !claim->adopted));
    RLOCK_ASSERT((op == RLOCK_OP_RELEASE) == (claim->phase == RLOCK__RELEASING && !claim->stays));
    RLOCK_ASSERT(claim->token && lease_ms <= RLOCK_LEASE_MAX_MS);
    RLOCK_ASSERT(due_us >= 0);
    if (!flight) {
        return NULL;
    }
    rlock__request_init(&flight->request, claim->lock->gate, rlock__terms_of(claim->lock));
    flight->claim = claim;
    flight->request.op = (uint8_t)op;
    flight->request.token = claim->token;
    flight->request.id = rlock__claim_id(claim);
    flight->request.store.note = claim->note;
    flight->request.lease_ms = lease_ms;
    flight->request.due_us = due_us;
    return &flight->request;
}

/* Returns to what a renewal may cut a lease. A hold that stays is cut to what it is to have. Of an
 * adopted one nobody here knows the longest lease that its token was asked for. */
static int64_t rlock__cut_ms(const rlock__claim *claim, const rlock_request *request) {
    if (RLOCK__HAS_TOKENS && claim->stays) {
        return request->lease_ms;
    }
    return RLOCK__HAS_TOKENS && claim->adopted ? 0 : claim->longest_ms;
}

static void rlock__claim_submit(rlock__claim *claim, rlock_request *request) {
    rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(!claim->in_flight && client->life != RLOCK__CLOSED);
    RLOCK_ASSERT(request->token == claim->token);
    RLOCK_ASSERT(request->token <= client->tokens || claim->adopted);
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE || claim->may_exist);
    if (request->lease_ms > claim->longest_ms) {
        claim->longest_ms = (int32_t)request->lease_ms;
    }
    request->longest_ms = request->op == RLOCK_OP_RENEW ? rlock__cut_ms(claim, request) : 0;
    claim->in_flight = RLOCK__OF(request, rlock__flight, request);
    client->unsent = true;
    client->store->submit(client->store_state, request);
}

/* Notes how long the lease of the holder runs; -1 = for ever. */
static void rlock__lock_left(rlock *lock, int64_t left_ms) {
    lock->ready.left_ms = (int32_t)rlock__min(left_ms, INT32_MAX);
}

/* Notes how an attempt ended and its words, for when the time is over. After an attempt that may
 * have been executed the note stays UNKNOWN, even if a later one was surely not executed; unless
 * that one `ends` the operation, which then ends with the words of its own status. */
static void rlock__lock_note(rlock *lock, rlock_fault fault, const char *text, bool ends) {
    RLOCK_ASSERT(fault >= RLOCK_FAULT_DOWN && fault <= RLOCK_FAULT_OTHER);
    if (ends || lock->ready.status != RLOCK_ERR_UNKNOWN) {
        lock->ready.status = (int8_t)rlock__on_fault[fault][RLOCK__IN_ATTEMPT];
        rlock__lock_text(lock, text);
    }
}

/* Withdraws the request from the store; an acquire that may have been sent may be executed. */
static void rlock__claim_recall(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    rlock__waiters *waiters = claim->lock->gate->waiters;
    rlock__flight *flight = claim->in_flight;
    if (waiters && waiters->attempting == claim) {
        waiters->attempting = NULL;
    }
    if (flight) {
        bool maybe = client->store->forget(client->store_state, &flight->request);
        RLOCK_ASSERT(flight->claim == claim);
        RLOCK_ASSERT(claim->may_exist || flight->request.op == RLOCK_OP_ACQUIRE);
        if (maybe) {
            claim->may_exist = true;
        }
        if (maybe && flight->request.op == RLOCK_OP_RENEW && flight->request.lease_ms) {
            claim->cut = true;
        }
        claim->note = flight->request.store.note;
        claim->in_flight = NULL;
        rlock__pool_put(&client->flights, flight);
    }
}

/* Ends an operation next to the claim's own. */
static void rlock__op_event(rlock__op *op, int status, const char *text) {
    rlock_client *client = op->lock->gate->client;
    RLOCK_ASSERT(rlock__list_empty(&op->ready.link));
    RLOCK_ASSERT(op->ready.event && !op->follows);
    RLOCK_ASSERT(status <= RLOCK_OK);
    op->waits = false;
    op->ready.status = (int8_t)status;
    rlock__set_text(client, &op->text, status == RLOCK_OK ? NULL : text);
    rlock__list_append(&client->ready, &op->ready.link);
}

/* ------------------------------------------------------------------------------------------------
 * >>report - what the hook config.on_event is told
 */

/* What a handle has behind its rlock__more, if its client has the hook. */
typedef struct rlock__times {
    int64_t since_us;    /* when its acquire was asked for, or its hold was granted */
    int64_t due_us;      /* when the next renewal is due, or was */
    int64_t handed_us;   /* when the hold that it is told of next was handed to it */
    int64_t released_us; /* when its last hold was released */
    int64_t begun_us;    /* when its first acquire was asked for */
    uint32_t number;
} rlock__times;

/* True if somebody is told: all that reports cost without a hook. */
static bool rlock__reports(const rlock_client *client) {
    return RLOCK__HAS_REPORTS && client->on_event;
}

static rlock__times *rlock__times_of(const rlock *lock) {
    RLOCK_ASSERT(rlock__reports(lock->gate->client) && lock->more);
    return (rlock__times *)(void *)(lock->more + 1);
}

static void rlock__report_send(const rlock_client *client, rlock_report *report) {
    RLOCK_ASSERT(client->on_event);
    report->now_us = client->now_us;
    report->client_id = client->id;
    client->on_event(client->event_user, report);
}

/* Fills in the times, and notes those that a later report needs. */
static void rlock__report_times(rlock_report *report, const rlock__claim *claim) {
    rlock__times *times = rlock__times_of(claim->lock);
    int64_t now_us = claim->lock->gate->client->now_us;
    int64_t left_us = claim->until_us > now_us ? claim->until_us - now_us : 0;
    bool ends = report->kind >= RLOCK_REPORT_RELEASED && report->kind <= RLOCK_REPORT_LOST;
    RLOCK_ASSERT(report->kind >= RLOCK_REPORT_ASKED && report->kind < RLOCK_REPORT_CLEANED);
    report->hand_us = -1;
    if (report->kind == RLOCK_REPORT_ASKED) {
        times->since_us = now_us;
        times->begun_us = times->begun_us ? times->begun_us : now_us;
    }
    report->begun_us = times->begun_us;
    if (report->kind == RLOCK_REPORT_ASKED) {
        return;
    }
    report->span_us = now_us - times->since_us;
    if (report->kind == RLOCK_REPORT_LET_GO) {
        report->span_us = now_us - times->released_us;
    } else if (report->kind == RLOCK_REPORT_RENEWED) {
        report->span_us = now_us > times->due_us ? now_us - times->due_us : 0;
    } else if (report->kind == RLOCK_REPORT_GRANTED) {
        times->since_us = now_us;
        report->hand_us = claim->yields ? now_us - times->handed_us : -1;
    } else if (ends) {
        times->released_us = now_us;
    }
    if (ends || report->kind == RLOCK_REPORT_GRANTED || report->kind == RLOCK_REPORT_RENEWED) {
        report->left_us = left_us;
        report->fence = claim->fence;
    }
}

/* Tells the hook what happens to a claim; NOINLINE, behind one branch. */
RLOCK__NOINLINE static void rlock__report_tell(const rlock__claim *claim, rlock_report_kind kind,
                                               int status, rlock_reason reason) {
    const rlock *lock = claim->lock;
    const rlock_client *client = lock->gate->client;
    rlock_report report;
    bool untold = kind == RLOCK_REPORT_RENEWED && lock->ready.event; /* of its grant, so far */
    if (untold || rlock__forked(client)) {                           /* by a hook, before */
        return;
    }
    memset(&report, 0, sizeof report);
    report.kind = kind;
    report.status = status;
    report.reason = reason;
    report.key = lock->gate->item.key;
    report.key_len = lock->gate->item.key_len;
    report.hand_us = -1;
    if (kind != RLOCK_REPORT_CLEANED) { /* of which its handle knows nothing any more */
        report.lock = lock;
        report.handle = rlock__times_of(lock)->number;
        report.text = status != RLOCK_OK && rlock__handle_of(claim) ? lock->more->text : NULL;
        rlock__report_times(&report, claim);
    }
    rlock__report_send(client, &report);
}

static void rlock__report(const rlock__claim *claim, rlock_report_kind kind, int status) {
    if (rlock__reports(claim->lock->gate->client)) {
        rlock__report_tell(claim, kind, status, RLOCK_REASON_NONE);
    }
}

/* A hold is lost: the words of its event are known already. */
static void rlock__report_lost(const rlock__claim *claim, rlock_reason reason) {
    if (rlock__reports(claim->lock->gate->client)) {
        rlock__report_tell(claim, RLOCK_REPORT_LOST, RLOCK_ERR_LOST, reason);
    }
}

/* A hold is handed on to that waiter. */
static void rlock__report_handed(const rlock__claim *held, const rlock__claim *next) {
    const rlock_client *client = held->lock->gate->client;
    RLOCK_ASSERT(held->lock != next->lock && held->phase == RLOCK__HOLDING);
    if (rlock__reports(client)) {
        rlock__times_of(next->lock)->handed_us = client->now_us;
        rlock__report_tell(held, RLOCK_REPORT_HANDED_ON, RLOCK_OK, RLOCK_REASON_NONE);
    }
}

/* The next renewal of a hold is planned; `sooner`: one leaves now, perhaps before it is due. */
static void rlock__report_due(const rlock__claim *claim, int64_t due_us, bool sooner) {
    RLOCK_ASSERT(due_us >= 0);
    if (rlock__reports(claim->lock->gate->client)) {
        rlock__times *times = rlock__times_of(claim->lock);
        times->due_us = sooner ? rlock__min(times->due_us, due_us) : due_us;
    }
}

void rlock_client_report(const rlock_client *client, const rlock_report *report) {
    rlock_report copy = *report;
    char where[RLOCK__LINE], text[RLOCK__LINE];
    if (rlock__reports(client) && !rlock__forked(client)) {
        rlock__line_foreign(client->secrets, where, 0, "", report->where);
        rlock__line_foreign(client->secrets, text, 0, "", report->text);
        copy.where = report->where ? where : NULL;
        copy.text = report->text ? text : NULL;
        copy.hand_us = -1;
        rlock__report_send(client, &copy);
    }
}

/* ------------------------------------------------------------------------------------------------
 * >>due - when each claim has something to do: few stand in one list, many in a ring
 */

/* The claims that have something to do at a time stand in the client's list `due`, the first one
 * first; nothing has to be allocated for that. Where there are many, those whose time is not in the
 * present tick stand in a ring of slots instead, a tick each. When its tick begins, all that a slot
 * has to ask of the server is asked at once, up to a tick too early; a deadline is kept exactly.
 * What comes more than one round later is put off when the ring comes to it. */
#define RLOCK__RING 512
#ifndef RLOCK__TICK_US
#define RLOCK__TICK_US 16384
#endif
#ifndef RLOCK__RING_MIN
#define RLOCK__RING_MIN 64 /* fewer claims do without a ring */
#endif

RLOCK__NOINLINE static int64_t rlock__tick(int64_t us) {
    RLOCK_ASSERT(us >= 0);
    return (int64_t)((uint64_t)us / RLOCK__TICK_US);
}

static rlock_link *rlock__slot(const rlock_client *client, int64_t tick) {
    RLOCK_ASSERT(client->ring && tick >= 0);
    return &client->ring[(uint32_t)tick % RLOCK__RING];
}

/* Makes the ring, if there are many claims. Without memory for it the list is long, no worse. */
static void rlock__ring_reserve(rlock_client *client) {
    int i;
    if (!client->ring && client->claims.count >= RLOCK__RING_MIN) {
        client->ring = (rlock_link *)RLOCK_MALLOC(RLOCK__RING * sizeof *client->ring);
        for (i = 0; i < RLOCK__RING && client->ring; i++) {
            rlock__list_init(&client->ring[i]);
        }
        client->ring_tick = rlock__tick(client->now_us);
    }
}

/* Returns when the claim has something to do; RLOCK__NEVER: it waits for an answer. */
static int64_t rlock__claim_due_us(const rlock__claim *claim) {
    int64_t due_us = rlock__min(claim->until_us, claim->next_us);
    const rlock__op *op = NULL;
    if (claim->phase == RLOCK__HOLDING) {
        return rlock__min(due_us, claim->check_us);
    }
    if (claim->phase == RLOCK__RELEASING && rlock__handle_of(claim)) {
        op = rlock__following(claim->lock);
    }
    return op ? rlock__min(due_us, op->until_us) : due_us;
}

/* Puts a claim where it belongs, after its times have changed. */
static void rlock__claim_arm(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    int64_t due_us = rlock__claim_due_us(claim);
    rlock__list_remove(&claim->due);
    if (due_us == RLOCK__NEVER) {
        return;
    }
    if (client->ring && !client->due_timer.index) {
        client->ring_tick = rlock__tick(client->now_us); /* it stood still, and empty */
    }
    if (client->ring && rlock__tick(due_us) > rlock__tick(client->now_us)) {
        int64_t tick = rlock__min(rlock__tick(due_us), client->ring_tick + RLOCK__RING);
        RLOCK_ASSERT(tick > client->ring_tick);
        rlock__list_append(rlock__slot(client, tick), &claim->due);
        due_us = tick * RLOCK__TICK_US;
    } else {
        rlock_link *at = client->due.prev; /* nearly always it is one of the last */
        while (at != &client->due &&
               rlock__claim_due_us(RLOCK__OF(at, rlock__claim, due)) > due_us) {
            at = at->prev;
        }
        rlock__list_append(at->next, &claim->due);
    }
    if (!client->due_timer.index || client->due_timer.due_us > due_us) {
        rlock_timer_set(client, &client->due_timer, due_us);
    }
}

/* Moves to `list` what is due, and what the ring has for the ticks that have begun. */
static void rlock__due_take(rlock_client *client, rlock_link *list) {
    int64_t now = rlock__tick(client->now_us), tick = client->ring_tick;
    rlock__claim *first = RLOCK__FIRST(&client->due, rlock__claim, due);
    RLOCK_ASSERT(!client->ring || client->ring_tick <= now);
    while (first && rlock__claim_due_us(first) <= client->now_us) {
        rlock__list_remove(&first->due);
        rlock__list_append(list, &first->due);
        first = RLOCK__FIRST(&client->due, rlock__claim, due);
    }
    if (client->ring) {
        tick = now - tick > RLOCK__RING ? now - RLOCK__RING : tick;
        while (tick < now) {
            rlock__list_move(list, rlock__slot(client, ++tick));
        }
        client->ring_tick = now;
    }
}

/* Brings forward what a claim has to ask in this tick. False: nothing is due yet. */
static bool rlock__claim_is_due(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    int64_t now = rlock__tick(client->now_us);
    RLOCK_ASSERT(rlock__list_empty(&claim->due));
    if (client->ring && rlock__tick(claim->next_us) == now) {
        claim->next_us = client->now_us;
    }
    if (client->ring && claim->phase == RLOCK__HOLDING && rlock__tick(claim->check_us) == now) {
        claim->check_us = client->now_us;
    }
    return rlock__claim_due_us(claim) <= client->now_us;
}

/* Sets the timer to the next claim of the list, or the next slot of the ring that is in use. */
static void rlock__due_wait(rlock_client *client) {
    const rlock__claim *first = RLOCK__FIRST(&client->due, rlock__claim, due);
    int64_t due_us = first ? rlock__claim_due_us(first) : RLOCK__NEVER;
    int64_t tick = client->ring_tick + 1, last = client->ring_tick + RLOCK__RING;
    while (client->ring && tick <= last && rlock__list_empty(rlock__slot(client, tick))) {
        tick++;
    }
    if (client->ring && tick <= last) {
        due_us = rlock__min(due_us, tick * RLOCK__TICK_US);
    }
    RLOCK_ASSERT(due_us >= 0);
    rlock_timer_set(client, &client->due_timer, due_us == RLOCK__NEVER ? -1 : due_us);
}

/* ------------------------------------------------------------------------------------------------
 * >>gate - one gate for each key: the waiters of this process; only the first asks the server
 */

#define RLOCK__SLEEP_MS 10000    /* the longest sleep of a waiter that is woken by push */
#define RLOCK__MANY_KEYS 100     /* with so many tracked keys push alone is not relied on */
#define RLOCK__CHECK_KEY_MS 5    /* each is asked for after so long times their number */
#define RLOCK__CHECK_MIN_MS 1000 /* the least such time */

/* Returns how long push alone is relied on. A server remembers only so many keys for it
 * (tracking-table-max-keys), and does not report those that a command of this client drives out. So
 * a client that tracks many keys asks for each now and then, the more seldom the more they are. */
RLOCK__NOINLINE static int64_t rlock__check_interval_ms(const rlock_client *client) {
    int64_t interval_ms = (int64_t)client->tracked * RLOCK__CHECK_KEY_MS;
    if (client->tracked < RLOCK__MANY_KEYS) {
        return RLOCK__SLEEP_MS;
    }
    return interval_ms < RLOCK__CHECK_MIN_MS ? RLOCK__CHECK_MIN_MS : interval_ms;
}

#define RLOCK__SOON_US 10000         /* until what failed for lack of memory is tried again */
#define RLOCK__GIVE_WAY_MAX_US 50000 /* the longest pause for the sake of other processes */

/* How the waiters of a gate come to a grant: they contend (see >>contend), or queue (>>queue). */
typedef struct rlock__mode {
    bool (*join)(rlock__claim *claim);         /* to begin, or again; false: the key is taken */
    void (*attempt)(rlock__gate *gate);        /* makes the attempts that are due */
    void (*next)(rlock__gate *gate);           /* there is another first waiter */
    void (*wake)(rlock__gate *gate, int hint); /* something may have changed */
    void (*pushing)(rlock__gate *gate);        /* what is pushed for the waiters began or ended */
    void (*refused)(rlock__claim *claim, const rlock_answer *answer);
    void (*granted)(rlock__claim *claim, const rlock_request *request, const rlock_answer *answer);
} rlock__mode;

/* What wakes a gate: a change of our own, one that was pushed, or any that may have been missed. */
enum { RLOCK__HINT_OURS, RLOCK__HINT_PUSHED, RLOCK__HINT_MISSED };

/* Returns what the store pushes for the waiters: changes, or notifications. */
static unsigned rlock__push_of(const rlock__gate *gate) {
    return rlock__queued(gate) ? RLOCK_PUSH_NOTIFICATIONS : RLOCK_PUSH_CHANGES;
}

static bool rlock__pushed(const rlock__gate *gate) {
    return (gate->pushing & rlock__push_of(gate)) != 0;
}

/* Calls visit for every gate of this client that wants the key. */
static void rlock__key_each(rlock_client *client, const char *key, size_t len,
                            void (*visit)(rlock__gate *gate, const void *with), const void *with) {
    rlock__item *item = rlock__map_find(&client->gates, key, len), *next;
    for (; item; item = next) {
        next = rlock__map_same(item);
        visit(rlock__gate_at(item), with);
    }
}

/* True if one of the gate's keys belongs to a part; NULL is the whole. */
static bool rlock__gate_in(rlock__gate *gate, const rlock_part *part) {
    const rlock__item *item;
    uint32_t i;
    if (!part) {
        return true;
    }
    for (i = 0; (item = rlock__gate_key(gate, i)) != NULL; i++) {
        if (part->has(part, item->key, item->key_len)) {
            return true;
        }
    }
    return false;
}

/* Returns options.owner of a claim that is no mutex with one key. */
static uint64_t rlock__owner_of(const rlock__claim *claim) {
    RLOCK_ASSERT(rlock__terms_of(claim->lock));
    return claim->lock->more->terms.owner;
}

/* True if a reader may hold next to this writer: it has the same owner, a downgrade. */
static bool rlock__may_downgrade(const rlock__claim *reader, const rlock__claim *writer) {
    RLOCK_ASSERT(reader->lock->gate == writer->lock->gate);
    return rlock__is_kind(reader, RLOCK_KIND_READ) && rlock__is_kind(writer, RLOCK_KIND_WRITE) &&
           rlock__owner_of(reader) && rlock__owner_of(reader) == rlock__owner_of(writer);
}

/* Returns the token of the writer next to which the reader may hold; 0 = none. */
static uint64_t rlock__writer(const rlock__claim *reader) {
    const rlock__claim *holds = rlock__holder(reader->lock->gate);
    RLOCK_ASSERT(reader->phase == RLOCK__ATTEMPTING);
    while (holds && rlock__is_kind(holds, RLOCK_KIND_WRITE) &&
           !rlock__may_downgrade(reader, holds)) {
        holds = rlock__claim_next(reader->lock->gate, holds, RLOCK__HOLDING);
    }
    return holds && rlock__is_kind(holds, RLOCK_KIND_WRITE) && !rlock__claim_id(holds)
               ? holds->token
               : 0;
}

static void rlock__claim_attempt(rlock__claim *claim, bool urgent) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    unsigned flags = 0;
    uint16_t fences = 0;
    rlock_request *request;
    RLOCK_ASSERT(rlock__handle_of(claim));
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(!claim->in_flight);
    RLOCK_ASSERT(claim->lock->lease_ms >= RLOCK_LEASE_MIN_MS);
    RLOCK_ASSERT(gate->waiters &&
                 (!gate->waiters->attempting || gate->waiters->attempting == claim));
    flags |= claim->may_exist ? RLOCK_REQUEST_RETRY : 0u;
    flags |= gate->tracked && !claim->lock->once ? RLOCK_REQUEST_TRACK : 0u;
    flags |= claim->lock->once ? RLOCK_REQUEST_ONCE : 0u;
    claim->retry = false;
    if (claim->lock->fencing) { /* one also for each who may follow without the server */
        const rlock_link *at = claim->link.next;
        int more = rlock__queued(gate) ? 0 : client->handovers;
        fences = 1;
        for (; at != &gate->waiters->list && fences <= more; at = at->next) {
            fences++;
        }
    }
    request = rlock__claim_request(
        claim, RLOCK_OP_ACQUIRE, claim->lock->lease_ms,
        rlock__add_ms(client->now_us, urgent ? 0 : client->command_timeout_ms));
    if (request) {
        request->flags = (uint8_t)flags;
        request->fences = fences;
        if (RLOCK__HAS_KINDS && request->terms && request->terms->kind == RLOCK_KIND_READ) {
            request->writer = rlock__writer(claim);
        }
        rlock__claim_submit(claim, request);
    } else { /* soon */
        rlock__lock_note(claim->lock, RLOCK_FAULT_NOMEM, NULL, false);
        claim->retry = true;
        gate->waiters->attempting = NULL;
        rlock_timer_set(client, &gate->waiters->timer, client->now_us + RLOCK__SOON_US);
    }
}

/* Puts the next attempt off for a moment. */
static void rlock__gate_give_way(rlock__gate *gate, int64_t pause_us) {
    rlock__waiters *waiters = gate->waiters;
    RLOCK_ASSERT(pause_us >= 0);
    RLOCK_ASSERT(gate->references);
    if (!waiters) {
        return;
    }
    waiters->polls = 0;
    if (waiters->attempting) { /* it may have been refused before this release */
        waiters->dirty = true;
    } else if (!rlock__holder(gate)) {
        waiters->yields = true;
        rlock_timer_set(gate->client, &waiters->timer,
                        gate->client->now_us + rlock__min(pause_us, RLOCK__GIVE_WAY_MAX_US));
    }
}

static bool rlock__key_tracked(const rlock_client *client, const char *key, size_t len) {
    rlock__item *item = rlock__map_find(&client->gates, key, len);
    while (item && !rlock__gate_at(item)->tracked) {
        item = rlock__map_same(item);
    }
    return item != NULL;
}

/* Begins or stops to track the gate's keys; another gate may track one of them too. */
static void rlock__gate_track_keys(rlock__gate *gate, bool on) {
    rlock_client *client = gate->client;
    const rlock__item *item;
    uint32_t i;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    RLOCK_ASSERT((on || gate->tracked) && (!gate->tracked || client->tracked));
    if (!on) {
        client->tracked--;
    } else if (!gate->tracked) {
        client->tracked++;
    }
    gate->tracked = on;
    for (i = 0; (item = rlock__gate_key(gate, i)) != NULL; i++) {
        if (on || !rlock__key_tracked(client, item->key, item->key_len)) {
            client->store->track(client->store_state, item->key, item->key_len, on);
        }
    }
}

/* Tracks the gate's keys, if they are not tracked yet. */
RLOCK__NOINLINE static void rlock__gate_track(rlock__gate *gate) {
    if (!gate->tracked) {
        rlock__gate_track_keys(gate, true);
    }
}

/* Sleeps until the holder's lease must be over, or for one interval of polling. */
static void rlock__gate_sleep(rlock__gate *gate, int64_t left_ms, bool poll) {
    rlock_client *client = gate->client;
    rlock__waiters *waiters = gate->waiters;
    int64_t delay_ms =
        poll ? client->poll_ms : rlock__min(rlock__check_interval_ms(client), RLOCK__SLEEP_MS);
    RLOCK_ASSERT(rlock__waiter(gate));
    RLOCK_ASSERT(!waiters->attempting && waiters->polls <= 4);
    RLOCK_ASSERT(client->poll_ms > 0);
    waiters->yields = false;
    if (rlock__queued(gate)) { /* a waiter that is not notified must not miss its offer */
        delay_ms = rlock__min(delay_ms, client->command_timeout_ms / 2);
    }
    if (poll) { /* 1/16 of the interval, doubled with each try; half of it at random */
        delay_ms >>= waiters->polls < 4 ? 4 - waiters->polls : 0;
        delay_ms -= (int64_t)(rlock_client_random(client) % (uint64_t)(delay_ms / 2 + 1));
        waiters->polls = (uint8_t)(waiters->polls < 4 ? waiters->polls + 1 : 4);
    }
    if (left_ms >= 0) {
        delay_ms = rlock__min(delay_ms, left_ms);
    }
    rlock_timer_set(client, &waiters->timer, rlock__add_ms(client->now_us, delay_ms + 1));
}

/* A waiter was answered without a grant. The timer of the gate is set for the first of them. */
static void rlock__claim_sleep(rlock__claim *claim, int64_t left_ms, bool poll) {
    rlock__gate *gate = claim->lock->gate;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING && !claim->in_flight);
    RLOCK_ASSERT(gate->waiters && rlock__handle_of(claim));
    if (rlock__waiter(gate) == claim || !gate->waiters->timer.index) {
        rlock__gate_sleep(gate, left_ms, poll);
    }
}

/* What a handle or a question wants: the key, and the terms if they are no mutex with one key. */
typedef struct rlock__want {
    const rlock_options *options;
    const char *key;
    size_t len;
    rlock_terms terms;
    bool plain;
} rlock__want;

static uint32_t rlock__want_count(const rlock__want *want) {
    return RLOCK__HAS_KINDS ? want->terms.count : 1;
}

static const char *rlock__want_key(const rlock__want *want, uint32_t i, size_t *len) {
    const rlock_options *options = want->options;
    const char *key = i ? options->keys[i] : want->key;
    RLOCK_ASSERT(i < rlock__want_count(want));
    *len = i ? (options->key_lens ? options->key_lens[i] : strlen(key)) : want->len;
    return key;
}

static bool rlock__gate_is(rlock__gate *gate, const rlock__want *want) {
    const rlock__kind *has = gate->kind;
    const rlock_terms *wants = &want->terms;
    uint32_t i;
    if (!has || want->plain) {
        return !has && want->plain;
    }
    if (has->letter != rlock__letter_of(wants->kind) || has->permits != wants->permits ||
        has->count != wants->count) {
        return false;
    }
    for (i = 0; i < has->count; i++) {
        size_t len;
        const char *wanted = rlock__want_key(want, i, &len);
        const rlock__item *item = rlock__gate_key(gate, i);
        if (len != item->key_len || memcmp(item->key, wanted, len) != 0) {
            return false;
        }
    }
    return true;
}

/* False: no memory. */
static bool rlock__kind_new(rlock__gate *gate, const rlock__want *want) {
    uint32_t count = want->terms.count;
    rlock__kind *kind = (rlock__kind *)rlock__alloc(
        sizeof *kind + (count - 1) * sizeof *kind->items + count * sizeof *kind->lens);
    RLOCK_ASSERT(count >= 1);
    RLOCK_ASSERT(!want->plain && count <= RLOCK_KEYS_MAX);
    gate->kind = kind;
    if (kind) {
        kind->letter = rlock__letter_of(want->terms.kind);
        kind->permits = want->terms.permits;
        kind->count = count;
        kind->items = (rlock__item *)(void *)(kind + 1);
        kind->lens = (uint32_t *)(void *)(kind->items + (count - 1));
    }
    return kind != NULL;
}

/* Makes a gate with room for so many bytes of keys. */
static rlock__gate *rlock__gate_make(rlock_client *client, const rlock__want *want, size_t bytes) {
    rlock__gate *gate = (rlock__gate *)rlock__alloc(sizeof *gate + bytes);
    RLOCK_ASSERT(bytes >= 2);
    if (!gate) {
        return NULL;
    }
    if (RLOCK__HAS_KINDS && !want->plain && !rlock__kind_new(gate, want)) {
        rlock__dealloc(gate);
        return NULL;
    }
    gate->client = client;
    rlock__list_init(&gate->claims);
    return gate;
}

/* Makes a gate, and adds its keys to the map: each leads to it. */
static rlock__gate *rlock__gate_new(rlock_client *client, const rlock__want *want) {
    uint32_t i, count = rlock__want_count(want);
    size_t bytes = 0, len;
    rlock__gate *gate;
    char *at;
    for (i = 0; i < count; i++) {
        rlock__want_key(want, i, &len);
        bytes += len + 1;
    }
    gate = rlock__gate_make(client, want, bytes);
    if (!gate) {
        return NULL;
    }
    gate->pushing = (uint8_t)(client->store->pushes
                                  ? client->store->pushes(client->store_state, want->key, want->len)
                                  : client->pushing);
    at = (char *)(gate + 1);
    for (i = 0; i < count; i++) {
        const char *key = rlock__want_key(want, i, &len);
        memcpy(at, key, len);
        if (RLOCK__HAS_KINDS && gate->kind) {
            gate->kind->lens[i] = (uint32_t)len;
        }
        if (RLOCK__HAS_KINDS && rlock__map_find(&client->gates, key, len)) {
            client->mixed++;
        }
        rlock__map_add(&client->gates, rlock__gate_key(gate, i), gate, at, len);
        at += len + 1;
    }
    RLOCK_ASSERT(at == (char *)(gate + 1) + bytes);
    return gate;
}

static rlock__gate *rlock__gate_of(rlock_client *client, const rlock__want *want) {
    rlock__item *item = rlock__map_find(&client->gates, want->key, want->len);
    rlock__gate *gate;
    RLOCK_ASSERT(want->key && want->len);
    RLOCK_ASSERT(client->life == RLOCK__LIVE);
    while (RLOCK__HAS_KINDS && item && !rlock__gate_is(rlock__gate_at(item), want)) {
        item = rlock__map_same(item);
    }
    gate = item ? rlock__gate_at(item) : rlock__gate_new(client, want);
    if (gate) {
        gate->references++;
    }
    return gate;
}

/* Removes one of the gate's keys from the map. */
static void rlock__gate_remove(rlock__gate *gate, rlock__item *item) {
    rlock_client *client = gate->client;
    rlock__map_remove(&client->gates, item);
    if (RLOCK__HAS_KINDS && rlock__map_find(&client->gates, item->key, item->key_len)) {
        RLOCK_ASSERT(client->mixed);
        client->mixed--;
    }
}

static void rlock__gate_unref(rlock__gate *gate) {
    rlock_client *client = gate->client;
    rlock__item *item;
    bool idle = rlock__list_empty(&gate->claims) && !rlock__waiter(gate);
    uint32_t i;
    RLOCK_ASSERT(gate->references);
    if (idle && gate->tracked && client->life != RLOCK__CLOSED) {
        rlock__gate_track_keys(gate, false);
    }
    if (--gate->references == 0) {
        RLOCK_ASSERT(idle && !gate->waiters);
        for (i = 0; (item = rlock__gate_key(gate, i)) != NULL; i++) {
            rlock__gate_remove(gate, item);
        }
        rlock__dealloc(gate->kind);
        rlock__dealloc(gate);
    }
}

/* A handle is not referred to any more: by its user, or by a claim. */
static void rlock__lock_unref(rlock *lock) {
    RLOCK_ASSERT(lock->references);
    if (--lock->references == 0) {
        RLOCK_ASSERT(!lock->claim && !lock->ops);
        RLOCK_ASSERT(rlock__list_empty(&lock->ready.link));
        rlock__lock_text(lock, NULL);
        rlock__gate_unref(lock->gate);
        rlock__dealloc(lock->more);
        rlock__dealloc(lock);
    }
}

/* Gives a new claim, or one that is handed over, to a handle. */
static void rlock__claim_give(rlock__claim *claim, rlock *lock) {
    RLOCK_ASSERT(!lock->claim);
    RLOCK_ASSERT(!lock->ready.event && lock->references);
    claim->lock = lock;
    lock->claim = claim;
    lock->references++;
}

/* ------------------------------------------------------------------------------------------------
 * >>mode - how the waiters of a gate come to a grant: those of a mutex contend, others queue
 */

/* The server knows nobody but the holder of a mutex. So one waiter of each client is enough to ask
 * for it: the first. A refused one is woken when the key changes, and a hold is handed over to it
 * inside the client. */

/* Makes an attempt for the first waiter, if none is in flight and this client does not hold it. */
static void rlock__contend_attempt(rlock__gate *gate) {
    rlock__waiters *waiters = gate->waiters;
    if (!waiters || waiters->attempting || rlock__holder(gate)) {
        return;
    }
    waiters->attempting = rlock__waiter(gate);
    RLOCK_ASSERT(waiters->attempting && waiters->attempting->phase == RLOCK__ATTEMPTING);
    waiters->dirty = waiters->yields = false;
    rlock_timer_set(gate->client, &waiters->timer, -1);
    rlock__claim_attempt(waiters->attempting, false);
}

/* False: an acquire with wait_ms 0 does not wait for another one, nor for a hold of this client. */
static bool rlock__contend_join(rlock__claim *claim) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    const rlock_client *client = gate->client;
    const rlock__claim *held = lock->once ? rlock__holder(gate) : NULL;
    bool first = rlock__waiter(gate) == claim;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    if (lock->once && (held || (!first && client->up))) { /* no need to ask the server */
        if (held) {
            int64_t end_us = rlock__add_ms(rlock__since(held), held->lock->lease_ms);
            rlock__lock_left(lock, end_us > client->now_us ? (end_us - client->now_us) / 1000 : 0);
        }
        return false;
    }
    if (first) { /* else the head is asking, or sleeps for a reason */
        rlock__contend_attempt(gate);
    }
    return true;
}

static void rlock__contend_refused(rlock__claim *claim, const rlock_answer *answer) {
    rlock__gate *gate = claim->lock->gate;
    bool watched = gate->tracked || answer->watched;
    RLOCK_ASSERT(!gate->waiters->attempting && !claim->lock->once);
    rlock__gate_track(gate);
    if ((!watched && rlock__pushed(gate)) || gate->waiters->dirty) {
        rlock__contend_attempt(gate); /* tracked only now, or changed since: no wake-up is missed */
    } else {
        rlock__claim_sleep(claim, answer->left_ms, !rlock__pushed(gate));
    }
}

/* True if other clients come first: after local hand-overs a hold is being let go, or was just now.
 * The question arises because a server without client tracking reports our own releases to us. */
static bool rlock__contend_yields(const rlock__gate *gate) {
    const rlock__claim *claim = NULL;
    RLOCK_ASSERT(gate->waiters);
    while ((claim = rlock__claim_next(gate, claim, RLOCK__RELEASING)) != NULL) {
        if (claim->yields && claim->in_flight) {
            return true;
        }
    }
    return gate->waiters->yields && gate->waiters->timer.index;
}

/* An attempt in flight may have been answered before the change. */
static void rlock__contend_wake(rlock__gate *gate, int hint) {
    (void)hint;
    RLOCK_ASSERT(hint >= RLOCK__HINT_OURS && hint <= RLOCK__HINT_MISSED);
    if (!gate->waiters) {
        return;
    }
    gate->waiters->polls = 0;
    if (gate->waiters->attempting) {
        gate->waiters->dirty = true;
    } else if (!rlock__contend_yields(gate)) {
        rlock__contend_attempt(gate);
    }
}

/* The first waiter polls from now on, if it is not told of changes any more. */
static void rlock__contend_pushing(rlock__gate *gate) {
    if (gate->tracked && !rlock__pushed(gate) && gate->waiters && !gate->waiters->attempting &&
        !rlock__holder(gate)) {
        rlock__gate_sleep(gate, -1, true);
    }
}

/* Notes how many local hand-overs may follow: a fencing token is reserved for each. */
static void rlock__contend_granted(rlock__claim *claim, const rlock_request *request,
                                   const rlock_answer *answer) {
    const rlock_client *client = claim->lock->gate->client;
    int64_t fences = request->fences;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && client->handovers >= 0);
    if (answer->fences) {
        fences = rlock__min(fences, answer->fences);
    }
    claim->handovers =
        (uint16_t)(fences ? rlock__min(fences - 1, client->handovers) : client->handovers);
}

static const rlock__mode rlock__contending = {
    rlock__contend_join,    rlock__contend_attempt, rlock__contend_attempt, rlock__contend_wake,
    rlock__contend_pushing, rlock__contend_refused, rlock__contend_granted};

/* The server keeps the waiters in their order, and offers the lock to the first. So each makes one
 * attempt to join, and one when it is notified of its offer. The first of each client makes more,
 * now and then: this keeps its queue alive, and finds an offer whose notification was lost. */

static bool rlock__queue_join(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING && rlock__queued(claim->lock->gate));
    if (!claim->in_flight) {
        rlock__claim_attempt(claim, false);
    }
    return true;
}

/* The waiter stands in the queue now. */
static void rlock__queue_refused(rlock__claim *claim, const rlock_answer *answer) {
    RLOCK_ASSERT(!claim->in_flight && !claim->lock->once);
    claim->may_exist = true;
    if (claim->retry) {
        rlock__claim_attempt(claim, true); /* notified meanwhile */
    } else {
        rlock__claim_sleep(claim, answer->left_ms, !rlock__pushed(claim->lock->gate));
    }
}

/* Makes an attempt for the first waiter, which serves the queue for the others, and for those whose
 * attempt failed. The server removes a waiter that weighs more than there are permits now; so each
 * waiter that weighs less than all before it makes an attempt too. */
static void rlock__queue_attempt(rlock__gate *gate) {
    uint32_t least = UINT32_MAX; /* of those before it; only permits have a weight */
    rlock__claim *claim = rlock__waiter(gate);
    RLOCK_ASSERT(rlock__queued(gate));
    for (; claim; claim = rlock__waiter_next(claim)) {
        uint32_t weight = claim->lock->more->terms.weight;
        RLOCK_ASSERT(weight);
        if (!claim->in_flight && (claim->retry || weight < least)) {
            rlock__claim_attempt(claim, false);
        }
        if (gate->kind->letter != 's') {
            least = 0;
        } else if (weight < least) {
            least = weight;
        }
    }
}

/* The server keeps with each waiter whether to notify it, and a notification may have been lost:
 * each waiter makes an attempt, after the answer to one in flight, which may be stale. */
static void rlock__queue_again(rlock__gate *gate) {
    rlock__claim *claim = rlock__waiter(gate);
    RLOCK_ASSERT(rlock__queued(gate));
    for (; claim; claim = rlock__waiter_next(claim)) {
        claim->retry = true;
    }
    rlock__queue_attempt(gate);
}

/* A change that was pushed may be any waiter that comes or goes: it means nothing. */
static void rlock__queue_wake(rlock__gate *gate, int hint) {
    RLOCK_ASSERT(hint >= RLOCK__HINT_OURS && hint <= RLOCK__HINT_MISSED);
    if (!gate->waiters) {
        return;
    }
    if (hint == RLOCK__HINT_MISSED) {
        rlock__queue_again(gate);
    } else if (hint == RLOCK__HINT_OURS) {
        gate->waiters->polls = 0;
        if (!rlock__pushed(gate)) {
            rlock__queue_attempt(gate);
        }
    }
}

/* The next waiter has its position already, and sleeps. */
static void rlock__queue_next(rlock__gate *gate) {
    if (gate->waiters && !gate->waiters->timer.index) {
        rlock__gate_sleep(gate, -1, !rlock__pushed(gate));
    }
}

/* Next to a writer the readers of its owner are granted, whatever their position: a downgrade. */
static void rlock__queue_granted(rlock__claim *claim, const rlock_request *request,
                                 const rlock_answer *answer) {
    rlock__claim *reader = rlock__waiter(claim->lock->gate);
    (void)request;
    (void)answer;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    for (; reader && rlock__owner_of(claim); reader = rlock__waiter_next(reader)) {
        if (rlock__may_downgrade(reader, claim)) {
            reader->retry = true;
            if (!reader->in_flight) {
                rlock__claim_attempt(reader, true);
            }
        }
    }
    rlock__queue_next(claim->lock->gate);
}

static const rlock__mode rlock__queueing = {
    rlock__queue_join,  rlock__queue_attempt, rlock__queue_next,   rlock__queue_wake,
    rlock__queue_again, rlock__queue_refused, rlock__queue_granted};

static const rlock__mode *rlock__mode_of(const rlock__gate *gate) {
    return rlock__queued(gate) ? &rlock__queueing : &rlock__contending;
}

static void rlock__gate_fire(rlock_timer *timer) {
    rlock__gate *gate = RLOCK__OF(timer, rlock__waiters, timer)->gate;
    RLOCK_ASSERT(gate->waiters && &gate->waiters->timer == timer);
    rlock__mode_of(gate)->attempt(gate);
}

/* Sees that somebody can wait at the gate. False: no memory. */
static bool rlock__gate_opens(rlock__gate *gate) {
    rlock_client *client = gate->client;
    rlock__waiters *waiters = gate->waiters;
    if (waiters) {
        return true;
    }
    waiters = (rlock__waiters *)rlock__pool_take(&client->waiters, sizeof *waiters);
    if (!waiters) {
        return false;
    }
    if (rlock_timer_add(client, &waiters->timer, rlock__gate_fire) != RLOCK_OK) {
        rlock__pool_put(&client->waiters, waiters);
        return false;
    }
    rlock__list_init(&waiters->list);
    waiters->gate = gate;
    gate->waiters = waiters;
    return true;
}

static void rlock__gate_wake_other(rlock__gate *gate, const void *with) {
    if (gate != with) {
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS);
    }
}

/* The keys of this gate changed: others of this client may want one of them as something else. */
static void rlock__gate_wake_others(rlock__gate *gate) {
    const rlock__item *item;
    uint32_t i;
    for (i = 0; (item = rlock__gate_key(gate, i)) != NULL; i++) {
        rlock__key_each(gate->client, item->key, item->key_len, rlock__gate_wake_other, gate);
    }
}

/* ------------------------------------------------------------------------------------------------
 * >>life - of a token: its acquire, its hold with the watchdog, its release until it is surely gone
 */

/* queue.lua keeps a queue for so many command timeouts after a waiter joined it. */
#define RLOCK__QUEUE_TIMEOUTS 30

/* Ends a claim of which nothing is left at the server. */
static void rlock__claim_gone(rlock__claim *claim) {
    rlock *lock = claim->lock;
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    RLOCK_ASSERT(!claim->in_flight || client->life == RLOCK__CLOSED);
    RLOCK_ASSERT(client->phases[claim->phase]);
    RLOCK_ASSERT(lock->references && gate->references);
    gate->references++;
    if (rlock__handle_of(claim)) {
        rlock__claim_orphan(claim);
    }
    if (claim->in_flight) { /* the store is closed */
        rlock__pool_put(&client->flights, claim->in_flight);
    }
    client->phases[claim->phase]--;
    rlock__claim_unlink(claim);
    rlock__pool_put(&client->claims, claim);
    rlock__shutdown_end(client, RLOCK_OK);
    rlock__lock_unref(lock);
    rlock__gate_unref(gate);
}

/* Returns for how long the server remembers a position in the queue, if nobody else joins. */
static int64_t rlock__position_ms(const rlock_client *client) {
    return (int64_t)client->command_timeout_ms * RLOCK__QUEUE_TIMEOUTS;
}

/* Returns for how long a hold that stays is still to be there; 0 = its time is over. */
static int64_t rlock__stay_ms(const rlock__claim *claim) {
    int64_t left_us = claim->check_us - claim->lock->gate->client->now_us;
    RLOCK_ASSERT(claim->stays && claim->phase == RLOCK__RELEASING);
    if (left_us <= 0) {
        return 0;
    }
    return left_us < RLOCK_LEASE_MIN_MS * 1000 ? RLOCK_LEASE_MIN_MS : (left_us + 999) / 1000;
}

/* The last renewal of a hold that stays was answered. True: nothing more is to be done. If the
 * token was not there, what may still come of it is cleaned up, as after a release. A quorum may
 * give less than was asked for, if one of its servers did not answer an earlier renewal. */
static bool rlock__stay_answered(rlock__claim *claim, const rlock_request *request,
                                 const rlock_answer *answer, bool gone) {
    RLOCK_ASSERT(claim->stays && claim->phase == RLOCK__RELEASING);
    if (answer->outcome == RLOCK_OUTCOME_DONE) {
        if (rlock__given_ms(request, answer) < request->lease_ms) {
            claim->cut = true;
        }
        return true; /* whoever has the token may use it from now on */
    }
    if (answer->outcome != RLOCK_OUTCOME_FAULT || answer->fault == RLOCK_FAULT_TYPE) {
        claim->stays = false;
    } else if (!answer->undone && answer->fault != RLOCK_FAULT_DOWN) {
        claim->cut = true;
    }
    return gone;
}

/* Queued kinds: returns the waiter whose acquire follows the release in the same write, or NULL:
 * the first of this client, if it is likely the first at the server too. */
static rlock__claim *rlock__follower(const rlock__claim *held) {
    rlock__claim *first = rlock__waiter(held->lock->gate);
    bool named = first && held->ours && !first->in_flight && first->may_exist;
    RLOCK_ASSERT(held->phase == RLOCK__RELEASING);
    return RLOCK__HAS_KINDS && named ? first : NULL;
}

static void rlock__releasing_arm(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING);
    RLOCK_ASSERT(claim->may_exist);
    if (!rlock__handle_of(claim)) {
        claim->until_us = RLOCK__NEVER; /* nobody waits for it */
    }
    rlock__claim_arm(claim);
}

/* Ends the acquire that follows the release of a handle. */
static void rlock__following_end(rlock *lock, int status, const char *text) {
    rlock__op *op = rlock__following(lock);
    RLOCK_ASSERT(op && status != RLOCK_OK);
    op->follows = false;
    rlock__op_event(op, status, text);
    if (lock->claim) {
        rlock__releasing_arm(lock->claim);
    }
}

/* The wait of that acquire is over before the release has ended. Nothing was sent for it: so it
 * does not end with UNKNOWN, as the release may. */
static void rlock__following_over(rlock *lock) {
    const rlock_client *client = lock->gate->client;
    int status = lock->ready.status;
    RLOCK_ASSERT(lock->claim && lock->claim->phase == RLOCK__RELEASING);
    if (status != RLOCK_OK && status != RLOCK_ERR_UNKNOWN) {
        rlock__following_end(lock, status, lock->more ? lock->more->text : NULL);
    } else {
        rlock__following_end(lock, RLOCK_ERR_CONN, rlock__unsent_text(client));
    }
}

/* True if a release was refused, and the waiter may be in the queue still: no lease ends that. */
static bool rlock__position_stays(const rlock__claim *claim, const rlock_answer *answer) {
    const rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING);
    RLOCK_ASSERT(!claim->joined || rlock__queued(claim->lock->gate));
    return claim->joined && answer->outcome == RLOCK_OUTCOME_FAULT &&
           answer->fault != RLOCK_FAULT_TYPE &&
           client->now_us < claim->over_us + rlock__position_ms(client) * 1000;
}

/* Plans one more release. */
static void rlock__releasing_again(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    int64_t lease_ms = rlock__handle_of(claim) ? claim->lock->lease_ms : claim->longest_ms;
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING && claim->may_exist);
    RLOCK_ASSERT(!claim->in_flight && lease_ms >= RLOCK_LEASE_MIN_MS);
    if (claim->joined && claim->over_us && claim->over_us <= client->now_us) {
        /* Each lease is over, as far as that is known: only its position is left. */
        lease_ms = rlock__position_ms(client);
    }
    claim->next_us = client->now_us + rlock__clean_up_pause_us(lease_ms);
    rlock__releasing_arm(claim);
}

/* Submits a release; `next` is the waiter whose acquire follows it. Of a hold that stays it is a
 * renewal, until its time is over. */
static void rlock__releasing_ask(rlock__claim *claim, uint64_t next) {
    int64_t stay_ms = RLOCK__HAS_TOKENS && claim->stays ? rlock__stay_ms(claim) : 0;
    rlock_request *request;
    RLOCK_ASSERT(claim->may_exist && next != claim->token);
    claim->stays = RLOCK__HAS_TOKENS && stay_ms > 0;
    request = rlock__claim_request(claim, stay_ms ? RLOCK_OP_RENEW : RLOCK_OP_RELEASE, stay_ms,
                                   claim->lock->gate->client->now_us);
    if (request) {
        request->flags = (uint8_t)(stay_ms ? RLOCK_REQUEST_LAST : 0u);
        request->next = next;
        rlock__claim_submit(claim, request);
    } else {
        if (rlock__handle_of(claim)) {
            rlock__lock_note(claim->lock, RLOCK_FAULT_NOMEM, NULL, false);
        }
        claim->over_us = 0; /* a server that is not asked does not count */
        rlock__releasing_again(claim);
    }
}

/* Lets the token go at the server, until it is surely gone. The claim may be freed by this. */
static void rlock__claim_let_go(rlock__claim *claim) {
    rlock__claim *follower;
    bool held = claim->phase == RLOCK__HOLDING;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(!held || claim->may_exist);
    RLOCK_ASSERT(held || !rlock__handle_of(claim));
    rlock__claim_recall(claim);
    if (!held && !claim->may_exist) {
        rlock__claim_gone(claim);
        return;
    }
    claim->may_exist = true;
    claim->joined = !held && rlock__queued(claim->lock->gate);
    claim->over_us = 0;
    claim->next_us = RLOCK__NEVER;
    rlock__claim_phase(claim, RLOCK__RELEASING);
    rlock__shutdown_end(claim->lock->gate->client, RLOCK_OK); /* or a drain */
    rlock__releasing_arm(claim);
    follower = held && !(RLOCK__HAS_TOKENS && claim->stays) ? rlock__follower(claim) : NULL;
    rlock__releasing_ask(claim, follower ? follower->token : 0);
    if (follower) {
        rlock__claim_attempt(follower, true);
    }
}

/* The connection is back: cleans up before any attempt for the key. */
static void rlock__releasing_up(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING);
    if (!claim->in_flight) {
        claim->next_us = RLOCK__NEVER;
        rlock__releasing_arm(claim);
        rlock__releasing_ask(claim, 0);
    }
}

static void rlock__releasing_fire(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    rlock *lock = rlock__handle_of(claim);
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING);
    RLOCK_ASSERT(!lock || !lock->ready.event);
    if (lock && rlock__following(lock) && rlock__following(lock)->until_us <= client->now_us) {
        rlock__following_over(lock);
    }
    if (lock && claim->until_us <= client->now_us) {
        if (client->up && claim->in_flight) {
            rlock__lock_note(lock, RLOCK_FAULT_UNKNOWN, NULL, false); /* it is out just now */
        } else if (lock->ready.status == RLOCK_OK) {
            rlock__lock_note(lock, client->fault, client->fault_text, false);
        }
        rlock__report(claim, RLOCK_REPORT_LET_GO, lock->ready.status);
        rlock__claim_part(claim, RLOCK_RELEASED, lock->ready.status, RLOCK_REASON_NONE);
    }
    if (claim->next_us <= client->now_us) {
        claim->next_us = RLOCK__NEVER;
        rlock__releasing_ask(claim, 0);
    }
    rlock__releasing_arm(claim);
}

/* The token is not there now; `gone`: and never again. */
static void rlock__releasing_done(rlock__claim *claim, int64_t sent_us, bool gone) {
    rlock__gate *gate = claim->lock->gate;
    int64_t trip_us = gate->client->now_us - sent_us;
    bool yields = claim->yields;
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING && !claim->in_flight);
    gate->references++;
    if (gone) {
        rlock__claim_gone(claim);
    } else {
        rlock__releasing_again(claim);
    }
    if (yields) { /* others were kept waiting: a push to them, and their attempt, come first */
        rlock__gate_give_way(gate, trip_us > 0 ? 2 * trip_us : 0); /* 0: sent in this dispatch */
    } else {
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS); /* nobody tells us of our own deletes */
    }
    if (RLOCK__HAS_KINDS && gate->client->mixed) {
        rlock__gate_wake_others(gate);
    }
    rlock__gate_unref(gate);
}

static void rlock__releasing_answered(rlock__claim *claim, const rlock_request *request,
                                      const rlock_answer *answer) {
    rlock_client *client = claim->lock->gate->client;
    int verdict = RLOCK_ERR_NOT_HELD;
    rlock_reason reason =
        answer->outcome == RLOCK_OUTCOME_GONE ? RLOCK_REASON_DELETED : RLOCK_REASON_STOLEN;
    bool gone = rlock__surely_gone(answer, &claim->over_us, client->now_us, claim->longest_ms,
                                   client->command_timeout_ms) &&
                !rlock__position_stays(claim, answer);
    RLOCK_ASSERT(request->op == (claim->stays ? RLOCK_OP_RENEW : RLOCK_OP_RELEASE));
    RLOCK_ASSERT(claim->may_exist);
    RLOCK_ASSERT(claim->phase == RLOCK__RELEASING && !claim->in_flight);
    RLOCK_ASSERT(claim->longest_ms >= RLOCK_LEASE_MIN_MS);
    if (RLOCK__HAS_TOKENS && claim->stays) {
        gone = rlock__stay_answered(claim, request, answer, gone);
    }
    if (answer->outcome == RLOCK_OUTCOME_FAULT) {
        verdict = rlock__on_fault[answer->fault][RLOCK__IN_RELEASE];
    } else if (answer->outcome == RLOCK_OUTCOME_DONE) {
        /* Of one that stays an earlier renewal, not answered, may come late and cut it. */
        verdict = RLOCK__HAS_TOKENS && claim->stays && claim->cut ? RLOCK_ERR_UNKNOWN : RLOCK_OK;
        reason = RLOCK_REASON_NONE;
    }
    if (verdict != RLOCK__RETRY && rlock__handle_of(claim)) { /* those of a repeated one go */
        rlock__lock_text(claim->lock, verdict == RLOCK_OK ? NULL : answer->text);
    }
    if (gone && !rlock__handle_of(claim)) {
        rlock__report(claim, RLOCK_REPORT_CLEANED, RLOCK_OK);
    } else if (verdict != RLOCK__RETRY && rlock__handle_of(claim)) {
        rlock__report(claim, RLOCK_REPORT_LET_GO, verdict);
    }
    if (verdict != RLOCK__RETRY) {
        if (verdict == RLOCK_OK && claim->counted) {
            client->stats.released++;
        }
        rlock__claim_part(claim, RLOCK_RELEASED, verdict, reason);
        rlock__releasing_done(claim, request->sent_us, gone);
    } else if (gone && !rlock__handle_of(claim)) { /* its lease is over, whatever was said */
        rlock__releasing_done(claim, request->sent_us, true);
    } else {
        if (rlock__handle_of(claim)) {
            rlock__lock_note(claim->lock, answer->fault, answer->text, false);
        }
        rlock__releasing_again(claim);
    }
}

/* Ends an acquire without a grant; its token is cleaned up, the next waiter makes an attempt. */
static void rlock__acquire_end(rlock__claim *claim, int status) {
    rlock__gate *gate = claim->lock->gate;
    bool head = rlock__waiter(gate) == claim;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(status != RLOCK_OK);
    RLOCK_ASSERT(status != RLOCK__RETRY);
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->lock->ready.event == RLOCK_ACQUIRED);
    gate->references++;
    if (rlock__handle_of(claim) &&
        status != claim->lock->ready.status) { /* the words were of another end */
        rlock__lock_text(claim->lock, NULL);
    }
    rlock__report(claim, RLOCK_REPORT_FAILED, status);
    rlock__claim_part(claim, RLOCK_ACQUIRED, status, RLOCK_REASON_NONE);
    if (RLOCK__HAS_TOKENS && claim->adopted) { /* it may be another's yet: only its lease ends it */
        rlock__claim_recall(claim);
        rlock__claim_gone(claim);
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS); /* it kept waiters from asking */
    } else {
        rlock__claim_let_go(claim);
    }
    if (head) {
        rlock__mode_of(gate)->next(gate);
    }
    rlock__gate_unref(gate);
}

/* An acquire began, or the connection is back. */
static void rlock__acquire_join(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    if (!rlock__mode_of(claim->lock->gate)->join(claim)) {
        rlock__acquire_end(claim, RLOCK_ERR_BUSY);
    }
}

/* Begins a claim in memory of the pool, or NULL. Returns it; NULL: no memory. */
static rlock__claim *rlock__claim_begin(rlock *lock, rlock__claim *claim) {
    rlock_client *client = lock->gate->client;
    RLOCK_ASSERT(!lock->claim);
    RLOCK_ASSERT(client->life == RLOCK__LIVE);
    if (!claim) {
        return NULL;
    }
    if (!rlock__pool_reserve(&client->flights, sizeof(rlock__flight),
                             rlock__flights_for(client->claims.count))) {
        rlock__pool_put(&client->claims, claim);
        return NULL;
    }
    rlock__ring_reserve(client);
    rlock__list_init(&claim->link);
    rlock__list_init(&claim->due);
    rlock__claim_give(claim, lock);
    claim->token = ++client->tokens;
    claim->until_us = claim->next_us = RLOCK__NEVER;
    claim->phase = RLOCK__ATTEMPTING;
    client->phases[RLOCK__ATTEMPTING]++;
    return claim;
}

static rlock__claim *rlock__claim_new(rlock *lock) {
    rlock__pool *claims = &lock->gate->client->claims;
    return rlock__claim_begin(lock, (rlock__claim *)rlock__pool_take(claims, sizeof(rlock__claim)));
}

RLOCK__NOINLINE static int32_t rlock__lease_of(const rlock *lock, int64_t lease_ms) {
    int32_t own_ms = lock->more ? lock->more->watchdog_lease_ms : 0;
    int32_t watchdog_ms = own_ms ? own_ms : lock->gate->client->watchdog_lease_ms;
    RLOCK_ASSERT(lease_ms >= 0 && lease_ms <= RLOCK_LEASE_MAX_MS);
    RLOCK_ASSERT(watchdog_ms >= RLOCK_LEASE_MIN_MS);
    return lease_ms ? (int32_t)lease_ms : watchdog_ms;
}

/* True if a hold that is acquired with this lease is renewed until it is released. */
static bool rlock__renews(const rlock *lock, int64_t lease_ms) {
    return lock->watchdog == RLOCK_WATCHDOG_ON ||
           (lock->watchdog == RLOCK_WATCHDOG_AUTO && lease_ms == 0);
}

/* Begins an acquire on a handle that is idle. */
static int rlock__acquire_start(rlock *lock, int64_t until_us, bool once, int64_t lease_ms,
                                rlock_callback *done, void *user) {
    rlock__gate *gate = lock->gate;
    const rlock__claim *held = rlock__holder(gate);
    rlock__claim *claim = rlock__claim_new(lock);
    rlock__waiters *waiters;
    RLOCK_ASSERT(!lock->ready.event);
    RLOCK_ASSERT(!rlock__op_of(lock, 0) && !rlock__renewal(lock));
    RLOCK_ASSERT(done && (!once || until_us != RLOCK__NEVER));
    if (claim && !rlock__gate_opens(gate)) {
        rlock__claim_gone(claim);
        claim = NULL;
    }
    if (!claim) {
        return RLOCK_ERR_NOMEM;
    }
    lock->done = done;
    lock->user = user;
    lock->once = once;
    lock->ready.status = RLOCK_OK;
    lock->ready.left_ms = -1;
    lock->lease_ms = rlock__lease_of(lock, lease_ms);
    lock->renews = rlock__renews(lock, lease_ms);
    lock->wait_until_us = claim->until_us = until_us;
    rlock__claim_arm(claim);
    waiters = gate->waiters;
    if (held && !rlock__shared(held)) {
        waiters->taken = true;
    }
    rlock__list_append(&waiters->list, &claim->link);
    rlock__report(claim, RLOCK_REPORT_ASKED, RLOCK_OK);
    rlock__acquire_join(claim);
    return RLOCK_OK;
}

/* A grant came too late, or was lost before it was delivered: retries while there is time. */
static void rlock__acquire_again(rlock__claim *claim, bool may_exist) {
    rlock__gate *gate = claim->lock->gate;
    rlock_client *client = gate->client;
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING || claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim) && rlock__state_of(lock) == RLOCK__WAITING_STATE);
    if (claim->phase == RLOCK__HOLDING) {
        rlock__claim_recall(claim);
        rlock__claim_phase(claim, RLOCK__ATTEMPTING);
        if (!rlock__gate_opens(gate)) {
            claim->may_exist = may_exist;
            rlock__acquire_end(claim, RLOCK_ERR_NOMEM);
            return;
        }
        rlock__list_append(gate->waiters->list.next, &claim->link); /* first, as it was */
    }
    lock->ready.event = 0;
    rlock__list_remove(&lock->ready.link);
    rlock__lock_text(lock, NULL);
    claim->may_exist = may_exist;
    claim->retry = true; /* of a queued kind it is asked for although others stand before it */
    lock->ready.status = RLOCK_ERR_UNKNOWN;
    if (lock->once || lock->wait_until_us <= client->now_us) {
        rlock__acquire_end(claim, RLOCK_ERR_UNKNOWN);
        return;
    }
    claim->until_us = lock->wait_until_us;
    claim->next_us = RLOCK__NEVER;
    rlock__claim_arm(claim);
    RLOCK_ASSERT(gate->waiters && !claim->in_flight);
    rlock__mode_of(gate)->attempt(gate);
}

static void rlock__refused(rlock__claim *claim, const rlock_answer *answer) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(gate->waiters && !claim->in_flight);
    RLOCK_ASSERT(rlock__handle_of(claim));
    if (answer->settled) {
        claim->may_exist = false;
    }
    rlock__lock_left(lock, answer->left_ms);
    lock->ready.status = RLOCK_ERR_TIMEOUT;
    gate->waiters->taken = true;
    rlock__lock_text(lock, NULL);
    if (lock->once) {
        rlock__acquire_end(claim, RLOCK_ERR_BUSY);
    } else {
        rlock__mode_of(gate)->refused(claim, answer);
    }
}

/* Makes another claim take the place of one whose token is spent, and lets that one go. Returns the
 * one that waits now, or NULL: without memory the acquire has ended. */
static rlock__claim *rlock__attempt_anew(rlock__claim *spent) {
    rlock *lock = spent->lock;
    rlock__claim *claim;
    RLOCK_ASSERT(spent->phase == RLOCK__ATTEMPTING && spent->may_exist && !spent->in_flight);
    rlock__claim_orphan(spent);
    claim = rlock__claim_new(lock);
    if (!claim) {
        lock->claim = spent;
        rlock__acquire_end(spent, RLOCK_ERR_NOMEM);
        return NULL;
    }
    RLOCK_ASSERT(claim->token != spent->token && lock->claim == claim);
    claim->until_us = spent->until_us;
    rlock__claim_arm(claim);
    rlock__list_append(&spent->link, &claim->link);
    rlock__claim_let_go(spent);
    return claim;
}

static void rlock__attempt_failed(rlock__claim *claim, const rlock_answer *answer) {
    int column = claim->lock->once ? RLOCK__IN_ATTEMPT : RLOCK__IN_WAIT;
    int verdict = rlock__on_fault[answer->fault][column];
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(!claim->in_flight && rlock__handle_of(claim));
    if (rlock__may_exist(answer) || answer->spent) {
        claim->may_exist = true;
    }
    claim->lock->ready.left_ms = -1;
    rlock__lock_note(claim->lock, answer->fault, answer->text, verdict != RLOCK__RETRY);
    if (verdict != RLOCK__RETRY) {
        rlock__acquire_end(claim, verdict);
        return;
    }
    claim = answer->spent ? rlock__attempt_anew(claim) : claim;
    if (claim) {
        claim->retry = true; /* it may not be in the queue, or has an offer that ends */
        rlock__claim_sleep(claim, -1, true);
    }
}

/* The wait is over. */
static void rlock__attempt_fire(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    rlock *lock = claim->lock;
    bool up = client->up, existed = claim->may_exist;
    int status = lock->ready.status;
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(lock->wait_until_us != RLOCK__NEVER);
    RLOCK_ASSERT(claim->until_us <= client->now_us && claim->next_us == RLOCK__NEVER);
    RLOCK_ASSERT(lock->gate->waiters && rlock__handle_of(claim));
    rlock__claim_recall(claim);
    if (status != RLOCK_ERR_TIMEOUT && claim->may_exist && !existed) {
        status = RLOCK_ERR_UNKNOWN;
    } else if (status == RLOCK_OK && up && lock->gate->waiters->taken) { /* by others before it */
        status = lock->once ? RLOCK_ERR_BUSY : RLOCK_ERR_TIMEOUT;
    } else if (status == RLOCK_OK) {
        rlock__lock_note(lock, up ? RLOCK_FAULT_DOWN : client->fault, rlock__unsent_text(client),
                         false);
        status = lock->ready.status;
    }
    rlock__acquire_end(claim, status);
}

/* Returns why a hold ends at its deadline that no fault kept from being renewed, or NULL. */
static const char *rlock__expired_text(const rlock__claim *held) {
    int64_t now_us = held->lock->gate->client->now_us;
    const rlock__more *more = held->lock->more;
    if (more && more->hold_ms && more->until_us <= now_us) {
        return "max_hold_ms has passed";
    }
    if (!held->lock->renews && !rlock__renewal(held->lock)) {
        return NULL; /* nobody wanted it to be renewed */
    }
    return held->next_us <= now_us ? "no renewal was sent: the process or its event loop stalled"
                                   : "no renewal was answered in time";
}

/* Ends a hold as lost. `may_exist`: the token may be at the server, or arrive there: release it. */
static void rlock__claim_lose(rlock__claim *claim, rlock_reason reason, bool may_exist) {
    rlock__gate *gate = claim->lock->gate;
    rlock *lock = claim->lock;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim));
    RLOCK_ASSERT(reason != RLOCK_REASON_NONE);
    RLOCK_ASSERT(reason != RLOCK_REASON_EXPIRED || claim->until_us <= gate->client->now_us);
    if (lock->ready.event) {
        rlock__acquire_again(claim, may_exist); /* nobody was told of it yet */
        return;
    }
    gate->references++;
    if (claim->faulted) {
        rlock__hold_fault(claim, gate->client->fault_text);
    }
    if (reason == RLOCK_REASON_EXPIRED && !(lock->more && lock->more->text)) {
        rlock__lock_text(lock, rlock__expired_text(claim));
    }
    if (rlock__renewal(lock)) {
        rlock__op_event(rlock__renewal(lock), RLOCK_ERR_LOST, lock->more ? lock->more->text : NULL);
    }
    if (reason != RLOCK_REASON_CLOSED) { /* else it is released, and counted as that */
        gate->client->stats.lost++;
        claim->counted = false;
    }
    rlock__report_lost(claim, reason);
    rlock__claim_part(claim, RLOCK_LOST, RLOCK_ERR_LOST, reason);
    if (may_exist) {
        rlock__claim_let_go(claim);
    } else {
        rlock__claim_recall(claim);
        rlock__claim_gone(claim);
    }
    rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS);
    rlock__gate_unref(gate);
}

#define RLOCK__HURRY_US 10000 /* the least time between two failed renewals */

/* Plans what comes next for a hold whose lease was asked for at since_us. */
static void rlock__holding_plan(rlock__claim *claim, int64_t since_us) {
    rlock_client *client = claim->lock->gate->client;
    int64_t lease_ms = claim->lock->lease_ms, third_us = lease_ms * 1000 / 3;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(lease_ms >= RLOCK_LEASE_MIN_MS);
    RLOCK_ASSERT(lease_ms <= RLOCK_LEASE_MAX_MS);
    claim->next_us = RLOCK__NEVER;
    if (claim->lock->renews) { /* a tenth earlier at random: holds of one age spread out */
        int64_t early_us = (int64_t)(rlock_client_random(client) % (uint64_t)(third_us / 10 + 1));
        claim->next_us =
            since_us - early_us + rlock__min(third_us, rlock__deadline(claim, 0, lease_ms) / 2);
        claim->next_us = claim->next_us < 0 ? 0 : claim->next_us; /* the clock began at 0 */
    }
    rlock__report_due(claim, claim->next_us, false);
    rlock__claim_arm(claim);
}

/* Plans the next renewal, or if there is no watchdog the next check. */
RLOCK__NOINLINE static void rlock__holding_retry(rlock__claim *claim, int64_t due_us) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && due_us > 0);
    if (claim->lock->renews) {
        claim->next_us = due_us;
    } else {
        claim->check_us = due_us;
        claim->retry = true;
    }
    rlock__claim_arm(claim);
}

/* Submits the renewal by hand that waits, else a renewal, or with lease 0 a check. */
static void rlock__holding_submit(rlock__claim *claim, int64_t lease_ms, bool urgent) {
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t now_us = claim->lock->gate->client->now_us;
    rlock_request *request;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && claim->may_exist);
    RLOCK_ASSERT(rlock__handle_of(claim));
    RLOCK_ASSERT(!renewal || (renewal->lease_ms && !renewal->sent));
    lease_ms = renewal ? renewal->lease_ms : lease_ms;
    if (claim->cut) {
        lease_ms = rlock__min(lease_ms, claim->longest_ms);
    }
    request =
        rlock__claim_request(claim, RLOCK_OP_RENEW, lease_ms, urgent ? now_us : claim->until_us);
    if (request) {
        claim->retry = false;
        if (renewal) {
            renewal->sent = true;
        }
        rlock__report_due(claim, lease_ms ? now_us : RLOCK__NEVER, true);
        rlock__claim_submit(claim, request);
    } else {
        rlock__holding_retry(claim, now_us + RLOCK__HURRY_US);
    }
}

/* A hint that the key changed: checks the hold, at once or after the request in flight. */
static void rlock__holding_check(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim));
    if (claim->in_flight) {
        claim->retry = true;
    } else {
        rlock__holding_submit(claim, 0, true);
    }
}

/* The connection is back: renews or checks before anything else. */
static void rlock__holding_up(rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    if (!claim->in_flight) {
        rlock__holding_submit(claim, claim->lock->renews ? claim->lock->lease_ms : 0, true);
    }
}

/* True for a shared hold whose client is notified: it is not registered for push. When
 * notifications start it is checked: rlock__gate_pushing. */
static bool rlock__heard(const rlock__claim *claim) {
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    return rlock__shared(claim) && !rlock__claim_id(claim) &&
           (claim->lock->gate->pushing & RLOCK_PUSH_NOTIFICATIONS);
}

/* Plans the next check of a hold that is registered for push, if no renewal comes before. */
static void rlock__holding_plan_check(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && claim->registered);
    claim->check_us = rlock__shared(claim)
                          ? RLOCK__NEVER
                          : rlock__add_ms(client->now_us, rlock__check_interval_ms(client));
}

/* A check is due. The first registers the hold for push; a later one finds what push missed. */
static void rlock__holding_due(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    bool many =
        client->tracked >= RLOCK__MANY_KEYS && (claim->lock->gate->pushing & RLOCK_PUSH_CHANGES);
    bool check = claim->retry || (claim->registered && many);
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    if (!claim->registered) {
        if (claim->lock->gate->pushing && !rlock__heard(claim)) {
            check = true;
        }
        claim->registered = true;
        rlock__gate_track(claim->lock->gate);
    }
    rlock__holding_plan_check(claim);
    if (check) {
        rlock__holding_check(claim);
    }
}

static void rlock__holding_fire(rlock__claim *claim) {
    rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(rlock__handle_of(claim));
    if (claim->until_us <= client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
        return;
    }
    if (claim->check_us <= client->now_us) {
        rlock__holding_due(claim);
    }
    if (claim->next_us <= client->now_us) {
        claim->next_us = RLOCK__NEVER;
        if (claim->in_flight && !claim->in_flight->request.lease_ms) {
            rlock__claim_recall(claim); /* a renewal checks as well */
        }
        if (!claim->in_flight) {
            rlock__holding_submit(claim, claim->lock->lease_ms, false);
        }
    }
    rlock__claim_arm(claim);
}

static void rlock__renewed(rlock__claim *claim, const rlock_request *request,
                           const rlock_answer *answer) {
    rlock_client *client = claim->lock->gate->client;
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t lease_ms = rlock__given_ms(request, answer), until_us;
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING);
    RLOCK_ASSERT(!claim->in_flight && claim->may_exist);
    RLOCK_ASSERT(claim->until_us > client->now_us && lease_ms <= request->lease_ms);
    if (!request->lease_ms) {
        return;
    }
    until_us = rlock__deadline(claim, request->sent_us, lease_ms);
    RLOCK_ASSERT(until_us <= request->sent_us + lease_ms * 1000);
    if (lease_ms > claim->lock->lease_ms) { /* a shorter one was asked for since */
        until_us = rlock__min(until_us, claim->until_us);
    }
    rlock__report(claim, RLOCK_REPORT_RENEWED, RLOCK_OK);
    rlock__lock_text(claim->lock, NULL);
    claim->faulted = false;
    claim->until_us = until_us;
    if (lease_ms < request->lease_ms || (claim->cut && lease_ms < claim->lock->lease_ms)) {
        rlock__claim_lease(claim, lease_ms);
    }
    client->refused = false;
    client->stats.renewed++;
    if (claim->until_us <= client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
        return;
    }
    if (!claim->lock->ready.event) {
        rlock__lock_show(claim->lock, claim->until_us);
    }
    if (renewal && renewal->sent) {
        if (renewal->watchdog) {
            claim->lock->renews = true;
        }
        rlock__op_event(renewal, RLOCK_OK, NULL);
    }
    if (claim->registered) {
        rlock__holding_plan_check(claim); /* a renewal checks as well */
    }
    rlock__holding_plan(claim, request->sent_us);
}

/* Logs that a renewal was refused: once a hold, and once for all holds until one is renewed. What a
 * connection brings about is logged as that of the connection. */
static void rlock__renewal_refused(rlock *lock, const rlock_answer *answer) {
    rlock_client *client = lock->gate->client;
    RLOCK_ASSERT(answer->outcome == RLOCK_OUTCOME_FAULT && lock->claim);
    if (answer->fault > RLOCK_FAULT_UNKNOWN && lock->more && !lock->more->refused) {
        lock->more->refused = true;
        if (!client->refused) {
            client->refused = true;
            rlock_client_log(client, RLOCK_LOG_WARNING, "a renewal is refused", answer->text);
        }
    }
}

/* A renewal failed: the old deadline stands, the next attempt comes the sooner the nearer it is. */
static void rlock__renewal_failed(rlock__claim *claim, const rlock_request *request,
                                  const rlock_answer *answer) {
    rlock_client *client = claim->lock->gate->client;
    rlock__op *renewal = rlock__renewal(claim->lock);
    int64_t delay_us = (claim->until_us - client->now_us) / 4;
    RLOCK_ASSERT(claim->until_us > client->now_us);
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && !claim->in_flight);
    rlock__hold_fault(claim, answer->text);
    claim->cut =
        claim->cut || (request->lease_ms && !answer->undone && answer->fault != RLOCK_FAULT_DOWN);
    delay_us = rlock__min(delay_us, claim->lock->lease_ms * (int64_t)100);
    if (!claim->lock->renews) {
        rlock__report_due(claim, RLOCK__NEVER, false);
    }
    if (renewal && renewal->sent) {
        rlock__op_event(renewal, rlock__on_fault[answer->fault][RLOCK__IN_RENEW], answer->text);
    }
    if (claim->retry || delay_us < RLOCK__HURRY_US) { /* it changed, perhaps behind this one */
        delay_us = RLOCK__HURRY_US;
    }
    rlock__holding_retry(claim, client->now_us + delay_us);
    rlock__renewal_refused(claim->lock, answer);
}

static void rlock__holding_answered(rlock__claim *claim, const rlock_request *request,
                                    const rlock_answer *answer) {
    bool fault = answer->outcome == RLOCK_OUTCOME_FAULT;
    const rlock_terms *terms = rlock__terms_of(claim->lock);
    bool others = RLOCK__HAS_KINDS && terms && terms->count > 1; /* keys still ours */
    RLOCK_ASSERT(request->op == RLOCK_OP_RENEW);
    RLOCK_ASSERT(rlock__handle_of(claim));
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && !claim->in_flight);
    RLOCK_ASSERT(claim->may_exist);
    if (claim->until_us <= claim->lock->gate->client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED,
                          true); /* settled before what came too late */
        return;
    }
    if (answer->outcome == RLOCK_OUTCOME_GONE) {
        rlock__claim_lose(claim, RLOCK_REASON_DELETED, !answer->settled || others);
        return;
    }
    if (answer->outcome == RLOCK_OUTCOME_STOLEN || answer->outcome == RLOCK_OUTCOME_HELD ||
        (fault && rlock__on_fault[answer->fault][RLOCK__IN_WATCHDOG] != RLOCK__RETRY)) {
        if (fault) {
            rlock__hold_fault(claim, answer->text);
        }
        rlock__claim_lose(claim, RLOCK_REASON_STOLEN, (!answer->settled && !fault) || others);
        return;
    }
    if (fault) {
        rlock__renewal_failed(claim, request, answer);
    } else {
        rlock__renewed(claim, request, answer);
    }
    if (claim->phase == RLOCK__HOLDING && !claim->in_flight &&
        (rlock__renewal(claim->lock) || (claim->retry && !fault))) {
        rlock__holding_submit(claim, 0, true); /* asked for meanwhile */
    }
}

#define RLOCK__AGE_MS 100 /* a hold that lives longer is registered for push */

/* A hold of the handle begins: max_hold_ms counts from now. */
static void rlock__limit_begin(rlock *lock) {
    RLOCK_ASSERT(lock->claim);
    if (lock->more) {
        lock->more->refused = false;
        lock->more->until_us = rlock__add_ms(lock->gate->client->now_us, lock->more->hold_ms);
    }
}

/* A hold begins that the store has given. False: it came too late. */
static bool rlock__hold_begin(rlock__claim *claim, const rlock_request *request, int64_t lease_ms) {
    claim->granted_us = (uint32_t)request->sent_us;
    claim->yields = false;
    rlock__limit_begin(claim->lock);
    claim->until_us = rlock__deadline(claim, request->sent_us, lease_ms);
    if (claim->until_us <= claim->lock->gate->client->now_us) {
        return false;
    }
    claim->may_exist = true;
    rlock__claim_lease(claim, lease_ms);
    RLOCK_ASSERT(claim->until_us <= request->sent_us + lease_ms * 1000);
    claim->check_us = request->sent_us + RLOCK__AGE_MS * 1000;
    claim->registered = false;
    claim->counted = claim->faulted = false;
    return true;
}

/* ... and is told. */
static void rlock__hold_owe(rlock__claim *claim, const rlock_request *request) {
    rlock__lock_text(claim->lock, NULL);
    rlock__claim_phase(claim, RLOCK__HOLDING);
    rlock__lock_event(claim->lock, RLOCK_ACQUIRED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__holding_plan(claim, request->sent_us);
}

/* --- a hold that another client has given away --- */

/* The command timeout is over. */
static void rlock__adopt_fire(rlock__claim *claim) {
    const rlock_client *client = claim->lock->gate->client;
    RLOCK_ASSERT(rlock__adopting(claim) && claim->until_us <= client->now_us);
    rlock__claim_recall(claim);
    if (claim->cut) { /* it was sent */
        rlock__acquire_end(claim, RLOCK_ERR_UNKNOWN);
        return;
    }
    rlock__lock_note(claim->lock, client->up ? RLOCK_FAULT_DOWN : client->fault,
                     rlock__unsent_text(client), true);
    rlock__acquire_end(claim, claim->lock->ready.status);
}

static void rlock__adopt_answered(rlock__claim *claim, const rlock_request *request,
                                  const rlock_answer *answer) {
    rlock__waiters *waiters = claim->lock->gate->waiters;
    RLOCK_ASSERT(rlock__adopting(claim) && !claim->in_flight);
    RLOCK_ASSERT(request->op == RLOCK_OP_RENEW && rlock__handle_of(claim));
    if (answer->outcome == RLOCK_OUTCOME_FAULT) {
        rlock__lock_note(claim->lock, answer->fault, answer->text, true);
        rlock__acquire_end(claim, claim->lock->ready.status);
    } else if (answer->outcome != RLOCK_OUTCOME_DONE) {
        rlock__acquire_end(claim, RLOCK_ERR_NOT_HELD);
    } else if (!rlock__hold_begin(claim, request, rlock__given_ms(request, answer))) {
        rlock__acquire_end(claim, RLOCK_ERR_UNKNOWN);
    } else {
        rlock__hold_owe(claim, request);
        if (waiters && !rlock__shared(claim)) {
            waiters->taken = true;
        }
    }
}

static void rlock__claims_fire(rlock_timer *timer) {
    rlock_client *client = RLOCK__OF(timer, rlock_client, due_timer);
    rlock_link due;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    rlock__list_init(&due);
    rlock__due_take(client, &due);
    while (!rlock__list_empty(&due)) {
        rlock__claim *claim = RLOCK__OF(due.next, rlock__claim, due);
        rlock__list_remove(&claim->due);
        if (!rlock__claim_is_due(claim)) {
            rlock__claim_arm(claim);
        } else if (rlock__adopting(claim)) {
            rlock__adopt_fire(claim);
        } else if (claim->phase == RLOCK__ATTEMPTING) {
            rlock__attempt_fire(claim);
        } else if (claim->phase == RLOCK__HOLDING) {
            rlock__holding_fire(claim);
        } else {
            rlock__releasing_fire(claim);
        }
    }
    rlock__due_wait(client);
}

static void rlock__granted(rlock__claim *claim, const rlock_request *request,
                           const rlock_answer *answer) {
    rlock__waiters *waiters = claim->lock->gate->waiters;
    int64_t lease_ms = rlock__given_ms(request, answer);
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING);
    RLOCK_ASSERT(waiters && !claim->in_flight);
    RLOCK_ASSERT(rlock__handle_of(claim) && !claim->lock->ready.event);
    if (!rlock__hold_begin(claim, request, lease_ms)) {
        rlock__acquire_again(claim, true);
        return;
    }
    claim->fence = answer->fence;
    waiters->polls = 0;
    if (!rlock__shared(claim)) {
        waiters->taken = true;
    }
    claim->ours = answer->ours;
    rlock__hold_owe(claim, request);
    if (claim->retry) { /* notified meanwhile: perhaps it was taken away already */
        rlock__holding_check(claim);
    }
    rlock__mode_of(claim->lock->gate)->granted(claim, request, answer);
}

static void rlock__attempt_answered(rlock__claim *claim, const rlock_request *request,
                                    const rlock_answer *answer) {
    rlock_answer nonsense;
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE);
    RLOCK_ASSERT(claim->phase == RLOCK__ATTEMPTING && !claim->in_flight);
    RLOCK_ASSERT(rlock__queued(claim->lock->gate) ||
                 claim->lock->gate->waiters->attempting == claim);
    claim->lock->gate->waiters->attempting = NULL;
    if (answer->outcome == RLOCK_OUTCOME_DONE) {
        rlock__granted(claim, request, answer);
    } else if (answer->outcome == RLOCK_OUTCOME_HELD) {
        rlock__refused(claim, answer);
    } else {
        if (answer->outcome != RLOCK_OUTCOME_FAULT) { /* no answer to an acquire */
            nonsense = *answer;
            nonsense.outcome = RLOCK_OUTCOME_FAULT;
            nonsense.fault = RLOCK_FAULT_OTHER;
            nonsense.text = "unexpected reply";
            answer = &nonsense;
        }
        rlock__attempt_failed(claim, answer);
    }
}

#define RLOCK__HAND_OVER_MAX_US 20000 /* how long after its grant a hold may be handed on */

/* True if the hold may not be handed over locally any more: other clients want the key too, so it
 * stays in this one for at most 20 ms after its grant, however often it is renewed; and for less if
 * the lease is so short that too little of it would be left for the next holder. */
static bool rlock__hand_over_ends(const rlock__claim *held) {
    int64_t limit_us =
        rlock__min(RLOCK__HAND_OVER_MAX_US, held->lock->lease_ms * (int64_t)1000 / 16);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING);
    return held->registered || /* which it is from its 100 ms on */
           (uint32_t)held->lock->gate->client->now_us - held->granted_us > (uint32_t)limit_us;
}

/* True if the lease of the hold fits what the next waiter asked for, a sixteenth more or less: what
 * is left of it here, and how long the server would keep it if this process died. */
static bool rlock__lease_fits(const rlock__claim *held, const rlock__claim *next) {
    const rlock_client *client = held->lock->gate->client;
    int64_t lease_ms = next->lock->lease_ms;
    int64_t wanted_us = rlock__lease_end(client, client->now_us, lease_ms);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && next->phase == RLOCK__ATTEMPTING);
    return lease_ms <= held->lock->lease_ms && held->longest_ms <= lease_ms + lease_ms / 16 &&
           held->until_us + lease_ms * 1000 / 16 >= wanted_us;
}

/* Returns the waiter for a local hand-over, or NULL. Neither claim may have a request in flight;
 * the lease must be nearly fresh and at most 20 ms old, so that other clients get the key too. */
static rlock__claim *rlock__successor(const rlock__claim *held) {
    const rlock__gate *gate = held->lock->gate;
    rlock__claim *next = rlock__waiter(gate);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING);
    if (!next || !held->handovers || rlock__hand_over_ends(held)) {
        return NULL;
    }
    if (held->in_flight || next->in_flight || next->may_exist) {
        return NULL;
    }
    if (next->lock->fencing != (held->fence != 0)) {
        return NULL;
    }
    return rlock__lease_fits(held, next) ? next : NULL;
}

/* Hands the hold over to the next waiter of this client, if there is one: with its token, its lease
 * and the next fencing token, and without the server. The waiter's own claim, which nobody was
 * asked for, ends. False: the caller has to release. */
static bool rlock__hand_over(rlock__claim *held) {
    rlock_client *client = held->lock->gate->client;
    rlock__claim *next = rlock__successor(held);
    int64_t since_us = rlock__since(held);
    rlock *to;
    RLOCK_ASSERT(rlock__handle_of(held));
    RLOCK_ASSERT(held->until_us > client->now_us);
    if (!next) {
        return false;
    }
    RLOCK_ASSERT(held->handovers && !held->in_flight);
    RLOCK_ASSERT(!rlock__queued(held->lock->gate));
    to = next->lock;
    RLOCK_ASSERT(next->phase == RLOCK__ATTEMPTING && !next->may_exist);
    RLOCK_ASSERT(to != held->lock);
    rlock__report_handed(held, next);
    rlock__claim_part(held, RLOCK_RELEASED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__claim_gone(next);
    rlock__lock_unref(held->lock);
    rlock__claim_give(held, to);
    rlock__limit_begin(to);
    held->until_us =
        rlock__min(held->until_us, rlock__deadline(held, client->now_us, to->lease_ms));
    if (to->fencing) {
        held->fence++;
    }
    held->handovers--;
    held->yields = true;
    held->counted = false;
    rlock__lock_text(to, NULL);
    rlock__lock_event(to, RLOCK_ACQUIRED, RLOCK_OK, RLOCK_REASON_NONE);
    rlock__holding_plan(held, since_us);
    client->stats.released++;
    client->stats.handed_on++;
    return true;
}

/* ------------------------------------------------------------------------------------------------
 * >>deliver - events become callbacks
 */

/* Takes an operation away from the handle. */
static void rlock__op_free(rlock *lock, rlock__op *op) {
    rlock_client *client = lock->gate->client;
    rlock__op **at = &lock->ops;
    RLOCK_ASSERT(op->lock == lock);
    while (*at != op) {
        RLOCK_ASSERT(*at);
        at = &(*at)->next;
    }
    *at = op->next;
    rlock__list_remove(&op->ready.link);
    rlock__dealloc(op->text);
    rlock__pool_put(&client->ops, op);
}

/* Returns the state at a time: a deadline that has passed counts although no timer fired yet. An
 * acquire that follows a release counts for what may be called. */
static rlock__state rlock__state_at(const rlock *lock, int64_t now_us) {
    const rlock_client *client = lock->gate->client;
    rlock__state state = rlock__state_of(lock);
    if (client->life == RLOCK__CLOSED && !client->shut) {
        return RLOCK__CLOSED_STATE;
    }
    if (state == RLOCK__HELD_STATE && lock->claim->until_us <= now_us) {
        return RLOCK__LOST_STATE;
    }
    return state == RLOCK__RELEASING_STATE && rlock__following(lock) ? RLOCK__FOLLOWED_STATE
                                                                     : state;
}

/* Returns the clock for a call on a handle; that of a closed client is not read any more. */
static int64_t rlock__read_clock(const rlock *lock) {
    rlock_client *client = lock->gate->client;
    return client->life == RLOCK__CLOSED ? client->now_us : rlock_client_clock_us(client);
}

RLOCK__NOINLINE static int64_t rlock__left_ms(const rlock *lock, int64_t now_us) {
    RLOCK_ASSERT(lock->claim);
    RLOCK_ASSERT(lock->claim->phase == RLOCK__HOLDING && lock->claim->until_us > now_us);
    return (lock->claim->until_us - now_us) / 1000;
}

static void rlock__op_deliver(rlock__ready *ready, char **words) {
    rlock__op *op = RLOCK__OF(ready, rlock__op, ready);
    rlock *lock = op->lock;
    rlock_client *client = lock->gate->client;
    int64_t now_us = rlock__read_clock(lock);
    rlock_callback *done = op->done;
    void *user = op->user;
    char *text = op->text;
    rlock_event event;
    RLOCK_ASSERT(client->depth);
    RLOCK_ASSERT(op->ready.event && !op->waits && !op->follows);
    memset(&event, 0, sizeof event);
    event.kind = (rlock_event_kind)op->ready.event;
    event.status = op->ready.status;
    if (op->ready.event != RLOCK_RELEASED && op->ready.status == RLOCK_OK &&
        rlock__state_at(lock, now_us) != RLOCK__HELD_STATE) {
        event.status =
            rlock__state_of(lock) == RLOCK__RELEASING_STATE ? RLOCK_ERR_CANCELED : RLOCK_ERR_LOST;
    }
    if (event.status == RLOCK_OK) {
        event.remaining_ms = op->ready.event == RLOCK_RELEASED ? 0 : rlock__left_ms(lock, now_us);
        event.fence = lock->claim ? lock->claim->fence : lock->lost_fence;
    }
    event.text = text;
    op->text = NULL;
    if (op->ready.event == RLOCK_ACQUIRED && event.status == RLOCK_OK) {
        op->ready.event = 0; /* it is the spare of its release */
    } else {
        rlock__op_free(lock, op);
    }
    *words = text;
    rlock__leave(client);
    if (done) {
        done(lock, &event, user);
    }
}

static rlock__op *rlock__op_new(rlock *lock, rlock_event_kind kind, rlock_callback *done,
                                void *user) {
    rlock_client *client = lock->gate->client;
    rlock__op *op = kind == RLOCK_RELEASED
                        ? rlock__op_of(lock, 0)
                        : (rlock__op *)rlock__pool_take(&client->ops, sizeof *op);
    RLOCK_ASSERT(kind >= RLOCK_ACQUIRED && kind <= RLOCK_RELEASED);
    if (!op) {
        return NULL;
    }
    if (kind != RLOCK_RELEASED) {
        rlock__list_init(&op->ready.link);
        op->ready.of = RLOCK__OF_OPERATION;
        op->lock = lock;
        op->next = lock->ops;
        lock->ops = op;
    }
    RLOCK_ASSERT(!op->ready.event && !op->waits && !op->follows);
    op->ready.event = (uint8_t)kind;
    op->done = done;
    op->user = user;
    return op;
}

/* The handle is idle again. */
static void rlock__lock_idle(rlock *lock) {
    rlock__op *op;
    RLOCK_ASSERT(!lock->claim && !rlock__renewal(lock));
    while ((op = rlock__op_of(lock, 0)) != NULL) {
        rlock__op_free(lock, op);
    }
}

/* The release has ended: the acquire that follows it begins. False in a child that a hook made
 * meanwhile: nothing more is delivered there. */
static bool rlock__lock_follow(rlock *lock) {
    rlock__op *op = rlock__following(lock);
    int status = RLOCK_ERR_CLOSED;
    RLOCK_ASSERT(!lock->claim && !lock->ready.event);
    if (!op) {
        return true;
    }
    if (lock->gate->client->life == RLOCK__LIVE) {
        status =
            rlock__acquire_start(lock, op->until_us, op->once, op->lease_ms, op->done, op->user);
    }
    if (status == RLOCK_OK) {
        rlock__op_free(lock, op);
    } else {
        rlock__following_end(lock, status, NULL);
    }
    return !rlock__forked(lock->gate->client);
}

static void rlock__lock_deliver(rlock__ready *ready, char **words) {
    rlock *lock = RLOCK__OF(ready, rlock, ready);
    rlock_client *client = lock->gate->client;
    rlock__claim *claim = lock->claim;
    rlock_callback *done = lock->ready.event == RLOCK_LOST ? lock->on_lost : lock->done;
    void *user = lock->ready.event == RLOCK_LOST ? lock->lost_user : lock->user;
    rlock_event event;
    RLOCK_ASSERT(lock->ready.event);
    RLOCK_ASSERT(client->depth);
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    memset(&event, 0, sizeof event);
    event.kind = (rlock_event_kind)lock->ready.event;
    event.status = lock->ready.status;
    event.reason = (rlock_reason)lock->ready.reason;
    event.text = lock->more ? lock->more->text : NULL;
    if (event.kind == RLOCK_ACQUIRED && event.status == RLOCK_OK) {
        /* A callback before this one may have taken long. */
        client->now_us = rlock_client_clock_us(client);
        RLOCK_ASSERT(claim && claim->phase == RLOCK__HOLDING);
        if (claim->until_us <= client->now_us) {
            rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
            rlock__leave(client);
            return;
        }
        client->stats.acquired++;
        claim->counted = true;
        if (RLOCK__HAS_TOKENS) {
            lock->wait_until_us = client->now_us;
        }
        rlock__lock_show(lock, claim->until_us);
        rlock__report(claim, RLOCK_REPORT_GRANTED, RLOCK_OK);
        done = rlock__reports(client) && rlock__forked(client) ? NULL : done;
        event.fence = claim->fence;
        event.remaining_ms = rlock__left_ms(lock, client->now_us);
    } else {
        event.fence = lock->lost_fence;
        if (event.status == RLOCK_ERR_BUSY || event.status == RLOCK_ERR_TIMEOUT) {
            event.remaining_ms = lock->ready.left_ms;
        }
        rlock__lock_idle(lock);
    }
    if (lock->more) {
        *words = lock->more->text;
        lock->more->text = NULL;
    }
    lock->ready.event = 0;
    if (event.kind == RLOCK_RELEASED && !rlock__lock_follow(lock)) {
        done = NULL;
    }
    rlock__leave(client);
    if (done) {
        done(lock, &event, user);
    }
}

/* ------------------------------------------------------------------------------------------------
 * >>question - questions about a key, independent of any hold
 */

/* A question about a key. It is no claim: it leaves nothing at the server. */
typedef struct rlock__question {
    rlock_request request;
    rlock_terms terms;
    rlock_link link; /* in the client's questions */
    rlock_timer timer;
    rlock__ready ready;
    rlock__gate *gate;
    rlock_info_callback *done;
    void *user;
    rlock_info info;
    char *words; /* info.token or info.text; with info.who all of them */
    bool out;    /* the request is with the store */
} rlock__question;

static void rlock__question_free(rlock__question *question) {
    RLOCK_ASSERT(!question->out || question->gate->client->life == RLOCK__CLOSED);
    rlock__list_remove(&question->link);
    rlock__list_remove(&question->ready.link);
    rlock_timer_drop(question->gate->client, &question->timer);
    rlock__gate_unref(question->gate);
    rlock__dealloc(question->words);
    rlock__dealloc(question);
}

static void rlock__question_deliver(rlock__ready *ready, char **words) {
    rlock__question *question = RLOCK__OF(ready, rlock__question, ready);
    rlock_client *client = question->gate->client;
    rlock_info_callback *done = question->done;
    void *user = question->user;
    rlock_info info = question->info;
    RLOCK_ASSERT(client->depth && !question->out);
    *words = question->words;
    question->words = NULL;
    rlock__question_free(question);
    rlock__shutdown_end(client, RLOCK_OK);
    rlock__leave(client);
    if (done) {
        done(client, &info, user);
    }
}

/* Keeps what an answer points to. False: no memory. */
static bool rlock__question_keep(rlock__question *question, const rlock_info *info) {
    question->info = *info;
    question->info.text = NULL;
#if RLOCK__HAS_DESCRIPTIONS
    if (question->request.flags & RLOCK_REQUEST_DESCRIBE) {
        if (!info->who && !info->untold && (info->holders > 0 || info->waiters > 0)) {
            question->info.untold = RLOCK__TEXT("this store does not list holders");
        }
        question->words = rlock__who_copy(question->gate->client, &question->info);
        return question->words != NULL;
    }
#endif
    question->words = info->token ? rlock__copy(info->token, info->token_len) : NULL;
    question->info.token = question->words;
    return !info->token || question->words;
}

static void rlock__question_end(rlock__question *question, int status, const rlock_info *info,
                                const char *text) {
    rlock_client *client = question->gate->client;
    RLOCK_ASSERT(rlock__list_empty(&question->ready.link));
    RLOCK_ASSERT(!question->out);
    RLOCK_ASSERT(!info == (status != RLOCK_OK));
    if (info && !rlock__question_keep(question, info)) {
        question->info.token_len = 0;
        status = RLOCK_ERR_NOMEM;
    } else if (!info) {
        rlock__set_text(client, &question->words, text);
        question->info.text = question->words;
    }
    question->info.status = status;
    rlock_timer_set(client, &question->timer, -1);
    rlock__list_append(&client->ready, &question->ready.link);
}

/* Checks the holds of this key after a forced release by this client: no store reports that. */
static void rlock__gate_forced(rlock__gate *gate, const void *with) {
    rlock__claim *held = NULL;
    (void)with;
    while ((held = rlock__claim_next(gate, held, RLOCK__HOLDING)) != NULL) {
        rlock__holding_check(held);
    }
    rlock__mode_of(gate)->wake(gate, RLOCK__HINT_OURS);
}

static void rlock__question_answered(rlock__question *question, const rlock_answer *answer) {
    const rlock__gate *gate = question->gate;
    RLOCK_ASSERT(question->request.op >= RLOCK_OP_INSPECT);
    RLOCK_ASSERT(!question->out);
    if (answer->outcome == RLOCK_OUTCOME_DONE && answer->info) {
        rlock__question_end(question, RLOCK_OK, answer->info, NULL);
        if (question->request.op == RLOCK_OP_FORCE) {
            rlock__key_each(gate->client, gate->item.key, gate->item.key_len, rlock__gate_forced,
                            NULL);
        }
    } else if (answer->outcome == RLOCK_OUTCOME_FAULT) {
        rlock__question_end(question, rlock__on_fault[answer->fault][RLOCK__IN_ATTEMPT], NULL,
                            answer->text);
    } else {
        rlock__question_end(question, RLOCK_ERR_SERVER, NULL, "unexpected reply");
    }
}

/* Takes the request back from the store; true: it may have been executed. */
static bool rlock__question_recall(rlock__question *question) {
    const rlock_client *client = question->gate->client;
    RLOCK_ASSERT(question->out);
    question->out = false;
    return client->store->forget(client->store_state, &question->request);
}

static void rlock__question_fire(rlock_timer *timer) {
    rlock__question *question = RLOCK__OF(timer, rlock__question, timer);
    rlock_client *client = question->gate->client;
    bool sent = rlock__question_recall(question);
    rlock_fault fault = client->up ? RLOCK_FAULT_DOWN : client->fault;
    if (sent) {
        fault = RLOCK_FAULT_UNKNOWN;
    }
    rlock__question_end(question, rlock__on_fault[fault][RLOCK__IN_ATTEMPT], NULL,
                        sent ? NULL : rlock__unsent_text(client));
}

/* Ends the questions that are not answered: nobody waits for longer. */
static void rlock__questions_overdue(rlock_client *client) {
    rlock_link *at = client->questions.next;
    for (; RLOCK__HAS_KINDS && at != &client->questions; at = at->next) {
        rlock__question *question = RLOCK__OF(at, rlock__question, link);
        if (rlock__list_empty(&question->ready.link)) {
            rlock__question_fire(&question->timer);
        }
    }
}

/* There is no connection for a part of the keys: ends the questions that are not answered. */
static void rlock__questions_down(rlock_client *client, const rlock_part *part, rlock_fault fault,
                                  const char *text) {
    rlock_link *at = client->questions.next;
    for (; RLOCK__HAS_KINDS && at != &client->questions; at = at->next) {
        rlock__question *question = RLOCK__OF(at, rlock__question, link);
        if (rlock__list_empty(&question->ready.link) && rlock__gate_in(question->gate, part)) {
            bool sent = rlock__question_recall(question);
            rlock_fault why = sent ? RLOCK_FAULT_UNKNOWN : fault;
            rlock__question_end(question, rlock__on_fault[why][RLOCK__IN_ATTEMPT], NULL, text);
        }
    }
}

static int rlock__ask(rlock__gate *gate, const rlock_terms *terms, rlock_op op, uint8_t flags,
                      uint64_t number, rlock_info_callback *done, void *user) {
    rlock_client *client = gate->client;
    rlock__question *question = (rlock__question *)rlock__alloc(sizeof *question);
    RLOCK_ASSERT(op >= RLOCK_OP_INSPECT);
    RLOCK_ASSERT(client->life == RLOCK__LIVE && gate->references);
    if (!question || rlock_timer_add(client, &question->timer, rlock__question_fire) != RLOCK_OK) {
        rlock__dealloc(question);
        return RLOCK_ERR_NOMEM;
    }
    gate->references++;
    question->gate = gate;
    question->done = done;
    question->user = user;
    question->info.position = -1;
    question->ready.of = RLOCK__OF_QUESTION;
    rlock__list_init(&question->ready.link);
    rlock__list_init(&question->link);
    rlock__list_append(&client->questions, &question->link);
    rlock__request_init(&question->request, gate, gate->kind ? &question->terms : NULL);
    if (gate->kind) {
        question->terms = *terms;
        question->terms.lens = gate->kind->lens;
    }
    question->request.op = (uint8_t)op;
    question->request.flags = flags;
    question->request.token = op == RLOCK_OP_INSPECT ? number : 0;
    question->request.permits = op == RLOCK_OP_SET_PERMITS ? (uint32_t)number : 0;
    question->request.due_us = client->now_us;
    rlock_timer_set(client, &question->timer,
                    rlock__add_ms(client->now_us, client->command_timeout_ms));
    question->out = client->unsent = true;
    client->store->submit(client->store_state, &question->request);
    return RLOCK_OK;
}

/* ------------------------------------------------------------------------------------------------
 * >>events - what a store reports
 */

static void rlock__store_answered(void *owner, rlock_request *request, const rlock_answer *answer) {
    rlock__flight *flight = RLOCK__OF(request, rlock__flight, request);
    rlock__claim *claim;
    if (RLOCK__HAS_KINDS && request->op >= RLOCK_OP_INSPECT) {
        rlock__question *question = RLOCK__OF(request, rlock__question, request);
        RLOCK_ASSERT(question->out);
        question->out = false;
        rlock__question_answered(question, answer);
        return;
    }
    claim = flight->claim;
    RLOCK_ASSERT(claim->in_flight == flight);
    RLOCK_ASSERT(claim->lock->gate->client == owner && claim->token == request->token);
    claim->in_flight = NULL;
    claim->note = request->store.note;
    if (rlock__adopting(claim)) {
        rlock__adopt_answered(claim, request, answer);
    } else if (claim->phase == RLOCK__ATTEMPTING) {
        rlock__attempt_answered(claim, request, answer);
    } else if (claim->phase == RLOCK__HOLDING) {
        rlock__holding_answered(claim, request, answer);
    } else {
        rlock__releasing_answered(claim, request, answer);
    }
    rlock__pool_put(&((rlock_client *)owner)->flights, flight);
}

/* True if it is not of the first key of its gate. */
static bool rlock__is_another_key(const rlock__item *item) {
    return RLOCK__HAS_KINDS && item != &rlock__gate_at(item)->item;
}

/* Calls visit for every gate of a part; it may free that one. */
static void rlock__gates_each(rlock_client *client, const rlock_part *part,
                              void (*visit)(rlock__gate *gate, const void *with),
                              const void *with) {
    rlock__item *item = rlock__map_next(&client->gates, NULL), *next;
    for (; item; item = next) {
        next = rlock__map_next(&client->gates, item);
        while (next && rlock__is_another_key(next)) { /* it may go with this gate */
            next = rlock__map_next(&client->gates, next);
        }
        if (!rlock__is_another_key(item) && rlock__gate_in(rlock__gate_at(item), part)) {
            visit(rlock__gate_at(item), with);
        }
    }
}

static void rlock__gate_up(rlock__gate *gate, const void *with) {
    rlock__claim *claim = NULL, *next;
    (void)with;
    gate->references++;
    while ((claim = rlock__claim_next(gate, claim, RLOCK__RELEASING)) != NULL) {
        rlock__releasing_up(claim);
    }
    while ((claim = rlock__claim_next(gate, claim, RLOCK__HOLDING)) != NULL) {
        rlock__holding_up(claim);
    }
    for (claim = rlock__waiter(gate); claim; claim = next) {
        next = rlock__waiter_next(claim);
        rlock__acquire_join(claim);
    }
    rlock__gate_unref(gate);
}

static void rlock__store_up(void *owner, const rlock_part *part) {
    rlock_client *client = (rlock_client *)owner;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->up = true;
    rlock__gates_each(client, part, rlock__gate_up, NULL);
}

static void rlock__gate_down(rlock__gate *gate, const void *with) {
    const rlock_answer *why = (const rlock_answer *)with;
    rlock__claim *other = NULL, *claim, *next;
    RLOCK_ASSERT(gate->client->life != RLOCK__CLOSED);
    gate->references++;
    while ((other = rlock__claim_next(gate, other, RLOCK__HOLDING)) != NULL) {
        rlock__op *renewal = rlock__renewal(other->lock);
        if (renewal) {
            rlock__op_event(renewal, rlock__on_fault[why->fault][RLOCK__IN_RENEW], why->text);
        }
        if (gate->client->up) { /* the client's words are not about this part */
            rlock__hold_fault(other, why->text);
        } else {
            other->faulted = true;
        }
    }
    for (claim = rlock__waiter(gate); claim; claim = next) {
        int verdict =
            rlock__on_fault[why->fault][claim->lock->once ? RLOCK__IN_ATTEMPT : RLOCK__IN_WAIT];
        next = rlock__waiter_next(claim);
        rlock__lock_note(claim->lock, why->fault, why->text, verdict != RLOCK__RETRY);
        if (verdict != RLOCK__RETRY) {
            rlock__acquire_end(claim, verdict);
        }
    }
    while (RLOCK__HAS_TOKENS &&
           (other = rlock__claim_next(gate, NULL, RLOCK__ATTEMPTING)) != NULL) {
        rlock__lock_note(other->lock, why->fault, why->text, true);
        rlock__acquire_end(other, other->lock->ready.status);
    }
    while ((other = rlock__claim_next(gate, other, RLOCK__RELEASING)) != NULL) {
        if (rlock__handle_of(other)) {
            rlock__lock_note(other->lock, why->fault, why->text, false);
        }
    }
    rlock__gate_unref(gate);
}

static void rlock__store_down(void *owner, const rlock_part *part, rlock_fault fault,
                              const char *text) {
    rlock_client *client = (rlock_client *)owner;
    rlock_answer why;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    memset(&why, 0, sizeof why);
    why.fault = fault;
    why.text = text;
    if (!part) {
        client->up = false;
    }
    if (!client->up) {
        client->fault = fault;
        rlock__set_text(client, &client->fault_text, text);
    }
    client->stats.faults++;
    rlock__gates_each(client, part, rlock__gate_down, &why);
    rlock__questions_down(client, part, fault, text);
}

/* The key changed, or with NULL any key may have. A key with a queue changes with each waiter that
 * comes and goes, and its client is notified of what matters: so a change is a hint only for a hold
 * that is not shared. */
static void rlock__gate_woken(rlock__gate *gate, const void *key) {
    rlock__claim *holds = NULL;
    while ((holds = rlock__claim_next(gate, holds, RLOCK__HOLDING)) != NULL) {
        if (key && rlock__shared(holds)) {
            break; /* so do all after it */
        }
        rlock__holding_check(holds);
    }
    rlock__mode_of(gate)->wake(gate, key ? RLOCK__HINT_PUSHED : RLOCK__HINT_MISSED);
}

static void rlock__gate_pushing(rlock__gate *gate, const void *with) {
    unsigned what = *(const unsigned *)with;
    unsigned changed = what != gate->pushing ? what ^ gate->pushing : what; /* or anew */
    rlock__claim *holds = NULL;
    gate->pushing = (uint8_t)what;
    if (changed & rlock__push_of(gate)) {
        rlock__mode_of(gate)->pushing(gate);
    }
    if (RLOCK__HAS_KINDS && (changed & RLOCK_PUSH_NOTIFICATIONS)) {
        while ((holds = rlock__claim_next(gate, holds, RLOCK__HOLDING)) != NULL) {
            if (rlock__shared(holds)) {
                rlock__holding_check(holds);
            }
        }
    }
    if (gate->tracked && (changed & what & RLOCK_PUSH_CHANGES)) { /* what changed was not told */
        rlock__gate_track_keys(gate, true);
        rlock__gate_woken(gate, gate->item.key);
    }
}

static void rlock__store_pushing(void *owner, const rlock_part *part, unsigned what) {
    rlock_client *client = (rlock_client *)owner;
    RLOCK_ASSERT(!(what & ~(RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS)));
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->pushing = part && !client->store->pushes ? client->pushing : what;
    rlock__gates_each(client, part, rlock__gate_pushing, &what);
}

static void rlock__store_woken(void *owner, const char *key, size_t key_len) {
    rlock_client *client = (rlock_client *)owner;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->stats.woken++;
    if (key) {
        rlock__key_each(client, key, key_len, rlock__gate_woken, key);
    } else {
        rlock__gates_each(client, NULL, rlock__gate_woken, NULL);
    }
}

/* Returns the claim with a token on a list, or NULL. It is nearly always the first. */
static rlock__claim *rlock__claim_find(const rlock_link *list, uint64_t token) {
    const rlock_link *at = list->next;
    while (at != list && (RLOCK__OF(at, rlock__claim, link)->token != token ||
                          rlock__claim_id(RLOCK__OF(at, rlock__claim, link)))) {
        at = at->next;
    }
    return at == list ? NULL : RLOCK__OF(at, rlock__claim, link);
}

static void rlock__gate_notified(rlock__gate *gate, const void *with) {
    const uint64_t *token = (const uint64_t *)with;
    rlock__claim *waits = gate->waiters ? rlock__claim_find(&gate->waiters->list, *token) : NULL;
    rlock__claim *holds = waits ? NULL : rlock__claim_find(&gate->claims, *token);
    if (!*token) { /* an offer was not accepted in time */
        rlock__mode_of(gate)->wake(gate, RLOCK__HINT_MISSED);
        return;
    }
    if (holds && holds->phase == RLOCK__HOLDING) {
        rlock__holding_check(holds);
    } else if (waits && rlock__queued(gate) && !waits->in_flight) {
        rlock__claim_attempt(waits, true); /* its offer ends soon */
    } else if (waits) {
        waits->retry = true;
    }
}

static void rlock__store_notified(void *owner, const char *key, size_t key_len, uint64_t token) {
    rlock_client *client = (rlock_client *)owner;
    RLOCK_ASSERT(client->life != RLOCK__CLOSED);
    client->stats.woken++;
    rlock__key_each(client, key, key_len, rlock__gate_notified, &token);
}

static const rlock_store_events rlock__events = {rlock__store_answered, rlock__store_up,
                                                 rlock__store_down,     rlock__store_pushing,
                                                 rlock__store_woken,    rlock__store_notified};

/* ------------------------------------------------------------------------------------------------
 * >>api-client - the public functions of a client
 */

const char *rlock_version(void) {
    return RLOCK_VERSION;
}

const char *rlock_strerror(int status) {
    static const char *const words[] = { /* [-status] */
#if RLOCK__HAS_TEXTS
#define RLOCK_X(name, value, text) text,
#else
#define RLOCK_X(name, value, text) #name,
#endif
                                         RLOCK_STATUS_MAP(RLOCK_X)
#undef RLOCK_X
    };
    return status <= 0 && status >= RLOCK_STATUS_LAST ? words[-status] : "unknown status";
}

static const char *rlock__word(const char *const *words, unsigned count, unsigned i) {
    return i < count ? words[i] : "unknown";
}

const char *rlock_reason_str(rlock_reason reason) {
    static const char *const words[] = {"none", "expired", "stolen", "deleted", "closed"};
    return rlock__word(words, sizeof words / sizeof *words, (unsigned)reason);
}

const char *rlock_report_str(rlock_report_kind kind) {
    static const char *const words[] = {
        "unknown",
#if RLOCK__HAS_REPORTS
        "asked",
        "granted",
        "failed",
        "renewed",
        "released",
        "handed on",
        "lost",
        "let go",
        "cleaned",
        "connected",
        "disconnected",
        "refused",
#endif
    };
    return rlock__word(words, sizeof words / sizeof *words, (unsigned)kind);
}

const char *rlock_kind_str(rlock_kind kind) {
    static const char *const words[] = {"mutex", "fair", "read", "write", "semaphore"};
    return rlock__word(words, sizeof words / sizeof *words, (unsigned)kind);
}

/* 16 random bytes as a version 4 UUID in lower case, and the seed of the jitter. */
static bool rlock__client_identify(rlock_client *client) {
    unsigned char bytes[16];
    char *out = client->id;
    int i;
    if (!RLOCK_RANDOM(bytes, sizeof bytes)) {
        return false;
    }
    bytes[6] = (unsigned char)(0x40 | (bytes[6] & 0x0f));
    bytes[8] = (unsigned char)(0x80 | (bytes[8] & 0x3f));
    for (i = 0; i < 16; i++) {
        client->random = client->random << 8 | bytes[i]; /* the same on every machine */
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *out++ = '-';
        }
        rlock__hex(out, bytes + i, 1);
        out += 2;
    }
    *out = 0;
    RLOCK_ASSERT(out == client->id + sizeof client->id - 1);
    client->random |= 1;
    return true;
}

/* Resolves the URL and the defaults, here and nowhere else, but for those of one store alone. The
 * line says what is wrong; *texts as rlock__url_resolve has it. */
static int rlock__config_resolve(rlock_config *config, char **texts, char *line) {
    const rlock_loop *loop = &config->loop;
    int status = rlock__url_resolve(config, false, texts, line);
    if (status != RLOCK_OK) {
        return status;
    }
    if (!loop->open || !loop->watch || !loop->set_timer || !loop->close) {
        rlock__line_add(line, 0, RLOCK__TEXT("config.loop: a required hook is NULL"), "");
        return RLOCK_ERR_ARG;
    }
    if (!rlock__store_of(config)) {
        rlock__line_add(line, 0,
                        RLOCK__TEXT("config.store is required in a build with RLOCK_NO_REDIS"), "");
        return RLOCK_ERR_ARG;
    }
    if (config->on_event && !RLOCK__HAS_REPORTS) {
        rlock__line_add(line, 0, "config.on_event needs RLOCK_WITH_REPORTS", "");
        return RLOCK_ERR_ARG;
    }
    config->prefix = config->prefix ? config->prefix : "rlock:";
    return rlock__numbers_resolve(config, line) ? RLOCK_OK : RLOCK_ERR_ARG;
}

static bool rlock__client_configure(rlock_client *client, const rlock_config *config) {
    client->loop = config->loop;
    client->log = config->log;
    client->log_user = config->log_user ? config->log_user : config->user;
    client->on_event = config->on_event;
    client->event_user = config->event_user;
    client->store = rlock__store_of(config);
    client->watchdog_lease_ms = (int32_t)config->watchdog_lease_ms;
    client->lease_most_ms =
        (int32_t)(config->quarantine_ms ? config->quarantine_ms : RLOCK_LEASE_MAX_MS);
    client->command_timeout_ms = (int32_t)config->command_timeout_ms;
    client->poll_ms = (int32_t)config->poll_ms;
    client->drift_permille = config->drift_permille;
    client->handovers = config->handovers < 0 ? 0 : config->handovers;
    RLOCK_ASSERT(client->watchdog_lease_ms >= RLOCK_LEASE_MIN_MS);
    RLOCK_ASSERT(client->watchdog_lease_ms <= client->lease_most_ms);
    RLOCK_ASSERT(client->command_timeout_ms > 0 && client->poll_ms > 0);
    return rlock__map_init(&client->gates) && rlock__client_identify(client);
}

/* Takes the handle out of a claim: nobody is there to be told of its end. */
static void rlock__claim_abandon(rlock__claim *claim) {
    bool untold = claim->lock->ready.event != 0;
    rlock__claim_orphan(claim);
    if (claim->phase == RLOCK__ATTEMPTING || (RLOCK__HAS_TOKENS && claim->adopted && untold)) {
        rlock__acquire_end(claim, RLOCK_ERR_CLOSED);
    } else if (claim->phase == RLOCK__HOLDING) {
        rlock__report(claim, untold ? RLOCK_REPORT_FAILED : RLOCK_REPORT_RELEASED,
                      untold ? RLOCK_ERR_CLOSED : RLOCK_OK);
        rlock__claim_let_go(claim);
    } else {
        rlock__releasing_arm(claim); /* no acquire follows it any more */
    }
}

static void rlock__gate_abandon(rlock__gate *gate, const void *with) {
    rlock__claim *claim = NULL;
    (void)with;
    gate->references++;
    while ((claim = rlock__claim_next(gate, claim, RLOCK__RELEASING)) != NULL) {
        rlock__claim_recall(claim); /* a release that is out may not have been understood */
        rlock__releasing_ask(claim, 0);
    }
    while (rlock__waiter(gate)) {
        rlock__claim_abandon(RLOCK__OF(gate->waiters->list.prev, rlock__claim, link));
    }
    while (RLOCK__HAS_TOKENS &&
           (claim = rlock__claim_next(gate, NULL, RLOCK__ATTEMPTING)) != NULL) {
        rlock__claim_abandon(claim);
    }
    while (rlock__holder(gate)) {
        rlock__claim_abandon(rlock__holder(gate));
    }
    rlock__gate_unref(gate);
}

/* The requests of what is still to be cleaned up are the store's no more. */
static void rlock__gate_close(rlock__gate *gate, const void *with) {
    (void)with;
    RLOCK_ASSERT(gate->client->life == RLOCK__CLOSED && !gate->waiters);
    gate->references++;
    while (!rlock__list_empty(&gate->claims)) {
        rlock__claim_gone(RLOCK__OF(gate->claims.next, rlock__claim, link));
    }
    rlock__gate_unref(gate);
}

/* Releases what is left, as far as one write does, and closes the store and the loop. False in a
 * child that a hook made. */
static bool rlock__client_close(rlock_client *client, bool shuts) {
    uint32_t timers;
    RLOCK_ASSERT(client->depth && client->life != RLOCK__CLOSED);
    client->life = RLOCK__ENDED; /* nothing is owed to anybody any more */
    rlock__gates_each(client, NULL, rlock__gate_abandon, NULL);
    if (rlock__forked(client)) { /* nothing of the parent's is closed */
        return false;
    }
    RLOCK_ASSERT(!client->phases[RLOCK__ATTEMPTING] && !client->phases[RLOCK__HOLDING]);
    client->store->close(client->store_state);
    if (rlock__forked(client)) { /* by the hook on_event */
        return false;
    }
    client->loop.close(client->loop_state);
    rlock_timer_set(client, &client->due_timer, -1);
    rlock_timer_set(client, &client->shutdown_timer, -1);
    for (timers = shuts ? client->timers.count : 0; timers && client->timers.count; timers--) {
        rlock_timer *timer = client->timers.items[1]; /* of what is built on handles */
        rlock_timer_set(client, timer, -1);
        timer->fire(timer);
    }
    client->life = RLOCK__CLOSED;
    rlock__pools_limit(client);
    rlock__gates_each(client, NULL, rlock__gate_close, NULL);
    RLOCK_ASSERT(!client->phases[RLOCK__RELEASING]);
    while (RLOCK__HAS_KINDS && !rlock__list_empty(&client->questions)) {
        rlock__question_free(RLOCK__OF(client->questions.next, rlock__question, link));
    }
    rlock__made_free(client->made);
    return true;
}

void rlock_client_free(rlock_client *client) {
    if (!client || rlock__forked(client)) {
        return;
    }
    if (client->shut) {
        client->shut = false;
        client->frames--;
        rlock__client_destroy(client);
    } else if (client->life != RLOCK__CLOSED) {
        rlock__enter(client);
        if (rlock__client_close(client, false)) {
            rlock__leave(client);
        } else {
            client->depth--;
        }
    }
}

static void rlock__hold_shutdown(rlock__claim *held) {
    rlock *lock = held->lock;
    rlock__op *renewal = rlock__renewal(lock);
    RLOCK_ASSERT(held->phase == RLOCK__HOLDING && rlock__handle_of(held));
    if (renewal && renewal->ready.event == RLOCK_ACQUIRED) {
        rlock__op_event(renewal, RLOCK_ERR_CLOSED, NULL);
    }
    if (!lock->ready.event) {
        rlock__claim_lose(held, RLOCK_REASON_CLOSED, true);
    } else {
        rlock__acquire_end(held, RLOCK_ERR_CLOSED);
    }
}

/* Returns a hold that a shutdown ends; a drain ends one whose grant was not told yet. */
static rlock__claim *rlock__ending_hold(const rlock__gate *gate, bool drains) {
    rlock__claim *held = rlock__holder(gate);
    while (drains && held && !held->lock->ready.event) {
        held = rlock__claim_next(gate, held, RLOCK__HOLDING);
    }
    return held;
}

static void rlock__gate_shutdown(rlock__gate *gate, const void *with) {
    rlock__claim *leaves = NULL, *held = NULL;
    const bool *drains = (const bool *)with;
    RLOCK_ASSERT(gate->client->life != RLOCK__LIVE && gate->client->life != RLOCK__CLOSED);
    gate->references++;
    while ((leaves = rlock__claim_next(gate, leaves, RLOCK__RELEASING)) != NULL) {
        if (rlock__handle_of(leaves) && rlock__following(leaves->lock)) {
            rlock__following_end(leaves->lock, RLOCK_ERR_CLOSED, NULL);
        }
    }
    while (rlock__waiter(gate)) {
        rlock__claim *last = RLOCK__OF(gate->waiters->list.prev, rlock__claim, link);
        rlock__acquire_end(last, RLOCK_ERR_CLOSED);
    }
    while (RLOCK__HAS_TOKENS && (held = rlock__claim_next(gate, NULL, RLOCK__ATTEMPTING)) != NULL) {
        rlock__acquire_end(held, RLOCK_ERR_CLOSED);
    }
    while ((held = rlock__ending_hold(gate, *drains)) != NULL) {
        rlock__hold_shutdown(held);
    }
    rlock__gate_unref(gate);
}

/* The time of the shutdown is over: ends the releases and the questions that are not answered. */
static void rlock__gate_overdue(rlock__gate *gate, const void *with) {
    rlock__claim *leaves = NULL;
    (void)with;
    RLOCK_ASSERT(gate->client->life >= RLOCK__ENDING);
    while ((leaves = rlock__claim_next(gate, leaves, RLOCK__RELEASING)) != NULL) {
        leaves->until_us = gate->client->now_us;
        rlock__releasing_fire(leaves);
    }
}

static void rlock__shutdown_fire(rlock_timer *timer) {
    rlock_client *client = RLOCK__OF(timer, rlock_client, shutdown_timer);
    const bool drains = false;
    RLOCK_ASSERT(client->life != RLOCK__LIVE && client->life != RLOCK__CLOSED);
    if (client->life == RLOCK__DRAINING) {
        rlock__shutdown_begin(client, 0);
        rlock__gates_each(client, NULL, rlock__gate_shutdown, &drains);
        rlock__shutdown_end(client, RLOCK_OK);
        return;
    }
    rlock__gates_each(client, NULL, rlock__gate_overdue, NULL);
    rlock__questions_overdue(client);
    rlock__shutdown_end(client, RLOCK_ERR_TIMEOUT);
}

/* Closes the client, so that nothing of it is left on the loop, and tells that it is shut down. */
static void rlock__shutdown_deliver(rlock__ready *ready, char **words) {
    rlock_client *client = RLOCK__OF(ready, rlock_client, shutdown_ready);
    rlock_client_callback *done = client->shutdown_done;
    (void)words;
    RLOCK_ASSERT(client->depth && client->life == RLOCK__ENDED);
    if (!rlock__list_empty(&client->batch) || !rlock__list_empty(&client->ready)) {
        rlock__list_append(&client->ready, &ready->link); /* it comes last */
        done = NULL;
    } else if (rlock__client_close(client, true)) {
        client->shut = true;
        client->frames++;
    } else {
        done = NULL;
    }
    rlock__leave(client);
    if (done) {
        done(client, ready->status, client->shutdown_user);
    }
}

static void rlock__drain_deliver(rlock__ready *ready, char **words) {
    rlock_client *client = RLOCK__OF(ready, rlock_client, drain_ready);
    rlock_client_callback *done = client->drain_done;
    void *user = client->drain_user;
    (void)words;
    RLOCK_ASSERT(client->depth && client->life >= RLOCK__ENDING);
    rlock__leave(client);
    if (done) {
        done(client, RLOCK_ERR_CANCELED, user);
    }
}

static rlock__deliverer *const rlock__deliverers[] = {
    /* [RLOCK__OF_...] */
    rlock__lock_deliver, rlock__op_deliver, RLOCK__HAS_KINDS ? rlock__question_deliver : NULL,
    rlock__shutdown_deliver, rlock__drain_deliver};

/* Makes a client of a configuration that is resolved. */
static int rlock__client_make(rlock_client **out, const rlock_config *config) {
    rlock_client *client = (rlock_client *)rlock__alloc(sizeof *client);
    int status = RLOCK_ERR_NOMEM;
    if (!client) {
        return RLOCK_ERR_NOMEM;
    }
    client->pid = getpid();
    client->process = rlock__process();
    client->process_number = client->process ? *client->process : 0;
    client->armed_us = RLOCK__NEVER;
    rlock__list_init(&client->ready);
    rlock__list_init(&client->batch);
    rlock__list_init(&client->questions);
    rlock__list_init(&client->due);
    rlock__list_init(&client->shutdown_ready.link);
    rlock__list_init(&client->drain_ready.link);
    client->shutdown_ready.of = RLOCK__OF_SHUTDOWN;
    client->drain_ready.of = RLOCK__OF_DRAIN;
    client->deliver = rlock__deliverers;
    if (rlock__client_configure(client, config) &&
        rlock_timer_add(client, &client->shutdown_timer, rlock__shutdown_fire) == RLOCK_OK &&
        rlock_timer_add(client, &client->due_timer, rlock__claims_fire) == RLOCK_OK &&
        (client->loop_state = client->loop.open(client->loop.ctx, client)) != NULL) {
        rlock__enter(client);
        status = client->store->open(client->store, client, config, &rlock__events, client,
                                     &client->store_state);
        if (status == RLOCK_OK) {
            rlock__leave(client);
            *out = client;
            return RLOCK_OK;
        }
        client->depth--;
        client->loop.close(client->loop_state);
    }
    rlock__client_destroy(client);
    return status;
}

int rlock_client_new(rlock_client **out, const rlock_config *config) {
    rlock_config resolved;
    char line[RLOCK__LINE], *texts;
    bool said;
    int status;
    if (!out || !config) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    resolved = *config;
    errno = 0;
    status = rlock__config_resolve(&resolved, &texts, line);
    said = status == RLOCK_ERR_ARG;
    if (status == RLOCK_OK) {
        status = rlock__client_make(out, &resolved);
    }
    if (status == RLOCK_ERR_NOMEM && errno) { /* memory, descriptors or random bytes */
        rlock__line_add(line, 0, "cannot create a client: ", strerror(errno));
        said = true;
    }
    if (said && config->log) {
        config->log(config->log_user ? config->log_user : config->user, RLOCK_LOG_ERROR, line);
    }
    if (RLOCK__HAS_STORES && resolved.store != config->store) { /* it was made of the URL */
        if (status == RLOCK_OK) {
            (*out)->made = resolved.store;
        } else {
            rlock__made_free(resolved.store);
        }
    }
    rlock__dealloc(texts);
    return status;
}

/* Stops to acquire. */
static int rlock__client_ends(rlock_client *client, int64_t ms, rlock_client_callback *done,
                              void *user, bool drains) {
    if (!client || ms < 0 || ms > RLOCK_LEASE_MAX_MS) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client) || client->life > RLOCK__DRAINING ||
        (drains && client->life == RLOCK__DRAINING)) {
        return RLOCK_ERR_STATE;
    }
    rlock__enter(client);
    if (client->life == RLOCK__DRAINING) {
        client->drain_done = client->shutdown_done;
        client->drain_user = client->shutdown_user;
        rlock__list_append(&client->ready, &client->drain_ready.link);
    }
    client->shutdown_done = done;
    client->shutdown_user = user;
    if (drains) {
        client->life = RLOCK__DRAINING;
        rlock_timer_set(client, &client->shutdown_timer,
                        ms ? rlock__add_ms(client->now_us, ms) : -1);
    } else {
        rlock__shutdown_begin(client, ms);
    }
    rlock__gates_each(client, NULL, rlock__gate_shutdown, &drains);
    rlock__shutdown_end(client, RLOCK_OK);
    rlock__leave(client);
    return RLOCK_OK;
}

int rlock_client_shutdown(rlock_client *client, int64_t timeout_ms, rlock_client_callback *done,
                          void *user) {
    return rlock__client_ends(client, timeout_ms, done, user, false);
}

int rlock_client_drain(rlock_client *client, int64_t drain_ms, rlock_client_callback *done,
                       void *user) {
    return rlock__client_ends(client, drain_ms, done, user, true);
}

#if RLOCK__HAS_CREDENTIALS

/* Gives them to the store. Returns what is wrong with that, or NULL. */
static const char *rlock__credentials_give(rlock_client *client, bool sentinels,
                                           const char *username, const char *password,
                                           int *status) {
    const rlock_store *store = client->store;
    *status = RLOCK_ERR_ARG;
    if (username && !password) {
        return RLOCK__TEXT("a username requires a password");
    }
    if (!store->set_credentials) {
        return RLOCK__TEXT("this store does not take credentials");
    }
    *status = rlock__hide_passing(client, sentinels, password);
    if (*status == RLOCK_OK) {
        *status = store->set_credentials(client->store_state, sentinels, username, password);
    }
    return sentinels ? RLOCK__TEXT("this store does not use Sentinels")
                     : RLOCK__TEXT("this store does not take credentials");
}

static int rlock__credentials_set(rlock_client *client, bool sentinels, const char *username,
                                  const char *password) {
    const char *wrong;
    int status;
    if (!client) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client)) {
        return RLOCK_ERR_STATE;
    }
    if (client->life == RLOCK__CLOSED) {
        return RLOCK_ERR_CLOSED;
    }
    rlock__enter(client);
    wrong = rlock__credentials_give(client, sentinels, username, password, &status);
    if (status == RLOCK_ERR_ARG) {
        rlock_client_log(client, RLOCK_LOG_ERROR, "rlock_client_set_credentials", wrong);
    }
    if (status == RLOCK_OK && !client->up && client->fault == RLOCK_FAULT_AUTH) {
        client->fault = RLOCK_FAULT_DOWN; /* of the former ones: nobody is told of it any more */
        rlock__set_text(client, &client->fault_text, NULL);
    }
    client->unsent = true;
    rlock__leave(client);
    return status;
}

int rlock_client_set_credentials(rlock_client *client, const char *username, const char *password) {
    return rlock__credentials_set(client, false, username, password);
}

int rlock_client_set_sentinel_credentials(rlock_client *client, const char *username,
                                          const char *password) {
    return rlock__credentials_set(client, true, username, password);
}

#endif /* RLOCK__HAS_CREDENTIALS */

void rlock_client_stats(const rlock_client *client, rlock_stats *out) {
    if (!out) {
        return;
    }
    memset(out, 0, sizeof *out);
    if (!client || rlock__forked(client)) {
        return;
    }
    *out = client->stats;
    out->held = client->phases[RLOCK__HOLDING];
    out->waiting = client->phases[RLOCK__ATTEMPTING];
    out->cleaning += client->phases[RLOCK__RELEASING]; /* beside those of the store */
    out->handles = client->handles;
    out->up = client->up && client->life != RLOCK__CLOSED;
    out->pushing = client->pushing != 0 && client->life != RLOCK__CLOSED;
}

/* ------------------------------------------------------------------------------------------------
 * >>api-handle - the public functions of a handle, and the questions
 */

enum { RLOCK__CALL_ACQUIRE, RLOCK__CALL_RENEW, RLOCK__CALL_RELEASE, RLOCK__CALL_CANCEL };

#define RLOCK__NESTED 2  /* RLOCK_ERR_STATE, if the handle is not re-entrant */
#define RLOCK__FOLLOWS 3 /* the acquire waits for the release before it */

static const int8_t rlock__on_call[7][4] = {
    /* [rlock__state][call] */
    {RLOCK_OK, RLOCK_ERR_NOT_HELD, RLOCK_ERR_NOT_HELD, RLOCK_ERR_STATE},
    {RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_OK},
    {RLOCK__NESTED, RLOCK_OK, RLOCK_OK, RLOCK_ERR_STATE},
    {RLOCK_ERR_STATE, RLOCK_ERR_LOST, RLOCK_OK, RLOCK_ERR_STATE},
    {RLOCK__FOLLOWS, RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_ERR_STATE},
    {RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_ERR_STATE, RLOCK_OK},
    {RLOCK_ERR_CLOSED, RLOCK_ERR_CLOSED, RLOCK_ERR_CLOSED, RLOCK_ERR_CLOSED}};

/* --- what is wanted --- */

#define RLOCK__ALL RLOCK_PERMITS_MAX

/* Queued kinds: the permits of the key, and how many one hold takes; 0: as the options say. */
static const struct {
    uint32_t permits, weight;
} rlock__kinds[] = {/* [rlock_kind] */
                    {0, 0},
                    {1, 1},
                    {RLOCK__ALL, 1},
                    {RLOCK__ALL, RLOCK__ALL},
                    {0, 0}};

#define RLOCK__KINDS (sizeof rlock__kinds / sizeof *rlock__kinds)

static bool rlock__keys_alike(const rlock__want *want, uint32_t count) {
    size_t len, other_len;
    uint32_t i, j;
    RLOCK_ASSERT(count && count <= RLOCK_KEYS_MAX);
    for (i = 0; i < count; i++) {
        const char *key = rlock__want_key(want, i, &len);
        for (j = 0; j < i; j++) {
            const char *other = rlock__want_key(want, j, &other_len);
            if (len == other_len && memcmp(key, other, len) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Returns what is wrong with how the options name their keys, or NULL. */
static const char *rlock__keys_wrong(const rlock_options *options) {
    size_t i;
    if (!options->keys == !options->key) {
        return RLOCK__TEXT("set either options.key or options.keys");
    }
    if (options->keys && options->key_len) {
        return RLOCK__TEXT("options.key_len requires options.key");
    }
    if (!options->keys && (options->key_count || options->key_lens)) {
        return RLOCK__TEXT("options.key_count and options.key_lens require options.keys");
    }
    if (!RLOCK__HAS_KINDS && options->key_count > 1) {
        return "several options.keys need RLOCK_WITH_KINDS";
    }
    if (options->keys && (!options->key_count || options->key_count > RLOCK_KEYS_MAX)) {
        return RLOCK__TEXT("options.key_count must be 1 to " RLOCK__QUOTE(RLOCK_KEYS_MAX));
    }
    for (i = 0; i < options->key_count; i++) {
        if (!options->keys[i]) {
            return RLOCK__TEXT("options.keys contains a NULL");
        }
    }
    return NULL;
}

/* The keys of the options. Returns what is wrong with them, or NULL. */
static const char *rlock__want_keys(rlock__want *want) {
    const rlock_options *options = want->options;
    const char *wrong = rlock__keys_wrong(options);
    size_t len;
    uint32_t i;
    if (wrong) {
        return wrong;
    }
    want->key = options->keys ? options->keys[0] : options->key;
    if (options->keys) {
        want->len = options->key_lens ? options->key_lens[0] : strlen(want->key);
    } else {
        want->len = options->key_len ? options->key_len : strlen(want->key);
    }
    want->terms.count = options->keys ? (uint32_t)options->key_count : 1;
    for (i = 0; i < want->terms.count; i++) {
        rlock__want_key(want, i, &len);
        if (len == 0 || len > RLOCK_KEY_MAX) {
            return RLOCK__TEXT(
                "options.key, and each of options.keys, must have a length of 1 to " RLOCK__QUOTE(
                    RLOCK_KEY_MAX));
        }
    }
    return RLOCK__HAS_KINDS && rlock__keys_alike(want, want->terms.count)
               ? "options.keys contains a duplicate"
               : NULL;
}

/* Returns what is wrong with the numbers of a kind, or NULL. */
static const char *rlock__terms_wrong(const rlock_terms *terms, const rlock_options *options) {
    bool semaphore = options->kind == RLOCK_KIND_SEMAPHORE;
    if (!semaphore && (options->permits || options->weight)) {
        return RLOCK__TEXT("options.permits and options.weight require RLOCK_KIND_SEMAPHORE");
    }
    if (semaphore && (terms->permits == 0 || terms->permits > RLOCK_PERMITS_MAX)) {
        return RLOCK__TEXT("options.permits must be 1 to " RLOCK__QUOTE(RLOCK_PERMITS_MAX));
    }
    if (semaphore && terms->weight > terms->permits) {
        return RLOCK__TEXT("options.weight must be 1 to options.permits");
    }
    if (terms->count > 1 && terms->kind != RLOCK_KIND_MUTEX) {
        return RLOCK__TEXT("several options.keys require RLOCK_KIND_MUTEX");
    }
    if (terms->owner && terms->kind != RLOCK_KIND_READ && terms->kind != RLOCK_KIND_WRITE) {
        return RLOCK__TEXT("options.owner requires RLOCK_KIND_READ or RLOCK_KIND_WRITE");
    }
    return NULL;
}

/* What the options want. Returns what is wrong with them, by the name of the field, or NULL. */
static const char *rlock__want_init(rlock__want *want, const rlock_options *options) {
    rlock_terms *terms = &want->terms;
    const char *wrong;
    memset(want, 0, sizeof *want);
    want->options = options;
    if ((unsigned)options->kind >= (RLOCK__HAS_KINDS ? RLOCK__KINDS : 1)) {
        return RLOCK__HAS_KINDS ? "options.kind must be one of rlock_kind"
                                : "options.kind needs RLOCK_WITH_KINDS";
    }
    wrong = rlock__want_keys(want);
    if (wrong) {
        return wrong;
    }
    terms->kind = options->kind;
    terms->permits = rlock__kinds[options->kind].permits;
    terms->weight = rlock__kinds[options->kind].weight;
    if (options->kind == RLOCK_KIND_SEMAPHORE) {
        terms->permits = options->permits;
        terms->weight = options->weight ? options->weight : 1;
    }
    terms->owner = options->owner;
    want->plain = terms->kind == RLOCK_KIND_MUTEX && terms->count == 1;
    return rlock__terms_wrong(terms, options);
}

/* The same for the options of a handle. */
static const char *rlock__options_init(rlock__want *want, const rlock_options *options,
                                       int64_t most_ms) {
    const char *wrong = rlock__want_init(want, options);
    if (!wrong &&
        (options->watchdog < RLOCK_WATCHDOG_AUTO || options->watchdog > RLOCK_WATCHDOG_OFF)) {
        wrong = "options.watchdog must be RLOCK_WATCHDOG_AUTO, _ON or _OFF";
    }
    if (!wrong && !rlock__within(options->max_hold_ms, 1, INT64_MAX)) {
        wrong = "options.max_hold_ms is negative";
    }
    if (!wrong && !rlock__within(options->watchdog_lease_ms, RLOCK_LEASE_MIN_MS, most_ms)) {
        wrong = "options.watchdog_lease_ms must be " RLOCK__QUOTE(
            RLOCK_LEASE_MIN_MS) " to " RLOCK__QUOTE(RLOCK_LEASE_MAX_MS) ", and at most "
                                                                        "config.quarantine_ms";
    }
    return wrong;
}

/* True if what is wanted is wrong, or the store refuses it; the reason is logged. */
static bool rlock__refused_by(const rlock_client *client, const rlock__want *want,
                              const char *wrong) {
    const rlock_terms *terms = want->plain ? NULL : &want->terms;
    const char *why = wrong;
    size_t len;
    uint32_t i;
    for (i = 0; !why && i < rlock__want_count(want) && client->store->refuses &&
                client->life != RLOCK__CLOSED;
         i++) {
        const char *key = rlock__want_key(want, i, &len);
        why = client->store->refuses(client->store_state, key, len, terms, want->options->fencing);
    }
    if (why && client->life != RLOCK__CLOSED) {
        rlock_client_log(client, RLOCK_LOG_ERROR, why, NULL);
    }
    return why != NULL;
}

/* --- the handle --- */

/* Returns what STATE x CALL says of a call on a handle, with a lease or 0; reads the clock for that
 * call. */
static int rlock__call(const rlock *lock, int call, int64_t lease_ms) {
    rlock_client *client = lock ? lock->gate->client : NULL;
    RLOCK_ASSERT(call >= RLOCK__CALL_ACQUIRE && call <= RLOCK__CALL_CANCEL);
    if (!client || !rlock__within(lease_ms, RLOCK_LEASE_MIN_MS, client->lease_most_ms)) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client)) {
        return RLOCK_ERR_STATE;
    }
    client->now_us = rlock__read_clock(lock);
    return rlock__on_call[rlock__state_at(lock, client->now_us)][call];
}

/* Notes what few handles want. False: no memory. */
static bool rlock__lock_wants(rlock *lock, const rlock__want *want) {
    const rlock_options *options = want->options;
    rlock_client *client = lock->gate->client;
    size_t times = rlock__reports(client) ? sizeof(rlock__times) : 0;
    RLOCK_ASSERT(!lock->more && lock->gate->references);
    if (want->plain && !options->max_hold_ms && !options->watchdog_lease_ms && !options->deadline &&
        !times) {
        return true;
    }
    lock->more = (rlock__more *)rlock__alloc(sizeof *lock->more + times);
    if (!lock->more) {
        return false;
    }
    if (times) {
        rlock__times_of(lock)->number = ++client->numbers;
    }
    lock->more->hold_ms = options->max_hold_ms;
    lock->more->watchdog_lease_ms = (int32_t)options->watchdog_lease_ms;
    lock->more->deadline = options->deadline;
    if (RLOCK__HAS_KINDS && !want->plain) {
        lock->more->terms = want->terms;
        lock->more->terms.lens = lock->gate->kind->lens;
    }
    return true;
}

int rlock_new(rlock **out, rlock_client *client, const rlock_options *options) {
    rlock *lock;
    rlock__want want;
    if (!out) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    if (!client || !options) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client)) {
        return RLOCK_ERR_STATE;
    }
    if (rlock__refused_by(client, &want,
                          rlock__options_init(&want, options, client->lease_most_ms))) {
        return RLOCK_ERR_ARG;
    }
    if (client->life != RLOCK__LIVE) {
        return RLOCK_ERR_CLOSED;
    }
    lock = (rlock *)rlock__alloc(sizeof *lock);
    if (lock) {
        lock->gate = rlock__gate_of(client, &want);
    }
    if (!lock || !lock->gate || !rlock__lock_wants(lock, &want)) {
        if (lock && lock->gate) {
            rlock__gate_unref(lock->gate);
        }
        rlock__dealloc(lock);
        return RLOCK_ERR_NOMEM;
    }
    lock->references = 1;
    lock->on_lost = options->on_lost;
    lock->lost_user = options->user;
    lock->ready.of = RLOCK__OF_HANDLE;
    rlock__list_init(&lock->ready.link);
    lock->watchdog = (unsigned)options->watchdog & 3u;
    lock->fencing = options->fencing;
    lock->reentrant = options->reentrant;
    client->handles++;
    rlock__pools_limit(client);
    RLOCK_ASSERT(rlock__state_of(lock) == RLOCK__IDLE_STATE);
    *out = lock;
    return RLOCK_OK;
}

void rlock_free(rlock *lock) {
    rlock_client *client;
    if (!lock || rlock__forked(lock->gate->client)) {
        return;
    }
    client = lock->gate->client;
    if (client->life == RLOCK__CLOSED) {
        client->depth++; /* its clock is not asked any more */
    } else {
        rlock__enter(client);
    }
    while (lock->ops) {
        rlock__op_free(lock, lock->ops);
    }
    rlock__list_remove(&lock->ready.link);
    if (lock->claim) {
        rlock__claim_abandon(lock->claim);
    }
    RLOCK_ASSERT(!lock->claim && !lock->ops);
    rlock__lock_unref(lock);
    RLOCK_ASSERT(client->handles);
    client->handles--;
    rlock__pools_limit(client);
    client->unsent = true; /* the store gives back at the end of the next entry what it kept */
    rlock__leave(client);
}

/* Acquires a hold once more: the hold count goes up; a longer lease is asked for. */
static int rlock__acquire_nested(rlock *lock, int64_t lease_ms, rlock_callback *done, void *user) {
    rlock__claim *claim = lock->claim;
    bool watchdog = lock->renews || rlock__renews(lock, lease_ms);
    bool longer = rlock__lease_of(lock, lease_ms) > lock->lease_ms;
    rlock__op *op;
    RLOCK_ASSERT(rlock__state_of(lock) == RLOCK__HELD_STATE);
    RLOCK_ASSERT(lock->reentrant);
    if (longer && rlock__renewal(lock)) {
        return RLOCK_ERR_STATE;
    }
    op = rlock__op_new(lock, RLOCK_ACQUIRED, done, user);
    if (!op) {
        return RLOCK_ERR_NOMEM;
    }
    if (!longer) {
        if (watchdog && !lock->renews) {
            lock->renews = true;
            rlock__holding_plan(claim, rlock__since(claim));
        }
        rlock__op_event(op, RLOCK_OK, NULL);
        return RLOCK_OK;
    }
    op->lease_ms = lock->lease_ms = rlock__lease_of(lock, lease_ms);
    op->watchdog = watchdog;
    op->waits = true;
    if (!claim->in_flight) {
        rlock__holding_submit(claim, op->lease_ms, true);
    }
    return RLOCK_OK;
}

/* The handle is being released: the acquire begins when its release has ended. */
static int rlock__acquire_follow(rlock *lock, int64_t until_us, bool once, int64_t lease_ms,
                                 rlock_callback *done, void *user) {
    rlock__op *op = rlock__op_new(lock, RLOCK_ACQUIRED, done, user);
    RLOCK_ASSERT(!rlock__following(lock) && rlock__state_of(lock) == RLOCK__RELEASING_STATE);
    if (!op) {
        return RLOCK_ERR_NOMEM;
    }
    op->follows = true;
    op->once = once;
    op->lease_ms = lease_ms;
    op->until_us = until_us;
    if (lock->claim) {
        rlock__releasing_arm(lock->claim);
    }
    return RLOCK_OK;
}

int rlock_acquire(rlock *lock, int64_t wait_ms, int64_t lease_ms, rlock_callback *done,
                  void *user) {
    rlock_client *client;
    int64_t until_us = RLOCK__NEVER;
    int status = rlock__call(lock, RLOCK__CALL_ACQUIRE, lease_ms);
    if (status == RLOCK_ERR_ARG || !done || wait_ms < RLOCK_FOREVER) {
        return RLOCK_ERR_ARG;
    }
    if (status == RLOCK__NESTED && !lock->reentrant) {
        return RLOCK_ERR_STATE;
    }
    if (status < RLOCK_OK) {
        return status;
    }
    client = lock->gate->client;
    if (client->life > RLOCK__DRAINING ||
        (client->life == RLOCK__DRAINING && status != RLOCK__NESTED)) {
        return RLOCK_ERR_CLOSED;
    }
    client->depth++;
    if (wait_ms != RLOCK_FOREVER) {
        until_us = rlock__add_ms(client->now_us, wait_ms ? wait_ms : client->command_timeout_ms);
    }
    switch (status) {
    case RLOCK__NESTED: status = rlock__acquire_nested(lock, lease_ms, done, user); break;
    case RLOCK__FOLLOWS:
        status = rlock__acquire_follow(lock, until_us, wait_ms == 0, lease_ms, done, user);
        break;
    default: status = rlock__acquire_start(lock, until_us, wait_ms == 0, lease_ms, done, user);
    }
    rlock__leave(client);
    return status;
}

int rlock_renew(rlock *lock, int64_t lease_ms, rlock_callback *done, void *user) {
    int status = rlock__call(lock, RLOCK__CALL_RENEW, lease_ms);
    rlock_client *client;
    rlock__claim *claim;
    rlock__op *op;
    if (status != RLOCK_OK) {
        return status;
    }
    if (rlock__op_of(lock, RLOCK_RENEWED) || rlock__renewal(lock)) { /* or it was not told yet */
        return RLOCK_ERR_STATE;
    }
    RLOCK_ASSERT(rlock__state_of(lock) == RLOCK__HELD_STATE);
    op = rlock__op_new(lock, RLOCK_RENEWED, done, user);
    if (!op) {
        return RLOCK_ERR_NOMEM;
    }
    client = lock->gate->client;
    claim = lock->claim;
    client->depth++;
    op->lease_ms = lease_ms ? lease_ms : lock->lease_ms;
    lock->lease_ms = (int32_t)op->lease_ms;
    claim->until_us =
        rlock__min(claim->until_us, rlock__deadline(claim, client->now_us, op->lease_ms));
    rlock__lock_show(lock, claim->until_us);
    op->waits = true;
    rlock__claim_arm(claim);
    if (!claim->in_flight) {
        rlock__holding_submit(claim, op->lease_ms, true);
    }
    rlock__leave(client);
    return RLOCK_OK;
}

/* `stay_us`: until then the key is to stay ours; 0 = it is not. */
static void rlock__release_last(rlock *lock, int64_t stay_us, rlock_callback *done, void *user) {
    rlock__claim *claim = lock->claim;
    rlock__lock_show(lock, 0); /* before the release can leave */
    if (claim && claim->until_us <= lock->gate->client->now_us) {
        rlock__claim_lose(claim, RLOCK_REASON_EXPIRED, true);
    }
    lock->done = done;
    lock->user = user;
    if (lock->ready.event) { /* on_lost is not called: this end tells of it */
        RLOCK_ASSERT(lock->ready.event == RLOCK_LOST);
        lock->ready.event = RLOCK_RELEASED;
        return;
    }
    RLOCK_ASSERT(claim && rlock__handle_of(claim) == lock);
    RLOCK_ASSERT(claim->phase == RLOCK__HOLDING && claim->until_us > lock->gate->client->now_us);
    if (rlock__renewal(lock)) {
        rlock__op_event(rlock__renewal(lock), RLOCK_ERR_CANCELED, NULL);
    }
    rlock__lock_text(lock, NULL);
    if (RLOCK__HAS_TOKENS && stay_us > lock->gate->client->now_us) {
        claim->stays = true;
        claim->check_us = stay_us;
    }
    if ((RLOCK__HAS_TOKENS && claim->stays) || !rlock__hand_over(claim)) {
        rlock__report(claim, RLOCK_REPORT_RELEASED, RLOCK_OK);
        claim->yields =
            claim->yields || (!rlock__queued(claim->lock->gate) && rlock__hand_over_ends(claim));
        lock->ready.status = RLOCK_OK;
        rlock__claim_let_go(claim);
    }
}

/* Releases a hold where STATE x CALL allows it. */
static void rlock__release(rlock *lock, int64_t stay_us, rlock_callback *done, void *user) {
    RLOCK_ASSERT(stay_us >= 0);
    lock->gate->client->depth++;
    if (rlock__op_of(lock, 0) &&
        rlock__state_at(lock, lock->gate->client->now_us) == RLOCK__HELD_STATE) {
        rlock__op_event(rlock__op_new(lock, RLOCK_RELEASED, done, user), RLOCK_OK, NULL);
    } else {
        rlock__release_last(lock, stay_us, done, user);
    }
    rlock__leave(lock->gate->client);
}

int rlock_release(rlock *lock, rlock_callback *done, void *user) {
    int status = rlock__call(lock, RLOCK__CALL_RELEASE, 0);
    if (status == RLOCK_OK) {
        rlock__release(lock, 0, done, user);
    }
    return status;
}

int rlock_cancel(rlock *lock) {
    int status = rlock__call(lock, RLOCK__CALL_CANCEL, 0);
    rlock__claim *claim;
    if (status != RLOCK_OK) {
        return status;
    }
    claim = lock->claim;
    lock->gate->client->depth++;
    if (rlock__following(lock)) {
        rlock__following_end(lock, RLOCK_ERR_CANCELED, NULL);
    } else if (claim) {
        rlock__acquire_end(claim, RLOCK_ERR_CANCELED);
    } else {
        RLOCK_ASSERT(lock->ready.event == RLOCK_ACQUIRED);
        lock->ready.status = RLOCK_ERR_CANCELED; /* it had ended, and was not told yet */
        rlock__lock_text(lock, NULL);
    }
    rlock__leave(lock->gate->client);
    return RLOCK_OK;
}

/* Returns for how long the handle still holds; 0 = it does not hold. */
static int64_t rlock__left_us(const rlock *lock) {
    int64_t now_us;
    if (!lock || rlock__call_forked(lock->gate->client)) {
        return 0;
    }
    now_us = rlock__read_clock(lock);
    return rlock__state_at(lock, now_us) == RLOCK__HELD_STATE ? lock->claim->until_us - now_us : 0;
}

bool rlock_is_held(const rlock *lock) {
    return rlock__left_us(lock) > 0;
}

int64_t rlock_remaining_ms(const rlock *lock) {
    return rlock__left_us(lock) / 1000;
}

uint64_t rlock_fence(const rlock *lock) {
    return rlock_is_held(lock) ? lock->claim->fence : 0;
}

int rlock_hold_count(const rlock *lock) {
    const rlock__op *op;
    int count = 1;
    if (!rlock_is_held(lock)) {
        return 0;
    }
    for (op = lock->ops; op; op = op->next) {
        if (!op->ready.event) {
            count++;
        }
    }
    return count;
}

/* --- questions --- */

static int rlock__question_new(rlock_client *client, const rlock_options *options, rlock_op op,
                               uint8_t flags, uint32_t permits, rlock_info_callback *done,
                               void *user) {
    const char *wrong;
    rlock__want want;
    rlock__gate *gate;
    int status;
    if (!client || !options || !RLOCK__HAS_KINDS) {
        return RLOCK_ERR_ARG;
    }
    if (rlock__call_forked(client)) {
        return RLOCK_ERR_STATE;
    }
    wrong = rlock__want_init(&want, options);
    wrong = !wrong && want.terms.count > 1 ? "rlock_inspect and the like take one key" : wrong;
    if (rlock__refused_by(client, &want, wrong)) {
        return RLOCK_ERR_ARG;
    }
    if (client->life != RLOCK__LIVE) {
        return RLOCK_ERR_CLOSED;
    }
    rlock__enter(client);
    gate = rlock__gate_of(client, &want);
    status = gate ? rlock__ask(gate, &want.terms, op, flags, permits, done, user) : RLOCK_ERR_NOMEM;
    if (gate) {
        rlock__gate_unref(gate);
    }
    rlock__leave(client);
    return status;
}

int rlock_inspect(rlock_client *client, const rlock_options *options, rlock_info_callback *done,
                  void *user) {
    return done ? rlock__question_new(client, options, RLOCK_OP_INSPECT, 0, 0, done, user)
                : RLOCK_ERR_ARG;
}

int rlock_describe(rlock_client *client, const rlock_options *options, rlock_info_callback *done,
                   void *user) {
    return done && RLOCK__HAS_DESCRIPTIONS
               ? rlock__question_new(client, options, RLOCK_OP_INSPECT, RLOCK_REQUEST_DESCRIBE, 0,
                                     done, user)
               : RLOCK_ERR_ARG;
}

int rlock_force_release(rlock_client *client, const rlock_options *options,
                        rlock_info_callback *done, void *user) {
    return rlock__question_new(client, options, RLOCK_OP_FORCE, 0, 0, done, user);
}

int rlock_set_permits(rlock_client *client, const rlock_options *options, uint32_t permits,
                      rlock_info_callback *done, void *user) {
    if (permits > RLOCK_PERMITS_MAX || !options || options->kind != RLOCK_KIND_SEMAPHORE) {
        return RLOCK_ERR_ARG;
    }
    return rlock__question_new(client, options, RLOCK_OP_SET_PERMITS, 0, permits, done, user);
}

int rlock_queue_position(const rlock *lock, rlock_info_callback *done, void *user) {
    rlock_client *client;
    int status;
    if (!lock || !done) {
        return RLOCK_ERR_ARG;
    }
    client = lock->gate->client;
    if (rlock__call_forked(client) ||
        (client->life != RLOCK__CLOSED && rlock__state_of(lock) != RLOCK__WAITING_STATE) ||
        !rlock__queued(lock->gate)) {
        return RLOCK_ERR_STATE;
    }
    if (client->life != RLOCK__LIVE) {
        return RLOCK_ERR_CLOSED;
    }
    rlock__enter(client);
    status = rlock__ask(lock->gate, &lock->more->terms, RLOCK_OP_INSPECT, 0,
                        lock->claim && !rlock__claim_id(lock->claim) ? lock->claim->token : 0, done,
                        user);
    rlock__leave(client);
    return status;
}

const char *rlock_key(const rlock *lock, size_t *len) {
    if (!lock || rlock__forked(lock->gate->client)) {
        return NULL;
    }
    if (len) {
        *len = lock->gate->item.key_len;
    }
    return lock->gate->item.key;
}

#if RLOCK__HAS_TOKENS

/* ------------------------------------------------------------------------------------------------
 * >>api-token - a hold that goes on without this process: until a time, or in another process
 */

/* True if the store can do it; else the reason is logged. */
static bool rlock__store_can(const rlock_client *client, unsigned what) {
    if ((client->store->can & what) == what) {
        return true;
    }
    RLOCK_ASSERT(client->life != RLOCK__CLOSED); /* where nothing is held, nor adopted */
    rlock_client_log(
        client, RLOCK_LOG_ERROR,
        what == RLOCK_STORE_STAYS
            ? RLOCK__TEXT("rlock_release_after: in this store a hold ends with its client")
            : RLOCK__TEXT("rlock_token and rlock_adopt: in this store only the client that "
                          "acquired a token can use it"),
        NULL);
    return false;
}

int rlock_release_after(rlock *lock, int64_t ms, rlock_callback *done, void *user) {
    int status = rlock__call(lock, RLOCK__CALL_RELEASE, 0);
    if (status == RLOCK_ERR_ARG || ms < 0 || ms > lock->gate->client->lease_most_ms) {
        return RLOCK_ERR_ARG;
    }
    if (status != RLOCK_OK) {
        return status;
    }
    if (!rlock__store_can(lock->gate->client, RLOCK_STORE_STAYS)) {
        return RLOCK_ERR_ARG;
    }
    rlock__release(lock, rlock__add_ms(lock->wait_until_us, ms), done, user);
    return RLOCK_OK;
}

/* --- the text that proves a hold: the client's id, the number of the token, the fence --- */

typedef struct rlock__proof {
    char id[RLOCK__TOKEN_HEAD];
    uint64_t token, fence;
} rlock__proof;

/* Reads a number that ends with this character. Returns what stands behind it; NULL: there is none,
 * or it is too large. */
static const char *rlock__proof_number(const char *text, char end, uint64_t *number) {
    *number = 0;
    do {
        unsigned digit = (unsigned)(unsigned char)*text - '0';
        if (digit > 9 || *number > (UINT64_MAX - digit) / 10) {
            return NULL;
        }
        *number = *number * 10 + digit;
    } while (*++text != end);
    return text + 1;
}

/* False: the text is no such proof. */
static bool rlock__proof_read(rlock__proof *proof, const char *text) {
    size_t i;
    for (i = 0; i < RLOCK__TOKEN_HEAD - 1; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !text[i] || !strchr("0123456789abcdef", text[i])) {
            return false;
        }
    }
    memcpy(proof->id, text, RLOCK__TOKEN_HEAD - 1);
    proof->id[RLOCK__TOKEN_HEAD - 1] = 0;
    if (text[RLOCK__TOKEN_HEAD - 1] != ':') {
        return false;
    }
    text = rlock__proof_number(text + RLOCK__TOKEN_HEAD, ':', &proof->token);
    return text && proof->token && rlock__proof_number(text, 0, &proof->fence);
}

int rlock_token(const rlock *lock, char *buffer, size_t size) {
    char text[RLOCK_TOKEN_MAX];
    const rlock__claim *claim;
    const char *id;
    size_t n;
    if (!lock || !buffer || !size) {
        return RLOCK_ERR_ARG;
    }
    buffer[0] = 0;
    if (rlock__call_forked(lock->gate->client)) {
        return RLOCK_ERR_STATE;
    }
    if (!rlock_is_held(lock)) {
        return RLOCK_ERR_NOT_HELD;
    }
    claim = lock->claim;
    id = rlock__claim_id(claim);
    n = rlock__token(id ? id : lock->gate->client->id, text, claim->token);
    text[n++] = ':';
    n += rlock__digits(text + n, claim->fence);
    RLOCK_ASSERT(n < sizeof text);
    if (n >= size || !rlock__store_can(lock->gate->client, RLOCK_STORE_ADOPTS)) {
        return RLOCK_ERR_ARG;
    }
    lock->claim->handovers = 0; /* its token is no other hold's from now on */
    memcpy(buffer, text, n);
    buffer[n] = 0;
    return (int)n;
}

/* --- its hold in another process --- */

/* Makes a claim of another client's token. NULL: no memory. */
static rlock__claim *rlock__adopted_new(rlock *lock, const rlock__proof *proof) {
    rlock__adopted *adopted = (rlock__adopted *)rlock__alloc(sizeof *adopted);
    rlock__claim *claim;
    if (!adopted) {
        return NULL;
    }
    lock->gate->client->claims.count++; /* the pool takes it in the end, as large as it is */
    claim = rlock__claim_begin(lock, &adopted->claim);
    if (claim) {
        memcpy(adopted->id, proof->id, sizeof adopted->id);
        claim->adopted = true;
        claim->token = proof->token;
        claim->fence = proof->fence;
    }
    return claim;
}

/* Asks for it by a renewal: an acquire could take a key that is free. */
static void rlock__adopt_begin(rlock__claim *claim) {
    rlock__gate *gate = claim->lock->gate;
    rlock_request *request;
    RLOCK_ASSERT(rlock__adopting(claim));
    claim->may_exist = true;
    rlock__list_append(&gate->claims, &claim->link);
    request =
        rlock__claim_request(claim, RLOCK_OP_RENEW, claim->lock->lease_ms, gate->client->now_us);
    RLOCK_ASSERT(request); /* one was reserved when the claim began */
    rlock__claim_arm(claim);
    rlock__report(claim, RLOCK_REPORT_ASKED, RLOCK_OK);
    rlock__claim_submit(claim, request);
}

static int rlock__adopt_start(rlock *lock, const rlock__proof *proof, int64_t lease_ms,
                              rlock_callback *done, void *user) {
    rlock_client *client = lock->gate->client;
    rlock__claim *claim = rlock__adopted_new(lock, proof);
    RLOCK_ASSERT(!lock->ready.event && done);
    if (!claim) {
        return RLOCK_ERR_NOMEM;
    }
    lock->done = done;
    lock->user = user;
    lock->once = true;
    lock->ready.status = RLOCK_OK;
    lock->ready.left_ms = -1;
    lock->lease_ms = rlock__lease_of(lock, lease_ms);
    lock->renews = rlock__renews(lock, lease_ms);
    lock->wait_until_us = claim->until_us =
        rlock__add_ms(client->now_us, client->command_timeout_ms);
    rlock__adopt_begin(claim);
    return RLOCK_OK;
}

int rlock_adopt(rlock *lock, const char *token, int64_t lease_ms, rlock_callback *done,
                void *user) {
    int status = rlock__call(lock, RLOCK__CALL_ACQUIRE, lease_ms);
    rlock__proof proof;
    if (status == RLOCK_ERR_ARG || !token || !done || !rlock__proof_read(&proof, token) ||
        (lock->fencing && !proof.fence)) {
        return RLOCK_ERR_ARG;
    }
    if (status != RLOCK_OK) {
        return status < RLOCK_OK ? status : RLOCK_ERR_STATE;
    }
    if (lock->gate->client->life != RLOCK__LIVE) {
        return RLOCK_ERR_CLOSED;
    }
    if (!rlock__store_can(lock->gate->client, RLOCK_STORE_ADOPTS)) {
        return RLOCK_ERR_ARG;
    }
    lock->gate->client->depth++;
    status = rlock__adopt_start(lock, &proof, lease_ms, done, user);
    rlock__leave(lock->gate->client);
    return status;
}

#endif /* RLOCK__HAS_TOKENS */

#endif /* RLOCK_IMPLEMENTED */
#endif /* RLOCK_IMPLEMENTATION */

#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif

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
/* tools/join makes this file of src/: edit that. Digest of all above: d1f5a950b101da49 */
