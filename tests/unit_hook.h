/* unit_hook.h - config.on_event: every kind of report, once, with the right times, in order */
#ifndef TESTS_UNIT_HOOK_H
#define TESTS_UNIT_HOOK_H

#define REPORTS 512

struct noted { /* one report, with copies of what it points to */
    rlock_report report;
    char key[32], text[64], link[16], where[32], client_id[40];
};

static struct {
    struct noted all[REPORTS];
    int count, read;
    int counts[RLOCK_REPORT_REFUSED + 1];
    void (*react)(const rlock_report *report);
} hook;

static void copy_text(char *copy, size_t room, const char *text) {
    snprintf(copy, room, "%s", text != NULL ? text : "");
}

static void on_report(void *user, const rlock_report *report) {
    struct noted *noted = &hook.all[hook.count++];
    assert_ptr_equal(user, &hook);
    BETWEEN(report->kind, RLOCK_REPORT_ASKED, RLOCK_REPORT_REFUSED);
    BETWEEN(hook.count, 1, REPORTS);
    SAME(report->now_us, now_us());
    BETWEEN(report->span_us, 0, INT64_MAX);
    BETWEEN(report->left_us, 0, INT64_MAX);
    noted->report = *report;
    copy_text(noted->key, sizeof noted->key, report->key);
    copy_text(noted->text, sizeof noted->text, report->text);
    copy_text(noted->link, sizeof noted->link, report->link);
    copy_text(noted->where, sizeof noted->where, report->where);
    copy_text(noted->client_id, sizeof noted->client_id, report->client_id);
    hook.counts[report->kind]++;
    if (hook.react != NULL) {
        hook.react(report);
    }
}

static int setup_hooked(void **state) {
    setup_stopped(state);
    memset(&hook, 0, sizeof hook);
    g.config.on_event = on_report;
    g.config.event_user = &hook;
    start();
    return 0;
}

/* The next report, which has to be of this kind and about this handle: NULL = about none. */
static const rlock_report *reported_with(rlock_report_kind kind, const rlock *lock, int status) {
    const struct noted *noted = &hook.all[hook.read++];
    if (hook.read > hook.count) {
        fail_msg("there is no report, and not one of kind %s", rlock_report_str(kind));
    }
    SAME(noted->report.kind, kind);
    SAME(noted->report.status, status);
    assert_ptr_equal(noted->report.lock, lock);
    SAME(noted->report.handle != 0, lock != NULL);
    assert_string_equal(noted->client_id, rlock_client_id(g.client));
    return &noted->report;
}

static const rlock_report *reported(rlock_report_kind kind, const struct owner *owner) {
    return reported_with(kind, owner != NULL ? owner->lock : NULL, RLOCK_OK);
}

static void told_nothing_more(void) {
    SAME(hook.read, hook.count);
}

static const char *told_text(void) { /* of the report that was read last */
    return hook.all[hook.read - 1].text;
}

static const char *told_last(void) {
    return hook.all[hook.count - 1].text;
}

/* Both sums that the contract names. */
static void reports_add_up(int waiting, int holding) {
    SAME(hook.counts[RLOCK_REPORT_ASKED],
         hook.counts[RLOCK_REPORT_GRANTED] + hook.counts[RLOCK_REPORT_FAILED] + waiting);
    SAME(hook.counts[RLOCK_REPORT_GRANTED], hook.counts[RLOCK_REPORT_RELEASED] +
                                                hook.counts[RLOCK_REPORT_HANDED_ON] +
                                                hook.counts[RLOCK_REPORT_LOST] + holding);
}

static void hold_is_reported_from_its_acquire_to_its_release_with_its_times(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    const rlock_report *report;
    int64_t granted_us, until;
    (void)state;
    options.fencing = true;
    owner = handle_with(&options);
    SAME(owner_acquire(owner, RLOCK_FOREVER, 0), RLOCK_OK);
    report = reported(RLOCK_REPORT_ASKED, owner); /* inside the call */
    assert_string_equal(hook.all[0].key, "key");
    SAME(report->key_len, 3);
    SAME(report->handle, 1);
    SAME(report->span_us, 0);
    run_ms(40);
    until = until_us(scripted_last(&g.store, RLOCK_OP_ACQUIRE)->at_us, WATCHDOG_MS);
    reply(RLOCK_OP_ACQUIRE, scripted_fenced(7));
    granted_us = now_us();
    report = reported(RLOCK_REPORT_GRANTED, owner);
    SAME(report->span_us, 40000);
    SAME(report->left_us, until - now_us());
    SAME(report->hand_us, -1);
    SAME(report->fence, 7);
    told_nothing_more();
    while (out(RLOCK_OP_RENEW) == NULL) {
        run_ms(1);
    }
    run_ms(9);
    reply(RLOCK_OP_RENEW, scripted_done());
    report = reported(RLOCK_REPORT_RENEWED, owner);
    BETWEEN(report->span_us, 9000, 10000); /* it left when it was due */
    SAME(report->left_us, until - now_us());
    SAME(report->fence, 7);
    run_ms(5);
    SAME(owner_release(owner), RLOCK_OK);
    report = reported(RLOCK_REPORT_RELEASED, owner); /* inside the call */
    SAME(report->span_us, now_us() - granted_us);
    BETWEEN(report->left_us, 1, WATCHDOG_MS * 1000);
    run_ms(3);
    reply(RLOCK_OP_RELEASE, scripted_done());
    report = reported(RLOCK_REPORT_LET_GO, owner);
    SAME(report->span_us, 3000);
    run_ms(60000);
    told_nothing_more();
    reports_add_up(0, 0);
}

