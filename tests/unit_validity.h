/* unit_validity.h - how long a hold is valid, and the clock that says so */
#ifndef TESTS_UNIT_VALIDITY_H
#define TESTS_UNIT_VALIDITY_H

static void until_is_sent_plus_lease_minus_drift_minus_two_ms(void **state) {
    static const int64_t leases[] = {10, 11, 100, 3000, 30000, 86400000};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof leases / sizeof leases[0]; i++) {
        struct owner *owner = handle("key");
        int64_t sent_us = now_us(), deadline_us = until_us(sent_us, leases[i]);
        grant(owner, leases[i]);
        SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms, (deadline_us - sent_us) / 1000);
        virtual_stall(&g.loop, deadline_us - now_us() - 1);
        assert_true(rlock_is_held(owner->lock));
        SAME(rlock_remaining_ms(owner->lock), 0);
        virtual_stall(&g.loop, 1);
        assert_false(rlock_is_held(owner->lock));
        owner_free(owner);
        scripted_settle(&g.store);
        g.store.automatic[RLOCK_OP_ACQUIRE] = false;
    }
}

static void drift_of_the_configuration_shortens_validity(void **state) {
    struct owner *owner;
    (void)state;
    free_client();
    g.config.drift_permille = 500;
    start();
    owner = holder("key", 1000);
    SAME(rlock_remaining_ms(owner->lock), 1000 - 500 - 2);
}

static void validity_counts_from_the_send_not_from_the_call_or_the_answer(void **state) {
    struct owner *owner = handle("key");
    int64_t sent_us;
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    run_ms(300); /* it was queued behind a connect */
    sent_us = now_us();
    need(RLOCK_OP_ACQUIRE)->request->sent_us = sent_us;
    run_ms(200);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(rlock_remaining_ms(owner->lock), (until_us(sent_us, 1000) - now_us()) / 1000);
}

static void retry_counts_from_its_own_send(void **state) {
    struct owner *owner = handle("key");
    int64_t sent_us;
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    run_ms(100);
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_UNKNOWN, "closed"));
    sent_us = retried(RLOCK_OP_ACQUIRE)->at_us;
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(rlock_remaining_ms(owner->lock), (until_us(sent_us, 1000) - now_us()) / 1000);
}

static void renewal_counts_from_its_send(void **state) {
    struct owner *owner = holder("key", 1000);
    int64_t sent_us;
    (void)state;
    run_ms(500);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    sent_us = now_us();
    idle();
    run_ms(100);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_RENEWED].remaining_ms, rlock_remaining_ms(owner->lock));
    SAME(rlock_remaining_ms(owner->lock), (until_us(sent_us, 1000) - now_us()) / 1000);
}

static void remaining_is_read_from_a_fresh_clock(void **state) {
    struct owner *owner = holder("key", 1000);
    (void)state;
    stall_ms(400);
    SAME(rlock_remaining_ms(owner->lock), 588);
    assert_true(rlock_is_held(owner->lock));
    SAME(rlock_hold_count(owner->lock), 1);
    stall_ms(588);
    assert_false(rlock_is_held(owner->lock));
    SAME(rlock_remaining_ms(owner->lock), 0);
    SAME(rlock_hold_count(owner->lock), 0);
    SAME(rlock_fence(owner->lock), 0);
}

/* A step costs the time between the reading of the clock before it and the one after it. */
static void clock_that_steps_back_does_not_lengthen_a_hold(void **state) {
    static const int64_t gaps_ms[] = {0, 1, 40, 300};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof gaps_ms / sizeof *gaps_ms; i++) {
        struct owner *owner = holder("key", 1000);
        int64_t end_us = until_us(now_us(), 1000), remaining_ms;
        run_ms(500);
        remaining_ms = rlock_remaining_ms(owner->lock);
        stall_ms(gaps_ms[i]);
        g.loop.clock_off_us -= 5000000;
        SAME(rlock_remaining_ms(owner->lock), remaining_ms);
        SAME(owner_release(handle("other")), RLOCK_ERR_NOT_HELD);
        SAME(rlock_remaining_ms(owner->lock), remaining_ms);
        run_ms(100);
        BETWEEN(rlock_remaining_ms(owner->lock), remaining_ms - 101, remaining_ms - 99);
        run_ms(2000);
        BETWEEN(owner->seen[RLOCK_LOST].at_us, end_us + gaps_ms[i] * 1000,
                end_us + gaps_ms[i] * 1000 + 1);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

/* A program that only asks for the remaining time reads the clock as well, without a dispatch. */
static void clock_that_steps_back_under_a_busy_owner_costs_one_look(void **state) {
    struct owner *owner = holder("key", 1000);
    int64_t end_us = until_us(now_us(), 1000);
    int i;
    (void)state;
    for (i = 0; i < 200 && rlock_is_held(owner->lock); i++) {
        virtual_stall(&g.loop, 10000);
        g.loop.clock_off_us -= i == 50 || i == 80 ? 3000000 : 0;
    }
    BETWEEN(now_us(), end_us, end_us + 30000);
    idle();
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

static void clock_that_steps_back_makes_no_wait_longer(void **state) {
    struct owner *owner = handle("key");
    int64_t since_us = now_us();
    (void)state;
    always(RLOCK_OP_ACQUIRE, scripted_held(-1));
    SAME(owner_acquire(owner, 1000, 1000), RLOCK_OK);
    run_ms(500);
    SAME(rlock_remaining_ms(owner->lock), 0);
    g.loop.clock_off_us -= 3600000000;
    SAME(rlock_remaining_ms(owner->lock), 0);
    run_ms(600);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_TIMEOUT);
    BETWEEN(owner->seen[RLOCK_ACQUIRED].at_us - since_us, 1000000, 1011000);
}

static void late_grant_is_refused_and_asked_for_again(void **state) {
    struct owner *owner = handle("key");
    uint64_t token;
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 100), RLOCK_OK);
    idle();
    token = need(RLOCK_OP_ACQUIRE)->token;
    stall_ms(100); /* past its deadline, before the end of the lease */
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    idle();
    SAME(owner->events, 0);
    run_ms(50);
    if (asked(RLOCK_OP_RELEASE) == 0) {
        SAME(scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token, token);
        assert_true(scripted_last(&g.store, RLOCK_OP_ACQUIRE)->flags & RLOCK_REQUEST_RETRY);
    } else {
        SAME(scripted_last(&g.store, RLOCK_OP_RELEASE)->token, token);
    }
    scripted_settle(&g.store);
    run_ms(50);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void late_grant_of_a_single_try_is_refused_and_given_back(void **state) {
    struct owner *owner = handle("key");
    uint64_t token;
    (void)state;
    SAME(owner_acquire(owner, 0, 100), RLOCK_OK);
    idle();
    token = need(RLOCK_OP_ACQUIRE)->token;
    stall_ms(100);
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    run_ms(20);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    assert_true(owner->seen[RLOCK_ACQUIRED].status < 0);
    SAME(need(RLOCK_OP_RELEASE)->token, token);
}

