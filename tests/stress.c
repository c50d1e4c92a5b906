/* Many handles, processes and locks at once; tests/chaos.c adds the faults.
 *
 *     stress                                   the short forms, as tests
 *     stress fight SECONDS                     1,000 handles in 4 processes for one key
 *     stress held LOCKS LEASE_MS SECONDS       that many locks kept alive by one process
 *     stress line WAITERS                      in each of 4 processes, in one line
 *     stress permits SECONDS                   a semaphore whose holders are killed and stopped
 *     stress moving SECONDS                    1,000 handles on a cluster whose slots move
 */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kit.h"
#include "shard.h"
#include "stress_queue.h"
#include "stress_permits.h"
#include "stress_cluster.h"

#define WORKERS 4
#define HANDLES 250    /* a worker */
#define DRAIN_MS 30000 /* after the end every waiter is still served */

static struct server server;

/* ------------------------------------------------------------------------------------------------
 * A worker: a process whose handles want the same key again and again. Each hold is written down
 * with the time in which its holder believes in it: from its callback to its release, or to the
 * loss, never beyond its deadline.
 */

struct hold {
    int64_t start_us, end_us;
    uint64_t fence;
    int32_t handle, worker;
};

struct fighter {
    rlock *lock;
    bool holding, waiting;
    int served;
    int64_t start_us, deadline_us, leave_us;
    uint64_t fence;
};

struct tally { /* what a worker's end says, through its file */
    int32_t granted, released, lost, refused;
};

static struct fighter fighters[HANDLES];
static struct fighter *inside[HANDLES]; /* those who hold now: one, if the lock is good */
static int inside_count;
static struct tally tally;
static FILE *book;
static int worker_number;
static int64_t stop_us;

static void wants(struct fighter *f);

static void leaves(struct fighter *f) {
    struct hold h;
    int64_t now = kit_now_us();
    int i;

    h.start_us = f->start_us;
    h.end_us = now < f->deadline_us ? now : f->deadline_us;
    h.fence = f->fence;
    h.handle = (int32_t)(f - fighters);
    h.worker = worker_number;
    fwrite(&h, sizeof h, 1, book);
    f->holding = false;
    for (i = 0; i < inside_count; i++) {
        if (inside[i] == f) {
            inside[i] = inside[--inside_count];
        }
    }
}

static void fighter_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event;
    tally.released++;
    wants((struct fighter *)user);
}

static void fighter_lost(rlock *lock, const rlock_event *event, void *user) {
    struct fighter *f = (struct fighter *)user;

    (void)lock, (void)event;
    tally.lost++;
    leaves(f);
    wants(f);
}

static void fighter_told(rlock *lock, const rlock_event *event, void *user) {
    struct fighter *f = (struct fighter *)user;
    int64_t stay_us = 0;

    f->waiting = false;
    if (event->status != RLOCK_OK) {
        tally.refused++;
        fprintf(stderr, "acquire: %s\n", rlock_strerror(event->status));
        wants(f);
        return;
    }
    f->start_us = kit_now_us();
    f->deadline_us = f->start_us + event->remaining_ms * 1000;
    f->fence = rlock_fence(lock);
    f->served++;
    f->holding = true;
    tally.granted++;
    if (tally.granted % 64 == 0 && f->start_us < stop_us) {
        stay_us = 2000;
    }
    f->leave_us = f->start_us + stay_us;
    inside[inside_count++] = f;
}

static void wants(struct fighter *f) {
    if (kit_now_us() < stop_us) {
        f->waiting = true;
        rlock_acquire(f->lock, RLOCK_FOREVER, 10000, fighter_told, f);
    }
}

/* Between two turns of the loop: whose time is over lets go. True when the fight is over and
 * everybody is out. */
static int worker_iteration(void *arg) {
    int64_t now = kit_now_us();
    int i;

    (void)arg;
    for (i = inside_count - 1; i >= 0; i--) {
        struct fighter *f = inside[i];

        if (now >= f->leave_us) {
            leaves(f);
            if (rlock_release(f->lock, fighter_released, f) != RLOCK_OK) {
                tally.refused++;
            }
        }
    }
    if (now < stop_us || tally.granted != tally.released + tally.lost) {
        return 0;
    }
    for (i = 0; i < HANDLES && !fighters[i].waiting; i++) {
    }
    return i == HANDLES;
}

