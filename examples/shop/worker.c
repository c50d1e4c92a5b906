/* worker.c - a worker: how a purchase goes, with the lock and without
 *
 * A buyer reads the stock, thinks, and writes one less. With the lock it does so while it holds it,
 * and shows its fencing token to the data both when it reads and when it writes. */
#define _GNU_SOURCE 1
#include <event2/bufferevent.h>
#include <event2/buffer.h>
#include <hiredis/adapters/libevent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "rlock.h"
#include "rlock_libevent.h"
#include "../data.h"
#include "shop.h"

#define WAIT_MS 20000

typedef struct buyer {
    struct buyer *next_free, *next;
    rlock *lock;
    struct event *thinking;
    order what;
    uint64_t fence; /* 0: without the lock */
    int64_t seen;   /* the stock when it was read */
    bool lost;      /* on_lost was called */
    bool again;     /* after the release: from the beginning */
    news answer;
} buyer;

/* Reads (without ARGV[2]) or writes the stock of a sale. ARGV[1] is the fencing token, 0 without
 * the lock. A token that is older than one that was here is refused. Reading shows the token too:
 * else an older holder's write could come in between the read and the write of a newer one. */
static const char touch[] =
    "local stock, newest = unpack(redis.call('HMGET', KEYS[1], 'stock', 'fence'))\n"
    "local fence, left = tonumber(ARGV[1]), ARGV[2]\n"
    "if not stock then return {'over', 0} end\n"
    "if fence > 0 then\n"
    "    if fence < tonumber(newest) then return {'refused', tonumber(newest)} end\n"
    "    redis.call('HSET', KEYS[1], 'fence', ARGV[1])\n"
    "end\n"
    "if not left then return {'stock', tonumber(stock)} end\n"
    "redis.call('HSET', KEYS[1], 'stock', left)\n"
    "redis.call('HINCRBY', KEYS[1], 'sold', 1)\n"
    "return {'sold', tonumber(left)}\n";

static rlock_client *client;
static redisAsyncContext *data;
static struct bufferevent *wire; /* to the front */
static buyer *buyers, *unused;
static place *mine;
static int status;
static bool ending;

static void begin(buyer *b);

static void stop(int with_status) {
    status = with_status;
    event_base_loopbreak(base);
}

static void say(const news *what) {
    bufferevent_write(wire, what, sizeof *what);
}

static void finish(buyer *b) {
    if (b->again) {
        begin(b);
        return;
    }
    b->answer.buyer = b->what.buyer;
    say(&b->answer);
    b->next_free = unused;
    unused = b;
}

/* --- with the lock --- */

static void say_lost(const buyer *b, const rlock_event *event) {
    news said = {.topic = NEWS_LOST, .fence = b->fence, .reason = (int)event->reason};
    say(&said);
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    buyer *b = user;
    (void)lock;
    BOARD_ADD(mine->holding, -1);
    b->lost = true; /* what it waits for comes soon, and finds this */
    say_lost(b, event);
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    if (event->status == RLOCK_ERR_LOST) { /* it was lost, and on_lost was not called yet */
        say_lost(user, event);
    }
    finish(user);
}

static void let_go(buyer *b) {
    if (b->fence == 0 || b->lost) {
        finish(b);
        return;
    }
    BOARD_ADD(mine->holding, -1);
    if (rlock_release(b->lock, on_released, b) != RLOCK_OK) {
        finish(b);
    }
}

/* Ends a purchase that was in vain: the lock was lost, so what was read may be old. */
static void start_over(buyer *b) {
    b->again = true;
    let_go(b);
}

/* --- the data --- */

static void touch_stock(buyer *b, redisCallbackFn *done, bool writes) {
    char left[24];
    snprintf(left, sizeof left, "%lld", (long long)b->seen - 1);
    if (writes) {
        redisAsyncCommand(data, done, b, "EVAL %s 1 " PREFIX "%u %llu %s", touch, b->what.sale,
                          (unsigned long long)b->fence, left);
    } else {
        redisAsyncCommand(data, done, b, "EVAL %s 1 " PREFIX "%u %llu", touch, b->what.sale,
                          (unsigned long long)b->fence);
    }
}

