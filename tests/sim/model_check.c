/* model_check.c - the model of a server answers as a server does
 *
 * A seed is a sequence of commands made up by dice: keys, times to live, hashes, sorted sets,
 * channels, client tracking, rlock's own scripts by EVAL and EVALSHA, scripts of all kinds, wrong
 * types, arities and numbers, pipelines, broken protocol, clients that leave or are killed; and a
 * server that is out of memory, read-only, without replicas, without its master, unable to save,
 * behind a password, or that denies commands. The model runs it first; then a real private server
 * gets the same bytes on as many connections, and every reply and push of every connection must be
 * the same, error texts included. Five of them differ by nature, and `same` alone knows of them.
 * The model takes after the server that it is compared with: Redis 7.0, or Valkey 9 by
 * $RLOCK_REDIS_SERVER.
 *
 *     model_check               the seeds from 1 on, and some that were not run before
 *     model_check SEED          that one seed, with a trace; a failure prints the seed
 *     model_check SEED COUNT    so many from that one on */

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "fresh.h"
#include "model.h"
#include "server.h"
#include "whole.h"

#define SEEDS 500
#define FRESH (SEEDS / 4)
#define STEPS 60
#define LINES 4
#define ARGS_MAX 24
#define PATIENCE_MS 10000 /* for what comes at once */

/* One connection, on both sides. */
struct line {
    int fd;
    bool over;                        /* the model hung up */
    struct model_peer *peer;          /* NULL = over */
    struct model_bytes expected, got; /* by the model, from the server */
};

static struct {
    struct server server;
    int boss; /* a connection of another user, who sets what the seed wants set */
    struct model *model;
    enum model_flavour flavour; /* the server's */
    struct line lines[LINES];
    struct model_bytes trace;
    uint64_t first, count, seed, dice, compared, errors;
    unsigned leases, weather;
    const char *program;
    bool running;
} g;

/* ---- dice ---- */

static unsigned roll(unsigned sides) {
    g.dice = model__mix(g.dice);
    return (unsigned)((g.dice >> 33) % sides);
}

static int64_t wall_us(void) {
    struct timeval t;

    gettimeofday(&t, NULL);
    return (int64_t)t.tv_sec * 1000000 + t.tv_usec;
}

/* ---- the trace, and the end of a seed that failed ---- */

static void note(const char *kind, const char *bytes, size_t size) {
    char octal[8];
    size_t i;

    model__append(&g.trace, kind, strlen(kind));
    for (i = 0; i < size && i < 400; i++) {
        if (bytes[i] == '\r' && i + 1 < size && bytes[i + 1] == '\n') {
            model__append(&g.trace, " ", 1);
            i++;
        } else if (bytes[i] >= ' ' && bytes[i] <= '~') {
            model__append(&g.trace, &bytes[i], 1);
        } else {
            snprintf(octal, sizeof octal, "\\%o", (unsigned)(unsigned char)bytes[i]);
            model__append(&g.trace, octal, strlen(octal));
        }
    }
    model__append(&g.trace, "\n", 1);
}

static void failed(const char *what, const char *expected, size_t expected_size, const char *got,
                   size_t got_size) {
    size_t from = g.trace.size > 6000 && g.count != 1 ? g.trace.size - 6000 : 0;

    note("MODEL  ", expected, expected_size);
    note("SERVER ", got, got_size);
    fprintf(stderr, "%s\n%s\n", g.trace.at + from, what);
    if (g.seed != 0) {
        fprintf(stderr, "the failing seed is %llu, to see it again: %s %llu\n",
                (unsigned long long)g.seed, g.program, (unsigned long long)g.seed);
    }
    fail_msg("%s", what);
}

/* ---- RESP ---- */

/* Bytes of the first whole value; 0 = it is not all here. */
static size_t value_size(const char *at, size_t size) {
    const char *end = size > 0 ? (const char *)memchr(at, '\n', size) : NULL;
    size_t used = end != NULL ? (size_t)(end + 1 - at) : 0, one;
    long long count = end != NULL ? strtoll(at + 1, NULL, 10) : 0, i;

    if (end != NULL && *at == '$' && count >= 0) {
        used += (size_t)count + 2;
    }
    for (i = 0; end != NULL && *at == '*' && i < count; i++) {
        one = used < size ? value_size(at + used, size - used) : 0;
        if (one == 0) {
            return 0;
        }
        used += one;
    }
    return used <= size ? used : 0;
}

/* How replies and pushes begin that must have been among those compared. */
static struct {
    const char *begins;
    bool seen;
} seen[] = {{"+OK", false},
            {"-ERR", false},
            {"-WRONGTYPE", false},
            {"-NOSCRIPT", false},
            {"-NOAUTH", false},
            {"-WRONGPASS", false},
            {"-NOPERM", false},
            {"-OOM", false},
            {"-READONLY", false},
            {"-MISCONF", false},
            {"-NOREPLICAS", false},
            {"-MASTERDOWN", false},
            {"-ERR Unsupported option", false},
            {"-ERR NX and XX, GT or LT", false},
            {"-ERR GT and LT", false},
            {"*2\r\n$-1\r\n*10\r\n$", false},
            {"-ERR Protocol", false},
            {"-ERR ACL failure in script", false}, /* Valkey's, ... */
            {"-ERR The user executing", false},    /* ... Redis' */
            {"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1", false},
            {"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n$-1", false},
            {"*3\r\n$7\r\nmessage\r\n$29\r\nredisson", false},
            {":-2", false},
            {"$16\r\n1", false},
            {"$2\r\n10", false},
            {"$2\r\n11", false},
            {"*2\r\n$10\r\n1", false},
            {"+zset", false},
            {"-ERR value is not a valid float", false},
            {"-ERR min or max is not a float", false},
            {"-ERR XX and NX", false},
            {"-ERR GT, LT, and/or NX", false},
            {"-ERR INCR option", false},
            {"-ERR resulting score", false},
            {"$3\r\ninf", false},
            {"$4\r\n-inf", false},
            {"$3\r\n1.5", false},
            {"$16\r\n9007199254740992", false},
            {"$17\r\n-9007199254740992", false},
            {"*4\r\n$4\r\nme:1\r\n$", false},
            {"*6\r\n$", false},
            {"*3\r\n$7\r\nmessage\r\n$4\r\nme:1", false},
            {"*3\r\n:1\r\n:2\r\n:1", false}};

/* Whether a server of the other kind says that. */
static bool is_foreign(const char *begins) {
    return strcmp(begins, g.flavour == MODEL_VALKEY_9 ? "-ERR The user executing"
                                                      : "-ERR ACL failure in script") == 0;
}

static void look_at(const char *value) {
    unsigned i;

    for (i = 0; i < sizeof seen / sizeof *seen; i++) {
        seen[i].seen = seen[i].seen || strncmp(value, seen[i].begins, strlen(seen[i].begins)) == 0;
    }
}

static int value_count(const struct model_bytes *bytes) {
    size_t used = 0, one = 1;
    int count = 0;

    for (; used < bytes->size && one > 0; used += one) {
        one = value_size(bytes->at + used, bytes->size - used);
        count += one > 0;
    }
    return count;
}

/* Milliseconds left, and seconds or microseconds of the wall clock: the two servers looked at it
 * at two moments. No other number that the dice make up is so large but by chance the same. But as
 * a text, where no time left comes, scores do: those stay clear of the wall clock. */
static bool near_times(char kind, int64_t a, int64_t b) {
    int64_t apart = a > b ? a - b : b - a;

    return (a >= 1000000000000000 && b >= 1000000000000000 && a < 8000000000000000 &&
            apart <= 5000000) ||
           (kind == '$' ? a >= 1000000000 && a < 10000000000 && apart <= 5000
                        : a >= 50000 && b >= 50000 && apart <= 5000);
}

static bool is_server_info(struct model_arg text) {
    const char *id = text.size > 9 && memcmp(text.at, "# Server\r", 9) == 0
                         ? strstr(text.at, "\r\nrun_id:")
                         : NULL;

    return id != NULL && strspn(id + 9, "0123456789abcdef") == 40;
}

/* Who a server is, and whose data it has; what else a real one says does not matter. */
static bool told_alike(struct model_arg a, struct model_arg b, const char *name, bool same) {
    const char *left = strstr(a.at, name), *right = strstr(b.at, name);
    size_t head = strlen(name);

    if (left == NULL || right == NULL || left > a.at + a.size || right > b.at + b.size) {
        return false;
    }
    return same ? strncmp(left, right, strcspn(left, "\r")) == 0
                : strspn(left + head, "0123456789abcdef") == 40 &&
                      strspn(right + head, "0123456789abcdef") == 40;
}

static bool is_replication_info(struct model_arg a, struct model_arg b) {
    return a.size > 14 && memcmp(a.at, "# Replication\r", 14) == 0 && b.size > 14 &&
           memcmp(b.at, "# Replication\r", 14) == 0 && told_alike(a, b, "\r\nrole:", true) &&
           told_alike(a, b, "\r\nmaster_replid:", false) &&
           told_alike(a, b, "\r\nmaster_replid2:", false);
}

static struct model_arg bulk_of(const char *at) {
    struct model_arg arg;

    arg.at = strchr(at, '\n') + 1;
    arg.size = (size_t)strtoll(at + 1, NULL, 10);
    return arg;
}

/* What COMMAND INFO tells of a command, up to its arity; 0 = it is something else. */
static size_t told_size(const char *at) {
    size_t used = strncmp(at, "*10\r\n$", 6) == 0 ? 5 : 0;

    return used == 0 ? 0 : (size_t)(strchr(strstr(at, "\r\n:") + 2, '\n') + 1 - at);
}

/* Whether two whole values are the same, but for five things: the time left and the time, as
 * above; the microseconds that TIME gives behind the seconds; INFO, whose one line that counts
 * must be there; a command of COMMAND INFO behind its arity. */
