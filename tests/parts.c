/* parts.c - what a build with some parts of rlock.h accepts, and what it refuses by the name of the
 * macro that is missing. The same rows are run in every build: see docs/testing.md. */

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kit.h"

static struct server server;

/* ---- settings ---- */

static int never_starts(void *ctx, struct redisAsyncContext *ac, const char *host) {
    (void)ctx, (void)ac, (void)host;
    return RLOCK_ERR_CONN;
}

static void before_nothing(void *ctx) {
    (void)ctx;
}

static int why_not(void *ctx, struct redisAsyncContext *ac, char *words, size_t room) {
    (void)ctx, (void)ac, (void)words, (void)room;
    return RLOCK_OK;
}

static void on_event(void *user, const rlock_report *report) {
    (void)user, (void)report;
}

static void by_url(rlock_config *config) {
    config->url = "redis://127.0.0.1";
}

static void by_name(rlock_config *config) {
    config->host = "redis.invalid";
}

static void by_sentinels(rlock_config *config) {
    config->sentinels = "127.0.0.1:26379";
    config->sentinel_primary = "locks";
}

static void by_sentinels_of_a_name(rlock_config *config) {
    config->sentinels = "127.0.0.1,sentinel.invalid";
    config->sentinel_primary = "locks";
}

static void by_a_cluster(rlock_config *config) {
    config->cluster = "127.0.0.1:6379";
}

static void by_a_cluster_of_a_name(rlock_config *config) {
    config->cluster = "127.0.0.1,node.invalid";
}

static void by_tls(rlock_config *config) {
    static rlock_tls tls;

    tls.start = never_starts;
    tls.before = before_nothing;
    tls.why = why_not;
    config->tls = &tls;
}

static void with_replicas(rlock_config *config) {
    config->replicas = 1;
}

static void with_a_quarantine(rlock_config *config) {
    config->quarantine_ms = RLOCK_LEASE_MAX_MS;
}

static void of_redisson(rlock_config *config) {
    config->wire = RLOCK_WIRE_REDISSON;
}

static void with_reports(rlock_config *config) {
    config->on_event = on_event;
}

static void with_a_description(rlock_config *config) {
    config->description = "web-3";
}

static bool nowhere(void *user, const char *host, int port, char *new_host, size_t room,
                    int *new_port) {
    (void)user, (void)host, (void)port, (void)new_host, (void)room, (void)new_port;
    return false;
}

static void with_a_map(rlock_config *config) {
    config->map_address = nowhere;
}

static const struct setting {
    const char *name;
    void (*set)(rlock_config *config);
    const char *missing; /* the part that this build does not have; NULL: it has all */
} settings[] = {
#define WITHOUT(part) (RLOCK__HAS_##part ? NULL : "RLOCK_WITH_" #part)
#define WITHOUT_ONE(part, other) (RLOCK__HAS_##part ? WITHOUT(other) : "RLOCK_WITH_" #part)
    {"config.url", by_url, WITHOUT(URL)},
    {"config.host with a name", by_name, WITHOUT(NAMES)},
    {"config.sentinels", by_sentinels, WITHOUT(SENTINEL)},
    {"config.sentinels with a name", by_sentinels_of_a_name, WITHOUT_ONE(SENTINEL, NAMES)},
    {"config.cluster", by_a_cluster, WITHOUT(CLUSTER)},
    {"config.cluster with a name", by_a_cluster_of_a_name, WITHOUT_ONE(CLUSTER, NAMES)},
    {"config.tls", by_tls, WITHOUT(TLS)},
    {"config.replicas", with_replicas, WITHOUT(REPLICAS)},
    {"config.quarantine_ms", with_a_quarantine, WITHOUT(REPLICAS)},
    {"config.wire of Redisson", of_redisson, WITHOUT(REDISSON)},
    {"config.on_event", with_reports, WITHOUT(REPORTS)},
    {"config.description", with_a_description, WITHOUT(DESCRIPTIONS)},
    {"config.map_address", with_a_map, RLOCK__HAS_CLUSTER ? NULL : WITHOUT(SENTINEL)},
};

#define SETTINGS (sizeof settings / sizeof settings[0])

static void setting_is_accepted_or_names_its_macro(void **state) {
    const struct setting *setting = (const struct setting *)*state;
    rlock_config config = kit_config(&server);
    rlock_client *client = NULL;
    int status;

    config.unix_path = NULL; /* nothing is sent before the first request */
    setting->set(&config);
    status = rlock_client_new(&client, &config);
    if (setting->missing != NULL) {
        assert_int_equal(status, RLOCK_ERR_ARG);
        assert_null(client);
        assert_non_null(strstr(kit_log_text, setting->missing));
    } else {
        assert_string_equal(kit_log_text, "");
        assert_int_equal(status, RLOCK_OK);
        rlock_client_free(client);
    }
}

/* ---- what is asked of a handle ---- */

