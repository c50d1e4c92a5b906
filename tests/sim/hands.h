/* hands.h - clients and handles of a simulated world, and the oracle that watches them
 *
 * Every public call goes through a function of this file and every callback comes back to it, so
 * that the rules of the contract are checked wherever a program leads: one callback for each
 * operation, none inside a call, none after a free, LOST in time and once. Beside that the oracle
 * reads the servers, which no client can: whose token stands at a key, until when, and who changed
 * it. Where a rule of the world is broken on purpose (data lost, a clock stepped), the tokens that
 * were there are void: their holds may overlap with later ones, but their fences may not be higher.
 *
 * A token is found by what the library says of a handle that was granted, and it must have been at
 * the server. The handle has it until it calls release. From then on another one of the same client
 * may be granted with that token: it was handed on, without a word to the server.
 */

#ifndef SIM_HANDS_H
#define SIM_HANDS_H

#include "world.h"

#define SIM_ACTORS 12
#define SIM_HANDS 400
#define SIM_SLOTS 8
#define SIM_TOKENS 20000
#define SIM_PASSED 20
#define SIM_LATE_US 2000 /* how late a loop with nothing else to do may tell a loss */

struct token { /* a value that was seen at a key */
    char text[64];
    bool theirs;         /* a stranger's */
    bool is_void;        /* a rule was broken while it was there */
    int64_t order;       /* of its coming to the key, among the tokens of that */
    int64_t hold_order;  /* the same of its youngest hold */
    uint64_t fence;      /* of that */
    struct hand *holder; /* who was granted it and did not release; NULL = nobody */
    int grants;          /* how many holds it made, one after the other */
    int64_t longest_ms;  /* of the leases asked for in these holds */
    int64_t away_us;     /* since when the server has not had it; -1 = has it */
};

struct slot { /* one key of one server */
    struct sim_server *server;
    const char *key;     /* the caller's */
    struct token *there; /* NULL = nothing */
    int64_t since_us;    /* since when */
    int64_t expires_us;  /* by the server's clock; -1 = never */
    int64_t orders, changes;
    struct token *last;     /* that made the youngest hold */
    char keeper[37];        /* the client that holds it to the end */
    int64_t free_since_us;  /* nobody's, and somebody waits; -1 = not so */
    int passed[SIM_ACTORS]; /* how often it went to others while this client waited */
};

struct actor { /* a client */
    rlock_client *client;
    struct sim_process *process;
    struct sim_server *server;
    char id[37];
    int64_t command_timeout_ms;
    int64_t calls;
    rlock_wire wire;
    int handovers;            /* how often a hold may be handed on */
    bool closing, done, gone; /* shutdown was called, has called back; it was freed */
    int shutdown_status;
};

struct hand { /* a handle, and what it was told */
    rlock *lock;
    struct actor *actor;
    struct slot *slot;
    int number;
    bool fencing, reentrant, watched;
    bool gone; /* freed */
    bool holds;
    bool releasing;
    int pending[RLOCK_LOST + 1];
    struct token *token;
    int64_t longest_ms;            /* of the leases asked for in this hold */
    int64_t max_hold_ms, since_us; /* how long a hold may be; since when it is */
    int64_t overdue_us; /* since when its deadline has passed and it was not told; -1 = not so */
    int64_t waiting_us; /* since when it waits */
    void (*react)(struct hand *hand, const rlock_event *event);
};

static struct {
    struct actor actors[SIM_ACTORS];
    struct hand hands[SIM_HANDS];
    struct slot slots[SIM_SLOTS];
    struct token tokens[SIM_TOKENS];
    int actor_count, hand_count, slot_count, token_count;
    int calls;           /* public calls on the stack */
    bool stranger;       /* a command under way is a stranger's */
    bool settled;        /* nothing goes wrong any more */
    bool quiet;          /* nothing goes wrong at all: nothing is late or lost, or asked twice */
    bool keeping;        /* holds are kept until their clients go */
    bool blind;          /* the locks are in a store that cannot be read from outside */
    bool deceived;       /* servers lie: holds may overlap, and fences fall */
    int64_t trouble_us;  /* when something last went wrong on purpose */
    struct actor *frees; /* is being freed by the program as if it had crashed */
    uint64_t operations; /* accepted, and callbacks */
    uint64_t voids;
} oracle;

