/* Does it matter, seen in a browser? A shop sells one stock, which is kept in Redis, by several
 * worker processes on libevent. Its page starts rushes of buyers with and without the lock, freezes
 * and kills workers, stops Redis, and shows live what comes of it: see README.md.
 *
 *     shop [--port N] [--listen ADDRESS] [--workers N] [--stock N] [--buyers N] [--crowd N]
 *          [--think MS] [--fair]
 *
 * A port of 0 is any that is free; crowd is how many of the buyers are in the shop at a time. With
 * --fair the lock keeps an order across the workers. The shop starts a Redis server of its own,
 * unless RLOCK_URL names one. */
#define _GNU_SOURCE 1 /* getopt_long, MAP_ANONYMOUS */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include "shop.h"

settings shop = {4, 500, 2000, 40, 15, 0, "127.0.0.1", false};
struct event_base *base;
struct board *board;

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void on_end(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    *(bool *)user = true;
    event_base_loopbreak(base);
}

static int usage(void) {
    fprintf(stderr, "usage: shop [--port N] [--listen ADDRESS] [--workers N] [--stock N] "
                    "[--buyers N] [--crowd N] [--think MS] [--fair]\n");
    return 2;
}

static bool read_number(const char *text, int most, int *to) {
    char *end;
    long number = strtol(text, &end, 10);

    if (end == text || *end != '\0' || number < 0 || number > most) {
        return false;
    }
    *to = (int)number;
    return true;
}

static bool read_options(int argc, char **argv) {
    static const struct option known[] = {{"port", 1, NULL, 'p'},    {"listen", 1, NULL, 'l'},
                                          {"workers", 1, NULL, 'w'}, {"stock", 1, NULL, 's'},
                                          {"buyers", 1, NULL, 'b'},  {"crowd", 1, NULL, 'c'},
                                          {"think", 1, NULL, 't'},   {"fair", 0, NULL, 'f'},
                                          {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    bool good = true;
    int name;

    while (good && (name = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (name) {
        case 'p': good = read_number(optarg, 65535, &shop.port); break;
        case 'l': shop.address = optarg; break;
        case 'w': good = read_number(optarg, WORKERS_MAX, &shop.workers); break;
        case 's': good = read_number(optarg, 1000000000, &shop.stock); break;
        case 'b': good = read_number(optarg, 1000000000, &shop.buyers); break;
        case 'c': good = read_number(optarg, 10000, &shop.crowd); break;
        case 't': good = read_number(optarg, 60000, &shop.think_ms); break;
        case 'f': shop.fair = true; break;
        default: good = false;
        }
    }
    return good && optind == argc && shop.workers > 0 && shop.stock > 0 && shop.buyers > 0 &&
           shop.crowd > 0;
}

/* True if nobody has said where the data is: the locks may be in another engine. */
static bool needs_server(void) {
    static const char *const others[] = {"postgres", "zookeeper:", "mysql:", "mariadb:"};
    const char *url = getenv("RLOCK_URL");
    bool other = url == NULL || *url == '\0';
    size_t i;

    for (i = 0; i < sizeof others / sizeof others[0]; i++) {
        other = other || strncmp(url, others[i], strlen(others[i])) == 0;
    }
    return other && getenv("RLOCK_DATA") == NULL;
}

static bool open_shop(void) {
    void *shared;

    if (needs_server() && !server_start()) {
        return false;
    }
    shared = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("shop: mmap");
        return false;
    }
    board = shared;
    return true;
}

static bool run(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct event *ends[3];
    bool asked_to_end = false;
    int i;

    base = event_base_new();
    for (i = 0; i < 3; i++) {
        struct sigaction before;
        ends[i] = evsignal_new(base, numbers[i], on_end, &asked_to_end);
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            event_add(ends[i], NULL); /* nohup asked that one be ignored */
        }
    }
    if (open_shop() && front_start() && crew_start()) {
        bool v6 = strchr(shop.address, ':') != NULL;
        printf("The shop is open: http://%s%s%s:%d/\nCtrl-C closes it.\n", v6 ? "[" : "",
               shop.address, v6 ? "]" : "", shop.port);
        fflush(stdout);
        event_base_dispatch(base);
    }
    sale_end();
    front_end();
    crew_end();
    for (i = 0; i < 3; i++) {
        event_free(ends[i]);
    }
    event_base_free(base);
    return asked_to_end;
}

int main(int argc, char **argv) {
    struct rlimit files;
    bool good;

    if (!read_options(argc, argv)) {
        return usage();
    }
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > FILES_MAX) {
        files.rlim_cur = FILES_MAX; /* a new worker closes all that the front has */
        setrlimit(RLIMIT_NOFILE, &files);
    }
    good = run();
    server_end();
    return good ? 0 : 1;
}

/* SPDX-License-Identifier: MIT */
