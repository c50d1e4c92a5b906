/* For tests/stress.c: a line of waiters of several processes for one key of the fair kind. They are
 * served in the order in which the server has them in its line. A process of its own holds the key
 * until the line stands; it lets go or is killed, and a waiting process may be. All of them write
 * into memory that they share. */
#ifndef RLOCK_TESTS_STRESS_QUEUE_H
#define RLOCK_TESTS_STRESS_QUEUE_H

#include "kit.h"

#include <sys/mman.h>

#define QUEUE_WORKERS 4
#define QUEUE_HANDLES 250 /* a worker, at most */
#define QUEUE_LEASE_MS 1000
#define QUEUE_PATIENCE_MS 30000

enum queue_fault { QUEUE_NO_FAULT, QUEUE_KILL_WAITER, QUEUE_KILL_HOLDER };

struct queue_world {
    int count; /* handles a worker */
    volatile int held, go, measure, release;
    int measured, served;
    char ids[QUEUE_WORKERS][40];
    int order[QUEUE_WORKERS * QUEUE_HANDLES]; /* as served: worker * QUEUE_HANDLES + handle */
    int64_t first_us, last_us;
    uint64_t commands;
};

struct queue_waiter {
    rlock *lock;
    int number;
};

static struct server queue_server;
static struct queue_world *line;
static struct queue_waiter queue_waiters[QUEUE_HANDLES];
static rlock_client *queue_client;
static int queue_served, queue_released, queue_refused;
static bool queue_measured;
static uint64_t queue_commands;

static rlock *queue_lock(void) {
    rlock_options options;
    rlock *lock = NULL;

    memset(&options, 0, sizeof options);
    options.key = "line";
    options.kind = RLOCK_KIND_FAIR;
    rlock_new(&lock, queue_client, &options);
    return lock;
}

static int queue_open(void) {
    rlock_config config;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (kit_open() != 0) {
        return -1;
    }
    config = kit_config(&queue_server);
    config.watchdog_lease_ms = QUEUE_LEASE_MS;
    config.command_timeout_ms = 5000; /* a turn: nobody may lose one to a busy machine */
    queue_client = kit_client(&config);
    return queue_client != NULL ? 0 : -1;
}

/* ---- who holds it while the line grows ---- */

static int queue_is_released(void *arg) {
    (void)arg;
    return queue_released > 0;
}

static void queue_let_go(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    queue_refused += event->status != RLOCK_OK;
    queue_released++;
}

static void queue_held(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    line->held = event->status == RLOCK_OK;
}

static int queue_may_release(void *arg) {
    (void)arg;
    return line->release;
}

static int queue_holder_runs(void) {
    rlock *lock = queue_open() == 0 ? queue_lock() : NULL;

    if (lock == NULL || rlock_acquire(lock, 0, 0, queue_held, NULL) != RLOCK_OK ||
        !kit_until(queue_may_release, NULL, QUEUE_PATIENCE_MS) ||
        rlock_release(lock, queue_let_go, NULL) != RLOCK_OK ||
        !kit_until(queue_is_released, NULL, QUEUE_PATIENCE_MS)) {
        return 1;
    }
    rlock_free(lock);
    rlock_client_free(queue_client);
    return queue_refused;
}

/* ---- who waits ---- */

static void queue_told(rlock *lock, const rlock_event *event, void *user) {
    const struct queue_waiter *w = (const struct queue_waiter *)user;
    int place = __atomic_fetch_add(&line->served, 1, __ATOMIC_SEQ_CST);

    if (event->status != RLOCK_OK) {
        fprintf(stderr, "line: %s\n", rlock_strerror(event->status));
        queue_refused++;
        return;
    }
    line->order[place] = w->number;
    line->last_us = kit_now_us();
    if (place == 0) {
        line->first_us = line->last_us;
    }
    queue_served++;
    queue_refused += rlock_release(lock, queue_let_go, NULL) != RLOCK_OK;
}

static int queue_may_go(void *arg) {
    (void)arg;
    return line->go;
}

static int queue_iteration(void *arg) {
    (void)arg;
    if (line->measure && !queue_measured) {
        queue_measured = true;
        queue_commands = kit_stats(queue_client).commands;
        __atomic_fetch_add(&line->measured, 1, __ATOMIC_SEQ_CST);
    }
    return queue_refused > 0 || queue_released == line->count;
}

static int queue_worker_runs(int number) {
    int i, done;

    if (queue_open() != 0) {
        return 1;
    }
    strcpy(line->ids[number], rlock_client_id(queue_client));
    if (!kit_until(queue_may_go, NULL, QUEUE_PATIENCE_MS)) {
        return 1;
    }
    for (i = 0; i < line->count; i++) {
        queue_waiters[i].number = number * QUEUE_HANDLES + i;
        queue_waiters[i].lock = queue_lock();
        queue_refused += rlock_acquire(queue_waiters[i].lock, RLOCK_FOREVER, 0, queue_told,
                                       &queue_waiters[i]) != RLOCK_OK;
    }
    done = kit_until(queue_iteration, NULL, 2 * QUEUE_PATIENCE_MS);
    __atomic_fetch_add(&line->commands, kit_stats(queue_client).commands - queue_commands,
                       __ATOMIC_SEQ_CST);
    for (i = 0; i < line->count; i++) {
        rlock_free(queue_waiters[i].lock);
    }
    rlock_client_free(queue_client);
    if (!done || queue_refused > 0) {
        fprintf(stderr, "line: worker %d: %d served, %d released, %d refused\n%s", number,
                queue_served, queue_released, queue_refused, kit_log_text);
    }
    return !done || queue_refused > 0;
}

