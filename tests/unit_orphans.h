/* unit_orphans.h - what was sent and not answered may have been executed: it is cleaned up */
#ifndef TESTS_UNIT_ORPHANS_H
#define TESTS_UNIT_ORPHANS_H

static void clean_up_that_is_given_up_wakes_the_next_waiter(void **state) {
    struct owner *holds = holder("key", 1000), *waits = handle("key");
    (void)state;
    SAME(owner_acquire(waits, RLOCK_FOREVER, 60000), RLOCK_OK);
    g.store.latency_us = 1000;
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "READONLY"));
    always(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner_release(holds), RLOCK_OK);
    run_ms(5000);
    SAME(holds->seen[RLOCK_RELEASED].status, RLOCK_ERR_SERVER);
    SAME(stats().cleaning, 0);
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(waits->seen[RLOCK_ACQUIRED].count, 1);
}

static rlock_answer spent(void) {
    rlock_answer answer = scripted_fault(RLOCK_FAULT_UNKNOWN, "closed");
    answer.spent = true;
    return answer;
}

/* The store has released it, which may be executed at any time: a hold under it could end so. */
static void token_that_is_spent_is_let_go_and_another_one_is_asked_for(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR};
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *owner;
        uint64_t token;
        g.kind = kinds[i];
        owner = handle(i ? "fair" : "key");
        SAME(owner_acquire(owner, 5000, 1000), RLOCK_OK);
        idle();
        token = need(RLOCK_OP_ACQUIRE)->token;
        reply(RLOCK_OP_ACQUIRE, spent());
        SAME(need(RLOCK_OP_RELEASE)->token, token);
        SAME(stats().cleaning, 1);
        assert_true(retried(RLOCK_OP_ACQUIRE)->token != token);
        reply(RLOCK_OP_ACQUIRE, scripted_done());
        SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(stats().cleaning, 0);
        assert_true(rlock_is_held(owner->lock));
    }
}

/* That fault alone would mean that nothing was done. */
static void token_that_is_spent_is_let_go_after_any_fault(void **state) {
    struct owner *owner = handle("key");
    rlock_answer answer = scripted_fault(RLOCK_FAULT_BUSY, "too few replicas");
    uint64_t token;
    (void)state;
    answer.spent = true;
    SAME(owner_acquire(owner, 5000, 1000), RLOCK_OK);
    idle();
    token = need(RLOCK_OP_ACQUIRE)->token;
    reply(RLOCK_OP_ACQUIRE, answer);
    SAME(need(RLOCK_OP_RELEASE)->token, token);
    assert_true(retried(RLOCK_OP_ACQUIRE)->token != token);
    SAME(stats().cleaning, 1);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(stats().cleaning, 0);
}

