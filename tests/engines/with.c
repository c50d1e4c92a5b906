/* with.c - runs a command beside a private server of another engine, as tools/with-server does
 *
 *     with postgres|zookeeper|mariadb COMMAND [ARGUMENT...]
 *
 * The command finds it in RLOCK_URL, and its folder and process in ENGINE_DIR and ENGINE_PID. What
 * RLOCK_URL was before, as a Redis of tools/with-server, it finds in RLOCK_DATA. Exit status: the
 * command's, or 128 and its signal; 127 = no server.
 */

#include <errno.h>
#include <stdbool.h>

#ifdef RLOCK_WITH_POSTGRES
#include "postgres.h"
#endif
#ifdef RLOCK_WITH_ZOOKEEPER
#define ZOOKEEPER_TICK_MS 100 /* sessions are from 0.2 to 2 s long */
#include "zookeeper.h"
#endif
#ifdef RLOCK_WITH_MARIADB
#include "mariadb.h"
#endif

static struct {
    const char *dir, *url, *parameters;
    pid_t pid;
} server;

#ifdef RLOCK_WITH_POSTGRES
static struct server postgres;

static bool postgres_is_there(void) {
    bool good = postgres_start(&postgres) == 0 &&
                postgres_installs(&postgres, "stores/rlock_postgres.sql") == 0;
    server.dir = postgres.dir;
    server.url = postgres.url;
    server.pid = postgres.pid;
    return good;
}

static void postgres_goes(void) {
    server_stop(&postgres);
}
#endif

#ifdef RLOCK_WITH_ZOOKEEPER
static struct server zookeeper;

static bool zookeeper_is_there(void) {
    bool good = zookeeper_start(&zookeeper) == 0;
    server.dir = zookeeper.dir;
    server.url = zookeeper.url;
    server.parameters = "?tick_ms=100";
    server.pid = zookeeper.pid;
    return good;
}

static void zookeeper_goes(void) {
    server_stop(&zookeeper);
}
#endif

#ifdef RLOCK_WITH_MARIADB
static struct server mariadb;

static bool mariadb_is_there(void) {
    bool good =
        mariadb_start(&mariadb) == 0 && mariadb_installs(&mariadb, "stores/rlock_mariadb.sql") == 0;
    server.dir = mariadb.dir;
    server.url = mariadb.url;
    server.pid = mariadb.pid;
    return good;
}

static void mariadb_goes(void) {
    server_stop(&mariadb);
}
#endif

static const struct {
    const char *name;
    bool (*is_there)(void);
    void (*goes)(void);
} engines[] = {
#ifdef RLOCK_WITH_POSTGRES
    {"postgres", postgres_is_there, postgres_goes},
#endif
#ifdef RLOCK_WITH_ZOOKEEPER
    {"zookeeper", zookeeper_is_there, zookeeper_goes},
#endif
#ifdef RLOCK_WITH_MARIADB
    {"mariadb", mariadb_is_there, mariadb_goes},
#endif
};

static void on_end(int number) {
    (void)number; /* it is the command's too, which ends of it */
}

/* Runs the command to its end; returns its status as wait(2) has it. */
static int runs(char **argv) {
    const char *before = getenv("RLOCK_URL");
    char text[256];
    int status = 0;
    pid_t pid;
    if (before != NULL) {
        setenv("RLOCK_DATA", before, 1);
    }
    snprintf(text, sizeof text, "%s%s", server.url,
             server.parameters != NULL ? server.parameters : "");
    setenv("RLOCK_URL", text, 1);
    setenv("ENGINE_DIR", server.dir, 1);
    snprintf(text, sizeof text, "%d", (int)server.pid);
    setenv("ENGINE_PID", text, 1);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        execvp(argv[0], argv);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

int main(int argc, char **argv) {
    size_t i = 0, count = sizeof engines / sizeof *engines;
    int status = 127 << 8;
    while (argc > 2 && i < count && strcmp(argv[1], engines[i].name) != 0) {
        i++;
    }
    if (argc < 3 || i == count) {
        fprintf(stderr, "usage: with ENGINE COMMAND [ARGUMENT...]; it has");
        for (i = 0; i < count; i++) {
            fprintf(stderr, " %s", engines[i].name);
        }
        fputc('\n', stderr);
        return 127;
    }
    if (engines[i].is_there()) {
        signal(SIGINT, on_end);
        signal(SIGTERM, on_end);
        status = runs(argv + 2);
    } else {
        fprintf(stderr, "with: no %s\n", argv[1]);
    }
    engines[i].goes();
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