static bool same(const char *a, size_t a_size, const char *b, size_t b_size, bool behind_seconds) {
    struct model_arg left, right;
    int64_t x, y;
    long long count, i;
    size_t used_a, used_b, one_a, one_b;

    if (a_size == b_size && memcmp(a, b, a_size) == 0) {
        return true;
    }
    if (*a != *b || strchr("$:*", *a) == NULL || a[1] == '-' || b[1] == '-') {
        return false;
    }
    if (*a == '$' || *a == ':') {
        left = right = (struct model_arg){a + 1, a_size - 3};
        right.at = b + 1;
        right.size = b_size - 3;
        if (*a == '$') {
            left = bulk_of(a);
            right = bulk_of(b);
        }
        return (is_server_info(left) && is_server_info(right)) ||
               is_replication_info(left, right) ||
               (model__integer(left, &x) && model__integer(right, &y) &&
                (near_times(*a, x, y) || (behind_seconds && x < 1000000 && y < 1000000)));
    }
    if (told_size(a) > 0 && told_size(a) == told_size(b)) {
        return memcmp(a, b, told_size(a)) == 0;
    }
    count = strtoll(a + 1, NULL, 10);
    used_a = (size_t)(strchr(a, '\n') + 1 - a);
    used_b = (size_t)(strchr(b, '\n') + 1 - b);
    for (i = 0; i < count && strtoll(b + 1, NULL, 10) == count; i++) {
        one_a = value_size(a + used_a, a_size - used_a);
        one_b = value_size(b + used_b, b_size - used_b);
        if (!same(a + used_a, one_a, b + used_b, one_b,
                  i == 1 && count == 2 && strncmp(a, "*2\r\n$10\r\n", 9) == 0)) {
            return false;
        }
        used_a += one_a;
        used_b += one_b;
    }
    return i == count;
}

/* ---- the model's side ---- */

static void on_send(void *ctx, void *user, const char *bytes, size_t size) {
    (void)ctx;
    model__append(&((struct line *)user)->expected, bytes, size);
}

static void on_hang_up(void *ctx, void *user) {
    struct line *line = (struct line *)user;

    (void)ctx;
    line->peer = NULL;
    line->over = true;
}

static const struct model_hooks plain_hooks = {NULL, on_send, on_hang_up, NULL};

/* ---- the server's side ---- */

static int dial(const struct server *server) {
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    memcpy(a.sun_path, server->socket, sizeof server->socket);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void send_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);

        if (n <= 0) {
            return; /* closed: the reading says so */
        }
        bytes += n;
        size -= (size_t)n;
    }
}

/* Reads on: 1, or 0 when the server closed, or -1 when nothing comes. */
static int receive(int fd, struct model_bytes *into, int patience_ms) {
    struct pollfd ask = {fd, POLLIN, 0};
    char bytes[16384];
    ssize_t n;

    if (poll(&ask, 1, patience_ms) <= 0) {
        return -1;
    }
    n = recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0) {
        return 0;
    }
    model__append(into, bytes, (size_t)n);
    return 1;
}

static void put_command(struct model_bytes *out, int argc, const struct model_arg *argv) {
    int i;

    model__put_count(out, '*', argc);
    for (i = 0; i < argc; i++) {
        model__put_bulk(out, argv[i].at, argv[i].size);
    }
}

static int split(const char *text, struct model_arg *argv) {
    int argc = 0;

    while (*text != '\0' && argc < ARGS_MAX) {
        argv[argc].at = text;
        argv[argc].size = strcspn(text, " ");
        text += argv[argc].size;
        text += *text == ' ';
        argc++;
    }
    return argc;
}

/* A command of the other user, as redis-cli takes it; the reply is good until the next one. */
static const char *boss(const char *command) {
    static struct model_bytes reply;

    send_all(g.boss, command, strlen(command));
    send_all(g.boss, "\r\n", 2);
    model__assign(&reply, "", 0);
    while (value_size(reply.at, reply.size) == 0) {
        assert_int_equal(receive(g.boss, &reply, PATIENCE_MS), 1);
    }
    return reply.at;
}

static void boss_ok(const char *command) {
    const char *reply = boss(command);

    if (strncmp(reply, "+OK", 3) != 0) {
        fail_msg("%s: %s", command, reply);
    }
}

/* ---- lines ---- */

/* The newest connection's id on the server is its id in the model. */
static void line_open(struct line *line) {
    const char *id;

    line->fd = dial(&g.server);
    line->over = false;
    line->expected.size = line->got.size = 0;
    model__append(&line->got, "", 0);
    boss("ECHO accepted");
    for (id = boss("CLIENT LIST"); strstr(id, "\nid=") != NULL; id = strstr(id, "\nid=") + 4) {
    }
    g.model->last_id = strtoull(id, NULL, 10) - 1;
    line->peer = model_accept(g.model, line);
}

static void line_close(struct line *line) {
    close(line->fd);
    if (line->peer != NULL) {
        model_leave(line->peer);
        line->peer = NULL;
    }
    boss("ECHO noticed");
}

/* What the model said must come from the server, in that order; and no more than that. */
static void line_compare(struct line *line) {
    size_t one, other;
    int count = value_count(&line->expected);

    while (value_count(&line->got) < count) {
        int got = receive(line->fd, &line->got, PATIENCE_MS);

        if (got <= 0) {
            failed(got == 0 ? "the server closed" : "the server says less", line->expected.at,
                   line->expected.size, line->got.at, line->got.size);
        }
    }
    while (count-- > 0) {
        one = value_size(line->expected.at, line->expected.size);
        other = value_size(line->got.at, line->got.size);
        g.compared++;
        look_at(line->expected.at);
        g.errors += *line->expected.at == '-';
        note("       ", line->expected.at, one);
        if (!same(line->expected.at, one, line->got.at, other, false)) {
            failed("they differ", line->expected.at, one, line->got.at, other);
        }
        line->expected.size -= one;
        line->got.size -= other;
        memmove(line->expected.at, line->expected.at + one, line->expected.size);
        memmove(line->got.at, line->got.at + other, line->got.size);
    }
}

/* Nothing else is on the way: whoever is served later has been answered. */
static void line_is_silent(struct line *line) {
    int got;

    do {
        got = receive(line->fd, &line->got, line->over ? PATIENCE_MS : 0);
    } while (got > 0);
    if (line->got.size > 0) {
        failed("the server says more", "", 0, line->got.at, line->got.size);
    }
    if ((got == 0) != line->over) {
        failed(line->over ? "the server did not close" : "the server closed", "", 0, "", 0);
    }
}

/* Compares all that was said; then, that no more was. */
static void compare_all(void) {
    int i;

    for (i = 0; i < LINES; i++) {
        line_compare(&g.lines[i]);
    }
    boss("ECHO once");  /* what was sent before has been executed, */
    boss("ECHO twice"); /* and what the server had to say is written */
    for (i = 0; i < LINES; i++) {
        line_is_silent(&g.lines[i]);
        if (g.lines[i].over) {
            line_close(&g.lines[i]);
            line_open(&g.lines[i]);
        }
    }
}

/* ---- what the dice choose from ---- */

#define ARG(text) \
    { text, sizeof(text) - 1 }

/* As many in a line as it holds. */
/* clang-format off */
static const struct model_arg keys[] = {
    ARG("lock"), ARG("lock"), ARG("lock"), ARG("b{1}"), ARG("{lock}:fence"), ARG("b{1}:fence"),
    ARG("other"), ARG(""), ARG("x\0\r\ny"), ARG("{lock}:queue"), ARG("b{1}:queue")};
static const struct model_arg queues[] = {
    ARG("{lock}:queue"), ARG("{lock}:queue"), ARG("{lock}:queue"), ARG("b{1}:queue"),
    ARG("b{1}:queue"), ARG("lock")};
static const struct model_arg members[] = {
    ARG("me:1"), ARG("me:2"), ARG("you:1"), ARG("me:"), ARG("me:11"), ARG(""), ARG("a\0\r\nb")};
static const struct model_arg scores[] = {
    ARG("0"), ARG("1"), ARG("1"), ARG("2"), ARG("-1"), ARG("-7"), ARG("1.5"), ARG("-2.5"),
    ARG("+3"), ARG("007"), ARG("1e3"), ARG("1763000000000"), ARG("1763000000000.5"), ARG("-0"),
    ARG("9007199254740991"), ARG("9007199254740992"), ARG("-9007199254740992"),
    ARG("-9007199254740992"), ARG("-9007199254740992"), ARG("inf"), ARG("inf"),
    ARG("-inf"), ARG("+INF"), ARG("nan"), ARG("x"), ARG(""), ARG(" 4"), ARG("4 "), ARG("0x10"),
    ARG("1\0"), ARG("1e400")};
static const struct model_arg bounds[] = {
    ARG("-inf"), ARG("-inf"), ARG("+inf"), ARG("+inf"), ARG("inf"), ARG("0"), ARG("1"), ARG("(1"),
    ARG("(1"), ARG("1.5"), ARG("(1.5"), ARG("(-2.5"), ARG("2"), ARG("(2"), ARG("1763000000000"),
    ARG("(9007199254740992"), ARG("(-inf"), ARG("(inf"), ARG("("), ARG(""), ARG("x"), ARG("(x"),
    ARG("[1"), ARG("nan"), ARG(" 1"), ARG("1 "), ARG("0x1"), ARG("((1"), ARG("1\0x")};
static const struct model_arg places[] = {
    ARG("0"), ARG("0"), ARG("1"), ARG("2"), ARG("3"), ARG("-1"), ARG("-1"), ARG("-2"), ARG("-5"),
    ARG("x"), ARG("9223372036854775807"), ARG("-9223372036854775808"), ARG("9223372036854775808")};
static const struct model_arg zadds[] = {
    ARG("NX"), ARG("xx"), ARG("XX"), ARG("GT"), ARG("gt"), ARG("LT"), ARG("CH"), ARG("INCR"),
    ARG("GTX")};
static const struct model_arg locks[] = {ARG("lock"), ARG("lock"), ARG("b{1}")};
static const struct model_arg values[] = {
    ARG("1"), ARG("41"), ARG("-7"), ARG("abc"), ARG(""), ARG("a\0\r\nb"), ARG("007"), ARG("+3"),
    ARG(" 4"), ARG("-0"), ARG("1.5"), ARG("9223372036854775807"), ARG("-9223372036854775808"),
    ARG("9223372036854775808"), ARG("me:1"), ARG("me:2")};
