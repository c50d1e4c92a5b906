/* ------------------------------------------------------------------------------------------------
 * >>quorum - a store made of several servers that know nothing of each other: the majority counts
 *
 * Each token is a ballot with a vote of each server. An operation is a round: all servers are asked
 * in one turn, it ends as soon as enough of them have spoken, and what comes later is noted. Four
 * rules keep it safe:
 * - A vote stands if its server has confirmed it, and that lease still runs. In a renewal only
 *   votes that stood when it began may say yes. So from one renewal to the next there is a majority
 *   that had the token all the time, and nobody else had one.
 * - A vote that is missing is asked for again only while a majority stands.
 * - What is wanted no more is given back until each server surely does not have it.
 * - A release that was sent may be executed late. So a vote that was given back is asked for with a
 *   new token, and not before the old one is surely gone there.
 */

#ifndef RLOCK_STORE_COMBINED_QUORUM_H
#define RLOCK_STORE_COMBINED_QUORUM_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "public/lock.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/map.h"
#include "runtime/gone.h"
#include "runtime/who.h"
#include "store/default.h"
#include "store/combined/members.h"

#define RLOCK__SERVERS 15         /* at most */
#define RLOCK__CONTESTED_MAX 10   /* how often the pause after a split vote doubles */
#define RLOCK__WIN_BACK_US 100000 /* not sooner: who takes all votes by force takes one by one */
#define RLOCK__STRAY_MAX_US 10000 /* the longest pause for a single vote that is given back */

enum { RLOCK__SERVER_NEW, RLOCK__SERVER_UP, RLOCK__SERVER_DOWN }; /* NEW: it was not heard of yet */

typedef struct rlock__server { /* one of them, as one client sees it */
    struct rlock__quorum *quorum;
    const rlock_store *store;
    void *state;
    uint8_t where;
    bool pushing;
    rlock_fault fault; /* why it is down */
    char text[128];    /* its last words */
} rlock__server;

struct rlock__vote;
struct rlock__ballot;

/* What depends on whose word counts: a row for the majority is below, one for both of two stores is
 * in store/combined/both.h. */
typedef struct rlock__rules {
    /* Asks one for something; where one waits for another, perhaps not now. */
    void (*ask)(struct rlock__vote *vote, uint8_t op, int64_t lease_ms);
    /* Notes what one has answered. */
    void (*heard)(struct rlock__vote *vote, const rlock_answer *answer);
    /* Whether enough has been said, and what it means. Else it may ask on. */
    bool (*decided)(struct rlock__ballot *ballot, rlock_answer *answer);
    /* Whether a refused acquire keeps what it got, for the next round or until the timer. */
    bool (*keeps)(struct rlock__ballot *ballot, rlock_answer *answer);
    size_t notes; /* bytes of theirs behind each ballot, which are 0 when a round begins */
} rlock__rules;

typedef struct rlock__quorum { /* one client of the quorum */
    bool up, pushing;
    bool gives_back;   /* config.replicas: its servers may be releasing what they granted */
    bool hears_itself; /* where there is no client tracking: what it publishes wakes it too */
    const rlock__rules *rules;
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_stats *stats;
    int64_t timeout_ms, poll_ms;
    rlock__server *servers;
    int count, need, may_fail; /* of them; a majority; how many may fail */
    rlock__map map;            /* ballots by their tokens */
    rlock_link ballots, unused;
    uint32_t unused_count; /* kept for the next ones: no more than there are handles */
    rlock_link refused;    /* requests for which there is no ballot */
    rlock_timer timer;     /* answers those */
    uint64_t tokens;       /* given out: two addresses of one server are not two votes */
    rlock_info info;       /* of the question being answered */
} rlock__quorum;

struct rlock__quorum;

enum { RLOCK__NOT_THERE, RLOCK__MAYBE_THERE, RLOCK__THERE }; /* rlock__vote.has */
enum { RLOCK__OPEN, RLOCK__YES, RLOCK__NO, RLOCK__FAILED, RLOCK__WORDS_OF_A_VOTE };

typedef struct rlock__vote { /* what one server knows of a token */
    uint8_t has;             /* whether the token is there */
    uint8_t word;            /* in this round. OPEN: being asked, or to be asked */
    uint8_t fault;
    bool refused; /* it may not say yes in this round */
    bool spent;   /* a release of this token was sent, and may come late: it is not used again */
    bool stolen;  /* another's token is there */
    bool watched; /* ... and what becomes of it is told */
    struct rlock__ballot *ballot;
    rlock__server *server;
    int64_t sent_us, lease_ms; /* as it was confirmed last */
    int64_t left_ms;           /* of another's lease */
    int64_t over_us;           /* when nothing of ours can come any more; 0 = not known yet */
    int64_t not_before_us;     /* when it may be won back */
    int64_t cut_ms; /* a renewal may come late, and cut a longer lease to this; 0 = none */
    rlock_request request;
} rlock__vote;

typedef struct rlock__ballot { /* one token, until no server has it */
    rlock_link link;
    uint8_t goal; /* ACQUIRE: get it; RENEW: keep it; RELEASE: give it back */
    uint8_t outcome, fault;
    bool paused;   /* the round is over, its answer waits */
    bool cleaning; /* counted as such */
    rlock__quorum *quorum;
    rlock_request *request; /* the round's, NULL = none */
    rlock__vote *votes;
    uint64_t token;
    int64_t since_us, lease_ms; /* of the majority's lease */
    int64_t longest_ms;         /* of all leases asked for */
    int64_t left_ms;            /* with `outcome` and `fault`: the answer that waits */
    uint32_t room;              /* for the key, behind the votes */
    rlock_timer timer;
    rlock__item item; /* its key are the bytes of the token */
#if RLOCK__HAS_DESCRIPTIONS
    rlock_info listed; /* of a question: the longest list that a server gave */
    char *list;        /* ... and where it stands; NULL: none */
#endif
} rlock__ballot;

/* --- votes --- */

static bool rlock__vote_stands(const rlock__vote *vote) {
    return vote->has == RLOCK__THERE && rlock_client_now_us(vote->server->quorum->client) <
                                            vote->sent_us + vote->lease_ms * 1000;
}

static int rlock__ballot_standing(const rlock__ballot *ballot) {
    int i, standing = 0;
    for (i = 0; i < ballot->quorum->count; i++) {
        standing += rlock__vote_stands(&ballot->votes[i]);
    }
    return standing;
}

/* What is left of the lease that the majority gave. */
RLOCK__NOINLINE static int64_t rlock__ballot_left_ms(const rlock__ballot *ballot) {
    int64_t age_us = rlock_client_now_us(ballot->quorum->client) - ballot->since_us;
    int64_t left_ms = ballot->lease_ms - age_us / 1000;
    RLOCK_ASSERT(ballot->lease_ms >= 0 && ballot->lease_ms <= RLOCK_LEASE_MAX_MS);
    return left_ms >= RLOCK_LEASE_MIN_MS ? left_ms : 0;
}

