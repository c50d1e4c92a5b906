/* zookeeper_suite.c - what every store must do, on ZooKeeper and on each loop: tests/store.h
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include "../../stores/rlock_zookeeper.h"
#include "loops.h"
#include "rlock_elect.h"
#include "store.h"
#include "zookeeper.h"

/* --- the world --- */

static struct {
    struct server server;
    int test;
    rlock_store *store;
    size_t live; /* blocks, before a test */
} g;

static void begins(rlock_config *config) {
    char url[192]; /* with no keys of the test before */
    snprintf(url, sizeof url, "%s%d?session_ms=%d&tick_ms=%d", g.server.url, g.test++,
             ZOOKEEPER_SESSION_MS, ZOOKEEPER_TICK_MS);
    g.live = virtual_memory.live;
    loop = loop_kind->make();
    assert_non_null(loop);
    config->loop = loop_kind->hooks(loop);
    IS(rlock_zookeeper_new(&g.store, url), RLOCK_OK);
    config->store = g.store;
}

static void ends_all(void) {
    rlock_zookeeper_free(g.store);
    loop_kind->end(loop);
    IS(virtual_memory.live, g.live);
}

static const struct store_row zookeeper = {"zookeeper", begins, ends_all, loop_passes,
                                           loop_clock,  true,   true};

static int group_begins(void **state) {
    (void)state;
    row = &zookeeper;
    untimed = single_keys = true;
    return zookeeper_start(&g.server);
}

static int group_ends(void **state) {
    (void)state;
    server_stop(&g.server);
    return 0;
}

/* With one argument, the tests of that name; with another one, on this loop alone. */
int main(int argc, char **argv) {
    static const struct CMUnitTest of_all[] = {STORE_MUTEX, STORE_FENCES, STORE_KINDS};
    size_t i;
    int failed = 0;
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    for (i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        loop_kind = &loops[i];
        if (argc < 3 || strcmp(argv[2], loops[i].name) == 0) {
            failed += cmocka_run_group_tests_name(loops[i].name, of_all, group_begins, group_ends);
        }
    }
    return failed;
}