static void renewal_that_failed_before_is_reported_as_late_as_it_is(void **state) {
    struct owner *owner = holder("key", 0);
    int64_t due_us;
    const rlock_report *report;
    (void)state;
    hook.read = hook.count;
    while (out(RLOCK_OP_RENEW) == NULL) {
        run_ms(1);
    }
    due_us = out(RLOCK_OP_RENEW)->at_us;
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    told_nothing_more();
    while (out(RLOCK_OP_RENEW) == NULL) {
        run_ms(1);
    }
    reply(RLOCK_OP_RENEW, scripted_done());
    report = reported(RLOCK_REPORT_RENEWED, owner);
    BETWEEN(now_us() - due_us, 10000, INT64_MAX);
    BETWEEN(report->span_us, now_us() - due_us, now_us() - due_us + 1000);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    run_ms(4);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(reported(RLOCK_REPORT_RENEWED, owner)->span_us, 4000); /* it was asked for by hand */
}

static void renewal_by_hand_without_a_watchdog_is_late_since_it_was_asked_for(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    hook.read = hook.count;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    run_ms(4);
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_OTHER, "ERR"));
    run_ms(1000);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    run_ms(6);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(reported(RLOCK_REPORT_RENEWED, owner)->span_us, 6000);
}

static void local_hand_over_is_reported_with_how_long_it_took(void **state) {
    struct owner *first = holder("key", 1000), *second = follower("key", 1000);
    struct owner *third = follower("key", 1000);
    const rlock_report *report;
    (void)state;
    run_ms(5);
    hook.read = hook.count;
    SAME(owner_release(first), RLOCK_OK);
    report = reported(RLOCK_REPORT_HANDED_ON, first);
    SAME(report->span_us, 5000);
    told_nothing_more();
    stall_ms(2);
    idle();
    report = reported(RLOCK_REPORT_GRANTED, second);
    SAME(report->hand_us, 2000);
    SAME(report->span_us, 7000);
    told_nothing_more(); /* nothing was let go at the server */
    run_ms(100);
    SAME(owner_release(second), RLOCK_OK); /* too old to be handed on */
    reported(RLOCK_REPORT_RELEASED, second);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    reported(RLOCK_REPORT_LET_GO, second);
    run_ms(20);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(reported(RLOCK_REPORT_GRANTED, third)->hand_us, -1);
    reports_add_up(0, 1);
    SAME(owner_acquire(second, RLOCK_FOREVER, 1000), RLOCK_OK); /* once more, by the server */
    run_ms(200);
    SAME(owner_release(third), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    run_ms(20);
    hook.read = hook.count;
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(reported(RLOCK_REPORT_GRANTED, second)->hand_us, -1);
}

static void loss_is_reported_with_its_reason_and_the_last_fault(void **state) {
    struct owner *owner = holder("key", 0), *other = holder("other", 10000);
    const rlock_report *report;
    int64_t granted_us = now_us();
    (void)state;
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "LOADING the dataset"));
    hook.read = hook.count;
    run_ms(WATCHDOG_MS);
    report = reported_with(RLOCK_REPORT_LOST, owner->lock, RLOCK_ERR_LOST);
    SAME(report->reason, RLOCK_REASON_EXPIRED);
    SAME(report->left_us, 0);
    SAME(report->span_us, until_us(granted_us, WATCHDOG_MS) - granted_us);
    assert_string_equal(told_text(), "LOADING the dataset");
    assert_string_equal(owner->seen[RLOCK_LOST].text, "LOADING the dataset");
    SAME(owner_renew(other, 0), RLOCK_OK);
    always(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_STOLEN));
    run_ms(20);
    SAME(owner_renew(other, 0), RLOCK_OK);
    run_ms(20);
    report = reported_with(RLOCK_REPORT_LOST, other->lock, RLOCK_ERR_LOST);
    SAME(report->reason, RLOCK_REASON_STOLEN);
    BETWEEN(report->left_us, 1, 10000000);
    reports_add_up(0, 0);
}

static void shutdown_is_reported_as_the_loss_of_each_hold_and_the_end_of_each_wait(void **state) {
    struct owner *owner = holder("key", 0), *next = follower("key", 0);
    (void)state;
    hook.read = hook.count;
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    reported_with(RLOCK_REPORT_FAILED, next->lock, RLOCK_ERR_CLOSED);
    SAME(reported_with(RLOCK_REPORT_LOST, owner->lock, RLOCK_ERR_LOST)->reason,
         RLOCK_REASON_CLOSED);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    reported(RLOCK_REPORT_CLEANED, NULL);
    told_nothing_more();
    reports_add_up(0, 0);
}

