/* rlock_postgres.h - the store of rlock.h in PostgreSQL, by libpq 14 or newer
 * SPDX-License-Identifier: MIT
 *
 *     psql -d shop -f stores/rlock_postgres.sql                          once, by the operator
 *
 *     rlock_store *store;
 *     rlock_postgres_new(&store, "postgres://me@db.example.com/shop", 0);
 *     config.store = store;                                              before rlock_client_new
 *     ...
 *     rlock_postgres_free(store);                                        after the clients
 *
 * All kinds, several keys, fencing tokens and questions, with the promises of docs/guarantees.md. A
 * lease is a time by the server's clock, in a row; nothing depends on a session or a transaction.
 * Everything here is static inline: include it after rlock.h, link with -lpq. The server is
 * PostgreSQL 12 or newer; before 14 a clean-up after a lost connection takes a lease longer.
 *
 * One connection a client, in pipeline mode. What one loop iteration submits is one transaction: it
 * is committed once for all. Waiters are notified by NOTIFY, only if there are any. Names are
 * resolved by the loop, and each address of each host is tried. A server that is read-only is left
 * (target_session_attrs is read-write, unless the URL says otherwise). libpq speaks TLS and SCRAM,
 * whose computing takes up to some 25 ms of the loop at each connection.
 *
 * A key has at most 2,000 bytes. */

#ifndef RLOCK_POSTGRES_H
#define RLOCK_POSTGRES_H

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rlock.h"

#ifndef LIBPQ_HAS_PIPELINING
#error "rlock_postgres.h needs libpq 14 or newer: its pipeline mode"
#endif

RLOCK__C_CASTS_BEGIN

/* There is a pooler between, as pgbouncer, in which a session has no state: nothing is prepared,
 * waiters poll, and a clean-up after a lost connection takes a lease longer. Without this flag a
 * server behind a pooler is refused. */
#define RLOCK_POSTGRES_POOLER 1u

#define RLOCK__PG_VERSION 1  /* of rlock_postgres.sql: this one */
#define RLOCK__PG_REVISION 2 /* ... and this one or a later */
#define RLOCK__PG_OLD \
    "rlock_postgres.sql in this database is older than this program: run the file again"
#define RLOCK__PG_KEY_MAX 2000u
#define RLOCK__PG_GROUP 64 /* most requests in one transaction */
#define RLOCK__PG_CHANNELS 64
#define RLOCK__PG_ADDRESSES 16 /* of all hosts, that are tried */
#define RLOCK__PG_PARAMS 10
#define RLOCK__PG_BACKOFF_MIN_MS 10
#define RLOCK__PG_BACKOFF_MAX_MS 1000
#define RLOCK__PG_HEARTBEAT 3 /* command timeouts of silence, then the server is asked */
#define RLOCK__PG_OF(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

/* What is sent. The letter of a kind is cast from text, because "char" has no other way in. */
enum {
    RLOCK__PG_ACQUIRE,
    RLOCK__PG_RENEW,
    RLOCK__PG_RELEASE,
    RLOCK__PG_ACQUIRE_ALL,
    RLOCK__PG_RENEW_ALL,
    RLOCK__PG_RELEASE_ALL,
    RLOCK__PG_ACQUIRE_QUEUED,
    RLOCK__PG_RENEW_QUEUED,
    RLOCK__PG_RELEASE_QUEUED,
    RLOCK__PG_INSPECT,
    RLOCK__PG_FORCE,
    RLOCK__PG_SET_PERMITS,
    RLOCK__PG_STATEMENTS
};

static const char *const rlock__pg_sql[RLOCK__PG_STATEMENTS] = {
    "rlock.acquire($1::bytea, $2, $3::bigint, $4::int, $5::bool)",
    "rlock.renew($1::bytea, $2, $3::bigint, $4::bigint)",
    "rlock.release($1::bytea, $2)",
    "rlock.acquire_all($1::bytea[], $2, $3::bigint, $4::int, $5::bool)",
    "rlock.renew_all($1::bytea[], $2, $3::bigint, $4::bigint)",
    "rlock.release_all($1::bytea[], $2)",
    "rlock.acquire_queued($1::bytea, $2, $3::bigint, $4::int, $5::bool, "
    "$6::text::\"char\", "
    "$7::int, $8::int, $9, $10::bigint)",
    "rlock.renew_queued($1::bytea, $2, $3::bigint, $4::bigint, $5::text::\"char\", $6::int, "
    "$7::int)",
    "rlock.release_queued($1::bytea, $2, $3::text::\"char\", $4::int, $5::int, "
    "$6::bigint, "
    "$7)",
    "rlock.inspect($1::bytea, $2, $3::text::\"char\", $4::int)",
    "rlock.force($1::bytea, $2::text::\"char\", $3::int, $4::bigint)",
    "rlock.set_permits($1::bytea, $2::text::\"char\", $3::int, $4::int, $5::bigint)"};

enum { RLOCK__PG_DOWN, RLOCK__PG_NAMES, RLOCK__PG_CONNECTS, RLOCK__PG_HANDSHAKE, RLOCK__PG_READY };

/* The handshake, a step at a time. */
enum {
    RLOCK__PG_STEP_KNOW,     /* who is there, and are the functions? */
    RLOCK__PG_STEP_SET,      /* a statement does not outlive its command timeout */
    RLOCK__PG_STEP_CHECK,    /* ... nor its client; nor does the half of a group */
    RLOCK__PG_STEP_END_LAST, /* the session of the connection before */
    RLOCK__PG_STEP_PREPARE,
    RLOCK__PG_STEP_LISTEN,
    RLOCK__PG_STEPS
};

typedef struct rlock__pg_group {              /* the statements up to one Sync: one transaction */
    rlock_request *requests[RLOCK__PG_GROUP]; /* NULL: it was forgotten */
    PGresult *results[RLOCK__PG_GROUP];
    unsigned count, done;
    unsigned guilty;   /* whose error has undone it; `count`: the commit's */
    bool out, failed;  /* out: it was sent, and not answered */
    uint64_t listened; /* channels, when it was sent */
    PGresult *error;
} rlock__pg_group;

typedef struct rlock__pg_lookup { /* of the name of a host */
    struct rlock__pg *pg;
    rlock_name name;
    bool asked; /* the answer is still to come */
} rlock__pg_lookup;

typedef struct rlock__pg { /* the store as one client sees it */
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_stats *stats;
    bool pooler, pushing;
    uint8_t state, step;
    PGconn *conn;
    int fd;
    rlock_io io;
    rlock_timer timer;
    rlock_link urgent, renewals, acquires; /* submitted, and not sent; they go in this order */
    rlock__pg_group group;
    unsigned most;             /* requests in the next group: fewer, if the last one took long */
    int64_t group_us;          /* when it was sent */
    uint64_t wanted, listened; /* channels; of `listened` changes are told */
    uint64_t asked;            /* by the LISTENs that are out */
    int64_t timeout_us, alive_us, ready_us, next_us; /* next: of the attempt to connect */
    int64_t backoff_ms;
    int64_t offer_ms;
    bool doubted; /* an answer is late: one more look at the socket */

    /* Who a session was: to end it before the next one sends anything. */
    uint32_t epoch, gone_epoch, open_epoch;
    int last_pid, pid;
    char last_session[64], session[64]; /* when the postmaster began, and the session */

    /* Where the server is. */
    PQconninfoOption *options;
    char *fresh, *used; /* credentials that were replaced: the user, its NUL, the password; for the
                           next attempt, and of this one; NULL, or no user = as in the URL */
    char *hosts[RLOCK__PG_ADDRESSES], *ports[RLOCK__PG_ADDRESSES]; /* as the URL has them */
    char *numerics[RLOCK__PG_ADDRESSES];                           /* hostaddr, or NULL */
    unsigned host_count;
    rlock__pg_lookup lookups[RLOCK__PG_ADDRESSES];
    struct {
        unsigned host;
        char text[INET6_ADDRSTRLEN + 16]; /* "": a unix socket */
    } addresses[RLOCK__PG_ADDRESSES];     /* those that an attempt knows, in their order */
    unsigned address_count, tried;        /* tried: how many of them it has given up */
    unsigned turn;                        /* another host and address begins each attempt */
    int64_t until_us;                     /* when the attempt is over */
    char words[256];                      /* of an error */
    char said[256];                       /* by a server that the attempt has given up */
    char logged[256], farewell[128];      /* the last words in the log; the server's when it ends */
    char unsynced[128];                   /* ... and of a commit that is not at the standby */
    rlock_info info;                      /* of the question being answered */
} rlock__pg;

typedef struct rlock__pg_store {
    rlock_store store; /* first: it is what the user sees */
    unsigned flags;
    char url[1]; /* longer */
} rlock__pg_store;

/* --- small things --- */

static inline void rlock__pg_list_init(rlock_link *list) {
    list->prev = list->next = list;
}

static inline void rlock__pg_list_remove(rlock_link *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    rlock__pg_list_init(link);
}

/* Adds it before another one, or before the head: at the end. */
static inline void rlock__pg_list_add(rlock_link *at, rlock_link *link) {
    link->prev = at->prev;
    link->next = at;
    link->prev->next = at->prev = link;
}

static inline bool rlock__pg_queued(const rlock_request *request) {
    return request->terms && request->terms->kind != RLOCK_KIND_MUTEX;
}

static inline bool rlock__pg_several(const rlock_request *request) {
    return request->terms && request->terms->count > 1;
}

