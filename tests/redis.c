/* The Redis store against a real private server: what stands on the wire, who is woken and how
 * soon, what it costs. */
#include <fcntl.h>
#include <netinet/in.h>
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

#include <hiredis/async.h>

#define FENCE_LIFE_MS 86400000LL /* a counter outlives its last use by a day at least */

static struct server server;

#include "wires.h"

/* Starts an acquire for ever and waits until the waiter has asked and sleeps. */
static void starts_waiting(rlock_client *client, struct owner *o) {
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(150);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
}

/* ---- on the wire ---- */

static void string_wire_sets_the_token_with_its_lease(void **state) {
    struct owner *o = owner_new(client_on(RLOCK_WIRE_STRING), "k");
    long long left;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_string_equal(str(ask(&server, "TYPE k")), "string");
    assert_true(is_token(str(ask(&server, "GET k"))));
    left = num(ask(&server, "PTTL k"));
    assert_in_range(left, 4000, 5000);
    assert_true(rlock_remaining_ms(o->lock) <= left + 1);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static void redisson_wire_sets_a_hash_with_one_field(void **state) {
    struct owner *o = owner_new(client_on(RLOCK_WIRE_REDISSON), "k");
    redisReply *reply;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    reply = ask(&server, "HGETALL k");
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, 2);
    assert_true(is_token(reply->element[0]->str));
    assert_string_equal(reply->element[1]->str, "1");
    freeReplyObject(reply);
    assert_in_range(num(ask(&server, "PTTL k")), 4000, 5000);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static void every_acquire_has_a_new_token(void **state) {
    struct owner *o = owner_new(client_on(RLOCK_WIRE_STRING), "k");
    char first[64];

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    memcpy(first, str(ask(&server, "GET k")), sizeof first); /* it is in a larger buffer */
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_string_not_equal(str(ask(&server, "GET k")), first);
    assert_int_equal(strncmp(str(ask(&server, "GET k")), first, 36), 0);
}

static void held_by_another_is_busy_and_tells_its_time_left(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");

    foreign_takes(wire, "k", 5000);
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_BUSY);
    assert_int_equal(owner_acquire(o, 200, 1000), RLOCK_ERR_TIMEOUT);
    assert_in_range(o->remaining_ms[RLOCK_ACQUIRED], 3000, 5000);
}

static void release_deletes_only_its_own_token(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");

    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    tell(ask(&server, "DEL k"));
    foreign_takes(wire, "k", 60000);
    assert_int_equal(owner_release(o), RLOCK_ERR_NOT_HELD);
    kit_run(100);
    assert_true(num(ask(&server, "PTTL k")) > 50000);
}

