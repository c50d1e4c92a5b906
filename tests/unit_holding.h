/* unit_holding.h - what is done for a hold: its watchdog, renewals by hand, its loss */
#ifndef TESTS_UNIT_HOLDING_H
#define TESTS_UNIT_HOLDING_H

/* ------------------------------------------------------------------------------------------------
 * Watchdog.
 */

static void watchdog_renews_at_a_third_of_the_lease(void **state) {
    struct owner *owner = holder("key", 0);
    int64_t last_us = now_us();
    int i;
    (void)state;
    for (i = 0; i < 20; i++) {
        virtual_run_until(&g.loop, last_us + WATCHDOG_MS * 300 - 1);
        SAME(scripted_pending(&g.store, RLOCK_OP_RENEW), 0);
        virtual_run_until(&g.loop, last_us + WATCHDOG_MS * 1000 / 3 + 1000);
        SAME(need(RLOCK_OP_RENEW)->lease_ms, WATCHDOG_MS);
        last_us = need(RLOCK_OP_RENEW)->at_us;
        reply(RLOCK_OP_RENEW, scripted_done());
        assert_true(rlock_is_held(owner->lock));
    }
    SAME(owner->events, 1); /* the watchdog's renewals are not reported */
    SAME(stats().renewed, 20);
}

static void watchdog_tries_faster_near_the_deadline(void **state) {
    struct owner *owner = holder("key", 0);
    int64_t start_us = now_us(), last_us = 0, first_gap = 0, last_gap = 0;
    size_t i;
    (void)state;
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "BUSY"));
    virtual_run_until(&g.loop, until_us(start_us, WATCHDOG_MS));
    BETWEEN(asked(RLOCK_OP_RENEW), 4, 200);
    for (i = 0; i < g.store.count; i++) {
        if (g.store.log[i].op == RLOCK_OP_RENEW) {
            first_gap = first_gap == 0 ? g.store.log[i].at_us - start_us : first_gap;
            last_gap = g.store.log[i].at_us - last_us;
            last_us = g.store.log[i].at_us;
        }
    }
    BETWEEN(last_gap, 1000, first_gap / 2);
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

static void lost_comes_exactly_at_the_local_deadline_with_the_store_silent(void **state) {
    static const int64_t leases[] = {0, 10, 1234};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof leases / sizeof leases[0]; i++) {
        struct owner *owner = holder(i == 0 ? "a" : i == 1 ? "b" : "c", leases[i]);
        int64_t deadline_us = until_us(now_us(), leases[i] == 0 ? WATCHDOG_MS : leases[i]);
        virtual_run_until(&g.loop, deadline_us - 1);
        SAME(owner->seen[RLOCK_LOST].count, 0);
        assert_true(rlock_is_held(owner->lock));
        run_ms(1);
        SAME(owner->seen[RLOCK_LOST].at_us, deadline_us);
        SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
        run_ms(60000);
        SAME(owner->seen[RLOCK_LOST].count, 1);
        assert_false(rlock_is_held(owner->lock));
    }
}

static void lost_comes_at_the_deadline_while_the_connection_is_down(void **state) {
    struct owner *owner = holder("key", 0);
    int64_t deadline_us = until_us(now_us(), WATCHDOG_MS);
    (void)state;
    scripted_down(&g.store, RLOCK_FAULT_UNKNOWN, "Connection reset");
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_DOWN, "Connection refused"));
    run_ms(WATCHDOG_MS);
    SAME(owner->seen[RLOCK_LOST].at_us, deadline_us);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
}

/* A renewal says to what it may cut a time to live. One that was not answered may be executed after
 * one for longer: so from then on none asks for longer, and nothing longer is told. */
