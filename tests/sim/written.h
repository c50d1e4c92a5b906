/* written.h - worlds that are written, not drawn: what a seed showed once, in a few lines
 *
 * A change of what seeds draw makes other programs of them; these stay. The oracle watches as ever,
 * and each of them says what must come of it.
 */

#ifndef SIM_WRITTEN_H
#define SIM_WRITTEN_H

#include "program.h"

/* ------------------------------------------------------------------------------------------------
 * What they are written in.
 */

#define WRITTEN(x)                     \
    do {                               \
        if (!(x)) {                    \
            sim_failed("not so: " #x); \
        }                              \
    } while (0)

static inline void written_begin(int servers, int processes) {
    int i;
    memset(&program, 0, sizeof program);
    sim_begin(1, servers, processes);
    oracle_begin();
    for (i = 0; i < servers; i++) {
        sim.servers[i].model->flavour = MODEL_REDIS_7;
    }
}

static inline void written_end(void) {
    int i;
    for (i = 0; i < oracle.actor_count; i++) {
        if (!oracle.actors[i].gone) {
            actor_free(&oracle.actors[i]);
        }
    }
    for (i = 0; i < oracle.hand_count; i++) {
        if (!oracle.hands[i].gone) {
            hand_free(&oracle.hands[i]);
        }
    }
    quorum_end();
    sim_run_until(sim.now_us + 1000000);
    sim_end();
}

static inline struct slot *written_slot(const char *key, enum slot_kind kind, int64_t permits) {
    struct slot *slot = slot_new(&sim.servers[0], key);
    slot->kind = kind;
    slot->permits = slot->in_force = permits;
    return slot;
}

static inline struct actor *written_client(int process) {
    rlock_config config;
    memset(&config, 0, sizeof config);
    config.command_timeout_ms = 200;
    config.store = quorum.stores[0];
    return actor_new(&sim.processes[process], &sim.servers[0], config, false);
}

static inline struct hand *written_hand(struct actor *actor, struct slot *slot, rlock_kind kind) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.kind = kind;
    options.fencing = !oracle.quorum;
    return hand_new(actor, slot, options);
}

static inline void written_run_ms(int64_t ms) {
    sim_run_until(sim.now_us + ms * 1000);
}

/* Runs until a handle holds, for so long at most. */
static inline bool written_held(const struct hand *hand, int64_t within_ms) {
    int64_t end_us = sim.now_us + within_ms * 1000;
    while (!hand->holds && sim.now_us < end_us) {
        sim_run_until(sim.now_us + 500);
    }
    return hand->holds;
}

/* ------------------------------------------------------------------------------------------------
 * The worlds.
 */

/* A server that may not be asked to end an old connection runs an acquire seconds after its client
 * gave it up, and cleaned up behind it: the place in the line costs the others a turn, no more. */
static inline void a_place_that_came_late_costs_one_turn(void) {
    struct slot *slot;
    struct hand *holder, *late, *next;
    struct sim_line *line;
    int64_t free_us;
    written_begin(1, 3);
    sim.servers[0].always_denied = "info";
    heal_server(&sim.servers[0]);
    slot = written_slot("a", SLOT_FAIR, 1);
    holder = written_hand(written_client(0), slot, RLOCK_KIND_FAIR);
    late = written_hand(written_client(1), slot, RLOCK_KIND_FAIR);
    next = written_hand(written_client(2), slot, RLOCK_KIND_FAIR);
    hand_acquire(holder, RLOCK_FOREVER, 0);
    WRITTEN(written_held(holder, 1000));
    hand_acquire(late, 0, 100); /* so that it is connected */
    written_run_ms(50);
    hand_acquire(late, 300, 100);
    written_run_ms(0);
    for (line = sim.lines; line != NULL; line = line->next) {
        if (line->seat != NULL && line->fd >= 0 && line->seat->client == late->actor->client) {
            sim_delay(line, 3000000);
        }
    }
    written_run_ms(2000);
    WRITTEN(late->pending[RLOCK_ACQUIRED] == 0 && slot->member_count == 1);
    written_run_ms(2000);
    WRITTEN(slot->member_count == 2 && slot->members[1]->late);
    hand_acquire(next, RLOCK_FOREVER, 0);
    written_run_ms(100);
    hand_release(holder);
    free_us = sim.now_us;
    WRITTEN(written_held(next, 1000) && sim.now_us - free_us < 250000);
    hand_release(next);
    written_run_ms(8000); /* the line is over 30 turns after somebody asked last */
    WRITTEN(slot->member_count == 0);
    written_end();
}

