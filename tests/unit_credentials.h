/* unit_credentials.h - rlock_client_set_credentials: what the store gets, what is refused, and what
 * stays hidden */
#ifndef TESTS_UNIT_CREDENTIALS_H
#define TESTS_UNIT_CREDENTIALS_H

#if RLOCK__HAS_CREDENTIALS

static struct {
    int calls, status; /* what the store returns */
    bool sentinels;
    char username[32], password[32]; /* "-": NULL */
    int lines;
    char line[RLOCK__LINE]; /* the last one of the log */
} credentials;

static void on_credentials_log(void *user, int level, const char *line) {
    (void)user, (void)level;
    credentials.lines++;
    snprintf(credentials.line, sizeof credentials.line, "%s", line);
}

static int take_credentials(void *state, bool sentinels, const char *username,
                            const char *password) {
    assert_ptr_equal(state, &g.store);
    credentials.calls++;
    credentials.sentinels = sentinels;
    snprintf(credentials.username, sizeof credentials.username, "%s",
             username != NULL ? username : "-");
    snprintf(credentials.password, sizeof credentials.password, "%s",
             password != NULL ? password : "-");
    return credentials.status;
}

static int setup_credentials(void **state) {
    setup_stopped(state);
    memset(&credentials, 0, sizeof credentials);
    g.store.store.set_credentials = take_credentials;
    g.config.log = on_credentials_log;
    start();
    return 0;
}

static void new_credentials_reach_the_store_and_are_flushed(void **state) {
    unsigned flushes;
    (void)state;
    idle();
    flushes = g.store.flushes;
    SAME(rlock_client_set_credentials(g.client, "shop", "secret-1"), RLOCK_OK);
    assert_string_equal(credentials.username, "shop");
    assert_string_equal(credentials.password, "secret-1");
    assert_false(credentials.sentinels);
    idle();
    BETWEEN(g.store.flushes, flushes + 1, flushes + 9);
    SAME(rlock_client_set_sentinel_credentials(g.client, NULL, "secret-2"), RLOCK_OK);
    assert_true(credentials.sentinels);
    assert_string_equal(credentials.username, "-");
    SAME(rlock_client_set_credentials(g.client, NULL, NULL), RLOCK_OK);
    assert_string_equal(credentials.password, "-");
    SAME(credentials.lines, 0);
}

static void credentials_that_cannot_be_taken_are_refused_with_a_log_line(void **state) {
    (void)state;
    SAME(rlock_client_set_credentials(NULL, NULL, "secret"), RLOCK_ERR_ARG);
    SAME(rlock_client_set_sentinel_credentials(NULL, NULL, "secret"), RLOCK_ERR_ARG);
    SAME(credentials.lines, 0);
    SAME(rlock_client_set_credentials(g.client, "shop", NULL), RLOCK_ERR_ARG);
    SAME(credentials.lines, 1);
    SAME(credentials.calls, 0);
    credentials.status = RLOCK_ERR_ARG;
    SAME(rlock_client_set_sentinel_credentials(g.client, NULL, "secret-9"), RLOCK_ERR_ARG);
    SAME(credentials.lines, 2);
#if RLOCK__HAS_TEXTS
    assert_non_null(strstr(credentials.line, "this store does not use Sentinels"));
#endif
    g.store.store.set_credentials = NULL;
    SAME(rlock_client_set_credentials(g.client, "shop", "secret-9"), RLOCK_ERR_ARG);
    SAME(credentials.lines, 3);
    assert_null(strstr(credentials.line, "secret-9"));
}

