/* votes.c - the quorum in virtual time: what counts, when, and what for
 *
 * First on scripted stores, where the test speaks for each server; then on small servers of its own
 * behind links that delay, lose and reorder, with an oracle: never two holders.
 */

#define RLOCK_IMPLEMENTATION
#include "fresh.h"
#include "scripted.h"

#define SERVERS 5
#define MAJORITY 3
#define LEASE_MS 10000
#define WIN_BACK_MS 100 /* a vote that was lost is asked for again */
#define WATCHDOG_MS 3000

static struct {
    struct virtual_loop loop;
    rlock_store *store;
    rlock_client *client;
} g;

static struct scripted servers[SERVERS];

static rlock_config config_on(const rlock_store *store) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    config.loop = virtual_hooks(&g.loop);
    config.watchdog_lease_ms = WATCHDOG_MS;
    config.store = store;
    return config;
}

static int setup_with(int up, int replicas) {
    rlock_config nodes[SERVERS], config;
    int i;
    memset(&g, 0, sizeof g);
    memset(nodes, 0, sizeof nodes);
    virtual_begin(&g.loop);
    for (i = 0; i < SERVERS; i++) {
        scripted_begin(&servers[i], &g.loop);
        servers[i].checks_by_hand = true;
        nodes[i].store = &servers[i].store;
    }
    SAME(rlock_quorum_new(&g.store, nodes, SERVERS), RLOCK_OK);
    config = config_on(g.store);
    config.replicas = replicas;
    SAME(rlock_client_new(&g.client, &config), RLOCK_OK);
    for (i = 0; i < up; i++) {
        scripted_up(&servers[i]);
    }
    return 0;
}

static int setup(void **state) {
    (void)state;
    return setup_with(SERVERS, 0);
}

static int setup_none_up(void **state) {
    (void)state;
    return setup_with(0, 0);
}

static int teardown(void **state) {
    (void)state;
    if (!virtual_torn(&g.loop)) {
        virtual_free_owners(&g.loop);
        virtual_idle(&g.loop);
        if (g.client != NULL) {
            virtual_client_free(&g.loop, g.client);
        }
        rlock_quorum_free(g.store);
        virtual_end(&g.loop);
    }
    return 0;
}

static struct owner *handle(const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    return owner_new(&g.loop, g.client, &options);
}

/* The servers from `first` on answer what they are asked. */
static void reply(rlock_op op, int first, int count, rlock_answer answer) {
    int i;
    for (i = first; i < first + count; i++) {
        scripted_reply(&servers[i], op, answer);
    }
}

static int asked(rlock_op op) {
    int i, count = 0;
    for (i = 0; i < SERVERS; i++) {
        count += scripted_pending(&servers[i], op);
    }
    return count;
}

static void push_all(void) {
    int i;
    for (i = 0; i < SERVERS; i++) {
        scripted_pushing(&servers[i], RLOCK_PUSH_CHANGES);
    }
}

static rlock_answer gone(void) {
    return scripted_plain(RLOCK_OUTCOME_GONE);
}
static rlock_answer stolen(void) {
    return scripted_plain(RLOCK_OUTCOME_STOLEN);
}
static rlock_answer unknown(void) {
    return scripted_fault(RLOCK_FAULT_UNKNOWN, "no answer");
}

static uint64_t cleaning(void) {
    rlock_stats stats;
    rlock_client_stats(g.client, &stats);
    return stats.cleaning;
}