/* A quorum's key that somebody takes and gives back all the time is free whenever it is looked at:
 * it is no key that nobody takes. */
static inline void a_key_that_is_free_at_each_look_is_taken(void) {
    struct hand *hand;
    int i, k;
    written_begin(3, 1);
    program.votes = oracle.quorum = oracle.blind = oracle.quiet = true;
    for (i = 0; i < 3; i++) {
        slot_new(&sim.servers[i], "a");
    }
    quorum.slots[0] = *quorum_slot(&quorum.slots[0], 0);
    quorum.slot_count = 1;
    quorum.longest_ms = 30000;
    quorum.leased = true;
    quorum_begin();
    hand = written_hand(written_client(0), &quorum.slots[0], RLOCK_KIND_MUTEX);
    for (i = 0; i < 100; i++) {
        hand_acquire(hand, RLOCK_FOREVER, 0);
        for (k = 0; k < 2000 && !hand->holds; k++) {
            quorum_liveness();
            sim_run_until(sim.now_us + 50);
        }
        WRITTEN(hand->holds);
        hand_release(hand);
        written_run_ms(50);
    }
    written_end();
}

/* An acquire is answered when its caller was told that it is unknown, and the release behind it is
 * lost with its connection. Nothing of that one can come late: one release more is enough. */
static inline void a_clean_up_ends_when_every_acquire_was_answered(void) {
    struct slot *slot;
    struct hand *hand;
    struct actor *actor;
    rlock_stats stats;
    uint64_t commands;
    written_begin(1, 1);
    slot = written_slot("a", SLOT_MUTEX, 0);
    actor = written_client(0);
    hand = written_hand(actor, slot, RLOCK_KIND_MUTEX);
    hand_acquire(hand, 0, 100); /* so that it is connected */
    WRITTEN(written_held(hand, 100));
    hand_release(hand);
    written_run_ms(100);
    actor_asks(actor, slot, RLOCK_OP_INSPECT, 0, NULL);
    written_run_ms(100);
    sim.weather.latency_us = sim.weather.slow_us = 20000;
    actor_asks(actor, slot, RLOCK_OP_INSPECT, 0, NULL); /* its answer keeps the connection */
    for (commands = sim.servers[0].model->commands; commands == sim.servers[0].model->commands;) {
        sim_run_until(sim.now_us + 1);
    }
    sim.weather.latency_us = sim.weather.slow_us = 2000;
    hand_acquire(hand, 0, 60000);
    sim_server_pause(&sim.servers[0], 200000 + 1);
    while (slot->there == NULL) {
        sim_run_until(sim.now_us + 1);
    }
    sim_server_pause(&sim.servers[0], 400000); /* before the release is there */
    written_run_ms(300);
    WRITTEN(slot->there != NULL && !hand->holds && hand->pending[RLOCK_ACQUIRED] == 0);
    written_run_ms(1200);
    rlock_client_stats(actor->client, &stats);
    WRITTEN(slot->there == NULL && stats.cleaning == 0);
    actor_shutdown(actor, 500);
    written_run_ms(600);
    WRITTEN(actor->done && actor->shutdown_status == RLOCK_OK);
    written_end();
}

/* A server refuses a release for a while, as one does that is loading its data. When it does so no
 * more the client is freed, before it is time to ask once more: that is done then, for the last
 * time. */
