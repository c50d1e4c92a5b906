/* unit_tokens.h - holds that go on without their handle: until a time, or in another process */
#ifndef TESTS_UNIT_TOKENS_H
#define TESTS_UNIT_TOKENS_H

#if RLOCK__HAS_TOKENS

#define PROOF "01234567-89ab-cdef-0123-456789abcdef:17:0"
#define PROOF_ID "01234567-89ab-cdef-0123-456789abcdef"

static int owner_release_after(struct owner *owner, int64_t ms) {
    int status = rlock_release_after(owner->lock, ms, owner_on_event, owner);
    return owner_asked(owner, status, RLOCK_RELEASED);
}

static int owner_adopt(struct owner *owner, const char *token, int64_t lease_ms) {
    int status = rlock_adopt(owner->lock, token, lease_ms, owner_on_event, owner);
    return owner_asked(owner, status, RLOCK_ACQUIRED);
}

static struct owner *adopter(const char *key, int64_t lease_ms) {
    struct owner *owner = handle(key);
    SAME(owner_adopt(owner, PROOF, lease_ms), RLOCK_OK);
    idle();
    return owner;
}

static struct owner *adopted(const char *key, int64_t lease_ms) {
    struct owner *owner = adopter(key, lease_ms);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(rlock_is_held(owner->lock));
    return owner;
}

/* The key is left to whoever has it: nothing is asked of the server any more. */
static void nothing_is_released(void) {
    int released = asked(RLOCK_OP_RELEASE), renewed = asked(RLOCK_OP_RENEW);
    run_ms(100000);
    SAME(asked(RLOCK_OP_RELEASE), released);
    SAME(asked(RLOCK_OP_RENEW), renewed);
    SAME(stats().cleaning, 0);
}

/* --- until a time --- */

static void release_after_is_a_renewal_for_the_rest_which_also_cuts(void **state) {
    struct owner *owner = holder("a", 10000);
    uint64_t token = g.store.log[0].token;
    (void)state;
    run_ms(1000);
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    assert_false(rlock_is_held(owner->lock));
    SAME(owner_release(owner), RLOCK_ERR_STATE);
    idle();
    SAME(need(RLOCK_OP_RENEW)->token, token);
    SAME(need(RLOCK_OP_RENEW)->lease_ms, 4000);
    SAME(need(RLOCK_OP_RENEW)->longest_ms, 4000);
    assert_true(need(RLOCK_OP_RENEW)->urgent);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(stats().released, 1);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    nothing_is_released();
    SAME(owner->seen[RLOCK_LOST].count, 0);
}

static void release_after_gives_a_shorter_lease_the_whole_rest(void **state) {
    struct owner *owner = holder("a", 1000);
    (void)state;
    SAME(owner_release_after(owner, 60000), RLOCK_OK);
    idle();
    BETWEEN(need(RLOCK_OP_RENEW)->lease_ms, 59990, 60000);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
}

static void release_after_a_time_that_is_over_is_a_release(void **state) {
    int64_t ms;
    (void)state;
    for (ms = 0; ms <= 1000; ms += 1000) {
        struct owner *owner = holder("a", 10000);
        run_ms(1000);
        SAME(owner_release_after(owner, ms), RLOCK_OK);
        idle();
        SAME(asked(RLOCK_OP_RENEW), 0);
        reply(RLOCK_OP_RELEASE, scripted_done());
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
}

static void time_counts_from_the_first_acquire_and_ends_with_the_last_release(void **state) {
    rlock_options options = options_for("a");
    struct owner *owner;
    (void)state;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, 10000);
    run_ms(1000);
    SAME(owner_acquire(owner, 0, 10000), RLOCK_OK);
    idle();
    SAME(rlock_hold_count(owner->lock), 2);
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    assert_true(rlock_is_held(owner->lock));
    SAME(asked(RLOCK_OP_RENEW), 0);
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_RENEW)->lease_ms, 4000);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].count, 2);
}

