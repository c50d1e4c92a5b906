/* zookeeper_ensemble.c - locks in three ZooKeeper servers that know of each other: what becomes of
 * holds and waiters when some of them are killed or stand still, or a client does
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "measured.h"

#define ZOOKEEPER_TICK_MS 250
#define ZOOKEEPER_SESSION_MS 5000

#define malloc wish_malloc
#define calloc wish_calloc
#include "../../stores/rlock_zookeeper.h"
#undef malloc
#undef calloc

#include "zookeeper_kit.h"

#include "clients.h"

#define SERVERS 3
#define LEASE_MS (ZOOKEEPER_SESSION_MS * 4 / 5)

static struct server all[SERVERS], others[SERVERS]; /* others: of one test */

/* A client that knows so many servers, of which this is the first. */
static rlock_client *client_knowing(const struct server *first, int count) {
    char url[256];
    size_t n = (size_t)snprintf(url, sizeof url, "zookeeper://");
    int i;
    for (i = 0; i < count; i++) {
        n += (size_t)snprintf(url + n, sizeof url - n, "%s127.0.0.1:%d", i > 0 ? "," : "",
                              first[i].port);
    }
    snprintf(url + n, sizeof url - n, "/t%d?session_ms=%d&tick_ms=%d", g.test, ZOOKEEPER_SESSION_MS,
             ZOOKEEPER_TICK_MS);
    return client_for(url, 1000);
}

/* A client that begins with one of the servers and knows them all. */
static rlock_client *client_from(int first) {
    struct server servers[SERVERS];
    int i;
    for (i = 0; i < SERVERS; i++) {
        servers[i] = all[(first + i) % SERVERS];
    }
    return client_knowing(servers, SERVERS);
}

static int number_of(const char *mode) {
    int i = 0, tries;
    for (tries = 0; tries < 1000; tries++) {
        for (i = 0; i < SERVERS; i++) {
            if (strcmp(zookeeper_mode(&all[i]), mode) == 0) {
                return i;
            }
        }
        server_sleep_ms(10);
    }
    return -1;
}

/* Clients of the two servers that stay keep their holds while a new leader is chosen, and one of
 * the leader's own goes on with another server. */
static void leader_that_is_killed_ends_no_hold(void **state) {
    int leader = number_of("leader"), i;
    struct owner *o[SERVERS], *w;
    static const char *const keys[] = {"a", "b", "c"};
    uint64_t fence;
    (void)state;
    assert_true(leader >= 0);
    for (i = 0; i < SERVERS; i++) {
        o[i] = renewed(client_from(i), keys[i]);
        assert_int_equal(owner_acquire(o[i], 5000, 0), RLOCK_OK);
    }
    w = renewed(client_from(leader), keys[(leader + 1) % SERVERS]);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 0, owner_told, w), RLOCK_OK);
    kit_run(300);
    fence = o[(leader + 1) % SERVERS]->fence[RLOCK_ACQUIRED];
    server_kill9(&all[leader]);
    kit_run(ZOOKEEPER_SESSION_MS + 1000);
    for (i = 0; i < SERVERS; i++) {
        assert_true(rlock_is_held(o[i]->lock));
        assert_int_equal(owner_renew(o[i], 0), RLOCK_OK);
    }
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_release(o[(leader + 1) % SERVERS]), RLOCK_OK);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(w->fence[RLOCK_ACQUIRED] > fence);
    assert_int_equal(zookeeper_continue(&all[leader]), 0);
}

/* One of the servers is not there, or says nothing. A client that does not wait tries the others
 * before it says that there is none, whichever it began with. */
static void one_of_three_away_is_no_reason_to_give_up(void **state) {
    enum { CLIENTS = 12, TIMEOUT = 1000 };
    int away = number_of("follower"), i, silent;
    (void)state;
    assert_true(away >= 0);
    for (silent = 0; silent < 2; silent++) {
        if (silent) {
            server_pause(&all[away]);
        } else {
            server_kill9(&all[away]);
        }
        for (i = 0; i < CLIENTS; i++) {
            struct owner *o = owner_new(client_from(i % SERVERS), "k");
            int64_t start_us = kit_now_us();
            assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
            /* a command timeout; libzookeeper leaves a silent server after 3.3 s */
            assert_in_range(waited_ms(o, RLOCK_ACQUIRED, start_us), 0, 2 * TIMEOUT);
            assert_int_equal(owner_release(o), RLOCK_OK);
            clients_end();
        }
        if (silent) {
            server_resume(&all[away]);
        } else {
            assert_int_equal(zookeeper_continue(&all[away]), 0);
        }
    }
}

/* A client leaves a server that says nothing, in time for its hold. */
static void server_that_stands_still_is_left_in_time(void **state) {
    int leader = number_of("leader"), i;
    struct owner *o;
    (void)state;
    assert_true(leader >= 0);
    for (i = 1; i < SERVERS; i++) { /* each follower, with a client that knows it first */
        int follower = (leader + i) % SERVERS;
        rlock_client *of = client_from(follower);
        o = renewed(of, i == 1 ? "a" : "b");
        assert_int_equal(owner_acquire(o, 5000, 0), RLOCK_OK);
        kit_run(200);
        server_pause(&all[follower]);
        kit_run(2 * ZOOKEEPER_SESSION_MS);
        server_resume(&all[follower]);
        assert_int_equal(o->seen[RLOCK_LOST], 0);
        assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    }
}

