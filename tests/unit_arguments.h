/* unit_arguments.h - arguments: what is refused, and what is allowed */
#ifndef TESTS_UNIT_ARGUMENTS_H
#define TESTS_UNIT_ARGUMENTS_H

static void refuse_config(const char *what, const rlock_config *config) {
    rlock_client *client = NULL;
    int lines = g.log_lines, status = rlock_client_new(&client, config);
    if (status != RLOCK_ERR_ARG || client != NULL || g.log_lines == lines) {
        fail_msg("config with a bad %s: status %d, %d log lines", what, status,
                 g.log_lines - lines);
    }
}

#define REFUSE_CONFIG(member, value)               \
    do {                                           \
        rlock_config bad = g.config;               \
        bad.member = value;                        \
        refuse_config(#member " = " #value, &bad); \
    } while (0)

static void bad_configurations_are_refused_with_a_log_line(void **state) {
    (void)state;
    REFUSE_CONFIG(loop.open, NULL);
    REFUSE_CONFIG(loop.watch, NULL);
    REFUSE_CONFIG(loop.set_timer, NULL);
    REFUSE_CONFIG(loop.close, NULL);
    REFUSE_CONFIG(watchdog_lease_ms, -1);
    REFUSE_CONFIG(watchdog_lease_ms, 9);
    REFUSE_CONFIG(watchdog_lease_ms, 86400001);
    REFUSE_CONFIG(watchdog_lease_ms, INT64_MAX);
    REFUSE_CONFIG(command_timeout_ms, -1);
    REFUSE_CONFIG(poll_ms, -1);
    REFUSE_CONFIG(drift_permille, -1);
    REFUSE_CONFIG(drift_permille, 501);
    REFUSE_CONFIG(handovers, -2);
    REFUSE_CONFIG(handovers, 4097);
    REFUSE_CONFIG(replicas, -1);
    REFUSE_CONFIG(replicas, 101);
    REFUSE_CONFIG(replicas_ms, -1);
    REFUSE_CONFIG(replicas_ms, 86400001);
    REFUSE_CONFIG(quarantine_ms, -1);
    REFUSE_CONFIG(quarantine_ms, 9);
    REFUSE_CONFIG(quarantine_ms, 86400001);
    REFUSE_CONFIG(quarantine_ms, 10);        /* the lease of a watchdog is longer */
    REFUSE_CONFIG(url, "redis://127.0.0.1"); /* there is no store that it could name */
    SAME(g.store.opens, 0);
    SAME(virtual_memory.live, 0);
}

static void null_arguments_of_the_client_are_refused(void **state) {
    rlock_client *client = NULL;
    (void)state;
    SAME(rlock_client_new(NULL, &g.config), RLOCK_ERR_ARG);
    SAME(rlock_client_new(&client, NULL), RLOCK_ERR_ARG);
    assert_null(client);
    SAME(rlock_client_shutdown(NULL, 0, on_done, NULL), RLOCK_ERR_ARG);
    start();
    SAME(rlock_client_shutdown(g.client, -1, on_done, NULL), RLOCK_ERR_ARG);
    idle();
    SAME(g.done_count, 0);
    SAME(owner_acquire(handle("key"), 0, 0), RLOCK_OK); /* it was not shut down */
}

static void refuse_options(const char *what, const rlock_options *options) {
    static int elsewhere;
    rlock *mark = (rlock *)(void *)&elsewhere, *lock = mark;
    int status = rlock_new(&lock, g.client, options);
    if (status != RLOCK_ERR_ARG || (lock != mark && lock != NULL)) {
        fail_msg("options with a bad %s: status %d", what, status);
    }
}

#define REFUSE_OPTIONS(member, value)               \
    do {                                            \
        rlock_options bad = options_for("key");     \
        bad.member = value;                         \
        refuse_options(#member " = " #value, &bad); \
    } while (0)

static const char *refuse_fencing(void *state, const char *key, size_t key_len,
                                  const rlock_terms *terms, bool fencing) {
    (void)state;
    assert_true(key_len == strlen(key) && terms == NULL);
    return fencing ? "no fences here" : NULL;
}

static void bad_options_are_refused(void **state) {
    static char big[RLOCK_KEY_MAX + 2];
    rlock_options options = options_for("key");
    rlock *lock = NULL;
    (void)state;
    memset(big, 'k', sizeof big - 1);
    REFUSE_OPTIONS(key, NULL);
    REFUSE_OPTIONS(key, "");
    REFUSE_OPTIONS(key, big);
    REFUSE_OPTIONS(kind, (rlock_kind)9);
    REFUSE_OPTIONS(kind, (rlock_kind)-1);
    REFUSE_OPTIONS(kind, RLOCK_KIND_SEMAPHORE); /* without permits */
    REFUSE_OPTIONS(permits, 1);
    REFUSE_OPTIONS(weight, 1);
    REFUSE_OPTIONS(owner, 1);
    REFUSE_OPTIONS(key_count, 1);
    REFUSE_OPTIONS(key_lens, &(const size_t){1});
    REFUSE_OPTIONS(keys, (const char *const[]){"other"});
    REFUSE_OPTIONS(watchdog, -1);
    REFUSE_OPTIONS(watchdog, 3);
    REFUSE_OPTIONS(max_hold_ms, -1);
    options.key = big;
    options.key_len = RLOCK_KEY_MAX + 1;
    refuse_options("key_len", &options);
    options.key = "key";
    options.key_len = 0;
    options.fencing = true;
    g.store.store.refuses = refuse_fencing;
    refuse_options("fencing, which the store refuses", &options);
    g.store.store.refuses = NULL;
    SAME(rlock_new(NULL, g.client, &options), RLOCK_ERR_ARG);
    options.key = "key";
    SAME(rlock_new(&lock, NULL, &options), RLOCK_ERR_ARG);
    SAME(rlock_new(&lock, g.client, NULL), RLOCK_ERR_ARG);
    assert_null(lock);
    SAME(stats().handles, 0);
}

static char refusal[1000];

static const char *refuse_at_length(void *state, const char *key, size_t key_len,
                                    const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)key_len, (void)terms, (void)fencing;
    return refusal;
}

static void long_words_of_a_store_are_cut_in_the_log(void **state) {
    rlock_options options = options_for("key");
    size_t length;
    (void)state;
    g.store.store.refuses = refuse_at_length;
    for (length = 200; length < sizeof refusal; length++) {
        memset(refusal, 'x', length);
        refuse_options("as the store says at length", &options);
        SAME(g.log_length, length < 245 ? length + 10 : 255); /* after the client and ": " */
    }
    g.store.store.refuses = NULL;
}

static void longest_key_and_hash_tags_are_allowed(void **state) {
    static const char *const keys[] = {"{tag}", "a{b}c", "plain", "open{brace"};
    static char big[RLOCK_KEY_MAX];
    rlock_options options = options_for(big);
    size_t i;
    (void)state;
    memset(big, 'k', sizeof big);
    options.key_len = sizeof big;
    (void)handle_with(&options);
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        options = options_for(keys[i]);
        options.fencing = true;
        (void)handle_with(&options);
    }
    options = options_for("a}b");
    (void)handle_with(&options);
}

