/* zookeeper_chaos.c - several processes lock the same keys in three ZooKeepers while all goes wrong
 *
 *     zookeeper_chaos SECONDS [SEED]
 *
 * What happens is in tests/engines/chaos.h. One server at a time is stopped or killed, so most of
 * the time two are left; now and then all of them stand still.
 */

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "../../stores/rlock_zookeeper.h"
#include "chaos.h"
#define ZOOKEEPER_TICK_MS 100
#define ZOOKEEPER_SESSION_MS 1200
#include "zookeeper.h"

#define SERVERS 3

static struct server servers[SERVERS];
static int victim;

static int start(char *direct, char *roundabout) {
    static const char rest[] = "/locks?session_ms=1200&tick_ms=100";
    char from[32], to[32];
    int door = server_free_port();
    if (zookeeper_start_ensemble(servers, SERVERS) != 0) {
        return -1;
    }
    snprintf(from, sizeof from, "127.0.0.1:%d", door);
    snprintf(to, sizeof to, "127.0.0.1:%d", servers[0].port);
    proxy_starts(from, to);
    snprintf(direct, 256, "zookeeper://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d%s", servers[0].port,
             servers[1].port, servers[2].port, rest);
    snprintf(roundabout, 256, "zookeeper://127.0.0.1:%d%s", door, rest);
    return 0;
}

static void stop(void) {
    int i;
    for (i = 0; i < SERVERS; i++) {
        server_stop(&servers[i]);
    }
}

static void signals(int signal_number) {
    victim = signal_number == SIGSTOP ? (int)dice(SERVERS) : victim;
    kill(servers[victim].pid, signal_number);
}

static int restarts(useconds_t us) {
    int i = (int)dice(SERVERS);
    server_kill9(&servers[i]);
    usleep(us);
    return zookeeper_continue(&servers[i]);
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

int main(int argc, char **argv) {
    static const struct chaos_row row = {
        "ZooKeeper", start,         stop, rlock_zookeeper_new, rlock_zookeeper_free, signals,
        restarts,    ends_sessions, left};
    return chaos_main(&row, argc, argv);
}
