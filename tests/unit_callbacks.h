/* unit_callbacks.h - what a callback may do: call every function, run the loop, never come back */
#ifndef TESTS_UNIT_CALLBACKS_H
#define TESTS_UNIT_CALLBACKS_H

/* ------------------------------------------------------------------------------------------------
 * Every function, called from each callback. The recorder checks that an operation has one
 * callback, and that none runs inside a call.
 */

enum { IN_ACQUIRED, IN_RENEWED, IN_RELEASED, IN_LOST, IN_DONE, PLACES };
enum {
    F_ACQUIRE,
    F_RENEW,
    F_RELEASE,
    F_CANCEL,
    F_SHUTDOWN,
    F_DRAIN,
    F_NEW,
    F_FREE,
    F_CLIENT_FREE,
    F_READ,
    F_CREDENTIALS,
#if RLOCK__HAS_TOKENS
    F_RELEASE_AFTER,
    F_ADOPT,
#endif
    FUNCTIONS
};

#if RLOCK__HAS_TOKENS
#define OF_TOKENS(release_after, adopt) , release_after, adopt
#else
#define OF_TOKENS(release_after, adopt)
#endif

static const char *const place_names[PLACES] = {"acquired", "renewed", "released", "lost",
                                                "shutdown done"};
static const char *const function_names[FUNCTIONS] = {
    "rlock_acquire",
    "rlock_renew",
    "rlock_release",
    "rlock_cancel",
    "rlock_client_shutdown",
    "rlock_client_drain",
    "rlock_new",
    "rlock_free",
    "rlock_client_free",
    "every reading function",
    "set_credentials" OF_TOKENS("rlock_release_after", "rlock_adopt")};

/* What each function returns in a callback; 0 also for those that return nothing. */
static const int returns_in[PLACES][FUNCTIONS] = {
    {RLOCK_ERR_STATE, RLOCK_OK, RLOCK_OK, RLOCK_ERR_STATE, 0, 0, 0, 0, 0, 0,
     0 OF_TOKENS(RLOCK_OK, RLOCK_ERR_STATE)},
    {RLOCK_ERR_STATE, RLOCK_OK, RLOCK_OK, RLOCK_ERR_STATE, 0, 0, 0, 0, 0, 0,
     0 OF_TOKENS(RLOCK_OK, RLOCK_ERR_STATE)},
    {RLOCK_OK, RLOCK_ERR_NOT_HELD, RLOCK_ERR_NOT_HELD, RLOCK_ERR_STATE, 0, 0, 0, 0, 0, 0,
     0 OF_TOKENS(RLOCK_ERR_NOT_HELD, RLOCK_OK)},
    {RLOCK_OK, RLOCK_ERR_NOT_HELD, RLOCK_ERR_NOT_HELD, RLOCK_ERR_STATE, 0, 0, 0, 0, 0, 0,
     0 OF_TOKENS(RLOCK_ERR_NOT_HELD, RLOCK_OK)},
    {RLOCK_ERR_CLOSED, RLOCK_ERR_NOT_HELD, RLOCK_ERR_NOT_HELD, RLOCK_ERR_STATE, RLOCK_ERR_STATE,
     RLOCK_ERR_STATE, RLOCK_ERR_CLOSED, 0, 0, 0,
     (RLOCK__HAS_CREDENTIALS ? RLOCK_ERR_CLOSED : 0)OF_TOKENS(RLOCK_ERR_NOT_HELD,
                                                              RLOCK_ERR_CLOSED)},
};

static struct {
    int place, function, returned, calls;
    struct owner *subject;
} pair;

static int take_no_credentials(void *state, bool sentinels, const char *username,
                               const char *password) {
    (void)state, (void)sentinels, (void)username, (void)password;
    return RLOCK_OK;
}

static int set_credentials(void) {
    g.store.store.set_credentials = take_no_credentials;
#if RLOCK__HAS_CREDENTIALS
    return rlock_client_set_credentials(g.client, "shop", "secret");
#else
    return RLOCK_OK;
#endif
}

