/* What do 1,000 to 1,000,000 held locks cost, and how late is the latest renewal?
 *
 * The locks are acquired over a third of the lease, so that their renewals come evenly. Then a
 * full third is measured in five parts: each of these is a repetition. Between them every handle is
 * asked how long it is still held: that tells how late its renewal was. One is due after a third of
 * the lease.
 *
 * The same locks are then held by hand: a wheel of 10 ms, whose locks are renewed 64 in a script.
 * It has no handles, no push, no loss, no fault: the least that keeps locks alive. */
#include "by_hand.h"

#include <malloc.h>
#include <sys/syscall.h>

#define PARTS 5
#define TICK_S 0.005

static struct server server;
static rlock **locks;
static int count, begun, held, lost;
static int64_t lease_ms, start_ns, latest_ms;
static int64_t *renewed_ms; /* of each lock: when its last renewal's request left; 0 = not known */
static uint64_t writes;

/* hiredis 0.14 uses the one, 1.x the other. */
ssize_t write(int fd, const void *bytes, size_t size) {
    writes++;
    return syscall(SYS_write, fd, bytes, size);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags) {
    writes++;
    return syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event, (void)user;
    lost++;
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    if (++held == count) {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
}

/* As many as are due by now. */
static void acquire_some(struct ev_loop *loop, ev_timer *timer, int revents) {
    rlock_client *client = (rlock_client *)timer->data;
    double share = (double)(bench_now_ns() - start_ns) / ((double)lease_ms * 1e6 / 3);
    int until = share >= 1. ? count : (int)(share * count);
    char key[24];

    (void)revents;
    for (; begun < until; begun++) {
        snprintf(key, sizeof key, "held:%015d", begun);
        locks[begun] = bench_lock(client, key, on_lost, NULL);
        rlock_acquire(locks[begun], 0, 0, on_acquired, NULL);
    }
    if (begun == count) {
        ev_timer_stop(loop, timer);
    }
}

/* When the request of a hold's last renewal left follows from how long it is still valid. The time
 * between two such requests, or since the last one, is at most a third of the lease if none is
 * late; looks that are less than a third apart see them all. */
static void look(void) {
    int64_t valid_ms = lease_ms - lease_ms / 100 - 2; /* if it left now */
    int64_t left_ms, now_ms, apart_ms;
    int i;

    for (i = 0; i < count; i++) {
        now_ms = bench_now_ns() / 1000000;
        left_ms = now_ms - valid_ms + rlock_remaining_ms(locks[i]);
        apart_ms = left_ms - renewed_ms[i] > 2 ? left_ms - renewed_ms[i] : now_ms - left_ms;
        if (renewed_ms[i] != 0 && apart_ms > latest_ms) {
            latest_ms = apart_ms;
        }
        renewed_ms[i] = left_ms;
    }
}

static double memory(void) {
    struct mallinfo2 info = mallinfo2();

    return (double)(info.uordblks + info.hblkhd);
}

static void part(const char *what, const rlock_client *client, double seconds) {
    rlock_stats before, after;
    int64_t cpu_ns = bench_cpu_ns(), server_ns = bench_server_cpu_ns(&server);
    int64_t begin_ns = bench_now_ns();
    uint64_t writes_before = writes;
    double renewed, passed;

    rlock_client_stats(client, &before);
    bench_run(seconds);
    rlock_client_stats(client, &after);
    passed = (double)(bench_now_ns() - begin_ns) / 1e9;
    renewed = (double)(after.renewed - before.renewed);
    if (renewed > 0) {
        bench_line(what, "renewals", renewed / passed, "1/s");
        bench_line(what, "commands", (double)(after.commands - before.commands) / passed, "1/s");
        bench_line(what, "writes", (double)(writes - writes_before) / passed, "1/s");
        bench_line(what, "cpu", (double)(bench_cpu_ns() - cpu_ns) / 1e3 / renewed, "us");
        bench_line(what, "server_cpu",
                   (double)(bench_server_cpu_ns(&server) - server_ns) / 1e3 / renewed, "us");
    }
}

static void measure(int how_many, int64_t lease) {
    char what[32], reply[64];
    rlock_client *client;
    ev_timer timer;
    double empty;
    int i;

    snprintf(what, sizeof what, "held.%d", how_many);
    count = how_many, lease_ms = lease, begun = 0, held = 0, lost = 0, latest_ms = 0;
    locks = (rlock **)calloc((size_t)count, sizeof *locks);
    renewed_ms = (int64_t *)calloc((size_t)count, sizeof *renewed_ms);
    client = bench_client(&server, false, lease);
    empty = memory();
    start_ns = bench_now_ns();
    ev_timer_init(&timer, acquire_some, TICK_S, TICK_S);
    timer.data = client;
    ev_timer_start(EV_DEFAULT, &timer);
    ev_run(EV_DEFAULT, 0);
    bench_run(0.3); /* each has been registered for push */
    bench_line(what, "memory", (memory() - empty) / count, "bytes");
    look();
    for (i = 0; i < PARTS; i++) {
        part(what, client, (double)lease / 3e3 / PARTS);
        look();
    }
    bench_line(what, "latest", 100 * ((double)latest_ms / (double)lease_ms - 1. / 3), "%_of_lease");
    if (lost > 0) {
        bench_fail("locks were lost");
    }
    rlock_client_free(client);
    for (i = 0; i < count; i++) {
        rlock_free(locks[i]);
    }
    free(locks);
    free(renewed_ms);
    server_cli(&server, reply, sizeof reply, "FLUSHALL");
}

/* ------------------------------------------------------------------------------------------------
 * The wheel by hand.
 */

#define WHEEL_TICK_MS 10
#define WHEEL_BATCH 64
#define WHEEL_RENEW                                   \
    "local v=redis.call('MGET',unpack(KEYS))\n"       \
    "for i,k in ipairs(KEYS) do\n"                    \
    "if v[i]~=ARGV[1]..ARGV[i+2] then return 0 end\n" \
    "redis.call('PEXPIRE',k,ARGV[2])\n"               \
    "end return 1"

struct wheel_lock {
    struct wheel_lock *next;
    uint32_t number; /* in its token */
    char key[24];
};

static struct wheel_lock **wheel;
static struct hand hand;
static char wheel_sha[41];
static int64_t wheel_ticks; /* that have passed */
static int wheel_slots, renewed_by_hand;

static void on_wheel_reply(redisAsyncContext *ac, void *raw, void *count_of) {
    redisReply *reply = (redisReply *)raw;

    (void)ac;
    if (reply != NULL && (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1) &&
        reply->type != REDIS_REPLY_STATUS) {
        bench_fail("a lock by hand was lost");
    }
    renewed_by_hand += reply != NULL ? (int)(intptr_t)count_of : 0;
}

static void wheel_renew(const struct wheel_lock *lock) {
    static char numbers[WHEEL_BATCH][12];
    const char *argv[3 + 2 * WHEEL_BATCH + 2];
    char keys[12], lease[24];

    while (lock != NULL) {
        const struct wheel_lock *at = lock;
        int i, n = 0;

        for (; at != NULL && n < WHEEL_BATCH; at = at->next) {
            argv[3 + n++] = at->key;
        }
        argv[0] = "EVALSHA", argv[1] = wheel_sha, argv[2] = keys;
        argv[3 + n] = "by-hand:", argv[4 + n] = lease;
        snprintf(keys, sizeof keys, "%d", n);
        snprintf(lease, sizeof lease, "%lld", (long long)lease_ms);
        for (i = 0; i < n; i++, lock = lock->next) {
            snprintf(numbers[i], sizeof numbers[i], "%u", (unsigned)lock->number);
            argv[5 + n + i] = numbers[i];
        }
        redisAsyncCommandArgv(hand.ac, on_wheel_reply, (void *)(intptr_t)n, 5 + 2 * n, argv, NULL);
    }
}

/* In the first round the locks of a tick are taken, as evenly as rlock's; from then on renewed. */
static void on_tick(struct ev_loop *loop, ev_timer *timer, int revents) {
    int64_t now = (bench_now_ns() - start_ns) / 1000000 / WHEEL_TICK_MS;

    (void)loop, (void)timer, (void)revents;
    for (; wheel_ticks < now; wheel_ticks++) {
        int slot = (int)(wheel_ticks % wheel_slots);
        int until = (int)((int64_t)count * (slot + 1) / wheel_slots);

        if (wheel_ticks >= wheel_slots) {
            wheel_renew(wheel[slot]);
        }
        for (; wheel_ticks < wheel_slots && begun < until; begun++) {
            struct wheel_lock *lock = (struct wheel_lock *)malloc(sizeof *lock);

            lock->number = (uint32_t)begun;
            snprintf(lock->key, sizeof lock->key, "hand:%015d", begun);
            lock->next = wheel[slot];
            wheel[slot] = lock;
            redisAsyncCommand(hand.ac, on_wheel_reply, NULL, "SET %s by-hand:%d NX PX %lld",
                              lock->key, begun, (long long)lease_ms);
        }
    }
}

static void measure_by_hand(int how_many, int64_t lease) {
    char what[32], reply[64];
    double empty;
    int64_t cpu_ns, server_ns;
    ev_timer timer;
    int i;

    snprintf(what, sizeof what, "held.hand.%d", how_many);
    count = how_many, lease_ms = lease, begun = 0, wheel_ticks = 0;
    wheel_slots = (int)(lease / 3 / WHEEL_TICK_MS);
    hand_attach(&hand, &server, false);
    hand_ask(&hand, wheel_sha, "SCRIPT", "LOAD", WHEEL_RENEW);
    empty = memory();
    wheel = (struct wheel_lock **)calloc((size_t)wheel_slots, sizeof *wheel);
    start_ns = bench_now_ns();
    ev_timer_init(&timer, on_tick, WHEEL_TICK_MS / 1e3, WHEEL_TICK_MS / 1e3);
    ev_timer_start(EV_DEFAULT, &timer);
    bench_run((double)lease / 3e3 + 0.3);
    bench_line(what, "memory", (memory() - empty) / count, "bytes");
    for (i = 0; i < PARTS; i++) {
        cpu_ns = bench_cpu_ns(), server_ns = bench_server_cpu_ns(&server);
        renewed_by_hand = 0;
        bench_run((double)lease / 3e3 / PARTS);
        bench_line(what, "cpu", (double)(bench_cpu_ns() - cpu_ns) / 1e3 / renewed_by_hand, "us");
        bench_line(what, "server_cpu",
                   (double)(bench_server_cpu_ns(&server) - server_ns) / 1e3 / renewed_by_hand,
                   "us");
    }
    ev_timer_stop(EV_DEFAULT, &timer);
    hand_free(&hand);
    for (i = 0; i < wheel_slots; i++) {
        while (wheel[i] != NULL) {
            struct wheel_lock *lock = wheel[i];

            wheel[i] = lock->next;
            free(lock);
        }
    }
    free(wheel);
    server_cli(&server, reply, sizeof reply, "FLUSHALL");
}

int main(int argc, char **argv) {
    bench_arguments(argc, argv);
    bench_server(&server);
    measure(1000, bench_quick ? 1500 : 15000);
    measure(10000, bench_quick ? 3000 : 15000);
    measure_by_hand(10000, bench_quick ? 3000 : 15000);
    if (!bench_quick) {
        measure(100000, 30000);
        measure_by_hand(100000, 30000);
        measure(1000000, 75000); /* 40,000 renewals a second */
    }
    server_stop(&server);
    return 0;
}
