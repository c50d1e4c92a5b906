/* unit_elect.h - rlock_elect.h: one term after the other, through every error and every callback */
#ifndef TESTS_UNIT_ELECT_H
#define TESTS_UNIT_ELECT_H

#define rlock_elect(out, client, options, on_lead, on_step_down, user) \
    VIRTUAL_CALL(rlock_elect(out, client, options, on_lead, on_step_down, user))
#define rlock_elect_resign(election, done, user) \
    VIRTUAL_CALL(rlock_elect_resign(election, done, user))
#define rlock_elect_free(election) VIRTUAL_CALL_VOID(rlock_elect_free(election))

#define CANDIDATES 4

enum { TOLD_LEAD, TOLD_STEP_DOWN, TOLD_DONE, TOLDS };

struct candidate { /* an election, and what it was told */
    rlock_election *election;
    bool gone;        /* it or its client was freed: nothing may be called any more */
    int count[TOLDS]; /* of each callback */
    int resigned;     /* accepted */
    rlock_event last[TOLDS];
    int64_t at_us[TOLDS];
    void (*react)(struct candidate *candidate, int told);
    int react_to; /* which callback */
};

static struct {
    struct candidate all[CANDIDATES];
    int count;
    int lines, warnings; /* of the log that are an election's */
    char line[120];      /* the last one, without the client's id */
    void (*react)(void); /* to each */
} ballot;

static void hears(struct candidate *candidate, rlock_election *election, const rlock_event *event,
                  int what) {
    SAME(virtual_depth, 0);
    assert_true(g.loop.entered);
    assert_false(candidate->gone);
    assert_ptr_equal(election, candidate->election);
    candidate->count[what]++;
    candidate->last[what] = *event;
    candidate->at_us[what] = now_us();
    SAME(rlock_elect_leads(election), what == TOLD_LEAD);
    if (candidate->react != NULL && candidate->react_to == what) {
        candidate->react(candidate, what);
    }
}

static void told_lead(rlock_election *election, const rlock_event *event, void *user) {
    struct candidate *candidate = (struct candidate *)user;
    SAME(event->kind, RLOCK_ACQUIRED);
    SAME(event->status, RLOCK_OK);
    SAME(candidate->count[TOLD_LEAD], candidate->count[TOLD_STEP_DOWN]);
    SAME(candidate->resigned, 0);
    hears(candidate, election, event, TOLD_LEAD);
}

static void told_step_down(rlock_election *election, const rlock_event *event, void *user) {
    struct candidate *candidate = (struct candidate *)user;
    SAME(event->kind == RLOCK_LOST, event->reason != RLOCK_REASON_NONE);
    SAME(candidate->count[TOLD_LEAD], candidate->count[TOLD_STEP_DOWN] + 1);
    hears(candidate, election, event, TOLD_STEP_DOWN);
}

static void told_done(rlock_election *election, const rlock_event *event, void *user) {
    struct candidate *candidate = (struct candidate *)user;
    SAME(event->kind, RLOCK_RELEASED);
    SAME(candidate->count[TOLD_LEAD], candidate->count[TOLD_STEP_DOWN]);
    SAME(candidate->count[TOLD_DONE], 0);
    SAME(candidate->resigned, 1);
    hears(candidate, election, event, TOLD_DONE);
}

static void election_log(void *user, int level, const char *line) {
    const char *words = strstr(line, "election: ");
    on_log(user, level, line);
    if (words != NULL) {
        ballot.lines++;
        ballot.warnings += level == RLOCK_LOG_WARNING ? 1 : 0;
        snprintf(ballot.line, sizeof ballot.line, "%s", words + strlen("election: "));
        if (ballot.react != NULL) {
            ballot.react();
        }
    }
}

static int setup_election(void **state) {
    setup_stopped(state);
    memset(&ballot, 0, sizeof ballot);
    g.config.log = election_log;
    start();
    return 0;
}

static int teardown_election(void **state) {
    int i;
    for (i = 0; i < ballot.count && !virtual_torn(&g.loop); i++) {
        ballot.all[i].gone = true;
        rlock_elect_free(ballot.all[i].election);
    }
    return teardown(state);
}

static struct candidate *candidate_with(const rlock_options *options) {
    struct candidate *candidate = &ballot.all[ballot.count++];
    SAME(rlock_elect(&candidate->election, g.client, options, told_lead, told_step_down, candidate),
         RLOCK_OK);
    idle();
    return candidate;
}

static struct candidate *candidate_new(void) {
    rlock_options options = options_for("leader");
    return candidate_with(&options);
}

static struct candidate *leader_new(void) {
    struct candidate *candidate = candidate_new();
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(candidate->count[TOLD_LEAD], 1);
    return candidate;
}

static int candidate_resign(struct candidate *candidate) {
    int status = rlock_elect_resign(candidate->election, told_done, candidate);
    candidate->resigned += status == RLOCK_OK ? 1 : 0;
    assert_false(status == RLOCK_OK && rlock_elect_leads(candidate->election));
    return status;
}

static void candidate_free(struct candidate *candidate) {
    rlock_election *election = candidate->election;
    candidate->gone = true;
    candidate->election = NULL;
    rlock_elect_free(election);
}

static void ballot_client_free(void) {
    int i;
    for (i = 0; i < ballot.count; i++) {
        ballot.all[i].gone = true;
    }
    free_client();
}

static int status_of(const struct candidate *candidate) {
    return rlock_elect_status(candidate->election, NULL);
}

/* Runs until the next acquire is submitted; returns after how many ms. */
static int64_t asks_again(void) {
    int64_t from_us = now_us();
    int before = asked(RLOCK_OP_ACQUIRE), i;
    for (i = 0; i < 100000 && asked(RLOCK_OP_ACQUIRE) == before; i++) {
        run_ms(1);
    }
    SAME(asked(RLOCK_OP_ACQUIRE), before + 1);
    return (now_us() - from_us) / 1000;
}

