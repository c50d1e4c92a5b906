/* For tests/stress.c: 1,000 handles in 4 processes on a cluster of six nodes, while slots move and
 * nodes are killed. Mutexes, some with fencing, fair locks and semaphores, at all nodes. Each hold
 * stands in memory that all share, with the time in which its holder believes in it. All have a
 * quarantine; so at no time there is more inside than a key has permits, whatever a failover
 * forgets. As docs/guarantees.md asks, no slot moves while a node is in quarantine. */
#ifndef RLOCK_TESTS_STRESS_CLUSTER_H
#define RLOCK_TESTS_STRESS_CLUSTER_H

#include "cluster_kit.h"

#include <sys/mman.h>

#define MOVING_WORKERS 4
#define MOVING_HANDLES 250 /* a worker */
#define MOVING_KEYS 24
#define MOVING_HOLDS 400000 /* a worker, at most */
#define MOVING_LEASE_MS 3000
#define MOVING_CALM_MS (MOVING_LEASE_MS + 1500) /* a quarantine, and until the last client knows */
#define MOVING_KILL_MS 6000                     /* of moves before each kill */
#define MOVING_DRAIN_MS 60000
#define MOVING_NODES 6

struct moving_hold {
    int64_t start_us, end_us;
    uint64_t fence;
    int32_t key;
};

struct moving_world {
    volatile int stop;
    volatile int served[MOVING_WORKERS][MOVING_HANDLES];
    volatile int lost, refused;
    int count[MOVING_WORKERS];
    struct moving_hold hold[MOVING_WORKERS][MOVING_HOLDS];
};

struct moving_handle {
    rlock *lock;
    int number, key;
    bool waiting, holding, leaving;
    int64_t start_us, until_us, leave_us;
};

static struct moving_world *moving;
static struct moving_handle moving_handles[MOVING_HANDLES];
static char moving_keys[MOVING_KEYS][16];
static int moving_me;

static rlock_kind moving_kind(int key) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_SEMAPHORE};

    return kinds[key % 3];
}

static int moving_permits(int key) {
    return moving_kind(key) == RLOCK_KIND_SEMAPHORE ? 2 : 1;
}

/* ---- a worker ---- */

static void moving_leaves(struct moving_handle *h) {
    int *count = &moving->count[moving_me];
    int64_t now_us = kit_now_us();

    h->holding = false;
    if (*count < MOVING_HOLDS) {
        struct moving_hold *hold = &moving->hold[moving_me][(*count)++];

        hold->start_us = h->start_us;
        hold->end_us = now_us < h->until_us ? now_us : h->until_us;
        hold->fence = rlock_fence(h->lock);
        hold->key = h->key;
    }
}

static void moving_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event;
    moving_leaves((struct moving_handle *)user);
    __atomic_fetch_add(&moving->lost, 1, __ATOMIC_SEQ_CST);
}

static void moving_told(rlock *lock, const rlock_event *event, void *user) {
    struct moving_handle *h = (struct moving_handle *)user;

    (void)lock;
    h->waiting = false;
    if (event->status != RLOCK_OK) {
        fprintf(stderr, "moving: %s: %s\n", rlock_strerror(event->status),
                event->text != NULL ? event->text : "");
        __atomic_fetch_add(&moving->refused, 1, __ATOMIC_SEQ_CST);
        return;
    }
    h->holding = true;
    h->start_us = kit_now_us();
    h->until_us = h->start_us + event->remaining_ms * 1000;
    h->leave_us = h->start_us + 3000 + rand() % 20000 +
                  (rand() % 400 == 0 ? MOVING_LEASE_MS * 950 : 0); /* longer than a failover */
    moving->served[moving_me][h->number]++;
}

static void moving_let_go(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event;
    ((struct moving_handle *)user)->leaving = false;
}

/* Between two turns of the loop. True when the end was called and nobody is inside. */
static int moving_iteration(void *arg) {
    int i, busy = 0;

    (void)arg;
    for (i = 0; i < MOVING_HANDLES; i++) {
        struct moving_handle *h = &moving_handles[i];

        if (h->holding && kit_now_us() >= h->leave_us) {
            moving_leaves(h);
            h->leaving = rlock_release(h->lock, moving_let_go, h) == RLOCK_OK;
        } else if (!h->holding && !h->waiting && !h->leaving && !moving->stop) {
            h->waiting = rlock_acquire(h->lock, RLOCK_FOREVER, 0, moving_told, h) == RLOCK_OK;
        }
        busy += h->holding || h->waiting || h->leaving;
    }
    return moving->stop && busy == 0;
}

