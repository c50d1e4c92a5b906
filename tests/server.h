/* A private server for tests: its own folder, its own unix socket, no other's business.
 *
 *     struct server s = {0};
 *     s.port = server_free_port();            only where TCP matters; 0 = unix socket alone
 *     server_start(&s, NULL);                 or a list of arguments that ends with NULL
 *     server_cli(&s, text, sizeof text, "SET %s %d", "key", 1);
 *     server_stop(&s);
 *
 * $RLOCK_REDIS_SERVER and $RLOCK_REDIS_CLI name other programs than redis-server and redis-cli.
 * The server dies with the process that started it: by the kernel's parent-death signal, by
 * atexit, and by a handler of SIGINT, SIGTERM and SIGHUP; the latter two also remove the folder. */
#ifndef RLOCK_TESTS_SERVER_H
#define RLOCK_TESTS_SERVER_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SERVER_ARGS_MAX 24 /* arguments of one test's own */
#define SERVER_MAX 8       /* servers at one time */

struct server {
    pid_t pid;                             /* 0 = not running */
    pid_t owner;                           /* who started it: a forked child must not end it */
    char dir[64];                          /* its folder, under $TMPDIR or /tmp */
    char socket[96];                       /* its unix socket, inside the folder */
    int port;                              /* set before the start; 0 = no TCP */
    char bus[8];                           /* the other port of a node */
    const char *file;                      /* set before the start: a configuration; NULL = none */
    const char *args[SERVER_ARGS_MAX + 1]; /* pointers as given: they must outlive the server */
};

static struct server *server_list[SERVER_MAX];

static inline void server_sleep_ms(long ms) {
    struct timespec t;

    t.tv_sec = ms / 1000;
    t.tv_nsec = ms % 1000 * 1000000;
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

/* A port that nobody listens on now. */
static inline int server_free_port(void) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int port = -1;

    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, len) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &len) == 0) {
        port = ntohs(a.sin_port);
    }
    if (fd >= 0) {
        close(fd);
    }
    return port;
}

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

/* In the child: become the server. Its words go to a file in its folder. */
static inline void server_exec(const struct server *s, pid_t parent) {
    const char *program = getenv("RLOCK_REDIS_SERVER");
    const char *argv[21 + SERVER_ARGS_MAX];
    char port[16], log[96];
    sigset_t none;
    int n = 0, i, fd;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* the parent died before the signal was armed */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    snprintf(port, sizeof port, "%d", s->port);
    snprintf(log, sizeof log, "%s/log", s->dir);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    for (i = 3; i < 256; i++) {
        close(i);
    }
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
    execvp(argv[0], (char *const *)(void *)argv);
    fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static inline void server_reap(struct server *s) {
    if (s->pid > 0) {
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
        s->pid = 0;
    }
}

static inline void server_remove_folder(struct server *s) {
    pid_t pid;

    if (s->dir[0] == '\0') {
        return;
    }
    pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", s->dir, (char *)NULL);
        _exit(127);
    }
    if (pid > 0) {
        waitpid(pid, NULL, 0);
    }
    s->dir[0] = '\0';
}

static inline void server_end_all(void) {
    int i;

    for (i = 0; i < SERVER_MAX; i++) {
        if (server_list[i] != NULL && server_list[i]->owner == getpid()) {
            server_reap(server_list[i]);
            server_remove_folder(server_list[i]);
            server_list[i] = NULL;
        }
    }
}

/* Ended from outside, by Ctrl-C or by a time limit: nothing is left behind either. */
static inline void server_on_signal(int number) {
    server_end_all();
    _exit(128 + number);
}

/* Starts the process again in the same folder, on the same socket and port. 0, or -1 if it does not
 * answer in 20 s. */
static inline int server_restart(struct server *s) {
    pid_t parent = getpid();
    int tries;

    server_reap(s);
    unlink(s->socket);
    fflush(NULL);
    s->pid = fork();
    if (s->pid == 0) {
        server_exec(s, parent);
    }
    for (tries = 0; s->pid > 0 && tries < 4000; tries++) {
        if (server_answers(s)) {
            return 0;
        }
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
            break;
        }
        server_sleep_ms(5);
    }
    fprintf(stderr, "the server did not start; its words are in %s/log\n", s->dir);
    server_reap(s);
    return -1;
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
    static int registered;
    const char *tmp = getenv("TMPDIR");
    char dir[sizeof s->dir];
    int i, place = -1;

    for (i = 0; extra_args != NULL && extra_args[i] != NULL && i < SERVER_ARGS_MAX; i++) {
        s->args[i] = extra_args[i];
    }
    if (server_is_clustered() && i + (int)(sizeof node / sizeof *node) < SERVER_ARGS_MAX) {
        memcpy(&s->args[i], node, sizeof node);
        i += (int)(sizeof node / sizeof *node);
        s->args[i - 1] = s->bus;
        snprintf(s->bus, sizeof s->bus, "%d", server_free_port());
        s->port = s->port != 0 ? s->port : server_free_port();
    }
    s->args[i] = NULL;
    for (i = 0; i < SERVER_MAX; i++) {
        if (server_list[i] == NULL || server_list[i] == s) {
            place = i;
        }
    }
    if (tmp == NULL || *tmp == '\0' || strlen(tmp) > 32) {
        tmp = "/tmp"; /* a unix socket's path has room for 107 bytes */
    }
    snprintf(dir, sizeof dir, "%s/rlock-test-XXXXXX", tmp);
    if (place < 0 || mkdtemp(dir) == NULL) {
        s->dir[0] = '\0';
        return -1;
    }
    snprintf(s->dir, sizeof s->dir, "%s", dir);
    snprintf(s->socket, sizeof s->socket, "%s/socket", dir);
    s->owner = getpid();
    server_list[place] = s;
    if (!registered) {
        registered = 1;
        atexit(server_end_all);
        signal(SIGINT, server_on_signal);
        signal(SIGTERM, server_on_signal);
        signal(SIGHUP, server_on_signal);
    }
    if (server_restart(s) != 0) {
        return -1;
    }
    return server_is_clustered() ? server_gets_slots(s) : 0;
}

/* Ends it by its pid and removes its folder. */
static inline void server_stop(struct server *s) {
    int i;

    for (i = 0; i < SERVER_MAX; i++) {
        if (server_list[i] == s) {
            server_list[i] = NULL;
        }
    }
    server_reap(s);
    server_remove_folder(s);
}

/* The sudden death; server_restart brings it back. */
static inline void server_kill9(struct server *s) {
    server_reap(s);
}

static inline void server_pause(const struct server *s) {
    kill(s->pid, SIGSTOP);
}

static inline void server_resume(const struct server *s) {
    kill(s->pid, SIGCONT);
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
