/* How do I move from Redis to PostgreSQL while the service runs? Through a store made of both:
 *
 *     moving [--directly] REDIS_URL POSTGRES_URL
 *
 * Four processes lock one key, and are started anew one by one: at first they know Redis, then
 * both, then PostgreSQL. So at any time only two adjacent phases run side by side, and never two
 * hold. --directly leaves out the phase in between, and shows what it is good for. */
#define _GNU_SOURCE 1 /* MAP_ANONYMOUS */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"
#include "stores/rlock_postgres.h"

#define PROCESSES 4
#define PAUSE_US 200000 /* between two that are started anew */

enum { REDIS, BOTH, POSTGRES, PHASES };

static struct page { /* of all processes */
    int ready, holders, doubles, falls, turns[PHASES];
    uint64_t fence; /* the highest so far */
} * page;

static const char *redis_url, *postgres_url;
static int phase, inside; /* of this process */
static bool ending;
static rlock_client *client;

static void must(bool good, const char *else_say) {
    if (!good) {
        fprintf(stderr, "moving: %s\n", else_say);
        exit(1);
    }
}

static void must_be_ok(int status) {
    must(status == RLOCK_OK, rlock_strerror(status));
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user);

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    must_be_ok(event->status);
    if (!ending) {
        must_be_ok(rlock_acquire(lock, RLOCK_FOREVER, 0, on_acquired, user));
    }
}

static void leave(void) {
    __sync_sub_and_fetch(&page->holders, inside);
    inside = 0;
}

static void on_worked(int revents, void *lock) {
    (void)revents;
    leave();
    if (!ending) {
        must_be_ok(rlock_release(lock, on_released, NULL));
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    if (event->status == RLOCK_ERR_CLOSED) {
        return; /* it leaves */
    }
    must_be_ok(event->status);
    inside = 1;
    if (__sync_add_and_fetch(&page->holders, 1) > 1) {
        __sync_add_and_fetch(&page->doubles, 1);
    } else if (event->fence <= page->fence) {
        page->falls++;
    } else {
        page->fence = event->fence;
    }
    __sync_add_and_fetch(&page->turns[phase], 1);
    ev_once(EV_DEFAULT, -1, 0, 0.002, on_worked, lock);
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    leave();
    must(event->reason == RLOCK_REASON_CLOSED, rlock_reason_str(event->reason));
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) {
        fprintf(stderr, "%s\n", line);
    }
}

static void on_shutdown(rlock_client *which, int status, void *user) {
    (void)which, (void)user;
    must_be_ok(status);
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

/* What was sent is waited for: after rlock_client_free alone an acquire that is on its way could
 * leave the key held, with nobody there, until its lease ends. */
static void on_end(struct ev_loop *loop, ev_signal *end, int revents) {
    (void)loop, (void)revents;
    ev_signal_stop(EV_DEFAULT, end);
    ending = true;
    must_be_ok(rlock_client_shutdown(client, 0, on_shutdown, NULL));
}

/* A service. From one phase to the next only what the store is changes. */
static int serve(void) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    rlock_config from = {.url = redis_url}, to = {0};
    rlock_options options = {.key = "moving", .fencing = true, .on_lost = on_lost};
    rlock_store *postgres = NULL, *both = NULL;
    rlock *lock;
    ev_signal end;

    alarm(60); /* should the parent be gone */
    signal(SIGPIPE, SIG_IGN);
    must_be_ok(rlock_postgres_new(&postgres, postgres_url, 0));
    to.store = postgres;
    must_be_ok(rlock_both_new(&both, &from, &to));
    switch (phase) {
    case REDIS: config.url = redis_url; break;
    case BOTH: config.store = both; break;
    default: config.store = postgres; break;
    }
    must_be_ok(rlock_client_new(&client, &config));
    must_be_ok(rlock_new(&lock, client, &options));
    must_be_ok(rlock_acquire(lock, RLOCK_FOREVER, 0, on_acquired, NULL));
    ev_signal_init(&end, on_end, SIGTERM);
    ev_signal_start(EV_DEFAULT, &end);
    __sync_add_and_fetch(&page->ready, 1);
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    rlock_both_free(both);
    rlock_postgres_free(postgres);
    return 0;
}

static pid_t start(int which) {
    int before = page->ready, tries;
    pid_t pid = fork();
    if (pid == 0) {
        phase = which;
        exit(serve());
    }
    for (tries = 0; page->ready == before && tries < 2000; tries++) {
        usleep(5000); /* from then on it ends as it should when it is told to */
    }
    return pid;
}

static int stop(pid_t pid) {
    int status = 1;
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    return status;
}

/* Whether the new services take part; of those that start `directly`, whether two have held. */
static bool seen(int next, int turns, bool directly) {
    return page->turns[next] > turns && (!directly || page->doubles > 0);
}

int main(int argc, char **argv) {
    bool directly = argc == 4 && strcmp(argv[1], "--directly") == 0;
    pid_t services[PROCESSES];
    int i, next, tries, failed = 0;

    must(argc == 3 + directly, "see its first lines");
    redis_url = argv[argc - 2];
    postgres_url = argv[argc - 1];
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(page != MAP_FAILED, "out of memory");
    for (i = 0; i < PROCESSES; i++) {
        services[i] = start(REDIS);
    }
    for (next = directly ? POSTGRES : BOTH; next < PHASES; next++) {
        for (i = 0; i < PROCESSES; i++) {
            usleep(PAUSE_US);
            failed |= stop(services[i]);
            services[i] = start(next);
            for (tries = 0; !seen(next, 5 * i, directly && i == 0) && tries < 2000; tries++) {
                usleep(5000);
            }
        }
    }
    usleep(PAUSE_US);
    for (i = 0; i < PROCESSES; i++) {
        failed |= stop(services[i]);
    }
    printf("%d turns with Redis, %d with both, %d with PostgreSQL: ", page->turns[REDIS],
           page->turns[BOTH], page->turns[POSTGRES]);
    if (page->doubles || page->falls) {
        printf("%d TIMES TWO HELD, fences fell %d times\n", page->doubles, page->falls);
    } else {
        printf("never two held, and fences rose\n");
    }
    return failed != 0 || directly != (page->doubles > 0) || (!directly && page->falls > 0);
}

/* SPDX-License-Identifier: MIT */
