/* whole.h - a script of rlock.h in full, as it is sent: with the pieces that bytes stand for in it
 *
 * Include it after the implementation.
 */

#ifndef WHOLE_H
#define WHOLE_H

#include <stdlib.h>
#include <string.h>

/* Each is made once, and kept for as long as the program runs. */
static inline const char *whole(const char *script) {
    static struct {
        const char *lua;
        char text[RLOCK__LUA_MAX + 1];
    } made[32];
    const char *at;
    size_t i, n = 0;

    for (i = 0; made[i].lua != NULL && made[i].lua != script; i++) {
    }
    for (at = made[i].lua == NULL ? script : ""; *at != '\0'; at++) {
        const char *piece = *at < ' ' ? rlock__pieces[*at - 1] : at;
        size_t len = *at < ' ' ? strlen(piece) : 1;

        memcpy(made[i].text + n, piece, len);
        n += len;
    }
    made[i].lua = script;
    return made[i].text;
}

#endif /* WHOLE_H */