static int read_everything(const rlock *lock) {
    size_t length = 0;
    rlock_stats now = stats();
    assert_non_null(rlock_key(lock, &length));
    SAME(length, 7);
    SAME(rlock_is_held(lock), rlock_remaining_ms(lock) > 0);
    SAME(rlock_is_held(lock), rlock_hold_count(lock) > 0);
    SAME(rlock_fence(lock), 0);
    BETWEEN(now.handles, 3, 3);
    assert_non_null(rlock_client_id(g.client));
    SAME(rlock_client_now_us(g.client), now_us());
    return RLOCK_OK;
}

static int call_function(struct owner *owner, int function) {
    rlock_options options = options_for("another");
    int status = RLOCK_OK;
    switch (function) {
    case F_ACQUIRE: return owner_acquire(owner, RLOCK_FOREVER, 0);
    case F_RENEW: return owner_renew(owner, 0);
    case F_RELEASE: return owner_release(owner);
    case F_CANCEL: return owner_cancel(owner);
    case F_SHUTDOWN: return rlock_client_shutdown(g.client, 100, on_done, &g);
    case F_DRAIN: return rlock_client_drain(g.client, 100, on_done, &g);
    case F_NEW: (void)owner_attempt(&g.loop, g.client, &options, &status); return status;
    case F_FREE: owner_free(owner); return RLOCK_OK;
    case F_CLIENT_FREE: free_client(); return RLOCK_OK;
#if RLOCK__HAS_TOKENS
    case F_RELEASE_AFTER:
        return owner_asked(owner, rlock_release_after(owner->lock, 1, owner_on_event, owner),
                           RLOCK_RELEASED);
    case F_ADOPT:
        return owner_asked(owner,
                           rlock_adopt(owner->lock, "01234567-89ab-cdef-0123-456789abcdef:17:0", 0,
                                       owner_on_event, owner),
                           RLOCK_ACQUIRED);
#endif
    case F_CREDENTIALS: return set_credentials();
    default: return read_everything(owner->lock);
    }
}

static void call_once(int place) {
    if (place == pair.place && pair.calls == 0) {
        pair.calls++;
        pair.returned = call_function(pair.subject, pair.function);
    }
}

static void react_of_pair(struct owner *owner, const rlock_event *event) {
    (void)owner;
    call_once((int)event->kind - (int)RLOCK_ACQUIRED);
}

static void done_of_pair(rlock_client *client, int status, void *user) {
    on_done(client, status, user);
    call_once(IN_DONE);
}

/* Causes the subject's callback while the client has another holder and a waiter. */
static void provoke(int place) {
    struct owner *owner = pair.subject;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    if (place == IN_RENEWED) {
        SAME(owner_renew(owner, 0), RLOCK_OK);
    } else if (place == IN_RELEASED) {
        SAME(owner_release(owner), RLOCK_OK);
    } else if (place == IN_LOST) {
        always(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_STOLEN));
        run_ms(WATCHDOG_MS / 3 + 1);
        always(RLOCK_OP_RENEW, scripted_done());
    } else if (place == IN_DONE) {
        SAME(rlock_client_shutdown(g.client, 100, done_of_pair, &g), RLOCK_OK);
    }
    idle();
}

