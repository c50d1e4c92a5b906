/* ------------------------------------------------------------------------------------------------
 * >>who - holders and waiters of a key, with what their clients say of themselves
 */

#ifndef RLOCK_RUNTIME_WHO_H
#define RLOCK_RUNTIME_WHO_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"
#include "base/foreign.h"
#include "runtime/client.h"

#define RLOCK__WHO_MAX 200u /* holders and waiters together: see who.lua */

/* Appends foreign words, which may be NULL, to a block, as they may be shown. Returns where they
 * begin. */
static const char *rlock__who_text(const rlock_client *client, char **end, const char *words) {
    char *begin = *end;
    if (!words) {
        return NULL;
    }
    *end += rlock__line_foreign(client->secrets, begin, 0, "", words) + 1;
    return begin;
}

/* Appends bytes, which may be NULL, and a NUL. Returns where they begin. */
static const char *rlock__who_bytes(char **end, const char *bytes, size_t len) {
    char *begin = *end;
    if (!bytes) {
        return NULL;
    }
    memcpy(begin, bytes, len);
    *end += len + 1;
    return begin;
}

/* Copies the list of an answer, the words beside it and its token into one block, to which the
 * answer points then. Returns the block; NULL: no memory, and the answer has none of them. */
static char *rlock__who_copy(const rlock_client *client, rlock_info *info) {
    const rlock_who *from = info->who;
    rlock_who *to;
    size_t count = from ? info->who_count : 0, room = count * sizeof *to + RLOCK__LINE, i;
    char *block, *end;
    RLOCK_ASSERT(count <= RLOCK__WHO_MAX);
    room += info->token_len + 1;
    for (i = 0; i < count; i++) {
        room += from[i].token_len + 1 + (from[i].description ? RLOCK__LINE : 0);
    }
    block = (char *)rlock__alloc(room);
    to = (rlock_who *)(void *)block;
    end = block ? block + count * sizeof *to : NULL;
    for (i = 0; block && i < count; i++) {
        to[i] = from[i];
        to[i].token = rlock__who_bytes(&end, from[i].token, from[i].token_len);
        to[i].description = rlock__who_text(client, &end, from[i].description);
    }
    info->who = from ? to : NULL;
    info->who_count = block ? count : 0;
    info->untold = block ? rlock__who_text(client, &end, info->untold) : NULL;
    info->token = block ? rlock__who_bytes(&end, info->token, info->token_len) : NULL;
    RLOCK_ASSERT(end <= block + room);
    return block;
}

#endif /* RLOCK_RUNTIME_WHO_H */