/* A renewal of this vote may be executed late, and cut a longer lease to the longest one that was
 * asked for by then: no longer one is asked for with this token, nor counted. */
static void rlock__vote_comes_late(rlock__vote *vote) {
    const rlock_request *ask = &vote->request;
    RLOCK_ASSERT(ask->op == RLOCK_OP_RENEW);
    if (ask->lease_ms && (!vote->cut_ms || ask->longest_ms < vote->cut_ms)) {
        vote->cut_ms = ask->longest_ms;
    }
}

/* Takes back what is out; what may have been sent may have happened. */
static void rlock__vote_recall(rlock__vote *vote) {
    const rlock__server *server = vote->server;
    bool maybe = vote->request.out && server->store->forget(server->state, &vote->request);
    vote->request.out = false;
    if (maybe && vote->request.op == RLOCK_OP_ACQUIRE) {
        vote->has = vote->has == RLOCK__NOT_THERE ? (uint8_t)RLOCK__MAYBE_THERE : vote->has;
        vote->spent = server->quorum->gives_back; /* no acquire leaves with a spent token */
    }
    if (maybe && vote->request.op == RLOCK_OP_RENEW) {
        rlock__vote_comes_late(vote);
    }
}

static void rlock__vote_ask(rlock__vote *vote, uint8_t op, int64_t lease_ms) {
    rlock__ballot *ballot = vote->ballot;
    rlock_request *ask = &vote->request;
    const rlock_request *round = ballot->request;
    unsigned flags = vote->has != RLOCK__NOT_THERE ? RLOCK_REQUEST_RETRY : 0u;
    RLOCK_ASSERT(!vote->request.out);
    RLOCK_ASSERT(op != RLOCK_OP_RENEW || vote->has == RLOCK__THERE);
    RLOCK_ASSERT(op != RLOCK_OP_ACQUIRE || lease_ms >= RLOCK_LEASE_MIN_MS);
    flags |= round ? round->flags & RLOCK_REQUEST_TRACK : 0u;
    if (op == RLOCK_OP_ACQUIRE && vote->spent) {
        vote->spent = false;
        vote->cut_ms = 0;
        ask->store.note = 0;
        ask->token = ++vote->server->quorum->tokens;
    } else if (op == RLOCK_OP_RELEASE) {
        vote->has = RLOCK__MAYBE_THERE; /* it stands no more, however it ends */
        vote->spent = true;
    }
    if (vote->cut_ms) {
        lease_ms = rlock__min(lease_ms, vote->cut_ms);
    }
    if (lease_ms > ballot->longest_ms) {
        ballot->longest_ms = lease_ms;
    }
    ask->op = op;
    ask->flags = (uint8_t)(op == RLOCK_OP_ACQUIRE ? flags : 0u);
    RLOCK_ASSERT(op < RLOCK_OP_INSPECT || round); /* behind its round a question is given back */
    if (op == RLOCK_OP_INSPECT) {
        ask->flags = round->flags;
    }
    ask->lease_ms = lease_ms;
    ask->longest_ms = op == RLOCK_OP_RENEW ? ballot->longest_ms : 0;
    if (op == RLOCK_OP_RENEW && round && (round->flags & RLOCK_REQUEST_LAST)) {
        ask->longest_ms = lease_ms;
    }
    ask->due_us = round ? round->due_us : rlock_client_now_us(ballot->quorum->client);
    ask->out = true;
    vote->server->store->submit(vote->server->state, ask);
}

/* Asks for what the ballot wants of an open vote, once its server has answered what was before. */
static void rlock__vote_next(rlock__vote *vote) {
    rlock__ballot *ballot = vote->ballot;
    const rlock_request *round = ballot->request;
    uint8_t op = ballot->goal;
    int64_t lease_ms = 0;
    RLOCK_ASSERT(vote->has <= RLOCK__THERE && vote->word < RLOCK__WORDS_OF_A_VOTE);
    if (vote->request.out || vote->word != RLOCK__OPEN) {
        return;
    }
    if (op == RLOCK_OP_RELEASE && vote->has == RLOCK__NOT_THERE) {
        vote->word = RLOCK__NO;
        return;
    }
    if (vote->server->where == RLOCK__SERVER_DOWN) {
        vote->word = RLOCK__FAILED;
        vote->fault = (uint8_t)vote->server->fault;
        return;
    }
    if (vote->spent && vote->has != RLOCK__NOT_THERE) {
        op = RLOCK_OP_RELEASE; /* first this one has to go */
    } else if (op != RLOCK_OP_RELEASE) {
        lease_ms = round ? round->lease_ms : rlock__ballot_left_ms(ballot);
    }
    if (op == RLOCK_OP_RENEW && vote->has != RLOCK__THERE) { /* win it, or win it back */
        op = RLOCK_OP_ACQUIRE;
        lease_ms = lease_ms ? lease_ms : rlock__ballot_left_ms(ballot);
        if (!lease_ms || vote->not_before_us > rlock_client_now_us(ballot->quorum->client) ||
            rlock__ballot_standing(ballot) < ballot->quorum->need) {
            vote->word = RLOCK__NO;
            return;
        }
    }
    ballot->quorum->rules->ask(vote, op, lease_ms);
}

/* --- ballots --- */

static rlock__ballot *rlock__ballot_of(const rlock__quorum *quorum, uint64_t token) {
    rlock__item *item = rlock__map_find(&quorum->map, (const char *)&token, sizeof token);
    return item ? (rlock__ballot *)item->thing : NULL;
}

/* Keeps the list of an answer, if no longer one is there; with NULL it forgets what is there. */
static void rlock__ballot_list(rlock__ballot *ballot, const rlock_info *info) {
#if RLOCK__HAS_DESCRIPTIONS
    bool shorter = ballot->list && info && info->who_count <= ballot->listed.who_count;
    if (shorter || (info && !info->who && !info->untold)) {
        return;
    }
    rlock__dealloc(ballot->list);
    ballot->list = NULL;
    if (info) {
        ballot->listed = *info;
        ballot->list = rlock__who_copy(ballot->quorum->client, &ballot->listed);
    }
#else
    (void)ballot;
    (void)info;
#endif
}

static void rlock__ballot_free(rlock__ballot *ballot) {
    rlock__ballot_list(ballot, NULL);
    rlock__list_remove(&ballot->link);
    rlock_timer_drop(ballot->quorum->client, &ballot->timer);
    rlock__dealloc(ballot);
}

/* Takes one out of those that are unused. */
static rlock__ballot *rlock__ballot_spare(rlock__quorum *quorum) {
    rlock__ballot *ballot = RLOCK__OF(quorum->unused.next, rlock__ballot, link);
    RLOCK_ASSERT(quorum->unused_count && !rlock__list_empty(&quorum->unused));
    rlock__list_remove(&ballot->link);
    quorum->unused_count--;
    return ballot;
}

