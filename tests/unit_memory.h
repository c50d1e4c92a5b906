/* unit_memory.h - memory: what is allocated, and what fails without it */
#ifndef TESTS_UNIT_MEMORY_H
#define TESTS_UNIT_MEMORY_H

static void round_of_locking(struct owner *first, struct owner *second) {
    SAME(owner_acquire(first, RLOCK_FOREVER, 0), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, 0), RLOCK_OK);
    run_ms(WATCHDOG_MS);
    SAME(owner_renew(first, 0), RLOCK_OK);
    run_ms(10);
    SAME(owner_release(first), RLOCK_OK);
    run_ms(WATCHDOG_MS);
    SAME(owner_release(second), RLOCK_OK);
    run_ms(10);
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_RELEASED].status, RLOCK_OK);
}

static void nothing_is_allocated_between_acquire_and_release_once_warm(void **state) {
    struct owner *first = handle("a"), *second = handle("b");
    uint64_t total;
    int i;
    (void)state;
    scripted_settle(&g.store);
    for (i = 0; i < 3; i++) {
        round_of_locking(first, second);
    }
    total = virtual_memory.total;
    for (i = 0; i < 100; i++) {
        round_of_locking(first, second);
    }
    SAME(virtual_memory.total - total, 0);
}

static void release_needs_no_memory(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    virtual_memory.fail_at = 1;
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    virtual_memory.fail_at = 0;
}

/* More than there is room for at once: the others follow, and holds are renewed meanwhile. */
static void releases_of_many_need_no_memory(void **state) {
    enum { ALL = 3 * RLOCK__FLIGHTS };
    struct owner *owners[ALL], *kept = holder("kept", 0);
    char key[16];
    int i;
    (void)state;
    scripted_settle(&g.store);
    for (i = 0; i < ALL; i++) {
        snprintf(key, sizeof key, "key %d", i);
        owners[i] = handle(key);
        SAME(owner_acquire(owners[i], 0, 10000), RLOCK_OK);
        idle();
    }
    virtual_memory.none = true;
    for (i = 0; i < ALL; i++) {
        SAME(owner_release(owners[i]), RLOCK_OK);
    }
    run_ms(200);
    for (i = 0; i < ALL; i++) {
        SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    run_ms(60000);
    SAME(rlock_is_held(kept->lock), true);
    virtual_memory.none = false;
    SAME(stats().cleaning, 0);
}

static int checks_of(uint64_t token) {
    int checks = 0;
    size_t i;
    for (i = 0; i < g.store.count; i++) {
        checks += g.store.log[i].op == RLOCK_OP_RENEW && g.store.log[i].token == token;
    }
    return checks;
}

/* Nothing can be asked while all that is kept for requests is out. */
static void request_without_memory_is_made_soon(void **state) {
    enum { ALL = RLOCK__FLIGHTS + 2 };
    struct owner *owners[ALL], *held = holder("held", 10000);
    struct owner *first = handle("key"), *next = handle("key");
    uint64_t token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
    int i, attempts, checks;
    char key[16];
    (void)state;
    scripted_settle(&g.store);
    for (i = 0; i < ALL; i++) {
        snprintf(key, sizeof key, "key %d", i);
        owners[i] = handle(key);
        SAME(owner_acquire(owners[i], 0, 10000), RLOCK_OK);
        idle();
    }
    run_ms(1000); /* each was looked at once */
    memset(g.store.automatic, 0, sizeof g.store.automatic);
    g.store.checks_by_hand = true;
    SAME(owner_acquire(first, RLOCK_FOREVER, 10000), RLOCK_OK);
    SAME(owner_acquire(next, RLOCK_FOREVER, 10000), RLOCK_OK);
    virtual_memory.none = true;
    for (i = 0; i < ALL; i++) {
        SAME(owner_release(owners[i]), RLOCK_OK);
    }
    SAME(asked(RLOCK_OP_RELEASE) < ALL, true);
    attempts = asked(RLOCK_OP_ACQUIRE);
    checks = checks_of(token);
    scripted_woken(&g.store, "held");
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_fault(RLOCK_FAULT_AUTH, "no"));
    idle();
    SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
    SAME(asked(RLOCK_OP_ACQUIRE), attempts);
    SAME(checks_of(token), checks);
    scripted_settle(&g.store);
    run_ms(1000);
    virtual_memory.none = false;
    for (i = 0; i < ALL; i++) {
        SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    SAME(asked(RLOCK_OP_ACQUIRE), attempts + 1);
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(checks_of(token) > checks, true);
    SAME(rlock_is_held(held->lock), true);
}

/* The server does not answer meanwhile. What was never asked ends for lack of memory. */
static void request_that_there_was_never_memory_for_ends_as_such(void **state) {
    enum { ALL = 2 * RLOCK__FLIGHTS };
    struct owner *owners[ALL], *first = handle("key"), *next = handle("key");
    char key[16];
    int i;
    (void)state;
    scripted_settle(&g.store);
    for (i = 0; i < ALL; i++) {
        snprintf(key, sizeof key, "key %d", i);
        owners[i] = handle(key);
        SAME(owner_acquire(owners[i], 0, 10000), RLOCK_OK);
        idle();
    }
    memset(g.store.automatic, 0, sizeof g.store.automatic);
    SAME(owner_acquire(first, RLOCK_FOREVER, 10000), RLOCK_OK);
    SAME(owner_acquire(next, 5, 10000), RLOCK_OK); /* it ends before there is a request again */
    virtual_memory.none = true;
    for (i = 0; i < ALL; i++) {
        SAME(owner_release(owners[i]), RLOCK_OK);
    }
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_fault(RLOCK_FAULT_AUTH, "no"));
    run_ms(6);
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_NOMEM);
    run_ms(10000);
    SAME(owners[0]->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN);
    SAME(owners[ALL - 1]->seen[RLOCK_RELEASED].status, RLOCK_ERR_NOMEM);
    virtual_memory.none = false;
}

