/* memory_kinds.h - the queued kinds, several keys and questions: a part of memory.c */

static rlock_options options_of(rlock_kind kind, uint32_t permits, uint32_t weight) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = kind;
    options.permits = kind == RLOCK_KIND_SEMAPHORE && permits == 0 ? 2 : permits;
    options.weight = weight;
    return options;
}

static struct owner *of_kind(int client, rlock_kind kind) {
    rlock_options options = options_of(kind, 0, 0);
    return owner_new(&g.loop, g.clients[client], &options);
}

static struct owner *permit(int client, uint32_t permits, uint32_t weight) {
    rlock_options options = options_of(RLOCK_KIND_SEMAPHORE, permits, weight);
    return owner_new(&g.loop, g.clients[client], &options);
}

static struct owner *of_keys(int client, const char *a, const char *b) {
    const char *keys[3];
    rlock_options options;
    keys[0] = a, keys[1] = b, keys[2] = "third";
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 3;
    options.fencing = true;
    return owner_new(&g.loop, g.clients[client], &options);
}

/* One try, and how it ended. */
static int tried(struct owner *owner, int64_t lease_ms) {
    SAME(owner_acquire(owner, 0, lease_ms), RLOCK_OK);
    run_ms(1);
    return owner->seen[RLOCK_ACQUIRED].status;
}

static struct owner *held(struct owner *owner) {
    SAME(tried(owner, 60000), RLOCK_OK);
    return owner;
}

static struct owner *waits(struct owner *owner) {
    SAME(owner_acquire(owner, RLOCK_FOREVER, 60000), RLOCK_OK);
    run_ms(1);
    assert_false(rlock_is_held(owner->lock));
    return owner;
}

static bool holds(const struct owner *owner) {
    return rlock_is_held(owner->lock);
}

static struct {
    int count;
    rlock_info info;
    char token[64];
} told;

static void on_info(rlock_client *client, const rlock_info *info, void *user) {
    assert_non_null(client);
    assert_ptr_equal(user, &told);
    told.count++;
    told.info = *info;
    snprintf(told.token, sizeof told.token, "%s", info->token != NULL ? info->token : "");
}

static const rlock_info *answered(int status) {
    memset(&told, 0, sizeof told);
    SAME(status, RLOCK_OK);
    run_ms(1);
    SAME(told.count, 1);
    return &told.info;
}

static const rlock_info *inspected(int client, const rlock_options *options) {
    return answered(rlock_inspect(g.clients[client], options, on_info, &told));
}

/* --- fair --- */