/* Frees unused ballots until at most `keep` are left. */
static void rlock__quorum_trim(rlock__quorum *quorum, uint32_t keep) {
    while (quorum->unused_count > keep) {
        rlock__ballot_free(rlock__ballot_spare(quorum));
    }
}

/* After each change: a ballot that nobody wants any more goes when no server has it; until then it
 * is seen to that each is asked again. */
static void rlock__ballot_tend(rlock__ballot *ballot) {
    rlock__quorum *quorum = ballot->quorum;
    rlock_client *client = quorum->client;
    bool wanted = ballot->request || ballot->goal != RLOCK_OP_RELEASE;
    bool left = false, idle = false;
    int i;
    for (i = 0; i < quorum->count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        if (vote->has != RLOCK__NOT_THERE || vote->request.out) {
            left = true;
        }
        if (vote->has != RLOCK__NOT_THERE && !vote->request.out &&
            vote->server->where != RLOCK__SERVER_DOWN) {
            idle = true;
        }
    }
    RLOCK_ASSERT(!ballot->cleaning || quorum->stats->cleaning);
    quorum->stats->cleaning -= ballot->cleaning;
    ballot->cleaning = !wanted && left;
    quorum->stats->cleaning += ballot->cleaning;
    if (wanted) {
        return;
    }
    if (!left) {
        rlock_timer_set(client, &ballot->timer, -1);
        rlock__map_remove(&quorum->map, &ballot->item);
        rlock__list_remove(&ballot->link);
        rlock__list_append(&quorum->unused, &ballot->link);
        quorum->unused_count++;
    } else if (idle && !ballot->timer.index) {
        rlock_timer_set(client, &ballot->timer,
                        rlock_client_now_us(client) + rlock__clean_up_pause_us(ballot->longest_ms));
    }
}

static void rlock__ballot_give_back(rlock__ballot *ballot) {
    int i;
    ballot->goal = RLOCK_OP_RELEASE;
    for (i = 0; i < ballot->quorum->count; i++) {
        rlock__vote *vote = &ballot->votes[i];
        if (vote->request.op != RLOCK_OP_RELEASE && vote->request.op != RLOCK_OP_FORCE) {
            rlock__vote_recall(vote); /* of those every server is to hear */
        }
        if (vote->has != RLOCK__NOT_THERE) {
            vote->word = RLOCK__OPEN;
            rlock__vote_next(vote);
        }
    }
}

/* A majority has the last renewal of this token: nothing more is asked of it. */
static void rlock__ballot_leave(rlock__ballot *ballot) {
    int i;
    RLOCK_ASSERT(ballot->goal == RLOCK_OP_RENEW);
    ballot->goal = RLOCK_OP_RELEASE;
    for (i = 0; i < ballot->quorum->count; i++) {
        rlock__vote_recall(&ballot->votes[i]);
        ballot->votes[i].has = RLOCK__NOT_THERE;
    }
}

/* --- rounds --- */

/* The k-th largest, from 1; the values are put into order. */
static int64_t rlock__kth_largest(int64_t *values, int count, int k) {
    int i, j;
    RLOCK_ASSERT(k >= 1 && k <= count);
    for (i = 1; i < count; i++) {
        int64_t value = values[i];
        for (j = i; j > 0 && values[j - 1] < value; j--) {
            values[j] = values[j - 1];
        }
        values[j] = value;
    }
    return values[k - 1];
}

/* When the lease of a majority began: the earliest of the best of those that said yes. None of them
 * gave less than *lease_ms. */
static int64_t rlock__ballot_since(const rlock__ballot *ballot, int64_t *lease_ms) {
    int64_t since_us[RLOCK__SERVERS];
    int i, count = 0;
    for (i = 0; i < ballot->quorum->count; i++) {
        if (ballot->votes[i].word == RLOCK__YES) {
            since_us[count++] = ballot->votes[i].sent_us;
            *lease_ms = rlock__min(*lease_ms, ballot->votes[i].lease_ms);
        }
    }
    RLOCK_ASSERT(count >= ballot->quorum->need);
    RLOCK_ASSERT(count <= RLOCK__SERVERS && *lease_ms > 0);
    return rlock__kth_largest(since_us, count, ballot->quorum->need);
}

/* When a majority can be free; -1 = nobody knows. */
static int64_t rlock__ballot_free_ms(const rlock__ballot *ballot) {
    int64_t free_ms[RLOCK__SERVERS], left_ms;
    int i, count = ballot->quorum->count;
    RLOCK_ASSERT(count <= RLOCK__SERVERS);
    for (i = 0; i < count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        bool known = vote->word == RLOCK__NO && vote->left_ms >= 0;
        free_ms[i] = known ? -vote->left_ms : -RLOCK__NEVER;
    }
    left_ms = -rlock__kth_largest(free_ms, count, ballot->quorum->need);
    return left_ms == RLOCK__NEVER ? -1 : left_ms;
}

/* Of many faults the one to tell: one that time mends, unless too many want an operator. */
static rlock_fault rlock__quorum_fault(const rlock__quorum *quorum, const int *faults) {
    static const rlock_fault order[] = {RLOCK_FAULT_UNKNOWN, RLOCK_FAULT_BUSY, RLOCK_FAULT_DOWN,
                                        RLOCK_FAULT_TYPE,    RLOCK_FAULT_AUTH, RLOCK_FAULT_OTHER,
                                        RLOCK_FAULT_NOMEM};
    int lasting = faults[RLOCK_FAULT_TYPE] + faults[RLOCK_FAULT_AUTH] + faults[RLOCK_FAULT_OTHER] +
                  faults[RLOCK_FAULT_NOMEM];
    int i = lasting > quorum->may_fail ? 3 : 0;
    while (i < 6 && !faults[order[i]]) {
        i++;
    }
    return order[i];
}

static void rlock__round_failed(const rlock__ballot *ballot, const int *faults,
                                rlock_answer *answer) {
    int i;
    answer->outcome = RLOCK_OUTCOME_FAULT;
    answer->fault = rlock__quorum_fault(ballot->quorum, faults);
    for (i = 0; i < ballot->quorum->count && !answer->text; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        if (vote->word == RLOCK__FAILED && vote->fault == answer->fault && vote->server->text[0]) {
            answer->text = vote->server->text;
        }
    }
}

/* The answer to a question: held, if so many servers are, and as long as they are; 0 = free. */
static void rlock__round_info(const rlock__ballot *ballot, int held) {
    rlock_info *info = &ballot->quorum->info;
    int64_t left_ms[RLOCK__SERVERS];
    int i, count = 0;
    for (i = 0; i < ballot->quorum->count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        if (vote->word == RLOCK__YES) {
            left_ms[count++] = vote->left_ms < 0 ? RLOCK__NEVER : vote->left_ms;
        }
    }
    memset(info, 0, sizeof *info);
    info->waiters = info->position = -1;
#if RLOCK__HAS_DESCRIPTIONS
    if (ballot->list) {
        info->who = ballot->listed.who;
        info->who_count = ballot->listed.who_count;
        info->untold = ballot->listed.untold;
    }
#endif
    info->holders = held > 0;
    info->permits = !held;
    if (held) {
        RLOCK_ASSERT(held <= count);
        info->left_ms = rlock__kth_largest(left_ms, count, held);
        info->left_ms = info->left_ms == RLOCK__NEVER ? -1 : info->left_ms;
    }
}

