/* faults_liars.h - servers that lie: honest ones but for one thing
 *
 * For them the key "taken" is one that another holds.
 */
#ifndef TESTS_FAULTS_LIARS_H
#define TESTS_FAULTS_LIARS_H

struct lie {
    const char *command; /* where it lies, "" = at the connect, NULL = at every command */
    const char *answer;  /* what it says there, after the honest answer */
    bool instead;        /* it says this instead of the honest answer */
    bool closes;         /* it closes the connection after that */
    bool once;           /* it lies once only */
};

#define LIARS 16

struct liar {
    const struct lie *lie;
    pid_t pid;
    volatile int connects, told;
    char path[128];
};

static struct liar *liars; /* shared with their processes */

#define LIAR_WORDS 8

struct words {
    size_t count;
    char text[LIAR_WORDS][64];
};

/* Takes one command from what was received. Returns its length; 0 if it is not complete. */
static size_t liar_reads(const char *bytes, size_t len, struct words *words) {
    const char *at = bytes, *end = bytes + len;
    size_t i;

    for (i = 0; i == 0 || i <= words->count; i++) {
        const char *line = (const char *)memchr(at, '\n', (size_t)(end - at));
        size_t size;

        if (line == NULL) {
            return 0;
        }
        size = (size_t)atol(at + 1);
        at = line + 1;
        if (i == 0) {
            words->count = size;
            continue;
        }
        if ((size_t)(end - at) < size + 2) {
            return 0;
        }
        if (i <= LIAR_WORDS) {
            snprintf(words->text[i - 1], sizeof words->text[0], "%.*s", (int)size, at);
        }
        at += size + 2;
    }
    return (size_t)(at - bytes);
}

static bool liar_hears(const struct words *words, const char *command) {
    char both[130]; /* the beginning of a script is enough */
    size_t len = strlen(command);

    snprintf(both, sizeof both, "%s %s", words->text[0], words->text[1]);
    return strncmp(both, command, len < 60 ? len : 60) == 0;
}

/* True if the command is a script with many renewals. */
#define RENEW_MANY by_sha(rlock__lua_string_renew_many)
#define RENEW_MANY_IN_FULL renew_many_in_full()

static const char *renew_many_in_full(void) {
    static char words[5 + 8192];

    snprintf(words, sizeof words, "EVAL %s", whole(rlock__lua_string_renew_many));
    return words;
}

static bool liar_hears_batch(const struct words *words) {
    return liar_hears(words, RENEW_MANY) || liar_hears(words, RENEW_MANY_IN_FULL);
}

/* Returns what a node says that has all slots, and knows its port alone. */
static const char *liar_has_slots(int port) {
    static char text[80];

    snprintf(text, sizeof text, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$-1\r\n:%d\r\n", port);
    return text;
}

/* Returns what an honest server says to the command. */
static const char *liar_is_honest(const struct words *words) {
    static char text[160];
    int count = words->count > 2 ? atoi(words->text[2]) : 0;

    if (liar_hears(words, "CLUSTER SLOTS")) {
        return liar_has_slots(clustered_port());
    }
    if (liar_hears(words, "CLIENT ID")) {
        return ":7\r\n";
    }
    if (liar_hears(words, "INFO replication")) {
        return "$69\r\nrole:master\r\nmaster_replid:"
               "0246802468024680246802468024680246802468\r\n\r\n";
    }
    if (liar_hears(words, "INFO")) {
        return "$47\r\nrun_id:0123456789012345678901234567890123456789\r\n";
    }
    if (liar_hears(words, "COMMAND INFO")) {
        return "*1\r\n*-1\r\n";
    }
    if (liar_hears(words, "SET taken")) {
        return "$-1\r\n";
    }
    if (liar_hears_batch(words) && count > 0 && count <= RLOCK__BATCH) {
        int used = snprintf(text, sizeof text, "$%d\r\n", count);

        memset(text + used, '1', (size_t)count);
        strcpy(text + used + count, "\r\n");
        return text;
    }
    if (liar_hears(words, "DELIFEQ")) {
        return ":1\r\n";
    }
    if (liar_hears(words, "EVAL")) {
        return strcmp(words->text[3], "taken") == 0 ? ":60000\r\n" : ":1\r\n";
    }
    if (liar_hears(words, "HELLO")) {
        return "-ERR unknown command, as before Redis 6\r\n";
    }
    if (liar_hears(words, "SSUBSCRIBE") || liar_hears(words, "SUNSUBSCRIBE")) {
        return "-ERR unknown command, as before Redis 7\r\n";
    }
    if (liar_hears(words, "SUBSCRIBE")) {
        snprintf(text, sizeof text, "*3\r\n$9\r\nsubscribe\r\n$%u\r\n%s\r\n:1\r\n",
                 (unsigned)strlen(words->text[1]), words->text[1]);
        return text;
    }
    return "+OK\r\n";
}

/* Says its lie, if this is the place, in one packet with the truth. False if it closes then. */
static bool liar_lies(struct liar *liar, int fd, const char *honest, bool here) {
    const struct lie *lie = liar->lie;
    char text[512];

    here = here && (!lie->once || liar->told == 0);
    liar->told += here;
    snprintf(text, sizeof text, "%s%s", here && lie->instead ? "" : honest,
             here ? lie->answer : "");
    send(fd, text, strlen(text), MSG_NOSIGNAL);
    return !here || !lie->closes;
}

static void liar_talks(struct liar *liar, int fd) {
    const char *place = liar->lie->command;
    char buffer[16384];
    size_t len = 0, used;
    ssize_t n;
    struct words words;

    if (!liar_lies(liar, fd, "", place != NULL && *place == '\0')) {
        return;
    }
    while ((n = recv(fd, buffer + len, sizeof buffer - len, 0)) > 0) {
        len += (size_t)n;
        while (len > 0 && (used = liar_reads(buffer, len, &words)) > 0) {
            bool here = place == NULL || (*place != '\0' && liar_hears(&words, place));

            if (!liar_lies(liar, fd, liar_is_honest(&words), here)) {
                return;
            }
            memmove(buffer, buffer + used, len - used);
            len -= used;
        }
    }
}

static void liar_serves(struct liar *liar, int door) {
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int fd = accept(door, NULL, NULL);

        liar->connects++;
        if (fd >= 0 && fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            liar_talks(liar, fd);
            _exit(0);
        }
        close(fd);
    }
}

