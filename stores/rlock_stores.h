/* rlock_stores.h - locks in another engine by config.url alone
 * SPDX-License-Identifier: MIT
 *
 * The file of a program that defines RLOCK_IMPLEMENTATION is compiled with a macro for each engine
 * that a URL may name, with the folder stores/ among its includes, and linked with the library:
 *
 *     -DRLOCK_WITH_POSTGRES    postgres://, postgresql://    -lpq              rlock_postgres.h
 *     -DRLOCK_WITH_ZOOKEEPER   zookeeper://                  -lzookeeper_st    rlock_zookeeper.h
 *     -DRLOCK_WITH_MARIADB     mysql://, mariadb://          -lmariadb         rlock_mariadb.h
 *
 * rlock.h then includes this header itself, and all that such a program does to move from Redis is
 *
 *     config.url = "postgres://app@db.example.com/shop";
 *
 * rlock_client_new makes the store, and rlock_client_free frees it. Each URL is that of the
 * engine's own header; one of PostgreSQL may also have ?pooler=yes: RLOCK_POSTGRES_POOLER.
 *
 * Several clients may share one store: make it with rlock_stores_new, and put it into
 * config.store. In a quorum, and in rlock_both_new, a URL names Redis; another engine is given as a
 * store. The headers of libpq and libmariadb may need flags: pkg-config --cflags libpq. */

#ifndef RLOCK_STORES_H
#define RLOCK_STORES_H

#include <stdlib.h>
#include <string.h>

#include "rlock.h"

#ifdef RLOCK_WITH_POSTGRES
#include "rlock_postgres.h"
#endif
#ifdef RLOCK_WITH_ZOOKEEPER
#include "rlock_zookeeper.h"
#endif
#ifdef RLOCK_WITH_MARIADB
#include "rlock_mariadb.h"
#endif
#if !defined(RLOCK_WITH_POSTGRES) && !defined(RLOCK_WITH_ZOOKEEPER) && !defined(RLOCK_WITH_MARIADB)
#error "rlock_stores.h needs RLOCK_WITH_POSTGRES, RLOCK_WITH_ZOOKEEPER or RLOCK_WITH_MARIADB"
#endif

RLOCK__C_CASTS_BEGIN

/* Takes a parameter out of a URL, and copies its value. False: it is not there, or is too long. */
static inline bool rlock__stores_take(char *url, const char *name, char value[16]) {
    size_t n = strlen(name);
    char *at = strchr(url, '?'); /* the ? or & before a parameter */
    while (at) {
        size_t len = strcspn(at + 1, "&");
        bool last = at[1 + len] == 0;
        if (strncmp(at + 1, name, n) == 0 && at[1 + n] == '=' && len - n - 1 < 16) {
            memcpy(value, at + n + 2, len - n - 1);
            value[len - n - 1] = 0;
            memmove(at + !last, at + 1 + len + !last, strlen(at + 1 + len + !last) + 1);
            return true;
        }
        at = last ? NULL : at + 1 + len;
    }
    return false;
}

#ifdef RLOCK_WITH_POSTGRES
static inline int rlock__stores_postgres(rlock_store **out, char *url) {
    char value[16] = "no";
    bool pooler;
    (void)rlock__stores_take(url, "pooler", value);
    pooler = strcmp(value, "yes") == 0;
    return pooler || strcmp(value, "no") == 0
               ? rlock_postgres_new(out, url, pooler ? RLOCK_POSTGRES_POOLER : 0)
               : RLOCK_ERR_ARG;
}
#endif

#ifdef RLOCK_WITH_ZOOKEEPER
static inline int rlock__stores_zookeeper(rlock_store **out, char *url) {
    return rlock_zookeeper_new(out, url);
}
#endif

#ifdef RLOCK_WITH_MARIADB
static inline int rlock__stores_mariadb(rlock_store **out, char *url) {
    return rlock_mariadb_new(out, url, 0);
}
#endif

typedef struct rlock__scheme {
    const char *name;
    int (*make)(rlock_store **out, char *url); /* the URL is a copy, to be written to */
    void (*end)(rlock_store *store);
} rlock__scheme;

static const rlock__scheme rlock__schemes[] = {
#ifdef RLOCK_WITH_POSTGRES
    {"postgres", rlock__stores_postgres, rlock_postgres_free},
    {"postgresql", rlock__stores_postgres, rlock_postgres_free},
#endif
#ifdef RLOCK_WITH_ZOOKEEPER
    {"zookeeper", rlock__stores_zookeeper, rlock_zookeeper_free},
#endif
#ifdef RLOCK_WITH_MARIADB
    {"mysql", rlock__stores_mariadb, rlock_mariadb_free},
    {"mariadb", rlock__stores_mariadb, rlock_mariadb_free},
#endif
};

static inline const rlock__scheme *rlock__stores_find(const char *url) {
    size_t n = url ? strcspn(url, ":") : 0, i;
    for (i = 0; i < sizeof rlock__schemes / sizeof rlock__schemes[0]; i++) {
        const rlock__scheme *scheme = &rlock__schemes[i];
        if (n == strlen(scheme->name) && strncmp(url, scheme->name, n) == 0 &&
            strncmp(url + n, "://", 3) == 0) {
            return scheme;
        }
    }
    return NULL;
}

/* What is made: the functions of the engine's store, and what frees that. */
typedef struct rlock__stores_made {
    rlock_store store; /* first: it is what the user sees */
    rlock_store *engine;
    void (*end)(rlock_store *store);
} rlock__stores_made;

/* True if a URL, which may be NULL, names an engine that is compiled in. */
static inline bool rlock_stores_has(const char *url) {
    return rlock__stores_find(url) != NULL;
}

/* Makes the store that a URL names; it is copied. Any number of clients, on any threads, may use
 * it; free it after them. A URL whose part for the engine is wrong is refused by rlock_client_new.
 * Errors: RLOCK_ERR_ARG (out is NULL, rlock_stores_has is false, a parameter of this header has an
 * invalid value), RLOCK_ERR_NOMEM. */
static inline int rlock_stores_new(rlock_store **out, const char *url) {
    const rlock__scheme *scheme = rlock__stores_find(url);
    rlock__stores_made *made;
    char *copy;
    int status = RLOCK_ERR_NOMEM;
    if (!out) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    if (!scheme) {
        return RLOCK_ERR_ARG;
    }
    made = (rlock__stores_made *)calloc(1, sizeof *made);
    copy = (char *)malloc(strlen(url) + 1);
    if (made && copy) {
        memcpy(copy, url, strlen(url) + 1);
        status = scheme->make(&made->engine, copy);
    }
    if (status == RLOCK_OK) {
        made->store = *made->engine;
        made->end = scheme->end;
        *out = &made->store;
    } else {
        free(made);
    }
    free(copy);
    return status;
}

/* Frees what rlock_stores_new has made; NULL is allowed. */
static inline void rlock_stores_free(rlock_store *store) {
    rlock__stores_made *made = (rlock__stores_made *)(void *)store;
    if (made) {
        made->end(made->engine);
    }
    free(made);
}

RLOCK__C_CASTS_END

#endif /* RLOCK_STORES_H */

/*
 * Copyright (c) 2026 the rlock authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
