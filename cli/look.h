/* look.h - how locks stand: rlock inspect, force-release, ls and top
 *
 * The client says where the server is, and asks about one key. What it cannot do goes over
 * connections of our own to the same place, to each master of a cluster: SCAN, a script that says
 * how a key stands whatever its kind, and CLIENT TRACKING by prefixes, which names what changed.
 * When one of them fails all begins anew, until --wait is over.
 */
#ifndef RLOCK_CLI_LOOK_H
#define RLOCK_CLI_LOOK_H

#include <fnmatch.h>
#include <hiredis/adapters/libev.h>
#include <poll.h>
#include <sys/socket.h>

#include "show.h"

/* Answers the kind, a holder's token, how many hold, the ms until the last and the first of them
 * end, how many wait, the permits that are left where their number was set, the least that their
 * number can be, the fence counter. Empty or -1: none. See "Queued kinds" in docs/protocol.md. The
 * keys next to a lock are not in KEYS, or a user who may not read them could not ask for it. */
static const char look_script[] =
    "local key, call, pcall, time = KEYS[1], redis.call, redis.pcall, redis.call('TIME')\n"
    "local kind, token, held, left, soon, waiters, permits, need = '', '', 0, -1, -1, -1, -1, 1\n"
    "local now, what = time[1] * 1000 + math.floor(time[2] / 1000), call('TYPE', key).ok\n"
    "local beside, kinds = key, {f = 'fair', w = 'read', s = 'semaphore'}\n"
    "if not key:match('^[^{]*{[^}]+}') then\n"
    "  beside = ARGV[1] .. '{' .. key .. '}'\n"
    "end\n"
    "local function ours(text)\n"
    "  return text:match('^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') and text:find(':') == 37\n"
    "end\n"
    "local function member(text)\n"
    "  local id, weight, sort = text:match('^(.+):(%d+)([fws])$')\n"
    "  if id and ours(id) then\n"
    "    return sort == 'w' and weight + 0 > 1 and 'write' or kinds[sort], weight + 0, id\n"
    "  end\n"
    "end\n"
    "if what == 'string' then\n"
    "  token = call('GETRANGE', key, 0, 63)\n"
    "  kind = ours(token) and 'mutex' or ''\n"
    "elseif what == 'hash' and call('HLEN', key) == 1 then\n"
    "  token = call('HKEYS', key)[1]\n"
    "  kind = ours(token) and 'redisson' or ''\n"
    "elseif what == 'zset' then\n"
    "  local first = call('ZRANGE', key, 0, 1)\n"
    "  local set = first[1]:match('^permits:(%d+)$')\n"
    "  kind = member(first[set and 2 or 1] or '') or set and not first[2] and 'semaphore' or ''\n"
    "  permits = set and set + 0 or -1\n"
    "end\n"
    "if kind == 'mutex' or kind == 'redisson' then\n"
    "  held, left = 1, call('PTTL', key)\n"
    "  soon = left\n"
    "elseif kind ~= '' then\n"
    "  local live = '(' .. now\n"
    "  local heavy = call('ZRANGEBYSCORE', key, '(-inf', '(' .. -now, 'WITHSCORES')\n"
    "  local light = call('ZRANGEBYSCORE', key, live, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)\n"
    "  local last = call('ZREVRANGEBYSCORE', key, '+inf', live, 'WITHSCORES', 'LIMIT', 0, 1)\n"
    "  local used = call('ZCOUNT', key, live, '+inf')\n"
    "  held = used + #heavy / 2\n"
    "  for i = 1, #heavy, 2 do\n"
    "    used = used + (select(2, member(heavy[i])) or 1)\n"
    "  end\n"
    "  permits = math.max(permits - used, permits < 0 and -1 or 0)\n"
    "  need = math.max(used, 1)\n"
    "  if held > 0 then\n"
    "    local its, _, id = member(heavy[1] or light[1])\n"
    "    kind, token = its or kind, id or ''\n"
    "    left = math.max(last[2] or 0, -(heavy[2] or 0)) - now\n"
    "    soon = math.min(light[2] or 1 / 0, -(heavy[#heavy] or -1 / 0)) - now\n"
    "  end\n"
    "end\n"
    "if what == 'none' or what == 'zset' and kind ~= '' then\n"
    "  local first = pcall('ZRANGE', beside .. ':queue', 0, 99)\n"
    "  waiters = first.err and -1 or call('ZCARD', beside .. ':queue')\n"
    "  for _, text in ipairs(first) do\n"
    "    local its, weight = member(text)\n"
    "    kind, need = kind ~= '' and kind or its or '', math.max(need, weight or 1)\n"
    "  end\n"
    "end\n"
    "local fence = pcall('GET', beside .. ':fence')\n"
    "fence = type(fence) == 'string' and fence:match('^%d+$') or -1\n"
    "return {kind, kind ~= '' and token or '', held, left, soon, waiters, permits, need,\n"
    "        fence + 0}\n";