static void renew_extends_and_never_shortens(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");

    assert_int_equal(owner_acquire(o, 0, 2000), RLOCK_OK);
    assert_int_equal(owner_renew(o, 60000), RLOCK_OK);
    assert_true(num(ask(&server, "PTTL k")) > 50000);
    assert_true(rlock_remaining_ms(o->lock) > 50000);
    assert_int_equal(owner_renew(o, 1000), RLOCK_OK);
    assert_true(num(ask(&server, "PTTL k")) > 50000);
    assert_true(rlock_remaining_ms(o->lock) <= 1000);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void renew_of_a_deleted_key_does_not_make_it_again(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");

    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    tell(ask(&server, "DEL k"));
    assert_int_equal(owner_renew(o, 0), RLOCK_ERR_LOST);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 1000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static void watchdog_keeps_the_key_alive_beyond_its_lease(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *o;
    int turn;

    config.wire = wire;
    config.watchdog_lease_ms = 600;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    for (turn = 0; turn < 20; turn++) {
        kit_run(100);
        assert_true(num(ask(&server, "PTTL k")) > 0);
        assert_true(rlock_is_held(o->lock));
    }
    assert_true(kit_stats(client).renewed >= 5);
    assert_int_equal(owner_release(o), RLOCK_OK);
    kit_run(400);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

/* A time to live that was taken off is nobody's word that the lock is free. */
static void persisted_hold_is_still_held(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k"), *other = owner_new(client_on(wire), "k");

    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(50);
    assert_int_equal(num(ask(&server, "PERSIST k")), 1);
    kit_run(100); /* the push makes the client look */
    assert_int_equal(num(ask(&server, "EXISTS k")), 1);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(num(ask(&server, "PTTL k")), -1);
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    assert_int_equal(owner_acquire(other, 0, 0), RLOCK_ERR_BUSY);
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_acquire(other, 0, 0), RLOCK_OK);
    assert_int_equal(owner_release(other), RLOCK_OK);
}

/* ---- what it costs ---- */

/* Whether the server deletes a key with a certain value by one command. */
static bool delifeq(void) {
    redisReply *reply = ask(&server, "COMMAND INFO delifeq");
    bool known = reply->elements == 1 && reply->element[0]->type == REDIS_REPLY_ARRAY;

    freeReplyObject(reply);
    return known;
}

static long long releases(void) {
    return info(&server, "commandstats", "cmdstat_evalsha:calls") +
           info(&server, "commandstats", "cmdstat_delifeq:calls");
}

static void uncontended_pair_is_one_command_each(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");
    int i;

    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    tell(ask(&server, "CONFIG RESETSTAT"));
    for (i = 0; i < 10; i++) {
        assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    if (wire == RLOCK_WIRE_STRING) {
        assert_int_equal(info(&server, "commandstats", "cmdstat_set:calls"), 10);
        assert_int_equal(releases(), 10);
        assert_int_equal(info(&server, "commandstats", "cmdstat_delifeq:calls"),
                         delifeq() ? 10 : 0);
        assert_int_equal(info(&server, "commandstats", "cmdstat_pttl:calls"), 0);
    } else {
        assert_int_equal(releases(), 20);
    }
    assert_int_equal(info(&server, "commandstats", "cmdstat_eval:calls"), 0);
}

/* Where the server has a command for it, a release says with the script what that command does not
 * tell, and does without the command where a user may not use it. */
static void release_without_a_script_is_as_exact_as_with_one(void **state) {
    struct owner *o = owner_new(client_on(RLOCK_WIRE_STRING), "k");
    int i;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    tell(ask(&server, "DEL k"));
    assert_int_equal(owner_release(o), RLOCK_ERR_NOT_HELD);
    assert_int_equal(o->reason[RLOCK_RELEASED], RLOCK_REASON_DELETED);
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    tell(ask(&server, "SET k other"));
    assert_int_equal(owner_release(o), RLOCK_ERR_NOT_HELD);
    assert_int_equal(o->reason[RLOCK_RELEASED], RLOCK_REASON_STOLEN);
    tell(ask(&server, "DEL k"));
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    tell(ask(&server, "DEL k"));
    tell(ask(&server, "RPUSH k v"));
    assert_int_equal(owner_release(o), RLOCK_ERR_NOT_HELD);
    tell(ask(&server, "DEL k"));
    if (delifeq()) {
        tell(ask(&server, "ACL SETUSER default -delifeq"));
        tell(ask(&server, "CONFIG RESETSTAT"));
        for (i = 0; i < 3; i++) {
            assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
            assert_int_equal(owner_release(o), RLOCK_OK);
        }
        assert_int_equal(info(&server, "commandstats", "cmdstat_evalsha:calls"), 3);
        tell(ask(&server, "ACL SETUSER default +@all"));
    }
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

#define MANY 200
#define MANY_LEASE_MS 900

/* Holds many keys for longer than a lease; returns how many commands the second lease took. */
static long long hold_many(rlock_client *client, struct owner **o) {
    long long before;
    char key[32];
    int i;

    for (i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "many:%d", i);
        o[i] = owner_new(client, key);
        assert_int_equal(rlock_acquire(o[i]->lock, 0, 0, owner_told, o[i]), RLOCK_OK);
    }
    for (i = 0; i < MANY; i++) {
        assert_int_equal(owner_wait(o[i], RLOCK_ACQUIRED, 3000), RLOCK_OK);
    }
    kit_run(MANY_LEASE_MS);
    before = (long long)kit_stats(client).commands;
    kit_run(MANY_LEASE_MS);
    for (i = 0; i < MANY; i++) {
        assert_true(rlock_is_held(o[i]->lock));
    }
    return (long long)kit_stats(client).commands - before;
}

/* And each of them is watched and judged as if it were alone. */
static void many_holds_are_renewed_by_few_commands(void **state) {
    static struct owner *o[MANY];
    rlock_config config = kit_config(&server);
    rlock_client *client;
    int i;

    (void)state;
    config.watchdog_lease_ms = MANY_LEASE_MS;
    client = kit_client(&config);
    assert_true(hold_many(client, o) < 3 * MANY / 2); /* of some 600 or 660 renewals */
    tell(ask(&server, "SET many:5 other"));
    tell(ask(&server, "DEL many:6"));
    tell(ask(&server, "DEL many:7"));
    tell(ask(&server, "RPUSH many:7 v"));
    for (i = 5; i < 8; i++) {
        assert_int_equal(owner_wait(o[i], RLOCK_LOST, MANY_LEASE_MS / 9), RLOCK_ERR_LOST);
        assert_int_equal(o[i]->reason[RLOCK_LOST],
                         i == 6 ? RLOCK_REASON_DELETED : RLOCK_REASON_STOLEN);
    }
    tell(ask(&server, "PEXPIRE many:8 60000"));
    kit_run(MANY_LEASE_MS);
    for (i = 0; i < MANY; i++) {
        assert_int_equal(o[i]->seen[RLOCK_LOST], i >= 5 && i < 8);
    }
    assert_in_range(num(ask(&server, "PTTL many:8")), 1, MANY_LEASE_MS); /* as it was asked for */
}

/* The server has each for as long as its holder says, whatever its neighbours asked for. */
static void renewals_for_leases_of_two_lengths_keep_them_apart(void **state) {
    static struct owner *o[MANY];
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    rlock_options options;
    char key[32];
    int i, look;

    (void)state;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.watchdog = RLOCK_WATCHDOG_ON;
    for (i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "many:%d", i);
        o[i] = owner_with(client, &options);
        assert_int_equal(rlock_acquire(o[i]->lock, 0, i % 2 == 0 ? 1000 : 1080, owner_told, o[i]),
                         RLOCK_OK);
    }
    for (look = 0; look < 15; look++) {
        kit_run(100);
        for (i = 0; i < MANY; i++) {
            long long left_ms = num(ask(&server, "PTTL many:%d", i));

            assert_true(rlock_is_held(o[i]->lock));
            assert_true(rlock_remaining_ms(o[i]->lock) <= left_ms);
        }
    }
}

/* Where nobody pushes, the batch itself finds what is lost in it. */
static void renewal_in_a_batch_finds_what_is_gone_stolen_or_no_lock(void **state) {
    static struct owner *o[MANY];
    rlock_config config = kit_config(&server);
    rlock_client *client;
    int i;

    (void)state;
    tell(ask(&server, "ACL SETUSER default -client|tracking"));
    config.watchdog_lease_ms = MANY_LEASE_MS;
    client = kit_client(&config);
    assert_true(hold_many(client, o) < 3 * MANY / 2);
    tell(ask(&server, "ACL SETUSER default +@all"));
    tell(ask(&server, "SET many:5 other"));
    tell(ask(&server, "DEL many:6"));
    tell(ask(&server, "DEL many:7"));
    tell(ask(&server, "RPUSH many:7 v"));
    kit_run(MANY_LEASE_MS);
    for (i = 0; i < MANY; i++) {
        assert_int_equal(o[i]->seen[RLOCK_LOST], i >= 5 && i < 8);
        assert_int_equal(o[i]->reason[RLOCK_LOST], i == 5 || i == 7 ? RLOCK_REASON_STOLEN
                                                   : i == 6         ? RLOCK_REASON_DELETED
                                                                    : RLOCK_REASON_NONE);
    }
    assert_string_equal(str(ask(&server, "GET many:5")), "other");
}

/* Where the script may not run each is renewed alone, and nothing is lost. */
static void renewals_go_alone_where_a_batch_is_refused(void **state) {
    static struct owner *o[MANY];
    rlock_config config = kit_config(&server);

    (void)state;
    tell(ask(&server, "ACL SETUSER default -mget"));
    config.watchdog_lease_ms = MANY_LEASE_MS;
    assert_true(hold_many(kit_client(&config), o) >= 3 * MANY);
    tell(ask(&server, "ACL SETUSER default +@all"));
}

/* The server forgets the script in between. */
static void batch_of_renewals_sends_its_script_again(void **state) {
    static struct owner *o[MANY];
    rlock_config config = kit_config(&server);
    rlock_client *client;
    int i;

    (void)state;
    config.watchdog_lease_ms = MANY_LEASE_MS;
    client = kit_client(&config);
    hold_many(client, o);
    for (i = 0; i < 3; i++) {
        tell(ask(&server, "SCRIPT FLUSH"));
        tell(ask(&server, "CONFIG RESETSTAT"));
        kit_run(MANY_LEASE_MS / 2);
        assert_in_range(info(&server, "commandstats", "cmdstat_eval:calls"), 1, 5);
    }
    kit_run(MANY_LEASE_MS);
    for (i = 0; i < MANY; i++) {
        assert_true(rlock_is_held(o[i]->lock));
    }
}

static void commands_of_one_turn_leave_together(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    struct owner *first = owner_new(client, "first");
    struct owner *o[64];
    long long reads, commands;
    char key[32];
    int i;

    (void)state;
    assert_int_equal(owner_acquire(first, 0, 5000), RLOCK_OK);
    for (i = 0; i < 64; i++) {
        snprintf(key, sizeof key, "k:%d", i);
        o[i] = owner_new(client, key);
    }
    reads = info(&server, "stats", "total_reads_processed");
    commands = info(&server, "stats", "total_commands_processed");
    for (i = 0; i < 64; i++) {
        assert_int_equal(rlock_acquire(o[i]->lock, 0, 5000, owner_told, o[i]), RLOCK_OK);
    }
    for (i = 0; i < 64; i++) {
        assert_int_equal(owner_wait(o[i], RLOCK_ACQUIRED, 5000), RLOCK_OK);
    }
    assert_true(info(&server, "stats", "total_commands_processed") - commands >= 64);
    assert_true(info(&server, "stats", "total_reads_processed") - reads <= 10);
}

static void warm_handle_allocates_nothing(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");
    unsigned long before = 0;
    int i;

    for (i = 0; i < 200; i++) {
        if (i == 100) {
            before = allocations;
        }
        assert_int_equal(owner_acquire(o, i % 2 ? RLOCK_FOREVER : 0, 5000), RLOCK_OK);
        assert_int_equal(owner_renew(o, 6000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_true(before > 0);
    assert_int_equal(allocations, before);
}

static void waiting_costs_no_polling(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k");
    uint64_t before;

    foreign_takes(wire, "k", 60000);
    starts_waiting(client, o);
    before = kit_stats(client).commands;
    kit_run(1000);
    assert_true(kit_stats(client).commands - before <= 5);
    rlock_cancel(o->lock);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_ERR_CANCELED);
}

/* String wire: SET, and the script that says for how long; that one registers the key as well. */
static void first_wait_for_a_key_is_two_requests_and_misses_no_release(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k"), *before = owner_new(client, "before");
    uint64_t commands;

    foreign_takes(wire, "before", 60000);
    starts_waiting(client, before);
    foreign_takes(wire, "k", 60000);
    commands = kit_stats(client).commands;
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    kit_run(150);
    assert_int_equal(kit_stats(client).commands - commands, wire == RLOCK_WIRE_STRING ? 2 : 1);
    foreign_deletes(wire, "k");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    tell(ask(&server, "DEL before"));
    assert_int_equal(owner_wait(before, RLOCK_ACQUIRED, 1000), RLOCK_OK);
}

/* The watching connection is asked whether it lives once in three command timeouts. */
static void idle_holder_costs_few_heartbeats(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *o;
    uint64_t before;

    (void)state;
    config.command_timeout_ms = 100;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(200);
    before = kit_stats(client).commands;
    kit_run(1500);
    assert_in_range(kit_stats(client).commands - before, 2, 6);
    assert_int_equal(kit_stats(client).faults, 0);
    assert_true(kit_stats(client).pushing);
}

static int served, in_order;

static void serves_and_lets_go(rlock *lock, const rlock_event *event, void *user) {
    struct owner *o = (struct owner *)user;

    owner_told(lock, event, user);
    if (event->status == RLOCK_OK) {
        in_order += o == &kit_owners[served + 1]; /* the first owner was the holder */
        served++;
        rlock_release(lock, owner_told, o);
    }
}

static int all_served(void *arg) {
    return served == *(int *)arg;
}

static void thousand_waiters_are_served_in_turn_for_few_commands(void **state) {
    rlock_wire wire = wire_of(state);
    int n = 1000, i;
    rlock_client *client = client_on(wire);
    struct owner *holder = owner_new(client, "k");
    uint64_t before;

    served = in_order = 0;
    assert_int_equal(owner_acquire(holder, 0, 60000), RLOCK_OK);
    for (i = 0; i < n; i++) {
        struct owner *o = owner_new(client, "k");

        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, serves_and_lets_go, o),
                         RLOCK_OK);
    }
    kit_run(200);
    assert_int_equal(kit_stats(client).waiting, n);
    before = kit_stats(client).commands;
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_true(kit_until(all_served, &n, 20000));
    assert_int_equal(in_order, n);
    print_message("%.2f commands a hand-over\n", (double)(kit_stats(client).commands - before) / n);
    assert_true(kit_stats(client).commands - before <= (uint64_t)n * 2);
}

/* Handles of one client that want the key again and again, and keep it for a moment each time. */
static struct {
    int64_t lease_ms;
    int hold_ms, holds;
    int renewals, to_come; /* before they let go; two, so that no look is out just then */
} crowd;

static void crowd_told(rlock *lock, const rlock_event *event, void *user) {
    if (event->kind == RLOCK_RELEASED) {
        (void)rlock_acquire(lock, RLOCK_FOREVER, crowd.lease_ms, crowd_told, user);
        return;
    }
    if (event->kind == RLOCK_ACQUIRED) {
        crowd.holds++;
        crowd.to_come = crowd.renewals;
        server_sleep_ms(crowd.hold_ms);
    }
    if (crowd.to_come-- <= 0 || rlock_renew(lock, 0, crowd_told, user) != RLOCK_OK) {
        (void)rlock_release(lock, crowd_told, user);
    }
}

/* Renewed holds count as old as they are, and short leases, which soon are too old to be handed on,
 * make others come first all the same. */
static void waiter_of_another_client_is_served_between_those_who_hand_on(void **state) {
    static const struct {
        int64_t lease_ms;
        int hold_ms, renewals;
    } rows[] = {{30000, 5, 0}, {30000, 10, 2}, {30000, 25, 0}, {150, 12, 0}};
    size_t row;
    int i, k;

    (void)state;
    for (row = 0; row < sizeof rows / sizeof *rows; row++) {
        rlock_client *many = client_on(RLOCK_WIRE_STRING);
        rlock_client *one = client_on(RLOCK_WIRE_STRING);
        const char key[] = {(char)('a' + row), 0}; /* its own: a freed client may leave a lease */
        struct owner *waits = owner_new(one, key);
        int between = 0, most = 0;

        crowd.lease_ms = rows[row].lease_ms;
        crowd.hold_ms = rows[row].hold_ms;
        crowd.renewals = rows[row].renewals;
        for (i = 0; i < 20; i++) {
            struct owner *o = owner_new(many, key);

            assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, crowd.lease_ms, crowd_told, o),
                             RLOCK_OK);
        }
        kit_run(100);
        for (k = 0; k < 10; k++) {
            crowd.holds = 0;
            assert_int_equal(owner_acquire(waits, 10000, 10000), RLOCK_OK);
            between += crowd.holds;
            most = crowd.holds > most ? crowd.holds : most;
            assert_int_equal(owner_release(waits), RLOCK_OK);
        }
        print_message("lease %d ms, %d ms each: %.1f holds between, %d at most\n",
                      (int)crowd.lease_ms, crowd.hold_ms, between / 10.0, most);
        assert_true(between <= 10 * 12);
        kit_reset();
    }
}

