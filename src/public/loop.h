/* ------------------------------------------------------------------------------------------------
 * >>loop-contract - how the library asks a loop to watch descriptors and to call it back
 *
 * adapters/ fill this in; docs/writing-a-loop-adapter.md walks through one.
 *
 * The loop promises
 * 1. One thread. Never to call the library from inside a hook, and to touch no state after an
 *    rlock_on_... returned.
 * 2. Level-triggered events; error and hang-up are reported as everything watched. Spurious and
 *    early calls are harmless.
 * 3. After watch(io, ..., 0) returned, never rlock_on_io(io), not even for an event already
 *    fetched; after close(), no rlock_on_... at all.
 * 4. set_timer(0) means after one more look at the sockets, never before it; one that is due
 *    already keeps its turn. Delays are rounded up.
 * 5. watch may fail (that connection then fails, and watch(0) follows); set_timer and close may
 *    not: allocate in open. A name is the library's until it is resolved, or until close.
 *
 * The library promises
 * 1. No user callback ever runs inside a public call. What is decided at once is delivered by a
 *    zero timer.
 * 2. Each accepted operation gets exactly one callback, unless its handle or client is freed
 *    first: then none.
 * 3. Any public function, the two frees included, may be called from any callback.
 * 4. After rlock_free or rlock_client_free returns, nothing of that object is called or touched
 *    again: watch(0) of every descriptor and close have been called; only memory may wait for
 *    the entry's end.
 * 5. The clock is sampled anew at every entry, never a loop's cached time. CLOCK_BOOTTIME where
 *    there is one, because CLOCK_MONOTONIC stands still while a device sleeps and the server's
 *    time to live does not.
 * 6. One entry delivers a snapshot of what is ready; what callbacks add waits for the next turn.
 *    Expiry is settled before replies are delivered. An entry may be made from inside a callback,
 *    and a callback need not return: the next entry goes on with the snapshot.
 * 7. After fork, every call in the child returns RLOCK_ERR_STATE, sends nothing and closes
 *    nothing of the parent's.
 */

#ifndef RLOCK_PUBLIC_LOOP_H
#define RLOCK_PUBLIC_LOOP_H

#include "public/head.h"

#define RLOCK_IO_READ 1u
#define RLOCK_IO_WRITE 2u

/* One watched descriptor. The library's; `data` is the loop's own: NULL at the first watch, and
 * reset to NULL by the loop or left alone when watch(0) forgets the descriptor. The other members
 * are for stores: see >>store-contract. */
typedef struct rlock_io {
    void *data;
    rlock_client *client;
    void (*ready)(struct rlock_io *io, unsigned events);
    unsigned watched;
} rlock_io;

/* One name being resolved. The library's; `data` is the loop's own. */
typedef struct rlock_name {
    void *data;
    rlock_client *client;
    void (*resolved)(struct rlock_name *name, const struct sockaddr *address);
} rlock_name;

typedef struct rlock_loop {
    /* Yours: the ev_loop, the uv_loop_t ... */
    void *ctx;

    /* One per client: makes the state of the hooks; NULL = failed. */
    void *(*open)(void *ctx, rlock_client *client);

    /* RLOCK_IO_READ|WRITE, 0 = forget. Returns 0 or negative. */
    int (*watch)(void *state, rlock_io *io, int fd, unsigned events);

    /* One-shot, replaces the last; negative = stop. */
    void (*set_timer)(void *state, int64_t delay_us);

    /* Forgets the timer and every pending name, frees the state. */
    void (*close)(void *state);

    /* Optional; default: see RLOCK_NOW_US. */
    int64_t (*now_us)(void *ctx);

    /* Optional. Returns 0 or negative; after 0 one rlock_on_resolved, never from inside resolve. */
    int (*resolve)(void *state, rlock_name *name, const char *host);
} rlock_loop;

/* The loop calls these. `events` are those that are ready; the address is copied, NULL = not
 * found. */
RLOCK_API void rlock_on_io(rlock_io *io, unsigned events);
RLOCK_API void rlock_on_timer(rlock_client *client);
RLOCK_API void rlock_on_resolved(rlock_name *name, const struct sockaddr *address);

#endif /* RLOCK_PUBLIC_LOOP_H */
