/* unit_reports.h - what the library tells of itself: counters, texts, words */
#ifndef TESTS_UNIT_REPORTS_H
#define TESTS_UNIT_REPORTS_H

static void stats_count_what_happened_and_what_is(void **state) {
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

/* A hold that was not counted as acquired, or was lost, is not counted as released either. */
static void every_hold_that_was_acquired_is_counted_once_as_released_or_lost(void **state) {
    struct owner *owner = handle("key"), *other = handle("other");
    (void)state;
    owner->react = other->react = cancel_other; /* granted, and cancelled before it is reported */
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
    grant(owner, 1000); /* handed over, and cancelled before it is reported */
    other = follower("third", 1000);
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_cancel(other), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(stats().acquired, 3);
    SAME(stats().released, 2);
    SAME(stats().handed_on, 1);
}

static void every_status_has_its_text(void **state) {
    (void)state;
#define RLOCK_X(name, value, text) \
    assert_string_equal(rlock_strerror(RLOCK_##name), RLOCK__HAS_TEXTS ? text : #name);
    RLOCK_STATUS_MAP(RLOCK_X)
#undef RLOCK_X
    assert_string_equal(rlock_strerror(1), "unknown status");
    assert_string_equal(rlock_strerror(RLOCK_STATUS_LAST - 1), "unknown status");
    assert_string_equal(rlock_strerror(INT32_MIN), "unknown status");
    assert_string_equal(rlock_strerror(INT32_MAX), "unknown status");
}

static void version_is_one_as_text_and_as_number(void **state) {
    int major = -1, minor = -1, patch = -1;
    (void)state;
    assert_string_equal(rlock_version(), RLOCK_VERSION);
    assert_int_equal(sscanf(rlock_version(), "%d.%d.%d", &major, &minor, &patch), 3);
    assert_int_equal(RLOCK_VERSION_NUMBER, major * 1000000 + minor * 1000 + patch);
}

static void every_reason_and_kind_has_its_word(void **state) {
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

#endif /* TESTS_UNIT_REPORTS_H */
