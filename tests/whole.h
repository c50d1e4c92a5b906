/* whole.h - a script of rlock.h in full, as it is sent: with the words that bytes stand for in it
 *
 * Include it after the implementation.
 */

#ifndef WHOLE_H
#define WHOLE_H

#include <stdlib.h>
#include <string.h>

/* Adds a script, or a part of one, to a text that is so long; returns how long it is then. */
static inline size_t whole_adds(char *text, size_t n, const char *lua, size_t len) {
    for (; len > 0; lua++, len--) {
        const char *word = rlock__words;
        int skip = (unsigned char)*lua - RLOCK__LUA_WORD;

        if (skip < 0) {
            text[n++] = *lua;
            continue;
        }
        for (; skip > 0; skip--) {
            word += 1 + (unsigned char)*word;
        }
        n = whole_adds(text, n, word + 1, (unsigned char)*word);
    }
    return n;
}

/* Each is made once, and kept for as long as the program runs. */
static inline const char *whole(const char *script) {
    static struct {
        const char *lua;
        char text[RLOCK__LUA_MAX + 1];
    } made[32];
    size_t i;

    for (i = 0; made[i].lua != NULL && made[i].lua != script; i++) {
    }
    if (made[i].lua == NULL) {
        whole_adds(made[i].text, 0, script, strlen(script));
        made[i].lua = script;
    }
    return made[i].text;
}

#endif /* WHOLE_H */
