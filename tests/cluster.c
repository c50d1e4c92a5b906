/* cluster.c - real clusters: keys of all nodes, slots that move under what is held and waited for,
 * nodes that are killed, stopped, added and taken away. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster_kit.h"
#include "cluster_names.h"
#include "shard.h"

#define PRIMARIES 3
#define LEASE_MS 60000

static rlock_config config_of(const char *seeds) {
    rlock_config config = kit_config(&nodes[0]);

    config.unix_path = NULL;
    config.cluster = seeds;
    config.command_timeout_ms = 500;
    config.watchdog_lease_ms = LEASE_MS;
    return config;
}

static rlock_client *client_of(const char *seeds) {
    rlock_config config = config_of(seeds);

    return kit_client(&config);
}

static rlock_client *client_new(void) {
    return client_of(node_seeds);
}

static bool some_move_whole; /* these servers can do it */

static int three_begin(void **state) {
    (void)state;
    assert_int_equal(kit_open(), 0);
    cluster_start(PRIMARIES, 0);
    some_move_whole = slots_move_whole() != BY_STEPS;
    return 0;
}

static int group_ends(void **state) {
    (void)state;
    kit_reset();
    cluster_stop();
    kit_close();
    return 0;
}

/* Every slot is where it was at the beginning, and every node there. */
static int test_begins(void **state) {
    int i;

    (void)state;
    for (i = 0; i < node_count; i++) {
        if (nodes[i].pid == 0) {
            assert_int_equal(server_restart(&nodes[i]), 0);
        }
    }
    cluster_heals();
    for (i = 0; i < node_count; i++) {
        freeReplyObject(ask(&nodes[i], "FLUSHALL"));
    }
    return 0;
}

static int test_ends(void **state) {
    int i;

    (void)state;
    kit_reset();
    for (i = 0; i < node_count; i++) {
        server_resume(&nodes[i]);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------
 * Slots, and what nodes may say of them
 */

static void slots_are_those_of_the_specification(void **state) {
    (void)state;
    assert_int_equal(rlock__crc16("123456789", 9), 0x31c3);
    assert_int_equal(key_slot("foo"), 12182);
    assert_int_equal(key_slot("{user1000}.following"), key_slot("user1000"));
    assert_int_equal(key_slot("rlock:{k}:fence"), key_slot("k"));
    assert_int_equal(key_slot("a{b}{c}"), key_slot("b"));
    assert_int_equal(key_slot("foo{{bar}}zap"), key_slot("{bar"));
    assert_int_not_equal(key_slot("{}x"), key_slot("{}y"));
    assert_int_not_equal(key_slot("a{b"), key_slot("b"));
    assert_int_not_equal(key_slot("}b{"), key_slot("b"));
}

static bool led(const char *words, int slot, const char *host, int port, bool asks) {
    rlock__slots there;
    bool ask;

    return rlock__slots_redirect(words, &there, &ask) && (int)there.from == slot &&
           there.port == port && ask == asks &&
           (host == NULL ? there.host == NULL
                         : there.host != NULL && there.host_len == strlen(host) &&
                               memcmp(there.host, host, there.host_len) == 0);
}

static void redirection_is_read_or_is_none(void **state) {
    static const char *const none[] = {
        "MOVED",
        "MOVED ",
        "MOVED 1",
        "MOVED 1 ",
        "MOVED 1 h",
        "MOVED 1 h:",
        "MOVED 1 h:x",
        "MOVED 1 h:0",
        "MOVED 1 h:65536",
        "MOVED 16384 h:1",
        "MOVED -1 h:1",
        "MOVED 1 h:1x",
        "MOVED x h:1",
        "MOVED 123456 h:1",
        "ASKING 1 h:1",
        "ASK",
        "BUSY",
        "",
        "MOVED 1  h:",
    };
    char many[400];
    size_t i;

    (void)state;
    assert_true(led("MOVED 12182 10.0.0.1:6380", 12182, "10.0.0.1", 6380, false));
    assert_true(led("ASK 1 ::1:6380", 1, "::1", 6380, true));
    assert_true(led("MOVED 0 :27102", 0, NULL, 27102, false));
    assert_true(led("ASK 0 ?:27102", 0, NULL, 27102, true));
    for (i = 0; i < sizeof none / sizeof *none; i++) {
        rlock__slots there;
        bool ask;

        if (rlock__slots_redirect(none[i], &there, &ask)) {
            fail_msg("%s", none[i]);
        }
    }
    snprintf(many, sizeof many, "MOVED 1 %0300d:1", 0);
    assert_false(led(many, 1, NULL, 1, false));
}

/* What hiredis makes of a reply in its own words. */
static redisReply *reply_of(const char *resp) {
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    redisReaderFeed(reader, resp, strlen(resp));
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    redisReaderFree(reader);
    assert_non_null(reply);
    return (redisReply *)reply;
}

static bool whole(const char *resp) {
    redisReply *reply = reply_of(resp);
    bool answer = rlock__slots_whole(reply);

    freeReplyObject(reply);
    return answer;
}

#define ROW(node) "*1\r\n*3\r\n:0\r\n:16383\r\n" node
#define IP "*2\r\n$2\r\nip\r\n$8\r\n10.0.0.9\r\n"

static void map_is_read_whole_or_not_at_all(void **state) {
    static const char *const hostile[] = {"+OK\r\n",
                                          ":1\r\n",
                                          "$-1\r\n",
                                          "*1\r\n:1\r\n",
                                          "*1\r\n*0\r\n",
                                          "*1\r\n*2\r\n:0\r\n:1\r\n",
                                          "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n",
                                          "*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\nh\r\n:1\r\n",
                                          "*1\r\n*3\r\n:2\r\n:1\r\n*2\r\n$1\r\nh\r\n:1\r\n",
                                          "*1\r\n*3\r\n$1\r\n0\r\n:1\r\n*2\r\n$1\r\nh\r\n:1\r\n",
                                          ROW("$1\r\nh\r\n"),
                                          ROW("*0\r\n"),
                                          ROW("*1\r\n$1\r\nh\r\n"),
                                          ROW("*2\r\n$1\r\nh\r\n:0\r\n"),
                                          ROW("*2\r\n$1\r\nh\r\n:65536\r\n"),
                                          ROW("*2\r\n$1\r\nh\r\n$1\r\n1\r\n"),
                                          ROW("*2\r\n:1\r\n:1\r\n"),
                                          ROW("*2\r\n*0\r\n:1\r\n")};
    size_t i;

    (void)state;
    assert_true(whole("*0\r\n"));
    assert_false(whole("*2\r\n*3\r\n:0\r\n:9999\r\n*2\r\n$1\r\nh\r\n:1\r\n"
                       "*3\r\n:1\r\n:9999\r\n*2\r\n$1\r\nh\r\n:1\r\n"));
    assert_true(whole(ROW("*2\r\n$1\r\nh\r\n:1\r\n")));
    for (i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        if (whole(hostile[i])) {
            fail_msg("%s", hostile[i]);
        }
    }
}

static const char *host_of(const char *resp) {
    static char host[32];
    redisReply *reply = reply_of(resp);
    rlock__slots row;

    assert_true(rlock__slots_row(reply->element[0], &row));
    assert_int_equal(row.from, 0);
    assert_int_equal(row.to, 16383);
    assert_int_equal(row.port, 7000);
    snprintf(host, sizeof host, "%.*s", (int)row.host_len, row.host != NULL ? row.host : "");
    freeReplyObject(reply);
    return host;
}

static void host_of_a_node_may_be_missing(void **state) {
    (void)state;
    assert_string_equal(host_of(ROW("*2\r\n$1\r\nh\r\n:7000\r\n")), "h");
    assert_string_equal(host_of(ROW("*2\r\n$-1\r\n:7000\r\n")), "");
    assert_string_equal(host_of(ROW("*2\r\n$0\r\n\r\n:7000\r\n")), "");
    assert_string_equal(host_of(ROW("*4\r\n$1\r\n?\r\n:7000\r\n$1\r\ni\r\n" IP)), "10.0.0.9");
    assert_string_equal(host_of(ROW("*4\r\n$1\r\n?\r\n:7000\r\n$1\r\ni\r\n*1\r\n$2\r\nip\r\n")),
                        "");
    assert_string_equal(host_of(ROW("*2\r\n$1\r\n?\r\n:7000\r\n")), "");
}

/* Connections 1025 to 2048 are this node's; it has the sixth, and those before are surely gone. */
static void attempts_at_two_nodes_stay_in_doubt_at_both(void **state) {
    static rlock__redis redis;

    (void)state;
    redis.first_epoch = redis.alive_up_to = 1024;
    redis.last_epoch = 2048;
    redis.epoch = 1030;
    redis.dead_up_to = 1029;
    assert_int_equal(rlock__epoch_noted(&redis, 0), 1030);
    assert_int_equal(rlock__epoch_noted(&redis, 1028), 1030);
    assert_int_equal(rlock__epoch_noted(&redis, 1030), 1030);
    assert_int_equal(rlock__epoch_noted(&redis, 5), RLOCK__EPOCHS_MIXED);
    assert_int_equal(rlock__epoch_noted(&redis, 3000), RLOCK__EPOCHS_MIXED);
    assert_false(rlock__epoch_gone(&redis, 5));
    assert_false(rlock__epoch_gone(&redis, RLOCK__EPOCHS_MIXED));
    assert_true(rlock__epoch_gone(&redis, 1029));
}

/* ------------------------------------------------------------------------------------------------
 * The mutex over three nodes
 */

static void keys_of_all_nodes_exclude_and_are_let_go(void **state) {
    rlock_client *ours = client_new(), *theirs = client_new();
    int i;

    (void)state;
    for (i = 0; i < PRIMARIES; i++) {
        const char *key = key_at(i, "all");
        struct owner *holder = owner_new(ours, key), *other = owner_new(theirs, key);

        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_true(key_is_at(i, key));
        assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_ERR_BUSY);
        assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
        assert_int_equal(owner_release(holder), RLOCK_OK);
        assert_false(key_is_at(i, key));
        assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_OK);
    }
}

