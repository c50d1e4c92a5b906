/* tls.c - TLS to a real server: what works, and what each thing that is wrong is reported as
 *
 * One server listens on a TLS port, on a plain port and on a Unix socket. What it shows and asks
 * for is changed through the socket, which holds for connections that are made after that.
 */
#include <hiredis/async.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

static bool memory_is_out;

static void *scarce(size_t count, size_t size) {
    return memory_is_out ? NULL : calloc(count, size);
}

#define calloc scarce
#include "rlock_tls.h"
#undef calloc

#include "kit.h"
#include "shard.h"
#include "tls_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)
#define SAME(a, b) assert_int_equal(a, b)
#define IN(text, part) assert_non_null(strstr(text, part))
#define LARGE 300000 /* bytes: 19 records */
#define MANY 1000

static struct server server;
static int tls_port;
static rlock_tls *made[8]; /* freed behind the clients */
static int listener = -1;

/* What the server shows and asks for. */
static void server_shows(const char *certificate, const char *asks) {
    char crt[32], key[32];

    snprintf(crt, sizeof crt, "%s.crt", certificate);
    snprintf(key, sizeof key, "%s.key", certificate);
    tell(ask(&server, "CONFIG SET tls-cert-file %s tls-key-file %s tls-auth-clients %s",
             files_path(crt), files_path(key), asks));
}

static rlock_tls *make(const rlock_tls_options *options) {
    char why[128] = "";
    int i = 0;

    while (made[i] != NULL) {
        i++;
    }
    made[i] = rlock_tls_new(options, why, sizeof why);
    if (made[i] == NULL) {
        fprintf(stderr, "rlock_tls_new: %s\n", why);
    }
    assert_non_null(made[i]);
    return made[i];
}

static rlock_tls_options by_ca(void) {
    rlock_tls_options options;

    memset(&options, 0, sizeof options);
    options.ca_file = files_path("ca.crt");
    return options;
}

static rlock_config config_of(const char *host, const rlock_tls_options *options) {
    rlock_config config = kit_config(&server);

    config.unix_path = NULL;
    config.host = host;
    config.port = tls_port;
    config.tls = make(options);
    return config;
}

/* A client that is as it should be, but for these options; NULL: for nothing. */
static rlock_client *client_of(const char *host, const rlock_tls_options *options) {
    rlock_tls_options usual = by_ca();
    rlock_config config = config_of(host, options != NULL ? options : &usual);
    rlock_client *client = kit_client(&config);

    assert_non_null(client);
    return client;
}

/* How many connections the server has on its TLS port. */
static int encrypted(void) {
    char port[24];
    const char *at = str(ask(&server, "CLIENT LIST"));
    int count = 0;

    snprintf(port, sizeof port, " laddr=127.0.0.1:%d ", tls_port);
    while ((at = strstr(at, port)) != NULL) {
        at++;
        count++;
    }
    return count;
}

static int nothing_encrypted(void *arg) {
    (void)arg;
    return encrypted() == 0;
}

/* One acquire that fails with this status and says this. */
static void refused_as(rlock_client *client, int status, const char *text) {
    struct owner *o = owner_new(client, "refused");

    SAME(owner_acquire(o, RLOCK_FOREVER, 0), status);
    if (strstr(o->text[RLOCK_ACQUIRED], text) == NULL) {
        fprintf(stderr, "it says: %s\n", o->text[RLOCK_ACQUIRED]);
    }
    IN(o->text[RLOCK_ACQUIRED], text);
}

static int log_says(void *text) {
    return strstr(kit_log_text, (const char *)text) != NULL;
}

