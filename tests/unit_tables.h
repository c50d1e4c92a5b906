/* unit_tables.h - the two tables of the header, STATE x CALL and FAULT x OPERATION, cell by cell */
#ifndef TESTS_UNIT_TABLES_H
#define TESTS_UNIT_TABLES_H

/* ------------------------------------------------------------------------------------------------
 * STATE x CALL, cell by cell: what the call returns, and the one callback that follows (0: none).
 */

enum { IDLE, WAITING, HELD, LOST, RELEASING, FOLLOWED, CLOSED, STATES };
enum { ACQUIRE, RENEW, RELEASE, CANCEL, CALLS };

struct cell {
    int row, column;
    rlock_kind kind;
};

struct outcome {
    int returns, kind, status;
};

static const char *const state_names[STATES] = {"IDLE",      "WAITING",  "HELD",  "LOST",
                                                "RELEASING", "FOLLOWED", "CLOSED"};
static const char *const call_names[CALLS] = {"acquire", "renew", "release", "cancel"};

static const struct outcome state_call[STATES][CALLS] = {
    {{RLOCK_OK, RLOCK_ACQUIRED, RLOCK_OK},
     {RLOCK_ERR_NOT_HELD, 0, 0},
     {RLOCK_ERR_NOT_HELD, 0, 0},
     {RLOCK_ERR_STATE, 0, 0}},
    {{RLOCK_ERR_STATE, RLOCK_ACQUIRED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_ACQUIRED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_ACQUIRED, RLOCK_OK},
     {RLOCK_OK, RLOCK_ACQUIRED, RLOCK_ERR_CANCELED}},
    {{RLOCK_ERR_STATE, 0, 0},
     {RLOCK_OK, RLOCK_RENEWED, RLOCK_OK},
     {RLOCK_OK, RLOCK_RELEASED, RLOCK_OK},
     {RLOCK_ERR_STATE, 0, 0}},
    {{RLOCK_ERR_STATE, RLOCK_LOST, RLOCK_ERR_LOST},
     {RLOCK_ERR_LOST, RLOCK_LOST, RLOCK_ERR_LOST},
     {RLOCK_OK, RLOCK_RELEASED, RLOCK_ERR_LOST},
     {RLOCK_ERR_STATE, RLOCK_LOST, RLOCK_ERR_LOST}},
    {{RLOCK_OK, RLOCK_ACQUIRED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_RELEASED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_RELEASED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_RELEASED, RLOCK_OK}},
    {{RLOCK_ERR_STATE, RLOCK_ACQUIRED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_ACQUIRED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_ACQUIRED, RLOCK_OK},
     {RLOCK_OK, RLOCK_ACQUIRED, RLOCK_ERR_CANCELED}},
    {{RLOCK_ERR_CLOSED, 0, 0},
     {RLOCK_ERR_CLOSED, 0, 0},
     {RLOCK_ERR_CLOSED, 0, 0},
     {RLOCK_ERR_CLOSED, 0, 0}},
};

/* Returns a handle in that state. LOST: its deadline has passed, and the loop has not run since. */
static struct owner *bring_to(int state) {
    struct owner *owner = handle("key");
    switch (state) {
    case WAITING:
        SAME(owner_acquire(owner, RLOCK_FOREVER, 10000), RLOCK_OK);
        idle();
        break;
    case HELD: grant(owner, 10000); break;
    case LOST:
        grant(owner, 1000);
        stall_ms(1000);
        break;
    case RELEASING:
        grant(owner, 10000);
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        break;
    case FOLLOWED:
        grant(owner, 10000);
        SAME(owner_release(owner), RLOCK_OK);
        SAME(owner_acquire(owner, RLOCK_FOREVER, 10000), RLOCK_OK);
        idle();
        break;
    case CLOSED: free_client(); break;
    }
    return owner;
}

static int make_call(struct owner *owner, int call) {
    switch (call) {
    case ACQUIRE: return owner_acquire(owner, RLOCK_FOREVER, 10000);
    case RENEW: return owner_renew(owner, 10000);
    case RELEASE: return owner_release(owner);
    default: return owner_cancel(owner);
    }
}

