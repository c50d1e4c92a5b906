/* faults_secrets.h - servers, Sentinels and nodes that repeat what they were sent: no password, and
 * no control byte, comes into the log, an event, a report or an answer
 */
#ifndef TESTS_FAULTS_SECRETS_H
#define TESTS_FAULTS_SECRETS_H

#define SECRET_HEAD "Hm9."                 /* of all of them: four bytes are not shown either */
#define SECRET_SENT "Hm9.of\nthe-server"   /* to the server: a line end of a file is in it */
#define SECRET_SAID "Hm9.of the-server"    /* as a server repeats it, which may send no line end */
#define SECRET_SENTINEL "Hm9.of-sentinels" /* to the Sentinels */

static struct {
    int lines, texts, reports;
    int hidden; /* so many of these have *** */
} showed;

/* Looks at a text that left the library; NULL is none. */
static void is_shown(const char *text) {
    size_t i;

    for (i = 0; text != NULL && text[i] != '\0'; i++) {
        bool control = (unsigned char)text[i] < ' ' || text[i] == 0x7f;

        if (control || strncmp(text + i, SECRET_HEAD, sizeof SECRET_HEAD - 1) == 0) {
            fail_msg("shown: %s", text);
        }
    }
    assert_true(i < RLOCK__LINE);
    showed.hidden += text != NULL && strstr(text, "***") != NULL;
}

static void line_is_shown(void *user, int level, const char *line) {
    (void)user, (void)level;
    showed.lines++;
    is_shown(line);
}

static void report_is_shown(void *user, const rlock_report *report) {
    (void)user;
    showed.reports++;
    is_shown(report->text);
    is_shown(report->where);
}

static void event_is_shown(rlock *lock, const rlock_event *event, void *user) {
    showed.texts++;
    is_shown(event->text);
    owner_told(lock, event, user);
}

static void answer_is_shown(rlock_client *client, const rlock_info *info, void *user) {
    showed.texts++;
    is_shown(info->text);
    asked_about(client, info, user);
}

/* A configuration all of whose words are looked at. */
static rlock_config showing(rlock_config config) {
    config.username = "shop";
    config.password = SECRET_SENT;
    config.log = line_is_shown;
    config.on_event = report_is_shown;
    return config;
}

/* Has each kind of operation end, however it does. */
static void all_is_tried(rlock_client *client) {
    rlock_options options;
    struct owner *o;

    memset(&options, 0, sizeof options);
    options.key = "k";
    options.fencing = true;
    options.on_lost = event_is_shown;
    assert_non_null(client);
    o = owner_with(client, &options);
    assert_int_equal(rlock_acquire(o->lock, 0, 0, event_is_shown, o), RLOCK_OK);
    if (stage_wait(o, RLOCK_ACQUIRED, 60000) != RLOCK_OK) {
        assert_int_equal(rlock_acquire(o->lock, 700, 0, event_is_shown, o), RLOCK_OK);
        stage_wait(o, RLOCK_ACQUIRED, 60000);
    }
    if (rlock_is_held(o->lock)) {
        stage_runs(200); /* the push connection is made */
        assert_int_equal(rlock_renew(o->lock, 5000, event_is_shown, o), RLOCK_OK);
        stage_wait(o, RLOCK_RENEWED, 60000);
        rlock_release(o->lock, event_is_shown, o);
    }
    options.fencing = false;
    assert_int_equal(rlock_inspect(client, &options, answer_is_shown, NULL), RLOCK_OK);
    assert_int_equal(rlock_force_release(client, &options, answer_is_shown, NULL), RLOCK_OK);
    stage_runs(1000);
}

/* What a server may say in which the words sent to it are. Each %s is the secret. */
static const char *const repeats[] = {
    "-ERR unknown command 'AUTH', with args beginning with: 'shop' '%s' \r\n",
    "-ERR unknown command `AUTH`, with args beginning with: `shop`, `%s`, \r\n",
    "-WRONGPASS shop:%s@10.0.0.7 is no user\r\n",
    "-NOPERM \x1b[2J\x07user%spassword\x7f\t\x1f%s\r\n",
    "-LOADING %s%s\r\n",
    "-READONLY %s\r\n",
    "-MOVED 1 shop:%s@127.0.0.1:6379\r\n",
    "-ASK 1 127.0.0.1\x0b:6379%s\r\n",
    "-%s\r\n",
    "+%s\r\n",
    "*1\r\n+%s\r\n",
    "?%s\r\n", /* hiredis writes why it ends the connection */
};

