/* cluster_quarantine.h - the quarantine in real clusters: a node each
 *
 * What a client makes of the answers is tested in faults_quarantine.h, on a cluster too.
 */
#ifndef TESTS_CLUSTER_QUARANTINE_H
#define TESTS_CLUSTER_QUARANTINE_H

#define QUARANTINE_MS 1500
#define LONG_MS 5000 /* longer than a node that was started anew says CLUSTERDOWN */

static rlock_client *quarantined_for(int64_t ms) {
    rlock_config config = config_of(node_seeds);

    config.quarantine_ms = config.watchdog_lease_ms = ms;
    return kit_client(&config);
}

static rlock_client *quarantined_new(void) {
    return quarantined_for(QUARANTINE_MS);
}

/* An attempt at a key: RLOCK_OK, or RLOCK_ERR_SERVER in quarantine. */
static int attempt(rlock_client *client, const char *key) {
    struct owner *o = owner_new(client, key);
    int status = owner_acquire(o, 0, 0);

    if (status == RLOCK_OK) {
        assert_int_equal(owner_release(o), RLOCK_OK);
    } else {
        assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "quarantine: "));
    }
    return status;
}

static int attempt_at(rlock_client *client, int node) {
    return attempt(client, key_at(node, "try"));
}

/* The first use of each node begins a quarantine; then an operator vouches for it in its marker. */
static void first_use_is_over(void) {
    rlock_client *client = quarantined_new();
    int i;

    for (i = 0; i < PRIMARIES; i++) {
        const struct server *node = &nodes[slot_node_by(1, slots_from(i))];
        redisReply *keys;
        char marker[120];

        assert_int_equal(attempt_at(client, i), RLOCK_ERR_SERVER);
        keys = ask(node, "KEYS rlock:quarantine:*");
        assert_int_equal(keys->elements, 1);
        snprintf(marker, sizeof marker, "%.110s", str(ask(node, "GET %s", keys->element[0]->str)));
        strcpy(strrchr(marker, ' '), " 0");
        tell(ask(node, "SET %s %s", keys->element[0]->str, marker));
        freeReplyObject(keys);
    }
    kit_reset();
    client = quarantined_new();
    for (i = 0; i < PRIMARIES; i++) {
        assert_int_equal(attempt_at(client, i), RLOCK_OK);
    }
    kit_reset();
}

static const char *key_of_slot(int slot, const char *name) {
    static char keys[8][40];
    static int used;
    char *key = keys[used++ % 8];
    int i = 0;

    do {
        snprintf(key, sizeof keys[0], "%s%d", name, i++);
    } while (key_slot(key) != slot);
    return key;
}

/* True if a node has a marker in that slot, and it names the node's own process. */
static bool marker_is_in(int node, int slot) {
    redisReply *keys = ask(&nodes[node], "CLUSTER GETKEYSINSLOT %d 100", slot);
    char run_id[41];
    bool found = false;
    size_t i;

    snprintf(run_id, sizeof run_id, "%.40s",
             strstr(str(ask(&nodes[node], "INFO server")), "run_id:") + 7);
    for (i = 0; i < keys->elements; i++) {
        const char *key = keys->element[i]->str;

        found = found || (strncmp(key, "rlock:quarantine:{", 18) == 0 &&
                          strncmp(str(ask(&nodes[node], "GET %s", key)), run_id, 40) == 0);
    }
    freeReplyObject(keys);
    return found;
}

/* A node that was started anew without its data grants nothing until what it forgot is over. The
 * others go on. */
static void node_that_lost_its_data_grants_nothing_and_the_others_do(void **state) {
    rlock_client *client, *other;
    const char *key = key_at(1, "lost");
    struct owner *held, *waiter;
    int64_t restarted_us;
    int i;

    (void)state;
    first_use_is_over();
    client = quarantined_for(LONG_MS), other = quarantined_for(LONG_MS);
    held = owner_new(client, key), waiter = owner_new(other, key);
    for (i = 0; i < PRIMARIES; i++) {
        assert_true(marker_is_in(i, slots_from(i + 1) - 1));
    }
    assert_int_equal(owner_acquire(held, 0, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 0, owner_told, waiter), RLOCK_OK);
    server_kill9(&nodes[1]);
    assert_int_equal(attempt_at(client, 0), RLOCK_OK);
    assert_int_equal(server_restart(&nodes[1]), 0);
    restarted_us = kit_now_us();
    while (waiter->seen[RLOCK_ACQUIRED] == 0 && kit_now_us() < restarted_us + 30000000) {
        kit_run(10);
        assert_false(rlock_is_held(held->lock) && waiter->seen[RLOCK_ACQUIRED] > 0);
        if (kit_now_us() < restarted_us + LONG_MS * 1000) {
            assert_int_equal(attempt_at(client, 0), RLOCK_OK);
            assert_int_equal(attempt_at(other, 2), RLOCK_OK);
        }
    }
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 0), RLOCK_OK);
    assert_int_equal(held->seen[RLOCK_LOST], 1);
    assert_true(kit_now_us() - restarted_us >= LONG_MS * 1000);
    cluster_heals();
}

/* The slot of its marker leaves a node, and later the highest slot of another one comes to it, with
 * the marker of that one. Who knows the nodes says so in a new marker, and others need not wait. */
