/* urls.c - config.url that names another engine: which store it makes, and what is refused
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
    assert_int_equal(level, RLOCK_LOG_ERROR);
    g.lines++;
    snprintf(g.line, sizeof g.line, "%s", line);
    assert_null(strstr(line, SECRET));
}

static int setup(void **state) {
    (void)state;
    memset(&g, 0, sizeof g);
    virtual_begin(&g.loop);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    virtual_end(&g.loop);
    SAME(virtual_memory.live, 0);
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

/* The client's store, if its functions are those of this one. */
static bool is_like(const rlock_client *client, const rlock_store *store) {
    return client->store->open == store->open && client->store->submit == store->submit;
}

static void each_scheme_makes_its_store_which_goes_with_the_client(void **state) {
    static const char *const urls[] = {
        "postgres://me:" SECRET "@h/shop", "postgresql://h1,h2/shop?sslmode=disable",
        "zookeeper://h1,h2:2182/locks", "mysql://me:" SECRET "@h/shop", "mariadb://me@h/shop"};
    rlock_store *stores[5];
    size_t i;
    (void)state;
    SAME(rlock_postgres_new(&stores[0], urls[0], 0), RLOCK_OK);
    SAME(rlock_postgres_new(&stores[1], urls[1], 0), RLOCK_OK);
    SAME(rlock_zookeeper_new(&stores[2], urls[2]), RLOCK_OK);
    SAME(rlock_mariadb_new(&stores[3], urls[3], 0), RLOCK_OK);
    SAME(rlock_mariadb_new(&stores[4], urls[4], 0), RLOCK_OK);
    for (i = 0; i < 5; i++) {
        rlock_config config = config_of(urls[i]);
        rlock_client *client;
        SAME(rlock_client_new(&client, &config), RLOCK_OK);
        assert_true(is_like(client, stores[i]));
        assert_ptr_equal(config.url, urls[i]); /* the config is the caller's */
        assert_null(config.store);
        rlock_client_free(client);
    }
    rlock_postgres_free(stores[0]);
    rlock_postgres_free(stores[1]);
    rlock_zookeeper_free(stores[2]);
    rlock_mariadb_free(stores[3]);
    rlock_mariadb_free(stores[4]);
    SAME(g.lines, 0);
}

/* The text that the caller gave is not read any more, and a handle may outlive the client. */
static void url_is_copied(void **state) {
    char *url = strdup("postgres://h/shop?pooler=yes");
    rlock_config config = config_of(url);
    rlock_options options;
    rlock_client *client;
    rlock *lock;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    SAME(rlock_client_new(&client, &config), RLOCK_OK);
    free(url);
    SAME(rlock_new(&lock, client, &options), RLOCK_OK);
    rlock_client_free(client);
    rlock_free(lock);
}

static bool pools(const char *url) {
    rlock_config config = config_of(url);
    rlock_client *client;
    bool pooler;
    SAME(rlock_client_new(&client, &config), RLOCK_OK);
    pooler = ((const rlock__pg *)client->store_state)->pooler;
    rlock_client_free(client);
    return pooler;
}

static void pooler_is_a_parameter_beside_those_of_libpq(void **state) {
    (void)state;
    assert_false(pools("postgres://h/shop"));
    assert_false(pools("postgres://h/shop?pooler=no"));
    assert_true(pools("postgres://h/shop?pooler=yes"));
    assert_true(pools("postgres://h/shop?pooler=yes&sslmode=disable"));
    assert_true(pools("postgres://h/shop?sslmode=disable&pooler=yes"));
    assert_true(pools("postgres://h/shop?sslmode=disable&pooler=yes&connect_timeout=3"));
}

