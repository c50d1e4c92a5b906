/* rlock - runs a command while a lock is held in a server; looks at locks: see rlock(1) */
#include "cli.h"
#include "look.h"
#include "password.h"
#include "run.h"
#include "show.h"
#include "step.h"

/* A screen of 24 lines and 80 columns, with the next prompt. */
static const char cli_help[] =
    "usage: rlock [options] KEY -- COMMAND [ARG...]        run it while KEY is locked\n"
    "       rlock elect [options] KEY -- COMMAND [ARG...]  run it while it leads\n"
    "       rlock acquire KEY; renew | release KEY TOKEN   in steps: prints the TOKEN\n"
    "       rlock inspect | force-release KEY; ls | top [PATTERN]    list the locks\n"
    "\n"
    "  -u, --url URL       server, or RLOCK_URL: redis://user:password@host:6379/0\n"
    "                      rediss:// unix:// redis+sentinel:// redis+cluster://\n"
    "                      postgres:// zookeeper:// mysql://\n"
    "      --quorum U,U,U  a majority of these, or RLOCK_QUORUM; --url-file F: lines\n"
    "      --map FROM=TO   an announced host:port; --password-file F: reread\n"
    "  -n, --try           do not wait; -w, --wait 10s: at most; --busy-status N\n"
    "  -l, --lease 30s     how long others wait if this machine dies; --at-least 60s\n"
    "  -k, --key KEY       one more key: all or none; --description TEXT: holder\n"
    "      --kind KIND     mutex fair read write semaphore; --permits N, --weight N\n"
    "      --fence-file F  the fencing token, as RLOCK_FENCE; elect: --state-file F\n"
    "      --kill-after D  from --on-lost-signal TERM to SIGKILL if the lock is lost\n"
    "      --grace 10s     elect: the same when rlock is ended; --give-up N failures\n"
    "      --on-lead CMD, --on-lost CMD   elect: by sh, around each term as leader\n"
    "      --cacert F, --cert F, --cert-key F  TLS; --keep-env: leave RLOCK_URL set\n"
    "      --json          an object a line; -v, --verbose; -h, --help; -V, --version\n"
    "\n"
    "The status is the command's, or 128 + its signal; 123: lock lost, command ended;\n"
    "124: lock busy; 125: rlock failed; 126, 127: not run, not found. man rlock\n";

enum {
    CLI_QUORUM = 256,
    CLI_URL_FILE,
    CLI_MAP,
    CLI_DESCRIPTION,
    CLI_PASSWORD_FILE,
    CLI_KEEP_ENV,
    CLI_KIND,
    CLI_PERMITS,
    CLI_WEIGHT,
    CLI_FENCE_FILE,
    CLI_GRACE,
    CLI_KILL_AFTER,
    CLI_ON_LOST_SIGNAL,
    CLI_BUSY_STATUS,
    CLI_GIVE_UP,
    CLI_ON_LEAD,
    CLI_ON_LOST,
    CLI_STATE_FILE,
    CLI_AT_LEAST,
    CLI_CACERT,
    CLI_CERT,
    CLI_CERT_KEY,
    CLI_JSON
};

static const struct option cli_long[] = {
    {"url", required_argument, NULL, 'u'},
    {"quorum", required_argument, NULL, CLI_QUORUM},
    {"url-file", required_argument, NULL, CLI_URL_FILE},
    {"description", required_argument, NULL, CLI_DESCRIPTION},
    {"map", required_argument, NULL, CLI_MAP},
    {"password-file", required_argument, NULL, CLI_PASSWORD_FILE},
    {"keep-env", no_argument, NULL, CLI_KEEP_ENV},
    {"try", no_argument, NULL, 'n'},
    {"wait", required_argument, NULL, 'w'},
    {"lease", required_argument, NULL, 'l'},
    {"key", required_argument, NULL, 'k'},
    {"kind", required_argument, NULL, CLI_KIND},
    {"permits", required_argument, NULL, CLI_PERMITS},
    {"weight", required_argument, NULL, CLI_WEIGHT},
    {"fence-file", required_argument, NULL, CLI_FENCE_FILE},
    {"grace", required_argument, NULL, CLI_GRACE},
    {"kill-after", required_argument, NULL, CLI_KILL_AFTER},
    {"on-lost-signal", required_argument, NULL, CLI_ON_LOST_SIGNAL},
    {"busy-status", required_argument, NULL, CLI_BUSY_STATUS},
    {"give-up", required_argument, NULL, CLI_GIVE_UP},
    {"on-lead", required_argument, NULL, CLI_ON_LEAD},
    {"on-lost", required_argument, NULL, CLI_ON_LOST},
    {"state-file", required_argument, NULL, CLI_STATE_FILE},
    {"at-least", required_argument, NULL, CLI_AT_LEAST},
    {"cacert", required_argument, NULL, CLI_CACERT},
    {"cert", required_argument, NULL, CLI_CERT},
    {"cert-key", required_argument, NULL, CLI_CERT_KEY},
    {"json", no_argument, NULL, CLI_JSON},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0}};

