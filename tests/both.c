/* both.c - the store that holds in two others at once, and the move from the one to the other
 *
 * First on scripted stores, where the test speaks for each; then on two stores in the process, and
 * on small servers behind links that delay, break and execute late, with an oracle: services of
 * adjacent phases side by side, never two holders, and fencing tokens that rise. The suite of
 * stores is run on it by tests/stores.c.
 */

#define RLOCK_IMPLEMENTATION
#define RLOCK_ASSERT(x) assert_true(x) /* a broken invariant is a failed test */
#include "fresh.h"
#include "scripted.h"

#define SERVERS 2
#define CLIENTS 4 /* that use one of the stores at once */
#define HANDLES 2 /* a client */
#define LEASE_MS 10000
#define KEEP_MS 250 /* in so long who keeps the first store asks again */

static struct {
    struct virtual_loop loop;
    rlock_store *store;   /* both */
    rlock_store *ends[2]; /* stores in the process */
    rlock_client *client;
    char log_text[256];
} g;

#include "links.h"

static struct scripted from, to;

/* ------------------------------------------------------------------------------------------------
 * On scripted stores.
 */

static void on_log(void *user, int level, const char *line) {
    (void)user, (void)level;
    snprintf(g.log_text, sizeof g.log_text, "%s", line);
}

static rlock_config config_on(const rlock_store *store) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    config.loop = virtual_hooks(&g.loop);
    config.watchdog_lease_ms = 3000;
    config.log = on_log;
    config.store = store;
    return config;
}

static rlock_store *both_of(const rlock_store *one, const rlock_store *other) {
    rlock_config stores[2];
    rlock_store *store;
    memset(stores, 0, sizeof stores);
    stores[0].store = one;
    stores[1].store = other;
    SAME(rlock_both_new(&store, &stores[0], &stores[1]), RLOCK_OK);
    return store;
}

static int setup_silent(void **state) {
    rlock_config config;
    (void)state;
    memset(&g, 0, sizeof g);
    virtual_begin(&g.loop);
    scripted_begin(&from, &g.loop);
    scripted_begin(&to, &g.loop);
    from.checks_by_hand = to.checks_by_hand = true;
    g.store = both_of(&from.store, &to.store);
    config = config_on(g.store);
    SAME(rlock_client_new(&g.client, &config), RLOCK_OK);
    return 0;
}

static int setup(void **state) {
    setup_silent(state);
    scripted_up(&from);
    scripted_up(&to);
    scripted_pushing(&from, RLOCK_PUSH_CHANGES);
    scripted_pushing(&to, RLOCK_PUSH_CHANGES);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (!virtual_torn(&g.loop)) {
        virtual_free_owners(&g.loop);
        virtual_idle(&g.loop);
        if (g.client != NULL) {
            virtual_client_free(&g.loop, g.client);
        }
        rlock_both_free(g.store);
        SAME(from.opens, from.closes);
        SAME(to.opens, to.closes);
        virtual_end(&g.loop);
    }
    return 0;
}

static struct owner *handle_with(bool fencing) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = "key";
    options.fencing = fencing;
    return owner_new(&g.loop, g.client, &options);
}

static rlock_answer gone(void) {
    return scripted_plain(RLOCK_OUTCOME_GONE);
}

static struct owner *asks(bool fencing, int64_t wait_ms) {
    struct owner *owner = handle_with(fencing);
    SAME(owner_acquire(owner, wait_ms, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    return owner;
}

static struct owner *holder(void) {
    struct owner *owner = asks(false, 0);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    return owner;
}

static int out(struct scripted *store, rlock_op op) {
    return scripted_pending(store, op);
}

/* A hold that is tracked by now, and was looked at for that. */
static struct owner *old_holder(void) {
    struct owner *owner = holder();
    virtual_run_ms(&g.loop, 1000);
    while (out(&from, RLOCK_OP_RENEW) > 0) {
        scripted_reply(&from, RLOCK_OP_RENEW, scripted_done());
        scripted_reply(&to, RLOCK_OP_RENEW, scripted_done());
    }
    return owner;
}

static void second_is_asked_when_the_first_has_granted(void **state) {
    struct owner *owner = asks(false, 0);
    (void)state;
    SAME(out(&from, RLOCK_OP_ACQUIRE), 1);
    SAME(scripted_asked(&to, RLOCK_OP_ACQUIRE), 0);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->events, 0);
    SAME(out(&to, RLOCK_OP_ACQUIRE), 1);
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(rlock_is_held(owner->lock));
}

static void second_is_not_asked_for_what_the_first_refuses(void **state) {
    struct owner *once = asks(false, 0), *waits;
    rlock_answer held = scripted_held(700);
    (void)state;
    held.watched = true;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_held(700));
    SAME(once->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(once->seen[RLOCK_ACQUIRED].remaining_ms, 700);
    waits = asks(false, RLOCK_FOREVER);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, held); /* so there is no need to ask once more */
    virtual_run_ms(&g.loop, 600); /* it sleeps for as long as the holder may hold */
    SAME(out(&from, RLOCK_OP_ACQUIRE), 0);
    virtual_run_ms(&g.loop, 200);
    SAME(out(&from, RLOCK_OP_ACQUIRE), 1);
    SAME(scripted_asked(&to, RLOCK_OP_ACQUIRE), 0);
    SAME(waits->events, 0);
}

