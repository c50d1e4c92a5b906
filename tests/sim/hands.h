/* hands.h - clients and handles of a simulated world, and the oracle that watches them
 *
 * Every public call goes through a function of this file and every callback comes back to it, so
 * that the rules of the contract are checked wherever a program leads: one callback for each
 * operation, none inside a call, none after a free, LOST in time and once. What the handles say
 * is compared with what the servers have (keys.h). Where a rule of the world is broken on purpose
 * (data lost, a clock stepped), the tokens that were there are void: their holds may overlap with
 * later ones, but their fences may not be higher.
 *
 * A token is found by what the library says of a handle that was granted, and it must have been at
 * the server. The handle has it until it calls release. From then on another one of the same client
 * may be granted with that token: it was handed on, without a word to the server.
 */

#ifndef SIM_HANDS_H
#define SIM_HANDS_H

#include "quorum.h"

#define SIM_FORCED_US 500000     /* how long it may take until force is told */
#define SIM_ITERATION_US 1000000 /* the longest turn */
#define SIM_HAND_ON_US 20100 /* for how long a hold may be handed on; its client's clock may lag */

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
    if (hand_asks_now(hand) && !hand->holds) {
        return RLOCK__WAITING_STATE;
    }
    if (hand->holds) {
        return rlock_is_held(hand->lock) ? RLOCK__HELD_STATE : RLOCK__LOST_STATE;
    }
    if (hand->releasing) {
        return rlock__following(hand->lock) != NULL ? RLOCK__FOLLOWED_STATE
                                                    : RLOCK__RELEASING_STATE;
    }
    return RLOCK__IDLE_STATE;
}

/* What a call returns is what the table says, or want of memory. */
static inline void hand_expect(const struct hand *hand, rlock__state state, int call, int status) {
    int expected = rlock__on_call[state][call];
    if (expected == RLOCK__NESTED) {
        expected = RLOCK_ERR_STATE;
    }
    if (expected == RLOCK__FOLLOWS) {
        expected = RLOCK_OK;
    }
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

static inline void hand_asks_for(const struct hand *hand, int64_t lease_ms) {
    struct actor *actor = hand->actor;
    actor->longest_ms = lease_ms > actor->longest_ms ? lease_ms : actor->longest_ms;
}

static inline void on_acquired(rlock *lock, const rlock_event *event, void *user);
static inline void on_renewed(rlock *lock, const rlock_event *event, void *user);
static inline void on_released(rlock *lock, const rlock_event *event, void *user);
static inline void on_lost(rlock *lock, const rlock_event *event, void *user);

/* By when an acquire that is called now has to end. One attempt lasts for a command timeout at
 * most, and a handle that holds already waits for no more than a renewal. */
static inline int64_t hand_ends_us(const struct hand *hand, int64_t wait_ms) {
    int64_t most_ms = wait_ms != 0 ? wait_ms : hand->actor->command_timeout_ms;
    return wait_ms == RLOCK_FOREVER || hand->holds ? -1 : sim.now_us + most_ms * 1005;
}

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
        hand->ends_us = hand_ends_us(hand, wait_ms);
        seen.followed += state == RLOCK__RELEASING_STATE;
        *(state == RLOCK__RELEASING_STATE ? &hand->once_next : &hand->once) = wait_ms == 0;
        hand_asks_for(hand, lease);
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
        hand_asks_for(hand, lease_ms);
    }
    return status;
}

/* It may go on with another handle. Its client counts it from the grant on, still. */
static inline void oracle_let_go(struct hand *hand, int64_t asked_us) {
    struct token *token = hand->token;
    token->holder = NULL;
    token->released_us = sim.now_us;
    token->renewed = hand->renewed;
    if (asked_us != token->asked_us) {
        sim_failed("hand %d counts its hold from another time than its grant", hand->number);
    }
}