/* The next renewal, or look, finds the key so. */
static void lose(const struct candidate *candidate, rlock_outcome outcome) {
    int before = candidate->count[TOLD_STEP_DOWN], i;
    always(RLOCK_OP_RENEW, scripted_plain(outcome));
    for (i = 0; i < WATCHDOG_MS && candidate->count[TOLD_STEP_DOWN] == before; i++) {
        run_ms(1);
    }
    SAME(candidate->count[TOLD_STEP_DOWN], before + 1);
    g.store.automatic[RLOCK_OP_RENEW] = false;
}

static void counts(const struct candidate *candidate, int leads, int steps, int dones) {
    SAME(candidate->count[TOLD_LEAD], leads);
    SAME(candidate->count[TOLD_STEP_DOWN], steps);
    SAME(candidate->count[TOLD_DONE], dones);
}

/* ------------------------------------------------------------------------------------------------
 * Terms.
 */

static void leader_leads_from_its_grant_and_again_after_a_loss(void **state) {
    struct candidate *candidate = candidate_new();
    (void)state;
    counts(candidate, 0, 0, 0);
    assert_false(rlock_elect_leads(candidate->election));
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    counts(candidate, 0, 0, 0);
    scripted_woken(&g.store, "leader");
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    counts(candidate, 1, 0, 0);
    assert_true(rlock_elect_leads(candidate->election));
    lose(candidate, RLOCK_OUTCOME_STOLEN);
    counts(candidate, 1, 1, 0);
    SAME(candidate->last[TOLD_STEP_DOWN].reason, RLOCK_REASON_STOLEN);
    (void)retried(RLOCK_OP_ACQUIRE);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    counts(candidate, 2, 1, 0);
    assert_true(rlock_elect_leads(candidate->election));
}

static void leader_steps_down_exactly_at_the_local_deadline_with_the_store_silent(void **state) {
    int64_t sent_us;
    struct candidate *candidate = candidate_new();
    (void)state;
    sent_us = need(RLOCK_OP_ACQUIRE)->at_us;
    run_ms(5);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    run_ms(2 * WATCHDOG_MS);
    counts(candidate, 1, 1, 0);
    SAME(candidate->at_us[TOLD_STEP_DOWN], until_us(sent_us, WATCHDOG_MS));
    SAME(candidate->last[TOLD_STEP_DOWN].reason, RLOCK_REASON_EXPIRED);
}

static void who_lost_the_lead_campaigns_after_a_pause_so_that_others_come_first(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    lose(candidate, RLOCK_OUTCOME_GONE);
    counts(candidate, 1, 1, 0);
    SAME(candidate->last[TOLD_STEP_DOWN].reason, RLOCK_REASON_DELETED);
    SAME(status_of(candidate), RLOCK_OK);
    BETWEEN(asks_again(), RLOCK_ELECT_PAUSE_MS / 2, RLOCK_ELECT_PAUSE_MS + 1);
}

static void fence_is_that_of_the_term_and_0_without_the_lead(void **state) {
    rlock_options options = options_for("leader");
    struct candidate *candidate;
    (void)state;
    options.fencing = true;
    candidate = candidate_with(&options);
    SAME(rlock_elect_fence(candidate->election), 0);
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(7));
    SAME(rlock_elect_fence(candidate->election), 7);
    SAME(candidate->last[TOLD_LEAD].fence, 7);
    SAME(candidate_resign(candidate), RLOCK_OK);
    SAME(rlock_elect_fence(candidate->election), 0);
    idle();
    SAME(candidate->last[TOLD_STEP_DOWN].fence, 7);
    SAME(rlock_elect_fence(NULL), 0);
    assert_false(rlock_elect_leads(NULL));
}

static void every_kind_may_lead_and_resign(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_READ,
                                       RLOCK_KIND_WRITE, RLOCK_KIND_SEMAPHORE};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct candidate *candidate = &ballot.all[0];
        ballot.count = 0;
        memset(candidate, 0, sizeof *candidate);
        g.kind = kinds[i];
        (void)leader_new();
        run_ms(20);
        SAME(candidate_resign(candidate), RLOCK_OK);
        idle();
        counts(candidate, 1, 1, 0);
        reply(RLOCK_OP_RELEASE, scripted_done());
        counts(candidate, 1, 1, 1);
        candidate_free(candidate);
    }
}

/* A stopped process: the loop has not called anything yet, and the answer is right all the same. */
static void leader_that_was_stopped_for_longer_than_its_lease_knows_at_once(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    stall_ms(WATCHDOG_MS);
    assert_false(rlock_elect_leads(candidate->election));
    counts(candidate, 1, 0, 0);
    idle();
    counts(candidate, 1, 1, 0);
}

static void blocks_the_loop(struct candidate *candidate, int what) {
    (void)candidate, (void)what;
    stall_ms(WATCHDOG_MS);
}

/* It leads and loses the lead at once, ever again: others get it more and more often, and the log
 * says why, once until a term begins well. */
