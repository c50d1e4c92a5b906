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

#ifndef RLOCK_PUBLIC_LOOP_H
#define RLOCK_PUBLIC_LOOP_H

#include "public/head.h"

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

#endif /* RLOCK_PUBLIC_LOOP_H */
