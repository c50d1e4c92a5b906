/* postgres_pooler.c - locks in PostgreSQL behind pgbouncer, which gives its sessions away by
 * transaction: what every store must do (tests/store.h), and what goes wrong with the pooler
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include "../../stores/rlock_postgres.h"
#include "loops.h"
#include "pooler.h"
#include "postgres_kit.h"
#include "rlock_elect.h"
#include "store.h"

/* --- the world --- */

static struct {
    struct server server;
    rlock_store *store;
    size_t live; /* blocks, before a test */
} pooler;

static void begins(rlock_config *config) {
    server_resume(&pooler.server);                             /* a test may have left it */
    assert_true(pooler_does(&pooler.server, "KILL postgres")); /* and all that it has to pass on */
    engine.clears();
    assert_true(pooler_does(&pooler.server, "RESUME postgres"));
    assert_true(pooler_warms(&pooler.server)); /* a client that was freed has cost one */
    pooler.live = virtual_memory.live;
    loop = loop_kind->make();
    assert_non_null(loop);
    config->loop = loop_kind->hooks(loop);
    IS(rlock_postgres_new(&pooler.store, pooler.server.url, RLOCK_POSTGRES_POOLER), RLOCK_OK);
    config->store = pooler.store;
}

static void ends_all(void) {
    rlock_postgres_free(pooler.store);
    loop_kind->end(loop);
    IS(virtual_memory.live, pooler.live);
}

static const struct store_row pooled = {"pgbouncer", begins, ends_all, loop_passes,
                                        loop_clock,  true,   true};

/* --- what goes wrong --- */

#define TIMEOUT_MS 1000 /* of a hasty test */
#define LATE_MS 1000    /* that a busy machine lets this process stand still */

static rlock_stats stats(int client) {
    rlock_stats it;
    rlock_client_stats(w.clients[client], &it);
    return it;
}

static void sessions_are_shared_and_nothing_is_left_in_them(void **state) {
    struct hand *hands[STORE_CLIENTS];
    int i, turn, k;
    (void)state;
    for (i = 0; i < STORE_CLIENTS; i++) {
        hands[i] = hand(i, "k");
    }
    for (turn = 0; turn < 20; turn++) {
        for (i = 0; i < STORE_CLIENTS; i++) {
            asks(hands[i], RLOCK_FOREVER, STORE_LEASE_MS);
        }
        for (i = 0; i < STORE_CLIENTS; i++) {
            EVENTUALLY((k = holds(hands[0]) ? 0 : holds(hands[1]) ? 1 : 2, holds(hands[k])));
            lets_go(hands[k]);
        }
    }
    assert_true(atoi(sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = "
                         "'client backend' AND pid <> pg_backend_pid()")) <= POOLER_SESSIONS);
    assert_string_equal(
        sql("SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND (query LIKE 'LISTEN%%' OR query LIKE '%%set_config(%%, false)%%')"),
        "0");
}

