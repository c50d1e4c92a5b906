/* postgres_tls.c - locks in PostgreSQL over TLS: whom the client believes, and SCRAM over it
 *
 * libpq does it all, by what the URL says. What is tried is that names, addresses and words fit,
 * and that the loop goes on.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "measured.h"
#include "tls_files.h"

#include <openssl/ssl.h>

#include "../../stores/rlock_postgres.h"
#include "postgres_kit.h"

#include "clients.h"

/* --- the server --- */

/* Copies a file to where the server alone may read it. */
static void gives(const char *from, const char *to) {
    char path[160], bytes[8192];
    FILE *file = fopen(files_path(from), "r");
    size_t n;
    assert_non_null(file);
    n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    snprintf(path, sizeof path, "%s/data/%s", g.server.dir, to);
    file = fopen(path, "w");
    assert_non_null(file);
    fwrite(bytes, 1, n, file);
    fchmod(fileno(file), 0600);
    fclose(file);
    assert_int_equal(server_owns(&g.server, path), 0);
}

/* The serial number of the certificate that the server shows; -1 = no TLS. */
static long shown(void) {
    PGconn *conn = PQconnectdb(g.server.url);
    SSL *ssl = (SSL *)PQsslStruct(conn, "OpenSSL");
    X509 *certificate = ssl != NULL ? SSL_get1_peer_certificate(ssl) : NULL;
    long serial = certificate != NULL ? ASN1_INTEGER_get(X509_get0_serialNumber(certificate)) : -1;
    X509_free(certificate);
    PQfinish(conn);
    return serial;
}

static long serial_of(const char *name) {
    FILE *file = fopen(files_path(name), "r");
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    long serial = ASN1_INTEGER_get(X509_get0_serialNumber(certificate));
    X509_free(certificate);
    fclose(file);
    return serial;
}

/* Waits until a setting that was changed holds. */
static void server_takes(long serial) {
    int tries = 0;
    sql("SELECT pg_reload_conf()");
    while (shown() != serial && tries++ < 500) {
        server_sleep_ms(10);
    }
    assert_int_equal(shown(), serial);
}

/* From here on the server shows another certificate. */
static void server_shows(const char *name) {
    char crt[32], key[32];
    snprintf(crt, sizeof crt, "%s.crt", name);
    snprintf(key, sizeof key, "%s.key", name);
    gives(crt, "server.crt");
    gives(key, "server.key");
    server_takes(serial_of(crt));
}

/* --- clients --- */

/* Of user@host, with what follows the ? of a URL. */
static rlock_client *client_by(const char *user, const char *host, const char *settings) {
    char url[512];
    snprintf(url, sizeof url, "postgres://%s@%s:%d/postgres?%s", user, host, g.server.port,
             settings);
    return client_for(url, 1000);
}

/* What a URL says that verifies the server by an authority. */
static const char *verified_by(const char *authority) {
    static char settings[256];
    snprintf(settings, sizeof settings, "sslmode=verify-full&sslrootcert=%s",
             files_path(authority));
    return settings;
}

static void works(rlock_client *of) {
    struct owner *o = owner_new(of, "k");
    assert_int_equal(owner_acquire(o, 5000, 5000), RLOCK_OK);
    assert_true(held("k"));
    assert_string_equal(sql("SELECT count(*) FROM pg_stat_ssl NATURAL JOIN pg_stat_activity "
                            "WHERE application_name = 'rlock' AND ssl"),
                        "1");
    assert_int_equal(owner_release(o), RLOCK_OK);
    clients_end();
}

/* An acquire that would wait for ever is told, with the words. */
static void refused_with(rlock_client *of, const char *words) {
    struct owner *o = owner_new(of, "k");
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 1000), RLOCK_ERR_AUTH);
    if (strstr(kit_log_text, words) == NULL) {
        fprintf(stderr, "no \"%s\" in %s\n", words, kit_log_text);
    }
    assert_non_null(strstr(kit_log_text, words));
    clients_end();
}

/* --- whom the client believes --- */

static void server_that_is_verified_is_used(void **state) {
    (void)state;
    works(client_by("me", "localhost", verified_by("ca.crt")));
    server_shows("names"); /* it has no address: the name counts, though an address is called */
    works(client_by("me", "localhost", verified_by("ca.crt")));
    refused_with(client_by("me", "127.0.0.1", verified_by("ca.crt")),
                 "does not match host name \"127.0.0.1\"");
}

static void certificate_for_another_name_is_refused(void **state) {
    (void)state;
    server_shows("elsewhere");
    refused_with(client_by("me", "localhost", verified_by("ca.crt")),
                 "server certificate for \"elsewhere.test\" (and 1 other name) does not match host "
                 "name \"localhost\"");
}

static void certificate_of_an_unknown_authority_is_refused(void **state) {
    (void)state;
    refused_with(client_by("me", "localhost", verified_by("other-ca.crt")),
                 "certificate verify failed");
    refused_with(client_by("me", "localhost", verified_by("nowhere.crt")), "does not exist");
}

static void certificate_out_of_date_is_refused(void **state) {
    (void)state;
    server_shows("expired");
    refused_with(client_by("me", "localhost", verified_by("ca.crt")), "certificate verify failed");
}

