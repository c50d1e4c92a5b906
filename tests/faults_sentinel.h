/* faults_sentinel.h - Sentinels that are away, silent, late, of another mind, or lie
 *
 * The stage is all of them: each has an address of this machine, and so have the servers.
 */
#ifndef TESTS_FAULTS_SENTINEL_H
#define TESTS_FAULTS_SENTINEL_H

#define SENTINELS 3
#define SERVER(i) (INADDR_LOOPBACK + (uint32_t)(i))
#define SENTINEL(i) (INADDR_LOOPBACK + 10 + (uint32_t)(i))

enum { ANSWERS, IS_SILENT, SAYS_NIL, SAYS_ERROR, SAYS_NONSENSE, HIDES_EPOCH, HANGS_UP, SAYS };

static struct {
    int port;
    uint32_t primary; /* which server is none's replica */
    uint32_t former;  /* one that goes on as if it were the primary; 0 = none */
    int switches;     /* before that question there is a new primary; 0 = never */
    struct {
        int mode, server, epoch;
        const char *host;   /* that it names instead of a number; NULL = none */
        const char *says;   /* instead of an address, in its mode */
        const char *master; /* what it says of the primary but its address; NULL = its epoch */
        int asked;
    } of[SENTINELS];
    char heard[2048]; /* passwords, databases and names, and by whom: "S0 AUTH x y" */
} quay;

static void all_say(int which, int epoch) {
    int i;

    for (i = 0; i < SENTINELS; i++) {
        quay.of[i].server = which;
        quay.of[i].epoch = epoch;
    }
}

static const char *sentinel_answers(int i, const struct words *words) {
    static char text[256], host[32], port[8];
    struct in_addr at;

    if (quay.switches > 0 && --quay.switches == 0) {
        all_say(1, 2);
        quay.primary = SERVER(1);
        quay.former = SERVER(0);
    }
    if (strcmp(words->text[1], "MASTER") == 0 && quay.of[i].master != NULL) {
        return quay.of[i].master;
    }
    if (strcmp(words->text[1], "MASTER") == 0) {
        snprintf(text, sizeof text,
                 "*4\r\n$4\r\nname\r\n$5\r\nlocks\r\n$12\r\nconfig-epoch\r\n$1\r\n%d\r\n",
                 quay.of[i].epoch);
        return quay.of[i].mode == HIDES_EPOCH ? "-NOPERM this user has no permissions\r\n" : text;
    }
    at.s_addr = htonl(SERVER(quay.of[i].server));
    inet_ntop(AF_INET, &at, host, sizeof host);
    if (quay.of[i].host != NULL) {
        snprintf(host, sizeof host, "%s", quay.of[i].host);
    }
    snprintf(port, sizeof port, "%d", quay.port);
    snprintf(text, sizeof text, "*2\r\n$%u\r\n%s\r\n$%u\r\n%s\r\n", (unsigned)strlen(host), host,
             (unsigned)strlen(port), port);
    quay.of[i].asked++;
    return text;
}

static const char *quay_answers(const struct stage_conn *conn, const struct words *words) {
    bool sentinel = conn->home >= SENTINEL(0);
    int i = (int)(conn->home - (sentinel ? SENTINEL(0) : SERVER(0)));

    if (liar_hears(words, "AUTH") || liar_hears(words, "SELECT") ||
        liar_hears(words, "CLIENT SETNAME") || liar_hears(words, "CLIENT ID")) {
        size_t n = strlen(quay.heard);

        snprintf(quay.heard + n, sizeof quay.heard - n, "%c%d %s %s %s\n", "PS"[sentinel], i,
                 words -> text[0], words -> text[1], words -> count > 2 ? words -> text[2] : "");
    }
    if (liar_hears(words, "INFO replication")) {
        return conn->home == quay.primary || conn->home == quay.former
                   ? "$13\r\nrole:master\r\n\r\n"
                   : "$12\r\nrole:slave\r\n\r\n";
    }
    if (!liar_hears(words, "SENTINEL")) {
        return NULL;
    }
    assert_true(sentinel);
    assert_string_equal(words->text[2], "locks");
    switch (quay.of[i].mode) {
    case IS_SILENT: return "";
    case SAYS_NIL: return "*-1\r\n";
    case SAYS_ERROR: return "-ERR unknown command\r\n";
    case SAYS_NONSENSE: return "*2\r\n$1\r\na\r\n$1\r\nb\r\n";
    case SAYS: return quay.of[i].says;
    case HANGS_UP: shutdown(conn->fd, SHUT_RDWR); return "";
    default: return sentinel_answers(i, words);
    }
}

/* Returns the newest command connection to a server. */
static struct stage_conn *commands_at(int i) {
    struct stage_conn *conn = &stage.conns[stage.count - 1];

    while (conn->fd < 0 || conn->watching || conn->home != SERVER(i)) {
        assert_true(conn-- > stage.conns);
    }
    return conn;
}

/* All know the first server. */
static rlock_config quay_begins(void) {
    static char list[128];
    rlock_config config;
    int i;

    stage_begins();
    memset(&quay, 0, sizeof quay);
    quay.port = stage_on_address(INADDR_ANY);
    quay.primary = SERVER(0);
    for (i = 0; i < SENTINELS; i++) {
        quay.of[i].epoch = 1;
    }
    stage.script = quay_answers;
    snprintf(list, sizeof list, "127.0.0.11:%d,127.0.0.12:%d,127.0.0.13:%d", quay.port, quay.port,
             quay.port);
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.sentinels = list;
    config.sentinel_primary = "locks";
    config.command_timeout_ms = 1000;
    return config;
}

static void all_are(int mode) {
    int i;

    for (i = 0; i < SENTINELS; i++) {
        quay.of[i].mode = mode;
    }
}

/* The server that the command connection leads to; -1 = it is not ready. */
static int serves(rlock_client *client) {
    rlock__redis *redis = (rlock__redis *)client->store_state;
    struct in_addr at;

    if (!kit_stats(client).up || inet_pton(AF_INET, redis->endpoint.host, &at) != 1) {
        return -1;
    }
    return (int)(ntohl(at.s_addr) - SERVER(0));
}

