/* faults.h - what goes wrong with a server, its network and its set-up: the tests that are the same
 * on each engine
 *
 * Included after measured.h, the engine's kit and clients.h. What needs the administrator's SQL is
 * in faults_sql.h.
 */

#ifndef TESTS_ENGINES_FAULTS_H
#define TESTS_ENGINES_FAULTS_H

/* --- the group --- */

static int engine_begins(void **state) {
    (void)state;
    if (kit_open() != 0 || engine.starts() != 0) {
        return -1;
    }
    engine.starts_proxy();
    return 0;
}

static int engine_ends(void **state) {
    (void)state;
    if (proxy_pid > 0) {
        kill(proxy_pid, SIGKILL);
        waitpid(proxy_pid, NULL, 0);
    }
    kit_close();
    engine.stops();
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    proxy->mode = PASS;
    engine.clears();
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    proxy->mode = PASS;
    if (g.server.pid > 0) {
        engine.resumes(); /* a test that failed may have left it */
    }
    call_begins();
    kit_reset();
    call_ends();
    clients_end();
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)

/* --- the network --- */

static void replies_split_at_every_byte_are_understood(void **state) {
    rlock_client *of = proxied_for(20000);
    struct owner *a = renewed(of, "k"), *b = renewed(client(), "k");
    (void)state;
    proxy->mode = SPLIT;
    assert_int_equal(owner_acquire(a, 30000, engine.long_ms), RLOCK_OK);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, engine.long_ms, owner_told, b),
                     RLOCK_OK);
    assert_int_equal(owner_renew(a, 0), RLOCK_OK);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(b->fence[RLOCK_ACQUIRED] > a->fence[RLOCK_ACQUIRED]);
    assert_int_equal(kit_stats(of).faults, 0);
}

static void server_that_is_far_away_is_waited_for(void **state) {
    struct owner *o = renewed(proxied_for(4000), "k");
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, engine.far_lease_ms), RLOCK_OK); /* it is connected */
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = engine.far_mode;
    assert_int_equal(owner_acquire(o, 10000, engine.far_lease_ms), RLOCK_OK);
    assert_in_range(o->remaining_ms[RLOCK_ACQUIRED], engine.far_lease_ms * 2 / 5,
                    engine.far_lease_ms - 2 * engine.far_ms);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
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

/* An acquire and a release lie in a network that holds them back until the client has gone on over
 * another connection. The session that they would reach is ended before, or has moved. */
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

/* --- the server --- */

static void stopped_server_ends_no_hold_early_and_none_late(void **state) {
    struct owner *o = renewed(client(), "k"), *w = owner_new(client(), "k");
    int64_t start_us;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, engine.lease_ms), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 60000, owner_told, w), RLOCK_OK);
    kit_run(300);
    start_us = kit_now_us();
    engine.pauses();
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_in_range(waited_ms(o, RLOCK_LOST, start_us), engine.lost_ms[0],
                    engine.lost_ms[1] + LATE_MS);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_true(o->text[RLOCK_LOST][0] != 0); /* why it was not renewed */
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    engine.resumes();
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, engine.wait_ms), RLOCK_OK);
}

static struct {
    int ready, ended;
    char text[128];
    int64_t span_us;
} links;

static void note_link(void *user, const rlock_report *report) {
    (void)user;
    if (report->kind >= RLOCK_REPORT_CONNECTED) {
        assert_string_equal(report->link, "commands");
        links.ready += report->kind == RLOCK_REPORT_CONNECTED;
        links.ended += report->kind == RLOCK_REPORT_DISCONNECTED;
        links.span_us = report->span_us;
        snprintf(links.text, sizeof links.text, "%s", report->text != NULL ? report->text : "");
    }
}

static int an_attempt_has_failed(void *arg) {
    (void)arg;
    return links.ended >= 2 && links.text[0] != 0 && links.span_us == 0;
}