/* Whether enough has been said, and what it means. */
static bool rlock__majority_decided(rlock__ballot *ballot, rlock_answer *answer) {
    const rlock_request *round = ballot->request;
    int need = ballot->quorum->need, may_fail = ballot->quorum->may_fail, stolen = 0, watched = 0,
        i;
    int words[RLOCK__WORDS_OF_A_VOTE] = {0}, faults[RLOCK_FAULT_OTHER + 1] = {0};
    int *yes = &words[RLOCK__YES], *no = &words[RLOCK__NO];
    int *failed = &words[RLOCK__FAILED], *open = &words[RLOCK__OPEN];
    bool renew = round->op == RLOCK_OP_RENEW, refused, done, possible;
    for (i = 0; i < ballot->quorum->count; i++) {
        const rlock__vote *vote = &ballot->votes[i];
        int word = vote->refused ? (int)RLOCK__NO : vote->word;
        words[word]++;
        if (word == RLOCK__FAILED) {
            faults[vote->fault]++;
        } else if (word == RLOCK__NO) {
            if (vote->stolen) {
                stolen++;
            }
            if (vote->watched) {
                watched++;
            }
        }
    }
    RLOCK_ASSERT(*yes + *no + *failed + *open == ballot->quorum->count);
    if (round->op == RLOCK_OP_RELEASE) { /* a majority is free for others; or none can have it */
        refused = *no > may_fail;
        possible = *open > 0;
        done = *yes >= need || (!possible && *yes + *no > may_fail);
    } else { /* of an acquire, faults that leave a majority do not hide that others are there */
        refused = renew ? *no > may_fail : *no + *failed > may_fail && *failed <= may_fail;
        possible = *yes + *open >= need;
        done = *yes >= need;
    }
    memset(answer, 0, sizeof *answer);
    answer->settled = true; /* what may come yet is cleaned up here */
    if (RLOCK__HAS_KINDS && round->op >= RLOCK_OP_INSPECT && (refused || done)) {
        rlock__round_info(ballot, done ? need : 0);
        answer->info = &ballot->quorum->info;
    } else if (refused && round->op == RLOCK_OP_ACQUIRE) {
        bool contested =
            *yes || *no <= may_fail; /* perhaps nobody has it: see rlock__round_pause */
        answer->outcome = RLOCK_OUTCOME_HELD;
        answer->left_ms = contested ? 0 : rlock__ballot_free_ms(ballot);
        answer->watched = !contested && watched >= need;
    } else if (refused) {
        answer->outcome = stolen * 2 > *no ? RLOCK_OUTCOME_STOLEN : RLOCK_OUTCOME_GONE;
    } else if (!done && possible) {
        return false;
    } else if (!done) {
        rlock__round_failed(ballot, faults, answer);
    }
    return true;
}

/* Whether a vote is being given back: behind rlock__ballot_give_back nothing else is out. */
static bool rlock__ballot_strays(const rlock__ballot *ballot) {
    int i = 0;
    while (i < ballot->quorum->count && !ballot->votes[i].request.out) {
        i++;
    }
    return i < ballot->quorum->count;
}

/* Whether nobody got a majority, or votes are given back, now or soon: news of that wakes all who
 * wait, this one too, and each would ask again at once, without end. */
static bool rlock__round_pauses(const rlock__ballot *ballot, const rlock_answer *answer) {
    bool held = answer->outcome == RLOCK_OUTCOME_HELD, mended = false;
    bool watched = (ballot->request->flags & RLOCK_REQUEST_TRACK) != 0;
    if (answer->outcome == RLOCK_OUTCOME_FAULT) { /* the others are told at once: they end it */
        mended = answer->fault == RLOCK_FAULT_DOWN || answer->fault == RLOCK_FAULT_BUSY ||
                 answer->fault == RLOCK_FAULT_UNKNOWN;
    }
    if (ballot->request->op != RLOCK_OP_ACQUIRE || !watched || !(held || mended)) {
        return false;
    }
    return ((mended || ballot->quorum->hears_itself) && rlock__ballot_strays(ballot)) ||
           (held && answer->left_ms == 0);
}

/* The vote was split. Whoever is told so asks again at once; so it is told after a while, at random
 * and the longer the more often, in which what is given back can become somebody's majority. News
 * of that to the waiter only marks its try, which is still out. */
static void rlock__round_pause(rlock__ballot *ballot, const rlock_answer *answer) {
    rlock_client *client = ballot->quorum->client;
    rlock_request *request = ballot->request;
    int64_t now_us = rlock_client_now_us(client);
    int64_t limit_us = now_us - request->sent_us + 1000, most_us = ballot->quorum->poll_ms * 1000;
    RLOCK_ASSERT(!ballot->paused);
    if (answer->outcome == RLOCK_OUTCOME_HELD && answer->left_ms != 0) {
        most_us = rlock__min(most_us, RLOCK__STRAY_MAX_US); /* somebody has it, and is waited for */
    }
    if (request->store.note < RLOCK__CONTESTED_MAX) {
        request->store.note++;
    }
    limit_us = rlock__min(limit_us << request->store.note, most_us);
    RLOCK_ASSERT(limit_us > 0 && request->store.note <= RLOCK__CONTESTED_MAX);
    ballot->paused = true;
    ballot->outcome = (uint8_t)answer->outcome;
    ballot->fault = (uint8_t)answer->fault;
    ballot->left_ms = answer->left_ms;
    rlock_timer_set(client, &ballot->timer,
                    now_us + (int64_t)(rlock_client_random(client) % (uint64_t)limit_us));
}

static void rlock__round_answer(rlock__ballot *ballot, const rlock_answer *answer) {
    const rlock__quorum *quorum = ballot->quorum;
    rlock_request *request = ballot->request;
    RLOCK_ASSERT(request && request->store.data == ballot);
    ballot->request = NULL;
    ballot->paused = false;
    rlock__ballot_tend(ballot);
    quorum->events->answered(quorum->owner, request, answer);
}

