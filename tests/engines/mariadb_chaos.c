/* mariadb_chaos.c - several processes lock the same keys in MariaDB while all goes wrong
 *
 *     mariadb_chaos SECONDS [SEED]
 *
 * What happens is in tests/engines/chaos.h. The server's wall clock is not stepped, and its commits
 * are durable against its own death.
 */

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "../../stores/rlock_mariadb.h"
#include "chaos.h"
#include "mariadb.h"

static struct server server;

static int start(char *direct, char *roundabout) {
    char from[160];
    if (mariadb_start(&server) != 0 || mariadb_installs(&server, "stores/rlock_mariadb.sql") != 0) {
        return -1;
    }
    snprintf(from, sizeof from, "%s/proxy", server.dir);
    proxy_starts(from, server.socket);
    snprintf(direct, 256, "%s", server.url);
    snprintf(roundabout, 256, "mysql://app@/shop?socket=%s", from);
    return 0;
}

static void stop(void) {
    server_stop(&server);
}

static int make(rlock_store **out, const char *url) {
    return rlock_mariadb_new(out, url, 0);
}

static void signals(int signal_number) {
    kill(server.pid, signal_number);
}

static int restarts(useconds_t us) {
    server_kill9(&server);
    usleep(us);
    return mariadb_continue(&server);
}

static void ends_sessions(void) {
    MYSQL *hand = mariadb_connects(&server, "shop");
    if (hand != NULL) {
        mariadb_does(hand, "KILL CONNECTION USER app");
        mysql_close(hand);
    }
}

static long left(void) {
    MYSQL *hand = mariadb_connects(&server, "shop");
    MYSQL_RES *result = NULL;
    MYSQL_ROW row = NULL;
    long count;
    if (hand != NULL &&
        mysql_query(hand, "SELECT (SELECT COUNT(*) FROM rlock_keys WHERE ends > at) + "
                          "(SELECT COUNT(*) FROM rlock_members WHERE ends > at) FROM "
                          "(SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS "
                          "at) AS clock") == 0) {
        result = mysql_store_result(hand);
        row = result != NULL ? mysql_fetch_row(result) : NULL;
    }
    count = row != NULL ? atol(row[0]) : -1;
    mysql_free_result(result);
    if (hand != NULL) {
        mysql_close(hand);
    }
    return count;
}

int main(int argc, char **argv) {
    static const struct chaos_row row = {
        "MariaDB", start, stop, make, rlock_mariadb_free, signals, restarts, ends_sessions, left};
    return chaos_main(&row, argc, argv);
}
