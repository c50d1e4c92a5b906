/* faults_sql.h - what goes wrong: the tests that are the same on each engine with SQL
 *
 * Included after faults.h and these words of the engine: TABLE and COLUMN, where keys are and what
 * names them; NOW; SWEEP, a query; SWEEP_ALL, a statement; A_DAY_PASSES, a statement; DOCUMENT;
 * FILE_OF_SQL; SESSION_ENDED, what a client logs; VERSION_IS(text), REVISION_IS(text) and
 * NO_REVISION, statements; LAST_MS, a query: for how long the last of all holds is there.
 */

#ifndef TESTS_ENGINES_FAULTS_SQL_H
#define TESTS_ENGINES_FAULTS_SQL_H

#include "documented.h"

/* What each engine defines: an insert of the key k17 fails with the words "not this one"; a waiter
 * of the key k, which is free, stands in its queue, and its client died. */
static void refuses_k17(const char *words);
static const char *careful_url(const char *password, int port);
static size_t says_no(char *bytes, const char *words);
static void dead_one_waits(void);
static int installs(void);

/* By what the rows say, the server's clock is set back by an hour, and a minute passes. */
static void clock_is_set_back(void);
static void a_minute_passes(void);

/* So many keys, "k1" and so on, whose rows stand since the last test began. */
static void makes_rows(int count);

/* Runs a statement on a connection of its own. */
static void runs_apart(const char *text);

/* Writes 256 bytes: the URL by TCP of a server that has this name. */
static void writes_named(char *url, const char *host);

/* The server has the hold for longer than the holder believes. */
static void black_holed_holder_is_notified_by_its_deadline(void **state) {
    struct owner *o;
    int64_t start_us = kit_now_us(), cut_us;
    (void)state;
    made.drift_permille = 250; /* 375 ms: there is time to ask the server */
    o = renewed(proxied(), "k");
    assert_int_equal(owner_acquire(o, 1000, 1500), RLOCK_OK);
    kit_run(1000);
    cut_us = kit_now_us();
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_true(waited_ms(o, RLOCK_LOST, start_us) > 1500); /* it was renewed */
    assert_in_range(waited_ms(o, RLOCK_LOST, cut_us), 1, 1125 + LATE_MS);
    assert_true(held("k"));
    proxy->mode = PASS;
    assert_true(kit_until(key_is_free, (void *)(intptr_t) "k", 3000));
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

static void hold_whose_row_is_gone_is_reported_as_deleted(void **state) {
    struct owner *o = renewed(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 900), RLOCK_OK);
    sql("DELETE FROM " TABLE);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    assert_string_equal(o->text[RLOCK_LOST], "");
}

/* Somebody's long transaction keeps the row of a hold locked: its loss, and before that the log,
 * tell what the server says of it. Another hold is renewed all the while. */
static void hold_whose_row_is_locked_is_lost_with_the_text_of_the_server(void **state) {
    rlock_client *of = patient(600);
    struct owner *o = renewed(of, "k"), *other = renewed(of, "other");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 3000), RLOCK_OK);
    assert_int_equal(owner_acquire(other, 1000, 3000), RLOCK_OK);
    sql("BEGIN");
    sql("SELECT " COLUMN " FROM " TABLE " WHERE " COLUMN " = 'k' FOR UPDATE");
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    sql("ROLLBACK");
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_non_null(strstr(o->text[RLOCK_LOST], "time"));
    assert_non_null(strstr(kit_log_text, "a renewal is refused: "));
    assert_true(rlock_is_held(other->lock));
}

