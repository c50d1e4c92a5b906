/* The kinds beside the plain mutex, against a real private server, as far as they are special to
 * Redis: what stands in it, what it costs, and what the server does to it. What they have in common
 * with those of other stores is proved in tests/stores.c. */
#include "clustered.h"

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "kit.h"
#include "whole.h"

static struct server server;

/* Keys of one slot, that of "k": a set of them can be had in a cluster too. */
#define A "a2ji"
#define B "bgqb"
#define J "jbdv"
#define THIRD "third5mb"

static rlock_client *client_new(void) {
    rlock_config config = kit_config(&server);
    rlock_client *client = kit_client(&config);

    assert_non_null(client);
    return client;
}

static rlock_options of_kind(rlock_kind kind, uint32_t permits, uint32_t weight) {
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = "k";
    options.kind = kind;
    options.permits = permits;
    options.weight = weight;
    return options;
}

static struct owner *owner_of(rlock_client *client, rlock_kind kind) {
    rlock_options options = of_kind(kind, kind == RLOCK_KIND_SEMAPHORE ? 2 : 0, 0);
    struct owner *o = owner_with(client, &options);

    assert_non_null(o);
    return o;
}

static struct owner *permit(rlock_client *client, uint32_t permits, uint32_t weight) {
    rlock_options options = of_kind(RLOCK_KIND_SEMAPHORE, permits, weight);
    struct owner *o = owner_with(client, &options);

    assert_non_null(o);
    return o;
}

static int in_queue(void *arg) {
    return num(ask(&server, "ZCARD rlock:{k}:queue")) == *(long long *)arg;
}

/* Asks for ever, and returns when `so_many` stand in the line. */
static void stands_in_queue(struct owner *o, long long so_many) {
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(in_queue, &so_many, 5000));
}

/* --- what is asked about a key --- */

struct told {
    int count;
    rlock_info info;
    char token[128], text[128];
};

static void told_info(rlock_client *client, const rlock_info *info, void *user) {
    struct told *told = (struct told *)user;

    assert_non_null(client);
    told->count++;
    told->info = *info;
    snprintf(told->token, sizeof told->token, "%s", info->token ? info->token : "");
    snprintf(told->text, sizeof told->text, "%s", info->text ? info->text : "");
}

static int was_told(void *arg) {
    return ((struct told *)arg)->count > 0;
}

static rlock_info inspected(rlock_client *client, rlock_kind kind, struct told *told) {
    rlock_options options = of_kind(kind, kind == RLOCK_KIND_SEMAPHORE ? 2 : 0, 0);

    memset(told, 0, sizeof *told);
    assert_int_equal(rlock_inspect(client, &options, told_info, told), RLOCK_OK);
    assert_int_equal(told->count, 0);
    assert_true(kit_until(was_told, told, 5000));
    assert_int_equal(told->count, 1);
    return told->info;
}

/* ------------------------------------------------------------------------------------------------
 * Fair
 */

static void fair_stands_in_a_sorted_set_and_its_queue_beside_it_expires(void **state) {
    rlock_client *client = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 5000), RLOCK_OK);
    assert_string_equal(str(ask(&server, "TYPE k")), "zset");
    assert_in_range(num(ask(&server, "PTTL k")), 4000, 5000);
    stands_in_queue(b, 1);
    assert_in_range(num(ask(&server, "PTTL rlock:{k}:queue")), 1, 30000);
    assert_int_equal(rlock_cancel(b->lock), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_ERR_CANCELED);
    assert_true(key_goes(&server, "rlock:{k}:queue", 5000));
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(num(ask(&server, "DBSIZE")), 0);
}

static void fair_who_joins_a_queue_that_is_there_keeps_it_for_as_long_again(void **state) {
    rlock_client *client = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b = owner_of(client, RLOCK_KIND_FAIR),
                 *c = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 60000), RLOCK_OK);
    stands_in_queue(b, 1);
    tell(ask(&server, "PEXPIRE rlock:{k}:queue 9000"));
    stands_in_queue(c, 2);
    assert_true(num(ask(&server, "PTTL rlock:{k}:queue")) > 20000);
}

/* A member of a client that is not there: nobody hears a call to it. */
#define NOBODY "00000000-0000-4000-8000-000000000000"

static void fair_the_dead_in_the_queue_are_skipped_at_once(void **state) {
    rlock_client *client = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b = owner_of(client, RLOCK_KIND_FAIR);
    int64_t since_us;
    int i;

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    for (i = 0; i < 100; i++) {
        tell(ask(&server, "ZADD rlock:{k}:queue %d " NOBODY ":%d:1f", i + 1, i));
    }
    stands_in_queue(b, 101);
    since_us = kit_now_us();
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(kit_now_us() - since_us < 500000);
    assert_int_equal(num(ask(&server, "EXISTS rlock:{k}:queue")), 0);
}

static void fair_a_dead_holder_is_followed_within_its_lease_and_a_moment(void **state) {
    rlock_client *client = client_new();
    struct owner *b = owner_of(client, RLOCK_KIND_FAIR);
    int64_t since_us;
    redisReply *now = ask(&server, "TIME");
    long long dies_ms = atoll(now->element[0]->str) * 1000 + atoll(now->element[1]->str) / 1000;

    (void)state;
    freeReplyObject(now);
    tell(ask(&server, "ZADD k -%lld " NOBODY ":1:1f", dies_ms + 700));
    tell(ask(&server, "PEXPIRE k 5000"));
    since_us = kit_now_us();
    stands_in_queue(b, 1);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_in_range(kit_now_us() - since_us, 600000, 800000 + 900000); /* 100 ms, ten times */
}

static void fair_waiter_that_misses_its_turn_is_followed_by_the_next(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *a, *b;
    redisContext *listener = kit_connect(&server);

    (void)state;
    config.command_timeout_ms = 300;
    client = kit_client(&config);
    a = owner_of(client, RLOCK_KIND_FAIR), b = owner_of(client, RLOCK_KIND_FAIR);
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    freeReplyObject(redisCommand(listener, "SUBSCRIBE rlock:" NOBODY)); /* and does nothing */
    tell(ask(&server, "ZADD rlock:{k}:queue 1 " NOBODY ":1:1f"));
    stands_in_queue(b, 2);
    assert_int_equal(owner_release(a), RLOCK_OK);
    kit_run(100);
    assert_false(rlock_is_held(b->lock));
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    redisFree(listener);
}

/* A process that is stopped hears each call, and answers none: it costs one offer, not all. */
static void positions_of_a_stopped_process_cost_one_offer(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_FAIR, RLOCK_KIND_WRITE, RLOCK_KIND_SEMAPHORE};
    static const char *const sorts[] = {"f", "w", "s"};
    rlock_config config = kit_config(&server);
    redisContext *listener = kit_connect(&server);
    size_t k;
    int i;

    (void)state;
    config.command_timeout_ms = 400;
    freeReplyObject(redisCommand(listener, "SUBSCRIBE rlock:" NOBODY));
    for (k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        rlock_client *client = kit_client(&config);
        rlock_options options = of_kind(kinds[k], kinds[k] == RLOCK_KIND_SEMAPHORE, 0);
        struct owner *a = owner_with(client, &options), *b = owner_with(client, &options);
        int64_t since_us;

        assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
        for (i = 0; i < 40; i++) {
            tell(ask(&server, "ZADD rlock:{k}:queue %d " NOBODY ":%d:1%s", i + 1, i, sorts[k]));
        }
        stands_in_queue(b, 41);
        since_us = kit_now_us();
        assert_int_equal(owner_release(a), RLOCK_OK);
        assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 16000), RLOCK_OK);
        assert_true(kit_now_us() - since_us < 8 * 400000); /* not 40 times */
        assert_int_equal(num(ask(&server, "EXISTS rlock:{k}:queue")), 0);
        assert_int_equal(owner_release(b), RLOCK_OK);
    }
    redisFree(listener);
}

/* Takes the holder away, as if the head of the queue had been offered its hold and let it pass. */
static void offer_passes(void) {
    tell(ask(&server, "EVAL %s 2 k rlock:{k}:queue",
             "local w=redis.call('ZRANGE',KEYS[2],0,0)[1] redis.call('ZREM',KEYS[2],w) "
             "redis.call('ZREM',KEYS[1],redis.call('ZRANGE',KEYS[1],0,0)[1]) "
             "redis.call('ZADD',KEYS[1],w:sub(-1)=='f' and -9.5 or 9.5,w)"));
}

/* True if the client of each waiter is notified, which it has told the server: none has half a
 * place, so none asks again. */
static int all_are_notified(void *arg) {
    redisReply *line = ask(&server, "ZRANGE rlock:{k}:queue 0 -1 WITHSCORES");
    int all = line->elements > 0;
    size_t i;
    (void)arg;
    for (i = 1; i < line->elements; i += 2) {
        all = all && !strchr(line->element[i]->str, '.');
    }
    freeReplyObject(line);
    return all;
}

/* It was stopped, and goes on: all its waiters are in the queue again, behind the others. */
static void expelled_waiters_join_again(void **state) {
    rlock_client *client = client_new(), *stopped = client_new();
    struct owner *b = owner_of(client, RLOCK_KIND_FAIR);
    struct owner *late[4];
    long long four = 4;
    int i;

    (void)state;
    assert_int_equal(owner_acquire(b, 0, 0), RLOCK_OK); /* connected: it asks before the others */
    assert_int_equal(owner_release(b), RLOCK_OK);
    tell(ask(&server, "ZADD k -9999999999999 " NOBODY ":1:1f")); /* who does not notice its loss */
    tell(ask(&server, "PEXPIRE k 60000"));
    for (i = 0; i < 4; i++) {
        late[i] = owner_of(stopped, RLOCK_KIND_FAIR);
        stands_in_queue(late[i], i + 1);
    }
    assert_true(kit_until(all_are_notified, NULL, 5000));
    kit_run(300); /* they asked again at each change of what is pushed */
    offer_passes();
    assert_int_equal(owner_acquire(b, 5000, 0), RLOCK_OK);
    assert_true(kit_until(in_queue, &four, 5000));
    assert_int_equal(owner_release(b), RLOCK_OK);
    for (i = 0; i < 4; i++) {
        assert_int_not_equal(owner_wait(late[i], RLOCK_ACQUIRED, 5000), KIT_NOTHING);
        assert_int_equal(owner_release(late[i]), RLOCK_OK);
    }
}