struct look_node {
    struct look_node *next;
    redisAsyncContext *ac, *push; /* for commands; for what the server reports */
    double heard[2];              /* when each of them last said anything */
    char where[300], sha[41];
    bool told, scanned; /* it reports changes; the round is over here */
};

enum look_step { LOOK_SAID, LOOK_LOADED, LOOK_NUMBERED, LOOK_TRACKED };
enum look_mode { LOOK_INSPECT, LOOK_FORCE, LOOK_LS, LOOK_TOP };

static struct look {
    enum look_mode mode;
    const char *pattern, *user, *password, *prefix, *wire;
    char *head; /* what each key that matches the pattern begins with */
    const rlock_tls *tls;
    bool cluster, failing;
    int database, status, failure;
    char where[300], refused[200]; /* refused: why nothing is pushed */
    struct look_node *nodes;
    void *rows;   /* a tree, by tsearch() */
    size_t asked; /* answers that are on their way */
    unsigned round;
    double beat;
    ev_timer retry, deadline, tick;
    ev_prepare show;
    ev_io input;
    ev_signal signals[4];
} look = {.prefix = "rlock:", .failure = RLOCK_ERR_CONN};

/* ---- connections ---- */

static void look_fail(const char *what, int status, const char *text) {
    show_leave();
    cli_fail_status(what, status, text);
}

static void look_forget(const void *tree, VISIT visit, int depth) {
    struct show_row *row = show_visited(tree, visit);
    (void)depth;
    if (row != NULL) {
        row->asked = row->again = false;
        row->node = NULL;
    }
}

static void look_hang_up(redisAsyncContext *ac) {
    if (ac != NULL) {
        ac->data = NULL; /* its callbacks do nothing more */
        redisAsyncFree(ac);
    }
}

/* All begins anew after something that may pass. */
static void look_again(int status, const char *words) {
    if (words != NULL) {
        snprintf(cli.warning, sizeof cli.warning, "%s", words);
    }
    look.failure = status;
    if (cli.wait_ms == 0) {
        look_fail("the server", status, NULL);
    }
    while (look.nodes != NULL) {
        struct look_node *node = look.nodes;
        look.nodes = node->next;
        look_hang_up(node->ac);
        look_hang_up(node->push);
        free(node);
    }
    twalk(look.rows, look_forget);
    look.asked = 0;
    look.refused[0] = 0;
    if (!look.failing) {
        ev_timer_again(EV_DEFAULT_ & look.deadline);
    }
    look.failing = show.dirty = true;
    ev_timer_again(EV_DEFAULT_ & look.retry);
}

/* True if what is refused with these words may be done later. */
static bool look_passes(const char *words) {
    static const char *const heads[] = {"LOADING",     "BUSY ",    "MASTERDOWN",
                                        "CLUSTERDOWN", "TRYAGAIN", "ERR max number"};
    size_t i = 0, count = sizeof heads / sizeof *heads;
    while (i < count && strncmp(words, heads[i], strlen(heads[i])) != 0) {
        i++;
    }
    return i < count;
}

/* Returns the words of an error that does not pass, or NULL. */
static const char *look_error(const redisReply *reply) {
    bool error = reply != NULL && reply->type == REDIS_REPLY_ERROR && !look_passes(reply->str);
    return error ? reply->str : NULL;
}

/* True if there is an answer to go on with. If not, the rest is done, and the node may be gone. */
static bool look_good(const redisAsyncContext *ac, const redisReply *reply) {
    struct look_node *node = ac->data;
    if (reply == NULL || node == NULL) {
        return false;
    }
    node->heard[ac == node->push] = ev_now(EV_DEFAULT);
    if (look_error(reply) != NULL) {
        show_leave();
        cli_fail(CLI_FAILED,
                 "An operator's user needs ~* &* +@read +@connection +@scripting +@pubsub +time "
                 "+cluster|slots",
                 "%s: %s", node->where, reply->str);
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        look_again(RLOCK_ERR_SERVER, reply->str);
    } else if (!look.failing && ev_is_active(&look.deadline)) {
        ev_timer_again(EV_DEFAULT_ & look.deadline);
    }
    return reply->type != REDIS_REPLY_ERROR;
}

static void look_on_end(const redisAsyncContext *ac, int status);
static void look_on_step(redisAsyncContext *ac, void *answer, void *step);

/* Sends what is only part of the way to what we want. */
static void look_say(redisAsyncContext *ac, enum look_step step, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisvAsyncCommand(ac, look_on_step, (void *)(intptr_t)step, format, arguments);
    va_end(arguments);
}

/* hiredis calls this also where it could not connect. */
static void look_on_connect(const redisAsyncContext *ac, int status) {
    struct look_node *node = ac->data;
    char host[sizeof node->where];
    if (status != REDIS_OK) {
        look_on_end(ac, status);
    } else if (node != NULL && look.tls != NULL && node->where[0] != '/') {
        snprintf(host, sizeof host, "%s", node->where);
        *strrchr(host, ':') = 0;
        if (look.tls->start(look.tls->ctx, (redisAsyncContext *)(uintptr_t)ac, host) < 0) {
            shutdown(ac->c.fd, SHUT_RDWR); /* its end is told; here it may not be freed */
        }
    }
}