#define REPEATS (sizeof repeats / sizeof *repeats)

/* Says one of these; from the last on, words that some buffer cuts in the middle of the secret. */
static const char *repeated(size_t i, const char *secret) {
    static char text[512];

    if (i < REPEATS) {
        snprintf(text, sizeof text, repeats[i], secret, secret);
    } else {
        snprintf(text, sizeof text, "-ERR %0*d%s\r\n", (int)(i - REPEATS) * 3 + 40, 0, secret);
    }
    return text;
}

#define REPEATED (REPEATS + 80)

static void secret_that_a_server_repeats_is_shown_nowhere(void **state) {
    static const struct {
        const char *command;
        bool guarded; /* said only with a quarantine and replicas */
    } steps[] = {
        {"AUTH", false},      {"SELECT", false},           {"CLIENT SETNAME", false},
        {"CLIENT ID", false}, {"INFO replication", false}, {"INFO server", false},
        {"COMMAND", false},   {"EVALSHA", false},          {"EVAL", false},
        {"SUBSCRIBE", false}, {"CLIENT TRACKING", false},  {"EVAL", true},
        {"WAIT", true},
    };
    size_t i, n;

    (void)state;
    for (i = 0; i < sizeof steps / sizeof *steps; i++) {
        int hidden = showed.hidden;

        for (n = 0; n < REPEATED; n += n < REPEATS ? 1 : 7) {
            rlock_config config;

            stage_begins();
            config = showing(stage_config(RLOCK_WIRE_STRING));
            config.client_name = "name";
            config.database = clustered() ? 0 : 3;
            config.quarantine_ms = steps[i].guarded ? 30000 : 0;
            config.replicas = steps[i].guarded && strcmp(steps[i].command, "WAIT") == 0 ? 1 : 0;
            config.quarantine_ms = config.replicas ? 0 : config.quarantine_ms;
            stage_lies(steps[i].command, repeated(n, SECRET_SAID), true, false);
            all_is_tried(kit_client(&config));
            assert_true(stage.told[0] > 0 || (clustered() && i == 1));
        }
        assert_true(showed.hidden > hidden ||
                    (clustered() && i == 1)); /* else it looks at nothing */
    }
    assert_true(showed.lines > 0 && showed.texts > 0 && showed.reports > 0);
}

/* The quorum keeps the words of each server. */
static void secret_that_a_server_of_a_quorum_repeats_is_shown_nowhere(void **state) {
    size_t n;

    (void)state;
    for (n = 0; n < REPEATED; n++) {
        rlock_config config, member;
        rlock_store *store = NULL;
        rlock_options options;
        struct owner *o;

        stage_begins();
        config = showing(stage_config(RLOCK_WIRE_STRING));
        member = config;
        config.username = config.password = config.unix_path = NULL;
        stage_lies("AUTH", repeated(n, SECRET_SAID), true, false);
        assert_int_equal(rlock_quorum_new(&store, &member, 1), RLOCK_OK);
        config.store = store;
        memset(&options, 0, sizeof options);
        options.key = "k";
        o = owner_with(kit_client(&config), &options);
        assert_int_equal(rlock_acquire(o->lock, 300, 0, event_is_shown, o), RLOCK_OK);
        stage_wait(o, RLOCK_ACQUIRED, 60000);
        kit_reset();
        rlock_quorum_free(store);
    }
}

