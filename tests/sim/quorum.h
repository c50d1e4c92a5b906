/* quorum.h - what the oracle knows of a world whose servers are one quorum
 *
 * Each key has a slot a server, as if the servers were alone: there the votes are, and there the
 * rules for keys hold as ever. A handle has a slot of its own, in which nothing stands. What it
 * claims must be backed by a majority of votes that last as long, of which some may have been
 * forgotten on purpose: nobody could know of that yet. So two may hold at one time only after
 * votes were forgotten within a lease, and then one of them has no majority any more.
 */

#ifndef SIM_QUORUM_H
#define SIM_QUORUM_H

#include "keys.h"

#define QUORUM_KEYS 2
#define QUORUM_ORDERS 2 /* in which clients name the servers */

static struct {
    int need;                           /* a majority; 0 = the world has no quorum */
    rlock_store *stores[QUORUM_ORDERS]; /* the same servers, the second in reverse */
    bool reversed[SIM_ACTORS];
    struct slot slots[QUORUM_KEYS]; /* of the handles */
    int slot_count;
    int64_t until_us[SIM_HANDS]; /* the deadline that a handle had when it was looked at last */
    bool thin[SIM_HANDS];        /* its hold was counted as one that a minority did not end */
    int64_t longest_ms;          /* of all leases */
    bool leased;                 /* all of them are long enough for this network */
} quorum;

static inline bool hand_waits(const struct hand *hand);

/* The vote of a server on the key of a handle's slot. */
static inline struct slot *quorum_slot(const struct slot *slot, int server) {
    return &oracle.slots[(slot - quorum.slots) * sim.server_count + server];
}

static inline const rlock__ballot *quorum_ballot(const struct hand *hand) {
    const rlock__quorum *state = (const rlock__quorum *)hand->actor->client->store_state;
    const rlock__ballot *ballot = rlock__ballot_of(state, hand->lock->claim->token);
    if (ballot == NULL) {
        sim_failed("hand %d holds, and there is no ballot", hand->number);
    }
    return ballot;
}

static inline int quorum_server(const struct hand *hand, int vote) {
    return quorum.reversed[hand->actor - oracle.actors] ? sim.server_count - 1 - vote : vote;
}

/* Whether a server is where the handle's process cannot have it. */
static inline bool quorum_away(const struct sim_server *server) {
    return server->down || server->cut || server->paused_until_us > sim.now_us;
}

/* How many servers have the vote of a hold at `end_us`; also those that have forgotten it. */
static inline int quorum_votes(const struct hand *hand, int64_t end_us, bool forgotten) {
    const rlock__ballot *ballot = quorum_ballot(hand);
    int i, count = 0;
    for (i = 0; i < sim.server_count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        const struct slot *slot = quorum_slot(hand->slot, quorum_server(hand, i));
        char text[64];
        int64_t until_us = 0;
        if (vote->spent) { /* it is being given back */
            continue;
        }
        snprintf(text, sizeof text, "%.36s:%llu", hand->actor->id,
                 (unsigned long long)vote->request.token);
        if (slot->there != NULL && strcmp(slot->there->text, text) == 0) {
            until_us = oracle_end_us(slot);
        }
        if (until_us < end_us && forgotten) {
            until_us = oracle_token(text)->forgot_us;
        }
        count += until_us >= end_us;
    }
    return count;
}

/* A hold that a minority did not end: it was renewed while some servers could not be had. */
static inline void quorum_renewed(const struct hand *hand) {
    int64_t until_us = hand->lock->claim->until_us;
    int i, away = 0;
    for (i = 0; i < sim.server_count; i++) {
        away += quorum_away(&sim.servers[i]);
    }
    if (until_us > quorum.until_us[hand->number] && away > 0 && away < quorum.need &&
        !quorum.thin[hand->number]) {
        quorum.thin[hand->number] = true;
        seen.thin++;
    }
    quorum.until_us[hand->number] = until_us;
}

/* What a handle claims, a majority has granted, for at least as long. */
static inline void quorum_backed(const struct hand *hand) {
    int64_t left_us = rlock_remaining_ms(hand->lock) * 1000;
    int64_t end_us = sim.now_us + left_us * 995 / 1000 - 1000;
    if (quorum_votes(hand, end_us, false) < quorum.need &&
        quorum_votes(hand, end_us, true) < quorum.need) {
        sim_failed("hand %d claims %s for %lld us, with %d of %d votes", hand->number,
                   hand->slot->key, (long long)left_us, quorum_votes(hand, end_us, true),
                   sim.server_count);
    }
    quorum_renewed(hand);
}

/* Two holds at one time: only if so many votes were forgotten that with those that the older one
 * never had they are a majority. */
static inline void quorum_overlap(const struct hand *one, const struct hand *other) {
    int64_t longest_ms = one->longest_ms > other->longest_ms ? one->longest_ms : other->longest_ms;
    longest_ms = longest_ms > quorum.longest_ms ? longest_ms : quorum.longest_ms;
    if (oracle.forgot_us == 0 || sim.now_us > oracle.forgot_us + longest_ms * 1010) {
        sim_failed("hands %d and %d both hold %s, and no vote was forgotten", one->number,
                   other->number, one->slot->key);
    }
    if (quorum_votes(one, sim.now_us, false) >= quorum.need &&
        quorum_votes(other, sim.now_us, false) >= quorum.need) {
        sim_failed("hands %d and %d both have a majority for %s", one->number, other->number,
                   one->slot->key);
    }
    if (oracle.quarantine_ms != 0 &&
        (oracle.lawless_us == 0 || sim.now_us > oracle.lawless_us + longest_ms * 1010)) {
        sim_failed("hands %d and %d both hold %s, in spite of quarantines", one->number,
                   other->number, one->slot->key);
    }
    seen.votes_overlaps++;
}

