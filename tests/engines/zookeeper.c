/* zookeeper.c - locks in ZooKeeper: what goes wrong with the server, the network, and the set-up
 *
 * What every store must do is in tests/engines/zookeeper_suite.c.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "measured.h"

#define ZOOKEEPER_TICK_MS 200
#define ZOOKEEPER_SESSION_MS 2000

#include <zookeeper/zookeeper.h>

static long lists; /* of children that were asked for */

static int lists_one(zhandle_t *zh, const char *path, int watch, strings_completion_t done,
                     const void *data) {
    lists++;
    return zoo_aget_children(zh, path, watch, done, data);
}

#define malloc wish_malloc
#define calloc wish_calloc
#define zoo_aget_children lists_one
#include "../../stores/rlock_zookeeper.h"
#undef malloc
#undef calloc
#undef zoo_aget_children

#include "zookeeper_kit.h"

#include "clients.h"
#include "faults.h"

static int line_is_empty(void *hex) {
    return line((const char *)hex) == 0;
}

static rlock_client *client_at(const char *hosts, int64_t timeout_ms) {
    char url[256];
    snprintf(url, sizeof url, "zookeeper://%s/t%d?session_ms=%d&tick_ms=%d", hosts, g.test,
             ZOOKEEPER_SESSION_MS, ZOOKEEPER_TICK_MS);
    return client_for(url, timeout_ms);
}

/* --- the network --- */

/* The library itself would wait for two thirds of the session, which are 2.6 s. */
static void silent_server_is_left_after_a_command_timeout(void **state) {
    rlock_client *one;
    struct owner *o;
    (void)state;
    one = proxied_for(150);
    o = owner_new(one, "k");
    assert_int_equal(owner_acquire(o, 5000, 3000), RLOCK_OK);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(rlock_renew(o->lock, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(kit_is_down, one, 2000));
}

/* The server ends the session two beats after the holder was told, at the earliest. */
static void black_holed_holder_is_notified_before_its_session_ends(void **state) {
    struct owner *o = renewed(proxied(), "k"), *w = owner_new(client(), "k");
    int64_t start_us;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 0, owner_told, w), RLOCK_OK);
    kit_run(ZOOKEEPER_SESSION_MS); /* it is renewed */
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    start_us = kit_now_us();
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_in_range(waited_ms(o, RLOCK_LOST, start_us), 1, LONGEST_MS + LATE_MS);
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 10000), RLOCK_OK);
}

/* The session goes on over a new connection, and with it the hold and what was watched. */
static void connection_that_is_cut_loses_no_hold_and_no_waiter(void **state) {
    rlock_client *of = proxied();
    struct owner *o = renewed(of, "k"), *a = renewed(client(), "other"),
                 *w = owner_new(of, "other");
    int i;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(a, 1000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 0, owner_told, w), RLOCK_OK);
    for (i = 0; i < 3; i++) {
        kit_run(100);
        proxy_cuts();
        assert_true(kit_until(kit_is_down, of, 2000));
        assert_true(kit_until(kit_is_up, of, 2000));
    }
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(kit_stats(of).lost, 0);
}

/* A node was made, and nobody was told: it is found by its token, and taken away. */
static void node_whose_reply_was_lost_is_cleaned_up(void **state) {
    rlock_client *of = proxied();
    struct owner *o = owner_new(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = SWALLOW_REPLIES;
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_UNKNOWN);
    proxy->mode = PASS;
    assert_true(kit_until(line_is_empty, (void *)(intptr_t) "6b", 5000));
    assert_true(kit_until(kit_is_clean, of, 5000));
}

/* The delete of a waiter that gave up is lost with its connection. It is sent again, or its node
 * would keep everybody out for as long as the session lasts. */
static void node_whose_deletion_was_lost_blocks_no_waiter(void **state) {
    rlock_client *of = proxied();
    struct owner *h = owner_new(client(), "k"), *o = owner_new(of, "k"), *short_one;
    (void)state;
    assert_int_equal(owner_acquire(h, 1000, 1500), RLOCK_OK);
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_BUSY); /* it is connected */
    proxy->mode = HOLD_BACK;
    assert_int_equal(rlock_acquire(o->lock, 0, 1000, owner_told, o), RLOCK_OK);
    kit_run(100);
    proxy_cuts();
    proxy->mode = PASS;
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_UNKNOWN);
    assert_int_equal(owner_release(h), RLOCK_OK);
    assert_true(kit_until(line_is_empty, (void *)(intptr_t) "6b", 5000));
    short_one = owner_new(of, "s"); /* likewise of a lease that ends while nothing gets through */
    assert_int_equal(owner_acquire(short_one, 2000, 300), RLOCK_OK);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_wait(short_one, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    kit_run(100);
    proxy_cuts();
    proxy->mode = PASS;
    assert_true(kit_until(line_is_empty, (void *)(intptr_t) "73", 5000));
}

