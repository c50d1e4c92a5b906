/* look.h - how locks stand: rlock inspect, force-release, ls and top
 *
 * A quorum, and other engines than Redis, are asked about one key by the client alone. With Redis:
 *
 * The client says where the server is, and asks about one key. What it cannot do goes over
 * connections of our own to the same place, to each master of a cluster: SCAN, a script that says
 * how a key stands whatever its kind, and CLIENT TRACKING by prefixes, which names what changed.
 * These wait for each answer. A function that returns false has met a fault that may pass: then
 * all connections are closed and all begins anew, until --wait is over.
 */
#ifndef RLOCK_CLI_LOOK_H
#define RLOCK_CLI_LOOK_H

#include <fnmatch.h>
#include <math.h>

#include "password.h"
#include "show.h"

#define LOOK_NODES 1000 /* masters of a cluster */

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

enum look_mode { LOOK_INSPECT, LOOK_FORCE, LOOK_LS, LOOK_TOP };

struct look_node {
    char where[300];
    redisContext *c, *push; /* for commands; for what the server reports, NULL if it does not */
    char *names;            /* of clients that describe themselves: see rlock__names_kept */
    char (*strangers)[37];  /* ids of clients that were asked for, and do not */
    size_t stranger_count;
    bool nameless; /* it lists no clients */
};

static struct look {
    enum look_mode mode;
    const char *pattern;
    char *head;          /* what each key that matches the pattern begins with */
    rlock_config config; /* what the URL says */
    rlock_info info;     /* the answer of the client */
    bool answered;
    char where[300];   /* where the client is connected */
    char sha[41];      /* of the script */
    char refused[200]; /* why nothing is pushed */
    struct look_node nodes[LOOK_NODES];
    size_t count;
    struct show_row *asked; /* the list of those to ask */
    struct show_row *told;  /* the list of those that were answered just now */
    unsigned round;
    bool flushed, failing; /* all keys are gone; since the last round something has failed */
    int failure;
    double patience, until, next; /* until: it gives up; next: the next lease ends */
} look = {.failure = RLOCK_ERR_CONN};

/* ---- connections ---- */

static void look_fail(const char *what, int status, const char *text) {
    show_leave();
    cli_fail_status(what, status, text);
}

/* Writes the words of a server after a head, as the library shows them: no password is in it. */
static void look_words(char *text, size_t size, const char *head, const char *words) {
    rlock__secret secret = {NULL, pass.file != NULL ? pass.text : look.config.password, 0};
    bool any = secret.text != NULL && *secret.text != 0;
    char line[RLOCK__LINE];
    rlock__line_foreign(any ? &secret : NULL, line, 0, head, words);
    snprintf(text, size, "%s", line);
}

/* Keeps what may pass for the case that it does not. */
static bool look_fault(int status, const char *words) {
    if (words != NULL) {
        look_words(cli.warning, sizeof cli.warning, "", words);
    }
    look.failure = status;
    return false;
}

/* True if what is refused with these words may be done later, or by another node. What refuses only
 * writes (READONLY, OOM, MISCONF, NOREPLICAS) no question meets. */
static bool look_passes(const char *words) {
    static const char heads[] = " LOADING BUSY MASTERDOWN CLUSTERDOWN TRYAGAIN NOSCRIPT MOVED ASK ";
    char head[20];
    snprintf(head, sizeof head, " %.*s ", (int)strcspn(words, " "), words);
    return strstr(heads, head) != NULL || strncmp(words, "ERR max number", 14) == 0;
}

/* Says why a connection failed. The hooks of TLS use only the part that both contexts have. */
static bool look_lost(const struct look_node *node, redisContext *c) {
    const rlock_tls *tls = look.config.tls;
    const char *why = c == NULL ? "out of memory" : c->errstr;
    char words[200];
    if (c == NULL || tls == NULL ||
        tls->why(tls->ctx, (redisAsyncContext *)c, words, sizeof words) == RLOCK_OK) {
        snprintf(words, sizeof words, "%.80s: %.110s", node->where,
                 strcmp(why, strerror(EAGAIN)) == 0 ? "no answer" : why);
    }
    return look_fault(RLOCK_ERR_CONN, words);
}

