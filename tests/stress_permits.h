/* For tests/stress.c: a semaphore under pressure. Processes take permits, one or two at a time, and
 * are killed, stopped and started again, by dice. Each hold stands in memory that all share, with
 * the time in which its holder believes in it, by the clock that all of them have; a holder that is
 * killed or stopped believes until its deadline. At no time there is more inside than permits. */
#ifndef RLOCK_TESTS_STRESS_PERMITS_H
#define RLOCK_TESTS_STRESS_PERMITS_H

#include "kit.h"

#include <sys/mman.h>

#define PERMITS 5
#define PERMITS_WORKERS 4
#define PERMITS_HANDLES 12 /* a worker; each third one weighs two */
#define PERMITS_HOLDS 60000
#define PERMITS_PATIENCE_MS 20000

struct permits_hold {
    int64_t start_us, until_us, end_us; /* end 0: not released */
    int32_t weight;
};

struct permits_world {
    volatile int stop;
    volatile int lost, served[PERMITS_WORKERS];
    volatile int count[PERMITS_WORKERS];
    struct permits_hold hold[PERMITS_WORKERS][PERMITS_HOLDS];
};

struct permits_handle {
    rlock *lock;
    struct permits_hold *hold; /* while it holds */
    int64_t leave_us;
    int weight;
    bool waiting, leaving;
};

static struct server permits_server;
static struct permits_world *permits_world;
static struct permits_handle permits_handles[PERMITS_HANDLES];
static int permits_me;
static uint64_t permits_seed;

/* Under `below`, from 0. */
static int permits_dice(int below) {
    permits_seed = permits_seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((permits_seed >> 33) % (uint64_t)below);
}

/* ---- a worker ---- */

static void permits_ask(struct permits_handle *h);

static void permits_lost(rlock *lock, const rlock_event *event, void *user) {
    struct permits_handle *h = (struct permits_handle *)user;

    (void)lock, (void)event;
    __atomic_fetch_add(&permits_world->lost, 1, __ATOMIC_SEQ_CST);
    h->hold = NULL; /* it believed until its deadline, at most */
}

static void permits_told(rlock *lock, const rlock_event *event, void *user) {
    struct permits_handle *h = (struct permits_handle *)user;
    volatile int *count = &permits_world->count[permits_me];

    (void)lock;
    h->waiting = false;
    if (event->status != RLOCK_OK || *count == PERMITS_HOLDS) {
        return;
    }
    h->hold = &permits_world->hold[permits_me][*count];
    h->hold->weight = h->weight;
    h->hold->start_us = kit_now_us();
    h->hold->until_us = h->hold->start_us + event->remaining_ms * 1000;
    h->leave_us = h->hold->start_us + 1000 * permits_dice(permits_dice(8) == 0 ? 500 : 20);
    permits_world->served[permits_me]++;
    __atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST); /* now it counts */
}

static void permits_let_go(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event;
    ((struct permits_handle *)user)->leaving = false;
}

static void permits_ask(struct permits_handle *h) {
    int64_t lease_ms = permits_dice(2) == 0 ? 0 : 100 + permits_dice(300); /* 0: renewed */

    h->waiting = rlock_acquire(h->lock, 10000, lease_ms, permits_told, h) == RLOCK_OK;
}

/* Between two turns of the loop. True when the end was called and nobody is inside. */
static int permits_iteration(void *arg) {
    int i, busy = 0;

    (void)arg;
    for (i = 0; i < PERMITS_HANDLES; i++) {
        struct permits_handle *h = &permits_handles[i];
        int64_t now_us = kit_now_us(), left_us = rlock_remaining_ms(h->lock) * 1000;

        if (h->hold != NULL && left_us > 0) { /* it was renewed, perhaps */
            h->hold->until_us = now_us + left_us;
        }
        if (h->hold != NULL && now_us >= h->leave_us) {
            h->hold->end_us = kit_now_us();
            h->hold = NULL;
            h->leaving = rlock_release(h->lock, permits_let_go, h) == RLOCK_OK;
        } else if (h->hold == NULL && !h->waiting && !h->leaving && !permits_world->stop) {
            permits_ask(h);
        }
        busy += h->hold != NULL || h->waiting || h->leaving;
    }
    return permits_world->stop && busy == 0;
}

static int permits_worker_runs(int number) {
    rlock_config config;
    rlock_client *client;
    int i, done;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    permits_me = number;
    if (kit_open() != 0) {
        return 1;
    }
    config = kit_config(&permits_server);
    config.watchdog_lease_ms = 400;
    config.command_timeout_ms = 300;
    client = kit_client(&config);
    for (i = 0; client != NULL && i < PERMITS_HANDLES; i++) {
        struct permits_handle *h = &permits_handles[i];
        rlock_options options;

        memset(&options, 0, sizeof options);
        options.key = "permits";
        options.kind = RLOCK_KIND_SEMAPHORE;
        options.permits = PERMITS;
        h->weight = i % 3 == 0 ? 2 : 1;
        options.weight = (uint32_t)h->weight;
        options.on_lost = permits_lost;
        options.user = h;
        if (rlock_new(&h->lock, client, &options) != RLOCK_OK) {
            return 1;
        }
    }
    done = client != NULL && kit_until(permits_iteration, NULL, 10 * PERMITS_PATIENCE_MS);
    for (i = 0; i < PERMITS_HANDLES; i++) {
        rlock_free(permits_handles[i].lock);
    }
    rlock_client_free(client);
    return !done;
}

