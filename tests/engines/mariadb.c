/* mariadb.c - locks in MariaDB: what goes wrong with the server, the network, and the set-up
 *
 * What every store must do is in tests/engines/mariadb_suite.c.
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
#include "mariadb.h"
#include "measured.h"
#include "proxy.h"

#define malloc wish_malloc
#define calloc wish_calloc
#include "../../stores/rlock_mariadb.h"
#undef malloc
#undef calloc

#define TIMEOUT_MS 400

static struct {
    struct server server;
    MYSQL *hand; /* the administrator's */
    rlock_store *stores[KIT_CLIENTS];
    int store_count;
    int drift_permille; /* of the clients of a test; 0 = the default */
} g;

/* --- the administrator --- */

/* Runs a statement, and returns the first column of its first row; "" if there is none. */
static const char *sql(const char *format, ...) {
    static char value[256];
    char text[4096];
    va_list ap;
    MYSQL_RES *result;
    MYSQL_ROW row;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (g.hand == NULL || mysql_ping(g.hand) != 0) {
        mysql_close(g.hand);
        g.hand = mariadb_connects(&g.server, "shop");
    }
    value[0] = 0;
    if (g.hand == NULL || mysql_query(g.hand, text) != 0) {
        fprintf(stderr, "%s: %s\n", text, g.hand != NULL ? mysql_error(g.hand) : "no server");
        return value;
    }
    result = mysql_store_result(g.hand);
    row = result != NULL ? mysql_fetch_row(result) : NULL;
    if (row != NULL && row[0] != NULL) {
        snprintf(value, sizeof value, "%s", row[0]);
    }
    mysql_free_result(result);
    return value;
}

/* By the server's clock, as the functions have it. */
#define NOW "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

/* Whether somebody has a key, as the server says. */
static bool held(const char *key) {
    return strcmp(sql("SELECT COUNT(*) FROM rlock_keys WHERE name = '%s' AND ends > " NOW, key),
                  "1") == 0;
}

static int key_is_free(void *key) {
    return !held((const char *)key);
}

/* Ends every session of those who lock. */
static void ends_sessions(void) {
    char ids[256];
    char *id;
    snprintf(ids, sizeof ids, "%s",
             sql("SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE user = 'app'"));
    for (id = strtok(ids, ","); id != NULL; id = strtok(NULL, ",")) {
        sql("KILL CONNECTION %s", id);
    }
}

/* --- clients --- */

static rlock_client *client_with(const char *url, int64_t timeout_ms, int64_t poll_ms) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    assert_int_equal(rlock_mariadb_new(&g.stores[g.store_count], url, 0), RLOCK_OK);
    config.store = g.stores[g.store_count++];
    config.loop = rlock_poll_loop(kit_poll);
    config.log = kit_log;
    config.command_timeout_ms = timeout_ms;
    config.poll_ms = poll_ms;
    config.drift_permille = g.drift_permille;
    return kit_client(&config);
}

static rlock_client *client_of(const char *url) {
    return client_with(url, TIMEOUT_MS, 0);
}

static rlock_client *client(void) {
    return client_of(g.server.url);
}

/* By way of the proxy. */
static rlock_client *proxied_for(int64_t timeout_ms) {
    char url[256];
    snprintf(url, sizeof url, "mysql://app@/shop?socket=%s/proxy", g.server.dir);
    return client_with(url, timeout_ms, 0);
}

static rlock_client *proxied(void) {
    return proxied_for(TIMEOUT_MS);
}

static struct owner *renewed(rlock_client *of, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.watchdog = RLOCK_WATCHDOG_ON;
    options.fencing = true;
    return owner_with(of, &options);
}