static struct {                         /* of all worlds */
    uint64_t ended[RLOCK_LOST + 1][16]; /* by kind and -status */
    uint64_t lost[8];                   /* by reason */
    uint64_t overlaps;                  /* of void tokens, told apart by their fences */
    uint64_t handed_on;                 /* holds, to another handle */
    uint64_t given, kept;               /* a key that was handed on: to, or from, who waits */
    uint64_t refused[16];               /* calls, by -status */
    uint64_t from_callback;             /* calls made from inside a callback */
    uint64_t flavours[MODEL_FLAVOURS];  /* servers of worlds */
    uint64_t delifeqs;                  /* releases without a script */
    uint64_t mgets;                     /* batches of renewals */
} seen;

/* ------------------------------------------------------------------------------------------------
 * What the servers have.
 */

static inline void oracle_void(struct sim_server *server) {
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        if (oracle.slots[i].server == server && oracle.slots[i].there != NULL) {
            oracle.slots[i].there->is_void = true;
        }
    }
    oracle.voids++;
}

static inline struct slot *oracle_slot(struct sim_server *server, const char *key, size_t len) {
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        if (slot->server == server && strlen(slot->key) == len &&
            memcmp(slot->key, key, len) == 0) {
            return slot;
        }
    }
    return NULL;
}

static inline bool oracle_expired(const struct slot *slot) {
    return slot->expires_us >= 0 && slot->expires_us <= slot->server->model->wall_us;
}

/* The token that stands there, or "" */
static inline int64_t oracle_read(const struct slot *slot, char text[64]) {
    struct model_value value;
    const char *bytes = NULL;
    size_t size = 0;
    text[0] = 0;
    if (!model_get(slot->server->model, slot->server->database, slot->key, strlen(slot->key),
                   &value)) {
        return -1;
    }
    if (value.type == MODEL_STRING) {
        bytes = value.bytes;
        size = value.size;
    } else if (value.type == MODEL_HASH && value.count > 0) {
        bytes = value.fields[0].name.at;
        size = value.fields[0].name.size;
    } else {
        bytes = "?";
        size = 1;
    }
    snprintf(text, 64, "%.*s", (int)size, bytes);
    return value.expires_us;
}

static inline struct token *oracle_token(const char *text) {
    int i;
    for (i = oracle.token_count - 1; i >= 0; i--) {
        if (strcmp(oracle.tokens[i].text, text) == 0) {
            break;
        }
    }
    if (i < 0) {
        if (oracle.token_count == SIM_TOKENS) {
            sim_failed("more than %d tokens", SIM_TOKENS);
        }
        i = oracle.token_count++;
        memset(&oracle.tokens[i], 0, sizeof oracle.tokens[i]);
        snprintf(oracle.tokens[i].text, sizeof oracle.tokens[i].text, "%s", text);
        oracle.tokens[i].away_us = -1;
    }
    return &oracle.tokens[i];
}

static inline bool oracle_owns(const struct sim_line *line, const struct token *token) {
    return strncmp(token->text, line->client_id, 36) == 0;
}

/* A key was changed: who may do that, and to what? */
static inline void oracle_touched(struct sim_server *server, struct sim_line *by, const char *key,
                                  size_t len) {
    struct slot *slot = oracle_slot(server, key, len);
    struct token *before = slot != NULL ? slot->there : NULL;
    char text[64];
    int64_t expires_us;
    bool same;
    if (slot == NULL) {
        return;
    }
    slot->changes++;
    expires_us = oracle_read(slot, text);
    same = before != NULL && strcmp(before->text, text) == 0;
    if (before != NULL && oracle_expired(slot)) {
        before = NULL;
    }
    if (by != NULL && before != NULL && !oracle_owns(by, before)) {
        sim_failed("%s changes key %s, which is %s's", by->client_id, slot->key, before->text);
    }
    if (by != NULL && same && before != NULL && slot->expires_us >= 0 &&
        expires_us < slot->expires_us) {
        sim_failed("the time of %s is shortened by %lld us", slot->key,
                   (long long)(slot->expires_us - expires_us));
    }
    if (before != NULL && by == NULL && oracle.stranger) {
        before->is_void = true;
    }
    sim_trace("  server %d: %s is %s until %lld", server->number, slot->key,
              text[0] ? text : "free", (long long)expires_us);
    slot->expires_us = expires_us;
    if (!same || before == NULL) {
        slot->there = text[0] ? oracle_token(text) : NULL;
        slot->since_us = sim.now_us;
        if (slot->there != NULL) {
            slot->there->order = ++slot->orders;
            slot->free_since_us = -1;
            slot->there->theirs = by == NULL;
            if (by != NULL && !oracle_owns(by, slot->there)) {
                sim_failed("%s puts the token of %s", by->client_id, slot->there->text);
            }
        }
    }
}