static void fair_a_dead_holder_is_followed_within_its_lease_and_a_moment(void **state) {
    struct owner *dies = of_kind(0, RLOCK_KIND_FAIR), *next;
    rlock_stats now;
    (void)state;
    SAME(tried(dies, 700), RLOCK_OK);
    freeze(0, true);
    next = waits(of_kind(1, RLOCK_KIND_FAIR));
    run_ms(690);
    assert_false(holds(next));
    run_ms(20);
    assert_true(holds(next));
    rlock_client_stats(g.clients[1], &now);
    SAME(now.woken, 0); /* who is asking need not be called */
    freeze(0, false);
    run_ms(1);
    SAME(dies->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
}

static void fair_waiter_that_misses_its_turn_is_followed_by_the_next(void **state) {
    struct owner *first = held(of_kind(0, RLOCK_KIND_FAIR));
    struct owner *sleeps = waits(of_kind(1, RLOCK_KIND_FAIR));
    struct owner *next = waits(of_kind(2, RLOCK_KIND_FAIR));
    (void)state;
    freeze(1, true);
    release(first);
    run_ms(TURN_MS - 100);
    assert_false(holds(next));
    run_ms(100 + TURN_MS / 2);
    assert_true(holds(next));
    freeze(1, false);
    run_ms(10);
    assert_false(holds(sleeps));
    release(next);
    assert_true(holds(sleeps)); /* it stands in the line again */
}

/* Nobody holds, and nobody asks: the places stay, whatever becomes of other keys. */
static void fair_line_without_a_holder_keeps_its_order_while_it_sleeps(void **state) {
    struct owner *dies = of_kind(0, RLOCK_KIND_FAIR), *first, *next;
    (void)state;
    SAME(tried(dies, 100), RLOCK_OK);
    first = waits(of_kind(0, RLOCK_KIND_FAIR));
    next = waits(of_kind(1, RLOCK_KIND_FAIR));
    freeze(0, true);
    freeze(1, true);
    run_ms(10 * TURN_MS);
    others_come_and_go(2);
    freeze(1, false);
    run_ms(TURN_MS - 100);
    assert_false(holds(next)); /* it is the turn of the one that sleeps */
    run_ms(100 + TURN_MS / 2);
    assert_true(holds(next));
    freeze(0, false);
    run_ms(1);
    release(next);
    assert_true(holds(first));
}

static void line_that_was_left_by_all_leaves_nothing_behind(void **state) {
    int i;
    (void)state;
    (void)held(of_kind(0, RLOCK_KIND_FAIR));
    for (i = 1; i < 4; i++) {
        (void)waits(of_kind(i % CLIENTS, RLOCK_KIND_FAIR));
    }
    for (i = 0; i < CLIENTS; i++) {
        free_client(i);
    }
    virtual_free_owners(&g.loop);
    SAME(rlock_client_new(&g.clients[0], &g.config), RLOCK_OK);
    SAME(tried(of_kind(0, RLOCK_KIND_FAIR), 0), RLOCK_OK);
}

/* --- read and write --- */

/* The writer's client sleeps, and names the writer still when it asks for the reader. */
static void reader_does_not_come_beside_a_writer_that_is_gone(void **state) {
    rlock_options write = options_of(RLOCK_KIND_WRITE, 0, 0);
    rlock_options read = options_of(RLOCK_KIND_READ, 0, 0);
    struct owner *writer, *reader, *other;
    (void)state;
    write.owner = read.owner = 7;
    writer = held(owner_new(&g.loop, g.clients[0], &write));
    reader = owner_new(&g.loop, g.clients[0], &read);
    other = waits(of_kind(1, RLOCK_KIND_WRITE));
    freeze(0, true);
    answered(rlock_force_release(g.clients[2], &write, on_info, &told));
    run_ms(1);
    assert_true(holds(other));
    assert_true(holds(writer)); /* it has not heard of it yet */
    SAME(owner_acquire(reader, 0, 60000), RLOCK_OK);
    freeze(0, false);
    run_ms(1);
    SAME(reader->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(writer->seen[RLOCK_LOST].count, 1);
    assert_true(holds(other) && !holds(reader));
}

/* --- semaphore --- */

/* --- several keys --- */

static void each_key_of_a_set_wakes_who_waits_in_every_client(void **state) {
    static const char *const keys[] = {"a", "b", "third"};
    int i, client;
    (void)state;
    for (i = 0; i < 3; i++) {
        for (client = 0; client < 2; client++) {
            struct owner *one = holder(0, keys[i], 60000), *set = waits(of_keys(client, "a", "b"));
            struct owner *next;
            run_ms(100);
            release(one);
            assert_true(holds(set));
            next = waits(handle(client, keys[i]));
            run_ms(100);
            release(set);
            run_ms(20);
            assert_true(holds(next));
            release(next);
        }
    }
}

/* One of two that wait for a key goes: the other is woken still. */
static void waiter_that_goes_does_not_make_the_others_of_its_key_deaf(void **state) {
    struct owner *one = holder(0, "b", 60000), *set = waits(of_keys(1, "a", "b"));
    struct owner *single = waits(handle(1, "b"));
    (void)state;
    run_ms(100);
    owner_free(set);
    run_ms(100);
    release(one);
    assert_true(holds(single));
}

/* --- questions --- */

static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_WRITE,
                                   RLOCK_KIND_READ, RLOCK_KIND_SEMAPHORE};
#define KINDS 5

/* Told when it thaws, whatever came to the key meanwhile. */
static void frozen_holder_hears_of_its_forced_release_when_it_thaws(void **state) {
    rlock_options options = options_of(RLOCK_KIND_READ, 0, 0);
    struct owner *reader = held(of_kind(0, RLOCK_KIND_READ)),
                 *writer = of_kind(1, RLOCK_KIND_WRITE);
    (void)state;
    freeze(0, true);
    answered(rlock_force_release(g.clients[1], &options, on_info, &told));
    held(writer);
    release(writer);
    freeze(0, false);
    run_ms(1);
    SAME(reader->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
}

/* The call is on its way to a client that sleeps: other keys come and go, and questions too. */
static void hold_that_was_forced_is_forgotten_only_when_its_holder_heard(void **state) {
    int i;
    (void)state;
    for (i = 1; i < KINDS; i++) { /* of a mutex, change is told by its watch */
        rlock_options options = options_of(kinds[i], 0, 0);
        struct owner *owner = held(of_kind(0, kinds[i])), *next = of_kind(2, kinds[i]);
        int64_t permits;
        freeze(0, true);
        answered(rlock_force_release(g.clients[1], &options, on_info, &told));
        SAME(told.info.holders, 1);
        answered(rlock_force_release(g.clients[1], &options, on_info, &told));
        SAME(told.info.holders, 0); /* once only */
        others_come_and_go(1);
        SAME(inspected(1, &options)->holders, 0);
        assert_null(told.info.token);
        permits = told.info.permits;
        assert_true(permits > 0);
        freeze(0, false);
        run_ms(1);
        SAME(owner->seen[RLOCK_LOST].count, 1);
        SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
        SAME(inspected(1, &options)->permits, permits);
        release(held(next));
    }
}

/* It comes to the head of the line and is called, but sleeps; then the key is taken from it. What
 * else its client is called for is not lost. */
static void who_was_called_and_forced_before_it_heard_has_nothing(void **state) {
    rlock_options options = options_of(RLOCK_KIND_FAIR, 0, 0), elsewhere = options;
    struct owner *first[2], *sleeps[2], *other = of_kind(2, RLOCK_KIND_FAIR);
    int i;
    (void)state;
    elsewhere.key = "l";
    for (i = 0; i < 2; i++) {
        const rlock_options *of = i == 0 ? &options : &elsewhere;
        first[i] = held(owner_new(&g.loop, g.clients[0], of));
        sleeps[i] = waits(owner_new(&g.loop, g.clients[1], of));
    }
    freeze(1, true);
    release(first[0]);
    release(first[1]);
    answered(rlock_force_release(g.clients[2], &options, on_info, &told));
    SAME(told.info.holders, 1);
    held(other);
    freeze(1, false);
    run_ms(1);
    assert_true(holds(sleeps[1]));
    run_ms(TURN_MS);
    assert_false(holds(sleeps[0]));
    SAME(inspected(2, &options)->waiters, 1); /* it asked, and stands in the line anew */
    release(other);
    assert_true(holds(sleeps[0]));
}

/* What it left behind counts until its lease is over, or it is taken away. */
static void hold_of_a_client_that_went_without_a_word_has_its_token_and_is_forced(void **state) {
    rlock_options options = options_of(RLOCK_KIND_MUTEX, 0, 0);
    struct owner *waits_for_it;
    (void)state;
    options.key = "key";
    alone_begins();
    SAME(alone_asks(RLOCK_OP_ACQUIRE, 1), RLOCK_OUTCOME_DONE);
    g.store->close(alone.state);
    SAME(inspected(1, &options)->holders, 1);
    BETWEEN(told.info.left_ms, 990, 1000);
    assert_non_null(told.info.token);
    waits_for_it = waiter(1, "key", RLOCK_FOREVER);
    answered(rlock_force_release(g.clients[2], &options, on_info, &told));
    SAME(told.info.holders, 1);
    run_ms(1);
    assert_true(granted(waits_for_it));
}

static void question_about_a_key_that_nobody_used_finds_it_free(void **state) {
    static const int64_t permits[KINDS] = {1, 1, RLOCK_PERMITS_MAX, RLOCK_PERMITS_MAX, 2};
    int i;
    (void)state;
    for (i = 0; i < KINDS; i++) {
        rlock_options options = options_of(kinds[i], 0, 0);
        SAME(inspected(0, &options)->status, RLOCK_OK);
        SAME(told.info.holders + told.info.left_ms, 0);
        SAME(told.info.waiters, i == 0 ? -1 : 0);
        SAME(told.info.position, -1);
        SAME(told.info.permits, permits[i]);
        answered(rlock_force_release(g.clients[0], &options, on_info, &told));
        SAME(told.info.status, RLOCK_OK);
        SAME(told.info.holders, 0);
    }
}

static void number_of_permits_for_which_there_is_no_memory_is_not_set(void **state) {
    rlock_options options = options_of(RLOCK_KIND_SEMAPHORE, 2, 0);
    (void)state;
    memset(&told, 0, sizeof told);
    SAME(rlock_set_permits(g.clients[0], &options, 7, on_info, &told), RLOCK_OK);
    virtual_memory.fail_at = 1; /* the key is known to nobody */
    run_ms(1);
    assert_true(virtual_memory.failed);
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_ERR_NOMEM);
    SAME(inspected(1, &options)->permits, 2);
    answered(rlock_set_permits(g.clients[0], &options, 7, on_info, &told));
    SAME(told.info.status, RLOCK_OK);
    SAME(inspected(1, &options)->permits, 7);
}

static void set_number_of_permits_is_forgotten_a_day_after_its_last_use(void **state) {
    rlock_options options = options_of(RLOCK_KIND_SEMAPHORE, 2, 0);
    struct owner *owner = permit(0, 2, 0);
    (void)state;
    answered(rlock_set_permits(g.clients[0], &options, 7, on_info, &told));
    run_ms(80000000);
    release(held(owner));
    run_ms(80000000);
    SAME(inspected(1, &options)->permits, 7);
    run_ms(6400001);
    SAME(inspected(1, &options)->permits, 2);
}

static void set_number_of_permits_outlives_other_keys(void **state) {
    rlock_options options = options_of(RLOCK_KIND_SEMAPHORE, 2, 0);
    char key[12];
    int i;
    (void)state;
    answered(rlock_set_permits(g.clients[0], &options, 7, on_info, &told));
    for (i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "%d", i);
        release(holder(0, key, 1000));
    }
    SAME(inspected(1, &options)->permits, 7);
}