/* Returns the next answer, also one that refuses for good; NULL: a fault. */
static redisReply *look_read(const struct look_node *node, redisContext *c) {
    void *answer = NULL;
    redisReply *reply;
    if (redisGetReply(c, &answer) != REDIS_OK) {
        look_lost(node, c);
        return NULL;
    }
    reply = answer;
    look.until = look.failing ? look.until : show_now() + look.patience;
    if (reply->type == REDIS_REPLY_ERROR && look_passes(reply->str) &&
        strncmp(reply->str, "MOVED", 5) != 0 && strncmp(reply->str, "ASK", 3) != 0) {
        look_fault(RLOCK_ERR_SERVER, reply->str);
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

/* True if a part of an answer is an integer (i), a text (s), a list of texts (l), such a list or no
 * list at all (-), or anything (*). */
static bool look_is_part(const redisReply *part, char what) {
    size_t i = 0;
    if (what == '*') {
        return true;
    }
    if (what == 'i') {
        return part->type == REDIS_REPLY_INTEGER;
    }
    if (what == 's') {
        return part->type == REDIS_REPLY_STRING;
    }
    if (part->type != REDIS_REPLY_ARRAY) {
        return what == '-';
    }
    while (i < part->elements && part->element[i]->type == REDIS_REPLY_STRING) {
        i++;
    }
    return i == part->elements;
}

/* True if an answer is an array that begins with these parts. Else it is a fault: what answers
 * there may be no server of this protocol. */
static bool look_is(const redisReply *reply, const char *parts) {
    size_t i = 0, count = strlen(parts);
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements >= count) {
        while (i < count && look_is_part(reply->element[i], parts[i])) {
            i++;
        }
        if (i == count) {
            return true;
        }
    }
    return look_fault(RLOCK_ERR_SERVER,
                      reply->type == REDIS_REPLY_ERROR ? reply->str : "unexpected reply");
}

static redisReply *look_ask(const struct look_node *node, redisContext *c, const char *format,
                            ...) {
    va_list arguments;
    va_start(arguments, format);
    redisvAppendCommand(c, format, arguments);
    va_end(arguments);
    return look_read(node, c);
}

/* Ends the program if what was asked is refused. */
static redisReply *look_good(const struct look_node *node, redisReply *reply) {
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        look_fault(RLOCK_ERR_SERVER, reply->str);
        freeReplyObject(reply);
        show_leave();
        cli_fail(CLI_FAILED,
                 "An operator's user needs ~* &* +@read +@connection +@scripting +@pubsub +time "
                 "+cluster|slots",
                 "%s: %s", node->where, cli.warning);
    }
    return reply;
}

/* The same for an answer that says nothing else. Returns false if there was none. */
static bool look_done(const struct look_node *node, redisReply *reply) {
    freeReplyObject(look_good(node, reply));
    return reply != NULL;
}

/* Connects, and says who we are. */
static redisContext *look_dial(const struct look_node *node) {
    struct timeval time = {.tv_sec = 2}; /* for each answer */
    const rlock_tls *tls = look.config.tls;
    const char *user = pass.file != NULL ? pass.user : look.config.username;
    const char *password = pass.file != NULL ? pass.text : look.config.password;
    char host[sizeof node->where], *port;
    redisContext *c;
    snprintf(host, sizeof host, "%s", node->where);
    port = host[0] != '/' ? strrchr(host, ':') : NULL;
    if (port != NULL) {
        *port = 0;
    }
    c = port != NULL ? redisConnectWithTimeout(host, atoi(port + 1), time)
                     : redisConnectUnixWithTimeout(host, time);
    if (c == NULL || c->err != 0 || redisSetTimeout(c, time) != REDIS_OK ||
        (port != NULL && tls != NULL && tls->start(tls->ctx, (redisAsyncContext *)c, host) < 0)) {
        look_lost(node, c);
    } else if ((password == NULL ||
                look_done(node, user != NULL ? look_ask(node, c, "AUTH %s %s", user, password)
                                             : look_ask(node, c, "AUTH %s", password))) &&
               look_done(node, look_ask(node, c, "SELECT %d", (int)look.config.database))) {
        return c;
    }
    redisFree(c);
    return NULL;
}

/* ---- how a key stands ---- */

/* Puts a key on the list of those to ask, and of whom. */
static void look_want(struct look_node *node, struct show_row *row) {
    row->node = node;
    if (!row->asked) {
        row->asked = true;
        row->next = look.asked;
        look.asked = row;
    }
}

