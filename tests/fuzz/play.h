/* play.h - a short program of calls for clients whose server is a fuzzer's, and what must hold then
 *
 * The input is read from both ends: from its end, byte by byte, what is decided; from its front
 * what the server says, so that a word put in there leaves the decisions as they were. Once it is
 * over every decision is 0, which is always the plain one. Whatever a server says: each accepted
 * operation ends once and in time, LOST comes by the deadline (hands.h), nobody holds who has not
 * asked, nor for longer than since the last request with its token, and all is freed in the end.
 *
 * A program includes this file, and defines play_begin, play_disturb and play_over.
 */

#ifndef PLAY_H
#define PLAY_H

#include "fuzz.h"
#include "hands.h"

#define PLAY_STEPS 60
#define PLAY_TOKENS 512     /* of a client: more than its calls */
#define PLAY_END_US 4000000 /* longer than all leases, waits and timeouts below */

static struct {
    const uint8_t *bytes;
    size_t left;
} tape;

static struct {
    int steps;
    struct play_asked {     /* of a token, which may go from one handle of its client to another */
        int64_t asked_us;   /* when it was last written; 0 = never */
        int64_t longest_ms; /* of the leases asked for with it */
    } asked[SIM_ACTORS][PLAY_TOKENS];
} play;

/* The server is made ready; something is done to it between the calls; the input is over. */
static void play_begin(void);
static void play_disturb(void);
static void play_over(void);

/* One decision, 0 to sides - 1. */
static inline unsigned take(unsigned sides) {
    return tape.left > 0 ? tape.bytes[--tape.left] % sides : 0;
}

static inline int64_t take_of(const int64_t *choices, unsigned count) {
    return choices[take(count)];
}

/* Up to that many bytes of what the server says; fewer if the input is over. */
static inline const char *take_bytes(size_t *size) {
    const char *bytes = (const char *)tape.bytes;
    *size = *size < tape.left ? *size : tape.left;
    tape.bytes += *size;
    tape.left -= *size;
    return bytes;
}

static inline const char *take_lines(unsigned count, size_t *size) {
    size_t i;
    for (i = 0; i < tape.left && count > 0; i++) {
        count -= tape.bytes[i] == '\n';
    }
    *size = i;
    return take_bytes(size);
}

/* ------------------------------------------------------------------------------------------------
 * Who was asked for what.
 */

static inline struct play_asked *play_asked_of(const struct hand *hand) {
    uint64_t token = hand->lock->claim->token;
    if (token >= PLAY_TOKENS) {
        sim_failed("a client has %llu tokens", (unsigned long long)token);
    }
    return &play.asked[hand->actor - oracle.actors][token];
}

/* Behind the head of its tokens a batch has the lease, and then the tokens' ends. */
static inline bool play_batch_has(const char *bytes, size_t size, const char *client_id,
                                  uint64_t token) {
    const char *end = bytes + size, *at;
    char head[64], word[64];
    int length = snprintf(head, sizeof head, "$37\r\n%.36s:\r\n", client_id), lines;
    size_t word_size =
        (size_t)snprintf(word, sizeof word, "\r\n%llu\r\n", (unsigned long long)token);
    while ((at = (const char *)memmem(bytes, (size_t)(end - bytes), head, (size_t)length)) !=
           NULL) {
        at += length;
        for (lines = 0; at < end && (*at == '$' || lines % 2 == 1); lines++) {
            const char *line = (const char *)memchr(at, '\n', (size_t)(end - at));
            if (line == NULL) {
                return false;
            }
            if (lines >= 2 && lines % 2 == 0 && (size_t)(end - line) + 1 >= word_size &&
                memcmp(line - 1, word, word_size) == 0) {
                return true;
            }
            at = line + 1;
        }
        bytes = at;
    }
    return false;
}

/* What a client writes: whose token is in it? */
static inline void play_written(const char *client_id, const char *bytes, size_t size) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        struct play_asked *asked;
        uint64_t token;
        char text[64];
        int length;
        if (hand->gone || hand->actor->gone || hand->lock->claim == NULL ||
            memcmp(client_id, hand->actor->id, 36) != 0) {
            continue;
        }
        asked = play_asked_of(hand);
        token = hand->lock->claim->token;
        length =
            snprintf(text, sizeof text, "%.36s:%llu\r\n", client_id, (unsigned long long)token);
        if (memmem(bytes, size, text, (size_t)length) != NULL ||
            play_batch_has(bytes, size, client_id, token)) {
            asked->asked_us = sim.now_us;
            if (asked->longest_ms < hand->longest_ms) {
                asked->longest_ms = hand->longest_ms;
            }
        }
    }
}