static inline const char *rlock__pg_sort(const rlock_request *request) {
    static const char *const sorts[] = {"m", "f", "w", "w", "s"}; /* [rlock_kind] */
    return sorts[rlock__pg_queued(request) ? request->terms->kind : RLOCK_KIND_MUTEX];
}

/* The channel of a key, as rlock.changed() computes it. */
static inline unsigned rlock__pg_channel(const char *key, size_t len) {
    unsigned first = (unsigned char)key[0], last = (unsigned char)key[len - 1];
    return (unsigned)((first + last * 7 + len) % RLOCK__PG_CHANNELS);
}

/* Has the client hide the password that libpq uses, which may be of its file or the environment,
 * another one for each host. False: there is no memory. */
static inline bool rlock__pg_hides(const rlock__pg *pg) {
    return rlock_client_hide(pg->client, pg->conn ? PQpass(pg->conn) : NULL) == RLOCK_OK;
}

/* One line of the words of an error, without its class and where in the server it arose. */
static inline const char *rlock__pg_words(rlock__pg *pg, const char *text) {
    size_t n = 0;
    text = rlock__pg_hides(pg) ? text : "out of memory while hiding a password in an error";
    while (text && text[n] && text[n] != '\n' && n < sizeof pg->words - 1) {
        pg->words[n] = text[n];
        n++;
    }
    pg->words[n] = 0;
    return pg->words;
}

static inline const char *rlock__pg_error(rlock__pg *pg, const PGresult *result) {
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    return rlock__pg_words(pg, text ? text : PQresultErrorMessage(result));
}

/* The fault that an SQLSTATE means; docs/stores.md has the table. */
static inline rlock_fault rlock__pg_fault(const char *code) {
    static const struct {
        const char *prefix;
        rlock_fault fault;
    } faults[] = {
        {"57P03", RLOCK_FAULT_DOWN}, {"53300", RLOCK_FAULT_DOWN}, {"57P", RLOCK_FAULT_UNKNOWN},
        {"08", RLOCK_FAULT_UNKNOWN}, {"25006", RLOCK_FAULT_BUSY}, {"40", RLOCK_FAULT_BUSY},
        {"55P03", RLOCK_FAULT_BUSY}, {"57014", RLOCK_FAULT_BUSY}, {"53", RLOCK_FAULT_BUSY},
        {"28", RLOCK_FAULT_AUTH},    {"3D000", RLOCK_FAULT_AUTH}, {"3F000", RLOCK_FAULT_AUTH},
        {"42501", RLOCK_FAULT_AUTH}, {"42P01", RLOCK_FAULT_AUTH}, {"42883", RLOCK_FAULT_AUTH}};
    size_t i;
    for (i = 0; code && i < sizeof faults / sizeof faults[0]; i++) {
        if (strncmp(code, faults[i].prefix, strlen(faults[i].prefix)) == 0) {
            return faults[i].fault;
        }
    }
    return RLOCK_FAULT_OTHER;
}

static inline void rlock__pg_answer(rlock__pg *pg, rlock_request *request, rlock_fault fault,
                                    const char *text, bool undone) {
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.outcome = RLOCK_OUTCOME_FAULT;
    answer.fault = fault;
    answer.undone = undone;
    answer.text = text;
    pg->events->answered(pg->owner, request, &answer);
}

static inline void rlock__pg_report(const rlock__pg *pg, bool connected, const char *text) {
    rlock_report report;
    memset(&report, 0, sizeof report);
    report.kind = connected ? RLOCK_REPORT_CONNECTED : RLOCK_REPORT_DISCONNECTED;
    report.link = "commands";
    report.where = pg->conn ? PQhost(pg->conn) : NULL;
    report.span_us = !connected && pg->state == RLOCK__PG_READY
                         ? rlock_client_now_us(pg->client) - pg->ready_us
                         : 0;
    report.text = text;
    rlock_client_report(pg->client, &report);
}

/* --- the end of a connection --- */

static inline void rlock__pg_connect(rlock__pg *pg);

static inline void rlock__pg_push(rlock__pg *pg, unsigned what) {
    if (pg->pushing != (what != 0)) {
        pg->pushing = what != 0;
        pg->events->pushing(pg->owner, NULL, what);
    }
}

static inline void rlock__pg_group_clear(rlock__pg_group *group) {
    unsigned i;
    for (i = 0; i < group->count; i++) {
        PQclear(group->results[i]);
        group->results[i] = NULL;
        group->requests[i] = NULL;
    }
    PQclear(group->error);
    group->error = NULL;
    group->count = group->done = group->guilty = 0;
    group->out = group->failed = false;
}

/* Closes what there is, without waiting: libpq's farewell goes where there is room for it. */
static inline void rlock__pg_shut(rlock__pg *pg) {
    if (pg->fd >= 0) {
        rlock_io_watch(pg->client, &pg->io, pg->fd, 0);
        pg->fd = -1;
    }
    if (pg->conn && !rlock_client_forked(pg->client)) {
        PQfinish(pg->conn);
    }
    pg->conn = NULL;
    pg->listened = pg->asked = 0;
    pg->doubted = false;
}

/* How many names are being resolved. */
static inline unsigned rlock__pg_asked(const rlock__pg *pg) {
    unsigned i, count = 0;
    for (i = 0; i < pg->host_count; i++) {
        count += pg->lookups[i].asked;
    }
    return count;
}

/* Tries the next address, or waits until one is found. False: there is none. */
static inline bool rlock__pg_walk(rlock__pg *pg) {
    if (pg->tried < pg->address_count) {
        rlock__pg_connect(pg);
    } else if (rlock__pg_asked(pg)) {
        pg->state = RLOCK__PG_NAMES;
        rlock_timer_set(pg->client, &pg->timer, pg->until_us);
    } else {
        return false;
    }
    return true;
}

/* Gives an address up that did not become ready, and goes on in what is left of the attempt. False:
 * that is nothing, or somebody has to act. */
static inline bool rlock__pg_goes_on(rlock__pg *pg, rlock_fault fault) {
    bool connects = pg->state == RLOCK__PG_CONNECTS || pg->state == RLOCK__PG_HANDSHAKE;
    if (connects && fault == RLOCK_FAULT_AUTH && pg->fresh) { /* there are newer credentials */
        rlock__pg_shut(pg);
        rlock__pg_group_clear(&pg->group);
        rlock__pg_connect(pg);
        return true;
    }
    if (fault != RLOCK_FAULT_DOWN || pg->state == RLOCK__PG_READY) {
        return false;
    }
    if (!pg->said[0] && pg->state == RLOCK__PG_HANDSHAKE) {
        memcpy(pg->said, pg->words, sizeof pg->said);
    }
    if (connects && rlock_client_now_us(pg->client) < pg->until_us) {
        rlock__pg_shut(pg);
        rlock__pg_group_clear(&pg->group);
        pg->tried++;
        if (rlock__pg_walk(pg)) {
            return true;
        }
    }
    memcpy(pg->words, pg->said[0] ? pg->said : pg->words, sizeof pg->words);
    return false;
}

/* A connection was lost, or an attempt to connect has failed. What was sent may have been done. */
static inline void rlock__pg_fail(rlock__pg *pg, rlock_fault fault, const char *text) {
    bool was_ready = pg->state == RLOCK__PG_READY;
    unsigned i;
    text = rlock__pg_words(pg, pg->farewell[0] ? pg->farewell : text);
    pg->farewell[0] = 0;
    if (rlock__pg_goes_on(pg, fault)) {
        return;
    }
    if (was_ready || strcmp(pg->logged, text) != 0) { /* each attempt has the same to say */
        memcpy(pg->logged, pg->words, sizeof pg->logged);
        rlock_client_log(pg->client, RLOCK_LOG_WARNING, "connection to PostgreSQL", text);
    }
    rlock__pg_report(pg, false, text);
    if (was_ready) {
        pg->last_pid = pg->pid;
        memcpy(pg->last_session, pg->session, sizeof pg->session);
    }
    rlock__pg_shut(pg);
    pg->state = RLOCK__PG_DOWN;
    pg->turn++;
    pg->backoff_ms = pg->backoff_ms * 2 < RLOCK__PG_BACKOFF_MAX_MS ? pg->backoff_ms * 2
                                                                   : RLOCK__PG_BACKOFF_MAX_MS;
    if (pg->backoff_ms < RLOCK__PG_BACKOFF_MIN_MS || was_ready) {
        pg->backoff_ms = RLOCK__PG_BACKOFF_MIN_MS;
    }
    pg->next_us = rlock_client_now_us(pg->client) +
                  (int64_t)(rlock_client_random(pg->client) % (uint64_t)(pg->backoff_ms * 1000)) +
                  pg->backoff_ms * 500;
    rlock_timer_set(pg->client, &pg->timer, pg->next_us);
    for (i = 0; i < pg->group.count; i++) {
        rlock_request *request = pg->group.requests[i];
        pg->group.requests[i] = NULL;
        if (request) {
            rlock__pg_answer(pg, request, RLOCK_FAULT_UNKNOWN, pg->words, false);
        }
    }
    rlock__pg_group_clear(&pg->group);
    pg->events->down(pg->owner, NULL, fault, pg->words);
    rlock__pg_push(pg, 0);
}

/* --- where the server is --- */

static inline const char *rlock__pg_option(const rlock__pg *pg, const char *keyword) {
    const PQconninfoOption *option = pg->options;
    while (option->keyword && strcmp(option->keyword, keyword) != 0) {
        option++;
    }
    return option->val;
}