static void what_is_wrong_is_named(void **state) {
    static const struct {
        const char *url, *words;
    } wrong[] = {
        {"postgres://me:" SECRET "@h/shop?pooler=perhaps",
         "config.url: a parameter's value is not valid"},
        {"postgres://me:" SECRET "@h/shop?pooler=", "config.url: a parameter's value is not valid"},
        {"postgres://me:" SECRET "@h/shop?poole=yes", "invalid URI query parameter"},
        {"postgres://me:" SECRET "@h/shop?apooler=yes", "invalid URI query parameter"},
        {"postgres://h1,h2,h3/x?port=1,2", "the URL of PostgreSQL needs 1 to 16 hosts"},
        {"zookeeper://", "the URL of ZooKeeper is not valid: expected hosts"},
        {"mysql://h/shop", "the URL of MariaDB is not valid: the user"},
        {"zookeeper://h/x?session_ms=1", "session_ms"},
        {"Postgres://h/x", "config.url: the scheme is not redis"},
        {"postgres:/h/x", "config.url: the scheme is for another engine"},
        {"postgres", "config.url: the scheme is not redis"},
        {"postgresq://h/x", "config.url: the scheme is not redis"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rlock_config config = config_of(wrong[i].url);
        rlock_client *client;
        g.lines = 0;
        if (rlock_client_new(&client, &config) != RLOCK_ERR_ARG || g.lines != 1 ||
            strstr(g.line, wrong[i].words) == NULL) {
            fail_msg("%s: %d lines, \"%s\"", wrong[i].url, g.lines, g.line);
        }
        assert_null(client);
    }
}

/* What is refused after the store was made frees it: the sanitizer sees that. */
static void other_errors_of_the_config_leave_nothing(void **state) {
    rlock_config config = config_of("postgres://h/shop");
    rlock_client *client;
    (void)state;
    config.poll_ms = -1;
    SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    config.poll_ms = 0;
    config.loop.watch = NULL;
    SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
}

static void store_of_ones_own_beside_it_is_refused(void **state) {
    rlock_config config = config_of("postgres://h/shop");
    rlock_client *client;
    rlock_store *store;
    (void)state;
    SAME(rlock_stores_new(&store, "zookeeper://h/x"), RLOCK_OK);
    config.store = store;
    SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    rlock_stores_free(store);
}

/* Else it would be ignored, whatever the engine. */
static void field_that_a_url_replaces_is_refused_beside_it(void **state) {
    static const char *const urls[] = {"postgres://me@h/shop", "zookeeper://h/x", "mysql://me@h/x"};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        rlock_config config = config_of(urls[i]);
        rlock_client *client;
        config.host = "elsewhere";
        SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
        config.host = NULL;
        config.password = SECRET;
        SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
        assert_string_equal(
            g.line,
            "config.url cannot be combined with host to database, sentinels, cluster or connect");
    }
    SAME(g.lines, 6);
}

static void servers_of_a_quorum_are_redis(void **state) {
    rlock_config config = config_of(NULL), members[3];
    rlock_client *client;
    rlock_store *quorum;
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        memset(&members[i], 0, sizeof members[i]);
        members[i].url = "postgres://h/shop";
    }
    SAME(rlock_quorum_new(&quorum, members, 3), RLOCK_OK);
    config.store = quorum;
    SAME(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_non_null(strstr(g.line, "the scheme is not redis"));
    rlock_quorum_free(quorum);
}

static void clients_may_share_a_store_that_is_made_by_hand(void **state) {
    rlock_config config = config_of(NULL);
    rlock_client *clients[2];
    rlock_store *store;
    (void)state;
    assert_true(rlock_stores_has("zookeeper://h/x"));
    assert_false(rlock_stores_has("redis://h"));
    assert_false(rlock_stores_has(NULL));
    SAME(rlock_stores_new(NULL, "zookeeper://h/x"), RLOCK_ERR_ARG);
    SAME(rlock_stores_new(&store, "redis://h"), RLOCK_ERR_ARG);
    assert_null(store);
    SAME(rlock_stores_new(&store, "zookeeper://h/x"), RLOCK_OK);
    config.store = store;
    SAME(rlock_client_new(&clients[0], &config), RLOCK_OK);
    SAME(rlock_client_new(&clients[1], &config), RLOCK_OK);
    rlock_client_free(clients[0]);
    rlock_client_free(clients[1]);
    rlock_stores_free(store);
    rlock_stores_free(NULL);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        CASE(each_scheme_makes_its_store_which_goes_with_the_client),
        CASE(url_is_copied),
        CASE(pooler_is_a_parameter_beside_those_of_libpq),
        CASE(what_is_wrong_is_named),
        CASE(other_errors_of_the_config_leave_nothing),
        CASE(store_of_ones_own_beside_it_is_refused),
        CASE(field_that_a_url_replaces_is_refused_beside_it),
        CASE(servers_of_a_quorum_are_redis),
        CASE(clients_may_share_a_store_that_is_made_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