static void renewal_that_may_come_late_cuts_no_longer_lease_that_is_reported(void **state) {
    static const rlock_fault faults[] = {RLOCK_FAULT_UNKNOWN, RLOCK_FAULT_DOWN};
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *owner = holder(i == 0 ? "a" : "b", 5000);
        bool late = faults[i] == RLOCK_FAULT_UNKNOWN;
        SAME(owner_renew(owner, 4000), RLOCK_OK);
        SAME(need(RLOCK_OP_RENEW)->longest_ms, 5000);
        reply(RLOCK_OP_RENEW, scripted_fault(faults[i], "Connection reset"));
        run_ms(0);
        SAME(owner_renew(owner, 60000), RLOCK_OK);
        SAME(need(RLOCK_OP_RENEW)->lease_ms, late ? 5000 : 60000);
        SAME(need(RLOCK_OP_RENEW)->longest_ms, late ? 5000 : 60000);
        reply(RLOCK_OP_RENEW, scripted_done());
        run_ms(0);
        SAME(rlock_remaining_ms(owner->lock) > 5000, !late);
        assert_true(rlock_is_held(owner->lock));
    }
}

static void loss_during_an_outage_tells_why_there_is_no_connection(void **state) {
    struct owner *owner = holder("key", 0), *other;
    (void)state;
    scripted_down(&g.store, RLOCK_FAULT_UNKNOWN, "Connection reset");
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "Connection refused");
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_DOWN, NULL));
    run_ms(WATCHDOG_MS);
    SAME(owner->seen[RLOCK_LOST].count, 1);
    assert_string_equal(owner->seen[RLOCK_LOST].text, "Connection refused");
    scripted_up(&g.store);
    other = holder("other", 10);
    run_ms(10);
    SAME(other->seen[RLOCK_LOST].count, 1);
    assert_string_equal(other->seen[RLOCK_LOST].text, "");
}

static void nothing_is_renewed_after_release(void **state) {
    struct owner *owner = holder("key", 0);
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    run_ms(60000);
    SAME(asked(RLOCK_OP_RENEW), 0);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(owner->events, 2);
}

static void renewals_by_watchdog_on_off_auto(void **state) {
    static const struct {
        int watchdog, lease_ms;
        bool renews;
    } rows[] = {
        {RLOCK_WATCHDOG_AUTO, 0, true}, {RLOCK_WATCHDOG_AUTO, 2000, false},
        {RLOCK_WATCHDOG_ON, 0, true},   {RLOCK_WATCHDOG_ON, 2000, true},
        {RLOCK_WATCHDOG_OFF, 0, false}, {RLOCK_WATCHDOG_OFF, 2000, false},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_options options = options_for("key");
        struct owner *owner;
        int before;
        options.watchdog = rows[i].watchdog;
        owner = handle_with(&options);
        scripted_settle(&g.store);
        before = asked(RLOCK_OP_RENEW);
        SAME(owner_acquire(owner, 0, rows[i].lease_ms), RLOCK_OK);
        run_ms(30000);
        SAME(asked(RLOCK_OP_RENEW) > before, rows[i].renews);
        SAME(rlock_is_held(owner->lock), rows[i].renews);
        SAME(owner->seen[RLOCK_LOST].count, rows[i].renews ? 0 : 1);
        if (rows[i].renews) {
            SAME(scripted_last(&g.store, RLOCK_OP_RENEW)->lease_ms,
                 rows[i].lease_ms == 0 ? WATCHDOG_MS : rows[i].lease_ms);
        }
        owner_free(owner);
        idle();
    }
}

static void watchdog_keeps_the_shortest_lease_with_the_largest_drift(void **state) {
    struct owner *owner;
    (void)state;
    free_client();
    g.config.watchdog_lease_ms = RLOCK_LEASE_MIN_MS;
    g.config.drift_permille = 500;
    start();
    always(RLOCK_OP_RENEW, scripted_done());
    owner = holder("key", 0);
    run_ms(1000);
    SAME(owner->seen[RLOCK_LOST].count, 0);
    assert_true(rlock_is_held(owner->lock));
}

static void max_hold_ends_the_hold_as_expired(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    int64_t start_us = now_us();
    (void)state;
    options.max_hold_ms = 10000;
    owner = handle_with(&options);
    scripted_settle(&g.store);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    virtual_run_until(&g.loop, start_us + 10000 * 1000 - WATCHDOG_MS * 1000 / 2);
    SAME(owner->seen[RLOCK_LOST].count, 0);
    run_ms(60000);
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    BETWEEN(owner->seen[RLOCK_LOST].at_us, start_us + 10000 * 1000 - 1000,
            start_us + 10000 * 1000 + 1000);
    BETWEEN(scripted_last(&g.store, RLOCK_OP_RENEW)->at_us, start_us, start_us + 10000 * 1000);
}

