/* faults_cluster.h - nodes of a cluster that are silent, of another mind, or lie
 *
 * The stage is all of them: each has an address of this machine. What a map or a redirection means
 * on real nodes is tested in cluster.c.
 */
#ifndef TESTS_FAULTS_CLUSTER_H
#define TESTS_FAULTS_CLUSTER_H

#define NODES 12

static struct {
    int port;
    int maps;           /* so many questions for the map were heard */
    const char *map;    /* what all say to them; NULL = the slots below; "" = nothing */
    bool hangs_up;      /* ... instead */
    int of_slots[3][3]; /* from, to, and the node */
    bool silent[NODES]; /* it answers nothing at all */
    const char *wait;   /* what all say to WAIT; NULL = one replica has it */
    bool by_channels;   /* none knows tracking, each knows sharded channels */
    bool taken;         /* every key is */
    struct {
        const char *map; /* what it says to questions for the map; NULL = as all */
        char keyed[64];  /* what it says to commands with a key; "" = the truth */
        int heard;       /* so many of them */
        int asking;      /* so many ASKING before them */
        bool quiet;      /* to ASKING, and to commands with a key */
    } of[NODES];
} fleet;

static void slots_are(int row, int from, int to, int node) {
    fleet.of_slots[row][0] = from;
    fleet.of_slots[row][1] = to;
    fleet.of_slots[row][2] = node;
}

static void node_redirects(int i, const char *word, int slot, int to) {
    snprintf(fleet.of[i].keyed, sizeof fleet.of[i].keyed, "-%s %d 127.0.0.%d:%d\r\n", word, slot,
             to + 1, fleet.port);
}

static const char *fleet_map(void) {
    static char text[512];
    char rows[480];
    int i, n = 0, count = 0;

    for (i = 0; i < 3; i++) {
        if (fleet.of_slots[i][1] >= fleet.of_slots[i][0]) {
            n += snprintf(rows + n, sizeof rows - (size_t)n,
                          "*3\r\n:%d\r\n:%d\r\n*3\r\n$%d\r\n127.0.0.%d\r\n:%d\r\n$1\r\nn\r\n",
                          fleet.of_slots[i][0], fleet.of_slots[i][1],
                          fleet.of_slots[i][2] >= 9 ? 10 : 9, fleet.of_slots[i][2] + 1, fleet.port);
            count++;
        }
    }
    rows[n] = '\0';
    snprintf(text, sizeof text, "*%d\r\n%s", count, rows);
    return text;
}

static const char *channels_say(const struct words *words) {
    static char text[160];

    if (liar_hears(words, "CLIENT TRACKING")) {
        return "-ERR unknown command\r\n";
    }
    if (liar_hears(words, "SSUBSCRIBE") || liar_hears(words, "SUNSUBSCRIBE")) {
        const char *word = words->text[0][1] == 'S' ? "ssubscribe" : "sunsubscribe";

        snprintf(text, sizeof text, "*3\r\n$%u\r\n%s\r\n$%u\r\n%s\r\n:1\r\n",
                 (unsigned)strlen(word), word, (unsigned)strlen(words->text[1]), words->text[1]);
        return text;
    }
    return fleet.taken && liar_hears(words, by_sha(rlock__lua_redisson_acquire)) ? ":60000\r\n"
                                                                                 : NULL;
}

/* Says on the channel of a key that it was released. */
static void say_on(struct stage_conn *conn, const char *word, const char *key) {
    char text[200], channel[96];

    snprintf(channel, sizeof channel, CHANNEL "{%s}", key);
    snprintf(text, sizeof text, "*3\r\n$%u\r\n%s\r\n$%u\r\n%s\r\n$1\r\n0\r\n",
             (unsigned)strlen(word), word, (unsigned)strlen(channel), channel);
    stage_says(conn, text);
}

static const char *node_answers(const struct stage_conn *conn, const struct words *words) {
    int i = (int)(conn->home - SERVER(0));
    const char *said = NULL;

    assert_in_range(i, 0, NODES - 1);
    if (fleet.silent[i]) {
        return "";
    }
    if (liar_hears(words, "CLUSTER SLOTS")) {
        fleet.maps++;
        if (fleet.hangs_up) {
            shutdown(conn->fd, SHUT_RDWR);
            return "";
        }
        return fleet.of[i].map != NULL ? fleet.of[i].map
               : fleet.map != NULL     ? fleet.map
                                       : fleet_map();
    }
    if (fleet.by_channels) {
        said = channels_say(words);
    }
    if (said != NULL) {
        return said;
    }
    if (liar_hears(words, "WAIT ")) {
        return fleet.wait != NULL ? fleet.wait : ":1\r\n";
    }
    if (liar_hears(words, "ASKING")) {
        fleet.of[i].asking++;
        return fleet.of[i].quiet ? "" : NULL;
    } else if (liar_hears(words, "SET ") || liar_hears(words, "EVAL") ||
               liar_hears(words, "DELIFEQ")) {
        fleet.of[i].heard++;
        return fleet.of[i].quiet ? "" : fleet.of[i].keyed[0] != '\0' ? fleet.of[i].keyed : NULL;
    }
    return NULL;
}

/* Returns the newest connection to a node, one that sent SUBSCRIBE or one that did not. */
static struct stage_conn *node_conn(int i, bool watching) {
    size_t at;

    for (at = stage.count; at > 0; at--) {
        struct stage_conn *conn = &stage.conns[at - 1];

        if (conn->fd >= 0 && conn->home == SERVER(i) && conn->watching == watching) {
            return conn;
        }
    }
    fail_msg("no connection to that node");
    return NULL;
}

/* Returns a key of that slot, or of one from there on up to the next node's. */
static const char *key_of(int from, int to) {
    static char keys[16][16];
    static unsigned next, number;
    char *key = keys[next++ % 16];

    do {
        snprintf(key, sizeof keys[0], "k%u", number++);
    } while ((int)rlock__key_slot(key, strlen(key)) < from ||
             (int)rlock__key_slot(key, strlen(key)) > to);
    return key;
}

static int slot_of(const char *key) {
    return (int)rlock__key_slot(key, strlen(key));
}

/* The first node has the first half of the slots, the second one the other half. */
static rlock_config fleet_begins(void) {
    static char list[64];
    rlock_config config;

    stage_begins();
    memset(&fleet, 0, sizeof fleet);
    fleet.port = stage_on_address(INADDR_ANY);
    slots_are(0, 0, 8191, 0);
    slots_are(1, 8192, 16383, 1);
    slots_are(2, 1, 0, 0);
    stage.script = node_answers;
    stage.maps = true;
    snprintf(list, sizeof list, "127.0.0.1:%d,127.0.0.2:%d", fleet.port, fleet.port);
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.cluster = list;
    config.command_timeout_ms = 1000;
    return config;
}

static rlock__cluster *cluster_of(const rlock_client *client) {
    return (rlock__cluster *)client->store_state;
}

static rlock__node *node_of(const rlock_client *client, int i) {
    rlock__cluster *cluster = cluster_of(client);
    char host[24];

    snprintf(host, sizeof host, "127.0.0.%d", i + 1);
    return rlock__node_at(cluster, host, strlen(host), fleet.port);
}

/* ------------------------------------------------------------------------------------------------
 * The map
 */

/* Who waits is served as soon as some node has the slot. */
static void key_that_no_node_has_is_refused_for_now(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    struct owner *first = owner_new(client, key_of(0, 8191)),
                 *once = owner_new(client, key_of(8192, 16383)),
                 *waits = owner_new(client, key_of(8192, 16383));

    (void)state;
    slots_are(1, 1, 0, 0);
    assert_int_equal(stage_acquire(first, 0, 60000), RLOCK_OK);
    assert_int_equal(stage_acquire(once, 0, 0), RLOCK_ERR_SERVER);
    assert_string_equal(once->text[RLOCK_ACQUIRED], "no known node has the key's slot");
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 60000, owner_told, waits), RLOCK_OK);
    stage_runs(3000);
    assert_int_equal(waits->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(fleet.of[1].heard, 0);
    slots_are(1, 8192, 16383, 1);
    assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 3000), RLOCK_OK);
}

