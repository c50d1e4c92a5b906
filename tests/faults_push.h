/* faults_push.h - pushes: keys that changed, notifications, and messages that are neither */
#ifndef TESTS_FAULTS_PUSH_H
#define TESTS_FAULTS_PUSH_H

/* --- pushes of changes --- */

static struct owner *stage_waiter(rlock_wire wire) {
    struct owner *o = stage_owner(wire, "taken");

    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    return o;
}

/* Runs until the first lie is told, and no longer: the waiter's next attempt is answered again. */
static void stage_until_told(void) {
    int turns;

    for (turns = 0; turns < 100 && stage.told[0] == 0; turns++) {
        stage_iterates(stage.now_us + 1000);
    }
    assert_int_equal(stage.told[0], 1);
}

static void tracking_is_asked_for_again_however_it_failed(void **state) {
    static const char *const answers[] = {
        "", /* none: the next command's answer comes instead */
        ":1\r\n", "-ERR The client ID you want redirect to does not exist\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        stage_begins();
        stage_lies("CLIENT TRACKING", answers[i], true, true);
        stage_waiter(RLOCK_WIRE_STRING);
        stage_runs(5000);
        assert_int_equal(stage.told[0], 1);
        assert_true(stage_is_pushing());
        assert_int_equal(kit_stats(kit_clients[0]).faults, 1 + (i < 2));
    }
}

static void client_may_be_freed_while_its_tracking_is_not_answered(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "", true, true);
    o = stage_waiter(RLOCK_WIRE_STRING);
    stage_until_told();
    rlock_client_free(kit_clients[--kit_client_count]);
    assert_null(stage.client);
    stage_runs(10 * TIMEOUT_MS);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_ERR_CLOSED);
}

static void process_that_slept_over_an_unanswered_tracking_recovers(void **state) {
    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "", true, true);
    stage_waiter(RLOCK_WIRE_STRING);
    stage_until_told();
    stage.now_us += 20 * TIMEOUT_MS * 1000;
    stage_fires();
    stage_runs(3000);
    assert_true(stage_is_pushing());
}

/* The push connection is lost while CLIENT TRACKING is in flight. Its answer, yes or no, is for a
 * connection that no longer exists. */
static void tracking_answered_for_a_connection_that_went_is_none(void **state) {
    static const char *const answers[] = {"+OK\r\n", "-ERR unknown command\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct stage_conn *watcher;

        stage_begins();
        stage_lies("CLIENT TRACKING", "", true, true);
        stage_waiter(RLOCK_WIRE_STRING);
        stage_until_told();
        watcher = &stage.conns[stage.count - 1];
        stage_hangs_up(watcher);
        while (stage_looks()) {
        }
        stage_says(&stage.conns[0], answers[i]);
        stage_runs(TIMEOUT_MS / 2);
        assert_false(i == 1 && stage_is_pushing());
        stage_runs(3000);
        assert_int_equal(stage_is_pushing(), i == 0);
        stage_lies("EVALSHA", "$1\r\n0\r\n", true, false); /* it is granted by push or by polling */
        stage_lies("SET taken", "+OK\r\n", true, false);
        stage_says(&stage.conns[0], "");
        assert_int_equal(stage_wait(&kit_owners[0], RLOCK_ACQUIRED, 11000), RLOCK_OK);
    }
}

/* Without CLIENT ID nothing can be redirected: a wire with channels uses those, another one
 * polls. */
static void server_that_hides_client_ids_is_polled_or_listened_to(void **state) {
    rlock_wire wire = wire_of(state);

    stage_begins();
    stage_lies("CLIENT ID", "-NOPERM no permissions\r\n", true, false);
    stage_waiter(wire);
    stage_runs(3000);
    assert_false(stage_heard("CLIENT TRACKING"));
    assert_int_equal(stage_heard("SUBSCRIBE"), wire == RLOCK_WIRE_REDISSON);
    assert_int_equal(stage_is_pushing(), wire == RLOCK_WIRE_REDISSON);
    stage_lies("EVALSHA", "$1\r\n0\r\n", true, false);
    stage_lies("SET taken", "+OK\r\n", true, false);
    assert_int_equal(stage_wait(&kit_owners[0], RLOCK_ACQUIRED, 11000), RLOCK_OK);
}