/* A hold that `votes` servers have granted; the others have not answered yet. */
static struct owner *holder(int votes, int64_t lease_ms) {
    struct owner *owner = handle("key");
    SAME(owner_acquire(owner, 0, lease_ms), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, votes, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    return owner;
}

static int64_t validity_ms(int64_t lease_ms) {
    return lease_ms - lease_ms / 100 - 2;
}

/* ------------------------------------------------------------------------------------------------
 * Acquire.
 */

static void all_are_asked_at_once_each_with_a_token_of_its_own(void **state) {
    struct owner *owner = handle("key");
    int i, k;
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    SAME(asked(RLOCK_OP_ACQUIRE), SERVERS);
    for (i = 0; i < SERVERS; i++) {
        for (k = 0; k < i; k++) {
            assert_true(servers[i].log[0].token != servers[k].log[0].token);
        }
        SAME(servers[i].log[0].lease_ms, LEASE_MS);
        assert_string_equal(servers[i].log[0].key, "key");
    }
}

static void majority_grants_and_not_one_vote_before(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 3, 2, scripted_done());
    SAME(owner->events, 0);
    reply(RLOCK_OP_ACQUIRE, 1, 1, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(rlock_remaining_ms(owner->lock), validity_ms(LEASE_MS));
}

static void validity_is_of_the_earliest_of_the_best_majority(void **state) {
    struct owner *owner = handle("key");
    int64_t asked_us;
    (void)state;
    push_all();
    SAME(owner_acquire(owner, 5000, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
    reply(RLOCK_OP_ACQUIRE, 2, 3, scripted_held(5000)); /* and it is asked again, to be woken */
    asked_us = g.loop.now_us;
    SAME(asked(RLOCK_OP_ACQUIRE), 3);
    SAME(asked(RLOCK_OP_RELEASE), 2); /* what was got is given back before it is asked for again */
    virtual_run_ms(&g.loop, 40);
    reply(RLOCK_OP_RELEASE, 0, 2, scripted_done());
    SAME(asked(RLOCK_OP_ACQUIRE), 5);
    reply(RLOCK_OP_ACQUIRE, 0, 4, scripted_done()); /* two of now, two of 40 ms ago */
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(rlock_remaining_ms(owner->lock),
         validity_ms(LEASE_MS) - (g.loop.now_us - asked_us) / 1000);
}

/* A release that was sent may be executed late: it must not meet the vote that is got anew. */
static void token_that_was_given_back_is_not_used_again(void **state) {
    struct owner *owner = handle("key");
    uint64_t before = 0;
    int i;
    (void)state;
    push_all();
    SAME(owner_acquire(owner, 5000, LEASE_MS), RLOCK_OK);
    before = scripted_need(&servers[0], RLOCK_OP_ACQUIRE)->token;
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
    reply(RLOCK_OP_ACQUIRE, 2, 3, scripted_held(5000));
    reply(RLOCK_OP_RELEASE, 0, 1, scripted_done());
    assert_true(scripted_need(&servers[0], RLOCK_OP_ACQUIRE)->token != before);
    reply(RLOCK_OP_RELEASE, 1, 1, scripted_unsure(scripted_done()));
    SAME(scripted_pending(&servers[1], RLOCK_OP_ACQUIRE), 0); /* it may come there once more */
    for (i = 2; i < SERVERS; i++) {                           /* never got, never given back */
        SAME(scripted_need(&servers[i], RLOCK_OP_ACQUIRE)->token, servers[i].log[0].token);
    }
    reply(RLOCK_OP_ACQUIRE, 2, 2, scripted_done());
    reply(RLOCK_OP_ACQUIRE, 0, 1, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    SAME(scripted_pending(&servers[1], RLOCK_OP_RELEASE), 1);
    before = scripted_need(&servers[1], RLOCK_OP_RELEASE)->token;
    reply(RLOCK_OP_RELEASE, 1, 1, gone());
    assert_true(scripted_need(&servers[1], RLOCK_OP_ACQUIRE)->token != before);
}

/* A server may have released it already, where it waited for replicas: whatever the fault is. */
static void token_that_a_server_has_spent_is_not_used_again(void **state) {
    static const rlock_fault faults[] = {RLOCK_FAULT_UNKNOWN, RLOCK_FAULT_BUSY};
    int i;
    (void)state;
    push_all();
    for (i = 0; i < 2; i++) {
        struct owner *owner = handle(i ? "other" : "key");
        rlock_answer spent = scripted_fault(faults[i], "closed");
        uint64_t before;
        spent.spent = true;
        SAME(owner_acquire(owner, 5000, LEASE_MS), RLOCK_OK);
        before = scripted_need(&servers[0], RLOCK_OP_ACQUIRE)->token;
        reply(RLOCK_OP_ACQUIRE, 0, 1, spent);
        reply(RLOCK_OP_ACQUIRE, 1, 3, scripted_done());
        SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        reply(RLOCK_OP_ACQUIRE, 4, 1, scripted_done());
        SAME(owner_renew(owner, 0), RLOCK_OK);
        SAME(scripted_need(&servers[0], RLOCK_OP_RELEASE)->token, before);
        reply(RLOCK_OP_RELEASE, 0, 1, gone());
        assert_true(scripted_need(&servers[0], RLOCK_OP_ACQUIRE)->token != before);
        reply(RLOCK_OP_ACQUIRE, 0, 1, scripted_done());
        reply(RLOCK_OP_RENEW, 1, 4, scripted_done());
    }
}

/* A vote that is late when the hold is renewed, and is asked for anew. */
static uint64_t asked_anew(void) {
    struct owner *owner = holder(3, LEASE_MS);
    uint64_t before = scripted_need(&servers[4], RLOCK_OP_ACQUIRE)->token;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    virtual_idle(&g.loop);
    return before;
}

#if RLOCK__HAS_REPLICAS || !RLOCK__HAS_REDIS
static int setup_replicated(void **state) {
    (void)state;
    return setup_with(SERVERS, 1);
}

/* The same where the answer was not waited for: a server that waits for replicas may be releasing
 * what it granted. */
static void token_that_a_server_may_have_spent_is_not_used_again(void **state) {
    uint64_t before = asked_anew();
    (void)state;
    SAME(scripted_pending(&servers[4], RLOCK_OP_ACQUIRE), 0);
    SAME(scripted_need(&servers[4], RLOCK_OP_RELEASE)->token, before);
    reply(RLOCK_OP_RELEASE, 4, 1, gone());
    assert_true(scripted_need(&servers[4], RLOCK_OP_ACQUIRE)->token != before);
}
#endif

static void token_of_a_late_vote_is_asked_for_again_where_nothing_is_given_back(void **state) {
    uint64_t before = asked_anew();
    (void)state;
    SAME(scripted_need(&servers[4], RLOCK_OP_ACQUIRE)->token, before);
}

static void refusal_gives_the_votes_back_at_once(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 1, scripted_done());
    reply(RLOCK_OP_ACQUIRE, 1, 3, scripted_held(700));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(asked(RLOCK_OP_ACQUIRE), 0);
    SAME(asked(RLOCK_OP_RELEASE), 2); /* the one that was got, and the one that may be */
    SAME(cleaning(), 1);
    reply(RLOCK_OP_RELEASE, 0, 1, scripted_done());
    reply(RLOCK_OP_RELEASE, 4, 1, gone());
    SAME(cleaning(), 0);
}

static void time_left_is_when_a_majority_can_be_free(void **state) {
    struct owner *owner = handle("key");
    int i;
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    for (i = 0; i < MAJORITY; i++) {
        reply(RLOCK_OP_ACQUIRE, i, 1, scripted_held(1000 * (3 - i)));
    }
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms, 3000);
}

static void waiter_that_a_majority_tells_of_changes_sleeps(void **state) {
    struct owner *owner = handle("key"), *other = handle("other");
    rlock_answer held = scripted_held(60000);
    (void)state;
    held.watched = true;
    push_all();
    SAME(owner_acquire(owner, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, MAJORITY, held);
    reply(RLOCK_OP_RELEASE, MAJORITY, SERVERS - MAJORITY, gone());
    SAME(asked(RLOCK_OP_ACQUIRE), 0);
    scripted_woken(&servers[0], "key");
    SAME(asked(RLOCK_OP_ACQUIRE), SERVERS);
    SAME(owner_cancel(owner), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(owner_acquire(other, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, MAJORITY - 1, held);
    reply(RLOCK_OP_ACQUIRE, MAJORITY - 1, 1, scripted_held(60000));
    SAME(asked(RLOCK_OP_ACQUIRE), MAJORITY); /* two of five: it may change on the other three */
}

static void split_vote_is_tried_again_within_the_poll_time(void **state) {
    struct owner *owner = handle("key");
    int tries, count = 0;
    (void)state;
    push_all(); /* nobody polls */
    SAME(owner_acquire(owner, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    for (tries = 0; tries < 20; tries++) {
        int64_t start_us = g.loop.now_us;
        reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
        reply(RLOCK_OP_ACQUIRE, 2, 3, scripted_held(60000));
        reply(RLOCK_OP_RELEASE, 0, 2, scripted_done());
        while (asked(RLOCK_OP_ACQUIRE) < SERVERS) {
            virtual_run_ms(&g.loop, 1);
        }
        BETWEEN(g.loop.now_us - start_us, 0, 260000);
        count += g.loop.now_us - start_us > 3000;
    }
    BETWEEN(count, 5, 20); /* and not at once each time */
    SAME(owner->events, 0);
}

static void faults_that_leave_a_majority_hide_nothing(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 2, unknown());
    reply(RLOCK_OP_ACQUIRE, 2, 1, scripted_held(1000));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms, -1);
}

static void fault_that_time_mends_is_reported_before_one_that_lasts(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_fault(RLOCK_FAULT_AUTH, "NOPERM"));
    reply(RLOCK_OP_ACQUIRE, 2, 1, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "LOADING");
    SAME(owner_acquire(owner, 5000, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 3, scripted_fault(RLOCK_FAULT_AUTH, "NOPERM"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_AUTH);
    SAME(owner_acquire(owner, 5000, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 3, scripted_fault(RLOCK_FAULT_TYPE, "WRONGTYPE"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_WRONG_TYPE);
}

static void servers_that_are_down_are_not_waited_for(void **state) {
    struct owner *owner = handle("key");
    int i;
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    for (i = 0; i < 2; i++) {
        scripted_down(&servers[i], RLOCK_FAULT_DOWN, "refused");
    }
    SAME(owner->events, 0);
    scripted_down(&servers[2], RLOCK_FAULT_DOWN, "refused");
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "refused");
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2); /* known already: nobody is waited for at all */
    scripted_up(&servers[2]);
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 2, 3, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void up_is_a_majority_and_down_is_none(void **state) {
    rlock_stats stats;
    int i;
    (void)state;
    for (i = 0; i < SERVERS; i++) {
        rlock_client_stats(g.client, &stats);
        SAME(stats.up, i >= MAJORITY);
        scripted_up(&servers[i]);
    }
    for (i = 0; i < SERVERS; i++) {
        scripted_pushing(&servers[i], RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
        scripted_notified(&servers[i], "key", 1); /* nobody stands in a line */
        rlock_client_stats(g.client, &stats);
        SAME(stats.pushing, i + 1 >= MAJORITY);
    }
    for (i = 0; i < SERVERS; i++) {
        scripted_pushing(&servers[i], 0);
        scripted_down(&servers[i], RLOCK_FAULT_DOWN, "gone");
        rlock_client_stats(g.client, &stats);
        SAME(stats.up, SERVERS - i - 1 >= MAJORITY);
        SAME(stats.pushing, SERVERS - i - 1 >= MAJORITY);
        SAME(stats.faults, i + 1);
    }
}

/* News of what is given back reaches also who gave it back. */
static void fault_leaves_a_pause(rlock_answer fault) {
    struct owner *owner = handle("key");
    int64_t start_us = g.loop.now_us;
    int tries;
    SAME(owner_acquire(owner, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    for (tries = 0; tries < 20; tries++) {
        reply(RLOCK_OP_ACQUIRE, 3, 2, scripted_done());
        reply(RLOCK_OP_ACQUIRE, 0, 3, tries == 0 ? scripted_held(5000) : fault);
        reply(RLOCK_OP_RELEASE, 3, 2, scripted_done());
        if (asked(RLOCK_OP_RELEASE)) { /* what was not answered may have happened */
            reply(RLOCK_OP_RELEASE, 0, 3, scripted_done());
        }
        scripted_woken(&servers[3], "key");
        virtual_idle(&g.loop);
        while (asked(RLOCK_OP_ACQUIRE) < SERVERS) {
            virtual_run_ms(&g.loop, 1);
        }
    }
    BETWEEN(g.loop.now_us - start_us, 20 * 10000, 20 * 600000);
    SAME(owner->events, 0);
}

static void votes_given_back_after_a_fault_are_no_reason_to_ask_at_once(void **state) {
    (void)state;
    fault_leaves_a_pause(scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    fault_leaves_a_pause(scripted_fault(RLOCK_FAULT_UNKNOWN, NULL));
}

/* Another holds, and what the last servers were asked for is taken back, which they publish. On a
 * wire where that wakes who did it too, it is told of the other only behind it, and asks once. */
static void own_news_of_what_is_taken_back_is_waited_for_a_moment(void **state) {
    rlock_config config = config_on(g.store);
    struct owner *owner;
    int64_t longest_us = 0;
    int i, tries;
    (void)state;
    virtual_client_free(&g.loop, g.client);
    config.wire = RLOCK_WIRE_REDISSON;
    SAME(rlock_client_new(&g.client, &config), RLOCK_OK);
    for (i = 0; i < SERVERS; i++) {
        scripted_up(&servers[i]);
    }
    push_all();
    owner = handle("key");
    SAME(owner_acquire(owner, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, MAJORITY, scripted_held(5000)); /* told at once: not registered */
    reply(RLOCK_OP_RELEASE, MAJORITY, SERVERS - MAJORITY, gone());
    for (tries = 0; tries < 20; tries++) {
        int64_t start_us = g.loop.now_us;
        SAME(asked(RLOCK_OP_ACQUIRE), SERVERS);
        reply(RLOCK_OP_ACQUIRE, 0, MAJORITY, scripted_held(5000));
        SAME(asked(RLOCK_OP_ACQUIRE), 0);
        SAME(asked(RLOCK_OP_RELEASE), SERVERS - MAJORITY);
        for (i = MAJORITY; i < SERVERS; i++) {
            reply(RLOCK_OP_RELEASE, i, 1, gone());
            scripted_woken(&servers[i], "key");
        }
        while (asked(RLOCK_OP_ACQUIRE) < SERVERS) {
            virtual_iteration(&g.loop, INT64_MAX);
        }
        longest_us = g.loop.now_us - start_us > longest_us ? g.loop.now_us - start_us : longest_us;
    }
    BETWEEN(longest_us, 500, 10000);
    SAME(owner->events, 0);
}

/* A server that restarts without its data may give its vote to somebody else. */
static void yes_from_before_a_lost_connection_is_asked_for_again(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
    scripted_down(&servers[0], RLOCK_FAULT_DOWN, "restarts");
    reply(RLOCK_OP_ACQUIRE, 2, 1, scripted_done()); /* two, and one that may be forgotten */
    SAME(owner->events, 0);
    scripted_up(&servers[0]);
    reply(RLOCK_OP_ACQUIRE, 0, 1, scripted_held(5000)); /* it is another's by now */
    SAME(owner->events, 0);
    reply(RLOCK_OP_ACQUIRE, 3, 2, scripted_held(5000));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    reply(RLOCK_OP_RELEASE, 1, 2, scripted_done());
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
    scripted_down(&servers[0], RLOCK_FAULT_DOWN, "restarts");
    reply(RLOCK_OP_ACQUIRE, 2, 1, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].count, 1);
    scripted_up(&servers[0]);
    reply(RLOCK_OP_ACQUIRE, 0, 1, scripted_done()); /* it still had it, or has it again */
    SAME(owner->seen[RLOCK_ACQUIRED].count, 2);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

static void cancelled_acquire_is_taken_back_from_all(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 5000, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
    SAME(owner_cancel(owner), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    SAME(asked(RLOCK_OP_ACQUIRE), 0);
    SAME(asked(RLOCK_OP_RELEASE), SERVERS);
    reply(RLOCK_OP_RELEASE, 0, SERVERS, scripted_done());
    SAME(cleaning(), 0);
}

static void words_of_a_server_are_passed_on(void **state) {
    struct owner *owner = handle("key");
    int i;
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_fault(RLOCK_FAULT_OTHER, NULL));
    reply(RLOCK_OP_ACQUIRE, 2, 1, scripted_fault(RLOCK_FAULT_OTHER, "nonsense"));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "nonsense");
    SAME(asked(RLOCK_OP_RELEASE), SERVERS); /* who knows what nonsense stands for */
    reply(RLOCK_OP_RELEASE, 0, SERVERS, gone());
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, MAJORITY, scripted_fault(RLOCK_FAULT_NOMEM, NULL));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_NOMEM);
    for (i = 0; i < MAJORITY; i++) {
        scripted_down(&servers[i], RLOCK_FAULT_DOWN, "no route");
    }
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
    assert_string_equal(owner->seen[RLOCK_ACQUIRED].text, "no route");
}

/* What is told of several that are down is one fault, with the words of one that has it. */
static void words_of_an_outage_are_those_of_the_fault_that_is_reported(void **state) {
    struct owner *owner = handle("key");
    int k;
    (void)state;
    SAME(owner_acquire(owner, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    reply(RLOCK_OP_ACQUIRE, 0, SERVERS, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    for (k = 0; k < MAJORITY; k++) {
        bool last = k == MAJORITY - 1;
        scripted_down(&servers[k], last ? RLOCK_FAULT_AUTH : RLOCK_FAULT_DOWN,
                      last ? "WRONGPASS" : "no route");
    }
    virtual_run_ms(&g.loop, LEASE_MS);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    assert_string_equal(owner->seen[RLOCK_LOST].text, "no route");
}

static void vote_that_was_surely_not_executed_is_not_cleaned_up(void **state) {
    struct owner *owner = handle("key");
    rlock_answer undone = scripted_fault(RLOCK_FAULT_OTHER, "not here");
    (void)state;
    undone.undone = true;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, MAJORITY, undone);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_SERVER);
    SAME(asked(RLOCK_OP_RELEASE), SERVERS - MAJORITY); /* only where it may have been */
    reply(RLOCK_OP_RELEASE, MAJORITY, SERVERS - MAJORITY, gone());
    SAME(cleaning(), 0);
}

static void hold_without_an_end_is_reported_as_such(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, MAJORITY, scripted_held(-1));
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(owner->seen[RLOCK_ACQUIRED].remaining_ms, -1);
}

static void acquire_without_memory_may_be_cancelled_before_its_callback(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    virtual_memory.fail_at = 5; /* those before are of the claim, its work and its crowd */
    SAME(owner_acquire(owner, 5000, LEASE_MS), RLOCK_OK);
    SAME(virtual_memory.failed, true);
    SAME(owner_cancel(owner), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CANCELED);
    SAME(asked(RLOCK_OP_ACQUIRE), 0);
}

static rlock_answer heard;

static void hears(void *owner, rlock_request *request, const rlock_answer *answer) {
    (void)owner, (void)request;
    heard = *answer;
}

/* As its contract says of every store. */
static void release_of_a_token_that_nobody_has_is_gone_and_sure(void **state) {
    rlock__quorum *quorum = (rlock__quorum *)g.client->store_state;
    const rlock_store_events *events = quorum->events;
    rlock_store_events mine = *events;
    rlock_request request;
    (void)state;
    memset(&request, 0, sizeof request);
    memset(&heard, 0, sizeof heard);
    request.op = RLOCK_OP_RELEASE;
    request.key = "key";
    request.key_len = 3;
    request.token = 77;
    mine.answered = hears;
    quorum->events = &mine;
    g.store->submit(quorum, &request);
    SAME(heard.settled, false); /* not inside the call */
    virtual_idle(&g.loop);
    quorum->events = events;
    SAME(heard.outcome, RLOCK_OUTCOME_GONE);
    SAME(heard.settled, true);
    SAME(asked(RLOCK_OP_RELEASE), 0);
}

static void keys_of_all_lengths_in_turn(void **state) {
    static const size_t lengths[] = {1, 64, 65, 30, 200, 199, 1};
    char key[201];
    size_t i;
    (void)state;
    for (i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct owner *owner;
        memset(key, 'k', 200);
        key[lengths[i]] = 0;
        owner = handle(key);
        SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
        reply(RLOCK_OP_ACQUIRE, 0, SERVERS, scripted_done());
        SAME(owner_release(owner), RLOCK_OK);
        SAME(scripted_need(&servers[4], RLOCK_OP_RELEASE)->request->key_len, lengths[i]);
        assert_memory_equal(scripted_need(&servers[4], RLOCK_OP_RELEASE)->request->key, key,
                            lengths[i]);
        reply(RLOCK_OP_RELEASE, 0, SERVERS, scripted_done());
        SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
}

/* ------------------------------------------------------------------------------------------------
 * Holding.
 */

static void key_that_is_no_lock_is_a_theft(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, MAJORITY, scripted_fault(RLOCK_FAULT_TYPE, "WRONGTYPE"));
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_STOLEN);
    reply(RLOCK_OP_RELEASE, 3, 1, scripted_fault(RLOCK_FAULT_TYPE, "WRONGTYPE"));
    reply(RLOCK_OP_RELEASE, 4, 1, scripted_fault(RLOCK_FAULT_DOWN, "not sent"));
    SAME(cleaning(), 1);
    virtual_run_ms(&g.loop, 500);
    reply(RLOCK_OP_RELEASE, 4, 1, scripted_done());
    SAME(cleaning(), 0);
}

static void late_votes_count_from_the_next_renewal_on(void **state) {
    struct owner *owner = holder(MAJORITY, LEASE_MS);
    (void)state;
    reply(RLOCK_OP_ACQUIRE, 3, 2, scripted_done());
    SAME(owner_renew(owner, 0), RLOCK_OK);
    SAME(asked(RLOCK_OP_RENEW), SERVERS);
    reply(RLOCK_OP_RENEW, 0, 2, gone());
    reply(RLOCK_OP_RENEW, 2, 3, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(asked(RLOCK_OP_ACQUIRE), 0);
    virtual_run_ms(&g.loop, WIN_BACK_MS);
    SAME(asked(RLOCK_OP_ACQUIRE), 2); /* the two are won back */
}

static void more_refusals_than_may_fail_are_a_loss(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 2, gone());
    reply(RLOCK_OP_RENEW, 2, 1, scripted_done());
    SAME(asked(RLOCK_OP_ACQUIRE), 0); /* by force each goes after the other: none is won back yet */
    SAME(owner->events, 1);
    reply(RLOCK_OP_RENEW, 3, 1, gone());
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_LOST);
    BETWEEN(asked(RLOCK_OP_RELEASE), 2, 3); /* each that has it, or may have */
}

static void stolen_votes_are_a_theft(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 1, gone());
    reply(RLOCK_OP_RENEW, 1, 2, stolen());
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_STOLEN);
}

static void too_few_answers_leave_the_old_deadline(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    int64_t until_us = g.loop.now_us + validity_ms(LEASE_MS) * 1000;
    (void)state;
    virtual_run_ms(&g.loop, 50);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 2, scripted_done());
    reply(RLOCK_OP_RENEW, 2, 2, unknown());
    SAME(owner->seen[RLOCK_RENEWED].count, 0);
    reply(RLOCK_OP_RENEW, 4, 1, unknown());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_UNKNOWN);
    assert_true(rlock_is_held(owner->lock));
    SAME(rlock_remaining_ms(owner->lock), (until_us - g.loop.now_us) / 1000);
    virtual_run_ms(&g.loop, LEASE_MS);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    BETWEEN(owner->seen[RLOCK_LOST].at_us, until_us, until_us + 1000);
}

static void vote_that_was_not_there_before_does_not_save_a_hold(void **state) {
    struct owner *owner = holder(MAJORITY, LEASE_MS);
    (void)state;
    reply(RLOCK_OP_ACQUIRE, 3, 2, scripted_held(5000));
    SAME(owner_renew(owner, 0), RLOCK_OK);
    SAME(asked(RLOCK_OP_ACQUIRE), 2); /* while a majority stands */
    reply(RLOCK_OP_ACQUIRE, 3, 2, scripted_done());
    reply(RLOCK_OP_RENEW, 0, 2, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].count, 0);
    reply(RLOCK_OP_RENEW, 2, 1, gone()); /* whoever had those two could have had this one */
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
}

static void vote_that_was_won_back_counts_the_next_time(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 2, gone());
    reply(RLOCK_OP_RENEW, 2, 3, scripted_done());
    virtual_run_ms(&g.loop, WIN_BACK_MS);
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
    SAME(owner_renew(owner, 0), RLOCK_OK);
    SAME(asked(RLOCK_OP_RENEW), SERVERS);
    reply(RLOCK_OP_RENEW, 3, 2, gone());
    reply(RLOCK_OP_RENEW, 0, 3, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].count, 2);
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
}

