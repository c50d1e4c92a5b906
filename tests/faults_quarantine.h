/* faults_quarantine.h - a server that may have lost holds grants none for a while
 *
 * What its marker says to whom is tested on real servers, in redis_quarantine.h.
 */
#ifndef TESTS_FAULTS_QUARANTINE_H
#define TESTS_FAULTS_QUARANTINE_H

#define QUARANTINE_MS 5000
#define REPLICA (INADDR_LOOPBACK + 1) /* the address of one of two servers */

/* Returns the question as it is sent. */
static const char *the_question(void) {
    static char words[5 + 8192];

    snprintf(words, sizeof words, "EVAL %s", whole(rlock__lua_quarantine));
    return words;
}

/* Returns a client on the stage whose server answers so, the first time or always. */
static rlock_client *quarantined(rlock_wire wire, const char *answer, bool once) {
    rlock_config config;
    rlock_client *client;

    stage_begins();
    stage_lies(the_question(), answer, true, once);
    config = stage_config(wire);
    config.quarantine_ms = QUARANTINE_MS;
    config.watchdog_lease_ms = QUARANTINE_MS;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

/* Returns how many acquires were sent: by SET, or by a script. */
static int acquires(void) {
    return stage_count("SET k") + stage_count(by_sha(rlock__lua_string_acquire)) +
           stage_count(by_sha(rlock__lua_redisson_acquire)) +
           stage_count(by_sha(rlock__lua_keys_acquire)) + stage_count(by_sha(rlock__lua_queue));
}

/* An attempt is told at once, and for how long; a waiter is served when that is over. */
static void nothing_is_granted_in_quarantine(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = quarantined(wire, ":3000\r\n", false);
    struct owner *once = owner_new(client, "k"), *waits = owner_new(client, "k2");
    struct owner *fenced = owner_fenced(client, "k3"), *gives_up = owner_new(client, "k4");
    int64_t began_us = stage.now_us;

    assert_int_equal(stage_acquire(once, 0, 0), RLOCK_ERR_SERVER);
    assert_string_equal(once->text[RLOCK_ACQUIRED],
                        "quarantine: nothing is granted for 3000 ms more");
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
    assert_int_equal(rlock_acquire(fenced->lock, 60000, 1000, owner_told, fenced), RLOCK_OK);
    assert_int_equal(stage_acquire(gives_up, 1999, 0), RLOCK_ERR_SERVER);
    assert_non_null(strstr(gives_up->text[RLOCK_ACQUIRED], "quarantine: nothing is granted"));
    assert_int_equal(acquires(), 0);
    stage_runs((began_us + 2999000 - stage.now_us) / 1000);
    assert_int_equal(acquires(), 0);
    assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 2), RLOCK_OK);
    assert_int_equal(stage_wait(fenced, RLOCK_ACQUIRED, 2), RLOCK_OK);
    assert_int_equal(stage_acquire(once, 0, 0), RLOCK_OK);
}

static void no_kind_is_granted_in_quarantine(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_FAIR, RLOCK_KIND_READ, RLOCK_KIND_WRITE,
                                       RLOCK_KIND_SEMAPHORE};
    static const char *const keys[] = {"k1", "k23el"}; /* of one slot */
    rlock_client *client = quarantined(RLOCK_WIRE_STRING, ":3000\r\n", false);
    struct owner *owners[5];
    rlock_options options;
    int i;

    (void)state;
    for (i = 0; i < 5; i++) {
        memset(&options, 0, sizeof options);
        if (i < 4) {
            options.key = "k";
            options.kind = kinds[i];
            options.permits = kinds[i] == RLOCK_KIND_SEMAPHORE ? 2 : 0;
        } else {
            options.keys = keys;
            options.key_count = 2;
        }
        owners[i] = owner_with(client, &options);
        assert_non_null(owners[i]);
        assert_int_equal(
            rlock_acquire(owners[i]->lock, i % 2 ? RLOCK_FOREVER : 0, 0, owner_told, owners[i]),
            RLOCK_OK);
    }
    stage_runs(2990);
    assert_int_equal(acquires(), 0);
    for (i = 0; i < 5; i++) {
        assert_int_equal(owners[i]->seen[RLOCK_ACQUIRED], i % 2 == 0);
    }
    stage_runs(20);
    assert_true(acquires() >= 2);
}

