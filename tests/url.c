/* url.c - config.url: what each form means, what is refused and in which words, what is never shown
 *
 * Nothing here connects: a client does that when it is asked for something.
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#define SECRET "s3cr3t"

static struct {
    struct virtual_loop loop;
    int lines;
    char line[RLOCK__LINE];
} g;

static void on_log(void *user, int level, const char *line) {
    (void)user;
    g.lines++;
    assert_int_equal(level, RLOCK_LOG_ERROR);
    snprintf(g.line, sizeof g.line, "%s", line);
}

static int setup(void **state) {
    (void)state;
    memset(&g, 0, sizeof g);
    virtual_begin(&g.loop);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (!virtual_torn(&g.loop)) {
        virtual_end(&g.loop);
        SAME(virtual_memory.live, 0);
    }
    return 0;
}

static rlock_config config_of(const char *url) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    config.loop = virtual_hooks(&g.loop);
    config.log = on_log;
    config.url = url;
    return config;
}

/* ------------------------------------------------------------------------------------------------
 * What it means.
 */

static const char *shown(const char *text) {
    return text != NULL ? text : "(none)";
}

/* The fields that are set, as a text. They are read by name, not as the library reads them. */
static const char *fields(const rlock_config *config) {
    static char text[600];
    const struct {
        const char *name, *value;
    } texts[] = {{"host", config->host},
                 {"unix", config->unix_path},
                 {"user", config->username},
                 {"password", config->password},
                 {"sentinels", config->sentinels},
                 {"primary", config->sentinel_primary},
                 {"cluster", config->cluster},
                 {"suser", config->sentinel_username},
                 {"spassword", config->sentinel_password},
                 {"name", config->client_name},
                 {"prefix", config->prefix}};
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"port", config->port},
                   {"db", config->database},
                   {"wire", config->wire},
                   {"watchdog_lease_ms", config->watchdog_lease_ms},
                   {"command_timeout_ms", config->command_timeout_ms},
                   {"poll_ms", config->poll_ms},
                   {"drift_permille", config->drift_permille},
                   {"handovers", config->handovers},
                   {"quarantine_ms", config->quarantine_ms},
                   {"replicas", config->replicas},
                   {"replicas_ms", config->replicas_ms},
                   {"trust_plain_sentinels", config->trust_plain_sentinels}};
    size_t n = 0, i;
    text[0] = 0;
    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].value != NULL) {
            n += (size_t)snprintf(text + n, sizeof text - n, " %s=%s", texts[i].name,
                                  texts[i].value);
        }
    }
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value != 0) {
            n += (size_t)snprintf(text + n, sizeof text - n, " %s=%lld", numbers[i].name,
                                  (long long)numbers[i].value);
        }
    }
    return n > 0 ? text + 1 : text;
}

