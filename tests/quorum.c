/* The quorum on five real servers: what it survives, what it must not claim, and what it leaves
 * behind: nothing. Servers are stopped, killed and wiped while holds live on them. */
#include <stdlib.h>

static unsigned long allocations;

static void *count_malloc(size_t size) {
    allocations++;
    return malloc(size);
}

#define RLOCK_MALLOC(n) count_malloc(n)
#define RLOCK_FREE(p) free(p)
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kit.h"
#include "shard.h"

#include <sys/mman.h>

#define SERVERS 5
#define MAJORITY 3
#define TIMEOUT_MS 200  /* of a command, so that a dead server is noticed soon */
#define SHORT_MS 1500   /* a lease, after which it is sure that nothing comes late any more */
#define WATCHDOG_MS 900 /* longer than it takes to notice one */

static struct server servers[SERVERS];
static bool paused[SERVERS];
static rlock_store *stores[8]; /* of this test */
static int store_count;

/* ------------------------------------------------------------------------------------------------
 * Quorums, clients, and what stands at the servers
 */

static rlock_store *quorum_of(const int *which, int count) {
    rlock_config nodes[16];
    int i;

    memset(nodes, 0, sizeof nodes);
    for (i = 0; i < count; i++) {
        nodes[i].unix_path = which[i] >= 0 ? servers[which[i]].socket : "/nowhere/socket";
    }
    assert_int_equal(rlock_quorum_new(&stores[store_count], nodes, count), RLOCK_OK);
    return stores[store_count++];
}

static rlock_store *quorum(void) {
    static const int all[SERVERS] = {0, 1, 2, 3, 4};

    return quorum_of(all, SERVERS);
}

static rlock_client *client_of(const rlock_store *store) {
    rlock_config config = kit_config(&servers[0]);
    rlock_client *client;

    config.unix_path = NULL;
    config.store = store;
    config.command_timeout_ms = TIMEOUT_MS;
    config.watchdog_lease_ms = WATCHDOG_MS;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

static rlock_client *client_new(void) {
    return client_of(quorum());
}

static bool answers(int i) {
    return servers[i].pid > 0 && !paused[i];
}

static int keys_on_all(void) {
    int i, keys = 0;

    for (i = 0; i < SERVERS; i++) {
        keys += answers(i) ? (int)num(ask(&servers[i], "DBSIZE")) : 0;
    }
    return keys;
}

static int no_keys(void *arg) {
    (void)arg;
    return keys_on_all() == 0;
}

static int all_votes(void *arg) {
    (void)arg;
    return keys_on_all() == SERVERS;
}

static void stop(int i) {
    server_pause(&servers[i]);
    paused[i] = true;
}

static void resume(int i) {
    server_resume(&servers[i]);
    paused[i] = false;
}

static void everything_runs(void) {
    int i;

    for (i = 0; i < SERVERS; i++) {
        if (paused[i]) {
            resume(i);
        }
        if (servers[i].pid == 0) {
            assert_int_equal(server_restart(&servers[i]), 0);
        }
    }
}

/* The number behind the colon of the token at a server; 0 = none. */
static long long token_at(int i, const char *key) {
    const char *text = str(ask(&servers[i], "GET %s", key)), *colon = strchr(text, ':');

    return colon != NULL ? atoll(colon + 1) : 0;
}

/* Every server has a vote of the holder. A contender's vote at a server that came back empty is
 * none: two more faults then take the majority. */
static int all_votes_are_of(void *arg) {
    const char *id = (const char *)arg;
    int i;

    for (i = 0; i < SERVERS; i++) {
        if (strncmp(str(ask(&servers[i], "GET k")), id, strlen(id)) != 0) {
            return false;
        }
    }
    return true;
}

/* A holder with a watchdog, whose votes are all in. */
static struct owner *holder_of(rlock_client *client, const char *key) {
    struct owner *o = owner_new(client, key);

    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    assert_true(kit_until(all_votes, NULL, 5000));
    return o;
}

/* Another process that wants the key all the time. */
static struct owner *contender_for(const char *key) {
    struct owner *o = owner_new(client_new(), key);

    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    return o;
}

static void holds_for(struct owner *o, const struct owner *other, int64_t ms) {
    int64_t end_us = kit_now_us() + ms * 1000;

    while (kit_now_us() < end_us) {
        kit_run(10);
        assert_true(rlock_is_held(o->lock));
        assert_int_equal(other->seen[RLOCK_ACQUIRED], 0);
    }
    assert_int_equal(o->seen[RLOCK_LOST], 0);
}

/* ---- the plain way ---- */

static void every_server_has_the_key_with_a_token_of_its_own(void **state) {
    struct owner *o = holder_of(client_new(), "k");
    char uuid[40];
    int i, k;

    (void)state;
    memcpy(uuid, str(ask(&servers[0], "GET k")), 37);
    for (i = 0; i < SERVERS; i++) {
        assert_true(is_token(str(ask(&servers[i], "GET k"))));
        assert_memory_equal(str(ask(&servers[i], "GET k")), uuid, 37);
        for (k = 0; k < i; k++) {
            assert_int_not_equal(token_at(i, "k"), token_at(k, "k"));
        }
        assert_in_range(num(ask(&servers[i], "PTTL k")), 1, WATCHDOG_MS);
    }
    assert_int_equal(owner_renew(o, 60000), RLOCK_OK);
    kit_run(20);
    for (i = 0; i < SERVERS; i++) {
        assert_in_range(num(ask(&servers[i], "PTTL k")), 50000, 60000);
    }
    assert_in_range(o->remaining_ms[RLOCK_RENEWED], 50000, 59398);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_true(kit_until(no_keys, NULL, 1000));
}

static void watchdog_keeps_all_votes(void **state) {
    struct owner *o = holder_of(client_new(), "k"), *other = contender_for("k");

    (void)state;
    holds_for(o, other, 3 * WATCHDOG_MS);
    assert_int_equal(keys_on_all(), SERVERS);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_wait(other, RLOCK_ACQUIRED, 1000), RLOCK_OK);
}

