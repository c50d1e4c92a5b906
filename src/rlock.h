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
 *     {public}
 *     Implementation. A section calls what stands above it. This file is joined from parts, one
 *     for each section: edit the parts (src/ in the repository; docs/design.md is their map).
 *     {implementation}
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

#include "public/head.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "public/status.h"

#include "public/loop.h"

#include "public/store.h"

#include "public/client.h"

#include "public/lock.h"

#include "public/report.h"

#ifdef __cplusplus
}
#endif

#endif /* RLOCK_H */

#ifdef RLOCK_IMPLEMENTATION
#ifndef RLOCK_IMPLEMENTED
#define RLOCK_IMPLEMENTED

#include "base/platform.h"

#include "base/foreign.h"

#include "base/list.h"

#include "base/map.h"

#include "base/heap.h"

#include "base/pool.h"

#include "runtime/client.h"

#include "runtime/token.h"
#include "runtime/gone.h"

#include "runtime/settings.h"

#if RLOCK__HAS_DESCRIPTIONS

#include "runtime/who.h"

#endif /* RLOCK__HAS_DESCRIPTIONS */

#if RLOCK__HAS_MEMORY

#include "store/memory.h"

#endif /* RLOCK__HAS_MEMORY */

#if RLOCK__HAS_REDIS

#include "store/redis/state.h"

#include "store/redis/scripts.h"

#include "store/redis/address.h"

#include "store/redis/resp.h"

#include "store/redis/link.h"

#include "store/redis/wait.h"

#include "store/redis/push.h"

#include "store/redis/sentinel.h"

#include "store/redis/quarantine.h"

#include "store/redis/credentials.h"

#include "store/redis/handshake.h"

#include "store/redis/who.h"

#include "store/redis/store.h"

#if RLOCK__HAS_URL

#include "store/redis/url.h"

#endif /* RLOCK__HAS_URL */

#if RLOCK__HAS_CLUSTER

#include "store/redis/cluster_map.h"

#include "store/redis/cluster.h"

#endif /* RLOCK__HAS_CLUSTER */

#endif /* RLOCK__HAS_REDIS */

#include "store/default.h"

#if RLOCK__HAS_QUORUM || RLOCK__HAS_CLUSTER

#include "store/combined/members.h"

#endif

#if RLOCK__HAS_CLUSTER

#include "store/redis/seeds.h"

#endif /* RLOCK__HAS_CLUSTER */

#if RLOCK__HAS_QUORUM

#include "store/combined/quorum.h"

#include "store/combined/both.h"

#endif /* RLOCK__HAS_QUORUM */

#include "lock/deadline.h"

#include "lock/claim.h"

#include "lock/report.h"

#include "lock/due.h"

#include "lock/gate.h"

#include "lock/mode.h"

#include "lock/life.h"

#include "lock/deliver.h"

#include "lock/question.h"

#include "lock/events.h"

#include "lock/api_client.h"

#include "lock/api_handle.h"

#if RLOCK__HAS_TOKENS

#include "lock/api_token.h"

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