/* Cuts a list at its commas. Returns how many entries it has; 0: too many, or no memory. */
static inline unsigned rlock__pg_split(const char *list, char **out) {
    unsigned count = 0;
    while (list && count < RLOCK__PG_ADDRESSES) {
        size_t n = strcspn(list, ",");
        out[count] = (char *)calloc(1, n + 1);
        if (!out[count]) {
            return 0;
        }
        memcpy(out[count++], list, n);
        list = list[n] ? list + n + 1 : NULL;
    }
    return list ? 0 : count;
}

/* False: no memory, or the lists do not fit each other. */
static inline bool rlock__pg_hosts(rlock__pg *pg) {
    const char *numeric = rlock__pg_option(pg, "hostaddr");
    const char *hosts = rlock__pg_option(pg, "host");
    const char *ports = rlock__pg_option(pg, "port");
    unsigned count, i = 0;
    if (!hosts && !numeric) {
        hosts = getenv("PGHOST");
        numeric = getenv("PGHOSTADDR");
    }
    hosts = hosts ? hosts : numeric;
    if (rlock__pg_option(pg, "service")) {
        return false; /* libpq would ask for the name that it finds there, and wait */
    }
    ports = ports ? ports : getenv("PGPORT");
    pg->host_count = rlock__pg_split(hosts ? hosts : "", pg->hosts);
    count = numeric ? rlock__pg_split(numeric, pg->numerics) : pg->host_count;
    if (count != pg->host_count) {
        return false;
    }
    count = rlock__pg_split(ports ? ports : "", pg->ports);
    while (i < count && pg->ports[i][strspn(pg->ports[i], "0123456789")] == 0) {
        i++; /* else it may be a part of a password, which libpq would show */
    }
    return i == count && pg->host_count && (count == 1 || count == pg->host_count);
}

static inline void rlock__pg_add_address(rlock__pg *pg, unsigned host,
                                         const struct sockaddr *address) {
    char *text;
    if (pg->address_count == RLOCK__PG_ADDRESSES) {
        return;
    }
    text = pg->addresses[pg->address_count].text;
    if (!address) {
        text[0] = 0;
    } else if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        inet_ntop(AF_INET, &v4->sin_addr, text, INET6_ADDRSTRLEN);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, text, INET6_ADDRSTRLEN);
        if (v6->sin6_scope_id) {
            size_t n = strlen(text);
            snprintf(text + n, sizeof pg->addresses[0].text - n, "%%%u",
                     (unsigned)v6->sin6_scope_id);
        }
    } else {
        return;
    }
    pg->addresses[pg->address_count++].host = host;
}

/* An address as it stands in the URL, or a unix socket. False: it is a name. */
static inline bool rlock__pg_numeric(rlock__pg *pg, unsigned host) {
    const char *numeric = pg->numerics[host];
    const char *text = numeric && *numeric ? numeric : pg->hosts[host];
    unsigned char bytes[sizeof(struct in6_addr)];
    bool is = inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
    if (*text == '/' || *text == '@' || !*text) {
        rlock__pg_add_address(pg, host, NULL);
        return true;
    } else if (is && pg->address_count < RLOCK__PG_ADDRESSES) {
        snprintf(pg->addresses[pg->address_count].text, sizeof pg->addresses[0].text, "%s", text);
        pg->addresses[pg->address_count++].host = host;
    }
    return is;
}

/* Also while another address is tried. What comes after the attempt is forgotten. */
static inline void rlock__pg_on_name(rlock_name *name, const struct sockaddr *const *addresses,
                                     unsigned count) {
    rlock__pg_lookup *lookup = RLOCK__PG_OF(name, rlock__pg_lookup, name);
    rlock__pg *pg = lookup->pg;
    unsigned i;
    lookup->asked = false;
    if (pg->state == RLOCK__PG_DOWN || pg->state == RLOCK__PG_READY) {
        return;
    }
    for (i = 0; i < count; i++) {
        rlock__pg_add_address(pg, (unsigned)(lookup - pg->lookups),
                              addresses[(i + pg->turn / pg->host_count) % count]);
    }
    if (pg->state == RLOCK__PG_NAMES && !rlock__pg_walk(pg)) {
        rlock__pg_fail(pg, RLOCK_FAULT_DOWN, "the name is not resolved");
    }
}

/* All names are asked for at once: one that hangs hides no other host. */
static inline void rlock__pg_open_next(rlock__pg *pg) {
    unsigned i;
    pg->state = RLOCK__PG_NAMES;
    pg->address_count = pg->tried = 0;
    pg->said[0] = 0;
    pg->until_us = rlock_client_now_us(pg->client) + pg->timeout_us;
    for (i = 0; i < pg->host_count; i++) {
        unsigned host = (i + pg->turn) % pg->host_count;
        rlock__pg_lookup *lookup = &pg->lookups[host];
        if (!rlock__pg_numeric(pg, host) && !lookup->asked) {
            lookup->asked = rlock_name_resolve(pg->client, &lookup->name, pg->hosts[host]) == 0;
        }
    }
    if (!rlock__pg_walk(pg)) {
        rlock__pg_fail(pg, RLOCK_FAULT_DOWN, "the name is not resolved");
    }
}

/* --- connecting --- */

/* Starts to connect to the next address. The variable PGHOSTADDR would stand for a unix socket,
 * which has no address: so that is named twice, each time with an empty one. */
static inline PGconn *rlock__pg_start(const rlock__pg *pg) {
    enum { MOST = 96 };
    const char *keywords[MOST + 1], *values[MOST + 1];
    const char *address = pg->addresses[pg->tried].text;
    unsigned at = pg->addresses[pg->tried].host;
    const char *port = pg->ports[at] ? pg->ports[at] : pg->ports[0];
    size_t bytes = 2 * strlen(pg->hosts[at]) + 2;
    char *host = (char *)calloc(1, bytes);
    const PQconninfoOption *option;
    PGconn *conn = NULL;
    int n = 0;
    for (option = pg->options; option->keyword && n < MOST - 8; option++) {
        bool ours = strcmp(option->keyword, "host") == 0 ||
                    strcmp(option->keyword, "hostaddr") == 0 ||
                    strcmp(option->keyword, "port") == 0;
        bool replaced = pg->used && (strcmp(option->keyword, "password") == 0 ||
                                     (*pg->used && strcmp(option->keyword, "user") == 0));
        if (option->val && !ours && !replaced) {
            keywords[n] = option->keyword;
            values[n++] = option->val;
        }
    }
    if (host) {
        snprintf(host, bytes, *address ? "%s" : "%s,%s", pg->hosts[at], pg->hosts[at]);
    }
    if (pg->used && *pg->used) {
        keywords[n] = "user", values[n++] = pg->used;
    }
    if (pg->used) {
        keywords[n] = "password", values[n++] = pg->used + strlen(pg->used) + 1;
    }
    keywords[n] = "host", values[n++] = host;
    keywords[n] = "hostaddr", values[n++] = *address ? address : ",";
    keywords[n] = "port", values[n++] = port;
    keywords[n] = "fallback_application_name", values[n++] = "rlock";
    if (!rlock__pg_option(pg, "target_session_attrs")) {
        keywords[n] = "target_session_attrs"; /* a pooler says what was so when it connected */
        values[n++] = pg->pooler ? "any" : "read-write";
    }
    if (!rlock__pg_option(pg, "gssencmode")) {
        keywords[n] = "gssencmode", values[n++] = "disable"; /* Kerberos would ask the DNS */
    }
    keywords[n] = values[n] = NULL;
    if (host) {
        conn = PQconnectStartParams(keywords, values, 0);
    }
    free(host);
    return conn;
}

/* Watches what libpq waits for. Whenever it may have another socket, the old one is forgotten
 * before: another descriptor may have the same number. */
static inline bool rlock__pg_watch(rlock__pg *pg, unsigned events) {
    int fd = PQsocket(pg->conn);
    pg->fd = fd; /* also where it cannot be watched: then it is watched no more */
    if (fd < 0 || rlock_io_watch(pg->client, &pg->io, fd, events) != 0) {
        rlock__pg_fail(pg, RLOCK_FAULT_DOWN, "the loop cannot watch the connection");
        return false;
    }
    return true;
}

/* True if words say that TLS was refused: libpq has no code for it. In another language than
 * English this is not seen, and the next attempt says it again. */
static inline bool rlock__pg_untrusted(const char *words) {
    static const char *const signs[] = {"certificate", "private key", " alert ",
                                        "does not support SSL", "channel binding"};
    size_t i;
    for (i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (strstr(words, signs[i])) {
            return true;
        }
    }
    return false;
}

/* An address may be tried twice, without TLS and with it: of these lines those words count that
 * somebody has to act on; else the first ones of a server. Its SQLSTATE is among them:
 * "FATAL:  28P01: the words". */