/* A stranger's command, whose effects void what was there. */
static inline void oracle_stranger(struct sim_server *server, int count, const char *const w[]) {
    oracle.stranger = true;
    sim_trace("a stranger: %s %s", w[0], count > 1 ? w[1] : "");
    sim_stranger(server, count, w);
    oracle.stranger = false;
}

/* After the server's data was lost or changed as a whole. */
static inline void oracle_reread(struct sim_server *server) {
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        struct slot *slot = &oracle.slots[i];
        char text[64];
        if (slot->server == server) {
            slot->expires_us = oracle_read(slot, text);
            slot->there = text[0] ? oracle_token(text) : NULL; /* from earlier: no new order */
            if (slot->there != NULL) {
                slot->there->is_void = true;
            }
        }
    }
}

/* The true time at which the server forgets the slot's token. */
static inline int64_t oracle_end_us(const struct slot *slot) {
    return slot->expires_us < 0 ? INT64_MAX : sim_true_us(&slot->server->clock, slot->expires_us);
}

/* ------------------------------------------------------------------------------------------------
 * Calls.
 */

#define CALL(expression) (call_begin(), call_end(expression))

static inline void call_begin(void) {
    seen.from_callback += sim.entered != NULL;
    oracle.calls++;
}

static inline int call_end(int status) {
    oracle.calls--;
    seen.refused[status < 0 && status > -16 ? -status : 0]++;
    oracle.operations++;
    sim_note(-3, status);
    return status;
}

/* The row of STATE x CALL that a handle must be in, from what it was told. */
static inline rlock__state hand_state(const struct hand *hand) {
    if (hand->actor->gone) {
        return RLOCK__CLOSED_STATE;
    }
    if (hand->pending[RLOCK_ACQUIRED] > 0 && !hand->holds) {
        return RLOCK__WAITING_STATE;
    }
    if (hand->holds) {
        return rlock_is_held(hand->lock) ? RLOCK__HELD_STATE : RLOCK__LOST_STATE;
    }
    return hand->releasing ? RLOCK__RELEASING_STATE : RLOCK__IDLE_STATE;
}

/* What a call returns is what the table says, or want of memory. */
static inline void hand_expect(const struct hand *hand, rlock__state state, int call, int status) {
    int expected = rlock__on_call[state][call];
    if (call == RLOCK__CALL_ACQUIRE && hand->actor->closing && expected == RLOCK_OK) {
        expected = RLOCK_ERR_CLOSED;
    }
    if (call == RLOCK__CALL_RENEW && expected == RLOCK_OK && hand->pending[RLOCK_RENEWED] > 0) {
        expected = RLOCK_ERR_STATE;
    }
    if (hand->reentrant || status == expected ||
        (status == RLOCK_ERR_NOMEM && expected == RLOCK_OK && call != RLOCK__CALL_RELEASE &&
         call != RLOCK__CALL_CANCEL)) {
        return;
    }
    sim_failed("hand %d in state %d: call %d gives %s, expected %s", hand->number, (int)state, call,
               rlock_strerror(status), rlock_strerror(expected));
}

static inline void hand_accept(struct hand *hand, rlock_event_kind kind, int status) {
    if (status == RLOCK_OK) {
        hand->actor->calls++;
        hand->pending[kind]++;
    }
}

static inline void on_acquired(rlock *lock, const rlock_event *event, void *user);
static inline void on_renewed(rlock *lock, const rlock_event *event, void *user);
static inline void on_released(rlock *lock, const rlock_event *event, void *user);
static inline void on_lost(rlock *lock, const rlock_event *event, void *user);

static inline int hand_acquire(struct hand *hand, int64_t wait_ms, int64_t lease_ms) {
    rlock__state state = hand_state(hand);
    int status;
    sim_trace("hand %d: acquire, wait %lld, lease %lld", hand->number, (long long)wait_ms,
              (long long)lease_ms);
    status = CALL(rlock_acquire(hand->lock, wait_ms, lease_ms, on_acquired, hand));
    hand_expect(hand, state, RLOCK__CALL_ACQUIRE, status);
    hand_accept(hand, RLOCK_ACQUIRED, status);
    if (status == RLOCK_OK) {
        int64_t lease = lease_ms != 0 ? lease_ms : hand->actor->client->watchdog_lease_ms;
        hand->waiting_us = sim.now_us;
        hand->longest_ms = hand->holds && hand->longest_ms > lease ? hand->longest_ms : lease;
    }
    return status;
}

