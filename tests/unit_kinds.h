/* unit_kinds.h - the queued kinds, several keys and questions: a part of unit.c
 *
 * The line of a queued kind stands at the server. What is proved here is what the core does about
 * it: each waiter asks for its place once, the first of them looks after it, and who is called asks
 * again.
 */

#define FOR_LONG 60000 /* ms: the lease of another, so that nobody looks because it is over */
#define HALF_A_TURN 500

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

/* The same once more, with a new client: its tokens count from 1 again. */
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

/* The request of a handle that is with the store, or NULL. */
static struct scripted_request *out_of(const struct owner *owner) {
    rlock__claim *claim = owner->lock->claim;
    return claim != NULL && claim->work != NULL ? scripted_find(&g.store, &claim->work->request)
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
    scripted_called(&g.store, rlock_key(owner->lock, NULL), token_of(owner));
}

/* Waits, and was told that others are before it: it stands in the line. */
static struct owner *in_line(rlock_kind kind, const char *key, int64_t wait_ms) {
    struct owner *owner = kind_handle(kind, key);
    SAME(owner_acquire(owner, wait_ms, FOR_LONG), RLOCK_OK);
    idle();
    answer_to(owner, scripted_held(FOR_LONG));
    SAME(owner->events, 0);
    assert_null(out_of(owner));
    return owner;
}