static void each_form_means_what_its_fields_mean(void **state) {
    static const struct {
        const char *url, *fields;
    } forms[] = {
        {"redis://", ""},
        {"redis:///", ""},
        {"redis://h", "host=h"},
        {"valkey://h/", "host=h"},
        {"redis://h:6380", "host=h port=6380"},
        {"redis://h:1", "host=h port=1"},
        {"redis://h:65535/", "host=h port=65535"},
        {"redis://:6380", "port=6380"},
        {"redis://h/0", "host=h"},
        {"redis://h/7", "host=h db=7"},
        {"redis://h/7/", "host=h db=7"},
        {"redis://h:06380/2147483647?", "host=h port=6380 db=2147483647"},
        {"redis://user:password@host:6380/9",
         "host=host user=user password=password port=6380 db=9"},
        {"redis://:pw@h", "host=h password=pw"},
        {"redis://user:@h", "host=h user=user password="},
        {"redis://:@h", "host=h"},
        {"redis://@h", "host=h"},
        {"redis://:a:b:@h", "host=h password=a:b:"},
        {"redis://u%3a:%25%2F%3f%40%23%C3%a4@h", "host=h user=u: password=%/?@#\xc3\xa4"},
        {"redis://:a=b&c@h", "host=h password=a=b&c"},
        {"redis://my%2dhost", "host=my-host"},
        {"redis://[::1]", "host=::1"},
        {"redis://u:p@[fe80::1%25lo]:6380/1", "host=fe80::1%lo user=u password=p port=6380 db=1"},
        {"redis://h?db=3", "host=h db=3"},
        {"redis://h/?db=0", "host=h"},
        {"redis://h?client_name=a%26b+c&prefix=p%3a", "host=h name=a&b+c prefix=p:"},
        {"redis://h?wire=string", "host=h"},
        {"redis://h?wire=redisson", "host=h wire=1"},
        {"redis://h?watchdog_lease_ms=10&command_timeout_ms=1&poll_ms=86400000&drift_permille=500"
         "&handovers=-1",
         "host=h watchdog_lease_ms=10 command_timeout_ms=1 poll_ms=86400000 drift_permille=500 "
         "handovers=-1"},
        {"redis://h?watchdog_lease_ms=86400000&handovers=4096",
         "host=h watchdog_lease_ms=86400000 handovers=4096"},
        {"redis://h?replicas_ms=1&replicas=2&quarantine_ms=13&handovers=4&drift_permille=5"
         "&poll_ms=6&command_timeout_ms=7&watchdog_lease_ms=11", /* none writes over the next */
         "host=h watchdog_lease_ms=11 command_timeout_ms=7 poll_ms=6 drift_permille=5 handovers=4 "
         "quarantine_ms=13 replicas=2 replicas_ms=1"},
        {"redis://h?handovers=0&", "host=h"},
        {"redis://h?quarantine_ms=86400000", "host=h quarantine_ms=86400000"},
        {"redis://h?replicas=100&replicas_ms=1", "host=h replicas=100 replicas_ms=1"},
        {"redis://h?poll_ms=%31%30", "host=h poll_ms=10"},
        {"unix:///tmp/s", "unix=/tmp/s"},
        {"unix:///tmp/a%20b/s?db=1", "unix=/tmp/a b/s db=1"},
        {"unix:///tmp/s/", "unix=/tmp/s/"},
        {"unix://u:p@/tmp/s?poll_ms=5", "unix=/tmp/s user=u password=p poll_ms=5"},
        {"unix:///tmp/a%3Db%40c%3F", "unix=/tmp/a=b@c?"},
        {"redis+sentinel://h/name", "sentinels=h primary=name"},
        {"valkey+sentinel://h:26379,h2,[::1]:26380/name/",
         "sentinels=h:26379,h2,[::1]:26380 primary=name"},
        {"redis+sentinel://u:p@h,h2/na%2Dme/3/",
         "user=u password=p sentinels=h,h2 primary=na-me db=3"},
        {"redis+cluster://h", "cluster=h"},
        {"valkey+cluster://u:p@h:7000,h2,[::1]:7001/?poll_ms=9",
         "user=u password=p cluster=h:7000,h2,[::1]:7001 poll_ms=9"},
        {"redis+sentinel://h/"
         "name?sentinel_username=su&sentinel_password=s%40p&sentinel_tls=no&db=2",
         "sentinels=h primary=name suser=su spassword=s@p db=2"},
        {"redis+sentinel://h/n?trust_plain_sentinels=yes",
         "sentinels=h primary=n trust_plain_sentinels=1"},
        {"redis+sentinel://h/n?trust_plain_sentinels=no&sentinel_tls=no", "sentinels=h primary=n"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof forms / sizeof *forms; i++) {
        rlock_config config = config_of(forms[i].url);
        char line[RLOCK__LINE] = "", *texts;
        int status = rlock__url_resolve(&config, false, &texts, line);
        if (status != RLOCK_OK || strcmp(fields(&config), forms[i].fields) != 0) {
            fail_msg("%s: status %d, %s, %s", forms[i].url, status, line, fields(&config));
        }
        SAME(virtual_memory.live, 1); /* all texts in one piece */
        rlock__dealloc(texts);
    }
}

/* Hooks that are never called: nothing here connects. */
static const rlock_tls hooks = {NULL, NULL, NULL, NULL, false},
                       sentinel_hooks = {NULL, NULL, NULL, NULL, false};

static void url_decides_what_is_encrypted(void **state) {
    static const struct {
        const char *url;
        const rlock_tls *own, *tls, *sentinel_tls;
    } rows[] = {
        {"redis://h", NULL, NULL, NULL},
        {"rediss://h", NULL, &hooks, NULL},
        {"valkeys://h", NULL, &hooks, NULL},
        {"unix:///s", NULL, NULL, NULL},
        {"redis+sentinel://h/n", NULL, NULL, NULL},
        {"redis+cluster://h", NULL, NULL, NULL},
        {"rediss+cluster://h", NULL, &hooks, NULL},
        {"redis+sentinel://h/n?sentinel_tls=yes", NULL, NULL, &hooks},
        {"rediss+sentinel://h/n", NULL, &hooks, &hooks},
        {"rediss+sentinel://h/n", &sentinel_hooks, &hooks, &sentinel_hooks},
        {"rediss+sentinel://h/n?sentinel_tls=no", &sentinel_hooks, &hooks, NULL},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        rlock_config config = config_of(rows[i].url);
        char line[RLOCK__LINE] = "", *texts;
        config.tls = &hooks;
        config.sentinel_tls = rows[i].own;
        SAME(rlock__url_resolve(&config, false, &texts, line), RLOCK_OK);
        assert_ptr_equal(config.tls, rows[i].tls);
        assert_ptr_equal(config.sentinel_tls, rows[i].sentinel_tls);
        rlock__dealloc(texts);
    }
}

#if RLOCK__HAS_REPLICAS && RLOCK__HAS_REDISSON
static void client_has_what_its_url_says(void **state) {
    rlock_config config = config_of("redis://user:p%40ss@127.0.0.1:6380/5?watchdog_lease_ms=7000"
                                    "&command_timeout_ms=800&poll_ms=70&drift_permille=20"
                                    "&handovers=3&client_name=me&prefix=own:&wire=redisson"
                                    "&quarantine_ms=9000&replicas=2&replicas_ms=90");
    rlock_client *client = NULL;
    const rlock__redis *redis;
    (void)state;
    SAME(rlock_client_new(&client, &config), RLOCK_OK);
    redis = (const rlock__redis *)client->store_state;
    SAME(client->watchdog_lease_ms, 7000);
    SAME(client->command_timeout_ms, 800);
    SAME(redis->timeout_us, 800000);
    SAME(client->poll_ms, 70);
    SAME(client->drift_permille, 20);
    SAME(client->handovers, 3);
    SAME(client->lease_most_ms, 9000);
    SAME(redis->quarantine->ms, 9000);
    SAME(redis->sync->replicas, 2);
    SAME(redis->sync->ms, 90);
    assert_string_equal(redis->endpoint.host, "127.0.0.1");
    SAME(redis->endpoint.port, 6380);
    assert_string_equal(redis->username, "user");
    assert_string_equal(redis->password, "p@ss");
    SAME(redis->database, 5);
    assert_string_equal(redis->name, "me");
    assert_string_equal(redis->prefix, "own:");
    SAME(redis->wire, RLOCK_WIRE_REDISSON);
    virtual_client_free(&g.loop, client);
    SAME(g.lines, 0);
}
#endif

static void client_has_defaults_for_what_its_url_leaves_out(void **state) {
    rlock_config config = config_of("redis://");
    rlock_client *client = NULL;
    const rlock__redis *redis;
    (void)state;
    config.poll_ms = 60; /* what is not of the address may be a field */
    config.client_name = "me";
    SAME(rlock_client_new(&client, &config), RLOCK_OK);
    redis = (const rlock__redis *)client->store_state;
    SAME(client->watchdog_lease_ms, 30000);
    SAME(client->command_timeout_ms, 1000);
    SAME(client->poll_ms, 60);
    SAME(client->drift_permille, 10);
    SAME(client->handovers, 256);
    SAME(client->lease_most_ms, RLOCK_LEASE_MAX_MS);
#if RLOCK__HAS_REPLICAS
    assert_null(redis->quarantine);
    assert_null(redis->sync);
#endif
    assert_string_equal(redis->endpoint.host, "127.0.0.1");
    SAME(redis->endpoint.port, 6379);
    assert_string_equal(redis->name, "me");
    assert_string_equal(redis->prefix, "rlock:");
    assert_null(redis->password);
    virtual_client_free(&g.loop, client);
}

/* ------------------------------------------------------------------------------------------------
 * What is refused.
 */

static void refuse(const rlock_config *config, const char *why) {
    rlock_client *client = NULL;
    int lines = g.lines, status = rlock_client_new(&client, config);
    if (status != RLOCK_ERR_ARG || client != NULL || g.lines != lines + 1 ||
        (why != NULL && strcmp(g.line, why) != 0)) {
        fail_msg("%s: status %d, %d lines, the last one: %s, not: %s", shown(config->url), status,
                 g.lines - lines, g.line, shown(why));
    }
    SAME(virtual_memory.live, 0);
}

static void what_is_wrong_is_named(void **state) {
    static const struct {
        const char *url, *why; /* after "config.url: " */
    } wrong[] = {
#define SCHEME                                                                                   \
    "the scheme is not redis, rediss, unix, redis+sentinel, redis+cluster or one of these with " \
    "rediss"
        {"", SCHEME},
        {"127.0.0.1:6379", SCHEME},
        {"http://h", SCHEME},
        {"redis:/h", SCHEME},
        {"REDIS://h", SCHEME},
        {"redisx://h", SCHEME},
        {"redis+sentine://h/n", SCHEME},
        {"unixs:///h", SCHEME},
        {"unix+sentinel:///h", SCHEME},
        {"rediss+sentinels://h/n", SCHEME},
#define OTHER                                                                                    \
    "the scheme is for another engine: build with RLOCK_WITH_POSTGRES, _ZOOKEEPER or _MARIADB, " \
    "see "                                                                                       \
    "stores/rlock_stores.h"
        {"postgres://me:" SECRET "@h/shop", OTHER},
        {"postgresql://h/shop", OTHER},
        {"zookeeper://h1,h2/locks", OTHER},
        {"mysql://me:" SECRET "@h/shop", OTHER},
        {"mariadb://h/shop", OTHER},
        {"postgresx://h", SCHEME},
        {"rediss://h", "TLS needs config.tls: see rlock_tls.h"},
        {"redis+sentinel://h/n?sentinel_tls=yes", "TLS needs config.tls: see rlock_tls.h"},
        {"valkeys://h", "TLS needs config.tls: see rlock_tls.h"},
        {"rediss+sentinel://h/n?sentinel_tls=no", "TLS needs config.tls: see rlock_tls.h"},
#define STRAY "the user or the password contains / ? # or @: write %2F %3F %23 %40"
        {"redis://:pa/ss@h", STRAY},
        {"redis://:pa@ss@h", STRAY},
        {"redis://:pa?ss@h", STRAY},
        {"redis://:pa#ss@h", STRAY},
        {"redis://:pa/ss@h:99999/x", STRAY},
        {"redis://u/:pass@h", STRAY},
        {"redis://h/0?client_name=a@b", STRAY},
        {"unix:///tmp/a@b", STRAY},
        {"redis://user@h", "the user has no password"},
        {"redis://us%zzer:p@h", "the user has a % without two hex digits"},
        {"redis://u:pa%ss@h", "the password has a % without two hex digits"},
        {"redis://u:pass%@h", "the password has a % without two hex digits"},
        {"redis://u:pass%4@h", "the password has a % without two hex digits"},
        {"redis://u:pass%-1@h", "the password has a % without two hex digits"},
        {"redis://u:pass%0x1@h", "the password has a % without two hex digits"},
        {"redis://u:pa%00ss@h", "the password has a %00"},
        {"redis://u%00:pass@h", "the user has a %00"},
        {"redis://h%00", "the host has a %00"},
        {"redis://h%2", "the host has a % without two hex digits"},
        {"redis+sentinel://h,h%2/n", "the host has a % without two hex digits"},
        {"redis://h:99999", "the port must be 1 to 65535"},
        {"redis://h:65536", "the port must be 1 to 65535"},
        {"redis://h:0", "the port must be 1 to 65535"},
        {"redis://h:-1", "the port must be 1 to 65535"},
        {"redis://h:", "the port must be 1 to 65535"},
        {"redis://h:/1", "the port must be 1 to 65535"},
        {"redis://h:63x79", "the port must be 1 to 65535"},
        {"redis://h: 6379", "the port must be 1 to 65535"},
        {"redis://h:+6379", "the port must be 1 to 65535"},
        {"redis://h:%36", "the port must be 1 to 65535"},
        {"redis://h:18446744073709551617", "the port must be 1 to 65535"},
        {"redis://[::1]:99999", "the port must be 1 to 65535"},
        {"redis+sentinel://h:1,h2:70000/n", "the port must be 1 to 65535"},
        {"redis://::1", "the host has two \":\"; IPv6 needs brackets"},
        {"redis://h:1:2", "the host has two \":\"; IPv6 needs brackets"},
        {"redis+sentinel://h,::1/n", "the host has two \":\"; IPv6 needs brackets"},
        {"redis://[::1", "the host has brackets but is not an IPv6 address"},
        {"redis://[]", "the host has brackets but is not an IPv6 address"},
        {"redis://[localhost]:1", "the host has brackets but is not an IPv6 address"},
        {"redis://[::1/0", "the host has brackets but is not an IPv6 address"},
        {"redis://[::1]6379", "the host has brackets but is not an IPv6 address"},
        {"redis+sentinel://[::1,h/n", "the host has brackets but is not an IPv6 address"},
        {"redis://h=1", "the address contains =: write %3D"},
        {"unix:///tmp/s&db=1", "the address contains =: write %3D"},
        {"redis://h/x", "the database must be 0 to 2147483647"},
        {"redis://h/-1", "the database must be 0 to 2147483647"},
        {"redis://h/1/2", "the database must be 0 to 2147483647"},
        {"redis://h//1", "the database must be 0 to 2147483647"},
        {"redis://h/2147483648", "the database must be 0 to 2147483647"},
        {"redis://h/9223372036854775808", "the database must be 0 to 2147483647"},
        {"redis://h/0#part", "the database must be 0 to 2147483647"},
        {"redis+sentinel://h/n/x", "the database must be 0 to 2147483647"},
        {"redis+sentinel://h", "the name of the primary is missing"},
        {"redis+sentinel://h/", "the name of the primary is missing"},
        {"redis+sentinel://h//0", "the name of the primary is missing"},
        {"redis+sentinel://h/%", "the name of the primary has a % without two hex digits"},
        {"redis+sentinel://h/%00", "the name of the primary has a %00"},
        {"redis+sentinel:///n", "the host of a Sentinel is missing"},
        {"redis+sentinel://:26379/n", "the host of a Sentinel is missing"},
        {"redis+sentinel://h,/n", "the host of a Sentinel is missing"},
        {"redis+sentinel://h,,h2/n", "the host of a Sentinel is missing"},
        {"redis+cluster://", "the host of a node is missing"},
        {"redis+cluster://h,", "the host of a node is missing"},
        {"redis+cluster://h/x", "the database must be 0 to 2147483647"},
        {"redis+sentinel+cluster://h", SCHEME},
        {"redis+cluster://h?sentinel_username=u", "the parameter \"sentinel_username\" is unknown"},
        {"unix://", "the path does not begin with /"},
        {"unix://tmp/s", "the path does not begin with /"},
        {"unix:///tmp/%00", "the path has a %00"},
        {"redis://h?db", "a parameter has no value"},
        {"redis://h?&db=1", "a parameter has no value"},
        {"redis://h?=1", "the parameter \"\" is unknown"},
        {"redis://h?pol_ms=1", "the parameter \"pol_ms\" is unknown"},
        {"redis://h?POLL_MS=1", "the parameter \"POLL_MS\" is unknown"},
        {"redis://h?database=1", "the parameter \"database\" is unknown"},
        {"redis://h?%64b=1", "the parameter \"%64b\" is unknown"},
        {"redis://h?sentinel_username=u", "the parameter \"sentinel_username\" is unknown"},
        {"redis://h?sentinel_tls=no", "the parameter \"sentinel_tls\" is unknown"},
        {"redis+sentinel://h/n?sentinel_password=ab&cd=ef", "the parameter is unknown"},
        {"redis://h?db=1&db=1", "the parameter \"db\" is set twice, in the URL or as a field"},
        {"redis://h?db=0&db=0", "the parameter \"db\" is set twice, in the URL or as a field"},
        {"redis://h/0?db=1", "the parameter \"db\" is set twice, in the URL or as a field"},
        {"redis://h?prefix=a&prefix=a",
         "the parameter \"prefix\" is set twice, in the URL or as a field"},
        {"redis://h?wire=string&wire=string",
         "the parameter \"wire\" is set twice, in the URL or as a field"},
        {"redis+sentinel://h/n?sentinel_tls=no&sentinel_tls=yes",
         "the parameter \"sentinel_tls\" is set twice, in the URL or as a field"},
        {"redis+sentinel://h/n?sentinel_tls=", "the parameter \"sentinel_tls\" is not yes or no"},
        {"redis+sentinel://h/n?trust_plain_sentinels=1",
         "the parameter \"trust_plain_sentinels\" is not yes or no"},
        {"redis+sentinel://h/n?trust_plain_sentinels=yes&trust_plain_sentinels=no",
         "the parameter \"trust_plain_sentinels\" is set twice, in the URL or as a field"},
        {"redis://h?trust_plain_sentinels=yes",
         "the parameter \"trust_plain_sentinels\" is unknown"},
        {"redis://h?wire=1", "the parameter \"wire\" is not string or redisson"},
        {"redis://h?wire=", "the parameter \"wire\" is not string or redisson"},
        {"redis://h?db=", "the parameter \"db\" must be 0 to 2147483647"},
        {"redis://h?db=-1", "the parameter \"db\" must be 0 to 2147483647"},
        {"redis://h?db=4294967296", "the parameter \"db\" must be 0 to 2147483647"},
        {"redis://h?client_name=%00", "the parameter \"client_name\" has a %00"},
        {"redis://h?client_name=%", "the parameter \"client_name\" has a % without two hex digits"},
        {"redis://h?watchdog_lease_ms=9",
         "the parameter \"watchdog_lease_ms\" must be 10 to 86400000"},
        {"redis://h?watchdog_lease_ms=86400001",
         "the parameter \"watchdog_lease_ms\" must be 10 to 86400000"},
        {"redis://h?command_timeout_ms=0",
         "the parameter \"command_timeout_ms\" must be 1 to 86400000"},
        {"redis://h?poll_ms=18446744073709551617",
         "the parameter \"poll_ms\" must be 1 to 86400000"},
        {"redis://h?poll_ms=4294967297", "the parameter \"poll_ms\" must be 1 to 86400000"},
        {"redis://h?poll_ms=1e3", "the parameter \"poll_ms\" must be 1 to 86400000"},
        {"redis://h?poll_ms=0x10", "the parameter \"poll_ms\" must be 1 to 86400000"},
        {"redis://h?poll_ms=1%20", "the parameter \"poll_ms\" must be 1 to 86400000"},
        {"redis://h?drift_permille=501", "the parameter \"drift_permille\" must be 1 to 500"},
        {"redis://h?quarantine_ms=9", "the parameter \"quarantine_ms\" must be 10 to 86400000"},
        {"redis://h?replicas=101", "the parameter \"replicas\" must be 1 to 100"},
        {"redis://h?replicas_ms=-1", "the parameter \"replicas_ms\" must be 1 to 86400000"},
        {"redis://h?handovers=-2", "the parameter \"handovers\" must be -1 to 4096"},
        {"redis://h?handovers=4097", "the parameter \"handovers\" must be -1 to 4096"},
        {"redis://h?handovers=-", "the parameter \"handovers\" must be -1 to 4096"},
        {"redis://h?handovers=--1", "the parameter \"handovers\" must be -1 to 4096"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rlock_config config = config_of(wrong[i].url);
        char why[RLOCK__LINE];
        snprintf(why, sizeof why, "config.url: %s", wrong[i].why);
        refuse(&config, why);
    }
}

static void quiet_program_is_refused_too(void **state) {
    rlock_config config = config_of("redis://h:0");
    rlock_client *client = NULL;
    (void)state;
    config.log = NULL;
    SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_null(client);
}

static struct redisAsyncContext *connects(void *user) {
    (void)user;
    return NULL;
}

#define BESIDE(member, value)                                                                      \
    do {                                                                                           \
        rlock_config both = config_of("redis://127.0.0.1");                                        \
        both.member = value;                                                                       \
        refuse(                                                                                    \
            &both,                                                                                 \
            "config.url cannot be combined with host to database, sentinels, cluster or connect"); \
    } while (0)

#define TWICE(member, value, text)                                            \
    do {                                                                      \
        rlock_config both = config_of("redis://127.0.0.1?" #member "=" text); \
        both.member = value;                                                  \
        refuse(&both, "config.url: the parameter \"" #member                  \
                      "\" is set twice, in the URL or as a field");           \
    } while (0)

static void fields_that_it_replaces_are_refused_beside_it(void **state) {
    (void)state;
    BESIDE(host, "127.0.0.1");
    BESIDE(port, 6379);
    BESIDE(unix_path, "/tmp/s");
    BESIDE(username, "u");
    BESIDE(password, SECRET);
    BESIDE(database, 1);
    BESIDE(connect, connects);
    BESIDE(sentinels, "h");
    BESIDE(cluster, "h");
    BESIDE(sentinel_primary, "n");
    BESIDE(sentinel_username, "u");
    BESIDE(sentinel_password, SECRET);
    TWICE(client_name, "me", "me");
    TWICE(prefix, "p:", "p:");
    TWICE(wire, RLOCK_WIRE_REDISSON, "redisson");
    TWICE(watchdog_lease_ms, 1000, "1000");
    TWICE(command_timeout_ms, 1000, "1000");
    TWICE(poll_ms, 1000, "1000");
    TWICE(drift_permille, 10, "10");
    TWICE(handovers, 1, "1");
    TWICE(quarantine_ms, 40000, "40000");
    TWICE(replicas, 1, "1");
    TWICE(replicas_ms, 10, "10");
    {
        rlock_config both = config_of("redis+sentinel://h/n?trust_plain_sentinels=yes");
        both.trust_plain_sentinels = true;
        refuse(&both, "config.url: the parameter \"trust_plain_sentinels\" is set twice, in the "
                      "URL or as a field");
    }
}

#if RLOCK__HAS_MEMORY
static void other_store_has_no_url(void **state) {
    rlock_config config = config_of("redis://:" SECRET "@h");
    rlock_store *store = NULL;
    (void)state;
    SAME(rlock_memory_new(&store), RLOCK_OK);
    config.store = store;
    SAME(rlock_client_new(&(rlock_client *){NULL}, &config), RLOCK_ERR_ARG);
    assert_string_equal(g.line, "config.url cannot be combined with config.store");
    rlock_memory_free(store);
}
#endif

/* What the fields are checked for, a URL's are too. */
static void what_the_store_refuses_of_a_url_is_refused(void **state) {
    rlock_config config = config_of("redis://h?prefix=%7B");
    rlock_client *client = NULL;
    (void)state;
    config.loop.resolve = NULL;
    SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_non_null(strstr(g.line, "config.prefix has a brace"));
    config.url = "redis://h";
    SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_non_null(strstr(g.line, "a host name needs loop.resolve"));
    config.url = "redis+sentinel://h/n";
    SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    SAME(g.lines, 3);
}

/* ------------------------------------------------------------------------------------------------
 * What is never shown: a password, whole or in part, however a URL is broken.
 */

static void look_for_the_secret(const char *url) {
    rlock_config config = config_of(url);
    rlock_client *client = NULL;
    g.line[0] = 0;
    if (rlock_client_new(&client, &config) == RLOCK_OK) {
        const rlock__redis *redis = (const rlock__redis *)client->store_state;
        const char *path = redis->unix_path != NULL ? redis->unix_path : redis->endpoint.host;
        if (strstr(path, SECRET) != NULL) { /* each line of a connection has it */
            fail_msg("%s: it leads to %s", url, path);
        }
        virtual_client_free(&g.loop, client);
    }
    if (strstr(g.line, SECRET) != NULL) {
        fail_msg("%s: %s", url, g.line);
    }
}

static void password_is_never_shown(void **state) {
    static const char *const urls[] = {
        "redis://user:" SECRET "@host:6379/0?poll_ms=100&client_name=me",
        "redis://:" SECRET "@host",
        "redis://:" SECRET "@[::1]:6379/1",
        "rediss://user:" SECRET "@host/0",
        "unix://user:" SECRET "@/tmp/socket?db=1",
        "redis+sentinel://user:" SECRET "@host:26379,host2:26379/name/0?db=1",
        "redis+sentinel://host:26379/name?sentinel_username=u&sentinel_password=" SECRET "&db=1",
        "redis+sentinel://host/name/0?poll_ms=5&sentinel_password=" SECRET,
        /* not encoded: these only as they are */
        "redis://user:/" SECRET "@host:6379/0",
        "redis://user:" SECRET "/x@host:6379/0",
        "redis://user:@" SECRET "@host:6379/0",
        "redis://user:" SECRET "@x@host:6379/0",
        "redis://user::" SECRET ":x@host:6379/0",
        "redis://user:%" SECRET "%@host:6379/0",
        "redis://user:?" SECRET "=x@host:6379/0",
        "redis://user:#" SECRET "#@host:6379/0",
        "redis://user:[" SECRET "]@host:6379/0",
        "redis://:12/" SECRET "@host:6379/0",
        "redis+sentinel://user:x," SECRET ",y@host/name",
        "redis+sentinel://host/name?sentinel_password=ab&" SECRET "=cd",
        "redis+sentinel://host/name?sentinel_password=ab&" SECRET "cd",
        "redis+sentinel://host/name?sentinel_password=a@b" SECRET "cd&db=1",
    };
    char url[200];
    size_t i, n, size;
    int byte;
    (void)state;
    for (i = 0; i < sizeof urls / sizeof *urls; i++) {
        size = strlen(urls[i]);
        look_for_the_secret(urls[i]);
        for (n = 0; i < 8 && n <= size; n++) {
            memcpy(url, urls[i], size + 1);
            url[n] = 0; /* every beginning */
            look_for_the_secret(url);
        }
        for (n = 0; i < 8 && n < size; n++) {
            memcpy(url, urls[i], size + 1);
            memmove(url + n, url + n + 1, size - n); /* every byte left out */
            look_for_the_secret(url);
            for (byte = 1; byte < 256; byte++) {
                memcpy(url, urls[i], size + 1);
                url[n] = (char)byte; /* every byte another */
                look_for_the_secret(url);
            }
        }
    }
}

static int resolves(void *state, rlock_name *name, const char *host) {
    (void)state, (void)name, (void)host;
    return -1;
}

#if RLOCK__HAS_CLUSTER
/* What was meant for config.url, or lacks a part, may have a password anywhere. */
static void password_in_another_field_is_refused_and_not_shown(void **state) {
    static const char *const texts[] = {
        "redis://user:" SECRET "@127.0.0.1:6379",
        "rediss://:" SECRET "@locks.example.com/0",
        "user:" SECRET "@127.0.0.1:6379",
        "user:" SECRET "@127.0.0.1",
        SECRET "@127.0.0.1",
        "user:" SECRET,
        "127.0.0.1:6379,user:" SECRET "@127.0.0.2:6379",
        "a.example,redis://user:" SECRET "@b.example",
        "[user:" SECRET "]",
    };
    size_t i;
    int field;
    (void)state;
    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (field = 0; field < 6; field++) {
            rlock_config config = config_of(NULL);
            rlock_store *store = NULL;
            config.loop.resolve = field % 2 ? resolves : NULL;
            if (field < 2) {
                config.host = texts[i];
            } else if (field < 4) {
                config.cluster = texts[i];
            } else {
                config.sentinels = texts[i];
                config.sentinel_primary = "locks";
            }
            refuse(&config, NULL);
            assert_null(strstr(g.line, SECRET));
            SAME(rlock_cluster_new(&store, &(rlock_config){.host = texts[i]}, 1), RLOCK_OK);
            config = config_of(NULL);
            config.store = store;
            SAME(rlock_client_new(&(rlock_client *){NULL}, &config), RLOCK_ERR_ARG);
            assert_null(strstr(g.line, SECRET));
            rlock_cluster_free(store);
        }
    }
    {
        rlock_config config = config_of(NULL);
        config.unix_path = "unix://user:" SECRET "@/run/redis.sock";
        refuse(&config, NULL);
        assert_null(strstr(g.line, SECRET));
        assert_non_null(strstr(g.line, "a URL goes into config.url"));
    }
}
#endif

#define LINE_END "config.url contains a control character: remove it, or write it as %XX"

/* A secret of Kubernetes often ends in a line end; a line of the log has none. */
static void control_bytes_of_a_configuration_are_refused(void **state) {
    static const char *const urls[] = {
        "redis://h:6379\n",       "redis://h\r\n",           "redis://h/0\n",
        "redis://u:p@h/0?db=1\n", "unix:///tmp/s\n",         "redis+sentinel://h,h2/n\n",
        "redis+cluster://h\t",    "postgres://u:p@h/shop\n", "mysql://u:p@h/shop\x7f"};
    static const char *const hosts[] = {"h\n", "h\r", "\nh", "a\tb", "h\x7f", "a b", ""};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof urls / sizeof *urls; i++) {
        rlock_config config = config_of(urls[i]);
        refuse(&config, LINE_END);
    }
    for (i = 1; i < 32; i++) {
        char url[] = "redis://u:p?ss@h";
        rlock_config config = config_of(url);
        url[11] = (char)i;
        refuse(&config, LINE_END);
    }
    for (i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        rlock_config config = config_of(NULL);
        config.host = hosts[i];
        refuse(&config, NULL);
        SAME(strcspn(g.line, "\r\n\t\x7f"), strlen(g.line));
        assert_non_null(strstr(g.line, "config.host: expected a name or an address"));
        config.host = NULL;
        config.cluster = hosts[i];
        refuse(&config, NULL);
        assert_non_null(strstr(g.line, "config.cluster: expected host:6379,[::1]:6379, without"));
        config.cluster = NULL;
        config.sentinels = hosts[i];
        config.sentinel_primary = "locks";
        refuse(&config, NULL);
        assert_non_null(strstr(g.line, "config.sentinels: expected host:26379,[::1]:26379, "));
    }
    refuse(&(rlock_config){.loop = virtual_hooks(&g.loop), .log = on_log, .url = "redis://h%0a"},
           NULL);
    assert_non_null(strstr(g.line, "config.host: expected a name or an address"));
}

static int starts(void *ctx, struct redisAsyncContext *ac, const char *host) {
    (void)ctx, (void)ac, (void)host;
    return 0;
}
static void before(void *ctx) {
    (void)ctx;
}
static int why(void *ctx, struct redisAsyncContext *ac, char *words, size_t room) {
    (void)ctx, (void)ac, (void)words, (void)room;
    return RLOCK_OK;
}

#if RLOCK__HAS_QUORUM
/* What answers in the place of a Sentinel would name the host that is verified. */
static void tls_behind_plain_sentinels_needs_a_name_or_trust(void **state) {
    static const rlock_tls any = {NULL, starts, before, why, false};
    static const rlock_tls own = {NULL, starts, before, why, true};
    static const struct {
        const char *url; /* NULL: as fields */
        const rlock_tls *tls, *sentinel_tls;
        bool trusts, good;
    } rows[] = {
        {NULL, &any, NULL, false, false},
        {NULL, &any, NULL, true, true},
        {NULL, &any, &any, false, true},
        {NULL, &own, NULL, false, true},
        {NULL, NULL, NULL, false, true},
        {NULL, NULL, &any, false, true},
        {"rediss+sentinel://127.0.0.1/n", &any, NULL, false, true},
        {"rediss+sentinel://127.0.0.1/n?sentinel_tls=no", &any, NULL, false, false},
        {"rediss+sentinel://127.0.0.1/n?sentinel_tls=no", &any, &any, false, false},
        {"rediss+sentinel://127.0.0.1/n?sentinel_tls=no", &own, NULL, false, true},
        {"rediss+sentinel://127.0.0.1/n?sentinel_tls=no", &any, NULL, true, true},
        {"rediss+sentinel://127.0.0.1/n?sentinel_tls=no&trust_plain_sentinels=no", &any, NULL,
         false, false},
        {"rediss+sentinel://127.0.0.1/n?sentinel_tls=no&trust_plain_sentinels=yes", &any, NULL,
         false, true},
        {"redis+sentinel://127.0.0.1/n", &any, NULL, false, true},
        {"redis+sentinel://127.0.0.1/n?sentinel_tls=yes", &any, NULL, false, true},
    };
    size_t i;
    (void)state;
    for (i = 0; i < 2 * (sizeof rows / sizeof *rows); i++) {
        rlock_config config = config_of(rows[i / 2].url), one;
        rlock_client *client = NULL;
        rlock_store *store = NULL;
        int status;
        config.tls = rows[i / 2].tls;
        config.sentinel_tls = rows[i / 2].sentinel_tls;
        config.trust_plain_sentinels = rows[i / 2].trusts;
        config.sentinels = rows[i / 2].url == NULL ? "127.0.0.1" : NULL;
        config.sentinel_primary = rows[i / 2].url == NULL ? "n" : NULL;
        one = config;
        if (i % 2) { /* the same of a server of a quorum */
            SAME(rlock_quorum_new(&store, &one, 1), RLOCK_OK);
            config = config_of(NULL);
            config.store = store;
        }
        g.line[0] = 0;
        status = rlock_client_new(&client, &config);
        if (status != (rows[i / 2].good ? RLOCK_OK : RLOCK_ERR_ARG)) {
            fail_msg("row %zu: status %d, %s", i / 2, status, g.line);
        }
        if (!rows[i / 2].good) {
            assert_non_null(strstr(g.line, "server_name"));
            assert_non_null(strstr(g.line, "trust_plain_sentinels"));
        }
        virtual_client_free(&g.loop, client);
        rlock_quorum_free(store);
    }
}
#endif

static void long_parts_are_cut_in_the_log(void **state) {
    static char url[4000];
    size_t n;
    (void)state;
    for (n = 150; n < 600; n++) {
        rlock_config config = config_of(url);
        size_t head = (size_t)snprintf(url, sizeof url, "redis://h?");
        memset(url + head, 'x', n);
        snprintf(url + head + n, sizeof url - head - n, "=1");
        refuse(&config, NULL);
        assert_true(strlen(g.line) <= 255 && strstr(g.line, "the parameter \"xxx") != NULL);
    }
}

/* ------------------------------------------------------------------------------------------------
 * A quorum: each of its servers may have one.
 */

#if RLOCK__HAS_QUORUM

static int client_of_a_quorum(const rlock_config *servers, int count, rlock_store **store,
                              rlock_client **client) {
    rlock_config config = config_of(NULL);
    SAME(rlock_quorum_new(store, servers, count), RLOCK_OK);
    config.store = *store;
    return rlock_client_new(client, &config);
}

static void servers_of_a_quorum_take_urls(void **state) {
    char url[] = "redis://user:pw@127.0.0.1:7001/3";
    rlock_config servers[3] = {config_of(url), config_of("unix:///tmp/s?db=2"), config_of(NULL)};
    const rlock__quorum *quorum;
    const rlock__redis *one, *two, *three;
    rlock_store *store = NULL;
    rlock_client *client = NULL;
    (void)state;
    servers[2].port = 7003;
    SAME(rlock_quorum_new(&store, servers, 3), RLOCK_OK);
    memset(url, 'x', sizeof url - 1); /* it was copied */
    servers[0] = config_of(NULL);
    servers[0].store = store;
    SAME(rlock_client_new(&client, &servers[0]), RLOCK_OK);
    quorum = (const rlock__quorum *)client->store_state;
    one = (const rlock__redis *)quorum->servers[0].state;
    two = (const rlock__redis *)quorum->servers[1].state;
    three = (const rlock__redis *)quorum->servers[2].state;
    assert_string_equal(one->endpoint.host, "127.0.0.1");
    SAME(one->endpoint.port, 7001);
    assert_string_equal(one->username, "user");
    assert_string_equal(one->password, "pw");
    SAME(one->database, 3);
    assert_string_equal(two->unix_path, "/tmp/s");
    SAME(two->database, 2);
    assert_null(two->password);
    assert_string_equal(three->endpoint.host, "127.0.0.1");
    SAME(three->endpoint.port, 7003);
    virtual_client_free(&g.loop, client);
    rlock_quorum_free(store);
}

static void bad_url_of_a_server_is_named_by_the_client(void **state) {
    static const struct {
        const char *url, *why;
    } wrong[] = {
        {"redis://127.0.0.1:0", "config.url: the port must be 1 to 65535"},
        {"redis://127.0.0.1?poll_ms=100",
         "config.url: the parameter \"poll_ms\" is unknown for a server of a quorum"},
        {"redis://127.0.0.1?wire=redisson",
         "config.url: the parameter \"wire\" is unknown for a server of a quorum"},
        {"redis://127.0.0.1?client_name=me",
         "config.url: the parameter \"client_name\" is unknown for a server of a quorum"},
        {"redis://h?prefix=p",
         "config.url: the parameter \"prefix\" is unknown for a server of a quorum"},
        {"postgres://h/shop", "config.url: " SCHEME}, /* no build makes that a server of it */
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rlock_config servers[2] = {config_of("redis://127.0.0.1"), config_of(wrong[i].url)};
        rlock_store *store = NULL;
        rlock_client *client = NULL;
        SAME(client_of_a_quorum(servers, 2, &store, &client), RLOCK_ERR_ARG);
        assert_null(client);
        SAME(g.lines, i + 1);
        assert_string_equal(g.line + 10, wrong[i].why); /* after the client's id */
        rlock_quorum_free(store);
    }
}

#if RLOCK__HAS_MEMORY
static void field_beside_a_url_of_a_server_is_refused(void **state) {
    rlock_config servers[1] = {config_of("redis://127.0.0.1")};
    rlock_store *store = NULL, *memory = NULL;
    rlock_client *client = NULL;
    (void)state;
    servers[0].password = SECRET;
    SAME(client_of_a_quorum(servers, 1, &store, &client), RLOCK_ERR_ARG);
    rlock_quorum_free(store);
    SAME(rlock_memory_new(&memory), RLOCK_OK);
    servers[0] = config_of("redis://127.0.0.1");
    servers[0].store = memory;
    SAME(client_of_a_quorum(servers, 1, &store, &client), RLOCK_ERR_ARG);
    assert_string_equal(g.line + 10, "config.url cannot be combined with config.store");
    rlock_quorum_free(store);
    rlock_memory_free(memory);
}
#endif

#endif /* RLOCK__HAS_QUORUM */

/* ------------------------------------------------------------------------------------------------
 * Memory.
 */

static int make(rlock_client **client) {
    rlock_config config =
        config_of("redis://user:pw@127.0.0.1/1?client_name=me&prefix=p:&poll_ms=9");
    *client = NULL;
    return rlock_client_new(client, &config);
}

#if RLOCK__HAS_QUORUM
static int make_of_a_quorum(rlock_client **client) {
    rlock_config servers[2] = {config_of("redis://u:p@127.0.0.1"), config_of("unix:///tmp/s")};
    rlock_config config = config_of(NULL);
    rlock_store *store = NULL;
    int status = rlock_quorum_new(&store, servers, 2);
    *client = NULL;
    config.store = store;
    status = status == RLOCK_OK ? rlock_client_new(client, &config) : status;
    virtual_client_free(&g.loop, *client);
    *client = NULL;
    rlock_quorum_free(store);
    return status;
}
#endif

static void every_allocation_may_fail(void **state) {
    int (*const all[])(rlock_client **) = {
        make,
#if RLOCK__HAS_QUORUM
        make_of_a_quorum,
#endif
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint64_t n;
        bool failed = true;
        for (n = 1; failed; n++) {
            rlock_client *client;
            int status;
            virtual_memory.fail_at = n;
            virtual_memory.failed = false;
            status = all[i](&client);
            failed = virtual_memory.failed;
            virtual_memory.fail_at = 0;
            SAME(status, failed ? RLOCK_ERR_NOMEM : RLOCK_OK);
            virtual_client_free(&g.loop, client);
            SAME(virtual_memory.live, 0);
        }
        assert_true(n > 8);
    }
    SAME(g.lines, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        CASE(each_form_means_what_its_fields_mean),
        CASE(url_decides_what_is_encrypted),
#if RLOCK__HAS_REPLICAS && RLOCK__HAS_REDISSON
        CASE(client_has_what_its_url_says),
#endif
        CASE(client_has_defaults_for_what_its_url_leaves_out),
        CASE(what_is_wrong_is_named),
        CASE(quiet_program_is_refused_too),
        CASE(fields_that_it_replaces_are_refused_beside_it),
#if RLOCK__HAS_MEMORY
        CASE(other_store_has_no_url),
#endif
#if RLOCK__HAS_NAMES && RLOCK__HAS_SENTINEL && RLOCK__HAS_TEXTS
        CASE(what_the_store_refuses_of_a_url_is_refused),
#endif
        CASE(password_is_never_shown),
#if RLOCK__HAS_CLUSTER && RLOCK__HAS_TEXTS
        CASE(password_in_another_field_is_refused_and_not_shown),
#endif
#if RLOCK__HAS_CLUSTER && RLOCK__HAS_SENTINEL && RLOCK__HAS_TEXTS
        CASE(control_bytes_of_a_configuration_are_refused),
#endif
#if RLOCK__HAS_QUORUM && RLOCK__HAS_SENTINEL && RLOCK__HAS_TLS && RLOCK__HAS_TEXTS
        CASE(tls_behind_plain_sentinels_needs_a_name_or_trust),
#endif
        CASE(long_parts_are_cut_in_the_log),
#if RLOCK__HAS_QUORUM
        CASE(servers_of_a_quorum_take_urls),
        CASE(bad_url_of_a_server_is_named_by_the_client),
#if RLOCK__HAS_MEMORY
        CASE(field_beside_a_url_of_a_server_is_refused),
#endif
#endif
        CASE(every_allocation_may_fail),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