static struct owner *bring_as(const struct cell *cell) {
    g.kind = cell->kind;
    return bring_to(cell->row);
}

static void call_ends_as_its_cell_says(void **state) {
    const struct cell *cell = (const struct cell *)*state;
    const struct outcome *expected = &state_call[cell->row][cell->column];
    struct owner *owner = bring_as(cell);
    size_t requests = g.store.count;
    int events = owner->events, status;
    bool both = cell->row == FOLLOWED || (cell->row == RELEASING && cell->column == ACQUIRE);
    status = make_call(owner, cell->column);
    SAME(status, expected->returns);
    if (status != RLOCK_OK) {
        SAME(g.store.count, requests);
    }
    if (g.client != NULL) {
        scripted_settle(&g.store);
    }
    idle();
    SAME(owner->events - events, (expected->kind != 0 ? 1 : 0) + both); /* and the release's */
    if (expected->kind != 0) {
        SAME(owner->seen[expected->kind].status, expected->status);
    }
    SAME(owner_pending(owner), 0);
    SAME(rlock_is_held(owner->lock),
         (cell->row == HELD && cell->column != RELEASE) ||
             (expected->kind == RLOCK_ACQUIRED && expected->status == RLOCK_OK));
}

static void second_renewal_is_refused(void **state) {
    struct owner *owner = bring_to(HELD);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    SAME(owner_renew(owner, 0), RLOCK_ERR_STATE);
    idle();
    SAME(owner_renew(owner, 0), RLOCK_ERR_STATE);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RENEWED].count, 1);
    SAME(owner_renew(owner, 0), RLOCK_OK);
}

static void release_cancels_renewal_by_hand(void **state) {
    struct owner *owner = bring_to(HELD);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    idle();
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_CANCELED);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(scripted_last(&g.store, RLOCK_OP_RELEASE)->token,
         scripted_last(&g.store, RLOCK_OP_RENEW)->token);
    assert_true(scripted_last(&g.store, RLOCK_OP_RELEASE) >
                scripted_last(&g.store, RLOCK_OP_RENEW));
}

static void release_other(struct owner *owner, const rlock_event *event) {
    struct owner *other = (struct owner *)owner->context;
    (void)event;
    if (other->events == 1) { /* granted, and its loss is not reported yet */
        SAME(owner_release(other), RLOCK_OK);
    }
}

/* Both answers come in one dispatch; the first callback releases the other hold, which is lost. */
static void release_when_the_server_said_lost_and_on_lost_was_not_called(void **state) {
    struct owner *pair[2];
    int i, first;
    (void)state;
    for (i = 0; i < 2; i++) {
        pair[i] = holder(i == 0 ? "a" : "b", 0);
    }
    for (i = 0; i < 2; i++) {
        pair[i]->react = release_other;
        pair[i]->context = pair[1 - i];
    }
    run_ms(1001);
    SAME(scripted_pending(&g.store, RLOCK_OP_RENEW), 2);
    always(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
    scripted_answer(&g.store, need(RLOCK_OP_RENEW), scripted_plain(RLOCK_OUTCOME_GONE));
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_RENEW),
                    scripted_plain(RLOCK_OUTCOME_GONE));
    run_ms(10000);
    first = pair[0]->seen[RLOCK_LOST].count == 1 ? 0 : 1;
    SAME(pair[first]->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
    SAME(pair[1 - first]->seen[RLOCK_LOST].count, 0);
    SAME(pair[1 - first]->seen[RLOCK_RELEASED].status, RLOCK_ERR_LOST);
    SAME(pair[1 - first]->seen[RLOCK_RELEASED].reason, RLOCK_REASON_DELETED);
}

