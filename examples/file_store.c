/* Can I keep the locks somewhere else? Yes, in a store of your own: in files, see file_store.h. Two
 * processes add to a number in a file, which they read, think about and write back. A third one is
 * killed while it holds the lock; its lease ends by itself. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#define RLOCK_NO_REDIS
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_poll.h"
#include "file_store.h"

#define PROCESSES 2
#define TURNS 100

static char folder[] = "/tmp/rlock-files-XXXXXX", number_path[64];
static rlock_poll *loop;
static rlock *lock;
static rlock_store *store;
static int turns, dies;

static void must(bool good, const char *else_say) {
    if (!good) {
        fprintf(stderr, "file_store: %s\n", else_say);
        exit(1);
    }
}

static int read_number(void) {
    FILE *file = fopen(number_path, "r");
    int number = 0;
    if (file != NULL) {
        must(fscanf(file, "%d", &number) == 1, "no number");
        fclose(file);
    }
    return number;
}

static void write_number(int number) {
    FILE *file = fopen(number_path, "w");
    must(file != NULL && fprintf(file, "%d\n", number) > 0 && fclose(file) == 0, "not written");
}

static void on_acquired(rlock *held, const rlock_event *event, void *user);

static void on_released(rlock *free_now, const rlock_event *event, void *user) {
    (void)user;
    must(event->status == RLOCK_OK, rlock_strerror(event->status));
    if (++turns == TURNS) {
        rlock_poll_stop(loop);
    } else {
        rlock_acquire(free_now, RLOCK_FOREVER, 0, on_acquired, NULL);
    }
}

static void on_acquired(rlock *held, const rlock_event *event, void *user) {
    const struct timespec moment = {0, 100000};
    int number;
    (void)user;
    must(event->status == RLOCK_OK, rlock_strerror(event->status));
    if (dies) {
        printf("one holds the lock for 500 ms, and is killed\n");
        fflush(stdout);
        raise(SIGKILL);
    }
    number = read_number();
    nanosleep(&moment, NULL); /* the other one would read the same, without the lock */
    write_number(number + 1);
    rlock_release(held, on_released, NULL);
}

static int process(void) {
    rlock_config config = {0};
    rlock_options options = {0};
    rlock_client *client;
    loop = rlock_poll_new();
    must(loop != NULL && file_store_new(&store, folder) == RLOCK_OK, "out of memory");
    config.loop = rlock_poll_loop(loop);
    config.store = store; /* this line is the difference */
    options.key = "the number/of orders";
    must(rlock_client_new(&client, &config) == RLOCK_OK, "no client");
    must(rlock_new(&lock, client, &options) == RLOCK_OK, "no handle");
    rlock_acquire(lock, RLOCK_FOREVER, dies ? 500 : 0, on_acquired, NULL);
    rlock_poll_run(loop);
    rlock_free(lock);
    rlock_client_free(client);
    file_store_free(store);
    rlock_poll_free(loop);
    return 0;
}

int main(void) {
    char command[128];
    int i, status, good = 0;
    must(mkdtemp(folder) != NULL, "no folder");
    snprintf(number_path, sizeof number_path, "%s/number", folder);
    for (i = 0; i <= PROCESSES; i++) {
        dies = i == 0;
        if (fork() == 0) {
            exit(process());
        }
        if (i == 0) {
            wait(&status); /* its record is what it leaves */
        }
    }
    for (i = 0; i < PROCESSES; i++) {
        wait(&status);
        good += status == 0;
    }
    printf("%d of %d others are done, the number is %d of %d\n", good, PROCESSES, read_number(),
           PROCESSES * TURNS);
    fflush(stdout);
    snprintf(command, sizeof command, "cut -d' ' -f1-3 %s/[0-9a-f][0-9a-f]*; rm -r %s", folder,
             folder);
    return system(command);
}

/* SPDX-License-Identifier: MIT */