static inline void a_client_that_is_freed_sends_its_releases_again(void) {
    struct slot *slot;
    struct hand *hand;
    struct actor *actor;
    rlock_stats stats;
    uint64_t commands;
    written_begin(1, 1);
    slot = written_slot("a", SLOT_MUTEX, 0);
    actor = written_client(0);
    hand = written_hand(actor, slot, RLOCK_KIND_MUTEX);
    hand_acquire(hand, 0, 60000);
    WRITTEN(written_held(hand, 100));
    sim.servers[0].model->loading = true;
    hand_release(hand);
    for (commands = sim.servers[0].model->commands; commands == sim.servers[0].model->commands;) {
        sim_run_until(sim.now_us + 1);
    }
    written_run_ms(1);
    heal_server(&sim.servers[0]);
    rlock_client_stats(actor->client, &stats);
    WRITTEN(slot->there != NULL && stats.cleaning == 1);
    actor_free(actor);
    written_run_ms(100);
    WRITTEN(slot->there == NULL);
    written_end();
}

/* A command that is kept out is not executed: there is nothing to clean up behind it, however often
 * it is tried, and nothing to wait for at the end. */
static inline void written_kept_out(rlock_kind kind, int how) {
    struct actor *actor;
    struct slot *slot;
    struct hand *hand;
    struct model *model;
    rlock_stats stats;
    int i;
    written_begin(1, 1);
    model = sim.servers[0].model;
    slot = written_slot("a", kind == RLOCK_KIND_MUTEX ? SLOT_MUTEX : SLOT_FAIR, 1);
    actor = written_client(0);
    hand = written_hand(actor, slot, kind);
    model->sharded = how == 0;
    model->renamed = how == 1 ? "evalsha" : how == 3 ? "eval" : NULL;
    model->misfit = how == 2 ? "evalsha" : NULL;
    for (i = 0; i < 300; i++) {
        hand_acquire(hand, 0, 10000);
        written_run_ms(20);
        WRITTEN(hand->pending[RLOCK_ACQUIRED] == 0 && !hand->holds);
        rlock_client_stats(actor->client, &stats);
        WRITTEN(stats.cleaning == 0 && stats.commands <= (uint64_t)(20 + 3 * i));
    }
    actor_shutdown(actor, 100);
    written_run_ms(200);
    WRITTEN(actor->done && actor->shutdown_status == RLOCK_OK);
    written_end();
}

static inline void what_is_kept_out_leaves_nothing_to_clean_up(void) {
    int how;
    for (how = 0; how < 4; how++) {
        written_kept_out(RLOCK_KIND_MUTEX, how);
        written_kept_out(RLOCK_KIND_FAIR, how);
    }
}

/* Three machines of one deployment, and Sentinels that know it, or a name. */
static inline void written_deployment(int sentinels, const char *denied) {
    int i;
    written_begin(3, 1);
    sim_deploy();
    sim_sentinels(sentinels, 1);
    program.deployed = true;
    for (i = 0; i < sim.server_count; i++) {
        sim.servers[i].clock = sim.servers[0].clock;
        sim.servers[i].always_denied = denied;
        heal_server(&sim.servers[i]);
    }
}

/* The primary changes, and nothing is lost; connections to who was it end, or stay. */
static inline void written_move(int number, bool ends) {
    struct sim_server *was = sim.primary;
    sim_effects_hear(&sim.servers[number], INT64_MAX);
    sim_promote(&sim.servers[number]);
    oracle_promoted(false);
    sim_demote(was, ends);
    sim.name.answer = sim.primary;
}

/* The Sentinel says nil before any address is known: the attempt that waits for it ends, and the
 * next one finds the primary. */
