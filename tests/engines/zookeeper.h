/* zookeeper.h - a private ZooKeeper for tests: private.h says what that is
 *
 * Its jars are those of the system, or what tools/setup has unpacked into build/zookeeper, or in
 * the folder $RLOCK_ZOOKEEPER.
 */

#ifndef TESTS_ZOOKEEPER_H
#define TESTS_ZOOKEEPER_H

#include <poll.h>
#include <sys/stat.h>
#include <zookeeper/zookeeper.h>

#include "private.h"

/* The longest session is 20 ticks: longer than the leases of the suite. */
#ifndef ZOOKEEPER_TICK_MS
#define ZOOKEEPER_TICK_MS 1500
#define ZOOKEEPER_SESSION_MS 30000
#endif

static inline void zookeeper_path(char *path, size_t room) {
    static const char *const jars[] = {"zookeeper",           "zookeeper-jute", "slf4j-api",
                                       "slf4j-nop",           "netty-all",      "metrics-core",
                                       "snappy-java",         "jackson-core",   "jackson-databind",
                                       "jackson-annotations", "commons-cli",    "commons-io"};
    const char *given = getenv("RLOCK_ZOOKEEPER");
    const char *folders[] = {"/usr/share/java",
                             given != NULL ? given : "build/zookeeper/usr/share/java"};
    size_t i, k, n = 0;
    for (k = 0; k < 2; k++) {
        char *real = realpath(folders[k], NULL);
        for (i = 0; real != NULL && i < sizeof jars / sizeof jars[0]; i++) {
            n += (size_t)snprintf(path + n, room - n, "%s/%s.jar:", real, jars[i]);
        }
        free(real);
    }
}

/* What it answers to four letters; or "". */
static inline char *zookeeper_says(const struct server *server, const char *letters) {
    static char words[512];
    struct sockaddr_in a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {0, 300000};
    memset(words, 0, sizeof words);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons((uint16_t)server->port);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && write(fd, letters, 4) == 4) {
        recv(fd, words, sizeof words - 1, MSG_WAITALL);
    }
    close(fd);
    return words;
}

/* What it says that it is: standalone, leader, follower; or "" while it does not serve. It accepts
 * connections before. */
static inline const char *zookeeper_mode(const struct server *server) {
    char *mode = strstr(zookeeper_says(server, "srvr"), "Mode: ");
    if (mode == NULL) {
        return "";
    }
    mode[6 + strcspn(mode + 6, "\n")] = 0;
    return mode + 6;
}

/* How many watches all of its clients have left there; -1: it does not say. */
static inline long zookeeper_watches(const struct server *server) {
    const char *total = strstr(zookeeper_says(server, "wchs"), "Total watches:");
    return total == NULL ? -1 : strtol(total + strlen("Total watches:"), NULL, 10);
}

static inline int zookeeper_answers(const struct server *server) {
    return zookeeper_mode(server)[0] != 0;
}

/* Starts the server on the data that is there, and does not wait for it. */
static inline void zookeeper_begins(struct server *server) {
    char path[8192];
    const char *argv[] = {"java",
                          "-Xmx128m",
                          "-XX:+UseSerialGC",
                          "-XX:TieredStopAtLevel=1",
                          "-cp",
                          path,
                          "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                          "zoo.cfg",
                          NULL};
    zookeeper_path(path, sizeof path);
    server->pid = server_begins(server, argv, NULL);
}

/* Waits until it serves. 0, or -1. */
static inline int zookeeper_waits(struct server *server) {
    return server_waits(server, zookeeper_answers);
}

static inline int zookeeper_continue(struct server *server) {
    zookeeper_begins(server);
    return zookeeper_waits(server);
}

/* Makes the folder and the configuration of one server, which is the first of one. 0, or -1. */
static inline int zookeeper_prepare(struct server *server) {
    char path[128];
    FILE *file;
    if (server_folder(server) != 0) {
        return -1;
    }
    server->port = server_free_port();
    snprintf(server->url, sizeof server->url, "zookeeper://127.0.0.1:%d/locks", server->port);
    snprintf(path, sizeof path, "%s/zoo.cfg", server->dir);
    file = fopen(path, "w");
    fprintf(file,
            "tickTime=%d\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nextendedTypesEnabled=true\n"
            "4lw.commands.whitelist=srvr,wchs\n",
            ZOOKEEPER_TICK_MS, server->dir, server->port);
    fclose(file);
    return 0;
}

static inline int zookeeper_start(struct server *server) {
    return zookeeper_prepare(server) == 0 ? zookeeper_continue(server) : -1;
}

/* Makes servers that know of each other. A follower that the leader has not heard for so many
 * ticks is left behind. The first finds the last at the port `door`, unless it is 0, where the last
 * one is at `peer`. 0, or -1. */