static void session_that_an_operator_ends_loses_no_hold(void **state) {
    rlock_client *of = patient(20000); /* no heartbeat comes before */
    struct owner *o = renewed(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    engine.ends_sessions();
    assert_true(kit_until(kit_is_down, of, 2000));
    assert_non_null(strstr(kit_log_text, SESSION_ENDED));
    assert_true(kit_until(kit_is_up, of, 2000));
    assert_int_equal(owner_release(o), RLOCK_OK);
}

/* The account of the URL has the password "first"; `changes` gives it another one, `cuts` ends its
 * sessions. */
static void credentials_change(const char *url, void (*changes)(const char *password),
                               void (*cuts)(void)) {
    rlock_client *of = client_for(url, 20000);
    struct owner *o = renewed(of, "k"), *other = owner_new(of, "other");
    assert_int_equal(owner_acquire(o, 5000, 60000), RLOCK_OK);
    changes("second");
    assert_int_equal(rlock_client_set_credentials(of, NULL, "second"), RLOCK_OK);
    assert_int_equal(rlock_client_set_sentinel_credentials(of, NULL, "x"), RLOCK_ERR_ARG);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK); /* the session goes on */
    assert_int_equal(kit_stats(of).connects, 1);
    cuts();
    assert_true(kit_until(kit_is_down, of, 5000));
    assert_true(kit_until(kit_is_up, of, 5000));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    changes("third");
    cuts();
    assert_int_equal(owner_acquire(other, RLOCK_FOREVER, 60000), RLOCK_ERR_AUTH);
    assert_int_equal(rlock_client_set_credentials(of, NULL, "fourth"), RLOCK_OK);
    assert_int_equal(owner_acquire(other, RLOCK_FOREVER, 60000), RLOCK_ERR_AUTH);
    assert_int_equal(rlock_client_set_credentials(of, NULL, "third"), RLOCK_OK);
    assert_int_equal(owner_acquire(other, RLOCK_FOREVER, 60000), RLOCK_OK);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(kit_stats(of).lost, 0);
    assert_null(strstr(kit_log_text, "second"));
    assert_null(strstr(kit_log_text, "fourth"));
}

/* --- the set-up --- */

static void functions_of_another_version_are_reported(void **state) {
    struct owner *o = owner_new(client(), "k");
    (void)state;
    sql(VERSION_IS("2"));
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "another version"));
    sql(VERSION_IS("1"));
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
}

/* Their file has to be run again, and then the same client goes on. */
static void functions_that_are_older_are_reported(void **state) {
    static const char *const older[] = {REVISION_IS("1"), NO_REVISION};
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *o = owner_new(client(), "k");
        sql(older[i]);
        assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
        assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "older than this program: run the file"));
        assert_int_equal(installs(), 0);
        assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
}

#define SECRET "s3cret-of-the-shop"
#define REPEATED "no: \x1b[2J" SECRET "x\x07 '" SECRET "'\x7f" /* by a server */

static int secrets_told; /* reports with words */

static void report_has_no_secret(void *user, const rlock_report *report) {
    const char *texts[2] = {report->text, report->where};
    int i;
    (void)user;
    for (i = 0; i < 2; i++) {
        assert_true(texts[i] == NULL || strstr(texts[i], "s3cret") == NULL);
        assert_true(texts[i] == NULL || strpbrk(texts[i], "\x1b\x07\x7f\n") == NULL);
    }
    secrets_told += report->text != NULL && strstr(report->text, "***") != NULL;
}

/* Acquires k17 with a client of this URL, and reads all that is said of it. */
static void secret_is_nowhere(const char *url) {
    rlock_config config;
    rlock_store *store = NULL;
    struct owner *o;
    int told = secrets_told;
    assert_int_equal(engine.makes(&store, url), RLOCK_OK);
    memset(&config, 0, sizeof config);
    config.store = made.stores[made.store_count++] = store;
    config.loop = rlock_poll_loop(kit_poll);
    config.log = kit_log;
    config.on_event = report_has_no_secret;
    config.command_timeout_ms = 2000;
    kit_log_text[0] = 0;
    o = owner_new(kit_client(&config), "k17");
    assert_true(owner_acquire(o, 0, 1000) != RLOCK_OK);
    assert_true(owner_acquire(o, 300, 1000) != RLOCK_OK);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], " '***'\\"));
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "no: \\")); /* MariaDB writes \001B itself */
    assert_null(strpbrk(o->text[RLOCK_ACQUIRED], "\x1b\x07\x7f"));
    assert_null(strstr(o->text[RLOCK_ACQUIRED], "s3cret"));
    assert_null(strstr(kit_log_text, "s3cret"));
    assert_null(strpbrk(kit_log_text, "\x1b\x07\x7f"));
    assert_true(secrets_told > told);
}

/* Answers each that connects with an error, in a process of its own. */
static pid_t door_that_says_no(int door) {
    char said[512], heard[512];
    size_t len = says_no(said, REPEATED);
    pid_t pid = fork();
    while (pid == 0) {
        int fd = accept(door, NULL, NULL);
        if (said[0] != (char)0xff && said[4] != (char)0xff) { /* in PostgreSQL the client begins */
            (void)!read(fd, heard, sizeof heard);
        }
        (void)!write(fd, said, len);
        shutdown(fd, SHUT_WR);
        while (read(fd, heard, sizeof heard) > 0) {
        }
        close(fd);
    }
    return pid;
}