/* It is asked at the attempt, and every second; where nothing changes that is one small command. */
static void sentinel_says_where_the_primary_is(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k"), *waiter = owner_new(client, "taken");
    int asked;

    (void)state;
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(stage_count("SENTINEL MASTER"), 1);
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 1000, owner_told, waiter),
                     RLOCK_OK);
    stage_runs(500);
    assert_true(kit_stats(client).pushing);
    asked = quay.of[0].asked;
    stage_runs(10000);
    assert_in_range(quay.of[0].asked - asked, 9, 11);
    assert_int_equal(quay.of[1].asked + quay.of[2].asked, 0);
    assert_int_equal(stage_count("SENTINEL MASTER"), 1);
    assert_int_equal(kit_stats(client).connects, 3);
    assert_int_equal(kit_stats(client).faults, 0);
    asked = quay.of[0].asked;
    stage_hangs_up(&stage.conns[1]); /* that of commands: a new attempt asks again */
    stage_runs(20);
    assert_true(kit_stats(client).up);
    assert_true(quay.of[0].asked > asked);
    assert_non_null(strstr(kit_log_text, ": Sentinel connection to 127.0.0.11:"));
}

/* The address comes from an answer; both connections end at once. */
static void primary_that_moved_is_followed_within_a_second(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k"), *waiter = owner_new(client, "taken");
    int64_t begun_us;

    (void)state;
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 1000, owner_told, waiter),
                     RLOCK_OK);
    stage_runs(3000);
    assert_true(kit_stats(client).pushing);
    quay.primary = SERVER(1);
    all_say(1, 2);
    begun_us = stage.now_us;
    while (serves(client) != 1 && stage.now_us < begun_us + 5000000) {
        stage_iterates(stage.now_us + 1000);
    }
    assert_true(stage.now_us - begun_us <= 1010000);
    assert_non_null(strstr(kit_log_text, "127.0.0.1:"));
    assert_non_null(strstr(kit_log_text, ": the primary moved"));
    stage_runs(500);
    assert_true(kit_stats(client).pushing);
    assert_true(rlock_is_held(o->lock));
    assert_false(stage_heard("CLIENT KILL"));
}

/* Those that know less, or as much under another name, move nothing. */
static void older_configuration_moves_nothing(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");
    int i;

    (void)state;
    all_say(0, 5);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    quay.of[0].server = 1; /* of the same epoch: another name for the same server */
    stage_runs(5000);
    assert_int_equal(serves(client), 0);
    assert_int_equal(quay.of[1].asked, 0);
    quay.of[0].epoch = 4; /* it was away, and is behind */
    stage_runs(5000);
    assert_int_equal(serves(client), 0);
    assert_true(quay.of[1].asked > 0);
    assert_int_equal(kit_stats(client).faults, 0);
    stage_hangs_up(&stage.conns[1]);
    stage_runs(2000);
    assert_int_equal(serves(client), 0);
    for (i = 1; i < SENTINELS; i++) { /* set up anew by an operator: all of them agree */
        quay.of[i].server = 1;
        quay.of[i].epoch = 4;
    }
    quay.primary = SERVER(1);
    stage_runs(5000);
    assert_int_equal(serves(client), 1);
}

/* The next one is asked, at once or after a moment. The one that answered stays. */
static void sentinel_without_an_answer_is_followed_by_the_next(void **state) {
    static const struct {
        int mode;
        int64_t ms;
        const char *says;
    } rows[] = {{IS_SILENT, RLOCK__PATIENCE_MS, NULL},
                {SAYS_NIL, 0, NULL},
                {SAYS_ERROR, 0, NULL},
                {SAYS_NONSENSE, 0, NULL},
                {HANGS_UP, 0, NULL},
                {SAYS, 0, "+OK\r\n"},
                {SAYS, 0, "$9\r\n127.0.0.1\r\n"},
                {SAYS, 0, "*0\r\n"},
                {SAYS, 0, "*1\r\n$9\r\n127.0.0.1\r\n"},
                {SAYS, 0, "*3\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n$1\r\nx\r\n"},
                {SAYS, 0, "*2\r\n:1\r\n$4\r\n6379\r\n"},
                {SAYS, 0, "*2\r\n$9\r\n127.0.0.1\r\n:6379\r\n"},
                {SAYS, 0, "*2\r\n$-1\r\n$-1\r\n"},
                {SAYS, 0, "*2\r\n$0\r\n\r\n$4\r\n6379\r\n"},
                {SAYS, 0, "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n"},
                {SAYS, 0, "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n"}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config = quay_begins();
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, "k");
        int64_t begun_us = stage.now_us;

        quay.of[0].mode = rows[i].mode;
        quay.of[0].says = rows[i].says;
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
        assert_in_range(stage.now_us - begun_us, rows[i].ms * 1000, rows[i].ms * 1000 + 10);
        assert_int_equal(kit_stats(client).faults, 0);
        stage_runs(3000);
        assert_true(quay.of[1].asked >= 3);
        assert_int_equal(quay.of[2].asked, 0);
    }
}

static void silence_of_all_sentinels_is_reported(void **state) {
    static const struct {
        int mode;
        const char *words;
    } rows[] = {{SAYS_NIL, "no Sentinel gives an address: it knows no primary of this name"},
                {SAYS_ERROR, "no Sentinel gives an address: ERR unknown command"},
                {IS_SILENT, "no Sentinel gives an address: the server does not answer"}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config = quay_begins();
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, "k");

        all_are(rows[i].mode);
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_ERR_CONN);
        assert_string_equal(o->text[RLOCK_ACQUIRED], rows[i].words);
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        stage_runs(20000);
        assert_true(stage_count("SENTINEL GET") <= 3 * 60);
        assert_non_null(strstr(kit_log_text, ": failure 4: "));
        all_are(ANSWERS);
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 4000), RLOCK_OK);
        assert_true(kit_stats(client).up);
    }
}

static struct { int ready, ended, others; } told_of_sentinels;