/* A waiter waits on, and the log says this. */
static void down_as(rlock_client *client, const char *text) {
    struct owner *o = owner_new(client, "down");

    SAME(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    if (!kit_until(log_says, (void *)(uintptr_t)text, 10000)) {
        fprintf(stderr, "it says: %s\n", kit_log_text);
        fail();
    }
    SAME(o->seen[RLOCK_ACQUIRED], 0);
    SAME(rlock_cancel(o->lock), RLOCK_OK);
    SAME(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_CANCELED);
}

static void works_at(const struct server *at, rlock_client *client, const char *key) {
    struct owner *o = owner_new(client, key);

    SAME(owner_acquire(o, 5000, 0), RLOCK_OK);
    assert_true(is_token(str(ask(at, "GET %s", key))));
    SAME(owner_release(o), RLOCK_OK);
    SAME(num(ask(at, "EXISTS %s", key)), 0);
}

static void works(rlock_client *client, const char *key) {
    works_at(&server, client, key);
}

/* ------------------------------------------------------------------------------------------------
 * What works
 */

static void lock_is_taken_renewed_and_released(void **state) {
    rlock_client *client = client_of("localhost", NULL);
    struct owner *o = owner_new(client, "stock:42");

    (void)state;
    SAME(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_true(is_token(str(ask(&server, "GET stock:42"))));
    assert_true(num(ask(&server, "PTTL stock:42")) <= 5000);
    SAME(owner_renew(o, 60000), RLOCK_OK);
    assert_true(num(ask(&server, "PTTL stock:42")) > 50000);
    SAME(owner_release(o), RLOCK_OK);
    SAME(num(ask(&server, "EXISTS stock:42")), 0);
    assert_true(encrypted() >= 1);
    assert_null(strstr(kit_log_text, "TLS"));
}

static void waiter_is_woken_by_push(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    rlock_client *holds, *waits;
    struct owner *holder, *waiter;

    (void)state;
    config.poll_ms = 60000;
    config.drift_permille = 1;
    holds = kit_client(&config);
    waits = kit_client(&config);
    holder = owner_new(holds, "pushed");
    waiter = owner_new(waits, "pushed");
    SAME(owner_acquire(holder, 0, 60000), RLOCK_OK);
    SAME(rlock_acquire(waiter->lock, RLOCK_FOREVER, 0, owner_told, waiter), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, waits, 5000));
    assert_true(encrypted() >= 3); /* two of the waiter's */
    SAME(owner_release(holder), RLOCK_OK);
    SAME(owner_wait(waiter, RLOCK_ACQUIRED, 20000), RLOCK_OK);
    assert_true(kit_stats(waits).woken > 0);
}

static int key_is_tracked(void *arg) {
    (void)arg;
    return info(&server, "stats", "tracking_total_keys") > 0;
}

static void holder_is_notified_that_its_key_was_deleted(void **state) {
    rlock_client *client = client_of("localhost", NULL);
    struct owner *o = owner_new(client, "deleted");

    (void)state;
    SAME(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    assert_true(kit_until(key_is_tracked, NULL, 5000));
    SAME(num(ask(&server, "DEL deleted")), 1);
    SAME(owner_wait(o, RLOCK_LOST, 10000), RLOCK_ERR_LOST);
    SAME(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

static void queued_kinds_are_served(void **state) {
    rlock_client *clients[2];
    struct owner *owners[2];
    rlock_options options;
    int i;

    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "queued";
    options.kind = RLOCK_KIND_FAIR;
    for (i = 0; i < 2; i++) {
        clients[i] = client_of("localhost", NULL);
        owners[i] = owner_with(clients[i], &options);
        assert_non_null(owners[i]);
    }
    SAME(owner_acquire(owners[0], 0, 60000), RLOCK_OK);
    SAME(rlock_acquire(owners[1]->lock, RLOCK_FOREVER, 0, owner_told, owners[1]), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, clients[1], 5000));
    SAME(owner_release(owners[0]), RLOCK_OK);
    SAME(owner_wait(owners[1], RLOCK_ACQUIRED, 10000), RLOCK_OK);
}

struct answer {
    int count, status;
    size_t size;
};

static void on_info(rlock_client *client, const rlock_info *info, void *user) {
    struct answer *a = (struct answer *)user;

    (void)client;
    a->count++;
    a->status = info->status;
    a->size += info->token_len;
}

static int both_answered(void *arg) {
    return ((struct answer *)arg)->count == 2;
}

/* A user's own context may read ahead, which would leave bytes where no event tells of them. */
static void answers_of_many_records_arrive(void **state) {
    rlock_tls_options options;
    rlock_options about;
    rlock_client *client;
    struct answer answer;
    char *large = (char *)malloc(LARGE);
    int own;

    (void)state;
    assert_non_null(large);
    memset(large, 'x', LARGE);
    tell(ask(&server, "SET large %b", large, (size_t)LARGE));
    free(large);
    memset(&about, 0, sizeof about);
    about.key = "large";
    for (own = 0; own < 2; own++) {
        memset(&answer, 0, sizeof answer);
        memset(&options, 0, sizeof options);
        options.ca_file = own ? NULL : files_path("ca.crt");
        options.ssl_ctx = own ? SSL_CTX_new(TLS_client_method()) : NULL;
        if (own) {
            SSL_CTX_load_verify_locations(options.ssl_ctx, files_path("ca.crt"), NULL);
            SSL_CTX_set_read_ahead(options.ssl_ctx, 1);
            SSL_CTX_set_default_read_buffer_len(options.ssl_ctx, 1 << 20);
        }
        client = client_of("localhost", &options);
        SSL_CTX_free(options.ssl_ctx); /* it is counted */
        works(client, "beside");
        SAME(rlock_inspect(client, &about, on_info, &answer), RLOCK_OK);
        SAME(rlock_inspect(client, &about, on_info, &answer), RLOCK_OK);
        assert_true(kit_until(both_answered, &answer, 10000));
        SAME(answer.status, RLOCK_OK);
        SAME(answer.size, 2 * LARGE);
        SAME(kit_stats(client).faults, 0);
    }
}

static int all_told(void *arg) {
    struct owner *const *owners = (struct owner *const *)arg;
    int i = 0;

    while (i < MANY && owners[i]->seen[RLOCK_ACQUIRED] == 1) {
        i++;
    }
    return i == MANY;
}

static void many_at_once_are_served_and_released_at_the_end(void **state) {
    static struct owner *owners[MANY];
    rlock_client *client = client_of("localhost", NULL);
    char key[32];
    int i;

    (void)state;
    for (i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "many:%d", i);
        owners[i] = owner_new(client, key);
        assert_non_null(owners[i]);
        SAME(rlock_acquire(owners[i]->lock, 5000, 60000, owner_told, owners[i]), RLOCK_OK);
    }
    assert_true(kit_until(all_told, owners, 20000));
    for (i = 0; i < MANY; i++) {
        SAME(owners[i]->status[RLOCK_ACQUIRED], RLOCK_OK);
    }
    SAME(num(ask(&server, "DBSIZE")), MANY);
    kit_reset(); /* frees the client: releases in one write */
    for (i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "many:%d", i);
        assert_true(key_goes(&server, key, 5000));
    }
}

static void both_connections_are_encrypted_again_after_a_kill(void **state) {
    rlock_client *client = client_of("localhost", NULL);
    struct owner *o = owner_new(client, "kept");
    uint64_t connects;

    (void)state;
    SAME(owner_acquire(o, 0, 0), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    connects = kit_stats(client).connects;
    SAME(num(ask(&server, "CLIENT KILL TYPE pubsub")), 1);
    SAME(num(ask(&server, "CLIENT KILL LADDR 127.0.0.1:%d SKIPME yes", tls_port)), 1);
    assert_true(kit_until(kit_is_down, client, 5000));
    assert_true(kit_until(kit_is_up, client, 5000));
    assert_true(kit_until(kit_is_pushing, client, 5000));
    SAME(kit_stats(client).connects, connects + 2);
    SAME(encrypted(), 2);
    assert_true(rlock_is_held(o->lock));
    SAME(owner_renew(o, 0), RLOCK_OK);
    SAME(owner_release(o), RLOCK_OK);
}

static void waiter_gets_the_lock_of_a_server_that_comes_back(void **state) {
    rlock_client *client = client_of("localhost", NULL);
    struct owner *o = owner_new(client, "late");

    (void)state;
    works(client, "before");
    server_kill9(&server);
    assert_true(kit_until(kit_is_down, client, 5000));
    SAME(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(log_says, (void *)(uintptr_t) "refused", 5000));
    SAME(server_restart(&server), 0);
    SAME(owner_wait(o, RLOCK_ACQUIRED, 20000), RLOCK_OK);
    assert_true(encrypted() >= 1);
}

static void one_table_serves_several_clients(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);

    (void)state;
    works(kit_client(&config), "first");
    config.host = "127.0.0.1";
    works(kit_client(&config), "second");
    assert_true(encrypted() >= 2);
}

#if RLOCK__HAS_QUORUM
static void quorum_has_its_own_for_each_server(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config one = config_of("localhost", &options), config = kit_config(&server);
    rlock_store *store = NULL;
    rlock_client *client;

    (void)state;
    SAME(rlock_quorum_new(&store, &one, 1), RLOCK_OK);
    config.store = store;
    client = kit_client(&config);
    works(client, "voted");
    assert_true(encrypted() >= 1);
    kit_reset();
    rlock_quorum_free(store);
}
#endif

static redisAsyncContext *connect_plainly(void *user) {
    return redisAsyncConnectUnix(((const struct server *)user)->socket);
}

/* The node says its name, which the certificate is for, and its TLS port. */
static void nodes_of_a_cluster_are_asked_by_tls(void **state) {
    static struct server node;
    static char port[16], bus[16];
    const char *args[] = {"--tls-port",
                          port,
                          "--tls-cert-file",
                          files_path("server.crt"),
                          "--tls-key-file",
                          files_path("server.key"),
                          "--tls-ca-cert-file",
                          files_path("ca.crt"),
                          "--tls-auth-clients",
                          "no",
                          "--tls-cluster",
                          "yes",
                          "--cluster-enabled",
                          "yes",
                          "--cluster-port",
                          bus,
                          NULL};
    rlock_tls_options options = by_ca();
    rlock_config config = config_of(NULL, &options);
    char url[64];
    int tries = 0;

    (void)state;
    snprintf(port, sizeof port, "%d", server_free_port());
    snprintf(bus, sizeof bus, "%d", server_free_port());
    node.port = server_free_port();
    SAME(server_start(&node, args), 0);
    tell(ask(&node, "CONFIG SET cluster-announce-hostname localhost"));
    tell(ask(&node, "CONFIG SET cluster-preferred-endpoint-type hostname"));
    tell(ask(&node, "CLUSTER ADDSLOTSRANGE 0 16383"));
    while (strstr(str(ask(&node, "CLUSTER INFO")), "cluster_state:ok") == NULL && tries++ < 500) {
        server_sleep_ms(10);
    }
    config.port = 0;
    config.url = url;
    snprintf(url, sizeof url, "rediss+cluster://localhost:%s", port);
    works_at(&node, kit_client(&config), "by-a-node");
    IN(kit_log_text, "connection to localhost:");
    kit_reset();
    kit_hand_drop();
    server_stop(&node);
}

static void other_ways_to_connect_stay_as_they_are(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);

    (void)state;
    config.unix_path = server.socket;
    works(kit_client(&config), "by-a-path");
    config.unix_path = NULL;
    config.connect = connect_plainly;
    config.user = &server;
    works(kit_client(&config), "by-a-hook");
    SAME(encrypted(), 0);
}

