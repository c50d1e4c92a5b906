/* Credentials that change while locks are held: a real server whose ACL is changed, alone, as a
 * cluster and as three of a quorum. `credentials rotation 60` changes the password every two
 * seconds for so many seconds and cuts connections at random; the suite does so for six. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kit.h"
#include "shard.h"

#define SERVERS 3
#define PATIENCE_MS 15000

static struct server server, others[SERVERS - 1];
static int rotation_s = 6;

/* ------------------------------------------------------------------------------------------------
 * What the hook on_event was told
 */

static struct {
    int connected[2], ended[2], refused[2]; /* [whether it is the push connection] */
    char text[128];                         /* of the last refusal */
} told;

static void on_event(void *user, const rlock_report *report) {
    int push = report->link != NULL && strcmp(report->link, "push") == 0;

    (void)user;
    told.connected[push] += report->kind == RLOCK_REPORT_CONNECTED;
    told.ended[push] += report->kind == RLOCK_REPORT_DISCONNECTED;
    if (report->kind == RLOCK_REPORT_REFUSED) {
        told.refused[push]++;
        snprintf(told.text, sizeof told.text, "%s", report->text);
        assert_string_equal(rlock_report_str(report->kind), "refused");
        assert_null(report->lock);
        assert_non_null(report->where);
    }
}

static int is_refused(void *arg) {
    (void)arg;
    return told.refused[0] > 0;
}

static int push_is_another(void *arg) {
    return told.connected[1] >= 2 && kit_is_pushing(arg);
}

/* True when so many command connections were made, the first one included. */
static int are_connected(void *arg) {
    return told.connected[0] >= *(const int *)arg;
}

static int log_has(void *arg) {
    return strstr(kit_log_text, (const char *)arg) != NULL;
}

static int is_accepted(void *arg) {
    (void)arg;
    return log_has((void *)(uintptr_t) "new credentials are accepted");
}

/* ------------------------------------------------------------------------------------------------
 * The server's users
 */

static void user_has(struct server *its, const char *password) {
    char command[128];

    snprintf(command, sizeof command, "ACL SETUSER locker on resetpass >%s ~* &* +@all", password);
    tell(ask(its, command));
}

static rlock_config config_as(const char *user, const char *password) {
    rlock_config config = kit_config(&server);

    config.username = user;
    config.password = password;
    config.on_event = on_event;
    config.poll_ms = 60000; /* who is not woken waits for seconds */
    return config;
}

static void others_cut(const char *user) {
    tell(ask(&server, "CLIENT KILL USER %s", user));
}

static int group_begins(void **state) {
    (void)state;
    assert_int_equal(kit_open(), 0);
    return server_start(&server, NULL);
}

static int group_ends(void **state) {
    int i;

    (void)state;
    kit_hand_drop();
    kit_close();
    server_stop(&server);
    for (i = 0; i < SERVERS - 1; i++) {
        server_stop(&others[i]);
    }
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    memset(&told, 0, sizeof told);
    user_has(&server, "first");
    tell(ask(&server, "FLUSHALL"));
    return 0;
}

static int test_ends(void **state) {
    (void)state;
    kit_reset();
    return 0;
}

/* ------------------------------------------------------------------------------------------------
 * One server
 */

static void hold_outlives_a_password_that_is_replaced(void **state) {
    rlock_config config = config_as("locker", "first");
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");
    long long commands;
    int again = 2;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    commands = (long long)kit_stats(client).commands;
    user_has(&server, "second");
    assert_int_equal(rlock_client_set_credentials(client, "locker", "second"), RLOCK_OK);
    assert_int_equal(kit_stats(client).commands, commands + 1); /* AUTH alone, at once */
    assert_true(kit_until(is_accepted, NULL, PATIENCE_MS));
    assert_int_equal(told.ended[0], 0);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    others_cut("locker");
    assert_true(kit_until(are_connected, &again, PATIENCE_MS));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    assert_null(strstr(kit_log_text, "WRONGPASS"));
}

/* The server executes what comes behind AUTH as the new user, without another connection. */
static void new_user_counts_on_the_living_connection(void **state) {
    rlock_config config = config_as("locker", "first");
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");

    (void)state;
    tell(ask(&server, "ACL SETUSER reader on >read ~* &* -@all +auth"));
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(rlock_client_set_credentials(client, "reader", "read"), RLOCK_OK);
    assert_true(kit_until(is_accepted, NULL, PATIENCE_MS));
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_ERR_AUTH);
    assert_int_equal(rlock_client_set_credentials(client, "locker", "first"), RLOCK_OK);
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    assert_int_equal(told.ended[0], 0);
}