static bool look_take(struct show_row *row, const redisReply *reply) {
    redisReply **is = reply->element;
    int64_t *const numbers[] = {&row->held,    &row->left_ms, &row->soon_ms, &row->waiters,
                                &row->permits, &row->need,    &row->fence};
    size_t len;
    int i;
    if (!look_is(reply, "ssiiiiiii")) {
        return false;
    }
    len = (size_t)is[1]->len < sizeof row->room ? (size_t)is[1]->len : 0;
    row->redisson = strcmp(is[0]->str, "redisson") == 0;
    row->kind = is[0]->len > 0 ? RLOCK_KIND_MUTEX : -1;
    while (row->kind >= 0 && !row->redisson && strcmp(show_kind(row), is[0]->str) != 0) {
        if (row->kind == RLOCK_KIND_SEMAPHORE) {
            row->kind = -1;
            return look_fault(RLOCK_ERR_SERVER, "unexpected reply");
        }
        row->kind++;
    }
    row->token = len > 0 ? memcpy(row->room, is[1]->str, len) : NULL;
    row->token_len = len;
    for (i = 0; i < 7; i++) {
        *numbers[i] = is[i + 2]->integer;
    }
    row->at = show_now();
    row->hops = 0;
    return true;
}

/* What ls and top do with an answer: top prints what is new. What is no lock is forgotten. */
static void look_settle(struct show_row *row, const struct show_row *old) {
    bool same = row->kind == old->kind && row->held == old->held && row->fence == old->fence &&
                row->waiters == old->waiters && row->token_len == old->token_len &&
                memcmp(row->room, old->room, row->token_len) == 0;
    row->round = look.round;
    row->shown = row->kind >= 0 && (row->held > 0 || row->waiters > 0 || row->permits >= 0);
    if (look.mode == LOOK_TOP && !show.screen && (row->shown ? !old->shown || !same : old->shown)) {
        row->kind = row->shown ? row->kind : old->kind;
        row->waiters = row->shown || old->waiters >= 0 ? row->waiters : -1;
        show_row(row);
    }
    if (!row->shown) {
        show_drop(row);
    }
}

/* Writes host:port, for an address that a node announced, as --map has it. */
static void look_where(char *where, size_t size, const char *host, size_t len, int port) {
    char name[RLOCK__HOST_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)len, host);
    rlock__announced(look.config.map_address, NULL, name, &port);
    snprintf(where, size, "%s:%d", name, port);
}

/* The key is at another node by now, or its slot is on its way there. */
static bool look_follow(struct show_row *row, const char *error) {
    char where[sizeof row->node->where];
    rlock__slots there;
    size_t i = 0;
    bool ask;
    if (look.config.cluster == NULL ||
        !rlock__slots_redirect(rlock__error_text(error), &there, &ask)) {
        return look_fault(RLOCK_ERR_SERVER, error);
    }
    if (there.host == NULL) { /* that of the node that says so */
        there.host = row->node->where;
        there.host_len = (size_t)(strrchr(there.host, ':') - there.host);
    }
    look_where(where, sizeof where, there.host, there.host_len, there.port);
    while (i < look.count && strcmp(look.nodes[i].where, where) != 0) {
        i++;
    }
    if (i == look.count || ++row->hops > 5) {
        row->hops = 0;
        return look_fault(RLOCK_ERR_SERVER, error);
    }
    look_want(&look.nodes[i], row);
    return true;
}

static bool look_answer(struct show_row *row, redisReply *reply) {
    struct show_row old = *row;
    if (reply->type != REDIS_REPLY_ERROR) {
        if (!look_take(row, reply)) {
            return false;
        }
    } else if (look_passes(reply->str)) {
        return look_follow(row, reply->str);
    } else if (look.mode < LOOK_LS || strstr(reply->str, " key") == NULL) {
        look_good(row->node, reply);
    } else { /* it is not for this user to see */
        row->kind = -1;
        row->held = 0;
    }
    if (look.mode >= LOOK_LS) {
        row->was = memcpy(malloc(sizeof old), &old, sizeof old);
        row->next = look.told;
        look.told = row;
    }
    return true;
}

/* ---- who the holders are ---- */

/* Returns the id of the client that holds a key alone, if it is one of this library; or NULL. */
static const char *look_id(const struct show_row *row) {
    bool alone = row->kind >= 0 && row->held == 1 && row->token != NULL;
    return alone && show_id_len(row->token, row->token_len) == 36 ? row->token : NULL;
}

/* Puts the words of its holder into a row. Returns false if nothing is known of it yet. */
static bool look_words_of(struct show_row *row) {
    const struct look_node *node = row->node;
    const char *id = look_id(row), *words;
    char shown[RLOCK__LINE];
    size_t i = 0;
    free(row->words);
    row->words = NULL;
    if (id == NULL || node->nameless) {
        return true;
    }
    words = rlock__told_of(node->names, id, row->token_len);
    if (words != NULL) {
        look_words(shown, sizeof shown, "", words);
        row->words = strdup(shown);
        return true;
    }
    while (i < node->stranger_count && memcmp(node->strangers[i], id, 36) != 0) {
        i++;
    }
    return i < node->stranger_count;
}