/* So it can be told who comes later, and the first is not taken for a second that is not there. */
static void second_that_was_not_heard_of_has_its_handshake_before_the_first_is_asked(void **state) {
    struct owner *owner = asks(false, 0);
    (void)state;
    SAME(from.count, 0);
    SAME(out(&to, RLOCK_OP_RELEASE), 1);
    scripted_up(&to);
    scripted_reply(&to, RLOCK_OP_RELEASE, scripted_unsure(gone())); /* nobody ever had it */
    SAME(out(&from, RLOCK_OP_ACQUIRE), 1);
    scripted_up(&from);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    assert_true(scripted_need(&to, RLOCK_OP_ACQUIRE)->token !=
                scripted_last(&to, RLOCK_OP_RELEASE)->token);
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void handshake_that_fails_is_the_end_of_the_attempt(void **state) {
    struct owner *owner = asks(false, 0);
    (void)state;
    scripted_up(&to);
    scripted_reply(&to, RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_AUTH, "not you"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "not you");
    SAME(from.count, 0);
}

/* The key is of another kind there, but nobody wanted it yet: whoever asks for it is told. */
static void handshake_at_a_key_of_another_type_fails_nothing(void **state) {
    struct owner *owner = asks(false, 0);
    (void)state;
    scripted_up(&from);
    scripted_up(&to);
    scripted_reply(&to, RLOCK_OP_RELEASE, scripted_fault(RLOCK_FAULT_TYPE, "a list"));
    SAME(owner->events, 0);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done()); /* it was deleted meanwhile */
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

/* Whoever still has only the first is not disturbed by attempts that cannot succeed. */
static void first_is_not_asked_while_the_second_is_down(void **state) {
    struct owner *owner, *waits;
    (void)state;
    scripted_down(&to, RLOCK_FAULT_DOWN, "no route");
    owner = asks(false, 0);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "no route");
    waits = asks(false, RLOCK_FOREVER);
    virtual_run_ms(&g.loop, 2000);
    SAME(from.count + to.count, 0);
    scripted_up(&to);
    SAME(out(&from, RLOCK_OP_ACQUIRE), 1);
    SAME(waits->events, 0);
}

/* Not those with which the first went down some time ago. */
static void words_of_the_second_are_reported_if_that_is_the_reason(void **state) {
    struct owner *owner;
    (void)state;
    scripted_down(&from, RLOCK_FAULT_DOWN, "cut");
    scripted_up(&from);
    scripted_down(&to, RLOCK_FAULT_DOWN, "no route");
    owner = asks(false, 0);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "no route");
}

static void second_that_goes_down_gives_the_first_back(void **state) {
    struct owner *owner = asks(false, 0);
    (void)state;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    scripted_down(&to, RLOCK_FAULT_DOWN, "no route");
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    scripted_reply(&from, RLOCK_OP_RELEASE, scripted_done());
    SAME(out(&to, RLOCK_OP_RELEASE), 0);
    scripted_up(&to); /* what was sent there may have been done */
    scripted_reply(&to, RLOCK_OP_RELEASE, gone());
}

static void yes_of_a_first_whose_connection_was_lost_does_not_count(void **state) {
    struct owner *owner = asks(false, RLOCK_FOREVER);
    (void)state;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    scripted_down(&from, RLOCK_FAULT_DOWN, "cut");
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->events, 0);
    scripted_reply(&to, RLOCK_OP_RELEASE, scripted_done());
    scripted_up(&from);
    assert_true(scripted_need(&from, RLOCK_OP_ACQUIRE)->flags & RLOCK_REQUEST_RETRY);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->events, 0);
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void one_attempt_that_the_second_refuses_gives_the_first_back(void **state) {
    struct owner *owner = asks(false, 0);
    (void)state;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_held(4000));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms, 4000);
    scripted_reply(&from, RLOCK_OP_RELEASE, scripted_done());
    SAME(out(&to, RLOCK_OP_RELEASE), 0);
}

/* The wait is in the second, and it goes on being one. */
static void waits_in_the_second(struct owner *owner, int64_t left_ms) {
    int i;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_held(left_ms));
    for (i = 0; i < 10; i++) { /* both at once: the first is there already */
        virtual_run_ms(&g.loop, i == 0 ? 0 : KEEP_MS + 1);
        SAME(out(&from, RLOCK_OP_ACQUIRE), 1);
        SAME(out(&to, RLOCK_OP_ACQUIRE), 1);
        scripted_answer(&from, scripted_need(&from, RLOCK_OP_ACQUIRE), scripted_done());
        scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_held(left_ms));
    }
    SAME(owner->events, 0);
    SAME(scripted_asked(&from, RLOCK_OP_RELEASE) + scripted_asked(&to, RLOCK_OP_RELEASE), 0);
}

static void waiter_keeps_the_first_while_it_waits_for_the_second(void **state) {
    struct owner *owner = asks(false, RLOCK_FOREVER);
    (void)state;
    waits_in_the_second(owner, 60000);
    scripted_woken(&to, "key");
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->events, 0);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    from.checks_by_hand = to.checks_by_hand = false;
    virtual_run_ms(&g.loop, 3 * KEEP_MS);
    assert_true(rlock_is_held(owner->lock));
    SAME(scripted_asked(&from, RLOCK_OP_RELEASE), 0);
}

/* Nobody knows when it ends. */
static void hold_of_the_second_without_a_lease_is_asked_for_as_often(void **state) {
    struct owner *owner = asks(false, RLOCK_FOREVER);
    (void)state;
    waits_in_the_second(owner, -1);
}