/* ---- scripts, keys, fences ---- */

static void scripts_lost_between_any_two_commands_are_sent_again(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_fenced(client_on(wire), "k");
    int round;

    for (round = 0; round < 3; round++) {
        tell(ask(&server, "SCRIPT FLUSH"));
        assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
        tell(ask(&server, "SCRIPT FLUSH"));
        assert_int_equal(owner_renew(o, 0), RLOCK_OK);
        tell(ask(&server, "SCRIPT FLUSH"));
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    assert_true(info(&server, "commandstats", "cmdstat_eval:calls") > 0);
}

static void binary_keys_are_taken_whole(void **state) {
    static const char key[] = "a\0b\r\nc";
    rlock_wire wire = wire_of(state);
    rlock_options options;
    struct owner *o;
    size_t len;

    memset(&options, 0, sizeof options);
    options.key = key;
    options.key_len = sizeof key - 1;
    options.fencing = true;
    o = owner_with(client_on(wire), &options);
    assert_non_null(o);
    assert_memory_equal(rlock_key(o->lock, &len), key, sizeof key);
    assert_int_equal(len, sizeof key - 1);
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS %b", key, sizeof key - 1)), 1);
    assert_int_equal(num(ask(&server, "EXISTS a")), 0);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS %b", key, sizeof key - 1)), 0);
}

static void longest_key_works_and_a_longer_one_is_refused(void **state) {
    static char key[RLOCK_KEY_MAX + 1];
    rlock_wire wire = wire_of(state);
    int turn;
    rlock_client *client = client_on(wire);
    rlock_options options;
    struct owner *o;
    rlock *refused = NULL;

    memset(key, 'x', sizeof key);
    memset(&options, 0, sizeof options);
    options.key = key;
    options.key_len = RLOCK_KEY_MAX;
    options.fencing = true;
    o = owner_with(client, &options);
    assert_non_null(o);
    for (turn = 0; turn < 3; turn++) { /* more than may be on its way at a time */
        assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
        assert_int_equal(num(ask(&server, "EXISTS %b", key, (size_t)RLOCK_KEY_MAX)), 1);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    options.key_len = RLOCK_KEY_MAX + 1;
    assert_int_equal(rlock_new(&refused, client, &options), RLOCK_ERR_ARG);
}

static void fence_counter_stands_beside_its_key_and_expires(void **state) {
    rlock_wire wire = wire_of(state);
    static const char *const names[][2] = {
        {"stock", "rlock:{stock}:fence"},
        {"stock:{42}", "stock:{42}:fence"},
        {"{42}", "{42}:fence"},
        {"open{brace", "rlock:{open{brace}:fence"},
    };
    size_t i;
    rlock_client *client = client_on(wire);
    rlock_options options;
    rlock *refused = NULL;

    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct owner *o = owner_fenced(client, names[i][0]);
        long long left;

        tell(ask(&server, "FLUSHALL"));
        assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
        assert_true(o->fence[RLOCK_ACQUIRED] > 0);
        assert_true(rlock_fence(o->lock) == o->fence[RLOCK_ACQUIRED]);
        assert_int_equal(num(ask(&server, "DBSIZE")), 2);
        left = num(ask(&server, "PTTL %s", names[i][1]));
        assert_true(left >= FENCE_LIFE_MS - 1000);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    memset(&options, 0, sizeof options);
    options.key = "no}tag";
    options.fencing = true;
    assert_int_equal(rlock_new(&refused, client, &options), RLOCK_ERR_ARG);
}

/* Who stands in line may get the next number without the server. */
static void fences_for_those_in_the_queue_are_reserved(void **state) {
    rlock_wire wire = wire_of(state);
    int i;
    rlock_client *client = client_on(wire);
    struct owner *o[3];

    for (i = 0; i < 3; i++) {
        o[i] = owner_fenced(client, "k");
        assert_int_equal(rlock_acquire(o[i]->lock, RLOCK_FOREVER, 5000, owner_told, o[i]),
                         RLOCK_OK);
    }
    assert_int_equal(owner_wait(o[0], RLOCK_ACQUIRED, 3000), RLOCK_OK);
    assert_int_equal(owner_release(o[0]), RLOCK_OK);
    assert_int_equal(owner_wait(o[1], RLOCK_ACQUIRED, 3000), RLOCK_OK);
    assert_true((uint64_t)strtoll(str(ask(&server, "GET rlock:{k}:fence")), NULL, 10) ==
                o[1]->fence[RLOCK_ACQUIRED] + 1);
    assert_int_equal(owner_release(o[1]), RLOCK_OK);
    assert_int_equal(owner_wait(o[2], RLOCK_ACQUIRED, 3000), RLOCK_OK);
    assert_true(o[2]->fence[RLOCK_ACQUIRED] > o[1]->fence[RLOCK_ACQUIRED]);
    assert_int_equal(owner_release(o[2]), RLOCK_OK);
}

static void fence_rises_even_when_its_counter_is_deleted(void **state) {
    rlock_wire wire = wire_of(state);
    static uint64_t last; /* on both wires */
    struct owner *o = owner_fenced(client_on(wire), "k");
    int round;

    for (round = 0; round < 20; round++) {
        assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
        assert_true(o->fence[RLOCK_ACQUIRED] > last);
        last = o->fence[RLOCK_ACQUIRED];
        assert_int_equal(owner_release(o), RLOCK_OK);
        if (round % 5 == 4) {
            assert_int_equal(num(ask(&server, "DEL rlock:{k}:fence")), 1);
        }
    }
}

static void prefix_names_the_keys_of_the_library(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *o;

    (void)state;
    config.prefix = "app:";
    o = owner_fenced(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS app:{k}:fence")), 1);
}

/* Without RLOCK_WITH_TEXTS the log has no word of what is wrong. */
static void refused_as(const rlock_config *config, const char *word) {
    rlock_client *client = NULL;

    kit_log_text[0] = '\0';
    assert_int_equal(rlock_client_new(&client, config), RLOCK_ERR_ARG);
    assert_null(client);
    if (RLOCK__HAS_TEXTS) {
        assert_non_null(strstr(kit_log_text, word));
    }
}

/* A brace would move the counters to another cluster slot than their keys. */
static void prefix_with_a_brace_is_refused_with_a_word(void **state) {
    static const char *const prefixes[] = {"{app}:", "app{", "}app:"};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        rlock_config config = kit_config(&server);

        config.prefix = prefixes[i];
        refused_as(&config, "prefix");
    }
}

static void what_redis_alone_understands_is_refused_by_redis_with_a_word(void **state) {
    const rlock_config good = kit_config(&server);
    rlock_config config = good;

    (void)state;
    config.port = -1;
    refused_as(&config, "config.port");
    config.port = 65536;
    refused_as(&config, "config.port");
    config = good;
    config.database = -1;
    refused_as(&config, "config.database");
    config = good;
    config.wire = (rlock_wire)7;
    refused_as(&config, "config.wire");
    config = good;
    config.username = "locker";
    refused_as(&config, "config.username");
}

/* ---- connecting ---- */

static void database_name_user_and_password_are_used(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *o;

    (void)state;
    tell(ask(&server, "ACL SETUSER carol on >secret ~* &* +@all"));
    config.username = "carol";
    config.password = "secret";
    config.client_name = "the-test";
    config.database = 3;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    tell(ask(&server, "SELECT 3"));
    assert_int_equal(num(ask(&server, "EXISTS k")), 1);
    tell(ask(&server, "SELECT 0"));
    assert_non_null(strstr(str(ask(&server, "CLIENT LIST")), "name=the-test"));
    assert_non_null(strstr(str(ask(&server, "CLIENT LIST")), "user=carol"));
    assert_int_equal(owner_release(o), RLOCK_OK);
    tell(ask(&server, "ACL DELUSER carol"));
}

/* The texts of a URL are read when the client is made, and no more after it. */
static void url_leads_to_the_server_with_user_database_and_name(void **state) {
    char urls[4][160];
    size_t i;

    (void)state;
    tell(ask(&server, "ACL SETUSER carol on >s/cr@t:%% ~* &* +@all"));
    tell(ask(&server, "ACL SETUSER open on nopass ~* &* +@all"));
    snprintf(urls[0], sizeof urls[0], "redis://carol:s%%2Fcr%%40t:%%25@127.0.0.1:%d/3?poll_ms=50",
             server.port);
    snprintf(urls[1], sizeof urls[1], "valkey://%%63arol:s%%2fcr%%40t%%3a%%25@localhost:%d/?db=3",
             server.port);
    snprintf(urls[2], sizeof urls[2], "unix://carol:s%%2Fcr%%40t:%%25@%s?db=3", server.socket);
    snprintf(urls[3], sizeof urls[3], "redis://open:@127.0.0.1:%d/3/", server.port);
    for (i = 0; i < 4; i++) {
        rlock_config config = kit_config(&server);
        rlock_client *client;
        struct owner *o;

        config.unix_path = NULL;
        config.url = strcat(urls[i], strchr(urls[i], '?') ? "&" : "?");
        config.url = strcat(urls[i], "client_name=by-url");
        config.loop.resolve = NULL;
        client = kit_client(&config);
        memset(urls[i], 'x', strlen(urls[i]));
        o = owner_new(client, "k");
        assert_int_equal(owner_acquire(o, 2000, 5000), RLOCK_OK);
        assert_int_equal(num(ask(&server, "EXISTS k")), 0);
        tell(ask(&server, "SELECT 3"));
        assert_int_equal(num(ask(&server, "EXISTS k")), 1);
        tell(ask(&server, "SELECT 0"));
        assert_non_null(strstr(str(ask(&server, "CLIENT LIST")), "name=by-url"));
        assert_non_null(
            strstr(str(ask(&server, "CLIENT LIST")), i < 3 ? "user=carol" : "user=open"));
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    tell(ask(&server, "ACL DELUSER carol"));
    tell(ask(&server, "ACL DELUSER open"));
}

static void tcp_address_and_localhost_need_no_resolver(void **state) {
    static const char *const hosts[] = {NULL, "127.0.0.1", "localhost"};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        rlock_config config = kit_config(&server);
        struct owner *o;

        config.unix_path = NULL;
        config.host = hosts[i];
        config.port = server.port;
        config.loop.resolve = NULL;
        o = owner_new(kit_client(&config), "k");
        assert_int_equal(owner_acquire(o, 2000, 5000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
}

/* Nobody listens on 127.0.0.1; who does not wait is served all the same. */
static void localhost_is_the_address_of_version_6_too(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *o;
    char wanted[80];

    (void)state;
    config.unix_path = NULL;
    config.host = "localhost";
    config.port = server_free_port();
    config.loop.resolve = NULL;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_ERR_CONN);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "refused"));
    tell(ask(&server, "CONFIG SET bind ::1"));
    config.port = server.port;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    snprintf(wanted, sizeof wanted, "connection to localhost:%d: ready", server.port);
    assert_non_null(strstr(kit_log_text, wanted));
    assert_int_equal(owner_release(o), RLOCK_OK);
    tell(ask(&server, "CONFIG SET bind 127.0.0.1"));
}

/* A resolver of the loop's: it keeps the name until the test answers. */
static rlock_name *asked_name;
static char asked_host[64];

static int keep_name(void *loop, rlock_name *name, const char *host) {
    (void)loop;
    asked_name = name;
    snprintf(asked_host, sizeof asked_host, "%s", host);
    return 0;
}

static int name_is_asked(void *arg) {
    (void)arg;
    return asked_name != NULL;
}

static void answers_name(const struct sockaddr *address) {
    rlock_name *name = asked_name;
    asked_name = NULL;
    rlock_on_resolved(name, address);
}

static void name_is_resolved_by_the_loop(void **state) {
    rlock_config config = kit_config(&server);
    struct sockaddr_in address;
    struct owner *o;

    (void)state;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    config.unix_path = NULL;
    config.host = "redis.invalid";
    config.port = server.port;
    config.loop.resolve = keep_name;
    asked_name = NULL;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(rlock_acquire(o->lock, 5000, 5000, owner_told, o), RLOCK_OK);
    assert_true(kit_until(name_is_asked, NULL, 2000));
    assert_string_equal(asked_host, "redis.invalid");
    answers_name(NULL); /* not found: asked again after the back-off */
    assert_true(kit_until(name_is_asked, NULL, 2000));
    answers_name((const struct sockaddr *)&address);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static redisAsyncContext *no_context(void *user) {
    (void)user;
    return NULL;
}

static void name_without_a_resolver_is_refused_with_a_word(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client = NULL;

    (void)state;
    config.unix_path = NULL;
    config.host = "redis.invalid";
    config.port = server.port;
    config.loop.resolve = NULL;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_null(client);
    assert_non_null(strstr(kit_log_text, RLOCK__HAS_NAMES ? "resolve" : "RLOCK_WITH_NAMES"));
    config.unix_path = server.socket; /* then the name is not used */
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    rlock_client_free(client);
    config.unix_path = NULL;
    config.connect = no_context;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    rlock_client_free(client);
}

static int hook_calls;

static redisAsyncContext *hook(void *user) {
    (void)user;
    return ++hook_calls <= 2 ? NULL : redisAsyncConnectUnix(server.socket);
}

static void connect_hook_is_asked_until_it_gives_a_context(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *o;

    (void)state;
    hook_calls = 0;
    config.unix_path = NULL;
    config.port = 1; /* must not be used */
    config.connect = hook;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 10000, 5000), RLOCK_OK);
    assert_true(hook_calls >= 3);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static redisAsyncContext *hook_of_its_own_user(void *user) {
    assert_ptr_equal(user, &hook_calls);
    hook_calls++;
    return redisAsyncConnectUnix(server.socket);
}

static void connect_hook_has_a_user_of_its_own_if_one_is_given(void **state) {
    rlock_config config = kit_config(&server);

    (void)state;
    hook_calls = 0;
    config.unix_path = NULL;
    config.connect = hook_of_its_own_user;
    config.user = &config;
    config.connect_user = &hook_calls;
    assert_int_equal(owner_acquire(owner_new(kit_client(&config), "k"), 2000, 5000), RLOCK_OK);
    assert_true(hook_calls >= 1);
}

static struct {
    int ready[2], ended[2]; /* [push] */
    char where[64], text[64];
    int64_t span_us;
} links;

static void note_link(void *user, const rlock_report *report) {
    bool push = report->link != NULL && strcmp(report->link, "push") == 0;

    assert_ptr_equal(user, &links);
    assert_int_equal(strlen(report->client_id), 36);
    if (report->kind == RLOCK_REPORT_CONNECTED || report->kind == RLOCK_REPORT_DISCONNECTED) {
        assert_true(push || strcmp(report->link, "commands") == 0);
        links.ready[push] += report->kind == RLOCK_REPORT_CONNECTED;
        links.ended[push] += report->kind == RLOCK_REPORT_DISCONNECTED;
        snprintf(links.where, sizeof links.where, "%s", report->where);
    }
    if (report->kind == RLOCK_REPORT_DISCONNECTED && !push) {
        snprintf(links.text, sizeof links.text, "%s", report->text);
        links.span_us = report->span_us;
    }
}

static int both_are_ready_again(void *arg) {
    (void)arg;
    return links.ready[0] >= 2 && links.ready[1] >= 2;
}

/* How many descriptors lead to the server, each of which a program that is started must not get. */
static int closed_by_exec(void) {
    int fd, count = 0;

    for (fd = 0; fd < 256; fd++) {
        struct sockaddr_in peer;
        socklen_t len = sizeof peer;

        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_family == AF_INET &&
            ntohs(peer.sin_port) == server.port) {
            assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
            count++;
        }
    }
    return count;
}

static void connections_are_reported_with_their_address_and_closed_by_exec(void **state) {
    rlock_config config = kit_config(&server);
    char address[32];
    rlock_client *client;
    struct owner *o;

    (void)state;
    memset(&links, 0, sizeof links);
    snprintf(address, sizeof address, "127.0.0.1:%d", server.port);
    config.unix_path = NULL;
    config.port = server.port;
    config.on_event = note_link;
    config.event_user = &links;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 2000, 60000), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    assert_int_equal(closed_by_exec(), 2);
    assert_string_equal(links.where, address);
    assert_int_equal(links.ready[0], 1);
    assert_int_equal(links.ready[1], 1);
    assert_int_equal(links.ended[0] + links.ended[1], 0);
    tell(ask(&server, "CLIENT KILL TYPE normal SKIPME yes"));
    assert_true(kit_until(both_are_ready_again, NULL, 5000));
    assert_true(links.ended[0] >= 1 && links.ended[1] >= 1);
    assert_true(links.span_us >= 100000 && links.text[0] != 0); /* it was there for a check */
    assert_int_equal(owner_release(o), RLOCK_OK);
    kit_reset();
    assert_int_equal(links.ended[0], links.ready[0]); /* those that the client closes too */
    assert_int_equal(links.ended[1], links.ready[1]);
    assert_string_equal(links.text, "closed by the client");
}