/* Notes a client that does not describe itself: it is not asked for again. */
static void look_estrange(struct look_node *node, const char *id) {
    size_t count = node->stranger_count % 4096; /* so many are enough: begin anew */
    if (count == 0) {
        node->strangers = realloc(node->strangers, 4096 * sizeof *node->strangers);
    }
    memcpy(node->strangers[count], id, 36);
    node->stranger_count = count + 1;
}

/* Asks a node how its clients are named. A refusal is one answer too: then nobody has words. */
static bool look_names(struct look_node *node) {
    redisReply *reply = look_ask(node, node->c, "CLIENT LIST TYPE normal");
    if (reply == NULL) {
        return false;
    }
    free(node->names);
    node->names = NULL;
    node->nameless = reply->type != REDIS_REPLY_STRING;
    if (!node->nameless) {
        node->names = rlock__names_kept(reply->str);
    } else if (cli.verbose && reply->type == REDIS_REPLY_ERROR) {
        char line[400];
        look_words(line, sizeof line, "no descriptions: ", reply->str);
        cli_say("rlock: %s: %s\n", node->where, line);
    }
    freeReplyObject(reply);
    return true;
}

/* Finds out the words of a holder, if it is another one than before. */
static bool look_who(struct show_row *row) {
    const struct show_row *was = row->was;
    const char *id = look_id(row), *old = was->held == 1 ? was->room : "";
    if (id != NULL && row->words != NULL && memcmp(id, old, 36) == 0) {
        return true;
    }
    if (look_words_of(row)) {
        return true;
    }
    if (!look_names(row->node)) {
        return false;
    }
    if (!look_words_of(row)) {
        look_estrange(row->node, id);
    }
    return true;
}

/* Shows what was answered just now; if something has failed, it is only forgotten. */
static bool look_settle_all(bool good) {
    while (look.told != NULL) {
        struct show_row *row = look.told, was = *row->was;
        look.told = row->next;
        good = good && look_who(row);
        free(row->was);
        row->was = NULL;
        if (good) {
            look_settle(row, &was);
        }
    }
    return good;
}

/* Asks for all on the list, in one go. ASKING: a key that has come before its slot is there. */
static bool look_answers(void) {
    bool good = true;
    while (look.asked != NULL) {
        struct show_row *list = look.asked, *row;
        look.asked = NULL;
        for (row = list; row != NULL; row = row->next) {
            if (look.config.cluster != NULL) {
                redisAppendCommand(row->node->c, "ASKING");
            }
            redisAppendCommand(row->node->c, "EVALSHA %s 1 %b %s", look.sha, row->key, row->key_len,
                               look.config.prefix);
        }
        while ((row = list) != NULL) {
            struct look_node *node = row->node;
            redisReply *reply = NULL;
            list = row->next;
            row->asked = false;
            good =
                good && (look.config.cluster == NULL || look_done(node, look_read(node, node->c)));
            good = good && (reply = look_read(node, node->c)) != NULL && look_answer(row, reply);
            freeReplyObject(reply);
        }
        good = look_settle_all(good);
    }
    return good;
}

/* ---- which keys there are, and which of them change ---- */

/* Has the keys asked that an answer to SCAN names, and notes where to go on. */
static bool look_found(struct look_node *node, const redisReply *reply, char cursor[24]) {
    const redisReply *keys;
    size_t i;
    if (!look_is(reply, "sl")) {
        return false;
    }
    snprintf(cursor, 24, "%s", reply->element[0]->str);
    keys = reply->element[1];
    for (i = 0; i < keys->elements; i++) {
        look_want(node, show_find(keys->element[i]->str, (size_t)keys->element[i]->len));
    }
    return true;
}

static bool look_scan(struct look_node *node) {
    char cursor[24] = "0";
    bool good;
    do {
        redisReply *reply = look_good(
            node, look_ask(node, node->c, "SCAN %s MATCH %s COUNT 1000", cursor, look.pattern));
        good = reply != NULL && look_found(node, reply, cursor);
        freeReplyObject(reply);
        good = good && look_answers();
    } while (good && strcmp(cursor, "0") != 0);
    return good;
}

/* Has the server report changes of each key that can match the pattern, or is next to such a key.
 * Prefixes may not overlap. If it refuses there is a round a second. */