static inline void rlock__pg_refused(rlock__pg *pg) {
    const char *text = PQerrorMessage(pg->conn), *best = text;
    bool spoken = false;
    while (*text) {
        const char *words = rlock__pg_words(pg, text), *at = strstr(words, ":  ");
        bool coded = at && strlen(at) > 9 && at[8] == ':' &&
                     strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") >= 5;
        const char *said = coded ? text + (at + 10 - words) : text;
        if (coded ? rlock__pg_fault(at + 3) == RLOCK_FAULT_AUTH : rlock__pg_untrusted(words)) {
            rlock__pg_fail(pg, RLOCK_FAULT_AUTH, said);
            return;
        }
        best = coded && !spoken ? said : best;
        spoken = spoken || coded;
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    rlock__pg_words(pg, best);
    if (!pg->said[0] && (spoken || strstr(pg->words, "read-only"))) {
        memcpy(pg->said, pg->words, sizeof pg->said);
    }
    rlock__pg_fail(pg, RLOCK_FAULT_DOWN, best); /* nothing was sent */
}

static inline void rlock__pg_handshake(rlock__pg *pg);

/* True if a warning says that a commit is not at the standby, because its wait was cancelled. Its
 * SQLSTATE is that of any warning, and its words may be of any language: so it is known by the
 * function of the server that gives it. A warning that names none may be that one. */
static inline bool rlock__pg_unsynced(const PGresult *notice) {
    const char *giver = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    return !giver || strncmp(giver, "SyncRep", 7) == 0;
}

/* What the server says unasked: why it ends the session, or that a commit is not at the standby.
 * All else is for nobody. */
static inline void rlock__pg_noticed(void *data, const PGresult *notice) {
    rlock__pg *pg = (rlock__pg *)data;
    const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *text = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
    if (severity && text && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0)) {
        snprintf(pg->farewell, sizeof pg->farewell, "%.120s", text);
    } else if (severity && strcmp(severity, "WARNING") == 0 && pg->state == RLOCK__PG_READY &&
               pg->group.out && !pg->group.failed && rlock__pg_unsynced(notice)) {
        pg->group.failed = true;
        pg->group.guilty = RLOCK__PG_GROUP;
        snprintf(pg->unsynced, sizeof pg->unsynced, "%.120s", text ? text : "");
    }
}

static inline void rlock__pg_poll(rlock__pg *pg) {
    PostgresPollingStatusType status;
    if (pg->fd >= 0) {
        rlock_io_watch(pg->client, &pg->io, pg->fd, 0);
        pg->fd = -1;
    }
    (void)rlock__pg_hides(pg); /* of the host that is tried now; of the last one rlock__pg_words */
    status = PQconnectPoll(pg->conn);
    if (status == PGRES_POLLING_FAILED) {
        rlock__pg_refused(pg);
    } else if (status == PGRES_POLLING_OK) {
        pg->state = RLOCK__PG_HANDSHAKE;
        pg->step = 0;
        pg->alive_us = rlock_client_now_us(pg->client);
        PQsetErrorVerbosity(pg->conn, PQERRORS_DEFAULT);
        if (PQsetnonblocking(pg->conn, 1) != 0 || PQenterPipelineMode(pg->conn) != 1) {
            rlock__pg_fail(pg, RLOCK_FAULT_DOWN, PQerrorMessage(pg->conn));
        } else if (rlock__pg_watch(pg, RLOCK_IO_READ)) {
            rlock__pg_handshake(pg);
        }
    } else {
        rlock__pg_watch(pg, status == PGRES_POLLING_READING ? RLOCK_IO_READ : RLOCK_IO_WRITE);
    }
}

/* Starts to connect to the next address. Each that is known, and each name, has its share of the
 * time that is left. */
static inline void rlock__pg_connect(rlock__pg *pg) {
    int64_t now_us = rlock_client_now_us(pg->client);
    unsigned shares = pg->address_count - pg->tried + rlock__pg_asked(pg);
    if (pg->fresh) {
        free(pg->used);
        pg->used = pg->fresh;
        pg->fresh = NULL;
    }
    pg->conn = rlock__pg_start(pg);
    if (!pg->conn) {
        rlock__pg_fail(pg, RLOCK_FAULT_NOMEM, "out of memory while connecting");
        return;
    }
    pg->state = RLOCK__PG_CONNECTS;
    rlock_timer_set(pg->client, &pg->timer, now_us + (pg->until_us - now_us) / shares);
    pg->farewell[0] = 0;
    PQsetNoticeReceiver(pg->conn, rlock__pg_noticed, pg);
    PQsetErrorVerbosity(pg->conn, PQERRORS_VERBOSE); /* its words have the SQLSTATE, too */
    if (PQstatus(pg->conn) == CONNECTION_BAD) {
        rlock__pg_refused(pg);
    } else {
        rlock__pg_watch(pg, RLOCK_IO_WRITE); /* libpq: as if the first poll had said so */
    }
}

/* --- what is sent --- */

typedef struct rlock__pg_params { /* of one statement */
    const char *values[RLOCK__PG_PARAMS];
    int lengths[RLOCK__PG_PARAMS], formats[RLOCK__PG_PARAMS], count;
    char numbers[RLOCK__PG_PARAMS][24];
    char tokens[2][64];
} rlock__pg_params;

static inline void rlock__pg_bytes(rlock__pg_params *p, const char *bytes, size_t len) {
    p->values[p->count] = bytes;
    p->lengths[p->count] = (int)len;
    p->formats[p->count++] = 1;
}

static inline void rlock__pg_text(rlock__pg_params *p, const char *text) {
    p->values[p->count] = text;
    p->formats[p->count++] = 0;
}

static inline void rlock__pg_number(rlock__pg_params *p, int64_t number) {
    snprintf(p->numbers[p->count], sizeof p->numbers[0], "%lld", (long long)number);
    rlock__pg_text(p, p->numbers[p->count]);
}

/* `id`: of the client whose token it is; NULL = this one. */
static inline void rlock__pg_token(const rlock__pg *pg, rlock__pg_params *p, int i, const char *id,
                                   uint64_t token) {
    p->tokens[i][0] = 0;
    if (token) {
        snprintf(p->tokens[i], sizeof p->tokens[0], "%s:%llu",
                 id ? id : rlock_client_id(pg->client), (unsigned long long)token);
    }
    rlock__pg_text(p, p->tokens[i]);
}

static inline void rlock__pg_put32(char **at, uint32_t number) {
    uint32_t wire = htonl(number);
    memcpy(*at, &wire, sizeof wire);
    *at += sizeof wire;
}

/* Several keys: an array of bytea as the server reads it. NULL: no memory. */
static inline char *rlock__pg_keys(const rlock_request *request, size_t *len) {
    const rlock_terms *terms = request->terms;
    const char *key = request->key;
    char *all, *at;
    uint32_t i;
    *len = 20;
    for (i = 0; i < terms->count; i++) {
        *len += 4 + (size_t)terms->lens[i];
    }
    all = at = (char *)malloc(*len);
    if (all) {
        rlock__pg_put32(&at, 1);  /* one dimension */
        rlock__pg_put32(&at, 0);  /* without a NULL */
        rlock__pg_put32(&at, 17); /* of bytea */
        rlock__pg_put32(&at, terms->count);
        rlock__pg_put32(&at, 1);
        for (i = 0; i < terms->count; i++) {
            rlock__pg_put32(&at, terms->lens[i]);
            memcpy(at, key, terms->lens[i]);
            at += terms->lens[i];
            key += terms->lens[i] + 1;
        }
    }
    return all;
}

static inline int rlock__pg_statement_of(const rlock_request *request) {
    bool queued = rlock__pg_queued(request), several = rlock__pg_several(request);
    int first = queued    ? RLOCK__PG_ACQUIRE_QUEUED
                : several ? RLOCK__PG_ACQUIRE_ALL
                          : RLOCK__PG_ACQUIRE;
    return request->op >= RLOCK_OP_INSPECT ? RLOCK__PG_INSPECT + (request->op - RLOCK_OP_INSPECT)
                                           : first + (request->op - RLOCK_OP_ACQUIRE);
}

static inline void rlock__pg_fill(const rlock__pg *pg, const rlock_request *request,
                                  rlock__pg_params *p, const char *key, size_t len) {
    const rlock_terms *terms = request->terms;
    bool queued = rlock__pg_queued(request);
    uint8_t op = request->op;
    rlock__pg_bytes(p, key, len);
    if (op < RLOCK_OP_FORCE) {
        rlock__pg_token(pg, p, 0, request->id, request->token);
    }
    if (op == RLOCK_OP_ACQUIRE || op == RLOCK_OP_RENEW) {
        rlock__pg_number(p, request->lease_ms);
    }
    if (op == RLOCK_OP_RENEW) {
        rlock__pg_number(p, request->longest_ms);
    }
    if (op == RLOCK_OP_ACQUIRE) {
        unsigned flag = queued ? RLOCK_REQUEST_ONCE : RLOCK_REQUEST_TRACK;
        rlock__pg_number(p, request->fences);
        rlock__pg_text(p, request->flags & flag ? "t" : "f");
    }
    if (queued || op >= RLOCK_OP_INSPECT) {
        rlock__pg_text(p, rlock__pg_sort(request));
        rlock__pg_number(p, queued ? terms->permits : 1);
    }
    if (queued && op < RLOCK_OP_INSPECT) {
        rlock__pg_number(p, terms->weight);
    }
    if (queued && op == RLOCK_OP_ACQUIRE) {
        rlock__pg_token(pg, p, 1, NULL, request->writer);
    }
    if (op == RLOCK_OP_SET_PERMITS) {
        rlock__pg_number(p, request->permits);
    }
    if (op >= RLOCK_OP_FORCE || (queued && (op == RLOCK_OP_ACQUIRE || op == RLOCK_OP_RELEASE))) {
        rlock__pg_number(p, pg->offer_ms);
    }
    if (queued && op == RLOCK_OP_RELEASE) {
        rlock__pg_token(pg, p, 1, NULL, request->next);
    }
}

/* False: libpq has no memory, or the connection is bad. Behind a pooler no session is set up: each
 * transaction asks for the warnings. */
