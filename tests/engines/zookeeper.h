/* zookeeper.h - a private ZooKeeper for tests: in a folder of its own, ended by its pid
 *
 * Its jars are those of the system, or what tools/setup has unpacked into build/zookeeper, or in
 * the folder $RLOCK_ZOOKEEPER.
 */

#ifndef TESTS_ZOOKEEPER_H
#define TESTS_ZOOKEEPER_H

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server.h"

/* The longest session is 20 ticks: longer than the leases of the suite. */
#ifndef ZOOKEEPER_TICK_MS
#define ZOOKEEPER_TICK_MS 1500
#define ZOOKEEPER_SESSION_MS 30000
#endif

struct zookeeper {
    char dir[64], url[96];
    int port;
    pid_t pid;
};

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

/* True when it serves: it accepts connections before. */
static inline bool zookeeper_answers(const struct zookeeper *server) {
    char words[512] = "";
    struct sockaddr_in a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval patience = {0, 300000};
    bool answers;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons((uint16_t)server->port);
    answers = connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && write(fd, "srvr", 4) == 4 &&
              recv(fd, words, sizeof words - 1, MSG_WAITALL) > 0 && strstr(words, "Mode: ") != NULL;
    close(fd);
    return answers;
}

/* Starts the server on the data that is there, and does not wait for it. */
static inline void zookeeper_begins(struct zookeeper *server) {
    char path[8192], file[128];
    int fd;
    zookeeper_path(path, sizeof path);
    snprintf(file, sizeof file, "%s/zoo.cfg", server->dir);
    server->pid = fork();
    if (server->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (chdir(server->dir) != 0) {
            _exit(126);
        }
        fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        execlp("java", "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
               path, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file, (char *)NULL);
        _exit(127);
    }
}

/* Waits until it serves. 0, or -1. */
static inline int zookeeper_waits(struct zookeeper *server) {
    int tries = 0;
    while (server->pid > 0 && !zookeeper_answers(server) && tries++ < 3000) {
        server_sleep_ms(10);
    }
    return zookeeper_answers(server) ? 0 : -1;
}

static inline int zookeeper_continue(struct zookeeper *server) {
    zookeeper_begins(server);
    return zookeeper_waits(server);
}

/* Makes the folder and the configuration of one server, which is the first of one. 0, or -1. */
static inline int zookeeper_prepare(struct zookeeper *server) {
    char path[128];
    FILE *file;
    memset(server, 0, sizeof *server);
    snprintf(server->dir, sizeof server->dir, "/tmp/rlock-zookeeper-XXXXXX");
    if (mkdtemp(server->dir) == NULL) {
        return -1;
    }
    server->port = server_free_port();
    snprintf(server->url, sizeof server->url, "zookeeper://127.0.0.1:%d/locks", server->port);
    snprintf(path, sizeof path, "%s/zoo.cfg", server->dir);
    file = fopen(path, "w");
    fprintf(file,
            "tickTime=%d\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nextendedTypesEnabled=true\n",
            ZOOKEEPER_TICK_MS, server->dir, server->port);
    fclose(file);
    return 0;
}

static inline int zookeeper_start(struct zookeeper *server) {
    return zookeeper_prepare(server) == 0 ? zookeeper_continue(server) : -1;
}

/* Makes servers that know of each other, and starts them. 0, or -1. */
static inline int zookeeper_start_ensemble(struct zookeeper *servers, int count) {
    char members[512] = "", path[128];
    int i, status = 0;
    for (i = 0; i < count && status == 0; i++) {
        size_t n = strlen(members);
        int peer = server_free_port(), election = server_free_port();
        status = zookeeper_prepare(&servers[i]);
        snprintf(members + n, sizeof members - n, "server.%d=127.0.0.1:%d:%d\n", i + 1, peer,
                 election);
    }
    for (i = 0; i < count && status == 0; i++) {
        FILE *file;
        snprintf(path, sizeof path, "%s/zoo.cfg", servers[i].dir);
        file = fopen(path, "a");
        fprintf(file, "initLimit=20\nsyncLimit=10\n%s", members);
        fclose(file);
        snprintf(path, sizeof path, "%s/data", servers[i].dir);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "%s/data/myid", servers[i].dir);
        file = fopen(path, "w");
        fprintf(file, "%d\n", i + 1);
        fclose(file);
        zookeeper_begins(&servers[i]);
    }
    for (i = 0; i < count && status == 0; i++) {
        status = zookeeper_waits(&servers[i]);
    }
    return status;
}

static inline void zookeeper_ends(struct zookeeper *server, int signal_number) {
    if (server->pid > 0) {
        kill(server->pid, signal_number);
        waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

static inline int zookeeper_remove_one(const char *path, const struct stat *what, int kind,
                                       struct FTW *where) {
    (void)what, (void)kind, (void)where;
    return remove(path);
}

static inline void zookeeper_stop(struct zookeeper *server) {
    zookeeper_ends(server, SIGKILL);
    if (server->dir[0] != 0) {
        nftw(server->dir, zookeeper_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

#endif
