/* What the benchmark programs share: rlock itself, clocks, processors, percentiles, counted memory,
 * a private server. Every program prints lines `name value unit`; tools/bench makes ratios of them.
 *
 * Their arguments: --quick, small sizes for a smoke test; --few, the main figures only; --turn N,
 * which repetition it is: every second one has its contenders in the other order. */
#ifndef RLOCK_BENCH_H
#define RLOCK_BENCH_H

#include <stdint.h>
#include <stdlib.h>

static uint64_t bench_own_allocations; /* by rlock */
static void *bench_malloc(size_t size);
#define RLOCK_MALLOC(n) bench_malloc(n)
#define RLOCK_FREE(p) free(p)
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <ev.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rlock_libev.h"
#include "server.h"

/* ------------------------------------------------------------------------------------------------
 * Memory: every allocation of the process is counted, whoever makes it
 */

static uint64_t bench_allocations;

#ifdef __GLIBC__
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);

void *malloc(size_t size) {
    bench_allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    bench_allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    bench_allocations++;
    return __libc_realloc(memory, size);
}
#else
#error "the benchmark counts allocations by glibc's second names for malloc"
#endif

static void *bench_malloc(size_t size) {
    bench_own_allocations++;
    return malloc(size);
}

/* ------------------------------------------------------------------------------------------------
 * Time and processors
 */

static inline int64_t bench_clock_ns(clockid_t clock) {
    struct timespec t;

    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t bench_now_ns(void) {
    return bench_clock_ns(CLOCK_MONOTONIC);
}

static inline int64_t bench_cpu_ns(void) {
    return bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

static inline int64_t bench_server_cpu_ns(const struct server *s) {
    clockid_t clock;

    return clock_getcpuclockid(s->pid, &clock) == 0 ? bench_clock_ns(clock) : 0;
}

/* The server and its clients have a processor each, if there are two. */
static inline void bench_pin(unsigned place) {
    cpu_set_t all, one;
    size_t i;

    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) >= 2) {
        for (i = 0; i < CPU_SETSIZE; i++) {
            if (CPU_ISSET(i, &all) && place-- == 0) {
                CPU_SET(i, &one);
                sched_setaffinity(0, sizeof one, &one);
                return;
            }
        }
    }
}

static inline void bench_fail(const char *what) {
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static inline void bench_server_as(struct server *s, const char *args[]) {
    static cpu_set_t all;

    signal(SIGPIPE, SIG_IGN);
    sched_getaffinity(0, sizeof all, &all);
    bench_pin(0); /* what it starts stays there */
    s->port = server_free_port();
    if (server_start(s, args) != 0) {
        bench_fail("no server");
    }
    sched_setaffinity(0, sizeof all, &all);
    bench_pin(1);
}

static inline void bench_server(struct server *s) {
    const char *args[] = {"--maxclients", "1000", NULL};

    bench_server_as(s, args);
}

/* ------------------------------------------------------------------------------------------------
 * Samples: nanoseconds, sorted once when they are asked for
 */

#define BENCH_SAMPLES_MAX 1000000

struct bench_samples {
    uint32_t count;
    uint32_t ns[BENCH_SAMPLES_MAX];
};

static inline void bench_sample(struct bench_samples *s, int64_t ns) {
    if (s->count < BENCH_SAMPLES_MAX) {
        s->ns[s->count++] = ns < 0 ? 0 : ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
    }
}

static inline int bench_by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static inline void bench_sort(struct bench_samples *s) {
    qsort(s->ns, s->count, sizeof s->ns[0], bench_by_size);
}

/* In microseconds; of sorted samples. */
static inline double bench_percentile(const struct bench_samples *s, double percent) {
    double place = (double)s->count * percent / 100;

    return s->count == 0 ? 0. : s->ns[place < s->count ? (uint32_t)place : s->count - 1] / 1e3;
}

static inline void bench_line(const char *what, const char *figure, double value,
                              const char *unit) {
    printf("%s.%s %.6g %s\n", what, figure, value, unit);
    fflush(stdout);
}

/* ------------------------------------------------------------------------------------------------
 * Arguments and loops
 */

static bool bench_quick, bench_few;
static int bench_turn;

static inline void bench_arguments(int argc, char **argv) {
    int i;

    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            bench_quick = true;
        } else if (strcmp(argv[i], "--few") == 0) {
            bench_few = true;
        } else if (strcmp(argv[i], "--turn") == 0 && i + 1 < argc) {
            bench_turn = atoi(argv[++i]);
        } else {
            bench_fail("arguments: [--quick] [--few] [--turn N]");
        }
    }
}

static inline void bench_on_time(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)timer, (void)revents;
    ev_break(loop, EVBREAK_ALL);
}

static inline void bench_run(double seconds) {
    ev_timer timer;

    ev_now_update(EV_DEFAULT);
    ev_timer_init(&timer, bench_on_time, seconds, 0.);
    ev_timer_start(EV_DEFAULT, &timer);
    ev_run(EV_DEFAULT, 0);
    ev_timer_stop(EV_DEFAULT, &timer);
}

static int bench_replicas;        /* config.replicas of the next clients */
static const char *bench_cluster; /* config.cluster of the next clients; NULL = none */

static inline rlock_client *bench_client(const struct server *s, bool tcp, int64_t lease_ms) {
    rlock_config config;
    rlock_client *client;

    memset(&config, 0, sizeof config);
    config.loop = rlock_libev_loop(EV_DEFAULT);
    config.cluster = bench_cluster;
    config.unix_path = tcp || bench_cluster ? NULL : s->socket;
    config.port = tcp && !bench_cluster ? s->port : 0;
    config.watchdog_lease_ms = lease_ms;
    config.replicas = bench_replicas;
    if (rlock_client_new(&client, &config) != RLOCK_OK) {
        bench_fail("no client");
    }
    return client;
}

static inline rlock *bench_lock(rlock_client *client, const char *key, rlock_callback *on_lost,
                                void *user) {
    rlock_options options;
    rlock *lock;

    memset(&options, 0, sizeof options);
    options.key = key;
    options.on_lost = on_lost;
    options.user = user;
    if (rlock_new(&lock, client, &options) != RLOCK_OK) {
        bench_fail("no handle");
    }
    return lock;
}

#endif
