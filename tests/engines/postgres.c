/* postgres.c - locks in PostgreSQL: what goes wrong with the server, the network, and the set-up
 *
 * What every store must do is in tests/engines/postgres_suite.c.
 */

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "documented.h"
#include "measured.h"
#include "postgres.h"
#include "proxy.h"

#define malloc wish_malloc
#define calloc wish_calloc
#include "../../stores/rlock_postgres.h"
#undef malloc
#undef calloc

#include "postgres_kit.h"

/* --- clients --- */

/* By way of the proxy: a unix socket of the same name in another folder. */
static rlock_client *proxied_for(int64_t timeout_ms) {
    char url[256];
    snprintf(url, sizeof url, "host=%s/proxy port=%d user=me dbname=postgres", g.server.dir,
             g.server.port);
    return client_of(url, 0, timeout_ms);
}

static rlock_client *proxied(void) {
    return proxied_for(TIMEOUT_MS);
}

static int key_is_free(void *key) {
    return !held((const char *)key);
}

/* Tries for one key, or two. */
static struct owner *wished(rlock_client *of, const char *key, const char *more) {
    const char *keys[2];
    rlock_options options;
    struct owner *o;
    memset(&options, 0, sizeof options);
    keys[0] = key;
    keys[1] = more;
    options.key = more ? NULL : key;
    options.keys = more ? keys : NULL;
    options.key_count = more ? 2 : 0;
    o = owner_with(of, &options);
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
    return o;
}

/* --- the network --- */

static void replies_split_at_every_byte_are_understood(void **state) {
    rlock_client *of = proxied_for(20000);
    struct owner *a = renewed(of, "k"), *b = renewed(client(), "k");
    (void)state;
    proxy->mode = SPLIT;
    assert_int_equal(owner_acquire(a, 30000, 120000), RLOCK_OK);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 120000, owner_told, b), RLOCK_OK);
    assert_int_equal(owner_renew(a, 0), RLOCK_OK);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(b->fence[RLOCK_ACQUIRED] > a->fence[RLOCK_ACQUIRED]);
    assert_int_equal(kit_stats(of).faults, 0);
}

static void server_that_is_far_away_is_waited_for(void **state) {
    struct owner *o = renewed(proxied_for(4000), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 5000), RLOCK_OK); /* it is connected */
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = DELAY_200_MS; /* each way */
    assert_int_equal(owner_acquire(o, 10000, 5000), RLOCK_OK);
    assert_in_range(o->remaining_ms[RLOCK_ACQUIRED], 2000, 5000 - 400);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void black_holed_holder_is_told_by_its_deadline(void **state) {
    struct owner *o = renewed(proxied(), "k");
    int64_t start_us, wall_us, ends_us;
    struct timespec wall;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1500), RLOCK_OK);
    start_us = kit_now_us();
    kit_run(1000);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_in_range(waited_ms(o, RLOCK_LOST, start_us), 1501, 4000);
    clock_gettime(CLOCK_REALTIME, &wall); /* the server's clock */
    wall_us = (int64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000 - kit_now_us();
    ends_us = atoll(sql("SELECT (extract(epoch FROM ends) * 1000000)::bigint FROM rlock.keys"));
    assert_true(ends_us > o->at_us[RLOCK_LOST] + wall_us); /* later than the holder believes */
    proxy->mode = PASS;
    assert_true(kit_until(key_is_free, (void *)(intptr_t) "k", 3000));
}

static void black_holed_renewal_and_release_are_unknown(void **state) {
    struct owner *a = owner_new(proxied(), "a"), *b = owner_new(proxied(), "b");
    (void)state;
    assert_int_equal(owner_acquire(a, 1000, 1500), RLOCK_OK);
    assert_int_equal(owner_acquire(b, 1000, 1500), RLOCK_OK);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(rlock_renew(a->lock, 0, owner_told, a), RLOCK_OK);
    assert_int_equal(rlock_release(b->lock, owner_told, b), RLOCK_OK);
    assert_int_equal(owner_wait(a, RLOCK_RENEWED, 5000), RLOCK_ERR_UNKNOWN);
    assert_true(rlock_is_held(a->lock));
    assert_int_equal(owner_wait(b, RLOCK_RELEASED, 5000), RLOCK_ERR_UNKNOWN);
}

/* The hold goes on over a new connection, and is cleaned up there. */
static void connection_that_is_cut_loses_no_hold(void **state) {
    rlock_client *of = proxied();
    struct owner *o = renewed(of, "k"), *w = owner_new(of, "other");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 3000), RLOCK_OK);
    proxy_cuts();
    assert_true(kit_until(kit_is_down, of, 2000));
    assert_true(kit_until(kit_is_up, of, 2000));
    assert_int_equal(owner_acquire(w, 2000, 3000), RLOCK_OK);
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(kit_stats(of).lost, 0);
}

/* An acquire and a release lie in a network that holds them back until the client has gone on over
 * another connection. The session that they would reach is ended before. */
static void what_an_old_connection_still_carries_is_not_executed(void **state) {
    rlock_client *of = proxied();
    struct owner *o = owner_new(of, "k"), *other = owner_new(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = HOLD_BACK;
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
    kit_run(100); /* the proxy has it */
    proxy_cuts(); /* the client's half alone */
    proxy->mode = PASS;
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_UNKNOWN);
    assert_true(kit_until(kit_is_clean, of, 3000)); /* long before a lease: it is sure */
    proxy_delivers_late();
    kit_run(300);
    assert_false(held("k"));
    assert_int_equal(owner_acquire(other, 0, 1000), RLOCK_OK);
}

/* The acquire waits for a row, and its session is stopped there: it does not end when it is told.
 * So nobody knows whether it goes on. */