static inline int zookeeper_prepare_ensemble(struct server *servers, int count, int ticks,
                                             int door) {
    char path[128];
    int election[8], i, k, status = 0;
    for (i = 0; i < count && status == 0; i++) {
        status = zookeeper_prepare(&servers[i]);
        snprintf(servers[i].peer, sizeof servers[i].peer, "%d", server_free_port());
        election[i] = server_free_port();
    }
    for (i = 0; i < count && status == 0; i++) {
        FILE *file;
        snprintf(path, sizeof path, "%s/zoo.cfg", servers[i].dir);
        file = fopen(path, "a");
        fprintf(file, "initLimit=20\nsyncLimit=%d\n", ticks);
        for (k = 0; k < count; k++) {
            char through[8];
            snprintf(through, sizeof through, "%d", door);
            fprintf(file, "server.%d=127.0.0.1:%s:%d\n", k + 1,
                    door > 0 && i == 0 && k == count - 1 ? through : servers[k].peer, election[k]);
        }
        fclose(file);
        snprintf(path, sizeof path, "%s/data", servers[i].dir);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "%s/data/myid", servers[i].dir);
        file = fopen(path, "w");
        fprintf(file, "%d\n", i + 1);
        fclose(file);
    }
    return status;
}

/* Makes servers that know of each other, and starts them. 0, or -1. */
static inline int zookeeper_start_ensemble(struct server *servers, int count) {
    int i, status = zookeeper_prepare_ensemble(servers, count, 4, 0);
    for (i = 0; i < count && status == 0; i++) {
        zookeeper_begins(&servers[i]);
    }
    for (i = 0; i < count && status == 0; i++) {
        status = zookeeper_waits(&servers[i]);
    }
    return status;
}

/* --- an administrator: a session for each question --- */

static struct {
    zhandle_t *zh;
    bool done;
    int rc, count;
    char name[128]; /* of the first child */
} zookeeper_hand;

enum { ZOOKEEPER_LIST, ZOOKEEPER_MAKE, ZOOKEEPER_DELETE };

static inline void zookeeper_on_void(int rc, const void *data) {
    (void)data;
    zookeeper_hand.rc = rc;
    zookeeper_hand.done = true;
}

static inline void zookeeper_on_string(int rc, const char *value, const void *data) {
    (void)value;
    zookeeper_on_void(rc, data);
}

static inline void zookeeper_on_children(int rc, const struct String_vector *names,
                                         const void *data) {
    zookeeper_hand.count = rc == ZOK ? names->count : 0;
    snprintf(zookeeper_hand.name, sizeof zookeeper_hand.name, "%s",
             zookeeper_hand.count > 0 ? names->data[0] : "");
    zookeeper_on_void(rc, data);
}

static inline void zookeeper_on_event(zhandle_t *zh, int type, int state, const char *path,
                                      void *data) {
    (void)zh, (void)type, (void)state, (void)path, (void)data;
}

static inline void zookeeper_is_quiet(const char *message) {
    (void)message;
}

static inline void zookeeper_turns(void) {
    struct timeval wait;
    struct pollfd p;
    int interest = 0, fd = -1;
    if (zookeeper_interest(zookeeper_hand.zh, &fd, &interest, &wait) == ZOK && fd >= 0) {
        p.fd = fd;
        p.events = (short)((interest & ZOOKEEPER_READ ? POLLIN : 0) |
                           (interest & ZOOKEEPER_WRITE ? POLLOUT : 0));
        poll(&p, 1, 10);
        zookeeper_process(zookeeper_hand.zh,
                          (p.revents & (POLLIN | POLLHUP | POLLERR) ? ZOOKEEPER_READ : 0) |
                              (p.revents & POLLOUT ? ZOOKEEPER_WRITE : 0));
    }
}

/* Returns what the server says of one node: ZOK, ZNONODE or another code; -1: it says nothing. */
static inline int zookeeper_asks(const struct server *server, int what, const char *path) {
    char host[32];
    int rc = -1, tries = 0;
    snprintf(host, sizeof host, "127.0.0.1:%d", server->port);
    zookeeper_hand.done = false;
    zookeeper_hand.count = 0;
    zookeeper_hand.rc = -1;
    zookeeper_hand.zh = zookeeper_init2(host, zookeeper_on_event, 4000, NULL, NULL,
                                        ZOO_NO_LOG_CLIENTENV, zookeeper_is_quiet);
    while (zoo_state(zookeeper_hand.zh) != ZOO_CONNECTED_STATE && tries++ < 2000) {
        zookeeper_turns();
        server_sleep_ms(1);
    }
    rc = what == ZOOKEEPER_LIST
             ? zoo_aget_children(zookeeper_hand.zh, path, 0, zookeeper_on_children, NULL)
         : what == ZOOKEEPER_MAKE
             ? zoo_acreate(zookeeper_hand.zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0,
                           zookeeper_on_string, NULL)
             : zoo_adelete(zookeeper_hand.zh, path, -1, zookeeper_on_void, NULL);
    while (rc == ZOK && !zookeeper_hand.done && tries++ < 4000) {
        zookeeper_turns();
    }
    zookeeper_close(zookeeper_hand.zh);
    return zookeeper_hand.rc;
}

#endif
