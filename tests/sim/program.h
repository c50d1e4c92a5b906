/* program.h - one seed: a world, a program of calls and a list of faults, all drawn by dice
 *
 * The whole program is drawn before it runs, each step with dice of its own, so that a step can be
 * left out without changing the others: that is how a failing seed is shortened. What is drawn
 * comes from a seed, or from a tape of bytes (a fuzzer's).
 */

#ifndef SIM_PROGRAM_H
#define SIM_PROGRAM_H

#include "hands.h"

#define PROGRAM_STEPS 256
#define PROGRAM_CLEAN_US 4000000    /* for a reconnect, and for a release that is tried again */
#define PROGRAM_KEEP_MS 60000       /* of what is held until the end */
#define PROGRAM_LINE_US 30000000    /* the longest that a line is remembered */
#define SWITCH_US 16000000          /* until a client that only listens leaves a replica ... */
#define MOVE_US 6000000             /* ... to which nothing is copied; until it does where it is */
#define PROGRAM_BACK_US 20000000    /* by so much the clock of a server is set back in all */
#define QUARANTINED_LEASE_MS 1000   /* the longest lease where there is a quarantine, ... */
#define QUARANTINED_AFTER_US 400000 /* ... how soon a primary is replaced there, ... */
#define QUARANTINED_LIVE_US 1000000 /* ... and goes on after it is back or awake */
#define QUARANTINED_OLD_MS 3500     /* so an old primary grants nothing after so long */

/* Families of faults; a seed has some of them. */
enum {
    ABOUT_PROCESSES = 1,
    ABOUT_SERVERS = 2,
    ABOUT_NETWORK = 4,
    ABOUT_ANSWERS = 8,
    ABOUT_DATA = 16, /* breaks a rule of the world: what was held may be held twice */
    ABOUT_MEMORY = 32,
    ABOUT_CALLBACKS = 64, /* calls from inside callbacks, and stops there */
    ABOUT_LIFETIMES = 128,
    ABOUT_CLOCKS = 256,
    FAMILIES = 9,
    ABOUT_KINDS = 512,     /* no faults: what can only be done where keys are of several kinds */
    ABOUT_MOVES = 1024,    /* only where the servers are one deployment ... */
    ABOUT_REPLICAS = 2048, /* ... and clients wait for its replicas */
    ABOUT_SLOTS = 4096,    /* only where the servers are one cluster */
    ABOUT_STEPS = 8192,    /* only where each server has a clock of its own */
    ABOUT_HANGS = 16384    /* only where Sentinels have names */
};

struct step {
    const struct act *act;
    int64_t at_us;
    uint64_t dice;
    int number;
    bool skipped;
};

static struct {
    uint64_t seed;
    const uint8_t *tape; /* NULL = by the seed */
    size_t tape_left;
    struct sim_dice dice;
    unsigned families;
    bool quiet; /* no fault at all */
    struct step steps[PROGRAM_STEPS];
    int step_count;
    int first_step, kept; /* of shortened runs */
    int64_t end_us;
    int64_t hold_us, most_lease_ms;
    int64_t lease_ms[3];
    struct sim_weather weather;
    struct model_copy *copies[SIM_SERVERS];
    char fences[SIM_SLOTS][24]; /* what a counter was before it was not ours */
    uint64_t quiet_commands;
    int rounds;            /* of a busy seed, whose handles ask again when they have released */
    bool many;             /* each client has many keys, and takes them at one time */
    bool renews;           /* who holds renews by hand before it lets go */
    bool alike;            /* all ask for the same lease, so that holds are handed on */
    bool kinds;            /* keys are of several kinds, and are asked about */
    bool votes;            /* the servers are one quorum */
    bool clustered;        /* the servers are one cluster */
    struct sim_view truth; /* what its nodes are about to learn */
    struct passage {       /* of a slot from one to another, key by key */
        bool on;
        struct sim_server *from, *to;
        int shard, next; /* of that; which of its keys */
    } passages[SIM_SLOTS_MOVED];
    struct replacement { /* of a node */
        bool on;
        int shard, how;
        struct sim_server *was, *next;
        struct model_copy *copy; /* what the next one has heard */
    } replacement;
    bool synced;         /* replicas must have what is granted */
    bool quarantined;    /* what a server forgot is granted to nobody ... */
    bool marked;         /* ... but at the start: a marker says so */
    int forks;           /* so often a process may fork inside a callback */
    int64_t switched_us; /* when a replica last took over */
    bool deployed;       /* the servers are one deployment */
    int64_t calm_us;     /* from then on nothing goes wrong there; 0 = it does to the end */
    const struct sim_server *stubborn; /* a Sentinel that names who was the primary first */
    bool moving;                       /* its primary changes just now */
    uint64_t lied; /* a bit for each epoch for which a Sentinel named another machine */
    bool trap;     /* the next grant will be lost with a tail */
    struct move {  /* ... */
        struct sim_server *was, *next;
        int64_t lives_us; /* for so long who was it goes on */
        int64_t late_us;  /* so much later the name follows, or Sentinels know it */
        int64_t epoch;    /* how often it has changed */
        bool ends;        /* connections end when the old primary is told */
    } move;
} program;

/* ------------------------------------------------------------------------------------------------
 * Drawing. Never twice in one expression: compilers differ in what they evaluate first.
 */

static inline int64_t draw(int64_t sides) {
    uint64_t value = 0;
    int64_t reach = 1;
    if (program.tape == NULL || program.tape_left == 0) {
        return sim_roll(&program.dice, sides);
    }
    for (; reach < sides && program.tape_left > 0; reach *= 256) {
        value = value << 8 | *program.tape++;
        program.tape_left--;
    }
    return (int64_t)(value % (uint64_t)sides);
}

static inline bool draw_one_in(int64_t n) {
    return draw(n) == 0;
}

static inline int64_t draw_of(const int64_t *choices, int64_t count) {
    return choices[draw(count)];
}
#define DRAW_OF(...)                        \
    draw_of((const int64_t[]){__VA_ARGS__}, \
            (int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* ------------------------------------------------------------------------------------------------
 * What a step finds to act on.
 */

static inline struct hand *some_hand(struct sim_dice *dice) {
    return oracle.hand_count > 0 ? &oracle.hands[sim_roll(dice, oracle.hand_count)] : NULL;
}

/* A handle that can be called now: its process runs, and is not on the stack. */
static inline bool callable(const struct hand *hand) {
    return hand != NULL && !hand->gone && hand->actor->process->paused_until_us <= sim.now_us &&
           !hand->actor->process->inside;
}

static inline struct sim_server *some_server(struct sim_dice *dice) {
    struct sim_server *server = &sim.servers[sim_roll(dice, sim.server_count)];
    return sim.primary != NULL && !sim_one_in(dice, 4) ? sim.primary : server;
}

static inline struct sim_process *some_process(struct sim_dice *dice) {
    return &sim.processes[sim_roll(dice, sim.process_count)];
}

static inline struct sim_line *some_line(struct sim_dice *dice) {
    struct sim_line *line, *found = NULL;
    int64_t open = 0;
    for (line = sim.lines; line != NULL; line = line->next) {
        if (line->fd >= 0 && line->state == SIM_UP && sim_one_in(dice, ++open)) {
            found = line;
        }
    }
    return found;
}

static inline int64_t some_lease_ms(struct sim_dice *dice) {
    return program.lease_ms[sim_roll(dice, 3)];
}

static inline void later(int64_t in_us, void (*happen)(void *object), void *object) {
    sim_at(sim.now_us + in_us, happen, object);
}

/* ------------------------------------------------------------------------------------------------
 * What the program does. Each returns whether it happened.
 */

static inline void program_react(struct hand *hand, const rlock_event *event);

/* A writer steps down: it takes its own read lock before it lets go, or before it is granted. */
static inline void program_step_down(const struct hand *writer, int64_t lease_ms, int64_t wait_ms) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        struct hand *hand = &oracle.hands[i];
        if (hand->actor == writer->actor && hand->slot == writer->slot && !hand->gone &&
            hand->kind == RLOCK_KIND_READ && hand->owner == writer->owner) {
            hand_acquire(hand, wait_ms, lease_ms);
        }
    }
}

static inline bool do_acquire(struct sim_dice *dice) {
    static const int64_t waits[] = {0, 1, 50, 1000, 5000, RLOCK_FOREVER};
    struct hand *hand = some_hand(dice);
    int64_t lease_ms = sim_one_in(dice, 3) ? 0 : some_lease_ms(dice);
    if (!callable(hand) || hand_acquire(hand, waits[sim_roll(dice, 6)], lease_ms) != RLOCK_OK) {
        return false;
    }
    if (hand->kind == RLOCK_KIND_WRITE && hand->owner != 0 && sim_one_in(dice, 2)) {
        program_step_down(hand, lease_ms, 5000); /* both wait */
    }
    return true;
}

static inline bool do_release(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    return callable(hand) && hand_release(hand) == RLOCK_OK;
}

static inline bool do_renew(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    int64_t lease_ms = sim_one_in(dice, 2) ? 0 : some_lease_ms(dice);
    return callable(hand) && hand_renew(hand, lease_ms) == RLOCK_OK;
}

static inline bool do_cancel(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    return callable(hand) && hand_cancel(hand) == RLOCK_OK;
}

/* What only some kinds of keys know. Where strangers are about, some take a key for another. */
static inline void program_kind(struct slot *slot, rlock_options *options, struct sim_dice *dice) {
    static const rlock_kind others[] = {RLOCK_KIND_FAIR, RLOCK_KIND_READ, RLOCK_KIND_WRITE,
                                        RLOCK_KIND_SEMAPHORE};
    if (slot_queued(slot) && (program.families & ABOUT_DATA) && sim_one_in(dice, 8)) {
        options->kind = others[sim_roll(dice, 4)];
        options->permits = options->kind != RLOCK_KIND_SEMAPHORE ? 0
                           : slot->kind == SLOT_SEMAPHORE        ? (uint32_t)slot->permits
                                                                 : SIM_PERMITS;
        seen.meetings++;
    } else if (slot->kind == SLOT_FAIR) {
        options->kind = RLOCK_KIND_FAIR;
    } else if (slot->kind == SLOT_SHARED) {
        options->kind = sim_one_in(dice, 2) ? RLOCK_KIND_WRITE : RLOCK_KIND_READ;
        options->owner = (uint64_t)sim_roll(dice, 3);
    } else if (slot->kind == SLOT_SEMAPHORE) {
        options->kind = RLOCK_KIND_SEMAPHORE;
        options->permits = (uint32_t)slot->permits;
        options->weight = (uint32_t)sim_roll(dice, sim_one_in(dice, 2) ? slot->permits + 1 : 2);
    }
}

static inline unsigned slot_number(const struct slot *slot) {
    return rlock__key_slot(slot->key, strlen(slot->key));
}

/* Others of the same server that a handle of several keys has beside this one. */
static inline int program_set(struct slot *slots[SIM_SET], struct sim_dice *dice) {
    int count = 1, wanted = sim_one_in(dice, 2) ? 1 + (int)sim_roll(dice, SIM_SET) : 1;
    int first = (int)sim_roll(dice, oracle.slot_count), i, k;
    for (i = 0; i < oracle.slot_count && count < wanted; i++) {
        struct slot *slot = &oracle.slots[(first + i) % oracle.slot_count];
        bool there = program.clustered ? slot_number(slot) == slot_number(slots[0])
                                       : slot->server == slots[0]->server;
        bool fits = there && !slot_queued(slot);
        for (k = 0; k < count; k++) {
            fits = fits && slots[k] != slot;
        }
        if (fits) {
            slots[count++] = slot;
        }
    }
    return count;
}