static void fork_in_the_callback_of_the_end(void *user, const rlock_report *report) {
    pid_t *child = (pid_t *)user;

    if (report->kind == RLOCK_REPORT_DISCONNECTED && *child < 0) {
        *child = fork();
    }
}

/* What the parent closes is closed once, and its loop is not touched by the child. */
static void client_that_is_freed_may_fork_as_its_connections_are_reported(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    pid_t child = -1;
    struct owner *o;
    int status;

    (void)state;
    config.on_event = fork_in_the_callback_of_the_end;
    config.event_user = &child;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 2000, 60000), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_reset();
    if (child == 0) {
        _exit(7);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static int own_callbacks;

static void own_callback(const redisAsyncContext *ac, int status) {
    (void)ac, (void)status;
    own_callbacks++;
}

static redisAsyncContext *hook_with_callbacks(void *user) {
    redisAsyncContext *ac = redisAsyncConnectUnix(server.socket);

    (void)user;
    redisAsyncSetConnectCallback(ac, own_callback);
    redisAsyncSetDisconnectCallback(ac, own_callback);
    return ac;
}

/* hiredis refuses a second callback: without care the library would never hear of the connect. */
static void connect_hook_may_have_set_callbacks_of_its_own(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *o;

    (void)state;
    config.unix_path = NULL;
    config.connect = hook_with_callbacks;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 2000, 60000), RLOCK_OK);
    tell(ask(&server, "CLIENT KILL TYPE normal SKIPME yes"));
    assert_true(kit_until(kit_is_down, client, 2000));
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_true(kit_stats(client).up);
    assert_true(kit_stats(client).faults >= 1);
    assert_int_equal(own_callbacks, 0); /* the context is the library's from then on */
}

static void releases_and_works_on(rlock *lock, const rlock_event *event, void *user) {
    owner_told(lock, event, user);
    assert_int_equal(rlock_release(lock, owner_told, user), RLOCK_OK);
    server_sleep_ms(250);
}

/* The time that a callback takes is not the server's. */
static void callback_longer_than_the_command_timeout_does_no_harm(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *o;
    int i;

    (void)state;
    config.command_timeout_ms = 100;
    client = kit_client(&config);
    o = owner_new(client, "k");
    for (i = 0; i < 3; i++) {
        assert_int_equal(rlock_acquire(o->lock, 2000, 60000, releases_and_works_on, o), RLOCK_OK);
        assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 3000), RLOCK_OK);
        assert_int_equal(owner_wait(o, RLOCK_RELEASED, 3000), RLOCK_OK);
    }
    assert_int_equal(kit_stats(client).faults, 0);
}