/* True if the answer is the one that was hoped for; else the purchase is ended. */
static bool is_good(buyer *b, redisReply *reply, const char *hoped, int64_t *number) {
    const char *word;

    if (ending) {
        return false;
    }
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        fprintf(stderr, "shop: the data cannot be read: %s\n",
                reply && reply->str ? reply->str : "no connection");
        stop(1); /* the front starts another worker */
        return false;
    }
    word = reply->element[0]->str;
    *number = reply->element[1]->integer;
    if (strcmp(word, hoped) == 0) {
        return true;
    }
    if (strcmp(word, "refused") == 0) {
        news said = {.topic = NEWS_REFUSED, .fence = b->fence, .newest = (uint64_t)*number};
        said.writes = strcmp(hoped, "sold") == 0;
        say(&said);
        start_over(b);
    } else { /* the sale is over */
        b->answer.topic = NEWS_FAILED;
        let_go(b);
    }
    return false;
}

static void on_written(redisAsyncContext *c, void *reply, void *user) {
    buyer *b = user;
    (void)c;
    if (is_good(b, reply, "sold", &b->answer.number)) { /* even if the lock was lost meanwhile */
        b->answer.topic = NEWS_SOLD;
        BOARD_ADD(mine->sold, 1);
        let_go(b);
    }
}

/* The worst moment to be frozen: the last look at the lock was good, and the write has not left
 * yet. No check in a program can help there, only one at the data. A signal from outside would
 * nearly always come at another moment, so the worker sends it to itself; it is a real one. */
static void suffer(void) {
    int fault = BOARD_TAKE(board->fault);
    if (fault != FAULT_NONE) {
        raise(fault == FAULT_FREEZE ? SIGSTOP : SIGKILL);
    }
}

static void on_thought(evutil_socket_t fd, short what, void *user) {
    buyer *b = user;
    (void)fd, (void)what;
    if (b->fence != 0 && !rlock_is_held(b->lock)) {
        start_over(b);
        return;
    }
    suffer();
    touch_stock(b, on_written, true);
}

static void on_read(redisAsyncContext *c, void *reply, void *user) {
    const struct timeval think = {shop.think_ms / 1000, shop.think_ms % 1000 * 1000};
    buyer *b = user;
    (void)c;
    if (!is_good(b, reply, "stock", &b->seen)) {
        return;
    }
    if (b->lost) {
        start_over(b);
    } else if (b->seen <= 0) {
        b->answer.topic = NEWS_SOLD_OUT;
        let_go(b);
    } else if (shop.think_ms > 0) {
        event_add(b->thinking, &think);
    } else {
        on_thought(-1, 0, b);
    }
}

/* --- a purchase begins --- */

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    buyer *b = user;
    (void)lock;
    BOARD_ADD(mine->waiting, -1);
    if (event->status != RLOCK_OK) {
        b->answer.topic = NEWS_FAILED;
        b->answer.number = event->status;
        finish(b);
        return;
    }
    b->fence = event->fence;
    BOARD_ADD(mine->holding, 1);
    BOARD_ADD(mine->holds, 1);
    BOARD_SET(mine->fence, b->fence);
    touch_stock(b, on_read, false);
}

static void begin(buyer *b) {
    int refused;

    b->fence = 0;
    b->lost = b->again = false;
    memset(&b->answer, 0, sizeof b->answer);
    if (!b->what.with_lock) {
        touch_stock(b, on_read, false);
        return;
    }
    refused = rlock_acquire(b->lock, WAIT_MS, 0, on_acquired, b);
    if (refused == RLOCK_OK) {
        BOARD_ADD(mine->waiting, 1);
        return;
    }
    b->answer.topic = NEWS_FAILED;
    b->answer.number = refused;
    finish(b);
}

/* A handle is one would-be holder, so each buyer in the shop has one. Those that left are used
 * again. */