static bool look_listen(struct look_node *node) {
    bool all = look.head[0] == 0 || look.head[0] == look.config.prefix[0];
    const char *const steps[] = {
        "CLIENT ID", "SUBSCRIBE __redis__:invalidate",
        all ? "CLIENT TRACKING ON BCAST REDIRECT %lld"
            : "CLIENT TRACKING ON BCAST REDIRECT %lld PREFIX %s PREFIX %s{%s"};
    long long id = 0;
    int i;
    node->push = look_dial(node);
    for (i = 0; i < 3 && node->push != NULL; i++) {
        redisReply *reply = look_ask(node, i < 2 ? node->push : node->c, steps[i], id, look.head,
                                     look.config.prefix, look.head);
        if (reply == NULL ||
            (i == 1 && reply->type != REDIS_REPLY_ERROR && !look_is(reply, "ss-"))) {
            freeReplyObject(reply);
            return false;
        }
        if (reply->type == REDIS_REPLY_ERROR) {
            look_words(look.refused, sizeof look.refused, "polled once a second: ", reply->str);
            redisFree(node->push);
            node->push = NULL;
        }
        id = i == 0 ? reply->integer : id;
        freeReplyObject(reply);
    }
    return node->push != NULL || look.refused[0] != 0;
}

/* Has a key asked that has changed, if it is looked for. */
static void look_changed(struct look_node *node, char *key, size_t len) {
    key[len] = 0;
    if (fnmatch(look.pattern, key, 0) == 0) {
        look_want(node, show_find(key, len));
    }
}

/* A report of the server, which names locks, and keys next to a lock. */
static void look_report(struct look_node *node, const redisReply *reply) {
    size_t i, head = strlen(look.config.prefix);
    look.flushed = look.flushed || reply->element[2]->type != REDIS_REPLY_ARRAY;
    for (i = 0; i < reply->element[2]->elements; i++) {
        char *key = reply->element[2]->element[i]->str;
        size_t len = (size_t)reply->element[2]->element[i]->len;
        look_changed(node, key, len);
        if (len > 6 &&
            (strcmp(key + len - 6, ":queue") == 0 || strcmp(key + len - 6, ":fence") == 0)) {
            bool wrapped =
                len > head + 8 && strncmp(key, look.config.prefix, head) == 0 && key[head] == '{';
            look_changed(node, key + (wrapped ? head + 1 : 0), len - 6 - (wrapped ? head + 2 : 0));
        }
    }
}

/* Takes what was reported up to now: the answer to one more SUBSCRIBE comes behind it. Thereby
 * each connection is known to live. */
static bool look_hear(struct look_node *node) {
    bool more = node->push != NULL;
    if (more) {
        redisAppendCommand(node->push, "SUBSCRIBE __redis__:invalidate");
    }
    while (more) {
        redisReply *reply = look_read(node, node->push);
        if (reply == NULL || !look_is(reply, "ss-")) {
            freeReplyObject(reply);
            return false;
        }
        more = strcmp(reply->element[0]->str, "message") == 0;
        if (more) {
            look_report(node, reply);
        }
        freeReplyObject(reply);
    }
    return look_done(node, look_ask(node, node->c, "PING"));
}

/* Has asked what the round did not find, and what has ended without being changed, as leases of
 * several holders do. */
static void look_due(const void *tree, VISIT visit, int depth) {
    struct show_row *row = show_visited(tree, visit);
    double ends = HUGE_VAL;
    (void)depth;
    if (row != NULL && row->soon_ms >= 0) {
        ends = row->at + (double)row->soon_ms / 1000 + 0.001;
    }
    if (row != NULL && (row->round != look.round || ends < show_now())) {
        look_want(row->node < look.nodes + look.count ? row->node : look.nodes, row);
    } else if (ends < look.next) {
        look.next = ends;
    }
}

static bool look_at_due(void) {
    look.next = show_now() + 1;
    twalk(show.rows, look_due);
    return look_answers();
}

static bool look_round(void) {
    size_t i = 0;
    look.round++;
    while (i < look.count && look_scan(&look.nodes[i])) {
        i++;
    }
    return i == look.count && look_at_due();
}

