/* whole.h - a script of rlock.h as it is sent: in full, or by its SHA-1
 *
 * Include it after the implementation.
 */

#ifndef WHOLE_H
#define WHOLE_H

#include <stdio.h>
#include <string.h>

/* Returns the script behind its SHA-1. */
static inline const char *whole(const char *script) {
    return script + RLOCK__SHA;
}

#define BY_SHA "EVALSHA "

/* Returns the command with the SHA-1 of a script; kept for as long as the program runs. */
static inline const char *by_sha(const char *script) {
    static char made[32][sizeof BY_SHA + RLOCK__SHA];
    char text[sizeof made[0]];
    size_t i;

    snprintf(text, sizeof text, "%s%.*s", BY_SHA, RLOCK__SHA, script);
    for (i = 0; made[i][0] != '\0' && strcmp(made[i], text) != 0; i++) {
    }
    return strcpy(made[i], text);
}

#endif /* WHOLE_H */
