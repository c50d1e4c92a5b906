/* testing_loops.h - rlock_testing_new_on: the server of the kit in real time, on loops of programs
 */
#ifndef TESTS_TESTING_LOOPS_H
#define TESTS_TESTING_LOOPS_H

#define LIVE_PATIENCE_MS 30000 /* what it waits for comes in far less */
#define LIVE_LEASE_MS 400

struct live_loop {
    void *(*make)(void);
    rlock_loop (*hooks)(void *loop);
    void (*turns)(void *loop); /* once, and not for long */
    void (*runs)(void *loop);  /* until nothing is left to wait for */
    void (*ends)(void *loop);
};

static void *live_poll_make(void) {
    return rlock_poll_new();
}

static rlock_loop live_poll_hooks(void *loop) {
    return rlock_poll_loop((rlock_poll *)loop);
}

static void live_poll_turns(void *loop) {
    if (!rlock_poll_once((rlock_poll *)loop, 10)) { /* nothing is to come */
        usleep(10000);
    }
}

static void live_poll_runs(void *loop) {
    rlock_poll_run((rlock_poll *)loop);
}

static void live_poll_ends(void *loop) {
    rlock_poll_free((rlock_poll *)loop);
}

static uv_timer_t live_guard; /* ends a turn in which nothing happens */

static void *live_uv_make(void) {
    uv_loop_t *loop = (uv_loop_t *)malloc(sizeof *loop);
    assert_non_null(loop);
    assert_int_equal(uv_loop_init(loop), 0);
    assert_int_equal(uv_timer_init(loop, &live_guard), 0);
    return loop;
}

static rlock_loop live_uv_hooks(void *loop) {
    return rlock_libuv_loop((uv_loop_t *)loop);
}

static void live_uv_on_guard(uv_timer_t *timer) {
    (void)timer;
}

static void live_uv_turns(void *loop) {
    uv_timer_start(&live_guard, live_uv_on_guard, 10, 0);
    uv_run((uv_loop_t *)loop, UV_RUN_ONCE);
    uv_timer_stop(&live_guard);
}

static void live_uv_runs(void *loop) {
    assert_int_equal(uv_run((uv_loop_t *)loop, UV_RUN_DEFAULT), 0);
}

static void live_uv_ends(void *loop) {
    uv_close((uv_handle_t *)&live_guard, NULL);
    uv_run((uv_loop_t *)loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close((uv_loop_t *)loop), 0);
    free(loop);
}

static const struct live_loop live_loops[] = {
    {live_poll_make, live_poll_hooks, live_poll_turns, live_poll_runs, live_poll_ends},
    {live_uv_make, live_uv_hooks, live_uv_turns, live_uv_runs, live_uv_ends},
};

static const struct live_loop *live;
static void *live_on;

static int live_setup(void **state) {
    live = (const struct live_loop *)*state;
    owned = log_lines = memory_lasts = 0;
    log_text[0] = '\0';
    live_on = live->make();
    t = rlock_testing_new_on(live->hooks(live_on));
    assert_non_null(t);
    client = client_on(t);
    return 0;
}

static int live_teardown(void **state) {
    teardown(state);
    live->ends(live_on);
    return 0;
}

/* Lets the loop turn until it is true. */
static bool live_until(bool (*done)(void *user), void *user) {
    int64_t end_ms = alike_now_ms() + LIVE_PATIENCE_MS;
    while (!done(user) && alike_now_ms() < end_ms) {
        live->turns(live_on);
    }
    return done(user);
}

static void live_passes(int64_t ms) {
    int64_t end_ms = alike_now_ms() + ms;
    while (alike_now_ms() < end_ms) {
        live->turns(live_on);
    }
}

static bool is_acquired(void *user) {
    return ((const struct owner *)user)->count[RLOCK_ACQUIRED] > 0;
}

static bool is_released(void *user) {
    return ((const struct owner *)user)->count[RLOCK_RELEASED] > 0;
}

static struct owner *live_holder(rlock_client *c, const char *key, int64_t lease_ms) {
    struct owner *o = owner_of(c, key);
    acquire(o, RLOCK_FOREVER, lease_ms);
    assert_true(live_until(is_acquired, o));
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    return o;
}

static void lock_is_acquired_and_released_on_the_loop_of_the_program(void **state) {
    struct owner *o = live_holder(client, "k", 0);
    (void)state;
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
    assert_int_equal(rlock_release(o->lock, on_event, o), RLOCK_OK);
    assert_true(live_until(is_released, o));
    assert_int_equal(rlock_testing_holders(t, "k"), 0);
}

