/* stores.c - what a lock costs in each engine: one run, one machine, each store by its URL
 *
 *     make bench-stores            into docs/stores.md; QUICK=1 only sees that it works
 *
 * Each server is private and on this machine, with the settings that its tests have; none has to
 * bring what it writes to the disk before it answers, but ZooKeeper, which always does. Pairs of
 * one acquire and one release of a mutex are counted, each handle with a key of its own, by one
 * client on rlock_poll.h. The stores take turns, and the table has the medians of the rounds.
 */

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>

#include "../../tests/server.h"
#ifdef RLOCK_WITH_POSTGRES
#include "../../tests/engines/postgres.h"
#endif
#ifdef RLOCK_WITH_ZOOKEEPER
#include "../../tests/engines/zookeeper.h"
#endif
#ifdef RLOCK_WITH_MARIADB
#include "../../tests/engines/mariadb.h"
#endif
#include "rlock_poll.h"

#define MOST 64
#define HELD 1000
#define ROUNDS_MAX 5
#define HANDOVERS_MAX 200
#define WAIT_US 30000   /* until a waiter waits */
#define LONG_US 1500000 /* until a client has all of its connections */

static int rounds = 5, handovers = 200;
static int64_t round_us = 1000000;
static rlock_poll *loop;

static void dies(const char *what, const char *why) {
    fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

/* --- servers --- */

static const char *in_process(void) {
    return NULL;
}

static void no_server(void) {
}

static struct server redis;

static const char *redis_opens(void) {
    static const char *none[] = {NULL};
    static char url[128];
    redis.port = server_free_port();
    if (server_start(&redis, none) != 0) {
        dies("Redis", "it does not start");
    }
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", redis.port);
    return url;
}

static void redis_ends(void) {
    server_stop(&redis);
}

#ifdef RLOCK_WITH_POSTGRES
static struct server postgres;

static const char *postgres_opens(void) {
    if (postgres_start(&postgres) != 0 ||
        postgres_installs(&postgres, "stores/rlock_postgres.sql") != 0) {
        dies("PostgreSQL", "it does not start");
    }
    return postgres.url;
}

static void postgres_is_over(void) {
    server_stop(&postgres);
}
#endif

#ifdef RLOCK_WITH_ZOOKEEPER
static struct server zookeeper;

static const char *zookeeper_opens(void) {
    if (zookeeper_start(&zookeeper) != 0) {
        dies("ZooKeeper", "it does not start");
    }
    return zookeeper.url;
}

static void zookeeper_is_over(void) {
    server_stop(&zookeeper);
}
#endif

#ifdef RLOCK_WITH_MARIADB
static struct server mariadb;

static const char *mariadb_opens(void) {
    if (mariadb_start(&mariadb) != 0 ||
        mariadb_installs(&mariadb, "stores/rlock_mariadb.sql") != 0) {
        dies("MariaDB", "it does not start");
    }
    return mariadb.url;
}

static void mariadb_is_over(void) {
    server_stop(&mariadb);
}
#endif

/* --- the stores --- */

static const int counts[] = {1, 8, MOST};
#define COUNTS 3

static struct store {
    const char *name;
    const char *(*begins)(void); /* its URL; NULL: the store inside the process */
    void (*ends)(void);
    rlock_store *memory;
    rlock_client *clients[2];
    rlock *locks[MOST];
    rlock *holder, *waiter; /* of one key, and two clients */
    double pairs[COUNTS][ROUNDS_MAX], cpu_us[COUNTS][ROUNDS_MAX];
    double told_us[HANDOVERS_MAX];
    double bytes;
    int sockets, connections;
} stores[] = {
    {.name = "in the process", .begins = in_process, .ends = no_server},
    {.name = "Redis", .begins = redis_opens, .ends = redis_ends},
#ifdef RLOCK_WITH_POSTGRES
    {.name = "PostgreSQL", .begins = postgres_opens, .ends = postgres_is_over},
#endif
#ifdef RLOCK_WITH_ZOOKEEPER
    {.name = "ZooKeeper", .begins = zookeeper_opens, .ends = zookeeper_is_over},
#endif
#ifdef RLOCK_WITH_MARIADB
    {.name = "MariaDB", .begins = mariadb_opens, .ends = mariadb_is_over},
#endif
};

#define STORES (sizeof stores / sizeof *stores)

static void on_log(void *user, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) {
        fprintf(stderr, "bench: %s: %s\n", (const char *)user, line);
    }
}