static void session_that_does_not_end_leaves_nothing_sure(void **state) {
    rlock_client *of = client_of(g.server.url, 0, 2000);
    struct owner *o = owner_new(of, "k");
    int pid = 0, tries = 0;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    sql("BEGIN");
    sql("SELECT 1 FROM rlock.keys FOR UPDATE");
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
    while (pid == 0 && tries++ < 200) {
        kit_run(2);
        pid = atoi(sql("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"));
    }
    assert_true(pid > 0);
    kill(pid, SIGSTOP);
    sql("ROLLBACK");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 10000), RLOCK_ERR_UNKNOWN);
    assert_true(kit_until(kit_is_up, of, 10000));
    kit_run(1000);
    assert_int_equal(kit_stats(of).cleaning, 1); /* its release found nothing */
}

static void server_that_falls_silent_is_left_though_nothing_is_asked(void **state) {
    rlock_client *of = proxied();
    struct owner *o = owner_new(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    kit_run(5 * TIMEOUT_MS);
    assert_true(kit_stats(of).up && kit_stats(of).connects == 1);
    proxy->mode = BLACK_HOLE;
    assert_true(kit_until(kit_is_down, of, 20 * TIMEOUT_MS));
}

/* --- the server --- */

static void stopped_server_ends_no_hold_early_and_none_late(void **state) {
    struct owner *o = renewed(client(), "k"), *w = owner_new(client(), "k");
    int64_t start_us;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1500), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 60000, owner_told, w), RLOCK_OK);
    kit_run(300);
    start_us = kit_now_us();
    postgres_signals(&g.server, SIGSTOP);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_in_range(waited_ms(o, RLOCK_LOST, start_us), 600, 1600);
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    postgres_signals(&g.server, SIGCONT);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

static void server_that_is_killed_and_comes_back_has_the_holds(void **state) {
    rlock_client *of = client();
    struct owner *o = renewed(of, "k"), *w = owner_new(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 8000), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 8000, owner_told, w), RLOCK_OK);
    kit_run(200);
    postgres_dies(&g.server);
    assert_true(kit_until(kit_is_down, of, 2000));
    assert_int_equal(postgres_continue(&g.server), 0);
    assert_true(kit_until(kit_is_up, of, 5000));
    kit_run(200);
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

static void hold_whose_row_is_gone_is_told_deleted(void **state) {
    struct owner *o = renewed(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 900), RLOCK_OK);
    sql("DELETE FROM rlock.keys");
    assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

static void session_that_an_operator_ends_loses_no_hold(void **state) {
    rlock_client *of = client();
    struct owner *o = renewed(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 3000), RLOCK_OK);
    sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = "
        "'rlock'");
    assert_true(kit_until(kit_is_down, of, 2000));
    assert_non_null(strstr(kit_log_text, "terminating connection"));
    assert_true(kit_until(kit_is_up, of, 2000));
    assert_int_equal(owner_release(o), RLOCK_OK);
}

/* A statement that waits for somebody's long transaction is given up at the server too. */
static void locked_table_is_waited_for_no_longer_than_a_command(void **state) {
    rlock_client *of = client();
    struct owner *o = owner_new(of, "k");
    int status;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK); /* it is connected */
    assert_int_equal(owner_release(o), RLOCK_OK);
    sql("BEGIN");
    sql("LOCK TABLE rlock.keys IN ACCESS EXCLUSIVE MODE");
    status = owner_acquire(o, 0, 60000);
    assert_true(status == RLOCK_ERR_SERVER || status == RLOCK_ERR_UNKNOWN ||
                status == RLOCK_ERR_CONN);
    kit_run(2 * TIMEOUT_MS);
    sql("ROLLBACK");
    assert_true(kit_until(kit_is_clean, of, 3000));
    assert_false(held("k"));
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
}

static void server_that_becomes_read_only_is_left_and_tried_again(void **state) {
    rlock_client *of = client(), *any;
    struct owner *o = owner_new(of, "k");
    char url[256];
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    sql("ALTER SYSTEM SET default_transaction_read_only = on");
    sql("SELECT pg_reload_conf()");
    kit_run(200);
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_ERR_SERVER);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "read-only"));
    assert_int_equal(owner_acquire(o, 300, 60000), RLOCK_ERR_CONN);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "read-only"));
    snprintf(url, sizeof url, "%s%ctarget_session_attrs=any", g.server.url,
             strchr(g.server.url, '?') ? '&' : '?');
    any =
        client_of(url, 0, TIMEOUT_MS); /* it is not connected to again and again as if it served */
    assert_int_equal(owner_acquire(owner_new(any, "k"), 300, 60000), RLOCK_ERR_CONN);
    assert_int_equal(kit_stats(any).connects, 0);
    sql("SET default_transaction_read_only = off");
    sql("ALTER SYSTEM RESET default_transaction_read_only");
    sql("SELECT pg_reload_conf()");
    assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
}

static void on_set(rlock_client *of, const rlock_info *info, void *user) {
    (void)of;
    *(int *)user = info->status;
}

static int is_set(void *status) {
    return *(int *)status != -100;
}

/* Nobody holds, so there is no time after which to ask again. */
static void waiter_that_is_too_heavy_for_the_permits_rests(void **state) {
    rlock_client *of = client();
    rlock_options options;
    struct owner *o;
    uint64_t before;
    int status = -100;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = RLOCK_KIND_SEMAPHORE;
    options.permits = 5;
    options.weight = 3;
    o = owner_with(of, &options);
    assert_int_equal(rlock_set_permits(of, &options, 2, on_set, &status), RLOCK_OK);
    assert_true(kit_until(is_set, &status, 2000));
    before = kit_stats(of).commands;
    assert_int_equal(owner_acquire(o, 500, 1000), RLOCK_ERR_TIMEOUT);
    assert_true(kit_stats(of).commands - before < 50);
}

