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
    SAME(stats().lost, 0); /* what alarms ring for: a clean shutdown is none */
    SAME(stats().released, 1);
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

/* Neither by a timer, nor by a descriptor or a name: the virtual loop refuses all of these now. */
static void nothing_is_left_on_the_loop(void) {
    int i;
    SAME(g.store.closes, g.store.opens);
    for (i = 0; i < VIRTUAL_CLIENTS; i++) {
        assert_false(g.loop.states[i].alive);
    }
}

static int closed_in_done;

static void done_and_closed(rlock_client *client, int status, void *user) {
    on_done(client, status, user);
    nothing_is_left_on_the_loop();
    closed_in_done++;
}

static void ended_shutdown_leaves_nothing_on_the_loop(void **state) {
    int answers;
    (void)state;
    for (answers = 0; answers < 2; answers++) {
        struct owner *holds = holder("a", 60000), *idles = handle("key");
        rlock_stats now;
        closed_in_done = 0;
        if (answers) {
            always(RLOCK_OP_RELEASE, scripted_done());
        } else {
            scripted_down(&g.store, RLOCK_FAULT_DOWN, "away");
        }
        SAME(rlock_client_shutdown(g.client, 1000, done_and_closed, &g), RLOCK_OK);
        run_ms(1001);
        SAME(closed_in_done, 1);
        SAME(g.done_status, answers ? RLOCK_OK : RLOCK_ERR_TIMEOUT);
        SAME(owner_acquire(idles, 0, 0), RLOCK_ERR_CLOSED);
        SAME(owner_release(holds), RLOCK_ERR_NOT_HELD);
        SAME(owner_renew(holds, 0), RLOCK_ERR_NOT_HELD);
        SAME(owner_cancel(holds), RLOCK_ERR_STATE);
        assert_false(rlock_is_held(holds->lock));
        now = stats();
        SAME(now.handles, 2);
        SAME(now.held + now.waiting + now.cleaning, 0);
        SAME(now.up, false);
        run_ms(200000);
        owner_free(holds);
        free_client();
        SAME(owner_acquire(idles, 0, 0), RLOCK_ERR_CLOSED);
        SAME(owner_release(idles), RLOCK_ERR_CLOSED);
        owner_free(idles);
        SAME(virtual_memory.live, 0);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        start();
    }
}

static void done_and_free(rlock_client *client, int status, void *user) {
    on_done(client, status, user);
    free_client();
}

static void client_that_is_shut_down_may_be_freed_in_done_or_after_its_handles(void **state) {
    int i;
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    for (i = 0; i < 4; i++) {
        struct owner *owner = i % 2 ? holder("key", 60000) : NULL;
        SAME(rlock_client_shutdown(g.client, 0, i < 2 ? done_and_free : on_done, &g), RLOCK_OK);
        idle();
        SAME(g.done_count, i + 1);
        if (owner) {
            owner_free(owner);
        }
        if (i >= 2) {
            SAME(stats().handles, 0);
            SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_ERR_STATE);
            free_client();
        }
        SAME(virtual_memory.live, 0);
        start();
    }
}

/* What was sent and not answered may have happened. */
static void shutdown_ends_a_release_that_is_not_answered_before_it_is_done(void **state) {
    struct owner *sent = bring_to(RELEASING), *unsent;
    (void)state;
    SAME(rlock_client_shutdown(g.client, 500, on_done, &g), RLOCK_OK);
    run_ms(501);
    SAME(sent->seen[RLOCK_RELEASED].count, 1);
    SAME(sent->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN);
    SAME(g.done_status, RLOCK_ERR_TIMEOUT);
    assert_true(g.done_order > sent->seen[RLOCK_RELEASED].order);
    free_client();
    start();
    unsent = holder("key", 60000);
    scripted_down(&g.store, RLOCK_FAULT_AUTH, "no");
    SAME(owner_release(unsent), RLOCK_OK);
    SAME(rlock_client_shutdown(g.client, 500, on_done, &g), RLOCK_OK);
    run_ms(501);
    SAME(unsent->seen[RLOCK_RELEASED].count, 1);
    SAME(unsent->seen[RLOCK_RELEASED].status, RLOCK_ERR_AUTH);
    SAME(g.done_count, 2);
}