static void url_says_whether_it_is_encrypted(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of(NULL, &options);
    char url[128];

    (void)state;
    config.port = 0;
    config.url = url;
    snprintf(url, sizeof url, "rediss://localhost:%d", tls_port);
    works(kit_client(&config), "by-rediss");
    assert_true(encrypted() > 0);
    kit_reset();
    assert_true(kit_until(nothing_encrypted, NULL, 5000));
    config.tls = make(&options);
    snprintf(url, sizeof url, "unix://%s", server.socket);
    works(kit_client(&config), "by-a-path");
    SAME(encrypted(), 0);
}

/* A Sentinel that watches the server by its TLS port, and has one of its own. */
static int sentinel_starts(struct server *sentinel, int own_tls_port) {
    static char port[16], file[160];
    const char *args[] = {"--sentinel",
                          "--tls-port",
                          port,
                          "--tls-cert-file",
                          files_path("server.crt"),
                          "--tls-key-file",
                          files_path("server.key"),
                          "--tls-ca-cert-file",
                          files_path("ca.crt"),
                          "--tls-auth-clients",
                          "no",
                          "--tls-replication",
                          "yes",
                          NULL};
    FILE *conf;

    snprintf(port, sizeof port, "%d", own_tls_port);
    snprintf(file, sizeof file, "%s/sentinel.conf", server.dir);
    conf = fopen(file, "w");
    assert_non_null(conf);
    fprintf(conf, "sentinel monitor locks 127.0.0.1 %d 1\n", tls_port);
    fclose(conf);
    sentinel->port = server_free_port();
    sentinel->file = file;
    return server_start(sentinel, args);
}