static inline int hand_renew(struct hand *hand, int64_t lease_ms) {
    rlock__state state = hand_state(hand);
    int status;
    sim_trace("hand %d: renew for %lld", hand->number, (long long)lease_ms);
    status = CALL(rlock_renew(hand->lock, lease_ms, on_renewed, hand));
    hand_expect(hand, state, RLOCK__CALL_RENEW, status);
    hand_accept(hand, RLOCK_RENEWED, status);
    if (status == RLOCK_OK && lease_ms > hand->longest_ms) {
        hand->longest_ms = lease_ms;
    }
    return status;
}

static inline int hand_release(struct hand *hand) {
    rlock__state state = hand_state(hand);
    int status;
    sim_trace("hand %d: release", hand->number);
    status = CALL(rlock_release(hand->lock, on_released, hand));
    hand_expect(hand, state, RLOCK__CALL_RELEASE, status);
    hand_accept(hand, RLOCK_RELEASED, status);
    if (status == RLOCK_OK && rlock_hold_count(hand->lock) == 0) {
        hand->holds = false;
        hand->releasing = true;
        if (hand->token->holder == hand && state == RLOCK__HELD_STATE) {
            hand->token->holder = NULL;
        }
        if (rlock_is_held(hand->lock)) {
            sim_failed("hand %d claims to hold after release was called", hand->number);
        }
    }
    return status;
}

static inline int hand_cancel(struct hand *hand) {
    rlock__state state = hand_state(hand);
    int status;
    sim_trace("hand %d: cancel", hand->number);
    status = CALL(rlock_cancel(hand->lock));
    hand_expect(hand, state, RLOCK__CALL_CANCEL, status);
    return status;
}

static inline void hand_free(struct hand *hand) {
    sim_trace("hand %d: free", hand->number);
    hand->gone = true;
    hand->holds = false;
    call_begin();
    rlock_free(hand->lock);
    call_end(0);
    hand->lock = NULL;
}

/* ------------------------------------------------------------------------------------------------
 * Callbacks.
 */

static inline void hand_called(struct hand *hand, rlock *lock, rlock_event_kind kind,
                               const rlock_event *event) {
    static const char *const names[] = {"", "ACQUIRED", "RENEWED", "RELEASED", "LOST"};
    sim_trace("hand %d: %s, %s, reason %d, fence %llu, %lld ms left", hand->number, names[kind],
              rlock_strerror(event->status), (int)event->reason, (unsigned long long)event->fence,
              (long long)event->remaining_ms);
    sim_note((int64_t)kind * 100 + event->reason, event->status);
    sim_note((int64_t)event->fence, event->remaining_ms);
    oracle.operations++;
    if (hand->gone || hand->actor->gone) {
        sim_failed("hand %d is called after it was freed", hand->number);
    }
    if (oracle.calls > 0) {
        sim_failed("hand %d is called inside a public call", hand->number);
    }
    if (sim.entered == NULL || sim.entered->client != hand->actor->client) {
        sim_failed("hand %d is called outside of an entry of its client", hand->number);
    }
    if (lock != hand->lock || event->kind != kind) {
        sim_failed("hand %d gets a callback of another kind or handle", hand->number);
    }
    if (kind != RLOCK_LOST && hand->pending[kind]-- == 0) {
        sim_failed("hand %d: a second callback %s", hand->number, names[kind]);
    }
    seen.ended[kind][event->status <= 0 && event->status > -16 ? -event->status : 15]++;
}

static inline void hand_react(struct hand *hand, const rlock_event *event) {
    if (hand->react != NULL) {
        hand->react(hand, event);
    }
}

/* Two holds at one time: only if a rule of the world was broken, and then the fences tell. */
static inline void oracle_overlap(struct hand *one, struct hand *other) {
    if (one->token == other->token || (!one->token->is_void && !other->token->is_void)) {
        sim_failed("hands %d and %d both hold %s", one->number, other->number, one->slot->key);
    }
    seen.overlaps++;
    if (one->fencing && other->fencing &&
        (one->token->fence > other->token->fence) !=
            (one->token->hold_order > other->token->hold_order)) {
        sim_failed("hands %d and %d overlap and their fences do not tell", one->number,
                   other->number);
    }
}

