/* A small Redis inside one process: what the simulator's servers are made of.
 *
 *     struct model *m = model_new(&hooks, 1);
 *     struct model_peer *peer = model_accept(m, my_connection);
 *     m->wall_us = now;                       its clock stands still unless it is set
 *     model_feed(peer, bytes, size);          commands in; replies and pushes come by hooks.send
 *
 * It speaks RESP2 and answers as Redis 7.0 does, or as Valkey 9, byte for byte: model_check.c sends
 * the same to a real server and compares. Scripts run in Lua 5.1, as they do there. It has no clock
 * and no randomness of its own: the same calls give the same bytes, on every machine.
 *
 * What it has not: RESP3, MULTI, patterns, inline commands, scripts with a `#!lua` line, options
 * that no lock needs (SET ... GET, CLIENT KILL by anything but ID, ZRANGE by anything but place),
 * COMMAND without names. It answers them with an error. WAIT does not wait. Of a command COMMAND
 * INFO tells the name and the arity, and of the rest only the shape. In scripts only the list of
 * globals is write-protected, there is no math.random, and of the tables that mean a reply of RESP3
 * none is known.
 *
 * Hooks may look (model_get, model_keys) and may call model_leave; nothing else of this file.
 * It ends the process when memory runs out: it is a part of the test, not of what is tested. */
#ifndef RLOCK_TESTS_MODEL_H
#define RLOCK_TESTS_MODEL_H

#include <errno.h>
#include <float.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#define MODEL_DATABASES 16
#define MODEL_DENIED 8

struct model_hooks {
    void *ctx;
    /* Towards the connection's client. */
    void (*send)(void *ctx, void *user, const char *bytes, size_t size);
    /* The server closed this connection. Neither `user` nor the peer is used again. */
    void (*hang_up)(void *ctx, void *user);
    /* A key was written or deleted, just now, inside a script too. `by` is the user of the
     * connection that did it, or m->stranger; NULL: it expired. May be NULL. */
    void (*touched)(void *ctx, void *by, const char *key, size_t key_len);
};

struct model_bytes { /* grows; not NUL-terminated unless somebody sees to it */
    char *at;
    size_t size, room;
};

struct model_arg {
    const char *at;
    size_t size;
};

enum model_type { MODEL_STRING, MODEL_HASH, MODEL_LIST, MODEL_ZSET };

struct model_field {
    struct model_bytes name, value;
    double score; /* of a member of a sorted set, which has no value */
};

struct model_value { /* points into the model: until it next runs a command */
    enum model_type type;
    const char *bytes; /* of a string */
    size_t size;
    const struct model_field *fields; /* of a hash as they came, of a sorted set as they stand */
    size_t count;                     /* of anything but a string */
    int64_t expires_us;               /* the first moment at which it is not there; -1 = never */
};

/* Things by name, in the order of their bytes. The names stand behind the things. */
struct model_item {
    char *name;
    size_t size;
};

struct model_map {
    struct model_item **items;
    size_t count, room;
};

struct model_key {
    struct model_item item;
    enum model_type type;
    int64_t expires_ms; /* gone when the clock's milliseconds are more than that; -1 = never */
    struct model_bytes value;
    struct model_field *fields;
    size_t count, room;
};

struct model_readers { /* who is told when a key changes */
    struct model_item item;
    uint64_t *ids;
    size_t count, room;
};

struct model_script {
    struct model_item item;
    int function; /* in Lua's registry */
};

/* What a server is like: what it knows, and how it says what it does not. */
enum model_flavour {
    MODEL_REDIS_7,  /* 7.0 */
    MODEL_REDIS_5,  /* no client tracking, no HELLO, no users */
    MODEL_REDIS_6,  /* 6.2: no PEXPIRE with options */
    MODEL_VALKEY_9, /* 9.1: DELIFEQ */
    MODEL_FLAVOURS
};

struct model;

struct model_peer {
    struct model *model;
    void *user;
    struct model_peer *next; /* among the dead */
    uint64_t id, redirect;
    int db;
    bool authenticated, tracking, noloop, gone, closing;
    bool silent, skip, skip_next; /* CLIENT REPLY */
    struct model_bytes in, name;
    struct model_map channels;
};

struct model_copy {
    struct model_map dbs[MODEL_DATABASES];
};

struct model {
    /* The caller's: set them between calls as you like. */
    int64_t wall_us;
    bool readonly;   /* a replica */
    bool oom;        /* maxmemory is reached */
    bool misconf;    /* the last snapshot failed */
    bool loading;    /* the dataset */
    bool masterdown; /* a replica that has lost its master and serves no stale data */
    bool noreplicas; /* fewer than min-replicas-to-write */
    enum model_flavour flavour;
    const char *password;
    const char *denied[MODEL_DENIED]; /* "publish", "client", "client|kill" ... */
    const char *renamed, *misfit;     /* not known by this name; taken with other arguments */
    bool sharded;                     /* keys of one command must be in one slot */
    void *stranger;                   /* hooks.touched is told this for model_call */
    uint64_t commands, scripts_run, delifeqs, mgets; /* counters */
    uint64_t full; /* scripts refused for memory although their first key is a sorted set */

    /* Its own. */
    struct model_hooks hooks;
    uint64_t seed, restarts, last_id;
    char run_id[41];
    int64_t started_us; /* when this process of it began */
    struct model_map dbs[MODEL_DATABASES];
    struct model_map tracked; /* struct model_readers, of all databases together, as in Redis */
    struct model_map scripts;
    struct model_peer **peers; /* in the order of their ids */
    size_t peers_count, peers_room;
    struct model_peer *dead;    /* freed when no call is under way */
    struct model_peer outsider; /* whose commands model_call runs */
    struct model_peer inner;    /* whose commands a script runs: it has a database of its own */
    struct model_peer *current; /* whose command is running; NULL = none */
    struct model_bytes reply, answer, push, pending;
    struct model_bytes number; /* one that ends with a NUL, to be read */
    struct model_bytes *out;   /* where a command's reply goes: reply, or answer inside a script */
    struct model_arg *args, *inner_args;
    size_t args_room, inner_args_room;
    const struct model_arg *declared; /* the keys that the running script was given */
    int declared_count;
    lua_State *lua;
    int depth;         /* calls under way */
    bool script_wrote; /* from its first write on nothing may stop a script any more */
    bool loud;         /* the reply is a push: CLIENT REPLY OFF does not hold it back */
    char text[512];    /* an error that had to be put together */
};

struct model_request {
    struct model *m;
    struct model_peer *peer;
    int argc;
    const struct model_arg *argv;
};

enum {
    MODEL_WRITE = 1,
    MODEL_DENYOOM = 2,
    MODEL_READ = 4,              /* its keys are remembered for client tracking */
    MODEL_NOSCRIPT = 8,          /* not inside scripts */
    MODEL_LOADING = 16,          /* also while loading */
    MODEL_STALE = 32,            /* also while the master is down */
    MODEL_NO_AUTH = 64,          /* also without a password */
    MODEL_SUBSCRIBED = 128,      /* also on a connection that has subscribed */
    MODEL_NEW = 256,             /* Redis 5 does not know it */
    MODEL_GROUP = 512,           /* only its subcommands are commands */
    MODEL_VALKEY = 1024,         /* only Valkey knows it */
    MODEL_REDIS_NOSCRIPT = 2048, /* as MODEL_NOSCRIPT, but not in Valkey */
    MODEL_VALKEY_STALE = 4096    /* as MODEL_STALE, but only in Valkey */
};

struct model_command {
    const char *name;
    int arity; /* as Redis counts: with the name; negative = at least */
    unsigned flags;
    int keys; /* 0 = none, 1 = the first argument, -1 = all */
    void (*run)(struct model_request *r);
};

/* ---- bytes ---- */

static inline void *model__must(void *memory) {
    if (memory == NULL) {
        fputs("model: out of memory\n", stderr);
        abort();
    }
    return memory;
}

static inline void model__reserve(struct model_bytes *b, size_t more) {
    if (b->room - b->size < more) {
        b->room = (b->size + more) * 2 + 16;
        b->at = (char *)model__must(realloc(b->at, b->room));
    }
}

static inline void model__append(struct model_bytes *b, const char *bytes, size_t size) {
    model__reserve(b, size + 1);
    if (size > 0) {
        memcpy(b->at + b->size, bytes, size);
    }
    b->size += size;
    b->at[b->size] = '\0';
}

static inline void model__assign(struct model_bytes *b, const char *bytes, size_t size) {
    b->size = 0;
    model__append(b, bytes, size);
}

static inline void model__release(struct model_bytes *b) {
    free(b->at);
    memset(b, 0, sizeof *b);
}

/* Makes room for one more in an array that doubles. */
static inline void *model__grow(void *array, size_t count, size_t *room, size_t each) {
    if (count < *room) {
        return array;
    }
    *room = *room * 2 + 4;
    return model__must(realloc(array, *room * each));
}