static void bad_leases_and_waits_are_refused_and_change_nothing(void **state) {
    static const int64_t leases[] = {-1, 1, 9, 86400001, INT64_MAX, INT64_MIN};
    static const int64_t waits[] = {-2, INT64_MIN};
    struct owner *idles = handle("a"), *holds = holder("b", 60000);
    size_t i, requests = g.store.count;
    int64_t remaining_ms = rlock_remaining_ms(holds->lock);
    (void)state;
    for (i = 0; i < sizeof leases / sizeof leases[0]; i++) {
        SAME(owner_acquire(idles, 0, leases[i]), RLOCK_ERR_ARG);
        SAME(owner_renew(holds, leases[i]), RLOCK_ERR_ARG);
    }
    for (i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        SAME(owner_acquire(idles, waits[i], 0), RLOCK_ERR_ARG);
    }
    SAME(rlock_acquire(idles->lock, 0, 0, NULL, NULL), RLOCK_ERR_ARG);
    idle();
    SAME(g.store.count, requests);
    SAME(rlock_remaining_ms(holds->lock), remaining_ms);
    SAME(idles->events, 0);
    SAME(owner_cancel(idles), RLOCK_ERR_STATE); /* still idle */
}

static void absurd_wait_does_not_overflow(void **state) {
    struct owner *owner = handle("key");
    int status = owner_acquire(owner, INT64_MAX, 1000);
    (void)state;
    if (status == RLOCK_OK) {
        always(RLOCK_OP_ACQUIRE, scripted_held(60000));
        run_ms(100);
        SAME(owner->events, 0);
    } else {
        SAME(status, RLOCK_ERR_ARG);
    }
}

static void absurd_limit_of_a_hold_does_not_overflow(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    (void)state;
    options.max_hold_ms = INT64_MAX;
    owner = handle_with(&options);
    grant(owner, 1000);
    SAME(rlock_remaining_ms(owner->lock), (until_us(now_us(), 1000) - now_us()) / 1000);
}

static void null_handles_are_refused(void **state) {
    size_t length = 1;
    (void)state;
    SAME(rlock_acquire(NULL, 0, 0, owner_on_event, NULL), RLOCK_ERR_ARG);
    SAME(rlock_renew(NULL, 0, owner_on_event, NULL), RLOCK_ERR_ARG);
    SAME(rlock_release(NULL, owner_on_event, NULL), RLOCK_ERR_ARG);
    SAME(rlock_cancel(NULL), RLOCK_ERR_ARG);
    assert_false(rlock_is_held(NULL));
    SAME(rlock_remaining_ms(NULL), 0);
    SAME(rlock_fence(NULL), 0);
    SAME(rlock_hold_count(NULL), 0);
    assert_null(rlock_key(NULL, &length));
}

static void arguments_that_no_other_test_gives(void **state) {
    rlock_config mute = g.config;
    rlock_options options = options_for("key");
    rlock_client *client = NULL;
    rlock_stats now;
    rlock *lock = NULL;
    (void)state;
#if !RLOCK__HAS_REDIS /* a joined rlock.h has it always */
    REFUSE_CONFIG(store, NULL);
#endif
    mute.poll_ms = -1;
    mute.log = NULL; /* a shutdown without a callback */
    SAME(rlock_client_new(&client, &mute), RLOCK_ERR_ARG);
    start();
    SAME(rlock_client_shutdown(g.client, (int64_t)RLOCK_LEASE_MAX_MS + 1, NULL, NULL),
         RLOCK_ERR_ARG);
    rlock_client_stats(g.client, NULL);
    memset(&now, 0xff, sizeof now);
    rlock_client_stats(NULL, &now);
    SAME(now.handles + now.connects + now.held, 0);
    assert_false(now.up);
    options.fencing = true;
    SAME(rlock_new(&lock, g.client, &options), RLOCK_OK);
    rlock_free(lock);
}

#endif /* TESTS_UNIT_ARGUMENTS_H */
