/* whole.h - a script of rlock.h as it is sent: in full, with the words that bytes stand for in it,
 * or by its SHA-1
 *
 * Include it after the implementation.
 */

#ifndef WHOLE_H
#define WHOLE_H

#include <stdio.h>
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
        const char *script;
        char text[RLOCK__LUA_MAX + 1];
    } made[32];
    size_t i;

    for (i = 0; made[i].script != NULL && made[i].script != script; i++) {
    }
    if (made[i].script == NULL) {
        whole_adds(made[i].text, 0, script + RLOCK__SHA, strlen(script + RLOCK__SHA));
        made[i].script = script;
    }
    return made[i].text;
}

#define BY_SHA "EVALSHA "

/* Returns the command with the SHA-1 of a script, or with RLOCK__SHA_NAME; kept as those are. */
static inline const char *by_sha(const char *script) {
    static char made[32][sizeof BY_SHA + 2 * RLOCK__SHA];
    char text[sizeof made[0]] = BY_SHA;
    size_t i;

    for (i = 0; i < RLOCK__SHA; i++) {
        sprintf(text + strlen(BY_SHA) + 2 * i, "%02x", (unsigned char)script[i]);
    }
    for (i = 0; made[i][0] != '\0' && strcmp(made[i], text) != 0; i++) {
    }
    return strcpy(made[i], text);
}

#endif /* WHOLE_H */
