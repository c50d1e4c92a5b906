/* How many pairs of acquire and release a second, at what cost, with 1 to 1,024 in flight? Each
 * handle has a key of its own and wants it again as soon as it is released. rlock beside the same
 * loop written by hand, both also with client tracking on, as rlock has it from the first hold of
 * over 100 ms. */
#include "by_hand.h"

#define IN_FLIGHT_MAX 1024
#define NODES 3 /* of a cluster */

/* A replica that lags is waited for. */
#define WAIT_MS (bench_replicas > 0 ? RLOCK_FOREVER : 0)

struct slot {
    rlock *lock;
    struct hand_lock by_hand;
    int64_t start_ns; /* 0 = this pair is not timed */
    bool timed;
};

static struct server server, nodes[NODES];
static char seeds[NODES * 24];
static struct slot slots[IN_FLIGHT_MAX];
static struct bench_samples times;
static uint64_t pairs;
static bool stopping;
static int running;

/* A clock read costs as much as a tenth of a pair: one slot in 16 is timed. */
static void starts(struct slot *s) {
    s->start_ns = s->timed ? bench_now_ns() : 0;
}

static bool ends(struct slot *s) {
    pairs++;
    if (s->start_ns != 0) {
        bench_sample(&times, bench_now_ns() - s->start_ns);
    }
    if (stopping && --running == 0) {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
    return !stopping;
}

/* --- rlock --- */

static void on_acquired(rlock *lock, const rlock_event *event, void *user);

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    if (ends((struct slot *)user)) {
        starts((struct slot *)user);
        rlock_acquire(lock, WAIT_MS, 0, on_acquired, user);
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    rlock_release(lock, on_released, user);
}

/* --- by hand --- */

static void on_set(redisAsyncContext *ac, void *raw, void *data);

static void on_deleted(redisAsyncContext *ac, void *raw, void *data) {
    struct slot *s = (struct slot *)data;
    redisReply *reply = (redisReply *)raw;

    (void)ac;
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER || reply->integer != 1) {
        bench_fail("by hand: not released");
    }
    if (ends(s)) {
        starts(s);
        hand_acquire(&s->by_hand, on_set, s);
    }
}

static void on_set(redisAsyncContext *ac, void *raw, void *data) {
    redisReply *reply = (redisReply *)raw;

    (void)ac;
    if (reply == NULL || reply->type != REDIS_REPLY_STATUS) {
        bench_fail("by hand: not acquired");
    }
    hand_release(&((struct slot *)data)->by_hand, on_deleted, data);
}

/* Invalidations of nobody's interest; an answer that cannot be had ends the program elsewhere. */
static void on_told(redisAsyncContext *ac, void *raw, void *data) {
    (void)ac, (void)raw, (void)data;
}

/* --- a measurement --- */

/* What each server has used until now: the one, or the nodes. */
static void read_servers(int64_t *ns) {
    int i;

    ns[0] = bench_server_cpu_ns(&server);
    for (i = 0; bench_cluster != NULL && i < NODES; i++) {
        ns[i] = bench_server_cpu_ns(&nodes[i]);
    }
}

/* `server_cpu` is that of the busiest node. `apart`: what could be done with a processor for the
 * client and one for each server. */