/* A new server process counts its connections from 1 again. */
static void connection_of_another_server_process_is_never_killed(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *o;
    redisContext *innocent[40];
    int i;

    (void)state;
    config.command_timeout_ms = 100;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_in_range(num(ask(&server, "CLIENT ID")), 1, 1000000);
    server_pause(&server);
    assert_int_equal(rlock_acquire(o->lock, 20000, 5000, owner_told, o), RLOCK_OK);
    kit_run(150); /* given up, with an acquire on it */
    server_kill9(&server);
    assert_int_equal(server_restart(&server), 0);
    for (i = 0; i < 40; i++) {
        innocent[i] = kit_connect(&server);
        freeReplyObject(redisCommand(innocent[i], "PING"));
    }
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 8000), RLOCK_OK);
    for (i = 0; i < 40; i++) {
        redisReply *reply = (redisReply *)redisCommand(innocent[i], "PING");

        assert_non_null(reply);
        freeReplyObject(reply);
        redisFree(innocent[i]);
    }
    assert_int_equal(info(&server, "commandstats", "cmdstat_client|kill:calls"), 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

/* ---- waking ---- */

/* The bound: a waiter is woken, and a holder told, within 20 ms; the median of nine is held
 * to it. */
#define ROUNDS 9
#define BOUND_US 20000

static void deletion_by_hand_wakes_a_waiter_within_20_ms(void **state) {
    rlock_wire wire = wire_of(state);
    int64_t took[ROUNDS];
    int i;
    rlock_client *client = client_on(wire);

    for (i = 0; i < ROUNDS; i++) {
        struct owner *o = owner_new(client, "k");
        int64_t start;

        foreign_takes(wire, "k", 60000);
        starts_waiting(client, o);
        start = kit_now_us();
        foreign_deletes(wire, "k");
        assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
        took[i] = o->at_us[RLOCK_ACQUIRED] - start;
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_true(kit_median(took, ROUNDS) <= BOUND_US);
}

static void old_holder_is_notified_of_its_loss_within_20_ms(void **state) {
    rlock_wire wire = wire_of(state);
    int64_t took[ROUNDS], start;
    int i;
    rlock_client *client = client_on(wire);
    struct owner *o[ROUNDS];
    char key[32];

    for (i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof key, "k:%d", i);
        o[i] = owner_new(client, key);
        assert_int_equal(owner_acquire(o[i], 0, i % 2 ? 0 : 60000), RLOCK_OK);
    }
    kit_run(1200);
    for (i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof key, "k:%d", i);
        start = kit_now_us();
        foreign_deletes(wire, key);
        assert_int_equal(owner_wait(o[i], RLOCK_LOST, 5000), RLOCK_ERR_LOST);
        assert_int_equal(o[i]->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
        assert_false(rlock_is_held(o[i]->lock));
        took[i] = o[i]->at_us[RLOCK_LOST] - start;
    }
    assert_true(kit_median(took, ROUNDS) <= BOUND_US);
}

static void old_holder_is_notified_that_its_key_was_stolen(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    struct owner *o = owner_new(client, "k");
    int64_t start;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    kit_run(1200);
    start = kit_now_us();
    foreign_takes(RLOCK_WIRE_STRING, "k", 60000);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    assert_true(o->at_us[RLOCK_LOST] - start <= 10 * BOUND_US);
    kit_run(100);
    assert_string_equal(str(ask(&server, "GET k")), "foreign");
}

static void expiry_of_a_foreign_lock_wakes_a_waiter(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");
    int64_t start = kit_now_us();

    foreign_takes(wire, "k", 500);
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 5000), RLOCK_OK);
    assert_in_range(o->at_us[RLOCK_ACQUIRED] - start, 490000, 700000);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static int all_told(void *arg) {
    int i;

    (void)arg;
    for (i = 0; i < kit_owner_count; i++) {
        if (!kit_owners[i].seen[i % 2 ? RLOCK_ACQUIRED : RLOCK_LOST]) {
            return 0;
        }
    }
    return 1;
}

/* What a command of ours drives out of the table of tracked keys is not told to us. */
static void full_table_of_tracked_keys_keeps_no_news_for_long(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    uint64_t commands;
    char key[32];
    int i;

    (void)state;
    tell(ask(&server, "CONFIG SET tracking-table-max-keys 100"));
    for (i = 0; i < 200; i++) {
        struct owner *o;

        snprintf(key, sizeof key, "k:%d", i);
        o = owner_new(client, key);
        if (i % 2) {
            foreign_takes(RLOCK_WIRE_STRING, key, 600000);
            assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 600000, owner_told, o),
                             RLOCK_OK);
        } else {
            assert_int_equal(owner_acquire(o, 0, 600000), RLOCK_OK);
        }
    }
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(3000);
    commands = kit_stats(client).commands;
    kit_run(3000);
    commands = kit_stats(client).commands - commands;
    print_message("%.1f commands a second for 200 keys\n", (double)commands / 3);
    assert_in_range(commands, 6, 500); /* a waiter's each, a holder's in batches */
    for (i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "k:%d", i);
        foreign_deletes(RLOCK_WIRE_STRING, key);
    }
    assert_true(kit_until(all_told, NULL, 15000)); /* but for this a hold has ten minutes */
    tell(ask(&server, "CONFIG SET tracking-table-max-keys 1000000"));
}

static void flushall_wakes_waiters_and_notifies_holders(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    struct owner *holder = owner_new(client, "held"), *waiter = owner_new(client, "k");

    (void)state;
    assert_int_equal(owner_acquire(holder, 0, 60000), RLOCK_OK);
    foreign_takes(RLOCK_WIRE_STRING, "k", 60000);
    starts_waiting(client, waiter);
    tell(ask(&server, "FLUSHALL"));
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 2000), RLOCK_OK);
    assert_int_equal(owner_wait(holder, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    assert_int_equal(holder->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

static void release_of_another_client_wakes_a_waiter(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *here = client_on(wire), *there = client_on(wire);
    struct owner *holder = owner_new(there, "k"), *waiter = owner_new(here, "k");
    int64_t start;

    assert_int_equal(owner_acquire(holder, 0, 60000), RLOCK_OK);
    starts_waiting(here, waiter);
    start = kit_now_us();
    assert_int_equal(rlock_release(holder->lock, NULL, NULL), RLOCK_OK);
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(waiter->at_us[RLOCK_ACQUIRED] - start <= 10 * BOUND_US);
    kit_reset();
    assert_true(key_goes(&server, "k", 2000));
}

/* Everything that was published while two clients fought, on every channel. */
static redisReply *heard_of_a_fight(rlock_wire wire, redisContext *ear) {
    rlock_client *here = client_on(wire), *there = client_on(wire);
    struct owner *a = owner_fenced(here, "k"), *b = owner_fenced(there, "k");
    redisReply *reply = NULL;

    freeReplyObject(redisCommand(ear, "PSUBSCRIBE *"));
    assert_int_equal(owner_acquire(a, 0, 60000), RLOCK_OK);
    starts_waiting(there, b);
    assert_int_equal(owner_renew(a, 0), RLOCK_OK);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_release(b), RLOCK_OK);
    tell(ask(&server, "PUBLISH the-end 1"));
    assert_int_equal(redisGetReply(ear, (void **)&reply), REDIS_OK);
    return reply; /* pmessage, pattern, channel, payload */
}

static void string_wire_publishes_nothing(void **state) {
    redisContext *ear = kit_connect(&server);
    redisReply *reply = heard_of_a_fight(RLOCK_WIRE_STRING, ear);

    (void)state;
    assert_string_equal(reply->element[2]->str, "the-end");
    freeReplyObject(reply);
    redisFree(ear);
}

static void redisson_wire_publishes_0_on_its_channel(void **state) {
    redisContext *ear = kit_connect(&server);
    redisReply *reply = heard_of_a_fight(RLOCK_WIRE_REDISSON, ear);

    (void)state;
    assert_string_equal(reply->element[2]->str, "redisson_lock__channel:{k}");
    assert_string_equal(reply->element[3]->str, "0");
    freeReplyObject(reply);
    redisFree(ear);
}

/* A user who may do everything but that. */
static rlock_client *client_without(rlock_wire wire, const char *rule, const char *rule2) {
    rlock_config config = kit_config(&server);

    tell(ask(&server, "ACL SETUSER poor reset on nopass ~* &* +@all %s %s", rule, rule2));
    config.username = "poor";
    config.password = "any";
    config.wire = wire;
    config.poll_ms = 100;
    return kit_client(&config);
}

/* Redisson adds no braces to a name that has one. */
static void redisson_channel_adds_no_braces_to_a_name_that_has_some(void **state) {
    redisContext *ear = kit_connect(&server);
    rlock_client *client = client_without(RLOCK_WIRE_REDISSON, "-client|tracking", "");
    struct owner *o = owner_new(client, "a{b}");
    redisReply *reply;

    (void)state;
    reply = (redisReply *)redisCommand(ear, "PSUBSCRIBE *");
    assert_non_null(reply);
    freeReplyObject(reply);
    tell(ask(&server, "HSET a{b} foreign:1 1"));
    starts_waiting(client, o);
    assert_true(kit_until(kit_is_pushing, client, 2000));
    kit_run(100);
    tell(ask(&server, "DEL a{b}"));
    tell(ask(&server, "PUBLISH redisson_lock__channel:a{b} 0"));
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 2000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(redisGetReply(ear, (void **)&reply), REDIS_OK); /* the one by hand */
    freeReplyObject(reply);
    assert_int_equal(redisGetReply(ear, (void **)&reply), REDIS_OK);
    assert_string_equal(reply->element[2]->str, "redisson_lock__channel:a{b}");
    freeReplyObject(reply);
    redisFree(ear);
}

static void waiter_is_served_by_polling(rlock_client *client, rlock_wire wire) {
    struct owner *o = owner_new(client, "k");

    foreign_takes(wire, "k", 60000);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 5000, owner_told, o), RLOCK_OK);
    kit_run(500);
    assert_false(kit_stats(client).pushing);
    foreign_deletes(wire, "k");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void waiter_polls_where_tracking_is_refused(void **state) {
    (void)state;
    waiter_is_served_by_polling(client_without(RLOCK_WIRE_STRING, "-client|tracking", "-monitor"),
                                RLOCK_WIRE_STRING);
}

static void waiter_polls_where_subscribing_is_refused(void **state) {
    rlock_wire wire = wire_of(state);

    waiter_is_served_by_polling(client_without(wire, "-subscribe", "-psubscribe"), wire);
}

static void redisson_wire_is_pushed_without_tracking(void **state) {
    rlock_client *client = client_without(RLOCK_WIRE_REDISSON, "-client|tracking", "-monitor");
    struct owner *o = owner_new(client, "k");

    (void)state;
    foreign_takes(RLOCK_WIRE_REDISSON, "k", 60000);
    starts_waiting(client, o);
    foreign_deletes(RLOCK_WIRE_REDISSON, "k");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
}

/* ---- what a user may not do ---- */

static void user_who_may_not_set_a_time_to_live_leaves_no_key(void **state) {
    struct owner *o = owner_new(client_without(RLOCK_WIRE_REDISSON, "-pexpire", ""), "k");

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_ERR_AUTH);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 60000), RLOCK_ERR_AUTH);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static void user_who_may_not_read_the_time_gets_no_fence_and_no_key(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_fenced(client_without(wire, "-time", ""), "k");

    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_ERR_AUTH);
    assert_int_equal(num(ask(&server, "DBSIZE")), 0);
}