static int count_tries(void) {
    const char *at = stage.trail;
    int n = 0;

    while ((at = strstr(at, "EVALSHA")) != NULL) {
        at++;
        n++;
    }
    return n;
}

static void say_message(const char *kind, const char *channel, const char *payload) {
    char text[256];

    snprintf(text, sizeof text, "*3\r\n$%u\r\n%s\r\n$%u\r\n%s\r\n%s", (unsigned)strlen(kind), kind,
             (unsigned)strlen(channel), channel, payload);
    stage_says(stage_conn(true), text);
    stage.trail[0] = '\0';
    stage_runs(1);
}

static void messages_of_tracking_wake_only_the_waiters_of_their_keys(void **state) {
    static const struct {
        const char *kind, *channel, *payload;
        bool wakes;
    } rows[] = {
        {"message", "__redis__:invalidate", "*1\r\n$5\r\ntaken\r\n", true},
        {"message", "__redis__:invalidate", "*2\r\n$1\r\nx\r\n$5\r\ntaken\r\n", true},
        {"message", "__redis__:invalidate", "*-1\r\n", true},
        {"message", "__redis__:invalidate", "$-1\r\n", true},
        {"message", "__redis__:invalidate", "*1\r\n$5\r\nother\r\n", false},
        {"message", "__redis__:invalidate", "*0\r\n", false},
        {"message", "__redis__:invalidate", "*2\r\n:5\r\n$-1\r\n", false},
        {"message", "__redis__:invalidate", ":5\r\n", false},
        {"message", "another channel that is very long", "$-1\r\n", false},
        {"subscribe", "__redis__:invalidate", ":1\r\n", false}, /* nobody asked for it */
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stage_begins();
        stage_waiter(RLOCK_WIRE_STRING);
        stage_runs(2000);
        assert_true(stage_is_pushing());
        say_message(rows[i].kind, rows[i].channel, rows[i].payload);
        if ((count_tries() > 0) != rows[i].wakes) {
            print_error("row %u\n", (unsigned)i);
        }
        assert_int_equal(count_tries() > 0, rows[i].wakes);
        assert_true(stage_is_pushing());
    }
}

#define CHANNEL "redisson_lock__channel:"

static void messages_of_channels_wake_only_whom_they_name(void **state) {
    static const struct {
        const char *name;
        bool wakes;
    } rows[] = {{"{taken}", true}, {"taken", true},    {"{taken", false}, {"t", false},
                {"{}", false},     {"{other}", false}, {"", false}};
    char channel[64], subscribe[128];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stage_begins();
        stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
        stage_waiter(RLOCK_WIRE_REDISSON);
        stage_runs(2000);
        assert_true(stage_is_pushing());
        snprintf(channel, sizeof channel, CHANNEL "%s", rows[i].name);
        snprintf(subscribe, sizeof subscribe, "SUBSCRIBE %s", channel);
        say_message("message", channel, "$1\r\n0\r\n");
        /* hiredis passes on only the channels that were subscribed to */
        assert_int_equal(count_tries() > 0, rows[i].wakes && i == 0);
    }
}

/* A second key is wanted before SUBSCRIBE is answered: both channels are subscribed to. */
static void key_that_is_wanted_before_channels_work_is_listened_to_later(void **state) {
    struct owner *first, *second;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
    stage_lies("SUBSCRIBE", "", true, true);
    stage_lies("EVALSHA", ":60000\r\n", true, false); /* everything is taken */
    first = stage_waiter(RLOCK_WIRE_REDISSON);
    stage_runs(TIMEOUT_MS / 2);
    assert_int_equal(stage.told[1], 1);
    second = owner_new(kit_clients[0], "second");
    assert_int_equal(rlock_acquire(second->lock, RLOCK_FOREVER, 1000, owner_told, second),
                     RLOCK_OK);
    stage_runs(5000);
    assert_true(stage_is_pushing());
    assert_true(stage_heard("SUBSCRIBE " CHANNEL "{taken}"));
    assert_true(stage_heard("SUBSCRIBE " CHANNEL "{second}"));
    assert_int_equal(first->seen[RLOCK_ACQUIRED] + second->seen[RLOCK_ACQUIRED], 0);
}

/* --- notifications --- */

