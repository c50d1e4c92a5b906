/* unit_hand_over.h - a hold goes to the next waiter of the same client without the server */
#ifndef TESTS_UNIT_HAND_OVER_H
#define TESTS_UNIT_HAND_OVER_H

/* Makes a waiter for a key that a handle of this client holds: no request is sent for it. */
static struct owner *follower_with(const rlock_options *options, int64_t lease_ms) {
    struct owner *owner = handle_with(options);
    int before = asked(RLOCK_OP_ACQUIRE);
    SAME(owner_acquire(owner, RLOCK_FOREVER, lease_ms), RLOCK_OK);
    idle();
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    return owner;
}

static struct owner *follower(const char *key, int64_t lease_ms) {
    rlock_options options = options_for(key);
    return follower_with(&options, lease_ms);
}

/* Of the time of its grant a hold keeps the lower 32 bits, in microseconds. */
static void old_hold_is_not_handed_on_when_the_clock_comes_round(void **state) {
    struct owner *first = holder("key", 0);
    (void)state;
    scripted_settle(&g.store);
    run_ms(4294967 + 5);
    SAME(owner_renew(first, 0), RLOCK_OK); /* the lease is fresh */
    idle();
    follower("key", 0);
    SAME(owner_release(first), RLOCK_OK);
    idle();
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(stats().handed_on, 0);
}

static void hold_goes_on_to_the_next_in_line_without_the_server(void **state) {
    struct owner *first = holder("key", 1000), *second, *third;
    uint64_t token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
    int64_t end_us = until_us(now_us(), 1000);
    (void)state;
    second = follower("key", 1000);
    third = follower("key", 1000);
    run_ms(5);
    SAME(owner_release(first), RLOCK_OK);
    assert_false(rlock_is_held(first->lock));
    SAME(first->seen[RLOCK_RELEASED].count, 0); /* not inside the call */
    assert_false(rlock_is_held(second->lock));
    idle();
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(first->seen[RLOCK_RELEASED].order < second->seen[RLOCK_ACQUIRED].order);
    SAME(rlock_remaining_ms(second->lock), (end_us - now_us()) / 1000);
    SAME(stats().handed_on, 1);
    SAME(owner_release(second), RLOCK_OK);
    idle();
    assert_true(rlock_is_held(third->lock));
    SAME(asked(RLOCK_OP_RELEASE), 0);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    SAME(owner_release(third), RLOCK_OK); /* no waiter is left */
    idle();
    assert_true(need(RLOCK_OP_RELEASE)->token == token);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(third->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(stats().released, 3);
    SAME(stats().cleaning, 0);
}

static void hold_goes_on_a_bounded_number_of_times_and_then_others_come_first(void **state) {
    struct owner *owners[5];
    int i;
    (void)state;
    restart_with_handovers(2);
    owners[0] = holder("key", 10000);
    for (i = 1; i < 5; i++) {
        owners[i] = follower("key", 10000);
    }
    for (i = 0; i < 3; i++) {
        SAME(asked(RLOCK_OP_RELEASE), 0);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
    }
    SAME(asked(RLOCK_OP_RELEASE), 1);
    run_ms(4);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(owners[2]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    run_ms(7); /* twice the time that the answer took, less one ms */
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    run_ms(2);
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    assert_true(rlock_is_held(owners[3]->lock));
}

/* A server without client tracking also pushes our own releases. */
static void push_does_not_end_the_pause_for_the_sake_of_others(void **state) {
    struct owner *owners[3];
    (void)state;
    restart_with_handovers(1);
    owners[0] = holder("key", 60000);
    owners[1] = follower("key", 60000);
    owners[2] = follower("key", 60000);
    SAME(owner_release(owners[0]), RLOCK_OK);
    idle();
    SAME(owner_release(owners[1]), RLOCK_OK);
    run_ms(4);
    scripted_woken(&g.store, "key"); /* while the release is in flight */
    run_ms(1);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    reply(RLOCK_OP_RELEASE, scripted_done());
    scripted_woken(&g.store, "key"); /* and after its answer */
    run_ms(9);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    run_ms(2);
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    run_ms(100);
    scripted_woken(&g.store, "key"); /* later a push wakes the waiter again */
    run_ms(1);
    need(RLOCK_OP_ACQUIRE);
}

static void pause_for_the_sake_of_others_has_an_end(void **state) {
    struct owner *owners[3];
    (void)state;
    restart_with_handovers(1);
    owners[0] = holder("key", 60000);
    owners[1] = follower("key", 60000);
    owners[2] = follower("key", 60000);
    SAME(owner_release(owners[0]), RLOCK_OK);
    idle();
    SAME(owner_release(owners[1]), RLOCK_OK);
    run_ms(900);
    reply(RLOCK_OP_RELEASE, scripted_done());
    run_ms(51);
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
}

static void fences_rise_with_each_hold_that_goes_on(void **state) {
    rlock_options options = options_for("key");
    struct owner *owners[5];
    int i;
    (void)state;
    restart_with_handovers(2);
    options.fencing = true;
    for (i = 0; i < 5; i++) {
        owners[i] = handle_with(&options);
        SAME(owner_acquire(owners[i], RLOCK_FOREVER, 10000), RLOCK_OK);
        idle();
        SAME(need(RLOCK_OP_ACQUIRE)->request->fences, 1); /* nobody waited behind it yet */
    }
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(1000));
    SAME(owner_release(owners[0]), RLOCK_OK); /* no fencing token is left for another */
    idle();
    SAME(stats().handed_on, 0);
    reply(RLOCK_OP_RELEASE, scripted_done());
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->request->fences, 3); /* four handles wait */
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(2000));
    for (i = 1; i < 4; i++) {
        assert_true(rlock_fence(owners[i]->lock) == 1999 + (uint64_t)i);
        assert_true(owners[i]->seen[RLOCK_ACQUIRED].fence == 1999 + (uint64_t)i);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
    }
    SAME(stats().handed_on, 2);
    assert_true(owners[2]->seen[RLOCK_RELEASED].fence == 2001);
    SAME(asked(RLOCK_OP_RELEASE), 2);
}