/* Ends the round if it can be. The ballot may be gone behind this. */
static void rlock__round_settle(rlock__ballot *ballot) {
    rlock_request *request = ballot->request;
    const rlock__rules *rules = ballot->quorum->rules;
    rlock_answer answer;
    if (!request || ballot->paused || !rules->decided(ballot, &answer)) {
        rlock__ballot_tend(ballot);
        return;
    }
    if (answer.outcome == RLOCK_OUTCOME_DONE && request->op < RLOCK_OP_RELEASE) {
        ballot->goal = RLOCK_OP_RENEW;
        if (request->lease_ms) {
            answer.lease_ms = request->lease_ms;
            request->sent_us = rlock__ballot_since(ballot, &answer.lease_ms);
            ballot->since_us = request->sent_us;
            ballot->lease_ms = answer.lease_ms;
            RLOCK_ASSERT(answer.lease_ms > 0 && answer.lease_ms <= request->lease_ms);
        }
        if (RLOCK__HAS_TOKENS && (request->flags & RLOCK_REQUEST_LAST)) {
            rlock__ballot_leave(ballot);
        }
    } else if (rules->keeps(ballot, &answer)) {
        rlock__round_answer(ballot, &answer);
        return;
    } else if (answer.outcome != RLOCK_OUTCOME_FAULT || request->op == RLOCK_OP_ACQUIRE ||
               request->op >= RLOCK_OP_INSPECT) {
        rlock__ballot_give_back(ballot);
    }
    if (rlock__round_pauses(ballot, &answer)) {
        rlock__round_pause(ballot, &answer);
        return;
    }
    if (answer.outcome == RLOCK_OUTCOME_HELD && answer.left_ms == 0) {
        answer.left_ms = -1;
    } else {
        request->store.note = 0; /* somebody has it: the next split is another one */
    }
    rlock__round_answer(ballot, &answer);
}

static void rlock__round_begin(rlock__ballot *ballot) {
    uint8_t op = ballot->request->op;
    int i;
    RLOCK_ASSERT(ballot->request && !ballot->paused);
    for (i = 0; i < ballot->quorum->count; i++) {
        rlock__vote *vote = &ballot->votes[i];
        if (vote->request.op != RLOCK_OP_RELEASE) { /* what is given back goes first */
            rlock__vote_recall(vote);
        }
        vote->refused = op == RLOCK_OP_RENEW && !rlock__vote_stands(vote);
        vote->stolen = false;
        if (op != RLOCK_OP_RELEASE || vote->has != RLOCK__NOT_THERE) {
            vote->word = RLOCK__OPEN;
        } else if (ballot->goal != RLOCK_OP_RELEASE || vote->word != RLOCK__YES) {
            vote->word = RLOCK__NO; /* else the release before this one has done it */
        }
    }
    ballot->goal = op;
    memset(ballot + 1, 0, ballot->quorum->rules->notes);
    for (i = 0; i < ballot->quorum->count; i++) {
        rlock__vote_next(&ballot->votes[i]);
    }
}

/* The round can be over with no server asked; or it is time to ask once more who still has it. */
static void rlock__ballot_fire(rlock_timer *timer) {
    rlock__ballot *ballot = RLOCK__OF(timer, rlock__ballot, timer);
    int i;
    if (ballot->paused) {
        rlock_answer answer;
        memset(&answer, 0, sizeof answer);
        answer.outcome = (rlock_outcome)ballot->outcome;
        answer.fault = (rlock_fault)ballot->fault;
        answer.left_ms = ballot->left_ms;
        answer.settled = true;
        rlock__round_answer(ballot, &answer);
        return;
    }
    if (!ballot->request && ballot->goal == RLOCK_OP_ACQUIRE) { /* it was kept in vain */
        rlock__ballot_give_back(ballot);
    }
    for (i = 0; i < ballot->quorum->count && !ballot->request; i++) {
        rlock__vote *vote = &ballot->votes[i];
        bool missing = ballot->goal == RLOCK_OP_RENEW && vote->has == RLOCK__NOT_THERE;
        if ((ballot->goal == RLOCK_OP_RELEASE || missing) && !vote->request.out) {
            vote->word = RLOCK__OPEN;
            rlock__vote_next(vote);
        }
    }
    if (ballot->request && ballot->goal == RLOCK_OP_RENEW) {
        rlock_timer_set(ballot->quorum->client, timer,
                        rlock_client_now_us(ballot->quorum->client) + RLOCK__WIN_BACK_US);
    }
    rlock__round_settle(ballot);
}

/* An unused one, or a new one. All that its release will need is there. */
static rlock__ballot *rlock__ballot_room(rlock__quorum *quorum, uint32_t key_len) {
    size_t votes = (size_t)quorum->count * sizeof(rlock__vote), notes = quorum->rules->notes;
    rlock__ballot *ballot;
    if (quorum->unused_count) {
        ballot = rlock__ballot_spare(quorum);
        if (ballot->room >= key_len) {
            RLOCK_ASSERT(ballot->quorum == quorum);
            return ballot;
        }
        rlock__ballot_free(ballot);
    }
    key_len = (key_len + 63u) & ~63u; /* so that it suits the next key too */
    ballot = (rlock__ballot *)rlock__alloc(sizeof *ballot + notes + votes + key_len);
    if (!ballot ||
        rlock_timer_add(quorum->client, &ballot->timer, rlock__ballot_fire) != RLOCK_OK) {
        rlock__dealloc(ballot);
        return NULL;
    }
    ballot->quorum = quorum;
    ballot->votes = (rlock__vote *)(void *)((char *)(ballot + 1) + notes);
    ballot->room = key_len;
    return ballot;
}

static rlock__ballot *rlock__ballot_new(rlock__quorum *quorum, const rlock_request *request) {
    rlock__ballot *ballot = rlock__ballot_room(quorum, request->key_len);
    bool question = request->op >= RLOCK_OP_INSPECT;
    char *key;
    int i;
    if (!ballot) {
        return NULL;
    }
    rlock__ballot_list(ballot, NULL);
    RLOCK_ASSERT(ballot->room >= request->key_len);
    RLOCK_ASSERT(question || !rlock__ballot_of(quorum, request->token));
    key = (char *)(ballot->votes + quorum->count);
    memcpy(key, request->key, request->key_len);
    memset(ballot->votes, 0, (size_t)quorum->count * sizeof *ballot->votes);
    for (i = 0; i < quorum->count; i++) {
        rlock__vote *vote = &ballot->votes[i];
        vote->ballot = ballot;
        vote->server = &quorum->servers[i];
        vote->request = *request;
        vote->request.key = key;
        memset(&vote->request.store, 0, sizeof vote->request.store);
        vote->request.out = false;
        vote->request.token = ++quorum->tokens;
    }
    ballot->request = NULL;
    ballot->token = question ? ~quorum->tokens : request->token; /* no claim's, no other's */
    ballot->since_us = ballot->lease_ms = ballot->longest_ms = 0;
    ballot->goal = RLOCK_OP_ACQUIRE;
    ballot->paused = ballot->cleaning = false;
    rlock__list_append(&quorum->ballots, &ballot->link);
    rlock__map_add(&quorum->map, &ballot->item, ballot, (const char *)&ballot->token,
                   sizeof ballot->token);
    return ballot;
}

/* --- what one server reports --- */