/* Polling would take seconds here. */
static void no_wake_up_is_lost_while_the_push_connection_reconnects(void **state) {
    rlock_config config = config_as("locker", "first");
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");
    char password[32];
    int round;

    (void)state;
    for (round = 0; round < 12; round++) {
        tell(ask(&server, "SET k another PX 60000"));
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        assert_true(kit_until(kit_is_pushing, client, PATIENCE_MS));
        kit_run(20);
        told.connected[1] = 1;
        snprintf(password, sizeof password, "round-%d", round);
        user_has(&server, password);
        assert_int_equal(rlock_client_set_credentials(client, "locker", password), RLOCK_OK);
        kit_run(round % 6);
        tell(ask(&server, "DEL k"));
        assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 2500), RLOCK_OK);
        assert_true(kit_until(push_is_another, client, PATIENCE_MS));
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_int_equal(told.ended[0], 0);
    assert_int_equal(kit_stats(client).faults, 0);     /* it is nobody's fault, ... */
    assert_null(strstr(kit_log_text, "reconnecting")); /* ... and nobody has to look at it */
}

static void refused_credentials_leave_the_connections_as_they_are(void **state) {
    rlock_config config = config_as("locker", "first");
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k"), *waits = owner_new(client, "taken");

    (void)state;
    tell(ask(&server, "SET taken another PX 60000"));
    assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 60000, owner_told, waits), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, PATIENCE_MS));
    assert_int_equal(rlock_client_set_credentials(client, "locker", "not-the-one"), RLOCK_OK);
    assert_true(kit_until(is_refused, NULL, PATIENCE_MS));
    assert_non_null(strstr(told.text, "WRONGPASS"));
    assert_true(log_has((void *)(uintptr_t) "new credentials are refused: WRONGPASS"));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_true(kit_stats(client).pushing);
    assert_int_equal(told.ended[0] + told.ended[1], 0);
    assert_int_equal(waits->seen[RLOCK_ACQUIRED] + o->seen[RLOCK_LOST], 0);
    tell(ask(&server, "DEL taken"));
    assert_int_equal(owner_wait(waits, RLOCK_ACQUIRED, 2500), RLOCK_OK);
    assert_int_equal(rlock_client_set_credentials(client, "locker", "first"), RLOCK_OK);
    assert_true(kit_until(is_accepted, NULL, PATIENCE_MS)); /* a later one mends it */
}

/* The server stands still, so the handshake is out with the old one when the new one comes. */
static void waiter_is_not_refused_before_the_newer_password_is_tried(void **state) {
    int64_t waits[] = {RLOCK_FOREVER, 0};
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_config config = config_as("locker", "first");
        rlock_client *client;
        struct owner *o;

        config.command_timeout_ms = 20000;
        client = kit_client(&config);
        o = owner_new(client, i == 0 ? "a" : "b");
        user_has(&server, "second");
        server_pause(&server);
        assert_int_equal(rlock_acquire(o->lock, waits[i], 60000, owner_told, o), RLOCK_OK);
        kit_run(50);
        assert_int_equal(rlock_client_set_credentials(client, "locker", "second"), RLOCK_OK);
        server_resume(&server);
        assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, PATIENCE_MS), RLOCK_OK);
        assert_int_equal(kit_stats(client).faults, 0);
        assert_int_equal(told.connected[0], i + 1);
        user_has(&server, "first");
    }
}

/* It stands before AUTH, and is sent once more behind it. */
static void acquire_that_left_before_the_new_rights_gets_them(void **state) {
    rlock_config config = config_as("weak", "weak");
    rlock_client *client;
    struct owner *o, *first;

    (void)state;
    tell(ask(&server, "ACL SETUSER weak on >weak ~* &* +@all"));
    config.command_timeout_ms = 20000;
    client = kit_client(&config);
    first = owner_new(client, "first");
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(first, 0, 60000), RLOCK_OK);
    tell(ask(&server, "ACL SETUSER weak -set -eval -evalsha"));
    server_pause(&server);
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
    kit_run(30);
    assert_int_equal(rlock_client_set_credentials(client, "locker", "first"), RLOCK_OK);
    kit_run(30);
    server_resume(&server);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, PATIENCE_MS), RLOCK_OK);
    assert_int_equal(told.ended[0], 0);
    assert_int_equal(owner_release(o), RLOCK_OK);
    tell(ask(&server, "ACL DELUSER weak"));
}