static void server_that_is_full_is_tried_again(void **state) {
    struct owner *o = owner_new(client(), "k");
    PGconn *all[200];
    int i, count = 0;
    (void)state;
    sql("CREATE ROLE plain LOGIN; GRANT rlock_user TO plain");
    for (i = 0; i < 200; i++) {
        all[count] = PQconnectdb(g.server.url);
        count += PQstatus(all[count]) == CONNECTION_OK;
        if (count <= i) {
            PQfinish(all[count]);
            break;
        }
    }
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_CONN);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "too many clients"));
    while (count > 0) {
        PQfinish(all[--count]);
    }
    assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
}

/* --- the set-up --- */

static void database_without_the_functions_is_told(void **state) {
    char url[160];
    struct owner *o;
    (void)state;
    sql("CREATE DATABASE empty");
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d/empty", g.server.port);
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED],
                        "rlock_postgres.sql is not installed in this database");
}

static void functions_of_another_version_are_told(void **state) {
    struct owner *o = owner_new(client(), "k");
    (void)state;
    sql("CREATE OR REPLACE FUNCTION rlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT "
        "2'");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "of another version"));
    sql("CREATE OR REPLACE FUNCTION rlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT "
        "1'");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
}

static void database_and_role_that_do_not_exist_are_told(void **state) {
    char url[160];
    struct owner *o;
    (void)state;
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d/nowhere", g.server.port);
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "database \"nowhere\" does not exist");
    snprintf(url, sizeof url, "postgres://nobody@127.0.0.1:%d/postgres", g.server.port);
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "role \"nobody\" does not exist");
}

static void wrong_password_is_told_and_not_shown(void **state) {
    char url[160];
    struct owner *o;
    (void)state;
    sql("CREATE ROLE careful LOGIN PASSWORD 'right'; GRANT rlock_user TO careful");
    snprintf(url, sizeof url, "postgres://careful:wr0ng@127.0.0.1:%d/postgres?application_name=x",
             g.server.port);
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "password authentication failed"));
    assert_null(strstr(kit_log_text, "wr0ng"));
    snprintf(url, sizeof url, "postgres://careful:right@127.0.0.1:%d/postgres", g.server.port);
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK); /* rlock_user is all that it needs */
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void role_without_the_right_is_told(void **state) {
    char url[160];
    struct owner *o;
    (void)state;
    sql("CREATE ROLE stranger LOGIN");
    snprintf(url, sizeof url, "postgres://stranger@127.0.0.1:%d/postgres", g.server.port);
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "permission denied"));
}

static void url_that_is_wrong_is_refused_without_its_password(void **state) {
    static const char many[] = "postgres://me:s3cret@1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17/db";
    char long_port[800];
    const char *const wrong[] = {"postgres://me:s3cret@127.0.0.1:port/db",
                                 "postgres://me:s3cret%zz@h/db",
                                 "postgres://me:s3cret@h/db?nonsense=1",
                                 "postgres://me:s3cret@a,b:1,2,3/db",
                                 "postgres://me:a/b?s3cret@h/db",
                                 "postgres://me:s3cret/x@h/db",
                                 "postgres://me:s3cret@h/db?service=shop",
                                 long_port,
                                 many};
    size_t i;
    (void)state;
    snprintf(long_port, sizeof long_port,
             "postgres://me:s3cret@127.0.0.1:%0300d,127.0.0.1:%0300d/db", 1, 1);
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rlock_config config;
        rlock_client *none = NULL;
        rlock_store *store = NULL;
        int status;
        memset(&config, 0, sizeof config);
        config.loop = rlock_poll_loop(kit_poll);
        config.log = kit_log;
        assert_int_equal(rlock_postgres_new(&store, wrong[i], 0), RLOCK_OK);
        config.store = store;
        status = rlock_client_new(&none, &config);
        if (status == RLOCK_OK) { /* libpq checks a port when it connects */
            struct owner *o = owner_new(none, "k");
            kit_clients[kit_client_count++] = none;
            g.stores[g.store_count++] = store;
            assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_CONN);
            assert_true(o->text[RLOCK_ACQUIRED][0] != 0);
        } else {
            assert_int_equal(status, RLOCK_ERR_ARG);
            assert_non_null(strstr(kit_log_text, "the URL of PostgreSQL"));
            rlock_postgres_free(store);
        }
        assert_null(strstr(kit_log_text, "s3cret"));
    }
    assert_int_equal(rlock_postgres_new(NULL, "x", 0), RLOCK_ERR_ARG);
    assert_int_equal(rlock_postgres_new(&g.stores[0], NULL, 0), RLOCK_ERR_ARG);
    assert_int_equal(rlock_postgres_new(&g.stores[0], "x", 8), RLOCK_ERR_ARG);
    rlock_postgres_free(NULL);
}

static void name_is_resolved_and_each_host_is_tried(void **state) {
    char url[200];
    struct owner *o;
    int door = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    int64_t start_us = kit_now_us();
    (void)state;
    snprintf(url, sizeof url, "postgres://me@localhost:%d/postgres", g.server.port);
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:1,localhost:%d/postgres", g.server.port);
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k"); /* nobody listens at the first */
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(door, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(door, 4), 0);
    getsockname(door, (struct sockaddr *)&a, &len);
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d,127.0.0.1:%d/postgres", ntohs(a.sin_port),
             g.server.port);
    start_us = kit_now_us();
    o = owner_new(client_of(url, 0, TIMEOUT_MS), "k"); /* the first one says nothing */
    assert_int_equal(owner_acquire(o, 10 * TIMEOUT_MS, 1000), RLOCK_OK);
    assert_in_range(waited_ms(o, RLOCK_ACQUIRED, start_us), TIMEOUT_MS, 10 * TIMEOUT_MS);
    close(door);
}