/* Many processes were stopped, each with offers: who finds them reads the queue as often as for
 * one, since the server does nothing else meanwhile. */
static void many_offers_that_passed_cost_one_look_at_the_queue(void **state) {
    rlock_client *client = client_new();
    struct owner *o = permit(client, 101, 1);
    int64_t calls[2];
    int i, k;

    (void)state;
    for (k = 0; k < 2; k++) {
        for (i = 0; i < (k ? 100 : 1); i++) {
            tell(ask(&server, "ZADD k 9.5 %08x-0000-4000-8000-000000000000:%d:1s", i / 2, i));
        }
        tell(ask(&server, "PEXPIRE k 60000"));
        tell(ask(&server, "CONFIG RESETSTAT"));
        assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
        calls[k] = info(&server, "commandstats", "cmdstat_zrange:calls");
        assert_int_equal(num(ask(&server, "ZCARD k")), 1);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_true(calls[0] > 0);
    assert_int_equal(calls[1], calls[0]);
}

static int second_is_offered(void *arg) {
    (void)arg;
    return num(ask(&server, "ZRANK k " NOBODY ":2:1f")) == 0;
}

/* A lease that ends by itself costs its client no position: the offer goes to its next waiter. */
static void lease_that_ended_is_no_offer_that_passed(void **state) {
    struct owner *b = owner_of(client_new(), RLOCK_KIND_FAIR);
    redisContext *listener = kit_connect(&server);

    (void)state;
    freeReplyObject(redisCommand(listener, "SUBSCRIBE rlock:" NOBODY));
    tell(ask(&server, "ZADD k -9 " NOBODY ":1:1f"));
    tell(ask(&server, "PEXPIRE k 60000"));
    tell(ask(&server, "ZADD rlock:{k}:queue 1 " NOBODY ":2:1f"));
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 0, owner_told, b), RLOCK_OK);
    assert_true(kit_until(second_is_offered, NULL, 5000));
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 16000), RLOCK_OK);
    redisFree(listener);
}

/* While there is no room nobody takes a dead hold away, as that of an offer that passed. */
static void waiter_whose_offer_passed_leaves_the_queue_when_it_cancels(void **state) {
    rlock_client *client = client_new();
    struct owner *a = permit(client, 2, 2), *b = permit(client, 2, 1);
    redisReply *in_line;

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    stands_in_queue(b, 1);
    in_line = ask(&server, "ZRANGE rlock:{k}:queue 0 0");
    tell(ask(&server, "ZADD k 1 %s", in_line->element[0]->str));
    freeReplyObject(in_line);
    assert_int_equal(rlock_cancel(b->lock), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_ERR_CANCELED);
    assert_true(key_goes(&server, "rlock:{k}:queue", 5000));
    assert_int_equal(num(ask(&server, "ZCARD k")), 1);
    assert_int_equal(owner_release(a), RLOCK_OK);
}

static void fair_fences_rise_and_renewals_extend(void **state) {
    rlock_client *client = client_new();
    rlock_options options = of_kind(RLOCK_KIND_FAIR, 0, 0);
    struct owner *a, *b;

    (void)state;
    options.fencing = true;
    a = owner_with(client, &options), b = owner_with(client, &options);
    assert_int_equal(owner_acquire(a, 0, 1000), RLOCK_OK);
    assert_true(a->fence[RLOCK_ACQUIRED] > 0);
    assert_int_equal(owner_renew(a, 60000), RLOCK_OK);
    assert_true(rlock_remaining_ms(a->lock) > 50000);
    assert_in_range(num(ask(&server, "PTTL k")), 50000, 60000);
    stands_in_queue(b, 1);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(b->fence[RLOCK_ACQUIRED] > a->fence[RLOCK_ACQUIRED]);
    assert_true(num(ask(&server, "PTTL rlock:{k}:fence")) > 80000000);
}