/* The release had ended, and the acquire that follows it begins with the callback of that. */
static void shutdown_is_done_after_an_acquire_that_would_follow(void **state) {
    struct owner *owner = holder("key", 60000);
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    scripted_answer(&g.store, need(RLOCK_OP_RELEASE), scripted_done());
    SAME(rlock_client_shutdown(g.client, 500, on_done, &g), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(g.done_count, 1);
    assert_true(g.done_order > owner->seen[RLOCK_ACQUIRED].order);
}

/* ------------------------------------------------------------------------------------------------
 * A drain.
 */

static void drain_lets_holders_finish_and_refuses_acquires(void **state) {
    struct owner *holds = holder("a", 0), *waits = sleeper("b", RLOCK_FOREVER, 60000);
    struct owner *idles = handle("c"), *too = holder("d", 60000);
    (void)state;
    always(RLOCK_OP_RENEW, scripted_done());
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(rlock_client_drain(g.client, 60000, on_done, &g), RLOCK_OK);
    SAME(rlock_client_drain(g.client, 60000, on_done, &g), RLOCK_ERR_STATE);
    SAME(owner_acquire(idles, 0, 0), RLOCK_ERR_CLOSED);
    idle();
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    run_ms(3 * WATCHDOG_MS); /* it is renewed */
    assert_true(rlock_is_held(holds->lock));
    SAME(owner_renew(too, 60000), RLOCK_OK);
    idle();
    SAME(too->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(owner_release(too), RLOCK_OK);
    SAME(owner_acquire(too, 0, 0), RLOCK_ERR_CLOSED); /* nor behind the release */
    idle();
    SAME(too->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(g.done_count, 0);
    SAME(owner_release(holds), RLOCK_OK);
    idle();
    SAME(holds->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(holds->seen[RLOCK_LOST].count + too->seen[RLOCK_LOST].count, 0);
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
    nothing_is_left_on_the_loop();
}

static void drain_of_an_idle_client_is_a_shutdown(void **state) {
    (void)state;
    (void)handle("key");
    SAME(rlock_client_drain(g.client, 0, on_done, &g), RLOCK_OK);
    SAME(g.done_count, 0);
    idle();
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
    nothing_is_left_on_the_loop();
}

/* It tells who holds still, as a shutdown does. */
static void drain_that_takes_too_long_ends_in_a_shutdown(void **state) {
    struct owner *holds = holder("key", 60000);
    (void)state;
    SAME(rlock_client_drain(g.client, 700, on_done, &g), RLOCK_OK);
    run_ms(699);
    assert_true(rlock_is_held(holds->lock));
    run_ms(2);
    SAME(holds->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    SAME(g.done_count, 0);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
}

/* Once nothing is held it lasts no longer than a shutdown, whatever time it was given. */
static void drain_waits_for_a_release_as_long_as_a_shutdown_does(void **state) {
    int64_t since_us;
    int lost;
    (void)state;
    for (lost = 0; lost < 2; lost++) {
        struct owner *holds = holder("key", 60000);
        SAME(rlock_client_drain(g.client, 0, on_done, &g), RLOCK_OK);
        run_ms(100);
        since_us = now_us();
        if (lost) {
            SAME(owner_renew(holds, 0), RLOCK_OK);
            idle();
            reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_STOLEN));
            SAME(holds->seen[RLOCK_LOST].reason, RLOCK_REASON_STOLEN);
        } else {
            SAME(owner_release(holds), RLOCK_OK);
        }
        run_ms(10000);
        SAME(g.done_count, lost + 1);
        SAME(g.done_status, lost ? RLOCK_OK : RLOCK_ERR_TIMEOUT);
        BETWEEN(g.done_at_us - since_us, lost ? 0 : 1000000, lost ? 1000 : 1001000);
        free_client();
        start();
    }
}

static int cut_short;

static void on_canceled(rlock_client *client, int status, void *user) {
    assert_ptr_equal(client, g.client);
    assert_ptr_equal(user, &cut_short);
    SAME(status, RLOCK_ERR_CANCELED);
    SAME(g.done_count, 0);
    cut_short++;
}

static void shutdown_cuts_a_drain_short_and_each_is_notified_once(void **state) {
    struct owner *holds = holder("key", 60000);
    (void)state;
    cut_short = 0;
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(rlock_client_drain(g.client, 60000, on_canceled, &cut_short), RLOCK_OK);
    run_ms(100);
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    SAME(rlock_client_drain(g.client, 0, on_done, &g), RLOCK_ERR_STATE);
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_ERR_STATE);
    idle();
    SAME(holds->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    SAME(cut_short, 1);
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
    run_ms(100000);
    SAME(cut_short + g.done_count, 2);
}

/* A part of what a holder does may be a function that acquires again. */
static void drain_lets_a_holder_acquire_once_more(void **state) {
    struct owner *owner = reentrant(10000);
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    always(RLOCK_OP_RENEW, scripted_done());
    SAME(rlock_client_drain(g.client, 0, on_done, &g), RLOCK_OK);
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(rlock_hold_count(owner->lock), 2);
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    SAME(g.done_count, 0);
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    SAME(g.done_count, 1);
}

/* No acquire ends with OK when the drain has begun. */
static void drain_ends_a_grant_that_was_not_reported_as_closed(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    idle();
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    SAME(rlock_client_drain(g.client, 0, on_done, &g), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(g.done_status, RLOCK_OK);
    SAME(g.done_count, 1);
}

static void drain_here(struct owner *owner, const rlock_event *event) {
    (void)event;
    owner->react = NULL;
    SAME(rlock_client_drain(g.client, 0, on_done, &g), RLOCK_OK);
}

static void drain_in_a_callback_ends_the_grant_that_was_to_be_reported_next(void **state) {
    struct owner *holds = handle("a"), *next = handle("b");
    (void)state;
    SAME(owner_acquire(holds, 0, 60000), RLOCK_OK);
    SAME(owner_acquire(next, 0, 60000), RLOCK_OK);
    holds->react = drain_here;
    scripted_settle(&g.store);
    SAME(holds->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    assert_true(rlock_is_held(holds->lock));
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(g.done_count, 0);
    SAME(owner_release(holds), RLOCK_OK);
    idle();
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
}

static void drain_that_is_cut_short_needs_no_callback(void **state) {
    struct owner *holds = holder("key", 60000);
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(rlock_client_drain(g.client, 60000, NULL, NULL), RLOCK_OK);
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    idle();
    SAME(holds->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
}

static void shut_down_here(struct owner *owner, const rlock_event *event) {
    (void)event;
    owner->react = NULL;
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
}

/* The release of the second has ended too by then, so that nothing is left to be waited for. */
static void shutdown_in_a_callback_is_done_behind_what_follows_the_next_one(void **state) {
    struct owner *first = holder("a", 60000), *second = holder("b", 60000);
    (void)state;
    SAME(owner_release(first), RLOCK_OK);
    SAME(owner_release(second), RLOCK_OK);
    SAME(owner_acquire(second, 0, 60000), RLOCK_OK);
    first->react = shut_down_here;
    scripted_settle(&g.store);
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_ACQUIRED].count, 2);
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
    assert_true(g.done_order > second->seen[RLOCK_ACQUIRED].order);
    nothing_is_left_on_the_loop();
}

static struct {
    rlock_timer timers[2];
    int fired;
} plans; /* of something that is built on handles */

static void plan_ends(rlock_timer *timer) {
    (void)timer;
    plans.fired++;
    rlock_timer_set(g.client, &plans.timers[0], -1);
    rlock_timer_set(g.client, &plans.timers[1], -1);
}

static void shutdown_fires_no_timer_that_one_before_it_has_stopped(void **state) {
    int i;
    (void)state;
    memset(&plans, 0, sizeof plans);
    for (i = 0; i < 2; i++) {
        SAME(rlock_timer_add(g.client, &plans.timers[i], plan_ends), RLOCK_OK);
        rlock_timer_set(g.client, &plans.timers[i], now_us() + 60000000);
    }
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    idle();
    SAME(plans.fired, 1);
    SAME(g.done_count, 1);
    nothing_is_left_on_the_loop();
    for (i = 0; i < 2; i++) {
        rlock_timer_drop(g.client, &plans.timers[i]);
    }
}

/* ------------------------------------------------------------------------------------------------
 * Idle.
 */

static bool rests(void) {
    return virtual_state_of(&g.loop, g.client)->idle;
}

static void client_keeps_its_loop_while_anything_is_held_wanted_or_owed(void **state) {
    struct owner *owner = handle("key"), *other = handle("key");
    (void)state;
    assert_true(rests()); /* connected, with two handles */
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    assert_false(rests());
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    run_ms(10);
    assert_false(rests());
    SAME(owner_acquire(other, RLOCK_FOREVER, 60000), RLOCK_OK);
    idle();
    SAME(owner_release(owner), RLOCK_OK); /* handed over */
    idle();
    assert_true(rlock_is_held(other->lock));
    assert_false(rests());
    SAME(owner_release(other), RLOCK_OK);
    idle();
    assert_false(rests());
    reply(RLOCK_OP_RELEASE, scripted_done());
    assert_true(rests());
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    idle();
    SAME(owner_cancel(owner), RLOCK_OK);
    idle();
    assert_false(rests()); /* what is left is cleaned up */
    scripted_settle(&g.store);
    SAME(stats().cleaning, 0);
    assert_true(rests());
    memset(g.store.automatic, 0, sizeof g.store.automatic);
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    owner_free(owner); /* its hold is released in the background */
    assert_false(rests());
    scripted_settle(&g.store);
    assert_true(rests());
}

static void client_with_a_plan_or_a_store_that_cleans_up_is_not_idle(void **state) {
    (void)state;
    assert_true(rests());
    rlock_client_plans(g.client, true);
    assert_false(rests());
    rlock_client_plans(g.client, true);
    rlock_client_plans(g.client, false);
    assert_false(rests());
    rlock_client_plans(g.client, false);
    assert_true(rests());
    rlock_client_counters(g.client)->cleaning++; /* as a quorum does */
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    idle();
    (void)handle("key");
    assert_false(rests());
    rlock_client_counters(g.client)->cleaning--;
    (void)handle("key");
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

static void client_free_before_their_callbacks_leaks_nothing(void **state) {
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
