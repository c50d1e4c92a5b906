/* shard.h - a suite in pieces: with RLOCK_TEST_SHARD=2/3 in the environment a program runs every
 * third of its tests, from the second on
 *
 * tools/run-tests runs the pieces side by side, where tests/suites says SHARDS=3. Without that
 * variable all tests are run.
 */

#ifndef TESTS_SHARD_H
#define TESTS_SHARD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Runs the tests of a group that are of this piece: its fixture too, unless there are none. Groups
 * of one program are counted through. Returns how many have failed. */
static inline int shard_run(const char *name, const struct CMUnitTest *tests, size_t count,
                            CMFixtureFunction begins, CMFixtureFunction ends) {
    static unsigned position;
    const char *said = getenv("RLOCK_TEST_SHARD");
    struct CMUnitTest *mine = (struct CMUnitTest *)calloc(count + 1, sizeof *mine);
    unsigned which = 1, of = 1;
    size_t i, kept = 0;
    int failed = 0;

    if (mine == NULL || (said != NULL && sscanf(said, "%u/%u", &which, &of) != 2) || of == 0) {
        fprintf(stderr, "no memory, or RLOCK_TEST_SHARD is not like 2/3\n");
        exit(2);
    }
    for (i = 0; i < count; i++) {
        if (position++ % of == which - 1) {
            mine[kept++] = tests[i];
        }
    }
    if (kept > 0) {
        failed = _cmocka_run_group_tests(name, mine, kept, begins, ends);
    }
    free(mine);
    return failed;
}

#define shard_group(name, tests, begins, ends) \
    shard_run(name, tests, sizeof(tests) / sizeof *(tests), begins, ends)

#endif /* TESTS_SHARD_H */
