/* unit.c - the core of rlock.h on a virtual clock and a scripted store
 *
 * Nothing here waits for a real clock or a socket. The two tables of the header, STATE x CALL and
 * FAULT x OPERATION, are written out again below, one test for each cell.
 */

#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#define RLOCK__RING_MIN 8 /* so few holds stand in a ring */
#define RLOCK__WORKS 16   /* so few are kept for requests */
#include "scripted.h"

#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------
 * The fixture: one client, connected, told by push, with a watchdog lease of 3 s.
 */

#define WATCHDOG_MS 3000
#define DRIFT 10
#define TESTS_MAX 600

static struct {
    struct virtual_loop loop;
    struct scripted store;
    rlock_config config;
    rlock_client *client;
    int done_count, done_status; /* of a shutdown */
    int64_t done_at_us;
    uint64_t done_order;
    int log_lines;
    size_t log_length; /* of the last one */
    rlock_kind kind;   /* of the handles that a test makes */
} g;

static void on_log(void *user, int level, const char *line) {
    (void)user;
    BETWEEN(level, RLOCK_LOG_ERROR, RLOCK_LOG_INFO);
    assert_non_null(line);
    g.log_lines++;
    g.log_length = strlen(line);
}

static void start(void) {
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_OK);
    scripted_up(&g.store);
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES | RLOCK_PUSH_CALLS);
}

static int setup_stopped(void **state) {
    (void)state;
    memset(&g, 0, sizeof g);
    virtual_begin(&g.loop);
    scripted_begin(&g.store, &g.loop);
    g.config.loop = virtual_hooks(&g.loop);
    g.config.store = &g.store.store;
    g.config.watchdog_lease_ms = WATCHDOG_MS;
    g.config.log = on_log;
    return 0;
}

static int setup(void **state) {
    setup_stopped(state);
    start();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (!virtual_torn(&g.loop)) {
        virtual_free_owners(&g.loop);
        virtual_idle(&g.loop);
        virtual_client_free(&g.loop, g.client);
        virtual_run_ms(&g.loop, 100000);
        SAME(g.store.opens, g.store.closes);
        virtual_end(&g.loop);
    }
    return 0;
}

static void idle(void) {
    virtual_idle(&g.loop);
}
static void run_ms(int64_t ms) {
    virtual_run_ms(&g.loop, ms);
}
static void stall_ms(int64_t ms) {
    virtual_stall(&g.loop, ms * 1000);
}
static int64_t now_us(void) {
    return g.loop.now_us;
}
static void reply(rlock_op op, rlock_answer answer) {
    scripted_reply(&g.store, op, answer);
}
static void always(rlock_op op, rlock_answer answer) {
    scripted_always(&g.store, op, answer);
}
static struct scripted_request *out(rlock_op op) {
    return scripted_out(&g.store, op);
}
static struct scripted_request *need(rlock_op op) {
    return scripted_need(&g.store, op);
}
static int asked(rlock_op op) {
    return scripted_asked(&g.store, op);
}

static rlock_stats stats(void) {
    rlock_stats now;
    rlock_client_stats(g.client, &now);
    return now;
}

static rlock_options options_for(const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.kind = g.kind;
    options.permits = g.kind == RLOCK_KIND_SEMAPHORE ? 2 : 0;
    return options;
}

static struct owner *handle_with(const rlock_options *options) {
    return owner_new(&g.loop, g.client, options);
}

static struct owner *handle(const char *key) {
    rlock_options options = options_for(key);
    return handle_with(&options);
}

static void grant(struct owner *owner, int64_t lease_ms) {
    SAME(owner_acquire(owner, 0, lease_ms), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(rlock_is_held(owner->lock));
}

static struct owner *holder(const char *key, int64_t lease_ms) {
    struct owner *owner = handle(key);
    grant(owner, lease_ms);
    return owner;
}

/* until = sent + lease - lease x drift - 2 ms */
static int64_t until_us(int64_t sent_us, int64_t lease_ms) {
    return sent_us + lease_ms * 1000 - lease_ms * DRIFT - 2000;
}

/* Waits for a request of this kind; a store that was down is up again if it takes long. */
static struct scripted_request *retried(rlock_op op) {
    int i;
    for (i = 0; i < 100 && out(op) == NULL; i++) {
        run_ms(10);
    }
    if (out(op) == NULL) {
        scripted_up(&g.store);
    }
    return need(op);
}

static void on_done(rlock_client *client, int status, void *user) {
    assert_ptr_equal(client, g.client);
    assert_ptr_equal(user, &g);
    SAME(virtual_depth, 0);
    assert_true(g.loop.entered);
    g.done_count++;
    g.done_status = status;
    g.done_at_us = now_us();
    g.done_order = ++g.loop.callbacks;
}

/* ------------------------------------------------------------------------------------------------
 * STATE x CALL, cell by cell: what the call returns, and the one callback that follows (0: none).
 */

enum { IDLE, WAITING, HELD, LOST, RELEASING, CLOSED, STATES };
enum { ACQUIRE, RENEW, RELEASE, CANCEL, CALLS };

struct cell {
    int row, column;
    rlock_kind kind;
};

struct outcome {
    int returns, kind, status;
};

static const char *const state_names[STATES] = {"IDLE", "WAITING",   "HELD",
                                                "LOST", "RELEASING", "CLOSED"};
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
    {{RLOCK_ERR_STATE, RLOCK_RELEASED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_RELEASED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_RELEASED, RLOCK_OK},
     {RLOCK_ERR_STATE, RLOCK_RELEASED, RLOCK_OK}},
    {{RLOCK_ERR_CLOSED, 0, 0},
     {RLOCK_ERR_CLOSED, 0, 0},
     {RLOCK_ERR_CLOSED, 0, 0},
     {RLOCK_ERR_CLOSED, 0, 0}},
};

static void free_client(void) {
    rlock_client *client = g.client;
    g.client = NULL;
    virtual_client_free(&g.loop, client);
}

static void restart_with_handovers(int handovers) {
    free_client();
    g.config.handovers = handovers;
    start();
}

/* A handle in the state. LOST: its deadline has passed, and the loop has not come round yet. */
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

static void test_state_call(void **state) {
    const struct cell *cell = (const struct cell *)*state;
    const struct outcome *expected = &state_call[cell->row][cell->column];
    struct owner *owner = bring_as(cell);
    size_t requests = g.store.count;
    int events = owner->events, status;
    status = make_call(owner, cell->column);
    SAME(status, expected->returns);
    if (status != RLOCK_OK) {
        SAME(g.store.count, requests);
    }
    if (g.client != NULL) {
        scripted_settle(&g.store);
    }
    idle();
    SAME(owner->events - events, expected->kind != 0 ? 1 : 0);
    if (expected->kind != 0) {
        SAME(owner->seen[expected->kind].status, expected->status);
    }
    SAME(owner_pending(owner), 0);
    SAME(rlock_is_held(owner->lock),
         (cell->row == HELD && cell->column != RELEASE) ||
             (expected->kind == RLOCK_ACQUIRED && expected->status == RLOCK_OK));
}