/* Makes a waiter that is in the queue for "taken" and knows it. */
static struct owner *stage_in_queue(rlock_client *client) {
    struct owner *o;
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = "taken";
    options.kind = RLOCK_KIND_FAIR;
    o = owner_with(client, &options);
    assert_non_null(o);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    return o;
}

static bool stage_is_called(void) {
    return (kit_clients[0]->pushing & RLOCK_PUSH_NOTIFICATIONS) != 0;
}

static const char *own_channel(void) {
    static char name[64];

    snprintf(name, sizeof name, "rlock:%s", rlock_client_id(kit_clients[0]));
    return name;
}

/* Grants everything from now on: polling is enough to learn it. */
static void stage_grants(struct owner *o) {
    stage_lies("EVALSHA", "$1\r\n0\r\n", true, false);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 11000), RLOCK_OK);
}

/* A client that may publish on the channel can say anything there: a number, a colon, the key. */
static void message_that_is_not_a_notification_wakes_no_waiter(void **state) {
    static const struct {
        const char *before, *behind; /* the waiter's number */
        bool number;                 /* it is in the message */
        bool called;                 /* the message is taken for a notification */
        bool calls;                  /* and it notifies this waiter */
    } rows[] = {
        {"", ":taken", true, true, true},    {"", ":other", true, true, false},
        {"1", ":taken", true, true, false},  {"", ":", true, true, false},
        {"", ";taken", true, false, false},  {"", "", true, false, false},
        {"x", ":taken", true, false, false}, {"", ":taken", false, false, false},
        {"", "taken", false, false, false},  {"", "", false, false, false},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char call[64], number[24] = "", payload[96];
        struct owner *o;
        uint64_t woken;

        stage_begins();
        o = stage_in_queue(stage_client(RLOCK_WIRE_STRING));
        stage_runs(2000);
        assert_true(stage_is_called());
        if (rows[i].number) {
            snprintf(number, sizeof number, "%llu", (unsigned long long)o->lock->claim->token);
        }
        snprintf(call, sizeof call, "%s%s%s", rows[i].before, number, rows[i].behind);
        snprintf(payload, sizeof payload, "$%u\r\n%s\r\n", (unsigned)strlen(call), call);
        woken = kit_stats(kit_clients[0]).woken;
        say_message("message", own_channel(), payload);
        if ((count_tries() > 0) != rows[i].calls) {
            print_error("row %u\n", (unsigned)i);
        }
        assert_int_equal(count_tries() > 0, rows[i].calls);
        assert_int_equal(kit_stats(kit_clients[0]).woken - woken, rows[i].called);
        assert_true(stage_is_called());
    }
}

/* Its name is as long as ours, but with another prefix or of another client. */
static void subscription_to_a_channel_that_is_not_ours_ends_the_connection(void **state) {
    static char reply[128];
    int way;

    (void)state;
    for (way = 0; way < 2; way++) {
        char channel[64];

        stage_begins();
        stage_lies("SUBSCRIBE rlock:", reply, true, true);
        stage_in_queue(stage_client(RLOCK_WIRE_STRING));
        snprintf(channel, sizeof channel, "%s", own_channel());
        channel[way == 0 ? 0 : strlen(channel) - 1] = 'x';
        snprintf(reply, sizeof reply, "*3\r\n$9\r\nsubscribe\r\n$%u\r\n%s\r\n:2\r\n",
                 (unsigned)strlen(channel), channel);
        stage_until_told();
        stage_looks();
        assert_false(stage_is_called());
        stage_runs(3000);
        assert_non_null(strstr(kit_log_text, ": unexpected reply"));
        assert_int_equal(stage.told[0], 1);
        assert_true(stage_is_called()); /* the next one is honest */
    }
}

/* An ACL may allow one channel and not the other. What is refused is tried again only on the next
 * connection; a waiter that needs it polls. */
static void waiter_that_may_not_listen_to_its_own_channel_hears_of_changes_and_polls_for_its_turn(
    void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("SUBSCRIBE rlock:", "-NOPERM this user has no permissions\r\n", true, false);
    stage_waiter(RLOCK_WIRE_STRING);
    o = stage_in_queue(kit_clients[0]);
    stage_runs(3000);
    assert_int_equal(kit_clients[0]->pushing, RLOCK_PUSH_CHANGES);
    assert_int_equal(stage.told[0], 1);
    stage_hangs_up(stage_conn(true));
    stage_runs(3000);
    assert_int_equal(kit_clients[0]->pushing, RLOCK_PUSH_CHANGES);
    assert_int_equal(stage.told[0], 1);
    stage_hangs_up(stage_conn(false));
    stage_runs(3000);
    assert_int_equal(kit_clients[0]->pushing, RLOCK_PUSH_CHANGES);
    assert_int_equal(stage.told[0], 2);
    stage_grants(o);
}