/* Whether a client is told of changes: by a majority. */
static inline bool quorum_hears(const struct actor *actor) {
    int i, count = 0;
    for (i = 0; i < sim.server_count; i++) {
        const struct sim_server *server = &sim.servers[i];
        count += !server->proxied &&
                 (server->model->flavour != MODEL_REDIS_5 || actor->wire == RLOCK_WIRE_REDISSON);
    }
    return count >= quorum.need;
}

/* Whether the servers were in quarantine when this handle was answered last. In a quorum the end of
 * one is no news: it is found out when it is time to ask again. */
static inline bool quorum_guarded(const struct hand *hand) {
    int status = hand->lock->ready.status;
    return oracle.quarantine_ms != 0 && status != RLOCK_OK && status != RLOCK_ERR_TIMEOUT;
}

/* Whether this handle's last try split the votes, or met votes that were split: it asks again after
 * a pause, which is the longer the more often that happens, and no news ends it. */
static inline bool quorum_pauses(const struct hand *hand) {
    const rlock__quorum *state = (const rlock__quorum *)hand->actor->client->store_state;
    const rlock__claim *claim = hand->lock->claim;
    const rlock__ballot *ballot = claim ? rlock__ballot_of(state, claim->token) : NULL;
    return (ballot && ballot->paused) || quorum_guarded(hand);
}

/* What stands there is of a client that lives, and so is given back, or becomes a hold. A clock
 * that was set back may keep it there when its client counts on its end. */
static inline bool quorum_tended(const struct slot *slot) {
    int i;
    for (i = 0; i < oracle.actor_count && !slot->there->is_void && !slot->there->back_us; i++) {
        if (!oracle.actors[i].gone && strncmp(slot->there->text, oracle.actors[i].id, 36) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether who waits can have the key, soon: nobody has it, and a majority of votes is free. Where
 * leases are long enough, votes that are only being asked for, or given back, count as free. */
static inline bool quorum_free(const struct slot *slot) {
    int i, count = 0;
    for (i = 0; i < oracle.hand_count; i++) {
        const struct hand *hand = &oracle.hands[i];
        if (hand->slot == slot && hand->holds && !hand->gone && rlock_is_held(hand->lock)) {
            return false;
        }
    }
    for (i = 0; i < sim.server_count; i++) {
        const struct slot *vote = quorum_slot(slot, i);
        count += !oracle_quarantined(&sim.servers[i]) &&
                 (vote->there == NULL || oracle_end_us(vote) <= sim.now_us ||
                  (quorum.leased && quorum_tended(vote)));
    }
    return count >= quorum.need;
}

/* A key that is free is taken soon, also when the votes were split at first. */
static inline void quorum_liveness(void) {
    int64_t patience_us = oracle.quiet ? 2000000 : 8000000;
    int s, i;
    for (s = 0; s < quorum.slot_count; s++) {
        struct slot *slot = &quorum.slots[s];
        int64_t since_us = oracle.trouble_us;
        bool wanted = false;
        for (i = 0; i < oracle.hand_count; i++) {
            const struct hand *hand = &oracle.hands[i];
            wanted = wanted || (hand->slot == slot && hand_waits(hand) && !hand->once &&
                                oracle_patient(hand->actor));
        }
        if (!wanted || !quorum_free(slot)) {
            slot->free_since_us = -1;
            continue;
        }
        slot->free_since_us = slot->free_since_us < 0 ? sim.now_us : slot->free_since_us;
        since_us = since_us > slot->free_since_us ? since_us : slot->free_since_us;
        if (sim.now_us > since_us + patience_us) {
            sim_failed("%s is free on most servers, somebody waits, and nobody takes it",
                       slot->key);
        }
    }
}

/* The servers of this world become one quorum. */
static inline void quorum_begin(void) {
    rlock_config nodes[SIM_SERVERS];
    char paths[SIM_SERVERS][16];
    int i, k;
    for (k = 0; k < QUORUM_ORDERS; k++) {
        memset(nodes, 0, sizeof nodes);
        for (i = 0; i < sim.server_count; i++) {
            const struct sim_server *server = &sim.servers[k == 0 ? i : sim.server_count - 1 - i];
            snprintf(paths[i], sizeof paths[i], "sim-%d", server->number);
            nodes[i].port = SIM_PORT + server->number;
            nodes[i].unix_path = (i + k) % 3 == 0 ? paths[i] : NULL;
            nodes[i].database = server->database;
            nodes[i].password = server->password;
        }
        if (rlock_quorum_new(&quorum.stores[k], nodes, sim.server_count) != RLOCK_OK) {
            sim_failed("no quorum");
        }
    }
    quorum.need = sim.server_count / 2 + 1;
    sim.watched = SIM_WATCHED;
}

/* After the last of its clients is gone. */
static inline void quorum_end(void) {
    int k;
    for (k = 0; k < QUORUM_ORDERS; k++) {
        rlock_quorum_free(quorum.stores[k]);
        quorum.stores[k] = NULL;
    }
}

#endif /* SIM_QUORUM_H */
