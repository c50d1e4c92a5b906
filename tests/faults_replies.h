/* faults_replies.h - replies that no honest server gives, and errors of all kinds */
#ifndef TESTS_FAULTS_REPLIES_H
#define TESTS_FAULTS_REPLIES_H

/* --- replies that no honest server gives, each to the one command --- */

enum { LIE_ACQUIRE, LIE_FENCED, LIE_RENEW, LIE_RELEASE };

static void wrong_reply_is_no_answer_and_ends_the_connection(void **state) {
    static const struct {
        int to;
        rlock_wire wire;
        const char *answer;
    } rows[] = {
        {LIE_ACQUIRE, RLOCK_WIRE_STRING, "+NO\r\n"},
        {LIE_ACQUIRE, RLOCK_WIRE_STRING, ":1\r\n"},
        {LIE_ACQUIRE, RLOCK_WIRE_REDISSON, "$1\r\n5\r\n"}, /* a fencing token that was not wanted */
        {LIE_ACQUIRE, RLOCK_WIRE_REDISSON, "$-1\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "$1\r\n0\r\n"}, /* none, though one was wanted */
        {LIE_FENCED, RLOCK_WIRE_STRING, "$0\r\n\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "$3\r\n1a3\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "$3\r\n1/3\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "$20\r\n12345678901234567890\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, ":-2\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, ":9223372036854775807\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "+OK\r\n"},
        {LIE_RENEW, RLOCK_WIRE_STRING, ":2\r\n"},
        {LIE_RENEW, RLOCK_WIRE_STRING, ":-2\r\n"},
        {LIE_RENEW, RLOCK_WIRE_REDISSON, "$-1\r\n"},
        {LIE_RELEASE, RLOCK_WIRE_STRING, ":2\r\n"},
        {LIE_RELEASE, RLOCK_WIRE_REDISSON, "$1\r\n1\r\n"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool plain = rows[i].to == LIE_ACQUIRE && rows[i].wire == RLOCK_WIRE_STRING;
        rlock_client *client;
        struct owner *o;
        int status = RLOCK_OK;

        stage_begins();
        client = stage_client(rows[i].wire);
        o = rows[i].to == LIE_FENCED ? owner_fenced(client, "k") : owner_new(client, "k");
        if (rows[i].to >= LIE_RENEW) {
            assert_int_equal(stage_acquire(o, 0, 3000), RLOCK_OK);
        }
        stage_lies(plain ? "SET" : "EVALSHA", rows[i].answer, true, true);
        switch (rows[i].to) {
        case LIE_RENEW: status = stage_renew(o, 0); break;
        case LIE_RELEASE: status = stage_release(o); break;
        default: status = stage_acquire(o, 0, 3000);
        }
        if (stage.told[0] != 1 ||
            status != (rows[i].to == LIE_RELEASE ? RLOCK_OK : RLOCK_ERR_SERVER)) {
            print_error("row %u: status %d\n", (unsigned)i, status);
        }
        assert_int_equal(stage.told[0], 1);
        /* a release is repeated, and the honest answer to the second one counts */
        assert_int_equal(status, rows[i].to == LIE_RELEASE ? RLOCK_OK : RLOCK_ERR_SERVER);
        assert_int_equal(rlock_is_held(o->lock), rows[i].to == LIE_RENEW);
        assert_int_equal(kit_stats(client).faults, 1);
    }
}

/* For a queued kind a plus after the fencing token is a mark; for a mutex it is an error. */
static void fence_of_a_queued_kind_is_as_exact_and_may_have_its_mark(void **state) {
    static const struct {
        rlock_kind kind;
        bool fenced;
        const char *answer;
        int64_t fence; /* -1: it is no answer */
    } rows[] = {
        {RLOCK_KIND_FAIR, false, "$1\r\n0\r\n", 0},
        {RLOCK_KIND_FAIR, false, "$2\r\n0+\r\n", 0},
        {RLOCK_KIND_FAIR, true, "$2\r\n17\r\n", 17},
        {RLOCK_KIND_FAIR, true, "$3\r\n17+\r\n", 17},
        {RLOCK_KIND_FAIR, false, "$0\r\n\r\n", -1},
        {RLOCK_KIND_FAIR, false, "$1\r\n+\r\n", -1},
        {RLOCK_KIND_FAIR, true, "$3\r\n1++\r\n", -1},
        {RLOCK_KIND_FAIR, true, "$3\r\n1+7\r\n", -1},
        {RLOCK_KIND_FAIR, true, "$2\r\n0+\r\n", -1},
        {RLOCK_KIND_FAIR, false, "$3\r\n17+\r\n", -1},
        {RLOCK_KIND_MUTEX, true, "$3\r\n17+\r\n", -1},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_options options;
        struct owner *o;
        bool granted = rows[i].fence >= 0;
        int status;

        stage_begins();
        stage_lies("EVALSHA", rows[i].answer, true, true);
        memset(&options, 0, sizeof options);
        options.key = "k";
        options.kind = rows[i].kind;
        options.fencing = rows[i].fenced;
        o = owner_with(stage_client(RLOCK_WIRE_STRING), &options);
        status = stage_acquire(o, 0, 1000);
        if (status != (granted ? RLOCK_OK : RLOCK_ERR_SERVER)) {
            print_error("row %u: status %d\n", (unsigned)i, status);
        }
        assert_int_equal(status, granted ? RLOCK_OK : RLOCK_ERR_SERVER);
        assert_int_equal(rlock_fence(o->lock), granted ? rows[i].fence : 0);
        assert_int_equal(kit_stats(kit_clients[0]).faults, !granted);
    }
}

static void server_that_never_knows_a_script_is_not_asked_for_ever(void **state) {
    struct owner *o;
    int commands;

    (void)state;
    stage_begins();
    stage_lies("EVAL", "-NOSCRIPT No matching script.\r\n", true, false);
    o = stage_owner(RLOCK_WIRE_REDISSON, "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_SERVER);
    commands = stage.told[0];
    assert_int_equal(commands, 2); /* by its SHA-1, and in full; there is nothing to clean up */
}

/* --- a release by one command of the server, where there is one --- */

#define RELEASE by_sha(rlock__lua_string_release)

static void release_by_one_command_is_as_exact_as_by_script(void **state) {
    static const struct {
        const char *answer, *script;
        int status;
        rlock_reason reason;
        int faults;
        bool again; /* it is used from then on */
    } rows[] = {
        {":1\r\n", NULL, RLOCK_OK, RLOCK_REASON_NONE, 0, true},
        {":0\r\n", ":0\r\n", RLOCK_ERR_NOT_HELD, RLOCK_REASON_STOLEN, 0, true},
        {":0\r\n", ":-1\r\n", RLOCK_ERR_NOT_HELD, RLOCK_REASON_DELETED, 0, true},
        {":0\r\n", "-NOSCRIPT No matching script.\r\n", RLOCK_OK, RLOCK_REASON_NONE, 0, true},
        {"-NOPERM this user has no permissions\r\n", ":1\r\n", RLOCK_OK, RLOCK_REASON_NONE, 0,
         false},
        {"-WRONGTYPE Operation against a key\r\n", "-WRONGTYPE Operation against a key\r\n",
         RLOCK_ERR_NOT_HELD, RLOCK_REASON_STOLEN, 0, true},
        {"-BUSY Redis is busy\r\n", ":1\r\n", RLOCK_OK, RLOCK_REASON_NONE, 0, true},
        {"-ERR unknown command\r\n", ":1\r\n", RLOCK_OK, RLOCK_REASON_NONE, 0, true},
        {":2\r\n", NULL, RLOCK_OK, RLOCK_REASON_NONE, 1, true},
        {"+OK\r\n", NULL, RLOCK_OK, RLOCK_REASON_NONE, 1, true},
        {"$1\r\n1\r\n", NULL, RLOCK_OK, RLOCK_REASON_NONE, 1, true},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct owner *o;
        int before;

        stage_begins();
        stage_lies("DELIFEQ", rows[i].answer, true, true);
        stage_lies("COMMAND INFO", "*1\r\n*1\r\n$7\r\ndelifeq\r\n", true, false);
        if (rows[i].script != NULL) {
            stage_lies(RELEASE, rows[i].script, true, true);
        }
        o = stage_owner(RLOCK_WIRE_STRING, "k");
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_OK);
        assert_int_equal(stage_release(o), rows[i].status);
        assert_int_equal(o->reason[RLOCK_RELEASED], rows[i].reason);
        assert_int_equal(stage_count(RELEASE), rows[i].script != NULL);
        assert_int_equal(kit_stats(kit_clients[0]).faults, rows[i].faults);
        before = stage_count("DELIFEQ");
        assert_int_equal(stage_acquire(o, 1000, 1000), RLOCK_OK);
        assert_int_equal(stage_release(o), RLOCK_OK);
        assert_int_equal(stage_count("DELIFEQ") - before, rows[i].again);
    }
}

/* The second one was sent before the first was refused. That it worked changes nothing. */
static void release_by_one_command_is_given_up_for_good_by_a_refusal(void **state) {
    struct owner *o[2];
    int i;

    (void)state;
    stage_begins();
    stage_lies("DELIFEQ", "-NOPERM this user has no permissions\r\n", true, true);
    stage_lies("COMMAND INFO", "*1\r\n*1\r\n$7\r\ndelifeq\r\n", true, false);
    o[0] = stage_owner(RLOCK_WIRE_STRING, "k");
    o[1] = owner_new(kit_clients[0], "l");
    for (i = 0; i < 2; i++) {
        assert_int_equal(stage_acquire(o[i], 0, 1000), RLOCK_OK);
    }
    for (i = 0; i < 2; i++) {
        assert_int_equal(rlock_release(o[i]->lock, owner_told, o[i]), RLOCK_OK);
    }
    for (i = 0; i < 2; i++) {
        assert_int_equal(stage_wait(o[i], RLOCK_RELEASED, 60000), RLOCK_OK);
    }
    assert_int_equal(stage_count("DELIFEQ"), 2);
    assert_int_equal(stage_count(RELEASE), 1);
    assert_int_equal(stage_acquire(o[0], 0, 1000), RLOCK_OK);
    assert_int_equal(stage_release(o[0]), RLOCK_OK);
    assert_int_equal(stage_count("DELIFEQ"), 2);
    assert_int_equal(stage_count(RELEASE), 2);
}

/* Holds again on a connection that has released by DELIFEQ once. */
static struct owner *holder_that_knows_delifeq(void) {
    struct owner *o;

    stage_begins();
    stage_lies("COMMAND INFO", "*1\r\n*1\r\n$7\r\ndelifeq\r\n", true, true);
    o = stage_owner(RLOCK_WIRE_STRING, "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(stage_release(o), RLOCK_OK);
    assert_int_equal(stage_count("DELIFEQ"), 1);
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_OK);
    return o;
}

/* The next server may not have it. */
static void release_by_one_command_is_known_of_a_connection_only(void **state) {
    struct owner *o = holder_that_knows_delifeq();

    (void)state;
    stage_hangs_up(stage_conn(false));
    assert_int_equal(stage_release(o), RLOCK_OK);
    assert_int_equal(stage_count("DELIFEQ"), 1);
    assert_int_equal(stage_count(RELEASE), 1);
}

/* It may be forbidden since: nobody reads what the last write is answered. */
static void last_write_of_a_client_is_no_single_command(void **state) {
    char last[4096] = "";
    size_t i;

    (void)state;
    holder_that_knows_delifeq();
    kit_reset();
    for (i = 0; i < stage.count && strstr(last, "\r\nk\r\n") == NULL; i++) {
        ssize_t n = recv(stage.conns[i].fd, last, sizeof last - 1, MSG_DONTWAIT);

        last[n < 0 ? 0 : n] = 0;
    }
    assert_non_null(strstr(last, "\r\nk\r\n"));
    assert_non_null(strstr(last, "EVAL"));
    assert_null(strstr(last, "DELIFEQ"));
}

/* Before Redis 7 the reason stands inside the words of the script. */
static void error_inside_a_script_is_what_it_says_inside(void **state) {
    static const struct {
        const char *answer;
        int status;
    } rows[] = {
        {"-ERR Error running script (call to f_1f): @user_script:1: WRONGTYPE Operation against a "
         "key\r\n",
         RLOCK_ERR_WRONG_TYPE},
        {"-ERR Error running script (call to f_1f): @user_script:1: NOPERM this user\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR Error running script (call to f_1f): @user_script:1: OOM command not allowed\r\n",
         RLOCK_ERR_SERVER},
        {"-ERR Error running script (call to f_1f): WRONG\r\n", RLOCK_ERR_SERVER},
        {"-ERR Error running script: NOPERM\r\n", RLOCK_ERR_SERVER},
        {"-ERR Error running script (call to f_1f): @user_script:1\r\n", RLOCK_ERR_SERVER},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stage_begins();
        stage_lies("EVALSHA", rows[i].answer, true, false);
        assert_int_equal(stage_acquire(stage_owner(RLOCK_WIRE_REDISSON, "k"), 0, 1000),
                         rows[i].status);
    }
}

/* The name of a user or a key does not decide what an error means. */
static void name_of_a_user_or_a_key_is_no_code(void **state) {
    static const struct {
        const char *answer;
        int status;
    } rows[] = {
        {"-ERR The user executing the script can't access the READONLY key script: 1f, on "
         "@user_script:1.\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR ACL failure in script: User ROOMS has no permissions to run the 'get' command "
         "script: 1f, on @user_script:1.\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR ACL failure in script: User OOM has no permissions to access the 'MOVED' key "
         "script: 1f, on @user_script:1.\r\n",
         RLOCK_ERR_AUTH},
        {"-NOPERM User script:OOM has no permissions to run the 'evalsha' command\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: The user "
         "executing the script can't access the OOM key\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: -NOPERM "
         "OOM\r\n",
         RLOCK_ERR_AUTH},
        {"-WRONGTYPE the key script:READONLY\r\n", RLOCK_ERR_WRONG_TYPE},
        {"-\r\n", RLOCK_ERR_SERVER},
        {"-1.\r\n", RLOCK_ERR_SERVER},
        {"-WRONGTYPE: a proxy says\r\n", RLOCK_ERR_WRONG_TYPE},
        {"-WRONGTYPE[1]\r\n", RLOCK_ERR_WRONG_TYPE},
        {"-WRONGTYPE{1}\r\n", RLOCK_ERR_WRONG_TYPE},
        {"-WRONGTYPE2\r\n", RLOCK_ERR_SERVER},
        {"-WRONGTYPES\r\n", RLOCK_ERR_SERVER},
        {"-WRONGTYPEs\r\n", RLOCK_ERR_SERVER},
        {"-WRONGTYPE_\r\n", RLOCK_ERR_SERVER},
        {"-BUSYKEY Target key name already exists.\r\n", RLOCK_ERR_SERVER},
        {"-ERR unknown command 'EVALSHA', with args beginning with: 'WRONGTYPE' 'script' "
         "'NOPERM'\r\n",
         RLOCK_ERR_SERVER},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status;

        stage_begins();
        stage_lies("EVALSHA", rows[i].answer, true, false);
        status = stage_acquire(stage_owner(RLOCK_WIRE_REDISSON, "k"), 0, 1000);
        if (status != rows[i].status) {
            print_error("row %u: status %d\n", (unsigned)i, status);
        }
        assert_int_equal(status, rows[i].status);
    }
}

/* The same on the real server, in its own words: inside a script and before it. */
static void users_and_keys_with_the_names_of_codes_are_reported_as_any_other(void **state) {
    static const char *const names[] = {"ROOMS:script", "OOM:script", "READONLY:script",
                                        "MOVED:script"};
    static const char *const rules[] = {"-get -hexists -set", "-eval -evalsha -set"};
    rlock_wire wire = wire_of(state);
    size_t i, r;

    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (r = 0; r < 2; r++) {
            rlock_config config = kit_config(&server);
            struct owner *o;
            char rule[128];

            snprintf(rule, sizeof rule, "ACL SETUSER %s reset on >secret ~* &* +@all %s", names[i],
                     rules[r]);
            tell(ask(&server, rule));
            config.username = names[i];
            config.password = "secret";
            config.wire = wire;
            o = owner_new(kit_client(&config), names[(i + 1) % 4]);
            assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_ERR_AUTH);
        }
        tell(ask(&server, "ACL DELUSER %s", names[i]));
    }
}

#endif /* TESTS_FAULTS_REPLIES_H */
