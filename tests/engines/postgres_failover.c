/* postgres_failover.c - locks in a PostgreSQL that has a standby: the primary dies, and is followed
 *
 * Each test has a primary and a standby that streams from it, synchronously: a commit is answered
 * when both have it.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "measured.h"

#include "../../stores/rlock_postgres.h"
#include "postgres_kit.h"

#include "clients.h"

static struct server standby;

/* --- the two servers --- */

/* From here on the administrator speaks to that one. */
static void at(const struct server *server) {
    PQfinish(g.hand);
    g.hand = PQconnectdb(server->url);
    assert_int_equal(PQstatus(g.hand), CONNECTION_OK);
}

/* Waits for an answer of the server. */
static void waits_until(const char *question, const char *answer) {
    int tries = 0;
    while (strcmp(sql("%s", question), answer) != 0 && tries++ < 500) {
        server_sleep_ms(10);
    }
    assert_string_equal(sql("%s", question), answer);
}

/* The standby becomes the primary; the administrator speaks to it. */
static void standby_is_promoted(void) {
    at(&standby);
    assert_string_equal(sql("SELECT pg_promote()"), "t");
    waits_until("SELECT pg_is_in_recovery()", "f");
}

/* Of both, the one that stands first in the URL is tried first. */
static rlock_client *client_of_both(const struct server *first, const struct server *second) {
    char url[160];
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d,127.0.0.1:%d/postgres", first->port,
             second->port);
    return client_of(url);
}

static rlock_client *client_here(void) {
    return client_of_both(&g.server, &standby);
}

/* --- tests --- */

static void hold_outlives_its_primary_and_fences_rise(void **state) {
    rlock_client *of = client_here();
    struct owner *o = renewed(of, "k"), *w = renewed(client_here(), "k");
    int64_t start_us, up_us;
    (void)state;
    assert_int_equal(owner_acquire(o, 2000, 30000), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 30000, owner_told, w), RLOCK_OK);
    kit_run(300);
    engine.dies();
    assert_true(kit_until(kit_is_down, of, 2000));
    kit_run(300);
    standby_is_promoted();
    start_us = kit_now_us();
    assert_true(kit_until(kit_is_up, of, 10000));
    up_us = kit_now_us();
    assert_true(rlock_is_held(o->lock));
    assert_true(held("k"));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    kit_run(500);
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 5000), RLOCK_OK); /* it is told, or polls */
    assert_true(w->fence[RLOCK_ACQUIRED] > o->fence[RLOCK_ACQUIRED]);
    assert_int_equal(kit_stats(of).lost, 0);
    printf("# from the promotion to a connection: %.0f ms\n", (double)(up_us - start_us) / 1000);
}

static void watchdog_renews_a_hold_at_the_new_primary(void **state) {
    rlock_options options;
    struct owner *o;
    int64_t end_us;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.watchdog_lease_ms = 12000; /* ten times what a promotion takes */
    o = owner_with(client_here(), &options);
    assert_int_equal(owner_acquire(o, 2000, 0), RLOCK_OK);
    end_us = kit_now_us() + 13000000;
    engine.dies();
    standby_is_promoted();
    while (kit_now_us() < end_us) {
        kit_run(50);
        assert_true(rlock_is_held(o->lock));
    }
    assert_true(held("k"));
}

