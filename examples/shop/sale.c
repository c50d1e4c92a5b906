/* sale.c - the sale that is on: its data in Redis, its buyers, and what becomes of them
 *
 * The front process sells nothing itself: it sends each buyer to a worker, and asks the data what
 * was sold. */
#define _GNU_SOURCE 1
#include <hiredis/adapters/libevent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "rlock_libevent.h"
#include "../data.h"
#include "shop.h"

#define GAP_MS 500    /* so long without a new hold is worth a line */
#define SILENT_MS 500 /* so long without an answer, the data is not up */

typedef struct visit {              /* a buyer that is with a worker */
    struct evhttp_request *request; /* NULL: one of a rush */
    uint32_t sale;
    int worker; /* -1 = this place is free */
} visit;

struct sale sale;

static redisAsyncContext *data;
static bool asked;       /* the data was asked, and did not answer yet */
static int64_t heard_ms; /* when the data answered last */
static int64_t hold_ms;  /* when the last new hold was seen */
static visit *visits;
static uint32_t visits_count;

static void fill(void);

/* --- the data --- */

/* True if this is the stock of the sale that is on. */
static bool read_stock(redisReply *r, void *number) {
    if (r == NULL || r->type != REDIS_REPLY_ARRAY || r->elements != 2 || !r->element[0]->str ||
        !r->element[1]->str || (uintptr_t)number != sale.number) {
        return false;
    }
    heard_ms = now_ms();
    sale.left = atoll(r->element[0]->str);
    sale.sold = atoll(r->element[1]->str);
    return true;
}

static void ask_stock(redisCallbackFn *done) {
    redisAsyncCommand(data, done, (void *)(uintptr_t)sale.number, "HMGET " PREFIX "%u stock sold",
                      sale.number);
}

static void on_stock(redisAsyncContext *c, void *reply, void *number) {
    (void)c;
    asked = false;
    read_stock(reply, number);
}

static void on_last_stock(redisAsyncContext *c, void *reply, void *number) {
    const char *how = sale.with_lock ? "With" : "Without";
    long long sold, left;
    (void)c;

    if (!read_stock(reply, number) || !sale.closing) {
        redisReply *r = reply;
        if (r != NULL && (uintptr_t)number == sale.number && sale.closing) {
            sale.running = false;
            tell("fault", "The data of the sale is gone: was Redis emptied?");
        }
        sale.closing = false; /* a tick asks again */
        return;
    }
    sold = sale.sold, left = sale.left;
    sale.running = sale.closing = false;
    if (sold > shop.stock) {
        tell("over", "%s the lock: %lld sold of %d: OVERSOLD BY %lld", how, sold, shop.stock,
             sold - shop.stock);
    } else if (sold + left != shop.stock) {
        tell("over", "%s the lock: %lld sold of %d, but %lld left: WRONG", how, sold, shop.stock,
             left);
    } else {
        tell("exact", "%s the lock: %lld sold of %d, %lld left: exact", how, sold, shop.stock,
             left);
    }
    if (sale.failed > 0) {
        tell("info", "%d buyers got no answer: their worker was killed, or no lock was to be had",
             sale.failed);
    }
}

static void on_opened(redisAsyncContext *c, void *reply, void *number) {
    redisReply *r = reply;
    (void)c;

    if ((uintptr_t)number != sale.number) {
        return;
    }
    sale.opening = false;
    if (r == NULL || r->type == REDIS_REPLY_ERROR) {
        tell("fault", "The sale cannot be opened: Redis does not take it");
        return;
    }
    heard_ms = hold_ms = now_ms();
    sale.running = sale.rush;
    fill();
}

/* Each sale has a key of its own, so that what a frozen worker still wants to write into the last
 * one harms nothing in this one. */
bool sale_open(bool rush, bool with_lock) {
    /* Two shops at one server sell things of their own. */
    uint32_t last = sale.number ? sale.number : (uint32_t)getpid() * 1000;

    if (data == NULL) {
        return false;
    }
    memset(&sale, 0, sizeof sale);
    sale.number = last + 1;
    sale.rush = rush;
    sale.with_lock = with_lock;
    sale.opening = true;
    sale.left = shop.stock;
    BOARD_SET(board->fault, FAULT_NONE);
    redisAsyncCommand(data, NULL, NULL, "DEL " PREFIX "%u", last);
    redisAsyncCommand(data, on_opened, (void *)(uintptr_t)sale.number,
                      "HMSET " PREFIX "%u stock %d sold 0 fence 0", sale.number, shop.stock);
    return true;
}

