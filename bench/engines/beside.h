/* beside.h - pairs of one acquire and one release a second, by rlock beside calls made by hand
 *
 * For 1, 8 and 64 keys at once, in turn, so that both have the same machine: the median of so many
 * rounds, and of their ratios. Include it after the store.
 */
#ifndef BENCH_ENGINES_BESIDE_H
#define BENCH_ENGINES_BESIDE_H

#include "rlock_poll.h"

#define MOST 64
#define ROUNDS 25
#define ROUND_US 200000

static int64_t now_us(void) {
    return RLOCK_NOW_US();
}

static rlock_poll *loop;
static rlock_client *client;
static rlock *locks[MOST];
static long pairs;
static int out; /* keys for which something is in flight */
static bool stops;

static void on_released(rlock *lock, const rlock_event *event, void *user);

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    if (event->status != RLOCK_OK || rlock_release(lock, on_released, user) != RLOCK_OK) {
        fprintf(stderr, "bench: %s %s\n", rlock_strerror(event->status),
                event->text ? event->text : "");
        exit(1);
    }
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)event;
    pairs++;
    if (stops) {
        out--;
    } else {
        rlock_acquire(lock, 5000, 10000, on_acquired, user);
    }
}

static double by_rlock(int at_once) {
    int64_t start_us = now_us(), end_us = start_us + ROUND_US;
    int i;
    pairs = 0;
    stops = false;
    for (out = 0; out < at_once; out++) {
        rlock_acquire(locks[out], 5000, 10000, on_acquired, NULL);
    }
    while (now_us() < end_us) {
        rlock_poll_once(loop, 100);
    }
    stops = true;
    while (out > 0) {
        rlock_poll_once(loop, 100);
    }
    end_us = now_us();
    for (i = 0; i < 20; i++) {
        rlock_poll_once(loop, 1);
    }
    return (double)pairs * 1e6 / (double)(end_us - start_us);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Makes a client of the store, and a lock for each key. The keys are used once. */
static void beside_begins(const rlock_store *store) {
    rlock_config config;
    int i;
    loop = rlock_poll_new();
    memset(&config, 0, sizeof config);
    config.store = store;
    config.loop = rlock_poll_loop(loop);
    rlock_client_new(&client, &config);
    for (i = 0; i < MOST; i++) {
        char key[16];
        rlock_options options;
        memset(&options, 0, sizeof options);
        snprintf(key, sizeof key, "lock %02d", i);
        options.key = key;
        rlock_new(&locks[i], client, &options);
    }
    by_rlock(MOST);
}

/* Prints the table. `by_hand` takes the number of keys, and returns the pairs a second. */
static void beside_measures(double (*by_hand)(int at_once)) {
    static const int counts[] = {1, 8, 64};
    size_t c;
    int i;
    printf("| keys at once | `rlock`, pairs/s | by hand, pairs/s | ratio, least to most "
           "|\n|---:|---:|---:|---:|\n");
    for (c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        double ours[ROUNDS], hands[ROUNDS], ratios[ROUNDS];
        for (i = 0; i < ROUNDS; i++) {
            ours[i] = by_rlock(counts[c]);
            hands[i] = by_hand(counts[c]);
            ratios[i] = ours[i] / hands[i];
        }
        qsort(ours, ROUNDS, sizeof *ours, compare);
        qsort(hands, ROUNDS, sizeof *hands, compare);
        qsort(ratios, ROUNDS, sizeof *ratios, compare);
        printf("| %d | %.0f | %.0f | %.2f, %.2f to %.2f |\n", counts[c], ours[ROUNDS / 2],
               hands[ROUNDS / 2], ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
    }
}

static void beside_ends(void) {
    int i;
    for (i = 0; i < MOST; i++) {
        rlock_free(locks[i]);
    }
    rlock_client_free(client);
    rlock_poll_free(loop);
}

#endif