static void fair_a_deleted_key_is_reported_at_once(void **state) {
    rlock_client *client = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(100);
    tell(ask(&server, "DEL k"));
    assert_int_equal(owner_wait(a, RLOCK_LOST, 500), RLOCK_ERR_LOST);
    assert_int_equal(a->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

static void fair_without_push_is_polled_for(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *a, *b, *c;

    (void)state;
    tell(ask(&server, "ACL SETUSER mute on >p ~* resetchannels +@all -client|tracking"));
    config.username = "mute", config.password = "p";
    a = owner_of(kit_client(&config), RLOCK_KIND_FAIR);
    b = owner_of(kit_client(&config), RLOCK_KIND_FAIR);
    c = owner_of(kit_clients[kit_client_count - 1], RLOCK_KIND_FAIR);
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    stands_in_queue(b, 1);
    stands_in_queue(c, 2);
    kit_run(300);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(c->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(owner_release(b), RLOCK_OK);
    assert_int_equal(owner_wait(c, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    tell(ask(&server, "ACL DELUSER mute"));
}

static void fair_waiters_survive_a_lost_connection(void **state) {
    rlock_client *client = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    stands_in_queue(b, 1);
    tell(ask(&server, "CLIENT KILL TYPE normal SKIPME yes"));
    tell(ask(&server, "CLIENT KILL TYPE pubsub"));
    kit_run(300);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

/* Who is granted hears whether the next is of its own client: then that one asks right behind the
 * release, and need not be called. */
static void fair_own_waiters_in_a_row_are_not_called(void **state) {
    rlock_client *client = client_new(), *other = client_new();
    uint64_t before = 0, commands, least = UINT64_MAX;
    struct owner *line[6];
    rlock_stats was;
    int i, round;

    (void)state;
    for (i = 0; i < 6; i++) {
        line[i] = owner_of(i < 5 ? client : other, RLOCK_KIND_FAIR);
    }
    for (round = 0; round < 3; round++) { /* the first in line may just look after it */
        assert_int_equal(owner_acquire(line[0], 0, 0), RLOCK_OK);
        for (i = 1; i < 6; i++) {
            stands_in_queue(line[i], i);
        }
        assert_true(kit_until(kit_is_pushing, client, 5000));
        assert_true(kit_until(kit_is_pushing, other, 5000));
        kit_run(50);
        was = kit_stats(client);
        for (i = 0; i < 5; i++) {
            before = i == 1 ? kit_stats(client).commands : before;
            assert_int_equal(owner_release(line[i]), RLOCK_OK);
            assert_int_equal(owner_wait(line[i + 1], RLOCK_ACQUIRED, 400), RLOCK_OK);
            if (i == 3) {
                assert_int_equal(kit_stats(client).woken - was.woken, 1); /* the first of the row */
                commands = kit_stats(client).commands - before;
                least = commands < least ? commands : least;
            }
        }
        assert_int_equal(owner_release(line[5]), RLOCK_OK);
    }
    assert_int_equal(least, 6);
    assert_true(kit_stats(other).woken >= 3);
    assert_int_equal(num(ask(&server, "DBSIZE")), 0);
}

static void fair_release_names_no_waiter_if_the_next_is_of_another_client(void **state) {
    rlock_client *client = client_new(), *other = client_new();
    struct owner *line[4];
    uint64_t before, commands, least = UINT64_MAX;
    int i, round;

    (void)state;
    for (i = 0; i < 4; i++) {
        line[i] = owner_of(i == 2 ? other : client, RLOCK_KIND_FAIR);
    }
    for (round = 0; round < 3; round++) { /* the first in line may just look after it */
        assert_int_equal(owner_acquire(line[0], 0, 0), RLOCK_OK);
        for (i = 1; i < 4; i++) {
            stands_in_queue(line[i], i);
        }
        assert_true(kit_until(kit_is_pushing, other, 5000));
        assert_int_equal(owner_release(line[0]), RLOCK_OK);
        assert_int_equal(owner_wait(line[1], RLOCK_ACQUIRED, 5000), RLOCK_OK);
        before = kit_stats(client).commands;
        assert_int_equal(owner_release(line[1]), RLOCK_OK);
        commands = kit_stats(client).commands - before;
        least = commands < least ? commands : least;
        for (i = 2; i < 4; i++) {
            assert_int_equal(owner_wait(line[i], RLOCK_ACQUIRED, 5000), RLOCK_OK);
            assert_int_equal(owner_release(line[i]), RLOCK_OK);
        }
    }
    assert_int_equal(least, 1);
}

static void fair_waiter_is_not_notified_of_changes(void **state) {
    rlock_client *client = client_new(), *other = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b = owner_of(other, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    stands_in_queue(b, 1);
    assert_true(kit_until(kit_is_pushing, other, 5000));
    assert_true(kit_until(kit_is_pushing, client, 5000)); /* for the loss of its hold */
    kit_run(50);
    assert_int_equal(info(&server, "clients", "tracking_clients"), 1);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

static void fair_waiter_without_the_right_to_track_is_still_notified(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client = client_new(), *other;
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b;
    int i;

    (void)state;
    tell(ask(&server, "ACL SETUSER untold on >p ~* &* +@all -client|tracking"));
    config.username = "untold", config.password = "p";
    other = kit_client(&config);
    b = owner_of(other, RLOCK_KIND_FAIR);
    for (i = 1; i <= 2; i++) {
        assert_int_equal(owner_acquire(a, RLOCK_FOREVER, 0), RLOCK_OK);
        stands_in_queue(b, 1);
        assert_true(kit_until(kit_is_pushing, other, 5000));
        kit_run(50);
        assert_int_equal(owner_release(a), RLOCK_OK);
        assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 400), RLOCK_OK);
        assert_int_equal(kit_stats(other).woken, i);
        kit_run(300); /* it wants to hear of the loss of its hold, and is refused */
        assert_int_equal(owner_release(b), RLOCK_OK);
    }
    tell(ask(&server, "ACL DELUSER untold"));
}

static void script_that_many_need_is_sent_once(void **state) {
    rlock_client *client = client_new();
    struct owner *owners[20];
    long long waiters = 19;
    char calls[32] = "";
    redisReply *reply;
    int i;

    (void)state;
    owners[0] = owner_of(client, RLOCK_KIND_MUTEX);
    assert_int_equal(owner_acquire(owners[0], 0, 0), RLOCK_OK); /* connected */
    assert_int_equal(owner_release(owners[0]), RLOCK_OK);
    tell(ask(&server, "SCRIPT FLUSH"));
    tell(ask(&server, "CONFIG RESETSTAT"));
    for (i = 0; i < 20; i++) {
        owners[i] = owner_of(client, RLOCK_KIND_FAIR);
        assert_int_equal(rlock_acquire(owners[i]->lock, RLOCK_FOREVER, 0, owner_told, owners[i]),
                         RLOCK_OK);
    }
    assert_int_equal(owner_wait(owners[0], RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(kit_until(in_queue, &waiters, 5000));
    reply = ask(&server, "INFO commandstats");
    assert_non_null(strstr(reply->str, "cmdstat_eval:"));
    sscanf(strstr(reply->str, "cmdstat_eval:"), "cmdstat_eval:%31[^,]", calls);
    freeReplyObject(reply);
    assert_string_equal(calls, "calls=1");
}

static void script_that_is_forgotten_again_is_sent_again(void **state) {
    rlock_client *client = client_new();
    struct owner *o = owner_of(client, RLOCK_KIND_FAIR);
    uint64_t before;
    int round;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK); /* connected */
    for (round = 0; round < 3; round++) {
        assert_int_equal(owner_release(o), RLOCK_OK);
        tell(ask(&server, "SCRIPT FLUSH"));
        before = kit_stats(client).commands;
        assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
        assert_int_equal(kit_stats(client).commands - before, 2);
    }
}

/* A server that is out of memory refuses a script only if its first write may need some. */
static void fair_queue_goes_on_while_the_server_is_out_of_memory(void **state) {
    rlock_client *client = client_new(), *other = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b = owner_of(other, RLOCK_KIND_FAIR);
    int joined, renewed, granted;

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 1000), RLOCK_OK); /* nobody else renews it */
    tell(ask(&server, "CONFIG SET maxmemory 1"));
    joined = rlock_acquire(b->lock, RLOCK_FOREVER, 0, owner_told, b);
    renewed = owner_renew(a, 1500);
    granted = owner_wait(b, RLOCK_ACQUIRED, 10000);
    tell(ask(&server, "CONFIG SET maxmemory 0"));
    assert_int_equal(joined, RLOCK_OK);
    assert_int_equal(renewed, RLOCK_OK);
    assert_int_equal(granted, RLOCK_OK);
    assert_int_equal(a->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_int_equal(kit_stats(other).faults, 0);
}

static void fair_waiter_does_not_keep_a_push_that_is_over_for_a_mutex(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client = client_new(), *other;
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b, *m;

    (void)state;
    tell(ask(&server, "ACL SETUSER forgetful on >p ~* &* +@all"));
    config.username = "forgetful", config.password = "p";
    config.poll_ms = 100;
    other = kit_client(&config);
    b = owner_of(other, RLOCK_KIND_FAIR), m = owner_new(other, "m");
    tell(ask(&server, "SET m another"));
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    stands_in_queue(b, 1);
    assert_int_equal(rlock_acquire(m->lock, RLOCK_FOREVER, 0, owner_told, m), RLOCK_OK);
    kit_run(300); /* tracked */
    tell(ask(&server, "ACL SETUSER forgetful -client|id"));
    tell(ask(&server, "CLIENT KILL TYPE pubsub"));
    kit_run(500);
    assert_true(kit_until(kit_is_pushing, other, 5000)); /* it is called again */
    tell(ask(&server, "DEL m"));
    assert_int_equal(owner_wait(m, RLOCK_ACQUIRED, 2000), RLOCK_OK);
    tell(ask(&server, "ACL DELUSER forgetful"));
}

static void server_that_takes_no_script_is_asked_three_times_at_most(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *owners[100];
    rlock_client *client;
    uint64_t before;
    int i;

    (void)state;
    tell(ask(&server, "ACL SETUSER silent on >p ~* &* +@all"));
    config.username = "silent", config.password = "p";
    client = kit_client(&config);
    for (i = 0; i < 100; i++) {
        owners[i] = owner_of(client, RLOCK_KIND_FAIR);
    }
    assert_int_equal(owner_acquire(owners[0], 0, 0), RLOCK_OK); /* connected */
    assert_int_equal(owner_release(owners[0]), RLOCK_OK);
    tell(ask(&server, "SCRIPT FLUSH"));
    tell(ask(&server, "ACL SETUSER silent -eval"));
    before = kit_stats(client).commands;
    for (i = 0; i < 100; i++) {
        assert_int_equal(rlock_acquire(owners[i]->lock, 0, 0, owner_told, owners[i]), RLOCK_OK);
    }
    for (i = 0; i < 100; i++) {
        assert_int_equal(owner_wait(owners[i], RLOCK_ACQUIRED, 5000), RLOCK_ERR_AUTH);
    }
    assert_in_range(kit_stats(client).commands - before, 200, 300);
    tell(ask(&server, "ACL DELUSER silent"));
}

static void fair_waiter_polls_where_no_client_can_subscribe(void **state) {
    const char *args[] = {"--rename-command", "SUBSCRIBE", "LISTEN", NULL};
    static struct server deaf;
    rlock_config config;
    rlock_client *client;
    struct owner *a, *b;

    (void)state;
    assert_int_equal(server_start(&deaf, args), 0);
    config = kit_config(&deaf);
    client = kit_client(&config);
    a = owner_of(client, RLOCK_KIND_FAIR), b = owner_of(client, RLOCK_KIND_FAIR);
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 0, owner_told, b), RLOCK_OK);
    kit_run(2000);
    assert_in_range(kit_stats(client).connects, 2, 3); /* it is not tried again and again */
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    kit_reset();
    server_stop(&deaf);
}

/* ------------------------------------------------------------------------------------------------
 * Read and write
 */

/* It waited before its writer was granted, and comes out of the line at once, not when somebody
 * looks after the line the next time. */
static void reader_in_line_comes_beside_its_writer_at_once(void **state) {
    rlock_options write = of_kind(RLOCK_KIND_WRITE, 0, 0), read = of_kind(RLOCK_KIND_READ, 0, 0);
    rlock_config config = kit_config(&server);
    rlock_client *client, *other = client_new();
    struct owner *first = owner_of(other, RLOCK_KIND_WRITE), *w, *mine,
                 *w2 = owner_of(other, RLOCK_KIND_WRITE);

    (void)state;
    config.command_timeout_ms = 30000;
    client = kit_client(&config);
    write.owner = read.owner = 7;
    w = owner_with(client, &write), mine = owner_with(client, &read);
    assert_int_equal(owner_acquire(first, 0, 0), RLOCK_OK);
    stands_in_queue(w, 1);
    stands_in_queue(mine, 2);
    stands_in_queue(w2, 3);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(100); /* each has asked once more because calls have begun */
    assert_int_equal(owner_release(first), RLOCK_OK);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_wait(mine, RLOCK_ACQUIRED, 2000), RLOCK_OK);
    assert_int_equal(num(ask(&server, "ZCARD rlock:{k}:queue")), 1);
    assert_false(rlock_is_held(w2->lock));
}

/* However many owners wait, one of them looks after the line, twice a command timeout. */
static void readers_with_an_owner_of_their_own_cost_what_one_costs(void **state) {
    rlock_client *client = client_new();
    struct owner *writer = owner_of(client_new(), RLOCK_KIND_WRITE);
    rlock_options read = of_kind(RLOCK_KIND_READ, 0, 0);
    uint64_t before;
    int i;

    (void)state;
    assert_int_equal(owner_acquire(writer, 0, 60000), RLOCK_OK);
    for (i = 0; i < 200; i++) {
        struct owner *o;

        read.owner = (uint64_t)i + 1;
        o = owner_with(client, &read);
        assert_non_null(o);
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 10000, owner_told, o), RLOCK_OK);
    }
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(300);
    before = kit_stats(client).commands;
    kit_run(2000);
    assert_in_range(kit_stats(client).commands - before, 2, 10);
}

/* Without push its client does not know yet. */
static void reader_does_not_come_beside_a_writer_that_is_gone(void **state) {
    rlock_options write = of_kind(RLOCK_KIND_WRITE, 0, 0), read = of_kind(RLOCK_KIND_READ, 0, 0);
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *w, *mine, *w2 = owner_of(client_new(), RLOCK_KIND_WRITE);

    (void)state;
    tell(ask(&server, "ACL SETUSER mute on >p ~* resetchannels +@all -client|tracking"));
    config.username = "mute", config.password = "p";
    client = kit_client(&config);
    write.owner = read.owner = 7;
    w = owner_with(client, &write), mine = owner_with(client, &read);
    assert_int_equal(owner_acquire(w, 0, 60000), RLOCK_OK);
    tell(ask(&server, "DEL k"));
    assert_int_equal(owner_acquire(w2, 0, 0), RLOCK_OK);
    assert_true(rlock_is_held(w->lock));
    assert_int_equal(owner_acquire(mine, 0, 0), RLOCK_ERR_BUSY);
    tell(ask(&server, "ACL DELUSER mute"));
}

static void dead_reader_does_not_keep_the_writer_waiting(void **state) {
    rlock_client *client = client_new();
    struct owner *r = owner_of(client, RLOCK_KIND_READ), *live = owner_of(client, RLOCK_KIND_READ),
                 *w = owner_of(client, RLOCK_KIND_WRITE);

    (void)state;
    assert_int_equal(owner_acquire(r, 0, 300), RLOCK_OK); /* not renewed, not released */
    assert_int_equal(owner_acquire(live, 0, 0), RLOCK_OK);
    stands_in_queue(w, 1);
    assert_int_equal(owner_wait(r, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    assert_int_equal(owner_release(live), RLOCK_OK);
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 3000), RLOCK_OK);
}

/* ------------------------------------------------------------------------------------------------
 * Semaphore
 */

/* ------------------------------------------------------------------------------------------------
 * Several keys
 */

static struct owner *owner_of_keys(rlock_client *client, const char *a, const char *b,
                                   bool fencing) {
    const char *keys[3];
    rlock_options options;
    struct owner *o;

    keys[0] = a, keys[1] = b, keys[2] = THIRD;
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 3;
    options.fencing = fencing;
    o = owner_with(client, &options);
    assert_non_null(o);
    return o;
}

static void fence_of_a_set_becomes_the_counter_of_each_of_its_keys(void **state) {
    rlock_client *client = client_new();
    struct owner *one = owner_fenced(client, B), *set = owner_of_keys(client, A, B, true);
    uint64_t fence;

    (void)state;
    tell(ask(&server, "SET rlock:{" B "}:fence 9000000000000000 PX 90000"));
    assert_int_equal(owner_acquire(set, 0, 0), RLOCK_OK);
    fence = set->fence[RLOCK_ACQUIRED];
    assert_true(fence == 9000000000000001);
    assert_int_equal(owner_release(set), RLOCK_OK);
    assert_int_equal(owner_acquire(one, 0, 0), RLOCK_OK);
    assert_true(one->fence[RLOCK_ACQUIRED] > fence);
    assert_int_equal(owner_release(one), RLOCK_OK);
    one = owner_fenced(client, A);
    assert_int_equal(owner_acquire(one, 0, 0), RLOCK_OK);
    assert_true(one->fence[RLOCK_ACQUIRED] > fence);
}

/* Answers are off by then: a script that the server does not know would not be asked for again. */
static void freed_client_lets_go_of_each_kind_on_a_server_that_forgot_its_scripts(void **state) {
    rlock_client *client = client_new();
    struct owner *o[4];
    int i;

    (void)state;
    o[0] = owner_new(client, "x"), o[1] = owner_of_keys(client, A, B, false);
    o[2] = owner_of(client, RLOCK_KIND_FAIR), o[3] = owner_new(client, "y");
    for (i = 0; i < 4; i++) {
        assert_int_equal(owner_acquire(o[i], 0, 60000), RLOCK_OK);
    }
    kit_run(200); /* all looks are answered */
    tell(ask(&server, "SCRIPT FLUSH"));
    rlock_client_free(client);
    kit_client_count--;
    assert_true(key_goes(&server, "x", 2000) && key_goes(&server, "y", 2000));
    assert_true(key_goes(&server, A, 2000) && key_goes(&server, "k", 2000));
    assert_int_equal(num(ask(&server, "DBSIZE")), 0);
}

static void set_that_loses_one_key_lets_the_others_go(void **state) {
    rlock_client *client = client_new();
    struct owner *set = owner_of_keys(client, A, B, false);

    (void)state;
    assert_int_equal(owner_acquire(set, 0, 0), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(100);
    tell(ask(&server, "DEL " B));
    assert_int_equal(owner_wait(set, RLOCK_LOST, 500), RLOCK_ERR_LOST);
    assert_int_equal(set->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    assert_true(key_goes(&server, A, 2000));
    assert_true(key_goes(&server, THIRD, 2000));
}

/* ------------------------------------------------------------------------------------------------
 * Questions
 */

static void force_release_is_reported_to_the_holders_as_deleted(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_WRITE,
                                       RLOCK_KIND_READ, RLOCK_KIND_SEMAPHORE};
    rlock_client *client = client_new(), *operator_ = client_new();
    size_t i;

    (void)state;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool shared = i >= 3;
        rlock_options options = of_kind(kinds[i], kinds[i] == RLOCK_KIND_SEMAPHORE ? 2 : 0, 0);
        struct owner *o = owner_of(client, kinds[i]), *o2 = owner_of(client, kinds[i]);
        struct told told;

        memset(&told, 0, sizeof told);
        assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
        assert_true(!shared || owner_acquire(o2, 0, 0) == RLOCK_OK);
        assert_true(kit_until(kit_is_pushing, client, 5000));
        kit_run(200);
        assert_int_equal(rlock_force_release(operator_, &options, told_info, &told), RLOCK_OK);
        assert_int_equal(owner_wait(o, RLOCK_LOST, 500), RLOCK_ERR_LOST);
        assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
        if (shared) {
            assert_int_equal(owner_wait(o2, RLOCK_LOST, 500), RLOCK_ERR_LOST);
            assert_int_equal(o2->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
        }
        assert_true(kit_until(was_told, &told, 5000));
        assert_int_equal(told.info.status, RLOCK_OK);
        assert_int_equal(told.info.holders, 1 + shared);
        assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
}

static void force_release_serves_the_queue_and_is_reported_as_deleted(void **state) {
    rlock_client *client = client_new(), *other = client_new();
    rlock_options options = of_kind(RLOCK_KIND_FAIR, 0, 0);
    struct owner *holder = owner_of(client, RLOCK_KIND_FAIR),
                 *next = owner_of(other, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(owner_acquire(holder, 0, 0), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    stands_in_queue(next, 1);
    kit_run(200);
    assert_int_equal(rlock_force_release(other, &options, NULL, NULL), RLOCK_OK);
    assert_int_equal(owner_wait(holder, RLOCK_LOST, 500), RLOCK_ERR_LOST);
    assert_int_equal(holder->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    assert_int_equal(owner_wait(next, RLOCK_ACQUIRED, 500), RLOCK_OK);
}

static void force_release_is_reported_to_holders_and_waiters_of_the_same_client(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_WRITE,
                                       RLOCK_KIND_SEMAPHORE};
    rlock_client *client = client_new();
    size_t i;

    (void)state;
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        rlock_options options = of_kind(kinds[i], kinds[i] == RLOCK_KIND_SEMAPHORE ? 1 : 0, 0);
        struct owner *holder = owner_with(client, &options), *waiter = owner_with(client, &options);

        assert_int_equal(owner_acquire(holder, 0, 0), RLOCK_OK);
        assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 0, owner_told, waiter),
                         RLOCK_OK);
        assert_true(kit_until(kit_is_pushing, client, 5000));
        kit_run(200);
        assert_int_equal(rlock_force_release(client, &options, NULL, NULL), RLOCK_OK);
        assert_int_equal(owner_wait(holder, RLOCK_LOST, 500), RLOCK_ERR_LOST);
        assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 1500), RLOCK_OK);
        assert_int_equal(owner_release(waiter), RLOCK_OK);
    }
}

