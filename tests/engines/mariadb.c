/* mariadb.c - locks in MariaDB: what goes wrong with the server, the network, and the set-up
 *
 * What every store must do is in tests/engines/mariadb_suite.c.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "measured.h"

#define malloc wish_malloc
#define calloc wish_calloc
#include "../../stores/rlock_mariadb.h"
#undef malloc
#undef calloc

#include "mariadb_kit.h"

#include "clients.h"
#include "faults.h"

#define TABLE "rlock_keys"
#define COLUMN "name"
#define MEMBERS "rlock_members"
#define SWEEP "SELECT rlock_sweep()"
#define SWEEP_ALL                                              \
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; " \
    "WHILE rlock_sweep() > 0 DO COMMIT; END WHILE"
#define A_DAY_PASSES "UPDATE rlock_keys SET used = used - 25 * 3600 * 1000000"
#define DOCUMENT "docs/mariadb.md"
#define SESSION_ENDED "connection to MariaDB: "
#define VERSION_IS(text) \
    "CREATE OR REPLACE FUNCTION rlock_version() RETURNS INT DETERMINISTIC NO SQL RETURN " text
#define REVISION_IS(text) \
    "CREATE OR REPLACE FUNCTION rlock_revision() RETURNS INT DETERMINISTIC NO SQL RETURN " text
#define NO_REVISION "DROP FUNCTION rlock_revision"
#define LAST_MS                                         \
    "SELECT (MAX(ends) - " NOW " + 999) DIV 1000 FROM " \
    "(SELECT ends FROM rlock_keys UNION ALL SELECT ends FROM rlock_members) of_all"
#define VERSION_FAILS(text)                                                              \
    "CREATE OR REPLACE FUNCTION rlock_version() RETURNS INT DETERMINISTIC NO SQL BEGIN " \
    "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = \"" text "\"; RETURN 1; END"
#include "faults_sql.h"

static int installs(void) {
    return mariadb_installs(&g.server, "stores/rlock_mariadb.sql");
}

static void ends_move(const char *by_us) {
    sql("UPDATE rlock_keys SET ends = ends + %s WHERE ends > 0", by_us);
    sql("UPDATE rlock_members SET ends = ends + %s WHERE ends > 0", by_us);
}

static void clock_is_set_back(void) {
    ends_move("3600000000");
}

static void a_minute_passes(void) {
    ends_move("-60000000");
}

static void writes_named(char *url, const char *host) {
    snprintf(url, 256, "mysql://app@%s:%d/shop", host, g.server.port);
}

static void refuses_k17(const char *words) {
    char text[400];
    snprintf(text, sizeof text,
             "CREATE OR REPLACE TRIGGER refuses BEFORE INSERT ON rlock_keys FOR EACH ROW "
             "BEGIN IF NEW.name = 'k17' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '%s'; "
             "END IF; END",
             words);
    sql(text);
}

static const char *careful_url(const char *password, int port) {
    static char url[160];
    char text[160];
    snprintf(text, sizeof text, "CREATE OR REPLACE USER cautious IDENTIFIED BY '%s'", password);
    sql(text);
    sql("GRANT EXECUTE ON shop.* TO cautious");
    snprintf(url, sizeof url, "mysql://cautious:%s@127.0.0.1:%d/shop", password, port);
    return url;
}

/* ERR_Packet in place of a handshake: https://mariadb.com/kb/en/err_packet/ */
static size_t says_no(char *bytes, const char *words) {
    size_t len = 3 + strlen(words);
    memset(bytes, 0, 4);
    bytes[0] = (char)len;
    memcpy(bytes + 4, "\xff\x6a\x04", 3); /* 1130: the host is not allowed to connect */
    memcpy(bytes + 7, words, strlen(words));
    return 4 + len;
}

static void makes_rows(int count) {
    sql("INSERT INTO rlock_keys (name, used) SELECT CONCAT('k', seq), " NOW " FROM seq_1_to_%d",
        count);
}

static void runs_apart(const char *text) {
    MYSQL *hand = mariadb_connects(&g.server, "shop");
    if (hand == NULL || mariadb_does(hand, text) != 0) {
        _exit(1);
    }
}

static void dead_one_waits(void) {
    sql("INSERT INTO rlock_keys (name, used) VALUES ('k', " NOW ")");
    sql("INSERT INTO rlock_members (name, number, token, sort, weight, ends, stays) "
        "VALUES ('k', 1, 'dead:1', 'f', 1, 0, " NOW " - 1000000)");
}

