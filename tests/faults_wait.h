/* faults_wait.h - what counts when replicas have it: config.replicas
 *
 * Real replicas are asked in redis_wait.h.
 */
#ifndef TESTS_FAULTS_WAIT_H
#define TESTS_FAULTS_WAIT_H

#define REPLICAS 2

/* Returns a client on the stage whose server answers each WAIT so. */
static rlock_client *synced(const char *answer) {
    rlock_config config;
    rlock_client *client;

    stage_begins();
    stage_lies("WAIT", answer, true, false);
    config = stage_config(RLOCK_WIRE_STRING);
    config.replicas = REPLICAS;
    config.watchdog_lease_ms = 1000;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

/* From now on it answers so. */
static void waits_end_so(const char *answer) {
    memset(stage.lies, 0, sizeof stage.lies);
    stage_lies("WAIT", answer, true, false);
}

#define TOO_FEW "WAIT: too few replicas have it: 1 of 2"

/* A release with its script: what was granted is given back so. */
#define RELEASED_IN_FULL released_in_full()

static const char *released_in_full(void) {
    static char words[56];

    snprintf(words, sizeof words, "EVAL %.50s",
             whole(rlock__scripts[RLOCK__ROW_STRING][RLOCK_OP_RELEASE]));
    return words;
}

static void acquires_of(struct owner **owners, int count) {
    int i;

    for (i = 0; i < count; i++) {
        assert_int_equal(rlock_acquire(owners[i]->lock, 0, 0, owner_told, owners[i]), RLOCK_OK);
    }
}

/* One question for all grants of a loop iteration; nobody is told before it is answered. */
static void grants_of_one_turn_are_asked_about_once(void **state) {
    static const char *const keys[] = {"k0", "k1", "k2"};
    rlock_client *client = synced("");
    struct owner *owners[3];
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        owners[i] = i == 1 ? owner_fenced(client, keys[i]) : owner_new(client, keys[i]);
    }
    acquires_of(owners, 3);
    stage_runs(20);
    assert_int_equal(stage_count("WAIT 2"), 1);
    for (i = 0; i < 3; i++) {
        assert_int_equal(owners[i]->seen[RLOCK_ACQUIRED], 0);
    }
    stage_says(stage_conn(false), ":2\r\n");
    stage_runs(1);
    for (i = 0; i < 3; i++) {
        assert_int_equal(owners[i]->status[RLOCK_ACQUIRED], RLOCK_OK);
        assert_int_equal(owners[i]->seen[RLOCK_ACQUIRED], 1);
        assert_in_range(rlock_remaining_ms(owners[i]->lock), 950, 968); /* not counted from now */
    }
    assert_true(owners[1]->fence[RLOCK_ACQUIRED] > 0);
    assert_int_equal(owners[0]->fence[RLOCK_ACQUIRED], 0);
    stage.trail[0] = '\0';
    assert_int_equal(stage_release(owners[0]), RLOCK_OK);
    stage_runs(200);
    assert_int_equal(stage_count("WAIT"), 0); /* a release and a check need none */
}

static void grant_that_is_not_copied_is_given_back(void **state) {
    rlock_client *client = synced(":1\r\n");
    struct owner *once = owner_new(client, "k"), *fenced = owner_fenced(client, "k2");
    struct owner *waits = owner_new(client, "k3");
    int i;

    (void)state;
    assert_int_equal(stage_acquire(once, 0, 0), RLOCK_ERR_SERVER);
    assert_string_equal(once->text[RLOCK_ACQUIRED], TOO_FEW);
    assert_int_equal(stage_count(RELEASED_IN_FULL), 1);
    assert_int_equal(stage_acquire(fenced, 0, 0), RLOCK_ERR_SERVER);
    assert_int_equal(stage_count(RELEASED_IN_FULL), 2);
    assert_int_equal(kit_stats(client).cleaning, 0);
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
    stage_runs(2000);
    assert_int_equal(waits->seen[RLOCK_ACQUIRED], 0);
    i = stage_count(RELEASED_IN_FULL);
    assert_in_range(i, 6, 40);
    waits_end_so(":2\r\n");
    assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 500), RLOCK_OK);
    assert_int_equal(stage_count(RELEASED_IN_FULL), i);
}

