/* A private server for tests: a process in a folder of its own, no other's business.
 *
 *     static struct server s;                   or another one of zeros
 *     server_folder(&s);                        makes its folder; some tests want no more
 *     s.pid = server_begins(&s, argv, NULL);    starts it there ...
 *     server_waits(&s, answers);                ... and waits until it answers
 *     server_ends(&s, SIGTERM);                 ends the process; it can be started again
 *     server_stop(&s);                          ends the process, and removes the folder
 *
 * What a kind of server has of its own stands in a header of its own, in these words: server.h for
 * Redis, the headers in engines/ for others.
 *
 * The server dies with the process that started it: by the kernel's parent-death signal, by
 * atexit, and by a handler of SIGINT, SIGTERM and SIGHUP; the latter two also remove the folder. */
#ifndef RLOCK_TESTS_PRIVATE_H
#define RLOCK_TESTS_PRIVATE_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SERVER_ARGS_MAX 24 /* arguments of one test's own */
#define SERVER_MAX 12      /* servers at one time */
#define SERVER_NOBODY 65534

struct server {
    pid_t pid;       /* 0 = not running */
    pid_t owner;     /* who made the folder: a forked child must not end it */
    char dir[64];    /* its folder, under $TMPDIR or /tmp; "" = none */
    char socket[96]; /* its unix socket, inside the folder */
    int port;        /* 0 = no TCP */
    char peer[8];    /* the port at which others of its kind find it */
    char url[128];   /* as a client names it; "" = by the socket and the port */
    bool nobodys;    /* set before the folder is made: it is run by nobody, not by root */
    int end;         /* the signal that ends it where it is not to go on; 0 = SIGKILL */

    /* What Redis is started with, set before: */
    const char *file;                      /* a configuration; NULL = none */
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

static inline bool server_is_nobodys(const struct server *s) {
    return s->nobodys && getuid() == 0;
}

/* Gives the account of the server what root has made for it. 0, or -1. */
static inline int server_owns(const struct server *s, const char *path) {
    return server_is_nobodys(s) ? chown(path, SERVER_NOBODY, SERVER_NOBODY) : 0;
}

/* In the child: become the program. */
static inline void server_exec(const struct server *s, const char *program, const char *const *argv,
                               const char *input, pid_t parent) {
    sigset_t none;
    int i, fd;

    if (chdir(s->dir) != 0 ||
        (server_is_nobodys(s) && (setgid(SERVER_NOBODY) != 0 || setuid(SERVER_NOBODY) != 0))) {
        _exit(126);
    }
    prctl(PR_SET_PDEATHSIG, s->end != 0 ? s->end : SIGKILL); /* another account would undo it */
    if (getppid() != parent) {
        _exit(1); /* the parent died before the signal was armed */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setenv("TMPDIR", s->dir, 1); /* that of the test may be another account's */
    fd = open(input != NULL ? input : "/dev/null", O_RDONLY);
    dup2(fd, 0);
    fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    for (i = 3; i < 256; i++) {
        close(i);
    }
    execvp(program, (char *const *)(void *)argv);
    fprintf(stderr, "cannot run %s: %s\n", program, strerror(errno));
    _exit(127);
}

/* Starts a program in the folder of the server and returns its number. What it says goes into the
 * file `log` there; it reads the file `input` there, or nothing if that is NULL. */
static inline pid_t server_begins(const struct server *s, const char *const *argv,
                                  const char *input) {
    char *program = strchr(argv[0], '/') != NULL ? realpath(argv[0], NULL) : NULL;
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        server_exec(s, program != NULL ? program : argv[0], argv, input, parent);
    }
    free(program);
    return pid;
}

/* Runs a program in the folder to its end, as server_begins, and returns its status as wait(2) has
 * it. */
static inline int server_executes(const struct server *s, const char *const *argv,
                                  const char *input) {
    int status = -1;

    waitpid(server_begins(s, argv, input), &status, 0);
    return status;
}

/* Ends the process by its number, also one that stands still, and waits for its end. */
static inline void server_ends(struct server *s, int signal_number) {
    if (s->pid > 0) {
        kill(s->pid, signal_number);
        kill(s->pid, SIGCONT);
        waitpid(s->pid, NULL, 0);
        s->pid = 0;
    }
}

/* Waits until the server answers. 0, or -1 if it has ended, or does not answer in 30 s: then it is
 * ended. */
static inline int server_waits(struct server *s, int (*answers)(const struct server *)) {
    int tries;

    for (tries = 0; s->pid > 0 && tries < 6000; tries++) {
        if (answers(s)) {
            return 0;
        }
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
        }
        server_sleep_ms(5);
    }
    fprintf(stderr, "the server did not start; its words are in %s/log\n", s->dir);
    server_ends(s, SIGKILL);
    return -1;
}

/* Removes a file, or a folder with all that is in it. */
static inline void server_removes(const char *path) {
    pid_t pid = fork();

    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
        _exit(127);
    }
    if (pid > 0) {
        waitpid(pid, NULL, 0);
    }
}

/* Ends the process and removes its folder. */
static inline void server_stop(struct server *s) {
    int i;

    for (i = 0; i < SERVER_MAX; i++) {
        if (server_list[i] == s) {
            server_list[i] = NULL;
        }
    }
    server_ends(s, s->end != 0 ? s->end : SIGKILL);
    if (s->dir[0] != '\0') {
        server_removes(s->dir);
        s->dir[0] = '\0';
    }
}

static inline void server_end_all(void) {
    int i;

    for (i = 0; i < SERVER_MAX; i++) {
        if (server_list[i] != NULL && server_list[i]->owner == getpid()) {
            server_stop(server_list[i]);
        }
    }
}

/* Ended from outside, by Ctrl-C or by a time limit: nothing is left behind either. */
static inline void server_on_signal(int number) {
    server_end_all();
    _exit(128 + number);
}

/* Makes the folder, after the end of a server that was there before. `s` must stand still until
 * server_stop: static, or in a frame that outlives it. 0, or -1. */
static inline int server_folder(struct server *s) {
    static int registered;
    const char *tmp = getenv("TMPDIR");
    int i, place = -1;

    server_stop(s);
    for (i = 0; i < SERVER_MAX; i++) {
        if (server_list[i] == NULL) {
            place = i;
        }
    }
    if (tmp == NULL || *tmp == '\0' || strlen(tmp) > 32) {
        tmp = "/tmp"; /* a unix socket's path has room for 107 bytes */
    }
    snprintf(s->dir, sizeof s->dir, "%s/rlock-test-XXXXXX", tmp);
    if (place < 0 || mkdtemp(s->dir) == NULL) {
        s->dir[0] = '\0';
        return -1;
    }
    snprintf(s->socket, sizeof s->socket, "%s/socket", s->dir);
    s->owner = getpid();
    server_list[place] = s;
    if (!registered) {
        registered = 1;
        atexit(server_end_all);
        signal(SIGINT, server_on_signal);
        signal(SIGTERM, server_on_signal);
        signal(SIGHUP, server_on_signal);
    }
    return server_owns(s, s->dir);
}

/* The sudden death; it can be started again. */
static inline void server_kill9(struct server *s) {
    server_ends(s, SIGKILL);
}

/* Returns when the process has stopped. */
static inline void server_pause(const struct server *s) {
    siginfo_t info;

    kill(s->pid, SIGSTOP);
    waitid(P_PID, (id_t)s->pid, &info, WSTOPPED | WEXITED | WNOWAIT);
}

static inline void server_resume(const struct server *s) {
    kill(s->pid, SIGCONT);
}

#endif
