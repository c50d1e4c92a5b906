/* Certificates for the tests of TLS, made anew for each run in a folder of its own, which goes when
 * the program ends.
 *
 *     files_make();                       0, or -1
 *     files_path("ca.crt")                a path, good until the program ends
 */
#ifndef RLOCK_TESTS_TLS_FILES_H
#define RLOCK_TESTS_TLS_FILES_H

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include "private.h"

#define FILES_DAY (24 * 60 * 60L)
#define FILES_MAX 32

struct identity {
    EVP_PKEY *key;
    X509 *certificate;
};

static struct server files; /* the folder alone */

static inline const char *files_path(const char *name) {
    static char paths[FILES_MAX][128];
    static int next;
    char wanted[128];
    int i;

    snprintf(wanted, sizeof wanted, "%s/%s", files.dir, name);
    for (i = 0; i < next; i++) {
        if (strcmp(paths[i], wanted) == 0) {
            return paths[i];
        }
    }
    if (next == FILES_MAX) {
        fprintf(stderr, "too many files\n");
        exit(1);
    }
    memcpy(paths[next], wanted, sizeof wanted);
    return paths[next++];
}

static inline FILE *files_open(const char *name, const char *ending) {
    char whole[64];
    FILE *file;

    snprintf(whole, sizeof whole, "%s.%s", name, ending);
    file = fopen(files_path(whole), "w");
    if (file == NULL) {
        perror(files_path(whole));
        exit(1);
    }
    return file;
}

static inline void files_extend(X509 *certificate, int nid, const char *value) {
    X509V3_CTX ctx;
    X509_EXTENSION *extension;

    X509V3_set_ctx(&ctx, certificate, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

/* Makes NAME.crt and NAME.key; `names` is its subjectAltName, NULL = an authority. It is out of
 * date after so many days. The issuer NULL is itself. */
static inline struct identity files_identity(const char *name, const char *names, long days,
                                             const struct identity *issuer) {
    static long serial;
    struct identity it = {EVP_EC_gen("P-256"), X509_new()};
    X509_NAME *subject = X509_get_subject_name(it.certificate);
    FILE *file;

    issuer = issuer != NULL ? issuer : &it;
    X509_set_version(it.certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(it.certificate), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(it.certificate), -30 * FILES_DAY);
    X509_gmtime_adj(X509_getm_notAfter(it.certificate), days * FILES_DAY);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(it.certificate, X509_get_subject_name(issuer->certificate));
    X509_set_pubkey(it.certificate, it.key);
    if (names == NULL) {
        files_extend(it.certificate, NID_basic_constraints, "critical,CA:TRUE");
    } else {
        files_extend(it.certificate, NID_subject_alt_name, names);
    }
    if (it.key == NULL || X509_sign(it.certificate, issuer->key, EVP_sha256()) <= 0) {
        fprintf(stderr, "no certificate for %s\n", name);
        exit(1);
    }
    file = files_open(name, "crt");
    PEM_write_X509(file, it.certificate);
    fclose(file);
    file = files_open(name, "key");
    PEM_write_PrivateKey(file, it.key, NULL, NULL, 0, NULL, NULL);
    fclose(file);
    return it;
}

static inline void files_forget(struct identity *it) {
    EVP_PKEY_free(it->key);
    X509_free(it->certificate);
}

/* A folder with one authority in it, under the name by which OpenSSL looks for it. */
static inline void files_authority(const struct identity *ca) {
    char name[64];
    FILE *file;

    mkdir(files_path("authorities"), 0700);
    snprintf(name, sizeof name, "authorities/%08lx.0", X509_subject_name_hash(ca->certificate));
    file = fopen(files_path(name), "w");
    if (file == NULL) {
        perror(name);
        exit(1);
    }
    PEM_write_X509(file, ca->certificate);
    fclose(file);
}

/* What the tests use: see its names. */
static inline int files_make(void) {
    struct identity ca, other, one;
    FILE *file;

    if (server_folder(&files) != 0) {
        return -1;
    }
    ca = files_identity("ca", NULL, 30, NULL);
    files_authority(&ca);
    other = files_identity("other-ca", NULL, 30, NULL);
    one = files_identity("server", "DNS:localhost,IP:127.0.0.1", 30, &ca);
    files_forget(&one);
    one = files_identity("names", "DNS:localhost", 30, &ca);
    files_forget(&one);
    one = files_identity("elsewhere", "DNS:elsewhere.test,DNS:*.localhost", 30, &ca);
    files_forget(&one);
    one = files_identity("expired", "DNS:localhost,IP:127.0.0.1", -1, &ca);
    files_forget(&one);
    one = files_identity("stranger", "DNS:stranger.test", 30, &other);
    files_forget(&one);
    one = files_identity("client", "DNS:client.test", 30, &ca);
    file = files_open("both", "crt"); /* a certificate and its key in one file */
    PEM_write_X509(file, one.certificate);
    PEM_write_PrivateKey(file, one.key, NULL, NULL, 0, NULL, NULL);
    fclose(file);
    file = files_open("locked", "key");
    PEM_write_PrivateKey(file, one.key, EVP_aes_128_cbc(), (const unsigned char *)"word", 4, NULL,
                         NULL);
    fclose(file);
    files_forget(&one);
    files_forget(&other);
    files_forget(&ca);
    return 0;
}

#endif /* RLOCK_TESTS_TLS_FILES_H */
