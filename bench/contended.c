/* One key that everybody wants. 2 to 1,000 waiters in 1 and in 4 processes, who hold it for no time
 * at all and want it again at once: critical sections a second, hand-over times, commands a
 * hand-over, how evenly they are served.
 *
 * Beside it, by hand: release and try, one after the other, on one connection (the round-trip
 * limit); and two processes that hand the key over in turn, by client tracking, so that a hand-over
 * is one push and one round trip. rlock runs that turn-taking too: nobody else is in the way
 * there, and what is measured is the way alone. */
#include "by_hand.h"

#include <sys/mman.h>

#define PROCESSES_MAX 4
#define WAITERS_MAX 1000
#define KEY "bench:contended:key1"
#define HOLD_S 0.004  /* taking turns: longer than the other needs to come and wait, */
#define PAUSE_S 0.002 /* which it does so long after its release */

struct tally { /* of one process */
    uint64_t sections, commands;
    int64_t longest_ns;                   /* a wait, also of who was never served */
    struct bench_samples inside, between; /* hand-overs from the same and from another process */
    struct bench_samples waits;
};

static struct shared {
    volatile int64_t released_ns; /* only its holder writes these two */
    volatile int last;
    int64_t begin_ns, end_ns;
    struct tally tallies[PROCESSES_MAX];
} * shared;

struct waiter {
    rlock *lock;
    struct hand_lock by_hand;
    int64_t asked_ns;
    bool waiting;
    bool trying, again; /* by hand: what is told while a try is out makes another one */
    ev_timer timer;
};

static struct server server;
static struct waiter waiters[WAITERS_MAX];
static struct tally *mine;
static int me;
static bool takes_turns;

static bool in_window(int64_t now_ns) {
    return now_ns >= shared->begin_ns && now_ns < shared->end_ns;
}

static void waited(const struct waiter *w, int64_t now_ns) {
    int64_t ns = now_ns - w->asked_ns;

    bench_sample(&mine->waits, ns);
    mine->longest_ns = ns > mine->longest_ns ? ns : mine->longest_ns;
}

static void entered(struct waiter *w) {
    int64_t now_ns = bench_now_ns();

    w->waiting = false;
    if (in_window(now_ns)) {
        mine->sections++;
        waited(w, now_ns);
        if (shared->last != 0) {
            bench_sample(shared->last == me ? &mine->inside : &mine->between,
                         now_ns - shared->released_ns);
        }
    }
}

static void leaves(void) {
    shared->last = me;
    shared->released_ns = bench_now_ns();
}

static void asks(struct waiter *w) {
    w->asked_ns = bench_now_ns();
    w->waiting = true;
}

static void after(struct waiter *w, double seconds,
                  void (*then)(struct ev_loop *, ev_timer *, int)) {
    ev_now_update(EV_DEFAULT);
    ev_timer_init(&w->timer, then, seconds, 0.);
    w->timer.data = w;
    ev_timer_start(EV_DEFAULT, &w->timer);
}

/* --- rlock --- */

static void on_acquired(rlock *lock, const rlock_event *event, void *user);

static void ask(struct ev_loop *loop, ev_timer *timer, int revents) {
    struct waiter *w = (struct waiter *)timer->data;

    (void)loop, (void)revents;
    asks(w);
    rlock_acquire(w->lock, RLOCK_FOREVER, 0, on_acquired, w);
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    struct waiter *w = (struct waiter *)user;

    (void)lock;
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    if (takes_turns) {
        after(w, PAUSE_S, ask);
    } else {
        w->timer.data = w;
        ask(EV_DEFAULT, &w->timer, 0);
    }
}

static void leave(struct ev_loop *loop, ev_timer *timer, int revents) {
    struct waiter *w = (struct waiter *)timer->data;

    (void)loop, (void)revents;
    leaves();
    rlock_release(w->lock, on_released, w);
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    struct waiter *w = (struct waiter *)user;

    (void)lock;
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    entered(w);
    if (takes_turns) {
        after(w, HOLD_S, leave);
    } else {
        leave(EV_DEFAULT, &w->timer, 0);
    }
}