static inline void a_sentinel_that_knows_nobody_is_reported_and_asked_again(void) {
    struct hand *hand;
    written_deployment(1, NULL);
    sim_sentinel_names(&sim.sentinels[0], NULL, 0);
    hand = written_hand(written_client(0), written_slot("a", SLOT_MUTEX, 0), RLOCK_KIND_MUTEX);
    hand_acquire(hand, 0, 1000);
    written_run_ms(500);
    WRITTEN(hand->pending[RLOCK_ACQUIRED] == 0 && !hand->holds);
    written_run_ms(3000);
    hand_acquire(hand, RLOCK_FOREVER, 1000);
    sim_sentinel_names(&sim.sentinels[0], sim.primary, 0);
    WRITTEN(written_held(hand, 2500));
    written_end();
}

/* A Sentinel never learns of a failover, and the replica that it names may not say what it is: the
 * other Sentinel is asked. */
static inline void a_replica_that_says_so_by_readonly_is_left(void) {
    struct hand *hand;
    written_deployment(2, "info");
    hand = written_hand(written_client(0), written_slot("a", SLOT_MUTEX, 0), RLOCK_KIND_MUTEX);
    hand_acquire(hand, 0, 1000);
    WRITTEN(written_held(hand, 100));
    hand_release(hand);
    written_run_ms(100);
    written_move(1, true);
    sim_sentinel_names(&sim.sentinels[1], sim.primary, 1);
    hand_acquire(hand, RLOCK_FOREVER, 1000);
    WRITTEN(written_held(hand, 3000));
    written_end();
}

/* An acquire is under way to a primary while another machine has its address, and comes when it is
 * back there: that machine was another process, and yet the connection was not surely gone. */
static inline void an_acquire_outlives_two_changes_of_the_primary(void) {
    struct slot *slot;
    struct hand *hand;
    struct sim_line *line;
    written_deployment(0, NULL);
    sim.name.floating = true;
    slot = written_slot("a", SLOT_MUTEX, 0);
    hand = written_hand(written_client(0), slot, RLOCK_KIND_MUTEX);
    hand_acquire(hand, 0, 1000);
    WRITTEN(written_held(hand, 100));
    hand_release(hand);
    written_run_ms(100);
    hand_acquire(hand, 5000, 60000);
    for (line = sim.lines; line != NULL; line = line->next) {
        sim_delay(line, 2000000);
    }
    written_run_ms(50);
    written_move(1, false);
    WRITTEN(written_held(hand, 1000));
    hand_release(hand);
    written_run_ms(200);
    WRITTEN(slot->there == NULL && sim.primary == &sim.servers[1]);
    written_move(0, false);
    while (slot->there == NULL && sim.now_us < 6000000) {
        sim_run_until(sim.now_us + 1000);
    }
    WRITTEN(slot->there != NULL);
    written_run_ms(3000);
    WRITTEN(slot->there == NULL);
    written_end();
}

/* ------------------------------------------------------------------------------------------------
 * Servers that forget.
 */

/* Replicas are slower than a client waits for them: nothing is granted, and nothing is left there.
 * What they have survives the promotion of each of them. */
static inline void what_too_few_replicas_have_is_given_back(void) {
    struct slot *slot;
    struct hand *hand;
    rlock_config config;
    int i;
    memset(&config, 0, sizeof config);
    config.command_timeout_ms = 200;
    config.replicas = 2;
    written_deployment(0, NULL);
    sim_deploy_waits();
    oracle.replicas = 2;
    slot = written_slot("a", SLOT_MUTEX, 0);
    hand = written_hand(actor_new(&sim.processes[0], &sim.servers[0], config, false), slot,
                        RLOCK_KIND_MUTEX);
    sim.lag_us = 2000000;
    for (i = 0; i < 20; i++) {
        hand_acquire(hand, 0, 60000);
        written_run_ms(70);
        WRITTEN(hand->pending[RLOCK_ACQUIRED] == 0 && !hand->holds && slot->there == NULL);
    }
    sim.lag_us = 1000;
    hand_acquire(hand, RLOCK_FOREVER, 60000);
    WRITTEN(written_held(hand, 3000));
    for (i = 1; i <= 20; i++) {
        sim.lag_us = i % 4 == 0 ? 0 : 2000000;
        hand_renew(hand, 60000 + i * 1000);
        written_run_ms(100);
        sim_effects_drop(&sim.servers[i % 3], 0);
        written_move(i % 3, i % 2 == 0);
        WRITTEN(slot->there == hand->token);
        written_run_ms(1000);
        WRITTEN(hand->holds);
    }
    written_end();
}

