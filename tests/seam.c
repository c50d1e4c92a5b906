/* seam.c - the core's side of the store seam, in virtual time: what a store may say, what it gets
 *
 * The stores are scripted, so that a test says what they answer; and of memory, where a quorum is
 * made of stores that are not Redis.
 */

#include <stdint.h>
static int64_t users_clock_us(void);
#define RLOCK_NOW_US() users_clock_us()

#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#include "scripted.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEASE_MS 10000

static struct {
    struct virtual_loop loop;
    struct scripted store, others[2];
    rlock_store *memory[3], *quorum;
    rlock_config config;
    rlock_client *client;
    int log_lines;
    char log_text[256];
    bool log_forks;
    pid_t child;
    rlock_name *asked; /* of the loop, to be resolved */
} g;

static void on_log(void *user, int level, const char *line) {
    (void)user, (void)level;
    g.log_lines++;
    snprintf(g.log_text, sizeof g.log_text, "%s", line);
    if (g.log_forks) {
        g.log_forks = false;
        g.child = fork();
    }
}

static int setup_stopped(void **state) {
    (void)state;
    memset(&g, 0, sizeof g);
    virtual_begin(&g.loop);
    scripted_begin(&g.store, &g.loop);
    g.config.loop = virtual_hooks(&g.loop);
    g.config.store = &g.store.store;
    g.config.log = on_log;
    return 0;
}

static void start(void) {
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_OK);
}

static int setup(void **state) {
    setup_stopped(state);
    start();
    scripted_up(&g.store);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (!virtual_torn(&g.loop)) {
        virtual_free_owners(&g.loop);
        virtual_idle(&g.loop);
        if (g.client != NULL) {
            virtual_client_free(&g.loop, g.client);
        }
#if RLOCK__HAS_QUORUM
        rlock_quorum_free(g.quorum);
#endif
#if RLOCK__HAS_MEMORY
        rlock_memory_free(g.memory[0]);
        rlock_memory_free(g.memory[1]);
        rlock_memory_free(g.memory[2]);
#endif
        virtual_end(&g.loop);
    }
    return 0;
}

static struct owner *handle_with(const char *key, int watchdog, bool fencing) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.watchdog = watchdog;
    options.fencing = fencing;
    return owner_new(&g.loop, g.client, &options);
}

static struct owner *handle(const char *key) {
    return handle_with(key, RLOCK_WATCHDOG_AUTO, false);
}

static void reply(rlock_op op, rlock_answer answer) {
    scripted_reply(&g.store, op, answer);
}

static rlock_answer given(int64_t lease_ms) {
    rlock_answer answer = scripted_done();
    answer.lease_ms = lease_ms;
    return answer;
}

static int64_t validity_ms(int64_t lease_ms) {
    return lease_ms - lease_ms / 100 - 2;
}

static int status_of(const struct owner *owner) {
    return owner->seen[RLOCK_ACQUIRED].count > 0 ? owner->seen[RLOCK_ACQUIRED].status : 99;
}

/* ------------------------------------------------------------------------------------------------
 * A lease that is shorter than asked for, fewer fences.
 */

static void shorter_lease_that_a_store_gives_ends_the_hold_sooner(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, given(4000));
    SAME(rlock_remaining_ms(owner->lock), validity_ms(4000));
    virtual_run_ms(&g.loop, validity_ms(4000) + 1);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
}

static void longer_lease_than_asked_for_is_not_believed(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, given(6 * LEASE_MS));
    SAME(rlock_remaining_ms(owner->lock), validity_ms(LEASE_MS));
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_RENEW, given(6 * LEASE_MS));
    SAME(rlock_remaining_ms(owner->lock), validity_ms(LEASE_MS));
}

static void watchdog_follows_the_lease_that_was_given(void **state) {
    struct owner *owner = handle("key");
    int i;
    (void)state;
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, given(3000));
    for (i = 0; i < 5; i++) {
        virtual_run_ms(&g.loop, 1001);
        reply(RLOCK_OP_RENEW, given(3000));
        BETWEEN(rlock_remaining_ms(owner->lock), 2000, validity_ms(3000));
    }
    SAME(owner->seen[RLOCK_LOST].count, 0);
}

