/* Does it matter? A flash sale: processes with many buyers each sell one stock that is kept in
 * Redis, by reading it, pausing, and writing it back.
 *
 *     stock [--lock | --no-lock] [--processes P] [--buyers C] [--stock N] [--memory]
 *
 * --memory: no server; one process, the stock in a variable, the lock in the store inside it. */
#define _GNU_SOURCE 1 /* getopt_long, MAP_ANONYMOUS */
#include <ev.h>
#include <getopt.h>
#include <hiredis/adapters/libev.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"
#include "data.h"

typedef struct buyer {
    enum { LOCK, READ, PAUSE, WRITE, UNLOCK, AGAIN } todo;
    rlock *lock;
    int seen; /* the stock when it was read */
} buyer;

static int use_lock = 1, use_memory, processes = 4, buyers = 25, stock = 300;
static int *sold;               /* by all processes together */
static int memory_stock, wants; /* of this process: buyers that still want to buy */
static redisAsyncContext *redis;

static void step(buyer *b);

static void must(bool good, const char *else_say) {
    if (!good) {
        fprintf(stderr, "stock: %s\n", else_say);
        exit(1);
    }
}

static void must_be_ok(int status) {
    must(status == RLOCK_OK, rlock_strerror(status));
}

static void on_lock(rlock *lock, const rlock_event *event, void *b) {
    (void)lock;
    must(event->status == RLOCK_OK, rlock_strerror(event->status));
    step(b);
}

static void on_reply(redisAsyncContext *c, void *reply, void *b) {
    redisReply *r = reply;
    (void)c;
    must(r && (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS), "no stock");
    ((buyer *)b)->seen = r->type == REDIS_REPLY_STRING ? atoi(r->str) : ((buyer *)b)->seen;
    step(b);
}

static void on_paused(int revents, void *b) {
    (void)revents;
    step(b);
}

/* What a buyer does next; whoever calls back calls this again. What is done at once goes on. */
static void step(buyer *b) {
    switch (b->todo++) {
    case LOCK:
        if (use_lock) {
            must(rlock_acquire(b->lock, 30000, 0, on_lock, b) == RLOCK_OK, "cannot acquire");
            return;
        }
        break;
    case READ:
        if (!use_memory) {
            redisAsyncCommand(redis, on_reply, b, "GET sale:stock");
            return;
        }
        b->seen = memory_stock;
        break;
    case PAUSE:
        if (b->seen > 0) {
            ev_once(EV_DEFAULT, -1, 0, 0.002, on_paused, b);
            return;
        }
        b->todo = UNLOCK; /* sold out */
        break;
    case WRITE:
        __sync_fetch_and_add(sold, 1);
        if (!use_memory) {
            redisAsyncCommand(redis, on_reply, b, "SET sale:stock %d", b->seen - 1);
            return;
        }
        memory_stock = b->seen - 1;
        break;
    case UNLOCK:
        if (use_lock) {
            must(rlock_release(b->lock, on_lock, b) == RLOCK_OK, "the lock was lost");
            return;
        }
        break;
    case AGAIN:
        b->todo = LOCK;
        if (b->seen <= 0) {
            wants--;
            return;
        }
    }
    step(b);
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "%s\n", line);
    }
}

/* One process of the sale: its buyers, and one client for all of them. */
static int sell(void) {
    rlock_options options = {.key = "sale:lock"};
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT)};
    rlock_client *client;
    rlock_store *store = NULL; /* = Redis */
    buyer *all = calloc((size_t)buyers, sizeof *all);

    alarm(60); /* should the parent be gone */
    signal(SIGPIPE, SIG_IGN);
    if (use_memory) {
        must_be_ok(rlock_memory_new(&store));
    } else {
        config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
        redis = data_connect_async();
        must(redisLibevAttach(EV_DEFAULT_ redis) == REDIS_OK, "no server");
    }
    config.store = store;
    config.log = on_log;
    must(all != NULL, "out of memory");
    must_be_ok(rlock_client_new(&client, &config));
    memory_stock = stock;
    for (wants = 0; wants < buyers; wants++) {
        must_be_ok(rlock_new(&all[wants].lock, client, &options));
        step(&all[wants]);
    }
    while (wants > 0) {
        ev_run(EV_DEFAULT, EVRUN_ONCE);
    }
    rlock_client_free(client);
    while (buyers > 0) {
        rlock_free(all[--buyers].lock);
    }
    if (redis != NULL) {
        redisAsyncFree(redis);
    }
    rlock_memory_free(store);
    free(all);
    return 0;
}

int main(int argc, char **argv) {
    static const struct option known[] = {
        {"lock", 0, &use_lock, 1}, {"no-lock", 0, &use_lock, 0}, {"memory", 0, &use_memory, 1},
        {"stock", 1, NULL, 's'},   {"processes", 1, NULL, 'p'},  {"buyers", 1, NULL, 'b'},
        {NULL, 0, NULL, 0}};
    static const char *const modes[] = {"without the lock", "with the lock   "};
    int i, name, status = 0, failed = 0;

    while ((name = getopt_long(argc, argv, "", known, NULL)) != -1) {
        int *number = name == 's' ? &stock : name == 'p' ? &processes : &buyers;
        must(name != '?' && (name == 0 || (*number = atoi(optarg)) > 0), "see its first lines");
    }
    if (!use_memory) {
        redisContext *c = data_connect();
        redisReply *r = c && !c->err ? redisCommand(c, "SET sale:stock %d", stock) : NULL;
        must(r != NULL && r->type == REDIS_REPLY_STATUS, "no server (try --memory)");
        freeReplyObject(r);
        redisFree(c);
    }
    processes = use_memory ? 1 : processes;
    sold = mmap(NULL, sizeof *sold, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(sold != MAP_FAILED, "out of memory");
    for (i = 0; i < processes; i++) {
        if (fork() == 0) {
            return sell();
        }
    }
    do {
        i = waitpid(-1, &status, WNOHANG); /* negative: none is left */
        failed |= i > 0 ? status : 0;
        if (isatty(1) || i < 0) {
            printf("%s%s: %d sold of %d by %d x %d buyers", isatty(1) ? "\r" : "", modes[use_lock],
                   __sync_fetch_and_add(sold, 0), stock, processes, buyers);
            fflush(stdout);
        }
        usleep(i == 0 ? 50000 : 0);
    } while (i >= 0);
    printf(*sold == stock  ? ": exact\n"
           : *sold > stock ? ": OVERSOLD BY %d\n"
                           : ": NOT ALL IS SOLD\n",
           *sold - stock);
    return failed != 0 || (use_lock && *sold != stock);
}

/* SPDX-License-Identifier: MIT */