static void waiter_whose_token_is_spent_stays_the_first(void **state) {
    struct owner *first = handle("key"), *next = handle("key");
    (void)state;
    SAME(owner_acquire(first, 5000, 1000), RLOCK_OK);
    SAME(owner_acquire(next, 60000, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, spent());
    (void)retried(RLOCK_OP_ACQUIRE);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(first->seen[RLOCK_ACQUIRED].count, 1);
    SAME(next->seen[RLOCK_ACQUIRED].count, 0);
}

static void acquire_whose_token_is_spent_ends_when_it_was_to_end(void **state) {
    struct owner *waits = handle("key"), *tries = handle("other");
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(owner_acquire(waits, 5000, 1000), RLOCK_OK);
    SAME(owner_acquire(tries, 0, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, spent());
    reply(RLOCK_OP_ACQUIRE, spent());
    SAME(tries->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    run_ms(4900);
    SAME(waits->seen[RLOCK_ACQUIRED].count, 0);
    run_ms(200);
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    run_ms(100);
    SAME(stats().cleaning, 0);
}

static void token_that_is_spent_is_let_go_without_memory_too(void **state) {
    struct owner *owner = handle("key");
    uint64_t token;
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    token = need(RLOCK_OP_ACQUIRE)->token;
    virtual_memory.none = true;
    reply(RLOCK_OP_ACQUIRE, spent());
    virtual_memory.none = false;
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_NOMEM);
    SAME(need(RLOCK_OP_RELEASE)->token, token);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(stats().cleaning, 0);
}

enum { BY_CANCEL, BY_TIMEOUT, BY_FREE, WAYS };

/* Gives up an acquire that was sent and never answered. Returns its token. */
static uint64_t orphan(int way) {
    struct owner *owner = handle("key");
    uint64_t token;
    SAME(owner_acquire(owner, 500, 1000), RLOCK_OK);
    idle();
    token = need(RLOCK_OP_ACQUIRE)->token;
    if (way == BY_CANCEL) {
        SAME(owner_cancel(owner), RLOCK_OK);
    } else if (way == BY_FREE) {
        owner_free(owner);
    } else {
        run_ms(501);
    }
    run_ms(20);
    return token;
}

static void orphan_is_released_until_a_sure_answer(void **state) {
    int way, before;
    (void)state;
    for (way = 0; way < WAYS; way++) {
        uint64_t token = orphan(way);
        SAME(stats().cleaning, 1);
        SAME(need(RLOCK_OP_RELEASE)->token, token);
        assert_string_equal(need(RLOCK_OP_RELEASE)->key, "key");
        reply(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_UNKNOWN, "closed"));
        SAME(retried(RLOCK_OP_RELEASE)->token, token);
        reply(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
        SAME(stats().cleaning, 0);
        before = asked(RLOCK_OP_RELEASE);
        run_ms(10000);
        SAME(asked(RLOCK_OP_RELEASE), before);
    }
}

static void orphan_is_released_until_one_lease_later_when_no_answer_is_sure(void **state) {
    int before;
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_unsure(scripted_plain(RLOCK_OUTCOME_GONE)));
    (void)orphan(BY_CANCEL);
    run_ms(800);
    SAME(stats().cleaning, 1);
    BETWEEN(asked(RLOCK_OP_RELEASE), 2, 200);
    run_ms(5000);
    SAME(stats().cleaning, 0);
    before = asked(RLOCK_OP_RELEASE);
    run_ms(10000);
    SAME(asked(RLOCK_OP_RELEASE), before);
}

static void unsure_clean_up_ends_a_longest_lease_and_a_command_timeout_later(void **state) {
    struct owner *owner = holder("key", 4000);
    (void)state;
    SAME(owner_renew(owner, 100), RLOCK_OK); /* the time to live at the server is not changed */
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    always(RLOCK_OP_RELEASE, scripted_unsure(scripted_plain(RLOCK_OUTCOME_GONE)));
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_NOT_HELD);
    run_ms(4000 + 1000 - 10);
    SAME(stats().cleaning, 1);
    run_ms(10 + 500);
    SAME(stats().cleaning, 0);
}

static void unsure_clean_up_is_not_shortened_by_a_refusal_before_it(void **state) {
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    g.store.latency_us = 1000;
    (void)orphan(BY_CANCEL); /* lease 1000, command timeout 1000 */
    always(RLOCK_OP_RELEASE, scripted_unsure(scripted_plain(RLOCK_OUTCOME_GONE)));
    run_ms(1900);
    SAME(stats().cleaning, 1);
    run_ms(1000);
    SAME(stats().cleaning, 0);
}

static void refused_clean_up_goes_on_for_the_longest_lease(void **state) {
    struct owner *owner = holder("key", 20000);
    (void)state;
    SAME(owner_renew(owner, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    g.store.latency_us = 1000;
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner_release(owner), RLOCK_OK);
    run_ms(19000);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_SERVER);
    SAME(stats().cleaning, 1);
    run_ms(5000);
    SAME(stats().cleaning, 0);
}

/* No lease ends a position in the queue: that lasts for 30 command timeouts. */
static void refused_clean_up_of_a_waiter_goes_on_for_as_long_as_its_position(void **state) {
    int asked_before;
    (void)state;
    g.store.latency_us = 1000;
    always(RLOCK_OP_ACQUIRE, scripted_held(60000));
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    g.kind = RLOCK_KIND_FAIR;
    SAME(owner_acquire(handle("key"), 100, 100), RLOCK_OK); /* command timeout 1000 */
    run_ms(30000);
    SAME(stats().cleaning, 1);
    asked_before = asked(RLOCK_OP_RELEASE);
    run_ms(1000);
    assert_in_range(asked(RLOCK_OP_RELEASE) - asked_before, 1, 3);
    run_ms(2000);
    SAME(stats().cleaning, 0);
}

