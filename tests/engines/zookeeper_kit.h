/* zookeeper_kit.h - a private ZooKeeper, and the row that it is of engine.h
 *
 * Included after rlock_zookeeper.h. Each test has a tree of its own.
 */

#ifndef TESTS_ENGINES_ZOOKEEPER_KIT_H
#define TESTS_ENGINES_ZOOKEEPER_KIT_H

#include "engine.h"
#include "zookeeper.h"

static struct {
    struct server server;
    int test, door; /* door: the proxy's port */
} g;

/* Asks the server of a node of the test's tree. */
static int asked(int what, const char *rest) {
    char path[512];
    snprintf(path, sizeof path, "/t%d%s", g.test, rest);
    return zookeeper_asks(&g.server, what, path);
}

/* How many nodes there are in a line: "6b" is the key "k". */
static int line(const char *hex) {
    char rest[64];
    snprintf(rest, sizeof rest, "/%s", hex);
    asked(ZOOKEEPER_LIST, rest);
    return zookeeper_hand.count;
}

/* --- the row --- */

static int starts(void) {
    zoo_set_debug_level((ZooLogLevel)0);
    return zookeeper_start(&g.server);
}

static void starts_proxy(void) {
    char from[32], to[32];
    g.door = server_free_port();
    snprintf(from, sizeof from, "127.0.0.1:%d", g.door);
    snprintf(to, sizeof to, "127.0.0.1:%d", g.server.port);
    proxy_starts(from, to);
}

static void stops(void) {
    server_stop(&g.server);
}

/* The longest session is 20 ticks. */
static void writes_url(char *url, bool proxied, bool patient) {
    snprintf(url, 256, "zookeeper://127.0.0.1:%d/t%d?session_ms=%d&tick_ms=%d",
             proxied ? g.door : g.server.port, g.test,
             patient ? 20 * ZOOKEEPER_TICK_MS : ZOOKEEPER_SESSION_MS, ZOOKEEPER_TICK_MS);
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
    return zookeeper_continue(&g.server);
}

static bool has(const char *key) {
    char hex[32];
    size_t i, n = 0;
    for (i = 0; key[i] != 0 && n + 2 < sizeof hex; i++) {
        n += (size_t)snprintf(hex + n, sizeof hex - n, "%02x", (unsigned char)key[i]);
    }
    return line(hex) > 0;
}

static void clears(void) {
    g.test++;
}

#define LONGEST_MS (ZOOKEEPER_SESSION_MS - 2 * ZOOKEEPER_TICK_MS) /* the longest lease given */

static const struct engine engine = {
    "ZooKeeper",
    starts,
    starts_proxy,
    stops,
    writes_url,
    rlock_zookeeper_new,
    rlock_zookeeper_free,
    pauses,
    resumes,
    dies,
    comes_back,
    NULL,
    has,
    NULL,
    clears,
    false,                        /* polls */
    true,                         /* of_sessions */
    0,                            /* lease_ms */
    {LONGEST_MS / 2, LONGEST_MS}, /* lost_ms */
    20000,                        /* wait_ms */
    0,                            /* long_ms */
    DELAY_50_MS,                  /* far_mode */
    50,                           /* far_ms */
    1000,                         /* far_lease_ms */
    RLOCK__ZK_KEY_MAX,            /* key_max */
    "at most 1,000 bytes",        /* key_too_long */
    5                             /* wishes */
};

#endif