static void hold_without_a_fence_does_not_go_on_to_who_wants_one_nor_back(void **state) {
    rlock_options options = options_for("key");
    (void)state;
    options.fencing = true;
    {
        struct owner *plain = holder("key", 10000);
        follower_with(&options, 10000);
        SAME(owner_release(plain), RLOCK_OK);
        idle();
        SAME(asked(RLOCK_OP_RELEASE), 1);
    }
    restart_with_handovers(0);
    {
        struct owner *fenced = handle_with(&options);
        SAME(owner_acquire(fenced, 0, 10000), RLOCK_OK);
        idle();
        reply(RLOCK_OP_ACQUIRE, scripted_fenced(7));
        follower("key", 10000);
        SAME(owner_release(fenced), RLOCK_OK);
        idle();
        SAME(stats().handed_on, 0);
        need(RLOCK_OP_RELEASE);
    }
}

static void hold_with_too_little_left_does_not_go_on(void **state) {
    static const struct {
        int64_t has_ms, age_ms, wants_ms;
        bool goes_on;
    } cases[] = {{10000, 0, 10000, true},   {10000, 20, 10000, true},
                 {10000, 21, 10000, false}, {10000, 0, 10001, false},
                 {10000, 0, 9999, true},    {160, 9, 160, true},
                 {160, 12, 160, false},     {WATCHDOG_MS + 100, 0, 0, true},
                 {WATCHDOG_MS, 0, 0, true}, {WATCHDOG_MS - 1, 0, 0, false}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner *first, *second;
        free_client();
        start();
        first = holder("key", cases[i].has_ms);
        second = follower("key", cases[i].wants_ms);
        run_ms(cases[i].age_ms);
        SAME(owner_release(first), RLOCK_OK);
        SAME(stats().handed_on, cases[i].goes_on);
        idle();
        SAME(rlock_is_held(second->lock), cases[i].goes_on);
    }
}

