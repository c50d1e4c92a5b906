/* with.c - runs a command beside a private server of another engine, as tools/with-server does
 *
 *     with postgres|zookeeper COMMAND [ARGUMENT...]
 *
 * The command finds it in RLOCK_URL. What RLOCK_URL was before, as a Redis of tools/with-server, it
 * finds in RLOCK_DATA. Exit status: the command's, or 128 and its signal; 127 = no server.
 */

#include <errno.h>
#include <stdbool.h>

#include "postgres.h"
#define ZOOKEEPER_TICK_MS 100
#include "zookeeper.h"

static struct postgres postgres;
static struct zookeeper zookeeper;

static void on_end(int number) {
    (void)number; /* it is the command's too, which ends of it */
}

static int usage(void) {
    fprintf(stderr, "usage: with postgres|zookeeper COMMAND [ARGUMENT...]\n");
    return 2;
}

int main(int argc, char **argv) {
    bool sql = argc > 2 && strcmp(argv[1], "postgres") == 0;
    const char *before = getenv("RLOCK_URL");
    char url[256];
    int status = 127 << 8;
    pid_t pid;
    if (!sql && (argc < 3 || strcmp(argv[1], "zookeeper") != 0)) {
        return usage();
    }
    signal(SIGINT, on_end);
    signal(SIGTERM, on_end);
    if (sql ? postgres_start(&postgres) != 0 ||
                  postgres_installs(&postgres, "stores/rlock_postgres.sql") != 0
            : zookeeper_start(&zookeeper) != 0) {
        fprintf(stderr, "with: no %s\n", argv[1]);
    } else {
        snprintf(url, sizeof url, "%s%s", sql ? postgres.url : zookeeper.url,
                 sql ? "" : "?tick_ms=100");
        if (before != NULL) {
            setenv("RLOCK_DATA", before, 1);
        }
        setenv("RLOCK_URL", url, 1);
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            signal(SIGINT, SIG_DFL);
            signal(SIGTERM, SIG_DFL);
            execvp(argv[2], argv + 2);
            _exit(127);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    postgres_stop(&postgres);
    zookeeper_stop(&zookeeper);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