static const char cli_see_help[] = "See rlock --help";

enum { RUN, ELECT, ACQUIRE, RENEW, RELEASE, INSPECT, FORCE_RELEASE, LS, TOP, SUBCOMMANDS };
static const char *const subcommands[] = {"run",     "elect",         "acquire", "renew", "release",
                                          "inspect", "force-release", "ls",      "top"};

enum {
    HOLDERS = 1 << RUN | 1 << ELECT,
    STEPS = 1 << ACQUIRE | 1 << RENEW | 1 << RELEASE,
    LOOKERS = 1 << INSPECT | 1 << FORCE_RELEASE | 1 << LS | 1 << TOP,
    WAITERS = LOOKERS | 1 << RUN | 1 << ACQUIRE,
    LEASED = HOLDERS | 1 << ACQUIRE | 1 << RENEW,
    KEYED = HOLDERS | STEPS | 1 << INSPECT | 1 << FORCE_RELEASE
};

/* The options that not every subcommand takes, and which do. */
static struct {
    int option, takers;
    bool given;
} cli_some[] = {{'n', WAITERS, false},
                {'w', WAITERS, false},
                {'l', LEASED, false},
                {'k', KEYED, false},
                {CLI_PERMITS, KEYED, false},
                {CLI_WEIGHT, HOLDERS | STEPS, false},
                {CLI_AT_LEAST, 1 << RUN, false},
                {CLI_FENCE_FILE, HOLDERS, false},
                {CLI_KEEP_ENV, HOLDERS, false},
                {CLI_DESCRIPTION, HOLDERS, false},
                {CLI_GRACE, 1 << ELECT, false},
                {CLI_KILL_AFTER, HOLDERS, false},
                {CLI_ON_LOST_SIGNAL, HOLDERS, false},
                {CLI_BUSY_STATUS, 1 << RUN | 1 << ACQUIRE, false},
                {CLI_GIVE_UP, 1 << ELECT, false},
                {CLI_ON_LEAD, 1 << ELECT, false},
                {CLI_ON_LOST, 1 << ELECT, false},
                {CLI_STATE_FILE, 1 << ELECT, false},
                {CLI_KIND, KEYED, false},
                {CLI_JSON, LOOKERS | 1 << ACQUIRE | 1 << RENEW, false}};

/* Refuses what would be without effect. */
static void cli_check_options(int what) {
    size_t i;
    for (i = 0; i < sizeof cli_some / sizeof *cli_some; i++) {
        if (cli_some[i].given && !(cli_some[i].takers >> what & 1)) {
            const struct option *named = cli_long;
            while (named->val != cli_some[i].option) {
                named++;
            }
            cli_fail(CLI_FAILED, cli_see_help, "--%s: not with rlock %s", named->name,
                     what == RUN ? "KEY -- COMMAND" : subcommands[what]);
        }
    }
}

static void cli_add_key(const char *key) {
    if (cli.key_count == RLOCK_KEYS_MAX) {
        cli_fail(CLI_FAILED, NULL, "more than %d keys", RLOCK_KEYS_MAX);
    }
    cli.keys[cli.key_count++] = key;
}

static rlock_kind cli_parse_kind(const char *text) {
    rlock_kind kind;
    for (kind = RLOCK_KIND_MUTEX; strcmp(rlock_kind_str(kind), text) != 0; kind++) {
        if (kind == RLOCK_KIND_SEMAPHORE) {
            cli_fail(CLI_FAILED, "It is mutex, fair, read, write or semaphore",
                     "--kind %s: no such kind", text);
        }
    }
    return kind;
}