static void
leader_whose_callback_blocks_is_warned_of_and_campaigns_more_and_more_seldom(void **state) {
    struct candidate *candidate = candidate_new();
    int64_t pause_ms = 0;
    int i;
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    candidate->react = blocks_the_loop;
    candidate->react_to = TOLD_LEAD;
    for (i = 0; i < 6; i++) {
        reply(RLOCK_OP_ACQUIRE, scripted_done());
        idle();
        counts(candidate, i + 1, i + 1, 0);
        SAME(candidate->last[TOLD_STEP_DOWN].reason, RLOCK_REASON_EXPIRED);
        SAME(ballot.warnings, 1);
        pause_ms = asks_again();
    }
    BETWEEN(pause_ms, RLOCK_ELECT_PAUSE_MAX_MS / 2, RLOCK_ELECT_PAUSE_MAX_MS + 1);
    candidate->react = NULL;
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    run_ms(WATCHDOG_MS - 1); /* nothing is renewed, and that is another cause */
    idle();
    counts(candidate, 7, 7, 0);
    SAME(ballot.warnings, 1);
    assert_string_equal(ballot.line, "steps down: expired");
    BETWEEN(asks_again(), 1, RLOCK_ELECT_PAUSE_MS + 1);
    candidate->react = blocks_the_loop;
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    idle();
    SAME(ballot.warnings, 2);
    assert_string_equal(
        ballot.line,
        "steps down: expired: the loop did not run from on_lead to the end of the lease");
}

static void lead_goes_from_one_election_of_a_client_to_the_other_when_it_resigns(void **state) {
    struct candidate *first = leader_new(), *second = candidate_new();
    (void)state;
    counts(second, 0, 0, 0);
    SAME(candidate_resign(first), RLOCK_OK);
    idle();
    counts(first, 1, 1, 1);
    counts(second, 1, 0, 0);
    BETWEEN(second->at_us[TOLD_LEAD], first->at_us[TOLD_STEP_DOWN], now_us());
    SAME(asked(RLOCK_OP_RELEASE), 0); /* by a local hand-over */
}

/* ------------------------------------------------------------------------------------------------
 * Errors: each is survived.
 */

static const struct {
    rlock_fault fault;
    int status; /* RLOCK_OK: the acquire itself tries again */
} survived[] = {{RLOCK_FAULT_DOWN, RLOCK_OK},
                {RLOCK_FAULT_UNKNOWN, RLOCK_OK},
                {RLOCK_FAULT_BUSY, RLOCK_OK},
                {RLOCK_FAULT_AUTH, RLOCK_ERR_AUTH},
                {RLOCK_FAULT_TYPE, RLOCK_ERR_WRONG_TYPE},
                {RLOCK_FAULT_NOMEM, RLOCK_ERR_NOMEM},
                {RLOCK_FAULT_OTHER, RLOCK_ERR_SERVER}};

static void every_error_of_an_acquire_is_survived(void **state) {
    size_t i;
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    for (i = 0; i < sizeof survived / sizeof *survived; i++) {
        struct candidate *candidate = &ballot.all[0];
        const char *text = NULL;
        ballot.count = 0;
        memset(candidate, 0, sizeof *candidate);
        (void)candidate_new();
        reply(RLOCK_OP_ACQUIRE, scripted_fault(survived[i].fault, "some words"));
        SAME(rlock_elect_status(candidate->election, &text), survived[i].status);
        assert_string_equal(text, survived[i].status != RLOCK_OK ? "some words" : "");
        counts(candidate, 0, 0, 0);
        (void)retried(RLOCK_OP_ACQUIRE);
        reply(RLOCK_OP_ACQUIRE, scripted_done());
        counts(candidate, 1, 0, 0);
        SAME(rlock_elect_status(candidate->election, &text), RLOCK_OK);
        assert_string_equal(text, "");
        candidate_free(candidate);
        idle();
    }
}

/* The watchdog tries until the deadline; then it campaigns, as soon as it may again. */
static void every_error_of_a_renewal_costs_the_term_at_most(void **state) {
    size_t i;
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    for (i = 0; i < sizeof survived / sizeof *survived; i++) {
        struct candidate *candidate = &ballot.all[0];
        ballot.count = 0;
        memset(candidate, 0, sizeof *candidate);
        (void)leader_new();
        always(RLOCK_OP_RENEW, scripted_fault(survived[i].fault, "some words"));
        always(RLOCK_OP_ACQUIRE, scripted_fault(survived[i].fault, "some words"));
        run_ms(10000);
        counts(candidate, 1, 1, 0);
        SAME(status_of(candidate), survived[i].status);
        always(RLOCK_OP_RENEW, scripted_done());
        always(RLOCK_OP_ACQUIRE, scripted_done());
        scripted_up(&g.store);
        run_ms(RLOCK_ELECT_PAUSE_MAX_MS + 1000);
        counts(candidate, 2, 1, 0);
        candidate_free(candidate);
        g.store.automatic[RLOCK_OP_ACQUIRE] = false;
        idle();
    }
}

static void pauses_double_up_to_two_seconds_and_begin_anew_with_a_term(void **state) {
    struct candidate *candidate = candidate_new();
    int64_t ms = RLOCK_ELECT_PAUSE_MS;
    int i;
    (void)state;
    for (i = 0; i < 12; i++) {
        reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
        BETWEEN(asks_again(), ms / 2, ms + 1);
        ms = ms * 2 > RLOCK_ELECT_PAUSE_MAX_MS ? RLOCK_ELECT_PAUSE_MAX_MS : ms * 2;
    }
    SAME(ms, RLOCK_ELECT_PAUSE_MAX_MS);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    lose(candidate, RLOCK_OUTCOME_GONE);
    counts(candidate, 1, 1, 0);
    BETWEEN(asks_again(), RLOCK_ELECT_PAUSE_MS / 2, RLOCK_ELECT_PAUSE_MS + 1);
}

