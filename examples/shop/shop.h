/* shop.h - what the files of the shop know of each other
 *
 * shop.c    the program: its options, its start and its end
 * server.c  a Redis server of its own
 * crew.c    the workers, as the front process sees them
 * sale.c    the sale that is on: its data, its buyers
 * front.c   what the browser asks, and the live events
 * worker.c  a worker: how a purchase goes, with the lock and without */
#ifndef SHOP_H
#define SHOP_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evhttp_request;

#define WORKERS_MAX 16
#define FILES_MAX 4096 /* descriptors that the front may have */
#define LEASE_MS 1000  /* short, so that a loss is seen soon */
#define FREEZE_MS 2000 /* for longer than the lease */
#define STOP_MS 2000
#define PREFIX "rlock-shop:" /* of the keys at the server */

typedef struct settings {
    int workers, stock, buyers, crowd, think_ms, port;
    const char *address;
    bool fair; /* the lock keeps an order across the workers */
} settings;

extern settings shop;
extern struct event_base *base; /* of this process */

/* An order goes from the front to a worker, news come back. Both are written whole into a socket
 * between the two. */
typedef struct order {
    uint32_t buyer; /* whose answer it will be */
    uint32_t sale;
    int32_t with_lock;
} order;

typedef enum topic {
    NEWS_SOLD,     /* a buyer has a piece; number = how many are left */
    NEWS_SOLD_OUT, /* a buyer has none, because none is left */
    NEWS_FAILED,   /* a buyer has none; number = the status of the lock, 0 = the sale is over */
    NEWS_LOST,     /* a hold was lost: its token, why */
    NEWS_REFUSED   /* a read or write was refused: its token, the newest token at the data */
} topic;

typedef struct news {
    int32_t topic;
    uint32_t buyer;
    int64_t number;
    uint64_t fence, newest;
    int32_t reason;
    int32_t writes; /* REFUSED: it was a write */
} news;

/* What shall happen to the buyer that is the next to write. */
enum { FAULT_NONE, FAULT_FREEZE, FAULT_KILL };

/* Memory that all processes share. A worker writes its place ten thousands of times a second, and
 * the front looks there ten times: messages would be too many. */
typedef struct place {
    int32_t holding; /* how many of its buyers say that they hold the lock */
    int32_t waiting; /* how many wait for it */
    uint32_t holds;  /* how many holds it had: each of them is a hand-over */
    uint32_t sold;
    uint64_t fence; /* of the newest hold */
} place;

struct board {
    int32_t fault;
    place places[WORKERS_MAX];
};

extern struct board *board;

/* The board is no lock: each number is good by itself. */
#define BOARD_SET(member, value) __atomic_store_n(&(member), (value), __ATOMIC_RELAXED)
#define BOARD_GET(member) __atomic_load_n(&(member), __ATOMIC_RELAXED)
#define BOARD_ADD(member, value) __atomic_fetch_add(&(member), (value), __ATOMIC_RELAXED)
#define BOARD_TAKE(member) __atomic_exchange_n(&(member), 0, __ATOMIC_RELAXED)

int64_t now_ms(void);

/* --- server.c --- */

bool server_start(void); /* sets RLOCK_DATA, and RLOCK_URL if it is not set; false: see stderr */
bool server_is_ours(void);
bool server_ended(int pid); /* true if that was the process of our server */
void server_stop(bool on);  /* false: it goes on */
bool server_is_stopped(void);
void server_end(void);

/* --- worker.c --- */

/* Runs in a process of its own, until the front ends it. Returns the exit status. */
int work(int number, int to_front);

/* --- crew.c --- */

bool crew_start(void);
void crew_end(void);
int crew_pick(int most); /* a worker with fewer than `most` orders, the fewest of all; -1 = none */
void crew_send(int worker, const order *what);
bool crew_kill_one(void);
uint64_t crew_holds(void); /* of all workers, also of those that were killed */
int crew_holder(void);     /* one that says that it holds the lock and is awake; -1 = none */
const char *crew_state(int worker);

/* --- sale.c --- */

extern struct sale {
    uint32_t number; /* 0 = none yet */
    bool with_lock;
    bool rush;                       /* it has buyers of its own */
    bool opening;                    /* its data is on the way to Redis */
    bool running;                    /* its buyers may come */
    bool closing;                    /* all have left; the data is asked for the last time */
    int begun, inside, done, failed; /* buyers of the rush */
    int lost, refused;
    int64_t left, sold; /* as the data said when it answered last */
} sale;

bool sale_open(bool rush, bool with_lock); /* false: there is no connection to Redis */
bool sale_is_busy(void);                   /* a buyer of a rush may still come */
bool sale_serve(struct evhttp_request *request, bool with_lock); /* one buyer; false: no worker */
void sale_hear(int worker, const news *said);
void sale_lost_worker(int worker); /* its buyers are gone */
const char *sale_server(void);     /* how Redis stands, in a word */
const char *sale_holder(void);     /* the description of one that holds the lock, or "" */
const char *sale_waiter(void);     /* of the first that waits in the queue of a fair lock */
void sale_tick(void);
void sale_end(void);

/* --- front.c --- */

bool front_start(void); /* false: the reason is on stderr */
void front_end(void);
void front_answer(struct evhttp_request *request, int code, const char *words);

/* Puts a line into the log of all pages. The text is the shop's own: it needs no escapes. */
void tell(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* SHOP_H */

/* SPDX-License-Identifier: MIT */
