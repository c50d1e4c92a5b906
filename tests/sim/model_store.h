/* model_store.h - what a server of model.h is made of: bytes, maps, replies, peers, keys */
#ifndef RLOCK_TESTS_MODEL_STORE_H
#define RLOCK_TESTS_MODEL_STORE_H

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
    /* Sends bytes to the connection's client. */
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

struct model_value { /* points into the model: valid until it runs a command */
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
    bool asking, asks;            /* ASKING was said just now, and is about this command */
    bool blocked;                 /* by WAIT: what follows is read when that is answered */
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
    bool proxied;                     /* a proxy takes only commands with keys */
    /* Returns how many replicas have all that was written; -1: model_waited will tell, since there
     * are too few. NULL: there are none. */
    int64_t (*wait)(void *ctx, void *user, int64_t replicas, int64_t timeout_ms);
    /* Of a node of a cluster; NULL: it is none. Why it does not run a command with these keys; what
     * it says of the slots; what is published goes to the others too. */
    const char *(*route)(void *ctx, void *user, bool asking, int count,
                         const struct model_arg *keys);
    void (*slots)(void *ctx, struct model_bytes *out);
    void (*spread)(void *ctx, struct model_arg channel, struct model_arg text);
    const char *watches;      /* it is a Sentinel, and knows a primary by this name */
    const char *primary_host; /* ... that is there; NULL = it says nil */
    int primary_port;
    int64_t config_epoch;
    void *stranger;                                  /* hooks.touched is told this for model_call */
    uint64_t commands, scripts_run, delifeqs, mgets; /* counters */
    uint64_t full; /* scripts refused for memory although their first key is a sorted set */

    /* Its own. */
    struct model_hooks hooks;
    uint64_t seed, restarts, promotions, last_id;
    char run_id[41];
    char replid[41], replid2[41]; /* the histories of the data: this one, and the one before */
    int64_t started_us;           /* when this process of it began */
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
    int depth;          /* calls under way */
    bool script_wrote;  /* from its first write on nothing may stop a script any more */
    const char *script; /* the SHA-1 of the one that runs, not terminated; NULL = none does */
    bool loud;          /* the reply is a push: CLIENT REPLY OFF does not hold it back */
    char text[512];     /* an error that had to be put together */
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
    MODEL_VALKEY_STALE = 4096,   /* as MODEL_STALE, but only in Valkey */
    MODEL_SENTINEL = 8192,       /* a Sentinel knows it too */
    MODEL_SENTINEL_ONLY = 16384  /* ... and nobody else */
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

static inline bool model__is_exactly(struct model_arg arg, const char *word) {
    return arg.size == strlen(word) && memcmp(arg.at, word, arg.size) == 0;
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

/* Finds the place of a name, or where it belongs. True if the name is there. */
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

/* Adds a thing of `bytes` bytes, all zero but its name, which must be new. */
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

static inline void model__key_copy(struct model_map *to, const struct model_key *old) {
    struct model_key *key =
        (struct model_key *)model__add(to, old->item.name, old->item.size, sizeof *key);
    size_t i;

    key->type = old->type;
    key->expires_ms = old->expires_ms;
    model__assign(&key->value, old->value.at, old->value.size);
    for (i = 0; old->fields != NULL && i < old->count; i++) {
        struct model_field *field = model__new_field(key);

        model__assign(&field->name, old->fields[i].name.at, old->fields[i].name.size);
        model__assign(&field->value, old->fields[i].value.at, old->fields[i].value.size);
        field->score = old->fields[i].score;
    }
    key->count = old->count;
}

static inline void model__map_copy(struct model_map *to, const struct model_map *from) {
    size_t i;

    for (i = 0; i < from->count; i++) {
        model__key_copy(to, (const struct model_key *)(const void *)from->items[i]);
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

/* Puts a reply of one line: line ends in the text become blanks. */
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

/* Returns how much of an argument goes into an error. */
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

/* Old Redis has other words for what a script may not do. */
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

/* Pushes that a key changed, or (NULL) that all did. A client without RESP3 gets it on another
 * connection, which must have subscribed to some channel, or not at all. What the running command
 * pushes to its own client comes after its reply. */
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

/* Tells each client that has read the key, once, and forgets it. */
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

/* Finds a key, and deletes it if it has expired. A replica waits for its master to say so. */
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

/* Says the error and returns false if the key is of another type. */
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

#endif /* RLOCK_TESTS_MODEL_STORE_H */