/* One that is heavier than all there are now steps out of the way of the others. */
static void who_weighs_more_than_there_are_does_not_block_the_line(void **state) {
    rlock_options options = options_of(RLOCK_KIND_SEMAPHORE, 3, 0);
    struct owner *a = held(permit(0, 3, 0)), *heavy = waits(permit(1, 3, 3));
    struct owner *light = waits(permit(2, 3, 0));
    (void)state;
    answered(rlock_set_permits(g.clients[0], &options, 2, on_info, &told));
    run_ms(1);
    assert_true(holds(light) && !holds(heavy));
    release(a);
    release(light);
    run_ms(TURN_MS);
    assert_false(holds(heavy));
    answered(rlock_set_permits(g.clients[0], &options, 0, on_info, &told));
    run_ms(TURN_MS);
    assert_true(holds(heavy));
}

static const rlock_kind queued_kinds[] = {RLOCK_KIND_FAIR, RLOCK_KIND_READ, RLOCK_KIND_WRITE,
                                          RLOCK_KIND_SEMAPHORE};
#define QUEUED_KINDS (sizeof queued_kinds / sizeof *queued_kinds)

static void all_questions_are_of_the_wrong_type(int client, rlock_kind kind) {
    rlock_options options = options_of(kind, 0, 0);
    SAME(inspected(client, &options)->status, RLOCK_ERR_WRONG_TYPE);
    SAME(answered(rlock_force_release(g.clients[client], &options, on_info, &told))->status,
         RLOCK_ERR_WRONG_TYPE);
    if (kind == RLOCK_KIND_SEMAPHORE) {
        SAME(answered(rlock_set_permits(g.clients[client], &options, 7, on_info, &told))->status,
             RLOCK_ERR_WRONG_TYPE);
    }
}

