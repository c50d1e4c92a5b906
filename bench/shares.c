/* Which kind for a hot key: four processes, each with waiters who hold it for a moment and want it
 * again soon, as the requests of users do. A mutex beside FAIR: how often each process was granted
 * it, the most served first, and how long waiters waited. Each has the defaults of a client. */
#include "bench.h"

#include <sys/mman.h>

#define PROCESSES 4
#define WAITERS 8     /* of each process */
#define HOLD_S 0.001  /* the work under the lock */
#define PAUSE_S 0.005 /* until the next request of a user */
#define WARM_UP_S 0.5

static const struct kind {
    const char *name;
    rlock_kind kind;
} kinds[] = {{"mutex", RLOCK_KIND_MUTEX}, {"fair", RLOCK_KIND_FAIR}};

struct tally { /* of one process */
    uint64_t grants;
    int64_t longest_ns; /* a wait, also of who was never served */
    struct bench_samples waits;
};

static struct shared {
    int64_t begin_ns, end_ns;
    struct tally tallies[PROCESSES];
} * shared;

struct waiter {
    rlock *lock;
    int64_t asked_ns; /* 0 = it does not wait */
    ev_timer timer;
};

static struct server server;
static struct waiter waiters[WAITERS];
static struct tally *mine;

static void on_acquired(rlock *lock, const rlock_event *event, void *user);

static void after(struct waiter *w, double seconds,
                  void (*then)(struct ev_loop *, ev_timer *, int)) {
    ev_now_update(EV_DEFAULT);
    ev_timer_init(&w->timer, then, seconds, 0.);
    w->timer.data = w;
    ev_timer_start(EV_DEFAULT, &w->timer);
}

static void ask(struct ev_loop *loop, ev_timer *timer, int revents) {
    struct waiter *w = (struct waiter *)timer->data;

    (void)loop, (void)revents;
    w->asked_ns = bench_now_ns();
    if (rlock_acquire(w->lock, RLOCK_FOREVER, 0, on_acquired, w) != RLOCK_OK) {
        bench_fail("not asked");
    }
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    after((struct waiter *)user, PAUSE_S, ask);
}

static void leave(struct ev_loop *loop, ev_timer *timer, int revents) {
    struct waiter *w = (struct waiter *)timer->data;

    (void)loop, (void)revents;
    rlock_release(w->lock, on_released, w);
}

/* Counts the wait, if its end is within the window. */
static void waited(struct waiter *w, int64_t now_ns) {
    int64_t ns = now_ns - w->asked_ns;

    if (w->asked_ns != 0 && now_ns >= shared->begin_ns && now_ns <= shared->end_ns) {
        bench_sample(&mine->waits, ns);
        mine->longest_ns = ns > mine->longest_ns ? ns : mine->longest_ns;
    }
    w->asked_ns = 0;
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    int64_t now_ns = bench_now_ns();
    struct waiter *w = (struct waiter *)user;

    (void)lock;
    if (event->status != RLOCK_OK) {
        bench_fail(rlock_strerror(event->status));
    }
    mine->grants += now_ns >= shared->begin_ns && now_ns < shared->end_ns;
    waited(w, now_ns);
    after(w, HOLD_S, leave);
}

static void work(const struct kind *kind) {
    rlock_client *client = bench_client(&server, false, 0);
    rlock_options options;
    int i;

    memset(&options, 0, sizeof options);
    options.key = "bench:shares";
    options.kind = kind->kind;
    for (i = 0; i < WAITERS; i++) {
        if (rlock_new(&waiters[i].lock, client, &options) != RLOCK_OK) {
            bench_fail("no handle");
        }
        waiters[i].timer.data = &waiters[i];
        ask(EV_DEFAULT, &waiters[i].timer, 0);
    }
    bench_run((double)(shared->end_ns - bench_now_ns()) / 1e9);
    for (i = 0; i < WAITERS; i++) {
        waited(&waiters[i], shared->end_ns);
    }
    rlock_client_free(client);
}

static int by_grants(const void *a, const void *b) {
    const struct tally *x = (const struct tally *)a, *y = (const struct tally *)b;

    return x->grants > y->grants ? -1 : x->grants < y->grants;
}

static void report(const struct kind *kind) {
    static struct bench_samples waits;
    int64_t longest_ns = 0;
    uint64_t all = 0;
    char what[64], figure[32];
    uint32_t j;
    int i;

    waits.count = 0;
    qsort(shared->tallies, PROCESSES, sizeof shared->tallies[0], by_grants);
    snprintf(what, sizeof what, "shares.%s", kind->name);
    for (i = 0; i < PROCESSES; i++) {
        const struct tally *t = &shared->tallies[i];

        snprintf(figure, sizeof figure, "grants.%d", i + 1);
        bench_line(what, figure, (double)t->grants, "1");
        all += t->grants;
        longest_ns = t->longest_ns > longest_ns ? t->longest_ns : longest_ns;
        for (j = 0; j < t->waits.count; j++) {
            bench_sample(&waits, t->waits.ns[j]);
        }
    }
    bench_sort(&waits);
    bench_line(what, "grants.all", (double)all, "1");
    bench_line(what, "wait.p50", bench_percentile(&waits, 50) / 1e3, "ms");
    bench_line(what, "wait.p99", bench_percentile(&waits, 99) / 1e3, "ms");
    bench_line(what, "wait.longest", (double)longest_ns / 1e6, "ms");
}

static void measure(const struct kind *kind, double seconds) {
    pid_t children[PROCESSES];
    char reply[64];
    int i, status;

    server_cli(&server, reply, sizeof reply, "FLUSHALL");
    memset(shared, 0, sizeof *shared);
    shared->begin_ns = bench_now_ns() + (int64_t)(WARM_UP_S * 1e9);
    shared->end_ns = shared->begin_ns + (int64_t)(seconds * 1e9);
    for (i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            ev_loop_fork(EV_DEFAULT);
            mine = &shared->tallies[i];
            work(kind);
            _exit(0);
        }
    }
    for (i = 0; i < PROCESSES; i++) {
        if (waitpid(children[i], &status, 0) != children[i] || status != 0) {
            bench_fail("a process of the shares failed");
        }
    }
    report(kind);
}

int main(int argc, char **argv) {
    int i;

    bench_arguments(argc, argv);
    bench_server(&server);
    shared = (struct shared *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        bench_fail("no memory");
    }
    for (i = 0; i < 2; i++) {
        measure(&kinds[(i + bench_turn) % 2], bench_quick ? 0.2 : 5);
    }
    server_stop(&server);
    return 0;
}