static void acquire_without_a_hold_is_reported_once_with_how_it_ended(void **state) {
    struct owner *owner = handle("key"), *other = handle("other");
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(5000));
    reported(RLOCK_REPORT_ASKED, owner);
    reported_with(RLOCK_REPORT_FAILED, owner->lock, RLOCK_ERR_BUSY);
    SAME(owner_acquire(owner, 50, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_held(5000));
    run_ms(50);
    reported(RLOCK_REPORT_ASKED, owner);
    SAME(reported_with(RLOCK_REPORT_FAILED, owner->lock, RLOCK_ERR_TIMEOUT)->span_us, 50000);
    SAME(owner_acquire(other, RLOCK_FOREVER, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, "NOPERM no"));
    reported(RLOCK_REPORT_ASKED, other);
    reported_with(RLOCK_REPORT_FAILED, other->lock, RLOCK_ERR_AUTH);
    assert_string_equal(told_text(), "NOPERM no");
    SAME(owner_acquire(other, RLOCK_FOREVER, 0), RLOCK_OK);
    SAME(owner_cancel(other), RLOCK_OK);
    reported(RLOCK_REPORT_ASKED, other);
    reported_with(RLOCK_REPORT_FAILED, other->lock, RLOCK_ERR_CANCELED);
    assert_string_equal(told_text(), "");
    idle();
    scripted_settle(&g.store);
    SAME(hook.counts[RLOCK_REPORT_FAILED], 4);
    reports_add_up(0, 0);
}

/* A grant that its handle was not told of is none for the hook either. */
static void grant_that_was_cancelled_before_its_callback_is_reported_as_no_hold(void **state) {
    struct owner *owner = handle("key"), *other = handle("other");
    (void)state;
    owner->react = other->react = cancel_other;
    owner->context = other, other->context = owner;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(other, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    scripted_answer(&g.store, &g.store.log[0], scripted_done());
    scripted_answer(&g.store, &g.store.log[1], scripted_done());
    idle();
    SAME(hook.counts[RLOCK_REPORT_GRANTED], 1);
    SAME(hook.counts[RLOCK_REPORT_FAILED], 1);
    reports_add_up(0, 1);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(hook.counts[RLOCK_REPORT_RELEASED], 0);
    SAME(hook.counts[RLOCK_REPORT_CLEANED], 1);
}

static void grant_that_came_too_late_is_reported_neither_as_held_nor_as_lost(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 100), RLOCK_OK);
    idle();
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    stall_ms(200);
    idle();
    SAME(hook.counts[RLOCK_REPORT_GRANTED] + hook.counts[RLOCK_REPORT_LOST], 0);
    reports_add_up(1, 0);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(hook.counts[RLOCK_REPORT_GRANTED], 1);
    reports_add_up(0, 1);
}

static void free_of_a_handle_is_reported_as_the_end_of_what_it_did(void **state) {
    struct owner *holds = holder("key", 0), *waits = handle("waits");
    const rlock *lock = holds->lock;
    (void)state;
    run_ms(30);
    hook.read = hook.count;
    owner_free(holds);
    SAME(reported_with(RLOCK_REPORT_RELEASED, lock, RLOCK_OK)->span_us, 30000);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    reported(RLOCK_REPORT_CLEANED, NULL);
    SAME(owner_acquire(waits, RLOCK_FOREVER, 0), RLOCK_OK);
    idle();
    reported(RLOCK_REPORT_ASKED, waits);
    lock = waits->lock;
    owner_free(waits);
    reported_with(RLOCK_REPORT_FAILED, lock, RLOCK_ERR_CLOSED);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_unsure(scripted_plain(RLOCK_OUTCOME_GONE)));
    told_nothing_more(); /* its acquire may be executed yet */
    run_ms(1000);
    reply(RLOCK_OP_RELEASE, scripted_done());
    reported(RLOCK_REPORT_CLEANED, NULL);
    reports_add_up(0, 0);
}

