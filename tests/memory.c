/* memory.c - what is special to the store inside the process, on a virtual clock
 *
 * Three clients with a loop of their own each stand for three processes. What this store has in
 * common with the others is proved in tests/stores.c.
 */

#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#include "virtual.h"

#define CLIENTS 3
#define WATCHDOG_MS 3000

#define TURN_MS 1000 /* the command timeout */

static struct {
    struct virtual_loop loop;
    rlock_store *store;
    rlock_config config;
    rlock_client *clients[CLIENTS];
    int done_count, done_status;
} g;

static int setup_stopped(void **state) {
    (void)state;
    memset(&g, 0, sizeof g);
    virtual_begin(&g.loop);
    g.config.loop = virtual_hooks(&g.loop);
    g.config.watchdog_lease_ms = WATCHDOG_MS;
    return 0;
}

static int setup(void **state) {
    int i;
    setup_stopped(state);
    SAME(rlock_memory_new(&g.store), RLOCK_OK);
    g.config.store = g.store;
    for (i = 0; i < CLIENTS; i++) {
        SAME(rlock_client_new(&g.clients[i], &g.config), RLOCK_OK);
    }
    return 0;
}

static void free_client(int i) {
    rlock_client *client = g.clients[i];
    g.clients[i] = NULL;
    virtual_client_free(&g.loop, client);
}

static int teardown(void **state) {
    int i;
    (void)state;
    if (!virtual_torn(&g.loop)) {
        virtual_free_owners(&g.loop);
        virtual_idle(&g.loop);
        for (i = 0; i < CLIENTS; i++) {
            if (g.clients[i] != NULL) {
                free_client(i);
            }
        }
        if (g.store != NULL) {
            rlock_memory_free(g.store);
        }
        virtual_end(&g.loop);
    }
    return 0;
}

static void run_ms(int64_t ms) {
    virtual_run_ms(&g.loop, ms);
}
static int64_t now_us(void) {
    return g.loop.now_us;
}
static void freeze(int i, bool on) {
    virtual_state_of(&g.loop, g.clients[i])->frozen = on;
}

static struct owner *handle(int client, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.fencing = true;
    return owner_new(&g.loop, g.clients[client], &options);
}

static struct owner *holder(int client, const char *key, int64_t lease_ms) {
    struct owner *owner = handle(client, key);
    SAME(owner_acquire(owner, 0, lease_ms), RLOCK_OK);
    run_ms(1);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    return owner;
}

static struct owner *waiter(int client, const char *key, int64_t wait_ms) {
    struct owner *owner = handle(client, key);
    SAME(owner_acquire(owner, wait_ms, 10000), RLOCK_OK);
    run_ms(1);
    SAME(owner->events, 0);
    return owner;
}

static void release(struct owner *owner) {
    SAME(owner_release(owner), RLOCK_OK);
    run_ms(1);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
}

static bool granted(const struct owner *owner) {
    return owner->seen[RLOCK_ACQUIRED].count > 0 && owner->seen[RLOCK_ACQUIRED].status == RLOCK_OK;
}

/* ------------------------------------------------------------------------------------------------
 * Exclusion and waking.
 */

/* All that is known of a key by its hash is where it may be found. */
static void keys_of_one_hash_are_told_apart(void **state) {
    struct virtual_twins twins = virtual_twins(&((rlock__memory *)g.store->ctx)->map);
    int i;
    (void)state;
    for (i = 0; i < VIRTUAL_TWINS; i++) {
        struct owner *held[2], *next[2];
        held[0] = holder(0, twins.keys[i], 60000);
        held[1] = holder(0, twins.keys[i ^ 1], 60000);
        next[0] = waiter(1, twins.keys[i], RLOCK_FOREVER);
        next[1] = waiter(1, twins.keys[i ^ 1], RLOCK_FOREVER);
        run_ms(1000);
        release(held[0]);
        assert_true(granted(next[0]) && !granted(next[1]));
        release(held[1]);
        assert_true(granted(next[1]));
        release(next[0]);
        release(next[1]);
    }
}

static void store_without_random_bytes_is_not_made(void **state) {
    rlock_store *store = g.store;
    size_t live = virtual_memory.live;
    (void)state;
    virtual_random_fails = true;
    SAME(rlock_memory_new(&store), RLOCK_ERR_NOMEM);
    virtual_random_fails = false;
    assert_null(store);
    SAME(virtual_memory.live, live);
}