static void freed_handles_give_back_what_was_kept_for_them(void **state) {
    enum { HANDLES = 100 };
    struct owner *owners[HANDLES];
    size_t before;
    char key[16];
    int i;
    (void)state;
    scripted_settle(&g.store);
    before = virtual_memory.live;
    for (i = 0; i < HANDLES; i++) {
        rlock_options options = options_for(key);
        snprintf(key, sizeof key, "key %d", i);
        options.reentrant = true;
        owners[i] = handle_with(&options);
        SAME(owner_acquire(owners[i], 0, 1000), RLOCK_OK);
    }
    idle();
    for (i = 0; i < HANDLES; i++) {
        SAME(owner_acquire(owners[i], 0, 1000), RLOCK_OK);
        SAME(owner_renew(owners[i], 0), RLOCK_OK);
    }
    idle();
    for (i = 0; i < 2 * HANDLES; i++) {
        SAME(owner_release(owners[i / 2]), RLOCK_OK);
    }
    idle();
    assert_true(virtual_memory.live > before + 2 * HANDLES);
    for (i = 0; i < HANDLES; i++) {
        SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
        owner_free(owners[i]);
    }
    SAME(virtual_memory.live, before + 1); /* the ring of so many claims stays */
}

static void holds_now(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    SAME(event->status, RLOCK_OK);
}

/* So many keys of 20 bytes are held, and registered, of which so many were asked for at once. */
static void hold_keys(rlock **locks, int count, int at_once) {
    rlock_options options;
    char key[24];
    int i;
    for (i = 0; i < count; i++) {
        snprintf(key, sizeof key, "held:%015d", i);
        options = options_for(key);
        SAME(rlock_new(&locks[i], g.client, &options), RLOCK_OK);
        SAME(rlock_acquire(locks[i], 0, 60000, holds_now, NULL), RLOCK_OK);
        if (i % at_once == at_once - 1) {
            run_ms(10);
        }
    }
    run_ms(1000);
    SAME(stats().held, count);
}

static void free_keys(rlock **locks, int count, int at_once) {
    int i;
    for (i = 0; i < count; i++) {
        rlock_free(locks[i]);
        if (i % at_once == at_once - 1) {
            run_ms(10);
        }
    }
}

/* Handle, gate, claim, map and what is kept for requests. */
static void held_key_takes_no_more_than_384_bytes(void **state) {
    enum { KEYS = 2048, AT_ONCE = 128 };
    static rlock *locks[KEYS];
    size_t before;
    (void)state;
    scripted_settle(&g.store);
    before = virtual_memory.bytes;
    hold_keys(locks, KEYS, AT_ONCE);
    BETWEEN((virtual_memory.bytes - before) / KEYS, 100, 384);
    free_keys(locks, KEYS, AT_ONCE);
}

/* Each of them had a line of waiters of its own, which it needs no more: few are kept, for the next
 * ones, as of requests. */
