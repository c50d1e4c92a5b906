/* ------------------------------------------------------------------------------------------------
 * >>redis-url - config.url, one text for the address and all settings that a text can say
 *
 * A copy of the text is cut into its parts, which are decoded in place. The functions return what
 * is wrong with the part at hand, or NULL. The part is named, and not shown: a password that is not
 * encoded, or not in its place, must not come into the log. Shown are the names of parameters.
 */

#ifndef RLOCK_STORE_REDIS_URL_H
#define RLOCK_STORE_REDIS_URL_H

#include "public/head.h"
#include "public/status.h"
#include "public/client.h"
#include "base/platform.h"
#include "base/foreign.h"
#include "runtime/settings.h"

#include <limits.h>

enum {                           /* rows of what a query may set, beside those of rlock__settings */
       RLOCK__URL_SENTINELS = 4, /* those before this one need Sentinels */
       RLOCK__URL_DB = 4,
       RLOCK__URL_CLIENT = 5, /* from this one on they are not for a server of a quorum */
       RLOCK__URL_ROWS = 8
};

static const rlock__setting rlock__url_rows[RLOCK__URL_ROWS] = {
    RLOCK__SETTING(sentinel_username, RLOCK__STRING, 0, 0, 0),
    RLOCK__SETTING(sentinel_password, RLOCK__STRING, 0, 0, 0),
    {"sentinel_tls", 0, 0, 0, 0, RLOCK__YES_NO},
    RLOCK__SETTING(trust_plain_sentinels, RLOCK__YES_NO, 0, 0, 0),
    {"db", INT_MAX, 0, offsetof(rlock_config, database), 0, RLOCK__INT},
    RLOCK__SETTING(client_name, RLOCK__STRING, 0, 0, 0),
    RLOCK__SETTING(prefix, RLOCK__STRING, 0, 0, 0),
    RLOCK__SETTING(wire, RLOCK__WIRE, 0, 0, 0),
};
static const rlock__setting rlock__url_port = RLOCK__SETTING(port, RLOCK__INT, 1, 65535, 0);

typedef struct rlock__url {
    rlock_config *config;
    const char *part, *shown;           /* the part at hand; of it what may be shown, or NULL */
    const rlock__setting *limits;       /* of a number that is not within them */
    uint32_t seen;                      /* the parameters that were set, a bit for each row */
    bool member;                        /* it is a server's of a quorum */
    bool tls, sentinel, cluster, local; /* its scheme */
    bool sentinel_tls;                  /* as its scheme says, or the parameter */
} rlock__url;

static const char *rlock__url_decode(char *text) {
    char *out = text, hex[3] = "";
    for (; *text; text++) {
        *out = *text;
        if (*text == '%') {
            memcpy(hex, text + 1, text[1] ? 2 : 1);
            if (strspn(hex, "0123456789abcdefABCDEF") != 2) {
                return " has a % without two hex digits";
            }
            *out = (char)strtol(hex, NULL, 16);
            if (!*out) {
                return " has a %00";
            }
            text += 2;
        }
        out++;
    }
    RLOCK_ASSERT(out <= text);
    *out = 0;
    return NULL;
}

static const char *rlock__url_number(rlock__url *url, const rlock__setting *row, const char *text,
                                     int32_t *value) {
    const char *digits = *text == '-' ? text + 1 : text;
    size_t count = strspn(digits, "0123456789");
    long long number = strtoll(text, NULL, 10); /* the nearest there is to one that is too long */
    if (count && !digits[count]) {
        *value = (int32_t)number;
        if (number >= row->least && number <= row->most) {
            return NULL;
        }
    }
    url->limits = row;
    return "";
}

/* Sets what row i stands for to a decoded text. */
static const char *rlock__url_set(rlock__url *url, int i, char *text) {
    const rlock__setting *row =
        i < RLOCK__URL_ROWS ? &rlock__url_rows[i] : &rlock__settings[i - RLOCK__URL_ROWS];
    rlock_config *config = url->config;
    const char **field = (const char **)(void *)((char *)config + row->at), *wrong;
    bool again = (url->seen >> i & 1u) != 0;
    int32_t value;
    RLOCK_ASSERT(i >= 0 && i < RLOCK__URL_ROWS + RLOCK__SETTINGS);
    url->seen |= 1u << i;
    if (row->type == RLOCK__STRING) {
        if (*field) {
            again = true;
        }
        *field = text;
    } else if (row->type == RLOCK__WIRE) {
        value = strcmp(text, "redisson") == 0;
        if (!value && strcmp(text, "string") != 0) {
            return " is not string or redisson";
        }
        if (config->wire) {
            again = true;
        }
        config->wire = value ? RLOCK_WIRE_REDISSON : RLOCK_WIRE_STRING;
    } else if (row->type == RLOCK__YES_NO) {
        bool *flag = row->at ? (bool *)(void *)((char *)config + row->at) : &url->sentinel_tls;
        if (row->at && *flag) {
            again = true;
        }
        *flag = strcmp(text, "yes") == 0;
        if (!*flag && strcmp(text, "no") != 0) {
            return " is not yes or no";
        }
    } else {
        wrong = rlock__url_number(url, row, text, &value);
        if (wrong) {
            return wrong;
        }
        if (rlock__number(config, row)) {
            again = true;
        }
        rlock__set_number(config, row, value);
    }
    return again ? " is set twice, in the URL or as a field" : NULL;
}