/* The pause after a refusal is half a second at least; the best of a few tries needs none of it. */
static void newer_password_is_tried_at_once_after_a_refusal(void **state) {
    int64_t best_us = INT64_MAX;
    int i;

    (void)state;
    for (i = 0; i < 5; i++) {
        rlock_config config = config_as("locker", "wrong");
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, "k");
        int64_t began_us;

        assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 5000), RLOCK_ERR_AUTH);
        began_us = kit_now_us();
        assert_int_equal(rlock_client_set_credentials(client, "locker", "first"), RLOCK_OK);
        assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 5000), RLOCK_OK);
        best_us = kit_now_us() - began_us < best_us ? kit_now_us() - began_us : best_us;
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_true(best_us < 400000);
}

/* A token of a cloud has two thousand bytes; a password may be taken away too. */
static void long_password_is_sent_whole_and_none_is_none(void **state) {
    static char password[4001], command[4100];
    rlock_config config = config_as("locker", "first");
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, "k");
    int again = 2;

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 5000), RLOCK_OK);
    memset(password, 'x', sizeof password - 1);
    snprintf(command, sizeof command, "ACL SETUSER locker >%s", password);
    tell(ask(&server, command));
    assert_int_equal(rlock_client_set_credentials(client, "locker", password), RLOCK_OK);
    assert_true(kit_until(is_accepted, NULL, PATIENCE_MS));
    assert_int_equal(rlock_client_set_credentials(client, NULL, NULL), RLOCK_OK);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    others_cut("locker");
    assert_true(kit_until(are_connected, &again, PATIENCE_MS)); /* as the default user */
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(told.refused[0], 0);
}

static void store_that_takes_none_says_so(void **state) {
    rlock_config config = kit_config(&server);

    (void)state;
#if RLOCK__HAS_MEMORY
    {
        rlock_store *memory = NULL;

        assert_int_equal(rlock_memory_new(&memory), RLOCK_OK);
        config.store = memory;
        assert_int_equal(rlock_client_set_credentials(kit_client(&config), "locker", "first"),
                         RLOCK_ERR_ARG);
        assert_true(
            log_has((void *)(uintptr_t)RLOCK__TEXT("this store does not take credentials")));
        kit_reset();
        rlock_memory_free(memory);
        config.store = NULL;
    }
#endif
    assert_int_equal(rlock_client_set_sentinel_credentials(kit_client(&config), "locker", "first"),
                     RLOCK_ERR_ARG);
    assert_true(log_has((void *)(uintptr_t)RLOCK__TEXT("this store does not use Sentinels")));
}

/* ------------------------------------------------------------------------------------------------
 * Several servers
 */

#if RLOCK__HAS_QUORUM

static struct server *member(int i) {
    return i == 0 ? &server : &others[i - 1];
}

/* Each of the servers has the user with the password "first"; the client has this one. */
static rlock_client *client_of_a_quorum(rlock_store **quorum, const char *password) {
    rlock_config members[SERVERS], config = config_as(NULL, NULL);
    int i;

    for (i = 0; i < SERVERS; i++) {
        if (member(i)->pid <= 0) {
            assert_int_equal(server_start(member(i), NULL), 0);
        }
        user_has(member(i), "first");
        members[i] = kit_config(member(i));
        members[i].username = "locker";
        members[i].password = password;
    }
    assert_int_equal(rlock_quorum_new(quorum, members, SERVERS), RLOCK_OK);
    config.unix_path = NULL;
    config.store = *quorum;
    return kit_client(&config);
}

static void every_server_of_a_quorum_gets_them(void **state) {
    rlock_store *quorum = NULL;
    rlock_client *client = client_of_a_quorum(&quorum, "first");
    struct owner *o = owner_new(client, "k");
    int i, first = SERVERS, again = 2 * SERVERS;

    (void)state;
    assert_int_equal(owner_acquire(o, 1000, 60000), RLOCK_OK); /* by two of three */
    assert_true(kit_until(are_connected, &first, PATIENCE_MS));
    for (i = 0; i < SERVERS; i++) {
        user_has(member(i), "second");
    }
    assert_int_equal(rlock_client_set_credentials(client, "locker", "second"), RLOCK_OK);
    assert_int_equal(rlock_client_set_sentinel_credentials(client, NULL, "x"), RLOCK_ERR_ARG);
    for (i = 0; i < SERVERS; i++) {
        tell(ask(member(i), "CLIENT KILL USER locker"));
    }
    assert_true(kit_until(are_connected, &again, PATIENCE_MS));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    assert_null(strstr(kit_log_text, "WRONGPASS"));
    kit_reset();
    rlock_quorum_free(quorum);
}

