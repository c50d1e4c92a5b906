/* pooler.h - a private pgbouncer before a private PostgreSQL, for tests: it gives its sessions away
 * by transaction
 */

#ifndef TESTS_POOLER_H
#define TESTS_POOLER_H

#include "postgres.h"

#define POOLER_SESSIONS 2 /* fewer than the clients of a test: they share them */

/* The system's, or what tools/setup has unpacked. */
static inline const char *pooler_program(void) {
    static char path[400];
    if (path[0] == 0 && access("/usr/sbin/pgbouncer", X_OK) == 0) {
        snprintf(path, sizeof path, "/usr/sbin/pgbouncer");
    } else if (path[0] == 0) {
        const char *from = postgres_unpacked("pgbouncer", 1);
        snprintf(path, sizeof path, "%s/sbin/pgbouncer", from != NULL ? from : "");
    }
    return path;
}

/* Its console takes PAUSE and RESUME. */
static inline PGconn *pooler_console(const struct server *pooler) {
    char url[128];
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d/pgbouncer", pooler->port);
    return PQconnectdb(url);
}

static inline int pooler_answers(const struct server *pooler) {
    PGconn *conn = pooler_console(pooler);
    bool answers = PQstatus(conn) == CONNECTION_OK;
    PQfinish(conn);
    return answers;
}

static inline int pooler_continue(struct server *pooler) {
    const char *argv[] = {pooler_program(), "-q", "pgbouncer.ini", NULL};
    pooler->pid = server_begins(pooler, argv, NULL);
    return server_waits(pooler, pooler_answers);
}

/* Opens all sessions, and has them set up as rlock's clients want them: who is freed when none is
 * ready has its last releases dropped. */
static inline bool pooler_warms(const struct server *pooler) {
    PGconn *conns[POOLER_SESSIONS];
    char url[160];
    bool warm = true;
    int i;
    snprintf(url, sizeof url, "%s?application_name=rlock", pooler->url);
    for (i = 0; i < POOLER_SESSIONS; i++) {
        conns[i] = PQconnectdb(url);
        PQclear(PQexec(conns[i], "BEGIN"));
        warm = warm && PQtransactionStatus(conns[i]) == PQTRANS_INTRANS;
    }
    for (i = 0; i < POOLER_SESSIONS; i++) {
        PQclear(PQexec(conns[i], "ROLLBACK"));
        PQfinish(conns[i]);
    }
    return warm;
}

static inline int pooler_start(struct server *pooler, const struct server *server) {
    char path[128];
    FILE *file;
    pooler->nobodys = true;
    if (server_folder(pooler) != 0) {
        return -1;
    }
    pooler->port = server_free_port();
    snprintf(pooler->url, sizeof pooler->url, "postgres://me@127.0.0.1:%d/postgres", pooler->port);
    snprintf(path, sizeof path, "%s/pgbouncer.ini", pooler->dir);
    file = fopen(path, "w");
    if (file == NULL) {
        return -1;
    }
    fprintf(file,
            "[databases]\npostgres = host=%s port=%d user=me\n"
            "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"
            "auth_type = any\nadmin_users = me\npool_mode = transaction\ndefault_pool_size = %d\n"
            "server_login_retry = 0.1\n",
            server->dir, server->port, pooler->port, POOLER_SESSIONS);
    fclose(file);
    return pooler_continue(pooler);
}

/* A command at its console. */
static inline bool pooler_does(const struct server *pooler, const char *command) {
    PGconn *conn = pooler_console(pooler);
    PGresult *result = PQexec(conn, command);
    bool done = PQresultStatus(result) == PGRES_COMMAND_OK;
    PQclear(result);
    PQfinish(conn);
    return done;
}

#endif
