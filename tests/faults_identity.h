/* faults_identity.h - which server it is, and whether it is the right one */
#ifndef TESTS_FAULTS_IDENTITY_H
#define TESTS_FAULTS_IDENTITY_H

/* --- which server it is --- */

/* The run ids of another process than the honest server. */
#define THERE "run_id:9876543210987654321098765432109876543210"
#define THERE_ANEW "run_id:1029384756102938475610293847561029384756"

/* The histories of data: another one, the one before, and the same under a new name. */
#define HISTORY "0246802468024680246802468024680246802468"
#define HISTORY_ANEW "1357913579135791357913579135791357913579"
#define ANEW "$56\r\nmaster_replid:" HISTORY_ANEW "\r\n\r\n"
#define COPIED "$56\r\nmaster_replid:" HISTORY "\r\n\r\n"
#define PROMOTED "$113\r\nmaster_replid:" HISTORY_ANEW "\r\nmaster_replid2:" HISTORY "\r\n\r\n"

/* Requests that were sent to a process that died are never executed late. But another process that
 * answers may be another server at the same address, and the first one may come back. */
static void only_a_restart_makes_sure_that_nothing_comes_late(void **state) {
    static const struct {
        const char *info; /* of the second connection */
        bool elsewhere, hidden;
        int cleaning;
        const char *history; /* NULL: a new one */
    } rows[] = {
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", false, false, 0, NULL},
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", true, false, 1, NULL},
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", false, true, 1, NULL},
        {"$71\r\n" THERE "\r\nuptime_in_seconds:5000\r\n", false, false, 1, NULL},
        {"$69\r\n" THERE "\r\nuptime_in_seconds:-5\r\n", false, false, 1, NULL},
        {"$47\r\n" THERE "\r\n", false, false, 1, NULL},
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", false, false, 1, COPIED},
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", false, false, 1, PROMOTED},
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", false, false, 0,
         "-NOPERM this user has no permissions\r\n"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_client *client;
        struct owner *o;

        stage_begins();
        stage_lies("SET", "", true, true);
        peers_are_hidden = rows[i].hidden;
        stage_lies("INFO server", "", false, true); /* the truth, once */
        stage_lies("INFO server", rows[i].info, true, true);
        stage_lies("INFO replication", "", false, true);
        stage_lies("INFO replication", rows[i].history ? rows[i].history : ANEW, true, true);
        client = stage_client(RLOCK_WIRE_STRING);
        o = owner_new(client, "k");
        assert_int_equal(rlock_acquire(o->lock, 0, 5000, owner_told, o), RLOCK_OK);
        while (stage.told[0] == 0) {
            stage_iterates(stage.now_us + 1000);
        }
        if (rows[i].elsewhere) {
            redis_of(client)->peer.ss_family = AF_INET;
        }
        stage_runs(2000);
        assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
        assert_int_equal(kit_stats(client).connects, 2);
        if ((int)kit_stats(client).cleaning != rows[i].cleaning) {
            print_error("row %u\n", (unsigned)i);
        }
        assert_int_equal(kit_stats(client).cleaning, rows[i].cleaning);
        stage_hangs_up(&stage.conns[1]); /* the first server again */
        stage_runs(1000);
        assert_int_equal(kit_stats(client).connects, 3);
        assert_int_equal(kit_stats(client).cleaning, rows[i].cleaning);
        stage_runs(5000); /* the longest lease and a command timeout have passed */
        assert_int_equal(kit_stats(client).cleaning, 0);
        assert_false(stage_heard("CLIENT KILL"));
        peers_are_hidden = false;
    }
}

/* A restart of the second server says nothing of what was sent to the first one, even where no
 * connection to the second was ever ready. */
