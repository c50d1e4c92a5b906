/* ------------------------------------------------------------------------------------------------
 * >>memory - the store inside the process: what a server does, done in the next loop iteration
 */

#ifndef RLOCK_STORE_MEMORY_H
#define RLOCK_STORE_MEMORY_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/client.h"
#include "base/platform.h"
#include "base/list.h"
#include "base/map.h"
#include "runtime/client.h"
#include "runtime/token.h"

typedef struct rlock__memory {
    rlock_store store; /* first: it is what the user sees */
    rlock__map map;
    rlock_link entries; /* all of them, the one looked at longest ago first */
    rlock_link spare;   /* members that are not in use */
    uint64_t fence;
    rlock_info info; /* of the question being answered, with its token */
    char token[RLOCK__TOKEN_MAX];
} rlock__memory;

typedef struct rlock__entry { /* one key; kept while it is held, waited for or watched */
    rlock_link link, watches;
    rlock_link holders, queue; /* members; of a mutex one holder at most, and no queue */
    int64_t permits_us;        /* until when `permits` counts */
    uint32_t permits;          /* the number that was set; 0 = what the terms say */
    uint32_t watching;         /* how many of the watches are on */
    rlock__item item;          /* its key stands behind the entry */
} rlock__entry;

typedef struct rlock__member { /* a token that holds a key, or waits in its queue */
    rlock_link link, notified;
    rlock__entry *entry;
    struct rlock__session *session; /* NULL: its client is gone, and the lease runs out */
    uint64_t token;
    int64_t expires_us; /* of a holder; with a call to come it stays for a while */
    uint32_t weight;
    char letter;                /* see rlock__letter */
    char id[RLOCK__TOKEN_HEAD]; /* of the client that made the token, with a NUL */
} rlock__member;

typedef struct rlock__session { /* one client of the store */
    rlock__memory *memory;
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_timer timer;
    int64_t offer_us; /* how long an offer lasts: one command timeout */
    rlock_link requests, woken, notified;
    bool up;
} rlock__session;

typedef struct rlock__tracking { /* one key that one client watches */
    rlock_link link, woken;
    rlock__entry *entry;
    rlock__session *session;
    bool on;
} rlock__tracking;

#define RLOCK__DAY_US 86400000000 /* for so long a number of permits lives that was set */

static rlock__entry *rlock__entry_find(rlock__memory *memory, const char *key, size_t len) {
    rlock__item *item = rlock__map_find(&memory->map, key, len);
    return item ? (rlock__entry *)item->thing : NULL;
}

/* --- members --- */

static void rlock__member_drop(rlock__memory *memory, rlock__member *member) {
    RLOCK_ASSERT(rlock__list_empty(&member->notified) || member->session);
    RLOCK_ASSERT(member->entry && member->link.next != &member->link);
    rlock__list_remove(&member->notified);
    rlock__list_remove(&member->link);
    rlock__list_append(&memory->spare, &member->link);
}

/* What a request wants comes to the end of a list of the entry; NULL: no memory. */
static rlock__member *rlock__member_add(rlock__session *session, rlock__entry *entry,
                                        rlock_link *list, const rlock_request *request) {
    rlock__member *member = RLOCK__FIRST(&session->memory->spare, rlock__member, link);
    RLOCK_ASSERT(entry && entry->item.thing == entry);
    if (member) {
        rlock__list_remove(&member->link);
    } else {
        member = (rlock__member *)RLOCK_MALLOC(sizeof *member);
    }
    if (!member) {
        return NULL;
    }
    memset(member, 0, sizeof *member);
    rlock__list_init(&member->notified);
    rlock__list_append(list, &member->link);
    member->entry = entry;
    member->session = session;
    member->token = request->token;
    memcpy(member->id, session->client->id, sizeof member->id);
    member->weight = rlock__is_queued(request) ? request->terms->weight : 1;
    member->letter = rlock__letter(request);
    return member;
}