static void secret_that_the_server_repeats_is_shown_nowhere(void **state) {
    int port, door = silent_door(&port);
    pid_t pid = door_that_says_no(door);
    (void)state;
    secret_is_nowhere(careful_url(SECRET, port)); /* instead of a handshake */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(door);
    sql(VERSION_FAILS(REPEATED));
    secret_is_nowhere(careful_url(SECRET, g.server.port)); /* in the handshake */
    sql(VERSION_IS("1"));
    refuses_k17("no: \x1b[2J" SECRET "x\x07 ''" SECRET "''\x7f");
    secret_is_nowhere(careful_url(SECRET, g.server.port)); /* of a request */
}

static void functions_may_be_installed_again_while_locks_are_held(void **state) {
    rlock_client *of = client();
    struct owner *o = renewed(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_int_equal(installs(), 0);
    assert_true(held("k"));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(kit_stats(of).faults, 0);
}

static void documented_query_shows_who_holds_a_mutex(void **state) {
    const char *query = documented_query(DOCUMENT);
    struct owner *o = owner_new(client(), "k");
    (void)state;
    assert_string_equal(sql("%s", query), "");
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_string_equal(sql("%s", query), "k");
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_string_equal(sql("%s", query), "");
}

/* The name two.example stands for two addresses, by a resolver of the test's own. */
static struct {
    rlock_name *asked;
    struct sockaddr_in each[2];
    const struct sockaddr *both[2];
} two;

static int resolves_to_two(void *state, rlock_name *name, const char *host) {
    (void)state;
    assert_string_equal(host, "two.example");
    two.asked = name;
    return 0;
}

static int name_is_asked(void *unused) {
    (void)unused;
    return two.asked != NULL;
}

/* Answers the question for the name, when it comes. */
static void name_is_found(void) {
    rlock_name *name;
    assert_true(kit_until(name_is_asked, NULL, 3000));
    name = two.asked;
    two.asked = NULL;
    rlock_on_resolved_all(name, two.both, 2);
}

static rlock_client *client_that_resolves(const char *url) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    assert_int_equal(engine.makes(&made.stores[made.store_count], url), RLOCK_OK);
    config.store = made.stores[made.store_count++];
    config.loop = rlock_poll_loop(kit_poll);
    config.loop.resolve = resolves_to_two;
    config.log = kit_log;
    config.command_timeout_ms = 2000; /* half of it for an address that is silent */
    return kit_client(&config);
}

/* 127.0.0.x each. */
static rlock_client *client_of_two(int first, int second) {
    char url[256];
    int i;
    memset(&two, 0, sizeof two);
    for (i = 0; i < 2; i++) {
        two.each[i].sin_family = AF_INET;
        two.each[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (uint32_t)(i ? second : first));
        two.both[i] = (const struct sockaddr *)(const void *)&two.each[i];
    }
    writes_named(url, "two.example");
    return client_that_resolves(url);
}

/* Whether somebody connects there, which is taken. */
static int is_knocked_at(void *door) {
    int it = accept4(*(const int *)door, NULL, NULL, SOCK_NONBLOCK);
    if (it >= 0) {
        close(it);
    }
    return it >= 0;
}

/* The server is at 127.0.0.1, and nobody at 127.0.0.2, then one who says nothing. So one attempt
 * has to try both. */