static void quarantine_keeps_what_is_held(void **state) {
    rlock_client *client = quarantined(RLOCK_WIRE_STRING, ":0\r\n", true);
    struct owner *held = owner_new(client, "k"), *other = owner_new(client, "k2");
    rlock_options options;

    (void)state;
    stage_lies(the_question(), ":5000\r\n", true, false);
    assert_int_equal(stage_acquire(held, 0, 0), RLOCK_OK);
    assert_int_equal(stage_acquire(other, 0, 1000), RLOCK_OK);
    stage_hangs_up(stage_conn(false));
    stage_runs(20);
    stage.trail[0] = '\0';
    assert_int_equal(stage_acquire(owner_new(client, "k3"), 0, 1000), RLOCK_ERR_SERVER);
    assert_int_equal(stage_renew(other, 2000), RLOCK_OK);
    assert_int_equal(stage_release(other), RLOCK_OK);
    memset(&options, 0, sizeof options);
    options.key = "k";
    assert_int_equal(rlock_inspect(client, &options, asked_about, NULL), RLOCK_OK);
    asked_status = KIT_NOTHING;
    stage_runs(2000);
    assert_true(asked_status != KIT_NOTHING);
    assert_true(rlock_is_held(held->lock));
    assert_true(rlock_remaining_ms(held->lock) > 3000);
    assert_int_equal(acquires(), 0);
}

/* Inside a client a hold goes on: its key is at the server. */
static void quarantine_lets_a_hold_be_handed_over(void **state) {
    rlock_client *client = quarantined(RLOCK_WIRE_STRING, ":0\r\n", true);
    struct owner *held = owner_new(client, "k"), *next = owner_new(client, "k");

    (void)state;
    stage_lies(the_question(), ":5000\r\n", true, false);
    assert_int_equal(stage_acquire(held, 0, 0), RLOCK_OK);
    stage_hangs_up(stage_conn(false));
    stage_runs(15);
    assert_int_equal(rlock_acquire(next->lock, RLOCK_FOREVER, 0, owner_told, next), RLOCK_OK);
    assert_int_equal(stage_release(held), RLOCK_OK);
    assert_int_equal(stage_wait(next, RLOCK_ACQUIRED, 10), RLOCK_OK);
}

static void server_that_cannot_tell_grants_no_lock(void **state) {
    static const struct {
        const char *answer, *words;
    } rows[] = {
        {"-NOPERM this user has no permissions\r\n", "NOPERM this user has no permissions"},
        {"-ERR unknown command `EVAL`\r\n", "ERR unknown command `EVAL`"},
        {"-ERR its marker is another key\r\n", "ERR its marker is another key"},
        {"-LOADING the dataset\r\n", "LOADING the dataset"},
        {"-OOM command not allowed\r\n", "OOM command not allowed"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_client *client = quarantined(RLOCK_WIRE_STRING, rows[i].answer, false);
        struct owner *once = owner_new(client, "k"), *waits = owner_new(client, "k2");
        char words[200];

        assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
        assert_int_equal(stage_acquire(once, 0, 0), RLOCK_ERR_SERVER);
        snprintf(words, sizeof words,
                 "quarantine: the server cannot tell whether it lost holds: %s", rows[i].words);
        assert_int_equal(strncmp(once->text[RLOCK_ACQUIRED], words, 90), 0);
        stage_runs(20500);
        assert_int_equal(acquires(), 0);
        assert_int_equal(stage_count("EVAL"), 21);
        assert_int_equal(kit_stats(client).connects, 1);
        assert_non_null(strstr(kit_log_text, words));
        assert_null(strstr(strstr(kit_log_text, words) + 1, words)); /* it is said once */
        memset(stage.lies, 0, sizeof stage.lies);
        stage_lies(the_question(), ":700\r\n", true, false);
        assert_int_equal(stage_acquire(waits, 0, 0), RLOCK_ERR_STATE);
        stage_runs(1190);
        assert_int_equal(acquires(), 0);
        assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 15), RLOCK_OK);
        assert_int_equal(stage_count("EVAL"), 22);
    }
}

/* A replica whose INFO was refused says what it is when the marker cannot be written. It is left,
 * as if an acquire had been answered so. */
