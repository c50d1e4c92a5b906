/* unit_waiting.h - waiters of a mutex: their order, what wakes them, how a wait ends */
#ifndef TESTS_UNIT_WAITING_H
#define TESTS_UNIT_WAITING_H

static void waiters_are_served_in_order_and_only_the_head_asks(void **state) {
    struct owner *owners[5];
    int i;
    (void)state;
    restart_with_handovers(-1);
    for (i = 0; i < 5; i++) {
        owners[i] = handle("key");
        SAME(owner_acquire(owners[i], RLOCK_FOREVER, 10000), RLOCK_OK);
    }
    run_ms(10);
    for (i = 0; i < 5; i++) {
        SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 1);
        reply(RLOCK_OP_ACQUIRE, scripted_done());
        SAME(owners[i]->seen[RLOCK_ACQUIRED].count, 1);
        SAME(stats().waiting, 4 - i);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_done());
        run_ms(10);
    }
    SAME(asked(RLOCK_OP_ACQUIRE), 5); /* one command a hand-over */
}

static void waiters_of_different_keys_do_not_wait_for_each_other(void **state) {
    (void)state;
    SAME(owner_acquire(handle("a"), RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(handle("b"), RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 2);
}

static void first_try_is_plain_and_the_next_one_watches(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->flags, 0);
    SAME(need(RLOCK_OP_ACQUIRE)->lease_ms, 10000);
    reply(RLOCK_OP_ACQUIRE, scripted_held(5000));
    SAME(need(RLOCK_OP_ACQUIRE)->flags & RLOCK_REQUEST_TRACK, RLOCK_REQUEST_TRACK);
    reply(RLOCK_OP_ACQUIRE, scripted_held(5000));
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    SAME(owner->events, 0);
}

/* Makes a waiter that was told twice that the key is held, and sleeps. */
static struct owner *sleeper(const char *key, int64_t wait_ms, int64_t left_ms) {
    struct owner *owner = handle(key);
    int i;
    SAME(owner_acquire(owner, wait_ms, 10000), RLOCK_OK);
    idle();
    for (i = 0; i < 4 && out(RLOCK_OP_ACQUIRE) != NULL; i++) {
        reply(RLOCK_OP_ACQUIRE, scripted_held(left_ms));
    }
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    return owner;
}

static void push_wakes_the_sleeping_head(void **state) {
    struct owner *owner = sleeper("key", RLOCK_FOREVER, 60000);
    (void)state;
    run_ms(1000);
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    scripted_woken(&g.store, "key");
    run_ms(20);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void push_while_a_try_is_out_makes_it_try_again_at_once(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    need(RLOCK_OP_ACQUIRE);
    scripted_woken(&g.store, "key");
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000)); /* may be older than the push */
    run_ms(20);
    need(RLOCK_OP_ACQUIRE);
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    run_ms(20);
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0); /* once for one push */
}