/* Both are granted in one dispatch; the callback of the first one frees the other. */
static void grant_of_a_handle_that_was_freed_before_its_callback_is_reported_as_none(void **state) {
    struct owner *one = handle("one"), *two = handle("two");
    (void)state;
    one->react = two->react = free_other;
    one->context = two;
    two->context = one;
    SAME(owner_acquire(one, RLOCK_FOREVER, 1000), RLOCK_OK);
    SAME(owner_acquire(two, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    scripted_answer(&g.store, &g.store.log[0], scripted_done());
    scripted_answer(&g.store, &g.store.log[1], scripted_done());
    idle();
    SAME(hook.counts[RLOCK_REPORT_GRANTED], 1);
    SAME(hook.counts[RLOCK_REPORT_FAILED], 1);
    SAME(hook.counts[RLOCK_REPORT_RELEASED], 0);
    reports_add_up(0, 1);
}

static void free_of_a_client_is_reported_as_the_end_of_all_that_it_did(void **state) {
    struct owner *holds = holder("key", 0), *waits = handle("waits");
    (void)state;
    SAME(owner_acquire(waits, RLOCK_FOREVER, 0), RLOCK_OK);
    follower("key", 0);
    reports_add_up(2, 1);
    free_client();
    SAME(hook.counts[RLOCK_REPORT_FAILED], 2);
    SAME(hook.counts[RLOCK_REPORT_RELEASED], 1);
    reports_add_up(0, 0);
    owner_free(holds);
    reports_add_up(0, 0);
}

static void release_that_the_server_did_not_know_is_reported_before_its_callback(void **state) {
    struct owner *owner = holder("key", 1000), *other = holder("other", 1000);
    (void)state;
    hook.read = hook.count;
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
    reported(RLOCK_REPORT_RELEASED, owner);
    reported_with(RLOCK_REPORT_LET_GO, owner->lock, RLOCK_ERR_NOT_HELD);
    SAME(owner_release(other), RLOCK_OK);
    run_ms(1000); /* until its deadline, and there is no answer */
    reported(RLOCK_REPORT_RELEASED, other);
    reported_with(RLOCK_REPORT_LET_GO, other->lock, RLOCK_ERR_UNKNOWN);
    told_nothing_more();
    reply(RLOCK_OP_RELEASE, scripted_done());
    reported(RLOCK_REPORT_CLEANED, NULL);
    reports_add_up(0, 0);
}

static void nested_acquires_and_releases_are_not_reported(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    (void)state;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, 1000);
    hook.read = hook.count;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    told_nothing_more();
    SAME(owner_release(owner), RLOCK_OK);
    reported(RLOCK_REPORT_RELEASED, owner);
}

static void store_reports_its_connections_and_the_rest_is_filled_in(void **state) {
    rlock_report report;
    (void)state;
    memset(&report, 0, sizeof report);
    report.kind = RLOCK_REPORT_DISCONNECTED;
    report.span_us = 17;
    report.link = "commands";
    report.where = "127.0.0.1:6379";
    report.text = "Connection reset";
    hook.read = hook.count;
    rlock_client_report(g.client, &report);
    SAME(reported(RLOCK_REPORT_DISCONNECTED, NULL)->span_us, 17);
    assert_string_equal(told_text(), "Connection reset");
    assert_string_equal(hook.all[hook.read - 1].where, "127.0.0.1:6379");
    assert_string_equal(hook.all[hook.read - 1].link, "commands");
    SAME(hook.all[hook.read - 1].report.hand_us, -1);
}

/* Of each operation, of a loss, of a question, and while the store is down. */
static void secret_is_in_no_event_and_no_report(void **state) {
    static const char repeats[] = "ERR 'hunter2'\r\n", safe[] = "ERR '***'\\x0d\\x0a";
    struct owner *owner = handle("key"), *held = holder("held", 0);
    rlock_report report;
    (void)state;
    SAME(rlock_client_hide(g.client, "hunter2"), RLOCK_OK);
    SAME(owner_acquire(owner, RLOCK_FOREVER, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_fault(RLOCK_FAULT_AUTH, repeats));
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, safe);
    assert_string_equal(told_last(), safe);
    SAME(owner_renew(held, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_OTHER, repeats));
    assert_string_equal(held->seen[RLOCK_RENEWED].text, safe);
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, repeats));
    run_ms(WATCHDOG_MS);
    assert_string_equal(held->seen[RLOCK_LOST].text, safe);
    ask_about(RLOCK_KIND_MUTEX, "key");
    reply(RLOCK_OP_INSPECT, scripted_fault(RLOCK_FAULT_OTHER, repeats));
    assert_string_equal(told.text, safe);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    scripted_down(&g.store, RLOCK_FAULT_DOWN, repeats);
    idle();
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, safe);
    memset(&report, 0, sizeof report);
    report.kind = RLOCK_REPORT_DISCONNECTED;
    report.where = report.text = repeats;
    rlock_client_report(g.client, &report);
    assert_string_equal(told_last(), safe);
    assert_string_equal(hook.all[hook.count - 1].where, safe);
}

/* Returns the words of a report that has these. */
static const char *told_of(const char *words) {
    rlock_report report;
    memset(&report, 0, sizeof report);
    report.kind = RLOCK_REPORT_DISCONNECTED;
    report.text = words;
    rlock_client_report(g.client, &report);
    return told_last();
}

static void secrets_that_overlap_are_hidden_whole(void **state) {
    (void)state;
    SAME(rlock_client_hide(g.client, "hunter2go"), RLOCK_OK);
    SAME(rlock_client_hide(g.client, "2gopher"), RLOCK_OK);
    assert_string_equal(told_of("ERR 'hunter2gopher', hunter2go 2gopher"), "ERR '***', *** ***");
}

