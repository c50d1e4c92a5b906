/* postgres.c - locks in PostgreSQL: what goes wrong with the server, the network, and the set-up
 *
 * What every store must do is in tests/engines/postgres_suite.c.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "measured.h"

#define malloc wish_malloc
#define calloc wish_calloc
#include "../../stores/rlock_postgres.h"
#undef malloc
#undef calloc

#include "postgres_kit.h"

#include "clients.h"
#include "faults.h"

#define TABLE "rlock.keys"
#define COLUMN "key"
#define MEMBERS "rlock.members"
#define SWEEP "SELECT rlock.sweep()"
#define SWEEP_ALL "DO $$ BEGIN WHILE rlock.sweep() > 0 LOOP COMMIT; END LOOP; END $$"
#define A_DAY_PASSES "UPDATE rlock.keys SET used = used - interval '25 hours'"
#define DOCUMENT "docs/postgresql.md"
#define SESSION_ENDED "terminating connection"
#define VERSION_IS(text)                                                                \
    "CREATE OR REPLACE FUNCTION rlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS " \
    "'SELECT " text "'"
#define REVISION_IS(text)                                                                \
    "CREATE OR REPLACE FUNCTION rlock.revision() RETURNS int LANGUAGE sql IMMUTABLE AS " \
    "'SELECT " text "'"
#define NO_REVISION "DROP FUNCTION rlock.revision()"
#define LAST_MS                                                                 \
    "SELECT ceil(extract(epoch FROM max(ends) - " NOW ") * 1000)::bigint FROM " \
    "(SELECT ends FROM rlock.keys UNION ALL SELECT ends FROM rlock.members) of_all"
#define VERSION_FAILS(text)                                                                \
    "CREATE OR REPLACE FUNCTION rlock.version() RETURNS int LANGUAGE plpgsql AS $$ BEGIN " \
    "RAISE EXCEPTION USING MESSAGE = $words$" text "$words$; END $$"
#include "faults_sql.h"

static int installs(void) {
    return postgres_installs(&g.server, "stores/rlock_postgres.sql");
}

static void clock_is_set_back(void) {
    sql("UPDATE rlock.keys SET ends = ends + interval '1 hour'; "
        "UPDATE rlock.members SET ends = ends + interval '1 hour'");
}

static void a_minute_passes(void) {
    sql("UPDATE rlock.keys SET ends = ends - interval '1 min'; "
        "UPDATE rlock.members SET ends = ends - interval '1 min'");
}

static void writes_named(char *url, const char *host) {
    snprintf(url, 256, "postgres://me@%s:%d/postgres", host, g.server.port);
}

static void refuses_k17(const char *words) {
    char text[400];
    snprintf(text, sizeof text,
             "CREATE OR REPLACE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS "
             "$$ BEGIN RAISE EXCEPTION '%s'; END $$",
             words);
    sql(text);
    sql("CREATE TRIGGER refuses BEFORE INSERT OR UPDATE ON rlock.keys FOR EACH ROW WHEN (NEW.key = "
        "'k17') EXECUTE FUNCTION refuses()");
}

/* A role of its own, whose password nobody asks for. */
static const char *careful_url(const char *password, int port) {
    static char url[160];
    sql("DO $$ BEGIN CREATE ROLE cautious LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END "
        "$$; GRANT rlock_user TO cautious");
    snprintf(url, sizeof url, "postgres://cautious:%s@127.0.0.1:%d/postgres?sslmode=disable",
             password, port);
    return url;
}

/* ErrorResponse: https://www.postgresql.org/docs/current/protocol-error-fields.html */
static size_t says_no(char *bytes, const char *words) {
    static const char head[] = "SFATAL\0VFATAL\0C28000\0M";
    size_t len = sizeof head - 1 + strlen(words) + 2;
    memset(bytes, 0, 5 + len);
    bytes[0] = 'E';
    bytes[3] = (char)((len + 4) >> 8);
    bytes[4] = (char)(len + 4);
    memcpy(bytes + 5, head, sizeof head - 1);
    memcpy(bytes + 5 + sizeof head - 1, words, strlen(words));
    return 5 + len;
}

