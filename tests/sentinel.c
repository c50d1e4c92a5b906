/* A primary, two replicas and three Sentinels, all of them real: who is killed, stopped, promoted,
 * away or of another password. What Sentinels may say wrong is tested in faults_sentinel.h. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kit.h"
#include "shard.h"

#define NODES 3
#define FAILOVER_MS 30000 /* the longest that a failover may take on a busy machine */
#define LEASE_MS 60000

static struct server nodes[NODES], sentinels[NODES];
static char files[NODES][128], list[96];
static int first; /* the port of the primary at the beginning */

/* ------------------------------------------------------------------------------------------------
 * The deployment
 */

static void sentinel_is_told(int i) {
    FILE *file;

    snprintf(files[i], sizeof files[i], "%s/sentinel%d.conf", nodes[0].dir, i);
    file = fopen(files[i], "w");
    assert_non_null(file);
    fprintf(file,
            "sentinel monitor locks 127.0.0.1 %d 2\n"
            "sentinel down-after-milliseconds locks 500\n"
            "sentinel failover-timeout locks 1000\n",
            first);
    fclose(file);
}

static int group_begins(void **state) {
    static const char *replica[] = {
        "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", "", NULL};
    static const char *watches[] = {"--sentinel", NULL};
    static char port[8];
    int i, n = 0;

    (void)state;
    assert_int_equal(kit_open(), 0);
    for (i = 0; i < NODES; i++) {
        nodes[i].port = server_free_port();
        first = nodes[0].port;
        snprintf(port, sizeof port, "%d", first);
        replica[2] = i == 0 ? NULL : "--replicaof";
        replica[4] = port;
        assert_int_equal(server_start(&nodes[i], replica), 0);
    }
    for (i = 0; i < NODES; i++) {
        sentinel_is_told(i);
        sentinels[i].port = server_free_port();
        sentinels[i].file = files[i];
        assert_int_equal(server_start(&sentinels[i], watches), 0);
        n += snprintf(list + n, sizeof list - (size_t)n, "%s127.0.0.1:%d", i ? "," : "",
                      sentinels[i].port);
    }
    return 0;
}

static int group_ends(void **state) {
    int i;

    (void)state;
    kit_reset();
    kit_hand_drop();
    kit_close();
    for (i = 0; i < NODES; i++) {
        server_stop(&sentinels[i]);
        server_stop(&nodes[i]);
    }
    return 0;
}

/* A value out of an array of names and values. */
static const char *value_of(const redisReply *reply, const char *name) {
    size_t i;

    for (i = 0; i + 1 < reply->elements; i += 2) {
        if (strcmp(reply->element[i]->str, name) == 0) {
            return reply->element[i + 1]->str;
        }
    }
    return "";
}

/* The node that a Sentinel names. */
static int named_by(int i) {
    redisReply *reply = ask(&sentinels[i], "SENTINEL GET-MASTER-ADDR-BY-NAME locks");
    int port = reply->elements == 2 ? atoi(reply->element[1]->str) : 0, node = NODES - 1;

    freeReplyObject(reply);
    while (node >= 0 && nodes[node].port != port) {
        node--;
    }
    return node;
}

/* True if a Sentinel knows all there is to know, and would promote either replica. */
static bool knows_all(int i) {
    redisReply *reply = ask(&sentinels[i], "SENTINEL MASTER locks");
    bool all = strcmp(value_of(reply, "flags"), "master") == 0 &&
               strcmp(value_of(reply, "num-slaves"), "2") == 0 &&
               strcmp(value_of(reply, "num-other-sentinels"), "2") == 0;
    size_t k;

    freeReplyObject(reply);
    reply = ask(&sentinels[i], "SENTINEL REPLICAS locks");
    for (k = 0; k < reply->elements; k++) {
        const redisReply *one = reply->element[k];

        all = all && strcmp(value_of(one, "flags"), "slave") == 0 &&
              strcmp(value_of(one, "master-link-status"), "ok") == 0 &&
              strcmp(value_of(one, "role-reported"), "slave") == 0 &&
              atoi(value_of(one, "info-refresh")) > 0 &&
              atoi(value_of(one, "slave-repl-offset")) > 0;
    }
    freeReplyObject(reply);
    reply = ask(&sentinels[i], "SENTINEL SENTINELS locks");
    for (k = 0; k < reply->elements; k++) {
        all = all && strcmp(value_of(reply->element[k], "flags"), "sentinel") == 0;
    }
    freeReplyObject(reply);
    return all && strstr(str(ask(&sentinels[i], "INFO sentinel")), "sentinel_tilt:0") != NULL;
}