/* A token that made a hold before: who had it has released it, and its fence goes up. By one, or
 * the server was asked anew, after a grant that nobody was told of. */
static inline void oracle_handed_on(struct hand *hand, uint64_t fence) {
    struct token *token = hand->token;
    if (token->grants++ == 0) {
        token->hold_order = token->order;
        return;
    }
    seen.handed_on++;
    sim_trace("  it was handed on, for the %d. time", token->grants - 1);
    if (token->holder != NULL) {
        sim_failed("hand %d holds with the token of hand %d, who did not release it", hand->number,
                   token->holder->number);
    }
    if (token->grants - 1 > hand->actor->handovers) {
        sim_failed("a hold of %s is handed on %d times, %d are allowed", hand->slot->key,
                   token->grants - 1, hand->actor->handovers);
    }
    if (fence != 0 ? fence <= token->fence : token->fence != 0) {
        sim_failed("hand %d: a fence of %llu was handed on, it is %llu now", hand->number,
                   (unsigned long long)token->fence, (unsigned long long)fence);
    }
    if (fence != token->fence + 1) {
        token->hold_order = token->order;
    }
}

static inline bool oracle_waits(const struct slot *slot, const struct actor *actor) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        if (hand->slot == slot && hand->actor == actor && !hand->gone && !actor->gone &&
            !actor->closing && hand->pending[RLOCK_ACQUIRED] > 0 && !hand->holds) {
            return true;
        }
    }
    return false;
}

/* Whether this client hears of it when a key changes. */
static inline bool oracle_hears(const struct actor *actor) {
    return actor->server->model->flavour != MODEL_REDIS_5 || actor->wire == RLOCK_WIRE_REDISSON;
}

/* Who handed a hold on gives way when it is released: whoever else waits gets the key. That one is
 * woken and asks, and may come too late, but not often where nothing goes wrong. */
static inline void oracle_passed(const struct hand *hand) {
    const struct token *last = hand->slot->last, *token = hand->token;
    bool follows = last != NULL && last != token && last->grants > 1 && token->grants == 1;
    bool kept = follows && strncmp(last->text, token->text, 36) == 0;
    int i;
    for (i = 0; i < oracle.actor_count; i++) {
        struct actor *actor = &oracle.actors[i];
        if (actor == hand->actor || !oracle_waits(hand->slot, actor)) {
            seen.given += actor == hand->actor && follows && !kept && oracle.quiet;
            hand->slot->passed[i] = 0;
            continue;
        }
        seen.kept += kept && oracle.quiet && oracle_hears(actor);
        hand->slot->passed[i] += kept;
        if (oracle.quiet && oracle_hears(actor) && hand->slot->passed[i] > SIM_PASSED) {
            sim_failed("%s is kept from client %.8s, who waits, by one who hands it on",
                       hand->slot->key, actor->id);
        }
    }
}

/* Fences tell in which order the keys' holds were granted. */
static inline void oracle_fenced(const struct hand *hand) {
    const struct token *last = hand->slot->last, *token = hand->token;
    if (last != NULL && last != token && last->fence != 0 && token->fence != 0 &&
        (last->fence < token->fence) != (last->hold_order < token->hold_order)) {
        sim_failed("hand %d: its fence is not above the one before", hand->number);
    }
}

static inline void oracle_granted(struct hand *hand, const rlock_event *event) {
    char text[64];
    int i;
    snprintf(text, sizeof text, "%.36s:%llu", hand->actor->id,
             (unsigned long long)hand->lock->claim->request.token);
    if (oracle.blind) {
        oracle_token(text)->order = ++hand->slot->orders;
    }
    for (i = oracle.token_count - 1; i >= 0 && strcmp(oracle.tokens[i].text, text) != 0; i--) {
    }
    if (i < 0) {
        sim_failed("hand %d holds with a token that never was at the server", hand->number);
    }
    hand->token = &oracle.tokens[i];
    oracle_handed_on(hand, event->fence);
    hand->token->holder = hand;
    hand->token->fence = event->fence;
    if (hand->token->longest_ms < hand->longest_ms) {
        hand->token->longest_ms = hand->longest_ms;
    }
    if (hand->fencing != (event->fence != 0) || event->fence != rlock_fence(hand->lock)) {
        sim_failed("hand %d: a fence of %llu", hand->number, (unsigned long long)event->fence);
    }
    if (oracle.deceived) {
        return;
    }
    for (i = 0; i < oracle.hand_count; i++) {
        struct hand *other = &oracle.hands[i];
        if (other != hand && other->holds && other->slot == hand->slot &&
            rlock_is_held(other->lock)) {
            oracle_overlap(hand, other);
        }
    }
    oracle_passed(hand);
    oracle_fenced(hand);
    hand->slot->last = hand->token;
}