static void makes_rows(int count) {
    sql("INSERT INTO rlock.keys (key) SELECT ('k' || i)::bytea FROM generate_series(1, %d) i",
        count);
}

static void runs_apart(const char *text) {
    PGconn *hand = PQconnectdb(g.server.url);
    PGresult *result = PQexec(hand, text);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) {
        fprintf(stderr, "%s", PQresultErrorMessage(result));
        _exit(1);
    }
}

static void dead_one_waits(void) {
    sql("INSERT INTO rlock.keys (key) VALUES ('k')");
    sql("INSERT INTO rlock.members (key, token, sort, weight, stays) "
        "VALUES ('k', 'dead:1', 'f', 1, clock_timestamp() - interval '1 s')");
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

/* The acquire waits for a row, and its session is stopped there: it does not end when it is told.
 * So nobody knows whether it goes on. */
static void session_that_does_not_end_leaves_nothing_sure(void **state) {
    rlock_client *of = patient(2000);
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

/* --- the server --- */

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
    any = client_of(url); /* it is not connected to again and again as if it served */
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

/* Runs the file as a role in a database. */
static int installed_by(const char *role, const char *database) {
    struct server as = g.server;
    snprintf(as.url, sizeof as.url, "postgres://%s@127.0.0.1:%d/%s", role, g.server.port, database);
    return postgres_installs(&as, "stores/rlock_postgres.sql");
}

/* The administrator runs statements in a database. */
static void sql_in(const char *database, const char *text) {
    char url[160];
    PGconn *hand;
    PGresult *result;
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d/%s", g.server.port, database);
    hand = PQconnectdb(url);
    result = PQexec(hand, text);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    PQfinish(hand);
}

/* Each has a name that stands for another role where it is not quoted: 10 is the number of the
 * administrator. */
static void role_of_any_name_installs_and_uses_nothing_of_another_one(void **state) {
    static const char *const roles[][2] = {
        {"Deploy", "deploy"}, {"first.last", "last"}, {"10", "me"}};
    char url[160], text[200];
    struct owner *o;
    size_t i;
    (void)state;
    sql("CREATE ROLE deploy; CREATE ROLE last");
    for (i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        const char *role = roles[i][0];
        sql("CREATE ROLE \"%s\" LOGIN", role);
        sql("CREATE DATABASE named OWNER \"%s\"", role);
        assert_int_equal(installed_by(role, "named"), 0);
        assert_int_equal(installed_by(role, "named"), 0);
        snprintf(url, sizeof url, "postgres://%s@127.0.0.1:%d/named", role, g.server.port);
        o = owner_new(client_of(url), "k");
        assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
        clients_end();
        sql_in("named",
               "CREATE FUNCTION rlock.changed(text) RETURNS int LANGUAGE sql AS 'SELECT 1'");
        assert_int_equal(installed_by(role, "named"), -1);
        snprintf(text, sizeof text,
                 "DROP SCHEMA rlock CASCADE; CREATE SCHEMA rlock AUTHORIZATION %s; "
                 "GRANT ALL ON SCHEMA rlock TO \"%s\"",
                 roles[i][1], role);
        sql_in("named", text);
        assert_int_equal(installed_by(role, "named"), -1);
        sql("DROP DATABASE named WITH (FORCE)");
    }
}

static void database_without_the_functions_is_reported(void **state) {
    char url[160];
    struct owner *o;
    (void)state;
    sql("CREATE DATABASE empty");
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d/empty", g.server.port);
    o = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED],
                        "rlock_postgres.sql is not installed in this database");
}