/* From its begin to its end, whoever ends it; and each attempt that fails. */
static void connections_are_reported(void **state) {
    rlock_config config;
    rlock_client *of = NULL;
    rlock_store *store = NULL;
    struct owner *o;
    char url[256];
    (void)state;
    memset(&links, 0, sizeof links);
    memset(&config, 0, sizeof config);
    config.loop = rlock_poll_loop(kit_poll);
    config.command_timeout_ms = TIMEOUT_MS;
    config.on_event = note_link;
    engine.writes_url(url, false, false);
    assert_int_equal(engine.makes(&store, url), RLOCK_OK);
    config.store = store;
    assert_int_equal(rlock_client_new(&of, &config), RLOCK_OK);
    o = owner_new(of, "k");
    assert_int_equal(owner_acquire(o, 5000, 20000), RLOCK_OK);
    assert_int_equal(links.ready, 1);
    assert_int_equal(links.ended, 0);
    engine.dies();
    assert_true(kit_until(kit_is_down, of, 5000));
    assert_true(kit_until(an_attempt_has_failed, NULL, 10000));
    assert_int_equal(engine.comes_back(), 0);
    assert_true(kit_until(kit_is_up, of, 20000));
    assert_int_equal(links.ready, 2);
    links.ended = 0;
    kit_owner_count = 0;
    rlock_free(o->lock);
    rlock_client_free(of);
    engine.forgets(store);
    assert_int_equal(links.ended, 1);
    assert_string_equal(links.text, "closed by the client");
    assert_true(links.span_us > 0);
}

static void server_that_is_killed_and_comes_back_has_the_holds(void **state) {
    rlock_client *of = client();
    struct owner *o = renewed(of, "k"), *w = owner_new(client(), "k");
    int64_t lease_ms = engine.of_sessions ? 0 : 20000;
    (void)state;
    assert_int_equal(owner_acquire(o, 1000, lease_ms), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, lease_ms, owner_told, w), RLOCK_OK);
    kit_run(200);
    engine.dies();
    assert_true(kit_until(kit_is_down, of, 2000));
    assert_int_equal(engine.comes_back(), 0);
    assert_true(kit_until(kit_is_up, of, 10000));
    kit_run(300);
    assert_true(rlock_is_held(o->lock) != (o->seen[RLOCK_LOST] > 0));
    assert_true(rlock_is_held(o->lock) || engine.of_sessions); /* it took long to come back */
    if (rlock_is_held(o->lock)) {
        assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, engine.wait_ms), RLOCK_OK);
}

/* --- crowds, and the end --- */

/* One client has a crowd in one queue: neither its own hold nor that of another one is lost. */
static inline void crowd_of_waiters_costs_no_hold(void **state) {
    enum { WAITERS = 1000 };
    rlock_client *of = patient(2000), *other = patient(2000);
    struct owner *holds = renewed(of, "mine"), *first = renewed(other, "theirs"), *o = NULL;
    int i;
    (void)state;
    assert_int_equal(owner_acquire(holds, 5000, engine.of_sessions ? 0 : 2000), RLOCK_OK);
    assert_int_equal(owner_acquire(first, 5000, engine.of_sessions ? 0 : 2000), RLOCK_OK);
    for (i = 0; i < WAITERS; i++) {
        o = queued(of, "crowded");
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    }
    kit_run(5000);
    assert_true(rlock_is_held(holds->lock) && rlock_is_held(first->lock));
    assert_int_equal(kit_stats(of).connects + kit_stats(other).connects, 2);
}

/* Whatever is on its way: no hold stays, and no place in a queue; but for an answer that comes just
 * then. rlock_client_free says that it may cost the releases: it does so in few turns. */
