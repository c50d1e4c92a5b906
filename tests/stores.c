/* stores.c - what every store must do, on each of them: tests/store.h
 *
 * The store in the process, one made of two of these, and that of rlock_testing.h run in virtual
 * time, the others on real clocks: Redis on both wires, a quorum of three servers, the example of a
 * store of one's own, and a cluster of one node.
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include <sched.h>
#include <sys/wait.h>

#include "../examples/file_store.h"
#include "rlock_elect.h"
#include "rlock_poll.h"
#include "rlock_testing.h"
#include "server.h"
#include "shard.h"
#include "store.h"

#define SERVERS 3

static struct {
    struct server servers[SERVERS];
    redisContext *hands[SERVERS]; /* the administrator's */
    rlock_poll *loop;
    struct virtual_loop virtual_loop;
    rlock_testing *testing;
    rlock_store *store;
    rlock_store *halves[2]; /* of one made of two */
    size_t live;            /* blocks, before a test */
    char folder[96];
} g;

/* --- time --- */

static void virtual_passes(int64_t ms) {
    virtual_run_ms(&g.virtual_loop, ms);
}

static int64_t virtual_clock(void) {
    return g.virtual_loop.now_us;
}

static void testing_passes(int64_t ms) {
    rlock_testing_pass(g.testing, ms);
}

static int64_t testing_clock(void) {
    return rlock_testing_now_ms(g.testing) * 1000;
}

static int64_t real_clock(void) {
    return RLOCK_NOW_US();
}

static void real_passes(int64_t ms) {
    int64_t end_us = real_clock() + ms * 1000;
    while (real_clock() < end_us) {
        if (!rlock_poll_once(g.loop, 1)) {
            server_sleep_ms(1);
        }
    }
}

/* --- how each is made --- */

static void memory_begins(rlock_config *config) {
    virtual_begin(&g.virtual_loop);
    config->loop = virtual_hooks(&g.virtual_loop);
    IS(rlock_memory_new(&g.store), RLOCK_OK);
    config->store = g.store;
}

static void memory_ends(void) {
    rlock_memory_free(g.store);
    virtual_end(&g.virtual_loop);
}

static void both_begins(rlock_config *config) {
    rlock_config halves[2];
    int i;
    virtual_begin(&g.virtual_loop);
    config->loop = virtual_hooks(&g.virtual_loop);
    memset(halves, 0, sizeof halves);
    for (i = 0; i < 2; i++) {
        IS(rlock_memory_new(&g.halves[i]), RLOCK_OK);
        halves[i].store = g.halves[i];
    }
    IS(rlock_both_new(&g.store, &halves[0], &halves[1]), RLOCK_OK);
    config->store = g.store;
}

static void both_ends(void) {
    int i;
    rlock_both_free(g.store);
    for (i = 0; i < 2; i++) {
        rlock_memory_free(g.halves[i]);
    }
    virtual_end(&g.virtual_loop);
}

static void testing_begins(rlock_config *config) {
    g.live = virtual_memory.live;
    g.testing = rlock_testing_new(NULL);
    assert_non_null(g.testing);
    config->loop = rlock_testing_loop(g.testing);
    config->store = rlock_testing_store(g.testing);
}

static void testing_ends(void) {
    rlock_testing_free(g.testing);
    IS(virtual_memory.live, g.live);
}

static void real_begins(rlock_config *config) {
    int i;
    g.store = NULL;
    g.live = virtual_memory.live;
    g.loop = rlock_poll_new();
    assert_non_null(g.loop);
    config->loop = rlock_poll_loop(g.loop);
    for (i = 0; i < SERVERS; i++) {
        redisReply *reply = (redisReply *)redisCommand(g.hands[i], "FLUSHALL");
        assert_non_null(reply);
        freeReplyObject(reply);
    }
}

static void real_ends(void) {
    rlock_poll_free(g.loop);
    IS(virtual_memory.live, g.live);
}

static void string_begins(rlock_config *config) {
    real_begins(config);
    config->unix_path = g.servers[0].socket;
}

static void redisson_begins(rlock_config *config) {
    string_begins(config);
    config->wire = RLOCK_WIRE_REDISSON;
}

static void quorum_begins(rlock_config *config) {
    rlock_config nodes[SERVERS];
    int i;
    real_begins(config);
    memset(nodes, 0, sizeof nodes);
    for (i = 0; i < SERVERS; i++) {
        nodes[i].unix_path = g.servers[i].socket;
    }
    IS(rlock_quorum_new(&g.store, nodes, SERVERS), RLOCK_OK);
    config->store = g.store;
}

static void quorum_ends(void) {
    rlock_quorum_free(g.store);
    real_ends();
}

/* One node has all slots: what every store must do, with its requests routed. */
static void cluster_begins(rlock_config *config) {
    rlock_config seed;
    real_begins(config);
    memset(&seed, 0, sizeof seed);
    seed.port = g.servers[0].port;
    IS(rlock_cluster_new(&g.store, &seed, 1), RLOCK_OK);
    config->store = g.store;
}

