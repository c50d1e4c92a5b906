/* unit_callbacks.h - part of unit.c: what a callback may do beside calling the library: fork, run
 * the loop, never come back
 */

#ifndef TESTS_UNIT_CALLBACKS_H
#define TESTS_UNIT_CALLBACKS_H

/* ------------------------------------------------------------------------------------------------
 * Fork. The child only returns from the callback; what it does then is the library's.
 */

static struct {
    bool done; /* one callback forks, the first */
    pid_t child;
    size_t requests, live;
    uint64_t callbacks, orders;
    unsigned flushes;
} forked;

static void fork_here(void) {
    if (!forked.done) {
        forked.done = true;
        forked.child = fork();
        forked.requests = g.store.count;
        forked.live = virtual_memory.live;
        forked.callbacks = g.loop.callbacks;
        forked.orders = g.loop.orders;
        forked.flushes = g.store.flushes;
    }
}

static void submit_and_fork(struct owner *owner, const rlock_event *event) {
    struct owner *third = (struct owner *)owner->context;
    (void)event;
    if (!forked.done) {
        SAME(owner_acquire(third, RLOCK_FOREVER, 1000), RLOCK_OK);
        fork_here();
    }
}

static void info_and_fork(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)info;
    g.loop.callbacks++;
    if (!forked.done) {
        SAME(owner_acquire((struct owner *)user, RLOCK_FOREVER, 1000), RLOCK_OK);
        fork_here();
    }
}

static void done_and_fork(rlock_client *client, int status, void *user) {
    on_done(client, status, user);
    fork_here();
}

/* Two events of a kind in one entry, of which the first forks. */
static void fork_in(int kind, struct owner *first, struct owner *second, struct owner *third) {
    rlock_options options = options_for("asked");
    int i;
    if (kind != RLOCK_ACQUIRED) {
        grant(first, 10000);
        grant(second, 10000);
    }
    first->react = second->react = kind <= RLOCK_LOST ? submit_and_fork : NULL;
    first->context = second->context = third;
    memset(&forked, 0, sizeof forked);
    for (i = 0; i < 2; i++) {
        struct owner *owner = i == 0 ? first : second;
        switch (kind) {
        case RLOCK_ACQUIRED: SAME(owner_acquire(owner, 0, 10000), RLOCK_OK); break;
        case RLOCK_RENEWED: SAME(owner_renew(owner, 10000), RLOCK_OK); break;
        case RLOCK_RELEASED: SAME(owner_release(owner), RLOCK_OK); break;
        case RLOCK_LOST: break;
        case RLOCK_LOST + 1:
            SAME(rlock_inspect(g.client, &options, info_and_fork, third), RLOCK_OK);
            break;
        default:
            if (i == 0) {
                SAME(rlock_client_shutdown(g.client, 1000, done_and_fork, &g), RLOCK_OK);
            }
        }
    }
    if (kind == RLOCK_LOST) {
        stall_ms(20000);
    }
    scripted_settle(&g.store);
    memset(g.store.automatic, 0, sizeof g.store.automatic);
}

/* In the child, when the loop's turn is over. */
static int child_went_on(void) {
    int check = 0;
    check |= g.store.count != forked.requests ? 1 : 0;
    check |= g.store.flushes != forked.flushes ? 2 : 0;
    check |= g.loop.callbacks != forked.callbacks ? 4 : 0;
    check |= g.loop.orders != forked.orders ? 8 : 0;
    check |= virtual_memory.live > forked.live ? 16 : 0;
    return check;
}

