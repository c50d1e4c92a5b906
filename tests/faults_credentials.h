/* faults_credentials.h - credentials that change while answers are out, or while there is no memory
 *
 * What they do on a real server is tested in credentials.c.
 */
#ifndef TESTS_FAULTS_CREDENTIALS_H
#define TESTS_FAULTS_CREDENTIALS_H

#define ACCEPTED "new credentials are accepted"

/* Returns a client on the stage with a password. */
static rlock_client *with_a_password(void) {
    rlock_config config;

    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    config.username = "locker";
    config.password = "pass-1";
    config.command_timeout_ms = 10000;
    return kit_client(&config);
}

/* Returns one that holds a key, and whose AUTHs for the new password are not answered. */
static rlock_client *waits_for_the_new_one(struct owner **held) {
    rlock_client *client = with_a_password();

    *held = owner_new(client, "held");
    assert_int_equal(stage_acquire(*held, 0, 60000), RLOCK_OK);
    stage_runs(100); /* the push connection is there too */
    stage_lies("AUTH locker", "", true, true);
    return client;
}

/* What stands before the AUTH is asked for once more only if it was refused for its rights, and
 * surely not done. */
static void answer_before_the_new_rights_counts_unless_they_are_the_reason(void **state) {
    static const struct {
        const char *answer;
        rlock_kind kind;
        int status, asked;
    } rows[] = {{"-NOAUTH Authentication required.\r\n", RLOCK_KIND_MUTEX, RLOCK_OK, 2},
                {"-OOM command not allowed\r\n", RLOCK_KIND_MUTEX, RLOCK_ERR_SERVER, 1},
                {"+OK\r\n", RLOCK_KIND_MUTEX, RLOCK_OK, 1},
                {"-NOPERM no permissions script: 1f, on @user_script:1.\r\n", RLOCK_KIND_FAIR,
                 RLOCK_ERR_AUTH, 1}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool fair = rows[i].kind == RLOCK_KIND_FAIR;
        const char *command = fair ? by_sha(rlock__lua_queue) : "SET k";
        rlock_options options;
        struct owner *held, *o;
        rlock_client *client = waits_for_the_new_one(&held);
        int before;

        memset(&options, 0, sizeof options);
        options.key = "k";
        options.kind = rows[i].kind;
        o = owner_with(client, &options);
        stage_lies(command, "", true, true);
        before = stage_count(fair ? "EVALSHA" : command);
        assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
        stage_runs(1);
        assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-2"), RLOCK_OK);
        stage_runs(1);
        stage_says(stage_conn(false), rows[i].answer);
        stage_runs(1);
        assert_int_equal(stage_count(fair ? "EVALSHA" : command) - before >= rows[i].asked, true);
        assert_int_equal(stage_count("SET k"), fair ? 0 : rows[i].asked);
        stage_says(stage_conn(false), "+OK\r\n");
        stage_runs(1);
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 100), rows[i].status);
        assert_non_null(strstr(kit_log_text, ACCEPTED));
        assert_true(rlock_is_held(held->lock));
    }
}

static void release_before_the_new_rights_ends_as_it_is_answered(void **state) {
    struct owner *held;
    rlock_client *client = waits_for_the_new_one(&held);

    (void)state;
    stage_lies(by_sha(rlock__lua_string_release), "", true, true);
    assert_int_equal(rlock_release(held->lock, owner_told, held), RLOCK_OK);
    stage_runs(1);
    assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-2"), RLOCK_OK);
    stage_runs(1);
    stage_says(stage_conn(false), ":1\r\n+OK\r\n");
    assert_int_equal(stage_wait(held, RLOCK_RELEASED, 100), RLOCK_OK);
    assert_non_null(strstr(kit_log_text, ACCEPTED));
}