static void who_may_not_listen_to_changes_polls_for_its_turn_and_is_called_neither(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("SUBSCRIBE __redis__:invalidate", "-NOPERM this user has no permissions\r\n", true,
               false);
    stage_waiter(RLOCK_WIRE_STRING);
    o = stage_in_queue(kit_clients[0]);
    stage_runs(3000);
    assert_int_equal(kit_clients[0]->pushing, 0);
    assert_int_equal(stage.told[0], 1);
    assert_false(stage_heard("SUBSCRIBE rlock:"));
    stage_grants(o);
}

/* The channel of a key with a brace is the key itself, however short. */
static void message_of_a_short_channel_wakes(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
    stage_lies("EVALSHA", ":60000\r\n", true, false);
    o = stage_owner(RLOCK_WIRE_REDISSON, "{a");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    stage_runs(2000);
    assert_true(stage_is_pushing());
    say_message("message", CHANNEL "{a", "$1\r\n0\r\n");
    assert_true(count_tries() > 0);
}

/* The message comes instead of the answer to SUBSCRIBE, for the channel that was meant. */
static void server_that_unsubscribes_us_is_polled(void **state) {
    static char reply[128];
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
    stage_lies("SUBSCRIBE", reply, true, false);
    o = stage_waiter(RLOCK_WIRE_REDISSON);
    snprintf(reply, sizeof reply, "*3\r\n$11\r\nunsubscribe\r\n$61\r\n" CHANNEL "{%s}\r\n:0\r\n",
             rlock_client_id(kit_clients[0]));
    stage_runs(2000);
    assert_true(stage.told[1] > 0);
    assert_false(stage_is_pushing());
    stage_lies("EVALSHA", "$1\r\n0\r\n", true, false);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 11000), RLOCK_OK);
}

/* hiredis asserts on such messages, or takes the channel for one that was subscribed to. */
static void message_that_answers_no_subscription_ends_the_connection(void **state) {
    static const struct {
        rlock_wire wire; /* Redisson's: without tracking, by channels */
        const char *reply;
    } rows[] = {
        {RLOCK_WIRE_STRING,
         "*3\r\n$11\r\nunsubscribe\r\n$20\r\n__redis__:invalidate\r\n$1\r\nx\r\n"},
        {RLOCK_WIRE_STRING, "*3\r\n$11\r\nUNSUBSCRIBE\r\n$20\r\n__redis__:invalidate\r\n*0\r\n"},
        {RLOCK_WIRE_STRING, "*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n$1\r\nx\r\n"},
        {RLOCK_WIRE_STRING, "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n"},
        {RLOCK_WIRE_REDISSON, "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n"},
        {RLOCK_WIRE_REDISSON,
         "*3\r\n$9\r\nsubscribe\r\n$31\r\nanother channel as long as ours\r\n:1\r\n"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stage_begins();
        stage_lies("SUBSCRIBE", rows[i].reply, true, true);
        if (rows[i].wire == RLOCK_WIRE_REDISSON) {
            stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
        }
        stage_waiter(rows[i].wire);
        stage_runs(3000);
        assert_int_equal(kit_stats(kit_clients[0]).faults, 1);
        assert_int_equal(stage.told[0], 1);
        assert_true(stage_is_pushing()); /* the next one is honest */
    }
}

static void head_of_a_huge_array_ends_the_connection(void **state) {
    static const char *const heads[] = {"*65537\r\n", "*2147483647\r\n", "*2\r\n*65537\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("EVALSHA", heads[i], true, true);
        o = stage_owner(RLOCK_WIRE_REDISSON, "k");
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_UNKNOWN);
        assert_non_null(strstr(kit_log_text, ": unexpected reply"));
        assert_int_equal(stage_acquire(o, 5000, 1000), RLOCK_OK);
    }
}

#endif /* TESTS_FAULTS_PUSH_H */