/* Connects, and says who we are. Returns false if it could not: then the node is gone. */
static bool look_dial(struct look_node *node, redisAsyncContext **out) {
    char host[sizeof node->where], words[160] = "out of memory", *port;
    redisAsyncContext *ac;
    snprintf(host, sizeof host, "%s", node->where);
    port = strrchr(host, ':');
    if (host[0] != '/' && port != NULL) {
        *port = 0;
        ac = redisAsyncConnect(host, atoi(port + 1));
    } else {
        ac = redisAsyncConnectUnix(host);
    }
    if (ac == NULL || ac->err != 0) {
        if (ac != NULL) {
            snprintf(words, sizeof words, "%.80s: %.70s", node->where, ac->errstr);
            redisAsyncFree(ac);
        }
        look_again(RLOCK_ERR_CONN, words);
        return false;
    }
    *out = ac;
    ac->data = node;
    node->heard[out == &node->push] = ev_now(EV_DEFAULT);
    redisLibevAttach(EV_DEFAULT_ ac);
    redisAsyncSetConnectCallback(ac, look_on_connect);
    redisAsyncSetDisconnectCallback(ac, look_on_end);
    if (look.user != NULL) {
        look_say(ac, LOOK_SAID, "AUTH %s %s", look.user, look.password);
    } else if (look.password != NULL) {
        look_say(ac, LOOK_SAID, "AUTH %s", look.password);
    }
    if (look.database != 0) {
        look_say(ac, LOOK_SAID, "SELECT %d", look.database);
    }
    return true;
}

/* ---- how a key stands ---- */

static void look_question(struct show_row *row);
static void look_on_state(redisAsyncContext *ac, void *answer, void *user);