static inline struct hand *program_hand(struct actor *actor, struct sim_dice *dice) {
    static const int watchdogs[] = {RLOCK_WATCHDOG_AUTO, RLOCK_WATCHDOG_ON, RLOCK_WATCHDOG_OFF};
    struct slot *slot = NULL, *slots[SIM_SET];
    struct hand *hand;
    rlock_options options;
    int s, fitting = 0, count = 1;
    for (s = 0; s < oracle.slot_count && !program.votes; s++) {
        bool its = oracle.slots[s].server == actor->server || program.clustered;
        if (its && sim_one_in(dice, ++fitting)) {
            slot = &oracle.slots[s];
        }
    }
    if (program.votes) {
        slot = &quorum.slots[sim_roll(dice, quorum.slot_count)];
    }
    memset(&options, 0, sizeof options);
    options.fencing = !sim_one_in(dice, 3) && !program.votes;
    options.reentrant = sim_one_in(dice, 8);
    options.watchdog = watchdogs[sim_roll(dice, 3)];
    options.max_hold_ms = sim_one_in(dice, 8) ? 20 + sim_roll(dice, 2000) : 0;
    slots[0] = slot;
    if (slot != NULL && program.kinds) {
        program_kind(slot, &options, dice);
        count =
            slot_queued(slot) || actor->wire != RLOCK_WIRE_STRING ? 1 : program_set(slots, dice);
    }
    hand = slot != NULL ? hand_of(actor, slots, count, options) : NULL;
    if (hand != NULL) {
        hand->watched = options.watchdog == RLOCK_WATCHDOG_ON && options.max_hold_ms == 0;
        hand->react = program_react;
    }
    return hand;
}

static inline bool do_free(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    if (!callable(hand)) {
        return false;
    }
    hand_free(hand);
    if (!hand->actor->gone && !hand->actor->closing) {
        program_hand(hand->actor, dice);
    }
    return true;
}

static inline bool do_free_client(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    if (!callable(hand) || hand->actor->gone) {
        return false;
    }
    actor_free(hand->actor);
    return true;
}

static inline bool do_shutdown(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    int64_t ms;
    if (!callable(hand) || hand->actor->gone || (hand->actor->closing && !hand->actor->draining)) {
        return false;
    }
    ms = sim_roll(dice, 3) * 500;
    if (ms != 500 || hand->actor->closing) {
        actor_shutdown(hand->actor, ms);
    } else {
        actor_drain(hand->actor, sim_roll(dice, 3) * 1000);
    }
    return true;
}

static inline void program_told(struct question *question);

static inline struct slot *slot_of(const struct hand *hand, struct sim_dice *dice) {
    return hand->slots[sim_roll(dice, hand->slot_count)];
}

static inline bool do_inspect(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    return callable(hand) && !hand->actor->gone &&
           actor_asks(hand->actor, slot_of(hand, dice), RLOCK_OP_INSPECT, 0, program_told) ==
               RLOCK_OK;
}

static inline bool do_place(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    return callable(hand) && hand_asks(hand, program_told) == RLOCK_OK;
}

static inline bool do_force(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    return callable(hand) && !hand->actor->gone &&
           actor_asks(hand->actor, slot_of(hand, dice), RLOCK_OP_FORCE, 0, program_told) ==
               RLOCK_OK;
}

/* Fewer, more, or what the handles say. */
static inline bool do_permits(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    int64_t permits = hand != NULL ? sim_roll(dice, 2 * hand->slot->permits + 1) : 0;
    return callable(hand) && !hand->actor->gone && hand->slot->kind == SLOT_SEMAPHORE &&
           actor_asks(hand->actor, hand->slot, RLOCK_OP_SET_PERMITS, (uint32_t)permits,
                      program_told) == RLOCK_OK;
}

/* The process dies with all it had: nothing more leaves it. */
static inline bool do_crash(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    struct sim_line *line;
    if (!callable(hand) || hand->actor->gone) {
        return false;
    }
    for (line = sim.lines; line != NULL; line = line->next) {
        if (line->seat != NULL && line->fd >= 0 && line->seat->client == hand->actor->client) {
            sim_reset(line);
        }
    }
    actor_free(hand->actor);
    return true;
}

/* ------------------------------------------------------------------------------------------------
 * What goes wrong. Each returns whether it happened.
 */

static inline bool do_pause_process(struct sim_dice *dice) {
    struct sim_process *process = some_process(dice);
    if (process->inside || process->paused_until_us > sim.now_us) {
        return false;
    }
    sim_pause(process, 1 + sim_roll(dice, sim_one_in(dice, 3) ? 6000000 : 600000));
    return true;
}

static inline bool do_pause_server(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    sim_server_pause(server, 1 + sim_roll(dice, sim_one_in(dice, 3) ? 4000000 : 400000));
    return true;
}

static inline bool do_restart(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    sim_server_restart(server, true, sim_roll(dice, 500000));
    return true;
}

/* Who listens there is told of changes no more, and asks after ten seconds. */
static inline bool do_switch(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    if (program.deployed || program.clustered || oracle.quarantine_ms != 0) { /* connections end */
        return false;
    }
    sim_server_switch(server, program.seed * SIM_SERVERS + (uint64_t)server->number + 1000);
    program.switched_us = sim.now_us;
    return true;
}

static inline bool do_hang_up(struct sim_dice *dice) { /* as by CLIENT KILL */
    struct sim_line *line = some_line(dice);
    if (line == NULL || line->peer == NULL) {
        return false;
    }
    model_leave(line->peer);
    sim_model_hang_up(line->server, line);
    return true;
}

static inline bool do_reset(struct sim_dice *dice) {
    struct sim_line *line = some_line(dice);
    if (line != NULL) {
        sim_reset(line);
    }
    return line != NULL;
}

/* Nothing comes through any more, in one direction or in both, and nobody is told. */
static inline bool do_lose_replies(struct sim_dice *dice) {
    struct sim_line *line = some_line(dice);
    if (line != NULL) {
        line->down.dead = true;
        sim_trace("line %d loses its replies", line->number);
    }
    return line != NULL;
}

static inline bool do_half_open(struct sim_dice *dice) {
    struct sim_line *line = some_line(dice);
    if (line != NULL) {
        line->down.dead = line->up.dead = true;
        sim_drop(&line->up);
        sim_trace("line %d is half-open", line->number);
    }
    return line != NULL;
}

/* What is asked is executed seconds later, when nobody waits for it any more. */
static inline bool do_delay(struct sim_dice *dice) {
    struct sim_line *line = some_line(dice);
    if (line != NULL) {
        sim_delay(line, 1 + sim_roll(dice, 3000000));
    }
    return line != NULL;
}

static inline void heal_cut(void *object) {
    sim_server_cut((struct sim_server *)object, false);
}

static inline bool do_cut(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    sim_server_cut(server, true);
    later(1 + sim_roll(dice, 3000000), heal_cut, server);
    return true;
}

static inline bool do_script_flush(struct sim_dice *dice) {
    static const char *const words[] = {"SCRIPT", "FLUSH"};
    oracle_stranger(some_server(dice), 2, words);
    return true;
}

static inline void heal_model(struct model *model, const struct sim_server *server) {
    model->oom = model->misconf = model->loading = model->masterdown = false;
    model->noreplicas = model->sharded = false;
    model->proxied = server->proxied;
    model->renamed = model->misfit = NULL;
    model->password = server->password;
    memset(model->denied, 0, sizeof model->denied);
    model->denied[0] = server->always_denied;
}

static inline void heal_server(void *object) {
    struct sim_server *server = (struct sim_server *)object;
    heal_model(server->model, server);
    server->model->readonly = server->follows;
    if (server->twin != NULL) {
        heal_model(server->twin, server);
    }
}

static inline bool do_refuse(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    struct model *model = server->model;
    static const char *const commands[] = {"client|tracking", "client|kill", "publish", "info",
                                           "evalsha",         "eval",        "set",     "subscribe",
                                           "client|id",       "command",     "delifeq", "pexpire"};
    int64_t what = sim_roll(dice, 9);
    bool *const flags[] = {&model->readonly, &model->oom,        &model->misconf,
                           &model->loading,  &model->masterdown, &model->noreplicas};
    if (what < 6) {
        *flags[what] = true;
    } else if (what == 6) {
        model->password = "changed";
    } else {
        int64_t command = sim_roll(dice, 12);
        model->denied[1] = commands[command];
        server->unkilling = server->unkilling || command == 1 || command == 3 || command == 8;
    }
    sim_trace("server %d refuses: %d", server->number, (int)what);
    later(1 + sim_roll(dice, 2000000), heal_server, server);
    return true;
}

/* What stands before the server, or the server itself, does not take a command as it is: that one
 * is surely not executed. */
static inline bool do_keep_out(struct sim_dice *dice) {
    static const char *const commands[] = {"set", "evalsha", "eval", "del", "get", "pexpire"};
    static const char *const flush[] = {"SCRIPT", "FLUSH"};
    struct sim_server *server = some_server(dice);
    struct model *model = server->model;
    const char *command = commands[sim_roll(dice, 6)];
    int64_t what = sim_roll(dice, 4);
    if (what == 0) {
        model->sharded = true;
    } else if (what == 1) {
        model->renamed = command;
    } else if (what == 2) {
        model->misfit = command;
    } else { /* a script that cannot become known */
        model->renamed = "eval";
        oracle_stranger(server, 2, flush);
    }
    sim_trace("server %d keeps out: %d, %s", server->number, (int)what, command);
    later(1 + sim_roll(dice, 2000000), heal_server, server);
    return true;
}

/* Nothing is wrong but that there is no memory for what is new. */
static inline bool do_full(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    server->model->oom = true;
    seen.full += server->model->flavour == MODEL_REDIS_5 || server->model->flavour == MODEL_REDIS_6;
    later(1 + sim_roll(dice, 2000000), heal_server, server);
    return true;
}

static inline void stranger_on(struct slot *slot, const char *command, const char *value,
                               const char *px) {
    const char *words[5];
    int count = 0;
    words[count++] = command;
    words[count++] = slot->key;
    if (value != NULL) {
        words[count++] = value;
    }
    if (px != NULL) {
        words[count++] = "PX";
        words[count++] = px;
    }
    oracle_stranger(slot->server, count, words);
}

static inline struct slot *some_slot(struct sim_dice *dice) {
    return &oracle.slots[sim_roll(dice, oracle.slot_count)];
}

static inline bool do_delete(struct sim_dice *dice) {
    struct slot *slot = some_slot(dice);
    if (slot_queued(slot) && sim_one_in(dice, 3)) { /* or its line */
        const char *words[] = {"DEL", slot->queue_key};
        oracle_stranger(slot->server, 2, words);
        return true;
    }
    stranger_on(slot, "DEL", NULL, NULL);
    return true;
}

static inline bool do_steal(struct sim_dice *dice) {
    struct slot *slot = some_slot(dice);
    stranger_on(slot, "SET", "a stranger", "700");
    return true;
}

static inline void heal_type(void *object) {
    stranger_on((struct slot *)object, "DEL", NULL, NULL);
}

static inline bool do_wrong_type(struct sim_dice *dice) {
    struct slot *slot = some_slot(dice);
    stranger_on(slot, "DEL", NULL, NULL);
    stranger_on(slot, "LPUSH", "something", NULL);
    later(1 + sim_roll(dice, 500000), heal_type, slot);
    return true;
}

/* ---- what is not ours, at a key and beside it ---- */

static inline struct slot *some_queued_slot(struct sim_dice *dice) {
    struct slot *slot = some_slot(dice);
    return slot_queued(slot) ? slot : NULL;
}

static inline void add_stranger(const struct slot *slot, const char *key, struct sim_dice *dice) {
    static const char *const scores[] = {"1000", "-1000", "1e13", "-1e13", "inf", "0"};
    const char *words[] = {"ZADD", key, scores[sim_roll(dice, 6)], "alice"};
    oracle_stranger(slot->server, 4, words);
    seen.strangers++;
}

static inline void heal_strangers(void *object) {
    struct slot *slot = (struct slot *)object;
    const char *words[] = {"ZREM", slot->key, "alice"};
    oracle_stranger(slot->server, 3, words);
    words[1] = slot->queue_key;
    oracle_stranger(slot->server, 3, words);
}

static inline bool do_foreign_set(struct sim_dice *dice) {
    struct slot *slot = some_queued_slot(dice);
    if (slot != NULL) {
        stranger_on(slot, "DEL", NULL, NULL);
        add_stranger(slot, slot->key, dice);
        later(1 + sim_roll(dice, 500000), heal_strangers, slot);
    }
    return slot != NULL;
}

static inline bool do_foreign_member(struct sim_dice *dice) {
    struct slot *slot = some_queued_slot(dice);
    if (slot != NULL) {
        add_stranger(slot, slot->key, dice);
        later(1 + sim_roll(dice, 500000), heal_strangers, slot);
    }
    return slot != NULL;
}