/* Neither that of the server nor their own; nor a host that has more in it than a host. */
static void secret_that_sentinels_repeat_is_shown_nowhere(void **state) {
    static const char *const hosts[] = {"user:" SECRET_SAID "@127.0.0.1",
                                        "127.0.0.1\n127.0.0.2",
                                        "\x1b[2J",
                                        "redis://h",
                                        SECRET_SENTINEL "/x",
                                        "a b"};
    static const char *const steps[] = {"AUTH", "CLIENT SETNAME", NULL};
    size_t i, n, count = REPEATED + sizeof hosts / sizeof *hosts;

    (void)state;
    for (n = 0; n < 2 * count; n++) {
        const char *secret = n % 2 ? SECRET_SAID : SECRET_SENTINEL;
        size_t which = n / 2;
        int hidden = showed.hidden;

        for (i = 0; i < 3; i++) {
            rlock_config config = showing(quay_begins());
            static char says[512];

            config.sentinel_username = "asker";
            config.sentinel_password = SECRET_SENTINEL;
            config.client_name = "name";
            config.command_timeout_ms = TIMEOUT_MS;
            if (which >= REPEATED) {
                const char *host = hosts[which - REPEATED];

                snprintf(says, sizeof says, "*2\r\n$%u\r\n%s\r\n$4\r\n6379\r\n",
                         (unsigned)strlen(host), host);
            } else {
                snprintf(says, sizeof says, "%s", repeated(which, secret));
            }
            if (steps[i] != NULL) {
                stage_lies(steps[i], says, true, false);
            } else {
                quay.of[0].says = quay.of[1].says = quay.of[2].says = says;
                all_are(SAYS);
            }
            if (which < REPEATS || which % 9 == 0 || which >= REPEATED) {
                all_is_tried(kit_client(&config));
                assert_true(which < REPEATED || steps[i] != NULL ||
                            kit_stats(kit_clients[0]).acquired == 0);
            }
        }
        assert_true(showed.hidden > hidden || which > 0);
    }
}

/* Nor does a node name a host that is none. */
static void secret_that_nodes_repeat_is_shown_nowhere(void **state) {
    static const char *const hosts[] = {"user:" SECRET_SAID "@127.0.0.1",
                                        "127.0.0.1\n127.0.0.2",
                                        "\x1b[2J",
                                        "redis://h",
                                        SECRET_SAID "/x",
                                        "a b"};
    size_t n, count = REPEATED + 2 * (sizeof hosts / sizeof *hosts);
    int hidden = showed.hidden;

    (void)state;
    for (n = 0; n < count; n += n + 9 < REPEATED && n >= REPEATS ? 9 : 1) {
        rlock_config config = showing(fleet_begins());
        static char says[512];
        size_t which = (n - REPEATED) / 2;

        config.command_timeout_ms = TIMEOUT_MS;
        if (n < REPEATED) {
            fleet.map = repeated(n, SECRET_SAID);
        } else if (n % 2) {
            snprintf(says, sizeof says,
                     "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%u\r\n%s\r\n:6379\r\n$1\r\nn\r\n",
                     (unsigned)strlen(hosts[which]), hosts[which]);
            fleet.map = says;
        } else if (strchr(hosts[which], '\n') == NULL) {
            snprintf(fleet.of[0].keyed, sizeof fleet.of[0].keyed, "-MOVED %d %s:6379\r\n",
                     slot_of("k"), hosts[which]);
            strcpy(fleet.of[1].keyed, fleet.of[0].keyed);
        }
        all_is_tried(kit_client(&config));
    }
    assert_true(showed.hidden > hidden);
}

static int tls_repeats(void *ctx, struct redisAsyncContext *ac, char *words, size_t size) {
    (void)ac;
    snprintf(words, size, "%s", (const char *)ctx);
    return RLOCK_ERR_AUTH;
}

/* What an adapter of TLS says may be from a certificate. */
static void words_of_tls_are_shown_like_a_servers(void **state) {
    static char words[] = "CN=\x1b]0;x\x07" SECRET_SAID;
    rlock_tls hooks = {words, tls_never_starts, tls_before_nothing, tls_repeats, false};
    rlock_config config;
    int hidden = showed.hidden;

    (void)state;
    stage_begins();
    config = showing(stage_config(RLOCK_WIRE_STRING));
    config.unix_path = NULL;
    config.port = stage_on_tcp();
    config.tls = &hooks;
    all_is_tried(kit_client(&config));
    assert_true(showed.hidden > hidden);
}

#endif /* TESTS_FAULTS_SECRETS_H */