static void waiter_whose_time_is_over_gives_the_first_back(void **state) {
    struct owner *owner = asks(false, 5000), *next;
    (void)state;
    waits_in_the_second(owner, 60000);
    next = asks(false, RLOCK_FOREVER);
    owner_cancel(owner);
    virtual_idle(&g.loop);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_held(LEASE_MS)); /* by our own claim */
    virtual_run_ms(&g.loop, 2 * KEEP_MS);
    SAME(out(&from, RLOCK_OP_ACQUIRE), 0);
    scripted_reply(&from, RLOCK_OP_RELEASE, scripted_done());
    SAME(out(&from, RLOCK_OP_ACQUIRE), 1); /* nobody else tells the next one of it */
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(next->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void what_is_kept_for_nobody_is_not_asked_for_again(void **state) {
    struct owner *owner = asks(false, RLOCK_FOREVER);
    int asked;
    (void)state;
    waits_in_the_second(owner, 60000);
    asked = scripted_asked(&from, RLOCK_OP_ACQUIRE);
    owner_cancel(owner);
    virtual_idle(&g.loop);
    scripted_down(&from, RLOCK_FAULT_DOWN, "cut");
    scripted_up(&from);
    SAME(scripted_asked(&from, RLOCK_OP_ACQUIRE), asked);
    virtual_run_ms(&g.loop, 2 * KEEP_MS);
    scripted_reply(&from, RLOCK_OP_RELEASE, scripted_done());
}

static void first_that_was_lost_in_the_wait_is_asked_for_anew(void **state) {
    struct owner *owner = asks(false, RLOCK_FOREVER);
    (void)state;
    waits_in_the_second(owner, 60000);
    scripted_woken(&to, "key");
    scripted_reply(&to, RLOCK_OP_ACQUIRE, scripted_done());
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_held(500)); /* its lease had ended */
    SAME(owner->events, 0);
    scripted_reply(&to, RLOCK_OP_RELEASE, scripted_done());
    virtual_run_ms(&g.loop, 600);
    SAME(out(&to, RLOCK_OP_ACQUIRE), 0);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    SAME(out(&to, RLOCK_OP_ACQUIRE), 1);
}

static void client_that_goes_gives_back_what_it_keeps(void **state) {
    struct owner *owner = asks(false, RLOCK_FOREVER);
    (void)state;
    waits_in_the_second(owner, 60000);
    virtual_client_free(&g.loop, g.client);
    g.client = NULL;
    SAME(scripted_asked(&from, RLOCK_OP_RELEASE), 1);
}

static void hold_ends_with_the_earlier_of_the_two_leases(void **state) {
    struct owner *owner = asks(false, 0);
    int64_t since_us = g.loop.now_us;
    rlock_answer shorter = scripted_done();
    (void)state;
    shorter.lease_ms = 4000;
    virtual_stall(&g.loop, 50000);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_done());
    virtual_stall(&g.loop, 50000);
    scripted_reply(&to, RLOCK_OP_ACQUIRE, shorter);
    SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms,
         (since_us + 4000 * 1000 - 4000 * 10 - 2000 - g.loop.now_us) / 1000);
}

static void renewal_is_of_both(void **state) {
    struct owner *owner = old_holder();
    (void)state;
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    scripted_reply(&to, RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].count, 0);
    BETWEEN(rlock_remaining_ms(owner->lock), 1, LEASE_MS - 1000);
    scripted_reply(&from, RLOCK_OP_RENEW, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].count, 1);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(rlock_remaining_ms(owner->lock), LEASE_MS - LEASE_MS / 100 - 2);
}

static void lost_in(struct scripted *one, struct scripted *other) {
    struct owner *owner = old_holder();
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    scripted_reply(other, RLOCK_OP_RENEW, scripted_done());
    scripted_reply(one, RLOCK_OP_RENEW, gone());
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
    scripted_reply(other, RLOCK_OP_RELEASE, scripted_done()); /* nobody's any more */
}

static void loss_in_the_first_is_a_loss(void **state) {
    (void)state;
    lost_in(&from, &to);
}

static void loss_in_the_second_is_a_loss(void **state) {
    (void)state;
    lost_in(&to, &from);
}

static void change_in_one_is_looked_at(void **state) {
    struct owner *owner = old_holder();
    (void)state;
    scripted_woken(&to, "key");
    scripted_reply(&from, RLOCK_OP_RENEW, scripted_done());
    scripted_reply(&to, RLOCK_OP_RENEW, scripted_plain(RLOCK_OUTCOME_STOLEN));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_STOLEN);
}

static void one_that_is_silent_leaves_the_old_deadline(void **state) {
    struct owner *owner = old_holder();
    (void)state;
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    scripted_reply(&from, RLOCK_OP_RENEW, scripted_done());
    scripted_down(&to, RLOCK_FAULT_DOWN, "no route");
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_CONN);
    virtual_run_ms(&g.loop, LEASE_MS - 1000 - 200);
    assert_true(rlock_is_held(owner->lock));
    virtual_run_ms(&g.loop, 200);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
}

