/* faults_refusals.h - requests that were surely not executed */
#ifndef TESTS_FAULTS_REFUSALS_H
#define TESTS_FAULTS_REFUSALS_H

static struct server odd; /* a server of another kind */

static int shutdown_status;

static void on_shutdown(rlock_client *client, int status, void *user) {
    (void)client, (void)user;
    shutdown_status = status;
}

static int is_shut(void *arg) {
    (void)arg;
    return shutdown_status != KIT_NOTHING;
}

/* The acquire fails with these words and leaves nothing: no command follows, and shutdown ends. */
static void fails_and_leaves_nothing(rlock_client *client, struct owner *o, const char *words) {
    int i, tries = 20;
    uint64_t commands;

    for (i = 0; i < tries; i++) {
        assert_int_equal(owner_acquire(o, i % 2 != 0 ? 100 : 0, 0), RLOCK_ERR_SERVER);
        assert_non_null(strstr(o->text[RLOCK_ACQUIRED], words));
    }
    assert_int_equal(kit_stats(client).cleaning, 0);
    commands = kit_stats(client).commands;
    assert_true(commands <= (uint64_t)tries * 3 + 8);
    kit_run(1200);
    assert_true(kit_stats(client).commands <= commands + 2);
    shutdown_status = KIT_NOTHING;
    assert_int_equal(rlock_client_shutdown(client, 1000, on_shutdown, NULL), RLOCK_OK);
    assert_true(kit_until(is_shut, NULL, 3000));
    assert_int_equal(shutdown_status, RLOCK_OK);
}

static int slots_are_served(void *arg) {
    (void)arg;
    return strstr(str(ask(&odd, "CLUSTER INFO")), "cluster_state:ok") != NULL;
}

static void odd_server_ends(void) {
    kit_reset();
    kit_hand_drop();
    server_stop(&odd);
}

static void keys_of_two_slots_are_refused_and_leave_nothing(void **state) {
    char bus[8];
    const char *args[] = {"--cluster-enabled", "yes", "--cluster-port", bus, NULL};
    const char *keys[] = {"{a}", "{b}"};
    rlock_options options;
    rlock_config config;
    rlock_client *client;

    (void)state;
    odd.port = server_free_port();
    snprintf(bus, sizeof bus, "%d", server_free_port());
    assert_int_equal(server_start(&odd, args), 0);
    tell(ask(&odd, "CLUSTER ADDSLOTSRANGE 0 16383"));
    assert_true(kit_until(slots_are_served, NULL, 10000));
    config = kit_config(&odd);
    client = kit_client(&config);
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 2;
    fails_and_leaves_nothing(client, owner_with(client, &options), "CROSSSLOT");
    odd.port = 0;
    odd_server_ends();
}

static void command_that_the_server_does_not_know_leaves_nothing(void **state) {
    static const char *const names[][2] = {{"EVALSHA", "unknown command"},
                                           {"EVAL", "unknown command"},
                                           {"SET", "unknown command"},
                                           {"HSET", "called from script"}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *args[] = {"--rename-command", names[i][0], "", NULL};
        rlock_config config;
        rlock_client *client;

        assert_int_equal(server_start(&odd, args), 0);
        config = kit_config(&odd);
        config.wire = strcmp(names[i][0], "SET") == 0 ? RLOCK_WIRE_STRING : RLOCK_WIRE_REDISSON;
        client = kit_client(&config);
        fails_and_leaves_nothing(client, owner_new(client, "k"), names[i][1]);
        odd_server_ends();
    }
}

