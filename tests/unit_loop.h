/* unit_loop.h - what passes between the core and the loop: timers, descriptors, flushes */
#ifndef TESTS_UNIT_LOOP_H
#define TESTS_UNIT_LOOP_H

static void what_is_submitted_is_flushed_before_the_loop_sleeps(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    need(RLOCK_OP_ACQUIRE);
    SAME(g.store.unflushed, 0);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    SAME(g.store.unflushed, 0);
}

static unsigned io_events;

static void on_ready(rlock_io *io, unsigned events) {
    (void)io;
    io_events |= events;
}

static void descriptor_of_a_store_reaches_the_loop_and_its_events_the_store(void **state) {
    rlock_io io;
    (void)state;
    memset(&io, 0, sizeof io);
    io.client = g.client;
    io.ready = on_ready;
    io_events = 0;
    assert_true(rlock_io_watch(g.client, &io, 77, RLOCK_IO_READ) >= 0);
    virtual_ready(&g.loop, 77, RLOCK_IO_READ);
    SAME(io_events, RLOCK_IO_READ);
    (void)rlock_io_watch(g.client, &io, 77, 0);
    virtual_ready(&g.loop, 77, RLOCK_IO_READ | RLOCK_IO_WRITE);
    SAME(io_events, RLOCK_IO_READ);
    g.loop.watch_fails = true;
    assert_true(rlock_io_watch(g.client, &io, 77, RLOCK_IO_READ) < 0);
    g.loop.watch_fails = false;
}