/* Both answers come in one dispatch; the first callback releases the hold that was renewed. */
static void renewal_that_was_answered_before_its_callback_is_canceled_by_a_release(void **state) {
    struct owner *renews = holder("a", 60000), *releases = handle("b");
    (void)state;
    releases->react = release_other;
    releases->context = renews;
    SAME(owner_acquire(releases, 0, 60000), RLOCK_OK);
    SAME(owner_renew(renews, 0), RLOCK_OK);
    idle();
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    scripted_answer(&g.store, need(RLOCK_OP_RENEW), scripted_done());
    scripted_settle(&g.store);
    SAME(renews->seen[RLOCK_RENEWED].status, RLOCK_ERR_CANCELED);
    SAME(renews->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(renews->seen[RLOCK_LOST].count, 0);
}

/* ------------------------------------------------------------------------------------------------
 * FAULT x OPERATION, cell by cell: RETRY, or the status that the operation ends with.
 */

#define RETRY 1

enum { WAIT, TRY, BY_HAND, WATCHDOG, LET_GO, OPERATIONS };

#define FAULTS (RLOCK_FAULT_OTHER + 1)

static const char *const fault_names[FAULTS] = {"DOWN", "UNKNOWN", "BUSY", "AUTH",
                                                "TYPE", "NOMEM",   "OTHER"};
static const char *const operation_names[OPERATIONS] = {
    "an acquire that waits", "an acquire that tries once", "a renewal by hand", "the watchdog",
    "a release"};

static const int fault_operation[FAULTS][OPERATIONS] = {
    {RETRY, RLOCK_ERR_CONN, RLOCK_ERR_CONN, RETRY, RETRY},
    {RETRY, RLOCK_ERR_UNKNOWN, RLOCK_ERR_UNKNOWN, RETRY, RETRY},
    {RETRY, RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RETRY, RETRY},
    {RLOCK_ERR_AUTH, RLOCK_ERR_AUTH, RLOCK_ERR_AUTH, RETRY, RETRY},
    {RLOCK_ERR_WRONG_TYPE, RLOCK_ERR_WRONG_TYPE, RLOCK_ERR_LOST, RLOCK_ERR_LOST,
     RLOCK_ERR_NOT_HELD},
    {RLOCK_ERR_NOMEM, RLOCK_ERR_NOMEM, RLOCK_ERR_NOMEM, RETRY, RETRY},
    {RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, RETRY, RETRY},
};

/* The end of a release that is retried until the hold's deadline. */
static const int release_ends[FAULTS] = {
    RLOCK_ERR_CONN,  RLOCK_ERR_UNKNOWN, RLOCK_ERR_SERVER, RLOCK_ERR_AUTH, 0,
    RLOCK_ERR_NOMEM, RLOCK_ERR_SERVER};

static rlock_op op_of(int operation) {
    return operation <= TRY      ? RLOCK_OP_ACQUIRE
           : operation == LET_GO ? RLOCK_OP_RELEASE
                                 : RLOCK_OP_RENEW;
}

static rlock_event_kind kind_of(int operation) {
    return operation <= TRY        ? RLOCK_ACQUIRED
           : operation == BY_HAND  ? RLOCK_RENEWED
           : operation == WATCHDOG ? RLOCK_LOST
                                   : RLOCK_RELEASED;
}

/* Begins the operation: its request is with the store. */
static struct owner *begin_operation(int operation, int64_t wait_ms) {
    struct owner *owner;
    if (operation <= TRY) {
        owner = handle("key");
        SAME(owner_acquire(owner, operation == TRY ? 0 : wait_ms, WATCHDOG_MS), RLOCK_OK);
    } else {
        owner = holder("key", operation == WATCHDOG ? 0 : WATCHDOG_MS);
        if (operation == BY_HAND) {
            SAME(owner_renew(owner, 0), RLOCK_OK);
        } else if (operation == LET_GO) {
            SAME(owner_release(owner), RLOCK_OK);
        } else {
            run_ms(WATCHDOG_MS / 3 + 1);
        }
    }
    idle();
    need(op_of(operation));
    return owner;
}

static struct owner *begin_as(const struct cell *cell, int64_t wait_ms) {
    g.kind = cell->kind;
    return begin_operation(cell->column, wait_ms);
}

static void check_retry(struct owner *owner, int fault, int operation, uint64_t token) {
    const struct scripted_request *again = retried(op_of(operation));
    SAME(owner->seen[kind_of(operation)].count, 0);
    if (operation != WAIT || fault == RLOCK_FAULT_UNKNOWN) {
        SAME(again->token, token); /* the token may be there: the retry uses it again */
    }
    if (operation == WAIT && fault == RLOCK_FAULT_UNKNOWN) {
        assert_true(again->flags & RLOCK_REQUEST_RETRY);
    }
    reply(op_of(operation), scripted_done());
    if (operation == WATCHDOG) {
        SAME(owner->seen[RLOCK_LOST].count, 0);
        assert_true(rlock_is_held(owner->lock));
    } else {
        SAME(owner->seen[kind_of(operation)].count, 1);
        SAME(owner->seen[kind_of(operation)].status, RLOCK_OK);
        assert_string_equal(owner->seen[kind_of(operation)].text, "");
    }
}

static void check_end(struct owner *owner, int fault, int operation, int64_t remaining_ms) {
    const struct seen *seen = &owner->seen[kind_of(operation)];
    int expected = fault_operation[fault][operation];
    SAME(seen->count, 1);
    SAME(seen->status, expected);
    SAME(owner_pending(owner), 0);
    assert_string_equal(seen->text, "words of the server");
    if (expected == RLOCK_ERR_LOST) {
        assert_string_equal(owner->seen[RLOCK_LOST].text, "words of the server");
        SAME(owner->seen[RLOCK_LOST].count, 1);
        SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_STOLEN);
        assert_false(rlock_is_held(owner->lock));
    } else if (operation == BY_HAND) {
        SAME(owner->seen[RLOCK_LOST].count, 0);
        SAME(rlock_remaining_ms(owner->lock), remaining_ms);
    } else {
        SAME(owner->seen[RLOCK_LOST].count, 0);
        assert_false(rlock_is_held(owner->lock));
    }
}