/* The others end a session that they do not hear of, while the follower that its client speaks to
 * answers from what it knew: this makes no hold longer. */
static void follower_that_is_cut_off_makes_no_hold_longer(void **state) {
    struct server *servers = others;
    char from[32], to[32];
    struct owner *o, *w;
    int door = server_free_port();
    (void)state;
    assert_int_equal(zookeeper_prepare_ensemble(servers, SERVERS, 40, door), 0);
    snprintf(from, sizeof from, "127.0.0.1:%d", door);
    snprintf(to, sizeof to, "127.0.0.1:%s", servers[2].peer);
    proxy_starts(from, to);
    zookeeper_begins(&servers[1]);
    zookeeper_begins(&servers[2]); /* of these two it is the leader */
    assert_int_equal(zookeeper_waits(&servers[2]), 0);
    assert_string_equal(zookeeper_mode(&servers[2]), "leader");
    assert_int_equal(zookeeper_continue(&servers[0]), 0);
    o = renewed(client_knowing(&servers[0], 1), "k");
    w = renewed(client_knowing(&servers[1], 1), "k");
    assert_int_equal(owner_acquire(o, 5000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 0, owner_told, w), RLOCK_OK);
    kit_run(ZOOKEEPER_SESSION_MS); /* it is renewed */
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 20000), RLOCK_OK);
    assert_string_equal(zookeeper_mode(&servers[0]), "follower");
    assert_int_equal(o->seen[RLOCK_LOST], 1);
    assert_true(o->at_us[RLOCK_LOST] <= w->at_us[RLOCK_ACQUIRED]);
}

/* Without a majority nobody is granted anything, and who holds is told. */
static void servers_without_a_majority_grant_nothing(void **state) {
    struct owner *o = renewed(client_from(0), "k"), *w = renewed(client_from(1), "k");
    int64_t start_us;
    (void)state;
    assert_int_equal(owner_acquire(o, 5000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 0, owner_told, w), RLOCK_OK);
    kit_run(300);
    start_us = kit_now_us();
    server_kill9(&all[0]);
    server_kill9(&all[1]);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 10000), RLOCK_ERR_LOST);
    assert_true(o->at_us[RLOCK_LOST] - start_us <= LEASE_MS * 1000);
    kit_run(ZOOKEEPER_SESSION_MS);
    assert_int_equal(w->seen[RLOCK_ACQUIRED], 0);
    zookeeper_begins(&all[0]);
    zookeeper_begins(&all[1]);
    assert_int_equal(zookeeper_waits(&all[0]), 0);
    assert_int_equal(zookeeper_waits(&all[1]), 0);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 20000), RLOCK_OK);
}

/* A process that holds and stands still for longer than its session is told when it wakes up, and
 * not before the next one could be granted. */
static void process_that_stands_still_is_notified_when_it_wakes(void **state) {
    int64_t *lost = (int64_t *)mmap(NULL, 2 * sizeof *lost, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct owner *w = renewed(client_from(0), "k");
    int64_t woken_us;
    pid_t pid = fork();
    (void)state;
    if (pid == 0) {
        struct owner *o;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        kit_poll = rlock_poll_new();
        kit_client_count = 0;
        o = renewed(client_from(1), "k");
        lost[0] = owner_acquire(o, 5000, 0) == RLOCK_OK ? 1 : -1;
        kit_run(1000000);
        _exit(0);
    }
    while (__atomic_load_n(&lost[0], __ATOMIC_SEQ_CST) == 0) {
        server_sleep_ms(10);
    }
    assert_int_equal(lost[0], 1);
    assert_int_equal(rlock_acquire(w->lock, RLOCK_FOREVER, 0, owner_told, w), RLOCK_OK);
    kit_run(300);
    kill(pid, SIGSTOP);
    woken_us = kit_now_us();
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 20000), RLOCK_OK);
    assert_true(w->at_us[RLOCK_ACQUIRED] - woken_us >= LEASE_MS / 2 * 1000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    munmap(lost, 2 * sizeof *lost);
}

/* --- the group --- */

static int group_begins(void **state) {
    (void)state;
    return kit_open() != 0 ? -1 : zookeeper_start_ensemble(all, SERVERS);
}

static int group_ends(void **state) {
    int i;
    (void)state;
    if (proxy_pid > 0) {
        kill(proxy_pid, SIGKILL);
        waitpid(proxy_pid, NULL, 0);
    }
    kit_close();
    for (i = 0; i < SERVERS; i++) {
        server_stop(&all[i]);
        server_stop(&others[i]);
    }
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    engine.clears();
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    clients_end();
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        TEST(leader_that_is_killed_ends_no_hold),
        TEST(one_of_three_away_is_no_reason_to_give_up),
        TEST(server_that_stands_still_is_left_in_time),
        TEST(follower_that_is_cut_off_makes_no_hold_longer),
        TEST(servers_without_a_majority_grant_nothing),
        TEST(process_that_stands_still_is_notified_when_it_wakes),
        TEST(no_call_of_the_loop_has_blocked),
    };
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("zookeeper_ensemble", tests, group_begins, group_ends);
}