static rlock__member *rlock__member_find(rlock_link *list, const char *id, uint64_t token) {
    rlock_link *at = list->next;
    while (at != list && (RLOCK__OF(at, rlock__member, link)->token != token ||
                          strcmp(RLOCK__OF(at, rlock__member, link)->id, id) != 0)) {
        at = at->next;
    }
    return at == list ? NULL : RLOCK__OF(at, rlock__member, link);
}

/* Its lease goes on for what the request says, unless it does anyway: but for no longer than
 * longest_ms, if that is given. True: it ends sooner than before. */
RLOCK__NOINLINE static bool rlock__member_extend(rlock__member *member,
                                                 const rlock_request *request, int64_t now_us) {
    int64_t expires_us = now_us + request->lease_ms * 1000;
    int64_t most_us = now_us + request->longest_ms * 1000;
    RLOCK_ASSERT(request->lease_ms >= 0);
    RLOCK_ASSERT(!request->longest_ms || request->longest_ms >= request->lease_ms);
    if (member->expires_us < expires_us) {
        member->expires_us = expires_us;
    }
    if (!request->lease_ms || !request->longest_ms || member->expires_us <= most_us) {
        return false;
    }
    member->expires_us = most_us;
    return true;
}

/* Notifies its client, in a dispatch of that client. */
static void rlock__member_notify(rlock__member *member) {
    RLOCK_ASSERT(member->entry);
    if (member->session && rlock__list_empty(&member->notified)) {
        rlock__list_append(&member->session->notified, &member->notified);
        rlock_timer_set(member->session->client, &member->session->timer, 0);
    }
}

/* --- keys --- */

/* What the holders weigh; those whose lease is over go. */
static uint64_t rlock__entry_used(rlock__memory *memory, rlock__entry *entry, int64_t now_us) {
    rlock_link *at = entry->holders.next;
    uint64_t used = 0;
    while (at != &entry->holders) {
        rlock__member *member = RLOCK__OF(at, rlock__member, link);
        at = at->next;
        if (member->expires_us > now_us) {
            used += member->weight;
        } else if (rlock__list_empty(&member->notified)) {
            rlock__member_drop(memory, member);
        }
    }
    return used;
}

static rlock__member *rlock__entry_holder(rlock__entry *entry, const char *id, uint64_t token,
                                          int64_t now_us) {
    rlock__member *member = rlock__member_find(&entry->holders, id, token);
    return member && member->expires_us > now_us ? member : NULL;
}

static uint32_t rlock__entry_permits(const rlock__entry *entry, const rlock_request *request,
                                     int64_t now_us) {
    if (!rlock__is_queued(request)) {
        return 1;
    }
    if (entry && entry->permits && entry->permits_us > now_us) {
        return entry->permits;
    }
    return request->terms->permits;
}

/* True if the key is in use as another kind of lock than the request means. All holders are of one
 * kind, so one of them tells it for all; so does the first waiter of the queue. A mutex knows
 * nothing of a queue. */
static bool rlock__entry_differs(const rlock__entry *entry, const rlock_request *request,
                                 int64_t now_us) {
    const rlock__member *first = RLOCK__OF(entry->queue.next, rlock__member, link);
    char letter = rlock__letter(request);
    const rlock_link *at;
    for (at = entry->holders.next; RLOCK__HAS_KINDS && at != &entry->holders; at = at->next) {
        const rlock__member *member = RLOCK__OF(at, rlock__member, link);
        if (member->expires_us > now_us) {
            return member->letter != letter;
        }
    }
    return (RLOCK__HAS_KINDS && entry->permits && entry->permits_us > now_us && letter != 's') ||
           (letter != 'm' && !rlock__list_empty(&entry->queue) && first->letter != letter);
}

/* Serves the queue while there is room: the first waiter holds for one command timeout, and is
 * notified unless this request is its own. False: somebody still waits. */