static void sentinels_are_asked_by_tls_and_the_primary_too(void **state) {
    static struct server sentinel;
    int port = server_free_port();
    rlock_tls_options options = by_ca();
    rlock_config config = config_of(NULL, &options), named;
    char url[128];

    (void)state;
    SAME(sentinel_starts(&sentinel, port), 0);
    config.port = 0;
    config.url = url;
    snprintf(url, sizeof url, "rediss+sentinel://localhost:%d/locks", port);
    works(kit_client(&config), "by-both");
    assert_true(encrypted() > 0);
    snprintf(url, sizeof url, "rediss+sentinel://localhost:%d/locks?sentinel_tls=no",
             sentinel.port);
    SAME(rlock_client_new(&(rlock_client *){NULL}, &config), RLOCK_ERR_ARG);
    snprintf(url, sizeof url,
             "rediss+sentinel://localhost:%d/locks?sentinel_tls=no&trust_plain_sentinels=yes",
             sentinel.port);
    works(kit_client(&config), "by-one");
    snprintf(url, sizeof url, "rediss+sentinel://localhost:%d/locks?sentinel_tls=no",
             sentinel.port);
    options.server_name = "localhost";
    named = config;
    named.tls = make(&options);
    works(kit_client(&named), "by-name");
    options.server_name = "elsewhere.test"; /* whatever the Sentinels say */
    named.tls = make(&options);
    refused_as(kit_client(&named), RLOCK_ERR_AUTH,
               "the server's certificate is refused: hostname mismatch");
    options.server_name = NULL;
    snprintf(url, sizeof url, "rediss+sentinel://localhost:%d/locks", sentinel.port);
    config.command_timeout_ms = 200;
    down_as(kit_client(&config), "is it the TLS port?");
    config.command_timeout_ms = 0;
    options.ca_file = files_path("other-ca.crt");
    config.sentinel_tls = make(&options);
    snprintf(url, sizeof url, "rediss+sentinel://localhost:%d/locks", port);
    refused_as(kit_client(&config), RLOCK_ERR_AUTH, "the server's certificate is refused");
    kit_reset();
    server_stop(&sentinel);
}

/* ------------------------------------------------------------------------------------------------
 * Who the server is
 */

static void certificate_of_an_unknown_authority_is_refused(void **state) {
    rlock_tls_options options = by_ca();

    (void)state;
    options.ca_file = files_path("other-ca.crt");
    refused_as(client_of("localhost", &options), RLOCK_ERR_AUTH,
               "the server's certificate is refused: ");
    options.ca_file = NULL; /* the system's */
    refused_as(client_of("localhost", &options), RLOCK_ERR_AUTH,
               "the server's certificate is refused: ");
    SAME(ERR_peek_error(), 0); /* nor does anything stay for others */
}

static void certificate_for_another_name_is_refused(void **state) {
    rlock_tls_options options = by_ca();

    (void)state;
    server_shows("elsewhere", "no");
    refused_as(client_of("localhost", NULL), RLOCK_ERR_AUTH,
               "the server's certificate is refused: hostname mismatch");
    refused_as(client_of("127.0.0.1", NULL), RLOCK_ERR_AUTH,
               "the server's certificate is refused: IP address mismatch");
    options.server_name = "elsewhere.test";
    works(client_of("127.0.0.1", &options), "there");
    options.server_name = "elsewhere.test.";
    works(client_of("localhost", &options), "there");
}

static void address_is_not_a_name(void **state) {
    rlock_tls_options options = by_ca();

    (void)state;
    works(client_of("127.0.0.1", NULL), "by-address");
    server_shows("names", "no");
    refused_as(client_of("127.0.0.1", NULL), RLOCK_ERR_AUTH, "IP address mismatch");
    works(client_of("localhost", NULL), "by-name");
    options.server_name = "127.0.0.1";
    refused_as(client_of("localhost", &options), RLOCK_ERR_AUTH, "IP address mismatch");
}

static void certificate_that_is_out_of_date_is_refused(void **state) {
    (void)state;
    server_shows("expired", "no");
    refused_as(client_of("localhost", NULL), RLOCK_ERR_AUTH,
               "the server's certificate is refused: certificate has expired");
}

static void context_of_ones_own_verifies_too(void **state) {
    rlock_tls_options options;

    (void)state;
    memset(&options, 0, sizeof options);
    options.ssl_ctx = SSL_CTX_new(TLS_client_method());
    refused_as(client_of("localhost", &options), RLOCK_ERR_AUTH, "certificate is refused: ");
    SSL_CTX_load_verify_locations(options.ssl_ctx, files_path("ca.crt"), NULL);
    works(client_of("localhost", &options), "own");
    server_shows("elsewhere", "no");
    refused_as(client_of("localhost", &options), RLOCK_ERR_AUTH, "hostname mismatch");
    SSL_CTX_free(options.ssl_ctx);
}

static char asked_for[64]; /* by SNI */
static int says_no;        /* what our own server answers then; 0 = goes on */

static int on_name(SSL *ssl, int *alert, void *arg) {
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

    (void)arg;
    snprintf(asked_for, sizeof asked_for, "%s", name != NULL ? name : "nobody");
    *alert = says_no;
    return says_no != 0 ? SSL_TLSEXT_ERR_ALERT_FATAL : SSL_TLSEXT_ERR_OK;
}

static int listen_somewhere(int *port) {
    struct sockaddr_in a;
    int one = 1;

    *port = server_free_port();
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_port = htons((uint16_t)*port);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 8) == 0 ? 0
                                                                                            : -1;
}

