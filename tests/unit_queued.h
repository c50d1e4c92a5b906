/* unit_queued.h - the queued kinds: what the core does about a queue that stands at the server
 *
 * Each waiter asks for its place once, the first of them looks after the queue, and a waiter that
 * is notified asks again.
 */
#ifndef TESTS_UNIT_QUEUED_H
#define TESTS_UNIT_QUEUED_H

#define FOR_LONG 60000 /* ms: another's lease, so long that nobody asks because it ends */
#define HALF_A_TIMEOUT 500

static const rlock_kind queued_kinds[] = {RLOCK_KIND_FAIR, RLOCK_KIND_READ, RLOCK_KIND_WRITE,
                                          RLOCK_KIND_SEMAPHORE};
#define QUEUED_KINDS (sizeof queued_kinds / sizeof queued_kinds[0])

static struct owner *kind_handle(rlock_kind kind, const char *key) {
    g.kind = kind;
    return handle(key);
}

static struct owner *kind_holder(rlock_kind kind, const char *key, int64_t lease_ms) {
    g.kind = kind;
    return holder(key, lease_ms);
}

/* Begins again with a new client, whose tokens count from 1. */
static void anew(void) {
    if (g.client != NULL) {
        free_client();
    }
    g.store.count = 0;
    start();
}

static uint64_t token_of(const struct owner *owner) {
    return owner->lock->claim->token;
}

/* Returns the request of a handle that the store has not answered, or NULL. */
static struct scripted_request *out_of(const struct owner *owner) {
    rlock__claim *claim = owner->lock->claim;
    return claim != NULL && claim->in_flight != NULL
               ? scripted_find(&g.store, &claim->in_flight->request)
               : NULL;
}

/* Answers what a handle asked, and lets what follows happen. */
static void answer_to(const struct owner *owner, rlock_answer answer) {
    struct scripted_request *record = out_of(owner);
    assert_non_null(record);
    scripted_answer(&g.store, record, answer);
    idle();
}

static void call(const struct owner *owner) {
    scripted_notified(&g.store, rlock_key(owner->lock, NULL), token_of(owner));
}

/* Makes a waiter that is in the queue: it was told that others are ahead of it. */
static struct owner *in_queue(rlock_kind kind, const char *key, int64_t wait_ms) {
    struct owner *owner = kind_handle(kind, key);
    SAME(owner_acquire(owner, wait_ms, FOR_LONG), RLOCK_OK);
    idle();
    answer_to(owner, scripted_held(FOR_LONG));
    SAME(owner->events, 0);
    assert_null(out_of(owner));
    return owner;
}

/* Returns how often an acquire was sent for this token. */
static int attempts_of(uint64_t token) {
    size_t i;
    int tries = 0;
    for (i = 0; i < g.store.count; i++) {
        tries += g.store.log[i].op == RLOCK_OP_ACQUIRE && g.store.log[i].token == token ? 1 : 0;
    }
    return tries;
}