#define CROWD_HANDS 7
#define CROWD_LAG_US 20000

/* A hold is renewed among many acquires, with a replica that is slow: it is not lost, and no grant
 * takes longer than two WAITs. */
static inline void a_crowd_on_a_slow_replica_ends_no_hold(void) {
    struct hand *crowd[CROWD_HANDS], *hand;
    int64_t asked_us[CROWD_HANDS] = {0};
    uint64_t granted = 0;
    struct actor *actor;
    rlock_config config;
    int i, round;
    memset(&config, 0, sizeof config);
    config.watchdog_lease_ms = 1000;
    config.replicas = 1;
    written_deployment(0, NULL);
    sim_deploy_waits();
    oracle.replicas = 1;
    actor = actor_new(&sim.processes[0], &sim.servers[0], config, false);
    hand = written_hand(actor, written_slot("a", SLOT_MUTEX, 0), RLOCK_KIND_MUTEX);
    for (i = 0; i < CROWD_HANDS; i++) {
        struct slot *slot = written_slot(program_keys[1 + i], SLOT_MUTEX, 0);
        crowd[i] = written_hand(actor, slot, RLOCK_KIND_MUTEX);
    }
    hand_acquire(hand, 0, 0);
    WRITTEN(written_held(hand, 1000));
    sim.lag_us = CROWD_LAG_US;
    for (round = 0; round < 5000; round++) {
        i = round % CROWD_HANDS;
        if (crowd[i]->holds) {
            granted++;
            hand_release(crowd[i]);
        } else if (crowd[i]->pending[RLOCK_ACQUIRED] == 0) {
            hand_acquire(crowd[i], 0, 5000);
            asked_us[i] = sim.now_us;
        }
        WRITTEN(crowd[i]->pending[RLOCK_ACQUIRED] == 0 ||
                sim.now_us <= asked_us[i] + 2 * CROWD_LAG_US + 15000);
        written_run_ms(1);
        WRITTEN(hand->holds);
    }
    WRITTEN(granted > 200);
    sim.lag_us = 0;
    written_end();
}

#define FORGET_LEASE_MS 1000 /* the longest lease */
#define FORGET_OLD_MS 1500   /* for so long an old primary goes on */
#define FORGET_FOR_MS 60000
#define FORGET_HANDS 8

/* A machine becomes the primary that has not heard of the latest writes. */
static inline void written_promotion(struct sim_dice *dice) {
    struct sim_server *next = &sim.servers[sim_roll(dice, sim.server_count)];
    while (next == sim.primary) {
        next = &sim.servers[sim_roll(dice, sim.server_count)];
    }
    sim_promote(next);
    oracle_promoted(true);
}

/* Four clients want one key all the time, and the server forgets again and again: it is started
 * anew without its data, or a replica that lags is promoted while the old primary goes on for a
 * while. Returns how often two held the key at one time. */
