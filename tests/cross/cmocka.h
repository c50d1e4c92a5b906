/* cmocka.h - as much of cmocka as the unit, memory and storm suites use, for tools/cross
 *
 * cmocka is not there for the machines of tools/cross, so that their programs find this file
 * instead of the real one. It runs each test with its setup and teardown, says which failed, ends
 * with the line "N tests, N failed", and returns non-zero if one did. What it lacks does not
 * compile. tools/cross proves first that a test can fail here.
 */

#ifndef CROSS_CMOCKA_H
#define CROSS_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};

#define cmocka_unit_test(test) \
    { #test, test, NULL, NULL, NULL }
#define cmocka_unit_test_setup_teardown(test, setup, teardown) \
    { #test, test, setup, teardown, NULL }

static jmp_buf *cross_test; /* where a failed check goes back to; NULL = no test runs */

#define print_message printf
#define print_error(...) ((void)fprintf(stderr, __VA_ARGS__))

__attribute__((noreturn)) static inline void _fail(const char *file, int line) {
    print_error("%s:%d: failed\n", file, line);
    if (cross_test == NULL) {
        exit(1);
    }
    longjmp(*cross_test, 1);
}

static inline void cross_check(int good, const char *what, const char *file, int line) {
    if (!good) {
        print_error("not so: %s\n", what);
        _fail(file, line);
    }
}

#define CROSS_CHECK(good) cross_check((good) ? 1 : 0, #good, __FILE__, __LINE__)

static inline int cross_within(uintmax_t x, uintmax_t low, uintmax_t high) {
    return x >= low && x <= high;
}

#define fail() _fail(__FILE__, __LINE__)
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), fail())

#define assert_true(x) CROSS_CHECK(x)
#define assert_false(x) CROSS_CHECK(!(x))
#define assert_null(x) CROSS_CHECK((x) == NULL)
#define assert_non_null(x) CROSS_CHECK((x) != NULL)
#define assert_int_equal(a, b) CROSS_CHECK((a) == (b))
#define assert_in_range(x, low, high) \
    CROSS_CHECK(cross_within((uintmax_t)(x), (uintmax_t)(low), (uintmax_t)(high)))
#define assert_ptr_equal(a, b) CROSS_CHECK((const void *)(a) == (const void *)(b))
#define assert_string_equal(a, b) CROSS_CHECK(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, size) CROSS_CHECK(memcmp(a, b, size) == 0)

enum cross_part { CROSS_SETUP, CROSS_TEST, CROSS_TEARDOWN };

static inline int cross_good(const struct CMUnitTest *test, enum cross_part part, void **state) {
    jmp_buf back;
    int status = 0;
    if (setjmp(back) != 0) {
        cross_test = NULL;
        return 0;
    }
    cross_test = &back;
    switch (part) {
    case CROSS_SETUP: status = test->setup_func == NULL ? 0 : test->setup_func(state); break;
    case CROSS_TEST: test->test_func(state); break;
    case CROSS_TEARDOWN:
        status = test->teardown_func == NULL ? 0 : test->teardown_func(state);
        break;
    }
    cross_test = NULL;
    return status == 0;
}

static const char *cross_filter; /* the only test to run; NULL = all */

static inline void cmocka_set_test_filter(const char *name) {
    cross_filter = name;
}

/* A teardown follows each setup that worked, as in cmocka. */
static inline int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests,
                                          size_t count, CMFixtureFunction setup,
                                          CMFixtureFunction teardown) {
    size_t i;
    unsigned long run = 0;
    int failed = 0;
    if (setup != NULL || teardown != NULL) {
        print_error("%s: no fixture of a group here\n", name);
        return 1;
    }
    for (i = 0; i < count; i++) {
        void *state = tests[i].initial_state;
        int good;
        if (cross_filter != NULL && strcmp(cross_filter, tests[i].name) != 0) {
            continue;
        }
        run++;
        good = cross_good(&tests[i], CROSS_SETUP, &state);
        if (good) {
            good = cross_good(&tests[i], CROSS_TEST, &state);
            good = cross_good(&tests[i], CROSS_TEARDOWN, &state) && good;
        }
        if (!good) {
            print_error("%s: %s failed\n", name, tests[i].name);
            failed++;
        }
        fflush(NULL); /* a fork must not print it again */
    }
    print_message("%lu tests, %d failed\n", run, failed);
    return failed != 0;
}

#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
    _cmocka_run_group_tests(name, tests, sizeof tests / sizeof tests[0], setup, teardown)

#endif /* CROSS_CMOCKA_H */