/* Its key has no node yet, and it would be tried again with one. */
static void acquire_that_was_given_up_makes_no_node_later(void **state) {
    rlock_client *of = proxied();
    struct owner *first = owner_new(of, "first"), *o = queued(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(first, 1000, 1000), RLOCK_OK);
    proxy->mode = DELAY_50_MS; /* each way */
    assert_int_equal(owner_acquire(o, 60, 5000), RLOCK_ERR_UNKNOWN);
    assert_true(kit_until(kit_is_clean, of, 5000));
    proxy->mode = PASS;
    kit_run(300);
    assert_int_equal(line("6b"), 0);
}

/* --- the server --- */

static void client_is_freed_without_waiting_for_a_stopped_server(void **state) {
    struct owner *o = renewed(client(), "k");
    int64_t start_us;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    server_pause(&g.server);
    start_us = kit_now_us();
    call_begins();
    kit_reset();
    call_ends();
    assert_true(kit_now_us() - start_us < 500000);
    server_resume(&g.server);
    assert_true(kit_until(line_is_empty, (void *)(intptr_t) "6b", 10000));
}

/* Its sessions are forgotten: the client is told, and begins a new one. */
static void server_that_comes_back_without_its_data_is_reported(void **state) {
    char path[128];
    struct owner *o = renewed(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    server_kill9(&g.server);
    snprintf(path, sizeof path, "%s/data", g.server.dir);
    server_removes(path);
    assert_int_equal(zookeeper_continue(&g.server), 0);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 10000), RLOCK_ERR_LOST);
    assert_int_equal(owner_acquire(o, 10000, 0), RLOCK_OK);
}

static void server_that_is_not_there_is_reported_and_tried_again(void **state) {
    struct owner *o;
    (void)state;
    server_kill9(&g.server);
    o = owner_new(client(), "k");
    assert_int_equal(owner_acquire(o, 300, 1000), RLOCK_ERR_CONN);
    assert_int_equal(zookeeper_continue(&g.server), 0);
    assert_int_equal(owner_acquire(o, 10000, 1000), RLOCK_OK);
}

/* The servers count each session anew when they begin, also one that its client has given up. Its
 * node, whose reply was lost, ends with that. */
static void node_of_an_earlier_session_is_no_hold(void **state) {
    struct owner *o = renewed(proxied(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = SWALLOW_REPLIES;
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    kit_run(100);
    server_kill9(&g.server);
    proxy->mode = PASS;
    kit_run(ZOOKEEPER_SESSION_MS + 4 * ZOOKEEPER_TICK_MS);
    assert_int_equal(zookeeper_continue(&g.server), 0);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 10000), RLOCK_OK);
    kit_run(2 * ZOOKEEPER_SESSION_MS);
    assert_int_equal(o->seen[RLOCK_LOST], 0);
}

/* A server that was cut off answers reads for a while: they prove no session. Here the last proof
 * is made an old one; a beat may be answered meanwhile. */
static void lease_is_counted_from_a_beat(void **state) {
    rlock_client *one = client();
    struct owner *o = owner_new(one, "k");
    rlock__zk *zk = (rlock__zk *)one->store_state;
    int64_t lease_ms, base_us;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    do {
        int64_t timeout_us = zoo_recv_timeout(zk->zh) * (int64_t)1000;
        lease_ms = (timeout_us - 2 * rlock__zk_beat_us(zk)) / 1000;
        zk->base_us = rlock_client_now_us(one) - timeout_us + lease_ms * 750;
        base_us = zk->base_us;
        assert_int_equal(owner_renew(o, lease_ms), RLOCK_OK);
    } while (zk->base_us != base_us);
    assert_in_range(rlock_remaining_ms(o->lock), 1, lease_ms * 3 / 4);
}

static void client_that_held_rests_while_there_is_no_server(void **state) {
    struct owner *o = owner_new(client(), "k");
    clock_t begin;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 200), RLOCK_OK);
    server_kill9(&g.server);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    begin = clock();
    kit_run(2000);
    assert_true(clock() - begin < CLOCKS_PER_SEC); /* less than half of the time */
    assert_int_equal(zookeeper_continue(&g.server), 0);
}