static void refused_vote_is_not_asked_for_again_and_again(void **state) {
    struct owner *owner = holder(4, LEASE_MS);
    int before;
    (void)state;
    reply(RLOCK_OP_ACQUIRE, 4, 1, scripted_held(60000));
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 4, scripted_done());
    reply(RLOCK_OP_ACQUIRE, 4, 1, scripted_held(60000));
    before = scripted_asked(&servers[4], RLOCK_OP_ACQUIRE);
    virtual_run_ms(&g.loop, 90);
    SAME(scripted_asked(&servers[4], RLOCK_OP_ACQUIRE), before);
}

static void server_that_comes_back_is_renewed_and_won_back(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    scripted_down(&servers[1], RLOCK_FAULT_DOWN, "gone");
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 1, scripted_done());
    reply(RLOCK_OP_RENEW, 2, 3, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    virtual_run_ms(&g.loop, 20);
    scripted_up(&servers[1]);
    SAME(asked(RLOCK_OP_RENEW), 1);
    reply(RLOCK_OP_RENEW, 1, 1, gone());
    virtual_run_ms(&g.loop, WIN_BACK_MS);
    SAME(asked(RLOCK_OP_ACQUIRE), 1);
    BETWEEN(scripted_need(&servers[1], RLOCK_OP_ACQUIRE)->lease_ms, LEASE_MS - 25 - WIN_BACK_MS,
            LEASE_MS - 20 - WIN_BACK_MS);
    reply(RLOCK_OP_ACQUIRE, 1, 1, scripted_done());
    SAME(owner->events, 2);
}

