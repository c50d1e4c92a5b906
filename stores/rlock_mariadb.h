/* rlock_mariadb.h - the store of rlock.h in MariaDB, by libmariadb 3.3 or newer
 * SPDX-License-Identifier: MIT
 *
 *     mariadb shop < stores/rlock_mariadb.sql                            once, by the operator
 *
 *     rlock_store *store;
 *     rlock_mariadb_new(&store, "mysql://me@db.example.com/shop", 0);
 *     config.store = store;                                              before rlock_client_new
 *     ...
 *     rlock_mariadb_free(store);                                         after the clients
 *
 * All kinds, several keys, fencing tokens and questions, with the promises of docs/guarantees.md. A
 * lease is a time by the server's clock, in a row; nothing depends on a session or a transaction.
 * Everything here is static inline: include it after rlock.h, link with -lmariadb. The server is
 * MariaDB 10.6 or newer. docs/mariadb.md says what differs on MySQL.
 *
 * One connection a client, by the library's calls that do not block. What one loop iteration
 * submits is one statement: it is committed once for all. The server sends no notifications:
 * waiters poll, every poll_ms at the latest. Names are resolved by the loop, and each address is
 * tried. A server that is read-only is left. There is no TLS: the library's handshake blocks.
 *
 * A key has at most 2,000 bytes. */

#ifndef RLOCK_MARIADB_H
#define RLOCK_MARIADB_H

#include <arpa/inet.h>
#include <mysql.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "rlock.h"

#if !defined(MARIADB_PACKAGE_VERSION_ID) || MARIADB_PACKAGE_VERSION_ID < 30300
#error "rlock_mariadb.h needs libmariadb 3.3: MySQL's own library does not have its calls"
#endif

RLOCK__C_CASTS_BEGIN

#define RLOCK__MY_ALONE 0    /* in rlock_request.store.own: its statement failed beside others */
#define RLOCK__MY_VERSION 1  /* of rlock_mariadb.sql: this one */
#define RLOCK__MY_REVISION 2 /* ... and this one or a later */
#define RLOCK__MY_OLD \
    "rlock_mariadb.sql in this database is older than this program: run the file again"
#define RLOCK__MY_KEY_MAX 2000u
#define RLOCK__MY_GROUP 64     /* most requests in one statement */
#define RLOCK__MY_ADDRESSES 16 /* of a name, that are tried */
#define RLOCK__MY_PORT 3306
#define RLOCK__MY_BACKOFF_MIN_MS 10
#define RLOCK__MY_BACKOFF_MAX_MS 1000
#define RLOCK__MY_HEARTBEAT 3 /* command timeouts of silence, then the server is asked */
#define RLOCK__MY_ASK_US 5000 /* between two questions for a session that has to end */
#define RLOCK__MY_UNWIND 100  /* most calls that end one of the library's: it needs two */
#define RLOCK__MY_OF(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

enum { RLOCK__MY_DOWN, RLOCK__MY_NAMES, RLOCK__MY_CONNECTS, RLOCK__MY_HANDSHAKE, RLOCK__MY_READY };

/* What the library does now. It is not entered before an answer begins to come. */
enum {
    RLOCK__MY_IDLE,
    RLOCK__MY_CONNECT,
    RLOCK__MY_SEND,
    RLOCK__MY_WAIT,
    RLOCK__MY_READ,
    RLOCK__MY_STORE
};

/* The handshake, a step at a time. */
enum {
    RLOCK__MY_STEP_SET,       /* no setting changes answers; no statement outlives its timeout */
    RLOCK__MY_STEP_KNOW,      /* are the functions there, and who is the server? */
    RLOCK__MY_STEP_ISOLATION, /* a function sees what was committed while it waited for a row */
    RLOCK__MY_STEP_KILL,      /* the session of the connection before */
    RLOCK__MY_STEP_GONE,      /* ... and whether it has ended */
    RLOCK__MY_STEPS
};

typedef struct rlock__my_group {              /* the requests of one statement */
    rlock_request *requests[RLOCK__MY_GROUP]; /* NULL: it was forgotten */
    unsigned count;
} rlock__my_group;

typedef struct rlock__my_url {
    char *text;                                             /* all of the others stand in it */
    const char *user, *password, *host, *database, *socket; /* socket: NULL = TCP */
    unsigned port;
} rlock__my_url;

typedef struct rlock__my { /* the store as one client sees it */
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_stats *stats;
    bool resolving, doubted; /* doubted: an answer is late: one more look at the socket */
    bool suspended;          /* the library has returned in the middle of what it does */
    bool heartbeat;          /* the statement that is out is nobody's */
    bool native;             /* it is MariaDB, not MySQL */
    uint8_t state, step, doing;
    MYSQL *conn;
    int fd;
    rlock_io io;
    rlock_timer timer;
    rlock_link urgent, renewals, acquires; /* submitted, and not sent; they go in this order */
    rlock__my_group group;
    unsigned most;    /* requests in the next group: fewer, if the last one took long */
    int64_t group_us; /* when it was sent */
    char *sql;        /* the statement, while it is sent */
    size_t len, room;
    bool no_memory;                                  /* for the statement */
    int64_t timeout_us, alive_us, ready_us, next_us; /* next: of the attempt to connect */
    int64_t backoff_ms, offer_ms;

    /* Who a session was: to end it before the next one sends anything. */
    uint32_t epoch, gone_epoch, open_epoch;
    unsigned long last_session;
    char last_start[128], start[128]; /* when which server began */
    int64_t killed_us;

    /* Where the server is. */
    rlock__my_url url;
    char *fresh, *used; /* credentials that were replaced: the user, its NUL, the password; for the
                           next attempt, and of this one; NULL = as in the URL */
    char addresses[RLOCK__MY_ADDRESSES][INET6_ADDRSTRLEN + 16];
    unsigned address_count, turn; /* turn: the first of an attempt, another one each time */
    unsigned tried;               /* how many an attempt has given up */
    int64_t until_us;             /* when an attempt is over */
    rlock_name name;
    char words[256], logged[256]; /* of an error; the last ones in the log */
    char said[256];               /* by a server that an attempt has given up */
    rlock_info info;              /* of the question being answered */
} rlock__my;

typedef struct rlock__my_store {
    rlock_store store; /* first: it is what the user sees */
    char url[1];       /* longer */
} rlock__my_store;

/* --- small things --- */

static inline void rlock__my_list_init(rlock_link *list) {
    list->prev = list->next = list;
}

static inline void rlock__my_list_remove(rlock_link *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    rlock__my_list_init(link);
}

/* Adds it before another one, or before the head: at the end. */
static inline void rlock__my_list_add(rlock_link *at, rlock_link *link) {
    link->prev = at->prev;
    link->next = at;
    link->prev->next = at->prev = link;
}

static inline bool rlock__my_queued(const rlock_request *request) {
    return request->terms && request->terms->kind != RLOCK_KIND_MUTEX;
}

static inline bool rlock__my_several(const rlock_request *request) {
    return request->terms && request->terms->count > 1;
}

static inline char rlock__my_sort(const rlock_request *request) {
    static const char sorts[] = "mfwws"; /* [rlock_kind] */
    return sorts[rlock__my_queued(request) ? request->terms->kind : RLOCK_KIND_MUTEX];
}

static inline const char *rlock__my_words(rlock__my *my, const char *text) {
    size_t n = 0;
    while (text && text[n] && text[n] != '\n' && n < sizeof my->words - 1) {
        my->words[n] = text[n];
        n++;
    }
    my->words[n] = 0;
    return my->words;
}

