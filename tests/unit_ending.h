/* unit_ending.h - shutdown and free */
#ifndef TESTS_UNIT_ENDING_H
#define TESTS_UNIT_ENDING_H

static void shutdown_ends_tells_releases_and_is_done(void **state) {
    struct owner *holds = holder("a", 60000), *waits = sleeper("b", RLOCK_FOREVER, 60000);
    struct owner *idles = handle("c");
    uint64_t token = g.store.log[0].token;
    (void)state;
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_OK);
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_ERR_STATE);
    SAME(owner_acquire(idles, 0, 0), RLOCK_ERR_CLOSED);
    idle();
    assert_false(rlock_is_held(holds->lock));
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(holds->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    SAME(need(RLOCK_OP_RELEASE)->token, token);
    SAME(g.done_count, 0);
    run_ms(100);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
    assert_true(g.done_order > holds->seen[RLOCK_LOST].order);
    assert_true(g.done_order > waits->seen[RLOCK_ACQUIRED].order);
    run_ms(10000);
    SAME(g.done_count, 1);
    SAME(idles->events, 0);
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_ERR_STATE);
}

static void shutdown_without_an_answer_is_done_with_timeout(void **state) {
    static const int64_t given[] = {0, 300}, takes[] = {700, 300};
    size_t i;
    (void)state;
    free_client();
    g.config.command_timeout_ms = 700;
    for (i = 0; i < 2; i++) {
        int64_t start_us;
        start();
        (void)holder("a", 60000);
        start_us = now_us();
        SAME(rlock_client_shutdown(g.client, given[i], on_done, &g), RLOCK_OK);
        run_ms(5000);
        SAME(g.done_count, i + 1);
        SAME(g.done_status, RLOCK_ERR_TIMEOUT);
        BETWEEN(g.done_at_us - start_us, takes[i] * 1000, takes[i] * 1000 + 1000);
        free_client();
    }
}

static void shutdown_of_an_idle_client_is_done_in_a_turn_of_its_own(void **state) {
    (void)state;
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_OK);
    SAME(g.done_count, 0);
    idle();
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
}

static void shutdown_lets_a_release_under_way_end(void **state) {
    struct owner *owner = bring_to(RELEASING);
    (void)state;
    SAME(rlock_client_shutdown(g.client, 1000, NULL, NULL), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RELEASED].count, 1);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_LOST].count, 0);
}

static void shutdown_ends_a_nested_acquire_as_closed(void **state) {
    struct owner *owner = reentrant(10000);
    (void)state;
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    idle();
    need(RLOCK_OP_RENEW);
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    SAME(g.done_status, RLOCK_OK);
}

static void check_closed(struct owner *owner) {
    size_t length = 0;
    SAME(owner_acquire(owner, 0, 0), RLOCK_ERR_CLOSED);
    assert_false(rlock_is_held(owner->lock));
    SAME(rlock_remaining_ms(owner->lock), 0);
    SAME(rlock_fence(owner->lock), 0);
    SAME(rlock_hold_count(owner->lock), 0);
    assert_string_equal(rlock_key(owner->lock, &length), "key");
    SAME(length, 3);
}

static void client_free_in_every_state_tells_nothing_and_handles_survive(void **state) {
    int row, events;
    (void)state;
    for (row = IDLE; row < CLOSED; row++) {
        struct owner *owner = bring_to(row);
        events = owner->events;
        free_client();
        SAME(g.store.closes, row + 1);
        SAME(virtual_earliest(&g.loop, INT64_MAX) == NULL, 1);
        check_closed(owner);
        run_ms(100000);
        SAME(owner->events, events);
        owner_free(owner);
        start();
    }
}

static void client_free_sends_the_release_of_what_is_held(void **state) {
    uint64_t token;
    (void)state;
    (void)holder("key", 60000);
    token = g.store.log[0].token;
    free_client();
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(scripted_last(&g.store, RLOCK_OP_RELEASE)->token, token);
}

static void client_free_before_ends_were_told_leaks_nothing(void **state) {
    int i;
    (void)state;
    g.store.unsent = true; /* nothing is left to clean up: their claims are over */
    for (i = 0; i < 2; i++) {
        struct owner *owner = handle(i == 0 ? "a" : "b");
        SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
        SAME(owner_cancel(owner), RLOCK_OK);
    }
    free_client();
    virtual_free_owners(&g.loop);
    SAME(virtual_memory.live, 0);
}

static void handle_free_in_every_state_tells_nothing(void **state) {
    int row;
    (void)state;
    for (row = IDLE; row < STATES; row++) {
        struct owner *owner = bring_to(row);
        int events = owner->events;
        owner_free(owner);
        if (g.client == NULL) {
            start();
        }
        SAME(stats().handles, 0);
        SAME(stats().held, 0);
        SAME(stats().waiting, 0);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        run_ms(100000);
        SAME(owner->events, events);
        SAME(stats().cleaning, 0);
    }
}

static void free_of_null_is_allowed(void **state) {
    (void)state;
    rlock_free(NULL);
    rlock_client_free(NULL);
}

static void store_that_does_not_open_fails_the_client(void **state) {
    rlock_client *client = NULL;
    (void)state;
    g.store.open_status = RLOCK_ERR_NOMEM;
    SAME(rlock_client_new(&client, &g.config), RLOCK_ERR_NOMEM);
    assert_null(client);
    SAME(g.store.closes, 0);
    SAME(virtual_memory.live, 0);
}

static void loop_that_does_not_open_and_missing_random_bytes_fail_the_client(void **state) {
    rlock_client *client = NULL;
    (void)state;
    g.loop.open_fails = true;
    SAME(rlock_client_new(&client, &g.config), RLOCK_ERR_NOMEM);
    assert_null(client);
    g.loop.open_fails = false;
    virtual_random_fails = true;
    SAME(rlock_client_new(&client, &g.config), RLOCK_ERR_NOMEM);
    assert_null(client);
    SAME(g.store.opens, g.store.closes);
    virtual_end(&g.loop);
}

#endif /* TESTS_UNIT_ENDING_H */