static int look_compare(const void *left, const void *right) {
    const struct show_row *a = left, *b = right;
    int order = memcmp(a->key, b->key, a->key_len < b->key_len ? a->key_len : b->key_len);
    return order != 0 ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static struct show_row *look_row(const char *key, size_t len) {
    struct show_row name = {.key = key, .key_len = len}, *row;
    struct show_row **found = tfind(&name, &look.rows, look_compare);
    char *copy;
    if (found != NULL) {
        return *found;
    }
    row = calloc(1, sizeof *row + len + 1);
    copy = (char *)(row + 1);
    memcpy(copy, key, len);
    row->key = copy;
    row->key_len = len;
    row->kind = -1;
    row->waiters = row->permits = row->fence = -1;
    tsearch(row, &look.rows, look_compare);
    return row;
}

/* Asks how a key stands; `whole`: with the text of the script, which the server has not. */
static void look_send(struct look_node *node, struct show_row *row, bool whole) {
    row->node = node;
    row->asked = true;
    look.asked++;
    redisAsyncCommand(node->ac, look_on_state, row, "%s %s 1 %b %s", whole ? "EVAL" : "EVALSHA",
                      whole ? look_script : node->sha, row->key, row->key_len, look.prefix);
}

/* Asks for a key. If that is on its way, then once more behind it. */
static void look_ask(struct look_node *node, const char *key, size_t len) {
    struct show_row *row = look_row(key, len);
    row->again = row->asked;
    row->node = node;
    if (!row->asked) {
        look_send(node, row, false);
    }
}

static void look_read(struct show_row *row, redisReply **is) {
    size_t len = (size_t)is[1]->len < sizeof row->room ? (size_t)is[1]->len : 0;
    row->redisson = strcmp(is[0]->str, "redisson") == 0;
    row->kind = is[0]->len > 0 ? RLOCK_KIND_MUTEX : -1;
    while (row->kind >= 0 && !row->redisson && strcmp(show_kind(row), is[0]->str) != 0) {
        row->kind++;
    }
    row->token = len > 0 ? memcpy(row->room, is[1]->str, len) : NULL;
    row->token_len = len;
    row->held = is[2]->integer;
    row->left_ms = is[3]->integer;
    row->soon_ms = is[4]->integer;
    row->waiters = is[5]->integer;
    row->permits = is[6]->integer;
    row->need = is[7]->integer;
    row->fence = is[8]->integer;
    row->at = ev_now(EV_DEFAULT);
    row->hops = 0;
}

static void look_missed(const void *tree, VISIT visit, int depth) {
    struct show_row *row = show_visited(tree, visit);
    (void)depth;
    if (row != NULL && !row->asked && row->round != look.round) {
        look_send(row->node != NULL ? row->node : look.nodes, row, false);
    }
}

/* The end of ls. For top: it asks once more for what was there before and was not found. */
static void look_round_ends(void) {
    struct look_node *node = look.nodes;
    while (node != NULL && node->scanned) {
        node = node->next;
    }
    if (node != NULL || look.nodes == NULL) {
        return;
    }
    if (look.mode == LOOK_TOP) {
        look.failing = false;
        show.dirty = true;
        ev_timer_stop(EV_DEFAULT_ & look.deadline);
        twalk(look.rows, look_missed);
    } else if (look.asked == 0) {
        ev_break(EV_DEFAULT_ EVBREAK_ALL);
    }
}

/* What ls and top do with an answer. */
static void look_settle(struct show_row *row, const struct show_row *old) {
    bool lock = row->kind >= 0 && (row->held > 0 || row->waiters > 0 || row->permits >= 0);
    bool same = row->kind == old->kind && row->held == old->held && row->fence == old->fence &&
                row->waiters == old->waiters && row->token_len == old->token_len &&
                memcmp(row->room, old->room, row->token_len) == 0;
    bool news = lock ? !old->shown || (!same && look.mode == LOOK_TOP) : old->shown;
    row->round = look.round;
    row->shown = lock || (look.mode == LOOK_LS && old->shown);
    show.dirty = show.dirty || row->shown || old->shown;
    if (news && !show.screen && (lock || look.mode == LOOK_TOP)) {
        row->kind = lock ? row->kind : old->kind;
        row->waiters = lock || old->waiters >= 0 ? row->waiters : -1;
        show_row(row);
    }
    if (!row->shown && !row->asked) {
        tdelete(row, &look.rows, look_compare);
        free(row);
    }
    if (look.mode == LOOK_LS) {
        look_round_ends();
    }
}

/* The key is at another node by now, or its slot is on its way there. */
static void look_follow(struct show_row *row, const char *error) {
    const char *where = strrchr(error, ' ') + 1;
    struct look_node *node = look.nodes;
    while (node != NULL && strcmp(node->where, where) != 0) {
        node = node->next;
    }
    if (node == NULL || ++row->hops > 5) {
        look_again(RLOCK_ERR_SERVER, error);
        return;
    }
    if (error[0] == 'A') {
        look_say(node->ac, LOOK_SAID, "ASKING");
    }
    look_send(node, row, error[0] == 'A');
}

static void look_on_state(redisAsyncContext *ac, void *answer, void *user) {
    redisReply *reply = answer;
    struct look_node *node = ac->data;
    struct show_row *row = user, old;
    const char *error = look_error(reply) != NULL ? reply->str : "";
    bool away = strncmp(error, "MOVED", 5) == 0 || strncmp(error, "ASK", 3) == 0;
    if (reply == NULL || node == NULL) {
        return;
    }
    look.asked--;
    row->asked = false;
    old = *row;
    if (strncmp(error, "NOSCRIPT", 8) == 0) {
        look_send(node, row, true);
    } else if (away) {
        look_follow(row, error);
    } else if (look.mode <= LOOK_FORCE) {
        if (look_good(ac, reply)) {
            look_read(row, reply->element);
            look_question(row);
        }
    } else {
        if (strncmp(error, "NOPERM", 6) == 0 && strstr(error, " key") != NULL) {
            row->kind = -1;
            row->held = 0;
        } else if (look_good(ac, reply)) {
            look_read(row, reply->element);
        } else {
            return;
        }
        if (row->again) {
            row->again = false;
            look_send(row->node, row, false);
        }
        look_settle(row, &old);
    }
}

/* ---- which keys there are ---- */

static void look_scan(struct look_node *node, const char *cursor);

static void look_on_scan(redisAsyncContext *ac, void *answer, void *round) {
    const redisReply *reply = answer;
    struct look_node *node = ac->data;
    size_t i;
    if (!look_good(ac, reply) || (uintptr_t)round != look.round) {
        return;
    }
    for (i = 0; i < reply->element[1]->elements; i++) {
        const redisReply *key = reply->element[1]->element[i];
        look_ask(node, key->str, (size_t)key->len);
    }
    if (strcmp(reply->element[0]->str, "0") != 0) {
        look_scan(node, reply->element[0]->str);
    } else {
        node->scanned = true;
        look_round_ends();
    }
}

static void look_scan(struct look_node *node, const char *cursor) {
    redisAsyncCommand(node->ac, look_on_scan, (void *)(uintptr_t)look.round,
                      "SCAN %s MATCH %s COUNT 1000", cursor, look.pattern);
}

static void look_round(void) {
    struct look_node *node;
    look.round++;
    for (node = look.nodes; node != NULL; node = node->next) {
        node->scanned = false;
        look_scan(node, "0");
    }
}

/* ---- which of them change ---- */

/* Nothing is pushed by this node: then there is a round a second. */
static void look_poll(struct look_node *node, const char *words) {
    snprintf(look.refused, sizeof look.refused, "polled once a second: %s", words);
    look_hang_up(node->push);
    node->push = NULL;
    look_scan(node, "0");
}

static void look_on_end(const redisAsyncContext *ac, int status) {
    struct look_node *node = ac->data;
    char words[200] = "";
    bool push = node != NULL && ac == node->push;
    (void)status;
    if (node == NULL) {
        return;
    }
    *(push ? &node->push : &node->ac) = NULL; /* hiredis frees it */
    if (look.tls == NULL || look.tls->why(look.tls->ctx, (redisAsyncContext *)(uintptr_t)ac, words,
                                          sizeof words) == RLOCK_OK) {
        snprintf(words, sizeof words, "%.80s: %.110s", node->where,
                 ac->err != 0 ? ac->errstr : "the connection ended");
    }
    if (push && !node->told) {
        look_poll(node, words);
    } else {
        look_again(RLOCK_ERR_CONN, words);
    }
}

/* Has each key reported that can match the pattern, or is next to such a key. Prefixes may not
 * overlap: the second one may begin with the first. */
static void look_track(struct look_node *node, long long id) {
    const char *head = look.head, *format = "CLIENT TRACKING ON BCAST REDIRECT %lld";
    size_t i = 0, n = strlen(look.prefix);
    while (head[i] != 0 && head[i] == (i < n ? look.prefix[i] : i == n ? '{' : head[i - n - 1])) {
        i++;
    }
    if (head[0] != 0 && head[i] == 0) {
        format = "CLIENT TRACKING ON BCAST REDIRECT %lld PREFIX %s";
    } else if (head[0] != 0) {
        format = "CLIENT TRACKING ON BCAST REDIRECT %lld PREFIX %s PREFIX %s{%s";
    }
    look_say(node->ac, LOOK_TRACKED, format, id, head, look.prefix, head);
}

/* Asks for a key that has changed, if it is looked for. */
static void look_changed(struct look_node *node, const char *key, size_t len) {
    char *text = malloc(len + 1);
    size_t i;
    for (i = 0; i < len; i++) {
        text[i] = (char)(key[i] != 0 ? key[i] : 1); /* fnmatch() would stop there */
    }
    text[len] = 0;
    if (fnmatch(look.pattern, text, 0) == 0) {
        look_ask(node, key, len);
    }
    free(text);
}

static void look_on_push(redisAsyncContext *ac, void *answer, void *id) {
    redisReply *reply = answer;
    struct look_node *node = ac->data;
    size_t i, head = strlen(look.prefix);
    if (!look_good(ac, reply) || reply->type != REDIS_REPLY_ARRAY || reply->elements < 3) {
        return;
    }
    if (strcmp(reply->element[0]->str, "subscribe") == 0) {
        if (!node->told) {
            look_track(node, (intptr_t)id);
        }
        return;
    }
    if (reply->element[2]->type != REDIS_REPLY_ARRAY) { /* FLUSHALL */
        look_round();
        return;
    }
    for (i = 0; i < reply->element[2]->elements; i++) {
        const char *key = reply->element[2]->element[i]->str;
        size_t len = (size_t)reply->element[2]->element[i]->len;
        size_t stem = len > 6 ? len - 6 : 0;
        look_changed(node, key, len);
        if (strncmp(key + stem, ":queue", 6) != 0 && strncmp(key + stem, ":fence", 6) != 0) {
            continue;
        }
        if (stem > head + 2 && strncmp(key, look.prefix, head) == 0 && key[head] == '{') {
            look_changed(node, key + head + 1, stem - head - 2); /* the lock next to it */
        } else {
            look_changed(node, key, stem);
        }
    }
}

/* ---- where the server is, and what is wanted of it ---- */

/* What follows each step of a connection, some of which may be refused. */
static void look_on_step(redisAsyncContext *ac, void *answer, void *step) {
    const redisReply *reply = answer;
    struct look_node *node = ac->data;
    const char *refused = step != NULL ? look_error(reply) : NULL;
    if (node == NULL || (refused == NULL && !look_good(ac, reply))) {
        return;
    }
    switch ((enum look_step)(intptr_t)step) {
    case LOOK_SAID: break;
    case LOOK_LOADED:
        snprintf(node->sha, sizeof node->sha, "%s", refused != NULL ? "-" : reply->str);
        if (look.mode == LOOK_LS) {
            look_scan(node, "0");
        } else if (look.mode == LOOK_TOP && look_dial(node, &node->push)) {
            look_say(node->push, LOOK_NUMBERED, "CLIENT ID");
        } else if (look.mode <= LOOK_FORCE && node == look.nodes) {
            look_ask(node, cli.keys[0], strlen(cli.keys[0]));
        }
        break;
    case LOOK_NUMBERED:
        if (refused == NULL) {
            redisAsyncCommand(ac, look_on_push, (void *)(intptr_t)reply->integer,
                              "SUBSCRIBE __redis__:invalidate");
        } else {
            look_poll(node, refused);
        }
        break;
    case LOOK_TRACKED:
        node->told = refused == NULL;
        if (node->told) {
            look_scan(node, "0");
        } else {
            look_poll(node, refused);
        }
        break;
    }
}

static bool look_join(struct look_node *node) {
    if (!look_dial(node, &node->ac)) {
        return false;
    }
    look_say(node->ac, LOOK_LOADED, "SCRIPT LOAD %s", look_script);
    return true;
}

static struct look_node *look_node(const char *where) {
    struct look_node *node = look.nodes;
    while (node != NULL && strcmp(node->where, where) != 0) {
        node = node->next;
    }
    if (node == NULL) {
        node = calloc(1, sizeof *node);
        snprintf(node->where, sizeof node->where, "%s", where);
        node->next = look.nodes;
        look.nodes = node;
    }
    return node;
}

/* The masters of a cluster take the place of the node that named them. */
static void look_on_slots(redisAsyncContext *ac, void *answer, void *user) {
    const redisReply *reply = answer;
    struct look_node *seed = ac->data, *node, *next;
    char where[sizeof seed->where], host[sizeof seed->where];
    size_t i;
    (void)user;
    if (!look_good(ac, reply)) {
        return;
    }
    snprintf(host, sizeof host, "%s", seed->where);
    *strrchr(host, ':') = 0;
    look_hang_up(ac);
    free(seed);
    look.nodes = NULL;
    for (i = 0; i < reply->elements; i++) {
        redisReply **master = reply->element[i]->element[2]->element;
        bool named = master[0]->type == REDIS_REPLY_STRING && master[0]->len > 0 &&
                     strcmp(master[0]->str, "?") != 0;
        snprintf(where, sizeof where, "%.255s:%lld", named ? master[0]->str : host,
                 master[1]->integer);
        look_node(where);
    }
    if (look.nodes == NULL) {
        look_again(RLOCK_ERR_CONN, "the cluster has no slots");
    }
    for (node = look.nodes; node != NULL; node = next) {
        next = node->next;
        if (!look_join(node)) {
            return;
        }
    }
}

/* The first answer of the client. Whatever it is, the client knows now where the server is. */
static void look_on_client(rlock_client *client, const rlock_info *info, void *user) {
    struct look_node *node;
    (void)client, (void)user;
    if (look.nodes != NULL) {
        return; /* what was asked before had not been answered */
    }
    if (look.where[0] == 0 && (info->status == RLOCK_ERR_CONN || info->status == RLOCK_ERR_SERVER ||
                               info->status == RLOCK_ERR_UNKNOWN)) {
        look_again(info->status, info->text);
    } else if (look.where[0] == 0) {
        look_fail("the server", info->status, info->text);
    } else {
        look.round++;
        node = look_node(look.where);
        if (!look.cluster) {
            look_join(node);
        } else if (look_dial(node, &node->ac)) {
            redisAsyncCommand(node->ac, look_on_slots, NULL, "CLUSTER SLOTS");
        }
    }
}

static void look_begin(void) {
    rlock_options options = {.key = look.mode <= LOOK_FORCE ? cli.keys[0] : "rlock"};
    int status;
    if (cli.members != NULL) {
        look_question(look_row(cli.keys[0], strlen(cli.keys[0])));
    } else if ((status = rlock_inspect(cli.client, &options, look_on_client, NULL)) != RLOCK_OK) {
        look_fail(options.key, status, NULL);
    }
}

static void look_on_answer(rlock_client *client, const rlock_info *info, void *user) {
    struct show_row *row = user;
    bool passes = info->text != NULL && look_passes(info->text);
    (void)client;
    if (passes || info->status == RLOCK_ERR_CONN ||
        (info->status == RLOCK_ERR_UNKNOWN && !show.force)) {
        look_again(info->status, info->text);
        return;
    }
    if (info->status == RLOCK_ERR_WRONG_TYPE) {
        cli_fail(CLI_FAILED, cli.kind_given ? "Without --kind it is found out" : NULL, "%s: %s",
                 row->key, rlock_strerror(info->status));
    } else if (info->status != RLOCK_OK) {
        look_fail(row->key, info->status, info->text);
    }
    row->held = info->holders;
    row->left_ms = info->left_ms;
    row->at = ev_now(EV_DEFAULT);
    row->waiters = show.force ? -1 : info->waiters;
    if (row->kind < 0 && row->held > 0) {
        row->kind = RLOCK_KIND_MUTEX;
    }
    if (show.force || row->kind != RLOCK_KIND_SEMAPHORE) {
        row->permits = -1;
    } else if (cli.permits != 0 || row->permits >= 0) {
        row->permits = info->permits;
    }
    if (!show.force) {
        row->token = info->token;
        row->token_len = info->token_len;
    }
    show_key(row);
    look.status = row->held > 0 ? 0 : 1;
    ev_break(EV_DEFAULT_ EVBREAK_ALL);
}

static void look_on_event(void *user, const rlock_report *report);

/* Asks the client about the key, whose kind is known now; nobody's may be of any. */
static void look_question(struct show_row *row) {
    rlock_options options = {.key = row->key, .key_len = row->key_len};
    bool redisson = look.wire != NULL && strcmp(look.wire, "redisson") == 0;
    rlock_config config;
    int status = RLOCK_OK;
    row->kind = cli.kind_given ? (int)cli.kind : row->kind;
    options.kind = row->kind < 0 ? RLOCK_KIND_MUTEX : (rlock_kind)row->kind;
    if (options.kind == RLOCK_KIND_SEMAPHORE) { /* a forced release serves the queue by it */
        options.permits = cli.permits != 0 ? cli.permits : (uint32_t)row->need;
    }
    if (row->redisson && !redisson && look.wire == NULL) {
        look.wire = "redisson";
        config = cli_config();
        config.wire = RLOCK_WIRE_REDISSON;
        config.on_event = look_on_event;
        rlock_client_free(cli.client);
        status = rlock_client_new(&cli.client, &config);
    }
    if (status == RLOCK_OK) {
        status = (show.force ? rlock_force_release : rlock_inspect)(cli.client, &options,
                                                                    look_on_answer, row);
    }
    if (status != RLOCK_OK) {
        look_fail(row->key, status, NULL);
    }
}

/* ---- the loop ---- */

/* Where the client is connected, our connections lead; a Sentinel may name another primary. */
static void look_on_event(void *user, const rlock_report *report) {
    (void)user;
    show.dirty = true; /* its words in the log may stand on the table */
    if (report->kind == RLOCK_REPORT_CONNECTED && strcmp(report->link, "commands") == 0) {
        bool moved = !look.cluster && look.nodes != NULL && strcmp(look.where, report->where) != 0;
        snprintf(look.where, sizeof look.where, "%s", report->where);
        if (moved) {
            look_again(RLOCK_ERR_CONN, "the primary has moved");
        }
    }
}

static void look_on_timer(struct ev_loop *loop, ev_timer *timer, int events) {
    (void)events;
    if (timer == &look.deadline) {
        look_fail("the server", look.failure, NULL);
    }
    ev_timer_stop(loop, timer);
    look_begin();
}

/* Asks again for what has ended without being changed, as leases of several holders do. */
static void look_ended(const void *tree, VISIT visit, int depth) {
    struct show_row *row = show_visited(tree, visit);
    (void)depth;
    if (row != NULL && row->node != NULL && !row->asked && row->soon_ms >= 0 &&
        row->at + (double)row->soon_ms / 1000 < ev_now(EV_DEFAULT)) {
        look_send(row->node, row, false);
    }
}

/* Ten times a second, for top: whether the servers and whoever reads us are there. */
static void look_on_tick(struct ev_loop *loop, ev_timer *timer, int events) {
    double now = ev_now(loop), least = now - (cli.wait_ms > 2000 ? (double)cli.wait_ms / 1000 : 2);
    struct pollfd out = {.fd = STDOUT_FILENO};
    bool beat = now - look.beat >= 1, scanned = look.nodes != NULL;
    struct look_node *node;
    (void)timer, (void)events;
    if (poll(&out, 1, 0) > 0) {
        ev_break(loop, EVBREAK_ALL);
    }
    for (node = look.nodes; node != NULL; node = node->next) {
        if (node->heard[0] < least || (node->push != NULL && node->heard[1] < least)) {
            look_again(RLOCK_ERR_CONN, "no answer");
            return;
        }
        if (beat) {
            look_say(node->ac, LOOK_SAID, "PING");
        }
        if (beat && node->told) {
            redisAsyncCommand(node->push, look_on_push, NULL, "SUBSCRIBE __redis__:invalidate");
        }
        scanned = scanned && node->scanned;
    }
    twalk(look.rows, look_ended);
    if (beat) {
        look.beat = now;
        show.dirty = true;
        if (scanned && look.refused[0] != 0) {
            look_round();
        }
    }
}

/* Before the loop waits all that happened is shown at once. */
static void look_on_show(struct ev_loop *loop, ev_prepare *prepare, int events) {
    struct look_node *node;
    char what[400];
    double before;
    (void)prepare, (void)events;
    if (show.screen && show.dirty && ev_now(loop) - show.drawn > 0.03) {
        snprintf(what, sizeof what, "%s  %s", look.pattern, look.cluster ? "cluster" : look.where);
        show_table(look.rows, what,
                   look.failing                                ? cli.warning
                   : look.refused[0]                           ? look.refused
                   : look.nodes != NULL && look.nodes->scanned ? "told by push; q quits"
                                                               : "looking");
    }
    before = ev_now(loop);
    if (fflush(stdout) != 0) {
        if (errno != EPIPE) {
            cli_fail(CLI_FAILED, NULL, "standard output: %s", strerror(errno));
        }
        ev_break(loop, EVBREAK_ALL);
    }
    ev_now_update(loop);
    if (ev_now(loop) - before > 0.1) { /* whoever reads was slow, and not the server */
        for (node = look.nodes; node != NULL; node = node->next) {
            node->heard[0] = node->heard[1] = ev_now(loop);
        }
        if (ev_is_active(&look.deadline)) {
            ev_timer_again(loop, &look.deadline);
        }
    }
}

static void look_on_input(struct ev_loop *loop, ev_io *io, int events) {
    char key = 'q';
    (void)io, (void)events;
    if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q') {
        ev_break(loop, EVBREAK_ALL);
    }
}