static inline int hand_release(struct hand *hand) {
    rlock__state state = hand_state(hand);
    int64_t asked_us = hand->lock->claim != NULL ? hand->lock->claim->granted_us : 0;
    int status;
    sim_trace("hand %d: release", hand->number);
    status = CALL(rlock_release(hand->lock, on_released, hand));
    hand_expect(hand, state, RLOCK__CALL_RELEASE, status);
    hand_accept(hand, RLOCK_RELEASED, status);
    if (status == RLOCK_OK && rlock_hold_count(hand->lock) == 0) {
        hand->holds = false;
        hand->releasing = true;
        if (hand->token->holder == hand && state == RLOCK__HELD_STATE) {
            oracle_let_go(hand, asked_us);
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

/* Words are copied: without memory they are lost. */
static inline bool words_may_be_lost(void) {
    bool refused = sim.failure.step == SIM_ALLOC || sim.failure.step == SIM_HIREDIS;
    return oracle.starved || (sim.failures > 0 && refused);
}

/* The words of an event belong to its status: a success has none, and what only an operator can
 * mend, or the server's words explain, is not told without any. */
static inline void oracle_words(const struct hand *hand, const rlock_event *event) {
    bool said = !words_may_be_lost() &&
                (event->status == RLOCK_ERR_SERVER || event->status == RLOCK_ERR_AUTH);
    if (event->text == NULL ? said : event->status == RLOCK_OK) {
        sim_failed("hand %d: %s, with the words %s", hand->number, rlock_strerror(event->status),
                   event->text != NULL ? event->text : "NULL");
    }
    if (event->kind == RLOCK_LOST && event->reason == RLOCK_REASON_EXPIRED && hand->lock->renews &&
        event->text == NULL && !words_may_be_lost()) {
        sim_failed("hand %d expires, and nothing says why", hand->number);
    }
}

static inline void hand_called(struct hand *hand, rlock *lock, rlock_event_kind kind,
                               const rlock_event *event) {
    static const char *const names[] = {"", "ACQUIRED", "RENEWED", "RELEASED", "LOST"};
    sim_trace("hand %d: %s, %s, reason %d, fence %llu, %lld ms left", hand->number, names[kind],
              rlock_strerror(event->status), (int)event->reason, (unsigned long long)event->fence,
              (long long)event->remaining_ms);
    sim_note((int64_t)kind * 100 + event->reason, event->status);
    sim_note((int64_t)event->fence, event->remaining_ms);
    oracle.operations++;
    sim_does(SIM_CHILD_CALLS_BACK);
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
    oracle_words(hand, event);
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

static inline bool hand_wants(const struct hand *hand, const struct slot *slot) {
    int i;
    for (i = 0; i < hand->slot_count; i++) {
        if (hand->slots[i] == slot) {
            return true;
        }
    }
    return false;
}

/* A reader beside its own writer, who came first. */
static inline bool hands_beside(const struct hand *reader, const struct hand *writer) {
    return reader->kind == RLOCK_KIND_READ && writer->kind == RLOCK_KIND_WRITE &&
           reader->actor == writer->actor && reader->owner == writer->owner && reader->owner != 0 &&
           reader->token->began_order > writer->token->began_order;
}

/* Whether these two may not hold at one time. */
static inline bool hands_exclude(const struct hand *one, const struct hand *other) {
    bool common = false;
    int i;
    for (i = 0; i < one->slot_count; i++) {
        common = common || hand_wants(other, one->slots[i]);
    }
    if (!common || one->kind == RLOCK_KIND_SEMAPHORE || hands_beside(one, other) ||
        hands_beside(other, one)) {
        return false;
    }
    return one->kind != RLOCK_KIND_READ || other->kind != RLOCK_KIND_READ;
}

/* Two primaries count apart, and the oracle does not see in which order an old one granted. A fence
 * counter that was lost goes on from the clock, which may have been set back. */
static inline bool fences_apart(const struct token *one, const struct token *other) {
    return (sim.primary != NULL || sim.cluster.on || oracle.set_back) &&
           (one->is_void || other->is_void);
}

/* Whether every replica has what is claimed with this token: a new primary is no excuse. */
static inline bool oracle_survives(const struct token *token) {
    return oracle.replicas != 0 && oracle.replicas == sim.server_count - 1 && !token->lawless;
}

/* An old primary that goes on grants a key once the hold that it knows has ended. Who has that hold
 * may have renewed it at the new primary, where alone a quarantine is in the way of the next. */
static inline bool oracle_granted_aside(const struct token *one, const struct token *other) {
    const struct token *younger = one->began_order > other->began_order ? one : other;
    const struct token *older = younger == one ? other : one;
    return older->both_us > 0 && younger->aside_us >= older->both_us;
}

/* Two holds at one time: only if a rule of the world was broken, and then the fences tell. */
static inline void oracle_overlap(struct hand *one, struct hand *other) {
    if (oracle.quorum) {
        quorum_overlap(one, other);
        return;
    }
    if (one->token == other->token || (!one->token->is_void && !other->token->is_void)) {
        sim_failed("hands %d and %d both hold %s", one->number, other->number, one->slot->key);
    }
    if (oracle_survives(one->token) && oracle_survives(other->token)) {
        sim_failed("hands %d and %d both hold %s, which every replica had", one->number,
                   other->number, one->slot->key);
    }
    if (oracle.quarantine_ms != 0 && !one->token->lawless && !other->token->lawless &&
        !oracle_granted_aside(one->token, other->token)) {
        sim_failed("hands %d and %d both hold %s, in spite of a quarantine", one->number,
                   other->number, one->slot->key);
    }
    seen.overlaps++;
    if (one->fencing && other->fencing && !fences_apart(one->token, other->token) &&
        (one->token->fence > other->token->fence) !=
            (one->token->hold_order > other->token->hold_order)) {
        sim_failed("hands %d and %d overlap and their fences do not tell", one->number,
                   other->number);
    }
}

/* How often, and for how long, a hold may be handed on: others want the key too. Its time counts
 * from when the grant was told, which is later than when the server made it. */
static inline void oracle_handed_enough(struct hand *hand) {
    struct token *token = hand->token;
    int64_t most = slot_queued(hand->slot) ? 0 : hand->actor->handovers;
    if (token->handed > most) {
        sim_failed("a hold of %s is handed on %d times, %d are allowed", hand->slot->key,
                   token->handed, (int)most);
    }
    if (token->released_us > token->told_us + SIM_HAND_ON_US) {
        sim_failed("a hold of %s is handed on %lld us after it was granted", hand->slot->key,
                   (long long)(token->released_us - token->told_us));
    }
}

/* A token that made a hold before: who had it has released it, and its fence goes up. By one, or
 * the server was asked anew, after a grant that nobody was told of. True: no reply brought it. */
static inline bool oracle_handed_on(struct hand *hand, uint64_t fence) {
    struct token *token = hand->token;
    int64_t asked_us = hand->lock->claim->granted_us;
    bool anew = token->grants++ == 0 || token->asked_us != asked_us;
    if (anew) {
        token->handed = 0;
        token->asked_us = asked_us;
        token->told_us = sim.now_us;
    }
    if (token->grants == 1) {
        token->hold_order = token->order;
        return false;
    }
    seen.handed_on++;
    token->handed += !anew;
    sim_trace("  it was handed on, for the %d. time", token->handed);
    if (token->holder != NULL) {
        sim_failed("hand %d holds with the token of hand %d, who did not release it", hand->number,
                   token->holder->number);
    }
    if (!anew) {
        seen.handed_renewed += token->renewed;
        oracle_handed_enough(hand);
    }
    token->renewed = false;
    if ((fence != 0 ? fence <= token->fence : token->fence != 0) &&
        !(oracle.set_back && token->is_void)) {
        sim_failed("hand %d: a fence of %llu was handed on, it is %llu now", hand->number,
                   (unsigned long long)token->fence, (unsigned long long)fence);
    }
    if (fence != token->fence + 1) {
        token->hold_order = token->order;
    }
    return !anew;
}

static inline bool hand_waits_for(const struct hand *hand, const struct slot *slot) {
    return hand_wants(hand, slot) && !hand->gone && !hand->actor->gone && !hand->actor->closing &&
           hand_asks_now(hand) && !hand->holds;
}

static inline bool oracle_waits(const struct slot *slot, const struct actor *actor) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        if (hand->actor == actor && hand_waits_for(hand, slot)) {
            return true;
        }
    }
    return false;
}

/* Whether this client, which waits, does not ask now when the key changes. */
static inline bool oracle_pauses(const struct slot *slot, const struct actor *actor) {
    int i;
    for (i = 0; i < oracle.hand_count && oracle.quorum; i++) {
        const struct hand *hand = &oracle.hands[i];
        if (hand->actor == actor && hand_waits_for(hand, slot) && quorum_pauses(hand)) {
            return true;
        }
    }
    return false;
}

/* Whether this client hears of it when a key changes. */
static inline bool oracle_hears(const struct actor *actor) {
    if (oracle.quorum) {
        return quorum_hears(actor);
    }
    return !actor->server->proxied &&
           (actor->server->model->flavour != MODEL_REDIS_5 || actor->wire == RLOCK_WIRE_REDISSON);
}

/* Whether this client has found its server: to resolve a name may take as long as many holds. */
static inline bool oracle_arrived(const struct actor *actor) {
    const struct sim_line *line;
    for (line = sim.lines; line != NULL; line = line->next) {
        if (line->seat != NULL && line->seat->client == actor->client && line->state == SIM_UP &&
            line->server->number < SIM_SENTINEL) {
            return true;
        }
    }
    return false;
}

/* Whether this server may grant, as this client counts. */
static inline bool redis_out_of_quarantine(const rlock__redis *redis, const struct actor *actor) {
    return (redis->quarantine == NULL ||
            redis->quarantine->until_us <= sim_process_now_us(actor->process)) &&
           !rlock__quarantine_waits(redis);
}

/* Whether this client may ask for a key: each counts a quarantine by its own clock, from when it
 * was told. In the millisecond between two of them others can have a key dozens of times. */
static inline bool oracle_out_of_quarantine(const struct slot *slot, const struct actor *actor) {
    const void *state = actor->client->store_state;
    const rlock__cluster *cluster = (const rlock__cluster *)state;
    uint32_t i;
    if (oracle.quarantine_ms == 0 || oracle.quorum) { /* quorum_pauses knows of the latter */
        return true;
    }
    for (i = 0; sim.cluster.on && i < cluster->node_count; i++) {
        const rlock__node *node = cluster->nodes[i];
        if (node != NULL && node->redis != NULL && node->port == SIM_PORT + slot->server->number) {
            return redis_out_of_quarantine(node->redis, actor);
        }
    }
    return !sim.cluster.on && redis_out_of_quarantine(state, actor);
}

/* Who handed a hold on gives way when it is released: whoever else waits gets the key. That one is
 * woken and asks, and may come too late, but not often where nothing goes wrong. In a quorum it may
 * pause after a split vote for longer than the others hold the key many times. */
static inline void oracle_passed(const struct hand *hand, struct slot *slot) {
    const struct token *last = slot->last, *token = hand->token;
    bool follows = last != NULL && last != token && last->grants > 1 && token->grants == 1;
    bool kept = follows && strncmp(last->text, token->text, 36) == 0;
    int i;
    for (i = 0; i < oracle.actor_count; i++) {
        struct actor *actor = &oracle.actors[i];
        if (actor == hand->actor || !oracle_waits(slot, actor)) {
            seen.given += actor == hand->actor && follows && !kept && oracle.quiet;
            slot->passed[i] = 0;
            continue;
        }
        seen.kept += kept && oracle.quiet && oracle_hears(actor);
        slot->passed[i] += kept && oracle_arrived(actor) && oracle_out_of_quarantine(slot, actor) &&
                           !oracle_pauses(slot, actor);
        if (oracle.quiet && oracle_hears(actor) && slot->passed[i] > SIM_PASSED) {
            sim_failed("%s is kept from client %.8s, who waits, by one who hands it on", slot->key,
                       actor->id);
        }
    }
}

/* Fences tell in which order the keys' holds were granted; of those that may be at one time, only
 * that none has another's. */
static inline void oracle_fenced(const struct hand *hand, const struct token *last) {
    const struct token *token = hand->token;
    if (last != NULL && last != token && last->fence != 0 && token->fence != 0 &&
        !fences_apart(last, token) &&
        (last->fence < token->fence) != (last->hold_order < token->hold_order)) {
        sim_failed("hand %d: its fence is not above the one before", hand->number);
    }
}

/* A fence of a queued kind was the counter's value, at the word of this client, and for this hold
 * alone: the same number comes twice only where the counter was lost and the clock set back. A hold
 * that lasts longer than it asks for when it is granted again changes nothing at the server but the
 * counter: so its fence tells when that was. */
static inline void oracle_fence_known(struct hand *hand) {
    struct slot *slot = hand->slot;
    struct token *token = hand->token;
    struct fence *fence = NULL;
    bool others = false;
    unsigned i;
    for (i = 0; i < SIM_FENCES; i++) {
        struct fence *one = &slot->fences[i];
        bool is_for = !one->used && strcmp(one->client_id, hand->actor->id) == 0;
        if (one->value == token->fence && is_for) {
            fence = one;
        }
        others = others || one->value == token->fence;
    }
    if (fence == NULL && (others || slot->fence_count < SIM_FENCES)) {
        sim_failed("hand %d: its fence is another's", hand->number);
    }
    if (fence != NULL) {
        fence->used = true;
        if (token->ordered < fence->script && token->ends_ms > fence->at_ms) {
            token->hold_order = fence->order;
        }
    }
}

/* What is held of a semaphore together, as far as no rule was broken for it. */
static inline void oracle_weighed(const struct hand *hand) {
    int64_t weight = 0, permits = hand->token->permits;
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *other = &oracle.hands[i];
        if (other->slot == hand->slot && other->holds && !other->token->is_void &&
            rlock_is_held(other->lock)) {
            weight += other->weight;
            permits = other->token->permits > permits ? other->token->permits : permits;
        }
    }
    if (weight > permits) {
        sim_failed("%lld of %lld of %s are held", (long long)weight, (long long)permits,
                   hand->slot->key);
    }
}

static inline char hand_sort(const struct hand *hand) {
    return "mfwws"[hand->kind];
}

/* What is held together belongs together, as far as no rule was broken for it. */
static inline void oracle_together(const struct hand *hand) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *other = &oracle.hands[i];
        if (other->slot == hand->slot && other->holds && !other->token->is_void &&
            !hand->token->is_void && rlock_is_held(other->lock) &&
            hand_sort(other) != hand_sort(hand)) {
            sim_failed("hands %d and %d hold %s as two kinds", hand->number, other->number,
                       hand->slot->key);
        }
    }
}

