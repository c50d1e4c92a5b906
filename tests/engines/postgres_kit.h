/* postgres_kit.h - what tests on a private PostgreSQL share: the administrator's hand, and clients
 *
 * Included after rlock_postgres.h, kit.h and postgres.h.
 */

#ifndef TESTS_ENGINES_POSTGRES_KIT_H
#define TESTS_ENGINES_POSTGRES_KIT_H

#define TIMEOUT_MS 400

static struct {
    struct server server;
    PGconn *hand; /* the administrator's */
    rlock_store *stores[KIT_CLIENTS];
    int store_count;
} g;

/* --- the administrator --- */

static inline const char *sql(const char *format, ...) {
    static char value[256];
    char text[512];
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

/* Whether somebody has a key, as the server says. */
static inline bool held(const char *key) {
    return strcmp(
               sql("SELECT count(*) FROM rlock.keys WHERE key = '%s' AND ends > clock_timestamp()",
                   key),
               "1") == 0;
}

/* Puts a line before the rules of who may connect, and how. */
static inline void first_rule(const char *rule) {
    char path[160], text[16384];
    FILE *file;
    size_t n;
    snprintf(path, sizeof path, "%s/data/pg_hba.conf", g.server.dir);
    file = fopen(path, "r+");
    assert_non_null(file);
    n = fread(text, 1, sizeof text, file);
    rewind(file);
    fprintf(file, "%s\n", rule);
    fwrite(text, 1, n, file);
    fclose(file);
    sql("SELECT pg_reload_conf()");
}

/* --- clients --- */

static inline rlock_client *client_of(const char *url, unsigned flags, int64_t timeout_ms) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    assert_int_equal(rlock_postgres_new(&g.stores[g.store_count], url, flags), RLOCK_OK);
    config.store = g.stores[g.store_count++];
    config.loop = rlock_poll_loop(kit_poll);
    config.log = kit_log;
    config.command_timeout_ms = timeout_ms;
    return kit_client(&config);
}

static inline rlock_client *client(void) {
    return client_of(g.server.url, 0, TIMEOUT_MS);
}

static inline struct owner *renewed(rlock_client *of, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.watchdog = RLOCK_WATCHDOG_ON;
    options.fencing = true;
    return owner_with(of, &options);
}

static inline int waited_ms(struct owner *o, rlock_event_kind kind, int64_t since_us) {
    return (int)((o->at_us[kind] - since_us) / 1000);
}

static inline void clients_end(void) {
    kit_reset();
    while (g.store_count > 0) {
        rlock_postgres_free(g.stores[--g.store_count]);
    }
}

#endif