static void own_release_wakes_the_next_waiter_without_a_push(void **state) {
    struct owner *first, *next;
    (void)state;
    restart_with_handovers(-1);
    first = holder("key", 60000);
    next = sleeper("key", RLOCK_FOREVER, 60000);
    SAME(owner_release(first), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    run_ms(20);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void sleeper_tries_again_when_the_holders_lease_is_over(void **state) {
    int64_t start_us = now_us();
    (void)state;
    (void)sleeper("key", RLOCK_FOREVER, 2000);
    virtual_run_until(&g.loop, start_us + 1900 * 1000);
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    virtual_run_until(&g.loop, start_us + 2100 * 1000);
    need(RLOCK_OP_ACQUIRE);
}

static void waiters_try_again_when_the_connection_is_back(void **state) {
    (void)state;
    (void)sleeper("key", RLOCK_FOREVER, 3600000);
    scripted_pushing(&g.store, 0);
    scripted_down(&g.store, RLOCK_FAULT_UNKNOWN, "Connection reset");
    always(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_DOWN, "Connection refused"));
    run_ms(1000);
    g.store.automatic[RLOCK_OP_ACQUIRE] = false;
    scripted_up(&g.store);
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    run_ms(100);
    need(RLOCK_OP_ACQUIRE);
}

static void head_polls_with_back_off_up_to_poll_ms_where_nothing_is_pushed(void **state) {
    int64_t last_us = 0, gap;
    size_t i;
    (void)state;
    scripted_pushing(&g.store, 0);
    always(RLOCK_OP_ACQUIRE, scripted_held(3600000));
    SAME(owner_acquire(handle("key"), RLOCK_FOREVER, 10000), RLOCK_OK);
    run_ms(10000);
    BETWEEN(asked(RLOCK_OP_ACQUIRE), 39, 200);
    for (i = 0; i < g.store.count; i++) {
        gap = last_us == 0 ? 0 : g.store.log[i].at_us - last_us;
        BETWEEN(gap, 0, 251 * 1000);
        if (i > g.store.count / 2) {
            BETWEEN(gap, 50 * 1000, 251 * 1000); /* it has backed off */
        }
        last_us = g.store.log[i].at_us;
    }
}

static void push_that_stops_turns_sleepers_into_pollers(void **state) {
    (void)state;
    (void)sleeper("key", RLOCK_FOREVER, 3600000);
    scripted_pushing(&g.store, 0);
    run_ms(500);
    need(RLOCK_OP_ACQUIRE);
}

/* An attempt from before notifications says so at the server, which would not notify that
 * waiter. */
static void place_in_a_line_is_asked_for_again_when_calls_can_be_heard(void **state) {
    rlock_options options = options_for("key");
    int i;
    (void)state;
    options.kind = RLOCK_KIND_FAIR;
    scripted_pushing(&g.store, false);
    for (i = 0; i < 3; i++) {
        SAME(owner_acquire(handle_with(&options), RLOCK_FOREVER, 10000), RLOCK_OK);
        idle();
    }
    SAME(asked(RLOCK_OP_ACQUIRE), 3);
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
    SAME(asked(RLOCK_OP_ACQUIRE), 4); /* the first waiter's; the others' requests are in flight */
    for (i = 0; i < 3; i++) {
        reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    }
    SAME(asked(RLOCK_OP_ACQUIRE), 6);
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 2);
    for (i = 0; i < 2; i++) {
        reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    }
    SAME(asked(RLOCK_OP_ACQUIRE), 6);
}

static void wait_ends_as_timeout_at_its_end_for_head_and_others(void **state) {
    struct owner *owners[3];
    int64_t start_us = now_us();
    int i;
    (void)state;
    always(RLOCK_OP_ACQUIRE, scripted_held(60000));
    for (i = 0; i < 3; i++) {
        static const int waits[] = {700, 300, 500};
        owners[i] = handle("key");
        SAME(owner_acquire(owners[i], waits[i], 10000), RLOCK_OK);
    }
    run_ms(1000);
    for (i = 0; i < 3; i++) {
        static const int waits[] = {700, 300, 500};
        SAME(owners[i]->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_TIMEOUT);
        SAME(owners[i]->seen[RLOCK_ACQUIRED].at_us, start_us + waits[i] * 1000);
    }
    BETWEEN(owners[0]->seen[RLOCK_ACQUIRED].remaining_ms, 59000, 60000);
    SAME(asked(RLOCK_OP_RELEASE), 0); /* told "held": there is nothing to clean up */
    SAME(stats().waiting, 0);
}