/* --- what the functions do --- */

/* Each with the outcome: 0 done, 2 gone, 3 stolen. Times are in minutes and more. */
static void token_of_another_is_neither_renewed_nor_released_nor_shortened(void **state) {
    static const struct {
        const char *call, *outcome;
    } calls[] = {
        {"acquire('k', 'x:1', 60000, 1, false)", "0"},
        {"renew('k', 'y:1', 600000)", "3"},
        {"release('k', 'y:1')", "3"},
        {"renew('k', 'x:1', 20)", "0"},
        {"acquire('k', 'x:1', 20, 1, false)", "0"},
        {"acquire_all('{a,b}', 'x:1', 60000, 1, false)", "0"},
        {"renew_all('{a,b}', 'y:1', 600000)", "3"},
        {"release_all('{a,b}', 'y:1')", "3"},
        {"release_all('{b,c}', 'y:1')", "3"}, /* of one of them */
        {"renew_all('{b,c}', 'x:1', 600000)", "2"},
        {"renew_all('{a,b}', 'x:1', 20)", "0"},
        {"acquire_all('{a,b}', 'x:1', 20, 1, false)", "0"},
        {"acquire_queued('q', 'x:1', 60000, 1, true, 'f', 1, 1, '', 1000)", "0"},
        {"renew_queued('q', 'y:1', 600000, 'f', 1, 1)", "3"},
        {"release_queued('q', 'y:1', 'f', 1, 1, 1000, '')", "3"},
        {"renew_queued('q', 'x:1', 20, 'f', 1, 1)", "0"},
        {"acquire_queued('q', 'x:1', 20, 1, true, 'f', 1, 1, '', 1000)", "0"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const char *outcome = sql("SELECT outcome FROM rlock.%s", calls[i].call);
        if (strcmp(outcome, calls[i].outcome) != 0) {
            fprintf(stderr, "%s: %s\n", calls[i].call, outcome);
        }
        assert_string_equal(outcome, calls[i].outcome);
        assert_string_equal(sql("SELECT coalesce(bool_and(ends BETWEEN clock_timestamp() + "
                                "interval '50 s' AND clock_timestamp() + interval '61 s'), true) "
                                "FROM (SELECT ends FROM rlock.keys WHERE key <> 'c' UNION ALL "
                                "SELECT ends FROM rlock.members) all_of_them"),
                            "t");
    }
    assert_string_equal(sql("SELECT count(*) FROM rlock.keys WHERE ends > clock_timestamp()"), "4");
}

/* The last fence of a row is far above the clock: so it alone makes them rise. */
static void fences_rise_by_the_row_where_the_clock_is_behind(void **state) {
    static const char *const keys[] = {"a", "b"};
    rlock_client *of = client();
    rlock_options options;
    struct owner *o[6];
    int i;
    (void)state;
    memset(&options, 0, sizeof options);
    options.fencing = true;
    options.key = "a";
    for (i = 0; i < 4; i++) {
        o[i] = owner_with(i < 3 ? of : client(), &options);
    }
    options.key = "b";
    o[5] = owner_with(client(), &options);
    options.key = NULL;
    options.keys = keys;
    options.key_count = 2;
    o[4] = owner_with(of, &options);
    sql("INSERT INTO rlock.keys (key, fence) VALUES ('a', 9000000000000000), ('q', "
        "9000000000000000)");
    for (i = 0; i < 3; i++) { /* one hands over to the next */
        assert_int_equal(rlock_acquire(o[i]->lock, 5000, 60000, owner_told, o[i]), RLOCK_OK);
    }
    for (i = 0; i < 6; i++) {
        if (i < 3) {
            assert_int_equal(owner_wait(o[i], RLOCK_ACQUIRED, 5000), RLOCK_OK);
        } else {
            assert_int_equal(owner_acquire(o[i], 1000, 60000), RLOCK_OK);
        }
        assert_true(o[i]->fence[RLOCK_ACQUIRED] >
                    (i ? o[i - 1]->fence[RLOCK_ACQUIRED] : 9000000000000000));
        assert_int_equal(owner_release(o[i]), RLOCK_OK);
    }
    options.key = "q";
    options.keys = NULL;
    options.key_count = 0;
    options.kind = RLOCK_KIND_FAIR;
    for (i = 0; i < 2; i++) {
        o[i] = owner_with(i ? client() : of, &options);
        assert_int_equal(owner_acquire(o[i], 1000, 60000), RLOCK_OK);
        assert_true(o[i]->fence[RLOCK_ACQUIRED] >
                    (i ? o[0]->fence[RLOCK_ACQUIRED] : 9000000000000000));
        assert_int_equal(owner_release(o[i]), RLOCK_OK);
    }
}

/* --- kinds, and what is told --- */

static void key_of_another_kind_is_left_alone(void **state) {
    rlock_client *of = client();
    struct owner *mutex = owner_new(of, "k"), *fair;
    rlock_options options;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = RLOCK_KIND_FAIR;
    fair = owner_with(of, &options);
    assert_int_equal(owner_acquire(mutex, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(fair, 0, 1000), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(owner_renew(mutex, 0), RLOCK_OK);
    assert_int_equal(owner_release(mutex), RLOCK_OK);
    assert_int_equal(owner_acquire(fair, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(mutex, 0, 1000), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(owner_release(fair), RLOCK_OK);
}

static void key_may_be_any_bytes_and_not_too_long(void **state) {
    static const char bytes[] = "a\0\\b'\"\r\n\xff{}";
    static char longest[RLOCK__PG_KEY_MAX + 2];
    rlock_client *of = client(), *other = client();
    rlock_options options;
    struct owner *a, *b;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = bytes;
    options.key_len = sizeof bytes - 1;
    a = owner_with(of, &options);
    b = owner_with(other, &options);
    assert_int_equal(owner_acquire(a, 1000, 60000), RLOCK_OK);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 1000, owner_told, b), RLOCK_OK);
    kit_run(200);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 1000), RLOCK_OK); /* it was notified */
    memset(longest, 'x', sizeof longest - 1);
    longest[RLOCK__PG_KEY_MAX] = 0;
    assert_int_equal(owner_acquire(owner_new(of, longest), 1000, 1000), RLOCK_OK);
    longest[RLOCK__PG_KEY_MAX] = 'x';
    assert_null(owner_new(of, longest));
    assert_non_null(strstr(kit_log_text, "at most 2,000 bytes"));
}

/* A release tells the waiter of another client, or it would sleep until the end of the lease. */
static void waiter_is_told_soon(void **state) {
    enum { ROUNDS = 21 };
    struct owner *a = owner_new(client(), "k"), *b = owner_new(client(), "k");
    int64_t told_us[ROUNDS], start_us;
    int i;
    (void)state;
    for (i = 0; i < ROUNDS; i++) {
        assert_int_equal(owner_acquire(a, 1000, 60000), RLOCK_OK);
        assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 60000, owner_told, b), RLOCK_OK);
        kit_run(20);
        start_us = kit_now_us();
        assert_int_equal(rlock_release(a->lock, owner_told, a), RLOCK_OK);
        assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
        assert_int_equal(owner_wait(a, RLOCK_RELEASED, 5000), RLOCK_OK);
        told_us[i] = b->at_us[RLOCK_ACQUIRED] - start_us;
        assert_int_equal(owner_release(b), RLOCK_OK);
    }
    printf("# from a release to the grant of another client's waiter: %.2f ms\n",
           (double)kit_median(told_us, ROUNDS) / 1000);
    assert_true(kit_median(told_us, ROUNDS) < 200000); /* 20 ms are promised */
}