static void rlock__server_says(rlock__server *server, const char *text) {
    size_t n = 0;
    while (text && text[n] && n < sizeof server->text - 1) {
        server->text[n] = text[n];
        n++;
    }
    server->text[n] = 0;
}

static bool rlock__vote_gone(rlock__vote *vote, const rlock_answer *answer) {
    const rlock__quorum *quorum = vote->server->quorum;
    RLOCK_ASSERT(vote->request.op == RLOCK_OP_RELEASE);
    return rlock__surely_gone(answer, &vote->over_us, rlock_client_now_us(quorum->client),
                              vote->ballot->longest_ms, quorum->timeout_ms);
}

/* Notes what a server says of a token. */
static void rlock__vote_note(rlock__vote *vote, const rlock_answer *answer) {
    const rlock_request *asked = &vote->request;
    bool acquire = asked->op == RLOCK_OP_ACQUIRE, release = asked->op == RLOCK_OP_RELEASE;
    bool hold = release || asked->op == RLOCK_OP_RENEW;
    bool fault = answer->outcome == RLOCK_OUTCOME_FAULT &&
                 !(hold && answer->fault == RLOCK_FAULT_TYPE); /* no lock is there at all */
    RLOCK_ASSERT(!asked->out);
    vote->left_ms = answer->left_ms;
    vote->watched = answer->watched;
    if (release && rlock__vote_gone(vote, answer)) {
        vote->has = RLOCK__NOT_THERE;
        vote->over_us = 0;
    }
    if (fault) {
        bool maybe = acquire && (rlock__may_exist(answer) || answer->spent);
        vote->word = RLOCK__FAILED;
        vote->fault = (uint8_t)answer->fault;
        vote->has = maybe && !vote->has ? (uint8_t)RLOCK__MAYBE_THERE : vote->has;
        if (answer->spent) {
            vote->spent = true;
        }
        if (hold && !release && !answer->undone && answer->fault != RLOCK_FAULT_DOWN) {
            rlock__vote_comes_late(vote);
        }
        rlock__server_says(vote->server, answer->text);
    } else if (RLOCK__HAS_KINDS && answer->info) {
        rlock__ballot_list(vote->ballot, answer->info);
        vote->word = answer->info->holders ? RLOCK__YES : RLOCK__NO;
        vote->left_ms = answer->info->left_ms;
    } else if (answer->outcome == RLOCK_OUTCOME_DONE) {
        vote->word = RLOCK__YES;
        if (!release) {
            vote->has = RLOCK__THERE;
        }
        if (!release && asked->lease_ms) {
            vote->sent_us = asked->sent_us;
            vote->lease_ms = answer->lease_ms > 0 ? rlock__min(answer->lease_ms, asked->lease_ms)
                                                  : asked->lease_ms;
        }
    } else {
        bool gone = answer->settled || vote->has == RLOCK__NOT_THERE;
        vote->word = RLOCK__NO;
        vote->stolen = answer->outcome != RLOCK_OUTCOME_GONE;
        if (!release) {
            vote->has = gone ? RLOCK__NOT_THERE : RLOCK__MAYBE_THERE;
        }
    }
}

/* Notes what it means for the round, and for the next ones. */
static void rlock__vote_heard(rlock__vote *vote, const rlock_answer *answer) {
    const rlock__quorum *quorum = vote->server->quorum;
    const rlock_request *request = &vote->request;
    rlock__ballot *ballot = vote->ballot;
    rlock__vote_note(vote, answer);
    if (request->op == RLOCK_OP_RELEASE && ballot->goal != RLOCK_OP_RELEASE) {
        bool gone = vote->has == RLOCK__NOT_THERE; /* else not before it is sure */
        vote->fault = vote->word == RLOCK__FAILED ? vote->fault : (uint8_t)RLOCK_FAULT_UNKNOWN;
        vote->word = gone ? (uint8_t)RLOCK__OPEN : (uint8_t)RLOCK__FAILED;
    } else if (request->op == RLOCK_OP_RENEW && vote->word == RLOCK__NO) {
        vote->refused = true;
        vote->not_before_us = rlock_client_now_us(quorum->client) + RLOCK__WIN_BACK_US;
        rlock_timer_set(quorum->client, &ballot->timer, vote->not_before_us);
        if (!ballot->request && rlock__ballot_standing(ballot) < quorum->need) {
            quorum->events->woken(quorum->owner, request->key, request->key_len);
        }
    }
}

static void rlock__server_answered(void *owner, rlock_request *request,
                                   const rlock_answer *answer) {
    rlock__vote *vote = RLOCK__OF(request, rlock__vote, request);
    RLOCK_ASSERT(request->out);
    request->out = false;
    ((rlock__server *)owner)->quorum->rules->heard(vote, answer);
    rlock__vote_next(vote);
    rlock__round_settle(vote->ballot);
}

/* Calls visit for the vote of one server in every ballot of a part of its keys; it may free that
 * one, and make others. */
static void rlock__server_each(rlock__server *server, const rlock_part *part,
                               void (*visit)(rlock__vote *vote)) {
    rlock__quorum *quorum = server->quorum;
    rlock__vote *vote;
    rlock_link all;
    rlock__list_init(&all);
    rlock__list_move(&all, &quorum->ballots);
    while (!rlock__list_empty(&all)) {
        rlock__ballot *ballot = RLOCK__OF(all.next, rlock__ballot, link);
        rlock__list_remove(&ballot->link);
        rlock__list_append(&quorum->ballots, &ballot->link);
        vote = &ballot->votes[server - quorum->servers];
        if (!part || part->has(part, vote->request.key, vote->request.key_len)) {
            visit(vote);
        }
    }
}

static void rlock__vote_up(rlock__vote *vote) {
    RLOCK_ASSERT(vote->server->where == RLOCK__SERVER_UP);
    if (!vote->ballot->request || vote->word == RLOCK__FAILED) {
        vote->word = RLOCK__OPEN;
        rlock__vote_next(vote);
        rlock__round_settle(vote->ballot);
    }
}

/* A yes from before the connection was lost makes no majority: the server may have forgotten it,
 * and given its vote to others. It is asked once more. */
static void rlock__vote_down(rlock__vote *vote) {
    const rlock_request *round = vote->ballot->request;
    RLOCK_ASSERT(vote->server->where == RLOCK__SERVER_DOWN);
    rlock__vote_recall(vote);
    if (round && round->op == RLOCK_OP_ACQUIRE && vote->word == RLOCK__YES) {
        vote->word = RLOCK__OPEN;
    }
    rlock__vote_next(vote); /* which finds the server down */
    rlock__round_settle(vote->ballot);
}

static int rlock__quorum_where(const rlock__quorum *quorum, int where) {
    int i, count = 0;
    for (i = 0; i < quorum->count; i++) {
        count += quorum->servers[i].where == where;
    }
    return count;
}