static void line_of_another_kind_keeps_its_key_free_for_it(void **state) {
    struct owner *dies = of_kind(0, RLOCK_KIND_FAIR), *waiter, *other = of_kind(2, RLOCK_KIND_READ);
    (void)state;
    SAME(tried(dies, 100), RLOCK_OK);
    waiter = waits(of_kind(1, RLOCK_KIND_FAIR));
    freeze(0, true);
    freeze(1, true);
    run_ms(200);
    SAME(tried(other, 0), RLOCK_ERR_WRONG_TYPE);
    all_questions_are_of_the_wrong_type(2, RLOCK_KIND_READ);
    freeze(0, false);
    freeze(1, false);
    run_ms(TURN_MS);
    assert_true(holds(waiter));
}

static void who_is_of_another_kind_serves_nobody_in_line(void **state) {
    struct owner *holder = held(of_kind(0, RLOCK_KIND_FAIR)),
                 *waiter = waits(of_kind(1, RLOCK_KIND_FAIR)), *other = permit(2, 5, 0);
    (void)state;
    SAME(owner_acquire(other, RLOCK_FOREVER, 0), RLOCK_OK);
    run_ms(TURN_MS);
    SAME(other->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_WRONG_TYPE);
    assert_true(holds(holder) && !holds(waiter));
}

