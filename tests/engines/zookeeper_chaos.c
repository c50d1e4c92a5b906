/* zookeeper_chaos.c - several processes lock the same keys in three ZooKeepers while all goes wrong
 *
 * What happens is in chaos.h. One server at a time is stopped or killed, so most of the time two
 * are left; now and then all of them stand still.
 */

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "../../stores/rlock_zookeeper.h"
#define ZOOKEEPER_TICK_MS 100
#define ZOOKEEPER_SESSION_MS 1200
#include "engine.h"
#include "zookeeper.h"

#define SERVERS 3

static struct server servers[SERVERS];
static int paused, dead, door; /* door: the proxy's port */

static const struct engine engine; /* whose faults are drawn by the dice of chaos.h */
#include "chaos.h"

static int starts(void) {
    return zookeeper_start_ensemble(servers, SERVERS);
}

static void starts_proxy(void) {
    char from[32], to[32];
    door = server_free_port();
    snprintf(from, sizeof from, "127.0.0.1:%d", door);
    snprintf(to, sizeof to, "127.0.0.1:%d", servers[0].port);
    proxy_starts(from, to);
}

static void stops(void) {
    int i;
    for (i = 0; i < SERVERS; i++) {
        server_stop(&servers[i]);
    }
}

static void writes_url(char *url, bool proxied, bool patient) {
    char hosts[96];
    (void)patient;
    if (proxied) {
        snprintf(hosts, sizeof hosts, "127.0.0.1:%d", door);
    } else {
        snprintf(hosts, sizeof hosts, "127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", servers[0].port,
                 servers[1].port, servers[2].port);
    }
    snprintf(url, 256, "zookeeper://%s/locks?session_ms=%d&tick_ms=%d", hosts, ZOOKEEPER_SESSION_MS,
             ZOOKEEPER_TICK_MS);
}

static void pauses(void) {
    paused = (int)dice(SERVERS);
    server_pause(&servers[paused]);
}

static void resumes(void) {
    server_resume(&servers[paused]);
}

static void dies(void) {
    dead = (int)dice(SERVERS);
    server_kill9(&servers[dead]);
}

static int comes_back(void) {
    return zookeeper_continue(&servers[dead]);
}

/* A session ends when no server has heard of it for its timeout: they all stand still. */
static void ends_sessions(void) {
    int i;
    for (i = 0; i < SERVERS; i++) {
        server_pause(&servers[i]);
    }
    usleep(1000 * (ZOOKEEPER_SESSION_MS / 2 + dice(ZOOKEEPER_SESSION_MS)));
    for (i = 0; i < SERVERS; i++) {
        server_resume(&servers[i]);
    }
}

static long left(void) {
    long count = 0;
    int i;
    for (i = 0; i < KEYS; i++) {
        char path[32];
        int rc;
        snprintf(path, sizeof path, "/locks/6b657920%d", 30 + i % 10); /* "key 0" to "key 5" */
        rc = zookeeper_asks(&servers[0], ZOOKEEPER_LIST, path);
        if (rc != ZOK && rc != ZNONODE) {
            return -1;
        }
        count += zookeeper_hand.count;
    }
    return count;
}

/* What is none is for other programs. */
static const struct engine engine = {"ZooKeeper",
                                     starts,
                                     starts_proxy,
                                     stops,
                                     writes_url,
                                     rlock_zookeeper_new,
                                     rlock_zookeeper_free,
                                     pauses,
                                     resumes,
                                     dies,
                                     comes_back,
                                     ends_sessions,
                                     NULL,
                                     left,
                                     NULL,
                                     false,
                                     true,
                                     0,
                                     {0, 0},
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     NULL,
                                     0};