static void rlock__server_up(void *owner, const rlock_part *part) {
    rlock__server *server = (rlock__server *)owner;
    rlock__quorum *quorum = server->quorum;
    server->where = RLOCK__SERVER_UP;
    if (!quorum->up && rlock__quorum_where(quorum, RLOCK__SERVER_UP) >= quorum->need) {
        quorum->up = true;
        quorum->events->up(quorum->owner, NULL);
    }
    rlock__server_each(server, part, rlock__vote_up);
}

static void rlock__server_down(void *owner, const rlock_part *part, rlock_fault fault,
                               const char *text) {
    rlock__server *server = (rlock__server *)owner;
    rlock__quorum *quorum = server->quorum;
    int faults[RLOCK_FAULT_OTHER + 1] = {0}, i;
    uint8_t where = server->where;
    server->where = RLOCK__SERVER_DOWN;
    server->fault = fault;
    rlock__server_says(server, text);
    rlock__server_each(server, part, rlock__vote_down);
    server->where = part ? where : server->where;
    if (rlock__quorum_where(quorum, RLOCK__SERVER_DOWN) <= quorum->may_fail) {
        quorum->stats->faults++;
        return;
    }
    for (i = 0; i < quorum->count; i++) {
        if (quorum->servers[i].where == RLOCK__SERVER_DOWN) {
            faults[quorum->servers[i].fault]++;
        }
    }
    quorum->up = false;
    fault = rlock__quorum_fault(quorum, faults);
    for (i = 0; server->fault != fault; i++) { /* the words of that fault */
        RLOCK_ASSERT(i < quorum->count);
        if (quorum->servers[i].where == RLOCK__SERVER_DOWN && quorum->servers[i].fault == fault) {
            server = &quorum->servers[i];
        }
    }
    quorum->events->down(quorum->owner, NULL, fault, server->text);
}

/* On where a majority pushes: it and the majority of whoever holds a key have a server in common.
 * Said again for each server that joins them: what changed there in between was not told. */
static void rlock__server_pushing(void *owner, const rlock_part *part, unsigned what) {
    rlock__server *server = (rlock__server *)owner;
    rlock__quorum *quorum = server->quorum;
    bool enough, on = (what & RLOCK_PUSH_CHANGES) && (!part || server->pushing);
    int i, count = 0;
    server->pushing = on;
    for (i = 0; i < quorum->count; i++) {
        count += quorum->servers[i].pushing;
    }
    enough = count >= quorum->need;
    if (enough ? on : quorum->pushing) {
        quorum->pushing = enough;
        quorum->events->pushing(quorum->owner, NULL, enough ? RLOCK_PUSH_CHANGES : 0u);
    }
}

static void rlock__server_woken(void *owner, const char *key, size_t key_len) {
    const rlock__quorum *quorum = ((rlock__server *)owner)->quorum;
    quorum->events->woken(quorum->owner, key, key_len);
}

/* There is no line. */
static void rlock__server_notified(void *owner, const char *key, size_t key_len, uint64_t token) {
    (void)owner;
    (void)key;
    (void)key_len;
    (void)token;
}

static const rlock_store_events rlock__server_events = {
    rlock__server_answered, rlock__server_up,    rlock__server_down,
    rlock__server_pushing,  rlock__server_woken, rlock__server_notified};

/* --- the store --- */

/* Answers what there is no ballot for: nobody has that token, or none could be made. */
static void rlock__quorum_fire(rlock_timer *timer) {
    rlock__quorum *quorum = RLOCK__OF(timer, rlock__quorum, timer);
    rlock_link refused;
    rlock__list_init(&refused);
    rlock__list_move(&refused, &quorum->refused);
    while (!rlock__list_empty(&refused)) {
        rlock_request *request = RLOCK__OF(refused.next, rlock_request, store.link);
        rlock_answer answer;
        memset(&answer, 0, sizeof answer);
        answer.settled = true;
        answer.outcome = RLOCK_OUTCOME_GONE;
        if (request->op == RLOCK_OP_ACQUIRE || request->op >= RLOCK_OP_INSPECT) {
            answer.outcome = RLOCK_OUTCOME_FAULT;
            answer.fault = RLOCK_FAULT_NOMEM;
        }
        rlock__list_remove(&request->store.link);
        quorum->events->answered(quorum->owner, request, &answer);
    }
}

static void rlock__quorum_submit(void *state, rlock_request *request) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    bool question = RLOCK__HAS_KINDS && request->op >= RLOCK_OP_INSPECT;
    rlock__ballot *ballot = question ? NULL : rlock__ballot_of(quorum, request->token);
    rlock_answer answer;
    request->sent_us = rlock_client_now_us(quorum->client);
    if (!ballot && (question || request->op == RLOCK_OP_ACQUIRE)) {
        ballot = rlock__ballot_new(quorum, request);
    }
    request->store.data = ballot;
    if (!ballot) {
        rlock__list_append(&quorum->refused, &request->store.link);
        rlock_timer_set(quorum->client, &quorum->timer, request->sent_us);
        return;
    }
    RLOCK_ASSERT(!ballot->request);
    ballot->request = request;
    rlock__round_begin(ballot);
    rlock__ballot_tend(ballot);
    if (quorum->rules->decided(ballot, &answer)) { /* but nothing is answered in here */
        rlock_timer_set(quorum->client, &ballot->timer, request->sent_us);
    }
}

static bool rlock__quorum_forget(void *state, rlock_request *request) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    rlock__ballot *ballot = (rlock__ballot *)request->store.data;
    bool maybe = request->op >= RLOCK_OP_INSPECT;
    int i;
    if (!ballot) {
        rlock__list_remove(&request->store.link);
        return false;
    }
    RLOCK_ASSERT(ballot->request == request);
    ballot->request = NULL;
    ballot->paused = false;
    if (request->op == RLOCK_OP_ACQUIRE || request->op >= RLOCK_OP_INSPECT) {
        rlock__ballot_give_back(ballot);
    }
    for (i = 0; i < quorum->count; i++) {
        if (ballot->votes[i].has != RLOCK__NOT_THERE) {
            maybe = true;
        }
    }
    rlock__ballot_tend(ballot);
    return maybe;
}

static void rlock__quorum_track(void *state, const char *key, size_t len, bool on) {
    const rlock__quorum *quorum = (const rlock__quorum *)state;
    int i;
    for (i = 0; i < quorum->count; i++) {
        quorum->servers[i].store->track(quorum->servers[i].state, key, len, on);
    }
}

static void rlock__quorum_flush(void *state) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    rlock_stats stats;
    int i;
    rlock_client_stats(quorum->client, &stats);
    rlock__quorum_trim(quorum, (uint32_t)stats.handles);
    for (i = 0; i < quorum->count; i++) {
        quorum->servers[i].store->flush(quorum->servers[i].state);
    }
}