/* No text turns the direction of a line, and none has a part that is not seen. */
static void foreign_text_is_shown_as_what_it_is(void **state) {
    static const char *const same[] = {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "a\\x1b"};
    static const struct {
        const char *text, *shown;
    } others[] = {
        {"a\xe2\x80\xae"
         "b",
         "a\\xe2\\x80\\xaeb"}, /* U+202E turns the rest */
        {"a\xe2\x80\x8b"
         "b",
         "a\\xe2\\x80\\x8bb"},                        /* U+200B has no width */
        {"\xf3\xa0\x81\x81", "\\xf3\\xa0\\x81\\x81"}, /* U+E0041 is not seen */
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b2J"}, /* CSI, as ESC [ */
        {"\x9b"
         "2J\xff",
         "\\x9b2J\\xff"},                                      /* no UTF-8 */
        {"\xc0\x80\xed\xa0\x80", "\\xc0\\x80\\xed\\xa0\\x80"}, /* nor are these */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},          /* behind the last character */
        {"cut \xe2\x80", "cut \\xe2\\x80"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof same / sizeof *same; i++) {
        assert_string_equal(told_of(same[i]), same[i]);
    }
    for (i = 0; i < sizeof others / sizeof *others; i++) {
        assert_string_equal(told_of(others[i].text), others[i].shown);
        assert_string_equal(told_of(others[i].shown), others[i].shown);
    }
}

static void each_kind_of_report_has_a_word(void **state) {
    (void)state;
    assert_string_equal(rlock_report_str(RLOCK_REPORT_ASKED), "asked");
    assert_string_equal(rlock_report_str(RLOCK_REPORT_HANDED_ON), "handed on");
    assert_string_equal(rlock_report_str(RLOCK_REPORT_DISCONNECTED), "disconnected");
    assert_string_equal(rlock_report_str(RLOCK_REPORT_REFUSED), "refused");
    assert_string_equal(rlock_report_str((rlock_report_kind)0), "unknown");
    assert_string_equal(rlock_report_str((rlock_report_kind)13), "unknown");
}

/* What the library does in a program of its own: requests, looks at the clock, allocations. */
struct spent {
    uint64_t looks, blocks;
    size_t requests;
};

static uint64_t looks;

static int64_t look(void *ctx) {
    looks++;
    return ((struct virtual_loop *)ctx)->now_us;
}

static struct spent spend(bool hooked) {
    struct spent spent;
    struct owner *first, *second;
    int64_t (*clock)(void *ctx) = g.config.loop.now_us;
    int round;
    free_client();
    g.config.on_event = hooked ? on_report : NULL;
    g.config.loop.now_us = look;
    start();
    first = handle("key");
    second = handle("key");
    for (round = 0; round < 3; round++) {
        if (round == 1) { /* each handle was used once */
            looks = 0;
            spent.blocks = virtual_memory.total;
            spent.requests = g.store.count;
        }
        grant(first, 1000);
        SAME(owner_acquire(second, RLOCK_FOREVER, 1000), RLOCK_OK);
        idle();
        SAME(owner_release(first), RLOCK_OK);
        idle();
        assert_true(rlock_is_held(second->lock));
        SAME(owner_renew(second, 0), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RENEW, scripted_done());
        SAME(owner_release(second), RLOCK_OK);
        idle();
        reply(RLOCK_OP_RELEASE, scripted_done());
    }
    spent.blocks = virtual_memory.total - spent.blocks;
    spent.requests = g.store.count - spent.requests;
    spent.looks = looks;
    g.config.loop.now_us = clock;
    return spent;
}

static void hook_costs_no_clock_no_memory_and_no_request(void **state) {
    struct spent plain = spend(false), hooked = spend(true);
    (void)state;
    BETWEEN(hook.count, 18, REPORTS);
    SAME(hooked.looks, plain.looks);
    SAME(hooked.blocks, plain.blocks);
    SAME(hooked.blocks, 0);
    SAME(hooked.requests, plain.requests);
}

static void handle_without_memory_for_its_reports_is_not_made(void **state) {
    rlock_options options = options_for("key");
    rlock *lock = NULL;
    uint64_t nth;
    int status = RLOCK_ERR_NOMEM;
    (void)state;
    for (nth = 1; status != RLOCK_OK; nth++) {
        BETWEEN(nth, 1, 20);
        virtual_memory.fail_at = nth;
        status = rlock_new(&lock, g.client, &options);
        virtual_memory.fail_at = 0;
        SAME(status == RLOCK_OK, lock != NULL);
    }
    BETWEEN(nth, 4, 20); /* the handle, its gate, its reports */
    rlock_free(lock);
}

static rlock_report_kind forks_at;

static void fork_at_report(const rlock_report *report) {
    if (report->kind == forks_at) {
        fork_here();
    }
}