static void longer_renewal_by_hand_moves_the_deadline_when_it_is_answered(void **state) {
    struct owner *owner = holder("key", 2000);
    int64_t old_us = until_us(now_us(), 2000), sent_us;
    (void)state;
    run_ms(500);
    sent_us = now_us();
    SAME(owner_renew(owner, 60000), RLOCK_OK);
    idle();
    SAME(rlock_remaining_ms(owner->lock), (old_us - now_us()) / 1000);
    SAME(need(RLOCK_OP_RENEW)->lease_ms, 60000);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(rlock_remaining_ms(owner->lock), (until_us(sent_us, 60000) - now_us()) / 1000);
}

static void shorter_renewal_by_hand_lowers_the_deadline_at_the_call(void **state) {
    struct owner *owner = holder("key", 60000);
    int64_t deadline_us = until_us(now_us(), 2000);
    (void)state;
    SAME(owner_renew(owner, 2000), RLOCK_OK);
    SAME(rlock_remaining_ms(owner->lock), (deadline_us - now_us()) / 1000);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(rlock_remaining_ms(owner->lock), (deadline_us - now_us()) / 1000);
    run_ms(2000);
    SAME(owner->seen[RLOCK_LOST].at_us, deadline_us);
}

/* The answer to the watchdog's earlier renewal must not raise the deadline again. */
static void shorter_renewal_by_hand_stays_lowered_when_the_watchdogs_is_answered(void **state) {
    struct owner *owner = holder("key", 0);
    int64_t deadline_us;
    (void)state;
    run_ms(WATCHDOG_MS / 3 + 1);
    need(RLOCK_OP_RENEW);
    deadline_us = until_us(now_us(), 500);
    SAME(owner_renew(owner, 500), RLOCK_OK);
    SAME(rlock_remaining_ms(owner->lock), (deadline_us - now_us()) / 1000);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(rlock_remaining_ms(owner->lock), (deadline_us - now_us()) / 1000);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(rlock_remaining_ms(owner->lock), (deadline_us - now_us()) / 1000);
}

static void lease_of_a_renewal_by_hand_is_the_watchdogs_from_then_on(void **state) {
    struct owner *owner = holder("key", 0);
    (void)state;
    scripted_settle(&g.store);
    SAME(owner_renew(owner, 9000), RLOCK_OK);
    run_ms(2500);
    SAME(asked(RLOCK_OP_RENEW), 1);
    run_ms(502);
    SAME(asked(RLOCK_OP_RENEW), 2);
    SAME(scripted_last(&g.store, RLOCK_OP_RENEW)->lease_ms, 9000);
}

static void deadline_lowered_by_hand_stays_when_its_renewal_fails(void **state) {
    struct owner *owner = holder("key", 0);
    int64_t deadline_us;
    (void)state;
    run_ms(WATCHDOG_MS / 3 + 1);
    need(RLOCK_OP_RENEW); /* the watchdog's renewal, for the longer lease */
    deadline_us = until_us(now_us(), 500);
    SAME(owner_renew(owner, 500), RLOCK_OK);
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "closed");
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_CONN);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(rlock_remaining_ms(owner->lock), (deadline_us - now_us()) / 1000);
    run_ms(1000);
    SAME(owner->seen[RLOCK_LOST].at_us, deadline_us);
}

static void renewal_with_lease_0_asks_for_the_lease_the_hold_has(void **state) {
    struct owner *owner = holder("key", 60000);
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        SAME(owner_renew(owner, i == 0 ? 1000 : 0), RLOCK_OK);
        idle();
        SAME(need(RLOCK_OP_RENEW)->lease_ms, 1000);
        reply(RLOCK_OP_RENEW, scripted_done());
        SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    }
}

/* ------------------------------------------------------------------------------------------------
 * Loss.
 */

