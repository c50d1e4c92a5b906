/* clients.h - clients of an engine for the tests of its faults, on the loop and the owners of kit.h
 *
 * Included after measured.h and the engine's kit.
 */

#ifndef TESTS_ENGINES_CLIENTS_H
#define TESTS_ENGINES_CLIENTS_H

#define TIMEOUT_MS 400
#define LATE_MS 1000 /* that a busy machine lets this process stand still */

static struct {
    rlock_store *stores[KIT_CLIENTS];
    int store_count;
    int drift_permille; /* of the clients of a test; 0 = the default */
} made;

/* Makes a client of a store, which goes with it. poll_ms: 0 = the default. */
static inline rlock_client *client_on(rlock_store *store, int64_t timeout_ms, int64_t poll_ms) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    made.stores[made.store_count++] = store;
    config.store = store;
    config.loop = rlock_poll_loop(kit_poll);
    config.log = kit_log;
    config.command_timeout_ms = timeout_ms;
    config.poll_ms = poll_ms;
    config.drift_permille = made.drift_permille;
    return kit_client(&config);
}

static inline rlock_client *client_for(const char *url, int64_t timeout_ms) {
    rlock_store *store = NULL;
    assert_int_equal(engine.makes(&store, url), RLOCK_OK);
    return client_on(store, timeout_ms, 0);
}

static inline rlock_client *client_of(const char *url) {
    return client_for(url, TIMEOUT_MS);
}

static inline rlock_client *patient(int64_t timeout_ms) {
    char url[256];
    engine.writes_url(url, false, true);
    return client_for(url, timeout_ms);
}

static inline rlock_client *client(void) {
    char url[256];
    engine.writes_url(url, false, false);
    return client_of(url);
}

/* By way of the proxy. */
static inline rlock_client *proxied_for(int64_t timeout_ms) {
    char url[256];
    engine.writes_url(url, true, true);
    return client_for(url, timeout_ms);
}

static inline rlock_client *proxied(void) {
    char url[256];
    engine.writes_url(url, true, false);
    return client_of(url);
}

/* Frees the clients of a test with all that is theirs. */
static inline void clients_end(void) {
    kit_reset();
    while (made.store_count > 0) {
        engine.forgets(made.stores[--made.store_count]);
    }
    made.drift_permille = 0;
}

static inline struct owner *renewed(rlock_client *of, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.watchdog = RLOCK_WATCHDOG_ON;
    options.fencing = true;
    return owner_with(of, &options);
}

static inline struct owner *queued(rlock_client *of, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.kind = RLOCK_KIND_FAIR;
    return owner_with(of, &options);
}

static inline int waited_ms(struct owner *o, rlock_event_kind kind, int64_t since_us) {
    return (int)((o->at_us[kind] - since_us) / 1000);
}

/* Whether somebody has a key, as the server says. */
static inline bool held(const char *key) {
    return engine.has(key);
}

static inline int key_is_free(void *key) {
    return !held((const char *)key);
}

#endif
