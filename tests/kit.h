/* What the tests against a real server share: one loop, an owner that writes down what it is
 * told, a waiting that has a limit, and a blocking connection for the hand of the administrator.
 * Included after rlock.h. */
#ifndef RLOCK_TESTS_KIT_H
#define RLOCK_TESTS_KIT_H

#include "rlock_poll.h"
#include "server.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define KIT_NOTHING 1000 /* no callback came: no status has this number */
#define KIT_OWNERS 1200
#define KIT_CLIENTS 32
#define KIT_KINDS 5
#define KIT_LATE_US 200000 /* of a loss that is told: ten times what a busy machine needs */

static inline int64_t kit_now_us(void) {
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ------------------------------------------------------------------------------------------------
 * The loop, and a run that ends: by what is waited for, or by its limit
 */

static rlock_poll *kit_poll;

static inline int kit_open(void) {
    signal(SIGPIPE, SIG_IGN);
    kit_poll = rlock_poll_new();
    return kit_poll != NULL ? 0 : -1;
}

static inline void kit_close(void) {
    rlock_poll_free(kit_poll);
    kit_poll = NULL;
}

/* Runs the loop until `done` says so (1), or for that long (0). */
static inline int kit_until(int (*done)(void *arg), void *arg, int64_t limit_ms) {
    int64_t limit_us = kit_now_us() + limit_ms * 1000;

    while (done == NULL || !done(arg)) {
        if (kit_now_us() >= limit_us) {
            return 0;
        }
        if (!rlock_poll_once(kit_poll, 5)) {
            server_sleep_ms(1);
        }
    }
    return 1;
}

static inline void kit_run(int64_t ms) {
    kit_until(NULL, NULL, ms);
}

/* ------------------------------------------------------------------------------------------------
 * Clients and owners. They stand in static pools: a failed test jumps away and its frame is
 * gone, its callbacks are not.
 */

struct owner {
    rlock *lock;
    int seen[KIT_KINDS], taken[KIT_KINDS]; /* callbacks by kind; those that a wait has used up */
    int status[KIT_KINDS];                 /* the last callback of each kind */
    rlock_reason reason[KIT_KINDS];
    uint64_t fence[KIT_KINDS];
    int64_t remaining_ms[KIT_KINDS], at_us[KIT_KINDS];
    char text[KIT_KINDS][96];
};

static struct owner kit_owners[KIT_OWNERS];
static rlock_client *kit_clients[KIT_CLIENTS];
static int kit_owner_count, kit_client_count;
static char kit_log_text[8192]; /* the last lines that clients wrote */

static inline void kit_log(void *user, int level, const char *line) {
    size_t len = strlen(line), have = strlen(kit_log_text);

    (void)user, (void)level;
    if (len + have + 2 > sizeof kit_log_text) {
        kit_log_text[0] = '\0';
        have = 0;
    }
    snprintf(kit_log_text + have, sizeof kit_log_text - have, "%s\n", line);
}

/* The usual configuration, on the server's unix socket. */
static inline rlock_config kit_config(const struct server *server) {
    rlock_config config;

    memset(&config, 0, sizeof config);
    config.loop = rlock_poll_loop(kit_poll);
    config.unix_path = server->socket;
    config.log = kit_log;
    return config;
}

static inline rlock_client *kit_client(const rlock_config *config) {
    rlock_client *client = NULL;
    rlock_config its = *config;
    int status;

#ifdef TESTS_CLUSTERED_H
    its = clustered_config(config);
#endif
    status = kit_client_count < KIT_CLIENTS ? rlock_client_new(&client, &its) : RLOCK_ERR_NOMEM;

    if (status != RLOCK_OK) {
        fprintf(stderr, "rlock_client_new: %s\n%s", rlock_strerror(status), kit_log_text);
        return NULL;
    }
    kit_clients[kit_client_count++] = client;
    return client;
}

static inline void owner_told(rlock *lock, const rlock_event *event, void *user) {
    struct owner *o = (struct owner *)user;
    int k = (int)event->kind;

    (void)lock;
    o->seen[k]++;
    o->status[k] = event->status;
    o->reason[k] = event->reason;
    o->fence[k] = event->fence;
    o->remaining_ms[k] = event->remaining_ms;
    o->at_us[k] = kit_now_us();
    snprintf(o->text[k], sizeof o->text[k], "%s", event->text != NULL ? event->text : "");
}

/* An owner with the options given; its key may be binary. NULL = refused. */
static inline struct owner *owner_with(rlock_client *client, rlock_options *options) {
    struct owner *o = kit_owner_count < KIT_OWNERS ? &kit_owners[kit_owner_count] : NULL;

    if (o == NULL) {
        return NULL;
    }
    memset(o, 0, sizeof *o);
    options->on_lost = owner_told;
    options->user = o;
    if (rlock_new(&o->lock, client, options) != RLOCK_OK) {
        return NULL;
    }
    kit_owner_count++;
    return o;
}

static inline struct owner *owner_new(rlock_client *client, const char *key) {
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = key;
    return owner_with(client, &options);
}

static inline struct owner *owner_fenced(rlock_client *client, const char *key) {
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = key;
    options.fencing = true;
    return owner_with(client, &options);
}

/* Frees whatever the last test has left. */
static inline void kit_reset(void) {
    while (kit_owner_count > 0) {
        rlock_free(kit_owners[--kit_owner_count].lock);
        kit_owners[kit_owner_count].lock = NULL;
    }
    while (kit_client_count > 0) {
        rlock_client_free(kit_clients[--kit_client_count]);
    }
    kit_log_text[0] = '\0';
}

struct kit_wish {
    struct owner *o;
    int kind;
};

static inline int kit_granted(void *arg) {
    struct kit_wish *w = (struct kit_wish *)arg;

    return w->o->seen[w->kind] > w->o->taken[w->kind];
}

/* Waits for one callback of that kind and gives its status; KIT_NOTHING if none comes. */
static inline int owner_wait(struct owner *o, rlock_event_kind kind, int64_t limit_ms) {
    struct kit_wish w;

    w.o = o;
    w.kind = (int)kind;
    if (!kit_granted(&w) && !kit_until(kit_granted, &w, limit_ms)) {
        return KIT_NOTHING;
    }
    o->taken[kind]++;
    return o->status[kind];
}

/* The local deadline of a hold by kit_now_us, up to a millisecond early. */
static inline int64_t owner_deadline_us(const struct owner *o) {
    int64_t now_us = kit_now_us();

    return now_us + rlock_remaining_ms(o->lock) * 1000;
}

/* The three operations, waited for: a refused call gives its own status. */
static inline int owner_acquire(struct owner *o, int64_t wait_ms, int64_t lease_ms) {
    int status = rlock_acquire(o->lock, wait_ms, lease_ms, owner_told, o);

    return status != RLOCK_OK
               ? status
               : owner_wait(o, RLOCK_ACQUIRED, wait_ms >= 0 ? wait_ms + 5000 : 15000);
}

static inline int owner_renew(struct owner *o, int64_t lease_ms) {
    int status = rlock_renew(o->lock, lease_ms, owner_told, o);

    return status != RLOCK_OK ? status : owner_wait(o, RLOCK_RENEWED, 5000);
}

static inline int owner_release(struct owner *o) {
    int status = rlock_release(o->lock, owner_told, o);

    return status != RLOCK_OK ? status : owner_wait(o, RLOCK_RELEASED, 5000);
}

static inline rlock_stats kit_stats(const rlock_client *client) {
    rlock_stats stats;

    rlock_client_stats(client, &stats);
    return stats;
}

static inline int kit_is_pushing(void *arg) {
    return kit_stats((rlock_client *)arg).pushing;
}

static inline int kit_is_up(void *arg) {
    return kit_stats((rlock_client *)arg).up;
}

static inline int kit_is_down(void *arg) {
    return !kit_stats((rlock_client *)arg).up;
}

static inline int kit_is_clean(void *arg) {
    return kit_stats((rlock_client *)arg).cleaning == 0;
}

static inline int kit_compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static inline int64_t kit_median(int64_t *values, int count) {
    qsort(values, (size_t)count, sizeof *values, kit_compare);
    return values[count / 2];
}

/* ------------------------------------------------------------------------------------------------
 * The administrator's hand: a blocking connection, made anew when it was cut.
 */

static redisContext *kit_hand;
static const struct server *kit_hand_server;

static inline void kit_hand_drop(void) {
    if (kit_hand != NULL) {
        redisFree(kit_hand);
        kit_hand = NULL;
    }
}

static inline redisContext *kit_connect(const struct server *server) {
    struct timeval patience = {5, 0};
    redisContext *c = redisConnectUnix(server->socket);

    if (c == NULL || c->err) {
        fprintf(stderr, "no connection to %s\n", server->socket);
        exit(1);
    }
    redisSetTimeout(c, patience);
    return c;
}

/* One command to the server (hiredis' format: %s, %d, %b). Free the reply. */
static inline redisReply *ask(const struct server *server, const char *format, ...) {
    redisReply *reply = NULL;
    va_list ap;
    int tries;

    for (tries = 0; reply == NULL && tries < 2; tries++) {
        if (kit_hand_server != server) {
            kit_hand_drop();
            kit_hand_server = server;
        }
        if (kit_hand == NULL) {
            kit_hand = kit_connect(server);
        }
        va_start(ap, format);
        reply = (redisReply *)redisvCommand(kit_hand, format, ap);
        va_end(ap);
        if (reply == NULL) {
            kit_hand_drop();
        }
    }
    if (reply == NULL) {
        fprintf(stderr, "no reply to %s\n", format);
        exit(1);
    }
    return reply;
}

/* A reply as a number (the length, where it is an array), and freed. */
static inline long long num(redisReply *reply) {
    long long n = reply->type == REDIS_REPLY_INTEGER ? reply->integer
                  : reply->type == REDIS_REPLY_ARRAY ? (long long)reply->elements
                  : reply->str != NULL               ? atoll(reply->str)
                                                     : -1;

    freeReplyObject(reply);
    return n;
}

/* A reply as text, good until the next call, and freed. A nil is "". */
static inline const char *str(redisReply *reply) {
    static char text[65536];

    snprintf(text, sizeof text, "%s", reply->str != NULL ? reply->str : "");
    freeReplyObject(reply);
    return text;
}

static inline void tell(redisReply *reply) {
    if (reply->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "the server said: %s\n", reply->str);
    }
    freeReplyObject(reply);
}