/* What a majority can say of a server's counters and lines has not been proved. */
static const char *rlock__quorum_refuses(void *state, const char *key, size_t len,
                                         const rlock_terms *terms, bool fencing) {
    (void)state;
    (void)key;
    (void)len;
    return terms     ? "a quorum supports only a mutex with one key"
           : fencing ? "a quorum does not support fencing tokens"
                     : NULL;
}

static void rlock__quorum_free(rlock__quorum *quorum) {
    while (!rlock__list_empty(&quorum->ballots)) {
        rlock__ballot_free(RLOCK__OF(quorum->ballots.next, rlock__ballot, link));
    }
    rlock__quorum_trim(quorum, 0);
    RLOCK_ASSERT(!quorum->unused_count && rlock__list_empty(&quorum->ballots));
    rlock_timer_drop(quorum->client, &quorum->timer);
    rlock__dealloc(quorum->map.buckets);
    rlock__dealloc(quorum);
}

/* Each server is sent the release of all that it may have, or the last renewal of what stays. */
static void rlock__vote_last(rlock__vote *vote) {
    const rlock_request *round = vote->ballot->request;
    bool stays = RLOCK__HAS_TOKENS && round && (round->flags & RLOCK_REQUEST_LAST);
    rlock__vote_recall(vote);
    if (stays && vote->has == RLOCK__THERE) {
        rlock__vote_ask(vote, RLOCK_OP_RENEW, round->lease_ms);
    } else if (vote->has != RLOCK__NOT_THERE) {
        rlock__vote_ask(vote, RLOCK_OP_RELEASE, 0);
    }
}

static void rlock__quorum_close(void *state) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    int i;
    for (i = 0; i < quorum->count; i++) {
        rlock__server *server = &quorum->servers[i];
        rlock__server_each(server, NULL, rlock__vote_last);
        server->store->close(server->state);
    }
    rlock__quorum_free(quorum);
}

static int rlock__quorum_open_all(rlock__quorum *quorum, const rlock__members *members,
                                  const rlock_config *config) {
    int status = RLOCK_OK, i;
    for (i = 0; i < quorum->count && status == RLOCK_OK; i++) {
        rlock__server *server = &quorum->servers[i];
        rlock_config one = *config;
        char line[RLOCK__LINE], *texts;
        rlock__member_config(&members->servers[i], &one);
        server->quorum = quorum;
        status = rlock__url_resolve(&one, true, &texts, line);
        server->store = rlock__store_of(&one);
        if (status == RLOCK_OK) {
            status = server->store->open(server->store, quorum->client, &one, &rlock__server_events,
                                         server, &server->state);
        } else if (status == RLOCK_ERR_ARG) {
            rlock_client_log(quorum->client, RLOCK_LOG_ERROR, line, NULL);
        }
        rlock__dealloc(texts);
    }
    for (i -= 2; status != RLOCK_OK && i >= 0 && !rlock_client_forked(quorum->client);
         i--) { /* all before the one that failed */
        quorum->servers[i].store->close(quorum->servers[i].state);
    }
    return status;
}

/* What did not get enough is given back. */
static bool rlock__majority_keeps(rlock__ballot *ballot, rlock_answer *answer) {
    (void)ballot;
    (void)answer;
    return false;
}

static const rlock__rules rlock__majority = {rlock__vote_ask, rlock__vote_heard,
                                             rlock__majority_decided, rlock__majority_keeps, 0};

static int rlock__quorum_open(const rlock_store *store, rlock_client *client,
                              const rlock_config *config, const rlock_store_events *events,
                              void *owner, void **state) {
    const rlock__members *members = (const rlock__members *)store->ctx;
    size_t servers = (size_t)members->count * sizeof(rlock__server);
    rlock__quorum *quorum = (rlock__quorum *)rlock__alloc(sizeof *quorum + servers);
    int status;
    if (!quorum || !rlock__map_init(&quorum->map) ||
        rlock_timer_add(client, &quorum->timer, rlock__quorum_fire) != RLOCK_OK) {
        rlock__dealloc(quorum ? quorum->map.buckets : NULL);
        rlock__dealloc(quorum);
        return RLOCK_ERR_NOMEM;
    }
    quorum->client = client;
    quorum->events = events;
    quorum->owner = owner;
    quorum->rules = &rlock__majority;
    quorum->stats = rlock_client_counters(client);
    quorum->timeout_ms = config->command_timeout_ms;
    quorum->poll_ms = config->poll_ms;
    quorum->servers = (rlock__server *)(void *)(quorum + 1);
    quorum->gives_back = config->replicas > 0;
    quorum->hears_itself = config->wire == RLOCK_WIRE_REDISSON;
    quorum->count = members->count;
    quorum->need = members->count / 2 + 1;
    quorum->may_fail = members->count - quorum->need;
    RLOCK_ASSERT(quorum->count <= RLOCK__SERVERS && 2 * quorum->need > quorum->count);
    rlock__list_init(&quorum->ballots);
    rlock__list_init(&quorum->unused);
    rlock__list_init(&quorum->refused);
    status = rlock__quorum_open_all(quorum, members, config);
    if (status != RLOCK_OK) {
        rlock__quorum_free(quorum);
        return status;
    }
    *state = quorum;
    return RLOCK_OK;
}

#if RLOCK__HAS_CREDENTIALS
/* Gives them to each server whose store takes some. */
static int rlock__quorum_set_credentials(void *state, bool sentinels, const char *username,
                                         const char *password) {
    rlock__quorum *quorum = (rlock__quorum *)state;
    int status = RLOCK_ERR_ARG, i;
    for (i = 0; i < quorum->count; i++) {
        rlock__server *server = &quorum->servers[i];
        int its = server->store->set_credentials
                      ? server->store->set_credentials(server->state, sentinels, username, password)
                      : RLOCK_ERR_ARG;
        if (its == RLOCK_ERR_NOMEM || status == RLOCK_ERR_ARG) {
            status = its;
        }
        if (its == RLOCK_OK && server->fault == RLOCK_FAULT_AUTH) {
            server->fault = RLOCK_FAULT_DOWN; /* of the former ones: no vote fails by it any more */
            rlock__server_says(server, NULL);
        }
    }
    return status;
}
#else
#define rlock__quorum_set_credentials NULL
#endif

static const rlock_store rlock__quorum_store = {NULL,
                                                rlock__quorum_open,
                                                rlock__quorum_close,
                                                rlock__quorum_submit,
                                                rlock__quorum_forget,
                                                rlock__quorum_track,
                                                rlock__quorum_flush,
                                                rlock__quorum_refuses,
                                                NULL,
                                                RLOCK_STORE_STAYS,
                                                rlock__quorum_set_credentials};

void rlock_quorum_free(rlock_store *store) {
    rlock__members_free(store);
}

int rlock_quorum_new(rlock_store **out, const struct rlock_config *servers, int count) {
    return rlock__members_new(out, servers, count, RLOCK__SERVERS, &rlock__quorum_store);
}

#endif /* RLOCK_STORE_COMBINED_QUORUM_H */