static void database_and_role_that_do_not_exist_are_reported(void **state) {
    char url[160];
    struct owner *o;
    (void)state;
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d/nowhere", g.server.port);
    o = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "database \"nowhere\" does not exist");
    snprintf(url, sizeof url, "postgres://nobody@127.0.0.1:%d/postgres", g.server.port);
    o = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "role \"nobody\" does not exist");
}

static void wrong_password_is_reported_and_not_shown(void **state) {
    char url[160];
    struct owner *o;
    (void)state;
    sql("CREATE ROLE careful LOGIN PASSWORD 'right'; GRANT rlock_user TO careful");
    snprintf(url, sizeof url, "postgres://careful:wr0ng@127.0.0.1:%d/postgres?application_name=x",
             g.server.port);
    o = owner_new(client_for(url, 2000), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "password authentication failed"));
    assert_null(strstr(kit_log_text, "wr0ng"));
    snprintf(url, sizeof url, "postgres://careful:right@127.0.0.1:%d/postgres", g.server.port);
    o = owner_new(client_for(url, 2000), "k");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK); /* rlock_user is all that it needs */
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void careful_changes(const char *password) {
    char text[100];
    snprintf(text, sizeof text, "ALTER ROLE careful PASSWORD '%s'", password);
    sql(text);
}

static void password_of_a_role_may_change_while_it_holds(void **state) {
    char url[160];
    (void)state;
    sql("DO $$ BEGIN CREATE ROLE careful LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END "
        "$$; GRANT rlock_user TO careful");
    careful_changes("first");
    snprintf(url, sizeof url, "postgres://careful:first@127.0.0.1:%d/postgres", g.server.port);
    credentials_change(url, careful_changes, engine.ends_sessions);
}

/* libpq finds it where no URL says it. */
static void password_of_the_environment_is_hidden_too(void **state) {
    int port, door = silent_door(&port);
    pid_t pid = door_that_says_no(door);
    char url[160];
    (void)state;
    setenv("PGPASSWORD", SECRET, 1);
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d/shop?sslmode=disable", port);
    secret_is_nowhere(url);
    unsetenv("PGPASSWORD");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(door);
}

static void role_without_the_right_is_reported(void **state) {
    char url[160];
    struct owner *o;
    (void)state;
    sql("CREATE ROLE stranger LOGIN");
    snprintf(url, sizeof url, "postgres://stranger@127.0.0.1:%d/postgres", g.server.port);
    o = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "permission denied"));
}

static void url_that_is_wrong_is_refused_without_its_password(void **state) {
    static const char many[] = "postgres://me:s3cret@1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17/db";
    char long_port[800];
    const char *const wrong[] = {"postgres://me:s3cret@127.0.0.1:port/db",
                                 "postgres://me:s3cret%zz@h/db",
                                 "postgres://me:s3cret@h/db?nonsense=1",
                                 "postgres://h/db?password=a&s3cret",
                                 "postgres://h/db?password=a&s3cret=b",
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
            made.stores[made.store_count++] = store;
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
    assert_int_equal(rlock_postgres_new(&made.stores[0], NULL, 0), RLOCK_ERR_ARG);
    assert_int_equal(rlock_postgres_new(&made.stores[0], "x", 8), RLOCK_ERR_ARG);
    rlock_postgres_free(NULL);
}

static void name_is_resolved_and_each_host_is_tried(void **state) {
    char url[200];
    struct owner *o;
    int port, door = silent_door(&port);
    int64_t start_us = kit_now_us();
    (void)state;
    snprintf(url, sizeof url, "postgres://me@localhost:%d/postgres", g.server.port);
    o = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:1,localhost:%d/postgres", g.server.port);
    o = owner_new(client_of(url), "k"); /* nobody listens at the first */
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d,127.0.0.1:%d/postgres", port,
             g.server.port);
    start_us = kit_now_us();
    o = owner_new(client_of(url), "k"); /* the first one says nothing */
    assert_int_equal(owner_acquire(o, 10 * TIMEOUT_MS, 1000), RLOCK_OK);
    assert_in_range(waited_ms(o, RLOCK_ACQUIRED, start_us), TIMEOUT_MS / 2, 10 * TIMEOUT_MS);
    close(door);
}

