/* cluster.c - real clusters: keys of all nodes, slots that move under what is held and waited for,
 * nodes that are killed, stopped, added and taken away. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster_kit.h"

#define PRIMARIES 3
#define LEASE_MS 60000

static rlock_config config_of(const char *seeds) {
    rlock_config config = kit_config(&nodes[0]);

    config.unix_path = NULL;
    config.cluster = seeds;
    config.command_timeout_ms = 500;
    config.watchdog_lease_ms = LEASE_MS;
    return config;
}

static rlock_client *client_of(const char *seeds) {
    rlock_config config = config_of(seeds);

    return kit_client(&config);
}

static rlock_client *client_new(void) {
    return client_of(node_seeds);
}

static int three_begin(void **state) {
    (void)state;
    assert_int_equal(kit_open(), 0);
    cluster_start(PRIMARIES, 0);
    return 0;
}

static int group_ends(void **state) {
    (void)state;
    kit_reset();
    cluster_stop();
    kit_close();
    return 0;
}

/* Every slot is where it was at the beginning, and every node there. */
static int test_begins(void **state) {
    int i;

    (void)state;
    for (i = 0; i < node_count; i++) {
        if (nodes[i].pid == 0) {
            assert_int_equal(server_restart(&nodes[i]), 0);
        }
    }
    assert_true(kit_until(cluster_is_whole, NULL, CLUSTER_LIMIT_MS));
    for (i = 0; i < node_count; i++) {
        freeReplyObject(ask(&nodes[i], "FLUSHALL"));
    }
    return 0;
}

static int test_ends(void **state) {
    int i;

    (void)state;
    kit_reset();
    for (i = 0; i < node_count; i++) {
        server_resume(&nodes[i]);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------
 * The mutex over three nodes
 */

static void keys_of_all_nodes_exclude_and_are_let_go(void **state) {
    rlock_client *ours = client_new(), *theirs = client_new();
    int i;

    (void)state;
    for (i = 0; i < PRIMARIES; i++) {
        const char *key = key_at(i, "all");
        struct owner *holder = owner_new(ours, key), *other = owner_new(theirs, key);

        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_true(key_is_at(i, key));
        assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_ERR_BUSY);
        assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
        assert_int_equal(owner_release(holder), RLOCK_OK);
        assert_false(key_is_at(i, key));
        assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_OK);
    }
}

/* One seed is enough, and one that is not there costs little. */
static void any_seed_leads_to_all_nodes(void **state) {
    char seeds[64];
    struct owner *holder;
    int64_t begun_us = kit_now_us();

    (void)state;
    snprintf(seeds, sizeof seeds, "127.0.0.1:1,localhost:%d", nodes[1].port);
    holder = owner_new(client_of(seeds), key_at(2, "seed"));
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    assert_in_range(kit_now_us() - begun_us, 0, 1000000);
}

static void only_nodes_whose_keys_are_wanted_are_connected_to(void **state) {
    rlock_client *client = client_new();
    struct owner *holder = owner_new(client, key_at(0, "one"));

    (void)state;
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    assert_int_equal(kit_stats(client).connects, 1);
}

static void slot_that_has_moved_is_followed(void **state) {
    rlock_client *ours = client_new(), *theirs = client_new();
    const char *key = key_at(0, "moved");
    struct owner *holder = owner_new(ours, key), *other = owner_new(theirs, key);

    (void)state;
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_ERR_BUSY);
    slot_moves(key_slot(key), 0, 1);
    assert_true(key_is_at(1, key));
    assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_ERR_BUSY);
    assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_release(other), RLOCK_OK);
    assert_int_equal(kit_stats(ours).cleaning, 0); /* what is moved leaves no doubt behind */
    assert_int_equal(kit_stats(theirs).cleaning, 0);
    slot_moves(key_slot(key), 1, 0);
}

static void node_that_is_killed_stops_its_own_keys_only(void **state) {
    rlock_client *client = client_new();
    struct owner *at[PRIMARIES];
    int i;

    (void)state;
    for (i = 0; i < PRIMARIES; i++) {
        at[i] = owner_new(client, key_at(i, "kill"));
        assert_int_equal(owner_acquire(at[i], 5000, LEASE_MS), RLOCK_OK);
    }
    server_kill9(&nodes[2]);
    for (i = 0; i < 2; i++) { /* the others serve until they notice, and again when it is back */
        assert_int_equal(owner_renew(at[i], LEASE_MS), RLOCK_OK);
        assert_int_equal(owner_release(at[i]), RLOCK_OK);
    }
    assert_int_equal(owner_renew(at[2], LEASE_MS) == RLOCK_OK, false);
    assert_true(kit_stats(client).up);
    assert_int_equal(at[2]->seen[RLOCK_LOST], 0);
    assert_int_equal(server_restart(&nodes[2]), 0);
    assert_int_equal(owner_wait(at[2], RLOCK_LOST, 10000), RLOCK_ERR_LOST); /* it had no dump */
    assert_int_equal(owner_acquire(at[2], 10000, LEASE_MS), RLOCK_OK);
}

int main(int argc, char **argv) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)
    static const struct CMUnitTest of_three[] = {
        CASE(keys_of_all_nodes_exclude_and_are_let_go),
        CASE(any_seed_leads_to_all_nodes),
        CASE(only_nodes_whose_keys_are_wanted_are_connected_to),
        CASE(slot_that_has_moved_is_followed),
        CASE(node_that_is_killed_stops_its_own_keys_only),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("three nodes", of_three, three_begin, group_ends);
}