static void any_number_of_servers_will_do(void **state) {
    static const int some[SERVERS] = {0, 1, 2, 3, 4};
    int count;

    (void)state;
    for (count = 1; count <= SERVERS; count++) {
        rlock_client *a = client_of(quorum_of(some, count)), *b = client_of(quorum_of(some, count));
        struct owner *first = owner_new(a, "k"), *second = owner_new(b, "k");

        assert_int_equal(owner_acquire(first, 0, 5000), RLOCK_OK);
        assert_int_equal(owner_acquire(second, 0, 5000), RLOCK_ERR_BUSY);
        assert_int_equal(owner_release(first), RLOCK_OK);
        assert_int_equal(owner_acquire(second, 1000, 5000), RLOCK_OK);
        assert_int_equal(owner_release(second), RLOCK_OK);
        assert_true(kit_until(no_keys, NULL, 1000));
        kit_reset();
        while (store_count > 0) {
            rlock_quorum_free(stores[--store_count]);
        }
    }
}

static void redisson_wire_works_too(void **state) {
    rlock_config config = kit_config(&servers[0]);
    struct owner *o, *other;

    (void)state;
    config.wire = RLOCK_WIRE_REDISSON;
    config.store = quorum();
    o = owner_new(kit_client(&config), "k");
    other = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_true(kit_until(all_votes, NULL, 1000));
    assert_string_equal(str(ask(&servers[4], "TYPE k")), "hash");
    assert_int_equal(owner_acquire(other, 0, 5000), RLOCK_ERR_BUSY);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_true(kit_until(no_keys, NULL, 1000));
}

static void bad_arguments_are_refused(void **state) {
    rlock_config nodes[16];
    rlock_store *store = NULL;

    (void)state;
    memset(nodes, 0, sizeof nodes);
    assert_int_equal(rlock_quorum_new(NULL, nodes, 3), RLOCK_ERR_ARG);
    assert_int_equal(rlock_quorum_new(&store, NULL, 3), RLOCK_ERR_ARG);
    assert_int_equal(rlock_quorum_new(&store, nodes, 0), RLOCK_ERR_ARG);
    assert_int_equal(rlock_quorum_new(&store, nodes, 16), RLOCK_ERR_ARG);
    assert_null(store);
    rlock_quorum_free(NULL);
}

/* By the store of that server, when the client is made. */
static void server_that_is_named_wrongly_is_refused(void **state) {
    rlock_config nodes[3], config = kit_config(&servers[0]);
    rlock_client *client = NULL;

    (void)state;
    memset(nodes, 0, sizeof nodes);
    nodes[2].port = 65536;
    assert_int_equal(rlock_quorum_new(&stores[store_count], nodes, 3), RLOCK_OK);
    config.store = stores[store_count++];
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_null(client);
    if (RLOCK__HAS_TEXTS) {
        assert_non_null(strstr(kit_log_text, "config.port"));
    }
}

static void name_without_a_resolver_is_refused(void **state) {
    rlock_config nodes[3], config = kit_config(&servers[0]);
    rlock_client *client = NULL;

    (void)state;
    memset(nodes, 0, sizeof nodes);
    nodes[0].unix_path = servers[0].socket;
    nodes[1].unix_path = servers[1].socket;
    nodes[2].host = "a.name";
    config.loop.resolve = NULL;
    assert_int_equal(rlock_quorum_new(&stores[store_count], nodes, 3), RLOCK_OK);
    config.store = stores[store_count++];
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_non_null(strstr(kit_log_text, "a.name"));
}