/* Expiry is settled before replies are delivered: nobody hears of a success while a hold of the
 * same client, whose deadline had passed when the entry began, is not told. */
static inline void oracle_expiry_first(const struct hand *hand) {
    int i;
    for (i = 0; i < oracle.hand_count && !hand->reentrant; i++) {
        const struct hand *other = &oracle.hands[i];
        if (other->actor == hand->actor && other->holds && !rlock_is_held(other->lock) &&
            other->lock->claim->until_us < sim.entered_us) {
            sim_failed("hand %d hears of a success before hand %d of its loss", hand->number,
                       other->number);
        }
    }
}

static inline void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    hand_called(hand, lock, RLOCK_ACQUIRED, event);
    if (event->status == RLOCK_OK) {
        oracle_expiry_first(hand);
    }
    if (event->status == RLOCK_OK && !hand->holds) {
        hand->holds = true;
        hand->overdue_us = -1;
        hand->since_us = sim.now_us;
        oracle_granted(hand, event);
        if (!rlock_is_held(lock) || event->remaining_ms > rlock_remaining_ms(lock) + 1) {
            sim_failed("hand %d is told of a hold that it has not", hand->number);
        }
    }
    hand_react(hand, event);
}

static inline void on_renewed(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    hand_called(hand, lock, RLOCK_RENEWED, event);
    if (event->status == RLOCK_OK) {
        oracle_expiry_first(hand);
    }
    hand_react(hand, event);
}

static inline void on_released(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    hand_called(hand, lock, RLOCK_RELEASED, event);
    hand->releasing = hand->pending[RLOCK_RELEASED] > 0 && hand->releasing;
    hand_react(hand, event);
}

static inline void on_lost(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    hand_called(hand, lock, RLOCK_LOST, event);
    if (!hand->holds) {
        sim_failed("hand %d loses what it has not", hand->number);
    }
    if (rlock_is_held(lock) || event->status != RLOCK_ERR_LOST) {
        sim_failed("hand %d is told LOST and says it holds", hand->number);
    }
    if (oracle.quiet && hand->watched && event->reason != RLOCK_REASON_CLOSED) {
        sim_failed("hand %d loses its hold, although nothing goes wrong", hand->number);
    }
    hand->holds = false;
    seen.lost[event->reason & 7]++;
    hand_react(hand, event);
}

static inline void on_shutdown(rlock_client *client, int status, void *user) {
    struct actor *actor = (struct actor *)user;
    sim_trace("client %.8s is shut down: %s", actor->id, rlock_strerror(status));
    sim_note(-4, status);
    if (actor->client != client || actor->gone || actor->done || oracle.calls > 0) {
        sim_failed("a shutdown's callback that may not come");
    }
    actor->done = true;
    actor->shutdown_status = status;
}

/* ------------------------------------------------------------------------------------------------
 * The oracle's round, after everything that may have changed what a handle says.
 */

static inline void oracle_deadline(struct hand *hand) {
    int64_t since_us = hand->actor->process->paused_until_us;
    if (rlock_is_held(hand->lock)) {
        if (hand->overdue_us >= 0 && !hand->reentrant) {
            sim_failed("hand %d holds again after its deadline", hand->number);
        }
        hand->overdue_us = -1;
        if (hand->max_hold_ms > 0 &&
            sim.now_us > hand->since_us + hand->max_hold_ms * 1005 + 1000) {
            sim_failed("hand %d holds for longer than it may", hand->number);
        }
        return;
    }
    if (hand->overdue_us < 0) {
        hand->overdue_us = sim.now_us;
    }
    since_us = since_us > hand->overdue_us ? since_us : hand->overdue_us;
    if (sim.now_us > since_us + SIM_LATE_US + 2 * sim.weather.linger_us) {
        sim_failed("hand %d is not told of its loss", hand->number);
    }
}