static void campaign_that_lasts_is_a_good_one(void **state) {
    struct candidate *candidate = candidate_new();
    int i, lines;
    (void)state;
    for (i = 0; i < 8; i++) {
        reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
        (void)asks_again();
    }
    lines = ballot.lines;
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(status_of(candidate), RLOCK_ERR_AUTH);
    run_ms(RLOCK_ELECT_PAUSE_MAX_MS + 1);
    SAME(status_of(candidate), RLOCK_OK);
    SAME(ballot.lines, lines + 1);
    assert_string_equal(ballot.line, "campaigns");
    while (out(RLOCK_OP_ACQUIRE) == NULL) {
        run_ms(1000);
    }
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
    BETWEEN(asks_again(), RLOCK_ELECT_PAUSE_MS / 2, RLOCK_ELECT_PAUSE_MS + 1);
}

static void acquire_for_which_there_is_no_memory_is_tried_again(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    virtual_memory.none = true;
    run_ms(WATCHDOG_MS + RLOCK_ELECT_PAUSE_MS); /* what it held is still to be cleaned up */
    counts(candidate, 1, 1, 0);
    SAME(status_of(candidate), RLOCK_ERR_NOMEM);
    run_ms(1000);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    virtual_memory.none = false;
    scripted_settle(&g.store);
    run_ms(RLOCK_ELECT_PAUSE_MAX_MS);
    counts(candidate, 2, 1, 0);
    SAME(status_of(candidate), RLOCK_OK);
}

static void log_says_each_change_once_and_no_failure_twice(void **state) {
    struct candidate *candidate = candidate_new();
    int i;
    (void)state;
    SAME(ballot.lines, 1);
    assert_string_equal(ballot.line, "campaigns");
    for (i = 0; i < 5; i++) {
        reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
        (void)asks_again();
        SAME(ballot.lines, 2);
        assert_string_equal(ballot.line, "failed, will retry: the user or a certificate is "
                                         "refused");
    }
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_TYPE, "no"));
    SAME(ballot.lines, 3);
    SAME(ballot.warnings, 2);
    (void)asks_again();
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(ballot.lines, 4);
    assert_string_equal(ballot.line, "leads");
    lose(candidate, RLOCK_OUTCOME_GONE);
    SAME(ballot.lines, 5);
    assert_string_equal(ballot.line, "steps down: deleted");
    (void)asks_again();
    SAME(ballot.lines, 6);
    assert_string_equal(ballot.line, "campaigns");
    SAME(candidate_resign(candidate), RLOCK_OK);
    SAME(ballot.lines, 7);
    assert_string_equal(ballot.line, "resigns");
    idle();
    SAME(ballot.warnings, 2);
}

/* ------------------------------------------------------------------------------------------------
 * Resigning.
 */

static unsigned flushes_before;

/* The store has the release, perhaps; it has not left. */
static void nothing_has_left(struct candidate *candidate, int what) {
    (void)candidate, (void)what;
    SAME(g.store.flushes, flushes_before);
}

static void leader_that_resigns_steps_down_before_its_release_leaves(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    run_ms(50);
    candidate->react = nothing_has_left;
    candidate->react_to = TOLD_STEP_DOWN;
    flushes_before = g.store.flushes;
    SAME(candidate_resign(candidate), RLOCK_OK);
    counts(candidate, 1, 0, 0);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    idle();
    counts(candidate, 1, 1, 0);
    SAME(candidate->last[TOLD_STEP_DOWN].kind, RLOCK_RELEASED);
    SAME(candidate->last[TOLD_STEP_DOWN].status, RLOCK_OK);
    reply(RLOCK_OP_RELEASE, scripted_done());
    counts(candidate, 1, 1, 1);
    SAME(candidate->last[TOLD_DONE].status, RLOCK_OK);
    SAME(candidate_resign(candidate), RLOCK_ERR_STATE);
    SAME(status_of(candidate), RLOCK_OK);
    run_ms(100000);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    SAME(asked(RLOCK_OP_RELEASE), 1);
    counts(candidate, 1, 1, 1);
}

static void candidate_that_does_not_lead_resigns_without_stepping_down(void **state) {
    struct candidate *waits = candidate_new(), *pauses;
    rlock_options options = options_for("other");
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    pauses = candidate_with(&options);
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
    SAME(candidate_resign(waits), RLOCK_OK);
    SAME(candidate_resign(pauses), RLOCK_OK);
    SAME(candidate_resign(pauses), RLOCK_ERR_STATE);
    counts(waits, 0, 0, 0);
    counts(pauses, 0, 0, 0);
    idle();
    counts(waits, 0, 0, 1);
    counts(pauses, 0, 0, 1);
    SAME(waits->last[TOLD_DONE].status, RLOCK_OK);
    SAME(pauses->last[TOLD_DONE].status, RLOCK_OK);
    SAME(status_of(pauses), RLOCK_OK);
    always(RLOCK_OP_ACQUIRE, scripted_done());
    run_ms(100000);
    counts(waits, 0, 0, 1);
    counts(pauses, 0, 0, 1);
    SAME(stats().held, 0);
}

/* Granted, and resigned before it was told so: it never led. */
static void grant_that_was_not_delivered_is_released_on_resign(void **state) {
    struct candidate *first = candidate_new(), *second;
    rlock_options options = options_for("other");
    (void)state;
    second = candidate_with(&options);
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_ACQUIRE), scripted_done());
    virtual_iteration(&g.loop, now_us()); /* both are granted, and told in this dispatch */
    counts(first, 1, 0, 0);
    counts(second, 1, 0, 0);
    SAME(candidate_resign(first), RLOCK_OK);
    SAME(candidate_resign(second), RLOCK_OK);
    scripted_settle(&g.store);
    counts(first, 1, 1, 1);
    counts(second, 1, 1, 1);
    SAME(stats().held, 0);
}