static void replica_that_cannot_mark_is_left(void **state) {
    static const char *const answers[] = {
        "-READONLY You can't write against a read only replica.\r\n",
        "-ERR Error running script (call to f_1f): @user_script:1: -READONLY\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        rlock_client *client = quarantined(RLOCK_WIRE_STRING, "-NOPERM no INFO\r\n", true);
        struct owner *o = owner_new(client, "k");

        stage_lies(the_question(), answers[i], true, true);
        stage_lies(the_question(), ":0\r\n", true, false);
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
        stage_runs(999);
        assert_int_equal(kit_stats(client).connects, 1);
        assert_int_equal(acquires(), 0);
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 20), RLOCK_OK);
        assert_int_equal(stage_count("EVAL local"), 3);
        assert_int_equal(kit_stats(client).connects, 2);
    }
}

static const char *replica_cannot_mark(const struct stage_conn *conn, const struct words *words) {
    if (!liar_hears(words, the_question())) {
        return NULL;
    }
    return conn->home == REPLICA ? "-READONLY You can't write against a read only replica.\r\n"
                                 : ":0\r\n";
}

/* Of the addresses of a name. What the replica said is not held against the next one. */
static void replica_that_cannot_mark_is_followed_by_the_next_address(void **state) {
    static const uint32_t list[] = {REPLICA, GOOD};
    rlock_config config;
    struct owner *o;

    (void)state;
    stage_begins();
    stage.script = replica_cannot_mark;
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.host = "lock.example";
    config.port = stage_on_address(INADDR_ANY);
    config.quarantine_ms = QUARANTINE_MS;
    config.watchdog_lease_ms = QUARANTINE_MS;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    stage_runs(0);
    names_are(list, 2);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 100), RLOCK_OK);
    assert_int_equal(stage.names, 1);
}

/* When it can tell at last that nothing was lost, nobody waits any longer. */
static void server_that_can_tell_again_serves_at_once(void **state) {
    rlock_client *client =
        quarantined(RLOCK_WIRE_STRING, "-BUSY Redis is busy running a script.\r\n", true);
    struct owner *waits = owner_new(client, "k");

    (void)state;
    stage_lies(the_question(), ":0\r\n", true, false);
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
    stage_runs(999);
    assert_int_equal(acquires(), 0);
    assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 2), RLOCK_OK);
}

static void nonsense_for_an_answer_is_the_longest_quarantine(void **state) {
    static const char *const answers[] = {":-1\r\n", ":5001\r\n", ":9223372036854775807\r\n"};
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        struct owner *o = owner_new(quarantined(RLOCK_WIRE_STRING, answers[i], false), "k");

        assert_int_equal(stage_acquire(o, 4990, 0), RLOCK_ERR_SERVER);
        assert_int_equal(acquires(), 0);
        assert_int_equal(stage_acquire(o, 20, 0), RLOCK_OK);
    }
    assert_int_equal(
        stage_acquire(owner_new(quarantined(RLOCK_WIRE_STRING, "+OK\r\n", false), "k"), 0, 0),
        RLOCK_ERR_CONN);
    assert_int_equal(acquires(), 0);
}

/* Of both connections that of the commands asks, in the handshake's one write. */
static void quarantine_is_asked_for_with_the_handshake(void **state) {
    static const char handshake[] = "CLIENT ID\nINFO replication\nINFO server\nCOMMAND INFO\nEVAL ";
    struct owner *o = owner_new(quarantined(RLOCK_WIRE_STRING, ":0\r\n", false), "k");
    int turns = 0;

    (void)state;
    assert_int_equal(rlock_acquire(o->lock, 0, 0, owner_told, o), RLOCK_OK);
    while (stage.trail[0] == 0) {
        stage_iterates(stage.now_us + 1000);
        assert_true(++turns < 1000);
    }
    /* the first node of a cluster is asked when its slots are known */
    assert_memory_equal(stage.trail, handshake, sizeof handshake - (clustered() ? 6 : 1));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 0), RLOCK_OK);
    stage_runs(300);
    assert_true(stage_is_pushing());
    assert_int_equal(stage_count("EVAL local"), 1);
    stage_hangs_up(stage_conn(false));
    stage_runs(300);
    assert_int_equal(stage_count("EVAL local"), 2);
}