static void stores_are_independent(void **state) {
    rlock_client *client = NULL;
    rlock_store *other = NULL;
    rlock_config config = g.config;
    rlock_options options;
    struct owner *owner;
    (void)state;
    (void)holder(0, "key", 60000);
    SAME(rlock_memory_new(&other), RLOCK_OK);
    config.store = other;
    SAME(rlock_client_new(&client, &config), RLOCK_OK);
    memset(&options, 0, sizeof options);
    options.key = "key";
    owner = owner_new(&g.loop, client, &options);
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    run_ms(1);
    assert_true(granted(owner));
    virtual_client_free(&g.loop, client);
    rlock_memory_free(other);
}

/* ------------------------------------------------------------------------------------------------
 * Leases.
 */

/* One client looked at the clock just before it stepped back, the other one long before. */
static void clock_that_steps_back_makes_no_second_holder(void **state) {
    struct owner *first, *second = handle(1, "key"), *third;
    (void)state;
    (void)holder(1, "idle since", 1000);
    virtual_stall(&g.loop, 3000000);
    first = handle(0, "key");
    SAME(owner_acquire(first, 0, 10), RLOCK_OK);
    freeze(1, true);
    run_ms(1);
    SAME(owner_release(first), RLOCK_OK);
    run_ms(1);
    g.loop.clock_off_us -= 5000000;
    freeze(1, false);
    SAME(owner_acquire(second, 0, 1000), RLOCK_OK);
    run_ms(500);
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(rlock_is_held(second->lock));
    third = handle(0, "key");
    SAME(owner_acquire(third, 0, 1000), RLOCK_OK);
    run_ms(1);
    SAME(third->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    run_ms(600);
    SAME(owner_acquire(third, 0, 1000), RLOCK_OK);
    run_ms(1);
    SAME(third->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_LOST].count, 1);
}