static void release_that_is_not_answered_ends_a_resignation_as_unknown(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    SAME(candidate_resign(candidate), RLOCK_OK);
    idle();
    counts(candidate, 1, 1, 0);
    reply(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_UNKNOWN, NULL));
    run_ms(2 * WATCHDOG_MS);
    counts(candidate, 1, 1, 1);
    SAME(candidate->last[TOLD_DONE].status, RLOCK_ERR_UNKNOWN);
}

/* Between the call and the callback of it the hold is lost. */
static void who_loses_the_lead_while_it_resigns_steps_down_once(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    SAME(candidate_resign(candidate), RLOCK_OK);
    stall_ms(WATCHDOG_MS);
    scripted_settle(&g.store);
    run_ms(10);
    counts(candidate, 1, 1, 1);
    SAME(candidate->last[TOLD_DONE].status, RLOCK_ERR_LOST);
    run_ms(10000);
    counts(candidate, 1, 1, 1);
}

/* The deadline has passed, and on_lost was not called yet. */
static void leader_that_lost_unknowingly_resigns_and_is_notified_of_both(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    stall_ms(WATCHDOG_MS);
    SAME(candidate_resign(candidate), RLOCK_OK);
    SAME(candidate_resign(candidate), RLOCK_ERR_STATE);
    idle();
    counts(candidate, 1, 1, 1);
    SAME(candidate->last[TOLD_STEP_DOWN].reason, RLOCK_REASON_EXPIRED);
    SAME(candidate->last[TOLD_DONE].status, RLOCK_ERR_LOST);
    run_ms(10000);
    counts(candidate, 1, 1, 1);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
}

static void free_it(struct candidate *candidate, int what) {
    (void)what;
    candidate_free(candidate);
}

static void election_freed_between_two_callbacks_of_one_moment_is_notified_no_more(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    candidate->react = free_it;
    candidate->react_to = TOLD_STEP_DOWN;
    stall_ms(WATCHDOG_MS);
    SAME(candidate_resign(candidate), RLOCK_OK);
    idle();
    counts(candidate, 1, 1, 0);
}

/* ------------------------------------------------------------------------------------------------
 * The end of the client.
 */

static void shutdown_of_the_client_ends_each_election(void **state) {
    struct candidate *leads = leader_new(), *waits, *pauses;
    rlock_election *late = NULL;
    rlock_options options = options_for("other");
    (void)state;
    waits = candidate_with(&options);
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    options.key = "third";
    pauses = candidate_with(&options);
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    idle();
    SAME(g.done_count, 1);
    counts(leads, 1, 1, 0);
    SAME(leads->last[TOLD_STEP_DOWN].reason, RLOCK_REASON_CLOSED);
    counts(waits, 0, 0, 0);
    run_ms(20000);
    counts(pauses, 0, 0, 0);
    SAME(status_of(leads), RLOCK_ERR_CLOSED);
    SAME(status_of(waits), RLOCK_ERR_CLOSED);
    SAME(status_of(pauses), RLOCK_ERR_CLOSED);
    SAME(candidate_resign(leads), RLOCK_ERR_CLOSED);
    SAME(candidate_resign(waits), RLOCK_ERR_CLOSED);
    SAME(candidate_resign(pauses), RLOCK_ERR_CLOSED);
    SAME(rlock_elect(&late, g.client, &options, told_lead, told_step_down, NULL), RLOCK_ERR_CLOSED);
}

static void shutdown_while_a_leader_resigns_notifies_each_once(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(candidate_resign(candidate), RLOCK_OK);
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    idle();
    counts(candidate, 1, 1, 1);
    SAME(g.done_count, 1);
}

/* A leader is a holder: it resigns, or leads on until the time of the drain is over. */
static void drain_waits_for_a_leader_and_ends_the_others(void **state) {
    struct candidate *resigns = leader_new(), *leads, *waits;
    rlock_options options = options_for("other");
    (void)state;
    leads = candidate_with(&options);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    options.key = "third";
    waits = candidate_with(&options);
    reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    always(RLOCK_OP_RENEW, scripted_done());
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(rlock_client_drain(g.client, 20000, on_done, &g), RLOCK_OK);
    idle();
    SAME(status_of(waits), RLOCK_ERR_CLOSED);
    run_ms(2 * WATCHDOG_MS);
    assert_true(rlock_elect_leads(resigns->election));
    SAME(candidate_resign(resigns), RLOCK_OK);
    idle();
    counts(resigns, 1, 1, 1);
    SAME(resigns->last[TOLD_STEP_DOWN].kind, RLOCK_RELEASED);
    counts(leads, 1, 0, 0);
    SAME(g.done_count, 0);
    run_ms(20000);
    counts(leads, 1, 1, 0);
    SAME(leads->last[TOLD_STEP_DOWN].reason, RLOCK_REASON_CLOSED);
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
}

/* Nothing is held or waited for in a pause, and it campaigns all the same. */
static void election_keeps_its_loop_also_when_it_pauses(void **state) {
    struct candidate *candidate = candidate_new();
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    assert_false(rests());
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
    SAME(stats().waiting, 0);
    assert_false(rests());
    run_ms(RLOCK_ELECT_PAUSE_MS);
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
    assert_false(rests());
    SAME(candidate_resign(candidate), RLOCK_OK);
    idle();
    idle();
    assert_true(rests());
    candidate = candidate_new();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
    candidate_free(candidate);
    idle();
    assert_true(rests());
}

static void resignation_of_a_leader_that_is_being_shut_down_reports_both(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_done());
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    SAME(candidate_resign(candidate), RLOCK_OK);
    idle();
    counts(candidate, 1, 1, 1);
    SAME(candidate->last[TOLD_STEP_DOWN].reason, RLOCK_REASON_CLOSED);
    SAME(g.done_count, 1);
}

enum { STANDS_BY, PAUSES, LEADS, RESIGNS, RELEASES, HAS_RESIGNED, STANDINGS };