static void release_is_of_both_and_goes_on_behind(void **state) {
    struct owner *owner = holder();
    rlock_stats stats;
    (void)state;
    scripted_down(&to, RLOCK_FAULT_DOWN, "no route");
    SAME(owner_release(owner), RLOCK_OK);
    virtual_idle(&g.loop);
    scripted_reply(&from, RLOCK_OP_RELEASE, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    rlock_client_stats(g.client, &stats);
    SAME(stats.cleaning, 1);
    scripted_up(&to);
    scripted_reply(&to, RLOCK_OP_RELEASE, scripted_done());
    rlock_client_stats(g.client, &stats);
    SAME(stats.cleaning, 0);
}

/* ------------------------------------------------------------------------------------------------
 * Fencing tokens.
 */

static rlock_answer fenced(uint64_t fence, uint16_t fences) {
    rlock_answer answer = scripted_fenced(fence);
    answer.fences = fences;
    return answer;
}

static void fence_is_one_that_both_have_reserved(void **state) {
    struct owner *owner = asks(true, 0);
    (void)state;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(100, 0));
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(130, 0));
    SAME(owner->events, 0);
    SAME(scripted_need(&from, RLOCK_OP_ACQUIRE)->fences, 30);
    assert_true(scripted_need(&from, RLOCK_OP_ACQUIRE)->flags & RLOCK_REQUEST_RETRY);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(107, 0)); /* 107 to 136 */
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_ACQUIRED].fence, 130);
    SAME(rlock_fence(owner->lock), 130);
}

/* What it reserved at first is still its own, though its clock has gone on. */
static void fence_may_lie_between_two_reservations_of_one_hold(void **state) {
    struct owner *owner = asks(true, 0);
    (void)state;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(100, 0));
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(130, 0));
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(140, 0));
    SAME(owner->seen[RLOCK_ACQUIRED].fence, 130);
    SAME(out(&to, RLOCK_OP_ACQUIRE), 0);
}

static void second_that_is_behind_is_raised_too(void **state) {
    struct owner *owner = asks(true, 0);
    (void)state;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(200000, 0));
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(5, 0));
    SAME(scripted_need(&to, RLOCK_OP_ACQUIRE)->fences, 65535);
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(6, 0));
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(65541, 0));
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(131076, 0));
    SAME(scripted_need(&to, RLOCK_OP_ACQUIRE)->fences, 200000 - 196610);
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(196611, 0));
    SAME(owner->seen[RLOCK_ACQUIRED].fence, 200000);
    SAME(out(&from, RLOCK_OP_ACQUIRE), 0);
}

/* A store may give fewer than it was asked for. */
static void store_that_reserves_one_at_a_time_is_asked_often_but_not_for_ever(void **state) {
    struct owner *owner = asks(true, 0);
    int i;
    (void)state;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(2000, 0));
    for (i = 0; i < 17; i++) {
        SAME(owner->events, 0);
        scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced((uint64_t)(5 + i), 1));
    }
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    scripted_reply(&from, RLOCK_OP_RELEASE, scripted_done());
    scripted_reply(&to, RLOCK_OP_RELEASE, scripted_done());
}

static void fences_that_are_too_far_apart_are_refused_with_a_word(void **state) {
    struct owner *owner = asks(true, 0);
    (void)state;
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(1700000000000000, 0));
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(4294967301, 0));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text,
                        "the fencing tokens of the two stores are too far apart");
    scripted_reply(&from, RLOCK_OP_RELEASE, scripted_done());
    scripted_reply(&to, RLOCK_OP_RELEASE, scripted_done());
}

/* Between two leases another may have had some of those that lie between the two reservations. */
static void fences_from_before_a_lease_ran_out_do_not_count(void **state) {
    struct owner *owner = handle_with(true);
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, 100), RLOCK_OK);
    virtual_idle(&g.loop);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(100, 0));
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(130, 0));
    virtual_run_ms(&g.loop, 150);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(140, 0)); /* 140 to 169: not 130 */
    SAME(owner->events, 0);
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(131, 0));
    BETWEEN(owner->seen[RLOCK_ACQUIRED].fence, 0, 0);
}

/* Three wait for a fence each, and are told so of the first. */
static void three_ask(struct owner **line) {
    int i;
    for (i = 0; i < 3; i++) {
        line[i] = asks(true, RLOCK_FOREVER);
    }
    scripted_reply(&from, RLOCK_OP_ACQUIRE, scripted_held(1)); /* the first, which was alone */
    SAME(scripted_need(&from, RLOCK_OP_ACQUIRE)->fences, 3);
}

static void fences_of_hand_overs_are_reserved_in_both(void **state) {
    struct owner *line[3];
    (void)state;
    three_ask(line);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(100, 0)); /* 100 to 102 */
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(101, 0));   /* 101 to 103: they share two */
    SAME(line[0]->seen[RLOCK_ACQUIRED].fence, 101);
    SAME(owner_release(line[0]), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(line[1]->seen[RLOCK_ACQUIRED].fence, 102);
    SAME(owner_release(line[1]), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(line[2]->events, 0); /* 103 may be given to another by the first */
    SAME(out(&from, RLOCK_OP_RELEASE), 1);
}

static void more_fences_are_reserved_for_hand_overs_too(void **state) {
    struct owner *line[3];
    int i;
    (void)state;
    three_ask(line);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(100, 0)); /* 100 to 102 */
    scripted_reply(&to, RLOCK_OP_ACQUIRE, fenced(130, 0));   /* 130 to 132 */
    SAME(scripted_need(&from, RLOCK_OP_ACQUIRE)->fences, 30);
    scripted_reply(&from, RLOCK_OP_ACQUIRE, fenced(103, 0)); /* to 132 */
    for (i = 0; i < 3; i++) {
        SAME(line[i]->seen[RLOCK_ACQUIRED].fence, 130 + i);
        SAME(owner_release(line[i]), RLOCK_OK);
        virtual_idle(&g.loop);
    }
}

