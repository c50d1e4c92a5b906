/* mariadb_kit.h - a private MariaDB with an administrator, and the row that it is of engine.h
 *
 * Included after rlock_mariadb.h.
 */

#ifndef TESTS_ENGINES_MARIADB_KIT_H
#define TESTS_ENGINES_MARIADB_KIT_H

#include "engine.h"
#include "mariadb.h"

static struct {
    struct server server;
    MYSQL *hand; /* the administrator's */
} g;

/* Runs a statement, and returns the first column of its first row; "" if there is none. */
static const char *sql(const char *format, ...) {
    static char value[256];
    char text[4096];
    va_list ap;
    MYSQL_RES *result;
    MYSQL_ROW row;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (g.hand == NULL || mysql_ping(g.hand) != 0) {
        mysql_close(g.hand);
        g.hand = mariadb_connects(&g.server, "shop");
    }
    value[0] = 0;
    if (g.hand == NULL || mysql_query(g.hand, text) != 0) {
        fprintf(stderr, "%s: %s\n", text, g.hand != NULL ? mysql_error(g.hand) : "no server");
        return value;
    }
    result = mysql_store_result(g.hand);
    row = result != NULL ? mysql_fetch_row(result) : NULL;
    if (row != NULL && row[0] != NULL) {
        snprintf(value, sizeof value, "%s", row[0]);
    }
    mysql_free_result(result);
    return value;
}

/* By the server's clock, as the functions have it. */
#define NOW "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

/* --- the row --- */

static int starts(void) {
    if (mariadb_start(&g.server) != 0 ||
        mariadb_installs(&g.server, "stores/rlock_mariadb.sql") != 0) {
        return -1;
    }
    g.hand = mariadb_connects(&g.server, "shop");
    return g.hand != NULL ? 0 : -1;
}

static void starts_proxy(void) {
    char from[160];
    snprintf(from, sizeof from, "%s/proxy", g.server.dir);
    proxy_starts(from, g.server.socket);
}

static void stops(void) {
    mysql_close(g.hand);
    g.hand = NULL;
    server_stop(&g.server);
}

static void writes_url(char *url, bool proxied, bool patient) {
    (void)patient;
    if (proxied) {
        snprintf(url, 256, "mysql://app@/shop?socket=%s/proxy", g.server.dir);
    } else {
        snprintf(url, 256, "%s", g.server.url);
    }
}

static int makes(rlock_store **out, const char *url) {
    return rlock_mariadb_new(out, url, 0);
}

static void pauses(void) {
    server_pause(&g.server);
}

static void resumes(void) {
    server_resume(&g.server);
}

static void dies(void) {
    server_kill9(&g.server);
}

static int comes_back(void) {
    return mariadb_continue(&g.server);
}

static void ends_sessions(void) {
    sql("KILL CONNECTION USER app");
}

static bool has(const char *key) {
    return strcmp(sql("SELECT COUNT(*) FROM rlock_keys WHERE name = '%s' AND ends > " NOW, key),
                  "1") == 0;
}

static long left(void) {
    const char *count = sql("SELECT (SELECT COUNT(*) FROM rlock_keys WHERE ends > at) + "
                            "(SELECT COUNT(*) FROM rlock_members WHERE ends > at) FROM "
                            "(SELECT " NOW " AS at) AS clock");
    return *count != 0 ? atol(count) : -1;
}

/* What a client that is gone sent last may be executed later, and would then hold a key of the next
 * test. */
static void ends_all_sessions(void) {
    int tries = 0;
    ends_sessions();
    while (strcmp(sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app'"),
                  "0") != 0) {
        if (tries++ == 6000) {
            fprintf(stderr, "a session does not end\n");
            abort();
        }
        server_sleep_ms(5);
    }
}

static void clears(void) {
    sql("SET timestamp = DEFAULT, binlog_format = DEFAULT"); /* a test may have left these */
    sql("SET GLOBAL rpl_semi_sync_master_enabled = 0");
    sql("DROP TRIGGER IF EXISTS refuses");
    ends_all_sessions();
    sql("DELETE FROM rlock_keys");
    sql("DELETE FROM rlock_members");
}

static const struct engine engine = {
    "MariaDB",
    starts,
    starts_proxy,
    stops,
    writes_url,
    makes,
    rlock_mariadb_free,
    pauses,
    resumes,
    dies,
    comes_back,
    ends_sessions,
    has,
    left,
    clears,
    true,                  /* polls */
    false,                 /* of_sessions */
    1500,                  /* lease_ms */
    {600, 1600},           /* lost_ms */
    5000,                  /* wait_ms */
    120000,                /* long_ms */
    DELAY_200_MS,          /* far_mode */
    200,                   /* far_ms */
    5000,                  /* far_lease_ms */
    RLOCK__MY_KEY_MAX,     /* key_max */
    "at most 2,000 bytes", /* key_too_long */
    6                      /* wishes */
};

#endif