/* One seed is enough, and one that is not there costs little. */
static void any_seed_leads_to_all_nodes(void **state) {
    char seeds[64];
    struct owner *holder;
    int64_t begun_us = kit_now_us();

    (void)state;
    snprintf(seeds, sizeof seeds, "127.0.0.1:1,localhost:%d", nodes[1].port);
    holder = owner_new(client_of(seeds), key_at(2, "seed"));
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    assert_in_range(kit_now_us() - begun_us, 0, 1000000);
}

static void only_nodes_whose_keys_are_wanted_are_connected_to(void **state) {
    rlock_client *client = client_new();
    struct owner *holder = owner_new(client, key_at(0, "one"));

    (void)state;
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    assert_int_equal(kit_stats(client).connects, 1);
}

static void slot_that_has_moved_is_followed(void **state) {
    rlock_client *ours = client_new(), *theirs = client_new();
    const char *key = key_at(0, "moved");
    struct owner *holder = owner_new(ours, key), *other = owner_new(theirs, key);

    (void)state;
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_ERR_BUSY);
    slot_moves(key_slot(key), 0, 1);
    assert_true(key_is_at(1, key));
    assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_ERR_BUSY);
    assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(owner_acquire(other, 0, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_release(other), RLOCK_OK);
    assert_int_equal(kit_stats(ours).cleaning, 0); /* what is moved leaves no doubt behind */
    assert_int_equal(kit_stats(theirs).cleaning, 0);
    slot_moves(key_slot(key), 1, 0);
}

static void node_that_is_killed_stops_its_own_keys_only(void **state) {
    rlock_client *client = client_new();
    struct owner *at[PRIMARIES];
    int i;

    (void)state;
    for (i = 0; i < PRIMARIES; i++) {
        at[i] = owner_new(client, key_at(i, "kill"));
        assert_int_equal(owner_acquire(at[i], 5000, LEASE_MS), RLOCK_OK);
    }
    server_kill9(&nodes[2]);
    for (i = 0; i < 2; i++) { /* the others serve until they notice, and again when it is back */
        assert_int_equal(owner_renew(at[i], LEASE_MS), RLOCK_OK);
        assert_int_equal(owner_release(at[i]), RLOCK_OK);
    }
    assert_int_equal(owner_renew(at[2], LEASE_MS) == RLOCK_OK, false);
    assert_true(kit_stats(client).up);
    assert_int_equal(at[2]->seen[RLOCK_LOST], 0);
    assert_int_equal(server_restart(&nodes[2]), 0);
    assert_int_equal(owner_wait(at[2], RLOCK_LOST, 10000), RLOCK_ERR_LOST); /* it had no dump */
    assert_int_equal(owner_acquire(at[2], 10000, LEASE_MS), RLOCK_OK);
}

/* ------------------------------------------------------------------------------------------------
 * Kinds, questions, watching
 */

static struct owner *owner_of_kind(rlock_client *client, const char *key, rlock_kind kind) {
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = key;
    options.kind = kind;
    options.permits = kind == RLOCK_KIND_SEMAPHORE ? 1 : 0;
    return owner_with(client, &options);
}

/* Clients that never poll: a waiter that is not notified comes too late. */
static rlock_client *client_that_listens(void) {
    rlock_config config = config_of(node_seeds);

    config.poll_ms = 60000;
    return kit_client(&config);
}

/* Waits for the key, and is told of what happens to it. */
static void waits(struct owner *waiter, rlock_client *client) {
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, LEASE_MS, owner_told, waiter),
                     RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, client, 5000));
    kit_run(100);
    assert_int_equal(waiter->seen[RLOCK_ACQUIRED], 0);
}

static void comes_soon(struct owner *waiter, struct owner *holder) {
    int64_t begun_us = kit_now_us();

    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 3000), RLOCK_OK);
    assert_in_range(kit_now_us() - begun_us, 0, 400000); /* an offer is looked for after 250 ms */
}

static void waiters_of_each_kind_are_notified_at_each_node(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_WRITE,
                                       RLOCK_KIND_SEMAPHORE};
    rlock_client *ours = client_that_listens(), *theirs = client_that_listens();
    int node;
    size_t k;

    (void)state;
    for (node = 0; node < PRIMARIES; node++) {
        for (k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const char *key = key_at(node, rlock_kind_str(kinds[k]));
            struct owner *holder = owner_of_kind(ours, key, kinds[k]);
            struct owner *waiter = owner_of_kind(theirs, key, kinds[k]);

            assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
            waits(waiter, theirs);
            comes_soon(waiter, holder);
        }
    }
}

/* PUBLISH at one node reaches those that listen at another one. */
static void notification_is_heard_once_however_many_nodes_deliver_it(void **state) {
    rlock_client *ours = client_that_listens(), *theirs = client_that_listens();
    struct owner *holders[PRIMARIES], *waiters[PRIMARIES];
    uint64_t woken;
    int i;

    (void)state;
    for (i = 0; i < PRIMARIES; i++) {
        const char *key = key_at(i, "once");

        holders[i] = owner_of_kind(ours, key, RLOCK_KIND_FAIR);
        waiters[i] = owner_of_kind(theirs, key, RLOCK_KIND_FAIR);
        assert_int_equal(owner_acquire(holders[i], 5000, LEASE_MS), RLOCK_OK);
        waits(waiters[i], theirs);
        kit_run(300); /* it listens at this node too */
    }
    woken = kit_stats(theirs).woken;
    comes_soon(waiters[0], holders[0]);
    kit_run(100);
    assert_int_equal(kit_stats(theirs).woken - woken, 1);
}

/* Handles that are made when the node pushes already know it at once. */
static void hold_that_is_taken_away_is_reported(void **state) {
    rlock_client *ours = client_that_listens(), *theirs = client_that_listens();
    struct owner *first = owner_new(ours, key_at(1, "first")), *other, *second;
    const char *key = key_at(1, "second");

    (void)state;
    other = owner_new(theirs, rlock_key(first->lock, NULL));
    assert_int_equal(owner_acquire(other, 5000, LEASE_MS), RLOCK_OK);
    waits(first, ours);
    second = owner_new(ours, key);
    assert_int_equal(owner_acquire(second, 0, LEASE_MS), RLOCK_OK);
    kit_run(1000); /* it is registered a while later */
    tell(ask(&nodes[1], "DEL %s", key));
    assert_int_equal(owner_wait(second, RLOCK_LOST, 1000), RLOCK_ERR_LOST);
}

static struct {
    int count;
    rlock_info info;
} told;

static void on_told(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    told.count++;
    told.info = *info;
}

static int is_told(void *arg) {
    (void)arg;
    return told.count > 0;
}

static const rlock_info *answer_to(int status) {
    assert_int_equal(status, RLOCK_OK);
    assert_true(kit_until(is_told, NULL, 5000));
    assert_int_equal(told.info.status, RLOCK_OK);
    told.count = 0;
    return &told.info;
}