static void note_sentinels(void *user, const rlock_report *report) {
    bool connection = report->kind >= RLOCK_REPORT_CONNECTED;
    bool sentinel = connection && strcmp(report->link, "Sentinel") == 0;

    assert_null(user);
    if (sentinel) {
        assert_int_equal(strncmp(report->where, "127.0.0.1", 9), 0);
    }
    told_of_sentinels.ready += sentinel && report->kind == RLOCK_REPORT_CONNECTED;
    told_of_sentinels.ended += sentinel && report->kind == RLOCK_REPORT_DISCONNECTED;
    told_of_sentinels.others += connection && !sentinel;
}

/* They are not needed while nothing changes; that they are away is reported. */
static void holders_go_on_without_sentinels(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client;
    struct owner *o;

    (void)state;
    config.watchdog_lease_ms = 3000;
    config.on_event = note_sentinels;
    memset(&told_of_sentinels, 0, sizeof told_of_sentinels);
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(stage_acquire(o, 0, 0), RLOCK_OK);
    assert_int_equal(told_of_sentinels.ready, 1);
    assert_int_equal(told_of_sentinels.ended, 0);
    assert_int_equal(told_of_sentinels.others, 1);
    all_are(HANGS_UP);
    stage_runs(20000);
    assert_true(rlock_is_held(o->lock));
    assert_true(kit_stats(client).up);
    assert_in_range(told_of_sentinels.ended, 2, 200); /* the first one, and all that follow */
    stage_hangs_up(&stage.conns[1]);                  /* a new attempt goes to the last address */
    stage_runs(2000);
    assert_int_equal(serves(client), 0);
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    quay.primary = SERVER(1); /* they are back, and know more */
    all_are(ANSWERS);
    all_say(1, 2);
    stage_runs(3000);
    assert_int_equal(serves(client), 1);
}

/* They come back one after the other, and the first one was away during the last failover. */
static void sentinel_that_comes_back_behind_moves_nothing(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");

    (void)state;
    all_say(0, 6);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    all_are(HANGS_UP);
    stage_runs(10000);
    quay.of[0].mode = ANSWERS;
    quay.of[0].server = 1;
    quay.of[0].epoch = 5;
    stage_runs(10000);
    assert_int_equal(serves(client), 0);
    quay.of[1].mode = ANSWERS;
    stage_runs(10000);
    assert_int_equal(serves(client), 0);
    assert_null(strstr(kit_log_text, "the primary moved"));
    assert_int_equal(stage_count("AUTH") + stage_count("CLIENT ID"), 2); /* nothing was made anew */
}

/* An operator gave those that are left another primary, from which they count anew, and one of them
 * is lost for ever. The primary that is known is none any more. Most have to say so: one may have
 * been cut off with a primary of former times. */
static void sentinels_that_were_recreated_are_followed_though_one_is_lost(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");

    (void)state;
    all_say(0, 6);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    all_say(1, 0);
    quay.of[2].mode = HANGS_UP;
    stage_runs(5000);
    assert_int_equal(serves(client), 0); /* it serves yet */
    quay.of[1].mode = HANGS_UP;
    quay.primary = SERVER(1);
    stage_hangs_up(commands_at(0));
    stage_runs(20000);
    assert_int_equal(serves(client), -1);
    quay.of[1].mode = ANSWERS;
    stage_runs(5000);
    assert_int_equal(serves(client), 1);
}

/* It says that a replica is the primary, and that nobody knows better. */
static void sentinel_that_lies_is_left_for_another(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");

    (void)state;
    quay.of[0].server = 1;
    quay.of[0].epoch = 9;
    assert_int_equal(stage_acquire(o, 5000, 60000), RLOCK_OK);
    assert_int_equal(serves(client), 0);
    stage_runs(10000);
    assert_int_equal(serves(client), 0);
    assert_true(quay.of[1].asked >= 10);
    assert_true(rlock_is_held(o->lock));
}

/* All are away when its address has led to no primary. */
static void sentinel_that_lied_and_went_away_is_left(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");

    (void)state;
    quay.of[0].server = 1;
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(10);
    assert_non_null(strstr(kit_log_text, "the server is a replica"));
    all_are(HANGS_UP);
    stage_hangs_up(&stage.conns[0]);
    stage_runs(5000);
    assert_false(kit_stats(client).up);
    all_are(ANSWERS);
    all_say(0, 1);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 4000), RLOCK_OK);
    assert_int_equal(serves(client), 0);
}

/* Where an ACL hides the epoch the answers alone count. */
static void hidden_epoch_is_done_without(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");

    (void)state;
    all_are(HIDES_EPOCH);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    stage_runs(3000);
    assert_int_equal(serves(client), 0);
    assert_int_equal(kit_stats(client).connects, 3);
    quay.primary = SERVER(1);
    all_say(1, 1);
    stage_runs(2000);
    assert_int_equal(serves(client), 1);
}

/* So do they where what is said of the primary has no epoch, or is no list of names and values. */
static void epoch_that_is_not_known_is_done_without(void **state) {
    static const char *const rows[] = {
        "*0\r\n",
        "+OK\r\n",
        ":7\r\n",
        "*-1\r\n",
        "*1\r\n$12\r\nconfig-epoch\r\n",
        "*2\r\n$4\r\nname\r\n$5\r\nlocks\r\n",
        "*2\r\n:1\r\n$1\r\n7\r\n",
        "*2\r\n$12\r\nconfig-epoch\r\n:7\r\n",
        "*4\r\n*0\r\n*0\r\n$12\r\nconfig-epoch\r\n$-1\r\n",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config = quay_begins();
        rlock_client *client = kit_client(&config);

        quay.of[0].master = rows[i];
        assert_int_equal(stage_acquire(owner_new(client, "k"), 0, 60000), RLOCK_OK);
        quay.primary = SERVER(1);
        all_say(1, 1);
        stage_runs(2000);
        assert_int_equal(serves(client), 1);
    }
}

/* Two names of one primary may have one epoch: what serves stays, the next attempt takes the new
 * one. */
