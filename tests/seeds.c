/* What goes wrong with other locks, shown not to happen here: each failure of SETNX then EXPIRE,
 * of time stamps and GETSET, of polling scripts, of Redisson's lock, and of a stock without
 * fencing, on a real server. */
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
#include <sys/syscall.h>

/* The wall clock of this program, which a test may set wrong. The linker takes these before the C
 * library's. */
static int64_t wall_step_s;

int clock_gettime(clockid_t id, struct timespec *t) {
    int result = (int)syscall(SYS_clock_gettime, id, t);

    if (id == CLOCK_REALTIME) {
        t->tv_sec += (time_t)wall_step_s;
    }
    return result;
}

time_t time(time_t *out) {
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    if (out != NULL) {
        *out = t.tv_sec;
    }
    return t.tv_sec;
}

static struct server server;

#include "wires.h"

/* ---- SETNX, then EXPIRE: a crash between them leaves the lock for ever ---- */

/* In a child of its own: acquires, and is killed that many microseconds later. */
static void acquires_and_crashes(rlock_wire wire, int delay_us) {
    pid_t pid = fork();

    if (pid == 0) {
        rlock_client *client;
        struct owner *o;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        kit_open();
        client = client_on(wire);
        o = owner_new(client, "k");
        rlock_acquire(o->lock, RLOCK_FOREVER, 300, owner_told, o);
        kit_run(5000);
        _exit(0);
    }
    usleep((useconds_t)delay_us);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void crash_at_any_moment_leaves_no_lock_for_ever(void **state) {
    size_t w;
    int i, left_behind = 0;

    (void)state;
    for (w = 0; w < WIRES; w++) {
        for (i = 0; i < 20 || (left_behind == 0 && i < 200); i++) { /* longer where that is slow */
            long long left;

            acquires_and_crashes(wires[w], 500 + i * 500);
            left = num(ask(&server, "PTTL k")); /* -2 = no key; -1 = for ever */
            assert_true(left == -2 || (left >= 0 && left <= 300));
            left_behind += left >= 0;
        }
        assert_true(key_goes(&server, "k", 2000));
    }
    assert_true(left_behind > 0); /* else no child came as far as the lock */
}

static void lock_and_its_lease_are_one_command(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    struct owner *o = owner_new(client, "k");
    redisContext *ear = kit_connect(&server);
    redisReply *reply = NULL;
    int sets = 0, expires = 0, end = 0;

    (void)state;
    freeReplyObject(redisCommand(ear, "MONITOR"));
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    tell(ask(&server, "ECHO the-end"));
    while (!end && redisGetReply(ear, (void **)&reply) == REDIS_OK) {
        const char *line = reply->str;

        end = strstr(line, "the-end") != NULL;
        if (strstr(line, "\"k\"") != NULL && strstr(line, "\"SET\"") != NULL) {
            sets++;
            expires += strstr(line, "\"NX\"") != NULL && strstr(line, "\"PX\"") != NULL;
        }
        freeReplyObject(reply);
    }
    assert_int_equal(sets, 1);
    assert_int_equal(expires, 1);
    redisFree(ear);
}

/* ---- the time as value, GETSET: late holders, thieves in pairs, clocks that differ ---- */

static void late_holder_does_not_delete_the_next_ones_lock(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *late = owner_new(client_on(wire), "k");

    assert_int_equal(owner_acquire(late, 0, 100), RLOCK_OK);
    server_sleep_ms(200); /* this program stands still, its lease does not */
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    foreign_takes(wire, "k", 60000);
    assert_false(rlock_is_held(late->lock));
    assert_int_equal(owner_release(late), RLOCK_ERR_LOST);
    kit_run(200);
    assert_true(num(ask(&server, "PTTL k")) > 50000);
}

#define THIEVES 6

static int inside, most_inside, turns;

static void thief_in(rlock *lock, const rlock_event *event, void *user) {
    owner_told(lock, event, user);
    if (event->status == RLOCK_OK) {
        inside++;
        turns++;
        most_inside = inside > most_inside ? inside : most_inside;
    }
}

static int somebody_in(void *arg) {
    (void)arg;
    return inside > 0;
}

static void expired_lock_is_taken_by_one_alone(void **state) {
    rlock_wire wire = wire_of(state);
    int round, i;
    struct owner *thief[THIEVES];

    inside = most_inside = turns = 0;
    for (i = 0; i < THIEVES; i++) {
        thief[i] = owner_new(client_on(wire), "k");
    }
    for (round = 0; round < 10; round++) {
        foreign_takes(wire, "k", 60);
        for (i = 0; i < THIEVES; i++) {
            assert_int_equal(rlock_acquire(thief[i]->lock, RLOCK_FOREVER, 5000, thief_in, thief[i]),
                             RLOCK_OK);
        }
        for (turns = 0; turns < THIEVES;) {
            assert_true(kit_until(somebody_in, NULL, 5000));
            kit_run(5); /* time for a second thief */
            assert_int_equal(inside, 1);
            for (i = 0; i < THIEVES && !rlock_is_held(thief[i]->lock); i++) {
            }
            inside--;
            assert_int_equal(owner_release(thief[i]), RLOCK_OK);
        }
    }
    assert_int_equal(most_inside, 1);
}

static void step_of_the_wall_clock_changes_nothing(void **state) {
    static const int64_t steps[] = {3600, -3600, 86400 * 365, 0};
    rlock_config config = kit_config(&server);
    struct owner *watched, *leased, *next;
    size_t i;

    (void)state;
    config.watchdog_lease_ms = 600;
    watched = owner_new(kit_client(&config), "watched");
    leased = owner_new(kit_client(&config), "leased");
    next = owner_new(kit_client(&config), "watched");
    assert_int_equal(owner_acquire(watched, 0, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(leased, 0, 20000), RLOCK_OK);
    for (i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        wall_step_s = steps[i];
        kit_run(300);
        assert_true(rlock_is_held(watched->lock));
        assert_true(rlock_is_held(leased->lock));
        assert_in_range(rlock_remaining_ms(leased->lock), 15000, 20000);
        assert_int_equal(owner_acquire(next, 0, 1000), RLOCK_ERR_BUSY);
    }
    assert_int_equal(watched->seen[RLOCK_LOST] + leased->seen[RLOCK_LOST], 0);
    wall_step_s = 0;
}

/* ---- scripts with a time-out: seconds only, results as text, polling every few ms --- */

static void held_timeout_and_failure_are_three_results(void **state) {
    rlock_config nowhere = kit_config(&server);
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    struct owner *o = owner_new(client, "k"), *away;
    int64_t start;

    (void)state;
    nowhere.unix_path = "/nonexistent/socket";
    away = owner_new(kit_client(&nowhere), "k");
    foreign_takes(RLOCK_WIRE_STRING, "k", 60000);
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_BUSY);
    start = kit_now_us();
    assert_int_equal(owner_acquire(o, 250, 1000), RLOCK_ERR_TIMEOUT);
    assert_in_range(kit_now_us() - start, 250000, 2500000);
    assert_int_equal(owner_acquire(away, 0, 1000), RLOCK_ERR_CONN);
    tell(ask(&server, "DEL k"));
    assert_int_equal(owner_acquire(o, 0, 150), RLOCK_OK); /* a lease of less than a second */
    assert_in_range(num(ask(&server, "PTTL k")), 1, 150);
}

static void waiter_is_silent_while_it_waits(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_STRING);
    struct owner *o = owner_new(client, "k");
    uint64_t before;

    (void)state;
    foreign_takes(RLOCK_WIRE_STRING, "k", 60000);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(300);
    before = kit_stats(client).commands;
    kit_run(1000);
    assert_true(kit_stats(client).commands - before <= 5);
    tell(ask(&server, "DEL k"));
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
}