static inline char model__lower(char c) {
    return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static inline bool model__is(struct model_arg arg, const char *word) {
    size_t i;

    for (i = 0; i < arg.size; i++) {
        if (word[i] == '\0' || model__lower(arg.at[i]) != model__lower(word[i])) {
            return false;
        }
    }
    return word[i] == '\0';
}

static inline size_t model__digits(char *out, int64_t number) {
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    char reversed[24];
    size_t n = 0, size = 0;

    do {
        reversed[n++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) {
        out[size++] = '-';
    }
    while (n > 0) {
        out[size++] = reversed[--n];
    }
    return size;
}

/* As strict as Redis: no blank, no plus, no zero in front. */
static inline bool model__integer(struct model_arg arg, int64_t *out) {
    bool minus = arg.size > 0 && arg.at[0] == '-';
    uint64_t number = 0, limit = (uint64_t)INT64_MAX + minus;
    size_t i = minus;

    if (i == arg.size || (arg.at[i] == '0' && arg.size > 1)) {
        return false;
    }
    for (; i < arg.size; i++) {
        unsigned digit = (unsigned)(unsigned char)arg.at[i] - '0';

        if (digit > 9 || number > (limit - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    *out = minus ? (int64_t)(0 - number) : (int64_t)number;
    return true;
}

/* ---- maps ---- */

/* The place of a name, or where it would stand. */
static inline bool model__place(const struct model_map *map, const char *name, size_t size,
                                size_t *place) {
    size_t low = 0, high = map->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct model_item *item = map->items[middle];
        size_t common = size < item->size ? size : item->size;
        int order = common > 0 ? memcmp(name, item->name, common) : 0;

        if (order == 0 && size == item->size) {
            *place = middle;
            return true;
        }
        if (order < 0 || (order == 0 && size < item->size)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *place = low;
    return false;
}

static inline void *model__find(const struct model_map *map, const char *name, size_t size) {
    size_t place;

    return model__place(map, name, size, &place) ? map->items[place] : NULL;
}

/* A new thing of `bytes` bytes, all zero but its name, which is not there yet. */
static inline void *model__add(struct model_map *map, const char *name, size_t size, size_t bytes) {
    struct model_item *item = (struct model_item *)model__must(calloc(1, bytes + size + 1));
    size_t place;

    model__place(map, name, size, &place);
    map->items =
        (struct model_item **)model__grow(map->items, map->count, &map->room, sizeof *map->items);
    memmove(map->items + place + 1, map->items + place, (map->count - place) * sizeof *map->items);
    map->items[place] = item;
    map->count++;
    item->name = (char *)item + bytes;
    item->size = size;
    if (size > 0) {
        memcpy(item->name, name, size);
    }
    return item;
}

/* Takes a thing out; the caller frees it. */
static inline void *model__take(struct model_map *map, size_t place) {
    struct model_item *item = map->items[place];

    map->count--;
    memmove(map->items + place, map->items + place + 1, (map->count - place) * sizeof *map->items);
    return item;
}

static inline void model__key_empty(struct model_key *key) {
    size_t i;

    for (i = 0; key->fields != NULL && i < key->count; i++) {
        model__release(&key->fields[i].name);
        model__release(&key->fields[i].value);
    }
    free(key->fields);
    key->fields = NULL;
    key->count = key->room = 0;
}

static inline void model__free_key(void *item) {
    struct model_key *key = (struct model_key *)item;

    model__key_empty(key);
    model__release(&key->value);
    free(key);
}

static inline void model__free_readers(void *item) {
    free(((struct model_readers *)item)->ids);
    free(item);
}

/* What was in it is freed by `each`. */
static inline void model__map_free(struct model_map *map, void (*each)(void *item)) {
    size_t i;

    for (i = 0; i < map->count; i++) {
        each(map->items[i]);
    }
    free(map->items);
    memset(map, 0, sizeof *map);
}

static inline struct model_field *model__new_field(struct model_key *key) {
    struct model_field *field;

    key->fields =
        (struct model_field *)model__grow(key->fields, key->count, &key->room, sizeof *key->fields);
    field = &key->fields[key->count++];
    memset(field, 0, sizeof *field);
    return field;
}

static inline void model__map_copy(struct model_map *to, const struct model_map *from) {
    size_t i, j;

    for (i = 0; i < from->count; i++) {
        const struct model_key *old = (const struct model_key *)(const void *)from->items[i];
        struct model_key *key =
            (struct model_key *)model__add(to, old->item.name, old->item.size, sizeof *key);

        key->type = old->type;
        key->expires_ms = old->expires_ms;
        model__assign(&key->value, old->value.at, old->value.size);
        for (j = 0; old->fields != NULL && j < old->count; j++) {
            struct model_field *field = model__new_field(key);

            model__assign(&field->name, old->fields[j].name.at, old->fields[j].name.size);
            model__assign(&field->value, old->fields[j].value.at, old->fields[j].value.size);
            field->score = old->fields[j].score;
        }
        key->count = old->count;
    }
}

/* ---- replies ---- */

static inline void model__put_count(struct model_bytes *out, char kind, int64_t count) {
    char *at;

    model__reserve(out, 32);
    at = out->at + out->size;
    *at++ = kind;
    at += model__digits(at, count);
    *at++ = '\r';
    *at++ = '\n';
    *at = '\0';
    out->size = (size_t)(at - out->at);
}

static inline void model__put_bulk(struct model_bytes *out, const char *bytes, size_t size) {
    model__put_count(out, '$', (int64_t)size);
    model__append(out, bytes, size);
    model__append(out, "\r\n", 2);
}

static inline void model__put_word(struct model_bytes *out, const char *word) {
    model__put_bulk(out, word, strlen(word));
}

static inline void model__put_null(struct model_bytes *out) {
    model__append(out, "$-1\r\n", 5);
}

/* A line of its own: what would end it early becomes blanks. */
static inline void model__put_line(struct model_bytes *out, char kind, const char *text,
                                   size_t size) {
    size_t i, start;

    model__append(out, &kind, 1);
    start = out->size;
    model__append(out, text, size);
    for (i = start; i < out->size; i++) {
        if (out->at[i] == '\r' || out->at[i] == '\n') {
            out->at[i] = ' ';
        }
    }
    model__append(out, "\r\n", 2);
}

static inline void model__say(struct model_request *r, const char *status) {
    model__put_line(r->m->out, '+', status, strlen(status));
}

static inline void model__fail(struct model_request *r, const char *error) {
    model__put_line(r->m->out, '-', error, strlen(error));
}

static inline void model__count(struct model_request *r, int64_t number) {
    model__put_count(r->m->out, ':', number);
}

/* How much of an argument goes into an error. */
static inline int model__shown(struct model_arg arg, size_t most) {
    return (int)(arg.size < most ? arg.size : most);
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline const char *
model__text(struct model *m, const char *format, ...) {
    va_list ap;

    va_start(ap, format);
    vsnprintf(m->text, sizeof m->text, format, ap);
    va_end(ap);
    return m->text;
}

/* Redis 6 and before. */
static inline bool model__is_old(const struct model *m) {
    return m->flavour == MODEL_REDIS_5 || m->flavour == MODEL_REDIS_6;
}

/* Valkey has other words for some things. */
static inline const char *model__words(const struct model *m, const char *redis,
                                       const char *valkey) {
    return m->flavour == MODEL_VALKEY_9 ? valkey : redis;
}

/* And so has old Redis, for what a script may not do. */
static inline const char *model__script_words(const struct model *m, const char *old,
                                              const char *redis, const char *valkey) {
    return model__is_old(m) ? old : model__words(m, redis, valkey);
}

#define MODEL__SYNTAX "ERR syntax error"
#define MODEL__NOT_INTEGER "ERR value is not an integer or out of range"
#define MODEL__WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define MODEL__OVERFLOW "ERR increment or decrement would overflow"
#define MODEL__NOT_FLOAT "ERR value is not a valid float"
#define MODEL__NO_RANGE "ERR min or max is not a float"

/* ---- peers, and what is pushed to them ---- */

static inline struct model_peer *model__peer_after(const struct model *m, uint64_t id) {
    size_t low = 0, high = m->peers_count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (m->peers[middle]->id <= id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < m->peers_count ? m->peers[low] : NULL;
}

static inline struct model_peer *model__peer(const struct model *m, uint64_t id) {
    struct model_peer *peer = id > 0 ? model__peer_after(m, id - 1) : NULL;

    return peer != NULL && peer->id == id ? peer : NULL;
}

static inline void model__free_peer(struct model_peer *peer) {
    model__release(&peer->in);
    model__release(&peer->name);
    model__map_free(&peer->channels, free);
}

static inline void model__enter(struct model *m) {
    m->depth++;
}

static inline void model__quit(struct model *m) {
    if (--m->depth > 0) {
        return;
    }
    while (m->dead != NULL) {
        struct model_peer *peer = m->dead;

        m->dead = peer->next;
        model__free_peer(peer);
        free(peer);
    }
}

static inline void model__remove_peer(struct model_peer *peer) {
    struct model *m = peer->model;
    size_t i;

    for (i = 0; i < m->peers_count; i++) {
        if (m->peers[i] == peer) {
            m->peers_count--;
            memmove(m->peers + i, m->peers + i + 1, (m->peers_count - i) * sizeof *m->peers);
            peer->gone = true;
            peer->next = m->dead;
            m->dead = peer;
            return;
        }
    }
}

static inline void model__hang_up(struct model_peer *peer) {
    struct model *m = peer->model;

    if (!peer->gone && peer != &m->outsider) {
        model__remove_peer(peer);
        m->hooks.hang_up(m->hooks.ctx, peer->user);
    }
}

static inline void model__send(struct model_peer *peer, const struct model_bytes *bytes) {
    if (!peer->gone && peer != &peer->model->outsider && bytes->size > 0) {
        peer->model->hooks.send(peer->model->hooks.ctx, peer->user, bytes->at, bytes->size);
    }
}

static inline void model__put_message(struct model_bytes *out, const char *channel,
                                      size_t channel_size) {
    model__append(out, "*3\r\n$7\r\nmessage\r\n", 17);
    model__put_bulk(out, channel, channel_size);
}

/* Says that a key changed, or (NULL) that all of them did. A client without RESP3 hears of it on
 * another connection, one that has subscribed, to whatever channel; else not at all. What the
 * running command makes its own client hear comes behind its reply. */
static inline void model__tell(struct model_peer *reader, const char *key, size_t size) {
    struct model *m = reader->model;
    struct model_bytes *out = reader == m->current ? &m->pending : &m->push;
    struct model_peer *listener = model__peer(m, reader->redirect);

    if (listener == NULL || listener->channels.count == 0) {
        return;
    }
    if (out == &m->push) {
        out->size = 0;
    }
    model__put_message(out, "__redis__:invalidate", 20);
    if (key != NULL) {
        model__append(out, "*1\r\n", 4);
        model__put_bulk(out, key, size);
    } else {
        model__put_null(out);
    }
    if (out == &m->push) {
        model__send(listener, out);
    }
}

/* Who has read the key is told once, and forgotten. */
static inline void model__invalidate(struct model *m, const char *key, size_t size) {
    struct model_readers *readers;
    size_t place, i;

    if (!model__place(&m->tracked, key, size, &place)) {
        return;
    }
    readers = (struct model_readers *)model__take(&m->tracked, place);
    for (i = 0; i < readers->count; i++) {
        struct model_peer *reader = model__peer(m, readers->ids[i]);

        if (reader != NULL && reader->tracking && !(reader->noloop && reader == m->current)) {
            model__tell(reader, key, size);
        }
    }
    model__free_readers(readers);
}

static inline void model__invalidate_all(struct model *m) {
    struct model_peer *peer;

    for (peer = model__peer_after(m, 0); peer != NULL; peer = model__peer_after(m, peer->id)) {
        if (peer->tracking) {
            model__tell(peer, NULL, 0); /* NOLOOP or not */
        }
    }
    model__map_free(&m->tracked, model__free_readers);
}

static inline void model__remember(struct model *m, struct model_arg key) {
    struct model_readers *readers =
        (struct model_readers *)model__find(&m->tracked, key.at, key.size);
    uint64_t id = m->current->id;
    size_t i = 0;

    if (readers == NULL) {
        readers =
            (struct model_readers *)model__add(&m->tracked, key.at, key.size, sizeof *readers);
    }
    while (i < readers->count && readers->ids[i] < id) {
        i++;
    }
    if (i < readers->count && readers->ids[i] == id) {
        return;
    }
    readers->ids =
        (uint64_t *)model__grow(readers->ids, readers->count, &readers->room, sizeof *readers->ids);
    memmove(readers->ids + i + 1, readers->ids + i, (readers->count - i) * sizeof *readers->ids);
    readers->ids[i] = id;
    readers->count++;
}

/* ---- keys ---- */

static inline bool model__is_replica(const struct model *m) {
    return m->readonly || m->masterdown;
}

static inline int64_t model__now_ms(const struct model *m) {
    return m->wall_us / 1000;
}

static inline bool model__is_over(const struct model *m, const struct model_key *key) {
    return key->expires_ms >= 0 && model__now_ms(m) > key->expires_ms;
}

static inline void model__touched(struct model *m, const char *key, size_t size, bool expired) {
    void *by = NULL;

    model__invalidate(m, key, size);
    if (!expired && m->current != NULL) {
        by = m->current == &m->outsider ? m->stranger : m->current->user;
    }
    if (m->hooks.touched != NULL) {
        m->hooks.touched(m->hooks.ctx, by, key, size);
    }
}

static inline void model__changed(struct model_request *r, struct model_arg key) {
    model__touched(r->m, key.at, key.size, false);
}

static inline void model__delete(struct model *m, struct model_map *db, size_t place,
                                 bool expired) {
    struct model_key *key = (struct model_key *)model__take(db, place);

    model__touched(m, key->item.name, key->item.size, expired);
    model__free_key(key);
}

static inline struct model_map *model__db(struct model_request *r) {
    return &r->m->dbs[r->peer->db];
}

/* A key that is over goes when it is looked at; a replica waits for its master to say so. */
static inline struct model_key *model__look(struct model_request *r, struct model_arg name) {
    struct model_map *db = model__db(r);
    struct model_key *key;
    size_t place;

    if (!model__place(db, name.at, name.size, &place)) {
        return NULL;
    }
    key = (struct model_key *)(void *)db->items[place];
    if (!model__is_over(r->m, key)) {
        return key;
    }
    if (!model__is_replica(r->m)) {
        model__delete(r->m, db, place, true);
    }
    return NULL;
}

static inline bool model__drop(struct model_request *r, struct model_arg name) {
    size_t place;

    if (model__look(r, name) == NULL || !model__place(model__db(r), name.at, name.size, &place)) {
        return false;
    }
    model__delete(r->m, model__db(r), place, false);
    return true;
}

static inline struct model_key *model__create(struct model_request *r, struct model_arg name,
                                              enum model_type type) {
    struct model_key *key =
        (struct model_key *)model__add(model__db(r), name.at, name.size, sizeof *key);

    key->type = type;
    key->expires_ms = -1;
    return key;
}

/* False, and the error is said: the key is of another type. */
static inline bool model__typed(struct model_request *r, const struct model_key *key,
                                enum model_type type) {
    if (key != NULL && key->type != type) {
        model__fail(r, MODEL__WRONGTYPE);
        return false;
    }
    return true;
}

static inline bool model__number(struct model_request *r, struct model_arg arg, int64_t *out) {
    if (!model__integer(arg, out)) {
        model__fail(r, MODEL__NOT_INTEGER);
        return false;
    }
    return true;
}

static inline bool model__sum(struct model_request *r, int64_t *number, int64_t more) {
    if ((more > 0 && *number > INT64_MAX - more) || (more < 0 && *number < INT64_MIN - more)) {
        model__fail(r, MODEL__OVERFLOW);
        return false;
    }
    *number += more;
    return true;
}

static inline struct model_arg model__as_arg(const struct model_bytes *bytes) {
    struct model_arg arg;

    arg.at = bytes->at;
    arg.size = bytes->size;
    return arg;
}

/* ---- commands: strings and times to live ---- */

static inline void model__do_get(struct model_request *r) {
    struct model_key *key = model__look(r, r->argv[1]);

    if (key == NULL) {
        model__put_null(r->m->out);
    } else if (model__typed(r, key, MODEL_STRING)) {
        model__put_bulk(r->m->out, key->value.at, key->value.size);
    }
}

static inline void model__do_mget(struct model_request *r) {
    int i;

    r->m->mgets++;
    model__put_count(r->m->out, '*', r->argc - 1);
    for (i = 1; i < r->argc; i++) {
        const struct model_key *key = model__look(r, r->argv[i]);

        if (key == NULL || key->type != MODEL_STRING) {
            model__put_null(r->m->out);
        } else {
            model__put_bulk(r->m->out, key->value.at, key->value.size);
        }
    }
}

struct model_set { /* the options of a SET */
    bool nx, xx, keep;
    int64_t unit; /* ms of one of the time given; 0 = none is given */
    struct model_arg time;
    int64_t amount; /* of that unit */
};

static inline bool model__set_options(struct model_request *r, struct model_set *set) {
    int i;

    memset(set, 0, sizeof *set);
    for (i = 3; i < r->argc; i++) {
        bool px = model__is(r->argv[i], "px"), ex = model__is(r->argv[i], "ex");

        if (model__is(r->argv[i], "nx") && !set->xx) {
            set->nx = true;
        } else if (model__is(r->argv[i], "xx") && !set->nx) {
            set->xx = true;
        } else if (model__is(r->argv[i], "keepttl") && set->unit == 0 &&
                   r->m->flavour != MODEL_REDIS_5) {
            set->keep = true;
        } else if ((px || ex) && !set->keep && set->unit == 0 && i + 1 < r->argc) {
            set->unit = px ? 1 : 1000;
            set->time = r->argv[++i];
        } else {
            return false;
        }
    }
    return true;
}

static inline void model__do_set(struct model_request *r) {
    struct model_key *key;
    struct model_set set;
    int64_t now_ms = model__now_ms(r->m);

    if (!model__set_options(r, &set)) {
        model__fail(r, MODEL__SYNTAX);
        return;
    }
    if (set.unit > 0 && !model__number(r, set.time, &set.amount)) {
        return;
    }
    if (set.unit > 0 && (set.amount <= 0 || set.amount > (INT64_MAX - now_ms) / set.unit)) {
        model__fail(r, "ERR invalid expire time in 'set' command");
        return;
    }
    key = model__look(r, r->argv[1]);
    if (key != NULL ? set.nx : set.xx) {
        model__put_null(r->m->out);
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_STRING);
    }
    model__key_empty(key);
    key->type = MODEL_STRING;
    model__assign(&key->value, r->argv[2].at, r->argv[2].size);
    if (!set.keep) {
        key->expires_ms = set.unit > 0 ? now_ms + set.amount * set.unit : -1;
    }
    model__changed(r, r->argv[1]);
    model__say(r, "OK");
}

static inline void model__do_incr(struct model_request *r) {
    struct model_key *key = model__look(r, r->argv[1]);
    int64_t number = 0;
    char digits[24];

    if (!model__typed(r, key, MODEL_STRING) ||
        (key != NULL && !model__number(r, model__as_arg(&key->value), &number)) ||
        !model__sum(r, &number, 1)) {
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_STRING);
    }
    model__assign(&key->value, digits, model__digits(digits, number));
    model__changed(r, r->argv[1]);
    model__count(r, number);
}

static inline void model__do_del(struct model_request *r) {
    int i, count = 0;

    for (i = 1; i < r->argc; i++) {
        count += model__drop(r, r->argv[i]);
    }
    model__count(r, count);
}

static inline void model__do_delifeq(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);
    bool is_it;

    r->m->delifeqs++;
    if (!model__typed(r, key, MODEL_STRING)) {
        return;
    }
    is_it = key != NULL && key->value.size == r->argv[2].size &&
            memcmp(key->value.at, r->argv[2].at, key->value.size) == 0;
    model__count(r, is_it && model__drop(r, r->argv[1]));
}

static inline void model__do_exists(struct model_request *r) {
    int i, count = 0;

    for (i = 1; i < r->argc; i++) {
        count += model__look(r, r->argv[i]) != NULL;
    }
    model__count(r, count);
}

static inline void model__do_type(struct model_request *r) {
    static const char *const names[] = {"string", "hash", "list", "zset"};
    const struct model_key *key = model__look(r, r->argv[1]);

    model__say(r, key != NULL ? names[key->type] : "none");
}

static inline void model__do_pttl(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);

    model__count(r, key == NULL           ? -2
                    : key->expires_ms < 0 ? -1
                                          : key->expires_ms - model__now_ms(r->m));
}

enum {
    MODEL_NX = 1,
    MODEL_XX = 2,
    MODEL_GT = 4,
    MODEL_LT = 8,
    MODEL_CH = 16,
    MODEL_INCR = 32,
    MODEL_EXPIRE_OPTIONS = MODEL_NX | MODEL_XX | MODEL_GT | MODEL_LT,
    MODEL_ZADD_OPTIONS = MODEL_EXPIRE_OPTIONS | MODEL_CH | MODEL_INCR
};

/* 0 = it is none of those. */
static inline unsigned model__option(struct model_arg word, unsigned those) {
    static const char *const words[] = {"nx", "xx", "gt", "lt", "ch", "incr"};
    unsigned which;

    for (which = 0; which < sizeof words / sizeof *words; which++) {
        if ((those >> which & 1) && model__is(word, words[which])) {
            return 1u << which;
        }
    }
    return 0;
}

/* False, and the error is said: they are no options of PEXPIRE, or do not go together. */
static inline bool model__expire_options(struct model_request *r, unsigned *options) {
    unsigned option;
    int i;

    *options = 0;
    for (i = 3; i < r->argc; i++) {
        option = model__option(r->argv[i], MODEL_EXPIRE_OPTIONS);
        if (option == 0) {
            model__fail(r, model__text(r->m, "ERR Unsupported option %.*s",
                                       model__shown(r->argv[i], 128), r->argv[i].at));
            return false;
        }
        *options |= option;
    }
    if ((*options & MODEL_NX) && *options != MODEL_NX) {
        model__fail(r, "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if ((*options & MODEL_GT) && (*options & MODEL_LT)) {
        model__fail(r, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    return true;
}

/* Whether the options let a key's time be `when`. A key without a time has the longest one. */
static inline bool model__expire_may(const struct model_key *key, unsigned options, int64_t when) {
    bool endless = key->expires_ms < 0;

    return !((options & MODEL_NX) && !endless) && !((options & MODEL_XX) && endless) &&
           !((options & MODEL_GT) && (endless || when <= key->expires_ms)) &&
           !((options & MODEL_LT) && !endless && when >= key->expires_ms);
}

/* A time that has passed deletes at once, on a master. */
static inline void model__expire(struct model_request *r, int64_t base_ms, const char *name) {
    struct model_key *key;
    unsigned options;
    int64_t when;

    if (!model__expire_options(r, &options) || !model__number(r, r->argv[2], &when)) {
        return;
    }
    if (when > INT64_MAX - base_ms) {
        model__fail(r, model__text(r->m, "ERR invalid expire time in '%s' command", name));
        return;
    }
    when += base_ms;
    key = model__look(r, r->argv[1]);
    if (key == NULL || !model__expire_may(key, options, when)) {
        model__count(r, 0);
        return;
    }
    if (when <= model__now_ms(r->m) && !model__is_replica(r->m)) {
        model__drop(r, r->argv[1]);
    } else {
        key->expires_ms = when;
        model__changed(r, r->argv[1]);
    }
    model__count(r, 1);
}

static inline void model__do_pexpire(struct model_request *r) {
    model__expire(r, model__now_ms(r->m), "pexpire");
}

static inline void model__do_pexpireat(struct model_request *r) {
    model__expire(r, 0, "pexpireat");
}

static inline void model__do_persist(struct model_request *r) {
    struct model_key *key = model__look(r, r->argv[1]);
    bool had = key != NULL && key->expires_ms >= 0;

    if (had) {
        key->expires_ms = -1;
        model__changed(r, r->argv[1]);
    }
    model__count(r, had);
}

/* ---- commands: hashes, and a list for those who expect none ---- */

static inline struct model_field *model__field(const struct model_key *key, struct model_arg name) {
    size_t i;

    for (i = 0; key != NULL && i < key->count; i++) {
        struct model_field *field = &key->fields[i];

        if (field->name.size == name.size &&
            (name.size == 0 || memcmp(field->name.at, name.at, name.size) == 0)) {
            return field;
        }
    }
    return NULL;
}

/* True when the field is new. */
static inline bool model__put_field(struct model_key *key, struct model_arg name,
                                    struct model_arg value) {
    struct model_field *field = model__field(key, name);
    bool is_new = field == NULL;

    if (is_new) {
        field = model__new_field(key);
        model__assign(&field->name, name.at, name.size);
    }
    model__assign(&field->value, value.at, value.size);
    return is_new;
}

static inline void model__do_hset(struct model_request *r) {
    struct model_key *key;
    int i, count = 0;

    if (r->argc % 2 != 0) {
        model__fail(r, "ERR wrong number of arguments for 'hset' command");
        return;
    }
    key = model__look(r, r->argv[1]);
    if (!model__typed(r, key, MODEL_HASH)) {
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_HASH);
    }
    for (i = 2; i < r->argc; i += 2) {
        count += model__put_field(key, r->argv[i], r->argv[i + 1]);
    }
    model__changed(r, r->argv[1]);
    model__count(r, count);
}

static inline void model__do_hincrby(struct model_request *r) {
    struct model_key *key;
    struct model_field *field;
    struct model_arg value;
    int64_t more, number = 0;
    char digits[24];

    if (!model__number(r, r->argv[3], &more)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (!model__typed(r, key, MODEL_HASH)) {
        return;
    }
    field = model__field(key, r->argv[2]);
    if (field != NULL && !model__integer(model__as_arg(&field->value), &number)) {
        model__fail(r, "ERR hash value is not an integer");
        return;
    }
    if (!model__sum(r, &number, more)) {
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_HASH);
    }
    value.at = digits;
    value.size = model__digits(digits, number);
    model__put_field(key, r->argv[2], value);
    model__changed(r, r->argv[1]);
    model__count(r, number);
}

static inline void model__do_hget(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);
    const struct model_field *field;

    if (!model__typed(r, key, MODEL_HASH)) {
        return;
    }
    field = model__field(key, r->argv[2]);
    if (field != NULL) {
        model__put_bulk(r->m->out, field->value.at, field->value.size);
    } else {
        model__put_null(r->m->out);
    }
}

static inline void model__do_hexists(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);

    if (model__typed(r, key, MODEL_HASH)) {
        model__count(r, model__field(key, r->argv[2]) != NULL);
    }
}

static inline void model__do_hgetall(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);
    size_t i;

    if (!model__typed(r, key, MODEL_HASH)) {
        return;
    }
    model__put_count(r->m->out, '*', key != NULL ? (int64_t)key->count * 2 : 0);
    for (i = 0; key != NULL && i < key->count; i++) {
        model__put_bulk(r->m->out, key->fields[i].name.at, key->fields[i].name.size);
        model__put_bulk(r->m->out, key->fields[i].value.at, key->fields[i].value.size);
    }
}

static inline void model__take_field(struct model_key *key, struct model_field *field) {
    model__release(&field->name);
    model__release(&field->value);
    key->count--;
    memmove(field, field + 1, (size_t)(key->fields + key->count - field) * sizeof *field);
}

/* Says how many were taken out of the key; one that is empty goes. */
static inline void model__took(struct model_request *r, const struct model_key *key, int count) {
    if (count > 0 && key->count == 0) {
        model__drop(r, r->argv[1]);
    } else if (count > 0) {
        model__changed(r, r->argv[1]);
    }
    model__count(r, count);
}

static inline void model__remove(struct model_request *r, enum model_type type) {
    struct model_key *key = model__look(r, r->argv[1]);
    int i, count = 0;

    if (!model__typed(r, key, type)) {
        return;
    }
    for (i = 2; key != NULL && i < r->argc; i++) {
        struct model_field *field = model__field(key, r->argv[i]);

        if (field != NULL) {
            model__take_field(key, field);
            count++;
        }
    }
    model__took(r, key, count);
}

static inline void model__do_hdel(struct model_request *r) {
    model__remove(r, MODEL_HASH);
}

/* What is in it, nobody asks. */
static inline void model__do_lpush(struct model_request *r) {
    struct model_key *key = model__look(r, r->argv[1]);

    if (!model__typed(r, key, MODEL_LIST)) {
        return;
    }
    if (key == NULL) {
        key = model__create(r, r->argv[1], MODEL_LIST);
    }
    key->count += (size_t)r->argc - 2;
    model__changed(r, r->argv[1]);
    model__count(r, (int64_t)key->count);
}

/* ---- commands: sorted sets ---- */

/* No more digits than it takes to tell a number from others, and an exponent only where there were
 * many zeros without it. */
static inline void model__put_shortest(char *out, size_t room, double number) {
    char text[32], digits[32];
    int count = 0, exponent, power;
    size_t i, size;

    do {
        snprintf(text, sizeof text, "%.*e", count, number);
    } while (count++ < 16 && strtod(text, NULL) != number);
    size = strcspn(text, "e");
    exponent = (int)strtol(text + size + 1, NULL, 10);
    power = exponent - count + 1; /* of ten, behind the digits */
    for (i = 0, count = 0; i < size; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            digits[count++] = text[i];
        }
    }
    if (power >= 0 && exponent < count + 7) {
        snprintf(out, room, "%s%.*s%.*s", number < 0 ? "-" : "", count, digits, power, "0000000");
    } else if (power < 0 && (power > -7 || (exponent > -4 && exponent < 4))) {
        snprintf(out, room, "%.*f", -power, number);
    } else {
        snprintf(out, room, "%.*se%+d", (int)size, text, exponent);
    }
}

/* A number as an argument of a script, or as a score. */
static inline void model__put_double(const struct model *m, char *out, size_t room, double number) {
    bool infinite = number > DBL_MAX || number < -DBL_MAX || number != number;
    bool integer = number >= -4611686018427387904.0 && number <= 4611686018427387904.0 &&
                   number == (double)(int64_t)number;

    if (m->flavour != MODEL_VALKEY_9 || number == 0 || infinite) {
        snprintf(out, room, "%.17g", number);
    } else if (integer) {
        snprintf(out, room, "%.0f", number);
    } else {
        model__put_shortest(out, room, number);
    }
}

static inline void model__put_score(struct model *m, double score) {
    char digits[64];

    model__put_double(m, digits, sizeof digits, score);
    model__put_word(m->out, digits);
}

/* As strtod takes it, infinity too; in Valkey without the blanks in front and without hexadecimal
 * digits. Of nothing it makes 0. */
static inline bool model__double(struct model *m, struct model_arg arg, double *out) {
    char *end;

    model__assign(&m->number, arg.at, arg.size);
    if (m->flavour == MODEL_VALKEY_9 && strpbrk(m->number.at, "xX \t\r\n\v\f") != NULL) {
        return false;
    }
    *out = strtod(m->number.at, &end);
    return *end == '\0' && *out == *out;
}

/* False, and the error is said: it is none. */
static inline bool model__score(struct model_request *r, struct model_arg arg, double *out) {
    bool fine = arg.size > 0 && strchr(" \t\r\n\v\f", arg.at[0]) == NULL;

    errno = 0;
    fine = fine && model__double(r->m, arg, out) && strlen(r->m->number.at) == arg.size;
    if (!fine || (errno == ERANGE && (*out == 0 || *out > DBL_MAX || *out < -DBL_MAX))) {
        model__fail(r, MODEL__NOT_FLOAT);
        return false;
    }
    return true;
}

struct model_range { /* of scores; one that is open does not hold its end */
    double min, max;
    bool min_open, max_open;
};

static inline bool model__bound(struct model *m, struct model_arg arg, double *out, bool *open) {
    *open = arg.size > 0 && arg.at[0] == '(';
    arg.at += *open;
    arg.size -= *open;
    return model__double(m, arg, out);
}

/* The arguments 2 and 3. False, and the error is said: they are no bounds. */
static inline bool model__range(struct model_request *r, struct model_range *range) {
    if (!model__bound(r->m, r->argv[2], &range->min, &range->min_open) ||
        !model__bound(r->m, r->argv[3], &range->max, &range->max_open)) {
        model__fail(r, MODEL__NO_RANGE);
        return false;
    }
    return true;
}

struct model_slice { /* of what is in a key: from the first on, up to the last and without it */
    size_t first, last;
};

static inline struct model_slice model__within(const struct model_key *key,
                                               const struct model_range *range) {
    size_t count = key != NULL ? key->count : 0;
    struct model_slice slice = {0, 0};
    double score;

    for (; slice.first < count; slice.first++) {
        score = key->fields[slice.first].score;
        if (range->min_open ? score > range->min : score >= range->min) {
            break;
        }
    }
    for (slice.last = slice.first; slice.last < count; slice.last++) {
        score = key->fields[slice.last].score;
        if (range->max_open ? score >= range->max : score > range->max) {
            break;
        }
    }
    return slice;
}

static inline bool model__stands_behind(const struct model_field *a, const struct model_field *b) {
    size_t common = a->name.size < b->name.size ? a->name.size : b->name.size;
    int order = memcmp(a->name.at, b->name.at, common);

    return a->score > b->score ||
           (a->score == b->score && (order > 0 || (order == 0 && a->name.size > b->name.size)));
}

/* A member that is not there yet, at its place: by its score, then by its bytes. */
static inline void model__put_member(struct model_key *key, struct model_arg name, double score) {
    struct model_field made, *field = model__new_field(key);

    model__assign(&field->name, name.at, name.size);
    field->score = score == 0 ? 0 : score; /* the servers keep no sign of it */
    made = *field;
    for (; field > key->fields && model__stands_behind(field - 1, &made); field--) {
        *field = *(field - 1);
    }
    *field = made;
}

enum model_zadded { MODEL_ADDED, MODEL_UPDATED, MODEL_AS_IT_WAS, MODEL_SKIPPED, MODEL_NO_NUMBER };

/* `score` is what is added, if it is so; then what the member has. */
static inline enum model_zadded model__zadd_one(struct model_key *key, unsigned options,
                                                struct model_arg name, double *score) {
    struct model_field *field = model__field(key, name);

    if (key == NULL || (options & (field != NULL ? MODEL_NX : MODEL_XX))) {
        return MODEL_SKIPPED;
    }
    if (field == NULL) {
        model__put_member(key, name, *score);
        return MODEL_ADDED;
    }
    *score += options & MODEL_INCR ? field->score : 0;
    if (*score != *score) {
        return MODEL_NO_NUMBER;
    }
    if (((options & MODEL_LT) && *score >= field->score) ||
        ((options & MODEL_GT) && *score <= field->score)) {
        return MODEL_SKIPPED;
    }
    if (*score == field->score) {
        return MODEL_AS_IT_WAS;
    }
    model__take_field(key, field);
    model__put_member(key, name, *score);
    return MODEL_UPDATED;
}

/* Where the options end; -1, and the error is said: they do not go together, or what follows them
 * are no pairs of a score and a member. */
static inline int model__zadd_options(struct model_request *r, unsigned *options) {
    unsigned known = r->m->flavour == MODEL_REDIS_5 ? ~(unsigned)(MODEL_GT | MODEL_LT) : ~0u;
    unsigned option = 1;
    int i;

    for (i = 2; i < r->argc && option != 0; i += option != 0) {
        option = model__option(r->argv[i], MODEL_ZADD_OPTIONS & known);
        *options |= option;
    }
    if (i == r->argc || (r->argc - i) % 2 != 0) {
        model__fail(r, MODEL__SYNTAX);
    } else if ((*options & MODEL_NX) && (*options & MODEL_XX)) {
        model__fail(r, "ERR XX and NX options at the same time are not compatible");
    } else if (((*options & MODEL_NX) && (*options & (MODEL_GT | MODEL_LT))) ||
               ((*options & MODEL_GT) && (*options & MODEL_LT))) {
        model__fail(r, "ERR GT, LT, and/or NX options at the same time are not compatible");
    } else if ((*options & MODEL_INCR) && r->argc - i > 2) {
        model__fail(r, "ERR INCR option supports a single increment-element pair");
    } else {
        return i;
    }
    return -1;
}

static inline void model__say_zadded(struct model_request *r, unsigned options,
                                     const int counts[MODEL_NO_NUMBER + 1], double score) {
    if (counts[MODEL_NO_NUMBER] > 0) {
        model__fail(r, "ERR resulting score is not a number (NaN)");
    } else if (!(options & MODEL_INCR)) {
        model__count(r, counts[MODEL_ADDED] + (options & MODEL_CH ? counts[MODEL_UPDATED] : 0));
    } else if (counts[MODEL_SKIPPED] > 0) {
        model__put_null(r->m->out);
    } else {
        model__put_score(r->m, score);
    }
}

static inline void model__zadd(struct model_request *r, unsigned options) {
    int first = model__zadd_options(r, &options), counts[MODEL_NO_NUMBER + 1] = {0}, i;
    struct model_key *key;
    double score = 0;

    for (i = first; i >= 0 && i < r->argc; i += 2) {
        if (!model__score(r, r->argv[i], &score)) {
            return;
        }
    }
    key = first >= 0 ? model__look(r, r->argv[1]) : NULL;
    if (first < 0 || !model__typed(r, key, MODEL_ZSET)) {
        return;
    }
    if (key == NULL && !(options & MODEL_XX)) {
        key = model__create(r, r->argv[1], MODEL_ZSET);
    }
    for (i = first; i < r->argc; i += 2) {
        model__double(r->m, r->argv[i], &score);
        counts[model__zadd_one(key, options, r->argv[i + 1], &score)]++;
    }
    if (counts[MODEL_ADDED] + counts[MODEL_UPDATED] > 0) {
        model__changed(r, r->argv[1]);
    }
    model__say_zadded(r, options, counts, score);
}

static inline void model__do_zadd(struct model_request *r) {
    model__zadd(r, 0);
}

static inline void model__do_zincrby(struct model_request *r) {
    model__zadd(r, MODEL_INCR);
}

static inline void model__do_zrem(struct model_request *r) {
    model__remove(r, MODEL_ZSET);
}

static inline void model__do_zremrangebyscore(struct model_request *r) {
    struct model_key *key;
    struct model_range range;
    struct model_slice slice;
    size_t i;

    if (!model__range(r, &range)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (model__typed(r, key, MODEL_ZSET)) {
        slice = model__within(key, &range);
        for (i = slice.first; i < slice.last; i++) {
            model__take_field(key, &key->fields[slice.first]);
        }
        model__took(r, key, (int)(slice.last - slice.first));
    }
}

static inline void model__do_zcard(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);

    if (model__typed(r, key, MODEL_ZSET)) {
        model__count(r, key != NULL ? (int64_t)key->count : 0);
    }
}

static inline void model__do_zcount(struct model_request *r) {
    const struct model_key *key;
    struct model_range range;
    struct model_slice slice;

    if (!model__range(r, &range)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (model__typed(r, key, MODEL_ZSET)) {
        slice = model__within(key, &range);
        model__count(r, (int64_t)(slice.last - slice.first));
    }
}

static inline void model__do_zscore(struct model_request *r) {
    const struct model_key *key = model__look(r, r->argv[1]);
    const struct model_field *field;

    if (!model__typed(r, key, MODEL_ZSET)) {
        return;
    }
    field = model__field(key, r->argv[2]);
    if (field != NULL) {
        model__put_score(r->m, field->score);
    } else {
        model__put_null(r->m->out);
    }
}

static inline void model__do_zrank(struct model_request *r) {
    const struct model_key *key;
    const struct model_field *field;

    if (r->argc > 3) {
        model__fail(r, MODEL__SYNTAX);
        return;
    }
    key = model__look(r, r->argv[1]);
    if (!model__typed(r, key, MODEL_ZSET)) {
        return;
    }
    field = model__field(key, r->argv[2]);
    if (field != NULL) {
        model__count(r, field - key->fields);
    } else {
        model__put_null(r->m->out);
    }
}

static inline void model__put_members(struct model_request *r, const struct model_key *key,
                                      struct model_slice slice, bool with_scores) {
    model__put_count(r->m->out, '*', (int64_t)(slice.last - slice.first) * (with_scores ? 2 : 1));
    for (; slice.first < slice.last; slice.first++) {
        const struct model_field *field = &key->fields[slice.first];

        model__put_bulk(r->m->out, field->name.at, field->name.size);
        if (with_scores) {
            model__put_score(r->m, field->score);
        }
    }
}

/* Places from 0 on, or from -1 back, with the last one. */
static inline struct model_slice model__places(const struct model_key *key, int64_t start,
                                               int64_t stop) {
    int64_t count = key != NULL ? (int64_t)key->count : 0;
    struct model_slice slice = {0, 0};

    start += start < 0 ? count : 0;
    stop += stop < 0 ? count : 0;
    start = start < 0 ? 0 : start;
    if (start <= stop && start < count) {
        slice.first = (size_t)start;
        slice.last = (size_t)(stop < count ? stop + 1 : count);
    }
    return slice;
}

static inline void model__do_zrange(struct model_request *r) {
    const struct model_key *key;
    int64_t start, stop;
    int i;

    for (i = 4; i < r->argc; i++) {
        if (!model__is(r->argv[i], "withscores")) {
            model__fail(r, MODEL__SYNTAX);
            return;
        }
    }
    if (!model__number(r, r->argv[2], &start) || !model__number(r, r->argv[3], &stop)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (model__typed(r, key, MODEL_ZSET)) {
        model__put_members(r, key, model__places(key, start, stop), r->argc > 4);
    }
}

struct model_by_score { /* the options of a ZRANGEBYSCORE */
    bool with_scores;
    int64_t skipped, most; /* below 0: all */
};

/* False, and the error is said: they are none. */
static inline bool model__by_score_options(struct model_request *r, struct model_by_score *by) {
    int i;

    by->with_scores = false;
    by->skipped = 0;
    by->most = -1;
    for (i = 4; i < r->argc; i++) {
        if (model__is(r->argv[i], "withscores")) {
            by->with_scores = true;
        } else if (model__is(r->argv[i], "limit") && i + 2 < r->argc) {
            if (!model__number(r, r->argv[i + 1], &by->skipped) ||
                !model__number(r, r->argv[i + 2], &by->most)) {
                return false;
            }
            i += 2;
        } else {
            model__fail(r, MODEL__SYNTAX);
            return false;
        }
    }
    return true;
}

static inline void model__do_zrangebyscore(struct model_request *r) {
    const struct model_key *key;
    struct model_by_score by;
    struct model_range range;
    struct model_slice slice;
    size_t count;

    if (!model__by_score_options(r, &by) || !model__range(r, &range)) {
        return;
    }
    key = model__look(r, r->argv[1]);
    if (!model__typed(r, key, MODEL_ZSET)) {
        return;
    }
    slice = model__within(key, &range);
    count = slice.last - slice.first;
    slice.first += by.skipped < 0 || (uint64_t)by.skipped > count ? count : (size_t)by.skipped;
    if (by.most >= 0 && (uint64_t)by.most < slice.last - slice.first) {
        slice.last = slice.first + (size_t)by.most;
    }
    model__put_members(r, key, slice, by.with_scores);
}

/* ---- commands: the server ---- */

static inline void model__flush(struct model_request *r, int first, int last) {
    int db;

    if (r->argc > 2 ||
        (r->argc == 2 && !model__is(r->argv[1], "sync") && !model__is(r->argv[1], "async"))) {
        model__fail(r, MODEL__SYNTAX);
        return;
    }
    model__invalidate_all(r->m);
    for (db = first; db <= last; db++) {
        struct model_map *map = &r->m->dbs[db];

        while (map->count > 0) {
            model__delete(r->m, map, map->count - 1, false);
        }
    }
    model__say(r, "OK");
}

static inline void model__do_flushall(struct model_request *r) {
    model__flush(r, 0, MODEL_DATABASES - 1);
}

static inline void model__do_flushdb(struct model_request *r) {
    model__flush(r, r->peer->db, r->peer->db);
}

static inline void model__do_dbsize(struct model_request *r) {
    model__count(r, (int64_t)model__db(r)->count);
}

static inline void model__do_time(struct model_request *r) {
    char digits[24];

    model__put_count(r->m->out, '*', 2);
    model__put_bulk(r->m->out, digits, model__digits(digits, r->m->wall_us / 1000000));
    model__put_bulk(r->m->out, digits, model__digits(digits, r->m->wall_us % 1000000));
}

static inline void model__do_ping(struct model_request *r) {
    struct model_bytes *out = r->m->out;

    if (r->argc > 2) {
        model__fail(r, "ERR wrong number of arguments for 'ping' command");
    } else if (r->peer->channels.count > 0) {
        model__append(out, "*2\r\n$4\r\npong\r\n", 14);
        model__put_bulk(out, r->argc == 2 ? r->argv[1].at : "", r->argc == 2 ? r->argv[1].size : 0);
    } else if (r->argc == 2) {
        model__put_bulk(out, r->argv[1].at, r->argv[1].size);
    } else {
        model__say(r, "PONG");
    }
}

static inline void model__do_echo(struct model_request *r) {
    model__put_bulk(r->m->out, r->argv[1].at, r->argv[1].size);
}

static inline void model__do_select(struct model_request *r) {
    int64_t db;

    if (!model__number(r, r->argv[1], &db)) {
        return;
    }
    if (db < INT32_MIN || db > INT32_MAX) {
        model__fail(r, MODEL__NOT_INTEGER);
    } else if (db < 0 || db >= MODEL_DATABASES) {
        model__fail(r, "ERR DB index is out of range");
    } else {
        r->peer->db = (int)db;
        model__say(r, "OK");
    }
}

static inline void model__do_info(struct model_request *r) {
    static const char *const versions[MODEL_FLAVOURS] = {"7.0.15", "5.0.14", "6.2.14", "7.2.4"};
    bool server = r->argc == 1;
    char text[256];
    int i;

    for (i = 1; i < r->argc; i++) {
        server = server || model__is(r->argv[i], "server") || model__is(r->argv[i], "default") ||
                 model__is(r->argv[i], "all") || model__is(r->argv[i], "everything");
    }
    snprintf(text, sizeof text,
             "# Server\r\nredis_version:%s\r\nrun_id:%s\r\nuptime_in_seconds:%lld\r\n",
             versions[r->m->flavour], r->m->run_id,
             (long long)(r->m->wall_us / 1000000 - r->m->started_us / 1000000));
    model__put_word(r->m->out, server ? text : "");
}

static inline void model__do_wait(struct model_request *r) {
    int64_t replicas, timeout;

    if (model__is_replica(r->m)) {
        model__fail(
            r, model__text(
                   r->m,
                   "ERR WAIT cannot be used with replica instances. Please also note that %sif a "
                   "replica is configured to be writable (which is not the default) writes to "
                   "replicas are just local and are not propagated.",
                   model__words(r->m, "since Redis 4.0 ", "")));
    } else if (model__number(r, r->argv[1], &replicas)) {
        if (!model__integer(r->argv[2], &timeout)) {
            model__fail(r, "ERR timeout is not an integer or out of range");
        } else if (timeout < 0) {
            model__fail(r, "ERR timeout is negative");
        } else if (timeout > INT64_MAX - model__now_ms(r->m) && r->m->flavour == MODEL_VALKEY_9) {
            model__fail(r, "ERR timeout is out of range");
        } else {
            model__count(r, 0); /* there is none to wait for */
        }
    }
}

static inline void model__do_quit(struct model_request *r) {
    r->peer->closing = true;
    model__say(r, "OK");
}

static inline void model__do_hello(struct model_request *r) {
    model__fail(r, "NOPROTO unsupported protocol version");
}

static inline void model__auth_old(struct model_request *r, bool right) {
    if (r->m->password == NULL) {
        model__fail(r, "ERR Client sent AUTH, but no password is set");
    } else if (!right) {
        r->peer->authenticated = false;
        model__fail(r, "ERR invalid password");
    } else {
        r->peer->authenticated = true;
        model__say(r, "OK");
    }
}

static inline void model__do_auth(struct model_request *r) {
    const char *password = r->m->password;
    struct model_arg given = r->argv[r->argc - 1];
    bool right = password == NULL ||
                 (given.size == strlen(password) && memcmp(given.at, password, given.size) == 0);

    if (r->m->flavour == MODEL_REDIS_5) {
        if (r->argc > 2) {
            model__fail(r, "ERR wrong number of arguments for 'auth' command");
        } else {
            model__auth_old(r, right);
        }
    } else if (r->argc > 3) {
        model__fail(r, MODEL__SYNTAX);
    } else if (r->argc == 2 && password == NULL) {
        model__fail(r, "ERR AUTH <password> called without any password configured for the "
                       "default user. Are you sure your configuration is correct?");
    } else if (!right || (r->argc == 3 &&
                          (r->argv[1].size != 7 || memcmp(r->argv[1].at, "default", 7) != 0))) {
        model__fail(r, "WRONGPASS invalid username-password pair or user is disabled.");
    } else {
        r->peer->authenticated = true;
        model__say(r, "OK");
    }
}

/* ---- commands: channels ---- */

static inline void model__put_subscribed(struct model_request *r, const char *kind,
                                         const struct model_item *channel) {
    model__put_count(r->m->out, '*', 3);
    model__put_word(r->m->out, kind);
    if (channel != NULL) {
        model__put_bulk(r->m->out, channel->name, channel->size);
    } else {
        model__put_null(r->m->out);
    }
    model__put_count(r->m->out, ':', (int64_t)r->peer->channels.count);
    r->m->loud = true;
}

static inline void model__do_subscribe(struct model_request *r) {
    struct model_map *channels = &r->peer->channels;
    int i;

    for (i = 1; i < r->argc; i++) {
        struct model_item *channel =
            (struct model_item *)model__find(channels, r->argv[i].at, r->argv[i].size);

        if (channel == NULL) {
            channel = (struct model_item *)model__add(channels, r->argv[i].at, r->argv[i].size,
                                                      sizeof *channel);
        }
        model__put_subscribed(r, "subscribe", channel);
    }
}

static inline void model__do_unsubscribe(struct model_request *r) {
    struct model_map *channels = &r->peer->channels;
    struct model_item channel;
    size_t place;
    int i;

    for (i = 1; i < r->argc; i++) {
        channel.name = (char *)(uintptr_t)r->argv[i].at;
        channel.size = r->argv[i].size;
        if (model__place(channels, channel.name, channel.size, &place)) {
            free(model__take(channels, place));
        }
        model__put_subscribed(r, "unsubscribe", &channel);
    }
    if (r->argc == 1 && channels->count == 0) {
        model__put_subscribed(r, "unsubscribe", NULL);
    }
    while (r->argc == 1 && channels->count > 0) {
        struct model_item *last = (struct model_item *)model__take(channels, channels->count - 1);

        model__put_subscribed(r, "unsubscribe", last);
        free(last);
    }
}

static inline void model__do_publish(struct model_request *r) {
    struct model *m = r->m;
    struct model_peer *peer;
    uint64_t id;
    int count = 0;

    m->push.size = 0;
    model__put_message(&m->push, r->argv[1].at, r->argv[1].size);
    model__put_bulk(&m->push, r->argv[2].at, r->argv[2].size);
    for (peer = model__peer_after(m, 0); peer != NULL; peer = model__peer_after(m, id)) {
        id = peer->id;
        if (model__find(&peer->channels, r->argv[1].at, r->argv[1].size) != NULL) {
            count++;
            model__send(peer, &m->push);
        }
    }
    model__count(r, count);
}

/* ---- commands: CLIENT ---- */

static inline void model__do_client_id(struct model_request *r) {
    model__count(r, (int64_t)r->peer->id);
}

static inline void model__do_client_getname(struct model_request *r) {
    if (r->peer->name.size > 0) {
        model__put_bulk(r->m->out, r->peer->name.at, r->peer->name.size);
    } else {
        model__put_null(r->m->out);
    }
}

static inline void model__do_client_setname(struct model_request *r) {
    size_t i;

    for (i = 0; i < r->argv[2].size; i++) {
        if (r->argv[2].at[i] == '\0' && r->m->flavour == MODEL_VALKEY_9) {
            break;
        }
        if (r->argv[2].at[i] < '!' || r->argv[2].at[i] > '~') {
            model__fail(r, "ERR Client names cannot contain spaces, newlines or special "
                           "characters.");
            return;
        }
    }
    model__assign(&r->peer->name, r->argv[2].at, r->argv[2].size);
    model__say(r, "OK");
}

/* By id only: the other filters find nobody. */
static inline void model__do_client_kill(struct model_request *r) {
    int64_t id = 0;
    bool spare_me = true;
    struct model_peer *peer;
    int i;

    if (r->argc == 3) {
        model__fail(r, "ERR No such client");
        return;
    }
    for (i = 2; i < r->argc; i += 2) {
        if (model__is(r->argv[i], "id") && i + 1 < r->argc) {
            bool number = model__integer(r->argv[i + 1], &id);

            if (!number || id < 1) {
                model__fail(r, number ? "ERR client-id should be greater than 0"
                                      : model__words(r->m, "ERR client-id should be greater than 0",
                                                     MODEL__SYNTAX));
                return;
            }
        } else if (model__is(r->argv[i], "skipme") && i + 1 < r->argc &&
                   (model__is(r->argv[i + 1], "yes") || model__is(r->argv[i + 1], "no"))) {
            spare_me = model__is(r->argv[i + 1], "yes");
        } else {
            model__fail(r, MODEL__SYNTAX);
            return;
        }
    }
    peer = model__peer(r->m, (uint64_t)id);
    if (peer == r->peer && spare_me) {
        peer = NULL;
    }
    model__count(r, peer != NULL);
    if (peer == r->peer) {
        peer->closing = true;
    } else if (peer != NULL) {
        model__hang_up(peer);
    }
}

static inline void model__do_client_reply(struct model_request *r) {
    struct model_peer *peer = r->peer;

    if (model__is(r->argv[2], "on")) {
        peer->silent = peer->skip = false;
        model__say(r, "OK");
    } else if (model__is(r->argv[2], "off")) {
        peer->silent = true;
    } else if (model__is(r->argv[2], "skip")) {
        peer->skip_next = !peer->silent;
    } else {
        model__fail(r, MODEL__SYNTAX);
    }
}

static inline void model__do_client_getredir(struct model_request *r) {
    model__count(r, r->peer->tracking ? (int64_t)r->peer->redirect : -1);
}

static inline void model__do_client_tracking(struct model_request *r) {
    struct model_peer *peer = r->peer;
    int64_t redirect = 0;
    bool noloop = false;
    int i;

    for (i = 3; i < r->argc; i++) {
        if (model__is(r->argv[i], "redirect") && i + 1 < r->argc) {
            i++;
            if (redirect != 0) {
                model__fail(r, "ERR A client can only redirect to a single other client");
                return;
            }
            if (!model__number(r, r->argv[i], &redirect)) {
                return;
            }
            if (model__peer(r->m, (uint64_t)redirect) == NULL) {
                model__fail(r, "ERR The client ID you want redirect to does not exist");
                return;
            }
        } else if (model__is(r->argv[i], "noloop")) {
            noloop = true;
        } else {
            model__fail(r, MODEL__SYNTAX);
            return;
        }
    }
    if (!model__is(r->argv[2], "on") && !model__is(r->argv[2], "off")) {
        model__fail(r, MODEL__SYNTAX);
        return;
    }
    peer->tracking = model__is(r->argv[2], "on");
    peer->noloop = peer->tracking && noloop;
    peer->redirect = peer->tracking ? (uint64_t)redirect : 0;
    model__say(r, "OK");
}

/* ---- scripts ---- */

static inline void model__sha1_block(uint32_t state[5], const unsigned char *block) {
    static const uint32_t add[4] = {0x5a827999u, 0x6ed9eba1u, 0x8f1bbcdcu, 0xca62c1d6u};
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], mix, x;
    int i;

    for (i = 0; i < 80; i++) {
        if (i < 16) {
            w[i] = (uint32_t)block[i * 4] << 24 | (uint32_t)block[i * 4 + 1] << 16 |
                   (uint32_t)block[i * 4 + 2] << 8 | block[i * 4 + 3];
        } else {
            x = w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16];
            w[i] = x << 1 | x >> 31;
        }
        mix = i < 20              ? ((b & c) | (~b & d))
              : i >= 40 && i < 60 ? ((b & c) | (b & d) | (c & d))
                                  : (b ^ c ^ d);
        x = (a << 5 | a >> 27) + mix + e + add[i / 20] + w[i];
        e = d;
        d = c;
        c = b << 30 | b >> 2;
        b = a;
        a = x;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* Forty digits and a NUL. */
static inline void model__sha1(const char *bytes, size_t size, char out[41]) {
    uint32_t state[5] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u};
    unsigned char tail[128];
    size_t whole = size / 64 * 64, rest = size - whole, end = rest < 56 ? 64 : 128, i;

    for (i = 0; i < whole; i += 64) {
        model__sha1_block(state, (const unsigned char *)bytes + i);
    }
    memset(tail, 0, sizeof tail);
    if (rest > 0) {
        memcpy(tail, bytes + whole, rest);
    }
    tail[rest] = 0x80;
    for (i = 0; i < 8; i++) {
        tail[end - 1 - i] = (unsigned char)((uint64_t)size * 8 >> (8 * i));
    }
    for (i = 0; i < end; i += 64) {
        model__sha1_block(state, tail + i);
    }
    for (i = 0; i < 5; i++) {
        snprintf(out + i * 8, 9, "%08x", (unsigned)state[i]);
    }
}

static inline const struct model_command *model__command(const struct model *m, int argc,
                                                         const struct model_arg *argv);
static inline bool model__takes(const struct model *m, const struct model_command *command,
                                int argc);
static inline const char *model__script_unknown(struct model *m, int argc,
                                                const struct model_arg *argv);

/* Pushes {err = text}. A text without a code gets one. */
static inline void model__lua_fault(lua_State *lua, const char *text, size_t size) {
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r')) {
        size--;
    }
    lua_newtable(lua);
    if (memchr(text, ' ', size) == NULL) {
        lua_pushliteral(lua, "ERR ");
        lua_pushlstring(lua, text, size);
        lua_concat(lua, 2);
    } else {
        lua_pushlstring(lua, text, size);
    }
    lua_setfield(lua, -2, "err");
}

/* Pushes one reply as Lua has it; returns what follows it. */
static inline const char *model__to_lua(lua_State *lua, const char *at) {
    const char *line = at + 1, *next = strchr(at, '\r');
    size_t size = (size_t)(next - line);
    long long count = strtoll(line, NULL, 10), i;

    next += 2;
    luaL_checkstack(lua, 4, "a reply in Lua");
    switch (*at) {
    case '+':
        lua_newtable(lua);
        lua_pushlstring(lua, line, size);
        lua_setfield(lua, -2, "ok");
        return next;
    case '-': model__lua_fault(lua, line, size); return next;
    case ':': lua_pushnumber(lua, (lua_Number)count); return next;
    case '$':
        if (count < 0) {
            lua_pushboolean(lua, 0);
            return next;
        }
        lua_pushlstring(lua, next, (size_t)count);
        return next + count + 2;
    default:
        lua_newtable(lua);
        for (i = 1; i <= count; i++) {
            next = model__to_lua(lua, next);
            lua_rawseti(lua, -2, (int)i);
        }
        return next;
    }
}

static inline bool model__is_denied(const struct model *m, const char *name) {
    int i;

    for (i = 0; i < MODEL_DENIED && m->flavour != MODEL_REDIS_5; i++) {
        size_t size = m->denied[i] != NULL ? strlen(m->denied[i]) : 0;

        if (size > 0 && strncmp(name, m->denied[i], size) == 0 &&
            (name[size] == '\0' || name[size] == '|')) {
            return true;
        }
    }
    return false;
}

#define MODEL__OOM "OOM command not allowed when used memory > 'maxmemory'."
#define MODEL__MISCONF(who)                                                                      \
    "MISCONF " who " is configured to save RDB snapshots, but it's currently unable to persist " \
    "to disk. Commands that may modify the data set are disabled, because this instance is "     \
    "configured to report errors during writes if RDB snapshotting fails "                       \
    "(stop-writes-on-bgsave-error option). Please check the " who " logs for details about the " \
    "RDB error."
#define MODEL__NOAUTH "NOAUTH Authentication required."
#define MODEL__NOREPLICAS "NOREPLICAS Not enough good replicas to write."
#define MODEL__MASTERDOWN \
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
#define MODEL__READONLY "READONLY You can't write against a read only replica."

static inline const char *model__script_oom(const struct model *m, unsigned flags) {
    return m->oom && !model__is_replica(m) && (flags & MODEL_DENYOOM) ? MODEL__OOM : NULL;
}

/* Why the data may not be changed by a script now. Valkey looks in another order, and at its
 * memory before it looks at the user. */
static inline const char *model__script_state(const struct model *m, unsigned flags) {
    bool replica = model__is_replica(m), valkey = m->flavour == MODEL_VALKEY_9;

    if (valkey && m->noreplicas && !replica) {
        return MODEL__NOREPLICAS;
    }
    if (valkey && m->misconf) {
        return MODEL__MISCONF("Valkey");
    }
    if (replica) {
        return MODEL__READONLY;
    }
    if (m->misconf) {
        return MODEL__MISCONF("Redis");
    }
    if (m->noreplicas && !model__is_old(m)) {
        return MODEL__NOREPLICAS;
    }
    return model__script_oom(m, flags);
}

/* Whether a script's user may not run it. */
static inline const char *model__script_denial(struct model *m,
                                               const struct model_command *command) {
    if (m->current == &m->outsider || !model__is_denied(m, command->name)) {
        return NULL;
    }
    return model__script_words(
        m, "The user executing the script can't run this command or subcommand",
        "ERR The user executing the script can't run this command or subcommand",
        model__text(m,
                    "ERR ACL failure in script: User default has no permissions to run the '%s' "
                    "command",
                    command->name));
}

/* Why a command of a script is not run, in the order in which Redis looks; NULL = it is. */
static inline const char *model__script_refusal(struct model *m,
                                                const struct model_command *command, int argc) {
    bool fresh = (command->flags & MODEL_WRITE) && !m->script_wrote;
    const char *denial;

    if (!model__takes(m, command, argc)) {
        return model__script_words(m, "Wrong number of args calling Redis command From Lua script",
                                   "ERR Wrong number of args calling Redis command from script",
                                   "ERR Wrong number of args calling command from script");
    }
    if ((command->flags & MODEL_NOSCRIPT) ||
        ((command->flags & MODEL_REDIS_NOSCRIPT) && m->flavour != MODEL_VALKEY_9)) {
        return model__script_words(m, "This Redis command is not allowed from scripts",
                                   "ERR This Redis command is not allowed from script",
                                   "ERR This Valkey command is not allowed from script");
    }
    if (fresh && m->flavour == MODEL_VALKEY_9 && model__script_oom(m, command->flags) != NULL) {
        return MODEL__OOM;
    }
    denial = model__script_denial(m, command);
    return denial != NULL ? denial : fresh ? model__script_state(m, command->flags) : NULL;
}

/* What a command reads is remembered for its client. Of a script that reads anything it is all the
 * keys that it was given, and those only; Valkey remembers what the script's commands read. */
static inline void model__remember_keys(struct model *m, unsigned flags,
                                        const struct model_arg *keys, int count) {
    int i;

    for (i = 0; i < count && (flags & MODEL_READ) && m->current->tracking; i++) {
        model__remember(m, keys[i]);
    }
}

/* Counts what would lose a place or a hold that is there already, if nothing else is refused. */
static inline void model__note_full(struct model *m, const char *why) {
    const struct model_key *key =
        m->declared_count > 0 && strcmp(why, MODEL__OOM) == 0
            ? (const struct model_key *)model__find(&m->dbs[m->inner.db], m->declared[0].at,
                                                    m->declared[0].size)
            : NULL;

    m->full += key != NULL && key->type == MODEL_ZSET && !m->misconf && !m->noreplicas;
}

/* Runs what is on the stack as a command, and pushes its reply. */
static inline const char *model__lua_run(lua_State *lua, struct model *m, int argc) {
    const struct model_command *command;
    struct model_request r;
    const char *why;
    char digits[64];
    int i;

    for (i = 1; i <= argc; i++) {
        if (lua_type(lua, i) == LUA_TNUMBER) {
            model__put_double(m, digits, sizeof digits, (double)lua_tonumber(lua, i));
            lua_pushstring(lua, digits);
            lua_replace(lua, i);
        } else if (lua_type(lua, i) != LUA_TSTRING) {
            return model__script_words(
                m, "Lua redis() command arguments must be strings or integers",
                "ERR Lua redis lib command arguments must be strings or integers",
                "ERR Command arguments must be strings or integers");
        }
        m->inner_args = (struct model_arg *)model__grow(m->inner_args, (size_t)i - 1,
                                                        &m->inner_args_room, sizeof *m->inner_args);
        m->inner_args[i - 1].at = lua_tolstring(lua, i, &m->inner_args[i - 1].size);
    }
    command = model__command(m, argc, m->inner_args);
    why = command != NULL ? model__script_refusal(m, command, argc)
                          : model__script_unknown(m, argc, m->inner_args);
    if (why != NULL) {
        model__note_full(m, why);
        return why;
    }
    m->script_wrote = m->script_wrote || (command->flags & MODEL_WRITE);
    r.m = m;
    r.peer = &m->inner;
    r.argc = argc;
    r.argv = m->inner_args;
    m->answer.size = 0;
    m->out = &m->answer;
    command->run(&r);
    m->out = &m->reply;
    if (m->flavour == MODEL_VALKEY_9) {
        model__remember_keys(m, command->flags, m->inner_args + 1,
                             command->keys < 0 ? argc - 1 : command->keys);
    } else {
        model__remember_keys(m, command->flags, m->declared, m->declared_count);
    }
    model__to_lua(lua, m->answer.at);
    return NULL;
}

/* Pushes the error of a command that is not run. Old Redis says where, and keeps the dash of what
 * is an error outside of scripts too. */
static inline void model__lua_refuse(lua_State *lua, const struct model *m, const char *why) {
    lua_Debug where;

    if (!model__is_old(m)) {
        model__lua_fault(lua, why, strlen(why));
        return;
    }
    lua_newtable(lua);
    lua_getstack(lua, 1, &where);
    lua_getinfo(lua, "Sl", &where);
    lua_pushfstring(lua, "%s: %d: %s%s", where.source, where.currentline,
                    why[0] >= 'A' && why[1] >= 'A' && why[1] <= 'Z' ? "-" : "", why);
    lua_setfield(lua, -2, "err");
}

/* redis.call and redis.pcall; upvalues: the model, and whether errors are raised. */
static inline int model__lua_call(lua_State *lua) {
    struct model *m = (struct model *)lua_touserdata(lua, lua_upvalueindex(1));
    int argc = lua_gettop(lua);
    const char *why =
        model__script_words(m, "Please specify at least one argument for redis.call()",
                            "ERR Please specify at least one argument for this redis lib call",
                            "ERR Please specify at least one argument for this call");

    luaL_checkstack(lua, 8, "a command");
    if (argc > 0) {
        why = model__lua_run(lua, m, argc);
    }
    if (why != NULL) {
        model__lua_refuse(lua, m, why);
    }
    if (lua_toboolean(lua, lua_upvalueindex(2)) && (why != NULL || m->answer.at[0] == '-')) {
        return lua_error(lua);
    }
    return 1;
}

static inline int model__lua_error_reply(lua_State *lua) {
    const char *text = "ERR wrong number or type of arguments";
    size_t size = strlen(text);

    if (lua_gettop(lua) == 1 && lua_type(lua, 1) == LUA_TSTRING) {
        text = lua_tolstring(lua, 1, &size);
        if (size > 0 && text[0] == '-') {
            text++;
            size--;
        }
    }
    model__lua_fault(lua, text, size);
    return 1;
}

static inline int model__lua_status_reply(lua_State *lua) {
    if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
        lua_settop(lua, 0);
        return model__lua_error_reply(lua);
    }
    lua_newtable(lua);
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, "ok");
    return 1;
}