static uint32_t cli_parse_number(const char *option, const char *text, long least, long most) {
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != 0 || number < least || number > most) {
        cli_fail(CLI_FAILED, NULL, "%s %s: not a number from %ld to %ld", option, text, least,
                 most);
    }
    return (uint32_t)number;
}

static uint32_t cli_parse_count(const char *option, const char *text) {
    return cli_parse_number(option, text, 1, RLOCK_PERMITS_MAX);
}

/* A signal that a program can hear and end by, or KILL: its name, with SIG or without. */
static int cli_parse_signal(const char *option, const char *text) {
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},   {"QUIT", SIGQUIT},
                   {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"ABRT", SIGABRT}, {"KILL", SIGKILL}};
    const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;
    size_t i;
    for (i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (strcmp(signals[i].name, name) == 0) {
            return signals[i].number;
        }
    }
    cli_fail(CLI_FAILED, "It is TERM, INT, HUP, QUIT, USR1, USR2, ABRT or KILL",
             "%s %s: no such signal", option, text);
    return 0;
}

/* The version, and the servers that it was built for. */
static void cli_version(void) {
    size_t i;
#ifdef WITH_TLS
    fputs("rlock " RLOCK_VERSION "\nRedis and Valkey, with TLS", stdout);
#else
    fputs("rlock " RLOCK_VERSION "\nRedis and Valkey, without TLS", stdout);
#endif
    for (i = 0; i < CLI_ENGINES; i++) {
        printf("; %s%s", cli_engines[i].library == NULL ? "no " : "", cli_engines[i].name);
    }
    putchar('\n');
}

static void cli_add_map(const char *source, const char *text) {
    const char *wrong = map_add(text);
    if (wrong != NULL) {
        cli_fail(CLI_FAILED, "Like --map 10.0.0.5:6379=db.example:16379", "%s %s: %s", source, text,
                 wrong);
    }
}

static void cli_option(int option) {
    size_t i;
    for (i = 0; i < sizeof cli_some / sizeof *cli_some; i++) {
        cli_some[i].given = cli_some[i].given || cli_some[i].option == option;
    }
    switch (option) {
    case 'u': cli.url = optarg; break;
    case CLI_QUORUM: cli.members = optarg; break;
    case CLI_URL_FILE: cli.url_file = optarg; break;
    case CLI_MAP: cli_add_map("--map", optarg); break;
    case CLI_DESCRIPTION: cli.description = optarg; break;
    case CLI_PASSWORD_FILE: cli.password_file = optarg; break;
    case CLI_KEEP_ENV: cli.keep_env = true; break;
    case 'n': cli.wait_ms = 0; break;
    case 'w': cli.wait_ms = cli_duration("--wait", optarg, 0, INT32_MAX); break;
    case 'l':
        cli.lease_ms = cli_duration("--lease", optarg, CLI_LEASE_MIN_MS, RLOCK_LEASE_MAX_MS);
        break;
    case 'k': cli_add_key(optarg); break;
    case CLI_KIND:
        cli.kind = cli_parse_kind(optarg);
        cli.kind_given = true;
        break;
    case CLI_PERMITS: cli.permits = cli_parse_count("--permits", optarg); break;
    case CLI_WEIGHT: cli.weight = cli_parse_count("--weight", optarg); break;
    case CLI_FENCE_FILE: cli.fence_file = optarg; break;
    case CLI_GRACE: cli.grace_ms = cli_duration("--grace", optarg, 0, 86400000); break;
    case CLI_KILL_AFTER:
        cli.kill_after_ms = cli_duration("--kill-after", optarg, 0, RLOCK_LEASE_MAX_MS);
        break;
    case CLI_ON_LOST_SIGNAL: cli.lost_signal = cli_parse_signal("--on-lost-signal", optarg); break;
    case CLI_BUSY_STATUS:
        cli.busy_status = (int)cli_parse_number("--busy-status", optarg, 0, 255);
        break;
    case CLI_GIVE_UP: cli.give_up = cli_parse_count("--give-up", optarg); break;
    case CLI_ON_LEAD: cli.on_lead = optarg; break;
    case CLI_ON_LOST: cli.on_lost = optarg; break;
    case CLI_STATE_FILE: cli.state_file = optarg; break;
    case CLI_AT_LEAST:
        cli.at_least_ms = cli_duration("--at-least", optarg, 0, RLOCK_LEASE_MAX_MS);
        break;
    case CLI_CACERT: cli.cacert = optarg; break;
    case CLI_CERT: cli.cert = optarg; break;
    case CLI_CERT_KEY: cli.cert_key = optarg; break;
    case CLI_JSON: cli.json = true; break;
    case 'v': cli.verbose = true; break;
    case 'h': fputs(cli_help, stdout); exit(fflush(stdout) == 0 ? 0 : CLI_FAILED);
    case 'V': cli_version(); exit(fflush(stdout) == 0 ? 0 : CLI_FAILED);
    default: /* getopt has said why */ cli_say("       %s\n", cli_see_help); exit(CLI_FAILED);
    }
}

