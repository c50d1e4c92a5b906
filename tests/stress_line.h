/* For tests/stress.c: a line of waiters of several processes for one key of the fair kind. They are
 * served in the order in which the server has them in its line. A process of its own holds the key
 * until the line stands; it lets go or is killed, and a waiting process may be. All of them write
 * into memory that they share. */
#ifndef RLOCK_TESTS_STRESS_LINE_H
#define RLOCK_TESTS_STRESS_LINE_H

#include "kit.h"

#include <sys/mman.h>

#define LINE_WORKERS 4
#define LINE_HANDLES 250 /* a worker, at most */
#define LINE_LEASE_MS 1000
#define LINE_PATIENCE_MS 30000

enum line_fault { LINE_NO_FAULT, LINE_KILL_WAITER, LINE_KILL_HOLDER };

struct line_world {
    int count; /* handles a worker */
    volatile int held, go, measure, release;
    int measured, served;
    char ids[LINE_WORKERS][40];
    int order[LINE_WORKERS * LINE_HANDLES]; /* as served: worker * LINE_HANDLES + handle */
    int64_t first_us, last_us;
    uint64_t commands;
};

struct line_waiter {
    rlock *lock;
    int number;
};

static struct server line_server;
static struct line_world *line;
static struct line_waiter line_waiters[LINE_HANDLES];
static rlock_client *line_client;
static int line_served, line_released, line_refused;
static bool line_measured;
static uint64_t line_commands;

static rlock *line_lock(void) {
    rlock_options options;
    rlock *lock = NULL;

    memset(&options, 0, sizeof options);
    options.key = "line";
    options.kind = RLOCK_KIND_FAIR;
    rlock_new(&lock, line_client, &options);
    return lock;
}

static int line_open(void) {
    rlock_config config;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (kit_open() != 0) {
        return -1;
    }
    config = kit_config(&line_server);
    config.watchdog_lease_ms = LINE_LEASE_MS;
    config.command_timeout_ms = 5000; /* a turn: nobody may lose one to a busy machine */
    line_client = kit_client(&config);
    return line_client != NULL ? 0 : -1;
}

/* ---- who holds it while the line grows ---- */

static int line_is_released(void *arg) {
    (void)arg;
    return line_released > 0;
}

static void line_let_go(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    line_refused += event->status != RLOCK_OK;
    line_released++;
}

static void line_held(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    line->held = event->status == RLOCK_OK;
}

static int line_may_release(void *arg) {
    (void)arg;
    return line->release;
}

static int line_holder_runs(void) {
    rlock *lock = line_open() == 0 ? line_lock() : NULL;

    if (lock == NULL || rlock_acquire(lock, 0, 0, line_held, NULL) != RLOCK_OK ||
        !kit_until(line_may_release, NULL, LINE_PATIENCE_MS) ||
        rlock_release(lock, line_let_go, NULL) != RLOCK_OK ||
        !kit_until(line_is_released, NULL, LINE_PATIENCE_MS)) {
        return 1;
    }
    rlock_free(lock);
    rlock_client_free(line_client);
    return line_refused;
}

/* ---- who waits ---- */

static void line_told(rlock *lock, const rlock_event *event, void *user) {
    const struct line_waiter *w = (const struct line_waiter *)user;
    int place = __atomic_fetch_add(&line->served, 1, __ATOMIC_SEQ_CST);

    if (event->status != RLOCK_OK) {
        fprintf(stderr, "line: %s\n", rlock_strerror(event->status));
        line_refused++;
        return;
    }
    line->order[place] = w->number;
    line->last_us = kit_now_us();
    if (place == 0) {
        line->first_us = line->last_us;
    }
    line_served++;
    line_refused += rlock_release(lock, line_let_go, NULL) != RLOCK_OK;
}

static int line_may_go(void *arg) {
    (void)arg;
    return line->go;
}

static int line_turn(void *arg) {
    (void)arg;
    if (line->measure && !line_measured) {
        line_measured = true;
        line_commands = kit_stats(line_client).commands;
        __atomic_fetch_add(&line->measured, 1, __ATOMIC_SEQ_CST);
    }
    return line_refused > 0 || line_released == line->count;
}

static int line_worker_runs(int number) {
    int i, done;

    if (line_open() != 0) {
        return 1;
    }
    strcpy(line->ids[number], rlock_client_id(line_client));
    if (!kit_until(line_may_go, NULL, LINE_PATIENCE_MS)) {
        return 1;
    }
    for (i = 0; i < line->count; i++) {
        line_waiters[i].number = number * LINE_HANDLES + i;
        line_waiters[i].lock = line_lock();
        line_refused += rlock_acquire(line_waiters[i].lock, RLOCK_FOREVER, 0, line_told,
                                      &line_waiters[i]) != RLOCK_OK;
    }
    done = kit_until(line_turn, NULL, 2 * LINE_PATIENCE_MS);
    __atomic_fetch_add(&line->commands, kit_stats(line_client).commands - line_commands,
                       __ATOMIC_SEQ_CST);
    for (i = 0; i < line->count; i++) {
        rlock_free(line_waiters[i].lock);
    }
    rlock_client_free(line_client);
    if (!done || line_refused > 0) {
        fprintf(stderr, "line: worker %d: %d served, %d released, %d refused\n%s", number,
                line_served, line_released, line_refused, kit_log_text);
    }
    return !done || line_refused > 0;
}