/* Else the server would keep the key for an hour if this process died right after the hand-over. */
static void hold_goes_on_only_to_who_asked_for_about_so_long_a_lease(void **state) {
    static const struct {
        int64_t has_ms, renewed_ms, wants_ms;
        bool goes_on;
    } cases[] = {{3600000, 0, 1000, false}, {2000, 0, 1000, false},   {1600, 0, 1600, true},
                 {1700, 0, 1600, true},     {1701, 0, 1600, false},   {1600, 1600, 1600, true},
                 {1600, 9000, 1600, false}, {9000, 1600, 1600, false}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner *first, *second;
        free_client();
        start();
        first = holder("key", cases[i].has_ms);
        second = follower("key", cases[i].wants_ms);
        if (cases[i].renewed_ms != 0) {
            SAME(owner_renew(first, cases[i].renewed_ms), RLOCK_OK);
            idle();
            reply(RLOCK_OP_RENEW, scripted_done());
        }
        SAME(owner_release(first), RLOCK_OK);
        idle();
        SAME(rlock_is_held(second->lock), cases[i].goes_on);
        if (!cases[i].goes_on) { /* it is released and acquired again */
            reply(RLOCK_OP_RELEASE, scripted_done());
            run_ms(1);
            SAME(need(RLOCK_OP_ACQUIRE)->lease_ms, cases[i].wants_ms);
        }
    }
}

/* A renewal makes the lease young again, but other clients wait as long as the key is held here. */
static void renewals_do_not_keep_the_key_in_this_process(void **state) {
    struct owner *owners[5];
    int i;
    (void)state;
    owners[0] = holder("key", 10000);
    for (i = 1; i < 5; i++) {
        owners[i] = follower("key", 10000);
    }
    for (i = 0; i < 3; i++) {
        run_ms(8);
        SAME(owner_renew(owners[i], 10000), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RENEW, scripted_done());
        SAME(owners[i]->seen[RLOCK_RENEWED].status, RLOCK_OK);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
        SAME(asked(RLOCK_OP_RELEASE), i == 2);
    }
    SAME(stats().handed_on, 2);
}

/* Where the release has to be sent again with its script, the acquire behind it comes first, and a
 * quorum may keep the answer to it for a while. */