static void votes_lost_one_by_one_behind_are_seen(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    int i;
    (void)state;
    for (i = 0; i < MAJORITY; i++) { /* each comes back empty, and its vote is another's */
        scripted_down(&servers[i], RLOCK_FAULT_DOWN, "gone");
        scripted_up(&servers[i]);
        reply(RLOCK_OP_RENEW, i, 1, gone());
        if (i < 2) {
            virtual_run_ms(&g.loop, WIN_BACK_MS);
            reply(RLOCK_OP_ACQUIRE, i, 1, scripted_held(60000));
        }
    }
    SAME(owner->seen[RLOCK_LOST].count, 1); /* no renewal was due yet */
}

static void shorter_renewal_counts_no_vote_longer_than_it_is(void **state) {
    struct owner *owner = holder(SERVERS, 60000);
    (void)state;
    virtual_run_ms(&g.loop, 50);
    SAME(owner_renew(owner, 1000), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, MAJORITY, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(rlock_remaining_ms(owner->lock), validity_ms(1000));
}

/* A clock that was set back makes a vote longer: each renewal says to what it may be cut. */
static void renewal_says_how_long_a_vote_may_last(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    int i;
    (void)state;
    SAME(owner_renew(owner, LEASE_MS / 2), RLOCK_OK);
    for (i = 0; i < SERVERS; i++) {
        SAME(scripted_need(&servers[i], RLOCK_OP_RENEW)->lease_ms, LEASE_MS / 2);
        SAME(scripted_need(&servers[i], RLOCK_OP_RENEW)->longest_ms, LEASE_MS);
    }
    reply(RLOCK_OP_RENEW, 0, SERVERS, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
}

/* A renewal that one server did not answer may be executed there behind one for longer, and cut
 * that: so this vote is asked for no longer than it may be left, nor counted for longer. */
static void vote_may_be_renewed_late(bool answered) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    if (answered) {
        reply(RLOCK_OP_RENEW, 0, 1, unknown());
    }
    reply(RLOCK_OP_RENEW, 1, SERVERS - 1, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].count, 1);
    SAME(owner_renew(owner, 6 * LEASE_MS), RLOCK_OK);
    SAME(scripted_need(&servers[0], RLOCK_OP_RENEW)->lease_ms, LEASE_MS);
    SAME(scripted_need(&servers[1], RLOCK_OP_RENEW)->lease_ms, 6 * LEASE_MS);
    reply(RLOCK_OP_RENEW, 0, MAJORITY, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].count, 2);
    SAME(rlock_remaining_ms(owner->lock), validity_ms(LEASE_MS));
}

static void vote_whose_renewal_may_come_late_lasts_no_longer(void **state) {
    (void)state;
    vote_may_be_renewed_late(true);
}

/* ... nor where it is still out when the next one begins. */
static void vote_whose_renewal_is_taken_back_lasts_no_longer(void **state) {
    (void)state;
    vote_may_be_renewed_late(false);
}

/* ... but of what was not executed, or was not sent, nothing can come late. */
static void vote_whose_renewal_was_refused_unexecuted_lasts_as_long_as_the_next(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    rlock_answer undone = scripted_fault(RLOCK_FAULT_BUSY, "LOADING");
    (void)state;
    undone.undone = true;
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 1, undone);
    reply(RLOCK_OP_RENEW, 1, 1, scripted_fault(RLOCK_FAULT_DOWN, "not sent"));
    reply(RLOCK_OP_RENEW, 2, 3, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(owner_renew(owner, 6 * LEASE_MS), RLOCK_OK);
    SAME(scripted_need(&servers[0], RLOCK_OP_RENEW)->lease_ms, 6 * LEASE_MS);
    SAME(scripted_need(&servers[1], RLOCK_OP_RENEW)->lease_ms, 6 * LEASE_MS);
    reply(RLOCK_OP_RENEW, 0, MAJORITY, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].count, 2);
    SAME(rlock_remaining_ms(owner->lock), validity_ms(6 * LEASE_MS));
}

/* A vote whose release is under way does not stand, although nobody has heard of its end. */
static void vote_that_is_being_given_back_saves_no_hold(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    push_all();
    SAME(owner_acquire(owner, 5000, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
    reply(RLOCK_OP_ACQUIRE, 2, 3, scripted_held(5000));
    reply(RLOCK_OP_ACQUIRE, 2, 3, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    SAME(asked(RLOCK_OP_RELEASE), 2);
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RELEASE, 0, 2, scripted_done());
    reply(RLOCK_OP_ACQUIRE, 0, 2, scripted_done());
    reply(RLOCK_OP_RENEW, 2, 1, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].count, 0);
    reply(RLOCK_OP_RENEW, 3, 1, gone());
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

static void vote_whose_lease_ran_out_saves_no_hold(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    int i;
    (void)state;
    for (i = 0; i < 3; i++) { /* two have long been silent */
        virtual_run_ms(&g.loop, LEASE_MS / 2);
        SAME(owner_renew(owner, 0), RLOCK_OK);
        reply(RLOCK_OP_RENEW, 0, MAJORITY, scripted_done());
        SAME(owner->seen[RLOCK_RENEWED].count, i + 1);
    }
    SAME(owner_renew(owner, 0), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 3, 2, scripted_done());
    reply(RLOCK_OP_RENEW, 0, 1, gone());
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

static void no_vote_is_won_back_where_no_majority_stands(void **state) {
    struct owner *owner = holder(MAJORITY, LEASE_MS);
    (void)state;
    reply(RLOCK_OP_ACQUIRE, 3, 2, scripted_held(60000));
    scripted_down(&servers[0], RLOCK_FAULT_DOWN, "gone");
    scripted_up(&servers[0]);
    reply(RLOCK_OP_RENEW, 0, 1, gone());
    SAME(asked(RLOCK_OP_ACQUIRE), 0);
    SAME(owner->seen[RLOCK_LOST].count, 1);
}

/* ------------------------------------------------------------------------------------------------
 * Letting go.
 */

static void release_is_done_by_a_majority_and_goes_on_behind(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    reply(RLOCK_OP_RELEASE, 0, 2, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].count, 0);
    reply(RLOCK_OP_RELEASE, 2, 1, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(cleaning(), 1);
    reply(RLOCK_OP_RELEASE, 3, 1, unknown());
    reply(RLOCK_OP_RELEASE, 4, 1, scripted_done());
    SAME(cleaning(), 1);
    virtual_run_ms(&g.loop, 500);
    reply(RLOCK_OP_RELEASE, 3, 1, scripted_unsure(gone())); /* an old acquire may come yet */
    SAME(cleaning(), 1);
    virtual_run_ms(&g.loop, 500);
    reply(RLOCK_OP_RELEASE, 3, 1, gone());
    SAME(cleaning(), 0);
}

#if RLOCK__HAS_TOKENS

static int on_released_after(struct owner *owner, int64_t ms) {
    int status = rlock_release_after(owner->lock, ms, owner_on_event, owner);
    return owner_asked(owner, status, RLOCK_RELEASED);
}

static void key_stays_when_a_majority_has_the_last_renewal(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    int i;
    (void)state;
    SAME(on_released_after(owner, 5000), RLOCK_OK);
    SAME(asked(RLOCK_OP_RENEW), SERVERS);
    for (i = 0; i < SERVERS; i++) {
        SAME(scripted_need(&servers[i], RLOCK_OP_RENEW)->lease_ms, 5000);
        SAME(scripted_need(&servers[i], RLOCK_OP_RENEW)->longest_ms, 5000);
    }
    reply(RLOCK_OP_RENEW, 0, 2, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].count, 0);
    reply(RLOCK_OP_RENEW, 2, 1, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(cleaning(), 0);
    virtual_run_ms(&g.loop, 60000);
    virtual_client_free(&g.loop, g.client);
    g.client = NULL;
    for (i = 0; i < SERVERS; i++) {
        SAME(scripted_asked(&servers[i], RLOCK_OP_RELEASE), 0);
    }
}

/* One of the majority has it for less than was asked for: whether it stays so long is not known. */
static void key_that_a_server_keeps_for_less_is_not_sure_to_stay(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 1, unknown());
    reply(RLOCK_OP_RENEW, 1, SERVERS - 1, scripted_done());
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(on_released_after(owner, 6 * LEASE_MS), RLOCK_OK);
    SAME(scripted_need(&servers[0], RLOCK_OP_RENEW)->lease_ms, LEASE_MS);
    reply(RLOCK_OP_RENEW, 0, MAJORITY, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN);
    SAME(cleaning(), 0);
}

/* The first may come late, and so may the last, which cuts further. */
static void key_whose_last_renewal_is_not_answered_either_is_asked_for_its_rest(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    int i;
    (void)state;
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 1, unknown());
    reply(RLOCK_OP_RENEW, 1, SERVERS - 1, scripted_done());
    SAME(on_released_after(owner, 5000), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, SERVERS, unknown());
    SAME(owner->seen[RLOCK_RELEASED].count, 0);
    for (i = 0; i < 100 && asked(RLOCK_OP_RENEW) == 0; i++) {
        virtual_run_ms(&g.loop, 10);
    }
    for (i = 0; i < SERVERS; i++) {
        BETWEEN(scripted_need(&servers[i], RLOCK_OP_RENEW)->lease_ms, 3900, 4999);
    }
    reply(RLOCK_OP_RENEW, 0, MAJORITY, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_UNKNOWN);
    SAME(cleaning(), 0);
}

static void client_that_goes_sends_the_last_renewal_of_what_stays(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    int i;
    (void)state;
    SAME(on_released_after(owner, 5000), RLOCK_OK);
    reply(RLOCK_OP_RENEW, 0, 1, gone());
    virtual_client_free(&g.loop, g.client);
    g.client = NULL;
    for (i = 0; i < SERVERS; i++) {
        SAME(scripted_asked(&servers[i], RLOCK_OP_RELEASE), 0);
        SAME(scripted_last(&servers[i], RLOCK_OP_RENEW)->longest_ms, 5000);
    }
}

static void tokens_of_a_quorum_are_its_own(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    char text[RLOCK_TOKEN_MAX];
    (void)state;
    SAME(rlock_token(owner->lock, text, sizeof text), RLOCK_ERR_ARG);
}

#endif /* RLOCK__HAS_TOKENS */

static void release_that_is_never_sure_ends_with_the_lease(void **state) {
    struct owner *owner = holder(4, 1000);
    int i;
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    reply(RLOCK_OP_RELEASE, 0, 4, scripted_done());
    for (i = 0; i < 100 && cleaning() > 0; i++) {
        if (scripted_pending(&servers[4], RLOCK_OP_RELEASE) > 0) {
            reply(RLOCK_OP_RELEASE, 4, 1, scripted_unsure(gone()));
        }
        virtual_run_ms(&g.loop, 50);
    }
    BETWEEN(i, 40, 42); /* the lease and a command timeout are 2 s */
}

/* Between two tries nothing is out that the servers' own close could send. */
static void client_that_goes_gives_back_what_may_still_be_there(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    int i;
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    reply(RLOCK_OP_RELEASE, 0, MAJORITY, scripted_done());
    reply(RLOCK_OP_RELEASE, MAJORITY, SERVERS - MAJORITY, unknown());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(asked(RLOCK_OP_RELEASE), 0);
    virtual_client_free(&g.loop, g.client);
    g.client = NULL;
    for (i = 0; i < SERVERS; i++) {
        SAME(scripted_asked(&servers[i], RLOCK_OP_RELEASE), i < MAJORITY ? 1 : 2);
    }
}

static void release_of_a_bare_majority_waits_for_all_of_it(void **state) {
    struct owner *owner;
    (void)state;
    scripted_down(&servers[3], RLOCK_FAULT_DOWN, "gone");
    scripted_down(&servers[4], RLOCK_FAULT_DOWN, "gone");
    owner = holder(MAJORITY, LEASE_MS);
    SAME(owner_release(owner), RLOCK_OK);
    reply(RLOCK_OP_RELEASE, 0, 2, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].count, 0); /* nobody else could get it yet */
    reply(RLOCK_OP_RELEASE, 2, 1, unknown());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK); /* nobody has it */
    SAME(cleaning(), 1);
}