/* ------------------------------------------------------------------------------------------------
 * Questions, and what is refused.
 */

static struct {
    int count;
    rlock_info info;
} told;

static void on_told(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    told.count++;
    told.info = *info;
}

static rlock_answer standing(int64_t holders, int64_t left_ms) {
    static rlock_info info;
    rlock_answer answer = scripted_done();
    memset(&info, 0, sizeof info);
    info.holders = holders;
    info.left_ms = left_ms;
    answer.info = &info;
    return answer;
}

static void question(rlock_op op) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    memset(&told, 0, sizeof told);
    options.key = "key";
    SAME(op == RLOCK_OP_INSPECT ? rlock_inspect(g.client, &options, on_told, NULL)
                                : rlock_force_release(g.client, &options, on_told, NULL),
         RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(out(&from, op), 1);
    SAME(out(&to, op), 1);
}

static void key_is_held_if_one_says_so(void **state) {
    (void)state;
    question(RLOCK_OP_INSPECT);
    scripted_reply(&from, RLOCK_OP_INSPECT, standing(1, 700));
    SAME(told.count, 0);
    scripted_reply(&to, RLOCK_OP_INSPECT, standing(0, 0));
    SAME(told.info.status, RLOCK_OK);
    SAME(told.info.holders, 1);
    SAME(told.info.left_ms, 700);
    question(RLOCK_OP_INSPECT);
    scripted_reply(&to, RLOCK_OP_INSPECT, standing(1, 900));
    scripted_reply(&from, RLOCK_OP_INSPECT, standing(1, 700));
    SAME(told.info.holders, 1);
    SAME(told.info.left_ms, 900);
    question(RLOCK_OP_INSPECT);
    scripted_reply(&from, RLOCK_OP_INSPECT, standing(0, 0));
    scripted_reply(&to, RLOCK_OP_INSPECT, standing(1, 800));
    SAME(told.info.holders, 1);
    SAME(told.info.left_ms, 800);
    question(RLOCK_OP_INSPECT);
    scripted_reply(&to, RLOCK_OP_INSPECT, standing(0, 0));
    scripted_reply(&from, RLOCK_OP_INSPECT, standing(0, 0));
    SAME(told.info.holders, 0);
    SAME(told.info.permits, 1);
}

static void question_that_one_does_not_answer_is_not_answered(void **state) {
    (void)state;
    question(RLOCK_OP_INSPECT);
    scripted_reply(&from, RLOCK_OP_INSPECT, standing(1, 700));
    scripted_reply(&to, RLOCK_OP_INSPECT, scripted_fault(RLOCK_FAULT_BUSY, "later"));
    SAME(told.info.status, RLOCK_ERR_SERVER);
}

static void force_is_heard_by_both(void **state) {
    (void)state;
    question(RLOCK_OP_FORCE);
    scripted_reply(&to, RLOCK_OP_FORCE, standing(0, 0));
    scripted_reply(&from, RLOCK_OP_FORCE, standing(1, 0));
    SAME(told.info.status, RLOCK_OK);
    SAME(told.info.holders, 1);
}

static const char *long_keys(void *state, const char *key, size_t len, const rlock_terms *terms,
                             bool fencing) {
    (void)state, (void)key, (void)terms, (void)fencing;
    return len > 3 ? "this store has short keys" : NULL;
}

static int refused(const char *key, rlock_kind kind) {
    rlock_options options;
    rlock *lock = NULL;
    int status;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.kind = kind;
    g.log_text[0] = 0;
    status = rlock_new(&lock, g.client, &options);
    rlock_free(lock);
    return status;
}

static void what_one_refuses_is_refused_with_its_words(void **state) {
    (void)state;
    to.store.refuses = long_keys;
    SAME(refused("abc", RLOCK_KIND_MUTEX), RLOCK_OK);
    SAME(refused("abcd", RLOCK_KIND_MUTEX), RLOCK_ERR_ARG);
    assert_non_null(strstr(g.log_text, "this store has short keys"));
    SAME(refused("abc", RLOCK_KIND_FAIR), RLOCK_ERR_ARG);
    assert_non_null(strstr(g.log_text, RLOCK__HAS_KINDS
                                           ? "two stores combined support only a mutex with one key"
                                           : "options.kind needs RLOCK_WITH_KINDS"));
}

static void store_of_both_has_both(void **state) {
    rlock_config one;
    rlock_store *store = NULL;
    (void)state;
    memset(&one, 0, sizeof one);
    one.store = &from.store;
    SAME(rlock_both_new(NULL, &one, &one), RLOCK_ERR_ARG);
    SAME(rlock_both_new(&store, NULL, &one), RLOCK_ERR_ARG);
    SAME(rlock_both_new(&store, &one, NULL), RLOCK_ERR_ARG);
    assert_null(store);
    virtual_memory.fail_at = 1;
    SAME(rlock_both_new(&store, &one, &one), RLOCK_ERR_NOMEM);
    assert_null(store);
    rlock_both_free(NULL);
}

/* ------------------------------------------------------------------------------------------------
 * The move: all services on the first store, then each anew on both, then each anew on the second.
 */