/* ---- the checker ---- */

struct permits_step {
    int64_t at_us;
    int32_t change;
};

static int permits_compare(const void *a, const void *b) {
    const struct permits_step *x = (const struct permits_step *)a;
    const struct permits_step *y = (const struct permits_step *)b;

    return x->at_us != y->at_us ? (x->at_us > y->at_us) - (x->at_us < y->at_us)
                                : (x->change > y->change) - (x->change < y->change);
}

/* The most that was inside at a time; -1: out of memory. */
static int permits_most(int *holds) {
    static const size_t room = 2 * PERMITS_WORKERS * PERMITS_HOLDS;
    struct permits_step *steps = (struct permits_step *)malloc(room * sizeof *steps);
    int inside = 0, most = 0, w, i;
    size_t n = 0, k;

    *holds = 0;
    for (w = 0; w < PERMITS_WORKERS && steps != NULL; w++) {
        for (i = 0; i < permits_world->count[w]; i++) {
            const struct permits_hold *h = &permits_world->hold[w][i];
            int64_t end_us = h->end_us != 0 && h->end_us < h->until_us ? h->end_us : h->until_us;

            if (end_us > h->start_us) {
                steps[n].at_us = h->start_us, steps[n++].change = h->weight;
                steps[n].at_us = end_us, steps[n++].change = -h->weight;
            }
            *holds += 1;
        }
    }
    if (steps == NULL) {
        return -1;
    }
    qsort(steps, n, sizeof *steps, permits_compare);
    for (k = 0; k < n; k++) {
        inside += steps[k].change;
        most = inside > most ? inside : most;
    }
    free(steps);
    return most;
}

/* ---- the conductor ---- */

static pid_t permits_start(int number) {
    pid_t pid;

    permits_seed += 77; /* each its own */
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        _exit(permits_worker_runs(number));
    }
    return pid;
}

/* By dice: kills one and starts it again, or stops one for longer or shorter than a lease. */
static void permits_pressure(pid_t *pid, int seconds, int *kills, int *stops) {
    int64_t end_us = kit_now_us() + seconds * (int64_t)1000000;

    while (kit_now_us() < end_us) {
        int victim = permits_dice(PERMITS_WORKERS);

        server_sleep_ms(20 + permits_dice(150));
        if (permits_dice(3) > 0) {
            kill(pid[victim], SIGKILL);
            waitpid(pid[victim], NULL, 0);
            pid[victim] = permits_start(victim);
            *kills += 1;
        } else {
            kill(pid[victim], SIGSTOP);
            server_sleep_ms(50 + permits_dice(700));
            kill(pid[victim], SIGCONT);
            *stops += 1;
        }
    }
}

/* What the dead have left runs out with its leases, and the line with its last asking. */
static bool permits_gone(void) {
    int64_t limit_us = kit_now_us() + PERMITS_PATIENCE_MS * 1000;

    while (num(ask(&permits_server, "DBSIZE")) != 0 && kit_now_us() < limit_us) {
        server_sleep_ms(5);
    }
    return num(ask(&permits_server, "DBSIZE")) == 0;
}

static int permits_run(int seconds, uint64_t seed) {
    int wrong = 0, kills = 0, stops = 0, holds, most, code, served[PERMITS_WORKERS], i;
    pid_t pid[PERMITS_WORKERS];

    permits_world =
        (struct permits_world *)mmap(NULL, sizeof *permits_world, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (permits_world == MAP_FAILED || server_start(&permits_server, NULL) != 0) {
        return 1;
    }
    permits_seed = seed;
    for (i = 0; i < PERMITS_WORKERS; i++) {
        pid[i] = permits_start(i);
    }
    permits_pressure(pid, seconds, &kills, &stops);
    for (i = 0; i < PERMITS_WORKERS; i++) { /* life goes on for all that are there */
        served[i] = permits_world->served[i];
    }
    for (i = 0; i < PERMITS_WORKERS; i++) {
        int64_t limit_us = kit_now_us() + PERMITS_PATIENCE_MS * 1000;

        while (permits_world->served[i] == served[i] && kit_now_us() < limit_us) {
            server_sleep_ms(1);
        }
        wrong += permits_world->served[i] == served[i];
    }
    permits_world->stop = 1;
    for (i = 0; i < PERMITS_WORKERS; i++) {
        wrong += waitpid(pid[i], &code, 0) != pid[i] || code != 0;
    }
    wrong += !permits_gone();
    most = permits_most(&holds);
    wrong += most != PERMITS || holds < 100; /* fewer would be no pressure */
    printf("permits: %d holds under %d kills and %d stops, %d lost, at most %d of %d inside, seed "
           "%llu, %d faults found\n",
           holds, kills, stops, permits_world->lost, most, PERMITS, (unsigned long long)seed,
           wrong);
    kit_hand_drop();
    server_stop(&permits_server);
    munmap(permits_world, sizeof *permits_world);
    return wrong;
}

#endif
