/* postgres_suite.c - what every store must do, on PostgreSQL and on each loop: tests/store.h
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include "../../stores/rlock_postgres.h"
#include "postgres.h"
#include "loops.h"
#include "rlock_elect.h"
#include "store.h"

/* --- the world --- */

static struct {
    struct server server;
    PGconn *hand; /* the administrator's */
    rlock_store *store;
    size_t live; /* blocks, before a test */
} g;

static void begins(rlock_config *config) {
    PQclear(PQexec(g.hand, "TRUNCATE rlock.keys, rlock.members"));
    g.live = virtual_memory.live;
    loop = loop_kind->make();
    assert_non_null(loop);
    config->loop = loop_kind->hooks(loop);
    IS(rlock_postgres_new(&g.store, g.server.url, 0), RLOCK_OK);
    config->store = g.store;
}

static void ends_all(void) {
    rlock_postgres_free(g.store);
    loop_kind->end(loop);
    IS(virtual_memory.live, g.live);
}

static const struct store_row postgres = {"postgres", begins, ends_all, loop_passes,
                                          loop_clock, true,   true};

static int group_begins(void **state) {
    (void)state;
    row = &postgres;
    if (postgres_start(&g.server) != 0 ||
        postgres_installs(&g.server, "stores/rlock_postgres.sql") != 0) {
        return -1;
    }
    g.hand = PQconnectdb(g.server.url);
    return PQstatus(g.hand) == CONNECTION_OK ? 0 : -1;
}

static int group_ends(void **state) {
    (void)state;
    PQfinish(g.hand);
    server_stop(&g.server);
    return 0;
}

/* With one argument, the tests of that name; with another one, on this loop alone. */
int main(int argc, char **argv) {
    static const struct CMUnitTest of_all[] = {STORE_MUTEX, STORE_FENCES, STORE_KINDS, STORE_KEYS};
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