static void questions_go_to_the_node_of_their_key(void **state) {
    rlock_client *client = client_new();
    int i;

    (void)state;
    for (i = 0; i < PRIMARIES; i++) {
        rlock_options options;
        struct owner *holder;

        memset(&options, 0, sizeof options);
        options.key = key_at(i, "question");
        options.kind = RLOCK_KIND_SEMAPHORE;
        options.permits = 1;
        holder = owner_with(client, &options);
        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_int_equal(answer_to(rlock_inspect(client, &options, on_told, NULL))->holders, 1);
        answer_to(rlock_set_permits(client, &options, 3, on_told, NULL));
        assert_int_equal(answer_to(rlock_inspect(client, &options, on_told, NULL))->permits, 2);
        assert_int_equal(answer_to(rlock_force_release(client, &options, on_told, NULL))->holders,
                         1);
        assert_int_equal(owner_wait(holder, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    }
}

static void keys_of_one_slot_are_one_lock_and_of_two_are_refused(void **state) {
    static const char *one[] = {"{tag}a", "{tag}b", "tag"}, *two[] = {"a", "b"};
    rlock_client *client = client_new();
    rlock_options options;
    struct owner *holder;

    (void)state;
    memset(&options, 0, sizeof options);
    options.keys = two;
    options.key_count = 2;
    assert_null(owner_with(client, &options));
    assert_non_null(strstr(kit_log_text, "hash tag"));
    options.keys = one;
    options.key_count = 3;
    options.fencing = true;
    holder = owner_with(client, &options);
    assert_non_null(holder);
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    assert_true(holder->fence[RLOCK_ACQUIRED] > 0);
    assert_int_equal(owner_release(holder), RLOCK_OK);
}

static void fences_of_a_key_rise_wherever_its_slot_is(void **state) {
    rlock_client *client = client_new();
    const char *key = key_at(0, "fence");
    struct owner *holder = owner_fenced(client, key);
    uint64_t last = 0;
    int i;

    (void)state;
    for (i = 0; i < 3; i++) {
        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_true(holder->fence[RLOCK_ACQUIRED] > last);
        last = holder->fence[RLOCK_ACQUIRED];
        assert_int_equal(owner_release(holder), RLOCK_OK);
        assert_int_equal(kit_stats(client).cleaning, 0); /* who said MOVED did nothing */
        slot_moves(key_slot(key), i % 2, 1 - i % 2);
    }
    slot_moves(key_slot(key), 1, 0);
}

/* ------------------------------------------------------------------------------------------------
 * Redisson's wire: what Redisson hears, and what it says
 */

#define CHANNEL "redisson_lock__channel:"

/* A user who may not track, so that there are channels alone, and may not do what `rule` says. */
static rlock_client *client_by_channel_polling(const char *seeds, const char *rule, int poll_ms) {
    rlock_config config = config_of(seeds);
    char command[160];
    int i;

    snprintf(command, sizeof command,
             "ACL SETUSER poor reset on nopass ~* &* +@all -client|tracking %s", rule);
    for (i = 0; i < node_count; i++) {
        tell(ask(&nodes[i], command));
    }
    config.username = "poor";
    config.password = "any";
    config.wire = RLOCK_WIRE_REDISSON;
    config.poll_ms = poll_ms;
    return kit_client(&config);
}

static rlock_client *client_by_channel(const char *seeds, const char *rule) {
    return client_by_channel_polling(seeds, rule, 60000);
}

/* A connection that listens as Redisson does: from 3.22.1 on with SSUBSCRIBE, at the node that has
 * the slot, if the servers know that; else with SUBSCRIBE, at any node. */
static const char *channel_of(const char *key) {
    static char channel[80];

    snprintf(channel, sizeof channel, strchr(key, '{') != NULL ? CHANNEL "%s" : CHANNEL "{%s}",
             key);
    return channel;
}

static redisContext *ear_at(const struct server *server, const char *command, const char *key) {
    redisContext *ear = kit_connect(server);
    redisReply *reply = (redisReply *)redisCommand(ear, "%s %s", command, channel_of(key));

    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    return ear;
}

static void hears(redisContext *ear, const char *kind, const char *key) {
    redisReply *reply = NULL;

    assert_int_equal(redisGetReply(ear, (void **)&reply), REDIS_OK);
    assert_string_equal(reply->element[0]->str, kind);
    assert_string_equal(reply->element[1]->str, channel_of(key));
    assert_string_equal(reply->element[2]->str, "0");
    freeReplyObject(reply);
}

static void redisson_hears_each_end_of_a_hold_on_channels_of_both_sorts(void **state) {
    int node;

    (void)state;
    for (node = 0; node < PRIMARIES; node++) {
        rlock_client *client = client_by_channel(node_seeds, "+ping");
        char key[48]; /* the last one has a hash tag, which its channel has too */
        struct owner *holder;
        redisContext *ear, *older;
        rlock_options options;

        snprintf(key, sizeof key, node < 2 ? "%s" : "a{%s}b", key_at(node, "java"));
        holder = owner_new(client, key);
        ear = ear_at(&nodes[node], "SSUBSCRIBE", key);
        older = ear_at(&nodes[(node + 1) % PRIMARIES], "SUBSCRIBE", key);
        memset(&options, 0, sizeof options);
        options.key = key;
        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_int_equal(owner_release(holder), RLOCK_OK);
        hears(ear, "smessage", key);
        hears(older, "message", key);
        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_int_equal(answer_to(rlock_force_release(client, &options, on_told, NULL))->holders,
                         1);
        hears(ear, "smessage", key);
        hears(older, "message", key);
        assert_int_equal(owner_wait(holder, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        kit_reset(); /* the last write */
        hears(ear, "smessage", key);
        hears(older, "message", key);
        redisFree(ear);
        redisFree(older);
    }
}

static void redisson_takes(const struct server *server, const char *key) {
    tell(ask(server, "HSET %s 1e3b0e4f-foreign:1 1", key));
    tell(ask(server, "PEXPIRE %s %d", key, LEASE_MS));
}

/* Redisson lets it go, and says so in that way, perhaps at another node. */
static void is_woken(struct owner *waiter, const struct server *server,
                     const struct server *speaker, const char *publish) {
    const char *key = rlock_key(waiter->lock, NULL);
    int64_t begun_us = kit_now_us();

    tell(ask(server, "DEL %s", key));
    tell(ask(speaker, "%s %s 0", publish, channel_of(key)));
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 3000), RLOCK_OK);
    assert_in_range(kit_now_us() - begun_us, 0, 1000000); /* it does not ask for 10 s */
    assert_int_equal(owner_release(waiter), RLOCK_OK);
}

/* Its braces are no hash tag: the channel is of another slot, and no part of a script. */
static void key_whose_channel_is_of_another_slot_is_let_go(void **state) {
    rlock_client *client = client_by_channel(node_seeds, "+ping");
    static const char *const keys[] = {"odd}key", "odd{key", "}{"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct owner *holder = owner_new(client, keys[i]), *waiter = owner_new(client, keys[i]);
        struct server *server = &nodes[slot_node_by(0, key_slot(keys[i]))];
        uint64_t faults;

        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_int_equal(owner_release(holder), RLOCK_OK);
        redisson_takes(server, keys[i]);
        waits(waiter, client);
        faults = kit_stats(client).faults;
        is_woken(waiter, server, server, "PUBLISH");
        assert_int_equal(kit_stats(client).faults, faults);
        assert_int_equal(kit_stats(client).cleaning, 0);
    }
}

static void user_who_may_publish_on_one_sort_of_channels_does(void **state) {
    static const char *const rules[] = {"-spublish", "-publish", "-@pubsub"};
    const char *key = key_at(1, "mute");
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rules / sizeof *rules; i++) {
        rlock_client *client = client_by_channel(node_seeds, rules[i]);
        struct owner *holder = owner_new(client, key);
        redisContext *ear = ear_at(&nodes[1], i == 1 ? "SSUBSCRIBE" : "SUBSCRIBE", key);

        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_int_equal(owner_release(holder), RLOCK_OK);
        assert_false(key_is_at(1, key));
        assert_int_equal(kit_stats(client).cleaning, 0);
        if (i < 2) {
            hears(ear, i == 1 ? "smessage" : "message", key);
        }
        redisFree(ear);
        kit_reset();
    }
}

static void waiter_without_tracking_hears_channels_of_both_sorts(void **state) {
    rlock_client *client = client_by_channel(node_seeds, "+ping");
    int node;

    (void)state;
    for (node = 0; node < PRIMARIES; node++) {
        const char *key = key_at(node, "ear");
        struct owner *waiter = owner_new(client, key);
        uint64_t faults;

        redisson_takes(&nodes[node], key);
        waits(waiter, client);
        faults = kit_stats(client).faults;
        is_woken(waiter, &nodes[node], &nodes[node], "SPUBLISH");
        waiter = owner_new(client, key);
        redisson_takes(&nodes[node], key);
        waits(waiter, client);
        is_woken(waiter, &nodes[node], &nodes[(node + 1) % PRIMARIES], "PUBLISH");
        assert_int_equal(kit_stats(client).faults, faults);
    }
}

/* The server ends what was subscribed to, and says so. */
static void waiter_on_a_sharded_channel_moves_with_its_slot(void **state) {
    rlock_client *client = client_by_channel(node_seeds, "+ping");
    const char *key = key_at(0, "shard");
    struct owner *waiter = owner_new(client, key);
    int slot = key_slot(key), i;
    uint64_t faults;

    (void)state;
    redisson_takes(&nodes[0], key);
    waits(waiter, client);
    faults = kit_stats(client).faults;
    for (i = 0; i < 3; i++) {
        slot_moves(slot, i, (i + 1) % PRIMARIES);
        kit_run(1500);
        assert_int_equal(waiter->seen[RLOCK_ACQUIRED], 0);
    }
    is_woken(waiter, &nodes[0], &nodes[0], "SPUBLISH");
    assert_int_equal(kit_stats(client).faults, faults); /* no connection was lost for it */
}

static int map_says(const rlock_client *client, int slot) {
    const rlock__cluster *cluster = (const rlock__cluster *)client->store_state;

    return rlock__slot_node(cluster, (unsigned)slot)->port;
}

/* The slot moves after the attempt that was refused, and before the channel is listened to. */
static void channel_that_another_node_has_leads_to_a_newer_map(void **state) {
    rlock_client *client = client_by_channel(node_seeds, "+ping");
    const char *key = key_at(1, "late"), *other = key_at(1, "other");
    struct owner *waiter = owner_new(client, other);
    uint64_t faults;

    (void)state;
    redisson_takes(&nodes[1], other);
    waits(waiter, client);
    faults = kit_stats(client).faults;
    slot_moves(key_slot(key), 1, 2);
    assert_int_equal(map_says(client, key_slot(key)), nodes[1].port);
    client->store->track(client->store_state, key, strlen(key), true);
    assert_int_equal(owner_acquire(owner_new(client, key_at(0, "leaves")), 0, LEASE_MS), RLOCK_OK);
    kit_run(1500);
    assert_int_equal(map_says(client, key_slot(key)), nodes[2].port);
    assert_int_equal(kit_stats(client).faults, faults);
    is_woken(waiter, &nodes[1], &nodes[1], "SPUBLISH");
    slot_moves(key_slot(key), 2, 1);
}

static void waiter_that_may_not_hear_sharded_channels_hears_the_others(void **state) {
    static const char *const rules[] = {"-ssubscribe", "-ssubscribe -sunsubscribe -spublish"};
    const char *key = key_at(2, "deaf");
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rules / sizeof *rules; i++) {
        rlock_client *client = client_by_channel(node_seeds, rules[i]);
        struct owner *waiter = owner_new(client, key);
        uint64_t faults;

        redisson_takes(&nodes[2], key);
        waits(waiter, client);
        faults = kit_stats(client).faults;
        is_woken(waiter, &nodes[2], &nodes[2], "PUBLISH");
        waiter = owner_new(client, key);
        redisson_takes(&nodes[2], key);
        waits(waiter, client);
        is_woken(waiter, &nodes[2], &nodes[0], "PUBLISH");
        assert_int_equal(kit_stats(client).faults, faults);
        kit_reset();
    }
}