static void release_of_what_most_have_lost_is_not_held(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    reply(RLOCK_OP_RELEASE, 0, 3, gone());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_ERR_NOT_HELD);
    SAME(owner->seen[RLOCK_RELEASED].reason, RLOCK_REASON_DELETED);
}

static void release_refused_by_most_is_repeated_and_remembers(void **state) {
    struct owner *owner = holder(SERVERS, LEASE_MS);
    (void)state;
    SAME(owner_release(owner), RLOCK_OK);
    reply(RLOCK_OP_RELEASE, 0, 2, scripted_done());
    reply(RLOCK_OP_RELEASE, 2, 3, scripted_fault(RLOCK_FAULT_BUSY, "LOADING"));
    SAME(owner->seen[RLOCK_RELEASED].count, 0);
    virtual_run_ms(&g.loop, 600);
    SAME(asked(RLOCK_OP_RELEASE), 3);
    reply(RLOCK_OP_RELEASE, 2, 1, scripted_done());
    SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
}

/* ------------------------------------------------------------------------------------------------
 * Questions.
 */

static struct told {
    int count, status;
    int64_t holders, left_ms, waiters, permits;
} told;

static void on_told(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    told.count++;
    told.status = info->status;
    told.holders = info->holders;
    told.left_ms = info->left_ms;
    told.waiters = info->waiters;
    told.permits = info->permits;
}

static void asks(rlock_op op) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    memset(&told, 0, sizeof told);
    options.key = "key";
    SAME(op == RLOCK_OP_INSPECT ? rlock_inspect(g.client, &options, on_told, NULL)
                                : rlock_force_release(g.client, &options, on_told, NULL),
         RLOCK_OK);
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

static void key_is_held_if_a_majority_says_so(void **state) {
    (void)state;
    asks(RLOCK_OP_INSPECT);
    SAME(asked(RLOCK_OP_INSPECT), SERVERS);
    reply(RLOCK_OP_INSPECT, 0, 2, standing(0, 0));
    reply(RLOCK_OP_INSPECT, 2, 1, standing(1, 700));
    reply(RLOCK_OP_INSPECT, 3, 1, standing(1, 900));
    SAME(told.count, 0);
    reply(RLOCK_OP_INSPECT, 4, 1, standing(1, 800));
    SAME(told.status, RLOCK_OK);
    SAME(told.holders, 1);
    SAME(told.left_ms, 700);
    SAME(told.permits, 0);
    SAME(told.waiters, -1);
    asks(RLOCK_OP_INSPECT);
    reply(RLOCK_OP_INSPECT, 0, 3, standing(1, -1));
    SAME(told.left_ms, -1);
}

static void key_is_free_if_no_majority_can_be_held(void **state) {
    (void)state;
    asks(RLOCK_OP_INSPECT);
    reply(RLOCK_OP_INSPECT, 0, 2, standing(1, 500));
    reply(RLOCK_OP_INSPECT, 2, 1, unknown());
    reply(RLOCK_OP_INSPECT, 3, 2, standing(0, 0));
    SAME(told.status, RLOCK_OK);
    SAME(told.holders, 0);
    SAME(told.permits, 1);
    asks(RLOCK_OP_INSPECT);
    reply(RLOCK_OP_INSPECT, 0, 3, scripted_fault(RLOCK_FAULT_TYPE, "WRONGTYPE"));
    SAME(told.status, RLOCK_ERR_WRONG_TYPE);
    SAME(asked(RLOCK_OP_INSPECT), 0);
}

static void two_questions_at_once_are_two(void **state) {
    (void)state;
    asks(RLOCK_OP_INSPECT);
    asks(RLOCK_OP_INSPECT);
    SAME(asked(RLOCK_OP_INSPECT), 2 * SERVERS);
    reply(RLOCK_OP_INSPECT, 0, 3, standing(0, 0));
    SAME(told.count, 1);
    reply(RLOCK_OP_INSPECT, 0, 3, standing(0, 0));
    SAME(told.count, 2);
    SAME(asked(RLOCK_OP_INSPECT), 0);
}

static void force_is_heard_by_every_server(void **state) {
    (void)state;
    asks(RLOCK_OP_FORCE);
    reply(RLOCK_OP_FORCE, 0, 3, standing(1, 0));
    SAME(told.holders, 1);
    SAME(asked(RLOCK_OP_FORCE), 2);
    SAME(cleaning(), 1);
    reply(RLOCK_OP_FORCE, 3, 2, standing(1, 0));
    SAME(cleaning(), 0);
}

static void question_that_is_not_answered_ends(void **state) {
    (void)state;
    virtual_memory.fail_at = 3; /* a gate and the question itself are the first */
    asks(RLOCK_OP_INSPECT);
    virtual_idle(&g.loop);
    SAME(virtual_memory.failed, true);
    SAME(told.status, RLOCK_ERR_NOMEM);
    asks(RLOCK_OP_INSPECT);
    virtual_run_ms(&g.loop, 1100);
    SAME(told.status, RLOCK_ERR_UNKNOWN);
    SAME(asked(RLOCK_OP_INSPECT), 0);
}

#if RLOCK__HAS_DESCRIPTIONS

static struct {
    int count, status;
    size_t who_count;
    char tokens[32], untold[64]; /* of the list, each behind a blank; why there is none */
} listed;

static void on_list(rlock_client *client, const rlock_info *info, void *user) {
    size_t i, n = 0;
    (void)client, (void)user;
    listed.count++;
    listed.status = info->status;
    listed.who_count = info->who_count;
    SAME(info->who == NULL, info->who_count == 0);
    for (i = 0; i < info->who_count; i++) {
        SAME(info->who[i].description != NULL, i == 0);
        n += (size_t)snprintf(listed.tokens + n, sizeof listed.tokens - n, " %s",
                              info->who[i].token);
    }
    snprintf(listed.untold, sizeof listed.untold, "%s", info->untold != NULL ? info->untold : "");
}