static bool rlock__entry_offer(rlock__session *session, rlock__entry *entry, uint32_t permits,
                               const rlock__member *asking, int64_t now_us) {
    uint64_t used = rlock__entry_used(session->memory, entry, now_us);
    while (!rlock__list_empty(&entry->queue)) {
        rlock__member *member = RLOCK__OF(entry->queue.next, rlock__member, link);
        if (member->weight > permits) {
            rlock__member_drop(session->memory, member);
            continue;
        }
        if (used + member->weight > permits) {
            return false;
        }
        RLOCK_ASSERT(member->weight && member->entry == entry);
        used += member->weight;
        member->expires_us = now_us + session->offer_us;
        rlock__list_remove(&member->link);
        rlock__list_append(&entry->holders, &member->link);
        if (member != asking) {
            rlock__member_notify(member);
        }
    }
    return true;
}

static void rlock__tracking_free(rlock__tracking *watch) {
    RLOCK_ASSERT(watch->entry->watching >= watch->on);
    if (watch->on) {
        watch->entry->watching--;
    }
    rlock__list_remove(&watch->link);
    rlock__list_remove(&watch->woken);
    rlock__dealloc(watch);
}

static void rlock__entry_free(rlock__memory *memory, rlock__entry *entry) {
    while (!rlock__list_empty(&entry->watches)) {
        rlock__tracking_free(RLOCK__OF(entry->watches.next, rlock__tracking, link));
    }
    RLOCK_ASSERT(!entry->watching);
    while (!rlock__list_empty(&entry->holders)) {
        rlock__member_drop(memory, RLOCK__OF(entry->holders.next, rlock__member, link));
    }
    rlock__list_remove(&entry->link);
    rlock__dealloc(entry);
}

/* Examines the entry that was examined longest ago: unused ones go bit by bit. */
static void rlock__entry_sweep(rlock__memory *memory, int64_t now_us) {
    rlock__entry *entry = RLOCK__OF(memory->entries.next, rlock__entry, link);
    bool held = rlock__entry_used(memory, entry, now_us) || !rlock__list_empty(&entry->holders);
    RLOCK_ASSERT(!rlock__list_empty(&memory->entries));
    if (!held && rlock__list_empty(&entry->queue) && !entry->watching &&
        entry->permits_us <= now_us) {
        rlock__map_remove(&memory->map, &entry->item);
        rlock__entry_free(memory, entry);
    } else {
        rlock__list_remove(&entry->link);
        rlock__list_append(&memory->entries, &entry->link);
    }
}

static rlock__entry *rlock__entry_new(rlock__memory *memory, const char *key, size_t len,
                                      int64_t now_us) {
    rlock__entry *entry;
    int i;
    RLOCK_ASSERT(len);
    RLOCK_ASSERT(!rlock__entry_find(memory, key, len));
    for (i = 0; i < 2 && !rlock__list_empty(&memory->entries); i++) {
        rlock__entry_sweep(memory, now_us);
    }
    entry = (rlock__entry *)rlock__alloc(sizeof *entry + len);
    if (entry) {
        memcpy(entry + 1, key, len);
        rlock__list_init(&entry->watches);
        rlock__list_init(&entry->holders);
        rlock__list_init(&entry->queue);
        rlock__list_append(&memory->entries, &entry->link);
        rlock__map_add(&memory->map, &entry->item, entry, (char *)(entry + 1), len);
    }
    return entry;
}

/* Reports a change to every client that watches the key, each in a dispatch of its own. */
static void rlock__entry_changed(rlock__entry *entry) {
    rlock_link *at;
    for (at = entry->watches.next; at != &entry->watches; at = at->next) {
        rlock__tracking *watch = RLOCK__OF(at, rlock__tracking, link);
        if (watch->on && rlock__list_empty(&watch->woken)) {
            rlock__list_append(&watch->session->woken, &watch->woken);
            rlock_timer_set(watch->session->client, &watch->session->timer, 0);
        }
    }
}

/* --- requests --- */