static void warm_handle_allocates_nothing(void **state) {
    struct owner *o = owner_new(client_new(), "k");
    unsigned long before;
    int i;

    (void)state;
    for (i = 0; i < 20; i++) {
        if (i == 5) {
            before = allocations;
        }
        assert_int_equal(owner_acquire(o, 1000, 5000), RLOCK_OK);
        kit_run(10); /* what is behind, too */
        assert_int_equal(owner_release(o), RLOCK_OK);
        assert_true(kit_until(kit_is_clean, kit_clients[0], 1000));
    }
    assert_int_equal(allocations, before);
}

/* ---- faults that leave a majority ---- */

#define PAIRS 51

/* Of times in their order: nothing waited for the timeout of a server that is away. Nine of ten say
 * so more sharply, since a busy machine may hold up the others. */
static void is_soon(const int64_t *took) {
    assert_in_range(took[PAIRS * 9 / 10], 0, TIMEOUT_MS * 1000 / 2);
    assert_in_range(took[PAIRS - 1], 0, TIMEOUT_MS * 1000);
}

static void down_server_costs_no_time(void **state) {
    int64_t took[PAIRS];
    struct owner *o = owner_new(client_new(), "k");
    int i;

    (void)state;
    server_kill9(&servers[0]);
    server_kill9(&servers[1]);
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    for (i = 0; i < PAIRS; i++) {
        int64_t start_us = kit_now_us();

        assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
        took[i] = kit_now_us() - start_us;
    }
    printf("two of five down: %lld us a pair\n", (long long)kit_median(took, PAIRS));
    is_soon(took);
}

static void silent_server_costs_no_time(void **state) {
    int64_t took[PAIRS];
    struct owner *o = owner_new(client_new(), "k");
    int i;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, SHORT_MS), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    stop(1);
    stop(3);
    for (i = 0; i < PAIRS; i++) {
        int64_t start_us = kit_now_us();

        assert_int_equal(owner_acquire(o, 0, SHORT_MS), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
        took[i] = kit_now_us() - start_us;
        kit_run(10); /* so that they fall silent, are found dead, and are tried again */
    }
    printf("two of five silent: %lld us a pair\n", (long long)kit_median(took, PAIRS));
    is_soon(took);
    resume(1);
    resume(3);
    assert_true(kit_until(kit_is_clean, kit_clients[0], 5000));
    assert_true(kit_until(no_keys, NULL, 1000));
}

static void wiped(int i) {
    tell(ask(&servers[i], "FLUSHALL"));
}

static void killed(int i) {
    server_kill9(&servers[i]);
}

static int answers_again(void *which) {
    return server_answers((const struct server *)which);
}

/* It takes a while to start. Meanwhile the loop runs, and renews. */
static void restarted(int i) {
    server_begins_again(&servers[i]);
    assert_true(kit_until(answers_again, &servers[i], 30000));
}

static void nothing(int i) {
    (void)i;
}

static void hold_survives(void (*begin)(int i), void (*end)(int i), int a, int b, int64_t ms) {
    struct owner *o = holder_of(client_new(), "k"), *other = contender_for("k");

    kit_run(120); /* it is registered for push, and the other one waits */
    begin(a);
    begin(b);
    holds_for(o, other, ms);
    end(a);
    kit_run(20);
    end(b);
    assert_true(kit_until(all_votes, NULL, 5000)); /* they are won back */
    holds_for(o, other, WATCHDOG_MS);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_wait(other, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_release(other), RLOCK_OK);
    assert_true(kit_until(no_keys, NULL, 5000));
}

static void tear(void);

static void hold_survives_any_two(void (*begin)(int i), void (*end)(int i), int64_t ms, int step) {
    int a, b, k = 0;

    for (a = 0; a < SERVERS; a++) {
        for (b = a + 1; b < SERVERS; b++, k++) {
            if (k % step == 0) {
                hold_survives(begin, end, a, b, ms);
                tear();
            }
        }
    }
}

static void hold_survives_any_two_that_are_wiped(void **state) {
    (void)state;
    hold_survives_any_two(wiped, nothing, 50, 1);
}

static void hold_survives_any_two_that_are_killed_and_come_back_empty(void **state) {
    (void)state;
    hold_survives_any_two(killed, restarted, 2 * WATCHDOG_MS, 3);
}

static void hold_survives_any_two_that_stand_still(void **state) {
    (void)state;
    hold_survives_any_two(stop, resume, 2 * WATCHDOG_MS, 3);
}

static void hold_survives_one_fault_after_the_other(void **state) {
    struct owner *o = holder_of(client_new(), "k"), *other = contender_for("k");
    char id[64];
    int i;

    (void)state;
    snprintf(id, sizeof id, "%.36s", str(ask(&servers[0], "GET k")));
    for (i = 0; i < 2 * SERVERS; i++) {
        int a = i % SERVERS, b = (i + 2) % SERVERS;

        server_kill9(&servers[a]);
        wiped(b);
        holds_for(o, other, 100);
        restarted(a);
        assert_true(kit_until(all_votes_are_of, id, 5000));
    }
    holds_for(o, other, 100);
}