/* The end of a quarantine, and the time to ask once more, may find no connection. */
static void quarantine_may_end_without_a_connection(void **state) {
    rlock_client *client = quarantined(RLOCK_WIRE_STRING, ":300\r\n", true);
    struct owner *o = owner_new(client, "k");

    (void)state;
    stage_lies(the_question(), "-LOADING the dataset\r\n", true, true);
    stage_lies(the_question(), ":2000\r\n", true, false);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    stage_runs(100);
    stage_lies("CLIENT ID", "", true, false); /* from now on it is silent */
    stage_hangs_up(stage_conn(false));
    stage_runs(3000);
    assert_int_equal(acquires(), 0);
    memset(&stage.lies[3], 0, sizeof stage.lies[3]);
    stage_runs(1990);
    assert_int_equal(acquires(), 0);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

/* A question that is asked after the handshake may be cut off: by the server, by the command
 * timeout or by the end of the client. */
static void question_that_is_cut_off_is_asked_again(void **state) {
    enum { HANGS, SILENT, ENDS, ODD, WAYS };
    int way;

    (void)state;
    for (way = 0; way < WAYS; way++) {
        rlock_client *client = quarantined(RLOCK_WIRE_STRING, "-LOADING the dataset\r\n", true);
        struct owner *waits = owner_new(client, "k");

        stage_lies(the_question(), way == ODD ? "+OK\r\n" : "", true, true);
        stage_lies(the_question(), ":0\r\n", true, false);
        assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
        stage_runs(way == ODD ? 990 : 1010);
        assert_true(way == ODD || stage.told[1] == 1);
        if (way == HANGS) {
            stage_hangs_up(stage_conn(false));
        } else if (way == ENDS) {
            rlock_client_free(client);
            kit_clients[0] = NULL;
            assert_int_equal(waits->seen[RLOCK_ACQUIRED], 0);
            continue;
        }
        assert_int_equal(acquires(), 0);
        assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 2000), RLOCK_OK);
        assert_int_equal(stage.told[1], 1);
        assert_int_equal(kit_stats(client).connects, 2);
    }
}

static void lease_above_the_quarantine_is_refused(void **state) {
    rlock_client *client = quarantined(RLOCK_WIRE_STRING, ":0\r\n", false), *none;
    struct owner *o = owner_new(client, "k");
    rlock_config config;

    (void)state;
    assert_int_equal(rlock_acquire(o->lock, 0, QUARANTINE_MS + 1, owner_told, o), RLOCK_ERR_ARG);
    assert_int_equal(stage_acquire(o, 0, QUARANTINE_MS), RLOCK_OK);
    assert_int_equal(rlock_renew(o->lock, QUARANTINE_MS + 1, owner_told, o), RLOCK_ERR_ARG);
    assert_int_equal(stage_renew(o, QUARANTINE_MS), RLOCK_OK);
    config = stage_config(RLOCK_WIRE_STRING);
    config.quarantine_ms = 29999;
    assert_int_equal(rlock_client_new(&none, &config), RLOCK_ERR_ARG);
    assert_non_null(strstr(kit_log_text, "config.watchdog_lease_ms is above config.quarantine_ms"));
}

/* Returns a client of a cluster of one node on the stage, which answers so, the first time. */
static rlock_client *quarantined_node(const char *answer) {
    rlock_config config;
    rlock_client *client;

    stage_begins();
    stage_lies(the_question(), answer, true, true);
    config = stage_config(RLOCK_WIRE_STRING);
    config.cluster = clustered_seed(stage.path, NULL, 0);
    config.unix_path = NULL;
    config.quarantine_ms = config.watchdog_lease_ms = QUARANTINE_MS;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

/* It was greeted before its slots were known. The first attempt is neither refused nor sent before
 * the answer. */
static void attempt_waits_until_the_node_was_asked(void **state) {
    struct owner *o = owner_new(quarantined_node(":0\r\n"), "k");

    (void)state;
    assert_int_equal(stage_acquire(o, 0, 0), RLOCK_OK);
    assert_true(strstr(stage.trail, "EVAL local") < strstr(stage.trail, "SET k"));
    o = owner_new(quarantined_node(":300\r\n"), "k");
    assert_int_equal(stage_acquire(o, 0, 0), RLOCK_ERR_SERVER);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "quarantine: nothing is granted for 300 ms more");
    assert_int_equal(acquires(), 0);
    assert_int_equal(stage_acquire(o, 1000, 0), RLOCK_OK);
}