static void renewal_may_give_less_than_the_acquire(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_RENEW, given(2000));
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_OK);
    SAME(owner->seen[RLOCK_RENEWED].remaining_ms, validity_ms(2000));
    SAME(owner_renew(owner, 0), RLOCK_OK);
    SAME(scripted_need(&g.store, RLOCK_OP_RENEW)->lease_ms, 2000);
    reply(RLOCK_OP_RENEW, scripted_done());
    SAME(rlock_remaining_ms(owner->lock), validity_ms(2000));
}

/* It is over before it can be told. A store may give what makes no sense, and breaks nothing. */
static void lease_of_no_length_is_no_hold(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 500, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, given(1));
    SAME(owner->events, 0);
    reply(RLOCK_OP_ACQUIRE, given(5));
    SAME(status_of(owner), RLOCK_OK);
    virtual_run_ms(&g.loop, 4);
    SAME(owner->seen[RLOCK_LOST].count, 1);
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, given(-7));
    SAME(rlock_remaining_ms(owner->lock), validity_ms(LEASE_MS));
    SAME(owner_renew(owner, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_RENEW, given(1));
    SAME(owner->seen[RLOCK_RENEWED].status, RLOCK_ERR_LOST);
    SAME(owner->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
}

static int handed_on_with(uint16_t fences) {
    rlock_answer answer = scripted_fenced(100);
    struct owner *owners[4];
    int i, held = 0;
    answer.fences = fences;
    for (i = 0; i < 4; i++) {
        owners[i] = handle_with("key", RLOCK_WATCHDOG_AUTO, true);
        SAME(owner_acquire(owners[i], RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    }
    SAME(scripted_need(&g.store, RLOCK_OP_ACQUIRE)->fences, 1); /* the others came later */
    reply(RLOCK_OP_ACQUIRE, scripted_held(5));
    virtual_run_ms(&g.loop, 20);
    SAME(scripted_need(&g.store, RLOCK_OP_ACQUIRE)->fences, 4);
    reply(RLOCK_OP_ACQUIRE, answer);
    while (held < 3 && scripted_pending(&g.store, RLOCK_OP_RELEASE) == 0) {
        SAME(rlock_fence(owners[held]->lock), 100 + held);
        SAME(owner_release(owners[held]), RLOCK_OK);
        virtual_idle(&g.loop);
        held++;
    }
    return held;
}

static void local_hand_over_stops_where_the_fences_end_that_were_given(void **state) {
    (void)state;
    SAME(handed_on_with(2), 2); /* one hand-over, then the server is asked */
}

static void more_fences_than_asked_for_are_not_believed(void **state) {
    (void)state;
    SAME(handed_on_with(9), 3);
}

/* ------------------------------------------------------------------------------------------------
 * A part of the keys.
 */

static bool begins_with_a(const rlock_part *part, const char *key, size_t key_len) {
    (void)part;
    return key_len > 0 && key[0] == 'a';
}

static const rlock_part part_a = {begins_with_a};

static void about_a(bool on) {
    g.store.part = on ? &part_a : NULL;
}

static rlock_stats stats(void) {
    rlock_stats now;
    rlock_client_stats(g.client, &now);
    return now;
}

static void on_info(rlock_client *client, const rlock_info *info, void *user) {
    (void)client;
    *(int *)user = info->status;
}

static void node_that_goes_down_ends_what_its_keys_were_asked_for(void **state) {
    struct owner *a = handle("a"), *b = handle("b");
    rlock_options options;
    int about_its_key = 99, about_another = 99;
    (void)state;
    memset(&options, 0, sizeof options);
    SAME(owner_acquire(a, 0, LEASE_MS), RLOCK_OK);
    SAME(owner_acquire(b, 0, LEASE_MS), RLOCK_OK);
    options.key = "a";
    SAME(rlock_inspect(g.client, &options, on_info, &about_its_key), RLOCK_OK);
    options.key = "b";
    SAME(rlock_inspect(g.client, &options, on_info, &about_another), RLOCK_OK);
    virtual_idle(&g.loop);
    about_a(true);
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "the node is gone");
    SAME(status_of(a), RLOCK_ERR_CONN);
    assert_string_equal(a->seen[RLOCK_ACQUIRED].text, "the node is gone");
    SAME(about_its_key, RLOCK_ERR_UNKNOWN);
    SAME(b->events, 0);
    SAME(about_another, 99);
    assert_true(stats().up);
    about_a(false);
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "all nodes are gone");
    SAME(status_of(b), RLOCK_ERR_CONN);
    assert_false(stats().up);
    about_a(true);
    scripted_up(&g.store);
    assert_true(stats().up);
}

static void set_of_keys_belongs_to_a_node_that_has_one_of_them(void **state) {
    static const char *const keys[] = {"b", "a"};
    rlock_options options;
    struct owner *set;
    (void)state;
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 2;
    set = owner_new(&g.loop, g.client, &options);
    SAME(owner_acquire(set, 0, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    about_a(true);
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "the node is gone");
    SAME(status_of(set), RLOCK_ERR_CONN);
}

static void node_that_comes_back_has_its_holds_renewed_and_no_others(void **state) {
    struct owner *a = handle("a"), *b = handle("b");
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        SAME(owner_acquire(i == 0 ? a : b, 0, 0), RLOCK_OK);
        reply(RLOCK_OP_ACQUIRE, scripted_done());
    }
    about_a(true);
    scripted_up(&g.store);
    SAME(scripted_pending(&g.store, RLOCK_OP_RENEW), 1);
    assert_string_equal(scripted_need(&g.store, RLOCK_OP_RENEW)->key, "a");
}

static int asked_in(const struct owner *owner, int64_t ms) {
    const char *key = rlock_key(owner->lock, NULL);
    size_t i, from = g.store.count;
    int count = 0;
    virtual_run_ms(&g.loop, ms);
    for (i = from; i < g.store.count; i++) {
        count += strcmp(g.store.log[i].key, key) == 0;
    }
    return count;
}

/* Who is told of changes sleeps, who is not polls: by the node of the key. */
static void push_begins_and_ends_with_the_node_of_a_key(void **state) {
    struct owner *a = handle("a"), *b = handle("b"), *late;
    (void)state;
    scripted_always(&g.store, RLOCK_OP_ACQUIRE, scripted_held(60000));
    SAME(owner_acquire(a, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    SAME(owner_acquire(b, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    BETWEEN(asked_in(a, 5000), 15, 60);
    about_a(true);
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    virtual_run_ms(&g.loop, 500);
    SAME(asked_in(a, 5000), 0);
    BETWEEN(asked_in(b, 5000), 15, 60);
    late = handle("a2"); /* new, and not said to be pushed: it may poll, but must not sleep */
    SAME(owner_acquire(late, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    BETWEEN(asked_in(late, 5000), 15, 60);
    scripted_pushing(&g.store, 0);
    BETWEEN(asked_in(a, 5000), 15, 60);
    about_a(false);
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    virtual_run_ms(&g.loop, 500);
    SAME(asked_in(a, 2000), 0);
    SAME(asked_in(b, 2000), 0);
    about_a(true);
    scripted_pushing(&g.store, 0);
    SAME(asked_in(b, 2000), 0);
    BETWEEN(asked_in(a, 5000), 15, 60);
    assert_true(stats().pushing);
}

/* ------------------------------------------------------------------------------------------------
 * What a store is given.
 */

static void store_is_opened_with_the_defaults_resolved(void **state) {
    (void)state;
    g.config.port = -5; /* of Redis alone */
    g.config.handovers = -1;
    start();
    assert_string_equal(g.store.config.prefix, "rlock:");
    SAME(g.store.config.watchdog_lease_ms, 30000);
    SAME(g.store.config.command_timeout_ms, 1000);
    SAME(g.store.config.poll_ms, 250);
    SAME(g.store.config.drift_permille, 10);
    SAME(g.store.config.port, -5);
    assert_null(g.store.config.host);
    assert_ptr_equal(g.store.config.loop.ctx, &g.loop);
}

static void store_is_opened_with_what_the_user_chose(void **state) {
    (void)state;
    g.config.prefix = "{any}";
    g.config.watchdog_lease_ms = 20;
    g.config.command_timeout_ms = 30;
    g.config.poll_ms = 40;
    g.config.drift_permille = 50;
    start();
    assert_string_equal(g.store.config.prefix, "{any}");
    SAME(g.store.config.watchdog_lease_ms, 20);
    SAME(g.store.config.command_timeout_ms, 30);
    SAME(g.store.config.poll_ms, 40);
    SAME(g.store.config.drift_permille, 50);
}

static void store_has_a_fresh_clock_beside_that_of_the_dispatch(void **state) {
    int64_t now_us = rlock_client_now_us(g.client);
    (void)state;
    g.loop.now_us += 5000;
    SAME(rlock_client_now_us(g.client), now_us);
    SAME(rlock_client_clock_us(g.client), g.loop.now_us);
    g.loop.clock_off_us -= 1000000; /* a step back does not show */
    BETWEEN(rlock_client_clock_us(g.client), now_us + 5000, g.loop.now_us);
    g.loop.clock_off_us += 1000000;
}

static void store_has_random_numbers_a_log_and_counters(void **state) {
    uint64_t one = rlock_client_random(g.client), other = rlock_client_random(g.client);
    (void)state;
    assert_true(one != other);
    rlock_client_log(g.client, RLOCK_LOG_INFO, "the table", "locks");
    assert_string_equal(g.log_text + 8, ": the table: locks");
    rlock_client_log(g.client, RLOCK_LOG_INFO, "alone", NULL);
    assert_string_equal(g.log_text + 8, ": alone");
    rlock_client_counters(g.client)->commands += 3;
    rlock_client_counters(g.client)->connects += 2;
    rlock_client_counters(g.client)->cleaning += 1;
    SAME(stats().commands, 3);
    SAME(stats().connects, 2);
    SAME(stats().cleaning, 1);
}

#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN

/* Whoever wrote it: the secrets are those that the store gave. */
static void secret_is_hidden_wherever_it_stands(void **state) {
    static const char *const secrets[] = {"hunter2-of-the-shop", "hunter2", "pw", "line\nend"};
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"", ""},
        {"hunter2", "***"},
        {"'shop' 'hunter2' ", "'shop' '***' "},
        {"xhunter2hunter2x", "x******x"},
        {"hunter2-of-the-shop", "***"}, /* the longest of those that stand there */
        {"hunter2-of-the-elf", "***-of-the-elf"},
        {"hunter2-of-the-s'", "***'"}, /* a server cut it: 16 bytes are enough */
        {"hunter2-of-the-'", "***-of-the-'"},
        {"hunter", "hunter"}, /* a word that nobody has cut */
        {"Hunter2", "Hunter2"},
        {"spw pws pw9 pw, pw", "spw pws pw9 ***, ***"}, /* a short one alone */
        {"line end", "***"},                            /* as a server writes a line end */
        {"line\nend", "***"},
        {"a\nb\r\n\tc\x7f\x1b[2J", "a\\x0ab\\x0d\\x0a\\x09c\\x7f\\x1b[2J"},
        {"\xc3\xa4", "\xc3\xa4"},
        {FIFTY TEN "hunter2", FIFTY TEN "***"},
        {FIFTY TEN "hunter", FIFTY TEN "***"}, /* its end was cut */
        {FIFTY TEN "hunt", FIFTY TEN "***"},
        {FIFTY TEN "hun", FIFTY TEN "hun"},
        {FIFTY TEN "hunt ", FIFTY TEN "hunt "},
    };
    size_t i, live = virtual_memory.live;
    (void)state;
    for (i = 0; i < 4; i++) {
        virtual_memory.fail_at = 1;
        SAME(rlock_client_hide(g.client, secrets[i]), RLOCK_ERR_NOMEM);
        virtual_memory.fail_at = 0;
        SAME(rlock_client_hide(g.client, secrets[i]), RLOCK_OK);
    }
    for (i = 0; i < 4; i++) {
        SAME(rlock_client_hide(g.client, secrets[i]), RLOCK_OK);
    }
    SAME(rlock_client_hide(g.client, NULL), RLOCK_OK);
    SAME(rlock_client_hide(g.client, ""), RLOCK_OK);
    SAME(virtual_memory.live, live + 4);
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        rlock_client_log(g.client, RLOCK_LOG_INFO, "words", rows[i].text);
        assert_string_equal(g.log_text + 8 + sizeof ": words: " - 1, rows[i].shown);
        rlock_client_log(g.client, RLOCK_LOG_INFO, rows[i].text, NULL);
        assert_string_equal(g.log_text + 10, rows[i].shown);
        rlock_client_log(g.client, RLOCK_LOG_INFO, rows[i].shown, NULL); /* once more */
        assert_string_equal(g.log_text + 10, rows[i].shown);
    }
}

static void foreign_words_are_cut_where_a_line_ends(void **state) {
    char text[400];
    size_t n;
    (void)state;
    SAME(rlock_client_hide(g.client, "hunter2"), RLOCK_OK);
    for (n = 200; n < 300; n++) {
        memset(text, 'x', n);
        snprintf(text + n, sizeof text - n, "\nhunter2\nhunter2");
        rlock_client_log(g.client, RLOCK_LOG_INFO, text, text);
        assert_true(strlen(g.log_text) <= 255);
        assert_null(strstr(g.log_text, "h"));
        assert_null(strchr(g.log_text, '\n'));
    }
}

static int loop_resolves(void *state, rlock_name *name, const char *host) {
    (void)state;
    assert_string_equal(host, "db.example");
    g.asked = name;
    return 0;
}

static int resolved;
static struct sockaddr found[2];
static unsigned found_count;

static void on_name(rlock_name *name, const struct sockaddr *const *addresses, unsigned count) {
    unsigned i;
    assert_ptr_equal(name->client, g.client);
    SAME(count, found_count);
    for (i = 0; i < count; i++) {
        assert_ptr_equal(addresses[i], &found[i]);
    }
    resolved++;
}

static void store_resolves_names_with_the_loop(void **state) {
    const struct sockaddr *all[2] = {&found[0], &found[1]};
    rlock_name name;
    (void)state;
    memset(&name, 0, sizeof name);
    name.resolved = on_name;
    resolved = 0;
    start();
    assert_true(rlock_name_resolve(g.client, &name, "db.example") < 0); /* this loop cannot */
    virtual_client_free(&g.loop, g.client);
    g.config.loop.resolve = loop_resolves;
    start();
    SAME(rlock_name_resolve(g.client, &name, "db.example"), 0);
    SAME(resolved, 0);
    assert_ptr_equal(g.asked, &name);
    found_count = 0;
    rlock_on_resolved(g.asked, NULL);
    SAME(resolved, 1);
    found_count = 1;
    rlock_on_resolved(g.asked, found);
    found_count = 2;
    rlock_on_resolved_all(g.asked, all, 2);
    SAME(resolved, 3);
}

/* ------------------------------------------------------------------------------------------------
 * A child is no place to say farewell: the connection is its parent's too.
 */

static int wait_for(pid_t child) {
    int status = -1;
    assert_true(child > 0);
    SAME(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void store_is_not_closed_in_a_child(void **state) {
    (void)state;
    (void)owner_acquire(handle("key"), 0, LEASE_MS);
    assert_false(rlock_client_forked(g.client));
    g.client->loop.resolve = loop_resolves;
    g.child = fork();
    if (g.child == 0) {
        rlock_name name;
        bool forked = rlock_client_forked(g.client);
        bool asked = rlock_name_resolve(g.client, &name, "db.example") == 0;
        rlock_client_free(g.client);
        _exit(forked && !asked ? (int)g.store.closes : 9);
    }
    SAME(wait_for(g.child), 0);
}

/* The free itself may make the child: by a line of the store in the log, whose hook forks. */
static void store_is_not_closed_in_a_child_that_the_log_made(void **state) {
    struct owner *owner = handle("key");
    (void)state;
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    g.store.says = "a release";
    g.log_forks = true;
    owner->gone = true;
    rlock_client_free(g.client);
    if (g.child == 0) {
        _exit((int)g.store.closes);
    }
    g.client = NULL;
    SAME(wait_for(g.child), 0);
    SAME(g.store.closes, 1);
}

#if RLOCK__HAS_QUORUM

/* The second of three stores cannot be opened: the first is closed again, but for in a child. */
static void store_of_a_quorum_is_not_closed_in_a_child_that_the_log_made(void **state) {
    rlock_config nodes[3];
    (void)state;
    memset(nodes, 0, sizeof nodes);
    scripted_begin(&g.others[0], &g.loop);
    g.others[0].open_status = RLOCK_ERR_AUTH;
    g.others[0].says = "no such database";
    nodes[0].store = nodes[2].store = &g.store.store;
    nodes[1].store = &g.others[0].store;
    SAME(rlock_quorum_new(&g.quorum, nodes, 3), RLOCK_OK);
    g.config.store = g.quorum;
    g.log_forks = true;
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_ERR_AUTH);
    if (g.child == 0) {
        _exit((int)g.store.closes);
    }
    SAME(wait_for(g.child), 0);
    SAME(g.store.opens, 1);
    SAME(g.store.closes, 1);
}

/* ------------------------------------------------------------------------------------------------
 * A quorum of any stores.
 */

static void quorum_needs_a_store_where_there_is_no_redis(void **state) {
    rlock_config nodes[3];
    (void)state;
    memset(nodes, 0, sizeof nodes);
    nodes[0].store = nodes[1].store = &g.store.store;
    SAME(rlock_quorum_new(&g.quorum, nodes, 3), RLOCK_ERR_ARG);
    assert_null(g.quorum);
}

static void quorum_of_scripted(void) {
    rlock_config nodes[3];
    int i;
    memset(nodes, 0, sizeof nodes);
    nodes[0].store = &g.store.store;
    for (i = 0; i < 2; i++) {
        scripted_begin(&g.others[i], &g.loop);
        nodes[1 + i].store = &g.others[i].store;
    }
    SAME(rlock_quorum_new(&g.quorum, nodes, 3), RLOCK_OK);
    g.config.store = g.quorum;
    g.config.poll_ms = 77;
    start();
    SAME(g.others[1].config.poll_ms, 77); /* the client's, resolved */
    SAME(g.others[1].config.command_timeout_ms, 1000);
    scripted_up(&g.store);
    scripted_up(&g.others[0]);
    scripted_up(&g.others[1]);
}

static void lease_of_a_quorum_is_the_shortest_that_its_majority_gave(void **state) {
    struct owner *owner;
    (void)state;
    quorum_of_scripted();
    owner = handle("key");
    SAME(owner_acquire(owner, 0, LEASE_MS), RLOCK_OK);
    reply(RLOCK_OP_ACQUIRE, given(7000));
    scripted_reply(&g.others[0], RLOCK_OP_ACQUIRE, given(5000));
    SAME(rlock_remaining_ms(owner->lock), validity_ms(5000));
}

static void quorum_loses_the_node_of_a_key_in_one_of_its_stores(void **state) {
    struct owner *a, *b;
    (void)state;
    quorum_of_scripted();
    a = handle("a"), b = handle("b");
    SAME(owner_acquire(a, 0, LEASE_MS), RLOCK_OK);
    SAME(owner_acquire(b, 0, LEASE_MS), RLOCK_OK);
    virtual_idle(&g.loop);
    about_a(true);
    g.others[0].part = &part_a;
    scripted_down(&g.store, RLOCK_FAULT_DOWN, "the node is gone");
    SAME(a->events, 0);
    scripted_down(&g.others[0], RLOCK_FAULT_DOWN, "the node is gone");
    SAME(status_of(a), RLOCK_ERR_CONN);
    SAME(b->events, 0);
    assert_true(stats().up);
    reply(RLOCK_OP_ACQUIRE, scripted_done());
    scripted_reply(&g.others[0], RLOCK_OP_ACQUIRE, scripted_done());
    SAME(status_of(b), RLOCK_OK);
}

static void quorum_relies_on_a_store_that_pushes_for_all_of_its_keys_only(void **state) {
    (void)state;
    quorum_of_scripted();
    scripted_pushing(&g.store, RLOCK_PUSH_CHANGES);
    g.others[0].part = &part_a;
    scripted_pushing(&g.others[0], RLOCK_PUSH_CHANGES);
    virtual_idle(&g.loop);
    assert_false(stats().pushing);
    g.others[0].part = NULL;
    scripted_pushing(&g.others[0], RLOCK_PUSH_CHANGES);
    virtual_idle(&g.loop);
    assert_true(stats().pushing);
    g.others[0].part = &part_a;
    scripted_pushing(&g.others[0], RLOCK_PUSH_CHANGES);
    virtual_idle(&g.loop);
    assert_true(stats().pushing);
    scripted_pushing(&g.others[0], 0);
    virtual_idle(&g.loop);
    assert_false(stats().pushing);
}

#if RLOCK__HAS_MEMORY
static void quorum_is_made_of_stores_in_the_process_too(void **state) {
    rlock_config nodes[3];
    rlock_client *other;
    struct owner *first, *second;
    rlock_options options;
    int i;
    (void)state;
    memset(nodes, 0, sizeof nodes);
    memset(&options, 0, sizeof options);
    for (i = 0; i < 3; i++) {
        SAME(rlock_memory_new(&g.memory[i]), RLOCK_OK);
        nodes[i].store = g.memory[i];
    }
    SAME(rlock_quorum_new(&g.quorum, nodes, 3), RLOCK_OK);
    g.config.store = g.quorum;
    start();
    SAME(rlock_client_new(&other, &g.config), RLOCK_OK);
    first = handle("key");
    options.key = "key";
    second = owner_new(&g.loop, other, &options);
    SAME(owner_acquire(first, 0, 0), RLOCK_OK);
    virtual_run_ms(&g.loop, 1);
    SAME(status_of(first), RLOCK_OK);
    SAME(owner_acquire(second, RLOCK_FOREVER, LEASE_MS), RLOCK_OK);
    virtual_run_ms(&g.loop, 60000);
    SAME(second->events, 0);
    SAME(owner_release(first), RLOCK_OK);
    virtual_run_ms(&g.loop, 500);
    SAME(status_of(second), RLOCK_OK);
    virtual_client_free(&g.loop, other);
}
#endif

#endif /* RLOCK__HAS_QUORUM */

/* A deadline is written while other threads read it: each reads one that was written whole. */
#define READS 100000 /* at least, since the writer began, and ... */
#define CHANGES 200  /* ... so many of them saw another deadline than the one before */

static int64_t users_clock_off_us;

static int64_t users_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + users_clock_off_us;
}

static rlock_deadline written;
static uint32_t torn, ready; /* reads of what was not written; threads that saw enough changes */

static void *reads(void *nothing) {
    int64_t before_us = 0, until_us;
    int count, changes = 0;
    for (count = 0; count < READS || changes < CHANGES; count += before_us != 0) {
        until_us = rlock_deadline_us(&written);
        if (until_us != 0 && (uint32_t)((uint64_t)until_us >> 32) != (uint32_t)until_us) {
            __atomic_add_fetch(&torn, 1, __ATOMIC_RELAXED);
        }
        changes += until_us != before_us;
        before_us = until_us;
    }
    __atomic_add_fetch(&ready, 1, __ATOMIC_RELAXED);
    return nothing;
}

static void deadline_is_read_whole_by_other_threads(void **state) {
    pthread_t threads[2];
    uint32_t i;
    (void)state;
    memset(&written, 0, sizeof written);
    for (i = 0; i < 2; i++) {
        SAME(pthread_create(&threads[i], NULL, reads, NULL), 0);
    }
    for (i = 1; __atomic_load_n(&ready, __ATOMIC_RELAXED) < 2; i++) {
        rlock__deadline_set(&written, (int64_t)((uint64_t)i << 32 | i), 0);
    }
    for (i = 0; i < 2; i++) {
        SAME(pthread_join(threads[i], NULL), 0);
    }
    SAME(torn, 0);
}

/* What is shown is compared with the clock of the system. */
static void deadline_is_held_until_the_clock_of_the_system_has_passed_it(void **state) {
    (void)state;
    memset(&written, 0, sizeof written);
    assert_false(rlock_still_held(&written));
    rlock__deadline_set(&written, RLOCK_NOW_US() + 3600000000, RLOCK_NOW_US());
    assert_true(rlock_still_held(&written));
    rlock__deadline_set(&written, RLOCK_NOW_US() - 1, RLOCK_NOW_US());
    assert_false(rlock_still_held(&written));
}

static void *asks(void *held) {
    *(bool *)held = rlock_still_held(&written);
    return NULL;
}

/* The thread of the loop is stopped: nobody shows another deadline. */
static void deadline_is_not_believed_once_the_clock_has_gone_back(void **state) {
    pthread_t thread;
    bool held = false;
    (void)state;
    memset(&written, 0, sizeof written);
    rlock__deadline_set(&written, RLOCK_NOW_US() + 30000000, RLOCK_NOW_US());
    assert_true(rlock_still_held(&written));
    users_clock_off_us -= 60000000; /* to before it was shown */
    assert_false(rlock_still_held(&written));
    users_clock_off_us += 60000000 + 20000000; /* a minute later: it was 20 s when it went back */
    assert_false(rlock_still_held(&written));
    rlock__deadline_set(&written, RLOCK_NOW_US() + 30000000, RLOCK_NOW_US()); /* it is renewed */
    users_clock_off_us += 20000000;
    SAME(pthread_create(&thread, NULL, asks, &held), 0);
    SAME(pthread_join(thread, NULL), 0);
    assert_true(held);
    users_clock_off_us -= 15000000; /* to after it was shown, and before a thread has looked */
    assert_false(rlock_still_held(&written));
    rlock__deadline_set(&written, RLOCK_NOW_US() + 30000000, RLOCK_NOW_US());
    assert_true(rlock_still_held(&written));
    users_clock_off_us = 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define STOPPED(name) cmocka_unit_test_setup_teardown(name, setup_stopped, teardown)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        CASE(shorter_lease_that_a_store_gives_ends_the_hold_sooner),
        CASE(longer_lease_than_asked_for_is_not_believed),
        CASE(watchdog_follows_the_lease_that_was_given),
        CASE(renewal_may_give_less_than_the_acquire),
        CASE(lease_of_no_length_is_no_hold),
        CASE(local_hand_over_stops_where_the_fences_end_that_were_given),
        CASE(more_fences_than_asked_for_are_not_believed),
#if RLOCK__HAS_KINDS
        CASE(node_that_goes_down_ends_what_its_keys_were_asked_for),
        CASE(set_of_keys_belongs_to_a_node_that_has_one_of_them),
#endif
        CASE(node_that_comes_back_has_its_holds_renewed_and_no_others),
        CASE(push_begins_and_ends_with_the_node_of_a_key),
        STOPPED(store_is_opened_with_the_defaults_resolved),
        STOPPED(store_is_opened_with_what_the_user_chose),
        CASE(store_has_a_fresh_clock_beside_that_of_the_dispatch),
        CASE(store_has_random_numbers_a_log_and_counters),
        CASE(secret_is_hidden_wherever_it_stands),
        CASE(foreign_words_are_cut_where_a_line_ends),
        STOPPED(store_resolves_names_with_the_loop),
        CASE(store_is_not_closed_in_a_child),
        CASE(store_is_not_closed_in_a_child_that_the_log_made),
#if RLOCK__HAS_QUORUM
        STOPPED(store_of_a_quorum_is_not_closed_in_a_child_that_the_log_made),
        STOPPED(quorum_needs_a_store_where_there_is_no_redis),
        STOPPED(lease_of_a_quorum_is_the_shortest_that_its_majority_gave),
        STOPPED(quorum_loses_the_node_of_a_key_in_one_of_its_stores),
        STOPPED(quorum_relies_on_a_store_that_pushes_for_all_of_its_keys_only),
#if RLOCK__HAS_MEMORY
        STOPPED(quorum_is_made_of_stores_in_the_process_too),
#endif
#endif
        STOPPED(deadline_is_read_whole_by_other_threads),
        STOPPED(deadline_is_held_until_the_clock_of_the_system_has_passed_it),
        STOPPED(deadline_is_not_believed_once_the_clock_has_gone_back),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("seam", tests, NULL, NULL);
}