/* What the youngest holds of a handle's keys tell. */
static inline void oracle_follows(struct hand *hand) {
    int i;
    if (slot_queued(hand->slot) && hand->fencing &&
        !((sim.primary != NULL || sim.cluster.on) && hand->token->is_void)) {
        oracle_fence_known(hand);
    }
    for (i = 0; i < hand->slot_count; i++) {
        struct slot *slot = hand->slots[i];
        if (!slot_queued(slot)) {
            oracle_passed(hand, slot);
        }
        if (hand->kind != RLOCK_KIND_SEMAPHORE) {
            oracle_fenced(hand, slot->last);
        }
        if (hand->kind == RLOCK_KIND_WRITE) {
            oracle_fenced(hand, slot->last_read);
        }
        if (hand->kind == RLOCK_KIND_READ) {
            slot->last_read = hand->token;
        } else {
            slot->last = hand->token;
        }
    }
    if (hand->kind == RLOCK_KIND_SEMAPHORE) {
        oracle_weighed(hand);
    }
    oracle_together(hand);
}

/* Counts the readers who waited when the writer of their owner was granted. */
static inline void oracle_stepped_down(const struct hand *reader) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *writer = &oracle.hands[i];
        if (writer->slot == reader->slot && writer->holds && hands_beside(reader, writer)) {
            seen.stepped_down += reader->waiting_us < writer->since_us;
        }
    }
}