static int someone_called(void *fd) {
    return (*(int *)fd = accept(listener, NULL, NULL)) >= 0;
}

static int hello_read(void *ssl) {
    int result = SSL_accept((SSL *)ssl);

    return result > 0 || SSL_get_error((SSL *)ssl, result) != SSL_ERROR_WANT_READ;
}

/* Answers one handshake, as far as it asks for a name. Returns the one who waits for it. */
static struct owner *handshake_by_tls(const rlock_tls_options *options, const char *host) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    rlock_config config = config_of(host, options);
    struct owner *o;
    SSL *ssl;
    int fd = -1;

    SSL_CTX_use_certificate_file(ctx, files_path("server.crt"), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(ctx, files_path("server.key"), SSL_FILETYPE_PEM);

    assert_int_equal(listen_somewhere(&config.port), 0);
    o = owner_new(kit_client(&config), "named");
    asked_for[0] = '\0';
    SSL_CTX_set_tlsext_servername_callback(ctx, on_name);
    SAME(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(someone_called, &fd, 5000));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    assert_true(kit_until(hello_read, ssl, 5000));
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(fd);
    close(listener);
    listener = -1;
    return o;
}

static void servers_are_asked_for_by_name_alone(void **state) {
    rlock_tls_options options = by_ca();

    (void)state;
    handshake_by_tls(&options, "localhost");
    assert_string_equal(asked_for, "localhost");
    handshake_by_tls(&options, "127.0.0.1");
    assert_string_equal(asked_for, "nobody");
    options.server_name = "locks.test";
    handshake_by_tls(&options, "127.0.0.1");
    assert_string_equal(asked_for, "locks.test");
}

/* A server's own failure passes; of a name that it does not serve an operator has to hear. */
static void failure_of_the_server_is_no_refusal(void **state) {
    rlock_tls_options options = by_ca();
    struct owner *o;

    (void)state;
    says_no = SSL_AD_INTERNAL_ERROR;
    o = handshake_by_tls(&options, "localhost");
    assert_true(kit_until(log_says, (void *)(uintptr_t) "alert internal error", 5000));
    SAME(o->seen[RLOCK_ACQUIRED], 0);
    says_no = SSL_AD_UNRECOGNIZED_NAME;
    o = handshake_by_tls(&options, "localhost");
    SAME(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_AUTH);
    IN(o->text[RLOCK_ACQUIRED], "unrecognized name");
}

static void authorities_may_stand_in_a_folder(void **state) {
    rlock_tls_options options;

    (void)state;
    memset(&options, 0, sizeof options);
    options.ca_dir = files_path("authorities");
    works(client_of("localhost", &options), "by-folder");
}

/* ------------------------------------------------------------------------------------------------
 * Who the client is
 */

static void client_certificate_is_shown_where_it_is_asked_for(void **state) {
    rlock_tls_options options = by_ca();

    (void)state;
    server_shows("server", "yes");
    refused_as(client_of("localhost", NULL), RLOCK_ERR_AUTH, "certificate required");
    options.cert_file = files_path("stranger.crt");
    options.key_file = files_path("stranger.key");
    refused_as(client_of("localhost", &options), RLOCK_ERR_AUTH, "unknown ca");
    options.cert_file = files_path("client.crt");
    options.key_file = files_path("client.key");
    works(client_of("localhost", &options), "shown");
    options.cert_file = files_path("both.crt");
    options.key_file = NULL;
    works(client_of("localhost", &options), "shown");
}

static void missing_certificate_is_reported_by_tls_12_too(void **state) {
    rlock_tls_options options;

    (void)state;
    server_shows("server", "yes");
    memset(&options, 0, sizeof options);
    options.ssl_ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(options.ssl_ctx, TLS1_2_VERSION);
    SSL_CTX_load_verify_locations(options.ssl_ctx, files_path("ca.crt"), NULL);
    refused_as(client_of("localhost", &options), RLOCK_ERR_AUTH, "handshake failure");
    server_shows("server", "no");
    works(client_of("localhost", &options), "old");
    SSL_CTX_free(options.ssl_ctx);
}

/* ------------------------------------------------------------------------------------------------
 * Servers of another kind
 */

static void server_of_an_old_version_is_refused(void **state) {
    rlock_tls_options options = by_ca();
    const rlock__tls *tls = (const rlock__tls *)make(&options)->ctx;

    (void)state;
    /* Where the system's configuration of OpenSSL refuses it, nothing else is seen of ours. */
    SAME(SSL_CTX_get_min_proto_version(tls->ssl_ctx), TLS1_2_VERSION);
    tell(ask(&server, "CONFIG SET tls-ciphers ALL:@SECLEVEL=0 tls-protocols TLSv1.1"));
    refused_as(client_of("localhost", NULL), RLOCK_ERR_AUTH, "protocol");
}

/* A server that is too old to know what it is offered takes its own version. */
static void server_that_takes_an_old_version_is_refused(void **state) {
    static const unsigned char hello[47] = {22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2, [44] = 0xc0, 0x14};
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    struct owner *o;
    int fd = -1;

    (void)state;
    assert_int_equal(listen_somewhere(&config.port), 0);
    o = owner_new(kit_client(&config), "aged");
    SAME(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(someone_called, &fd, 5000));
    SAME(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    SAME(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_AUTH);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "TLS: unsupported protocol");
    close(fd);
}

static void plain_client_is_reset_by_a_tls_port(void **state) {
    rlock_config config = kit_config(&server);

    (void)state;
    config.unix_path = NULL;
    config.port = tls_port;
    down_as(kit_client(&config), "onnection");
}

