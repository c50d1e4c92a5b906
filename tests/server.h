/* A private Redis for tests: private.h says what that is.
 *
 *     struct server s = {0};
 *     s.port = server_free_port();            only where TCP matters; 0 = unix socket alone
 *     server_start(&s, NULL);                 or a list of arguments that ends with NULL
 *     server_cli(&s, text, sizeof text, "SET %s %d", "key", 1);
 *     server_stop(&s);
 *
 * $RLOCK_REDIS_SERVER and $RLOCK_REDIS_CLI name other programs than redis-server and redis-cli. */
#ifndef RLOCK_TESTS_SERVER_H
#define RLOCK_TESTS_SERVER_H

#include <stdarg.h>
#include <sys/un.h>

#include "private.h"

/* True when the server accepts a connection and answers a command, with words that have `with` and
 * do not begin with `without`. */
static inline int server_says(const struct server *s, const char *command, const char *with,
                              const char *without) {
    struct sockaddr_un a;
    struct timeval patience = {1, 0};
    char reply[1024];
    ssize_t n = -1;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (fd < 0) {
        return 0;
    }
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    memcpy(a.sun_path, s->socket, sizeof s->socket);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
        send(fd, command, strlen(command), MSG_NOSIGNAL) == (ssize_t)strlen(command)) {
        n = recv(fd, reply, sizeof reply - 1, 0);
    }
    close(fd);
    reply[n > 0 ? n : 0] = '\0';
    return n > 0 && strstr(reply, with) != NULL && strncmp(reply, without, strlen(without)) != 0;
}

static inline int server_answers(const struct server *s) {
    return server_says(s, "PING\r\n", "", "-LOADING");
}

/* Starts the process again in the same folder, on the same socket and port, and does not wait until
 * it answers. */
static inline void server_begins_again(struct server *s) {
    const char *program = getenv("RLOCK_REDIS_SERVER");
    const char *argv[21 + SERVER_ARGS_MAX];
    char port[16];
    int n = 0, i;

    server_kill9(s);
    unlink(s->socket);
    snprintf(port, sizeof port, "%d", s->port);
    argv[n++] = program != NULL && *program != '\0' ? program : "redis-server";
    if (s->file != NULL) {
        argv[n++] = s->file;
    }
    argv[n++] = "--daemonize", argv[n++] = "no";
    argv[n++] = "--bind", argv[n++] = "127.0.0.1";
    argv[n++] = "--port", argv[n++] = port;
    argv[n++] = "--dir", argv[n++] = s->dir;
    argv[n++] = "--unixsocket", argv[n++] = s->socket;
    argv[n++] = "--save", argv[n++] = "";
    argv[n++] = "--appendonly", argv[n++] = "no";
    for (i = 0; s->args[i] != NULL; i++) {
        argv[n++] = s->args[i];
    }
    argv[n] = NULL;
    s->pid = server_begins(s, argv, NULL);
}

/* ... and waits. 0, or -1 if it does not answer. */
static inline int server_restart(struct server *s) {
    server_begins_again(s);
    return server_waits(s, server_answers);
}

/* True if the suite is run on a cluster, each server of it one with all slots: see clustered.h. */
static inline int server_is_clustered(void) {
    const char *said = getenv("RLOCK_TEST_CLUSTER");

    return said != NULL && strcmp(said, "1") == 0;
}

/* Gives a node all slots. 0, or -1 if it is not content in 20 s. */
static inline int server_gets_slots(struct server *s) {
    int tries;

    for (tries = 0; tries < 2000; tries++) {
        if (server_says(s, "CLUSTER INFO\r\n", "cluster_state:ok", "-")) {
            return 0;
        }
        server_says(s, "CLUSTER ADDSLOTSRANGE 0 16383\r\n", "", "-");
        server_sleep_ms(10);
    }
    fprintf(stderr, "the node has no slots; its words are in %s/log\n", s->dir);
    return -1;
}

/* Makes the folder and starts. `s` must stand still until server_stop: static, or in a frame that
 * outlives it. */
static inline int server_start(struct server *s, const char *extra_args[]) {
    static const char *const node[] = {"--cluster-enabled",
                                       "yes",
                                       "--cluster-preferred-endpoint-type",
                                       "unknown-endpoint",
                                       "--repl-diskless-sync-delay",
                                       "0",
                                       "--cluster-port",
                                       NULL};
    int i;

    for (i = 0; extra_args != NULL && extra_args[i] != NULL && i < SERVER_ARGS_MAX; i++) {
        s->args[i] = extra_args[i];
    }
    if (server_is_clustered() && i + (int)(sizeof node / sizeof *node) < SERVER_ARGS_MAX) {
        memcpy(&s->args[i], node, sizeof node);
        i += (int)(sizeof node / sizeof *node);
        s->args[i - 1] = s->peer;
        snprintf(s->peer, sizeof s->peer, "%d", server_free_port());
        s->port = s->port != 0 ? s->port : server_free_port();
    }
    s->args[i] = NULL;
    if (server_folder(s) != 0 || server_restart(s) != 0) {
        return -1;
    }
    return server_is_clustered() ? server_gets_slots(s) : 0;
}

/* Runs one command, words split as redis-cli splits its standard input (quotes allowed), and
 * gives the reply's text without the last newline. Returns its length, or -1 if redis-cli could
 * not be run. */
static inline int server_cli(const struct server *s, char *reply, size_t size, const char *format,
                             ...) {
    const char *program = getenv("RLOCK_REDIS_CLI");
    char command[1024], spare;
    int in[2], out[2];
    size_t len = 0;
    ssize_t n;
    pid_t pid;
    va_list ap;

    va_start(ap, format);
    vsnprintf(command, sizeof command - 1, format, ap);
    va_end(ap);
    strcat(command, "\n");
    if (pipe(in) != 0 || pipe(out) != 0) {
        return -1;
    }
    pid = fork();
    if (pid == 0) {
        const char *name = program != NULL && *program != '\0' ? program : "redis-cli";

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execlp(name, name, "-s", s->socket, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    n = write(in[1], command, strlen(command));
    close(in[1]);
    while (n >= 0 && (n = read(out[0], len + 1 < size ? reply + len : &spare,
                               len + 1 < size ? size - 1 - len : 1)) > 0) {
        len += len + 1 < size ? (size_t)n : 0;
    }
    close(out[0]);
    if (pid > 0) {
        waitpid(pid, NULL, 0);
    }
    while (len > 0 && reply[len - 1] == '\n') {
        len--;
    }
    if (size > 0) {
        reply[len] = '\0';
    }
    return pid > 0 && n >= 0 ? (int)len : -1;
}

#endif