static void function_may_be_called_from_the_callback_of_its_cell(void **state) {
    const struct cell *cell = (const struct cell *)*state;
    struct owner *stands_by = handle("holder"), *waits = handle("taken");
    unsigned i;
    memset(&pair, 0, sizeof pair);
    pair.place = cell->row;
    pair.function = cell->column;
    g.store.taken = "taken";
    scripted_settle(&g.store);
    SAME(owner_acquire(stands_by, 0, 60000), RLOCK_OK);
    SAME(owner_acquire(waits, RLOCK_FOREVER, 60000), RLOCK_OK);
    run_ms(20);
    pair.subject = handle("subject");
    pair.subject->react = react_of_pair;
    provoke(cell->row);
    SAME(pair.calls, 1);
    SAME(pair.returned, returns_in[cell->row][cell->column]);
    run_ms(20000);
    if (cell->row != IN_DONE && cell->column != F_CLIENT_FREE && cell->column != F_SHUTDOWN &&
        cell->column != F_DRAIN) {
        SAME(owner_cancel(waits), RLOCK_OK);
        run_ms(1000);
    }
    for (i = 0; i < g.loop.owned; i++) {
        SAME(g.loop.owners[i].gone ? 0 : owner_pending(&g.loop.owners[i]), 0);
    }
    SAME(g.done_count,
         cell->row == IN_DONE || cell->column == F_SHUTDOWN || cell->column == F_DRAIN);
}

static void free_other(struct owner *owner, const rlock_event *event) {
    struct owner *other = (struct owner *)owner->context;
    (void)event;
    if (other->events == 0) {
        owner_free(other);
    }
}

static void freed_handle_is_not_notified_of_what_was_ready_in_the_same_entry(void **state) {
    struct owner *a = handle("a"), *b = handle("b");
    (void)state;
    a->react = free_other;
    a->context = b;
    b->react = free_other;
    b->context = a;
    SAME(owner_acquire(a, 0, 1000), RLOCK_OK);
    SAME(owner_acquire(b, 0, 1000), RLOCK_OK);
    idle();
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    run_ms(20);
    SAME(a->events + b->events, 1);
    SAME(need(RLOCK_OP_RELEASE)->key[0], a->events == 0 ? 'a' : 'b'); /* the grant is released */
}

static void cancel_other(struct owner *owner, const rlock_event *event) {
    struct owner *other = (struct owner *)owner->context;
    (void)event;
    if (other->events == 0) {
        SAME(owner_cancel(other), RLOCK_OK);
    }
}

