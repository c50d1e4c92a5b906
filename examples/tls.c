/* How do I reach a server that speaks TLS? RLOCK_URL says where it is, and that it is to be TLS.
 * The arguments are the file with the authority that signed its certificate, and, if the server
 * asks for them, the files with the client's certificate and its key. docs/set-up-the-server.md
 * says how to make them.
 *
 *     cc -I. -Iadapters examples/tls.c -o tls -lev -lhiredis_ssl -lhiredis -lssl -lcrypto -pthread
 *     RLOCK_URL=rediss://locks.example.com:6379 ./tls ca.crt
 */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"
#include "rlock_tls.h"

static int failed = 1; /* the exit status: 0 after a release that succeeded */

static void on_log(void *user, int level, const char *line) {
    (void)user;
    (void)level;
    fprintf(stderr, "log: %s\n", line);
}

static void on_released(rlock *lock, const rlock_event *event, void *loop) {
    printf("released %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status));
    failed = event->status != RLOCK_OK;
    ev_break(loop, EVBREAK_ALL);
}

static void on_acquired(rlock *lock, const rlock_event *event, void *loop) {
    if (event->status == RLOCK_OK) {
        printf("acquired %s\n", rlock_key(lock, NULL)); /* here the work would be */
        if (rlock_release(lock, on_released, loop) == RLOCK_OK) {
            return;
        }
    } else {
        /* RLOCK_ERR_AUTH: one side refused the other's certificate; the text says why */
        printf("cannot acquire %s: %s: %s\n", rlock_key(lock, NULL), rlock_strerror(event->status),
               event->text ? event->text : "nothing more is known");
    }
    ev_break(loop, EVBREAK_ALL);
}

int main(int argc, char **argv) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT), .log = on_log};
    rlock_options options = {.key = "stock:42"};
    rlock_tls_options files = {0};
    rlock_client *client;
    rlock_tls *tls;
    rlock *lock;
    char why[256];
    int status;

    config.url = getenv("RLOCK_URL"); /* its host is what the certificate has to be for */
    if (!config.url || (argc != 2 && argc != 4)) {
        fprintf(stderr, "usage: RLOCK_URL=rediss://HOST:PORT tls AUTHORITY [CERTIFICATE KEY]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN); /* a closed socket is an error, not the end of the program */
    files.ca_file = argv[1];
    files.cert_file = argc == 4 ? argv[2] : NULL;
    files.key_file = argc == 4 ? argv[3] : NULL;
    tls = rlock_tls_new(&files, why, sizeof why);
    if (tls == NULL) {
        fprintf(stderr, "%s\n", why); /* "ca.crt: No such file or directory" */
        return 2;
    }
    config.tls = tls; /* how: a URL that begins with redis:// would not be encrypted */
    if ((status = rlock_client_new(&client, &config)) != RLOCK_OK ||
        (status = rlock_new(&lock, client, &options)) != RLOCK_OK ||
        (status = rlock_acquire(lock, 5000, 0, on_acquired, EV_DEFAULT)) != RLOCK_OK) {
        fprintf(stderr, "cannot begin: %s\n", rlock_strerror(status));
        return 2;
    }
    ev_run(EV_DEFAULT, 0);
    rlock_free(lock);
    rlock_client_free(client);
    rlock_tls_free(tls); /* after its clients */
    return failed;
}

/* SPDX-License-Identifier: MIT */