/* The fault that an error number means; docs/stores.md has the table. */
static inline rlock_fault rlock__my_fault(unsigned number) {
    static const struct {
        uint16_t number;
        uint8_t fault;
    } faults[] = {
        {1040, RLOCK_FAULT_DOWN},    {1203, RLOCK_FAULT_DOWN},    {1226, RLOCK_FAULT_DOWN},
        {1053, RLOCK_FAULT_UNKNOWN}, {1180, RLOCK_FAULT_UNKNOWN}, {1927, RLOCK_FAULT_UNKNOWN},
        {1021, RLOCK_FAULT_BUSY},    {1041, RLOCK_FAULT_BUSY},    {1114, RLOCK_FAULT_BUSY},
        {1205, RLOCK_FAULT_BUSY},    {1206, RLOCK_FAULT_BUSY},    {1213, RLOCK_FAULT_BUSY},
        {1290, RLOCK_FAULT_BUSY},    {1317, RLOCK_FAULT_BUSY},    {1792, RLOCK_FAULT_BUSY},
        {1836, RLOCK_FAULT_BUSY},    {1969, RLOCK_FAULT_BUSY},    {3024, RLOCK_FAULT_BUSY},
        {1044, RLOCK_FAULT_AUTH},    {1045, RLOCK_FAULT_AUTH},    {1049, RLOCK_FAULT_AUTH},
        {1129, RLOCK_FAULT_AUTH},    {1130, RLOCK_FAULT_AUTH},    {1142, RLOCK_FAULT_AUTH},
        {1143, RLOCK_FAULT_AUTH},    {1146, RLOCK_FAULT_AUTH},    {1227, RLOCK_FAULT_AUTH},
        {1305, RLOCK_FAULT_AUTH},    {1370, RLOCK_FAULT_AUTH},    {1449, RLOCK_FAULT_AUTH},
        {1630, RLOCK_FAULT_AUTH},    {1698, RLOCK_FAULT_AUTH},    {2059, RLOCK_FAULT_AUTH},
        {2061, RLOCK_FAULT_AUTH},    {4151, RLOCK_FAULT_AUTH},    {4166, RLOCK_FAULT_AUTH}};
    size_t i;
    for (i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        if (faults[i].number == number) {
            return (rlock_fault)faults[i].fault;
        }
    }
    return RLOCK_FAULT_OTHER;
}

static inline void rlock__my_answer(rlock__my *my, rlock_request *request, rlock_fault fault,
                                    const char *text, bool undone) {
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_FAULT;
    answer.fault = fault;
    answer.undone = undone;
    answer.text = text;
    my->events->answered(my->owner, request, &answer);
}

static inline void rlock__my_report(const rlock__my *my, bool connected, const char *text) {
    rlock_report report;
    memset(&report, 0, sizeof report);
    report.kind = connected ? RLOCK_REPORT_CONNECTED : RLOCK_REPORT_DISCONNECTED;
    report.link = "commands";
    report.span_us = !connected && my->state == RLOCK__MY_READY
                         ? rlock_client_now_us(my->client) - my->ready_us
                         : 0;
    report.where = my->url.socket ? my->url.socket : my->url.host;
    report.text = text;
    rlock_client_report(my->client, &report);
}

/* --- the end of a connection --- */

/* Goes on with what the library was doing. Returns what it waits for, 0 = nothing: it is done, and
 * *failed says how. */
static inline int rlock__my_resume(rlock__my *my, int ready, bool *failed, MYSQL_RES **result) {
    MYSQL *made = NULL;
    int status = 0, wait;
    my_bool bad = 0;
    switch (my->doing) {
    case RLOCK__MY_CONNECT:
        wait = mysql_real_connect_cont(&made, my->conn, ready);
        *failed = !made;
        return wait;
    case RLOCK__MY_SEND:
        wait = mysql_send_query_cont(&status, my->conn, ready);
        *failed = status != 0;
        return wait;
    case RLOCK__MY_READ:
        wait = mysql_read_query_result_cont(&bad, my->conn, ready);
        *failed = bad != 0;
        return wait;
    default:
        wait = mysql_store_result_cont(result, my->conn, ready);
        *failed = !*result;
        return wait;
    }
}

/* Closes what there is, without waiting. What the library was doing ends as if its time were up,
 * or its memory would be lost; its farewell goes where there is room for it. */
static inline void rlock__my_shut(rlock__my *my) {
    int calls, wait = 1;
    if (my->fd >= 0) {
        rlock_io_watch(my->client, &my->io, my->fd, 0);
        my->fd = -1;
    }
    if (my->conn && !rlock_client_forked(my->client)) {
        for (calls = 0; my->suspended && calls < RLOCK__MY_UNWIND; calls++) {
            MYSQL_RES *result = NULL;
            bool failed;
            my->suspended = rlock__my_resume(my, MYSQL_WAIT_TIMEOUT, &failed, &result) != 0;
            mysql_free_result(result);
        }
        wait = my->suspended ? 0 : mysql_close_start(my->conn);
        for (calls = 0; wait && calls < RLOCK__MY_UNWIND; calls++) {
            wait = mysql_close_cont(my->conn, MYSQL_WAIT_TIMEOUT);
        }
    }
    my->conn = NULL;
    my->suspended = my->doubted = my->heartbeat = false;
    my->doing = RLOCK__MY_IDLE;
}

static inline void rlock__my_connect(rlock__my *my);

/* Gives an address up that did not become ready, and tries the next one in what is left of the
 * attempt. False: there is none, or somebody has to act. */
static inline bool rlock__my_tries_next(rlock__my *my, rlock_fault fault) {
    unsigned error = my->conn ? mysql_errno(my->conn) : 0; /* 2000 and more: of the library */
    bool connects = my->state == RLOCK__MY_CONNECTS || my->state == RLOCK__MY_HANDSHAKE;
    if (connects && fault == RLOCK_FAULT_AUTH && my->fresh) { /* there are newer credentials */
        rlock__my_shut(my);
        rlock__my_connect(my);
        return true;
    }
    if (!connects || fault != RLOCK_FAULT_DOWN) {
        return false;
    }
    if (!my->said[0] && (my->state == RLOCK__MY_HANDSHAKE || (error > 0 && error < 2000))) {
        memcpy(my->said, my->words, sizeof my->said);
    }
    if (++my->tried >= my->address_count || rlock_client_now_us(my->client) >= my->until_us) {
        memcpy(my->words, my->said[0] ? my->said : my->words, sizeof my->words);
        return false;
    }
    rlock__my_shut(my);
    rlock__my_connect(my);
    return true;
}