/* Its keys are refused for now, and go on with the next map; what is held stays held. */
static void slots_that_no_node_has_any_more_come_back(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    struct owner *held = owner_new(client, key_of(8192, 16383)),
                 *other = owner_new(client, key_of(8192, 16383));

    (void)state;
    assert_int_equal(stage_acquire(held, 0, 60000), RLOCK_OK);
    slots_are(1, 1, 0, 0);
    snprintf(fleet.of[1].keyed, sizeof fleet.of[1].keyed, "-CLUSTERDOWN Hash slot not served\r\n");
    assert_int_equal(stage_acquire(other, 0, 0), RLOCK_ERR_SERVER);
    stage_runs(2000);
    assert_int_equal(stage_acquire(other, 0, 0), RLOCK_ERR_SERVER);
    assert_string_equal(other->text[RLOCK_ACQUIRED], "no known node has the key's slot");
    assert_true(rlock_is_held(held->lock));
    fleet.of[1].keyed[0] = '\0';
    slots_are(1, 8192, 16383, 2);
    stage_runs(2000);
    assert_int_equal(stage_renew(held, 60000), RLOCK_OK);
    assert_int_equal(stage_acquire(other, 0, 0), RLOCK_OK);
    assert_true(fleet.of[2].heard > 1);
}

/* The connection on which it came is given up, and another node is asked. */
static void map_that_is_none_is_asked_for_again(void **state) {
    static const char *const maps[] = {
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n$1\r\n5\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, key_of(0, 8191));

        fleet.map = maps[i];
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        stage_runs(2000);
        assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
        assert_true(fleet.maps > 1);
        assert_non_null(strstr(kit_log_text, "unexpected reply"));
        fleet.map = NULL;
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    }
}

/* Before there is a map the refusal ends who does not wait; after that it is told in the log. */
static void map_that_is_refused_is_reported(void **state) {
    static const char refusal[] = "-ERR This instance has cluster support disabled\r\n";
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *moved = key_of(0, 8191);
    struct owner *o = owner_new(client, key_of(0, 8191)), *next = owner_new(client, moved);

    (void)state;
    fleet.map = refusal;
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_ERR_SERVER);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "cluster support disabled"));
    fleet.map = NULL;
    stage_runs(3000);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    fleet.map = refusal;
    kit_log_text[0] = '\0';
    node_redirects(0, "MOVED", slot_of(moved), 1);
    assert_int_equal(stage_acquire(next, 0, 60000), RLOCK_OK);
    stage_runs(3000);
    assert_non_null(strstr(kit_log_text, "no slot map of the cluster"));
    assert_true(rlock_is_held(o->lock));
}

/* Nodes say what only they can reach: in the map, and in redirections of both kinds. The port is
 * mapped too. Without a host in it, the host is asked about by which who says it was reached. */
static void what_nodes_say_of_nodes_is_mapped(void **state) {
    rlock_config config = fleet_begins();
    const char *moved = key_of(0, 8191), *asked = key_of(0, 8191), *bare = key_of(0, 8191);
    static const char map[] = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$8\r\n10.9.9.9\r\n:7\r\n";
    rlock_client *client;
    struct owner *o;

    (void)state;
    memset(&charted, 0, sizeof charted);
    snprintf(charted.host, sizeof charted.host, "127.0.0.3");
    charted.port = fleet.port;
    config.map_address = chart;
    config.map_user = &charted;
    fleet.map = map;
    client = kit_client(&config);
    o = owner_new(client, moved);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(fleet.of[2].heard, 1);
    assert_string_equal(charted.asked, "10.9.9.9:7");
    snprintf(fleet.of[2].keyed, sizeof fleet.of[2].keyed, "-MOVED %d 10.8.8.8:8\r\n",
             slot_of(moved));
    snprintf(charted.host, sizeof charted.host, "127.0.0.4");
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    assert_int_equal(fleet.of[3].heard, 1);
    assert_string_equal(charted.asked, "10.8.8.8:8");
    o = owner_new(client, asked);
    snprintf(fleet.of[2].keyed, sizeof fleet.of[2].keyed, "-ASK %d 10.7.7.7:9\r\n", slot_of(asked));
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(fleet.of[3].asking, 1);
    assert_string_equal(charted.asked, "10.7.7.7:9");
    o = owner_new(client, bare);
    snprintf(fleet.of[2].keyed, sizeof fleet.of[2].keyed, "-MOVED %d :7\r\n", slot_of(bare));
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_string_equal(charted.asked, "127.0.0.3:7");
}

/* Neither is an answer: the next node is asked. */
static void question_for_the_map_that_is_lost_is_asked_again(void **state) {
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, key_of(0, 8191));

        fleet.hangs_up = i == 0;
        fleet.map = "";
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        stage_runs(4000);
        assert_true(fleet.maps > 1);
        fleet.hangs_up = false;
        fleet.map = NULL;
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    }
}

static void client_that_ends_while_it_asks_for_the_map_leaves_nothing(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, key_of(0, 8191));

    (void)state;
    fleet.map = "";
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(50);
    assert_int_equal(fleet.maps, 1);
    kit_reset();
    assert_null(stage.client);
}

static void count_links(void *user, const rlock_report *report) {
    int *counts = (int *)user;

    counts[0] += report->kind == RLOCK_REPORT_CONNECTED;
    counts[1] += report->kind == RLOCK_REPORT_DISCONNECTED;
}

/* The client has room for as many as there are. */
static void nodes_of_a_large_cluster_are_all_served(void **state) {
    rlock_config config = fleet_begins();
    int counts[2] = {0, 0}; /* connections that were ready, and that ended */
    rlock_client *client;
    int i;

    (void)state;
    config.on_event = count_links;
    config.event_user = counts;
    client = kit_client(&config);
    for (i = 0; i < NODES; i++) {
        const char *key = key_of(0, 8191);
        struct owner *o = owner_new(client, key);

        node_redirects(0, "MOVED", slot_of(key), i);
        if (i == 0) {
            fleet.of[0].keyed[0] = '\0';
        }
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
        assert_true(fleet.of[i].heard > 0);
        stage_runs(1);
    }
    stage_runs(5000); /* those that have no slots are left */
    assert_int_equal(cluster_of(client)->node_count % 8, 0);
    assert_true(cluster_of(client)->node_count > 8);
    assert_null(node_of(client, 5)->redis);
    assert_in_range(counts[1], NODES / 2, counts[0] - 1); /* the client has closed them itself */
    kit_reset();
    assert_int_equal(counts[1], counts[0]);
}

/* A seed need not be a node for ever: one that was taken away knows of no slots, one that is no
 * node says so. */
static void seed_that_has_no_map_is_passed_over(void **state) {
    static const char *const maps[] = {"*0\r\n", "-ERR cluster support disabled\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, key_of(8192, 16383));

        fleet.of[0].map = maps[i];
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
        assert_true(strstr(kit_log_text, "no slot map of the cluster") != NULL ||
                    strstr(kit_log_text, "the node has no slots") != NULL);
    }
}

/* Later, too: what is known of the slots stays. */
static void map_without_slots_changes_nothing(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, key_of(0, 8191)),
                 *other = owner_new(client, key_of(8192, 16383));
    int i;

    (void)state;
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    fleet.map = "*0\r\n";
    snprintf(fleet.of[1].keyed, sizeof fleet.of[1].keyed, "-CLUSTERDOWN Hash slot not served\r\n");
    assert_int_equal(stage_acquire(other, 0, 0), RLOCK_ERR_SERVER);
    stage_runs(5000);
    i = fleet.of[0].heard;
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    assert_int_equal(fleet.of[0].heard, i + 1);
    fleet.map = NULL;
    fleet.of[1].keyed[0] = '\0';
    assert_int_equal(stage_acquire(other, 5000, 0), RLOCK_OK);
}

