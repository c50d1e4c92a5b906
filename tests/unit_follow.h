/* unit_follow.h - an acquire on a handle that is being released begins when that has ended */
#ifndef TESTS_UNIT_FOLLOW_H
#define TESTS_UNIT_FOLLOW_H

/* Returns a handle whose release is with the store, and whose acquire follows that. */
static struct owner *followed(const char *key, int64_t wait_ms) {
    struct owner *owner = holder(key, 10000);
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_acquire(owner, wait_ms, 5000), RLOCK_OK);
    idle();
    return owner;
}

static void may_not_acquire_again(struct owner *owner, const rlock_event *event) {
    if (event->kind == RLOCK_RELEASED) {
        SAME(owner_acquire(owner, 0, 5000), RLOCK_ERR_STATE); /* it waits already */
    }
}

static void acquire_after_a_release_is_sent_when_that_is_answered(void **state) {
    struct owner *owner = followed("key", RLOCK_FOREVER);
    uint64_t token = scripted_last(&g.store, RLOCK_OP_ACQUIRE)->token;
    (void)state;
    owner->react = may_not_acquire_again;
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    assert_false(rlock_is_held(owner->lock));
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    assert_true(need(RLOCK_OP_ACQUIRE)->token != token);
    SAME(need(RLOCK_OP_ACQUIRE)->lease_ms, 5000);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(owner->seen[RLOCK_RELEASED].order < owner->seen[RLOCK_ACQUIRED].order);
    assert_true(rlock_is_held(owner->lock));
    SAME(rlock_hold_count(owner->lock), 1);
}

static void acquire_after_a_release_tries_once_if_it_may_not_wait(void **state) {
    struct owner *owner = followed("key", 0);
    (void)state;
    reply(RLOCK_OP_RELEASE, scripted_done());
    reply(RLOCK_OP_ACQUIRE, scripted_held(700));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(owner_acquire(owner, 0, 5000), RLOCK_OK);
}

static void wait_of_an_acquire_after_a_release_counts_from_the_call(void **state) {
    int64_t begun_us = now_us();
    struct owner *other = followed("other", 300), *owner = followed("key", 100);
    (void)state;
    run_ms(2000);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    BETWEEN(owner->seen[RLOCK_ACQUIRED].at_us - begun_us, 100000, 101000);
    BETWEEN(other->seen[RLOCK_ACQUIRED].at_us - begun_us, 300000, 301000);
    SAME(owner->seen[RLOCK_RELEASED].count, 0); /* the release goes on */
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
    SAME(stats().waiting, 0);
}

static void acquire_after_a_release_ends_with_what_holds_that_up(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    SAME(owner_acquire(owner, 100, 0), RLOCK_OK);
    run_ms(101);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "LOADING");
    SAME(owner->seen[RLOCK_RELEASED].count, 0);
    always(RLOCK_OP_RELEASE, scripted_done());
    run_ms(10000);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
}

static void acquire_after_a_release_ends_without_text_if_there_was_none(void **state) {
    struct owner *owner = holder("key", 10000);
    (void)state;
    always(RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_BUSY, NULL));
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    SAME(owner_acquire(owner, 100, 0), RLOCK_OK);
    run_ms(101);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "");
}

static void acquire_after_a_release_that_fails_is_made_all_the_same(void **state) {
    struct owner *owner = followed("key", RLOCK_FOREVER);
    (void)state;
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "gone");
    run_ms(11000);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_CONN);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    SAME(stats().waiting, 1);
    SAME(rlock_cancel(owner->lock), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
}

static void acquires_again(struct owner *owner, const rlock_event *event) {
    if (event->kind == RLOCK_RELEASED) {
        SAME(owner_acquire(owner, RLOCK_FOREVER, 5000), RLOCK_OK);
    }
}