/* Also where the server has to be sent the script first. Else a hold would be taken away that was
 * asked for after that: of a quorum, where another server has answered already. */
/* The key is free, so that an acquire needs no script, and is served before one that is unknown. */
static void force_release_is_not_overtaken_by_an_acquire_of_the_same_client(void **state) {
    rlock_client *client = client_new();
    rlock_options options = of_kind(RLOCK_KIND_MUTEX, 0, 0);
    struct owner *next = owner_with(client, &options), *other = owner_new(client, "x");

    (void)state;
    assert_int_equal(owner_acquire(other, 0, 0), RLOCK_OK); /* it is connected */
    tell(ask(&server, "SCRIPT FLUSH"));
    assert_int_equal(rlock_force_release(client, &options, NULL, NULL), RLOCK_OK);
    assert_int_equal(owner_acquire(next, 0, 0), RLOCK_OK);
    kit_run(50);
    assert_true(rlock_is_held(next->lock));
    assert_int_equal(owner_release(next), RLOCK_OK);
}

static void force_release_of_a_hold_that_is_too_young_to_be_called_is_found(void **state) {
    rlock_client *client = client_new(), *operator_ = client_new();
    rlock_options options = of_kind(RLOCK_KIND_SEMAPHORE, 2, 0);
    struct owner *o = owner_of(client, RLOCK_KIND_SEMAPHORE), *other = owner_new(operator_, "x"),
                 *waiter = owner_new(client, "x");
    struct told told;

    (void)state;
    assert_int_equal(owner_acquire(other, 0, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    memset(&told, 0, sizeof told);
    assert_int_equal(rlock_force_release(operator_, &options, told_info, &told), RLOCK_OK);
    assert_true(kit_until(was_told, &told, 5000));
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 0, owner_told, waiter), RLOCK_OK);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 1000), RLOCK_ERR_LOST);
}

static void questions_that_cannot_be_asked_are_refused_or_end(void **state) {
    rlock_config config = kit_config(&server);
    rlock_options options = of_kind(RLOCK_KIND_FAIR, 0, 0);
    rlock_client *client = client_new(), *lost;
    struct told told;

    (void)state;
    memset(&told, 0, sizeof told);
    assert_int_equal(rlock_inspect(NULL, &options, told_info, &told), RLOCK_ERR_ARG);
    assert_int_equal(rlock_inspect(client, NULL, told_info, &told), RLOCK_ERR_ARG);
    assert_int_equal(rlock_inspect(client, &options, NULL, NULL), RLOCK_ERR_ARG);
    assert_int_equal(rlock_set_permits(client, &options, 1, NULL, NULL), RLOCK_ERR_ARG);
    assert_int_equal(rlock_queue_position(NULL, told_info, &told), RLOCK_ERR_ARG);
    tell(ask(&server, "LPUSH k 1"));
    assert_int_equal(rlock_inspect(client, &options, told_info, &told), RLOCK_OK);
    assert_true(kit_until(was_told, &told, 5000));
    assert_int_equal(told.info.status, RLOCK_ERR_WRONG_TYPE);
    assert_true(strstr(told.text, "WRONGTYPE") != NULL);
    memset(&told, 0, sizeof told);
    config.unix_path = "/nowhere/at/all";
    lost = kit_client(&config);
    assert_int_equal(rlock_inspect(lost, &options, told_info, &told), RLOCK_OK);
    assert_true(kit_until(was_told, &told, 5000));
    assert_int_equal(told.info.status, RLOCK_ERR_CONN);
    assert_int_equal(rlock_inspect(lost, &options, told_info, &told), RLOCK_OK);
    rlock_client_free(lost); /* under a question */
    kit_client_count--;
    assert_int_equal(told.count, 1);
}