static void fence_counter_of_another_type_leaves_no_key(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_fenced(client_on(wire), "k");

    tell(ask(&server, "LPUSH rlock:{k}:fence x"));
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    assert_string_equal(str(ask(&server, "TYPE rlock:{k}:fence")), "list");
}

/* What the ACL forbids inside a script is no reason to wait for ever. */
static void command_forbidden_inside_a_script_is_reported(void **state) {
    static const struct {
        rlock_wire wire;
        const char *rule;
        bool taken, fenced;
    } cases[] = {
        {RLOCK_WIRE_STRING, "-get", true, false},
        {RLOCK_WIRE_STRING, "-get", false, true},
        {RLOCK_WIRE_STRING, "-set", false, true},
        {RLOCK_WIRE_STRING, "-pttl", true, false},
#if RLOCK__HAS_REDISSON
        {RLOCK_WIRE_REDISSON, "-hexists", false, false},
        {RLOCK_WIRE_REDISSON, "-hset", false, false},
        {RLOCK_WIRE_REDISSON, "-get", false, true},
        {RLOCK_WIRE_REDISSON, "-pttl", true, false},
#endif
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rlock_client *client = client_without(cases[i].wire, cases[i].rule, "");
        struct owner *o = cases[i].fenced ? owner_fenced(client, "k") : owner_new(client, "k");

        if (cases[i].taken) {
            foreign_takes(cases[i].wire, "k", 60000);
        }
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
        assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 3000), RLOCK_ERR_AUTH);
        assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_AUTH);
        tell(ask(&server, "FLUSHALL"));
        kit_reset();
    }
}

static int pushing_again(void *arg) {
    return num(ask(&server, "PUBSUB NUMPAT")) >= 0 && kit_stats((rlock_client *)arg).pushing;
}

static void waiter_is_woken_after_its_push_connection_was_killed(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k");

    foreign_takes(wire, "k", 60000);
    starts_waiting(client, o);
    assert_true(num(ask(&server, "CLIENT KILL TYPE pubsub")) >= 1);
    kit_run(50);
    assert_true(kit_until(pushing_again, client, 5000));
    kit_run(150);
    foreign_deletes(wire, "k");
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 2000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void deletion_while_disconnected_is_found_on_return(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *waiter = owner_new(client, "k"), *holder = owner_new(client, "held");

    assert_int_equal(owner_acquire(holder, 0, 60000), RLOCK_OK);
    foreign_takes(wire, "k", 60000);
    starts_waiting(client, waiter);
    tell(ask(&server, "CLIENT KILL TYPE pubsub"));
    tell(ask(&server, "DEL k held"));
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 3000), RLOCK_OK);
    assert_int_equal(owner_wait(holder, RLOCK_LOST, 3000), RLOCK_ERR_LOST);
    assert_int_equal(holder->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    assert_int_equal(owner_release(waiter), RLOCK_OK);
}

/* ---- cancelled, orphaned, forked, shut down ---- */

static void again_when_canceled(rlock *lock, const rlock_event *event, void *user) {
    owner_told(lock, event, user);
    if (event->status == RLOCK_ERR_CANCELED) {
        rlock_acquire(lock, RLOCK_FOREVER, 60000, owner_told, user);
    }
}

static void cancel_then_acquire_again_keeps_the_order(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k");

    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    server_pause(&server);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, again_when_canceled, o),
                     RLOCK_OK);
    kit_run(20);
    assert_int_equal(rlock_cancel(o->lock), RLOCK_OK);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_ERR_CANCELED);
    kit_run(20);
    server_resume(&server);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(kit_until(kit_is_clean, client, 5000));
    kit_run(200);
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(num(ask(&server, "EXISTS k")), 1);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static void cancelled_acquire_that_was_sent_leaves_no_key(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k");

    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    server_pause(&server);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    kit_run(20);
    assert_int_equal(rlock_cancel(o->lock), RLOCK_OK);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_ERR_CANCELED);
    server_resume(&server);
    assert_true(kit_until(kit_is_clean, client, 5000));
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static void freed_handle_lets_go_in_the_background(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k");

    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    rlock_free(o->lock);
    o->lock = NULL;
    assert_true(key_goes(&server, "k", 2000));
    assert_int_equal(o->seen[RLOCK_RELEASED] + o->seen[RLOCK_LOST], 0);
}

static void freed_client_lets_go_of_everything(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");

    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    rlock_client_free(kit_clients[--kit_client_count]);
    assert_true(key_goes(&server, "k", 2000));
    assert_int_equal(rlock_release(o->lock, NULL, NULL), RLOCK_ERR_CLOSED);
}

static void ignore(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event, (void)user;
}

/* The script is not known to the server: nobody is left to send it when the answer comes. */
static void freed_client_lets_go_where_the_server_lost_the_scripts(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_on(wire), "k");
    struct owner *releasing = owner_new(kit_clients[kit_client_count - 1], "releasing");

    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(releasing, 0, 60000), RLOCK_OK);
    tell(ask(&server, "SCRIPT FLUSH"));
    assert_int_equal(rlock_release(releasing->lock, NULL, NULL), RLOCK_OK);
    rlock_client_free(kit_clients[--kit_client_count]);
    assert_true(key_goes(&server, "k", 2000));
    assert_true(key_goes(&server, "releasing", 2000));
}

static int all_granted(void *arg) {
    return kit_stats((rlock_client *)arg).held == 1000;
}

static int nothing_left(void *arg) {
    (void)arg;
    return num(ask(&server, "DBSIZE")) == 0;
}

static void freed_client_lets_go_of_a_thousand_holds(void **state) {
    rlock_wire wire = wire_of(state);
    int k;
    rlock_client *client = client_on(wire);
    rlock *locks[1000];
    char key[16];

    for (k = 0; k < 1000; k++) {
        rlock_options options;
        memset(&options, 0, sizeof options);
        options.key = key;
        snprintf(key, sizeof key, "k%d", k);
        assert_int_equal(rlock_new(&locks[k], client, &options), RLOCK_OK);
        assert_int_equal(rlock_acquire(locks[k], 1000, 60000, ignore, NULL), RLOCK_OK);
    }
    assert_true(kit_until(all_granted, client, 5000));
    rlock_client_free(kit_clients[--kit_client_count]);
    for (k = 0; k < 1000; k++) {
        rlock_free(locks[k]);
    }
    assert_true(kit_until(nothing_left, NULL, 2000));
}

static int shut_status;

static void shut(rlock_client *client, int status, void *user) {
    (void)client, (void)user;
    shut_status = status;
}

static int is_shut(void *arg) {
    (void)arg;
    return shut_status != KIT_NOTHING;
}

/* Whoever knows that nothing is left to clean up does not wait for it. */
static void is_clean_and_shuts_down(rlock_client *client) {
    assert_true(kit_until(kit_is_clean, client, 2000));
    assert_int_equal(num(ask(&server, "EXISTS k cancelled")), 0);
    shut_status = KIT_NOTHING;
    assert_int_equal(rlock_client_shutdown(client, 1000, shut, NULL), RLOCK_OK);
    assert_true(kit_until(is_shut, NULL, 3000));
    assert_int_equal(shut_status, RLOCK_OK);
}

static void acquire_unanswered_by_a_server_that_was_killed_is_cleaned_up(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k"), *cancelled = owner_new(client, "cancelled");

    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    server_pause(&server);
    assert_int_equal(rlock_acquire(o->lock, 20000, 600000, owner_told, o), RLOCK_OK);
    assert_int_equal(rlock_acquire(cancelled->lock, 20000, 600000, owner_told, cancelled),
                     RLOCK_OK);
    kit_run(30);
    rlock_cancel(cancelled->lock);
    assert_int_equal(owner_wait(cancelled, RLOCK_ACQUIRED, 1000), RLOCK_ERR_CANCELED);
    server_kill9(&server);
    assert_int_equal(server_restart(&server), 0);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    is_clean_and_shuts_down(client);
}

static void acquire_unanswered_on_a_killed_connection_is_cleaned_up(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *o = owner_new(client, "k"), *cancelled = owner_new(client, "cancelled");

    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    tell(ask(&server, "CLIENT PAUSE 5000 WRITE")); /* taken in, but not executed */
    assert_int_equal(rlock_acquire(o->lock, 20000, 600000, owner_told, o), RLOCK_OK);
    assert_int_equal(rlock_acquire(cancelled->lock, 20000, 600000, owner_told, cancelled),
                     RLOCK_OK);
    kit_run(30);
    rlock_cancel(cancelled->lock);
    assert_int_equal(owner_wait(cancelled, RLOCK_ACQUIRED, 1000), RLOCK_ERR_CANCELED);
    assert_true(num(ask(&server, "CLIENT KILL TYPE normal SKIPME yes")) >= 1);
    tell(ask(&server, "CLIENT UNPAUSE"));
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    is_clean_and_shuts_down(client);
}