static inline bool rlock__pg_say(rlock__pg *pg, int statement, const rlock__pg_params *p) {
    char text[384];
    int ok;
    if (pg->pooler) {
        snprintf(text, sizeof text,
                 "SELECT *, set_config('client_min_messages', 'warning', true) FROM %s",
                 rlock__pg_sql[statement]);
        ok =
            PQsendQueryParams(pg->conn, text, p->count, NULL, p->values, p->lengths, p->formats, 0);
    } else {
        snprintf(text, sizeof text, "rlock%d", statement);
        ok = PQsendQueryPrepared(pg->conn, text, p->count, p->values, p->lengths, p->formats, 0);
    }
    return ok == 1;
}

/* Sends one request; false: it could not be. */
static inline bool rlock__pg_send(rlock__pg *pg, const rlock_request *request) {
    bool several = rlock__pg_several(request);
    size_t len = request->key_len;
    rlock__pg_params p;
    char *keys = NULL;
    bool ok;
    p.count = 0;
    if (several) {
        keys = rlock__pg_keys(request, &len);
        if (!keys) {
            return false;
        }
    }
    rlock__pg_fill(pg, request, &p, several ? keys : request->key, len);
    ok = rlock__pg_say(pg, rlock__pg_statement_of(request), &p);
    free(keys);
    return ok;
}

/* The end of a group: it is committed, and answered. */
static inline void rlock__pg_sync(rlock__pg *pg) {
    if (PQpipelineSync(pg->conn) != 1) {
        rlock__pg_fail(pg, RLOCK_FAULT_DOWN, PQerrorMessage(pg->conn));
        return;
    }
    if (!pg->group.out) {
        pg->group.out = true;
        pg->alive_us = rlock_client_now_us(pg->client);
        rlock_timer_set(pg->client, &pg->timer, pg->alive_us + pg->timeout_us);
    }
}

/* Writes what the socket takes. */
static inline void rlock__pg_write(rlock__pg *pg) {
    int left = pg->conn && pg->state >= RLOCK__PG_HANDSHAKE ? PQflush(pg->conn) : 0;
    if (left < 0) {
        rlock__pg_fail(pg, RLOCK_FAULT_DOWN, PQerrorMessage(pg->conn));
    } else if (pg->fd >= 0 && pg->state >= RLOCK__PG_HANDSHAKE) {
        rlock_io_watch(pg->client, &pg->io, pg->fd,
                       left ? RLOCK_IO_READ | RLOCK_IO_WRITE : RLOCK_IO_READ);
    }
}

/* Rows are locked in one order in all transactions, or they could wait for each other. */
static inline bool rlock__pg_before(const rlock_request *one, const rlock_request *other) {
    size_t len = one->key_len < other->key_len ? one->key_len : other->key_len;
    int order = memcmp(one->key, other->key, len);
    return order < 0 || (order == 0 && one->key_len < other->key_len);
}

/* A crowd that wants keys can wait, a hold that is renewed cannot. */
static inline rlock_link *rlock__pg_next_list(rlock__pg *pg) {
    return pg->urgent.next != &pg->urgent       ? &pg->urgent
           : pg->renewals.next != &pg->renewals ? &pg->renewals
                                                : &pg->acquires;
}

/* Takes the requests of the next group. One with several keys is a transaction of its own. */
static inline void rlock__pg_gather(rlock__pg *pg) {
    rlock__pg_group *group = &pg->group;
    while (group->count < pg->most) {
        rlock_link *list = rlock__pg_next_list(pg);
        rlock_request *request = RLOCK__PG_OF(list->next, rlock_request, store.link);
        unsigned at = group->count;
        if (list->next == list || (rlock__pg_several(request) && group->count)) {
            break;
        }
        rlock__pg_list_remove(&request->store.link);
        while (at > 0 && rlock__pg_before(request, group->requests[at - 1])) {
            group->requests[at] = group->requests[at - 1];
            at--;
        }
        group->requests[at] = request;
        group->results[group->count++] = NULL;
        if (rlock__pg_several(request)) {
            break;
        }
    }
}

/* Whether a connection, by its number, has ended with all that was sent on it. */
static inline bool rlock__pg_gone(const rlock__pg *pg, uint32_t epoch) {
    return epoch > pg->open_epoch && epoch <= pg->gone_epoch;
}

static inline void rlock__pg_send_group(rlock__pg *pg) {
    rlock__pg_group *group = &pg->group;
    int64_t sent_us = rlock_client_clock_us(pg->client);
    unsigned i;
    pg->group_us = sent_us;
    group->listened = pg->listened;
    for (i = 0; i < group->count; i++) {
        rlock_request *request = group->requests[i];
        uint32_t note = request->store.note;
        request->sent_us = sent_us;
        request->store.data = &group->requests[i];
        request->store.stage = 1;
        request->store.note = !note || rlock__pg_gone(pg, note) ? pg->epoch : note;
        pg->stats->commands++;
    }
    for (i = 0; i < group->count; i++) {
        if (!rlock__pg_send(pg, group->requests[i])) {
            rlock__pg_fail(
                pg, PQstatus(pg->conn) == CONNECTION_OK ? RLOCK_FAULT_NOMEM : RLOCK_FAULT_DOWN,
                PQerrorMessage(pg->conn));
            return;
        }
    }
    rlock__pg_sync(pg);
}

/* Says LISTEN for the channels that are wanted. Returns 1, as libpq does; else it could not. */
static inline int rlock__pg_say_listen(rlock__pg *pg) {
    char sql[32];
    unsigned i;
    int ok = 1;
    pg->asked = pg->wanted & ~pg->listened;
    for (i = 0; i < RLOCK__PG_CHANNELS && ok == 1; i++) {
        if (pg->asked >> i & 1) {
            snprintf(sql, sizeof sql, "LISTEN rlock_%u", i);
            ok = PQsendQueryParams(pg->conn, sql, 0, NULL, NULL, NULL, NULL, 0);
            pg->stats->commands++;
        }
    }
    return ok;
}

static inline void rlock__pg_listen(rlock__pg *pg) {
    if (rlock__pg_say_listen(pg) == 1) {
        rlock__pg_sync(pg);
    } else {
        rlock__pg_fail(pg, RLOCK_FAULT_NOMEM, PQerrorMessage(pg->conn));
    }
}

/* --- what is answered --- */

static inline int64_t rlock__pg_column(const PGresult *result, int column) {
    return PQgetisnull(result, 0, column) ? 0 : strtoll(PQgetvalue(result, 0, column), NULL, 10);
}

static inline void rlock__pg_told(rlock__pg *pg, uint8_t op, const PGresult *result,
                                  rlock_answer *answer) {
    rlock_info *info = &pg->info;
    memset(info, 0, sizeof *info);
    info->position = info->waiters = -1;
    if (op != RLOCK_OP_SET_PERMITS) {
        info->holders = rlock__pg_column(result, 1);
    }
    if (op == RLOCK_OP_INSPECT) {
        info->left_ms = rlock__pg_column(result, 2);
        info->waiters = rlock__pg_column(result, 3);
        info->permits = rlock__pg_column(result, 4);
        info->position = rlock__pg_column(result, 5);
        info->token = PQgetisnull(result, 0, 6) ? NULL : PQgetvalue(result, 0, 6);
        info->token_len = info->token ? (size_t)PQgetlength(result, 0, 6) : 0;
    }
    answer->info = info;
}

/* True where nothing that was sent before can be executed any more. On this connection it was
 * answered, because a group leaves after the answer to the one before. What went over another one a
 * pooler may have left to a session that nobody knows. */
static inline bool rlock__pg_sure(const rlock__pg *pg, const rlock_request *request) {
    return request->store.note == pg->epoch || rlock__pg_gone(pg, request->store.note);
}

/* Answers a request with the row that its function returned. */
static inline void rlock__pg_answer_row(rlock__pg *pg, rlock_request *request,
                                        const PGresult *result, uint64_t listened) {
    bool acquire = request->op == RLOCK_OP_ACQUIRE;
    bool row = result && PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;
    int64_t outcome = row && !PQgetisnull(result, 0, 0) ? rlock__pg_column(result, 0) : -1;
    rlock_answer answer;
    if (outcome < 0 || outcome > 4) {
        rlock__pg_answer(pg, request, RLOCK_FAULT_OTHER, "unexpected row", false);
        return;
    }
    memset(&answer, 0, sizeof answer);
    answer.settled = rlock__pg_sure(pg, request);
    answer.outcome = outcome == 4 ? RLOCK_OUTCOME_FAULT : (rlock_outcome)outcome;
    answer.fault = RLOCK_FAULT_TYPE;
    if (outcome == 4) {
        answer.text = "the key is in use as another kind of lock";
    } else if (request->op >= RLOCK_OP_INSPECT) {
        rlock__pg_told(pg, request->op, result, &answer);
    } else if (acquire) {
        bool queued = rlock__pg_queued(request);
        answer.left_ms = rlock__pg_column(result, 1);
        answer.fence = request->fences ? (uint64_t)rlock__pg_column(result, 2) : 0;
        answer.ours = queued && PQgetvalue(result, 0, 3)[0] == 't';
        answer.watched = (request->flags & RLOCK_REQUEST_TRACK) &&
                         !queued && /* it was noted there */
                         !rlock__pg_several(request) && pg->pushing &&
                         (listened >> rlock__pg_channel(request->key, request->key_len) & 1);
    }
    if (answer.settled && answer.outcome != RLOCK_OUTCOME_FAULT) {
        request->store.note = 0; /* this attempt is over */
    }
    if (request->op == RLOCK_OP_FORCE && answer.outcome == RLOCK_OUTCOME_DONE) {
        pg->events->woken(pg->owner, request->key, request->key_len); /* our own change */
    }
    pg->events->answered(pg->owner, request, &answer);
}