static inline int model__lua_sha1hex(lua_State *lua) {
    const char *text = "ERR wrong number of arguments";
    size_t size;
    char sha[41];

    if (lua_gettop(lua) != 1) {
        model__lua_fault(lua, text, strlen(text));
        return lua_error(lua);
    }
    text = lua_tolstring(lua, 1, &size);
    model__sha1(text, text != NULL ? size : 0, sha);
    lua_pushstring(lua, sha);
    return 1;
}

/* Redis' own pcall: what a script catches is the text of an error. */
static inline int model__lua_pcall(lua_State *lua) {
    bool fine;

    luaL_checkany(lua, 1);
    fine = lua_pcall(lua, lua_gettop(lua) - 1, LUA_MULTRET, 0) == 0;
    if (!fine && lua_istable(lua, -1)) {
        lua_getfield(lua, -1, "err");
        lua_remove(lua, lua_isstring(lua, -1) ? -2 : -1);
    }
    luaL_checkstack(lua, 1, "pcall");
    lua_pushboolean(lua, fine);
    lua_insert(lua, 1);
    return lua_gettop(lua);
}

static inline int model__lua_no_global(lua_State *lua) {
    const char *name = lua_tostring(lua, -1);

    return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                      name != NULL ? name : "?");
}

static inline int model__lua_no_new_global(lua_State *lua) {
    return luaL_error(lua, "Attempt to modify a readonly table");
}