static int is_whole(void *arg) {
    int i;

    (void)arg;
    for (i = 0; i < NODES; i++) {
        if (!knows_all(i) || named_by(i) != named_by(0)) {
            return 0;
        }
    }
    return 1;
}

static int test_begins(void **state) {
    int i;

    (void)state;
    for (i = 0; i < NODES; i++) {
        if (nodes[i].pid == 0) {
            assert_int_equal(server_restart(&nodes[i]), 0);
        }
        if (sentinels[i].pid == 0) {
            assert_int_equal(server_restart(&sentinels[i]), 0);
        }
    }
    for (i = 0; i < NODES; i++) { /* from 7.0 on; without it a test takes half a minute longer */
        freeReplyObject(ask(&sentinels[i], "SENTINEL DEBUG INFO-PERIOD 500"));
    }
    assert_true(kit_until(is_whole, NULL, 60000));
    tell(ask(&nodes[named_by(0)], "FLUSHALL"));
    return 0;
}

static int test_ends(void **state) {
    int i;

    (void)state;
    kit_reset();
    for (i = 0; i < NODES; i++) {
        server_resume(&nodes[i]);
        server_resume(&sentinels[i]);
    }
    return 0;
}

static rlock_config config_of(void) {
    rlock_config config = kit_config(&nodes[0]);

    config.unix_path = NULL;
    config.sentinels = list;
    config.sentinel_primary = "locks";
    config.command_timeout_ms = 500;
    config.watchdog_lease_ms = LEASE_MS;
    return config;
}

/* ------------------------------------------------------------------------------------------------
 * What a client does
 */

struct at {
    rlock_client *client;
    int not_node;
};

/* The node that a client works at; -1 = none. */
static int works_at(rlock_client *client) {
    rlock__redis *redis = (rlock__redis *)client->store_state;
    int i = NODES - 1;

    while (i >= 0 && !(kit_stats(client).up && redis->endpoint.port == nodes[i].port)) {
        i--;
    }
    return i;
}

static int works_elsewhere(void *arg) {
    struct at *at = (struct at *)arg;
    int node = works_at(at->client);

    return node >= 0 && node != at->not_node;
}

static bool leaves(rlock_client *client, int node) {
    struct at at;

    at.client = client;
    at.not_node = node;
    return kit_until(works_elsewhere, &at, FAILOVER_MS);
}

/* One holds a key and another waits for it; the key is at both replicas. Returns the primary. */
static int a_pair(rlock_client **clients, struct owner **holder, struct owner **waiter) {
    rlock_config config = config_of();
    int primary = named_by(0);

    clients[0] = kit_client(&config);
    clients[1] = kit_client(&config);
    *holder = owner_new(clients[0], "k");
    *waiter = owner_new(clients[1], "k");
    assert_int_equal(owner_acquire(*holder, 5000, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire((*waiter)->lock, RLOCK_FOREVER, LEASE_MS, owner_told, *waiter),
                     RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, clients[1], 5000));
    assert_int_equal(works_at(clients[0]), primary);
    tell(ask(&nodes[primary], "SET copied 1"));
    assert_int_equal(num(ask(&nodes[primary], "WAIT 2 4000")), 2);
    return primary;
}

/* After the failover both are at the new primary: the hold is kept, and handed over. */
static void pair_goes_on(rlock_client **clients, struct owner *holder, struct owner *waiter,
                         int was) {
    int i;

    for (i = 0; i < 2; i++) {
        assert_true(leaves(clients[i], was));
    }
    assert_int_equal(works_at(clients[1]), works_at(clients[0]));
    assert_true(rlock_is_held(holder->lock));
    assert_int_equal(holder->seen[RLOCK_LOST], 0);
    assert_int_equal(waiter->seen[RLOCK_ACQUIRED], 0);
    assert_true(kit_until(kit_is_pushing, clients[1], 10000));
    assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(num(ask(&nodes[works_at(clients[0])], "EXISTS k")), 1);
}