/* A number out of INFO: "total_reads_processed", or the calls of a command: "cmdstat_set:calls". */
static inline long long info(const struct server *server, const char *section, const char *field) {
    char name[64];
    const char *at;

    snprintf(name, sizeof name, "\n%s%c", field, strchr(field, ':') != NULL ? '=' : ':');
    at = strstr(str(ask(server, "INFO %s", section)), name);
    return at != NULL ? atoll(at + strlen(name)) : 0;
}

struct kit_key {
    const struct server *server;
    const char *key;
};

static inline int kit_key_gone(void *arg) {
    struct kit_key *k = (struct kit_key *)arg;

    return num(ask(k->server, "EXISTS %s", k->key)) == 0;
}

/* Runs the loop until the key is gone. */
static inline int key_goes(const struct server *server, const char *key, int64_t limit_ms) {
    struct kit_key k;

    k.server = server;
    k.key = key;
    return kit_until(kit_key_gone, &k, limit_ms);
}

/* `<36 characters of a UUID>:<decimal>` */
static inline int is_token(const char *text) {
    size_t i;

    for (i = 0; i < 36; i++) {
        int dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (dash ? text[i] != '-'
                 : text[i] == '\0' || strchr("0123456789abcdef", text[i]) == NULL) {
            return 0;
        }
    }
    return text[36] == ':' && text[37] != '\0' &&
           strspn(text + 37, "0123456789") == strlen(text + 37);
}

#endif