static void liars_start(const struct lie *lies, size_t count) {
    static unsigned number;
    pid_t parent = getpid();
    size_t i;

    if (liars == NULL) {
        liars = (struct liar *)mmap(NULL, LIARS * sizeof *liars, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    for (i = 0; i < count; i++) {
        struct liar *liar = &liars[i];
        int door;

        memset(liar, 0, sizeof *liar);
        liar->lie = &lies[i];
        snprintf(liar->path, sizeof liar->path, "%s/liar%u", server.dir, number++);
        door = unix_socket(liar->path, 1);
        liar->pid = fork();
        if (liar->pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent) {
                liar_serves(liar, door);
            }
            _exit(0);
        }
        close(door);
    }
}

static void liars_end(void) {
    size_t i;

    for (i = 0; liars != NULL && i < LIARS; i++) {
        if (liars[i].pid > 0) {
            kill(liars[i].pid, SIGKILL);
            waitpid(liars[i].pid, NULL, 0);
            liars[i].pid = 0;
        }
    }
}

static void lies_grant_nothing(void **state) {
    static const struct lie lies[] = {
        {NULL, "+WAT\r\n", true, false, false},
        {NULL, ":-7\r\n", true, false, false},
        {NULL, "$3\r\nabc\r\n", true, false, false},
        {NULL, "$0\r\n\r\n", true, false, false},
        {NULL, "*0\r\n", true, false, false},
        {NULL, "*-1\r\n", true, false, false},
        {NULL, "-\r\n", true, false, false},
        {NULL, "-ERR what\r\n", true, false, false},
        {NULL, "*1\r\n*1\r\n:1\r\n", true, false, false},
        {NULL, ":99999999999999999\r\n", true, false, false},
        {NULL, "@#!\r\n\r\n", true, false, false},
        {NULL, "*2\r\n$-1\r\n+OK\r\n", true, false, false},
        {NULL, "$-5\r\n", true, false, false},
        {NULL, "+\r\n", true, false, false},
        {NULL, "*9999999999\r\n", true, false, false},
    };
    rlock_wire wire = wire_of(state);
    size_t i, count = sizeof lies / sizeof lies[0];

    liars_start(lies, count);
    for (i = 0; i < count; i++) {
        struct owner *o = owner_new(client_at(liars[i].path, wire), "k");
        struct owner *fenced = owner_fenced(client_at(liars[i].path, wire), "k");

        assert_int_not_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
        assert_int_not_equal(owner_acquire(fenced, 100, 1000), RLOCK_OK);
        assert_int_not_equal(fenced->status[RLOCK_ACQUIRED], KIT_NOTHING);
        assert_false(rlock_is_held(o->lock));
        assert_false(rlock_is_held(fenced->lock));
        kit_reset();
    }
}

static int asked_status;

static void asked_about(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    asked_status = info->status;
}

static int was_answered(void *arg) {
    (void)arg;
    return asked_status != KIT_NOTHING;
}

/* EVAL and EVALSHA: a forced release is sent in full. */
static void lies_answer_no_question(void **state) {
    static const struct lie lies[] = {
        {"EVAL", "+OK\r\n", true, false, false},
        {"EVAL", ":-1\r\n", true, false, false},
        {"EVAL", "*0\r\n", true, false, false},
        {"EVAL", "$-1\r\n", true, false, false},
        {"EVAL", "$0\r\n\r\n", true, false, false},
        {"EVAL", "$4\r\nnope\r\n", true, false, false},
        {"EVAL", "$6\r\n1 2 3 \r\n", true, false, false},
        {"EVAL", "$9\r\n1 2 3 4,5\r\n", true, false, false},
        {"EVAL", "$11\r\n1 -2 3 4 5 \r\n", true, false, false},
    };
    size_t i, count = sizeof lies / sizeof lies[0];
    int force;

    (void)state;
    liars_start(lies, count);
    for (i = 0; i < count * 2; i++) {
        rlock_client *client = client_with(liars[i / 2].path, RLOCK_WIRE_STRING, PATIENCE_MS);
        rlock_options options;

        force = i % 2 == 1;
        memset(&options, 0, sizeof options);
        options.key = "k";
        asked_status = KIT_NOTHING;
        assert_int_equal(force ? rlock_force_release(client, &options, asked_about, NULL)
                               : rlock_inspect(client, &options, asked_about, NULL),
                         RLOCK_OK);
        assert_true(kit_until(was_answered, NULL, 2 * PATIENCE_MS));
        assert_int_equal(asked_status, RLOCK_ERR_SERVER);
        assert_true(liars[i / 2].told > 0); /* the handshake did not fail */
        kit_reset();
    }
}

/* Whatever hiredis would assert, and however a connection ends: nothing crashes, and no storm of
 * connects follows. The client connects again, later each time. */
#define STORM 20

static int was_tried_again(void *arg) {
    return ((const struct liar *)arg)->connects >= 3;
}

static void bad_servers_are_left_and_tried_again_later(const struct lie *lies, size_t count) {
    struct owner *tried[LIARS], *waited[LIARS];
    size_t i;

    liars_start(lies, count);
    for (i = 0; i < count; i++) {
        rlock_client *client = client_at(liars[i].path, RLOCK_WIRE_STRING);

        tried[i] = owner_new(client, "k");
        waited[i] = owner_new(client, "taken");
        assert_int_equal(rlock_acquire(tried[i]->lock, 0, 5000, owner_told, tried[i]), RLOCK_OK);
        assert_int_equal(rlock_acquire(waited[i]->lock, 500, 5000, owner_told, waited[i]),
                         RLOCK_OK);
    }
    kit_run(600);
    for (i = 0; i < count; i++) {
        int end = owner_wait(waited[i], RLOCK_ACQUIRED, 1000);
        bool well = tried[i]->seen[RLOCK_ACQUIRED] == 1 && end != RLOCK_OK && end != KIT_NOTHING &&
                    kit_until(was_tried_again, &liars[i], 5000) && liars[i].connects <= STORM &&
                    kit_stats(kit_clients[i]).faults >= 1;

        if (!well) {
            print_error("lie %u: %d connects, tried %d, waited %d\n", (unsigned)i,
                        liars[i].connects, tried[i]->status[RLOCK_ACQUIRED], end);
        }
        assert_true(well);
    }
}

static void unexpected_reply_ends_the_connection(void **state) {
    static const struct lie lies[] = {
        {"", "+OK POP3 ready\r\n", false, false, false},
        {"CLIENT ID", ":7\r\n", false, false, false},
        {"INFO", "$-1\r\n", false, false, false},
        {"EVALSHA", ":1\r\n", false, false, false},
        {"EVALSHA", "*0\r\n", false, false, false},
    };
    int i;

    (void)state;
    bad_servers_are_left_and_tried_again_later(lies, sizeof lies / sizeof lies[0]);
    for (i = 0; i < 3; i++) { /* in the handshake: no request was sent yet */
        int status = kit_owners[2 * i].status[RLOCK_ACQUIRED];

        assert_true(status == RLOCK_ERR_CONN || status == RLOCK_ERR_UNKNOWN);
    }
}

static void message_of_an_unknown_shape_ends_the_connection(void **state) {
    static const struct lie lies[] = {
        {"SUBSCRIBE", "*0\r\n", false, false, false},
        {"SUBSCRIBE", "*-1\r\n", false, false, false},
        {"SUBSCRIBE", "*2\r\n$4\r\npong\r\n:1\r\n", false, false, false},
        {"SUBSCRIBE", "*3\r\n:1\r\n:2\r\n:3\r\n", false, false, false},
        {"SUBSCRIBE", "*3\r\n*0\r\n*0\r\n*0\r\n", false, false, false},
        {"SUBSCRIBE", ":1\r\n", false, false, false},
        {"SUBSCRIBE", "+OK\r\n", false, false, false},
        {"SUBSCRIBE", "$-1\r\n", false, false, false},
        {"SUBSCRIBE", "-ERR what\r\n", false, false, false},
        {"SUBSCRIBE", "*0\r\n", true, false, false},
        {"SUBSCRIBE", "*3\r\n:1\r\n:2\r\n:3\r\n", true, false, false},
    };

    (void)state;
    bad_servers_are_left_and_tried_again_later(lies, sizeof lies / sizeof lies[0]);
}

/* A proxy that closes when it does not know a command is reported as no connection. */
static void proxy_that_closes_at_a_step_of_the_handshake_is_no_connection(void **state) {
    static const struct lie lies[] = {
        {"CLIENT ID", "", true, true, false},
        {"CLIENT ID", "-ERR unknown command\r\n", true, false, false}};
    struct owner *o;

    (void)state;
    liars_start(lies, 2);
    o = owner_new(client_at(liars[0].path, RLOCK_WIRE_STRING), "k");
    assert_int_equal(owner_acquire(o, 500, 1000), RLOCK_ERR_CONN);
    assert_true(liars[0].connects < 20);
    /* It answers: it is used. */
    o = owner_new(client_with(liars[1].path, RLOCK_WIRE_STRING, PATIENCE_MS), "k");
    assert_int_equal(owner_acquire(o, PATIENCE_MS, 1000), RLOCK_OK);
}

static void server_that_closes_at_once_is_not_stormed(void **state) {
    static const struct lie lies[] = {
        {"", "", false, true, false},
        {"INFO", "", false, true, false},
        {"CLIENT TRACKING", "", false, true, false},
        {"SUBSCRIBE", "", false, true, false},
        {"EVALSHA", "", false, true, false},
    };

    (void)state;
    bad_servers_are_left_and_tried_again_later(lies, sizeof lies / sizeof lies[0]);
}

/* How other servers than the one of this machine say it. */
static void refusal_inside_a_script_is_reported_in_every_wording(void **state) {
    static const struct lie lies[] = {
        {"EVALSHA",
         "-ERR The user executing the script can't run this command or subcommand script: 1f, on "
         "@user_script:1.\r\n",
         true, false, false},
        {"EVALSHA",
         "-ERR ACL failure in script: User locker has no permissions to run the 'get' command "
         "script: 1f, on @user_script:1.\r\n",
         true, false, false},
        {"EVALSHA",
         "-NOPERM ACL failure in script: No permissions to access a key script: 1f, on "
         "@user_script:1.\r\n",
         true, false, false},
    };
    rlock_wire wire = wire_of(state);
    size_t i;

    liars_start(lies, sizeof lies / sizeof lies[0]);
    for (i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct owner *o = owner_new(client_with(liars[i].path, wire, PATIENCE_MS), "taken");

        assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_AUTH);
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
        assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, PATIENCE_MS), RLOCK_ERR_AUTH);
        assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "script"));
    }
}

static void tracking_refused_for_a_moment_is_asked_for_again(void **state) {
    static const struct lie lies[] = {
        {"CLIENT TRACKING", "-BUSY Redis is busy running a script. Wait.\r\n", true, false, true},
        {"CLIENT TRACKING", "-LOADING Redis is loading the dataset in memory\r\n", true, false,
         true},
    };
    rlock_wire wire = wire_of(state);
    size_t i;

    liars_start(lies, sizeof lies / sizeof lies[0]);
    for (i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        rlock_client *client = client_with(liars[i].path, wire, PATIENCE_MS);
        struct owner *o = owner_new(client, "taken");

        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
        assert_true(kit_until(kit_is_pushing, client, PATIENCE_MS));
        assert_int_equal(liars[i].told, 1);
    }
}

#endif /* TESTS_FAULTS_LIARS_H */