static void describe(void) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    memset(&listed, 0, sizeof listed);
    options.key = "key";
    SAME(rlock_describe(g.client, &options, on_list, NULL), RLOCK_OK);
    virtual_idle(&g.loop);
}

static rlock_answer with_list(size_t count, const char *untold) {
    static rlock_who who[3];
    static rlock_info info;
    static const char *const tokens[] = {"one", "other", "third"};
    rlock_answer answer = standing(1, 700);
    size_t i;
    info = *answer.info;
    for (i = 0; i < count; i++) {
        who[i].token = tokens[i];
        who[i].token_len = strlen(tokens[i]);
        who[i].description = i == 0 ? "node 7" : NULL;
    }
    info.who = count ? who : NULL;
    info.who_count = count;
    info.untold = untold;
    answer.info = &info;
    return answer;
}

static void longest_list_of_a_server_is_told(void **state) {
    (void)state;
    describe();
    SAME(scripted_need(&servers[0], RLOCK_OP_INSPECT)->flags, RLOCK_REQUEST_DESCRIBE);
    reply(RLOCK_OP_INSPECT, 0, 1, with_list(1, NULL));
    reply(RLOCK_OP_INSPECT, 1, 1, with_list(3, NULL));
    reply(RLOCK_OP_INSPECT, 2, 1, with_list(2, NULL));
    SAME(listed.status, RLOCK_OK);
    assert_string_equal(listed.tokens, " one other third");
    assert_string_equal(listed.untold, "");
}

static void list_of_one_server_is_told_where_others_have_none(void **state) {
    (void)state;
    describe();
    reply(RLOCK_OP_INSPECT, 0, 1, with_list(0, NULL));
    reply(RLOCK_OP_INSPECT, 1, 1, with_list(0, "NOPERM"));
    reply(RLOCK_OP_INSPECT, 2, 1, with_list(2, NULL));
    SAME(listed.status, RLOCK_OK);
    assert_string_equal(listed.tokens, " one other");
    describe();
    reply(RLOCK_OP_INSPECT, 0, 1, with_list(0, "NOPERM"));
    reply(RLOCK_OP_INSPECT, 1, 2, with_list(0, NULL));
    SAME(listed.status, RLOCK_OK);
    SAME(listed.who_count, 0);
    assert_string_equal(listed.untold, "NOPERM");
}

/* Each in turn: the lists of two servers, and that of the answer. */
static void list_for_which_there_is_no_memory_is_left_out_or_ends_as_such(void **state) {
    size_t live = 0;
    int n, others = 0, refused = 0;
    (void)state;
    (void)handle("key"); /* the key is known, and stays so */
    for (n = 0; n < 10; n++) {
        describe();
        virtual_memory.failed = false;
        virtual_memory.fail_at = (uint64_t)n;
        reply(RLOCK_OP_INSPECT, 0, 1, with_list(1, NULL));
        reply(RLOCK_OP_INSPECT, 1, 2, with_list(2, NULL));
        virtual_memory.fail_at = 0;
        SAME(listed.count, 1);
        if (n > 0 && !virtual_memory.failed) {
            break;
        }
        others += listed.status == RLOCK_OK && n > 0;
        refused += listed.status == RLOCK_ERR_NOMEM;
        SAME(listed.who_count, listed.status == RLOCK_OK ? 2 : 0);
        SAME(virtual_memory.live, live ? live : virtual_memory.live);
        live = virtual_memory.live;
    }
    SAME(others, 2);
    SAME(refused, 1);
}

/* There is somebody, and the store does not say who; or there is nobody. */
static void store_that_lists_nobody_where_somebody_is_does_not_list(void **state) {
    rlock_config config = config_on(&servers[0].store);
    int there;
    (void)state;
    virtual_client_free(&g.loop, g.client);
    SAME(rlock_client_new(&g.client, &config), RLOCK_OK);
    scripted_up(&servers[0]);
    for (there = 0; there < 4; there++) { /* bits: a holder, a waiter */
        rlock_info info;
        rlock_answer answer = with_list(0, NULL);
        info = *answer.info;
        info.holders = there & 1;
        info.waiters = there >> 1;
        answer.info = &info;
        describe();
        reply(RLOCK_OP_INSPECT, 0, 1, answer);
        SAME(listed.status, RLOCK_OK);
        SAME(listed.who_count, 0);
        assert_string_equal(listed.untold,
                            there ? RLOCK__TEXT("this store does not list holders") : "");
    }
    describe();
    reply(RLOCK_OP_INSPECT, 0, 1, with_list(0, "NOPERM"));
    assert_string_equal(listed.untold, "NOPERM");
}

#endif

/* ------------------------------------------------------------------------------------------------
 * What its servers are given.
 */

static bool map_nothing(void *user, const char *host, int port, char *new_host, size_t room,
                        int *new_port) {
    (void)user, (void)host, (void)port, (void)new_host, (void)room, (void)new_port;
    return false;
}

static bool map_of_its_own(void *user, const char *host, int port, char *new_host, size_t room,
                           int *new_port) {
    return map_nothing(user, host, port, new_host, room, new_port);
}

static void addresses_of_a_server_are_mapped_by_its_own_or_by_the_one_of_all(void **state) {
    rlock_config nodes[2], config;
    int i;
    (void)state;
    teardown(NULL);
    memset(&g, 0, sizeof g);
    memset(nodes, 0, sizeof nodes);
    virtual_begin(&g.loop);
    for (i = 0; i < 2; i++) {
        scripted_begin(&servers[i], &g.loop);
        nodes[i].store = &servers[i].store;
    }
    nodes[1].map_address = map_of_its_own;
    nodes[1].map_user = &nodes[1];
    SAME(rlock_quorum_new(&g.store, nodes, 2), RLOCK_OK);
    config = config_on(g.store);
    config.map_address = map_nothing;
    config.map_user = &config;
    SAME(rlock_client_new(&g.client, &config), RLOCK_OK);
    assert_true(servers[0].config.map_address == map_nothing);
    assert_ptr_equal(servers[0].config.map_user, &config);
    assert_true(servers[1].config.map_address == map_of_its_own);
    assert_ptr_equal(servers[1].config.map_user, &nodes[1]);
}

#if RLOCK__HAS_CREDENTIALS

static struct {
    int calls[SERVERS], status[SERVERS];
    char password[16];
} given;

static int take_credentials(void *state, bool sentinels, const char *username,
                            const char *password) {
    size_t i = (size_t)((struct scripted *)state - servers);
    (void)sentinels, (void)username;
    given.calls[i]++;
    snprintf(given.password, sizeof given.password, "%s", password);
    return given.status[i];
}

/* One that takes none is left out; if all do, or one has no memory, the call says so. */
static void credentials_go_to_each_server_that_takes_some(void **state) {
    int i;
    (void)state;
    memset(&given, 0, sizeof given);
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-1"), RLOCK_ERR_ARG);
    for (i = 1; i < SERVERS; i++) {
        servers[i].store.set_credentials = take_credentials;
    }
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-2"), RLOCK_OK);
    assert_string_equal(given.password, "secret-2");
    given.status[1] = given.status[4] = RLOCK_ERR_ARG; /* the same said by the store */
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-3"), RLOCK_OK);
    given.status[2] = RLOCK_ERR_NOMEM;
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-4"), RLOCK_ERR_NOMEM);
    given.status[3] = RLOCK_ERR_NOMEM;
    given.status[2] = RLOCK_OK;
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-5"), RLOCK_ERR_NOMEM);
    for (i = 0; i < SERVERS; i++) {
        SAME(given.calls[i], i == 0 ? 0 : 4);
    }
}

#endif

/* ------------------------------------------------------------------------------------------------
 * Memory that runs out.
 */

static void every_failing_allocation_is_survived(void **state) {
    uint64_t n;
    (void)state;
    teardown(NULL);
    for (n = 1; n < 60; n++) {
        rlock_config nodes[SERVERS], config;
        int i, status;
        memset(&g, 0, sizeof g);
        memset(nodes, 0, sizeof nodes);
        virtual_begin(&g.loop);
        for (i = 0; i < SERVERS; i++) {
            scripted_begin(&servers[i], &g.loop);
            scripted_always(&servers[i], RLOCK_OP_ACQUIRE, scripted_done());
            scripted_always(&servers[i], RLOCK_OP_RELEASE, scripted_done());
            nodes[i].store = &servers[i].store;
            nodes[i].host = "127.0.0.1";
            nodes[i].password = "secret";
        }
        virtual_memory.fail_at = n;
        status = rlock_quorum_new(&g.store, nodes, SERVERS);
        config = config_on(g.store);
        if (status == RLOCK_OK) {
            status = rlock_client_new(&g.client, &config);
        }
        if (status == RLOCK_OK) {
            rlock_options options;
            struct owner *owner;
            memset(&options, 0, sizeof options);
            options.key = "key";
            owner = owner_attempt(&g.loop, g.client, &options, &status);
            status = owner == NULL ? status : owner_acquire(owner, 0, LEASE_MS);
            virtual_idle(&g.loop);
            if (status == RLOCK_OK) {
                status = owner->seen[RLOCK_ACQUIRED].status;
            }
            if (status == RLOCK_OK) {
                SAME(owner_release(owner), RLOCK_OK);
                virtual_idle(&g.loop);
                SAME(owner->seen[RLOCK_RELEASED].status, RLOCK_OK);
            }
        }
        SAME(status, virtual_memory.failed ? RLOCK_ERR_NOMEM : RLOCK_OK);
        if (!virtual_memory.failed) {
            break;
        }
        virtual_memory.fail_at = 0;
        teardown(NULL);
    }
    BETWEEN(n, 20, 59);
}