static int worker_runs(int number, int seconds) {
    rlock_config config;
    rlock_client *client;
    char path[128];
    int i, unserved = 0, drained;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    worker_number = number;
    snprintf(path, sizeof path, "%s/worker%d", server.dir, number);
    book = fopen(path, "wb");
    if (book == NULL || kit_open() != 0) {
        return 2;
    }
    config = kit_config(&server);
    client = kit_client(&config);
    stop_us = kit_now_us() + seconds * (int64_t)1000000;
    for (i = 0; i < HANDLES; i++) {
        rlock_options options;

        memset(&options, 0, sizeof options);
        options.key = "fight";
        options.fencing = true;
        options.on_lost = fighter_lost;
        options.user = &fighters[i];
        if (client == NULL || rlock_new(&fighters[i].lock, client, &options) != RLOCK_OK) {
            return 2;
        }
        wants(&fighters[i]);
    }
    drained = kit_until(worker_iteration, NULL, seconds * 1000 + DRAIN_MS);
    for (i = 0; i < HANDLES; i++) {
        unserved += fighters[i].served == 0;
        rlock_free(fighters[i].lock);
    }
    rlock_client_free(client);
    kit_close();
    if (!drained || unserved > 0) {
        fprintf(stderr, "worker %d: %d never served; %d granted, %d released, %d lost\n%s", number,
                unserved, tally.granted, tally.released, tally.lost, kit_log_text);
    }
    fwrite(&tally, sizeof tally, 1, book);
    return fclose(book) == 0 && drained && unserved == 0 ? 0 : 1;
}

/* ------------------------------------------------------------------------------------------------
 * The checker: at no time two holders, and fences that rise in the order of the holds
 */

static struct hold *holds;
static size_t hold_count;
static struct tally sum;

static int hold_compare(const void *a, const void *b) {
    int64_t x = ((const struct hold *)a)->start_us, y = ((const struct hold *)b)->start_us;

    return (x > y) - (x < y);
}

static int read_book(int number) {
    char path[128];
    struct tally t;
    size_t n;
    long size;
    FILE *f;

    snprintf(path, sizeof path, "%s/worker%d", server.dir, number);
    f = fopen(path, "rb");
    if (f == NULL) {
        return -1;
    }
    fseek(f, 0, SEEK_END);
    size = ftell(f);
    rewind(f);
    n = size < (long)sizeof t ? 0 : ((size_t)size - sizeof t) / sizeof *holds;
    holds = (struct hold *)realloc(holds, (hold_count + n + 1) * sizeof *holds);
    n = fread(holds + hold_count, sizeof *holds, n, f);
    hold_count += n;
    if (fread(&t, sizeof t, 1, f) == 1) {
        sum.granted += t.granted;
        sum.released += t.released;
        sum.lost += t.lost;
        sum.refused += t.refused;
    }
    fclose(f);
    return 0;
}

/* The number of faults found. */
static int check_books(void) {
    int wrong = 0, i;
    size_t k;

    hold_count = 0;
    memset(&sum, 0, sizeof sum);
    for (i = 0; i < WORKERS; i++) {
        wrong += read_book(i) != 0;
    }
    qsort(holds, hold_count, sizeof *holds, hold_compare);
    for (k = 1; k < hold_count; k++) {
        const struct hold *a = &holds[k - 1], *b = &holds[k];

        if (b->start_us < a->end_us || b->fence <= a->fence) {
            wrong++;
            fprintf(stderr, "%s: %d/%d fence %llu until %lld, %d/%d fence %llu from %lld\n",
                    b->start_us < a->end_us ? "two holders" : "fence fell", (int)a->worker,
                    (int)a->handle, (unsigned long long)a->fence, (long long)a->end_us,
                    (int)b->worker, (int)b->handle, (unsigned long long)b->fence,
                    (long long)b->start_us);
        }
    }
    if (hold_count == 0 || (size_t)sum.granted != hold_count ||
        sum.granted != sum.released + sum.lost) {
        fprintf(stderr, "%u holds written, %d granted, %d released, %d lost\n",
                (unsigned)hold_count, (int)sum.granted, (int)sum.released, (int)sum.lost);
        wrong++;
    }
    return wrong + sum.refused;
}