static void measure(const char *what, double warm_up, double seconds) {
    uint64_t all, own;
    int64_t start_ns, cpu_ns, server_ns = 0, before_ns[NODES] = {0}, after_ns[NODES] = {0};
    double n;
    int i;

    bench_run(warm_up);
    pairs = 0;
    times.count = 0;
    all = bench_allocations, own = bench_own_allocations;
    read_servers(before_ns);
    cpu_ns = bench_cpu_ns(), start_ns = bench_now_ns();
    bench_run(seconds);
    start_ns = bench_now_ns() - start_ns;
    cpu_ns = bench_cpu_ns() - cpu_ns;
    read_servers(after_ns);
    for (i = 0; i < NODES; i++) {
        int64_t ns = after_ns[i] - before_ns[i];

        server_ns = ns > server_ns ? ns : server_ns;
    }
    all = bench_allocations - all, own = bench_own_allocations - own;
    n = (double)pairs;
    bench_sort(&times);
    bench_line(what, "rate", n / ((double)start_ns / 1e9), "1/s");
    bench_line(what, "cpu", (double)cpu_ns / 1e3 / n, "us");
    bench_line(what, "server_cpu", (double)server_ns / 1e3 / n, "us");
    bench_line(what, "apart", 1e9 * n / (double)(cpu_ns > server_ns ? cpu_ns : server_ns), "1/s");
    bench_line(what, "p50", bench_percentile(&times, 50), "us");
    bench_line(what, "p99", bench_percentile(&times, 99), "us");
    bench_line(what, "allocations", (double)all / n, "1");
    bench_line(what, "own_allocations", (double)own / n, "1");
    stopping = true;
    ev_run(EV_DEFAULT, 0);
}

static void prepare(int in_flight) {
    int i;

    stopping = false;
    running = in_flight;
    for (i = 0; i < in_flight; i++) {
        slots[i].timed = in_flight < 64 || i % 16 == 0;
        starts(&slots[i]);
    }
}

static void on_kept(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
}

/* A hold of over 100 ms, kept beside the others, switches tracking on. */
static rlock *begin_tracking(rlock_client *client) {
    rlock *kept = bench_lock(client, "bench:kept", NULL, NULL);
    rlock_stats stats;
    int tries = 100;

    rlock_acquire(kept, RLOCK_FOREVER, 0, on_kept, NULL);
    do {
        bench_run(0.02);
        rlock_client_stats(client, &stats);
    } while (!stats.pushing && --tries > 0);
    if (!stats.pushing) {
        fprintf(stderr, "bench: this server does not push\n");
    }
    return kept;
}

static void by_rlock(const char *what, int in_flight, bool tcp, bool tracked, double seconds) {
    rlock_client *client = bench_client(&server, tcp, 0);
    rlock *kept = tracked ? begin_tracking(client) : NULL;
    char key[24];
    int i;

    prepare(in_flight);
    for (i = 0; i < in_flight; i++) {
        snprintf(key, sizeof key, "bench:%014d", i);
        slots[i].lock = bench_lock(client, key, NULL, NULL);
        rlock_acquire(slots[i].lock, WAIT_MS, 0, on_acquired, &slots[i]);
    }
    measure(what, seconds / 4, seconds);
    for (i = 0; i < in_flight; i++) {
        rlock_free(slots[i].lock);
    }
    rlock_free(kept);
    rlock_client_free(client);
}

static void by_hand(const char *what, int in_flight, bool tcp, bool tracked, double seconds) {
    struct hand hand;
    char key[24];
    int i;

    hand_connect(&hand, &server, tcp);
    if (tracked) {
        hand_track(&hand, &server, tcp, on_told, NULL);
    }
    prepare(in_flight);
    for (i = 0; i < in_flight; i++) {
        snprintf(key, sizeof key, "bench:%014d", i);
        hand_lock_init(&slots[i].by_hand, &hand, key);
        hand_acquire(&slots[i].by_hand, on_set, &slots[i]);
    }
    measure(what, seconds / 4, seconds);
    hand_free(&hand);
}

static void both(int in_flight, bool tcp, bool tracked) {
    double seconds = bench_quick ? 0.05 : 0.4;
    char what[64];
    int i;

    for (i = 0; i < 2; i++) {
        bool hand = (i + bench_turn) % 2 == 1;

        snprintf(what, sizeof what, "pairs.%s%s.%s.%d", hand ? "hand" : "rlock",
                 tracked ? "_tracked" : "", tcp ? "tcp" : "unix", in_flight);
        (hand ? by_hand : by_rlock)(what, in_flight, tcp, tracked, seconds);
    }
}