/* A group that was undone: who caused it is told, the others are sent once more, before all that
 * waits. */
static inline void rlock__pg_undone(rlock__pg *pg) {
    rlock__pg_group *group = &pg->group;
    const char *code = PQresultErrorField(group->error, PG_DIAG_SQLSTATE);
    /* Else the commit failed, or what is after it; or the error is libpq's own, which has no code
     * and of which the server knows nothing. */
    bool alone = code && group->guilty < group->count;
    rlock_fault fault = alone ? rlock__pg_fault(code) : RLOCK_FAULT_UNKNOWN;
    const char *text = group->error ? rlock__pg_error(pg, group->error) : pg->unsynced;
    unsigned i = group->count;
    while (i-- > 0) {
        rlock_request *request = group->requests[i];
        if (request && alone && i != group->guilty) {
            group->requests[i] = NULL;
            request->store.stage = 0;
            rlock__pg_list_add(pg->urgent.next, &request->store.link);
        }
    }
    for (i = 0; i < group->count; i++) {
        rlock_request *request = group->requests[i];
        group->requests[i] = NULL;
        if (request) {
            rlock__pg_answer(pg, request, fault, text, alone);
        }
    }
}

/* Where many wait for one key each request takes the server long. What cannot wait, as a renewal,
 * then stands behind a group that is short. */
static inline void rlock__pg_pace(rlock__pg *pg) {
    int64_t took_us = rlock_client_now_us(pg->client) - pg->group_us;
    if (took_us > pg->timeout_us / 8) {
        pg->most = pg->most > 1 ? pg->most / 2 : 1;
    } else if (took_us < pg->timeout_us / 32 && pg->most < RLOCK__PG_GROUP) {
        pg->most *= 2;
    }
}

static inline void rlock__pg_settle(rlock__pg *pg) {
    rlock__pg_group *group = &pg->group;
    unsigned i;
    if (group->count) { /* else it was a LISTEN, or a heartbeat */
        rlock__pg_pace(pg);
    }
    for (i = 0; i < group->count && !group->failed; i++) {
        rlock_request *request = group->requests[i];
        group->requests[i] = NULL;
        if (request) {
            rlock__pg_answer_row(pg, request, group->results[i], group->listened);
        }
    }
    if (group->failed) {
        const char *code = PQresultErrorField(group->error, PG_DIAG_SQLSTATE);
        bool moved =
            code && strcmp(code, "25006") == 0; /* it is read-only: the primary is another */
        rlock__pg_undone(pg);
        if (pg->pooler) { /* the error may be its own: the session perhaps goes on */
            pg->open_epoch = pg->epoch;
            pg->epoch++;
        }
        if (moved) {
            rlock__pg_fail(pg, RLOCK_FAULT_DOWN, rlock__pg_error(pg, group->error));
        }
    }
    rlock__pg_group_clear(group);
}

/* --- the handshake --- */

/* Who a server and a session are; whether the functions are there. */
static inline int rlock__pg_know(rlock__pg *pg) {
    rlock__pg_params p;
    p.count = 0;
    rlock__pg_number(&p, PQbackendPID(pg->conn)); /* a pooler names another one */
    pg->stats->commands++;
    return PQsendQueryParams(
        pg->conn,
        "SELECT rlock.version(), extract(epoch FROM pg_postmaster_start_time())::text, "
        "(SELECT extract(epoch FROM backend_start)::text FROM pg_stat_activity "
        "WHERE pid = pg_backend_pid() AND pid = $1::int), "
        "current_setting('transaction_read_only'), pg_backend_pid() = $1::int, rlock.revision()",
        p.count, NULL, p.values, NULL, NULL, 0);
}

/* $1 is the command timeout. A row that somebody has locked is given up first: then whoever waits
 * for it is refused alone. */
#define RLOCK__PG_KEEPALIVE                                                                   \
    "SELECT set_config('client_connection_check_interval', ($1::int / 2 + 1)::text, false), " \
    "set_config('tcp_keepalives_idle', '5', false), "                                         \
    "set_config('tcp_keepalives_interval', '2', false), "                                     \
    "set_config('tcp_keepalives_count', '3', false), "

static const char *const rlock__pg_settings[] = {
    "SELECT set_config('statement_timeout', ($1::int / 2 + 1)::text, false), "
    "set_config('lock_timeout', ($1::int / 4 + 1)::text, false), "
    "set_config('default_transaction_isolation', 'read committed', false), "
    "set_config('client_min_messages', 'warning', false)", /* of a commit: rlock__pg_unsynced */
    RLOCK__PG_KEEPALIVE "$1::text",
    RLOCK__PG_KEEPALIVE "set_config('transaction_timeout', (2 * $1::int)::text, false)"};

static inline int rlock__pg_set(rlock__pg *pg, const char *sql) {
    rlock__pg_params p;
    p.count = 0;
    rlock__pg_number(&p, pg->timeout_us / 1000);
    pg->stats->commands++;
    return PQsendQueryParams(pg->conn, sql, p.count, NULL, p.values, NULL, NULL, 0);
}

/* Ends the session before this one, if it is of the same process of a server, and waits until it is
 * gone: true. Without such a session it is gone as well. Another server knows nothing: false. */
static inline int rlock__pg_end_last(rlock__pg *pg) {
    char server[64];
    rlock__pg_params p;
    size_t n = strcspn(pg->last_session, " ");
    memcpy(server, pg->last_session, n);
    server[n] = 0;
    p.count = 0;
    rlock__pg_number(&p, pg->last_pid);
    rlock__pg_text(&p, server);
    rlock__pg_text(&p, pg->last_session + n + (pg->last_session[n] != 0));
    rlock__pg_number(&p, pg->timeout_us / 2000 + 1); /* ms */
    pg->stats->commands++;
    return PQsendQueryParams(
        pg->conn,
        "SELECT CASE WHEN $3 <> '' AND extract(epoch FROM pg_postmaster_start_time())::text = $2 "
        "THEN coalesce((SELECT pg_terminate_backend(pid, $4::bigint) FROM pg_stat_activity "
        "WHERE pid = $1::int AND extract(epoch FROM backend_start)::text = $3), true) ELSE false "
        "END",
        p.count, NULL, p.values, NULL, NULL, 0);
}

static inline int rlock__pg_prepare(rlock__pg *pg) {
    char name[24], text[384];
    int i, ok = 1;
    for (i = 0; i < RLOCK__PG_STATEMENTS && ok == 1; i++) {
        snprintf(name, sizeof name, "rlock%d", i);
        snprintf(text, sizeof text, "SELECT * FROM %s", rlock__pg_sql[i]);
        ok = PQsendPrepare(pg->conn, name, text, 0, NULL);
        pg->stats->commands++;
    }
    return ok;
}

/* To the channel of its own, and to those that were wanted before. */
static inline int rlock__pg_listen_anew(rlock__pg *pg) {
    char sql[64];
    snprintf(sql, sizeof sql, "LISTEN \"rlock_%s\"", rlock_client_id(pg->client));
    pg->stats->commands++;
    return PQsendQueryParams(pg->conn, sql, 0, NULL, NULL, NULL, NULL, 0) == 1
               ? rlock__pg_say_listen(pg)
               : 0;
}

/* Whether a step is for this connection. */
static inline bool rlock__pg_takes(const rlock__pg *pg, int step) {
    bool waits =
        PQserverVersion(pg->conn) >= 140000; /* it can be waited for the end of a session */
    return step == RLOCK__PG_STEP_KNOW ||
           (!pg->pooler && (step == RLOCK__PG_STEP_CHECK      ? waits
                            : step == RLOCK__PG_STEP_END_LAST ? waits && pg->last_pid
                                                              : true));
}