static void address_of_the_same_epoch_is_for_the_next_attempt(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);

    (void)state;
    assert_int_equal(stage_acquire(owner_new(client, "k"), 0, 60000), RLOCK_OK);
    all_say(1, 1);
    quay.primary = SERVER(1);
    quay.former = SERVER(0);
    stage_runs(3000);
    assert_int_equal(serves(client), 0);
    stage_hangs_up(commands_at(0));
    stage_runs(1000);
    assert_int_equal(serves(client), 1);
}

/* The epoch of the new primary says nothing of the address that was told before it. */
static void address_that_changes_between_two_answers_is_not_believed(void **state) {
    int i;

    (void)state;
    for (i = 2; i <= 3; i++) { /* before the question for the epoch, and after it */
        rlock_config config = quay_begins();
        rlock_client *client = kit_client(&config);

        quay.switches = i;
        assert_int_equal(stage_acquire(owner_new(client, "k"), 5000, 60000), RLOCK_OK);
        assert_true(quay.of[1].asked > 0); /* the next one */
        stage_runs(3000);
        assert_int_equal(serves(client), 1);

        config = quay_begins(); /* the same, where a primary serves */
        client = kit_client(&config);
        assert_int_equal(stage_acquire(owner_new(client, "k"), 0, 60000), RLOCK_OK);
        all_say(2, 2);
        quay.switches = i;
        stage_runs(3000);
        assert_true(quay.of[1].asked > 0);
        assert_int_equal(serves(client), 1);
    }
}

/* A Sentinel may owe an answer when the client is freed. */
static void client_is_freed_under_a_question(void **state) {
    rlock_config config = quay_begins();
    struct owner *o = owner_new(kit_client(&config), "k");

    (void)state;
    quay.of[0].master = "";
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(10);
    assert_int_equal(stage_count("SENTINEL MASTER"), 1);
    kit_reset();
    config = quay_begins();
    o = owner_new(kit_client(&config), "k");
    quay.of[0].mode = IS_SILENT;
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(10);
    assert_int_equal(stage_count("SENTINEL GET"), 1);
    kit_reset();
}

/* Another port of the same host is another server. */
static void primary_that_moved_to_another_port_is_followed(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");
    int port = quay.port;

    (void)state;
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    quay.port = server_free_port(); /* nobody listens there */
    all_say(0, 2);
    stage_runs(1500);
    assert_non_null(strstr(kit_log_text, ": the primary moved"));
    assert_false(kit_stats(client).up);
    quay.port = port;
    all_say(0, 3);
    stage_runs(3000);
    assert_int_equal(serves(client), 0);
}

/* What a hook of the kind of config.map_address is asked, and what it writes. */
static struct {
    char asked[64], host[64];
    int port, count;
} charted;

static bool chart(void *user, const char *host, int port, char *new_host, size_t room,
                  int *new_port) {
    assert_ptr_equal(user, &charted);
    assert_int_equal(room, RLOCK__HOST_MAX + 1);
    snprintf(charted.asked, sizeof charted.asked, "%s:%d", host, port);
    charted.count++;
    snprintf(new_host, room, "%s", charted.host);
    *new_port = charted.port;
    return charted.host[0] != '\0';
}

/* Both host and port are taken; what is no address leaves that of the Sentinel. */
static void address_of_a_sentinel_is_mapped_to_an_address_or_kept(void **state) {
    static const struct {
        const char *host;
        int port;
    } none[] = {
        {"", 1}, {"a b", 1}, {"redis://127.0.0.9", 1}, {"127.0.0.9", 0}, {"127.0.0.9", 65536}};
    rlock_config config = quay_begins();
    struct owner *o;
    size_t i;

    (void)state;
    memset(&charted, 0, sizeof charted);
    config.map_address = chart;
    config.map_user = &charted;
    snprintf(charted.host, sizeof charted.host, "127.0.0.1");
    charted.port = quay.port;
    quay.of[0].host = "10.9.9.9";
    quay.of[0].says = "*2\r\n$8\r\n10.9.9.9\r\n$1\r\n7\r\n";
    quay.of[0].mode = SAYS;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_string_equal(charted.asked, "10.9.9.9:7");
    for (i = 0; i < sizeof none / sizeof *none; i++) {
        config = quay_begins();
        config.map_address = chart;
        config.map_user = &charted;
        charted.count = 0;
        charted.port = none[i].port;
        snprintf(charted.host, sizeof charted.host, "%s", none[i].host);
        o = owner_new(kit_client(&config), "k");
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
        assert_true(charted.count > 0);
    }
}

static void each_gets_its_own_password_alone(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client;
    struct owner *o;

    (void)state;
    config.username = "locker";
    config.password = "of-the-server";
    config.database = 3;
    config.client_name = "name";
    config.sentinel_username = "watcher";
    config.sentinel_password = "of-the-sentinel";
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_string_equal(quay.heard, "S0 AUTH watcher of-the-sentinel\nS0 CLIENT SETNAME name\n"
                                    "P0 AUTH locker of-the-server\nP0 SELECT 3 \n"
                                    "P0 CLIENT SETNAME name\nP0 CLIENT ID \n");
    config = quay_begins();
    config.password = "of-the-server";
    assert_int_equal(stage_acquire(owner_new(kit_client(&config), "k"), 0, 60000), RLOCK_OK);
    assert_string_equal(quay.heard, "P0 AUTH of-the-server \nP0 CLIENT ID \n");
    config = quay_begins();
    config.sentinel_password = "of-the-sentinel";
    assert_int_equal(stage_acquire(owner_new(kit_client(&config), "k"), 0, 60000), RLOCK_OK);
    assert_string_equal(quay.heard, "S0 AUTH of-the-sentinel \nP0 CLIENT ID \n");
}

/* What Sentinels refuse is told like what servers refuse. */
static void password_that_the_sentinels_refuse_is_reported(void **state) {
    rlock_config config = quay_begins();
    struct owner *o;
    int i;

    (void)state;
    config.sentinel_password = "wrong";
    stage_lies("AUTH", "-WRONGPASS invalid username-password pair\r\n", true, false);
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(stage_acquire(o, RLOCK_FOREVER, 60000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "no Sentinel gives an address: WRONGPASS"));
    assert_false(stage_heard("INFO"));
    config = quay_begins(); /* a password that was forgotten is refused at the question */
    for (i = 0; i < SENTINELS; i++) {
        quay.of[i].mode = SAYS;
        quay.of[i].says = "-NOAUTH Authentication required.\r\n";
    }
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(stage_acquire(o, RLOCK_FOREVER, 60000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "no Sentinel gives an address: NOAUTH"));
}