/* The answer to a question that was asked before a node said MOVED need not know of it. */
static void map_that_is_older_than_a_redirection_is_asked_for_again(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *moved = key_of(0, 8191), *asks = key_of(8192, 16383);
    struct owner *first = owner_new(client, key_of(0, 8191)),
                 *second = owner_new(client, key_of(8192, 16383)),
                 *waits = owner_fenced(client, moved), *once = owner_fenced(client, asks);
    static char old[512];

    (void)state;
    assert_int_equal(stage_acquire(first, 0, 60000), RLOCK_OK);
    assert_int_equal(stage_acquire(second, 0, 60000), RLOCK_OK);
    stage_runs(2000);
    fleet.maps = 0;
    snprintf(old, sizeof old, "%s", fleet_map());
    snprintf(fleet.of[2].keyed, sizeof fleet.of[2].keyed, ":60000\r\n"); /* held */
    fleet.of[1].map = "";
    node_redirects(1, "MOVED", slot_of(asks), 2);
    assert_int_equal(stage_acquire(once, 0, 0), RLOCK_ERR_BUSY);
    assert_int_equal(fleet.maps, 1); /* it is out, at the second node */
    node_redirects(0, "MOVED", slot_of(moved), 2);
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
    stage_runs(200);
    slots_are(0, 0, 8191, 2);
    stage_says(node_conn(1, false), old);
    stage_runs(1500); /* the waiter sleeps for longer */
    assert_int_equal(node_of(client, 2)->slots, 8192);
}

/* ------------------------------------------------------------------------------------------------
 * Nodes that are left
 */

/* Its connection ends in the turn in which it is left. */
static void node_that_is_left_may_speak_in_that_turn(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *key = key_of(0, 8191);
    struct owner *o = owner_new(client, key);

    (void)state;
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    slots_are(0, 0, 8191, 1);
    node_redirects(0, "MOVED", slot_of(key), 1);
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    while (node_of(client, 0)->slots > 0) {
        stage_runs(10);
    }
    stage_hangs_up(node_conn(0, false));
    stage.now_us += 1100000;
    assert_true(stage_looks());
    stage_runs(3000);
    assert_null(node_of(client, 0)->redis);
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
}

/* It is not left before replicas have answered for what it granted. */
static void node_that_waits_for_replicas_is_not_left(void **state) {
    rlock_config config = fleet_begins();
    const char *key = key_of(8192, 16383);
    rlock_client *client;
    struct owner *o, *first, *other;

    (void)state;
    config.replicas = 1;
    config.command_timeout_ms = 10000;
    client = kit_client(&config);
    first = owner_new(client, key_of(0, 8191));
    o = owner_new(client, key_of(0, 8191));
    other = owner_new(client, key);
    assert_int_equal(stage_acquire(first, 0, 60000), RLOCK_OK);
    stage_runs(2000);
    fleet.wait = "";
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(5);
    fleet.wait = NULL;
    slots_are(0, 0, 8191, 2);
    node_redirects(1, "MOVED", slot_of(key), 2);
    assert_int_equal(stage_acquire(other, 0, 60000), RLOCK_OK);
    stage_runs(2000);
    assert_int_equal(node_of(client, 0)->slots, 0);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    stage_says(node_conn(0, false), ":1\r\n");
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 100), RLOCK_OK);
    stage_runs(3000);
    assert_null(node_of(client, 0)->redis);
}

/* What was given back is surely gone: the next node is not asked for it for a lease more. */
static void grant_that_was_given_back_leaves_no_doubt(void **state) {
    rlock_config config = fleet_begins();
    const char *key = key_of(8192, 16383);
    rlock_client *client;
    struct owner *waits, *other;

    (void)state;
    config.replicas = 1;
    client = kit_client(&config);
    waits = owner_new(client, key_of(0, 8191));
    other = owner_new(client, key);
    fleet.wait = ":0\r\n";
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 60000, owner_told, waits), RLOCK_OK);
    stage_runs(2000);
    fleet.wait = NULL;
    slots_are(0, 0, 8191, 2);
    node_redirects(1, "MOVED", slot_of(key), 2);
    assert_int_equal(stage_acquire(other, 0, 60000), RLOCK_OK);
    assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    stage_runs(200);
    assert_int_equal(node_of(client, 0)->slots, 0);
    assert_int_equal(stage_release(waits), RLOCK_OK);
    stage_runs(2000);
    assert_int_equal(kit_stats(client).cleaning, 0);
}

/* A node that a slot is on its way to knows the key only where ASKING comes first. */
static void grant_on_the_way_is_given_back_on_the_way(void **state) {
    rlock_config config = fleet_begins();
    const char *key = key_of(0, 8191);
    struct owner *o;

    (void)state;
    config.replicas = 1;
    o = owner_new(kit_client(&config), key);
    fleet.wait = ":0\r\n";
    node_redirects(0, "ASK", slot_of(key), 2);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_ERR_SERVER);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "WAIT: too few replicas"));
    assert_int_equal(fleet.of[2].heard, 2);
    assert_int_equal(fleet.of[2].asking, 2);
}

/* However far the commands of an attempt came: the last that memory is refused to is the give-back
 * itself, and the one before it is its ASKING. */
static void grant_on_the_way_is_let_go_though_memory_is_refused(void **state) {
    rlock_config config = fleet_begins();
    const char *key = key_of(0, 8191);
    rlock_client *client;
    struct owner *o;
    unsigned n;
    bool refused = true;

    (void)state;
    config.replicas = 1;
    client = kit_client(&config);
    o = owner_new(client, key);
    node_redirects(0, "ASK", slot_of(key), 2);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(stage_release(o), RLOCK_OK);
    fleet.wait = ":0\r\n";
    for (n = 1; refused; n++) {
        commands_last = n;
        assert_int_not_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
        refused = commands_last == 0;
        commands_last = 0;
        stage_runs(3000);
        assert_int_equal(kit_stats(client).cleaning, 0);
        assert_int_equal(fleet.of[2].asking, fleet.of[2].heard);
    }
    assert_true(n > 6);
}

/* A node is not left before its name has been looked up, however long that takes. */
static void node_whose_name_is_looked_up_is_not_left(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *key = key_of(0, 8191);
    struct owner *o = owner_new(client, key), *other = owner_new(client, key_of(8192, 16383));
    static char map[256];

    (void)state;
    snprintf(map, sizeof map,
             "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n"
             "*3\r\n:8192\r\n:16383\r\n*2\r\n$6\r\nnode-c\r\n:%d\r\n",
             fleet.port, fleet.port);
    fleet.map = map;
    assert_int_equal(rlock_acquire(other->lock, RLOCK_FOREVER, 60000, owner_told, other), RLOCK_OK);
    stage_runs(100);
    assert_non_null(stage.name);
    fleet.map = NULL;
    node_redirects(0, "MOVED", slot_of(key), 1);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(stage_wait(other, RLOCK_ACQUIRED, 3000), RLOCK_OK);
    stage_runs(3000);
    rlock_on_resolved_all(stage.name, NULL, 0);
    stage_runs(3000);
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
}

/* The resolver never answers for the first node that was named: the next one has the map. */
static void name_that_hangs_hides_no_other_node_of_a_cluster(void **state) {
    rlock_config config = fleet_begins();
    struct owner *o, *other;
    char list[64];
    int64_t begun_us;

    (void)state;
    snprintf(list, sizeof list, "hangs.example:%d,127.0.0.2:%d", fleet.port, fleet.port);
    config.cluster = list;
    o = owner_new(kit_client(&config), key_of(0, 8191));
    other = owner_new(kit_clients[0], key_of(8192, 16383));
    begun_us = stage.now_us;
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    assert_int_equal(rlock_acquire(other->lock, RLOCK_FOREVER, 60000, owner_told, other), RLOCK_OK);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 2000), RLOCK_OK);
    assert_int_equal(stage_wait(other, RLOCK_ACQUIRED, 2000), RLOCK_OK);
    assert_true(stage.now_us - begun_us < 2000000);
    assert_int_equal(stage.names, 1);
    stage_runs(20000);
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    assert_int_equal(stage_renew(other, 60000), RLOCK_OK);
    rlock_on_resolved_all(stage_takes_name("hangs.example"), NULL, 0); /* it fails in the end */
    stage_runs(3000);
    assert_true(rlock_is_held(o->lock) && rlock_is_held(other->lock));
}

/* ------------------------------------------------------------------------------------------------
 * Redirections
 */