static int moving_worker_runs(int number) {
    rlock_config config;
    rlock_client *client;
    int i, done, unserved = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    moving_me = number;
    srand((unsigned)number);
    if (kit_open() != 0) {
        return 1;
    }
    config = kit_config(&nodes[0]);
    config.unix_path = NULL;
    config.cluster = node_seeds;
    config.watchdog_lease_ms = config.quarantine_ms = MOVING_LEASE_MS;
    client = kit_client(&config);
    for (i = 0; client != NULL && i < MOVING_HANDLES; i++) {
        struct moving_handle *h = &moving_handles[i];
        rlock_options options;

        memset(&options, 0, sizeof options);
        h->number = i;
        h->key = (number * MOVING_HANDLES + i) % MOVING_KEYS;
        options.key = moving_keys[h->key];
        options.kind = moving_kind(h->key);
        options.permits = options.kind == RLOCK_KIND_SEMAPHORE ? 2 : 0;
        options.fencing = h->key % 2 == 0 && options.kind != RLOCK_KIND_SEMAPHORE;
        options.on_lost = moving_lost;
        options.user = h;
        if (rlock_new(&h->lock, client, &options) != RLOCK_OK) {
            return 1;
        }
    }
    done = client != NULL && kit_until(moving_iteration, NULL, 24 * 3600000LL);
    for (i = 0; i < MOVING_HANDLES; i++) {
        unserved += moving->served[number][i] == 0;
        rlock_free(moving_handles[i].lock);
    }
    rlock_client_free(client);
    if (!done || unserved > 0) {
        fprintf(stderr, "moving: worker %d: %d never served\n%s", number, unserved, kit_log_text);
    }
    return !done || unserved > 0;
}

/* ---- the director ---- */

static int moving_says; /* the node that is asked: it runs */

/* The node that has a slot; -1: none says that it has it itself. */
static int moving_owner(int slot) {
    int i, owner = -1;

    for (i = 0; i < node_count; i++) {
        if (nodes[i].pid != 0 && slot_node_by(i, slot) == i && node_knows(i, "cluster_state:ok")) {
            owner = i;
            moving_says = i;
        }
    }
    return owner;
}

static bool moving_is_primary(int i) {
    return nodes[i].pid != 0 &&
           strstr(str(ask(&nodes[i], "INFO replication")), "role:master") != NULL;
}

/* Tells a node, or all primaries; what one of them does not like is seen later. */
static void moving_tells(int only, int slot, const char *what, int node) {
    int i;

    for (i = 0; i < node_count; i++) {
        if ((only < 0 && moving_is_primary(i)) || i == only) {
            freeReplyObject(ask(&nodes[i], "CLUSTER SETSLOT %d %s %s", slot, what, node_ids[node]));
        }
    }
}

/* Moves the slot of a key to another primary, step by step. False: that was not to be done. */
static bool moving_moves(int slot) {
    int from = moving_owner(slot), to = from, tries;

    do {
        to = (to + 1) % node_count;
    } while (from >= 0 && to != from && !moving_is_primary(to));
    if (from < 0 || to == from) {
        return false;
    }
    moving_tells(to, slot, "IMPORTING", from);
    moving_tells(from, slot, "MIGRATING", to);
    server_sleep_ms(30);
    for (tries = 0; tries < 20 && num(ask(&nodes[from], "CLUSTER COUNTKEYSINSLOT %d", slot)) > 0;
         tries++) {
        slot_keys_move(slot, from, to);
    }
    server_sleep_ms(30);
    moving_tells(to, slot, "NODE", to);
    moving_tells(-1, slot, "NODE", to);
    return moving_owner(slot) == to;
}

/* Waits until all nodes are there, content, and in step. */
static bool moving_is_whole(void) {
    int64_t end_us = kit_now_us() + 30000000;

    while (!cluster_is_whole(NULL) && kit_now_us() < end_us) {
        server_sleep_ms(50);
    }
    return kit_now_us() < end_us;
}

/* Kills the node that has a slot, and starts it again when another one has been promoted. */
static bool moving_kills(int slot) {
    int from = moving_owner(slot), tries = 0;

    if (from < 0 || !moving_is_whole()) {
        return false;
    }
    kit_hand_drop();
    server_kill9(&nodes[from]);
    do {
        server_sleep_ms(50);
    } while (moving_owner(slot) < 0 && ++tries < 400);
    return server_restart(&nodes[from]) == 0 && moving_is_whole() && tries < 400;
}

static bool moving_directs(int seconds, int *moves, int *kills) {
    int64_t now_us = kit_now_us(), end_us = now_us + seconds * (int64_t)1000000;
    int64_t calm_us = 0, kill_us = now_us + MOVING_KILL_MS * 1000;
    bool good = true;

    while (good && (now_us = kit_now_us()) < end_us) {
        int slot = key_slot(moving_keys[rand() % MOVING_KEYS]);

        if (now_us >= kill_us) {
            good = moving_kills(slot);
            *kills += good;
            calm_us = kit_now_us() + MOVING_CALM_MS * 1000;
            kill_us = calm_us + MOVING_KILL_MS * 1000;
        } else if (now_us >= calm_us) {
            *moves += moving_moves(slot);
        }
        server_sleep_ms(50);
    }
    if (!good) {
        fprintf(stderr, "moving: the cluster is not whole\n");
    }
    return good;
}

/* ---- the checker ---- */