static inline void nothing_is_left_whenever_a_client_is_freed(void **state) {
    rlock_client *after = client();
    int turn, tries, spared = 3;
    (void)state;
    for (turn = 0; turn < 30; turn++) {
        rlock_client *of = NULL;
        struct owner *mutex, *fair, *waits, *o;
        int owners = kit_owner_count, clients = kit_client_count;
        of = patient(4000);
        mutex = renewed(of, "m");
        fair = queued(of, "f");
        waits = queued(of, "f");
        rlock_acquire(mutex->lock, RLOCK_FOREVER, 60000, owner_told, mutex);
        rlock_acquire(fair->lock, RLOCK_FOREVER, 60000, owner_told, fair);
        rlock_acquire(waits->lock, RLOCK_FOREVER, 60000, owner_told, waits);
        if (turn % 3 != 0) { /* connecting otherwise */
            assert_int_equal(owner_wait(fair, RLOCK_ACQUIRED, 5000), RLOCK_OK);
            rlock_release(fair->lock, owner_told, fair);
            rlock_renew(mutex->lock, 0, owner_told, mutex);
        }
        kit_run(turn / 3);
        while (kit_owner_count > owners) {
            rlock_free(kit_owners[--kit_owner_count].lock);
        }
        while (kit_client_count > clients) {
            rlock_client_free(kit_clients[--kit_client_count]);
        }
        for (tries = 0; engine.left() != 0 && tries < 500; tries++) {
            server_sleep_ms(10); /* for less than a lease */
        }
        if (engine.left() != 0) {
            assert_true(spared-- > 0);
            engine.clears();
        }
        o = queued(after, "f");
        assert_int_equal(owner_acquire(o, 5000, 60000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
}

/* --- the set-up --- */

/* What a client with this URL is refused with has these words in it, and no password. */
static inline void url_is_refused(const char *url, const char *words) {
    rlock_config config;
    rlock_client *none = NULL;
    rlock_store *store = NULL;
    memset(&config, 0, sizeof config);
    config.loop = rlock_poll_loop(kit_poll);
    config.log = kit_log;
    kit_log_text[0] = 0;
    assert_int_equal(engine.makes(&store, url), RLOCK_OK);
    config.store = store;
    assert_int_equal(rlock_client_new(&none, &config), RLOCK_ERR_ARG);
    assert_non_null(strstr(kit_log_text, words));
    assert_null(strstr(kit_log_text, "s3cret"));
    engine.forgets(store);
}

/* Accepts connections at 127.0.0.x and says nothing; close() ends that. Port 0: any. */
static inline int door_at(int x, int port) {
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_in a;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + (uint32_t)x);
    a.sin_port = htons((uint16_t)port);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    assert_int_equal(bind(door, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(door, 4), 0);
    return door;
}

static inline int silent_door(int *port) {
    int door = door_at(1, 0);
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    getsockname(door, (struct sockaddr *)&a, &len);
    *port = ntohs(a.sin_port);
    return door;
}

static void key_may_be_any_bytes_and_not_too_long(void **state) {
    static const char bytes[] = "a\0/\\..b'\"\r\n\xff{}";
    static char longest[4096];
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
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, engine.polls ? 5000 : 1000), RLOCK_OK);
    assert_true(engine.key_max + 1 < sizeof longest);
    memset(longest, 'x', engine.key_max + 1);
    longest[engine.key_max] = 0;
    assert_int_equal(owner_acquire(owner_new(of, longest), 1000, 1000), RLOCK_OK);
    longest[engine.key_max] = 'x';
    assert_null(owner_new(of, longest));
    assert_non_null(strstr(kit_log_text, engine.key_too_long));
}

/* --- what is told --- */

static inline void tells_soon(struct owner *a, struct owner *b, const char *kind) {
    enum { ROUNDS = 21 };
    int64_t told_us[ROUNDS], start_us;
    int i;
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
    printf("# from a release to the grant of another client's waiter, %s: %.2f ms\n", kind,
           (double)kit_median(told_us, ROUNDS) / 1000);
    assert_true(kit_median(told_us, ROUNDS) < 200000); /* 20 ms are promised */
}

/* A release tells the waiter of another client, or it would sleep until the end of the lease. */
static inline void waiter_is_told_soon(void **state) {
    rlock_client *one = client(), *other = client();
    (void)state;
    tells_soon(owner_new(one, "k"), owner_new(other, "k"), "MUTEX");
    tells_soon(queued(one, "fair"), queued(other, "fair"), "FAIR");
}

static inline void on_forced(rlock_client *of, const rlock_info *info, void *user) {
    (void)of;
    *(int *)user = info->status == RLOCK_OK ? (int)info->holders : -1;
}

static inline int is_told(void *forced) {
    return *(int *)forced != -2;
}

/* Also where the client that takes it away is the holder's own. */
static inline void hold_that_is_taken_away_by_force_is_reported_at_once(void **state) {
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
        kit_run(300); /* it is watched */
        assert_int_equal(rlock_force_release(i ? other : of, &options, on_forced, &forced),
                         RLOCK_OK);
        assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
        assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
        assert_true(kit_until(is_told, &forced, 2000));
        assert_int_equal(forced, 1);
    }
}