/* What cannot be read leads nowhere: it is an answer like any other. */
static void redirection_that_is_none_is_not_followed(void **state) {
    static const char *const words[] = {
        "-MOVED\r\n",
        "-MOVED x 127.0.0.3:1\r\n",
        "-MOVED 1\r\n",
        "-MOVED 1 127.0.0.3\r\n",
        "-MOVED 1 127.0.0.3:\r\n",
        "-MOVED 1 127.0.0.3:0\r\n",
        "-MOVED 1 127.0.0.3:65536\r\n",
        "-MOVED 1 127.0.0.3:12x\r\n",
        "-ASK 16384 127.0.0.3:1\r\n",
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof words / sizeof words[0]; i++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, key_of(0, 8191));

        snprintf(fleet.of[0].keyed, sizeof fleet.of[0].keyed, "%s", words[i]);
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_ERR_SERVER);
        assert_int_equal(stage.count, 1);
    }
}

/* ASKING goes before each command, and the key is polled until the next map. */
static void node_that_is_asked_hears_asking_before_each_command(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *key = key_of(0, 8191);
    struct owner *o = owner_new(client, key);

    (void)state;
    node_redirects(0, "ASK", slot_of(key), 2);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(fleet.of[2].asking, fleet.of[2].heard);
    assert_true(fleet.of[2].asking > 0);
    fleet.of[0].keyed[0] = '\0';
    slots_are(0, 0, 8191, 2);
    stage_runs(3000);
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    assert_true(fleet.of[2].asking < fleet.of[2].heard);
}

/* What waits for a node that was named by ASK stays there, though the map names another one. */
static void request_that_asks_waits_at_the_node_that_was_named(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *key = key_of(0, 8191);
    struct owner *o = owner_new(client, key);

    (void)state;
    fleet.silent[2] = true;
    node_redirects(0, "ASK", slot_of(key), 2);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(20);
    slots_are(0, 0, 8191, 3);
    stage_runs(300);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(fleet.of[3].heard, 0);
    fleet.silent[2] = false;
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 10000), RLOCK_OK);
}

static void position_told(rlock_client *client, const rlock_info *info, void *user) {
    (void)client;
    *(int *)user = info->status;
}

/* A node that was named, and of which the map does not say that it has the slot, is dead: whoever
 * has it is asked again. */
static void request_that_was_led_to_a_dead_node_comes_back(void **state) {
    static const char *const words[] = {"ASK", "MOVED"};
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        const char *key = key_of(0, 8191), *held = key_of(0, 8191);
        struct owner *o = owner_new(client, key), *holds = owner_new(client, held);
        rlock_options options;
        int told = 1;

        memset(&options, 0, sizeof options);
        options.key = held;
        assert_int_equal(stage_acquire(holds, 0, 6000), RLOCK_OK);
        fleet.silent[2] = true;
        node_redirects(0, words[i], slot_of(key), 2);
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        assert_int_equal(rlock_renew(holds->lock, 6000, owner_told, holds), RLOCK_OK);
        assert_int_equal(rlock_inspect(client, &options, position_told, &told), RLOCK_OK);
        stage_runs(20);
        fleet.of[0].keyed[0] = '\0';
        assert_int_equal(stage_wait(holds, RLOCK_RENEWED, 2000), RLOCK_ERR_CONN);
        assert_true(told < 0);
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
        assert_int_equal(stage_renew(holds, 6000), RLOCK_OK);
    }
}

/* The client is not connected to the node that had the slot. */
static void request_that_waits_moves_with_its_slot(void **state) {
    rlock_config config = fleet_begins();
    const char *key = key_of(0, 8191), *other = key_of(8192, 16383);
    rlock_client *client;
    struct owner *o, *sends;

    (void)state;
    config.command_timeout_ms = 60000;
    client = kit_client(&config);
    o = owner_new(client, key);
    sends = owner_new(client, other);
    slots_are(0, 0, 8191, 2);
    fleet.silent[2] = true;
    assert_int_equal(stage_acquire(sends, 0, 60000), RLOCK_OK);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(2000);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    slots_are(0, 0, 8191, 0);
    node_redirects(1, "MOVED", slot_of(other), 0);
    assert_int_equal(stage_renew(sends, 60000), RLOCK_OK);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

/* Its connection is given up, so that the ASKING of one command is never that of another. */
static void command_that_is_refused_behind_its_asking_ends_the_connection(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *key = key_of(0, 8191);
    struct owner *o = owner_new(client, key);
    unsigned n;

    (void)state;
    node_redirects(0, "ASK", slot_of(key), 2);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(stage_release(o), RLOCK_OK);
    for (n = 1; n <= 3; n++) { /* at the first node, of ASKING, and behind it */
        assert_null(strstr(kit_log_text, "out of memory"));
        commands_last = n;
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_ERR_NOMEM);
        assert_int_equal(commands_last, 0);
        stage_runs(2000);
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
        assert_int_equal(stage_release(o), RLOCK_OK);
    }
    assert_non_null(strstr(kit_log_text, "out of memory"));
    assert_int_equal(fleet.of[2].asking, fleet.of[2].heard);
}

/* By the server, by the command timeout, or by the end of the client. */
static void asking_may_be_cut_off(void **state) {
    enum { HANGS, SILENT, ENDS, WAYS };
    int way;

    (void)state;
    for (way = 0; way < WAYS; way++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        const char *key = key_of(0, 8191);
        struct owner *o = owner_new(client, key);

        node_redirects(0, "ASK", slot_of(key), 2);
        fleet.of[2].quiet = true; /* to ASKING, and to what follows it */
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        stage_runs(20);
        assert_int_equal(fleet.of[2].asking, 1);
        assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
        fleet.of[2].quiet = false;
        fleet.of[0].keyed[0] = '\0';
        if (way == HANGS) {
            stage_hangs_up(node_conn(2, false));
        } else if (way == ENDS) {
            rlock_client_free(client);
            kit_clients[0] = NULL;
            continue;
        }
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 10000), RLOCK_OK);
        stage_runs(2000);
        assert_int_equal(kit_stats(client).cleaning, 0);
    }
}

/* Listens to the channels of keys at the first node, as at one that allows no tracking. */
static rlock_client *by_channels(struct owner **waits, const char *key) {
    rlock_config config = fleet_begins();
    rlock_client *client;

    fleet.by_channels = true;
    config.wire = RLOCK_WIRE_REDISSON;
    config.command_timeout_ms = 1000;
    client = kit_client(&config);
    assert_non_null(client);
    *waits = owner_new(client, key);
    fleet.taken = true;
    assert_int_equal(rlock_acquire((*waits)->lock, RLOCK_FOREVER, 60000, owner_told, *waits),
                     RLOCK_OK);
    return client;
}

static void sharded_channel_without_memory_is_asked_for_again(void **state) {
    unsigned n, refused = 0;

    (void)state;
    for (n = 1; n <= 20; n++) {
        const char *key = key_of(0, 8191);
        struct owner *waits;
        rlock_client *client;

        commands_last = n;
        client = by_channels(&waits, key);
        stage_runs(3000);
        refused += commands_last == 0;
        commands_last = 0;
        if (waits->seen[RLOCK_ACQUIRED] > 0) { /* its own command was refused */
            assert_int_equal(waits->status[RLOCK_ACQUIRED], RLOCK_ERR_NOMEM);
            continue;
        }
        stage_runs(3000);
        assert_true(kit_stats(client).pushing);
        assert_true(stage_count("SSUBSCRIBE") > 0);
        fleet.taken = false;
        say_on(node_conn(0, true), "smessage", key);
        assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 500), RLOCK_OK);
    }
    assert_true(refused > 12);
}