static void hold_whose_node_is_gone_is_reported_at_once(void **state) {
    struct owner *o = renewed(client(), "k");
    char rest[256];
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    kit_run(100);
    assert_int_equal(line("6b"), 1);
    snprintf(rest, sizeof rest, "/6b/%s", zookeeper_hand.name);
    assert_int_equal(asked(ZOOKEEPER_DELETE, rest), ZOK);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 300), RLOCK_ERR_LOST); /* before a renewal is due */
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

/* The deletion went down with the connection, and the session goes on. */
static void node_of_a_lease_that_ended_unheard_goes(void **state) {
    struct owner *o = owner_new(proxied(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 200), RLOCK_OK);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    kit_run(ZOOKEEPER_SESSION_MS / 2);
    assert_int_equal(line("6b"), 1);
    proxy_cuts();
    proxy->mode = PASS;
    assert_true(kit_until(line_is_empty, (void *)(intptr_t) "6b", 1500));
}

/* Nobody's node but its own is deleted; what is not a lock's is no one in the line. */
static void what_is_not_ours_is_untouched(void **state) {
    struct owner *o = renewed(client(), "k");
    (void)state;
    assert_int_equal(asked(ZOOKEEPER_MAKE, ""), ZOK);
    assert_int_equal(asked(ZOOKEEPER_MAKE, "/6b"), ZOK);
    assert_int_equal(asked(ZOOKEEPER_MAKE, "/6b/a-note"), ZOK);
    assert_int_equal(asked(ZOOKEEPER_MAKE, "/6b/x:y:m1:12"), ZOK);
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(line("6b"), 2);
}