static void cancel_after_an_undelivered_grant_gives_it_back(void **state) {
    struct owner *pairs[2];
    struct owner *canceled;
    (void)state;
    pairs[0] = handle("a");
    pairs[1] = handle("b");
    pairs[0]->react = pairs[1]->react = cancel_other;
    pairs[0]->context = pairs[1];
    pairs[1]->context = pairs[0];
    SAME(owner_acquire(pairs[0], 0, 1000), RLOCK_OK);
    SAME(owner_acquire(pairs[1], 0, 1000), RLOCK_OK);
    idle();
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    run_ms(20);
    canceled = pairs[0]->seen[RLOCK_ACQUIRED].status == RLOCK_OK ? pairs[1] : pairs[0];
    SAME(canceled->seen[RLOCK_ACQUIRED].count, 1);
    SAME(canceled->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    assert_false(rlock_is_held(canceled->lock));
    assert_string_equal(need(RLOCK_OP_RELEASE)->key, rlock_key(canceled->lock, NULL));
}

static void acquire_and_release_for_ever(struct owner *owner, const rlock_event *event) {
    if (event->kind == RLOCK_ACQUIRED) {
        SAME(owner_release(owner), RLOCK_OK);
    } else {
        SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    }
}

static void what_callbacks_add_waits_for_the_next_turn(void **state) {
    struct owner *owner = handle("key");
    int i, before;
    (void)state;
    scripted_settle(&g.store);
    owner->react = acquire_and_release_for_ever;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    for (i = 0; i < 200; i++) {
        before = owner->events;
        assert_true(virtual_iteration(&g.loop, now_us()));
        BETWEEN(owner->events - before, 0, 1);
    }
    BETWEEN(owner->events, 20, 200);
    owner->react = NULL;
}

static void callbacks_may_be_left_out_where_the_header_says_so(void **state) {
    struct owner *owner = holder("key", 1000);
    (void)state;
    SAME(rlock_renew(owner->lock, 0, NULL, NULL), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(rlock_release(owner->lock, NULL, NULL), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->events, 1);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
}

/* Refuses nothing, and checks that the store may still be asked. */
static const char *refuse_nothing(void *state, const char *key, size_t key_len,
                                  const rlock_terms *terms, bool fencing) {
    (void)key, (void)key_len, (void)terms, (void)fencing;
    (void)scripted_alive(state, "refuses");
    return NULL;
}

/* A callback that has freed its client may still make all of these calls. */
static void free_and_go_on(struct owner *owner, const rlock_event *event) {
    rlock_client *client = owner->client;
    rlock_options options = options_for("new");
    rlock_io io;
    rlock_name name;
    rlock_stats now;
    rlock *lock = NULL;
    (void)event;
    memset(&io, 0, sizeof io);
    memset(&name, 0, sizeof name);
    io.ready = on_ready;
    rlock_on_io(&io, RLOCK_IO_READ); /* it belongs to no client */
    rlock_on_resolved(&name, NULL);
    free_client();
    rlock_client_free(client);
    rlock_client_stats(client, &now);
    assert_false(now.up || now.pushing);
    SAME(rlock_new(&lock, client, &options), RLOCK_ERR_CLOSED);
    options.key_len = RLOCK_KEY_MAX + 1; /* nothing is logged of that any more */
    SAME(rlock_new(&lock, client, &options), RLOCK_ERR_ARG);
    options.key_len = 0;
    SAME(rlock_inspect(client, &options, on_nothing_asked, NULL), QUESTION(RLOCK_ERR_CLOSED));
    SAME(rlock_client_shutdown(client, 0, NULL, NULL), RLOCK_ERR_STATE);
    SAME(owner_acquire(owner, 0, 0), RLOCK_ERR_CLOSED);
    io.client = name.client = client;
    io.watched = RLOCK_IO_READ;
    rlock_on_io(&io, RLOCK_IO_READ); /* a loop that had fetched the event */
    rlock_on_timer(client);
    rlock_on_resolved(&name, NULL);
}

static void callback_that_freed_its_client_may_go_on_calling(void **state) {
    struct owner *owner = handle("key"), *other = handle("other");
    (void)state;
    io_events = 0;
    g.store.store.refuses = refuse_nothing;
    owner->react = free_and_go_on;
    always(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    SAME(owner_acquire(other, 0, 1000), RLOCK_OK);
    idle();
    SAME(owner->events, 1);
    SAME(other->events, 0);
    SAME(g.store.closes, 1);
    SAME(io_events, 0);
}

static void free_all(struct owner *owner, const rlock_event *event) {
    (void)event;
    owner_free(owner);
    free_client();
}

/* The client's memory is freed at the end of the dispatch: a sanitizer sees a use after that. */
static void last_handle_and_client_are_freed_in_a_callback(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    owner->react = free_all;
    always(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(owner->events, 1);
    SAME(virtual_memory.live, 0);
}

/* ------------------------------------------------------------------------------------------------
 * A loop that is run inside a callback.
 */

/* The first handle of a batch runs the loop until the acquire that it makes there has ended. */
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

/* A deadline that passes inside the callback is reported there. */
static void wait_for_the_loss(struct owner *owner, const rlock_event *event) {
    struct owner *other = (struct owner *)owner->context;
    (void)event;
    owner->react = NULL;
    virtual_run_until(&g.loop, until_us(now_us(), 1000));
    SAME(other->seen[RLOCK_LOST].count, 1);
    SAME(other->seen[RLOCK_LOST].at_us, now_us());
}

static void loss_is_reported_by_a_loop_that_is_run_inside_a_callback(void **state) {
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

/* A frame that was jumped over keeps the struct of a client that is freed. */
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
    static rlock_info info; /* without a text, which would be kept as well */
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
    SAME(owner_release(first), RLOCK_OK); /* a call from outside arms the loop */
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
        assert_true(virtual_iteration(&g.loop, now_us()));
        BETWEEN(owner->events - before, 0, 1);
    }
    owner->react = NULL;
    free_the_rest(1);
}

#endif /* TESTS_UNIT_CALLBACKS_H */
