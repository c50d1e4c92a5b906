/* rlock.h at the work of its peers: peer.py tells what is measured. On libev, with its defaults. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "rlock_libev.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define IN_FLIGHT 64 /* of what is not measured */
#define WARM_S 0.5

struct worker {
    rlock *lock;
    int64_t since_ns; /* it waits since; 0 = not now */
    long turns;
};

static struct ev_loop *loop;
static rlock_client *client;
static struct worker *workers;
static int count;

static void must(int status, const char *what) {
    if (status != RLOCK_OK) {
        fprintf(stderr, "rlock: %s: %s\n", what, rlock_strerror(status));
        exit(1);
    }
}

static int64_t now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double seconds_since(int64_t then_ns) {
    return (double)(now_ns() - then_ns) / 1e9;
}

static double cpu_us(void) {
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static double rss(void) {
    FILE *statm = fopen("/proc/self/statm", "r");
    long pages = 0;

    if (statm == NULL || fscanf(statm, "%*d %ld", &pages) != 1) {
        exit(1);
    }
    fclose(statm);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void make(struct worker *w, const char *prefix, int i) {
    rlock_options options;
    char key[32];

    memset(&options, 0, sizeof options);
    snprintf(key, sizeof key, i < 0 ? "%s" : "%s:%d", prefix, i);
    options.key = key;
    must(rlock_new(&w->lock, client, &options), "new");
}

static void acquire(struct worker *w, rlock_callback *done) {
    must(rlock_acquire(w->lock, RLOCK_FOREVER, 0, done, w), "acquire");
}

static void make_workers(int n, const char *prefix, bool numbered) {
    int i;

    count = n;
    workers = (struct worker *)calloc((size_t)n, sizeof *workers);
    for (i = 0; i < n && workers != NULL; i++) {
        make(&workers[i], prefix, numbered ? i : -1);
    }
}

static void on_timer(struct ev_loop *l, ev_timer *timer, int revents) {
    (void)timer, (void)revents;
    ev_break(l, EVBREAK_ALL);
}

static void run(double seconds) {
    ev_timer timer;

    ev_timer_init(&timer, on_timer, seconds, 0.);
    ev_now_update(loop);
    ev_timer_start(loop, &timer);
    ev_run(loop, 0);
    ev_timer_stop(loop, &timer);
}

/* ---- pairs */

static long pairs_done;

static void pair_acquired(rlock *lock, const rlock_event *event, void *user);

static void pair_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    must(event->status, "release");
    pairs_done++;
    acquire((struct worker *)user, pair_acquired);
}

static void pair_acquired(rlock *lock, const rlock_event *event, void *user) {
    must(event->status, "acquired");
    must(rlock_release(lock, pair_released, user), "release");
}

static void pairs(int in_flight, double seconds) {
    int64_t then_ns;
    double cpu_then, n;
    int i;

    make_workers(in_flight, "pairs", true);
    for (i = 0; i < count; i++) {
        acquire(&workers[i], pair_acquired);
    }
    run(WARM_S);
    pairs_done = 0;
    cpu_then = cpu_us();
    then_ns = now_ns();
    run(seconds);
    n = (double)pairs_done;
    printf("pairs %f 1/s\n", n / seconds_since(then_ns));
    printf("cpu %f us/pair\n", (cpu_us() - cpu_then) / n);
}

/* ---- waiters */

static long sections, handovers, served, holders;
static double longest;
static bool again;
static const struct worker *last;

static void waiter_acquired(rlock *lock, const rlock_event *event, void *user);

static void waiter_waits(struct worker *w) {
    w->since_ns = now_ns();
    acquire(w, waiter_acquired);
}

static void waiter_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    must(event->status, "release");
    if (again) {
        waiter_waits((struct worker *)user);
    } else if (served == count) {
        ev_break(loop, EVBREAK_ALL);
    }
}

static void longer(const struct worker *w) {
    double wait = seconds_since(w->since_ns);

    longest = wait > longest ? wait : longest;
}