/* Before it, after it, and while it has not been answered since an attempt before. */
static void name_that_is_not_answered_hides_no_other_host(void **state) {
    static const char *const urls[] = {"postgres://me@two.example:%d,127.0.0.1:%d/postgres",
                                       "postgres://me@127.0.0.1:%d,two.example:%d/postgres"};
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        char url[200];
        struct owner *o;
        rlock_client *of;
        snprintf(url, sizeof url, urls[i], g.server.port, g.server.port);
        of = client_that_resolves(url);
        o = owner_new(of, "k");
        assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
        engine.ends_sessions();
        assert_true(kit_until(kit_is_down, of, 2000));
        assert_true(kit_until(kit_is_up, of, TIMEOUT_MS * 5));
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
}

/* PGHOSTADDR stands where a URL has no host, and PGSERVICE is refused: libpq would read a file at
 * each connection. */
static void environment_does_not_lead_elsewhere_than_the_url(void **state) {
    char url[200];
    struct owner *o;
    (void)state;
    snprintf(url, sizeof url, "host=%s port=%d user=me dbname=postgres", g.server.dir,
             g.server.port);
    setenv("PGHOSTADDR", "127.0.0.2", 1); /* nobody listens */
    o = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    setenv("PGHOSTADDR", "127.0.0.1", 1);
    snprintf(url, sizeof url, "postgres:///postgres?user=me&port=%d", g.server.port);
    o = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    unsetenv("PGHOSTADDR");
    setenv("PGSERVICE", "shop", 1);
    url_is_refused(g.server.url, "PGSERVICE is set");
    unsetenv("PGSERVICE");
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
        {"renew('k', 'x:1', 20, 60000)", "0"},
        {"renew('k', 'x:1', 0, 20)", "0"}, /* it only looks */
        {"acquire('k', 'x:1', 20, 1, false)", "0"},
        {"acquire_all('{a,b}', 'x:1', 60000, 1, false)", "0"},
        {"renew_all('{a,b}', 'y:1', 600000)", "3"},
        {"release_all('{a,b}', 'y:1')", "3"},
        {"release_all('{b,c}', 'y:1')", "3"}, /* of one of them */
        {"renew_all('{b,c}', 'x:1', 600000)", "2"},
        {"renew_all('{a,b}', 'x:1', 20)", "0"},
        {"renew_all('{a,b}', 'x:1', 20, 60000)", "0"},
        {"renew_all('{a,b}', 'x:1', 0, 20)", "0"},
        {"acquire_all('{a,b}', 'x:1', 20, 1, false)", "0"},
        {"acquire_queued('q', 'x:1', 60000, 1, true, 'f', 1, 1, '', 1000)", "0"},
        {"renew_queued('q', 'y:1', 600000, 'f', 1, 1)", "3"},
        {"release_queued('q', 'y:1', 'f', 1, 1, 1000, '')", "3"},
        {"renew_queued('q', 'x:1', 20, 'f', 1, 1)", "0"},
        {"renew_queued('q', 'x:1', 20, 60000, 'f', 1, 1)", "0"},
        {"renew_queued('q', 'x:1', 0, 20, 'f', 1, 1)", "0"},
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

/* The planner believes that there is nothing to read. */
static void rows_are_found_by_the_index_though_vacuum_saw_no_rows(void **state) {
    static const char *const calls[] = {
        "acquire('k', 'x:1', 60000, 1, true)",
        "acquire('k', 'y:1', 60000, 1, true)",
        "renew('k', 'x:1', 60000, 60000)",
        "inspect('k', 'x:1', 'm', 1)",
        "release('k', 'x:1')",
        "acquire_all('{a,b}', 'x:1', 60000, 1, false)",
        "renew_all('{a,b}', 'x:1', 60000, 60000)",
        "release_all('{a,b}', 'x:1')",
        "acquire_queued('q', 'x:1', 60000, 1, true, 's', 2, 2, '', 1000)",
        "acquire_queued('q', 'y:1', 60000, 1, false, 's', 2, 1, '', 1000)",
        "renew_queued('q', 'x:1', 60000, 60000, 's', 2, 2)",
        "inspect('q', 'y:1', 's', 2)",
        "set_permits('q', 's', 2, 3, 1000)",
        "release_queued('q', 'x:1', 's', 2, 2, 1000, '')",
        "force('q', 's', 2, 1000)",
    };
    size_t i;
    (void)state;
    sql("VACUUM ANALYZE rlock.keys");
    sql("VACUUM ANALYZE rlock.members");
    PQreset(g.hand); /* a session that has planned nothing yet */
    sql("BEGIN");
    for (i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        sql("SELECT * FROM rlock.%s", calls[i]);
        if (atoi(sql("SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE schemaname = "
                     "'rlock'")) != 0) {
            fail_msg("%s reads a whole table", calls[i]);
        }
    }
    assert_true(atoi(sql("SELECT sum(idx_scan) FROM pg_stat_xact_user_tables WHERE schemaname = "
                         "'rlock'")) > 20);
    sql("COMMIT");
}

/* A scan of a bitmap is one of the index to those that count: so the settings are looked at. */
static void each_function_of_the_user_has_both_settings_that_make_it_use_the_index(void **state) {
    const char *without =
        sql("SELECT string_agg(p.oid::regprocedure::text, ', ') FROM pg_proc p WHERE pronamespace "
            "= 'rlock'::regnamespace AND prosecdef AND NOT coalesce(proconfig @> "
            "'{enable_seqscan=off,enable_bitmapscan=off}', false)");
    (void)state;
    if (without[0] != 0) {
        fail_msg("without one of the settings: %s", without);
    }
    assert_true(atoi(sql("SELECT count(*) FROM pg_proc WHERE pronamespace = "
                         "'rlock'::regnamespace AND prosecdef")) > 10);
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

/* The two keys have one channel, which is listened to already when the second one is waited for. */
static void waiter_of_another_key_of_the_same_channel_is_notified_too(void **state) {
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

static rlock_client *pooled(void) {
    rlock_store *store = NULL;
    assert_int_equal(rlock_postgres_new(&store, g.server.url, RLOCK_POSTGRES_POOLER), RLOCK_OK);
    return client_on(store, TIMEOUT_MS, 0);
}

static void behind_a_pooler_waiters_poll(void **state) {
    rlock_client *of = pooled();
    struct owner *a = owner_new(of, "k"), *b = owner_new(pooled(), "k");
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

/* As auto_explain gives them, or a queue of notifications that is half full: of a statement, and of
 * the commit. */
static void warning_of_something_else_undoes_nothing(void **state) {
    struct owner *o = owner_new(client(), "k");
    (void)state;
    sql("CREATE OR REPLACE FUNCTION warns() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE WARNING 'duration: 17 ms'; RETURN NEW; END $$");
    sql("CREATE TRIGGER warns BEFORE UPDATE ON rlock.keys FOR EACH ROW EXECUTE FUNCTION warns()");
    sql("CREATE CONSTRAINT TRIGGER warns_late AFTER UPDATE ON rlock.keys DEFERRABLE INITIALLY "
        "DEFERRED FOR EACH ROW EXECUTE FUNCTION warns()");
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    sql("DROP FUNCTION warns CASCADE");
}

/* Somebody's transaction has the row of one key. */
static void locked_row_refuses_who_waits_for_it_and_no_other_one(void **state) {
    static const char *const keys[] = {"a", "b", "c"};
    rlock_client *of = patient(2000);
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
        clients[i] = patient(5000);
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

/* Nobody reads the answer any more: the server does not end for that. */
/* The server would look whether its client is there 1 s after a statement began, this one or one
 * before: that is while these two releases last. */
static void farewell_that_takes_long_is_executed_all_the_same(void **state) {
    rlock_client *of = patient(2000);
    int tries = 0;
    (void)state;
    assert_int_equal(owner_acquire(owner_new(of, "k"), 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(owner_new(of, "l"), 1000, 60000), RLOCK_OK);
    sql("CREATE OR REPLACE FUNCTION dawdles() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.7); RETURN NEW; END $$");
    sql("CREATE TRIGGER dawdles BEFORE UPDATE ON rlock.keys FOR EACH ROW EXECUTE FUNCTION "
        "dawdles()");
    kit_reset();
    while ((held("k") || held("l")) && tries++ < 500) {
        server_sleep_ms(10);
    }
    assert_false(held("k") || held("l"));
}

/* --- memory --- */

static struct owner *wishful(rlock_client *of) {
    static const char *const keys[] = {"a", "b"};
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 2;
    return owner_with(of, &options);
}

static bool wishful_is_held(void) {
    return held("a") && held("b");
}

static int group_begins(void **state) {
    return engine_begins(state) == 0 ? /* all others are trusted */
               postgres_rules(&g.server, "host all careful 127.0.0.1/32 scram-sha-256")
                                     : -1;
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        FAULTS,
        TEST(crowd_of_waiters_costs_no_hold),
        TEST(nothing_is_left_whenever_a_client_is_freed),
        FAULTS_TOLD,
        FAULTS_SQL,
        TEST(session_that_does_not_end_leaves_nothing_sure),
        TEST(locked_table_is_waited_for_no_longer_than_a_command),
        TEST(server_that_becomes_read_only_is_left_and_tried_again),
        TEST(waiter_that_is_too_heavy_for_the_permits_rests),
        TEST(server_that_is_full_is_tried_again),
        TEST(role_of_any_name_installs_and_uses_nothing_of_another_one),
        TEST(database_without_the_functions_is_reported),
        TEST(database_and_role_that_do_not_exist_are_reported),
        TEST(wrong_password_is_reported_and_not_shown),
        TEST(password_of_a_role_may_change_while_it_holds),
        TEST(secret_that_the_server_repeats_is_shown_nowhere),
        TEST(password_of_the_environment_is_hidden_too),
        TEST(role_without_the_right_is_reported),
        TEST(url_that_is_wrong_is_refused_without_its_password),
        TEST(name_is_resolved_and_each_host_is_tried),
        TEST(name_that_is_not_answered_hides_no_other_host),
        TEST(environment_does_not_lead_elsewhere_than_the_url),
        TEST(token_of_another_is_neither_renewed_nor_released_nor_shortened),
        TEST(rows_are_found_by_the_index_though_vacuum_saw_no_rows),
        TEST(each_function_of_the_user_has_both_settings_that_make_it_use_the_index),
        TEST(fences_rise_by_the_row_where_the_clock_is_behind),
        TEST(release_notifies_where_somebody_waits_alone),
        TEST(waiter_of_another_key_of_the_same_channel_is_notified_too),
        TEST(behind_a_pooler_waiters_poll),
        TEST(error_of_the_commit_is_unknown_and_cleaned_up),
        TEST(warning_of_something_else_undoes_nothing),
        TEST(locked_row_refuses_who_waits_for_it_and_no_other_one),
        TEST(rows_are_locked_in_one_order),
        TEST(farewell_that_takes_long_is_executed_all_the_same),
        TEST(documented_query_shows_who_holds_a_mutex),
        TEST(no_call_of_the_loop_has_blocked),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("postgres", tests, group_begins, engine_ends);
}
