/* rlock_resolve.h - names for rlock.h on any loop, by getaddrinfo on a thread
 * SPDX-License-Identifier: MIT
 *
 *     static rlock_lookup *lookups;
 *     static int my_resolve(void *state, rlock_name *name, const char *host) {
 *         return rlock_resolve(&lookups, my_watch, state, name, host);
 *     }
 *     ... and the hook `close` begins with rlock_resolve_forget(&lookups);
 *
 * That is all for a loop of your own. The adapters for libev, libevent and poll do it already.
 * It gives what the C library gives: the file hosts, search domains, nsswitch, IPv6 and IPv4. Each
 * lookup has a thread of its own, which takes no signals and ends with the answer, and a pipe,
 * which the loop watches by its own hook `watch`. Loop and thread share no memory, only the pipe:
 * if the client is freed meanwhile, the thread finds the other end closed. Such a thread stays
 * until getaddrinfo returns: do not unload a plugin with this code before that.
 *
 * Everything here is static inline. Link with -pthread. Define RLOCK_NO_THREADS to leave it out:
 * the adapters then have no hook `resolve`.
 */

#ifndef RLOCK_RESOLVE_H
#define RLOCK_RESOLVE_H

#include "rlock.h"

RLOCK__C_CASTS_BEGIN

#ifdef RLOCK_NO_THREADS

/* Whether names are resolved here: not with RLOCK_NO_THREADS. */
enum { RLOCK_RESOLVES = 0 };

typedef struct rlock_lookup rlock_lookup;

static inline int rlock_resolve(rlock_lookup **lookups,
                                int (*watch)(void *state, rlock_io *io, int fd, unsigned events),
                                void *state, rlock_name *name, const char *host) {
    (void)lookups, (void)watch, (void)state, (void)name, (void)host;
    return -1;
}

static inline void rlock_resolve_forget(rlock_lookup **lookups) {
    (void)lookups;
}

#else

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef AI_PASSIVE
#error "rlock_resolve.h needs POSIX: use -std=gnu99 or -D_POSIX_C_SOURCE=200809L"
#endif

enum { RLOCK_RESOLVES = 1 };
#define RLOCK_RESOLVE_MAX 8 /* at most this many addresses of a name are reported: the first */

typedef union rlock__lookup_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6; /* with the scope of an address of a link */
} rlock__lookup_address;

/* It goes through the pipe in one piece: POSIX promises that up to 512 bytes. */
typedef struct rlock__lookup_answer {
    unsigned count;
    rlock__lookup_address of[RLOCK_RESOLVE_MAX];
} rlock__lookup_answer;
typedef char rlock__lookup_answer_fits[sizeof(rlock__lookup_answer) <= 512 ? 1 : -1];

/* The thread's side of a lookup. The host stands behind it. */
typedef struct rlock__lookup_asked {
    int fd; /* the end to write to */
} rlock__lookup_asked;

/* A lookup: the loop's side of it. */
typedef struct rlock_lookup {
    rlock_io io; /* first: a pointer to it is one to the lookup */
    int fd;      /* the end to read from */
    rlock_name *name;
    int (*watch)(void *state, rlock_io *io, int fd, unsigned events);
    void *state;
    struct rlock_lookup *next, **link;
} rlock_lookup;

static inline void *rlock__lookup_thread(void *arg) {
    rlock__lookup_asked *asked = (rlock__lookup_asked *)arg;
    struct addrinfo hints, *found = NULL, *at;
    rlock__lookup_answer answer;
    memset(&answer, 0, sizeof answer);
    memset(&hints, 0, sizeof hints);
    /* Not AI_ADDRCONFIG: it does not count the loopback, so that glibc answers 127.0.0.1 for a name
     * that is ::1, where there is no other IPv6. Without it an address that cannot be reached is
     * reported too, behind those that can, and the connect to it fails at once. */
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM; /* else each address comes once for each kind of socket */
    if (getaddrinfo((const char *)(asked + 1), NULL, &hints, &found) == 0) {
        for (at = found; at != NULL && answer.count < RLOCK_RESOLVE_MAX; at = at->ai_next) {
            if (at->ai_family == AF_INET || at->ai_family == AF_INET6) {
                memcpy(&answer.of[answer.count++], at->ai_addr, at->ai_addrlen);
            }
        }
        freeaddrinfo(found);
    }
    if (write(asked->fd, &answer, sizeof answer) < 0) {
        /* it has no reader any more; SIGPIPE is blocked */
    }
    close(asked->fd);
    free(asked);
    return NULL;
}