/* The channel of the client's id is allowed, those of keys are not: it polls, as at one server. */
static void waiter_that_may_hear_no_channel_of_a_key_polls(void **state) {
    rlock_client *client =
        client_by_channel_polling(node_seeds, "resetchannels &" CHANNEL "{*-*-*-*-*}", 100);
    const char *key = key_at(0, "silent");
    struct owner *waiter = owner_new(client, key);
    uint64_t faults;

    (void)state;
    redisson_takes(&nodes[0], key);
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, LEASE_MS, owner_told, waiter),
                     RLOCK_OK);
    kit_run(3000);
    assert_false(kit_stats(client).pushing);
    faults = kit_stats(client).faults;
    kit_run(2000);
    assert_int_equal(kit_stats(client).faults, faults); /* it does not try again and again */
    assert_int_equal(waiter->seen[RLOCK_ACQUIRED], 0);
    is_woken(waiter, &nodes[0], &nodes[0], "SPUBLISH");
}

static int is_content(void *arg) {
    const struct server *server = (const struct server *)arg;

    return strstr(str(ask(server, "CLUSTER INFO")), "cluster_state:ok") != NULL;
}

/* Redis before 7.0 knows no such channels. */
static void server_without_sharded_channels_is_as_before(void **state) {
    static const char *const unknown[] = {"SSUBSCRIBE", "SUNSUBSCRIBE", "SPUBLISH"};
    static const char *args[14] = {"--cluster-enabled", "yes", "--cluster-port"};
    static struct server alone;
    static char port[8];
    rlock_client *client;
    struct owner *waiter;
    char seeds[32];
    uint64_t faults;
    size_t i;

    (void)state;
    alone.port = server_free_port();
    snprintf(port, sizeof port, "%d", server_free_port());
    args[3] = port;
    for (i = 0; i < 3; i++) {
        args[4 + 3 * i] = "--rename-command";
        args[5 + 3 * i] = unknown[i];
        args[6 + 3 * i] = "";
    }
    assert_int_equal(server_start(&alone, args), 0);
    tell(ask(&alone, "CLUSTER ADDSLOTSRANGE 0 16383"));
    assert_true(kit_until(is_content, &alone, CLUSTER_LIMIT_MS));
    tell(ask(&alone, "ACL SETUSER poor on nopass ~* &* +@all -client|tracking"));
    snprintf(seeds, sizeof seeds, "127.0.0.1:%d", alone.port);
    client = client_by_channel(seeds, "+ping");
    waiter = owner_new(client, "old");
    redisson_takes(&alone, "old");
    waits(waiter, client);
    faults = kit_stats(client).faults;
    is_woken(waiter, &alone, &alone, "PUBLISH");
    waiter = owner_new(client, "old");
    redisson_takes(&alone, "old");
    waits(waiter, client);
    is_woken(waiter, &alone, &alone, "PUBLISH");
    assert_int_equal(kit_stats(client).faults, faults);
    assert_int_equal(kit_stats(client).cleaning, 0);
    kit_reset();
    kit_hand_drop();
    server_stop(&alone);
}

/* ------------------------------------------------------------------------------------------------
 * A slot on its way
 */