static void child_that_returns_from_a_report_it_forked_in_does_nothing(void **state) {
    static const rlock_report_kind kinds[] = {RLOCK_REPORT_GRANTED, RLOCK_REPORT_RENEWED,
                                              RLOCK_REPORT_LOST, RLOCK_REPORT_LET_GO,
                                              RLOCK_REPORT_CLEANED};
    size_t i;
    int status = 0;
    (void)state;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct owner *owner = handle("key");
        memset(&forked, 0, sizeof forked);
        forks_at = kinds[i];
        hook.react = fork_at_report;
        hook.count = 0;
        SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
        idle();
        scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
        idle();
        if (!forked.done && kinds[i] == RLOCK_REPORT_RENEWED) {
            SAME(owner_renew(owner, 0), RLOCK_OK);
            idle();
            reply(RLOCK_OP_RENEW, scripted_done());
        } else if (!forked.done && kinds[i] == RLOCK_REPORT_LOST) {
            run_ms(1000);
        } else if (!forked.done && kinds[i] == RLOCK_REPORT_LET_GO) {
            SAME(owner_release(owner), RLOCK_OK);
            idle();
            reply(RLOCK_OP_RELEASE, scripted_done());
        } else if (!forked.done) {
            owner_free(owner);
            idle();
            reply(RLOCK_OP_RELEASE, scripted_done());
        }
        assert_true(forked.done);
        if (forked.child == 0) {
            _exit(child_went_on() & ~1); /* what it submits is not sent */
        }
        SAME(waitpid(forked.child, &status, 0), forked.child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fail_msg("at a report of %s: the child went on: %d", rlock_report_str(kinds[i]),
                     status);
        }
        hook.react = NULL;
        if (owner->lock != NULL) {
            owner_free(owner);
        }
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

/* The release has ended, and the acquire that follows it begins before its callback. */
static void
child_that_an_acquire_after_a_release_made_is_not_notified_of_that_release(void **state) {
    struct owner *owner = handle("key");
    int status = 0;
    (void)state;
    grant(owner, 1000);
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    idle();
    memset(&forked, 0, sizeof forked);
    forks_at = RLOCK_REPORT_ASKED;
    hook.react = fork_at_report;
    reply(RLOCK_OP_RELEASE, scripted_done());
    assert_true(forked.done);
    if (forked.child == 0) {
        _exit(child_went_on() & ~1); /* what it submits is not sent */
    }
    hook.react = NULL;
    SAME(waitpid(forked.child, &status, 0), forked.child);
    SAME(status, 0);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_RELEASED].count, 1);
}

/* Both are lost in one dispatch. */
static void child_that_the_report_of_a_loss_made_is_notified_of_no_other_loss(void **state) {
    rlock_report report;
    int status = -1;
    (void)state;
    (void)holder("first", 1000);
    (void)holder("second", 1000);
    memset(&forked, 0, sizeof forked);
    memset(&report, 0, sizeof report);
    report.kind = RLOCK_REPORT_CONNECTED;
    forks_at = RLOCK_REPORT_LOST;
    hook.react = fork_at_report;
    hook.count = 0;
    run_ms(1001);
    assert_true(forked.done);
    if (forked.child == 0) {
        rlock_client_report(g.client, &report); /* by a store that does not know of it */
        _exit(hook.count - 1);
    }
    SAME(waitpid(forked.child, &status, 0), forked.child);
    SAME(status, 0);
    BETWEEN(hook.count, 2, 4);
}

static struct scripted_request *asked_third;

static void sleeps_and_runs_the_loop(struct owner *owner, const rlock_event *event) {
    (void)event;
    owner->react = NULL;
    stall_ms(WATCHDOG_MS / 2);
    scripted_answer_by_io(&g.store, asked_third, scripted_done());
}

/* Two grants of one moment; in the callback of the first so much time passes that a renewal of the
 * second is due, and is answered before its handle was told of the grant. */
