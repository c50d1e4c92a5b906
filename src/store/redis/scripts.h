/* ------------------------------------------------------------------------------------------------
 * >>redis-scripts - what a server does in one step, and cannot do by one command
 *
 * They stand here as they are sent, behind their SHA-1: `tools/join --script NAME` prints one. With
 * comments they are in src/lua/.
 */

#ifndef RLOCK_STORE_REDIS_SCRIPTS_H
#define RLOCK_STORE_REDIS_SCRIPTS_H

#include "public/head.h"

/* A line of a script is a line here. */
/* clang-format off */

#include "lua/string_acquire.lua"
#include "lua/string_renew.lua"
#include "lua/string_release.lua"
#include "lua/string_renew_many.lua"
#if RLOCK__HAS_REDISSON
#include "lua/redisson_acquire.lua"
#include "lua/redisson_renew.lua"
#include "lua/redisson_release.lua"
#endif
#if RLOCK__HAS_REPLICAS
#include "lua/quarantine.lua"
#endif

#if RLOCK__HAS_KINDS
#ifdef __GNUC__ /* C99 promises 4095 bytes of a string, these compilers have no limit */
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif
#include "lua/string_inspect.lua"
#include "lua/string_force.lua"
#include "lua/keys_acquire.lua"
#include "lua/keys_renew.lua"
#include "lua/keys_release.lua"
#include "lua/queue.lua"
#include "lua/queue_renew.lua"
#endif /* RLOCK__HAS_KINDS */
#if RLOCK__HAS_KINDS && RLOCK__HAS_REDISSON
#include "lua/redisson_inspect.lua"
#include "lua/redisson_force.lua"
#endif
#if RLOCK__HAS_KINDS && RLOCK__HAS_DESCRIPTIONS
#include "lua/who.lua"
#endif

/* clang-format on */

#define RLOCK__SHA 40 /* digits of a SHA-1, before each script */

/* The rows of scripts: for a mutex on each wire, for several keys, for the queued kinds. */
enum {
    RLOCK__ROW_STRING,
#if RLOCK__HAS_REDISSON
    RLOCK__ROW_REDISSON,
#endif
#if RLOCK__HAS_KINDS
    RLOCK__ROW_KEYS,
    RLOCK__ROW_QUEUE,
#endif
    RLOCK__ROWS
};

#if RLOCK__HAS_KINDS
static const char *const rlock__scripts[RLOCK__ROWS][6] = {
    /* [row][rlock_op] */
    {rlock__lua_string_acquire, rlock__lua_string_renew, rlock__lua_string_release,
     rlock__lua_string_inspect, rlock__lua_string_force, NULL},
#if RLOCK__HAS_REDISSON
    {rlock__lua_redisson_acquire, rlock__lua_redisson_renew, rlock__lua_redisson_release,
     rlock__lua_redisson_inspect, rlock__lua_redisson_force, NULL},
#endif
    {rlock__lua_keys_acquire, rlock__lua_keys_renew, rlock__lua_keys_release, NULL, NULL, NULL},
    {rlock__lua_queue, rlock__lua_queue_renew, rlock__lua_queue, rlock__lua_queue, rlock__lua_queue,
     rlock__lua_queue}};
#else
static const char *const rlock__scripts[RLOCK__ROWS][3] = {
    {rlock__lua_string_acquire, rlock__lua_string_renew, rlock__lua_string_release},
#if RLOCK__HAS_REDISSON
    {rlock__lua_redisson_acquire, rlock__lua_redisson_renew, rlock__lua_redisson_release},
#endif
};
#endif

#endif /* RLOCK_STORE_REDIS_SCRIPTS_H */