static void restart_of_another_server_makes_nothing_sure(void **state) {
    rlock_client *client;
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("SET", "", true, true);
    stage_lies("INFO server", "", false, true); /* the truth, another server, a restart of it */
    stage_lies("INFO server", "$71\r\n" THERE "\r\nuptime_in_seconds:5000\r\n", true, true);
    stage_lies("INFO server", "$68\r\n" THERE_ANEW "\r\nuptime_in_seconds:0\r\n", true, true);
    stage_lies("INFO replication", "", false, true);
    stage_lies("INFO replication", ANEW, true, true);
    stage_lies("INFO replication", "-NOPERM this user has no permissions\r\n", true, true);
    stage_lies("COMMAND", "", false, true);
    stage_lies("COMMAND", "-LOADING Redis is loading the dataset in memory\r\n", true, true);
    client = stage_client(RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    assert_int_equal(rlock_acquire(o->lock, 0, 5000, owner_told, o), RLOCK_OK);
    while (stage.told[0] == 0) {
        stage_iterates(stage.now_us + 1000);
    }
    stage_runs(2500);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
    assert_int_equal(kit_stats(client).connects, 3);
    assert_true(stage_heard(by_sha(rlock__lua_string_release)));
    assert_int_equal(kit_stats(client).cleaning, 1);
    stage_runs(6000); /* the longest lease and a command timeout have passed */
    assert_int_equal(kit_stats(client).cleaning, 0);
}

/* Old clean-ups end by time; the next lost connection is ended with CLIENT KILL again. */
static void address_that_moved_once_does_not_hinder_later_kills(void **state) {
    rlock_client *client;
    struct owner *o;
    int i;

    (void)state;
    stage_begins();
    stage_lies("SET", "", true, true);
    stage_lies("INFO server", "", false, true);
    stage_lies("INFO server", "$47\r\n" THERE "\r\n", true, false);
    client = stage_client(RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_UNKNOWN);
    stage_runs(3000);
    assert_int_equal(kit_stats(client).cleaning, 0);
    for (i = 0; i < 2; i++) {
        stage.told[0] = 0; /* the acquire's answer is lost again */
        stage.trail[0] = '\0';
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_ERR_UNKNOWN);
        stage_runs(1000);
        assert_true(stage_heard("CLIENT KILL"));
        assert_int_equal(kit_stats(client).cleaning, 0);
    }
}

/* If these were executed late, after the answer to the next one, they would undo what others
 * did. */
static void unanswered_change_by_an_operator_is_killed_before_anything_else(void **state) {
    int change;

    (void)state;
    for (change = 0; change < 3; change++) {
        rlock_options options;
        rlock_client *client;

        stage_begins();
        stage_lies("EVAL", "", true, true);
        client = stage_client(RLOCK_WIRE_STRING);
        memset(&options, 0, sizeof options);
        options.key = "k";
        options.kind = change == 1 ? RLOCK_KIND_SEMAPHORE : RLOCK_KIND_MUTEX;
        options.permits = change == 1 ? 3 : 0;
        asked_status = KIT_NOTHING;
        assert_int_equal(change == 0   ? rlock_force_release(client, &options, asked_about, NULL)
                         : change == 1 ? rlock_set_permits(client, &options, 5, asked_about, NULL)
                                       : rlock_inspect(client, &options, asked_about, NULL),
                         RLOCK_OK);
        stage_runs(3 * TIMEOUT_MS);
        assert_int_equal(asked_status, RLOCK_ERR_UNKNOWN);
        assert_int_equal(stage_heard("CLIENT KILL"), change < 2);
    }
}

/* At an address with several servers the push connection may reach another one, where the id names
 * no client, or a stranger. */
static void push_connection_at_another_server_is_not_used(void **state) {
    (void)state;
    stage_begins();
    stage_lies("INFO server", "", false, true);
    stage_lies("INFO server", "$47\r\n" THERE "\r\n", true, true);
    stage_lies("INFO server", "$47\r\n" THERE "\r\n", true, true);
    stage_waiter(RLOCK_WIRE_STRING);
    while (stage.told[2] == 0) {
        stage_iterates(stage.now_us + 1000);
        assert_false(stage_is_pushing());
        assert_false(stage_heard("CLIENT TRACKING"));
    }
    stage_runs(1000);
    assert_true(stage_is_pushing());
    assert_int_equal(kit_stats(kit_clients[0]).connects, 4);
    assert_true(kit_stats(kit_clients[0]).up);
}

/* --- servers that are not, or no longer, the right one --- */

#define READ_ONLY "-READONLY You can't write against a read only replica.\r\n"
#define MOVED_AWAY "-MOVED 7 127.0.0.1:7001\r\n"

/* In each wording, for each way to say that the server is no longer the right one: the address is
 * resolved again at once. */
static void server_that_may_not_write_is_left(void **state) {
    static const char *const answers[] = {
        READ_ONLY,
        "-READONLY You can't write against a read only replica. script: 1f, on @user_script:1.\r\n",
        "-ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: -READONLY You "
        "can't write against a read only replica. \r\n",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        MOVED_AWAY};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("EVALSHA", answers[i], true, true);
        o = stage_owner(RLOCK_WIRE_REDISSON, "k");
        assert_int_equal(stage_acquire(o, 5000, 1000), RLOCK_OK);
        assert_int_equal(kit_stats(kit_clients[0]).connects, 2);
        assert_int_equal(stage.told[0], 1);
        assert_false(stage_heard("CLIENT KILL")); /* every request was answered */
    }
}

