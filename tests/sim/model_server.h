/* model_server.h - the commands of model.h about the server, channels and connections */
#ifndef RLOCK_TESTS_MODEL_SERVER_H
#define RLOCK_TESTS_MODEL_SERVER_H

#include "model_data.h"

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
    bool server = r->argc == 1, replication = r->argc == 1;
    char text[512] = "";
    int i;

    for (i = 1; i < r->argc; i++) {
        bool all = model__is(r->argv[i], "default") || model__is(r->argv[i], "all") ||
                   model__is(r->argv[i], "everything");

        server = server || all || model__is(r->argv[i], "server");
        replication = replication || all || model__is(r->argv[i], "replication");
    }
    if (server) {
        snprintf(text, sizeof text,
                 "# Server\r\nredis_version:%s\r\nrun_id:%s\r\nuptime_in_seconds:%lld\r\n",
                 versions[r->m->flavour], r->m->run_id,
                 (long long)(r->m->wall_us / 1000000 - r->m->started_us / 1000000));
    }
    if (replication) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof text - n,
                 "%s# Replication\r\nrole:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n",
                 n > 0 ? "\r\n" : "", model__is_replica(r->m) ? "slave" : "master", r->m->replid,
                 r->m->replid2);
    }
    model__put_word(r->m->out, text);
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
        } else if (r->m->wait == NULL || r->peer == &r->m->inner || r->peer == &r->m->outsider) {
            model__count(r, 0); /* there is none to wait for */
        } else {
            timeout = r->m->wait(r->m->hooks.ctx, r->peer->user, replicas, timeout);
            r->peer->blocked = timeout < 0;
            if (!r->peer->blocked) {
                model__count(r, timeout);
            }
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

/* ---- commands: of a Sentinel ---- */

static inline bool model__watches(const struct model_request *r) {
    return model__is_exactly(r->argv[2], r->m->watches) && r->m->primary_host != NULL;
}

static inline void model__do_sentinel_address(struct model_request *r) {
    struct model_bytes *out = r->m->out;
    char digits[24];

    if (!model__watches(r)) {
        model__append(out, "*-1\r\n", 5);
        return;
    }
    model__put_count(out, '*', 2);
    model__put_word(out, r->m->primary_host);
    model__put_bulk(out, digits, model__digits(digits, r->m->primary_port));
}

/* Some of the forty words that a real one says. */
static inline void model__do_sentinel_master(struct model_request *r) {
    struct model_bytes *out = r->m->out;
    char digits[24];

    if (!model__watches(r)) {
        model__fail(r, "ERR No such master with that name");
        return;
    }
    model__put_count(out, '*', 8);
    model__put_word(out, "name");
    model__put_word(out, r->m->watches);
    model__put_word(out, "ip");
    model__put_word(out, r->m->primary_host);
    model__put_word(out, "port");
    model__put_bulk(out, digits, model__digits(digits, r->m->primary_port));
    model__put_word(out, "config-epoch");
    model__put_bulk(out, digits, model__digits(digits, r->m->config_epoch));
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
    if (m->spread != NULL && r->peer != &m->outsider) {
        m->spread(m->hooks.ctx, r->argv[1], r->argv[2]);
    }
}

/* ---- commands: of a node of a cluster ---- */

static inline void model__do_asking(struct model_request *r) {
    if (r->m->route == NULL) {
        model__fail(r, "ERR This instance has cluster support disabled");
        return;
    }
    r->peer->asking = true;
    model__say(r, "OK");
}

static inline void model__do_cluster_slots(struct model_request *r) {
    if (r->m->slots == NULL) {
        model__fail(r, "ERR This instance has cluster support disabled");
        return;
    }
    r->m->slots(r->m->hooks.ctx, r->m->out);
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

#endif /* RLOCK_TESTS_MODEL_SERVER_H */
