/* mariadb.c - what locks in MariaDB cost beside the same statements sent by hand
 *
 *     make bench-stores
 *
 * Pairs of one acquire and one release a second, for 1, 8 and 64 keys at once, with the same
 * statements, in turn, on one private server: by rlock on rlock_poll.h, and by a loop of libmariadb
 * calls that puts as many keys into each statement, and waits by poll(). Both by a unix socket.
 */

#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#include "rlock.h"

#include <poll.h>

#include "../../stores/rlock_mariadb.h"
#include "../../tests/engines/mariadb.h"
#include "beside.h"

static struct server server;

/* --- by hand --- */

static MYSQL *conn;

static void dies(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, mysql_error(conn));
    exit(1);
}

static void waits(short events) {
    struct pollfd at = {.fd = mysql_get_socket(conn), .events = events};
    poll(&at, 1, -1);
}

/* Sends one statement that calls the function for each key, waits for the answer, and reads it. */
static void turn(const char *call, const char *arguments, int at_once) {
    static char sql[64 * MOST * 4];
    MYSQL_RES *result;
    MYSQL_ROW row;
    int i, n = 0;
    for (i = 0; i < at_once; i++) {
        n += snprintf(sql + n, sizeof sql - (size_t)n,
                      "%s%s(x'68616e642030%02d','00000000-0000-4000-8000-000000000000:1'%s) r",
                      i ? "," : "SELECT ", call, i, arguments);
    }
    if (mysql_send_query(conn, sql, (unsigned long)n) != 0) {
        dies("send");
    }
    waits(POLLIN);
    if (mysql_read_query_result(conn) != 0) {
        dies("read");
    }
    result = mysql_store_result(conn);
    row = result != NULL ? mysql_fetch_row(result) : NULL;
    for (i = 0; i < at_once; i++) {
        if (row == NULL || row[i] == NULL || row[i][0] != '0') {
            dies("result");
        }
    }
    mysql_free_result(result);
}

static double by_hand(int at_once) {
    int64_t start_us = now_us(), end_us = start_us + ROUND_US;
    long count = 0;
    while (now_us() < end_us) {
        turn("rlock_acquire", ",10000,0", at_once);
        turn("rlock_release", "", at_once);
        count += at_once;
    }
    return (double)count * 1e6 / (double)(now_us() - start_us);
}

int main(void) {
    rlock_store *store;
    char url[160];
    if (mariadb_start(&server) != 0 || mariadb_installs(&server, "stores/rlock_mariadb.sql") != 0) {
        fprintf(stderr, "bench: no MariaDB\n");
        return 1;
    }
    snprintf(url, sizeof url, "mysql://app@/shop?socket=%s", server.socket);
    rlock_mariadb_new(&store, url, 0);
    beside_begins(store);
    conn = mariadb_connects(&server, "shop");
    mariadb_does(conn, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    by_hand(MOST); /* makes the rows */
    beside_measures(by_hand);
    mysql_close(conn);
    beside_ends();
    rlock_mariadb_free(store);
    server_stop(&server);
    return 0;
}
