/* zookeeper.c - what locks in ZooKeeper cost beside the same calls made by hand
 *
 *     make bench-stores
 *
 * Pairs of one acquire and one release a second, for 1, 8 and 64 keys at once, with the same calls,
 * in turn, on one private server: by rlock on rlock_poll.h, and by callbacks of libzookeeper_st on
 * a loop of poll(). Each acquire makes a node, lists its line and watches the node; each release
 * deletes it.
 */

#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#include "rlock.h"

#include <poll.h>

#include "../../stores/rlock_zookeeper.h"
#include "../../tests/engines/zookeeper.h"
#include "rlock_poll.h"

#define MOST 64
#define ROUNDS 25
#define ROUND_US 200000

static struct zookeeper server;

static int64_t now_us(void) {
    return RLOCK_NOW_US();
}

/* --- rlock --- */

static rlock_poll *loop;
static rlock *locks[MOST];
static long pairs;
static int out;
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
    out--;
    if (!stops) {
        out++;
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

/* --- by hand --- */

static zhandle_t *zh;
static char nodes[MOST][128]; /* the path of each key, and that of its node while it is there */
static size_t parents[MOST];

static void dies(const char *what, int rc) {
    fprintf(stderr, "bench: %s: %s\n", what, zerror(rc));
    exit(1);
}

static void expects(const char *what, int rc) {
    if (rc != ZOK) {
        dies(what, rc);
    }
}

static void acquires(int key);

static void on_nothing(int rc, const struct Stat *stat, const void *data) {
    (void)rc, (void)stat, (void)data;
}

static void on_deleted(int rc, const void *data) {
    int key = (int)(intptr_t)data;
    expects("delete", rc);
    nodes[key][parents[key]] = 0;
    pairs++;
    out--;
    if (!stops) {
        out++;
        acquires(key);
    }
}

static void on_made(int rc, const char *path, const struct Stat *stat, const void *data) {
    (void)stat;
    expects("create", rc);
    snprintf(nodes[(intptr_t)data], sizeof nodes[0], "%s", path);
}

static void on_line(int rc, const struct String_vector *names, const void *data) {
    const char *node = nodes[(intptr_t)data];
    expects("list", rc);
    if (names->count != 1 || strcmp(names->data[0], strrchr(node, '/') + 1) != 0) {
        dies("somebody else is in the line", ZOK);
    }
    expects("watch", zoo_aexists(zh, node, 1, on_nothing, NULL));
    expects("delete", zoo_adelete(zh, node, -1, on_deleted, data));
}

static void acquires(int key) {
    const void *data = (const void *)(intptr_t)key;
    char path[128];
    snprintf(path, sizeof path, "%s/00000000-0000-4000-8000-000000000000:1:m1:", nodes[key]);
    expects("create", zoo_acreate2(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL,
                                   on_made, data));
    expects("list", zoo_aget_children(zh, nodes[key], 0, on_line, data));
}

static void turn(void) {
    struct timeval tv = {0, 100000};
    struct pollfd at = {-1, 0, 0};
    int interest = 0;
    expects("interest", zookeeper_interest(zh, &at.fd, &interest, &tv));
    at.events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) |
                        (interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
    poll(&at, 1, (int)(tv.tv_sec * 1000 + tv.tv_usec / 1000));
    zookeeper_process(zh, (at.revents & POLLIN ? ZOOKEEPER_READ : 0) |
                              (at.revents & POLLOUT ? ZOOKEEPER_WRITE : 0));
}

static double by_hand(int at_once) {
    int64_t start_us = now_us(), end_us = start_us + ROUND_US;
    pairs = 0;
    stops = false;
    for (out = 0; out < at_once; out++) {
        acquires(out);
    }
    while (now_us() < end_us) {
        turn();
    }
    stops = true;
    while (out > 0) {
        turn();
    }
    return (double)pairs * 1e6 / (double)(now_us() - start_us);
}

static void on_event(zhandle_t *handle, int type, int state, const char *path, void *data) {
    (void)handle, (void)type, (void)state, (void)path, (void)data;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measures(int at_once) {
    double ours[ROUNDS], hands[ROUNDS], ratios[ROUNDS];
    int i;
    for (i = 0; i < ROUNDS; i++) {
        ours[i] = by_rlock(at_once);
        hands[i] = by_hand(at_once);
        ratios[i] = ours[i] / hands[i];
    }
    qsort(ours, ROUNDS, sizeof *ours, compare);
    qsort(hands, ROUNDS, sizeof *hands, compare);
    qsort(ratios, ROUNDS, sizeof *ratios, compare);
    printf("| %d | %.0f | %.0f | %.2f, %.2f to %.2f |\n", at_once, ours[ROUNDS / 2],
           hands[ROUNDS / 2], ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
}

int main(void) {
    rlock_config config;
    rlock_client *client;
    rlock_store *store;
    char host[32];
    int i;
    zoo_set_debug_level((ZooLogLevel)0);
    if (zookeeper_start(&server) != 0) {
        fprintf(stderr, "bench: no ZooKeeper\n");
        return 1;
    }
    loop = rlock_poll_new();
    memset(&config, 0, sizeof config);
    rlock_zookeeper_new(&store, server.url);
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
        parents[i] = (size_t)snprintf(nodes[i], sizeof nodes[i], "/locks/68616e642030%02d", i);
    }
    by_rlock(MOST); /* makes the nodes of the keys */
    snprintf(host, sizeof host, "127.0.0.1:%d", server.port);
    zh = zookeeper_init2(host, on_event, 30000, NULL, NULL, ZOO_NO_LOG_CLIENTENV,
                         zookeeper_is_quiet);
    while (zoo_state(zh) != ZOO_CONNECTED_STATE) {
        turn();
    }
    for (i = 0; i < MOST; i++) {
        zookeeper_asks(&server, ZOOKEEPER_MAKE, nodes[i]);
    }
    by_hand(MOST);
    printf("| keys at once | `rlock`, pairs/s | by hand, pairs/s | ratio, least to most "
           "|\n|---:|---:|---:|---:|\n");
    measures(1);
    measures(8);
    measures(64);
    zookeeper_close(zh);
    for (i = 0; i < MOST; i++) {
        rlock_free(locks[i]);
    }
    rlock_client_free(client);
    rlock_zookeeper_free(store);
    rlock_poll_free(loop);
    zookeeper_stop(&server);
    return 0;
}