static inline bool do_foreign_place(struct sim_dice *dice) {
    struct slot *slot = some_queued_slot(dice);
    if (slot != NULL && !slot->odd_line) {
        add_stranger(slot, slot->queue_key, dice);
        later(1 + sim_roll(dice, 500000), heal_strangers, slot);
    }
    return slot != NULL;
}

static inline void heal_line(void *object) {
    struct slot *slot = (struct slot *)object;
    const char *words[] = {"DEL", slot->queue_key};
    oracle_stranger(slot->server, 2, words);
}

static inline bool do_odd_line(struct sim_dice *dice) {
    struct slot *slot = some_queued_slot(dice);
    if (slot != NULL) {
        const char *words[] = {"LPUSH", slot->queue_key, "something"};
        heal_line(slot);
        oracle_stranger(slot->server, 3, words);
        later(1 + sim_roll(dice, 500000), heal_line, slot);
    }
    return slot != NULL;
}

static inline void heal_fence(void *object) {
    struct slot *slot = (struct slot *)object;
    const char *words[] = {"SET", slot->fence_key, program.fences[slot - oracle.slots], "PX",
                           "90000000"};
    if (slot->odd_fence) {
        slot->odd_fence = false;
        oracle_stranger(slot->server, 5, words);
        slot->odd_fence = fence_is_odd(slot); /* the server may be full */
    }
}

/* A counter that no client may go on from, nor begin anew. */
static inline bool do_odd_fence(struct sim_dice *dice) {
    static const char *const values[] = {"inf", "9007199254740992", "-1", "x"};
    struct slot *slot = some_slot(dice);
    const char *words[] = {"SET", slot->fence_key, values[sim_roll(dice, 4)]};
    if (!slot->odd_fence && slot->fence != 0) {
        snprintf(program.fences[slot - oracle.slots], 24, "%llu", (unsigned long long)slot->fence);
        oracle_stranger(slot->server, 3, words);
        slot->odd_fence = fence_is_odd(slot);
        seen.odd_fences += slot->odd_fence;
        later(1 + sim_roll(dice, 500000), heal_fence, slot);
    }
    return slot->odd_fence;
}

static inline bool do_wipe(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    if (oracle.replicas != 0) {
        return false;
    }
    oracle_void(server);
    sim_server_restart(server, false, sim_roll(dice, 300000));
    oracle_reread(server);
    return true;
}

static inline bool do_save(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    if (program.deployed || program.clustered) {
        return false;
    }
    model_copy_free(program.copies[server->number]);
    program.copies[server->number] = model_save(server->model);
    return true;
}

/* Another takes over, who had not heard of the latest writes. */
static inline bool do_failover(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    if (program.copies[server->number] == NULL) {
        return false;
    }
    oracle_void(server);
    sim_server_restart(server, false, sim_roll(dice, 300000));
    model_load(server->model, program.copies[server->number]);
    oracle_reread(server);
    sim_server_clock(server);
    model_tick(server->model); /* a server loads nothing that is over */
    return true;
}

static inline bool do_step_clock(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    if (program.deployed || program.clustered || oracle.quarantine_ms != 0) { /* one clock */
        return false;
    }
    oracle_void(server);
    server->clock.base_us += 1 + sim_roll(dice, 5000000);
    server->stepped = true;
    sim_trace("the clock of server %d steps forward", server->number);
    return true;
}

/* ... back: what was granted lasts longer there, until it is renewed. */
static inline bool do_set_back(struct sim_dice *dice) {
    struct sim_server *server = some_server(dice);
    int64_t by_us = 1 + sim_roll(dice, sim_one_in(dice, 2) ? PROGRAM_BACK_US : 1000000);
    if (server->back_us + by_us > PROGRAM_BACK_US) {
        return false;
    }
    sim_server_set_back(server, by_us);
    oracle_set_back(server, by_us);
    return true;
}

/* ---- a deployment, the primary of which changes ---- */

static inline void move_named(void *object) {
    (void)object;
    sim.name.answer = sim.primary;
    sim_trace("the name leads to server %d", sim.primary->number);
}

/* Of a config-epoch. */
static inline uint64_t sentinel_lie(int64_t epoch) {
    return UINT64_C(1) << (epoch & 63);
}

/* Whether each of them names the primary, and with an epoch that tells: who was led elsewhere by
 * the same one stays there. */
static inline void sentinels_know(void) {
    int i, known = 0;
    for (i = 0; i < sim.sentinel_count; i++) {
        const struct sim_server *sentinel = &sim.sentinels[i];
        known += sentinel->names == sim.primary &&
                 (program.lied & sentinel_lie(sentinel->model->config_epoch)) == 0;
    }
    if (known < sim.sentinel_count || known == 0) {
        oracle.named_us = 0;
    } else if (oracle.named_us == 0) {
        oracle.named_us = sim.now_us;
    }
}

/* A Sentinel knows who the primary is, unless it never learns that. */
static inline void sentinel_learns(void *object) {
    if (object != program.stubborn) {
        sim_sentinel_names((struct sim_server *)object, sim.primary, program.move.epoch);
        sentinels_know();
    }
}

static inline void sentinels_learn(void) {
    int i;
    for (i = 0; i < sim.sentinel_count; i++) {
        sentinel_learns(&sim.sentinels[i]);
    }
}

/* Where INFO is refused a client cannot tell a replica from its primary before READONLY. */
static inline bool program_hides_replicas(void) {
    return sim.primary != NULL && sim.primary->always_denied != NULL &&
           strcmp(sim.primary->always_denied, "info") == 0;
}

/* A client is led to a replica, and may ask that one. */
static inline void program_leads_to(const struct sim_server *server) {
    if (server != NULL && server != sim.primary && program_hides_replicas()) {
        oracle.moved = true;
    }
}

/* One of them names nobody, a replica, or who was the primary long ago: of that its config-epoch is
 * too, which stands for one address alone. */
static inline bool do_sentinel_lies(struct sim_dice *dice) {
    struct sim_server *named = &sim.servers[sim_roll(dice, sim.server_count)];
    int64_t for_us = 1 + sim_roll(dice, 3000000), back = sim_roll(dice, 2);
    struct sim_server *sentinel;
    bool nobody;
    if (sim.sentinel_count == 0) {
        return false;
    }
    sentinel = &sim.sentinels[sim_roll(dice, sim.sentinel_count)];
    if (sentinel == program.stubborn) {
        return false;
    }
    back = sim_is_old(named) ? 1 : back;
    nobody = sim_one_in(dice, 3);
    sim_sentinel_names(sentinel, nobody ? NULL : named, program.move.epoch - back);
    program_leads_to(nobody ? NULL : named);
    if (!sim_is_old(named)) { /* nobody can tell which of two addresses of one epoch is right */
        program.lied |= sentinel_lie(program.move.epoch - back);
    }
    sentinels_know();
    later(for_us, sentinel_learns, sentinel);
    return true;
}

/* One or all of them answer late, or are not there. */
static inline bool do_sentinel_away(struct sim_dice *dice) {
    int64_t for_us = 1 + sim_roll(dice, sim_one_in(dice, 2) ? 3000000 : 300000);
    bool all = sim_one_in(dice, 3), silent = sim_one_in(dice, 2);
    int64_t one = sim_roll(dice, SIM_SENTINELS);
    int i;
    for (i = 0; i < sim.sentinel_count; i++) {
        struct sim_server *sentinel = &sim.sentinels[i];
        if ((all || i == one) && silent) {
            sim_server_pause(sentinel, for_us);
        } else if (all || i == one) {
            sim_server_restart(sentinel, true, for_us);
            sentinel_learns(sentinel);
        }
    }
    return sim.sentinel_count > 0;
}

/* The name of one of them is not answered for a while, or not before the end: the others say
 * enough. */
static inline bool do_name_hangs(struct sim_dice *dice) {
    int64_t for_us = 1 + sim_roll(dice, sim_one_in(dice, 2) ? 3000000 : 200000000);
    int one = (int)sim_roll(dice, SIM_SENTINELS);
    if (sim.sentinel_count < 2 || sim.hung_until_us > sim.now_us) {
        return false;
    }
    one %= sim.sentinel_count;
    if (program.stubborn != NULL) { /* who knows better must be there */
        one = program.stubborn->number - SIM_SENTINEL;
    }
    sim.hung = one;
    sim.hung_until_us = sim.now_us + for_us;
    sim_trace("the name of Sentinel %d hangs", SIM_SENTINEL + one);
    return true;
}

/* Everything is as it should be, but for who looks and listens at the wrong place. */
static inline void move_over(void) {
    program.moving = false;
    program.switched_us = sim.now_us;
    oracle.trouble_us = sim.now_us + MOVE_US;
}

static inline void move_demoted(void *object) {
    struct move *move = &program.move;
    (void)object;
    if (program.moving) {
        sim_demote(move->was, move->ends);
        if (move->lives_us > 0) {
            oracle_demoted();
        }
        move_over();
    }
}

/* What is on its way to the replica is lost, but for the first few writes, and so is all that the
 * primary still writes: a replica has no gaps. */
static inline void move_loses(const struct move *move, struct sim_dice *dice) {
    const struct sim_effect *effect;
    int pending = 0;
    for (effect = move->next->first; effect != NULL; effect = effect->next) {
        pending++;
    }
    if (pending > 0) {
        sim_effects_drop(move->next, sim_one_in(dice, 2) ? 0 : (int)sim_roll(dice, pending));
        move->next->torn = true;
    }
}

/* The others have agreed on it. */
static inline void move_promoted(void *object) {
    struct move *move = &program.move;
    int i;
    (void)object;
    if (!program.moving) {
        return;
    }
    sim_effects_hear(move->next, INT64_MAX);
    sim_promote(move->next);
    oracle_promoted(move->lives_us > 0);
    later(move->late_us, move_named, NULL);
    move->epoch++;
    sentinels_know();
    for (i = 0; i < sim.sentinel_count; i++) {
        later(move->late_us + sim_roll(&sim.dice, 1500000), sentinel_learns, &sim.sentinels[i]);
    }
    if (move->lives_us > 0) {
        later(move->lives_us, move_demoted, NULL);
    } else {
        move_demoted(NULL);
    }
    oracle_round();
}

/* The primary is killed (0), or stops for a while (1), or is left alone although nothing is wrong
 * with it (2), or changes places with a replica (3). */
static inline bool move_begins(struct sim_dice *dice, int how, int64_t after_us, bool loses) {
    static const int64_t lives_us[] = {1, 20000, 10000000, 10000000};
    struct move *move = &program.move;
    int64_t live_us = 1 + sim_roll(dice, lives_us[sim_roll(dice, 4)]);
    bool ends = !sim_one_in(dice, 3);
    struct sim_server *next = &sim.servers[sim_roll(dice, sim.server_count)];
    if (oracle.quarantine_ms != 0) {
        after_us %= QUARANTINED_AFTER_US;
        live_us %= QUARANTINED_LIVE_US;
    }
    if (program.moving || !next->follows || next->down || sim.primary->down) {
        return false;
    }
    program.moving = true;
    move->was = sim.primary;
    move->next = next;
    move->late_us = sim_one_in(dice, 2) ? 0 : sim_roll(dice, 4000000);
    move->ends = (ends && how != 3) || oracle.quarantine_ms != 0;
    move->lives_us = 0;
    if (loses && how != 3) {
        move_loses(move, dice);
    }
    if (how == 0) { /* it comes back as a replica, or as it was */
        sim_server_restart(move->was, true, after_us + sim_roll(dice, 2000000));
        move->lives_us = sim_one_in(dice, 2) ? 0 : 2000000 + live_us;
    } else if (how == 1) { /* what lies in its sockets is run when it goes on */
        sim_server_pause(move->was, 2 * after_us);
        move->lives_us = after_us + live_us;
    } else if (how == 2) {
        after_us = 1;
        move->lives_us = live_us;
    } else {
        after_us = 1 + after_us / 10;
        sim_server_pause(move->was, after_us);
    }
    sim_trace("server %d is to be the primary, way %d", next->number, how);
    later(after_us, move_promoted, NULL);
    program.switched_us = sim.now_us + after_us + move->lives_us + move->late_us;
    return true;
}

static inline bool do_move(struct sim_dice *dice) {
    int64_t after_us = 1 + sim_roll(dice, sim_one_in(dice, 3) ? 3000000 : 400000);
    int how = (int)sim_roll(dice, 4);
    return move_begins(dice, how, after_us, !sim_one_in(dice, 3));
}

