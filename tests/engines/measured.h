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

static inline void *wish_malloc(size_t size) {
    return ++wishes == refused_wish ? NULL : malloc(size);
}

static inline void *wish_calloc(size_t n, size_t size) {
    return ++wishes == refused_wish ? NULL : calloc(n, size);
}

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The loop calls these: they measure how long a call computes, and for how long it sleeps, which
 * means that it blocks. A processor that others have meanwhile does not count; nor do 20 ms: the
 * kernel has locks of its own, as for the list of addresses that getaddrinfo() asks for, and a
 * virtual machine stands still now and then. A server that a test stops, and a name that hangs, do
 * not answer for ten times as long. */
#define ASLEEP_US 20000
static int64_t longest_us, longest_sleep_us;
static long slept;
static struct {
    int64_t us, computed_us, queued_us;
    long sleeps;
} measured;

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

/* For how long this thread was ready and had no processor. */
static int64_t queued_us(void) {
    static int fd = -1;
    char text[128] = "";
    long long ran, queued = 0;
    if (fd < 0) {
        fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    }
    return pread(fd, text, sizeof text - 1, 0) > 0 && sscanf(text, "%lld %lld", &ran, &queued) == 2
               ? queued / 1000
               : 0;
}

static void call_begins(void) {
    measured.sleeps = sleeps();
    measured.queued_us = queued_us();
    measured.computed_us = clock_of(CLOCK_THREAD_CPUTIME_ID);
    measured.us = clock_of(CLOCK_MONOTONIC);
}

static void call_ends(void) {
    int64_t us = clock_of(CLOCK_MONOTONIC) - measured.us;
    int64_t computed_us = clock_of(CLOCK_THREAD_CPUTIME_ID) - measured.computed_us;
    int64_t sleep_us = us - computed_us - (queued_us() - measured.queued_us);
    longest_us = computed_us > longest_us ? computed_us : longest_us;
    if (sleeps() > measured.sleeps) {
        slept++;
        longest_sleep_us = sleep_us > longest_sleep_us ? sleep_us : longest_sleep_us;
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

#define LATE_US 200000 /* with 2,000 waiters: ten times what the longest call computes for */

/* After all tests: what the loop was kept for. */
static void no_call_of_the_loop_has_blocked(void **state) {
    (void)state;
    printf("# the longest call computed for %.2f ms; %ld calls slept, at most for %.2f ms\n",
           (double)longest_us / 1000, slept, (double)longest_sleep_us / 1000);
    assert_true(longest_sleep_us < ASLEEP_US);
    assert_true(longest_us < LATE_US);
}

#endif