/* --- memory --- */

/* What each engine defines: the owner for which its store needs the most memory, and whether the
 * server has all of its keys. */
static struct owner *wishful(rlock_client *of);
static bool wishful_is_held(void);

/* Wish after wish for memory is refused, from the making of the store to the end of the client. An
 * acquire that fails for that succeeds when there is memory again: what it made is cleaned up. */
static void every_failing_allocation_is_survived(void **state) {
    bool refused = true;
    int n;
    (void)state;
    for (n = 1; refused && n < 100; n++) {
        rlock_config config;
        rlock_client *of = NULL;
        rlock_store *store = NULL;
        char url[256];
        wishes = 0;
        refused_wish = n;
        memset(&config, 0, sizeof config);
        config.loop = rlock_poll_loop(kit_poll);
        config.log = kit_log;
        config.command_timeout_ms = TIMEOUT_MS;
        engine.writes_url(url, false, false);
        if (engine.makes(&store, url) == RLOCK_OK) {
            config.store = store;
            of = rlock_client_new(&of, &config) == RLOCK_OK ? of : NULL;
        }
        if (of != NULL) {
            struct owner *o = wishful(of);
            int status = owner_acquire(o, 2000, 60000);
            assert_true(
                status == RLOCK_OK ||
                (wishes >= refused_wish && (status == RLOCK_ERR_NOMEM || status == RLOCK_ERR_CONN ||
                                            status == RLOCK_ERR_UNKNOWN)));
            if (status != RLOCK_OK) {
                status = owner_acquire(o, 5000, 60000);
                assert_int_equal(status, RLOCK_OK);
            }
            assert_true(status != RLOCK_OK || wishful_is_held());
            kit_owner_count = 0;
            rlock_free(o->lock);
            rlock_client_free(of);
        }
        refused = wishes >= refused_wish;
        refused_wish = 0;
        engine.forgets(store);
        engine.clears();
    }
    assert_in_range(n, engine.wishes, 99); /* with one for a store that gets all it wants */
}

/* The names, for the table of an engine: on each; where waiters are told. */
#define FAULTS                                                                                     \
    TEST(replies_split_at_every_byte_are_understood), TEST(server_that_is_far_away_is_waited_for), \
        TEST(black_holed_renewal_and_release_are_unknown),                                         \
        TEST(what_an_old_connection_still_carries_is_not_executed),                                \
        TEST(stopped_server_ends_no_hold_early_and_none_late), TEST(connections_are_reported),     \
        TEST(server_that_is_killed_and_comes_back_has_the_holds),                                  \
        TEST(key_may_be_any_bytes_and_not_too_long), TEST(every_failing_allocation_is_survived)
#define FAULTS_TOLD \
    TEST(waiter_is_told_soon), TEST(hold_that_is_taken_away_by_force_is_reported_at_once)

#endif