/* Sentinels may be named, and may announce names. */
static void names_of_sentinels_and_primaries_are_resolved(void **state) {
    static char list[64];
    rlock_config config = quay_begins();
    rlock_client *client;
    struct owner *o;
    int i;

    (void)state;
    snprintf(list, sizeof list, "watch.example:%d,127.0.0.12:%d", quay.port, quay.port);
    config.sentinels = list;
    quay.of[0].host = "primary.example";
    quay.of[1].host = "primary.example";
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    assert_int_equal(stage.names, 1);
    name_is(SENTINEL(0));
    stage_runs(0);
    assert_int_equal(stage.names, 2);
    name_is(SERVER(0));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    stage_runs(2500);
    assert_int_equal(stage.names, 2);
    assert_true(quay.of[0].asked >= 3);
    kit_reset();

    config = quay_begins(); /* a name server that is away: the other Sentinel has a number */
    config.sentinels = list;
    snprintf(list, sizeof list, "watch.example:%d,127.0.0.12:%d", quay.port, quay.port);
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(stage_acquire(o, 2000, 60000), RLOCK_OK);
    for (i = 0; i < 20; i++) {
        stage_runs(100);
    }
    assert_true(quay.of[1].asked >= 2);
}

/* Each is tried before the next Sentinel. */
static void addresses_of_the_name_of_a_sentinel_are_tried(void **state) {
    static const uint32_t addresses[] = {INADDR_BROADCAST, SENTINEL(0)}; /* no route leads to it */
    static char list[64];
    rlock_config config = quay_begins();
    struct owner *o;

    (void)state;
    snprintf(list, sizeof list, "watch.example:%d,127.0.0.12:%d", quay.port, quay.port);
    config.sentinels = list;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    names_are(addresses, 2);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    assert_true(quay.of[0].asked > 0);
    assert_int_equal(quay.of[1].asked, 0);
    assert_int_equal(kit_stats(kit_clients[0]).faults, 0);
}

/* What is an address needs no resolver, whatever that still owes for the name before. */
static void address_instead_of_a_name_is_used_at_once(void **state) {
    int row;

    (void)state;
    for (row = 0; row < 2; row++) {
        rlock_config config = quay_begins();
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, "k");

        quay.of[0].host = "old.example";
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        stage_runs(0);
        assert_int_equal(stage.names, 1);
        quay.of[0].host = row == 0 ? NULL : "255.255.255.255"; /* no route leads to it */
        quay.of[0].epoch = 2;
        stage_runs(2500);
        assert_true(kit_stats(client).up); /* where it led nowhere another Sentinel was asked */
        assert_int_equal(strstr(kit_log_text, " to 255.255.255.255:") != NULL, row == 1);
        quay.of[0].host = NULL;
        all_say(0, 3);
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 4000), RLOCK_OK);
        assert_int_equal(stage.names, 1);
        name_is(SERVER(1));
        stage_runs(2000);
        assert_int_equal(serves(client), 0);
    }
}

/* The primary moves while the name of the one before is being resolved. */
static void late_address_of_another_name_is_not_used(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");

    (void)state;
    quay.of[0].host = "old.example";
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    assert_int_equal(stage.names, 1);
    quay.of[0].host = "new.example";
    quay.of[0].epoch = 2;
    stage_runs(1500);
    assert_int_equal(stage.names, 2); /* side by side */
    host_is("old.example", SERVER(1));
    stage_runs(0);
    assert_int_equal(stage.names, 2);
    assert_int_equal(kit_stats(client).connects, 1);
    host_is("new.example", SERVER(0));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
}

/* ... while the resolver hangs at it: the new name is asked for as soon as a Sentinel has it. */
static void name_that_hangs_delays_no_other_name_of_the_primary(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client;
    struct owner *o;
    uint64_t connects;
    int64_t begun_us;

    (void)state;
    config.command_timeout_ms = 10000;
    client = kit_client(&config);
    o = owner_new(client, "k");
    quay.of[0].host = "old.example";
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(500);
    quay.of[0].host = "new.example";
    quay.of[0].epoch = 2;
    begun_us = stage.now_us;
    while (stage.names < 2) {
        stage_iterates(stage.now_us + 1000);
        assert_true(stage.now_us - begun_us < 1100000);
    }
    host_is("new.example", SERVER(0));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    assert_null(strstr(kit_log_text, "not resolved"));
    stage_runs(20000);
    connects = kit_stats(client).connects;
    host_is("old.example", SERVER(1)); /* it comes in the end, and moves nothing */
    stage_runs(2000);
    assert_int_equal(kit_stats(client).connects, connects);
    assert_int_equal(stage.names, 2);
}

/* Each answer of a Sentinel may be another name: what is out at a time has a bound. */
static void names_that_hang_are_bounded(void **state) {
    static char hosts[40][16];
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");
    int i, of;

    (void)state;
    all_are(HIDES_EPOCH); /* each answer is taken for a newer one */
    for (i = 0; i < 40; i++) {
        snprintf(hosts[i], sizeof hosts[i], "n%d.example", i);
        for (of = 0; of < SENTINELS; of++) {
            quay.of[of].host = hosts[i];
        }
        if (i == 0) {
            rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o);
        }
        stage_runs(1500);
    }
    assert_int_equal(stage.names, RLOCK__LOOKUPS);
    assert_non_null(strstr(kit_log_text, "too many names are being resolved"));
    host_is("n3.example", SERVER(1));
    stage_runs(2500);
    assert_int_equal(stage.names, RLOCK__LOOKUPS + 1);
    host_is("n39.example", SERVER(0));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
}

/* Begins an acquire of a client with these Sentinels, at the port of the stage. */
static struct owner *with_sentinels(const char *one, const char *other) {
    static char list[96];
    rlock_config config = quay_begins();
    struct owner *o;