/* hiredis knows nothing of sharded channels; what is made of a message has to have its shape. */
static void sharded_message_of_another_shape_ends_the_connection(void **state) {
    static const struct {
        const char *text;
        bool kept;
    } rows[] = {
        {"*3\r\n$8\r\nsmessage\r\n$4\r\nsome\r\n$1\r\n0\r\n", true},
        {"*3\r\n$8\r\nsmessage\r\n$4\r\nsome\r\n:0\r\n", true},
        {"*3\r\n$8\r\nsmessage\r\n$4\r\nsome\r\n*1\r\n$8\r\nsmessage\r\n", false},
        {"*3\r\n$8\r\nsmessage\r\n:1\r\n$1\r\n0\r\n", false},
        {"*3\r\n$8\r\nsmessage\r\n$-1\r\n$1\r\n0\r\n", false},
        {"*3\r\n*1\r\n$8\r\nsmessage\r\n$4\r\nsome\r\n$1\r\n0\r\n", false},
        {"*3\r\n$10\r\nssubscribe\r\n$4\r\nsome\r\n$1\r\n0\r\n", true},
        {"*3\r\n$7\r\nmessage\r\n$4\r\nsome\r\n*1\r\n$8\r\nsmessage\r\n", true},
        {"*3\r\n$8\r\nsmessages\r\n$4\r\nsome\r\n$1\r\n0\r\n", false},
        {"*2\r\n$8\r\nsmessage\r\n$4\r\nsome\r\n", false},
        {"-MOVED 1 127.0.0.2:1\r\n", true},
        {"-NOPERM no channels\r\n", true},
        {"$8\r\nsmessage\r\n", false},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *key = key_of(0, 8191);
        struct owner *waits;
        rlock_client *client = by_channels(&waits, key);
        uint64_t faults;

        stage_runs(3000);
        assert_true(kit_stats(client).pushing);
        faults = kit_stats(client).faults;
        stage_says(node_conn(0, true), rows[i].text);
        stage_runs(100);
        if ((kit_stats(client).faults == faults) != rows[i].kept) {
            print_error("row %u\n", (unsigned)i);
        }
        assert_int_equal(kit_stats(client).faults == faults, rows[i].kept);
        stage_runs(3000);
        assert_true(kit_stats(client).pushing);
        assert_int_equal(waits->seen[RLOCK_ACQUIRED], 0);
        fleet.taken = false;
        say_on(node_conn(0, true), i == 11 ? "message" : "smessage", key);
        assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 500), RLOCK_OK);
    }
}

/* ------------------------------------------------------------------------------------------------
 * Memory, numbers and configurations
 */

/* One allocation after the other fails while a node is found out about, and while the map grows. */
static void every_failing_allocation_on_the_way_to_a_node_is_survived(void **state) {
    int n, done = 0, denied = 0;

    (void)state;
    for (n = 1; n <= 60; n++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        const char *key = key_of(0, 8191);
        struct owner *first = owner_new(client, key_of(0, 8191)), *o = owner_new(client, key);
        int status;

        assert_int_equal(stage_acquire(first, 0, 60000), RLOCK_OK);
        node_redirects(0, "MOVED", slot_of(key), 3 + n % 2);
        slots_are(0, 0, 8191, 4 - n % 2);
        slots_are(2, 16383, 16383, 7);
        slots_are(1, 8192, 16382, 8);
        memory_lasts = (unsigned)n;
        status = stage_acquire(o, 0, 60000);
        done += status == RLOCK_OK;
        denied += status != RLOCK_OK;
        assert_true(status == RLOCK_OK || status == RLOCK_ERR_NOMEM || status == RLOCK_ERR_SERVER);
        fleet.of[0].keyed[0] = '\0';
        stage_runs(3000);
        memory_lasts = 0;
        stage_runs(3000);
        if (rlock_is_held(o->lock)) {
            assert_int_equal(stage_release(o), RLOCK_OK);
        }
        assert_int_equal(stage_acquire(o, 5000, 60000), RLOCK_OK);
        assert_true(rlock_is_held(first->lock));
    }
    assert_true(done > 30 && denied > 2);
}

/* A question for which hiredis gets no memory ends its connection, and is asked on the next one:
 * for the map, and of a node that was promoted or gets its first slot. */
static void question_that_is_refused_by_hiredis_is_asked_again(void **state) {
    static char seed[32];
    unsigned n;

    (void)state;
    for (n = 1; n <= 20; n++) {
        rlock_config config = fleet_begins();
        rlock_client *client;
        struct owner *o, *next;
        const char *key = key_of(0, 8191);

        slots_are(0, 0, 16383, 0);
        slots_are(1, 1, 0, 0);
        snprintf(seed, sizeof seed, "127.0.0.1:%d", fleet.port);
        config.cluster = seed;
        config.quarantine_ms = 60000;
        client = kit_client(&config);
        o = owner_new(client, key);
        next = owner_new(client, key_of(0, 8191));
        commands_last = n;
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        stage_wait(o, RLOCK_ACQUIRED, 5000);
        commands_last = 0;
        if (!rlock_is_held(o->lock)) { /* its own command was refused */
            assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_NOMEM);
            assert_int_equal(stage_acquire(o, RLOCK_FOREVER, 60000), RLOCK_OK);
        }
        commands_last = n; /* the marker's slot leaves: both are asked anew */
        slots_are(0, 0, 8191, 0);
        slots_are(1, 8192, 16383, 1);
        node_redirects(0, "MOVED", slot_of(key), 1);
        rlock_renew(o->lock, 60000, owner_told, o);
        stage_runs(3000);
        fleet.of[0].keyed[0] = '\0';
        commands_last = 0;
        stage_runs(3000);
        assert_int_equal(rlock_acquire(next->lock, RLOCK_FOREVER, 60000, owner_told, next),
                         RLOCK_OK);
        assert_int_equal(stage_wait(next, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    }
}

/* The numbers by which doubt is remembered end: new ones are given, and what is noted stays. */
static void node_that_is_lost_often_gets_new_epochs(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    struct owner *o = owner_new(client, key_of(0, 8191));
    rlock__redis *redis;
    uint32_t first;
    int i;

    (void)state;
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    redis = node_of(client, 0)->redis;
    first = redis->first_epoch;
    redis->epoch = redis->last_epoch - RLOCK__EPOCHS_LEAST;
    for (i = 0; i < 3; i++) {
        stage_hangs_up(node_conn(0, false));
        stage_runs(2000);
        assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    }
    assert_true(redis->first_epoch > first);
    cluster_of(client)->epochs = RLOCK__EPOCHS_MIXED - RLOCK__EPOCHS;
    redis->epoch = redis->last_epoch - 1;
    for (i = 0; i < 3; i++) {
        stage_hangs_up(node_conn(0, false));
        stage_runs(2000);
        assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    }
    assert_int_equal(redis->last_epoch, RLOCK__EPOCHS_MIXED);
    redis->epoch = redis->last_epoch - 1; /* the next ones are the first again */
    stage_hangs_up(node_conn(0, false));
    stage_runs(2000);
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    assert_int_equal(redis->last_epoch, RLOCK__EPOCHS);
}

static void clusters_of_a_configuration_are_checked(void **state) {
    static const struct {
        const char *cluster, *host, *path, *sentinels, *words;
        int database;
        bool connects;
    } rows[] = {
        {"", NULL, NULL, NULL, "expected host:", 0, false},
        {"a,,b", NULL, NULL, NULL, "expected host:", 0, false},
        {"127.0.0.1", "h", NULL, NULL, "config.cluster cannot", 0, false},
        {"127.0.0.1", NULL, "/p", NULL, "config.cluster cannot", 0, false},
        {"127.0.0.1", NULL, NULL, "s", "config.cluster cannot", 0, false},
        {"127.0.0.1", NULL, NULL, NULL, "config.cluster cannot", 0, true},
        {"127.0.0.1", NULL, NULL, NULL, "only database 0", 1, false},
        {"127.0.0.1,[::1],[::1]:7000,127.0.0.1:65535", NULL, NULL, NULL, NULL, 0, false},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config = fleet_begins();
        rlock_client *client = NULL;
        int status;

        config.cluster = rows[i].cluster;
        config.host = rows[i].host;
        config.unix_path = rows[i].path;
        config.sentinels = rows[i].sentinels;
        config.database = rows[i].database;
        config.connect = rows[i].connects ? connects_nowhere : NULL;
        kit_log_text[0] = '\0';
        status = rlock_client_new(&client, &config);
        assert_int_equal(status, rows[i].words != NULL ? RLOCK_ERR_ARG : RLOCK_OK);
        if (rows[i].words != NULL) {
            assert_non_null(strstr(kit_log_text, rows[i].words));
        }
        rlock_client_free(client);
    }
}

/* As a store of the user's own: a node has an address and nothing else of its own. */
static void seeds_of_a_store_are_checked(void **state) {
    static rlock_store some;
    int i;

    (void)state;
    for (i = 0; i < 11; i++) {
        rlock_config config = fleet_begins(), seeds[2];
        rlock_store *store = NULL;
        rlock_client *client = NULL;

        memset(seeds, 0, sizeof seeds);
        seeds[0].host = i == 10 ? "::1" : NULL;
        seeds[1].host = "127.0.0.2";
        seeds[1].port = i == 1 ? -1 : i == 2 ? 65536 : i == 10 ? 7000 : 0;
        seeds[1].url = i == 3 ? "redis://h" : NULL;
        seeds[1].store = i == 4 ? &some : NULL;
        seeds[1].unix_path = i == 5 ? "/p" : NULL;
        seeds[1].connect = i == 6 ? connects_nowhere : NULL;
        seeds[1].sentinels = i == 7 ? "s" : NULL;
        assert_int_equal(rlock_cluster_new(&store, seeds, 2), RLOCK_OK);
        config.cluster = NULL;
        config.store = store;
        assert_int_equal(rlock_client_new(&client, &config),
                         i >= 1 && i <= 7 ? RLOCK_ERR_ARG : RLOCK_OK);
        rlock_client_free(client);
        rlock_cluster_free(store);
    }
    rlock_cluster_free(NULL);
}

/* ------------------------------------------------------------------------------------------------
 * What nodes seldom say, and when nobody can be asked
 */

/* What a later server may add behind the address does not matter. */
static void redirection_may_have_more_words(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *key = key_of(0, 8191);
    struct owner *o = owner_new(client, key);

    (void)state;
    snprintf(fleet.of[0].keyed, sizeof fleet.of[0].keyed, "-MOVED %d 127.0.0.3:%d or so\r\n",
             slot_of(key), fleet.port);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(fleet.of[2].heard > 0);
}

/* A node that should have a name and has none is "?", and its address stands among what is told of
 * it besides. Where that says nothing the node is the one that was asked. */
static void node_without_a_name_has_its_address_behind(void **state) {
    static const struct {
        const char *more;
        int node;
    } rows[] = {
        {"*2\r\n$2\r\nip\r\n$9\r\n127.0.0.3\r\n", 2},
        {"*4\r\n$8\r\nhostname\r\n$1\r\nx\r\n$2\r\nip\r\n$9\r\n127.0.0.3\r\n", 2},
        {"*4\r\n:1\r\n$1\r\nx\r\n$2\r\nip\r\n$9\r\n127.0.0.3\r\n", 2},
        {"*2\r\n:1\r\n$9\r\n127.0.0.3\r\n", 0},
        {"*2\r\n$2\r\nip\r\n:1\r\n", 0},
        {"*2\r\n$2\r\nip\r\n$0\r\n\r\n", 0},
        {"*2\r\n$8\r\nhostname\r\n$9\r\n127.0.0.3\r\n", 0},
        {"*1\r\n$2\r\nip\r\n", 0},
        {"*0\r\n", 0},
        {"$2\r\nip\r\n", 0},
        {"", 0}, /* as before Redis 7 */
    };
    static char seed[32], map[256];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config = fleet_begins();
        struct owner *o;

        snprintf(map, sizeof map,
                 "*1\r\n*3\r\n:0\r\n:16383\r\n*%d\r\n$1\r\n?\r\n:%d\r\n$1\r\nn\r\n%s",
                 rows[i].more[0] != '\0' ? 4 : 3, fleet.port, rows[i].more);
        fleet.map = map;
        snprintf(seed, sizeof seed, "127.0.0.1:%d", fleet.port);
        config.cluster = seed;
        o = owner_new(kit_client(&config), "k");
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
        assert_int_equal(fleet.of[0].heard > 0, rows[i].node == 0);
        assert_int_equal(fleet.of[2].heard > 0, rows[i].node == 2);
    }
}

