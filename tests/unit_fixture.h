/* unit_fixture.h - one client, connected, told by push, with a watchdog lease of 3 s */
#ifndef TESTS_UNIT_FIXTURE_H
#define TESTS_UNIT_FIXTURE_H

#define WATCHDOG_MS 3000
#define DRIFT 10

static struct {
    struct virtual_loop loop;
    struct scripted store;
    rlock_config config;
    rlock_client *client;
    int done_count, done_status; /* of a shutdown */
    int64_t done_at_us;
    uint64_t done_order;
    int log_lines;
    size_t log_length; /* of the last line */
    rlock_kind kind;   /* of the handles that a test makes */
} g;

static void on_log(void *user, int level, const char *line) {
    (void)user;
    BETWEEN(level, RLOCK_LOG_ERROR, RLOCK_LOG_INFO);
    assert_non_null(line);
    g.log_lines++;
    g.log_length = strlen(line);
}

static void start(void) {
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_OK);
    scripted_up(&g.store);
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
}

static int setup_stopped(void **state) {
    (void)state;
    memset(&g, 0, sizeof g);
    virtual_begin(&g.loop);
    scripted_begin(&g.store, &g.loop);
    g.config.loop = virtual_hooks(&g.loop);
    g.config.store = &g.store.store;
    g.config.watchdog_lease_ms = WATCHDOG_MS;
    g.config.log = on_log;
    return 0;
}

static int setup(void **state) {
    setup_stopped(state);
    start();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (!virtual_torn(&g.loop)) {
        virtual_free_owners(&g.loop);
        virtual_idle(&g.loop);
        virtual_client_free(&g.loop, g.client);
        virtual_run_ms(&g.loop, 100000);
        SAME(g.store.opens, g.store.closes);
        virtual_end(&g.loop);
    }
    return 0;
}

static void idle(void) {
    virtual_idle(&g.loop);
}
static void run_ms(int64_t ms) {
    virtual_run_ms(&g.loop, ms);
}
static void stall_ms(int64_t ms) {
    virtual_stall(&g.loop, ms * 1000);
}
static int64_t now_us(void) {
    return g.loop.now_us;
}
static void reply(rlock_op op, rlock_answer answer) {
    scripted_reply(&g.store, op, answer);
}
static void always(rlock_op op, rlock_answer answer) {
    scripted_always(&g.store, op, answer);
}
static struct scripted_request *out(rlock_op op) {
    return scripted_out(&g.store, op);
}
static struct scripted_request *need(rlock_op op) {
    return scripted_need(&g.store, op);
}
static int asked(rlock_op op) {
    return scripted_asked(&g.store, op);
}

static rlock_stats stats(void) {
    rlock_stats now;
    rlock_client_stats(g.client, &now);
    return now;
}

static rlock_options options_for(const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.kind = g.kind;
    options.permits = g.kind == RLOCK_KIND_SEMAPHORE ? 2 : 0;
    return options;
}

static struct owner *handle_with(const rlock_options *options) {
    return owner_new(&g.loop, g.client, options);
}

static struct owner *handle(const char *key) {
    rlock_options options = options_for(key);
    return handle_with(&options);
}

static void grant(struct owner *owner, int64_t lease_ms) {
    SAME(owner_acquire(owner, 0, lease_ms), RLOCK_OK);
    idle();
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner->seen[RLOCK_ACQUIRED].status, RLOCK_OK);
    assert_true(rlock_is_held(owner->lock));
}

static struct owner *holder(const char *key, int64_t lease_ms) {
    struct owner *owner = handle(key);
    grant(owner, lease_ms);
    return owner;
}

/* until = sent + lease - lease x drift - 2 ms */
static int64_t until_us(int64_t sent_us, int64_t lease_ms) {
    return sent_us + lease_ms * 1000 - lease_ms * DRIFT - 2000;
}

/* Waits for a request of this kind. If that takes long, a store that was down is up again. */
static struct scripted_request *retried(rlock_op op) {
    int i;
    for (i = 0; i < 100 && out(op) == NULL; i++) {
        run_ms(10);
    }
    if (out(op) == NULL) {
        scripted_up(&g.store);
    }
    return need(op);
}

static void on_done(rlock_client *client, int status, void *user) {
    assert_ptr_equal(client, g.client);
    assert_ptr_equal(user, &g);
    SAME(virtual_depth, 0);
    assert_true(g.loop.entered);
    g.done_count++;
    g.done_status = status;
    g.done_at_us = now_us();
    g.done_order = ++g.loop.callbacks;
}

static void free_client(void) {
    rlock_client *client = g.client;
    g.client = NULL;
    virtual_client_free(&g.loop, client);
}

static void restart_with_handovers(int handovers) {
    free_client();
    g.config.handovers = handovers;
    start();
}

/* What a question is answered with that is not asked: without kinds there are none. */
#define QUESTION(status) (RLOCK__HAS_KINDS ? (status) : RLOCK_ERR_ARG)

static void on_nothing_asked(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)info, (void)user;
    fail_msg("a question was answered that was not asked");
}

static void ok_or_nomem(int status) {
    if (status != RLOCK_OK) {
        SAME(status, RLOCK_ERR_NOMEM);
        assert_true(virtual_memory.failed);
    }
}

#endif /* TESTS_UNIT_FIXTURE_H */
