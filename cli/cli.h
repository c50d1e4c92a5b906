/* cli.h - what each subcommand of rlock shares: its options, its exit statuses, its client */
#ifndef RLOCK_CLI_H
#define RLOCK_CLI_H

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engines.h"
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_elect.h"
#include "rlock_libev.h"
#ifdef WITH_TLS
#include "rlock_tls.h"
#endif
#include "map.h"

/* The exit statuses that are rlock's own; else it is the command's, or 128 and the number of the
 * signal that ended it. As in timeout(1) and env(1), where these have one. */
enum {
    CLI_LOST = 123,      /* the lock was lost: a command was ended, a token holds it no more */
    CLI_BUSY = 124,      /* the lock was not to be had in time */
    CLI_FAILED = 125,    /* rlock itself failed: an option, the server */
    CLI_NOT_RUN = 126,   /* the command was found and could not be run */
    CLI_NOT_FOUND = 127, /* the command was not found */
    CLI_SIGNAL = 128
};

#define CLI_MEMBERS 15       /* of a quorum */
#define CLI_LEASE_MIN_MS 200 /* with less a command could not be ended in time */

static struct cli {
    const char *url;     /* NULL: 127.0.0.1, port 6379 */
    const char *members; /* of a quorum: URL,URL,URL; NULL = none */
    const char *url_file, *password_file;
    bool keep_env; /* the command gets a URL with a password too */
    const char *cacert, *cert, *cert_key;
    const char *keys[RLOCK_KEYS_MAX];
    size_t key_count;
    const char *shown; /* the first key as ls prints it: what errors are about */
    rlock_kind kind;
    bool kind_given;
    uint32_t permits, weight;
    int64_t wait_ms, lease_ms, grace_ms;
    int64_t at_least_ms;   /* from the grant until others may have it, whatever the command does */
    int64_t kill_after_ms; /* from the signal of a loss to SIGKILL; -1 = a quarter of the lease */
    int lost_signal;       /* by which the command is asked to end when the lock is lost */
    int busy_status;       /* the exit status where others hold the lock */
    uint32_t give_up;      /* elect: after so many failures of the command in a row; 0 = never */
    const char *fence_file, *state_file;
    const char *on_lead, *on_lost; /* elect: hooks, for sh -c; NULL = none */
    const char *description;       /* NULL: host, process id and command */
    bool json, verbose;
    bool quiet; /* a warning was shown, or the command has begun */
    char **command;
    void (*pipe)(int); /* what SIGPIPE did before */
    rlock_wire wire;   /* unless the URL says it */
    /* made of these */
    const struct cli_engine *engine; /* NULL: Redis */
    rlock_client *client;
    rlock_store *quorum;
    char warning[256]; /* the last line of the log that was one, without the client's id */
    bool told;         /* ... and was shown */
} cli = {.shown = "the server",
         .wait_ms = RLOCK_FOREVER,
         .lease_ms = 30000,
         .grace_ms = 10000,
         .kill_after_ms = -1,
         .lost_signal = SIGTERM,
         .busy_status = CLI_BUSY};

/* What standard error has not taken yet. Nobody may read it: a lock is renewed all the same. */
static struct {
    int fd;         /* it again, with O_NONBLOCK, which is not for the command; 0 = not tried */
    bool is_socket; /* as that of systemd */
    size_t length;
    char text[8192];
} cli_said;