static void operation_ends_as_its_cell_says(void **state) {
    const struct cell *cell = (const struct cell *)*state;
    struct owner *owner = begin_as(cell, 5000);
    rlock_op op = op_of(cell->column);
    uint64_t token = need(op)->token;
    int64_t remaining_ms = rlock_remaining_ms(owner->lock);
    reply(op, scripted_fault((rlock_fault)cell->row, "words of the server"));
    if (fault_operation[cell->row][cell->column] == RETRY) {
        check_retry(owner, cell->row, cell->column, token);
    } else {
        check_end(owner, cell->row, cell->column, remaining_ms);
    }
}

/* Under a fault that lasts a wait ends at its end, a hold and its release at the local deadline. */
static void fault_that_lasts_ends_the_operation_at_its_deadline(void **state) {
    const struct cell *cell = (const struct cell *)*state;
    rlock_answer answer = scripted_fault((rlock_fault)cell->row, "words of the server");
    int64_t deadline_us = now_us() + 500 * 1000;
    struct owner *owner = begin_as(cell, 500);
    const struct seen *seen = &owner->seen[kind_of(cell->column)];
    rlock_op op = op_of(cell->column);
    int before;
    if (cell->column != WAIT) {
        deadline_us = until_us(owner->seen[RLOCK_ACQUIRED].at_us, WATCHDOG_MS);
    }
    g.store.latency_us =
        20000; /* a store answers UNKNOWN when a connection ends, and the next one takes time */
    scripted_answer(&g.store, need(op), answer);
    always(op, answer);
    virtual_run_until(&g.loop, deadline_us - 1);
    SAME(seen->count, 0);
    /* It was retried, not too often; while the store is down the core may wait for it. */
    BETWEEN(asked(op), cell->row == RLOCK_FAULT_DOWN ? 1 : 2, 1000);
    before = asked(RLOCK_OP_RELEASE);
    run_ms(2);
    SAME(seen->count, 1);
    BETWEEN(seen->at_us, deadline_us, deadline_us + 1000);
    assert_string_equal(seen->text, "words of the server");
    if (cell->column == WAIT) {
        SAME(seen->status, fault_operation[cell->row][TRY]);
    } else if (cell->column == WATCHDOG) {
        SAME(seen->reason, RLOCK_REASON_EXPIRED);
    } else {
        SAME(seen->status, release_ends[cell->row]);
        run_ms(WATCHDOG_MS);
        assert_true(asked(RLOCK_OP_RELEASE) > before); /* the token is cleaned up afterwards */
        SAME(scripted_last(&g.store, RLOCK_OP_RELEASE)->token, g.store.log[0].token);
    }
    SAME(owner_pending(owner), 0);
}