static void what_only_waiters_need_is_not_kept_for_each_hold(void **state) {
    enum { KEYS = 256, EACH = 3, KEPT = 64 }; /* a handle, a gate and a claim each */
    static rlock *locks[KEYS];
    size_t before;
    (void)state;
    scripted_settle(&g.store);
    before = virtual_memory.live;
    hold_keys(locks, KEYS, KEYS);
    BETWEEN(virtual_memory.live - before, EACH * KEYS, EACH * KEYS + KEPT);
    free_keys(locks, KEYS, KEYS);
}

static bool try_holding(struct owner *owner, int64_t wait_ms) {
    int status = owner_acquire(owner, wait_ms, 0);
    ok_or_nomem(status);
    run_ms(5000);
    if (status != RLOCK_OK) {
        return false;
    }
    SAME(owner_pending(owner), 0);
    if (!owner->holding) {
        ok_or_nomem(owner->seen[RLOCK_ACQUIRED].status);
    }
    return owner->holding;
}

/* Does a little of everything. Whichever allocation fails, calls and callbacks say OK or NOMEM. */
static void scenario(void) {
    struct owner *owners[2] = {NULL, NULL};
    int i, status = rlock_client_new(&g.client, &g.config);
    ok_or_nomem(status);
    if (status != RLOCK_OK) {
        return;
    }
    for (i = 0; i < 2; i++) {
        rlock_options options = options_for(i == 0 ? "a" : "b");
        options.fencing = true;
        owners[i] = owner_attempt(&g.loop, g.client, &options, &status);
        ok_or_nomem(status);
    }
    for (i = 0; i < 2; i++) {
        if (owners[i] != NULL && try_holding(owners[i], i == 0 ? 0 : RLOCK_FOREVER)) {
            status = owner_renew(owners[i], 0);
            ok_or_nomem(status);
            run_ms(100);
            ok_or_nomem(owners[i]->seen[RLOCK_RENEWED].status);
            SAME(owner_release(owners[i]), RLOCK_OK);
            run_ms(100);
            SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
        }
    }
    for (i = 0; i < 2; i++) {
        if (owners[i] != NULL && owner_acquire(owners[i], RLOCK_FOREVER, 0) == RLOCK_OK && i == 0) {
            SAME(owner_cancel(owners[i]), RLOCK_OK);
        }
    }
    run_ms(10);
    ok_or_nomem(rlock_client_shutdown(g.client, 1000, on_done, &g));
    run_ms(5000);
    free_client();
    virtual_free_owners(&g.loop);
}

static void every_failing_allocation_is_survived_and_leaks_nothing(void **state) {
    uint64_t n;
    (void)state;
    for (n = 1; n < 1000; n++) {
        setup_stopped(NULL);
        scripted_always(&g.store, RLOCK_OP_ACQUIRE, scripted_fenced(7));
        scripted_always(&g.store, RLOCK_OP_RENEW, scripted_done());
        scripted_always(&g.store, RLOCK_OP_RELEASE, scripted_done());
        virtual_memory.fail_at = n;
        scenario();
        SAME(g.store.opens, g.store.closes);
        virtual_end(&g.loop);
        if (!virtual_memory.failed) {
            break;
        }
    }
    BETWEEN(n, 4, 999); /* a client and two handles are three allocations at least */
}

#define CROWD 40 /* more than the first tables of keys and of timers have room for */

/* Makes handles and acquires with each. A call without memory says so, and works when repeated. */
static void crowd_grows(int first) {
    char key[16];
    int i, call, status;
    for (i = 0; i < CROWD; i++) {
        struct owner *owner = NULL;
        rlock_options options = options_for(key);
        snprintf(key, sizeof key, "%d", i);
        for (call = 0; call < (i >= first ? 2 : 1); call++) {
            int fails = 0;
            do {
                virtual_memory.fail_at = (uint64_t)++fails;
                virtual_memory.failed = false;
                if (call == 0) {
                    owner = owner_attempt(&g.loop, g.client, &options, &status);
                } else {
                    status = owner_acquire(owner, RLOCK_FOREVER, 60000);
                }
                ok_or_nomem(status);
                BETWEEN(fails, 1, 10);
            } while (status != RLOCK_OK);
            virtual_memory.fail_at = 0;
        }
    }
}