static int notices(void) {
    PGnotify *notify;
    int count = 0;
    sql("SELECT 1");
    while ((notify = PQnotifies(g.hand)) != NULL) {
        PQfreemem(notify);
        count++;
    }
    return count;
}

/* A commit that notifies takes a lock of the whole server. */
static void release_notifies_where_somebody_waits_alone(void **state) {
    rlock_client *of = client();
    struct owner *o[3];
    int i;
    (void)state;
    for (i = 0; i < RLOCK__PG_CHANNELS; i++) {
        sql("LISTEN rlock_%d", i);
    }
    for (i = 0; i < 2; i++) { /* a key, a set */
        o[0] = wished(of, "a", i ? "b" : NULL);
        assert_int_equal(owner_wait(o[0], RLOCK_ACQUIRED, 5000), RLOCK_OK);
        assert_int_equal(owner_release(o[0]), RLOCK_OK);
        assert_int_equal(notices(), 0);
    }
    for (i = 0; i < 2; i++) {
        o[0] = wished(of, "a", i ? "b" : NULL);
        assert_int_equal(owner_wait(o[0], RLOCK_ACQUIRED, 5000), RLOCK_OK);
        o[1] = owner_new(client(), i ? "b" : "a");
        assert_int_equal(rlock_acquire(o[1]->lock, RLOCK_FOREVER, 60000, owner_told, o[1]),
                         RLOCK_OK);
        kit_run(300);
        assert_int_equal(notices(), 0);
        assert_int_equal(owner_release(o[0]), RLOCK_OK);
        assert_int_equal(owner_wait(o[1], RLOCK_ACQUIRED, 2000), RLOCK_OK);
        assert_true(notices() > 0);
        assert_int_equal(owner_release(o[1]), RLOCK_OK);
        notices();
    }
    sql("UNLISTEN *");
}

static void told(rlock_client *of, const rlock_info *info, void *user) {
    (void)of;
    *(int *)user = info->status == RLOCK_OK ? (int)info->holders : -1;
}

/* The two keys have one channel, which is listened to already when the second one is waited for. */
static void waiter_of_another_key_of_the_same_channel_is_told_too(void **state) {
    rlock_client *holds = client(), *waits = client();
    static const char *const keys[] = {"aba", "aca"};
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *a = owner_new(holds, keys[i]), *b = owner_new(waits, keys[i]);
        assert_int_equal(owner_acquire(a, 1000, 60000), RLOCK_OK);
        assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 60000, owner_told, b), RLOCK_OK);
        kit_run(100);
        assert_int_equal(owner_release(a), RLOCK_OK);
        assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 2000), RLOCK_OK); /* it sleeps for 10 s */
    }
}

/* Their rows are locked one after the other; one that is swept meanwhile is made anew. */
static void keys_one_of_which_is_swept_are_all_held(void **state) {
    static const char *const keys[] = {"a", "b"};
    rlock_client *of = client_of(g.server.url, 0, 5000);
    rlock_options options;
    struct owner *o;
    (void)state;
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 2;
    o = owner_with(of, &options);
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    sql("BEGIN");
    sql("DELETE FROM rlock.keys WHERE key = 'b'");
    assert_int_equal(rlock_acquire(o->lock, 5000, 60000, owner_told, o), RLOCK_OK);
    kit_run(200);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], o->taken[RLOCK_ACQUIRED]); /* it waits for the row */
    sql("COMMIT");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(held("a") && held("b"));
}