static void early_and_spurious_timer_entries_are_harmless(void **state) {
    struct owner *owner = holder("key", 1000);
    int i;
    (void)state;
    for (i = 0; i < 10; i++) {
        g.loop.entered = true;
        rlock_on_timer(g.client);
        g.loop.entered = false;
    }
    SAME(owner->events, 1);
    assert_true(rlock_is_held(owner->lock));
    run_ms(1000);
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

static void forget_the_descriptor(rlock_timer *timer) {
    (void)timer;
    (void)rlock_io_watch(g.client, &g.store.io, SCRIPTED_FD, 0);
}

/* The timer that gives a connection up is due when its last bytes come: they are not read. */
static void event_of_a_descriptor_that_a_timer_just_forgot_is_dropped(void **state) {
    rlock_timer timer;
    (void)state;
    SAME(rlock_timer_add(g.client, &timer, forget_the_descriptor), RLOCK_OK);
    g.store.io.ready = on_ready;
    io_events = 0;
    SAME(rlock_io_watch(g.client, &g.store.io, SCRIPTED_FD, RLOCK_IO_READ), 0);
    rlock_timer_set(g.client, &timer, now_us() + 1000);
    stall_ms(1);
    virtual_ready(&g.loop, SCRIPTED_FD, RLOCK_IO_READ);
    SAME(io_events, 0);
    rlock_timer_drop(g.client, &timer);
}

static void stall_and_take_all_memory(struct owner *owner, const rlock_event *event) {
    SAME(owner_acquire(handle("other"), RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(handle("another"), RLOCK_FOREVER, 1000), RLOCK_OK);
    stall_2_s(owner, event);
    virtual_memory.fail_at = 1;
}

/* It has to wait again, and others need what was kept for who waits. */
static void grant_that_was_lost_before_its_callback_ends_if_memory_is_out(void **state) {
    struct owner *slow = handle("slow"), *owner = handle("key");
    uint64_t token;
    (void)state;
    slow->react = stall_and_take_all_memory;
    SAME(owner_acquire(slow, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    idle();
    SAME(virtual_memory.failed, true);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_NOMEM);
    SAME(need(RLOCK_OP_RELEASE)->token, token);
}

static unsigned fired;

static void fire_again(rlock_timer *timer) {
    if (++fired < 1000) {
        rlock_timer_set(g.client, timer, 0);
    }
}

static void timer_that_is_due_again_at_once_waits_for_the_next_turn(void **state) {
    rlock_timer timer;
    (void)state;
    fired = 0;
    SAME(rlock_timer_add(g.client, &timer, fire_again), RLOCK_OK);
    rlock_timer_set(g.client, &timer, 0);
    assert_true(virtual_iteration(&g.loop, now_us()));
    SAME(fired, 1);
    rlock_timer_drop(g.client, &timer);
}

static int timers_fired;

static void count_timers(rlock_timer *timer) {
    (void)timer;
    timers_fired++;
}

static void be_due_again(rlock_timer *timer) {
    timers_fired++;
    rlock_timer_set(g.client, timer, 0);
}

/* Whoever had ten thousand waiters once does not keep their room. Without memory for less room all
 * goes on in what there is, and timers that are left fire as they are set. */
static void heap_of_timers_gives_its_room_back(void **state) {
    static rlock_timer timers[10000];
    uint64_t bytes = virtual_memory.bytes;
    int round, i;
    (void)state;
    for (round = 0; round < 2; round++) {
        for (i = 0; i < 10000; i++) {
            memset(&timers[i], 0, sizeof timers[i]);
            SAME(rlock_timer_add(g.client, &timers[i], count_timers), RLOCK_OK);
            rlock_timer_set(g.client, &timers[i], now_us() + 1000 + i % 7 * 1000);
        }
        assert_true(virtual_memory.bytes - bytes >= sizeof(rlock_timer *) * 10000);
        virtual_memory.none = round == 1;
        for (i = 7; i < 10000; i++) {
            rlock_timer_drop(g.client, &timers[i]);
        }
        virtual_memory.none = false;
        assert_true((virtual_memory.bytes - bytes <= 1024) == (round == 0));
        timers_fired = 0;
        virtual_run_ms(&g.loop, 20);
        SAME(timers_fired, 7);
        for (i = 0; i < 7; i++) {
            rlock_timer_drop(g.client, &timers[i]);
        }
    }
    assert_true(virtual_memory.bytes - bytes <= 4096); /* each that goes gives half of it back */
}

/* However often others are due again, each timer fires once an iteration, and none is left out. */
static void timers_that_are_due_again_at_once_keep_no_loss_waiting(void **state) {
    struct owner *loses = holder("key", 1000);
    rlock_timer busy[3], last;
    int64_t deadline_us = until_us(now_us(), 1000);
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        SAME(rlock_timer_add(g.client, &busy[i], be_due_again), RLOCK_OK);
        rlock_timer_set(g.client, &busy[i], now_us() + 1000);
    }
    SAME(rlock_timer_add(g.client, &last, count_timers), RLOCK_OK);
    rlock_timer_set(g.client, &last, deadline_us);
    virtual_stall(&g.loop, deadline_us - now_us()); /* what is due again is due when `last` is */
    timers_fired = 0;
    assert_true(virtual_iteration(&g.loop, now_us()));
    SAME(loses->seen[RLOCK_LOST].count, 1);
    SAME(timers_fired, 4);
    rlock_timer_drop(g.client, &last);
    for (i = 0; i < 3; i++) {
        rlock_timer_drop(g.client, &busy[i]);
    }
}

static void free_client_from_a_timer(rlock_timer *timer) {
    timers_fired++;
    rlock_timer_drop(g.client, timer);
    free_client();
}

/* A store's timer may find that the client is freed: after that nothing of it is called. */
static void nothing_follows_a_timer_that_freed_the_client(void **state) {
    struct owner *keeps = handle("key"); /* keeps the client's memory */
    rlock_timer first, second;
    (void)state;
    timers_fired = 0;
    SAME(rlock_timer_add(g.client, &first, free_client_from_a_timer), RLOCK_OK);
    SAME(rlock_timer_add(g.client, &second, count_timers), RLOCK_OK);
    g.store.io.ready = on_ready;
    io_events = 0;
    SAME(rlock_io_watch(g.client, &g.store.io, SCRIPTED_FD, RLOCK_IO_READ), 0);
    SAME(owner_acquire(keeps, 0, 1000), RLOCK_OK);
    rlock_timer_set(g.client, &first, now_us() + 1000);
    rlock_timer_set(g.client, &second, now_us() + 1000);
    stall_ms(1);
    (void)virtual_state_of(&g.loop, g.client);
    g.loop.states[0].watched[0].io = NULL; /* the loop had fetched the event already */
    g.loop.entered = true;
    rlock_on_io(&g.store.io, RLOCK_IO_READ);
    g.loop.entered = false;
    SAME(timers_fired, 1);
    SAME(io_events, 0);
    SAME(keeps->events, 0);
    SAME(g.store.closes, 1);
    rlock_timer_set(keeps->client, &second, now_us()); /* no longer reaches the loop */
    rlock_timer_drop(keeps->client, &second);
    SAME(owner_acquire(keeps, 0, 0), RLOCK_ERR_CLOSED);
}

/* ------------------------------------------------------------------------------------------------
 * The loop's timer: what it costs to leave nothing half done.
 */

static void release_it(struct owner *owner, const rlock_event *event) {
    if (event->kind == RLOCK_ACQUIRED) {
        SAME(owner_release(owner), RLOCK_OK);
    }
}

static void batch_sets_the_timer_twice_at_most_and_leaves_no_turn_in_vain(void **state) {
    struct owner *owners[20];
    uint64_t orders;
    size_t k;
    int i, turns = 0;
    (void)state;
    (void)holder("beside", 1000); /* something is due later */
    scripted_settle(&g.store);
    memset(g.store.automatic, 0, sizeof g.store.automatic);
    for (i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i);
        owners[i] = handle(key);
        owners[i]->react = release_it;
        SAME(owner_acquire(owners[i], RLOCK_FOREVER, 1000), RLOCK_OK);
    }
    idle();
    for (k = 0; k < g.store.count; k++) {
        if (g.store.log[k].request != NULL && g.store.log[k].op == RLOCK_OP_ACQUIRE) {
            scripted_answer(&g.store, &g.store.log[k], scripted_done());
        }
    }
    orders = g.loop.orders;
    while (virtual_iteration(&g.loop, now_us())) {
        turns++;
    }
    SAME(turns, 1);
    BETWEEN(g.loop.orders - orders, 1, 2);
    for (i = 0; i < 20; i++) {
        SAME(owners[i]->events, 1);
    }
}

#endif /* TESTS_UNIT_LOOP_H */