static buyer *new_buyer(void) {
    rlock_options options = {.key = PREFIX "lock", .fencing = true, .on_lost = on_lost};
    buyer *b = unused;

    if (shop.fair) { /* on one key there may be no locks of two kinds */
        options.key = PREFIX "fair-lock";
        options.kind = RLOCK_KIND_FAIR;
    }
    if (b != NULL) {
        unused = b->next_free;
        return b;
    }
    b = calloc(1, sizeof *b);
    options.user = b;
    if (b == NULL || rlock_new(&b->lock, client, &options) != RLOCK_OK ||
        (b->thinking = evtimer_new(base, on_thought, b)) == NULL) {
        fprintf(stderr, "shop: out of memory\n");
        exit(1);
    }
    b->next = buyers;
    buyers = b;
    return b;
}

/* --- the process --- */

static void on_orders(struct bufferevent *from, void *user) {
    (void)user;
    while (evbuffer_get_length(bufferevent_get_input(from)) >= sizeof(order)) {
        buyer *b = new_buyer();
        bufferevent_read(from, &b->what, sizeof b->what);
        begin(b);
    }
}

static void on_front_gone(struct bufferevent *from, short what, void *user) {
    (void)from, (void)what, (void)user;
    stop(0);
}

static void on_term(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what, (void)user;
    stop(0);
}

/* The context is freed after either of these. */
static void on_data_gone(const redisAsyncContext *c, int how) {
    (void)c, (void)how;
    data = NULL;
    if (!ending) {
        stop(1);
    }
}

static void on_data_connected(const redisAsyncContext *c, int how) {
    if (how != REDIS_OK) {
        on_data_gone(c, how);
    }
}

static void on_log(void *user, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "worker %d: %s\n", *(int *)user, line);
    }
}

static void connect_all(int *number) {
    rlock_config config = {.loop = rlock_libevent_loop(base), .log = on_log, .user = number};
    char words[64];

    snprintf(words, sizeof words, "the shop, worker %d, pid %ld", *number, (long)getpid());
    config.description = words; /* rlock inspect shows it */
    config.url = getenv("RLOCK_URL");
    config.watchdog_lease_ms = LEASE_MS;
    config.command_timeout_ms = LEASE_MS / 2; /* a server that is silent is given up early */
    data = data_connect_async();
    if (data == NULL || data->err || redisLibeventAttach(data, base) != REDIS_OK ||
        rlock_client_new(&client, &config) != RLOCK_OK) {
        fprintf(stderr, "shop: worker %d cannot begin: %s\n", *number, data ? data->errstr : "");
        exit(1);
    }
    redisAsyncSetConnectCallback(data, on_data_connected);
    redisAsyncSetDisconnectCallback(data, on_data_gone);
}

static void free_all(void) {
    ending = true;
    rlock_client_free(client); /* also releases what is held */
    if (data != NULL) {
        redisAsyncFree(data);
    }
    while (buyers != NULL) {
        buyer *b = buyers;
        buyers = b->next;
        rlock_free(b->lock);
        event_free(b->thinking);
        free(b);
    }
    bufferevent_free(wire);
}

int work(int number, int to_front) {
    struct event_config *wanted = event_config_new();
    struct event *term;

    mine = &board->places[number - 1];
    event_config_set_flag(wanted, EVENT_BASE_FLAG_PRECISE_TIMER); /* see rlock_libevent.h */
    base = event_base_new_with_config(wanted);
    event_config_free(wanted);
    evutil_make_socket_nonblocking(to_front);
    wire = bufferevent_socket_new(base, to_front, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(wire, on_orders, NULL, on_front_gone, NULL);
    bufferevent_enable(wire, EV_READ | EV_WRITE);
    term = evsignal_new(base, SIGTERM, on_term, NULL);
    event_add(term, NULL);
    connect_all(&number);
    event_base_dispatch(base);
    free_all();
    event_free(term);
    event_base_free(base);
    base = NULL;
    return status;
}

/* SPDX-License-Identifier: MIT */
