/* faults_who.h - questions for descriptions that are refused, cut off, or answered with nonsense
 *
 * What real servers say of holders and waiters is tested in kinds_who.h.
 */
#ifndef TESTS_FAULTS_WHO_H
#define TESTS_FAULTS_WHO_H

#define WHO_ID "012345678901234567890123456789012345:" /* as long as that of a client, and ":" */

static struct {
    const char *names, *tokens, *info; /* what the server says */
    int told, status;
    size_t count;
    bool listed;
    char description[64], untold[64]; /* of the first */
} who;

static void on_who(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    who.told++;
    who.status = info->status;
    who.listed = info->who != NULL;
    who.count = info->who_count;
    snprintf(who.description, sizeof who.description, "%s",
             info->who_count > 0 && info->who[0].description ? info->who[0].description : "none");
    snprintf(who.untold, sizeof who.untold, "%s", info->untold ? info->untold : "");
}

/* Returns the words as a reply: those that begin with a sign are one already. */
static const char *as_reply(const char *words) {
    static char texts[4][2048];
    static unsigned next;
    char *text = texts[next++ % 4];

    if (*words == '\0' || strchr("+-:*$", *words) != NULL) {
        return words;
    }
    snprintf(text, sizeof texts[0], "$%u\r\n%s\r\n", (unsigned)strlen(words), words);
    return text;
}

static const char *who_in_full(void) {
    static char words[56];

    snprintf(words, sizeof words, "EVAL %.50s", whole(rlock__lua_who));
    return words;
}

static const char *who_answers(const struct stage_conn *conn, const struct words *words) {
    (void)conn;
    if (liar_hears(words, "CLIENT LIST")) {
        return as_reply(who.names);
    }
    if (liar_hears(words, who_in_full())) {
        return as_reply(who.tokens);
    }
    return liar_hears(words, by_sha(rlock__lua_string_inspect)) ? as_reply(who.info) : NULL;
}

static int asks_who(rlock_client *client, const char *key) {
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = key;
    who.told = 0;
    return rlock_describe(client, &options, on_who, NULL);
}

/* Returns a client on a stage where all is answered well, which has connected. */
static rlock_client *who_begins(void) {
    rlock_client *client;

    stage_begins();
    who.names = "id=1 name=rlock:" WHO_ID "the%20one db=0\n";
    who.tokens = "h 5000 38 " WHO_ID "7";
    who.info = "1 5000 0 1 -1 " WHO_ID "7";
    stage.script = who_answers;
    client = stage_client(RLOCK_WIRE_STRING);
    assert_int_equal(stage_acquire(owner_new(client, "other"), 0, 60000), RLOCK_OK);
    return client;
}

static void list_is_as_long_as_it_is_well_formed(void **state) {
    static const struct {
        const char *names, *tokens, *description;
        size_t count;
    } rows[] = {{NULL, NULL, "the one", 1},
                {NULL, "h 5000 38 " WHO_ID "7w -1 3 abc", "the one", 2},
                {NULL, "h 5000 38 " WHO_ID "7h 5 1", "the one", 1}, /* it ends too early */
                {NULL, "h 5", "none", 0},
                {NULL, "h-5000 3 abc", "none", 0},
                {NULL, "h 5000 3-abc", "none", 0},
                {NULL, "h 5000 30 abc", "none", 0},
                {NULL, "h 5000 3 abc", "none", 1}, /* a token of others is short, */
                {NULL, "h 5000 38 01234567890123456789012345678901234567", "none", 1},
                {"id=1 name=rlock:%41%41%41%41%41%41%41%41%41%41%41%41%41 x\n", NULL, "none", 1}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_client *client = who_begins();

        who.names = rows[i].names != NULL ? rows[i].names : who.names;
        who.tokens = rows[i].tokens != NULL ? rows[i].tokens : who.tokens;
        assert_int_equal(asks_who(client, "k"), RLOCK_OK);
        stage_runs(10);
        assert_int_equal(who.told, 1);
        assert_int_equal(who.status, RLOCK_OK);
        assert_int_equal(who.count, rows[i].count);
        assert_string_equal(who.description, rows[i].description);
    }
}

/* No more than have room in it. */
static void list_of_a_server_that_says_more_is_cut(void **state) {
    static char tokens[1500];
    rlock_client *client = who_begins();
    int i;

    (void)state;
    tokens[0] = '\0';
    for (i = 0; i <= (int)RLOCK__WHO_MAX; i++) {
        strcat(tokens, "h 5 1 a"); /* seven bytes */
    }
    who.tokens = tokens;
    assert_int_equal(asks_who(client, "k"), RLOCK_OK);
    stage_runs(10);
    assert_int_equal(who.status, RLOCK_OK);
    assert_int_equal(who.count, RLOCK__WHO_MAX);
}

