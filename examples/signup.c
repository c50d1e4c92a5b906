/* How do I give out a limited number of places? An event has 40 places; four processes register 50
 * people each, all at once. One in four gives up over the form, and one process is killed.
 *
 * A permit is a place kept for who fills in the form, and for who has done so until sign-up closes;
 * it ends with its process. Places given out for good stand in a list, which refuses one too many:
 * so the number is exact whatever dies. A form is filled in for nothing only where it takes the
 * place of one whose process died registered. */
#include <ev.h>
#include <hiredis/adapters/libev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"
#include "data.h"

#define PLACES 40
#define PROCESSES 4
#define PEOPLE 50 /* a process */
#define SIGN_UP_MS 3000
#define REGISTER                                                 \
    "local full=redis.call('SCARD',KEYS[1])>=tonumber(ARGV[1]) " \
    "redis.call('SADD',KEYS[full and 2 or 1],ARGV[2]) "          \
    "return full and 0 or redis.call('SCARD',KEYS[1])"

static redisAsyncContext *redis;
static rlock *people[PEOPLE];
static int me, undecided = PEOPLE;

static void must(bool good, const char *else_say) {
    if (!good) {
        fprintf(stderr, "signup: %s\n", else_say);
        exit(1);
    }
}

static void must_be_ok(int status) {
    must(status == RLOCK_OK, rlock_strerror(status));
}

static int number_of(const rlock *person) {
    int i;
    for (i = 0; people[i] != person; i++) {
    }
    return i;
}

/* The permit is kept: who is refused has that of one whose process died registered. */
static void on_written(redisAsyncContext *c, void *reply, void *person) {
    const redisReply *r = reply;
    (void)c;
    (void)person;
    must(r != NULL && r->type == REDIS_REPLY_INTEGER, "the list was not written");
    undecided--;
    if (r->integer == 10) {
        raise(SIGKILL); /* who is registered keeps the place, the other forms are gone */
    }
}

static void on_form(int revents, void *person) {
    (void)revents;
    if (number_of(person) % 4 == 0) { /* gives up: the place goes to the next in line */
        undecided--;
        rlock_release(person, NULL, NULL);
        return;
    }
    redisAsyncCommand(redis, on_written, person, "EVAL %s 2 event:list event:refused %d %d",
                      REGISTER, PLACES, me * PEOPLE + number_of(person));
}

static void on_place(rlock *person, const rlock_event *event, void *user) {
    bool full = event->status == RLOCK_ERR_TIMEOUT; /* until sign-up closed */
    (void)user;
    must(full || event->status == RLOCK_OK, rlock_strerror(event->status));
    undecided -= full;
    if (!full) {
        ev_once(EV_DEFAULT, -1, 0, 0.005 + 0.001 * (number_of(person) % 20), on_form, person);
    }
}

static void on_closed(int revents, void *open) {
    (void)revents;
    *(bool *)open = false;
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "%s\n", line);
    }
}

static int registrar(void) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    rlock_options options = {.key = "event", .kind = RLOCK_KIND_SEMAPHORE, .permits = PLACES};
    rlock_client *client;
    bool open = true;
    int i;

    alarm(30); /* should the parent be gone */
    signal(SIGPIPE, SIG_IGN);
    config.url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    config.watchdog_lease_ms = 1000;  /* the places of a dead process come back after a second */
    redis = data_connect_async();
    must(redisLibevAttach(EV_DEFAULT_ redis) == REDIS_OK, "no server");
    must_be_ok(rlock_client_new(&client, &config));
    for (i = 0; i < PEOPLE; i++) {
        must_be_ok(rlock_new(&people[i], client, &options));
        rlock_acquire(people[i], SIGN_UP_MS, 0, on_place, NULL);
    }
    ev_once(EV_DEFAULT, -1, 0, SIGN_UP_MS / 1e3 + 0.1, on_closed, &open);
    while (open || undecided > 0) {
        ev_run(EV_DEFAULT, EVRUN_ONCE);
    }
    rlock_client_free(client);
    for (i = 0; i < PEOPLE; i++) {
        rlock_free(people[i]);
    }
    redisAsyncFree(redis);
    return 0;
}

/* A connection of its own: one that is open across a fork would belong to all. */
static int ask(const char *command) {
    redisContext *c = data_connect();
    redisReply *r = c && !c->err ? redisCommand(c, command) : NULL;
    int answer;

    must(r != NULL && r->type == REDIS_REPLY_INTEGER, "no server");
    answer = (int)r->integer;
    freeReplyObject(r);
    redisFree(c);
    return answer;
}

int main(void) {
    int status, killed = 0, failed = 0, sold;

    ask("DEL event:list event:refused");
    for (me = 0; me < PROCESSES; me++) {
        if (fork() == 0) {
            return registrar();
        }
    }
    while (wait(&status) > 0) {
        killed += WIFSIGNALED(status);
        failed |= WIFEXITED(status) && status != 0;
    }
    sold = ask("SCARD event:list");
    printf("%d people, %d places, %d of %d processes killed\n", PROCESSES * PEOPLE, PLACES, killed,
           PROCESSES);
    printf("%d registered: %s\n", sold, sold == PLACES ? "exact" : "NOT EXACT");
    printf("%d forms filled in for nothing\n", ask("SCARD event:refused"));
    ask("DEL event:list event:refused");
    return failed || sold != PLACES;
}

/* SPDX-License-Identifier: MIT */
