/* rlock_tls.h - TLS for rlock.h by OpenSSL 1.1.1 or 3, with hiredis 1.0 or newer
 * SPDX-License-Identifier: MIT
 *
 *     char why[128];
 *     rlock_tls_options options = {.ca_file = "/etc/locks/ca.crt"};
 *     rlock_tls *tls = rlock_tls_new(&options, why, sizeof why);      NULL: `why` says why
 *     config.host = "locks.example.com";
 *     config.tls = tls;
 *     ...
 *     rlock_tls_free(tls);                                            after the clients
 *
 * Everything here is static inline: include it in any file, link with -lhiredis_ssl -lhiredis -lssl
 * -lcrypto. The macros RLOCK_HIREDIS_ASYNC and RLOCK_HIREDIS_SSL name the headers of hiredis that
 * are not <hiredis/async.h> and <hiredis/hiredis_ssl.h>. The server's certificate is always
 * verified: that it leads to one of the authorities, is not out of date, and is for config.host,
 * name or address. No option turns that off. TLS 1.2 is the oldest version spoken. A program has to
 * ignore SIGPIPE with TLS as without.
 *
 * An rlock_tls may serve any number of clients, on any threads. It belongs to you. What stands for
 * one connection belongs to its context and ends with it.
 */

#ifndef RLOCK_TLS_H
#define RLOCK_TLS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#ifndef __HIREDIS_ASYNC_H /* else it is included already, from wherever it is */
#ifndef RLOCK_HIREDIS_ASYNC
/* hiredis' header async.h, unless you name it */
#define RLOCK_HIREDIS_ASYNC <hiredis/async.h>
#endif
#include RLOCK_HIREDIS_ASYNC
#endif

#if HIREDIS_MAJOR < 1
#error "TLS needs hiredis 1.0: else use stunnel and config.unix_path, or config.connect"
#endif

#ifndef __HIREDIS_SSL_H
#ifndef RLOCK_HIREDIS_SSL
/* the same of its header hiredis_ssl.h */
#define RLOCK_HIREDIS_SSL <hiredis/hiredis_ssl.h>
#endif
#include RLOCK_HIREDIS_SSL
#endif
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "rlock.h"

RLOCK__C_CASTS_BEGIN

#define RLOCK__TLS_NAME 256 /* bytes of a host's name, with the NUL */

/* What rlock_tls_new reads, when it is called. Zero is the default of each. Files are PEM. */
typedef struct rlock_tls_options {
    /* The authorities one of which has signed the server's certificate: a file, a folder made by
     * `openssl rehash`, or both. Default: the system's. */
    const char *ca_file, *ca_dir;

    /* The client's certificate, with those that lead from it to its authority, and its key, which
     * has no password. Default: none; the key is in cert_file. */
    const char *cert_file, *key_file;

    /* What the certificate must be for, and what SNI asks for. Default: config.host, or the host
     * that a Sentinel or a node of a cluster names. Needed where that is an address and the
     * certificate has names only, and where the Sentinels are asked without TLS: an attacker in
     * between could name a host of its own, and would be sent the password. */
    const char *server_name;

    /* An SSL_CTX of your own instead of the files, with ciphers, versions and engines as you set
     * them. It is shared, so do not change it any more; free yours when you like. */
    SSL_CTX *ssl_ctx;
} rlock_tls_options;

/* The hooks come first: a pointer to them is one to this. */
typedef struct rlock__tls {
    rlock_tls hooks;
    SSL_CTX *ssl_ctx;
    char server_name[RLOCK__TLS_NAME]; /* empty: the host's */
} rlock__tls;

static inline const char *rlock__tls_reason(unsigned long error) {
    const char *words = ERR_GET_LIB(error) == ERR_LIB_SYS ? strerror(ERR_GET_REASON(error))
                                                          : ERR_reason_error_string(error);
    return words ? words : "unknown error";
}

/* Copies a host without the dot of a name from the root and the scope of an address: neither stands
 * in a certificate. False if it is empty, which OpenSSL would take for any, or too long. */
static inline bool rlock__tls_name(char *out, const char *host) {
    size_t len = strcspn(host, "%");
    len -= len && host[len - 1] == '.';
    if (!len || len >= RLOCK__TLS_NAME) {
        return false;
    }
    memcpy(out, host, len);
    out[len] = 0;
    return true;
}

/* What the certificate must be for. SNI is only for names. */
static inline bool rlock__tls_expect(SSL *ssl, char *name) {
    SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* an SSL_CTX verifies nothing by default */
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1) {
        return true;
    }
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static inline void rlock__tls_forget(void *ssl) {
    SSL_free((SSL *)ssl);
}

static inline int rlock__tls_start(void *ctx, struct redisAsyncContext *ac, const char *host) {
    rlock__tls *tls = (rlock__tls *)ctx;
    const redisContextFuncs *plain = ac->c.funcs;
    char name[RLOCK__TLS_NAME];
    SSL *ssl = NULL;
    if (!rlock__tls_name(name, tls->server_name[0] ? tls->server_name : host) ||
        (ssl = SSL_new(tls->ssl_ctx)) == NULL || !rlock__tls_expect(ssl, name)) {
        SSL_free(ssl);
        return -1;
    }
    SSL_up_ref(ssl); /* for rlock__tls_why: hiredis frees the other reference */
    ac->c.privdata = ssl;
    ac->c.free_privdata = rlock__tls_forget;
    SSL_set_read_ahead(ssl, 0); /* what was read ahead, no event of the socket would tell of */
    if (redisInitiateSSL(&ac->c, ssl) != REDIS_OK) {
        ac->c.funcs = plain; /* before 1.3 it leaves its own without what they need */
        SSL_free(ssl);
        return -1;
    }
    return 0;
}