static void
renewal_that_is_answered_before_the_callback_of_the_grant_is_not_reported(void **state) {
    const rlock_answer answers[] = {scripted_done(), scripted_fault(RLOCK_FAULT_BUSY, "LOADING")};
    int i, k;
    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *owners[] = {handle("first"), handle("second"), handle("third")};
        struct scripted_request *requests[3];
        owners[0]->react = sleeps_and_runs_the_loop;
        for (k = 0; k < 3; k++) {
            SAME(owner_acquire(owners[k], RLOCK_FOREVER, 0), RLOCK_OK);
            idle();
            requests[k] = scripted_last(&g.store, RLOCK_OP_ACQUIRE);
        }
        asked_third = requests[2];
        hook.count = hook.read = 0;
        always(RLOCK_OP_RENEW, answers[i]);
        scripted_answer(&g.store, requests[0], scripted_done());
        scripted_answer(&g.store, requests[1], scripted_done());
        assert_true(virtual_iteration(&g.loop, now_us()));
        for (k = 0; k < 3; k++) {
            SAME(owners[k]->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
            assert_string_equal(owners[k]->seen[RLOCK_ACQUIRED].text, "");
        }
        for (k = 0; hook.all[k].report.lock != owners[1]->lock; k++) {
            BETWEEN(k, 0, hook.count - 2);
        }
        SAME(hook.all[k].report.kind, RLOCK_REPORT_GRANTED);
        for (k = 0; k < 3; k++) {
            owner_free(owners[k]);
        }
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

/* ------------------------------------------------------------------------------------------------
 * Words: of the last fault, of options, of forks; and whose they are.
 */

static void reply_to(const char *key, rlock_op op, rlock_answer answer) {
    struct scripted_request *record = NULL;
    size_t i;
    for (i = 0; i < g.store.count; i++) {
        struct scripted_request *other = &g.store.log[i];
        if (other->request != NULL && other->op == op && strcmp(other->key, key) == 0) {
            record = other;
        }
    }
    assert_non_null(record);
    scripted_answer(&g.store, record, answer);
    idle();
}

static void words_of_the_last_fault_are_reported_though_the_connection_is_back(void **state) {
    struct owner *owner = holder("key", 0), *fresh = holder("fresh", 0), *released;
    (void)state;
    released = holder("released", 0);
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "Connection refused");
    scripted_up(&g.store); /* each hold is renewed before anything else */
    reply_to("key", RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
    assert_string_equal(owner->seen[RLOCK_LOST].text, "Connection refused");
    reply_to("fresh", RLOCK_OP_RENEW, scripted_done()); /* it made up for the fault */
    SAME(fresh->seen[RLOCK_LOST].count, 0);
    SAME(owner_renew(fresh, 0), RLOCK_OK);
    idle();
    reply_to("released", RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner_release(released), RLOCK_OK);
    idle();
    reply_to("fresh", RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(fresh->seen[RLOCK_LOST].count, 1);
    assert_string_equal(fresh->seen[RLOCK_LOST].text, "");
    reply_to("released", RLOCK_OP_RELEASE, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(released->seen[RLOCK_RELEASED].status, RLOCK_ERR_NOT_HELD);
    assert_string_equal(released->seen[RLOCK_RELEASED].text, "");
}

/* Its end has no words, and who has it next is told none of them. */
static void words_of_a_fault_do_not_go_on_with_the_hold(void **state) {
    struct owner *first = holder("key", 1000), *second = follower("key", 1000);
    (void)state;
    SAME(owner_renew(first, 1000), RLOCK_OK);
    idle();
    reply_to("key", RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner_release(first), RLOCK_OK);
    idle();
    SAME(stats().handed_on, 1);
    SAME(first->seen[RLOCK_RELEASED].status, RLOCK_OK);
    assert_string_equal(first->seen[RLOCK_RELEASED].text, "");
    assert_true(rlock_is_held(second->lock));
    assert_string_equal(second->seen[RLOCK_ACQUIRED].text, "");
}

static void words_of_a_renewal_that_failed_are_reported_until_one_succeeds(void **state) {
    struct owner *owner = holder("key", 0), *other = holder("other", 0);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    SAME(owner_renew(other, 0), RLOCK_OK);
    idle();
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "Connection refused");
    reply_to("key", RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    reply_to("other", RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    scripted_up(&g.store);
    reply_to("other", RLOCK_OP_RENEW, scripted_done());
    reply_to("key", RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    assert_string_equal(owner->seen[RLOCK_LOST].text, "LOADING"); /* the later one */
    SAME(owner_renew(other, 0), RLOCK_OK);
    idle();
    reply_to("other", RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_GONE));
    SAME(other->seen[RLOCK_LOST].count, 1);
    assert_string_equal(other->seen[RLOCK_LOST].text, "");
}

static void loss_to_something_that_is_no_lock_has_the_words_of_the_server(void **state) {
    struct owner *owner = holder("key", 0);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_TYPE, "WRONGTYPE no"));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_STOLEN);
    assert_string_equal(owner->seen[RLOCK_LOST].text, "WRONGTYPE no");
}

static struct {
    int lines, level;
    char line[256];
    void *user;
} logged;

static void on_line(void *user, int level, const char *line) {
    logged.user = user;
    logged.level = level;
    logged.lines++;
    snprintf(logged.line, sizeof logged.line, "%s", line);
}

static int setup_logged(void **state) {
    setup_stopped(state);
    memset(&logged, 0, sizeof logged);
    g.config.log = on_line;
    g.config.user = &g;
    start();
    return 0;
}

/* What keeps a hold from being renewed is in the log before the hold is lost. */
static void refused_renewal_is_logged_once_a_hold_and_once_for_all_holds(void **state) {
    struct owner *first = holder("first", 0), *second = holder("second", 0);
    int i;
    (void)state;
    logged.lines = 0;
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_BUSY, "READONLY no"));
    for (i = 0; i < 2; i++) {
        SAME(owner_renew(first, 0), RLOCK_OK);
        SAME(owner_renew(second, 0), RLOCK_OK);
        run_ms(100);
    }
    SAME(logged.lines, 1);
    SAME(logged.level, RLOCK_LOG_WARNING);
    assert_string_equal(logged.line + 10, "a renewal is refused: READONLY no");
    always(RLOCK_OP_RENEW, scripted_done());
    run_ms(WATCHDOG_MS / 2);
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_OTHER, "ERR no"));
    run_ms(WATCHDOG_MS / 2); /* of both it was logged, or could have been */
    SAME(logged.lines, 1);
    always(RLOCK_OP_RENEW, scripted_done());
    run_ms(WATCHDOG_MS / 2);
    SAME(owner_release(first), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    grant(first, 0);
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_DOWN, "Connection refused"));
    run_ms(WATCHDOG_MS / 2); /* the connection has a line of its own */
    SAME(logged.lines, 1);
    always(RLOCK_OP_RENEW, scripted_fault(RLOCK_FAULT_AUTH, "NOPERM no"));
    run_ms(WATCHDOG_MS);
    SAME(first->seen[RLOCK_LOST].count, 1);
    assert_string_equal(first->seen[RLOCK_LOST].text, "NOPERM no");
    SAME(logged.lines, 2);
    assert_string_equal(logged.line + 10, "a renewal is refused: NOPERM no");
}