static void rlock__memory_fault(rlock_answer *answer, rlock_fault fault) {
    answer->outcome = RLOCK_OUTCOME_FAULT;
    answer->fault = fault;
}

/* True if there is room for a queued kind; else the request joins the queue, if it may. */
static bool rlock__memory_queue(rlock__session *session, const rlock_request *request,
                                rlock__entry *entry, rlock_answer *answer, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    uint32_t permits = rlock__entry_permits(entry, request, now_us);
    rlock__member *waits = rlock__member_find(&entry->queue, id, request->token);
    uint64_t writer = request->writer;
    RLOCK_ASSERT(rlock__is_queued(request) && request->op == RLOCK_OP_ACQUIRE);
    if (writer && rlock__entry_holder(entry, id, writer, now_us)) {
        if (waits) {
            rlock__member_drop(session->memory, waits);
        }
        return true;
    }
    if (rlock__entry_offer(session, entry, permits, waits, now_us) &&
        rlock__entry_used(session->memory, entry, now_us) + request->terms->weight <= permits) {
        return true;
    }
    if (rlock__entry_holder(entry, id, request->token, now_us)) {
        return true;
    }
    if (!(request->flags & RLOCK_REQUEST_ONCE) &&
        !rlock__member_find(&entry->queue, id, request->token) &&
        !rlock__member_add(session, entry, &entry->queue, request)) {
        rlock__memory_fault(answer, RLOCK_FAULT_NOMEM);
    }
    return false;
}

/* True if one of the keys can be had; else the answer says why not. */
static bool rlock__memory_may(rlock__session *session, const rlock_request *request,
                              rlock__entry *entry, rlock_answer *answer, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    int64_t end_us = RLOCK__NEVER;
    rlock_link *at;
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE);
    if (rlock__entry_differs(entry, request, now_us)) {
        rlock__memory_fault(answer, RLOCK_FAULT_TYPE);
        return false;
    }
    if (rlock__entry_holder(entry, id, request->token, now_us)) {
        return true;
    }
    answer->outcome = RLOCK_OUTCOME_HELD;
    if (rlock__is_queued(request) ? rlock__memory_queue(session, request, entry, answer, now_us)
                                  : !rlock__entry_used(session->memory, entry, now_us)) {
        answer->outcome = RLOCK_OUTCOME_DONE;
        return true;
    }
    for (at = entry->holders.next; at != &entry->holders; at = at->next) {
        int64_t expires_us = RLOCK__OF(at, rlock__member, link)->expires_us;
        end_us = expires_us > now_us && expires_us < end_us ? expires_us : end_us;
    }
    answer->left_ms = end_us == RLOCK__NEVER ? -1 : (end_us - now_us + 999) / 1000;
    return false;
}

/* Holds a key that is to be had; false: no memory. */
static bool rlock__memory_hold(rlock__session *session, const rlock_request *request,
                               const char *key, size_t len, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    rlock__entry *entry = rlock__entry_find(session->memory, key, len);
    rlock__member *member;
    RLOCK_ASSERT(request->op == RLOCK_OP_ACQUIRE && request->lease_ms > 0);
    if (!entry) {
        entry = rlock__entry_new(session->memory, key, len, now_us);
    }
    member = entry ? rlock__member_find(&entry->holders, id, request->token) : NULL;
    if (entry && !member) {
        member = rlock__member_add(session, entry, &entry->holders, request);
    }
    if (!member) {
        return false;
    }
    (void)rlock__member_extend(member, request, now_us);
    if (RLOCK__HAS_KINDS && entry->permits && entry->permits_us > now_us) {
        entry->permits_us = now_us + RLOCK__DAY_US;
    }
    return true;
}