/* --- the network --- */

static int has_connected_again(void *of) {
    return kit_stats((const rlock_client *)of).connects == 2;
}

/* A session that nobody can end: with the rights of that account it opens a pipe into which nobody
 * writes. What it has begun it may still finish, so releases that find nothing are not the last
 * word. */
static void session_stays(const char *account) {
    rlock_client *of = patient(2000);
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
    server_sleep_ms(5 * TIMEOUT_MS); /* what was stopped may be slow to begin again */
    rlock_on_timer(of);              /* as on a loop where timers come first */
    assert_int_equal(owner_wait(o, RLOCK_RENEWED, 5000), RLOCK_OK);
    assert_int_equal(kit_stats(of).connects, 1);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

/* --- the server --- */

#define UNREPLICATED                                                                     \
    "SELECT variable_value FROM information_schema.global_status WHERE variable_name = " \
    "'Rpl_semi_sync_master_no_tx'"

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
        engine.forgets(made.stores[--made.store_count]);
    }
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

/* Renews each until the server was asked: a client that lost its connection has to make one. */
static void renewals_end(struct owner **owners, int count, int64_t lease_ms, int so) {
    int i, status, tries = 0;
    for (i = 0; i < count; i++) {
        do {
            status = owner_renew(owners[i], lease_ms);
        } while (status == RLOCK_ERR_CONN && tries++ < 20);
        assert_int_equal(status, so);
    }
}

/* A replica is waited for, and there is none. The first renewal may have been done, and nobody
 * else knows of it: the second one, for less, is not told as done because of that. */
static void renewal_for_less_waits_for_the_replica_too(void **state) {
    static const char *const keys[] = {"a", "b"};
    rlock_options options[3];
    struct owner *o[3];
    int i;
    (void)state;
    memset(options, 0, sizeof options);
    options[0].key = "k";
    options[1].keys = keys;
    options[1].key_count = 2;
    options[2].key = "f";
    options[2].kind = RLOCK_KIND_FAIR;
    for (i = 0; i < 3; i++) {
        options[i].watchdog = RLOCK_WATCHDOG_OFF;
        o[i] = owner_with(patient(1000), &options[i]);
        assert_int_equal(owner_acquire(o[i], 1000, 60000), RLOCK_OK);
    }
    sql("SET GLOBAL rpl_semi_sync_master_timeout = 600000");
    sql("SET GLOBAL rpl_semi_sync_master_enabled = 1");
    renewals_end(o, 3, 120000, RLOCK_ERR_UNKNOWN);
    assert_string_equal(sql("SELECT COUNT(*) FROM rlock_keys WHERE ends > " NOW " + 70000000"),
                        "4");
    renewals_end(o, 3, 30000, RLOCK_ERR_UNKNOWN);
    sql("SET GLOBAL rpl_semi_sync_master_enabled = 0");
    renewals_end(o, 3, 30000, RLOCK_OK);
}

/* Ends the wait for the replica of the statement that a client has sent. */
static int wait_is_ended(struct owner *o, const char *by) {
    unsigned long session = 0;
    int tries = 0;
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
    while (session == 0 && tries++ < 200) {
        kit_run(5);
        session = strtoul(sql("SELECT id FROM information_schema.processlist WHERE state LIKE "
                              "'%%semi-sync ACK%%'"),
                          NULL, 10);
    }
    assert_true(session > 0);
    sql("%s %lu", by, session);
    return owner_wait(o, RLOCK_ACQUIRED, 5000);
}

/* That is how it is, not how it should be: the server says nothing of it to the client, and counts
 * it alone. */