/* It still takes itself for the primary, and would answer OK. */
static void primary_that_was_stopped_is_not_used_when_it_is_back(void **state) {
    rlock_client *clients[2];
    struct owner *holder, *waiter, *other;
    int was;

    (void)state;
    was = a_pair(clients, &holder, &waiter);
    server_pause(&nodes[was]);
    assert_true(leaves(clients[0], was));
    assert_true(leaves(clients[1], was));
    server_resume(&nodes[was]);
    other = owner_new(clients[0], "other");
    assert_int_equal(owner_acquire(other, 5000, LEASE_MS), RLOCK_OK);
    kit_run(1500);
    assert_int_not_equal(works_at(clients[0]), was);
    assert_int_equal(num(ask(&nodes[works_at(clients[0])], "EXISTS other")), 1);
    pair_goes_on(clients, holder, waiter, was);
}

/* The old primary answers OK for ten seconds more, and closes nothing before that. */
static int promoted(void *arg) {
    int *was = (int *)arg, i;

    for (i = 0; i < NODES; i++) {
        if (i != *was && nodes[i].pid > 0 &&
            strstr(str(ask(&nodes[i], "INFO replication")), "role:master") != NULL) {
            return 1;
        }
    }
    return 0;
}

static void killed_primary_is_followed(void **state) {
    rlock_client *clients[2];
    struct owner *holder, *waiter;
    int64_t begun_us, promoted_us;
    int was;

    (void)state;
    was = a_pair(clients, &holder, &waiter);
    begun_us = kit_now_us();
    server_kill9(&nodes[was]);
    assert_true(kit_until(promoted, &was, FAILOVER_MS));
    promoted_us = kit_now_us();
    assert_true(leaves(clients[0], was));
    print_message("kill -9: promoted after %d ms, followed %d ms later\n",
                  (int)((promoted_us - begun_us) / 1000),
                  (int)((kit_now_us() - promoted_us) / 1000));
    pair_goes_on(clients, holder, waiter, was);
}

static void failover_by_an_operator_is_followed(void **state) {
    rlock_client *clients[2];
    struct owner *holder, *waiter;
    int64_t begun_us, promoted_us;
    int was;

    (void)state;
    was = a_pair(clients, &holder, &waiter);
    begun_us = kit_now_us();
    tell(ask(&sentinels[0], "SENTINEL FAILOVER locks"));
    assert_true(kit_until(promoted, &was, FAILOVER_MS));
    promoted_us = kit_now_us();
    assert_true(leaves(clients[0], was));
    print_message("SENTINEL FAILOVER: promoted after %d ms, followed %d ms later; the old one says "
                  "%.12s\n",
                  (int)((promoted_us - begun_us) / 1000),
                  (int)((kit_now_us() - promoted_us) / 1000),
                  strstr(str(ask(&nodes[was], "INFO replication")), "role:"));
    assert_non_null(strstr(kit_log_text, "the primary moved"));
    pair_goes_on(clients, holder, waiter, was);
}

/* No Sentinel is told of it: for some time they name a server that is a replica by now. */
static void failover_without_sentinels_is_followed_when_they_see_it(void **state) {
    rlock_client *clients[2];
    struct owner *holder, *waiter;
    int64_t begun_us;
    int was;

    (void)state;
    was = a_pair(clients, &holder, &waiter);
    begun_us = kit_now_us();
    tell(ask(&nodes[was], "FAILOVER TO 127.0.0.1 %d", nodes[(was + 1) % NODES].port));
    assert_true(leaves(clients[0], was) || leaves(clients[0], was));
    print_message("FAILOVER TO: followed after %d ms\n", (int)((kit_now_us() - begun_us) / 1000));
    pair_goes_on(clients, holder, waiter, was);
}

/* Who holds goes on; a new connection goes where the last one went. */
static void nothing_is_lost_while_all_sentinels_are_away(void **state) {
    rlock_client *clients[2];
    struct owner *holder, *waiter;
    int i, was;

    (void)state;
    was = a_pair(clients, &holder, &waiter);
    for (i = 0; i < NODES; i++) {
        server_kill9(&sentinels[i]); /* one that is stopped does nothing for 30 s after that */
    }
    kit_run(3000);
    assert_int_equal(works_at(clients[0]), was);
    assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
    tell(ask(&nodes[was], "CLIENT KILL TYPE normal"));
    assert_true(kit_until(kit_is_down, clients[0], 3000));
    assert_true(kit_until(kit_is_up, clients[0], 10000));
    assert_int_equal(works_at(clients[0]), was);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 10000), RLOCK_OK);
}