static void rlock__memory_acquire(rlock__session *session, const rlock_request *request,
                                  rlock_answer *answer, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    rlock__memory *memory = session->memory;
    const char *key;
    uint32_t i, k;
    size_t len;
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        rlock__entry *entry = rlock__entry_find(memory, key, len);
        if (entry && !rlock__memory_may(session, request, entry, answer, now_us)) {
            return;
        }
    }
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        if (!rlock__memory_hold(session, request, key, len, now_us)) {
            for (k = 0; RLOCK__HAS_KINDS && k < i; k++) {
                rlock__entry *entry;
                (void)rlock__request_key(request, k, &key, &len);
                entry = rlock__entry_find(memory, key, len);
                rlock__member_drop(memory, rlock__member_find(&entry->holders, id, request->token));
            }
            rlock__memory_fault(answer, RLOCK_FAULT_NOMEM);
            return;
        }
    }
    RLOCK_ASSERT(answer->outcome == RLOCK_OUTCOME_DONE);
    if (request->fences) {
        answer->fence = memory->fence + 1 > (uint64_t)now_us ? memory->fence + 1 : (uint64_t)now_us;
        memory->fence = answer->fence + request->fences - 1;
        RLOCK_ASSERT(memory->fence >= answer->fence && answer->fence);
    }
}

/* Takes a key away from its holder, and serves its queue or wakes its waiters. */
static void rlock__memory_release(rlock__session *session, const rlock_request *request,
                                  rlock__entry *entry, rlock__member *holder, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    uint32_t permits = rlock__entry_permits(entry, request, now_us);
    rlock__member *waits = rlock__member_find(&entry->queue, id, request->token);
    RLOCK_ASSERT(request->op == RLOCK_OP_RELEASE && (!holder || holder->entry == entry));
    if (RLOCK__HAS_KINDS && waits) {
        rlock__member_drop(session->memory, waits);
    }
    if (holder) {
        rlock__member_drop(session->memory, holder);
    }
    if (rlock__is_queued(request) && !rlock__entry_differs(entry, request, now_us)) {
        rlock__entry_offer(session, entry, permits, NULL, now_us);
    } else if (holder) {
        rlock__entry_changed(entry);
    }
}

/* A renewal, of all keys or none, or a release. */
static void rlock__memory_change(rlock__session *session, const rlock_request *request,
                                 rlock_answer *answer, int64_t now_us) {
    const char *id = rlock__request_id(session->client, request);
    uint64_t weight = rlock__is_queued(request) ? request->terms->weight : 1;
    bool release = request->op == RLOCK_OP_RELEASE;
    const char *key;
    size_t len;
    uint32_t i;
    RLOCK_ASSERT(request->op == RLOCK_OP_RENEW || release);
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        rlock__entry *entry = rlock__entry_find(session->memory, key, len);
        rlock__member *holder =
            entry ? rlock__entry_holder(entry, id, request->token, now_us) : NULL;
        if (!holder && answer->outcome == RLOCK_OUTCOME_DONE) {
            bool full = entry && rlock__entry_used(session->memory, entry, now_us) + weight >
                                     rlock__entry_permits(entry, request, now_us);
            answer->outcome = full ? RLOCK_OUTCOME_STOLEN : RLOCK_OUTCOME_GONE;
        }
        if (entry && release) {
            rlock__memory_release(session, request, entry, holder, now_us);
        }
    }
    if (release || answer->outcome != RLOCK_OUTCOME_DONE) {
        return;
    }
    for (i = 0; rlock__request_key(request, i, &key, &len); i++) {
        rlock__entry *entry = rlock__entry_find(session->memory, key, len);
        if (rlock__member_extend(rlock__entry_holder(entry, id, request->token, now_us), request,
                                 now_us)) {
            rlock__entry_changed(entry); /* who waits for its end hears of the new one */
        }
    }
}

/* --- questions --- */