static void query_that_is_killed_while_it_waits_for_the_replica_counts(void **state) {
    struct owner *o[2];
    int i, alone;
    (void)state;
    for (i = 0; i < 2; i++) {
        o[i] = owner_new(patient(4000), i ? "b" : "a");
        assert_int_equal(owner_acquire(o[i], 1000, 60000), RLOCK_OK); /* it is connected */
        assert_int_equal(owner_release(o[i]), RLOCK_OK);
    }
    sql("SET GLOBAL rpl_semi_sync_master_timeout = 600000");
    sql("SET GLOBAL rpl_semi_sync_master_enabled = 1");
    alone = atoi(sql(UNREPLICATED));
    assert_int_equal(wait_is_ended(o[0], "KILL QUERY"), RLOCK_OK);
    assert_int_equal(atoi(sql(UNREPLICATED)), alone + 1);
    assert_int_equal(wait_is_ended(o[1], "KILL CONNECTION"), RLOCK_ERR_UNKNOWN);
    sql("SET GLOBAL rpl_semi_sync_master_enabled = 0");
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

static void database_without_the_functions_is_reported(void **state) {
    struct owner *o;
    (void)state;
    sql("CREATE DATABASE IF NOT EXISTS empty");
    sql("GRANT EXECUTE ON empty.* TO app");
    o = owner_new(client_of(url_to("app", "empty")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED],
                        "rlock_mariadb.sql is not installed in this database");
}

/* Its pages take no key as long as ours: the file says so, and nothing is there. */
static void file_is_refused_by_a_server_with_small_pages(void **state) {
    static const char *const sizes[] = {"--innodb-page-size=4k", "--innodb-page-size=8k"};
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        struct server small;
        MYSQL *hand;
        memset(&small, 0, sizeof small);
        mariadb_pages = sizes[i];
        assert_int_equal(mariadb_start(&small), 0);
        mariadb_pages = "--innodb-page-size=16k";
        assert_int_equal(mariadb_installs(&small, "stores/rlock_mariadb.sql"), -1);
        hand = mariadb_connects(&small, "shop");
        assert_non_null(hand);
        assert_int_equal(mysql_query(hand, "SELECT 1 FROM rlock_keys"), 1);
        assert_int_equal(mysql_errno(hand), 1146); /* no such table */
        mysql_close(hand);
        server_stop(&small);
    }
}

/* Such as sql_select_limit=0, with which no row comes. */
static void setting_of_the_server_is_not_taken_for_another_version(void **state) {
    struct owner *o = owner_new(client_of(url_to("app", "shop")), "k");
    (void)state;
    sql("SET GLOBAL init_connect = 'SET sql_select_limit = 0'");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
    sql("SET GLOBAL init_connect = ''");
}

static void table_that_is_missing_is_reported(void **state) {
    struct owner *o = owner_new(client(), "k");
    (void)state;
    sql("RENAME TABLE rlock_keys TO elsewhere");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "rlock_keys"));
    sql("RENAME TABLE elsewhere TO rlock_keys");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
}

static void database_and_account_that_do_not_exist_are_reported(void **state) {
    struct owner *o;
    (void)state;
    o = owner_new(client_of(url_to("root", "nowhere")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "Unknown database 'nowhere'");
    o = owner_new(client_of(url_to("nobody", "shop")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "Access denied for user 'nobody'"));
}

static void wrong_password_is_reported_and_not_shown(void **state) {
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

static void careful_changes(const char *password) {
    char text[100];
    snprintf(text, sizeof text, "ALTER USER careful IDENTIFIED BY '%s'", password);
    sql(text);
}

static void careful_cut(void) {
    sql("KILL CONNECTION USER careful");
}

static void password_of_an_account_may_change_while_it_holds(void **state) {
    (void)state;
    sql("CREATE OR REPLACE USER careful IDENTIFIED BY 'first'");
    sql("GRANT EXECUTE ON shop.* TO careful");
    credentials_change(url_to("careful:first", "shop"), careful_changes, careful_cut);
}

static void account_without_the_right_is_reported(void **state) {
    struct owner *o;
    (void)state;
    sql("CREATE OR REPLACE USER stranger");
    o = owner_new(client_of(url_to("stranger", "shop")), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "denied"));
}

static void url_that_is_wrong_is_refused_without_its_password(void **state) {
    static const char *const wrong[][2] = {
        {"postgres://me:s3cret@h/db", "expected mysql://"},
        {"mysql:/me:s3cret@h/db", "expected mysql://"},
        {"mysql", "expected mysql://"},
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
        {"mysql://me:s3cret@h/db?ssl=true", "TLS is not supported"}};
    rlock_store *store = NULL;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        url_is_refused(wrong[i][0], "the URL of MariaDB is not valid");
        if (strstr(kit_log_text, wrong[i][1]) == NULL) {
            fail_msg("%s: %s", wrong[i][0], kit_log_text);
        }
    }
    assert_int_equal(rlock_mariadb_new(NULL, "x", 0), RLOCK_ERR_ARG);
    assert_int_equal(rlock_mariadb_new(&store, NULL, 0), RLOCK_ERR_ARG);
    assert_int_equal(rlock_mariadb_new(&store, "x", 8), RLOCK_ERR_ARG);
    rlock_mariadb_free(NULL);
}