static inline void rlock__pg_ready(rlock__pg *pg) {
    pg->state = RLOCK__PG_READY;
    pg->backoff_ms = 0;
    pg->pid = PQbackendPID(pg->conn);
    pg->listened = pg->asked;
    pg->stats->connects++;
    pg->ready_us = rlock_client_now_us(pg->client);
    rlock__pg_report(pg, true, NULL);
    pg->events->up(pg->owner, NULL);
    if (!pg->pooler) {
        rlock__pg_push(pg, RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
    }
}

/* Sends what the next step says. */
static inline void rlock__pg_handshake(rlock__pg *pg) {
    int ok = 1;
    while (pg->step < RLOCK__PG_STEPS && !rlock__pg_takes(pg, pg->step)) {
        if (pg->step == RLOCK__PG_STEP_END_LAST) {
            pg->open_epoch = pg->epoch - 1;
        }
        pg->step++;
    }
    switch (pg->step) {
    case RLOCK__PG_STEP_KNOW:
        pg->epoch++;
        ok = rlock__pg_know(pg);
        break;
    case RLOCK__PG_STEP_SET: ok = rlock__pg_set(pg, rlock__pg_settings[0]); break;
    case RLOCK__PG_STEP_CHECK: /* where the system cannot, the server refuses it */
        ok = rlock__pg_set(pg, rlock__pg_settings[PQserverVersion(pg->conn) >= 170000 ? 2 : 1]);
        break;
    case RLOCK__PG_STEP_END_LAST: ok = rlock__pg_end_last(pg); break;
    case RLOCK__PG_STEP_PREPARE: ok = rlock__pg_prepare(pg); break;
    case RLOCK__PG_STEP_LISTEN: ok = rlock__pg_listen_anew(pg); break;
    default: rlock__pg_ready(pg); return;
    }
    if (ok == 1) {
        rlock__pg_sync(pg);
        rlock__pg_write(pg);
    } else {
        rlock__pg_fail(pg, RLOCK_FAULT_NOMEM, PQerrorMessage(pg->conn));
    }
}

/* Without any of the functions, or without those of this client. */
static inline const char *rlock__pg_missing(const PGresult *error) {
    const char *words = PQresultErrorField(error, PG_DIAG_MESSAGE_PRIMARY);
    return words && strstr(words, "rlock.revision") ? RLOCK__PG_OLD
                                                    : "rlock_postgres.sql is not installed in this "
                                                      "database";
}

/* What the server says of itself; NULL: nothing. Returns what is wrong with it, or NULL. */
static inline const char *rlock__pg_known(rlock__pg *pg, const PGresult *result,
                                          rlock_fault *fault) {
    *fault = RLOCK_FAULT_AUTH;
    if (!result) {
        return "the server does not report the version of its rlock_postgres.sql";
    }
    if (rlock__pg_column(result, 0) != RLOCK__PG_VERSION) {
        return "rlock_postgres.sql in this database has another version than this program";
    }
    if (rlock__pg_column(result, 5) < RLOCK__PG_REVISION) {
        return RLOCK__PG_OLD;
    }
    if (!pg->pooler && PQgetvalue(result, 0, 4)[0] != 't') { /* before anything is set there */
        return "the connection goes through a pooler: connect to PostgreSQL itself, or set "
               "pooler=yes (RLOCK_POSTGRES_POOLER)";
    }
    if (strcmp(PQgetvalue(result, 0, 3), "off") != 0) {
        *fault = RLOCK_FAULT_DOWN;
        return "the server is read-only";
    }
    snprintf(pg->session, sizeof pg->session, "%s %s", PQgetvalue(result, 0, 1),
             PQgetvalue(result, 0, 2));
    return NULL;
}

/* What the server said to a step: the first of its results, or its error. */
static inline void rlock__pg_handshake_over(rlock__pg *pg) {
    rlock__pg_group *group = &pg->group;
    const PGresult *result = group->results[0];
    bool row = !group->failed && result && PQresultStatus(result) == PGRES_TUPLES_OK;
    uint8_t step = pg->step;
    if (group->failed && step != RLOCK__PG_STEP_CHECK && step != RLOCK__PG_STEP_END_LAST) {
        const char *code = PQresultErrorField(group->error, PG_DIAG_SQLSTATE);
        bool missing = code && (strcmp(code, "3F000") == 0 || strcmp(code, "42883") == 0);
        rlock_fault fault = rlock__pg_fault(code);
        const char *text = rlock__pg_error(pg, group->error);
        rlock__pg_fail(pg, fault == RLOCK_FAULT_AUTH ? fault : RLOCK_FAULT_DOWN,
                       missing ? rlock__pg_missing(group->error) : text);
        return;
    }
    if (step == RLOCK__PG_STEP_KNOW) {
        rlock_fault fault;
        const char *wrong = rlock__pg_known(pg, row ? result : NULL, &fault);
        if (wrong) {
            rlock__pg_fail(pg, fault, wrong);
            return;
        }
    } else if (step == RLOCK__PG_STEP_END_LAST) {
        if (row && PQgetvalue(result, 0, 0)[0] == 't') {
            pg->gone_epoch = pg->epoch - 1;
        } else {
            pg->open_epoch = pg->epoch - 1;
        }
    }
    rlock__pg_group_clear(group);
    pg->step++;
    rlock__pg_handshake(pg);
}

/* --- what comes --- */

static inline size_t rlock__pg_unhex(char *out, const char *hex) {
    size_t n = 0;
    unsigned byte;
    while (hex[0] && hex[1] && n < RLOCK__PG_KEY_MAX && sscanf(hex, "%2x", &byte) == 1) {
        out[n++] = (char)byte;
        hex += 2;
    }
    return n;
}

/* On the client's own channel: "token key", a hold was offered or taken away. On another one: the
 * key that changed. */
static inline void rlock__pg_notified(rlock__pg *pg, const PGnotify *notify) {
    char key[RLOCK__PG_KEY_MAX];
    const char *name = notify->relname, *rest = strchr(notify->extra, ' ');
    size_t len = rlock__pg_unhex(key, rest ? rest + 1 : notify->extra);
    pg->stats->woken++;
    if (!len || strncmp(name, "rlock_", 6) != 0) {
        return;
    }
    if (strcmp(name + 6, rlock_client_id(pg->client)) == 0) {
        uint64_t token = strtoull(notify->extra, NULL, 10);
        pg->events->notified(pg->owner, key, len, token);
    } else if (notify->be_pid != pg->pid) {
        pg->events->woken(pg->owner, key, len);
    }
}

/* A statement's result, or the end of its results; at the end of the group what it means. */
static inline void rlock__pg_result(rlock__pg *pg, PGresult *result) {
    rlock__pg_group *group = &pg->group;
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        group->out = false;
        rlock_timer_set(pg->client, &pg->timer,
                        pg->alive_us + pg->timeout_us * RLOCK__PG_HEARTBEAT);
        if (pg->state == RLOCK__PG_HANDSHAKE) {
            rlock__pg_handshake_over(pg);
            return;
        }
        if (pg->asked & ~pg->listened) {
            if (group->failed) {
                rlock_client_log(pg->client, RLOCK_LOG_WARNING, "LISTEN is refused",
                                 rlock__pg_error(pg, group->error));
                pg->wanted &= ~pg->asked;
                rlock__pg_push(pg, 0); /* waiters poll from now on */
            } else {
                pg->listened |= pg->asked; /* more may be wanted meanwhile */
            }
            pg->asked = 0;
        }
        rlock__pg_settle(pg);
        return;
    }
    if (status == PGRES_FATAL_ERROR && !group->failed) {
        group->failed = true;
        group->guilty = group->done < group->count ? group->done : group->count;
        group->error = result;
    } else if (group->done < RLOCK__PG_GROUP && !group->results[group->done] &&
               (group->done < group->count || pg->state == RLOCK__PG_HANDSHAKE)) {
        group->results[group->done] = result;
        group->count = group->done < group->count ? group->count : group->done + 1;
    } else {
        PQclear(result);
    }
}

static inline void rlock__pg_read(rlock__pg *pg) {
    int ends = 0;
    PGnotify *notify;
    if (PQconsumeInput(pg->conn) != 1) {
        rlock__pg_fail(pg, RLOCK_FAULT_DOWN, PQerrorMessage(pg->conn));
        return;
    }
    pg->alive_us = rlock_client_now_us(pg->client);
    pg->doubted = false;
    while (pg->conn && pg->group.out && !PQisBusy(pg->conn) && ends < 2) {
        PGresult *result = PQgetResult(pg->conn);
        ends = result ? 0 : ends + 1;
        if (result) {
            rlock__pg_result(pg, result);
        } else {
            pg->group.done++;
        }
    }
    if (ends >= 2) {
        rlock__pg_fail(pg, RLOCK_FAULT_DOWN, "unexpected end of results");
    }
    while (pg->conn && pg->state == RLOCK__PG_READY && (notify = PQnotifies(pg->conn)) != NULL) {
        rlock__pg_notified(pg, notify);
        PQfreemem(notify);
    }
}

static inline void rlock__pg_on_io(rlock_io *io, unsigned events) {
    rlock__pg *pg = RLOCK__PG_OF(io, rlock__pg, io);
    if (pg->state == RLOCK__PG_CONNECTS) {
        rlock__pg_poll(pg);
    } else if (pg->conn) {
        if (events & RLOCK_IO_READ) {
            rlock__pg_read(pg);
        }
        rlock__pg_write(pg);
    }
}

static inline void rlock__pg_fire(rlock_timer *timer) {
    rlock__pg *pg = RLOCK__PG_OF(timer, rlock__pg, timer);
    int64_t now_us = rlock_client_now_us(pg->client);
    if (pg->state == RLOCK__PG_DOWN) {
        rlock__pg_open_next(pg);
    } else if (pg->state < RLOCK__PG_HANDSHAKE) {
        rlock__pg_fail(pg, RLOCK_FAULT_DOWN,
                       pg->state == RLOCK__PG_NAMES ? "the name is not resolved"
                                                    : "no answer while connecting");
    } else if (pg->group.out && pg->alive_us + pg->timeout_us <= now_us) {
        if (!pg->doubted) { /* we may have slept: first a look at the socket, in the next turn */
            pg->doubted = true;
            rlock_timer_set(pg->client, timer, now_us + 10000);
        } else {
            rlock__pg_fail(pg, RLOCK_FAULT_DOWN, "the server does not answer");
        }
    } else if (pg->group.out) {
        rlock_timer_set(pg->client, timer, pg->alive_us + pg->timeout_us);
    } else if (pg->state == RLOCK__PG_READY) {
        rlock__pg_sync(pg); /* a heartbeat: nothing but its end */
        rlock__pg_write(pg);
    }
}

/* --- the store --- */

static inline void rlock__pg_submit(void *state, rlock_request *request) {
    rlock__pg *pg = (rlock__pg *)state;
    rlock_link *at = &pg->urgent;
    bool urgent =
        request->op >= RLOCK_OP_RELEASE || request->due_us <= rlock_client_now_us(pg->client);
    request->store.stage = 0;
    request->sent_us = rlock_client_now_us(pg->client);
    if (!urgent) {
        rlock_link *list = request->op == RLOCK_OP_RENEW ? &pg->renewals : &pg->acquires;
        at = list;
        while (at->prev != list &&
               RLOCK__PG_OF(at->prev, rlock_request, store.link)->due_us > request->due_us) {
            at = at->prev;
        }
    }
    rlock__pg_list_add(at, &request->store.link);
    if (pg->state == RLOCK__PG_DOWN) {
        rlock_timer_set(pg->client, &pg->timer, pg->next_us);
    }
}