static void watchdog_renews_in_real_time(void **state) {
    rlock_options options;
    struct owner *o;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.watchdog = RLOCK_WATCHDOG_ON;
    o = owner_with(client, &options);
    acquire(o, 0, LIVE_LEASE_MS);
    assert_true(live_until(is_acquired, o));
    live_passes(3 * LIVE_LEASE_MS);
    assert_int_equal(o->count[RLOCK_LOST], 0);
    assert_true(rlock_is_held(o->lock));
}

static void thief_and_deletion_are_reported_on_the_loop_of_the_program(void **state) {
    struct owner *o = live_holder(client, "k", 0), *other = live_holder(client, "other", 0);
    (void)state;
    live_passes(150); /* holds older than 100 ms are watched */
    assert_int_equal(rlock_testing_steal(t, "k"), RLOCK_OK);
    assert_true(live_until(is_lost, o));
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    assert_int_equal(rlock_testing_delete(t, "other"), RLOCK_OK);
    assert_true(live_until(is_lost, other));
    assert_int_equal(other->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

static void server_that_is_down_in_real_time_is_found_when_it_is_up(void **state) {
    struct owner *o = owner_new("k"), *tries = owner_new("tries");
    (void)state;
    rlock_testing_server(t, RLOCK_TESTING_DOWN);
    acquire(tries, 0, 0);
    acquire(o, RLOCK_FOREVER, 0);
    assert_true(live_until(is_acquired, tries));
    assert_int_equal(tries->status[RLOCK_ACQUIRED], RLOCK_ERR_CONN);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 0);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    assert_true(live_until(is_acquired, o));
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
}

static void hold_of_a_silent_server_ends_at_its_deadline_in_real_time(void **state) {
    struct owner *o = live_holder(client, "k", LIVE_LEASE_MS), *tries = owner_new("tries");
    int64_t since_ms = o->at_ms[RLOCK_ACQUIRED];
    (void)state;
    rlock_testing_server(t, RLOCK_TESTING_SILENT);
    acquire(tries, 0, 0);
    assert_true(live_until(is_acquired, tries));
    assert_int_equal(tries->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
    assert_true(live_until(is_lost, o));
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_true(o->at_ms[RLOCK_LOST] - since_ms >= LIVE_LEASE_MS / 2);
}

static void latency_passes_in_real_time(void **state) {
    struct owner *o = live_holder(client, "first", 0);
    int64_t since_ms = alike_now_ms();
    (void)state;
    rlock_testing_latency(t, TIMEOUT_MS / 2);
    o = live_holder(client, "k", 0);
    assert_true(rlock_testing_now_ms(t) <= RLOCK_NOW_US() / 1000); /* nothing came too early */
    assert_true(alike_now_ms() - since_ms >= TIMEOUT_MS / 2);
    assert_true(o->at_ms[RLOCK_ACQUIRED] - since_ms >= TIMEOUT_MS / 2 - 1);
}

static void
process_that_is_frozen_in_real_time_is_notified_of_its_loss_when_it_goes_on(void **state) {
    struct owner *o = live_holder(client, "k", LIVE_LEASE_MS), *waits;
    rlock_testing *beside = rlock_testing_new(t);
    rlock_client *c;
    (void)state;
    assert_non_null(beside);
    c = client_on(beside);
    rlock_testing_freeze(t, 4 * LIVE_LEASE_MS);
    waits = live_holder(c, "k", 0);
    assert_int_equal(o->count[RLOCK_LOST], 0);
    assert_true(live_until(is_lost, o));
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_true(o->at_ms[RLOCK_LOST] >= o->at_ms[RLOCK_ACQUIRED] + 4 * LIVE_LEASE_MS);
    assert_true(rlock_is_held(waits->lock));
    rlock_testing_freeze(beside, 1); /* and is freed before it goes on */
    rlock_client_free(c);
    rlock_testing_free(beside);
    live_passes(20);
}

static void process_that_is_killed_in_real_time_is_notified_of_nothing(void **state) {
    struct owner *o = live_holder(client, "k", LIVE_LEASE_MS);
    rlock_testing *beside = rlock_testing_new(t);
    rlock_client *c;
    (void)state;
    assert_non_null(beside);
    c = client_on(beside);
    rlock_testing_kill(t);
    live_holder(c, "k", 0);
    live_passes(LIVE_LEASE_MS);
    assert_int_equal(o->count[RLOCK_LOST], 0);
    rlock_client_free(c);
    rlock_testing_free(beside);
}

static void releases(struct owner *o, const rlock_event *event) {
    if (event->kind == RLOCK_ACQUIRED) {
        assert_int_equal(rlock_release(o->lock, on_event, o), RLOCK_OK);
    }
}

static void loop_ends_when_nothing_is_waited_for_and_not_before(void **state) {
    struct owner *o = owner_new("k");
    struct timed timed = {0, 0};
    (void)state;
    assert_int_equal(rlock_testing_hold(t, "k", LIVE_LEASE_MS), RLOCK_OK);
    o->react = releases;
    acquire(o, RLOCK_FOREVER, 0);
    live->runs(live_on);
    assert_int_equal(o->count[RLOCK_RELEASED], 1);
    assert_int_equal(rlock_testing_after(t, 10, fire_timed, &timed), RLOCK_OK);
    live->runs(live_on);
    assert_int_equal(rlock_testing_pending(t), 0);
}

static void goes_round(struct owner *o, const rlock_event *event) {
    if (event->kind == RLOCK_ACQUIRED) {
        assert_int_equal(rlock_release(o->lock, on_event, o), RLOCK_OK);
    } else {
        acquire(o, RLOCK_FOREVER, 0);
    }
}

static void program_that_never_rests_leaves_the_loop_to_others(void **state) {
    struct owner *o = owner_new("k");
    int i;
    (void)state;
    o->react = goes_round;
    acquire(o, RLOCK_FOREVER, 0);
    for (i = 0; i < 100; i++) {
        live->turns(live_on); /* it returns */
    }
    assert_true(o->count[RLOCK_ACQUIRED] > 1);
    o->react = NULL;
}

static void loop_rests_while_nothing_is_due(void **state) {
    int64_t end_ms;
    int turns = 0;
    (void)state;
    live_holder(client, "k", LIVE_LEASE_MS);
    rlock_testing_kill(t); /* what is due of it does not happen */
    for (end_ms = alike_now_ms() + 3 * LIVE_LEASE_MS / 2; alike_now_ms() < end_ms; turns++) {
        live->turns(live_on);
    }
    assert_true(turns < 400); /* of 10 ms */
}

static void passes_time_by_hand(void) {
    rlock_testing_pass(t, 1);
}

static void kit_in_real_time_without_memory_or_passed_by_hand_says_so(void **state) {
    char words[256];
    int i;
    (void)state;
    for (i = 1; i < 4; i++) {
        rlock_testing *other;
        memory_lasts = i;
        other = rlock_testing_new_on(live->hooks(live_on));
        assert_true((other == NULL) == (memory_lasts == 0));
        memory_lasts = 0;
        rlock_testing_free(other);
    }
    assert_int_equal(signal_of(passes_time_by_hand, words, sizeof words), SIGABRT);
    assert_non_null(strstr(words, "rlock_testing: time is real here"));
}

#define LIVE(name, i, word)                                   \
    {                                                         \
#name " (" word ")", name, live_setup, live_teardown, \
            (void *)(uintptr_t)(const void *)&live_loops[i]   \
    }
#define EACH_LOOP(name) LIVE(name, 0, "poll"), LIVE(name, 1, "libuv")
#define LIVE_TESTS                                                                              \
    EACH_LOOP(lock_is_acquired_and_released_on_the_loop_of_the_program),                        \
        EACH_LOOP(watchdog_renews_in_real_time),                                                \
        EACH_LOOP(thief_and_deletion_are_reported_on_the_loop_of_the_program),                  \
        EACH_LOOP(server_that_is_down_in_real_time_is_found_when_it_is_up),                     \
        EACH_LOOP(hold_of_a_silent_server_ends_at_its_deadline_in_real_time),                   \
        EACH_LOOP(latency_passes_in_real_time),                                                 \
        EACH_LOOP(process_that_is_frozen_in_real_time_is_notified_of_its_loss_when_it_goes_on), \
        EACH_LOOP(process_that_is_killed_in_real_time_is_notified_of_nothing),                  \
        EACH_LOOP(loop_ends_when_nothing_is_waited_for_and_not_before),                         \
        EACH_LOOP(program_that_never_rests_leaves_the_loop_to_others),                          \
        EACH_LOOP(loop_rests_while_nothing_is_due),                                             \
        EACH_LOOP(kit_in_real_time_without_memory_or_passed_by_hand_says_so)

#endif