static int waited_ms(struct owner *o, rlock_event_kind kind, int64_t since_us) {
    return (int)((o->at_us[kind] - since_us) / 1000);
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
    struct owner *o;
    int64_t start_us = kit_now_us();
    (void)state;
    g.drift_permille = 250; /* 375 ms: there is time to ask the server */
    o = renewed(proxied(), "k");
    assert_int_equal(owner_acquire(o, 1000, 1500), RLOCK_OK);
    kit_run(1000);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_in_range(waited_ms(o, RLOCK_LOST, start_us), 1501, 2700);
    assert_true(held("k")); /* the server has it for longer than the holder believes */
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

static int has_connected_again(void *of) {
    return kit_stats((const rlock_client *)of).connects == 2;
}

/* A session that nobody can end: with the rights of that account it opens a pipe into which nobody
 * writes. What it has begun it may still finish, so releases that find nothing are not the last
 * word. */
static void session_stays(const char *account) {
    rlock_client *of = client_with(g.server.url, 2000, 0);
    struct owner *j = owner_new(of, "j"), *k = owner_new(of, "k");
    char path[96];
    int fd, tries = 0;
    snprintf(path, sizeof path, "%s/pipe", g.server.dir);
    assert_int_equal(mkfifo(path, 0644), 0);
    assert_int_equal(owner_acquire(k, 1000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(k), RLOCK_OK);
    sql("CREATE DEFINER = %s TRIGGER waits BEFORE INSERT ON rlock_keys FOR EACH ROW "
        "SET NEW.permits = COALESCE(LENGTH(LOAD_FILE('%s')), 0)",
        account, path);
    assert_int_equal(rlock_acquire(j->lock, 0, 60000, owner_told, j), RLOCK_OK);
    assert_int_equal(rlock_acquire(k->lock, 0, 60000, owner_told, k), RLOCK_OK);
    assert_int_equal(owner_wait(j, RLOCK_ACQUIRED, 10000), RLOCK_ERR_UNKNOWN);
    assert_int_equal(owner_wait(k, RLOCK_ACQUIRED, 10000), RLOCK_ERR_UNKNOWN);
    assert_true(kit_until(has_connected_again, of, 10000));
    kit_run(1000);
    assert_int_equal(kit_stats(of).cleaning, 2); /* the releases found nothing */
    do {
        fd = open(path, O_WRONLY | O_NONBLOCK);
        server_sleep_ms(10);
    } while (fd < 0 && tries++ < 100);
    assert_true(fd >= 0); /* the session was there all the time */
    close(fd);
    unlink(path);
    sql("DROP TRIGGER waits");
}

/* The account of the client may end its session, and sees it, where its own rights count. */
static void session_that_does_not_end_leaves_nothing_sure(void **state) {
    (void)state;
    sql("GRANT FILE ON *.* TO app");
    sql("GRANT TRIGGER, UPDATE ON shop.* TO app");
    session_stays("app");
    sql("REVOKE FILE ON *.* FROM app");
    sql("REVOKE TRIGGER, UPDATE ON shop.* FROM app");
}

static void session_that_may_not_be_ended_leaves_nothing_sure(void **state) {
    (void)state;
    session_stays("root@localhost");
}

/* What the one before was sent it knows nothing of, though both may have begun in one second. */
static void server_that_is_another_one_leaves_nothing_sure(void **state) {
    rlock_client *of = proxied();
    struct owner *o = owner_new(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = HOLD_BACK;
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
    kit_run(100); /* the proxy has it */
    server_kill9(&g.server);
    proxy->mode = PASS;
    proxy_cuts();
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_UNKNOWN);
    mariadb_moves(&g.server);
    assert_int_equal(mariadb_continue(&g.server), 0);
    assert_true(kit_until(has_connected_again, of, 10000));
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

/* The process does nothing for longer than a command timeout, and is answered meanwhile. */
static void answer_that_came_while_the_process_slept_is_read(void **state) {
    rlock_client *of = client();
    struct owner *o = owner_new(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    server_pause(&g.server);
    assert_int_equal(rlock_renew(o->lock, 0, owner_told, o), RLOCK_OK);
    kit_run(TIMEOUT_MS / 8); /* it is out */
    server_resume(&g.server);
    server_sleep_ms(2 * TIMEOUT_MS);
    rlock_on_timer(of); /* as on a loop where timers come first */
    assert_int_equal(owner_wait(o, RLOCK_RENEWED, 5000), RLOCK_OK);
    assert_int_equal(kit_stats(of).connects, 1);
    assert_int_equal(owner_release(o), RLOCK_OK);
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
    server_pause(&g.server);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_in_range(waited_ms(o, RLOCK_LOST, start_us), 600, 1600);
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    server_resume(&g.server);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

static void server_that_is_killed_and_comes_back_has_the_holds(void **state) {
    rlock_client *of = client();
    struct owner *o = renewed(of, "k"), *w = owner_new(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 20000), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 20000, owner_told, w), RLOCK_OK);
    kit_run(200);
    server_kill9(&g.server);
    assert_true(kit_until(kit_is_down, of, 2000));
    assert_int_equal(mariadb_continue(&g.server), 0);
    assert_true(kit_until(kit_is_up, of, 10000));
    kit_run(200);
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

/* Its holds are let go as soon as it goes on, and no call waits for it. */
static void client_is_freed_at_once_while_the_server_is_stopped(void **state) {
    struct owner *o = owner_new(client(), "k"), *busy;
    rlock_client *of = client();
    int tries = 0;
    (void)state;
    busy = owner_new(of, "l");
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(busy, 1000, 60000), RLOCK_OK);
    server_pause(&g.server);
    assert_int_equal(rlock_renew(busy->lock, 0, owner_told, busy), RLOCK_OK);
    kit_run(TIMEOUT_MS / 4); /* it is out */
    call_begins();
    kit_reset();
    call_ends();
    server_resume(&g.server);
    while (tries++ < 500 && (held("k") || held("l"))) {
        server_sleep_ms(10);
    }
    assert_false(held("k") || held("l"));
}

/* While it connects, or reads a long answer a byte at a time: no memory is lost, which the
 * sanitizer says at the end, and no call waits. */
static void client_is_freed_in_the_middle_of_anything(void **state) {
    enum { KEYS = 40, TURNS = 20 };
    char key[16];
    int i, k;
    (void)state;
    sql("INSERT INTO rlock_keys (name, used) VALUES ('key 0', 0)");
    for (i = 0; i < TURNS; i++) {
        rlock_client *of = proxied_for(20000);
        struct owner *o = owner_new(of, "k");
        bool reads = i % 2 != 0;
        proxy->mode = reads ? PASS : SPLIT;
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
        if (reads) {
            assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 10000), RLOCK_OK);
            sql("BEGIN");
            sql("SELECT name FROM rlock_keys WHERE name = 'key 0' FOR UPDATE");
            for (k = 0; k < KEYS; k++) {
                snprintf(key, sizeof key, "key %d", k);
                o = owner_new(of, key);
                assert_int_equal(rlock_acquire(o->lock, 0, 1000, owner_told, o), RLOCK_OK);
            }
            kit_run(50); /* the statement is there */
            proxy->mode = SPLIT;
            sql("COMMIT");
        }
        kit_run(reads ? 12 * i : i);
        call_begins();
        kit_reset();
        call_ends();
        rlock_mariadb_free(g.stores[--g.store_count]);
    }
}

static void hold_whose_row_is_gone_is_told_deleted(void **state) {
    struct owner *o = renewed(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 900), RLOCK_OK);
    sql("DELETE FROM rlock_keys");
    assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

static void session_that_an_operator_ends_loses_no_hold(void **state) {
    rlock_client *of = client_with(g.server.url, 20000, 0); /* no heartbeat comes before */
    struct owner *o = renewed(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    ends_sessions();
    assert_true(kit_until(kit_is_down, of, 2000));
    assert_non_null(strstr(kit_log_text, "connection to MariaDB: "));
    assert_true(kit_until(kit_is_up, of, 2000));
    assert_int_equal(owner_release(o), RLOCK_OK);
}

/* A statement that waits for somebody's long transaction is given up at the server too; of those
 * that went with it each is done. */
static void locked_row_is_waited_for_no_longer_than_a_command(void **state) {
    rlock_client *of = client();
    struct owner *o = owner_new(of, "k"), *with = owner_new(of, "l");
    int status;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK); /* it is connected */
    assert_int_equal(owner_release(o), RLOCK_OK);
    sql("BEGIN");
    sql("SELECT name FROM rlock_keys WHERE name = 'k' FOR UPDATE");
    assert_int_equal(rlock_acquire(with->lock, 3000, 60000, owner_told, with), RLOCK_OK);
    status = owner_acquire(o, 0, 60000);
    assert_true(status == RLOCK_ERR_SERVER || status == RLOCK_ERR_UNKNOWN ||
                status == RLOCK_ERR_CONN);
    assert_int_equal(owner_wait(with, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    kit_run(2 * TIMEOUT_MS);
    sql("ROLLBACK");
    assert_true(kit_until(kit_is_clean, of, 3000));
    assert_false(held("k"));
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
}

static void server_that_becomes_read_only_is_left_and_tried_again(void **state) {
    rlock_client *of = client();
    struct owner *o = owner_new(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    sql("SET GLOBAL read_only = 1");
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_ERR_SERVER);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "read-only"));
    assert_int_equal(owner_acquire(o, 300, 60000), RLOCK_ERR_CONN);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "the server is read-only");
    assert_int_equal(kit_stats(of).connects, 1); /* it is not used */
    sql("SET GLOBAL read_only = 0");
    assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
}

static void server_that_is_full_is_tried_again(void **state) {
    struct owner *o = owner_new(client(), "k");
    (void)state;
    sql("SET GLOBAL max_connections = 10");
    {
        MYSQL *all[20];
        int count = 0;
        while (count < 20 && (all[count] = mariadb_connects(&g.server, NULL)) != NULL) {
            count++;
        }
        assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_CONN);
        assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "Too many connections"));
        while (count > 0) {
            mysql_close(all[--count]);
        }
    }
    sql("SET GLOBAL max_connections = 100");
    assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
}

