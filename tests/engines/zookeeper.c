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
#include "proxy.h"
#include "zookeeper.h"

#define malloc wish_malloc
#define calloc wish_calloc
#include "../../stores/rlock_zookeeper.h"
#undef malloc
#undef calloc

#define TIMEOUT_MS 400
#define LEASE_MS (ZOOKEEPER_SESSION_MS - 2 * ZOOKEEPER_TICK_MS) /* the longest that is given */

static struct {
    struct server server;
    int test, door; /* door: the proxy's port */
    rlock_store *stores[KIT_CLIENTS];
    int store_count;
} g;

/* --- the administrator --- */

static int asked(int what, const char *rest) {
    char path[512];
    snprintf(path, sizeof path, "/t%d%s", g.test, rest);
    return zookeeper_asks(&g.server, what, path);
}

/* How many nodes there are in a line: "6b" is the key "k". */
static int line(const char *hex) {
    char rest[64];
    snprintf(rest, sizeof rest, "/%s", hex);
    asked(ZOOKEEPER_LIST, rest);
    return zookeeper_hand.count;
}

static int line_is_empty(void *hex) {
    return line((const char *)hex) == 0;
}

/* --- clients --- */

static rlock_client *client_of(const char *url, int64_t timeout_ms) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    assert_int_equal(rlock_zookeeper_new(&g.stores[g.store_count], url), RLOCK_OK);
    config.store = g.stores[g.store_count++];
    config.loop = rlock_poll_loop(kit_poll);
    config.log = kit_log;
    config.command_timeout_ms = timeout_ms;
    return kit_client(&config);
}

static rlock_client *client_at(const char *hosts) {
    char url[256];
    snprintf(url, sizeof url, "zookeeper://%s/t%d?session_ms=%d&tick_ms=%d", hosts, g.test,
             ZOOKEEPER_SESSION_MS, ZOOKEEPER_TICK_MS);
    return client_of(url, TIMEOUT_MS);
}

static rlock_client *client(void) {
    char host[32];
    snprintf(host, sizeof host, "127.0.0.1:%d", g.server.port);
    return client_at(host);
}

static rlock_client *proxied(void) {
    char host[32];
    snprintf(host, sizeof host, "127.0.0.1:%d", g.door);
    return client_at(host);
}

static struct owner *renewed(rlock_client *of, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.watchdog = RLOCK_WATCHDOG_ON;
    options.fencing = true;
    return owner_with(of, &options);
}

static struct owner *queued(rlock_client *of, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.kind = RLOCK_KIND_FAIR;
    return owner_with(of, &options);
}

static int waited_ms(struct owner *o, rlock_event_kind kind, int64_t since_us) {
    return (int)((o->at_us[kind] - since_us) / 1000);
}

/* --- the network --- */

static void replies_split_at_every_byte_are_understood(void **state) {
    struct owner *a, *b = renewed(client(), "k");
    char url[96];
    (void)state;
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d/t%d?session_ms=4000&tick_ms=200", g.door,
             g.test);
    a = renewed(client_of(url, 20000), "k");
    proxy->mode = SPLIT;
    assert_int_equal(owner_acquire(a, 5000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 0, owner_told, b), RLOCK_OK);
    assert_int_equal(owner_renew(a, 0), RLOCK_OK);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(b->fence[RLOCK_ACQUIRED] > a->fence[RLOCK_ACQUIRED]);
}

/* The library itself would wait for two thirds of the session, which are 2.6 s. */
static void silent_server_is_left_after_a_command_timeout(void **state) {
    rlock_client *one;
    struct owner *o;
    char url[96];
    (void)state;
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d/t%d?session_ms=4000&tick_ms=200", g.door,
             g.test);
    one = client_of(url, 150);
    o = owner_new(one, "k");
    assert_int_equal(owner_acquire(o, 5000, 3000), RLOCK_OK);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(rlock_renew(o->lock, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(kit_is_down, one, 2000));
}

static void server_that_is_far_away_is_waited_for(void **state) {
    struct owner *o = renewed(proxied(), "k");
    (void)state;
    proxy->mode = DELAY_50_MS;
    assert_int_equal(owner_acquire(o, 10000, 1000), RLOCK_OK);
    assert_true(o->remaining_ms[RLOCK_ACQUIRED] <= 1000 - 50);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

/* The server ends the session two beats after the holder was told, at the earliest. */
static void black_holed_holder_is_told_before_its_session_ends(void **state) {
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
    assert_in_range(waited_ms(o, RLOCK_LOST, start_us), 1, LEASE_MS);
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 10000), RLOCK_OK);
}