static const struct model_arg owners[] = {
    ARG("me:1"), ARG("me:2"), ARG("you:1")};
static const struct model_arg channels[] = {
    ARG("__redis__:invalidate"), ARG("redisson_lock__channel:{lock}"), ARG("c\r\nd"), ARG("me:1"),
    ARG("me:1"), ARG("me:2")};
static const struct model_arg databases[] = {
    ARG("0"), ARG("0"), ARG("1"), ARG("2"), ARG("15"), ARG("16"), ARG("-1"), ARG("x")};
static const struct model_arg passwords[] = {ARG("secret"), ARG("secret"), ARG("wrong"), ARG("")};
static const struct model_arg users[] = {ARG("default"), ARG("default"), ARG("nobody")};
static const struct model_arg numbers[] = {ARG("0"), ARG("1"), ARG("2"), ARG("-1"), ARG("x")};
static const struct model_arg options[] = {ARG("GT"), ARG("gt"), ARG("LT"), ARG("XX"), ARG("NX"),
                                           ARG("GTX"), ARG("")};
static const struct model_arg told[] = {
    ARG("delifeq"), ARG("DelIfEq"), ARG("get"), ARG("PEXPIRE"), ARG("client|kill"), ARG("client|x"),
    ARG("nothing"), ARG("evalsha"), ARG("x|y|z"), ARG("|"), ARG(""), ARG("get|"), ARG("a\0\r\nb"),
    ARG("zadd"), ARG("zrange"), ARG("ZREM"), ARG("zremrangebyscore")};
/* Times that are none, or have passed: what ends soon would end at two moments. */
static const struct model_arg times[] = {
    ARG("0"), ARG("-1"), ARG("x"), ARG(""), ARG("1.5"), ARG("9223372036854775807"),
    ARG("-9223372036854775808")};

/* What a letter behind % stands for; the rest of them are made up in draw_word. */
static const struct {
    char letter;
    const struct model_arg *words;
    unsigned count;
} pools[] = {
#define POOL(letter, words) \
    { letter, words, sizeof(words) / sizeof *(words) }
    POOL('k', keys),     POOL('v', values),    POOL('o', owners),
    POOL('c', channels), POOL('d', databases), POOL('p', passwords),
    POOL('u', users),    POOL('n', numbers),   POOL('m', times),
    POOL('x', options),  POOL('r', told),      POOL('q', queues),
    POOL('a', members),  POOL('z', scores),    POOL('b', bounds),
    POOL('j', places),   POOL('y', zadds),     POOL('h', locks)};

/* %l a lease, %t a moment, %i a client's id, %w that of the last line, %s the SHA-1 of one of
 * rlock's scripts. */
static const char *const commands[] = {
    "GET %k", "GET %k", "MGET %k %k %k", "MGET",
    "PTTL %k", "PTTL %k", "EXISTS %k %k", "TYPE %k", "SET %k %v",
    "SET %k %o PX %l", "SET %k %o NX PX %l", "SET %k %o NX PX %l", "SET %k %o PX %l NX",
    "SET %k %v XX", "SET %k %v KEEPTTL", "SET %k %v EX 300", "SET %k %v XX KEEPTTL",
    "SET %k %v PX %m", "SET %k %v NX XX", "SET %k %v PX", "SET %k %v EX %m",
    "SET %k %v PX 300000 KEEPTTL", "DEL %k", "DEL %k", "DEL %k %k", "UNLINK %k", "PEXPIRE %k %l",
    "PEXPIRE %k %m", "PEXPIRE %k %m", "PEXPIREAT %k %t", "PEXPIREAT %k %v", "PERSIST %k",
    "PEXPIRE %k %l %x", "PEXPIRE %k %l GT", "PEXPIRE %k %l GT", "PEXPIRE %k %m %x",
    "PEXPIREAT %k %t %x", "PEXPIRE %k %l %x %x", "PEXPIRE %k %l LT GT",
    "PEXPIRE %k %l XX %x", "DELIFEQ %k %o",
    "DELIFEQ %k %o", "DELIFEQ %k %o", "DELIFEQ %k %v", "DELIFEQ %k", "COMMAND INFO %r %r",
    "COMMAND INFO %r delifeq", "COMMAND NOTHING %r",
    "INCR %k", "INCR %k", "HSET %k %o 1", "HSET %k %o %v %v %v", "HGET %k %o", "HEXISTS %k %o",
    "HINCRBY %k %o 1", "HINCRBY %k %o %v", "HDEL %k %o", "HDEL %k %o %o", "HGETALL %k",
    "LPUSH %k a b", "TIME", "PING", "PING %v", "ECHO %v", "DBSIZE", "FLUSHALL", "FLUSHDB ASYNC",
    "FLUSHDB %v", "WAIT x 1", "WAIT 0 %v", "SELECT %d", "SELECT 0", "INFO server", "INFO",
    "INFO replication",
    "INFO nothing", "AUTH %p", "AUTH %u %p", "CLIENT ID", "CLIENT GETNAME", "CLIENT SETNAME %v",
    "CLIENT SETNAME me", "CLIENT KILL ID %i", "CLIENT KILL ID %n", "CLIENT KILL ID %i SKIPME %v",
    "CLIENT KILL ID %i SKIPME no", "CLIENT KILL %v", "CLIENT GETREDIR",
    "CLIENT TRACKING ON REDIRECT %i NOLOOP", "CLIENT TRACKING ON REDIRECT %i NOLOOP",
    "CLIENT TRACKING ON REDIRECT %i", "CLIENT TRACKING ON REDIRECT %i", "CLIENT TRACKING ON",
    "CLIENT TRACKING on REDIRECT %n", "CLIENT TRACKING ON REDIRECT %i REDIRECT %i",
    "CLIENT TRACKING OFF", "CLIENT TRACKING %v", "CLIENT TRACKING ON %v", "CLIENT REPLY ON",
    "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY %v", "CLIENT %v", "CLIENT", "SCRIPT",
    "SCRIPT FLUSH", "SCRIPT FLUSH %v", "SCRIPT EXISTS %s %s", "SCRIPT NOTHING",
    "NOTHING %v %v %v", "QUIT", "PUBLISH %c %v", "PUBLISH %c %v", "SUBSCRIBE %c", "SUBSCRIBE %c",
    "SUBSCRIBE %c %c", "UNSUBSCRIBE", "UNSUBSCRIBE %c", "UNSUBSCRIBE %c %c",
    "EVALSHA %s 1 %k %o %l", "EVALSHA %s %n %k %o", "EVALSHA %v 0", "EVALSHA %v %v"};

/* Of sorted sets. */
static const char *const sorted[] = {
    "ZADD %q %z %a", "ZADD %q %z %a", "ZADD %q 1 %a 2 %a", "ZADD %q 3 %a -1 %a %z %a",
    "ZADD %q NX %z %a", "ZADD %q XX %z %a", "ZADD %q GT %z %a", "ZADD %q LT %z %a",
    "ZADD %q %y %z %a", "ZADD %q %y %y %z %a", "ZADD %q XX GT %z %a", "ZADD %q CH XX LT %z %a",
    "ZADD %q %y INCR %z %a", "ZADD %q GT INCR 0 %a", "ZADD %q LT INCR 0 %a",
    "ZADD %q INCR %z %a %z %a", "ZADD %q %z %a %z", "ZADD %q NX XX",
    "ZADD %q XX NX %z %a", "ZADD %q GT LT %z %a", "ZADD %q GT NX %z %a", "ZADD %q %z %a GT",
    "ZADD %k %z %a", "ZREM %q %a", "ZREM %q %a %a %a", "ZREM %k %a",
    "ZSCORE %q %a", "ZSCORE %q %a", "ZSCORE %k %a", "ZCARD %q", "ZCARD %k", "ZRANK %q %a",
    "ZRANK %q %a", "ZRANK %k %a", "ZCOUNT %q %b %b", "ZCOUNT %q -inf %b", "ZCOUNT %q %b +inf",
    "ZCOUNT %k %b %b", "ZRANGE %q 0 -1 WITHSCORES", "ZRANGE %q 0 -1", "ZRANGE %q %j %j",
    "ZRANGE %q %j %j WithScores", "ZRANGE %q %j %j %v", "ZRANGE %k %j %j", "ZRANGE %q 0 0",
    "ZRANGEBYSCORE %q %b %b", "ZRANGEBYSCORE %q -inf %b WITHSCORES",
    "ZRANGEBYSCORE %q %b inf LIMIT %j %j", "ZRANGEBYSCORE %q -inf inf LIMIT 0 0",
    "ZRANGEBYSCORE %q -inf inf LIMIT %j %j WITHSCORES",
    "ZRANGEBYSCORE %q %b %b withscores limit 0 1", "ZRANGEBYSCORE %q %b %b LIMIT %j",
    "ZRANGEBYSCORE %q %b %b %v", "ZRANGEBYSCORE %k %b %b", "ZREMRANGEBYSCORE %q %b %b",
    "ZREMRANGEBYSCORE %q -inf (1.5", "ZREMRANGEBYSCORE %q -inf 1", "ZREMRANGEBYSCORE %k %b %b",
    "ZINCRBY %q 1 %a", "ZINCRBY %q %n %a", "ZINCRBY %q 0.5 %a", "ZINCRBY %q -inf %a",
    "ZINCRBY %q %z %a", "ZINCRBY %k 1 %a", "DEL %q", "TYPE %q", "EXISTS %q %q", "PTTL %q",
    "PEXPIRE %q %l", "PEXPIRE %q %l GT", "PERSIST %q", "MGET %q %k %q", "GET %q", "HGETALL %q",
    "HDEL %q %o", "SET %q %v", "LPUSH %q a", "PUBLISH %a %v"};

/* On a connection that has subscribed, for the most part. */
static const char *const heard[] = {
    "PING", "PING %v", "SUBSCRIBE %c", "SUBSCRIBE %c %c", "UNSUBSCRIBE", "UNSUBSCRIBE %c",
    "UNSUBSCRIBE %c", "QUIT", "GET %k"};