static void kind_or_set_is_accepted_or_names_its_macro(void **state) {
    static const char *const keys[] = {"a", "b"};
    rlock_config config = kit_config(&server);
    rlock_client *client = kit_client(&config);
    int row;

    (void)state;
    for (row = RLOCK_KIND_FAIR; row <= RLOCK_KIND_SEMAPHORE + 1; row++) {
        rlock_options options;
        struct owner *o;

        memset(&options, 0, sizeof options);
        if (row <= RLOCK_KIND_SEMAPHORE) {
            options.key = "k";
            options.kind = (rlock_kind)row;
            options.permits = row == RLOCK_KIND_SEMAPHORE ? 2 : 0;
        } else {
            options.keys = keys;
            options.key_count = 2;
        }
        kit_log_text[0] = '\0';
        o = owner_with(client, &options);
        if (RLOCK__HAS_KINDS) {
            assert_non_null(o);
            assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
            assert_int_equal(owner_release(o), RLOCK_OK);
        } else {
            assert_null(o);
            assert_non_null(strstr(kit_log_text, "RLOCK_WITH_KINDS"));
        }
    }
}

static void on_info(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)info;
    ++*(int *)user;
}

static int has_answered(void *arg) {
    return *(int *)arg > 0;
}

static void question_is_answered_or_refused(void **state) {
    rlock_config config = kit_config(&server);
    rlock_client *client = kit_client(&config);
    rlock_options options;
    int asked = 0, forced = 0;

    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    tell(ask(&server, "SET k foreign"));
    if (RLOCK__HAS_KINDS) {
        assert_int_equal(rlock_inspect(client, &options, on_info, &asked), RLOCK_OK);
        assert_true(kit_until(has_answered, &asked, 5000));
        assert_int_equal(rlock_force_release(client, &options, on_info, &forced), RLOCK_OK);
        assert_true(kit_until(has_answered, &forced, 5000));
        assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    } else {
        assert_int_equal(rlock_inspect(client, &options, on_info, &asked), RLOCK_ERR_ARG);
        assert_int_equal(rlock_force_release(client, &options, on_info, &forced), RLOCK_ERR_ARG);
        assert_int_equal(num(ask(&server, "EXISTS k")), 1);
        assert_int_equal(asked + forced, 0);
    }
    if (!RLOCK__HAS_KINDS || !RLOCK__HAS_DESCRIPTIONS) {
        assert_int_equal(rlock_describe(client, &options, on_info, &asked), RLOCK_ERR_ARG);
    }
}

/* ---- the server ---- */

/* A lock that nobody asks more of than a mutex sends no command of another part. */
static void mutex_sends_what_a_mutex_needs(void **state) {
    static const char *const others[] = {"wait", "role",    "sentinel", "cluster", "asking",
                                         "hset", "hexists", "zadd",     "publish"};
    rlock_config config = kit_config(&server);
    struct owner *o = owner_fenced(kit_client(&config), "k");
    struct owner *other = owner_fenced(kit_client(&config), "k");
    char said[16384], name[64];
    size_t i;

    (void)state;
    tell(ask(&server, "CONFIG RESETSTAT"));
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(other, 0, 60000), RLOCK_ERR_BUSY);
    assert_int_equal(rlock_acquire(other->lock, RLOCK_FOREVER, 60000, owner_told, other), RLOCK_OK);
    assert_int_equal(owner_renew(o, 60000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_wait(other, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(rlock_fence(other->lock) > o->fence[RLOCK_ACQUIRED]);
    assert_int_equal(owner_release(other), RLOCK_OK);
    snprintf(said, sizeof said, "%s", str(ask(&server, "INFO commandstats")));
    assert_non_null(strstr(said, "\ncmdstat_set:"));
    for (i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(name, sizeof name, "\ncmdstat_%s", others[i]);
        if (strstr(said, name) != NULL) {
            fail_msg("the server was told %s", others[i]);
        }
    }
}

/* ---- the group ---- */

static int group_begins(void **state) {
    (void)state;
    server.port = server_free_port();
    return server_start(&server, NULL) == 0 ? kit_open() : -1;
}

static int group_ends(void **state) {
    (void)state;
    kit_close();
    kit_hand_drop();
    server_stop(&server);
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    tell(ask(&server, "FLUSHALL"));
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    kit_reset();
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_begins, test_ends)

int main(int argc, char **argv) {
    const struct CMUnitTest others[] = {
        TEST(kind_or_set_is_accepted_or_names_its_macro),
        TEST(question_is_answered_or_refused),
        TEST(mutex_sends_what_a_mutex_needs),
    };
    struct CMUnitTest tests[SETTINGS + sizeof others / sizeof others[0]];
    static char names[SETTINGS][96];
    size_t i;

    memcpy(tests + SETTINGS, others, sizeof others);
    for (i = 0; i < SETTINGS; i++) {
        snprintf(names[i], sizeof names[i], "%s %s", settings[i].name,
                 settings[i].missing != NULL ? "is refused and its macro is named" : "is accepted");
        tests[i].name = names[i];
        tests[i].test_func = setting_is_accepted_or_names_its_macro;
        tests[i].setup_func = test_begins;
        tests[i].teardown_func = test_ends;
        tests[i].initial_state = (void *)(uintptr_t)&settings[i];
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("parts", tests, group_begins, group_ends);
}
