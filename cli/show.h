/* show.h - how locks are shown: as text, as JSON, and as a table on a terminal */
#ifndef RLOCK_CLI_SHOW_H
#define RLOCK_CLI_SHOW_H

#include <search.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>

#include "cli.h"

/* A key, and how it stood at `at`. Numbers are -1 where there is none. */
struct show_row {
    const char *key, *token; /* token: that of a holder, or NULL */
    size_t key_len, token_len;
    int kind; /* rlock_kind; -1: nothing of ours is there */
    int64_t held, left_ms, soon_ms, waiters, permits, need, fence; /* as the script has them */
    double at;
    char *words; /* what its holder's client says of itself, or NULL */
    const rlock_who
        *who; /* inspect: the holders and waiters, or NULL, and why there are no words */
    size_t who_count;
    const char *untold;
    /* the rest is look.h's */
    struct look_node *node; /* which is asked */
    struct show_row *next;  /* of those that are asked now, or were just answered */
    struct show_row *was;   /* how it stood before that */
    unsigned round;         /* in which it was last answered */
    bool shown, asked, redisson;
    int hops;      /* from node to node since it was answered */
    char room[64]; /* of the token */
};

static struct show {
    bool force, screen, color; /* force: held is how many held it */
    int status;                /* with which rlock ends if nobody reads any more */
    int lines, key_columns, id_columns;
    size_t shown, waiters;
    void *rows; /* a tree, by tsearch() */
    struct termios saved;
} show = {.key_columns = -32, .id_columns = -36};

static double show_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Writes a character for JSON: by its code unless it is plain, U+FFFD for a byte that is none. */
static void show_json_char(FILE *out, const unsigned char *s, size_t n, uint32_t code) {
    if (n == 0) {
        fputs("\\ufffd", out);
    } else if (rlock__is_plain(code)) {
        fputs(code == '"' || code == '\\' ? "\\" : "", out);
        fwrite(s, 1, n, out);
    } else if (code > 0xffff) {
        fprintf(out, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
    } else {
        fprintf(out, "\\u%04x", code);
    }
}

/* Writes anybody's bytes for JSON. */
static void show_json_text(FILE *out, const char *bytes, size_t len) {
    const unsigned char *s = (const unsigned char *)bytes, *end = s + len;
    while (s < end) {
        uint32_t code;
        size_t n = rlock__utf8((const char *)s, (size_t)(end - s), &code);
        show_json_char(out, s, n, code);
        s += n > 0 ? n : 1;
    }
}

/* Writes anybody's bytes, in so many columns; 0 or less: in as many as they take. In text \xNN is a
 * byte, and \\ a backslash: no two texts look alike. Returns how many columns it took. */
static int show_text(FILE *out, bool json, const char *bytes, size_t len, int columns) {
    const unsigned char *s = (const unsigned char *)bytes, *end = s + len;
    int used = 0, wide = 0;
    for (; s < end; used += wide) {
        uint32_t code;
        size_t n = rlock__utf8((const char *)s, (size_t)(end - s), &code), size = n > 0 ? n : 1, i;
        bool plain = n > 0 && rlock__is_plain(code);
        wide = plain ? code == '\\' ? 2 : 1 : 4 * (int)size;
        if (columns > 0 && used + wide > columns) {
            break;
        }
        if (json) {
            show_json_char(out, s, n, code);
        } else if (plain) {
            fputs(code == '\\' ? "\\" : "", out);
            fwrite(s, 1, n, out);
        }
        for (i = 0; i < size && !json && !plain; i++) {
            fprintf(out, "\\x%02x", s[i]);
        }
        s += size;
    }
    return used;
}

/* Prints anybody's bytes, in so many columns; -n: in n or more; 0: in as many as they take. */
static void show_bytes(const char *bytes, size_t len, int columns) {
    int used = show_text(stdout, cli.json, bytes, len, columns);
    printf("%*s", abs(columns) > used ? abs(columns) - used : 0, "");
}

/* Returns a key as ls prints it, for the lines on standard error, which a terminal or a mail may
 * have: cut where it would leave no room for what is said of it. */
static const char *show_name(const char *key) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out != NULL) {
        show_text(out, false, key, strlen(key), 1000);
    }
    if (out == NULL || fclose(out) != 0) {
        cli_fail(CLI_FAILED, NULL, "%s", strerror(ENOMEM));
    }
    return text;
}