/* Returns the row of a parameter; -1: there is none, or it means nothing in this URL. */
static int rlock__url_row(const rlock__url *url, const char *name) {
    int i = url->sentinel ? 0 : RLOCK__URL_SENTINELS;
    int end = url->member ? RLOCK__URL_CLIENT : RLOCK__URL_ROWS + RLOCK__SETTINGS;
    for (; i < end; i++) {
        const rlock__setting *row =
            i < RLOCK__URL_ROWS ? &rlock__url_rows[i] : &rlock__settings[i - RLOCK__URL_ROWS];
        if (strcmp(row->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static const char *rlock__url_query(rlock__url *url, char *query) {
    const char *wrong = NULL;
    while (query && *query && !wrong) {
        char *name = query, *value;
        int row;
        query = strchr(name, '&');
        if (query) {
            *query++ = 0;
        }
        value = strchr(name, '=');
        url->part = "a parameter";
        url->shown = NULL;
        if (!value) {
            return " has no value";
        }
        *value++ = 0;
        url->part = "the parameter";
        url->shown = url->config->sentinel_password ? NULL : name; /* it may be the rest of that */
        row = rlock__url_row(url, name);
        if (row < 0) {
            return url->member ? " is unknown for a server of a quorum" : " is unknown";
        }
        url->shown = name;
        wrong = rlock__url_decode(value);
        wrong = wrong ? wrong : rlock__url_set(url, row, value);
    }
    return wrong;
}

/* Reads one "host:port", both optional, IPv6 in brackets. *end: where the host ends. */
static const char *rlock__url_host(rlock__url *url, char *text, char **end, int32_t *port) {
    char *at = text + strcspn(text, *text == '[' ? "]" : ":");
    *end = at;
    *port = 0;
    url->part = "the host";
    if (*text == '[') {
        if (!*at || (at[1] && at[1] != ':') || !memchr(text, ':', (size_t)(at - text))) {
            return " has brackets but is not an IPv6 address";
        }
        *end = ++at;
    }
    if (!*at) {
        return NULL;
    }
    if (strchr(at + 1, ':')) {
        return " has two \":\"; IPv6 needs brackets";
    }
    url->part = "the port";
    return rlock__url_number(url, &rlock__url_port, at + 1, port);
}

static const char *rlock__url_hosts(rlock__url *url, char *list) {
    rlock_config *config = url->config;
    bool several = url->sentinel || url->cluster;
    char *text = list, *end, *comma;
    const char *wrong;
    int32_t port;
    do {
        comma = several ? strchr(text, ',') : NULL;
        if (comma) {
            *comma = 0;
        }
        wrong = rlock__url_host(url, text, &end, &port);
        if (!wrong && several && end == text) {
            url->part = "the host";
            wrong = url->sentinel ? " of a Sentinel is missing" : " of a node is missing";
        }
        if (wrong) {
            return wrong;
        }
        if (comma) {
            *comma = ',';
            text = comma + 1;
        }
    } while (comma);
    url->part = "the host";
    if (several) {
        *(url->sentinel ? &config->sentinels : &config->cluster) = list;
        return rlock__url_decode(list);
    }
    *end = 0;
    if (*list == '[') {
        RLOCK_ASSERT(end > list);
        end[-1] = 0;
        list++;
    }
    config->host = *list ? list : NULL;
    config->port = port;
    return rlock__url_decode(list);
}

/* Reads "user:password", either of which may be empty. */
static const char *rlock__url_user(rlock__url *url, char *user) {
    rlock_config *config = url->config;
    char *password = strchr(user, ':');
    const char *wrong;
    url->part = "the user or the password";
    if (user[strcspn(user, "/?#@")]) {
        return " contains / ? # or @: write %2F %3F %23 %40";
    }
    url->part = "the user";
    if (!password) {
        return *user ? " has no password" : NULL;
    }
    *password++ = 0;
    config->username = *user ? user : NULL;
    config->password = *user || *password ? password : NULL;
    wrong = rlock__url_decode(user);
    if (!wrong) {
        url->part = "the password";
        wrong = rlock__url_decode(password);
    }
    return wrong;
}

/* Reads the path behind its "/": "database", with Sentinels "primary/database". */
static const char *rlock__url_path(rlock__url *url, char *path) {
    size_t n = strlen(path);
    const char *wrong = NULL;
    if (n && path[n - 1] == '/') {
        path[n - 1] = 0;
    }
    if (url->sentinel) {
        char *primary = path;
        path += strcspn(path, "/");
        if (*path) {
            *path++ = 0;
        }
        url->part = "the name of the primary";
        url->config->sentinel_primary = primary;
        wrong = *primary ? rlock__url_decode(primary) : " is missing";
    }
    if (wrong || !*path) {
        return wrong;
    }
    url->part = "the database";
    return rlock__url_set(url, RLOCK__URL_DB, path);
}

static char *rlock__after(char *text, const char *word) {
    size_t n = strlen(word);
    return strncmp(text, word, n) == 0 ? text + n : NULL;
}

/* Reads the scheme; returns what is behind its "://", or NULL. */
static char *rlock__url_scheme(rlock__url *url, char *text) {
    static const char *const words[] = {"unix", "redis", "valkey"};
    char *end = NULL, *next;
    int i;
    for (i = 0; i < 3 && !end; i++) {
        end = rlock__after(text, words[i]);
    }
    if (!end) {
        return NULL;
    }
    url->local = i == 1;
    if (!url->local) {
        url->tls = url->sentinel_tls = *end == 's';
        end += url->tls;
        next = rlock__after(end, "+sentinel");
        url->sentinel = next != NULL;
        end = next ? next : end;
        next = next ? NULL : rlock__after(end, "+cluster");
        url->cluster = next != NULL;
        end = next ? next : end;
    }
    return rlock__after(end, "://");
}

/* True for a scheme that rlock_stores.h may know. */
static bool rlock__url_other(char *text) {
    static const char *const words[] = {
        "postgres:", "postgresql:", "zookeeper:", "mysql:", "mariadb:"};
    bool other = false;
    int i;
    for (i = 0; i < 5; i++) {
        if (rlock__after(text, words[i])) {
            other = true;
        }
    }
    return other;
}

/* The URL decides what is encrypted, and config.tls how; the Sentinels may have hooks of theirs. */
static const char *rlock__url_tls(rlock__url *url) {
    rlock_config *config = url->config;
    const rlock_tls *of_sentinels = config->sentinel_tls ? config->sentinel_tls : config->tls;
    bool sentinel_tls = url->sentinel && url->sentinel_tls;
    config->tls = url->tls ? config->tls : NULL;
    config->sentinel_tls = sentinel_tls ? of_sentinels : NULL;
    url->part = "TLS";
    url->shown = NULL;
    return (url->tls && !config->tls) || (sentinel_tls && !config->sentinel_tls)
               ? " needs config.tls: see rlock_tls.h"
               : NULL;
}

static const char *rlock__url_parse(rlock__url *url, char *text) {
    char *rest = rlock__url_scheme(url, text), *at, *query, *path;
    const char *wrong = NULL;
    url->part = "the scheme";
    if (!rest) {
        return !url->member && rlock__url_other(text)
                   ? " is for another engine: build with RLOCK_WITH_POSTGRES, _ZOOKEEPER or "
                     "_MARIADB, see stores/rlock_stores.h"
                   : " is not redis, rediss, unix, redis+sentinel, redis+cluster or one of these "
                     "with rediss";
    }
    at = strrchr(rest, '@');
    if (at) {
        *at = 0;
        wrong = rlock__url_user(url, rest);
        rest = at + 1;
    }
    query = strchr(rest, '?');
    if (query) {
        *query++ = 0;
    }
    if (!wrong && strchr(rest, '=')) { /* it may be of a query that lost its head */
        url->part = "the address";
        wrong = " contains =: write %3D";
    }
    if (!wrong && url->local) {
        url->part = "the path";
        url->config->unix_path = rest;
        wrong = *rest == '/' ? rlock__url_decode(rest) : " does not begin with /";
    } else if (!wrong) {
        path = rest + strcspn(rest, "/");
        if (*path) {
            *path++ = 0;
        }
        wrong = rlock__url_hosts(url, rest);
        wrong = wrong ? wrong : rlock__url_path(url, path);
    }
    wrong = wrong ? wrong : rlock__url_query(url, query);
    return wrong ? wrong : rlock__url_tls(url);
}

/* Puts into a configuration what its URL says. *texts: the memory of its texts. The line says what
 * is wrong. */
static int rlock__url_read(rlock_config *config, bool member, char **texts, char *line) {
    rlock__url url;
    const char *wrong;
    size_t n;
    memset(&url, 0, sizeof url);
    url.config = config;
    url.member = member;
    *texts = rlock__copy(config->url, strlen(config->url));
    if (!*texts) {
        return RLOCK_ERR_NOMEM;
    }
    config->url = NULL; /* the texts are read in place of it */
    wrong = rlock__url_parse(&url, *texts);
    if (!wrong) {
        return RLOCK_OK;
    }
    n = rlock__line_add(line, 0, "config.url: ", url.part);
    n = rlock__line_foreign(NULL, line, n, " \"", url.shown);
    n = rlock__line_add(line, n, url.shown ? "\"" : "", wrong);
    if (url.limits) {
        rlock__line_limits(line, n, url.limits);
    }
    return RLOCK_ERR_ARG;
}

#endif /* RLOCK_STORE_REDIS_URL_H */