static void unanswered_renewal_of_what_stays_is_repeated_for_the_rest(void **state) {
    struct owner *owner = holder("a", 10000);
    (void)state;
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    run_ms(1000);
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_UNKNOWN, "gone"));
    SAME(owner->seen[RLOCK_RELEASED].count, 0);
    BETWEEN(retried(RLOCK_OP_RENEW)->lease_ms, 3000, 4000);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    reply(RLOCK_OP_RENEW, scripted_unsure(scripted_done()));
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN); /* the first may come late */
    nothing_is_released();
}

/* One that was not answered may come late, and cut what stays. */
static void what_stays_after_an_unanswered_renewal_is_unknown(void **state) {
    struct owner *owner = holder("a", 10000);
    (void)state;
    SAME(owner_renew(owner, 10000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_UNKNOWN, "gone"));
    SAME(owner_release_after(owner, 60000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN);
    nothing_is_released();
}

/* A look at the key asks for no lease, and cuts none. */
static void what_stays_is_sure_while_a_check_is_out(void **state) {
    struct owner *owner;
    (void)state;
    g.store.checks_by_hand = true;
    owner = holder("a", 10000);
    scripted_woken(&g.store, "a");
    run_ms(20);
    SAME(need(RLOCK_OP_RENEW)->lease_ms, 0);
    SAME(owner_release_after(owner, 60000), RLOCK_OK);
    idle();
    BETWEEN(need(RLOCK_OP_RENEW)->lease_ms, 59000, 60000);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    nothing_is_released();
}

/* Its lease is over: whoever has the token may have renewed it, so it is not deleted before. */
static void what_stays_ends_at_its_deadline_and_is_deleted_when_its_time_is_over(void **state) {
    struct owner *owner = holder("a", 2000);
    int64_t from_us = now_us(), until = until_us(from_us, 2000);
    (void)state;
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "away");
    idle();
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    g.store.unsent = true;
    run_ms(2100);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_CONN);
    BETWEEN(owner->seen[RLOCK_RELEASED].at_us, until, until + 100000);
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "wait"));
    always(RLOCK_OP_RELEASE, scripted_done());
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_DOWN, "away"));
    while (now_us() < from_us + 4900000) {
        SAME(asked(RLOCK_OP_RELEASE), 0);
        run_ms(50);
    }
    run_ms(2000);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(stats().cleaning, 0);
}

static void what_was_to_stay_and_is_not_there_ends_as_not_held(void **state) {
    struct owner *owner = holder("a", 10000);
    (void)state;
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_unsure(scripted_plain(RLOCK_OUTCOME_GONE)));
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_NOT_HELD);
    SAME(owner->seen[RLOCK_RELEASED].reason, RLOCK_REASON_DELETED);
    (void)retried(RLOCK_OP_RELEASE); /* an acquire of it may come late */
    reply(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(stats().cleaning, 0);
}

/* No lock is there, so no renewal can come late: what an acquire may yet do is cleaned up. */
static void what_was_to_stay_where_something_else_is_ends_as_not_held(void **state) {
    struct owner *owner = holder("a", 10000);
    (void)state;
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_TYPE, "WRONGTYPE"));
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_NOT_HELD);
    run_ms(100000);
    SAME(asked(RLOCK_OP_RENEW), 1);
    SAME(stats().cleaning, 0);
}

/* Nothing can come late of a renewal that the server did not execute, or that was not sent. */
static void refused_last_renewal_leaves_a_doubt_unless_it_was_not_executed(void **state) {
    static const struct {
        rlock_fault fault;
        bool undone;
        int status;
    } rows[] = {{RLOCK_FAULT_BUSY, true, RLOCK_OK},
                {RLOCK_FAULT_DOWN, false, RLOCK_OK},
                {RLOCK_FAULT_BUSY, false, RLOCK_ERR_UNKNOWN}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct owner *owner = holder("a", 10000);
        rlock_answer answer = scripted_fault(rows[i].fault, "later");
        answer.undone = rows[i].undone;
        SAME(owner_release_after(owner, 5000), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RENEW, answer);
        SAME(owner->seen[RLOCK_RELEASED].count, 0);
        (void)retried(RLOCK_OP_RENEW);
        reply(RLOCK_OP_RENEW, scripted_done());
        SAME(owner->seen[RLOCK_RELEASED].status, rows[i].status);
    }
    SAME(asked(RLOCK_OP_RELEASE), 0);
}

