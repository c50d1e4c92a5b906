/* A job that cron starts on several machines at the same time runs on one of them, once a period:
 *     once nightly-report "$(date +%F)" make-report --all
 * The others wait until it is done. If the one that runs it dies, or the job fails, the next one
 * runs it. A second key says for which period it was done: only who holds the lock writes that. */
#include <ev.h>
#include <signal.h>
#include <unistd.h>
#include "rlock.h"
#include "rlock_libev.h"
#include "../data.h"

static redisContext *redis; /* a program that does one thing may wait for it */
static char **words;        /* name, period, command */
static int result = 1;
static ev_child job;

static void end(int status) {
    result = status;
    ev_break(EV_DEFAULT, EVBREAK_ALL); /* rlock_client_free releases the lock */
}

static void on_job_done(struct ev_loop *loop, ev_child *child, int revents) {
    (void)loop, (void)revents;
    if (child->rstatus == 0 && rlock_is_held(child->data)) {
        freeReplyObject(redisCommand(redis, "SET done:%s %s", words[0], words[1]));
    }
    end(child->rstatus != 0);
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    fprintf(stderr, "%s: lock lost: %s\n", words[0], rlock_reason_str(event->reason));
    if (job.pid > 0) {
        kill(job.pid, SIGKILL); /* another machine may begin now */
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    redisReply *done = redisCommand(redis, "GET done:%s", words[0]);
    (void)user;
    if (event->status != RLOCK_OK || !done || done->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "%s: lock: %s\n", words[0], rlock_strerror(event->status));
        end(1);
    } else if (done->type == REDIS_REPLY_STRING && strcmp(done->str, words[1]) == 0) {
        printf("%s of %s is done already\n", words[0], words[1]);
        end(0);
    } else {
        ev_child_init(&job, on_job_done, fork(), 0);
        job.data = lock;
        if (job.pid == 0) {
            signal(SIGPIPE, SIG_DFL);
            _exit(execvp(words[2], words + 2));
        } else if (job.pid < 0) {
            end(1);
        }
        ev_child_start(EV_DEFAULT, &job);
    }
    freeReplyObject(done);
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .url = getenv("RLOCK_URL")};
    rlock_options options = {.key = argv[1], .on_lost = on_lost};
    rlock_client *client;
    rlock *lock;
    signal(SIGPIPE, SIG_IGN);
    words = argv + 1;
    if (argc < 4 || !(redis = data_connect()) || redis->err ||
        rlock_client_new(&client, &config) != RLOCK_OK ||
        rlock_new(&lock, client, &options) != RLOCK_OK ||
        rlock_acquire(lock, 600000, 0, on_acquired, NULL) != RLOCK_OK) {
        return 1; /* 600000: after ten minutes something is wrong */
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    redisFree(redis);
    return result;
}