/* Reads the file of --url-file: a line with a URL, or those of a quorum, each in a line. */
static void cli_read_urls(void) {
    static char text[65536 + 1], urls[sizeof text];
    FILE *file = fopen(cli.url_file, "re");
    size_t length = file != NULL ? fread(text, 1, sizeof text, file) : 0, used = 0;
    char *line, *rest = NULL;
    int count = 0;
    if (file == NULL || ferror(file)) {
        cli_fail(CLI_FAILED, NULL, "--url-file %s: %s", cli.url_file, strerror(errno));
    }
    fclose(file);
    if (length == sizeof text || memchr(text, 0, length) != NULL) {
        cli_fail(CLI_FAILED, "Each line must be a URL like redis://user:password@host:6379",
                 "--url-file %s: %s", cli.url_file,
                 length == sizeof text ? "it has more than 65536 bytes" : "it has a NUL byte");
    }
    text[length] = 0;
    for (line = strtok_r(text, " \t\r\n", &rest); line != NULL;
         line = strtok_r(NULL, " \t\r\n", &rest)) {
        used += (size_t)sprintf(urls + used, "%s%s", count++ > 0 ? "," : "", line);
    }
    if (count == 0) {
        cli_fail(CLI_FAILED, "Each line must be a URL like redis://user:password@host:6379",
                 "--url-file %s: it has no URL", cli.url_file);
    }
    *(count > 1 ? &cli.members : &cli.url) = urls;
}

/* Finds out where the server is: options count, and without them the environment. */
static void cli_find_server(void) {
    bool given = cli.url != NULL || cli.members != NULL;
    const char *map = getenv("RLOCK_MAP");
    if (map_count == 0 && map != NULL && *map != 0) {
        cli_add_map("RLOCK_MAP", map);
    }
    if (cli.url_file != NULL && given) {
        cli_fail(CLI_FAILED, cli_see_help, "--url-file: not with --url or --quorum");
    }
    if (cli.url_file != NULL) {
        cli_read_urls();
    } else if (!given) {
        cli.url = getenv("RLOCK_URL");
        cli.members = getenv("RLOCK_QUORUM");
        if (cli.url != NULL && cli.members != NULL) {
            cli_fail(CLI_FAILED, "Unset one of them, or give --url or --quorum",
                     "RLOCK_URL and RLOCK_QUORUM are both set");
        }
    }
    if (cli.url != NULL && cli.url[0] == 0) {
        cli_fail(CLI_FAILED, "Unset RLOCK_URL, or set it to a URL like redis://host:6379",
                 "the URL of the server is empty");
    }
}

static int cli_subcommand(const char *word) {
    int what = SUBCOMMANDS - 1;
    while (what != RUN && strcmp(word, subcommands[what]) != 0) {
        what--;
    }
    return what;
}

/* Options, a subcommand and one word, up to "--" or the next word: there a command begins. Returns
 * the word, or NULL. */
static const char *cli_parse(int argc, char **argv, int *what) {
    const char *word = NULL;
    for (;;) {
        int before = optind, option = getopt_long(argc, argv, "+u:nw:l:k:vhV", cli_long, NULL);
        if (option >= 0) {
            cli_option(option);
        } else if (optind == argc || word != NULL ||
                   (optind > before && strcmp(argv[optind - 1], "--") == 0)) {
            cli.command = argv + optind;
            return word;
        } else {
            word = argv[optind++];
            if (*what == RUN && (*what = cli_subcommand(word)) != RUN) {
                word = NULL;
            }
        }
    }
}