static void tables_that_cannot_grow_cost_a_status_and_nothing_else(void **state) {
    int first, i;
    (void)state;
    for (first = 0; first < 2; first++) { /* a handle meets the limit, then an acquire */
        setup(NULL);
        always(RLOCK_OP_ACQUIRE, scripted_done());
        always(RLOCK_OP_RELEASE, scripted_done());
        crowd_grows(first);
        idle();
        for (i = first; i < CROWD; i++) {
            SAME(g.loop.owners[i].seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        }
        SAME(stats().handles, CROWD);
        SAME(stats().held, CROWD - first);
        for (i = 0; i < CROWD; i++) { /* each is found again under its key */
            struct owner *other = handle(rlock_key(g.loop.owners[i].lock, NULL));
            SAME(owner_acquire(other, 0, 1000), RLOCK_OK);
            idle();
            SAME(other->seen[RLOCK_ACQUIRED].status, i < first ? RLOCK_OK : RLOCK_ERR_BUSY);
        }
        if (first == 0) {
            teardown(NULL);
        }
    }
}

static void nothing(rlock_timer *timer) {
    (void)timer;
}

/* Also where the table of timers has to grow: for a claim, or with one timer more for a crowd. */
static void acquire_is_refused_by_each_allocation_that_fails(void **state) {
    int odd, i;
    (void)state;
    for (odd = 0; odd < 2; odd++) {
        rlock_timer timer;
        int refused = 0;
        setup(NULL);
        SAME(odd ? rlock_timer_add(g.client, &timer, nothing) : RLOCK_OK, RLOCK_OK);
        for (i = 0; i < CROWD; i++) {
            char key[16];
            struct owner *owner;
            uint64_t n = 0;
            int status;
            snprintf(key, sizeof key, "%d", i);
            owner = handle(key);
            do {
                virtual_memory.fail_at = ++n;
                status = owner_acquire(owner, RLOCK_FOREVER, 1000);
                ok_or_nomem(status);
                refused += status == RLOCK_ERR_NOMEM;
            } while (status == RLOCK_ERR_NOMEM);
            virtual_memory.fail_at = 0;
        }
        BETWEEN(refused, CROWD, 5 * CROWD);
        SAME(stats().waiting, CROWD);
        if (odd) {
            rlock_timer_drop(g.client, &timer);
        } else {
            teardown(NULL);
        }
    }
}

/* Does a little with each kind and question. Its allocations fail one after the other. */
static void kinds_scenario(void) {
    static const char *const keys[] = {"a", "b"};
    rlock_options options = options_for(NULL);
    struct owner *owners[3] = {NULL, NULL, NULL};
    int i, status = RLOCK_OK, asked_for = 0;
    options.keys = keys;
    options.key_count = 2;
    for (i = 0; i < 3; i++) {
        g.kind = i == 0 ? RLOCK_KIND_MUTEX : RLOCK_KIND_READ;
        if (i > 0) {
            options = options_for("a");
        }
        owners[i] = owner_attempt(&g.loop, g.client, &options, &status);
        ok_or_nomem(status);
        if (owners[i] != NULL) {
            ok_or_nomem(owner_acquire(owners[i], RLOCK_FOREVER, 1000));
        }
    }
    idle();
    memset(&told, 0, sizeof told);
    for (i = 0; i < 2; i++) {
        status = i == 0 ? rlock_inspect(g.client, &options, on_info, &told)
                        : rlock_force_release(g.client, &options, on_info, &told);
        ok_or_nomem(status);
        asked_for += status == RLOCK_OK ? 1 : 0;
        idle();
        if (told.info.status != RLOCK_ERR_SERVER) { /* the text is reported if there is memory */
            ok_or_nomem(told.info.status);
        }
        SAME(told.info.token == NULL, told.info.token_len == 0);
    }
    SAME(told.count, asked_for);
    for (i = 0; i < 3; i++) {
        if (owners[i] != NULL && owners[i]->holding) {
            SAME(owner_release(owners[i]), RLOCK_OK);
        }
    }
    run_ms(5000);
}

static void every_failing_allocation_of_the_kinds_is_survived(void **state) {
    rlock_info info;
    uint64_t n;
    (void)state;
    for (n = 1; n < 1000; n++) {
        setup(NULL);
        scripted_always(&g.store, RLOCK_OP_ACQUIRE, scripted_done());
        scripted_always(&g.store, RLOCK_OP_RENEW, scripted_done());
        scripted_always(&g.store, RLOCK_OP_RELEASE, scripted_done());
        scripted_always(&g.store, RLOCK_OP_INSPECT, scripted_info(&info));
        scripted_always(&g.store, RLOCK_OP_FORCE,
                        scripted_fault(RLOCK_FAULT_BUSY, "words that need memory"));
        virtual_memory.failed = false;
        virtual_memory.fail_at = n;
        kinds_scenario();
        virtual_memory.fail_at = 0;
        if (!virtual_memory.failed) {
            break;
        }
        teardown(NULL);
    }
    teardown(NULL);
    BETWEEN(n, 8, 999);
}

#endif /* TESTS_UNIT_MEMORY_H */