/* ------------------------------------------------------------------------------------------------
 * The two runs; each gives the number of faults found
 */

static void workers_start(pid_t *pid, int seconds) {
    int i;

    fflush(NULL);
    kit_hand_drop();
    for (i = 0; i < WORKERS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            _exit(worker_runs(i, seconds));
        }
    }
}

static int workers_end(const pid_t *pid) {
    int i, code, wrong = 0;

    for (i = 0; i < WORKERS; i++) {
        wrong += waitpid(pid[i], &code, 0) != pid[i] || code != 0;
    }
    return wrong;
}

static int fight(int seconds) {
    pid_t pid[WORKERS];
    int64_t start = kit_now_us();
    int wrong;

    if (server_start(&server, NULL) != 0) {
        return 1;
    }
    workers_start(pid, seconds);
    wrong = workers_end(pid) + check_books() + sum.lost;
    printf("fight: %d handles in %d processes, %u holds, %.0f hand-overs a second, %d lost, %d "
           "faults found\n",
           WORKERS * HANDLES, WORKERS, (unsigned)hold_count,
           (double)hold_count * 1e6 / (double)(kit_now_us() - start), (int)sum.lost, wrong);
    server_stop(&server);
    return wrong;
}

struct keeper {
    int granted, refused, lost, released;
};

static void kept_told(rlock *lock, const rlock_event *event, void *user) {
    struct keeper *k = (struct keeper *)user;

    (void)lock;
    if (event->kind == RLOCK_LOST) {
        k->lost++;
    } else if (event->kind == RLOCK_RELEASED) {
        k->released++;
        k->refused += event->status != RLOCK_OK;
    } else {
        k->granted++;
        k->refused += event->status != RLOCK_OK;
    }
}

static long resident_bytes(void) {
    long pages = 0, size;
    FILE *f = fopen("/proc/self/statm", "r");

    if (f != NULL) {
        if (fscanf(f, "%ld %ld", &size, &pages) != 2) {
            pages = 0;
        }
        fclose(f);
    }
    return pages * sysconf(_SC_PAGESIZE);
}

struct count {
    const int *now;
    int wanted;
};

static int counted(void *arg) {
    const struct count *c = (const struct count *)arg;

    return *c->now >= c->wanted;
}

/* Handles for "h:0" to "h:<n - 1>", all asking. */
static int keep_begins(rlock **lock, int n, rlock_client *client, struct keeper *k) {
    rlock_options options;
    char key[32];
    int i;

    memset(&options, 0, sizeof options);
    options.key = key;
    options.on_lost = kept_told;
    options.user = k;
    for (i = 0; i < n; i++) {
        snprintf(key, sizeof key, "h:%d", i);
        if (rlock_new(&lock[i], client, &options) != RLOCK_OK ||
            rlock_acquire(lock[i], 30000, 0, kept_told, k) != RLOCK_OK) {
            return -1;
        }
    }
    return 0;
}

static int held(int n, int lease_ms, int seconds) {
    rlock **lock = (rlock **)calloc((size_t)n, sizeof *lock);
    struct keeper k = {0, 0, 0, 0};
    struct count granted, released;
    rlock_client *client;
    rlock_config config;
    int i, wrong = 0;
    uint64_t commands;
    clock_t cpu;
    long bytes;

    granted.now = &k.granted;
    released.now = &k.released;
    granted.wanted = released.wanted = n;
    if (server_start(&server, NULL) != 0 || kit_open() != 0) {
        return 1;
    }
    config = kit_config(&server);
    config.watchdog_lease_ms = lease_ms;
    client = kit_client(&config);
    bytes = resident_bytes();
    if (client == NULL || lock == NULL || keep_begins(lock, n, client, &k) != 0) {
        return 1;
    }
    wrong += !kit_until(counted, &granted, 60000);
    bytes = resident_bytes() - bytes;
    commands = kit_stats(client).commands;
    cpu = clock();
    kit_run(seconds * 1000);
    cpu = clock() - cpu;
    commands = kit_stats(client).commands - commands;
    for (i = 0; i < n; i++) {
        wrong += !rlock_is_held(lock[i]);
    }
    wrong += num(ask(&server, "DBSIZE")) != n;
    printf("held: %d locks with a lease of %d ms for %d s: %d lost, %ld bytes a lock, %.0f "
           "commands a second, "
           "%.1f %% of a core\n",
           n, lease_ms, seconds, k.lost, bytes / n, (double)commands / seconds,
           100.0 * (double)cpu / CLOCKS_PER_SEC / seconds);
    for (i = 0; i < n; i++) {
        wrong += rlock_release(lock[i], kept_told, &k) != RLOCK_OK;
    }
    wrong += !kit_until(counted, &released, 30000);
    wrong += num(ask(&server, "DBSIZE")) != 0;
    wrong += k.lost + k.refused;
    for (i = 0; i < n; i++) {
        rlock_free(lock[i]);
    }
    free(lock);
    kit_reset();
    kit_close();
    kit_hand_drop();
    server_stop(&server);
    return wrong;
}