    snprintf(list, sizeof list, "%s:%d,%s:%d", one, quay.port, other, quay.port);
    config.sentinels = list;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    return o;
}

/* The resolver hangs at the name of one Sentinel: the next one is asked for its own. */
static void name_that_hangs_hides_no_other_sentinel(void **state) {
    struct owner *o = with_sentinels("old.example", "new.example");

    (void)state;
    stage_runs(RLOCK__PATIENCE_MS);
    assert_int_equal(stage.names, 2);
    assert_null(strstr(kit_log_text, "new.example"));
    host_is("new.example", SENTINEL(1));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    stage_runs(20000);
    assert_int_equal(stage.names, 2);
    assert_int_equal(kit_stats(kit_clients[0]).faults, 0);
    kit_reset();

    with_sentinels("old.example", "255.255.255.255"); /* the log blames the one it is of */
    stage_runs(20000);
    assert_int_equal(stage.names, 1);
    assert_null(strstr(kit_log_text, "255.255.255.255:26379: the name"));
}

/* A resolver that takes longer than a Sentinel's turn: the answer counts when it comes. */
static void name_of_a_sentinel_that_comes_after_its_turn_is_used(void **state) {
    struct owner *o = with_sentinels("slow.example", "hung.example");

    (void)state;
    stage_runs(RLOCK__PATIENCE_MS + 50);
    assert_int_equal(stage.names, 2);
    host_is("slow.example", SENTINEL(0));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    assert_true(quay.of[0].asked > 0);
    stage_hangs_up(commands_at(0)); /* what comes while no name is waited for leads nowhere */
    host_is("hung.example", SENTINEL(1));
    stage_runs(2000);
    assert_true(kit_stats(kit_clients[0]).up);
    assert_int_equal(quay.of[1].asked, 0);
}

/* ... and is a number now: nobody waits for the resolver. */
static void number_does_not_wait_for_the_name_before(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client;
    struct owner *o;

    (void)state;
    config.command_timeout_ms = 10000;
    client = kit_client(&config);
    o = owner_new(client, "k");
    quay.of[0].host = "old.example";
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    assert_int_equal(stage.names, 1);
    quay.primary = SERVER(1);
    quay.of[0].host = NULL;
    all_say(1, 2);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1010), RLOCK_OK);
    assert_int_equal(serves(client), 1);
}

/* A name that is told late, while a Sentinel is asked, may be that of an old primary. */
static void name_that_is_reported_while_a_sentinel_is_asked_leads_nowhere(void **state) {
    rlock_config config = quay_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");
    uint64_t connects;

    (void)state;
    quay.of[0].host = "primary.example";
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    name_is(SERVER(0));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    stage_hangs_up(commands_at(0)); /* the name server is away: the address is known */
    stage_runs(1500);
    assert_true(kit_stats(client).up);
    assert_int_equal(stage.names, 2);
    all_are(IS_SILENT);
    stage_hangs_up(commands_at(0));
    stage_runs(100);
    connects = kit_stats(client).connects;
    name_is(SERVER(0));
    stage_runs(10);
    assert_int_equal(kit_stats(client).connects, connects);
    all_are(ANSWERS);
    quay.primary = SERVER(1);
    all_say(1, 2);
    quay.of[0].host = NULL;
    stage_runs(3000);
    assert_int_equal(serves(client), 1);
}

/* One name may stand for several Sentinels, or for one that is reached in several ways. */
static void addresses_of_a_sentinel_are_tried_until_one_answers(void **state) {
    static const uint32_t list[] = {SENTINEL(0), SENTINEL(1)};
    static const int modes[] = {HANGS_UP, IS_SILENT, SAYS_NIL, SAYS_ERROR};
    static char text[64];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        rlock_config config = quay_begins();
        rlock_client *client;
        struct owner *o;

        snprintf(text, sizeof text, "watch.example:%d", quay.port);
        config.sentinels = text;
        client = kit_client(&config);
        o = owner_new(client, "k");
        quay.of[0].mode = modes[i];
        assert_int_equal(rlock_acquire(o->lock, 2000, 60000, owner_told, o), RLOCK_OK);
        stage_runs(0);
        names_are(list, 2);
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 2000), RLOCK_OK);
        assert_int_equal(kit_stats(client).faults, 0);
        assert_int_equal(stage.names, 1);
    }
}

/* Set up anew by an operator: one Sentinel alone is believed, of two addresses too. */
static void sentinel_of_two_addresses_is_one_opinion(void **state) {
    static const uint32_t list[] = {SENTINEL(0), SENTINEL(1)};
    static char text[64];
    rlock_config config = quay_begins();
    rlock_client *client;
    struct owner *o;
    int i;

    (void)state;
    snprintf(text, sizeof text, "watch.example:%d", quay.port);
    config.sentinels = text;
    client = kit_client(&config);
    o = owner_new(client, "k");
    all_say(0, 5);
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    names_are(list, 2);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    all_are(HANGS_UP);
    stage_runs(2000);
    all_are(ANSWERS);
    quay.primary = SERVER(1);
    all_say(1, 1);
    for (i = 0; i < 50 && serves(client) != 1; i++) {
        stage_runs(100);
        if (stage.name != NULL) {
            names_are(list, 2);
        }
    }
    assert_int_equal(serves(client), 1);
}

/* Wherever memory fails once, the client is refused or finds its way. */
static void memory_may_fail_at_each_step_to_the_primary(void **state) {
    unsigned n = 0, commands;
    bool ended;

    (void)state;
    do {
        rlock_config config = quay_begins();
        rlock_client *client = NULL;
        int status;

        config.sentinel_password = "secret";
        memory_lasts = ++n;
        status = rlock_client_new(&client, &config);
        ended = memory_lasts > 0;
        memory_lasts = 0;
        assert_int_equal(status, ended ? RLOCK_OK : RLOCK_ERR_NOMEM);
        rlock_client_free(client);
    } while (!ended);
    for (commands = 0; commands < 2; commands++) {
        n = 0;
        do {
            rlock_config config = quay_begins();
            rlock_client *client;
            struct owner *o;

            config.sentinel_password = "secret";
            client = kit_client(&config);
            o = owner_new(client, "k");
            *(commands ? &commands_last : &memory_lasts) = ++n;
            if (rlock_acquire(o->lock, 10000, 60000, owner_told, o) == RLOCK_OK) {
                stage_wait(o, RLOCK_ACQUIRED, 10000);
            }
            if (!rlock_is_held(o->lock)) { /* it was told so */
                assert_int_equal(stage_acquire(o, 10000, 60000), RLOCK_OK);
            }
            quay.primary = SERVER(1);
            all_say(1, 2);
            stage_runs(5000);
            assert_int_equal(serves(client), 1);
            ended = (commands ? commands_last : memory_lasts) > 0;
            memory_lasts = commands_last = 0;
        } while (!ended);
        assert_true(n > 5);
    }
}