enum { OLD, BOTH, NEW };

static struct {
    const rlock_store *stores[3]; /* [phase] */
    rlock_client *clients[CLIENTS];
    struct owner *owners[CLIENTS * HANDLES];
    int phases[CLIENTS], grants[3]; /* [phase] */
    uint64_t fence;                 /* the highest that was given */
    bool fencing;
} m;

/* What a resource would see. */
static void fence_rises(struct owner *owner, const rlock_event *event) {
    int i, holders = 0;
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK) {
        assert_true(!m.fencing || event->fence > m.fence);
        m.fence = event->fence;
        for (i = 0; i < CLIENTS * HANDLES; i++) {
            holders += m.owners[i] != NULL && m.owners[i]->lock != NULL &&
                       rlock_is_held(m.owners[i]->lock);
            m.grants[m.phases[i % CLIENTS]] += m.owners[i] == owner;
        }
        SAME(holders, 1);
    }
}

static void service_ends(int k) {
    int i;
    for (i = k; i < CLIENTS * HANDLES; i += CLIENTS) {
        owner_free(m.owners[i]);
    }
    virtual_client_free(&g.loop, m.clients[k]);
    m.clients[k] = NULL;
}

static void service_begins(int k, int phase) {
    rlock_config config = config_on(m.stores[phase]);
    rlock_options options;
    int i;
    config.watchdog_lease_ms = 300;
    config.command_timeout_ms = 100;
    config.poll_ms = 20;
    memset(&options, 0, sizeof options);
    options.key = "key";
    options.fencing = m.fencing;
    m.phases[k] = phase;
    SAME(rlock_client_new(&m.clients[k], &config), RLOCK_OK);
    for (i = k; i < CLIENTS * HANDLES; i += CLIENTS) {
        m.owners[i] = owner_new(&g.loop, m.clients[k], &options);
        m.owners[i]->react = fence_rises;
    }
}

static void move_begins(const rlock_store *old, const rlock_store *next, bool fencing) {
    int k;
    memset(&m, 0, sizeof m);
    g.store = both_of(old, next);
    m.stores[OLD] = old;
    m.stores[BOTH] = g.store;
    m.stores[NEW] = next;
    m.fencing = fencing;
    for (k = 0; k < CLIENTS; k++) {
        service_begins(k, OLD);
    }
}

static struct owner *move_holder(void) {
    struct owner *holder = NULL;
    int i, holders = 0;
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        if (rlock_is_held(m.owners[i]->lock)) {
            holder = m.owners[i];
            holders++;
        }
    }
    BETWEEN(holders, 0, 1);
    return holder;
}

static void move_acts(struct owner *owner) {
    if (rlock_is_held(owner->lock)) {
        switch (chance(8)) {
        case 0:
        case 1: owner_release(owner); break;
        case 2: owner_renew(owner, chance(2) * (50 + chance(400))); break;
        default: break;
        }
    } else if (chance(10) == 0) {
        owner_cancel(owner);
    } else {
        owner_acquire(owner, chance(3) * 300, chance(2) * (50 + chance(400)));
    }
}

static void service_link(int k, int server, bool up) {
    int place;
    for (place = 0; place < CLIENTS; place++) {
        if (s.links[place][server].client == m.clients[k]) {
            storm_link(place, server, up);
        }
    }
}

/* Services begin anew one by one, while all of them lock, and links break. */
static void move_storms(int steps, bool breaks) {
    int i, restarts = 0;
    for (i = 0; i < steps; i++) {
        if (i * (2 * CLIENTS + 3) / steps > restarts && restarts < 2 * CLIENTS) {
            int k = restarts % CLIENTS;
            service_ends(k);
            service_begins(k, m.phases[k] + 1);
            restarts++;
        }
        switch (breaks ? chance(12) : 11) {
        case 0: service_link((int)chance(CLIENTS), (int)chance(SERVERS), false); break;
        case 1:
        case 2: service_link((int)chance(CLIENTS), (int)chance(SERVERS), true); break;
        case 3: s.servers[chance(SERVERS)].frozen = chance(4) == 0; break;
        default: move_acts(m.owners[chance(CLIENTS * HANDLES)]); break;
        }
        virtual_run_until(&g.loop, g.loop.now_us + chance(8000));
        move_holder();
    }
    SAME(restarts, 2 * CLIENTS);
}

static void move_over(void) {
    int k;
    virtual_free_owners(&g.loop);
    for (k = 0; k < CLIENTS; k++) {
        virtual_client_free(&g.loop, m.clients[k]);
    }
    rlock_both_free(g.store);
}