static void what_stays_is_not_handed_on_and_the_next_waiter_asks_the_server(void **state) {
    struct owner *owner = holder("a", 10000), *waits = handle("a");
    (void)state;
    SAME(owner_acquire(waits, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    if (out(RLOCK_OP_ACQUIRE) != NULL) {
        reply(RLOCK_OP_ACQUIRE, scripted_held(10000));
    }
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    SAME(waits->seen[RLOCK_ACQUIRED].count, 0);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    while (out(RLOCK_OP_ACQUIRE) != NULL && g.store.count < 10) {
        reply(RLOCK_OP_ACQUIRE, scripted_held(5000));
    }
    run_ms(5100);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(waits->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void freed_client_submits_the_renewal_of_what_stays_once_more(void **state) {
    struct owner *owner = holder("a", 10000);
    (void)state;
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    (void)need(RLOCK_OP_RENEW);
    free_client();
    SAME(asked(RLOCK_OP_RENEW), 2);
    SAME(asked(RLOCK_OP_RELEASE), 0);
}

static void store_that_keeps_nothing_refuses_what_is_to_stay(void **state) {
    struct owner *owner = holder("a", 10000);
    char text[RLOCK_TOKEN_MAX];
    int lines = g.log_lines;
    (void)state;
    g.store.store.can = RLOCK_STORE_ADOPTS;
    SAME(owner_release_after(owner, 5000), RLOCK_ERR_ARG);
    SAME(g.log_lines, lines + 1);
    assert_true(rlock_is_held(owner->lock));
    g.store.store.can = RLOCK_STORE_STAYS;
    SAME(rlock_token(owner->lock, text, sizeof text), RLOCK_ERR_ARG);
    SAME(owner_adopt(handle("b"), PROOF, 0), RLOCK_ERR_ARG);
    SAME(g.log_lines, lines + 3);
    SAME(g.store.count, 1);
}

static void times_out_of_range_are_refused_and_the_hold_stays(void **state) {
    struct owner *owner = holder("a", 10000);
    (void)state;
    SAME(rlock_release_after(NULL, 0, NULL, NULL), RLOCK_ERR_ARG);
    SAME(owner_release_after(owner, -1), RLOCK_ERR_ARG);
    SAME(owner_release_after(owner, RLOCK_LEASE_MAX_MS + 1), RLOCK_ERR_ARG);
    SAME(owner_release_after(handle("b"), 1000), RLOCK_ERR_NOT_HELD);
    assert_true(rlock_is_held(owner->lock));
    SAME(rlock_release_after(owner->lock, RLOCK_LEASE_MAX_MS, NULL, NULL), RLOCK_OK);
    idle();
    BETWEEN(need(RLOCK_OP_RENEW)->lease_ms, RLOCK_LEASE_MAX_MS - 10, RLOCK_LEASE_MAX_MS);
}

static void lost_hold_is_reported_by_its_release_after(void **state) {
    struct owner *owner = holder("a", 1000);
    (void)state;
    stall_ms(1000);
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_LOST);
    SAME(asked(RLOCK_OP_RENEW), 0);
}

/* --- the text --- */

/* Else who has the text would hold beside the next one. */
static void hold_whose_token_is_out_is_not_handed_on(void **state) {
    struct owner *owner = holder("a", 10000), *next = handle("a");
    char text[RLOCK_TOKEN_MAX];
    (void)state;
    SAME(owner_acquire(next, RLOCK_FOREVER, 10000), RLOCK_OK);
    idle();
    assert_true(rlock_token(owner->lock, text, sizeof text) > 0);
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    SAME(asked(RLOCK_OP_RELEASE), 1);
    SAME(next->seen[RLOCK_ACQUIRED].count, 0);
}

static void token_is_the_clients_id_the_number_and_the_fence(void **state) {
    rlock_options options = options_for("a");
    char text[RLOCK_TOKEN_MAX], expected[100];
    struct owner *owner;
    int n;
    (void)state;
    options.fencing = true;
    owner = handle_with(&options);
    SAME(rlock_token(owner->lock, text, sizeof text), RLOCK_ERR_NOT_HELD);
    assert_string_equal(text, "");
    SAME(owner_acquire(owner, 0, 10000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(4711));
    n = snprintf(expected, sizeof expected, "%s:%llu:4711", rlock_client_id(g.client),
                 (unsigned long long)g.store.log[0].token);
    SAME(rlock_token(owner->lock, text, sizeof text), n);
    assert_string_equal(text, expected);
    SAME(rlock_token(owner->lock, text, (size_t)n + 1), n);
    SAME(rlock_token(owner->lock, text, (size_t)n), RLOCK_ERR_ARG);
    assert_string_equal(text, "");
    SAME(rlock_token(owner->lock, text, 0), RLOCK_ERR_ARG);
    SAME(rlock_token(owner->lock, NULL, 80), RLOCK_ERR_ARG);
    SAME(rlock_token(NULL, text, sizeof text), RLOCK_ERR_ARG);
}

static void texts_that_are_no_token_are_refused(void **state) {
    static const char *const wrong[] = {"",
                                        "01234567",
                                        PROOF_ID,
                                        PROOF_ID ":",
                                        PROOF_ID ":17",
                                        PROOF_ID ":17:",
                                        PROOF_ID "::0",
                                        PROOF_ID ":0:0",
                                        PROOF_ID ":17:0 ",
                                        PROOF_ID ":17:0:0",
                                        PROOF_ID ":-1:0",
                                        PROOF_ID ":17:18446744073709551616",
                                        PROOF_ID ":18446744073709551616:0",
                                        PROOF_ID ";17:0",
                                        "01234567x89ab-cdef-0123-456789abcdef:17:0",
                                        "01234567-89AB-cdef-0123-456789abcdef:17:0",
                                        "01234567-89ab-cdef-0123-456789abcde\n:17:0"};
    struct owner *owner = handle("a");
    size_t i;
    (void)state;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        SAME(owner_adopt(owner, wrong[i], 0), RLOCK_ERR_ARG);
    }
    SAME(owner_adopt(owner, NULL, 0), RLOCK_ERR_ARG);
    SAME(owner_adopt(owner, PROOF, 1), RLOCK_ERR_ARG);
    SAME(rlock_adopt(owner->lock, PROOF, 0, NULL, NULL), RLOCK_ERR_ARG);
    SAME(rlock_adopt(NULL, PROOF, 0, owner_on_event, owner), RLOCK_ERR_ARG);
    SAME(g.store.count, 0);
    SAME(owner_adopt(owner, PROOF_ID ":18446744073709551615:18446744073709551615", 0), RLOCK_OK);
}

/* --- in another process --- */

static void adopted_hold_is_asked_for_by_a_renewal_and_is_like_any_other(void **state) {
    struct owner *owner = adopter("a", 0);
    int64_t from_us = now_us();
    (void)state;
    SAME(asked(RLOCK_OP_ACQUIRE), 0);
    SAME(need(RLOCK_OP_RENEW)->token, 17);
    SAME(need(RLOCK_OP_RENEW)->lease_ms, WATCHDOG_MS);
    SAME(need(RLOCK_OP_RENEW)->longest_ms, 0);
    assert_string_equal(need(RLOCK_OP_RENEW)->id, PROOF_ID);
    SAME(stats().waiting, 1);
    run_ms(10);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms,
         (until_us(from_us, WATCHDOG_MS) - now_us()) / 1000);
    SAME(stats().held, 1);
    run_ms(WATCHDOG_MS / 3);
    assert_string_equal(need(RLOCK_OP_RENEW)->id, PROOF_ID);
    SAME(need(RLOCK_OP_RENEW)->longest_ms, 0);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner_renew(owner, 5000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_RELEASE)->token, 17);
    assert_string_equal(need(RLOCK_OP_RELEASE)->id, PROOF_ID);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    grant(owner, 1000); /* the handle has tokens of its own again */
    assert_string_equal(g.store.log[g.store.count - 1].id, "");
}

static void hold_that_is_not_there_is_not_adopted_and_nothing_is_released(void **state) {
    static const rlock_outcome outcomes[] = {RLOCK_OUTCOME_GONE, RLOCK_OUTCOME_STOLEN,
                                             RLOCK_OUTCOME_HELD};
    size_t i;
    (void)state;
    for (i = 0; i < 3; i++) {
        struct owner *owner = adopter("a", 10000);
        reply(RLOCK_OP_RENEW, scripted_unsure(scripted_plain(outcomes[i])));
        SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_NOT_HELD);
        nothing_is_released();
    }
}

