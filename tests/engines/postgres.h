/* postgres.h - a private PostgreSQL for tests: private.h says what that is
 *
 * Debian keeps the programs in a folder of their version.
 */

#ifndef TESTS_POSTGRES_H
#define TESTS_POSTGRES_H

#include <dirent.h>
#include <glob.h>
#include <libpq-fe.h>
#include <sys/stat.h>

#include "private.h"

/* Whether nobody, who runs the servers of root, comes to a folder. */
static inline bool postgres_reaches(const char *folder) {
    int status = 0;
    pid_t pid = getuid() == 0 ? fork() : 0;
    if (getuid() == 0 && pid == 0) {
        _exit(setgid(SERVER_NOBODY) != 0 || setuid(SERVER_NOBODY) != 0 ||
              access(folder, X_OK) != 0);
    }
    return pid <= 0 || (waitpid(pid, &status, 0) == pid && status == 0);
}

/* The folder of what tools/setup has unpacked, whose libraries stand before the system's from here
 * on; NULL: there is none. Of a tree in a private folder it is a copy. */
static inline const char *postgres_unpacked(const char *name, int which) {
    static char places[2][300];
    static struct server copies[2]; /* the folders alone */
    char *place = places[which], text[700], *real;
    struct server *copy = &copies[which];
    const char *before = getenv("LD_LIBRARY_PATH");
    glob_t found;
    snprintf(text, sizeof text, "build/%s/usr", name);
    real = realpath(text, NULL);
    snprintf(place, sizeof places[0], "%.290s", real != NULL ? real : "");
    free(real);
    if (place[0] != 0 && !postgres_reaches(place)) {
        if (server_folder(copy) != 0 || chmod(copy->dir, 0755) != 0) {
            return NULL;
        }
        snprintf(text, sizeof text, "cp -R '%s/.' '%s'", place, copy->dir);
        if (system(text) != 0) {
            return NULL;
        }
        snprintf(place, sizeof places[0], "%s", copy->dir);
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

/* The path of a program: they look for each other where they stand. */
static inline const char *postgres_program(const char *name) {
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", postgres_bin(), name);
    return path;
}

static inline int postgres_answers(const struct server *server) {
    return PQping(server->url) == PQPING_OK;
}

/* Starts the server on the data that is there. */
static inline int postgres_continue(struct server *server) {
    char port[16];
    const char *argv[] = {postgres_program("postgres"),
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
    snprintf(port, sizeof port, "%d", server->port);
    server->pid = server_begins(server, argv, NULL);
    return server_waits(server, postgres_answers);
}

/* Sends a signal to the server and all of its processes. */
static inline void postgres_signals(const struct server *server, int signal_number) {
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

/* The sudden death of all of them. */
static inline void postgres_dies(struct server *server) {
    postgres_signals(server, SIGKILL);
    server_kill9(server);
}

/* Runs a file of SQL as the operator does. */
static inline int postgres_installs(const struct server *server, const char *file) {
    char command[1200];
    snprintf(command, sizeof command, "%s/psql -q -X -v ON_ERROR_STOP=1 '%s' -f '%s' >/dev/null",
             postgres_bin(), server->url, file);
    return system(command) == 0 ? 0 : -1;
}

/* The first column of the first row that a statement returns, as a number; -1: there is none. */
static inline long postgres_counts(PGconn *hand, const char *statement) {
    PGresult *result = PQexec(hand, statement);
    bool row = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0;
    long count = row ? atol(PQgetvalue(result, 0, 0)) : -1;
    PQclear(result);
    return count;
}

/* Empties the tables, after the sessions of all clients have ended: what a client that is gone sent
 * last may be executed later, and would then hold a key of the next test. 0, or -1. */
static inline int postgres_clears(PGconn *hand) {
    int tries = 0;
    if (PQstatus(hand) != CONNECTION_OK) {
        PQreset(hand); /* the server was another process before */
    }
    while (postgres_counts(hand, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                                 "WHERE application_name = 'rlock'") > 0) {
        if (tries++ == 6000) {
            return -1;
        }
        server_sleep_ms(5);
    }
    return postgres_counts(hand, "TRUNCATE rlock.keys, rlock.members; SELECT 0") == 0 ? 0 : -1;
}

/* Puts a line before the rules of who may connect, and how, which the server reads. 0, or -1. */
static inline int postgres_rules(const struct server *server, const char *rule) {
    char path[160], text[16384];
    FILE *file;
    size_t n;
    snprintf(path, sizeof path, "%s/data/pg_hba.conf", server->dir);
    file = fopen(path, "r+");
    if (file == NULL) {
        return -1;
    }
    n = fread(text, 1, sizeof text, file);
    rewind(file);
    fprintf(file, "%s\n", rule);
    fwrite(text, 1, n, file);
    return fclose(file) == 0 && kill(server->pid, SIGHUP) == 0 ? 0 : -1;
}

/* Starts the server on the data that a program makes in a new folder. */
static inline int postgres_begin(struct server *server, const char *const *argv) {
    server->nobodys = true;
    server->end = SIGQUIT; /* at once, and its own processes with it */
    if (server_folder(server) != 0) {
        return -1;
    }
    server->port = server_free_port();
    snprintf(server->url, sizeof server->url, "postgres://me@127.0.0.1:%d/postgres", server->port);
    return server_executes(server, argv, NULL) == 0 ? postgres_continue(server) : -1;
}

static inline int postgres_start(struct server *server) {
    const char *argv[] = {postgres_program("initdb"),
                          "-D",
                          "data",
                          "-A",
                          "trust",
                          "-U",
                          "me",
                          "--no-sync",
                          "-E",
                          "UTF8",
                          "--locale=C",
                          NULL};
    return postgres_begin(server, argv);
}

/* A standby that follows another server by streaming. */
static inline int postgres_follow(struct server *standby, const struct server *primary) {
    const char *argv[] = {postgres_program("pg_basebackup"),
                          "-D",
                          "data",
                          "-R",
                          "-c",
                          "fast",
                          "--no-sync",
                          "-d",
                          primary->url,
                          NULL};
    return postgres_begin(standby, argv);
}

#endif