/* Expiry is settled before replies are delivered: nobody hears of a success that a reply brought
 * while a hold of the same client, whose deadline had passed when the entry began, is not told. */
static inline void oracle_expiry_first(const struct hand *hand) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *other = &oracle.hands[i];
        if (other->actor == hand->actor && other->holds && !rlock_is_held(other->lock) &&
            (other->lock->claim ? other->lock->claim->until_us < sim.entered_us
                                : other->lock->ready.reason == RLOCK_REASON_EXPIRED)) {
            sim_failed("hand %d hears of a success before hand %d of its loss", hand->number,
                       other->number);
        }
    }
}

static inline void oracle_granted(struct hand *hand, const rlock_event *event) {
    char text[64];
    int i;
    if (oracle.blind) {
        hand_text(hand, text);
        oracle_token(text)->order = ++oracle.orders;
    }
    hand->token = hand_token(hand);
    if (hand->token == NULL) {
        sim_failed("hand %d holds with a token that never was at the server", hand->number);
    }
    if (!oracle_handed_on(hand, event->fence)) {
        oracle_expiry_first(hand);
    }
    hand->token->holder = hand;
    hand->token->fence = event->fence;
    hand->slot->free_since_us = -1; /* of a quorum's key: it may be free again when it is seen */
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
        if (other != hand && other->holds && hands_exclude(hand, other) &&
            rlock_is_held(other->lock)) {
            oracle_overlap(hand, other);
        }
    }
    oracle_follows(hand);
    oracle_stepped_down(hand);
    seen.granted[hand->kind]++;
    seen.votes_granted += oracle.quorum;
    seen.sets += hand->slot_count > 1;
}

static inline void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    hand_called(hand, lock, RLOCK_ACQUIRED, event);
    if (event->status == RLOCK_OK && !hand->holds) {
        hand->holds = true;
        hand->overdue_us = -1;
        hand->since_us = sim.now_us;
        hand->leaves = hand->renewed = false;
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
        hand->renewed = true;
    }
    hand_react(hand, event);
}

static inline void on_released(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    hand_called(hand, lock, RLOCK_RELEASED, event);
    hand->releasing = hand->pending[RLOCK_RELEASED] > 0 && hand->releasing;
    hand->once = hand_asks_now(hand) && !hand->holds ? hand->once_next : hand->once;
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
    if (oracle.quiet && hand->watched && event->reason != RLOCK_REASON_CLOSED &&
        hand->token->forced_us == 0) {
        sim_failed("hand %d loses its hold, although nothing goes wrong", hand->number);
    }
    hand->holds = false;
    if (sim.primary != NULL && event->reason != RLOCK_REASON_EXPIRED) {
        hand->token->stays =
            true; /* a replica may have said so, whose handshake may hide its role */
    }
    seen.lost[event->reason & 7]++;
    hand_react(hand, event);
}

/* The place on its loop that a client has, or NULL. */
static inline struct sim_seat *actor_seat(const struct actor *actor) {
    int i;
    for (i = 0; i < actor->process->seat_count; i++) {
        struct sim_seat *seat = &actor->process->seats[i];
        if (seat->open && seat->client == actor->client) {
            return seat;
        }
    }
    return NULL;
}

/* Somebody waits for an answer of this client, or holds by it. */
static inline bool hand_busy(const struct hand *hand) {
    int kind, pending = 0;
    for (kind = 0; kind <= RLOCK_LOST; kind++) {
        pending += hand->pending[kind];
    }
    return !hand->gone && !hand->actor->gone && !hand->actor->done && (hand->holds || pending > 0);
}