static void vote_that_was_never_got_is_won_when_its_server_comes(void **state) {
    struct owner *o;
    long long left_ms;

    (void)state;
    server_kill9(&servers[1]);
    server_kill9(&servers[4]);
    o = owner_new(client_new(), "k");
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK); /* no watchdog: nothing is renewed */
    kit_run(50);
    assert_int_equal(keys_on_all(), MAJORITY);
    kit_run(1000); /* of the lease: a vote that comes now is for the rest of it */
    restarted(1);
    restarted(4);
    assert_true(kit_until(all_votes, NULL, 3000));
    left_ms = num(ask(&servers[0], "PTTL k"));
    assert_true(num(ask(&servers[1], "PTTL k")) <= left_ms + 500);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_true(kit_until(no_keys, NULL, 1000));
}

static void keys_of_others_are_left_alone(void **state) {
    struct owner *o = owner_new(client_new(), "k");
    int64_t end_us;

    (void)state;
    tell(ask(&servers[0], "SET k another PX 60000"));
    tell(ask(&servers[1], "SET k another PX 60000"));
    assert_int_equal(owner_acquire(o, 1000, 0), RLOCK_OK);
    for (end_us = kit_now_us() + 2 * WATCHDOG_MS * 1000; kit_now_us() < end_us; kit_run(20)) {
        assert_true(rlock_is_held(o->lock));
    }
    assert_int_equal(owner_release(o), RLOCK_OK);
    kit_run(50);
    assert_int_equal(keys_on_all(), 2);
    assert_string_equal(str(ask(&servers[0], "GET k")), "another");
    assert_string_equal(str(ask(&servers[1], "GET k")), "another");
}

/* ---- faults that leave no majority ---- */

static void three_down_are_a_loss_by_the_deadline(void **state) {
    struct owner *o = holder_of(client_new(), "k"), *other;
    int64_t deadline_us;
    int i;

    (void)state;
    kit_run(WATCHDOG_MS);
    for (i = 0; i < MAJORITY; i++) {
        server_kill9(&servers[i]);
    }
    deadline_us = owner_deadline_us(o);
    other = owner_new(client_new(), "k");
    assert_int_equal(owner_acquire(other, 0, 0), RLOCK_ERR_CONN);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_in_range(o->at_us[RLOCK_LOST], deadline_us - 1000, deadline_us + KIT_LATE_US);
    assert_int_equal(owner_acquire(other, 3 * TIMEOUT_MS, 0), RLOCK_ERR_CONN);
    for (i = 0; i < MAJORITY; i++) {
        restarted(i);
    }
    assert_int_equal(owner_acquire(other, 5000, 0), RLOCK_OK);
}

static void three_silent_are_a_loss_by_the_deadline(void **state) {
    struct owner *o = holder_of(client_new(), "k"), *other;
    int64_t deadline_us;
    int i;

    (void)state;
    kit_run(WATCHDOG_MS);
    for (i = 2; i < SERVERS; i++) {
        stop(i);
    }
    deadline_us = owner_deadline_us(o);
    other = owner_new(client_new(), "k");
    assert_int_equal(rlock_acquire(other->lock, RLOCK_FOREVER, 0, owner_told, other), RLOCK_OK);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_in_range(o->at_us[RLOCK_LOST], deadline_us - 1000, deadline_us + KIT_LATE_US);
    assert_int_equal(other->seen[RLOCK_ACQUIRED], 0);
    kit_run(WATCHDOG_MS);
    assert_int_equal(other->seen[RLOCK_ACQUIRED], 0);
    for (i = 2; i < SERVERS; i++) {
        resume(i);
    }
    assert_int_equal(owner_wait(other, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

static void three_wiped_are_a_loss_at_once(void **state) {
    struct owner *o = owner_new(client_new(), "k");
    int64_t start_us;
    int i;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, kit_clients[0], 5000));
    kit_run(100);
    start_us = kit_now_us();
    for (i = 0; i < MAJORITY; i++) {
        wiped(i);
    }
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    assert_in_range(o->at_us[RLOCK_LOST] - start_us, 0, 500000); /* the next renewal: in 20 s */
    assert_true(kit_until(no_keys, NULL, 2000));
}

static void three_stolen_are_a_loss_at_once(void **state) {
    struct owner *o = owner_new(client_new(), "k");
    int i;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, kit_clients[0], 5000));
    kit_run(100);
    for (i = 0; i < MAJORITY; i++) {
        tell(ask(&servers[i], "SET k thief PX 60000"));
    }
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    kit_run(200);
    assert_int_equal(keys_on_all(), MAJORITY);
}

static void bare_majority_that_loses_a_vote_is_lost(void **state) {
    struct owner *o;

    (void)state;
    server_kill9(&servers[3]);
    server_kill9(&servers[4]);
    o = owner_new(client_new(), "k");
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, kit_clients[0], 5000));
    kit_run(100);
    wiped(0); /* from here on another one could have a majority with the two that come back */
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