/* A hold that no replica has heard of is over before the new primary grants the key to another. */
static void hold_that_was_not_copied_is_over_after_the_quarantine(void **state) {
    rlock_config config = config_of();
    struct owner *held, *waits, *before;
    int64_t promoted_us;
    int i, was = named_by(0);

    (void)state;
    config.quarantine_ms = config.watchdog_lease_ms = 3000;
    held = owner_new(kit_client(&config), "k");
    before = owner_new(kit_client(&config), "k");
    waits = owner_new(kit_clients[1], "k");
    assert_int_equal(owner_acquire(before, 10000, 0), RLOCK_OK); /* the server is new to it */
    assert_int_equal(owner_release(before), RLOCK_OK);
    assert_int_equal(owner_acquire(held, 0, 1000), RLOCK_OK); /* so that it is connected */
    assert_int_equal(owner_release(held), RLOCK_OK);
    tell(ask(&nodes[was], "SET copied 1"));
    assert_int_equal(num(ask(&nodes[was], "WAIT 2 4000")), 2);
    for (i = 0; i < NODES; i++) {
        if (i != was) {
            server_pause(&nodes[i]);
        }
    }
    tell(ask(&nodes[was], "CLIENT KILL TYPE replica"));
    assert_int_equal(owner_acquire(held, 0, 0), RLOCK_OK);
    server_kill9(&nodes[was]);
    for (i = 0; i < NODES; i++) {
        server_resume(&nodes[i]);
    }
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
    while (!promoted(&was)) {
        kit_run(5);
        assert_int_equal(waits->seen[RLOCK_ACQUIRED], 0);
    }
    promoted_us = kit_now_us();
    while (waits->seen[RLOCK_ACQUIRED] == 0 && kit_now_us() < promoted_us + FAILOVER_MS * 1000) {
        kit_run(5);
        assert_false(rlock_is_held(held->lock) && rlock_is_held(waits->lock));
    }
    assert_int_equal(waits->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_true(kit_now_us() - promoted_us > 2900000);
    assert_int_equal(held->seen[RLOCK_LOST], 1);
}

static void password_on_one_side_is_sent_there_alone(void **state) {
    rlock_config config = config_of();
    int primary = named_by(0), i;

    (void)state;
    tell(ask(&nodes[primary], "ACL SETUSER locker on >secret ~* &* +@all"));
    config.username = "locker";
    config.password = "secret";
    assert_int_equal(owner_acquire(owner_new(kit_client(&config), "k"), 5000, 1000), RLOCK_OK);
    for (i = 0; i < NODES; i++) {
        tell(ask(&sentinels[i], "ACL SETUSER watcher on >hidden allchannels +@all"));
        tell(ask(&sentinels[i], "ACL SETUSER default off"));
    }
    assert_int_equal(owner_acquire(owner_new(kit_client(&config), "l"), 0, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(kit_log_text, "Sentinel connection to 127.0.0.1:"));
    config.sentinel_username = "watcher";
    config.sentinel_password = "hidden";
    assert_int_equal(owner_acquire(owner_new(kit_client(&config), "m"), 5000, 1000), RLOCK_OK);
    config.username = config.password = NULL;
    assert_int_equal(owner_acquire(owner_new(kit_client(&config), "n"), 5000, 1000), RLOCK_OK);
    for (i = 0; i < NODES; i++) {
        server_kill9(&sentinels[i]); /* the users are forgotten */
    }
}

#if RLOCK__HAS_CREDENTIALS

/* Each of the two has another user, and another password from now on. */
static void credentials_of_both_sides_may_change_while_it_holds(void **state) {
    rlock_config config = config_of();
    int primary = named_by(0), i;
    rlock_client *client;
    struct owner *o;
    char only[32];

    (void)state;
    tell(ask(&nodes[primary], "ACL SETUSER locker reset on >first ~* &* +@all"));
    for (i = 0; i < NODES; i++) {
        tell(ask(&sentinels[i], "ACL SETUSER watcher reset on >one allchannels +@all"));
    }
    config.username = "locker";
    config.password = "first";
    config.sentinel_username = "watcher";
    config.sentinel_password = "one";
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 5000, 0), RLOCK_OK);
    tell(ask(&nodes[primary], "ACL SETUSER locker resetpass >second"));
    for (i = 0; i < NODES; i++) {
        tell(ask(&sentinels[i], "ACL SETUSER watcher resetpass >two"));
    }
    assert_int_equal(rlock_client_set_credentials(client, "locker", "second"), RLOCK_OK);
    assert_int_equal(rlock_client_set_sentinel_credentials(client, "watcher", "two"), RLOCK_OK);
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    for (i = 0; i < NODES; i++) {
        freeReplyObject(ask(&sentinels[i], "CLIENT KILL USER watcher"));
    }
    tell(ask(&nodes[primary], "CLIENT KILL USER locker"));
    assert_true(kit_until(kit_is_down, client, 5000));
    assert_true(kit_until(kit_is_up, client, 10000));
    assert_int_equal(owner_renew(o, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    assert_null(strstr(kit_log_text, "WRONGPASS"));
    for (i = 0; i < NODES; i++) { /* the former ones are refused there: these were used */
        tell(ask(&sentinels[i], "ACL SETUSER watcher resetpass >three"));
    }
    tell(ask(&nodes[primary], "ACL SETUSER locker resetpass >third"));
    for (i = 0; i < NODES; i++) {
        freeReplyObject(ask(&sentinels[i], "CLIENT KILL USER watcher"));
    }
    tell(ask(&nodes[primary], "CLIENT KILL USER locker"));
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 0), RLOCK_ERR_AUTH);
    assert_int_equal(rlock_client_set_sentinel_credentials(client, "watcher", "three"), RLOCK_OK);
    assert_int_equal(rlock_client_set_credentials(client, "locker", "third"), RLOCK_OK);
    assert_int_equal(owner_acquire(o, RLOCK_FOREVER, 0), RLOCK_OK);
    assert_int_equal(owner_release(o), RLOCK_OK);
    snprintf(only, sizeof only, "127.0.0.1:%d", sentinels[0].port);
    config.sentinels = only; /* it stands still, so its refusal comes after the newer password */
    config.password = "third";
    config.command_timeout_ms = 20000;
    client = kit_client(&config);
    o = owner_new(client, "k");
    server_pause(&sentinels[0]);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 0, owner_told, o), RLOCK_OK);
    kit_run(100);
    assert_int_equal(rlock_client_set_sentinel_credentials(client, "watcher", "three"), RLOCK_OK);
    server_resume(&sentinels[0]);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 10000), RLOCK_OK);
    for (i = 0; i < NODES; i++) {
        server_kill9(&sentinels[i]); /* the users are forgotten */
    }
}