static inline void on_shutdown(rlock_client *client, int status, void *user) {
    struct actor *actor = (struct actor *)user;
    int i;
    sim_trace("client %.8s is shut down: %s", actor->id, rlock_strerror(status));
    sim_note(-4, status);
    sim_does(SIM_CHILD_CALLS_BACK);
    if (actor->client != client || actor->gone || actor->done || oracle.calls > 0) {
        sim_failed("a shutdown's callback that may not come");
    }
    if (actor->cut && status == RLOCK_ERR_CANCELED) {
        actor->cut = false; /* that of the drain; the shutdown's follows */
        return;
    }
    if (actor_seat(actor) != NULL) {
        sim_failed("client %.8s is shut down, and on its loop still", actor->id);
    }
    for (i = 0; i < oracle.hand_count; i++) {
        if (oracle.hands[i].actor == actor && hand_busy(&oracle.hands[i])) {
            sim_failed("hand %d is not told of the end of its client", oracle.hands[i].number);
        }
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

/* Until when, in true time, the server has a key for a token; 0 = it has not. */
static inline int64_t oracle_has_until_us(const struct slot *slot, const struct token *token) {
    int64_t until_us = 0, aside_us;
    if (slot_queued(slot) && token->ends_ms > 0) {
        until_us = sim_true_us(&slot->server->clock, token->ends_ms * 1000);
    } else if (!slot_queued(slot) && slot->there == token) {
        until_us = oracle_end_us(slot);
    }
    aside_us = token->is_void && sim.primary != NULL ? aside_until_us(slot, token) : 0;
    return aside_us > until_us ? aside_us : until_us;
}

/* Whether this machine had what is claimed, and lost it, or may lose it, while it went on as the
 * primary. Nobody asks it for that, and it gets it back when it begins anew. */
static inline bool oracle_apart(const struct sim_server *server, const struct token *token,
                                int64_t end_us) {
    return (sim_is_old(server) || server->was) && end_us <= token->both_us;
}

/* What a handle claims, so many replicas have too: with the primary one more. */
static inline void oracle_synced(const struct hand *hand, const struct slot *slot, int64_t end_us) {
    int i, count = 0, apart = 0;
    for (i = 0; i < sim.server_count; i++) {
        const struct sim_server *server = &sim.servers[i];
        bool is_apart = oracle_apart(server, hand->token, end_us);
        apart += is_apart;
        count +=
            !is_apart && !sim_is_old(server) &&
            sim_true_us(&server->clock, (int64_t)aside_until(server, slot, hand->token)) >= end_us;
    }
    if (count <= oracle.replicas - apart) {
        sim_failed("hand %d claims %s, which %d machines have for so long", hand->number, slot->key,
                   count);
    }
    seen.saved += hand->token->is_void;
}

/* What a handle claims, the server has, and for at least as long. */
static inline void oracle_backed(struct hand *hand, const struct slot *slot) {
    struct token *token = hand->token;
    int64_t left_us = rlock_remaining_ms(hand->lock) * 1000;
    int64_t longest_ms =
        hand->longest_ms > token->longest_ms ? hand->longest_ms : token->longest_ms;
    int64_t until_us = oracle_has_until_us(slot, token);
    bool excused = token->is_void && !oracle_survives(token);
    if (oracle.replicas != 0 && !excused) {
        oracle_synced(hand, slot, sim.now_us + left_us * 995 / 1000 - 1000);
    }
    if (sim.now_us < until_us) {
        if (!excused && sim.now_us + left_us * 995 / 1000 - 1000 > until_us) {
            sim_failed("hand %d claims %s for %lld us longer than the server", hand->number,
                       slot->key, (long long)(sim.now_us + left_us - until_us));
        }
        return;
    }
    if (!excused) {
        sim_failed("hand %d claims %s, the server has %s", hand->number, slot->key,
                   slot->there != NULL ? slot->there->text : "nothing");
    }
    if (token->away_us < 0) {
        token->away_us = sim.now_us;
        seen.guarded += oracle.quarantine_ms != 0;
    }
    if (sim.now_us > token->away_us + longest_ms * 1000) {
        sim_failed("hand %d claims %s for longer than a lease after it was gone", hand->number,
                   slot->key);
    }
}

/* ... each of its keys. */
static inline void oracle_backed_by_all(struct hand *hand) {
    bool all = true;
    int i;
    for (i = 0; i < hand->slot_count && !oracle.blind; i++) {
        oracle_backed(hand, hand->slots[i]);
        all = all && sim.now_us < oracle_has_until_us(hand->slots[i], hand->token);
    }
    if (all) {
        hand->token->away_us = -1;
    }
}

/* The wait of an acquire counts from its call, also where that follows a release. */
static inline void oracle_waited(const struct hand *hand) {
    int64_t since_us = hand->actor->process->paused_until_us;
    since_us = since_us > hand->ends_us ? since_us : hand->ends_us;
    since_us = oracle.settled && since_us < oracle.trouble_us ? oracle.trouble_us : since_us;
    if (hand->ends_us >= 0 && hand->pending[RLOCK_ACQUIRED] > 0 &&
        sim.now_us > since_us + SIM_LATE_US + 2 * sim.weather.linger_us) {
        sim_failed("hand %d waits for longer than it may", hand->number);
    }
}

/* Who is told of changes hears of force at once, or when its hold is registered. */
static inline void oracle_told_of_force(const struct hand *hand) {
    int64_t forced_us = hand->token->forced_us;
    if (oracle.quiet && forced_us != 0 && oracle_hears(hand->actor) &&
        sim.now_us > forced_us + SIM_FORCED_US) {
        sim_failed("hand %d is not told that %s was taken away by force", hand->number,
                   hand->slot->key);
    }
}

static inline void oracle_round(void) {
    int i;
    for (i = 0; i < sim.server_count; i++) {
        if (sim.servers[i].model->full > 0) {
            sim_failed("server %d has no memory, and refuses who is there already", i);
        }
    }
    for (i = 0; i < oracle.hand_count; i++) {
        struct hand *hand = &oracle.hands[i];
        if (!hand->gone && !hand->actor->gone) {
            oracle_waited(hand);
        }
        if (hand_busy(hand) && actor_seat(hand->actor)->idle) {
            sim_failed("hand %d waits or holds, and its loop may end", hand->number);
        }
        if (hand->holds && !hand->gone && !hand->actor->gone) {
            oracle_deadline(hand);
            if (rlock_is_held(hand->lock)) {
                if (oracle.quorum) {
                    quorum_backed(hand);
                }
                oracle_backed_by_all(hand);
                oracle_told_of_force(hand);
            }
        }
    }
}

/* How soon a free key must be taken: by push, by the next poll, or after all of the back-off. */
static inline int64_t oracle_patience_us(const struct sim_server *server) {
    return !oracle.quiet ? 5000000 : server->model->flavour == MODEL_REDIS_5 ? 800000 : 250000;
}

static inline bool hand_waits(const struct hand *hand) {
    return !hand->gone && !hand->actor->gone && !hand->actor->closing && hand_asks_now(hand) &&
           !hand->holds;
}

/* Nobody has a mutex. */
static inline bool slot_free(const struct slot *slot) {
    return slot->there == NULL || oracle_end_us(slot) <= sim.now_us;
}

/* Whether a client believes that it holds the key, which was taken away by force: where nothing is
 * pushed it is told by its next renewal, or at the end of its lease, and asks for nobody before. */
static inline bool slot_believed(const struct slot *slot, const struct actor *actor) {
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        if (hand_wants(hand, slot) && hand->actor == actor && hand->holds &&
            hand->token->forced_us != 0 && !oracle_hears(actor)) {
            return true;
        }
    }
    return false;
}

/* Whether somebody could have this key, with all others that it wants. */
static inline bool slot_wanted(const struct slot *slot) {
    int i, k;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        bool could = hand_waits(hand) && hand_wants(hand, slot) && oracle_patient(hand->actor) &&
                     !slot_believed(slot, hand->actor);
        for (k = 0; k < hand->slot_count && could; k++) {
            could = slot_free(hand->slots[k]);
        }
        if (could) {
            return true;
        }
    }
    return false;
}