static uint64_t commands_of(const rlock_client *client) {
    rlock_stats stats;

    rlock_client_stats(client, &stats);
    return stats.commands;
}

static double seconds_until(int64_t ns) {
    return (double)(ns - bench_now_ns()) / 1e9;
}

static void fight(int count) {
    rlock_client *client = bench_client(&server, false, 0);
    int64_t now_ns;
    int i;

    for (i = 0; i < count; i++) {
        waiters[i].lock = bench_lock(client, KEY, NULL, NULL);
        waiters[i].timer.data = &waiters[i];
        ask(EV_DEFAULT, &waiters[i].timer, 0);
    }
    bench_run(seconds_until(shared->begin_ns));
    mine->commands = commands_of(client);
    bench_run(seconds_until(shared->end_ns));
    mine->commands = commands_of(client) - mine->commands;
    now_ns = bench_now_ns();
    for (i = 0; i < count; i++) {
        if (waiters[i].waiting) {
            waited(&waiters[i], now_ns);
        }
    }
    rlock_client_free(client);
}

/* --- by hand --- */

static void on_tried(redisAsyncContext *ac, void *raw, void *data);

static void hand_try_again(struct waiter *w) {
    w->trying = true;
    w->again = false;
    hand_try(&w->by_hand, on_tried, w);
}

static void hand_ask_again(struct ev_loop *loop, ev_timer *timer, int revents) {
    struct waiter *w = (struct waiter *)timer->data;

    (void)loop, (void)revents;
    asks(w);
    hand_try_again(w);
}

static void on_deleted(redisAsyncContext *ac, void *raw, void *data) {
    struct waiter *w = (struct waiter *)data;
    redisReply *reply = (redisReply *)raw;

    (void)ac;
    if (reply == NULL) {
        return; /* the end */
    }
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer != 1) {
        bench_fail("by hand: not released");
    }
    if (takes_turns) {
        after(w, PAUSE_S, hand_ask_again);
    } else {
        hand_ask_again(EV_DEFAULT, &w->timer, 0);
    }
}

static void hand_leave(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop, (void)revents;
    leaves();
    hand_release(&((struct waiter *)timer->data)->by_hand, on_deleted, timer->data);
}

static void on_tried(redisAsyncContext *ac, void *raw, void *data) {
    struct waiter *w = (struct waiter *)data;
    redisReply *reply = (redisReply *)raw;

    (void)ac;
    w->trying = false;
    if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
        if (reply != NULL && w->again) {
            hand_try_again(w);
        }
        return; /* another has it: its release is told */
    }
    entered(w);
    if (takes_turns) {
        after(w, HOLD_S, hand_leave);
    } else {
        hand_leave(EV_DEFAULT, &w->timer, 0);
    }
}

static void on_told(redisAsyncContext *ac, void *raw, void *data) {
    struct waiter *w = (struct waiter *)data;
    redisReply *reply = (redisReply *)raw;

    (void)ac;
    if (reply != NULL && reply->elements == 3 && reply->element[2]->type == REDIS_REPLY_ARRAY &&
        w->waiting) {
        w->again = w->trying;
        if (!w->trying) {
            hand_try_again(w);
        }
    }
}

static void fight_by_hand(int count) {
    struct hand hand;

    (void)count;
    hand_connect(&hand, &server, false);
    waiters[0].timer.data = &waiters[0];
    hand_lock_init(&waiters[0].by_hand, &hand, KEY);
    if (takes_turns) {
        hand_track(&hand, &server, false, on_told, &waiters[0]);
    }
    hand_ask_again(EV_DEFAULT, &waiters[0].timer, 0);
    bench_run(seconds_until(shared->end_ns));
    hand_free(&hand);
}

/* --- processes --- */