static void shutdown_notifies_everybody_and_leaves_no_key(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    struct owner *holder = owner_new(client, "held"), *waiter = owner_new(client, "k");

    (void)state;
    shut_status = KIT_NOTHING;
    assert_int_equal(owner_acquire(holder, 0, 60000), RLOCK_OK);
    foreign_takes(RLOCK_WIRE_STRING, "k", 60000);
    starts_waiting(client, waiter);
    assert_int_equal(rlock_client_shutdown(client, 2000, shut, NULL), RLOCK_OK);
    assert_true(kit_until(is_shut, NULL, 3000));
    assert_int_equal(shut_status, RLOCK_OK);
    assert_int_equal(waiter->status[RLOCK_ACQUIRED], RLOCK_ERR_CLOSED);
    assert_int_equal(holder->seen[RLOCK_LOST], 1);
    assert_int_equal(holder->reason[RLOCK_LOST], RLOCK_REASON_CLOSED);
    assert_int_equal(num(ask(&server, "EXISTS held")), 0);
    assert_int_equal(rlock_acquire(holder->lock, 0, 0, owner_told, holder), RLOCK_ERR_CLOSED);
}

/* In the forked child: the number of calls that were not refused. */
static int child_was_not_refused(rlock_client *client, struct owner *held, struct owner *idle) {
    rlock_options options;
    rlock *made = NULL;
    int wrong = 0;

    memset(&options, 0, sizeof options);
    options.key = "new";
    wrong += rlock_acquire(idle->lock, 0, 0, owner_told, idle) != RLOCK_ERR_STATE;
    wrong += rlock_renew(held->lock, 0, NULL, NULL) != RLOCK_ERR_STATE;
    wrong += rlock_cancel(held->lock) != RLOCK_ERR_STATE;
    wrong += rlock_is_held(held->lock);
    wrong += rlock_remaining_ms(held->lock) != 0;
    wrong += rlock_fence(held->lock) != 0;
    wrong += rlock_hold_count(held->lock) != 0;
    wrong += rlock_key(held->lock, NULL) != NULL;
    wrong += rlock_new(&made, client, &options) != RLOCK_ERR_STATE;
    wrong += rlock_client_shutdown(client, 0, NULL, NULL) != RLOCK_ERR_STATE;
    wrong += rlock_release(held->lock, NULL, NULL) != RLOCK_ERR_STATE;
    rlock_free(held->lock);
    rlock_client_free(client);
    return wrong;
}