#endif

/* To Sentinel 127.1 is an address, and to the loop's resolver; to the library it is a name. */
static void name_that_a_sentinel_tells_is_resolved_or_refused(void **state) {
    rlock_config config = config_of();
    struct owner *o;
    int port = nodes[named_by(0)].port;
    char only[32];

    (void)state;
    tell(ask(&sentinels[0], "SENTINEL CONFIG SET resolve-hostnames yes"));
    tell(ask(&sentinels[0], "SENTINEL CONFIG SET announce-hostnames yes"));
    tell(ask(&sentinels[0], "SENTINEL MONITOR named 127.1 %d 1", port));
    snprintf(only, sizeof only, "127.0.0.1:%d", sentinels[0].port);
    config.sentinels = only;
    config.sentinel_primary = "named";
    o = owner_new(kit_client(&config), "k");
    if (RLOCK__HAS_NAMES) {
        assert_int_equal(owner_acquire(o, 5000, 1000), RLOCK_OK);
        assert_non_null(strstr(kit_log_text, "connection to 127.1:"));
    } else {
        assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_CONN);
        assert_string_equal(o->text[RLOCK_ACQUIRED], "a host name needs RLOCK_WITH_NAMES");
    }
    tell(ask(&sentinels[0], "SENTINEL REMOVE named"));
    tell(ask(&sentinels[0], "SENTINEL CONFIG SET announce-hostnames no"));
    tell(ask(&sentinels[0], "SENTINEL CONFIG SET resolve-hostnames no"));
}

/* ------------------------------------------------------------------------------------------------
 * Addresses that are good for Sentinels alone
 */

static struct server far_nodes[2], far_sentinel;

static bool far_is_here(void *user, const char *host, int port, char *new_host, size_t room,
                        int *new_port) {
    int *asked = (int *)user;

    ++*asked;
    assert_true(room > 255 && port > 0 && *new_port == port);
    if (strcmp(host, "127.1") != 0) {
        return false;
    }
    snprintf(new_host, room, "127.0.0.1");
    return true;
}

/* A primary, a replica and a Sentinel, to which both are at 127.1: without a resolver that is no
 * address. */