static void fault_ends_an_adoption_as_one_attempt_and_releases_nothing(void **state) {
    static const int ends[] = {RLOCK_ERR_CONN,  RLOCK_ERR_UNKNOWN,    RLOCK_ERR_SERVER,
                               RLOCK_ERR_AUTH,  RLOCK_ERR_WRONG_TYPE, RLOCK_ERR_NOMEM,
                               RLOCK_ERR_SERVER};
    int fault;
    (void)state;
    for (fault = RLOCK_FAULT_DOWN; fault <= RLOCK_FAULT_OTHER; fault++) {
        struct owner *owner = adopter("a", 10000);
        reply(RLOCK_OP_RENEW, scripted_fault((rlock_fault)fault, "words"));
        SAME(owner->seen[RLOCK_ACQUIRED].status, ends[fault]);
        assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "words");
        nothing_is_released();
    }
}

static void adoption_without_an_answer_ends_by_the_command_timeout(void **state) {
    int unsent;
    (void)state;
    for (unsent = 0; unsent < 2; unsent++) {
        struct owner *owner = adopter("a", 60000);
        g.store.unsent = unsent != 0;
        run_ms(10000);
        SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
        SAME(owner->seen[RLOCK_ACQUIRED].status, unsent ? RLOCK_ERR_CONN : RLOCK_ERR_UNKNOWN);
        nothing_is_released();
    }
}