static void nothing(rlock_timer *timer) {
    (void)timer;
}

/* With a timer more or less the table of timers has to grow for another one of an acquire's. */
static void acquire_without_memory_is_reported(bool odd) {
    struct owner *owners[60];
    rlock_timer timer;
    int i, refused = 0;
    SAME(odd ? rlock_timer_add(g.client, &timer, nothing) : RLOCK_OK, RLOCK_OK);
    for (i = 0; i < SERVERS; i++) {
        scripted_always(&servers[i], RLOCK_OP_ACQUIRE, scripted_done());
        scripted_always(&servers[i], RLOCK_OP_RELEASE, scripted_done());
    }
    for (i = 0; i < 60; i++) {
        char key[16];
        uint64_t n = 0;
        int status;
        snprintf(key, sizeof key, "k%d", i);
        owners[i] = handle(key);
        do {
            virtual_memory.fail_at = ++n;
            status = owner_acquire(owners[i], 0, LEASE_MS);
            virtual_idle(&g.loop);
            virtual_memory.fail_at = 0;
            status = status == RLOCK_OK ? owners[i]->seen[RLOCK_ACQUIRED].status : status;
            refused += status == RLOCK_ERR_NOMEM;
        } while (status == RLOCK_ERR_NOMEM);
        SAME(status, RLOCK_OK);
    }
    BETWEEN(refused, 60, 300);
    for (i = 0; i < 60; i++) {
        assert_true(rlock_is_held(owners[i]->lock));
        SAME(owner_release(owners[i]), RLOCK_OK);
        virtual_idle(&g.loop);
        SAME(owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    if (odd) {
        rlock_timer_drop(g.client, &timer);
    }
}

static void acquire_without_memory_is_reported_and_harms_no_other(void **state) {
    (void)state;
    acquire_without_memory_is_reported(false);
}

static void acquire_without_memory_for_the_other_timers_is_reported(void **state) {
    (void)state;
    acquire_without_memory_is_reported(true);
}

static void store_that_does_not_open_closes_the_others(void **state) {
    rlock_config config = config_on(g.store);
    int i;
    (void)state;
    virtual_client_free(&g.loop, g.client);
    g.client = NULL;
    for (i = 0; i < SERVERS; i++) {
        int k;
        servers[i].open_status = RLOCK_ERR_ARG;
        SAME(rlock_client_new(&g.client, &config), RLOCK_ERR_ARG);
        servers[i].open_status = RLOCK_OK;
        for (k = 0; k < SERVERS; k++) {
            SAME(servers[k].opens, servers[k].closes);
        }
    }
}

static void memory_of_handles_that_are_freed_is_given_back(void **state) {
    struct owner *owners[100];
    uint64_t idle, warm;
    int i, turn;
    (void)state;
    for (i = 0; i < SERVERS; i++) {
        scripted_always(&servers[i], RLOCK_OP_ACQUIRE, scripted_done());
        scripted_always(&servers[i], RLOCK_OP_RELEASE, scripted_done());
    }
    virtual_idle(&g.loop);
    idle = virtual_memory.live;
    for (turn = 0; turn < 2; turn++) {
        for (i = 0; i < 100; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", i);
            owners[i] = turn == 0 ? handle(key) : owners[i];
        }
        warm = virtual_memory.total;
        for (i = 0; i < 100; i++) {
            SAME(owner_acquire(owners[i], 0, LEASE_MS), RLOCK_OK);
        }
        virtual_idle(&g.loop);
        for (i = 0; i < 100; i++) {
            SAME(owner_release(owners[i]), RLOCK_OK);
        }
        virtual_idle(&g.loop);
    }
    SAME(virtual_memory.total, warm); /* who is warm asks for none, however many they are */
    for (i = 0; i < 100; i++) {
        owner_free(owners[i]);
    }
    virtual_idle(&g.loop);
    BETWEEN(virtual_memory.live, idle, idle + 4); /* tables that grew */
}

/* ------------------------------------------------------------------------------------------------
 * A storm: small servers, links and several clients. Whatever happens to links, there are never two
 * holders; and none either when servers forget votes, as long as the holder keeps a majority.
 */

#define CLIENTS 3
#define HANDLES 2 /* a client */
#define STORM_STEPS 3000
#define STORMS 40
#define FRESH_STORMS 10

#include "links.h"

static void storm_begins(uint64_t seed) {
    rlock_config nodes[SERVERS], config;
    rlock_options options;
    int i;
    memset(&g, 0, sizeof g);
    memset(&s, 0, sizeof s);
    memset(nodes, 0, sizeof nodes);
    memset(&options, 0, sizeof options);
    virtual_begin(&g.loop);
    s.seed = virtual_seed = seed;
    for (i = 0; i < SERVERS; i++) {
        nodes[i].store = link_store(i);
    }
    SAME(rlock_quorum_new(&g.store, nodes, SERVERS), RLOCK_OK);
    config = config_on(g.store);
    config.watchdog_lease_ms = 300;
    config.command_timeout_ms = 100;
    config.poll_ms = 20;
    config.handovers = -1;
    options.key = "key";
    for (i = 0; i < CLIENTS; i++) {
        SAME(rlock_client_new(&s.clients[i], &config), RLOCK_OK);
    }
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        s.owners[i] = owner_new(&g.loop, s.clients[i % CLIENTS], &options);
    }
}

static struct owner *storm_holder(void) {
    struct owner *holder = NULL;
    int i, holders = 0;
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        if (rlock_is_held(s.owners[i]->lock)) {
            holder = s.owners[i];
            holders++;
        }
    }
    BETWEEN(holders, 0, 1);
    return holder;
}

/* A server forgets its vote: only where the holder keeps a majority until its deadline, and nothing
 * is under way that could count the vote. */
static void storm_wipes(void) {
    const struct owner *holder = storm_holder();
    int64_t until_us =
        g.loop.now_us + (holder != NULL ? rlock_remaining_ms(holder->lock) + 1 : 0) * 1000;
    int i, k, m, votes = 0, victim = (int)chance(SERVERS);
    for (i = 0; i < CLIENTS; i++) {
        for (k = 0; k < SERVERS; k++) {
            if (!rlock__list_empty(&s.links[i][k].queue)) {
                return;
            }
            for (m = 0; m < s.links[i][k].top; m++) {
                if (s.links[i][k].messages[m].used) {
                    return;
                }
            }
        }
    }
    for (i = 0; holder != NULL && i < SERVERS; i++) {
        votes += i != victim && s.servers[i].client == holder->client &&
                 s.servers[i].expires_us >= until_us;
    }
    if (holder == NULL || votes >= MAJORITY) {
        s.servers[victim].expires_us = 0;
        s.wipes++;
    }
}