static void cancel_of_the_head_promotes_the_next(void **state) {
    struct owner *head = handle("key"), *next = handle("key");
    uint64_t token;
    (void)state;
    SAME(owner_acquire(head, RLOCK_FOREVER, 10000), RLOCK_OK);
    SAME(owner_acquire(next, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    token = need(RLOCK_OP_ACQUIRE)->token;
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(owner_cancel(head), RLOCK_OK);
    SAME(owner_cancel(head), RLOCK_OK); /* it is WAITING until its one callback */
    run_ms(20);
    SAME(head->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    assert_true(scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token != token);
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    idle();
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(head->events, 1);
}

static void canceled_has_no_words_of_the_server(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner_cancel(owner), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "");
}

static void cancel_of_a_sleeping_head_makes_the_next_ask(void **state) {
    struct owner *head = sleeper("key", RLOCK_FOREVER, 60000), *next = handle("key");
    (void)state;
    SAME(owner_acquire(next, RLOCK_FOREVER, 10000), RLOCK_OK);
    run_ms(10);
    if (out(RLOCK_OP_ACQUIRE) != NULL) {
        reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    }
    SAME(owner_cancel(head), RLOCK_OK);
    run_ms(20);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(asked(RLOCK_OP_RELEASE), 0); /* the head was told "held": nothing of it is left */
}

/* However many wait, a wake-up costs one command. */
static void waiters_that_come_and_go_behind_a_sleeping_head_ask_nothing(void **state) {
    struct owner *head = sleeper("key", RLOCK_FOREVER, 60000), *others[4];
    int i, before = asked(RLOCK_OP_ACQUIRE);
    (void)state;
    for (i = 0; i < 4; i++) {
        others[i] = handle("key");
        SAME(owner_acquire(others[i], i == 3 ? 100 : RLOCK_FOREVER, 10000), RLOCK_OK);
        run_ms(10);
    }
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    SAME(owner_cancel(others[0]), RLOCK_OK);
    owner_free(others[1]);
    run_ms(200);
    SAME(others[3]->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_TIMEOUT);
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    SAME(head->events, 0);
}

static void fault_that_ends_the_head_lets_the_next_ask(void **state) {
    struct owner *head = handle("key"), *next = handle("key");
    (void)state;
    SAME(owner_acquire(head, RLOCK_FOREVER, 10000), RLOCK_OK);
    SAME(owner_acquire(next, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "NOPERM"));
    run_ms(2000);
    SAME(head->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
    if (next->events == 0) {
        reply(RLOCK_OP_ACQUIRE, scripted_done());
        SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    }
}

static void single_try_is_busy_with_the_time_the_holder_has_left(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, 10000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(4321));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms, 4321);
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    SAME(owner_acquire(owner, 0, 10000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(-1));
    SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms, -1);
}

static void single_try_behind_a_sleeping_waiter_is_busy_at_once(void **state) {
    struct owner *waits = sleeper("key", RLOCK_FOREVER, 60000), *tries = handle("key");
    (void)state;
    always(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(owner_acquire(tries, 0, 10000), RLOCK_OK);
    run_ms(20);
    SAME(tries->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(waits->events, 0);
}

static void single_try_behind_another_before_the_first_connect_is_busy(void **state) {
    struct owner *first, *second;
    (void)state;
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_OK);
    first = handle("key");
    second = handle("key");
    SAME(owner_acquire(first, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(second, 0, 10000), RLOCK_OK);
    idle();
    SAME(second->events, 0);
    scripted_up(&g.store);
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    run_ms(5000);
    SAME(second->events, 1);
}

static void wait_that_ends_while_its_try_is_out_is_unknown(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 500, 1000), RLOCK_OK);
    run_ms(501);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    SAME(asked(RLOCK_OP_RELEASE), 1);
}

static void waiter_and_holder_look_when_push_is_back(void **state) {
    struct owner *owner = holder("held", 10000), *waiter = handle("key");
    unsigned watching;
    int looks, tries;
    (void)state;
    always(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(owner_acquire(waiter, RLOCK_FOREVER, 1000), RLOCK_OK);
    run_ms(500);
    scripted_pushing(&g.store, 0);
    looks = asked((rlock_op)SCRIPTED_LOOK);
    tries = asked(RLOCK_OP_ACQUIRE);
    watching = g.store.watched;
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    SAME(asked((rlock_op)SCRIPTED_LOOK), looks + 1);
    SAME(asked(RLOCK_OP_ACQUIRE), tries + 1);
    SAME(g.store.watched, watching + 2); /* a store may have forgotten its watches meanwhile */
    assert_true(rlock_is_held(owner->lock));
}

static rlock_answer held_and_told(int64_t left_ms) {
    rlock_answer answer = scripted_held(left_ms);
    answer.watched = true;
    return answer;
}

static void first_refusal_of_a_waiter_is_retried_only_without_push(void **state) {
    struct owner *waiter = handle("told"), *other = handle("not told");
    (void)state;
    SAME(owner_acquire(waiter, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, held_and_told(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    assert_true(scripted_tracks(&g.store, "told"));
    run_ms(5000);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    scripted_woken(&g.store, "told");
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(waiter->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(owner_acquire(other, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 4); /* changes from before it was tracked are not pushed */
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 4);
}

static void change_while_the_first_refusal_was_on_its_way_is_not_missed(void **state) {
    struct owner *waiter = handle("key");
    (void)state;
    SAME(owner_acquire(waiter, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    scripted_woken(&g.store, "key"); /* it came before the answer, on another connection */
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    reply(RLOCK_OP_ACQUIRE, held_and_told(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
}

static void waiter_that_cannot_be_notified_asks_anew_when_it_can(void **state) {
    struct owner *waiter = handle("key");
    (void)state;
    scripted_pushing(&g.store, 0);
    SAME(owner_acquire(waiter, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 1); /* polling is the same, a moment later */
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
}

/* Makes handles of `count` tracked keys: one half holds, the other half waits. */
static void watch_many(struct owner **owners, int count, const char *what) {
    int i;
    always(RLOCK_OP_RELEASE, scripted_done());
    for (i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s%d", what, i);
        owners[i] = handle(key);
        always(RLOCK_OP_ACQUIRE, i % 2 == 0 ? scripted_done() : scripted_held(3600000));
        SAME(owner_acquire(owners[i], i % 2 == 0 ? 0 : RLOCK_FOREVER, 3600000), RLOCK_OK);
        idle();
    }
    run_ms(200); /* the holders' keys are tracked */
}

/* Counts the checks of holders and the attempts of waiters in so long a time. */
static void ask_for(int64_t ms, int *looks, int *tries) {
    *looks = -asked((rlock_op)SCRIPTED_LOOK);
    *tries = -asked(RLOCK_OP_ACQUIRE);
    run_ms(ms);
    *looks += asked((rlock_op)SCRIPTED_LOOK);
    *tries += asked(RLOCK_OP_ACQUIRE);
}

static void many_watched_keys_are_asked_for_now_and_then_and_few_are_not(void **state) {
    struct owner *owners[120];
    int looks, tries;
    (void)state;
    watch_many(owners, 98, "few");
    ask_for(9000, &looks, &tries);
    SAME(looks, 0);
    SAME(tries, 0);
    watch_many(owners + 98, 22, "more");
    ask_for(10000, &looks, &tries); /* what was planned when they were few */
    ask_for(1500, &looks, &tries);
    BETWEEN(looks, 60, 120);
    BETWEEN(tries, 60, 120);
    ask_for(10000, &looks, &tries);
    BETWEEN(looks, 400, 660);
    BETWEEN(tries, 400, 660);
    scripted_pushing(&g.store, 0); /* now waiters poll, and holders learn by their renewals */
    ask_for(10000, &looks, &tries);
    SAME(looks, 0);
    BETWEEN(tries, 60, 60 * 120);
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    ask_for(2000, &looks, &tries);
    BETWEEN(looks, 60, 240);
}

static void stall_2_s(struct owner *owner, const rlock_event *event) {
    (void)event;
    virtual_stall(owner->loop, 2000000);
}

static void grant_that_was_lost_before_its_callback_keeps_its_place(void **state) {
    struct owner *slow = handle("slow"), *first = handle("key"), *second = handle("key");
    uint64_t token;
    (void)state;
    slow->react = stall_2_s;
    SAME(owner_acquire(slow, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(first, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 2);
    token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    idle();
    SAME(slow->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(first->events + second->events, 0);
    SAME(need(RLOCK_OP_ACQUIRE)->token, token);
}

static void unknown_stays_the_last_word_when_the_connection_is_gone(void **state) {
    struct owner *owner = handle("key"), *releasing = holder("other", 2000);
    (void)state;
    SAME(owner_acquire(owner, 1000, 1000), RLOCK_OK);
    SAME(owner_release(releasing), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_UNKNOWN, NULL));
    reply(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_UNKNOWN, NULL));
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "gone");
    always(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_DOWN, "gone"));
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_DOWN, "gone"));
    run_ms(2000);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    SAME(releasing->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN);
}

static void every_waiter_is_notified_that_the_server_refuses_this_user(void **state) {
    struct owner *first = handle("key"), *second = handle("key");
    (void)state;
    scripted_down(&g.store, RLOCK_FAULT_DOWN, NULL);
    SAME(owner_acquire(first, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    SAME(first->events + second->events, 0);
    scripted_down(&g.store, RLOCK_FAULT_AUTH, "WRONGPASS");
    SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
    assert_string_equal(second->seen[RLOCK_ACQUIRED].text, "WRONGPASS");
}

#endif /* TESTS_UNIT_WAITING_H */