/* Makes an error a table that says where it was; upvalue: the model. */
static inline int model__lua_blame(lua_State *lua) {
    const struct model *m = (const struct model *)lua_touserdata(lua, lua_upvalueindex(1));
    lua_Debug where;
    bool known = lua_getstack(lua, 1, &where) && lua_getinfo(lua, "Sl", &where);

    if (known && strcmp(where.what, "C") == 0) {
        known = lua_getstack(lua, 2, &where) && lua_getinfo(lua, "Sl", &where);
    }
    if (!lua_istable(lua, 1)) {
        const char *text = lua_tostring(lua, 1);

        lua_newtable(lua);
        lua_pushfstring(lua, "%s%s", model__is_old(m) ? "" : "ERR ",
                        text != NULL ? text : luaL_typename(lua, 1));
        lua_setfield(lua, -2, "err");
    }
    if (known) {
        lua_pushstring(lua, where.source);
        lua_setfield(lua, -2, "source");
        lua_pushfstring(lua, "%d", where.currentline);
        lua_setfield(lua, -2, "line");
    }
    return 1;
}

/* A text in the table on the top of the stack, which keeps it; NULL: there is none. */
static inline const char *model__lua_member(lua_State *lua, const char *name) {
    const char *text;

    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    text = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : NULL;
    lua_pop(lua, 1);
    return text;
}