static void refused(const char *words, rlock_options options) {
    rlock *lock;
    logged.lines = 0;
    SAME(rlock_new(&lock, g.client, &options), RLOCK_ERR_ARG);
    SAME(logged.lines, 1);
    SAME(logged.level, RLOCK_LOG_ERROR);
    assert_string_equal(logged.line + 10, words); /* behind the client's id */
}

#define REFUSED(words, member, value)           \
    do {                                        \
        rlock_options one = options_for("key"); \
        one.member = value;                     \
        refused(words, one);                    \
    } while (0)

static void options_that_are_refused_are_logged_by_their_names(void **state) {
    static const char *const alike[] = {"a", "a"}, *const one_missing[] = {"a", NULL};
    rlock_options options = options_for(NULL);
    (void)state;
    REFUSED("set either options.key or options.keys", key, NULL);
    REFUSED("options.key, and each of options.keys, must have a length of 1 to 65536", key, "");
    REFUSED("options.kind must be one of rlock_kind", kind, (rlock_kind)9);
    REFUSED("options.permits must be 1 to 1000000000", kind, RLOCK_KIND_SEMAPHORE);
    REFUSED("options.permits and options.weight require RLOCK_KIND_SEMAPHORE", weight, 1);
    REFUSED("options.owner requires RLOCK_KIND_READ or RLOCK_KIND_WRITE", owner, 1);
    REFUSED("options.key_count and options.key_lens require options.keys", key_count, 1);
    REFUSED("options.watchdog must be RLOCK_WATCHDOG_AUTO, _ON or _OFF", watchdog, 3);
    REFUSED("options.max_hold_ms is negative", max_hold_ms, -1);
    options.keys = alike;
    refused("options.key_count must be 1 to 128", options);
    options.key_count = 2;
    refused("options.keys contains a duplicate", options);
    options.key_len = 1;
    refused("options.key_len requires options.key", options);
    options.key_len = 0;
    options.keys = one_missing;
    refused("options.keys contains a NULL", options);
    options.key_count = 1;
    options.kind = RLOCK_KIND_SEMAPHORE;
    options.permits = 2;
    options.weight = 3;
    refused("options.weight must be 1 to options.permits", options);
    options = options_for(NULL);
    options.keys = (const char *const[]){"a", "b"};
    options.key_count = 2;
    options.kind = RLOCK_KIND_FAIR;
    refused("several options.keys require RLOCK_KIND_MUTEX", options);
    options.kind = RLOCK_KIND_MUTEX;
    logged.lines = 0;
    SAME(rlock_inspect(g.client, &options, on_nothing_asked, NULL), RLOCK_ERR_ARG);
    SAME(logged.lines, 1);
    assert_string_equal(logged.line + 10, "rlock_inspect and the like take one key");
}

static void first_call_in_a_forked_child_is_logged_and_no_other_one(void **state) {
    struct owner *owner = holder("key", 0);
    int status = 0;
    pid_t child;
    (void)state;
    logged.lines = 0;
    child = fork();
    if (child == 0) {
        bool held = rlock_is_held(owner->lock);
        int first = logged.lines;
        int said = strstr(logged.line, "client used after fork()") != NULL;
        int answer = rlock_acquire(owner->lock, 0, 0, owner_on_event, owner);
        rlock_free(owner->lock);
        _exit(!held && first == 1 && said && answer == RLOCK_ERR_STATE && logged.lines == 1 ? 0
                                                                                            : 1);
    }
    SAME(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    SAME(WEXITSTATUS(status), 0);
    assert_true(rlock_is_held(owner->lock));
    SAME(logged.lines, 0);
}

static void call_in_a_child_of_who_freed_the_client_is_not_logged(void **state) {
    struct owner *owner = holder("key", 0);
    int status = -1;
    pid_t child;
    (void)state;
    free_client();
    child = fork();
    if (child == 0) {
        logged.lines = 0;
        _exit(owner_release(owner) == RLOCK_ERR_STATE ? logged.lines : 9);
    }
    SAME(waitpid(child, &status, 0), child);
    SAME(status, 0);
}

static void log_has_a_user_of_its_own_if_one_is_given(void **state) {
    static int own;
    rlock_client *client = NULL;
    rlock_config bad;
    (void)state;
    REFUSED("options.max_hold_ms is negative", max_hold_ms, -1);
    assert_ptr_equal(logged.user, &g);
    free_client();
    g.config.log_user = &own;
    start();
    REFUSED("options.max_hold_ms is negative", max_hold_ms, -1);
    assert_ptr_equal(logged.user, &own);
    bad = g.config;
    bad.poll_ms = -1;
    logged.user = NULL;
    SAME(rlock_client_new(&client, &bad), RLOCK_ERR_ARG);
    assert_ptr_equal(logged.user, &own);
}

#endif /* TESTS_UNIT_HOOK_H */