static void rlock__memory_inspect(rlock__session *session, const rlock_request *request,
                                  rlock__entry *entry, int64_t now_us) {
    rlock__memory *memory = session->memory;
    rlock_info *info = &memory->info;
    uint64_t used = entry ? rlock__entry_used(memory, entry, now_us) : 0;
    uint32_t permits = rlock__entry_permits(entry, request, now_us);
    rlock_link *at;
    info->waiters = rlock__is_queued(request) ? 0 : -1;
    info->permits = used < permits ? (int64_t)(permits - used) : 0;
    for (at = entry ? entry->holders.next : NULL; entry && at != &entry->holders; at = at->next) {
        const rlock__member *member = RLOCK__OF(at, rlock__member, link);
        int64_t left_ms = (member->expires_us - now_us + 999) / 1000;
        if (member->expires_us <= now_us) {
            continue;
        }
        info->holders++;
        info->left_ms = left_ms > info->left_ms ? left_ms : info->left_ms;
        if (!info->token) {
            info->token_len = rlock__token(member->id, memory->token, member->token);
            info->token = memory->token;
        }
    }
    for (at = entry ? entry->queue.next : NULL; entry && at != &entry->queue; at = at->next) {
        const rlock__member *member = RLOCK__OF(at, rlock__member, link);
        if (member->session == session && member->token == request->token) {
            info->position = info->waiters;
        }
        info->waiters++;
    }
}

static void rlock__memory_force(rlock__memory *memory, rlock__entry *entry,
                                const rlock_request *request, int64_t now_us) {
    rlock_link *at;
    for (at = entry->holders.next; at != &entry->holders; at = at->next) {
        rlock__member *member = RLOCK__OF(at, rlock__member, link);
        if (member->expires_us > now_us) {
            memory->info.holders++;
            member->expires_us = 0;
            rlock__member_notify(member);
        }
    }
    if (!rlock__is_queued(request)) {
        rlock__entry_changed(entry);
    }
}

static void rlock__memory_question(rlock__session *session, const rlock_request *request,
                                   rlock_answer *answer, int64_t now_us) {
    rlock__memory *memory = session->memory;
    rlock__entry *entry = rlock__entry_find(memory, request->key, request->key_len);
    RLOCK_ASSERT(request->op >= RLOCK_OP_INSPECT);
    memset(&memory->info, 0, sizeof memory->info);
    memory->info.position = -1;
    answer->info = &memory->info;
    if (!entry && request->op == RLOCK_OP_SET_PERMITS &&
        (entry = rlock__entry_new(memory, request->key, request->key_len, now_us)) == NULL) {
        rlock__memory_fault(answer, RLOCK_FAULT_NOMEM);
    } else if (entry && rlock__entry_differs(entry, request, now_us)) {
        rlock__memory_fault(answer, RLOCK_FAULT_TYPE);
    } else if (request->op == RLOCK_OP_INSPECT) {
        rlock__memory_inspect(session, request, entry, now_us);
    } else if (entry) {
        if (request->op == RLOCK_OP_FORCE) {
            rlock__memory_force(memory, entry, request, now_us);
        } else {
            entry->permits = request->permits;
            entry->permits_us = entry->permits ? now_us + RLOCK__DAY_US : 0;
        }
        if (rlock__is_queued(request)) {
            rlock__entry_offer(session, entry, rlock__entry_permits(entry, request, now_us), NULL,
                               now_us);
        }
    }
}

/* The store's own time: what the clock under its clients shows. Each of them counts the steps back
 * by itself, so their own times come apart: no lease may end by another's. */
static int64_t rlock__memory_now_us(const rlock__session *session) {
    return session->client->clock_us - session->client->stepped_us;
}

/* Does what was sent. NULL: nobody is left to hear the answers. */
static void rlock__memory_execute(rlock__session *session, rlock_link *requests,
                                  void (*answered)(void *owner, rlock_request *request,
                                                   const rlock_answer *answer)) {
    int64_t now_us = rlock__memory_now_us(session);
    while (!rlock__list_empty(requests)) {
        rlock_request *request = RLOCK__OF(requests->next, rlock_request, store.link);
        rlock_answer answer;
        memset(&answer, 0, sizeof answer);
        answer.settled = true;
        RLOCK_ASSERT(request->key_len && request->op <= RLOCK_OP_SET_PERMITS);
        rlock__list_remove(&request->store.link);
        if (request->op == RLOCK_OP_ACQUIRE) {
            rlock__memory_acquire(session, request, &answer, now_us);
        } else if (request->op < RLOCK_OP_INSPECT) {
            rlock__memory_change(session, request, &answer, now_us);
        } else if (RLOCK__HAS_KINDS) {
            rlock__memory_question(session, request, &answer, now_us);
        }
        if (answered) {
            answered(session->owner, request, &answer);
        }
    }
}