/* A server that comes back empty gives no vote until every hold has ended that it may have
 * forgotten: as if it had stayed out for so long. */
static void server_in_quarantine_has_no_vote(void **state) {
    rlock_config config = kit_config(&servers[0]);
    struct owner *held, *waits;
    int64_t began_us;
    int i;

    (void)state;
    config.unix_path = NULL;
    config.store = quorum();
    config.command_timeout_ms = TIMEOUT_MS;
    config.quarantine_ms = config.watchdog_lease_ms = SHORT_MS;
    held = owner_new(kit_client(&config), "k");
    waits = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(held, 0, 0), RLOCK_ERR_SERVER); /* all of them are new */
    assert_non_null(strstr(held->text[RLOCK_ACQUIRED], "quarantine: nothing is granted"));
    server_kill9(&servers[3]);
    server_kill9(&servers[4]);
    assert_int_equal(owner_acquire(held, 5000, 0), RLOCK_OK); /* with the votes of 0, 1 and 2 */
    server_kill9(&servers[2]);
    began_us = kit_now_us();
    for (i = 2; i < SERVERS; i++) { /* a majority that knows of nothing */
        assert_int_equal(server_restart(&servers[i]), 0);
    }
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
    while (waits->seen[RLOCK_ACQUIRED] == 0 && kit_now_us() < began_us + 10000000) {
        kit_run(2);
        assert_false(rlock_is_held(held->lock) && rlock_is_held(waits->lock));
    }
    assert_int_equal(waits->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_true(kit_now_us() - began_us > SHORT_MS * 1000);
    assert_int_equal(held->seen[RLOCK_LOST], 1);
}

static void minority_grants_no_lock(void **state) {
    static const int cut_off[SERVERS] = {0, 1, -1, -1, -1};
    struct owner *o = owner_new(client_of(quorum_of(cut_off, SERVERS)), "k");
    struct owner *other = owner_new(client_new(), "k");

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_ERR_CONN);
    assert_int_equal(owner_acquire(o, 700, 0), RLOCK_ERR_CONN);
    assert_true(kit_until(no_keys, NULL, 1000));
    assert_int_equal(owner_acquire(other, 0, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    kit_run(2 * WATCHDOG_MS);
    assert_true(rlock_is_held(other->lock));
    assert_int_equal(o->seen[RLOCK_ACQUIRED], o->taken[RLOCK_ACQUIRED]);
}

static void two_addresses_of_one_server_are_not_two_votes(void **state) {
    static const int twice[3] = {0, 0, 1};
    struct owner *o = owner_new(client_of(quorum_of(twice, 3)), "k");

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    kit_run(50);
    assert_int_equal(keys_on_all(), 2);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_true(kit_until(no_keys, NULL, 1000));
    server_kill9(&servers[1]);
    assert_int_not_equal(owner_acquire(o, 500, 5000), RLOCK_OK);
    assert_true(kit_until(no_keys, NULL, 1000));
}

static void waiter_gets_it_when_a_majority_comes_up(void **state) {
    struct owner *o;
    int i;

    (void)state;
    for (i = 0; i < SERVERS; i++) {
        server_kill9(&servers[i]);
    }
    o = owner_new(client_new(), "k");
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_ERR_CONN);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    restarted(0);
    restarted(1);
    kit_run(300);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], o->taken[RLOCK_ACQUIRED]);
    assert_false(kit_stats(kit_clients[0]).up);
    restarted(4);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(kit_stats(kit_clients[0]).up);
}

static void password_refused_by_most_is_reported_and_by_one_is_not(void **state) {
    rlock_config nodes[SERVERS], config = kit_config(&servers[0]);
    struct owner *o;
    int i, wrong;

    (void)state;
    for (i = 0; i < SERVERS; i++) {
        tell(ask(&servers[i], "ACL SETUSER locker reset on >secret ~* &* +@all"));
    }
    for (wrong = 2; wrong <= MAJORITY; wrong++) {
        memset(nodes, 0, sizeof nodes);
        for (i = 0; i < SERVERS; i++) {
            nodes[i].unix_path = servers[i].socket;
            nodes[i].username = "locker";
            nodes[i].password = i < wrong ? "wrong" : "secret";
        }
        assert_int_equal(rlock_quorum_new(&stores[store_count], nodes, SERVERS), RLOCK_OK);
        config.store = stores[store_count++];
        o = owner_new(kit_client(&config), "k");
        assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 5000),
                         wrong < MAJORITY ? RLOCK_OK : RLOCK_ERR_AUTH);
        if (wrong < MAJORITY) {
            assert_int_equal(owner_release(o), RLOCK_OK);
        } else {
            assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "WRONGPASS"));
        }
    }
    assert_true(kit_until(no_keys, NULL, 1000));
}