/* Draws the table, and waits for what is pushed, for a key, until whoever reads us is gone. */
static void look_wait(double seconds, const char *how) {
    static struct pollfd fds[LOOK_NODES + 2];
    bool keyboard = show.screen && isatty(STDIN_FILENO);
    char key = 'q';
    size_t i;
    show_out(look.pattern, look.config.cluster != NULL ? "cluster" : look.where, how);
    fds[0] = (struct pollfd){.fd = STDOUT_FILENO};
    fds[1] = (struct pollfd){.fd = keyboard ? STDIN_FILENO : -1, .events = POLLIN};
    for (i = 0; i < look.count; i++) {
        int fd = look.nodes[i].push != NULL ? look.nodes[i].push->fd : -1;
        fds[i + 2] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    if (poll(fds, look.count + 2, seconds > 0 ? (int)(seconds * 1000) + 1 : 0) <= 0) {
        return; /* SIGWINCH ends it too */
    }
    if (fds[0].revents != 0 ||
        (fds[1].revents != 0 && (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q'))) {
        show_leave();
        exit(0);
    }
}

static void look_hear_signals(void);

/* Stops as every program does, with the terminal given back; draws the table when it goes on. */
static void look_stop(void) {
    bool drawn = show.screen;
    sigset_t stop;
    int before = errno;
    show_leave();
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    look_hear_signals();
    if (drawn) {
        show_enter();
    }
    errno = before;
}

static void look_on_signal(int number) {
    if (number == SIGTSTP) {
        look_stop();
    } else if (number != SIGWINCH) {
        show_leave();
        _exit(0);
    }
}

/* What is ignored stays so, as nohup has it. A write goes on after a handler, as standard output
 * may be full. A wait by poll() ends all the same. */
static void look_hear_signals(void) {
    static const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
    struct sigaction action = {.sa_handler = look_on_signal, .sa_flags = SA_RESTART}, before;
    size_t i;
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(numbers[i], &action, NULL);
        }
    }
}

static void look_at_terminal(void) {
    const char *term = getenv("TERM");
    look_hear_signals();
    if (!cli.json && isatty(STDOUT_FILENO) && term != NULL && strcmp(term, "dumb") != 0) {
        show_enter();
    }
}

/* What top does until something fails. */
static bool look_top(void) {
    double scanned = 0;
    size_t i;
    look.flushed = true;
    if (!show.screen) { /* what fails before is no table */
        look_at_terminal();
    }
    look_wait(0, "looking");
    for (;;) {
        if (look.flushed || (look.refused[0] != 0 && show_now() - scanned > 0.95)) {
            look.flushed = false;
            scanned = show_now();
            if (!look_round()) {
                return false;
            }
        }
        if (!look_at_due()) {
            return false;
        }
        look.failing = false;
        look_wait(look.next - show_now(),
                  look.refused[0] != 0 ? look.refused : "updated by push; q quits");
        usleep(30000); /* what comes at once is shown at once */
        for (i = 0; i < look.count; i++) {
            if (!look_hear(&look.nodes[i])) {
                return false;
            }
        }
    }
}

/* ---- the client, and where the server is ---- */

static void look_on_event(void *user, const rlock_report *report) {
    (void)user;
    if (report->kind == RLOCK_REPORT_CONNECTED && report->link != NULL &&
        strcmp(report->link, "commands") == 0) {
        snprintf(look.where, sizeof look.where, "%s", report->where);
    }
}

static void look_on_info(rlock_client *client, const rlock_info *info, void *user) {
    static char *block;
    (void)user;
    free((void *)(uintptr_t)look.info.text);
    free(block);
    look.info = *info;
    look.info.text = info->text != NULL ? strdup(info->text) : NULL;
    block = rlock__who_copy(client, &look.info);
    look.answered = true;
    ev_break(EV_DEFAULT_ EVBREAK_ALL);
}

/* Has a client ask something. Returns false if it could not reach the server. */
static bool look_question(const rlock_options *options, bool force) {
    int status;
    cli_connect(look_on_event);
    password_begins();
    if (force) {
        status = rlock_force_release(cli.client, options, look_on_info, NULL);
    } else if (look.mode == LOOK_INSPECT) {
        status = rlock_describe(cli.client, options, look_on_info, NULL);
    } else {
        status = rlock_inspect(cli.client, options, look_on_info, NULL);
    }
    if (status != RLOCK_OK) {
        look_fail(cli.shown, status, NULL);
    }
    for (look.answered = false; !look.answered;) {
        ev_run(EV_DEFAULT, 0);
    }
    cli_disconnect();
    status = look.info.status;
    return (status != RLOCK_ERR_CONN && (status != RLOCK_ERR_UNKNOWN || force) &&
            (look.info.text == NULL || !look_passes(look.info.text))) ||
           look_fault(status, look.info.text);
}

static bool look_add(const char *where) {
    struct look_node *node = &look.nodes[look.count];
    redisReply *reply;
    size_t i = 0;
    while (i < look.count && strcmp(look.nodes[i].where, where) != 0) {
        i++;
    }
    if (i < look.count || i == LOOK_NODES) {
        return i < look.count || look_fault(RLOCK_ERR_ARG, "the cluster has too many masters");
    }
    memset(node, 0, sizeof *node);
    snprintf(node->where, sizeof node->where, "%s", where);
    look.count++;
    node->c = look_dial(node);
    reply = node->c != NULL ? look_ask(node, node->c, "SCRIPT LOAD %s", look_script) : NULL;
    if (reply != NULL && reply->str == NULL) {
        freeReplyObject(reply);
        return look_fault(RLOCK_ERR_SERVER, "unexpected reply");
    }
    snprintf(look.sha, sizeof look.sha, "%s", reply != NULL ? reply->str : "");
    return look_done(node, reply) && (look.mode != LOOK_TOP || look_listen(node));
}

/* Connects to each master that this node of a cluster names. */
static bool look_add_masters(const struct look_node *seed) {
    char where[sizeof seed->where];
    redisContext *c = look_dial(seed);
    redisReply *reply = c != NULL ? look_good(seed, look_ask(seed, c, "CLUSTER SLOTS")) : NULL;
    bool good = reply != NULL;
    size_t i;
    redisFree(c);
    good = good && look_is(reply, "");
    for (i = 0; good && i < reply->elements; i++) {
        const redisReply *slots = reply->element[i];
        redisReply **master;
        bool named;
        if (!look_is(slots, "ii*") || !look_is(slots->element[2], "*i")) {
            good = false;
            break;
        }
        master = slots->element[2]->element;
        named = master[0]->type == REDIS_REPLY_STRING && master[0]->len > 0 &&
                strcmp(master[0]->str, "?") != 0;
        if (named && !rlock__is_host(master[0]->str, (size_t)master[0]->len)) {
            good = look_fault(RLOCK_ERR_SERVER, "a node of the cluster has no host");
            break;
        }
        look_where(where, sizeof where, named ? master[0]->str : seed->where,
                   named ? (size_t)master[0]->len
                         : (size_t)(strrchr(seed->where, ':') - seed->where),
                   (int)master[1]->integer);
        good = look_add(where);
    }
    freeReplyObject(reply);
    return good && (look.count > 0 || look_fault(RLOCK_ERR_CONN, "the cluster has no slots"));
}

/* Connects to where the client is. Its answer does not matter if it is the server's. */
static bool look_reach(void) {
    rlock_options options = {.key = look.mode < LOOK_LS ? cli.keys[0] : "rlock"};
    struct look_node seed = {.c = NULL};
    look.where[0] = 0;
    if (!look_question(&options, false)) {
        return false;
    }
    if (look.where[0] == 0 && look.info.status == RLOCK_ERR_SERVER) { /* such as a replica */
        return look_fault(look.info.status, look.info.text);
    }
    if (look.where[0] == 0) {
        look_fail("the server", look.info.status, look.info.text);
    }
    snprintf(seed.where, sizeof seed.where, "%s", look.where);
    return look.config.cluster != NULL ? look_add_masters(&seed) : look_add(look.where);
}

/* Has the client ask about a key. Another engine says only whether the kind is right: if none was
 * given, all are tried. False: as look_question. */
static bool look_kinds(struct show_row *row) {
    static const rlock_kind others[] = {RLOCK_KIND_FAIR, RLOCK_KIND_WRITE, RLOCK_KIND_SEMAPHORE};
    rlock_options options = {.key = row->key, .key_len = row->key_len};
    size_t i = 0;
    options.kind = row->kind < 0 ? RLOCK_KIND_MUTEX : (rlock_kind)row->kind;
    for (;;) {
        options.permits = 0;
        if (options.kind == RLOCK_KIND_SEMAPHORE) { /* a forced release serves the queue by it */
            options.permits = cli.permits;
            if (options.permits == 0) {
                options.permits = row->need > 0 ? (uint32_t)row->need : 1;
            }
        }
        if (!look_question(&options, show.force)) {
            return false;
        }
        if (look.info.status != RLOCK_ERR_WRONG_TYPE || cli.engine == NULL || cli.kind_given ||
            i == sizeof others / sizeof *others) {
            return true;
        }
        options.kind = others[i++];
        row->kind = (int)options.kind;
    }
}

/* Puts the list of an answer into a row, and the words of the holder that it names. */
static void look_list(struct show_row *row, const rlock_info *info) {
    size_t i;
    row->who = info->who;
    row->who_count = info->who_count;
    row->untold = info->untold;
    for (i = 0; i < info->who_count; i++) {
        const rlock_who *who = &info->who[i];
        if (who->token_len == info->token_len && who->description != NULL && info->token != NULL &&
            memcmp(who->token, info->token, who->token_len) == 0) {
            row->words = strdup(who->description);
            return;
        }
    }
}

/* Asks the client about the key, whose kind is known now; nobody's may be of any. */
static bool look_key(struct show_row *row) {
    const rlock_info *info = &look.info;
    row->kind = cli.kind_given ? (int)cli.kind : row->kind;
    if (row->redisson && (cli.url == NULL || strstr(cli.url, "wire=") == NULL)) {
        cli.wire = RLOCK_WIRE_REDISSON;
    }
    if (!look_kinds(row)) {
        return false;
    }
    if (info->status != RLOCK_OK) {
        look_fail(cli.shown, info->status, info->text);
    }
    row->held = info->holders;
    row->left_ms = info->left_ms;
    row->at = show_now();
    row->kind = row->kind < 0 && row->held > 0 ? RLOCK_KIND_MUTEX : row->kind;
    row->waiters = info->waiters;
    if (cli.permits != 0 && row->kind == RLOCK_KIND_SEMAPHORE) {
        row->permits = info->permits;
    }
    if (show.force) { /* how it stands now is not asked */
        row->waiters = row->permits = -1;
    } else {
        row->token = info->token;
        row->token_len = info->token_len;
        look_list(row, info);
    }
    show_key(row);
    return true;
}

/* ---- from the beginning ---- */

/* All that is to be done, if nothing fails. */
static bool look_once(void) {
    bool direct = cli.members == NULL && cli.engine == NULL;
    struct show_row *row;
    if (direct && !look_reach()) {
        return false;
    }
    if (look.mode >= LOOK_LS) {
        return look.mode == LOOK_TOP ? look_top() : look_round();
    }
    row = show_find(cli.keys[0], strlen(cli.keys[0]));
    if (direct) {
        look_want(look.nodes, row);
    }
    return look_answers() && look_key(row);
}

/* Begins anew in a moment, unless the time for that is over. */
static void look_again(void) {
    char how[300];
    for (; look.count > 0; look.count--) {
        free(look.nodes[look.count - 1].names);
        free(look.nodes[look.count - 1].strangers);
        redisFree(look.nodes[look.count - 1].c);
        redisFree(look.nodes[look.count - 1].push);
    }
    for (; look.asked != NULL; look.asked = look.asked->next) {
        look.asked->asked = false;
    }
    look.refused[0] = 0;
    password_look();
    if (!look.failing && look.mode == LOOK_TOP) {
        look.until = show_now() + look.patience;
    }
    look.failing = true;
    if (cli.wait_ms == 0 || show_now() >= look.until) {
        look_fail("the server", look.failure, NULL);
    }
    snprintf(how, sizeof how, "not up to date: %s", cli.warning);
    look_wait(0.25, how);
}

/* pattern: NULL where there is a key. */
static int look_main(enum look_mode mode, const char *pattern) {
    char line[RLOCK__LINE], *texts;
    look.mode = mode;
    look.pattern = pattern != NULL ? pattern : "*";
    look.head = strdup(look.pattern);
    look.head[strcspn(look.head, "*?[\\")] = 0;
    look.patience = cli.wait_ms > 0 ? (double)cli.wait_ms / 1000 : cli.wait_ms == 0 ? 1 : 5;
    look.until = show_now() + look.patience;
    show.force = mode == LOOK_FORCE;
    show.color = isatty(STDOUT_FILENO) && getenv("NO_COLOR") == NULL && !cli.json;
    if (cli.members != NULL && mode >= LOOK_LS) {
        cli_fail(CLI_FAILED, "Name one of them with --url",
                 "ls and top support one server, not a quorum");
    }
    if (cli.engine != NULL && mode >= LOOK_LS) {
        cli_fail(CLI_FAILED, cli.engine->list, "ls and top support Redis only, not %s",
                 cli.engine->name);
    }
    look.config = cli_config(); /* a client finds what is wrong with it */
    if (cli.engine == NULL) {
        rlock__url_resolve(&look.config, false, &texts, line);
    }
    password_look();
    look.config.tls = cli.url != NULL ? look.config.tls : NULL;
    look.config.prefix = look.config.prefix != NULL ? look.config.prefix : "rlock:";
    setvbuf(stdout, NULL, _IOFBF, 65536);
    while (!look_once()) {
        look_again();
    }
    if (mode == LOOK_LS) {
        twalk(show.rows, show_each);
    }
    show.status = mode < LOOK_LS && look.info.holders == 0 ? 1 : 0;
    show_out("", "", "");
    return show.status;
}

#endif /* RLOCK_CLI_LOOK_H */