static void key_is_followed_while_its_slot_is_on_its_way(void **state) {
    rlock_client *ours = client_new(), *theirs = client_new();
    const char *key = key_at(0, "way");
    char other[48];
    struct owner *here, *there, *late;
    int slot = key_slot(key);

    (void)state;
    snprintf(other, sizeof other, "{%s}other", key);
    here = owner_new(ours, key);
    there = owner_new(theirs, key);
    late = owner_new(ours, other);
    assert_int_equal(owner_acquire(here, 5000, LEASE_MS), RLOCK_OK);
    slot_sets_out(slot, 0, 1);
    assert_int_equal(owner_renew(here, LEASE_MS), RLOCK_OK); /* it is still here */
    assert_int_equal(owner_acquire(there, 0, LEASE_MS), RLOCK_ERR_BUSY);
    assert_int_equal(owner_acquire(late, 0, LEASE_MS), RLOCK_OK); /* made there */
    assert_int_equal(owner_renew(late, LEASE_MS), RLOCK_OK);
    slot_keys_move(slot, 0, 1);
    assert_int_equal(owner_renew(here, LEASE_MS), RLOCK_OK); /* it is there now */
    assert_int_equal(owner_acquire(there, 0, LEASE_MS), RLOCK_ERR_BUSY);
    assert_int_equal(owner_release(here), RLOCK_OK);
    assert_int_equal(owner_acquire(there, 0, LEASE_MS), RLOCK_OK);
    slot_arrives(slot, 1);
    assert_int_equal(owner_renew(there, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_release(there), RLOCK_OK);
    assert_int_equal(owner_release(late), RLOCK_OK);
    assert_false(key_is_at(1, key) || key_is_at(1, other));
    assert_int_equal(kit_stats(ours).cleaning + kit_stats(theirs).cleaning, 0);
    slot_moves(slot, 1, 0);
}

/* A new node does not know the script, and says so only to whoever asks with ASKING. */
static void script_that_is_unknown_there_is_sent_in_full_with_asking(void **state) {
    rlock_client *client = client_new();
    const char *key = key_at(2, "script");
    struct owner *holder = owner_new(client, key);
    int slot = key_slot(key);

    (void)state;
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    slot_sets_out(slot, 2, 1);
    slot_keys_move(slot, 2, 1);
    tell(ask(&nodes[1], "SCRIPT FLUSH"));
    assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
    tell(ask(&nodes[1], "SCRIPT FLUSH"));
    assert_int_equal(owner_release(holder), RLOCK_OK);
    slot_arrives(slot, 1);
    slot_moves(slot, 1, 2);
}

/* Of two keys one is here and one is there, or both are missing: nobody can say. */
static void lock_of_two_keys_waits_until_its_slot_has_arrived(void **state) {
    rlock_client *client = client_new();
    const char *key = key_at(1, "again");
    struct owner *fenced = owner_fenced(client, key), *fair;
    int slot = key_slot(key);

    (void)state;
    fair = owner_of_kind(client, key, RLOCK_KIND_FAIR);
    slot_sets_out(slot, 1, 2);
    assert_int_equal(owner_acquire(fenced, 0, LEASE_MS), RLOCK_ERR_SERVER);
    assert_non_null(strstr(fenced->text[RLOCK_ACQUIRED], "TRYAGAIN"));
    assert_int_equal(owner_acquire(fair, 1000, LEASE_MS), RLOCK_ERR_SERVER);
    assert_int_equal(rlock_acquire(fenced->lock, RLOCK_FOREVER, LEASE_MS, owner_told, fenced),
                     RLOCK_OK);
    kit_run(300);
    assert_int_equal(fenced->seen[RLOCK_ACQUIRED], 1);
    slot_arrives(slot, 2);
    assert_int_equal(owner_wait(fenced, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_release(fenced), RLOCK_OK);
    slot_moves(slot, 2, 1);
}

/* Whatever is waited for goes on at the new node: nobody polls here. */
static void slot_moves_under(rlock_kind kind, int from, int to) {
    rlock_client *ours = client_that_listens(), *theirs = client_that_listens();
    const char *key = key_at(from, rlock_kind_str(kind));
    struct owner *holder = owner_of_kind(ours, key, kind);
    struct owner *waiter = owner_of_kind(theirs, key, kind);

    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    waits(waiter, theirs);
    slot_moves(key_slot(key), from, to);
    kit_run(2500);
    assert_true(rlock_is_held(holder->lock));
    assert_int_equal(holder->seen[RLOCK_LOST], 0);
    assert_int_equal(waiter->seen[RLOCK_ACQUIRED], 0);
    comes_soon(waiter, holder);
    assert_int_equal(owner_release(waiter), RLOCK_OK);
    slot_moves(key_slot(key), to, from);
}

static void mutex_that_is_waited_for_moves_with_its_slot(void **state) {
    (void)state;
    slot_moves_under(RLOCK_KIND_MUTEX, 0, 2);
}

static void queue_moves_with_its_slot(void **state) {
    (void)state;
    slot_moves_under(RLOCK_KIND_FAIR, 1, 0);
    slot_moves_under(RLOCK_KIND_SEMAPHORE, 2, 1);
}

static long long maps_asked_for(void) {
    long long sum = 0;
    int i;

    for (i = 0; i < PRIMARIES; i++) {
        sum += info(&nodes[i], "commandstats", "cmdstat_cluster|slots:calls");
    }
    return sum;
}

static int is_polled_for(void *waiter) {
    return !rlock__pushed(((struct owner *)waiter)->lock->gate);
}

/* On its way for long: it is asked for now and then, at the right node. */
static void waiter_is_served_while_the_slot_is_on_its_way(void **state) {
    rlock_client *ours = client_new(), *theirs = client_new();
    const char *key = key_at(0, "long");
    struct owner *holder = owner_new(ours, key), *waiter = owner_new(theirs, key);
    int slot = key_slot(key);
    long long maps;

    (void)state;
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    waits(waiter, theirs);
    assert_false(is_polled_for(waiter));
    slot_sets_out(slot, 0, 1);
    slot_keys_move(slot, 0, 1);
    assert_true(kit_until(is_polled_for, waiter, 20000));
    maps = maps_asked_for();
    kit_run(2500);
    assert_in_range(maps_asked_for() - maps, 1, 8); /* by two clients */
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    slot_arrives(slot, 1);
    assert_int_equal(owner_release(waiter), RLOCK_OK);
    slot_moves(slot, 1, 0);
}

/* ------------------------------------------------------------------------------------------------
 * Many handles, while slots move all the time
 */

#define CROWD_CLIENTS 4
#define CROWD_KEYS 6
#define CROWD 8 /* handles of each client for each key */
#define CROWD_MS 8000

struct one_of_many {
    struct owner *o;
    int key;
    bool waits;
    int64_t until_us;
    int served;
};

static struct one_of_many crowd[CROWD_CLIENTS * CROWD_KEYS * CROWD];
static int crowd_most[CROWD_KEYS]; /* may hold together */
static int crowd_overlaps, crowd_served;
static int64_t crowd_end_us;

static void crowd_steps(void) {
    int holds[CROWD_KEYS] = {0};
    size_t i;

    for (i = 0; i < sizeof crowd / sizeof *crowd; i++) {
        struct one_of_many *one = &crowd[i];
        bool held = rlock_is_held(one->o->lock);

        holds[one->key] += held;
        if (one->waits && one->o->seen[RLOCK_ACQUIRED] > one->o->taken[RLOCK_ACQUIRED]) {
            one->o->taken[RLOCK_ACQUIRED]++;
            one->waits = false;
            one->until_us = kit_now_us() + 3000;
            if (one->o->status[RLOCK_ACQUIRED] == RLOCK_OK) {
                one->served++;
                crowd_served++;
            }
        } else if (!one->waits && held && kit_now_us() >= one->until_us) {
            rlock_release(one->o->lock, owner_told, one->o);
        } else if (!one->waits && !held && kit_now_us() < crowd_end_us &&
                   rlock_acquire(one->o->lock, RLOCK_FOREVER, 0, owner_told, one->o) == RLOCK_OK) {
            one->waits = true;
        }
    }
    for (i = 0; i < CROWD_KEYS; i++) {
        crowd_overlaps += holds[i] > crowd_most[i];
    }
}

static int crowd_is_over(void *arg) {
    size_t i;

    (void)arg;
    crowd_steps();
    for (i = 0; i < sizeof crowd / sizeof *crowd; i++) {
        if (crowd[i].waits || rlock_is_held(crowd[i].o->lock)) {
            return 0;
        }
    }
    return kit_now_us() >= crowd_end_us;
}

static int crowd_pause(void *arg) {
    crowd_steps();
    return kit_now_us() >= *(int64_t *)arg;
}

static void crowd_goes_on(int64_t ms) {
    int64_t until_us = kit_now_us() + ms * 1000;

    kit_until(crowd_pause, &until_us, ms + 1000);
}

static int crowd_slot_is_at(void *arg) {
    crowd_steps();
    return slot_is_at(arg);
}

static void many_are_served_one_at_a_time_while_slots_move(void **state) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_SEMAPHORE};
    rlock_client *clients[CROWD_CLIENTS];
    const char *keys[CROWD_KEYS];
    int at[CROWD_KEYS], i, k, n = 0, moves = 0;

    (void)state;
    memset(crowd, 0, sizeof crowd);
    crowd_overlaps = crowd_served = 0;
    crowd_end_us = kit_now_us() + CROWD_MS * 1000;
    for (k = 0; k < CROWD_KEYS; k++) {
        at[k] = k % PRIMARIES;
        keys[k] = key_at(at[k], k < 3 ? "many" : "more");
        crowd_most[k] = kinds[k % 3] == RLOCK_KIND_SEMAPHORE ? 2 : 1;
    }
    for (i = 0; i < CROWD_CLIENTS; i++) {
        clients[i] = client_new();
        for (k = 0; k < CROWD_KEYS * CROWD; k++, n++) {
            rlock_options options;

            memset(&options, 0, sizeof options);
            crowd[n].key = k % CROWD_KEYS;
            options.key = keys[crowd[n].key];
            options.kind = kinds[crowd[n].key % 3];
            options.permits = options.kind == RLOCK_KIND_SEMAPHORE ? 2 : 0;
            options.fencing = k % 2 == 0 && options.kind != RLOCK_KIND_MUTEX;
            crowd[n].o = owner_with(clients[i], &options);
            assert_non_null(crowd[n].o);
        }
    }
    for (k = 0; kit_now_us() < crowd_end_us; k = (k + 1) % CROWD_KEYS, moves++) {
        int slot = key_slot(keys[k]), to = (at[k] + 1) % PRIMARIES;

        crowd_goes_on(60);
        if (slots_move == BY_STEPS) {
            slot_sets_out(slot, at[k], to);
            crowd_goes_on(60);
            slot_keys_move(slot, at[k], to);
            crowd_goes_on(60);
            slot_arrives(slot, to);
        } else {
            struct slot_at there = {slot, to};

            slot_sets_out_whole(slot, at[k], to);
            assert_true(kit_until(crowd_slot_is_at, &there, CLUSTER_LIMIT_MS));
        }
        at[k] = to;
    }
    assert_true(kit_until(crowd_is_over, NULL, 30000));
    assert_int_equal(crowd_overlaps, 0);
    n = 1 << 30;
    for (i = 0; i < (int)(sizeof crowd / sizeof *crowd); i++) {
        n = crowd[i].served < n ? crowd[i].served : n;
        assert_int_equal(crowd[i].o->seen[RLOCK_LOST], 0);
    }
    print_message("%d moves, %d grants, each handle %d or more\n", moves, crowd_served, n);
    assert_true(n > 0);
    for (i = 0; i < CROWD_CLIENTS; i++) {
        if (!kit_until(kit_is_clean, clients[i], 5000)) {
            fail_msg("client %d: %d to clean up\n%s", i, (int)kit_stats(clients[i]).cleaning,
                     kit_log_text);
        }
    }
    for (k = 0; k < CROWD_KEYS; k++) {
        assert_false(key_is_at(at[k], keys[k]));
        if (at[k] != k % PRIMARIES) {
            slot_moves(key_slot(keys[k]), at[k], k % PRIMARIES);
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * Slots that move whole, where servers can do that: the tests above that move slots, and these
 */

struct busy {
    struct owner *o;
    struct slot_at at;
    int served;
    int64_t begun_us, longest_us; /* of an acquire */
};

/* Acquires, and lets go, again and again until the slot has moved. */
static int busy_slot_is_at(void *arg) {
    struct busy *busy = (struct busy *)arg;
    struct owner *o = busy->o;
    int64_t now_us = kit_now_us();

    if (o->seen[RLOCK_ACQUIRED] > o->taken[RLOCK_ACQUIRED]) {
        o->taken[RLOCK_ACQUIRED]++;
        assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
        busy->longest_us =
            now_us - busy->begun_us > busy->longest_us ? now_us - busy->begun_us : busy->longest_us;
        busy->begun_us = 0;
        busy->served++;
        assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_OK);
    } else if (busy->begun_us == 0 &&
               rlock_acquire(o->lock, 5000, LEASE_MS, owner_told, o) == RLOCK_OK) {
        busy->begun_us = now_us;
    }
    return slot_is_at(&busy->at) && busy->begun_us == 0;
}

/* By steps nobody gets a lock of two keys on the way: see lock_of_two_keys_waits_... */
static void lock_of_two_keys_is_served_while_its_slot_moves_whole(void **state) {
    rlock_client *client = client_new();
    const char *key = key_at(1, "both");
    struct busy busy;
    int i;

    (void)state;
    memset(&busy, 0, sizeof busy);
    for (i = 0; i < 6; i++) {
        busy.o = i < 3 ? owner_fenced(client, key) : owner_of_kind(client, key, RLOCK_KIND_FAIR);
        busy.at.slot = key_slot(key);
        busy.at.node = (2 + i) % PRIMARIES;
        slot_sets_out_whole(busy.at.slot, (1 + i) % PRIMARIES, busy.at.node);
        assert_true(kit_until(busy_slot_is_at, &busy, CLUSTER_LIMIT_MS));
        assert_null(strstr(kit_log_text, "TRYAGAIN"));
        rlock_free(busy.o->lock);
        busy.o->lock = NULL;
        assert_true(kit_until(kit_is_clean, client, 5000));
    }
    print_message("%d times in 6 moves; after %d ms at most\n", busy.served,
                  (int)(busy.longest_us / 1000));
}

static int three_begin_whole(void **state) {
    three_begin(state);
    slots_move = slots_move_whole();
    return 0;
}

static int group_ends_whole(void **state) {
    slots_move = BY_STEPS;
    return group_ends(state);
}

/* Two nodes that each say that the other one has it. */
static void nodes_that_lead_in_a_circle_are_not_followed_for_ever(void **state) {
    rlock_client *client = client_new();
    const char *key = key_at(0, "circle");
    struct owner *holder = owner_new(client, key);
    int slot = key_slot(key);
    uint64_t commands;

    (void)state;
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    tell(ask(&nodes[1], "CLUSTER SETSLOT %d NODE %s", slot, node_ids[0]));
    tell(ask(&nodes[0], "CLUSTER SETSLOT %d NODE %s", slot, node_ids[1]));
    commands = kit_stats(client).commands;
    assert_int_equal(owner_acquire(holder, 0, LEASE_MS), RLOCK_ERR_SERVER);
    assert_non_null(strstr(holder->text[RLOCK_ACQUIRED], "MOVED"));
    assert_in_range(kit_stats(client).commands - commands, 6, 16);
    slot_arrives(slot, 0);
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
}

/* ------------------------------------------------------------------------------------------------
 * Nodes that say little of themselves, come and go
 */

static void endpoint_is(const char *type) {
    int i;

    for (i = 0; i < node_count; i++) {
        tell(ask(&nodes[i], "CONFIG SET cluster-preferred-endpoint-type %s", type));
    }
}

static void nodes_without_a_name_are_where_the_one_is_that_answered(void **state) {
    static const char *const types[] = {"unknown-endpoint", "hostname", "ip"};
    size_t t;
    int i;

    (void)state;
    for (t = 0; t < 3; t++) {
        rlock_client *client;

        endpoint_is(types[t]);
        client = client_new();
        for (i = 0; i < PRIMARIES; i++) {
            const char *key = key_at(i, "nameless");
            struct owner *holder = owner_new(client, key);
            int to = (i + 1) % PRIMARIES;

            assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
            slot_moves(key_slot(key), i, to);
            assert_int_equal(owner_release(holder), RLOCK_OK);
            slot_moves(key_slot(key), to, i);
        }
    }
}

/* Nobody is at 127.9.9.9, which nodes tell clients, and not each other. */
#define AWAY "127.9.9.9"

static bool away_is_here(void *user, const char *host, int port, char *new_host, size_t room,
                         int *new_port) {
    (void)user;
    (void)port;
    (void)new_port;
    snprintf(new_host, room, "127.0.0.1");
    return strcmp(host, AWAY) == 0;
}

static int nodes_are_announced(void *arg) {
    const char *where = (const char *)arg;
    int i, good = 1;
    size_t row;

    for (i = 0; i < node_count; i++) {
        redisReply *reply = ask(&nodes[i], "CLUSTER SLOTS");

        for (row = 0; row < reply->elements; row++) {
            good = good && strcmp(reply->element[row]->element[2]->element[0]->str, where) == 0;
        }
        freeReplyObject(reply);
    }
    return good;
}

/* From now on nodes tell clients that they are all at this host; NULL: at their addresses. */
static void nodes_announce(const char *host) {
    int i;

    for (i = 0; i < node_count; i++) {
        tell(ask(&nodes[i], "CONFIG SET cluster-announce-hostname %s", host != NULL ? host : ""));
    }
    endpoint_is(host != NULL ? "hostname" : "ip");
    assert_true(kit_until(nodes_are_announced,
                          (void *)(uintptr_t)(host != NULL ? host : "127.0.0.1"),
                          CLUSTER_LIMIT_MS));
}

static rlock_client *client_with_map(void) {
    rlock_config config = config_of(node_seeds);

    config.map_address = away_is_here;
    return kit_client(&config);
}

static void nodes_that_announce_no_good_address_are_reached_by_a_map(void **state) {
    rlock_client *client;
    struct owner *holder;
    int i;

    (void)state;
    nodes_announce(AWAY);
    holder = owner_new(client_new(), key_at(1, "away"));
    assert_int_equal(owner_acquire(holder, 0, LEASE_MS), RLOCK_ERR_CONN);
    client = client_with_map();
    for (i = 0; i < PRIMARIES; i++) {
        const char *key = key_at(i, "here");
        int to = (i + 1) % PRIMARIES, slot = key_slot(key);

        holder = owner_new(client, key);
        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        slot_sets_out(slot, i, to);
        slot_keys_move(slot, i, to);
        assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK); /* by ASK */
        slot_arrives(slot, to);
        assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK); /* by MOVED, or the map */
        assert_int_equal(owner_release(holder), RLOCK_OK);
        slot_moves(slot, to, i);
    }
    assert_true(kit_stats(client).connects <= 2 * PRIMARIES); /* it knows each node once */
    nodes_announce(NULL);
}