/* The replica that is promoted has not heard of a grant that was just told. */
static inline void move_forgets(void *object) {
    struct sim_dice dice;
    (void)object;
    dice.state = sim_mix(program.seed ^ (uint64_t)sim.now_us);
    if (!oracle.settled && move_begins(&dice, 2 * (int)sim_roll(&dice, 2), 1, true)) {
        oracle.trouble_us = program.switched_us + MOVE_US;
    }
}

static inline bool do_lost_grant(struct sim_dice *dice) {
    (void)dice;
    program.trap = sim.lag_us > 0; /* see program_react */
    return program.trap;
}

/* One or all of the replicas stand still, or are started anew with what they had. */
static inline bool do_replica_away(struct sim_dice *dice) {
    int64_t for_us = 1 + sim_roll(dice, sim_one_in(dice, 2) ? 3000000 : 300000);
    bool all = sim_one_in(dice, 3), stops = sim_one_in(dice, 2);
    struct sim_server *one = &sim.servers[sim_roll(dice, sim.server_count)];
    int i;
    for (i = 0; i < sim.server_count; i++) {
        struct sim_server *server = &sim.servers[i];
        bool away = (all || server == one) && server->follows && !server->down &&
                    !(program.moving && server == program.move.next);
        if (away && stops) {
            sim_server_pause(server, for_us);
        } else if (away) {
            sim_server_restart(server, true, for_us);
        }
    }
    return true;
}

/* The name leads to who is not the primary, and has not been, or not for long. */
static inline bool do_name_wrong(struct sim_dice *dice) {
    int64_t for_us = 1 + sim_roll(dice, 3000000);
    if (sim.sentinel_count > 0) {
        return do_sentinel_lies(dice);
    }
    sim.name.answer = &sim.servers[sim_roll(dice, sim.server_count)];
    sim_trace("the name leads to server %d", sim.name.answer->number);
    program_leads_to(sim.name.answer);
    later(for_us, move_named, NULL);
    if (program.switched_us < sim.now_us + for_us) {
        program.switched_us = sim.now_us + for_us;
    }
    return true;
}

/* An acquire is late, by seconds. */
static inline bool move_delays(struct sim_dice *dice) {
    struct hand *hand = some_hand(dice);
    int64_t late_us = 300000 + sim_roll(dice, 3000000), wait_ms = sim_one_in(dice, 3) ? 0 : 3000;
    struct sim_line *line;
    if (!callable(hand) || hand->actor->gone ||
        hand_acquire(hand, wait_ms, some_lease_ms(dice)) != RLOCK_OK) {
        return false;
    }
    for (line = sim.lines; line != NULL; line = line->next) {
        if (line->seat != NULL && line->fd >= 0 && line->seat->client == hand->actor->client) {
            sim_delay(line, late_us);
        }
    }
    return true;
}

/* ... and its client finds another machine meanwhile, ... */
static inline bool do_late_elsewhere(struct sim_dice *dice) {
    return move_delays(dice) && do_name_wrong(dice);
}

/* ... or the primary changes, and changes back. */
static inline void move_there(void *object) {
    struct sim_server *next = (struct sim_server *)object;
    if (!oracle.settled && !program.moving && next->follows && !next->down && !sim.primary->down) {
        memset(&program.move, 0, offsetof(struct move, epoch));
        program.moving = true;
        program.move.was = sim.primary;
        program.move.next = next;
        program.move.ends = oracle.quarantine_ms != 0;
        move_promoted(NULL);
    }
}

static inline bool do_there_and_back(struct sim_dice *dice) {
    int64_t there_us = 1 + sim_roll(dice, 200000), back_us = there_us + sim_roll(dice, 1500000);
    struct sim_server *next = &sim.servers[sim_roll(dice, sim.server_count)];
    if (program.moving || !next->follows || !move_delays(dice)) {
        return false;
    }
    later(there_us, move_there, next);
    later(back_us, move_there, sim.primary);
    return true;
}

static inline bool do_name_gone(struct sim_dice *dice) {
    sim.name.gone_until_us = sim.now_us + 1 + sim_roll(dice, 2000000);
    return true;
}

static inline bool do_name_silent(struct sim_dice *dice) {
    sim.name.silent_until_us = sim.now_us + 1 + sim_roll(dice, 2000000);
    return true;
}

/* ---- a cluster, whose slots and nodes change ---- */

static inline void view_learns(void *object) {
    const struct sim_server *server = (const struct sim_server *)object;
    struct sim_view *view = &sim.cluster.views[server->number];
    memcpy(view->shard_of, program.truth.shard_of, sizeof view->shard_of);
    memcpy(view->primary_of, program.truth.primary_of, sizeof view->primary_of);
}

/* Nodes learn of a change, each at its time. */
static inline void views_learn(const struct sim_server *at_once, struct sim_dice *dice) {
    int i;
    for (i = 0; i < sim.server_count; i++) {
        if (&sim.servers[i] == at_once) {
            view_learns(&sim.servers[i]);
        } else {
            later(sim_roll(dice, sim_one_in(dice, 2) ? 2000000 : 20000), view_learns,
                  &sim.servers[i]);
        }
    }
    oracle.trouble_us = sim.now_us + 8000000;
}

/* The n-th key of a slot of the cluster; false: there are no more. */
static inline bool passage_key(int place, int n, struct slot **slot, const char **key) {
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        if (slot_number(&oracle.slots[i]) != sim.cluster.slots[place]) {
            continue;
        }
        if (n < 3) {
            const char *const keys[] = {oracle.slots[i].queue_key, oracle.slots[i].fence_key,
                                        oracle.slots[i].key};
            *slot = &oracle.slots[i];
            *key = keys[(n + i) % 3];
            return true;
        }
        n -= 3;
    }
    return false;
}

/* What is still there goes over. */
static inline void passage_rest(int place) {
    const struct passage *passage = &program.passages[place];
    struct slot *slot;
    const char *key;
    int n;
    for (n = 0; passage_key(place, n, &slot, &key); n++) {
        sim_key_moves(passage->from, passage->to, key, strlen(key));
    }
    for (n = 0; passage_key(place, n, &slot, &key); n += 3) {
        slot_arrives(slot, passage->to);
    }
    sim_trace("slot %u is at server %d", sim.cluster.slots[place], passage->to->number);
    sim.cluster.views[passage->to->number].from[place] = 0;
    sim.cluster.views[passage->from->number].to[place] = 0;
    program.truth.shard_of[place] = passage->shard;
    program.passages[place].on = false;
    seen.arrived++;
}

static inline bool node_away(const struct sim_server *server) {
    return server->down || server->cut || server->paused_until_us > sim.now_us;
}

/* The next key goes over, by MIGRATE; after the last one the slot is told to be there. */
static inline void passage_step(void *object) {
    struct passage *passage = (struct passage *)object;
    int place = (int)(passage - program.passages);
    struct slot *slot;
    const char *key;
    if (!passage->on || oracle.settled) {
        return;
    }
    oracle.trouble_us = sim.now_us + 8000000;
    if (node_away(passage->from) || node_away(passage->to)) {
        later(50000, passage_step, passage);
    } else if (passage_key(place, passage->next, &slot, &key)) {
        sim_trace("%s goes over to server %d", key, passage->to->number);
        slot->torn = passage->next % 3 != 2;
        sim_key_moves(passage->from, passage->to, key, strlen(key));
        if (!slot_queued(slot) && key == slot->key && slot->there != NULL && !slot_free(slot)) {
            slot->server = passage->to;
        }
        passage->next++;
        if (passage->next % 3 == 0) {
            slot_arrives(slot, passage->to);
        }
        later(sim_roll(&sim.dice, sim_one_in(&sim.dice, 2) ? 200000 : 2000), passage_step, passage);
    } else {
        passage_rest(place);
        view_learns(passage->to);
        views_learn(passage->from, &sim.dice);
    }
}

/* A slot goes to another node: at once (atomic), or key by key. */
static inline bool slot_goes(struct sim_dice *dice, bool at_once) {
    int place = (int)sim_roll(dice, sim.cluster.slot_count);
    struct passage *passage = &program.passages[place];
    int was = program.truth.shard_of[place];
    int shard = (was + 1 + (int)sim_roll(dice, SIM_SHARDS - 1)) % SIM_SHARDS;
    const struct replacement *replacement = &program.replacement;
    if (passage->on ||
        (replacement->on && (replacement->shard == was || replacement->shard == shard))) {
        return false;
    }
    passage->from = &sim.servers[program.truth.primary_of[was]];
    passage->to = &sim.servers[program.truth.primary_of[shard]];
    passage->shard = shard;
    passage->next = 0;
    if (node_away(passage->from) || node_away(passage->to)) {
        return false;
    }
    passage->on = true;
    if (at_once) {
        passage_rest(place);
        views_learn(passage->from, dice);
        return true;
    }
    view_learns(passage->from);
    view_learns(passage->to);
    sim_asks_pass(passage->to->number, place);
    sim.cluster.views[passage->to->number].from[place] = passage->from->number + 1;
    sim.cluster.views[passage->from->number].to[place] = passage->to->number + 1;
    later(sim_roll(dice, 300000), passage_step, passage);
    return true;
}

static inline bool do_slot_at_once(struct sim_dice *dice) {
    return slot_goes(dice, true);
}

static inline bool do_slot_by_keys(struct sim_dice *dice) {
    return slot_goes(dice, false);
}

/* Another node has the slots of one that is gone, with what it had heard of their keys. */
static inline void node_replaced(void *object) {
    struct replacement *replacement = &program.replacement;
    struct model_copy nothing;
    int i;
    (void)object;
    if (!replacement->on || oracle.settled) {
        return;
    }
    memset(&nothing, 0, sizeof nothing);
    if (replacement->copy == NULL) {
        replacement->copy = model_save(replacement->was->model);
    }
    sim_trace("server %d replaces server %d", replacement->next->number, replacement->was->number);
    model_sync(replacement->next->model, replacement->copy);
    model_copy_free(replacement->copy);
    replacement->copy = NULL;
    model_sync(replacement->was->model, &nothing);
    program.truth.primary_of[replacement->shard] = replacement->next->number;
    for (i = 0; i < oracle.slot_count; i++) {
        if (oracle.slots[i].server == replacement->was) {
            slot_arrives(&oracle.slots[i], replacement->next);
        }
    }
    view_learns(replacement->was);
    views_learn(replacement->next, &sim.dice);
    replacement->on = false;
    seen.replaced++;
    oracle_round();
}

/* It is killed, or stops, or is told to hand over. */
static inline void node_goes(void *object) {
    struct replacement *replacement = &program.replacement;
    int64_t after_us = 1 + sim_roll(&sim.dice, 2000000);
    (void)object;
    if (!replacement->on || oracle.settled) {
        return;
    }
    oracle.trouble_us = sim.now_us + 10000000;
    if (replacement->how == 0) {
        sim_server_restart(replacement->was, true, after_us + sim_roll(&sim.dice, 2000000));
    } else if (replacement->how == 1) {
        sim_server_pause(replacement->was, after_us + sim_roll(&sim.dice, 1000000));
    } else {
        after_us = 0;
    }
    later(after_us, node_replaced, NULL);
}

static inline bool do_node_replaced(struct sim_dice *dice) {
    struct replacement *replacement = &program.replacement;
    int shard = (int)sim_roll(dice, SIM_SHARDS), i;
    bool loses = sim_one_in(dice, 2), fits;
    int64_t tail_us = sim_roll(dice, 100000);
    struct sim_server *was = &sim.servers[program.truth.primary_of[shard]];
    struct sim_server *next = &sim.servers[sim_roll(dice, sim.server_count)];
    fits = !replacement->on && !node_away(was) && !node_away(next);
    for (i = 0; i < SIM_SHARDS; i++) {
        fits = fits && program.truth.primary_of[i] != next->number;
    }
    for (i = 0; i < SIM_SLOTS_MOVED; i++) {
        const struct passage *passage = &program.passages[i];
        fits = fits && !(passage->on && (passage->from == was || passage->to == was));
    }
    if (!fits) {
        return false;
    }
    replacement->on = true;
    replacement->shard = shard;
    replacement->how = (int)sim_roll(dice, 3);
    replacement->was = was;
    replacement->next = next;
    replacement->copy = loses && replacement->how < 2 ? model_save(was->model) : NULL;
    later(tail_us, node_goes, NULL);
    return true;
}