/* Somebody empties the whole tree, as an operator may; the next acquire makes it again. */
static void line_that_was_removed_is_made_again(void **state) {
    struct owner *o = renewed(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(asked(ZOOKEEPER_DELETE, "/6b"), ZOK);
    assert_int_equal(asked(ZOOKEEPER_DELETE, ""), ZOK);
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
}

/* --- the set-up --- */

static void password_keeps_others_out(void **state) {
    char url[256];
    struct owner *mine, *other;
    (void)state;
    snprintf(url, sizeof url, "zookeeper://me:s3cret@127.0.0.1:%d/t%d?session_ms=2000&tick_ms=200",
             g.server.port, g.test);
    mine = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(mine, 2000, 1000), RLOCK_OK);
    snprintf(url, sizeof url, "zookeeper://me:wr0ng@127.0.0.1:%d/t%d?session_ms=2000&tick_ms=200",
             g.server.port, g.test);
    other = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(other, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_int_equal(owner_acquire(owner_new(client(), "k"), RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_int_equal(owner_release(mine), RLOCK_OK);
    snprintf(url, sizeof url, "zookeeper://%%6de:s%%33cre%%74@127.0.0.1:%d/t%d?tick_ms=200",
             g.server.port, g.test);
    mine = owner_new(client_of(url), "k");
    assert_int_equal(owner_acquire(mine, 2000, 1000), RLOCK_OK);
    assert_null(strstr(kit_log_text, "s3cret"));
    assert_null(strstr(kit_log_text, "wr0ng"));
}

static int shown; /* reports with words */

static void report_has_no_password(void *user, const rlock_report *report) {
    (void)user;
    assert_true(report->text == NULL || strstr(report->text, "wr0ng") == NULL);
    assert_true(report->where == NULL || strstr(report->where, "wr0ng") == NULL);
    shown += report->text != NULL;
}

/* It is refused by a node of another user, and a host that is not found has its name too. */
static void wrong_password_is_shown_nowhere(void **state) {
    char urls[2][256];
    int i;
    (void)state;
    snprintf(urls[0], sizeof urls[0], "zookeeper://me:s3cret@127.0.0.1:%d/t%d?tick_ms=200",
             g.server.port, g.test);
    assert_int_equal(owner_acquire(owner_new(client_of(urls[0]), "k"), 2000, 1000), RLOCK_OK);
    snprintf(urls[0], sizeof urls[0], "zookeeper://me:wr0ng-one@127.0.0.1:%d/t%d?tick_ms=200",
             g.server.port, g.test);
    snprintf(urls[1], sizeof urls[1],
             "zookeeper://me:wr0ng-one@wr0ng-one.invalid:%d/t%d?tick_ms=200", g.server.port,
             g.test);
    for (i = 0; i < 2; i++) {
        rlock_config config;
        struct owner *o;
        memset(&config, 0, sizeof config);
        assert_int_equal(rlock_zookeeper_new(&made.stores[made.store_count], urls[i]), RLOCK_OK);
        config.store = made.stores[made.store_count++];
        config.loop = rlock_poll_loop(kit_poll);
        config.log = kit_log;
        config.on_event = report_has_no_password;
        config.command_timeout_ms = 2000;
        kit_log_text[0] = 0;
        shown = 0;
        o = owner_new(kit_client(&config), "k");
        assert_true(owner_acquire(o, 0, 1000) != RLOCK_OK);
        assert_non_null(o->text[RLOCK_ACQUIRED]);
        assert_null(strstr(o->text[RLOCK_ACQUIRED], "wr0ng"));
        assert_null(strstr(kit_log_text, "wr0ng"));
        assert_true(shown > 0);
    }
}

/* The session is taken up by a new handle of the library, which has to know the password too. */
static void connection_with_a_password_that_is_cut_loses_no_hold(void **state) {
    char url[256];
    struct owner *o;
    rlock_client *of;
    (void)state;
    snprintf(url, sizeof url, "zookeeper://me:s3cret@127.0.0.1:%d/t%d?session_ms=%d&tick_ms=%d",
             g.door, g.test, ZOOKEEPER_SESSION_MS, ZOOKEEPER_TICK_MS);
    of = client_of(url);
    o = renewed(of, "k");
    assert_int_equal(owner_acquire(o, 2000, 0), RLOCK_OK);
    proxy_cuts();
    assert_true(kit_until(kit_is_down, of, 2000));
    assert_true(kit_until(kit_is_up, of, 2000));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(kit_stats(of).lost, 0);
}

static void url_that_is_wrong_is_refused_without_its_password(void **state) {
    static const char *const wrong[] = {"zookeper://me:s3cret@h/x",
                                        "zookeeper://me:s3cret@/x",
                                        "zookeeper://s3cret@h/x",
                                        "zookeeper://me:s3cret/@h/x",
                                        "zookeeper://me:s3cret@@h/x",
                                        "zookeeper://me:s3cret%4@h/x",
                                        "zookeeper://me:s3cret%zz@h/x",
                                        "zookeeper://me:s3cret@h/x/",
                                        "zookeeper://me:s3cret@h/x//y",
                                        "zookeeper://me:s3cret@h/x?session_ms=0",
                                        "zookeeper://me:s3cret@h/x?session_ms=1000&tick_ms=201",
                                        "zookeeper://me:s3cret@h/x?tick_ms=9223372036854775807",
                                        "zookeeper://me:s3cret@h/x?session_ms=",
                                        "zookeeper://me:s3cret@h/x?session_ms=1000s",
                                        "zookeeper://me:s3cret@h/x?session=1000"};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        url_is_refused(wrong[i], "the URL of ZooKeeper is not valid: ");
        assert_true(i < 9 || strstr(kit_log_text, "session_ms") != NULL);
    }
    assert_int_equal(rlock_zookeeper_new(NULL, "x"), RLOCK_ERR_ARG);
    assert_int_equal(rlock_zookeeper_new(&made.stores[0], NULL), RLOCK_ERR_ARG);
    rlock_zookeeper_free(NULL);
}

/* Without waiting: the first ones refuse, or say nothing. Each client shuffles the list anew. */
static void each_host_is_tried_before_there_is_none(void **state) {
    enum { CLIENTS = 8, TIMEOUT = 2000 }; /* a quarter of it for each of four */
    char hosts[3][128];
    int port, door = silent_door(&port), i;
    (void)state;
    snprintf(hosts[0], sizeof hosts[0], "127.0.0.1:1,127.0.0.1:%d", g.server.port);
    snprintf(hosts[1], sizeof hosts[1], "127.0.0.1:%d,127.0.0.1:%d", port, g.server.port);
    snprintf(hosts[2], sizeof hosts[2], "127.0.0.1:1,127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:2", port,
             g.server.port);
    for (i = 0; i < 3 * CLIENTS; i++) {
        struct owner *o = owner_new(client_at(hosts[i % 3], TIMEOUT), "k");
        assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
        clients_end();
        engine.clears();
    }
    close(door);
}

static void name_is_resolved_and_each_host_is_tried(void **state) {
    char hosts[128];
    int port, door = silent_door(&port);
    struct owner *o;
    (void)state;
    snprintf(hosts, sizeof hosts, "localhost:%d", g.server.port);
    o = owner_new(client_at(hosts, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    snprintf(hosts, sizeof hosts, "127.0.0.1:1,localhost:%d", g.server.port);
    o = owner_new(client_at(hosts, TIMEOUT_MS), "k"); /* nobody listens at the first */
    assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    snprintf(hosts, sizeof hosts, "127.0.0.1:%d,127.0.0.1:%d", port, g.server.port);
    o = owner_new(client_at(hosts, TIMEOUT_MS), "k"); /* the first one says nothing */
    assert_int_equal(owner_acquire(o, 10000, 1000), RLOCK_OK);
    close(door);
    snprintf(hosts, sizeof hosts, "nowhere.invalid:%d", g.server.port);
    o = owner_new(client_at(hosts, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(o, 300, 1000), RLOCK_ERR_CONN);
}

static struct { int fd[2], count[2]; } doors;

static int doors_are_tried_thrice(void *nothing) {
    int i;
    (void)nothing;
    for (i = 0; i < 2; i++) {
        int fd = accept4(doors.fd[i], NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            doors.count[i]++;
            close(fd);
        }
    }
    return doors.count[0] >= 3 && doors.count[1] >= 3;
}

/* Of two servers that hang up libzookeeper itself would try one for ever, after the first round. */
static void servers_are_tried_in_turn_in_each_round(void **state) {
    char url[256];
    struct owner *o;
    int port[2], i;
    (void)state;
    memset(&doors, 0, sizeof doors);
    for (i = 0; i < 2; i++) {
        doors.fd[i] = silent_door(&port[i]);
        fcntl(doors.fd[i], F_SETFL, O_NONBLOCK);
    }
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d,127.0.0.1:%d/t%d?session_ms=40000", port[0],
             port[1], g.test);
    o = owner_new(client_of(url), "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(doors_are_tried_thrice, NULL, 20000));
    close(doors.fd[0]);
    close(doors.fd[1]);
}

static int (*resolves)(void *, rlock_name *, const char *);

static int resolves_but_one(void *its, rlock_name *name, const char *host) {
    return strcmp(host, "hangs.invalid") == 0 ? 0 : resolves(its, name, host);
}

/* The resolver never answers about the first name: the other hosts are asked for all the same, and
 * within the command timeout. A client that has no other name says that there is no server. */
static void name_that_hangs_hides_no_other_server(void **state) {
    enum { TIMEOUT = 2000 };
    rlock_config config;
    char url[256], other[32];
    int alone;
    (void)state;
    for (alone = 0; alone < 2; alone++) {
        struct owner *o;
        int64_t start_us = kit_now_us();
        rlock_store *store = NULL;
        memset(&config, 0, sizeof config);
        config.loop = rlock_poll_loop(kit_poll);
        resolves = config.loop.resolve;
        config.loop.resolve = resolves_but_one;
        config.log = kit_log;
        config.command_timeout_ms = TIMEOUT;
        snprintf(other, sizeof other, ",localhost:%d", g.server.port);
        snprintf(url, sizeof url, "zookeeper://hangs.invalid%s/t%d?session_ms=%d&tick_ms=%d",
                 alone ? "" : other, g.test, ZOOKEEPER_SESSION_MS, ZOOKEEPER_TICK_MS);
        assert_int_equal(engine.makes(&store, url), RLOCK_OK);
        made.stores[made.store_count++] = store;
        config.store = store;
        o = owner_new(kit_client(&config), "k");
        assert_int_equal(owner_acquire(o, 0, 1000), alone ? RLOCK_ERR_CONN : RLOCK_OK);
        assert_in_range(waited_ms(o, RLOCK_ACQUIRED, start_us), 0, 2 * TIMEOUT);
    }
}

/* --- what is told --- */

/* Each waiter of a mutex watches who holds, not another waiter that comes and goes. */
static void waiters_of_a_mutex_do_not_wake_each_other(void **state) {
    enum { WAITERS = 6 };
    struct owner *h = renewed(client(), "k"), *w[WAITERS];
    rlock_client *of[WAITERS];
    uint64_t before = 0, after = 0;
    int i;
    (void)state;
    assert_int_equal(owner_acquire(h, 1000, 0), RLOCK_OK);
    for (i = 0; i < WAITERS; i++) {
        of[i] = client();
        w[i] = owner_new(of[i], "k");
        assert_int_equal(rlock_acquire(w[i]->lock, RLOCK_FOREVER, 0, owner_told, w[i]), RLOCK_OK);
    }
    kit_run(1000);
    for (i = 0; i < WAITERS; i++) {
        before += kit_stats(of[i]).commands;
    }
    kit_run(1000);
    for (i = 0; i < WAITERS; i++) {
        after += kit_stats(of[i]).commands;
    }
    printf("# %d waiters sent %llu requests in a second\n", WAITERS,
           (unsigned long long)(after - before));
    assert_true(after - before < WAITERS * 20);
}

static int contended; /* grants */

static void contender_gives_way(rlock *lock, const rlock_event *event, void *user) {
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK) {
        contended++;
        rlock_release(lock, contender_gives_way, user);
    } else {
        rlock_acquire(lock, RLOCK_FOREVER, 0, contender_gives_way, user);
    }
}

static int contended_enough(void *grants) {
    return contended >= *(int *)grants;
}

/* Each race for a mutex that is lost watches who has won, whose name never comes back. */
static void watches_of_clients_that_contend_do_not_grow(void **state) {
    enum { CLIENTS = 3, GRANTS = 600 };
    int grants = GRANTS, i;
    long before, after;
    (void)state;
    contended = 0;
    for (i = 0; i < CLIENTS; i++) {
        struct owner *o = owner_new(client(), "k");
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, contender_gives_way, o),
                         RLOCK_OK);
    }
    before = zookeeper_watches(&g.server);
    assert_true(before >= 0);
    assert_true(kit_until(contended_enough, &grants, 60000));
    after = zookeeper_watches(&g.server);
    printf("# %ld watches after %d grants\n", after, contended);
    assert_in_range(after, 0, before + 8 * CLIENTS);
}

/* A waiter that goes is no holder that went: who is behind it is not first by that. */
static void waiter_behind_one_that_gives_up_waits_on(void **state) {
    rlock_client *of = client();
    struct owner *h = queued(client(), "k"), *a = queued(of, "k"), *b = queued(of, "k");
    (void)state;
    assert_int_equal(owner_acquire(h, 2000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(a->lock, RLOCK_FOREVER, 0, owner_told, a), RLOCK_OK);
    kit_run(100);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 0, owner_told, b), RLOCK_OK);
    kit_run(100);
    assert_int_equal(rlock_cancel(a->lock), RLOCK_OK);
    kit_run(300);
    assert_int_equal(b->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_release(h), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 2000), RLOCK_OK);
}