static void far_begins(void) {
    static const char *args[2][9] = {{"--replica-announce-ip", "127.1", NULL},
                                     {"--replica-announce-ip", "127.1",
                                      "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1",
                                      "", NULL}};
    static const char *watches[] = {"--sentinel", NULL};
    static char port[8], file[128];
    FILE *said;
    int i;

    for (i = 0; i < 2; i++) {
        memset(&far_nodes[i], 0, sizeof far_nodes[i]);
        far_nodes[i].port = server_free_port();
        snprintf(port, sizeof port, "%d", far_nodes[0].port);
        args[1][6] = port;
        assert_int_equal(server_start(&far_nodes[i], args[i]), 0);
    }
    snprintf(file, sizeof file, "%s/far.conf", nodes[0].dir);
    said = fopen(file, "w");
    assert_non_null(said);
    fprintf(said,
            "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n"
            "sentinel monitor far 127.1 %d 1\nsentinel down-after-milliseconds far 500\n"
            "sentinel failover-timeout far 1000\n",
            far_nodes[0].port);
    fclose(said);
    memset(&far_sentinel, 0, sizeof far_sentinel);
    far_sentinel.port = server_free_port();
    far_sentinel.file = file;
    assert_int_equal(server_start(&far_sentinel, watches), 0);
    freeReplyObject(ask(&far_sentinel, "SENTINEL DEBUG INFO-PERIOD 500"));
}

static int far_may_fail_over(void *arg) {
    redisReply *reply = ask(&far_sentinel, "SENTINEL REPLICAS far");
    int good = reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
               strcmp(value_of(reply->element[0], "flags"), "slave") == 0 &&
               strcmp(value_of(reply->element[0], "master-link-status"), "ok") == 0 &&
               atoi(value_of(reply->element[0], "slave-repl-offset")) > 0;

    (void)arg;
    freeReplyObject(reply);
    return good;
}

static int far_has_moved(void *arg) {
    const rlock__redis *redis = (const rlock__redis *)((rlock_client *)arg)->store_state;

    return kit_stats((rlock_client *)arg).up && redis->endpoint.port == far_nodes[1].port;
}

static int far_test_ends(void **state) {
    int i;

    kit_reset();
    kit_hand_drop();
    server_stop(&far_sentinel);
    for (i = 0; i < 2; i++) {
        server_stop(&far_nodes[i]);
    }
    return test_ends(state);
}

static void address_that_is_mapped_is_reached_through_a_failover(void **state) {
    rlock_config config = config_of();
    rlock_client *client;
    struct owner *o;
    char only[32];
    int asked = 0;

    (void)state;
    far_begins();
    snprintf(only, sizeof only, "127.0.0.1:%d", far_sentinel.port);
    config.sentinels = only;
    config.sentinel_primary = "far";
    config.loop.resolve = NULL;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, LEASE_MS), RLOCK_ERR_CONN);
    config.map_address = far_is_here;
    config.map_user = &asked;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(owner_acquire(o, 5000, LEASE_MS), RLOCK_OK);
    assert_true(asked > 0);
    assert_true(kit_until(far_may_fail_over, NULL, 60000));
    assert_int_equal(num(ask(&far_nodes[0], "WAIT 1 10000")), 1);
    server_kill9(&far_nodes[0]);
    assert_true(kit_until(far_has_moved, client, FAILOVER_MS));
    assert_int_equal(owner_renew(o, LEASE_MS), RLOCK_OK);
    assert_int_equal(o->seen[RLOCK_LOST], 0);
    assert_int_equal(num(ask(&far_nodes[1], "EXISTS k")), 1);
    assert_int_equal(owner_release(o), RLOCK_OK);
}

int main(int argc, char **argv) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)
    static const struct CMUnitTest tests[] = {
        TEST(nothing_is_lost_while_all_sentinels_are_away),
        TEST(failover_by_an_operator_is_followed),
        TEST(killed_primary_is_followed),
        TEST(primary_that_was_stopped_is_not_used_when_it_is_back),
        TEST(failover_without_sentinels_is_followed_when_they_see_it),
#if RLOCK__HAS_REPLICAS
        TEST(hold_that_was_not_copied_is_over_after_the_quarantine),
#endif
        TEST(name_that_a_sentinel_tells_is_resolved_or_refused),
        cmocka_unit_test_setup_teardown(address_that_is_mapped_is_reached_through_a_failover,
                                        test_begins, far_test_ends),
        TEST(password_on_one_side_is_sent_there_alone),
#if RLOCK__HAS_CREDENTIALS
        TEST(credentials_of_both_sides_may_change_while_it_holds),
#endif
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return shard_group("sentinel", tests, group_begins, group_ends);
}
