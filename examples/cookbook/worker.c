/* A worker whose effect is right even if it was paused for longer than its lease, or does a job
 * twice: it adds an amount to an account, and Redis itself checks its fencing token and the job.
 *
 *     worker JOB AMOUNT [SECONDS]          it stops for so long before it writes, as if paused */
#include <ev.h>
#include <signal.h>
#include <unistd.h>
#include "rlock.h"
#include "rlock_libev.h"
#include "../data.h"

/* One step at the server: a token that is older than the last one, or a job that was done already,
 * changes nothing. */
static const char transfer[] =
    "if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') then "
    "return 'refused: a later worker was here' end "
    "redis.call('HSET', KEYS[1], 'fence', ARGV[1]) "
    "if redis.call('HSETNX', KEYS[1], 'job:' .. ARGV[2], 1) == 0 then "
    "return 'done before' end "
    "return 'the balance is ' .. redis.call('HINCRBY', KEYS[1], 'balance', ARGV[3])";

static char **words;   /* job, amount, seconds */
static int result = 1; /* 0: the job is done, and its queue may forget it */

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event, (void)user; /* the effect is right, however the release ended */
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    redisReply *r;
    (void)user;
    if (event->status != RLOCK_OK) {
        fprintf(stderr, "%s: %s\n", words[0], rlock_strerror(event->status));
        ev_break(EV_DEFAULT, EVBREAK_ALL);
        return;
    }
    printf("%s: begins\n", words[0]);
    sleep(words[2] ? (unsigned)atoi(words[2]) : 0); /* no callback can come meanwhile */
    r = data_ask("EVAL %s 1 account %llu %s %s", transfer, (unsigned long long)event->fence,
                 words[0], words[1]);
    if (r && r->type == REDIS_REPLY_STRING) {
        printf("%s: %s\n", words[0], r->str);
        result = strncmp(r->str, "refused", 7) == 0;
    } /* no answer: it may have been done. The job comes again, and is recognised */
    freeReplyObject(r);
    if (rlock_release(lock, on_released, NULL) != RLOCK_OK) {
        on_released(lock, NULL, NULL); /* it was lost meanwhile */
    }
}

static void on_log(void *file, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(file, "%s\n", line);
    }
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log, .user = stderr};
    rlock_options options = {.key = "account:lock", .fencing = true};
    rlock_client *client;
    rlock *lock;
    int status;

    if (argc < 3) {
        fprintf(stderr, "usage: worker JOB AMOUNT [SECONDS]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    words = argv + 1;
    config.url = getenv("RLOCK_URL");
    if ((status = rlock_client_new(&client, &config)) != RLOCK_OK ||
        (status = rlock_new(&lock, client, &options)) != RLOCK_OK ||
        (status = rlock_acquire(lock, 60000, 0, on_acquired, NULL)) != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    return result;
}
/* SPDX-License-Identifier: MIT */