static void address_that_says_nothing_is_given_up(void **state) {
    char url[200];
    struct owner *o;
    int port, door = silent_door(&port);
    int64_t start_us;
    (void)state;
    snprintf(url, sizeof url, "mysql://app@127.0.0.1:%d/shop", port);
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

/* Several keys, as the client sends them. */
#define AB "x'000161000162'"
#define BC "x'000162000163'"

static void token_of_another_is_neither_renewed_nor_released_nor_shortened(void **state) {
    static const struct call calls[] = {
        {"acquire('k', 'x:1', 60000, 1)", "0"},
        {"renew('k', 'y:1', 600000)", "3"},
        {"release('k', 'y:1')", "3"},
        {"renew('k', 'x:1', 20)", "0"},
        {"extend('k', 'x:1', 20, 60000)", "0"},
        {"extend('k', 'x:1', 0, 20)", "0"}, /* it only looks */
        {"acquire('k', 'x:1', 20, 1)", "0"},
        {"several('a', " AB ", 'x:1', 60000, 1)", "0"},
        {"several('r', " AB ", 'y:1', 600000, 0)", "3"},
        {"several('d', " AB ", 'y:1', 0, 0)", "3"},
        {"several('d', " BC ", 'y:1', 0, 0)", "3"}, /* of one of them */
        {"several('r', " BC ", 'x:1', 600000, 0)", "2"},
        {"several('r', " AB ", 'x:1', 20, 0)", "0"},
        {"several('r', " AB ", 'x:1', 20, 60000)", "0"},
        {"several('r', " AB ", 'x:1', 0, 20)", "0"},
        {"several('a', " AB ", 'x:1', 20, 1)", "0"},
        {"acquire_queued('q', 'x:1', 60000, 1, 1, 'f', 1, 1, '', 1000)", "0"},
        {"renew_queued('q', 'y:1', 600000, 'f', 1, 1)", "3"},
        {"release_queued('q', 'y:1', 'f', 1, 1, 1000)", "3"},
        {"renew_queued('q', 'x:1', 20, 'f', 1, 1)", "0"},
        {"extend_queued('q', 'x:1', 20, 60000, 'f', 1, 1)", "0"},
        {"extend_queued('q', 'x:1', 0, 20, 'f', 1, 1)", "0"},
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

/* Also in the microsecond of the claim before: a replica is waited for only if something was.
 * Sessions of clients, which are READ COMMITTED, log rows as well. */
static void what_is_reported_as_held_is_written_though_nothing_changes(void **state) {
    static const struct call calls[] = {
        {"acquire('k', 'x:1', 60000, 0)", "0"},
        {"acquire('k', 'x:1', 20, 0)", "0"},
        {"renew('k', 'x:1', 20)", "0"},
        {"several('a', " AB ", 'x:1', 60000, 0)", "0"},
        {"several('a', " AB ", 'x:1', 20, 0)", "0"},
        {"several('r', " AB ", 'x:1', 20, 0)", "0"},
        {"acquire_queued('q', 'x:1', 60000, 0, 1, 'f', 1, 1, '', 1000)", "0"},
        {"acquire_queued('q', 'x:1', 20, 0, 1, 'f', 1, 1, '', 1000)", "0"},
        {"renew_queued('q', 'x:1', 20, 'f', 1, 1)", "0"},
    };
    size_t i;
    (void)state;
    sql("SET timestamp = UNIX_TIMESTAMP(NOW(6)), binlog_format = ROW");
    for (i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        char before[64];
        snprintf(before, sizeof before, "%s", sql("SELECT @@gtid_binlog_pos"));
        functions_say(calls + i, 1);
        if (strcmp(sql("SELECT @@gtid_binlog_pos"), before) == 0) {
            fail_msg("%s wrote nothing", calls[i].does);
        }
    }
}

static void keys_of_which_one_was_lost_are_released(void **state) {
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

static void waiter_that_wants_more_than_there_is_blocks_no_other(void **state) {
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
static void waiter_is_notified_of_the_first_end_and_a_question_of_the_last(void **state) {
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
    rlock_client *of = patient(4000);
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
    struct owner *a = owner_new(client(), "k"), *b;
    rlock_store *store = NULL;
    int64_t start_us;
    (void)state;
    assert_int_equal(engine.makes(&store, g.server.url), RLOCK_OK);
    b = owner_new(client_on(store, TIMEOUT_MS, 86400000), "k");
    start_us = kit_now_us();
    assert_int_equal(owner_acquire(a, 1000, 700), RLOCK_OK);
    assert_int_equal(owner_acquire(b, 20000, 1000), RLOCK_OK);
    assert_in_range(waited_ms(b, RLOCK_ACQUIRED, start_us), 690, 7000);
    assert_int_equal(a->seen[RLOCK_LOST], 1);
}

/* Of two fair locks that are asked for in one statement the second one's row is waited for. What
 * comes to stand there meanwhile counts, though the statement has read before. */
static void what_was_committed_while_a_statement_waited_is_seen(void **state) {
    rlock_client *of = patient(10000);
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
        rlock_client *of = patient(10000);
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
    rlock_client *one = patient(10000);
    rlock_client *other = patient(10000);
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

/* One statement has made a row that was not there, and waits for another one. */
static void key_beside_one_that_is_waited_for_is_free(void **state) {
    rlock_client *of = patient(10000);
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

/* --- memory --- */

static char long_x[RLOCK__MY_KEY_MAX + 1], long_y[RLOCK__MY_KEY_MAX + 1];

/* Its statement has to grow for the last of the keys, y. */
static struct owner *wishful(rlock_client *of) {
    const char *keys[3] = {long_y, long_x, "b"};
    rlock_options options;
    memset(long_x, 'x', sizeof long_x - 1);
    memset(long_y, 'y', sizeof long_y - 1);
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 3;
    return owner_with(of, &options);
}

static bool wishful_is_held(void) {
    return held("b") && held(long_x) && held(long_y);
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        FAULTS,
        TEST(crowd_of_waiters_costs_no_hold),
        FAULTS_SQL,
        TEST(session_that_does_not_end_leaves_nothing_sure),
        TEST(session_that_may_not_be_ended_leaves_nothing_sure),
        TEST(server_that_is_another_one_leaves_nothing_sure),
        TEST(answer_that_came_while_the_process_slept_is_read),
        TEST(client_is_freed_at_once_while_the_server_is_stopped),
        TEST(client_is_freed_in_the_middle_of_anything),
        TEST(locked_row_is_waited_for_no_longer_than_a_command),
        TEST(server_that_becomes_read_only_is_left_and_tried_again),
        TEST(renewal_for_less_waits_for_the_replica_too),
        TEST(query_that_is_killed_while_it_waits_for_the_replica_counts),
        TEST(server_that_is_full_is_tried_again),
        TEST(database_without_the_functions_is_reported),
        TEST(file_is_refused_by_a_server_with_small_pages),
        TEST(setting_of_the_server_is_not_taken_for_another_version),
        TEST(table_that_is_missing_is_reported),
        TEST(database_and_account_that_do_not_exist_are_reported),
        TEST(wrong_password_is_reported_and_not_shown),
        TEST(password_of_an_account_may_change_while_it_holds),
        TEST(secret_that_the_server_repeats_is_shown_nowhere),
        TEST(account_without_the_right_is_reported),
        TEST(url_that_is_wrong_is_refused_without_its_password),
        TEST(address_that_says_nothing_is_given_up),
        TEST(token_of_another_is_neither_renewed_nor_released_nor_shortened),
        TEST(what_is_reported_as_held_is_written_though_nothing_changes),
        TEST(keys_of_which_one_was_lost_are_released),
        TEST(fences_rise_by_the_row_where_the_clock_is_behind),
        TEST(hold_that_has_ended_makes_room_for_the_next_one),
        TEST(number_of_permits_keeps_other_kinds_away_for_a_day_of_use),
        TEST(mutex_does_not_take_a_key_whose_queued_hold_was_renewed),
        TEST(queue_keeps_who_is_asked_for_and_the_others_of_its_client),
        TEST(waiter_that_wants_more_than_there_is_blocks_no_other),
        TEST(waiter_is_notified_of_the_first_end_and_a_question_of_the_last),
        TEST(locked_row_refuses_who_waits_for_it_and_no_other_one),
        TEST(time_zone_of_the_server_changes_nothing),
        TEST(waiter_asks_when_the_lease_of_the_holder_ends),
        TEST(what_was_committed_while_a_statement_waited_is_seen),
        TEST(statements_never_wait_for_each_other_in_a_circle),
        TEST(several_keys_and_others_never_wait_in_a_circle),
        TEST(key_beside_one_that_is_waited_for_is_free),
        TEST(forked_child_says_no_farewell),
        TEST(documented_query_shows_who_holds_a_mutex),
        TEST(no_call_of_the_loop_has_blocked),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("mariadb", tests, engine_begins, engine_ends);
}