/* --- the set-up --- */

static const char *url_to(const char *user, const char *database) {
    static char url[160];
    snprintf(url, sizeof url, "mysql://%s@127.0.0.1:%d/%s", user, g.server.port, database);
    return url;
}

static void database_without_the_functions_is_told(void **state) {
    struct owner *o;
    (void)state;
    sql("CREATE DATABASE IF NOT EXISTS empty");
    sql("GRANT EXECUTE ON empty.* TO app");
    o = owner_new(client_of(url_to("app", "empty")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED],
                        "rlock_mariadb.sql is not installed in this database");
}

static void table_that_is_missing_is_told(void **state) {
    struct owner *o = owner_new(client(), "k");
    (void)state;
    sql("RENAME TABLE rlock_keys TO elsewhere");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "rlock_keys"));
    sql("RENAME TABLE elsewhere TO rlock_keys");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
}

static void functions_of_another_version_are_told(void **state) {
    struct owner *o = owner_new(client(), "k");
    (void)state;
    sql("CREATE OR REPLACE FUNCTION rlock_version() RETURNS INT DETERMINISTIC NO SQL RETURN 2");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "of another version"));
    sql("CREATE OR REPLACE FUNCTION rlock_version() RETURNS INT DETERMINISTIC NO SQL RETURN 1");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
}

static void database_and_account_that_do_not_exist_are_told(void **state) {
    struct owner *o;
    (void)state;
    o = owner_new(client_of(url_to("root", "nowhere")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "Unknown database 'nowhere'");
    o = owner_new(client_of(url_to("nobody", "shop")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "Access denied for user 'nobody'"));
}

static void wrong_password_is_told_and_not_shown(void **state) {
    struct owner *o;
    (void)state;
    sql("CREATE OR REPLACE USER careful IDENTIFIED BY 'r@ght'");
    sql("GRANT EXECUTE ON shop.* TO careful");
    o = owner_new(client_of(url_to("careful:wr0ng", "shop")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "Access denied"));
    assert_null(strstr(kit_log_text, "wr0ng"));
    o = owner_new(client_of(url_to("careful:r%40ght", "shop")), "k");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void account_without_the_right_is_told(void **state) {
    struct owner *o;
    (void)state;
    sql("CREATE OR REPLACE USER stranger");
    o = owner_new(client_of(url_to("stranger", "shop")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "denied"));
}

static void url_that_is_wrong_is_refused_without_its_password(void **state) {
    static const char *const wrong[][2] = {{"postgres://me:s3cret@h/db", "begins with"},
                                           {"mysql:/me:s3cret@h/db", "begins with"},
                                           {"mysql", "begins with"},
                                           {"mysql://h/db", "user"},
                                           {"mysql://:s3cret@h/db", "user"},
                                           {"mysql://me:s3cret%zz@h/db", "password"},
                                           {"mysql://me:s3cret%00@h/db", "password"},
                                           {"mysql://me:s3cret@h", "database"},
                                           {"mysql://me:s3cret@h/", "database"},
                                           {"mysql://me:s3cret@h/db/table", "database"},
                                           {"mysql://me:s3cret@h:port/db", "port"},
                                           {"mysql://me:s3cret@h:0/db", "port"},
                                           {"mysql://me:s3cret@h:65536/db", "port"},
                                           {"mysql://me:s3cret@[::1/db", "host"},
                                           {"mysql://me:s3cret@[::1]3306/db", "host"},
                                           {"mysql://me:s3cret@a,b/db", "host"},
                                           {"mysql://me:s3cret@h/db?nonsense=1", "socket"},
                                           {"mysql://me:s3cret@/db?socket=relative", "socket"},
                                           {"mysql://me:s3cret@/db?socket=/a&socket=/b", "socket"},
                                           {"mysql://me:s3cret@h/db?ssl=true", "no TLS"}};
    rlock_store *store = NULL;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rlock_config config;
        rlock_client *none = NULL;
        memset(&config, 0, sizeof config);
        config.loop = rlock_poll_loop(kit_poll);
        config.log = kit_log;
        kit_log_text[0] = 0;
        assert_int_equal(rlock_mariadb_new(&store, wrong[i][0], 0), RLOCK_OK);
        config.store = store;
        assert_int_equal(rlock_client_new(&none, &config), RLOCK_ERR_ARG);
        assert_non_null(strstr(kit_log_text, "the URL of MariaDB is not valid"));
        assert_non_null(strstr(kit_log_text, wrong[i][1]));
        assert_null(strstr(kit_log_text, "s3cret"));
        rlock_mariadb_free(store);
    }
    assert_int_equal(rlock_mariadb_new(NULL, "x", 0), RLOCK_ERR_ARG);
    assert_int_equal(rlock_mariadb_new(&store, NULL, 0), RLOCK_ERR_ARG);
    assert_int_equal(rlock_mariadb_new(&store, "x", 8), RLOCK_ERR_ARG);
    rlock_mariadb_free(NULL);
}

/* The second of two addresses answers, and the first does not: by a resolver of the test's own. */
static rlock_name *asked;

static int resolves_to_two(void *state, rlock_name *name, const char *host) {
    (void)state;
    assert_string_equal(host, "two.example");
    asked = name;
    return 0;
}

static int is_asked(void *unused) {
    (void)unused;
    return asked != NULL;
}

static void name_is_resolved_and_each_address_is_tried(void **state) {
    struct sockaddr_in dead, alive;
    const struct sockaddr *both[2];
    char url[200];
    rlock_config config;
    struct owner *o;
    int tries;
    (void)state;
    snprintf(url, sizeof url, "mysql://app@two.example:%d/shop", g.server.port);
    memset(&config, 0, sizeof config);
    assert_int_equal(rlock_mariadb_new(&g.stores[g.store_count], url, 0), RLOCK_OK);
    config.store = g.stores[g.store_count++];
    config.loop = rlock_poll_loop(kit_poll);
    config.loop.resolve = resolves_to_two;
    config.command_timeout_ms = TIMEOUT_MS;
    o = owner_new(kit_client(&config), "k");
    memset(&dead, 0, sizeof dead);
    dead.sin_family = AF_INET;
    dead.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1); /* 127.0.0.2: nobody listens */
    alive = dead;
    alive.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    both[0] = (const struct sockaddr *)(const void *)&dead;
    both[1] = (const struct sockaddr *)(const void *)&alive;
    assert_int_equal(rlock_acquire(o->lock, 10000, 1000, owner_told, o), RLOCK_OK);
    for (tries = 0; tries < 2; tries++) {
        rlock_name *name;
        assert_true(kit_until(is_asked, NULL, 3000));
        name = asked;
        asked = NULL;
        rlock_on_resolved_all(name, both, 2);
    }
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 10000), RLOCK_OK);
}