/* What a handle claims, the server has, and for at least as long. */
static inline void oracle_backed(struct hand *hand) {
    const struct slot *slot = hand->slot;
    struct token *token = hand->token;
    int64_t left_us = rlock_remaining_ms(hand->lock) * 1000;
    int64_t longest_ms =
        hand->longest_ms > token->longest_ms ? hand->longest_ms : token->longest_ms;
    if (oracle.blind) {
        return;
    }
    if (slot->there == token && sim.now_us < oracle_end_us(slot)) {
        token->away_us = -1;
        if (!token->is_void && sim.now_us + left_us * 995 / 1000 - 1000 > oracle_end_us(slot)) {
            sim_failed("hand %d claims %s for %lld us longer than the server", hand->number,
                       slot->key, (long long)(sim.now_us + left_us - oracle_end_us(slot)));
        }
        return;
    }
    if (!token->is_void) {
        sim_failed("hand %d claims %s, the server has %s", hand->number, slot->key,
                   slot->there != NULL ? slot->there->text : "nothing");
    }
    if (token->away_us < 0) {
        token->away_us = sim.now_us;
    }
    if (sim.now_us > token->away_us + longest_ms * 1000) {
        sim_failed("hand %d claims %s for longer than a lease after it was gone", hand->number,
                   slot->key);
    }
}

static inline void oracle_round(void) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        struct hand *hand = &oracle.hands[i];
        if (hand->holds && !hand->gone && !hand->actor->gone) {
            oracle_deadline(hand);
            if (rlock_is_held(hand->lock)) {
                oracle_backed(hand);
            }
        }
    }
}

/* How soon a free key must be taken: by push, by the next poll, or after all of the back-off. */
static inline int64_t oracle_patience_us(const struct sim_server *server) {
    return !oracle.quiet ? 5000000 : server->model->flavour == MODEL_REDIS_5 ? 800000 : 250000;
}

/* A client whose command timeout is too short for its network may never get anything. */
static inline bool oracle_patient(const struct actor *actor) {
    return actor->command_timeout_ms * 1000 > 4 * sim.weather.slow_us + 8 * sim.weather.split_us;
}

/* A key that is free is taken soon, if somebody waits for it and nothing went wrong lately. */
static inline void oracle_liveness(void) {
    int s, i;
    for (s = 0; s < oracle.slot_count; s++) {
        struct slot *slot = &oracle.slots[s];
        bool is_free = slot->there == NULL || oracle_end_us(slot) <= sim.now_us, wanted = false;
        int64_t since_us = oracle.trouble_us;
        for (i = 0; i < oracle.hand_count && is_free; i++) {
            const struct hand *hand = &oracle.hands[i];
            wanted = wanted || (hand->slot == slot && oracle_patient(hand->actor) && !hand->gone &&
                                !hand->actor->gone && !hand->actor->closing &&
                                hand->pending[RLOCK_ACQUIRED] > 0 && !hand->holds);
        }
        if (!is_free || !wanted) {
            slot->free_since_us = -1;
        } else if (slot->free_since_us < 0) {
            slot->free_since_us = sim.now_us;
        }
        since_us = since_us > slot->free_since_us ? since_us : slot->free_since_us;
        if (slot->free_since_us >= 0 && sim.now_us > since_us + oracle_patience_us(slot->server)) {
            sim_failed("%s is free, somebody waits, and nobody takes it", slot->key);
        }
    }
}

/* Who waits may ask once more for every change, of which it is told. */
static inline int64_t oracle_changes(const struct sim_server *server) {
    int64_t changes = 0;
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        changes += oracle.slots[i].server == server ? oracle.slots[i].changes : 0;
    }
    return changes;
}

/* Where nothing goes wrong a client asks a few times for each call, and renews and polls. */
static inline void oracle_commands(int64_t elapsed_us) {
    int i;
    for (i = 0; i < oracle.actor_count; i++) {
        struct actor *actor = &oracle.actors[i];
        int64_t rate = actor->server->model->flavour == MODEL_REDIS_5 ? 300 : 60, most;
        rlock_stats stats;
        if (!actor->gone) {
            rlock_client_stats(actor->client, &stats);
            most = 100 + 12 * actor->calls + rate * (1 + elapsed_us / 1000000) +
                   oracle_changes(actor->server);
            if ((int64_t)stats.commands > most) {
                sim_failed("client %.8s sends %lld commands, %lld are enough", actor->id,
                           (long long)stats.commands, (long long)most);
            }
        }
    }
}

