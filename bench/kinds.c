/* What the kinds cost beside the plain mutex: pairs of acquire and release on keys of their own;
 * and hand-overs of one key for 1,000 waiters in 4 processes, each of whom wants it again at once.
 * The plain one hands nothing on inside a process here (handovers -1): a fair one cannot. */
#include "bench.h"

#include <sys/mman.h>

#define IN_FLIGHT 64
#define PROCESSES 4
#define WAITERS 1000
#define SEVERAL 3
#define SERVERS 3 /* of a quorum */

static const struct kind {
    const char *name;
    rlock_kind kind;
    uint32_t permits;
    enum { ONE_KEY, SEVERAL_KEYS, QUORUM } what;
    bool alone; /* nobody holds beside one who holds */
} kinds[] = {{"mutex", RLOCK_KIND_MUTEX, 0, ONE_KEY, true},
             {"fair", RLOCK_KIND_FAIR, 0, ONE_KEY, true},
             {"read", RLOCK_KIND_READ, 0, ONE_KEY, false},
             {"write", RLOCK_KIND_WRITE, 0, ONE_KEY, true},
             {"semaphore", RLOCK_KIND_SEMAPHORE, 10, ONE_KEY, false},
             {"keys", RLOCK_KIND_MUTEX, 0, SEVERAL_KEYS, true},
             {"quorum", RLOCK_KIND_MUTEX, 0, QUORUM, true}};

#define KINDS ((int)(sizeof kinds / sizeof *kinds))

static struct shared {
    int64_t begin_ns, end_ns;
    volatile int64_t released_ns; /* only its holder writes these two */
    volatile int last;
    uint64_t sections[PROCESSES], commands[PROCESSES];
    struct bench_samples between[PROCESSES];
} * shared;

static struct server server, others[SERVERS - 1];
static int me;
static uint64_t count;

static bool in_window(int64_t now_ns) {
    return now_ns >= shared->begin_ns && now_ns < shared->end_ns;
}

static rlock_client *client_new(const struct kind *kind) {
    rlock_client *client;
    rlock_config config, nodes[SERVERS];
    rlock_store *store = NULL; /* one for the life of the process */
    int i;

    memset(nodes, 0, sizeof nodes);
    for (i = 0; i < SERVERS; i++) {
        nodes[i].unix_path = i == 0 ? server.socket : others[i - 1].socket;
    }
    memset(&config, 0, sizeof config);
    config.loop = rlock_libev_loop(EV_DEFAULT);
    config.unix_path = server.socket;
    config.handovers = -1;
    if (kind->what == QUORUM && rlock_quorum_new(&store, nodes, SERVERS) != RLOCK_OK) {
        bench_fail("no quorum");
    }
    config.store = store;
    if (rlock_client_new(&client, &config) != RLOCK_OK) {
        bench_fail("no client");
    }
    return client;
}

static rlock *lock_new(rlock_client *client, const struct kind *kind, int number) {
    char names[SEVERAL][32];
    const char *keys[SEVERAL];
    rlock_options options;
    rlock *lock;
    int i;

    memset(&options, 0, sizeof options);
    for (i = 0; i < SEVERAL; i++) {
        snprintf(names[i], sizeof names[i], "bench:kinds:%d:%06d", i, number);
        keys[i] = names[i];
    }
    options.kind = kind->kind;
    options.permits = kind->permits;
    options.key = kind->what == SEVERAL_KEYS ? NULL : names[0];
    options.keys = kind->what == SEVERAL_KEYS ? keys : NULL;
    options.key_count = kind->what == SEVERAL_KEYS ? SEVERAL : 0;
    if (rlock_new(&lock, client, &options) != RLOCK_OK) {
        bench_fail("no handle");
    }
    return lock;
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user);

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    rlock_acquire(lock, RLOCK_FOREVER, 0, on_acquired, user);
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    int64_t now_ns = bench_now_ns();

    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    if (in_window(now_ns)) {
        count++;
        if (shared->last != 0 && shared->last != me && user == NULL) {
            bench_sample(&shared->between[me - 1], now_ns - shared->released_ns);
        }
    }
    shared->last = me;
    shared->released_ns = bench_now_ns();
    rlock_release(lock, on_released, user);
}