/* There is no connection from the beginning: it ends with what keeps the client from one. */
static void adoption_without_a_connection_ends_with_the_fault_of_that(void **state) {
    struct owner *owner;
    (void)state;
    g.store.unsent = true;
    scripted_down(&g.store, RLOCK_FAULT_AUTH, "WRONGPASS");
    idle();
    owner = adopter("a", 60000);
    run_ms(10000);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "WRONGPASS");
    nothing_is_released();
}

static void lost_connection_ends_an_adoption(void **state) {
    struct owner *owner = adopter("a", 10000);
    (void)state;
    g.store.unsent = true;
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "away");
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "away");
    nothing_is_released();
}

static void adoption_that_comes_too_late_does_not_count(void **state) {
    struct owner *owner = adopter("a", 1000), *other;
    (void)state;
    run_ms(990);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    nothing_is_released();
    other = adopter("b", 1000);
    scripted_answer(&g.store, need(RLOCK_OP_RENEW), scripted_done());
    stall_ms(1000);
    idle();
    SAME(other->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_UNKNOWN);
    nothing_is_released();
}

static void canceled_adoption_releases_nothing(void **state) {
    struct owner *owner = adopter("a", 10000);
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_ERR_STATE);
    SAME(owner_adopt(owner, PROOF, 0), RLOCK_ERR_STATE);
    SAME(owner_renew(owner, 0), RLOCK_ERR_STATE);
    SAME(owner_release(owner), RLOCK_ERR_STATE);
    SAME(owner_cancel(owner), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    nothing_is_released();
}

static struct owner *canceled_late;

static void cancel_the_other(struct owner *owner, const rlock_event *event) {
    (void)owner, (void)event;
    SAME(owner_cancel(canceled_late), RLOCK_OK);
}

static void adoption_that_is_canceled_before_its_callback_releases_nothing(void **state) {
    struct owner *first = adopter("a", 10000), *second = adopter("b", 10000);
    struct scripted_request *one = &g.store.log[0], *two = &g.store.log[1];
    (void)state;
    canceled_late = second;
    first->react = cancel_the_other;
    scripted_answer(&g.store, one, scripted_done());
    scripted_answer(&g.store, two, scripted_done());
    idle();
    SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    assert_false(rlock_is_held(second->lock));
    first->react = NULL;
    SAME(asked(RLOCK_OP_RELEASE), 0);
}

