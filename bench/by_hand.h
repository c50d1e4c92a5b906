/* The same locks as rlock's, written by hand on hiredis: what a good program without rlock does.
 * Commands of one turn leave in one write before the loop sleeps, and EPOLLOUT is asked for only
 * when the socket is full. There is no deadline, no retry, no loss, no queue. */
#ifndef RLOCK_BENCH_BY_HAND_H
#define RLOCK_BENCH_BY_HAND_H

#include "bench.h"

#define HAND_RELEASE                                \
    "local v=redis.call('GET',KEYS[1])\n"           \
    "if v~=ARGV[1] then return v and 0 or -1 end\n" \
    "return redis.call('DEL',KEYS[1])"

/* What rlock's try of a waiter does, without fencing. */
#define HAND_TRY                                                       \
    "local v=redis.call('GET',KEYS[1])\n"                              \
    "if v and v~=ARGV[1] then return redis.call('PTTL',KEYS[1]) end\n" \
    "redis.call('SET',KEYS[1],ARGV[1],'PX',ARGV[2])\n"                 \
    "return '0'"

struct hand {
    redisAsyncContext *ac;
    ev_io reads, writes;
    ev_prepare before_sleep;
    bool unsent;
    struct hand *watching;     /* the connection that invalidations come to, or NULL */
    char release[41], try[41]; /* SHA-1 */
    long long id;
};

static inline void hand_add_read(void *data) {
    ev_io_start(EV_DEFAULT, &((struct hand *)data)->reads);
}

static inline void hand_del_read(void *data) {
    ev_io_stop(EV_DEFAULT, &((struct hand *)data)->reads);
}

static inline void hand_add_write(void *data) {
    ((struct hand *)data)->unsent = true;
}

static inline void hand_del_write(void *data) {
    ((struct hand *)data)->unsent = false;
    ev_io_stop(EV_DEFAULT, &((struct hand *)data)->writes);
}

static inline void hand_cleanup(void *data) {
    struct hand *h = (struct hand *)data;

    ev_io_stop(EV_DEFAULT, &h->reads);
    ev_io_stop(EV_DEFAULT, &h->writes);
    ev_prepare_stop(EV_DEFAULT, &h->before_sleep);
}

static inline void hand_on_readable(struct ev_loop *loop, ev_io *io, int revents) {
    (void)loop, (void)revents;
    redisAsyncHandleRead(((struct hand *)io->data)->ac);
}

static inline void hand_on_writable(struct ev_loop *loop, ev_io *io, int revents) {
    (void)loop, (void)revents;
    redisAsyncHandleWrite(((struct hand *)io->data)->ac);
}

static inline void hand_before_sleep(struct ev_loop *loop, ev_prepare *prepare, int revents) {
    struct hand *h = (struct hand *)prepare->data;

    (void)revents;
    if (h->unsent && (h->ac->c.flags & REDIS_CONNECTED)) {
        redisAsyncHandleWrite(h->ac);
    }
    if (h->unsent) {
        ev_io_start(loop, &h->writes);
    }
}

static inline void hand_on_reply(redisAsyncContext *ac, void *raw, void *data) {
    struct hand *h = (struct hand *)ac->ev.data;
    redisReply *reply = (redisReply *)raw;

    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        bench_fail(reply == NULL ? ac->errstr : reply->str);
    } else if (reply->type == REDIS_REPLY_STRING && reply->len == 40 && data != NULL) {
        memcpy(data, reply->str, 41);
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        h->id = reply->integer;
    }
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

/* Setting up may be slow: a command and its answer. */
static inline void hand_ask(struct hand *h, char *sha, const char *a, const char *b,
                            const char *c) {
    const char *argv[] = {a, b, c};

    redisAsyncCommandArgv(h->ac, hand_on_reply, sha, c != NULL ? 3 : 2, argv, NULL);
    ev_run(EV_DEFAULT, 0);
}