/* Writes one more member of JSON if bytes are not UTF-8: what they are. */
static void show_hex(const char *name, const char *bytes, size_t len) {
    const unsigned char *s = (const unsigned char *)bytes;
    size_t at = 0, n = 1;
    uint32_t code;
    while (at < len && (n = rlock__utf8(bytes + at, len - at, &code)) > 0) {
        at += n;
    }
    if (n > 0) {
        return;
    }
    printf(",\"%s\":\"", name);
    for (at = 0; at < len; at++) {
        printf("%02x", s[at]);
    }
    putchar('"');
}

/* Returns how long the id of the client is whose token it is; all of the token of another library.
 */
static size_t show_id_len(const char *token, size_t len) {
    return len > 37 && token[36] == ':' ? 36 : len;
}

static void show_token(const struct show_row *row, int columns) {
    show_bytes(row->token, show_id_len(row->token, row->token_len), columns);
}

static void show_holder(const struct show_row *row, int columns) {
    char many[32], words[9 + RLOCK__LINE];
    if (row->held == 1 && row->words != NULL &&
        columns != 0) { /* the digits are those of the log */
        snprintf(words, sizeof words, "%.8s %s", row->token, row->words);
        show_bytes(words, strlen(words), columns);
        return;
    }
    if (row->held == 1 && row->token != NULL) {
        show_token(row, columns);
        return;
    }
    snprintf(many, sizeof many,
             row->held == 0 ? "free"
             : columns != 0 ? "%lld held"
                            : "%lld%s",
             (long long)row->held, row->held == 1 ? " holder" : " holders");
    show_bytes(many, strlen(many), columns);
}

/* Returns a number, or what stands for none if it is negative. The last four are good. */
static const char *show_number(int64_t number) {
    static char texts[4][24];
    static unsigned i;
    char *text = texts[i++ % 4];
    const char *none = cli.json ? "null" : "-";
    snprintf(text, sizeof *texts, number >= 0 ? "%lld" : none, (long long)number);
    return text;
}

static const char *show_kind(const struct show_row *row) {
    return row->kind < 0 ? "-" : rlock_kind_str((rlock_kind)row->kind);
}

static int64_t show_left_ms(const struct show_row *row) {
    int64_t left = row->left_ms - (int64_t)((show_now() - row->at) * 1000);
    return row->left_ms < 0 ? -1 : left > 0 ? left : 0;
}

static const char *show_left(const struct show_row *row) {
    static char text[32];
    long long ms = show_left_ms(row), s = (ms + 999) / 1000;
    bool hours = s >= 3600;
    if (row->held == 0 || ms < 0) {
        return row->held == 0                                 ? "-"
               : cli.engine != NULL && cli.engine->gives_less ? "its session"
                                                              : "no end";
    }
    if (s < 60) {
        snprintf(text, sizeof text, show.screen ? "%.0fs" : "%.1fs",
                 show.screen ? (double)s : (double)ms / 1000);
    } else {
        snprintf(text, sizeof text, hours ? "%lldh%02lldm" : "%lldm%02llds",
                 s / (hours ? 3600 : 60), s / (hours ? 60 : 1) % 60);
    }
    return text;
}

/* Writes a text for JSON, or null. */
static void show_json_words(const char *text) {
    if (text == NULL) {
        fputs("null", stdout);
        return;
    }
    putchar('"');
    show_bytes(text, strlen(text), 0);
    putchar('"');
}

/* Writes who holds and who waits for JSON, where that was asked. */
static void show_json_who(const struct show_row *row) {
    size_t i;
    if (row->who == NULL && row->untold == NULL) {
        return;
    }
    fputs(",\"who\":[", stdout);
    for (i = 0; i < row->who_count; i++) {
        const rlock_who *who = &row->who[i];
        printf("%s{\"%s\":\"", i > 0 ? "," : "", who->waits ? "waiter" : "holder");
        show_bytes(who->token, show_id_len(who->token, who->token_len), 0);
        printf("\",\"left_ms\":%s,\"description\":", show_number(who->left_ms));
        show_json_words(who->description);
        putchar('}');
    }
    fputs("],\"untold\":", stdout);
    show_json_words(row->untold);
}