/* It has the deadline of the renewal that was copied last. */
static void renewal_that_is_not_copied_does_not_count(void **state) {
    static const char *const keys[] = {"k0", "k1", "k2"};
    rlock_client *client = synced(":2\r\n");
    struct owner *owners[3];
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        owners[i] = owner_new(client, keys[i]);
    }
    acquires_of(owners, 3);
    stage_runs(1);
    waits_end_so(":1\r\n");
    for (i = 0; i < 3; i++) {
        assert_int_equal(rlock_renew(owners[i]->lock, 3000, owner_told, owners[i]), RLOCK_OK);
    }
    for (i = 0; i < 3; i++) {
        assert_int_equal(stage_wait(owners[i], RLOCK_RENEWED, 200), RLOCK_ERR_SERVER);
        assert_string_equal(owners[i]->text[RLOCK_RENEWED], TOO_FEW);
        assert_true(rlock_is_held(owners[i]->lock));
        assert_true(rlock_remaining_ms(owners[i]->lock) < 990);
    }
    waits_end_so(":3\r\n");
    assert_int_equal(stage_renew(owners[0], 3000), RLOCK_OK);
    assert_true(rlock_remaining_ms(owners[0]->lock) > 2900);
    waits_end_so(":0\r\n");
    stage_runs(900);
    assert_true(rlock_is_held(owners[1]->lock));
    stage_runs(100);
    assert_false(rlock_is_held(owners[1]->lock)); /* its watchdog has tried */
    assert_int_equal(owners[1]->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_true(rlock_is_held(owners[0]->lock));
    assert_int_equal(kit_stats(client).faults, 0);
}

/* Some of a batch are kept, others asked for alone; one is freed while its answer is kept. */
static void renewals_of_a_batch_are_synced_each(void **state) {
    static const char *const keys[] = {"k0", "k1", "k2", "k3"};
    static const struct {
        const char *batch, *wait;
        int waits, status;
    } rows[] = {{"$4\r\n0110\r\n", ":2\r\n", 2, RLOCK_OK},
                {"$4\r\n0110\r\n", ":1\r\n", 2, RLOCK_ERR_SERVER},
                {"$4\r\n1111\r\n", ":2\r\n", 1, RLOCK_OK},
                {"$4\r\n1111\r\n", "", 1, RLOCK_OK}};
    size_t n;
    int i;

    (void)state;
    for (n = 0; n < sizeof rows / sizeof rows[0]; n++) {
        rlock_client *client = synced(":2\r\n");
        struct owner *owners[4];

        for (i = 0; i < 4; i++) {
            owners[i] = owner_new(client, keys[i]);
        }
        acquires_of(owners, 4);
        stage_runs(1);
        waits_end_so(rows[n].wait);
        stage_lies(RENEW_MANY, rows[n].batch, true, false);
        stage.trail[0] = '\0';
        for (i = 0; i < 4; i++) {
            assert_int_equal(rlock_renew(owners[i]->lock, 3000, owner_told, owners[i]), RLOCK_OK);
        }
        stage_runs(20);
        if (*rows[n].wait == '\0') {
            rlock_free(owners[1]->lock);
            owners[1]->lock = NULL;
            stage_says(stage_conn(false), ":2\r\n");
            stage_runs(1);
        }
        assert_int_equal(stage_count("WAIT 2"), rows[n].waits);
        for (i = 0; i < 4; i++) {
            if (owners[i]->lock != NULL) {
                assert_int_equal(owners[i]->seen[RLOCK_RENEWED], 1);
                assert_int_equal(owners[i]->status[RLOCK_RENEWED], rows[n].status);
                assert_int_equal(rlock_remaining_ms(owners[i]->lock) > 2900,
                                 rows[n].status == RLOCK_OK);
            }
        }
    }
}

