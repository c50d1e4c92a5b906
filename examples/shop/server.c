/* server.c - a Redis server of the shop's own, on a socket in a folder of its own
 *
 * It listens on no port, so it is in nobody's way; it is ended by its pid, and where the kernel can
 * do that, it also ends when this process is killed. */
#define _GNU_SOURCE 1 /* mkdtemp */
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include "shop.h"

static pid_t server;
static bool stopped;
static char folder[64], socket_path[80], log_path[80];

static void become_server(pid_t parent) {
    const char *program = getenv("RLOCK_REDIS_SERVER");
    int log = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (program == NULL || *program == '\0') {
        program = "redis-server";
    }
    setpgid(0, 0); /* Ctrl-C in the terminal is for the shop alone */
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent || log < 0) {
        _exit(1);
    }
    dup2(log, 1);
    dup2(log, 2);
    execlp(program, program, "--port", "0", "--unixsocket", socket_path, "--dir", folder,
           "--daemonize", "no", "--save", "", "--appendonly", "no", (char *)NULL);
    fprintf(stderr, "cannot run %s\n", program);
    _exit(127);
}

static bool answers(void) {
    redisContext *c = redisConnectUnix(socket_path);
    redisReply *reply = c && !c->err ? redisCommand(c, "PING") : NULL;
    bool good = reply && reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    if (c) {
        redisFree(c);
    }
    return good;
}

static void show_log(void) {
    char line[256];
    FILE *file = fopen(log_path, "r");

    while (file && fgets(line, sizeof line, file)) {
        fprintf(stderr, "    %s", line);
    }
    if (file) {
        fclose(file);
    }
}

bool server_start(void) {
    const struct timespec moment = {0, 20000000};
    const char *tmp = getenv("TMPDIR");
    pid_t parent = getpid();
    char url[96];
    int tries;

    /* The path of a socket has room for 107 bytes. */
    snprintf(folder, sizeof folder, "%s/rlock-shop-XXXXXX",
             tmp && *tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return false;
    }
    snprintf(socket_path, sizeof socket_path, "%s/socket", folder);
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    snprintf(url, sizeof url, "unix://%s", socket_path);
    server = fork();
    if (server == 0) {
        become_server(parent);
    }
    for (tries = 0; server > 0 && tries < 1000; tries++) {
        if (answers()) {
            const char *locks = getenv("RLOCK_URL");
            return setenv("RLOCK_DATA", url, 1) == 0 &&
                   setenv("RLOCK_URL", url, locks == NULL || *locks == '\0') == 0;
        }
        if (waitpid(server, NULL, WNOHANG) == server) {
            server = 0;
        }
        nanosleep(&moment, NULL);
    }
    fprintf(stderr, "shop: no Redis server could be started:\n");
    show_log();
    server_end();
    return false;
}

bool server_is_ours(void) {
    return server > 0;
}

bool server_ended(int pid) {
    if (server <= 0 || pid != server) {
        return false;
    }
    server = 0;
    show_log();
    return true;
}

void server_stop(bool on) {
    if (server > 0) {
        kill(server, on ? SIGSTOP : SIGCONT);
        stopped = on;
    }
}

bool server_is_stopped(void) {
    return stopped;
}

void server_end(void) {
    if (server > 0) {
        kill(server, SIGKILL); /* a process that is stopped can be killed too */
        waitpid(server, NULL, 0);
        server = 0;
    }
    if (folder[0] != '\0') {
        unlink(socket_path);
        unlink(log_path);
        rmdir(folder);
        folder[0] = '\0';
    }
}

/* SPDX-License-Identifier: MIT */