static void canceled_acquire_after_a_release_is_reported_and_may_be_made_again(void **state) {
    struct owner *owner = followed("key", RLOCK_FOREVER);
    (void)state;
    SAME(owner_cancel(owner), RLOCK_OK);
    SAME(owner_cancel(owner), RLOCK_ERR_STATE);
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    SAME(owner_acquire(owner, RLOCK_FOREVER, 5000), RLOCK_OK);
    reply(RLOCK_OP_RELEASE, scripted_done());
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    assert_true(rlock_is_held(owner->lock));
    /* The release has ended when the acquire is canceled, and neither was told yet. */
    followed("wait", 0);
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    owner->react = acquires_again;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 5000), RLOCK_OK);
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_RELEASE), scripted_done());
    SAME(owner_cancel(owner), RLOCK_OK);
    idle();
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    SAME(owner_pending(owner), 1);
    SAME(owner_cancel(owner), RLOCK_OK);
    idle();
    SAME(owner_pending(owner), 0);
}

static void shutdown_ends_an_acquire_after_a_release_as_closed(void **state) {
    struct owner *owner = followed("key", RLOCK_FOREVER), *handed = holder("handed", 10000);
    (void)state;
    follower("handed", 10000);
    SAME(owner_release(handed), RLOCK_OK); /* handed on: it has ended, and was not told */
    SAME(owner_acquire(handed, RLOCK_FOREVER, 5000), RLOCK_OK);
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_OK);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1); /* not inside the call */
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(handed->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CLOSED);
    SAME(g.done_status, RLOCK_OK);
    SAME(owner_pending(owner) + owner_pending(handed), 0);
}

/* A freed handle has no time at which its acquire ends: what others wait for is not put off. */
static void freed_handle_with_an_acquire_after_its_release_tells_nothing(void **state) {
    struct owner *owner = followed("key", 100), *other = followed("other", 200);
    (void)state;
    owner_free(owner);
    run_ms(250);
    SAME(other->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    reply(RLOCK_OP_RELEASE, scripted_done());
    SAME(asked(RLOCK_OP_ACQUIRE), 2);
}

/* Others take what two releases have given back. */
static void takes_what_is_kept(struct owner *owner, const rlock_event *event) {
    struct owner *others = (struct owner *)owner->context;
    (void)event;
    ok_or_nomem(owner_acquire(&others[0], 0, 0));
    ok_or_nomem(owner_acquire(&others[1], 0, 0));
}

static void acquire_after_a_release_without_memory_is_refused_or_ends_as_such(void **state) {
    struct owner *first = holder("first", 10000), *owner = holder("key", 10000), *others;
    (void)state;
    others = handle("a");
    (void)handle("b");
    first->react = takes_what_is_kept;
    first->context = others;
    SAME(owner_release(first), RLOCK_OK);
    SAME(owner_release(owner), RLOCK_OK);
    idle();
    virtual_memory.none = true;
    SAME(owner_acquire(owner, 0, 0), RLOCK_ERR_NOMEM);
    virtual_memory.none = false;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    scripted_answer(&g.store, need(RLOCK_OP_RELEASE), scripted_done());
    scripted_answer(&g.store, scripted_last(&g.store, RLOCK_OP_RELEASE), scripted_done());
    virtual_memory.none = true;
    idle();
    virtual_memory.none = false;
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_NOMEM);
    SAME(owner_pending(owner), 0);
    first->react = NULL;
    scripted_settle(&g.store);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    assert_true(rlock_is_held(owner->lock));
}

static void lost_hold_that_is_released_may_be_acquired_again_at_once(void **state) {
    struct owner *owner = bring_to(LOST);
    (void)state;
    SAME(owner_acquire(owner, 0, 5000), RLOCK_ERR_STATE);
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_acquire(owner, 0, 5000), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_LOST);
    SAME(owner->seen[RLOCK_LOST].count, 0);
    assert_true(rlock_is_held(owner->lock));
}

static void nested_hold_that_is_released_whole_may_be_acquired_again_at_once(void **state) {
    struct owner *owner = reentrant(10000);
    (void)state;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    idle();
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_release(owner), RLOCK_OK);
    SAME(owner_acquire(owner, 0, 5000), RLOCK_OK);
    scripted_settle(&g.store);
    SAME(owner->seen[RLOCK_RELEASED].count, 2);
    SAME(rlock_hold_count(owner->lock), 1);
    SAME(owner_pending(owner), 0);
}

#endif /* TESTS_UNIT_FOLLOW_H */
