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

static char **words; /* job, amount, seconds */
static int result = 1;

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event, (void)user;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void work(rlock *lock, redisContext *redis, uint64_t fence) {
    redisReply *r;
    sleep(words[2] ? (unsigned)atoi(words[2]) : 0); /* no callback can come meanwhile */
    r = redisCommand(redis, "EVAL %s 1 account %llu %s %s", transfer, (unsigned long long)fence,
                     words[0], words[1]);
    if (r && r->type == REDIS_REPLY_STRING) {
        printf("%s: %s\n", words[0], r->str);
        result = 0;
    }
    freeReplyObject(r);
    if (rlock_release(lock, on_released, NULL) != RLOCK_OK) {
        on_released(lock, NULL, NULL); /* it was lost meanwhile */
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *redis) {
    if (event->status == RLOCK_OK) {
        printf("%s: begins\n", words[0]);
        work(lock, redis, event->fence);
    } else {
        fprintf(stderr, "%s: %s\n", words[0], rlock_strerror(event->status));
        on_released(lock, NULL, NULL);
    }
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .url = getenv("RLOCK_URL")};
    rlock_options options = {.key = "account:lock", .fencing = true};
    redisContext *redis = data_connect();
    rlock_client *client = NULL;
    rlock *lock = NULL;

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    words = argv + 1;
    if (argc < 3 || !redis || redis->err || rlock_client_new(&client, &config) != RLOCK_OK ||
        rlock_new(&lock, client, &options) != RLOCK_OK ||
        rlock_acquire(lock, 60000, 0, on_acquired, redis) != RLOCK_OK) {
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    redisFree(redis);
    return result;
}