static void cluster_ends(void) {
    rlock_cluster_free(g.store);
    real_ends();
}

static void file_begins(rlock_config *config) {
    real_begins(config);
    snprintf(g.folder, sizeof g.folder, "%s/files-XXXXXX", g.servers[0].dir);
    assert_non_null(mkdtemp(g.folder));
    IS(file_store_new(&g.store, g.folder), RLOCK_OK);
    config->store = g.store;
}

static void file_ends(void) {
    file_store_free(g.store);
    real_ends(); /* the folder goes with that of the server */
}

static const struct store_row memory = {"memory",      memory_begins, memory_ends, virtual_passes,
                                        virtual_clock, true,          true};
static const struct store_row both = {"both",        both_begins, both_ends, virtual_passes,
                                      virtual_clock, true,        false};
static const struct store_row testing = {
    "testing", testing_begins, testing_ends, testing_passes, testing_clock, true, true};
static const struct store_row string = {"redis",    string_begins, real_ends, real_passes,
                                        real_clock, true,          true};
static const struct store_row redisson = {
    "redisson", redisson_begins, real_ends, real_passes, real_clock, true, false};
static const struct store_row quorum = {"quorum",   quorum_begins, quorum_ends, real_passes,
                                        real_clock, false,         false};
static const struct store_row cluster = {"cluster",  cluster_begins, cluster_ends, real_passes,
                                         real_clock, true,           true};
static const struct store_row file = {"file",     file_begins, file_ends, real_passes,
                                      real_clock, true,        false};

static int group_begins(const struct store_row *which) {
    int i;
    row = which;
    for (i = 0; i < SERVERS && which->now_us == real_clock; i++) {
        if (server_start(&g.servers[i], NULL) != 0) {
            return -1;
        }
        g.hands[i] = redisConnectUnix(g.servers[i].socket);
        if (g.hands[i] == NULL || g.hands[i]->err) {
            return -1;
        }
    }
    return 0;
}

static int group_ends(void **state) {
    int i;
    (void)state;
    for (i = 0; i < SERVERS && g.hands[i] != NULL; i++) {
        redisFree(g.hands[i]);
        server_stop(&g.servers[i]);
        g.hands[i] = NULL;
    }
    return 0;
}

#define GROUP(store)                                \
    static int store##_group_begins(void **state) { \
        (void)state;                                \
        return group_begins(&store);                \
    }

GROUP(memory)
GROUP(both)
GROUP(testing)
GROUP(string)
GROUP(redisson)
GROUP(quorum)
GROUP(file)

static bool cluster_is_whole(void) {
    redisReply *reply = (redisReply *)redisCommand(g.hands[0], "CLUSTER INFO");
    bool whole = reply != NULL && strstr(reply->str, "cluster_state:ok") != NULL;
    freeReplyObject(reply);
    return whole;
}

static int cluster_group_begins(void **state) {
    static char port[8];
    static const char *args[] = {"--cluster-enabled", "yes", "--cluster-port", port, NULL};
    redisReply *reply;
    int tries = 0;
    (void)state;
    snprintf(port, sizeof port, "%d", server_free_port());
    g.servers[0].port = server_free_port();
    if (group_begins(&cluster) != 0) {
        return -1;
    }
    redisFree(g.hands[0]);
    server_stop(&g.servers[0]);
    if (server_start(&g.servers[0], args) != 0) {
        return -1;
    }
    g.hands[0] = redisConnectUnix(g.servers[0].socket);
    reply = (redisReply *)redisCommand(g.hands[0], "CLUSTER ADDSLOTSRANGE 0 16383");
    freeReplyObject(reply);
    while (!cluster_is_whole() && tries++ < 1000) {
        server_sleep_ms(10);
    }
    return cluster_is_whole() ? 0 : -1;
}

/* Opening, asking for the map and the key, and letting go: without memory for one thing each. */
static void every_failing_allocation_of_a_cluster_is_survived(void **state) {
    int n, granted = 0;
    (void)state;
    for (n = 1; n < 200; n++) {
        rlock_config config;
        rlock_client *client = NULL;
        bool failed;
        memset(&config, 0, sizeof config);
        memset(&w, 0, sizeof w);
        cluster_begins(&config);
        virtual_memory.failed = false;
        virtual_memory.fail_at = (uint64_t)n;
        if (rlock_client_new(&client, &config) == RLOCK_OK) {
            struct hand *one = &w.hands[w.hand_count++];
            rlock_options options = want("k", RLOCK_KIND_FAIR);
            if (rlock_new(&one->lock, client, &options) == RLOCK_OK &&
                rlock_acquire(one->lock, 2000, 2000, on_hand, one) == RLOCK_OK) {
                int status = ends(one, RLOCK_ACQUIRED, 0);
                assert_true(status == RLOCK_OK || status == RLOCK_ERR_NOMEM ||
                            status == RLOCK_ERR_CONN);
                granted += status == RLOCK_OK;
                if (status == RLOCK_OK) {
                    lets_go(one);
                }
            }
            rlock_free(one->lock);
        }
        failed = virtual_memory.failed;
        virtual_memory.fail_at = 0;
        rlock_client_free(client);
        cluster_ends();
        if (!failed) {
            break;
        }
    }
    WITHIN(n, 20, 199);
    assert_true(granted > 3); /* it was tried again */
}