static void rlock__memory_fire(rlock_timer *timer) {
    rlock__session *session = RLOCK__OF(timer, rlock__session, timer);
    rlock_link woken, notified, requests;
    const rlock__item *item;
    rlock__list_init(&woken);
    rlock__list_init(&notified);
    rlock__list_init(&requests);
    rlock__list_move(&woken, &session->woken);
    rlock__list_move(&notified, &session->notified);
    rlock__list_move(&requests, &session->requests);
    if (!session->up) {
        session->up = true;
        session->events->up(session->owner, NULL);
        session->events->pushing(session->owner, NULL,
                                 RLOCK_PUSH_CHANGES | RLOCK_PUSH_NOTIFICATIONS);
    }
    rlock__memory_execute(session, &requests, session->events->answered);
    while (!rlock__list_empty(&woken)) {
        rlock__tracking *watch = RLOCK__OF(woken.next, rlock__tracking, woken);
        rlock__list_remove(&watch->woken);
        item = &watch->entry->item;
        session->events->woken(session->owner, item->key, item->key_len);
    }
    while (RLOCK__HAS_KINDS && !rlock__list_empty(&notified)) {
        rlock__member *member = RLOCK__OF(notified.next, rlock__member, notified);
        item = &member->entry->item;
        rlock__list_remove(&member->notified);
        session->events->notified(session->owner, item->key, item->key_len, member->token);
    }
}

static int rlock__memory_open(const rlock_store *store, rlock_client *client,
                              const rlock_config *config, const rlock_store_events *events,
                              void *owner, void **state) {
    rlock__session *session = (rlock__session *)rlock__alloc(sizeof *session);
    if (!session || rlock_timer_add(client, &session->timer, rlock__memory_fire) != RLOCK_OK) {
        rlock__dealloc(session);
        return RLOCK_ERR_NOMEM;
    }
    session->memory = (rlock__memory *)store->ctx;
    session->client = client;
    session->offer_us = config->command_timeout_ms * 1000;
    session->events = events;
    session->owner = owner;
    rlock__list_init(&session->requests);
    rlock__list_init(&session->woken);
    rlock__list_init(&session->notified);
    *state = session;
    return RLOCK_OK;
}

static void rlock__memory_submit(void *state, rlock_request *request) {
    rlock__session *session = (rlock__session *)state;
    request->sent_us = rlock_client_now_us(session->client);
    rlock__list_append(&session->requests, &request->store.link);
    rlock_timer_set(session->client, &session->timer, request->sent_us);
}

static bool rlock__memory_forget(void *state, rlock_request *request) {
    (void)state;
    rlock__list_remove(&request->store.link);
    return false;
}

static void rlock__memory_track(void *state, const char *key, size_t len, bool on) {
    rlock__session *session = (rlock__session *)state;
    int64_t now_us = rlock__memory_now_us(session);
    rlock__entry *entry = rlock__entry_find(session->memory, key, len);
    rlock__tracking *watch = NULL;
    rlock_link *at;
    if (!entry && on) {
        entry = rlock__entry_new(session->memory, key, len, now_us);
    }
    if (!entry) {
        return; /* no memory: a waiter's back-stop timer does without */
    }
    for (at = entry->watches.next; at != &entry->watches; at = at->next) {
        watch = RLOCK__OF(at, rlock__tracking, link);
        if (watch->session == session) {
            break;
        }
        watch = NULL;
    }
    if (!watch && on && (watch = (rlock__tracking *)rlock__alloc(sizeof *watch)) != NULL) {
        watch->entry = entry;
        watch->session = session;
        rlock__list_init(&watch->woken);
        rlock__list_append(&entry->watches, &watch->link);
    }
    if (watch && watch->on != on) {
        RLOCK_ASSERT(on || entry->watching);
        watch->on = on;
        entry->watching = on ? entry->watching + 1 : entry->watching - 1;
    }
}

