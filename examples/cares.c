/* My program wants names, and no thread. How do I use another resolver? Here c-ares, on libev:
 *
 *     cares redis://redis
 *
 * takes a lock on the server of that name. The adapter's hooks stay, but for `resolve` and `close`.
 * c-ares reads the file hosts and asks name servers, and nothing else of nsswitch.conf. */
#define RLOCK_NO_THREADS
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"
#include <ares.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOCKETS_MAX 16
#define ADDRESSES_MAX 8

/* One question. It is told from the timer, never from inside `resolve`: c-ares answers at once what
 * stands in the file hosts. */
typedef struct lookup {
    rlock_name *name; /* NULL = its client was closed */
    void *state;      /* of the adapter's hooks */
    struct ares_addrinfo *found;
    bool answered;
    struct lookup *next;
} lookup;

static ares_channel channel;
static lookup *lookups;
static ev_io sockets[SOCKETS_MAX];
static ev_timer timer; /* c-ares wants a call, or an answer is to be told */
static rlock_loop adapter;

static void plan(void) {
    struct timeval wait = {0, 0}, *left = ares_timeout(channel, NULL, &wait);
    const lookup *l;
    for (l = lookups; l != NULL; l = l->next) {
        if (l->answered) {
            left = &wait;
            wait.tv_sec = wait.tv_usec = 0;
        }
    }
    ev_timer_stop(EV_DEFAULT, &timer);
    if (left != NULL) {
        ev_timer_set(&timer, (double)left->tv_sec + (double)left->tv_usec * 1e-6, 0.);
        ev_timer_start(EV_DEFAULT, &timer);
    }
}

static void on_socket(struct ev_loop *loop, ev_io *io, int events) {
    (void)loop;
    ares_process_fd(channel, events & EV_READ ? io->fd : ARES_SOCKET_BAD,
                    events & EV_WRITE ? io->fd : ARES_SOCKET_BAD);
    plan();
}

/* c-ares says what to watch. */
static void on_socket_state(void *data, ares_socket_t fd, int readable, int writable) {
    int i, free_one = -1;
    (void)data;
    for (i = 0; i < SOCKETS_MAX && !(ev_is_active(&sockets[i]) && sockets[i].fd == fd); i++) {
        free_one = ev_is_active(&sockets[i]) ? free_one : i;
    }
    i = i < SOCKETS_MAX ? i : free_one;
    if (i >= 0) { /* else the question ends by its timeout */
        ev_io_stop(EV_DEFAULT, &sockets[i]);
        ev_io_init(&sockets[i], on_socket, fd,
                   (readable ? EV_READ : 0) | (writable ? EV_WRITE : 0));
        if (readable || writable) {
            ev_io_start(EV_DEFAULT, &sockets[i]);
        }
    }
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *found) {
    lookup *l = arg;
    (void)timeouts;
    l->found = status == ARES_SUCCESS ? found : NULL;
    l->answered = true; /* plan() comes behind every call of c-ares */
}

static void tell(lookup **link) {
    const struct sockaddr *all[ADDRESSES_MAX];
    lookup *l = *link;
    struct ares_addrinfo_node *at = l->found != NULL ? l->found->nodes : NULL;
    unsigned count = 0;
    *link = l->next; /* first: what is told may ask anew, or close a client */
    for (; at != NULL && count < ADDRESSES_MAX; at = at->ai_next) {
        all[count++] = at->ai_addr;
    }
    if (l->name != NULL) {
        rlock_on_resolved_all(l->name, all, count);
    }
    ares_freeaddrinfo(l->found);
    free(l);
}

static void on_timer(struct ev_loop *loop, ev_timer *t, int events) {
    lookup **link = &lookups;
    (void)loop, (void)t, (void)events;
    ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    while (*link != NULL) {
        if ((*link)->answered) {
            tell(link);
            link = &lookups;
        } else {
            link = &(*link)->next;
        }
    }
    plan();
}

static int hook_resolve(void *state, rlock_name *name, const char *host) {
    struct ares_addrinfo_hints hints = {0, AF_UNSPEC, SOCK_STREAM, 0};
    lookup *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return -1;
    }
    l->name = name;
    l->state = state;
    l->next = lookups;
    lookups = l;
    ares_getaddrinfo(channel, host, NULL, &hints, on_answer, l);
    plan();
    return 0;
}

static void hook_close(void *state) {
    lookup *l;
    for (l = lookups; l != NULL; l = l->next) {
        l->name = l->state == state ? NULL : l->name;
    }
    adapter.close(state);
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    if (level <= RLOCK_LOG_WARNING) {
        fprintf(stderr, "log: %s\n", line);
    }
}

static void on_acquired(rlock *lock, const rlock_event *event, void *failed) {
    printf("acquired %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
    *(int *)failed = event->status != RLOCK_OK;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

int main(int argc, char **argv) {
    struct ares_options how = {.sock_state_cb = on_socket_state};
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT)};
    rlock_options options = {.key = "cares"};
    rlock_client *client;
    rlock *lock;
    int failed = 1;

    signal(SIGPIPE, SIG_IGN);
    ev_timer_init(&timer, on_timer, 0., 0.);
    adapter = config.loop;
    config.loop.resolve = hook_resolve;
    config.loop.close = hook_close;
    config.url = argc > 1 ? argv[1] : getenv("RLOCK_URL");
    config.log = on_log;
    if (ares_init_options(&channel, &how, ARES_OPT_SOCK_STATE_CB) != ARES_SUCCESS ||
        rlock_client_new(&client, &config) != RLOCK_OK ||
        rlock_new(&lock, client, &options) != RLOCK_OK ||
        rlock_acquire(lock, 5000, 0, on_acquired, &failed) != RLOCK_OK) {
        return 1;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock); /* which also lets the lock go */
    rlock_client_free(client);
    ares_destroy(channel); /* answers what is still asked */
    while (lookups != NULL) {
        tell(&lookups);
    }
    return failed;
}

/* SPDX-License-Identifier: MIT */