/* Nothing moves any more. */
static inline void cluster_settles(void) {
    int i;
    for (i = 0; i < sim.cluster.slot_count; i++) {
        if (program.passages[i].on) {
            passage_rest(i);
        }
    }
    model_copy_free(program.replacement.copy);
    program.replacement.copy = NULL;
    program.replacement.on = false;
    for (i = 0; i < sim.server_count; i++) {
        view_learns(&sim.servers[i]);
    }
}

static inline void heal_memory(void *object) {
    (void)object;
    sim.weather.no_memory = 0;
}

static inline bool do_no_memory(struct sim_dice *dice) {
    sim.weather.no_memory = 1 + sim_roll(dice, 20);
    oracle.starved = true;
    later(1 + sim_roll(dice, 300000), heal_memory, NULL);
    return true;
}

/* ------------------------------------------------------------------------------------------------
 * The table of what can happen: its row, its weight among its like, and how often it did.
 */

struct act {
    const char *name;
    unsigned family; /* 0 = the program itself */
    int weight;
    bool (*happen)(struct sim_dice *dice);
};

static const struct act acts[] = {
    {"acquire", 0, 12, do_acquire},
    {"release", 0, 4, do_release},
    {"renew", 0, 3, do_renew},
    {"cancel", 0, 2, do_cancel},
    {"free of a handle", 0, 1, do_free},
    {"question about a key", ABOUT_KINDS, 2, do_inspect},
    {"question about a place", ABOUT_KINDS, 2, do_place},
    {"release by force", ABOUT_KINDS, 1, do_force},
    {"permits changed", ABOUT_KINDS, 1, do_permits},
    {"free of a client", ABOUT_LIFETIMES, 2, do_free_client},
    {"shutdown", ABOUT_LIFETIMES, 2, do_shutdown},
    {"crash of a client", ABOUT_LIFETIMES, 2, do_crash},
    {"stop of a process", ABOUT_PROCESSES, 4, do_pause_process},
    {"stop of a server", ABOUT_SERVERS, 3, do_pause_server},
    {"restart with data", ABOUT_SERVERS, 2, do_restart},
    {"scripts forgotten", ABOUT_SERVERS, 2, do_script_flush},
    {"primary demoted, its connections stay", ABOUT_SERVERS, 2, do_switch},
    {"connection ended by the server", ABOUT_NETWORK, 2, do_hang_up},
    {"connection reset", ABOUT_NETWORK, 2, do_reset},
    {"replies lost", ABOUT_NETWORK, 3, do_lose_replies},
    {"requests late by seconds", ABOUT_NETWORK, 3, do_delay},
    {"connection half-open", ABOUT_NETWORK, 2, do_half_open},
    {"network dead", ABOUT_NETWORK, 2, do_cut},
    {"commands refused", ABOUT_ANSWERS, 4, do_refuse},
    {"commands kept out before they are run", ABOUT_ANSWERS, 3, do_keep_out},
    {"server without memory", ABOUT_ANSWERS, 2, do_full},
    {"key deleted", ABOUT_DATA, 3, do_delete},
    {"key stolen", ABOUT_DATA, 2, do_steal},
    {"key of another type", ABOUT_DATA, 1, do_wrong_type},
    {"key with a sorted set of others", ABOUT_DATA, 1, do_foreign_set},
    {"member that is not ours in a key", ABOUT_DATA, 1, do_foreign_member},
    {"member that is not ours in a line", ABOUT_DATA, 1, do_foreign_place},
    {"line of another type", ABOUT_DATA, 1, do_odd_line},
    {"fence counter that is not ours", ABOUT_DATA, 1, do_odd_fence},
    {"restart without data", ABOUT_DATA, 2, do_wipe},
    {"state saved for a failover", ABOUT_DATA, 2, do_save},
    {"failover with a lost tail", ABOUT_DATA, 2, do_failover},
    {"server's clock stepped", ABOUT_DATA, 2, do_step_clock},
    {"no memory", ABOUT_MEMORY, 3, do_no_memory},
    {"primary of a deployment changes", ABOUT_MOVES, 12, do_move},
    {"primary changes, and a grant is lost", ABOUT_MOVES, 6, do_lost_grant},
    {"name of another machine", ABOUT_MOVES, 4, do_name_wrong},
    {"acquire late, and another machine found", ABOUT_MOVES, 4, do_late_elsewhere},
    {"Sentinel that lies", ABOUT_MOVES, 4, do_sentinel_lies},
    {"Sentinel late or away", ABOUT_MOVES, 4, do_sentinel_away},
    {"acquire late, the primary changes and changes back", ABOUT_MOVES, 4, do_there_and_back},
    {"name not found", ABOUT_MOVES, 2, do_name_gone},
    {"name answered late", ABOUT_MOVES, 2, do_name_silent},
    {"replica away", ABOUT_REPLICAS, 16, do_replica_away},
    {"slot moved at once", ABOUT_SLOTS, 14, do_slot_at_once},
    {"slot moved key by key", ABOUT_SLOTS, 14, do_slot_by_keys},
    {"node replaced by another", ABOUT_SLOTS, 14, do_node_replaced},
    {"server's clock set back", ABOUT_STEPS, 4, do_set_back},
    {"name of a Sentinel hangs", ABOUT_HANGS, 8, do_name_hangs},
};
#define ACTS (sizeof acts / sizeof acts[0])

static uint64_t happened[ACTS];
static uint64_t happened_inside[2]; /* stops inside callbacks, calls from them */

static inline void step_happens(void *object) {
    struct step *step = (struct step *)object;
    struct sim_dice dice;
    int64_t patience_us;
    dice.state = step->dice;
    if (step->skipped || sim.now_us >= program.end_us) {
        return;
    }
    sim_trace("step %d: %s", step->number, step->act->name);
    if (step->act->happen(&dice)) {
        happened[step->act - acts]++;
        oracle.fault_us = step->act->family != 0 && step->act->family != ABOUT_KINDS &&
                                  step->act->happen != do_move && step->act->happen != do_lost_grant
                              ? sim.now_us
                              : oracle.fault_us;
        if ((step->act->family & ~(unsigned)(ABOUT_LIFETIMES | ABOUT_KINDS)) != 0) {
            oracle.trouble_us = sim.now_us + 6000000;
        }
    }
    patience_us = program.switched_us + (program.deployed ? MOVE_US : SWITCH_US);
    if (program.switched_us != 0 && oracle.trouble_us < patience_us) {
        oracle.trouble_us = patience_us;
    }
    oracle_round();
}

/* ------------------------------------------------------------------------------------------------
 * What the program does when it is called back.
 */

static inline void let_go(void *object) {
    struct hand *hand = (struct hand *)object;
    if (hand->gone || hand->actor->gone || !hand->holds) {
        return;
    }
    if (!callable(hand)) {
        later(5000, let_go, hand);
        return;
    }
    if (program.renews && !hand->leaves && hand_renew(hand, 0) == RLOCK_OK) {
        hand->leaves = true; /* when that is answered */
    } else {
        hand_release(hand);
    }
}

static inline void inside_callback(struct hand *hand, struct sim_dice *dice) {
    struct hand *other = some_hand(dice);
    int64_t wait_ms = sim_one_in(dice, 2) ? 0 : 3000, lease_ms = some_lease_ms(dice);
    if (sim_one_in(dice, 2)) { /* another of the same client: what is decided for it, not told */
        other = &oracle.hands[(hand->number + 1) % oracle.hand_count];
    }
    if (other->gone || other->actor->process != hand->actor->process || sim_one_in(dice, 4)) {
        other = hand;
    }
    if (other->gone) {
        return;
    }
    happened_inside[1]++;
    switch (sim_roll(dice, program.kinds ? 13 : 9)) {
    case 0:
    case 1: hand_acquire(other, wait_ms, lease_ms); break;
    case 2:
    case 3: hand_release(other); break;
    case 4: hand_renew(other, 0); break;
    case 5: hand_cancel(other); break;
    case 6: hand_free(other); break;
    case 7:
        if (!other->actor->gone && !other->actor->closing) {
            program_hand(other->actor, dice);
        }
        break;
    case 9: hand_asks(other, program_told); break;
    case 10:
        if (!other->actor->gone) {
            rlock_op op = sim_one_in(dice, 4) ? RLOCK_OP_FORCE : RLOCK_OP_INSPECT;
            actor_asks(other->actor, other->slot, op, 0, program_told);
        }
        break;
    case 11: hand_acquire(other, RLOCK_FOREVER, lease_ms); break;
    default:
        if (!other->actor->gone && (program.families & ABOUT_LIFETIMES) && sim_one_in(dice, 4)) {
            actor_free(other->actor);
        }
    }
}

/* The process forks inside a callback. The parent goes on as if nothing had been. */
static inline void program_fork(const struct hand *hand) {
    program.forks--;
    sim_fork();
    if (!sim.child) {
        seen.forks++;
    } else if (!hand->gone && !hand->actor->gone &&
               (rlock_is_held(hand->lock) ||
                rlock_release(hand->lock, NULL, NULL) != RLOCK_ERR_STATE)) {
        sim_does(SIM_CHILD_ANSWERS);
    }
}

static inline void program_react(struct hand *hand, const rlock_event *event) {
    struct sim_dice dice;
    dice.state = sim_mix(program.seed ^ (oracle.operations * 977 + (uint64_t)hand->number));
    if (hand->holds && event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK &&
        !oracle.keeping) {
        later(oracle.settled ? 0 : sim_roll(&dice, program.hold_us + 1), let_go, hand);
    }
    if (program.trap && hand->holds && event->kind == RLOCK_ACQUIRED) {
        program.trap = false;
        later(sim_roll(&dice, 2000), move_forgets, NULL);
    }
    if (hand->holds && event->kind == RLOCK_ACQUIRED && hand->kind == RLOCK_KIND_WRITE &&
        hand->owner != 0 && !oracle.settled) {
        program_step_down(hand, some_lease_ms(&dice), 1000);
    }
    if (event->kind == RLOCK_RENEWED && hand->leaves && hand->holds) {
        later(sim_roll(&dice, 500), let_go, hand);
    }
    if (event->kind == RLOCK_RELEASED && program.rounds > 0 && !oracle.settled &&
        sim.now_us < program.end_us) {
        program.rounds--;
        hand_acquire(hand, 3000, some_lease_ms(&dice));
    }
    if (oracle.settled || !(program.families & ABOUT_CALLBACKS) || hand->gone) {
        return;
    }
    if (sim_one_in(&dice, 12)) {
        happened_inside[0]++;
        oracle.trouble_us = sim.now_us + 6000000;
        oracle.fault_us = sim.now_us;
        sim_pause(hand->actor->process, sim_roll(&dice, sim_one_in(&dice, 4) ? 3000000 : 50000));
    }
    if (sim_one_in(&dice, 3)) {
        inside_callback(hand, &dice);
    }
    if (program.forks > 0 && sim_one_in(&dice, 8)) {
        program_fork(hand);
    }
}