/* Calm: each who wants it gets it. The grants of each phase are added up. */
static void move_ends(int *grants) {
    int i, k;
    for (i = 0; i < SERVERS; i++) {
        s.servers[i].frozen = false;
        for (k = 0; k < CLIENTS; k++) {
            if (s.links[k][i].client != NULL) {
                storm_link(k, i, true);
            }
        }
    }
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        owner_release(m.owners[i]);
        owner_cancel(m.owners[i]);
    }
    virtual_run_ms(&g.loop, 3000);
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        SAME(owner_pending(m.owners[i]), 0);
        SAME(owner_acquire(m.owners[i], 5000, 1000), RLOCK_OK);
        virtual_run_ms(&g.loop, 300);
        SAME(m.owners[i]->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        SAME(owner_release(m.owners[i]), RLOCK_OK);
        virtual_run_ms(&g.loop, 300);
        SAME(m.owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    for (i = 0; i < 3; i++) {
        grants[i] += m.grants[i];
    }
    move_over();
}

static void memories_begin(void) {
    int i;
    memset(&g, 0, sizeof g);
    memset(&s, 0, sizeof s);
    virtual_begin(&g.loop);
    for (i = 0; i < 2; i++) {
        SAME(rlock_memory_new(&g.ends[i]), RLOCK_OK);
    }
}

static void memories_end(void) {
    int i;
    for (i = 0; i < 2; i++) {
        rlock_memory_free(g.ends[i]);
    }
    virtual_end(&g.loop);
}

static void all_phases_had_their_share(const int *grants, int runs) {
    int i;
    for (i = 0; i < 3; i++) {
        print_message("%d grants in phase %d\n", grants[i], i + 1);
        BETWEEN(grants[i], 10 * runs, 2000 * runs);
    }
}

#define RUNS 100

static void services_move_between_stores_in_the_process(void **state) {
    int run, grants[3] = {0};
    (void)state;
    for (run = 0; run < RUNS; run++) {
        memories_begin();
        s.seed = virtual_seed = (uint64_t)run + 1;
        move_begins(g.ends[0], g.ends[1], run % 2 == 0);
        move_storms(1500, false);
        move_ends(grants);
        memories_end();
    }
    all_phases_had_their_share(grants, RUNS);
}

static void servers_begin(uint64_t seed, bool pushes) {
    memset(&g, 0, sizeof g);
    memset(&s, 0, sizeof s);
    virtual_begin(&g.loop);
    s.seed = virtual_seed = seed;
    s.pushes = pushes;
    s.servers[0].clock_off_us = chance(400000); /* clocks that differ */
    s.servers[1].clock_off_us = chance(400000);
}

#define STORMS 200
#define FRESH_STORMS 50

static void services_move_while_links_break_and_never_two_hold(void **state) {
    uint64_t fresh = fresh_from(1000000, 4000000000);
    int run, grants[3] = {0};
    (void)state;
    print_message("fresh seeds %llu..%llu, of this commit\n", (unsigned long long)fresh,
                  (unsigned long long)(fresh + FRESH_STORMS - 1));
    for (run = 0; run < STORMS + FRESH_STORMS; run++) {
        uint64_t seed = run < STORMS ? (uint64_t)run + 1 : fresh + (uint64_t)(run - STORMS);
        servers_begin(seed, seed % 3 != 0);
        move_begins(link_store(0), link_store(1), seed % 4 != 0);
        move_storms(3000, true);
        move_ends(grants);
        virtual_end(&g.loop);
    }
    all_phases_had_their_share(grants, STORMS + FRESH_STORMS);
}

/* Each wants the key again as soon as it has let it go. */
static void again_and_again(struct owner *owner, const rlock_event *event) {
    fence_rises(owner, event);
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK) {
        SAME(owner_release(owner), RLOCK_OK);
    } else if (event->kind != RLOCK_ACQUIRED) {
        SAME(owner_acquire(owner, RLOCK_FOREVER, 1000), RLOCK_OK);
    }
}

/* Returns how many of a hundred grants went to those of `phase`, beside as many of another one:
 * none of them ever stops to ask. */
static int share_beside(int phase, int other, bool pushes) {
    int k, i, share;
    servers_begin(5, pushes);
    move_begins(link_store(0), link_store(1), true);
    for (k = 0; k < CLIENTS; k++) {
        service_ends(k);
        service_begins(k, k < CLIENTS / 2 ? phase : other);
    }
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        m.owners[i]->react = again_and_again;
        SAME(owner_acquire(m.owners[i], RLOCK_FOREVER, 1000), RLOCK_OK);
    }
    virtual_run_ms(&g.loop, 60000);
    BETWEEN(m.grants[phase] + m.grants[other], 5000, 1000000);
    share = 100 * m.grants[phase] / (m.grants[phase] + m.grants[other]);
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        m.owners[i]->react = NULL;
    }
    move_over();
    virtual_end(&g.loop);
    return share;
}

static void no_waiter_starves_behind_those_of_another_phase(void **state) {
    int pushes;
    (void)state;
    for (pushes = 0; pushes < 2; pushes++) {
        BETWEEN(share_beside(BOTH, OLD, pushes != 0), 25, 75);
        BETWEEN(share_beside(BOTH, NEW, pushes != 0), 25, 75);
    }
}

/* The waiters of both stores do not wake each other while somebody has the second. */
static void waiters_for_the_second_are_quiet(void **state) {
    uint64_t before = 0, after = 0;
    int i, k;
    (void)state;
    servers_begin(5, true);
    move_begins(link_store(0), link_store(1), false);
    for (k = 0; k < CLIENTS; k++) {
        service_ends(k);
        service_begins(k, k == 0 ? NEW : BOTH);
    }
    SAME(owner_acquire(m.owners[0], 0, 60000), RLOCK_OK);
    virtual_run_ms(&g.loop, 100);
    assert_true(rlock_is_held(m.owners[0]->lock));
    for (i = 1; i < CLIENTS; i++) {
        SAME(owner_acquire(m.owners[i], RLOCK_FOREVER, 60000), RLOCK_OK);
    }
    for (k = 0; k < 2; k++) {
        virtual_run_ms(&g.loop, k == 0 ? 1000 : 10000);
        before = after;
        for (after = 0, i = 0; i < CLIENTS * SERVERS; i++) {
            after += s.links[i / SERVERS][i % SERVERS].orders;
        }
    }
    BETWEEN(after - before, 2, 10000 / 20 * 2 + 50); /* one of them asks both, each poll_ms */
    SAME(owner_release(m.owners[0]), RLOCK_OK);
    virtual_run_ms(&g.loop, 100);
    assert_non_null(move_holder());
    move_over();
    virtual_end(&g.loop);
}