static void address_that_says_nothing_is_given_up(void **state) {
    char url[200];
    struct owner *o;
    int door = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    int64_t start_us;
    (void)state;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(door, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(door, 4), 0);
    getsockname(door, (struct sockaddr *)&a, &len);
    snprintf(url, sizeof url, "mysql://app@127.0.0.1:%d/shop", ntohs(a.sin_port));
    start_us = kit_now_us();
    o = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_CONN);
    kit_run(TIMEOUT_MS / 2);
    assert_non_null(strstr(kit_log_text, "no answer while connecting"));
    assert_in_range(waited_ms(o, RLOCK_ACQUIRED, start_us), TIMEOUT_MS - 10, 10 * TIMEOUT_MS);
    close(door);
}

/* --- the functions, called by hand --- */

struct call {
    const char *does, *says; /* says: what it returns, or begins with */
};

static void functions_say(const struct call *calls, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        const char *says = sql("SELECT rlock_%s", calls[i].does);
        if (strncmp(says, calls[i].says, strlen(calls[i].says)) != 0) {
            fprintf(stderr, "%s: %s\n", calls[i].does, says);
        }
        assert_memory_equal(says, calls[i].says, strlen(calls[i].says));
    }
}

#define SAY(calls) functions_say(calls, sizeof(calls) / sizeof(calls)[0])

/* By what the rows say. */
static void a_minute_passes(void) {
    sql("UPDATE rlock_keys SET ends = ends - 60000000 WHERE ends > 0");
    sql("UPDATE rlock_members SET ends = ends - 60000000 WHERE ends > 0");
}

/* Several keys, as the client sends them. */
#define AB "x'000161000162'"
#define BC "x'000162000163'"

