/* unit_deadline.h - what options.deadline shows to other threads; options.watchdog_lease_ms */
#ifndef TESTS_UNIT_DEADLINE_H
#define TESTS_UNIT_DEADLINE_H

static rlock_deadline shown, shown_too;

static struct owner *showing(const char *key, rlock_deadline *deadline) {
    rlock_options options = options_for(key);
    memset(deadline, 0, sizeof *deadline);
    options.deadline = deadline;
    return handle_with(&options);
}

static void other_threads_see_the_deadline_from_the_grant_to_the_release(void **state) {
    struct owner *owner = showing("key", &shown);
    (void)state;
    SAME(rlock_deadline_us(NULL), 0);
    assert_false(rlock_still_held(NULL));
    SAME(rlock_deadline_us(&shown), 0);
    SAME(owner_acquire(owner, 0, 3000), RLOCK_OK);
    idle();
    scripted_answer(&g.store, need(RLOCK_OP_ACQUIRE), scripted_done());
    SAME(rlock_deadline_us(&shown), 0); /* granted, and the owner was not told */
    idle();
    SAME(rlock_deadline_us(&shown), until_us(now_us(), 3000));
    run_ms(500);
    SAME(owner_renew(owner, 2500), RLOCK_OK); /* shorter: at once */
    SAME(rlock_deadline_us(&shown), until_us(now_us() - 500000, 3000));
    SAME(owner_release(owner), RLOCK_OK);
    SAME(rlock_deadline_us(&shown), 0); /* before the request can leave */
    scripted_settle(&g.store);
    SAME(rlock_deadline_us(&shown), 0);
}

static void other_threads_see_a_renewal_and_a_shorter_lease(void **state) {
    struct owner *owner = showing("key", &shown);
    (void)state;
    grant(owner, 5000);
    run_ms(1000);
    SAME(owner_renew(owner, 1000), RLOCK_OK);
    SAME(rlock_deadline_us(&shown), until_us(now_us(), 1000));
    idle();
    run_ms(10);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(rlock_deadline_us(&shown), until_us(now_us() - 10000, 1000));
    SAME(owner_renew(owner, 9000), RLOCK_OK);
    idle();
    SAME(rlock_deadline_us(&shown), until_us(now_us() - 10000, 1000)); /* not before the answer */
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(rlock_deadline_us(&shown), until_us(now_us(), 9000));
}

static void not_held(struct owner *owner, const rlock_event *event) {
    (void)owner;
    if (event->kind == RLOCK_LOST) {
        SAME(rlock_deadline_us(&shown), 0);
    }
}

static void other_threads_see_no_deadline_after_a_loss_or_a_free(void **state) {
    struct owner *owner = showing("key", &shown);
    (void)state;
    owner->react = not_held;
    grant(owner, 5000);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_STOLEN));
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(rlock_deadline_us(&shown), 0);
    grant(owner, 5000);
    run_ms(6000);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    SAME(rlock_deadline_us(&shown), 0);
    grant(owner, 5000);
    assert_true(rlock_deadline_us(&shown) != 0);
    owner_free(owner);
    SAME(rlock_deadline_us(&shown), 0);
    owner = showing("key", &shown);
    SAME(owner_acquire(owner, 0, 5000), RLOCK_OK);
    scripted_settle(&g.store);
    assert_true(rlock_deadline_us(&shown) != 0);
    free_client();
    SAME(rlock_deadline_us(&shown), 0);
}

static void other_threads_see_a_hold_that_is_handed_on_at_one_handle(void **state) {
    struct owner *first = showing("key", &shown), *second = showing("key", &shown_too);
    (void)state;
    grant(first, 5000);
    SAME(owner_acquire(second, RLOCK_FOREVER, 5000), RLOCK_OK);
    idle();
    SAME(owner_release(first), RLOCK_OK);
    SAME(rlock_deadline_us(&shown), 0);
    SAME(rlock_deadline_us(&shown_too), 0);
    idle();
    SAME(stats().handed_on, 1);
    SAME(rlock_deadline_us(&shown), 0);
    assert_true(rlock_deadline_us(&shown_too) != 0);
}

/* Who writes was stopped in the middle. */
static void other_threads_do_not_wait_for_a_writer_that_is_stopped(void **state) {
    struct owner *owner = showing("key", &shown);
    (void)state;
    grant(owner, 5000);
    shown.count++;
    SAME(rlock_deadline_us(&shown), 0);
    assert_false(rlock_still_held(&shown));
    shown.count--;
    SAME(rlock_deadline_us(&shown), until_us(now_us(), 5000));
}

static void watchdog_lease_of_the_options_is_what_lease_0_means(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    rlock *none;
    (void)state;
    options.watchdog_lease_ms = 600;
    owner = handle_with(&options);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    SAME(need(RLOCK_OP_ACQUIRE)->lease_ms, 600);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    run_ms(201);
    SAME(need(RLOCK_OP_RENEW)->lease_ms, 600); /* it is renewed */
    scripted_settle(&g.store);
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_acquire(owner, 0, 5000), RLOCK_OK);
    idle();
    SAME(scripted_last(&g.store, RLOCK_OP_ACQUIRE)->lease_ms, 5000);
    options.watchdog_lease_ms = 9;
    SAME(rlock_new(&none, g.client, &options), RLOCK_ERR_ARG);
    options.watchdog_lease_ms = 86400001;
    SAME(rlock_new(&none, g.client, &options), RLOCK_ERR_ARG);
}

#endif /* TESTS_UNIT_DEADLINE_H */