/* Each gets KEYS[1], ARGV[1] and ARGV[2]. */
static const char *const snippets[] = {
    "return 1", "return 3.99", "return -3.99", "return '1'", "return true", "return false",
    "return nil", "return", "return {}", "return {1,2,nil,3}",
    "return {1,{2,'x',{}},false,true}", "return {ok='fine'}", "return {err='MINE it is'}",
    "return {err='short'}", "return {ok='a\r\nb'}", "return {err='a\r\nb'}", "return {ok=1}",
    "return {err=1, 5}", "return {{err='INNER one'}, {ok='two'}}",
    "return redis.error_reply('MINE it is')", "return redis.error_reply('short')",
    "return redis.error_reply('-MINE it is')", "return redis.error_reply('-short')",
    "return redis.error_reply(1)", "return redis.error_reply()",
    "return redis.status_reply('fine')", "return redis.status_reply(1)", "return 1, 2",
    "return redis.sha1hex('abc')", "return redis.sha1hex('')", "return redis.sha1hex()",
    "return redis.sha1hex(string.rep('x', 55)) .. redis.sha1hex(string.rep('x', 64))",
    "error('boom')", "error('boom', 0)", "error('a\nb')", "error({err='TEA pot'})", "error(5)",
    "local t = nil return t.x", "local t = {} return t.x.y", "x = 1", "return x", "return 1 +",
    "foo bar", "return redis.call()", "return redis.call({})", "return redis.pcall()",
    "return redis.pcall('GET', nil)", "return redis.call('GET', true)",
    "return redis.call('nothing')", "return redis.pcall('nothing')", "return redis.call('GET')",
    "return redis.call('EVAL', 'return 1', 0)", "return redis.call('SUBSCRIBE', 'c')",
    "redis.call('SET', KEYS[1], 1.5) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 1e15) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 0.1) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], 2^53) return redis.call('GET', KEYS[1])",
    "redis.call('SET', KEYS[1], -1e300) return redis.call('GET', KEYS[1])", "return KEYS",
    "return ARGV", "return {KEYS, ARGV}", "return #ARGV", "return tostring(1e15)",
    "return type(redis.call('GET', KEYS[1]))", "return type(redis.pcall('nothing'))",
    "return redis.pcall('GET', KEYS[1]).err", "return redis.pcall('nothing').err",
    "local ok, e = pcall(redis.call, 'nothing') return {tostring(ok), type(e), e.err}",
    "local ok, e = pcall(error, 'x') return e", "return string.format('%.0f', 1600000000123456)",
    "return {redis.call('SELECT', 1), redis.call('SET', 'n', '1'), redis.call('DBSIZE')}",
    "return 9007199254740993", "return setmetatable({}, {__index = function() return 1 end})",
    "return loadstring('return 7')()", "return tonumber('0x10')", "return string.rep('x', 70)",
    "return ARGV[1] + 1", "return ARGV[3]", "return ARGV[1] .. KEYS[2]", "return print",
    "redis.call('SET', KEYS[1], ARGV[1]) error('after')",
    "redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return 1",
    "redis.call('SET', KEYS[1], ARGV[1]) redis.call('GET', KEYS[1]) return 1",
    "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], ARGV[1])",
    "redis.call('PEXPIRE', KEYS[1], ARGV[2]) return redis.call('PTTL', KEYS[1])",
    "redis.call('GET', KEYS[1]) return redis.call('PEXPIRE', KEYS[1], ARGV[2], 'GT')",
    "local r = redis.pcall('PEXPIRE', KEYS[1], ARGV[2], 'GT') redis.call('PTTL', KEYS[1]) return r",
    "local r = redis.pcall('DELIFEQ', KEYS[1], ARGV[1]) return type(r) == 'table' and r.err or r",
    "return redis.call('COMMAND', 'INFO', 'delifeq')",
    "redis.pcall('DEL', KEYS[1]) return {redis.pcall('SET', KEYS[1], ARGV[1])}",
    "local r = {} for i, c in ipairs(ARGV) do r[i] = redis.pcall('GET', c) end return r",
    "return {redis.pcall('GET', KEYS[1]), redis.pcall('HGETALL', KEYS[1])}",
    "local t = redis.call('TIME') return t[1] * 1000000 + t[2]", "return redis.call('TIME')",
    "return redis.call('PUBLISH', 'redisson_lock__channel:{lock}', ARGV[1])",
    "redis.call('HSET', KEYS[1], ARGV[1], 1) return redis.call('HGETALL', KEYS[1])",
    "for i = 1, 3 do redis.call('INCR', KEYS[1]) end return redis.call('GET', KEYS[1])"};

/* The same for sorted sets, and for what a script tells others. */
static const char *const queueing[] = {
    "redis.call('ZADD', KEYS[1], 2, 'b', 1, 'a') return redis.call('ZRANGE', KEYS[1], 0, "
    "-1, 'WITHSCORES')",
    "local s = redis.call('ZINCRBY', KEYS[1], 1.5, ARGV[1]) return {type(s), s, "
    "redis.call('ZSCORE', KEYS[1], ARGV[1])}",
    "redis.call('ZADD', KEYS[1], 2^53, 'me:1') return redis.call('ZSCORE', KEYS[1], 'me:1') + 0",
    "redis.call('ZADD', KEYS[1], -1/0, 'me:1', 1/0, 'me:2') return redis.call('ZRANGE', "
    "KEYS[1], 0, -1, 'WITHSCORES')",
    "return {redis.call('ZSCORE', KEYS[1], 'nobody'), redis.call('ZRANK', KEYS[1], 'me:1')}",
    "return type(redis.pcall('ZRANK', KEYS[1], 'nobody'))",
    "local n = redis.call('ZADD', KEYS[1], 5, ARGV[1]) return {n, redis.call('ZREM', "
    "KEYS[1], ARGV[1], 'me:1'), redis.call('TYPE', KEYS[1])}",
    "redis.call('ZADD', KEYS[1], 'inf', ARGV[1]) return redis.pcall('ZINCRBY', KEYS[1], '-inf', "
    "ARGV[1])",
    "redis.call('ZADD', KEYS[1], 2^62, 'a', 2^63, 'b', 1.5e-6, 'c', 3.3e-5, 'd', 1/3, 'e', 5e15, "
    "'f', 1e20, 'g', 1.25e23, 'h', 2^70, 'i', 1.2345678901234568e23, 'j', -2^62, 'k') return "
    "redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
    "return {redis.call('ECHO', 2^53 - 2), redis.call('ECHO', -1/3), redis.call('ECHO', 2^64), "
    "redis.call('ECHO', -12.34e-6), redis.call('ECHO', 1.5e300), redis.call('ECHO', 1e-5), "
    "redis.call('ECHO', -12345.678e-7), redis.call('ECHO', 1e17), redis.call('ECHO', 1e-7)}",
    "return redis.call('TYPE', KEYS[1]).ok",
    "local t = redis.call('TIME') return redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', t[1])",
    "local t = redis.call('TIME') redis.call('ZADD', KEYS[1], t[1] + ARGV[2], ARGV[1]) "
    "return redis.call('ZCOUNT', KEYS[1], t[1], 'inf')",
    "local m = redis.call('ZRANGE', KEYS[1], 0, 0)[1] return m and redis.call('PUBLISH', m, "
    "ARGV[1]) or 'none'",
    "local m = redis.call('ZRANGEBYSCORE', KEYS[1], '(0', '+inf', 'LIMIT', 0, 1)[1] if m "
    "then redis.call('ZREM', KEYS[1], m) return {redis.call('PUBLISH', m, KEYS[1]), m} end",
    "for _, m in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do if redis.call('PUBLISH', "
    "m, 'x') > 0 then return m end redis.call('ZREM', KEYS[1], m) end",
    "local a = redis.call('PUBLISH', 'me:1', 'a') redis.call('DEL', KEYS[1]) local b = "
    "redis.call('PUBLISH', '__redis__:invalidate', 'b') redis.pcall('ZADD', KEYS[1], 1, "
    "ARGV[1]) return {a, b, redis.call('PUBLISH', 'me:1', 'c')}",
    "redis.call('GET', KEYS[1]) local a = redis.call('PUBLISH', 'me:1', 'a') "
    "redis.call('SET', KEYS[1], 'v') return {a, redis.call('PUBLISH', 'me:1', 'b')}",
    "redis.call('ZADD', KEYS[1], 1, ARGV[1]) redis.call('ZRANGE', KEYS[1], 0, -1) return "
    "redis.call('PUBLISH', 'me:1', ARGV[1])",
    "return {redis.pcall('ZADD', KEYS[1], ARGV[1], 'me:1'), redis.pcall('ZREM', KEYS[1], 'me:1')}",
    "return {redis.pcall('PUBLISH', 'me:1', 'x'), redis.pcall('PUBLISH', 'nobody', 'x'), "
    "redis.pcall('PUBLISH', 'x')}",
    "return {1, 2, redis.call('ZADD', KEYS[1], 'NX', 1, 'me:1')}",
    "local n = 0 for i = 1, 3 do n = n + redis.call('ZADD', KEYS[1], 'GT', i, ARGV[1]) end "
    "return {n, redis.call('ZCARD', KEYS[1])}"};

/* Run whatever command follows. */
static const char *const wrappers[] = {
    "return redis.call(unpack(ARGV))", "return redis.pcall(unpack(ARGV))",
    "return {redis.pcall(unpack(ARGV)), redis.pcall(unpack(ARGV))}",
    "redis.pcall('SET', 'other', 1) return redis.call(unpack(ARGV))",
    "local r = redis.pcall(unpack(ARGV)) return type(r) == 'table' and {r.ok, r.err, #r, r} or r"};

static const struct model_arg garbage[] = {
    ARG("*1\r\n:1\r\n"), ARG("*x\r\n"), ARG("*1\r\n$x\r\n"), ARG("*1\r\n$-1\r\n"),
    ARG("*2147483648\r\n"), ARG("*2\r\n$3\r\nGET\r\nlock\r\n"), ARG("*01\r\n$4\r\nPING\r\n"),
    ARG("*1\r\n$600000000\r\n"), ARG("*11\r\n$4\r\nPING\r\n$x\r\n"),
    ARG("*2\r\n$4\r\nPING\r\n$20000\r\n$\r\n")};