/* An answer to a question is a callback like any other. */
static inline void program_told(struct question *question) {
    struct sim_dice dice;
    int i;
    dice.state = sim_mix(program.seed ^ (oracle.operations * 991 + (uint64_t)question->number));
    if (oracle.settled || !(program.families & ABOUT_CALLBACKS) || !sim_one_in(&dice, 3)) {
        return;
    }
    for (i = 0; i < oracle.hand_count; i++) {
        if (oracle.hands[i].actor == question->actor && !oracle.hands[i].gone) {
            inside_callback(&oracle.hands[i], &dice);
            return;
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * Drawing a world and its program.
 */

static inline void draw_weather(struct sim_weather *weather) {
    static const int64_t latencies[] = {0, 100, 300, 2000, 15000};
    memset(weather, 0, sizeof *weather);
    weather->latency_us = draw_of(latencies, 5);
    if (program.quiet && weather->latency_us > 2000) {
        weather->latency_us = 2000;
    }
    weather->slow_us = draw_one_in(3) ? weather->latency_us * 10 : weather->latency_us;
    weather->linger_us = DRAW_OF(0, 10, 500);
    weather->window = (size_t)DRAW_OF(1 << 20, 1 << 20, 3000, 400);
    if (program.quiet && weather->window < 3000) {
        weather->window = 3000; /* a script of a few kilobytes gets through in a command's time */
    }
    if (program.families & ABOUT_NETWORK) {
        weather->split = DRAW_OF(0, 2, 8);
        weather->split_us = DRAW_OF(0, 500, 20000);
        weather->short_io = DRAW_OF(0, 2, 10);
        weather->late = DRAW_OF(0, 1, 2);
        weather->late_us = DRAW_OF(1000, 100000, 3000000);
        weather->torn = DRAW_OF(0, 2, 4);
    }
}

static inline int64_t act_weight(const struct act *act, bool fault) {
    bool fits = act->family == 0 || (act->family == ABOUT_KINDS && program.kinds);
    return (fault ? (act->family & program.families) != 0 : fits) ? act->weight : 0;
}

static inline const struct act *draw_act(bool fault) {
    int64_t sum = 0, at;
    size_t i;
    for (i = 0; i < ACTS; i++) {
        sum += act_weight(&acts[i], fault);
    }
    at = draw(sum);
    for (i = 0; i < ACTS; i++) {
        at -= act_weight(&acts[i], fault);
        if (at < 0) {
            break;
        }
    }
    return &acts[i];
}

/* Calls at any time, some of them together; faults when something is under way. */
static inline int64_t draw_time_us(int number, int calls, int64_t bursts) {
    int64_t at_us;
    if (number >= calls && !draw_one_in(3)) {
        at_us = program.steps[draw(calls)].at_us;
        return at_us + draw(4 * sim.weather.latency_us + 100);
    }
    if (number > 0 && bursts > 0 && draw_one_in(bursts)) {
        return program.steps[number - 1].at_us; /* answers that come together */
    }
    return 1000000 + draw(program.end_us - 1000000);
}

static inline void draw_steps(void) {
    int calls = (int)(10 + draw(140)), faults = (int)(1 + draw(draw_one_in(3) ? 60 : 16)), i;
    int64_t bursts = DRAW_OF(0, 2, 4);
    unsigned drawable = program.families & ~(unsigned)(ABOUT_CALLBACKS | ABOUT_CLOCKS);
    program.step_count = calls + (drawable != 0 ? faults : 0);
    for (i = 0; i < program.step_count; i++) {
        struct step *step = &program.steps[i];
        memset(step, 0, sizeof *step);
        step->number = i;
        step->act = draw_act(i >= calls);
        step->at_us = draw_time_us(i, calls, bursts);
        if (program.calm_us != 0 && (i >= calls || i % 2 == 0)) {
            step->at_us = 1000000 + (step->at_us - 1000000) % (program.calm_us - 1000000);
        }
        step->dice = sim_mix(program.seed * PROGRAM_STEPS + (uint64_t)i) ^ (uint64_t)draw(65536);
    }
}

/* Clocks that run apart by less than the promille that rlock allows for. */
static inline void draw_clocks(void) {
    int i;
    for (i = 0; i < sim.process_count && (program.families & ABOUT_CLOCKS); i++) {
        sim.processes[i].clock.rate_ppm = draw(9000) - 4500;
    }
    for (i = 0; i < sim.server_count && (program.families & ABOUT_CLOCKS); i++) {
        sim.servers[i].clock.rate_ppm = draw(9000) - 4500;
    }
}

/* Whether Sentinels have names, one of which may hang. See program_has_steps. */
static inline bool program_has_hangs(void) {
    return sim_mix(program.seed ^ 0x68616e67) % 2 == 0 && program.deployed && !program.quiet;
}

/* What a server knows; half of them are of the kind that knows most. */
static inline void draw_flavour(struct sim_server *server) {
    static const enum model_flavour flavours[] = {MODEL_REDIS_5,  MODEL_REDIS_6,  MODEL_REDIS_7,
                                                  MODEL_VALKEY_9, MODEL_VALKEY_9, MODEL_VALKEY_9};
    server->model->flavour = flavours[draw(6)];
    seen.flavours[server->model->flavour]++;
}

/* What kind a key is of; sets need some that are mutexes. */
static inline void draw_kind(struct slot *slot) {
    static const enum slot_kind kinds[] = {SLOT_MUTEX,  SLOT_MUTEX,     SLOT_FAIR,     SLOT_FAIR,
                                           SLOT_SHARED, SLOT_SEMAPHORE, SLOT_SEMAPHORE};
    if (program.kinds) {
        slot->kind = kinds[draw(7)];
        slot->permits = slot->kind == SLOT_FAIR        ? 1
                        : slot->kind == SLOT_SEMAPHORE ? 1 + draw(5)
                                                       : 1000000000;
        slot->in_force = slot->permits;
        seen.slots[slot->kind]++;
    }
}

/* Whether a proxy stands before a server. */
static inline bool program_has_proxy(const struct sim_server *server) {
    return sim_mix(program.seed ^ 0x656e766f) % 8 == 0 && program.tape == NULL && !program.quiet &&
           !program.deployed && !program.clustered && !program.quarantined &&
           sim_mix(program.seed + (uint64_t)server->number) % 4 != 0;
}

static inline void draw_server(struct sim_server *server) {
    static const char *const denied[] = {"client|kill", "info", "command", "delifeq"};
    draw_flavour(server);
    server->database = draw_one_in(3) ? 2 : 0;
    server->password = draw_one_in(4) ? "secret" : NULL;
    server->always_denied = NULL;
    if (!program.quiet && draw_one_in(4)) {
        server->always_denied = denied[draw(4)];
    }
    if (oracle.quarantine_ms != 0 && server->always_denied == denied[1]) {
        server->always_denied = NULL; /* nothing were granted at all */
    }
    server->proxied = program_has_proxy(server);
    if (server->proxied) {
        server->database = 0; /* SELECT is none of its commands */
        seen.proxied++;
    }
    if (oracle.quarantine_ms != 0 && !server->follows && program.marked) {
        oracle_marks(server);
    }
    sim_trace("server %d is of flavour %d, denies %s", server->number, (int)server->model->flavour,
              server->always_denied != NULL ? server->always_denied : "nothing");
    heal_server(server);
}

/* A client and its handles. */
static inline void draw_actor(struct sim_process *process, struct sim_server *server,
                              rlock_wire wire, int hands) {
    int order = oracle.quorum ? (int)draw(QUORUM_ORDERS) : 0, h;
    struct actor *actor;
    struct sim_dice dice;
    rlock_config config;
    memset(&config, 0, sizeof config);
    quorum.reversed[oracle.actor_count] = order != 0;
    config.store = quorum.stores[order]; /* NULL = that one server */
    config.wire = wire;
    config.watchdog_lease_ms = program.lease_ms[draw(3)];
    config.command_timeout_ms = DRAW_OF(50, 200, 1000);
    config.poll_ms = DRAW_OF(20, 250);
    config.handovers = (int)DRAW_OF(0, 0, 1, 5, -1);
    config.client_name = draw_one_in(2) ? "sim" : NULL;
    config.quarantine_ms = oracle.quarantine_ms;
    config.replicas = oracle.replicas;
    actor = actor_new(process, server, config, draw_one_in(2));
    dice.state = sim_mix(program.seed + (uint64_t)draw(65536));
    for (h = 0; h < hands + (program.many ? 6 : 0) && actor != NULL; h++) {
        program_hand(actor, &dice);
    }
}

static const char *const program_keys[SIM_SLOTS] = {"a", "b{1}", "{c}:d", "e", "f", "g", "h", "i"};

static inline void draw_actors(void) {
    int clients = (int)(1 + draw(2)), p, c, hands = (int)(1 + draw(4));
    rlock_wire wires[SIM_SERVERS];
    for (p = 0; p < sim.server_count; p++) {
        int count = program.many         ? SIM_SLOTS / sim.server_count
                    : program.rounds > 0 ? 1
                                         : (int)(1 + draw(3));
        wires[p] = draw_one_in(program.kinds ? 12 : 3) ? RLOCK_WIRE_REDISSON : RLOCK_WIRE_STRING;
        draw_server(&sim.servers[p]);
        while (count-- > 0) {
            struct slot *slot = slot_new(&sim.servers[p], program_keys[count]);
            if (wires[p] == RLOCK_WIRE_STRING) {
                draw_kind(slot);
            }
        }
    }
    for (p = 0; p < sim.process_count; p++) {
        for (c = 0; c < clients; c++) {
            struct sim_server *server = &sim.servers[draw(sim.server_count)];
            draw_actor(&sim.processes[p], server, wires[server->number], hands);
        }
    }
}

/* All servers are one deployment: a primary, and who follows it. */
static inline void draw_deployment(void) {
    static const int64_t lags_us[] = {0, 50000, 400000, 2000000};
    int clients = (int)(1 + draw(2)), hands = (int)(1 + draw(4)), i;
    int count = program.many ? SIM_SLOTS : program.rounds > 0 ? 1 : (int)(1 + draw(3));
    rlock_wire wire = draw_one_in(program.kinds ? 12 : 3) ? RLOCK_WIRE_REDISSON : RLOCK_WIRE_STRING;
    struct sim_server *first = &sim.servers[0];
    seen.deployments++;
    sim_deploy();
    sim.lag_us = lags_us[draw(4)];
    if (program.synced) {
        static const int64_t synced_lags_us[] = {0, 0, 1000, 10000, 100000};
        sim.lag_us = synced_lags_us[sim_mix(program.seed ^ 0x6c6167) % (program.quiet ? 4 : 5)];
        oracle.replicas = 1 + (int)(sim_mix(program.seed ^ 0x616c6c) % 2);
        sim_deploy_waits();
        seen.synced++;
    }
    sim.name.latency_us = DRAW_OF(0, 1000, 30000);
    sim.name.floating = draw_one_in(2);
    sim.name.all = draw_one_in(3);
    sim.name.odd = draw_one_in(3) && !program.quiet ? (int)(1 + draw(2)) : 0;
    draw_server(first);
    if (draw_one_in(2)) {
        sim.announces = draw_one_in(2);
        sim.name.floating = false;
        sim_sentinels((int)(1 + draw(SIM_SENTINELS)), program.seed);
        sim.sentinels_named = program_has_hangs();
        seen.named += sim.sentinels_named;
        if (sim.sentinel_count > 1 && !program.quiet && draw_one_in(2)) {
            program.stubborn = &sim.sentinels[draw(sim.sentinel_count)];
        }
    }
    if (sim.name.all && first->always_denied != NULL && strcmp(first->always_denied, "info") == 0) {
        first->always_denied = NULL; /* who is a replica could not be told before READONLY */
        heal_server(first);
    }
    for (i = 1; i < sim.server_count; i++) {
        struct sim_server *server = &sim.servers[i];
        server->clock = first->clock;
        server->database = first->database;
        server->password = first->password;
        server->always_denied = first->always_denied;
        server->model->flavour = first->model->flavour;
        heal_server(server);
    }
    while (count-- > 0) {
        struct slot *slot = slot_new(first, program_keys[count]);
        if (wire == RLOCK_WIRE_STRING) {
            draw_kind(slot);
        }
    }
    for (i = 0; i < sim.process_count * clients; i++) {
        draw_actor(&sim.processes[i / clients], first, wire, hands);
    }
}

/* All servers are one cluster: three primaries, and two that stand by. */
static inline void draw_cluster(void) {
    static const char *const keys[SIM_SLOTS] = {"a",    "b{1}", "{1}:d", "e",
                                                "f{e}", "g",    "h",     "i{1}"};
    int clients = (int)(1 + draw(2)), hands = (int)(1 + draw(4)), i;
    int count = program.many ? SIM_SLOTS : program.rounds > 0 ? 1 : (int)(1 + draw(4));
    struct sim_server *first = &sim.servers[0];
    seen.clusters++;
    draw_server(first);
    first->database = 0;
    while (count-- > 0) {
        struct slot *slot = slot_new(first, keys[count]);
        draw_kind(slot);
        if (sim_slot_place(slot_number(slot)) < 0) {
            sim.cluster.slots[sim.cluster.slot_count++] = slot_number(slot);
        }
    }
    sim_cluster_begin();
    program.truth = sim.cluster.views[0];
    for (i = 0; i < oracle.slot_count; i++) {
        oracle.slots[i].server =
            &sim.servers[sim_slot_at(&program.truth, slot_number(&oracle.slots[i]))];
    }
    for (i = 0; i < sim.server_count; i++) {
        struct sim_server *server = &sim.servers[i];
        server->clock = first->clock;
        server->database = 0;
        server->password = first->password;
        server->always_denied = first->always_denied;
        server->model->flavour = first->model->flavour;
        sim.cluster.views[i].names = (int)draw(4);
        heal_server(server);
    }
    for (i = 0; i < sim.process_count * clients; i++) {
        draw_actor(&sim.processes[i / clients], first, RLOCK_WIRE_STRING, hands);
    }
}

/* All servers are one quorum. Its keys have a slot a server, and one for the handles. */
static inline void draw_quorum(void) {
    int clients = (int)(1 + draw(2)), hands = (int)(1 + draw(4));
    int keys = sim.server_count * QUORUM_KEYS <= SIM_SLOTS ? (int)(1 + draw(QUORUM_KEYS)) : 1;
    rlock_wire wire = draw_one_in(4) ? RLOCK_WIRE_REDISSON : RLOCK_WIRE_STRING;
    int p, k, i;
    seen.quorums++;
    oracle.quorum = oracle.blind = true;
    for (p = 0; p < sim.server_count; p++) {
        draw_server(&sim.servers[p]);
    }
    for (k = 0; k < keys; k++) {
        for (p = 0; p < sim.server_count; p++) {
            slot_new(&sim.servers[p], program_keys[k]);
        }
        quorum.slots[k] = *quorum_slot(&quorum.slots[k], 0);
    }
    quorum.slot_count = keys;
    quorum.longest_ms = program.most_lease_ms;
    quorum.leased = sim.weather.slow_us <= 2000;
    for (i = 0; i < 3; i++) {
        quorum.leased = quorum.leased && program.lease_ms[i] >= 300;
    }
    quorum_begin();
    for (i = 0; i < sim.process_count * clients; i++) {
        draw_actor(&sim.processes[i / clients], &sim.servers[0], wire, hands);
    }
}

/* Whether clocks of servers may be set back. These faults came later than the others: only the seed
 * says which programs have them, so that all others are what they were. */
static inline bool program_has_steps(void) {
    return sim_mix(program.seed ^ 0x6261636b) % 8 == 0 && program.tape == NULL && !program.quiet &&
           !program.deployed && !program.clustered && !program.quarantined;
}

/* From the seed, or from the tape and then the seed. */
static inline void program_draw(uint64_t seed, const uint8_t *tape, size_t size) {
    int i, servers, processes;
    memset(&program, 0, sizeof program);
    program.seed = seed;
    program.dice.state = sim_mix(seed ^ 0x70726f67);
    program.kinds = sim_mix(seed ^ 0x6b696e64) % 2 != 0;
    if (tape != NULL) { /* a tape says it by its first letter */
        program.kinds = size > 0 && tape[0] == 'K';
        tape += program.kinds;
        size -= program.kinds;
    }
    program.tape = tape;
    program.tape_left = size;
    program.votes = sim_mix(seed ^ 0x766f7465) % 11 == 0 && tape == NULL;
    program.kinds = program.kinds && !program.votes;
    program.deployed = sim_mix(seed ^ 0x6d6f1a1a) % 6 == 0 && tape == NULL && !program.votes;
    program.synced = sim_mix(seed ^ 0x77616974) % 2 == 0 && program.deployed;
    program.quarantined = sim_mix(seed ^ 0x71756172) % 6 == 0 && tape == NULL;
    program.marked = sim_mix(seed ^ 0x6d61726b) % 4 != 0;
    program.clustered =
        sim_mix(seed ^ 0x636c7573) % 8 == 0 && tape == NULL && !program.votes && !program.deployed;
    program.quarantined = program.quarantined && !program.clustered;
    program.forks = sim_mix(seed ^ 0x666f726b) % 8 == 0 && tape == NULL ? 2 : 0;
    servers = draw_one_in(4) ? 2 : 1;
    if (program.votes) {
        servers = servers == 2 ? 5 : 3;
    }
    servers = program.deployed ? 3 : program.clustered ? 5 : servers;
    processes = (int)(1 + draw(4));
    program.quiet = draw_one_in(6);
    for (i = 0; i < FAMILIES && !program.quiet; i++) {
        program.families |= draw_one_in(i == 4 && !program.votes ? 4 : 2) ? 1u << i : 0;
    }
    program.families |= program.deployed && !program.quiet ? ABOUT_MOVES : 0;
    program.families |= program.clustered && !program.quiet ? ABOUT_SLOTS : 0;
    program.families |= program.synced && !program.quiet ? ABOUT_REPLICAS : 0;
    program.families |= program.quarantined && !program.quiet ? ABOUT_DATA : 0;
    program.families |= program_has_steps() ? ABOUT_STEPS : 0;
    program.families |= program_has_hangs() ? ABOUT_HANGS : 0;
    program.many = draw_one_in(4);
    program.rounds = !program.many && draw_one_in(3) ? 400 : 0;
    program.end_us = 1000000 + DRAW_OF(1000000, 2000000, 6000000, 20000000);
    if (program.deployed && draw_one_in(2)) {
        program.calm_us = 1000000 + DRAW_OF(1000000, 3000000, 6000000);
        program.end_us = program.calm_us + 26000000;
    }
    if (program.quarantined && program.end_us < 8000000) { /* until something is granted again */
        program.end_us = 8000000;
    }
    program.hold_us = DRAW_OF(0, 2000, 50000, 1500000);
    if (program.many) {
        program.hold_us = 1500000;
    }
    for (i = 0; i < 3; i++) {
        program.lease_ms[i] = DRAW_OF(30, 100, 300, 1000, 3000, 10000);
        if (program.quiet && program.lease_ms[i] < 300) {
            program.lease_ms[i] = 300;
        }
    }
    program.renews = sim_mix(seed ^ 0x72656e65) % 4 == 0;
    program.alike = sim_mix(seed ^ 0x616c696b) % 3 == 0;
    for (i = 1; i < 3 && program.alike; i++) {
        program.lease_ms[i] = program.lease_ms[0];
    }
    for (i = 0; i < 3; i++) {
        if (program.quarantined && program.lease_ms[i] > QUARANTINED_LEASE_MS) {
            program.lease_ms[i] = QUARANTINED_LEASE_MS;
        }
        if (program.lease_ms[i] > program.most_lease_ms) {
            program.most_lease_ms = program.lease_ms[i];
        }
    }
    sim_begin(seed, servers, processes);
    oracle_begin();
    oracle.quiet = program.quiet;
    if (program.quarantined) {
        oracle.quarantine_ms = program.most_lease_ms + (program.deployed ? QUARANTINED_OLD_MS : 0);
        seen.quarantines++;
    }
    oracle.refusing = (program.families & ABOUT_ANSWERS) != 0;
    draw_weather(&sim.weather);
    program.weather = sim.weather;
    draw_clocks();
    if (program.votes) {
        draw_quorum();
    } else if (program.deployed) {
        draw_deployment();
    } else if (program.clustered) {
        draw_cluster();
    } else {
        draw_actors();
    }
    draw_steps();
}

/* ------------------------------------------------------------------------------------------------
 * Running it.
 */

/* A client that is gone leaves its keys to their leases; so does one whose shutdown was over before
 * the server, or more than a majority of them, had answered, one that cannot know of a key, as
 * after a failover to a server that had not heard of the release, and one that may never finish a
 * handshake. */
static inline bool program_owned(const struct token *token) {
    int i;
    for (i = 0; i < oracle.actor_count; i++) {
        const struct actor *actor = &oracle.actors[i];
        if (!actor->gone && strncmp(token->text, actor->id, 36) == 0 &&
            !(actor->done && (program.votes || actor->shutdown_status != RLOCK_OK))) {
            return oracle_patient(actor);
        }
    }
    return false;
}

/* An address that stays may lead to another machine. If that was started since the client heard of
 * the one before, it is taken for that one, started anew: then what is under way to the one before
 * is not expected any more. */
static inline bool program_mistaken(const struct token *token) {
    bool restarted = false;
    int i;
    for (i = 0; i < sim.server_count; i++) {
        restarted = restarted || sim.servers[i].model->restarts != 0;
    }
    return token->late && sim.name.floating && restarted;
}

/* How long something of this token may be at a server when nobody holds any more. A replica that is
 * taken for the primary says of what it has not heard of yet that it is gone. What a clock that was
 * set back keeps there after its lease is given back by nobody. */
static inline int64_t program_clean_us(const struct token *token) {
    return program_owned(token) && !token->is_void && !token->stays && token->back_us == 0 &&
                   !program.clustered && !program_hides_replicas() && !program_mistaken(token)
               ? PROGRAM_CLEAN_US
               : program.most_lease_ms * 1000 + PROGRAM_CLEAN_US + token->back_us;
}

/* Whether this token holds a key, and no handle has anything to do with it. */
static inline bool program_left_alone(const struct slot *slot, const struct token *token) {
    const struct hand *holder = token->holder;
    bool held = holder != NULL && !holder->gone && holder->holds && holder->token == token;
    return !held && oracle_has_until_us(slot, token) > sim.now_us && queue_hand(token) == NULL;
}

/* Where nothing goes wrong any more, what nobody holds is given back soon. */
static inline void program_tended(struct token *token, const struct slot *slot) {
    int64_t since_us = oracle.trouble_us;
    if (!program_left_alone(slot, token)) {
        token->alone_us = 0;
        return;
    }
    token->alone_us = token->alone_us != 0 ? token->alone_us : sim.now_us;
    since_us = since_us > token->alone_us ? since_us : token->alone_us;
    if (sim.now_us > since_us + program_clean_us(token)) {
        sim_failed("%s is %s's, and nobody gives it back", slot->key, token->text);
    }
}

static inline void program_all_tended(void) {
    int i, k;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        for (k = 0; k < slot->member_count; k++) {
            program_tended(slot->members[k], slot);
        }
        if (!slot_queued(slot) && slot->there != NULL && !slot->there->theirs) {
            program_tended(slot->there, slot);
        }
    }
}

static inline void look_around(void *object) {
    (void)object;
    if (program.votes) {
        quorum_liveness();
    } else {
        oracle_liveness();
    }
    oracle_answers();
    if (program.deployed) {
        program_all_tended();
    }
    if (oracle.quiet) {
        oracle_commands(sim.now_us);
    }
    if (!oracle.settled) {
        later(50000, look_around, NULL);
    }
}

/* As many permits as the handles say: with fewer there may never be enough for some. */
static inline void program_permits(void) {
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        char member[40];
        const char *words[] = {"ZREM", slot->key, member};
        snprintf(member, sizeof member, "permits:%lld", (long long)slot->in_force);
        if (slot->in_force != slot->permits) {
            oracle_stranger(slot->server, 3, words);
        }
    }
}

/* Whatever was wrong is no more. What is half-open stays so: the clients have to find out. */
static inline void program_heal(void) {
    int i;
    oracle.settled = true;
    oracle.quiet = false;
    oracle.trouble_us = sim.now_us;
    if (program.moving && sim_is_old(program.move.was)) {
        move_demoted(NULL);
    } else if (program.moving && program.move.next->torn) { /* it stays a replica */
        sim_sync(program.move.next);
    }
    program.moving = false;
    sim.name.answer = sim.primary;
    sim.name.gone_until_us = sim.name.silent_until_us = 0;
    sentinels_learn();
    for (i = 0; i < sim.sentinel_count; i++) {
        sim.sentinels[i].down = false;
        sim.sentinels[i].paused_until_us = 0;
    }
    sim.lag_us = 0;
    if (program.clustered) {
        cluster_settles();
    }
    for (i = 0; i < sim.server_count; i++) {
        struct sim_server *server = &sim.servers[i];
        heal_server(server);
        if (server->down) {
            sim_server_up(server);
        }
        server->cut = false;
        server->paused_until_us = 0;
    }
    for (i = 0; i < sim.process_count; i++) {
        sim.processes[i].paused_until_us = 0;
        sim_wake(&sim.processes[i], sim.now_us);
    }
    sim.weather.no_memory = sim.weather.late = sim.weather.torn = 0;
    sim.weather.split = sim.weather.short_io = 0;
    sim.weather.window = 1 << 20; /* so that a client that goes can say all it has to say */
    if (sim.weather.latency_us > 2000) {
        sim.weather.latency_us = 2000; /* a command timeout may be as short as 50 ms */
    }
    sim.weather.slow_us = sim.weather.latency_us;
    program_permits();
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        if (slot->foreign || (slot->there != NULL && slot->there->theirs)) {
            stranger_on(slot, "DEL", NULL, NULL);
        }
        if (slot->odd_line) {
            heal_line(slot);
        }
        if (fence_is_odd(slot)) {
            const char *words[] = {"DEL", slot->fence_key};
            slot->odd_fence = false;
            oracle_stranger(slot->server, 2, words);
            if (oracle.set_back) { /* the next one comes from the clock */
                slot->last = slot->last_read = NULL;
            }
        }
    }
}