/* By the first attempt, whose first address nobody serves. */
static void refusal_of_one_host_of_several_is_reported(void **state) {
    struct owner *o;
    (void)state;
    server_shows("elsewhere");
    o = owner_new(client_by("me", "127.0.0.1:1,localhost", verified_by("ca.crt")), "k");
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(kit_log_text, "does not match host name"));
}

static void server_without_tls_is_refused_where_it_is_asked_for(void **state) {
    (void)state;
    sql("ALTER SYSTEM SET ssl = off");
    server_takes(-1);
    refused_with(client_by("me", "localhost", verified_by("ca.crt")),
                 "server does not support SSL, but SSL was required");
}

/* --- who the client is --- */

static void scram_is_bound_to_the_channel(void **state) {
    char settings[320];
    (void)state;
    snprintf(settings, sizeof settings, "%s&channel_binding=require", verified_by("ca.crt"));
    works(client_by("careful:right", "localhost", settings));
    refused_with(client_by("careful:wr0ng", "localhost", settings),
                 "password authentication failed for user \"careful\"");
    assert_null(strstr(kit_log_text, "wr0ng"));
    refused_with(client_by("careful:right", "localhost", "sslmode=disable&channel_binding=require"),
                 "channel binding required");
}

static void certificate_of_the_client_is_asked_for(void **state) {
    char settings[512];
    (void)state;
    chmod(files_path("client.key"), 0600); /* libpq reads no key that others may read */
    chmod(files_path("stranger.key"), 0600);
    snprintf(settings, sizeof settings, "%s&sslcert=%s&sslkey=%s", verified_by("ca.crt"),
             files_path("client.crt"), files_path("client.key"));
    works(client_by("client", "localhost", settings));
    refused_with(client_by("client", "localhost", verified_by("ca.crt")),
                 "connection requires a valid client certificate");
    snprintf(settings, sizeof settings, "%s&sslcert=%s&sslkey=%s", verified_by("ca.crt"),
             files_path("stranger.crt"), files_path("stranger.key"));
    refused_with(client_by("client", "localhost", settings), "alert unknown ca");
}

/* --- faults --- */

static void session_that_is_ended_is_reopened_over_tls(void **state) {
    rlock_client *of = client_by("me", "localhost", verified_by("ca.crt"));
    struct owner *o = renewed(of, "k");
    int i;
    (void)state;
    assert_int_equal(owner_acquire(o, 5000, 5000), RLOCK_OK);
    for (i = 0; i < 5; i++) {
        sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE "
            "application_name = 'rlock'");
        assert_true(kit_until(kit_is_down, of, 2000));
        assert_true(kit_until(kit_is_up, of, 5000));
    }
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

/* Before, in the middle of and after the handshake of TLS. */
static void server_that_stands_still_keeps_no_loop(void **state) {
    struct owner *a = owner_new(client_by("me", "localhost", verified_by("ca.crt")), "a"), *b;
    (void)state;
    assert_int_equal(owner_acquire(a, 5000, 1000), RLOCK_OK);
    b = owner_new(client_by("careful:right", "localhost", verified_by("ca.crt")), "b");
    assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 1000, owner_told, b), RLOCK_OK);
    kit_run(3);
    engine.pauses();
    assert_int_equal(owner_wait(a, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    kit_run(1500);
    call_begins();
    kit_reset(); /* a farewell that nobody reads */
    call_ends();
    engine.resumes();
}

/* --- the group --- */

static int group_begins(void **state) {
    (void)state;
    if (kit_open() != 0 || files_make() != 0 || engine.starts() != 0) {
        return -1;
    }
    sql("CREATE ROLE careful LOGIN PASSWORD 'right'; CREATE ROLE client LOGIN; "
        "GRANT rlock_user TO careful, client");
    postgres_rules(&g.server, "host all careful 127.0.0.1/32 scram-sha-256");
    postgres_rules(&g.server, "hostssl all client 127.0.0.1/32 cert");
    gives("ca.crt", "ca.crt");
    gives("server.crt", "server.crt");
    gives("server.key", "server.key");
    sql("ALTER SYSTEM SET ssl_ca_file = 'ca.crt'");
    sql("ALTER SYSTEM SET ssl = on");
    server_shows("server");
    return PQstatus(g.hand) == CONNECTION_OK ? 0 : -1;
}

static int group_ends(void **state) {
    (void)state;
    kit_close();
    engine.stops();
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    sql("ALTER SYSTEM SET ssl = on"); /* a test that failed may have left it off */
    server_shows("server");
    engine.clears();
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    engine.resumes();
    clients_end();
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        TEST(server_that_is_verified_is_used),
        TEST(certificate_for_another_name_is_refused),
        TEST(certificate_of_an_unknown_authority_is_refused),
        TEST(certificate_out_of_date_is_refused),
        TEST(refusal_of_one_host_of_several_is_reported),
        TEST(server_without_tls_is_refused_where_it_is_asked_for),
        TEST(scram_is_bound_to_the_channel),
        TEST(certificate_of_the_client_is_asked_for),
        TEST(session_that_is_ended_is_reopened_over_tls),
        TEST(server_that_stands_still_keeps_no_loop),
        TEST(no_call_of_the_loop_has_blocked),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("postgres-tls", tests, group_begins, group_ends);
}
