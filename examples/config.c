/* How do many read while nobody writes? Three processes read a configuration that stands in two
 * places, one changes it in two steps, and then steps down to reading: nobody else writes before it
 * has read what it wrote, but readers are beside it. */
#define _GNU_SOURCE 1 /* MAP_ANONYMOUS */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"

#define READERS 3
#define CHANGES 20

/* Seen by all processes; it could as well be two files. */
static struct {
    volatile int host, port; /* of the same number, or somebody reads half a change */
    volatile int changes, torn, beside_reader, beside_writer;
    int inside;
} * config;
static rlock *to_read, *to_write;
static bool writer;
static int seen_host;

static void must(bool good, const char *else_say) {
    if (!good) {
        fprintf(stderr, "config: %s\n", else_say);
        exit(1);
    }
}

static void must_be_ok(int status) {
    must(status == RLOCK_OK, rlock_strerror(status));
}

static void ask_for(rlock *lock, rlock_callback *next) {
    must(rlock_acquire(lock, 20000, 0, next, NULL) == RLOCK_OK, "cannot acquire");
}

static void on_read(rlock *lock, const rlock_event *event, void *user);
static void on_write(rlock *lock, const rlock_event *event, void *user);

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    must(event->status == RLOCK_OK, rlock_strerror(event->status));
    config->changes += writer;
    if (config->changes < CHANGES) {
        ask_for(writer ? to_write : to_read, writer ? on_write : on_read);
    } else {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
}

static void let_go(rlock *lock, rlock_callback *next) {
    must(rlock_release(lock, next, NULL) == RLOCK_OK, "the lock was lost");
}

static void read_port(int revents, void *user) {
    (void)revents;
    (void)user;
    __sync_fetch_and_add(&config->torn, seen_host != config->port);
    __sync_fetch_and_sub(&config->inside, 1);
    let_go(to_read, on_released);
}

static void on_read(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    must(event->status == RLOCK_OK, rlock_strerror(event->status));
    __sync_fetch_and_add(&config->beside_reader, __sync_fetch_and_add(&config->inside, 1) > 0);
    seen_host = config->host;
    ev_once(EV_DEFAULT, -1, 0, 0.004, read_port, NULL);
}

static void look_at_it(int revents, void *user) {
    (void)revents;
    (void)user;
    config->beside_writer += config->inside;
    config->torn += config->host != config->changes + 1 || config->port != config->changes + 1;
    let_go(to_read, on_released);
}

static void on_stepped_down(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    must(event->status == RLOCK_OK, rlock_strerror(event->status));
    let_go(to_write, NULL); /* from here on others read too; nobody has written in between */
    ev_once(EV_DEFAULT, -1, 0, 0.008, look_at_it, NULL);
}

static void write_port(int revents, void *user) {
    (void)revents;
    (void)user;
    config->port = config->changes + 1;
    ask_for(to_read, on_stepped_down); /* the same owner: granted beside its own write lock */
}

static void on_write(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    (void)user;
    must(event->status == RLOCK_OK, rlock_strerror(event->status));
    config->host = config->changes + 1;
    ev_once(EV_DEFAULT, -1, 0, 0.004, write_port, NULL);
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
        fprintf(stderr, "%s\n", line);
    }
}

static int take_part(void) {
    const char *url = getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    rlock_config settings = {.url = url, .loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    rlock_options options = {.key = "config", .owner = 1}; /* who steps down: any number but 0 */
    rlock_client *client;

    alarm(30); /* should the parent be gone */
    signal(SIGPIPE, SIG_IGN);
    must_be_ok(rlock_client_new(&client, &settings));
    options.kind = RLOCK_KIND_READ;
    must_be_ok(rlock_new(&to_read, client, &options));
    options.kind = RLOCK_KIND_WRITE;
    must_be_ok(rlock_new(&to_write, client, &options));
    ask_for(writer ? to_write : to_read, writer ? on_write : on_read);
    ev_run(EV_DEFAULT, 0);
    rlock_free(to_read);
    rlock_free(to_write);
    rlock_client_free(client);
    return 0;
}

int main(void) {
    int i, status, failed = 0;

    config = mmap(NULL, sizeof *config, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(config != MAP_FAILED, "out of memory");
    for (i = 0; i <= READERS; i++) {
        if (fork() == 0) {
            writer = i == READERS;
            return take_part();
        }
    }
    while (wait(&status) > 0) {
        failed |= status;
    }
    printf(
        "%d changes; a reader together with a reader: %s, with the writer that stepped down: %s\n",
        config->changes, config->beside_reader > 0 ? "yes" : "never",
        config->beside_writer > 0 ? "yes" : "never");
    printf("half a change was read %d times\n", config->torn);
    return failed != 0 || config->torn != 0;
}

/* SPDX-License-Identifier: MIT */