static void black_holed_renewal_and_release_are_unknown(void **state) {
    rlock_client *of = proxied();
    struct owner *a = owner_new(of, "a"), *b = owner_new(of, "b");
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

/* An acquire lies in a network that holds it back until the client has gone on over another
 * connection: the server refuses it, since the session has moved. */
static void what_an_old_connection_still_carries_is_not_executed(void **state) {
    rlock_client *of = proxied();
    struct owner *o = owner_new(of, "k"), *other = owner_new(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = HOLD_BACK;
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_UNKNOWN);
    proxy->mode = PASS;
    assert_true(kit_until(kit_is_clean, of, 3000));
    proxy_delivers_late();
    kit_run(300);
    assert_int_equal(line("6b"), 0);
    assert_int_equal(owner_acquire(other, 0, 1000), RLOCK_OK);
}

/* The delete of a waiter that gave up is lost with its connection. It is sent again, or its node
 * would keep everybody out for as long as the session lasts. */
static void node_whose_deletion_was_lost_keeps_nobody_out(void **state) {
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

static void stopped_server_ends_no_hold_early_and_none_late(void **state) {
    struct owner *o = renewed(client(), "k"), *w = owner_new(client(), "k");
    int64_t start_us;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 0, owner_told, w), RLOCK_OK);
    kit_run(300);
    start_us = kit_now_us();
    server_pause(&g.server);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_in_range(waited_ms(o, RLOCK_LOST, start_us), LEASE_MS / 2, LEASE_MS);
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    server_resume(&g.server);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 20000), RLOCK_OK);
}

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

static void server_that_is_killed_and_comes_back_has_the_holds(void **state) {
    rlock_client *of = client();
    struct owner *o = renewed(of, "k"), *w = owner_new(client(), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 0, owner_told, w), RLOCK_OK);
    kit_run(200);
    server_kill9(&g.server);
    assert_int_equal(zookeeper_continue(&g.server), 0); /* in which its lease may have ended */
    assert_true(kit_until(kit_is_up, of, 10000));
    kit_run(300);
    assert_true(rlock_is_held(o->lock) != (o->seen[RLOCK_LOST] > 0));
    if (rlock_is_held(o->lock)) {
        assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 10000), RLOCK_OK);
}