/* ---- the conductor ---- */

/* Sleeps until the number is there. */
static bool queue_reaches(const volatile int *number, int wanted) {
    int64_t limit_us = kit_now_us() + QUEUE_PATIENCE_MS * 1000;

    while (*number < wanted && kit_now_us() < limit_us) {
        server_sleep_ms(1);
    }
    return *number >= wanted;
}

/* Who a member `<client>:<number>:<weight>` is: a client's n-th acquire has the number n. */
static int queue_number(const char *member) {
    int i;

    for (i = 0; i < QUEUE_WORKERS && memcmp(line->ids[i], member, 36) != 0; i++) {
    }
    return i * QUEUE_HANDLES + atoi(member + 37) - 1;
}

/* What the server's line says, once all stand in it and all can be called. -1: not yet. */
static int queue_read(int *order) {
    redisReply *all = ask(&queue_server, "ZRANGE rlock:{line}:queue 0 -1 WITHSCORES");
    int n = (int)all->elements / 2, i;

    for (i = 0; i < n; i++) {
        order[i] = queue_number(all->element[2 * i]->str);
        n = strchr(all->element[2 * i + 1]->str, '.') != NULL ? -1 : n;
    }
    freeReplyObject(all);
    return n;
}

static bool queue_stands(int *order, int wanted) {
    int64_t limit_us = kit_now_us() + QUEUE_PATIENCE_MS * 1000;
    int n;

    while ((n = queue_read(order)) != wanted && kit_now_us() < limit_us) {
        server_sleep_ms(5);
    }
    return n == wanted;
}

static bool queue_empty_server(void) {
    int64_t limit_us = kit_now_us() + QUEUE_PATIENCE_MS * 1000;

    while (num(ask(&queue_server, "DBSIZE")) != 0) {
        if (kit_now_us() > limit_us) {
            fprintf(stderr, "line: left: %s\n", str(ask(&queue_server, "RANDOMKEY")));
            return false;
        }
        server_sleep_ms(5);
    }
    return true;
}

/* How many were served out of the order of the line, or not at all. */
static int queue_check(const int *order, int n, enum queue_fault fault) {
    int wrong = 0, at = 0, i;

    for (i = 0; i < n; i++) {
        if (fault == QUEUE_KILL_WAITER && order[i] / QUEUE_HANDLES == 1) {
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

static int queue_ends(pid_t pid) {
    int code;

    return waitpid(pid, &code, 0) != pid || code != 0;
}

static int queue_killed(pid_t pid) {
    int code;

    kill(pid, SIGKILL);
    return waitpid(pid, &code, 0) != pid || !WIFSIGNALED(code);
}

static int queue_conduct(const pid_t *pid, enum queue_fault fault) {
    static int order[QUEUE_WORKERS * QUEUE_HANDLES + 1];
    int wrong = 0, i, n = QUEUE_WORKERS * line->count;
    int64_t since_us;

    wrong += !queue_reaches(&line->held, 1);
    line->go = 1;
    wrong += !queue_stands(order, n);
    line->measure = 1;
    wrong += !queue_reaches(&line->measured, QUEUE_WORKERS);
    if (fault == QUEUE_KILL_WAITER) {
        wrong += queue_killed(pid[1]);
    }
    since_us = kit_now_us();
    line->release = fault != QUEUE_KILL_HOLDER;
    wrong += fault == QUEUE_KILL_HOLDER ? queue_killed(pid[QUEUE_WORKERS])
                                        : queue_ends(pid[QUEUE_WORKERS]);
    for (i = 0; i < QUEUE_WORKERS; i++) {
        wrong += (fault != QUEUE_KILL_WAITER || i != 1) && queue_ends(pid[i]);
    }
    wrong += queue_check(order, n, fault);
    wrong += !queue_empty_server();
    printf("line: %d waiters in %d processes%s: %d served, the first after %.1f ms, %.2f commands "
           "and %.0f us a hand-over, %d faults found\n",
           n, QUEUE_WORKERS,
           fault == QUEUE_KILL_WAITER   ? ", one killed"
           : fault == QUEUE_KILL_HOLDER ? ", the holder killed"
                                        : "",
           line->served, (double)(line->first_us - since_us) / 1000,
           (double)line->commands / line->served,
           (double)(line->last_us - line->first_us) / line->served, wrong);
    wrong += line->commands > 3u * (unsigned)line->served + 4u * QUEUE_WORKERS;
    if (fault == QUEUE_KILL_HOLDER) { /* the promise is the lease and 100 ms */
        wrong += line->first_us - since_us > QUEUE_LEASE_MS * 1000 + 10 * 100000;
    }
    return wrong;
}

/* One run, with so many handles a worker; the number of faults found. */
static int queue_run(int count, enum queue_fault fault) {
    pid_t pid[QUEUE_WORKERS + 1];
    int wrong, i;

    line = (struct queue_world *)mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (line == MAP_FAILED || server_start(&queue_server, NULL) != 0) {
        return 1;
    }
    line->count = count;
    fflush(NULL);
    for (i = 0; i <= QUEUE_WORKERS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            _exit(i < QUEUE_WORKERS ? queue_worker_runs(i) : queue_holder_runs());
        }
    }
    wrong = queue_conduct(pid, fault);
    kit_hand_drop();
    server_stop(&queue_server);
    munmap(line, sizeof *line);
    return wrong;
}

#endif