/* No standby has it: so nobody was told that it is held, and after the failover nobody has it. */
static void acquire_that_the_standby_has_not_got_is_not_granted(void **state) {
    rlock_client *of = client_here();
    struct owner *o = owner_new(of, "k"), *other;
    (void)state;
    assert_int_equal(owner_acquire(o, 2000, 30000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    postgres_signals(&standby, SIGSTOP);
    assert_int_equal(owner_acquire(o, 0, 30000), RLOCK_ERR_UNKNOWN);
    engine.dies();
    postgres_signals(&standby, SIGCONT);
    standby_is_promoted();
    other = owner_new(client_of(standby.url), "k");
    assert_int_equal(owner_acquire(other, 2000, 30000), RLOCK_OK);
    assert_true(kit_until(kit_is_up, of, 10000));
    kit_run(1000);
    assert_int_equal(kit_stats(of).cleaning, 1); /* another server: nothing is sure */
    assert_true(held("k"));
    assert_int_equal(owner_renew(other, 0), RLOCK_OK);
}

/* The first renewal is done at the primary, and the standby does not know of it: the second one,
 * for less, is not told as done because of that. Other kinds lock rows first: they always wait. */
static void renewal_for_less_waits_for_the_standby_too(void **state) {
    rlock_client *of = client_of(g.server.url);
    struct owner *o = owner_new(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 2000, 60000), RLOCK_OK);
    postgres_signals(&standby, SIGSTOP);
    assert_int_equal(owner_renew(o, 120000), RLOCK_ERR_UNKNOWN);
    assert_true(kit_until(kit_is_up, of, 5000)); /* and has ended the session before */
    waits_until("SELECT count(*) FROM rlock.keys WHERE ends > now() + interval '70 s'", "1");
    assert_int_equal(owner_renew(o, 30000), RLOCK_ERR_UNKNOWN);
    postgres_signals(&standby, SIGCONT);
    assert_true(kit_until(kit_is_up, of, 5000));
    assert_int_equal(owner_renew(o, 30000), RLOCK_OK);
}

/* PostgreSQL then answers as if the commit were there too, after a warning. */
static void wait_is_cancelled(rlock_client *of) {
    struct owner *o = owner_new(of, "k");
    assert_int_equal(owner_acquire(o, 2000, 30000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    postgres_signals(&standby, SIGSTOP);
    assert_int_equal(rlock_acquire(o->lock, 0, 30000, owner_told, o), RLOCK_OK);
    kit_run(50);
    sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 2000), RLOCK_ERR_UNKNOWN);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "synchronous replication"));
    assert_true(held("k"));
    postgres_signals(&standby, SIGCONT);
    assert_int_equal(owner_acquire(o, 5000, 30000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void commit_whose_wait_is_cancelled_is_not_reported_as_done(void **state) {
    (void)state;
    wait_is_cancelled(client_here());
}

/* Behind a pooler nothing is set in a session, so each transaction sets it. */
static void cancelled_wait_is_seen_though_the_role_hides_warnings(void **state) {
    unsigned flags[] = {0, RLOCK_POSTGRES_POOLER}, i;
    (void)state;
    sql("ALTER ROLE me SET client_min_messages = error");
    for (i = 0; i < 2; i++) {
        rlock_store *store = NULL;
        assert_int_equal(rlock_postgres_new(&store, g.server.url, flags[i]), RLOCK_OK);
        wait_is_cancelled(client_on(store, TIMEOUT_MS, 0));
    }
}

static void standby_is_never_used(void **state) {
    struct owner *o = owner_new(client_of_both(&standby, &g.server), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 5000, 30000), RLOCK_OK);
    assert_true(held("k"));
    at(&standby);
    assert_string_equal(
        sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rlock'"), "0");
    o = owner_new(client_of(standby.url), "other");
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_ERR_CONN);
    assert_non_null(strstr(kit_log_text, "session is read-only"));
}

/* The standby that it waits for follows it no more. So it commits nothing, and grants nothing. */
static void old_primary_that_comes_back_grants_nothing(void **state) {
    struct owner *o = owner_fenced(client_here(), "k"), *old;
    (void)state;
    assert_int_equal(owner_acquire(o, 2000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    engine.dies();
    standby_is_promoted();
    assert_int_equal(owner_acquire(o, 10000, 60000), RLOCK_OK); /* at the new one */
    assert_int_equal(engine.comes_back(), 0);
    old = owner_fenced(client_of(g.server.url), "k");
    assert_int_equal(owner_acquire(old, 0, 60000), RLOCK_ERR_UNKNOWN);
    assert_true(rlock_is_held(o->lock));
}

/* That is how it is, not how it should be: nothing but fencing protects then. */
static void old_primary_that_waits_for_no_standby_grants_too(void **state) {
    struct owner *o = owner_fenced(client_here(), "k"), *old;
    (void)state;
    assert_int_equal(owner_acquire(o, 2000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    engine.dies();
    standby_is_promoted();
    assert_int_equal(owner_acquire(o, 10000, 60000), RLOCK_OK);
    assert_int_equal(engine.comes_back(), 0);
    at(&g.server);
    sql("ALTER SYSTEM RESET synchronous_standby_names");
    sql("SELECT pg_reload_conf()");
    waits_until("SHOW synchronous_standby_names", "");
    old = owner_fenced(client_of(g.server.url), "k");
    assert_int_equal(owner_acquire(old, 2000, 60000), RLOCK_OK);
    assert_true(rlock_is_held(o->lock) && rlock_is_held(old->lock));
    assert_true(old->fence[RLOCK_ACQUIRED] > o->fence[RLOCK_ACQUIRED]); /* by the clocks alone */
}

/* --- the group --- */

static int test_begins(void **state) {
    (void)state;
    if (engine.starts() != 0 || postgres_follow(&standby, &g.server) != 0) {
        return -1;
    }
    sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    sql("SELECT pg_reload_conf()");
    waits_until("SELECT sync_state FROM pg_stat_replication", "sync");
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    call_begins();
    clients_end();
    call_ends();
    if (standby.pid > 0) {
        postgres_signals(&standby, SIGCONT); /* a test that failed may have left it */
    }
    engine.stops();
    server_stop(&standby);
    return 0;
}

static int group_begins(void **state) {
    (void)state;
    return kit_open();
}

static int group_ends(void **state) {
    (void)state;
    kit_close();
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        TEST(hold_outlives_its_primary_and_fences_rise),
        TEST(watchdog_renews_a_hold_at_the_new_primary),
        TEST(acquire_that_the_standby_has_not_got_is_not_granted),
        TEST(renewal_for_less_waits_for_the_standby_too),
        TEST(commit_whose_wait_is_cancelled_is_not_reported_as_done),
        TEST(cancelled_wait_is_seen_though_the_role_hides_warnings),
        TEST(standby_is_never_used),
        TEST(old_primary_that_comes_back_grants_nothing),
        TEST(old_primary_that_waits_for_no_standby_grants_too),
        cmocka_unit_test(no_call_of_the_loop_has_blocked),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("postgres-failover", tests, group_begins, group_ends);
}
