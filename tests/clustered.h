/* clustered.h - the same suite on a cluster: with RLOCK_TEST_CLUSTER=1 each server of the tests is
 * a cluster of one node, and each client of the kit gets config.cluster
 *
 * A node has no path. So each path is an address of its own, 127.7.7.1 and so on, and what connects
 * to that is led to the path: a proxy and a scripted server stay what they are. The node announces
 * no host; so the map leads to where it was asked for.
 *
 * Include it before the implementation, and before kit.h, whose clients are such then.
 */
#ifndef TESTS_CLUSTERED_H
#define TESTS_CLUSTERED_H

#include "rlock.h"
#include "server.h"

#include <fnmatch.h>
#include <hiredis/async.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "shard.h"

#define CLUSTERED_PATHS 250

static char clustered_paths[CLUSTERED_PATHS][128];
static int clustered_next;

static inline bool clustered(void) {
    return server_is_clustered();
}

static inline redisAsyncContext *clustered_connect(const char *ip, int port) {
    unsigned last = 0;

    if (sscanf(ip, "127.7.7.%u", &last) == 1 && last >= 1 && last <= CLUSTERED_PATHS) {
        return redisAsyncConnectUnix(clustered_paths[last - 1]);
    }
    return redisAsyncConnect(ip, port);
}
#define redisAsyncConnect clustered_connect

/* Returns the port that nodes name, scripted ones too: that of the suite's server. */
static inline int clustered_port(void) {
    const struct server *first = server_list[SERVER_MAX - 1];

    return first != NULL && first->port != 0 ? first->port : 6379;
}

/* Returns the seed of a cluster that leads to a path, or else to a host. It is good until as many
 * others were asked for. */
static inline const char *clustered_seed(const char *path, const char *host, int port) {
    static char seeds[CLUSTERED_PATHS][128];
    int i = 0;

    while (path != NULL && i < CLUSTERED_PATHS && strcmp(clustered_paths[i], path) != 0) {
        i++;
    }
    if (path == NULL || i == CLUSTERED_PATHS) {
        i = clustered_next++ % CLUSTERED_PATHS;
        snprintf(clustered_paths[i], sizeof clustered_paths[i], "%s", path != NULL ? path : "");
    }
    if (path != NULL) {
        snprintf(seeds[i], sizeof seeds[i], "127.7.7.%d:%d", i + 1, clustered_port());
    } else {
        host = host != NULL ? host : "127.0.0.1";
        snprintf(seeds[i], sizeof seeds[i], strchr(host, ':') != NULL ? "[%s]:%d" : "%s:%d", host,
                 port);
    }
    return seeds[i];
}

/* Returns a configuration, that of a cluster if the suite is run on one. */
static inline rlock_config clustered_config(const rlock_config *config) {
    rlock_config its = *config;

    if (clustered() && !its.store && !its.url && !its.connect && !its.sentinels && !its.cluster) {
        its.cluster = clustered_seed(its.unix_path, its.host, its.port);
        its.unix_path = its.host = NULL;
        its.port = 0;
    }
    return its;
}

/* What a test is not run for on a cluster. */
struct clustered_skip {
    const char *tests, *why; /* a pattern of names; the last one is NULL */
};

/* Runs the tests of a suite; on a cluster without those of the table, whose end is NULL. */
static inline int clustered_run(const char *name, struct CMUnitTest *tests, size_t count,
                                const struct clustered_skip *skips, CMFixtureFunction begins,
                                CMFixtureFunction ends, const char *filter) {
    size_t i, kept = 0;

    for (i = 0; i < count; i++) {
        const struct clustered_skip *skip = skips;

        while (clustered() && skip->tests != NULL && fnmatch(skip->tests, tests[i].name, 0) != 0) {
            skip++;
        }
        if (!clustered() || skip->tests == NULL) {
            tests[kept++] = tests[i];
        } else {
            printf("not on a cluster: %s: %s\n", tests[i].name, skip->why);
        }
    }
    if (filter != NULL) {
        cmocka_set_test_filter(filter);
    }
    return shard_run(name, tests, kept, begins, ends);
}

#endif /* TESTS_CLUSTERED_H */