static void refused_wait_is_said_once_and_grants_nothing(void **state) {
    static const char *const answers[] = {"-NOPERM no permissions\r\n",
                                          "-ERR unknown command 'WAIT'\r\n"};
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_client *client = synced(answers[i]);
        struct owner *o = owner_new(client, "k");

        assert_int_equal(stage_acquire(o, 1000, 0), RLOCK_ERR_SERVER);
        assert_int_equal(strncmp(o->text[RLOCK_ACQUIRED], "WAIT is refused: ", 17), 0);
        assert_true(stage_count("WAIT 2") > 3);
        assert_int_equal(stage_count(RELEASED_IN_FULL), stage_count("WAIT 2"));
        assert_non_null(strstr(kit_log_text, "WAIT is refused: "));
        assert_null(strstr(strstr(kit_log_text, "WAIT is refused: ") + 1, "WAIT is refused: "));
    }
}

/* However the connection ends between a grant and its last answer: it is cleaned up. */
static void grant_that_is_cut_off_is_cleaned_up(void **state) {
    static const char *const waits[] = {"", ":1\r\n", "+OK\r\n", ":1\r\n", ":1\r\n"};
    static const char *const backs[] = {"", "", "", "-NOREPLICAS\r\n", "+OK\r\n"};
    int i;

    (void)state;
    for (i = 0; i < 5; i++) {
        rlock_client *client = synced(waits[i]);
        struct owner *o = owner_new(client, "k");

        stage_lies(RELEASED_IN_FULL, backs[i], true, true);
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_UNKNOWN);
        waits_end_so(":2\r\n");
        stage_runs(3000);
        assert_int_equal(kit_stats(client).cleaning, 0);
        assert_true(stage_count(RELEASED_IN_FULL) + stage_count(by_sha(RLOCK__SHA_STRING_RELEASE)) >
                    (*waits[i] == ':'));
    }
}

/* The token of each SET, the last one first. */
static char asked_with[2][64];

static const char *notes_tokens(const struct stage_conn *conn, const struct words *words) {
    (void)conn;
    if (strcmp(words->text[0], "SET") == 0) {
        memcpy(asked_with[1], asked_with[0], sizeof asked_with[0]);
        snprintf(asked_with[0], sizeof asked_with[0], "%s", words->text[2]);
    }
    return NULL;
}

/* A release of the token may still lie at a server, for as long as it stands still: so the waiter
 * asks with another token. */
static void grant_whose_give_back_is_lost_is_not_released_late(void **state) {
    rlock_client *client = synced(":1\r\n");
    struct owner *o = owner_new(client, "k");

    (void)state;
    memset(asked_with, 0, sizeof asked_with);
    stage.script = notes_tokens;
    stage_lies(RELEASED_IN_FULL, "", true, true);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    stage_runs(20);
    assert_int_equal(stage_count("SET k"), 1);
    assert_int_equal(stage_count(RELEASED_IN_FULL), 1);
    waits_end_so(":2\r\n");
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(stage_count("SET k"), 2);
    assert_string_not_equal(asked_with[0], asked_with[1]);
    stage_runs(2000);
    assert_int_equal(kit_stats(client).cleaning, 0);
}

/* Ends in each way while its answer is kept. */
static void waiter_may_leave_while_its_grant_is_synced(void **state) {
    int way;

    (void)state;
    for (way = 0; way < 4; way++) {
        rlock_client *client = synced("");
        struct owner *o = owner_new(client, "k");

        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
        stage_runs(20);
        assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
        if (way == 0) {
            assert_int_equal(rlock_cancel(o->lock), RLOCK_OK);
        } else if (way == 1) {
            rlock_free(o->lock);
            o->lock = NULL;
        } else if (way == 2) {
            kit_reset();
            continue;
        }
        stage_runs(1);
        stage_lies(RELEASED_IN_FULL, "", true, true); /* it does not answer that */
        stage_says(stage_conn(false), way == 3 ? ":1\r\n" : ":2\r\n");
        if (way == 3) {
            stage_runs(1);
            assert_int_equal(rlock_cancel(o->lock), RLOCK_OK); /* while it is given back */
        }
        waits_end_so(":2\r\n");
        stage_runs(2000);
        assert_int_equal(o->seen[RLOCK_ACQUIRED], way == 0 || way == 3);
        assert_int_equal(kit_stats(client).cleaning, 0);
        assert_int_equal(kit_stats(client).held, 0);
    }
}