/* The word that no option takes is the first key; behind -k, where a token is wanted, the token. */
static void cli_take_word(const char *word, int what) {
    if ((what == RENEW || what == RELEASE) && cli.key_count > 0 && *cli.command == NULL) {
        static char *words[] = {NULL, NULL};
        words[0] = (char *)(uintptr_t)word;
        cli.command = words;
    } else if (word != NULL) { /* RLOCK_KEY names it */
        cli_add_key(word);
        memmove(cli.keys + 1, cli.keys, (cli.key_count - 1) * sizeof *cli.keys);
        cli.keys[0] = word;
    }
    if (cli.key_count == 0) {
        cli_fail(CLI_FAILED, cli_see_help, "which key?");
    }
    cli.shown = show_name(cli.keys[0]);
}

static int cli_step(int what) {
    size_t words = what == ACQUIRE ? 0 : 1, given = 0;
    enum step_kind kind = STEP_RELEASE;
    while (cli.command[given] != NULL) {
        given++;
    }
    if (given != words) {
        cli_fail(CLI_FAILED, cli_see_help, "rlock %s takes %s", subcommands[what],
                 words ? "a key and the token that rlock acquire printed" : "one key");
    }
    if (what == ACQUIRE) {
        kind = STEP_ACQUIRE;
    } else if (what == RENEW) {
        kind = STEP_RENEW;
    }
    return step_main(kind, cli.command[0]);
}

int main(int argc, char **argv) {
    const char *word;
    int fd, what = RUN;
    cli.pipe = signal(SIGPIPE, SIG_IGN);
    for (fd = 0; fd < 3; fd++) { /* a closed one must not become a connection */
        if (fcntl(fd, F_GETFD) < 0) {
            (void)!open("/dev/null", (fd == 1 ? O_RDONLY : O_RDWR) | O_CLOEXEC); /* says EBADF */
        }
    }
    word = cli_parse(argc, argv, &what);
    if ((STEPS >> what & 1) && word == NULL && cli.key_count == 0 && *cli.command != NULL) {
        word = subcommands[what]; /* rlock release -- COMMAND: a key of this name */
        what = RUN;
    }
    cli_check_options(what);
    if (!(LEASED >> what & 1)) { /* none is above the quarantine_ms of a URL */
        cli.lease_ms = RLOCK_LEASE_MIN_MS;
    }
    cli_find_server();
    cli_choose_engine();
    if ((STEPS >> what & 1) || cli.at_least_ms > 0) {
        cli_check_stays(what == RUN ? "--at-least" : subcommands[what], what != RUN);
    }
    password_find(cli.password_file);
    if (what >= LS) {
        if (*cli.command != NULL || cli.key_count > 0) {
            cli_fail(CLI_FAILED, cli_see_help, "rlock %s takes one pattern", subcommands[what]);
        }
        return look_main(what == LS ? LOOK_LS : LOOK_TOP, word);
    }
    cli_take_word(word, what);
    if (STEPS >> what & 1) {
        return cli_step(what);
    }
    if (what > ELECT) {
        if (*cli.command != NULL || cli.key_count > 1) {
            cli_fail(CLI_FAILED, cli_see_help, "rlock %s takes one key", subcommands[what]);
        }
        return look_main(what == INSPECT ? LOOK_INSPECT : LOOK_FORCE, NULL);
    }
    if (*cli.command == NULL && cli.on_lead == NULL && cli.on_lost == NULL &&
        cli.state_file == NULL) {
        cli_fail(CLI_FAILED, "rlock KEY -- COMMAND", "which command?");
    }
    if (cli.kill_after_ms > cli.lease_ms * 2 / 5) { /* it is begun before a renewal is due */
        cli_fail(CLI_FAILED, "Make the lease longer: see --lease",
                 "--kill-after %lld ms: more than two fifths of the lease, %lld ms",
                 (long long)cli.kill_after_ms, (long long)cli.lease_ms);
    }
    return run_main(what == ELECT);
}