/* Whether there is room for who is first in line, or, without one, for somebody who waits. */
static inline bool queue_wanted(const struct slot *slot) {
    const struct token *head = queue_head(slot);
    int64_t used = queue_used(slot);
    bool wanted = false;
    int i;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        wanted = wanted ||
                 (hand->slot == slot && hand_waits(hand) && oracle_patient(hand->actor) &&
                  (head != NULL ||
                   used + hand->weight <= queue_permits(slot, hand_sort(hand), slot->in_force)));
    }
    return wanted && !slot->foreign && !slot->odd_line &&
           (head == NULL || used + head->weight <= queue_permits(slot, head->sort, slot->in_force));
}

/* Who is called asks. */
static inline void queue_asks(const struct slot *slot) {
    int64_t patience_us = 40000 + 4 * sim.weather.slow_us;
    int i;
    for (i = 0; i < slot->member_count && oracle.quiet; i++) {
        const struct token *token = slot->members[i];
        const struct hand *hand = token->offered && token->called ? queue_hand(token) : NULL;
        if (hand != NULL && hand_waits(hand) && sim.now_us > token->came_us + patience_us) {
            sim_failed("hand %d is called, and does not ask for %s", hand->number, slot->key);
        }
    }
}

/* A reader who waits while the writer of its owner holds comes beside it: it asks, unasked. */
static inline void queue_steps_down(const struct slot *slot) {
    int64_t patience_us = 40000 + 8 * sim.weather.slow_us;
    int i, k;
    for (i = 0; i < oracle.hand_count && oracle.quiet; i++) {
        const struct hand *reader = &oracle.hands[i];
        bool waits = reader->slot == slot && reader->kind == RLOCK_KIND_READ && reader->owner &&
                     hand_waits(reader) && oracle_patient(reader->actor);
        for (k = 0; k < oracle.hand_count && waits; k++) {
            const struct hand *writer = &oracle.hands[k];
            int64_t since_us =
                reader->waiting_us > writer->since_us ? reader->waiting_us : writer->since_us;
            if (writer->slot == slot && writer->actor == reader->actor && writer->holds &&
                writer->kind == RLOCK_KIND_WRITE && writer->owner == reader->owner &&
                oracle_has_until_us(slot, writer->token) > sim.now_us &&
                sim.now_us > since_us + patience_us) {
                sim_failed("hand %d does not come beside hand %d, its writer", reader->number,
                           writer->number);
            }
        }
    }
}

/* Whether replicas may be too slow for a grant. */
static inline bool oracle_unsynced(void) {
    return oracle.replicas != 0 && !oracle.settled && (!oracle.quiet || sim.lag_us != 0);
}

/* A key that is free is taken soon, if somebody waits for it and nothing went wrong lately. */
static inline void oracle_liveness(void) {
    int s;
    for (s = 0; s < oracle.slot_count; s++) {
        struct slot *slot = &oracle.slots[s];
        bool queued = slot_queued(slot);
        bool is_wanted = !slot->torn && !oracle_quarantined(slot->server) && !oracle_unsynced() &&
                         (queued ? queue_wanted(slot) : slot_free(slot) && slot_wanted(slot));
        int64_t since_us = oracle.trouble_us, patience_us = oracle_patience_us(slot->server);
        queue_served(slot);
        queue_asks(slot);
        queue_steps_down(slot);
        if (!is_wanted) {
            slot->free_since_us = -1;
        } else if (slot->free_since_us < 0) {
            slot->free_since_us = sim.now_us;
        }
        if (queued) { /* a turn may pass, and it may take half a turn to see it */
            since_us = since_us > slot->changed_us ? since_us : slot->changed_us;
            patience_us += SIM_ITERATION_US * 3 / 2;
        }
        since_us = since_us > slot->free_since_us ? since_us : slot->free_since_us;
        if (slot->free_since_us >= 0 && sim.now_us > since_us + patience_us) {
            sim_failed("%s is free, somebody waits, and nobody takes it", slot->key);
        }
    }
}

/* Who waits may ask once more for every change, of which it is told. */
static inline int64_t oracle_changes(const struct sim_server *server) {
    int64_t changes = 0;
    int i;
    for (i = 0; i < oracle.slot_count; i++) {
        bool its = oracle.slots[i].server == server || sim.cluster.on;
        changes += its ? oracle.slots[i].changes : 0;
    }
    return changes;
}