static void makes(rlock **lock, rlock_client *client, const char *key) {
    rlock_options options = {.key = key};
    if (rlock_new(lock, client, &options) != RLOCK_OK) {
        dies(key, "no handle");
    }
}

static void begins(struct store *store) {
    rlock_config config = {.loop = rlock_poll_loop(loop), .url = store->begins(), .log = on_log};
    char key[16];
    int i;
    config.user = (void *)(uintptr_t)store->name;
    if (config.url == NULL && rlock_memory_new(&store->memory) != RLOCK_OK) {
        dies(store->name, "no memory");
    }
    config.store = store->memory;
    for (i = 0; i < 2; i++) {
        int status = rlock_client_new(&store->clients[i], &config);
        if (status != RLOCK_OK) {
            dies(store->name, rlock_strerror(status));
        }
    }
    for (i = 0; i < MOST; i++) {
        snprintf(key, sizeof key, "lock %02d", i);
        makes(&store->locks[i], store->clients[0], key);
    }
    makes(&store->holder, store->clients[0], "handed over");
    makes(&store->waiter, store->clients[1], "handed over");
}

static void ends(struct store *store) {
    int i;
    for (i = 0; i < MOST; i++) {
        rlock_free(store->locks[i]);
    }
    rlock_free(store->holder);
    rlock_free(store->waiter);
    rlock_client_free(store->clients[0]);
    rlock_client_free(store->clients[1]);
    rlock_memory_free(store->memory);
    store->ends();
}

/* --- pairs --- */

static long pairs;
static int at_work;
static bool stops;

static void on_released(rlock *lock, const rlock_event *event, void *user);

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    if (event->status != RLOCK_OK || rlock_release(lock, on_released, user) != RLOCK_OK) {
        dies(rlock_strerror(event->status), event->text != NULL ? event->text : "");
    }
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)event;
    pairs++;
    at_work--;
    if (!stops) {
        at_work++;
        rlock_acquire(lock, 5000, 10000, on_acquired, user);
    }
}