static void number_of_permits_that_is_over_is_no_other_kinds(void **state) {
    rlock_options options = options_of(RLOCK_KIND_SEMAPHORE, 2, 0);
    struct owner *fair = of_kind(1, RLOCK_KIND_FAIR);
    (void)state;
    answered(rlock_set_permits(g.clients[0], &options, 7, on_info, &told));
    SAME(tried(fair, 0), RLOCK_ERR_WRONG_TYPE);
    run_ms(86400001);
    held(fair);
    SAME(tried(of_kind(2, RLOCK_KIND_FAIR), 0), RLOCK_ERR_BUSY);
    options = options_of(RLOCK_KIND_FAIR, 0, 0);
    SAME(inspected(0, &options)->permits, 0);
}

/* A mutex took the key when its holders were dead: who leaves the line serves nobody beside it. */
static void no_waiter_is_served_while_a_mutex_holds_the_key(void **state) {
    struct owner *dies = permit(0, 2, 2), *line[2], *mutex = of_kind(2, RLOCK_KIND_MUTEX);
    int i;
    (void)state;
    SAME(tried(dies, 100), RLOCK_OK);
    for (i = 0; i < 2; i++) {
        line[i] = waits(permit(i, 2, 0));
    }
    freeze(0, true);
    freeze(1, true);
    run_ms(200);
    held(mutex);
    freeze(0, false);
    freeze(1, false);
    run_ms(TURN_MS);
    assert_true(holds(mutex));
    for (i = 0; i < 2; i++) {
        SAME(line[i]->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_WRONG_TYPE);
    }
}