static inline void model__from_lua(struct model *m, lua_State *lua);

/* An error, a status, or an array that ends before the first nil. */
static inline void model__from_table(struct model *m, lua_State *lua) {
    const char *error = model__lua_member(lua, "err");
    const char *status = model__lua_member(lua, "ok");
    bool more = true;
    int count = 0, i;

    if (error != NULL || status != NULL) {
        model__put_line(&m->reply, error != NULL ? '-' : '+', error != NULL ? error : status,
                        strlen(error != NULL ? error : status));
        return;
    }
    for (count = 0; more; count += more) {
        lua_rawgeti(lua, -1, count + 1);
        more = !lua_isnil(lua, -1);
        lua_pop(lua, 1);
    }
    model__put_count(&m->reply, '*', count);
    for (i = 1; i <= count; i++) {
        lua_rawgeti(lua, -1, i);
        model__from_lua(m, lua);
    }
}

/* What is on the top of the stack, as a reply; takes it off. */
static inline void model__from_lua(struct model *m, lua_State *lua) {
    static const char deep[] = "ERR reached lua stack limit";
    struct model_bytes *out = &m->reply;
    lua_Number number;
    const char *text;
    size_t size;

    switch (lua_checkstack(lua, 4) ? lua_type(lua, -1) : LUA_TNONE) {
    case LUA_TNONE: model__put_line(out, '-', deep, sizeof deep - 1); break;
    case LUA_TSTRING:
        text = lua_tolstring(lua, -1, &size);
        model__put_bulk(out, text, size);
        break;
    case LUA_TNUMBER:
        number = lua_tonumber(lua, -1);
        model__put_count(out, ':',
                         number >= -9223372036854775808.0 && number < 9223372036854775808.0
                             ? (int64_t)number
                             : INT64_MIN);
        break;
    case LUA_TTABLE: model__from_table(m, lua); break;
    default:
        if (lua_toboolean(lua, -1) && lua_isboolean(lua, -1)) {
            model__put_count(out, ':', 1);
        } else {
            model__put_null(out);
        }
        break;
    }
    lua_pop(lua, 1);
}