static void long_words_of_a_server_are_cut(void **state) {
    rlock_config nodes[3], config = kit_config(&servers[0]);
    char name[151];
    struct owner *o;
    int i;

    (void)state;
    memset(nodes, 0, sizeof nodes);
    memset(name, 'n', 150);
    name[150] = '\0';
    for (i = 0; i < 3; i++) {
        tell(ask(&servers[i], "ACL SETUSER %s reset on >secret ~* &* +@all -set", name));
        nodes[i].unix_path = servers[i].socket;
        nodes[i].username = name;
        nodes[i].password = "secret";
    }
    assert_int_equal(rlock_quorum_new(&stores[store_count], nodes, 3), RLOCK_OK);
    config.store = stores[store_count++];
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 1000, 5000), RLOCK_ERR_AUTH);
    assert_memory_equal(o->text[RLOCK_ACQUIRED], "NOPERM", 6);
    for (i = 0; i < 3; i++) {
        tell(ask(&servers[i], "ACL DELUSER %s", name));
    }
}

static rlock_info told;

static void is_told(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    told = *info;
}

static int was_told(void *arg) {
    (void)arg;
    return told.status != KIT_NOTHING;
}

static void operator_sees_and_forces_what_a_majority_holds(void **state) {
    rlock_client *client = client_new();
    struct owner *o = owner_new(client_new(), "k");
    rlock_options options;

    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, kit_clients[1], 5000));
    kit_run(100);
    server_kill9(&servers[2]);
    told.status = KIT_NOTHING;
    assert_int_equal(rlock_inspect(client, &options, is_told, NULL), RLOCK_OK);
    assert_true(kit_until(was_told, NULL, 5000));
    assert_int_equal(told.status, RLOCK_OK);
    assert_int_equal(told.holders, 1);
    assert_in_range(told.left_ms, 50000, 60000);
    told.status = KIT_NOTHING;
    assert_int_equal(rlock_force_release(client, &options, is_told, NULL), RLOCK_OK);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    assert_int_equal(told.holders, 1);
    assert_true(kit_until(no_keys, NULL, 1000));
}

#if RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_KINDS
static char described[64];

static void is_described(rlock_client *client, const rlock_info *info, void *user) {
    is_told(client, info, user);
    snprintf(described, sizeof described, "%s",
             info->who_count == 1 && info->who[0].description ? info->who[0].description : "none");
}

/* One server does not know the holder, and one is away. */
static void holder_is_listed_by_those_servers_that_know_it(void **state) {
    rlock_config config = kit_config(&servers[0]);
    rlock_client *asks = client_new();
    struct owner *o;
    rlock_options options;
    int round;

    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    config.unix_path = NULL;
    config.store = quorum();
    config.command_timeout_ms = TIMEOUT_MS;
    config.description = "the one";
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(kit_until(all_votes, NULL, 1000));
    tell(ask(&servers[0], "DEL k"));
    server_kill9(&servers[2]);
    for (round = 0; round < 2; round++) {
        told.status = KIT_NOTHING;
        assert_int_equal(rlock_describe(asks, &options, is_described, NULL), RLOCK_OK);
        assert_true(kit_until(was_told, NULL, 5000));
        assert_int_equal(told.status, RLOCK_OK);
        assert_int_equal(told.holders, 1);
        assert_string_equal(described, "the one");
    }
}
#endif

/* ---- nothing is left behind ---- */

static void release_reaches_servers_that_stood_still(void **state) {
    struct owner *o = owner_new(client_new(), "k");

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(kit_until(all_votes, NULL, 1000));
    kit_run(50); /* all have said so; else it is not sure before a lease more */
    stop(0);
    stop(3);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(keys_on_all(), 0);
    assert_int_equal(kit_stats(kit_clients[0]).cleaning, 1);
    kit_run(2 * TIMEOUT_MS);
    resume(0);
    resume(3);
    assert_true(kit_until(kit_is_clean, kit_clients[0], 5000));
    assert_int_equal(keys_on_all(), 0);
}

static void acquires_that_ended_without_it_leave_no_key(void **state) {
    struct owner *o = owner_new(client_new(), "k");
    int round, i;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, SHORT_MS), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    for (round = 0; round < 3; round++) {
        for (i = 0; i <= round + 1; i++) {
            stop(i);
        }
        if (round == 0) { /* cancelled before, while and after it is answered */
            for (i = 0; i < 5; i++) {
                assert_int_equal(rlock_acquire(o->lock, 5000, SHORT_MS, owner_told, o), RLOCK_OK);
                kit_run(i);
                if (rlock_cancel(o->lock) == RLOCK_OK) {
                    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_ERR_CANCELED);
                } else {
                    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
                    assert_int_equal(owner_release(o), RLOCK_OK);
                }
            }
        } else {
            assert_int_not_equal(owner_acquire(o, round == 1 ? 0 : 3 * TIMEOUT_MS, SHORT_MS),
                                 RLOCK_OK);
        }
        for (i = 0; i < SERVERS; i++) {
            resume(i);
        }
        assert_true(kit_until(kit_is_clean, kit_clients[0], 5000));
        assert_true(kit_until(no_keys, NULL, 1000));
    }
}

