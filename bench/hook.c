/* What does the hook config.on_event cost? Pairs of acquire and release in the process, so that
 * nothing but the library is measured: without a hook, with one that does nothing, with metrics.
 * bench/no_hook.c is the same program where the code of the hook is left out. */
#include "bench.h"

#include "rlock_metrics.h"

#define ROUND 20000 /* pairs in a row */
#define ROUNDS 30   /* of each way, in turn: the quickest counts, for nothing made it slower */

enum { UNUSED, EMPTY, METRICS, WAYS };

static int left;
static rlock_metrics metrics;

static void on_acquired(rlock *lock, const rlock_event *event, void *user);

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    if (--left > 0) {
        rlock_acquire(lock, 0, 0, on_acquired, user);
    } else {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    rlock_release(lock, on_released, user);
}

static void nothing(void *user, const rlock_report *report) {
    (void)user, (void)report;
}

static rlock *lock_of(rlock_store *store, int way) {
    static rlock_client *clients[WAYS];
    rlock_config config;

    memset(&config, 0, sizeof config);
    config.loop = rlock_libev_loop(EV_DEFAULT);
    config.store = store;
    config.on_event = way == EMPTY ? nothing : way == METRICS ? rlock_metrics_report : NULL;
    config.event_user = &metrics;
    if (rlock_client_new(&clients[way], &config) != RLOCK_OK) {
        bench_fail("no client");
    }
    return bench_lock(clients[way],
                      way == EMPTY     ? "empty"
                      : way == METRICS ? "metrics"
                                       : "unused",
                      NULL, NULL);
}

int main(int argc, char **argv) {
#if !RLOCK__HAS_REPORTS
    static const char *const names[WAYS] = {"hook.left_out", NULL, NULL};
#else
    static const char *const names[WAYS] = {"hook.unused", "hook.empty", "hook.metrics"};
#endif
    double quickest[WAYS] = {1e9, 1e9, 1e9};
    rlock *locks[WAYS];
    rlock_store *store;
    int round, way;

    bench_arguments(argc, argv);
    bench_pin(1);
    rlock_metrics_init(&metrics, NULL);
    if (rlock_memory_new(&store) != RLOCK_OK) {
        bench_fail("no store");
    }
    for (way = 0; way < WAYS && names[way] != NULL; way++) {
        locks[way] = lock_of(store, way);
    }
    for (round = 0; round < (bench_quick ? 2 : ROUNDS); round++) {
        for (way = 0; way < WAYS && names[way] != NULL; way++) {
            int64_t start_ns = bench_cpu_ns();
            double ns;

            left = ROUND;
            rlock_acquire(locks[way], 0, 0, on_acquired, NULL);
            ev_run(EV_DEFAULT, 0);
            ns = (double)(bench_cpu_ns() - start_ns) / ROUND;
            quickest[way] = ns < quickest[way] ? ns : quickest[way];
        }
    }
    for (way = 0; way < WAYS && names[way] != NULL; way++) {
        bench_line(names[way], "pair", quickest[way], "ns");
    }
    return 0;
}