/* A service has one configuration name, which stands for all of its nodes, or for some. */
static void name_of_several_addresses_leads_to_all_nodes(void **state) {
    rlock_client *client;
    char seeds[32];
    int64_t begun_us = kit_now_us();
    int i;

    (void)state;
    names_are("127.0.0.9", "127.0.0.1"); /* nobody is at the first */
    snprintf(seeds, sizeof seeds, "config.test:%d", nodes[2].port);
    client = client_of(seeds);
    for (i = 0; i < PRIMARIES; i++) {
        struct owner *holder = owner_new(client, key_at(i, "named"));

        assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
        assert_true(key_is_at(i, rlock_key(holder->lock, NULL)));
    }
    assert_in_range(kit_now_us() - begun_us, 0, 1000000);
    assert_int_equal(names_asked(), 1);
}

/* A node alone, at an address of its own; with all slots, or with none. */
static void alone_begins(struct server *alone, int port, const char *address, bool has_slots) {
    static char ports[2][8];
    static const char *args[2][10];
    int i = strcmp(address, "127.0.0.1") != 0;
    const char **a = args[i];

    snprintf(ports[i], sizeof ports[i], "%d", server_free_port());
    *a++ = "--cluster-enabled", *a++ = "yes";
    *a++ = "--cluster-port", *a++ = ports[i];
    *a++ = "--cluster-announce-ip", *a++ = address;
    *a++ = "--bind", *a++ = address;
    *a = NULL;
    alone->port = port;
    assert_int_equal(server_start(alone, args[i]), 0);
    if (has_slots) {
        tell(ask(alone, "CLUSTER ADDSLOTSRANGE 0 16383"));
        assert_true(kit_until(is_content, alone, CLUSTER_LIMIT_MS));
    }
}

static struct server alones[2];

static int alones_end(void **state) {
    int i;

    test_ends(state);
    kit_hand_drop();
    for (i = 0; i < 2; i++) {
        server_stop(&alones[i]);
    }
    return 0;
}

/* All nodes are replaced by others: those that are known do not answer any more. */
static void name_whose_addresses_change_leads_to_the_new_nodes(void **state) {
    int port = server_free_port();
    rlock_client *client;
    struct owner *before, *after;
    char seeds[32];
    int64_t begun_us;

    (void)state;
    names_are("127.0.0.1", NULL);
    alone_begins(&alones[0], port, "127.0.0.1", true);
    snprintf(seeds, sizeof seeds, "config.test:%d", port);
    client = client_of(seeds);
    before = owner_new(client, "before");
    after = owner_new(client, "after");
    assert_int_equal(owner_acquire(before, 5000, LEASE_MS), RLOCK_OK);
    kit_run(2500); /* the connection to the name is closed */
    server_kill9(&alones[0]);
    kit_run(200);
    alone_begins(&alones[1], port, "127.0.0.2", true);
    names_are("127.0.0.2", NULL);
    begun_us = kit_now_us();
    assert_int_equal(owner_acquire(after, 10000, LEASE_MS), RLOCK_OK);
    assert_in_range(kit_now_us() - begun_us, 0, 3000000);
    assert_int_equal(owner_wait(before, RLOCK_LOST, 10000), RLOCK_ERR_LOST); /* it is not there */
    assert_int_equal(owner_acquire(before, 0, LEASE_MS), RLOCK_OK);
}

/* A node that was taken out of its cluster still runs, and has no slots. */
static void seed_of_no_cluster_is_passed_over(void **state) {
    int port = server_free_port(), i;
    char seeds[2][64];

    (void)state;
    names_are("127.0.0.1", "127.0.0.2");
    alone_begins(&alones[0], port, "127.0.0.1", false);
    alone_begins(&alones[1], port, "127.0.0.2", true);
    snprintf(seeds[0], sizeof seeds[0], "127.0.0.1:%d,127.0.0.2:%d", port, port);
    snprintf(seeds[1], sizeof seeds[1], "config.test:%d", port);
    for (i = 0; i < 2; i++) {
        struct owner *holder = owner_new(client_of(seeds[i]), "elsewhere");
        int64_t begun_us = kit_now_us();

        assert_int_equal(owner_acquire(holder, 10000, LEASE_MS), RLOCK_OK);
        print_message("%s: %d ms\n", seeds[i], (int)((kit_now_us() - begun_us) / 1000));
        assert_in_range(kit_now_us() - begun_us, 0, 3000000);
        assert_int_equal(owner_release(holder), RLOCK_OK);
    }
}

static int is_forgotten(void *arg) {
    int *open = (int *)arg;
    rlock_client *client = kit_clients[0];

    return (int)kit_stats(client).connects >= *open && kit_stats(client).up;
}