/* ---- the conductor ---- */

/* Sleeps until the number is there. */
static bool line_reaches(const volatile int *number, int wanted) {
    int64_t limit_us = kit_now_us() + LINE_PATIENCE_MS * 1000;

    while (*number < wanted && kit_now_us() < limit_us) {
        server_sleep_ms(1);
    }
    return *number >= wanted;
}

/* Who a member `<client>:<number>:<weight>` is: a client's n-th acquire has the number n. */
static int line_number(const char *member) {
    int i;

    for (i = 0; i < LINE_WORKERS && memcmp(line->ids[i], member, 36) != 0; i++) {
    }
    return i * LINE_HANDLES + atoi(member + 37) - 1;
}

/* What the server's line says, once all stand in it and all can be called. -1: not yet. */
static int line_read(int *order) {
    redisReply *all = ask(&line_server, "ZRANGE rlock:{line}:queue 0 -1 WITHSCORES");
    int n = (int)all->elements / 2, i;

    for (i = 0; i < n; i++) {
        order[i] = line_number(all->element[2 * i]->str);
        n = strchr(all->element[2 * i + 1]->str, '.') != NULL ? -1 : n;
    }
    freeReplyObject(all);
    return n;
}

static bool line_stands(int *order, int wanted) {
    int64_t limit_us = kit_now_us() + LINE_PATIENCE_MS * 1000;
    int n;

    while ((n = line_read(order)) != wanted && kit_now_us() < limit_us) {
        server_sleep_ms(5);
    }
    return n == wanted;
}

static bool line_empty_server(void) {
    int64_t limit_us = kit_now_us() + LINE_PATIENCE_MS * 1000;

    while (num(ask(&line_server, "DBSIZE")) != 0) {
        if (kit_now_us() > limit_us) {
            fprintf(stderr, "line: left: %s\n", str(ask(&line_server, "RANDOMKEY")));
            return false;
        }
        server_sleep_ms(5);
    }
    return true;
}

/* How many were served out of the order of the line, or not at all. */
static int line_check(const int *order, int n, enum line_fault fault) {
    int wrong = 0, at = 0, i;

    for (i = 0; i < n; i++) {
        if (fault == LINE_KILL_WAITER && order[i] / LINE_HANDLES == 1) {
            continue;
        }
        if (line->order[at] != order[i] && wrong++ == 0) {
            fprintf(stderr, "line: %d. in line was %d, served was %d\n", at, order[i],
                    line->order[at]);
        }
        at++;
    }
    return wrong + (at != line->served);
}

static int line_ends(pid_t pid) {
    int code;

    return waitpid(pid, &code, 0) != pid || code != 0;
}

static int line_killed(pid_t pid) {
    int code;

    kill(pid, SIGKILL);
    return waitpid(pid, &code, 0) != pid || !WIFSIGNALED(code);
}

static int line_conduct(const pid_t *pid, enum line_fault fault) {
    static int order[LINE_WORKERS * LINE_HANDLES + 1];
    int wrong = 0, i, n = LINE_WORKERS * line->count;
    int64_t since_us;

    wrong += !line_reaches(&line->held, 1);
    line->go = 1;
    wrong += !line_stands(order, n);
    line->measure = 1;
    wrong += !line_reaches(&line->measured, LINE_WORKERS);
    if (fault == LINE_KILL_WAITER) {
        wrong += line_killed(pid[1]);
    }
    since_us = kit_now_us();
    line->release = fault != LINE_KILL_HOLDER;
    wrong +=
        fault == LINE_KILL_HOLDER ? line_killed(pid[LINE_WORKERS]) : line_ends(pid[LINE_WORKERS]);
    for (i = 0; i < LINE_WORKERS; i++) {
        wrong += (fault != LINE_KILL_WAITER || i != 1) && line_ends(pid[i]);
    }
    wrong += line_check(order, n, fault);
    wrong += !line_empty_server();
    printf("line: %d waiters in %d processes%s: %d served, the first after %.1f ms, %.2f commands "
           "and %.0f us a hand-over, %d faults found\n",
           n, LINE_WORKERS,
           fault == LINE_KILL_WAITER   ? ", one killed"
           : fault == LINE_KILL_HOLDER ? ", the holder killed"
                                       : "",
           line->served, (double)(line->first_us - since_us) / 1000,
           (double)line->commands / line->served,
           (double)(line->last_us - line->first_us) / line->served, wrong);
    wrong += line->commands > 3u * (unsigned)line->served + 4u * LINE_WORKERS;
    if (fault == LINE_KILL_HOLDER) { /* the promise is the lease and 100 ms */
        wrong += line->first_us - since_us > LINE_LEASE_MS * 1000 + 10 * 100000;
    }
    return wrong;
}

/* One run, with so many handles a worker; the number of faults found. */
static int line_run(int count, enum line_fault fault) {
    pid_t pid[LINE_WORKERS + 1];
    int wrong, i;

    line = (struct line_world *)mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (line == MAP_FAILED || server_start(&line_server, NULL) != 0) {
        return 1;
    }
    line->count = count;
    fflush(NULL);
    for (i = 0; i <= LINE_WORKERS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            _exit(i < LINE_WORKERS ? line_worker_runs(i) : line_holder_runs());
        }
    }
    wrong = line_conduct(pid, fault);
    kit_hand_drop();
    server_stop(&line_server);
    munmap(line, sizeof *line);
    return wrong;
}

#endif
