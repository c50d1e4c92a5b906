/* What the names that end in .test stand for, in the place of the C library's resolver: part of
 * cluster.c. */
#ifndef TESTS_CLUSTER_NAMES_H
#define TESTS_CLUSTER_NAMES_H

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 4

static struct {
    pthread_mutex_t lock; /* it is asked on a thread of its own */
    const char *addresses[NAMES_MAX];
    int count, asked;
} names = {PTHREAD_MUTEX_INITIALIZER, {NULL}, 0, 0};

static char names_mark; /* what stands as the name of those made here */

/* From now on a name stands for one address, or for two of which the second may be NULL. */
static inline void names_are(const char *first, const char *second) {
    pthread_mutex_lock(&names.lock);
    names.addresses[0] = first;
    names.addresses[1] = second;
    names.count = second != NULL ? 2 : 1;
    names.asked = 0;
    pthread_mutex_unlock(&names.lock);
}

static inline int names_asked(void) {
    int asked;

    pthread_mutex_lock(&names.lock);
    asked = names.asked;
    pthread_mutex_unlock(&names.lock);
    return asked;
}

/* These two take the place of the C library's, also for hiredis. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    size_t len = node != NULL ? strlen(node) : 0;
    int i;

    if (len < 5 || strcmp(node + len - 5, ".test") != 0) {
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "getaddrinfo");
        return real(node, service, hints, found);
    }
    pthread_mutex_lock(&names.lock);
    names.asked++;
    for (i = 0; i < names.count; i++) {
        struct addrinfo *one = (struct addrinfo *)calloc(1, sizeof *one);
        struct sockaddr_in *in = (struct sockaddr_in *)calloc(1, sizeof *in);

        in->sin_family = AF_INET;
        inet_pton(AF_INET, names.addresses[i], &in->sin_addr);
        one->ai_canonname = &names_mark;
        one->ai_family = AF_INET;
        one->ai_socktype = SOCK_STREAM;
        one->ai_addr = (struct sockaddr *)(void *)in;
        one->ai_addrlen = sizeof *in;
        *found = one;
        found = &one->ai_next;
    }
    pthread_mutex_unlock(&names.lock);
    return names.count > 0 ? 0 : EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *found) {
    void (*real)(struct addrinfo *);

    if (found == NULL || found->ai_canonname != &names_mark) {
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "freeaddrinfo");
        real(found);
        return;
    }
    while (found != NULL) {
        struct addrinfo *next = found->ai_next;

        free(found->ai_addr);
        free(found);
        found = next;
    }
}

#endif