static void lose_by(rlock_outcome outcome, rlock_reason reason) {
    struct owner *owner = holder("key", 0);
    run_ms(WATCHDOG_MS / 3 + 1);
    reply(RLOCK_OP_RENEW, scripted_plain(outcome));
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(owner->seen[RLOCK_LOST].reason, reason);
    SAME(owner->seen[RLOCK_LOST].at_us, now_us());
    assert_false(rlock_is_held(owner->lock));
    SAME(rlock_hold_count(owner->lock), 0);
    scripted_settle(&g.store);
    scripted_woken(&g.store, "key");
    run_ms(60000);
    SAME(owner->events, 2);
    SAME(asked(RLOCK_OP_RENEW), 1); /* a lost hold is never resurrected */
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    run_ms(1);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
}

static void key_that_is_gone_is_lost_as_deleted(void **state) {
    (void)state;
    lose_by(RLOCK_OUTCOME_GONE, RLOCK_REASON_DELETED);
}

static void key_of_another_is_lost_as_stolen(void **state) {
    (void)state;
    lose_by(RLOCK_OUTCOME_STOLEN, RLOCK_REASON_STOLEN);
}

static void renewal_answered_held_by_another_is_lost_as_stolen(void **state) {
    (void)state;
    lose_by(RLOCK_OUTCOME_HELD, RLOCK_REASON_STOLEN);
}

/* An unanswered attempt of its acquire may still be executed. */
static void hold_that_is_lost_by_an_unsure_answer_is_cleaned_up(void **state) {
    static const rlock_outcome outcomes[] = {RLOCK_OUTCOME_GONE, RLOCK_OUTCOME_STOLEN};
    int i;
    (void)state;
    for (i = 0; i < 4; i++) {
        rlock_answer answer = scripted_plain(outcomes[i / 2]);
        struct owner *owner = holder("key", 60000);
        uint64_t token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
        SAME(owner_renew(owner, 0), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RENEW, i % 2 == 0 ? answer : scripted_unsure(answer));
        SAME(owner->seen[RLOCK_LOST].count, 1);
        SAME(stats().cleaning, i % 2);
        if (i % 2 == 1) {
            SAME(need(RLOCK_OP_RELEASE)->token, token);
            reply(RLOCK_OP_RELEASE, scripted_done());
            SAME(stats().cleaning, 0);
        }
    }
}

static void renewal_by_hand_of_a_lost_hold_ends_as_lost_and_tells_lost_once(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    run_ms(20000);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_LOST);
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
}

static void wake_a_holder(const char *woken) {
    struct owner *owner = holder("key", 60000);
    run_ms(1000);
    g.store.checks_by_hand = true;
    scripted_woken(&g.store, woken);
    run_ms(20);
    assert_true(need(RLOCK_OP_RENEW)->lease_ms == 0 || need(RLOCK_OP_RENEW)->lease_ms == 60000);
    reply(RLOCK_OP_RENEW, scripted_done());
    assert_true(rlock_is_held(owner->lock));
    SAME(owner->events, 1);
    scripted_woken(&g.store, woken);
    run_ms(20);
    reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
}

static void push_for_its_key_makes_a_holder_look_at_once(void **state) {
    (void)state;
    wake_a_holder("key");
}

static void push_for_any_key_makes_a_holder_look_at_once(void **state) {
    (void)state;
    wake_a_holder(NULL);
}

static void push_for_another_key_asks_nothing(void **state) {
    size_t requests;
    (void)state;
    (void)holder("key", 60000);
    run_ms(1000);
    requests = g.store.count;
    scripted_woken(&g.store, "other");
    scripted_woken(&g.store, "ke");
    scripted_woken(&g.store, "key2");
    run_ms(100);
    SAME(g.store.count, requests);
}

static void holders_are_checked_when_the_connection_is_back(void **state) {
    struct owner *owner = holder("key", 60000);
    (void)state;
    run_ms(1000);
    scripted_down(&g.store, RLOCK_FAULT_UNKNOWN, "Connection reset");
    run_ms(1000);
    g.store.checks_by_hand = true;
    scripted_up(&g.store);
    run_ms(100);
    reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_STOLEN));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_STOLEN);
}

