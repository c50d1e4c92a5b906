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
 * means that it blocks. A processor that others have meanwhile does not count; nor do 2 ms: the
 * kernel has locks of its own, as for the list of addresses that getaddrinfo() asks for. A virtual
 * machine stands still now and then, in the middle of a call: so a few calls may seem to take as
 * long as it does, and none longer. */
#define ASLEEP_US 2000
#define LATE_US 20000   /* ten times what a turn of the loop may take at most */
#define STALLS 20       /* of the machine, during all tests of a program: of some 10,000 calls */
#define STALL_US 200000 /* how long one lasts; who waits for a silent server waits for longer */
static int64_t longest_us, longest_sleep_us;
static long slept, asleep, late;
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
    late += computed_us >= LATE_US ? 1 : 0;
    if (sleeps() > measured.sleeps) {
        slept++;
        asleep += sleep_us >= ASLEEP_US ? 1 : 0;
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

/* After all tests: what the loop was kept for. */
static void no_call_of_the_loop_has_blocked(void **state) {
    (void)state;
    printf("# the longest call computed for %.2f ms; %ld calls slept, at most for %.2f ms\n",
           (double)longest_us / 1000, slept, (double)longest_sleep_us / 1000);
    printf("# %ld calls slept for 2 ms or more, %ld computed for 20 ms or more\n", asleep, late);
    assert_true(asleep <= STALLS && longest_sleep_us < STALL_US);
    assert_true(late <= STALLS && longest_us < STALL_US);
}

#endif
