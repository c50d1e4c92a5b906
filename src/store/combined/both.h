/* ------------------------------------------------------------------------------------------------
 * >>both - a store made of two, while a service moves from one to the other: it holds in both
 *
 * It is a quorum of two: neither may fail. What it has of its own:
 * - The second is asked only for what the first has granted, so that two clients never wait for
 *   each other, and whoever waits for the first stands in nobody's way at the second.
 * - A waiter keeps the first while it waits for the second.
 * - A hold has the fencing tokens that it has reserved in both.
 * - A key is held if one of them says so.
 */

#ifndef RLOCK_STORE_COMBINED_BOTH_H
#define RLOCK_STORE_COMBINED_BOTH_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "store/combined/members.h"
#include "store/combined/quorum.h"

#define RLOCK__KEEP_MS 250       /* in so long, or twice, who keeps the first store asks again */
#define RLOCK__FENCES_MAX 65535u /* that one request can reserve */
#define RLOCK__RAISES 16         /* how often in a round more of them are reserved */

typedef struct rlock__range { /* in one store, and given to nobody in between */
    uint64_t fence, last;     /* last 0 = none */
} rlock__range;

typedef struct rlock__both { /* its notes of a round */
    rlock__range reserved[2];
    bool kept; /* between two rounds, for a waiter that has the first and wants the second */
    uint8_t raises;
} rlock__both;

static rlock__both *rlock__both_notes(rlock__ballot *ballot) {
    RLOCK_ASSERT(ballot->quorum->count == 2 && ballot->quorum->rules->notes == sizeof(rlock__both));
    return (rlock__both *)(void *)(ballot + 1);
}

/* The second was not heard of yet. */
static bool rlock__both_unheard(const rlock__vote *second) {
    return !second->spent && second->server->where == RLOCK__SERVER_NEW;
}

/* Whether an acquire may not be asked of this one now. The second has its turn while the first is
 * had; and the first has none if the second fails, so that nobody is disturbed. Between two rounds,
 * what is kept has none. */
static bool rlock__both_waits(rlock__vote *vote) {
    rlock__vote *first = vote->ballot->votes, *second = first + 1;
    bool down = second->server->where == RLOCK__SERVER_DOWN;
    RLOCK_ASSERT(vote == first || vote == second);
    if (!vote->ballot->request) {
        return true;
    }
    if (vote == first && (down || second->word == RLOCK__FAILED)) {
        vote->word = RLOCK__FAILED;
        vote->fault = down ? (uint8_t)second->server->fault : second->fault;
    } else if (vote == second && (first->word == RLOCK__NO || first->word == RLOCK__FAILED)) {
        vote->word = RLOCK__NO;
    }
    if (vote->word != RLOCK__OPEN) {
        return true;
    }
    return vote == first ? rlock__both_unheard(second) || second->request.out
                         : !rlock__both_unheard(second) && first->word == RLOCK__OPEN &&
                               !rlock__vote_stands(first);
}

/* How many fencing tokens to reserve: what the round wants; and once more, of the one that is
 * behind, as far as the other one is. */
static uint16_t rlock__both_fences(const rlock__vote *vote) {
    rlock__ballot *ballot = vote->ballot;
    const rlock__range *reserved = rlock__both_notes(ballot)->reserved;
    uint64_t count = ballot->request->fences;
    int i = vote != ballot->votes;
    if (reserved[i].last) {
        count += reserved[!i].fence - reserved[i].last - 1;
    }
    return (uint16_t)(count < RLOCK__FENCES_MAX ? count : RLOCK__FENCES_MAX);
}

/* A second that was not heard of is sent a release of what nobody has: so it connects, and pushes,
 * before the first is taken. */