static void credentials_need_memory_and_a_client_that_is_open(void **state) {
    int status = 0;
    pid_t child;
    (void)state;
    virtual_memory.fail_at = 1;
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-1"), RLOCK_ERR_NOMEM);
    virtual_memory.fail_at = 0;
    SAME(credentials.calls, 0); /* what could not be hidden is not used */
    credentials.status = RLOCK_ERR_NOMEM;
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-1"), RLOCK_ERR_NOMEM);
    SAME(credentials.lines, 0);
    child = fork();
    if (child == 0) {
        _exit(rlock_client_set_credentials(g.client, NULL, "secret-1") != RLOCK_ERR_STATE);
    }
    SAME(waitpid(child, &status, 0), child);
    SAME(status, 0);
    credentials.status = RLOCK_OK;
    SAME(rlock_client_shutdown(g.client, 0, on_done, &g), RLOCK_OK);
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-1"), RLOCK_OK); /* releases need it */
    idle();
    SAME(g.done_count, 1);
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-1"), RLOCK_ERR_CLOSED);
}

static void password_that_is_in_use_at_sentinels_stays_hidden(void **state) {
    char password[32];
    int i;
    (void)state;
    SAME(rlock_client_set_credentials(g.client, NULL, "of-both"), RLOCK_OK);
    SAME(rlock_client_set_sentinel_credentials(g.client, NULL, "of-both"), RLOCK_OK);
    for (i = 0; i < 20; i++) {
        snprintf(password, sizeof password, "password-%02d", i);
        SAME(rlock_client_set_credentials(g.client, NULL, password), RLOCK_OK);
        SAME(rlock_client_set_credentials(g.client, NULL, "once-more"), RLOCK_OK);
    }
    rlock_client_log(g.client, RLOCK_LOG_INFO, "of-both", "once-more");
    assert_string_equal(credentials.line + 10, "***: ***");
}

/* The one before is in the words of a server that is late; those of yesterday are in none. */
static void old_and_new_passwords_are_hidden_and_older_ones_forgotten(void **state) {
    char password[32], words[40];
    size_t live;
    int i, kept = 0;
    (void)state;
    SAME(rlock_client_hide(g.client, "of-the-url"), RLOCK_OK);
    for (i = 0; i < 50; i++) {
        snprintf(password, sizeof password, "password-%02d", i);
        SAME(rlock_client_set_credentials(g.client, NULL, password), RLOCK_OK);
        SAME(rlock_client_set_sentinel_credentials(g.client, NULL, "of-sentinels"), RLOCK_OK);
    }
    live = virtual_memory.live;
    for (i = 0; i < 50; i++) {
        snprintf(words, sizeof words, "password-%02d", i);
        rlock_client_log(g.client, RLOCK_LOG_INFO, words, NULL);
        if (strcmp(credentials.line + 10, "***") == 0) {
            kept++;
        } else {
            SAME(kept, 0);
        }
    }
    SAME(kept, 1 + RLOCK__SECRETS_KEPT);
    rlock_client_log(g.client, RLOCK_LOG_INFO, "of-sentinels", "of-the-url");
    assert_string_equal(credentials.line + 10, "***: ***");
    SAME(rlock_client_set_credentials(g.client, NULL, "password-99"), RLOCK_OK);
    SAME(virtual_memory.live, live); /* a client that lives for years does not grow */
}

/* The refusal that is known is of the former ones. */
static void wait_that_ends_before_newer_ones_are_tried_does_not_report_auth(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    scripted_down(&g.store, RLOCK_FAULT_AUTH, "WRONGPASS");
    g.store.unsent = true;
    idle();
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-1"), RLOCK_OK);
    SAME(owner_acquire(owner, 100, 0), RLOCK_OK);
    run_ms(200);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_CONN);
}

static void set_credentials_in_callback(struct owner *owner, const rlock_event *event) {
    (void)owner, (void)event;
    SAME(rlock_client_set_credentials(g.client, NULL, "secret-1"), RLOCK_OK);
}

static void credentials_may_be_set_from_a_callback(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    owner->react = set_credentials_in_callback;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(credentials.calls, 1);
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
}

#endif /* RLOCK__HAS_CREDENTIALS */

#endif /* TESTS_UNIT_CREDENTIALS_H */
