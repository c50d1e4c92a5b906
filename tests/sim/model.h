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
 * COMMAND without names. It answers them with an error. WAIT waits only if model.wait is set. Of a
 * command COMMAND INFO tells the name and the arity, and of the rest only the shape. In scripts
 * only the list of globals is write-protected, there is no math.random, and of the tables that mean
 * a reply of RESP3 none is known.
 *
 * Hooks may look (model_get, model_keys) and may call model_leave; nothing else of this file.
 * It ends the process when memory runs out: it is a part of the test, not of what is tested. */
#ifndef RLOCK_TESTS_MODEL_H
#define RLOCK_TESTS_MODEL_H

#include "model_commands.h"

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

/* Reads one command into m->args. Returns the bytes that it took; 0 if not all is there, or if
 * *error is set. */
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

/* Executes every complete command, however the bytes are split. */
static inline void model_feed(struct model_peer *peer, const char *bytes, size_t size) {
    struct model *m = peer->model;
    const char *error = NULL;
    size_t done = 0, took = 1;
    int argc = 0;

    model__enter(m);
    model__append(&peer->in, bytes, size);
    while (!peer->gone && !peer->blocked && took > 0) {
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

/* Answers the WAIT that blocks a connection, and goes on with what came after it. */
static inline void model_waited(struct model_peer *peer, int64_t replicas) {
    struct model *m = peer->model;

    model__enter(m);
    peer->blocked = false;
    m->reply.size = 0;
    model__put_count(&m->reply, ':', replicas);
    model__send(peer, &m->reply);
    model_feed(peer, "", 0);
    model__quit(m);
}

/* ---- the caller's side ---- */

static inline uint64_t model__mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline void model__new_identity(uint64_t x, char *text) {
    int i;

    for (i = 0; i < 40; i++) {
        x = model__mix(x);
        text[i] = "0123456789abcdef"[x >> 60];
    }
}

static inline void model__new_process(struct model *m) {
    model__new_identity(model__mix(model__mix(m->seed) + m->restarts), m->run_id);
    model__new_identity(model__mix(model__mix(m->seed + 1) + m->restarts), m->replid);
    memset(m->replid2, '0', 40);
    m->started_us = m->wall_us;
    m->last_id = 0; /* as in Redis: in another process an id means another client */
}

/* A replica has the history of its primary. */
static inline void model_follow(struct model *m, const struct model *primary) {
    memcpy(m->replid, primary->replid, sizeof m->replid);
    memset(m->replid2, '0', 40);
}

/* It takes over: it goes on with that history, under a new name. */
static inline void model_promote(struct model *m) {
    memcpy(m->replid2, m->replid, sizeof m->replid2);
    model__new_identity(model__mix(model__mix(m->seed + 2) + ++m->promotions), m->replid);
}

/* `id` makes the identities. */
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

/* Ends a connection from the client's side: no more commands, and no hang_up. */
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

/* Frees the peers too, without hang_up. */
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

/* Puts another process on the same port. Every peer is hung up; scripts, client ids and what was
 * read are forgotten; the run id is new. */
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

/* Deletes what has expired at m->wall_us. A replica does not. */
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

/* Returns the wall_us at which the next key expires; -1 if none does. */
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

/* Copies all databases as they are now. */
static inline struct model_copy *model_save(const struct model *m) {
    struct model_copy *copy = (struct model_copy *)model__must(calloc(1, sizeof *copy));
    int db;

    for (db = 0; db < MODEL_DATABASES; db++) {
        model__map_copy(&copy->dbs[db], &m->dbs[db]);
    }
    return copy;
}

/* Puts them back, without a push. */
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

/* Puts them into a replica that begins anew: who tracks is told that everything changed. */
static inline void model_sync(struct model *m, const struct model_copy *copy) {
    model__enter(m);
    model__invalidate_all(m);
    model__quit(m);
    model_load(m, copy);
}

/* What became of one key, on its way to a replica. */
struct model_effect {
    int db;
    struct model_map key; /* as it is; empty = it is gone */
    struct model_bytes name;
};

static inline struct model_effect *model_effect_of(const struct model *m, int db, const char *name,
                                                   size_t size) {
    struct model_effect *effect = (struct model_effect *)model__must(calloc(1, sizeof *effect));
    const struct model_key *key = (const struct model_key *)model__find(&m->dbs[db], name, size);

    effect->db = db;
    model__assign(&effect->name, name, size);
    if (key != NULL) {
        model__key_copy(&effect->key, key);
    }
    return effect;
}

static inline void model_effect_free(struct model_effect *effect) {
    model__map_free(&effect->key, model__free_key);
    model__release(&effect->name);
    free(effect);
}

/* Makes a key what it became at the primary, and tells who tracks it. */
static inline void model_effect_apply(struct model *m, const struct model_effect *effect) {
    struct model_map *db = &m->dbs[effect->db];
    size_t place;

    model__enter(m);
    if (model__place(db, effect->name.at, effect->name.size, &place)) {
        model__free_key(model__take(db, place));
    }
    model__map_copy(db, &effect->key);
    model__invalidate(m, effect->name.at, effect->name.size);
    model__quit(m);
}

/* Reads a key without touching it. False if it is not there, or has expired. */
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

/* Puts the names of the keys into `names`, in the order of their bytes, at most `room` of them.
 * Returns how many keys there are. */
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

/* Runs a command of another client, which needs no password and is denied nothing. Returns the
 * reply as it is on the wire, valid until the next call. */
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