/* Ends in each way while what was granted is given back. */
static void grant_may_be_cut_off_while_it_is_given_back(void **state) {
    enum { HANGS, ENDS, CLIENT_ENDS, LEAVES, LEAVES_REFUSED, WAYS };
    int way;

    (void)state;
    for (way = 0; way < WAYS; way++) {
        rlock_client *client = synced(":1\r\n");
        struct owner *o = owner_new(client, "k");

        stage_lies(RELEASED_IN_FULL, "", true, true);
        assert_int_equal(rlock_acquire(o->lock, 0, 0, owner_told, o), RLOCK_OK);
        stage_runs(5);
        assert_int_equal(stage_count(RELEASED_IN_FULL), 1);
        if (way == ENDS) {
            kit_reset();
            continue;
        }
        if (way == CLIENT_ENDS) { /* before its handle */
            rlock_client_free(client);
            kit_clients[0] = NULL;
            assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
            continue;
        }
        if (way == HANGS) {
            stage_hangs_up(stage_conn(false));
            stage_runs(5);
            assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
        } else {
            rlock_free(o->lock);
            o->lock = NULL;
            stage_says(stage_conn(false), way == LEAVES ? ":1\r\n" : "-ERR no\r\n");
        }
        waits_end_so(":2\r\n");
        stage_runs(3000);
        assert_int_equal(kit_stats(client).cleaning, 0);
        assert_int_equal(kit_stats(client).held, 0);
    }
}

/* hiredis has no memory for the WAIT, or for what follows it. */
static void wait_that_cannot_be_sent_leaves_nothing(void **state) {
    unsigned n;

    (void)state;
    for (n = 1; n < 12; n++) {
        rlock_client *client = synced(":1\r\n");
        struct owner *o = owner_new(client, "k");
        int status;

        commands_last = n;
        status = stage_acquire(o, 0, 1000);
        assert_true(status == RLOCK_ERR_SERVER || status == RLOCK_ERR_UNKNOWN ||
                    status == RLOCK_ERR_CONN || status == RLOCK_ERR_NOMEM);
        commands_last = 0;
        stage_runs(3000);
        assert_int_equal(kit_stats(client).cleaning, 0);
    }
}

static void time_for_replicas_is_bounded(void **state) {
    static const struct {
        int64_t replicas_ms, timeout_ms, has_ms; /* 0: refused */
        int replicas;
    } rows[] = {{0, 1000, 250, 1}, {500, 1000, 500, 1}, {501, 1000, 0, 1}, {1, 2, 1, 1},
                {0, 1, 0, 1},      {900, 1000, 900, 0}, {1, 1, 0, 1},      {0, 100, 25, 100},
                {0, 1000, 0, 101}, {0, 1000, 0, -1}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config;
        rlock_client *client = NULL;

        stage_begins();
        config = stage_config(RLOCK_WIRE_STRING);
        config.replicas = rows[i].replicas;
        config.replicas_ms = rows[i].replicas_ms;
        config.command_timeout_ms = rows[i].timeout_ms;
        if (rows[i].has_ms == 0) {
            assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
            assert_non_null(strstr(kit_log_text, "config.replicas"));
        } else {
            client = kit_client(&config);
            assert_non_null(client);
            assert_int_equal(((rlock__redis *)client->store_state)->sync.ms, rows[i].has_ms);
        }
    }
}

#endif /* TESTS_FAULTS_WAIT_H */