static void stall_in_callback(struct owner *owner, const rlock_event *event) {
    (void)owner;
    (void)event;
    stall_ms(200);
}

/* The first callback is slow; the recorder checks that ACQUIRED finds the lock held. */
static void validity_is_read_again_before_acquired_is_delivered(void **state) {
    struct owner *a = handle("a"), *b = handle("b");
    (void)state;
    a->react = stall_in_callback;
    b->react = stall_in_callback;
    SAME(owner_acquire(a, 0, 100), RLOCK_OK);
    SAME(owner_acquire(b, 0, 100), RLOCK_OK);
    idle();
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 2);
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    run_ms(20);
    SAME(a->seen[RLOCK_ACQUIRED].count + b->seen[RLOCK_ACQUIRED].count, 2);
    assert_true((a->seen[RLOCK_ACQUIRED].status == RLOCK_OK) !=
                (b->seen[RLOCK_ACQUIRED].status == RLOCK_OK));
}

static void expiry_is_settled_before_a_renewal_that_came_too_late(void **state) {
    struct owner *owner = holder("key", 1000);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    idle();
    stall_ms(990);
    reply(RLOCK_OP_RENEW, scripted_done());
    run_ms(20);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_LOST);
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    assert_false(rlock_is_held(owner->lock));
}

static void expiry_is_settled_before_what_a_socket_brings(void **state) {
    struct owner *owner = holder("key", 1000);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    idle();
    stall_ms(990);
    scripted_answer_by_io(&g.store, need(RLOCK_OP_RENEW), scripted_done());
    run_ms(20);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_LOST);
    SAME(owner->seen[RLOCK_LOST].count, 1);
    assert_false(rlock_is_held(owner->lock));
}

static void paused_watchdog_hold_is_lost_before_its_renewal_is_read(void **state) {
    struct owner *owner = holder("key", 0);
    (void)state;
    run_ms(WATCHDOG_MS / 3 + 1);
    stall_ms(WATCHDOG_MS);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    assert_false(rlock_is_held(owner->lock));
}

static int64_t clock_step_us; /* the clock goes on by so much whenever it is read */

static int64_t clock_that_goes_on(void *ctx) {
    return ((struct virtual_loop *)ctx)->now_us += clock_step_us;
}

static void remaining_time_is_never_negative_while_the_clock_goes_on(void **state) {
    struct owner *owner;
    (void)state;
    g.config.loop.now_us = clock_that_goes_on;
    clock_step_us = 0;
    start();
    owner = holder("key", 1000);
    g.loop.now_us += 1000 * 1000 - 1000 * DRIFT - 2000 - 4000; /* 4 ms before the deadline */
    clock_step_us = 1600;
    SAME(rlock_remaining_ms(owner->lock), 2);
    SAME(rlock_remaining_ms(owner->lock), 0); /* held for less than a millisecond */
    SAME(rlock_remaining_ms(owner->lock), 0);
    assert_false(rlock_is_held(owner->lock));
}

static int64_t boottime_us(void) {
    struct timespec now;
    SAME(clock_gettime(CLOCK_BOOTTIME, &now), 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void clock_of_its_own_is_the_one_that_never_steps(void **state) {
    int64_t before_us = boottime_us(), own_us = rlock__system_now_us();
    (void)state;
    BETWEEN(own_us, before_us, boottime_us());
}

#endif /* TESTS_UNIT_VALIDITY_H */