/* What is refused first says why; the rest of the answer is that of any question. */
static void list_that_is_refused_comes_with_the_first_reason(void **state) {
    static const struct {
        const char *names, *tokens, *untold;
        bool listed;
    } rows[] = {{"-NOPERM first\r\n", NULL, "NOPERM first", true},
                {"-NOPERM first\r\n", "-NOPERM second\r\n", "NOPERM first", false},
                {NULL, "-NOPERM second\r\n", "NOPERM second", false}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_client *client = who_begins();

        who.names = rows[i].names != NULL ? rows[i].names : who.names;
        who.tokens = rows[i].tokens != NULL ? rows[i].tokens : who.tokens;
        assert_int_equal(asks_who(client, "k"), RLOCK_OK);
        stage_runs(10);
        assert_int_equal(who.status, RLOCK_OK);
        assert_int_equal(who.listed, rows[i].listed);
        assert_string_equal(who.untold, rows[i].untold);
        assert_int_equal(kit_stats(client).connects, 1);
    }
}

/* A reply of another type belongs to something else. The next connection asks as before. */
static void list_that_is_cut_off_is_an_unknown_answer(void **state) {
    static const char *const replies[] = {":1\r\n", "+OK\r\n", "*0\r\n", ""};
    size_t i, tokens;

    (void)state;
    for (i = 0; i < 4; i++) {
        for (tokens = 0; tokens < 2; tokens++) {
            rlock_client *client = who_begins();
            const char *names = who.names, *list = who.tokens, *info = who.info;

            *(tokens ? &who.tokens : &who.names) = replies[i];
            if (*replies[i] == '\0') { /* else what follows is taken for it */
                who.tokens = who.info = "";
            }
            assert_int_equal(asks_who(client, "k"), RLOCK_OK);
            stage_runs(1);
            if (*replies[i] == '\0') {
                stage_hangs_up(stage_conn(false));
            }
            stage_runs(1000);
            assert_int_equal(who.told, 1);
            assert_int_equal(who.status, RLOCK_ERR_UNKNOWN);
            assert_false(who.listed);
            who.names = names;
            who.tokens = list;
            who.info = info;
            assert_int_equal(asks_who(client, "k"), RLOCK_OK);
            stage_runs(10);
            assert_int_equal(who.count, 1);
            assert_string_equal(who.untold, "");
        }
    }
}

static void client_may_be_freed_while_a_list_is_asked_for(void **state) {
    rlock_client *client = who_begins();

    (void)state;
    who.names = who.tokens = who.info = "";
    assert_int_equal(asks_who(client, "k"), RLOCK_OK);
    stage_runs(1);
    assert_true(stage_heard("CLIENT LIST"));
    kit_reset();
    assert_null(stage.client);
    assert_int_equal(who.told, 0);
}

/* Answers at the node that a slot is on its way to. */
static const char *who_on_the_way(const struct stage_conn *conn, const struct words *words) {
    bool asked = conn->home == SERVER(2) || liar_hears(words, "CLIENT LIST");
    const char *said = asked ? who_answers(conn, words) : NULL;

    return said != NULL ? said : node_answers(conn, words);
}

/* Asks while memory is refused, ours or that of hiredis, on the way to a node too; then again. */
static void list_for_which_there_is_no_memory_is_refused_or_left_out(void **state) {
    unsigned way, n;

    (void)state;
    for (way = 0; way < 4; way++) {
        unsigned *const lasts = way % 2 ? &commands_last : &memory_lasts;
        bool ended = false;

        for (n = 1; !ended; n++) {
            rlock_client *client = who_begins();
            const char *key = "k";
            int status;

            if (way >= 2) {
                rlock_config config = fleet_begins();

                stage.script = who_on_the_way;
                client = kit_client(&config);
                key = key_of(0, 8191);
                assert_int_equal(stage_acquire(owner_new(client, key_of(0, 8191)), 0, 60000),
                                 RLOCK_OK);
                node_redirects(0, "ASK", slot_of(key), 2);
            }
            *lasts = n;
            status = asks_who(client, key);
            stage_runs(2000);
            ended = *lasts > 0;
            *lasts = 0;
            assert_int_equal(who.told, status == RLOCK_OK);
            assert_true(status == RLOCK_OK || status == RLOCK_ERR_NOMEM);
            assert_true(!ended || (who.status == RLOCK_OK && who.count == 1));
            assert_int_equal(asks_who(client, key), RLOCK_OK);
            stage_runs(2000);
            assert_int_equal(who.status, RLOCK_OK);
            assert_int_equal(who.count, 1);
            assert_string_equal(who.description, "the one");
        }
        assert_true(n > 3);
    }
}

#endif /* TESTS_FAULTS_WHO_H */
