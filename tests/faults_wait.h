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

#define TOO_FEW "WAIT: too few replicas confirmed the write: 1 of 2"

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
        assert_true(stage_count(RELEASED_IN_FULL) + stage_count(by_sha(rlock__lua_string_release)) >
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

/* ---- one WAIT is out at a time ---- */

#define WAIT_MS 20 /* a replica is so far away */

/* From now on each WAIT blocks its connection for so long, and ends so. */
static void waits_take(int64_t ms, const char *answer) {
    waits_end_so("");
    stage.wait_us = ms * 1000;
    stage.wait_ends = answer;
}

/* Returns a client whose key is held, and whose server has been asked nothing since. */
static struct owner *held_beside(rlock_client *client) {
    struct owner *o = owner_new(client, "held");

    assert_int_equal(stage_acquire(o, 0, 0), RLOCK_OK);
    stage.trail[0] = '\0';
    return o;
}

/* The server runs nothing of a client behind a WAIT of it that is out: so what is granted while one
 * is out waits for that one and for one more, however many turns it came in. */
static void question_is_out_once_at_a_time(void **state) {
    rlock_client *client = synced(":2\r\n");
    struct owner *owners[3];
    int i;

    (void)state;
    held_beside(client);
    for (i = 0; i < 3; i++) {
        owners[i] = owner_new(client, i == 0 ? "k0" : i == 1 ? "k1" : "k2");
    }
    waits_end_so("");
    for (i = 0; i < 3; i++) { /* each in a turn of its own */
        assert_int_equal(rlock_acquire(owners[i]->lock, 0, 0, owner_told, owners[i]), RLOCK_OK);
        stage_runs(5);
    }
    assert_int_equal(stage_count("WAIT 2"), 1);
    assert_int_equal(stage_count("SET k"), 1); /* the others stand behind it */
    stage_says(stage_conn(false), ":2\r\n");
    stage_runs(5);
    assert_int_equal(owners[0]->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(stage_count("SET k"), 3);
    assert_int_equal(stage_count("WAIT 2"), 2);
    assert_int_equal(owners[1]->seen[RLOCK_ACQUIRED] + owners[2]->seen[RLOCK_ACQUIRED], 0);
    stage_says(stage_conn(false), ":2\r\n");
    stage_runs(5);
    assert_int_equal(owners[1]->seen[RLOCK_ACQUIRED], 1);
    assert_int_equal(owners[2]->seen[RLOCK_ACQUIRED], 1);
    assert_int_equal(owners[2]->status[RLOCK_ACQUIRED], RLOCK_OK);
    stage_runs(100);
    assert_int_equal(stage_count("WAIT 2"), 2);
}

#define CROWD 200

/* Each handle of a crowd acquires again and again, without waiting. */
static struct crowd {
    struct owner *owners[CROWD];
    int64_t asked_us[CROWD], longest_us;
    int granted, refused, other, next;
    const char *words;
} crowd;

static void crowd_let_go(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)event;
    crowd.asked_us[(struct owner **)user - crowd.owners] = 0;
}

static void crowd_told(rlock *lock, const rlock_event *event, void *user) {
    int i = (int)((struct owner **)user - crowd.owners);
    int64_t took_us = stage.now_us - crowd.asked_us[i];

    crowd.longest_us = took_us > crowd.longest_us ? took_us : crowd.longest_us;
    if (event->status == RLOCK_OK) {
        crowd.granted++;
        assert_int_equal(rlock_release(lock, crowd_let_go, user), RLOCK_OK);
        return;
    }
    crowd.asked_us[i] = 0;
    crowd.refused += event->status == RLOCK_ERR_SERVER;
    crowd.other += event->status != RLOCK_ERR_SERVER;
    crowd.words =
        event->text != NULL &&
                strcmp(event->text, "WAIT: too few replicas confirmed the write: 0 of 2") == 0
            ? "as they are"
            : "others";
}

static void crowd_begins(rlock_client *client) {
    static char keys[CROWD][8];
    int i;

    memset(&crowd, 0, sizeof crowd);
    for (i = 0; i < CROWD; i++) {
        snprintf(keys[i], sizeof keys[i], "c%d", i);
        crowd.owners[i] = owner_new(client, keys[i]);
    }
}

/* Has one of them acquire every so often, for so long. */
static void crowd_acquires(int64_t every_us, int64_t for_ms) {
    int64_t end_us = stage.now_us + for_ms * 1000, next_us = stage.now_us;

    while (stage.now_us < end_us) {
        int i = crowd.next;

        next_us += every_us;
        crowd.next = (i + 1) % CROWD;
        if (crowd.asked_us[i] == 0) { /* else it is as slow as that */
            crowd.asked_us[i] = stage.now_us;
            assert_int_equal(
                rlock_acquire(crowd.owners[i]->lock, 0, 5000, crowd_told, &crowd.owners[i]),
                RLOCK_OK);
        }
        while (stage.now_us < next_us && stage_iterates(next_us)) {
        }
    }
}

/* At any rate of acquires: each grant waits for at most two WAITs, each release for one, and the
 * hold that is renewed among them is held on. */
static void load_on_a_slow_replica_ends_no_hold(void **state) {
    static const int64_t every_us[] = {10000, 2000, 500};
    size_t n;

    (void)state;
    for (n = 0; n < sizeof every_us / sizeof every_us[0]; n++) {
        rlock_client *client = synced(":2\r\n");
        struct owner *held = held_beside(client);

        crowd_begins(client);
        waits_take(WAIT_MS, ":2\r\n");
        crowd_acquires(every_us[n], 5000);
        assert_true(rlock_is_held(held->lock));
        assert_int_equal(held->seen[RLOCK_LOST], 0);
        assert_true(crowd.granted > 400);
        assert_int_equal(crowd.refused + crowd.other, 0);
        assert_in_range(crowd.longest_us, WAIT_MS * 1000, 2 * WAIT_MS * 1000 + 2000);
        assert_in_range(kit_stats(client).cleaning, 0, CROWD);
        assert_true(kit_stats(client).up);
        assert_int_equal(stage_release(held), RLOCK_OK);
    }
}

/* No replica answers: acquires are refused in the words that say so, a hold of before ends by its
 * deadline and not earlier, and all is as ever once one is back. */
static void load_without_replicas_is_refused_in_time(void **state) {
    rlock_client *client = synced(":2\r\n");
    int64_t wait_ms = TIMEOUT_MS / 4, left_ms;
    struct owner *held = held_beside(client);

    (void)state;
    crowd_begins(client);
    left_ms = rlock_remaining_ms(held->lock);
    assert_true(left_ms > 900);
    waits_take(wait_ms, ":0\r\n");
    crowd_acquires(1000, left_ms - 2);
    assert_true(rlock_is_held(held->lock)); /* its renewals do not count */
    crowd_acquires(1000, 5);
    assert_int_equal(held->seen[RLOCK_LOST], 1);
    assert_int_equal(held->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    crowd_acquires(1000, 4000);
    assert_int_equal(crowd.granted + crowd.other, 0);
    assert_true(crowd.refused > CROWD);
    assert_string_equal(crowd.words, "as they are");
    assert_true(crowd.longest_us <= 2 * wait_ms * 1000 + 2000);
    assert_true(kit_stats(client).up);
    assert_int_equal(kit_stats(client).connects, 2);
    waits_take(1, ":2\r\n");
    crowd_acquires(1000, 2 * wait_ms);
    crowd.granted = crowd.refused = 0;
    crowd.longest_us = 0;
    crowd_acquires(1000, 1000);
    assert_true(crowd.granted > 500);
    assert_int_equal(crowd.refused + crowd.other, 0);
    assert_true(crowd.longest_us < 4000);
    assert_int_equal(kit_stats(client).faults, 0);
}

/* Waiters for keys that are free are all served soon after a replica is back. */
static void waiters_are_granted_soon_after_a_replica_is_back(void **state) {
    rlock_client *client = synced(":2\r\n");
    int granted = 0, i;

    (void)state;
    held_beside(client);
    crowd_begins(client);
    waits_take(TIMEOUT_MS / 4, ":0\r\n");
    for (i = 0; i < CROWD; i++) {
        struct owner *o = crowd.owners[i];

        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        stage_runs(10);
    }
    stage_runs(5000);
    waits_take(WAIT_MS, ":2\r\n");
    stage_runs(3000);
    for (i = 0; i < CROWD; i++) {
        granted += crowd.owners[i]->seen[RLOCK_ACQUIRED];
    }
    assert_int_equal(granted, CROWD);
}

/* A WAIT has ended, and what came behind it is granted but not asked about yet: the connection ends
 * just then, or has to be left. */
static void grant_between_two_questions_is_not_forgotten(void **state) {
    enum { NOBODY_ASKED, STRAYS, WAYS };
    int way;

    (void)state;
    for (way = 0; way < WAYS; way++) {
        rlock_client *client = synced(":2\r\n");
        struct owner *first = owner_new(client, "k0"), *second = owner_new(client, "k1");
        struct owner *third = owner_new(client, "k2");
        struct stage_conn *conn;

        held_beside(client);
        conn = stage_conn(false);
        waits_end_so("");
        assert_int_equal(rlock_acquire(first->lock, 0, 0, owner_told, first), RLOCK_OK);
        stage_runs(5);
        assert_int_equal(rlock_acquire(second->lock, 0, 0, owner_told, second), RLOCK_OK);
        stage_runs(5);
        assert_int_equal(rlock_acquire(third->lock, 0, 0, owner_told, third), RLOCK_OK);
        stage_runs(5);
        assert_int_equal(stage_count("SET k"), 1);
        conn->len = 0; /* what it has read it answers here, in one write */
        if (way == NOBODY_ASKED) {
            stage_says(conn, ":2\r\n+OK\r\n+OK\r\n:7\r\n");
        } else {
            stage_says(conn, ":2\r\n+OK\r\n-READONLY You can't write against a replica.\r\n");
        }
        assert_true(stage_looks());
        assert_int_equal(first->status[RLOCK_ACQUIRED], RLOCK_OK);
        if (way == NOBODY_ASKED) {
            assert_int_equal(second->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
            assert_int_equal(third->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
            assert_int_equal(second->seen[RLOCK_ACQUIRED] + third->seen[RLOCK_ACQUIRED], 2);
        } else {
            assert_int_equal(third->status[RLOCK_ACQUIRED], RLOCK_ERR_SERVER);
            assert_int_equal(second->seen[RLOCK_ACQUIRED], 0);
            stage_runs(1);
            assert_int_equal(stage_count("WAIT 2"), 2);
            stage_says(conn, ":2\r\n");
            stage_runs(1);
            assert_int_equal(second->seen[RLOCK_ACQUIRED], 1);
            assert_int_equal(second->status[RLOCK_ACQUIRED], RLOCK_OK);
        }
        stage.trail[0] = '\0';
        waits_end_so(":2\r\n");
        stage_runs(3000);
        assert_int_equal(kit_stats(client).cleaning, 0);
    }
}

/* Says which tokens are released on the push connection. */
static char released_aside[256];

static const char *notes_releases_aside(const struct stage_conn *conn, const struct words *words) {
    if (conn->watching && words->count > 3 && strncmp(words->text[0], "EVAL", 4) == 0) {
        snprintf(released_aside + strlen(released_aside),
                 sizeof released_aside - strlen(released_aside), "%s ", words->text[3]);
    }
    return stage.client == NULL ? "" : NULL; /* it hears no answer any more */
}

/* The server drops what stands behind a WAIT when its connection ends: the push connection is there
 * for the releases, whether anything is to be heard on it or not. */
static void client_that_is_freed_during_a_wait_releases_its_holds(void **state) {
    static const char *const lies[] = {NULL, "CLIENT TRACKING", "SUBSCRIBE", "CLIENT ID"};
    size_t n;

    (void)state;
    for (n = 0; n < sizeof lies / sizeof lies[0]; n++) {
        rlock_client *client = synced(":2\r\n");
        struct owner *held[2], *asks = owner_new(client, "k2"), *last = owner_new(client, "k3");

        if (lies[n] != NULL) {
            stage_lies(lies[n], "-NOPERM this user has no permissions\r\n", true, false);
        }
        stage.script = notes_releases_aside;
        held[0] = owner_new(client, "k0");
        held[1] = owner_new(client, "k1");
        acquires_of(held, 2);
        stage_runs(2000);
        assert_true(rlock_is_held(held[1]->lock));
        waits_end_so("");
        assert_int_equal(rlock_acquire(asks->lock, 0, 0, owner_told, asks), RLOCK_OK);
        stage_runs(5);
        assert_int_equal(rlock_release(held[0]->lock, owner_told, held[0]), RLOCK_OK);
        assert_int_equal(rlock_acquire(last->lock, 0, 0, owner_told, last), RLOCK_OK);
        stage_runs(5);
        stage.trail[0] = released_aside[0] = '\0';
        rlock_client_free(client);
        kit_clients[0] = NULL;
        stage_serves();
        assert_int_equal(strncmp(stage.trail, "UNSUBSCRIBE ", 12), 0);
        assert_int_equal(stage_count("CLIENT REPLY"), 1);
        assert_int_equal(stage_count(RELEASED_IN_FULL), 1);
        assert_non_null(strstr(released_aside, "k0 "));
        assert_non_null(strstr(released_aside, "k1 "));
        assert_non_null(strstr(released_aside, "k2 "));
        assert_non_null(strstr(released_aside, "k3 "));
    }
}

/* Without a WAIT that is out one connection says it all. */
static void client_that_is_freed_without_a_wait_releases_once(void **state) {
    rlock_client *client = synced(":2\r\n");
    struct owner *held = held_beside(client);

    (void)state;
    stage_runs(500);
    assert_true(rlock_is_held(held->lock));
    stage.script = notes_releases_aside;
    stage.trail[0] = released_aside[0] = '\0';
    rlock_client_free(client);
    kit_clients[0] = NULL;
    stage_serves();
    assert_int_equal(stage_count(RELEASED_IN_FULL), 1);
    assert_string_equal(released_aside, "");
}

/* A WAIT is out, and the push connection has just gone: one connection says what can be said. */
static void client_without_its_push_connection_is_freed_during_a_wait(void **state) {
    rlock_client *client = synced(":2\r\n");
    struct owner *held = held_beside(client), *asks = owner_new(client, "k");

    (void)state;
    stage_runs(500);
    waits_end_so("");
    stage.script = notes_releases_aside;
    assert_int_equal(rlock_acquire(asks->lock, 0, 0, owner_told, asks), RLOCK_OK);
    stage_runs(5);
    assert_true(rlock_is_held(held->lock));
    stage_hangs_up(stage_conn(true));
    stage_looks();
    assert_false(kit_stats(client).pushing);
    stage.trail[0] = released_aside[0] = '\0';
    rlock_client_free(client);
    kit_clients[0] = NULL;
    stage_conn(false)->blocked_us = 0; /* the WAIT ends, so that the rest is heard */
    stage_serves();
    assert_int_equal(stage_count("CLIENT REPLY"), 1);
    assert_int_equal(stage_count(RELEASED_IN_FULL), 1);
    assert_string_equal(released_aside, "");
}

static const char *handshake_without_push(const struct stage_conn *conn,
                                          const struct words *words) {
    return conn->watching && liar_hears(words, "INFO server") ? "" : NULL;
}

/* The first WAIT leaves when the push connection is there, or has failed. */
static void first_question_waits_for_the_push_connection(void **state) {
    int way;

    (void)state;
    for (way = 0; way < 2; way++) {
        rlock_client *client = synced(":2\r\n");
        struct owner *o = owner_new(client, "k");

        stage.script = handshake_without_push;
        assert_int_equal(rlock_acquire(o->lock, 0, 0, owner_told, o), RLOCK_OK);
        stage_runs(20);
        assert_true(stage_heard("SET k"));
        assert_false(stage_heard("WAIT"));
        assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
        stage.script = NULL;
        if (way == 0) {
            stage_says(stage_conn(true), "$0\r\n\r\n");
        } else {
            stage_hangs_up(stage_conn(true));
        }
        stage_runs(5);
        assert_int_equal(o->seen[RLOCK_ACQUIRED], 1);
        assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
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
    static const char short_of[] = /* replicas_ms is 0 where it was left out: it is not blamed */
        "config.replicas: config.command_timeout_ms must be at least three times "
        "config.replicas_ms, which is at least 1\n";
    static const struct {
        int64_t replicas_ms, timeout_ms, has_ms; /* 0: refused */
        int replicas;
    } rows[] = {{0, 1000, 250, 1}, {333, 1000, 333, 1}, {334, 1000, 0, 1}, {1, 3, 1, 1},
                {0, 1, 0, 1},      {0, 2, 0, 1},        {0, 3, 1, 1},      {0, 7, 1, 1},
                {0, 8, 2, 1},      {900, 1000, 900, 0}, {1, 2, 0, 1},      {0, 100, 25, 100},
                {0, 1000, 0, 101}, {0, 1000, 0, -1}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config;
        rlock_client *client = NULL;
        const rlock__sync *sync;

        stage_begins();
        config = stage_config(RLOCK_WIRE_STRING);
        config.replicas = rows[i].replicas;
        config.replicas_ms = rows[i].replicas_ms;
        config.command_timeout_ms = rows[i].timeout_ms;
        kit_log_text[0] = '\0';
        if (rows[i].has_ms == 0) {
            assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
            assert_string_equal(kit_log_text, rows[i].replicas == 1
                                                  ? short_of
                                                  : "config.replicas must be 1 to 100\n");
        } else {
            client = kit_client(&config);
            assert_non_null(client);
            sync = ((rlock__redis *)client->store_state)->sync;
            assert_int_equal(sync == NULL ? 0 : sync->ms,
                             rows[i].replicas == 0 ? 0 : rows[i].has_ms);
        }
    }
}

#endif /* TESTS_FAULTS_WAIT_H */
