/* chaos.h - several processes lock the same keys while all goes wrong: what each engine shares
 *
 *     <engine>_chaos SECONDS [SEED]
 *
 * Four processes, each with handles of its own for each key, of a mutex and of a fair lock. Who
 * holds writes into shared memory until when it may believe so. The parent stops and kills the
 * server, its sessions and the processes, and cuts, delays and swallows what goes over the network.
 * Nobody may be granted a key before the time that its last holder wrote has passed, or it was let
 * go; and fences rise. In the end nothing is left at the server, and everybody was served.
 *
 * Included after the engine's kit. Half of the processes go by way of the proxy.
 */

#ifndef TESTS_ENGINES_CHAOS_H
#define TESTS_ENGINES_CHAOS_H

#include "rlock_poll.h"

#define PROCESSES 4
#define KEYS 6 /* the last two are of fair locks */
#define FAIR_FROM 4
#define HANDLES 3 /* of each key in each process */
#define LEASE_MS 900
#define TIMEOUT_MS 300

struct key {
    int64_t until_us; /* its holder may believe so; 0 = nobody does */
    int64_t fence;
};

/* Read and written by get, put and add alone. */
static struct shared {
    struct key keys[KEYS];
    int64_t overlaps, falls, losses, errors, over;
    int64_t grants[PROCESSES];
} * shared;

static int64_t get(const int64_t *at) {
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}

static void put(int64_t *at, int64_t value) {
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}

static void add(int64_t *at) {
    __atomic_add_fetch(at, 1, __ATOMIC_SEQ_CST);
}

static rlock_poll *loop;
static int me;
static uint64_t dice_state;

static uint32_t dice(uint32_t sides) {
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice_state >> 33) % sides;
}

static int64_t now_us(void) {
    return RLOCK_NOW_US();
}

/* --- a process --- */

struct hand {
    rlock *lock;
    int key;
    bool holds;
    int64_t next_us; /* when it releases, or asks */
};

static struct hand hands[KEYS * HANDLES];

static void shows(struct hand *hand) {
    int64_t left_ms = rlock_is_held(hand->lock) ? rlock_remaining_ms(hand->lock) : 0;
    put(&shared->keys[hand->key].until_us, left_ms > 0 ? now_us() + left_ms * 1000 : 0);
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    (void)lock, (void)event;
    hand->holds = false;
    hand->next_us = now_us();
    add(&shared->losses);
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    struct key *key = &shared->keys[hand->key];
    int64_t now = now_us();
    (void)lock;
    hand->next_us = now + (dice(12) == 0 ? dice(3000000) : dice(20000)); /* few hold for long */
    if (event->status != RLOCK_OK) {
        if (event->status != RLOCK_ERR_TIMEOUT && event->status != RLOCK_ERR_BUSY &&
            event->status != RLOCK_ERR_CONN && event->status != RLOCK_ERR_UNKNOWN &&
            event->status != RLOCK_ERR_SERVER) {
            add(&shared->errors);
        }
        return;
    }
    if (get(&key->until_us) > now) {
        fprintf(stderr, "two hold key %d: the other one for %lld us more\n", hand->key,
                (long long)(get(&key->until_us) - now));
        add(&shared->overlaps);
    }
    if ((int64_t)event->fence <= get(&key->fence)) {
        fprintf(stderr, "the fence of key %d falls: %lld after %lld\n", hand->key,
                (long long)event->fence, (long long)get(&key->fence));
        add(&shared->falls);
    }
    put(&key->fence, (int64_t)event->fence);
    add(&shared->grants[me]);
    hand->holds = true;
    shows(hand);
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event;
    ((struct hand *)user)->next_us = now_us() + dice(20000);
}

static void acts(struct hand *hand) {
    if (hand->holds) {
        hand->holds = false;
        put(&shared->keys[hand->key].until_us, 0); /* from here on it does not believe so */
        hand->next_us = INT64_MAX;
        rlock_release(hand->lock, on_released, hand);
    } else if (!get(&shared->over)) {
        hand->next_us = INT64_MAX;
        rlock_acquire(hand->lock, dice(4) == 0 ? 0 : 3000, dice(2) == 0 ? 0 : LEASE_MS, on_acquired,
                      hand);
    }
}