/* As ElastiCache Serverless does. What needs no clock works. */
static void server_that_forbids_time_in_scripts_says_so_and_keeps_nothing(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_FAIR, RLOCK_KIND_MUTEX};
    const char *args[] = {"--rename-command", "TIME", "", NULL};
    rlock_config config;
    rlock_client *client;
    size_t i;

    (void)state;
    assert_int_equal(server_start(&odd, args), 0);
    for (i = 0; i < 2; i++) {
        rlock_options options;
        struct owner *plain;

        config = kit_config(&odd);
        client = kit_client(&config);
        plain = owner_new(client, "plain");
        assert_int_equal(owner_acquire(plain, 0, 0), RLOCK_OK);
        assert_int_equal(owner_release(plain), RLOCK_OK);
        memset(&options, 0, sizeof options);
        options.key = "k";
        options.kind = kinds[i];
        options.fencing = true;
        fails_and_leaves_nothing(client, owner_with(client, &options),
                                 "fences, queues and quarantine need TIME in scripts: ");
    }
    kit_reset();
    config = kit_config(&odd);
    config.quarantine_ms = 60000;
    client = kit_client(&config);
    assert_int_equal(owner_acquire(owner_new(client, "plain"), 0, 0), RLOCK_ERR_SERVER);
    assert_non_null(strstr(kit_log_text, "quarantine need TIME in scripts"));
    odd_server_ends();
}

/* The script of a queued kind may fail after it has given a position, but not with this error. */
static void script_that_the_server_never_runs_leaves_no_place(void **state) {
    static const char *const answers[] = {"-NOSCRIPT No matching script. Please use EVAL.\r\n",
                                          "-ERR unknown command 'EVAL'\r\n",
                                          "-ERR wrong number of arguments for 'eval' command\r\n"};
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR};
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        for (k = 0; k < 2; k++) {
            rlock_options options;
            struct owner *o;

            stage_begins();
            stage_lies("EVAL", answers[i], true, false);
            memset(&options, 0, sizeof options);
            options.key = "k";
            options.kind = kinds[k];
            options.fencing = true;
            o = owner_with(stage_client(RLOCK_WIRE_STRING), &options);
            assert_int_equal(stage_acquire(o, 0, 30000), RLOCK_ERR_SERVER);
            stage_runs(5000);
            assert_int_equal(stage.told[0], i == 0 ? 2 : 1);
            assert_int_equal(kit_stats(kit_clients[0]).cleaning, 0);
        }
    }
}

/* An unknown error, which a proxy may have of its own: the request may have been executed. */
static void words_that_are_not_known_may_stand_for_anything(void **state) {
    static const char *const answers[] = {
        "-ERR Connection timed out\r\n",
        "-ERR Connection timed out for 'k, on @user_script:1.'\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        stage_begins();
        stage_lies("SET", answers[i], true, false);
        assert_int_equal(stage_acquire(stage_owner(RLOCK_WIRE_STRING, "k"), 0, 1000),
                         RLOCK_ERR_SERVER);
        stage_runs(0);
        assert_true(stage_heard(by_sha(rlock__lua_string_release)));
    }
}

/* A server that refuses for now did nothing: a waiter tries again, and nothing is cleaned up. */
static void refusal_for_now_is_tried_again_and_leaves_nothing(void **state) {
    static const char *const answers[] = {"-LOADING the dataset\r\n", "-BUSY a script runs\r\n"};
    static const int64_t waits_ms[] = {0, 5000};
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        for (k = 0; k < 2; k++) {
            int status;

            stage_begins();
            stage_lies("SET", answers[i], true, true);
            status = stage_acquire(stage_owner(RLOCK_WIRE_STRING, "k"), waits_ms[k], 1000);
            assert_int_equal(status, waits_ms[k] ? RLOCK_OK : RLOCK_ERR_SERVER);
            stage_runs(0);
            assert_false(stage_heard(by_sha(rlock__lua_string_release)));
        }
    }
}

/* An error from inside the script of the queued kinds may come after it has given a position. */
static void error_inside_the_script_of_a_queue_is_cleaned_up_behind(void **state) {
    static const char *const answers[] = {
        "-ERR user_script:1: attempt to compare nil script: 1f, on @user_script:1.\r\n",
        "-ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: Unknown Redis "
        "command called from Lua script\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_options options;
        struct owner *o;

        stage_begins();
        stage_lies("EVAL", answers[i], true, true);
        memset(&options, 0, sizeof options);
        options.key = "taken";
        options.kind = RLOCK_KIND_FAIR;
        o = owner_with(stage_client(RLOCK_WIRE_STRING), &options);
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_SERVER);
        stage_runs(0);
        assert_int_equal(stage_count("EVALSHA"), 2); /* the try, and the release */
    }
}

#endif /* TESTS_FAULTS_REFUSALS_H */
