/* measured.h - kit.h with a loop that measures how long each of its calls computes, and whether it
 * slept, which means that it has blocked. A processor that others have meanwhile does not count.
 *
 * Included after rlock.h, instead of kit.h.
 */

#ifndef TESTS_ENGINES_MEASURED_H
#define TESTS_ENGINES_MEASURED_H

#include <sys/resource.h>
#include <time.h>

#define LATE_US 20000 /* ten times what a turn of the loop may take at most */

static int64_t longest_us, longest_sleep_us; /* of a call that slept, all that it took */
static long slept;
static int64_t call_begun_us, call_began_us;
static long call_sleeps;

static long sleeps(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static int64_t clock_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void call_begins(void) {
    call_sleeps = sleeps();
    call_began_us = clock_of(CLOCK_MONOTONIC);
    call_begun_us = clock_of(CLOCK_THREAD_CPUTIME_ID);
}

static void call_ends(void) {
    int64_t took_us = clock_of(CLOCK_THREAD_CPUTIME_ID) - call_begun_us;
    int64_t passed_us = clock_of(CLOCK_MONOTONIC) - call_began_us;
    longest_us = took_us > longest_us ? took_us : longest_us;
    if (sleeps() > call_sleeps) {
        slept += sleeps() - call_sleeps;
        longest_sleep_us = passed_us > longest_sleep_us ? passed_us : longest_sleep_us;
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

/* The last test of a suite. Now and then a call waits for the mutex of the thread that resolves
 * names; one that blocks would do it at each connection, or for long. */
static void no_call_of_the_loop_has_blocked(void **state) {
    (void)state;
    printf("# the longest call computed for %.2f ms; calls slept %ld times, at most for %.2f ms\n",
           (double)longest_us / 1000, slept, (double)longest_sleep_us / 1000);
    assert_in_range(slept, 0, 12);
    assert_true(longest_sleep_us < LATE_US);
    assert_true(longest_us < LATE_US);
}

#endif