static int child(int number, const char *url, uint64_t seed) {
    rlock_config config;
    rlock_client *client;
    rlock_store *store;
    int64_t end_us = INT64_MAX;
    int i;
    me = number;
    dice_state = seed;
    loop = rlock_poll_new();
    memset(&config, 0, sizeof config);
    if (engine.makes(&store, url) != RLOCK_OK) {
        return 1;
    }
    config.store = store;
    config.loop = rlock_poll_loop(loop);
    config.command_timeout_ms = TIMEOUT_MS;
    config.watchdog_lease_ms = LEASE_MS;
    if (rlock_client_new(&client, &config) != RLOCK_OK) {
        return 1;
    }
    for (i = 0; i < KEYS * HANDLES; i++) {
        rlock_options options;
        char name[16];
        memset(&options, 0, sizeof options);
        hands[i].key = i % KEYS;
        snprintf(name, sizeof name, "key %d", hands[i].key);
        options.key = name;
        options.kind = hands[i].key >= FAIR_FROM ? RLOCK_KIND_FAIR : RLOCK_KIND_MUTEX;
        options.fencing = true;
        options.on_lost = on_lost;
        options.user = &hands[i];
        rlock_new(&hands[i].lock, client, &options);
    }
    while (now_us() < end_us) {
        int64_t now = now_us();
        rlock_poll_once(loop, 2);
        for (i = 0; i < KEYS * HANDLES; i++) {
            if (hands[i].holds) {
                shows(&hands[i]);
            }
            if (hands[i].next_us <= now) {
                acts(&hands[i]);
            }
        }
        if (get(&shared->over) && end_us == INT64_MAX) {
            end_us = now_us() + 4000000; /* who waits ends, and orphans are cleaned up */
        }
    }
    for (i = 0; i < KEYS * HANDLES; i++) {
        rlock_free(hands[i].lock);
    }
    rlock_client_free(client);
    engine.forgets(store);
    rlock_poll_free(loop);
    return 0;
}

/* --- the faults --- */

static const char *const faults[] = {"nothing",           "server stopped", "server killed",
                                     "sessions ended",    "network cut",    "network black",
                                     "replies swallowed", "network slow",   "a process stopped"};
enum { FAULTS = sizeof faults / sizeof faults[0] };

static void fails(int fault, const pid_t *pids) {
    pid_t victim = pids[dice(PROCESSES)];
    useconds_t us = 1000 * (50 + dice(1500));
    switch (fault) {
    case 1:
        engine.pauses();
        usleep(us);
        engine.resumes();
        break;
    case 2:
        engine.dies();
        usleep(us / 4);
        if (engine.comes_back() != 0) {
            fprintf(stderr, "the server does not come back\n");
            add(&shared->errors);
        }
        break;
    case 3: engine.ends_sessions(); break;
    case 4: proxy_cuts(); break;
    case 5:
    case 6:
    case 7:
        proxy->mode = fault == 5 ? BLACK_HOLE : fault == 6 ? SWALLOW_REPLIES : DELAY_50_MS;
        usleep(us);
        proxy->mode = PASS;
        break;
    case 8:
        kill(victim, SIGSTOP);
        usleep(us * 2);
        kill(victim, SIGCONT);
        break;
    default: break;
    }
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 20, i;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)now_us();
    char direct[256], roundabout[256];
    long counts[FAULTS] = {0}, left = -1;
    int64_t grants = 0, least = -1;
    pid_t pids[PROCESSES], parent = getpid();
    int64_t end_us;
    bool failed = false;
    dice_state = seed;
    shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (engine.starts() != 0) {
        fprintf(stderr, "no %s\n", engine.name);
        engine.stops();
        return 1;
    }
    engine.starts_proxy();
    engine.writes_url(direct, false, false);
    engine.writes_url(roundabout, true, false);
    for (i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(getppid() == parent
                      ? child(i, i % 2 ? direct : roundabout, seed + (uint64_t)i * 7919)
                      : 1);
        }
    }
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    end_us = now_us() + (int64_t)seconds * 1000000;
    while (now_us() < end_us) {
        int fault = (int)dice(FAULTS);
        fails(fault, pids);
        counts[fault]++;
        usleep(1000 * dice(700));
    }
    put(&shared->over, 1);
    for (i = 0; i < PROCESSES; i++) {
        int status = 1;
        waitpid(pids[i], &status, 0);
        failed = failed || status != 0;
        grants += get(&shared->grants[i]);
        least = least < 0 || get(&shared->grants[i]) < least ? get(&shared->grants[i]) : least;
    }
    for (i = 0; i < 300 && left != 0; i++) {
        left = engine.left();
        usleep(10000);
    }
    for (i = 0; i < FAULTS; i++) {
        printf("%-20s %ld\n", faults[i], counts[i]);
    }
    printf("%lld grants, at least %lld a process; %lld losses, all told; %lld overlaps, %lld "
           "fences fell, %lld other errors%s%s\n",
           (long long)grants, (long long)least, (long long)get(&shared->losses),
           (long long)get(&shared->overlaps), (long long)get(&shared->falls),
           (long long)get(&shared->errors), left ? "; something is left at the server" : "",
           failed ? "; a process has failed" : "");
    kill(proxy_pid, SIGKILL);
    waitpid(proxy_pid, NULL, 0);
    engine.stops();
    failed = failed || left || get(&shared->overlaps) || get(&shared->falls) ||
             get(&shared->errors) || least < 10;
    printf("%s 1 - never two holders in %d s of chaos\n1..1\n", failed ? "not ok" : "ok", seconds);
    return failed;
}

#endif