static int moving_compare(const void *a, const void *b) {
    const struct moving_hold *x = *(const struct moving_hold *const *)a,
                             *y = *(const struct moving_hold *const *)b;

    return x->key != y->key             ? (x->key > y->key) - (x->key < y->key)
           : x->start_us != y->start_us ? (x->start_us > y->start_us) - (x->start_us < y->start_us)
                                        : 0;
}

/* How many holds began while as many as the key has permits were inside, or with a fencing token
 * that did not rise. */
static int moving_check(int *count) {
    const struct moving_hold **all;
    int wrong = 0, n = 0, i, w;

    for (w = 0; w < MOVING_WORKERS; w++) {
        n += moving->count[w];
    }
    *count = n;
    all = (const struct moving_hold **)malloc(((size_t)n + 1) * sizeof *all);
    for (w = n = 0; w < MOVING_WORKERS; w++) {
        for (i = 0; i < moving->count[w]; i++) {
            all[n++] = &moving->hold[w][i];
        }
    }
    qsort(all, (size_t)n, sizeof *all, moving_compare);
    for (i = 0; i < n; i++) {
        int permits = moving_permits(all[i]->key), inside = 1, k;

        for (k = i - 1; k >= 0 && k >= i - 64 && all[k]->key == all[i]->key; k--) {
            inside += all[k]->end_us > all[i]->start_us;
        }
        if (inside > permits) {
            fprintf(stderr, "moving: %d of %d inside at %s\n", inside, permits,
                    moving_keys[all[i]->key]);
        }
        wrong += inside > permits;
        wrong += i > 0 && all[i - 1]->key == all[i]->key && permits == 1 && all[i]->fence != 0 &&
                 all[i]->fence <= all[i - 1]->fence;
    }
    free(all);
    return wrong;
}

/* Keys that are neither a fencing token's counter nor a marker; after the last lease. */
static int moving_left(void) {
    int64_t end_us = kit_now_us() + 2 * MOVING_LEASE_MS * 1000;
    int left, i;
    size_t k;

    do {
        server_sleep_ms(100);
        for (i = left = 0; i < node_count; i++) {
            redisReply *keys = ask(&nodes[i], "KEYS *");

            for (k = 0; moving_is_primary(i) && k < keys->elements; k++) {
                const char *key = keys->element[k]->str;

                left += strstr(key, ":fence") == NULL && strstr(key, "quarantine") == NULL;
            }
            freeReplyObject(keys);
        }
    } while (left > 0 && kit_now_us() < end_us);
    return left;
}

static bool moving_end(const pid_t *pid) {
    int64_t end_us = kit_now_us() + MOVING_DRAIN_MS * 1000;
    int i, code, ended = 0;
    bool good = true;

    moving->stop = 1;
    for (i = 0; i < MOVING_WORKERS; i++) {
        while (waitpid(pid[i], &code, WNOHANG) == 0 && kit_now_us() < end_us) {
            server_sleep_ms(10);
        }
        if (kit_now_us() >= end_us) {
            kill(pid[i], SIGKILL);
            waitpid(pid[i], &code, 0);
        }
        ended += kit_now_us() < end_us;
        good = good && code == 0;
    }
    return good && ended == MOVING_WORKERS;
}

/* One run; the number of faults found. */
static int moving_run(int seconds) {
    int wrong = 0, moves = 0, kills = 0, count = 0, left, least = 1 << 30, i, k;
    pid_t pid[MOVING_WORKERS];

    moving = (struct moving_world *)mmap(NULL, sizeof *moving, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (moving == MAP_FAILED || kit_open() != 0) {
        return 1;
    }
    node_timeout = "2000"; /* a busy machine is no dead node */
    cluster_start(3, 1);
    kit_close();
    for (k = 0; k < MOVING_KEYS; k++) {
        snprintf(moving_keys[k], sizeof moving_keys[k], "key%d", k);
    }
    fflush(NULL);
    kit_hand_drop();
    for (i = 0; i < MOVING_WORKERS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            _exit(moving_worker_runs(i));
        }
    }
    server_sleep_ms(MOVING_LEASE_MS + 500); /* the first use */
    wrong += !moving_directs(seconds, &moves, &kills);
    wrong += !moving_end(pid);
    wrong += moving_check(&count);
    left = moving_left();
    for (i = 0; i < MOVING_WORKERS; i++) {
        for (k = 0; k < MOVING_HANDLES; k++) {
            int served = moving->served[i][k];

            least = served < least ? served : least;
        }
    }
    wrong += left + moving->refused + (least == 0);
    printf(
        "moving: %d handles in %d processes, %d holds, each handle %d or more, under %d moves of "
        "slots and %d kills; %d lost, %d keys left, %d faults found\n",
        MOVING_WORKERS * MOVING_HANDLES, MOVING_WORKERS, count, least, moves, kills, moving->lost,
        left, wrong);
    cluster_stop();
    munmap(moving, sizeof *moving);
    return wrong;
}

#endif