static void server_that_refuses_for_now_is_kept(void **state) {
    static const char *const answers[] = {"-OOM command not allowed\r\n", "-TRYAGAIN Multiple\r\n",
                                          "-ASK 7 127.0.0.1:7001\r\n", "-READONLYISH no\r\n",
                                          "-ERR the key READONLY MOVED\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        stage_begins();
        stage_lies("EVALSHA", answers[i], true, true);
        assert_int_equal(stage_acquire(stage_owner(RLOCK_WIRE_REDISSON, "k"), 0, 1000),
                         RLOCK_ERR_SERVER);
        stage_runs(3000);
        assert_int_equal(kit_stats(kit_clients[0]).connects, 1);
    }
}

/* Requests that were sent with it are answered first. Those without an answer may have been
 * executed. */
static void answers_behind_a_refusal_to_write_are_read(void **state) {
    struct owner *refused, *granted, *unknown, *later;
    rlock_client *client;
    int answered;

    (void)state;
    for (answered = 0; answered < 2; answered++) {
        stage_begins();
        stage_lies("SET refused", READ_ONLY, true, true);
        stage_lies("SET unknown", "", answered == 0, true);
        client = stage_client(RLOCK_WIRE_STRING);
        assert_int_equal(stage_acquire(owner_new(client, "first"), 0, 60000), RLOCK_OK);
        stage_runs(2000);
        refused = owner_new(client, "refused");
        granted = owner_new(client, "granted");
        unknown = owner_new(client, "unknown");
        assert_int_equal(rlock_acquire(refused->lock, 0, 60000, owner_told, refused), RLOCK_OK);
        assert_int_equal(rlock_acquire(granted->lock, 0, 60000, owner_told, granted), RLOCK_OK);
        assert_int_equal(rlock_acquire(unknown->lock, 0, 60000, owner_told, unknown), RLOCK_OK);
        assert_int_equal(stage_wait(refused, RLOCK_ACQUIRED, 10), RLOCK_ERR_SERVER);
        assert_int_equal(stage_wait(granted, RLOCK_ACQUIRED, 10), RLOCK_OK);
        later = owner_new(client, "later"); /* it goes to the next server, whatever is in flight */
        assert_int_equal(rlock_acquire(later->lock, 5000, 60000, owner_told, later), RLOCK_OK);
        assert_int_equal(stage_wait(unknown, RLOCK_ACQUIRED, 2000),
                         answered ? RLOCK_OK : RLOCK_ERR_UNKNOWN);
        assert_int_equal(stage_wait(later, RLOCK_ACQUIRED, 2000), RLOCK_OK);
        assert_int_equal(kit_stats(client).connects, 4); /* two each time */
        assert_int_equal(stage_heard("CLIENT KILL"), !answered);
        assert_true(rlock_is_held(granted->lock));
    }
}

/* The server is not left while an answer may still come. */
static void answer_that_comes_after_a_refusal_to_write_counts(void **state) {
    struct owner *refused, *granted;
    rlock_client *client;

    (void)state;
    stage_begins();
    stage_lies("SET refused", READ_ONLY, true, true);
    stage_lies("SET granted", "", true, true);
    client = stage_client(RLOCK_WIRE_STRING);
    assert_int_equal(stage_acquire(owner_new(client, "first"), 0, 60000), RLOCK_OK);
    refused = owner_new(client, "refused");
    granted = owner_new(client, "granted");
    assert_int_equal(rlock_acquire(refused->lock, 0, 60000, owner_told, refused), RLOCK_OK);
    assert_int_equal(rlock_acquire(granted->lock, 0, 60000, owner_told, granted), RLOCK_OK);
    assert_int_equal(stage_wait(refused, RLOCK_ACQUIRED, 10), RLOCK_ERR_SERVER);
    stage_runs(5);
    stage_says(stage_conn(false), "+OK\r\n");
    assert_int_equal(stage_wait(granted, RLOCK_ACQUIRED, 10), RLOCK_OK);
}

