/* How soon is a holder told of a loss?
 *
 * deleted: from a stranger's DEL, of a lock held for over a second, to on_lost.
 * killed, dead: from the local deadline to on_lost, after the server was killed, and after it fell
 * silent: stopped, it leaves the connection open and never answers, as a dead network does. The
 * deadline is known to the millisecond below, so that up to one is told too much. */
#include "by_hand.h"

#define HOLDS 200
#define LEASE_MS 400

static struct server server;
static rlock *locks[HOLDS];
static int64_t since_ns[HOLDS]; /* what the loss is counted from */
static int held, lost;
static struct bench_samples lateness;
static struct hand stranger;

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event;
    bench_sample(&lateness, bench_now_ns() - *(const int64_t *)user);
    if (++lost == held) {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    held++;
}

/* One after the other, `apart_s` between them. */
static rlock_client *hold(int64_t lease_ms, double apart_s) {
    rlock_client *client = bench_client(&server, false, lease_ms);
    char key[24];
    int i;

    held = lost = 0;
    lateness.count = 0;
    for (i = 0; i < HOLDS; i++) {
        snprintf(key, sizeof key, "loss:%015d", i);
        locks[i] = bench_lock(client, key, on_lost, &since_ns[i]);
        rlock_acquire(locks[i], 0, 0, on_acquired, NULL);
        bench_run(apart_s);
    }
    return client;
}

static void let_go(rlock_client *client) {
    int i;

    if (lost != HOLDS) {
        bench_fail("not every holder was told");
    }
    rlock_client_free(client);
    for (i = 0; i < HOLDS; i++) {
        rlock_free(locks[i]);
    }
    bench_sort(&lateness);
}

static void on_deleted(redisAsyncContext *ac, void *raw, void *data) {
    (void)ac, (void)raw, (void)data;
}

static void delete_one(struct ev_loop *loop, ev_timer *timer, int revents) {
    int *next = (int *)timer->data;
    const char *argv[] = {"DEL", rlock_key(locks[*next], NULL)};

    (void)revents;
    since_ns[*next] = bench_now_ns();
    redisAsyncCommandArgv(stranger.ac, on_deleted, NULL, 2, argv, NULL);
    if (++*next == HOLDS) {
        ev_timer_stop(loop, timer);
    }
}

static void deleted(void) {
    rlock_client *client = hold(0, 0.0001);
    ev_timer timer;
    int next = 0;

    hand_connect(&stranger, &server, false);
    bench_run(1.2);
    ev_timer_init(&timer, delete_one, 0.004, 0.004);
    timer.data = &next;
    ev_timer_start(EV_DEFAULT, &timer);
    bench_run(HOLDS * 0.004 + 2);
    hand_free(&stranger);
    let_go(client);
    bench_line("loss", "deleted.p50", bench_percentile(&lateness, 50) / 1e3, "ms");
    bench_line("loss", "deleted.p99", bench_percentile(&lateness, 99) / 1e3, "ms");
}

/* Answers that were under way have come before the deadlines are read. */
static void gone(const char *how, void (*happens)(const struct server *)) {
    rlock_client *client = hold(LEASE_MS, LEASE_MS / 3e3 / HOLDS);
    char what[32];
    int i;

    bench_run(0.2);
    happens(&server);
    bench_run(0.1);
    for (i = 0; i < HOLDS; i++) {
        since_ns[i] = bench_now_ns() + rlock_remaining_ms(locks[i]) * 1000000;
    }
    bench_run(1);
    let_go(client);
    snprintf(what, sizeof what, "loss.%s", how);
    bench_line(what, "p50", bench_percentile(&lateness, 50) / 1e3, "ms");
    bench_line(what, "latest", bench_percentile(&lateness, 100) / 1e3, "ms");
}

static void killed(const struct server *s) {
    kill(s->pid, SIGKILL);
}

int main(int argc, char **argv) {
    bench_arguments(argc, argv);
    bench_server(&server);
    deleted();
    gone("dead", server_pause);
    server_restart(&server);
    gone("killed", killed);
    server_stop(&server);
    return 0;
}