#define VOYAGE 80 /* turns to the primary and to the next one, and what follows there */

static struct {
    int lines, forks_at;
    bool child;
} voyage;

static void voyage_log(void *user, int level, const char *line) {
    pid_t pid;

    (void)user;
    (void)level;
    (void)line;
    if (++voyage.lines == voyage.forks_at) {
        pid = fork();
        voyage.child = pid == 0;
        assert_true(pid == 0 || waitpid(pid, NULL, 0) == pid);
    }
}

/* Sentinels and primaries are named, and the primary moves. */
static rlock_client *voyage_goes(int turns, int forks_at) {
    static char list[64];
    rlock_config config = quay_begins();
    rlock_client *client;
    struct owner *o;
    int i;

    memset(&voyage, 0, sizeof voyage);
    voyage.forks_at = forks_at;
    snprintf(list, sizeof list, "watch.example:%d,127.0.0.12:%d", quay.port, quay.port);
    config.sentinels = list;
    config.log = voyage_log;
    quay.of[0].host = "primary.example";
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    for (i = 0; i < turns; i++) {
        stage_looks();
        if (stage.due_us >= 0 && stage.due_us <= stage.now_us) {
            stage_fires();
        }
        if (stage.name != NULL && i % 4 == 0) {
            name_is(stage.names == 1 ? SENTINEL(0) : SERVER(stage.names - 2));
        }
        if (voyage.child) {
            _exit(0);
        }
        stage_serves();
        stage.now_us += 1000;
        if (i == VOYAGE / 2) {
            quay.primary = SERVER(1);
            quay.of[0].host = "next.example";
            all_say(1, 2);
            stage.now_us += 1000000;
        }
    }
    return client;
}

static void client_may_be_freed_at_each_step_to_the_primary(void **state) {
    int turns;

    (void)state;
    for (turns = 0; turns <= VOYAGE; turns++) {
        rlock_client *client = voyage_goes(turns, 0);

        assert_true(turns < VOYAGE || (kit_stats(client).up && stage.names == 3));
        kit_reset();
    }
}

/* Neither the command of a Sentinel nor that of a server leaves twice. */
static void log_may_fork_at_each_step_to_the_primary(void **state) {
    static char trail[sizeof stage.trail];
    int line, lines;

    (void)state;
    voyage_goes(VOYAGE, 0);
    memcpy(trail, stage.trail, sizeof trail);
    lines = voyage.lines;
    assert_true(lines >= 5);
    for (line = 1; line <= lines; line++) {
        assert_true(kit_stats(voyage_goes(VOYAGE, line)).up);
        assert_string_equal(stage.trail, trail);
    }
}

static void sentinels_of_a_configuration_are_checked(void **state) {
    static const struct {
        const char *sentinels, *primary, *user, *password, *path, *words;
        bool resolves;
    } rows[] = {
        {"", "locks", NULL, NULL, NULL, "expected host:", true},
        {"a,,b", "locks", NULL, NULL, NULL, "expected host:", true},
        {"a:", "locks", NULL, NULL, NULL, "expected host:", true},
        {"a:0", "locks", NULL, NULL, NULL, "expected host:", true},
        {"a:65536", "locks", NULL, NULL, NULL, "expected host:", true},
        {"a:1x", "locks", NULL, NULL, NULL, "expected host:", true},
        {"a:000001", "locks", NULL, NULL, NULL, "expected host:", true},
        {"::1", "locks", NULL, NULL, NULL, "expected host:", true},
        {"[::1", "locks", NULL, NULL, NULL, "expected host:", true},
        {"[::1]x", "locks", NULL, NULL, NULL, "expected host:", true},
        {"127.0.0.1,a:1", "locks", NULL, NULL, NULL, "needs loop.resolve", false},
        {"a", NULL, NULL, NULL, NULL, "sentinel_primary", true},
        {"a", "", NULL, NULL, NULL, "sentinel_primary", true},
        {"a", "locks", "user", NULL, NULL, "sentinel_username", true},
        {"a", "locks", NULL, NULL, "/path", "config.unix_path or", true},
        {NULL, "locks", NULL, NULL, NULL, "requires config.sentinels", true},
        {NULL, NULL, "x", NULL, NULL, "requires config.sentinels", true},
        {NULL, NULL, NULL, "x", NULL, "requires config.sentinels", true},
        {"a", "locks", NULL, NULL, NULL, NULL, true},
        {"a:1,[::1],[fe80::1%1]:26380,127.0.0.1:65535", "locks", "u", "p", NULL, NULL, true},
        {"[::1],127.0.0.1:1", "locks", NULL, "p", NULL, NULL, false},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config = quay_begins();
        rlock_client *client = NULL;
        int status;

        config.sentinels = rows[i].sentinels;
        config.sentinel_primary = rows[i].primary;
        config.sentinel_username = rows[i].user;
        config.sentinel_password = rows[i].password;
        config.unix_path = rows[i].path;
        if (!rows[i].resolves) {
            config.loop.resolve = NULL;
        }
        kit_log_text[0] = '\0';
        status = rlock_client_new(&client, &config);
        if (status != (rows[i].words != NULL ? RLOCK_ERR_ARG : RLOCK_OK)) {
            print_error("row %u: %d %s\n", (unsigned)i, status, kit_log_text);
        }
        assert_int_equal(status, rows[i].words != NULL ? RLOCK_ERR_ARG : RLOCK_OK);
        assert_true(rows[i].words == NULL || strstr(kit_log_text, rows[i].words) != NULL);
        rlock_client_free(client);
    }
}