/* --- the files --- */

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define NO_NAMESPACE 99

static void on_status(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    *(int *)user = -event->status;
}

/* Tries to acquire, in files, with a client that goes on. Returns the status with its sign taken
 * away. */
static int files_tried(rlock_client **client, rlock **lock) {
    rlock_config config;
    rlock_options options = want("k", RLOCK_KIND_MUTEX);
    int status = -1;
    memset(&config, 0, sizeof config);
    config.loop = rlock_poll_loop(g.loop);
    config.store = g.store;
    if (rlock_client_new(client, &config) != RLOCK_OK ||
        rlock_new(lock, *client, &options) != RLOCK_OK ||
        rlock_acquire(*lock, 0, 60000, on_status, &status) != RLOCK_OK) {
        return NO_NAMESPACE - 1;
    }
    while (status == -1) {
        real_passes(1);
    }
    return status;
}

/* The same in a process whose CLOCK_BOOTTIME is a day ahead, and which ends as if it was killed;
 * without a store only whether there may be one: NO_NAMESPACE. */
static int files_tried_ahead(void) {
    int status = 0;
    pid_t pid = fork(), inner;
    if (pid == 0) {
        FILE *offsets =
            unshare(CLONE_NEWTIME) == 0 ? fopen("/proc/self/timens_offsets", "w") : NULL;
        if (offsets == NULL || fprintf(offsets, "boottime 86400 0\n") < 0 || fclose(offsets) != 0) {
            _exit(NO_NAMESPACE);
        }
        inner = fork();
        if (inner == 0) {
            rlock_client *client;
            rlock *lock;
            virtual_seed ^= 86400; /* another client's id */
            g.loop = g.store != NULL ? rlock_poll_new() : NULL;
            _exit(g.store != NULL ? files_tried(&client, &lock) : 0);
        }
        status = inner > 0 && waitpid(inner, &status, 0) == inner ? status : 1 << 8;
        _exit(WEXITSTATUS(status));
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Containers may have such a clock each. A record that seems to be of another boot, or over, is
 * not. */
static void processes_whose_clocks_are_set_off_exclude_each_other(void **state) {
    rlock_config config;
    rlock_client *client = NULL;
    rlock *lock = NULL;
    (void)state;
    memset(&config, 0, sizeof config);
    file_begins(&config);
    IS(files_tried(&client, &lock), RLOCK_OK);
    IS(files_tried_ahead(), -RLOCK_ERR_BUSY); /* for that one its lease would be over */
    rlock_free(lock);
    rlock_client_free(client);
    IS(files_tried_ahead(), RLOCK_OK);
    IS(files_tried(&client, &lock), -RLOCK_ERR_BUSY); /* it would begin after now */
    rlock_free(lock);
    rlock_client_free(client);
    file_ends();
}

/* With one argument, the tests of that name; with another one, on this store alone. */
int main(int argc, char **argv) {
    static const struct CMUnitTest of_all[] = {STORE_MUTEX, STORE_FENCES, STORE_KINDS, STORE_KEYS};
    static const struct CMUnitTest of_mutexes[] = {STORE_MUTEX, STORE_FENCES};
    static const struct CMUnitTest without_fences[] = {STORE_MUTEX};
    static const struct CMUnitTest of_clusters[] = {
        STORE_MUTEX, STORE_FENCES, STORE_KINDS, STORE_KEYS,
        cmocka_unit_test(every_failing_allocation_of_a_cluster_is_survived)};
    static const struct CMUnitTest of_files[] = {
        STORE_MUTEX, STORE_FENCES,
        cmocka_unit_test(processes_whose_clocks_are_set_off_exclude_each_other)};
    int failed = 0;
    bool ahead = files_tried_ahead() == 0;
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
#define RUN(store, tests)                                  \
    failed += argc > 2 && strcmp(argv[2], store.name) != 0 \
                  ? 0                                      \
                  : shard_group(store.name, tests, store##_group_begins, group_ends)
    RUN(memory, of_all);
    RUN(both, of_mutexes);
    RUN(testing, of_all);
    RUN(string, of_all);
    RUN(redisson, of_mutexes);
    RUN(quorum, without_fences);
    if (ahead) {
        RUN(file, of_files);
    } else {
        RUN(file, of_mutexes);
        print_message("not applicable: processes_whose_clocks_are_set_off_exclude_each_other, no "
                      "time namespace may be made here\n");
    }
    RUN(cluster, of_clusters);
    return failed;
}
