/* postgres_chaos.c - several processes lock the same keys in PostgreSQL while all goes wrong
 *
 *     postgres_chaos SECONDS [SEED]
 *
 * What happens is in tests/engines/chaos.h. The server's wall clock is not stepped, and its commits
 * are durable against its own death.
 */

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "../../stores/rlock_postgres.h"
#include "chaos.h"
#include "postgres.h"

static struct server server;

static int start(char *direct, char *roundabout) {
    char from[160], to[160];
    if (postgres_start(&server) != 0 ||
        postgres_installs(&server, "stores/rlock_postgres.sql") != 0) {
        return -1;
    }
    snprintf(from, sizeof from, "%s/proxy", server.dir);
    mkdir(from, 0777);
    snprintf(from, sizeof from, "%s/proxy/.s.PGSQL.%d", server.dir, server.port);
    snprintf(to, sizeof to, "%s/.s.PGSQL.%d", server.dir, server.port);
    proxy_starts(from, to);
    snprintf(direct, 256, "%s", server.url);
    snprintf(roundabout, 256, "host=%s/proxy port=%d user=me dbname=postgres", server.dir,
             server.port);
    return 0;
}

static void stop(void) {
    server_stop(&server);
}

static int make(rlock_store **out, const char *url) {
    return rlock_postgres_new(out, url, 0);
}

static void signals(int signal_number) {
    postgres_signals(&server, signal_number);
}

static int restarts(useconds_t us) {
    postgres_dies(&server);
    usleep(us);
    return postgres_continue(&server);
}

static void ends_sessions(void) {
    PGconn *hand = PQconnectdb(server.url);
    PQclear(PQexec(hand, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                         "application_name = 'rlock'"));
    PQfinish(hand);
}

static long left(void) {
    PGconn *hand = PQconnectdb(server.url);
    PGresult *result =
        PQexec(hand, "SELECT (SELECT count(*) FROM rlock.keys WHERE ends > clock_timestamp()) + "
                     "(SELECT count(*) FROM rlock.members WHERE ends > clock_timestamp())");
    long count = PQresultStatus(result) == PGRES_TUPLES_OK ? atol(PQgetvalue(result, 0, 0)) : -1;
    PQclear(result);
    PQfinish(hand);
    return count;
}

int main(int argc, char **argv) {
    static const struct chaos_row row = {
        "PostgreSQL", start,    stop,          make, rlock_postgres_free,
        signals,      restarts, ends_sessions, left};
    return chaos_main(&row, argc, argv);
}