/* If no other server is found, the address is resolved again once a second at most. */
static void servers_that_never_write_are_not_stormed(void **state) {
    static const char *const answers[] = {READ_ONLY, MOVED_AWAY};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("EVAL", answers[i], true, false);
        o = stage_owner(RLOCK_WIRE_REDISSON, "k");
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
        stage_runs(20000);
        assert_true(kit_stats(kit_clients[0]).connects >= 10);
        assert_true(kit_stats(kit_clients[0]).connects <= 42);
        assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    }
}

/* A node of a cluster is the right one for some keys: the other keys do not disturb those. */
static void node_that_serves_other_keys_is_seldom_left(void **state) {
    struct owner *far, *near;
    rlock_client *client;
    int i;

    (void)state;
    stage_begins();
    stage_lies("SET far", MOVED_AWAY, true, false);
    client = stage_client(RLOCK_WIRE_STRING);
    far = owner_new(client, "far");
    near = owner_new(client, "near");
    for (i = 0; i < 100; i++) {
        assert_int_equal(stage_acquire(near, 2000, 1000), RLOCK_OK);
        assert_int_equal(stage_release(near), RLOCK_OK);
        assert_int_equal(stage_acquire(far, 0, 1000), RLOCK_ERR_SERVER);
        stage_runs(300);
    }
    assert_true(kit_stats(client).connects >= 3);
    assert_true(kit_stats(client).connects <= 6);
}

/* A client that was pointed at a replica: no request is sent there, and the reason is told. */
static void replica_is_not_used(void **state) {
    rlock_client *client;
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("INFO replication", "$27\r\n# Replication\r\nrole:slave\r\n\r\n", true, false);
    client = stage_client(RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_SERVER);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "the server is a replica"));
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    stage_runs(20000);
    assert_true(kit_stats(client).connects >= 10 && kit_stats(client).connects <= 42);
    assert_false(stage_heard("SET") || stage_heard("EVAL"));
    assert_non_null(strstr(kit_log_text, ": failure 4: the server is a replica"));
    memset(stage.lies, 0, sizeof stage.lies); /* it is promoted */
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 2000), RLOCK_OK);
}

static void real_replica_is_not_used(void **state) {
    struct owner *o;

    (void)state;
    tell(ask(&server, "REPLICAOF 127.0.0.1 1"));
    o = owner_new(client_with(server.socket, RLOCK_WIRE_STRING, PATIENCE_MS), "k");
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_SERVER);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "the server is a replica"));
    tell(ask(&server, "REPLICAOF NO ONE"));
    assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
}

/* It would grant what its primary does not have, and would never answer READONLY. */
static void writable_replica_that_hides_info_is_not_used(void **state) {
    struct owner *o;

    (void)state;
    tell(ask(&server, "CONFIG SET replica-read-only no"));
    tell(ask(&server, "ACL SETUSER locker -info"));
    tell(ask(&server, "REPLICAOF 127.0.0.1 1"));
    o = owner_new(client_with(server.socket, RLOCK_WIRE_STRING, PATIENCE_MS), "k");
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_SERVER);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "the server is a replica"));
    tell(ask(&server, "REPLICAOF NO ONE"));
    assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
    tell(ask(&server, "CONFIG SET replica-read-only yes"));
}

static const struct server *leads; /* where the hook connects */

static redisAsyncContext *connect_to_who_leads(void *user) {
    (void)user;
    return redisAsyncConnectUnix(leads->socket);
}

static int is_in_step(void *arg) {
    (void)arg;
    return strstr(str(ask(&odd, "INFO replication")), "master_link_status:up") != NULL;
}

static int has_both(void *arg) {
    (void)arg;
    return num(ask(&odd, "EXISTS held watched")) == 2;
}

static int renews(void *arg) {
    return owner_renew((struct owner *)arg, 0) == RLOCK_OK;
}

/* Until a primary that was made a replica is in step it has what it granted, which may be lost at
 * the new one. A renewal that has nothing to change is refused there too. */
