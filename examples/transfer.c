/* How do I lock two things without a deadlock? With several keys in one handle: all or none, in any
 * order. Four processes move money between accounts in Redis: read two, pause, write them back. */
#include <ev.h>
#include <hiredis/adapters/libev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"
#include "data.h"

#define PROCESSES 4
#define CLERKS 5      /* a process; each makes one transfer after the other */
#define TRANSFERS 100 /* a process */
#define ACCOUNTS 6
#define OPENING 1000

typedef struct clerk {
    rlock *lock;
    int from, to, has_from, has_to;
} clerk;

static redisAsyncContext *redis;
static rlock_client *client;
static int begun, done;

static void must(bool good, const char *else_say) {
    if (!good) {
        fprintf(stderr, "transfer: %s\n", else_say);
        exit(1);
    }
}

static void must_be_ok(int status) {
    must(status == RLOCK_OK, rlock_strerror(status));
}

static void begin(clerk *c);

static void on_released(rlock *lock, const rlock_event *event, void *c) {
    must(event->status == RLOCK_OK, rlock_strerror(event->status));
    rlock_free(lock);
    done++;
    begin(c);
}

static void on_written(redisAsyncContext *redis_, void *reply, void *user) {
    clerk *c = user;
    must(redis_ && reply && ((redisReply *)reply)->type == REDIS_REPLY_STATUS, "not written");
    must(rlock_release(c->lock, on_released, c) == RLOCK_OK, "the lock was lost");
}

static void on_paused(int revents, void *user) {
    clerk *c = user;
    int amount = 1 + rand() % 50;
    (void)revents;
    redisAsyncCommand(redis, on_written, c, "MSET balance:%d %d balance:%d %d", c->from,
                      c->has_from - amount, c->to, c->has_to + amount);
}

static void on_balances(redisAsyncContext *redis_, void *reply, void *user) {
    const redisReply *r = reply;
    clerk *c = user;
    must(redis_ && r && r->type == REDIS_REPLY_ARRAY && r->elements == 2, "no balances");
    c->has_from = atoi(r->element[0]->str);
    c->has_to = atoi(r->element[1]->str);
    ev_once(EV_DEFAULT, -1, 0, 0.001, on_paused, c);
}

static void on_locked(rlock *lock, const rlock_event *event, void *user) {
    clerk *c = user;
    must(lock && event->status == RLOCK_OK, rlock_strerror(event->status));
    redisAsyncCommand(redis, on_balances, c, "MGET balance:%d balance:%d", c->from, c->to);
}

static void begin(clerk *c) {
    char from[32], to[32];
    const char *keys[2] = {from, to};
    rlock_options options = {.keys = keys, .key_count = 2}; /* copied */

    if (begun++ >= TRANSFERS) {
        return;
    }
    c->from = rand() % ACCOUNTS;
    c->to = (c->from + 1 + rand() % (ACCOUNTS - 1)) % ACCOUNTS;
    snprintf(from, sizeof from, "account:%d", c->from);
    snprintf(to, sizeof to, "account:%d", c->to);
    must_be_ok(rlock_new(&c->lock, client, &options));
    must(rlock_acquire(c->lock, 30000, 0, on_locked, c) == RLOCK_OK, "cannot acquire");
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "%s\n", line);
    }
}

static int bank(int number) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    clerk clerks[CLERKS];
    int i;

    alarm(60); /* should the parent be gone */
    signal(SIGPIPE, SIG_IGN);
    config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    srand((unsigned)number);
    redis = data_connect_async();
    must(redisLibevAttach(EV_DEFAULT_ redis) == REDIS_OK, "no server");
    must_be_ok(rlock_client_new(&client, &config));
    for (i = 0; i < CLERKS; i++) {
        begin(&clerks[i]);
    }
    while (done < TRANSFERS) {
        ev_run(EV_DEFAULT, EVRUN_ONCE);
    }
    rlock_client_free(client);
    redisAsyncFree(redis);
    return 0;
}

/* A connection of its own: one that is open across a fork would belong to all. */
static int ask(const char *format, int account, int balance) {
    redisContext *c = data_connect();
    redisReply *r = c && !c->err ? redisCommand(c, format, account, balance) : NULL;
    int answer;

    must(r != NULL && r->type != REDIS_REPLY_ERROR, "no server");
    answer = r->str ? atoi(r->str) : 0;
    freeReplyObject(r);
    redisFree(c);
    return answer;
}

int main(void) {
    int i, status, failed = 0, total = 0;

    for (i = 0; i < ACCOUNTS; i++) {
        ask("SET balance:%d %d", i, OPENING);
    }
    for (i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            return bank(i);
        }
    }
    while (wait(&status) > 0) {
        failed |= status;
    }
    for (i = 0; i < ACCOUNTS; i++) {
        total += ask("GET balance:%d", i, 0);
        ask("DEL balance:%d", i, 0);
    }
    printf("%d transfers by %d processes, total %d of %d: %s\n", PROCESSES * TRANSFERS, PROCESSES,
           total, ACCOUNTS * OPENING, total == ACCOUNTS * OPENING ? "nothing is lost" : "WRONG");
    return failed != 0 || total != ACCOUNTS * OPENING;
}

/* SPDX-License-Identifier: MIT */