static inline bool rlock__pg_forget(void *state, rlock_request *request) {
    (void)state;
    if (request->store.stage == 0) {
        rlock__pg_list_remove(&request->store.link);
        return false;
    }
    *(rlock_request **)request->store.data = NULL;
    return true;
}

/* A channel is left only with the connection: others' changes are hints like any other. */
static inline void rlock__pg_track(void *state, const char *key, size_t len, bool on) {
    rlock__pg *pg = (rlock__pg *)state;
    if (on && !pg->pooler) {
        pg->wanted |= (uint64_t)1 << rlock__pg_channel(key, len);
    }
}

static inline void rlock__pg_flush(void *state) {
    rlock__pg *pg = (rlock__pg *)state;
    if (pg->state != RLOCK__PG_READY || pg->group.out) {
        return;
    }
    if (pg->wanted & ~pg->listened) {
        rlock__pg_listen(pg);
    } else {
        rlock__pg_gather(pg);
        if (pg->group.count) {
            rlock__pg_send_group(pg);
        }
    }
    rlock__pg_write(pg);
}

static inline const char *rlock__pg_refuses(void *state, const char *key, size_t len,
                                            const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)terms, (void)fencing;
    return len > RLOCK__PG_KEY_MAX ? "in PostgreSQL a key has at most 2,000 bytes" : NULL;
}

/* The releases of all holds are sent, if the socket takes them: as one transaction, because the
 * server reads no further where it cannot deliver the answer to a Sync. Nor may it look whether its
 * client is there still: it would end in the middle of them. */
static inline void rlock__pg_farewell(rlock__pg *pg) {
    static const char stay[] = "SELECT set_config('client_connection_check_interval', '0', false)";
    bool ok = true;
    rlock__pg_group_clear(&pg->group); /* nobody is answered any more */
    if (!pg->pooler && PQserverVersion(pg->conn) >= 140000) {
        ok = PQsendQueryParams(pg->conn, stay, 0, NULL, NULL, NULL, NULL, 0) == 1;
    }
    for (rlock__pg_gather(pg); ok && pg->group.count; rlock__pg_gather(pg)) {
        unsigned i;
        for (i = 0; ok && i < pg->group.count; i++) {
            const rlock_request *request = pg->group.requests[i];
            bool last = request->op == RLOCK_OP_RELEASE || request->op == RLOCK_OP_RENEW;
            ok = !last || rlock__pg_send(pg, request); /* a renewal: of a hold that stays */
        }
        rlock__pg_group_clear(&pg->group);
    }
    if (ok && PQpipelineSync(pg->conn) == 1) {
        PQflush(pg->conn);
    }
    PQconsumeInput(pg->conn); /* a socket with unread bytes is not closed, but reset */
    if (pg->pooler) {         /* pgbouncer drops what it reads together with libpq's farewell */
        shutdown(PQsocket(pg->conn), SHUT_WR);
    }
}

static inline void rlock__pg_close(void *state) {
    rlock__pg *pg = (rlock__pg *)state;
    unsigned i;
    if (pg->state == RLOCK__PG_READY) {
        rlock__pg_farewell(pg);
    }
    if (pg->conn) {
        rlock__pg_report(pg, false, "closed by the client");
    }
    if (rlock_client_forked(pg->client)) { /* by on_event */
        return;
    }
    rlock__pg_shut(pg);
    rlock__pg_group_clear(&pg->group);
    if (pg->options) {
        PQconninfoFree(pg->options);
    }
    for (i = 0; i < RLOCK__PG_ADDRESSES; i++) {
        free(pg->hosts[i]);
        free(pg->ports[i]);
        free(pg->numerics[i]);
    }
    rlock_timer_drop(pg->client, &pg->timer);
    free(pg->fresh);
    free(pg->used);
    free(pg);
}

/* A session goes on with the credentials that it began with. */
static inline int rlock__pg_set_credentials(void *state, bool sentinels, const char *username,
                                            const char *password) {
    rlock__pg *pg = (rlock__pg *)state;
    const char *former = pg->fresh ? pg->fresh : pg->used;
    const char *user = username ? username : former ? former : "";
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
    free(pg->fresh);
    pg->fresh = fresh;
    if (pg->state == RLOCK__PG_DOWN && pg->timer.index) { /* it may have been refused */
        pg->next_us = rlock_client_now_us(pg->client);
        rlock_timer_set(pg->client, &pg->timer, pg->next_us);
    }
    return RLOCK_OK;
}

/* What is wrong with a URL, in words that show no password. */
static inline bool rlock__pg_parse(rlock__pg *pg, const char *url) {
    char *error = NULL;
    pg->options = PQconninfoParse(url, &error);
    if (getenv("PGSERVICE")) { /* libpq has no way around it */
        rlock_client_log(pg->client, RLOCK_LOG_ERROR,
                         "PGSERVICE is set, so libpq would read a file at each connection: unset "
                         "it, and name the server in the URL",
                         NULL);
        PQfreemem(error);
        return false;
    }
    if (!pg->options) {
        bool plain = error && strstr(error, "query parameter") && !strchr(error, '@') &&
                     !strstr(url, "password"); /* else it may be the rest of one */
        rlock_client_log(pg->client, RLOCK_LOG_ERROR, "the URL of PostgreSQL is not valid",
                         plain ? rlock__pg_words(pg, error) : NULL);
    } else if (!rlock__pg_hosts(pg)) {
        rlock_client_log(pg->client, RLOCK_LOG_ERROR,
                         "the URL of PostgreSQL needs 1 to 16 hosts, one port or one for each, and "
                         "no service",
                         NULL);
        PQfreemem(error);
        return false;
    }
    PQfreemem(error);
    return pg->options != NULL;
}

static inline int rlock__pg_open(const rlock_store *store, rlock_client *client,
                                 const struct rlock_config *config,
                                 const rlock_store_events *events, void *owner, void **state) {
    const rlock__pg_store *made = (const rlock__pg_store *)store->ctx;
    rlock__pg *pg = (rlock__pg *)calloc(1, sizeof *pg);
    unsigned i;
    if (!pg || rlock_timer_add(client, &pg->timer, rlock__pg_fire) != RLOCK_OK) {
        free(pg);
        return RLOCK_ERR_NOMEM;
    }
    pg->client = client;
    pg->events = events;
    pg->owner = owner;
    pg->stats = rlock_client_counters(client);
    pg->pooler = (made->flags & RLOCK_POSTGRES_POOLER) != 0;
    pg->timeout_us = config->command_timeout_ms * 1000;
    pg->offer_ms = config->command_timeout_ms;
    pg->fd = -1;
    pg->most = RLOCK__PG_GROUP;
    pg->io.ready = rlock__pg_on_io;
    for (i = 0; i < RLOCK__PG_ADDRESSES; i++) {
        pg->lookups[i].pg = pg;
        pg->lookups[i].name.resolved = rlock__pg_on_name;
    }
    rlock__pg_list_init(&pg->urgent);
    rlock__pg_list_init(&pg->renewals);
    rlock__pg_list_init(&pg->acquires);
    if (!rlock__pg_parse(pg, made->url)) {
        rlock__pg_close(pg);
        return RLOCK_ERR_ARG;
    }
    if (rlock_client_hide(client, rlock__pg_option(pg, "sslpassword")) != RLOCK_OK) {
        rlock__pg_close(pg);
        return RLOCK_ERR_NOMEM;
    }
    *state = pg;
    return RLOCK_OK;
}

/* Frees a store that rlock_postgres_new made, after the last of its clients. NULL is allowed. */
static inline void rlock_postgres_free(rlock_store *store) {
    free(store ? store->ctx : NULL);
}

/* Makes a store of the PostgreSQL that a URL, or a string of keywords, leads to, as libpq reads it
 * (https://www.postgresql.org/docs/current/libpq-connect.html, "Connection Strings"); it is copied.
 * Any number of clients, on any threads, may use it; free it after them. Flags are
 * RLOCK_POSTGRES_POOLER or 0. A URL that is wrong is refused by rlock_client_new.
 * Errors: RLOCK_ERR_ARG (out or url is NULL, flags are unknown), RLOCK_ERR_NOMEM. */
static inline int rlock_postgres_new(rlock_store **out, const char *url, unsigned flags) {
    static const rlock_store functions = {NULL,
                                          rlock__pg_open,
                                          rlock__pg_close,
                                          rlock__pg_submit,
                                          rlock__pg_forget,
                                          rlock__pg_track,
                                          rlock__pg_flush,
                                          rlock__pg_refuses,
                                          NULL,
                                          RLOCK_STORE_STAYS | RLOCK_STORE_ADOPTS,
                                          rlock__pg_set_credentials};
    rlock__pg_store *store;
    if (!out || !url || (flags & ~RLOCK_POSTGRES_POOLER)) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    store = (rlock__pg_store *)calloc(1, sizeof *store + strlen(url));
    if (!store) {
        return RLOCK_ERR_NOMEM;
    }
    store->store = functions;
    store->store.ctx = store;
    store->flags = flags;
    memcpy(store->url, url, strlen(url) + 1);
    *out = &store->store;
    return RLOCK_OK;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_POSTGRES_H */

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