static void report(const char *what, int processes, double seconds) {
    static struct bench_samples inside, between, waits;
    uint64_t sections = 0, commands = 0, between_count = 0, fewest = UINT64_MAX;
    int64_t longest_ns = 0;
    uint32_t i;
    int p;

    inside.count = between.count = waits.count = 0;
    for (p = 0; p < processes; p++) {
        const struct tally *t = &shared->tallies[p];

        sections += t->sections;
        commands += t->commands;
        fewest = t->sections < fewest ? t->sections : fewest;
        longest_ns = t->longest_ns > longest_ns ? t->longest_ns : longest_ns;
        between_count += t->between.count;
        for (i = 0; i < t->inside.count; i++) {
            bench_sample(&inside, t->inside.ns[i]);
        }
        for (i = 0; i < t->between.count; i++) {
            bench_sample(&between, t->between.ns[i]);
        }
        for (i = 0; i < t->waits.count; i++) {
            bench_sample(&waits, t->waits.ns[i]);
        }
    }
    bench_sort(&inside), bench_sort(&between), bench_sort(&waits);
    bench_line(what, "sections", (double)sections / seconds, "1/s");
    bench_line(what, "commands", (double)commands / (double)sections, "1");
    if (inside.count > 0) {
        bench_line(what, "inside.p50", bench_percentile(&inside, 50), "us");
        bench_line(what, "inside.p99", bench_percentile(&inside, 99), "us");
    }
    if (between.count > 0) {
        bench_line(what, "between.p50", bench_percentile(&between, 50), "us");
        bench_line(what, "between.p99", bench_percentile(&between, 99), "us");
        bench_line(what, "commands_between", (double)commands / (double)between_count, "1");
    }
    bench_line(what, "between_share", (double)between_count / (double)sections, "1");
    bench_line(what, "wait.p50", bench_percentile(&waits, 50) / 1e3, "ms");
    bench_line(what, "wait.p99", bench_percentile(&waits, 99) / 1e3, "ms");
    bench_line(what, "wait.longest", (double)longest_ns / 1e6, "ms");
    bench_line(what, "smallest_share", (double)fewest * processes / (double)sections, "1");
}

static void measure(const char *what, void (*run)(int), int processes, int waiting,
                    double seconds) {
    pid_t children[PROCESSES_MAX];
    char reply[64];
    int i, status;

    if (processes > waiting) {
        processes = waiting;
    }
    server_cli(&server, reply, sizeof reply, "FLUSHALL");
    memset(shared, 0, sizeof *shared);
    shared->begin_ns = bench_now_ns() + (int64_t)(seconds * 0.4e9);
    shared->end_ns = shared->begin_ns + (int64_t)(seconds * 1e9);
    for (i = 0; i < processes; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            ev_loop_fork(EV_DEFAULT);
            me = i + 1;
            mine = &shared->tallies[i];
            run(waiting / processes);
            _exit(0);
        }
    }
    for (i = 0; i < processes; i++) {
        if (waitpid(children[i], &status, 0) != children[i] || status != 0) {
            bench_fail("a process of the contended key failed");
        }
    }
    report(what, processes, seconds);
}

int main(int argc, char **argv) {
    static const int waiting[] = {2, 16, 128, 1000};
    double seconds;
    char what[64];
    int i, processes;

    bench_arguments(argc, argv);
    seconds = bench_quick ? 0.1 : 0.8;
    bench_server(&server);
    shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        bench_fail("no memory");
    }
    measure("contended.hand.one_by_one", fight_by_hand, 1, 1, seconds / 2);
    for (processes = 1; processes <= PROCESSES_MAX; processes += PROCESSES_MAX - 1) {
        for (i = 0; i < 4; i++) {
            snprintf(what, sizeof what, "contended.rlock.%d.%d", processes, waiting[i]);
            measure(what, fight, processes, waiting[i], seconds);
        }
    }
    takes_turns = true;
    for (i = 0; i < 2; i++) {
        bool hand = (i + bench_turn) % 2 == 1;

        measure(hand ? "contended.hand.turns" : "contended.rlock.turns",
                hand ? fight_by_hand : fight, 2, 2, seconds);
    }
    server_stop(&server);
    return 0;
}