/* It may have been a replica: nothing is sent there before it has said that it lost nothing. */
static void node_that_said_moved_is_asked_once_more(void **state) {
    rlock_client *client = quarantined_node(":0\r\n");
    struct owner *held = owner_new(client, "h"), *o = owner_new(client, "k");
    char moved[40];

    (void)state;
    snprintf(moved, sizeof moved, "-MOVED 7629 :%d\r\n", clustered_port());
    stage_lies(the_question(), ":4000\r\n", true, false);
    stage_lies("SET k", moved, true, true);
    assert_int_equal(stage_acquire(held, 0, 0), RLOCK_OK);
    assert_int_equal(stage_acquire(o, 0, 0), RLOCK_ERR_SERVER);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "quarantine: nothing is granted for 4000 ms more");
    assert_int_equal(acquires(), 1); /* it was led on, and not sent again */
    assert_int_equal(stage_renew(held, 0), RLOCK_OK);
    assert_int_equal(stage_acquire(o, 5000, 0), RLOCK_OK);
}

/* The marker is no lock. Where there is none, its name is anybody's. */
static void key_of_the_marker_is_refused(void **state) {
    rlock_client *client = quarantined(RLOCK_WIRE_STRING, ":0\r\n", false);

    (void)state;
    assert_null(owner_new(client, clustered() ? "rlock:quarantine:{7}" : "rlock:quarantine"));
    assert_non_null(strstr(kit_log_text, "marker"));
    assert_non_null(owner_new(client, clustered() ? "rlock:quarantine" : "rlock:quarantine:{7}"));
    assert_non_null(owner_new(client, "rlock:quarantine2"));
    assert_non_null(owner_new(client, "rlock:quarantaine"));
    assert_non_null(owner_new(client, "other:quarantine"));
    assert_non_null(owner_new(client, "rlock:quarantin"));
    assert_non_null(owner_new(client, "rlock:"));
    client = quarantined_node(":0\r\n");
    assert_null(owner_new(client, "rlock:quarantine:{7}"));
    assert_null(owner_new(client, "rlock:quarantine:"));
    assert_non_null(owner_new(client, "rlock:quarantine"));
    assert_non_null(owner_new(client, "rlock:quarantine2{7}"));
    stage_begins();
    assert_non_null(stage_owner(RLOCK_WIRE_STRING, "rlock:quarantine"));
}

/* Notes what the last question said of the node. */
static char known_run[64], known_history[64];

static const char *notes_what_is_known(const struct stage_conn *conn, const struct words *words) {
    (void)conn;
    if (liar_hears(words, the_question())) {
        snprintf(known_run, sizeof known_run, "%s", words->count > 5 ? words->text[5] : "");
        snprintf(known_history, sizeof known_history, "%s", words->count > 6 ? words->text[6] : "");
    }
    return NULL;
}

/* Whether it is another process, or has another history, the marker and the client decide
 * together; of a node that does not say what it is the client knows nothing. */
static void node_is_notified_of_what_is_known_of_it(void **state) {
    static const char other[] = "$69\r\nrole:master\r\nmaster_replid:"
                                "1357913579135791357913579135791357913579\r\n\r\n";
    rlock_client *client = quarantined_node(":3000\r\n");
    struct owner *o = owner_new(client, "k");
    int i;

    (void)state;
    stage.script = notes_what_is_known;
    stage_lies(the_question(), ":0\r\n", true, false);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    stage_runs(10);
    assert_string_equal(known_run, "");
    stage_hangs_up(stage_conn(false)); /* it was away: its quarantine is over before that is told */
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 500), RLOCK_OK);
    assert_string_equal(known_run, "0123456789012345678901234567890123456789");
    assert_string_equal(known_history, "0246802468024680246802468024680246802468");
    stage_lies("INFO replication", other, true, false);
    stage_hangs_up(stage_conn(false));
    stage_runs(200);
    assert_string_equal(known_history, "0246802468024680246802468024680246802468");
    stage_hangs_up(stage_conn(false));
    stage_runs(200);
    assert_string_equal(known_history, "1357913579135791357913579135791357913579");

    for (i = 0; i < 2; i++) {
        client = quarantined_node(":0\r\n");
        stage_lies(i == 0 ? "INFO" : "INFO replication", "-NOPERM no INFO\r\n", true, false);
        stage_lies(the_question(), ":0\r\n", true, false);
        stage.script = notes_what_is_known;
        assert_int_equal(stage_acquire(owner_new(client, "k"), 0, 0), RLOCK_OK);
        stage_hangs_up(stage_conn(false));
        stage_runs(200);
        assert_int_equal(stage_count("EVAL local"), 2);
        assert_string_equal(known_run, "");
    }
}

#endif /* TESTS_FAULTS_QUARANTINE_H */