/* Opening, taking and letting go, each without memory for one thing. */
static void every_failing_allocation_is_survived(void **state) {
    int n, granted = 0, refusals = 0;
    (void)state;
    for (n = 1; n < 200; n++) {
        rlock_config config, halves[2];
        rlock_client *client = NULL;
        bool failed;
        memories_begin();
        memset(halves, 0, sizeof halves);
        halves[0].store = g.ends[0];
        halves[1].store = g.ends[1];
        virtual_memory.fail_at = (uint64_t)n;
        g.store = NULL;
        if (rlock_both_new(&g.store, &halves[0], &halves[1]) == RLOCK_OK) {
            config = config_on(g.store);
            if (rlock_client_new(&client, &config) == RLOCK_OK) {
                rlock_options options;
                struct owner *owner;
                int status;
                memset(&options, 0, sizeof options);
                options.key = "key";
                options.fencing = true;
                owner = owner_attempt(&g.loop, client, &options, &status);
                if (owner != NULL && owner_acquire(owner, 2000, 2000) == RLOCK_OK) {
                    virtual_run_ms(&g.loop, 2500);
                    SAME(owner_pending(owner), 0);
                    status = owner->seen[RLOCK_ACQUIRED].status;
                    assert_true(status == RLOCK_OK || status == RLOCK_ERR_NOMEM);
                    granted += status == RLOCK_OK;
                    refusals += status != RLOCK_OK;
                }
            }
        }
        failed = virtual_memory.failed;
        virtual_memory.fail_at = 0;
        virtual_free_owners(&g.loop);
        if (client != NULL) {
            virtual_run_ms(&g.loop, 5000);
            virtual_client_free(&g.loop, client);
        }
        rlock_both_free(g.store);
        memories_end();
        if (!failed) {
            break;
        }
    }
    BETWEEN(n, 10, 199);
    BETWEEN(granted, 1, 199);
    BETWEEN(refusals, 1, 199);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define SILENT_CASE(name) cmocka_unit_test_setup_teardown(name, setup_silent, teardown)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        CASE(second_is_asked_when_the_first_has_granted),
        CASE(second_is_not_asked_for_what_the_first_refuses),
        SILENT_CASE(second_that_was_not_heard_of_has_its_handshake_before_the_first_is_asked),
        SILENT_CASE(handshake_that_fails_is_the_end_of_the_attempt),
        SILENT_CASE(handshake_at_a_key_of_another_type_fails_nothing),
        CASE(first_is_not_asked_while_the_second_is_down),
        CASE(words_of_the_second_are_reported_if_that_is_the_reason),
        CASE(second_that_goes_down_gives_the_first_back),
        CASE(yes_of_a_first_whose_connection_was_lost_does_not_count),
        CASE(one_attempt_that_the_second_refuses_gives_the_first_back),
        CASE(waiter_keeps_the_first_while_it_waits_for_the_second),
        CASE(hold_of_the_second_without_a_lease_is_asked_for_as_often),
        CASE(waiter_whose_time_is_over_gives_the_first_back),
        CASE(what_is_kept_for_nobody_is_not_asked_for_again),
        CASE(first_that_was_lost_in_the_wait_is_asked_for_anew),
        CASE(client_that_goes_gives_back_what_it_keeps),
        CASE(hold_ends_with_the_earlier_of_the_two_leases),
        CASE(renewal_is_of_both),
        CASE(loss_in_the_first_is_a_loss),
        CASE(loss_in_the_second_is_a_loss),
        CASE(change_in_one_is_looked_at),
        CASE(one_that_is_silent_leaves_the_old_deadline),
        CASE(release_is_of_both_and_goes_on_behind),
        CASE(fence_is_one_that_both_have_reserved),
        CASE(fence_may_lie_between_two_reservations_of_one_hold),
        CASE(second_that_is_behind_is_raised_too),
        CASE(store_that_reserves_one_at_a_time_is_asked_often_but_not_for_ever),
        CASE(fences_that_are_too_far_apart_are_refused_with_a_word),
        CASE(fences_from_before_a_lease_ran_out_do_not_count),
        CASE(fences_of_hand_overs_are_reserved_in_both),
        CASE(more_fences_are_reserved_for_hand_overs_too),
#if RLOCK__HAS_KINDS
        CASE(key_is_held_if_one_says_so),
        CASE(question_that_one_does_not_answer_is_not_answered),
        CASE(force_is_heard_by_both),
#endif
        CASE(what_one_refuses_is_refused_with_its_words),
        CASE(store_of_both_has_both),
        cmocka_unit_test(services_move_between_stores_in_the_process),
        cmocka_unit_test(services_move_while_links_break_and_never_two_hold),
        cmocka_unit_test(no_waiter_starves_behind_those_of_another_phase),
        cmocka_unit_test(waiters_for_the_second_are_quiet),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("both", tests, NULL, NULL);
}