static void lost_never_comes_after_a_release_was_called(void **state) {
    struct owner *owner = holder("key", 0);
    (void)state;
    run_ms(WATCHDOG_MS / 3 + 1);
    need(RLOCK_OP_RENEW); /* in flight */
    SAME(owner_release(owner), RLOCK_OK);
    assert_false(rlock_is_held(owner->lock));
    SAME(rlock_remaining_ms(owner->lock), 0);
    if (out(RLOCK_OP_RENEW) != NULL) {
        reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    }
    scripted_woken(&g.store, "key");
    always(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
    if (out(RLOCK_OP_RELEASE) != NULL) {
        reply(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
    }
    run_ms(60000);
    SAME(owner->seen[RLOCK_LOST].count, 0);
    SAME(owner->seen[RLOCK_RELEASED].count, 1);
}

static void release_after_the_deadline_and_before_lost_ends_as_released_with_lost(void **state) {
    struct owner *owner = holder("key", 1000);
    (void)state;
    stall_ms(990);
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    run_ms(10000);
    SAME(owner->seen[RLOCK_RELEASED].count, 1);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_LOST);
    SAME(owner->seen[RLOCK_RELEASED].reason, RLOCK_REASON_EXPIRED);
    SAME(owner->seen[RLOCK_LOST].count, 0);
}

static void release_of_what_the_server_no_longer_had_is_not_held_with_the_reason(void **state) {
    static const struct {
        rlock_outcome outcome;
        rlock_reason reason;
    } rows[] = {{RLOCK_OUTCOME_GONE, RLOCK_REASON_DELETED},
                {RLOCK_OUTCOME_STOLEN, RLOCK_REASON_STOLEN}};
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *owner = holder("key", 1000);
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_plain(rows[i].outcome));
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_NOT_HELD);
        SAME(owner->seen[RLOCK_RELEASED].reason, rows[i].reason);
    }
}

/* --- many holds, which one timer renews together --- */

#define MANY 40
#define TICK_US 16384

static struct owner *many[MANY];

/* Acquires 40 keys, one every 3 ms. */
static void hold_many(int64_t lease_ms) {
    char key[16];
    int i;
    always(RLOCK_OP_ACQUIRE, scripted_done());
    always(RLOCK_OP_RENEW, scripted_done());
    always(RLOCK_OP_RELEASE, scripted_done());
    for (i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "key %d", i);
        many[i] = handle(key);
        SAME(owner_acquire(many[i], 0, lease_ms), RLOCK_OK);
        run_ms(3);
        assert_true(rlock_is_held(many[i]->lock));
    }
}

/* Returns the first renewal of a key in the log from `from` on, or NULL. */
static const struct scripted_request *renewal_of(const char *key, size_t from) {
    size_t i;
    for (i = from; i < g.store.count; i++) {
        const struct scripted_request *record = &g.store.log[i];
        if (record->op == RLOCK_OP_RENEW && record->lease_ms && strcmp(record->key, key) == 0) {
            return record;
        }
    }
    return NULL;
}

static void many_holds_are_renewed_together_none_of_them_late(void **state) {
    static const int64_t leases_ms[] = {1000, WATCHDOG_MS, 60000};
    size_t l;
    (void)state;
    for (l = 0; l < 3; l++) {
        int64_t third_us = leases_ms[l] * 1000 / 3, last_us[MANY], moment_us = 0;
        int i, renewals = 0, moments = 0;
        size_t k, from;
        free_client();
        from = g.store.count;
        g.config.watchdog_lease_ms = leases_ms[l];
        start();
        hold_many(0);
        for (i = 0; i < MANY; i++) {
            last_us[i] = now_us() - (MANY - i) * 3000;
        }
        run_ms(leases_ms[l] * 2);
        for (k = from; k < g.store.count; k++) {
            const struct scripted_request *record = &g.store.log[k];
            if (record->op != RLOCK_OP_RENEW || !record->lease_ms) {
                continue;
            }
            i = atoi(record->key + strlen("key "));
            BETWEEN(record->at_us - last_us[i], third_us * 9 / 10 - TICK_US, third_us);
            last_us[i] = record->at_us;
            renewals++;
            moments += record->at_us != moment_us;
            moment_us = record->at_us;
        }
        BETWEEN(renewals, 5 * MANY, 8 * MANY);
        for (i = 0; i < MANY; i++) {
            assert_true(now_us() - last_us[i] <= third_us);
            SAME(many[i]->seen[RLOCK_LOST].count, 0);
        }
        assert_true(l > 0 || moments < renewals / 2); /* with a short lease many share a tick */
    }
}

