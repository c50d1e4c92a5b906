/* rows.h - an example's own rows in PostgreSQL: one connection, asked without a loop */
#ifndef ROWS_H
#define ROWS_H

#include <libpq-fe.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *rows_connection;

static inline void must(bool good, const char *else_say) {
    if (!good) {
        fprintf(stderr, "%s\n", else_say);
        exit(1);
    }
}

static inline void rows_connect(const char *url) {
    rows_connection = PQconnectdb(url);
    must(PQstatus(rows_connection) == CONNECTION_OK, PQerrorMessage(rows_connection));
}

/* Runs a statement. Returns the number that it yields, or how many rows it changed; -1: there is no
 * such row, or somebody has locked it for too long. */
static inline long ask(const char *format, ...) {
    char sql[160];
    PGresult *result;
    const char *state, *value;
    long number;
    va_list ap;

    va_start(ap, format);
    vsnprintf(sql, sizeof sql, format, ap);
    va_end(ap);
    result = PQexec(rows_connection, sql);
    state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    must(!state || strcmp(state, "55P03") == 0, PQresultErrorMessage(result));
    value = PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : PQcmdTuples(result);
    number = state || PQntuples(result) != PQnfields(result) ? -1 : atol(value);
    PQclear(result);
    return number;
}

#endif /* ROWS_H */

/* SPDX-License-Identifier: MIT */