static void refused_release_of_a_queued_kind_goes_on_for_its_lease(void **state) {
    struct owner *owner;
    (void)state;
    g.kind = RLOCK_KIND_FAIR;
    owner = holder("key", 1000);
    g.store.latency_us = 1000;
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner_release(owner), RLOCK_OK);
    run_ms(3000);
    SAME(stats().cleaning, 0);
}

static void orphan_is_not_given_up_while_the_server_cannot_be_asked(void **state) {
    (void)state;
    g.store.latency_us = 1000;
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_DOWN, "refused"));
    (void)orphan(BY_CANCEL);
    run_ms(60000);
    SAME(stats().cleaning, 1);
    always(RLOCK_OP_RELEASE, scripted_done());
    run_ms(1000);
    SAME(stats().cleaning, 0);
}

/* What lies in the sockets of a server that stood still is executed only when it goes on. */
static void end_of_a_clean_up_is_not_counted_while_the_server_cannot_be_asked(void **state) {
    (void)state;
    g.store.latency_us = 1000;
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_DOWN, "refused"));
    (void)orphan(BY_CANCEL); /* lease 1000, command timeout 1000 */
    run_ms(60000);
    always(RLOCK_OP_RELEASE, scripted_unsure(scripted_plain(RLOCK_OUTCOME_GONE)));
    run_ms(1900);
    SAME(stats().cleaning, 1);
    run_ms(1000);
    SAME(stats().cleaning, 0);
}

/* A retry told "held by another" says nothing of the attempt before it, unless it is sure. */
static void attempt_that_may_still_be_executed_is_cleaned_up_after_held(void **state) {
    struct owner *owner = handle("key");
    int sure;
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_STOLEN));
    for (sure = 0; sure < 2; sure++) {
        int before = asked(RLOCK_OP_RELEASE);
        SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
        idle();
        reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_UNKNOWN, "closed"));
        (void)retried(RLOCK_OP_ACQUIRE);
        while (out(RLOCK_OP_ACQUIRE) != NULL) {
            rlock_answer held = scripted_held(60000);
            reply(RLOCK_OP_ACQUIRE, sure ? held : scripted_unsure(held));
        }
        SAME(owner_cancel(owner), RLOCK_OK);
        run_ms(20);
        SAME(asked(RLOCK_OP_RELEASE) > before, !sure);
    }
}

static void acquire_that_never_left_needs_no_clean_up(void **state) {
    (void)state;
    g.store.unsent = true;
    (void)orphan(BY_CANCEL);
    run_ms(1000);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    SAME(stats().cleaning, 0);
}

/* No server has said that the key is held: neither to the first waiter nor to the one after it. */
static void acquire_that_never_left_does_not_report_that_another_has_it(void **state) {
    struct owner *owners[3];
    int i;
    (void)state;
    g.store.unsent = true;
    for (i = 0; i < 3; i++) {
        owners[i] = handle("key");
        SAME(owner_acquire(owners[i], 300 - i, 1000), RLOCK_OK);
    }
    run_ms(1000);
    for (i = 0; i < 3; i++) {
        SAME(owners[i]->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    }
    SAME(owner_acquire(owners[0], 0, 1000), RLOCK_OK);
    run_ms(2000);
    SAME(owners[0]->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
}

/* An answer of one wait says nothing about the next one. */
static void key_that_was_held_before_is_not_held_for_that(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(10));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    g.store.unsent = true;
    SAME(owner_acquire(owner, 300, 1000), RLOCK_OK);
    run_ms(1000);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
}

/* A waiter behind a holder of this client knows that the key is held without asking the server. */
static void who_waits_behind_a_holder_of_its_client_ends_as_timeout(void **state) {
    struct owner *held = holder("key", 10000), *waits = handle("key");
    (void)state;
    SAME(owner_acquire(waits, 300, 1000), RLOCK_OK);
    run_ms(1000);
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_TIMEOUT);
    SAME(held->events, 1);
}

static void try_that_ended_unknown_is_cleaned_up(void **state) {
    struct owner *owner = begin_operation(TRY, 0);
    uint64_t token = need(RLOCK_OP_ACQUIRE)->token;
    (void)state;
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_UNKNOWN, "closed"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    SAME(retried(RLOCK_OP_RELEASE)->token, token);
}