static void rlock__both_ask(rlock__vote *vote, uint8_t op, int64_t lease_ms) {
    rlock__ballot *ballot = vote->ballot;
    bool nobody = vote->has == RLOCK__NOT_THERE;
    if (ballot->goal == RLOCK_OP_ACQUIRE) {
        if (rlock__both_waits(vote)) {
            return;
        }
        if (vote != ballot->votes && rlock__both_unheard(vote)) {
            op = RLOCK_OP_RELEASE;
            lease_ms = 0;
        }
    }
    RLOCK_ASSERT(op != RLOCK_OP_ACQUIRE || ballot->request); /* of two, none is won back */
    vote->request.fences = op == RLOCK_OP_ACQUIRE ? rlock__both_fences(vote) : (uint16_t)0;
    rlock__vote_ask(vote, op, lease_ms);
    if (op == RLOCK_OP_RELEASE && nobody) {
        vote->has = RLOCK__NOT_THERE;
    }
}

static void rlock__both_heard(rlock__vote *vote, const rlock_answer *answer) {
    rlock__ballot *ballot = vote->ballot;
    const rlock__quorum *quorum = ballot->quorum;
    const rlock_request *request = &vote->request;
    rlock__both *both = rlock__both_notes(ballot);
    rlock__range *range = &both->reserved[vote != ballot->votes];
    bool release = request->op == RLOCK_OP_RELEASE, stood = rlock__vote_stands(vote);
    bool greeted = release && vote->has == RLOCK__NOT_THERE;
    RLOCK_ASSERT(!request->out);
    rlock__vote_heard(vote, answer);
    if (greeted && answer->outcome == RLOCK_OUTCOME_FAULT && answer->fault != RLOCK_FAULT_TYPE) {
        vote->word = RLOCK__FAILED;
    } else if (release && both->kept && vote->has == RLOCK__NOT_THERE) {
        both->kept = false; /* another waiter of this client may want it */
        quorum->events->woken(quorum->owner, request->key, request->key_len);
    } else if (request->op == RLOCK_OP_ACQUIRE && vote->word == RLOCK__YES && request->fences) {
        range->fence = range->last && stood ? range->fence : answer->fence;
        range->last = answer->fence + (answer->fences ? answer->fences : request->fences) - 1u;
    }
}

/* Both grant: the hold has the fencing tokens that it has reserved in both, which are above all
 * that either gave out, and below all that either will give out. If there are none, the store that
 * is behind reserves more, and is asked for them: false. The answer may become a fault. */
static bool rlock__both_fenced(rlock__ballot *ballot, rlock_answer *answer) {
    rlock__both *both = rlock__both_notes(ballot);
    const rlock__range *one = both->reserved, *other = one + 1;
    int i = one->last >= other->last;
    const rlock__range *behind = &both->reserved[i];
    uint64_t first = one->fence > other->fence ? one->fence : other->fence;
    uint64_t wanted = ballot->request->fences;
    RLOCK_ASSERT(one->last >= one->fence && other->last >= other->fence);
    if (behind->last >= first) {
        uint64_t count = behind->last - first + 1;
        answer->fence = first;
        answer->fences = (uint16_t)(count < wanted ? count : wanted);
        return true;
    }
    if (first - behind->last > (uint64_t)(RLOCK__RAISES - both->raises) * RLOCK__FENCES_MAX) {
        answer->outcome = RLOCK_OUTCOME_FAULT;
        answer->fault = RLOCK_FAULT_OTHER;
        answer->text = "the fencing tokens of the two stores are too far apart";
        return true;
    }
    RLOCK_ASSERT(both->raises < RLOCK__RAISES);
    both->raises++;
    ballot->votes[i].word = RLOCK__OPEN;
    rlock__vote_next(&ballot->votes[i]);
    RLOCK_ASSERT(ballot->votes[i].request.out); /* it granted, and was not lost since */
    return false;
}

/* An acquire and a question hear both. A majority of two is both; but a key is held if one says so,
 * whoever refuses an acquire says for how long, and of two that fail the words of the second are
 * told: perhaps the first was not asked for that reason. */