static double seconds_until(int64_t ns) {
    return (double)(ns - bench_now_ns()) / 1e9;
}

static uint64_t commands_of(const rlock_client *client) {
    rlock_stats stats;

    rlock_client_stats(client, &stats);
    return stats.commands;
}

/* Handles that want a key each (apart), or all the same one. */
static void work(const struct kind *kind, int handles, bool apart) {
    rlock_client *client = client_new(kind);
    uint64_t commands;
    int i;

    for (i = 0; i < handles; i++) {
        rlock *lock = lock_new(client, kind, apart ? i : 0);

        rlock_acquire(lock, RLOCK_FOREVER, 0, on_acquired, apart ? lock : NULL);
    }
    bench_run(seconds_until(shared->begin_ns));
    commands = commands_of(client);
    bench_run(seconds_until(shared->end_ns));
    shared->commands[me - 1] = commands_of(client) - commands;
    shared->sections[me - 1] = count;
    rlock_client_free(client);
}

static void measure(const struct kind *kind, int processes, int handles, bool apart,
                    double seconds) {
    static struct bench_samples between;
    uint64_t sections = 0, commands = 0;
    char what[64], reply[64];
    pid_t children[PROCESSES];
    int i, status;
    uint32_t j;

    server_cli(&server, reply, sizeof reply, "FLUSHALL");
    for (i = 0; i < SERVERS - 1; i++) {
        server_cli(&others[i], reply, sizeof reply, "FLUSHALL");
    }
    memset(shared, 0, sizeof *shared);
    shared->begin_ns = bench_now_ns() + (int64_t)(seconds * 0.4e9);
    shared->end_ns = shared->begin_ns + (int64_t)(seconds * 1e9);
    for (i = 0; i < processes; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            ev_loop_fork(EV_DEFAULT);
            me = i + 1;
            work(kind, handles / processes, apart);
            _exit(0);
        }
    }
    between.count = 0;
    for (i = 0; i < processes; i++) {
        if (waitpid(children[i], &status, 0) != children[i] || status != 0) {
            bench_fail("a process of the kinds failed");
        }
        sections += shared->sections[i];
        commands += shared->commands[i];
        for (j = 0; j < shared->between[i].count; j++) {
            bench_sample(&between, shared->between[i].ns[j]);
        }
    }
    snprintf(what, sizeof what, "kinds.%s.%s", apart ? "pairs" : "contended", kind->name);
    bench_line(what, apart ? "rate" : "sections", (double)sections / seconds, "1/s");
    bench_line(what, "commands", (double)commands / (double)sections, "1");
    if (between.count > 0) {
        bench_sort(&between);
        bench_line(what, "between.p50", bench_percentile(&between, 50), "us");
        bench_line(what, "between.p99", bench_percentile(&between, 99), "us");
    }
}

int main(int argc, char **argv) {
    double seconds;
    int i;

    bench_arguments(argc, argv);
    seconds = bench_quick ? 0.1 : 0.6;
    bench_server(&server);
    for (i = 0; i < SERVERS - 1; i++) {
        bench_server(&others[i]);
    }
    shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        bench_fail("no memory");
    }
    for (i = 0; i < KINDS; i++) {
        const struct kind *kind = &kinds[(i + bench_turn) % KINDS];

        measure(kind, 1, IN_FLIGHT, true, seconds);
        if (kind->alone) {
            measure(kind, PROCESSES, WAITERS, false, seconds);
        }
    }
    server_stop(&server);
    for (i = 0; i < SERVERS - 1; i++) {
        server_stop(&others[i]);
    }
    return 0;
}