static void freed_client_leaves_no_key_at_any_moment(void **state) {
    int step;

    (void)state;
    for (step = 0; step < 40; step++) {
        struct owner *o = owner_new(client_new(), "k"), *waiter = owner_new(client_new(), "k");

        assert_int_equal(rlock_acquire(o->lock, 5000, 60000, owner_told, o), RLOCK_OK);
        assert_int_equal(rlock_acquire(waiter->lock, 5000, 60000, owner_told, waiter), RLOCK_OK);
        if (step % 4 == 3) { /* two that are there, and do not answer */
            stop(step % SERVERS);
            stop((step + 1) % SERVERS);
        }
        kit_run(step / 3);
        if (step % 2 != 0 && rlock_is_held(o->lock)) {
            assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_OK);
        }
        if (step % 5 == 4) {
            rlock_free(o->lock);
            o->lock = NULL;
            kit_run(step % 3);
        }
        rlock_client_free(kit_clients[0]);
        kit_clients[0] = NULL;
        rlock_client_free(kit_clients[1]);
        kit_clients[1] = NULL;
        tear();
        assert_int_equal(keys_on_all(), 0);
    }
}

static void shutdown_done(rlock_client *client, int status, void *user) {
    (void)client;
    *(int *)user = status;
}

static int is_done(void *arg) {
    return *(int *)arg != KIT_NOTHING;
}

static void shutdown_releases_with_two_servers_down(void **state) {
    rlock_client *client = client_new();
    struct owner *o = holder_of(client, "k");
    static int status;

    (void)state;
    status = KIT_NOTHING;
    server_kill9(&servers[0]);
    stop(1);
    assert_int_equal(rlock_client_shutdown(client, 1000, shutdown_done, &status), RLOCK_OK);
    assert_true(kit_until(is_done, &status, 2000));
    assert_int_equal(status, RLOCK_OK);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_CLOSED);
    assert_int_equal(keys_on_all(), 0);
}

static void rlock_free_lets_go_in_the_background(void **state) {
    struct owner *o = holder_of(client_new(), "k");

    (void)state;
    rlock_free(o->lock);
    o->lock = NULL;
    assert_true(kit_until(no_keys, NULL, 1000));
}

/* ---- contention ---- */

#define FIGHTERS 4

struct ring { /* shared by the processes */
    int inside, overlaps, holds[FIGHTERS], failed;
};

static void fights(struct ring *ring, int me, int64_t ms) {
    int64_t end_us = kit_now_us() + ms * 1000;
    struct owner *o;

    kit_owner_count = kit_client_count = store_count = 0; /* the parent's */
    if (kit_open() != 0) {
        _exit(1);
    }
    o = owner_new(client_new(), "k");
    while (kit_now_us() < end_us) {
        if (owner_acquire(o, 5000, 5000) != RLOCK_OK) {
            __sync_add_and_fetch(&ring->failed, 1);
            continue;
        }
        if (__sync_add_and_fetch(&ring->inside, 1) != 1) {
            __sync_add_and_fetch(&ring->overlaps, 1);
        }
        ring->holds[me]++;
        server_sleep_ms(1);
        __sync_sub_and_fetch(&ring->inside, 1);
        if (owner_release(o) != RLOCK_OK) {
            __sync_add_and_fetch(&ring->failed, 1);
        }
    }
    rlock_client_free(kit_clients[0]);
    _exit(0);
}

static void processes_fight(bool two_down) {
    struct ring *ring = (struct ring *)mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[FIGHTERS];
    int i, code, total = 0;

    assert_true(ring != MAP_FAILED);
    if (two_down) {
        server_kill9(&servers[0]);
        server_kill9(&servers[1]);
    }
    fflush(NULL);
    kit_hand_drop();
    for (i = 0; i < FIGHTERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            fights(ring, i, 3000);
        }
    }
    for (i = 0; i < FIGHTERS; i++) {
        assert_int_equal(waitpid(pids[i], &code, 0), pids[i]);
        assert_int_equal(code, 0);
        total += ring->holds[i];
    }
    printf("%d processes%s: %d holds in 3 s (%d %d %d %d)\n", FIGHTERS,
           two_down ? ", two of five servers down" : "", total, ring->holds[0], ring->holds[1],
           ring->holds[2], ring->holds[3]);
    assert_int_equal(ring->overlaps, 0);
    assert_int_equal(ring->failed, 0);
    for (i = 0; i < FIGHTERS; i++) {
        assert_in_range(ring->holds[i], 1, 100000);
    }
    munmap(ring, sizeof *ring);
    kit_run(100);
    assert_int_equal(keys_on_all(), 0);
}

static void processes_that_fight_for_a_key_all_get_it(void **state) {
    (void)state;
    processes_fight(false);
}