static void first_address_of_two_that_fails_is_not_the_last_word(void **state) {
    int silent, port = g.server.port, door = -1;
    (void)state;
    for (silent = 0; silent < 2; silent++) {
        struct owner *o;
        door = silent ? door_at(2, port) : -1;
        o = owner_new(client_of_two(2, 1), "k");
        assert_int_equal(rlock_acquire(o->lock, 0, 1000, owner_told, o), RLOCK_OK);
        name_is_found();
        assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    close(door);
}

/* Else one that is good and slow, and is the first, would never have the time it needs. */
static void address_that_comes_first_is_another_one_at_each_attempt(void **state) {
    int doors[2], port = g.server.port, attempt;
    struct owner *o;
    (void)state;
    doors[0] = door_at(2, port);
    doors[1] = door_at(3, port);
    o = owner_new(client_of_two(2, 3), "k");
    assert_int_equal(rlock_acquire(o->lock, 30000, 1000, owner_told, o), RLOCK_OK);
    for (attempt = 0; attempt < 2; attempt++) {
        int *first = &doors[attempt], *second = &doors[!attempt];
        name_is_found();
        assert_true(kit_until(is_knocked_at, first, 5000));
        assert_false(is_knocked_at(second));
        assert_true(kit_until(is_knocked_at, second, 5000));
    }
    close(doors[0]);
    close(doors[1]);
}

/* --- the server's clock --- */

enum { LEASE_OF_MANY_MS = 3000 };

/* A hold each of one key, of two, and of a queue. */
static void holds_of_each_kind(rlock_client *of, int64_t lease_ms, struct owner *o[3]) {
    static const char *const keys[] = {"a", "b"};
    rlock_options options;
    int i;
    for (i = 0; i < 3; i++) {
        memset(&options, 0, sizeof options);
        options.key = i == 0 ? "k" : i == 2 ? "q" : NULL;
        options.keys = i == 1 ? keys : NULL;
        options.key_count = i == 1 ? 2 : 0;
        options.kind = i == 2 ? RLOCK_KIND_FAIR : RLOCK_KIND_MUTEX;
        options.watchdog = RLOCK_WATCHDOG_ON;
        o[i] = owner_with(of, &options);
        assert_int_equal(owner_acquire(o[i], 1000, lease_ms), RLOCK_OK);
    }
}

static int nothing_lasts_longer(void *unused) {
    (void)unused;
    return atol(sql(LAST_MS)) <= LEASE_OF_MANY_MS;
}

static void hold_that_grew_by_a_clock_set_back_is_cut_by_its_renewal(void **state) {
    rlock_client *of = patient(2000);
    struct owner *o[3];
    int i;
    (void)state;
    holds_of_each_kind(of, LEASE_OF_MANY_MS, o);
    clock_is_set_back();
    assert_true(atol(sql(LAST_MS)) > 3500000);
    assert_true(kit_until(nothing_lasts_longer, NULL, LEASE_OF_MANY_MS));
    for (i = 0; i < 3; i++) {
        assert_true(rlock_is_held(o[i]->lock));
    }
    assert_true(held("k") && held("a") && held("b") && held("q"));
}

/* After the two by hand of each. */
static int watchdog_has_renewed_each(void *of) {
    return kit_stats((const rlock_client *)of).renewed >= 3 * 3;
}

/* The watchdog's lease is the last one that was asked for; what an older request for a longer one
 * gave stays. */
static void longer_lease_by_hand_is_not_cut_by_the_watchdog(void **state) {
    rlock_client *of = patient(2000);
    struct owner *o[3];
    int i;
    (void)state;
    holds_of_each_kind(of, LEASE_OF_MANY_MS, o);
    for (i = 0; i < 3; i++) {
        assert_int_equal(owner_renew(o[i], 600000), RLOCK_OK);
        assert_int_equal(owner_renew(o[i], LEASE_OF_MANY_MS), RLOCK_OK);
    }
    assert_true(kit_until(watchdog_has_renewed_each, of, 5 * LEASE_OF_MANY_MS));
    a_minute_passes();
    assert_true(held("k") && held("a") && held("b") && held("q"));
    clock_is_set_back();
    for (i = 0; i < 3; i++) {
        assert_int_equal(owner_renew(o[i], 0), RLOCK_OK);
    }
    assert_in_range(atol(sql(LAST_MS)), 590000, 600000); /* the longest that was asked for */
}

/* --- rows --- */

static void rows_that_nobody_used_for_a_day_are_swept(void **state) {
    struct owner *o = owner_fenced(client(), "k");
    uint64_t before;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    before = o->fence[RLOCK_ACQUIRED];
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_string_equal(sql(SWEEP), "0");
    sql(A_DAY_PASSES);
    assert_string_equal(sql(SWEEP), "1");
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    assert_true(o->fence[RLOCK_ACQUIRED] > before);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    sql(A_DAY_PASSES);
    assert_string_equal(sql(SWEEP), "0"); /* it is held */
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
}

/* Runs what the document says that cron runs. */
static pid_t sweeps_all(void) {
    pid_t pid;
    assert_true(documented(DOCUMENT, SWEEP_ALL));
    pid = fork();
    if (pid == 0) {
        runs_apart(SWEEP_ALL);
        _exit(0);
    }
    return pid;
}

/* Whoever wants one of them, and waits for nothing. It is refused after a quarter of its timeout,
 * in which also a busy machine removes a thousand rows. */
static void many_rows_are_swept_and_nobody_is_held_up(void **state) {
    rlock_client *of = patient(8000);
    int status = -1, count = 0;
    pid_t pid;
    (void)state;
    assert_int_equal(owner_acquire(owner_new(of, "k"), 1000, 60000), RLOCK_OK); /* connected */
    makes_rows(30000);
    sql(A_DAY_PASSES);
    assert_string_equal(sql(SWEEP), "1000"); /* and locks no others */
    pid = sweeps_all();
    assert_true(pid > 0);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct owner *o;
        char key[16];
        snprintf(key, sizeof key, "k%d", 1 + count++ * 7919 % 30000);
        o = owner_new(of, key);
        assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK); /* once: at any time */
        kit_owner_count--;
        rlock_free(o->lock);
    }
    assert_int_equal(status, 0);
    assert_true(count > 5);
    assert_string_equal(sql(SWEEP), "0");
}

