/* model_script.h - the scripts of model.h, and what they may call */
#ifndef RLOCK_TESTS_MODEL_SCRIPT_H
#define RLOCK_TESTS_MODEL_SCRIPT_H

#include "model_server.h"

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

/* Pushes one reply as a Lua value. Returns what follows it. */
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

/* Returns why a script cannot change the data now, or NULL. Valkey checks in another order, and its
 * memory before the user. */
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

/* Returns why a script's user may not run a command, or NULL. */
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

/* Returns why a command of a script is not run, in the order of the checks of Redis; NULL if it is
 * run. */
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

/* Remembers what a command reads for its client. Of a script that reads anything these are the
 * keys that it was given, all of them and no others; Valkey remembers what the script's commands
 * read. */
static inline void model__remember_keys(struct model *m, unsigned flags,
                                        const struct model_arg *keys, int count) {
    int i;

    for (i = 0; i < count && (flags & MODEL_READ) && m->current->tracking; i++) {
        model__remember(m, keys[i]);
    }
}

/* Counts refusals for lack of memory that would lose a queued waiter or a hold. */
static inline void model__note_full(struct model *m, const char *why) {
    const struct model_key *key =
        m->declared_count > 0 && strcmp(why, MODEL__OOM) == 0
            ? (const struct model_key *)model__find(&m->dbs[m->inner.db], m->declared[0].at,
                                                    m->declared[0].size)
            : NULL;

    m->full += key != NULL && key->type == MODEL_ZSET && !m->misconf && !m->noreplicas;
}

/* Runs the arguments on the stack as a command, and pushes its reply. */
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

/* Pushes the error of a command that is not run. Old Redis says where, and keeps the dash of an
 * error that exists outside of scripts too. */
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

/* Returns a text of the table on the top of the stack, which keeps it; NULL if there is none. */
static inline const char *model__lua_member(lua_State *lua, const char *name) {
    const char *text;

    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    text = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : NULL;
    lua_pop(lua, 1);
    return text;
}

static inline void model__from_lua(struct model *m, lua_State *lua);

/* Makes a reply of a table: an error, a status, or an array that ends before the first nil. */
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

/* Makes a reply of the value on the top of the stack, and takes it off. */
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

/* Returns the words for an error that ended a script. */
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

    if (m->masterdown) { /* checked after the script: an unknown one is an error */
        model__fail(r, MODEL__MASTERDOWN);
        return;
    }
    m->scripts_run++;
    m->script_wrote = false;
    m->inner.db = r->peer->db;
    m->declared = r->argv + 3;
    m->declared_count = keys;
    m->script = script->item.name;
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
    m->script = NULL;
}

/* Returns the compiled script. Says the error and returns NULL if it cannot be compiled. */
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

#endif /* RLOCK_TESTS_MODEL_SCRIPT_H */