static void child_that_returns_from_the_callback_it_forked_in_does_nothing(void **state) {
    static const char *const names[] = {"",     "acquired", "renewed",      "released",
                                        "lost", "info",     "shutdown done"};
    int kind, status = 0;
    (void)state;
    for (kind = RLOCK_ACQUIRED; kind <= RLOCK_LOST + 2; kind++) {
        struct owner *first = handle("first"), *second = handle("second"), *third = handle("third");
        uint64_t callbacks = g.loop.callbacks;
        fork_in(kind, first, second, third);
        if (forked.done && forked.child == 0) {
            _exit(child_went_on());
        }
        assert_true(forked.done && forked.child > 0);
        SAME(waitpid(forked.child, &status, 0), forked.child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) != 0) {
            fail_msg("in the callback of %s: checks %d of the child failed", names[kind],
                     WEXITSTATUS(status));
        }
        scripted_settle(&g.store); /* the parent was told all of it */
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        BETWEEN(g.loop.callbacks - callbacks, kind <= RLOCK_LOST + 1 ? 3 : 1, 8);
        owner_free(first);
        owner_free(second);
        owner_free(third);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

static void timer_that_forks(rlock_timer *timer) {
    (void)timer;
    fork_here();
}

static void timer_of_the_child(rlock_timer *timer) {
    (void)timer;
    g.store.flushes++; /* as if it sent something */
}

/* A store may call what is the user's, as that of Redis does with its hook `connect`. */
static void child_that_returns_from_a_hook_it_forked_in_does_nothing(void **state) {
    struct owner *owner = holder("key", 10000);
    rlock_timer first, second;
    int status = 0;
    (void)state;
    SAME(rlock_timer_add(g.client, &first, timer_that_forks), RLOCK_OK);
    SAME(rlock_timer_add(g.client, &second, timer_of_the_child), RLOCK_OK);
    memset(&forked, 0, sizeof forked);
    SAME(owner_release(owner), RLOCK_OK);
    rlock_timer_set(g.client, &first, now_us());
    rlock_timer_set(g.client, &second, now_us() + 1);
    stall_ms(1);
    assert_true(virtual_turn(&g.loop, now_us()));
    if (forked.done && forked.child == 0) {
        _exit(child_went_on());
    }
    SAME(waitpid(forked.child, &status, 0), forked.child);
    assert_true(WIFEXITED(status));
    SAME(WEXITSTATUS(status), 0);
    BETWEEN(g.store.flushes - forked.flushes, 2, 3);
    rlock_timer_drop(g.client, &first);
    rlock_timer_drop(g.client, &second);
}

/* ------------------------------------------------------------------------------------------------
 * A loop that is run inside a callback.
 */

/* The first in a batch runs the loop until what it asks for in there has ended. */
static void run_the_loop(struct owner *owner, const rlock_event *event) {
    struct owner *third = (struct owner *)owner->context;
    (void)event;
    owner->react = NULL;
    SAME(owner_acquire(third, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    SAME(third->seen[RLOCK_ACQUIRED].count, 1);
    SAME(owner_release(third), RLOCK_OK);
    run_ms(1);
    SAME(third->seen[RLOCK_RELEASED].count, 1);
}

static void loop_that_is_run_inside_a_callback_goes_on(void **state) {
    struct owner *first = handle("first"), *second = handle("second"), *third = handle("third");
    (void)state;
    scripted_settle(&g.store);
    first->react = run_the_loop;
    first->context = third;
    SAME(owner_acquire(first, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(second, 0, 10000), RLOCK_OK);
    idle();
    SAME(first->events, 1);
    SAME(second->events, 1);
    SAME(third->events, 2);
    assert_true(second->seen[RLOCK_ACQUIRED].order < third->seen[RLOCK_ACQUIRED].order);
}

/* A deadline comes in there, too. */
static void wait_for_the_loss(struct owner *owner, const rlock_event *event) {
    struct owner *other = (struct owner *)owner->context;
    (void)event;
    owner->react = NULL;
    virtual_run_until(&g.loop, until_us(now_us(), 1000));
    SAME(other->seen[RLOCK_LOST].count, 1);
    SAME(other->seen[RLOCK_LOST].at_us, now_us());
}

static void loss_is_told_by_a_loop_that_is_run_inside_a_callback(void **state) {
    struct owner *first = handle("first"), *second = handle("second");
    (void)state;
    scripted_settle(&g.store);
    first->react = wait_for_the_loss;
    first->context = second;
    SAME(owner_acquire(first, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(second, 0, 1000), RLOCK_OK);
    idle();
    SAME(second->events, 2);
}

static void free_inside(struct owner *owner, const rlock_event *event) {
    (void)owner, (void)event;
    free_client();
}

static void run_the_loop_that_frees(struct owner *owner, const rlock_event *event) {
    (void)event;
    owner->react = NULL;
    idle();
    assert_null(g.client);
    SAME(owner_release(owner), RLOCK_ERR_CLOSED);
}

static void client_may_be_freed_in_a_loop_inside_a_callback(void **state) {
    struct owner *first = handle("first"), *second = handle("second"), *third = handle("third");
    (void)state;
    scripted_settle(&g.store);
    first->react = run_the_loop_that_frees;
    second->react = free_inside;
    SAME(owner_acquire(first, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(second, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(third, 0, 10000), RLOCK_OK);
    idle();
    SAME(second->events, 1);
    SAME(third->events, 0);
}

/* ------------------------------------------------------------------------------------------------
 * A callback that never comes back. The loop of these tests is left as well, and entered anew.
 */

static jmp_buf out_of_it;
static volatile int jumps;

static void jump_out(struct owner *owner, const rlock_event *event) {
    struct owner *third = (struct owner *)owner->context;
    (void)event;
    owner->react = NULL;
    if (third != NULL) {
        SAME(owner_acquire(third, RLOCK_FOREVER, 1000), RLOCK_OK);
    }
    g.loop.entered = false;
    jumps++;
    longjmp(out_of_it, 1);
}

static void jump_out_of_info(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)info, (void)user;
    g.loop.entered = false;
    jumps++;
    longjmp(out_of_it, 1);
}

static void idle_again(void) {
    (void)setjmp(out_of_it);
    idle();
}

/* What a frame that was jumped over keeps of a client that is freed: its struct. */
static void free_the_rest(size_t kept) {
    rlock_client *client = g.client;
    virtual_free_owners(&g.loop);
    free_client();
    SAME(virtual_memory.live, kept);
    if (kept == 1) {
        virtual_release(client);
    }
}

static void what_a_callback_jumped_over_comes_in_the_next_turn(void **state) {
    rlock_options options = options_for("asked");
    struct owner *first = handle("first"), *second = handle("second"), *third = handle("third");
    static rlock_info info; /* without words: those would be kept as well */
    rlock_answer answer = scripted_done();
    size_t requests;
    (void)state;
    scripted_settle(&g.store);
    answer.info = &info;
    always(RLOCK_OP_INSPECT, answer);
    first->react = second->react = jump_out;
    first->context = third;
    jumps = 0;
    SAME(owner_acquire(first, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(second, 0, 10000), RLOCK_OK);
    SAME(rlock_inspect(g.client, &options, jump_out_of_info, NULL), RLOCK_OK);
    idle_again();
    SAME(jumps, 3);
    SAME(first->events, 1);
    SAME(second->events, 1);
    SAME(third->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(g.store.unflushed, 0);
    requests = g.store.count;
    SAME(owner_release(first), RLOCK_OK); /* a call outside of the loop arms it */
    idle();
    SAME(g.store.count, requests + 1);
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    run_ms(10000);
    SAME(second->seen[RLOCK_LOST].count, 1);
    free_the_rest(1);
}

static void rest_of_a_batch_comes_after_a_jump_that_left_nothing_else_to_do(void **state) {
    struct owner *first = handle("first"), *second = handle("second");
    (void)state;
    first->react = jump_out;
    SAME(owner_acquire(first, 0, 10000), RLOCK_OK);
    SAME(owner_acquire(second, 0, 10000), RLOCK_OK);
    idle();
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    idle_again();
    SAME(first->events, 1);
    SAME(second->events, 1);
    scripted_settle(&g.store);
    free_the_rest(1);
}

static void turns_are_snapshots_again_after_a_jump(void **state) {
    struct owner *owner = handle("key");
    int i, before;
    (void)state;
    scripted_settle(&g.store);
    owner->react = jump_out;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle_again();
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    owner->react = acquire_and_release_for_ever;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    for (i = 0; i < 100; i++) {
        before = owner->events;
        assert_true(virtual_turn(&g.loop, now_us()));
        BETWEEN(owner->events - before, 0, 1);
    }
    owner->react = NULL;
    free_the_rest(1);
}

/* ------------------------------------------------------------------------------------------------
 * The loop's timer: what it costs that nothing is half done.
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
    while (virtual_turn(&g.loop, now_us())) {
        turns++;
    }
    SAME(turns, 1);
    BETWEEN(g.loop.orders - orders, 1, 2);
    for (i = 0; i < 20; i++) {
        SAME(owners[i]->events, 1);
    }
}

#endif /* TESTS_UNIT_CALLBACKS_H */