/* A store may not count on the releases that a client sends before it goes. */
static void client_that_goes_without_a_word_leaves_no_one_in_line(void **state) {
    static const uint32_t lens[] = {1};
    rlock_terms terms;
    rlock_request requests[3];
    struct owner *first = held(of_kind(1, RLOCK_KIND_FAIR)), *next;
    int i;
    (void)state;
    memset(&terms, 0, sizeof terms);
    memset(requests, 0, sizeof requests);
    terms.kind = RLOCK_KIND_FAIR;
    terms.permits = terms.weight = terms.count = 1;
    terms.lens = lens;
    alone_begins();
    for (i = 0; i < 3; i++) {
        requests[i].key = i < 2 ? "k" : "l";
        requests[i].key_len = 1;
        requests[i].terms = &terms;
        requests[i].lease_ms = 1000;
        requests[i].token = (uint64_t)i;
        g.store->submit(alone.state, &requests[i]);
    }
    next = waits(of_kind(2, RLOCK_KIND_FAIR));
    freeze(0, true);
    release(first); /* the first of those in line is called, and never hears of it */
    g.store->close(alone.state);
    freeze(0, false);
    assert_false(holds(next));
    run_ms(TURN_MS + TURN_MS / 2);
    assert_true(holds(next));
    for (i = 0; i < 10; i++) {
        release(holder(0, i % 2 ? "some" : "others", 1000));
    }
    release(next);
}

/* A request that was given up may still be let go of, when others hold the key as another kind. */
static void release_as_another_kind_serves_nobody_in_line(void **state) {
    static const uint32_t lens[] = {1};
    rlock_terms terms;
    rlock_request request;
    struct owner *holder = held(of_kind(1, RLOCK_KIND_FAIR)),
                 *waiter = waits(of_kind(2, RLOCK_KIND_FAIR));
    (void)state;
    memset(&terms, 0, sizeof terms);
    memset(&request, 0, sizeof request);
    terms.kind = RLOCK_KIND_SEMAPHORE;
    terms.permits = 5;
    terms.weight = terms.count = 1;
    terms.lens = lens;
    alone_begins();
    request.op = RLOCK_OP_RELEASE;
    request.key = "k";
    request.key_len = 1;
    request.terms = &terms;
    request.token = 7;
    g.store->submit(alone.state, &request);
    g.store->close(alone.state); /* does what was sent */
    run_ms(1);
    assert_true(holds(holder) && !holds(waiter));
    release(holder);
    assert_true(holds(waiter));
}

/* --- memory, and everything at once --- */

static void kinds_ok_or_nomem(int status) {
    if (status != RLOCK_OK && status != RLOCK_ERR_BUSY) {
        SAME(status, RLOCK_ERR_NOMEM);
        assert_true(virtual_memory.failed);
    }
}

/* The n-th allocation of calls and of their execution fails. */
static void kinds_scenario(uint64_t n) {
    rlock_options options = options_of(RLOCK_KIND_SEMAPHORE, 2, 0);
    struct owner *owners[6];
    int i, round;
    for (i = 0; i < 6; i++) {
        owners[i] = i < 2 ? of_keys(i, i == 0 ? "a" : "c", "b") : permit(i % CLIENTS, 2, 0);
    }
    virtual_memory.fail_at = n;
    for (round = 0; round < 2; round++) {
        for (i = 0; i < 6; i++) {
            kinds_ok_or_nomem(owner_acquire(owners[i], RLOCK_FOREVER, 60000));
        }
        run_ms(1);
        memset(&told, 0, sizeof told);
        kinds_ok_or_nomem(rlock_set_permits(g.clients[0], &options, 1, on_info, &told));
        run_ms(1);
        kinds_ok_or_nomem(told.info.status);
        for (i = 0; i < 12; i++) {
            if (holds(owners[i % 6])) {
                release(owners[i % 6]);
                run_ms(TURN_MS);
            }
        }
        for (i = 0; i < 6; i++) { /* each was granted, or was told why not */
            SAME(owner_pending(owners[i]), 0);
            kinds_ok_or_nomem(owners[i]->seen[RLOCK_ACQUIRED].status);
        }
    }
}