/* The context is freed after either of these; a tick makes another one. */
static void on_data_gone(const redisAsyncContext *c, int how) {
    (void)c, (void)how;
    data = NULL;
    asked = false;
}

static void on_data_connected(const redisAsyncContext *c, int how) {
    if (how != REDIS_OK) {
        on_data_gone(c, how);
    } else if (sale.number == 0) {
        sale_open(false, false);
    }
}

static void connect_data(void) {
    data = data_connect_async();
    if (data == NULL || data->err || redisLibeventAttach(data, base) != REDIS_OK) {
        if (data != NULL) {
            redisAsyncFree(data);
        }
        data = NULL;
        return;
    }
    redisAsyncSetConnectCallback(data, on_data_connected);
    redisAsyncSetDisconnectCallback(data, on_data_gone);
    redisAsyncCommand(data, NULL, NULL, "PING"); /* hiredis looks whether it is connected */
}

/* --- buyers --- */

static bool send_buyer(int worker, struct evhttp_request *request, bool with_lock) {
    order what = {.sale = sale.number, .with_lock = with_lock};
    uint32_t i;

    for (i = 0; i < visits_count && visits[i].worker >= 0; i++) {
    }
    if (i == visits_count) {
        uint32_t more = visits_count ? 2 * visits_count : 64, at;
        visit *larger = realloc(visits, more * sizeof *larger);
        if (larger == NULL) {
            return false;
        }
        visits = larger;
        for (at = visits_count; at < more; at++) {
            visits[at].worker = -1;
        }
        visits_count = more;
    }
    visits[i].request = request;
    visits[i].sale = sale.number;
    visits[i].worker = worker;
    what.buyer = i;
    crew_send(worker, &what);
    return true;
}

/* Lets buyers of the rush in, while there is room. */
static void fill(void) {
    int worker, most = (shop.crowd + shop.workers - 1) / shop.workers;

    while (sale.running && sale.begun < shop.buyers && sale.inside < shop.crowd &&
           (worker = crew_pick(most)) >= 0 && send_buyer(worker, NULL, sale.with_lock)) {
        sale.begun++;
        sale.inside++;
    }
    if (sale.running && !sale.closing && sale.done == shop.buyers && data != NULL) {
        sale.closing = true;
        if (BOARD_TAKE(board->fault) != FAULT_NONE) {
            tell("info", "Too late: all buyers are done");
        }
        ask_stock(on_last_stock);
    }
}

static void leave(visit *v, int outcome, const char *words) {
    bool counts = v->request == NULL && v->sale == sale.number;

    v->worker = -1;
    if (v->request != NULL) {
        front_answer(v->request,
                     outcome == NEWS_SOLD       ? 200
                     : outcome == NEWS_SOLD_OUT ? 410
                                                : 503,
                     words);
        v->request = NULL;
    }
    if (counts) {
        sale.inside--;
        sale.done++;
        sale.failed += outcome == NEWS_FAILED;
    }
}

void sale_hear(int worker, const news *said) {
    unsigned long long fence = said->fence, newest = said->newest;

    switch ((topic)said->topic) {
    case NEWS_SOLD: leave(&visits[said->buyer], NEWS_SOLD, "sold"); break;
    case NEWS_SOLD_OUT: leave(&visits[said->buyer], NEWS_SOLD_OUT, "sold out"); break;
    case NEWS_FAILED:
        leave(&visits[said->buyer], NEWS_FAILED,
              said->number ? rlock_strerror((int)said->number) : "the sale is over");
        break;
    case NEWS_LOST:
        sale.lost++;
        tell("lost", "Worker %d is notified: LOST, %s. Its token was %llu", worker + 1,
             rlock_reason_str((rlock_reason)said->reason), fence);
        break;
    case NEWS_REFUSED:
        sale.refused++;
        tell("refused", "The late %s of worker %d is REFUSED: its token %llu is older than %llu",
             said->writes ? "write" : "read", worker + 1, fence, newest);
        break;
    }
    fill();
}

void sale_lost_worker(int worker) {
    uint32_t i;

    for (i = 0; i < visits_count; i++) {
        if (visits[i].worker == worker) {
            leave(&visits[i], NEWS_FAILED, "the worker was killed");
        }
    }
    fill();
}