/* Who is told of two at a time hears of the last one. A password may stand alone. */
static void credentials_that_follow_each_other_are_accepted_once(void **state) {
    struct owner *held;
    rlock_client *client = waits_for_the_new_one(&held);
    const char *first;

    (void)state;
    assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-2"), RLOCK_OK);
    stage_runs(1);
    assert_int_equal(rlock_client_set_credentials(client, NULL, "pass-3"), RLOCK_OK);
    stage_runs(1);
    assert_true(stage_heard("AUTH pass-3"));
    stage_says(stage_conn(false), "+OK\r\n");
    stage_runs(1);
    first = strstr(kit_log_text, ACCEPTED);
    assert_non_null(first);
    assert_null(strstr(first + 1, ACCEPTED));
    assert_int_equal(stage_renew(held, 60000), RLOCK_OK);
    assert_int_equal(kit_stats(client).connects, 3); /* the push connection is another one */
}

/* A number is the answer to another command; and nobody hears one when the client has gone. */
static void wrong_answer_to_new_credentials_ends_the_connection(void **state) {
    struct owner *held;
    rlock_client *client = waits_for_the_new_one(&held);

    (void)state;
    assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-2"), RLOCK_OK);
    stage_runs(1);
    stage_says(stage_conn(false), ":1\r\n");
    stage_runs(1000);
    assert_non_null(strstr(kit_log_text, "unexpected reply"));
    assert_null(strstr(kit_log_text, ACCEPTED));
    assert_int_equal(kit_stats(client).connects, 4); /* both are new */
    assert_int_equal(stage_renew(held, 60000), RLOCK_OK);
    client = waits_for_the_new_one(&held);
    assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-2"), RLOCK_OK);
    stage_runs(1);
    kit_reset();
    assert_null(stage.client);
}

/* It is opened anew for new credentials, but not if its handshake has used them already. */
static void push_connection_that_has_the_new_ones_is_kept(void **state) {
    rlock_client *client = with_a_password();
    struct owner *waits = owner_new(client, "taken");
    int turns;

    (void)state;
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 60000, owner_told, waits), RLOCK_OK);
    for (turns = 0; turns < 100 && redis_of(client)->push.state != RLOCK__CONN_OPENING; turns++) {
        stage_iterates(stage.now_us + 1000);
    }
    assert_int_equal(redis_of(client)->push.state, RLOCK__CONN_OPENING);
    stage_lies("AUTH locker", "", true, true); /* on the other connection, which is first */
    assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-2"), RLOCK_OK);
    for (turns = 0; turns < 100 && redis_of(client)->push.state < RLOCK__CONN_HANDSHAKE; turns++) {
        stage_iterates(stage.now_us + 1000);
    }
    stage_says(&stage.conns[0], "+OK\r\n");
    stage_runs(1000);
    assert_non_null(strstr(kit_log_text, ACCEPTED));
    assert_int_equal(kit_stats(client).connects, 2);
    assert_true(kit_stats(client).pushing);
}

/* The first handshake uses them; and no other fault is a reason to try at once. */
static void new_credentials_hurry_only_who_was_refused_the_old_ones(void **state) {
    rlock_client *client = with_a_password();
    struct owner *o = owner_new(client, "k");
    uint64_t connects;

    (void)state;
    assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-2"), RLOCK_OK);
    stage_runs(10);
    assert_int_equal(kit_stats(client).connects, 0);
    stage_lies("INFO replication", "-LOADING the dataset\r\n", true, true);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(10);
    assert_int_equal(stage.told[0], 1);
    connects = kit_stats(client).connects;
    assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-3"), RLOCK_OK);
    stage_runs(10);
    assert_int_equal(kit_stats(client).connects, connects);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 2000), RLOCK_OK);
    assert_int_equal(kit_stats(client).connects, connects + 1);
}