static inline void oracle_after_entry(struct sim_seat *seat) {
    (void)seat;
    oracle_round();
}

/* ------------------------------------------------------------------------------------------------
 * Making and freeing.
 */

static inline void oracle_begin(void) {
    memset(&oracle, 0, offsetof(__typeof__(oracle), tokens)); /* not the tokens: they are many */
    oracle.actor_count = oracle.hand_count = oracle.slot_count = oracle.token_count = 0;
    oracle.calls = 0;
    oracle.stranger = oracle.settled = oracle.quiet = oracle.keeping = oracle.blind = false;
    oracle.deceived = false;
    oracle.trouble_us = 0;
    oracle.operations = oracle.voids = 0;
    sim.after_entry = oracle_after_entry;
    sim.touched = oracle_touched;
}

static inline struct slot *slot_new(struct sim_server *server, const char *key) {
    struct slot *slot = &oracle.slots[oracle.slot_count++];
    slot->server = server;
    slot->free_since_us = -1;
    slot->key = key;
    return slot;
}

/* NULL if there was no memory; `config` is filled in as far as the world needs it. */
static inline struct actor *actor_new(struct sim_process *process, struct sim_server *server,
                                      rlock_config config, bool unix_socket) {
    struct actor *actor = &oracle.actors[oracle.actor_count];
    char path[16];
    int status;
    memset(actor, 0, sizeof *actor);
    snprintf(path, sizeof path, "sim-%d", server->number);
    config.loop = sim_loop(process);
    config.port = SIM_PORT + server->number;
    config.unix_path = unix_socket ? path : NULL;
    config.database = server->database;
    config.password = server->password;
    status = CALL(rlock_client_new(&actor->client, &config));
    if (status != RLOCK_OK) {
        if (actor->client != NULL || status != RLOCK_ERR_NOMEM) {
            sim_failed("no client: %s", rlock_strerror(status));
        }
        return NULL;
    }
    actor->process = process;
    actor->server = server;
    actor->command_timeout_ms = actor->client->command_timeout_ms;
    actor->wire = config.wire;
    actor->handovers = config.handovers == 0 ? 256 : config.handovers < 0 ? 0 : config.handovers;
    memcpy(actor->id, rlock_client_id(actor->client), sizeof actor->id);
    sim_trace("client %.8s of process %d on server %d", actor->id, process->number, server->number);
    oracle.actor_count++;
    return actor;
}

static inline void actor_free(struct actor *actor) {
    int i;
    sim_trace("client %.8s: free", actor->id);
    actor->gone = true;
    for (i = 0; i < oracle.hand_count; i++) {
        if (oracle.hands[i].actor == actor) {
            oracle.hands[i].holds = false;
        }
    }
    call_begin();
    rlock_client_free(actor->client);
    call_end(0);
}

static inline void actor_shutdown(struct actor *actor, int64_t timeout_ms) {
    int status;
    sim_trace("client %.8s: shutdown", actor->id);
    status = CALL(rlock_client_shutdown(actor->client, timeout_ms, on_shutdown, actor));
    if (status != (actor->closing ? RLOCK_ERR_STATE : RLOCK_OK)) {
        sim_failed("shutdown gives %s", rlock_strerror(status));
    }
    actor->closing = true;
}

/* NULL if there was no memory, or the client is closing. */
static inline struct hand *hand_new(struct actor *actor, struct slot *slot, rlock_options options) {
    struct hand *hand = &oracle.hands[oracle.hand_count];
    int status;
    if (oracle.hand_count == SIM_HANDS) {
        return NULL;
    }
    memset(hand, 0, sizeof *hand);
    options.key = slot->key;
    options.on_lost = on_lost;
    options.user = hand;
    status = CALL(rlock_new(&hand->lock, actor->client, &options));
    if (status != RLOCK_OK) {
        if (hand->lock != NULL || status != (actor->closing ? RLOCK_ERR_CLOSED : RLOCK_ERR_NOMEM)) {
            sim_failed("no handle: %s", rlock_strerror(status));
        }
        return NULL;
    }
    hand->number = oracle.hand_count++;
    hand->actor = actor;
    hand->slot = slot;
    hand->fencing = options.fencing;
    hand->reentrant = options.reentrant;
    hand->max_hold_ms = options.max_hold_ms;
    hand->overdue_us = -1;
    sim_trace("hand %d of client %.8s on %s", hand->number, actor->id, slot->key);
    return hand;
}

#endif /* SIM_HANDS_H */