static struct candidate *bring_candidate_to(int standing) {
    struct candidate *candidate = standing < LEADS ? candidate_new() : leader_new();
    if (standing == STANDS_BY) {
        reply(RLOCK_OP_ACQUIRE, scripted_held(60000));
    } else if (standing == PAUSES) {
        reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "no"));
    } else if (standing >= RESIGNS) {
        SAME(candidate_resign(candidate), RLOCK_OK);
    }
    if (standing >= RELEASES) {
        idle();
        counts(candidate, 1, 1, 0);
    }
    if (standing == HAS_RESIGNED) {
        reply(RLOCK_OP_RELEASE, scripted_done());
        counts(candidate, 1, 1, 1);
    }
    return candidate;
}

static void election_that_is_freed_in_any_state_is_notified_of_nothing_more(void **state) {
    int standing;
    (void)state;
    for (standing = 0; standing < STANDINGS; standing++) {
        struct candidate before, *candidate = &ballot.all[0];
        ballot.count = 0;
        memset(candidate, 0, sizeof *candidate);
        (void)bring_candidate_to(standing);
        before = *candidate;
        candidate_free(candidate);
        scripted_settle(&g.store);
        run_ms(10000);
        SAME(memcmp(before.count, candidate->count, sizeof before.count), 0);
        SAME(stats().held + stats().waiting + stats().cleaning, 0);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

static void client_that_is_freed_in_any_state_tells_nothing_more(void **state) {
    int standing;
    (void)state;
    for (standing = 0; standing < STANDINGS; standing++) {
        struct candidate before, *candidate = &ballot.all[0];
        ballot.count = 0;
        memset(candidate, 0, sizeof *candidate);
        (void)bring_candidate_to(standing);
        before = *candidate;
        ballot_client_free();
        run_ms(10000);
        SAME(memcmp(before.count, candidate->count, sizeof before.count), 0);
        assert_false(rlock_elect_leads(candidate->election));
        SAME(candidate_resign(candidate), standing >= RESIGNS ? RLOCK_ERR_STATE : RLOCK_ERR_CLOSED);
        candidate_free(candidate);
        start();
    }
}

/* ------------------------------------------------------------------------------------------------
 * Every call from every callback.
 */

enum { BY_LOSS, BY_RESIGNATION, BY_SHUTDOWN, ENDINGS };
enum { DO_FREE, DO_RESIGN, DO_CLIENT_FREE, DO_SHUTDOWN, DO_ELECT, DO_READ, DEEDS };

static int deed, deeds;

static void do_deed(struct candidate *candidate, int what) {
    rlock_options options = options_for("other");
    int deed_status;
    (void)what;
    candidate->react = NULL;
    deeds++;
    switch (deed) {
    case DO_FREE: candidate_free(candidate); break;
    case DO_RESIGN: (void)candidate_resign(candidate); break;
    case DO_CLIENT_FREE: ballot_client_free(); break;
    case DO_SHUTDOWN: (void)rlock_client_shutdown(g.client, 0, on_done, &g); break;
    case DO_ELECT:
        deed_status = rlock_elect(&ballot.all[ballot.count].election, g.client, &options, told_lead,
                                  told_step_down, &ballot.all[ballot.count]);
        ballot.count += deed_status == RLOCK_OK ? 1 : 0;
        break;
    default: (void)status_of(candidate); break;
    }
}

static void end_term(struct candidate *candidate, int ending) {
    if (candidate->gone) {
        return;
    }
    if (ending == BY_LOSS) {
        always(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
        run_ms(WATCHDOG_MS / 3 + 1);
        always(RLOCK_OP_RENEW, scripted_done());
    } else if (ending == BY_RESIGNATION) {
        (void)candidate_resign(candidate);
    } else {
        (void)rlock_client_shutdown(g.client, 0, on_done, &g);
    }
}

static void every_call_may_be_made_from_every_callback(void **state) {
    int what, ending;
    (void)state;
    deeds = 0;
    for (deed = 0; deed < DEEDS; deed++) {
        for (what = 0; what < TOLDS; what++) {
            for (ending = 0; ending < ENDINGS; ending++) {
                struct candidate *candidate = &ballot.all[0];
                memset(&ballot, 0, sizeof ballot);
                always(RLOCK_OP_RELEASE, scripted_done());
                (void)candidate_new();
                candidate->react = do_deed;
                candidate->react_to = what;
                reply(RLOCK_OP_ACQUIRE, scripted_done());
                end_term(candidate, ending);
                if (g.client != NULL) {
                    scripted_settle(&g.store);
                    run_ms(20000);
                }
                if (!candidate->gone && (candidate->resigned || ending == BY_SHUTDOWN)) {
                    SAME(candidate->count[TOLD_STEP_DOWN], candidate->count[TOLD_LEAD]);
                    SAME(candidate->count[TOLD_DONE], candidate->resigned);
                }
                while (ballot.count > 0) {
                    candidate_free(&ballot.all[--ballot.count]);
                }
                if (g.client != NULL) {
                    run_ms(10000);
                    free_client();
                }
                memset(g.store.automatic, 0, sizeof g.store.automatic);
                g.store.count = 0;
                start();
            }
        }
    }
    SAME(deeds, DEEDS * (2 * ENDINGS + 1)); /* only a resignation ends with `done` */
}

static jmp_buf out_of_step_down;

static void jump_away(struct candidate *candidate, int what) {
    (void)candidate, (void)what;
    longjmp(out_of_step_down, 1);
}

/* As by an exception. The candidate does not lead, and does not keep the lead either. */
static void release_goes_out_though_step_down_did_not_return(void **state) {
    struct candidate *candidate = leader_new();
    (void)state;
    candidate->react = jump_away;
    candidate->react_to = TOLD_STEP_DOWN;
    SAME(candidate_resign(candidate), RLOCK_OK);
    if (setjmp(out_of_step_down) == 0) {
        idle();
        fail_msg("it was not called");
    }
    g.loop.entered = false;
    scripted_settle(&g.store);
    counts(candidate, 1, 1, 1);
    SAME(candidate->last[TOLD_DONE].status, RLOCK_OK);
    candidate_free(candidate);
    g.client->frames = 0; /* the one that was jumped over: C has no exceptions */
}

/* ------------------------------------------------------------------------------------------------
 * What is refused; memory; fork; a storm.
 */

static void wrong_arguments_of_an_election_are_refused(void **state) {
    rlock_options options = options_for("leader");
    rlock_election *election = (rlock_election *)&options;
    const char *text = NULL;
    (void)state;
    SAME(rlock_elect(NULL, g.client, &options, told_lead, told_step_down, NULL), RLOCK_ERR_ARG);
    SAME(rlock_elect(&election, NULL, &options, told_lead, told_step_down, NULL), RLOCK_ERR_ARG);
    assert_null(election);
    SAME(rlock_elect(&election, g.client, NULL, told_lead, told_step_down, NULL), RLOCK_ERR_ARG);
    SAME(rlock_elect(&election, g.client, &options, NULL, told_step_down, NULL), RLOCK_ERR_ARG);
    SAME(rlock_elect(&election, g.client, &options, told_lead, NULL, NULL), RLOCK_ERR_ARG);
    options.on_lost = owner_on_event;
    SAME(rlock_elect(&election, g.client, &options, told_lead, told_step_down, NULL),
         RLOCK_ERR_ARG);
    options = options_for("leader");
    options.reentrant = true;
    SAME(rlock_elect(&election, g.client, &options, told_lead, told_step_down, NULL),
         RLOCK_ERR_ARG);
    options = options_for("");
    SAME(rlock_elect(&election, g.client, &options, told_lead, told_step_down, NULL),
         RLOCK_ERR_ARG);
    SAME(rlock_elect_resign(NULL, NULL, NULL), RLOCK_ERR_ARG);
    SAME(rlock_elect_status(NULL, &text), RLOCK_ERR_ARG);
    assert_string_equal(text, "");
    rlock_elect_free(NULL);
    SAME(stats().handles, 0);
}

static void done_of_a_resignation_may_be_left_out(void **state) {
    struct candidate *candidate = leader_new(), *other;
    rlock_options options = options_for("other");
    (void)state;
    other = candidate_with(&options);
    SAME(rlock_elect_resign(candidate->election, NULL, NULL), RLOCK_OK);
    SAME(rlock_elect_resign(other->election, NULL, NULL), RLOCK_OK);
    scripted_settle(&g.store);
    counts(candidate, 1, 1, 0);
    counts(other, 0, 0, 0);
}

/* The first round has a client that kept nothing yet: each allocation of it fails in turn. */
static void election_without_memory_is_refused_or_goes_on(void **state) {
    uint64_t n;
    bool failed = true;
    (void)state;
    for (n = 1; failed; n++) {
        struct candidate *candidate = &ballot.all[0];
        rlock_options options = options_for("leader");
        int status;
        memset(candidate, 0, sizeof *candidate);
        virtual_memory.fail_at = n;
        virtual_memory.failed = false;
        status = rlock_elect(&candidate->election, g.client, &options, told_lead, told_step_down,
                             candidate);
        ok_or_nomem(status);
        if (status == RLOCK_OK) {
            scripted_settle(&g.store);
            run_ms(RLOCK_ELECT_PAUSE_MAX_MS);
            counts(candidate, 1, 0, 0);
            while ((status = candidate_resign(candidate)) != RLOCK_OK) {
                SAME(status, RLOCK_ERR_NOMEM);
                assert_true(rlock_elect_leads(candidate->election));
            }
            run_ms(10);
            counts(candidate, 1, 1, 1);
            candidate_free(candidate);
        }
        failed = virtual_memory.failed;
        virtual_memory.fail_at = 0;
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        free_client();
        start();
    }
    BETWEEN(n, 5, 100);
}

static int child_of_leader(struct candidate *candidate) {
    rlock_options options = options_for("new");
    rlock_election *mine = candidate->election, *other = NULL;
    size_t requests = g.store.count;
    if (rlock_elect_leads(mine) || rlock_elect_fence(mine) != 0) {
        return 1;
    }
    if (rlock_elect_resign(mine, told_done, candidate) != RLOCK_ERR_STATE) {
        return 2;
    }
    if (rlock_elect(&other, g.client, &options, told_lead, told_step_down, NULL) !=
            RLOCK_ERR_STATE ||
        other != NULL) {
        return 3;
    }
    rlock_elect_free(mine);
    if (rlock_elect_leads(mine) || g.store.count != requests || virtual_memory.live == 0) {
        return 4;
    }
    return candidate->count[TOLD_STEP_DOWN] == 0 ? 0 : 5;
}

static void child_of_a_leader_does_not_lead_and_touches_nothing(void **state) {
    struct candidate *candidate = leader_new();
    int status = -1;
    pid_t child = fork();
    (void)state;
    if (child == 0) {
        _exit(child_of_leader(candidate));
    }
    SAME(waitpid(child, &status, 0), child);
    SAME(status, 0);
    assert_true(rlock_elect_leads(candidate->election));
}

/* Whatever the store answers, whenever: hears() counts. */
static const char *forks_at_line; /* of the log of an election */

static void fork_at_line(void) {
    if (forks_at_line != NULL && strcmp(ballot.line, forks_at_line) == 0) {
        fork_here();
    }
}

/* The child that a hook made returns from it, and is told nothing of what was logged. */
static void child_of_a_log_line_does_not_hear_that_it_leads_or_steps_down(void **state) {
    static const char *const lines[] = {"leads", "steps down: expired"};
    int i, status = -1;
    (void)state;
    for (i = 0; i < 2; i++) {
        struct candidate *candidate;
        memset(&forked, 0, sizeof forked);
        forks_at_line = lines[i];
        ballot.react = fork_at_line;
        candidate = candidate_new();
        scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
        idle();
        if (!forked.done) {
            run_ms(WATCHDOG_MS + 1);
        }
        if (forked.done && forked.child == 0) {
            _exit(candidate->count[TOLD_LEAD] * 2 + candidate->count[TOLD_STEP_DOWN] - 2 * i);
        }
        assert_true(forked.done);
        SAME(waitpid(forked.child, &status, 0), forked.child);
        SAME(status, 0);
        counts(candidate, 1, i, 0);
        candidate_free(candidate);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

static void step_down_forks(struct candidate *candidate, int what) {
    (void)candidate, (void)what;
    fork_here();
}

/* The hold is lost while the leader resigns: `done` follows on_step_down, but not in the child. */
static void child_of_a_step_down_does_not_hear_of_the_resignation(void **state) {
    struct candidate *candidate = leader_new();
    int status = -1;
    (void)state;
    memset(&forked, 0, sizeof forked);
    candidate->react = step_down_forks;
    candidate->react_to = TOLD_STEP_DOWN;
    stall_ms(WATCHDOG_MS + 1);
    SAME(candidate_resign(candidate), RLOCK_OK);
    idle();
    if (forked.done && forked.child == 0) {
        _exit(candidate->count[TOLD_DONE]);
    }
    assert_true(forked.done);
    SAME(waitpid(forked.child, &status, 0), forked.child);
    SAME(status, 0);
    counts(candidate, 1, 1, 1);
}

static void never_fires(rlock_timer *timer) {
    (void)timer;
    fail();
}

/* A client has room for sixteen timers at first: with one of these numbers it is that of the
 * election that needs memory. */
static void election_without_memory_for_its_timer_is_not_made(void **state) {
    rlock_timer timers[16];
    rlock_options options = options_for("leader");
    struct candidate *candidate = &ballot.all[0];
    int count, i, status;
    uint64_t nth;
    (void)state;
    for (count = 0; count <= 16; count++) {
        for (i = 0; i < count; i++) {
            memset(&timers[i], 0, sizeof timers[i]);
            SAME(rlock_timer_add(g.client, &timers[i], never_fires), RLOCK_OK);
        }
        for (nth = 1, status = RLOCK_ERR_NOMEM; status != RLOCK_OK; nth++) {
            BETWEEN(nth, 1, 20);
            virtual_memory.fail_at = nth;
            status = rlock_elect(&candidate->election, g.client, &options, told_lead,
                                 told_step_down, candidate);
            virtual_memory.fail_at = 0;
            ok_or_nomem(status);
            SAME(status == RLOCK_OK, candidate->election != NULL);
        }
        candidate_free(candidate);
        free_client();
        start();
    }
}

static void random_answers_tell_each_lead_and_each_end_once(void **state) {
    static const rlock_outcome outcomes[] = {RLOCK_OUTCOME_DONE,   RLOCK_OUTCOME_DONE,
                                             RLOCK_OUTCOME_HELD,   RLOCK_OUTCOME_GONE,
                                             RLOCK_OUTCOME_STOLEN, RLOCK_OUTCOME_FAULT};
    uint64_t seed;
    int leads = 0, dones = 0;
    (void)state;
    for (seed = 1; seed <= 100; seed++) {
        struct candidate *candidate = &ballot.all[0];
        uint64_t random = seed;
        int i;
        memset(&ballot, 0, sizeof ballot);
        (void)candidate_new();
        for (i = 0; i < 40; i++) {
            static const rlock_op ops[] = {RLOCK_OP_ACQUIRE, RLOCK_OP_RENEW, RLOCK_OP_RELEASE};
            rlock_op op = ops[virtual_random(&random) % 3];
            if (out(op) != NULL) {
                rlock_answer answer = scripted_plain(
                    outcomes[virtual_random(&random) % (op == RLOCK_OP_ACQUIRE ? 3 : 6)]);
                if (virtual_random(&random) % 4 == 0 || answer.outcome == RLOCK_OUTCOME_FAULT) {
                    answer = scripted_fault((rlock_fault)(virtual_random(&random) % 7), "words");
                }
                scripted_answer(&g.store, need(op), answer);
            }
            if (virtual_random(&random) % 8 == 0) {
                stall_ms(virtual_random(&random) % 4000);
            }
            if (i == 30 && seed % 2 == 0) {
                (void)candidate_resign(candidate);
            }
            run_ms(virtual_random(&random) % 700);
        }
        scripted_settle(&g.store);
        scripted_up(&g.store);
        run_ms(20000);
        leads += candidate->count[TOLD_LEAD];
        dones += candidate->count[TOLD_DONE];
        SAME(candidate->count[TOLD_DONE], candidate->resigned);
        SAME(rlock_elect_leads(candidate->election), candidate->resigned == 0);
        SAME(candidate->count[TOLD_LEAD] - candidate->count[TOLD_STEP_DOWN],
             candidate->resigned == 0 ? 1 : 0);
        candidate_free(candidate);
        run_ms(10000);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        g.store.count = 0;
    }
    ballot.count = 0;
    BETWEEN(leads, 200, 4000);
    SAME(dones, 50);
}

#endif /* TESTS_UNIT_ELECT_H */