/* OpenSSL takes any old error of its thread for one of the call just made. */
static inline void rlock__tls_before(void *ctx) {
    (void)ctx;
    ERR_clear_error();
}

/* True if one side refused the other, which an operator has to mend: a certificate, the version.
 * Above 1000 are the alerts that the server sent; those below 40, and 80, are its own failures. */
static inline bool rlock__tls_refused(int reason) {
    int alert = reason - SSL_AD_REASON_OFFSET;
    return reason == SSL_R_CERTIFICATE_VERIFY_FAILED || reason == SSL_R_UNSUPPORTED_PROTOCOL ||
           (alert >= SSL_AD_HANDSHAKE_FAILURE && alert != SSL_AD_INTERNAL_ERROR);
}

static inline int rlock__tls_why(void *ctx, struct redisAsyncContext *ac, char *words,
                                 size_t room) {
    SSL *ssl = (SSL *)ac->c.privdata;
    unsigned long error = ac->c.err ? ERR_peek_last_error() : 0;
    int reason;
    (void)ctx;
    ERR_clear_error(); /* nor do ours stay for others */
    reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        snprintf(words, room, "the server's certificate is refused: %s",
                 X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
    } else if (error) {
        snprintf(words, room, "TLS: %s", rlock__tls_reason(error));
    } else if (ssl && !ac->c.err && !SSL_is_init_finished(ssl)) {
        snprintf(words, room, "no answer to the TLS handshake: is it the TLS port?");
    } else {
        return RLOCK_OK;
    }
    return rlock__tls_refused(reason) ? RLOCK_ERR_AUTH : RLOCK_ERR_CONN;
}

/* A key with a password is refused: OpenSSL would ask at the terminal, and wait. */
static inline int rlock__tls_no_password(char *out, int room, int writing, void *user) {
    (void)out;
    (void)room;
    (void)writing;
    (void)user;
    return 0;
}

/* Reads the files; *what: the one that it is about. */
static inline bool rlock__tls_load(SSL_CTX *ctx, const rlock_tls_options *options,
                                   const char **what) {
    const char *file = options->ca_file, *dir = options->ca_dir;
    SSL_CTX_set_default_passwd_cb(ctx, rlock__tls_no_password);
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    *what = file ? file : dir ? dir : "the system's certificates";
    if ((file || dir ? SSL_CTX_load_verify_locations(ctx, file, dir)
                     : SSL_CTX_set_default_verify_paths(ctx)) != 1) {
        return false;
    }
    *what = options->cert_file;
    if (*what && SSL_CTX_use_certificate_chain_file(ctx, *what) != 1) {
        return false;
    }
    *what = options->key_file ? options->key_file : options->cert_file;
    return !*what || (SSL_CTX_use_PrivateKey_file(ctx, *what, SSL_FILETYPE_PEM) == 1 &&
                      SSL_CTX_check_private_key(ctx) == 1);
}

/* Frees what rlock_tls_new made; no client may use it any more. NULL is allowed. */
static inline void rlock_tls_free(rlock_tls *tls) {
    if (tls) {
        SSL_CTX_free(((rlock__tls *)tls->ctx)->ssl_ctx);
        free(tls->ctx);
    }
}

/* Makes the hooks for config.tls. NULL: it cannot, and `words` says why in at most `room` bytes:
 * "ca.crt: No such file or directory". It reads files: call it before the loop runs. */
static inline rlock_tls *rlock_tls_new(const rlock_tls_options *options, char *words, size_t room) {
    rlock__tls *tls = (rlock__tls *)calloc(1, sizeof *tls);
    SSL_CTX *ctx = options->ssl_ctx;
    const char *what = options->server_name;
    bool good;
    if (!tls) {
        snprintf(words, room, "out of memory");
        return NULL;
    }
    ERR_clear_error();
    good = !what || rlock__tls_name(tls->server_name, what);
    if (good && ctx) {
        SSL_CTX_up_ref(ctx);
        tls->ssl_ctx = ctx;
    } else if (good) {
        what = "OpenSSL";
        tls->ssl_ctx = SSL_CTX_new(TLS_client_method());
        good = tls->ssl_ctx && rlock__tls_load(tls->ssl_ctx, options, &what);
    }
    if (!good) {
        snprintf(words, room, "%s: %s", what,
                 ERR_peek_error() ? rlock__tls_reason(ERR_peek_error()) : "not the name of a host");
        ERR_clear_error();
        SSL_CTX_free(tls->ssl_ctx);
        free(tls);
        return NULL;
    }
    tls->hooks.ctx = tls;
    tls->hooks.start = rlock__tls_start;
    tls->hooks.before = rlock__tls_before;
    tls->hooks.why = rlock__tls_why;
    tls->hooks.own_name = tls->server_name[0] != 0;
    return &tls->hooks;
}

RLOCK__C_CASTS_END

#endif /* RLOCK_TLS_H */

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