/* A connection was lost, or an attempt to connect has failed. What was sent may have been done. */
static inline void rlock__my_fail(rlock__my *my, rlock_fault fault, const char *text) {
    bool was_ready = my->state == RLOCK__MY_READY;
    unsigned i;
    text = rlock__my_words(my, text);
    if (rlock__my_tries_next(my, fault)) {
        return;
    }
    if (was_ready || strcmp(my->logged, text) != 0) { /* each attempt has the same to say */
        memcpy(my->logged, my->words, sizeof my->logged);
        rlock_client_log(my->client, RLOCK_LOG_WARNING, "connection to MariaDB", text);
    }
    rlock__my_report(my, false, text);
    if (was_ready) {
        my->last_session =
            my->conn && !rlock_client_forked(my->client) ? mysql_thread_id(my->conn) : 0;
        memcpy(my->last_start, my->start, sizeof my->start);
    }
    rlock__my_shut(my);
    my->state = RLOCK__MY_DOWN;
    my->turn += was_ready ? my->tried + 1 : 1;
    my->backoff_ms = my->backoff_ms * 2 < RLOCK__MY_BACKOFF_MAX_MS ? my->backoff_ms * 2
                                                                   : RLOCK__MY_BACKOFF_MAX_MS;
    if (my->backoff_ms < RLOCK__MY_BACKOFF_MIN_MS || was_ready) {
        my->backoff_ms = RLOCK__MY_BACKOFF_MIN_MS;
    }
    my->next_us = rlock_client_now_us(my->client) +
                  (int64_t)(rlock_client_random(my->client) % (uint64_t)(my->backoff_ms * 1000)) +
                  my->backoff_ms * 500;
    rlock_timer_set(my->client, &my->timer, my->next_us);
    for (i = 0; i < my->group.count; i++) {
        rlock_request *request = my->group.requests[i];
        my->group.requests[i] = NULL;
        if (request) {
            rlock__my_answer(my, request, RLOCK_FAULT_UNKNOWN, my->words, false);
        }
    }
    my->group.count = 0;
    my->events->down(my->owner, NULL, fault, my->words);
}

/* --- where the server is --- */

static inline void rlock__my_add_address(rlock__my *my, const struct sockaddr *address) {
    char *text = my->addresses[my->address_count];
    if (my->address_count == RLOCK__MY_ADDRESSES) {
        return;
    }
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &v4->sin_addr, text, INET6_ADDRSTRLEN);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, text, INET6_ADDRSTRLEN);
        if (v6->sin6_scope_id) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof my->addresses[0] - n, "%%%u", (unsigned)v6->sin6_scope_id);
        }
    } else {
        return;
    }
    my->address_count++;
}

static inline void rlock__my_on_name(rlock_name *name, const struct sockaddr *const *addresses,
                                     unsigned count) {
    rlock__my *my = RLOCK__MY_OF(name, rlock__my, name);
    unsigned i;
    my->resolving = false;
    if (my->state != RLOCK__MY_NAMES) {
        return; /* it came too late for that attempt */
    }
    for (i = 0; i < count; i++) {
        rlock__my_add_address(my, addresses[i]);
    }
    if (!my->address_count) {
        rlock__my_fail(my, RLOCK_FAULT_DOWN, "the name is not resolved");
    } else {
        rlock__my_connect(my);
    }
}

static inline void rlock__my_open_next(rlock__my *my) {
    unsigned char bytes[sizeof(struct in6_addr)];
    const char *host = my->url.host;
    my->state = RLOCK__MY_NAMES;
    my->address_count = my->tried = 0;
    my->said[0] = 0;
    my->until_us = rlock_client_now_us(my->client) + my->timeout_us;
    rlock_timer_set(my->client, &my->timer, my->until_us);
    if (my->url.socket || inet_pton(AF_INET, host, bytes) == 1 ||
        inet_pton(AF_INET6, host, bytes) == 1) {
        snprintf(my->addresses[0], sizeof my->addresses[0], "%s", my->url.socket ? "" : host);
        my->address_count = 1;
        rlock__my_connect(my);
    } else if (!my->resolving) { /* else one of an attempt before has not been answered */
        my->resolving = rlock_name_resolve(my->client, &my->name, host) == 0;
        if (!my->resolving) {
            rlock__my_fail(my, RLOCK_FAULT_DOWN, "the name is not resolved");
        }
    }
}

/* --- connecting, sending, and what comes --- */

static inline void rlock__my_handshake(rlock__my *my);
static inline void rlock__my_handshake_over(rlock__my *my, unsigned error, MYSQL_RES *result);
static inline void rlock__my_settle(rlock__my *my, unsigned error, MYSQL_RES *result);

/* Watches what the library waits for, or what the server may say. */
static inline bool rlock__my_watch(rlock__my *my, int wait) {
    unsigned events = wait & MYSQL_WAIT_WRITE ? RLOCK_IO_WRITE : 0;
    int fd = mysql_get_socket(my->conn);
    if (wait & (MYSQL_WAIT_READ | MYSQL_WAIT_EXCEPT)) {
        events |= RLOCK_IO_READ;
    }
    my->fd = fd; /* also where it cannot be watched: then it is watched no more */
    if (fd < 0 || rlock_io_watch(my->client, &my->io, fd, events) != 0) {
        rlock__my_fail(my, RLOCK_FAULT_DOWN, "the loop cannot watch the connection");
        return false;
    }
    return true;
}

/* A connection that was refused: nothing was sent. */
static inline void rlock__my_refused(rlock__my *my) {
    rlock_fault fault = rlock__my_fault(mysql_errno(my->conn));
    rlock__my_fail(my, fault == RLOCK_FAULT_AUTH ? fault : RLOCK_FAULT_DOWN, mysql_error(my->conn));
}

static inline MYSQL *rlock__my_make(void) {
    static const char methods[] =
        "mysql_native_password,client_ed25519,caching_sha2_password,sha256_password,parsec";
    static const my_bool no = 0;
    static const unsigned none = 0;
    MYSQL *conn = mysql_init(NULL);
    bool bad = conn && (mysql_options(conn, MYSQL_OPT_NONBLOCK, NULL) ||
                        mysql_options(conn, MYSQL_OPT_LOCAL_INFILE, &none) ||
                        mysql_options(conn, MYSQL_OPT_SSL_ENFORCE, &no) ||
                        mysql_options(conn, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &no) ||
                        mysql_options(conn, MYSQL_OPT_RECONNECT, &no) ||
                        mysql_options(conn, MYSQL_SET_CHARSET_NAME, "utf8mb4") ||
                        /* others would read from the terminal, or ask for a ticket */
                        mysql_options(conn, MARIADB_OPT_RESTRICTED_AUTH, methods));
    if (bad) {
        mysql_close(conn); /* it has no socket yet */
        conn = NULL;
    }
    return conn;
}

static inline void rlock__my_connected(rlock__my *my) {
    my->doing = RLOCK__MY_IDLE;
    my->state = RLOCK__MY_HANDSHAKE;
    my->step = 0;
    my->native = mariadb_connection(my->conn) != 0;
    if (rlock__my_watch(my, MYSQL_WAIT_READ)) {
        rlock__my_handshake(my);
    }
}

/* Uses the newest credentials. There is no connection that may read the former ones. */
static inline void rlock__my_renew(rlock__my *my) {
    if (my->fresh) {
        free(my->used);
        my->used = my->fresh;
        my->fresh = NULL;
        my->url.user = my->used;
        my->url.password = my->used + strlen(my->used) + 1;
    }
}

/* Starts to connect to the next address. Each has its share of the time that is left. */
static inline void rlock__my_connect(rlock__my *my) {
    const rlock__my_url *url = &my->url;
    int64_t now_us = rlock_client_now_us(my->client);
    const char *address = my->addresses[(my->turn + my->tried) % my->address_count];
    MYSQL *made = NULL;
    int wait;
    rlock__my_renew(my);
    my->conn = rlock__my_make();
    if (!my->conn) {
        rlock__my_fail(my, RLOCK_FAULT_NOMEM, "out of memory while connecting");
        return;
    }
    my->state = RLOCK__MY_CONNECTS;
    my->doing = RLOCK__MY_CONNECT;
    rlock_timer_set(my->client, &my->timer,
                    now_us + (my->until_us - now_us) / (my->address_count - my->tried));
    wait = mysql_real_connect_start(&made, my->conn, url->socket ? NULL : address, url->user,
                                    url->password, url->database, url->port, url->socket, 0);
    my->suspended = wait != 0;
    if (wait) {
        rlock__my_watch(my, wait);
    } else if (!made) {
        rlock__my_refused(my);
    } else {
        rlock__my_connected(my);
    }
}

