/* postgres.c - what locks in PostgreSQL cost beside the same statements sent by hand
 *
 *     make bench-stores
 *
 * Pairs of one acquire and one release a second, for 1, 8 and 64 keys at once, with the same
 * prepared statements, in turn, on one private server: by rlock on rlock_poll.h, and by a loop of
 * libpq calls that sends as many statements before each Sync, and waits by poll().
 */

#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#include "rlock.h"

#include <poll.h>

#include "../../stores/rlock_postgres.h"
#include "../../tests/engines/postgres.h"
#include "beside.h"

static struct server server;

/* --- by hand --- */

static PGconn *conn;

static void dies(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, PQerrorMessage(conn));
    exit(1);
}

static void waits(short events) {
    struct pollfd at = {.fd = PQsocket(conn), .events = events};
    poll(&at, 1, -1);
}

/* Sends one statement for each key, then a Sync, and reads all that comes. */
static void turn(const char *name, int at_once) {
    int i, left, ends = 0;
    for (i = 0; i < at_once; i++) {
        char key[16];
        const char *values[] = {key, "00000000-0000-4000-8000-000000000000:1", "10000", "0", "f"};
        int lengths[5] = {0}, formats[5] = {1, 0, 0, 0, 0};
        lengths[0] = snprintf(key, sizeof key, "hand %02d", i);
        if (PQsendQueryPrepared(conn, name, name[0] == 'a' ? 5 : 2, values, lengths, formats, 0) !=
            1) {
            dies("send");
        }
    }
    if (PQpipelineSync(conn) != 1) {
        dies("sync");
    }
    while ((left = PQflush(conn)) == 1) {
        waits(POLLOUT);
    }
    while (!ends) {
        while (PQisBusy(conn)) {
            waits(POLLIN);
            if (PQconsumeInput(conn) != 1) {
                dies("read");
            }
        }
        PGresult *result = PQgetResult(conn);
        ExecStatusType status = result ? PQresultStatus(result) : PGRES_TUPLES_OK;
        ends = status == PGRES_PIPELINE_SYNC;
        if (!ends &&
            (status != PGRES_TUPLES_OK || (result && PQgetvalue(result, 0, 0)[0] != '0'))) {
            dies("result");
        }
        PQclear(result);
    }
}

static double by_hand(int at_once) {
    int64_t start_us = now_us(), end_us = start_us + ROUND_US;
    long count = 0;
    while (now_us() < end_us) {
        turn("acquire", at_once);
        turn("release", at_once);
        count += at_once;
    }
    return (double)count * 1e6 / (double)(now_us() - start_us);
}

int main(void) {
    rlock_store *store;
    if (postgres_start(&server) != 0 ||
        postgres_installs(&server, "stores/rlock_postgres.sql") != 0) {
        fprintf(stderr, "bench: no PostgreSQL\n");
        return 1;
    }
    rlock_postgres_new(&store, server.url, 0);
    beside_begins(store);
    conn = PQconnectdb(server.url);
    PQclear(PQprepare(conn, "acquire", rlock__pg_sql[RLOCK__PG_ACQUIRE], 0, NULL));
    PQclear(PQprepare(conn, "release", rlock__pg_sql[RLOCK__PG_RELEASE], 0, NULL));
    PQsetnonblocking(conn, 1);
    PQenterPipelineMode(conn);
    by_hand(MOST); /* makes the rows */
    beside_measures(by_hand);
    PQfinish(conn);
    beside_ends();
    rlock_postgres_free(store);
    server_stop(&server);
    return 0;
}