static void hold_among_many_is_renewed_no_more_once_released(void **state) {
    size_t from;
    (void)state;
    hold_many(0);
    run_ms(300);
    SAME(owner_release(many[7]), RLOCK_OK);
    owner_free(many[8]);
    from = g.store.count;
    run_ms(10 * WATCHDOG_MS);
    assert_null(renewal_of("key 7", from));
    assert_null(renewal_of("key 8", from));
    assert_non_null(renewal_of("key 9", from));
}

static void holds_among_many_are_lost_at_their_deadlines(void **state) {
    int64_t begin_us = now_us();
    int i;
    (void)state;
    hold_many(0);
    g.store.automatic[RLOCK_OP_RENEW] = false; /* the server is silent from now on */
    run_ms(WATCHDOG_MS + 1000);
    for (i = 0; i < MANY; i++) {
        SAME(many[i]->seen[RLOCK_LOST].count, 1);
        SAME(many[i]->seen[RLOCK_LOST].at_us, until_us(begin_us + i * 3000, WATCHDOG_MS));
    }
}

static void many_holds_survive_a_sleep_longer_than_the_ring(void **state) {
    int i;
    (void)state;
    free_client();
    g.config.watchdog_lease_ms = 60000;
    start();
    hold_many(0);
    run_ms(11000); /* the check in between is over: the timer has all of them */
    stall_ms(40000);
    run_ms(300000);
    for (i = 0; i < MANY; i++) {
        assert_true(rlock_is_held(many[i]->lock));
    }
}

static void loss_is_reported_before_the_end_that_a_socket_brings(void **state) {
    struct owner *lost = holder("lost", 1000), *other = holder("other", 10000);
    (void)state;
    SAME(owner_release(other), RLOCK_OK);
    idle();
    stall_ms(2000);
    scripted_answer_by_io(&g.store, need(RLOCK_OP_RELEASE), scripted_done());
    SAME(lost->seen[RLOCK_LOST].count, 1);
    SAME(other->seen[RLOCK_RELEASED].status, RLOCK_OK);
    assert_true(lost->seen[RLOCK_LOST].order < other->seen[RLOCK_RELEASED].order);
}

static void hold_that_lives_longer_is_watched_and_looked_at_once(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    SAME(scripted_tracking(&g.store), 0);
    run_ms(99);
    SAME(scripted_tracking(&g.store), 0);
    run_ms(2);
    SAME(scripted_tracking(&g.store), 1);
    SAME(asked((rlock_op)SCRIPTED_LOOK), 1);
    run_ms(5000);
    SAME(asked((rlock_op)SCRIPTED_LOOK), 1);
    assert_true(rlock_is_held(owner->lock));
}

static void push_behind_a_renewal_is_looked_at_once_it_is_answered(void **state) {
    struct owner *owner = holder("key", 10000);
    int looks;
    (void)state;
    run_ms(200);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    idle();
    looks = asked((rlock_op)SCRIPTED_LOOK);
    scripted_woken(&g.store, "key");
    SAME(asked((rlock_op)SCRIPTED_LOOK), looks);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(asked((rlock_op)SCRIPTED_LOOK), looks + 1);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
}

/* A renewal that failed may be older than the change: a check follows soon, unlike other faults. */
static void push_behind_a_renewal_that_fails_is_looked_at_soon(void **state) {
    struct owner *owner = holder("key", 60000);
    int looks;
    (void)state;
    run_ms(200);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    idle();
    looks = asked((rlock_op)SCRIPTED_LOOK);
    scripted_woken(&g.store, "key");
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "busy"));
    SAME(asked((rlock_op)SCRIPTED_LOOK), looks);
    run_ms(20);
    SAME(asked((rlock_op)SCRIPTED_LOOK) + asked(RLOCK_OP_RENEW) > looks + 1, true);
}

#endif /* TESTS_UNIT_HOLDING_H */