/* A request waits for the connection; when that is given up, whoever has the slot serves it. */
static void node_that_is_being_connected_to_is_not_left(void **state) {
    int port, filler[2], door = deaf_door(&port, filler);
    rlock_config config = fleet_begins();
    rlock_client *client;
    const char *key = key_of(0, 8191);
    struct owner *o;

    (void)state;
    config.command_timeout_ms = 10000;
    client = kit_client(&config);
    o = owner_new(client, key);
    snprintf(fleet.of[0].keyed, sizeof fleet.of[0].keyed, "-ASK %d 127.0.0.1:%d\r\n", slot_of(key),
             port);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(5000); /* it has no slots, and is looked at each second */
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    assert_non_null(rlock__node_at(cluster_of(client), "127.0.0.1", 9, port)->redis);
    fleet.of[0].keyed[0] = '\0';
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 10000), RLOCK_OK);
    stage_runs(3000);
    assert_null(rlock__node_at(cluster_of(client), "127.0.0.1", 9, port)->redis);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 1);
    kit_reset(); /* the sanitizer counts the contexts */
    close(filler[0]);
    close(filler[1]);
    close(door);
}

static struct {
    const char *tells; /* what the first node says to the question of the quarantine */
    int maps[NODES];   /* questions for the map */
} guarded;

static const char *guarded_answers(const struct stage_conn *conn, const struct words *words) {
    int i = (int)(conn->home - SERVER(0));

    guarded.maps[i] += liar_hears(words, "CLUSTER SLOTS");
    if (liar_hears(words, the_question())) {
        return i == 0 ? guarded.tells : ":0\r\n";
    }
    return node_answers(conn, words);
}

/* Connected to both nodes; the map has been asked for just now. */
static rlock_client *guarded_begins(rlock_config *config, struct owner **held) {
    rlock_client *client;

    *config = fleet_begins();
    memset(&guarded, 0, sizeof guarded);
    guarded.tells = ":0\r\n";
    stage.script = guarded_answers;
    config->quarantine_ms = 60000;
    config->command_timeout_ms = 5000;
    client = kit_client(config);
    *held = owner_new(client, key_of(0, 8191));
    assert_int_equal(stage_acquire(*held, 0, 60000), RLOCK_OK);
    assert_int_equal(stage_acquire(owner_new(client, key_of(8192, 16383)), 0, 60000), RLOCK_OK);
    memset(guarded.maps, 0, sizeof guarded.maps);
    return client;
}

/* A node says MOVED, and then that it is a replica: it is left as soon as all is answered, and the
 * map comes from another one. */
static void node_that_may_grant_nothing_is_not_asked_for_the_map(void **state) {
    rlock_config config;
    struct owner *held, *o;
    rlock_client *client = guarded_begins(&config, &held);
    const char *key = key_of(0, 8191);

    (void)state;
    o = owner_new(client, key);
    slots_are(0, 0, 8191, 2);
    node_redirects(0, "MOVED", slot_of(key), 2);
    guarded.tells = "";
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(5);
    fleet.silent[0] = true;
    assert_int_equal(rlock_renew(held->lock, 60000, owner_told, held), RLOCK_OK);
    stage_runs(5);
    stage_says(node_conn(0, false), "-READONLY You can't write against a read only replica.\r\n");
    stage_runs(1500);
    assert_int_equal(guarded.maps[0], 0);
    assert_true(guarded.maps[1] > 0);
    assert_int_equal(node_of(client, 2)->slots, 8192);
    assert_int_equal(held->seen[RLOCK_RENEWED], 0);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(stage_wait(held, RLOCK_RENEWED, 10000) != KIT_NOTHING);
    assert_int_equal(stage_renew(held, 60000), RLOCK_OK);
    assert_true(rlock_is_held(held->lock));
}

