/* model_commands.h - the table of the commands of model.h, and whether one may run */
#ifndef RLOCK_TESTS_MODEL_COMMANDS_H
#define RLOCK_TESTS_MODEL_COMMANDS_H

#include "model_script.h"

/* ---- commands: COMMAND ---- */

/* Finds a name as COMMAND INFO takes it: a group's command after a bar. */
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
#define S MODEL_SENTINEL
    {"asking", 1, A, 0, model__do_asking},
    {"auth", -2, C | MODEL_NO_AUTH | S, 0, model__do_auth},
    {"client", -2, MODEL_GROUP | S, 0, NULL},
    {"client|getname", 2, C | S, 0, model__do_client_getname},
    {"client|getredir", 2, C | MODEL_NEW, 0, model__do_client_getredir},
    {"client|id", 2, C | S, 0, model__do_client_id},
    {"client|kill", -3, C | S, 0, model__do_client_kill},
    {"client|reply", 3, C | S, 0, model__do_client_reply},
    {"client|setname", 3, C | S, 0, model__do_client_setname},
    {"client|tracking", -3, C | MODEL_NEW, 0, model__do_client_tracking},
    {"cluster", -2, MODEL_GROUP, 0, NULL},
    {"cluster|slots", 2, A, 0, model__do_cluster_slots},
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
    {"hello", -1, C | MODEL_NO_AUTH | MODEL_NEW | S, 0, model__do_hello},
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
    {"ping", -1, MODEL_SUBSCRIBED | S, 0, model__do_ping},
    {"pttl", 2, R, 1, model__do_pttl},
    {"publish", 3, A, 0, model__do_publish},
    {"quit", -1, C | MODEL_NO_AUTH | MODEL_SUBSCRIBED | S, 0, model__do_quit},
    {"script", -2, MODEL_GROUP, 0, NULL},
    {"script|exists", -3, MODEL_NOSCRIPT | MODEL_VALKEY_STALE, 0, model__do_script_exists},
    {"script|flush", -2, MODEL_NOSCRIPT | MODEL_VALKEY_STALE, 0, model__do_script_flush},
    {"script|load", 3, MODEL_NOSCRIPT | MODEL_STALE, 0, model__do_script_load},
    {"select", 2, A, 0, model__do_select},
    {"sentinel", -2, MODEL_GROUP | MODEL_SENTINEL_ONLY, 0, NULL},
    {"sentinel|get-master-addr-by-name", 3, MODEL_SENTINEL_ONLY, 0, model__do_sentinel_address},
    {"sentinel|master", 3, MODEL_SENTINEL_ONLY, 0, model__do_sentinel_master},
    {"set", -3, M, 1, model__do_set},
    {"subscribe", -2, C | MODEL_SUBSCRIBED | S, 0, model__do_subscribe},
    {"time", 1, A, 0, model__do_time},
    {"type", 2, R, 1, model__do_type},
    {"unlink", -2, W, -1, model__do_del},
    {"unsubscribe", -1, C | MODEL_SUBSCRIBED | S, 0, model__do_unsubscribe},
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
#undef S
};

/* Appends a word in small letters. False if no command has so long a name. */
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
    unsigned where = command->flags & (MODEL_SENTINEL | MODEL_SENTINEL_ONLY);

    if (m->watches != NULL ? where == 0 : where == MODEL_SENTINEL_ONLY) {
        return false;
    }
    return !((command->flags & MODEL_NEW) && m->flavour == MODEL_REDIS_5) &&
           !((command->flags & MODEL_VALKEY) && m->flavour != MODEL_VALKEY_9);
}

/* Returns NULL if there is none of that name. */
static inline const struct model_command *model__command(const struct model *m, int argc,
                                                         const struct model_arg *argv) {
    const struct model_command *command = NULL;
    char name[48];
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

/* True if the command takes so many words. The options of PEXPIRE came with Redis 7, that of ZRANK
 * with its successors. */
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

/* Returns the error for an unknown command of a group; NULL if it is of no group. */
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

/* Returns the error for an unknown command. */
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

/* Returns why the data cannot be read or changed now, or NULL. */
static inline const char *model__state_refusal(const struct model *m, unsigned flags) {
    bool replica = model__is_replica(m);
    bool ping = (flags & ~(unsigned)MODEL_SENTINEL) ==
                MODEL_SUBSCRIBED; /* the one way to ask whether the server is well */

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

/* Whether a proxy such as Envoy passes a command on: those that name their keys, and a few more. */
static inline bool model__passes(const struct model_command *command) {
    return command->keys != 0 || command->run == model__do_eval ||
           command->run == model__do_evalsha || command->run == model__do_auth ||
           command->run == model__do_ping || command->run == model__do_quit;
}

/* Returns why a proxy in front of the server refuses a command; NULL if it does not. It may say of
 * all commands with more than one key that these are in two slots. */
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
    if (m->proxied && !model__passes(command)) {
        return model__text(m, "unsupported command '%.*s'", (int)r->argv[0].size, r->argv[0].at);
    }
    return m->sharded && keys > 1 ? "CROSSSLOT Keys in request don't hash to the same slot" : NULL;
}

/* Returns what a node of a cluster says of a command whose keys it has not; NULL if it has them. */
static inline const char *model__elsewhere(const struct model_request *r,
                                           const struct model_command *command) {
    bool script = command->run == model__do_eval || command->run == model__do_evalsha;
    int keys = script && r->argc > 2 ? atoi(r->argv[2].at)
               : command->keys < 0   ? r->argc - 1
                                     : command->keys;

    keys = keys < r->argc - (script ? 3 : 1) ? keys : r->argc - (script ? 3 : 1);
    return keys > 0 ? r->m->route(r->m->hooks.ctx, r->peer->user, r->peer->asks, keys,
                                  r->argv + (script ? 3 : 1))
                    : NULL;
}

/* Returns why a command is not run, in the order of the checks of Redis; NULL if it is run. */
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
    why = m->route != NULL && peer != &m->outsider ? model__elsewhere(r, command) : NULL;
    if (why == NULL) {
        why = model__state_refusal(m, command->flags);
    }
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

    peer->asks = peer->asking;
    peer->asking = false;
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

#endif /* RLOCK_TESTS_MODEL_COMMANDS_H */