static int tls_never_starts(void *ctx, struct redisAsyncContext *ac, const char *host) {
    (void)ctx, (void)ac, (void)host;
    return -1;
}

static void tls_before_nothing(void *ctx) {
    (void)ctx;
}

static int tls_knows_nothing(void *ctx, struct redisAsyncContext *ac, char *words, size_t size) {
    (void)ctx, (void)ac, (void)words, (void)size;
    return RLOCK_OK;
}

static struct redisAsyncContext *connects_nowhere(void *user) {
    (void)user;
    return NULL;
}

static void refused_for(const rlock_config *config, const char *words) {
    rlock_client *client = NULL;

    kit_log_text[0] = '\0';
    assert_int_equal(rlock_client_new(&client, config), RLOCK_ERR_ARG);
    assert_non_null(strstr(kit_log_text, words));
}

/* What is no text beside Sentinels, and a host, which they leave without a meaning. */
static void other_fields_beside_sentinels_are_checked(void **state) {
    static const rlock_tls nothing = {NULL, NULL, NULL, NULL, false};
    static char name[200];
    rlock_config config = quay_begins();
    rlock_tls hooks = nothing;
    rlock_client *client = NULL;

    (void)state;
    config.connect = connects_nowhere;
    refused_for(&config, "config.unix_path or config.connect");
    config = quay_begins();
    config.sentinel_tls = &nothing;
    refused_for(&config, "config.tls: a required hook is NULL");
    config = stage_config(RLOCK_WIRE_STRING);
    hooks.start = tls_never_starts;
    hooks.before = tls_before_nothing;
    hooks.why = tls_knows_nothing;
    config.sentinel_tls = &hooks;
    refused_for(&config, "requires config.sentinels");
    config = quay_begins();
    config.host = "primary.example";
    config.loop.resolve = NULL;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    rlock_client_free(client);
    config = quay_begins(); /* too long for an address, so that it is a name */
    memset(name, '1', sizeof name - 1);
    config.sentinels = name;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    rlock_client_free(client);
    config.loop.resolve = NULL;
    refused_for(&config, "needs loop.resolve");
}

/* A name that is reported twice, or unasked, is nobody's; the one that is waited for counts. */
static void name_that_is_reported_twice_is_taken_once(void **state) {
    struct owner *o = with_sentinels("old.example", "new.example");
    rlock_name *name;

    (void)state;
    stage_runs(RLOCK__PATIENCE_MS);
    name = stage_takes_name("old.example");
    rlock_on_resolved_all(name, NULL, 0);
    rlock_on_resolved_all(name, NULL, 0);
    stage_runs(10);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    host_is("new.example", SENTINEL(1));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
}

/* Of three: its turn was the second. */
static void name_of_a_later_sentinel_is_found_among_all(void **state) {
    static char list[96];
    rlock_config config = quay_begins();
    struct owner *o;

    (void)state;
    snprintf(list, sizeof list, "a.example:%d,b.example:%d,c.example:%d", quay.port, quay.port,
             quay.port);
    config.sentinels = list;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(2 * RLOCK__PATIENCE_MS + 50);
    assert_int_equal(stage.names, 3);
    host_is("b.example", SENTINEL(1));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    assert_true(quay.of[1].asked > 0);
}

/* The Sentinels name a host, another one, and the first again, whose name is still asked for: that
 * is a new attempt, which has its time. */
static void name_that_is_wanted_again_is_waited_for_again(void **state) {
    static const char *const hosts[] = {"one.example", "two.example", "one.example"};
    rlock_config config = quay_begins();
    rlock_client *client;
    struct owner *o;
    int i, of;

    (void)state;
    config.command_timeout_ms = 20000;
    client = kit_client(&config);
    o = owner_new(client, "k");
    all_are(HIDES_EPOCH); /* each answer is taken for a newer one */
    for (i = 0; i < 3; i++) {
        for (of = 0; of < SENTINELS; of++) {
            quay.of[of].host = hosts[i];
        }
        if (i == 0) {
            rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o);
        }
        stage_runs(1500);
    }
    assert_int_equal(stage.names, 2);
    assert_int_equal(kit_stats(client).faults, 0);
    assert_null(strstr(kit_log_text, "the name is not resolved"));
    host_is("one.example", SERVER(0));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
}

/* Many servers, each with Sentinels, replicas and a quarantine: also the room for the timers of all
 * of them is asked for. `plain` of them have no Sentinels. */
static int quorum_opens(rlock_store *store, rlock_config *config, bool *ended) {
    rlock_client *client = NULL;
    int status;

    config->store = store;
    status = rlock_client_new(&client, config);
    *ended = memory_lasts > 0;
    memory_lasts = 0;
    rlock_client_free(client);
    return status;
}

static void client_whose_store_gets_no_memory_is_refused(void **state) {
    enum { MEMBERS = 6 };
    int plain, i;

    (void)state;
    for (plain = 0; plain < 4; plain++) {
        rlock_config config = quay_begins(), members[MEMBERS];
        rlock_store *store = NULL;
        bool ended = false;
        unsigned n;

        for (i = 0; i < MEMBERS; i++) {
            members[i] = config;
            members[i].password = "secret";
            if (i < plain) {
                members[i].sentinels = members[i].sentinel_primary = NULL;
                members[i].unix_path = stage.path;
            }
        }
        assert_int_equal(rlock_quorum_new(&store, members, MEMBERS), RLOCK_OK);
        config.sentinels = config.sentinel_primary = NULL;
        config.description = "web-3 \xc3\xa4";
        config.quarantine_ms = 60000;
        config.replicas = 1;
        for (n = 1; !ended; n++) {
            int status;

            memory_lasts = n;
            status = quorum_opens(store, &config, &ended);
            assert_int_equal(status, ended ? RLOCK_OK : RLOCK_ERR_NOMEM);
        }
        assert_true(n > 50);
        rlock_quorum_free(store);
    }
}

#endif /* TESTS_FAULTS_SENTINEL_H */