static void token_of_another_is_neither_renewed_nor_released_nor_shortened(void **state) {
    static const struct call calls[] = {
        {"acquire('k', 'x:1', 60000, 1)", "0"},
        {"renew('k', 'y:1', 600000)", "3"},
        {"release('k', 'y:1')", "3"},
        {"renew('k', 'x:1', 20)", "0"},
        {"acquire('k', 'x:1', 20, 1)", "0"},
        {"several('a', " AB ", 'x:1', 60000, 1)", "0"},
        {"several('r', " AB ", 'y:1', 600000, 0)", "3"},
        {"several('d', " AB ", 'y:1', 0, 0)", "3"},
        {"several('d', " BC ", 'y:1', 0, 0)", "3"}, /* of one of them */
        {"several('r', " BC ", 'x:1', 600000, 0)", "2"},
        {"several('r', " AB ", 'x:1', 20, 0)", "0"},
        {"several('a', " AB ", 'x:1', 20, 1)", "0"},
        {"acquire_queued('q', 'x:1', 60000, 1, 1, 'f', 1, 1, '', 1000)", "0"},
        {"renew_queued('q', 'y:1', 600000, 'f', 1, 1)", "3"},
        {"release_queued('q', 'y:1', 'f', 1, 1, 1000)", "3"},
        {"renew_queued('q', 'x:1', 20, 'f', 1, 1)", "0"},
        {"acquire_queued('q', 'x:1', 20, 1, 1, 'f', 1, 1, '', 1000)", "0"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        functions_say(calls + i, 1);
        assert_string_equal(sql("SELECT COALESCE(MIN(ends BETWEEN " NOW " + 50000000 AND " NOW
                                " + 61000000), 1) FROM (SELECT ends FROM rlock_keys WHERE name <> "
                                "'c' UNION ALL SELECT ends FROM rlock_members) all_of_them"),
                            "1");
    }
    assert_string_equal(sql("SELECT COUNT(*) FROM rlock_keys WHERE ends > " NOW), "4");
}

static void keys_of_which_one_was_lost_are_let_go(void **state) {
    static const struct call calls[] = {{"several('a', " AB ", 'x:1', 60000, 1)", "0"},
                                        {"force('a', 'm', 1, 1000)", "0 1"},
                                        {"several('r', " AB ", 'x:1', 60000, 0)", "2"},
                                        {"several('d', " AB ", 'x:1', 0, 0)", "2"},
                                        {"inspect('b', '', 'm', 1)", "0 0"}};
    (void)state;
    SAY(calls);
}

static void fences_rise_by_the_row_where_the_clock_is_behind(void **state) {
    static const struct call calls[] = {
        {"acquire('a', 'x:1', 60000, 5)", "0 -1 9000000000000001"},
        {"release('a', 'x:1')", "0"},
        {"acquire('a', 'x:2', 60000, 1)", "0 -1 9000000000000006"},
        {"release('a', 'x:2')", "0"},
        {"several('a', " AB ", 'x:3', 60000, 3)", "0 -1 9000000000000007"},
        {"several('d', " AB ", 'x:3', 0, 0)", "0"},
        {"acquire('b', 'x:4', 60000, 1)", "0 -1 9000000000000010"},
        {"acquire('a', 'x:4', 60000, 1)", "0 -1 9000000000000010"},
        {"acquire_queued('q', 'x:1', 60000, 5, 1, 'f', 1, 1, '', 1000)", "0 -1 9000000000000001"},
        {"release_queued('q', 'x:1', 'f', 1, 1, 1000)", "0"},
        {"acquire_queued('q', 'x:2', 60000, 1, 1, 'f', 1, 1, '', 1000)", "0 -1 9000000000000006"},
        {"force('q', 'f', 1, 1000)", "0 1"},
        {"acquire('q', 'x:3', 60000, 1)", "0 -1 9000000000000007"},
        {"force('q', 'm', 1, 1000)", "0 1"},
        {"acquire('q', 'x:4', 60000, 1)", "0 -1 9000000000000008"},
    };
    (void)state;
    sql("INSERT INTO rlock_keys (name, fence, used) VALUES ('a', 9000000000000000, 0), "
        "('q', 9000000000000000, 0)");
    SAY(calls);
}

static void number_of_permits_keeps_other_kinds_away_for_a_day_of_use(void **state) {
    static const struct call calls[] = {
        {"set_permits('k', 's', 1, 2, 1000)", "0"},
        {"acquire('k', 'x:1', 60000, 1)", "4"},
        {"several('a', x'00016a00016b', 'x:1', 60000, 1)", "4"},
        {"acquire_queued('k', 'x:1', 60000, 1, 1, 'f', 1, 1, '', 1000)", "4"},
        {"acquire_queued('k', 'x:1', 60000, 1, 1, 's', 1, 2, '', 1000)", "0"},
        {"release_queued('k', 'x:1', 's', 1, 2, 1000)", "0"},
    };
    (void)state;
    SAY(calls);
    sql("UPDATE rlock_keys SET permits_until = permits_until - 12 * 3600 * 1000000");
    functions_say(calls + 4, 2);
    assert_string_equal(sql("SELECT permits_until - " NOW " > 23 * 3600 * 1000000 FROM rlock_keys "
                            "WHERE name = 'k'"),
                        "1");
}

static void mutex_does_not_take_a_key_whose_queued_hold_was_renewed(void **state) {
    static const struct call calls[] = {
        {"acquire_queued('k', 'x:1', 60000, 1, 1, 'f', 1, 1, '', 1000)", "0"},
        {"renew_queued('k', 'x:1', 600000, 'f', 1, 1)", "0"}};
    static const struct call then[] = {{"acquire('k', 'y:1', 60000, 1)", "4"},
                                       {"several('a', x'00016b00016c', 'y:1', 60000, 1)", "4"}};
    (void)state;
    SAY(calls);
    a_minute_passes();
    SAY(then);
}

/* As of a client that died: nobody cleans up after it. */
static void hold_that_has_ended_makes_room_for_the_next_one(void **state) {
    static const struct call calls[] = {
        {"acquire('m', 'x:1', 60000, 0)", "0"},
        {"several('a', " AB ", 'x:1', 60000, 0)", "0"},
        {"acquire_queued('k', 'x:1', 60000, 0, 1, 's', 2, 2, '', 1000)", "0"},
        {"acquire_queued('k', 'y:1', 60000, 0, 0, 's', 2, 1, '', 1000)", "1"},
        {"acquire_queued('k', 'y:2', 60000, 0, 0, 's', 2, 2, '', 1000)", "1"}};
    static const struct call then[] = {
        {"renew('m', 'x:1', 100)", "2"},
        {"release('m', 'x:1')", "2"},
        {"acquire('m', 'y:1', 60000, 0)", "0"},
        {"renew('m', 'x:1', 100)", "3"},
        {"several('r', " AB ", 'x:1', 100, 0)", "2"},
        {"several('a', " AB ", 'y:1', 60000, 0)", "0"},
        {"several('r', " AB ", 'x:1', 100, 0)", "3"},
        {"renew_queued('k', 'x:1', 100, 's', 2, 2)", "2"},
        {"acquire_queued('k', 'y:1', 60000, 0, 0, 's', 2, 1, '', 1000)", "0"},
        {"acquire_queued('k', 'y:2', 60000, 0, 0, 's', 2, 2, '', 1000)", "1"},
        {"release_queued('k', 'x:1', 's', 2, 2, 1000)", "3"}};
    (void)state;
    SAY(calls);
    a_minute_passes();
    SAY(then);
}

/* By the number of its place: x has it, y:1, y:2 and z wait. */
static void queue_keeps_who_is_asked_for_and_the_others_of_its_client(void **state) {
    static const struct call calls[] = {
        {"acquire_queued('k', 'x:1', 60000, 0, 1, 's', 2, 2, '', 1000)", "0"},
        {"acquire_queued('k', 'y:1', 60000, 0, 0, 's', 2, 2, '', 1000)", "1"},
        {"acquire_queued('k', 'y:2', 60000, 0, 0, 's', 2, 1, '', 1000)", "1"},
        {"acquire_queued('k', 'z:1', 60000, 0, 0, 's', 2, 1, '', 1000)", "1"}};
    static const struct call later[] = {
        {"acquire_queued('k', 'y:2', 60000, 0, 0, 's', 2, 1, '', 1000)", "1"}};
    static const struct call after[] = {
        {"force('k', 's', 2, 1000)", "0 1"}, /* and the queue is served */
        {"inspect('k', 'z:1', 's', 2)", "0 1 "},
    };
    (void)state;
    SAY(calls);
    assert_string_equal(
        sql("SELECT COUNT(*) FROM rlock_members WHERE ends = 0 AND stays > " NOW " + 20000000"),
        "3");
    sql("UPDATE rlock_members SET stays = stays - 29000000 WHERE ends = 0");
    SAY(later);
    assert_string_equal(sql("SELECT GROUP_CONCAT(token ORDER BY number) FROM rlock_members WHERE "
                            "ends = 0 AND stays > " NOW " + 20000000"),
                        "y:1,y:2");
    sql("UPDATE rlock_members SET stays = stays - 2000000 WHERE token = 'z:1'");
    SAY(after);
    assert_string_equal(sql("SELECT GROUP_CONCAT(token ORDER BY number) FROM rlock_members WHERE "
                            "ends > 0"),
                        "y:1");
    assert_string_equal(sql("SELECT GROUP_CONCAT(token ORDER BY number) FROM rlock_members"),
                        "y:1,y:2");
}

static void who_asks_for_more_than_there_is_holds_up_nobody(void **state) {
    static const struct call calls[] = {
        {"acquire_queued('k', 'x:1', 60000, 0, 1, 's', 3, 3, '', 1000)", "0"},
        {"acquire_queued('k', 'y:1', 60000, 0, 0, 's', 3, 3, '', 1000)", "1"},
        {"acquire_queued('k', 'z:1', 60000, 0, 0, 's', 3, 1, '', 1000)", "1"},
        {"set_permits('k', 's', 3, 2, 1000)", "0"},
        {"release_queued('k', 'x:1', 's', 3, 3, 1000)", "0"},
        {"acquire_queued('k', 'z:1', 60000, 0, 0, 's', 3, 1, '', 1000)", "0"},
    };
    (void)state;
    SAY(calls);
}

/* One lease of two ends after a second, the other after a minute. */
static void waiter_is_told_the_first_end_and_a_question_the_last(void **state) {
    static const struct call calls[] = {
        {"acquire_queued('k', 'x:1', 60000, 0, 1, 's', 2, 1, '', 1000)", "0"},
        {"acquire_queued('k', 'y:1', 30000, 0, 1, 's', 2, 1, '', 1000)", "0"}};
    (void)state;
    SAY(calls);
    assert_in_range(atoi(sql("SELECT SUBSTR(rlock_acquire_queued('k', 'z:1', 60000, 0, 0, 's', 2, "
                             "1, '', 1000), 3)")),
                    20000, 30000);
    assert_in_range(atoi(sql("SELECT SUBSTR(rlock_inspect('k', '', 's', 2), 5)")), 50000, 60000);
}

/* Its statement is given up by the server, and not with the connection; the others go alone. */
static void locked_row_refuses_who_waits_for_it_and_no_other_one(void **state) {
    static const char *const keys[] = {"a", "b", "c"};
    rlock_client *of = client_with(g.server.url, 4000, 0);
    struct owner *o[3];
    int i, status;
    (void)state;
    sql("INSERT INTO rlock_keys (name, used) VALUES ('b', 0)");
    assert_int_equal(owner_acquire(owner_new(of, "connected"), 1000, 1000), RLOCK_OK);
    sql("BEGIN");
    sql("SELECT name FROM rlock_keys WHERE name = 'b' FOR UPDATE");
    for (i = 0; i < 3; i++) {
        int64_t wait_ms = i == 1 ? 0 : 20000;
        o[i] = owner_new(of, keys[i]);
        assert_int_equal(rlock_acquire(o[i]->lock, wait_ms, 60000, owner_told, o[i]), RLOCK_OK);
    }
    assert_int_equal(owner_wait(o[0], RLOCK_ACQUIRED, 9000), RLOCK_OK);
    status = owner_wait(o[1], RLOCK_ACQUIRED, 9000);
    assert_true(status == RLOCK_ERR_SERVER || status == RLOCK_ERR_UNKNOWN);
    assert_int_equal(owner_wait(o[2], RLOCK_ACQUIRED, 9000), RLOCK_OK);
    sql("COMMIT");
    assert_true(kit_stats(of).up && kit_stats(of).connects == 1);
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
    static char longest[RLOCK__MY_KEY_MAX + 2];
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
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    memset(longest, 'x', sizeof longest - 1);
    longest[RLOCK__MY_KEY_MAX] = 0;
    assert_int_equal(owner_acquire(owner_new(of, longest), 1000, 1000), RLOCK_OK);
    longest[RLOCK__MY_KEY_MAX] = 'x';
    assert_null(owner_new(of, longest));
    assert_non_null(strstr(kit_log_text, "at most 2,000 bytes"));
}

/* As when summer time begins: of two sessions with other time zones both see the same end. */
static void time_zone_of_the_server_changes_nothing(void **state) {
    struct owner *a = owner_new(client(), "k"), *b;
    (void)state;
    assert_int_equal(owner_acquire(a, 1000, 60000), RLOCK_OK);
    sql("SET GLOBAL time_zone = '+05:00'");
    b = owner_new(client(), "k");
    assert_int_equal(owner_acquire(b, 0, 60000), RLOCK_ERR_BUSY);
    assert_in_range(b->remaining_ms[RLOCK_ACQUIRED], 50000, 60000);
    sql("SET GLOBAL time_zone = 'SYSTEM'");
    assert_int_equal(owner_release(a), RLOCK_OK);
}

/* Nobody tells it, and it does not poll either: it knows when the lease ends. */
static void waiter_asks_when_the_lease_of_the_holder_ends(void **state) {
    struct owner *a = owner_new(client(), "k"),
                 *b = owner_new(client_with(g.server.url, TIMEOUT_MS, 86400000), "k");
    int64_t start_us;
    (void)state;
    start_us = kit_now_us();
    assert_int_equal(owner_acquire(a, 1000, 700), RLOCK_OK);
    assert_int_equal(owner_acquire(b, 20000, 1000), RLOCK_OK);
    assert_in_range(waited_ms(b, RLOCK_ACQUIRED, start_us), 690, 7000);
    assert_int_equal(a->seen[RLOCK_LOST], 1);
}

/* Their rows are locked one after the other; one that is swept meanwhile is made anew. */
static void keys_one_of_which_is_swept_are_all_held(void **state) {
    static const char *const keys[] = {"a", "b"};
    rlock_client *of = client_with(g.server.url, 5000, 0);
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
    sql("DELETE FROM rlock_keys WHERE name = 'b'");
    assert_int_equal(rlock_acquire(o->lock, 5000, 60000, owner_told, o), RLOCK_OK);
    kit_run(200);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], o->taken[RLOCK_ACQUIRED]); /* it waits for the row */
    sql("COMMIT");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(held("a") && held("b"));
}