/* What was out is answered: with rows or without, or with an error. */
static inline void rlock__my_done(rlock__my *my, bool failed, MYSQL_RES *result) {
    unsigned error = failed ? mysql_errno(my->conn) : 0;
    bool lost = failed && (!error || (error >= 2000 && error < 3000) ||
                           rlock__my_fault(error) == RLOCK_FAULT_UNKNOWN);
    bool idle = my->doing == RLOCK__MY_IDLE;
    my->doing = RLOCK__MY_IDLE;
    if (lost || idle) { /* what the server says unasked is why it ends the session */
        rlock__my_fail(my, RLOCK_FAULT_DOWN,
                       failed ? mysql_error(my->conn) : "unexpected message from the server");
    } else if (rlock__my_watch(my, MYSQL_WAIT_READ)) {
        rlock_timer_set(my->client, &my->timer,
                        my->alive_us + my->timeout_us * RLOCK__MY_HEARTBEAT);
        if (my->state == RLOCK__MY_HANDSHAKE) {
            rlock__my_handshake_over(my, error, result);
        } else if (my->heartbeat) {
            my->heartbeat = false;
        } else {
            rlock__my_settle(my, error, result);
        }
    }
    mysql_free_result(result);
}

/* One step of what the library does is over: what follows it? */
static inline void rlock__my_next(rlock__my *my, bool failed, MYSQL_RES *result) {
    my_bool bad = 0;
    int wait = 0;
    my->suspended = false;
    switch (my->doing) {
    case RLOCK__MY_CONNECT:
        if (failed) {
            rlock__my_refused(my);
        } else {
            rlock__my_connected(my);
        }
        return;
    case RLOCK__MY_SEND:
        if (failed) {
            rlock__my_fail(my, RLOCK_FAULT_DOWN, mysql_error(my->conn));
        } else {
            my->doing = RLOCK__MY_WAIT;
            rlock__my_watch(my, MYSQL_WAIT_READ);
        }
        return;
    case RLOCK__MY_WAIT:
        my->doing = RLOCK__MY_READ;
        wait = mysql_read_query_result_start(&bad, my->conn);
        failed = bad != 0;
        break;
    case RLOCK__MY_READ:
        if (!failed && mysql_field_count(my->conn)) {
            my->doing = RLOCK__MY_STORE;
            wait = mysql_store_result_start(&result, my->conn);
            failed = !result;
            break;
        }
        rlock__my_done(my, failed, NULL);
        return;
    default: rlock__my_done(my, failed, result); return;
    }
    my->suspended = wait != 0;
    if (wait) {
        rlock__my_watch(my, wait);
    } else {
        rlock__my_next(my, failed, result);
    }
}

static inline void rlock__my_on_io(rlock_io *io, unsigned events) {
    rlock__my *my = RLOCK__MY_OF(io, rlock__my, io);
    int ready = (events & RLOCK_IO_READ ? MYSQL_WAIT_READ : 0) |
                (events & RLOCK_IO_WRITE ? MYSQL_WAIT_WRITE : 0);
    MYSQL_RES *result = NULL;
    bool failed = false;
    my->alive_us = rlock_client_now_us(my->client);
    my->doubted = false;
    if (!my->conn) {
        return;
    }
    if (my->suspended) {
        int wait = rlock__my_resume(my, ready, &failed, &result);
        if (wait) {
            rlock__my_watch(my, wait);
            return;
        }
    } else if (my->doing == RLOCK__MY_IDLE) {
        my_bool bad = 0;
        int wait = mysql_read_query_result_start(&bad, my->conn);
        my->suspended = wait != 0;
        if (!wait) {
            rlock__my_done(my, bad != 0, NULL);
        } else { /* the rest of these words does not matter */
            my->doing = RLOCK__MY_READ;
            rlock__my_fail(my, RLOCK_FAULT_DOWN, "the server ended the session");
        }
        return;
    }
    rlock__my_next(my, failed, result);
}

/* Sends the statement that was written. */
static inline void rlock__my_send(rlock__my *my) {
    int status = 0, wait;
    if (my->no_memory) {
        rlock__my_fail(my, RLOCK_FAULT_NOMEM, "out of memory for a statement");
        return;
    }
    my->stats->commands++;
    my->doing = RLOCK__MY_SEND;
    my->alive_us = rlock_client_now_us(my->client);
    rlock_timer_set(my->client, &my->timer, my->alive_us + my->timeout_us);
    wait = mysql_send_query_start(&status, my->conn, my->sql, (unsigned long)my->len);
    my->suspended = wait != 0;
    if (wait) {
        rlock__my_watch(my, wait);
    } else {
        rlock__my_next(my, status != 0, NULL);
    }
}

/* --- what is sent --- */

/* Makes room in the statement for so many bytes more; false: no memory. */
static inline bool rlock__my_grow(rlock__my *my, size_t more) {
    if (my->len + more > my->room) {
        size_t room = 2 * (my->len + more) > 4096 ? 2 * (my->len + more) : 4096;
        char *sql = (char *)malloc(room);
        if (!sql) {
            my->no_memory = true;
            return false;
        }
        if (my->len) {
            memcpy(sql, my->sql, my->len);
        }
        free(my->sql);
        my->sql = sql;
        my->room = room;
    }
    return true;
}

static inline void rlock__my_begin(rlock__my *my) {
    my->len = 0;
    my->no_memory = false;
}

static inline void rlock__my_put(rlock__my *my, const char *bytes, size_t n) {
    if (rlock__my_grow(my, n)) {
        memcpy(my->sql + my->len, bytes, n);
        my->len += n;
    }
}

static inline void rlock__my_text(rlock__my *my, const char *text) {
    rlock__my_put(my, text, strlen(text));
}