static void every_failing_allocation_of_the_kinds_is_survived(void **state) {
    bool failed = true;
    uint64_t n;
    (void)state;
    for (n = 1; failed && n < 1000; n++) {
        setup(NULL);
        kinds_scenario(n);
        failed = virtual_memory.failed;
        virtual_memory.fail_at = 0;
        teardown(NULL);
    }
    BETWEEN(n, 12, 999);
}

#define CROWD 24

static struct owner *crowd_member(int i, uint64_t *seed) {
    static const rlock_kind sorts[] = {RLOCK_KIND_FAIR, RLOCK_KIND_READ, RLOCK_KIND_WRITE,
                                       RLOCK_KIND_SEMAPHORE};
    static const char *const names[] = {"fair", "rw", "rw", "semaphore"}, *const parts[] = {"a",
                                                                                            "b"};
    uint32_t dice = virtual_random(seed);
    rlock_options options = options_of(sorts[i % 4], 0, 0);
    options.key = names[i % 4];
    if (options.kind == RLOCK_KIND_SEMAPHORE) {
        options.permits = 3;
        options.weight = 1 + dice % 3;
    } else if (i % 8 == 0) { /* sets and parts of them */
        if (dice % 2) {
            return of_keys(i % CLIENTS, parts[dice / 2 % 2], parts[1 - dice / 2 % 2]);
        }
        return handle(i % CLIENTS, dice / 2 % 2 ? "third" : "b");
    }
    return owner_new(&g.loop, g.clients[i % CLIENTS], &options);
}

/* Nobody holds beside whom nobody may hold; all holders together weigh no more than there is. */
static void crowd_check(struct owner *owners[CROWD]) {
    uint64_t weight[5] = {0, 0, 0, 0, 0};
    int i, k;
    for (i = 0; i < CROWD; i++) {
        const rlock_terms *terms = rlock__terms_of(owners[i]->lock);
        if (!holds(owners[i])) {
            continue;
        }
        weight[i % 4 == 2 ? 1 : i % 4] += i % 8 == 0 ? 0 : terms->weight;
        for (k = 0; k < i && i % 8 == 0; k += 8) {
            const char *mine = rlock_key(owners[i]->lock, NULL);
            bool sets = terms != NULL || rlock__terms_of(owners[k]->lock) != NULL;
            assert_false(holds(owners[k]) &&
                         (sets || strcmp(mine, rlock_key(owners[k]->lock, NULL)) == 0));
        }
    }
    BETWEEN(weight[0], 0, 1);
    BETWEEN(weight[1], 0, RLOCK_PERMITS_MAX);
    BETWEEN(weight[3], 0, 3);
}

static void crowd(uint64_t seed) {
    struct owner *owners[CROWD];
    int i, step, grants = 0;
    setup(NULL);
    for (i = 0; i < CROWD; i++) {
        owners[i] = crowd_member(i, &seed);
    }
    for (step = 0; step < STORM_STEPS; step++) {
        storm_call(owners[virtual_random(&seed) % CROWD], &seed);
        if (virtual_random(&seed) % 50 == 0) {
            freeze((int)(virtual_random(&seed) % CLIENTS), virtual_random(&seed) % 3 == 0);
        }
        if (virtual_random(&seed) % 3 == 0) {
            virtual_run_until(&g.loop, now_us() + virtual_random(&seed) % 40000);
        }
        crowd_check(owners);
    }
    storm_calms(owners, CROWD);
    for (i = 0; i < CROWD; i++) {
        grants += owners[i]->seen[RLOCK_ACQUIRED].count;
        BETWEEN(owners[i]->seen[RLOCK_ACQUIRED].count, 10, STORM_STEPS);
    }
    BETWEEN(grants, 1000, STORM_STEPS);
    teardown(NULL);
}

static void storm_of_kinds_grants_no_more_than_there_is_and_serves_every_waiter(void **state) {
    uint64_t seed;
    (void)state;
    for (seed = 1; seed <= 5; seed++) {
        crowd(seed);
    }
}