/* ---- no renewal ---- */

static void work_longer_than_the_lease_keeps_its_lock(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *worker, *other;
    int i;

    (void)state;
    config.watchdog_lease_ms = 300;
    worker = owner_new(kit_client(&config), "k");
    other = owner_new(client_on(RLOCK_WIRE_STRING), "k");
    assert_int_equal(owner_acquire(worker, 0, 0), RLOCK_OK);
    for (i = 0; i < 15; i++) {
        assert_int_equal(owner_acquire(other, 100, 1000), RLOCK_ERR_TIMEOUT);
        assert_true(rlock_is_held(worker->lock));
    }
    assert_int_equal(owner_release(worker), RLOCK_OK);
    assert_int_equal(owner_acquire(other, 0, 1000), RLOCK_OK);
}

/* ---- Redisson's: silent loss, retries that count twice, renewals after the end, the thread as
 * owner ---- */

static void loss_is_reported_once_with_its_reason(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_config config = kit_config(&server);
    struct owner *o;

    config.wire = wire;
    config.watchdog_lease_ms = 600;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    tell(ask(&server, "DEL k")); /* without a word to anybody */
    assert_int_equal(owner_wait(o, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    kit_run(1000);
    assert_int_equal(o->seen[RLOCK_LOST], 1);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0); /* the watchdog did not make it again */
}

static void watchdog_ends_with_the_release(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *o;
    uint64_t renewed;

    config.wire = wire;
    config.watchdog_lease_ms = 150;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 0, 0), RLOCK_OK);
    kit_run(400);
    assert_int_equal(owner_release(o), RLOCK_OK);
    renewed = kit_stats(client).renewed;
    assert_true(renewed > 0);
    kit_run(500);
    assert_int_equal(kit_stats(client).renewed, renewed);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
}