/* What is told at last has the words of its own status, and not those of an attempt before it. */
static void fault_after_an_unanswered_attempt_ends_it_with_its_own_words(void **state) {
    const struct cell *cell = (const struct cell *)*state;
    rlock_answer answer = scripted_fault((rlock_fault)cell->row, "words of the server");
    struct owner *owner = begin_as(cell, 500);
    const struct seen *seen = &owner->seen[kind_of(cell->column)];
    rlock_op op = op_of(cell->column);
    bool lasts = fault_operation[cell->row][cell->column] == RETRY;
    g.store.latency_us = 20000;
    scripted_answer(&g.store, need(op), scripted_fault(RLOCK_FAULT_UNKNOWN, "not answered"));
    always(op, answer);
    run_ms(WATCHDOG_MS);
    assert_true(asked(op) > 1);
    SAME(seen->count, 1);
    if (cell->column == WATCHDOG) {
        SAME(seen->reason, lasts ? RLOCK_REASON_EXPIRED : RLOCK_REASON_STOLEN);
        assert_string_equal(seen->text, "words of the server"); /* the last ones */
    } else if (lasts) {
        SAME(seen->status, RLOCK_ERR_UNKNOWN);
        assert_string_equal(seen->text, "not answered");
    } else {
        SAME(seen->status, fault_operation[cell->row][cell->column]);
        assert_string_equal(seen->text, "words of the server");
    }
}

static void outage_before_the_first_connect_ends_a_try_and_no_wait(void **state) {
    struct owner *waits, *tries;
    (void)state;
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_OK);
    waits = handle("a");
    tries = handle("b");
    SAME(owner_acquire(waits, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(tries, 0, 1000), RLOCK_OK);
    always(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_DOWN, "Connection refused"));
    idle();
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "Connection refused");
    run_ms(100);
    SAME(tries->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    SAME(waits->events, 0);
    assert_false(stats().up);
    always(RLOCK_OP_ACQUIRE, scripted_done());
    scripted_up(&g.store);
    run_ms(2000);
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(stats().up);
}

static void wait_whose_last_answer_was_held_ends_as_timeout_after_faults(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 500, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    always(RLOCK_OP_ACQUIRE, scripted_held(60000));
    run_ms(501);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_TIMEOUT);
}

/* ------------------------------------------------------------------------------------------------
 * Words where no fault was told, or another one before.
 */

static void release_that_was_refused_and_then_answered_has_the_words_of_its_answer(void **state) {
    static const struct {
        rlock_outcome outcome;
        int status;
    } ends[] = {{RLOCK_OUTCOME_DONE, RLOCK_OK},
                {RLOCK_OUTCOME_GONE, RLOCK_ERR_NOT_HELD},
                {RLOCK_OUTCOME_STOLEN, RLOCK_ERR_NOT_HELD}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct owner *owner = begin_operation(LET_GO, 0);
        reply(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
        retried(RLOCK_OP_RELEASE);
        reply(RLOCK_OP_RELEASE, scripted_plain(ends[i].outcome));
        SAME(owner->seen[RLOCK_RELEASED].status, ends[i].status);
        assert_string_equal(owner->seen[RLOCK_RELEASED].text, "");
        owner_free(owner);
    }
}

static void release_that_is_out_at_its_deadline_has_no_words_of_an_earlier_refusal(void **state) {
    struct owner *owner = begin_operation(LET_GO, 0);
    (void)state;
    reply(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    retried(RLOCK_OP_RELEASE);
    run_ms(WATCHDOG_MS);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN);
    assert_string_equal(owner->seen[RLOCK_RELEASED].text, "");
}

static void grant_that_came_too_late_has_no_words_of_an_earlier_refusal(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 2000, 100), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    retried(RLOCK_OP_ACQUIRE);
    stall_ms(200);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->events, 0);
    run_ms(2000);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "");
}

