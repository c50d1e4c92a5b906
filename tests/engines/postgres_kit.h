/* postgres_kit.h - a private PostgreSQL with an administrator, and the row that it is of engine.h
 *
 * Included after rlock_postgres.h.
 */

#ifndef TESTS_ENGINES_POSTGRES_KIT_H
#define TESTS_ENGINES_POSTGRES_KIT_H

#include "engine.h"
#include "postgres.h"

static struct {
    struct server server;
    PGconn *hand; /* the administrator's */
} g;

/* Runs a statement, or several, and returns the first column of the last one's first row; "" if
 * there is none. */
static const char *sql(const char *format, ...) {
    static char value[256];
    char text[4096];
    va_list ap;
    PGresult *result;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (PQstatus(g.hand) != CONNECTION_OK) {
        PQreset(g.hand);
    }
    result = PQexec(g.hand, text);
    value[0] = 0;
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0) {
        snprintf(value, sizeof value, "%s", PQgetvalue(result, 0, 0));
    } else if (PQresultStatus(result) != PGRES_COMMAND_OK &&
               PQresultStatus(result) != PGRES_TUPLES_OK) {
        fprintf(stderr, "%s: %s", text, PQresultErrorMessage(result));
    }
    PQclear(result);
    return value;
}

#define NOW "clock_timestamp()"

/* --- the row --- */

static int starts(void) {
    if (postgres_start(&g.server) != 0 ||
        postgres_installs(&g.server, "stores/rlock_postgres.sql") != 0) {
        return -1;
    }
    g.hand = PQconnectdb(g.server.url);
    sql("ALTER ROLE me SET client_min_messages = warning");
    PQreset(g.hand);
    return PQstatus(g.hand) == CONNECTION_OK ? 0 : -1;
}

/* A unix socket of the same name in another folder. */
static void starts_proxy(void) {
    char from[160], to[160];
    snprintf(from, sizeof from, "%s/proxy", g.server.dir);
    mkdir(from, 0777);
    snprintf(from, sizeof from, "%s/proxy/.s.PGSQL.%d", g.server.dir, g.server.port);
    snprintf(to, sizeof to, "%s/.s.PGSQL.%d", g.server.dir, g.server.port);
    proxy_starts(from, to);
}

static void stops(void) {
    PQfinish(g.hand);
    g.hand = NULL;
    server_stop(&g.server);
}

static void writes_url(char *url, bool proxied, bool patient) {
    (void)patient;
    if (proxied) {
        snprintf(url, 256, "host=%s/proxy port=%d user=me dbname=postgres", g.server.dir,
                 g.server.port);
    } else {
        snprintf(url, 256, "%s", g.server.url);
    }
}

static int makes(rlock_store **out, const char *url) {
    return rlock_postgres_new(out, url, 0);
}

static void pauses(void) {
    postgres_signals(&g.server, SIGSTOP);
}

static void resumes(void) {
    postgres_signals(&g.server, SIGCONT);
}

static void dies(void) {
    postgres_dies(&g.server);
}

static int comes_back(void) {
    int status = postgres_continue(&g.server);
    PQreset(g.hand);
    return status;
}

static void ends_sessions(void) {
    sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = "
        "'rlock'");
}

static bool has(const char *key) {
    return strcmp(sql("SELECT count(*) FROM rlock.keys WHERE key = '%s' AND ends > " NOW, key),
                  "1") == 0;
}

static long left(void) {
    const char *count = sql("SELECT (SELECT count(*) FROM rlock.keys WHERE ends > " NOW ") + "
                            "(SELECT count(*) FROM rlock.members WHERE ends > " NOW ")");
    return *count != 0 ? atol(count) : -1;
}

static void clears(void) {
    if (PQtransactionStatus(g.hand) == PQTRANS_INTRANS ||
        PQtransactionStatus(g.hand) == PQTRANS_INERROR) { /* what a test that failed has left */
        sql("ROLLBACK");
    }
    sql("DROP TRIGGER IF EXISTS refuses ON rlock.keys; DROP TRIGGER IF EXISTS fails ON rlock.keys; "
        "DROP TRIGGER IF EXISTS dawdles ON rlock.keys; "
        "DROP FUNCTION IF EXISTS warns CASCADE");
    if (postgres_clears(g.hand) != 0) {
        fprintf(stderr, "the tables cannot be emptied, or a session does not end\n");
        abort();
    }
}

static const struct engine engine = {
    "PostgreSQL",
    starts,
    starts_proxy,
    stops,
    writes_url,
    makes,
    rlock_postgres_free,
    pauses,
    resumes,
    dies,
    comes_back,
    ends_sessions,
    has,
    left,
    clears,
    false,                 /* polls */
    false,                 /* of_sessions */
    1500,                  /* lease_ms */
    {600, 1600},           /* lost_ms */
    5000,                  /* wait_ms */
    120000,                /* long_ms */
    DELAY_200_MS,          /* far_mode */
    200,                   /* far_ms */
    5000,                  /* far_lease_ms */
    RLOCK__PG_KEY_MAX,     /* key_max */
    "at most 2,000 bytes", /* key_too_long */
    5                      /* wishes */
};

#endif