static void node_that_is_added_serves_and_one_that_is_taken_away_does_not(void **state) {
    rlock_client *client = client_new();
    const char *key = key_at(0, "new");
    struct owner *holder = owner_new(client, key);
    int slot = key_slot(key), added = node_count, i, none = 0;

    (void)state;
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
    node_count++;
    node_start(added);
    node_meets(added, 0);
    cluster_heals();
    slot_moves(slot, 0, added);
    assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
    assert_true(key_is_at(added, key));
    slot_moves(slot, added, 0);
    assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
    for (i = 0; i < added; i++) {
        tell(ask(&nodes[i], "CLUSTER FORGET %s", node_ids[added]));
    }
    node_count--;
    kit_hand_drop();
    server_stop(&nodes[added]);
    kit_run(2500); /* its connections end, and nobody asks there again */
    assert_true(kit_until(is_forgotten, &none, 5000));
    assert_int_equal(owner_renew(holder, LEASE_MS), RLOCK_OK);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    {
        const rlock__cluster *cluster = (const rlock__cluster *)client->store_state;
        uint32_t n;

        for (n = 0; n < cluster->node_count; n++) {
            assert_true(cluster->nodes[n] == NULL || cluster->nodes[n]->port != nodes[added].port);
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * Replicas
 */

static int six_begin(void **state) {
    (void)state;
    assert_int_equal(kit_open(), 0);
    cluster_start(PRIMARIES, 1);
    return 0;
}

struct renewals {
    rlock_client *client;
    uint64_t count;
};

static int was_renewed(void *arg) {
    struct renewals *r = (struct renewals *)arg;

    return kit_stats(r->client).renewed >= r->count;
}

/* A slot moves, and the replica of its new node is late: the hold is claimed until its deadline,
 * but no renewal counts before that replica has it. Valkey gives no slot to a primary whose replica
 * is silent: there it falls silent afterwards. */
static void hold_that_moved_is_renewed_when_the_replica_there_has_it(void **state) {
    rlock_config config = config_of(node_seeds);
    const char *key = key_at(0, "moved");
    struct server *late = &nodes[PRIMARIES + 1];
    bool valkey = strstr(str(ask(&nodes[0], "INFO server")), "valkey_version:") != NULL;
    struct renewals r;
    struct owner *holder;

    (void)state;
    config.replicas = 1;
    config.watchdog_lease_ms = 60000;
    r.client = kit_client(&config);
    holder = owner_new(r.client, key);
    assert_int_equal(owner_acquire(holder, 5000, 0), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, r.client, 5000));
    kit_run(300);
    r.count = kit_stats(r.client).renewed + 1;
    if (!valkey) {
        server_pause(late);
    }
    slot_moves(key_slot(key), 0, 1);
    if (valkey) {
        server_pause(late);
    }
    assert_true(rlock_is_held(holder->lock)); /* no client can know */
    assert_int_equal(owner_renew(holder, 90000), RLOCK_ERR_SERVER);
    assert_non_null(
        strstr(holder->text[RLOCK_RENEWED], "WAIT: too few replicas confirmed the write: 0 of 1"));
    assert_true(rlock_remaining_ms(holder->lock) <= 60000);
    server_resume(late);
    assert_true(kit_until(was_renewed, &r, 15000));
    assert_true(num(ask(&nodes[1], "PTTL %s", key)) > 50000);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    slot_moves(key_slot(key), 1, 0);
}

/* What a client knows to have moved it renews at once: a third of a lease would be too late. */
static void hold_that_moved_is_renewed_at_once(void **state) {
    rlock_config config = config_of(node_seeds);
    const char *key = key_at(0, "soon");
    struct renewals r;
    struct owner *holder;

    (void)state;
    config.replicas = 1;
    config.watchdog_lease_ms = 60000;
    r.client = kit_client(&config);
    holder = owner_new(r.client, key);
    assert_int_equal(owner_acquire(holder, 5000, 0), RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, r.client, 5000));
    kit_run(300);
    r.count = kit_stats(r.client).renewed + 1;
    slot_moves(key_slot(key), 0, 1);
    assert_true(kit_until(was_renewed, &r, 5000));
    assert_true(rlock_is_held(holder->lock));
    assert_int_equal(owner_release(holder), RLOCK_OK);
    slot_moves(key_slot(key), 1, 0);
}

static void replica_as_the_only_seed_leads_to_all_nodes(void **state) {
    char seeds[32];
    struct owner *holder;

    (void)state;
    snprintf(seeds, sizeof seeds, "127.0.0.1:%d", nodes[PRIMARIES].port);
    holder = owner_new(client_of(seeds), key_at(1, "replica"));
    assert_int_equal(owner_acquire(holder, 2000, LEASE_MS), RLOCK_OK);
}

struct move {
    int slot, from, says;
};

static int slot_is_elsewhere(void *arg) {
    struct move *move = (struct move *)arg;

    return slot_node_by(move->says, move->slot) != move->from &&
           node_knows(move->says, "cluster_state:ok");
}

/* A hold, and somebody who waits for it, whose node goes in that way. */
static void pair_survives_of(rlock_client *(*makes)(void), void (*goes)(int node),
                             const char *name) {
    rlock_client *ours = makes(), *theirs = makes();
    const char *key = key_at(0, name);
    struct owner *holder = owner_new(ours, key), *waiter = owner_new(theirs, key);
    struct owner *elsewhere = owner_new(ours, key_at(1, name));
    struct move move;
    int64_t begun_us, moved_us;

    move.slot = key_slot(key);
    move.says = 1;
    move.from = slot_node_by(1, move.slot);
    assert_int_equal(owner_acquire(holder, 5000, 0), RLOCK_OK); /* the watchdog renews it */
    waits(waiter, theirs);
    tell(ask(&nodes[move.from], "SET {%s}copied 1", key));
    assert_int_equal(num(ask(&nodes[move.from], "WAIT 1 4000")), 1);
    begun_us = kit_now_us();
    goes(move.from);
    assert_int_equal(owner_acquire(elsewhere, 0, LEASE_MS), RLOCK_OK);
    assert_true(kit_until(slot_is_elsewhere, &move, CLUSTER_LIMIT_MS));
    moved_us = kit_now_us();
    while (owner_renew(holder, LEASE_MS) != RLOCK_OK) {
        if (kit_now_us() - moved_us > 10000000) {
            fail_msg("%s: %s\n%s", name, holder->text[RLOCK_RENEWED], kit_log_text);
        }
        kit_run(20);
    }
    print_message("%s: promoted after %d ms, served %d ms later\n", name,
                  (int)((moved_us - begun_us) / 1000), (int)((kit_now_us() - moved_us) / 1000));
    assert_true(rlock_is_held(holder->lock));
    assert_int_equal(holder->seen[RLOCK_LOST], 0);
    assert_int_equal(waiter->seen[RLOCK_ACQUIRED], 0);
    server_resume(&nodes[move.from]);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_equal(owner_renew(waiter, LEASE_MS), RLOCK_OK);
}

static void pair_survives(void (*goes)(int node), const char *name) {
    pair_survives_of(client_new, goes, name);
}

static void is_killed(int node) {
    server_kill9(&nodes[node]);
}
static void is_stopped(int node) {
    server_pause(&nodes[node]);
}
static void hands_over(int node) {
    tell(ask(&nodes[node < PRIMARIES ? node + PRIMARIES : node - PRIMARIES], "CLUSTER FAILOVER"));
}

static void failover_by_an_operator_is_followed(void **state) {
    (void)state;
    pair_survives(hands_over, "failover");
}
static void killed_primary_is_followed(void **state) {
    (void)state;
    pair_survives(is_killed, "killed");
}
static void stopped_primary_is_followed(void **state) {
    (void)state;
    pair_survives(is_stopped, "stopped");
}

static void killed_primary_is_followed_by_a_map(void **state) {
    (void)state;
    nodes_announce(AWAY);
    pair_survives_of(client_with_map, is_killed, "mapped");
    kit_reset();
    assert_int_equal(test_begins(state), 0); /* all are back */
    nodes_announce(NULL);
}

/* It lies in the socket of a node that stands still, and may be executed there yet. */
static void acquire_that_was_not_answered_stays_in_doubt_at_the_next_node(void **state) {
    rlock_config config = config_of(node_seeds);
    rlock_client *client;
    const char *key = key_at(2, "doubt");
    struct owner *holder, *first;
    struct move move;

    (void)state;
    config.watchdog_lease_ms = 3000;
    client = kit_client(&config);
    holder = owner_new(client, key);
    first = owner_new(client, key_at(2, "first"));
    assert_int_equal(owner_acquire(first, 5000, 0), RLOCK_OK);
    move.slot = key_slot(key);
    move.says = 0;
    move.from = slot_node_by(0, move.slot);
    server_pause(&nodes[move.from]);
    assert_int_equal(rlock_acquire(holder->lock, RLOCK_FOREVER, 3000, owner_told, holder),
                     RLOCK_OK);
    assert_true(kit_until(slot_is_elsewhere, &move, CLUSTER_LIMIT_MS));
    assert_int_equal(owner_wait(holder, RLOCK_ACQUIRED, 10000), RLOCK_OK);
    assert_int_equal(owner_release(holder), RLOCK_OK);
    assert_int_equal(kit_stats(client).cleaning, 1);
    server_resume(&nodes[move.from]);
    assert_true(kit_until(kit_is_clean, client, 10000));
    assert_false(key_is_at(slot_node_by(0, move.slot), key));
}

#include "cluster_quarantine.h"

/* ------------------------------------------------------------------------------------------------
 * What is wrong with a configuration, or with a server
 */

static int refused(rlock_config config, const char *words) {
    rlock_client *client = NULL;
    int status = rlock_client_new(&client, &config);

    assert_null(client);
    assert_non_null(strstr(kit_log_text, words));
    kit_log_text[0] = '\0';
    return status;
}

static void what_a_cluster_does_not_have_is_refused(void **state) {
    rlock_config config = config_of("127.0.0.1:7000");

    (void)state;
    config.database = 1;
    assert_int_equal(refused(config, "database"), RLOCK_ERR_ARG);
    config = config_of("127.0.0.1:7000,");
    config.host = "127.0.0.1";
    assert_int_equal(refused(config, "config.host"), RLOCK_ERR_ARG);
    assert_int_equal(refused(config_of("127.0.0.1:70000"), "expected host:"), RLOCK_ERR_ARG);
    assert_int_equal(refused(config_of(""), "expected host:"), RLOCK_ERR_ARG);
    config = config_of("127.0.0.1");
    config.prefix = "{x}";
    assert_int_equal(refused(config, "prefix"), RLOCK_ERR_ARG);
    config = config_of("name.invalid");
    config.loop.resolve = NULL;
    assert_int_equal(refused(config, "resolve"), RLOCK_ERR_ARG);
}

/* A server that is no cluster says so, and so do we. */
static void server_that_is_no_cluster_is_reported(void **state) {
    static struct server alone;
    char seeds[32];
    struct owner *holder;

    (void)state;
    alone.port = server_free_port();
    assert_int_equal(server_start(&alone, NULL), 0);
    snprintf(seeds, sizeof seeds, "127.0.0.1:%d", alone.port);
    holder = owner_new(client_of(seeds), "k");
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_ERR_SERVER);
    assert_non_null(strstr(holder->text[RLOCK_ACQUIRED], "cluster support"));
    kit_reset();
    server_stop(&alone);
}