#ifndef CROWD
#define CROWD 2000
#endif
#define CROWD_TURN_US 25000 /* computed, with sanitizers; a list of a semaphore is read by each */

static struct {
    rlock *locks[CROWD];
    int served, lost;
    int out; /* the most requests that were out at a time */
    rlock__zk *zk;
} crowd;

static void crowd_counts(void) {
    crowd.out = crowd.zk->out > crowd.out ? crowd.zk->out : crowd.out;
}

static void crowd_goes(rlock *lock, const rlock_event *event, void *user) {
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK) {
        crowd.served++;
        assert_int_equal(rlock_release(lock, crowd_goes, user), RLOCK_OK);
    } else if (event->kind != RLOCK_RELEASED || event->status != RLOCK_OK) {
        crowd.lost++;
    }
}

/* All that was asked for is done. */
static int crowd_stands(void *of) {
    rlock__zk *zk = crowd.zk;
    (void)of;
    crowd_counts();
    return zk->up && zk->ops.next == &zk->ops && zk->requests.next == &zk->requests;
}

static struct owner *crowd_owner(rlock_client *of, rlock_kind kind) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = kind;
    options.permits = kind == RLOCK_KIND_SEMAPHORE;
    return owner_with(of, &options);
}

static int crowd_is_gone(void *count) {
    crowd_counts();
    return crowd.served + crowd.lost >= *(int *)count;
}