static void renewal_that_changes_nothing_is_refused_by_a_replica(void **state) {
    static const char *const set[] = {"set-1", "set-2"};
    static const struct {
        const char *key; /* NULL: the two of the set */
        rlock_kind kind;
        rlock_wire wire;
        bool batch;
    } rows[] = {
        {"mutex", RLOCK_KIND_MUTEX, RLOCK_WIRE_STRING, false},
        {"hash", RLOCK_KIND_MUTEX, RLOCK_WIRE_REDISSON, false},
        {NULL, RLOCK_KIND_MUTEX, RLOCK_WIRE_STRING, false},
        {"many", RLOCK_KIND_MUTEX, RLOCK_WIRE_STRING, true},
        {"fair", RLOCK_KIND_FAIR, RLOCK_WIRE_STRING, false},
        {"read", RLOCK_KIND_READ, RLOCK_WIRE_STRING, false},
        {"write", RLOCK_KIND_WRITE, RLOCK_WIRE_STRING, false},
        {"semaphore", RLOCK_KIND_SEMAPHORE, RLOCK_WIRE_STRING, false},
    };
    size_t i;

    (void)state;
    odd.port = server_free_port();
    assert_int_equal(server_start(&odd, NULL), 0);
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config = kit_config(&odd);
        rlock_options options;
        rlock_client *client;
        struct owner *o, *another;

        config.wire = rows[i].wire;
        client = kit_client(&config);
        memset(&options, 0, sizeof options);
        options.key = rows[i].key;
        options.keys = rows[i].key == NULL ? set : NULL;
        options.key_count = rows[i].key == NULL ? 2 : 0;
        options.kind = rows[i].kind;
        options.permits = rows[i].kind == RLOCK_KIND_SEMAPHORE ? 2 : 0;
        o = owner_with(client, &options);
        another = owner_new(client, "another");
        assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
        assert_int_equal(owner_acquire(another, 0, 60000), RLOCK_OK);
        assert_int_equal(owner_renew(o, 1000), RLOCK_OK);
        tell(ask(&odd, "REPLICAOF 127.0.0.1 1"));
        if (rows[i].batch) {
            assert_int_equal(rlock_renew(another->lock, 1000, owner_told, another), RLOCK_OK);
        }
        assert_int_equal(owner_renew(o, 1000), RLOCK_ERR_SERVER);
        tell(ask(&odd, "REPLICAOF NO ONE"));
        rlock_free(another->lock);
        another->lock = NULL;
        tell(ask(&odd, "DEL another"));
    }
}

/* An operator promotes another server. The old one closes no connection and says nothing. */
static void primary_that_was_demoted_is_left_by_all(void **state) {
    rlock_config config;
    rlock_client *holds, *waits;
    struct owner *held, *watched, *waiter;
    static struct server primary;

    (void)state;
    primary.port = server_free_port();
    assert_int_equal(server_start(&primary, NULL), 0);
    odd.port = server_free_port();
    assert_int_equal(server_start(&odd, NULL), 0);
    tell(ask(&odd, "CONFIG SET repl-diskless-sync-delay 0"));
    tell(ask(&primary, "CONFIG SET repl-diskless-sync-delay 0"));
    tell(ask(&odd, "REPLICAOF 127.0.0.1 %d", primary.port));
    assert_true(kit_until(is_in_step, NULL, 10000));
    leads = &primary;
    config = kit_config(&primary);
    config.connect = connect_to_who_leads;
    config.watchdog_lease_ms = 3000;
    holds = kit_client(&config);
    waits = kit_client(&config);
    held = owner_new(holds, "held");
    watched = owner_new(holds, "watched");
    waiter = owner_new(waits, "held");
    assert_int_equal(owner_acquire(held, 0, 20000), RLOCK_OK);
    assert_int_equal(owner_acquire(watched, 0, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 20000, owner_told, waiter),
                     RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, holds, 3000));
    assert_true(kit_until(kit_is_pushing, waits, 3000));
    assert_true(kit_until(has_both, NULL, 10000)); /* what is not replicated is lost */
    tell(ask(&odd, "REPLICAOF NO ONE"));
    tell(ask(&primary, "REPLICAOF 127.0.0.1 %d", odd.port));
    leads = &odd;
    assert_true(kit_until(renews, held, 15000));
    assert_true(kit_until(kit_is_pushing, holds, 3000));
    kit_run(3500); /* longer than the lease: the watchdog renews at the new server */
    assert_true(rlock_is_held(watched->lock));
    assert_true(num(ask(&odd, "PTTL watched")) > 1500);
    assert_int_equal(owner_release(held), RLOCK_OK);
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 12000), RLOCK_OK);
    assert_string_equal(str(ask(&odd, "TYPE held")), "string");
    kit_run(200); /* the key is tracked */
    tell(ask(&odd, "DEL watched"));
    assert_int_equal(owner_wait(watched, RLOCK_LOST, 500), RLOCK_ERR_LOST);
    assert_int_equal(watched->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    odd_server_ends();
    odd.port = 0;
    server_stop(&primary);
}

#endif /* TESTS_FAULTS_IDENTITY_H */