#include "kinds_who.h"

static void free_of_a_client_lets_each_kind_go_where_no_script_is_known(void **state) {
    rlock_client *client = client_new();
    struct owner *one = owner_new(client, "one"), *set = owner_of_keys(client, A, B, false),
                 *fair = owner_of(client, RLOCK_KIND_FAIR),
                 *next = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(owner_acquire(one, 0, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(set, 0, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(fair, 0, 0), RLOCK_OK);
    stands_in_queue(next, 1);
    tell(ask(&server, "SCRIPT FLUSH"));
    rlock_client_free(client);
    kit_client_count--;
    assert_true(key_goes(&server, "one", 2000));
    assert_true(key_goes(&server, A, 2000));
    assert_true(key_goes(&server, THIRD, 2000));
    assert_true(key_goes(&server, "k", 2000));
    assert_true(key_goes(&server, "rlock:{k}:queue", 2000));
}

static void what_the_store_cannot_do_is_refused(void **state) {
    rlock_config config = kit_config(&server);
    rlock_options options = of_kind(RLOCK_KIND_FAIR, 0, 0);
    rlock_client *redisson, *client = client_new();
    rlock *lock = NULL;

    (void)state;
    config.wire = RLOCK_WIRE_REDISSON;
    redisson = kit_client(&config);
    assert_int_equal(rlock_new(&lock, redisson, &options), RLOCK_ERR_ARG);
    assert_true(strstr(kit_log_text, "Redisson") != NULL);
    options.key = "a}b";
    assert_int_equal(rlock_new(&lock, client, &options), RLOCK_ERR_ARG);
    assert_true(strstr(kit_log_text, "hash tag") != NULL);
    options.kind = RLOCK_KIND_MUTEX;
    options.fencing = true;
    assert_int_equal(rlock_new(&lock, client, &options), RLOCK_ERR_ARG);
    options.key = "a{}b"; /* an empty hash tag is none */
    assert_int_equal(rlock_new(&lock, client, &options), RLOCK_ERR_ARG);
    options.key = "a{t}b";
    assert_int_equal(rlock_new(&lock, client, &options), RLOCK_OK);
    rlock_free(lock);
}

static void every_kind_costs_a_command_to_take_and_one_to_let_go(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_WRITE,
                                       RLOCK_KIND_READ, RLOCK_KIND_SEMAPHORE};
    rlock_client *client = client_new();
    struct owner *set = owner_of_keys(client, A, B, false);
    size_t i;
    int round;

    (void)state;
    for (i = 0; i <= sizeof kinds / sizeof *kinds; i++) {
        struct owner *o = i == sizeof kinds / sizeof *kinds ? set : owner_of(client, kinds[i]);
        uint64_t before = 0;

        for (round = 0; round < 3; round++) { /* the first one connects, and loads the script */
            before = round == 1 ? kit_stats(client).commands : before;
            assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 0), RLOCK_OK);
            assert_int_equal(owner_release(o), RLOCK_OK);
        }
        assert_int_equal(kit_stats(client).commands - before, 4);
    }
}

/* What docs/guarantees.md says that a user needs, and no more. */
/* The row of the table of rights, where the suite is run on a cluster. */
static void cluster_is_allowed(const char *user) {
    if (clustered()) {
        tell(ask(&server, "ACL SETUSER %s +cluster|slots +asking", user));
    }
}

static void user_with_the_rights_that_are_documented_can_do_it_all(void **state) {
    rlock_config config = kit_config(&server);
    rlock_options options = of_kind(RLOCK_KIND_SEMAPHORE, 1, 0);
    rlock_client *client, *other;
    struct owner *a, *b;
    struct told told;

    (void)state;
    tell(
        ask(&server,
            "ACL SETUSER shop on >secret resetkeys ~k* ~rlock:{k* resetchannels "
            "&__redis__:invalidate &rlock:* -@all +set +get +del +pexpire +pttl "
            "+evalsha +eval +subscribe +client|id +client|tracking +info +client|kill "
            "+client|reply +command|info +time +exists +publish +zadd +zrem +zrange +zrangebyscore "
            "+zremrangebyscore +zscore +zcount +zcard +zrank"));
    config.username = "shop", config.password = "secret";
    cluster_is_allowed("shop");
    client = kit_client(&config), other = kit_client(&config);
    options.fencing = true;
    a = owner_with(client, &options), b = owner_with(other, &options);
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    stands_in_queue(b, 1);
    assert_true(kit_until(kit_is_pushing, other, 5000));
    assert_int_equal(owner_renew(a, 60000), RLOCK_OK);
    assert_int_equal(rlock_set_permits(client, &options, 2, NULL, NULL), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 500), RLOCK_OK);
    assert_int_equal(inspected(client, RLOCK_KIND_SEMAPHORE, &told).holders, 2);
    assert_int_equal(owner_release(b), RLOCK_OK);
    assert_int_equal(rlock_force_release(other, &options, NULL, NULL), RLOCK_OK);
    assert_int_equal(owner_wait(a, RLOCK_LOST, 500), RLOCK_ERR_LOST);
    assert_null(strstr(kit_log_text, "NOPERM"));
    tell(ask(&server, "ACL DELUSER shop"));
}

/* ------------------------------------------------------------------------------------------------
 * What belongs together on one key, and what is not ours.
 */

static const rlock_kind queued_kinds[] = {RLOCK_KIND_FAIR, RLOCK_KIND_READ, RLOCK_KIND_WRITE,
                                          RLOCK_KIND_SEMAPHORE};
#define QUEUED_KINDS (sizeof queued_kinds / sizeof *queued_kinds)

/* All that stands in a sorted set, with its scores. */
static const char *members(const char *key) {
    static char text[1024];
    redisReply *reply = ask(&server, "ZRANGE %s 0 -1 WITHSCORES", key);
    size_t i;

    text[0] = '\0';
    for (i = 0; i < reply->elements; i++) {
        strncat(text, reply->element[i]->str, sizeof text - strlen(text) - 1);
        strncat(text, " ", sizeof text - strlen(text) - 1);
    }
    freeReplyObject(reply);
    return text;
}

/* What a question as another kind is told. */
static int asked_as(rlock_client *client, rlock_kind kind, rlock_op op) {
    rlock_options options = of_kind(kind, kind == RLOCK_KIND_SEMAPHORE ? 2 : 0, 0);
    struct told told;
    int status;

    memset(&told, 0, sizeof told);
    status = op == RLOCK_OP_INSPECT ? rlock_inspect(client, &options, told_info, &told)
             : op == RLOCK_OP_FORCE ? rlock_force_release(client, &options, told_info, &told)
                                    : rlock_set_permits(client, &options, 7, told_info, &told);
    assert_int_equal(status, RLOCK_OK);
    assert_true(kit_until(was_told, &told, 5000));
    return told.info.status;
}