static void unanswered_acquire_counts_once(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_config config = kit_config(&server);
    struct owner *o;

    config.wire = wire;
    config.command_timeout_ms = 200;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    server_pause(&server); /* reads the first try, and those after it, when it goes on */
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    kit_run(700);
    server_resume(&server);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    if (wire == RLOCK_WIRE_REDISSON) {
        assert_string_equal(
            str(ask(&server, "EVAL %s 1 k", "return redis.call('hvals', KEYS[1])[1]")), "1");
    }
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0); /* one release lets go */
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 2);
}

static void two_flows_of_one_thread_exclude_each_other(void **state) {
    rlock_client *client = client_on(RLOCK_WIRE_REDISSON);
    struct owner *a = owner_new(client, "k"), *b = owner_new(client, "k");

    (void)state;
    assert_int_equal(owner_acquire(a, 0, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(b, 0, 60000), RLOCK_ERR_BUSY);
    assert_int_equal(owner_release(b), RLOCK_ERR_NOT_HELD);
    assert_int_equal(owner_acquire(a, 0, 60000), RLOCK_ERR_STATE);
    assert_int_equal(owner_release(a), RLOCK_OK);
    assert_int_equal(owner_acquire(b, 0, 60000), RLOCK_OK);
}

/* ---- the stock ---- */

/* A resource that checks the fence: the write of an older hold is refused. */
static long long fenced_write(uint64_t fence, const char *value) {
    char number[32];

    snprintf(number, sizeof number, "%llu", (unsigned long long)fence);
    return num(ask(&server, "EVAL %s 1 {resource} %s %s",
                   "if tonumber(ARGV[1]) < tonumber(redis.call('hget', KEYS[1], 'fence') or 0) "
                   "then return 0 end "
                   "redis.call('hset', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2]) return 1",
                   number, value));
}

static void stale_write_of_a_paused_holder_is_refused_by_its_fence(void **state) {
    rlock_wire wire = wire_of(state);
    struct owner *paused = owner_fenced(client_on(wire), "k");
    struct owner *next = owner_fenced(client_on(wire), "k");
    uint64_t stale;

    assert_int_equal(owner_acquire(paused, 0, 100), RLOCK_OK);
    stale = rlock_fence(paused->lock);
    assert_int_equal(fenced_write(stale, "first"), 1);
    server_sleep_ms(150); /* the holder stands still between its check and its write */
    assert_int_equal(owner_acquire(next, 2000, 5000), RLOCK_OK);
    assert_true(rlock_fence(next->lock) > stale);
    assert_int_equal(fenced_write(rlock_fence(next->lock), "second"), 1);
    assert_int_equal(fenced_write(stale, "stale"), 0);
    assert_string_equal(str(ask(&server, "HGET {resource} value")), "second");
    assert_int_equal(paused->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
}

#define SHOPS 3
#define BUYERS 8
#define STOCK 60

static int *sold; /* shared by the shops: how many each has sold */
static int shop, closed_buyers;

/* Read, pause, write: without the lock every pause oversells. */
static void buyer_in(rlock *lock, const rlock_event *event, void *user) {
    long long left;

    if (event->status != RLOCK_OK) {
        closed_buyers++;
        return;
    }
    left = num(ask(&server, "GET stock"));
    usleep(500);
    if (left <= 0) {
        closed_buyers++;
        rlock_release(lock, NULL, NULL);
        return;
    }
    tell(ask(&server, "SET stock %lld", left - 1));
    sold[shop]++;
    rlock_release(lock, owner_told, user);
}

static int shop_is_closed(void *arg) {
    int i;

    (void)arg;
    for (i = 0; i < kit_owner_count; i++) { /* a buyer who is out comes again */
        struct owner *o = &kit_owners[i];

        if (o->seen[RLOCK_RELEASED] > o->taken[RLOCK_RELEASED]) {
            o->taken[RLOCK_RELEASED]++;
            rlock_acquire(o->lock, RLOCK_FOREVER, 5000, buyer_in, o);
        }
    }
    return closed_buyers == BUYERS;
}

static int sells(int number) {
    rlock_client *client;
    int i, ok;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    shop = number;
    kit_hand = NULL; /* the parent's connection is not ours */
    kit_open();
    client = client_on(RLOCK_WIRE_STRING);
    for (i = 0; i < BUYERS; i++) {
        struct owner *o = owner_new(client, "stock:lock");

        rlock_acquire(o->lock, RLOCK_FOREVER, 5000, buyer_in, o);
    }
    ok = kit_until(shop_is_closed, NULL, 30000);
    kit_run(100);
    kit_reset();
    return ok ? 0 : 1;
}

static void stock_is_sold_to_the_last_piece_and_no_further(void **state) {
    pid_t pid[SHOPS];
    int i, code, total = 0;

    (void)state;
    sold = (int *)mmap(NULL, SHOPS * sizeof *sold, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    closed_buyers = 0;
    tell(ask(&server, "SET stock %d", STOCK));
    for (i = 0; i < SHOPS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            _exit(sells(i));
        }
    }
    for (i = 0; i < SHOPS; i++) {
        assert_int_equal(waitpid(pid[i], &code, 0), pid[i]);
        assert_int_equal(code, 0);
        total += sold[i];
    }
    assert_int_equal(total, STOCK);
    assert_int_equal(num(ask(&server, "GET stock")), 0);
    munmap(sold, SHOPS * sizeof *sold);
}

/* ---- the group ---- */

static int group_begins(void **state) {
    (void)state;
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
    wall_step_s = 0;
    server_resume(&server);
    kit_reset();
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_begins, test_ends)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(crash_at_any_moment_leaves_no_lock_for_ever),
        TEST(lock_and_its_lease_are_one_command),
        ON_EACH_WIRE(late_holder_does_not_delete_the_next_ones_lock),
        ON_EACH_WIRE(expired_lock_is_taken_by_one_alone),
        TEST(step_of_the_wall_clock_changes_nothing),
        TEST(held_timeout_and_failure_are_three_results),
        TEST(waiter_is_silent_while_it_waits),
        TEST(work_longer_than_the_lease_keeps_its_lock),
        ON_EACH_WIRE(loss_is_reported_once_with_its_reason),
        ON_EACH_WIRE(watchdog_ends_with_the_release),
        ON_EACH_WIRE(unanswered_acquire_counts_once),
#if RLOCK__HAS_REDISSON
        TEST(two_flows_of_one_thread_exclude_each_other),
#endif
        ON_EACH_WIRE(stale_write_of_a_paused_holder_is_refused_by_its_fence),
        TEST(stock_is_sold_to_the_last_piece_and_no_further),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return shard_group("seeds", tests, group_begins, group_ends);
}
