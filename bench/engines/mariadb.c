/* mariadb.c - what locks in MariaDB cost beside the same statements sent by hand
 *
 *     make bench-stores
 *
 * Pairs of one acquire and one release a second, one at a time and 64 in flight, with the same
 * statements, in turn, on one private server: by rlock on rlock_poll.h, and by a loop of libmariadb
 * calls that puts as many keys into each statement, and waits by poll(). Both by a unix socket.
 */

#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#include "rlock.h"

#include <poll.h>

#include "../../stores/rlock_mariadb.h"
#include "../../tests/engines/mariadb.h"
#include "rlock_poll.h"

#define MOST 64
#define ROUNDS 25
#define ROUND_US 200000

static struct mariadb server;

static int64_t now_us(void) {
    return RLOCK_NOW_US();
}

/* --- rlock --- */

static rlock_poll *loop;
static rlock *locks[MOST];
static long pairs;
static bool stops;

static void on_released(rlock *lock, const rlock_event *event, void *user);

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    if (event->status != RLOCK_OK || rlock_release(lock, on_released, user) != RLOCK_OK) {
        fprintf(stderr, "bench: %s %s\n", rlock_strerror(event->status),
                event->text ? event->text : "");
        exit(1);
    }
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)event;
    pairs++;
    if (!stops) {
        rlock_acquire(lock, 5000, 10000, on_acquired, user);
    }
}

static double by_rlock(int at_once) {
    int64_t start_us = now_us(), end_us = start_us + ROUND_US;
    int i;
    pairs = 0;
    stops = false;
    for (i = 0; i < at_once; i++) {
        rlock_acquire(locks[i], 5000, 10000, on_acquired, NULL);
    }
    while (now_us() < end_us) {
        rlock_poll_once(loop, 100);
    }
    stops = true;
    end_us = now_us();
    for (i = 0; i < 100; i++) {
        rlock_poll_once(loop, 1);
    }
    return (double)pairs * 1e6 / (double)(end_us - start_us);
}

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

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    static const int counts[] = {1, 8, 64};
    rlock_config config;
    rlock_client *client;
    rlock_store *store;
    size_t c;
    int i;
    char url[160];
    if (mariadb_start(&server) != 0 || mariadb_installs(&server, "stores/rlock_mariadb.sql") != 0) {
        fprintf(stderr, "bench: no MariaDB\n");
        return 1;
    }
    loop = rlock_poll_new();
    memset(&config, 0, sizeof config);
    snprintf(url, sizeof url, "mysql://app@/shop?socket=%s", server.socket);
    rlock_mariadb_new(&store, url, 0);
    config.store = store;
    config.loop = rlock_poll_loop(loop);
    rlock_client_new(&client, &config);
    for (i = 0; i < MOST; i++) {
        char key[16];
        rlock_options options;
        memset(&options, 0, sizeof options);
        snprintf(key, sizeof key, "lock %02d", i);
        options.key = key;
        rlock_new(&locks[i], client, &options);
    }
    conn = mariadb_connects(&server, "shop");
    mariadb_does(conn, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    by_rlock(MOST); /* makes the rows */
    by_hand(MOST);
    printf("| in flight | `rlock`, pairs/s | by hand, pairs/s | ratio, least to most "
           "|\n|---:|---:|---:|---:|\n");
    for (c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        double ours[ROUNDS], hands[ROUNDS], ratios[ROUNDS];
        for (i = 0; i < ROUNDS; i++) {
            ours[i] = by_rlock(counts[c]);
            hands[i] = by_hand(counts[c]);
            ratios[i] = ours[i] / hands[i];
        }
        qsort(ours, ROUNDS, sizeof *ours, compare);
        qsort(hands, ROUNDS, sizeof *hands, compare);
        qsort(ratios, ROUNDS, sizeof *ratios, compare);
        printf("| %d | %.0f | %.0f | %.2f, %.2f to %.2f |\n", counts[c], ours[ROUNDS / 2],
               hands[ROUNDS / 2], ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
    }
    mysql_close(conn);
    for (i = 0; i < MOST; i++) {
        rlock_free(locks[i]);
    }
    rlock_client_free(client);
    rlock_mariadb_free(store);
    rlock_poll_free(loop);
    mariadb_stop(&server);
    return 0;
}