static void waiter_acquired(rlock *lock, const rlock_event *event, void *user) {
    struct worker *w = (struct worker *)user;

    must(event->status, "acquired");
    must(holders++ == 0 ? RLOCK_OK : RLOCK_ERR_STATE, "two holders");
    longer(w);
    w->since_ns = 0;
    sections++;
    handovers += last != w;
    last = w;
    served += w->turns++ == 0;
    holders--;
    must(rlock_release(lock, waiter_released, w), "release");
}

static void warm_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    must(event->status, "release");
    ev_break(loop, EVBREAK_ALL);
}

static void warm_acquired(rlock *lock, const rlock_event *event, void *user) {
    must(event->status, "acquired");
    must(rlock_release(lock, warm_released, user), "release");
}

static void waiters(int n, double limit) {
    struct worker warm;
    int64_t start_ns;
    double elapsed;
    int i;

    make(&warm, "warm", -1);
    acquire(&warm, warm_acquired);
    ev_run(loop, 0);
    make_workers(n, "one", false);
    start_ns = now_ns();
    for (i = 0; i < n; i++) {
        waiter_waits(&workers[i]);
    }
    run(limit);
    elapsed = seconds_since(start_ns);
    for (i = 0; i < n; i++) {
        if (workers[i].since_ns != 0) {
            longer(&workers[i]);
        }
    }
    printf("sections %f 1/s\n", (double)sections / elapsed);
    printf("handovers %f 1/s\n", (double)handovers / elapsed);
    printf("elapsed %f s\n", elapsed);
    printf("served %ld of_%d\n", served, n);
    printf("longest %f ms\n", longest * 1000);
}

/* ---- memory */

static int next, ended;

static void next_holds(void);

static void memory_held(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    must(event->status, "acquired");
    if (++ended == count) {
        ev_break(loop, EVBREAK_ALL);
    }
    next_holds();
}

static void next_holds(void) {
    if (next < count) {
        make(&workers[next], "memory", next);
        acquire(&workers[next++], memory_held);
    }
}

static void hold(int upto) {
    int i;

    count = upto;
    for (i = 0; i < IN_FLIGHT; i++) {
        next_holds();
    }
    ev_run(loop, 0);
}

static void memory(int n) {
    double before;

    workers = (struct worker *)calloc(2 * (size_t)n, sizeof *workers);
    hold(n);
    before = rss();
    hold(2 * n);
    printf("memory %f bytes/lock\n", (rss() - before) / n);
}

/* ---- obey */

static void obeyed(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    must(event->status, "obey");
    if (event->kind == RLOCK_ACQUIRED) {
        printf("acquire %lld ns\n", (long long)now_ns());
    }
}

static void on_input(struct ev_loop *l, ev_io *input, int revents) {
    char word[32];
    ssize_t n = read(0, word, sizeof word);

    (void)input, (void)revents;
    if (n <= 0) {
        ev_break(l, EVBREAK_ALL);
    } else if (word[0] == 'a') {
        acquire(&workers[0], obeyed);
    } else {
        printf("release %lld ns\n", (long long)now_ns());
        must(rlock_release(workers[0].lock, obeyed, NULL), "release");
    }
}

static void obey(void) {
    ev_io input;

    make_workers(1, "one", false);
    ev_io_init(&input, on_input, 0, EV_READ);
    ev_io_start(loop, &input);
    ev_run(loop, 0);
}

int main(int argc, char **argv) {
    rlock_config config;
    const char *what = argc > 2 ? argv[2] : "";
    int a = argc > 3 ? atoi(argv[3]) : 0;
    double seconds = argc > 4 ? atof(argv[4]) : 0;

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(&config, 0, sizeof config);
    loop = EV_DEFAULT;
    config.loop = rlock_libev_loop(loop);
    config.unix_path = argc > 1 ? argv[1] : NULL;
    must(rlock_client_new(&client, &config), "client");
    if (strcmp(what, "pairs") == 0) {
        pairs(a, seconds);
    } else if (strcmp(what, "waiters") == 0) {
        again = argc > 5 && strcmp(argv[5], "again") == 0;
        waiters(a, seconds);
    } else if (strcmp(what, "memory") == 0) {
        memory(a);
    } else {
        obey();
    }
    return 0; /* what waits or is held ends with the process and its server */
}
