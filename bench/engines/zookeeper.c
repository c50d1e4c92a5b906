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
#include "beside.h"

static struct server server;

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

int main(void) {
    rlock_store *store;
    char host[32];
    int i;
    zoo_set_debug_level((ZooLogLevel)0);
    if (zookeeper_start(&server) != 0) {
        fprintf(stderr, "bench: no ZooKeeper\n");
        return 1;
    }
    rlock_zookeeper_new(&store, server.url);
    beside_begins(store);
    for (i = 0; i < MOST; i++) {
        parents[i] = (size_t)snprintf(nodes[i], sizeof nodes[i], "/locks/68616e642030%02d", i);
    }
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
    beside_measures(by_hand);
    zookeeper_close(zh);
    beside_ends();
    rlock_zookeeper_free(store);
    server_stop(&server);
    return 0;
}