/* How often the token of a handle was asked for, in all. */
static int tries_of(uint64_t token) {
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
 * The line.
 */

static void test_each_waiter_of_a_queued_kind_asks_for_itself_at_once(void **state) {
    size_t i;
    int k;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        struct owner *owners[3];
        int before;
        (void)kind_holder(queued_kinds[i], "key", FOR_LONG); /* holds nobody back */
        before = asked(RLOCK_OP_ACQUIRE);
        for (k = 0; k < 3; k++) {
            owners[k] = kind_handle(queued_kinds[i], "key");
            SAME(owner_acquire(owners[k], RLOCK_FOREVER, 1000), RLOCK_OK);
        }
        SAME(asked(RLOCK_OP_ACQUIRE), before + 3);
        for (k = 0; k < 3; k++) {
            SAME(out_of(owners[k])->flags, 0);
        }
        answer_to(owners[1], scripted_done()); /* in the order of the server, not in ours */
        SAME(owners[1]->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        SAME(owners[0]->events + owners[2]->events, 0);
        anew();
    }
}

static void test_single_try_of_a_queued_kind_asks_the_server_not_to_stand_in_line(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        struct owner *holds = kind_holder(queued_kinds[i], "key", FOR_LONG);
        struct owner *waits = in_line(queued_kinds[i], "key", RLOCK_FOREVER);
        struct owner *once = kind_handle(queued_kinds[i], "key"); /* no short cut past the server */
        uint64_t token;
        SAME(owner_acquire(once, 0, 1000), RLOCK_OK);
        idle();
        SAME(once->events, 0);
        SAME(out_of(once)->flags, RLOCK_REQUEST_ONCE);
        token = token_of(once);
        answer_to(once, scripted_held(1234));
        SAME(once->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
        SAME(once->seen[RLOCK_ACQUIRED].remaining_ms, 1234);
        assert_false(released(token)); /* it stands in no line */
        SAME(owner_acquire(once, 0, 1000), RLOCK_OK);
        idle();
        answer_to(once, scripted_done());
        SAME(once->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        assert_true(rlock_is_held(holds->lock));
        SAME(waits->events, 0);
        anew();
    }
}

/* Refused, it keeps its place: whichever way it ends, the server has to be told. */
static void test_who_leaves_the_line_is_taken_out_of_it(void **state) {
    int way;
    (void)state;
    for (way = 0; way < 5; way++) {
        struct owner *first = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
        struct owner *leaves = in_line(RLOCK_KIND_FAIR, "key", way == 1 ? 400 : RLOCK_FOREVER);
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

/* Its try was never sent: there is nothing to take out. */
static void test_who_never_came_into_the_line_need_not_be_taken_out(void **state) {
    struct owner *owner = kind_handle(RLOCK_KIND_FAIR, "key");
    (void)state;
    g.store.unsent = true;
    SAME(owner_acquire(owner, 100, 1000), RLOCK_OK);
    run_ms(102);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    SAME(asked(RLOCK_OP_RELEASE), 0);
}

/* ... and nobody to be called the holder: of who tries once, and of who waits, behind one more. */
static void test_who_never_came_into_the_line_is_not_told_that_another_has_it(void **state) {
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

static void test_who_is_called_asks_again_with_its_token(void **state) {
    struct owner *first = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    struct owner *called = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
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

/* The answer may be older than the call. */
static void test_who_is_called_while_its_try_is_out_asks_once_more(void **state) {
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

static void test_call_of_nobody_is_ignored(void **state) {
    struct owner *waits = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    struct owner *other = in_line(RLOCK_KIND_FAIR, "other", RLOCK_FOREVER);
    struct owner *mutex;
    int before;
    (void)state;
    mutex = kind_handle(RLOCK_KIND_MUTEX, "mutex");
    SAME(owner_acquire(mutex, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
    idle();
    answer_to(mutex, scripted_held(FOR_LONG));
    answer_to(mutex, scripted_held(FOR_LONG));
    before = asked(RLOCK_OP_ACQUIRE);
    scripted_called(&g.store, "key", 4711);
    scripted_called(&g.store, "key", token_of(other)); /* of another key */
    scripted_called(&g.store, "nobody's", token_of(waits));
    scripted_called(&g.store, "mutex", token_of(mutex));
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    SAME(owner_cancel(waits), RLOCK_OK);
    scripted_called(&g.store, "key", g.store.log[0].token);
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    SAME(stats().woken, 5);
}

static void test_holder_who_is_called_looks(void **state) {
    static const rlock_outcome ends[] = {RLOCK_OUTCOME_DONE, RLOCK_OUTCOME_GONE};
    size_t i, end;
    (void)state;
    g.store.looks_by_hand = true;
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
 * Who looks after the line.
 */

static void test_first_of_the_line_looks_again_after_half_a_turn(void **state) {
    struct owner *line[3];
    uint64_t tokens[3];
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        line[i] = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
        tokens[i] = token_of(line[i]);
    }
    run_ms(HALF_A_TURN - 1);
    SAME(asked(RLOCK_OP_ACQUIRE), 3);
    run_ms(3);
    SAME(tries_of(tokens[0]), 2);
    assert_true((out_of(line[0])->flags & RLOCK_REQUEST_RETRY) != 0);
    SAME(asked(RLOCK_OP_ACQUIRE), 4);
    answer_to(line[0], scripted_held(70)); /* when the next lease is over */
    run_ms(60);
    SAME(tries_of(tokens[0]), 2);
    run_ms(12);
    SAME(tries_of(tokens[0]), 3);
    answer_to(line[0], scripted_held(-1));
    run_ms(HALF_A_TURN + 2);
    SAME(tries_of(tokens[0]), 4);
    SAME(tries_of(tokens[1]), 1);
    SAME(tries_of(tokens[2]), 1);
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

static void test_next_of_the_line_takes_over_the_looking(void **state) {
    int way, late;
    (void)state;
    for (way = 0; way < 5; way++) {
        for (late = 0; late < 2; late++) {
            struct owner *first = in_line(RLOCK_KIND_FAIR, "key", way == 2 ? 600 : RLOCK_FOREVER);
            struct owner *next = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
            struct owner *last = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
            uint64_t tokens[2];
            tokens[0] = token_of(next);
            tokens[1] = token_of(last);
            if (late && way < 3) { /* its look is out, and no timer runs */
                run_ms(HALF_A_TURN + 2);
                assert_non_null(out_of(first));
            }
            leave_first(first, way);
            run_ms(HALF_A_TURN + 2);
            SAME(tries_of(tokens[0]), 2);
            SAME(tries_of(tokens[1]), 1);
            answer_to(next, scripted_held(FOR_LONG));
            run_ms(HALF_A_TURN + 2);
            SAME(tries_of(tokens[0]), 3);
            anew();
        }
    }
}

/* Who is granted behind the first leaves the first its turn to look. */
static void test_grant_behind_the_first_changes_nothing_for_it(void **state) {
    struct owner *first = in_line(RLOCK_KIND_SEMAPHORE, "key", RLOCK_FOREVER);
    struct owner *second = in_line(RLOCK_KIND_SEMAPHORE, "key", RLOCK_FOREVER);
    uint64_t token = token_of(first);
    (void)state;
    run_ms(300);
    call(second);
    answer_to(second, scripted_done());
    SAME(tries_of(token), 1);
    run_ms(202);
    SAME(tries_of(token), 2);
}

static void test_waiter_whose_try_failed_is_asked_for_again_wherever_it_stands(void **state) {
    static const rlock_fault faults[] = {RLOCK_FAULT_DOWN, RLOCK_FAULT_UNKNOWN, RLOCK_FAULT_BUSY};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct owner *first = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
        struct owner *fails = kind_handle(RLOCK_KIND_FAIR, "key");
        uint64_t token;
        SAME(owner_acquire(fails, RLOCK_FOREVER, 1000), RLOCK_OK);
        idle();
        token = token_of(fails);
        answer_to(fails, scripted_fault(faults[i], "words"));
        SAME(tries_of(token), 1);
        run_ms(HALF_A_TURN + 2);
        SAME(tries_of(token), 2);
        answer_to(fails, scripted_held(FOR_LONG));
        assert_non_null(out_of(first));
        answer_to(first, scripted_held(FOR_LONG));
        call(fails); /* now it has a turn that it must not let pass */
        answer_to(fails, scripted_fault(faults[i], "words"));
        SAME(tries_of(token), 3);
        run_ms(HALF_A_TURN + 2);
        SAME(tries_of(token), 4);
        answer_to(fails, scripted_done());
        SAME(fails->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        anew();
    }
}

/* ------------------------------------------------------------------------------------------------
 * Without calls.
 */

static void test_first_of_the_line_polls_where_nobody_is_called(void **state) {
    struct owner *first, *second;
    int tries;
    (void)state;
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    first = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    second = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    always(RLOCK_OP_ACQUIRE, scripted_held(FOR_LONG));
    run_ms(1000);
    tries = tries_of(token_of(first));
    BETWEEN(tries, 5, 16);
    SAME(tries_of(token_of(second)), 1);
}

/* A place in line is good for one turn from the offer on, however seldom others are to be asked. */
static void test_first_of_the_line_polls_twice_a_turn_at_least(void **state) {
    struct owner *first;
    int tries;
    (void)state;
    free_client();
    g.config.poll_ms = 3600000;
    start();
    scripted_pushing(&g.store, 0);
    first = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    always(RLOCK_OP_ACQUIRE, scripted_held(FOR_LONG));
    run_ms(5000);
    tries = tries_of(token_of(first));
    BETWEEN(tries, 9, 20);
}

/* Whether it can be called is noted in its place; and the last call may have been lost. */
static void test_all_in_line_ask_when_calls_begin_or_end(void **state) {
    static const unsigned changes[] = {0, RLOCK_PUSH_CALLS, RLOCK_PUSH_CHANGES,
                                       RLOCK_PUSH_CHANGES | RLOCK_PUSH_CALLS};
    struct owner *line[3];
    size_t n;
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        line[i] = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
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
    scripted_pushing(&g.store, RLOCK_PUSH_CALLS); /* changes are not what they wait for */
    SAME(asked(RLOCK_OP_ACQUIRE), i);
}

/* It was asked for as one that cannot be called, and would never be. */
static void test_try_that_was_out_when_calls_began_is_asked_for_once_more(void **state) {
    struct owner *line[2];
    int i, watched;
    (void)state;
    for (watched = 0; watched < 2; watched++) {
        anew();
        scripted_pushing(&g.store, 0);
        if (watched) {
            (void)in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
        }
        for (i = 0; i < 2; i++) {
            line[i] = kind_handle(RLOCK_KIND_FAIR, "key");
            SAME(owner_acquire(line[i], RLOCK_FOREVER, 1000), RLOCK_OK);
        }
        idle();
        scripted_pushing(&g.store, RLOCK_PUSH_CALLS);
        for (i = 0; i < 2; i++) {
            SAME(tries_of(token_of(line[i])), 1);
            answer_to(line[i], scripted_held(FOR_LONG));
            SAME(tries_of(token_of(line[i])), 2);
            answer_to(line[i], scripted_held(FOR_LONG));
            SAME(tries_of(token_of(line[i])), 2);
        }
    }
}

static void test_changes_wake_no_one_in_line_and_any_change_all(void **state) {
    struct owner *line[2];
    int i, before;
    (void)state;
    for (i = 0; i < 2; i++) {
        line[i] = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    }
    before = asked(RLOCK_OP_ACQUIRE);
    scripted_woken(&g.store, "key");
    SAME(asked(RLOCK_OP_ACQUIRE), before);
    scripted_woken(&g.store, NULL);
    SAME(asked(RLOCK_OP_ACQUIRE), before + 2);
    scripted_woken(&g.store, NULL); /* their answers may be older */
    for (i = 0; i < 2; i++) {
        answer_to(line[i], scripted_held(FOR_LONG));
    }
    SAME(asked(RLOCK_OP_ACQUIRE), before + 4);
}

/* Of who holds alone a change can only be the loss; who shares is not asked at each that comes. */
static void test_change_makes_look_who_holds_alone_and_no_one_who_shares(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        bool alone = queued_kinds[i] == RLOCK_KIND_FAIR || queued_kinds[i] == RLOCK_KIND_WRITE;
        struct owner *owner = kind_holder(queued_kinds[i], "key", FOR_LONG);
        int looks = asked((rlock_op)SCRIPTED_LOOK);
        run_ms(200); /* registered, by a look */
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

/* Where changes are told and calls are not: it learns from nothing else that it was taken away. */
static void test_who_shares_and_cannot_be_called_is_registered_by_a_look(void **state) {
    (void)state;
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    kind_holder(RLOCK_KIND_READ, "key", FOR_LONG);
    run_ms(200);
    SAME(asked((rlock_op)SCRIPTED_LOOK), 1);
}

/* Of one permit there may be more by now. */
static void
test_change_makes_no_holder_of_a_semaphore_look_however_few_permits_it_has(void **state) {
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
    call(owner); /* taken away by force */
    SAME(asked((rlock_op)SCRIPTED_LOOK), 1);
}

/* ------------------------------------------------------------------------------------------------
 * Several that hold.
 */

#define READERS 3

static void readers_hold(struct owner *readers[READERS], int64_t lease_ms) {
    int i;
    for (i = 0; i < READERS; i++) {
        readers[i] = kind_holder(RLOCK_KIND_READ, "key", lease_ms);
    }
    SAME(stats().held, READERS);
}

static void test_holders_of_one_key_are_lost_renewed_and_released_one_by_one(void **state) {
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

static void test_freed_holder_leaves_the_others_theirs(void **state) {
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

/* All are lost in one entry; the first that is told frees the others. */
static void test_holder_may_free_the_others_when_all_are_lost(void **state) {
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

static void test_shutdown_tells_every_holder_and_every_one_in_line(void **state) {
    struct owner *readers[READERS], *waits;
    int i;
    (void)state;
    readers_hold(readers, FOR_LONG);
    waits = in_line(RLOCK_KIND_READ, "key", RLOCK_FOREVER);
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

static void test_client_free_releases_every_hold_and_place_and_tells_nobody(void **state) {
    struct owner *readers[READERS], *waits;
    uint64_t tokens[READERS + 1];
    int i;
    (void)state;
    readers_hold(readers, FOR_LONG);
    waits = in_line(RLOCK_KIND_READ, "key", RLOCK_FOREVER);
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

static void test_connection_that_comes_and_goes_with_many_holders_and_waiters(void **state) {
    struct owner *readers[READERS], *line[READERS];
    int i, before, looks;
    (void)state;
    for (i = 0; i < READERS; i++) { /* one with a watchdog */
        readers[i] = kind_holder(RLOCK_KIND_READ, "key", i == 0 ? 0 : 2900);
    }
    for (i = 0; i < READERS; i++) {
        line[i] = in_line(RLOCK_KIND_READ, "key", i == 2 ? 700 : RLOCK_FOREVER);
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
        if (out_of(line[i]) != NULL) { /* could not be sent */
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
    SAME(asked((rlock_op)SCRIPTED_LOOK), looks + 1); /* the renewal of the third is out still */
    run_ms(3000);
    for (i = 1; i < READERS; i++) {
        SAME(readers[i]->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    }
}

/* A renewal that is refused for good tells each holder for itself. */
static void test_refused_user_ends_every_waiter_of_the_line(void **state) {
    struct owner *line[3];
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        line[i] = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
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

/* Too late for its local deadline, but a hold at the server: who let it lie would block others. */
static void test_late_grant_behind_the_first_is_asked_for_again_at_once(void **state) {
    struct owner *first = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    struct owner *late = kind_handle(RLOCK_KIND_FAIR, "key");
    uint64_t token;
    (void)state;
    SAME(owner_acquire(late, RLOCK_FOREVER, 100), RLOCK_OK);
    idle();
    token = token_of(late);
    run_ms(200);
    answer_to(late, scripted_done());
    SAME(late->events, 0);
    SAME(tries_of(token), 2);
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

/* Two grants in one entry, the second expires while the first is told: it goes to the front. */
static void test_grant_that_expires_before_it_is_told_is_asked_for_again(void **state) {
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
    SAME(tries_of(token), 2);
    answer_to(late, scripted_held(FOR_LONG));
    run_ms(HALF_A_TURN + 2);
    SAME(tries_of(token), 3); /* it looks after the line */
    answer_to(late, scripted_done());
    SAME(late->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

/* A hold may be taken away, with a call, before its grant is heard of. */
static void test_call_before_the_grant_is_told_makes_it_look(void **state) {
    struct owner *owner = kind_handle(RLOCK_KIND_READ, "key");
    (void)state;
    g.store.looks_by_hand = true;
    SAME(owner_acquire(owner, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
    idle();
    call(owner);
    answer_to(owner, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(out_of(owner)->lease_ms, 0);
    answer_to(owner, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
}

static void test_nothing_is_handed_on_of_a_queued_kind(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        struct owner *holds = kind_holder(queued_kinds[i], "key", 10000);
        struct owner *waits = in_line(queued_kinds[i], "key", RLOCK_FOREVER);
        uint64_t token = token_of(holds);
        SAME(owner_release(holds), RLOCK_OK);
        idle();
        assert_true(released(token));
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(holds->seen[RLOCK_RELEASED].status, RLOCK_OK);
        SAME(waits->events, 0); /* the server calls it */
        SAME(tries_of(token_of(waits)), 1);
        SAME(stats().handed_on, 0);
        anew();
    }
}

/* Holds, and heard that the next in line is of this client too. */
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

static void test_release_names_who_asks_right_behind_it(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < QUEUED_KINDS; i++) {
        struct owner *holds = holder_before_ours(queued_kinds[i], "key");
        struct owner *first = in_line(queued_kinds[i], "key", RLOCK_FOREVER);
        struct owner *second = in_line(queued_kinds[i], "key", RLOCK_FOREVER);
        uint64_t token = token_of(first);
        size_t at = g.store.count;
        SAME(owner_release(holds), RLOCK_OK);
        SAME(g.store.count, at + 2);
        SAME(g.store.log[at].op, RLOCK_OP_RELEASE);
        SAME(g.store.log[at].next, token);
        SAME(g.store.log[at + 1].op, RLOCK_OP_ACQUIRE);
        SAME(g.store.log[at + 1].token, token);
        assert_true(g.store.log[at + 1].urgent); /* before others that join the line */
        assert_true((g.store.log[at + 1].flags & RLOCK_REQUEST_RETRY) != 0);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_done());
        answer_to(first, scripted_done()); /* and nothing of ours is behind it */
        SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        at = g.store.count;
        SAME(owner_release(first), RLOCK_OK);
        SAME(g.store.count, at + 1);
        SAME(g.store.log[at].next, 0);
        SAME(tries_of(token_of(second)), 1);
        anew();
    }
}

static void test_release_names_nobody_who_has_no_place_or_asks_just_now(void **state) {
    int way;
    (void)state;
    for (way = 0; way < 5; way++) {
        struct owner *holds = holder_before_ours(RLOCK_KIND_FAIR, "key"), *waits = NULL;
        size_t at;
        if (way == 4) {
            waits = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
            call(waits);
        } else if (way) {
            waits = kind_handle(RLOCK_KIND_FAIR, way == 1 ? "other" : "key");
            SAME(owner_acquire(waits, RLOCK_FOREVER, FOR_LONG), RLOCK_OK);
            idle();
        }
        if (way == 1) {
            answer_to(waits, scripted_held(FOR_LONG)); /* it waits for another key */
        } else if (way == 3) {
            answer_to(waits, scripted_fault(RLOCK_FAULT_BUSY, "LOADING")); /* it has no place */
        }
        at = g.store.count;
        SAME(owner_release(holds), RLOCK_OK);
        SAME(g.store.count, at + 1);
        SAME(g.store.log[at].next, 0);
        anew();
    }
}

/* The one that was named has asked long since, and may have left. */
static void test_release_that_is_sent_again_names_nobody(void **state) {
    struct owner *holds = holder_before_ours(RLOCK_KIND_FAIR, "key");
    struct owner *waits = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
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

/* Where nobody is called, our own release is as good as a poll. */
static void test_own_release_makes_the_first_of_the_line_ask_where_nobody_is_called(void **state) {
    struct owner *holds, *first, *second;
    (void)state;
    scripted_pushing(&g.store, 0);
    holds = kind_holder(RLOCK_KIND_FAIR, "key", 10000);
    first = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    second = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    SAME(owner_release(holds), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(tries_of(token_of(first)), 2);
    SAME(tries_of(token_of(second)), 1);
}

static void test_one_fence_is_asked_for_by_each_of_a_queued_kind(void **state) {
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
 * A reader beside the writer of the same owner.
 */

static struct owner *owned(rlock_kind kind, const char *key, uint64_t owner) {
    rlock_options options;
    g.kind = kind;
    options = options_for(key);
    options.owner = owner;
    return handle_with(&options);
}

static uint64_t beside_of(struct owner *reader) {
    uint64_t beside;
    SAME(owner_acquire(reader, RLOCK_FOREVER, 1000), RLOCK_OK);
    beside = out_of(reader)->beside;
    SAME(owner_cancel(reader), RLOCK_OK);
    idle();
    return beside;
}

static void test_reader_names_the_writer_of_its_owner_while_that_holds(void **state) {
    struct owner *writer = owned(RLOCK_KIND_WRITE, "key", 7);
    struct owner *mine = owned(RLOCK_KIND_READ, "key", 7);
    struct owner *theirs = owned(RLOCK_KIND_READ, "key", 8);
    struct owner *nobodys = owned(RLOCK_KIND_READ, "key", 0);
    struct owner *elsewhere = owned(RLOCK_KIND_READ, "other", 7);
    (void)state;
    (void)kind_handle(RLOCK_KIND_MUTEX, "key");          /* which has no owner to name */
    (void)kind_holder(RLOCK_KIND_READ, "key", FOR_LONG); /* and does not hide who has */
    SAME(beside_of(mine), 0);
    SAME(owner_acquire(writer, 0, FOR_LONG), RLOCK_OK);
    SAME(beside_of(mine), 0); /* it does not hold yet */
    answer_to(writer, scripted_done());
    SAME(beside_of(mine), token_of(writer));
    SAME(beside_of(theirs), 0);
    SAME(beside_of(nobodys), 0);
    SAME(beside_of(elsewhere), 0);
    SAME(owner_release(writer), RLOCK_OK);
    SAME(beside_of(mine), 0);
}

/* Nobody calls it: it stands behind others at the server, who does not know what it may. */
static void test_reader_in_line_asks_as_soon_as_its_writer_is_granted(void **state) {
    int is_out;
    (void)state;
    for (is_out = 0; is_out < 2; is_out++) {
        struct owner *first = in_line(RLOCK_KIND_READ, "key", RLOCK_FOREVER);
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
            SAME(out_of(mine)->beside, 0);
            answer_to(mine, scripted_held(FOR_LONG));
        }
        assert_non_null(out_of(mine));
        assert_true(out_of(mine)->beside == token_of(writer));
        assert_true(out_of(mine)->urgent);
        assert_null(out_of(theirs));
        assert_null(out_of(first));
        answer_to(mine, scripted_done());
        assert_true(rlock_is_held(mine->lock));
        anew();
    }
}

/* ------------------------------------------------------------------------------------------------
 * Gates: what a key is wanted as.
 */

static struct owner *of_keys(const char *a, const char *b, const char *c) {
    const char *keys[3];
    rlock_options options;
    keys[0] = a, keys[1] = b, keys[2] = c;
    g.kind = RLOCK_KIND_MUTEX;
    options = options_for(NULL);
    options.keys = keys;
    options.key_count = c != NULL ? 3 : b != NULL ? 2 : 1;
    return handle_with(&options);
}

static struct owner *weighs(uint32_t permits, uint32_t weight) {
    rlock_options options;
    g.kind = RLOCK_KIND_SEMAPHORE;
    options = options_for("key");
    options.permits = permits;
    options.weight = weight;
    return handle_with(&options);
}

/* Owners and weights are the handles'; readers and writers stand in one line. */
static void test_same_key_is_another_gate_only_where_the_server_has_another_line(void **state) {
    struct owner *handles[10];
    int i, k, n = 0;
    (void)state;
    handles[n++] = kind_handle(RLOCK_KIND_MUTEX, "key");
    handles[n++] = kind_handle(RLOCK_KIND_FAIR, "key");
    handles[n++] = kind_handle(RLOCK_KIND_READ, "key");
    handles[n++] = weighs(3, 1);
    handles[n++] = weighs(4, 1);
    handles[n++] = of_keys("key", "b", NULL);
    handles[n++] = of_keys("b", "key", NULL);
    handles[n++] = of_keys("key", "b", "c");
    handles[n++] = of_keys("key", "bb", NULL);
    handles[n++] = of_keys("key", "d", NULL);
    for (i = 0; i < n; i++) {
        for (k = 0; k < i; k++) {
            assert_true(handles[i]->lock->gate != handles[k]->lock->gate);
        }
    }
    assert_ptr_equal(of_keys("key", NULL, NULL)->lock->gate, handles[0]->lock->gate);
    assert_ptr_equal(kind_handle(RLOCK_KIND_WRITE, "key")->lock->gate, handles[2]->lock->gate);
    assert_ptr_equal(owned(RLOCK_KIND_READ, "key", 7)->lock->gate, handles[2]->lock->gate);
    assert_ptr_equal(owned(RLOCK_KIND_WRITE, "key", 8)->lock->gate, handles[2]->lock->gate);
    assert_ptr_equal(weighs(3, 0)->lock->gate, handles[3]->lock->gate);
    assert_ptr_equal(weighs(3, 2)->lock->gate, handles[3]->lock->gate);
    assert_ptr_equal(of_keys("key", "b", "c")->lock->gate, handles[7]->lock->gate);
}

/* However many owners and weights wait, one of them looks after the line. */
static void test_waiters_with_an_owner_or_a_weight_of_their_own_cost_what_one_does(void **state) {
    enum { MANY_OWNERS = 100 };
    int kind, i, before;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        struct owner *owners[MANY_OWNERS];
        for (i = 0; i < MANY_OWNERS; i++) {
            owners[i] = kind == 0 ? owned(RLOCK_KIND_READ, "key", (uint64_t)i + 1)
                                  : weighs(1000, (uint32_t)i + 1);
            SAME(owner_acquire(owners[i], RLOCK_FOREVER, 1000), RLOCK_OK);
            idle();
            answer_to(owners[i], scripted_held(FOR_LONG));
        }
        SAME(g.client->gates.count, 1);
        always(RLOCK_OP_ACQUIRE, scripted_held(FOR_LONG));
        before = asked(RLOCK_OP_ACQUIRE);
        run_ms(5000);
        BETWEEN(asked(RLOCK_OP_ACQUIRE) - before, 9, 10);
        g.store.automatic[RLOCK_OP_ACQUIRE] = false;
        for (i = 0; i < MANY_OWNERS; i++) {
            owner_free(owners[i]);
        }
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        SAME(g.client->gates.count, 0);
        g.loop.owned = 0;
        anew();
    }
}

/* What is cleaned up behind a handle is told to the server as what it was asked for. */
static void test_place_of_a_freed_handle_is_given_back_by_its_weight(void **state) {
    struct owner *first = weighs(10, 1), *heavy = weighs(10, 7);
    (void)state;
    SAME(owner_acquire(first, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(heavy, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    answer_to(heavy, scripted_held(FOR_LONG));
    owner_free(heavy);
    (void)weighs(10, 3);
    SAME(need(RLOCK_OP_RELEASE)->request->terms->weight, 7);
    answer_to(first, scripted_done());
    assert_true(rlock_is_held(first->lock));
}

/* The number of permits was lowered: who is too heavy for it has lost its place in the line, and
 * the first that is not must not miss its turn where nobody is called. */
static void test_heavy_first_of_the_line_does_not_look_for_who_is_lighter(void **state) {
    static const uint32_t weights[] = {5, 7, 5, 2, 3, 2, 1};
    static const bool looks[] = {true, false, false, true, false, false, true};
    struct owner *line[7];
    int i;
    (void)state;
    scripted_pushing(&g.store, 0);
    for (i = 0; i < 7; i++) {
        line[i] = weighs(10, weights[i]);
        SAME(owner_acquire(line[i], RLOCK_FOREVER, 1000), RLOCK_OK);
        idle();
        answer_to(line[i], scripted_held(FOR_LONG));
    }
    run_ms(HALF_A_TURN + 2);
    for (i = 0; i < 7; i++) {
        SAME(out_of(line[i]) != NULL, looks[i]);
    }
}

static void test_gates_of_one_key_may_be_freed_in_any_order(void **state) {
    uint64_t seed;
    (void)state;
    for (seed = 1; seed < 60; seed++) {
        struct owner *handles[8];
        uint64_t dice = seed;
        int left = 8;
        handles[0] = kind_handle(RLOCK_KIND_MUTEX, "a");
        handles[1] = kind_handle(RLOCK_KIND_FAIR, "b");
        handles[2] = kind_handle(RLOCK_KIND_MUTEX, "c");
        handles[3] = of_keys("a", "b", "c");
        handles[4] = of_keys("c", "a", NULL);
        handles[5] = of_keys("b", "c", NULL);
        handles[6] = of_keys("c", "b", "a");
        handles[7] = kind_handle(RLOCK_KIND_READ, "a");
        while (left > 0) {
            int which = (int)(virtual_random(&dice) % (uint32_t)left);
            scripted_woken(&g.store, "a");
            scripted_woken(&g.store, "c");
            owner_free(handles[which]);
            handles[which] = handles[--left];
        }
        SAME(g.client->gates.count, 0);
        g.loop.owned = 0;
    }
}

static void test_many_keys_of_many_sets_are_found_when_the_table_grows(void **state) {
    static char keys_of[120][12];
    const char *keys[3];
    rlock_options options = options_for(NULL);
    int i;
    (void)state;
    options.keys = keys;
    options.key_count = 3;
    for (i = 0; i < 120; i++) {
        snprintf(keys_of[i], sizeof keys_of[i], "%d", i);
    }
    for (i = 0; i < 100; i++) {
        keys[0] = keys_of[i];
        keys[1] = keys_of[(i + 7) % 120];
        keys[2] = keys_of[119 - i == i || 119 - i == (i + 7) % 120 ? (i + 20) % 120 : 119 - i];
        (void)handle_with(&options);
    }
    SAME(g.client->gates.count, 300);
    for (i = 0; i < 100; i++) {
        owner_free(&g.loop.owners[(i * 37) % 100]);
    }
    SAME(g.client->gates.count, 0);
    scripted_woken(&g.store, "7");
    scripted_woken(&g.store, NULL);
}

static struct owner *sleeps_for(struct owner *owner) {
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    while (out_of(owner) != NULL) { /* once more behind its registering */
        answer_to(owner, scripted_held(FOR_LONG));
    }
    return owner;
}

/* These pairs have one hash; of the first the lengths are the same as well. */
static void test_change_of_a_key_wakes_nobody_whose_key_has_the_same_hash(void **state) {
    int i;
    (void)state;
    for (i = 0; i < VIRTUAL_TWINS; i++) {
        struct virtual_twins twins = virtual_twins(&g.client->gates);
        struct owner *other = sleeps_for(kind_handle(RLOCK_KIND_MUTEX, twins.keys[i ^ 1]));
        struct owner *waits = sleeps_for(kind_handle(RLOCK_KIND_MUTEX, twins.keys[i]));
        scripted_woken(&g.store, twins.keys[i]);
        assert_non_null(out_of(waits));
        assert_null(out_of(other));
        anew();
    }
}

static void test_each_key_of_a_set_wakes_who_waits_for_it(void **state) {
    static const char *const keys[] = {"b", "a", "c"};
    struct owner *set = sleeps_for(of_keys("a", "b", "c"));
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        int before = asked(RLOCK_OP_ACQUIRE);
        assert_true(scripted_watches(&g.store, keys[i]));
        scripted_woken(&g.store, "d");
        SAME(asked(RLOCK_OP_ACQUIRE), before);
        scripted_woken(&g.store, keys[i]);
        SAME(asked(RLOCK_OP_ACQUIRE), before + 1);
        answer_to(set, scripted_held(FOR_LONG));
    }
    SAME(owner_cancel(set), RLOCK_OK);
    scripted_settle(&g.store);
    run_ms(100);
    SAME(scripted_watching(&g.store), 0);
}

static void test_each_key_of_a_set_makes_its_holder_look(void **state) {
    static const char *const keys[] = {"a", "b", "c"};
    struct owner *set = of_keys("a", "b", "c");
    int i, looks;
    (void)state;
    grant(set, FOR_LONG);
    run_ms(200);
    for (i = 0; i < 3; i++) {
        looks = asked((rlock_op)SCRIPTED_LOOK);
        scripted_woken(&g.store, keys[i]);
        SAME(asked((rlock_op)SCRIPTED_LOOK), looks + 1);
    }
    g.store.looks_by_hand = true;
    scripted_woken(&g.store, "b");
    answer_to(set, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(set->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
    SAME(asked(RLOCK_OP_RELEASE), 1); /* the others are at the server still */
}

/* What was lost is gone from the server; of a set the other keys are not. */
static void test_set_that_loses_a_key_lets_the_others_go_and_a_single_one_nothing(void **state) {
    static const rlock_outcome ends[] = {RLOCK_OUTCOME_GONE, RLOCK_OUTCOME_STOLEN};
    static const rlock_reason reasons[] = {RLOCK_REASON_DELETED, RLOCK_REASON_STOLEN};
    int end, several;
    (void)state;
    for (end = 0; end < 2; end++) {
        for (several = 0; several < 2; several++) {
            struct owner *owner =
                several ? of_keys("a", "b", "c") : kind_handle(RLOCK_KIND_MUTEX, "a");
            grant(owner, FOR_LONG);
            SAME(owner_renew(owner, 0), RLOCK_OK);
            answer_to(owner, scripted_plain(ends[end]));
            SAME(owner->seen[RLOCK_LOST].reason, reasons[end]);
            SAME(asked(RLOCK_OP_RELEASE), several);
            SAME(stats().cleaning, several);
            anew();
        }
    }
}

/* Nobody tells us of our own releases: they wake our own waiters, whatever these want it as. */
static void test_release_of_a_set_wakes_who_waits_for_one_of_its_keys_and_back(void **state) {
    int way;
    (void)state;
    for (way = 0; way < 3; way++) {
        struct owner *set = of_keys("a", "b", "c"), *waits, *stranger;
        struct owner *holds = way == 0   ? set
                              : way == 1 ? kind_handle(RLOCK_KIND_MUTEX, "b")
                                         : of_keys("x", "c", NULL);
        int before;
        grant(holds, FOR_LONG);
        waits = sleeps_for(way == 0 ? kind_handle(RLOCK_KIND_MUTEX, "c") : set);
        stranger = sleeps_for(kind_handle(RLOCK_KIND_MUTEX, "d"));
        before = tries_of(token_of(waits));
        SAME(owner_release(holds), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(tries_of(token_of(waits)), before + 1);
        assert_null(out_of(stranger));
        anew();
    }
}

/* Two gates watch one key: who lets go first does not make the other deaf. */
static void test_key_is_watched_until_no_gate_of_it_wants_to_know(void **state) {
    int way;
    (void)state;
    for (way = 0; way < 2; way++) {
        struct owner *set = sleeps_for(of_keys("a", "b", "c"));
        struct owner *single = sleeps_for(kind_handle(RLOCK_KIND_MUTEX, "b"));
        struct owner *leaves = way == 0 ? set : single, *stays = way == 0 ? single : set;
        SAME(owner_cancel(leaves), RLOCK_OK);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        assert_true(scripted_watches(&g.store, "b"));
        SAME(scripted_watches(&g.store, "a"), way == 1);
        sleeps_for(leaves); /* and is watched again */
        SAME(scripted_watching(&g.store), 3);
        SAME(owner_cancel(leaves), RLOCK_OK);
        SAME(owner_cancel(stays), RLOCK_OK);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        run_ms(100);
        SAME(scripted_watching(&g.store), 0);
        anew();
    }
}

/* ------------------------------------------------------------------------------------------------
 * Questions.
 */

static struct {
    int count;
    rlock_info info;
    char token[64], text[64];
    void (*react)(void);
} told;

static void on_info(rlock_client *client, const rlock_info *info, void *user) {
    assert_ptr_equal(client, g.client);
    assert_ptr_equal(user, &told);
    SAME(virtual_depth, 0);
    assert_true(g.loop.entered);
    told.count++;
    told.info = *info;
    snprintf(told.token, sizeof told.token, "%s", info->token != NULL ? info->token : "");
    snprintf(told.text, sizeof told.text, "%s", info->text != NULL ? info->text : "");
    if (info->token != NULL) {
        SAME(info->token[info->token_len], 0);
    }
    if (told.react != NULL) {
        told.react();
    }
}

static rlock_answer scripted_info(rlock_info *info) {
    rlock_answer answer = scripted_done();
    memset(info, 0, sizeof *info);
    info->holders = 2;
    info->left_ms = 1500;
    info->waiters = 3;
    info->permits = 4;
    info->position = 1;
    info->token = "who?me";
    info->token_len = 6;
    answer.info = info;
    return answer;
}

static void ask_about(rlock_kind kind, const char *key) {
    rlock_options options;
    g.kind = kind;
    options = options_for(key);
    memset(&told, 0, sizeof told);
    SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_OK);
    SAME(told.count, 0);
    need(RLOCK_OP_INSPECT);
}

static void test_question_is_answered_once_with_what_the_server_said(void **state) {
    rlock_info info;
    rlock_options options;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key");
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_OK);
    SAME(told.info.holders, 2);
    SAME(told.info.left_ms, 1500);
    SAME(told.info.waiters, 3);
    SAME(told.info.permits, 4);
    SAME(told.info.position, 1);
    SAME(told.info.token_len, 6);
    assert_string_equal(told.token, "who?me");
    options = options_for("key");
    SAME(rlock_force_release(g.client, &options, on_info, &told), RLOCK_OK);
    SAME(rlock_force_release(g.client, &options, NULL, NULL), RLOCK_OK);
    reply(RLOCK_OP_FORCE, scripted_info(&info));
    reply(RLOCK_OP_FORCE, scripted_info(&info));
    SAME(told.count, 2);
    g.kind = RLOCK_KIND_SEMAPHORE;
    options = options_for("key");
    SAME(rlock_set_permits(g.client, &options, 9, on_info, &told), RLOCK_OK);
    SAME(need(RLOCK_OP_SET_PERMITS)->token, 9);
    reply(RLOCK_OP_SET_PERMITS, scripted_info(&info));
    SAME(told.count, 3);
    run_ms(5000);
    SAME(told.count, 3);
    SAME(g.client->gates.count, 0);
}

/* Where a key is wanted as more than one thing each release looks for who wants it as another. */
static void test_question_leaves_nothing_behind_that_each_release_would_look_for(void **state) {
    struct owner *sets[2];
    rlock_info info;
    (void)state;
    (void)kind_holder(RLOCK_KIND_MUTEX, "key", FOR_LONG);
    SAME(g.client->mixed, 0);
    ask_about(RLOCK_KIND_FAIR, "key");
    SAME(g.client->mixed, 1);
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(g.client->mixed, 0);
    sets[0] = of_keys("a", "key", "c");
    sets[1] = of_keys("c", "key", "a");
    SAME(g.client->mixed, 4);
    owner_free(sets[0]);
    SAME(g.client->mixed, 1);
    owner_free(sets[1]);
    SAME(g.client->mixed, 0);
}

static void test_question_ends_by_each_fault_as_a_single_try_does(void **state) {
    int fault;
    (void)state;
    for (fault = 0; fault < FAULTS; fault++) {
        ask_about(RLOCK_KIND_FAIR, "key");
        reply(RLOCK_OP_INSPECT, scripted_fault((rlock_fault)fault, "words of the server"));
        SAME(told.count, 1);
        SAME(told.info.status, fault_operation[fault][TRY]);
        SAME(told.info.position, -1);
        SAME(told.info.holders, 0);
        assert_string_equal(told.text, "words of the server");
    }
    ask_about(RLOCK_KIND_FAIR, "key");
    reply(RLOCK_OP_INSPECT, scripted_done()); /* with nothing in it */
    SAME(told.info.status, RLOCK_ERR_SERVER);
    assert_string_equal(told.text, "unexpected reply");
    ask_about(RLOCK_KIND_FAIR, "key");
    reply(RLOCK_OP_INSPECT, scripted_held(5));
    SAME(told.info.status, RLOCK_ERR_SERVER);
}

static void test_question_without_an_answer_ends_after_a_command_timeout(void **state) {
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key"); /* sent */
    run_ms(999);
    SAME(told.count, 0);
    run_ms(2);
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_ERR_UNKNOWN);
    g.store.unsent = true;
    ask_about(RLOCK_KIND_FAIR, "key");
    run_ms(1001);
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_ERR_CONN);
    scripted_down(&g.store, RLOCK_FAULT_AUTH, "NOAUTH");
    ask_about(RLOCK_KIND_FAIR, "key");
    run_ms(1001);
    SAME(told.info.status, RLOCK_ERR_AUTH);
    assert_string_equal(told.text, "NOAUTH");
}

static void test_questions_end_when_the_connection_does(void **state) {
    int sent;
    (void)state;
    for (sent = 0; sent < 2; sent++) {
        g.store.unsent = sent == 0;
        ask_about(RLOCK_KIND_FAIR, "key");
        scripted_down(&g.store, RLOCK_FAULT_DOWN, "refused");
        SAME(told.count, 1);
        SAME(told.info.status, sent ? RLOCK_ERR_UNKNOWN : RLOCK_ERR_CONN);
        assert_string_equal(told.text, "refused");
    }
    run_ms(5000);
    SAME(told.count, 1);
}

static void answer_and_down(void) {
    g.store.events->down(g.store.owner, RLOCK_FAULT_DOWN, "refused");
}

/* It is answered, and not told yet: what comes meanwhile changes nothing. */
static void test_answered_question_is_not_ended_again(void **state) {
    rlock_info info;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key");
    told.react = answer_and_down;
    scripted_answer(&g.store, need(RLOCK_OP_INSPECT), scripted_info(&info));
    scripted_push(&g.store, SCRIPTED_DOWN)->answer = scripted_fault(RLOCK_FAULT_DOWN, "refused");
    idle();
    SAME(told.count, 1);
    SAME(told.info.status, RLOCK_OK);
    run_ms(5000);
    SAME(told.count, 1);
}

/* Each has a timer of its own; the room for those grows by and by. */
static void test_question_for_whose_timer_there_is_no_memory_is_not_asked(void **state) {
    rlock_options options;
    int i, none = 0;
    (void)state;
    (void)kind_handle(RLOCK_KIND_FAIR, "key"); /* the key is known, and stays so */
    options = options_for("key");
    memset(&told, 0, sizeof told);
    for (i = 0; i < 40; i++) {
        size_t live = virtual_memory.live;
        int status;
        virtual_memory.failed = false;
        virtual_memory.fail_at = 2; /* behind the question itself */
        status = rlock_inspect(g.client, &options, on_info, &told);
        virtual_memory.fail_at = 0;
        SAME(status, virtual_memory.failed ? RLOCK_ERR_NOMEM : RLOCK_OK);
        if (virtual_memory.failed) {
            none++;
            SAME(virtual_memory.live, live);
            SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_OK);
        }
    }
    BETWEEN(none, 1, 4);
    SAME(asked(RLOCK_OP_INSPECT), 40);
    scripted_settle(&g.store);
    SAME(told.count, 40);
}

static void test_question_of_a_freed_client_is_not_answered(void **state) {
    rlock_info info;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key"); /* with the store */
    free_client();
    run_ms(5000);
    SAME(told.count, 0);
    start();
    ask_about(RLOCK_KIND_FAIR, "key"); /* answered, not told */
    scripted_answer(&g.store, need(RLOCK_OP_INSPECT), scripted_info(&info));
    (void)virtual_earliest(&g.loop, INT64_MAX);
    g.loop.entered = true;
    rlock__enter(g.client);
    rlock__settle(g.client);
    g.loop.entered = false;
    rlock__leave(g.client);
    free_client();
    run_ms(5000);
    SAME(told.count, 0);
    start();
}

static void free_the_client(void) {
    free_client();
}

static void ask_once_more(void) {
    rlock_options options = options_for("key");
    told.react = NULL;
    SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_OK);
    SAME(told.count, 1);
}

static void test_client_may_be_freed_or_asked_in_the_callback_of_a_question(void **state) {
    rlock_info info;
    (void)state;
    ask_about(RLOCK_KIND_FAIR, "key");
    told.react = ask_once_more;
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.count, 1);
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.count, 2);
    ask_about(RLOCK_KIND_FAIR, "key");
    told.react = free_the_client;
    scripted_answer(&g.store, need(RLOCK_OP_INSPECT), scripted_info(&info));
    idle();
    SAME(told.count, 1);
    SAME(virtual_memory.live, 0);
    start();
}

static void test_position_is_asked_with_the_token_of_who_waits(void **state) {
    struct owner *waits = in_line(RLOCK_KIND_FAIR, "key", RLOCK_FOREVER);
    rlock_info info;
    (void)state;
    memset(&told, 0, sizeof told);
    SAME(rlock_queue_position(waits->lock, on_info, &told), RLOCK_OK);
    SAME(need(RLOCK_OP_INSPECT)->token, token_of(waits));
    reply(RLOCK_OP_INSPECT, scripted_info(&info));
    SAME(told.info.position, 1);
    SAME(rlock_queue_position(waits->lock, on_info, &told), RLOCK_OK);
    owner_free(waits); /* the question goes on without it */
    scripted_settle(&g.store);
    SAME(told.count, 2);
    run_ms(5000);
    SAME(told.count, 2);
    SAME(g.client->gates.count, 0);
}

static void test_position_of_who_does_not_wait_in_a_line_is_not_asked(void **state) {
    struct owner *fair = kind_handle(RLOCK_KIND_FAIR, "key"), *mutex;
    (void)state;
    mutex = kind_handle(RLOCK_KIND_MUTEX, "other");
    SAME(owner_acquire(mutex, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(rlock_queue_position(NULL, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_queue_position(fair->lock, NULL, &told), RLOCK_ERR_ARG);
    SAME(rlock_queue_position(fair->lock, on_info, &told), RLOCK_ERR_STATE);
    SAME(rlock_queue_position(mutex->lock, on_info, &told), RLOCK_ERR_STATE);
    SAME(owner_acquire(fair, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(rlock_client_shutdown(g.client, 0, NULL, NULL), RLOCK_OK);
    SAME(rlock_queue_position(fair->lock, on_info, &told), RLOCK_ERR_CLOSED);
    free_client();
    SAME(rlock_queue_position(fair->lock, on_info, &told), RLOCK_ERR_CLOSED);
    SAME(rlock_queue_position(mutex->lock, on_info, &told), RLOCK_ERR_STATE);
    start();
}

/* Each row: what is wrong with the options. */
static rlock_options wrong_options(int row) {
    static const char *const keys[] = {"a", "b"}, *const alike[] = {"a", "a"},
                             *const hole[] = {"a", NULL}, *const empty[] = {"a", ""};
    static const size_t lens[] = {1, 0};
    rlock_options options;
    g.kind = row % 2 ? RLOCK_KIND_SEMAPHORE : RLOCK_KIND_MUTEX;
    options = options_for(row < 12 ? "key" : NULL);
    options.keys = row < 12 ? NULL : keys;
    options.key_count = row < 12 ? 0 : 2;
    switch (row) {
    case 0: options.permits = 1; break;
    case 1: options.permits = 0; break;
    case 2: options.weight = 1; break;
    case 3: options.permits = RLOCK_PERMITS_MAX + 1; break;
    case 4: options.owner = 1; break;
    case 5: options.weight = 3; break;
    case 6: options.kind = (rlock_kind)5; break;
    case 7: options.owner = 1; break;
    case 8: options.kind = (rlock_kind)-1; break;
    case 9: options.key = ""; break;
    case 10: options.key = NULL; break;
    case 11: options.keys = keys; break;
    case 12: options.key_count = 0; break;
    case 14: options.keys = alike; break;
    case 16: options.keys = hole; break;
    case 18: options.keys = empty; break;
    case 20: options.key_lens = lens; break;
    case 22: options.key_len = 1; break;
    case 24: options.key_count = RLOCK_KEYS_MAX + 1; break;
    default: break; /* of an odd one the kind: several keys are for a MUTEX only */
    }
    return options;
}

static void test_wrong_options_are_refused_by_handles_and_questions(void **state) {
    int row;
    (void)state;
    memset(&told, 0, sizeof told);
    for (row = 0; row < 25; row++) {
        rlock_options options = wrong_options(row);
        rlock *lock = NULL;
        SAME(rlock_new(&lock, g.client, &options), RLOCK_ERR_ARG);
        assert_null(lock);
        SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_ERR_ARG);
        SAME(rlock_force_release(g.client, &options, on_info, &told), RLOCK_ERR_ARG);
        SAME(rlock_set_permits(g.client, &options, 1, on_info, &told), RLOCK_ERR_ARG);
    }
    SAME(g.store.count, 0);
    SAME(g.client->gates.count, 0);
}

static const char *refuse_all(void *state, const char *key, size_t key_len,
                              const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)key_len, (void)terms, (void)fencing;
    return "not here";
}

static void test_questions_that_cannot_be_asked_are_refused(void **state) {
    const char *keys[2] = {"a", "b"};
    rlock_options options, several;
    (void)state;
    memset(&told, 0, sizeof told);
    g.kind = RLOCK_KIND_SEMAPHORE;
    options = options_for("key");
    g.kind = RLOCK_KIND_MUTEX;
    several = options_for(NULL);
    several.keys = keys;
    several.key_count = 2;
    SAME(rlock_inspect(NULL, &options, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_inspect(g.client, NULL, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_inspect(g.client, &options, NULL, &told), RLOCK_ERR_ARG);
    SAME(rlock_inspect(g.client, &several, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_force_release(NULL, &options, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_force_release(g.client, NULL, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_force_release(g.client, &several, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_set_permits(NULL, &options, 1, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_set_permits(g.client, NULL, 1, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_set_permits(g.client, &several, 1, on_info, &told), RLOCK_ERR_ARG);
    SAME(rlock_set_permits(g.client, &options, RLOCK_PERMITS_MAX + 1, on_info, &told),
         RLOCK_ERR_ARG);
    g.store.store.refuses = refuse_all;
    SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_ERR_ARG);
    g.store.store.refuses = NULL;
    SAME(rlock_client_shutdown(g.client, 0, NULL, NULL), RLOCK_OK);
    SAME(rlock_inspect(g.client, &options, on_info, &told), RLOCK_ERR_CLOSED);
    SAME(rlock_set_permits(g.client, &options, 1, on_info, &told), RLOCK_ERR_CLOSED);
    SAME(g.store.count, 0);
    SAME(told.count, 0);
}

static int keys_asked_for;

static const char *refuse_b(void *state, const char *key, size_t key_len, const rlock_terms *terms,
                            bool fencing) {
    (void)state, (void)fencing;
    assert_non_null(terms);
    SAME(key_len, 1);
    keys_asked_for++;
    return *key == 'b' ? "not this one" : NULL;
}

/* The store is asked for each, until it says no; and the log is told once. */
static void test_set_is_refused_for_one_key_that_the_store_refuses(void **state) {
    static const char *const keys[] = {"a", "b", "c"};
    rlock_options options;
    rlock *lock = NULL;
    int lines = g.log_lines;
    (void)state;
    g.store.store.refuses = refuse_b;
    options = options_for(NULL);
    options.keys = keys;
    options.key_count = 3;
    keys_asked_for = 0;
    SAME(rlock_new(&lock, g.client, &options), RLOCK_ERR_ARG);
    assert_null(lock);
    SAME(keys_asked_for, 2);
    SAME(g.log_lines, lines + 1);
    (void)of_keys("a", "c", "d");
    SAME(keys_asked_for, 5);
    SAME(g.log_lines, lines + 1);
    g.store.store.refuses = NULL;
}

/* A little of every new thing, with each of its allocations failing in turn. */
static void kinds_scenario(void) {
    static const char *const keys[] = {"a", "b"};
    rlock_options options = options_for(NULL);
    struct owner *owners[3] = {NULL, NULL, NULL};
    int i, status = RLOCK_OK, asked_for = 0;
    options.keys = keys;
    options.key_count = 2;
    for (i = 0; i < 3; i++) {
        g.kind = i == 0 ? RLOCK_KIND_MUTEX : RLOCK_KIND_READ;
        if (i > 0) {
            options = options_for("a");
        }
        owners[i] = owner_try(&g.loop, g.client, &options, &status);
        ok_or_nomem(status);
        if (owners[i] != NULL) {
            ok_or_nomem(owner_acquire(owners[i], RLOCK_FOREVER, 1000));
        }
    }
    idle();
    memset(&told, 0, sizeof told);
    for (i = 0; i < 2; i++) {
        status = i == 0 ? rlock_inspect(g.client, &options, on_info, &told)
                        : rlock_force_release(g.client, &options, on_info, &told);
        ok_or_nomem(status);
        asked_for += status == RLOCK_OK ? 1 : 0;
        idle();
        if (told.info.status != RLOCK_ERR_SERVER) { /* the words are told if there is memory */
            ok_or_nomem(told.info.status);
        }
        SAME(told.info.token == NULL, told.info.token_len == 0);
    }
    SAME(told.count, asked_for);
    for (i = 0; i < 3; i++) {
        if (owners[i] != NULL && owners[i]->holding) {
            SAME(owner_release(owners[i]), RLOCK_OK);
        }
    }
    run_ms(5000);
}

static void test_every_failing_allocation_of_the_kinds_is_survived(void **state) {
    rlock_info info;
    uint64_t n;
    (void)state;
    for (n = 1; n < 1000; n++) {
        setup(NULL);
        scripted_always(&g.store, RLOCK_OP_ACQUIRE, scripted_done());
        scripted_always(&g.store, RLOCK_OP_RENEW, scripted_done());
        scripted_always(&g.store, RLOCK_OP_RELEASE, scripted_done());
        scripted_always(&g.store, RLOCK_OP_INSPECT, scripted_info(&info));
        scripted_always(&g.store, RLOCK_OP_FORCE,
                        scripted_fault(RLOCK_FAULT_BUSY, "words that need memory"));
        virtual_memory.failed = false;
        virtual_memory.fail_at = n;
        kinds_scenario();
        virtual_memory.fail_at = 0;
        if (!virtual_memory.failed) {
            break;
        }
        teardown(NULL);
    }
    teardown(NULL);
    BETWEEN(n, 8, 999);
}
