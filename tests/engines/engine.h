/* engine.h - an engine, as the tests see it that are the same on each
 *
 * The kit of an engine (mariadb_kit.h, postgres_kit.h, zookeeper_kit.h) defines its row. A program
 * has one, and takes its tests from suite.h, faults.h and faults_sql.h, or chaos.h.
 */

#ifndef TESTS_ENGINES_ENGINE_H
#define TESTS_ENGINES_ENGINE_H

#include "proxy.h"

struct engine {
    const char *name;

    /* A private server with all that the store needs, and a proxy before it. 0, or -1. */
    int (*starts)(void);
    void (*starts_proxy)(void);
    void (*stops)(void);

    /* Writes 256 bytes: of a client's URL, by way of the proxy or not; patient: of a client that
     * waits longer than usual for an answer. */
    void (*writes_url)(char *url, bool proxied, bool patient);
    int (*makes)(rlock_store **out, const char *url);
    void (*forgets)(rlock_store *store);

    /* What goes wrong with the server: all of its processes stop, go on, die, begin again on the
     * same data (0, or -1); its sessions end. */
    void (*pauses)(void);
    void (*resumes)(void);
    void (*dies)(void);
    int (*comes_back)(void);
    void (*ends_sessions)(void);

    /* What the server has: whether somebody holds a key; how many holds there are, -1: it does not
     * say. clears: none that were there before, and nothing that a test has changed. */
    bool (*has)(const char *key);
    long (*left)(void);
    void (*clears)(void);

    /* What the tests have to know of it. */
    bool polls;         /* nothing is pushed: who waits polls */
    bool of_sessions;   /* a hold ends with its session, which may end before its lease; one of
                         several keys there is none */
    int64_t lease_ms;   /* of a hold whose end is waited for; 0 = as long as a session gives */
    int64_t lost_ms[2]; /* it is lost in this range of times after the end of its server */
    int64_t wait_ms;    /* a waiter is served in this time when the server goes on */
    int64_t long_ms;    /* of a hold that is renewed; 0 = the watchdog's */
    int far_mode;       /* of the proxy: how far away a server may be ... */
    int64_t far_ms;     /* ... each way ... */
    int64_t far_lease_ms;
    size_t key_max;
    const char *key_too_long; /* what is told of a longer one */
    int wishes;               /* for memory, at the least, from a store to a hold */
};

#endif
