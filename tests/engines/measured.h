/* measured.h - what the tests of a store of another engine measure, and the memory they refuse
 *
 * Included instead of rlock.h and kit.h. Around the header of the store its malloc and calloc are
 * those of here.
 */

#ifndef TESTS_ENGINES_MEASURED_H
#define TESTS_ENGINES_MEASURED_H

#include <stdlib.h>

/* The store asks for memory through these: a test says which wish is refused. */
static int wishes, refused_wish; /* 0 = none is */

static void *wish_malloc(size_t size) {
    return ++wishes == refused_wish ? NULL : malloc(size);
}

static void *wish_calloc(size_t n, size_t size) {
    return ++wishes == refused_wish ? NULL : calloc(n, size);
}

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <sys/resource.h>
#include <time.h>

/* The loop calls these: they measure how long a call computes, and whether it slept, which means
 * that it has blocked. A processor that others have meanwhile does not count. */
static int64_t longest_us;
static long slept;
static int64_t call_begun_us;
static long call_sleeps;

static long sleeps(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static int64_t computed_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void call_begins(void) {
    call_sleeps = sleeps();
    call_begun_us = computed_us();
}

static void call_ends(void) {
    int64_t took_us = computed_us() - call_begun_us;
    longest_us = took_us > longest_us ? took_us : longest_us;
    if (sleeps() != call_sleeps) {
        slept += sleeps() - call_sleeps;
        fprintf(stderr, "# a call slept\n");
    }
}

static void measured_io(rlock_io *io, unsigned events) {
    call_begins();
    rlock_on_io(io, events);
    call_ends();
}

static void measured_timer(rlock_client *client) {
    call_begins();
    rlock_on_timer(client);
    call_ends();
}

#define rlock_on_io measured_io
#define rlock_on_timer measured_timer
#include "kit.h"
#undef rlock_on_io
#undef rlock_on_timer

#define LATE_US 20000 /* ten times what a turn of the loop may take at most */

/* After all tests: what the loop was kept for. */
static void no_call_of_the_loop_has_blocked(void **state) {
    (void)state;
    printf("# the longest call computed for %.2f ms; calls slept %ld times\n",
           (double)longest_us / 1000, slept);
    assert_int_equal(slept, 0);
    assert_true(longest_us < LATE_US);
}

#endif