static void answer_that_is_none_to_an_acquire_has_words(void **state) {
    struct owner *owner = begin_operation(TRY, 0);
    (void)state;
    reply(RLOCK_OP_ACQUIRE, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "unexpected reply");
}

#define UNSENT "an earlier request has not been answered yet"

/* The connection is there, and what was asked for has not left. */
static void what_was_not_sent_over_a_connection_that_is_up_says_so(void **state) {
    struct owner *follows = holder("other", WATCHDOG_MS);
    struct owner *first = handle("key"), *second = handle("key");
    (void)state;
    SAME(owner_acquire(first, RLOCK_FOREVER, WATCHDOG_MS), RLOCK_OK);
    SAME(owner_acquire(second, 100, WATCHDOG_MS), RLOCK_OK);
    SAME(owner_release(follows), RLOCK_OK);
    SAME(owner_acquire(follows, 100, WATCHDOG_MS), RLOCK_OK);
    run_ms(101);
    assert_true(stats().up);
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    assert_string_equal(second->seen[RLOCK_ACQUIRED].text, UNSENT);
    SAME(follows->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    assert_string_equal(follows->seen[RLOCK_ACQUIRED].text, UNSENT);
}

static bool is_a(const rlock_part *part, const char *key, size_t len) {
    (void)part;
    return len == 1 && key[0] == 'a';
}

static bool is_b(const rlock_part *part, const char *key, size_t len) {
    (void)part;
    return len == 1 && key[0] == 'b';
}

/* The words of one part are not told of the keys of another one. */
static void loss_has_the_words_of_the_part_that_its_key_is_in(void **state) {
    static const rlock_part a = {is_a}, b = {is_b};
    struct owner *in_a = holder("a", 0), *in_b = holder("b", 0);
    (void)state;
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_DOWN, NULL));
    g.store.part = &a;
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "a is away");
    g.store.part = &b;
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "b is away");
    g.store.part = NULL;
    run_ms(WATCHDOG_MS);
    assert_string_equal(in_a->seen[RLOCK_LOST].text, "a is away");
    assert_string_equal(in_b->seen[RLOCK_LOST].text, "b is away");
}

/* A hold that no fault has ended either. */
static void hold_that_expires_tells_what_kept_it_from_being_renewed(void **state) {
    rlock_options options = options_for("limited");
    struct owner *unanswered = holder("unanswered", 0), *alone = holder("alone", 500), *limited;
    struct owner *renewed = holder("renewed", 500), *late;
    (void)state;
    options.max_hold_ms = 500;
    limited = handle_with(&options);
    grant(limited, 0);
    SAME(owner_renew(renewed, 0), RLOCK_OK);
    run_ms(WATCHDOG_MS);
    assert_string_equal(unanswered->seen[RLOCK_LOST].text, "no renewal was answered in time");
    assert_string_equal(renewed->seen[RLOCK_LOST].text, "no renewal was answered in time");
    assert_string_equal(renewed->seen[RLOCK_RENEWED].text, "no renewal was answered in time");
    SAME(renewed->seen[RLOCK_RENEWED].status, RLOCK_ERR_LOST);
    SAME(alone->seen[RLOCK_LOST].count, 1);
    assert_string_equal(alone->seen[RLOCK_LOST].text, "");
    assert_string_equal(limited->seen[RLOCK_LOST].text, "max_hold_ms has passed");
    late = holder("late", 0);
    stall_ms(WATCHDOG_MS);
    idle();
    assert_string_equal(late->seen[RLOCK_LOST].text,
                        "no renewal was sent: the process or its event loop stalled");
}

#endif /* TESTS_UNIT_TABLES_H */