static inline bool program_pending(void) {
    int i, kind;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        for (kind = 0; kind <= RLOCK_LOST && !hand->gone && !hand->actor->gone; kind++) {
            if (hand->pending[kind] > 0) {
                return true;
            }
        }
    }
    for (i = 0; i < oracle.question_count; i++) {
        if (!oracle.questions[i].answered && !oracle.questions[i].actor->gone) {
            return true;
        }
    }
    return false;
}

/* By so much what is held at a server may last longer than its lease. */
static inline int64_t program_back_us(void) {
    int64_t most_us = 0;
    int i;
    for (i = 0; i < sim.server_count; i++) {
        most_us = sim.servers[i].back_us > most_us ? sim.servers[i].back_us : most_us;
    }
    return most_us;
}

/* Everybody is served or told, within the longest lease and what it takes to connect again. */
static inline void program_settle(void) {
    int64_t until_us = sim.now_us + program.most_lease_ms * 1100 + oracle.quarantine_ms * 1010 +
                       program_back_us() + 12000000;
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        let_go(&oracle.hands[i]);
    }
    while (program_pending()) {
        if (sim.now_us >= until_us) {
            sim_failed("an operation does not end, although nothing is wrong any more");
        }
        sim_run_until(sim.now_us + 100000);
        program_permits(); /* a change may come late */
        for (i = 0; i < oracle.hand_count; i++) {
            let_go(&oracle.hands[i]);
        }
    }
}