static void look_on_signal(struct ev_loop *loop, ev_signal *signal, int events) {
    (void)events;
    if (signal->signum == SIGWINCH) {
        show.dirty = true;
    } else {
        ev_break(loop, EVBREAK_ALL);
    }
}

static char *look_decode(char *text) {
    char *in = text, *out = text, hex[3] = "";
    for (; *in != 0; in++) {
        *out = *in;
        if (*in == '%' && in[1] != 0 && in[2] != 0) {
            memcpy(hex, in + 1, 2);
            *out = (char)strtol(hex, NULL, 16);
            in += 2;
        }
        out++;
    }
    *out = 0;
    return text;
}

/* What our own connections need of the URL; the client has found no fault in it. */
static void look_read_url(void) {
    static char *url; /* what is read of it points into it */
    char *rest = strstr(url = strdup(cli.url != NULL ? cli.url : "redis://"), "://") + 3;
    char *at = strrchr(rest, '@'), *query, *path = NULL, *word, *value;
    bool tls = strncmp(url, "rediss", 6) == 0 || strncmp(url, "valkeys", 7) == 0;
    look.tls = tls ? cli_config().tls : NULL;
    look.cluster = strstr(url, "+cluster://") != NULL;
    if (at != NULL) {
        *at = 0;
        word = strchr(rest, ':');
        if (word != NULL && at > rest + 1) { /* else both are empty */
            *word = 0;
            look.user = *rest != 0 ? look_decode(rest) : NULL;
            look.password = look_decode(word + 1);
        }
        rest = at + 1;
    }
    query = strchr(rest, '?');
    if (query != NULL) {
        *query++ = 0;
    }
    if (strncmp(url, "unix", 4) != 0) {
        path = strchr(rest, '/');
        if (path != NULL && strstr(url, "+sentinel://") != NULL) {
            path = strchr(path + 1, '/');
        }
    }
    look.database = path != NULL ? atoi(path + 1) : 0;
    for (word = query != NULL ? strtok(query, "&") : NULL; word != NULL; word = strtok(NULL, "&")) {
        value = look_decode(strchr(word, '=') + 1);
        if (strncmp(word, "db=", 3) == 0) {
            look.database = atoi(value);
        } else if (strncmp(word, "prefix=", 7) == 0) {
            look.prefix = value;
        } else if (strncmp(word, "wire=", 5) == 0) {
            look.wire = value;
        }
    }
}