/* hiredis has no memory for a question of the turn in which the map is asked for. */
static void node_whose_connection_is_broken_is_not_asked_for_the_map(void **state) {
    rlock_config config;
    struct owner *held, *o;
    rlock_client *client = guarded_begins(&config, &held);
    int i;

    (void)state;
    o = owner_new(client, key_of(0, 8191));
    guarded.tells = "-ERR I cannot tell\r\n";
    stage_hangs_up(node_conn(0, false));
    stage_runs(1500); /* it is asked again each second */
    assert_true(kit_stats(client).up);
    for (i = 0; i < 2; i++) { /* the map is due after that question, and then before */
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_ERR_SERVER);
        assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "cannot tell"));
        stage_runs(i == 0 ? 500 : 1);
    }
    memset(guarded.maps, 0, sizeof guarded.maps);
    assert_true(cluster_of(client)->wanted);
    cluster_of(client)->turn = 0;
    cluster_of(client)->map_source = node_of(client, 0);
    commands_last = 1;
    stage.now_us += 1100000;
    stage_fires();
    stage_runs(1);
    assert_int_equal(commands_last, 0);
    assert_int_equal(guarded.maps[0], 0);
    assert_int_equal(guarded.maps[1], 1);
    guarded.tells = ":0\r\n";
    assert_int_equal(stage_acquire(o, 5000, 60000), RLOCK_OK);
    assert_int_equal(stage_renew(held, 60000), RLOCK_OK);
}

/* Returns what a node says that knows this key at the third one. */
static const char *says_moved(const char *key) {
    static char text[64];

    snprintf(text, sizeof text, "-MOVED %d 127.0.0.3:%d\r\n", slot_of(key), fleet.port);
    return text;
}

/* It says MOVED, and so knows more; but it does not answer. */
static void node_that_owes_a_map_is_not_asked_for_another(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client;
    struct owner *o, *other;
    const char *key = key_of(0, 8191), *next = key_of(0, 8191);

    (void)state;
    config.command_timeout_ms = 5000;
    client = kit_client(&config);
    o = owner_new(client, key);
    other = owner_new(client, next);
    assert_int_equal(stage_acquire(owner_new(client, key_of(0, 8191)), 0, 60000), RLOCK_OK);
    assert_int_equal(stage_acquire(owner_new(client, key_of(8192, 16383)), 0, 60000), RLOCK_OK);
    stage_runs(3000);
    fleet.maps = 0;
    fleet.silent[0] = true;
    slots_are(0, 0, 8191, 2);
    assert_int_equal(rlock_acquire(o->lock, 0, 60000, owner_told, o), RLOCK_OK);
    assert_int_equal(rlock_acquire(other->lock, 0, 60000, owner_told, other), RLOCK_OK);
    stage_runs(5);
    stage_says(node_conn(0, false), says_moved(key));
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 100), RLOCK_OK);
    assert_true(node_of(client, 0)->asked);
    stage_says(node_conn(0, false), says_moved(next));
    assert_int_equal(stage_wait(other, RLOCK_ACQUIRED, 100), RLOCK_OK);
    assert_int_equal(node_of(client, 2)->slots + (uint32_t)fleet.maps, 0);
    stage_runs(1100);
    assert_int_equal(fleet.maps, 1);
    assert_int_equal(node_of(client, 2)->slots, 8192);
}

/* Its keys are refused for now, and why is in the log; who waits is served by the next node. */
static void name_of_a_node_that_cannot_be_looked_up_is_reported(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client;
    const char *key = key_of(0, 8191);
    struct owner *once, *waits;

    (void)state;
    config.loop.resolve = NULL;
    client = kit_client(&config);
    once = owner_new(client, key);
    waits = owner_new(client, key);
    snprintf(fleet.of[0].keyed, sizeof fleet.of[0].keyed, "-MOVED %d node-c:%d\r\n", slot_of(key),
             fleet.port);
    assert_int_equal(stage_acquire(once, 0, 60000), RLOCK_ERR_SERVER);
    assert_string_equal(once->text[RLOCK_ACQUIRED], "no known node has the key's slot");
    assert_non_null(strstr(kit_log_text, "a host name needs loop.resolve"));
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 60000, owner_told, waits), RLOCK_OK);
    stage_runs(2000);
    assert_int_equal(waits->seen[RLOCK_ACQUIRED], 0);
    node_redirects(0, "MOVED", slot_of(key), 2);
    assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(fleet.of[2].heard > 0);
}

/* Until then its keys are those of no node. */
static void row_of_the_first_map_without_memory_is_read_from_the_next(void **state) {
    int n, refused = 0;

    (void)state;
    for (n = 1; n <= 30; n++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        struct owner *o = owner_new(client, key_of(0, 8191));
        int status;

        slots_are(0, 0, 8191, 4);
        slots_are(1, 8192, 16383, 5);
        memory_lasts = (unsigned)n;
        status = stage_acquire(o, 0, 60000);
        memory_lasts = 0;
        assert_true(status == RLOCK_OK || status == RLOCK_ERR_NOMEM || status == RLOCK_ERR_SERVER);
        if (status == RLOCK_ERR_SERVER) {
            assert_string_equal(o->text[RLOCK_ACQUIRED], "no known node has the key's slot");
            refused++;
        }
        if (status != RLOCK_OK) {
            assert_int_equal(stage_acquire(o, 5000, 60000), RLOCK_OK);
        }
        assert_true(fleet.of[4].heard > 0);
        assert_int_equal(fleet.of[0].heard + fleet.of[1].heard, 0);
    }
    assert_true(refused > 0);
}

/* Its key begins to be watched where no node has it, or one that was not spoken to yet. */
static void hold_is_kept_while_its_key_cannot_be_watched(void **state) {
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_config config = fleet_begins();
        rlock_client *client = kit_client(&config);
        const char *moved = key_of(0, 8191);
        struct owner *o = owner_new(client, key_of(8192, 16383)), *other = owner_new(client, moved);

        assert_int_equal(stage_acquire(owner_new(client, key_of(0, 8191)), 0, 60000), RLOCK_OK);
        stage_runs(2000);
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
        slots_are(0, 0, 8191, 2);
        slots_are(1, 8192, i == 0 ? 0 : 16383, 3);
        node_redirects(0, "MOVED", slot_of(moved), 2);
        assert_int_equal(stage_acquire(other, 0, 60000), RLOCK_OK);
        stage_runs(50);
        assert_int_equal(node_of(client, 3)->slots, i == 0 ? 0 : 8192);
        stage_runs(3000);
        assert_true(rlock_is_held(o->lock));
        slots_are(1, 8192, 16383, 3);
        if (i == 0) {
            assert_int_equal(stage_renew(o, 60000), RLOCK_ERR_SERVER);
            assert_string_equal(o->text[RLOCK_RENEWED], "no known node has the key's slot");
            stage_runs(2000);
        }
        assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
        assert_true(fleet.of[3].heard > 0);
        assert_int_equal(o->seen[RLOCK_LOST], 0);
    }
}

/* Its key is watched no more, and nobody has it who would have to be told. */
static void waiter_may_leave_while_no_node_has_its_key(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client = kit_client(&config);
    const char *moved = key_of(0, 8191), *key = key_of(8192, 16383);
    struct owner *waits = owner_fenced(client, key), *other = owner_new(client, moved);

    (void)state;
    snprintf(fleet.of[1].keyed, sizeof fleet.of[1].keyed, ":60000\r\n"); /* held */
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 0, owner_told, waits), RLOCK_OK);
    stage_runs(50);
    slots_are(0, 0, 8191, 2);
    slots_are(1, 1, 0, 0);
    node_redirects(0, "MOVED", slot_of(moved), 2);
    assert_int_equal(stage_acquire(other, 0, 60000), RLOCK_OK);
    stage_runs(1500);
    assert_int_equal(node_of(client, 1)->slots, 0);
    assert_int_equal(rlock_cancel(waits->lock), RLOCK_OK);
    assert_int_equal(stage_wait(waits, RLOCK_ACQUIRED, 1000), RLOCK_ERR_CANCELED);
    rlock_free(waits->lock);
    waits->lock = NULL;
    slots_are(1, 8192, 16383, 3);
    assert_int_equal(stage_acquire(owner_fenced(client, key), 5000, 60000), RLOCK_OK);
    assert_true(fleet.of[3].heard > 0);
}

