/* ------------------------------------------------------------------------------------------------
 * >>redis-scripts - what a server does in one step, and cannot do by one command
 *
 * docs/protocol.md shows them as they are written, with comments. Here they are as they are kept:
 * without what a server does not need, and with a byte for each word that stands in them often.
 * `tools/join --script NAME` prints one as it is sent; its SHA-1, which stands before it, is that
 * of this text.
 */

#ifndef RLOCK_STORE_REDIS_SCRIPTS_H
#define RLOCK_STORE_REDIS_SCRIPTS_H

#include "base/platform.h"

#include "lua/string_acquire.lua"
#include "lua/string_renew.lua"
#include "lua/string_release.lua"
#include "lua/string_renew_many.lua"
#include "lua/redisson_acquire.lua"
#include "lua/redisson_renew.lua"
#include "lua/redisson_release.lua"
#include "lua/quarantine.lua"
#include "lua/words"

#include "lua/string_inspect.lua"
#include "lua/string_force.lua"
#include "lua/redisson_inspect.lua"
#include "lua/redisson_force.lua"
#include "lua/keys_acquire.lua"
#include "lua/keys_renew.lua"
#include "lua/keys_release.lua"
#include "lua/queue.lua"
#include "lua/queue_renew.lua"
#include "lua/queue_question.lua"
#include "lua/more_words"

/* Each word with its length before it. The bytes from RLOCK__LUA_WORD on stand for them, in scripts
 * and in other words. */
static const char rlock__words[] = RLOCK__LUA_WORDS
#if RLOCK__HAS_KINDS
    RLOCK__LUA_MORE_WORDS
#endif
    ;

#define RLOCK__LUA_WORD 128 /* the first one */

#define RLOCK__SHA 20 /* bytes of a SHA-1 */

#define RLOCK__SCRIPT(name) RLOCK__SHA_##name RLOCK__LUA_##name

static const char rlock__renew_many[] = RLOCK__SCRIPT(STRING_RENEW_MANY);
static const char rlock__quarantine_script[] = RLOCK__SCRIPT(QUARANTINE);

enum { RLOCK__ROW_STRING, RLOCK__ROW_REDISSON, RLOCK__ROW_KEYS, RLOCK__ROW_QUEUE, RLOCK__ROWS };

static const char *const
    rlock__scripts[RLOCK__HAS_KINDS ? RLOCK__ROWS : RLOCK__ROW_KEYS][RLOCK__HAS_KINDS ? 6 : 3] = {
#if RLOCK__HAS_KINDS
        /* [row][rlock_op] */
        {RLOCK__SCRIPT(STRING_ACQUIRE), RLOCK__SCRIPT(STRING_RENEW), RLOCK__SCRIPT(STRING_RELEASE),
         RLOCK__SCRIPT(STRING_INSPECT), RLOCK__SCRIPT(STRING_FORCE), NULL},
        {RLOCK__SCRIPT(REDISSON_ACQUIRE), RLOCK__SCRIPT(REDISSON_RENEW),
         RLOCK__SCRIPT(REDISSON_RELEASE), RLOCK__SCRIPT(REDISSON_INSPECT),
         RLOCK__SCRIPT(REDISSON_FORCE), NULL},
        {RLOCK__SCRIPT(KEYS_ACQUIRE), RLOCK__SCRIPT(KEYS_RENEW), RLOCK__SCRIPT(KEYS_RELEASE), NULL,
         NULL, NULL},
        {RLOCK__SCRIPT(QUEUE), RLOCK__SCRIPT(QUEUE_RENEW), RLOCK__SCRIPT(QUEUE),
         RLOCK__SCRIPT(QUEUE_QUESTION), RLOCK__SCRIPT(QUEUE_QUESTION),
         RLOCK__SCRIPT(QUEUE_QUESTION)}};
#else
        {RLOCK__SCRIPT(STRING_ACQUIRE), RLOCK__SCRIPT(STRING_RENEW), RLOCK__SCRIPT(STRING_RELEASE)},
        {RLOCK__SCRIPT(REDISSON_ACQUIRE), RLOCK__SCRIPT(REDISSON_RENEW),
         RLOCK__SCRIPT(REDISSON_RELEASE)}};
#endif

#endif /* RLOCK_STORE_REDIS_SCRIPTS_H */
