/* suite.h - what every store must do (tests/store.h), on an engine and on each loop
 *
 *     <engine>_suite [TEST [LOOP]]
 *
 * Included after the engine's kit.
 */

#ifndef TESTS_ENGINES_SUITE_H
#define TESTS_ENGINES_SUITE_H

#include "loops.h"
#include "rlock_elect.h"
#include "store.h"

static struct {
    rlock_store *store;
    size_t live; /* blocks, before a test */
} suite;

static void suite_begins(rlock_config *config) {
    char url[256];
    engine.clears();
    engine.writes_url(url, false, false);
    suite.live = virtual_memory.live;
    loop = loop_kind->make();
    assert_non_null(loop);
    config->loop = loop_kind->hooks(loop);
    IS(engine.makes(&suite.store, url), RLOCK_OK);
    config->store = suite.store;
}

static void suite_ends(void) {
    engine.forgets(suite.store);
    loop_kind->end(loop);
    IS(virtual_memory.live, suite.live);
}

static int suite_group_begins(void **state) {
    static struct store_row its = {NULL,       suite_begins, suite_ends, loop_passes,
                                   loop_clock, true,         true};
    (void)state;
    its.name = engine.name;
    row = &its;
    polled = engine.polls;
    cuts_untold = true;
    untimed = single_keys = engine.of_sessions;
    return engine.starts();
}

static int suite_group_ends(void **state) {
    (void)state;
    engine.stops();
    return 0;
}

int main(int argc, char **argv) {
    static const struct CMUnitTest of_all[] = {STORE_MUTEX, STORE_FENCES, STORE_KINDS, STORE_KEYS};
    static const struct CMUnitTest of_single[] = {STORE_MUTEX, STORE_FENCES, STORE_KINDS};
    size_t i;
    int failed = 0;
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    for (i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        loop_kind = &loops[i];
        if (argc > 2 && strcmp(argv[2], loops[i].name) != 0) {
            continue;
        }
        failed += engine.of_sessions
                      ? cmocka_run_group_tests_name(loops[i].name, of_single, suite_group_begins,
                                                    suite_group_ends)
                      : cmocka_run_group_tests_name(loops[i].name, of_all, suite_group_begins,
                                                    suite_group_ends);
    }
    return failed;
}

#endif
