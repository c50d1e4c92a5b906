/* ------------------------------------------------------------------------------------------------
 * >>foreign - how text is shown that a server, a resolver or a configuration made
 */

#ifndef RLOCK_BASE_FOREIGN_H
#define RLOCK_BASE_FOREIGN_H

#include "public/head.h"
#include "base/platform.h"

#define RLOCK__SECRET_ALONE 4u /* a shorter secret is one only where it stands alone */
#define RLOCK__SECRET_PART 16u /* so much of its beginning is hidden too: servers cut arguments */
#define RLOCK__SECRET_CUT 63u  /* a text of so many bytes may have been cut at its end */

/* What is hidden wherever it stands. */
typedef struct rlock__secret {
    struct rlock__secret *next;
    const char *text; /* not empty */
} rlock__secret;

static bool rlock__alnum(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Returns how many bytes at a place in a text are a secret, or what a cut has left of one. A server
 * that repeats an argument writes a blank for a control byte. */
static size_t rlock__secret_at(const rlock__secret *secret, const char *text, const char *at) {
    size_t most = 0;
    for (; secret; secret = secret->next) {
        const char *its = secret->text;
        size_t n = 0;
        bool hidden;
        while (its[n] && (its[n] == at[n] || (at[n] == ' ' && (unsigned char)its[n] < ' '))) {
            n++;
        }
        hidden = n >= RLOCK__SECRET_PART || (!its[n] && n >= RLOCK__SECRET_ALONE);
        if (!its[n] && !hidden) {
            hidden = !(at > text && rlock__alnum(at[-1])) && !rlock__alnum(at[n]);
        } else if (!at[n] && n >= RLOCK__SECRET_ALONE) {
            hidden = hidden || (size_t)(at + n - text) >= RLOCK__SECRET_CUT;
        }
        most = hidden && n > most ? n : most;
    }
    return most;
}

/* Appends foreign words, which may be NULL, to the n bytes of a line: cut, with \xNN for each
 * control byte, and *** for a secret. Nothing foreign comes into the log, an event or a report in
 * another way. Words that were appended once may be appended again. */
RLOCK__NOINLINE static size_t rlock__line_foreign(const rlock__secret *secrets, char *line,
                                                  size_t n, const char *between,
                                                  const char *words) {
    const char *at = words;
    n = rlock__line_add(line, n, words ? between : "", "");
    while (at && *at && n < RLOCK__LINE - 1) {
        size_t hidden = rlock__secret_at(secrets, words, at);
        char shown[5] = {*at, 0, 0, 0, 0};
        if (!hidden && ((unsigned char)*at < ' ' || *at == 127)) {
            memcpy(shown, "\\x", 2);
            rlock__hex(shown + 2, at, 1);
        }
        n = rlock__line_add(line, n, hidden ? "***" : shown, "");
        at += hidden ? hidden : 1;
    }
    return n;
}

#endif /* RLOCK_BASE_FOREIGN_H */