static void node_whose_marker_leaves_it_need_not_wait(void **state) {
    static const struct {
        int from, to, slot_of; /* the highest slot of slot_of, as they were given out */
    } rows[] = {{0, 1, 0}, {1, 0, 1}};
    rlock_client *client, *late;
    size_t i;
    int n;

    (void)state;
    first_use_is_over();
    client = quarantined_new();
    for (n = 0; n < PRIMARIES; n++) {
        assert_int_equal(attempt_at(client, n), RLOCK_OK);
    }
    for (i = 0; i < 2; i++) {
        int top = slots_from(rows[i].slot_of + 1) - 1;
        const char *key = key_of_slot(top, "top");
        struct owner *holder = owner_new(client, key);

        assert_int_equal(owner_acquire(holder, 0, 0), RLOCK_OK);
        slot_moves(top, rows[i].from, rows[i].to);
        assert_int_equal(owner_renew(holder, 0), RLOCK_OK); /* it is led on, and asks for the map */
        for (n = 0; n < PRIMARIES; n++) {
            assert_int_equal(attempt(client, key_of_slot(slots_from(n), "low")), RLOCK_OK);
        }
        kit_run(1200);
        assert_true(marker_is_in(rows[i].from, top - 1));
        late = quarantined_new();
        for (n = 0; n < PRIMARIES; n++) {
            assert_int_equal(attempt(late, key_of_slot(slots_from(n), "low")), RLOCK_OK);
        }
        assert_int_equal(owner_release(holder), RLOCK_OK);
    }
    slot_moves(slots_from(1) - 1, 1, 0);
    slot_moves(slots_from(2) - 1, 0, 1);
}

/* Where nobody knows the node it is as new as it looks. */
static void node_whose_marker_left_unseen_waits(void **state) {
    int top = slots_from(1) - 1;
    rlock_client *late;

    (void)state;
    first_use_is_over();
    slot_moves(top, 0, 1);
    late = quarantined_new();
    assert_int_equal(attempt(late, key_of_slot(0, "low")), RLOCK_ERR_SERVER);
    assert_int_equal(attempt_at(late, 1), RLOCK_OK);
    kit_run(QUARANTINE_MS + 20);
    assert_int_equal(attempt(late, key_of_slot(0, "low")), RLOCK_OK);
    slot_moves(top, 1, 0);
}

/* Locks that look like a marker. */
static void keys_of_markers_are_refused(void **state) {
    rlock_client *client = quarantined_new();

    (void)state;
    assert_null(owner_new(client, "rlock:quarantine:{7}"));
    assert_non_null(strstr(kit_log_text, "marker"));
    assert_non_null(owner_new(client, "rlock:quarantine"));
    assert_non_null(owner_new(client_new(), "rlock:quarantine:{7}"));
}

/* A replica that is promoted, and a primary that was a replica meanwhile: its connection stayed,
 * and so did its process. */
static void failover_and_back_begin_a_quarantine_each(void **state) {
    rlock_client *client;
    const char *key = key_at(0, "try");
    struct move move;
    int i, tries, first;
    int64_t begun_us = 0;

    (void)state;
    first_use_is_over();
    client = quarantined_new();
    assert_int_equal(attempt(client, key), RLOCK_OK);
    move.slot = key_slot(key);
    move.says = 1;
    first = move.from = slot_node_by(1, move.slot);
    for (i = 0; i < 2; i++) {
        for (tries = 0; tries < 4 && !slot_is_elsewhere(&move); tries++) { /* it may be too early */
            hands_over(move.from);
            kit_until(slot_is_elsewhere, &move, 6000);
        }
        cluster_heals();
        begun_us = kit_now_us();
        assert_int_equal(attempt(client, key), RLOCK_ERR_SERVER);
        assert_int_equal(attempt_at(client, 1), RLOCK_OK);
        move.from = slot_node_by(1, move.slot);
    }
    assert_int_equal(move.from, first);
    assert_int_equal(owner_acquire(owner_new(client, key), 15000, 0), RLOCK_OK);
    assert_true(kit_now_us() - begun_us >= QUARANTINE_MS * 1000);
}

/* The hold was not copied when its node was killed: two would have it, but for the quarantine. */
static void hold_that_a_promoted_node_does_not_know_is_over_before_the_next(void **state) {
    rlock_client *ours = quarantined_for(LONG_MS), *theirs = quarantined_for(LONG_MS);
    const char *key = key_at(0, "uncopied");
    struct owner *holder = owner_new(ours, key), *waiter = owner_new(theirs, key);
    struct move move;
    int replica, both = 0;
    int64_t end_us;

    (void)state;
    move.slot = key_slot(key);
    move.says = 1;
    move.from = slot_node_by(1, move.slot);
    replica = move.from < PRIMARIES ? move.from + PRIMARIES : move.from - PRIMARIES;
    assert_int_equal(owner_acquire(holder, LONG_MS + 2000, 0), RLOCK_OK);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(num(ask(&nodes[move.from], "WAIT 1 4000")), 1);
    server_pause(&nodes[replica]);
    assert_int_equal(num(ask(&nodes[move.from], "CLIENT KILL TYPE replica")), 1);
    assert_int_equal(owner_acquire(holder, 0, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 0, owner_told, waiter), RLOCK_OK);
    kit_run(20);
    server_kill9(&nodes[move.from]);
    server_resume(&nodes[replica]);
    end_us = kit_now_us() + 30000000;
    while (waiter->seen[RLOCK_ACQUIRED] == 0 && kit_now_us() < end_us) {
        kit_run(5);
        both += rlock_is_held(holder->lock) && rlock_is_held(waiter->lock);
    }
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 0), RLOCK_OK);
    assert_int_equal(both, 0);
    assert_int_equal(holder->seen[RLOCK_LOST], 1);
}

#endif /* TESTS_CLUSTER_QUARANTINE_H */