/* Thousands of waiters of one client in one line are served in the end, few at a time, and many by
 * one list of the children. Meanwhile their client loses its connection, and no hold of anybody is
 * lost, nor does a turn of the loop take long. */
static void crowd_is_served(rlock_kind kind, int count, const char *name) {
    rlock_client *of = proxied_for(2000);
    struct owner *h = crowd_owner(client(), kind), *mine = renewed(of, "mine");
    rlock_options options;
    int64_t begin_us = kit_now_us(), stand_us, back_us, before_us = longest_us;
    int i;
    longest_us = 0;
    memset(&crowd, 0, sizeof crowd);
    crowd.zk = (rlock__zk *)of->store_state;
    lists = 0;
    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = kind;
    options.permits = kind == RLOCK_KIND_SEMAPHORE;
    assert_int_equal(owner_acquire(mine, 2000, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(h, 2000, 0), RLOCK_OK);
    for (i = 0; i < count; i++) {
        assert_int_equal(rlock_new(&crowd.locks[i], of, &options), RLOCK_OK);
        assert_int_equal(rlock_acquire(crowd.locks[i], RLOCK_FOREVER, 0, crowd_goes, NULL),
                         RLOCK_OK);
    }
    assert_true(kit_until(crowd_stands, of, 120000));
    stand_us = kit_now_us();
    proxy_cuts();
    assert_true(kit_until(kit_is_down, of, 5000));
    assert_true(kit_until(kit_is_up, of, 5000));
    back_us = kit_now_us();
    assert_int_equal(owner_release(h), RLOCK_OK);
    assert_true(kit_until(crowd_is_gone, &count, 120000));
    printf("# %d waiters (%s) stood after %d ms and were served in %d ms, by %llu requests, "
           "%ld lists, %d at a time; the longest call computed for %.2f ms\n",
           count, name, (int)((stand_us - begin_us) / 1000), (int)((kit_now_us() - back_us) / 1000),
           (unsigned long long)kit_stats(of).commands, lists, crowd.out, (double)longest_us / 1000);
    assert_in_range(longest_us, 1, kind == RLOCK_KIND_FAIR ? CROWD_TURN_US : 4 * CROWD_TURN_US);
    longest_us = before_us > longest_us ? before_us : longest_us;
    assert_in_range(crowd.out, RLOCK__ZK_WINDOW / 2, RLOCK__ZK_WINDOW);
    assert_in_range(2 * lists, 1, count * (kind == RLOCK_KIND_FAIR ? 1 : 8));
    assert_int_equal(crowd.lost, 0);
    assert_int_equal(mine->seen[RLOCK_LOST], 0);
    assert_int_equal(h->seen[RLOCK_LOST], 0);
    assert_int_equal(owner_release(mine), RLOCK_OK);
    for (i = 0; i < count; i++) {
        rlock_free(crowd.locks[i]);
    }
}

static void crowd_of_waiters_is_served_and_harms_no_hold(void **state) {
    (void)state;
    crowd_is_served(RLOCK_KIND_FAIR, CROWD, "FAIR");
}

static void crowd_of_a_semaphore_is_served_and_harms_no_hold(void **state) {
    (void)state;
    crowd_is_served(RLOCK_KIND_SEMAPHORE, CROWD / 2, "SEMAPHORE");
}

static void lease_that_is_shorter_than_the_session_ends_in_time(void **state) {
    struct owner *o = owner_new(client(), "k"), *w = owner_new(client(), "k");
    int64_t start_us = kit_now_us();
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 300), RLOCK_OK);
    assert_int_equal(owner_acquire(w, 5000, 300), RLOCK_OK);
    /* the local deadline is a hundredth and 2 ms earlier, and from there on nobody claims it */
    assert_in_range(waited_ms(w, RLOCK_ACQUIRED, start_us), 295, ZOOKEEPER_SESSION_MS - 1);
    assert_int_equal(o->seen[RLOCK_LOST], 1);
}

