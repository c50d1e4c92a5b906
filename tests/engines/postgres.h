/* postgres.h - a private PostgreSQL for tests: in a folder of its own, ended by its pid
 *
 * Debian keeps the programs in a folder of their version, and postgres refuses to run as root. So
 * the folder and the process belong to nobody where the tests run as root.
 */

#ifndef TESTS_POSTGRES_H
#define TESTS_POSTGRES_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server.h"

#define POSTGRES_NOBODY 65534

struct postgres {
    char dir[64], url[128];
    int port;
    pid_t pid;
};

static inline int postgres_remove_one(const char *path, const struct stat *what, int kind,
                                      struct FTW *where) {
    (void)what, (void)kind, (void)where;
    return remove(path);
}

static inline void postgres_remove(const char *folder) {
    if (folder[0] != 0) {
        nftw(folder, postgres_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

static char postgres_copies[2][64];
static pid_t postgres_copier; /* a forked child leaves them */

static inline void postgres_copies_go(void) {
    if (postgres_copier == getpid()) {
        postgres_remove(postgres_copies[0]);
        postgres_remove(postgres_copies[1]);
    }
}

/* Whether nobody, who runs the servers of root, comes to a folder. */
static inline bool postgres_reaches(const char *folder) {
    int status = 0;
    pid_t pid = getuid() == 0 ? fork() : 0;
    if (getuid() == 0 && pid == 0) {
        _exit(setgid(POSTGRES_NOBODY) != 0 || setuid(POSTGRES_NOBODY) != 0 ||
              access(folder, X_OK) != 0);
    }
    return pid <= 0 || (waitpid(pid, &status, 0) == pid && status == 0);
}

/* The folder of what tools/setup has unpacked, whose libraries stand before the system's from here
 * on; NULL: there is none. Of a tree in a private folder it is a copy. */
static inline const char *postgres_unpacked(const char *name, int which) {
    static char places[2][300];
    char *place = places[which], *copy = postgres_copies[which], text[700], *real;
    const char *before = getenv("LD_LIBRARY_PATH");
    glob_t found;
    snprintf(text, sizeof text, "build/%s/usr", name);
    real = realpath(text, NULL);
    snprintf(place, sizeof places[0], "%.290s", real != NULL ? real : "");
    free(real);
    if (place[0] != 0 && !postgres_reaches(place)) {
        snprintf(copy, sizeof postgres_copies[0], "/tmp/rlock-programs-XXXXXX");
        postgres_copier = getpid();
        atexit(postgres_copies_go);
        snprintf(text, sizeof text, "cp -R '%s/.' '%s'", place, mkdtemp(copy));
        if (chmod(copy, 0755) != 0 || system(text) != 0) {
            return NULL;
        }
        snprintf(place, sizeof places[0], "%s", copy);
    }
    snprintf(text, sizeof text, "%s/lib/*-linux-gnu*", place);
    if (place[0] != 0 && glob(text, 0, NULL, &found) == 0) {
        snprintf(text, sizeof text, "%s:%s", found.gl_pathv[0], before != NULL ? before : "");
        setenv("LD_LIBRARY_PATH", text, 1);
        globfree(&found);
    }
    return place[0] != 0 ? place : NULL;
}

/* The newest version under a folder; 0 = none. */
static inline int postgres_newest(const char *folder) {
    DIR *versions = opendir(folder);
    struct dirent *entry;
    int newest = 0;
    while (versions != NULL && (entry = readdir(versions)) != NULL) {
        newest = atoi(entry->d_name) > newest ? atoi(entry->d_name) : newest;
    }
    if (versions != NULL) {
        closedir(versions);
    }
    return newest;
}

/* The folder of the programs: the system's, or what tools/setup has unpacked. */
static inline const char *postgres_bin(void) {
    static char path[400];
    const char *from = "/usr";
    char at[350];
    if (path[0] == 0) {
        if (postgres_newest("/usr/lib/postgresql") == 0) {
            from = postgres_unpacked("postgres", 0);
        }
        snprintf(at, sizeof at, "%s/lib/postgresql", from != NULL ? from : "");
        snprintf(path, sizeof path, "%s/%d/bin", at, postgres_newest(at));
    }
    return path;
}

/* Begins a program of PostgreSQL, or that of a path, in the server's folder; what it says goes into
 * the file `log`. */
static inline pid_t postgres_runs(const struct postgres *server, const char *const *argv) {
    const char *words[24] = {NULL};
    char path[600];
    pid_t pid;
    int fd, i;
    snprintf(path, sizeof path, "%s%s%s", *argv[0] == '/' ? "" : postgres_bin(),
             *argv[0] == '/' ? "" : "/", argv[0]);
    pid = fork();
    if (pid != 0) {
        return pid;
    }
    if (chdir(server->dir) != 0 ||
        (getuid() == 0 && (setgid(POSTGRES_NOBODY) != 0 || setuid(POSTGRES_NOBODY) != 0))) {
        _exit(126);
    }
    prctl(PR_SET_PDEATHSIG, SIGQUIT); /* at once, and its own processes with it */
    fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    for (i = 1; i < 23 && argv[i] != NULL; i++) {
        words[i] = argv[i];
    }
    words[0] = path; /* they look for each other where they stand */
    execv(path, (char *const *)words);
    _exit(127);
}

static inline bool postgres_answers(const struct postgres *server) {
    return PQping(server->url) == PQPING_OK;
}

/* Starts the server on the data that is there. */
static inline int postgres_continue(struct postgres *server) {
    char port[16];
    const char *argv[] = {"postgres",
                          "-D",
                          "data",
                          "-k",
                          server->dir,
                          "-p",
                          port,
                          "-c",
                          "listen_addresses=127.0.0.1",
                          "-c",
                          "fsync=off",
                          "-c",
                          "max_connections=200",
                          NULL};
    int tries = 0;
    snprintf(port, sizeof port, "%d", server->port);
    server->pid = postgres_runs(server, argv);
    while (server->pid > 0 && !postgres_answers(server) && tries++ < 1000) {
        server_sleep_ms(10);
    }
    return server->pid > 0 && postgres_answers(server) ? 0 : -1;
}

static inline void postgres_ends(struct postgres *server, int signal_number) {
    if (server->pid > 0) {
        kill(server->pid, signal_number);
        waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

/* Sends a signal to the server and all of its processes. */
static inline void postgres_signals(const struct postgres *server, int signal_number) {
    char path[64], line[256];
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    kill(server->pid, signal_number);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int pid = atoi(entry->d_name), parent = 0;
        FILE *stat;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        stat = pid > 0 ? fopen(path, "r") : NULL;
        if (stat != NULL && fgets(line, sizeof line, stat) != NULL && strrchr(line, ')') != NULL &&
            sscanf(strrchr(line, ')') + 1, " %*c %d", &parent) == 1 && parent == server->pid) {
            kill(pid, signal_number);
        }
        if (stat != NULL) {
            fclose(stat);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* Runs a file of SQL as the operator does. */
static inline int postgres_installs(const struct postgres *server, const char *file) {
    char command[600];
    snprintf(command, sizeof command, "%s/psql -q -X -v ON_ERROR_STOP=1 '%s' -f '%s' >/dev/null",
             postgres_bin(), server->url, file);
    return system(command) == 0 ? 0 : -1;
}

/* Starts the server on the data that a program makes in a new folder. */
static inline int postgres_begin(struct postgres *server, const char *const *argv) {
    const char *tmp = getenv("TMPDIR");
    int status = 0;
    pid_t pid;
    memset(server, 0, sizeof *server);
    snprintf(server->dir, sizeof server->dir, "%s/rlock-postgres-XXXXXX",
             tmp != NULL && *tmp != '\0' && strlen(tmp) < 32 ? tmp : "/tmp");
    if (mkdtemp(server->dir) == NULL ||
        (getuid() == 0 && chown(server->dir, POSTGRES_NOBODY, POSTGRES_NOBODY) != 0)) {
        return -1;
    }
    server->port = server_free_port();
    snprintf(server->url, sizeof server->url, "postgres://me@127.0.0.1:%d/postgres", server->port);
    pid = postgres_runs(server, argv);
    waitpid(pid, &status, 0);
    return status == 0 ? postgres_continue(server) : -1;
}

static inline int postgres_start(struct postgres *server) {
    const char *argv[] = {"initdb", "-D",        "data", "-A",   "trust",      "-U",
                          "me",     "--no-sync", "-E",   "UTF8", "--locale=C", NULL};
    return postgres_begin(server, argv);
}

/* A standby that follows another server by streaming. */
static inline int postgres_follow(struct postgres *standby, const struct postgres *primary) {
    const char *argv[] = {"pg_basebackup", "-D",        "data", "-R",         "-c",
                          "fast",          "--no-sync", "-d",   primary->url, NULL};
    return postgres_begin(standby, argv);
}

static inline void postgres_stop(struct postgres *server) {
    postgres_ends(server, SIGQUIT);
    postgres_remove(server->dir);
}

#endif