/* Of two fair locks that are asked for in one statement the second one's row is waited for. What
 * comes to stand there meanwhile counts, though the statement has read before. */
static void what_was_committed_while_a_statement_waited_is_seen(void **state) {
    rlock_client *of = client_with(g.server.url, 10000, 0);
    struct owner *o[2];
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_options options;
        memset(&options, 0, sizeof options);
        options.key = i ? "b" : "a";
        options.kind = RLOCK_KIND_FAIR;
        o[i] = owner_with(of, &options);
        assert_int_equal(owner_acquire(o[i], 1000, 60000), RLOCK_OK);
        assert_int_equal(owner_release(o[i]), RLOCK_OK);
    }
    sql("BEGIN");
    sql("SELECT name FROM rlock_keys WHERE name = 'b' FOR UPDATE");
    for (i = 0; i < 2; i++) {
        assert_int_equal(rlock_acquire(o[i]->lock, 0, 60000, owner_told, o[i]), RLOCK_OK);
    }
    kit_run(300);
    assert_int_equal(o[0]->seen[RLOCK_ACQUIRED], o[0]->taken[RLOCK_ACQUIRED]); /* it waits */
    sql("INSERT INTO rlock_members (name, number, token, sort, weight, ends, stays) "
        "VALUES ('b', 1, 'other:1', 'f', 1, " NOW " + 60000000, 0)");
    sql("COMMIT");
    assert_int_equal(owner_wait(o[0], RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_wait(o[1], RLOCK_ACQUIRED, 5000), RLOCK_ERR_BUSY);
}

static const char *deadlocks(void) {
    return sql("SELECT variable_value FROM information_schema.global_status WHERE variable_name = "
               "'Innodb_deadlocks'");
}

/* Two clients ask at the same time, and somebody has the row of one key until both wait. */
static void both_ask(struct owner **one, struct owner **other, int count, const char *row_of) {
    int i, holders;
    sql("BEGIN");
    sql("SELECT name FROM rlock_keys WHERE name = '%s' FOR UPDATE", row_of);
    for (i = 0; i < count; i++) {
        assert_int_equal(rlock_acquire(one[i]->lock, 0, 60000, owner_told, one[i]), RLOCK_OK);
        assert_int_equal(rlock_acquire(other[i]->lock, 0, 60000, owner_told, other[i]), RLOCK_OK);
    }
    kit_run(200);
    sql("COMMIT");
    for (i = 0, holders = 0; i < count; i++) {
        int status = owner_wait(one[i], RLOCK_ACQUIRED, 9000);
        assert_true(status == RLOCK_OK || status == RLOCK_ERR_BUSY);
        holders += status == RLOCK_OK;
        status = owner_wait(other[i], RLOCK_ACQUIRED, 9000);
        assert_true(status == RLOCK_OK || status == RLOCK_ERR_BUSY);
        holders += status == RLOCK_OK;
    }
    assert_int_equal(holders, count);
    for (i = 0; i < count; i++) {
        assert_int_equal(owner_release(rlock_is_held(one[i]->lock) ? one[i] : other[i]), RLOCK_OK);
    }
}