static bool released(uint64_t token) {
    size_t i;
    for (i = 0; i < g.store.count; i++) {
        if (g.store.log[i].op == RLOCK_OP_RELEASE && g.store.log[i].token == token) {
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------
 * The queue.
 */

static void each_waiter_of_a_queued_kind_asks_for_itself_at_once(void **state) {
    size_t i;
    int k;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        struct owner *owners[3];
        int before;
        (void)kind_holder(queued_kinds[i], "key", FOR_LONG); /* keeps nobody from asking */
        before = asked(RLOCK_OP_ACQUIRE);
        for (k = 0; k < 3; k++) {
            owners[k] = kind_handle(queued_kinds[i], "key");
            SAME(owner_acquire(owners[k], RLOCK_FOREVER, 1000), RLOCK_OK);
        }
        SAME(asked(RLOCK_OP_ACQUIRE), before + 3);
        for (k = 0; k < 3; k++) {
            SAME(out_of(owners[k])->flags, 0);
        }
        answer_to(owners[1], scripted_done()); /* in the server's order, not in ours */
        SAME(owners[1]->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        SAME(owners[0]->events + owners[2]->events, 0);
        anew();
    }
}

static void single_try_of_a_queued_kind_asks_the_server_not_to_stand_in_line(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        struct owner *holds = kind_holder(queued_kinds[i], "key", FOR_LONG);
        struct owner *waits = in_queue(queued_kinds[i], "key", RLOCK_FOREVER);
        struct owner *once = kind_handle(queued_kinds[i], "key"); /* the server answers it */
        uint64_t token;
        SAME(owner_acquire(once, 0, 1000), RLOCK_OK);
        idle();
        SAME(once->events, 0);
        SAME(out_of(once)->flags, RLOCK_REQUEST_ONCE);
        token = token_of(once);
        answer_to(once, scripted_held(1234));
        SAME(once->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
        SAME(once->seen[RLOCK_ACQUIRED].remaining_ms, 1234);
        assert_false(released(token)); /* it is in no queue */
        SAME(owner_acquire(once, 0, 1000), RLOCK_OK);
        idle();
        answer_to(once, scripted_done());
        SAME(once->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        assert_true(rlock_is_held(holds->lock));
        SAME(waits->events, 0);
        anew();
    }
}

/* A refused waiter keeps its position: however it ends, the server must be told. */
static void who_leaves_the_line_is_taken_out_of_it(void **state) {
    int way;
    (void)state;
    for (way = 0; way < 5; way++) {
        struct owner *first = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
        struct owner *leaves = in_queue(RLOCK_KIND_FAIR, "key", way == 1 ? 400 : RLOCK_FOREVER);
        uint64_t token = token_of(leaves);
        switch (way) {
        case 0: SAME(owner_cancel(leaves), RLOCK_OK); break;
        case 1: run_ms(401); break;
        case 2: owner_free(leaves); break;
        case 3: SAME(rlock_client_shutdown(g.client, 0, NULL, NULL), RLOCK_OK); break;
        default: free_client(); break;
        }
        if (g.client != NULL) {
            idle();
        }
        assert_true(released(token));
        if (way < 2 || way == 3) {
            SAME(leaves->seen[RLOCK_ACQUIRED].status, way == 0   ? RLOCK_ERR_CANCELED
                                                      : way == 1 ? RLOCK_ERR_TIMEOUT
                                                                 : RLOCK_ERR_CLOSED);
        }
        if (way < 3) {
            reply(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
            SAME(stats().cleaning, 0);
            SAME(first->events, 0);
        }
        anew();
    }
}

/* Its attempt was never sent: there is nothing to remove. */
static void who_never_came_into_the_line_need_not_be_taken_out(void **state) {
    struct owner *owner = kind_handle(RLOCK_KIND_FAIR, "key");
    (void)state;
    g.store.unsent = true;
    SAME(owner_acquire(owner, 100, 1000), RLOCK_OK);
    run_ms(102);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    SAME(asked(RLOCK_OP_RELEASE), 0);
}

/* No server has said that the key is held: neither for a single try nor for a waiter. */
static void waiter_that_never_came_into_the_line_does_not_report_that_another_has_it(void **state) {
    int waits;
    (void)state;
    for (waits = 0; waits < 2; waits++) {
        struct owner *first = kind_handle(RLOCK_KIND_FAIR, "key");
        struct owner *second = kind_handle(RLOCK_KIND_FAIR, "key");
        g.store.unsent = true;
        SAME(owner_acquire(first, 3000, 1000), RLOCK_OK);
        SAME(owner_acquire(second, waits ? 100 : 0, 1000), RLOCK_OK);
        run_ms(3001);
        SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
        SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
        anew();
    }
}

static void who_is_called_asks_again_with_its_token(void **state) {
    struct owner *first = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    struct owner *called = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    uint64_t token = token_of(called);
    (void)state;
    call(called);
    assert_non_null(out_of(called));
    SAME(out_of(called)->token, token);
    assert_true(out_of(called)->urgent);
    assert_null(out_of(first));
    answer_to(called, scripted_done());
    SAME(called->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(first->events, 0);
    SAME(asked(RLOCK_OP_ACQUIRE), 3);
    SAME(stats().woken, 1);
}

/* The answer may be older than the notification. */
static void who_is_called_while_its_try_is_out_asks_once_more(void **state) {
    struct owner *owner = kind_handle(RLOCK_KIND_FAIR, "key");
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
    idle();
    call(owner);
    call(owner);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    answer_to(owner, scripted_held(FOR_LONG));
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    answer_to(owner, scripted_held(FOR_LONG));
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
}

static void notification_of_an_unknown_waiter_is_ignored(void **state) {
    struct owner *waits = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    struct owner *other = in_queue(RLOCK_KIND_FAIR, "other", RLOCK_FOREVER);
    struct owner *mutex;
    int before;
    (void)state;
    mutex = kind_handle(RLOCK_KIND_MUTEX, "mutex");
    SAME(owner_acquire(mutex, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
    idle();
    answer_to(mutex, scripted_held(FOR_LONG));
    answer_to(mutex, scripted_held(FOR_LONG));
    before = asked(RLOCK_OP_ACQUIRE);
    scripted_notified(&g.store, "key", 4711);
    scripted_notified(&g.store, "key", token_of(other)); /* its key is another one */
    scripted_notified(&g.store, "nobody's", token_of(waits));
    scripted_notified(&g.store, "mutex", token_of(mutex));
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    SAME(owner_cancel(waits), RLOCK_OK);
    scripted_notified(&g.store, "key", g.store.log[0].token);
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    SAME(stats().woken, 5);
}

static void holder_who_is_called_looks(void **state) {
    static const rlock_outcome ends[] = {RLOCK_OUTCOME_DONE, RLOCK_OUTCOME_GONE};
    size_t i, end;
    (void)state;
    g.store.checks_by_hand = true;
    for (i = 0; i < QUEUED_KINDS; i++) {
        for (end = 0; end < 2; end++) {
            struct owner *owner = kind_holder(queued_kinds[i], "key", FOR_LONG);
            call(owner);
            SAME(out_of(owner)->op, RLOCK_OP_RENEW);
            SAME(out_of(owner)->lease_ms, 0);
            answer_to(owner, scripted_plain(ends[end]));
            SAME(owner->seen[RLOCK_LOST].count, end);
            SAME(rlock_is_held(owner->lock), end == 0);
            owner_free(owner);
            scripted_settle(&g.store);
            memset(g.store.automatic, 0, sizeof g.store.automatic);
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * Which waiter looks after the queue.
 */

static void first_of_the_line_looks_again_after_half_a_turn(void **state) {
    struct owner *line[3];
    uint64_t tokens[3];
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        line[i] = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
        tokens[i] = token_of(line[i]);
    }
    run_ms(HALF_A_TIMEOUT - 1);
    SAME(asked(RLOCK_OP_ACQUIRE), 3);
    run_ms(3);
    SAME(attempts_of(tokens[0]), 2);
    assert_true((out_of(line[0])->flags & RLOCK_REQUEST_RETRY) != 0);
    SAME(asked(RLOCK_OP_ACQUIRE), 4);
    answer_to(line[0], scripted_held(70)); /* when the next lease is over */
    run_ms(60);
    SAME(attempts_of(tokens[0]), 2);
    run_ms(12);
    SAME(attempts_of(tokens[0]), 3);
    answer_to(line[0], scripted_held(-1));
    run_ms(HALF_A_TIMEOUT + 2);
    SAME(attempts_of(tokens[0]), 4);
    SAME(attempts_of(tokens[1]), 1);
    SAME(attempts_of(tokens[2]), 1);
}

static void leave_first(struct owner *first, int way) {
    switch (way) {
    case 0: SAME(owner_cancel(first), RLOCK_OK); break;
    case 1: owner_free(first); break;
    case 2: run_ms(601); break;
    case 3:
        call(first);
        answer_to(first, scripted_done());
        break;
    default:
        call(first);
        answer_to(first, scripted_fault(RLOCK_FAULT_AUTH, "NOPERM"));
        break;
    }
    idle();
}

static void next_of_the_line_takes_over_the_looking(void **state) {
    int way, late;
    (void)state;
    for (way = 0; way < 5; way++) {
        for (late = 0; late < 2; late++) {
            struct owner *first = in_queue(RLOCK_KIND_FAIR, "key", way == 2 ? 600 : RLOCK_FOREVER);
            struct owner *next = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
            struct owner *last = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
            uint64_t tokens[2];
            tokens[0] = token_of(next);
            tokens[1] = token_of(last);
            if (late && way < 3) { /* its attempt is in flight, and no timer runs */
                run_ms(HALF_A_TIMEOUT + 2);
                assert_non_null(out_of(first));
            }
            leave_first(first, way);
            run_ms(HALF_A_TIMEOUT + 2);
            SAME(attempts_of(tokens[0]), 2);
            SAME(attempts_of(tokens[1]), 1);
            answer_to(next, scripted_held(FOR_LONG));
            run_ms(HALF_A_TIMEOUT + 2);
            SAME(attempts_of(tokens[0]), 3);
            anew();
        }
    }
}

/* A grant to another waiter does not put off the first one's next attempt. */
static void grant_behind_the_first_changes_nothing_for_it(void **state) {
    struct owner *first = in_queue(RLOCK_KIND_SEMAPHORE, "key", RLOCK_FOREVER);
    struct owner *second = in_queue(RLOCK_KIND_SEMAPHORE, "key", RLOCK_FOREVER);
    uint64_t token = token_of(first);
    (void)state;
    run_ms(300);
    call(second);
    answer_to(second, scripted_done());
    SAME(attempts_of(token), 1);
    run_ms(202);
    SAME(attempts_of(token), 2);
}

static void waiter_whose_try_failed_is_asked_for_again_wherever_it_stands(void **state) {
    static const rlock_fault faults[] = {RLOCK_FAULT_DOWN, RLOCK_FAULT_UNKNOWN, RLOCK_FAULT_BUSY};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct owner *first = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
        struct owner *fails = kind_handle(RLOCK_KIND_FAIR, "key");
        uint64_t token;
        SAME(owner_acquire(fails, RLOCK_FOREVER, 1000), RLOCK_OK);
        idle();
        token = token_of(fails);
        answer_to(fails, scripted_fault(faults[i], "words"));
        SAME(attempts_of(token), 1);
        run_ms(HALF_A_TIMEOUT + 2);
        SAME(attempts_of(token), 2);
        answer_to(fails, scripted_held(FOR_LONG));
        assert_non_null(out_of(first));
        answer_to(first, scripted_held(FOR_LONG));
        call(fails); /* now it has an offer that it must not miss */
        answer_to(fails, scripted_fault(faults[i], "words"));
        SAME(attempts_of(token), 3);
        run_ms(HALF_A_TIMEOUT + 2);
        SAME(attempts_of(token), 4);
        answer_to(fails, scripted_done());
        SAME(fails->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        anew();
    }
}

/* ------------------------------------------------------------------------------------------------
 * Where nobody is notified.
 */

static void first_of_the_line_polls_where_nobody_is_called(void **state) {
    struct owner *first, *second;
    int tries;
    (void)state;
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    first = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    second = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    always(RLOCK_OP_ACQUIRE, scripted_held(FOR_LONG));
    run_ms(1000);
    tries = attempts_of(token_of(first));
    BETWEEN(tries, 5, 16);
    SAME(attempts_of(token_of(second)), 1);
}

/* An offer ends after a command timeout, however long poll_ms is. */
static void first_of_the_line_polls_twice_a_turn_at_least(void **state) {
    struct owner *first;
    int tries;
    (void)state;
    free_client();
    g.config.poll_ms = 3600000;
    start();
    scripted_pushing(&g.store, 0);
    first = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    always(RLOCK_OP_ACQUIRE, scripted_held(FOR_LONG));
    run_ms(5000);
    tries = attempts_of(token_of(first));
    BETWEEN(tries, 9, 20);
}

/* The queue says whether a waiter can be notified; and the last notification may be lost. */
static void all_in_line_ask_when_calls_begin_or_end(void **state) {
    static const unsigned changes[] = {0, RLOCK_PUSH_NOTIFICATIONS, RLOCK_PUSH_CHANGES,
                                       RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS};
    struct owner *line[3];
    size_t n;
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        line[i] = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    }
    for (n = 0; n < sizeof changes / sizeof changes[0]; n++) {
        int before = asked(RLOCK_OP_ACQUIRE);
        scripted_pushing(&g.store, changes[n]);
        SAME(asked(RLOCK_OP_ACQUIRE), before + 3);
        for (i = 0; i < 3; i++) {
            answer_to(line[i], scripted_held(FOR_LONG));
        }
    }
    i = asked(RLOCK_OP_ACQUIRE);
    scripted_pushing(&g.store, RLOCK_PUSH_NOTIFICATIONS); /* changes do not matter here */
    SAME(asked(RLOCK_OP_ACQUIRE), i);
}

/* The attempt said that the waiter cannot be notified, so it never would be. */
static void try_that_was_out_when_calls_began_is_asked_for_once_more(void **state) {
    struct owner *line[2];
    int i, watched;
    (void)state;
    for (watched = 0; watched < 2; watched++) {
        anew();
        scripted_pushing(&g.store, 0);
        if (watched) {
            (void)in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
        }
        for (i = 0; i < 2; i++) {
            line[i] = kind_handle(RLOCK_KIND_FAIR, "key");
            SAME(owner_acquire(line[i], RLOCK_FOREVER, 1000), RLOCK_OK);
        }
        idle();
        scripted_pushing(&g.store, RLOCK_PUSH_NOTIFICATIONS);
        for (i = 0; i < 2; i++) {
            SAME(attempts_of(token_of(line[i])), 1);
            answer_to(line[i], scripted_held(FOR_LONG));
            SAME(attempts_of(token_of(line[i])), 2);
            answer_to(line[i], scripted_held(FOR_LONG));
            SAME(attempts_of(token_of(line[i])), 2);
        }
    }
}

static void changes_wake_no_one_in_line_and_any_change_all(void **state) {
    struct owner *line[2];
    int i, before;
    (void)state;
    for (i = 0; i < 2; i++) {
        line[i] = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    }
    before = asked(RLOCK_OP_ACQUIRE);
    scripted_woken(&g.store, "key");
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    scripted_woken(&g.store, NULL);
    SAME(asked(RLOCK_OP_ACQUIRE), before + 2);
    scripted_woken(&g.store, NULL); /* the answers may be older than this */
    for (i = 0; i < 2; i++) {
        answer_to(line[i], scripted_held(FOR_LONG));
    }
    SAME(asked(RLOCK_OP_ACQUIRE), before + 4);
}

/* To a single holder a change can only mean its loss; shared holds are not checked each time. */
static void change_makes_look_who_holds_alone_and_no_one_who_shares(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        bool alone = queued_kinds[i] == RLOCK_KIND_FAIR || queued_kinds[i] == RLOCK_KIND_WRITE;
        struct owner *owner = kind_holder(queued_kinds[i], "key", FOR_LONG);
        int looks = asked((rlock_op)SCRIPTED_LOOK);
        run_ms(200); /* the key is tracked, by a check */
        SAME(asked((rlock_op)SCRIPTED_LOOK), looks + alone);
        scripted_woken(&g.store, "key");
        SAME(asked((rlock_op)SCRIPTED_LOOK), looks + 2 * alone);
        scripted_woken(&g.store, NULL);
        SAME(asked((rlock_op)SCRIPTED_LOOK), looks + 2 * alone + 1);
        owner_free(owner);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

/* Without notifications the push of a change is the only sign of a forced release. */
static void who_shares_and_cannot_be_called_is_registered_by_a_look(void **state) {
    (void)state;
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    kind_holder(RLOCK_KIND_READ, "key", FOR_LONG);
    run_ms(200);
    SAME(asked((rlock_op)SCRIPTED_LOOK), 1);
}

/* A semaphore of one permit may have more by now. */
static void change_makes_no_holder_of_a_semaphore_look_however_few_permits_it_has(void **state) {
    rlock_options options;
    struct owner *owner;
    (void)state;
    g.kind = RLOCK_KIND_SEMAPHORE;
    options = options_for("key");
    options.permits = 1;
    owner = handle_with(&options);
    grant(owner, FOR_LONG);
    run_ms(200);
    scripted_woken(&g.store, "key");
    SAME(asked((rlock_op)SCRIPTED_LOOK), 0);
    call(owner); /* a forced release */
    SAME(asked((rlock_op)SCRIPTED_LOOK), 1);
}

/* ------------------------------------------------------------------------------------------------
 * Several holders.
 */

#define READERS 3

static void readers_hold(struct owner *readers[READERS], int64_t lease_ms) {
    int i;
    for (i = 0; i < READERS; i++) {
        readers[i] = kind_holder(RLOCK_KIND_READ, "key", lease_ms);
    }
    SAME(stats().held, READERS);
}

static void holders_of_one_key_are_lost_renewed_and_released_one_by_one(void **state) {
    struct owner *readers[READERS];
    uint64_t token;
    (void)state;
    readers_hold(readers, 3000);
    SAME(owner_renew(readers[0], 9000), RLOCK_OK);
    SAME(owner_renew(readers[1], 9000), RLOCK_OK);
    idle();
    answer_to(readers[1], scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(readers[1]->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
    SAME(readers[1]->seen[RLOCK_RENEWED].status, RLOCK_ERR_LOST);
    answer_to(readers[0], scripted_done());
    SAME(readers[0]->seen[RLOCK_RENEWED].status, RLOCK_OK);
    token = token_of(readers[0]);
    run_ms(3000);
    SAME(readers[2]->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    assert_true(rlock_is_held(readers[0]->lock));
    SAME(stats().held, 1);
    SAME(owner_release(readers[0]), RLOCK_OK);
    idle();
    assert_true(released(token));
    scripted_settle(&g.store);
    SAME(readers[0]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(readers[0]->seen[RLOCK_LOST].count, 0);
    SAME(stats().cleaning, 0);
}

static void freed_holder_leaves_the_others_theirs(void **state) {
    struct owner *readers[READERS];
    uint64_t token;
    (void)state;
    readers_hold(readers, FOR_LONG);
    token = token_of(readers[1]);
    owner_free(readers[1]);
    idle();
    SAME(need(RLOCK_OP_RELEASE)->token, token);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(asked(RLOCK_OP_RELEASE), 1);
    assert_true(rlock_is_held(readers[0]->lock));
    assert_true(rlock_is_held(readers[2]->lock));
}

static void free_others(struct owner *owner, const rlock_event *event) {
    struct owner **readers = (struct owner **)owner->context;
    int i;
    (void)event;
    for (i = 0; i < READERS; i++) {
        if (readers[i] != owner && readers[i]->lock != NULL) {
            owner_free(readers[i]);
        }
    }
}

/* All are lost in one dispatch; the first callback frees the others. */
static void holder_may_free_the_others_when_all_are_lost(void **state) {
    struct owner *readers[READERS];
    int i, told = 0;
    (void)state;
    readers_hold(readers, 1000);
    for (i = 0; i < READERS; i++) {
        readers[i]->react = free_others;
        readers[i]->context = readers;
    }
    run_ms(1000);
    for (i = 0; i < READERS; i++) {
        told += readers[i]->seen[RLOCK_LOST].count;
    }
    SAME(told, 1);
    scripted_settle(&g.store);
    SAME(stats().cleaning, 0);
}

static void shutdown_notifies_every_holder_and_every_one_in_line(void **state) {
    struct owner *readers[READERS], *waits;
    int i;
    (void)state;
    readers_hold(readers, FOR_LONG);
    waits = in_queue(RLOCK_KIND_READ, "key", RLOCK_FOREVER);
    SAME(owner_renew(readers[0], 0), RLOCK_OK);
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_OK);
    idle();
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(asked(RLOCK_OP_RELEASE), READERS + 1);
    for (i = 0; i < READERS; i++) {
        SAME(readers[i]->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    }
    scripted_settle(&g.store);
    SAME(g.done_status, RLOCK_OK);
    SAME(g.done_count, 1);
}

static void client_free_releases_every_hold_and_place_and_notifies_nobody(void **state) {
    struct owner *readers[READERS], *waits;
    uint64_t tokens[READERS + 1];
    int i;
    (void)state;
    readers_hold(readers, FOR_LONG);
    waits = in_queue(RLOCK_KIND_READ, "key", RLOCK_FOREVER);
    tokens[READERS] = token_of(waits);
    for (i = 0; i < READERS; i++) {
        tokens[i] = token_of(readers[i]);
    }
    free_client();
    for (i = 0; i <= READERS; i++) {
        assert_true(released(tokens[i]));
    }
    SAME(asked(RLOCK_OP_RELEASE), READERS + 1);
    SAME(waits->events, 0);
}

static void connection_that_comes_and_goes_with_many_holders_and_waiters(void **state) {
    struct owner *readers[READERS], *line[READERS];
    int i, before, looks;
    (void)state;
    for (i = 0; i < READERS; i++) { /* the first one has a watchdog */
        readers[i] = kind_holder(RLOCK_KIND_READ, "key", i == 0 ? 0 : 2900);
    }
    for (i = 0; i < READERS; i++) {
        line[i] = in_queue(RLOCK_KIND_READ, "key", i == 2 ? 700 : RLOCK_FOREVER);
    }
    SAME(owner_renew(readers[1], 0), RLOCK_OK);
    SAME(owner_renew(readers[2], 0), RLOCK_OK);
    idle();
    answer_to(readers[1], scripted_fault(RLOCK_FAULT_UNKNOWN, "gone"));
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "gone");
    scripted_pushing(&g.store, 0);
    SAME(readers[1]->seen[RLOCK_RENEWED].status, RLOCK_ERR_UNKNOWN);
    SAME(readers[2]->seen[RLOCK_RENEWED].status, RLOCK_ERR_CONN);
    for (i = 0; i < READERS; i++) {
        assert_true(rlock_is_held(readers[i]->lock));
        SAME(line[i]->events, 0);
        if (out_of(line[i]) != NULL) { /* it was not sent */
            answer_to(line[i], scripted_fault(RLOCK_FAULT_DOWN, "gone"));
        }
    }
    run_ms(701);
    SAME(line[2]->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    for (i = 0; i < 2; i++) {
        if (out_of(line[i]) != NULL) {
            answer_to(line[i], scripted_fault(RLOCK_FAULT_DOWN, "gone"));
        }
    }
    before = asked(RLOCK_OP_ACQUIRE);
    looks = asked((rlock_op)SCRIPTED_LOOK);
    scripted_up(&g.store);
    SAME(asked(RLOCK_OP_ACQUIRE), before + 2);
    SAME(out_of(readers[0])->lease_ms, WATCHDOG_MS);
    SAME(asked((rlock_op)SCRIPTED_LOOK), looks + 1); /* the third's renewal is in flight */
    run_ms(3000);
    for (i = 1; i < READERS; i++) {
        SAME(readers[i]->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    }
}

/* A renewal that is refused for good ends each hold by itself. */
static void refused_user_ends_every_waiter_of_the_line(void **state) {
    struct owner *line[3];
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        line[i] = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    }
    scripted_down(&g.store, RLOCK_FAULT_AUTH, "WRONGPASS");
    for (i = 0; i < 3; i++) {
        SAME(line[i]->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
        assert_string_equal(line[i]->seen[RLOCK_ACQUIRED].text, "WRONGPASS");
    }
    SAME(stats().waiting, 0);
}

/* ------------------------------------------------------------------------------------------------
 * Grants that come to nothing.
 */

/* The grant is too late for its local deadline, but the server has the hold: left there, it would
 * block others. */
static void late_grant_behind_the_first_is_asked_for_again_at_once(void **state) {
    struct owner *first = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    struct owner *late = kind_handle(RLOCK_KIND_FAIR, "key");
    uint64_t token;
    (void)state;
    SAME(owner_acquire(late, RLOCK_FOREVER, 100), RLOCK_OK);
    idle();
    token = token_of(late);
    run_ms(200);
    answer_to(late, scripted_done());
    SAME(late->events, 0);
    SAME(attempts_of(token), 2);
    assert_true((out_of(late)->flags & RLOCK_REQUEST_RETRY) != 0);
    answer_to(late, scripted_done());
    SAME(late->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(first->events, 0);
}

static void steal_second(struct owner *owner, const rlock_event *event) {
    struct owner *other = (struct owner *)owner->context;
    (void)event;
    virtual_stall(&g.loop, 200 * 1000);
    other->react = NULL;
}

/* Two grants come in one dispatch. The second expires while the first is reported: that waiter goes
 * to the front. */
static void grant_that_expires_before_its_callback_is_asked_for_again(void **state) {
    struct owner *slow = kind_handle(RLOCK_KIND_READ, "key"), *late, *line;
    uint64_t token;
    (void)state;
    late = kind_handle(RLOCK_KIND_READ, "key");
    line = kind_handle(RLOCK_KIND_READ, "key");
    slow->react = steal_second;
    slow->context = late;
    SAME(owner_acquire(slow, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
    SAME(owner_acquire(late, RLOCK_FOREVER, 100), RLOCK_OK);
    SAME(owner_acquire(line, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
    idle();
    token = token_of(late);
    answer_to(line, scripted_held(FOR_LONG));
    scripted_answer(&g.store, out_of(slow), scripted_done());
    scripted_answer(&g.store, out_of(late), scripted_done());
    idle();
    SAME(slow->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(late->events, 0);
    SAME(attempts_of(token), 2);
    answer_to(late, scripted_held(FOR_LONG));
    run_ms(HALF_A_TIMEOUT + 2);
    SAME(attempts_of(token), 3); /* it looks after the queue */
    answer_to(late, scripted_done());
    SAME(late->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

/* A forced release may be notified before the grant is answered. */
static void call_before_the_callback_of_a_grant_makes_it_look(void **state) {
    struct owner *owner = kind_handle(RLOCK_KIND_READ, "key");
    (void)state;
    g.store.checks_by_hand = true;
    SAME(owner_acquire(owner, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
    idle();
    call(owner);
    answer_to(owner, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(out_of(owner)->lease_ms, 0);
    answer_to(owner, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
}

static void nothing_is_handed_on_of_a_queued_kind(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        struct owner *holds = kind_holder(queued_kinds[i], "key", 10000);
        struct owner *waits = in_queue(queued_kinds[i], "key", RLOCK_FOREVER);
        uint64_t token = token_of(holds);
        SAME(owner_release(holds), RLOCK_OK);
        idle();
        assert_true(released(token));
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(holds->seen[RLOCK_RELEASED].status, RLOCK_OK);
        SAME(waits->events, 0); /* the server notifies it */
        SAME(attempts_of(token_of(waits)), 1);
        SAME(stats().handed_on, 0);
        anew();
    }
}

/* Makes a holder whose grant said that the next waiter is of this client too. */
static struct owner *holder_before_ours(rlock_kind kind, const char *key) {
    struct owner *owner = kind_handle(kind, key);
    rlock_answer granted = scripted_done();
    granted.ours = true;
    SAME(owner_acquire(owner, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
    idle();
    answer_to(owner, granted);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    return owner;
}

static void release_names_who_asks_right_behind_it(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        struct owner *holds = holder_before_ours(queued_kinds[i], "key");
        struct owner *first = in_queue(queued_kinds[i], "key", RLOCK_FOREVER);
        struct owner *second = in_queue(queued_kinds[i], "key", RLOCK_FOREVER);
        uint64_t token = token_of(first);
        size_t at = g.store.count;
        SAME(owner_release(holds), RLOCK_OK);
        SAME(g.store.count, at + 2);
        SAME(g.store.log[at].op, RLOCK_OP_RELEASE);
        SAME(g.store.log[at].next, token);
        SAME(g.store.log[at + 1].op, RLOCK_OP_ACQUIRE);
        SAME(g.store.log[at + 1].token, token);
        assert_true(g.store.log[at + 1].urgent); /* before others that join the queue */
        assert_true((g.store.log[at + 1].flags & RLOCK_REQUEST_RETRY) != 0);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_done());
        answer_to(first, scripted_done()); /* the next waiter is not ours */
        SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        at = g.store.count;
        SAME(owner_release(first), RLOCK_OK);
        SAME(g.store.count, at + 1);
        SAME(g.store.log[at].next, 0);
        SAME(attempts_of(token_of(second)), 1);
        anew();
    }
}

static void release_names_nobody_who_has_no_place_or_asks_just_now(void **state) {
    int way;
    (void)state;
    for (way = 0; way < 5; way++) {
        struct owner *holds = holder_before_ours(RLOCK_KIND_FAIR, "key"), *waits = NULL;
        size_t at;
        if (way == 4) {
            waits = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
            call(waits);
        } else if (way) {
            waits = kind_handle(RLOCK_KIND_FAIR, way == 1 ? "other" : "key");
            SAME(owner_acquire(waits, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
            idle();
        }
        if (way == 1) {
            answer_to(waits, scripted_held(FOR_LONG)); /* it waits for another key */
        } else if (way == 3) {
            answer_to(waits, scripted_fault(RLOCK_FAULT_BUSY, "LOADING")); /* not in the queue */
        }
        at = g.store.count;
        SAME(owner_release(holds), RLOCK_OK);
        SAME(g.store.count, at + 1);
        SAME(g.store.log[at].next, 0);
        anew();
    }
}

/* The waiter that was named has asked since, and may have left. */
static void release_that_is_sent_again_names_no_waiter(void **state) {
    struct owner *holds = holder_before_ours(RLOCK_KIND_FAIR, "key");
    struct owner *waits = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    size_t at = g.store.count;
    (void)state;
    SAME(owner_release(holds), RLOCK_OK);
    SAME(g.store.log[at].next, token_of(waits));
    idle();
    reply(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    answer_to(waits, scripted_held(FOR_LONG));
    at = g.store.count;
    (void)retried(RLOCK_OP_RELEASE);
    SAME(g.store.count, at + 1);
    SAME(g.store.log[at].next, 0);
}

/* Where nobody is notified, our own release is as good a reason to ask as a poll. */
static void own_release_makes_the_first_of_the_line_ask_where_nobody_is_called(void **state) {
    struct owner *holds, *first, *second;
    (void)state;
    scripted_pushing(&g.store, 0);
    holds = kind_holder(RLOCK_KIND_FAIR, "key", 10000);
    first = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    second = in_queue(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    SAME(owner_release(holds), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(attempts_of(token_of(first)), 2);
    SAME(attempts_of(token_of(second)), 1);
}

static void one_fence_is_asked_for_by_each_of_a_queued_kind(void **state) {
    rlock_options options;
    struct owner *owners[2];
    int i;
    (void)state;
    g.kind = RLOCK_KIND_FAIR;
    options = options_for("key");
    options.fencing = true;
    for (i = 0; i < 2; i++) {
        owners[i] = handle_with(&options);
        SAME(owner_acquire(owners[i], RLOCK_FOREVER, 1000), RLOCK_OK);
    }
    for (i = 0; i < 2; i++) {
        SAME(out_of(owners[i])->request->fences, 1);
    }
    answer_to(owners[0], scripted_fenced(7));
    SAME(rlock_fence(owners[0]->lock), 7);
}

/* ------------------------------------------------------------------------------------------------
 * A reader next to the writer of the same owner.
 */

static struct owner *owned(rlock_kind kind, const char *key, uint64_t owner) {
    rlock_options options;
    g.kind = kind;
    options = options_for(key);
    options.owner = owner;
    return handle_with(&options);
}

static uint64_t writer_of(struct owner *reader) {
    uint64_t beside;
    SAME(owner_acquire(reader, RLOCK_FOREVER, 1000), RLOCK_OK);
    beside = out_of(reader)->writer;
    SAME(owner_cancel(reader), RLOCK_OK);
    idle();
    return beside;
}

static void reader_names_the_writer_of_its_owner_while_that_holds(void **state) {
    struct owner *writer = owned(RLOCK_KIND_WRITE, "key", 7);
    struct owner *mine = owned(RLOCK_KIND_READ, "key", 7);
    struct owner *theirs = owned(RLOCK_KIND_READ, "key", 8);
    struct owner *nobodys = owned(RLOCK_KIND_READ, "key", 0);
    struct owner *elsewhere = owned(RLOCK_KIND_READ, "other", 7);
    (void)state;
    (void)kind_handle(RLOCK_KIND_MUTEX, "key");          /* a mutex has no owner to name */
    (void)kind_holder(RLOCK_KIND_READ, "key", FOR_LONG); /* must not hide the writer */
    SAME(writer_of(mine), 0);
    SAME(owner_acquire(writer, 0, FOR_LONG), RLOCK_OK);
    SAME(writer_of(mine), 0); /* it does not hold yet */
    answer_to(writer, scripted_done());
    SAME(writer_of(mine), token_of(writer));
    SAME(writer_of(theirs), 0);
    SAME(writer_of(nobodys), 0);
    SAME(writer_of(elsewhere), 0);
    SAME(owner_release(writer), RLOCK_OK);
    SAME(writer_of(mine), 0);
}

#if RLOCK__HAS_TOKENS
/* A request names a writer by its number alone, which is one of this client. */
static void reader_does_not_name_a_writer_that_another_client_began(void **state) {
    struct owner *writer = owned(RLOCK_KIND_WRITE, "key", 7);
    struct owner *mine = owned(RLOCK_KIND_READ, "key", 7);
    (void)state;
    SAME(rlock_adopt(writer->lock, "01234567-89ab-cdef-0123-456789abcdef:17:0", FOR_LONG,
                     owner_on_event, writer),
         RLOCK_OK);
    owner_asked(writer, RLOCK_OK, RLOCK_ACQUIRED);
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(writer->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(writer_of(mine), 0);
}
#endif

/* The server does not notify this reader, which is behind others: it must ask by itself. */
static void reader_in_line_asks_as_soon_as_its_writer_is_granted(void **state) {
    int is_out;
    (void)state;
    for (is_out = 0; is_out < 2; is_out++) {
        struct owner *first = in_queue(RLOCK_KIND_READ, "key", RLOCK_FOREVER);
        struct owner *writer = owned(RLOCK_KIND_WRITE, "key", 7);
        struct owner *theirs = owned(RLOCK_KIND_READ, "key", 8);
        struct owner *mine = owned(RLOCK_KIND_READ, "key", 7);
        SAME(owner_acquire(writer, RLOCK_FOREVER, 10000), RLOCK_OK);
        SAME(owner_acquire(theirs, RLOCK_FOREVER, 10000), RLOCK_OK);
        SAME(owner_acquire(mine, RLOCK_FOREVER, 10000), RLOCK_OK);
        idle();
        answer_to(theirs, scripted_held(FOR_LONG));
        if (!is_out) {
            answer_to(mine, scripted_held(FOR_LONG));
        }
        answer_to(writer, scripted_done());
        assert_true(rlock_is_held(writer->lock));
        if (is_out) {
            SAME(out_of(mine)->writer, 0);
            answer_to(mine, scripted_held(FOR_LONG));
        }
        assert_non_null(out_of(mine));
        assert_true(out_of(mine)->writer == token_of(writer));
        assert_true(out_of(mine)->urgent);
        assert_null(out_of(theirs));
        assert_null(out_of(first));
        answer_to(mine, scripted_done());
        assert_true(rlock_is_held(mine->lock));
        anew();
    }
}

#endif /* TESTS_UNIT_QUEUED_H */