static void plain_port_is_reported_as_one(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);

    (void)state;
    config.port = server.port;
    config.command_timeout_ms = 200;
    down_as(kit_client(&config), "no answer to the TLS handshake: is it the TLS port?");
}

static void server_that_is_stopped_in_the_handshake_is_tried_again(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    rlock_client *client;
    struct owner *o;

    (void)state;
    config.command_timeout_ms = 200;
    client = kit_client(&config);
    o = owner_new(client, "thawed");
    server_pause(&server);
    down_as(client, "no answer to the TLS handshake: is it the TLS port?");
    SAME(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    server_resume(&server);
    SAME(owner_wait(o, RLOCK_ACQUIRED, 20000), RLOCK_OK);
}

/* After the handshake it is the server that is silent. */
static void silence_behind_the_handshake_is_reported_as_such(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    rlock_client *client;

    (void)state;
    config.command_timeout_ms = 200;
    client = kit_client(&config);
    works(client, "awake");
    server_pause(&server);
    SAME(owner_acquire(owner_new(client, "asleep"), 0, 0), RLOCK_ERR_UNKNOWN);
    assert_true(kit_until(log_says, (void *)(uintptr_t) "the server does not answer", 5000));
}

/* A server of our own, whose records are sent by hand. */
struct by_hand {
    SSL *ssl;
    int fd;
};

static int shakes_hands(void *arg) {
    struct by_hand *h = (struct by_hand *)arg;
    char bytes[4096];
    int done = SSL_accept(h->ssl), n = BIO_read(SSL_get_wbio(h->ssl), bytes, sizeof bytes);

    if (n > 0) {
        SAME(send(h->fd, bytes, (size_t)n, MSG_NOSIGNAL), n);
    }
    return done == 1;
}

static int is_told_something(void *arg) {
    char bytes[256];

    return SSL_read(((struct by_hand *)arg)->ssl, bytes, sizeof bytes) > 0;
}

/* What a program's other connections have left in OpenSSL's list of errors is not of ours: it would
 * make a failure of half a record. */
static void errors_of_others_are_no_errors_of_ours(void **state) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    struct by_hand h = {NULL, -1};
    const char *greeted = /* CLIENT ID, INFO, COMMAND */
        ":1\r\n$11\r\nrole:master\r\n$0\r\n\r\n*1\r\n*-1\r\n";
    char record[256];
    struct owner *o;
    int n, i;

    (void)state;
    assert_int_equal(listen_somewhere(&config.port), 0);
    o = owner_new(kit_client(&config), "halved");
    SAME(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(someone_called, &h.fd, 5000));
    fcntl(h.fd, F_SETFL, O_NONBLOCK);
    SSL_CTX_use_certificate_file(ctx, files_path("server.crt"), SSL_FILETYPE_PEM);
    SSL_CTX_use_PrivateKey_file(ctx, files_path("server.key"), SSL_FILETYPE_PEM);
    h.ssl = SSL_new(ctx);
    SSL_set_bio(h.ssl, BIO_new_socket(h.fd, BIO_NOCLOSE), BIO_new(BIO_s_mem()));
    assert_true(kit_until(shakes_hands, &h, 5000));
    assert_true(kit_until(is_told_something, &h, 5000));
    SAME(SSL_write(h.ssl, greeted, (int)strlen(greeted)), (int)strlen(greeted));
    n = BIO_read(SSL_get_wbio(h.ssl), record, sizeof record);
    assert_true(n > 4);
    for (i = 0; i < n; i++) {
        SAME(send(h.fd, record + i, 1, MSG_NOSIGNAL), 1);
        ERR_put_error(ERR_LIB_SSL, 0, SSL_R_BAD_LENGTH, __FILE__, __LINE__);
        assert_true(rlock_poll_once(kit_poll, 2000));
    }
    assert_true(kit_until(is_told_something, &h, 5000)); /* the acquire */
    assert_null(strstr(kit_log_text, ": TLS"));
    IN(kit_log_text, "ready");
    SSL_free(h.ssl);
    SSL_CTX_free(ctx);
    close(h.fd);
    ERR_clear_error();
}