static inline void hand_attach(struct hand *h, const struct server *s, bool tcp) {
    memset(h, 0, sizeof *h);
    h->ac = tcp ? redisAsyncConnect("127.0.0.1", s->port) : redisAsyncConnectUnix(s->socket);
    if (h->ac == NULL || h->ac->err != 0) {
        bench_fail("cannot connect by hand");
    }
    ev_io_init(&h->reads, hand_on_readable, h->ac->c.fd, EV_READ);
    ev_io_init(&h->writes, hand_on_writable, h->ac->c.fd, EV_WRITE);
    ev_prepare_init(&h->before_sleep, hand_before_sleep);
    h->reads.data = h->writes.data = h->before_sleep.data = h;
    h->ac->ev.data = h;
    h->ac->ev.addRead = hand_add_read;
    h->ac->ev.delRead = hand_del_read;
    h->ac->ev.addWrite = hand_add_write;
    h->ac->ev.delWrite = hand_del_write;
    h->ac->ev.cleanup = hand_cleanup;
    ev_prepare_start(EV_DEFAULT, &h->before_sleep);
    ev_io_start(EV_DEFAULT, &h->writes); /* it says when we are connected */
    hand_ask(h, NULL, "CLIENT", "ID", NULL);
}

static inline void hand_connect(struct hand *h, const struct server *s, bool tcp) {
    hand_attach(h, s, tcp);
    hand_ask(h, h->release, "SCRIPT", "LOAD", HAND_RELEASE);
    hand_ask(h, h->try, "SCRIPT", "LOAD", HAND_TRY);
}

/* Client tracking as rlock has it: what changes is told on another connection, to `told`. */
static inline void hand_track(struct hand *h, const struct server *s, bool tcp,
                              redisCallbackFn *told, void *data) {
    char id[24];
    const char *subscribe[] = {"SUBSCRIBE", "__redis__:invalidate"};
    const char *track[] = {"CLIENT", "TRACKING", "ON", "REDIRECT", id, "NOLOOP"};

    h->watching = (struct hand *)malloc(sizeof *h->watching);
    hand_attach(h->watching, s, tcp);
    snprintf(id, sizeof id, "%lld", h->watching->id);
    redisAsyncCommandArgv(h->watching->ac, told, data, 2, subscribe, NULL);
    redisAsyncCommandArgv(h->ac, hand_on_reply, NULL, 6, track, NULL);
    ev_run(EV_DEFAULT, 0);
}

static inline void hand_free(struct hand *h) {
    if (h->watching != NULL) {
        redisAsyncFree(h->watching->ac);
        free(h->watching);
    }
    redisAsyncFree(h->ac);
}

/* ------------------------------------------------------------------------------------------------
 * A lock by hand. Its arguments are laid out once; only the number in the token changes.
 */

#define HAND_TOKEN_LEN 37 /* as long as rlock's */

struct hand_lock {
    struct hand *hand;
    char key[24], token[64];
    size_t key_len, token_len;
};

static inline void hand_lock_init(struct hand_lock *l, struct hand *h, const char *key) {
    l->hand = h;
    l->key_len = strlen(key);
    memcpy(l->key, key, l->key_len + 1);
    snprintf(l->token, sizeof l->token, "%08x-1c2b-4a9e-8f3d-6b7c8d9e0f11:", (unsigned)getpid());
}

static inline void hand_new_token(struct hand_lock *l) {
    static uint64_t number;
    uint64_t n = ++number;
    char digits[20];
    size_t i = sizeof digits;

    do {
        digits[--i] = (char)('0' + n % 10);
        n /= 10;
    } while (n != 0);
    memcpy(l->token + HAND_TOKEN_LEN, digits + i, sizeof digits - i);
    l->token_len = HAND_TOKEN_LEN + sizeof digits - i;
}

static inline void hand_acquire(struct hand_lock *l, redisCallbackFn *done, void *data) {
    const char *argv[] = {"SET", l->key, l->token, "NX", "PX", "30000"};
    size_t len[] = {3, l->key_len, 0, 2, 2, 5};

    hand_new_token(l);
    len[2] = l->token_len;
    redisAsyncCommandArgv(l->hand->ac, done, data, 6, argv, len);
}

static inline void hand_try(struct hand_lock *l, redisCallbackFn *done, void *data) {
    const char *argv[] = {"EVALSHA", l->hand->try, "1", l->key, l->token, "30000"};
    size_t len[] = {7, 40, 1, l->key_len, 0, 5};

    hand_new_token(l);
    len[4] = l->token_len;
    redisAsyncCommandArgv(l->hand->ac, done, data, 6, argv, len);
}

static inline void hand_release(struct hand_lock *l, redisCallbackFn *done, void *data) {
    const char *argv[] = {"EVALSHA", l->hand->release, "1", l->key, l->token};
    size_t len[] = {7, 40, 1, l->key_len, l->token_len};

    redisAsyncCommandArgv(l->hand->ac, done, data, 5, argv, len);
}

#endif
