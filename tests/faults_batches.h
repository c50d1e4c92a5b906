/* faults_batches.h - many renewals in one command */
#ifndef TESTS_FAULTS_BATCHES_H
#define TESTS_FAULTS_BATCHES_H

#define BATCH 3

static struct owner *batch[BATCH];
static char batch_keys[BATCH][6000];

/* Makes three holds of a client with keys of that length; their renewals are in flight in one
 * command. */
static rlock_client *batch_aged(size_t key_len, int64_t last_lease_ms, int64_t age_ms) {
    rlock_options options;
    rlock_client *client;
    int i;

    stage_begins();
    client = stage_client(RLOCK_WIRE_STRING);
    memset(&options, 0, sizeof options);
    options.key_len = key_len;
    for (i = 0; i < BATCH; i++) {
        memset(batch_keys[i], 'a' + i, sizeof batch_keys[i]);
        options.key = batch_keys[i];
        batch[i] = owner_with(client, &options);
        assert_int_equal(stage_acquire(batch[i], 0, 1000), RLOCK_OK);
    }
    stage_runs(age_ms);
    stage.trail[0] = '\0';
    for (i = 0; i < BATCH; i++) {
        assert_int_equal(rlock_renew(batch[i]->lock, i == BATCH - 1 ? last_lease_ms : 3000,
                                     owner_told, batch[i]),
                         RLOCK_OK);
    }
    return client;
}

static rlock_client *batch_of(size_t key_len, int64_t last_lease_ms) {
    return batch_aged(key_len, last_lease_ms, 0);
}

#define RENEW_ALONE by_sha(rlock__lua_string_renew)

/* Each renewal ends with this status, and each key is held. The lease is longer only after OK. */
static void batch_ends(int status) {
    int i;

    for (i = 0; i < BATCH; i++) {
        assert_int_equal(stage_wait(batch[i], RLOCK_RENEWED, 2000), status);
        assert_int_equal(batch[i]->seen[RLOCK_RENEWED], 1);
        assert_true(rlock_is_held(batch[i]->lock));
        assert_int_equal(rlock_remaining_ms(batch[i]->lock) > 1000, status == RLOCK_OK);
    }
}