static void port_that_speaks_something_else_is_reported(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    struct owner *o;
    int fd = -1;

    (void)state;
    assert_int_equal(listen_somewhere(&config.port), 0);
    o = owner_new(kit_client(&config), "spoken");
    SAME(rlock_acquire(o->lock, 0, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(someone_called, &fd, 5000));
    SAME(send(fd, "-ERR go away\r\n", 14, MSG_NOSIGNAL), 14);
    SAME(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_CONN);
    assert_string_equal(o->text[RLOCK_ACQUIRED], "TLS: wrong version number");
    close(fd);
}

/* hiredis 1.0 reads RESP3, which nobody asked for. */
static void reply_of_another_protocol_ends_the_connection(void **state) {
    static const char *const replies[] = {",1.5\r\n", "#t\r\n", ",nan\r\n", "*1\r\n,1.5\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof replies / sizeof replies[0]; i++) {
        rlock_config config = kit_config(&server);
        struct owner *o;
        int fd = -1;

        config.unix_path = NULL;
        assert_int_equal(listen_somewhere(&config.port), 0);
        o = owner_new(kit_client(&config), "spoken");
        SAME(rlock_acquire(o->lock, 0, 0, owner_told, o), RLOCK_OK);
        assert_true(kit_until(someone_called, &fd, 5000));
        SAME(send(fd, replies[i], strlen(replies[i]), MSG_NOSIGNAL), strlen(replies[i]));
        SAME(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_CONN);
        assert_string_equal(o->text[RLOCK_ACQUIRED], "unexpected reply");
        kit_reset();
        close(fd);
        close(listener);
        listener = -1;
    }
}

static void server_that_hangs_up_in_the_handshake_is_reported(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    struct owner *o;
    int fd = -1;

    (void)state;
    assert_int_equal(listen_somewhere(&config.port), 0);
    o = owner_new(kit_client(&config), "hung-up");
    SAME(rlock_acquire(o->lock, 0, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(someone_called, &fd, 5000));
    shutdown(fd, SHUT_WR);
    SAME(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_ERR_CONN);
    assert_true(o->text[RLOCK_ACQUIRED][0] != '\0');
    close(fd);
}

static void client_is_freed_in_the_middle_of_a_handshake(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    struct owner *o;
    int fd = -1;

    (void)state;
    assert_int_equal(listen_somewhere(&config.port), 0);
    o = owner_new(kit_client(&config), "middle");
    SAME(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    assert_true(kit_until(someone_called, &fd, 5000));
    kit_run(20);
    kit_reset();
    close(fd);
}

/* ------------------------------------------------------------------------------------------------
 * What cannot begin
 */

static void handshake_that_cannot_begin_is_reported(void **state) {
    rlock_tls_options options;

    (void)state;
    memset(&options, 0, sizeof options);
    options.ssl_ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_options(options.ssl_ctx, SSL_OP_NO_TLSv1_3 | SSL_OP_NO_TLSv1_2 | SSL_OP_NO_TLSv1_1 |
                                             SSL_OP_NO_TLSv1 | SSL_OP_NO_SSLv3);
    down_as(client_of("localhost", &options), "TLS: no protocols available");
    SSL_CTX_free(options.ssl_ctx);
}

static int start_never(void *ctx, struct redisAsyncContext *ac, const char *host) {
    (void)ac;
    snprintf((char *)ctx, 64, "%s", host);
    return -1;
}

static void before_nothing(void *ctx) {
    (void)ctx;
}

static int asked_why;

static int why_ever(void *ctx, struct redisAsyncContext *ac, char *words, size_t room) {
    (void)ctx, (void)ac, (void)words, (void)room;
    asked_why++;
    return RLOCK_OK;
}

static void hooks_of_ones_own_may_refuse(void **state) {
    static char host[64];
    static rlock_tls hooks = {host, start_never, before_nothing, why_ever, false};
    rlock_config config = kit_config(&server);

    (void)state;
    config.unix_path = NULL;
    config.port = tls_port;
    config.tls = &hooks;
    down_as(kit_client(&config), "TLS cannot start");
    assert_string_equal(host, "127.0.0.1"); /* the default is a host as well */
    assert_true(asked_why > 0);
    kit_reset();
    asked_why = 0;
    config.port = server_free_port();
    down_as(kit_client(&config), "refused");
    SAME(asked_why, 0); /* nothing was started there */
}

static int asked_before;

static void before_counted(void *ctx) {
    (void)ctx;
    asked_before++;
}

static void hooks_are_asked_before_the_last_write_too(void **state) {
    rlock_tls_options options = by_ca();
    rlock_config config = config_of("localhost", &options);
    rlock_tls *hooks = (rlock_tls *)(uintptr_t)config.tls;
    struct owner *o;

    (void)state;
    hooks->before = before_counted;
    asked_before = 0;
    o = owner_new(kit_client(&config), "left");
    SAME(owner_acquire(o, 5000, 0), RLOCK_OK);
    assert_true(asked_before > 0);
    asked_before = 0;
    kit_reset(); /* the client is freed, and releases as it goes */
    SAME(asked_before, 1);
    assert_true(key_goes(&server, "left", 5000));
}

static void table_that_lacks_a_hook_is_refused(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client = NULL;
    rlock_tls hooks;
    int i;

    (void)state;
    config.tls = &hooks;
    for (i = 0; i < 3; i++) {
        hooks.ctx = NULL;
        hooks.start = i == 0 ? NULL : start_never;
        hooks.before = i == 1 ? NULL : before_nothing;
        hooks.why = i == 2 ? NULL : why_ever;
        SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
        if (RLOCK__HAS_TEXTS) {
            IN(kit_log_text, "config.tls: a required hook is NULL");
        }
    }
}

static void cannot_be_made(const rlock_tls_options *options, const char *file, const char *reason) {
    char why[160] = "";

    assert_null(rlock_tls_new(options, why, sizeof why));
    if (strstr(why, file) == NULL || strstr(why, reason) == NULL) {
        fprintf(stderr, "it says: %s\n", why);
    }
    IN(why, file);
    IN(why, reason);
    SAME(ERR_peek_error(), 0); /* nothing stays for others */
    assert_null(rlock_tls_new(options, why, 8));
    SAME(strlen(why), 7);
}

static void file_that_cannot_be_used_is_named(void **state) {
    rlock_tls_options options = by_ca();

    (void)state;
    options.ca_file = files_path("nowhere.crt");
    cannot_be_made(&options, "nowhere.crt", ": No such file or directory");
    options.ca_file = files_path("client.key");
    cannot_be_made(&options, "client.key", ": no certificate or crl found");
    options = by_ca();
    options.cert_file = files_path("nowhere.crt");
    cannot_be_made(&options, "nowhere.crt", ": No such file or directory");
    options.cert_file = files_path("client.crt");
    cannot_be_made(&options, "client.crt", ": "); /* holds no key */
    options.key_file = files_path("server.key");
    cannot_be_made(&options, "server.key", ": key values mismatch");
    options.key_file = files_path("locked.key");
    cannot_be_made(&options, "locked.key", ": "); /* and asks nobody for the password */
    options = by_ca();
    options.key_file = files_path("client.key");
    cannot_be_made(&options, "client.key", ": no certificate assigned");
    rlock_tls_free(NULL);
    memory_is_out = true;
    cannot_be_made(&options, "", "out of memory");
    memory_is_out = false;
}

static void host_that_is_no_name_is_refused(void **state) {
    rlock_tls_options options = by_ca();
    redisAsyncContext nothing;
    rlock_tls *tls = make(&options);
    char name[300];

    (void)state;
    memset(&nothing, 0, sizeof nothing);
    SAME(tls->start(tls->ctx, &nothing, ""), -1); /* as it would stand for any */
    assert_null(nothing.c.privdata);
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    SAME(tls->start(tls->ctx, &nothing, name), -1);
    SAME(tls->why(tls->ctx, &nothing, name, sizeof name), RLOCK_OK); /* it knows of none */
    options.server_name = name;
    cannot_be_made(&options, "xxx", "");
    options.server_name = "";
    cannot_be_made(&options, "", ": not the name of a host");
    options.server_name = ".";
    cannot_be_made(&options, ".", ": not the name of a host");
}

/* ------------------------------------------------------------------------------------------------
 * The server, and what each test starts with
 */

static int test_begins(void **state) {
    (void)state;
    tell(ask(&server, "FLUSHALL"));
    tell(ask(&server, "CONFIG SET tls-protocols %s tls-ciphers %s", "TLSv1.2 TLSv1.3", "DEFAULT"));
    server_shows("server", "no");
    return 0;
}

static int test_ends(void **state) {
    int i, closed;

    (void)state;
    says_no = 0;
    server_resume(&server);
    kit_reset();
    for (i = 0; i < 8; i++) {
        rlock_tls_free(made[i]);
        made[i] = NULL;
    }
    if (listener >= 0) {
        close(listener);
        listener = -1;
    }
    closed = kit_until(nothing_encrypted, NULL, 5000);
    return closed ? 0 : -1;
}

static int group_begins(void **state) {
    static char port[16];
    const char *args[16];
    int n = 0;

    (void)state;
    if (kit_open() != 0 || files_make() != 0) {
        return -1;
    }
    tls_port = server_free_port();
    server.port = server_free_port();
    snprintf(port, sizeof port, "%d", tls_port);
    args[n++] = "--tls-port", args[n++] = port;
    args[n++] = "--tls-cert-file", args[n++] = files_path("server.crt");
    args[n++] = "--tls-key-file", args[n++] = files_path("server.key");
    args[n++] = "--tls-ca-cert-file", args[n++] = files_path("ca.crt");
    args[n++] = "--tls-auth-clients", args[n++] = "no";
    args[n] = NULL;
    return server_start(&server, args);
}

static int group_ends(void **state) {
    (void)state;
    kit_hand_drop();
    server_stop(&server);
    kit_close();
    return 0;
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        TEST(lock_is_taken_renewed_and_released),
        TEST(waiter_is_woken_by_push),
        TEST(holder_is_notified_that_its_key_was_deleted),
#if RLOCK__HAS_KINDS
        TEST(queued_kinds_are_served),
        TEST(answers_of_many_records_arrive),
#endif
        TEST(many_at_once_are_served_and_released_at_the_end),
        TEST(both_connections_are_encrypted_again_after_a_kill),
        TEST(waiter_gets_the_lock_of_a_server_that_comes_back),
        TEST(one_table_serves_several_clients),
#if RLOCK__HAS_QUORUM
        TEST(quorum_has_its_own_for_each_server),
#endif
#if RLOCK__HAS_URL
        TEST(url_says_whether_it_is_encrypted),
#endif
#if RLOCK__HAS_SENTINEL && RLOCK__HAS_URL
        TEST(sentinels_are_asked_by_tls_and_the_primary_too),
#endif
#if RLOCK__HAS_CLUSTER && RLOCK__HAS_URL
        TEST(nodes_of_a_cluster_are_asked_by_tls),
#endif
        TEST(other_ways_to_connect_stay_as_they_are),
        TEST(certificate_of_an_unknown_authority_is_refused),
        TEST(certificate_for_another_name_is_refused),
        TEST(address_is_not_a_name),
        TEST(certificate_that_is_out_of_date_is_refused),
        TEST(context_of_ones_own_verifies_too),
        TEST(servers_are_asked_for_by_name_alone),
        TEST(failure_of_the_server_is_no_refusal),
        TEST(authorities_may_stand_in_a_folder),
        TEST(client_certificate_is_shown_where_it_is_asked_for),
        TEST(missing_certificate_is_reported_by_tls_12_too),
        TEST(server_of_an_old_version_is_refused),
        TEST(server_that_takes_an_old_version_is_refused),
        TEST(plain_client_is_reset_by_a_tls_port),
        TEST(plain_port_is_reported_as_one),
        TEST(server_that_is_stopped_in_the_handshake_is_tried_again),
        TEST(silence_behind_the_handshake_is_reported_as_such),
        TEST(errors_of_others_are_no_errors_of_ours),
        TEST(port_that_speaks_something_else_is_reported),
        TEST(reply_of_another_protocol_ends_the_connection),
        TEST(server_that_hangs_up_in_the_handshake_is_reported),
        TEST(client_is_freed_in_the_middle_of_a_handshake),
        TEST(handshake_that_cannot_begin_is_reported),
        TEST(hooks_of_ones_own_may_refuse),
        TEST(hooks_are_asked_before_the_last_write_too),
        TEST(table_that_lacks_a_hook_is_refused),
        TEST(file_that_cannot_be_used_is_named),
        TEST(host_that_is_no_name_is_refused),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return shard_group("tls", tests, group_begins, group_ends);
}