static bool rlock__both_decided(rlock__ballot *ballot, rlock_answer *answer) {
    rlock__vote *first = ballot->votes, *second = first + 1;
    const rlock_request *round = ballot->request;
    bool acquire = round->op == RLOCK_OP_ACQUIRE;
    if (acquire) { /* whose turn may it be? */
        rlock__vote_next(first);
        rlock__vote_next(second);
    }
    if ((acquire || round->op >= RLOCK_OP_INSPECT) &&
        (first->word == RLOCK__OPEN || second->word == RLOCK__OPEN)) {
        return false;
    }
    if (!rlock__majority_decided(ballot, answer)) {
        return false;
    }
    if (answer->info && (first->word == RLOCK__YES || second->word == RLOCK__YES)) {
        rlock__round_info(ballot, 1);
    } else if (answer->outcome == RLOCK_OUTCOME_HELD) {
        const rlock__vote *refused = first->word == RLOCK__NO ? first : second;
        answer->left_ms = refused->left_ms;
        answer->watched = refused->watched;
    } else if (answer->outcome == RLOCK_OUTCOME_FAULT && second->word == RLOCK__FAILED &&
               second->fault == answer->fault && second->server->text[0]) {
        answer->text = second->server->text;
    }
    return !acquire || !round->fences || answer->outcome != RLOCK_OUTCOME_DONE ||
           rlock__both_fenced(ballot, answer);
}

/* Keeps the first for a waiter that the second refuses. So it is one of those who wait there, and
 * whoever else wants both waits at the first and is not woken meanwhile. The waiter asks again
 * soon, or the first is given back. */
static bool rlock__both_keeps(rlock__ballot *ballot, rlock_answer *answer) {
    const rlock__quorum *quorum = ballot->quorum;
    int64_t pause_ms = rlock__min(quorum->poll_ms, RLOCK__KEEP_MS);
    if (ballot->request->op != RLOCK_OP_ACQUIRE || answer->outcome != RLOCK_OUTCOME_HELD ||
        (ballot->request->flags & RLOCK_REQUEST_ONCE) || ballot->votes[0].word != RLOCK__YES) {
        return false;
    }
    rlock__both_notes(ballot)->kept = true;
    answer->left_ms = answer->left_ms < 0 ? pause_ms : rlock__min(answer->left_ms, pause_ms);
    rlock_timer_set(quorum->client, &ballot->timer,
                    rlock_client_now_us(quorum->client) + 2 * RLOCK__KEEP_MS * 1000);
    return true;
}

static const rlock__rules rlock__of_both = {rlock__both_ask, rlock__both_heard, rlock__both_decided,
                                            rlock__both_keeps, sizeof(rlock__both)};

/* What one of them refuses, both do. */
static const char *rlock__both_refuses(void *state, const char *key, size_t len,
                                       const rlock_terms *terms, bool fencing) {
    const rlock__quorum *quorum = (const rlock__quorum *)state;
    const char *words = terms ? "two stores combined support only a mutex with one key" : NULL;
    int i;
    for (i = 0; i < quorum->count && !words; i++) {
        const rlock__server *server = &quorum->servers[i];
        words = server->store->refuses
                    ? server->store->refuses(server->state, key, len, terms, fencing)
                    : NULL;
    }
    return words;
}

static int rlock__both_open(const rlock_store *store, rlock_client *client,
                            const rlock_config *config, const rlock_store_events *events,
                            void *owner, void **state) {
    int status = rlock__quorum_open(store, client, config, events, owner, state);
    if (status == RLOCK_OK) { /* there is no ballot yet */
        ((rlock__quorum *)*state)->rules = &rlock__of_both;
    }
    return status;
}

static const rlock_store rlock__both_store = {NULL,
                                              rlock__both_open,
                                              rlock__quorum_close,
                                              rlock__quorum_submit,
                                              rlock__quorum_forget,
                                              rlock__quorum_track,
                                              rlock__quorum_flush,
                                              rlock__both_refuses,
                                              NULL,
                                              0,
                                              rlock__quorum_set_credentials};

void rlock_both_free(rlock_store *store) {
    rlock__members_free(store);
}

int rlock_both_new(rlock_store **out, const struct rlock_config *from,
                   const struct rlock_config *to) {
    rlock_config stores[2];
    if (out) {
        *out = NULL;
    }
    if (!from || !to) {
        return RLOCK_ERR_ARG;
    }
    stores[0] = *from;
    stores[1] = *to;
    return rlock__members_new(out, stores, 2, 2, &rlock__both_store);
}

#endif /* RLOCK_STORE_COMBINED_BOTH_H */