static void waiters_whose_client_died_are_forgotten(void **state) {
    struct owner *o;
    rlock_options options;
    (void)state;
    sql("INSERT INTO rlock.keys (key) VALUES ('k')");
    sql("INSERT INTO rlock.members (key, token, sort, weight, stays) "
        "VALUES ('k', 'dead:1', 'f', 1, clock_timestamp() - interval '1 s')");
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = RLOCK_KIND_SEMAPHORE;
    options.permits = 1;
    o = owner_with(client(), &options);
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    assert_string_equal(sql("SELECT count(*) FROM rlock.members"), "1");
}

static int is_told(void *forced) {
    return *(int *)forced != -2;
}

/* Also where the client that takes it away is the holder's own. */
static void hold_that_is_taken_away_by_force_is_told_at_once(void **state) {
    rlock_client *of = client(), *other = client();
    struct owner *o = owner_new(of, "k");
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_options options;
        int forced = -2;
        memset(&options, 0, sizeof options);
        options.key = "k";
        assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
        kit_run(300); /* it is watched */
        assert_int_equal(rlock_force_release(i ? other : of, &options, told, &forced), RLOCK_OK);
        assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
        assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
        assert_true(kit_until(is_told, &forced, 2000));
        assert_int_equal(forced, 1);
    }
}

static void behind_a_pooler_waiters_poll(void **state) {
    rlock_client *of = client_of(g.server.url, RLOCK_POSTGRES_POOLER, TIMEOUT_MS);
    struct owner *a = owner_new(of, "k"),
                 *b = owner_new(client_of(g.server.url, RLOCK_POSTGRES_POOLER, TIMEOUT_MS), "k");
    (void)state;
    assert_int_equal(owner_acquire(a, 1000, 60000), RLOCK_OK);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 60000, owner_told, b), RLOCK_OK);
    kit_run(300);
    assert_false(kit_stats(of).pushing);
    assert_string_equal(sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = "
                            "'rlock' AND query LIKE 'LISTEN%%'"),
                        "0");
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_release(b), RLOCK_OK);
}

/* One request of many is refused: it alone. */
static void error_of_one_request_undoes_no_other_one(void **state) {
    enum { OWNERS = 40 };
    rlock_client *of = client();
    struct owner *o[OWNERS];
    char key[16];
    int i;
    (void)state;
    sql("CREATE OR REPLACE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not this one'; END $$");
    sql("CREATE TRIGGER refuses BEFORE INSERT OR UPDATE ON rlock.keys FOR EACH ROW WHEN (NEW.key = "
        "'k17') "
        "EXECUTE FUNCTION refuses()");
    for (i = 0; i < OWNERS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        o[i] = owner_new(of, key);
        assert_int_equal(rlock_acquire(o[i]->lock, 0, 60000, owner_told, o[i]), RLOCK_OK);
    }
    for (i = 0; i < OWNERS; i++) {
        assert_int_equal(owner_wait(o[i], RLOCK_ACQUIRED, 5000),
                         i == 17 ? RLOCK_ERR_SERVER : RLOCK_OK);
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(held(key), i != 17);
    }
    assert_string_equal(o[17]->text[RLOCK_ACQUIRED], "not this one");
    sql("DROP TRIGGER refuses ON rlock.keys");
}

static void error_of_the_commit_is_unknown_and_cleaned_up(void **state) {
    rlock_client *of = client();
    struct owner *o = owner_new(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK); /* it is connected */
    assert_int_equal(owner_release(o), RLOCK_OK);
    sql("CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'not committed'; END $$");
    sql("CREATE CONSTRAINT TRIGGER fails AFTER UPDATE ON rlock.keys DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION fails()");
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_ERR_UNKNOWN);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "not committed");
    sql("DROP TRIGGER fails ON rlock.keys");
    assert_true(kit_until(kit_is_clean, of, 3000));
    assert_false(held("k"));
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
}