bool sale_is_busy(void) {
    return sale.rush && (sale.opening || sale.running) && !sale.closing;
}

bool sale_serve(struct evhttp_request *request, bool with_lock) {
    int worker = crew_pick(INT32_MAX);

    return worker >= 0 && send_buyer(worker, request, with_lock);
}

/* --- the process --- */

/* Tells how long a fault kept everybody from the lock. */
static void look_at_holds(void) {
    static uint64_t last;
    uint64_t holds = crew_holds();
    int64_t now = now_ms();
    int holder = crew_holder();

    if (sale.running && sale.with_lock && (holds == last || holder < 0)) {
        return; /* nobody new, or gone already: the next tick may see one */
    }
    if (sale.running && sale.with_lock && now - hold_ms > GAP_MS + shop.think_ms) {
        tell("info", "Worker %d holds the lock now; no worker acquired it for %.1f s", holder + 1,
             (double)(now - hold_ms) / 1000);
    }
    hold_ms = now;
    last = holds;
}

/* --- who has the lock, in words: what any operator is told --- */

static rlock_client *operator_client;
static bool describing;
/* The first of each, ready for JSON: a description has at most 255 bytes. */
static char who_holds[512], who_waits[512];

/* A description is another program's text. */
static void keep_words(char into[512], const char *words) {
    size_t n = 0;
    for (; *words && n < 510; words++) {
        if (*words == '"' || *words == '\\') {
            into[n++] = '\\';
        }
        into[n++] = *words;
    }
    into[n] = 0;
}

static void on_described(rlock_client *client, const rlock_info *info, void *user) {
    int i;
    (void)client, (void)user;
    describing = false;
    who_holds[0] = who_waits[0] = 0;
    for (i = info->status == RLOCK_OK ? (int)info->who_count : 0; i-- > 0;) {
        const rlock_who *one = &info->who[i];
        keep_words(one->waits ? who_waits : who_holds,
                   one->description ? one->description : "not connected now");
    }
}

/* The lock of this sale has one key of two: see worker.c. */
static void describe(void) {
    rlock_options options = {.key = PREFIX "lock"};
    rlock_config config = {.url = getenv("RLOCK_URL"), .loop = rlock_libevent_loop(base)};
    if (shop.fair) {
        options.key = PREFIX "fair-lock";
        options.kind = RLOCK_KIND_FAIR;
    }
    if (operator_client == NULL && rlock_client_new(&operator_client, &config) != RLOCK_OK) {
        return;
    }
    if (!describing) {
        describing = rlock_describe(operator_client, &options, on_described, NULL) == RLOCK_OK;
    }
}

const char *sale_holder(void) {
    return who_holds;
}

const char *sale_waiter(void) {
    return who_waits;
}

/* Leaves no stock behind at a server that is not the shop's own. The lock's count of fencing tokens
 * stays there: it may never go back. */
static void clean_up(void) {
    redisContext *c = server_is_ours() || sale.number == 0 ? NULL : data_connect();

    if (c != NULL && !c->err) {
        const struct timeval patience = {1, 0};
        redisSetTimeout(c, patience);
        freeReplyObject(redisCommand(c, "DEL " PREFIX "%u", sale.number));
    }
    if (c != NULL) {
        redisFree(c);
    }
}

const char *sale_server(void) {
    if (server_is_stopped()) {
        return "stopped";
    }
    return data == NULL ? "away" : now_ms() - heard_ms > SILENT_MS ? "silent" : "up";
}

void sale_tick(void) {
    static unsigned ticks;

    if (ticks++ % 5 == 0) {
        if (data == NULL) {
            connect_data();
        }
        describe();
    }
    if (data != NULL && sale.number != 0 && !asked) {
        asked = true;
        ask_stock(on_stock);
    }
    fill(); /* a worker that was frozen or dead may be there again */
    look_at_holds();
}

void sale_end(void) {
    uint32_t i;

    for (i = 0; i < visits_count; i++) {
        if (visits[i].worker >= 0 && visits[i].request != NULL) {
            front_answer(visits[i].request, 503, "the shop closes"); /* which gives it back */
        }
    }
    free(visits);
    rlock_client_free(operator_client);
    if (data != NULL) {
        redisAsyncFree(data);
    }
    clean_up();
}

/* SPDX-License-Identifier: MIT */