static inline uint64_t written_forgetting(uint64_t seed, bool deployed, rlock_kind kind,
                                          int64_t quarantine_ms) {
    struct sim_dice dice = {sim_mix(seed)};
    uint64_t overlaps = seen.overlaps, granted = seen.granted[kind];
    struct hand *hands[FORGET_HANDS];
    struct sim_server *was = NULL; /* the old primary, which answers */
    struct slot *slot;
    struct actor *actor = NULL;
    int64_t end_us, fault_us, demoted_us = 0, named_us = 0;
    int i;
    if (deployed) {
        written_deployment(0, NULL);
        sim.lag_us = 300000;
    } else {
        written_begin(1, 1);
    }
    sim.dice.state = sim_mix(seed + 1);
    oracle.quarantine_ms = quarantine_ms;
    slot = written_slot("a", kind == RLOCK_KIND_MUTEX ? SLOT_MUTEX : SLOT_FAIR, 1);
    for (i = 0; i < FORGET_HANDS; i++) {
        if (i % 2 == 0) {
            rlock_config config;
            memset(&config, 0, sizeof config);
            config.command_timeout_ms = 200;
            config.watchdog_lease_ms = FORGET_LEASE_MS;
            config.quarantine_ms = quarantine_ms;
            actor = actor_new(&sim.processes[0], &sim.servers[0], config, false);
        }
        hands[i] = written_hand(actor, slot, kind);
    }
    end_us = sim.now_us + FORGET_FOR_MS * 1000;
    fault_us = sim.now_us + 5000000;
    while (sim.now_us < end_us) {
        struct hand *hand = hands[sim_roll(&dice, FORGET_HANDS)];
        if (hand->holds && sim_one_in(&dice, 8)) {
            hand_release(hand);
        } else if (!hand->holds &&
                   hand->pending[RLOCK_ACQUIRED] + hand->pending[RLOCK_RELEASED] == 0) {
            hand_acquire(hand, sim_one_in(&dice, 4) ? 0 : RLOCK_FOREVER,
                         sim_one_in(&dice, 2) ? 0 : 100 + sim_roll(&dice, FORGET_LEASE_MS - 99));
        }
        sim_run_until(sim.now_us + 1 + sim_roll(&dice, 20000));
        if (was != NULL && sim.now_us >= named_us) {
            sim.name.answer = sim.primary;
        }
        if (was != NULL && sim.now_us >= demoted_us) {
            sim_demote(was, sim_one_in(&dice, 2));
            oracle_demoted();
            was = NULL;
        }
        if (sim.now_us >= fault_us && deployed) {
            was = sim.primary;
            written_promotion(&dice);
            named_us = sim.now_us + sim_roll(&dice, 1000000);
            demoted_us = sim.now_us + 1000000 + sim_roll(&dice, (FORGET_OLD_MS - 1000) * 1000);
        } else if (sim.now_us >= fault_us) {
            oracle_void(&sim.servers[0]);
            sim_server_restart(&sim.servers[0], false, sim_roll(&dice, 300000));
            oracle_reread(&sim.servers[0]);
        }
        if (sim.now_us >= fault_us) {
            fault_us = sim.now_us + 2000000 + sim_roll(&dice, 8000000);
        }
    }
    granted = seen.granted[kind] - granted;
    written_end();
    WRITTEN(granted > 10);
    return seen.overlaps - overlaps;
}

/* Nobody holds what another may still hold by a server that has forgotten it; without a quarantine
 * many do. */
static inline void what_a_server_forgot_is_granted_to_nobody_in_quarantine(void) {
    uint64_t without[2] = {0, 0}, seed;
    int deployed, kind;
    for (seed = 1; seed <= 6; seed++) {
        for (deployed = 0; deployed < 2; deployed++) {
            for (kind = RLOCK_KIND_MUTEX; kind <= RLOCK_KIND_FAIR; kind++) {
                WRITTEN(written_forgetting(seed, deployed, (rlock_kind)kind,
                                           FORGET_LEASE_MS + deployed * FORGET_OLD_MS) == 0);
                without[deployed] += written_forgetting(seed, deployed, (rlock_kind)kind, 0);
            }
        }
    }
    WRITTEN(without[0] > 6 && without[1] > 6);
}

/* ------------------------------------------------------------------------------------------------
 * A cluster.
 */

/* Three primaries and two that stand by, which agree. */
static inline struct slot *written_cluster(void) {
    struct slot *slot;
    int i;
    written_begin(SIM_SERVERS, 1);
    program.clustered = true;
    slot = written_slot("a", SLOT_MUTEX, 0);
    sim.cluster.slots[sim.cluster.slot_count++] = slot_number(slot);
    sim_cluster_begin();
    program.truth = sim.cluster.views[0];
    slot->server = &sim.servers[sim_slot_at(&program.truth, slot_number(slot))];
    for (i = 0; i < sim.server_count; i++) {
        sim.servers[i].clock = sim.servers[0].clock;
    }
    return slot;
}