/* Only one client was there when the clock stepped back: its time is not the store's. */
static void client_made_after_the_clock_stepped_back_holds_for_its_lease(void **state) {
    struct owner *first = holder(0, "key", 1000), *second, *third;
    (void)state;
    release(first);
    free_client(1);
    assert_false(rlock_is_held(first->lock));
    g.loop.clock_off_us -= 5000000;
    assert_false(rlock_is_held(first->lock));
    virtual_stall(&g.loop, 3000000);
    SAME(rlock_client_new(&g.clients[1], &g.config), RLOCK_OK);
    second = holder(1, "key", 1000);
    third = handle(0, "key");
    SAME(owner_acquire(third, 0, 1000), RLOCK_OK);
    run_ms(1);
    assert_true(rlock_is_held(second->lock));
    SAME(third->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
}

static void frozen_holder_is_succeeded_after_its_lease_and_notified_when_it_thaws(void **state) {
    struct owner *first = holder(0, "key", 0), *next = waiter(1, "key", RLOCK_FOREVER);
    (void)state;
    freeze(0, true);
    run_ms(2 * WATCHDOG_MS);
    assert_true(granted(next));
    assert_false(rlock_is_held(first->lock)); /* right at once, before the loop comes round */
    SAME(first->seen[RLOCK_LOST].count, 0);
    freeze(0, false);
    run_ms(1);
    SAME(first->seen[RLOCK_LOST].count, 1);
    SAME(first->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    assert_true(rlock_is_held(next->lock));
    assert_true(next->seen[RLOCK_ACQUIRED].fence > first->seen[RLOCK_ACQUIRED].fence);
}

static void late_release_does_not_take_the_key_from_its_next_holder(void **state) {
    struct owner *first = holder(0, "key", 1000), *next = waiter(1, "key", RLOCK_FOREVER);
    (void)state;
    freeze(0, true);
    run_ms(2000);
    assert_true(granted(next));
    SAME(owner_release(first), RLOCK_OK);
    freeze(0, false);
    run_ms(1000);
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_ERR_LOST);
    SAME(first->seen[RLOCK_LOST].count, 0);
    assert_true(rlock_is_held(next->lock));
    {
        struct owner *third = handle(2, "key");
        SAME(owner_acquire(third, 0, 0), RLOCK_OK);
        run_ms(1);
        SAME(third->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    }
}

static bool is_taken(int client, const char *key) {
    struct owner *owner = handle(client, key);
    SAME(owner_acquire(owner, 0, 10000), RLOCK_OK);
    run_ms(1);
    return owner->seen[RLOCK_ACQUIRED].status == RLOCK_ERR_BUSY;
}

/* The holder freezes, so that it cannot let go by itself at its own deadline. */
static void shorter_renewal_lowers_the_deadline_and_not_the_servers_lease(void **state) {
    struct owner *first = holder(0, "key", 5000);
    int64_t start_us = first->seen[RLOCK_ACQUIRED].at_us;
    (void)state;
    SAME(owner_renew(first, 1000), RLOCK_OK);
    run_ms(1);
    SAME(first->seen[RLOCK_RENEWED].status, RLOCK_OK);
    BETWEEN(rlock_remaining_ms(first->lock), 900, 1000);
    freeze(0, true);
    run_ms(2000);
    assert_false(rlock_is_held(first->lock));
    assert_true(is_taken(1, "key"));
    virtual_run_until(&g.loop, start_us + 4900 * 1000);
    assert_true(is_taken(1, "key"));
    virtual_run_until(&g.loop, start_us + 5100 * 1000);
    assert_false(is_taken(1, "key"));
    freeze(0, false);
    run_ms(1);
    SAME(first->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
}

static void single_tries_find_an_expired_key_free(void **state) {
    (void)state;
    (void)holder(0, "key", 50);
    run_ms(60);
    (void)holder(1, "key", 50);
}

/* ------------------------------------------------------------------------------------------------
 * Fencing and re-entrance.
 */

/* All in one microsecond: only what was reserved keeps the numbers apart. */
static void fences_rise_over_holds_that_were_handed_on(void **state) {
    struct owner *owners[4];
    rlock_stats stats;
    int i;
    (void)state;
    owners[0] = holder(0, "key", 10000);
    owners[1] = waiter(0, "key", RLOCK_FOREVER);
    owners[2] = waiter(0, "key", RLOCK_FOREVER);
    owners[3] = handle(1, "key");
    for (i = 0; i < 3; i++) {
        assert_true(granted(owners[i]));
        SAME(owner_release(owners[i]), RLOCK_OK);
        virtual_idle(&g.loop);
        SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    rlock_client_stats(g.clients[0], &stats);
    SAME(stats.handed_on, 1);
    SAME(owner_acquire(owners[3], 0, 10000), RLOCK_OK);
    virtual_idle(&g.loop);
    assert_true(granted(owners[3]));
    for (i = 1; i < 4; i++) {
        assert_true(owners[i]->seen[RLOCK_ACQUIRED].fence >
                    owners[i - 1]->seen[RLOCK_ACQUIRED].fence);
    }
}

static void reentrant_hold_excludes_others_until_its_last_release(void **state) {
    rlock_options options;
    struct owner *owner, *next;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "key";
    options.reentrant = true;
    owner = owner_new(&g.loop, g.clients[0], &options);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    run_ms(1);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    run_ms(1);
    SAME(rlock_hold_count(owner->lock), 2);
    next = waiter(1, "key", RLOCK_FOREVER);
    release(owner);
    run_ms(2 * WATCHDOG_MS);
    assert_false(granted(next));
    release(owner);
    run_ms(20);
    assert_true(granted(next));
}

/* ------------------------------------------------------------------------------------------------
 * Ends.
 */

static void on_done(rlock_client *client, int status, void *user) {
    (void)client;
    assert_ptr_equal(user, &g);
    g.done_count++;
    g.done_status = status;
}

static void shutdown_gives_everything_to_the_waiters_of_others(void **state) {
    struct owner *a = holder(0, "a", 60000), *b = holder(0, "b", 0);
    struct owner *next_a = waiter(1, "a", RLOCK_FOREVER), *next_b = waiter(2, "b", RLOCK_FOREVER);
    struct owner *waits = waiter(0, "a", RLOCK_FOREVER);
    (void)state;
    SAME(rlock_client_shutdown(g.clients[0], 1000, on_done, &g), RLOCK_OK);
    run_ms(20);
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
    SAME(a->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    SAME(b->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    assert_true(granted(next_a));
    assert_true(granted(next_b));
}

static void client_free_of_a_waiting_client_disturbs_no_other_client(void **state) {
    struct owner *first = holder(0, "key", 60000), *waits = waiter(1, "key", RLOCK_FOREVER);
    struct owner *next = waiter(2, "key", RLOCK_FOREVER);
    (void)state;
    free_client(1);
    run_ms(100);
    release(first);
    run_ms(20);
    assert_true(granted(next));
    SAME(waits->events, 0);
}

static void handle_free_in_every_state_leaves_the_key_to_others(void **state) {
    int row;
    (void)state;
    for (row = 0; row < 5; row++) { /* idle, asked, waiting, held, releasing */
        struct owner *first = row == 2 ? holder(0, "key", 60000) : NULL;
        struct owner *owner = row >= 3 ? holder(1, "key", 60000) : handle(1, "key");
        if (row == 1 || row == 2) {
            SAME(owner_acquire(owner, RLOCK_FOREVER, 60000), RLOCK_OK);
        }
        if (row == 2) {
            run_ms(10);
        }
        if (row == 4) {
            SAME(owner_release(owner), RLOCK_OK);
        }
        owner_free(owner);
        run_ms(20);
        if (first != NULL) {
            release(first);
        }
        owner = holder(2, "key", 60000);
        release(owner);
    }
}

static void clients_come_and_go_and_the_store_keeps_their_keys(void **state) {
    struct owner *first = holder(0, "key", 60000);
    (void)state;
    free_client(1);
    free_client(2);
    SAME(rlock_client_new(&g.clients[1], &g.config), RLOCK_OK);
    {
        struct owner *other = handle(1, "key");
        SAME(owner_acquire(other, 0, 0), RLOCK_OK);
        run_ms(1);
        SAME(other->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    }
    release(first);
}

static void store_without_an_argument_or_memory_is_refused(void **state) {
    rlock_store *store = NULL;
    uint64_t n;
    (void)state;
    SAME(rlock_memory_new(NULL), RLOCK_ERR_ARG);
    rlock_memory_free(NULL);
    for (n = 1; n < 100; n++) {
        int status;
        virtual_memory.fail_at = n;
        virtual_memory.failed = false;
        status = rlock_memory_new(&store);
        virtual_memory.fail_at = 0;
        if (!virtual_memory.failed) {
            SAME(status, RLOCK_OK);
            rlock_memory_free(store);
            break;
        }
        SAME(status, RLOCK_ERR_NOMEM);
        assert_null(store);
        SAME(virtual_memory.live, 0);
    }
    BETWEEN(n, 2, 99);
}

/* ------------------------------------------------------------------------------------------------
 * Memory.
 */

static void round_of_locking(struct owner *first, struct owner *second) {
    SAME(owner_acquire(first, RLOCK_FOREVER, 0), RLOCK_OK);
    run_ms(1);
    SAME(owner_acquire(second, RLOCK_FOREVER, 0), RLOCK_OK);
    run_ms(WATCHDOG_MS);
    SAME(owner_release(first), RLOCK_OK);
    run_ms(WATCHDOG_MS);
    SAME(owner_release(second), RLOCK_OK);
    run_ms(20);
    SAME(second->seen[RLOCK_RELEASED].status, RLOCK_OK);
}

static void nothing_is_allocated_between_acquire_and_release_once_warm(void **state) {
    struct owner *first = handle(0, "key"), *same = handle(0, "key"), *other = handle(1, "key");
    uint64_t total;
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        round_of_locking(first, same);
        round_of_locking(first, other);
    }
    total = virtual_memory.total;
    for (i = 0; i < 50; i++) {
        round_of_locking(first, same);
        round_of_locking(first, other);
    }
    SAME(virtual_memory.total - total, 0);
}

static void ok_or_nomem(int status) {
    if (status != RLOCK_OK) {
        SAME(status, RLOCK_ERR_NOMEM);
        assert_true(virtual_memory.failed);
    }
}

static void contend(struct owner *owners[2]) {
    int i;
    for (i = 0; i < 2; i++) {
        ok_or_nomem(owner_acquire(owners[i], 10000, 0));
        run_ms(WATCHDOG_MS);
    }
    for (i = 0; i < 4; i++) {
        struct owner *owner = owners[i % 2];
        if (rlock_is_held(owner->lock)) {
            SAME(owner_release(owner), RLOCK_OK);
        }
        run_ms(WATCHDOG_MS);
    }
    run_ms(20000);
    for (i = 0; i < 2; i++) {
        SAME(owner_pending(owners[i]), 0);
        if (owners[i]->seen[RLOCK_ACQUIRED].count > 0) {
            ok_or_nomem(owners[i]->seen[RLOCK_ACQUIRED].status);
        }
        SAME(owners[i]->seen[RLOCK_LOST].count, 0);
    }
}

/* Two clients fight for a key. Whatever allocation fails, nobody crashes, leaks or hangs. */
static void scenario(void) {
    struct owner *owners[2] = {NULL, NULL};
    int i, status = rlock_memory_new(&g.store);
    ok_or_nomem(status);
    if (status != RLOCK_OK) {
        return;
    }
    g.config.store = g.store;
    for (i = 0; i < 2; i++) {
        status = rlock_client_new(&g.clients[i], &g.config);
        ok_or_nomem(status);
        if (status == RLOCK_OK) {
            rlock_options options;
            memset(&options, 0, sizeof options);
            options.key = "key";
            options.fencing = true;
            owners[i] = owner_attempt(&g.loop, g.clients[i], &options, &status);
            ok_or_nomem(status);
        }
    }
    if (owners[0] != NULL && owners[1] != NULL) {
        contend(owners);
    }
    virtual_free_owners(&g.loop);
    for (i = 0; i < 2; i++) {
        if (g.clients[i] != NULL) {
            free_client(i);
        }
    }
    rlock_memory_free(g.store);
    g.store = NULL;
}

static void every_failing_allocation_is_survived_and_leaks_nothing(void **state) {
    uint64_t n;
    (void)state;
    for (n = 1; n < 1000; n++) {
        setup_stopped(NULL);
        virtual_memory.fail_at = n;
        scenario();
        virtual_end(&g.loop);
        if (!virtual_memory.failed) {
            break;
        }
    }
    BETWEEN(n, 6, 999); /* a store, two clients and two handles are five allocations at least */
}

/* ------------------------------------------------------------------------------------------------
 * The store alone, asked by its contract as the core would.
 */

static struct {
    void *state;
    int answers, woken;
    rlock_answer answer;
} alone;

static void alone_answered(void *owner, rlock_request *request, const rlock_answer *answer) {
    assert_ptr_equal(owner, &alone);
    (void)request;
    alone.answers++;
    alone.answer = *answer;
}
static void alone_up(void *owner, const rlock_part *part) {
    assert_null(part);
    assert_ptr_equal(owner, &alone);
}
static void alone_down(void *owner, const rlock_part *part, rlock_fault fault, const char *text) {
    (void)owner, (void)part, (void)fault, (void)text;
    fail_msg("a store inside the process is never down");
}
static void alone_pushing(void *owner, const rlock_part *part, unsigned what) {
    assert_null(part);
    assert_ptr_equal(owner, &alone);
    assert_int_equal(what, RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
}
static void alone_woken(void *owner, const char *key, size_t key_len) {
    assert_ptr_equal(owner, &alone);
    SAME(key_len, 3);
    assert_memory_equal(key, "key", 3);
    alone.woken++;
}

static void alone_called(void *owner, const char *key, size_t key_len, uint64_t token) {
    (void)owner, (void)key, (void)key_len, (void)token;
    fail_msg("it is closed before the call");
}

static const rlock_store_events alone_events = {alone_answered, alone_up,    alone_down,
                                                alone_pushing,  alone_woken, alone_called};

static void alone_begins(void) {
    rlock_config config = g.config;
    config.command_timeout_ms = TURN_MS; /* a client resolves it */
    memset(&alone, 0, sizeof alone);
    SAME(g.store->open(g.store, g.clients[0], &config, &alone_events, &alone, &alone.state),
         RLOCK_OK);
}

static rlock_outcome alone_asks(rlock_op op, uint64_t token) {
    rlock_request request;
    int answers = alone.answers;
    memset(&request, 0, sizeof request);
    request.op = (uint8_t)op;
    request.key = "key";
    request.key_len = 3;
    request.token = token;
    request.lease_ms = op == RLOCK_OP_RELEASE ? 0 : 1000;
    g.store->submit(alone.state, &request);
    SAME(alone.answers, answers); /* never from inside */
    run_ms(0);
    SAME(alone.answers, answers + 1);
    return alone.answer.outcome;
}

static void store_tells_tokens_of_one_client_apart(void **state) {
    (void)state;
    alone_begins();
    SAME(alone_asks(RLOCK_OP_ACQUIRE, 1), RLOCK_OUTCOME_DONE);
    SAME(alone_asks(RLOCK_OP_ACQUIRE, 2), RLOCK_OUTCOME_HELD);
    SAME(alone_asks(RLOCK_OP_RENEW, 2), RLOCK_OUTCOME_STOLEN);
    SAME(alone_asks(RLOCK_OP_RELEASE, 2), RLOCK_OUTCOME_STOLEN);
    SAME(alone_asks(RLOCK_OP_ACQUIRE, 1), RLOCK_OUTCOME_DONE); /* asked for once more */
    SAME(alone_asks(RLOCK_OP_RELEASE, 1), RLOCK_OUTCOME_DONE);
    SAME(alone_asks(RLOCK_OP_RELEASE, 1), RLOCK_OUTCOME_GONE);
    g.store->close(alone.state);
}

/* Keys that others take and leave: entries that are not in use go meanwhile. */
static void others_come_and_go(int client) {
    int i;
    for (i = 0; i < 10; i++) {
        struct owner *owner = holder(client, i % 2 ? "some" : "others", 1000);
        release(owner);
        owner_free(owner);
    }
}

static void token_is_gone_once_its_key_is_forgotten(void **state) {
    (void)state;
    alone_begins();
    SAME(alone_asks(RLOCK_OP_ACQUIRE, 1), RLOCK_OUTCOME_DONE);
    run_ms(1001);
    others_come_and_go(1);
    SAME(alone_asks(RLOCK_OP_RENEW, 1), RLOCK_OUTCOME_GONE);
    SAME(alone_asks(RLOCK_OP_RELEASE, 1), RLOCK_OUTCOME_GONE);
    SAME(alone_asks(RLOCK_OP_ACQUIRE, 2), RLOCK_OUTCOME_DONE);
    g.store->close(alone.state);
}

static void key_may_be_watched_before_anybody_had_it(void **state) {
    (void)state;
    alone_begins();
    g.store->track(alone.state, "key", 3, false); /* nobody knows it, nothing to forget */
    g.store->track(alone.state, "key", 3, true);
    g.store->track(alone.state, "key", 3, true); /* may be repeated */
    release(holder(1, "key", 1000));
    SAME(alone.woken, 1);
    g.store->track(alone.state, "key", 3, false);
    release(holder(1, "key", 1000));
    SAME(alone.woken, 1);
    g.store->close(alone.state);
}

static void watch_without_memory_fails_and_harms_no_other_watch(void **state) {
    int fails;
    (void)state;
    for (fails = 1; fails <= 2; fails++) { /* the key's entry, then the watch on it */
        struct owner *owner;
        alone_begins();
        virtual_memory.fail_at = (uint64_t)fails;
        virtual_memory.failed = false;
        g.store->track(alone.state, "key", 3, true);
        assert_true(virtual_memory.failed);
        owner = holder(1, "key", 1000);
        g.store->track(alone.state, "key", 3, false);
        release(owner);
        SAME(alone.woken, 0);
        g.store->close(alone.state);
        owner = holder(2, "other", 1000); /* two steps of the sweep, and its key is free again */
        release(owner);
        owner_free(owner);
        release(holder(1, "third", 1000));
    }
}

static void stall_990_ms(struct owner *owner, const rlock_event *event) {
    (void)owner;
    if (event->kind == RLOCK_ACQUIRED) {
        virtual_stall(&g.loop, 990000);
    }
}

/* Its local deadline passed before it could be told, the key's lease did not: it is asked for once
 * more with the same token, and is no other's. */
static void grant_reported_too_late_is_asked_for_again_and_got(void **state) {
    struct owner *slow = handle(0, "slow"), *late = handle(0, "late"), *rival = handle(1, "late");
    int64_t begun_us = now_us();
    (void)state;
    slow->react = stall_990_ms;
    SAME(owner_acquire(slow, 0, 60000), RLOCK_OK);
    SAME(owner_acquire(late, RLOCK_FOREVER, 1000), RLOCK_OK);
    run_ms(0);
    assert_false(granted(late));
    run_ms(0); /* the clock has gone on */
    assert_true(granted(late));
    SAME(late->events, 1);
    SAME(late->seen[RLOCK_ACQUIRED].at_us - begun_us, 990000);
    BETWEEN(rlock_remaining_ms(late->lock), 900, 1000);
    SAME(owner_acquire(rival, 0, 1000), RLOCK_OK);
    run_ms(0);
    SAME(rival->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    BETWEEN(rival->seen[RLOCK_ACQUIRED].remaining_ms, 900, 1000);
}

/* ------------------------------------------------------------------------------------------------
 * A storm: random calls of many handles, with processes that freeze.
 */

#define STORM_HANDLES 18
#define STORM_STEPS 20000
#define STORM_KEYS 2

struct storm_key {
    uint64_t fence; /* of the latest grant */
    int grants;
};

static void on_storm(struct owner *owner, const rlock_event *event) {
    struct storm_key *key = (struct storm_key *)owner->context;
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK) {
        assert_true(event->fence > key->fence); /* fences rise in the order of the grants */
        key->fence = event->fence;
        key->grants++;
    }
}

static void storm_call(struct owner *owner, uint64_t *seed) {
    static const int64_t leases[] = {0, 50, 300, 2000}, waits[] = {0, 30, 500, RLOCK_FOREVER};
    uint32_t dice = virtual_random(seed);
    switch (dice % 8) {
    case 0:
    case 1:
    case 2: (void)owner_acquire(owner, waits[dice / 8 % 4], leases[dice / 32 % 4]); break;
    case 3:
    case 4:
    case 5: (void)owner_release(owner); break;
    case 6: (void)owner_renew(owner, leases[dice / 8 % 4]); break;
    default: (void)owner_cancel(owner); break;
    }
}

static void storm_check(struct owner *owners[STORM_HANDLES]) {
    int i, held[STORM_KEYS] = {0, 0};
    for (i = 0; i < STORM_HANDLES; i++) {
        held[i % STORM_KEYS] += rlock_is_held(owners[i]->lock) ? 1 : 0;
    }
    for (i = 0; i < STORM_KEYS; i++) {
        BETWEEN(held[i], 0, 1);
    }
}

static void storm_calms(struct owner *owners[], int count) {
    int i, turn;
    for (i = 0; i < CLIENTS; i++) {
        freeze(i, false);
    }
    for (turn = 0; turn < 10 * count; turn++) {
        run_ms(100);
        for (i = 0; i < count; i++) {
            if (rlock_is_held(owners[i]->lock)) {
                (void)owner_release(owners[i]);
            }
        }
    }
    for (i = 0; i < count; i++) {
        SAME(owner_pending(owners[i]), 0); /* every waiter was served */
        assert_false(owners[i]->holding);
    }
}

static void storm(uint64_t seed) {
    struct owner *owners[STORM_HANDLES];
    struct storm_key keys[STORM_KEYS];
    int i, step;
    setup(NULL);
    memset(keys, 0, sizeof keys);
    for (i = 0; i < STORM_HANDLES; i++) {
        owners[i] = handle(i % CLIENTS, i % STORM_KEYS == 0 ? "even" : "odd");
        owners[i]->react = on_storm;
        owners[i]->context = &keys[i % STORM_KEYS];
    }
    for (step = 0; step < STORM_STEPS; step++) {
        storm_call(owners[virtual_random(&seed) % STORM_HANDLES], &seed);
        if (virtual_random(&seed) % 50 == 0) {
            freeze((int)(virtual_random(&seed) % CLIENTS), virtual_random(&seed) % 3 == 0);
        }
        if (virtual_random(&seed) % 3 == 0) {
            virtual_run_until(&g.loop, now_us() + virtual_random(&seed) % 40000);
        }
        storm_check(owners);
    }
    storm_calms(owners, STORM_HANDLES);
    BETWEEN(keys[0].grants, 100, STORM_STEPS);
    BETWEEN(keys[1].grants, 100, STORM_STEPS);
    teardown(NULL);
}

static void storm_of_calls_never_makes_two_holders_and_serves_every_waiter(void **state) {
    uint64_t seed;
    (void)state;
    for (seed = 1; seed <= 5; seed++) {
        storm(seed);
    }
}

#include "memory_kinds.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define STOPPED(name) cmocka_unit_test_setup_teardown(name, setup_stopped, teardown)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        CASE(keys_of_one_hash_are_told_apart),
        CASE(store_without_random_bytes_is_not_made),
        CASE(stores_are_independent),
        CASE(clock_that_steps_back_makes_no_second_holder),
        CASE(client_made_after_the_clock_stepped_back_holds_for_its_lease),
        CASE(frozen_holder_is_succeeded_after_its_lease_and_notified_when_it_thaws),
        CASE(late_release_does_not_take_the_key_from_its_next_holder),
        CASE(shorter_renewal_lowers_the_deadline_and_not_the_servers_lease),
        CASE(single_tries_find_an_expired_key_free),
        CASE(fences_rise_over_holds_that_were_handed_on),
        CASE(reentrant_hold_excludes_others_until_its_last_release),
        CASE(shutdown_gives_everything_to_the_waiters_of_others),
        CASE(client_free_of_a_waiting_client_disturbs_no_other_client),
        CASE(handle_free_in_every_state_leaves_the_key_to_others),
        CASE(clients_come_and_go_and_the_store_keeps_their_keys),
        STOPPED(store_without_an_argument_or_memory_is_refused),
        CASE(nothing_is_allocated_between_acquire_and_release_once_warm),
        STOPPED(every_failing_allocation_is_survived_and_leaks_nothing),
        CASE(store_tells_tokens_of_one_client_apart),
        CASE(token_is_gone_once_its_key_is_forgotten),
        CASE(key_may_be_watched_before_anybody_had_it),
        CASE(watch_without_memory_fails_and_harms_no_other_watch),
        CASE(grant_reported_too_late_is_asked_for_again_and_got),
#if RLOCK__HAS_KINDS
        CASE(fair_a_dead_holder_is_followed_within_its_lease_and_a_moment),
        CASE(fair_waiter_that_misses_its_turn_is_followed_by_the_next),
        CASE(fair_line_without_a_holder_keeps_its_order_while_it_sleeps),
        CASE(line_that_was_left_by_all_leaves_nothing_behind),
        CASE(reader_does_not_come_beside_a_writer_that_is_gone),
        CASE(each_key_of_a_set_wakes_who_waits_in_every_client),
        CASE(waiter_that_goes_does_not_make_the_others_of_its_key_deaf),
        CASE(frozen_holder_hears_of_its_forced_release_when_it_thaws),
        CASE(hold_that_was_forced_is_forgotten_only_when_its_holder_heard),
        CASE(who_was_called_and_forced_before_it_heard_has_nothing),
        CASE(hold_of_a_client_that_went_without_a_word_has_its_token_and_is_forced),
        CASE(question_about_a_key_that_nobody_used_finds_it_free),
        CASE(number_of_permits_for_which_there_is_no_memory_is_not_set),
        CASE(set_number_of_permits_is_forgotten_a_day_after_its_last_use),
        CASE(set_number_of_permits_outlives_other_keys),
        CASE(who_weighs_more_than_there_are_does_not_block_the_line),
        CASE(line_of_another_kind_keeps_its_key_free_for_it),
        CASE(who_is_of_another_kind_serves_nobody_in_line),
        CASE(number_of_permits_that_is_over_is_no_other_kinds),
        CASE(no_waiter_is_served_while_a_mutex_holds_the_key),
        CASE(client_that_goes_without_a_word_leaves_no_one_in_line),
        CASE(release_as_another_kind_serves_nobody_in_line),
        cmocka_unit_test(every_failing_allocation_of_the_kinds_is_survived),
        cmocka_unit_test(storm_of_kinds_grants_no_more_than_there_is_and_serves_every_waiter),
#endif
        cmocka_unit_test(storm_of_calls_never_makes_two_holders_and_serves_every_waiter),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