static void told_and_changes_them(rlock *lock, const rlock_event *event, void *user) {
    owner_told(lock, event, user);
    commands_last = 1;
    assert_int_equal(rlock_client_set_credentials(kit_clients[0], "locker", "pass-2"), RLOCK_OK);
    commands_last = 0;
    rlock_client_free(kit_clients[0]);
    kit_clients[0] = NULL;
}

/* A connection on which a command could not be sent says no more, its releases neither. */
static void client_that_could_not_send_new_credentials_may_be_freed_at_once(void **state) {
    rlock_client *client = with_a_password();
    struct owner *o = owner_new(client, "k");

    (void)state;
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, told_and_changes_them, o), RLOCK_OK);
    stage_runs(100);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_null(stage.client);
    assert_false(stage_heard("CLIENT REPLY"));
    assert_int_equal(stage_count("AUTH"), 1);
}

/* Calls it while memory fails, until it does not; then all is as if it never had. */
static void changes_without_memory(rlock_client *client, bool sentinels, unsigned *number) {
    static char password[3000]; /* commands have had no room for it yet */
    int (*set)(rlock_client *, const char *, const char *) =
        sentinels ? rlock_client_set_sentinel_credentials : rlock_client_set_credentials;
    int status;

    memset(password, 'p', sizeof password - 1);
    memory_lasts = *number;
    status = set(client, "locker", password);
    *number = memory_lasts > 0 ? 0 : *number + 1;
    memory_lasts = 0;
    assert_int_equal(status, *number == 0 ? RLOCK_OK : RLOCK_ERR_NOMEM);
    stage_runs(100);
    if (status == RLOCK_ERR_NOMEM) {
        assert_int_equal(set(client, "locker", password), RLOCK_OK);
    }
    stage_runs(1100);
    assert_true(stage_heard("AUTH locker"));
    assert_true(sentinels || strstr(kit_log_text, ACCEPTED) != NULL);
}

static void credentials_for_which_there_is_no_memory_are_refused(void **state) {
    unsigned n, rows;

    (void)state;
    for (rows = 0; rows < 3; rows++) {
        unsigned most = 0;

        for (n = 1; n > 0; most++) {
            struct owner *held, *other = NULL;
            rlock_client *client;

            if (rows == 0) {
                client = with_a_password();
            } else if (rows == 1) {
                rlock_config config = quay_begins();

                config.sentinel_password = "pass-1";
                client = kit_client(&config);
            } else { /* of the nodes one is known, and not open */
                rlock_config config = fleet_begins();

                client = kit_client(&config);
                other = owner_new(client, key_of(8192, 16383));
            }
            held = owner_new(client, rows == 2 ? key_of(0, 8191) : "held");
            assert_int_equal(stage_acquire(held, 0, 60000), RLOCK_OK);
            changes_without_memory(client, rows == 1, &n);
            assert_int_equal(stage_renew(held, 60000), RLOCK_OK);
            assert_true(other == NULL || stage_acquire(other, 0, 60000) == RLOCK_OK);
        }
        assert_true(most > 3);
    }
}

/* hiredis has none for the AUTH: the next handshake uses the new ones. */
static void credentials_that_cannot_be_sent_are_those_of_the_next_connection(void **state) {
    rlock_client *client = with_a_password();
    struct owner *held = owner_new(client, "held");

    (void)state;
    assert_int_equal(stage_acquire(held, 0, 60000), RLOCK_OK);
    stage_runs(100);
    assert_int_equal(stage_count("AUTH"), 2);
    commands_last = 1;
    assert_int_equal(rlock_client_set_credentials(client, "locker", "pass-2"), RLOCK_OK);
    assert_int_equal(commands_last, 0);
    assert_int_equal(stage_count("AUTH"), 2);
    stage_runs(2000);
    assert_int_equal(stage_count("AUTH"), 4);
    assert_int_equal(kit_stats(client).connects, 4);
    assert_int_equal(stage_renew(held, 60000), RLOCK_OK);
}

#endif /* TESTS_FAULTS_CREDENTIALS_H */
