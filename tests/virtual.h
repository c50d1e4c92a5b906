/* virtual.h - a loop whose clock only the test moves, and handles that record their callbacks
 *
 * The loop fires timers in the order of their due times, never sleeps, and fails the test when the
 * library breaks a promise of the loop contract: a hook after close, a descriptor still watched at
 * close, a callback inside a public call, outside of an entry or after a free, a second callback
 * for one operation, LOST without a hold, ACQUIRED without validity, zero timers without end.
 *
 * A suite defines RLOCK_IMPLEMENTATION and includes this file instead of rlock.h: allocation is
 * counted and can be made to fail, and random bytes are the same in every run.
 */

#ifndef TESTS_VIRTUAL_H
#define TESTS_VIRTUAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ------------------------------------------------------------------------------------------------
 * Checks that say both numbers in decimal, because statuses are negative.
 */

#define SAME(actual, expected) \
    virtual_same((int64_t)(actual), (int64_t)(expected), #actual, __FILE__, __LINE__)
#define BETWEEN(actual, low, high) \
    virtual_between((int64_t)(actual), (int64_t)(low), (int64_t)(high), #actual, __FILE__, __LINE__)

static inline void virtual_same(int64_t actual, int64_t expected, const char *what,
                                const char *file, int line) {
    if (actual != expected) {
        print_error("%s is %lld, expected %lld\n", what, (long long)actual, (long long)expected);
        _fail(file, line);
    }
}

static inline void virtual_between(int64_t actual, int64_t low, int64_t high, const char *what,
                                   const char *file, int line) {
    if (actual < low || actual > high) {
        print_error("%s is %lld, expected %lld to %lld\n", what, (long long)actual, (long long)low,
                    (long long)high);
        _fail(file, line);
    }
}

/* ------------------------------------------------------------------------------------------------
 * Memory and random bytes of the library.
 */

#define VIRTUAL_HEADER 16

static struct {
    size_t live;      /* blocks not freed yet, ...                          */
    size_t bytes;     /* ... and what they take                             */
    uint64_t total;   /* blocks ever asked for                              */
    uint64_t fail_at; /* the how manyth one from now fails; 0 = none        */
    bool failed;      /* it did                                             */
    bool none;        /* every one fails                                    */
} virtual_memory;

/* What the malloc of glibc takes for so many bytes. */
static inline size_t virtual_chunk(size_t size) {
    size_t chunk = (size + 8 + 15) / 16 * 16;
    return chunk < 32 ? 32 : chunk;
}

static inline void *virtual_malloc(size_t size) {
    unsigned char *block;
    virtual_memory.total++;
    if (virtual_memory.none || (virtual_memory.fail_at != 0 && --virtual_memory.fail_at == 0)) {
        virtual_memory.failed = true;
        return NULL;
    }
    block = (unsigned char *)malloc(size + VIRTUAL_HEADER);
    if (block == NULL) {
        return NULL;
    }
    memcpy(block, &size, sizeof size);
    memset(block + VIRTUAL_HEADER, 0xa5, size); /* nobody may count on zeroes */
    virtual_memory.live++;
    virtual_memory.bytes += virtual_chunk(size);
    return block + VIRTUAL_HEADER;
}

static inline void virtual_release(void *memory) {
    if (memory != NULL) {
        unsigned char *block = (unsigned char *)memory - VIRTUAL_HEADER;
        size_t size;
        memcpy(&size, block, sizeof size);
        memset(memory, 0xdd, size); /* nor on what was freed */
        virtual_memory.live--;
        virtual_memory.bytes -= virtual_chunk(size);
        free(block);
    }
}

static uint64_t virtual_seed = 1;
static bool virtual_random_fails;

static inline uint32_t virtual_random(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static inline int virtual_random_fill(void *buffer, size_t size) {
    size_t i;
    for (i = 0; i < size; i++) {
        ((unsigned char *)buffer)[i] = (unsigned char)(virtual_random(&virtual_seed) >> 8);
    }
    return virtual_random_fails ? 0 : 1;
}

#define RLOCK_MALLOC(n) virtual_malloc(n)
#define RLOCK_FREE(p) virtual_release(p)
#define RLOCK_RANDOM(p, n) virtual_random_fill(p, n)

#include "rlock.h"

/* ------------------------------------------------------------------------------------------------
 * Keys that have the same hash in a map: it has a seed, so they have to be looked for.
 */

#define VIRTUAL_TWINS 4 /* the first two of one length, the others not; the twin of i is i ^ 1 */

struct virtual_twins {
    char keys[VIRTUAL_TWINS][16];
};

static inline void virtual_twin(char *key, uint32_t i) {
    snprintf(key, 16, i % 2 != 0 ? "%07x" : "key%06x", (unsigned)i);
}

static inline struct virtual_twins virtual_twins(const rlock__map *map) {
    const uint32_t size = 1u << 21;
    uint32_t *seen = (uint32_t *)calloc(size, 2 * sizeof *seen); /* hash, number + 1 */
    struct virtual_twins found;
    uint32_t i, at;
    bool like = false, unlike = false;
    memset(&found, 0, sizeof found);
    for (i = 0; seen != NULL && i < size / 2 && !(like && unlike); i++) {
        uint32_t hash;
        char key[16];
        virtual_twin(key, i);
        hash = rlock__hash(map, key, strlen(key));
        for (at = hash % size; seen[2 * at + 1] != 0; at = (at + 1) % size) {
            uint32_t other = seen[2 * at + 1] - 1;
            bool same = (other ^ i) % 2 == 0;
            if (seen[2 * at] == hash && !(same ? like : unlike)) {
                virtual_twin(found.keys[same ? 0 : 2], other);
                virtual_twin(found.keys[same ? 1 : 3], i);
                like = like || same;
                unlike = unlike || !same;
            }
        }
        seen[2 * at] = hash;
        seen[2 * at + 1] = i + 1;
    }
    free(seen);
    assert_true(like && unlike);
    return found;
}

/* ------------------------------------------------------------------------------------------------
 * Every call below raises the depth: a callback that sees it raised runs inside a public call.
 */

static int virtual_depth;

static inline void virtual_enter(void) {
    virtual_depth++;
}

static inline int virtual_leave(int status) {
    virtual_depth--;
    return status;
}

#define VIRTUAL_CALL(call) (virtual_enter(), virtual_leave(call))
#define VIRTUAL_CALL_VOID(call) (virtual_enter(), call, (void)virtual_leave(0))

#define rlock_client_new(out, config) VIRTUAL_CALL(rlock_client_new(out, config))
#define rlock_client_free(client) VIRTUAL_CALL_VOID(rlock_client_free(client))
#define rlock_client_shutdown(client, timeout_ms, done, user) \
    VIRTUAL_CALL(rlock_client_shutdown(client, timeout_ms, done, user))
#define rlock_client_drain(client, drain_ms, done, user) \
    VIRTUAL_CALL(rlock_client_drain(client, drain_ms, done, user))
#define rlock_new(out, client, options) VIRTUAL_CALL(rlock_new(out, client, options))
#define rlock_free(lock) VIRTUAL_CALL_VOID(rlock_free(lock))
#define rlock_acquire(lock, wait_ms, lease_ms, done, user) \
    VIRTUAL_CALL(rlock_acquire(lock, wait_ms, lease_ms, done, user))
#define rlock_renew(lock, lease_ms, done, user) \
    VIRTUAL_CALL(rlock_renew(lock, lease_ms, done, user))
#define rlock_release(lock, done, user) VIRTUAL_CALL(rlock_release(lock, done, user))
#define rlock_cancel(lock) VIRTUAL_CALL(rlock_cancel(lock))
#define rlock_inspect(client, options, done, user) \
    VIRTUAL_CALL(rlock_inspect(client, options, done, user))
#define rlock_force_release(client, options, done, user) \
    VIRTUAL_CALL(rlock_force_release(client, options, done, user))
#define rlock_set_permits(client, options, permits, done, user) \
    VIRTUAL_CALL(rlock_set_permits(client, options, permits, done, user))
#define rlock_queue_position(lock, done, user) VIRTUAL_CALL(rlock_queue_position(lock, done, user))

/* ------------------------------------------------------------------------------------------------
 * The loop.
 */

#define VIRTUAL_CLIENTS 16
#define VIRTUAL_FDS 4
#define VIRTUAL_OWNERS 128
#define VIRTUAL_SPINS 20000 /* entries at one moment, after which the library is said to spin */

struct virtual_loop;

struct virtual_watched {
    rlock_io *io;
    int fd;
    unsigned events;
};

struct virtual_state { /* what open gives a client */
    struct virtual_loop *loop;
    rlock_client *client;
    bool alive;
    bool frozen;    /* its process is stopped: nothing of it fires */
    bool idle;      /* it does not keep its loop from ending */
    int64_t due_us; /* -1 = no timer */
    uint64_t order; /* of two that are due at once the one set first fires first */
    struct virtual_watched watched[VIRTUAL_FDS];
};

struct seen { /* the last callback of one kind */
    int count;
    int status;
    rlock_reason reason;
    uint64_t fence;
    int64_t remaining_ms;
    char text[64];
    int64_t at_us;
    uint64_t order; /* among all callbacks of the loop */
};

struct owner { /* a handle, what it was asked for and what it was told */
    struct virtual_loop *loop;
    rlock_client *client;
    rlock *lock;
    bool gone;                   /* it or its client was freed: nothing may be called any more */
    bool holding;                /* told ACQUIRED, and neither RELEASED nor LOST since */
    int pending[RLOCK_LOST + 1]; /* accepted and not ended, by the kind of their callback */
    int events;                  /* callbacks of any kind */
    struct seen seen[RLOCK_LOST + 1];
    void (*react)(struct owner *owner, const rlock_event *event); /* called by the callback */
    void *context;                                                /* for react */
};

struct virtual_loop {
    int64_t now_us;       /* the true time */
    int64_t clock_off_us; /* by how much the clock that the library sees is off */
    uint64_t orders;
    uint64_t callbacks;
    bool entered;
    bool open_fails;
    bool watch_fails;
    unsigned opened;
    struct virtual_state states[VIRTUAL_CLIENTS];
    struct owner owners[VIRTUAL_OWNERS];
    unsigned owned;
};

static inline struct virtual_state *virtual_alive(void *state, const char *hook) {
    struct virtual_state *self = (struct virtual_state *)state;
    if (!self->alive) {
        fail_msg("the loop's %s was called after close", hook);
    }
    return self;
}

static inline void *virtual_open(void *ctx, rlock_client *client) {
    struct virtual_loop *loop = (struct virtual_loop *)ctx;
    struct virtual_state *state = &loop->states[loop->opened++ % VIRTUAL_CLIENTS];
    if (loop->open_fails) {
        return NULL;
    }
    if (state->alive) {
        fail_msg("more than %d clients at once", VIRTUAL_CLIENTS);
    }
    memset(state, 0, sizeof *state);
    state->loop = loop;
    state->client = client;
    state->alive = true;
    state->due_us = -1;
    return state;
}

static inline int virtual_watch(void *state, rlock_io *io, int fd, unsigned events) {
    struct virtual_state *self = virtual_alive(state, "watch");
    int i, place = -1;
    for (i = 0; i < VIRTUAL_FDS; i++) {
        if (self->watched[i].io == io) {
            place = i;
        } else if (self->watched[i].io == NULL && place < 0) {
            place = i;
        }
    }
    if (place < 0 || self->loop->watch_fails) {
        return -1;
    }
    self->watched[place].io = events != 0 ? io : NULL;
    self->watched[place].fd = fd;
    self->watched[place].events = events;
    return 0;
}

static inline void virtual_set_timer(void *state, int64_t delay_us) {
    struct virtual_state *self = virtual_alive(state, "set_timer");
    self->due_us = delay_us < 0 ? -1 : self->loop->now_us + delay_us;
    self->order = ++self->loop->orders;
}

static inline void virtual_close(void *state) {
    struct virtual_state *self = virtual_alive(state, "close");
    int i;
    for (i = 0; i < VIRTUAL_FDS; i++) {
        if (self->watched[i].io != NULL) {
            fail_msg("descriptor %d is still watched at close", self->watched[i].fd);
        }
    }
    self->alive = false;
    self->due_us = -1;
}

static inline void virtual_rests(void *state, bool idle) {
    struct virtual_state *self = virtual_alive(state, "idle");
    if (self->idle == idle) {
        fail_msg("the loop is told again that a client is %s", idle ? "idle" : "not idle");
    }
    self->idle = idle;
}

static inline int64_t virtual_now_us(void *ctx) {
    const struct virtual_loop *loop = (const struct virtual_loop *)ctx;
    return loop->now_us + loop->clock_off_us;
}

static inline rlock_loop virtual_hooks(struct virtual_loop *loop) {
    rlock_loop hooks;
    memset(&hooks, 0, sizeof hooks);
    hooks.ctx = loop;
    hooks.open = virtual_open;
    hooks.watch = virtual_watch;
    hooks.set_timer = virtual_set_timer;
    hooks.close = virtual_close;
    hooks.now_us = virtual_now_us;
    hooks.idle = virtual_rests;
    return hooks;
}

static inline void virtual_begin(struct virtual_loop *loop) {
    memset(loop, 0, sizeof *loop);
    loop->now_us = 1000000000; /* far from zero, so that a clock never read stands out */
    memset(&virtual_memory, 0, sizeof virtual_memory);
    virtual_seed = 1;
    virtual_random_fails = false;
    virtual_depth = 0;
}

static inline struct virtual_state *virtual_state_of(struct virtual_loop *loop,
                                                     rlock_client *client) {
    int i;
    for (i = 0; i < VIRTUAL_CLIENTS; i++) {
        if (loop->states[i].alive && loop->states[i].client == client) {
            return &loop->states[i];
        }
    }
    fail_msg("the client has no open loop");
    return NULL;
}

static inline struct virtual_state *virtual_earliest(struct virtual_loop *loop, int64_t until_us) {
    struct virtual_state *first = NULL;
    int i;
    for (i = 0; i < VIRTUAL_CLIENTS; i++) {
        struct virtual_state *state = &loop->states[i];
        if (!state->alive || state->frozen || state->due_us < 0 || state->due_us > until_us) {
            continue;
        }
        if (first == NULL || state->due_us < first->due_us ||
            (state->due_us == first->due_us && state->order < first->order)) {
            first = state;
        }
    }
    return first;
}

/* One entry: fires the earliest timer that is due by then. False if there is none. */
static inline bool virtual_iteration(struct virtual_loop *loop, int64_t until_us) {
    struct virtual_state *state = virtual_earliest(loop, until_us);
    bool inside = loop->entered; /* a callback runs the loop */
    if (state == NULL) {
        return false;
    }
    if (state->due_us > loop->now_us) {
        loop->now_us = state->due_us;
    }
    state->due_us = -1;
    loop->entered = true;
    rlock_on_timer(state->client);
    loop->entered = inside;
    return true;
}

/* Fires every timer due by then, in order, and leaves the clock there. */
static inline void virtual_run_until(struct virtual_loop *loop, int64_t until_us) {
    int64_t moment = loop->now_us;
    int spins = 0;
    while (virtual_iteration(loop, until_us)) {
        spins = loop->now_us == moment ? spins + 1 : 0;
        moment = loop->now_us;
        if (spins > VIRTUAL_SPINS) {
            fail_msg("the library asks for one zero timer after the other");
        }
    }
    if (loop->now_us < until_us) {
        loop->now_us = until_us;
    }
}

static inline void virtual_idle(struct virtual_loop *loop) {
    virtual_run_until(loop, loop->now_us);
}

static inline void virtual_run_ms(struct virtual_loop *loop, int64_t ms) {
    virtual_run_until(loop, loop->now_us + ms * 1000);
}

/* The clock goes on and nothing fires, as in a process that is stopped or busy. */
static inline void virtual_stall(struct virtual_loop *loop, int64_t us) {
    loop->now_us += us;
}

/* Something came in on a watched descriptor; a descriptor that is not watched is not reported. */
static inline void virtual_ready(struct virtual_loop *loop, int fd, unsigned events) {
    int i, k;
    for (i = 0; i < VIRTUAL_CLIENTS; i++) {
        for (k = 0; k < VIRTUAL_FDS; k++) {
            struct virtual_watched *watch = &loop->states[i].watched[k];
            if (loop->states[i].alive && watch->io != NULL && watch->fd == fd) {
                loop->entered = true;
                rlock_on_io(watch->io, events & watch->events);
                loop->entered = false;
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * Handles that record.
 */

static inline void owner_check(struct owner *owner, rlock *lock, const rlock_event *event) {
    if (virtual_depth != 0) {
        fail_msg("a callback ran inside a public call");
    }
    if (!owner->loop->entered) {
        fail_msg("a callback ran outside of an entry");
    }
    if (owner->gone) {
        fail_msg("a callback ran after its handle or its client was freed");
    }
    assert_ptr_equal(lock, owner->lock);
    BETWEEN(event->kind, RLOCK_ACQUIRED, RLOCK_LOST);
    if (event->kind == RLOCK_LOST) {
        SAME(event->status, RLOCK_ERR_LOST);
        assert_true(owner->holding);
    } else if (owner->pending[event->kind]-- == 0) {
        fail_msg("an operation ended twice, or was never asked for: kind %d", (int)event->kind);
    }
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK) {
        assert_true(rlock_is_held(lock));
        BETWEEN(rlock_hold_count(lock), 1, INT32_MAX);
        SAME(event->remaining_ms, rlock_remaining_ms(lock));
    }
}

static inline void owner_on_event(rlock *lock, const rlock_event *event, void *user) {
    struct owner *owner = (struct owner *)user;
    struct seen *seen;
    owner_check(owner, lock, event);
    seen = &owner->seen[event->kind];
    seen->count++;
    seen->status = event->status;
    seen->reason = event->reason;
    seen->fence = event->fence;
    seen->remaining_ms = event->remaining_ms;
    snprintf(seen->text, sizeof seen->text, "%s", event->text != NULL ? event->text : "");
    seen->at_us = owner->loop->now_us;
    seen->order = ++owner->loop->callbacks;
    owner->events++;
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK) {
        owner->holding = true;
    } else if (event->kind == RLOCK_LOST ||
               (event->kind == RLOCK_RELEASED && rlock_hold_count(lock) == 0)) {
        owner->holding = false;
    }
    if (owner->react != NULL) {
        owner->react(owner, event);
    }
}

/* A handle as the options say, which records. NULL if rlock_new failed: *status says how. */
static inline struct owner *owner_attempt(struct virtual_loop *loop, rlock_client *client,
                                          const rlock_options *options, int *status) {
    struct owner *owner = &loop->owners[loop->owned];
    rlock_options copy = *options;
    if (loop->owned == VIRTUAL_OWNERS) {
        fail_msg("more than %d handles in one test", VIRTUAL_OWNERS);
    }
    memset(owner, 0, sizeof *owner);
    copy.on_lost = owner_on_event;
    copy.user = owner;
    *status = rlock_new(&owner->lock, client, &copy);
    if (*status != RLOCK_OK) {
        return NULL;
    }
    assert_non_null(owner->lock);
    owner->loop = loop;
    owner->client = client;
    loop->owned++;
    return owner;
}

static inline struct owner *owner_new(struct virtual_loop *loop, rlock_client *client,
                                      const rlock_options *options) {
    int status;
    struct owner *owner = owner_attempt(loop, client, options, &status);
    SAME(status, RLOCK_OK);
    return owner;
}

static inline int owner_asked(struct owner *owner, int status, rlock_event_kind kind) {
    owner->pending[kind] += status == RLOCK_OK ? 1 : 0;
    return status;
}

static inline int owner_acquire(struct owner *owner, int64_t wait_ms, int64_t lease_ms) {
    int status = rlock_acquire(owner->lock, wait_ms, lease_ms, owner_on_event, owner);
    return owner_asked(owner, status, RLOCK_ACQUIRED);
}

static inline int owner_renew(struct owner *owner, int64_t lease_ms) {
    int status = rlock_renew(owner->lock, lease_ms, owner_on_event, owner);
    return owner_asked(owner, status, RLOCK_RENEWED);
}

static inline int owner_release(struct owner *owner) {
    int status = rlock_release(owner->lock, owner_on_event, owner);
    return owner_asked(owner, status, RLOCK_RELEASED);
}

static inline int owner_cancel(struct owner *owner) {
    return rlock_cancel(owner->lock);
}

static inline int owner_pending(const struct owner *owner) {
    return owner->pending[RLOCK_ACQUIRED] + owner->pending[RLOCK_RENEWED] +
           owner->pending[RLOCK_RELEASED];
}

static inline void owner_free(struct owner *owner) {
    rlock *lock = owner->lock;
    owner->gone = true;
    owner->lock = NULL;
    rlock_free(lock);
}

/* From here on none of its handles may be told anything. */
static inline void virtual_client_free(struct virtual_loop *loop, rlock_client *client) {
    unsigned i;
    for (i = 0; i < loop->owned; i++) {
        if (loop->owners[i].client == client) {
            loop->owners[i].gone = true;
        }
    }
    rlock_client_free(client);
}

/* Frees the handles that are left. */
static inline void virtual_free_owners(struct virtual_loop *loop) {
    unsigned i;
    for (i = 0; i < loop->owned; i++) {
        if (loop->owners[i].lock != NULL) {
            owner_free(&loop->owners[i]);
        }
    }
}

/* The end of a test: every client is closed, every block freed. */
static inline void virtual_end(struct virtual_loop *loop) {
    int i;
    for (i = 0; i < VIRTUAL_CLIENTS; i++) {
        assert_false(loop->states[i].alive);
    }
    SAME(virtual_memory.live, 0);
}

/* A check failed inside the library and jumped out of it: it must not be entered again. */
static inline bool virtual_torn(const struct virtual_loop *loop) {
    return loop->entered || virtual_depth != 0;
}

#endif /* TESTS_VIRTUAL_H */
