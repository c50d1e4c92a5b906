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
#define RLOCK__SECRETS_KEPT 8u /* so many passwords that were replaced stay hidden */

/* What is hidden wherever it stands. */
typedef struct rlock__secret {
    struct rlock__secret *next;
    const char *text; /* not empty */
#if RLOCK__HAS_CREDENTIALS
    uint8_t passing; /* others may replace it: 1 at the server, plus 2 at Sentinels; 0: it stays */
#endif
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
            if ((size_t)(at + n - text) >= RLOCK__SECRET_CUT) {
                hidden = true;
            }
        }
        most = hidden && n > most ? n : most;
    }
    return most;
}

/* Returns how many bytes are hidden at a place: of a secret, and of each that begins within it. */
static size_t rlock__secret_span(const rlock__secret *secret, const char *text, const char *at) {
    size_t span = rlock__secret_at(secret, text, at), i;
    for (i = 1; i < span; i++) {
        size_t more = rlock__secret_at(secret, text, at + i);
        span = i + more > span ? i + more : span;
    }
    return span;
}

/* Returns how many bytes a character of UTF-8 has that begins so; 0: none does. */
static size_t rlock__utf8_size(unsigned char first) {
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc0) {
        return 0;
    }
    if (first < 0xe0) {
        return 2;
    }
    return first < 0xf0 ? 3 : 4;
}

/* Reads a character of UTF-8. Returns how many bytes it has; 0: these are none. */
static size_t rlock__utf8(const char *text, size_t len, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    size_t n = rlock__utf8_size(s[0]), i;
    RLOCK_ASSERT(n <= 4);
    *code = n == 1 ? s[0] : s[0] & (0xffu >> n);
    for (i = 1; i < n; i++) {
        if (i >= len || (s[i] & 0xc0) != 0x80) {
            return 0;
        }
        *code = *code << 6 | (s[i] & 0x3fu);
    }
    return n == 0 || *code < least[n] || *code > 0x10ffff || *code >> 11 == 27 ? 0 : n;
}

/* True if a terminal shows a character as what it is: no control, nothing without a width, and
 * nothing that turns the direction of the line. */
static bool rlock__is_plain(uint32_t code) {
    static const uint32_t others[][2] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}};
    size_t i = 0;
    while (i < sizeof others / sizeof *others && (code < others[i][0] || code > others[i][1])) {
        i++;
    }
    return i == sizeof others / sizeof *others;
}

/* Appends foreign words, which may be NULL, to the n bytes of a line: cut, with \xNN for each byte
 * of what is not a plain character, and *** for a secret. Nothing foreign comes into the log, an
 * event or a report in another way. Words that were appended once may be appended again. */
RLOCK__NOINLINE static size_t rlock__line_foreign(const rlock__secret *secrets, char *line,
                                                  size_t n, const char *between,
                                                  const char *words) {
    const char *at = words;
    n = rlock__line_add(line, n, words ? between : "", "");
    while (at && *at && n < RLOCK__LINE - 1) {
        size_t hidden = rlock__secret_span(secrets, words, at), size;
        uint32_t code;
        if (hidden) {
            n = rlock__line_add(line, n, "***", "");
            at += hidden;
            continue;
        }
        size = rlock__utf8(at, 4, &code); /* a NUL ends it before */
        RLOCK_ASSERT(size <= 4);
        if (size && rlock__is_plain(code)) {
            char shown[5] = {0, 0, 0, 0, 0};
            memcpy(shown, at, size);
            n = rlock__line_add(line, n, shown, "");
            at += size;
            continue;
        }
        for (size = size ? size : 1; size; size--) {
            char shown[5] = {'\\', 'x', 0, 0, 0};
            rlock__hex(shown + 2, at++, 1);
            n = rlock__line_add(line, n, shown, "");
        }
    }
    return n;
}

#endif /* RLOCK_BASE_FOREIGN_H */