static void renewals_of_a_batch_are_as_exact_as_alone(void **state) {
    static const struct {
        const char *answer;
        bool once;
        int status, alone, faults;
        bool batches; /* from then on */
    } rows[] = {
        {"$3\r\n111\r\n", true, RLOCK_OK, 0, 0, true},
        {"$3\r\n101\r\n", true, RLOCK_OK, 1, 0, true},
        {"$3\r\n000\r\n", true, RLOCK_OK, 3, 0, true},
        {"$3\r\n1x2\r\n", true, RLOCK_OK, 2, 0, true},
        {"-NOSCRIPT No matching script.\r\n", true, RLOCK_OK, 0, 0, true},
        {"-ERR Unsupported option GT script: f_1\r\n", false, RLOCK_OK, 3, 0, false},
        {"-NOPERM this user has no permissions\r\n", false, RLOCK_OK, 3, 0, false},
        {"-BUSY Redis is busy running a script.\r\n", true, RLOCK_ERR_SERVER, 0, 0, true},
        {"-OOM command not allowed\r\n", true, RLOCK_ERR_SERVER, 0, 0, true},
        {"$2\r\n11\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {"$4\r\n1111\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {"+111\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {"$-1\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {":1\r\n", true, RLOCK_ERR_SERVER, 0, 1, true}, /* an answer to another command */
        {":0\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {":-1\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {"*1\r\n$3\r\n111\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_client *client = batch_of(10, 3000);
        int k, again;

        stage_lies(RENEW_MANY, rows[i].answer, true, rows[i].once);
        batch_ends(rows[i].status);
        assert_int_equal(stage.told[0], 1);
        assert_int_equal(stage_count(RENEW_ALONE), rows[i].alone);
        assert_int_equal(kit_stats(client).faults, rows[i].faults);
        stage_runs(200); /* there is a connection again */
        again = stage_count(RENEW_ALONE);
        for (k = 0; k < BATCH; k++) {
            assert_int_equal(rlock_renew(batch[k]->lock, 3000, owner_told, batch[k]), RLOCK_OK);
        }
        for (k = 0; k < BATCH; k++) {
            assert_int_equal(stage_wait(batch[k], RLOCK_RENEWED, 2000), RLOCK_OK);
        }
        assert_int_equal(stage_count(RENEW_ALONE) - again, rows[i].batches ? 0 : BATCH);
    }
}

static void batch_that_the_server_never_knows_is_not_asked_for_ever(void **state) {
    (void)state;
    batch_of(10, 3000);
    stage_lies(RENEW_MANY, "-NOSCRIPT No matching script.\r\n", true, false);
    stage_lies(RENEW_MANY_IN_FULL, "-NOSCRIPT No matching script.\r\n", true, false);
    batch_ends(RLOCK_OK);
    assert_int_equal(stage.told[0] + stage.told[1], 2);
    assert_int_equal(stage_count(RENEW_ALONE), BATCH);
}

static void batch_without_an_answer_is_unknown_for_each(void **state) {
    (void)state;
    batch_aged(10, 3000, 150); /* they are tracked by now */
    stage_lies(RENEW_MANY, "", true, true);
    batch_ends(RLOCK_ERR_UNKNOWN);
    stage_runs(400);
    assert_true(rlock_remaining_ms(batch[0]->lock) > 0); /* checked when there was a connection */
}

/* The renewals of one command have one lease, and keys that are not too long in all. */
static void batch_has_room_for_what_is_alike(void **state) {
    (void)state;
    batch_of(10, 3000);
    batch_ends(RLOCK_OK);
    assert_int_equal(stage_count(RENEW_MANY), 1);
    assert_int_equal(stage_count(RENEW_ALONE), 0);
    batch_of(10, 4000);
    batch_ends(RLOCK_OK);
    assert_int_equal(stage_count(RENEW_MANY), 1);
    assert_int_equal(stage_count(RENEW_ALONE), 1);
    batch_of(sizeof batch_keys[0], 3000); /* two of them */
    batch_ends(RLOCK_OK);
    assert_int_equal(stage_count(RENEW_MANY), 1);
    assert_int_equal(stage_count(RENEW_ALONE), 1);
}

/* Its place stays empty, and the other answers still reach their renewals. */
static void renewal_that_is_forgotten_leaves_its_batch_in_order(void **state) {
    int gone;

    (void)state;
    for (gone = 0; gone < BATCH; gone++) {
        int i;

        batch_of(10, 3000);
        stage_lies(RENEW_MANY,
                   gone == 0   ? "$3\r\n011\r\n"
                   : gone == 1 ? "$3\r\n101\r\n"
                               : "$3\r\n110\r\n",
                   true, true);
        stage_fires(); /* the command is written */
        assert_int_equal(rlock_release(batch[gone]->lock, owner_told, batch[gone]), RLOCK_OK);
        stage_runs(50);
        for (i = 0; i < BATCH; i++) {
            assert_int_equal(batch[i]->seen[RLOCK_RENEWED], 1);
            assert_int_equal(batch[i]->status[RLOCK_RENEWED],
                             i == gone ? RLOCK_ERR_CANCELED : RLOCK_OK);
            assert_int_equal(rlock_is_held(batch[i]->lock), i != gone);
        }
        assert_int_equal(batch[gone]->status[RLOCK_RELEASED], RLOCK_OK);
        assert_int_equal(stage_count(RENEW_ALONE), 0);
    }
}

static void batch_outlives_its_handles_and_its_client(void **state) {
    int i;

    (void)state;
    batch_of(10, 3000);
    stage_fires();
    for (i = 0; i < BATCH; i++) {
        rlock_free(batch[i]->lock);
        batch[i]->lock = NULL;
    }
    stage_runs(50);
    assert_int_equal(kit_stats(kit_clients[0]).cleaning, 0);
    batch_of(10, 3000);
    stage_fires();
    rlock_client_free(kit_clients[0]);
    kit_clients[0] = NULL;
    for (i = 0; i < BATCH; i++) {
        assert_int_equal(batch[i]->seen[RLOCK_RENEWED], 0);
    }
}

static void batch_for_which_there_is_no_memory_goes_alone_or_ends(void **state) {
    unsigned what;

    (void)state;
    batch_of(10, 3000);
    commands_last = 1;
    stage_fires();
    batch_ends(RLOCK_ERR_NOMEM);
    for (what = 1; what <= 2; what++) {
        batch_aged(10, 3000, 50); /* before the checks, which would need both */
        memory_lasts = what;      /* its text, or the list of its requests */
        stage_fires();
        assert_int_equal(memory_lasts, 0);
        batch_ends(RLOCK_OK);
        assert_int_equal(stage_count(RENEW_ALONE), 1);
        assert_int_equal(stage_count(RENEW_MANY), 1);
    }
}

/* Holds are renewed in one command even when no memory is left. */
static void batch_needs_no_memory_that_was_not_there_before(void **state) {
    struct owner *many[5];
    rlock_options options;
    rlock_client *client;
    int i;

    (void)state;
    client = batch_of(10, 3000);
    batch_ends(RLOCK_OK);
    for (i = 0; i < BATCH; i++) {
        assert_int_equal(stage_release(batch[i]), RLOCK_OK);
    }
    memset(&options, 0, sizeof options);
    options.key = batch_keys[0];
    for (i = 0; i < 5; i++) {
        options.key_len = (size_t)(3200 - i); /* other keys */
        many[i] = owner_with(client, &options);
        assert_int_equal(stage_acquire(many[i], 0, 0), RLOCK_OK);
    }
    memory_lasts = 1;
    memory_stays_out = true;
    stage.trail[0] = '\0';
    stage_hangs_up(stage_conn(false)); /* all are renewed when the connection is back */
    stage_runs(60000);
    for (i = 0; i < 5; i++) {
        assert_int_equal(many[i]->seen[RLOCK_LOST], 0);
        assert_true(rlock_is_held(many[i]->lock));
    }
    assert_true(stage_count(RENEW_MANY) > 0);
}

#endif /* TESTS_FAULTS_BATCHES_H */