static void forked_child_is_refused_and_the_parent_goes_on(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_on(wire);
    struct owner *held = owner_fenced(client, "k"), *idle = owner_new(client, "idle");
    int code = -1;
    pid_t pid;

    assert_int_equal(owner_acquire(held, 0, 60000), RLOCK_OK);
    kit_until(kit_is_pushing, client, 1000); /* where there is a connection for that */
    pid = fork();
    if (pid == 0) {
        _exit(child_was_not_refused(client, held, idle));
    }
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    assert_int_equal(num(ask(&server, "EXISTS k")), 1);
    assert_int_equal(owner_renew(held, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(idle, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(held), RLOCK_OK);
    assert_int_equal(kit_stats(client).connects, kit_stats(client).pushing ? 2 : 1);
}

/* ---- forked inside a callback or a hook: the child only returns from it ---- */

static pid_t forked_pid = -1;
static size_t forked_watches;

/* The child goes first: what it does wrong has happened before the parent goes on. */
static void fork_once(void) {
    int code;

    if (forked_pid < 0) {
        forked_watches = kit_poll->used;
        forked_pid = fork();
        if (forked_pid > 0) {
            assert_int_equal(waitpid(forked_pid, &code, 0), forked_pid);
            assert_true(WIFEXITED(code));
            assert_int_equal(WEXITSTATUS(code), 0);
        }
    }
}

/* Turns until the acquire has ended; a child ends with the turn that it was made in. */
static int forked_ends(struct owner *o) {
    int64_t limit_us = kit_now_us() + 5000000;

    while (o->seen[RLOCK_ACQUIRED] == 0 && kit_now_us() < limit_us) {
        rlock_poll_once(kit_poll, 5);
        if (forked_pid == 0) {
            _exit(kit_poll->used == forked_watches ? 0 : 1);
        }
    }
    return o->seen[RLOCK_ACQUIRED] == 1 ? o->status[RLOCK_ACQUIRED] : KIT_NOTHING;
}

/* How often the server has executed a command since CONFIG RESETSTAT. */
static int executed(const char *command) {
    char word[64];
    const char *at;

    snprintf(word, sizeof word, "cmdstat_%s:calls=", command);
    at = strstr(str(ask(&server, "INFO commandstats")), word);
    return at != NULL ? atoi(at + strlen(word)) : 0;
}

static struct owner *after_fork[3];

static void submits_and_forks(rlock *lock, const rlock_event *event, void *user) {
    int i;

    owner_told(lock, event, user);
    for (i = 0; i < 3; i++) {
        assert_int_equal(rlock_acquire(after_fork[i]->lock, 0, 60000, owner_told, after_fork[i]),
                         RLOCK_OK);
    }
    fork_once();
}

static void what_a_callback_submits_before_it_forks_leaves_once(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    struct owner *first = owner_new(client, "first");
    int before;

    (void)state;
    after_fork[0] = owner_new(client, "taken");
    after_fork[1] = owner_new(client, "free");
    after_fork[2] = owner_new(client, "taken too");
    tell(ask(&server, "MSET taken another %s another", "taken too"));
    assert_int_equal(owner_acquire(first, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(first), RLOCK_OK);
    tell(ask(&server, "CONFIG RESETSTAT"));
    before = (int)kit_stats(client).commands;
    forked_pid = -1;
    first->seen[RLOCK_ACQUIRED] = 0;
    assert_int_equal(rlock_acquire(first->lock, 0, 1000, submits_and_forks, first), RLOCK_OK);
    assert_int_equal(forked_ends(first), RLOCK_OK);
    assert_true(forked_pid > 0);
    assert_int_equal(owner_wait(after_fork[0], RLOCK_ACQUIRED, 5000), RLOCK_ERR_BUSY);
    assert_int_equal(owner_wait(after_fork[1], RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_wait(after_fork[2], RLOCK_ACQUIRED, 5000), RLOCK_ERR_BUSY);
    assert_int_equal(executed("set"), 4);
    assert_int_equal(executed("set") + executed("evalsha") + executed("eval"),
                     (int)kit_stats(client).commands - before);
    assert_string_equal(str(ask(&server, "GET taken")), "another");
    assert_int_equal(kit_stats(client).faults, 0);
    assert_int_equal(owner_release(after_fork[1]), RLOCK_OK);
}

static redisAsyncContext *hook_that_forks(void *user) {
    redisAsyncContext *ac = redisAsyncConnectUnix(server.socket);

    (void)user;
    fork_once();
    return ac;
}

static void child_that_returns_from_the_connect_hook_does_nothing(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *o;

    (void)state;
    config.connect = hook_that_forks;
    o = owner_new(kit_client(&config), "k");
    forked_pid = -1;
    assert_int_equal(rlock_acquire(o->lock, 5000, 5000, owner_told, o), RLOCK_OK);
    assert_int_equal(forked_ends(o), RLOCK_OK);
    assert_true(forked_pid > 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

static void log_that_forks(void *user, int level, const char *line) {
    kit_log(user, level, line);
    fork_once();
}

/* In the midst of the handshake: what it would send next stands in the buffer. */
static void child_that_returns_from_the_log_does_nothing(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *o;

    (void)state;
    tell(ask(&server, "ACL SETUSER nameless on >pw ~* +@all -client +client|id +client|tracking"));
    config.username = "nameless";
    config.password = "pw";
    config.client_name = "refused";
    config.log = log_that_forks;
    client = kit_client(&config);
    o = owner_new(client, "k");
    forked_pid = -1;
    tell(ask(&server, "CONFIG RESETSTAT"));
    assert_int_equal(rlock_acquire(o->lock, 0, 5000, owner_told, o), RLOCK_OK);
    assert_int_equal(forked_ends(o), RLOCK_OK);
    assert_true(forked_pid > 0);
    assert_int_equal(executed("set"), 1);
    assert_int_equal(kit_stats(client).faults, 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
    kit_reset();
    tell(ask(&server, "ACL DELUSER nameless"));
}

/* The answer that ends the handshake is read, and the first request is on its way out. */
static void child_that_returns_from_the_log_of_a_ready_connection_does_nothing(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *o;

    (void)state;
    config.log = log_that_forks;
    client = kit_client(&config);
    o = owner_new(client, "k");
    forked_pid = -1;
    tell(ask(&server, "CONFIG RESETSTAT"));
    assert_int_equal(rlock_acquire(o->lock, 0, 5000, owner_told, o), RLOCK_OK);
    assert_int_equal(forked_ends(o), RLOCK_OK);
    assert_true(forked_pid > 0);
    assert_int_equal(executed("set"), 1);
    assert_int_equal(kit_stats(client).faults, 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

/* How many lines there were of each level. */
static int logged[RLOCK_LOG_INFO + 1];

static void log_that_counts(void *user, int level, const char *line) {
    kit_log(user, level, line);
    logged[level]++;
}

/* Asserts that the log is this line of the client. */
static void logged_is(const rlock_client *client, const char *line) {
    char expected[300];

    snprintf(expected, sizeof expected, "%.8s: %s\n", rlock_client_id(client), line);
    assert_string_equal(kit_log_text, expected);
    kit_log_text[0] = '\0';
}

static redisAsyncContext *hook_to_the_server(void *user) {
    (void)user;
    return redisAsyncConnectUnix(server.socket);
}

static void log_names_the_client_its_connection_and_where_that_leads(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    char line[250];

    (void)state;
    memset(logged, 0, sizeof logged);
    config.log = log_that_counts;
    client = kit_client(&config);
    assert_int_equal(owner_acquire(owner_new(client, "k"), 0, 5000), RLOCK_OK);
    snprintf(line, sizeof line, "connection to %s: ready", server.socket);
    logged_is(client, line);
    assert_true(kit_until(kit_is_pushing, client, 5000)); /* for the hold that is not so new */
    snprintf(line, sizeof line, "push connection to %s: ready", server.socket);
    logged_is(client, line);
    assert_int_equal(logged[RLOCK_LOG_INFO], 2);

    config.unix_path = NULL;
    config.port = server.port;
    client = kit_client(&config);
    assert_int_equal(owner_acquire(owner_new(client, "l"), 0, 5000), RLOCK_OK);
    snprintf(line, sizeof line, "connection to 127.0.0.1:%d: ready", server.port);
    logged_is(client, line);

    config.connect = hook_to_the_server; /* it alone knows where it leads */
    client = kit_client(&config);
    assert_int_equal(owner_acquire(owner_new(client, "m"), 0, 5000), RLOCK_OK);
    logged_is(client, "connection: ready");
    assert_int_equal(logged[RLOCK_LOG_WARNING], 0);
}

/* Nothing four times, nothing at another place once, then the server. */
static redisAsyncContext *hook_that_fails_five_times(void *user) {
    (void)user;
    hook_calls++;
    return hook_calls <= 4 ? NULL
                           : redisAsyncConnectUnix(hook_calls == 5 ? "/nowhere" : server.socket);
}

static void reason_that_repeats_is_logged_ever_more_seldom(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    char lines[400];

    (void)state;
    config.connect = hook_that_fails_five_times;
    hook_calls = 0;
    client = kit_client(&config);
    assert_int_equal(owner_acquire(owner_new(client, "k"), 10000, 5000), RLOCK_OK);
    snprintf(lines, sizeof lines,
             "%.8s: connection: no connection yet\n"
             "%.8s: connection: failure 2: no connection yet\n"
             "%.8s: connection: failure 4: no connection yet\n"
             "%.8s: connection: No such file or directory\n"
             "%.8s: connection: ready\n",
             rlock_client_id(client), rlock_client_id(client), rlock_client_id(client),
             rlock_client_id(client), rlock_client_id(client));
    assert_string_equal(kit_log_text, lines);
}

#include "whole.h"

#if RLOCK__HAS_REPLICAS
#include "redis_quarantine.h"
#include "redis_wait.h"
#endif

/* ---- the group ---- */

static int group_begins(void **state) {
    (void)state;
    server.port = server_free_port();
    return server_start(&server, NULL) == 0 ? kit_open() : -1;
}

static int group_ends(void **state) {
    (void)state;
    kit_close();
    kit_hand_drop();
    server_stop(&server);
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    tell(ask(&server, "FLUSHALL"));
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    server_resume(&server);
    kit_reset();
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_begins, test_ends)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(string_wire_sets_the_token_with_its_lease),
#if RLOCK__HAS_REDISSON
        TEST(redisson_wire_sets_a_hash_with_one_field),
#endif
        TEST(every_acquire_has_a_new_token),
        ON_EACH_WIRE(held_by_another_is_busy_and_tells_its_time_left),
        ON_EACH_WIRE(release_deletes_only_its_own_token),
        ON_EACH_WIRE(renew_extends_and_never_shortens),
        ON_EACH_WIRE(renew_of_a_deleted_key_does_not_make_it_again),
        ON_EACH_WIRE(watchdog_keeps_the_key_alive_beyond_its_lease),
        ON_EACH_WIRE(persisted_hold_is_still_held),
        ON_EACH_WIRE(uncontended_pair_is_one_command_each),
        TEST(release_without_a_script_is_as_exact_as_with_one),
        TEST(many_holds_are_renewed_by_few_commands),
        TEST(renewals_for_leases_of_two_lengths_keep_them_apart),
        TEST(renewal_in_a_batch_finds_what_is_gone_stolen_or_no_lock),
        TEST(renewals_go_alone_where_a_batch_is_refused),
        TEST(batch_of_renewals_sends_its_script_again),
        TEST(commands_of_one_turn_leave_together),
        ON_EACH_WIRE(warm_handle_allocates_nothing),
        ON_EACH_WIRE(waiting_costs_no_polling),
        ON_EACH_WIRE(first_wait_for_a_key_is_two_requests_and_misses_no_release),
        TEST(idle_holder_costs_few_heartbeats),
        ON_EACH_WIRE(thousand_waiters_are_served_in_turn_for_few_commands),
        TEST(waiter_of_another_client_is_served_between_those_who_hand_on),
        ON_EACH_WIRE(scripts_lost_between_any_two_commands_are_sent_again),
        ON_EACH_WIRE(binary_keys_are_taken_whole),
        ON_EACH_WIRE(longest_key_works_and_a_longer_one_is_refused),
        ON_EACH_WIRE(fence_counter_stands_beside_its_key_and_expires),
        ON_EACH_WIRE(fences_for_those_in_the_queue_are_reserved),
        ON_EACH_WIRE(fence_rises_even_when_its_counter_is_deleted),
        TEST(prefix_names_the_keys_of_the_library),
        TEST(prefix_with_a_brace_is_refused_with_a_word),
        TEST(what_redis_alone_understands_is_refused_by_redis_with_a_word),
        TEST(database_name_user_and_password_are_used),
#if RLOCK__HAS_URL
        TEST(url_leads_to_the_server_with_user_database_and_name),
#endif
        TEST(tcp_address_and_localhost_need_no_resolver),
#if RLOCK__HAS_NAMES
        TEST(localhost_is_the_address_of_version_6_too),
        TEST(name_is_resolved_by_the_loop),
#endif
        TEST(name_without_a_resolver_is_refused_with_a_word),
        TEST(connect_hook_is_asked_until_it_gives_a_context),
        TEST(connect_hook_has_a_user_of_its_own_if_one_is_given),
#if RLOCK__HAS_REPORTS
        TEST(connections_are_reported_with_their_address_and_closed_by_exec),
        TEST(client_that_is_freed_may_fork_as_its_connections_are_reported),
#endif
        TEST(connect_hook_may_have_set_callbacks_of_its_own),
        TEST(callback_longer_than_the_command_timeout_does_no_harm),
        TEST(connection_of_another_server_process_is_never_killed),
        ON_EACH_WIRE(deletion_by_hand_wakes_a_waiter_within_20_ms),
        ON_EACH_WIRE(old_holder_is_notified_of_its_loss_within_20_ms),
        TEST(old_holder_is_notified_that_its_key_was_stolen),
        ON_EACH_WIRE(expiry_of_a_foreign_lock_wakes_a_waiter),
        TEST(full_table_of_tracked_keys_keeps_no_news_for_long),
        TEST(flushall_wakes_waiters_and_notifies_holders),
        ON_EACH_WIRE(release_of_another_client_wakes_a_waiter),
        TEST(string_wire_publishes_nothing),
#if RLOCK__HAS_REDISSON
        TEST(redisson_wire_publishes_0_on_its_channel),
        TEST(redisson_channel_adds_no_braces_to_a_name_that_has_some),
#endif
        TEST(waiter_polls_where_tracking_is_refused),
        ON_EACH_WIRE(waiter_polls_where_subscribing_is_refused),
#if RLOCK__HAS_REDISSON
        TEST(redisson_wire_is_pushed_without_tracking),
        TEST(user_who_may_not_set_a_time_to_live_leaves_no_key),
#endif
        ON_EACH_WIRE(user_who_may_not_read_the_time_gets_no_fence_and_no_key),
        ON_EACH_WIRE(fence_counter_of_another_type_leaves_no_key),
        TEST(command_forbidden_inside_a_script_is_reported),
        ON_EACH_WIRE(waiter_is_woken_after_its_push_connection_was_killed),
        ON_EACH_WIRE(deletion_while_disconnected_is_found_on_return),
        ON_EACH_WIRE(cancel_then_acquire_again_keeps_the_order),
        ON_EACH_WIRE(cancelled_acquire_that_was_sent_leaves_no_key),
        ON_EACH_WIRE(freed_handle_lets_go_in_the_background),
        ON_EACH_WIRE(freed_client_lets_go_of_everything),
        ON_EACH_WIRE(freed_client_lets_go_where_the_server_lost_the_scripts),
        ON_EACH_WIRE(freed_client_lets_go_of_a_thousand_holds),
        ON_EACH_WIRE(acquire_unanswered_by_a_server_that_was_killed_is_cleaned_up),
        ON_EACH_WIRE(acquire_unanswered_on_a_killed_connection_is_cleaned_up),
        TEST(shutdown_notifies_everybody_and_leaves_no_key),
        ON_EACH_WIRE(forked_child_is_refused_and_the_parent_goes_on),
        TEST(what_a_callback_submits_before_it_forks_leaves_once),
        TEST(child_that_returns_from_the_connect_hook_does_nothing),
        TEST(child_that_returns_from_the_log_does_nothing),
        TEST(child_that_returns_from_the_log_of_a_ready_connection_does_nothing),
        TEST(log_names_the_client_its_connection_and_where_that_leads),
        TEST(reason_that_repeats_is_logged_ever_more_seldom),
#if RLOCK__HAS_REPLICAS
        TEST(server_is_new_once),
        TEST(each_client_counts_by_its_own_quarantine),
        TEST(restart_without_data_makes_no_second_holder),
        TEST(restart_with_data_is_seen_too),
        TEST(marker_that_is_gone_costs_one_quarantine),
        TEST(marker_of_a_time_to_come_begins_now),
        TEST(key_of_somebody_else_is_no_marker),
        TEST(quarantine_needs_its_rights),
        TEST(full_server_begins_no_quarantine),
        TEST(what_a_client_knows_is_of_one_process_and_one_history),
        TEST(promotion_is_seen_and_a_new_history_is_not),
        TEST(every_kind_is_granted_when_a_replica_has_it),
        TEST(renewal_on_a_new_connection_is_copied_or_does_not_count),
        TEST(renewal_of_a_persistent_key_is_copied_or_does_not_count),
#if RLOCK__HAS_KINDS
        TEST(offer_that_is_taken_is_copied_or_does_not_count),
        TEST(waiter_is_granted_when_the_replica_is_back),
#endif
        TEST(hold_without_replicas_ends_by_its_deadline),
#if RLOCK__HAS_KINDS
        TEST(nothing_is_left_of_a_client_that_is_freed_at_any_moment),
#endif
        TEST(client_that_is_freed_during_a_wait_needs_its_rights),
#endif
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return shard_group("redis", tests, group_begins, group_ends);
}