static inline void play_round(struct sim_seat *seat) {
    int i;
    (void)seat;
    oracle_round();
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        const struct play_asked *asked;
        int64_t until_us;
        if (hand->gone || hand->actor->gone || !rlock_is_held(hand->lock)) {
            continue;
        }
        until_us = sim.now_us + rlock_remaining_ms(hand->lock) * 1000;
        asked = play_asked_of(hand);
        if (asked->asked_us == 0) {
            sim_failed("hand %d holds what it never asked for", i);
        }
        if (until_us > asked->asked_us + asked->longest_ms * 1000) {
            sim_failed("hand %d holds for longer than it asked for", i);
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * Clients, handles and their calls.
 */

static const int64_t leases_ms[] = {0, 30, 200, 1000};

static inline void play_react(struct hand *hand, const rlock_event *event);

static inline void play_hand(struct actor *actor) {
    unsigned kind = take(256);
    rlock_options options;
    struct hand *hand;
    memset(&options, 0, sizeof options);
    options.fencing = (kind & 1) != 0;
    options.reentrant = (kind & 2) != 0;
    options.watchdog = (int)(kind >> 2) % 3;
    options.max_hold_ms = (kind & 16) != 0 ? 70 : 0;
    hand = hand_new(actor, &oracle.slots[kind >> 5 & 1], options);
    if (hand != NULL) {
        hand->react = play_react;
    }
}

static inline void play_clients(void) {
    unsigned kind = take(256), clients = 1 + (kind & 1), hands = 1 + take(3), i;
    rlock_config config;
    memset(&config, 0, sizeof config);
    config.wire = (kind & 2) != 0 ? RLOCK_WIRE_REDISSON : RLOCK_WIRE_STRING;
    config.client_name = (kind & 4) != 0 ? "fuzz" : NULL;
    config.password = (kind & 8) != 0 ? "secret" : NULL;
    config.username = (kind & 24) == 24 ? "default" : NULL;
    config.database = (kind & 32) != 0 ? 3 : 0;
    config.watchdog_lease_ms = (kind & 64) != 0 ? 60 : 300;
    config.command_timeout_ms = 50;
    config.poll_ms = 20;
    sim.servers[0].model->password = config.password;
    sim.servers[0].database = config.database;
    sim.servers[0].password = config.password;
    slot_new(&sim.servers[0], "a");
    slot_new(&sim.servers[0], "{c}:d");
    while (clients-- > 0) {
        struct actor *actor =
            actor_new(&sim.processes[0], &sim.servers[0], config, (kind & 128) != 0);
        if ((kind & 66) == 66) { /* a node of a cluster: sharded channels too */
            ((rlock__redis *)actor->client->store_state)->of_cluster = true;
        }
        for (i = 0; i < hands; i++) {
            play_hand(actor);
        }
    }
}

static inline void do_acquire(struct hand *hand) {
    static const int64_t waits_ms[] = {0, 20, 300, RLOCK_FOREVER};
    int64_t wait_ms = take_of(waits_ms, 4);
    hand_acquire(hand, wait_ms, take_of(leases_ms, 4));
}

static inline void do_renew(struct hand *hand) {
    hand_renew(hand, take_of(leases_ms, 4));
}

/* All of a client, and so in one command. */
static inline void do_renew_all(struct hand *hand) {
    int64_t lease_ms = take_of(leases_ms, 4);
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        if (oracle.hands[i].actor == hand->actor && !oracle.hands[i].gone) {
            hand_renew(&oracle.hands[i], lease_ms);
        }
    }
}

static inline void do_release(struct hand *hand) {
    hand_release(hand);
}

static inline void do_cancel(struct hand *hand) {
    hand_cancel(hand);
}

static inline void do_free(struct hand *hand) {
    hand_free(hand);
    if (!hand->actor->gone && !hand->actor->closing) {
        play_hand(hand->actor);
    }
}

static inline void do_shutdown(struct hand *hand) {
    if (!hand->actor->gone && !hand->actor->closing) {
        actor_shutdown(hand->actor, 100);
    }
}

static inline void do_free_client(struct hand *hand) {
    if (!hand->actor->gone) {
        actor_free(hand->actor);
    }
}

static inline void do_disturb(struct hand *hand) {
    (void)hand;
    play_disturb();
}

static void (*const calls[])(struct hand *hand) = {
    do_acquire, do_acquire,  do_acquire,     do_release, do_release, do_renew,   do_cancel,
    do_free,    do_shutdown, do_free_client, do_disturb, do_disturb, do_disturb, do_renew_all};

static inline void play_call(unsigned among) {
    struct hand *hand = &oracle.hands[take((unsigned)oracle.hand_count)];
    if (!hand->gone) {
        calls[take(among)](hand);
        play_round(NULL);
    }
}

/* Not everything that is told is answered with a call; the server is not disturbed from here. */
static inline void play_react(struct hand *hand, const rlock_event *event) {
    (void)hand;
    (void)event;
    if (take(3) == 2) {
        struct hand *other = &oracle.hands[take((unsigned)oracle.hand_count)];
        if (!other->gone) {
            calls[take(10)](other);
        }
    }
}

static inline void play_step(void *object) {
    static const int64_t pauses_us[] = {300, 0, 2000, 25000, 110000};
    (void)object;
    if (tape.left > 0 && play.steps < PLAY_STEPS) {
        int64_t pause_us = take_of(pauses_us, 5);
        play.steps++;
        play_call(sizeof calls / sizeof calls[0]);
        sim_at(sim.now_us + pause_us, play_step, NULL);
    } else {
        play.steps = PLAY_STEPS + 1;
    }
}

/* ------------------------------------------------------------------------------------------------
 * The end.
 */

static inline bool play_let_go(void) {
    bool pending = false;
    int i, kind;
    for (i = 0; i < oracle.hand_count; i++) {
        struct hand *hand = &oracle.hands[i];
        if (hand->gone || hand->actor->gone) {
            continue;
        }
        if (hand->holds) {
            hand_release(hand);
        } else if (hand->pending[RLOCK_ACQUIRED] > 0) {
            hand_cancel(hand);
        }
        for (kind = 0; kind <= RLOCK_LOST; kind++) {
            pending = pending || hand->pending[kind] > 0;
        }
    }
    return pending;
}

/* Whatever the server says, or does not say, everything ends. */
static inline void play_settle(void) {
    int64_t until_us = sim.now_us + PLAY_END_US;
    while (play_let_go()) {
        if (sim.now_us >= until_us) {
            sim_failed("an operation does not end");
        }
        sim_run_until(sim.now_us + 20000);
    }
}

static inline void play_close(void) {
    int i;
    for (i = 0; i < oracle.actor_count; i++) {
        struct actor *actor = &oracle.actors[i];
        if (!actor->gone && !actor->closing && i == 0) {
            actor_shutdown(actor, 100);
        }
    }
    sim_run_until(sim.now_us + 150000);
    for (i = 0; i < oracle.hand_count; i++) {
        if (!oracle.hands[i].gone && i % 2 == 0) {
            hand_free(&oracle.hands[i]);
        }
    }
    for (i = 0; i < oracle.actor_count; i++) {
        if (!oracle.actors[i].gone && oracle.actors[i].closing && !oracle.actors[i].done) {
            sim_failed("client %d is never shut down", i);
        }
        if (!oracle.actors[i].gone) {
            actor_free(&oracle.actors[i]);
        }
    }
    for (i = 0; i < oracle.hand_count; i++) {
        if (!oracle.hands[i].gone) {
            hand_free(&oracle.hands[i]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_begin();
    tape.bytes = data;
    tape.left = size;
    memset(&play, 0, sizeof play);
    sim_begin(1, 1, 1);
    oracle_begin();
    oracle.blind = oracle.deceived = true;
    sim.after_entry = play_round;
    play_begin();
    play_clients();
    play_step(NULL);
    while (play.steps <= PLAY_STEPS) {
        sim_run_until(sim.now_us + 20000);
    }
    tape.left = 0;
    play_over();
    play_settle();
    play_close();
    sim_end();
    return 0;
}

#endif /* PLAY_H */