/* clang-format on */

#define COUNT(list) ((unsigned)(sizeof(list) / sizeof *(list)))

/* ---- commands made up ---- */

struct command {
    struct model_arg argv[ARGS_MAX];
    char made[ARGS_MAX][48]; /* the words that are made up */
    int argc;
};

/* No two of a seed are the same, so that no millisecond decides which of them is longer. */
static unsigned next_lease(void) {
    return 60000 + 1000 * (g.leases++ * 37 % 101);
}

static void draw_word(struct command *c, char letter) {
    struct model_arg *arg = &c->argv[c->argc];
    char *made = c->made[c->argc];
    unsigned i;

    for (i = 0; i < COUNT(pools); i++) {
        if (pools[i].letter == letter) {
            *arg = pools[i].words[roll(pools[i].count)];
        }
    }
    made[0] = '\0';
    if (letter == 'l') {
        snprintf(made, 48, "%u", next_lease());
    } else if (letter == 't') {
        snprintf(made, 48, "%lld", (long long)wall_us() / 1000 + 200000 + next_lease());
    } else if (letter == 'i') {
        const struct line *line = &g.lines[roll(10) ? LINES - 1 - roll(2) : roll(LINES)];

        snprintf(made, 48, "%llu", line->peer ? (unsigned long long)line->peer->id : 1);
    } else if (letter == 'w') {
        snprintf(made, 48, "%llu", (unsigned long long)g.lines[LINES - 1].peer->id);
    } else if (letter == 's') {
        snprintf(made, 48, "%s", by_sha(rlock__scripts[roll(2)][roll(3)]) + strlen(BY_SHA));
    }
    if (made[0] != '\0') {
        arg->at = made;
        arg->size = strlen(made);
    }
    c->argc++;
}

static void add_word(struct command *c, const char *word) {
    c->argv[c->argc].at = word;
    c->argv[c->argc].size = strlen(word);
    c->argc++;
}

static void draw_words(struct command *c, const char *words) {
    struct model_arg split_words[ARGS_MAX];
    int i, count = split(words, split_words);

    for (i = 0; i < count && c->argc < ARGS_MAX; i++) {
        if (split_words[i].at[0] == '%') {
            draw_word(c, split_words[i].at[1]);
        } else {
            c->argv[c->argc++] = split_words[i];
        }
    }
}

static void draw_script(struct command *c, const char *script, const char *count) {
    draw_words(c, roll(3) ? "EVALSHA" : "EVAL");
    add_word(c, c->argv[0].size == 4 ? whole(script) : by_sha(script) + strlen(BY_SHA));
    add_word(c, count);
}

/* One of rlock's scripts as rlock calls it, by its text or by its name. */
static void draw_rlock(struct command *c) {
    unsigned wire = roll(2), op = roll(3), key = roll(4);
    bool fence = op == RLOCK_OP_ACQUIRE && roll(2);

    draw_script(c, rlock__scripts[wire][op], fence ? "2" : "1");
    c->argv[c->argc++] = keys[key];
    if (fence) {
        c->argv[c->argc++] = keys[key < 3 ? 4 : 5];
    }
    draw_words(c, op == RLOCK_OP_ACQUIRE        ? "%o %l"
                  : op == RLOCK_OP_RENEW        ? "%o %l %l"
                  : wire == RLOCK_WIRE_REDISSON ? "%o %c"
                                                : "%o");
    if (fence) {
        add_word(c, roll(2) ? "1" : "257");
    }
}

/* A renewal of some keys at a time: most are somebody else's, or no lock. */
static void draw_many(struct command *c) {
    static const char *const ways[] = {"%h %h me: %l %l 1 2",  "%h %h me: %l %l 2 1",
                                       "%h %h you: %l %l 1 1", "%h %h me: %l %l 1 1",
                                       "%k %k me: %m %l 1 1",  "%k %k m %l %l e:1"};

    draw_script(c, rlock__lua_string_renew_many, "2");
    draw_words(c, ways[roll(COUNT(ways))]);
}

static void draw_command(struct command *c, bool subscribed) {
    unsigned kind = roll(100);

    c->argc = 0;
    if (subscribed && roll(8)) {
        kind = 99;
    }
    if (kind < 25) {
        (roll(5) ? draw_rlock : draw_many)(c);
        return;
    }
    if (kind < 33) {
        add_word(c, "EVAL");
        add_word(c, snippets[roll(COUNT(snippets))]);
        draw_words(c, roll(12) ? "1 %k %v %l" : "%v %k %v %l");
        return;
    }
    if (kind < 40) {
        add_word(c, "EVAL");
        add_word(c, queueing[roll(COUNT(queueing))]);
        draw_words(c, roll(12) ? "1 %q %a %l" : "1 %k %v %l");
        return;
    }
    if (kind < 42) {
        draw_words(c, "SCRIPT LOAD");
        add_word(c, roll(2) ? whole(rlock__scripts[roll(2)][roll(3)])
                            : snippets[roll(COUNT(snippets))]);
        return;
    }
    if (kind < 57) {
        add_word(c, "EVAL");
        add_word(c, wrappers[roll(COUNT(wrappers))]);
        add_word(c, "0");
    }
    draw_words(c, subscribed ? heard[roll(COUNT(heard))]
                  : roll(3)  ? commands[roll(COUNT(commands))]
                             : sorted[roll(COUNT(sorted))]);
    if (roll(25) == 0 && c->argc > 1) {
        c->argc--;
    } else if (roll(25) == 0 && c->argc < ARGS_MAX) {
        add_word(c, "x");
    }
}

static bool begins(const struct command *c, const char *first, const char *second) {
    return model__is(c->argv[0], first) &&
           (second == NULL || (c->argc > 1 && model__is(c->argv[1], second)));
}

/* ---- the weather: what the server refuses for a while ---- */