/* Its sessions are those of others, too: nothing is set in them. */
static void pooler_that_is_not_configured_is_refused_with_the_cure(void **state) {
    rlock_store *store = NULL;
    struct hand *unaware;
    (void)state;
    client_goes(0);
    IS(rlock_postgres_new(&store, pooler.server.url, 0), RLOCK_OK);
    w.config.store = store;
    IS(rlock_client_new(&w.clients[0], &w.config), RLOCK_OK);
    unaware = hand(0, "other");
    IS(tried(unaware, RLOCK_FOREVER, STORE_LEASE_MS), RLOCK_ERR_AUTH);
    assert_non_null(strstr(w.log_text, "pooler=yes"));
    assert_string_equal(sql("SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                            "AND query LIKE '%%set_config%%'"),
                        "0");
    rlock_free(unaware->lock);
    unaware->lock = NULL;
    client_goes(0);
    rlock_postgres_free(store);
}

static void hold_outlives_a_pooler_that_is_killed(void **state) {
    struct hand *one = hand(0, "k"), *other = hand(1, "k");
    (void)state;
    IS(tried(one, 0, 0), RLOCK_OK); /* the watchdog renews it */
    IS(tried(other, 0, 0), RLOCK_ERR_BUSY);
    server_kill9(&pooler.server);
    EVENTUALLY(!stats(0).up && !stats(1).up);
    IS(pooler_continue(&pooler.server), 0);
    EVENTUALLY(stats(0).up);
    row->run_ms(2 * STORE_WATCHDOG_MS);
    assert_true(holds(one));
    IS(tried(other, 0, 0), RLOCK_ERR_BUSY);
    lets_go(one);
    IS(tried(other, 3000, STORE_LEASE_MS), RLOCK_OK);
    IS(one->count[RLOCK_LOST], 0);
}

static void hold_outlives_a_server_that_is_killed_behind_the_pooler(void **state) {
    struct hand *one = held(hand(0, "k")), *other = hand(1, "k");
    (void)state;
    asks(other, RLOCK_FOREVER, STORE_LEASE_MS);
    row->run_ms(50);
    engine.dies();
    row->run_ms(300);
    IS(engine.comes_back(), 0);
    EVENTUALLY(renewed(one, STORE_LEASE_MS) == RLOCK_OK);
    IS(other->count[RLOCK_ACQUIRED], 0);
    lets_go(one);
    EVENTUALLY(holds(other));
    assert_true(rlock_fence(other->lock) > one->fence[RLOCK_ACQUIRED]);
}

/* What is asked meanwhile waits in the pooler; a hold ends at its deadline and not later. */
static void paused_pooler_ends_no_hold_early_and_none_late(void **state) {
    struct hand *lasts = held(hand(0, "long")), *ends_soon = hand(0, "short");
    struct hand *other = hand(1, "short");
    int64_t start_us = row->now_us(), held_us;
    (void)state;
    IS(tried(ends_soon, 0, 1500), RLOCK_OK);
    held_us = row->now_us();
    IS(tried(other, 0, 0), RLOCK_ERR_BUSY);
    assert_true(pooler_does(&pooler.server, "PAUSE"));
    asks(other, RLOCK_FOREVER, STORE_LEASE_MS);
    EVENTUALLY(ends_soon->count[RLOCK_LOST] > 0);
    assert_true(row->now_us() - start_us > 1400000);
    assert_true(row->now_us() - held_us < (1500 + LATE_MS) * 1000);
    IS(other->count[RLOCK_ACQUIRED], 1);
    EVENTUALLY(stats(0).faults > 0); /* it does not answer */
    assert_true(holds(lasts));
    assert_true(pooler_does(&pooler.server, "RESUME"));
    EVENTUALLY(holds(other));
    EVENTUALLY(renewed(lasts, STORE_LEASE_MS) == RLOCK_OK);
    lets_go(lasts);
}

static void frozen_pooler_is_left_after_a_command_timeout(void **state) {
    struct hand *one = hand(0, "k"), *other = hand(1, "k");
    int64_t start_us = row->now_us(), held_us, paused_us;
    (void)state;
    IS(tried(one, 0, 1500), RLOCK_OK);
    held_us = row->now_us();
    IS(tried(other, 0, 0), RLOCK_ERR_BUSY);
    paused_us = row->now_us();
    server_pause(&pooler.server);
    EVENTUALLY(one->count[RLOCK_LOST] > 0);
    assert_true(row->now_us() - start_us > 1400000);
    assert_true(row->now_us() - held_us < (1500 + LATE_MS) * 1000);
    IS(tried(other, 0, 0), RLOCK_ERR_UNKNOWN);
    WITHIN(row->now_us() - paused_us, TIMEOUT_MS * 1000, 10 * TIMEOUT_MS * 1000);
    server_resume(&pooler.server);
    IS(tried(hand(2, "k"), 3000, STORE_LEASE_MS), RLOCK_OK);
}

/* It reads the releases and all that follows them at once. */
static void farewell_to_a_frozen_pooler_is_executed(void **state) {
    struct hand *one = held(hand(0, "k"));
    (void)state;
    server_pause(&pooler.server);
    client_goes(0);
    server_resume(&pooler.server);
    IS(tried(hand(1, "k"), 3000, STORE_LEASE_MS), RLOCK_OK);
    IS(one->count[RLOCK_LOST], 0);
}

/* The acquire waits for a row in a session that only the pooler knows, and that is stopped there.
 * Its client goes on over another one, where its token is not to be found: that is not sure. */
static void acquire_that_is_executed_late_is_cleaned_up_all_the_same(void **state) {
    struct hand *late = hand(0, "k"), *other = hand(1, "k");
    int pid = 0;
    (void)state;
    lets_go(held(late));
    sql("BEGIN");
    sql("SELECT 1 FROM rlock.keys FOR UPDATE");
    asks(late, 0, 60000);
    EVENTUALLY((pid = atoi(sql("SELECT pid FROM pg_stat_activity WHERE wait_event_type = "
                               "'Lock'"))) > 0);
    kill(pid, SIGSTOP);
    sql("ROLLBACK");
    IS(ends(late, RLOCK_ACQUIRED, 1), RLOCK_ERR_UNKNOWN);
    EVENTUALLY(stats(0).up);
    row->run_ms(500); /* its release found nothing, in another session */
    IS(stats(0).cleaning, 1);
    IS(tried(other, 0, STORE_LEASE_MS), RLOCK_OK);
    lets_go(other);
    kill(pid, SIGCONT);
    EVENTUALLY(strcmp(sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"),
                      "0") == 0);
    row->run_ms(700);
    IS(stats(0).cleaning, 1); /* until its lease would be over */
    IS(tried(other, 2000, STORE_LEASE_MS), RLOCK_OK);
}

/* The attempt of the waiter is on its way when it gives up. It is answered before the release is
 * sent, and so the release is the end of the token. */
static void waiter_that_gives_up_while_it_asks_is_gone_at_once(void **state) {
    struct hand *first = held(hand(0, "k")), *waiter = hand(1, "k");
    (void)state;
    asks(waiter, RLOCK_FOREVER, STORE_LEASE_MS);
    row->run_ms(50);
    server_pause(&pooler.server);
    row->run_ms(200); /* ten times poll_ms: an attempt is out */
    IS(rlock_cancel(waiter->lock), RLOCK_OK);
    row->run_ms(10);
    server_resume(&pooler.server);
    IS(ends(waiter, RLOCK_ACQUIRED, 0), RLOCK_ERR_CANCELED);
    EVENTUALLY(stats(1).cleaning == 0);
    lets_go(first);
}

/* The error could be the pooler's word for a session that it has given up. */
static void group_that_failed_behind_a_pooler_may_go_on(void **state) {
    struct hand *one = hand(0, "k");
    (void)state;
    lets_go(held(one));
    sql("CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not committed'; END $$");
    sql("CREATE CONSTRAINT TRIGGER fails AFTER UPDATE ON rlock.keys DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION fails()");
    IS(tried(one, 0, STORE_LEASE_MS), RLOCK_ERR_UNKNOWN);
    sql("DROP TRIGGER fails ON rlock.keys");
    row->run_ms(500);
    IS(stats(0).cleaning, 1); /* until its lease would be over */
    IS(tried(hand(1, "k"), 0, STORE_LEASE_MS), RLOCK_OK);
}

/* --- the group --- */

static int group_begins(void **state) {
    (void)state;
    row = &pooled;
    polled = true;
    return engine.starts() != 0 || pooler_start(&pooler.server, &g.server) != 0 ? -1 : 0;
}

static int group_ends(void **state) {
    (void)state;
    server_stop(&pooler.server);
    engine.stops();
    return 0;
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        STORE_MUTEX,
        STORE_FENCES,
        STORE_KINDS,
        STORE_KEYS,
        STORE_TEST(sessions_are_shared_and_nothing_is_left_in_them),
        STORE_TEST(pooler_that_is_not_configured_is_refused_with_the_cure),
        STORE_TEST(waiter_that_gives_up_while_it_asks_is_gone_at_once),
        STORE_TEST(group_that_failed_behind_a_pooler_may_go_on),
        STORE_HASTY_TEST(hold_outlives_a_pooler_that_is_killed),
        STORE_HASTY_TEST(hold_outlives_a_server_that_is_killed_behind_the_pooler),
        STORE_HASTY_TEST(paused_pooler_ends_no_hold_early_and_none_late),
        STORE_HASTY_TEST(frozen_pooler_is_left_after_a_command_timeout),
        STORE_HASTY_TEST(farewell_to_a_frozen_pooler_is_executed),
        STORE_HASTY_TEST(acquire_that_is_executed_late_is_cleaned_up_all_the_same),
    };
    signal(SIGPIPE, SIG_IGN);
    loop_kind = &loops[0]; /* poll */
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("pgbouncer", tests, group_begins, group_ends);
}