/* A node that has no slots any more is closed when it is time, and that is found out when it says
 * something: its process was busy with other things, or stood still. */
static inline void a_node_is_closed_when_it_speaks(void) {
    int64_t stop_ms;
    for (stop_ms = 0; stop_ms < 2500; stop_ms += 50) {
        struct slot *slot = written_cluster();
        struct sim_server *was = slot->server;
        struct sim_dice dice = {sim_mix((uint64_t)stop_ms)};
        struct hand *hand = written_hand(written_client(0), slot, RLOCK_KIND_MUTEX);
        struct replacement *replacement = &program.replacement;
        struct sim_line *line;
        hand_acquire(hand, 0, 60000);
        WRITTEN(written_held(hand, 100));
        written_run_ms(1000);
        replacement->on = true;
        replacement->how = 2;
        replacement->shard = program.truth.shard_of[0];
        replacement->was = was;
        replacement->next = &sim.servers[SIM_SERVERS - 1];
        node_replaced(NULL);
        views_learn(NULL, &dice);
        hand_renew(hand, 70000);
        written_run_ms(stop_ms);
        sim_pause(&sim.processes[0], 3000000);
        for (line = sim.lines; line != NULL; line = line->next) {
            if (line->server == was && line->peer != NULL) {
                model_leave(line->peer);
                sim_model_hang_up(was, line);
            }
        }
        written_run_ms(5000);
        WRITTEN(hand->holds && slot->server == replacement->next);
        written_end();
    }
}

/* A slot goes from node to node under a hold that is renewed, and comes back. */
static inline void a_hold_goes_with_its_slot(void) {
    struct slot *slot = written_cluster();
    struct sim_dice dice = {1};
    struct hand *hand = written_hand(written_client(0), slot, RLOCK_KIND_MUTEX);
    int i;
    hand_acquire(hand, 0, 0);
    WRITTEN(written_held(hand, 100));
    for (i = 0; i < 20; i++) {
        bool goes = slot_goes(&dice, (i & 1) == 0);
        WRITTEN(goes);
        written_run_ms(8000);
        WRITTEN(hand->holds &&
                slot->server->number == sim_slot_at(&program.truth, slot_number(slot)));
    }
    hand_release(hand);
    written_run_ms(100);
    WRITTEN(slot->there == NULL);
    written_end();
}

static const struct {
    const char *name;
    void (*run)(void);
} written[] = {
    {"a place that came late costs one turn", a_place_that_came_late_costs_one_turn},
    {"a key that is free at each look is taken", a_key_that_is_free_at_each_look_is_taken},
    {"a clean-up ends when every acquire was answered",
     a_clean_up_ends_when_every_acquire_was_answered},
    {"a client that is freed sends its releases again",
     a_client_that_is_freed_sends_its_releases_again},
    {"what is kept out leaves nothing to clean up", what_is_kept_out_leaves_nothing_to_clean_up},
    {"a Sentinel that knows nobody is told, and asked again",
     a_sentinel_that_knows_nobody_is_reported_and_asked_again},
    {"a replica that says so by READONLY is left", a_replica_that_says_so_by_readonly_is_left},
    {"an acquire outlives two changes of the primary",
     an_acquire_outlives_two_changes_of_the_primary},
    {"what too few replicas have is given back", what_too_few_replicas_have_is_given_back},
    {"a crowd on a slow replica ends no hold", a_crowd_on_a_slow_replica_ends_no_hold},
    {"what a server forgot is granted to nobody in quarantine",
     what_a_server_forgot_is_granted_to_nobody_in_quarantine},
    {"a node is closed when it speaks", a_node_is_closed_when_it_speaks},
    {"a hold goes with its slot", a_hold_goes_with_its_slot},
};
#define WRITTEN_WORLDS (sizeof written / sizeof written[0])

#endif /* SIM_WRITTEN_H */
