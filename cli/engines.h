/* engines.h - the servers of other engines than Redis: which are built in, and their libraries
 *
 * A client library is loaded when a URL asks for it: libpq alone would take 3 ms of every start,
 * and a machine without one can run this program with Redis. So what a store calls there is called
 * by pointers. calls.h is made by the Makefile of the stores' headers: it names what they call. */
#ifndef RLOCK_CLI_ENGINES_H
#define RLOCK_CLI_ENGINES_H

#if defined(RLOCK_WITH_POSTGRES) || defined(RLOCK_WITH_ZOOKEEPER) || defined(RLOCK_WITH_MARIADB)
#include <dlfcn.h>

#include "calls.h"
#endif
#include <stdbool.h>

#define CLI_POINTER(name) __typeof__(name) *name;
#define CLI_NAME(name) #name,

#ifdef RLOCK_WITH_POSTGRES
#include <libpq-fe.h>
static struct { CLI_POSTGRES(CLI_POINTER) } cli_postgres;
static const char *const cli_postgres_names[] = {CLI_POSTGRES(CLI_NAME) NULL};
#endif

#ifdef RLOCK_WITH_ZOOKEEPER
#include <sys/time.h>
#include <zookeeper/zookeeper.h>
static struct { CLI_ZOOKEEPER(CLI_POINTER) } cli_zookeeper;
static const char *const cli_zookeeper_names[] = {CLI_ZOOKEEPER(CLI_NAME) NULL};
#endif

#ifdef RLOCK_WITH_MARIADB
#include <mysql.h>
static struct { CLI_MARIADB(CLI_POINTER) } cli_mariadb;
static const char *const cli_mariadb_names[] = {CLI_MARIADB(CLI_NAME) NULL};
#endif

static const struct cli_engine {
    const char *schemes, *name;
    bool gives_less;                  /* its leases may be shorter than what is asked for */
    const char *library;              /* the file that is loaded; NULL = it is not built in */
    const char *const *names;         /* what is called in it */
    void *pointers;                   /* ... by these, in that order */
    const char *needs;                /* to be built in */
    const char *package;              /* Debian's, of the library */
    const char *tls, *refused, *list; /* cures */
} cli_engines[] = {
    {"postgres postgresql", "PostgreSQL", false,
#ifdef RLOCK_WITH_POSTGRES
     "libpq.so.5", cli_postgres_names, &cli_postgres,
#else
     NULL, NULL, NULL,
#endif
     "libpq 14 or newer, in Debian libpq-dev", "libpq5",
     "In its URL: postgres://host/database?sslmode=verify-full&sslrootcert=FILE",
     "Is rlock_postgres.sql installed there, and has this user the role rlock_user?",
     "Ask it, as the owner: SELECT encode(key, 'escape'), token, ends FROM rlock.keys WHERE "
     "ends > clock_timestamp()"},
    {"zookeeper", "ZooKeeper", true,
#ifdef RLOCK_WITH_ZOOKEEPER
     "libzookeeper_st.so.2", cli_zookeeper_names, &cli_zookeeper,
#else
     NULL, NULL, NULL,
#endif
     "ZooKeeper's client, in Debian libzookeeper-st-dev", "libzookeeper-st2",
     "Its client library has no TLS", "Can every client write to the path in the URL?",
     "Ask it: zkCli.sh ls /PATH"},
    {"mysql mariadb", "MariaDB", false,
#ifdef RLOCK_WITH_MARIADB
     "libmariadb.so.3", cli_mariadb_names, &cli_mariadb,
#else
     NULL, NULL, NULL,
#endif
     "libmariadb 3.3 or newer, in Debian libmariadb-dev", "libmariadb3",
     "It has no TLS: the library's handshake would block",
     "Is rlock_mariadb.sql installed there, and are user and password in the URL right?",
     "Ask it, as the owner: SELECT name, token, ends FROM rlock_keys WHERE ends > "
     "UNIX_TIMESTAMP() * 1000000"},
};

#define CLI_ENGINES (sizeof cli_engines / sizeof *cli_engines)

/* Returns the engine that a URL, which may be NULL, names; NULL: Redis, or nothing known. */
static const struct cli_engine *cli_engine_of(const char *url) {
    char scheme[16], known[64];
    size_t i, length = url != NULL ? strcspn(url, ":") : 0;
    if (length == 0 || length > sizeof scheme - 3) {
        return NULL;
    }
    snprintf(scheme, sizeof scheme, " %.*s ", (int)length, url);
    for (i = 0; i < CLI_ENGINES; i++) {
        snprintf(known, sizeof known, " %s ", cli_engines[i].schemes);
        if (strstr(known, scheme) != NULL) {
            return &cli_engines[i];
        }
    }
    return NULL;
}

/* Loads the library of an engine that is built in. Returns NULL, or what is wrong. */
static const char *cli_engine_load(const struct cli_engine *engine) {
    static char words[256];
#if defined(RLOCK_WITH_POSTGRES) || defined(RLOCK_WITH_ZOOKEEPER) || defined(RLOCK_WITH_MARIADB)
    void *library = dlopen(engine->library, RTLD_NOW | RTLD_LOCAL), *found = library;
    size_t i;
    for (i = 0; found != NULL && engine->names[i] != NULL; i++) {
        found = dlsym(library, engine->names[i]);
        memcpy((char *)engine->pointers + i * sizeof found, &found, sizeof found);
    }
    if (found != NULL) {
        return NULL;
    }
    snprintf(words, sizeof words, "%s", dlerror());
#else
    (void)engine;
#endif
    return words;
}

#if defined(RLOCK_WITH_POSTGRES) || defined(RLOCK_WITH_ZOOKEEPER) || defined(RLOCK_WITH_MARIADB)
#include "calls.h" /* once more: from here on these names stand for the pointers */
#endif

#endif /* RLOCK_CLI_ENGINES_H */