static void test_second_renewal_is_refused(void **state) {
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

static void test_release_cancels_renewal_by_hand(void **state) {
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
    if (other->events == 1) { /* granted, and not told of its loss */
        SAME(owner_release(other), RLOCK_OK);
    }
}

/* Both answers come in one entry; the handle told first lets go of the other, lost by then. */
static void test_release_when_the_server_said_lost_and_on_lost_was_not_called(void **state) {
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

/* Both answers come in one entry; who is told first lets go of the hold that was renewed. */
static void test_renewal_that_was_answered_and_not_told_is_canceled_by_a_release(void **state) {
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

/* How a release that is retried until the hold's deadline ends. */
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

/* The operation, up to where its request is with the store. */
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
        SAME(again->token, token); /* it may be there: ask with the same token */
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
    }
}

static void check_end(struct owner *owner, int fault, int operation, int64_t remaining_ms) {
    const struct seen *seen = &owner->seen[kind_of(operation)];
    int expected = fault_operation[fault][operation];
    SAME(seen->count, 1);
    SAME(seen->status, expected);
    SAME(owner_pending(owner), 0);
    if (expected == RLOCK_ERR_SERVER) {
        assert_string_equal(seen->text, "words of the server");
    }
    if (expected == RLOCK_ERR_LOST) {
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

static void test_fault_operation(void **state) {
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

/* A fault that goes on: a wait ends at its end, a hold and its release at the local deadline. */
static void test_fault_that_lasts(void **state) {
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
    /* It tried again, and did not storm; while the store is down it may wait for it to come up. */
    BETWEEN(asked(op), cell->row == RLOCK_FAULT_DOWN ? 1 : 2, 1000);
    before = asked(RLOCK_OP_RELEASE);
    run_ms(2);
    SAME(seen->count, 1);
    BETWEEN(seen->at_us, deadline_us, deadline_us + 1000);
    if (cell->column == WAIT) {
        SAME(seen->status, fault_operation[cell->row][TRY]);
    } else if (cell->column == WATCHDOG) {
        SAME(seen->reason, RLOCK_REASON_EXPIRED);
    } else {
        SAME(seen->status, release_ends[cell->row]);
        run_ms(WATCHDOG_MS);
        assert_true(asked(RLOCK_OP_RELEASE) > before); /* the token is cleaned up behind it */
        SAME(scripted_last(&g.store, RLOCK_OP_RELEASE)->token, g.store.log[0].token);
    }
    SAME(owner_pending(owner), 0);
}

static void test_down_before_the_first_connect(void **state) {
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

static void test_wait_that_was_last_told_held_ends_as_timeout_after_faults(void **state) {
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
 * Validity.
 */

static void test_until_is_sent_plus_lease_minus_drift_minus_two_ms(void **state) {
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

static void test_drift_of_the_configuration_shortens_validity(void **state) {
    struct owner *owner;
    (void)state;
    free_client();
    g.config.drift_permille = 500;
    start();
    owner = holder("key", 1000);
    SAME(rlock_remaining_ms(owner->lock), 1000 - 500 - 2);
}

static void test_validity_counts_from_the_send_not_from_the_call_or_the_answer(void **state) {
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

static void test_retry_counts_from_its_own_send(void **state) {
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

static void test_renewal_counts_from_its_send(void **state) {
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

static void test_remaining_is_read_from_a_fresh_clock(void **state) {
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

/* In true time: a step costs what lies between the look before it and the one after it. */
static void test_clock_that_steps_back_does_not_lengthen_a_hold(void **state) {
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

/* Who only looks at its hold counts as well: no entry of the loop comes in between. */
static void test_clock_that_steps_back_under_a_busy_owner_costs_one_look(void **state) {
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

static void test_clock_that_steps_back_makes_no_wait_longer(void **state) {
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

static void test_late_grant_is_refused_and_asked_for_again(void **state) {
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

static void test_late_grant_of_a_single_try_is_refused_and_given_back(void **state) {
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

/* Whichever is told first is slow; the recorder checks that ACQUIRED finds the lock held. */
static void test_validity_is_read_again_before_acquired_is_delivered(void **state) {
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

static void test_expiry_is_settled_before_a_renewal_that_came_too_late(void **state) {
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

static void test_expiry_is_settled_before_what_a_socket_brings(void **state) {
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

static void test_paused_watchdog_hold_is_lost_before_its_renewal_is_read(void **state) {
    struct owner *owner = holder("key", 0);
    (void)state;
    run_ms(WATCHDOG_MS / 3 + 1);
    stall_ms(WATCHDOG_MS);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    assert_false(rlock_is_held(owner->lock));
}

/* ------------------------------------------------------------------------------------------------
 * Callbacks: one for an operation, none inside a call (the recorder checks both), and every
 * function called from each of them.
 */

enum { IN_ACQUIRED, IN_RENEWED, IN_RELEASED, IN_LOST, IN_DONE, PLACES };
enum {
    F_ACQUIRE,
    F_RENEW,
    F_RELEASE,
    F_CANCEL,
    F_SHUTDOWN,
    F_NEW,
    F_FREE,
    F_CLIENT_FREE,
    F_READ,
    FUNCTIONS
};

static const char *const place_names[PLACES] = {"acquired", "renewed", "released", "lost",
                                                "shutdown done"};
static const char *const function_names[FUNCTIONS] = {
    "rlock_acquire", "rlock_renew",           "rlock_release",
    "rlock_cancel",  "rlock_client_shutdown", "rlock_new",
    "rlock_free",    "rlock_client_free",     "every reading function"};

/* What each returns to a callback; 0 also for those that return nothing. */
static const int returns_in[PLACES][FUNCTIONS] = {
    {RLOCK_ERR_STATE, RLOCK_OK, RLOCK_OK, RLOCK_ERR_STATE, 0, 0, 0, 0, 0},
    {RLOCK_ERR_STATE, RLOCK_OK, RLOCK_OK, RLOCK_ERR_STATE, 0, 0, 0, 0, 0},
    {RLOCK_OK, RLOCK_ERR_NOT_HELD, RLOCK_ERR_NOT_HELD, RLOCK_ERR_STATE, 0, 0, 0, 0, 0},
    {RLOCK_OK, RLOCK_ERR_NOT_HELD, RLOCK_ERR_NOT_HELD, RLOCK_ERR_STATE, 0, 0, 0, 0, 0},
    {RLOCK_ERR_CLOSED, RLOCK_ERR_NOT_HELD, RLOCK_ERR_NOT_HELD, RLOCK_ERR_STATE, RLOCK_ERR_STATE,
     RLOCK_ERR_CLOSED, 0, 0, 0},
};

static struct {
    int place, function, returned, calls;
    struct owner *subject;
} pair;

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
    case F_NEW: (void)owner_try(&g.loop, g.client, &options, &status); return status;
    case F_FREE: owner_free(owner); return RLOCK_OK;
    case F_CLIENT_FREE: free_client(); return RLOCK_OK;
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

/* Brings the subject's callback about; a holder and a waiter of the same client stand by. */
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

static void test_function_in_callback(void **state) {
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
    if (cell->row != IN_DONE && cell->column != F_CLIENT_FREE && cell->column != F_SHUTDOWN) {
        SAME(owner_cancel(waits), RLOCK_OK);
        run_ms(1000);
    }
    for (i = 0; i < g.loop.owned; i++) {
        SAME(g.loop.owners[i].gone ? 0 : owner_pending(&g.loop.owners[i]), 0);
    }
    SAME(g.done_count, cell->row == IN_DONE || cell->column == F_SHUTDOWN ? 1 : 0);
}

static void free_other(struct owner *owner, const rlock_event *event) {
    struct owner *other = (struct owner *)owner->context;
    (void)event;
    if (other->events == 0) {
        owner_free(other);
    }
}

static void test_freed_handle_is_not_told_what_was_ready_in_the_same_entry(void **state) {
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
    SAME(need(RLOCK_OP_RELEASE)->key[0], a->events == 0 ? 'a' : 'b'); /* the grant is given back */
}

static void cancel_other(struct owner *owner, const rlock_event *event) {
    struct owner *other = (struct owner *)owner->context;
    (void)event;
    if (other->events == 0) {
        SAME(owner_cancel(other), RLOCK_OK);
    }
}

static void test_cancel_after_an_undelivered_grant_gives_it_back(void **state) {
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

static void test_what_callbacks_add_waits_for_the_next_turn(void **state) {
    struct owner *owner = handle("key");
    int i, before;
    (void)state;
    scripted_settle(&g.store);
    owner->react = acquire_and_release_for_ever;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    for (i = 0; i < 200; i++) {
        before = owner->events;
        assert_true(virtual_turn(&g.loop, now_us()));
        BETWEEN(owner->events - before, 0, 1);
    }
    BETWEEN(owner->events, 20, 200);
    owner->react = NULL;
}

static void test_callbacks_may_be_left_out_where_the_header_says_so(void **state) {
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

/* ------------------------------------------------------------------------------------------------
 * Watchdog.
 */

static void test_watchdog_renews_at_a_third_of_the_lease(void **state) {
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
    SAME(owner->events, 1); /* nobody is told of the watchdog's renewals */
    SAME(stats().renewed, 20);
}

static void test_watchdog_tries_faster_near_the_deadline(void **state) {
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

static void test_lost_comes_exactly_at_the_local_deadline_with_the_store_silent(void **state) {
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

static void test_lost_comes_at_the_deadline_while_the_connection_is_down(void **state) {
    struct owner *owner = holder("key", 0);
    int64_t deadline_us = until_us(now_us(), WATCHDOG_MS);
    (void)state;
    scripted_down(&g.store, RLOCK_FAULT_UNKNOWN, "Connection reset");
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_DOWN, "Connection refused"));
    run_ms(WATCHDOG_MS);
    SAME(owner->seen[RLOCK_LOST].at_us, deadline_us);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
}

static void test_loss_during_an_outage_tells_why_there_is_no_connection(void **state) {
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

static void test_nothing_is_renewed_after_release(void **state) {
    struct owner *owner = holder("key", 0);
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    run_ms(60000);
    SAME(asked(RLOCK_OP_RENEW), 0);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(owner->events, 2);
}

static void test_renewals_by_watchdog_on_off_auto(void **state) {
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

static void test_watchdog_keeps_the_shortest_lease_with_the_largest_drift(void **state) {
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

static void test_max_hold_ends_the_hold_as_expired(void **state) {
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

static void test_longer_renewal_by_hand_moves_the_deadline_when_it_is_answered(void **state) {
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

static void test_shorter_renewal_by_hand_lowers_the_deadline_at_the_call(void **state) {
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

/* The answer to what the watchdog asked before must not raise it again. */
static void
test_shorter_renewal_by_hand_stays_lowered_when_the_watchdogs_is_answered(void **state) {
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

static void test_lease_of_a_renewal_by_hand_is_the_watchdogs_from_then_on(void **state) {
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

static void test_deadline_lowered_by_hand_stays_when_its_renewal_fails(void **state) {
    struct owner *owner = holder("key", 0);
    int64_t deadline_us;
    (void)state;
    run_ms(WATCHDOG_MS / 3 + 1);
    need(RLOCK_OP_RENEW); /* the watchdog's, for the longer lease */
    deadline_us = until_us(now_us(), 500);
    SAME(owner_renew(owner, 500), RLOCK_OK);
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "closed");
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_CONN);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(rlock_remaining_ms(owner->lock), (deadline_us - now_us()) / 1000);
    run_ms(1000);
    SAME(owner->seen[RLOCK_LOST].at_us, deadline_us);
}

static void test_renewal_with_lease_0_asks_for_the_lease_the_hold_has(void **state) {
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

static void test_key_that_is_gone_is_lost_as_deleted(void **state) {
    (void)state;
    lose_by(RLOCK_OUTCOME_GONE, RLOCK_REASON_DELETED);
}

static void test_key_of_another_is_lost_as_stolen(void **state) {
    (void)state;
    lose_by(RLOCK_OUTCOME_STOLEN, RLOCK_REASON_STOLEN);
}

static void test_renewal_answered_held_by_another_is_lost_as_stolen(void **state) {
    (void)state;
    lose_by(RLOCK_OUTCOME_HELD, RLOCK_REASON_STOLEN);
}

/* An attempt of its acquire that was not answered may still be executed. */
static void test_hold_that_is_lost_by_an_unsure_answer_is_cleaned_up(void **state) {
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

static void test_renewal_by_hand_of_a_lost_hold_ends_as_lost_and_tells_lost_once(void **state) {
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
    g.store.looks_by_hand = true;
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

static void test_push_for_its_key_makes_a_holder_look_at_once(void **state) {
    (void)state;
    wake_a_holder("key");
}

static void test_push_for_any_key_makes_a_holder_look_at_once(void **state) {
    (void)state;
    wake_a_holder(NULL);
}

static void test_push_for_another_key_asks_nothing(void **state) {
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

static void test_holders_are_checked_when_the_connection_is_back(void **state) {
    struct owner *owner = holder("key", 60000);
    (void)state;
    run_ms(1000);
    scripted_down(&g.store, RLOCK_FAULT_UNKNOWN, "Connection reset");
    run_ms(1000);
    g.store.looks_by_hand = true;
    scripted_up(&g.store);
    run_ms(100);
    reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_STOLEN));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_STOLEN);
}

static void test_lost_never_comes_after_a_release_was_called(void **state) {
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

static void
test_release_after_the_deadline_and_before_lost_ends_as_released_with_lost(void **state) {
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

static void
test_release_of_what_the_server_no_longer_had_is_not_held_with_the_reason(void **state) {
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

/* ------------------------------------------------------------------------------------------------
 * Waiting.
 */

static void test_waiters_are_served_in_order_and_only_the_head_asks(void **state) {
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

static void test_waiters_of_different_keys_do_not_wait_for_each_other(void **state) {
    (void)state;
    SAME(owner_acquire(handle("a"), RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(handle("b"), RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 2);
}

static void test_first_try_is_plain_and_the_next_one_watches(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->flags, 0);
    SAME(need(RLOCK_OP_ACQUIRE)->lease_ms, 10000);
    reply(RLOCK_OP_ACQUIRE, scripted_held(5000));
    SAME(need(RLOCK_OP_ACQUIRE)->flags & RLOCK_REQUEST_WATCH, RLOCK_REQUEST_WATCH);
    reply(RLOCK_OP_ACQUIRE, scripted_held(5000));
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    SAME(owner->events, 0);
}

/* A handle that has been told twice that the key is held, and sleeps. */
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

static void test_push_wakes_the_sleeping_head(void **state) {
    struct owner *owner = sleeper("key", RLOCK_FOREVER, 60000);
    (void)state;
    run_ms(1000);
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    scripted_woken(&g.store, "key");
    run_ms(20);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void test_push_while_a_try_is_out_makes_it_try_again_at_once(void **state) {
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

static void test_own_release_wakes_the_next_waiter_without_a_push(void **state) {
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

/* --- many holds: renewed together, by one timer --- */

#define MANY 40
#define TICK_US 16384

static struct owner *many[MANY];

/* Holds of 40 keys, acquired 3 ms after each other. */
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

/* The first renewal of a key in the log from there on, or NULL. */
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

static void test_many_holds_are_renewed_together_none_of_them_late(void **state) {
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
        assert_true(l > 0 || moments < renewals / 2); /* of a short lease many share a tick */
    }
}

static void test_hold_among_many_is_renewed_no_more_once_released(void **state) {
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

static void test_holds_among_many_are_lost_at_their_deadlines(void **state) {
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

static void test_many_holds_survive_a_sleep_longer_than_the_ring(void **state) {
    int i;
    (void)state;
    free_client();
    g.config.watchdog_lease_ms = 60000;
    start();
    hold_many(0);
    run_ms(11000); /* the look in between is over: they stand in the ring */
    stall_ms(40000);
    run_ms(300000);
    for (i = 0; i < MANY; i++) {
        assert_true(rlock_is_held(many[i]->lock));
    }
}

/* --- a hold that goes on to the next in line without the server --- */

/* A waiter behind a holder of this client: nothing is asked for it. */
static struct owner *follower_with(const rlock_options *options, int64_t lease_ms) {
    struct owner *owner = handle_with(options);
    int before = asked(RLOCK_OP_ACQUIRE);
    SAME(owner_acquire(owner, RLOCK_FOREVER, lease_ms), RLOCK_OK);
    idle();
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    return owner;
}

static struct owner *follower(const char *key, int64_t lease_ms) {
    rlock_options options = options_for(key);
    return follower_with(&options, lease_ms);
}

/* Of the time of its grant a hold keeps the lower 32 bits, in microseconds. */
static void test_old_hold_is_not_handed_on_when_the_clock_comes_round(void **state) {
    struct owner *first = holder("key", 0);
    (void)state;
    scripted_settle(&g.store);
    run_ms(4294967 + 5);
    SAME(owner_renew(first, 0), RLOCK_OK); /* the lease is fresh */
    idle();
    follower("key", 0);
    SAME(owner_release(first), RLOCK_OK);
    idle();
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(stats().handed_on, 0);
}

static void test_hold_goes_on_to_the_next_in_line_without_the_server(void **state) {
    struct owner *first = holder("key", 1000), *second, *third;
    uint64_t token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
    int64_t end_us = until_us(now_us(), 1000);
    (void)state;
    second = follower("key", 1000);
    third = follower("key", 1000);
    run_ms(5);
    SAME(owner_release(first), RLOCK_OK);
    assert_false(rlock_is_held(first->lock));
    SAME(first->seen[RLOCK_RELEASED].count, 0); /* not inside the call */
    assert_false(rlock_is_held(second->lock));
    idle();
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(first->seen[RLOCK_RELEASED].order < second->seen[RLOCK_ACQUIRED].order);
    SAME(rlock_remaining_ms(second->lock), (end_us - now_us()) / 1000);
    SAME(stats().handed_on, 1);
    SAME(owner_release(second), RLOCK_OK);
    idle();
    assert_true(rlock_is_held(third->lock));
    SAME(asked(RLOCK_OP_RELEASE), 0);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    SAME(owner_release(third), RLOCK_OK); /* nobody is left */
    idle();
    assert_true(need(RLOCK_OP_RELEASE)->token == token);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(third->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(stats().released, 3);
    SAME(stats().cleaning, 0);
}

static void test_hold_goes_on_a_bounded_number_of_times_and_then_others_come_first(void **state) {
    struct owner *owners[5];
    int i;
    (void)state;
    restart_with_handovers(2);
    owners[0] = holder("key", 10000);
    for (i = 1; i < 5; i++) {
        owners[i] = follower("key", 10000);
    }
    for (i = 0; i < 3; i++) {
        SAME(asked(RLOCK_OP_RELEASE), 0);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
    }
    SAME(asked(RLOCK_OP_RELEASE), 1);
    run_ms(4);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(owners[2]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    run_ms(7); /* twice the time that the answer took, less one ms */
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    run_ms(2);
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    assert_true(rlock_is_held(owners[3]->lock));
}

/* A server without client tracking tells us of our own releases. */
static void test_push_does_not_end_the_pause_for_the_sake_of_others(void **state) {
    struct owner *owners[3];
    (void)state;
    restart_with_handovers(1);
    owners[0] = holder("key", 60000);
    owners[1] = follower("key", 60000);
    owners[2] = follower("key", 60000);
    SAME(owner_release(owners[0]), RLOCK_OK);
    idle();
    SAME(owner_release(owners[1]), RLOCK_OK);
    run_ms(4);
    scripted_woken(&g.store, "key"); /* while the release is out */
    run_ms(1);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    reply(RLOCK_OP_RELEASE, scripted_done());
    scripted_woken(&g.store, "key"); /* and behind its answer */
    run_ms(9);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    run_ms(2);
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    run_ms(100);
    scripted_woken(&g.store, "key"); /* later it wakes again */
    run_ms(1);
    need(RLOCK_OP_ACQUIRE);
}

static void test_pause_for_the_sake_of_others_has_an_end(void **state) {
    struct owner *owners[3];
    (void)state;
    restart_with_handovers(1);
    owners[0] = holder("key", 60000);
    owners[1] = follower("key", 60000);
    owners[2] = follower("key", 60000);
    SAME(owner_release(owners[0]), RLOCK_OK);
    idle();
    SAME(owner_release(owners[1]), RLOCK_OK);
    run_ms(900);
    reply(RLOCK_OP_RELEASE, scripted_done());
    run_ms(51);
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
}

static void test_fences_rise_with_each_hold_that_goes_on(void **state) {
    rlock_options options = options_for("key");
    struct owner *owners[5];
    int i;
    (void)state;
    restart_with_handovers(2);
    options.fencing = true;
    for (i = 0; i < 5; i++) {
        owners[i] = handle_with(&options);
        SAME(owner_acquire(owners[i], RLOCK_FOREVER, 10000), RLOCK_OK);
        idle();
        SAME(need(RLOCK_OP_ACQUIRE)->request->fences, 1); /* nobody stood behind it then */
    }
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(1000));
    SAME(owner_release(owners[0]), RLOCK_OK); /* no number is left for another */
    idle();
    SAME(stats().handed_on, 0);
    reply(RLOCK_OP_RELEASE, scripted_done());
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->request->fences, 3); /* of four who wait */
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(2000));
    for (i = 1; i < 4; i++) {
        assert_true(rlock_fence(owners[i]->lock) == 1999 + (uint64_t)i);
        assert_true(owners[i]->seen[RLOCK_ACQUIRED].fence == 1999 + (uint64_t)i);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
    }
    SAME(stats().handed_on, 2);
    assert_true(owners[2]->seen[RLOCK_RELEASED].fence == 2001);
    SAME(asked(RLOCK_OP_RELEASE), 2);
}

static void test_hold_without_a_fence_does_not_go_on_to_who_wants_one_nor_back(void **state) {
    rlock_options options = options_for("key");
    (void)state;
    options.fencing = true;
    {
        struct owner *plain = holder("key", 10000);
        follower_with(&options, 10000);
        SAME(owner_release(plain), RLOCK_OK);
        idle();
        SAME(asked(RLOCK_OP_RELEASE), 1);
    }
    restart_with_handovers(0);
    {
        struct owner *fenced = handle_with(&options);
        SAME(owner_acquire(fenced, 0, 10000), RLOCK_OK);
        idle();
        reply(RLOCK_OP_ACQUIRE, scripted_fenced(7));
        follower("key", 10000);
        SAME(owner_release(fenced), RLOCK_OK);
        idle();
        SAME(stats().handed_on, 0);
        need(RLOCK_OP_RELEASE);
    }
}

static void test_hold_with_too_little_left_does_not_go_on(void **state) {
    static const struct {
        int64_t has_ms, age_ms, wants_ms;
        bool goes_on;
    } cases[] = {{10000, 0, 10000, true},   {10000, 20, 10000, true},
                 {10000, 21, 10000, false}, {10000, 0, 10001, false},
                 {10000, 0, 9999, true},    {160, 9, 160, true},
                 {160, 12, 160, false},     {WATCHDOG_MS + 100, 0, 0, true},
                 {WATCHDOG_MS, 0, 0, true}, {WATCHDOG_MS - 1, 0, 0, false}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner *first, *second;
        free_client();
        start();
        first = holder("key", cases[i].has_ms);
        second = follower("key", cases[i].wants_ms);
        run_ms(cases[i].age_ms);
        SAME(owner_release(first), RLOCK_OK);
        SAME(stats().handed_on, cases[i].goes_on);
        idle();
        SAME(rlock_is_held(second->lock), cases[i].goes_on);
    }
}

/* The server would have the key for an hour if this process died just then. */
static void test_hold_goes_on_only_to_who_asked_for_about_so_long_a_lease(void **state) {
    static const struct {
        int64_t has_ms, renewed_ms, wants_ms;
        bool goes_on;
    } cases[] = {{3600000, 0, 1000, false}, {2000, 0, 1000, false},   {1600, 0, 1600, true},
                 {1700, 0, 1600, true},     {1701, 0, 1600, false},   {1600, 1600, 1600, true},
                 {1600, 9000, 1600, false}, {9000, 1600, 1600, false}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner *first, *second;
        free_client();
        start();
        first = holder("key", cases[i].has_ms);
        second = follower("key", cases[i].wants_ms);
        if (cases[i].renewed_ms != 0) {
            SAME(owner_renew(first, cases[i].renewed_ms), RLOCK_OK);
            idle();
            reply(RLOCK_OP_RENEW, scripted_done());
        }
        SAME(owner_release(first), RLOCK_OK);
        idle();
        SAME(rlock_is_held(second->lock), cases[i].goes_on);
        if (!cases[i].goes_on) { /* let go, and taken anew */
            reply(RLOCK_OP_RELEASE, scripted_done());
            run_ms(1);
            SAME(need(RLOCK_OP_ACQUIRE)->lease_ms, cases[i].wants_ms);
        }
    }
}

/* The lease is young again then, but others wait for as long as the key is here. */
static void test_renewals_do_not_keep_the_key_in_this_process(void **state) {
    struct owner *owners[5];
    int i;
    (void)state;
    owners[0] = holder("key", 10000);
    for (i = 1; i < 5; i++) {
        owners[i] = follower("key", 10000);
    }
    for (i = 0; i < 3; i++) {
        run_ms(8);
        SAME(owner_renew(owners[i], 10000), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RENEW, scripted_done());
        SAME(owners[i]->seen[RLOCK_RENEWED].status, RLOCK_OK);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
        SAME(asked(RLOCK_OP_RELEASE), i == 2);
    }
    SAME(stats().handed_on, 2);
}

static void test_client_gives_way_where_a_hold_was_too_old_to_be_handed_on(void **state) {
    static const struct { int64_t lease_ms, age_ms; } cases[] = {{160, 12}, {10000, 21}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct owner *first;
        free_client();
        g.store.count = 0;
        start();
        first = holder("key", cases[i].lease_ms);
        (void)follower("key", cases[i].lease_ms);
        run_ms(cases[i].age_ms);
        SAME(owner_release(first), RLOCK_OK);
        run_ms(4);
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(asked(RLOCK_OP_ACQUIRE), 1);
        run_ms(7); /* twice the time that the answer took, less one ms */
        SAME(asked(RLOCK_OP_ACQUIRE), 1);
        run_ms(2);
        SAME(asked(RLOCK_OP_ACQUIRE), 2);
    }
}

/* The grant is another one, with fences and hand-overs of its own. */
static void test_hold_that_was_asked_for_again_counts_its_hand_overs_anew(void **state) {
    rlock_options options = options_for("key");
    struct owner *owners[4];
    int i;
    (void)state;
    restart_with_handovers(2);
    options.fencing = true;
    for (i = 0; i < 4; i++) {
        owners[i] = handle_with(&options);
        SAME(owner_acquire(owners[i], RLOCK_FOREVER, 50), RLOCK_OK);
        idle();
    }
    reply(RLOCK_OP_ACQUIRE, scripted_held(1)); /* nobody stood behind it when it asked */
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(100));
    SAME(owner_release(owners[0]), RLOCK_OK);
    stall_ms(100); /* the deadline passes before anybody is told */
    idle();
    SAME(stats().handed_on, 1);
    SAME(owners[1]->seen[RLOCK_ACQUIRED].count, 0);
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(200));
    for (i = 1; i < 4; i++) {
        assert_true(owners[i]->seen[RLOCK_ACQUIRED].fence == 199 + (uint64_t)i);
        SAME(owner_release(owners[i]), RLOCK_OK);
        idle();
    }
    SAME(stats().handed_on, 3);
}

static void test_hold_limited_by_its_handle_does_not_go_on_to_one_that_is_not(void **state) {
    rlock_options options = options_for("key");
    struct owner *limited, *free_one;
    (void)state;
    options.max_hold_ms = 1000;
    limited = handle_with(&options);
    grant(limited, 10000);
    follower("key", 10000);
    SAME(owner_release(limited), RLOCK_OK);
    SAME(stats().handed_on, 0);
    free_client();
    start();
    free_one = holder("key", 10000);
    limited = follower_with(&options, 10000);
    SAME(owner_release(free_one), RLOCK_OK);
    idle();
    SAME(rlock_remaining_ms(limited->lock), 1000);
    run_ms(1001);
    SAME(limited->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    need(RLOCK_OP_RELEASE); /* the server has it for longer */
}

static void test_hold_whose_renewal_is_out_does_not_go_on(void **state) {
    struct owner *first = holder("key", 10000);
    (void)state;
    follower("key", 10000);
    SAME(owner_renew(first, 10000), RLOCK_OK);
    idle();
    SAME(owner_release(first), RLOCK_OK);
    idle();
    SAME(stats().handed_on, 0);
    SAME(first->seen[RLOCK_RENEWED].status, RLOCK_ERR_CANCELED);
    need(RLOCK_OP_RELEASE);
}

static void test_hold_that_went_on_with_a_shorter_lease_ends_by_it(void **state) {
    struct owner *first = holder("key", 1060), *second = follower("key", 1000);
    (void)state;
    SAME(owner_release(first), RLOCK_OK);
    idle();
    SAME(rlock_remaining_ms(second->lock), (until_us(0, 1000)) / 1000);
    run_ms(1000);
    SAME(second->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    need(RLOCK_OP_RELEASE);
}

static void test_hold_that_went_on_is_renewed_for_its_new_handle(void **state) {
    struct owner *first = holder("key", WATCHDOG_MS), *second = follower("key", 0);
    uint64_t token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
    (void)state;
    run_ms(10);
    SAME(owner_release(first), RLOCK_OK);
    run_ms(WATCHDOG_MS / 3);
    assert_true(need(RLOCK_OP_RENEW)->token == token);
    SAME(need(RLOCK_OP_RENEW)->lease_ms, WATCHDOG_MS);
    reply(RLOCK_OP_RENEW, scripted_done());
    run_ms(WATCHDOG_MS / 2);
    assert_true(rlock_is_held(second->lock));
}

static void test_hold_that_went_on_and_was_not_told_is_given_back_by_cancel_and_free(void **state) {
    int freed;
    (void)state;
    for (freed = 0; freed < 2; freed++) {
        struct owner *first, *second;
        free_client();
        start();
        first = holder("key", 10000);
        second = follower("key", 10000);
        SAME(owner_release(first), RLOCK_OK);
        if (freed) {
            owner_free(second);
        } else {
            SAME(owner_cancel(second), RLOCK_OK);
        }
        idle();
        SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
        SAME(second->seen[RLOCK_ACQUIRED].count, !freed);
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(stats().cleaning, 0);
        SAME(stats().held, 0);
    }
}

static void test_former_handle_may_be_freed_or_acquire_again_at_once(void **state) {
    struct owner *first = holder("key", 10000), *second = follower("key", 10000), *third;
    (void)state;
    SAME(owner_release(first), RLOCK_OK);
    owner_free(first);
    idle();
    assert_true(rlock_is_held(second->lock));
    third = follower("key", 10000);
    SAME(owner_release(second), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, 10000), RLOCK_ERR_STATE); /* not told yet */
    idle();
    SAME(owner_acquire(second, RLOCK_FOREVER, 10000), RLOCK_OK);
    assert_true(rlock_is_held(third->lock));
    SAME(owner_release(third), RLOCK_OK);
    idle();
    assert_true(rlock_is_held(second->lock));
    SAME(stats().handed_on, 3);
}

static void test_hold_that_went_on_and_is_found_gone_before_it_is_told_is_asked_for(void **state) {
    struct owner *first = holder("key", 50), *second = follower("key", 50);
    (void)state;
    SAME(owner_release(first), RLOCK_OK);
    stall_ms(100); /* its deadline passes before the callback */
    idle();
    SAME(second->seen[RLOCK_ACQUIRED].count, 0);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void test_clean_up_that_is_given_up_wakes_the_next_waiter(void **state) {
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

static void test_sleeper_tries_again_when_the_holders_lease_is_over(void **state) {
    int64_t start_us = now_us();
    (void)state;
    (void)sleeper("key", RLOCK_FOREVER, 2000);
    virtual_run_until(&g.loop, start_us + 1900 * 1000);
    SAME(scripted_pending(&g.store, RLOCK_OP_ACQUIRE), 0);
    virtual_run_until(&g.loop, start_us + 2100 * 1000);
    need(RLOCK_OP_ACQUIRE);
}

static void test_waiters_try_again_when_the_connection_is_back(void **state) {
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

static void test_head_polls_with_back_off_up_to_poll_ms_where_nothing_is_pushed(void **state) {
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

static void test_push_that_stops_turns_sleepers_into_pollers(void **state) {
    (void)state;
    (void)sleeper("key", RLOCK_FOREVER, 3600000);
    scripted_pushing(&g.store, 0);
    run_ms(500);
    need(RLOCK_OP_ACQUIRE);
}

/* What is asked before calls can be heard says so at the server: there it would be waited for. */
static void test_place_in_a_line_is_asked_for_again_when_calls_can_be_heard(void **state) {
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
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES | RLOCK_PUSH_CALLS);
    SAME(asked(RLOCK_OP_ACQUIRE), 4); /* the first; the others' requests are out */
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

static void test_wait_ends_as_timeout_at_its_end_for_head_and_others(void **state) {
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

static void test_cancel_of_the_head_promotes_the_next(void **state) {
    struct owner *head = handle("key"), *next = handle("key");
    uint64_t token;
    (void)state;
    SAME(owner_acquire(head, RLOCK_FOREVER, 10000), RLOCK_OK);
    SAME(owner_acquire(next, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    token = need(RLOCK_OP_ACQUIRE)->token;
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(owner_cancel(head), RLOCK_OK);
    SAME(owner_cancel(head),
         RLOCK_OK); /* WAITING until its callback is called; there is one callback */
    run_ms(20);
    SAME(head->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    assert_true(scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token != token);
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    idle();
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(head->events, 1);
}

static void test_canceled_has_no_words_of_the_server(void **state) {
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

static void test_cancel_of_a_sleeping_head_makes_the_next_ask(void **state) {
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

/* However many wait, they cost one command a wake-up. */
static void test_waiters_that_come_and_go_behind_a_sleeping_head_ask_nothing(void **state) {
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

static void test_fault_that_ends_the_head_lets_the_next_ask(void **state) {
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

static void test_single_try_is_busy_with_the_time_the_holder_has_left(void **state) {
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

static void test_single_try_behind_a_sleeping_waiter_is_busy_at_once(void **state) {
    struct owner *waits = sleeper("key", RLOCK_FOREVER, 60000), *tries = handle("key");
    (void)state;
    always(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(owner_acquire(tries, 0, 10000), RLOCK_OK);
    run_ms(20);
    SAME(tries->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(waits->events, 0);
}

static void test_single_try_behind_another_before_the_first_connect_is_busy(void **state) {
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

/* ------------------------------------------------------------------------------------------------
 * Orphans: what was sent and not answered is taken as possibly done, and cleaned up.
 */

enum { BY_CANCEL, BY_TIMEOUT, BY_FREE, WAYS };

/* An acquire that was sent and never answered is given up. Its token. */
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

static void test_orphan_is_released_until_a_sure_answer(void **state) {
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

static void test_orphan_is_released_until_one_lease_later_when_no_answer_is_sure(void **state) {
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

static void test_unsure_clean_up_ends_a_longest_lease_and_a_command_timeout_later(void **state) {
    struct owner *owner = holder("key", 4000);
    (void)state;
    SAME(owner_renew(owner, 100), RLOCK_OK); /* the server's time to live stays as it is */
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

static void test_unsure_clean_up_is_not_shortened_by_a_refusal_before_it(void **state) {
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

static void test_refused_clean_up_goes_on_for_the_longest_lease(void **state) {
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

static void test_orphan_is_not_given_up_while_the_server_cannot_be_asked(void **state) {
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

/* A retry told "held by another" says nothing of the attempt before it, unless it is sure. */
static void test_attempt_that_may_still_be_executed_is_cleaned_up_after_held(void **state) {
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

static void test_acquire_that_never_left_needs_no_clean_up(void **state) {
    (void)state;
    g.store.unsent = true;
    (void)orphan(BY_CANCEL);
    run_ms(1000);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    SAME(stats().cleaning, 0);
}

/* Nobody has said that another has it: neither to the first in line, nor to who is behind it. */
static void test_acquire_that_never_left_is_not_told_that_another_has_it(void **state) {
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

/* What is known of one wait is not known of the next one. */
static void test_key_that_was_held_before_is_not_held_for_that(void **state) {
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

/* Who waits behind a holder of this client need not be told by the server. */
static void test_who_waits_behind_a_holder_of_its_client_ends_as_timeout(void **state) {
    struct owner *held = holder("key", 10000), *waits = handle("key");
    (void)state;
    SAME(owner_acquire(waits, 300, 1000), RLOCK_OK);
    run_ms(1000);
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_TIMEOUT);
    SAME(held->events, 1);
}

static void test_try_that_ended_unknown_is_cleaned_up(void **state) {
    struct owner *owner = begin_operation(TRY, 0);
    uint64_t token = need(RLOCK_OP_ACQUIRE)->token;
    (void)state;
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_UNKNOWN, "closed"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    SAME(retried(RLOCK_OP_RELEASE)->token, token);
}

static void test_release_that_is_never_answered_ends_unknown_at_the_deadline(void **state) {
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

static void test_acquire_after_cancel_has_a_token_of_its_own(void **state) {
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

static void test_freed_holder_is_released_in_the_background(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    owner_free(owner);
    idle();
    need(RLOCK_OP_RELEASE);
    SAME(stats().held, 0);
    SAME(stats().handles, 0);
    SAME(g.store.unflushed, 0);
}

/* ------------------------------------------------------------------------------------------------
 * Re-entrant holds.
 */

static struct owner *reentrant(int64_t lease_ms) {
    rlock_options options = options_for("key");
    struct owner *owner;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, lease_ms);
    return owner;
}

static void test_reentrant_hold_counts_up_and_down_without_a_round_trip(void **state) {
    struct owner *owner = reentrant(10000);
    size_t requests = g.store.count;
    int i;
    (void)state;
    for (i = 2; i <= 4; i++) {
        SAME(owner_acquire(owner, 0, i == 2 ? 0 : 5000), RLOCK_OK);
        idle();
        SAME(rlock_hold_count(owner->lock), i);
        SAME(owner->seen[RLOCK_ACQUIRED].count, i);
    }
    for (i = 3; i >= 1; i--) {
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        SAME(rlock_hold_count(owner->lock), i);
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
        assert_true(rlock_is_held(owner->lock));
    }
    SAME(g.store.count, requests);
    SAME(owner_release(owner), RLOCK_OK);
    assert_false(rlock_is_held(owner->lock));
    scripted_settle(&g.store);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(owner->seen[RLOCK_RELEASED].count, 4);
    SAME(rlock_hold_count(owner->lock), 0);
    SAME(owner_release(owner), RLOCK_ERR_NOT_HELD);
}

static void test_reentrant_acquire_with_a_longer_lease_asks_for_it(void **state) {
    struct owner *owner = reentrant(10000);
    int64_t sent_us;
    (void)state;
    SAME(owner_acquire(owner, 0, 20000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_RENEW)->lease_ms, 20000);
    sent_us = need(RLOCK_OP_RENEW)->at_us;
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(rlock_hold_count(owner->lock), 2);
    SAME(rlock_remaining_ms(owner->lock), (until_us(sent_us, 20000) - now_us()) / 1000);
}

/* Whoever asks with lease 0 counts on being renewed, whatever the hold was made for. */
static void test_nested_acquire_with_lease_0_gives_the_hold_a_watchdog(void **state) {
    static const int64_t leases[] = {1000, WATCHDOG_MS, 10000};
    static const int options[] = {RLOCK_WATCHDOG_AUTO, RLOCK_WATCHDOG_OFF};
    size_t i, k;
    (void)state;
    for (i = 0; i < sizeof leases / sizeof *leases; i++) {
        for (k = 0; k < 2; k++) {
            bool longer = leases[i] < WATCHDOG_MS, renews = options[k] == RLOCK_WATCHDOG_AUTO;
            rlock_options with = options_for("key");
            struct owner *owner;
            int64_t lease_ms = longer ? WATCHDOG_MS : leases[i];
            free_client();
            g.store.count = 0;
            start();
            with.reentrant = true;
            with.watchdog = options[k];
            owner = handle_with(&with);
            grant(owner, leases[i]);
            run_ms(leases[i] / 2);
            SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
            idle();
            SAME(asked(RLOCK_OP_RENEW), longer || (renews && leases[i] / 2 > lease_ms / 3));
            if (longer) {
                SAME(owner->seen[RLOCK_ACQUIRED].count, 1); /* not before it is answered */
            }
            if (out(RLOCK_OP_RENEW) != NULL) {
                SAME(need(RLOCK_OP_RENEW)->lease_ms, lease_ms);
                reply(RLOCK_OP_RENEW, scripted_done());
            }
            SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
            SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
            always(RLOCK_OP_RENEW, scripted_done());
            run_ms(3 * lease_ms);
            SAME(rlock_is_held(owner->lock), renews);
            g.store.automatic[RLOCK_OP_RENEW] = false;
        }
    }
}

/* The hold is what it was before it was asked for. */
static void test_nested_acquire_that_fails_gives_no_watchdog(void **state) {
    struct owner *owner = reentrant(1000);
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    SAME(rlock_hold_count(owner->lock), 1);
    always(RLOCK_OP_RENEW, scripted_done());
    run_ms(1001);
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

static void test_loss_sets_a_reentrant_count_to_zero(void **state) {
    struct owner *owner = reentrant(1000);
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    scripted_settle(&g.store);
    run_ms(1);
    SAME(rlock_hold_count(owner->lock), 2);
    always(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    run_ms(10000);
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(rlock_hold_count(owner->lock), 0);
    SAME(owner_release(owner), RLOCK_ERR_NOT_HELD);
}

static void test_release_while_a_nested_acquire_is_asked_for_cancels_it(void **state) {
    struct owner *owner = reentrant(10000);
    (void)state;
    SAME(owner_acquire(owner, 0, 20000), RLOCK_OK);
    idle();
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(rlock_hold_count(owner->lock), 0);
    SAME(asked(RLOCK_OP_RELEASE), 1);
}

static void test_release_in_the_turn_of_a_nested_acquire_cancels_it(void **state) {
    struct owner *owner = reentrant(10000);
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_LOST].count, 0);
}

static void test_reentrant_acquire_of_a_lost_hold_is_refused(void **state) {
    struct owner *owner = reentrant(1000);
    (void)state;
    stall_ms(1000);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_ERR_STATE);
    idle();
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
}

/* ------------------------------------------------------------------------------------------------
 * Shutdown and free.
 */

static void test_shutdown_ends_tells_releases_and_is_done(void **state) {
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
    assert_true(g.done_order > holds->seen[RLOCK_LOST].order);
    assert_true(g.done_order > waits->seen[RLOCK_ACQUIRED].order);
    run_ms(10000);
    SAME(g.done_count, 1);
    SAME(idles->events, 0);
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_ERR_STATE);
}

static void test_shutdown_without_an_answer_is_done_with_timeout(void **state) {
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

static void test_shutdown_of_an_idle_client_is_done_in_a_turn_of_its_own(void **state) {
    (void)state;
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_OK);
    SAME(g.done_count, 0);
    idle();
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
}

static void test_shutdown_lets_a_release_under_way_end(void **state) {
    struct owner *owner = bring_to(RELEASING);
    (void)state;
    SAME(rlock_client_shutdown(g.client, 1000, NULL, NULL), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RELEASED].count, 1);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_LOST].count, 0);
}

static void test_shutdown_ends_a_nested_acquire_as_closed(void **state) {
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

static void test_client_free_in_every_state_tells_nothing_and_handles_survive(void **state) {
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

static void test_client_free_sends_the_release_of_what_is_held(void **state) {
    uint64_t token;
    (void)state;
    (void)holder("key", 60000);
    token = g.store.log[0].token;
    free_client();
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(scripted_last(&g.store, RLOCK_OP_RELEASE)->token, token);
}

static void test_client_free_before_ends_were_told_leaks_nothing(void **state) {
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

static void test_handle_free_in_every_state_tells_nothing(void **state) {
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

static void test_free_of_null_is_allowed(void **state) {
    (void)state;
    rlock_free(NULL);
    rlock_client_free(NULL);
}

static void test_store_that_does_not_open_fails_the_client(void **state) {
    rlock_client *client = NULL;
    (void)state;
    g.store.open_status = RLOCK_ERR_NOMEM;
    SAME(rlock_client_new(&client, &g.config), RLOCK_ERR_NOMEM);
    assert_null(client);
    SAME(g.store.closes, 0);
    SAME(virtual_memory.live, 0);
}

static void test_loop_that_does_not_open_and_missing_random_bytes_fail_the_client(void **state) {
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

/* ------------------------------------------------------------------------------------------------
 * Arguments.
 */

static void refuse_config(const char *what, const rlock_config *config) {
    rlock_client *client = NULL;
    int lines = g.log_lines, status = rlock_client_new(&client, config);
    if (status != RLOCK_ERR_ARG || client != NULL || g.log_lines == lines) {
        fail_msg("config with a bad %s: status %d, %d log lines", what, status,
                 g.log_lines - lines);
    }
}

#define REFUSE_CONFIG(member, value)               \
    do {                                           \
        rlock_config bad = g.config;               \
        bad.member = value;                        \
        refuse_config(#member " = " #value, &bad); \
    } while (0)

static void test_bad_configurations_are_refused_with_a_log_line(void **state) {
    (void)state;
    REFUSE_CONFIG(loop.open, NULL);
    REFUSE_CONFIG(loop.watch, NULL);
    REFUSE_CONFIG(loop.set_timer, NULL);
    REFUSE_CONFIG(loop.close, NULL);
    REFUSE_CONFIG(port, -1);
    REFUSE_CONFIG(port, 65536);
    REFUSE_CONFIG(database, -1);
    REFUSE_CONFIG(wire, (rlock_wire)7);
    REFUSE_CONFIG(watchdog_lease_ms, -1);
    REFUSE_CONFIG(watchdog_lease_ms, 9);
    REFUSE_CONFIG(watchdog_lease_ms, 86400001);
    REFUSE_CONFIG(watchdog_lease_ms, INT64_MAX);
    REFUSE_CONFIG(command_timeout_ms, -1);
    REFUSE_CONFIG(poll_ms, -1);
    REFUSE_CONFIG(drift_permille, -1);
    REFUSE_CONFIG(drift_permille, 501);
    REFUSE_CONFIG(handovers, -2);
    REFUSE_CONFIG(handovers, 4097);
    SAME(g.store.opens, 0);
    SAME(virtual_memory.live, 0);
}

static void test_null_arguments_of_the_client_are_refused(void **state) {
    rlock_client *client = NULL;
    (void)state;
    SAME(rlock_client_new(NULL, &g.config), RLOCK_ERR_ARG);
    SAME(rlock_client_new(&client, NULL), RLOCK_ERR_ARG);
    assert_null(client);
    SAME(rlock_client_shutdown(NULL, 0, on_done, NULL), RLOCK_ERR_ARG);
    start();
    SAME(rlock_client_shutdown(g.client, -1, on_done, NULL), RLOCK_ERR_ARG);
    idle();
    SAME(g.done_count, 0);
    SAME(owner_acquire(handle("key"), 0, 0), RLOCK_OK); /* it was not shut down */
}

static void refuse_options(const char *what, const rlock_options *options) {
    static int elsewhere;
    rlock *mark = (rlock *)(void *)&elsewhere, *lock = mark;
    int status = rlock_new(&lock, g.client, options);
    if (status != RLOCK_ERR_ARG || (lock != mark && lock != NULL)) {
        fail_msg("options with a bad %s: status %d", what, status);
    }
}

#define REFUSE_OPTIONS(member, value)               \
    do {                                            \
        rlock_options bad = options_for("key");     \
        bad.member = value;                         \
        refuse_options(#member " = " #value, &bad); \
    } while (0)

static const char *refuse_fencing(void *state, const char *key, size_t key_len,
                                  const rlock_terms *terms, bool fencing) {
    (void)state;
    assert_true(key_len == strlen(key) && terms == NULL);
    return fencing ? "no fences here" : NULL;
}

static void test_bad_options_are_refused(void **state) {
    static char big[RLOCK_KEY_MAX + 2];
    rlock_options options = options_for("key");
    rlock *lock = NULL;
    (void)state;
    memset(big, 'k', sizeof big - 1);
    REFUSE_OPTIONS(key, NULL);
    REFUSE_OPTIONS(key, "");
    REFUSE_OPTIONS(key, big);
    REFUSE_OPTIONS(kind, (rlock_kind)9);
    REFUSE_OPTIONS(kind, (rlock_kind)-1);
    REFUSE_OPTIONS(kind, RLOCK_KIND_SEMAPHORE); /* without permits */
    REFUSE_OPTIONS(permits, 1);
    REFUSE_OPTIONS(weight, 1);
    REFUSE_OPTIONS(owner, 1);
    REFUSE_OPTIONS(key_count, 1);
    REFUSE_OPTIONS(key_lens, &(const size_t){1});
    REFUSE_OPTIONS(keys, (const char *const[]){"other"});
    REFUSE_OPTIONS(watchdog, -1);
    REFUSE_OPTIONS(watchdog, 3);
    REFUSE_OPTIONS(max_hold_ms, -1);
    options.key = big;
    options.key_len = RLOCK_KEY_MAX + 1;
    refuse_options("key_len", &options);
    options.key = "key";
    options.key_len = 0;
    options.fencing = true;
    g.store.store.refuses = refuse_fencing;
    refuse_options("fencing, which the store refuses", &options);
    g.store.store.refuses = NULL;
    SAME(rlock_new(NULL, g.client, &options), RLOCK_ERR_ARG);
    options.key = "key";
    SAME(rlock_new(&lock, NULL, &options), RLOCK_ERR_ARG);
    SAME(rlock_new(&lock, g.client, NULL), RLOCK_ERR_ARG);
    assert_null(lock);
    SAME(stats().handles, 0);
}

static char refusal[1000];

static const char *refuse_at_length(void *state, const char *key, size_t key_len,
                                    const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)key_len, (void)terms, (void)fencing;
    return refusal;
}

static void test_long_words_of_a_store_are_cut_in_the_log(void **state) {
    rlock_options options = options_for("key");
    size_t length;
    (void)state;
    g.store.store.refuses = refuse_at_length;
    for (length = 200; length < sizeof refusal; length++) {
        memset(refusal, 'x', length);
        refuse_options("as the store says at length", &options);
        SAME(g.log_length, length < 255 ? length : 255);
    }
    g.store.store.refuses = NULL;
}

static void test_longest_key_and_hash_tags_are_allowed(void **state) {
    static const char *const keys[] = {"{tag}", "a{b}c", "plain", "open{brace"};
    static char big[RLOCK_KEY_MAX];
    rlock_options options = options_for(big);
    size_t i;
    (void)state;
    memset(big, 'k', sizeof big);
    options.key_len = sizeof big;
    (void)handle_with(&options);
    for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        options = options_for(keys[i]);
        options.fencing = true;
        (void)handle_with(&options);
    }
    options = options_for("a}b");
    (void)handle_with(&options);
}

static void test_bad_leases_and_waits_are_refused_and_change_nothing(void **state) {
    static const int64_t leases[] = {-1, 1, 9, 86400001, INT64_MAX, INT64_MIN};
    static const int64_t waits[] = {-2, INT64_MIN};
    struct owner *idles = handle("a"), *holds = holder("b", 60000);
    size_t i, requests = g.store.count;
    int64_t remaining_ms = rlock_remaining_ms(holds->lock);
    (void)state;
    for (i = 0; i < sizeof leases / sizeof leases[0]; i++) {
        SAME(owner_acquire(idles, 0, leases[i]), RLOCK_ERR_ARG);
        SAME(owner_renew(holds, leases[i]), RLOCK_ERR_ARG);
    }
    for (i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        SAME(owner_acquire(idles, waits[i], 0), RLOCK_ERR_ARG);
    }
    SAME(rlock_acquire(idles->lock, 0, 0, NULL, NULL), RLOCK_ERR_ARG);
    idle();
    SAME(g.store.count, requests);
    SAME(rlock_remaining_ms(holds->lock), remaining_ms);
    SAME(idles->events, 0);
    SAME(owner_cancel(idles), RLOCK_ERR_STATE); /* still idle */
}

static void test_absurd_wait_does_not_overflow(void **state) {
    struct owner *owner = handle("key");
    int status = owner_acquire(owner, INT64_MAX, 1000);
    (void)state;
    if (status == RLOCK_OK) {
        always(RLOCK_OP_ACQUIRE, scripted_held(60000));
        run_ms(100);
        SAME(owner->events, 0);
    } else {
        SAME(status, RLOCK_ERR_ARG);
    }
}

static void test_absurd_limit_of_a_hold_does_not_overflow(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    (void)state;
    options.max_hold_ms = INT64_MAX;
    owner = handle_with(&options);
    grant(owner, 1000);
    SAME(rlock_remaining_ms(owner->lock), (until_us(now_us(), 1000) - now_us()) / 1000);
}

static void test_null_handles_are_refused(void **state) {
    size_t length = 1;
    (void)state;
    SAME(rlock_acquire(NULL, 0, 0, owner_on_event, NULL), RLOCK_ERR_ARG);
    SAME(rlock_renew(NULL, 0, owner_on_event, NULL), RLOCK_ERR_ARG);
    SAME(rlock_release(NULL, owner_on_event, NULL), RLOCK_ERR_ARG);
    SAME(rlock_cancel(NULL), RLOCK_ERR_ARG);
    assert_false(rlock_is_held(NULL));
    SAME(rlock_remaining_ms(NULL), 0);
    SAME(rlock_fence(NULL), 0);
    SAME(rlock_hold_count(NULL), 0);
    assert_null(rlock_key(NULL, &length));
}

/* ------------------------------------------------------------------------------------------------
 * Fork. The child must not jump out of a check: it exits with the number of the one that failed.
 */

static void on_nothing_asked(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)info, (void)user;
    fail_msg("a question was answered that was not asked");
}

static int child_of_fork(struct owner *owner) {
    rlock_options options = options_for("new");
    rlock *lock = NULL, *mine = owner->lock;
    size_t requests = g.store.count, live = virtual_memory.live;
    int check = 1;
#define CHILD(condition)    \
    do {                    \
        if (!(condition)) { \
            return check;   \
        }                   \
        check++;            \
    } while (0)
    CHILD(rlock_acquire(mine, 0, 0, owner_on_event, owner) == RLOCK_ERR_STATE);
    CHILD(rlock_renew(mine, 0, NULL, NULL) == RLOCK_ERR_STATE);
    CHILD(rlock_release(mine, NULL, NULL) == RLOCK_ERR_STATE);
    CHILD(rlock_cancel(mine) == RLOCK_ERR_STATE);
    CHILD(rlock_new(&lock, g.client, &options) == RLOCK_ERR_STATE);
    CHILD(lock == NULL);
    CHILD(rlock_inspect(g.client, &options, on_nothing_asked, NULL) == RLOCK_ERR_STATE);
    CHILD(rlock_queue_position(mine, on_nothing_asked, NULL) == RLOCK_ERR_STATE);
    CHILD(rlock_client_shutdown(g.client, 0, NULL, NULL) == RLOCK_ERR_STATE);
    CHILD(!rlock_is_held(mine));
    CHILD(rlock_remaining_ms(mine) == 0);
    CHILD(rlock_fence(mine) == 0);
    CHILD(rlock_hold_count(mine) == 0);
    rlock_on_timer(g.client);
    rlock_free(mine);
    rlock_client_free(g.client);
    CHILD(g.store.count == requests);
    CHILD(g.store.closes == 0);
    CHILD(virtual_memory.live == live);
    CHILD(g.loop.callbacks == (uint64_t)owner->events);
#undef CHILD
    return 0;
}

static void test_after_fork_the_child_is_refused_and_sends_nothing(void **state) {
    int row, status = 0;
    (void)state;
    for (row = IDLE; row < CLOSED; row++) {
        struct owner *owner;
        pid_t child;
        g.loop.callbacks = 0;
        owner = bring_to(row);
        child = fork();
        if (child == 0) {
            _exit(child_of_fork(owner));
        }
        assert_true(child > 0);
        SAME(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) != 0) {
            fail_msg("in %s, check %d of the child failed", state_names[row], WEXITSTATUS(status));
        }
        scripted_settle(&g.store); /* the parent goes on */
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        SAME(owner_pending(owner), 0);
        owner_free(owner);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

static pid_t timer_child = -1;
static int names_resolved;

static void timer_forks(rlock_timer *timer) {
    (void)timer;
    timer_child = fork();
}

static void count_name(rlock_name *name, const struct sockaddr *address) {
    (void)name, (void)address;
    names_resolved++;
}

/* The timers of a store that are due come first. */
static void test_child_that_returns_from_a_timer_it_forked_in_hears_of_no_name(void **state) {
    rlock_timer timer;
    rlock_name name;
    int status = -1;
    (void)state;
    memset(&timer, 0, sizeof timer);
    memset(&name, 0, sizeof name);
    name.client = g.client;
    name.resolved = count_name;
    names_resolved = 0;
    SAME(rlock_timer_add(g.client, &timer, timer_forks), RLOCK_OK);
    rlock_timer_set(g.client, &timer, now_us());
    rlock_on_resolved(&name, NULL);
    if (timer_child == 0) {
        _exit(names_resolved);
    }
    SAME(waitpid(timer_child, &status, 0), timer_child);
    SAME(status, 0);
    SAME(names_resolved, 1);
    rlock_timer_drop(g.client, &timer);
}

/* ------------------------------------------------------------------------------------------------
 * Memory.
 */

static void round_of_locking(struct owner *first, struct owner *second) {
    SAME(owner_acquire(first, RLOCK_FOREVER, 0), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, 0), RLOCK_OK);
    run_ms(WATCHDOG_MS);
    SAME(owner_renew(first, 0), RLOCK_OK);
    run_ms(10);
    SAME(owner_release(first), RLOCK_OK);
    run_ms(WATCHDOG_MS);
    SAME(owner_release(second), RLOCK_OK);
    run_ms(10);
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_RELEASED].status, RLOCK_OK);
}

static void test_nothing_is_allocated_between_acquire_and_release_once_warm(void **state) {
    struct owner *first = handle("a"), *second = handle("b");
    uint64_t total;
    int i;
    (void)state;
    scripted_settle(&g.store);
    for (i = 0; i < 3; i++) {
        round_of_locking(first, second);
    }
    total = virtual_memory.total;
    for (i = 0; i < 100; i++) {
        round_of_locking(first, second);
    }
    SAME(virtual_memory.total - total, 0);
}

static void test_release_needs_no_memory(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    virtual_memory.fail_at = 1;
    SAME(owner_release(owner), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    virtual_memory.fail_at = 0;
}

/* More than there is room for at once: the others follow, and holds are renewed meanwhile. */
static void test_releases_of_many_need_no_memory(void **state) {
    enum { ALL = 3 * RLOCK__WORKS };
    struct owner *owners[ALL], *kept = holder("kept", 0);
    char key[16];
    int i;
    (void)state;
    scripted_settle(&g.store);
    for (i = 0; i < ALL; i++) {
        snprintf(key, sizeof key, "key %d", i);
        owners[i] = handle(key);
        SAME(owner_acquire(owners[i], 0, 10000), RLOCK_OK);
        idle();
    }
    virtual_memory.none = true;
    for (i = 0; i < ALL; i++) {
        SAME(owner_release(owners[i]), RLOCK_OK);
    }
    run_ms(200);
    for (i = 0; i < ALL; i++) {
        SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    run_ms(60000);
    SAME(rlock_is_held(kept->lock), true);
    virtual_memory.none = false;
    SAME(stats().cleaning, 0);
}

/* Nothing can be asked while all that is kept for requests is out. */
static void test_request_without_memory_is_made_soon(void **state) {
    enum { ALL = RLOCK__WORKS + 2 };
    struct owner *owners[ALL], *held = holder("held", 10000);
    struct owner *first = handle("key"), *next = handle("key");
    int i, attempts, looks;
    char key[16];
    (void)state;
    scripted_settle(&g.store);
    for (i = 0; i < ALL; i++) {
        snprintf(key, sizeof key, "key %d", i);
        owners[i] = handle(key);
        SAME(owner_acquire(owners[i], 0, 10000), RLOCK_OK);
        idle();
    }
    run_ms(1000); /* each was looked at once */
    memset(g.store.automatic, 0, sizeof g.store.automatic);
    g.store.looks_by_hand = true;
    SAME(owner_acquire(first, RLOCK_FOREVER, 10000), RLOCK_OK);
    SAME(owner_acquire(next, RLOCK_FOREVER, 10000), RLOCK_OK);
    virtual_memory.none = true;
    for (i = 0; i < ALL; i++) {
        SAME(owner_release(owners[i]), RLOCK_OK);
    }
    SAME(asked(RLOCK_OP_RELEASE) < ALL, true);
    attempts = asked(RLOCK_OP_ACQUIRE);
    looks = asked(RLOCK_OP_RENEW);
    scripted_woken(&g.store, "held");
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_fault(RLOCK_FAULT_AUTH, "no"));
    idle();
    SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
    SAME(asked(RLOCK_OP_ACQUIRE), attempts);
    SAME(asked(RLOCK_OP_RENEW), looks);
    scripted_settle(&g.store);
    run_ms(1000);
    virtual_memory.none = false;
    for (i = 0; i < ALL; i++) {
        SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    SAME(asked(RLOCK_OP_ACQUIRE), attempts + 1);
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(asked(RLOCK_OP_RENEW) > looks, true);
    SAME(rlock_is_held(held->lock), true);
}

static void test_freed_handles_give_back_what_was_kept_for_them(void **state) {
    enum { HANDLES = 100 };
    struct owner *owners[HANDLES];
    size_t before;
    char key[16];
    int i;
    (void)state;
    scripted_settle(&g.store);
    before = virtual_memory.live;
    for (i = 0; i < HANDLES; i++) {
        rlock_options options = options_for(key);
        snprintf(key, sizeof key, "key %d", i);
        options.reentrant = true;
        owners[i] = handle_with(&options);
        SAME(owner_acquire(owners[i], 0, 1000), RLOCK_OK);
    }
    idle();
    for (i = 0; i < HANDLES; i++) {
        SAME(owner_acquire(owners[i], 0, 1000), RLOCK_OK);
        SAME(owner_renew(owners[i], 0), RLOCK_OK);
    }
    idle();
    for (i = 0; i < 2 * HANDLES; i++) {
        SAME(owner_release(owners[i / 2]), RLOCK_OK);
    }
    idle();
    assert_true(virtual_memory.live > before + 2 * HANDLES);
    for (i = 0; i < HANDLES; i++) {
        SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
        owner_free(owners[i]);
    }
    SAME(virtual_memory.live, before);
}

static void ok_or_nomem(int status) {
    if (status != RLOCK_OK) {
        SAME(status, RLOCK_ERR_NOMEM);
        assert_true(virtual_memory.failed);
    }
}

static bool try_holding(struct owner *owner, int64_t wait_ms) {
    int status = owner_acquire(owner, wait_ms, 0);
    ok_or_nomem(status);
    run_ms(5000);
    if (status != RLOCK_OK) {
        return false;
    }
    SAME(owner_pending(owner), 0);
    if (!owner->holding) {
        ok_or_nomem(owner->seen[RLOCK_ACQUIRED].status);
    }
    return owner->holding;
}

/* A little of everything. Whatever allocation fails, calls and callbacks say OK or NOMEM. */
static void scenario(void) {
    struct owner *owners[2] = {NULL, NULL};
    int i, status = rlock_client_new(&g.client, &g.config);
    ok_or_nomem(status);
    if (status != RLOCK_OK) {
        return;
    }
    for (i = 0; i < 2; i++) {
        rlock_options options = options_for(i == 0 ? "a" : "b");
        options.fencing = true;
        owners[i] = owner_try(&g.loop, g.client, &options, &status);
        ok_or_nomem(status);
    }
    for (i = 0; i < 2; i++) {
        if (owners[i] != NULL && try_holding(owners[i], i == 0 ? 0 : RLOCK_FOREVER)) {
            status = owner_renew(owners[i], 0);
            ok_or_nomem(status);
            run_ms(100);
            ok_or_nomem(owners[i]->seen[RLOCK_RENEWED].status);
            SAME(owner_release(owners[i]), RLOCK_OK);
            run_ms(100);
            SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
        }
    }
    for (i = 0; i < 2; i++) {
        if (owners[i] != NULL && owner_acquire(owners[i], RLOCK_FOREVER, 0) == RLOCK_OK && i == 0) {
            SAME(owner_cancel(owners[i]), RLOCK_OK);
        }
    }
    run_ms(10);
    ok_or_nomem(rlock_client_shutdown(g.client, 1000, on_done, &g));
    run_ms(5000);
    free_client();
    virtual_free_owners(&g.loop);
}

static void test_every_failing_allocation_is_survived_and_leaks_nothing(void **state) {
    uint64_t n;
    (void)state;
    for (n = 1; n < 1000; n++) {
        setup_stopped(NULL);
        scripted_always(&g.store, RLOCK_OP_ACQUIRE, scripted_fenced(7));
        scripted_always(&g.store, RLOCK_OP_RENEW, scripted_done());
        scripted_always(&g.store, RLOCK_OP_RELEASE, scripted_done());
        virtual_memory.fail_at = n;
        scenario();
        SAME(g.store.opens, g.store.closes);
        virtual_end(&g.loop);
        if (!virtual_memory.failed) {
            break;
        }
    }
    BETWEEN(n, 4, 999); /* a client and two handles are three allocations at least */
}

/* ------------------------------------------------------------------------------------------------
 * The rest.
 */

static void test_stats_count_what_happened_and_what_is(void **state) {
    struct owner *holds = handle("a");
    rlock_stats now;
    (void)state;
    assert_true(stats().up && stats().pushing);
    SAME(stats().handles, 1);
    grant(holds, 1000);
    (void)sleeper("b", RLOCK_FOREVER, 60000);
    now = stats();
    SAME(now.acquired, 1);
    SAME(now.held, 1);
    SAME(now.waiting, 1);
    SAME(now.handles, 2);
    SAME(owner_renew(holds, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(stats().renewed, 1);
    SAME(owner_release(holds), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(stats().released, 1);
    SAME(stats().held, 0);
    grant(holds, 1000);
    run_ms(1000);
    SAME(stats().lost, 1);
    SAME(stats().held, 0);
    scripted_woken(&g.store, "b");
    SAME(stats().woken, 1);
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "gone");
    assert_false(stats().up);
    SAME(stats().faults, 1);
}

/* What was not counted as acquired, or was lost, is not let go either. */
static void test_every_hold_that_was_acquired_is_counted_once_as_released_or_lost(void **state) {
    struct owner *owner = handle("key"), *other = handle("other");
    (void)state;
    owner->react = other->react = cancel_other; /* granted, and cancelled before it is told */
    owner->context = other, other->context = owner;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(other, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    scripted_answer(&g.store, &g.store.log[0], scripted_done());
    scripted_answer(&g.store, &g.store.log[1], scripted_done());
    idle();
    owner->react = other->react = NULL;
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(stats().acquired, 1);
    SAME(stats().released, 0);
    owner_free(rlock_is_held(owner->lock) ? owner : other);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(stats().released, 1);
    owner = holder("third", 1000); /* lost, and cleaned up */
    run_ms(1000);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(stats().lost, 1);
    SAME(stats().released, 1);
    grant(owner, 1000); /* handed on, and cancelled before it is told */
    other = follower("third", 1000);
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_cancel(other), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(stats().acquired, 3);
    SAME(stats().released, 2);
    SAME(stats().handed_on, 1);
}

static void test_every_status_has_its_text(void **state) {
    (void)state;
#define RLOCK_X(name, value, text) assert_string_equal(rlock_strerror(RLOCK_##name), text);
    RLOCK_STATUS_MAP(RLOCK_X)
#undef RLOCK_X
    assert_string_equal(rlock_strerror(1), "unknown status");
    assert_string_equal(rlock_strerror(RLOCK_STATUS_LAST - 1), "unknown status");
    assert_string_equal(rlock_strerror(INT32_MIN), "unknown status");
    assert_string_equal(rlock_strerror(INT32_MAX), "unknown status");
}

static void test_every_reason_and_kind_has_its_word(void **state) {
    static const char *const reasons[] = {"none", "expired", "stolen", "deleted", "closed"};
    static const char *const kinds[] = {"mutex", "fair", "read", "write", "semaphore"};
    int i;
    (void)state;
    for (i = 0; i < 5; i++) {
        assert_string_equal(rlock_reason_str((rlock_reason)(RLOCK_REASON_NONE + i)), reasons[i]);
        assert_string_equal(rlock_kind_str((rlock_kind)(RLOCK_KIND_MUTEX + i)), kinds[i]);
    }
    assert_string_equal(rlock_reason_str((rlock_reason)(RLOCK_REASON_CLOSED + 1)), "unknown");
    assert_string_equal(rlock_kind_str((rlock_kind)(RLOCK_KIND_SEMAPHORE + 1)), "unknown");
}

static void test_key_is_copied_with_every_byte_and_a_nul_behind_it(void **state) {
    char key[] = {'a', '\0', (char)0xff, '\n', 'b'};
    static const char expected[] = {'a', '\0', (char)0xff, '\n', 'b', '\0'};
    rlock_options options = options_for(key);
    struct owner *owner;
    size_t length = 0;
    (void)state;
    options.key_len = sizeof key;
    owner = handle_with(&options);
    memset(key, 'x', sizeof key);
    assert_memory_equal(rlock_key(owner->lock, &length), expected, sizeof expected);
    SAME(length, 5);
    assert_non_null(rlock_key(owner->lock, NULL));
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->request->key_len, 5);
    assert_memory_equal(need(RLOCK_OP_ACQUIRE)->request->key, expected, 5);
}

static void test_fence_is_the_servers_and_asked_for_only_when_wanted(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    (void)state;
    options.fencing = true;
    owner = handle_with(&options);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->request->fences, 1);
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(UINT64_C(1763710000000000)));
    assert_true(owner->seen[RLOCK_ACQUIRED].fence == UINT64_C(1763710000000000));
    assert_true(rlock_fence(owner->lock) == UINT64_C(1763710000000000));
    SAME(owner_release(owner), RLOCK_OK);
    SAME(rlock_fence(owner->lock), 0);
    owner = handle("plain");
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->request->fences, 0);
}

static void test_every_token_is_new_and_the_client_id_is_a_uuid(void **state) {
    uint64_t tokens[20];
    int i, k;
    (void)state;
    SAME(strlen(rlock_client_id(g.client)), 36);
    SAME(rlock_client_id(g.client)[8], '-');
    for (i = 0; i < 20; i++) {
        struct owner *owner = holder("key", 1000);
        tokens[i] = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
        for (k = 0; k < i; k++) {
            assert_true(tokens[k] != tokens[i]);
        }
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_done());
    }
}

static void test_what_is_submitted_is_flushed_before_the_loop_sleeps(void **state) {
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

static void test_keys_are_unwatched_when_nobody_cares_any_more(void **state) {
    struct owner *owner = holder("a", 0);
    (void)state;
    scripted_settle(&g.store);
    run_ms(10000);
    SAME(owner_release(owner), RLOCK_OK);
    run_ms(1000);
    SAME(scripted_watching(&g.store), 0);
}

static unsigned io_events;

static void on_ready(rlock_io *io, unsigned events) {
    (void)io;
    io_events |= events;
}

static void test_descriptor_of_a_store_reaches_the_loop_and_its_events_the_store(void **state) {
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

static void test_early_and_spurious_timer_entries_are_harmless(void **state) {
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

/* ------------------------------------------------------------------------------------------------
 * Corners: what only a rare input or a rare moment reaches.
 */

static void test_keys_whose_hashes_collide_are_different_locks(void **state) {
    struct virtual_twins twins = virtual_twins(&g.client->gates);
    struct owner *owners[VIRTUAL_TWINS];
    int i;
    (void)state;
    for (i = 0; i < VIRTUAL_TWINS; i++) {
        owners[i] = handle(twins.keys[i]);
        SAME(owner_acquire(owners[i], 0, 1000), RLOCK_OK);
        idle();
        assert_string_equal(need(RLOCK_OP_ACQUIRE)->key, twins.keys[i]);
        reply(RLOCK_OP_ACQUIRE, scripted_done());
        SAME(owners[i]->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    }
    for (i = 0; i < VIRTUAL_TWINS; i++) {
        assert_string_equal(rlock_key(owners[i]->lock, NULL), twins.keys[i]);
        assert_true(rlock_is_held(owners[i]->lock));
    }
}

static int longest_chain(const rlock__map *map) {
    int longest = 0;
    uint32_t i;
    for (i = 0; i < map->size; i++) {
        const rlock__node *node = map->buckets[i];
        int length = 0;
        for (; node != NULL; node = node->next) {
            length++;
        }
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* Who knows one client cannot choose keys that make a chain in the next one. */
static void test_keys_that_are_one_chain_in_a_client_are_none_in_another(void **state) {
    static char keys[64][16];
    int chosen, turn;
    uint32_t i;
    (void)state;
    for (chosen = 0, i = 0; chosen < 64; i++) {
        virtual_twin(keys[chosen], i);
        chosen += rlock__hash(&g.client->gates, keys[chosen], strlen(keys[chosen])) % 512 == 0;
    }
    for (turn = 0; turn < 2; turn++) {
        for (chosen = 0; chosen < 64; chosen++) {
            (void)handle(keys[chosen]);
        }
        BETWEEN(longest_chain(&g.client->gates), turn == 0 ? 64 : 1, turn == 0 ? 64 : 12);
        virtual_free_owners(&g.loop);
        restart_with_handovers(0);
        SAME(longest_chain(&g.client->gates), 0);
    }
}

static int chain_of(const char *what, size_t len, const rlock__map *map) {
    return (int)(rlock__hash(map, what, len) & 7);
}

/* The last bytes count as well, also where they do not fill a word. */
static void test_each_byte_of_a_key_counts_in_its_hash(void **state) {
    char key[16] = "fifteen letters";
    size_t len, at;
    (void)state;
    for (len = 1; len < sizeof key; len++) {
        for (at = 0; at < len; at++) {
            int change, seen = 0;
            for (change = 0; change < 64; change++) {
                key[at] = (char)(key[at] + 1);
                seen |= 1 << chain_of(key, len, &g.client->gates);
            }
            SAME(seen, 255);
        }
    }
}

#define CROWD 40 /* more than the first tables of keys and of timers have room for */

/* Makes handles and asks with each; what is short of memory says so and works when asked again. */
static void crowd_grows(int first) {
    char key[16];
    int i, call, status;
    for (i = 0; i < CROWD; i++) {
        struct owner *owner = NULL;
        rlock_options options = options_for(key);
        snprintf(key, sizeof key, "%d", i);
        for (call = 0; call < (i >= first ? 2 : 1); call++) {
            int fails = 0;
            do {
                virtual_memory.fail_at = (uint64_t)++fails;
                virtual_memory.failed = false;
                if (call == 0) {
                    owner = owner_try(&g.loop, g.client, &options, &status);
                } else {
                    status = owner_acquire(owner, RLOCK_FOREVER, 60000);
                }
                ok_or_nomem(status);
                BETWEEN(fails, 1, 10);
            } while (status != RLOCK_OK);
            virtual_memory.fail_at = 0;
        }
    }
}

static void test_tables_that_cannot_grow_cost_a_status_and_nothing_else(void **state) {
    int first, i;
    (void)state;
    for (first = 0; first < 2; first++) { /* once a handle and once an acquire meets the limit */
        setup(NULL);
        always(RLOCK_OP_ACQUIRE, scripted_done());
        always(RLOCK_OP_RELEASE, scripted_done());
        crowd_grows(first);
        idle();
        for (i = first; i < CROWD; i++) {
            SAME(g.loop.owners[i].seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        }
        SAME(stats().handles, CROWD);
        SAME(stats().held, CROWD - first);
        for (i = 0; i < CROWD; i++) { /* each is found again under its key */
            struct owner *other = handle(rlock_key(g.loop.owners[i].lock, NULL));
            SAME(owner_acquire(other, 0, 1000), RLOCK_OK);
            idle();
            SAME(other->seen[RLOCK_ACQUIRED].status, i < first ? RLOCK_OK : RLOCK_ERR_BUSY);
        }
        if (first == 0) {
            teardown(NULL);
        }
    }
}

static int64_t clock_step_us; /* by which the clock goes on whenever it is read */

static int64_t clock_that_goes_on(void *ctx) {
    return ((struct virtual_loop *)ctx)->now_us += clock_step_us;
}

static void test_remaining_time_is_never_negative_while_the_clock_goes_on(void **state) {
    struct owner *owner;
    (void)state;
    g.config.loop.now_us = clock_that_goes_on;
    clock_step_us = 0;
    start();
    owner = holder("key", 1000);
    g.loop.now_us += 1000 * 1000 - 1000 * DRIFT - 2000 - 2000; /* 2 ms before the deadline */
    clock_step_us = 1600;
    SAME(rlock_remaining_ms(owner->lock), 0); /* held at the first look, over at the second */
    clock_step_us = 0;
    assert_false(rlock_is_held(owner->lock));
}

static void test_arguments_that_no_other_test_gives(void **state) {
    rlock_config mute = g.config;
    rlock_options options = options_for("key");
    rlock_client *client = NULL;
    rlock_stats now;
    rlock *lock = NULL;
    (void)state;
    REFUSE_CONFIG(username, "u");
    REFUSE_CONFIG(store, NULL);
    mute.port = -1;
    mute.log = NULL; /* nobody to tell */
    SAME(rlock_client_new(&client, &mute), RLOCK_ERR_ARG);
    start();
    SAME(rlock_client_shutdown(g.client, (int64_t)RLOCK_LEASE_MAX_MS + 1, NULL, NULL),
         RLOCK_ERR_ARG);
    rlock_client_stats(g.client, NULL);
    memset(&now, 0xff, sizeof now);
    rlock_client_stats(NULL, &now);
    SAME(now.handles + now.connects + now.held, 0);
    assert_false(now.up);
    options.fencing = true;
    SAME(rlock_new(&lock, g.client, &options), RLOCK_OK);
    rlock_free(lock);
}

/* Refuses nothing, as long as it may be asked. */
static const char *refuse_nothing(void *state, const char *key, size_t key_len,
                                  const rlock_terms *terms, bool fencing) {
    (void)key, (void)key_len, (void)terms, (void)fencing;
    (void)scripted_alive(state, "refuses");
    return NULL;
}

/* What the rest of a callback may do that has freed its client. */
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
    rlock_on_io(&io, RLOCK_IO_READ); /* of nobody */
    rlock_on_resolved(&name, NULL);
    free_client();
    rlock_client_free(client);
    rlock_client_stats(client, &now);
    assert_false(now.up || now.pushing);
    SAME(rlock_new(&lock, client, &options), RLOCK_ERR_CLOSED);
    SAME(rlock_inspect(client, &options, on_nothing_asked, NULL), RLOCK_ERR_CLOSED);
    SAME(rlock_client_shutdown(client, 0, NULL, NULL), RLOCK_ERR_STATE);
    SAME(owner_acquire(owner, 0, 0), RLOCK_ERR_CLOSED);
    io.client = name.client = client;
    io.watched = RLOCK_IO_READ;
    rlock_on_io(&io, RLOCK_IO_READ); /* a loop that was about to */
    rlock_on_timer(client);
    rlock_on_resolved(&name, NULL);
}

static void test_callback_that_freed_its_client_may_go_on_calling(void **state) {
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

static void on_resolved_in_child(rlock_name *name, const struct sockaddr *address) {
    (void)name;
    (void)address;
    io_events |= RLOCK_IO_WRITE;
}

static int child_hears_nothing(struct owner *owner) {
    rlock_stats now;
    rlock_io io;
    rlock_name name;
    memset(&io, 0, sizeof io);
    memset(&name, 0, sizeof name);
    io.client = name.client = g.client;
    io.ready = on_ready;
    io.watched = RLOCK_IO_READ;
    name.resolved = on_resolved_in_child;
    io_events = 0;
    rlock_on_io(&io, RLOCK_IO_READ);
    rlock_on_resolved(&name, NULL);
    if (io_events != 0) {
        return 1;
    }
    memset(&now, 0xff, sizeof now);
    rlock_client_stats(g.client, &now);
    if (now.acquired != 0 || now.up) {
        return 2;
    }
    return owner_acquire(owner, 0, 0) == RLOCK_ERR_STATE ? 0 : 3;
}

static void test_after_fork_the_child_hears_no_event_and_nests_nothing(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    int status = 0;
    pid_t child;
    (void)state;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, 10000);
    child = fork();
    if (child == 0) {
        _exit(child_hears_nothing(owner));
    }
    assert_true(child > 0);
    SAME(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    SAME(WEXITSTATUS(status), 0);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK); /* in the parent it nests */
    idle();
    SAME(rlock_hold_count(owner->lock), 2);
}

/* A child may make clients of its own, and those of its parent stay refused; so do both in a child
 * of that child. */
static int child_with_a_client_of_its_own(struct owner *owner) {
    rlock_options options = options_for("key");
    rlock_client *own = NULL;
    rlock *lock = NULL;
    int status = 0;
    pid_t grandchild;
    if (rlock_client_new(&own, &g.config) != RLOCK_OK ||
        rlock_new(&lock, own, &options) != RLOCK_OK ||
        rlock_acquire(lock, 0, 1000, owner_on_event, owner) != RLOCK_OK) {
        return 1;
    }
    if (rlock_is_held(owner->lock) || owner_release(owner) != RLOCK_ERR_STATE) {
        return 2;
    }
    grandchild = fork();
    if (grandchild == 0) {
        if (rlock_client_new(&own, &g.config) != RLOCK_OK) {
            _exit(3);
        }
        _exit(rlock_cancel(lock) == RLOCK_ERR_STATE && !rlock_is_held(owner->lock) ? 0 : 4);
    }
    if (waitpid(grandchild, &status, 0) != grandchild || !WIFEXITED(status)) {
        return 5;
    }
    return WEXITSTATUS(status);
}

static void
test_after_fork_a_client_of_the_childs_own_brings_none_of_the_parents_back(void **state) {
    struct owner *owner = holder("key", 10000);
    int status = 0;
    pid_t child;
    (void)state;
    child = fork();
    if (child == 0) {
        _exit(child_with_a_client_of_its_own(owner));
    }
    assert_true(child > 0);
    SAME(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    SAME(WEXITSTATUS(status), 0);
    assert_true(rlock_is_held(owner->lock));
}

static void forget_the_descriptor(rlock_timer *timer) {
    (void)timer;
    (void)rlock_io_watch(g.client, &g.store.io, SCRIPTED_FD, 0);
}

/* The timer of a dead connection is due when its last bytes come: they are not read any more. */
static void test_event_of_a_descriptor_that_a_timer_just_forgot_is_dropped(void **state) {
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

/* ------------------------------------------------------------------------------------------------
 * Planted bugs: what tests/mutants/ breaks, and no test above would see.
 */

static int64_t boottime_us(void) {
    struct timespec now;
    SAME(clock_gettime(CLOCK_BOOTTIME, &now), 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void test_clock_of_its_own_is_the_one_that_never_steps(void **state) {
    int64_t before_us = boottime_us(), own_us = rlock__system_now_us();
    (void)state;
    BETWEEN(own_us, before_us, boottime_us());
}

static void test_old_tokens_are_cleaned_up_before_anybody_asks(void **state) {
    struct owner *first = handle("key"), *second = handle("key");
    size_t from;
    (void)state;
    SAME(owner_acquire(first, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    SAME(owner_cancel(first), RLOCK_OK); /* its request has left: an orphan, perhaps */
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

static void free_all(struct owner *owner, const rlock_event *event) {
    (void)event;
    owner_free(owner);
    free_client();
}

/* The memory of the client waits for the end of the entry: a sanitizer sees who looks at it. */
static void test_last_handle_and_client_are_freed_in_a_callback(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    owner->react = free_all;
    always(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(owner->events, 1);
    SAME(virtual_memory.live, 0);
}

static void test_wait_that_ends_while_its_try_is_out_is_unknown(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 500, 1000), RLOCK_OK);
    run_ms(501);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    SAME(asked(RLOCK_OP_RELEASE), 1);
}

static void test_loss_is_told_before_the_end_that_a_socket_brings(void **state) {
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

static void test_waiter_and_holder_look_when_push_is_back(void **state) {
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
    answer.told = true;
    return answer;
}

static void
test_first_refusal_of_a_waiter_is_asked_for_anew_only_if_changes_are_not_told(void **state) {
    struct owner *waiter = handle("told"), *other = handle("not told");
    (void)state;
    SAME(owner_acquire(waiter, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, held_and_told(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    assert_true(scripted_watches(&g.store, "told"));
    run_ms(5000);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    scripted_woken(&g.store, "told");
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(waiter->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(owner_acquire(other, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 4); /* what changed before it was watched was not told */
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 4);
}

static void test_change_while_the_first_refusal_was_on_its_way_is_not_missed(void **state) {
    struct owner *waiter = handle("key");
    (void)state;
    SAME(owner_acquire(waiter, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    scripted_woken(&g.store, "key"); /* it came before the answer, on another connection */
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    reply(RLOCK_OP_ACQUIRE, held_and_told(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
}

static void test_waiter_that_cannot_be_told_asks_anew_when_it_can(void **state) {
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

/* Whoever watches `count` keys, half of them as a holder, the others waiting. */
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
    run_ms(200); /* the holders are registered */
}

/* How often the core asked in so long, of holders and of waiters. */
static void ask_for(int64_t ms, int *looks, int *tries) {
    *looks = -asked((rlock_op)SCRIPTED_LOOK);
    *tries = -asked(RLOCK_OP_ACQUIRE);
    run_ms(ms);
    *looks += asked((rlock_op)SCRIPTED_LOOK);
    *tries += asked(RLOCK_OP_ACQUIRE);
}

static void test_many_watched_keys_are_asked_for_now_and_then_and_few_are_not(void **state) {
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
    scripted_pushing(&g.store, 0); /* then waiters poll, and holders are told by their renewals */
    ask_for(10000, &looks, &tries);
    SAME(looks, 0);
    BETWEEN(tries, 60, 60 * 120);
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    ask_for(2000, &looks, &tries);
    BETWEEN(looks, 60, 240);
}

/* A server of one key: an acquire that was lost on the way runs between a release and its answer.
 * The store learns just then that nothing more can come. `early`: it says what was true when the
 * release ran, else what is true when the answer is read. Returns whether the token stays. */
static bool late_acquire_stays(struct owner *owner, bool early) {
    bool there;
    int i;
    SAME(owner_acquire(owner, 0, 60000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_UNKNOWN, "cut off"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    scripted_need(&g.store, RLOCK_OP_RELEASE); /* it runs: nothing is there */
    there = true;                              /* the late acquire runs, the last that can */
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
        reply(RLOCK_OP_RELEASE, scripted_done()); /* ... and now it was */
    }
    SAME(stats().cleaning, 0);
    return there;
}

static void test_sure_that_is_judged_when_the_answer_is_read_leaves_an_orphan(void **state) {
    (void)state;
    SAME(late_acquire_stays(handle("early"), true), false);
    SAME(late_acquire_stays(handle("late"), false), true);
}

static void test_acquire_answered_with_nonsense_is_cleaned_up(void **state) {
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

static void test_acquire_that_was_surely_not_executed_leaves_nothing(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, undone());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    SAME(stats().cleaning, 0);
}

/* What is known of one try is known of no other. */
static void test_try_that_was_surely_not_executed_says_nothing_of_the_one_before(void **state) {
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

static void test_hold_that_lives_longer_is_watched_and_looked_at_once(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    SAME(scripted_watching(&g.store), 0);
    run_ms(99);
    SAME(scripted_watching(&g.store), 0);
    run_ms(2);
    SAME(scripted_watching(&g.store), 1);
    SAME(asked((rlock_op)SCRIPTED_LOOK), 1);
    run_ms(5000);
    SAME(asked((rlock_op)SCRIPTED_LOOK), 1);
    assert_true(rlock_is_held(owner->lock));
}

static void test_push_behind_a_renewal_is_looked_at_once_it_is_answered(void **state) {
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

/* What failed may have been asked before the change: it is not put off as other faults are. */
static void test_push_behind_a_renewal_that_fails_is_looked_at_soon(void **state) {
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

static void stall_2_s(struct owner *owner, const rlock_event *event) {
    (void)event;
    virtual_stall(owner->loop, 2000000);
}

static void test_grant_that_was_lost_before_it_was_told_keeps_its_place(void **state) {
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

static void stall_and_take_all_memory(struct owner *owner, const rlock_event *event) {
    SAME(owner_acquire(handle("other"), RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(handle("another"), RLOCK_FOREVER, 1000), RLOCK_OK);
    stall_2_s(owner, event);
    virtual_memory.fail_at = 1;
}

/* It has to wait again, and others need what was kept for who waits. */
static void test_grant_that_was_lost_before_it_was_told_ends_if_memory_is_out(void **state) {
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

static void test_timer_that_is_due_again_at_once_waits_for_the_next_turn(void **state) {
    rlock_timer timer;
    (void)state;
    fired = 0;
    SAME(rlock_timer_add(g.client, &timer, fire_again), RLOCK_OK);
    rlock_timer_set(g.client, &timer, 0);
    assert_true(virtual_turn(&g.loop, now_us()));
    SAME(fired, 1);
    rlock_timer_drop(g.client, &timer);
}

static void nest_once_more(struct owner *owner, const rlock_event *event) {
    if (event->kind == RLOCK_ACQUIRED && rlock_hold_count(owner->lock) < 9) {
        SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    }
}

static void test_nested_acquire_of_a_callback_ends_in_the_next_turn(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    int count;
    (void)state;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, 10000);
    owner->react = nest_once_more;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    for (count = 2; count < 9; count++) {
        assert_true(virtual_turn(&g.loop, now_us()));
        SAME(rlock_hold_count(owner->lock), count);
    }
}

static void test_nested_release_needs_no_memory(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    int i;
    (void)state;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, 10000);
    for (i = 0; i < 2; i++) {
        SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
        idle();
    }
    for (i = 0; i < 2; i++) {
        virtual_memory.fail_at = 1;
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        virtual_memory.fail_at = 0;
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    SAME(rlock_hold_count(owner->lock), 1);
}

static void test_unknown_stays_the_last_word_when_the_connection_is_gone(void **state) {
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

static void test_every_waiter_is_told_that_the_server_refuses_this_user(void **state) {
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

/* --- the store inside the process --- */

static void start_in_memory(rlock_store **store) {
    SAME(rlock_memory_new(store), RLOCK_OK);
    g.config.store = *store;
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_OK);
}

static void end_in_memory(rlock_store *store) {
    virtual_free_owners(&g.loop);
    free_client();
    rlock_memory_free(store);
    g.config.store = &g.store.store;
    start();
}

static void test_two_grants_of_one_moment_have_two_fences(void **state) {
    rlock_options options = options_for("a"), others = options_for("b");
    struct owner *a, *b;
    rlock_store *store;
    (void)state;
    start_in_memory(&store);
    options.fencing = others.fencing = true;
    a = handle_with(&options);
    b = handle_with(&others);
    SAME(owner_acquire(a, 0, 1000), RLOCK_OK);
    SAME(owner_acquire(b, 0, 1000), RLOCK_OK);
    idle();
    SAME(a->seen[RLOCK_ACQUIRED].at_us, b->seen[RLOCK_ACQUIRED].at_us);
    assert_true(rlock_fence(b->lock) > rlock_fence(a->lock));
    end_in_memory(store);
}

/* A hold that lives longer is watched: when it is over the store must forget the key again. */
static void test_keys_that_nobody_wants_any_more_leave_the_store_inside_the_process(void **state) {
    size_t live = 0;
    rlock_store *store;
    char key[8];
    int i;
    (void)state;
    start_in_memory(&store);
    for (i = 0; i < 60; i++) {
        struct owner *owner;
        snprintf(key, sizeof key, "%d", i);
        owner = handle(key);
        SAME(owner_acquire(owner, 0, 10000), RLOCK_OK);
        run_ms(200);
        SAME(owner_release(owner), RLOCK_OK);
        idle();
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
        owner_free(owner);
        if (i == 30) {
            live = virtual_memory.live;
        }
    }
    BETWEEN(virtual_memory.live, 1, live);
    end_in_memory(store);
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

/* However many times others are due again, each is fired once in a turn, and none is left out. */
static void test_timers_that_are_due_again_at_once_keep_no_loss_waiting(void **state) {
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
    assert_true(virtual_turn(&g.loop, now_us()));
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

/* A store may find in its timer that all is over: nothing of the client is called behind that. */
static void test_nothing_follows_a_timer_that_freed_the_client(void **state) {
    struct owner *keeps = handle("key"); /* and with it the client's memory */
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
    rlock_timer_set(keeps->client, &second, now_us()); /* does not reach the loop any more */
    rlock_timer_drop(keeps->client, &second);
    SAME(owner_acquire(keeps, 0, 0), RLOCK_ERR_CLOSED);
}

#include "unit_callbacks.h"
#include "unit_kinds.h"

/* ------------------------------------------------------------------------------------------------
 * The list of tests: those above, and one for each cell of the three tables.
 */

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define STOPPED(name) cmocka_unit_test_setup_teardown(name, setup_stopped, teardown)

static const struct CMUnitTest singles[] = {
    CASE(test_first_refusal_of_a_waiter_is_asked_for_anew_only_if_changes_are_not_told),
    CASE(test_change_while_the_first_refusal_was_on_its_way_is_not_missed),
    CASE(test_waiter_that_cannot_be_told_asks_anew_when_it_can),
    CASE(test_many_watched_keys_are_asked_for_now_and_then_and_few_are_not),
    CASE(test_sure_that_is_judged_when_the_answer_is_read_leaves_an_orphan),
    CASE(test_second_renewal_is_refused),
    CASE(test_release_cancels_renewal_by_hand),
    CASE(test_release_when_the_server_said_lost_and_on_lost_was_not_called),
    CASE(test_renewal_that_was_answered_and_not_told_is_canceled_by_a_release),
    STOPPED(test_down_before_the_first_connect),
    CASE(test_wait_that_was_last_told_held_ends_as_timeout_after_faults),
    CASE(test_until_is_sent_plus_lease_minus_drift_minus_two_ms),
    CASE(test_drift_of_the_configuration_shortens_validity),
    CASE(test_validity_counts_from_the_send_not_from_the_call_or_the_answer),
    CASE(test_retry_counts_from_its_own_send),
    CASE(test_renewal_counts_from_its_send),
    CASE(test_remaining_is_read_from_a_fresh_clock),
    CASE(test_clock_that_steps_back_does_not_lengthen_a_hold),
    CASE(test_clock_that_steps_back_under_a_busy_owner_costs_one_look),
    CASE(test_clock_that_steps_back_makes_no_wait_longer),
    CASE(test_late_grant_is_refused_and_asked_for_again),
    CASE(test_late_grant_of_a_single_try_is_refused_and_given_back),
    CASE(test_validity_is_read_again_before_acquired_is_delivered),
    CASE(test_expiry_is_settled_before_a_renewal_that_came_too_late),
    CASE(test_expiry_is_settled_before_what_a_socket_brings),
    CASE(test_paused_watchdog_hold_is_lost_before_its_renewal_is_read),
    CASE(test_freed_handle_is_not_told_what_was_ready_in_the_same_entry),
    CASE(test_cancel_after_an_undelivered_grant_gives_it_back),
    CASE(test_what_callbacks_add_waits_for_the_next_turn),
    CASE(test_callbacks_may_be_left_out_where_the_header_says_so),
    CASE(test_child_that_returns_from_the_callback_it_forked_in_does_nothing),
    CASE(test_child_that_returns_from_a_hook_it_forked_in_does_nothing),
    CASE(test_loop_that_is_run_inside_a_callback_goes_on),
    CASE(test_loss_is_told_by_a_loop_that_is_run_inside_a_callback),
    CASE(test_client_may_be_freed_in_a_loop_inside_a_callback),
    CASE(test_what_a_callback_jumped_over_comes_in_the_next_turn),
    CASE(test_rest_of_a_batch_comes_after_a_jump_that_left_nothing_else_to_do),
    CASE(test_turns_are_snapshots_again_after_a_jump),
    CASE(test_batch_sets_the_timer_twice_at_most_and_leaves_no_turn_in_vain),
    CASE(test_watchdog_renews_at_a_third_of_the_lease),
    CASE(test_watchdog_tries_faster_near_the_deadline),
    CASE(test_lost_comes_exactly_at_the_local_deadline_with_the_store_silent),
    CASE(test_lost_comes_at_the_deadline_while_the_connection_is_down),
    CASE(test_loss_during_an_outage_tells_why_there_is_no_connection),
    CASE(test_nothing_is_renewed_after_release),
    CASE(test_renewals_by_watchdog_on_off_auto),
    CASE(test_watchdog_keeps_the_shortest_lease_with_the_largest_drift),
    CASE(test_max_hold_ends_the_hold_as_expired),
    CASE(test_longer_renewal_by_hand_moves_the_deadline_when_it_is_answered),
    CASE(test_shorter_renewal_by_hand_lowers_the_deadline_at_the_call),
    CASE(test_shorter_renewal_by_hand_stays_lowered_when_the_watchdogs_is_answered),
    CASE(test_lease_of_a_renewal_by_hand_is_the_watchdogs_from_then_on),
    CASE(test_deadline_lowered_by_hand_stays_when_its_renewal_fails),
    CASE(test_renewal_with_lease_0_asks_for_the_lease_the_hold_has),
    CASE(test_key_that_is_gone_is_lost_as_deleted),
    CASE(test_key_of_another_is_lost_as_stolen),
    CASE(test_renewal_answered_held_by_another_is_lost_as_stolen),
    CASE(test_hold_that_is_lost_by_an_unsure_answer_is_cleaned_up),
    CASE(test_renewal_by_hand_of_a_lost_hold_ends_as_lost_and_tells_lost_once),
    CASE(test_push_for_its_key_makes_a_holder_look_at_once),
    CASE(test_push_for_any_key_makes_a_holder_look_at_once),
    CASE(test_push_for_another_key_asks_nothing),
    CASE(test_holders_are_checked_when_the_connection_is_back),
    CASE(test_lost_never_comes_after_a_release_was_called),
    CASE(test_release_after_the_deadline_and_before_lost_ends_as_released_with_lost),
    CASE(test_release_of_what_the_server_no_longer_had_is_not_held_with_the_reason),
    CASE(test_waiters_are_served_in_order_and_only_the_head_asks),
    CASE(test_waiters_of_different_keys_do_not_wait_for_each_other),
    CASE(test_first_try_is_plain_and_the_next_one_watches),
    CASE(test_push_wakes_the_sleeping_head),
    CASE(test_push_while_a_try_is_out_makes_it_try_again_at_once),
    CASE(test_own_release_wakes_the_next_waiter_without_a_push),
    CASE(test_many_holds_are_renewed_together_none_of_them_late),
    CASE(test_hold_among_many_is_renewed_no_more_once_released),
    CASE(test_holds_among_many_are_lost_at_their_deadlines),
    CASE(test_many_holds_survive_a_sleep_longer_than_the_ring),
    CASE(test_hold_goes_on_to_the_next_in_line_without_the_server),
    CASE(test_old_hold_is_not_handed_on_when_the_clock_comes_round),
    CASE(test_hold_goes_on_a_bounded_number_of_times_and_then_others_come_first),
    CASE(test_push_does_not_end_the_pause_for_the_sake_of_others),
    CASE(test_pause_for_the_sake_of_others_has_an_end),
    CASE(test_fences_rise_with_each_hold_that_goes_on),
    CASE(test_hold_without_a_fence_does_not_go_on_to_who_wants_one_nor_back),
    CASE(test_hold_with_too_little_left_does_not_go_on),
    CASE(test_hold_goes_on_only_to_who_asked_for_about_so_long_a_lease),
    CASE(test_renewals_do_not_keep_the_key_in_this_process),
    CASE(test_client_gives_way_where_a_hold_was_too_old_to_be_handed_on),
    CASE(test_hold_that_was_asked_for_again_counts_its_hand_overs_anew),
    CASE(test_hold_limited_by_its_handle_does_not_go_on_to_one_that_is_not),
    CASE(test_hold_whose_renewal_is_out_does_not_go_on),
    CASE(test_hold_that_went_on_with_a_shorter_lease_ends_by_it),
    CASE(test_hold_that_went_on_is_renewed_for_its_new_handle),
    CASE(test_hold_that_went_on_and_was_not_told_is_given_back_by_cancel_and_free),
    CASE(test_former_handle_may_be_freed_or_acquire_again_at_once),
    CASE(test_hold_that_went_on_and_is_found_gone_before_it_is_told_is_asked_for),
    CASE(test_clean_up_that_is_given_up_wakes_the_next_waiter),
    CASE(test_sleeper_tries_again_when_the_holders_lease_is_over),
    CASE(test_waiters_try_again_when_the_connection_is_back),
    CASE(test_head_polls_with_back_off_up_to_poll_ms_where_nothing_is_pushed),
    CASE(test_push_that_stops_turns_sleepers_into_pollers),
    CASE(test_place_in_a_line_is_asked_for_again_when_calls_can_be_heard),
    CASE(test_wait_ends_as_timeout_at_its_end_for_head_and_others),
    CASE(test_cancel_of_the_head_promotes_the_next),
    CASE(test_canceled_has_no_words_of_the_server),
    CASE(test_cancel_of_a_sleeping_head_makes_the_next_ask),
    CASE(test_waiters_that_come_and_go_behind_a_sleeping_head_ask_nothing),
    CASE(test_fault_that_ends_the_head_lets_the_next_ask),
    CASE(test_single_try_is_busy_with_the_time_the_holder_has_left),
    CASE(test_single_try_behind_a_sleeping_waiter_is_busy_at_once),
    STOPPED(test_single_try_behind_another_before_the_first_connect_is_busy),
    CASE(test_orphan_is_released_until_a_sure_answer),
    CASE(test_orphan_is_released_until_one_lease_later_when_no_answer_is_sure),
    CASE(test_unsure_clean_up_ends_a_longest_lease_and_a_command_timeout_later),
    CASE(test_unsure_clean_up_is_not_shortened_by_a_refusal_before_it),
    CASE(test_refused_clean_up_goes_on_for_the_longest_lease),
    CASE(test_orphan_is_not_given_up_while_the_server_cannot_be_asked),
    CASE(test_attempt_that_may_still_be_executed_is_cleaned_up_after_held),
    CASE(test_acquire_that_never_left_needs_no_clean_up),
    CASE(test_acquire_that_never_left_is_not_told_that_another_has_it),
    CASE(test_key_that_was_held_before_is_not_held_for_that),
    CASE(test_who_waits_behind_a_holder_of_its_client_ends_as_timeout),
    CASE(test_try_that_ended_unknown_is_cleaned_up),
    CASE(test_release_that_is_never_answered_ends_unknown_at_the_deadline),
    CASE(test_acquire_after_cancel_has_a_token_of_its_own),
    CASE(test_freed_holder_is_released_in_the_background),
    CASE(test_reentrant_hold_counts_up_and_down_without_a_round_trip),
    CASE(test_reentrant_acquire_with_a_longer_lease_asks_for_it),
    CASE(test_nested_acquire_with_lease_0_gives_the_hold_a_watchdog),
    CASE(test_nested_acquire_that_fails_gives_no_watchdog),
    CASE(test_loss_sets_a_reentrant_count_to_zero),
    CASE(test_release_while_a_nested_acquire_is_asked_for_cancels_it),
    CASE(test_release_in_the_turn_of_a_nested_acquire_cancels_it),
    CASE(test_reentrant_acquire_of_a_lost_hold_is_refused),
    CASE(test_shutdown_ends_tells_releases_and_is_done),
    CASE(test_shutdown_without_an_answer_is_done_with_timeout),
    CASE(test_shutdown_of_an_idle_client_is_done_in_a_turn_of_its_own),
    CASE(test_shutdown_lets_a_release_under_way_end),
    CASE(test_shutdown_ends_a_nested_acquire_as_closed),
    CASE(test_client_free_in_every_state_tells_nothing_and_handles_survive),
    CASE(test_client_free_sends_the_release_of_what_is_held),
    CASE(test_client_free_before_ends_were_told_leaks_nothing),
    CASE(test_handle_free_in_every_state_tells_nothing),
    CASE(test_free_of_null_is_allowed),
    STOPPED(test_store_that_does_not_open_fails_the_client),
    STOPPED(test_loop_that_does_not_open_and_missing_random_bytes_fail_the_client),
    STOPPED(test_bad_configurations_are_refused_with_a_log_line),
    STOPPED(test_null_arguments_of_the_client_are_refused),
    CASE(test_bad_options_are_refused),
    CASE(test_long_words_of_a_store_are_cut_in_the_log),
    CASE(test_longest_key_and_hash_tags_are_allowed),
    CASE(test_bad_leases_and_waits_are_refused_and_change_nothing),
    CASE(test_absurd_wait_does_not_overflow),
    CASE(test_absurd_limit_of_a_hold_does_not_overflow),
    CASE(test_null_handles_are_refused),
    CASE(test_after_fork_the_child_is_refused_and_sends_nothing),
    CASE(test_child_that_returns_from_a_timer_it_forked_in_hears_of_no_name),
    CASE(test_nothing_is_allocated_between_acquire_and_release_once_warm),
    CASE(test_release_needs_no_memory),
    CASE(test_releases_of_many_need_no_memory),
    CASE(test_request_without_memory_is_made_soon),
    CASE(test_freed_handles_give_back_what_was_kept_for_them),
    STOPPED(test_every_failing_allocation_is_survived_and_leaks_nothing),
    CASE(test_stats_count_what_happened_and_what_is),
    CASE(test_every_hold_that_was_acquired_is_counted_once_as_released_or_lost),
    CASE(test_every_status_has_its_text),
    CASE(test_every_reason_and_kind_has_its_word),
    CASE(test_key_is_copied_with_every_byte_and_a_nul_behind_it),
    CASE(test_fence_is_the_servers_and_asked_for_only_when_wanted),
    CASE(test_every_token_is_new_and_the_client_id_is_a_uuid),
    CASE(test_what_is_submitted_is_flushed_before_the_loop_sleeps),
    CASE(test_keys_are_unwatched_when_nobody_cares_any_more),
    CASE(test_descriptor_of_a_store_reaches_the_loop_and_its_events_the_store),
    CASE(test_early_and_spurious_timer_entries_are_harmless),
    CASE(test_keys_whose_hashes_collide_are_different_locks),
    CASE(test_keys_that_are_one_chain_in_a_client_are_none_in_another),
    CASE(test_each_byte_of_a_key_counts_in_its_hash),
    STOPPED(test_tables_that_cannot_grow_cost_a_status_and_nothing_else),
    STOPPED(test_remaining_time_is_never_negative_while_the_clock_goes_on),
    STOPPED(test_arguments_that_no_other_test_gives),
    CASE(test_callback_that_freed_its_client_may_go_on_calling),
    CASE(test_after_fork_the_child_hears_no_event_and_nests_nothing),
    CASE(test_after_fork_a_client_of_the_childs_own_brings_none_of_the_parents_back),
    CASE(test_event_of_a_descriptor_that_a_timer_just_forgot_is_dropped),
    CASE(test_clock_of_its_own_is_the_one_that_never_steps),
    CASE(test_old_tokens_are_cleaned_up_before_anybody_asks),
    CASE(test_last_handle_and_client_are_freed_in_a_callback),
    CASE(test_wait_that_ends_while_its_try_is_out_is_unknown),
    CASE(test_loss_is_told_before_the_end_that_a_socket_brings),
    CASE(test_waiter_and_holder_look_when_push_is_back),
    CASE(test_acquire_answered_with_nonsense_is_cleaned_up),
    CASE(test_acquire_that_was_surely_not_executed_leaves_nothing),
    CASE(test_try_that_was_surely_not_executed_says_nothing_of_the_one_before),
    CASE(test_hold_that_lives_longer_is_watched_and_looked_at_once),
    CASE(test_push_behind_a_renewal_is_looked_at_once_it_is_answered),
    CASE(test_push_behind_a_renewal_that_fails_is_looked_at_soon),
    CASE(test_grant_that_was_lost_before_it_was_told_keeps_its_place),
    CASE(test_grant_that_was_lost_before_it_was_told_ends_if_memory_is_out),
    CASE(test_timer_that_is_due_again_at_once_waits_for_the_next_turn),
    CASE(test_nested_acquire_of_a_callback_ends_in_the_next_turn),
    CASE(test_nested_release_needs_no_memory),
    CASE(test_unknown_stays_the_last_word_when_the_connection_is_gone),
    CASE(test_every_waiter_is_told_that_the_server_refuses_this_user),
    STOPPED(test_two_grants_of_one_moment_have_two_fences),
    STOPPED(test_keys_that_nobody_wants_any_more_leave_the_store_inside_the_process),
    CASE(test_nothing_follows_a_timer_that_freed_the_client),
    CASE(test_timers_that_are_due_again_at_once_keep_no_loss_waiting),
    CASE(test_each_waiter_of_a_queued_kind_asks_for_itself_at_once),
    CASE(test_single_try_of_a_queued_kind_asks_the_server_not_to_stand_in_line),
    CASE(test_who_leaves_the_line_is_taken_out_of_it),
    CASE(test_who_never_came_into_the_line_need_not_be_taken_out),
    CASE(test_who_never_came_into_the_line_is_not_told_that_another_has_it),
    CASE(test_who_is_called_asks_again_with_its_token),
    CASE(test_who_is_called_while_its_try_is_out_asks_once_more),
    CASE(test_call_of_nobody_is_ignored),
    CASE(test_holder_who_is_called_looks),
    CASE(test_first_of_the_line_looks_again_after_half_a_turn),
    CASE(test_next_of_the_line_takes_over_the_looking),
    CASE(test_grant_behind_the_first_changes_nothing_for_it),
    CASE(test_waiter_whose_try_failed_is_asked_for_again_wherever_it_stands),
    CASE(test_first_of_the_line_polls_where_nobody_is_called),
    CASE(test_first_of_the_line_polls_twice_a_turn_at_least),
    CASE(test_all_in_line_ask_when_calls_begin_or_end),
    CASE(test_try_that_was_out_when_calls_began_is_asked_for_once_more),
    CASE(test_changes_wake_no_one_in_line_and_any_change_all),
    CASE(test_change_makes_look_who_holds_alone_and_no_one_who_shares),
    CASE(test_who_shares_and_cannot_be_called_is_registered_by_a_look),
    CASE(test_change_makes_no_holder_of_a_semaphore_look_however_few_permits_it_has),
    CASE(test_holders_of_one_key_are_lost_renewed_and_released_one_by_one),
    CASE(test_freed_holder_leaves_the_others_theirs),
    CASE(test_holder_may_free_the_others_when_all_are_lost),
    CASE(test_shutdown_tells_every_holder_and_every_one_in_line),
    CASE(test_client_free_releases_every_hold_and_place_and_tells_nobody),
    CASE(test_connection_that_comes_and_goes_with_many_holders_and_waiters),
    CASE(test_refused_user_ends_every_waiter_of_the_line),
    CASE(test_late_grant_behind_the_first_is_asked_for_again_at_once),
    CASE(test_grant_that_expires_before_it_is_told_is_asked_for_again),
    CASE(test_call_before_the_grant_is_told_makes_it_look),
    CASE(test_nothing_is_handed_on_of_a_queued_kind),
    CASE(test_release_names_who_asks_right_behind_it),
    CASE(test_release_names_nobody_who_has_no_place_or_asks_just_now),
    CASE(test_release_that_is_sent_again_names_nobody),
    CASE(test_own_release_makes_the_first_of_the_line_ask_where_nobody_is_called),
    CASE(test_one_fence_is_asked_for_by_each_of_a_queued_kind),
    CASE(test_reader_names_the_writer_of_its_owner_while_that_holds),
    CASE(test_reader_in_line_asks_as_soon_as_its_writer_is_granted),
    CASE(test_set_that_loses_a_key_lets_the_others_go_and_a_single_one_nothing),
    CASE(test_same_key_is_another_gate_only_where_the_server_has_another_line),
    CASE(test_waiters_with_an_owner_or_a_weight_of_their_own_cost_what_one_does),
    CASE(test_heavy_first_of_the_line_does_not_look_for_who_is_lighter),
    CASE(test_place_of_a_freed_handle_is_given_back_by_its_weight),
    CASE(test_gates_of_one_key_may_be_freed_in_any_order),
    CASE(test_many_keys_of_many_sets_are_found_when_the_table_grows),
    CASE(test_change_of_a_key_wakes_nobody_whose_key_has_the_same_hash),
    CASE(test_each_key_of_a_set_wakes_who_waits_for_it),
    CASE(test_each_key_of_a_set_makes_its_holder_look),
    CASE(test_release_of_a_set_wakes_who_waits_for_one_of_its_keys_and_back),
    CASE(test_key_is_watched_until_no_gate_of_it_wants_to_know),
    CASE(test_question_is_answered_once_with_what_the_server_said),
    CASE(test_question_leaves_nothing_behind_that_each_release_would_look_for),
    CASE(test_question_ends_by_each_fault_as_a_single_try_does),
    CASE(test_question_without_an_answer_ends_after_a_command_timeout),
    CASE(test_questions_end_when_the_connection_does),
    CASE(test_answered_question_is_not_ended_again),
    CASE(test_question_for_whose_timer_there_is_no_memory_is_not_asked),
    CASE(test_question_of_a_freed_client_is_not_answered),
    CASE(test_client_may_be_freed_or_asked_in_the_callback_of_a_question),
    CASE(test_position_is_asked_with_the_token_of_who_waits),
    CASE(test_position_of_who_does_not_wait_in_a_line_is_not_asked),
    CASE(test_wrong_options_are_refused_by_handles_and_questions),
    CASE(test_questions_that_cannot_be_asked_are_refused),
    CASE(test_set_is_refused_for_one_key_that_the_store_refuses),
    cmocka_unit_test(test_every_failing_allocation_of_the_kinds_is_survived),
};

static struct CMUnitTest tests[TESTS_MAX];
static struct cell cells[TESTS_MAX];
static char names[TESTS_MAX][120];
static size_t count;

static void add_cell(CMUnitTestFunction function, int row, int column, rlock_kind kind) {
    assert_true(count < TESTS_MAX);
    cells[count].row = row;
    cells[count].column = column;
    cells[count].kind = kind;
    tests[count].name = names[count];
    tests[count].test_func = function;
    tests[count].setup_func = setup;
    tests[count].teardown_func = teardown;
    tests[count].initial_state = &cells[count];
    count++;
}

static const char *status_name(int status) {
    switch (status) {
#define RLOCK_X(name, value, text) \
    case RLOCK_##name: return #name;
        RLOCK_STATUS_MAP(RLOCK_X)
#undef RLOCK_X
    default: return "retry";
    }
}

/* The two tables hold for every kind: here for one of each sort. */
static void add_tables_of(rlock_kind kind, const char *what) {
    int row, column;
    for (row = 0; row < STATES; row++) {
        for (column = 0; column < CALLS; column++) {
            snprintf(names[count], sizeof names[0], "%sin %s, %s returns %s", what,
                     state_names[row], call_names[column],
                     status_name(state_call[row][column].returns));
            add_cell(test_state_call, row, column, kind);
        }
    }
    for (row = 0; row < FAULTS; row++) {
        for (column = 0; column < OPERATIONS; column++) {
            snprintf(names[count], sizeof names[0], "%s%s makes %s %s %s", what, fault_names[row],
                     operation_names[column],
                     fault_operation[row][column] == RETRY ? "try again:" : "end as",
                     status_name(fault_operation[row][column]));
            add_cell(test_fault_operation, row, column, kind);
            if (fault_operation[row][column] == RETRY) {
                snprintf(names[count], sizeof names[0], "%s%s that lasts ends %s at its deadline",
                         what, fault_names[row], operation_names[column]);
                add_cell(test_fault_that_lasts, row, column, kind);
            }
        }
    }
}

static void add_tables(void) {
    int row, column;
    add_tables_of(RLOCK_KIND_MUTEX, "");
    add_tables_of(RLOCK_KIND_FAIR, "fair: ");
    add_tables_of(RLOCK_KIND_SEMAPHORE, "semaphore: ");
    for (row = 0; row < PLACES; row++) {
        for (column = 0; column < FUNCTIONS; column++) {
            snprintf(names[count], sizeof names[0], "%s may be called from the callback of %s",
                     function_names[column], place_names[row]);
            add_cell(test_function_in_callback, row, column, RLOCK_KIND_MUTEX);
        }
    }
}

int main(int argc, char **argv) {
    assert_true(sizeof singles / sizeof singles[0] < TESTS_MAX);
    memcpy(tests, singles, sizeof singles);
    count = sizeof singles / sizeof singles[0];
    add_tables();
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return _cmocka_run_group_tests("unit", tests, count, NULL, NULL);
}