static void storm_acts(struct owner *owner) {
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

static void storm_steps(bool wipes, bool breaks) {
    int i;
    for (i = 0; i < STORM_STEPS; i++) {
        switch (chance(12)) {
        case 0:
            if (breaks) {
                storm_link((int)chance(CLIENTS), (int)chance(SERVERS), false);
            }
            break;
        case 1:
        case 2: storm_link((int)chance(CLIENTS), (int)chance(SERVERS), true); break;
        case 3:
            if (breaks) {
                s.servers[chance(SERVERS)].frozen = chance(4) == 0;
            }
            break;
        case 4:
            if (wipes) {
                storm_wipes();
            }
            break;
        default: storm_acts(s.owners[chance(CLIENTS * HANDLES)]); break;
        }
        virtual_run_until(&g.loop, g.loop.now_us + chance(8000));
        storm_holder();
    }
}

static void storm_over(void) {
    int i;
    virtual_free_owners(&g.loop);
    for (i = 0; i < CLIENTS; i++) {
        virtual_client_free(&g.loop, s.clients[i]);
    }
    rlock_quorum_free(g.store);
    virtual_end(&g.loop);
}

/* Calm: each who wants it gets it, and nothing stays behind. */
static void storm_ends(void) {
    int i, k;
    for (i = 0; i < SERVERS; i++) {
        s.servers[i].frozen = false;
        for (k = 0; k < CLIENTS; k++) {
            storm_link(k, i, true);
        }
    }
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        owner_release(s.owners[i]);
        owner_cancel(s.owners[i]);
    }
    virtual_run_ms(&g.loop, 3000);
    for (i = 0; i < CLIENTS * HANDLES; i++) {
        s.grants += s.owners[i]->seen[RLOCK_ACQUIRED].count;
        s.losses += s.owners[i]->seen[RLOCK_LOST].count;
        SAME(owner_pending(s.owners[i]), 0);
        SAME(owner_acquire(s.owners[i], 5000, 1000), RLOCK_OK);
        virtual_run_ms(&g.loop, 300);
        SAME(s.owners[i]->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
        SAME(owner_release(s.owners[i]), RLOCK_OK);
        virtual_run_ms(&g.loop, 300);
        SAME(s.owners[i]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    }
    for (i = 0; i < SERVERS; i++) {
        assert_true(s.servers[i].expires_us == 0);
    }
    for (i = 0; i < CLIENTS; i++) {
        rlock_stats stats;
        rlock_client_stats(s.clients[i], &stats);
        SAME(stats.cleaning, 0);
    }
    storm_over();
}

/* Two clients want a key. The first cannot reach two of five servers, two say yes, and the yes of a
 * third is on its way. Now one of the two forgets its vote, and the second client asks. Returns how
 * many hold the key when all has been answered. */
static int holders_where(bool forgotten, bool restarted) {
    struct link *slow = &s.links[0][2];
    int holders;
    storm_begins(7);
    storm_link(0, 3, false);
    storm_link(0, 4, false);
    virtual_run_ms(&g.loop, 10);
    SAME(owner_acquire(s.owners[0], 0, 5000), RLOCK_OK);
    while (slow->top == 0 || !slow->messages[0].executed) {
        virtual_run_until(&g.loop, g.loop.now_us + 10);
    }
    slow->messages[0].due_us = g.loop.now_us + 80000;
    virtual_run_ms(&g.loop, 10);
    if (forgotten) {
        s.servers[0].expires_us = 0;
    }
    if (restarted) {
        storm_link(0, 0, false);
        virtual_run_ms(&g.loop, 1);
        storm_link(0, 0, true);
    }
    SAME(owner_acquire(s.owners[1], 0, 5000), RLOCK_OK);
    virtual_run_ms(&g.loop, 200);
    SAME(owner_pending(s.owners[0]) + owner_pending(s.owners[1]), 0);
    holders = rlock_is_held(s.owners[0]->lock) + rlock_is_held(s.owners[1]->lock);
    storm_over();
    return holders;
}

/* The release runs on a new connection before the acquire that the old one still carries. */
static void vote_that_comes_late_behind_its_release_is_given_back(void **state) {
    struct link *link = &s.links[0][4];
    (void)state;
    storm_begins(7);
    virtual_run_ms(&g.loop, 10);
    SAME(owner_acquire(s.owners[0], 0, 60000), RLOCK_OK);
    while (link->top == 0) {
        virtual_run_until(&g.loop, g.loop.now_us + 10);
    }
    link->messages[0].due_us = g.loop.now_us + 300000;
    storm_link(0, 4, false);
    virtual_run_ms(&g.loop, 10);
    SAME(rlock_is_held(s.owners[0]->lock), true); /* by the four others */
    SAME(owner_release(s.owners[0]), RLOCK_OK);
    storm_link(0, 4, true);
    virtual_run_ms(&g.loop, 100);
    SAME(s.owners[0]->seen[RLOCK_RELEASED].status, RLOCK_OK);
    SAME(s.servers[4].expires_us, 0); /* it was asked already: nothing there */
    while (s.servers[4].expires_us == 0) {
        virtual_run_ms(&g.loop, 1);
    }
    virtual_run_ms(&g.loop, 4000);
    SAME(s.servers[4].expires_us, 0);
    storm_over();
}

static void vote_forgotten_before_the_majority_counts_as_forgotten_too(void **state) {
    (void)state;
    SAME(holders_where(false, false), 1);
    SAME(holders_where(false, true), 1);
    SAME(holders_where(true, false), 2); /* nobody could see it: see docs/quorum-and-redlock.md */
    SAME(holders_where(true, true), 1);  /* a restart ends the connection */
}

/* The fixed seeds are run first, then some that were not run before. */
static uint64_t storm_seed(int run) {
    static uint64_t fresh;
    if (run < STORMS) {
        return 1 + (uint64_t)run;
    }
    if (run == STORMS) {
        fresh = fresh_from(1000000, 4000000000);
        print_message("fresh seeds %llu..%llu, of this commit\n", (unsigned long long)fresh,
                      (unsigned long long)(fresh + FRESH_STORMS - 1));
    }
    return fresh + (uint64_t)(run - STORMS);
}

static void storm_of_broken_links_never_makes_two_holders(void **state) {
    int run;
    (void)state;
    for (run = 0; run < STORMS + FRESH_STORMS; run++) {
        storm_begins(storm_seed(run));
        storm_steps(false, true);
        storm_ends();
        BETWEEN(s.grants, 100, STORM_STEPS);
    }
}

static void storm_of_forgotten_votes_never_makes_two_holders(void **state) {
    int run, wipes = 0;
    (void)state;
    for (run = 0; run < STORMS + FRESH_STORMS; run++) {
        uint64_t seed = storm_seed(run);
        storm_begins(seed);
        storm_steps(true, seed % 2 == 0);
        storm_ends();
        wipes += s.wipes;
    }
    BETWEEN(wipes, 400, (STORMS + FRESH_STORMS) * STORM_STEPS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define DOWN_CASE(name) cmocka_unit_test_setup_teardown(name, setup_none_up, teardown)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        CASE(all_are_asked_at_once_each_with_a_token_of_its_own),
        CASE(majority_grants_and_not_one_vote_before),
        CASE(validity_is_of_the_earliest_of_the_best_majority),
        CASE(token_that_was_given_back_is_not_used_again),
        CASE(token_that_a_server_has_spent_is_not_used_again),
#if RLOCK__HAS_REPLICAS || !RLOCK__HAS_REDIS
        cmocka_unit_test_setup_teardown(token_that_a_server_may_have_spent_is_not_used_again,
                                        setup_replicated, teardown),
#endif
        CASE(token_of_a_late_vote_is_asked_for_again_where_nothing_is_given_back),
        CASE(refusal_gives_the_votes_back_at_once),
        CASE(time_left_is_when_a_majority_can_be_free),
        CASE(waiter_that_a_majority_tells_of_changes_sleeps),
        CASE(split_vote_is_tried_again_within_the_poll_time),
        CASE(faults_that_leave_a_majority_hide_nothing),
        CASE(fault_that_time_mends_is_reported_before_one_that_lasts),
        CASE(servers_that_are_down_are_not_waited_for),
        DOWN_CASE(up_is_a_majority_and_down_is_none),
        CASE(votes_given_back_after_a_fault_are_no_reason_to_ask_at_once),
        CASE(own_news_of_what_is_taken_back_is_waited_for_a_moment),
        CASE(yes_from_before_a_lost_connection_is_asked_for_again),
        CASE(cancelled_acquire_is_taken_back_from_all),
        CASE(words_of_a_server_are_passed_on),
        CASE(words_of_an_outage_are_those_of_the_fault_that_is_reported),
        CASE(vote_that_was_surely_not_executed_is_not_cleaned_up),
        CASE(hold_without_an_end_is_reported_as_such),
        CASE(acquire_without_memory_may_be_cancelled_before_its_callback),
        CASE(release_of_a_token_that_nobody_has_is_gone_and_sure),
        CASE(keys_of_all_lengths_in_turn),
        CASE(key_that_is_no_lock_is_a_theft),
        CASE(late_votes_count_from_the_next_renewal_on),
        CASE(more_refusals_than_may_fail_are_a_loss),
        CASE(stolen_votes_are_a_theft),
        CASE(too_few_answers_leave_the_old_deadline),
        CASE(vote_that_was_not_there_before_does_not_save_a_hold),
        CASE(vote_that_was_won_back_counts_the_next_time),
        CASE(refused_vote_is_not_asked_for_again_and_again),
        CASE(server_that_comes_back_is_renewed_and_won_back),
        CASE(votes_lost_one_by_one_behind_are_seen),
        CASE(shorter_renewal_counts_no_vote_longer_than_it_is),
        CASE(renewal_says_how_long_a_vote_may_last),
        CASE(vote_whose_renewal_may_come_late_lasts_no_longer),
        CASE(vote_whose_renewal_is_taken_back_lasts_no_longer),
        CASE(vote_whose_renewal_was_refused_unexecuted_lasts_as_long_as_the_next),
        CASE(vote_that_is_being_given_back_saves_no_hold),
        CASE(vote_whose_lease_ran_out_saves_no_hold),
        CASE(no_vote_is_won_back_where_no_majority_stands),
        CASE(release_is_done_by_a_majority_and_goes_on_behind),
#if RLOCK__HAS_TOKENS
        CASE(key_stays_when_a_majority_has_the_last_renewal),
        CASE(key_that_a_server_keeps_for_less_is_not_sure_to_stay),
        CASE(key_whose_last_renewal_is_not_answered_either_is_asked_for_its_rest),
        CASE(client_that_goes_sends_the_last_renewal_of_what_stays),
        CASE(tokens_of_a_quorum_are_its_own),
#endif
        CASE(release_that_is_never_sure_ends_with_the_lease),
        CASE(client_that_goes_gives_back_what_may_still_be_there),
        CASE(release_of_a_bare_majority_waits_for_all_of_it),
        CASE(release_of_what_most_have_lost_is_not_held),
        CASE(release_refused_by_most_is_repeated_and_remembers),
#if RLOCK__HAS_KINDS
        CASE(key_is_held_if_a_majority_says_so),
        CASE(key_is_free_if_no_majority_can_be_held),
        CASE(two_questions_at_once_are_two),
        CASE(force_is_heard_by_every_server),
        CASE(question_that_is_not_answered_ends),
#if RLOCK__HAS_DESCRIPTIONS
        CASE(longest_list_of_a_server_is_told),
        CASE(list_of_one_server_is_told_where_others_have_none),
        CASE(list_for_which_there_is_no_memory_is_left_out_or_ends_as_such),
        CASE(store_that_lists_nobody_where_somebody_is_does_not_list),
#endif
#endif
        CASE(addresses_of_a_server_are_mapped_by_its_own_or_by_the_one_of_all),
#if RLOCK__HAS_CREDENTIALS
        CASE(credentials_go_to_each_server_that_takes_some),
#endif
        CASE(every_failing_allocation_is_survived),
        CASE(acquire_without_memory_is_reported_and_harms_no_other),
        CASE(acquire_without_memory_for_the_other_timers_is_reported),
        CASE(store_that_does_not_open_closes_the_others),
        CASE(memory_of_handles_that_are_freed_is_given_back),
        cmocka_unit_test(vote_that_comes_late_behind_its_release_is_given_back),
        cmocka_unit_test(vote_forgotten_before_the_majority_counts_as_forgotten_too),
        cmocka_unit_test(storm_of_broken_links_never_makes_two_holders),
        cmocka_unit_test(storm_of_forgotten_votes_never_makes_two_holders),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("votes", tests, NULL, NULL);
}