static inline void model__lua_list(struct model_request *r, const char *name, int first,
                                   int count) {
    lua_State *lua = r->m->lua;
    int i;

    lua_pushstring(lua, name);
    lua_createtable(lua, count, 0);
    for (i = 0; i < count; i++) {
        lua_pushlstring(lua, r->argv[first + i].at, r->argv[first + i].size);
        lua_rawseti(lua, -2, i + 1);
    }
    lua_rawset(lua, LUA_GLOBALSINDEX);
}

/* The words for an error that ended a script. */
static inline const char *model__blamed(const struct model *m, const char *error, const char *sha,
                                        const char *source, const char *line) {
    if (model__is_old(m)) {
        return lua_pushfstring(m->lua, "ERR Error running script (call to f_%s): %s:%s: %s", sha,
                               source, line, error);
    }
    if (m->flavour == MODEL_VALKEY_9) {
        return lua_pushfstring(m->lua, "%s script: on %s:%s.", error, source, line);
    }
    return lua_pushfstring(m->lua, "%s script: %s, on %s:%s.", error, sha, source, line);
}

static inline void model__run_script(struct model_request *r, const struct model_script *script,
                                     int keys) {
    struct model *m = r->m;
    lua_State *lua = m->lua;
    const char *error, *source, *line;

    if (m->masterdown) { /* looked at after the script: one that is unknown is said to be */
        model__fail(r, MODEL__MASTERDOWN);
        return;
    }
    m->scripts_run++;
    m->script_wrote = false;
    m->inner.db = r->peer->db;
    m->declared = r->argv + 3;
    m->declared_count = keys;
    lua_pushlightuserdata(lua, m);
    lua_pushcclosure(lua, model__lua_blame, 1);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script->function);
    model__lua_list(r, "KEYS", 3, keys);
    model__lua_list(r, "ARGV", 3 + keys, r->argc - 3 - keys);
    if (lua_pcall(lua, 0, 1, -2) == 0) {
        model__from_lua(m, lua);
    } else {
        lua_checkstack(lua, 8);
        error = model__lua_member(lua, "err");
        source = model__lua_member(lua, "source");
        line = model__lua_member(lua, "line");
        if (source != NULL && line != NULL) {
            error =
                model__blamed(m, error != NULL ? error : "ERR", script->item.name, source, line);
        }
        model__fail(r, error != NULL ? error : "ERR");
    }
    lua_settop(lua, 0);
}

/* Compiled before, or now; NULL, and the error is said: it cannot be. */
static inline struct model_script *model__load(struct model_request *r, struct model_arg text) {
    lua_State *lua = r->m->lua;
    struct model_script *script;
    char sha[41];

    model__sha1(text.at, text.size, sha);
    script = (struct model_script *)model__find(&r->m->scripts, sha, 40);
    if (script != NULL) {
        return script;
    }
    if (luaL_loadbuffer(lua, text.at, text.size, "@user_script") != 0) {
        model__fail(r, model__text(r->m, "ERR Error compiling script (new function): %s",
                                   lua_tostring(lua, -1)));
        lua_settop(lua, 0);
        return NULL;
    }
    script = (struct model_script *)model__add(&r->m->scripts, sha, 40, sizeof *script);
    script->function = luaL_ref(lua, LUA_REGISTRYINDEX);
    return script;
}

static inline bool model__script_keys(struct model_request *r, int *keys) {
    int64_t count;

    if (!model__number(r, r->argv[2], &count)) {
        return false;
    }
    if (count < 0 || count > r->argc - 3) {
        model__fail(r, count < 0 ? "ERR Number of keys can't be negative"
                                 : "ERR Number of keys can't be greater than number of args");
        return false;
    }
    *keys = (int)count;
    return true;
}

static inline void model__do_eval(struct model_request *r) {
    struct model_script *script;
    int keys;

    if (!model__script_keys(r, &keys)) {
        return;
    }
    if (r->argv[1].size > 1 && memcmp(r->argv[1].at, "#!", 2) == 0) {
        model__fail(r, "ERR the model knows no scripts that begin with #!");
        return;
    }
    script = model__load(r, r->argv[1]);
    if (script != NULL) {
        model__run_script(r, script, keys);
    }
}

static inline struct model_script *model__script(const struct model *m, struct model_arg name) {
    char sha[40];
    size_t i;

    for (i = 0; i < sizeof sha && i < name.size; i++) {
        sha[i] = model__lower(name.at[i]);
    }
    return name.size == 40 ? (struct model_script *)model__find(&m->scripts, sha, 40) : NULL;
}

static inline void model__do_evalsha(struct model_request *r) {
    struct model_script *script = model__script(r->m, r->argv[1]);
    int keys;

    if (r->argv[1].size == 40 && !model__script_keys(r, &keys)) {
        return;
    }
    if (script == NULL) {
        model__fail(r, model__words(r->m, "NOSCRIPT No matching script. Please use EVAL.",
                                    "NOSCRIPT No matching script."));
    } else {
        model__run_script(r, script, keys);
    }
}

static inline void model__do_script_load(struct model_request *r) {
    struct model_script *script = model__load(r, r->argv[2]);

    if (script != NULL) {
        model__put_bulk(r->m->out, script->item.name, script->item.size);
    }
}

static inline void model__do_script_exists(struct model_request *r) {
    int i;

    model__put_count(r->m->out, '*', r->argc - 2);
    for (i = 2; i < r->argc; i++) {
        model__count(r, model__script(r->m, r->argv[i]) != NULL);
    }
}

