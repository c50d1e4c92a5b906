/* measured.h - for suites of faults: memory that a test refuses, and a loop whose calls are measured
 *
 * Include it first, then the store with malloc and calloc as wish_malloc and wish_calloc.
 */

#ifndef TESTS_ENGINES_MEASURED_H
#define TESTS_ENGINES_MEASURED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The store asks for memory through these: a test says which wish is refused. */
static int wishes, refused_wish; /* 0 = none is */

static void *wish_malloc(size_t size) {
    return ++wishes == refused_wish ? NULL : malloc(size);
}

static inline void *wish_calloc(size_t n, size_t size) {
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
    slept += sleeps() - call_sleeps;
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

#endif