/* All of them have refused the former ones: that says nothing of the newer ones. */
static void newer_password_of_a_quorum_is_tried_before_an_acquire_ends(void **state) {
    rlock_store *quorum = NULL;
    rlock_client *client = client_of_a_quorum(&quorum, "wrong");
    struct owner *o = owner_new(client, "k");

    (void)state;
    assert_int_equal(owner_acquire(o, PATIENCE_MS, 5000), RLOCK_ERR_AUTH);
    assert_int_equal(rlock_client_set_credentials(client, "locker", "first"), RLOCK_OK);
    assert_int_equal(owner_acquire(o, PATIENCE_MS, 5000), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    kit_reset();
    rlock_quorum_free(quorum);
}

#endif

#if RLOCK__HAS_CLUSTER

static void node_of_a_cluster_gets_them_now_and_when_it_comes(void **state) {
    static struct server node;
    static char at[32], port[8];
    static const char *args[] = {"--cluster-enabled",
                                 "yes",
                                 "--cluster-preferred-endpoint-type",
                                 "unknown-endpoint",
                                 "--cluster-port",
                                 port,
                                 NULL};
    rlock_config config = config_as("locker", "first");
    rlock_client *clients[2];
    int i;

    (void)state;
    node.port = server_free_port();
    snprintf(port, sizeof port, "%d", server_free_port());
    snprintf(at, sizeof at, "127.0.0.1:%d", node.port);
    assert_int_equal(server_start(&node, args), 0);
    assert_int_equal(server_gets_slots(&node), 0);
    user_has(&node, "first");
    config.unix_path = NULL;
    config.cluster = at;
    for (i = 0; i < 2; i++) { /* the second connects afterwards */
        clients[i] = kit_client(&config);
        if (i == 0) {
            struct owner *o = owner_new(clients[0], "k");

            assert_int_equal(owner_acquire(o, 5000, 60000), RLOCK_OK);
        }
    }
    user_has(&node, "second");
    for (i = 0; i < 2; i++) {
        assert_int_equal(rlock_client_set_credentials(clients[i], "locker", "second"), RLOCK_OK);
        assert_int_equal(rlock_client_set_sentinel_credentials(clients[i], NULL, "x"),
                         RLOCK_ERR_ARG);
    }
    assert_true(kit_until(is_accepted, NULL, PATIENCE_MS));
    assert_int_equal(owner_renew(&kit_owners[0], 0), RLOCK_OK);
    tell(ask(&node, "CLIENT KILL USER locker"));
    for (i = 0; i < 2; i++) {
        struct owner *o = owner_new(clients[i], "other");

        assert_int_equal(owner_acquire(o, 5000, 60000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
    }
    assert_int_equal(kit_owners[0].seen[RLOCK_LOST], 0);
    assert_null(strstr(kit_log_text, "WRONGPASS"));
    kit_reset();
    kit_hand_drop();
    server_stop(&node);
}

#endif

/* ------------------------------------------------------------------------------------------------
 * A password that changes every two seconds, and connections that are cut
 */

#define CLIENTS 3
#define HOLDERS 3
#define REFUSED_MS 1000 /* no key may be refused, or not be granted, for longer */

struct worker {
    struct owner *o;
    int64_t granted_us, worst_us; /* the last grant; the longest time without one */
    int64_t next_us;              /* its next acquire: it leaves the processor to others */
    int rounds, refused;
};

/* Acquires and releases a hundred times a second. */
static void worker_goes_on(struct worker *w, int64_t now_us) {
    struct owner *o = w->o;

    if (o->seen[RLOCK_ACQUIRED] > o->taken[RLOCK_ACQUIRED]) {
        o->taken[RLOCK_ACQUIRED] = o->seen[RLOCK_ACQUIRED];
        if (o->status[RLOCK_ACQUIRED] == RLOCK_OK) {
            w->granted_us = now_us;
            w->rounds++;
            w->next_us = now_us + 10000;
            rlock_release(o->lock, owner_told, o);
            return;
        }
        w->refused++;
    }
    if (now_us - w->granted_us > w->worst_us) {
        w->worst_us = now_us - w->granted_us;
    }
    if (now_us >= w->next_us) {
        rlock_acquire(o->lock, 300, 2000, owner_told, o); /* STATE while one is out */
    }
}

static void rotating_passwords_and_cuts_lose_no_hold(void **state) {
    rlock_client *clients[CLIENTS];
    struct owner *holders[CLIENTS * HOLDERS];
    struct worker workers[CLIENTS];
    char key[32], password[32] = "first";
    int64_t now_us = kit_now_us(), end_us = now_us + rotation_s * 1000000LL;
    int64_t change_us = now_us, tell_us = 0, cut_us = now_us + 1500000, slow_us = 0,
            last_us = now_us;
    unsigned seed = (unsigned)now_us;
    int i, changes = 0, cuts = 0;

    (void)state;
    memset(workers, 0, sizeof workers);
    for (i = 0; i < CLIENTS; i++) {
        rlock_config config = config_as("locker", "first");

        config.watchdog_lease_ms = 5000;
        config.poll_ms = 250;
        clients[i] = kit_client(&config);
        snprintf(key, sizeof key, "work-%d", i);
        workers[i].o = owner_new(clients[i], key);
    }
    for (i = 0; i < CLIENTS * HOLDERS; i++) {
        snprintf(key, sizeof key, "held-%d", i);
        holders[i] = owner_new(clients[i % CLIENTS], key);
        assert_int_equal(owner_acquire(holders[i], 5000, 0), RLOCK_OK);
    }
    for (i = 0; i < CLIENTS; i++) {
        workers[i].granted_us = kit_now_us();
    }
    while (now_us < end_us) {
        rlock_poll_once(kit_poll, 5);
        now_us = kit_now_us();
        slow_us = now_us - last_us > slow_us ? now_us - last_us : slow_us; /* of this machine */
        last_us = now_us;
        for (i = 0; i < CLIENTS; i++) {
            worker_goes_on(&workers[i], now_us);
        }
        if (now_us >= change_us) {
            snprintf(password, sizeof password, "password-%d", ++changes);
            user_has(&server, password);
            change_us += 2000000;
            tell_us = now_us + 1000 * (rand_r(&seed) % 200); /* the client is told later, ... */
            cut_us = changes % 2 ? now_us + 1000 : cut_us;   /* ... its connections end before */
        }
        if (now_us >= cut_us) {
            others_cut("locker");
            cuts++;
            cut_us = now_us + 1100000 + 1000 * (rand_r(&seed) % 1500);
        }
        if (tell_us != 0 && now_us >= tell_us) {
            tell_us = 0;
            for (i = 0; i < CLIENTS; i++) {
                assert_int_equal(rlock_client_set_credentials(clients[i], "locker", password),
                                 RLOCK_OK);
            }
        }
    }
    for (i = 0; i < CLIENTS; i++) {
        printf("# client %d: %d rounds, %d refused, %lld ms at most without a grant\n", i,
               workers[i].rounds, workers[i].refused, (long long)workers[i].worst_us / 1000);
        assert_true(workers[i].rounds > rotation_s * 5);
        assert_true(workers[i].worst_us < REFUSED_MS * 1000 + 2 * slow_us);
    }
    for (i = 0; i < CLIENTS * HOLDERS; i++) {
        assert_int_equal(holders[i]->seen[RLOCK_LOST], 0);
        assert_true(rlock_is_held(holders[i]->lock));
    }
    printf("# %d passwords, %d cuts, %d holds, none lost\n", changes, cuts, CLIENTS * HOLDERS);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_begins, test_ends)

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        TEST(hold_outlives_a_password_that_is_replaced),
        TEST(new_user_counts_on_the_living_connection),
        TEST(no_wake_up_is_lost_while_the_push_connection_reconnects),
        TEST(refused_credentials_leave_the_connections_as_they_are),
        TEST(waiter_is_not_refused_before_the_newer_password_is_tried),
        TEST(acquire_that_left_before_the_new_rights_gets_them),
        TEST(newer_password_is_tried_at_once_after_a_refusal),
        TEST(long_password_is_sent_whole_and_none_is_none),
        TEST(store_that_takes_none_says_so),
#if RLOCK__HAS_QUORUM
        TEST(every_server_of_a_quorum_gets_them),
        TEST(newer_password_of_a_quorum_is_tried_before_an_acquire_ends),
#endif
#if RLOCK__HAS_CLUSTER
        TEST(node_of_a_cluster_gets_them_now_and_when_it_comes),
#endif
        TEST(rotating_passwords_and_cuts_lose_no_hold),
    };

    if (argc > 2 && strcmp(argv[1], "rotation") == 0) {
        rotation_s = atoi(argv[2]);
        cmocka_set_test_filter("rotating_*");
    } else if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return shard_group("credentials", tests, group_begins, group_ends);
}