/* The one in the opposite order of the other, key by key and as a set. */
static void statements_never_wait_for_each_other_in_a_circle(void **state) {
    enum { ALONE = 12 };
    static const char *const sets[2][3] = {{"x", "y", "z"}, {"z", "y", "x"}};
    struct owner *all[2][ALONE], *set[2];
    char key[8], before[32];
    int c, i;
    (void)state;
    for (c = 0; c < 2; c++) {
        rlock_client *of = client_with(g.server.url, 10000, 0);
        rlock_options options;
        for (i = 0; i < ALONE; i++) {
            snprintf(key, sizeof key, "k%02d", c ? ALONE - 1 - i : i);
            all[c][i] = owner_new(of, key);
            assert_int_equal(owner_acquire(all[c][i], 5000, 60000), RLOCK_OK);
            assert_int_equal(owner_release(all[c][i]), RLOCK_OK);
        }
        memset(&options, 0, sizeof options);
        options.keys = sets[c];
        options.key_count = 3;
        set[c] = owner_with(of, &options);
        assert_int_equal(owner_acquire(set[c], 5000, 60000), RLOCK_OK);
        assert_int_equal(owner_release(set[c]), RLOCK_OK);
    }
    snprintf(before, sizeof before, "%s", deadlocks());
    assert_true(before[0] != 0);
    both_ask(all[0], all[1], ALONE, "k05");
    both_ask(&set[0], &set[1], 1, "y");
    assert_string_equal(deadlocks(), before);
}

/* One client asks for the set of x and z, and for y as well; another one asks for y and z. */
static void several_keys_and_others_never_wait_in_a_circle(void **state) {
    static const char *const set[] = {"x", "z"};
    rlock_client *one = client_with(g.server.url, 10000, 0);
    rlock_client *other = client_with(g.server.url, 10000, 0);
    struct owner *o[4];
    rlock_options options;
    char before[32];
    int i;
    (void)state;
    memset(&options, 0, sizeof options);
    options.keys = set;
    options.key_count = 2;
    o[0] = owner_with(one, &options);
    o[1] = owner_new(one, "y");
    o[2] = owner_new(other, "y");
    o[3] = owner_new(other, "z");
    for (i = 0; i < 4; i++) {
        assert_int_equal(owner_acquire(o[i], 5000, 60000), RLOCK_OK);
        assert_int_equal(owner_release(o[i]), RLOCK_OK);
    }
    snprintf(before, sizeof before, "%s", deadlocks());
    sql("BEGIN");
    sql("SELECT name FROM rlock_keys WHERE name = 'z' FOR UPDATE");
    for (i = 0; i < 4; i++) {
        assert_int_equal(rlock_acquire(o[i]->lock, 0, 60000, owner_told, o[i]), RLOCK_OK);
        if (i == 1) {
            kit_run(200); /* the one's statement is there first */
        }
    }
    kit_run(200);
    sql("COMMIT");
    for (i = 0; i < 4; i++) {
        int status = owner_wait(o[i], RLOCK_ACQUIRED, 9000);
        assert_true(status == RLOCK_OK || status == RLOCK_ERR_BUSY);
    }
    assert_string_equal(deadlocks(), before);
}

static void waiters_whose_client_died_are_forgotten(void **state) {
    struct owner *o;
    rlock_options options;
    (void)state;
    sql("INSERT INTO rlock_keys (name, used) VALUES ('k', " NOW ")");
    sql("INSERT INTO rlock_members (name, number, token, sort, weight, ends, stays) "
        "VALUES ('k', 1, 'dead:1', 'f', 1, 0, " NOW " - 1000000)");
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = RLOCK_KIND_SEMAPHORE;
    options.permits = 1;
    o = owner_with(client(), &options);
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    assert_string_equal(sql("SELECT COUNT(*) FROM rlock_members"), "1");
}