static double processor_us(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void one_round(struct store *store, int count, double *rate, double *cpu_us) {
    int64_t start_us = RLOCK_NOW_US(), end_us = start_us + round_us;
    double used_us = processor_us();
    int i;
    pairs = 0;
    stops = false;
    for (i = 0; i < count; i++) {
        at_work++;
        rlock_acquire(store->locks[i], 5000, 10000, on_acquired, NULL);
    }
    while (RLOCK_NOW_US() < end_us) {
        rlock_poll_once(loop, 100);
    }
    stops = true;
    *rate = (double)pairs * 1e6 / (double)(RLOCK_NOW_US() - start_us);
    *cpu_us = (processor_us() - used_us) / (double)(pairs > 0 ? pairs : 1);
    while (at_work > 0) {
        rlock_poll_once(loop, 100);
    }
}

/* --- sockets --- */

static int open_sockets(void) {
    int fd, count = 0;
    for (fd = 3; fd < 1024; fd++) {
        struct stat what;
        count += fstat(fd, &what) == 0 && S_ISSOCK(what.st_mode);
    }
    return count;
}

static int other_sockets; /* of the stores before */

/* --- one client releases, another one that waits is told --- */

static int64_t told_us;

static void on_done(rlock *lock, const rlock_event *event, void *done) {
    (void)lock;
    if (event->status != RLOCK_OK) {
        dies(rlock_strerror(event->status), event->text != NULL ? event->text : "");
    }
    told_us = RLOCK_NOW_US();
    *(bool *)done = true;
}

static void waits(const bool *done) {
    while (!*done) {
        rlock_poll_once(loop, 100);
    }
}

/* The waiter waits for so long before it is its turn: it is told of the release by then. */
static void hand_over(struct store *store, int64_t wait_us, double *took_us) {
    rlock *first = store->holder, *next = store->waiter;
    bool done = false, released = false, over = false;
    int64_t began_us, until_us;
    rlock_acquire(first, 5000, 10000, on_done, &done);
    waits(&done);
    done = false;
    rlock_acquire(next, 5000, 10000, on_done, &done);
    until_us = RLOCK_NOW_US() + wait_us;
    while (RLOCK_NOW_US() < until_us) {
        rlock_poll_once(loop, 1);
    }
    store->sockets = open_sockets() - other_sockets;
    began_us = RLOCK_NOW_US();
    rlock_release(first, on_done, &released);
    waits(&done);
    *took_us = (double)(told_us - began_us);
    waits(&released);
    rlock_release(next, on_done, &over);
    waits(&over);
}

/* --- memory --- */

static int held;

static void on_held(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (event->status != RLOCK_OK) {
        dies(rlock_strerror(event->status), event->text != NULL ? event->text : "");
    }
    held++;
}

static void on_let_go(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event, (void)user;
    held--;
}

/* What a process has more when it holds so many locks more, handles included. */
static void memory_of(struct store *store) {
    static rlock *locks[HELD];
    size_t before = mallinfo2().uordblks;
    char key[16];
    int i;
    for (i = 0; i < HELD; i++) {
        snprintf(key, sizeof key, "held %04d", i);
        makes(&locks[i], store->clients[1], key);
        rlock_acquire(locks[i], 20000, 10000, on_held, NULL);
    }
    while (held < HELD) {
        rlock_poll_once(loop, 100);
    }
    for (i = 0; i < 10; i++) {
        rlock_poll_once(loop, 1);
    }
    store->bytes = (double)(mallinfo2().uordblks - before) / HELD;
    for (i = 0; i < HELD; i++) {
        rlock_release(locks[i], on_let_go, NULL);
    }
    while (held > 0) {
        rlock_poll_once(loop, 100);
    }
    for (i = 0; i < HELD; i++) {
        rlock_free(locks[i]);
    }
}

/* --- the table --- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(double *numbers, int count, int permille) {
    qsort(numbers, (size_t)count, sizeof *numbers, compare);
    return numbers[(count - 1) * permille / 1000];
}

/* A number with its thousands apart, or with one digit behind the point if it is small. */
static const char *shown(double number) {
    static char texts[8][32];
    static unsigned turn;
    char *text = texts[turn++ % 8];
    if (number < 100) {
        snprintf(text, sizeof *texts, "%.1f", number);
    } else if (number < 1000) {
        snprintf(text, sizeof *texts, "%.0f", number);
    } else {
        long long whole = (long long)(number + 0.5);
        size_t n =
            whole < 1000000 ? 0 : (size_t)snprintf(text, sizeof *texts, "%lld,", whole / 1000000);
        snprintf(text + n, sizeof *texts - n, n > 0 ? "%03lld,%03lld" : "%lld,%03lld",
                 whole / 1000 % 1000, whole % 1000);
    }
    return text;
}

static void measures(void) {
    size_t s, c;
    int r, i;
    for (s = 0; s < STORES; s++) {
        other_sockets = open_sockets();
        begins(&stores[s]);
        hand_over(&stores[s], WAIT_US, &stores[s].told_us[0]);
        hand_over(&stores[s], LONG_US, &stores[s].told_us[0]);
        stores[s].connections = stores[s].sockets / 2; /* those of two clients, all in use */
        memory_of(&stores[s]);
        one_round(&stores[s], MOST, &stores[s].pairs[0][0], &stores[s].cpu_us[0][0]);
    }
    for (r = 0; r < rounds; r++) {
        for (c = 0; c < COUNTS; c++) {
            for (s = 0; s < STORES; s++) {
                one_round(&stores[s], counts[c], &stores[s].pairs[c][r], &stores[s].cpu_us[c][r]);
            }
        }
    }
    for (i = 0; i < handovers; i++) {
        for (s = 0; s < STORES; s++) {
            hand_over(&stores[s], WAIT_US, &stores[s].told_us[i]);
        }
    }
}

int main(int argc, char **argv) {
    size_t s, c;
    if (argc > 1 && strcmp(argv[1], "--quick") == 0) {
        rounds = 1;
        handovers = 10;
        round_us = 100000;
    }
    loop = rlock_poll_new();
    measures();
    printf(
        "| | pairs a second, 1 at once | 8 at once | 64 at once | processor a pair, 1, 64 at once "
        "| told of a release, half, 99 of 100 | connections of a client | memory of a held lock "
        "|\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (s = 0; s < STORES; s++) {
        struct store *store = &stores[s];
        printf("| %s |", store->name);
        for (c = 0; c < COUNTS; c++) {
            printf(" %s |", shown(at(store->pairs[c], rounds, 500)));
        }
        printf(" %s, %s µs | %s, %s µs | %d | %s bytes |\n",
               shown(at(store->cpu_us[0], rounds, 500)),
               shown(at(store->cpu_us[COUNTS - 1], rounds, 500)),
               shown(at(store->told_us, handovers, 500)), shown(at(store->told_us, handovers, 990)),
               store->connections, shown(store->bytes));
        ends(store);
    }
    rlock_poll_free(loop);
    return 0;
}