/* The rows of several keys are locked one after the other; one that is swept meanwhile is made
 * anew. */
static void keys_one_of_which_is_swept_are_all_held(void **state) {
    static const char *const keys[] = {"a", "b"};
    rlock_client *of = patient(5000);
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
    sql("DELETE FROM " TABLE " WHERE " COLUMN " = 'b'");
    assert_int_equal(rlock_acquire(o->lock, 5000, 60000, owner_told, o), RLOCK_OK);
    kit_run(200);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], o->taken[RLOCK_ACQUIRED]); /* it waits for the row */
    sql("COMMIT");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(held("a") && held("b"));
}

static void key_of_another_kind_is_left_alone(void **state) {
    rlock_client *of = client();
    struct owner *mutex = owner_new(of, "k"), *fair = queued(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(mutex, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(fair, 0, 1000), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(owner_renew(mutex, 0), RLOCK_OK);
    assert_int_equal(owner_release(mutex), RLOCK_OK);
    assert_int_equal(owner_acquire(fair, 1000, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(mutex, 0, 1000), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(owner_release(fair), RLOCK_OK);
}

static void waiters_whose_client_died_are_forgotten(void **state) {
    struct owner *o;
    rlock_options options;
    (void)state;
    dead_one_waits();
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = RLOCK_KIND_SEMAPHORE;
    options.permits = 1;
    o = owner_with(client(), &options);
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    assert_string_equal(sql("SELECT COUNT(*) FROM " MEMBERS), "1");
}

/* One request of many is refused: it alone. */
static void error_of_one_request_undoes_no_other_one(void **state) {
    enum { OWNERS = 40 };
    rlock_client *of = client();
    struct owner *o[OWNERS];
    char key[16];
    int i;
    (void)state;
    refuses_k17("not this one");
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
}

static void client_that_is_freed_lets_go_of_all(void **state) {
    enum { OWNERS = 200 };
    rlock_client *of = patient(5000); /* one statement releases all of them */
    char key[16];
    int i, tries = 0;
    (void)state;
    for (i = 0; i < OWNERS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(owner_acquire(owner_new(of, key), 1000, 60000), RLOCK_OK);
    }
    kit_reset();
    while (engine.left() != 0 && tries++ < 2000) { /* for less than a lease */
        server_sleep_ms(10);
    }
    assert_int_equal(engine.left(), 0);
}

#define FAULTS_SQL                                                                              \
    TEST(black_holed_holder_is_notified_by_its_deadline),                                       \
        TEST(server_that_falls_silent_is_left_though_nothing_is_asked),                         \
        TEST(connection_that_is_cut_loses_no_hold),                                             \
        TEST(hold_whose_row_is_gone_is_reported_as_deleted),                                    \
        TEST(hold_whose_row_is_locked_is_lost_with_the_text_of_the_server),                     \
        TEST(session_that_an_operator_ends_loses_no_hold),                                      \
        TEST(functions_of_another_version_are_reported),                                        \
        TEST(functions_that_are_older_are_reported),                                            \
        TEST(functions_may_be_installed_again_while_locks_are_held),                            \
        TEST(first_address_of_two_that_fails_is_not_the_last_word),                             \
        TEST(address_that_comes_first_is_another_one_at_each_attempt),                          \
        TEST(hold_that_grew_by_a_clock_set_back_is_cut_by_its_renewal),                         \
        TEST(longer_lease_by_hand_is_not_cut_by_the_watchdog),                                  \
        TEST(rows_that_nobody_used_for_a_day_are_swept),                                        \
        TEST(many_rows_are_swept_and_nobody_is_held_up),                                        \
        TEST(keys_one_of_which_is_swept_are_all_held), TEST(key_of_another_kind_is_left_alone), \
        TEST(waiters_whose_client_died_are_forgotten),                                          \
        TEST(error_of_one_request_undoes_no_other_one), TEST(client_that_is_freed_lets_go_of_all)

#endif