static const struct {
    const char *name, *on, *off;
    size_t flag; /* in struct model */
} skies[] = {
    {"oom", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", offsetof(struct model, oom)},
    {"readonly", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", offsetof(struct model, readonly)},
    {"noreplicas", "CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0",
     offsetof(struct model, noreplicas)},
    {"misconf", "CONFIG SET save '3600 1000000'", "CONFIG SET save ''",
     offsetof(struct model, misconf)},
    {"masterdown", "CONFIG SET replica-serve-stale-data no",
     "CONFIG SET replica-serve-stale-data yes", offsetof(struct model, masterdown)},
    {"password", "CONFIG SET requirepass secret", "CONFIG SET requirepass ''", 0},
    {"denied", NULL, "ACL SETUSER default +@all", 0}};

enum { SKY_READONLY = 1, SKY_MASTERDOWN = 4, SKY_PASSWORD, SKY_DENIED };

static const char *const deniable[] = {"client",    "client|kill", "client|tracking",
                                       "client|id", "publish",     "evalsha",
                                       "eval",      "info",        "get",
                                       "pttl",      "set",         "pexpire",
                                       "del",       "hset",        "script",
                                       "subscribe", "time",        "script|load",
                                       "auth",      "ping",        "zadd",
                                       "zincrby",   "zrange",      "zrem"};

/* Masters are not down for who is none: that one takes the replica's sky along. */
static void sky_iteration(unsigned which, bool on) {
    char command[64];

    if (which == SKY_DENIED && on) {
        g.model->denied[0] = deniable[roll(COUNT(deniable))];
        snprintf(command, sizeof command, "ACL SETUSER default -%s", g.model->denied[0]);
        boss_ok(command);
    } else {
        boss_ok(on ? skies[which].on : skies[which].off);
        g.model->denied[0] = which == SKY_DENIED ? NULL : g.model->denied[0];
    }
    if (which == SKY_PASSWORD) {
        g.model->password = on ? "secret" : NULL;
    } else if (skies[which].flag != 0) {
        *(bool *)((char *)g.model + skies[which].flag) = on;
    }
    g.weather ^= 1u << which;
    note(on ? "ON     " : "OFF    ", skies[which].name, strlen(skies[which].name));
    if (which == SKY_MASTERDOWN && on != ((g.weather >> SKY_READONLY & 1) != 0)) {
        sky_iteration(SKY_READONLY, on);
    } else if (which == SKY_READONLY && !on && (g.weather >> SKY_MASTERDOWN & 1)) {
        sky_iteration(SKY_MASTERDOWN, false);
    }
}

static void sky_clears(void) {
    unsigned i;

    for (i = 0; i < COUNT(skies); i++) {
        if (g.weather >> i & 1) {
            sky_iteration(i, false);
        }
    }
}

/* ---- one seed ---- */

/* Any split of the bytes is the same to the model. */
static void run_in_model(struct line *line, const struct model_bytes *bytes) {
    size_t done = 0, piece;

    g.model->wall_us = wall_us();
    while (done < bytes->size && line->peer != NULL) {
        piece = roll(2) ? bytes->size - done : 1 + roll((unsigned)(bytes->size - done));
        model_feed(line->peer, bytes->at + done, piece);
        done += piece;
    }
}

/* A server closes behind its last word: where it may not answer, it forgets to. */
static bool may_end(const struct line *line) {
    return !line->peer->silent && !line->peer->skip;
}

static void run_pipeline(struct line *line, int count) {
    static struct model_bytes bytes, all;
    struct command c;

    all.size = 0;
    while (count-- > 0 && line->peer != NULL) {
        draw_command(&c, line->peer->channels.count > 0);
        if ((begins(&c, "client", "kill") && (all.size > 0 || !may_end(line))) ||
            (begins(&c, "quit", NULL) && !may_end(line)) ||
            (begins(&c, "unsubscribe", NULL) && c.argc == 1 && line->peer->channels.count > 1)) {
            continue; /* who is killed may not have been told; channels end in any order */
        }
        bytes.size = 0;
        put_command(&bytes, c.argc, c.argv);
        note(line == g.lines       ? "0 >    "
             : line == g.lines + 1 ? "1 >    "
             : line == g.lines + 2 ? "2 >    "
                                   : "3 >    ",
             bytes.at, bytes.size);
        model__append(&all, bytes.at, bytes.size);
        run_in_model(line, &bytes);
        count = begins(&c, "client", "kill") ? 0 : count;
    }
    send_all(line->fd, all.at, all.size);
}

static void run_garbage(struct line *line) {
    struct model_arg words = garbage[roll(COUNT(garbage))];
    struct model_bytes bytes = {NULL, 0, 0};

    model__append(&bytes, words.at, words.size);
    note("! >    ", bytes.at, bytes.size);
    run_in_model(line, &bytes);
    send_all(line->fd, bytes.at, bytes.size);
    model__release(&bytes);
}

/* A key that both servers have lost when they are asked next: they lose it when they look. */
static void run_out_of_time(struct line *line) {
    static const char *const ways[] = {
        "SET %k %o PX 2", "PEXPIRE %k 2",
        "EVAL redis.call('PEXPIRE',KEYS[1],2)redis.call('PTTL',KEYS[1]) 1 %k"};
    struct model_bytes bytes = {NULL, 0, 0};
    struct command c;
    int64_t until_ms;

    c.argc = 0;
    draw_words(&c, ways[roll(COUNT(ways))]);
    put_command(&bytes, c.argc, c.argv);
    note("short >", bytes.at, bytes.size);
    run_in_model(line, &bytes);
    send_all(line->fd, bytes.at, bytes.size);
    model__release(&bytes);
    boss("ECHO executed");
    until_ms = wall_us() / 1000 + 2;
    while (wall_us() / 1000 <= until_ms) {
        server_sleep_ms(1);
    }
}

static void step(bool stormy) {
    unsigned kind = roll(100);
    struct line *line = &g.lines[roll(4) ? roll(LINES - 1) : LINES - 1];

    if (kind < 2) {
        line_close(line);
        note("left", "", 0);
        line_open(line);
    } else if (kind < 4) {
        run_out_of_time(line);
    } else if (kind < 5 && may_end(line)) {
        run_garbage(line);
    } else if (kind < 13 && stormy) {
        unsigned which = roll(COUNT(skies));

        sky_iteration(which, !(g.weather >> which & 1));
    } else {
        run_pipeline(line, roll(4) ? 1 : 1 + (int)roll(4));
    }
    compare_all();
}

/* Some begin with what locks do: a watcher, and a reader that is told of changes. */
static void tell(struct line *line, const char *words) {
    struct model_bytes bytes = {NULL, 0, 0};
    struct command c;

    c.argc = 0;
    draw_words(&c, words);
    put_command(&bytes, c.argc, c.argv);
    note("tell > ", bytes.at, bytes.size);
    run_in_model(line, &bytes);
    send_all(line->fd, bytes.at, bytes.size);
    model__release(&bytes);
    compare_all();
}

/* What the commands left behind. */
static void compare_keys(struct line *line) {
    static const char *const asked[] = {"TYPE", "PTTL", "GET", "HGETALL", "ZRANGE"};
    static const char *const dbs[] = {"0", "1", "2", "15"};
    struct command c;
    struct model_bytes all = {NULL, 0, 0};
    unsigned i, j, db;

    for (db = 0; db < COUNT(dbs); db++) {
        c.argc = 0;
        add_word(&c, "SELECT");
        add_word(&c, dbs[db]);
        put_command(&all, c.argc, c.argv);
        for (i = 0; i < COUNT(keys); i++) {
            for (j = 0; j < COUNT(asked); j++) {
                c.argc = 0;
                add_word(&c, asked[j]);
                c.argv[c.argc++] = keys[i];
                draw_words(&c, j == COUNT(asked) - 1 ? "0 -1 WITHSCORES" : "");
                put_command(&all, c.argc, c.argv);
            }
        }
    }
    note("left behind", "", 0);
    run_in_model(line, &all);
    send_all(line->fd, all.at, all.size);
    model__release(&all);
    compare_all();
}

static void lines_open(void) {
    int i;

    for (i = 0; i < LINES; i++) {
        line_open(&g.lines[i]);
    }
}

static void lines_close(void) {
    int i;

    for (i = 0; i < LINES; i++) {
        line_close(&g.lines[i]);
    }
}

static void run_seed(uint64_t seed) {
    int i;

    g.running = true;
    g.seed = seed;
    g.dice = model__mix(seed);
    g.leases = 0;
    g.trace.size = 0;
    boss_ok("FLUSHALL");
    boss_ok("SCRIPT FLUSH");
    g.model = model_new(&plain_hooks, seed);
    g.model->flavour = g.flavour;
    lines_open();
    if (roll(4)) {
        tell(&g.lines[3],
             roll(2) ? "SUBSCRIBE __redis__:invalidate" : "SUBSCRIBE __redis__:invalidate me:1");
        tell(&g.lines[2], "SUBSCRIBE redisson_lock__channel:{lock}");
        tell(&g.lines[0], "CLIENT TRACKING ON REDIRECT %i NOLOOP");
        tell(&g.lines[1], "CLIENT TRACKING ON REDIRECT %i");
    }
    for (i = 0; i < STEPS; i++) {
        step(seed % 2 == 0);
    }
    sky_clears();
    line_close(&g.lines[0]);
    line_open(&g.lines[0]);
    compare_keys(&g.lines[0]);
    lines_close();
    model_free(g.model);
    g.running = false;
}

/* The seeds have seen it all; else they prove less than they say. */
static void every_kind_was_seen(void) {
    unsigned i;

    for (i = 0; i < COUNT(seen); i++) {
        if (!seen[i].seen && !is_foreign(seen[i].begins)) {
            fail_msg("no reply of the kind %s", seen[i].begins);
        }
    }
}

static void seeds_answer_as_a_server_does(void **state) {
    uint64_t i, fresh;

    (void)state;
    for (i = 0; i < g.count; i++) {
        run_seed((g.first != 0 ? g.first : 1) + i);
    }
    if (g.first == 0) {
        fresh = fresh_from(1000000, 4000000000);
        print_message("fresh seeds %llu..%llu, of this commit\n", (unsigned long long)fresh,
                      (unsigned long long)(fresh + FRESH - 1));
        for (i = 0; i < FRESH; i++) {
            run_seed(fresh + i);
        }
        g.count += FRESH;
    }
    if (g.count == 1) {
        fputs(g.trace.at, stderr);
    }
    if (g.first == 0) {
        every_kind_was_seen();
    }
    print_message("%llu seeds, %llu replies and pushes compared, %llu of them errors\n",
                  (unsigned long long)g.count, (unsigned long long)g.compared,
                  (unsigned long long)g.errors);
}

/* ---- what no dice decide ---- */

static void world_begins(void) {
    g.running = true;
    g.seed = 0;
    g.trace.size = 0;
    g.dice = 1;
    boss_ok("FLUSHALL");
    g.model = model_new(&plain_hooks, 1);
    g.model->flavour = g.flavour;
    lines_open();
}

static void world_ends(void) {
    lines_close();
    model_free(g.model);
    g.running = false;
}

/* The server expires keys that nobody looks at, and says so: to NOLOOP readers too, as it was not
 * they who did it. */
static void expiry_is_pushed_without_a_look(void **state) {
    int64_t due;

    (void)state;
    world_begins();
    tell(&g.lines[3], "SUBSCRIBE __redis__:invalidate");
    tell(&g.lines[0], "CLIENT TRACKING ON REDIRECT %w NOLOOP");
    tell(&g.lines[0], "SET lock me PX 700");
    tell(&g.lines[0], "GET lock");
    due = model_next_expiry(g.model);
    assert_true(due > g.model->wall_us && due <= g.model->wall_us + 702000);
    g.model->wall_us = due - 1;
    model_tick(g.model);
    assert_int_equal(g.lines[3].expected.size, 0);
    boss_ok("DEBUG SET-ACTIVE-EXPIRE 1");
    g.model->wall_us = due;
    model_tick(g.model);
    assert_true(g.lines[3].expected.size > 0);
    compare_all(); /* waits for it */
    assert_int_equal(model_next_expiry(g.model), -1);
    tell(&g.lines[0], "GET lock");
    boss_ok("DEBUG SET-ACTIVE-EXPIRE 0");
    world_ends();
}
/* What a script publishes comes before what it made its own client's watcher hear. */
static void own_invalidations_come_behind_the_script(void **state) {
    (void)state;
    world_begins();
    tell(&g.lines[3], "SUBSCRIBE c");
    tell(&g.lines[0], "CLIENT TRACKING ON REDIRECT %w");
    tell(&g.lines[0], "SET lock me");
    tell(&g.lines[0], "GET lock");
    tell(&g.lines[0], "EVAL redis.call('DEL','lock')return{redis.call('PUBLISH','c','x')} 0");
    world_ends();
}

/* Who listens for both hears what a script publishes, and which keys of other readers it changed,
 * in the order in which it did so. */
static void script_is_heard_in_its_order(void **state) {
    static const char eval[] =
        "EVAL local\tn={redis.call('PUBLISH','c','1')}redis.call('ZREM','q','a')"
        "n[2]=redis.call('PUBLISH','c','2')redis.call('ZADD','q',2,'b')redis.call('DEL','lock')"
        "n[3]=redis.call('PUBLISH','c','3')n[4]=redis.call('PUBLISH','d','4')return\tn 2 q lock";

    (void)state;
    world_begins();
    tell(&g.lines[3], "SUBSCRIBE __redis__:invalidate c");
    tell(&g.lines[2], "SUBSCRIBE c");
    tell(&g.lines[0], "CLIENT TRACKING ON REDIRECT %w NOLOOP");
    tell(&g.lines[0], "ZADD q 1 a");
    tell(&g.lines[0], "SET lock me");
    tell(&g.lines[0], "ZRANGE q 0 -1");
    tell(&g.lines[0], "GET lock");
    tell(&g.lines[1], eval);
    tell(&g.lines[3], "UNSUBSCRIBE c");
    tell(&g.lines[0], "ZSCORE q b");
    tell(&g.lines[1], eval);
    tell(&g.lines[3], "UNSUBSCRIBE __redis__:invalidate");
    tell(&g.lines[0], "ZCARD q");
    tell(&g.lines[1], "ZREMRANGEBYSCORE q -inf +inf");
    tell(&g.lines[1], "EXISTS q");
    world_ends();
}

/* A read of a sorted set makes its reader hear of each write, one that changes nothing excepted. */
static void sorted_sets_are_tracked(void **state) {
    static const char *const reads[] = {"ZSCORE q a",      "ZCARD q",        "ZRANK q a",
                                        "ZCOUNT q 0 0",    "ZRANGE q 5 6",   "ZRANGEBYSCORE q 8 9",
                                        "ZSCORE q nobody", "ZRANK q nobody", "TYPE q"};
    static const char *const writes[] = {"ZADD q 1 a",    "ZADD q XX 1 c",
                                         "ZADD q NX 9 a", "ZADD q GT 0 a",
                                         "ZADD q 2 a",    "ZINCRBY q 0 a",
                                         "ZINCRBY q 1 a", "ZREM q nobody",
                                         "ZADD q 1 b",    "ZREMRANGEBYSCORE q 8 9",
                                         "PEXPIRE q %l",  "ZREM q b",
                                         "PERSIST q",     "ZREM q a b",
                                         "ZREM q a"};
    unsigned i, j;

    (void)state;
    world_begins();
    tell(&g.lines[3], "SUBSCRIBE __redis__:invalidate");
    tell(&g.lines[0], "CLIENT TRACKING ON REDIRECT %w NOLOOP");
    for (i = 0; i < COUNT(reads); i++) {
        for (j = 0; j < COUNT(writes); j++) {
            tell(&g.lines[0], reads[i]);
            tell(&g.lines[1], writes[j]);
        }
    }
    world_ends();
}

/* A server that loads says so to most commands. The order in which it looks is its own: with a
 * password, or denied commands. */
static void loading_is_answered_alike(void **state) {
    static const char *const asked[] = {"GET lock",
                                        "SET lock 1",
                                        "PING",
                                        "ECHO x",
                                        "TIME",
                                        "INFO server",
                                        "INFO replication",
                                        "CLIENT ID",
                                        "DBSIZE",
                                        "WAIT 0 0",
                                        "SELECT 1",
                                        "SCRIPT FLUSH",
                                        "SCRIPT EXISTS x",
                                        "EVALSHA x 0",
                                        "EVAL x 0",
                                        "CLIENT SETNAME x",
                                        "NOTHING",
                                        "PUBLISH c x",
                                        "CLIENT REPLY x",
                                        "GET",
                                        "CLIENT TRACKING ON",
                                        "DEL lock",
                                        "CLIENT KILL ID 99",
                                        "SCRIPT LOAD x",
                                        "SUBSCRIBE c"};
    int reloading = dial(&g.server);
    char path[128];
    unsigned i;

    (void)state;
    world_begins();
    snprintf(path, sizeof path, "%s/dump.rdb", g.server.dir);
    assert_int_equal(rmdir(path), 0);
    boss_ok("DEBUG POPULATE 6000 filler 100");
    boss_ok("CONFIG SET key-load-delay 500");
    send_all(reloading, "DEBUG RELOAD\r\n", 14);
    while (strncmp(boss("PING"), "-LOADING", 8) != 0) {
        server_sleep_ms(1);
    }
    g.model->loading = true;
    for (i = 0; i < COUNT(asked); i++) {
        tell(&g.lines[0], asked[i]);
    }
    boss_ok("CONFIG SET key-load-delay 0");
    while (strncmp(boss("PING"), "-LOADING", 8) == 0) {
        server_sleep_ms(1);
    }
    close(reloading);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    world_ends();
}

/* ---- what the simulator needs of it, and no server has ---- */

struct witness {
    struct line lines[2];
    struct model_bytes touched; /* "name=key " for each */
};

static void on_touched(void *ctx, void *by, const char *key, size_t size) {
    struct witness *w = (struct witness *)ctx;

    model__append(&w->touched, by != NULL ? (const char *)by : "nobody", by != NULL ? 1 : 6);
    model__append(&w->touched, "=", 1);
    model__append(&w->touched, key, size);
    model__append(&w->touched, " ", 1);
}

static void ignore_send(void *ctx, void *user, const char *bytes, size_t size) {
    struct witness *w = (struct witness *)ctx;

    model__append(&w->lines[*(const char *)user - 'a'].expected, bytes, size);
}

static void note_hang_up(void *ctx, void *user) {
    ((struct witness *)ctx)->lines[*(const char *)user - 'a'].over = true;
}

static const char *call(struct model *m, int db, const char *command) {
    static char copy[256];
    const char *argv[ARGS_MAX];
    char *word;
    int argc = 0;

    snprintf(copy, sizeof copy, "%s", command);
    for (word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    return model_call(m, db, argc, argv);
}

static struct model *witnessed(struct witness *w) {
    struct model_hooks hooks = {w, ignore_send, note_hang_up, on_touched};

    memset(w, 0, sizeof *w);
    return model_new(&hooks, 7);
}

static void forget(struct witness *w, struct model *m) {
    model__release(&w->touched);
    model__release(&w->lines[0].expected);
    model__release(&w->lines[1].expected);
    model_free(m);
}

static void touched_tells_which_key_and_whose_doing(void **state) {
    static const char set[] =
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    struct witness w;
    struct model *m = witnessed(&w);
    struct model_peer *a = model_accept(m, (char *)(uintptr_t) "a");

    (void)state;
    m->stranger = (char *)(uintptr_t) "z";
    model_feed(a, set, sizeof set - 1);
    call(m, 0, "SET l v PX 5");
    call(m, 0, "DEL k nothing");
    m->wall_us = model_next_expiry(m);
    model_tick(m);
    call(m, 3, "EVAL redis.call('INCR','n')redis.call('DEL','n') 0");
    call(m, 3, "ZADD q XX 1 a");
    call(m, 3, "ZADD q 1 a");
    call(m, 3, "ZREM q b");
    call(m, 3, "ZREM q a b");
    assert_string_equal(w.touched.at, "a=k z=l z=k nobody=l z=n z=n z=q z=q ");
    forget(&w, m);
}

static void copy_brings_every_database_back(void **state) {
    struct witness w;
    struct model *m = witnessed(&w);
    struct model_value value;
    struct model_copy *copy;
    struct model_arg names[2];

    (void)state;
    call(m, 0, "SET k v PX 1000");
    call(m, 2, "HSET h f 1 g 2");
    call(m, 5, "ZADD q 2.5 a 1 c 1 b");
    copy = model_save(m);
    call(m, 0, "FLUSHALL");
    call(m, 2, "SET other 1");
    call(m, 5, "ZADD q 9 a");
    model_load(m, copy);
    model_copy_free(copy);
    assert_true(model_get(m, 0, "k", 1, &value));
    assert_int_equal(value.type, MODEL_STRING);
    assert_memory_equal(value.bytes, "v", 1);
    assert_int_equal(value.expires_us, 1001000);
    assert_true(model_get(m, 2, "h", 1, &value));
    assert_int_equal(value.type, MODEL_HASH);
    assert_int_equal(value.count, 2);
    assert_memory_equal(value.fields[1].name.at, "g", 1);
    assert_int_equal(value.expires_us, -1);
    assert_int_equal(model_keys(m, 2, names, 2), 1);
    assert_memory_equal(names[0].at, "h", 1);
    assert_true(model_get(m, 5, "q", 1, &value));
    assert_int_equal(value.type, MODEL_ZSET);
    assert_int_equal(value.count, 3);
    assert_memory_equal(value.fields[0].name.at, "b", 1);
    assert_true(value.fields[2].score > 2.4 && value.fields[2].score < 2.6);
    m->wall_us = 1001000;
    assert_false(model_get(m, 0, "k", 1, &value));
    assert_int_equal(model_keys(m, 0, names, 2), 0);
    forget(&w, m);
}

static void restart_is_another_process(void **state) {
    struct witness w;
    struct model *m = witnessed(&w);
    struct model_value value;
    char run_id[41];

    (void)state;
    model_accept(m, (char *)(uintptr_t) "a");
    model_accept(m, (char *)(uintptr_t) "b");
    memcpy(run_id, m->run_id, sizeof run_id);
    call(m, 0, "SET k v");
    assert_string_equal(call(m, 0, "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0"),
                        "-NOSCRIPT No matching script. Please use EVAL.\r\n");
    call(m, 0, "EVAL return\t1 0");
    model_restart(m, true);
    assert_true(w.lines[0].over && w.lines[1].over);
    assert_string_not_equal(run_id, m->run_id);
    assert_int_equal(m->scripts.count, 0);
    assert_true(model_get(m, 0, "k", 1, &value));
    assert_int_equal(model_accept(m, (char *)(uintptr_t) "a")->id, 1);
    model_restart(m, false);
    assert_false(model_get(m, 0, "k", 1, &value));
    forget(&w, m);
}

/* Redis 5 as its sources have it: none is here to be asked. */
static void old_server_knows_no_tracking(void **state) {
    struct witness w;
    struct model *m = witnessed(&w);

    (void)state;
    m->flavour = MODEL_REDIS_5;
    assert_string_equal(call(m, 0, "CLIENT TRACKING ON"),
                        "-ERR Unknown subcommand or wrong number of arguments for 'TRACKING'. Try "
                        "CLIENT HELP.\r\n");
    assert_string_equal(call(m, 0, "HELLO 3"),
                        "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n");
    assert_string_equal(call(m, 0, "AUTH x"), "-ERR Client sent AUTH, but no password is set\r\n");
    assert_string_equal(call(m, 0, "ZADD q GT 1 a"), "-ERR syntax error\r\n");
    assert_string_equal(call(m, 0, "ZADD q NX CH 1 a"), ":1\r\n");
    m->password = "secret";
    assert_string_equal(call(m, 0, "AUTH x"), "-ERR invalid password\r\n");
    assert_string_equal(call(m, 0, "AUTH secret"), "+OK\r\n");
    forget(&w, m);
}

/* Redis 6 as a 6.0.16 was seen to answer: what is younger than it, and the words of its scripts. */
static void redis_6_knows_no_options_of_pexpire(void **state) {
    static const char *const said[][2] = {
        {"PEXPIRE k 1 GT", "-ERR wrong number of arguments for 'pexpire' command\r\n"},
        {"PEXPIRE k 1", ":0\r\n"},
        {"DELIFEQ k v", "-ERR unknown command `DELIFEQ`, with args beginning with: `k`, `v`, \r\n"},
        {"COMMAND INFO delifeq get",
         "*2\r\n$-1\r\n*7\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*0\r\n"},
        {"EVAL return\tredis.pcall('PEXPIRE','k','1','GT') 0",
         "-@user_script: 1: Wrong number of args calling Redis command From Lua script\r\n"},
        {"EVAL return\tredis.call('PEXPIRE','k','1','GT') 0",
         "-ERR Error running script (call to f_c86c6b11300431b3338a5486dca8a6de5992ceed): "
         "@user_script:1: @user_script: 1: Wrong number of args calling Redis command From Lua "
         "script\r\n"},
        {"LPUSH l v", ":1\r\n"},
        {"EVAL return\tredis.pcall('GET','l') 0",
         "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"}};
    struct witness w;
    struct model *m = witnessed(&w);
    unsigned i;

    (void)state;
    m->flavour = MODEL_REDIS_6;
    for (i = 0; i < COUNT(said); i++) {
        assert_string_equal(call(m, 0, said[i][0]), said[i][1]);
    }
    m->oom = true;
    assert_string_equal(
        call(m, 0, "EVAL return\tredis.call('SET','k','v') 0"),
        "-ERR Error running script (call to f_b6a35ac85e36ac481e00a60ed80893d9430702f8): "
        "@user_script:1: @user_script: 1: -OOM command not allowed when used memory > "
        "'maxmemory'.\r\n");
    forget(&w, m);
}

/* A script about a line, as rlock sends it; ARGV[1] is the operation, `more` what follows. */
static const char *line_call(struct model *m, rlock_op op, const char *member, const char *more) {
    static char copy[256], number[2];
    const char *argv[ARGS_MAX] = {"EVAL",
                                  whole(rlock__scripts[RLOCK__ROW_QUEUE][op]),
                                  "3",
                                  "k",
                                  "rlock:{k}:queue",
                                  "rlock:{k}:fence",
                                  number,
                                  member,
                                  "1",
                                  "1000",
                                  "rlock:"};
    int argc = 11;
    char *word;

    snprintf(number, sizeof number, "%d", (int)op);
    snprintf(copy, sizeof copy, "%s", more);
    for (word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        argv[argc++] = strcmp(word, "none") == 0 ? "" : word;
    }
    return model_call(m, 0, argc, argv);
}

/* What is there already goes on where there is no memory, whatever the server's version knows. */
static void line_goes_on_on_each_server_that_is_full(void **state) {
    static const char first[] = "00000000-0000-4000-8000-000000000000:1:1f";
    static const char second[] = "00000000-0000-4000-8000-000000000001:1:1f";
    unsigned flavour;

    (void)state;
    for (flavour = 0; flavour < MODEL_FLAVOURS; flavour++) {
        struct witness w;
        struct model *m = witnessed(&w);

        m->flavour = (enum model_flavour)flavour;
        m->wall_us = INT64_C(1700000000000000);
        assert_string_equal(line_call(m, RLOCK_OP_ACQUIRE, first, "500 1.5 none 1"),
                            "$16\r\n1700000000000000\r\n");
        m->oom = true;
        assert_string_equal(line_call(m, RLOCK_OP_RENEW, first, "9000 9000"), ":1\r\n");
        assert_string_equal(line_call(m, RLOCK_OP_ACQUIRE, second, "500 1.5 none 1"), ":9000\r\n");
        assert_string_equal(line_call(m, RLOCK_OP_RELEASE, first, "none"), ":1\r\n");
        m->wall_us++;
        assert_string_equal(line_call(m, RLOCK_OP_ACQUIRE, second, "9000 1.5 none 1"),
                            "$16\r\n1700000000000001\r\n");
        assert_int_equal(m->full, 0);
        assert_string_equal(line_call(m, RLOCK_OP_RELEASE, second, "none"), ":1\r\n");
        forget(&w, m);
    }
}

/* ---- a Sentinel ---- */

/* It needs a file that it may write to. */
static void sentinel_start(struct server *s) {
    static char path[96];
    FILE *file;

    assert_int_equal(server_folder(s), 0);
    snprintf(path, sizeof path, "%s/conf", s->dir);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "sentinel monitor locks 127.0.0.1 6399 2\n");
    assert_int_equal(fclose(file), 0);
    s->file = path;
    s->args[0] = "--sentinel";
    assert_int_equal(server_restart(s), 0);
}

/* The value behind a name in an array of bulks. */
static struct model_arg sentinel_says(const struct model_bytes *reply, const char *name) {
    char text[64];
    const char *found;

    snprintf(text, sizeof text, "\r\n%s\r\n", name);
    found = strstr(reply->at, text);
    assert_non_null(found);
    return bulk_of(found + strlen(text));
}

/* What is asked of a Sentinel, and what it does not know. */
static void sentinel_answers_as_one_does(void **state) {
    static const char *const questions[] = {"SENTINEL GET-MASTER-ADDR-BY-NAME locks",
                                            "SENTINEL GET-MASTER-ADDR-BY-NAME lock",
                                            "sentinel get-master-addr-by-name LOCKS",
                                            "SENTINEL MASTER lock",
                                            "SENTINEL MASTER",
                                            "SENTINEL NOTHING",
                                            "SENTINEL",
                                            "SELECT 1",
                                            "GET k",
                                            "EVAL x 0",
                                            "AUTH x",
                                            "PING",
                                            "CLIENT SETNAME x",
                                            "CLIENT GETNAME"};
    static const char *const words[] = {"name", "ip", "port", "config-epoch"};
    struct witness w;
    struct model *m = witnessed(&w);
    struct model_bytes got;
    static struct server s;
    size_t i;
    int fd;

    (void)state;
    memset(&got, 0, sizeof got);
    m->watches = "locks";
    m->primary_host = "127.0.0.1";
    m->primary_port = 6399;
    sentinel_start(&s);
    fd = dial(&s);
    for (i = 0; i <= sizeof questions / sizeof *questions; i++) {
        bool last = i == sizeof questions / sizeof *questions;
        const char *question = last ? "SENTINEL MASTER locks" : questions[i];

        send_all(fd, question, strlen(question));
        send_all(fd, "\r\n", 2);
        model__assign(&got, "", 0);
        while (value_size(got.at, got.size) == 0) {
            assert_int_equal(receive(fd, &got, PATIENCE_MS), 1);
        }
        if (!last) {
            assert_string_equal(call(m, 0, question), got.at);
        }
    }
    call(m, 0, "SENTINEL MASTER locks");
    for (i = 0; i < sizeof words / sizeof *words; i++) {
        struct model_arg ours = sentinel_says(&m->reply, words[i]);
        struct model_arg theirs = sentinel_says(&got, words[i]);

        assert_int_equal(ours.size, theirs.size);
        assert_memory_equal(ours.at, theirs.at, ours.size);
    }
    close(fd);
    server_stop(&s);
    model__release(&got);
    forget(&w, m);
}

/* ---- the group ---- */

/* A failed test leaves everything where it was: the next one begins anew. */
static int cleared(void **state) {
    (void)state;
    if (g.running) {
        sky_clears();
        lines_close();
        model_free(g.model);
        g.running = false;
    }
    return 0;
}

static int group_begins(void **state) {
    static const char *args[] = {"--enable-debug-command", "yes",
                                 "--loading-process-events-interval-bytes", "1024", NULL};
    char path[128];
    int unused[3], i;

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    if (server_start(&g.server, args) != 0) {
        return -1;
    }
    for (i = 0; i < 3; i++) {
        unused[i] = dial(&g.server); /* ids 1 and 2 are nobody's whom a seed could hit */
    }
    g.boss = dial(&g.server);
    for (i = 0; i < 3; i++) {
        close(unused[i]);
    }
    boss_ok("ACL SETUSER boss on nopass +@all ~* &*");
    boss_ok("AUTH boss x");
    boss_ok("DEBUG SET-ACTIVE-EXPIRE 0");
    g.flavour =
        strcmp(boss("COMMAND INFO delifeq"), "*1\r\n$-1\r\n") == 0 ? MODEL_REDIS_7 : MODEL_VALKEY_9;
    snprintf(path, sizeof path, "%s/dump.rdb", g.server.dir); /* no snapshot can take its place */
    if (mkdir(path, 0700) != 0) {
        return -1;
    }
    boss("BGSAVE");
    while (strstr(boss("INFO persistence"), "rdb_last_bgsave_status:err") == NULL) {
        server_sleep_ms(5);
    }
    return 0;
}

static int group_ends(void **state) {
    (void)state;
    close(g.boss);
    server_stop(&g.server);
    return 0;
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(seeds_answer_as_a_server_does, cleared),
        cmocka_unit_test_teardown(expiry_is_pushed_without_a_look, cleared),
        cmocka_unit_test_teardown(own_invalidations_come_behind_the_script, cleared),
        cmocka_unit_test_teardown(script_is_heard_in_its_order, cleared),
        cmocka_unit_test_teardown(sorted_sets_are_tracked, cleared),
        cmocka_unit_test_teardown(loading_is_answered_alike, cleared),
        cmocka_unit_test(touched_tells_which_key_and_whose_doing),
        cmocka_unit_test(copy_brings_every_database_back),
        cmocka_unit_test(restart_is_another_process),
        cmocka_unit_test(old_server_knows_no_tracking),
        cmocka_unit_test(redis_6_knows_no_options_of_pexpire),
        cmocka_unit_test(line_goes_on_on_each_server_that_is_full),
        cmocka_unit_test(sentinel_answers_as_one_does)};

    g.program = argv[0];
    g.first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    g.count = argc > 2 ? strtoull(argv[2], NULL, 10) : argc > 1 ? 1 : SEEDS;
    return _cmocka_run_group_tests("model_check", tests, g.first != 0 ? 1 : COUNT(tests),
                                   group_begins, group_ends);
}