static inline void model__forget_scripts(struct model *m) {
    size_t i;

    for (i = 0; i < m->scripts.count; i++) {
        struct model_script *script = (struct model_script *)(void *)m->scripts.items[i];

        luaL_unref(m->lua, LUA_REGISTRYINDEX, script->function);
    }
    model__map_free(&m->scripts, free);
}

static inline void model__do_script_flush(struct model_request *r) {
    if (r->argc > 3 ||
        (r->argc == 3 && !model__is(r->argv[2], "sync") && !model__is(r->argv[2], "async"))) {
        model__fail(r, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    model__forget_scripts(r->m);
    model__say(r, "OK");
}

/* ---- commands: COMMAND ---- */

/* A name as COMMAND INFO takes it: a group's command behind a bar. */
static inline const struct model_command *model__command_told(const struct model *m,
                                                              struct model_arg name) {
    const char *bar = (const char *)memchr(name.at, '|', name.size);
    const struct model_command *command;
    struct model_arg words[2];

    words[0] = words[1] = name;
    if (bar != NULL) {
        words[0].size = (size_t)(bar - name.at);
        words[1].at = bar + 1;
        words[1].size = name.size - words[0].size - 1;
    }
    command = model__command(m, 1, words);
    if (bar != NULL && command != NULL) {
        command = command->flags & MODEL_GROUP ? model__command(m, 2, words) : NULL;
    }
    return command;
}

/* Name, arity, flags, where its keys are; since 6.0 its categories; since 7.0 three more lists. */
static inline void model__put_command(struct model *m, const struct model_command *command) {
    struct model_bytes *out = m->out;
    int lists = m->flavour == MODEL_REDIS_5 ? 0 : m->flavour == MODEL_REDIS_6 ? 1 : 4;
    bool writes = (command->flags & MODEL_WRITE) != 0, reads = (command->flags & MODEL_READ) != 0;

    model__put_count(out, '*', 6 + lists);
    model__put_word(out, command->name);
    model__put_count(out, ':', command->arity);
    model__put_count(out, '*', writes || reads);
    if (writes || reads) {
        model__put_line(out, '+', writes ? "write" : "readonly", writes ? 5 : 8);
    }
    model__put_count(out, ':', command->keys != 0);
    model__put_count(out, ':', command->keys);
    model__put_count(out, ':', command->keys != 0);
    for (; lists > 0; lists--) {
        model__put_count(out, '*', 0);
    }
}

static inline void model__do_command_info(struct model_request *r) {
    int i;

    model__put_count(r->m->out, '*', r->argc - 2);
    for (i = 2; i < r->argc; i++) {
        const struct model_command *command = model__command_told(r->m, r->argv[i]);

        if (command != NULL) {
            model__put_command(r->m, command);
        } else {
            model__put_null(r->m->out);
        }
    }
}

/* Lua without what would make a script's end depend on anything but its text and the keys. */
static inline lua_State *model__lua_new(struct model *m) {
    static const struct {
        const char *name;
        lua_CFunction open;
    } libraries[] = {{"", luaopen_base},
                     {LUA_TABLIBNAME, luaopen_table},
                     {LUA_STRLIBNAME, luaopen_string},
                     {LUA_MATHLIBNAME, luaopen_math}};
    static const char *const calls[] = {"pcall", "call"};
    static const char *const gone[] = {"dofile", "loadfile", "print", "newproxy"};
    lua_State *lua = (lua_State *)model__must(luaL_newstate());
    size_t i;

    lua_gc(lua, LUA_GCSETPAUSE, 1000); /* a world is short */
    for (i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        lua_pushcfunction(lua, libraries[i].open);
        lua_pushstring(lua, libraries[i].name);
        lua_call(lua, 1, 0);
    }
    for (i = 0; i < sizeof gone / sizeof *gone; i++) {
        lua_pushnil(lua);
        lua_setglobal(lua, gone[i]);
    }
    lua_pushcfunction(lua, model__lua_pcall);
    lua_setglobal(lua, "pcall");
    lua_getglobal(lua, "math");
    lua_pushnil(lua);
    lua_setfield(lua, -2, "random");
    lua_newtable(lua);
    for (i = 0; i < 2; i++) {
        lua_pushlightuserdata(lua, m);
        lua_pushboolean(lua, (int)i);
        lua_pushcclosure(lua, model__lua_call, 2);
        lua_setfield(lua, -2, calls[i]);
    }
    lua_pushcfunction(lua, model__lua_error_reply);
    lua_setfield(lua, -2, "error_reply");
    lua_pushcfunction(lua, model__lua_status_reply);
    lua_setfield(lua, -2, "status_reply");
    lua_pushcfunction(lua, model__lua_sha1hex);
    lua_setfield(lua, -2, "sha1hex");
    lua_setglobal(lua, "redis");
    lua_newtable(lua);
    lua_pushcfunction(lua, model__lua_no_global);
    lua_setfield(lua, -2, "__index");
    lua_pushcfunction(lua, model__lua_no_new_global);
    lua_setfield(lua, -2, "__newindex");
    lua_setmetatable(lua, LUA_GLOBALSINDEX);
    lua_settop(lua, 0);
    return lua;
}

/* ---- which command it is, and whether it may run ---- */

/* In the order of the names. */
static const struct model_command model__commands[] = {
#define R MODEL_READ
#define W MODEL_WRITE
#define M MODEL_WRITE | MODEL_DENYOOM
#define A MODEL_LOADING | MODEL_STALE
#define C MODEL_NOSCRIPT | MODEL_LOADING | MODEL_STALE
    {"auth", -2, C | MODEL_NO_AUTH, 0, model__do_auth},
    {"client", -2, MODEL_GROUP, 0, NULL},
    {"client|getname", 2, C, 0, model__do_client_getname},
    {"client|getredir", 2, C | MODEL_NEW, 0, model__do_client_getredir},
    {"client|id", 2, C, 0, model__do_client_id},
    {"client|kill", -3, C, 0, model__do_client_kill},
    {"client|reply", 3, C, 0, model__do_client_reply},
    {"client|setname", 3, C, 0, model__do_client_setname},
    {"client|tracking", -3, C | MODEL_NEW, 0, model__do_client_tracking},
    {"command", -2, MODEL_GROUP, 0, NULL},
    {"command|info", -3, A, 0, model__do_command_info},
    {"dbsize", 1, R, 0, model__do_dbsize},
    {"del", -2, W, -1, model__do_del},
    {"delifeq", 3, W | MODEL_VALKEY, 1, model__do_delifeq},
    {"echo", 2, A, 0, model__do_echo},
    {"eval", -3, MODEL_NOSCRIPT | MODEL_STALE, 0, model__do_eval},
    {"evalsha", -3, MODEL_NOSCRIPT | MODEL_STALE, 0, model__do_evalsha},
    {"exists", -2, R, -1, model__do_exists},
    {"flushall", -1, W, 0, model__do_flushall},
    {"flushdb", -1, W, 0, model__do_flushdb},
    {"get", 2, R, 1, model__do_get},
    {"hdel", -3, W, 1, model__do_hdel},
    {"hello", -1, C | MODEL_NO_AUTH | MODEL_NEW, 0, model__do_hello},
    {"hexists", 3, R, 1, model__do_hexists},
    {"hget", 3, R, 1, model__do_hget},
    {"hgetall", 2, R, 1, model__do_hgetall},
    {"hincrby", 4, M, 1, model__do_hincrby},
    {"hset", -4, M, 1, model__do_hset},
    {"incr", 2, M, 1, model__do_incr},
    {"info", -1, A, 0, model__do_info},
    {"lpush", -3, M, 1, model__do_lpush},
    {"mget", -2, R, -1, model__do_mget},
    {"persist", 2, W, 1, model__do_persist},
    {"pexpire", -3, W, 1, model__do_pexpire},
    {"pexpireat", -3, W, 1, model__do_pexpireat},
    {"ping", -1, MODEL_SUBSCRIBED, 0, model__do_ping},
    {"pttl", 2, R, 1, model__do_pttl},
    {"publish", 3, A, 0, model__do_publish},
    {"quit", -1, C | MODEL_NO_AUTH | MODEL_SUBSCRIBED, 0, model__do_quit},
    {"script", -2, MODEL_GROUP, 0, NULL},
    {"script|exists", -3, MODEL_NOSCRIPT | MODEL_VALKEY_STALE, 0, model__do_script_exists},
    {"script|flush", -2, MODEL_NOSCRIPT | MODEL_VALKEY_STALE, 0, model__do_script_flush},
    {"script|load", 3, MODEL_NOSCRIPT | MODEL_STALE, 0, model__do_script_load},
    {"select", 2, A, 0, model__do_select},
    {"set", -3, M, 1, model__do_set},
    {"subscribe", -2, C | MODEL_SUBSCRIBED, 0, model__do_subscribe},
    {"time", 1, A, 0, model__do_time},
    {"type", 2, R, 1, model__do_type},
    {"unlink", -2, W, -1, model__do_del},
    {"unsubscribe", -1, C | MODEL_SUBSCRIBED, 0, model__do_unsubscribe},
    {"wait", 3, MODEL_REDIS_NOSCRIPT, 0, model__do_wait},
    {"zadd", -4, M, 1, model__do_zadd},
    {"zcard", 2, R, 1, model__do_zcard},
    {"zcount", 4, R, 1, model__do_zcount},
    {"zincrby", 4, M, 1, model__do_zincrby},
    {"zrange", -4, R, 1, model__do_zrange},
    {"zrangebyscore", -4, R, 1, model__do_zrangebyscore},
    {"zrank", 3, R, 1, model__do_zrank},
    {"zrem", -3, W, 1, model__do_zrem},
    {"zremrangebyscore", 4, W, 1, model__do_zremrangebyscore},
    {"zscore", 3, R, 1, model__do_zscore},
#undef R
#undef W
#undef M
#undef A
#undef C
};

/* Appends a word in small letters; false: no command has so long a name. */
static inline bool model__spell(char *name, size_t *size, size_t room, struct model_arg word) {
    size_t i;

    if (word.size >= room - *size || memchr(word.at, '\0', word.size) != NULL ||
        memchr(word.at, '|', word.size) != NULL) {
        return false;
    }
    for (i = 0; i < word.size; i++) {
        name[(*size)++] = model__lower(word.at[i]);
    }
    name[*size] = '\0';
    return true;
}

static inline const struct model_command *model__command_named(const char *name) {
    size_t low = 0, high = sizeof model__commands / sizeof *model__commands;

    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, model__commands[middle].name);

        if (order == 0) {
            return &model__commands[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

static inline bool model__knows(const struct model *m, const struct model_command *command) {
    return !((command->flags & MODEL_NEW) && m->flavour == MODEL_REDIS_5) &&
           !((command->flags & MODEL_VALKEY) && m->flavour != MODEL_VALKEY_9);
}

/* NULL: there is none of that name. */
static inline const struct model_command *model__command(const struct model *m, int argc,
                                                         const struct model_arg *argv) {
    const struct model_command *command = NULL;
    char name[32];
    size_t size = 0;

    if (model__spell(name, &size, sizeof name, argv[0])) {
        command = model__command_named(name);
    }
    if (command != NULL && (command->flags & MODEL_GROUP) && argc > 1) {
        name[size++] = '|';
        command =
            model__spell(name, &size, sizeof name, argv[1]) ? model__command_named(name) : NULL;
    }
    return command != NULL && model__knows(m, command) ? command : NULL;
}

/* Whether it takes so many words. The options of PEXPIRE came with Redis 7, that of ZRANK with its
 * followers. */
static inline bool model__takes(const struct model *m, const struct model_command *command,
                                int argc) {
    if (command->run == model__do_pexpire || command->run == model__do_pexpireat) {
        return model__is_old(m) ? argc == 3 : argc >= 3;
    }
    if (command->run == model__do_zrank && m->flavour == MODEL_VALKEY_9) {
        return argc >= 3;
    }
    return command->arity > 0 ? command->arity == argc : argc >= -command->arity;
}

/* The words for a command of a group that has it not; NULL: it is of no group. */
static inline const char *model__unknown_in_group(struct model *m, int argc,
                                                  const struct model_arg *argv) {
    const struct model_command *group = model__command(m, 1, argv);
    char upper[16];
    size_t i;

    if (argc < 2 || group == NULL || !(group->flags & MODEL_GROUP)) {
        return NULL;
    }
    for (i = 0; group->name[i] != '\0'; i++) {
        upper[i] = (char)(group->name[i] - ('a' - 'A'));
    }
    upper[i] = '\0';
    return model__text(m,
                       model__is_old(m) ? "ERR Unknown subcommand or wrong number of arguments for "
                                          "'%.*s'. Try %s HELP."
                                        : "ERR unknown subcommand '%.*s'. Try %s HELP.",
                       model__shown(argv[1], 128), argv[1].at, upper);
}

/* The words for a command that there is not. */
static inline const char *model__unknown(struct model_request *r) {
    const char *of_group = model__unknown_in_group(r->m, r->argc, r->argv);
    bool old = model__is_old(r->m);
    char args[160] = "";
    size_t used = 0;
    int i;

    for (i = 1; i < r->argc && used < 128; i++) {
        used += (size_t)snprintf(args + used, sizeof args - used, old ? "`%.*s`, " : "'%.*s' ",
                                 model__shown(r->argv[i], 128 - used), r->argv[i].at);
    }
    return of_group != NULL
               ? of_group
               : model__text(r->m,
                             old ? "ERR unknown command `%.*s`, with args beginning with: %s"
                                 : "ERR unknown command '%.*s', with args beginning with: %s",
                             model__shown(r->argv[0], 128), r->argv[0].at, args);
}

/* The same inside a script. */
static inline const char *model__script_unknown(struct model *m, int argc,
                                                const struct model_arg *argv) {
    const char *of_group =
        m->flavour == MODEL_VALKEY_9 ? model__unknown_in_group(m, argc, argv) : NULL;

    return of_group != NULL ? of_group
                            : model__script_words(m, "Unknown Redis command called from Lua script",
                                                  "ERR Unknown Redis command called from script",
                                                  "ERR Unknown command called from script");
}

/* Why the data may not be had or changed now. */
static inline const char *model__state_refusal(const struct model *m, unsigned flags) {
    bool replica = model__is_replica(m);
    bool ping = flags == MODEL_SUBSCRIBED; /* the one way to ask whether the server is well */

    if (m->oom && !replica && (flags & MODEL_DENYOOM)) {
        return MODEL__OOM;
    }
    if (m->misconf && ((flags & MODEL_WRITE) || ping)) {
        return model__words(m, MODEL__MISCONF("Redis"), MODEL__MISCONF("Valkey"));
    }
    if (m->noreplicas && !replica && (flags & MODEL_WRITE)) {
        return MODEL__NOREPLICAS;
    }
    if (replica && (flags & MODEL_WRITE)) {
        return MODEL__READONLY;
    }
    return NULL;
}

/* Why what stands before the server lets a command not through; NULL = it does. All that have more
 * than one key are said to be of two slots. */
static inline const char *model__kept_out(struct model_request *r,
                                          const struct model_command *command) {
    struct model *m = r->m;
    bool script = command->run == model__do_eval || command->run == model__do_evalsha;
    int keys = script && r->argc > 2 ? atoi(r->argv[2].at)
               : command->keys < 0   ? r->argc - 1
                                     : command->keys;

    if (r->peer == &m->outsider) {
        return NULL;
    }
    if (m->renamed != NULL && strcmp(command->name, m->renamed) == 0) {
        return model__unknown(r);
    }
    if (m->misfit != NULL && strcmp(command->name, m->misfit) == 0) {
        return model__text(m, "ERR wrong number of arguments for '%s' command", command->name);
    }
    return m->sharded && keys > 1 ? "CROSSSLOT Keys in request don't hash to the same slot" : NULL;
}

/* Why a command is not run, in the order in which Redis looks; NULL = it is. */
static inline const char *model__refusal(struct model_request *r,
                                         const struct model_command *command) {
    struct model *m = r->m;
    struct model_peer *peer = r->peer;
    bool stranger = m->password != NULL && !peer->authenticated &&
                    !(command != NULL && (command->flags & MODEL_NO_AUTH));
    bool stale;
    const char *why;

    if (stranger && m->flavour == MODEL_VALKEY_9) {
        return MODEL__NOAUTH;
    }
    if (command == NULL) {
        return model__unknown(r);
    }
    why = model__kept_out(r, command);
    if (why != NULL) {
        return why;
    }
    if (!model__takes(m, command, r->argc)) {
        return model__text(m, "ERR wrong number of arguments for '%s' command", command->name);
    }
    if (stranger) {
        return MODEL__NOAUTH;
    }
    if (peer != &m->outsider && !(command->flags & MODEL_NO_AUTH) &&
        model__is_denied(m, command->name)) {
        return model__text(m, "NOPERM %s has no permissions to run the '%s' command%s",
                           model__words(m, "this user", "User default"), command->name,
                           model__is_old(m) ? " or its subcommand" : "");
    }
    why = model__state_refusal(m, command->flags);
    if (why != NULL) {
        return why;
    }
    if (peer->channels.count > 0 && !(command->flags & MODEL_SUBSCRIBED)) {
        return model__text(m,
                           "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / "
                           "PING / QUIT / RESET are allowed in this context",
                           command->name);
    }
    stale = (command->flags & MODEL_STALE) ||
            ((command->flags & MODEL_VALKEY_STALE) && m->flavour == MODEL_VALKEY_9);
    if (m->masterdown && !stale) {
        return MODEL__MASTERDOWN;
    }
    if (m->loading && !(command->flags & MODEL_LOADING)) {
        return model__words(m, "LOADING Redis is loading the dataset in memory",
                            "LOADING Valkey is loading the dataset in memory");
    }
    return NULL;
}

/* Runs one command; its reply is in m->reply. */
static inline void model__execute(struct model_peer *peer, int argc, const struct model_arg *argv) {
    struct model *m = peer->model;
    const struct model_command *command = model__command(m, argc, argv);
    struct model_request r;
    const char *why;

    r.m = m;
    r.peer = peer;
    r.argc = argc;
    r.argv = argv;
    m->commands++;
    m->current = peer;
    m->out = &m->reply;
    m->reply.size = m->pending.size = 0;
    m->loud = false;
    why = model__refusal(&r, command);
    if (why != NULL) {
        model__fail(&r, why);
    } else {
        command->run(&r);
        model__remember_keys(m, command->flags, argv + 1,
                             command->keys < 0 ? argc - 1 : command->keys);
    }
    m->current = NULL;
}

static inline void model__serve(struct model_peer *peer, int argc, const struct model_arg *argv) {
    struct model *m = peer->model;
    struct model_peer *listener;

    model__execute(peer, argc, argv);
    if (m->loud || (!peer->silent && !peer->skip && !peer->skip_next)) {
        model__send(peer, &m->reply);
    }
    peer->skip = peer->skip_next;
    peer->skip_next = false;
    listener = m->pending.size > 0 ? model__peer(m, peer->redirect) : NULL;
    if (listener != NULL) {
        model__send(listener, &m->pending);
    }
    if (peer->closing) {
        model__hang_up(peer);
    }
}

/* ---- the protocol ---- */

/* A line `kind number \r\n` at *at: 1 and *at behind it, 0: not all is here, -1: it is none. */
static inline int model__line(const char **at, const char *end, int64_t *number) {
    const char *stop = (const char *)memchr(*at, '\r', (size_t)(end - *at));
    struct model_arg digits;

    if (stop == NULL) {
        return end - *at > 65536 ? -1 : 0;
    }
    if (stop + 1 == end) {
        return 0;
    }
    digits.at = *at + 1;
    digits.size = (size_t)(stop - digits.at);
    *at = stop + 2;
    return model__integer(digits, number) ? 1 : -1;
}

/* Reads one command into m->args. The bytes it took; 0 = not all is here; or *error. */
static inline size_t model__parse(struct model_peer *peer, const char *bytes, size_t size,
                                  int *argc, const char **error) {
    struct model *m = peer->model;
    const char *at = bytes, *end = bytes + size;
    bool stranger = m->password != NULL && !peer->authenticated;
    int64_t count, length;
    int got;

    if (size > 0 && *at != '*') {
        *error = "ERR Protocol error: the model knows no inline commands";
        return 0;
    }
    got = size > 0 ? model__line(&at, end, &count) : 0;
    if (got < 0 || (got > 0 && count > INT32_MAX)) {
        *error = "ERR Protocol error: invalid multibulk length";
    } else if (got > 0 && count > 10 && stranger) {
        *error = "ERR Protocol error: unauthenticated multibulk length";
    }
    for (*argc = 0; got > 0 && *error == NULL && *argc < count; (*argc)++) {
        if (at < end && *at != '$') {
            *error = model__text(m, "ERR Protocol error: expected '$', got '%c'", *at);
            return 0;
        }
        got = at < end ? model__line(&at, end, &length) : 0;
        if (got < 0 || (got > 0 && (length < 0 || length > 536870912))) {
            *error = "ERR Protocol error: invalid bulk length";
        } else if (got > 0 && length > 16384 && stranger) {
            *error = "ERR Protocol error: unauthenticated bulk length";
        } else if (got > 0 && end - at < length + 2) {
            got = 0;
        } else if (got > 0) {
            m->args = (struct model_arg *)model__grow(m->args, (size_t)*argc, &m->args_room,
                                                      sizeof *m->args);
            m->args[*argc].at = at;
            m->args[*argc].size = (size_t)length;
            at += length + 2;
        }
    }
    return got > 0 && *error == NULL ? (size_t)(at - bytes) : 0;
}

/* Executes every complete command. Any split of the bytes will do. */
static inline void model_feed(struct model_peer *peer, const char *bytes, size_t size) {
    struct model *m = peer->model;
    const char *error = NULL;
    size_t done = 0, took = 1;
    int argc = 0;

    model__enter(m);
    model__append(&peer->in, bytes, size);
    while (!peer->gone && took > 0) {
        took = model__parse(peer, peer->in.at + done, peer->in.size - done, &argc, &error);
        done += took;
        if (took > 0 && argc > 0) {
            model__serve(peer, argc, m->args);
        }
    }
    if (error != NULL && !peer->gone) {
        m->reply.size = 0;
        model__put_line(&m->reply, '-', error, strlen(error));
        model__send(peer, &m->reply);
        model__hang_up(peer);
    } else if (done > 0) {
        peer->in.size -= done;
        memmove(peer->in.at, peer->in.at + done, peer->in.size);
    }
    model__quit(m);
}

/* ---- the caller's side ---- */

static inline uint64_t model__mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline void model__new_process(struct model *m) {
    uint64_t x = model__mix(model__mix(m->seed) + m->restarts);
    int i;

    for (i = 0; i < 40; i++) {
        x = model__mix(x);
        m->run_id[i] = "0123456789abcdef"[x >> 60];
    }
    m->started_us = m->wall_us;
    m->last_id = 0; /* as in Redis: an id means another client in another process */
}

/* `id` makes the run ids. */
static inline struct model *model_new(const struct model_hooks *hooks, uint64_t id) {
    struct model *m = (struct model *)model__must(calloc(1, sizeof *m));

    m->hooks = *hooks;
    m->seed = id;
    m->inner.model = m->outsider.model = m;
    m->outsider.authenticated = true;
    m->out = &m->reply;
    m->lua = model__lua_new(m);
    model__new_process(m);
    return m;
}

static inline struct model_peer *model_accept(struct model *m, void *user) {
    struct model_peer *peer = (struct model_peer *)model__must(calloc(1, sizeof *peer));

    m->peers = (struct model_peer **)model__grow(m->peers, m->peers_count, &m->peers_room,
                                                 sizeof *m->peers);
    m->peers[m->peers_count++] = peer;
    peer->model = m;
    peer->user = user;
    peer->id = ++m->last_id;
    peer->authenticated = m->password == NULL;
    return peer;
}

/* The client's side ended the connection: no more commands, and no hang_up. */
static inline void model_leave(struct model_peer *peer) {
    struct model *m = peer->model;

    model__enter(m);
    model__remove_peer(peer);
    model__quit(m);
}

static inline void model__flush_dbs(struct model_map dbs[MODEL_DATABASES]) {
    int db;

    for (db = 0; db < MODEL_DATABASES; db++) {
        model__map_free(&dbs[db], model__free_key);
    }
}

/* No peer is hung up: they are no more. */
static inline void model_free(struct model *m) {
    model__enter(m);
    while (m->peers_count > 0) {
        model__remove_peer(m->peers[m->peers_count - 1]);
    }
    model__quit(m);
    model__flush_dbs(m->dbs);
    model__map_free(&m->tracked, model__free_readers);
    model__map_free(&m->scripts, free);
    model__free_peer(&m->outsider);
    model__free_peer(&m->inner);
    model__release(&m->reply);
    model__release(&m->answer);
    model__release(&m->push);
    model__release(&m->pending);
    model__release(&m->number);
    free(m->args);
    free(m->inner_args);
    free(m->peers);
    lua_close(m->lua);
    free(m);
}

/* Another process on the same port: every peer is hung up, scripts, client ids and what was read
 * are forgotten, the run id is new. */
static inline void model_restart(struct model *m, bool keep_data) {
    model__enter(m);
    while (m->peers_count > 0) {
        model__hang_up(m->peers[0]);
    }
    model__quit(m);
    if (!keep_data) {
        model__flush_dbs(m->dbs);
    }
    model__map_free(&m->tracked, model__free_readers);
    model__forget_scripts(m);
    m->restarts++;
    model__new_process(m);
}

/* Deletes what is over at m->wall_us. A replica does not. */
static inline void model_tick(struct model *m) {
    int db;
    size_t i;

    model__enter(m);
    for (db = 0; db < MODEL_DATABASES && !model__is_replica(m); db++) {
        struct model_map *map = &m->dbs[db];

        for (i = map->count; i > 0; i--) {
            if (model__is_over(m, (struct model_key *)(void *)map->items[i - 1])) {
                model__delete(m, map, i - 1, true);
            }
        }
    }
    model__quit(m);
}

static inline int64_t model__gone_us(const struct model_key *key) {
    return key->expires_ms < 0 ? -1 : (key->expires_ms + 1) * 1000;
}

/* The wall_us at which the first key goes; -1 = none does. */
static inline int64_t model_next_expiry(const struct model *m) {
    int64_t first = -1;
    size_t i;
    int db;

    for (db = 0; db < MODEL_DATABASES; db++) {
        for (i = 0; i < m->dbs[db].count; i++) {
            int64_t us = model__gone_us((struct model_key *)(void *)m->dbs[db].items[i]);

            first = us >= 0 && (first < 0 || us < first) ? us : first;
        }
    }
    return first;
}

/* All databases, as they are now. */
static inline struct model_copy *model_save(const struct model *m) {
    struct model_copy *copy = (struct model_copy *)model__must(calloc(1, sizeof *copy));
    int db;

    for (db = 0; db < MODEL_DATABASES; db++) {
        model__map_copy(&copy->dbs[db], &m->dbs[db]);
    }
    return copy;
}

/* Puts them back; nobody is told. */
static inline void model_load(struct model *m, const struct model_copy *copy) {
    int db;

    model__flush_dbs(m->dbs);
    for (db = 0; db < MODEL_DATABASES; db++) {
        model__map_copy(&m->dbs[db], &copy->dbs[db]);
    }
}

static inline void model_copy_free(struct model_copy *copy) {
    if (copy != NULL) {
        model__flush_dbs(copy->dbs);
        free(copy);
    }
}

/* Looks without touching; false: the key is not there, or is over. */
static inline bool model_get(const struct model *m, int db, const char *key, size_t key_len,
                             struct model_value *out) {
    const struct model_key *found =
        (const struct model_key *)model__find(&m->dbs[db], key, key_len);

    memset(out, 0, sizeof *out);
    if (found == NULL || model__is_over(m, found)) {
        return false;
    }
    out->type = found->type;
    out->bytes = found->value.at;
    out->size = found->value.size;
    out->fields = found->fields;
    out->count = found->count;
    out->expires_us = model__gone_us(found);
    return true;
}

/* The names of the keys that are there, in the order of their bytes: at most `room` of them into
 * `names`. Returns how many there are. */
static inline size_t model_keys(const struct model *m, int db, struct model_arg *names,
                                size_t room) {
    size_t i, count = 0;

    for (i = 0; i < m->dbs[db].count; i++) {
        const struct model_key *key = (const struct model_key *)(void *)m->dbs[db].items[i];

        if (!model__is_over(m, key)) {
            if (count < room) {
                names[count].at = key->item.name;
                names[count].size = key->item.size;
            }
            count++;
        }
    }
    return count;
}

/* A command of somebody else, who needs no password and is denied nothing. The reply as it would
 * be on the wire, good until the next call. */
static inline const char *model_call(struct model *m, int db, int argc, const char *const argv[]) {
    struct model_arg args[64];
    int i;

    for (i = 0; i < argc && i < 64; i++) {
        args[i].at = argv[i];
        args[i].size = strlen(argv[i]);
    }
    model__enter(m);
    m->outsider.db = db;
    model__execute(&m->outsider, i, args);
    model__quit(m);
    return m->reply.at;
}

#endif
