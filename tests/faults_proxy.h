/* faults_proxy.h - a network that loses, cuts, splits and delays: tests/proxy.h */
#ifndef TESTS_FAULTS_PROXY_H
#define TESTS_FAULTS_PROXY_H

#include "proxy.h"

static void black_holed_holder_is_notified_by_its_deadline(void **state) {
    struct owner *o[2];
    int64_t start = kit_now_us();
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_options options;

        memset(&options, 0, sizeof options);
        options.key = i == 0 ? "s" : "h";
        options.watchdog = RLOCK_WATCHDOG_ON;
        o[i] = owner_with(client_at(proxy->path, wires[i]), &options);
        assert_int_equal(owner_acquire(o[i], 0, 1500), RLOCK_OK);
    }
    kit_run(1000);
    proxy->mode = BLACK_HOLE;
    for (i = 0; i < 2; i++) {
        assert_int_equal(owner_wait(o[i], RLOCK_LOST, 5000), RLOCK_ERR_LOST);
        assert_int_equal(o[i]->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
        assert_true(o[i]->at_us[RLOCK_LOST] - start <=
                    2700000); /* renewed for the last time within the first second */
        assert_true(o[i]->at_us[RLOCK_LOST] - start > 1500000); /* and at least once */
    }
    proxy->mode = PASS;
    assert_true(key_goes(&server, "s", 3000));
    assert_true(key_goes(&server, "h", 3000));
}

static void black_holed_renewal_and_release_are_unknown(void **state) {
    struct owner *renewed = owner_new(client_at(proxy->path, RLOCK_WIRE_STRING), "renewed");
    struct owner *released = owner_new(client_at(proxy->path, RLOCK_WIRE_STRING), "released");

    (void)state;
    assert_int_equal(owner_acquire(renewed, 0, 1200), RLOCK_OK);
    assert_int_equal(owner_acquire(released, 0, 1200), RLOCK_OK);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_renew(renewed, 0), RLOCK_ERR_UNKNOWN);
    assert_true(rlock_is_held(renewed->lock));
    assert_int_equal(owner_release(released), RLOCK_ERR_UNKNOWN);
    assert_int_equal(owner_wait(renewed, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
}

static void replies_split_at_every_byte_are_understood(void **state) {
    rlock_wire wire = wire_of(state);
    static const char key[] = "a\0b\r\n";
    rlock_client *client = client_with(proxy->path, wire, 2000);
    rlock_options options;
    struct owner *a, *b;

    proxy->mode = SPLIT;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.key_len = sizeof key - 1;
    options.fencing = true;
    a = owner_with(client, &options);
    b = owner_with(client_with(proxy->path, wire, 2000), &options);
    assert_int_equal(owner_acquire(a, 5000, 60000), RLOCK_OK);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 60000, owner_told, b), RLOCK_OK);
    assert_int_equal(owner_renew(a, 0), RLOCK_OK);
    kit_run(300);
    assert_int_equal(b->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(b->fence[RLOCK_ACQUIRED] > a->fence[RLOCK_ACQUIRED]);
    assert_int_equal(owner_release(b), RLOCK_OK);
    assert_int_equal(kit_stats(client).faults, 0);
}

static void validity_counts_from_the_sending(void **state) {
    rlock_client *client = client_with(proxy->path, RLOCK_WIRE_STRING, 2000);
    struct owner *o = owner_new(client, "k");

    (void)state;
    assert_int_equal(owner_acquire(o, 2000, 1000), RLOCK_OK); /* connected */
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = DELAY_50_MS; /* each way */
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_true(o->remaining_ms[RLOCK_ACQUIRED] <= 1000 - 100 - 10);
}

static void reply_after_its_own_deadline_is_refused(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *o = owner_new(client_with(proxy->path, wire, 2000), "k");

    proxy->mode = PASS;
    assert_int_equal(owner_acquire(o, 2000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = DELAY_200_MS;
    assert_int_not_equal(owner_acquire(o, 0, 100), RLOCK_OK);
    assert_false(rlock_is_held(o->lock));
}

static void unanswered_acquire_is_retried_and_granted_once(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_at(proxy->path, wire);
    struct owner *o = owner_new(client, "k");

    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = SWALLOW_REPLIES;
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    kit_run(50);
    assert_int_equal(num(ask(&server, "EXISTS k")), 1); /* it was executed, and nobody knows */
    proxy->mode = PASS;
    proxy_cuts();
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    if (wire == RLOCK_WIRE_REDISSON) {
        assert_string_equal(
            str(ask(&server, "EVAL %s 1 k", "return redis.call('hvals', KEYS[1])[1]")), "1");
    }
    kit_run(300);
    assert_true(rlock_is_held(o->lock));
    assert_int_equal(num(ask(&server, "EXISTS k")), 1);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 2);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static void unanswered_try_is_unknown_and_cleaned_up(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_at(proxy->path, wire);
    struct owner *o = owner_new(client, "k");

    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = SWALLOW_REPLIES;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_ERR_UNKNOWN);
    assert_int_equal(num(ask(&server, "EXISTS k")), 1);
    proxy->mode = PASS;
    assert_true(key_goes(&server, "k", 5000));
    assert_true(kit_until(kit_is_clean, client, 5000));
}

static void unanswered_release_is_sent_again(void **state) {
    rlock_client *client = client_at(proxy->path, RLOCK_WIRE_STRING);
    struct owner *o = owner_new(client, "k");

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 20000), RLOCK_OK);
    proxy->mode = SWALLOW_REPLIES;
    assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_OK);
    kit_run(50);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    proxy->mode = PASS;
    proxy_cuts();
    assert_int_not_equal(owner_wait(o, RLOCK_RELEASED, 5000), KIT_NOTHING);
    assert_true(o->status[RLOCK_RELEASED] == RLOCK_OK ||
                o->status[RLOCK_RELEASED] == RLOCK_ERR_NOT_HELD);
}

/* Loses the connection while an acquire is held back; it ends UNKNOWN. */
static void acquire_is_held_back(struct owner *o) {
    proxy->mode = HOLD_BACK;
    assert_int_equal(rlock_acquire(o->lock, 0, 6000, owner_told, o), RLOCK_OK);
    kit_run(30);
    proxy_cuts();
    proxy->mode = PASS;
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 3000), RLOCK_ERR_UNKNOWN);
}

/* The end of one old connection says nothing about an older one. */
static void acquire_that_an_old_connection_still_carries_is_waited_for(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client;
    struct owner *first, *second;

    tell(ask(&server, "ACL SETUSER locker -client|kill"));
    client = client_at(proxy->path, wire);
    first = owner_new(client, "first");
    second = owner_new(client, "second");
    assert_int_equal(owner_acquire(first, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(first), RLOCK_OK);
    acquire_is_held_back(first); /* the server is not allowed to end this connection */
    assert_int_equal(owner_acquire(second, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(second), RLOCK_OK);
    tell(ask(&server, "ACL SETUSER locker +client|kill"));
    acquire_is_held_back(second); /* but it may end this one */
    assert_int_equal(owner_acquire(second, 3000, 1000), RLOCK_OK);
    assert_int_equal(owner_release(second), RLOCK_OK);
    kit_run(400); /* long enough for the answer that there is no such token */
    assert_true(kit_stats(client).cleaning > 0);
    proxy_delivers_late();
    while (num(ask(&server, "EXISTS first")) == 0) {
        server_sleep_ms(1);
    }
    assert_true(key_goes(&server, "first", 3000));
    assert_int_equal(num(ask(&server, "EXISTS second")), 0);
}

#endif /* TESTS_FAULTS_PROXY_H */