/* ---- the short forms ---- */

static void thousand_handles_in_four_processes_never_hold_together(void **state) {
    (void)state;
    assert_int_equal(fight(5), 0);
}

static void ten_thousand_locks_are_kept_alive(void **state) {
    (void)state;
    assert_int_equal(held(10000, 3000, 8), 0);
}

static void queue_is_served_in_its_order_at_the_same_cost_however_long(void **state) {
    (void)state;
    assert_int_equal(queue_run(10, QUEUE_NO_FAULT), 0);
    assert_int_equal(queue_run(QUEUE_HANDLES, QUEUE_NO_FAULT), 0);
}

static void queue_of_which_a_quarter_is_killed_is_served_in_its_order(void **state) {
    (void)state;
    assert_int_equal(queue_run(QUEUE_HANDLES, QUEUE_KILL_WAITER), 0);
}

static void queue_whose_holder_is_killed_goes_on_when_the_lease_is_over(void **state) {
    (void)state;
    assert_int_equal(queue_run(QUEUE_HANDLES, QUEUE_KILL_HOLDER), 0);
}

static void permits_of_the_killed_and_stopped_are_never_too_many(void **state) {
    (void)state;
    assert_int_equal(permits_run(6, (uint64_t)kit_now_us()), 0);
}

static int usage(void) {
    fprintf(stderr, "stress [fight SECONDS | held LOCKS LEASE_MS SECONDS | line WAITERS | permits "
                    "SECONDS | moving SECONDS]\n");
    return 2;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousand_handles_in_four_processes_never_hold_together),
        cmocka_unit_test(ten_thousand_locks_are_kept_alive),
        cmocka_unit_test(queue_is_served_in_its_order_at_the_same_cost_however_long),
        cmocka_unit_test(queue_of_which_a_quarter_is_killed_is_served_in_its_order),
        cmocka_unit_test(queue_whose_holder_is_killed_goes_on_when_the_lease_is_over),
        cmocka_unit_test(permits_of_the_killed_and_stopped_are_never_too_many),
    };

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 1) {
        return shard_group("stress", tests, NULL, NULL);
    }
    if (argc == 3 && strcmp(argv[1], "fight") == 0 && atoi(argv[2]) > 0) {
        return fight(atoi(argv[2])) != 0;
    }
    if (argc == 5 && strcmp(argv[1], "held") == 0 && atoi(argv[2]) > 0 && atoi(argv[4]) > 0) {
        return held(atoi(argv[2]), atoi(argv[3]), atoi(argv[4])) != 0;
    }
    if (argc == 3 && strcmp(argv[1], "line") == 0 && atoi(argv[2]) > 0 &&
        atoi(argv[2]) <= QUEUE_HANDLES) {
        return queue_run(atoi(argv[2]), QUEUE_NO_FAULT) +
                   queue_run(atoi(argv[2]), QUEUE_KILL_WAITER) +
                   queue_run(atoi(argv[2]), QUEUE_KILL_HOLDER) !=
               0;
    }
    if (argc == 3 && strcmp(argv[1], "permits") == 0 && atoi(argv[2]) > 0) {
        return permits_run(atoi(argv[2]), (uint64_t)kit_now_us()) != 0;
    }
    if (argc == 3 && strcmp(argv[1], "moving") == 0 && atoi(argv[2]) > 0) {
        return moving_run(atoi(argv[2])) != 0;
    }
    return usage();
}