static void waiter_that_was_refused_before_the_release_asks_again(void **state) {
    struct owner *holds = holder("key", 10000), *waits = handle("key");
    rlock_answer held = scripted_held(9000);
    (void)state;
    held.watched = true;
    run_ms(50); /* too old to be handed on: others would come first */
    SAME(owner_release(holds), RLOCK_OK);
    SAME(owner_acquire(waits, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    (void)need(RLOCK_OP_ACQUIRE);
    reply(RLOCK_OP_RELEASE, scripted_done());
    reply(RLOCK_OP_ACQUIRE, held);
    run_ms(100);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void client_gives_way_where_a_hold_was_too_old_to_be_handed_on(void **state) {
    static const struct { int64_t lease_ms, age_ms; } cases[] = {{160, 12}, {10000, 21}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner *first;
        free_client();
        g.store.count = 0;
        start();
        first = holder("key", cases[i].lease_ms);
        (void)follower("key", cases[i].lease_ms);
        run_ms(cases[i].age_ms);
        SAME(owner_release(first), RLOCK_OK);
        run_ms(4);
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(asked(RLOCK_OP_ACQUIRE), 1);
        run_ms(7); /* twice the time that the answer took, less one ms */
        SAME(asked(RLOCK_OP_ACQUIRE), 1);
        run_ms(2);
        SAME(asked(RLOCK_OP_ACQUIRE), 2);
    }
}

/* The second grant has fencing tokens and hand-overs of its own. */
static void hold_that_was_acquired_again_resets_its_hand_overs(void **state) {
    rlock_options options = options_for("key");
    struct owner *owners[4];
    int i;
    (void)state;
    restart_with_handovers(2);
    options.fencing = true;
    for (i = 0; i < 4; i++) {
        owners[i] = handle_with(&options);
        SAME(owner_acquire(owners[i], RLOCK_FOREVER, 50), RLOCK_OK);
        idle();
    }
    reply(RLOCK_OP_ACQUIRE, scripted_held(1)); /* nobody waited behind it when it asked */
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(100));
    SAME(owner_release(owners[0]), RLOCK_OK);
    stall_ms(100); /* the deadline passes before ACQUIRED is reported */
    idle();
    SAME(stats().handed_on, 1);
    SAME(owners[1]->seen[RLOCK_ACQUIRED].count, 0);
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(200));
    for (i = 1; i < 4; i++) {
        assert_true(owners[i]->seen[RLOCK_ACQUIRED].fence == 199 + (uint64_t)i);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
    }
    SAME(stats().handed_on, 3);
}

static void hold_limited_by_its_handle_does_not_go_on_to_one_that_is_not(void **state) {
    rlock_options options = options_for("key");
    struct owner *limited, *free_one;
    (void)state;
    options.max_hold_ms = 1000;
    limited = handle_with(&options);
    grant(limited, 10000);
    follower("key", 10000);
    SAME(owner_release(limited), RLOCK_OK);
    SAME(stats().handed_on, 0);
    free_client();
    start();
    free_one = holder("key", 10000);
    limited = follower_with(&options, 10000);
    SAME(owner_release(free_one), RLOCK_OK);
    idle();
    SAME(rlock_remaining_ms(limited->lock), 1000);
    run_ms(1001);
    SAME(limited->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    need(RLOCK_OP_RELEASE); /* the lease at the server is longer */
}

static void hold_whose_renewal_is_out_does_not_go_on(void **state) {
    struct owner *first = holder("key", 10000);
    (void)state;
    follower("key", 10000);
    SAME(owner_renew(first, 10000), RLOCK_OK);
    idle();
    SAME(owner_release(first), RLOCK_OK);
    idle();
    SAME(stats().handed_on, 0);
    SAME(first->seen[RLOCK_RENEWED].status, RLOCK_ERR_CANCELED);
    need(RLOCK_OP_RELEASE);
}

static void hold_that_went_on_with_a_shorter_lease_ends_by_it(void **state) {
    struct owner *first = holder("key", 1060), *second = follower("key", 1000);
    (void)state;
    SAME(owner_release(first), RLOCK_OK);
    idle();
    SAME(rlock_remaining_ms(second->lock), (until_us(0, 1000)) / 1000);
    run_ms(1000);
    SAME(second->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    need(RLOCK_OP_RELEASE);
}

static void hold_that_went_on_is_renewed_for_its_new_handle(void **state) {
    struct owner *first = holder("key", WATCHDOG_MS), *second = follower("key", 0);
    uint64_t token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
    (void)state;
    run_ms(10);
    SAME(owner_release(first), RLOCK_OK);
    run_ms(WATCHDOG_MS / 3);
    assert_true(need(RLOCK_OP_RENEW)->token == token);
    SAME(need(RLOCK_OP_RENEW)->lease_ms, WATCHDOG_MS);
    reply(RLOCK_OP_RENEW, scripted_done());
    run_ms(WATCHDOG_MS / 2);
    assert_true(rlock_is_held(second->lock));
}

static void hold_that_went_on_and_was_not_reported_is_given_back_by_cancel_and_free(void **state) {
    int freed;
    (void)state;
    for (freed = 0; freed < 2; freed++) {
        struct owner *first, *second;
        free_client();
        start();
        first = holder("key", 10000);
        second = follower("key", 10000);
        SAME(owner_release(first), RLOCK_OK);
        if (freed) {
            owner_free(second);
        } else {
            SAME(owner_cancel(second), RLOCK_OK);
        }
        idle();
        SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
        SAME(second->seen[RLOCK_ACQUIRED].count, !freed);
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(stats().cleaning, 0);
        SAME(stats().held, 0);
    }
}

static void former_handle_may_be_freed_or_acquire_again(void **state) {
    struct owner *first = holder("key", 10000), *second = follower("key", 10000), *third;
    (void)state;
    SAME(owner_release(first), RLOCK_OK);
    owner_free(first);
    idle();
    assert_true(rlock_is_held(second->lock));
    third = follower("key", 10000);
    SAME(owner_release(second), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, 10000), RLOCK_OK); /* not reported yet */
    SAME(owner_acquire(second, RLOCK_FOREVER, 10000), RLOCK_ERR_STATE);
    idle();
    assert_true(rlock_is_held(third->lock));
    SAME(owner_release(third), RLOCK_OK);
    idle();
    assert_true(rlock_is_held(second->lock));
    SAME(stats().handed_on, 3);
}

static void hold_that_went_on_and_is_found_gone_before_its_callback_is_asked_for(void **state) {
    struct owner *first = holder("key", 50), *second = follower("key", 50);
    (void)state;
    SAME(owner_release(first), RLOCK_OK);
    stall_ms(100); /* its deadline passes before the callback */
    idle();
    SAME(second->seen[RLOCK_ACQUIRED].count, 0);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

#endif /* TESTS_UNIT_HAND_OVER_H */