/* Opens what standard error is once more. If that fails, as for a file, it is asked first. */
static void cli_open_said(void) {
    struct stat is;
    bool known = fstat(STDERR_FILENO, &is) == 0;
    cli_said.is_socket = known && S_ISSOCK(is.st_mode);
    cli_said.fd = -1;
    if (known && (S_ISFIFO(is.st_mode) || S_ISCHR(is.st_mode))) {
        cli_said.fd = open("/dev/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }
    cli_said.fd = cli_said.fd > STDERR_FILENO ? cli_said.fd : STDERR_FILENO;
}

/* Writes what is kept, as much as is taken within some time. What is refused for good is gone. */
static void cli_write_said(int patience_ms) {
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    while (cli_said.length > 0 && poll(&fd, 1, patience_ms) > 0) {
        ssize_t n = cli_said.is_socket
                        ? send(STDERR_FILENO, cli_said.text, cli_said.length, MSG_DONTWAIT)
                        : write(cli_said.fd, cli_said.text, cli_said.length);
        if (n < 0 && errno != EINTR) {
            cli_said.length = errno == EAGAIN ? cli_said.length : 0;
            break;
        }
        n = n < 0 ? 0 : n;
        cli_said.length -= (size_t)n;
        memmove(cli_said.text, cli_said.text + n, cli_said.length);
    }
}

/* Gives a slow reader a moment: rlock ends. */
static void cli_end_said(void) {
    cli_write_said(1000);
    cli_said.length = 0;
}

/* Writes to standard error, and waits for nobody: what has no room is left out. */
static void cli_say(const char *format, ...) {
    va_list arguments;
    size_t room = sizeof cli_said.text - cli_said.length;
    int n, before = errno;
    if (cli_said.fd == 0) {
        cli_open_said();
        atexit(cli_end_said);
    }
    va_start(arguments, format);
    n = vsnprintf(cli_said.text + cli_said.length, room, format, arguments);
    va_end(arguments);
    cli_said.length += n > 0 && (size_t)n < room ? (size_t)n : 0;
    cli_write_said(0);
    errno = before;
}

/* Says what is wrong, and what to do about it, and ends. */
static void cli_fail(int status, const char *cure, const char *format, ...) {
    va_list arguments;
    char words[1000];
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    cli_say("rlock: %s\n%s%s%s", words, cure != NULL ? "       " : "", cure != NULL ? cure : "",
            cure != NULL ? "\n" : "");
    exit(status);
}

/* Returns what the servers were read from: the file that says where they are, or else this. */
static const char *cli_source(const char *other) {
    static char words[200];
    snprintf(words, sizeof words, "--url-file %.180s", cli.url_file != NULL ? cli.url_file : "");
    return cli.url_file != NULL ? words : other;
}

/* True if the words are of a server that is there: it is full, read-only or about to start. */
static bool cli_is_there(const char *words) {
    static const char *const its[] = {
        "too many",  "Too many", "exceeded",    "max number of clients",
        "read-only", "replica",  "starting up", "shutting down"};
    size_t i;
    for (i = 0; i < sizeof its / sizeof *its; i++) {
        if (strstr(words, its[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* A status of the library: its words, those of the server or of the connection if there are any,
 * and what helps. */
static void cli_say_status(const char *what, int status, const char *text) {
    const char *words = text != NULL ? text : cli.told ? "" : cli.warning;
    const char *cure = NULL;
    if ((status == RLOCK_ERR_CONN || status == RLOCK_ERR_UNKNOWN) &&
        !cli_is_there(text != NULL ? text : cli.warning)) {
        cure = cli.engine != NULL ? "Is the server running? Set its address with --url or RLOCK_URL"
                                  : "Is the server running? Set its address with --url or "
                                    "RLOCK_URL: redis://host:6379";
    } else if (status == RLOCK_ERR_AUTH) {
        cure = cli.engine != NULL
                   ? cli.engine->refused
                   : "Give user and password in the URL: redis://user:password@host:6379";
    } else if (status == RLOCK_ERR_ARG) { /* the words name the library's options */
        cure = strncmp(cli.warning, "config.url", 10) != 0 ? "See rlock --help"
               : cli.url_file != NULL
                   ? "Each line must be a URL like redis://user:password@host:6379"
                   : "Set --url or RLOCK_URL to a URL like redis://host:6379";
    } else if (status == RLOCK_ERR_WRONG_TYPE) {
        cure = "Something else is at this key, or a lock of another --kind: see rlock inspect";
    }
    cli_say("rlock: %s: %s%s%s\n", what, rlock_strerror(status), words[0] ? ": " : "", words);
    if (cure != NULL) {
        cli_say("       %s\n", cure);
    }
}

static void cli_fail_status(const char *what, int status, const char *text) {
    cli_say_status(what, status, text);
    exit(CLI_FAILED);
}

/* 10, 10s, 500ms, 5m, 1h; without a unit seconds, as timeout(1) has it. */
static int64_t cli_duration(const char *option, const char *text, int64_t least, int64_t most) {
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    char *end;
    double number = strtod(text, &end);
    size_t i;
    for (i = 0; i < sizeof units / sizeof *units && strcmp(end, units[i].unit) != 0; i++) {
    }
    if (end == text || i == sizeof units / sizeof *units ||
        !(number * units[i].ms >= (double)least) || !(number * units[i].ms <= (double)most)) {
        cli_fail(CLI_FAILED, "Durations are like 10s, 500ms, 5m, 1h; without a unit seconds",
                 "%s %s: not a duration from %lld ms to %lld s", option, text, (long long)least,
                 (long long)(most / 1000));
    }
    return (int64_t)(number * units[i].ms + 0.5);
}

/* Warnings are kept for the words of an error, and shown once each; where nobody looks on, as in a
 * job of cron, the first of them, and only before the command begins: why it waits. */
static void cli_log(void *user, int level, const char *line) {
    bool numbered = strlen(line) > 10 && strncmp(line + 8, ": ", 2) == 0; /* the client's id */
    const char *words = numbered ? line + 10 : line;
    (void)user;
    if (cli.description == NULL && !cli.verbose && strstr(words, "client|setname") != NULL) {
        return; /* nobody asked for a description: without the right to it there is none */
    }
    if (level <= RLOCK_LOG_WARNING && strcmp(words, cli.warning) != 0) {
        snprintf(cli.warning, sizeof cli.warning, "%s", words);
        cli.told = cli.verbose || !cli.quiet || isatty(STDERR_FILENO);
        cli.quiet = true;
        if (cli.told) {
            cli_say("rlock: %s\n", words);
        }
    } else if (cli.verbose) {
        cli_say("rlock: %s\n", words);
    }
}

static bool cli_names_tls(const char *urls) {
    return urls != NULL && (strstr(urls, "rediss://") != NULL || strstr(urls, "rediss+") != NULL ||
                            strstr(urls, "sentinel_tls=yes") != NULL);
}

/* OpenSSL reads the system's certificates for 20 ms: not for who does not want it. */
static bool cli_wants_tls(void) {
    return cli.cacert != NULL || cli.cert != NULL || cli.cert_key != NULL ||
           cli_names_tls(cli.url) || cli_names_tls(cli.members);
}

static void cli_tls(rlock_config *config) {
#ifdef WITH_TLS
    static rlock_tls *tls;
    rlock_tls_options options = {
        .ca_file = cli.cacert, .cert_file = cli.cert, .key_file = cli.cert_key};
    char words[256];
    if (tls == NULL && (tls = rlock_tls_new(&options, words, sizeof words)) == NULL) {
        cli_fail(CLI_FAILED, "See --cacert, --cert and --cert-key", "TLS: %s", words);
    }
    config->tls = tls;
#else
    (void)config;
    cli_fail(CLI_FAILED, "Build it with hiredis 1.0 or newer and OpenSSL, or use stunnel",
             "this rlock was built without TLS");
#endif
}

/* Finds out whose URL it is, and gets ready for it. */
static void cli_choose_engine(void) {
    const struct cli_engine *engine = cli.members == NULL ? cli_engine_of(cli.url) : NULL;
    const char *wrong;
    if (engine == NULL) {
        return;
    }
    cli.engine = engine;
    if (engine->library == NULL) {
        char cure[200];
        snprintf(cure, sizeof cure, "Build it with %s", engine->needs);
        cli_fail(CLI_FAILED, cure, "this rlock was built without %s", engine->name);
    }
    if (cli.cacert != NULL || cli.cert != NULL || cli.cert_key != NULL) {
        cli_fail(CLI_FAILED, engine->tls, "--cacert, --cert and --cert-key are for Redis");
    }
    wrong = cli_engine_load(engine);
    if (wrong != NULL) {
        char cure[200];
        snprintf(cure, sizeof cure, "Install the library of %s, in Debian the package %s",
                 engine->name, engine->package);
        cli_fail(CLI_FAILED, cure, "%s", wrong);
    }
}

/* Refuses what needs a lock that stays when its client is gone, and its token, where there is none.
 */
static void cli_check_stays(const char *what, bool token) {
    bool zookeeper = cli.engine != NULL && strcmp(cli.engine->schemes, "zookeeper") == 0;
    if (zookeeper || (token && cli.members != NULL)) {
        cli_fail(CLI_FAILED, "Use one server, a cluster or another engine", "%s: not with %s", what,
                 zookeeper ? "ZooKeeper, where a lock ends with its process" : "a quorum");
    }
}

/* The URL for a client. In ZooKeeper a lease is two ticks shorter than the session, or a fifth of
 * it where that is more, and a session has five ticks. */
static const char *cli_url(void) {
    static char url[1000];
    const char *at = cli.engine != NULL ? strstr(cli.url, "tick_ms=") : NULL;
    long long tick = at != NULL ? atoll(at + 8) : 2000, session;
    if (cli.engine == NULL || strcmp(cli.engine->schemes, "zookeeper") != 0 || tick < 0 ||
        tick > 86400000 || strstr(cli.url, "session_ms=") != NULL ||
        strlen(cli.url) > sizeof url - 40) {
        return cli.url;
    }
    session = cli.lease_ms + 2 * tick;
    session = session < 5 * tick ? 5 * tick : session;
    session = session < cli.lease_ms * 5 / 4 ? (cli.lease_ms * 5 + 3) / 4 : session;
    snprintf(url, sizeof url, "%s%csession_ms=%lld", cli.url, strchr(cli.url, '?') ? '&' : '?',
             session);
    return url;
}

/* What this rlock says of itself to `rlock inspect`: what was given, or host, process id and the
 * name of the command. NULL: nothing, as where the URL names the connection, or who only looks. */
static const char *cli_description(void) {
    static char words[RLOCK__DESCRIPTION_MAX + 1];
    char host[256] = "", *at, *const *command = cli.command;
    const char *slash;
    if (cli.description != NULL || command == NULL || *command == NULL ||
        (cli.url != NULL && strstr(cli.url, "client_name=") != NULL)) {
        return cli.description;
    }
    gethostname(host, sizeof host - 1);
    slash = strrchr(*command, '/');
    snprintf(words, sizeof words, "%.60s, pid %ld, %s", host, (long)getpid(),
             slash != NULL ? slash + 1 : *command);
    for (at = words; *at != 0; at++) { /* a name may be cut in a character, or have any */
        *at = *at < ' ' || *at > '~' ? '?' : *at;
    }
    return words;
}

/* A configuration as the options say. Its url is NULL with a quorum. */
static rlock_config cli_config(void) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = cli_log};
    config.url = cli_url();
    config.wire = cli.wire;
    config.watchdog_lease_ms = cli.lease_ms;
    config.map_address = map_count > 0 ? map_address : NULL;
    if (cli_wants_tls()) {
        cli_tls(&config);
    }
    return config;
}

/* Makes the client. `on_event` may be NULL: see rlock_config. */
static void cli_connect(void (*on_event)(void *user, const rlock_report *report)) {
    rlock_config config = cli_config();
    int status;
    if (cli.members != NULL) {
        static rlock_config members[CLI_MEMBERS + 1]; /* that one is refused */
        char *urls = strdup(cli.members), *url, *rest = NULL;
        int count = 0, i;
        for (url = strtok_r(urls, ",", &rest); url != NULL && count <= CLI_MEMBERS;
             url = strtok_r(NULL, ",", &rest)) {
            for (i = 0; i < count; i++) {
                if (strcmp(members[i].url, url) == 0) {
                    cli_fail(CLI_FAILED, "Give three or five servers, each once",
                             "%s: servers %d and %d have the same URL", cli_source("--quorum"),
                             i + 1, count + 1);
                }
            }
            members[count] =
                (rlock_config){.url = url, .tls = config.tls, .map_address = config.map_address};
            count++;
        }
        status = rlock_quorum_new(&cli.quorum, members, count);
        if (status != RLOCK_OK) {
            cli_fail(CLI_FAILED,
                     cli.url_file != NULL
                         ? "Give three or five URLs, one a line"
                         : "Give three or five: --quorum redis://a,redis://b,redis://c",
                     "%s: %s", cli_source("--quorum"), rlock_strerror(status));
        }
        free(urls);
        config.url = NULL;
        config.store = cli.quorum;
    }
    config.on_event = on_event;
    config.description = cli_description();
    status = rlock_client_new(&cli.client, &config);
    if (status != RLOCK_OK) {
        cli_fail_status(cli_source("the server's URL, or an option"), status, NULL);
    }
}

static void cli_disconnect(void) {
    rlock_client_free(cli.client);
    rlock_quorum_free(cli.quorum);
    cli.client = NULL;
    cli.quorum = NULL;
}

/* What the client has read in the URL, which no public call says: the longest time that a key can
 * be kept, which is quarantine_ms or a day, ... */
static int64_t cli_most_ms(void) {
    return cli.client->lease_most_ms;
}

/* ... and what drift_permille leaves of a lease. */
static int64_t cli_left_us(int64_t lease_us) {
    return lease_us / 1000 * (1000 - cli.client->drift_permille);
}

/* The lock that the options mean. */
static rlock_options cli_options(void) {
    rlock_options options = {.kind = cli.kind, .permits = cli.permits, .weight = cli.weight};
    if (cli.key_count == 1) {
        options.key = cli.keys[0];
    } else {
        options.keys = cli.keys;
        options.key_count = cli.key_count;
    }
    return options;
}

#endif /* RLOCK_CLI_H */