/* One statement has made a row that was not there, and waits for another one. */
static void key_beside_one_that_is_waited_for_is_free(void **state) {
    rlock_client *of = client_with(g.server.url, 10000, 0);
    struct owner *a = owner_new(of, "a"), *m = owner_new(of, "m"), *b = owner_new(client(), "b");
    (void)state;
    assert_int_equal(owner_acquire(m, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_release(m), RLOCK_OK);
    sql("BEGIN");
    sql("SELECT name FROM rlock_keys WHERE name = 'm' FOR UPDATE");
    assert_int_equal(rlock_acquire(a->lock, 0, 60000, owner_told, a), RLOCK_OK);
    assert_int_equal(rlock_acquire(m->lock, 0, 60000, owner_told, m), RLOCK_OK);
    kit_run(200);
    assert_int_equal(owner_acquire(b, 1000, 60000), RLOCK_OK);
    assert_int_equal(a->seen[RLOCK_ACQUIRED], 0); /* it waits all the time */
    sql("COMMIT");
    assert_int_equal(owner_wait(a, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_wait(m, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

/* One request of many is refused: it alone. */
static void error_of_one_request_undoes_no_other_one(void **state) {
    enum { OWNERS = 40 };
    rlock_client *of = client();
    struct owner *o[OWNERS];
    char key[16];
    int i;
    (void)state;
    sql("CREATE OR REPLACE TRIGGER refuses BEFORE INSERT ON rlock_keys FOR EACH ROW "
        "BEGIN IF NEW.name = 'k17' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; "
        "END IF; END");
    for (i = 0; i < OWNERS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        o[i] = owner_new(of, key);
        assert_int_equal(rlock_acquire(o[i]->lock, 0, 60000, owner_told, o[i]), RLOCK_OK);
    }
    for (i = 0; i < OWNERS; i++) {
        assert_int_equal(owner_wait(o[i], RLOCK_ACQUIRED, 5000),
                         i == 17 ? RLOCK_ERR_SERVER : RLOCK_OK);
    }
    assert_string_equal(o[17]->text[RLOCK_ACQUIRED], "not this one");
    sql("DROP TRIGGER refuses");
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
           strcmp(sql("SELECT count(*) FROM rlock_keys WHERE ends > " NOW ""), "0") != 0) {
        server_sleep_ms(10);
    }
    assert_true(tries < 200);
}

/* The child lets its copy of the connection alone. */
static void forked_child_says_no_farewell(void **state) {
    rlock_client *of = client();
    struct owner *o = owner_new(of, "k");
    int status = -1;
    pid_t pid;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    pid = fork();
    if (pid == 0) {
        rlock_client_free(of);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    kit_run(200);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(kit_stats(of).faults, 0);
    assert_int_equal(kit_stats(of).connects, 1);
}

static void functions_may_be_installed_again_while_locks_are_held(void **state) {
    rlock_client *of = client();
    struct owner *o = renewed(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(mariadb_installs(&g.server, "stores/rlock_mariadb.sql"), 0);
    assert_true(held("k"));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(kit_stats(of).faults, 0);
}

static void documented_query_shows_who_holds_a_mutex(void **state) {
    const char *query = documented_query("docs/mariadb.md");
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
    assert_string_equal(sql("SELECT rlock_sweep()"), "0");
    sql("UPDATE rlock_keys SET used = used - 25 * 3600 * 1000000");
    assert_string_equal(sql("SELECT rlock_sweep()"), "1");
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    assert_true(o->fence[RLOCK_ACQUIRED] > before);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    sql("UPDATE rlock_keys SET used = used - 25 * 3600 * 1000000");
    assert_string_equal(sql("SELECT rlock_sweep()"), "0"); /* it is held */
}

static void forgets(void) {
    sql("DELETE FROM rlock_keys");
    sql("DELETE FROM rlock_members");
}

static void every_failing_allocation_is_survived(void **state) {
    static char x[RLOCK__MY_KEY_MAX + 1], y[RLOCK__MY_KEY_MAX + 1];
    const char *keys[3] = {y, x, "b"}; /* the statement has to grow for the last of them, y */
    bool refused = true;
    int n;
    (void)state;
    memset(x, 'x', sizeof x - 1);
    memset(y, 'y', sizeof y - 1);
    for (n = 1; refused && n < 100; n++) {
        rlock_config config;
        rlock_client *of = NULL;
        rlock_store *store = NULL;
        rlock_options options;
        wishes = 0;
        refused_wish = n;
        memset(&config, 0, sizeof config);
        config.loop = rlock_poll_loop(kit_poll);
        config.log = kit_log;
        config.command_timeout_ms = TIMEOUT_MS;
        if (rlock_mariadb_new(&store, g.server.url, 0) == RLOCK_OK) {
            config.store = store;
            of = rlock_client_new(&of, &config) == RLOCK_OK ? of : NULL;
        }
        if (of != NULL) {
            struct owner *o;
            int status;
            memset(&options, 0, sizeof options);
            options.keys = keys;
            options.key_count = 3;
            o = owner_with(of, &options);
            status = owner_acquire(o, 2000, 60000);
            refused = wishes >= refused_wish;
            assert_true(status == RLOCK_OK ||
                        (refused && (status == RLOCK_ERR_NOMEM || status == RLOCK_ERR_CONN ||
                                     status == RLOCK_ERR_UNKNOWN)));
            if (status != RLOCK_OK) { /* it goes on when there is memory again */
                assert_int_equal(owner_acquire(o, 5000, 60000), RLOCK_OK);
            }
            assert_true(held("b") && held(x) && held(y));
            kit_owner_count = 0;
            rlock_free(o->lock);
            rlock_client_free(of);
        }
        refused_wish = 0;
        rlock_mariadb_free(store);
        forgets();
    }
    assert_in_range(n, 6, 99); /* the store, two in open, two for statements, and one without */
}

/* --- the group --- */

static int group_begins(void **state) {
    char from[160];
    (void)state;
    if (kit_open() != 0 || mariadb_start(&g.server) != 0 ||
        mariadb_installs(&g.server, "stores/rlock_mariadb.sql") != 0) {
        return -1;
    }
    g.hand = mariadb_connects(&g.server, "shop");
    snprintf(from, sizeof from, "%s/proxy", g.server.dir);
    proxy_starts(from, g.server.socket);
    return g.hand != NULL ? 0 : -1;
}

static int group_ends(void **state) {
    (void)state;
    if (proxy_pid > 0) {
        kill(proxy_pid, SIGKILL);
        waitpid(proxy_pid, NULL, 0);
    }
    mysql_close(g.hand);
    kit_close();
    server_stop(&g.server);
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    proxy->mode = PASS;
    g.drift_permille = 0;
    forgets();
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    proxy->mode = PASS;
    call_begins();
    kit_reset();
    call_ends();
    while (g.store_count > 0) {
        rlock_mariadb_free(g.stores[--g.store_count]);
    }
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
        TEST(session_that_may_not_be_ended_leaves_nothing_sure),
        TEST(server_that_is_another_one_leaves_nothing_sure),
        TEST(server_that_falls_silent_is_left_though_nothing_is_asked),
        TEST(answer_that_came_while_the_process_slept_is_read),
        TEST(stopped_server_ends_no_hold_early_and_none_late),
        TEST(server_that_is_killed_and_comes_back_has_the_holds),
        TEST(client_is_freed_at_once_while_the_server_is_stopped),
        TEST(client_is_freed_in_the_middle_of_anything),
        TEST(hold_whose_row_is_gone_is_told_deleted),
        TEST(session_that_an_operator_ends_loses_no_hold),
        TEST(locked_row_is_waited_for_no_longer_than_a_command),
        TEST(server_that_becomes_read_only_is_left_and_tried_again),
        TEST(server_that_is_full_is_tried_again),
        TEST(database_without_the_functions_is_told),
        TEST(table_that_is_missing_is_told),
        TEST(functions_of_another_version_are_told),
        TEST(database_and_account_that_do_not_exist_are_told),
        TEST(wrong_password_is_told_and_not_shown),
        TEST(account_without_the_right_is_told),
        TEST(url_that_is_wrong_is_refused_without_its_password),
        TEST(name_is_resolved_and_each_address_is_tried),
        TEST(address_that_says_nothing_is_given_up),
        TEST(token_of_another_is_neither_renewed_nor_released_nor_shortened),
        TEST(keys_of_which_one_was_lost_are_let_go),
        TEST(fences_rise_by_the_row_where_the_clock_is_behind),
        TEST(hold_that_has_ended_makes_room_for_the_next_one),
        TEST(number_of_permits_keeps_other_kinds_away_for_a_day_of_use),
        TEST(mutex_does_not_take_a_key_whose_queued_hold_was_renewed),
        TEST(queue_keeps_who_is_asked_for_and_the_others_of_its_client),
        TEST(who_asks_for_more_than_there_is_holds_up_nobody),
        TEST(waiter_is_told_the_first_end_and_a_question_the_last),
        TEST(locked_row_refuses_who_waits_for_it_and_no_other_one),
        TEST(key_of_another_kind_is_left_alone),
        TEST(key_may_be_any_bytes_and_not_too_long),
        TEST(time_zone_of_the_server_changes_nothing),
        TEST(waiter_asks_when_the_lease_of_the_holder_ends),
        TEST(keys_one_of_which_is_swept_are_all_held),
        TEST(what_was_committed_while_a_statement_waited_is_seen),
        TEST(statements_never_wait_for_each_other_in_a_circle),
        TEST(several_keys_and_others_never_wait_in_a_circle),
        TEST(key_beside_one_that_is_waited_for_is_free),
        TEST(waiters_whose_client_died_are_forgotten),
        TEST(error_of_one_request_undoes_no_other_one),
        TEST(client_that_is_freed_lets_go_of_all),
        TEST(forked_child_says_no_farewell),
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
    return cmocka_run_group_tests_name("mariadb", tests, group_begins, group_ends);
}