/* The same keys, for the same reasons; with a quarantine too. */
static void key_that_a_server_refuses_a_cluster_refuses(void **state) {
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_config config = fleet_begins();

        config.quarantine_ms = i == 0 ? 0 : 60000;
        assert_null(owner_fenced(kit_client(&config), "a}"));
        assert_non_null(strstr(kit_log_text, "key contains '}' but no hash tag"));
    }
}

/* As before every other address: nothing is connected to. */
static void store_of_the_user_goes_before_a_cluster(void **state) {
    rlock_config config = fleet_begins();
    rlock_store *store = NULL;
    rlock_client *client = NULL;
    struct owner *o;

    (void)state;
    assert_int_equal(rlock_memory_new(&store), RLOCK_OK);
    config.store = store;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(stage.count, 0);
    kit_reset();
    rlock_memory_free(store);
}

static bool last_word_is_kept_back; /* of the handshake of the third node */

static const char *slow_handshake(const struct stage_conn *conn, const struct words *words) {
    bool here = conn->home == SERVER(2) && last_word_is_kept_back;

    return here && liar_hears(words, "COMMAND INFO") ? "" : guarded_answers(conn, words);
}

/* Its handshake could not ask whether it lost holds: its marker had no name yet. */
static void node_whose_slots_become_known_in_its_handshake_is_asked_after_it(void **state) {
    rlock_config config;
    struct owner *held, *o;
    rlock_client *client = guarded_begins(&config, &held);
    const char *key = key_of(0, 8191);

    (void)state;
    stage.script = slow_handshake;
    last_word_is_kept_back = true;
    o = owner_new(client, key);
    stage.trail[0] = '\0';
    slots_are(0, 0, 8191, 2);
    node_redirects(0, "MOVED", slot_of(key), 2);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(2000);
    assert_int_equal(node_of(client, 2)->slots, 8192);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    last_word_is_kept_back = false;
    stage_says(node_conn(2, false), "*1\r\n*-1\r\n");
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    assert_true(stage_count("EVAL local") > 0);
}

/* It was named by ASK, has no slot, and says MOVED: the one that has the slot serves. */
static void node_without_slots_may_say_moved(void **state) {
    rlock_config config;
    struct owner *held;
    rlock_client *client = guarded_begins(&config, &held);
    int way;

    (void)state;
    for (way = 0; way < 2; way++) {
        node_redirects(0, "ASK", slot_of(rlock_key(held->lock, NULL)), 2);
        node_redirects(2, "MOVED", slot_of(rlock_key(held->lock, NULL)), 0);
        assert_int_equal(rlock_renew(held->lock, 60000, owner_told, held), RLOCK_OK);
        stage_runs(20);
        assert_true(fleet.of[2].heard > 0);
        fleet.of[0].keyed[0] = '\0';
        assert_true(stage_wait(held, RLOCK_RENEWED, 3000) != KIT_NOTHING);
        assert_int_equal(stage_renew(held, 60000), RLOCK_OK);
    }
    assert_true(rlock_is_held(held->lock));
    (void)client;
}

/* A client of a cluster that gets no memory for what its configuration says. */
static void cluster_that_gets_no_memory_is_refused(void **state) {
    bool ended = false;
    unsigned n;

    (void)state;
    for (n = 1; !ended; n++) {
        rlock_config config = fleet_begins();
        rlock_client *client = NULL;
        int status;

        config.password = "secret";
        memory_lasts = n;
        status = rlock_client_new(&client, &config);
        ended = memory_lasts > 0;
        memory_lasts = 0;
        assert_int_equal(status, ended ? RLOCK_OK : RLOCK_ERR_NOMEM);
        rlock_client_free(client);
    }
    assert_true(n > 5);
}

/* Once the client has gone nobody takes an answer. */
static const char *node_answers_who_is_there(const struct stage_conn *conn,
                                             const struct words *words) {
    return stage.client == NULL ? "" : node_answers(conn, words);
}

static const char *push_hangs_at_the_first(const struct stage_conn *conn,
                                           const struct words *words) {
    bool push = conn->watching && conn->home == SERVER(0);

    return push && liar_hears(words, "INFO server") ? "" : node_answers(conn, words);
}

/* The first WAIT leaves when the push connection is there: until then the node is not left. */
static void node_whose_replicas_are_not_asked_yet_is_not_left(void **state) {
    rlock_config config = fleet_begins();
    const char *key = key_of(8192, 16383);
    rlock_client *client;
    struct owner *o, *other;

    (void)state;
    config.replicas = 1;
    config.command_timeout_ms = 10000;
    client = kit_client(&config);
    o = owner_new(client, key_of(0, 8191));
    other = owner_new(client, key);
    stage.script = push_hangs_at_the_first;
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(100);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    assert_false(stage_heard("WAIT"));
    slots_are(0, 0, 8191, 2);
    node_redirects(1, "MOVED", slot_of(key), 2);
    assert_int_equal(stage_acquire(other, 0, 60000), RLOCK_OK);
    stage_runs(3000);
    assert_int_equal(node_of(client, 0)->slots, 0);
    assert_non_null(node_of(client, 0)->redis);
    stage_says(node_conn(0, true), "$0\r\n\r\n");
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 100), RLOCK_OK);
    stage_runs(3000);
    assert_null(node_of(client, 0)->redis);
}

/* A WAIT is out: the releases go on the push connection too, which listens to sharded channels. */
static void client_that_listens_to_sharded_channels_is_freed_during_a_wait(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client;
    struct owner *held, *waits, *asks;

    (void)state;
    fleet.by_channels = true;
    stage.script = node_answers_who_is_there;
    config.wire = RLOCK_WIRE_REDISSON;
    config.replicas = 1;
    client = kit_client(&config);
    held = owner_new(client, key_of(0, 8191));
    waits = owner_new(client, key_of(0, 8191));
    asks = owner_new(client, key_of(0, 8191));
    assert_int_equal(stage_acquire(held, 0, 60000), RLOCK_OK);
    fleet.taken = true;
    assert_int_equal(rlock_acquire(waits->lock, RLOCK_FOREVER, 60000, owner_told, waits), RLOCK_OK);
    stage_runs(500);
    assert_true(stage_heard("SSUBSCRIBE"));
    fleet.taken = false;
    fleet.wait = "";
    assert_int_equal(rlock_acquire(asks->lock, 0, 60000, owner_told, asks), RLOCK_OK);
    stage_runs(5);
    stage.trail[0] = '\0';
    rlock_client_free(client);
    kit_clients[0] = NULL;
    stage_serves();
    assert_true(stage_heard("\nUNSUBSCRIBE") || strncmp(stage.trail, "UNSUBSCRIBE", 11) == 0);
    assert_true(stage_heard("SUNSUBSCRIBE"));
    assert_int_equal(stage_count("CLIENT REPLY"), 1);
}

static bool forks_at_the_end, forked_child;

static void fork_when_it_ends(void *user, const rlock_report *report) {
    (void)user;
    if (forks_at_the_end && report->kind == RLOCK_REPORT_DISCONNECTED) {
        pid_t pid = fork();

        forks_at_the_end = false;
        forked_child = pid == 0;
        assert_true(pid == 0 || waitpid(pid, NULL, 0) == pid);
    }
}

/* The hook forks while the first of two nodes is closed: the child closes neither, and says nothing
 * on the connections of its parent. */
static void hook_may_fork_while_the_nodes_are_closed(void **state) {
    rlock_config config = fleet_begins();
    rlock_client *client;

    (void)state;
    stage.script = node_answers_who_is_there;
    config.on_event = fork_when_it_ends;
    client = kit_client(&config);
    assert_int_equal(stage_acquire(owner_new(client, key_of(0, 8191)), 0, 60000), RLOCK_OK);
    assert_int_equal(stage_acquire(owner_new(client, key_of(8192, 16383)), 0, 60000), RLOCK_OK);
    stage_runs(100);
    stage.trail[0] = '\0';
    forks_at_the_end = true;
    rlock_client_free(client);
    kit_clients[0] = NULL;
    if (forked_child) {
        _exit(0);
    }
    assert_false(forks_at_the_end);
    stage_serves();
    assert_int_equal(stage_count("CLIENT REPLY"), 2); /* of each node one, of the parent alone */
    assert_null(stage.client);
}

#endif /* TESTS_FAULTS_CLUSTER_H */