static void release_that_is_never_answered_ends_unknown_at_the_deadline(void **state) {
    struct owner *owner = holder("key", 1000);
    int64_t deadline_us = until_us(now_us(), 1000);
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    virtual_run_until(&g.loop, deadline_us - 1);
    SAME(owner->seen[RLOCK_RELEASED].count, 0);
    run_ms(2);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK); /* the handle is free again */
}

static void acquire_after_cancel_has_a_token_of_its_own(void **state) {
    struct owner *owner = handle("key");
    uint64_t token;
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    token = need(RLOCK_OP_ACQUIRE)->token;
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(owner_cancel(owner), RLOCK_OK);
    idle();
    SAME(owner_acquire(owner, RLOCK_FOREVER, 10000), RLOCK_OK);
    run_ms(20);
    assert_true(scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token != token);
    SAME(scripted_last(&g.store, RLOCK_OP_RELEASE)->token, token);
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    assert_true(rlock_is_held(owner->lock));
}

static void freed_holder_is_released_in_the_background(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    owner_free(owner);
    idle();
    need(RLOCK_OP_RELEASE);
    SAME(stats().held, 0);
    SAME(stats().handles, 0);
    SAME(g.store.unflushed, 0);
}

static void old_tokens_are_cleaned_up_before_anybody_asks(void **state) {
    struct owner *first = handle("key"), *second = handle("key");
    size_t from;
    (void)state;
    SAME(owner_acquire(first, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    SAME(owner_cancel(first), RLOCK_OK); /* its request was sent: it may leave an orphan */
    idle();
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_fault(RLOCK_FAULT_UNKNOWN, NULL));
    scripted_answer(&g.store, need(RLOCK_OP_RELEASE), scripted_fault(RLOCK_FAULT_UNKNOWN, NULL));
    scripted_down(&g.store, RLOCK_FAULT_DOWN, NULL);
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    SAME(scripted_pending(&g.store, RLOCK_OP_RELEASE), 0);
    from = g.store.count;
    scripted_up(&g.store);
    BETWEEN(g.store.count, from + 2, SCRIPTED_REQUESTS);
    SAME(g.store.log[from].op, RLOCK_OP_RELEASE);
    SAME(g.store.log[from + 1].op, RLOCK_OP_ACQUIRE);
}

/* A late acquire is executed between a release and its answer. At that moment the store learns that
 * nothing more can come. With `early` its answer says what was true when the release was executed,
 * else what is true when the answer is read. Returns whether the token stays at the server. */
static bool late_acquire_stays(struct owner *owner, bool early) {
    bool there;
    int i;
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_UNKNOWN, "cut off"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    scripted_need(&g.store, RLOCK_OP_RELEASE); /* it is executed: nothing is there */
    there = true;                              /* the late acquire is executed; no other can be */
    if (early) {
        reply(RLOCK_OP_RELEASE, scripted_unsure(scripted_plain(RLOCK_OUTCOME_GONE)));
    } else {
        reply(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
    }
    for (i = 0; i < 100 && there; i++) {
        run_ms(100);
        there = out(RLOCK_OP_RELEASE) == NULL;
    }
    if (!there) {
        reply(RLOCK_OP_RELEASE, scripted_done()); /* the token is released */
    }
    SAME(stats().cleaning, 0);
    return there;
}

static void sure_that_is_judged_when_the_answer_is_read_leaves_an_orphan(void **state) {
    (void)state;
    SAME(late_acquire_stays(handle("early"), true), false);
    SAME(late_acquire_stays(handle("late"), false), true);
}

static void acquire_answered_with_nonsense_is_cleaned_up(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_OTHER, "what?"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    SAME(asked(RLOCK_OP_RELEASE), 1);
}

static rlock_answer undone(void) {
    rlock_answer answer = scripted_fault(RLOCK_FAULT_OTHER, "not here");
    answer.undone = true;
    return answer;
}

static void acquire_that_was_surely_not_executed_leaves_nothing(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, undone());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    SAME(stats().cleaning, 0);
}

/* An answer to one attempt says nothing about another. */
static void try_that_was_surely_not_executed_says_nothing_of_the_one_before(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 5000, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_UNKNOWN, "no answer"));
    run_ms(1000);
    reply(RLOCK_OP_ACQUIRE, undone());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    SAME(asked(RLOCK_OP_RELEASE), 1);
}

#endif /* TESTS_UNIT_ORPHANS_H */