/* A server cannot be asked to end an old connection, or one may be another process's: what is under
 * way there may come late, as far as a client can know. */
static inline bool program_unsure(const struct sim_server *server) {
    return sim_unkilling(server) || server->twin != NULL || program.deployed || program.clustered;
}

/* Nothing keeps a client from knowing when it has cleaned up. */
static inline bool program_sure(const struct sim_server *server) {
    return !program.votes && !program_unsure(server) && !server->stepped &&
           server->model->restarts == 0;
}

/* A place in the line that nobody gives back, because nobody could know of it any more, or was let:
 * it stays for as long as the line. What comes late is kept out by who may end old connections. */
static inline bool program_place_stays(const struct slot *slot, const struct token *token) {
    bool late = token->late && program_unsure(slot->server);
    return token->place > 0 &&
           (!program_owned(token) || token->is_void || token->stays || late || oracle.refusing);
}

/* Who holds, or stands in the line, though it does not want to. */
static inline bool program_line_left(const struct slot *slot, int64_t begin_us) {
    int64_t now_ms = slot_now_ms(slot);
    bool left = false;
    int i;
    for (i = 0; i < slot->member_count; i++) {
        const struct token *token = slot->members[i];
        int64_t since_us = token->came_us > begin_us ? token->came_us : begin_us;
        int64_t for_us = program_clean_us(token);
        if (program_place_stays(slot, token)) {
            for_us = PROGRAM_LINE_US + PROGRAM_CLEAN_US + token->back_us;
        } else if (token->place == 0 && token->ends_ms <= now_ms) {
            continue;
        }
        left = true;
        if (sim.now_us > since_us + for_us) {
            sim_failed("%s still has %s, which it does not want", token->text, slot->key);
        }
    }
    return left;
}

/* With nobody holding, nothing may be left at a server for longer than it takes to tell it. What
 * was under way may come late, and makes a key that lasts as long as that. */
static inline void program_cleaned(void) {
    int64_t begin_us = sim.now_us, late_us = begin_us + 7000000, last_us;
    int i;
    bool left = true;
    while (left || (program.families & ABOUT_NETWORK && sim.now_us < late_us)) {
        left = false;
        for (i = 0; i < oracle.slot_count; i++) {
            const struct slot *slot = &oracle.slots[i];
            left = (slot_queued(slot) && program_line_left(slot, begin_us)) || left;
            if (slot->there == NULL || oracle_end_us(slot) <= sim.now_us) {
                continue;
            }
            left = true;
            last_us = slot->since_us > begin_us ? slot->since_us : begin_us;
            last_us += program_clean_us(slot->there);
            if (sim.now_us > last_us) {
                sim_failed("%s is still %s's, who does not hold it", slot->key, slot->there->text);
            }
        }
        sim_run_until(sim.now_us + 100000);
    }
}

/* Before the end everybody who can takes something once more, to see who gives it back. */
static inline void program_last_holds(void) {
    int64_t lease_ms = oracle.quarantine_ms != 0 ? oracle.quarantine_ms : PROGRAM_KEEP_MS;
    int i, k;
    oracle.keeping = true;
    for (i = 0; i < oracle.actor_count; i++) {
        for (k = 0; k < oracle.hand_count; k++) {
            struct hand *hand = &oracle.hands[k];
            if (hand->actor == &oracle.actors[i] && !hand->gone && !hand->actor->gone &&
                !hand->actor->closing) {
                hand_acquire(hand, 0, lease_ms);
            }
        }
    }
    sim_run_until(sim.now_us + 4000000);
    for (k = 0; k < oracle.hand_count; k++) {
        struct hand *hand = &oracle.hands[k];
        for (i = 0; i < hand->slot_count && hand->holds && !hand->gone && !program.votes; i++) {
            snprintf(hand->slots[i]->keeper, sizeof hand->slots[i]->keeper, "%s", hand->actor->id);
        }
        for (i = 0; i < sim.server_count && hand->holds && !hand->gone && program.votes; i++) {
            struct slot *slot = quorum_slot(hand->slot, i);
            snprintf(slot->keeper, sizeof slot->keeper, "%s", hand->actor->id);
        }
    }
}

/* Of clients that could say goodbye nothing is left; nor is anything of ours when time has passed,
 * but what is to be remembered for a day. */
static inline void program_left(void) {
    int i, k;
    for (i = 0; i < oracle.slot_count; i++) {
        const struct slot *slot = &oracle.slots[i];
        for (k = 0; k < slot->member_count; k++) {
            const struct token *token = slot->members[k];
            bool there = token->ends_ms > slot_now_ms(slot) ||
                         (token->place > 0 && !(token->late && program_place_stays(slot, token)));
            if (there && token->kept) {
                sim_failed("%s still has %s, whose client is gone", token->text, slot->key);
            }
        }
    }
}

static inline void program_forgotten(void) {
    struct model_arg names[64];
    int i, k;
    sim_run_until(sim.now_us + PROGRAM_KEEP_MS * 1000 + PROGRAM_LINE_US);
    for (i = 0; i < sim.server_count; i++) {
        struct sim_server *server = &sim.servers[i];
        int count = (int)model_keys(server->model, server->database, names, 64);
        for (k = 0; k < count && k < 64 && !server->follows; k++) {
            struct slot *slot = oracle_slot(server, names[k].at, names[k].size);
            bool fence = slot != NULL && oracle_is(slot->fence_key, names[k].at, names[k].size);
            bool permits = slot != NULL && slot->kind == SLOT_SEMAPHORE &&
                           oracle_is(slot->key, names[k].at, names[k].size) &&
                           queue_used(slot) == 0; /* who expired there goes with its next use */
            bool marker =
                oracle.quarantine_ms != 0 && oracle_is(SIM_MARKER, names[k].at, names[k].size);
            if (!fence && !permits && !marker) {
                sim_failed("%.*s is left for ever", (int)names[k].size, names[k].at);
            }
        }
    }
}

/* What this client has at a server when it goes. */
static inline void program_keep(const struct actor *actor) {
    int i, k;
    for (i = 0; i < oracle.slot_count; i++) {
        for (k = 0; k < oracle.slots[i].member_count; k++) {
            struct token *token = oracle.slots[i].members[k];
            token->kept = token->kept || strncmp(token->text, actor->id, 36) == 0;
        }
    }
}

/* With nothing to do a client does not keep its loop from ending. */
static inline void program_rests(const struct actor *actor) {
    const struct sim_seat *seat = actor->gone || actor->done ? NULL : actor_seat(actor);
    rlock_stats stats;
    int i;
    for (i = 0; i < oracle.question_count; i++) {
        if (!oracle.questions[i].answered && oracle.questions[i].actor == actor) {
            seat = NULL;
        }
    }
    if (seat != NULL) {
        rlock_client_stats(actor->client, &stats);
        if (stats.held + stats.waiting + stats.cleaning == 0 && !seat->idle) {
            sim_failed("client %.8s has nothing to do, and keeps its loop", actor->id);
        }
    }
}

static inline void program_close(void) {
    int i;
    program_last_holds();
    for (i = 0; i < oracle.actor_count; i++) {
        program_rests(&oracle.actors[i]);
    }
    for (i = 0; i < oracle.actor_count; i++) {
        if (!oracle.actors[i].gone && !oracle.actors[i].closing) {
            program_keep(&oracle.actors[i]);
            if (i % 2 == 0) {
                oracle.actors[i].last = true;
                actor_shutdown(&oracle.actors[i], 5000);
            } else {
                actor_free(&oracle.actors[i]);
            }
        }
    }
    sim_run_until(sim.now_us + 6000000);
    for (i = 0; i < oracle.actor_count; i++) {
        struct actor *actor = &oracle.actors[i];
        if (!actor->gone && actor->closing && !actor->done) {
            sim_failed("client %.8s is never shut down", actor->id);
        }
        if (!actor->gone && actor->last && program_sure(actor->server) &&
            actor->shutdown_status != RLOCK_OK) {
            sim_failed("client %.8s is shut down, although nothing is wrong any more: %s",
                       actor->id, rlock_strerror(actor->shutdown_status));
        }
    }
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        if (slot->there != NULL && oracle_end_us(slot) > sim.now_us &&
            strncmp(slot->there->text, slot->keeper, 36) == 0) {
            sim_failed("%s is still %s's, whose client is gone", slot->key, slot->there->text);
        }
    }
    program_left();
    for (i = 0; i < oracle.hand_count; i++) {
        if (!oracle.hands[i].gone) {
            hand_free(&oracle.hands[i]);
        }
    }
    for (i = 0; i < oracle.actor_count; i++) {
        if (!oracle.actors[i].gone) {
            actor_free(&oracle.actors[i]);
        }
    }
    quorum_end();
    if (program.kinds) {
        program_forgotten();
    }
}

/* The holds of a client that are as old as each other are renewed together. */
static inline void program_take_many(void *object) {
    int i;
    (void)object;
    for (i = 0; i < oracle.hand_count; i++) {
        if (callable(&oracle.hands[i]) && !oracle.hands[i].actor->gone) {
            hand_acquire(&oracle.hands[i], 0, 0);
        }
    }
}

/* The hash of all that happened. A broken rule does not come back: see sim_failed. */
static inline uint64_t program_run(void) {
    uint64_t hash;
    int i;
    for (i = 0; i < program.step_count; i++) {
        sim_at(program.steps[i].at_us, step_happens, &program.steps[i]);
    }
    if (program.many) {
        later(program.end_us / 8, program_take_many, NULL);
    }
    look_around(NULL);
    sim_run_until(program.end_us);
    program_heal();
    program_settle();
    program_cleaned();
    program_close();
    hash = sim.hash;
    for (i = 0; i < sim.server_count; i++) {
        seen.delifeqs += sim.servers[i].model->delifeqs;
        seen.mgets += sim.servers[i].model->mgets;
        seen.told_none += i == 0 ? sim.name.told[0] : 0;
        seen.told_more += i == 0 ? sim.name.told[2] : 0;
        model_copy_free(program.copies[i]);
    }
    seen.unsynced += sim.unsynced;
    seen.moved += sim.cluster.moved;
    seen.asks += sim.cluster.asks;
    seen.again += sim.cluster.again;
    sim_end();
    return hash;
}

#endif /* SIM_PROGRAM_H */