static void rlock__memory_flush(void *state) {
    (void)state;
}

/* A client goes: it watches nothing, leaves the queues, and what it holds runs out. */
static void rlock__entry_leave(rlock__entry *entry, const rlock__session *session) {
    rlock_link *at, *next;
    for (at = entry->watches.next; at != &entry->watches; at = next) {
        next = at->next;
        if (RLOCK__OF(at, rlock__tracking, link)->session == session) {
            rlock__tracking_free(RLOCK__OF(at, rlock__tracking, link));
        }
    }
    for (at = entry->queue.next; RLOCK__HAS_KINDS && at != &entry->queue; at = next) {
        next = at->next;
        if (RLOCK__OF(at, rlock__member, link)->session == session) {
            rlock__member_drop(session->memory, RLOCK__OF(at, rlock__member, link));
        }
    }
    for (at = entry->holders.next; at != &entry->holders; at = at->next) {
        rlock__member *member = RLOCK__OF(at, rlock__member, link);
        if (member->session == session) {
            member->session = NULL;
            rlock__list_remove(&member->notified);
        }
    }
}

static void rlock__memory_close(void *state) {
    rlock__session *session = (rlock__session *)state;
    rlock_link *at;
    rlock__memory_execute(session, &session->requests, NULL); /* releases above all */
    RLOCK_ASSERT(rlock__list_empty(&session->requests));
    for (at = session->memory->entries.next; at != &session->memory->entries; at = at->next) {
        rlock__entry_leave(RLOCK__OF(at, rlock__entry, link), session);
    }
    RLOCK_ASSERT(rlock__list_empty(&session->woken) && rlock__list_empty(&session->notified));
    rlock_timer_drop(session->client, &session->timer);
    rlock__dealloc(session);
}

static const rlock_store rlock__memory_store = {NULL,
                                                rlock__memory_open,
                                                rlock__memory_close,
                                                rlock__memory_submit,
                                                rlock__memory_forget,
                                                rlock__memory_track,
                                                rlock__memory_flush,
                                                NULL,
                                                NULL,
                                                RLOCK_STORE_STAYS | RLOCK_STORE_ADOPTS,
                                                NULL};

int rlock_memory_new(rlock_store **out) {
    rlock__memory *memory;
    if (!out) {
        return RLOCK_ERR_ARG;
    }
    *out = NULL;
    memory = (rlock__memory *)rlock__alloc(sizeof *memory);
    if (!memory || !rlock__map_init(&memory->map)) {
        rlock__dealloc(memory);
        return RLOCK_ERR_NOMEM;
    }
    rlock__list_init(&memory->entries);
    rlock__list_init(&memory->spare);
    memory->store = rlock__memory_store;
    memory->store.ctx = memory;
    *out = &memory->store;
    return RLOCK_OK;
}

void rlock_memory_free(rlock_store *store) {
    rlock__memory *memory = store ? (rlock__memory *)store->ctx : NULL;
    if (!memory) {
        return;
    }
    while (!rlock__list_empty(&memory->entries)) {
        rlock__entry_free(memory, RLOCK__OF(memory->entries.next, rlock__entry, link));
    }
    while (!rlock__list_empty(&memory->spare)) {
        rlock_link *spare = memory->spare.next;
        rlock__list_remove(spare);
        rlock__dealloc(RLOCK__OF(spare, rlock__member, link));
    }
    rlock__dealloc(memory->map.buckets);
    rlock__dealloc(memory);
}

#endif /* RLOCK_STORE_MEMORY_H */