static void all_questions_are_of_the_wrong_type(rlock_client *client, rlock_kind kind) {
    assert_int_equal(asked_as(client, kind, RLOCK_OP_INSPECT), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(asked_as(client, kind, RLOCK_OP_FORCE), RLOCK_ERR_WRONG_TYPE);
    if (kind == RLOCK_KIND_SEMAPHORE) {
        assert_int_equal(asked_as(client, kind, RLOCK_OP_SET_PERMITS), RLOCK_ERR_WRONG_TYPE);
    }
}

static void line_of_another_kind_keeps_its_key_free_for_it(void **state) {
    rlock_client *client = client_new();
    struct owner *fair = owner_of(client, RLOCK_KIND_FAIR),
                 *permit_of_it = owner_of(client, RLOCK_KIND_SEMAPHORE);

    (void)state;
    tell(ask(&server, "ZADD rlock:{k}:queue 1 " NOBODY ":1:1f"));
    assert_int_equal(owner_acquire(permit_of_it, 0, 0), RLOCK_ERR_WRONG_TYPE);
    all_questions_are_of_the_wrong_type(client, RLOCK_KIND_SEMAPHORE);
    assert_int_equal(num(ask(&server, "ZCARD rlock:{k}:queue")), 1);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    assert_int_equal(owner_acquire(fair, 5000, 0), RLOCK_OK); /* who cannot be called is skipped */
}

static void dead_holds_of_another_kind_are_no_obstacle(void **state) {
    rlock_client *client = client_new();
    struct owner *fair = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    tell(ask(&server, "ZADD k 5 " NOBODY ":1:1s -7 " NOBODY ":2:2s"));
    tell(ask(&server, "PEXPIRE k 5000"));
    assert_int_equal(owner_acquire(fair, 0, 0), RLOCK_OK);
    assert_int_equal(num(ask(&server, "ZCARD k")), 1);
}

static void dead_holds_do_not_hide_a_live_one_of_another_kind(void **state) {
    rlock_client *client = client_new();
    char before[1024];
    size_t k;

    (void)state;
    tell(ask(&server, "ZADD k 5 " NOBODY ":1:1s 7 " NOBODY ":2:1s 9999999999999 " NOBODY ":3:1s"));
    snprintf(before, sizeof before, "%s", members("k"));
    for (k = 0; k < QUEUED_KINDS; k++) {
        if (queued_kinds[k] != RLOCK_KIND_SEMAPHORE) {
            assert_int_equal(owner_acquire(owner_of(client, queued_kinds[k]), 0, 0),
                             RLOCK_ERR_WRONG_TYPE);
            all_questions_are_of_the_wrong_type(client, queued_kinds[k]);
        }
    }
    assert_string_equal(members("k"), before);
}

static void member_without_a_name_stays_where_a_lease_is_refused(void **state) {
    rlock_client *client = client_new();
    struct owner *o = owner_of(client, RLOCK_KIND_WRITE);

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    tell(ask(&server, "ZADD k 5 %s", ""));
    tell(ask(&server, "ACL SETUSER default -pexpire"));
    assert_int_not_equal(owner_renew(o, 60000), RLOCK_OK);
    tell(ask(&server, "ACL SETUSER default +pexpire"));
    assert_int_equal(num(ask(&server, "ZCARD k")), 2);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_string_equal(members("k"), " 5 ");
}

static void permits_that_were_set_keep_the_key_a_semaphore(void **state) {
    rlock_client *client = client_new();
    struct owner *fair = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(asked_as(client, RLOCK_KIND_SEMAPHORE, RLOCK_OP_SET_PERMITS), RLOCK_OK);
    assert_int_equal(owner_acquire(fair, 0, 0), RLOCK_ERR_WRONG_TYPE);
    assert_string_equal(members("k"), "permits:7 -inf ");
}

static void sorted_set_of_others_is_of_the_wrong_type_and_untouched(void **state) {
    static const char *const sets[] = {"1000 alice 2000 bob",        "9999999999999 alice",
                                       "-9999999999999 alice 1 bob", "-inf permits:many",
                                       "-inf permits:5x 1 bob",      "5 " NOBODY ":1:1"};
    rlock_client *client = client_new();
    char command[128], before[1024];
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof sets / sizeof *sets; i++) {
        snprintf(command, sizeof command, "ZADD k %s", sets[i]);
        tell(ask(&server, command));
        snprintf(before, sizeof before, "%s", members("k"));
        for (k = 0; k < QUEUED_KINDS; k++) {
            struct owner *o = owner_of(client, queued_kinds[k]);

            assert_int_equal(owner_acquire(o, 0, 0), RLOCK_ERR_WRONG_TYPE);
            assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 0), RLOCK_ERR_WRONG_TYPE);
            all_questions_are_of_the_wrong_type(client, queued_kinds[k]);
        }
        assert_string_equal(members("k"), before);
        assert_int_equal(num(ask(&server, "PTTL k")), -1);
        assert_int_equal(num(ask(&server, "DEL k")), 1);
        assert_int_equal(num(ask(&server, "DBSIZE")), 0);
    }
}

/* An acquire of 0.1.0, by the script that it sent. Returns whether that was granted; the error of
 * the server counts as refused. */
static int granted_by_0_1_0(rlock_kind kind, uint32_t permits, uint32_t weight) {
    static char script[8192];
    FILE *in = fopen("tests/older/queued-0.1.0.lua", "r");
    redisReply *reply;
    int granted;

    assert_non_null(in);
    script[fread(script, 1, sizeof script - 1, in)] = '\0';
    fclose(in);
    reply =
        ask(&server, "EVAL %s 2 k rlock:{k}:queue 0 " NOBODY ":%d:%u %u 3000 rlock: 10000 0 %s 0",
            script, (int)kind + 1, weight, permits, "");
    granted = reply->type == REDIS_REPLY_STRING; /* a fence; otherwise how long it is held */
    freeReplyObject(reply);
    return granted;
}

/* docs/protocol.md, "Whose a key is": what of 0.1.0 and of this version go together on a key. */
static void client_of_0_1_0_on_the_same_key_is_as_documented(void **state) {
    static const struct {
        rlock_kind kind;
        uint32_t permits, weight;
        int both; /* it takes a hold of this version for one of its own */
    } rows[] = {{RLOCK_KIND_FAIR, 1, 1, 0},
                {RLOCK_KIND_READ, RLOCK_PERMITS_MAX, 1, 1},
                {RLOCK_KIND_WRITE, RLOCK_PERMITS_MAX, RLOCK_PERMITS_MAX, 0},
                {RLOCK_KIND_SEMAPHORE, 2, 1, 1}};
    rlock_client *client = client_new();
    char before[1024];
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct owner *o = owner_of(client, rows[i].kind);

        assert_true(granted_by_0_1_0(rows[i].kind, rows[i].permits, rows[i].weight));
        snprintf(before, sizeof before, "%s", members("k"));
        for (k = 0; k < QUEUED_KINDS; k++) {
            struct owner *one = owner_of(client, queued_kinds[k]);

            assert_int_equal(owner_acquire(one, 0, 0), RLOCK_ERR_WRONG_TYPE);
        }
        assert_string_equal(members("k"), before);
        assert_int_equal(num(ask(&server, "DEL k")), 1);
        assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
        assert_int_equal(granted_by_0_1_0(rows[i].kind, rows[i].permits, rows[i].weight),
                         rows[i].both);
        tell(ask(&server, "DEL k"));
    }
}

static void holder_renews_and_releases_next_to_foreign_keys(void **state) {
    rlock_client *client = client_new(), *other = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_WRITE), *b = owner_of(other, RLOCK_KIND_WRITE);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    stands_in_queue(b, 1);
    tell(ask(&server, "ZADD k 5 alice -9999999999999 bob"));
    assert_int_equal(owner_renew(a, 60000), RLOCK_OK);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_ERR_WRONG_TYPE);
    assert_string_equal(members("k"), "bob -9999999999999 alice 5 ");
}

static void what_is_not_ours_among_the_dead_is_not_taken_away(void **state) {
    rlock_client *client = client_new();
    struct owner *a = permit(client, 10, 2), *b = permit(client, 10, 2), *c = permit(client, 10, 2);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(b, 0, 0), RLOCK_OK);
    tell(ask(&server, "ZADD k 5 alice"));
    assert_int_equal(owner_acquire(c, 0, 0), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(asked_as(client, RLOCK_KIND_SEMAPHORE, RLOCK_OP_FORCE), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(atoi(str(ask(&server, "ZSCORE k alice"))), 5);
    assert_int_equal(num(ask(&server, "ZCARD k")), 3);
}

static void what_is_not_ours_in_a_queue_is_taken_away(void **state) {
    rlock_client *client = client_new(), *other = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b = owner_of(other, RLOCK_KIND_FAIR),
                 *c = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    tell(ask(&server, "ZADD rlock:{k}:queue 0 nobody inf last"));
    assert_int_equal(owner_acquire(a, 5000, 0), RLOCK_OK);
    tell(ask(&server, "ZADD rlock:{k}:queue 1e300 late inf last"));
    stands_in_queue(b, 1);
    tell(ask(&server, "ZADD rlock:{k}:queue -inf alice 0 b:c:d"));
    assert_int_equal(rlock_acquire(c->lock, RLOCK_FOREVER, 0, owner_told, c), RLOCK_OK);
    assert_true(kit_until(in_queue, &(long long){4}, 5000));
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_release(b), RLOCK_OK);
    assert_int_equal(owner_wait(c, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS rlock:{k}:queue")), 0);
}

static void line_of_another_type_is_left_alone(void **state) {
    rlock_client *client = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_FAIR), *b = owner_of(client, RLOCK_KIND_FAIR);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 0), RLOCK_OK);
    tell(ask(&server, "LPUSH rlock:{k}:queue 1"));
    assert_int_equal(owner_acquire(b, 5000, 0), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(owner_renew(a, 60000), RLOCK_OK);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    assert_int_equal(owner_acquire(b, 0, 0), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    assert_int_equal(num(ask(&server, "LLEN rlock:{k}:queue")), 1);
}

static void persisted_key_stays_so_while_it_is_held(void **state) {
    rlock_client *client = client_new(), *other = client_new();
    struct owner *a = owner_of(client, RLOCK_KIND_SEMAPHORE),
                 *b = owner_of(other, RLOCK_KIND_SEMAPHORE);

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 5000), RLOCK_OK);
    assert_int_equal(num(ask(&server, "PERSIST k")), 1);
    assert_int_equal(owner_renew(a, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(b, 0, 60000), RLOCK_OK);
    assert_int_equal(num(ask(&server, "PTTL k")), -1);
    assert_int_equal(asked_as(client, RLOCK_KIND_SEMAPHORE, RLOCK_OP_SET_PERMITS), RLOCK_OK);
    assert_int_equal(num(ask(&server, "PTTL k")), -1);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_release(b), RLOCK_OK);
}

/* How often the server has written anything: what a replica would be sent. */
static long long writes(void) {
    return info(&server, "persistence", "rdb_changes_since_last_save");
}

/* For less than is left. With another one it is a batch. */
static void renewal_is_written(struct owner *o, struct owner *with) {
    long long before = writes();

    if (with != NULL) {
        assert_int_equal(rlock_renew(with->lock, 5000, owner_told, with), RLOCK_OK);
    }
    assert_int_equal(owner_renew(o, 5000), RLOCK_OK);
    if (with != NULL) {
        assert_int_equal(owner_wait(with, RLOCK_RENEWED, 5000), RLOCK_OK);
    }
    assert_true(writes() - before >= (with != NULL ? 2 : 1));
}

static void renewal_that_changes_nothing_is_written(void **state) {
    enum { HASH = RLOCK_KIND_SEMAPHORE + 1, SEVERAL, BATCH, ROWS };
    static const char *const keys[] = {"k", "l", J, THIRD};
    rlock_config config = kit_config(&server);
    rlock_client *client = client_new(), *redisson;
    int row, i;

    (void)state;
    config.wire = RLOCK_WIRE_REDISSON;
    redisson = kit_client(&config);
    for (row = 0; row < ROWS; row++) {
        rlock_kind kind = row < HASH ? (rlock_kind)row : RLOCK_KIND_MUTEX;
        struct owner *o = row == SEVERAL ? owner_of_keys(client, J, "k", false)
                                         : owner_of(row == HASH ? redisson : client, kind);
        struct owner *with = row == BATCH ? owner_new(client, "l") : NULL;

        assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
        if (with != NULL) {
            assert_int_equal(owner_acquire(with, 0, 60000), RLOCK_OK);
        }
        renewal_is_written(o, with);
        for (i = 0; i < 4; i++) {
            tell(ask(&server, "PERSIST %s", keys[i]));
        }
        renewal_is_written(o, with);
        assert_int_equal(num(ask(&server, "PTTL k")), -1);
        assert_int_equal(owner_release(o), RLOCK_OK);
        if (with != NULL) {
            assert_int_equal(owner_release(with), RLOCK_OK);
        }
    }
}