/* Its sessions are forgotten: the client is told, and begins a new one. */
static void server_that_comes_back_without_its_data_is_told(void **state) {
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

static void server_that_is_not_there_is_told_and_tried_again(void **state) {
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

static void hold_whose_node_is_gone_is_told_at_once(void **state) {
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
    mine = owner_new(client_of(url, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(mine, 2000, 1000), RLOCK_OK);
    snprintf(url, sizeof url, "zookeeper://me:wr0ng@127.0.0.1:%d/t%d?session_ms=2000&tick_ms=200",
             g.server.port, g.test);
    other = owner_new(client_of(url, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(other, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_int_equal(owner_acquire(owner_new(client(), "k"), RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    assert_int_equal(owner_release(mine), RLOCK_OK);
    snprintf(url, sizeof url, "zookeeper://%%6de:s%%33cre%%74@127.0.0.1:%d/t%d?tick_ms=200",
             g.server.port, g.test);
    mine = owner_new(client_of(url, TIMEOUT_MS), "k");
    assert_int_equal(owner_acquire(mine, 2000, 1000), RLOCK_OK);
    assert_null(strstr(kit_log_text, "s3cret"));
    assert_null(strstr(kit_log_text, "wr0ng"));
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
        rlock_config config;
        rlock_client *none = NULL;
        rlock_store *store = NULL;
        memset(&config, 0, sizeof config);
        config.loop = rlock_poll_loop(kit_poll);
        config.log = kit_log;
        assert_int_equal(rlock_zookeeper_new(&store, wrong[i]), RLOCK_OK);
        config.store = store;
        assert_int_equal(rlock_client_new(&none, &config), RLOCK_ERR_ARG);
        assert_non_null(strstr(kit_log_text, i < 9 ? "URL" : "session_ms"));
        assert_null(strstr(kit_log_text, "s3cret"));
        rlock_zookeeper_free(store);
    }
    assert_int_equal(rlock_zookeeper_new(NULL, "x"), RLOCK_ERR_ARG);
    assert_int_equal(rlock_zookeeper_new(&g.stores[0], NULL), RLOCK_ERR_ARG);
    rlock_zookeeper_free(NULL);
}

static void name_is_resolved_and_each_host_is_tried(void **state) {
    char hosts[128];
    int door = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    struct owner *o;
    (void)state;
    snprintf(hosts, sizeof hosts, "localhost:%d", g.server.port);
    o = owner_new(client_at(hosts), "k");
    assert_int_equal(owner_acquire(o, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    snprintf(hosts, sizeof hosts, "127.0.0.1:1,localhost:%d", g.server.port);
    o = owner_new(client_at(hosts), "k"); /* nobody listens at the first */
    assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(door, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(door, 4), 0);
    getsockname(door, (struct sockaddr *)&a, &len);
    snprintf(hosts, sizeof hosts, "127.0.0.1:%d,127.0.0.1:%d", ntohs(a.sin_port), g.server.port);
    o = owner_new(client_at(hosts), "k"); /* the first one says nothing */
    assert_int_equal(owner_acquire(o, 10000, 1000), RLOCK_OK);
    close(door);
    snprintf(hosts, sizeof hosts, "nowhere.invalid:%d", g.server.port);
    o = owner_new(client_at(hosts), "k");
    assert_int_equal(owner_acquire(o, 300, 1000), RLOCK_ERR_CONN);
}

static void key_may_be_any_bytes_and_not_too_long(void **state) {
    static const char bytes[] = "a\0/\\..'\"\r\n\xff{}";
    static char longest[RLOCK__ZK_KEY_MAX + 2];
    rlock_client *of = client(), *other = client();
    rlock_options options;
    struct owner *a, *b;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = bytes;
    options.key_len = sizeof bytes - 1;
    a = owner_with(of, &options);
    b = owner_with(other, &options);
    assert_int_equal(owner_acquire(a, 1000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 1000, owner_told, b), RLOCK_OK);
    kit_run(200);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 1000), RLOCK_OK); /* it was notified */
    memset(longest, 'x', sizeof longest - 1);
    longest[RLOCK__ZK_KEY_MAX] = 0;
    assert_int_equal(owner_acquire(owner_new(of, longest), 1000, 1000), RLOCK_OK);
    longest[RLOCK__ZK_KEY_MAX] = 'x';
    assert_null(owner_new(of, longest));
    assert_non_null(strstr(kit_log_text, "at most 1,000 bytes"));
}

/* --- what is told --- */

static void waiter_is_told_soon(void **state) {
    enum { ROUNDS = 21 };
    struct owner *pairs[2][2];
    rlock_client *one = client(), *other = client();
    int64_t told_us[ROUNDS], start_us;
    int i, kind;
    (void)state;
    pairs[0][0] = owner_new(one, "k");
    pairs[0][1] = owner_new(other, "k");
    pairs[1][0] = queued(one, "fair");
    pairs[1][1] = queued(other, "fair");
    for (kind = 0; kind < 2; kind++) {
        struct owner *a = pairs[kind][0], *b = pairs[kind][1];
        for (i = 0; i < ROUNDS; i++) {
            assert_int_equal(owner_acquire(a, 1000, 0), RLOCK_OK);
            assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 0, owner_told, b), RLOCK_OK);
            kit_run(20);
            start_us = kit_now_us();
            assert_int_equal(rlock_release(a->lock, owner_told, a), RLOCK_OK);
            assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
            assert_int_equal(owner_wait(a, RLOCK_RELEASED, 5000), RLOCK_OK);
            told_us[i] = b->at_us[RLOCK_ACQUIRED] - start_us;
            assert_int_equal(owner_release(b), RLOCK_OK);
        }
        printf("# from a release to the grant of another client's waiter, %s: %.2f ms\n",
               kind ? "FAIR" : "MUTEX", (double)kit_median(told_us, ROUNDS) / 1000);
        assert_true(kit_median(told_us, ROUNDS) < 200000); /* 20 ms are promised */
    }
}

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

static void on_forced(rlock_client *of, const rlock_info *info, void *user) {
    (void)of;
    *(int *)user = info->status == RLOCK_OK ? (int)info->holders : -1;
}

static int is_told(void *forced) {
    return *(int *)forced != -2;
}

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
        assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
        kit_run(100); /* it is watched */
        assert_int_equal(rlock_force_release(i ? other : of, &options, on_forced, &forced),
                         RLOCK_OK);
        assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
        assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
        assert_true(kit_until(is_told, &forced, 2000));
        assert_int_equal(forced, 1);
    }
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
    assert_in_range(o->remaining_ms[RLOCK_ACQUIRED], LEASE_MS / 2, LEASE_MS);
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

static void every_failing_allocation_is_survived(void **state) {
    int n, granted = 0;
    (void)state;
    for (n = 1; n < 100; n++) {
        rlock_config config;
        rlock_client *of = NULL;
        rlock_store *store = NULL;
        char url[128];
        bool refused;
        wishes = 0;
        refused_wish = n;
        memset(&config, 0, sizeof config);
        config.loop = rlock_poll_loop(kit_poll);
        config.log = kit_log;
        config.command_timeout_ms = TIMEOUT_MS;
        snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d/t%d?session_ms=2000&tick_ms=200",
                 g.server.port, g.test);
        if (rlock_zookeeper_new(&store, url) == RLOCK_OK) {
            config.store = store;
            of = rlock_client_new(&of, &config) == RLOCK_OK ? of : NULL;
        }
        if (of != NULL) {
            struct owner *o = queued(of, "k");
            int status = owner_acquire(o, 2000, 0);
            assert_true(status == RLOCK_OK || status == RLOCK_ERR_NOMEM ||
                        status == RLOCK_ERR_CONN || status == RLOCK_ERR_UNKNOWN);
            granted += status == RLOCK_OK;
            kit_owner_count = 0;
            rlock_free(o->lock);
            rlock_client_free(of);
        }
        refused = wishes >= refused_wish;
        refused_wish = 0;
        rlock_zookeeper_free(store);
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
    zoo_set_debug_level((ZooLogLevel)0);
    if (kit_open() != 0 || zookeeper_start(&g.server) != 0) {
        return -1;
    }
    g.door = server_free_port();
    snprintf(from, sizeof from, "127.0.0.1:%d", g.door);
    snprintf(to, sizeof to, "127.0.0.1:%d", g.server.port);
    proxy_starts(from, to);
    return 0;
}

static int group_ends(void **state) {
    (void)state;
    if (proxy_pid > 0) {
        kill(proxy_pid, SIGKILL);
        waitpid(proxy_pid, NULL, 0);
    }
    kit_close();
    server_stop(&g.server);
    return 0;
}

/* Each test has a tree of its own. */
static int test_begins(void **state) {
    (void)state;
    proxy->mode = PASS;
    g.test++;
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    proxy->mode = PASS;
    if (g.server.pid > 0) {
        server_resume(&g.server);
    }
    call_begins();
    kit_reset();
    call_ends();
    while (g.store_count > 0) {
        rlock_zookeeper_free(g.stores[--g.store_count]);
    }
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        TEST(replies_split_at_every_byte_are_understood),
        TEST(silent_server_is_left_after_a_command_timeout),
        TEST(server_that_is_far_away_is_waited_for),
        TEST(black_holed_holder_is_told_before_its_session_ends),
        TEST(black_holed_renewal_and_release_are_unknown),
        TEST(connection_that_is_cut_loses_no_hold_and_no_waiter),
        TEST(node_whose_reply_was_lost_is_cleaned_up),
        TEST(what_an_old_connection_still_carries_is_not_executed),
        TEST(node_whose_deletion_was_lost_keeps_nobody_out),
        TEST(acquire_that_was_given_up_makes_no_node_later),
        TEST(stopped_server_ends_no_hold_early_and_none_late),
        TEST(client_is_freed_without_waiting_for_a_stopped_server),
        TEST(server_that_is_killed_and_comes_back_has_the_holds),
        TEST(server_that_comes_back_without_its_data_is_told),
        TEST(server_that_is_not_there_is_told_and_tried_again),
        TEST(node_of_an_earlier_session_is_no_hold),
        TEST(lease_is_counted_from_a_beat),
        TEST(client_that_held_rests_while_there_is_no_server),
        TEST(hold_whose_node_is_gone_is_told_at_once),
        TEST(node_of_a_lease_that_ended_unheard_goes),
        TEST(what_is_not_ours_is_untouched),
        TEST(line_that_was_removed_is_made_again),
        TEST(password_keeps_others_out),
        TEST(url_that_is_wrong_is_refused_without_its_password),
        TEST(name_is_resolved_and_each_host_is_tried),
        TEST(key_may_be_any_bytes_and_not_too_long),
        TEST(waiter_is_told_soon),
        TEST(waiters_of_a_mutex_do_not_wake_each_other),
        TEST(hold_that_is_taken_away_by_force_is_told_at_once),
        TEST(lease_that_is_shorter_than_the_session_ends_in_time),
        TEST(lease_that_is_longer_than_the_session_is_the_sessions),
        TEST(client_that_is_freed_lets_go_of_all),
        TEST(client_that_is_freed_amid_a_release_lets_go_of_the_others),
        TEST(last_number_of_permits_counts),
        TEST(every_failing_allocation_is_survived),
        TEST(no_call_of_the_loop_has_blocked),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("zookeeper", tests, group_begins, group_ends);
}