static void look_watch_terminal(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    const char *term = getenv("TERM");
    int i;
    for (i = 0; i < 4; i++) {
        ev_signal_init(&look.signals[i], look_on_signal, numbers[i]);
        ev_signal_start(EV_DEFAULT_ & look.signals[i]);
    }
    ev_timer_init(&look.tick, look_on_tick, 0.1, 0.1);
    ev_timer_start(EV_DEFAULT_ & look.tick);
    if (!cli.json && isatty(STDOUT_FILENO) && term != NULL && strcmp(term, "dumb") != 0) {
        show_enter();
        if (isatty(STDIN_FILENO)) {
            ev_io_init(&look.input, look_on_input, STDIN_FILENO, EV_READ);
            ev_io_start(EV_DEFAULT_ & look.input);
        }
    }
}

static int look_main(enum look_mode mode, const char *pattern) {
    double patience = cli.wait_ms > 0 ? (double)cli.wait_ms / 1000 : cli.wait_ms == 0 ? 1 : 5;
    look.mode = mode;
    look.pattern = pattern;
    look.head = strdup(pattern);
    look.head[strcspn(pattern, "*?[\\")] = 0;
    show.force = mode == LOOK_FORCE;
    show.color = isatty(STDOUT_FILENO) && getenv("NO_COLOR") == NULL && !cli.json;
    signal(SIGPIPE, SIG_IGN);
    if (cli.members != NULL && mode >= LOOK_LS) {
        cli_fail(CLI_FAILED, "Name one of them with --url",
                 "ls and top look at one server, not at a quorum");
    }
    setvbuf(stdout, NULL, _IOFBF, 65536);
    cli_connect(look_on_event);
    look_read_url();
    ev_timer_init(&look.deadline, look_on_timer, 0., patience);
    ev_timer_init(&look.retry, look_on_timer, 0., 0.25);
    ev_timer_again(EV_DEFAULT_ & look.deadline);
    ev_prepare_init(&look.show, look_on_show);
    ev_prepare_start(EV_DEFAULT_ & look.show);
    if (mode == LOOK_TOP) {
        look_watch_terminal();
    }
    look_begin();
    ev_run(EV_DEFAULT, 0);
    look_on_show(EV_DEFAULT, NULL, 0);
    show_leave();
    cli_disconnect();
    return look.status;
}

static int look_inspect(void) {
    return look_main(LOOK_INSPECT, "");
}

static int look_force_release(void) {
    return look_main(LOOK_FORCE, "");
}

static int look_ls(const char *pattern) {
    return look_main(LOOK_LS, pattern);
}

static int look_top(const char *pattern) {
    return look_main(LOOK_TOP, pattern);
}

#endif /* RLOCK_CLI_LOOK_H */