/* Each renewal for less than is left moves the end a little, and with it that of the key. */
static void key_of_a_queue_lives_as_long_as_its_hold(void **state) {
    struct owner *o = owner_of(client_new(), RLOCK_KIND_FAIR);
    int i;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    for (i = 0; i < 20; i++) {
        assert_int_equal(owner_renew(o, 1000), RLOCK_OK);
    }
    assert_true(num(ask(&server, "EVAL %s 1 k",
                        "local t,o=redis.call('TIME'),redis.call('ZRANGE',KEYS[1],0,0,'WITHSCORES')"
                        "return redis.call('PTTL',KEYS[1])-math.abs(o[2])"
                        "+t[1]*1000+math.floor(t[2]/1000)")) >= -1);
}

/* The offer, which somebody else made, lasts longer than the lease that is taken. */
static void offer_that_is_taken_is_written(void **state) {
    rlock_client *client = client_new();
    struct owner *o = owner_of(client_new(), RLOCK_KIND_FAIR),
                 *w = owner_of(client, RLOCK_KIND_FAIR);
    long long before;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    stands_in_queue(w, 1);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    tell(ask(&server, "EVAL %s 2 k rlock:{k}:queue",
             "local o,w=redis.call('ZRANGE',KEYS[1],0,0,'WITHSCORES'),"
             "redis.call('ZRANGE',KEYS[2],0,0)[1] "
             "redis.call('ZADD',KEYS[1],o[2],w) redis.call('ZREM',KEYS[1],o[1]) "
             "redis.call('DEL',KEYS[2]) "
             "redis.call('PUBLISH','rlock:'..w:sub(1,36),w:match(':(%d+):')..':k')"));
    before = writes();
    assert_int_equal(owner_wait(w, RLOCK_ACQUIRED, 20000), RLOCK_OK);
    assert_true(writes() > before);
}

/* As if the server's clock had been set back by an hour since the key was written. */
static void clock_steps_back(const char *key) {
    tell(ask(&server, "EVAL %s 1 %s",
             "redis.call('PEXPIRE',KEYS[1],redis.call('PTTL',KEYS[1])+3600000) "
             "if redis.call('TYPE',KEYS[1]).ok=='zset' then "
             "for _,m in ipairs(redis.call('ZRANGE',KEYS[1],0,-1)) do "
             "local e=redis.call('ZSCORE',KEYS[1],m)+0 "
             "redis.call('ZADD',KEYS[1],e<0 and e-3600000 or e+3600000,m) end end",
             key));
}

/* Returns how long its hold lasts at the server. */
static long long lasts_ms(const char *key) {
    return num(ask(&server, "EVAL %s 1 %s",
                   "if redis.call('TYPE',KEYS[1]).ok~='zset' then "
                   "return redis.call('PTTL',KEYS[1]) end "
                   "local t=redis.call('TIME') "
                   "local e=redis.call('ZRANGE',KEYS[1],0,0,'WITHSCORES')[2] "
                   "return math.abs(e)-t[1]*1000-math.floor(t[2]/1000)",
                   key));
}

/* Its client may die then. It is cut to the longest lease that was asked for: that of a renewal by
 * hand may be shorter, and the hold is told until the longer one is over. */
static void hold_that_a_clock_set_back_made_longer_is_cut_by_a_renewal(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client = client_new();
    const char *keys[] = {"x", "h", A, "k", "k", "k"};
    struct owner *o[6];
    int i;

    (void)state;
    o[0] = owner_new(client, keys[0]);
    config.wire = RLOCK_WIRE_REDISSON;
    o[1] = owner_new(kit_client(&config), keys[1]);
    o[2] = owner_of_keys(client, A, B, true);
    o[3] = owner_of(client, RLOCK_KIND_FAIR);
    o[4] = owner_of(client, RLOCK_KIND_READ);
    o[5] = permit(client, 3, 2);
    for (i = 0; i < 6; i++) {
        assert_int_equal(owner_acquire(o[i], 0, 60000), RLOCK_OK);
        clock_steps_back(keys[i]);
        assert_int_equal(owner_renew(o[i], 5000), RLOCK_OK);
        assert_in_range(lasts_ms(keys[i]), 50000, 60001);
        assert_int_equal(owner_renew(o[i], 5000), RLOCK_OK);
        assert_in_range(lasts_ms(keys[i]), 50000, 60002);
        assert_int_equal(owner_renew(o[i], 90000), RLOCK_OK);
        assert_in_range(lasts_ms(keys[i]), 80000, 90001);
        clock_steps_back(keys[i]);
        assert_int_equal(owner_renew(o[i], 5000), RLOCK_OK);
        assert_in_range(lasts_ms(keys[i]), 80000, 90001);
        assert_int_equal(owner_release(o[i]), RLOCK_OK);
    }
}

static int three_are_short(void *arg) {
    (void)arg;
    return lasts_ms("x") <= 900 && lasts_ms("y") <= 900 && lasts_ms("z") <= 900;
}

/* ... also by one that goes in one command with others. */
static void watchdog_cuts_what_a_clock_set_back_made_longer(void **state) {
    static const char *const keys[] = {"x", "y", "z"};
    rlock_config config = kit_config(&server);
    rlock_client *client;
    int i;

    (void)state;
    config.watchdog_lease_ms = 900;
    client = kit_client(&config);
    for (i = 0; i < 3; i++) {
        assert_int_equal(owner_acquire(owner_new(client, keys[i]), 0, 0), RLOCK_OK);
        clock_steps_back(keys[i]);
    }
    assert_true(kit_until(three_are_short, NULL, 10000));
}

/* Refused, and nothing is taken: neither a key nor a place, and the counter is as it was. */
static void refused_with_this_counter(struct owner *o, const char *lock, int64_t wait_ms,
                                      int status) {
    assert_int_equal(owner_acquire(o, wait_ms, 0), status);
    assert_int_equal(num(ask(&server, "EXISTS %s rlock:{k}:queue", lock)), 0);
}

static void fence_counter_that_is_no_number_of_ours_refuses_the_lock(void **state) {
    static const char *const counters[] = {
        "9007199254740992",          "9007199254740991", "inf", "-5", "1e3", "",
        "99999999999999999999999999"};
    rlock_config config = kit_config(&server);
    rlock_client *client = client_new(), *redisson;
    rlock_options options = of_kind(RLOCK_KIND_MUTEX, 0, 0);
    struct owner *owners[3], *set = owner_of_keys(client, J, "k", true);
    size_t i, o;

    (void)state;
    config.wire = RLOCK_WIRE_REDISSON;
    redisson = kit_client(&config);
    options.fencing = true;
    owners[0] = owner_with(client, &options), owners[1] = owner_with(redisson, &options);
    options.kind = RLOCK_KIND_FAIR;
    owners[2] = owner_with(client, &options);
    for (i = 0; i < sizeof counters / sizeof *counters; i++) {
        tell(ask(&server, "SET rlock:{k}:fence %s", counters[i]));
        for (o = 0; o < 3; o++) {
            refused_with_this_counter(owners[o], "k", 0, RLOCK_ERR_SERVER);
            refused_with_this_counter(owners[o], "k", 5000, RLOCK_ERR_SERVER);
        }
        refused_with_this_counter(set, J, 0, RLOCK_ERR_SERVER);
        assert_string_equal(str(ask(&server, "GET rlock:{k}:fence")), counters[i]);
    }
    tell(ask(&server, "DEL rlock:{k}:fence"));
    tell(ask(&server, "LPUSH rlock:{k}:fence 1"));
    for (o = 0; o < 3; o++) {
        refused_with_this_counter(owners[o], "k", 0, RLOCK_ERR_WRONG_TYPE);
    }
    refused_with_this_counter(set, "k", 0, RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(num(ask(&server, "LLEN rlock:{k}:fence")), 1);
    tell(ask(&server, "SET rlock:{k}:fence 9007199254740000"));
    assert_int_equal(owner_acquire(owners[2], 0, 0), RLOCK_OK);
    assert_int_equal(rlock_fence(owners[2]->lock), 9007199254740001);
}

/* Who stands in line and finds itself first holds for a turn before it asks for its fence. */
static void who_is_served_in_the_queue_holds_nothing_where_its_fence_is_refused(void **state) {
    const char *acquire = whole(rlock__scripts[RLOCK__ROW_QUEUE][RLOCK_OP_ACQUIRE]);
    redisReply *reply;

    (void)state;
    tell(ask(&server, "SET rlock:{k}:fence inf"));
    tell(ask(&server, "ZADD rlock:{k}:queue 1 " NOBODY ":1:1f"));
    reply =
        ask(&server, "EVAL %s 3 k rlock:{k}:queue rlock:{k}:fence 0 %s 1 1000 rlock: 500 1 %s 1",
            acquire, NOBODY ":1:1f", "");
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_true(strstr(reply->str, "the fence counter") != NULL);
    freeReplyObject(reply);
    assert_int_equal(num(ask(&server, "EXISTS k rlock:{k}:queue")), 0);
}

static void set_lets_go_beside_a_key_that_is_of_another_type_now(void **state) {
    rlock_client *client = client_new();
    struct owner *set = owner_of_keys(client, A, B, false);

    (void)state;
    assert_int_equal(owner_acquire(set, 0, 60000), RLOCK_OK);
    tell(ask(&server, "DEL " A));
    tell(ask(&server, "LPUSH " A " 1"));
    assert_int_equal(owner_release(set), RLOCK_ERR_NOT_HELD);
    assert_int_equal(num(ask(&server, "EXISTS " B " " THIRD)), 0);
    assert_int_equal(num(ask(&server, "LLEN " A)), 1);
}

static void keys_that_the_queue_of_another_may_be_named_are_refused(void **state) {
    static const char *const bad[] = {"{a}:queue", "{a}:fence", "rlock:{a}:queue", "rlock:{a}"};
    static const char *const good[] = {"{a}",     "a:queue",    "rlock:{a}:1",
                                       "rlock:a", "rlock:a{b}", "{a}x:queues"};
    rlock_client *client = client_new();
    rlock_options options = of_kind(RLOCK_KIND_FAIR, 0, 0);
    rlock *lock = NULL;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.key = bad[i];
        options.kind = RLOCK_KIND_FAIR;
        assert_int_equal(rlock_new(&lock, client, &options), RLOCK_ERR_ARG);
        assert_true(strstr(kit_log_text, "queue or fence") != NULL);
        options.kind = RLOCK_KIND_MUTEX; /* it has no line, and is of another type */
        assert_int_equal(rlock_new(&lock, client, &options), RLOCK_OK);
        rlock_free(lock);
    }
    options.kind = RLOCK_KIND_FAIR;
    for (i = 0; i < sizeof good / sizeof *good; i++) {
        options.key = good[i];
        assert_int_equal(rlock_new(&lock, client, &options), RLOCK_OK);
        rlock_free(lock);
    }
}