static void nobody_at_the_seeds_is_no_connection(void **state) {
    struct owner *holder = owner_new(client_of("127.0.0.1:1,127.0.0.1:2"), "k");
    int64_t begun_us = kit_now_us();

    (void)state;
    assert_int_equal(owner_acquire(holder, 0, LEASE_MS), RLOCK_ERR_CONN);
    assert_in_range(kit_now_us() - begun_us, 0, 450000);
    assert_int_equal(owner_acquire(holder, 300, LEASE_MS), RLOCK_ERR_CONN);
}

static void url_names_some_nodes(void **state) {
    rlock_config config = config_of(NULL);
    char url[64];
    struct owner *holder;

    (void)state;
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?poll_ms=100",
             nodes[0].port, nodes[1].port);
    config.url = url;
    holder = owner_new(kit_client(&config), key_at(2, "url"));
    assert_int_equal(owner_acquire(holder, 5000, LEASE_MS), RLOCK_OK);
}

int main(int argc, char **argv) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_begins, test_ends)
    static const struct CMUnitTest of_slots[] = {
        cmocka_unit_test(slots_are_those_of_the_specification),
        cmocka_unit_test(redirection_is_read_or_is_none),
        cmocka_unit_test(map_is_read_whole_or_not_at_all),
        cmocka_unit_test(host_of_a_node_may_be_missing),
        cmocka_unit_test(attempts_at_two_nodes_stay_in_doubt_at_both),
    };
    static const struct CMUnitTest of_three[] = {
        CASE(keys_of_all_nodes_exclude_and_are_let_go),
        CASE(any_seed_leads_to_all_nodes),
        CASE(only_nodes_whose_keys_are_wanted_are_connected_to),
        CASE(slot_that_has_moved_is_followed),
#if RLOCK__HAS_KINDS
        CASE(waiters_of_each_kind_are_notified_at_each_node),
        CASE(notification_is_heard_once_however_many_nodes_deliver_it),
#endif
        CASE(hold_that_is_taken_away_is_reported),
#if RLOCK__HAS_KINDS
        CASE(questions_go_to_the_node_of_their_key),
#endif
#if RLOCK__HAS_KINDS && RLOCK__HAS_TEXTS
        CASE(keys_of_one_slot_are_one_lock_and_of_two_are_refused),
#endif
        CASE(fences_of_a_key_rise_wherever_its_slot_is),
#if RLOCK__HAS_REDISSON
        CASE(redisson_hears_each_end_of_a_hold_on_channels_of_both_sorts),
        CASE(key_whose_channel_is_of_another_slot_is_let_go),
        CASE(user_who_may_publish_on_one_sort_of_channels_does),
        CASE(waiter_without_tracking_hears_channels_of_both_sorts),
        CASE(waiter_on_a_sharded_channel_moves_with_its_slot),
        CASE(channel_that_another_node_has_leads_to_a_newer_map),
        CASE(waiter_that_may_not_hear_sharded_channels_hears_the_others),
        CASE(waiter_that_may_hear_no_channel_of_a_key_polls),
        CASE(server_without_sharded_channels_is_as_before),
#endif
        CASE(key_is_followed_while_its_slot_is_on_its_way),
        CASE(script_that_is_unknown_there_is_sent_in_full_with_asking),
#if RLOCK__HAS_KINDS
        CASE(lock_of_two_keys_waits_until_its_slot_has_arrived),
#endif
        CASE(mutex_that_is_waited_for_moves_with_its_slot),
#if RLOCK__HAS_KINDS
        CASE(queue_moves_with_its_slot),
#endif
        CASE(waiter_is_served_while_the_slot_is_on_its_way),
#if RLOCK__HAS_KINDS
        CASE(many_are_served_one_at_a_time_while_slots_move),
#endif
        CASE(nodes_that_lead_in_a_circle_are_not_followed_for_ever),
        CASE(nodes_without_a_name_are_where_the_one_is_that_answered),
        CASE(nodes_that_announce_no_good_address_are_reached_by_a_map),
#if RLOCK__HAS_NAMES
        CASE(name_of_several_addresses_leads_to_all_nodes),
        cmocka_unit_test_setup_teardown(name_whose_addresses_change_leads_to_the_new_nodes,
                                        test_begins, alones_end),
        cmocka_unit_test_setup_teardown(seed_of_no_cluster_is_passed_over, test_begins, alones_end),
#endif
        CASE(node_that_is_added_serves_and_one_that_is_taken_away_does_not),
#if RLOCK__HAS_TEXTS
        CASE(what_a_cluster_does_not_have_is_refused),
#endif
        CASE(server_that_is_no_cluster_is_reported),
        CASE(nobody_at_the_seeds_is_no_connection),
#if RLOCK__HAS_URL
        CASE(url_names_some_nodes),
#endif
#if RLOCK__HAS_REPLICAS
        CASE(node_that_lost_its_data_grants_nothing_and_the_others_do),
        CASE(node_whose_marker_leaves_it_need_not_wait),
        CASE(node_whose_marker_left_unseen_waits),
#endif
#if RLOCK__HAS_REPLICAS && RLOCK__HAS_TEXTS
        CASE(keys_of_markers_are_refused),
#endif
        CASE(node_that_is_killed_stops_its_own_keys_only),
    };
    static const struct CMUnitTest of_whole[] = {
        CASE(slot_that_has_moved_is_followed),
        CASE(fences_of_a_key_rise_wherever_its_slot_is),
        CASE(mutex_that_is_waited_for_moves_with_its_slot),
#if RLOCK__HAS_KINDS
        CASE(queue_moves_with_its_slot),
        CASE(many_are_served_one_at_a_time_while_slots_move),
#endif
#if RLOCK__HAS_REDISSON
        CASE(waiter_on_a_sharded_channel_moves_with_its_slot),
#endif
#if RLOCK__HAS_KINDS
        CASE(lock_of_two_keys_is_served_while_its_slot_moves_whole),
#endif
    };
    static const struct CMUnitTest of_six[] = {
#if RLOCK__HAS_REPLICAS
        CASE(hold_that_moved_is_renewed_when_the_replica_there_has_it),
        CASE(hold_that_moved_is_renewed_at_once),
#endif
        CASE(replica_as_the_only_seed_leads_to_all_nodes),
        CASE(failover_by_an_operator_is_followed),
        CASE(killed_primary_is_followed),
        CASE(stopped_primary_is_followed),
        CASE(killed_primary_is_followed_by_a_map),
#if RLOCK__HAS_REPLICAS
        CASE(failover_and_back_begin_a_quarantine_each),
        CASE(hold_that_a_promoted_node_does_not_know_is_over_before_the_next),
#endif
        CASE(acquire_that_was_not_answered_stays_in_doubt_at_the_next_node),
    };
    int failed;
    size_t i;

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    failed = shard_group("slots", of_slots, NULL, NULL);
    failed += shard_group("three nodes", of_three, three_begin, group_ends);
    if (some_move_whole) {
        failed +=
            shard_group("slots that move whole", of_whole, three_begin_whole, group_ends_whole);
    } else {
        for (i = 0; i < sizeof of_whole / sizeof *of_whole; i++) {
            print_message("not applicable: %s, with slots that move whole\n", of_whole[i].name);
        }
    }
    failed += shard_group("with replicas", of_six, six_begin, group_ends);
    return failed;
}