static inline void rlock__lookup_end(rlock_lookup *lookup) {
    *lookup->link = lookup->next;
    if (lookup->next != NULL) {
        lookup->next->link = lookup->link;
    }
    lookup->watch(lookup->state, &lookup->io, lookup->fd, 0);
    close(lookup->fd);
    free(lookup);
}

/* The pipe can be read. This is a dispatch of the client's by now, so the name hears at once. */
static inline void rlock__lookup_ready(rlock_io *io, unsigned events) {
    rlock_lookup *lookup = (rlock_lookup *)(void *)io;
    rlock_name *name = lookup->name;
    rlock__lookup_answer answer;
    const struct sockaddr *all[RLOCK_RESOLVE_MAX];
    unsigned i;
    ssize_t got = read(lookup->fd, &answer, sizeof answer);
    (void)events;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return; /* called too early */
    }
    if (got != (ssize_t)sizeof answer) {
        answer.count = 0;
    }
    for (i = 0; i < answer.count; i++) {
        all[i] = &answer.of[i].any;
    }
    rlock__lookup_end(lookup); /* before the call: it may ask again, or free the client */
    name->resolved(name, all, answer.count);
}

/* Asks in the background; the addresses are reported in a dispatch of the descriptor that is
 * watched. -1: no memory, descriptor or thread. `lookups` is NULL at first, and one for each
 * `state`. */
static inline int rlock_resolve(rlock_lookup **lookups,
                                int (*watch)(void *state, rlock_io *io, int fd, unsigned events),
                                void *state, rlock_name *name, const char *host) {
    rlock_lookup *lookup = (rlock_lookup *)calloc(1, sizeof *lookup);
    rlock__lookup_asked *asked = (rlock__lookup_asked *)malloc(sizeof *asked + strlen(host) + 1);
    sigset_t every, before;
    pthread_t thread;
    int ends[2];
    if (lookup == NULL || asked == NULL || pipe(ends) != 0) {
        free(lookup);
        free(asked);
        return -1;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    asked->fd = ends[1];
    memcpy(asked + 1, host, strlen(host) + 1);
    lookup->io.client = name->client;
    lookup->io.ready = rlock__lookup_ready;
    lookup->io.watched = RLOCK_IO_READ;
    lookup->fd = ends[0];
    lookup->name = name;
    lookup->watch = watch;
    lookup->state = state;
    lookup->next = *lookups;
    lookup->link = lookups;
    if (lookup->next != NULL) {
        lookup->next->link = &lookup->next;
    }
    *lookups = lookup;
    if (watch(state, &lookup->io, ends[0], RLOCK_IO_READ) == 0) {
        int failed;
        sigfillset(&every); /* the signals of the program are for its own threads */
        pthread_sigmask(SIG_SETMASK, &every, &before);
        failed = pthread_create(&thread, NULL, rlock__lookup_thread, asked);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (failed == 0) {
            pthread_detach(thread);
            return 0;
        }
    }
    rlock__lookup_end(lookup);
    close(ends[1]);
    free(asked);
    return -1;
}

/* Forgets what is still asked: no name hears of it. Waits for nothing. */
static inline void rlock_resolve_forget(rlock_lookup **lookups) {
    while (*lookups != NULL) {
        rlock__lookup_end(*lookups);
    }
}

#endif /* RLOCK_NO_THREADS */

RLOCK__C_CASTS_END

#endif /* RLOCK_RESOLVE_H */

/*
 * Copyright (c) 2026 the rlock authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