/* The same of the wire of Redisson. */
static void user_of_redissons_wire_with_the_documented_rights_can_do_it_all(void **state) {
    rlock_config config = kit_config(&server);
    rlock_options options = of_kind(RLOCK_KIND_MUTEX, 0, 0);
    rlock_client *client;
    struct owner *o;

    (void)state;
    tell(ask(&server,
             "ACL SETUSER shop on >secret resetkeys ~k* resetchannels &__redis__:invalidate "
             "&redisson_lock__channel:* -@all +hset +hexists +exists +del +pexpire +pttl +publish "
             "+hkeys +hlen +evalsha +eval +subscribe +client|id +client|tracking +info "
             "+client|kill +client|reply"));
    config.username = "shop", config.password = "secret", config.wire = RLOCK_WIRE_REDISSON;
    cluster_is_allowed("shop");
    client = kit_client(&config);
    o = owner_with(client, &options);
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    assert_int_equal(owner_renew(o, 60000), RLOCK_OK);
    assert_int_equal(asked_as(client, RLOCK_KIND_MUTEX, RLOCK_OP_INSPECT), RLOCK_OK);
    assert_int_equal(asked_as(client, RLOCK_KIND_MUTEX, RLOCK_OP_FORCE), RLOCK_OK);
    assert_int_equal(owner_wait(o, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_null(strstr(kit_log_text, "NOPERM"));
    tell(ask(&server, "ACL DELUSER shop"));
}

/* --- the group --- */

static int begins(void **state) {
    (void)state;
    tell(ask(&server, "FLUSHALL"));
    return 0;
}

static int ends(void **state) {
    (void)state;
    kit_reset();
    return 0;
}

static int group_begins(void **state) {
    (void)state;
    return server_start(&server, NULL) != 0 || kit_open() != 0 ? -1 : 0;
}

static int group_ends(void **state) {
    (void)state;
    kit_hand_drop();
    kit_close();
    server_stop(&server);
    return 0;
}

/* What cannot be on a cluster, and why. */
static const struct clustered_skip skipped[] = {
    {NULL, NULL},
};

#define TEST(name) cmocka_unit_test_setup_teardown(name, begins, ends)

int main(int argc, char **argv) {
    static struct CMUnitTest tests[] = {
        TEST(fair_stands_in_a_sorted_set_and_its_queue_beside_it_expires),
        TEST(fair_who_joins_a_queue_that_is_there_keeps_it_for_as_long_again),
        TEST(fair_the_dead_in_the_queue_are_skipped_at_once),
        TEST(fair_a_dead_holder_is_followed_within_its_lease_and_a_moment),
        TEST(fair_waiter_that_misses_its_turn_is_followed_by_the_next),
        TEST(positions_of_a_stopped_process_cost_one_offer),
        TEST(expelled_waiters_join_again),
        TEST(many_offers_that_passed_cost_one_look_at_the_queue),
        TEST(lease_that_ended_is_no_offer_that_passed),
        TEST(waiter_whose_offer_passed_leaves_the_queue_when_it_cancels),
        TEST(fair_fences_rise_and_renewals_extend),
        TEST(client_of_0_1_0_on_the_same_key_is_as_documented),
        TEST(fair_a_deleted_key_is_reported_at_once),
        TEST(fair_without_push_is_polled_for),
        TEST(fair_waiters_survive_a_lost_connection),
        TEST(fair_own_waiters_in_a_row_are_not_called),
        TEST(fair_release_names_no_waiter_if_the_next_is_of_another_client),
        TEST(fair_waiter_is_not_notified_of_changes),
        TEST(fair_waiter_without_the_right_to_track_is_still_notified),
        TEST(script_that_many_need_is_sent_once),
        TEST(script_that_is_forgotten_again_is_sent_again),
        TEST(fair_queue_goes_on_while_the_server_is_out_of_memory),
        TEST(fair_waiter_does_not_keep_a_push_that_is_over_for_a_mutex),
        TEST(server_that_takes_no_script_is_asked_three_times_at_most),
        TEST(fair_waiter_polls_where_no_client_can_subscribe),
        TEST(reader_in_line_comes_beside_its_writer_at_once),
        TEST(readers_with_an_owner_of_their_own_cost_what_one_costs),
        TEST(reader_does_not_come_beside_a_writer_that_is_gone),
        TEST(dead_reader_does_not_keep_the_writer_waiting),
        TEST(fence_of_a_set_becomes_the_counter_of_each_of_its_keys),
        TEST(freed_client_lets_go_of_each_kind_on_a_server_that_forgot_its_scripts),
        TEST(set_that_loses_one_key_lets_the_others_go),
        TEST(force_release_is_reported_to_the_holders_as_deleted),
        TEST(force_release_serves_the_queue_and_is_reported_as_deleted),
        TEST(force_release_is_reported_to_holders_and_waiters_of_the_same_client),
        TEST(force_release_is_not_overtaken_by_an_acquire_of_the_same_client),
        TEST(force_release_of_a_hold_that_is_too_young_to_be_called_is_found),
        TEST(questions_that_cannot_be_asked_are_refused_or_end),
#if RLOCK__HAS_DESCRIPTIONS
        TEST(holders_and_waiters_are_listed_with_their_words),
        TEST(each_holder_of_a_semaphore_is_listed),
        TEST(holder_of_a_mutex_is_listed_on_each_wire),
        TEST(holder_that_is_not_connected_or_of_others_has_no_words),
        TEST(server_that_lists_no_clients_says_why),
        TEST(foreign_names_come_without_control_bytes_and_passwords),
        TEST(long_lists_are_cut),
        TEST(question_for_words_of_a_wrong_kind_ends_as_another),
        TEST(names_of_connections_are_as_configured),
#endif
#if RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_MEMORY
        TEST(store_that_lists_nobody_says_so),
#endif
#if RLOCK__HAS_DESCRIPTIONS && RLOCK__HAS_TEXTS
        TEST(description_that_is_none_is_refused),
#endif
        TEST(free_of_a_client_lets_each_kind_go_where_no_script_is_known),
#if RLOCK__HAS_REDISSON && RLOCK__HAS_TEXTS
        TEST(what_the_store_cannot_do_is_refused),
#endif
        TEST(every_kind_costs_a_command_to_take_and_one_to_let_go),
        TEST(user_with_the_rights_that_are_documented_can_do_it_all),
        TEST(line_of_another_kind_keeps_its_key_free_for_it),
        TEST(dead_holds_of_another_kind_are_no_obstacle),
        TEST(dead_holds_do_not_hide_a_live_one_of_another_kind),
        TEST(member_without_a_name_stays_where_a_lease_is_refused),
        TEST(permits_that_were_set_keep_the_key_a_semaphore),
        TEST(sorted_set_of_others_is_of_the_wrong_type_and_untouched),
        TEST(holder_renews_and_releases_next_to_foreign_keys),
        TEST(what_is_not_ours_among_the_dead_is_not_taken_away),
        TEST(what_is_not_ours_in_a_queue_is_taken_away),
        TEST(line_of_another_type_is_left_alone),
        TEST(persisted_key_stays_so_while_it_is_held),
#if RLOCK__HAS_REDISSON
        TEST(renewal_that_changes_nothing_is_written),
#endif
        TEST(key_of_a_queue_lives_as_long_as_its_hold),
        TEST(offer_that_is_taken_is_written),
#if RLOCK__HAS_REDISSON
        TEST(hold_that_a_clock_set_back_made_longer_is_cut_by_a_renewal),
#endif
        TEST(watchdog_cuts_what_a_clock_set_back_made_longer),
#if RLOCK__HAS_REDISSON
        TEST(fence_counter_that_is_no_number_of_ours_refuses_the_lock),
#endif
        TEST(who_is_served_in_the_queue_holds_nothing_where_its_fence_is_refused),
        TEST(set_lets_go_beside_a_key_that_is_of_another_type_now),
#if RLOCK__HAS_TEXTS
        TEST(keys_that_the_queue_of_another_may_be_named_are_refused),
#endif
#if RLOCK__HAS_REDISSON
        TEST(user_of_redissons_wire_with_the_documented_rights_can_do_it_all),
#endif
    };

    return clustered_run("kinds", tests, sizeof tests / sizeof *tests, skipped, group_begins,
                         group_ends, argc > 1 ? argv[1] : NULL);
}