/* Where nothing goes wrong a client asks a few times for each call, and renews and polls. */
static inline void oracle_commands(int64_t elapsed_us) {
    int i, k;
    for (i = 0; i < oracle.actor_count; i++) {
        struct actor *actor = &oracle.actors[i];
        int64_t rate = actor->server->model->flavour == MODEL_REDIS_5 ? 300 : 60, most;
        int64_t changes = oracle_changes(actor->server);
        for (k = 0; k < oracle.hand_count; k++) { /* the first in line asks twice a turn */
            rate += oracle.hands[k].actor == actor && slot_queued(oracle.hands[k].slot) ? 41 : 0;
        }
        rlock_stats stats;
        if (oracle.quorum) { /* each server is asked, and more than once if votes are split */
            rate *= 3 * sim.server_count;
            changes *= 3 * sim.server_count;
        }
        if (oracle.replicas != 0) { /* what may grant or renew is followed by a WAIT */
            rate *= 2;
            changes *= 2;
        }
        if (!actor->gone) {
            rlock_client_stats(actor->client, &stats);
            most = 100 + 12 * actor->calls + rate * (1 + elapsed_us / 1000000) + changes;
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
    oracle.question_count = 0;
    oracle.calls = 0;
    oracle.stranger = oracle.settled = oracle.quiet = oracle.keeping = oracle.blind = false;
    oracle.deceived = oracle.refusing = oracle.quorum = oracle.moved = oracle.set_back = false;
    oracle.forgot_us = oracle.named_us = oracle.fault_us = 0;
    oracle.quarantine_ms = oracle.lawless_us = 0;
    oracle.replicas = 0;
    memset(&quorum, 0, sizeof quorum);
    oracle.orders = 0;
    oracle.trouble_us = 0;
    oracle.operations = oracle.voids = 0;
    sim.after_entry = oracle_after_entry;
    sim.touched = oracle_touched;
}

/* The key that stands beside another. */
static inline void slot_beside(char text[40], const char *key, const char *what) {
    const char *open = strchr(key, '{');
    bool tagged = open != NULL && strchr(open, '}') != NULL && open[1] != '}';
    snprintf(text, 40, tagged ? "%s:%s" : "rlock:{%s}:%s", key, what);
}

static inline struct slot *slot_new(struct sim_server *server, const char *key) {
    struct slot *slot = &oracle.slots[oracle.slot_count++];
    slot->server = server;
    slot->free_since_us = -1;
    slot->key = key;
    slot_beside(slot->fence_key, key, "fence");
    slot_beside(slot->queue_key, key, "queue");
    return slot;
}

/* NULL if there was no memory; `config` is filled in as far as the world needs it. */
static inline struct actor *actor_new(struct sim_process *process, struct sim_server *server,
                                      rlock_config config, bool unix_socket) {
    static const char *const sentinels[2][SIM_SENTINELS] = {
        {"10.0.0.11:26379", "10.0.0.11:26379,10.0.0.12:26380",
         "10.0.0.11:26379,10.0.0.12:26380,10.0.0.13"},
        {"sentinel-10:26379", "sentinel-10:26379,sentinel-11:26380",
         "sentinel-10:26379,sentinel-11:26380,sentinel-12"}};
    struct actor *actor = &oracle.actors[oracle.actor_count];
    char path[16];
    int status;
    memset(actor, 0, sizeof *actor);
    snprintf(path, sizeof path, "sim-%d", server->number);
    config.loop = sim_loop(process);
    config.port = SIM_PORT + server->number;
    config.unix_path = unix_socket ? path : NULL;
    if (sim.sentinel_count > 0) {
        config.port = 0;
        config.unix_path = NULL;
        config.sentinels = sentinels[sim.sentinels_named][sim.sentinel_count - 1];
        config.sentinel_primary = "locks";
    } else if (sim.cluster.on) {
        config.port = 0;
        config.unix_path = NULL;
        config.cluster = unix_socket ? "127.0.0.1:7000" : "127.0.0.1:7004,127.0.0.1:7001";
    } else if (sim.primary != NULL) { /* found by a hook, or by its name */
        config.port = SIM_PORT;
        config.unix_path = NULL;
        config.connect = unix_socket ? sim_hook_connect : NULL;
        config.host = unix_socket ? NULL : "locks";
    }
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
    actor->longest_ms = actor->client->watchdog_lease_ms;
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

/* What waits ends at once; of a drain not what holds, and waits to hold once more. */
static inline void actor_ends(struct actor *actor, bool drains) {
    int i;
    actor->closing = true;
    actor->draining = drains;
    for (i = 0; i < oracle.hand_count; i++) {
        if (oracle.hands[i].actor == actor && !(drains && oracle.hands[i].holds)) {
            oracle.hands[i].ends_us = sim.now_us;
        }
    }
}

static inline void actor_drain(struct actor *actor, int64_t drain_ms) {
    int status;
    sim_trace("client %.8s: drain", actor->id);
    status = CALL(rlock_client_drain(actor->client, drain_ms, on_shutdown, actor));
    if (status != (actor->closing ? RLOCK_ERR_STATE : RLOCK_OK)) {
        sim_failed("drain gives %s", rlock_strerror(status));
    }
    actor_ends(actor, true);
}

static inline void actor_shutdown(struct actor *actor, int64_t timeout_ms) {
    bool ended = actor->closing && (!actor->draining || actor->client->life != RLOCK__DRAINING);
    int status;
    sim_trace("client %.8s: shutdown", actor->id);
    status = CALL(rlock_client_shutdown(actor->client, timeout_ms, on_shutdown, actor));
    if (status != (ended ? RLOCK_ERR_STATE : RLOCK_OK)) {
        sim_failed("shutdown gives %s", rlock_strerror(status));
    }
    actor->cut = actor->cut || (!ended && actor->draining);
    actor_ends(actor, false);
}

/* ------------------------------------------------------------------------------------------------
 * Questions.
 */

static inline void question_judge(const struct question *question, const rlock_info *info) {
    bool queued = slot_queued(question->slot);
    const struct token *token;
    int i, before = 0;
    if (info->status != RLOCK_OK) {
        return;
    }
    if (info->holders < 0 || (question->op == RLOCK_OP_SET_PERMITS && info->holders != 0) ||
        (info->position >= 0 && (question->hand == NULL || info->position >= info->waiters))) {
        sim_failed("question %d: the answer makes no sense", question->number);
    }
    if (question->op != RLOCK_OP_INSPECT) {
        return;
    }
    if ((info->waiters < 0) != !queued || (info->token != NULL) != (info->holders > 0) ||
        (!queued && info->permits != (info->holders == 0))) {
        sim_failed("question %d: what is held, and by whom, does not fit", question->number);
    }
    if (queued && !oracle.moved &&
        (info->holders > question->most_holders || info->waiters > question->most_waiters)) {
        sim_failed("question %d: %lld hold and %lld wait, there were not so many", question->number,
                   (long long)info->holders, (long long)info->waiters);
    }
    if (question->hand == NULL || question->hand->gone || info->position < 0) {
        return;
    }
    token =
        question->hand->lock->claim != NULL && question->hand->lock->claim->token == question->token
            ? queue_token_of(question->slot, question->actor->id, question->token)
            : NULL;
    for (i = 0; i < question->slot->member_count && token != NULL; i++) {
        const struct token *other = question->slot->members[i];
        before += other->place > 0 && other->place < token->place;
    }
    if (token != NULL && token->came_us > question->asked_us) {
        return; /* it was passed over meanwhile, and stands at the end now */
    }
    if (token != NULL && token->place > 0 && !token->is_void && !oracle.moved &&
        before > info->position) {
        sim_failed("question %d: %d are before it, not %d", question->number, before,
                   (int)info->position);
    }
}

static inline void on_info(rlock_client *client, const rlock_info *info, void *user) {
    struct question *question = (struct question *)user;
    struct actor *actor = question->actor;
    sim_trace("question %d: %s, %lld hold, %lld wait, place %lld", question->number,
              rlock_strerror(info->status), (long long)info->holders, (long long)info->waiters,
              (long long)info->position);
    sim_note(-5, info->status);
    sim_note(info->holders, info->waiters * 1000 + info->position);
    oracle.operations++;
    sim_does(SIM_CHILD_CALLS_BACK);
    if (actor->gone || actor->client != client) {
        sim_failed("question %d is answered after its client was freed", question->number);
    }
    if (question->answered) {
        sim_failed("question %d is answered twice", question->number);
    }
    if (oracle.calls > 0 || sim.entered == NULL || sim.entered->client != client) {
        sim_failed("question %d is answered inside a call, or outside of its client's turn",
                   question->number);
    }
    question->answered = true;
    if (question->op == RLOCK_OP_FORCE && info->status == RLOCK_OK) {
        actor->forces[question->slot - oracle.slots]--;
    }
    if (question->op == RLOCK_OP_SET_PERMITS && info->status == RLOCK_OK) {
        actor->permits[question->slot - oracle.slots]--;
    }
    seen.asked[question->op][info->status <= 0 && info->status > -16 ? -info->status : 15]++;
    seen.unanswered += info->status != RLOCK_OK;
    question_judge(question, info);
    if (question->react != NULL) {
        question->react(question);
    }
}

/* NULL: there are too many. */
static inline struct question *question_new(struct actor *actor, struct slot *slot, rlock_op op) {
    struct question *question = &oracle.questions[oracle.question_count];
    if (oracle.question_count == SIM_QUESTIONS) {
        return NULL;
    }
    memset(question, 0, sizeof *question);
    question->number = oracle.question_count++;
    question->actor = actor;
    question->slot = slot;
    question->op = op;
    question->asked_us = sim.now_us;
    queue_counted(slot, question);
    return question;
}

/* A call that was not accepted has no callback. */
static inline int question_asked(struct question *question, int status) {
    if (status != RLOCK_OK) {
        question->answered = true;
    } else {
        question->actor->calls++;
    }
    if (status == RLOCK_OK && question->op == RLOCK_OP_FORCE) {
        question->actor->forces[question->slot - oracle.slots]++;
    }
    if (status == RLOCK_OK && question->op == RLOCK_OP_SET_PERMITS) {
        question->actor->permits[question->slot - oracle.slots]++;
    }
    if (status != RLOCK_OK && status != RLOCK_ERR_NOMEM &&
        !(status == RLOCK_ERR_CLOSED && (question->actor->closing || question->actor->gone)) &&
        !(status == RLOCK_ERR_STATE && question->hand != NULL)) {
        sim_failed("question %d is refused: %s", question->number, rlock_strerror(status));
    }
    return status;
}

/* Asks about a key as what it is; `permits` is for SET_PERMITS. */
static inline int actor_asks(struct actor *actor, struct slot *slot, rlock_op op, uint32_t permits,
                             void (*react)(struct question *question)) {
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_READ,
                                       RLOCK_KIND_SEMAPHORE};
    struct question *question = question_new(actor, slot, op);
    rlock_options options;
    int status;
    if (question == NULL) {
        return RLOCK_ERR_NOMEM;
    }
    memset(&options, 0, sizeof options);
    options.key = slot->key;
    options.kind = kinds[slot->kind];
    options.permits = slot->kind == SLOT_SEMAPHORE ? (uint32_t)slot->permits : 0;
    question->react = react;
    sim_trace("client %.8s: question %d about %s, op %d", actor->id, question->number, slot->key,
              (int)op);
    call_begin();
    status = op == RLOCK_OP_INSPECT ? rlock_inspect(actor->client, &options, on_info, question)
             : op == RLOCK_OP_FORCE
                 ? rlock_force_release(actor->client, &options, on_info, question)
                 : rlock_set_permits(actor->client, &options, permits, on_info, question);
    return question_asked(question, call_end(status));
}

/* Asks for the place of a handle that waits. */
static inline int hand_asks(struct hand *hand, void (*react)(struct question *question)) {
    struct question *question = question_new(hand->actor, hand->slot, RLOCK_OP_INSPECT);
    rlock__state state = hand_state(hand);
    int status;
    if (question == NULL) {
        return RLOCK_ERR_NOMEM;
    }
    question->hand = hand;
    question->react = react;
    question->token = hand->lock->claim != NULL ? hand->lock->claim->token : 0;
    sim_trace("hand %d: question %d, for its place", hand->number, question->number);
    status = CALL(rlock_queue_position(hand->lock, on_info, question));
    if ((status == RLOCK_OK || status == RLOCK_ERR_NOMEM) &&
        (state != RLOCK__WAITING_STATE || !slot_queued(hand->slot))) {
        sim_failed("hand %d does not wait, and has a place", hand->number);
    }
    return question_asked(question, status);
}

/* Each is answered in time, if its client is not stopped or freed. */
static inline void oracle_answers(void) {
    int i;
    for (i = 0; i < oracle.question_count; i++) {
        const struct question *question = &oracle.questions[i];
        int64_t since_us =
            oracle.trouble_us > question->asked_us ? oracle.trouble_us : question->asked_us;
        if (!question->answered && !question->actor->gone &&
            sim.now_us > since_us + question->actor->command_timeout_ms * 1010 + 100000) {
            sim_failed("question %d is not answered", question->number);
        }
    }
}

/* The key, or the keys, of a handle into its options. */
static inline void hand_keys(struct hand *hand, rlock_options *options, const char *keys[SIM_SET]) {
    int i;
    for (i = 0; i < hand->slot_count; i++) {
        keys[i] = hand->slots[i]->key;
    }
    if (hand->slot_count > 1) {
        options->keys = keys;
        options->key_count = (size_t)hand->slot_count;
    } else {
        options->key = keys[0];
    }
}

/* NULL if there was no memory, or the client is closing. */
static inline struct hand *hand_of(struct actor *actor, struct slot *const slots[], int count,
                                   rlock_options options) {
    struct hand *hand = &oracle.hands[oracle.hand_count];
    const char *keys[SIM_SET];
    int status;
    if (oracle.hand_count == SIM_HANDS) {
        return NULL;
    }
    memset(hand, 0, sizeof *hand);
    memcpy(hand->slots, slots, (size_t)count * sizeof *slots);
    hand->slot = slots[0];
    hand->slot_count = count;
    hand_keys(hand, &options, keys);
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
    hand->kind = options.kind;
    hand->weight = options.weight != 0 ? options.weight : 1;
    hand->owner = options.owner;
    hand->fencing = options.fencing;
    hand->reentrant = options.reentrant;
    hand->max_hold_ms = options.max_hold_ms;
    hand->overdue_us = -1;
    sim_trace("hand %d of client %.8s on %s, kind %d, %d keys, weight %lld, owner %llu",
              hand->number, actor->id, hand->slot->key, (int)hand->kind, hand->slot_count,
              (long long)hand->weight, (unsigned long long)hand->owner);
    return hand;
}

static inline struct hand *hand_new(struct actor *actor, struct slot *slot, rlock_options options) {
    struct slot *const slots[] = {slot};
    return hand_of(actor, slots, 1, options);
}

#endif /* SIM_HANDS_H */