static void show_json(const struct show_row *row) {
    bool held = row->held > 0 && row->token != NULL;
    fputs("{\"key\":\"", stdout);
    show_bytes(row->key, row->key_len, 0);
    printf(row->kind < 0 ? "\",\"kind\":null" : "\",\"kind\":\"%s\"", show_kind(row));
    printf(",\"holders\":%lld,\"holder\":%s", (long long)row->held, held ? "\"" : "null");
    if (held) {
        show_token(row, 0);
    }
    printf("%s,\"left_ms\":%s,\"waiters\":%s,\"permits\":%s,\"fence\":%s", held ? "\"" : "",
           show_number(row->held > 0 && !show.force ? show_left_ms(row) : -1),
           show_number(row->waiters), show_number(row->permits), show_number(row->fence));
    fputs(",\"description\":", stdout);
    show_json_words(held ? row->words : NULL);
    show_json_who(row);
    show_hex("key_hex", row->key, row->key_len);
    if (held) {
        show_hex("holder_hex", row->token, row->token_len);
    }
    fputs("}\n", stdout);
}

/* Writes a lock, or the heads of the columns, without the end of the line. */
static void show_line(const struct show_row *row) {
    static const char numbers[] = "  %8s  %7s  %16s";
    const char *color = row == NULL || row->waiters > 0 ? "\033[1m" : row->held ? "" : "\033[32m";
    fputs(show.color ? color : "", stdout);
    show_bytes(row != NULL ? row->key : "KEY", row != NULL ? row->key_len : 3, show.key_columns);
    printf("  %-9s  ", row != NULL ? show_kind(row) : "KIND");
    if (row == NULL) {
        show_bytes("HELD-BY", 7, show.id_columns);
        printf(numbers, "LEFT", "WAITERS", "FENCE");
    } else {
        show_holder(row, show.id_columns);
        printf(numbers, show_left(row), show_number(row->waiters), show_number(row->fence));
    }
    fputs(show.color ? "\033[m" : "", stdout);
}

/* Fits the columns into the window, and returns how many there are. */
static int show_fit(void) {
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2;
    int columns = known ? size.ws_col : 80;
    show.lines = known ? size.ws_row : 24;
    show.id_columns = columns >= 120 ? 36 : 8;
    show.key_columns = columns - show.id_columns - 50;
    show.key_columns = show.key_columns > 8 ? show.key_columns : 8;
    return columns;
}

/* Prints a lock in one line. */
static void show_row(const struct show_row *row) {
    if (cli.json) {
        show_json(row);
        return;
    }
    if (show.shown++ == 0 && isatty(STDOUT_FILENO)) {
        show_fit();
        show.key_columns = -show.key_columns; /* no key is cut */
        show_line(NULL);
        putchar('\n');
    }
    show_line(row);
    putchar('\n');
}

/* Prints who holds and who waits, unless that is one holder of whom no more is known. */
static void show_who(const struct show_row *row) {
    size_t i;
    bool more = row->who_count > 1 || row->words != NULL;
    for (i = 0; i < row->who_count && more; i++) {
        const rlock_who *who = &row->who[i];
        const char *words = who->description != NULL ? who->description
                            : row->untold != NULL    ? "-"
                                                     : "not connected, or without a description";
        printf("  %s   ", who->waits ? "waiter" : "holder");
        show_bytes(who->token, show_id_len(who->token, who->token_len), 0);
        fputs(": ", stdout);
        show_bytes(words, strlen(words), 0);
        putchar('\n');
    }
    if (row->untold != NULL) {
        fputs("  who      ", stdout);
        show_bytes(row->untold, strlen(row->untold), 0);
        putchar('\n');
    }
}

/* Prints what inspect and force-release say of a key. */
static void show_key(const struct show_row *row) {
    if (cli.json) {
        show_json(row);
        return;
    }
    show_bytes(row->key, row->key_len, 0);
    if (show.force) {
        fputs(row->held > 0 ? ": released; it was held by " : ": nothing to release: ", stdout);
        show_holder(row, 0);
        putchar('\n');
        return;
    }
    fputs("\n  held by  ", stdout);
    show_holder(row, 0);
    printf("\n  kind     %s\n  left     %s\n  waiters  %s\n  fence    %s\n", show_kind(row),
           show_left(row), show_number(row->waiters), show_number(row->fence));
    if (row->permits >= 0) {
        printf("  permits  %lld left\n", (long long)row->permits);
    }
    show_who(row);
}

