/* data.h - connections for an example's own data, which is in the Redis that RLOCK_DATA names, or
 * else RLOCK_URL
 *
 * So the locks may be in another engine: RLOCK_URL=postgres://... RLOCK_DATA=redis://... hiredis
 * reads no URLs. These connections know unix:///path and redis://host:port, without a user and with
 * database 0; where neither is set, they go to 127.0.0.1, port 6379. The library itself takes every
 * form that rlock.h lists. */
#ifndef DATA_H
#define DATA_H

#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the port, or 0 for the path of a socket. */
static inline int data_address(char host[108]) {
    const char *data = getenv("RLOCK_DATA"), *url = data ? data : getenv("RLOCK_URL");
    int port = 6379;
    strcpy(host, "127.0.0.1");
    if (!url || sscanf(url, "unix://%107[^?@]", host) == 1) {
        return url ? 0 : port;
    }
    if (strchr(url, '@') || sscanf(url, "redis://%107[^:/?]:%d", host, &port) < 1) {
        fprintf(stderr, "this example keeps its data in Redis: RLOCK_DATA, or RLOCK_URL, has to be "
                        "unix:///path or redis://host:port\n");
        exit(1);
    }
    return port;
}

static inline redisContext *data_connect(void) {
    char host[108];
    int port = data_address(host);
    return port ? redisConnect(host, port) : redisConnectUnix(host);
}

/* Asks on a connection of its own, because one that stood idle may be dead, and blocks for two
 * seconds at most: a lease has to be longer. Returns the reply; or NULL, and stderr says why. */
static inline redisReply *data_ask(const char *format, ...) {
    struct timeval patience = {1, 0};
    redisReply *reply = NULL;
    redisContext *c;
    char host[108];
    va_list words;
    int port = data_address(host);
    c = port ? redisConnectWithTimeout(host, port, patience)
             : redisConnectUnixWithTimeout(host, patience);
    if (c && !c->err && redisSetTimeout(c, patience) == REDIS_OK) {
        va_start(words, format);
        reply = redisvCommand(c, format, words);
        va_end(words);
    }
    if (!reply || reply->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "data: %s\n", reply ? reply->str : c ? c->errstr : "out of memory");
        freeReplyObject(reply);
        reply = NULL;
    }
    redisFree(c);
    return reply;
}

static inline redisAsyncContext *data_connect_async(void) {
    char host[108];
    int port = data_address(host);
    return port ? redisAsyncConnect(host, port) : redisAsyncConnectUnix(host);
}

#endif /* DATA_H */

/* SPDX-License-Identifier: MIT */
