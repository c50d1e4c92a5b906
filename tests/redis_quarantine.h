/* redis_quarantine.h - the quarantine on real servers: what its marker says after what
 *
 * What a client makes of it is tested in faults_quarantine.h, where time costs nothing.
 */
#ifndef TESTS_REDIS_QUARANTINE_H
#define TESTS_REDIS_QUARANTINE_H

#define QUARANTINE_MS 600
#define MARKER "rlock:quarantine"

static rlock_client *quarantined_as(const struct server *at, const char *user) {
    rlock_config config = kit_config(at);
    rlock_client *client;

    config.quarantine_ms = config.watchdog_lease_ms = QUARANTINE_MS;
    config.username = user;
    config.password = user != NULL ? "secret" : NULL;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

/* A new client's attempt: RLOCK_OK, or RLOCK_ERR_SERVER in quarantine. */
static int attempt(const struct server *at) {
    static int number;
    char key[20];

    snprintf(key, sizeof key, "try%d", number++);
    return owner_acquire(owner_new(quarantined_as(at, NULL), key), 0, 0);
}

/* Writes the marker as an operator does, for a server that lost nothing. */
static void operator_vouches(const struct server *at) {
    char marker[90];
    size_t n = (size_t)snprintf(marker, sizeof marker, "%.40s ",
                                strstr(str(ask(at, "INFO server")), "run_id:") + 7);

    snprintf(marker + n, sizeof marker - n, "%.40s 0",
             strstr(str(ask(at, "INFO replication")), "master_replid:") + 14);
    tell(ask(at, "SET " MARKER " %s", marker));
}

/* From the first time that somebody connects the server grants nothing for so long. */
static void quarantine_is_served(const struct server *at) {
    int64_t began_us = kit_now_us();
    struct owner *o;

    assert_int_equal(attempt(at), RLOCK_ERR_SERVER);
    o = owner_new(quarantined_as(at, NULL), "k");
    assert_int_equal(owner_acquire(o, 10000, 0), RLOCK_OK);
    assert_true(kit_now_us() - began_us > (QUARANTINE_MS - 2) * 1000);
    assert_int_equal(attempt(at), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void server_is_new_once(void **state) {
    char marker[120];

    (void)state;
    quarantine_is_served(&server);
    snprintf(marker, sizeof marker, "%.110s", str(ask(&server, "GET " MARKER)));
    assert_int_equal(num(ask(&server, "PTTL " MARKER)), -1);
    assert_int_equal(attempt(&server), RLOCK_OK);
    assert_string_equal(str(ask(&server, "GET " MARKER)), marker);
}

/* Two clients that count from the same moment, each with a quarantine of its own. */
static void each_client_counts_by_its_own_quarantine(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *soon, *late;

    (void)state;
    late = owner_new(quarantined_as(&server, NULL), "k1");
    assert_int_equal(owner_acquire(late, 0, 0), RLOCK_ERR_SERVER);
    kit_run(QUARANTINE_MS / 2);
    config.quarantine_ms = config.watchdog_lease_ms = 10;
    soon = owner_new(kit_client(&config), "k2");
    assert_int_equal(owner_acquire(soon, 0, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(late, 0, 0), RLOCK_ERR_SERVER);
    kit_run(QUARANTINE_MS / 2 + 20);
    assert_int_equal(owner_acquire(late, 0, 0), RLOCK_OK);
}

/* What it is for: the holder is told of its loss, or lets go, before another holds. */
static void restart_without_data_makes_no_second_holder(void **state) {
    rlock_client *first, *second;
    struct owner *held, *waits;
    int64_t restarted_us;

    (void)state;
    operator_vouches(&server);
    first = quarantined_as(&server, NULL);
    second = quarantined_as(&server, NULL);
    held = owner_new(first, "k");
    waits = owner_new(second, "k");
    assert_int_equal(owner_acquire(held, 0, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
    kit_run(50);
    restarted_us = kit_now_us();
    assert_int_equal(server_restart(&server), 0);
    while (waits->seen[RLOCK_ACQUIRED] == 0 && kit_now_us() < restarted_us + 10000000) {
        kit_run(5);
        assert_false(rlock_is_held(held->lock) && waits->seen[RLOCK_ACQUIRED] > 0);
    }
    assert_int_equal(waits->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(held->seen[RLOCK_LOST], 1);
    assert_true(kit_now_us() - restarted_us >= QUARANTINE_MS * 1000);
}

/* With a quarantine of its own for each restart, with its data or not: nobody can tell how much of
 * them came back. */
static void restart_with_data_is_seen_too(void **state) {
    (void)state;
    operator_vouches(&server);
    assert_int_equal(attempt(&server), RLOCK_OK);
    tell(ask(&server, "SAVE"));
    assert_int_equal(server_restart(&server), 0);
    assert_int_equal(num(ask(&server, "EXISTS " MARKER)), 1);
    quarantine_is_served(&server);
}

static void marker_that_is_gone_costs_one_quarantine(void **state) {
    (void)state;
    operator_vouches(&server);
    assert_int_equal(attempt(&server), RLOCK_OK);
    tell(ask(&server, "DEL " MARKER));
    assert_int_equal(attempt(&server), RLOCK_ERR_SERVER);
    tell(ask(&server, "FLUSHALL"));
    operator_vouches(&server);
    tell(ask(&server, "CONFIG SET maxmemory-policy allkeys-random"));
    tell(ask(&server, "CONFIG SET maxmemory 1"));
    freeReplyObject(ask(&server, "SET something new")); /* which takes what there was */
    tell(ask(&server, "CONFIG SET maxmemory 0"));
    tell(ask(&server, "CONFIG SET maxmemory-policy noeviction"));
    assert_int_equal(num(ask(&server, "EXISTS " MARKER)), 0);
    quarantine_is_served(&server);
}

/* Asks as a client does that knows the server as this process, with this history, for an hour. */
static long long left_for_who_knows(const char *run_id, const char *history) {
    tell(ask(&server, "DEL " MARKER));
    return num(ask(&server, "EVAL %s 1 " MARKER " 600 %s %s 3600000", whole(rlock__lua_quarantine),
                   run_id, history));
}

static void what_a_client_knows_is_of_one_process_and_one_history(void **state) {
    static const char other[] = "0246802468024680246802468024680246802468";
    char run_id[41], history[41], marker[120];

    (void)state;
    snprintf(run_id, sizeof run_id, "%.40s",
             strstr(str(ask(&server, "INFO server")), "run_id:") + 7);
    snprintf(history, sizeof history, "%.40s",
             strstr(str(ask(&server, "INFO replication")), "master_replid:") + 14);
    assert_int_equal(left_for_who_knows(run_id, history), 0);
    assert_int_equal(attempt(&server), RLOCK_OK); /* it stands in the marker */
    assert_int_equal(left_for_who_knows(other, history), 600);
    assert_int_equal(left_for_who_knows(run_id, other), 600);
    operator_vouches(&server); /* who knows less changes nothing */
    snprintf(marker, sizeof marker, "%.110s", str(ask(&server, "GET " MARKER)));
    assert_int_equal(num(ask(&server, "EVAL %s 1 " MARKER " 600 %s %s 5",
                             whole(rlock__lua_quarantine), run_id, history)),
                     0);
    assert_string_equal(str(ask(&server, "GET " MARKER)), marker);
}

/* A clock that was set back makes no quarantine longer than once more. */
static void marker_of_a_time_to_come_begins_now(void **state) {
    char marker[120];

    (void)state;
    operator_vouches(&server);
    snprintf(marker, sizeof marker, "%.110s", str(ask(&server, "GET " MARKER)));
    strcpy(strrchr(marker, ' '), " 99999999999999");
    tell(ask(&server, "SET " MARKER " %s", marker));
    quarantine_is_served(&server);
}

/* What is no marker stays, and nothing is granted beside it. */
static void key_of_somebody_else_is_no_marker(void **state) {
    static const char *const values[] = {"6ba7b810-9dad-41d1-80b4-00c04fd430c8:7", "", "0 0",
                                         "xyz 0 0", "0 0 0 "};
    rlock_client *client;
    struct owner *o;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof values / sizeof *values; i++) {
        tell(ask(&server, "SET " MARKER " %s", values[i]));
        assert_int_equal(attempt(&server), RLOCK_ERR_SERVER);
        assert_non_null(strstr(kit_log_text, "its marker is another key"));
        assert_string_equal(str(ask(&server, "GET " MARKER)), values[i]);
        kit_reset();
    }
    tell(ask(&server, "DEL " MARKER));
    tell(ask(&server, "LPUSH " MARKER " x"));
    client = quarantined_as(&server, NULL);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_ERR_SERVER);
    assert_non_null(strstr(kit_log_text, "WRONGTYPE"));
    assert_string_equal(str(ask(&server, "TYPE " MARKER)), "list");
    tell(ask(&server, "DEL " MARKER)); /* it is asked again, on the same connection */
    assert_int_equal(owner_acquire(o, QUARANTINE_MS - 100, 0), RLOCK_ERR_SERVER);
    assert_int_equal(owner_acquire(o, 10000, 0), RLOCK_OK);
    assert_int_equal(kit_stats(client).connects, 1);
}

/* The rights of docs/guarantees.md are enough, and without one of them nothing is granted. */
static void quarantine_needs_its_rights(void **state) {
    static const char *const without[] = {"-info", "-eval", "-time",
                                          "-get",  "-set",  "resetkeys ~k*"};
    size_t i;

    (void)state;
    for (i = 0; i <= sizeof without / sizeof *without; i++) {
        rlock_client *client;
        struct owner *o;

        tell(ask(&server, "FLUSHALL"));
        operator_vouches(&server);
        tell(ask(&server, "ACL SETUSER shop reset on >secret resetkeys ~k* resetchannels "
                          "&__redis__:invalidate -@all +set +get +del +pexpire +pttl +evalsha "
                          "+eval +subscribe +client|id +client|tracking +info +client|kill "
                          "+client|reply +time ~rlock:quarantine"));
        if (i > 0) {
            char text[60];

            snprintf(text, sizeof text, "ACL SETUSER shop %s", without[i - 1]);
            tell(ask(&server, text));
            if (strcmp(without[i - 1], "-set") == 0 || strcmp(without[i - 1], "-get") == 0) {
                tell(ask(&server, "DEL " MARKER));
            }
        }
        client = quarantined_as(&server, "shop");
        o = owner_new(client, "k");
        assert_int_equal(owner_acquire(o, 0, 0), i == 0 ? RLOCK_OK : RLOCK_ERR_SERVER);
        if (i > 0) {
            assert_non_null(strstr(kit_log_text, "cannot tell whether it lost holds: "));
            assert_int_equal(num(ask(&server, "EXISTS k")), 0);
        }
        kit_reset();
    }
}

/* A server that is full cannot note when it was first seen; then its quarantine has not begun. */
static void full_server_begins_no_quarantine(void **state) {
    struct owner *o = owner_new(quarantined_as(&server, NULL), "k");

    (void)state;
    tell(ask(&server, "CONFIG SET maxmemory 1"));
    assert_int_equal(owner_acquire(o, QUARANTINE_MS + 200, 0), RLOCK_ERR_SERVER);
    assert_non_null(strstr(kit_log_text, "OOM"));
    tell(ask(&server, "CONFIG SET maxmemory 0"));
    assert_int_equal(owner_acquire(o, QUARANTINE_MS - 100, 0), RLOCK_ERR_SERVER);
    assert_int_equal(owner_acquire(o, 5000, 0), RLOCK_OK);
}

/* ---- replicas ---- */

static struct server replica;

static int server_follows(void *arg) {
    return strstr(str(ask((struct server *)arg, "INFO replication")), "master_link_status:up") !=
           NULL;
}

static int replid_is_new(void *arg) {
    return strstr(str(ask(&server, "INFO replication")), (const char *)arg) == NULL;
}

/* A replica that was promoted has the marker of another process, or none; a primary that begins a
 * new history, since nobody follows it, has lost nothing. */
static void promotion_is_seen_and_a_new_history_is_not(void **state) {
    static const char *args[] = {"--repl-diskless-sync-delay", "0", NULL};
    char history[41], marker[120];

    (void)state;
    replica.port = server_free_port();
    assert_int_equal(server_start(&replica, args), 0);
    operator_vouches(&server);
    tell(ask(&server, "CONFIG SET repl-diskless-sync-delay 0"));
    tell(ask(&replica, "REPLICAOF 127.0.0.1 %d", server.port));
    assert_true(kit_until(server_follows, &replica, 20000));
    assert_int_equal(attempt(&server), RLOCK_OK);
    tell(ask(&server, "CONFIG SET repl-backlog-ttl 1"));
    snprintf(history, sizeof history, "%.40s",
             strstr(str(ask(&server, "INFO replication")), "master_replid:") + 14);
    tell(ask(&replica, "REPLICAOF NO ONE"));
    quarantine_is_served(&replica);
    assert_true(kit_until(replid_is_new, history, 20000));
    assert_int_equal(attempt(&server), RLOCK_OK);
    assert_null(strstr(str(ask(&server, "GET " MARKER)), history));
    /* It follows the other one, to which nobody came meanwhile, and is a primary again. */
    snprintf(marker, sizeof marker, "%.110s", str(ask(&server, "GET " MARKER)));
    tell(ask(&replica, "SET " MARKER " %s", marker));
    tell(ask(&server, "REPLICAOF 127.0.0.1 %d", replica.port));
    assert_true(kit_until(server_follows, &server, 20000));
    tell(ask(&server, "REPLICAOF NO ONE"));
    assert_string_equal(str(ask(&server, "GET " MARKER)), marker);
    quarantine_is_served(&server);
    kit_hand_drop();
    server_stop(&replica);
}

#endif /* TESTS_REDIS_QUARANTINE_H */