/* ---- the rows ---- */

static int show_compare(const void *left, const void *right) {
    const struct show_row *a = left, *b = right;
    int order = memcmp(a->key, b->key, a->key_len < b->key_len ? a->key_len : b->key_len);
    return order != 0 ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

/* Returns the row of a key; a new one has nothing of ours. */
static struct show_row *show_find(const char *key, size_t len) {
    struct show_row name = {.key = key, .key_len = len, .kind = -1}, *row;
    struct show_row **found = tfind(&name, &show.rows, show_compare);
    if (found != NULL) {
        return *found;
    }
    row = malloc(sizeof *row + len + 1);
    *row = name;
    row->key = memcpy((char *)(row + 1), key, len + 1);
    row->soon_ms = row->waiters = row->permits = row->fence = -1;
    return *(struct show_row **)tsearch(row, &show.rows, show_compare);
}

static void show_drop(struct show_row *row) {
    tdelete(row, &show.rows, show_compare);
    free(row->words);
    free(row);
}

/* Returns the row that twalk() is at; NULL where it comes by once more. */
static struct show_row *show_visited(const void *tree, VISIT visit) {
    return visit == postorder || visit == leaf ? *(struct show_row *const *)tree : NULL;
}

/* Shows a row: in the table, or as a line. */
static void show_each(const void *tree, VISIT visit, int depth) {
    const struct show_row *row = show_visited(tree, visit);
    (void)depth;
    if (row == NULL || !row->shown) {
        return;
    }
    if (!show.screen) {
        show_row(row);
        return;
    }
    show.waiters += row->waiters > 0 ? (size_t)row->waiters : 0;
    if (++show.shown + 2 <= (size_t)show.lines) {
        printf("\033[%zu;1H\033[K", show.shown + 2);
        show_line(row);
    }
}

/* Draws the table, if there is one: the head says what is looked at and how. Else there are lines.
 * Brings either to whoever reads it, and ends if nobody does any more. */
static void show_out(const char *what, const char *where, const char *how) {
    char head[800];
    if (show.screen) {
        int columns = show_fit();
        show.shown = show.waiters = 0;
        fputs("\033[2;1H\033[K", stdout);
        show_line(NULL);
        twalk(show.rows, show_each);
        if (show.shown + 2 < (size_t)show.lines) {
            printf("\033[%zu;1H\033[J", show.shown + 3);
        }
        snprintf(head, sizeof head, "%s  %s: %zu locks, %zu waiting; %s", what, where, show.shown,
                 show.waiters, how);
        fputs("\033[1;1H\033[K", stdout);
        show_bytes(head, strlen(head), columns);
    }
    if (fflush(stdout) != 0) {
        if (errno == EPIPE) {
            exit(show.status);
        }
        cli_fail(CLI_FAILED, NULL, "standard output: %s", strerror(errno));
    }
}

/* Gives the terminal back, but for its modes if it is a shell's by now. A handler of signals may
 * call this, and show_enter: so nothing of stdio is in them. */
static void show_leave(void) {
    static const char leave[] = "\033[?7h\033[?25h\033[?1049l";
    if (show.screen) {
        void (*ttou)(int) = signal(SIGTTOU, SIG_IGN); /* it would be stopped as it ends */
        show.screen = false;
        (void)!write(STDOUT_FILENO, leave, sizeof leave - 1);
        if (tcgetpgrp(STDIN_FILENO) == getpgrp()) {
            tcsetattr(STDIN_FILENO, TCSANOW, &show.saved);
        }
        signal(SIGTTOU, ttou);
    }
}

/* Takes the terminal; in the background it is stopped here until it is in front. */
static void show_enter(void) {
    static const char enter[] = "\033[?1049h\033[?25l\033[?7l";
    struct termios raw;
    if (tcgetattr(STDIN_FILENO, &show.saved) == 0) {
        raw = show.saved;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    }
    show.screen = true;
    (void)!write(STDOUT_FILENO, enter, sizeof enter - 1);
}

#endif /* RLOCK_CLI_SHOW_H */