/* What WAIT costs: the same server with a replica, without it and with it. */
static void with_a_replica(void) {
    static const int in_flight[] = {1, 256};
    static struct server replica;
    char text[4096] = "";
    size_t i;
    int tries;

    bench_server(&replica);
    server_cli(&replica, text, sizeof text, "REPLICAOF 127.0.0.1 %d", server.port);
    for (tries = 0; strstr(text, "master_link_status:up") == NULL; tries++) {
        if (tries == 200) {
            bench_fail("the replica does not follow");
        }
        server_sleep_ms(50);
        server_cli(&replica, text, sizeof text, "INFO replication");
    }
    for (i = 0; i < 2; i++) {
        char what[64];

        for (bench_replicas = 0; bench_replicas < 2; bench_replicas++) {
            snprintf(what, sizeof what, "pairs.rlock_%s.unix.%d",
                     bench_replicas == 0 ? "copied" : "synced", in_flight[i]);
            by_rlock(what, in_flight[i], false, false, bench_quick ? 0.05 : 0.4);
        }
    }
    bench_replicas = 0;
    server_stop(&replica);
}

static void cli(const struct server *s, const char *words, ...) {
    char text[64] = "", command[96];
    va_list ap;

    va_start(ap, words);
    vsnprintf(command, sizeof command, words, ap);
    va_end(ap);
    server_cli(s, text, sizeof text, "%s", command);
    if (strcmp(text, "OK") != 0) {
        bench_fail(text);
    }
}

/* As many pairs at each node as at the one server beside which it stands. */
static void with_a_cluster(void) {
    static char ports[NODES][8];
    char text[4096];
    int i, tries, n = 0;

    for (i = 0; i < NODES; i++) {
        const char *args[] = {"--maxclients", "1000", "--cluster-enabled", "yes", "--cluster-port",
                              ports[i],       NULL};

        snprintf(ports[i], sizeof ports[i], "%d", server_free_port());
        bench_server_as(&nodes[i], args);
        n += snprintf(seeds + n, sizeof seeds - (size_t)n, "%s127.0.0.1:%d", i ? "," : "",
                      nodes[i].port);
        cli(&nodes[i], "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
        cli(&nodes[i], "CLUSTER ADDSLOTSRANGE %d %d", 16384 * i / NODES,
            16384 * (i + 1) / NODES - 1);
        cli(&nodes[i], "CLUSTER MEET 127.0.0.1 %d %s", nodes[0].port, ports[0]);
    }
    for (i = 0, tries = 0; i < NODES; tries++) {
        server_cli(&nodes[i], text, sizeof text, "CLUSTER INFO");
        i += strstr(text, "cluster_state:ok") != NULL && strstr(text, "slots_assigned:16384");
        if (tries == 600) {
            bench_fail("the cluster is not whole");
        }
        server_sleep_ms(20);
    }
    bench_cluster = seeds;
    by_rlock("pairs.rlock_cluster.tcp.768", NODES * 256, true, false, bench_quick ? 0.05 : 0.4);
    bench_cluster = NULL;
    for (i = 0; i < NODES; i++) {
        server_stop(&nodes[i]);
    }
}

int main(int argc, char **argv) {
    static const int in_flight[] = {1, 16, 64, 256, 1024};
    size_t i;
    int tcp;

    bench_arguments(argc, argv);
    bench_server(&server);
    if (bench_few) {
        both(256, false, false);
    }
    for (tcp = 0; tcp < 2 && !bench_few; tcp++) {
        for (i = 0; i < sizeof in_flight / sizeof in_flight[0]; i++) {
            both(in_flight[i], tcp == 1, false);
        }
        both(256, tcp == 1, true);
    }
    if (!bench_few) {
        with_a_replica();
        with_a_cluster();
    }
    server_stop(&server);
    return 0;
}