/* Somebody's transaction has the row of one key. */
static void locked_row_refuses_who_waits_for_it_and_no_other_one(void **state) {
    static const char *const keys[] = {"a", "b", "c"};
    rlock_client *of = client_of(g.server.url, 0, 2000);
    struct owner *o[3];
    int i;
    (void)state;
    sql("INSERT INTO rlock.keys (key) VALUES ('b')");
    assert_int_equal(owner_acquire(owner_new(of, "connected"), 1000, 1000), RLOCK_OK);
    sql("BEGIN");
    sql("SELECT 1 FROM rlock.keys WHERE key = 'b' FOR UPDATE");
    for (i = 0; i < 3; i++) {
        o[i] = owner_new(of, keys[i]);
        assert_int_equal(rlock_acquire(o[i]->lock, 0, 60000, owner_told, o[i]), RLOCK_OK);
    }
    assert_int_equal(owner_wait(o[0], RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_wait(o[1], RLOCK_ACQUIRED, 5000), RLOCK_ERR_SERVER);
    assert_int_equal(owner_wait(o[2], RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_non_null(strstr(o[1]->text[RLOCK_ACQUIRED], "timeout"));
    sql("COMMIT");
    assert_true(kit_stats(of).up && kit_stats(of).connects == 1);
}

/* What each of two clients wants in one group: nobody waits for who waits for it. */
static void nobody_waits_in_a_circle(rlock_client *const *clients, struct owner *const *owners,
                                     int count) {
    int i, status, granted = 0;
    for (i = 0; i < count; i++) {
        status = owner_wait(owners[i], RLOCK_ACQUIRED, 10000);
        assert_true(status == RLOCK_OK || status == RLOCK_ERR_BUSY);
        granted += status == RLOCK_OK;
        if (status == RLOCK_OK) {
            assert_int_equal(owner_release(owners[i]), RLOCK_OK);
        }
    }
    assert_true(granted > 0);
    assert_int_equal(kit_stats(clients[0]).faults + kit_stats(clients[1]).faults, 0);
}

static void rows_are_locked_in_one_order(void **state) {
    rlock_client *clients[2];
    struct owner *o[4];
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        clients[i] = client_of(g.server.url, 0, 5000);
        assert_int_equal(owner_acquire(owner_new(clients[i], i ? "one" : "two"), 1000, 1000),
                         RLOCK_OK); /* it is connected */
    }
    sql("INSERT INTO rlock.keys (key) VALUES ('a'), ('b'), ('m'), ('z')");
    sql("BEGIN"); /* sets, while somebody has the first row */
    sql("SELECT 1 FROM rlock.keys WHERE key = 'a' FOR UPDATE");
    o[0] = wished(clients[0], "a", "b");
    kit_run(100);
    o[1] = wished(clients[1], "b", "a");
    kit_run(100);
    sql("COMMIT");
    nobody_waits_in_a_circle(clients, o, 2);
    sql("CREATE OR REPLACE FUNCTION dawdles() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.2); RETURN NEW; END $$"); /* with the row locked */
    sql("CREATE TRIGGER dawdles BEFORE UPDATE ON rlock.keys FOR EACH ROW WHEN (NEW.token IS NOT "
        "NULL) EXECUTE FUNCTION dawdles()");
    o[0] = wished(clients[0], "a", NULL); /* single keys */
    o[1] = wished(clients[0], "b", NULL);
    o[2] = wished(clients[1], "b", NULL);
    o[3] = wished(clients[1], "a", NULL);
    nobody_waits_in_a_circle(clients, o, 4);
    o[0] = wished(clients[0], "a", "z"); /* a set beside a key that stands between its two */
    o[1] = wished(clients[0], "m", NULL);
    o[2] = wished(clients[1], "m", NULL);
    o[3] = wished(clients[1], "z", NULL);
    nobody_waits_in_a_circle(clients, o, 4);
    sql("DROP TRIGGER dawdles ON rlock.keys");
}

static void client_that_is_freed_lets_go_of_all(void **state) {
    enum { OWNERS = 200 };
    rlock_client *of = client();
    char key[16];
    int i, tries = 0;
    (void)state;
    for (i = 0; i < OWNERS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(owner_acquire(owner_new(of, key), 1000, 60000), RLOCK_OK);
    }
    kit_reset();
    while (tries++ < 200 &&
           strcmp(sql("SELECT count(*) FROM rlock.keys WHERE ends > clock_timestamp()"), "0") !=
               0) {
        server_sleep_ms(10);
    }
    assert_true(tries < 200);
}

/* Nobody reads the answer any more: the server does not end for that. */
static void farewell_that_takes_long_is_executed_all_the_same(void **state) {
    int tries = 0;
    (void)state;
    assert_int_equal(owner_acquire(owner_new(client_of(g.server.url, 0, 5000), "k"), 1000, 60000),
                     RLOCK_OK);
    sql("CREATE OR REPLACE FUNCTION dawdles() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$");
    sql("CREATE TRIGGER dawdles BEFORE UPDATE ON rlock.keys FOR EACH ROW EXECUTE FUNCTION "
        "dawdles()");
    kit_reset();
    while (held("k") && tries++ < 500) {
        server_sleep_ms(10);
    }
    assert_false(held("k"));
}

static void functions_may_be_installed_again_while_locks_are_held(void **state) {
    rlock_client *of = client();
    struct owner *o = renewed(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(postgres_installs(&g.server, "stores/rlock_postgres.sql"), 0);
    assert_true(held("k"));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(kit_stats(of).faults, 0);
}

static void documented_query_shows_who_holds_a_mutex(void **state) {
    const char *query = documented_query("docs/postgresql.md");
    struct owner *o = owner_new(client(), "k");
    (void)state;
    assert_string_equal(sql("%s", query), "");
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_string_equal(sql("%s", query), "k");
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_string_equal(sql("%s", query), "");
}

static void rows_that_nobody_used_for_a_day_are_swept(void **state) {
    struct owner *o = owner_fenced(client(), "k");
    uint64_t before;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    before = o->fence[RLOCK_ACQUIRED];
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_string_equal(sql("SELECT rlock.sweep()"), "0");
    sql("UPDATE rlock.keys SET used = used - interval '25 hours'");
    assert_string_equal(sql("SELECT rlock.sweep()"), "1");
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_true(o->fence[RLOCK_ACQUIRED] > before);
    sql("UPDATE rlock.keys SET used = used - interval '25 hours'"); /* a hold of more than a day */
    assert_string_equal(sql("SELECT rlock.sweep()"), "0");
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
}

static void every_failing_allocation_is_survived(void **state) {
    int n, granted = 0;
    (void)state;
    for (n = 1; n < 100; n++) {
        rlock_config config;
        rlock_client *of = NULL;
        rlock_store *store = NULL;
        rlock_options options;
        static const char *const keys[] = {"a", "b"};
        struct owner *o;
        bool refused;
        wishes = 0;
        refused_wish = n;
        memset(&config, 0, sizeof config);
        config.loop = rlock_poll_loop(kit_poll);
        config.log = kit_log;
        config.command_timeout_ms = TIMEOUT_MS;
        if (rlock_postgres_new(&store, g.server.url, 0) == RLOCK_OK) {
            g.stores[g.store_count] = store;
            g.store_count = (g.store_count + 1) % KIT_CLIENTS;
            config.store = store;
            of = rlock_client_new(&of, &config) == RLOCK_OK ? of : NULL;
        }
        if (of != NULL) {
            int status;
            memset(&options, 0, sizeof options);
            options.keys = keys;
            options.key_count = 2;
            o = owner_with(of, &options);
            status = owner_acquire(o, 2000, 2000);
            assert_true(status == RLOCK_OK || status == RLOCK_ERR_NOMEM ||
                        status == RLOCK_ERR_CONN || status == RLOCK_ERR_UNKNOWN);
            granted += status == RLOCK_OK;
            kit_owner_count = 0;
            rlock_free(o->lock);
            rlock_client_free(of);
        }
        refused = wishes >= refused_wish;
        refused_wish = 0;
        rlock_postgres_free(store);
        g.store_count = 0;
        sql("TRUNCATE rlock.keys, rlock.members");
        if (!refused) {
            break;
        }
    }
    assert_in_range(n, 5, 99);
    assert_true(granted > 1);
}

/* --- the group --- */

static int group_begins(void **state) {
    char from[160], to[160];
    (void)state;
    if (kit_open() != 0 || postgres_start(&g.server) != 0 ||
        postgres_installs(&g.server, "stores/rlock_postgres.sql") != 0) {
        return -1;
    }
    g.hand = PQconnectdb(g.server.url);
    sql("ALTER ROLE me SET client_min_messages = warning");
    PQreset(g.hand);
    snprintf(from, sizeof from, "%s/proxy", g.server.dir);
    mkdir(from, 0777);
    snprintf(from, sizeof from, "%s/proxy/.s.PGSQL.%d", g.server.dir, g.server.port);
    snprintf(to, sizeof to, "%s/.s.PGSQL.%d", g.server.dir, g.server.port);
    proxy_starts(from, to);
    first_rule("host all careful 127.0.0.1/32 scram-sha-256"); /* all others are trusted */
    return PQstatus(g.hand) == CONNECTION_OK ? 0 : -1;
}

static int group_ends(void **state) {
    (void)state;
    if (proxy_pid > 0) {
        kill(proxy_pid, SIGKILL);
        waitpid(proxy_pid, NULL, 0);
    }
    PQfinish(g.hand);
    kit_close();
    server_stop(&g.server);
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    proxy->mode = PASS;
    if (PQtransactionStatus(g.hand) != PQTRANS_IDLE) { /* what a test that failed has left */
        sql("ROLLBACK");
    }
    sql("DROP TRIGGER IF EXISTS refuses ON rlock.keys; DROP TRIGGER IF EXISTS fails ON rlock.keys; "
        "DROP TRIGGER IF EXISTS dawdles ON rlock.keys");
    sql("TRUNCATE rlock.keys, rlock.members");
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    proxy->mode = PASS;
    postgres_signals(&g.server, SIGCONT);
    call_begins();
    clients_end();
    call_ends();
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        TEST(replies_split_at_every_byte_are_understood),
        TEST(server_that_is_far_away_is_waited_for),
        TEST(black_holed_holder_is_told_by_its_deadline),
        TEST(black_holed_renewal_and_release_are_unknown),
        TEST(connection_that_is_cut_loses_no_hold),
        TEST(what_an_old_connection_still_carries_is_not_executed),
        TEST(session_that_does_not_end_leaves_nothing_sure),
        TEST(server_that_falls_silent_is_left_though_nothing_is_asked),
        TEST(stopped_server_ends_no_hold_early_and_none_late),
        TEST(server_that_is_killed_and_comes_back_has_the_holds),
        TEST(hold_whose_row_is_gone_is_told_deleted),
        TEST(session_that_an_operator_ends_loses_no_hold),
        TEST(locked_table_is_waited_for_no_longer_than_a_command),
        TEST(server_that_becomes_read_only_is_left_and_tried_again),
        TEST(waiter_that_is_too_heavy_for_the_permits_rests),
        TEST(server_that_is_full_is_tried_again),
        TEST(database_without_the_functions_is_told),
        TEST(functions_of_another_version_are_told),
        TEST(database_and_role_that_do_not_exist_are_told),
        TEST(wrong_password_is_told_and_not_shown),
        TEST(role_without_the_right_is_told),
        TEST(url_that_is_wrong_is_refused_without_its_password),
        TEST(name_is_resolved_and_each_host_is_tried),
        TEST(token_of_another_is_neither_renewed_nor_released_nor_shortened),
        TEST(fences_rise_by_the_row_where_the_clock_is_behind),
        TEST(key_of_another_kind_is_left_alone),
        TEST(key_may_be_any_bytes_and_not_too_long),
        TEST(waiter_is_told_soon),
        TEST(release_notifies_where_somebody_waits_alone),
        TEST(waiter_of_another_key_of_the_same_channel_is_told_too),
        TEST(keys_one_of_which_is_swept_are_all_held),
        TEST(waiters_whose_client_died_are_forgotten),
        TEST(hold_that_is_taken_away_by_force_is_told_at_once),
        TEST(behind_a_pooler_waiters_poll),
        TEST(error_of_one_request_undoes_no_other_one),
        TEST(error_of_the_commit_is_unknown_and_cleaned_up),
        TEST(locked_row_refuses_who_waits_for_it_and_no_other_one),
        TEST(rows_are_locked_in_one_order),
        TEST(client_that_is_freed_lets_go_of_all),
        TEST(farewell_that_takes_long_is_executed_all_the_same),
        TEST(functions_may_be_installed_again_while_locks_are_held),
        TEST(documented_query_shows_who_holds_a_mutex),
        TEST(rows_that_nobody_used_for_a_day_are_swept),
        TEST(every_failing_allocation_is_survived),
        TEST(no_call_of_the_loop_has_blocked),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("postgres", tests, group_begins, group_ends);
}
