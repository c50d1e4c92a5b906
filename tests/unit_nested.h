/* unit_nested.h - an acquire of a handle that holds: re-entrant holds */
#ifndef TESTS_UNIT_NESTED_H
#define TESTS_UNIT_NESTED_H

static struct owner *reentrant(int64_t lease_ms) {
    rlock_options options = options_for("key");
    struct owner *owner;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, lease_ms);
    return owner;
}

static void reentrant_hold_counts_up_and_down_without_a_round_trip(void **state) {
    struct owner *owner = reentrant(10000);
    size_t requests = g.store.count;
    int i;
    (void)state;
    for (i = 2; i <= 4; i++) {
        SAME(owner_acquire(owner, 0, i == 2 ? 0 : 5000), RLOCK_OK);
        idle();
        SAME(rlock_hold_count(owner->lock), i);
        SAME(owner->seen[RLOCK_ACQUIRED].count, i);
    }
    for (i = 3; i >= 1; i--) {
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        SAME(rlock_hold_count(owner->lock), i);
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
        assert_true(rlock_is_held(owner->lock));
    }
    SAME(g.store.count, requests);
    SAME(owner_release(owner), RLOCK_OK);
    assert_false(rlock_is_held(owner->lock));
    scripted_settle(&g.store);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(owner->seen[RLOCK_RELEASED].count, 4);
    SAME(rlock_hold_count(owner->lock), 0);
    SAME(owner_release(owner), RLOCK_ERR_NOT_HELD);
}

static void reentrant_acquire_with_a_longer_lease_asks_for_it(void **state) {
    struct owner *owner = reentrant(10000);
    int64_t sent_us;
    (void)state;
    SAME(owner_acquire(owner, 0, 20000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_RENEW)->lease_ms, 20000);
    sent_us = need(RLOCK_OP_RENEW)->at_us;
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(rlock_hold_count(owner->lock), 2);
    SAME(rlock_remaining_ms(owner->lock), (until_us(sent_us, 20000) - now_us()) / 1000);
}

/* An acquire with lease 0 asks to be renewed, whatever lease the hold has. */
static void nested_acquire_with_lease_0_gives_the_hold_a_watchdog(void **state) {
    static const int64_t leases[] = {1000, WATCHDOG_MS, 10000};
    static const int options[] = {RLOCK_WATCHDOG_AUTO, RLOCK_WATCHDOG_OFF};
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof leases / sizeof *leases; i++) {
        for (k = 0; k < 2; k++) {
            bool longer = leases[i] < WATCHDOG_MS, renews = options[k] == RLOCK_WATCHDOG_AUTO;
            rlock_options with = options_for("key");
            struct owner *owner;
            int64_t lease_ms = longer ? WATCHDOG_MS : leases[i];
            free_client();
            g.store.count = 0;
            start();
            with.reentrant = true;
            with.watchdog = options[k];
            owner = handle_with(&with);
            grant(owner, leases[i]);
            run_ms(leases[i] / 2);
            SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
            idle();
            SAME(asked(RLOCK_OP_RENEW), longer || (renews && leases[i] / 2 > lease_ms / 3));
            if (longer) {
                SAME(owner->seen[RLOCK_ACQUIRED].count, 1); /* not before it is answered */
            }
            if (out(RLOCK_OP_RENEW) != NULL) {
                SAME(need(RLOCK_OP_RENEW)->lease_ms, lease_ms);
                reply(RLOCK_OP_RENEW, scripted_done());
            }
            SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
            SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
            always(RLOCK_OP_RENEW, scripted_done());
            run_ms(3 * lease_ms);
            SAME(rlock_is_held(owner->lock), renews);
            g.store.automatic[RLOCK_OP_RENEW] = false;
        }
    }
}

/* The hold is what it was before it was asked for. */
/* max_hold_ms brought the deadline forward: the lease seems to have begun before the clock. */
static void watchdog_of_a_hold_with_a_long_lease_begins_at_once(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    (void)state;
    options.reentrant = true;
    options.max_hold_ms = 5000;
    owner = handle_with(&options);
    grant(owner, 80000000);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    SAME(asked(RLOCK_OP_RENEW), 1);
    always(RLOCK_OP_RENEW, scripted_done());
    run_ms(5000);
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

static void nested_acquire_that_fails_gives_no_watchdog(void **state) {
    struct owner *owner = reentrant(1000);
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    SAME(rlock_hold_count(owner->lock), 1);
    always(RLOCK_OP_RENEW, scripted_done());
    run_ms(1001);
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

static void loss_sets_a_reentrant_count_to_zero(void **state) {
    struct owner *owner = reentrant(1000);
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    scripted_settle(&g.store);
    run_ms(1);
    SAME(rlock_hold_count(owner->lock), 2);
    always(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    run_ms(10000);
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(rlock_hold_count(owner->lock), 0);
    SAME(owner_release(owner), RLOCK_ERR_NOT_HELD);
}

static void release_while_a_nested_acquire_is_asked_for_cancels_it(void **state) {
    struct owner *owner = reentrant(10000);
    (void)state;
    SAME(owner_acquire(owner, 0, 20000), RLOCK_OK);
    idle();
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(rlock_hold_count(owner->lock), 0);
    SAME(asked(RLOCK_OP_RELEASE), 1);
}

static void release_in_the_turn_of_a_nested_acquire_cancels_it(void **state) {
    struct owner *owner = reentrant(10000);
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_LOST].count, 0);
}

static void reentrant_acquire_of_a_lost_hold_is_refused(void **state) {
    struct owner *owner = reentrant(1000);
    (void)state;
    stall_ms(1000);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_ERR_STATE);
    idle();
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
}

static void nest_once_more(struct owner *owner, const rlock_event *event) {
    if (event->kind == RLOCK_ACQUIRED && rlock_hold_count(owner->lock) < 9) {
        SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    }
}

static void nested_acquire_of_a_callback_ends_in_the_next_turn(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    int count;
    (void)state;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, 10000);
    owner->react = nest_once_more;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    for (count = 2; count < 9; count++) {
        assert_true(virtual_iteration(&g.loop, now_us()));
        SAME(rlock_hold_count(owner->lock), count);
    }
}

static void nested_release_needs_no_memory(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    int i;
    (void)state;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, 10000);
    for (i = 0; i < 2; i++) {
        SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
        idle();
    }
    for (i = 0; i < 2; i++) {
        virtual_memory.fail_at = 1;
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        virtual_memory.fail_at = 0;
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    SAME(rlock_hold_count(owner->lock), 1);
}

#endif /* TESTS_UNIT_NESTED_H */