static void lease_that_is_longer_than_the_session_is_the_sessions(void **state) {
    struct owner *o = owner_new(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK);
    assert_in_range(o->remaining_ms[RLOCK_ACQUIRED], LONGEST_MS / 2, LONGEST_MS);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST); /* nothing renews it */
    assert_true(kit_until(line_is_empty, (void *)(intptr_t) "6b", 2000));
}

static void client_that_is_freed_lets_go_of_all(void **state) {
    enum { OWNERS = 200 };
    rlock_client *of = client();
    char key[16];
    int i, left, tries = 0;
    (void)state;
    for (i = 0; i < OWNERS; i++) {
        snprintf(key, sizeof key, "%d", i % 10);
        assert_int_equal(owner_acquire(owner_new(of, key), i < 10 ? 1000 : 0, 0),
                         i < 10 ? RLOCK_OK : RLOCK_ERR_BUSY);
    }
    kit_reset();
    do {
        for (i = 0, left = 0; i < 10; i++) {
            snprintf(key, sizeof key, "3%d", i);
            left += line(key);
        }
    } while (left > 0 && tries++ < 10); /* ten of these take less than a session */
    assert_int_equal(left, 0);
}

/* The node that is being released is not there any more when the others go. */
static void client_that_is_freed_amid_a_release_lets_go_of_the_others(void **state) {
    rlock_client *of = client();
    struct owner *a = owner_new(of, "a"), *b = owner_new(of, "b");
    int tries = 0;
    (void)state;
    assert_int_equal(owner_acquire(a, 1000, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(b, 1000, 0), RLOCK_OK);
    assert_int_equal(rlock_release(a->lock, owner_told, a), RLOCK_OK);
    rlock_poll_once(kit_poll, 0);
    kit_reset();
    while (line("61") + line("62") > 0 && tries++ < 10) { /* these take less than a session */
    }
    assert_int_equal(line("62"), 0);
}

/* The last one counts, whatever the order in which a server names them. */
static void last_number_of_permits_counts(void **state) {
    static const char *const nodes[] = {
        "/61", "/61/permits:0:p1:0000000001", "/61/permits:0:p2:0000000002",
        "/62", "/62/permits:0:p2:0000000001", "/62/permits:0:p1:0000000002"};
    rlock_client *of = client();
    struct owner *o[4];
    rlock_options options;
    int i;
    (void)state;
    assert_int_equal(owner_acquire(owner_new(of, "first"), 1000, 1000), RLOCK_OK);
    for (i = 0; i < 6; i++) {
        asked(ZOOKEEPER_MAKE, nodes[i]);
    }
    memset(&options, 0, sizeof options);
    options.kind = RLOCK_KIND_SEMAPHORE;
    options.permits = 5;
    for (i = 0; i < 4; i++) {
        options.key = i < 2 ? "a" : "b";
        o[i] = owner_with(of, &options);
        assert_int_equal(owner_acquire(o[i], 0, 1000), i < 3 ? RLOCK_OK : RLOCK_ERR_BUSY);
    }
}

/* --- memory --- */

static struct owner *wishful(rlock_client *of) {
    return queued(of, "k");
}

static bool wishful_is_held(void) {
    return held("k");
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        FAULTS,
        FAULTS_TOLD,
        TEST(silent_server_is_left_after_a_command_timeout),
        TEST(black_holed_holder_is_notified_before_its_session_ends),
        TEST(connection_that_is_cut_loses_no_hold_and_no_waiter),
        TEST(node_whose_reply_was_lost_is_cleaned_up),
        TEST(node_whose_deletion_was_lost_blocks_no_waiter),
        TEST(acquire_that_was_given_up_makes_no_node_later),
        TEST(client_is_freed_without_waiting_for_a_stopped_server),
        TEST(server_that_comes_back_without_its_data_is_reported),
        TEST(server_that_is_not_there_is_reported_and_tried_again),
        TEST(node_of_an_earlier_session_is_no_hold),
        TEST(lease_is_counted_from_a_beat),
        TEST(client_that_held_rests_while_there_is_no_server),
        TEST(hold_whose_node_is_gone_is_reported_at_once),
        TEST(node_of_a_lease_that_ended_unheard_goes),
        TEST(what_is_not_ours_is_untouched),
        TEST(line_that_was_removed_is_made_again),
        TEST(password_keeps_others_out),
        TEST(wrong_password_is_shown_nowhere),
        TEST(connection_with_a_password_that_is_cut_loses_no_hold),
        TEST(url_that_is_wrong_is_refused_without_its_password),
        TEST(each_host_is_tried_before_there_is_none),
        TEST(name_is_resolved_and_each_host_is_tried),
        TEST(servers_are_tried_in_turn_in_each_round),
        TEST(name_that_hangs_hides_no_other_server),
        TEST(waiters_of_a_mutex_do_not_wake_each_other),
        TEST(watches_of_clients_that_contend_do_not_grow),
        TEST(waiter_behind_one_that_gives_up_waits_on),
        TEST(crowd_of_waiters_is_served_and_harms_no_hold),
        TEST(crowd_of_a_semaphore_is_served_and_harms_no_hold),
        TEST(lease_that_is_shorter_than_the_session_ends_in_time),
        TEST(lease_that_is_longer_than_the_session_is_the_sessions),
        TEST(client_that_is_freed_lets_go_of_all),
        TEST(client_that_is_freed_amid_a_release_lets_go_of_the_others),
        TEST(last_number_of_permits_counts),
        TEST(no_call_of_the_loop_has_blocked),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("zookeeper", tests, engine_begins, engine_ends);
}