static void shutdown_ends_an_adoption_and_releases_what_was_adopted(void **state) {
    struct owner *holds = adopted("a", 60000), *asks = adopter("b", 60000);
    struct owner *idles = handle("c");
    (void)state;
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_OK);
    SAME(rlock_adopt(idles->lock, PROOF, 0, owner_on_event, idles), RLOCK_ERR_CLOSED);
    idle();
    SAME(asks->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(holds->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    assert_string_equal(need(RLOCK_OP_RELEASE)->id, PROOF_ID);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(g.done_status, RLOCK_OK);
}

static void client_that_is_freed_during_an_adoption_forgets_it(void **state) {
    struct owner *owner = adopter("a", 10000);
    (void)state;
    free_client();
    SAME(owner->seen[RLOCK_ACQUIRED].count, 0);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    SAME(owner_release(owner), RLOCK_ERR_CLOSED);
}

static void free_its_client(struct owner *owner, const rlock_event *event) {
    (void)owner, (void)event;
    free_client();
}

/* Until its callback it is the other process's, which may go on with it. */
static void client_that_is_freed_before_the_callback_of_an_adoption_leaves_it(void **state) {
    struct owner *first = adopter("a", 10000), *second = adopter("b", 10000);
    struct scripted_request *one = &g.store.log[0], *two = &g.store.log[1];
    (void)state;
    first->react = free_its_client;
    scripted_answer(&g.store, one, scripted_done());
    scripted_answer(&g.store, two, scripted_done());
    idle();
    SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(second->seen[RLOCK_ACQUIRED].count, 0);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    assert_string_equal(scripted_last(&g.store, RLOCK_OP_RELEASE)->key, "a");
}

/* Who waited for the key meanwhile knows then that it is taken; permits are not. */
static void waiter_learns_from_an_adoption_that_the_key_is_held(void **state) {
    int shared;
    (void)state;
    for (shared = 0; shared <= RLOCK__HAS_KINDS; shared++) {
        const char *key = shared ? "permits" : "a";
        struct owner *holds, *waits;
        g.kind = shared ? RLOCK_KIND_SEMAPHORE : RLOCK_KIND_MUTEX;
        g.store.unsent = true;
        holds = adopter(key, 60000);
        waits = handle(key);
        SAME(owner_acquire(waits, 500, 10000), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RENEW, scripted_done());
        SAME(holds->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        run_ms(600);
        SAME(waits->seen[RLOCK_ACQUIRED].status, shared ? RLOCK_ERR_CONN : RLOCK_ERR_TIMEOUT);
    }
}

#if RLOCK__HAS_KINDS
/* The server notifies the client that made the token: this one has to look, and to register. */
static void adopted_hold_that_others_share_is_registered_by_a_look(void **state) {
    struct owner *owner;
    (void)state;
    g.kind = RLOCK_KIND_SEMAPHORE;
    g.store.checks_by_hand = true;
    owner = adopted("a", 60000);
    run_ms(90);
    assert_null(out(RLOCK_OP_RENEW));
    run_ms(50);
    SAME(need(RLOCK_OP_RENEW)->lease_ms, 0);
    assert_string_equal(need(RLOCK_OP_RENEW)->id, PROOF_ID);
    reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
}
#endif

/* Refused or adopted, and its memory is given back in either case. */
static void every_failing_allocation_of_an_adoption_is_survived(void **state) {
    uint64_t n;
    int refused = 0;
    (void)state;
    for (n = 1; n < 20; n++) {
        struct owner *owner = handle("a");
        size_t live = virtual_memory.live;
        int status;
        virtual_memory.failed = false;
        virtual_memory.fail_at = n;
        status = owner_adopt(owner, PROOF, 10000);
        virtual_memory.fail_at = 0;
        ok_or_nomem(status);
        if (!virtual_memory.failed) {
            idle();
            reply(RLOCK_OP_RENEW, scripted_done());
            SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
            break;
        }
        idle();
        refused += status != RLOCK_OK;
        SAME(owner->events, 0);
        SAME(asked(RLOCK_OP_RENEW), 0);
        SAME(stats().waiting, 0);
        BETWEEN(virtual_memory.live, live, live + 1000); /* what one operation needs is kept */
        owner_free(owner);
        SAME(stats().handles, 0);
    }
    BETWEEN(refused, 2, 19);
}

static struct owner *waits_behind;

static void wait_and_cancel(struct owner *owner, const rlock_event *event) {
    owner->react = NULL;
    SAME(owner_acquire(waits_behind, RLOCK_FOREVER, 10000), RLOCK_OK);
    cancel_the_other(owner, event);
}

/* While the adopted hold was there, nobody had to ask. */
static void waiter_behind_an_adoption_that_is_canceled_asks_the_server(void **state) {
    struct owner *first = adopter("a", 10000), *second = adopter("b", 10000);
    struct scripted_request *one = &g.store.log[0], *two = &g.store.log[1];
    (void)state;
    canceled_late = second;
    waits_behind = handle("b");
    first->react = wait_and_cancel;
    scripted_answer(&g.store, one, scripted_done());
    scripted_answer(&g.store, two, scripted_done());
    idle();
    SAME(second->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(0));
    SAME(waits_behind->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void handle_that_is_freed_while_it_adopts_releases_nothing(void **state) {
    struct owner *owner = adopter("a", 10000);
    (void)state;
    owner_free(owner);
    idle();
    nothing_is_released();
}

static void adopted_hold_that_is_lost_is_reported_and_released(void **state) {
    struct owner *owner = adopted("a", 1000);
    (void)state;
    run_ms(1000);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    assert_string_equal(need(RLOCK_OP_RELEASE)->id, PROOF_ID);
}

static void adopted_hold_can_be_left_and_given_away_once_more(void **state) {
    struct owner *owner = adopted("a", 10000);
    char text[RLOCK_TOKEN_MAX];
    (void)state;
    SAME(rlock_token(owner->lock, text, sizeof text), strlen(PROOF));
    assert_string_equal(text, PROOF);
    SAME(owner_release_after(owner, 5000), RLOCK_OK);
    idle();
    assert_string_equal(need(RLOCK_OP_RENEW)->id, PROOF_ID);
    BETWEEN(need(RLOCK_OP_RENEW)->longest_ms, 4990, 5000);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    nothing_is_released();
}

static void fence_comes_with_the_token_where_one_is_wanted(void **state) {
    rlock_options options = options_for("a");
    struct owner *owner;
    (void)state;
    owner = handle("b");
    SAME(owner_adopt(owner, PROOF_ID ":17:4711", 10000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].fence, 4711);
    options.fencing = true;
    owner = handle_with(&options);
    SAME(owner_adopt(owner, PROOF, 10000), RLOCK_ERR_ARG);
    SAME(owner_adopt(owner, PROOF_ID ":17:4711", 10000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].fence, 4711);
    SAME(rlock_fence(owner->lock), 4711);
}

static void notification_of_an_own_token_is_not_that_of_an_adopted_one(void **state) {
    char text[80];
    struct owner *owner, *own;
    uint64_t token;
    (void)state;
    if (!RLOCK__HAS_KINDS) { /* two holds of one key are of these */
        return;
    }
    g.kind = RLOCK_KIND_SEMAPHORE;
    owner = handle("a");
    snprintf(text, sizeof text, PROOF_ID ":%d:0", 1);
    SAME(owner_adopt(owner, text, 60000), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_done());
    own = holder("a", 60000);
    token = g.store.log[g.store.count - 1].token;
    SAME(token, 2);
    SAME(rlock_is_held(own->lock), true);
    g.store.checks_by_hand = true;
    scripted_notified(&g.store, "a", 1);
    idle();
    assert_null(out(RLOCK_OP_RENEW));
    scripted_notified(&g.store, "a", token);
    idle();
    SAME(need(RLOCK_OP_RENEW)->token, token);
    assert_string_equal(need(RLOCK_OP_RENEW)->id, "");
}

#endif /* RLOCK__HAS_TOKENS */
#endif /* TESTS_UNIT_TOKENS_H */
