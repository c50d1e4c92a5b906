/* A job that cron starts on several machines at the same time runs on one of them, once a period:
 *     once nightly-report "$(date +%F)" make-report --all
 * The others wait until it is done. If the one that runs it dies, or the job fails, the next one
 * runs it. A key for each period says that it was done then. */
#include <ev.h>
#include <signal.h>
#include <unistd.h>
#include "rlock.h"
#include "rlock_libev.h"
#include "../data.h"

static char **words; /* name, period, command */
static int result = 1, tries = 10;
static pid_t group; /* the job and what it starts; 0 = it does not run */

static void end(int status, const char *why) {
    fprintf(status == 0 ? stdout : stderr, "%s of %s %s\n", words[0], words[1], why);
    result = status;
    ev_break(EV_DEFAULT, EVBREAK_ALL); /* rlock_client_free releases the lock */
}

/* The lock is held until the others can see that the job was done. */
static void note(int revents, void *lock) {
    redisReply *noted = data_ask("SET done:%s:%s 1 EX 3456000", words[0], words[1]); /* 40 days */
    (void)revents;
    if (noted && rlock_is_held(lock)) {
        end(0, "is done");
    } else if (noted) {
        end(1, "is done, but the lock was lost meanwhile: it may have run twice");
    } else if (--tries == 0 || !rlock_is_held(lock)) {
        end(1, "is done, but this could not be noted: it may run again");
    } else {
        ev_once(EV_DEFAULT, -1, 0, 1, note, lock);
    }
    freeReplyObject(noted);
}

static void on_job_done(struct ev_loop *loop, ev_child *job, int revents) {
    (void)revents;
    ev_child_stop(loop, job);
    kill(-group, SIGKILL); /* what it has left behind */
    group = 0;
    if (job->rstatus != 0) {
        end(1, "has failed");
    } else {
        note(0, job->data);
    }
}

static void on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    fprintf(stderr, "%s: lock lost: %s\n", words[0], rlock_reason_str(event->reason));
    if (group) {
        kill(-group, SIGKILL); /* another machine may begin now */
    }
}

static void on_signal(struct ev_loop *loop, ev_signal *watcher, int revents) {
    (void)loop, (void)revents;
    if (!group) {
        end(1, "was ended");
    } else {
        kill(-group, watcher->signum); /* the end of the job is the end */
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    static ev_child job;
    redisReply *done = NULL;
    (void)user;
    if (event->status != RLOCK_OK) {
        end(1, rlock_strerror(event->status));
    } else if ((done = data_ask("EXISTS done:%s:%s", words[0], words[1])) && done->integer) {
        end(0, "is done already");
    } else if (!done || !rlock_is_held(lock) || (group = fork()) < 0) {
        end(1, "was not started"); /* held no more: the answer took too long */
    } else if (group == 0) {
        setpgid(0, 0);
        signal(SIGPIPE, SIG_DFL);
        execvp(words[2], words + 2);
        perror(words[2]);
        _exit(127);
    } else {
        setpgid(group, group); /* whoever is first, it or its parent */
        ev_child_init(&job, on_job_done, group, 0);
        job.data = lock;
        ev_child_start(EV_DEFAULT, &job);
    }
    freeReplyObject(done);
}

static void on_log(void *file, int level, const char *line) {
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(file, "%s\n", line);
    }
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log, .user = stderr};
    rlock_options options = {.key = argv[1], .on_lost = on_lost};
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM};
    ev_signal ends[3];
    rlock_client *client;
    rlock *lock;
    int i, status;
    if (argc < 4) {
        fprintf(stderr, "usage: once NAME PERIOD COMMAND...\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    words = argv + 1;
    config.url = getenv("RLOCK_URL");
    for (i = 0; i < 3; i++) {
        ev_signal_init(&ends[i], on_signal, signals[i]);
        ev_signal_start(EV_DEFAULT, &ends[i]);
    }
    if ((status = rlock_client_new(&client, &config)) != RLOCK_OK ||
        (status = rlock_new(&lock, client, &options)) != RLOCK_OK ||
        (status = rlock_acquire(lock, 600000, 0, on_acquired, NULL)) != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 1;
    }
    ev_run(EV_DEFAULT, 0); /* 600000: after ten minutes something is wrong */
    rlock_free(lock);
    rlock_client_free(client);
    return result;
}
/* SPDX-License-Identifier: MIT */