static void processes_that_fight_get_it_with_two_servers_down(void **state) {
    (void)state;
    processes_fight(true);
}

static void split_vote_is_over_soon(void **state) {
    struct owner *o = owner_new(client_new(), "k");
    int64_t start_us;

    (void)state;
    tell(ask(&servers[0], "SET k one PX 60000"));
    tell(ask(&servers[1], "SET k one PX 60000"));
    tell(ask(&servers[2], "SET k two PX 60000"));
    server_kill9(&servers[3]);
    assert_int_equal(rlock_acquire(o->lock, 10000, 5000, owner_told, o), RLOCK_OK);
    kit_run(1000);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    start_us = kit_now_us();
    tell(ask(&servers[1], "DEL k"));
    tell(ask(&servers[2], "DEL k"));
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_in_range(o->at_us[RLOCK_ACQUIRED] - start_us, 0, 400000);
}

/* ------------------------------------------------------------------------------------------------
 */

static void tear(void) {
    int i;

    kit_reset();
    while (store_count > 0) {
        rlock_quorum_free(stores[--store_count]);
    }
    everything_runs();
    for (i = 0; i < SERVERS; i++) {
        while (num(ask(&servers[i], "EVAL %s 0", "return #redis.call('KEYS','*')")) != 0) {
            fprintf(stderr, "left behind: %s\n", str(ask(&servers[i], "GET k")));
            tell(ask(&servers[i], "FLUSHALL"));
        }
    }
}

static int test_begins(void **state) {
    int i;

    (void)state;
    everything_runs();
    for (i = 0; i < SERVERS; i++) {
        tell(ask(&servers[i], "FLUSHALL"));
    }
    return 0;
}

static int test_ends(void **state) {
    int i;

    (void)state;
    kit_reset();
    while (store_count > 0) {
        rlock_quorum_free(stores[--store_count]);
    }
    for (i = 0; i < SERVERS; i++) {
        if (paused[i]) {
            resume(i);
        }
    }
    return 0;
}

static int group_begins(void **state) {
    int i;

    (void)state;
    for (i = 0; i < SERVERS; i++) {
        if (server_start(&servers[i], NULL) != 0) {
            return -1;
        }
    }
    return kit_open();
}

static int group_ends(void **state) {
    int i;

    (void)state;
    kit_close();
    kit_hand_drop();
    for (i = 0; i < SERVERS; i++) {
        server_stop(&servers[i]);
    }
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(every_server_has_the_key_with_a_token_of_its_own),
        TEST(watchdog_keeps_all_votes),
        TEST(any_number_of_servers_will_do),
#if RLOCK__HAS_REDISSON
        TEST(redisson_wire_works_too),
#endif
        TEST(bad_arguments_are_refused),
        TEST(server_that_is_named_wrongly_is_refused),
        TEST(name_without_a_resolver_is_refused),
        TEST(warm_handle_allocates_nothing),
        TEST(down_server_costs_no_time),
        TEST(silent_server_costs_no_time),
        TEST(hold_survives_any_two_that_are_wiped),
        TEST(hold_survives_any_two_that_are_killed_and_come_back_empty),
        TEST(hold_survives_any_two_that_stand_still),
        TEST(hold_survives_one_fault_after_the_other),
        TEST(vote_that_was_never_got_is_won_when_its_server_comes),
        TEST(keys_of_others_are_left_alone),
        TEST(three_down_are_a_loss_by_the_deadline),
        TEST(three_silent_are_a_loss_by_the_deadline),
        TEST(three_wiped_are_a_loss_at_once),
        TEST(three_stolen_are_a_loss_at_once),
        TEST(bare_majority_that_loses_a_vote_is_lost),
#if RLOCK__HAS_REPLICAS
        TEST(server_in_quarantine_has_no_vote),
#endif
        TEST(minority_grants_no_lock),
        TEST(two_addresses_of_one_server_are_not_two_votes),
        TEST(waiter_gets_it_when_a_majority_comes_up),
        TEST(password_refused_by_most_is_reported_and_by_one_is_not),
        TEST(long_words_of_a_server_are_cut),
#if RLOCK__HAS_KINDS
        TEST(operator_sees_and_forces_what_a_majority_holds),
#if RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_KINDS
        TEST(holder_is_listed_by_those_servers_that_know_it),
#endif
#endif
        TEST(release_reaches_servers_that_stood_still),
        TEST(acquires_that_ended_without_it_leave_no_key),
        TEST(freed_client_leaves_no_key_at_any_moment),
        TEST(shutdown_releases_with_two_servers_down),
        TEST(rlock_free_lets_go_in_the_background),
        TEST(processes_that_fight_for_a_key_all_get_it),
        TEST(processes_that_fight_get_it_with_two_servers_down),
        TEST(split_vote_is_over_soon),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return shard_group("quorum", tests, group_begins, group_ends);
}