/* A number, with the character that comes before it. */
static inline void rlock__my_digits(rlock__my *my, char before, uint64_t number) {
    char text[24];
    size_t at = sizeof text;
    do {
        text[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    text[--at] = before;
    rlock__my_put(my, text + at, sizeof text - at);
}

static inline void rlock__my_number(rlock__my *my, int64_t number) {
    rlock__my_digits(my, ',', (uint64_t)number);
}

static inline void rlock__my_hex(rlock__my *my, const char *bytes, size_t n) {
    static const char digits[] = "0123456789abcdef";
    size_t i;
    if (rlock__my_grow(my, 2 * n)) {
        for (i = 0; i < n; i++) {
            unsigned char byte = (unsigned char)bytes[i];
            my->sql[my->len++] = digits[byte >> 4];
            my->sql[my->len++] = digits[byte & 15];
        }
    }
}

/* `id`: of the client whose token it is; NULL = this one. */
static inline void rlock__my_token(rlock__my *my, const char *id, uint64_t token) {
    rlock__my_text(my, ",'");
    if (token) {
        rlock__my_text(my, id ? id : rlock_client_id(my->client));
        rlock__my_digits(my, ':', token);
    }
    rlock__my_text(my, "'");
}

/* All sessions lock rows in one order, or they could wait for each other. */
static inline int rlock__my_order(const char *one, size_t one_len, const char *other,
                                  size_t other_len) {
    int order = memcmp(one, other, one_len < other_len ? one_len : other_len);
    return order ? order : (one_len > other_len) - (one_len < other_len);
}

/* Several keys, each with its length before it, in their order. */
static inline void rlock__my_names(rlock__my *my, const rlock_request *request) {
    const rlock_terms *terms = request->terms;
    const char *keys[RLOCK_KEYS_MAX], *key = request->key;
    uint32_t lens[RLOCK_KEYS_MAX], i;
    for (i = 0; i < terms->count && i < RLOCK_KEYS_MAX; i++) {
        uint32_t at = i;
        for (; at > 0 && rlock__my_order(key, terms->lens[i], keys[at - 1], lens[at - 1]) < 0;
             at--) {
            keys[at] = keys[at - 1];
            lens[at] = lens[at - 1];
        }
        keys[at] = key;
        lens[at] = terms->lens[i];
        key += terms->lens[i] + 1;
    }
    for (i = 0; i < terms->count && i < RLOCK_KEYS_MAX; i++) {
        char len[2];
        len[0] = (char)(lens[i] >> 8);
        len[1] = (char)(lens[i] & 255);
        rlock__my_hex(my, len, sizeof len);
        rlock__my_hex(my, keys[i], lens[i]);
    }
}

/* Writes a request as the call of a function. */
static inline void rlock__my_call(rlock__my *my, const rlock_request *request) {
    static const char *const names[] = {"acquire", "extend", "release",
                                        "inspect", "force",  "set_permits"};
    static const char *const several[] = {"several('a',", "several('r',", "several('d',"};
    bool queued = rlock__my_queued(request), many = rlock__my_several(request);
    uint8_t op = request->op;
    rlock__my_text(my, "rlock_");
    if (many && op <= RLOCK_OP_RELEASE) {
        rlock__my_text(my, several[op]);
        rlock__my_text(my, "x'");
        rlock__my_names(my, request);
    } else {
        rlock__my_text(my, names[op]);
        rlock__my_text(my, queued && op <= RLOCK_OP_RELEASE ? "_queued(x'" : "(x'");
        rlock__my_hex(my, request->key, request->key_len);
    }
    rlock__my_text(my, "'");
    if (op < RLOCK_OP_FORCE) {
        rlock__my_token(my, request->id, request->token);
    }
    if (op == RLOCK_OP_ACQUIRE || op == RLOCK_OP_RENEW || (many && op == RLOCK_OP_RELEASE)) {
        rlock__my_number(my, request->lease_ms);
    }
    if (op == RLOCK_OP_RENEW) {
        rlock__my_number(my, request->longest_ms);
    } else if (op == RLOCK_OP_ACQUIRE || (many && op == RLOCK_OP_RELEASE)) {
        rlock__my_number(my, request->fences);
    }
    if (queued && op == RLOCK_OP_ACQUIRE) {
        rlock__my_number(my, (request->flags & RLOCK_REQUEST_ONCE) != 0);
    }
    if (queued || op >= RLOCK_OP_INSPECT) {
        char sort[] = ",'?'";
        sort[2] = rlock__my_sort(request);
        rlock__my_text(my, sort);
        rlock__my_number(my, queued ? request->terms->permits : 1);
    }
    if (queued && op < RLOCK_OP_INSPECT) {
        rlock__my_number(my, request->terms->weight);
    }
    if (queued && op == RLOCK_OP_ACQUIRE) {
        rlock__my_token(my, NULL, request->writer);
    }
    if (op == RLOCK_OP_SET_PERMITS) {
        rlock__my_number(my, request->permits);
    }
    if (op >= RLOCK_OP_FORCE || (queued && (op == RLOCK_OP_ACQUIRE || op == RLOCK_OP_RELEASE))) {
        rlock__my_number(my, my->offer_ms);
    }
    rlock__my_text(my, ")");
}

/* A crowd that wants keys can wait, a hold that is renewed cannot. */
static inline rlock_link *rlock__my_next_list(rlock__my *my) {
    return my->urgent.next != &my->urgent       ? &my->urgent
           : my->renewals.next != &my->renewals ? &my->renewals
                                                : &my->acquires;
}

/* Takes the requests of the next statement. One with several keys has its own, and so has each of a
 * statement that has failed: who caused it is not known. */
static inline void rlock__my_gather(rlock__my *my) {
    rlock__my_group *group = &my->group;
    while (group->count < my->most) {
        rlock_link *list = rlock__my_next_list(my);
        rlock_request *request = RLOCK__MY_OF(list->next, rlock_request, store.link);
        bool alone = list->next != list &&
                     (rlock__my_several(request) || request->store.own[RLOCK__MY_ALONE]);
        unsigned at = group->count;
        if (list->next == list || (alone && group->count)) {
            break;
        }
        rlock__my_list_remove(&request->store.link);
        while (at > 0 &&
               rlock__my_order(request->key, request->key_len, group->requests[at - 1]->key,
                               group->requests[at - 1]->key_len) < 0) {
            group->requests[at] = group->requests[at - 1];
            at--;
        }
        group->requests[at] = request;
        group->count++;
        if (alone) {
            break;
        }
    }
}

/* True where nothing that was sent on that connection can be executed any more. */
static inline bool rlock__my_gone(const rlock__my *my, uint32_t epoch) {
    return epoch > my->open_epoch && epoch <= my->gone_epoch;
}

static inline void rlock__my_send_group(rlock__my *my) {
    rlock__my_group *group = &my->group;
    int64_t sent_us = rlock_client_clock_us(my->client);
    unsigned i;
    my->group_us = sent_us;
    my->stats->commands += group->count - 1; /* the statement is counted where it leaves */
    rlock__my_begin(my);
    for (i = 0; i < group->count; i++) {
        rlock_request *request = group->requests[i];
        uint32_t note = request->store.note;
        request->sent_us = sent_us;
        request->store.data = &group->requests[i];
        request->store.stage = 1;
        request->store.note = !note || rlock__my_gone(my, note) ? my->epoch : note;
        rlock__my_text(my, i ? "," : "SELECT ");
        rlock__my_call(my, request);
        rlock__my_text(my, " r"); /* else all of the call comes back, as the column's name */
    }
    rlock__my_send(my);
}

/* --- what is answered --- */

/* Reads the numbers at the beginning of a column. Returns what follows the last one. */
static inline const char *rlock__my_numbers(const char *text, int64_t *numbers, int most) {
    char *end;
    int i;
    for (i = 0; i < most; i++) {
        numbers[i] = strtoll(text, &end, 10);
        text = *end == ' ' ? end + 1 : end;
    }
    return text;
}

static inline void rlock__my_told(rlock__my *my, const char *text, rlock_answer *answer) {
    rlock_info *info = &my->info;
    int64_t numbers[6] = {0, 0, 0, 0, 0, 0};
    memset(info, 0, sizeof *info);
    text = rlock__my_numbers(text, numbers, 6);
    info->holders = numbers[1];
    info->left_ms = numbers[2];
    info->waiters = numbers[3];
    info->permits = numbers[4];
    info->position = numbers[5];
    info->token = *text ? text : NULL;
    info->token_len = strlen(text);
    answer->info = info;
}

/* Answers a request with what its function returned. */
static inline void rlock__my_answer_text(rlock__my *my, rlock_request *request, const char *text) {
    int64_t numbers[4] = {-1, -1, 0, 0};
    rlock_answer answer;
    if (text) {
        rlock__my_numbers(text, numbers, 1);
    }
    if (!text || numbers[0] < 0 || numbers[0] > 4) {
        rlock__my_answer(my, request, RLOCK_FAULT_OTHER, "unexpected row", false);
        return;
    }
    memset(&answer, 0, sizeof answer);
    answer.settled = request->store.note == my->epoch || rlock__my_gone(my, request->store.note);
    answer.outcome = numbers[0] == 4 ? RLOCK_OUTCOME_FAULT : (rlock_outcome)numbers[0];
    answer.fault = RLOCK_FAULT_TYPE;
    if (numbers[0] == 4) {
        answer.text = "the key is in use as another kind of lock";
    } else if (request->op >= RLOCK_OP_INSPECT) {
        rlock__my_told(my, text, &answer);
    } else if (request->op == RLOCK_OP_ACQUIRE) {
        rlock__my_numbers(text, numbers, 4);
        answer.left_ms = numbers[1];
        answer.fence = request->fences ? (uint64_t)numbers[2] : 0;
        answer.ours = rlock__my_queued(request) && numbers[3] == 1;
    }
    if (answer.settled && answer.outcome != RLOCK_OUTCOME_FAULT) {
        request->store.note = 0; /* this attempt is over */
    }
    if (request->op == RLOCK_OP_FORCE && answer.outcome == RLOCK_OUTCOME_DONE) {
        my->events->woken(my->owner, request->key, request->key_len); /* our own change */
    }
    my->events->answered(my->owner, request, &answer);
}

/* A statement that failed has done nothing: each of its requests is sent once more, alone, before
 * all that waits. */
static inline void rlock__my_undone(rlock__my *my, unsigned error) {
    rlock__my_group *group = &my->group;
    const char *text = rlock__my_words(my, mysql_error(my->conn));
    bool moved = error == 1290 || error == 1792 || error == 1836;
    unsigned i = group->count;
    if (group->count == 1) {
        rlock_request *request = group->requests[0];
        rlock_fault fault = rlock__my_fault(error);
        group->count = 0;
        if (request) {
            rlock__my_answer(my, request, fault, text, true);
        }
    } else {
        while (i-- > 0) {
            rlock_request *request = group->requests[i];
            group->requests[i] = NULL;
            if (request) {
                request->store.stage = 0;
                request->store.own[RLOCK__MY_ALONE] = true;
                rlock__my_list_add(my->urgent.next, &request->store.link);
            }
        }
        group->count = 0;
    }
    if (moved) { /* it is read-only: the primary is another */
        rlock__my_fail(my, RLOCK_FAULT_DOWN, "the server is read-only");
    }
}

/* Where many wait for one key each request takes the server long. What cannot wait, as a renewal,
 * then stands behind a group that is short. */
static inline void rlock__my_pace(rlock__my *my) {
    int64_t took_us = rlock_client_now_us(my->client) - my->group_us;
    if (took_us > my->timeout_us / 8) {
        my->most = my->most > 1 ? my->most / 2 : 1;
    } else if (took_us < my->timeout_us / 32 && my->most < RLOCK__MY_GROUP) {
        my->most *= 2;
    }
}

static inline void rlock__my_settle(rlock__my *my, unsigned error, MYSQL_RES *result) {
    rlock__my_group *group = &my->group;
    MYSQL_ROW row;
    unsigned i, columns;
    rlock__my_pace(my);
    if (error) {
        rlock__my_undone(my, error);
        return;
    }
    row = result ? mysql_fetch_row(result) : NULL;
    columns = row ? mysql_num_fields(result) : 0;
    for (i = 0; i < group->count; i++) {
        rlock_request *request = group->requests[i];
        group->requests[i] = NULL;
        if (request) {
            rlock__my_answer_text(my, request, i < columns ? row[i] : NULL);
        }
    }
    group->count = 0;
}

/* --- the handshake --- */

static inline void rlock__my_ready(rlock__my *my) {
    my->state = RLOCK__MY_READY;
    my->backoff_ms = 0;
    my->stats->connects++;
    my->ready_us = rlock_client_now_us(my->client);
    rlock__my_report(my, true, NULL);
    my->events->up(my->owner, NULL);
}

/* Sends what the next step says. */
static inline void rlock__my_handshake(rlock__my *my) {
    char text[256] = "";
    bool ends = my->last_session && my->start[0] && strcmp(my->last_start, my->start) == 0;
    if (my->step == RLOCK__MY_STEP_KILL && !ends) {
        my->open_epoch = my->epoch - 1; /* another server, or none that it knows */
        my->step = RLOCK__MY_STEPS;
    }
    switch (my->step) {
    case RLOCK__MY_STEP_KNOW:
        my->epoch++;
        snprintf(text, sizeof text,
                 "SELECT rlock_version(),@@global.read_only,(SELECT CONCAT_WS(' ',"
                 "UNIX_TIMESTAMP()-variable_value,@@server_id,@@port,@@hostname) "
                 "FROM %s.global_status WHERE variable_name='Uptime'),rlock_revision()",
                 my->native ? "information_schema" : "performance_schema");
        break;
    case RLOCK__MY_STEP_ISOLATION:
        snprintf(text, sizeof text,
                 "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE");
        break;
    case RLOCK__MY_STEP_SET: {
        long long ms = my->timeout_us / 2000 + 1;
        snprintf(text, sizeof text,
                 "SET autocommit=1,sql_mode='',sql_select_limit=DEFAULT,"
                 "innodb_lock_wait_timeout=%lld",
                 ms / 1000 + 1);
        if (my->native) {
            snprintf(text + strlen(text), sizeof text - strlen(text),
                     ",max_statement_time=%lld.%03lld", ms / 1000, ms % 1000);
        }
        break;
    }
    case RLOCK__MY_STEP_KILL:
        my->killed_us = rlock_client_now_us(my->client);
        snprintf(text, sizeof text, "KILL CONNECTION %lu", my->last_session);
        break;
    case RLOCK__MY_STEP_GONE:
        snprintf(text, sizeof text,
                 "SELECT COUNT(*) FROM information_schema.processlist WHERE id=%lu",
                 my->last_session);
        break;
    default: rlock__my_ready(my); return;
    }
    rlock__my_begin(my);
    rlock__my_text(my, text);
    rlock__my_send(my);
}

/* What the server says of itself. Returns what is wrong with it, or NULL. */
static inline const char *rlock__my_known(rlock__my *my, MYSQL_ROW row, rlock_fault *fault) {
    *fault = RLOCK_FAULT_AUTH;
    if (!row || !row[0]) {
        return "the server does not report the version of its rlock_mariadb.sql";
    }
    if (atoi(row[0]) != RLOCK__MY_VERSION) {
        return "rlock_mariadb.sql in this database has another version than this program";
    }
    if (!row[3] || atoi(row[3]) < RLOCK__MY_REVISION) {
        return RLOCK__MY_OLD;
    }
    *fault = RLOCK_FAULT_DOWN;
    if (row[1] && strcmp(row[1], "0") != 0 && strcmp(row[1], "OFF") != 0) { /* words since 12 */
        return "the server is read-only";
    }
    snprintf(my->start, sizeof my->start, "%s", row[2] ? row[2] : "");
    return NULL;
}

/* What the server said to a step. */
static inline void rlock__my_handshake_over(rlock__my *my, unsigned error, MYSQL_RES *result) {
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;
    const char *wrong = NULL;
    rlock_fault fault = RLOCK_FAULT_DOWN;
    if (my->step >= RLOCK__MY_STEP_KILL && error) { /* 1094: it is gone; else it may go on */
        *(error == 1094 ? &my->gone_epoch : &my->open_epoch) = my->epoch - 1;
        my->step = RLOCK__MY_STEPS;
        rlock__my_handshake(my);
        return;
    }
    if (error) {
        fault = rlock__my_fault(error) == RLOCK_FAULT_AUTH ? RLOCK_FAULT_AUTH : RLOCK_FAULT_DOWN;
        wrong = error != 1305 ? mysql_error(my->conn)
                : strstr(mysql_error(my->conn), "rlock_revision")
                    ? RLOCK__MY_OLD
                    : "rlock_mariadb.sql is not installed in this database";
    } else if (my->step == RLOCK__MY_STEP_KNOW) {
        wrong = rlock__my_known(my, row, &fault);
    }
    if (wrong) {
        rlock__my_fail(my, fault, wrong);
        return;
    }
    if (my->step == RLOCK__MY_STEP_GONE) {
        int64_t now_us = rlock_client_now_us(my->client);
        if (row && row[0] && atoi(row[0]) == 0) {
            my->gone_epoch = my->epoch - 1;
        } else if (now_us < my->killed_us + my->timeout_us / 2) {
            rlock_timer_set(my->client, &my->timer, now_us + RLOCK__MY_ASK_US);
            return; /* and asked again */
        } else {
            my->open_epoch = my->epoch - 1;
        }
    }
    my->step++;
    rlock__my_handshake(my);
}

/* --- the store --- */

static inline void rlock__my_fire(rlock_timer *timer) {
    rlock__my *my = RLOCK__MY_OF(timer, rlock__my, timer);
    int64_t now_us = rlock_client_now_us(my->client);
    if (my->state == RLOCK__MY_DOWN) {
        rlock__my_open_next(my);
    } else if (my->state < RLOCK__MY_HANDSHAKE) {
        rlock__my_fail(my, RLOCK_FAULT_DOWN,
                       my->state == RLOCK__MY_NAMES ? "the name is not resolved"
                                                    : "no answer while connecting");
    } else if (my->doing != RLOCK__MY_IDLE && my->alive_us + my->timeout_us <= now_us) {
        if (!my->doubted) { /* we may have slept: first a look at the socket, in the next turn */
            my->doubted = true;
            rlock_timer_set(my->client, timer, now_us + 10000);
        } else {
            rlock__my_fail(my, RLOCK_FAULT_DOWN, "the server does not answer");
        }
    } else if (my->doing != RLOCK__MY_IDLE) {
        rlock_timer_set(my->client, timer, my->alive_us + my->timeout_us);
    } else if (my->state == RLOCK__MY_HANDSHAKE) {
        rlock__my_handshake(my);
    } else {
        my->heartbeat = true;
        rlock__my_begin(my);
        rlock__my_text(my, "DO 0");
        rlock__my_send(my);
    }
}

static inline void rlock__my_submit(void *state, rlock_request *request) {
    rlock__my *my = (rlock__my *)state;
    rlock_link *at = &my->urgent;
    bool urgent =
        request->op >= RLOCK_OP_RELEASE || request->due_us <= rlock_client_now_us(my->client);
    request->store.stage = 0;
    request->store.own[RLOCK__MY_ALONE] = false;
    request->sent_us = rlock_client_now_us(my->client);
    if (!urgent) {
        rlock_link *list = request->op == RLOCK_OP_RENEW ? &my->renewals : &my->acquires;
        at = list;
        while (at->prev != list &&
               RLOCK__MY_OF(at->prev, rlock_request, store.link)->due_us > request->due_us) {
            at = at->prev;
        }
    }
    rlock__my_list_add(at, &request->store.link);
    if (my->state == RLOCK__MY_DOWN) {
        rlock_timer_set(my->client, &my->timer, my->next_us);
    }
}

static inline bool rlock__my_forget(void *state, rlock_request *request) {
    (void)state;
    if (request->store.stage == 0) {
        rlock__my_list_remove(&request->store.link);
        return false;
    }
    *(rlock_request **)request->store.data = NULL;
    return true;
}

/* Nothing is pushed: who waits polls. */
static inline void rlock__my_track(void *state, const char *key, size_t len, bool on) {
    (void)state, (void)key, (void)len, (void)on;
}

static inline void rlock__my_flush(void *state) {
    rlock__my *my = (rlock__my *)state;
    if (my->state == RLOCK__MY_READY && my->doing == RLOCK__MY_IDLE) {
        rlock__my_gather(my);
        if (my->group.count) {
            rlock__my_send_group(my);
        }
    }
}

static inline const char *rlock__my_refuses(void *state, const char *key, size_t len,
                                            const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)terms, (void)fencing;
    return len > RLOCK__MY_KEY_MAX ? "in MariaDB a key has at most 2,000 bytes" : NULL;
}

/* The releases of all holds are sent, if the socket takes them: as one statement, because the
 * server reads no further where it cannot deliver an answer. */
static inline void rlock__my_farewell(rlock__my *my) {
    const rlock_link *at;
    int status = 0, count = 0;
    rlock__my_begin(my);
    for (at = my->urgent.next; at != &my->urgent; at = at->next) {
        const rlock_request *request = RLOCK__MY_OF(at, rlock_request, store.link);
        if (request->op == RLOCK_OP_RELEASE || request->op == RLOCK_OP_RENEW) { /* of what stays */
            rlock__my_text(my, count++ ? "," : "DO ");
            rlock__my_call(my, request);
        }
    }
    if (count && !my->no_memory) {
        my->doing = RLOCK__MY_SEND;
        my->suspended =
            mysql_send_query_start(&status, my->conn, my->sql, (unsigned long)my->len) != 0;
    }
}

static inline void rlock__my_close(void *state) {
    rlock__my *my = (rlock__my *)state;
    if (my->state == RLOCK__MY_READY && !my->suspended) {
        rlock__my_farewell(my);
    }
    if (my->conn) {
        rlock__my_report(my, false, "closed by the client");
    }
    if (rlock_client_forked(my->client)) { /* by on_event */
        return;
    }
    rlock__my_shut(my);
    rlock_timer_drop(my->client, &my->timer);
    free(my->sql);
    free(my->url.text);
    free(my->fresh);
    free(my->used);
    free(my);
}

/* A session goes on with the credentials that it began with. */
static inline int rlock__my_set_credentials(void *state, bool sentinels, const char *username,
                                            const char *password) {
    rlock__my *my = (rlock__my *)state;
    const char *user = username ? username : my->fresh ? my->fresh : my->url.user;
    const char *word = password ? password : "";
    size_t length = strlen(user) + 1;
    char *fresh;
    if (sentinels) {
        return RLOCK_ERR_ARG;
    }
    fresh = (char *)malloc(length + strlen(word) + 1);
    if (!fresh) {
        return RLOCK_ERR_NOMEM;
    }
    memcpy(fresh, user, length);
    memcpy(fresh + length, word, strlen(word) + 1);
    free(my->fresh);
    my->fresh = fresh;
    if (my->state == RLOCK__MY_DOWN && my->timer.index) { /* it may have been refused */
        my->next_us = rlock_client_now_us(my->client);
        rlock_timer_set(my->client, &my->timer, my->next_us);
    }
    return RLOCK_OK;
}

/* --- the URL --- */

/* Turns %XX into bytes, in place. False: something else follows a %, or it is a NUL. */
static inline bool rlock__my_decode(char *text) {
    char *out = text;
    for (; *text; text++) {
        if (*text == '%') {
            char digits[3] = {0, 0, 0};
            digits[0] = text[1];
            digits[1] = text[1] ? text[2] : 0;
            if (strspn(digits, "0123456789abcdefABCDEF") != 2) {
                return false;
            }
            *out = (char)strtol(digits, NULL, 16);
            text += 2;
            if (!*out++) {
                return false;
            }
        } else {
            *out++ = *text;
        }
    }
    *out = 0;
    return true;
}

/* Cuts what follows a character off. Returns it, or NULL if the character is not there. */
static inline char *rlock__my_cut(char *text, char at) {
    char *found = strchr(text, at);
    if (found) {
        *found++ = 0;
    }
    return found;
}

/* Returns what is wrong with the part after the question mark, or NULL. */
static inline const char *rlock__my_parse_query(rlock__my_url *url, char *query) {
    while (query) {
        char *next = rlock__my_cut(query, '&'), *value = rlock__my_cut(query, '=');
        if (strncmp(query, "ssl", 3) == 0 || strncmp(query, "tls", 3) == 0) {
            return "TLS is not supported: the handshake of libmariadb blocks";
        } else if (strcmp(query, "socket") != 0 || !value || url->socket) {
            return "expected no parameter but socket, once";
        } else if (!rlock__my_decode(value) || *value != '/' ||
                   strlen(value) >= sizeof(((struct sockaddr_un *)NULL)->sun_path)) {
            return "the path of the socket";
        }
        url->socket = value;
        query = next;
    }
    return NULL;
}

/* Returns what is wrong with the host and the port, or NULL. */
static inline const char *rlock__my_parse_host(rlock__my_url *url, char *host) {
    char *port = NULL, *end;
    if (*host == '[') {
        host++;
        end = rlock__my_cut(host, ']');
        if (!end || (*end && *end != ':')) {
            return "the host";
        }
        port = *end ? end + 1 : NULL;
    } else {
        port = rlock__my_cut(host, ':');
    }
    if (!rlock__my_decode(host) || strlen(host) > 255 || strchr(host, ',')) {
        return "the host";
    }
    url->host = *host ? host : "127.0.0.1";
    url->port = RLOCK__MY_PORT;
    if (port) {
        unsigned long number = strtoul(port, &end, 10);
        if (*port < '0' || *port > '9' || *end || number < 1 || number > 65535) {
            return "the port";
        }
        url->port = (unsigned)number;
    }
    return NULL;
}

/* Returns what is wrong with a URL, in words that show no password, or NULL. */
static inline const char *rlock__my_parse(rlock__my_url *url) {
    char *at = rlock__my_cut(url->text, ':'), *query, *database, *host, *password;
    const char *wrong;
    if (!at || (strcmp(url->text, "mysql") != 0 && strcmp(url->text, "mariadb") != 0) ||
        strncmp(at, "//", 2) != 0) {
        return "expected mysql:// or mariadb://";
    }
    at += 2;
    query = rlock__my_cut(at, '?');
    database = rlock__my_cut(at, '/');
    host = strrchr(at, '@');
    if (host) {
        *host++ = 0;
        password = rlock__my_cut(at, ':');
        url->user = at;
        url->password = password ? password : "";
        if (!rlock__my_decode(at) || (password && !rlock__my_decode(password))) {
            return "the user or the password";
        }
    } else {
        host = at;
        url->user = url->password = "";
    }
    if (!*url->user) {
        return "the user";
    }
    if (!database || !*database || !rlock__my_decode(database) || strchr(database, '/')) {
        return "the database";
    }
    url->database = database;
    wrong = rlock__my_parse_host(url, host);
    return wrong ? wrong : rlock__my_parse_query(url, query);
}

static inline int rlock__my_open(const rlock_store *store, rlock_client *client,
                                 const struct rlock_config *config,
                                 const rlock_store_events *events, void *owner, void **state) {
    const rlock__my_store *made = (const rlock__my_store *)store->ctx;
    rlock__my *my = (rlock__my *)calloc(1, sizeof *my);
    char *text = (char *)malloc(strlen(made->url) + 1);
    const char *wrong;
    if (!my || !text || rlock_timer_add(client, &my->timer, rlock__my_fire) != RLOCK_OK) {
        free(my);
        free(text);
        return RLOCK_ERR_NOMEM;
    }
    memcpy(text, made->url, strlen(made->url) + 1);
    my->url.text = text;
    my->client = client;
    my->events = events;
    my->owner = owner;
    my->stats = rlock_client_counters(client);
    my->timeout_us = config->command_timeout_ms * 1000;
    my->offer_ms = config->command_timeout_ms;
    my->fd = -1;
    my->most = RLOCK__MY_GROUP;
    my->io.ready = rlock__my_on_io;
    my->name.resolved = rlock__my_on_name;
    rlock__my_list_init(&my->urgent);
    rlock__my_list_init(&my->renewals);
    rlock__my_list_init(&my->acquires);
    wrong = rlock__my_parse(&my->url);
    if (wrong) {
        rlock_client_log(client, RLOCK_LOG_ERROR, "the URL of MariaDB is not valid", wrong);
        rlock__my_close(my);
        return RLOCK_ERR_ARG;
    }
    if (rlock_client_hide(client, my->url.password) != RLOCK_OK) {
        rlock__my_close(my);
        return RLOCK_ERR_NOMEM;
    }
    *state = my;
    return RLOCK_OK;
}

/* Frees a store that rlock_mariadb_new made, after the last of its clients. NULL is allowed. */
static inline void rlock_mariadb_free(rlock_store *store) {
    free(store ? store->ctx : NULL);
}

/* Makes a store of the MariaDB that a URL leads to, which is copied:
 *
 *     mysql://user[:password@][host][:port]/database[?socket=/path]
 *
 * mariadb:// is the same. The defaults are no password, 127.0.0.1 and 3306; with a socket, host
 * and port are not used. IPv6 stands in brackets. %XX stands for a byte, as in config.url. Any
 * number of clients, on any threads, may use it; free it after them. The first one that is made
 * initializes libmariadb, which is not for two threads at once. Flags are 0. A URL that is
 * wrong is refused by rlock_client_new.
 * Errors: RLOCK_ERR_ARG (out or url is NULL, flags are not 0), RLOCK_ERR_NOMEM. */
static inline int rlock_mariadb_new(rlock_store **out, const char *url, unsigned flags) {
    static const rlock_store functions = {NULL,
                                          rlock__my_open,
                                          rlock__my_close,
                                          rlock__my_submit,
                                          rlock__my_forget,
                                          rlock__my_track,
                                          rlock__my_flush,
                                          rlock__my_refuses,
                                          NULL,
                                          RLOCK_STORE_STAYS | RLOCK_STORE_ADOPTS,
                                          rlock__my_set_credentials};
    rlock__my_store *store;
    if (!out || !url || flags) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    store = (rlock__my_store *)calloc(1, sizeof *store + strlen(url));
    if (!store || mysql_server_init(0, NULL, NULL) != 0) {
        free(store);
        return RLOCK_ERR_NOMEM;
    }
    store->store = functions;
    store->store.ctx = store;
    memcpy(store->url, url, strlen(url) + 1);
    *out = &store->store;
    return RLOCK_OK;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_MARIADB_H */

/*
 * Copyright (c) 2026 the rlock authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
