/* scripted.h - a store that does what the test says: it notes requests and answers by hand
 *
 * It answers from a timer of its client, never from inside submit. It fails the test when the core
 * breaks the store contract: a request submitted twice, or a call after close. A renewal with
 * lease 0 only looks; it is answered "done" and kept apart in the log unless the test asks for it.
 * The words of an answer live in a buffer that is overwritten after the call, and a request is out
 * of the store's hands before it is answered.
 */

#ifndef TESTS_SCRIPTED_H
#define TESTS_SCRIPTED_H

#include "virtual.h"

#define SCRIPTED_REQUESTS 8192
#define SCRIPTED_TURNS 256
#define SCRIPTED_OPS 6
#define SCRIPTED_FD 78
#define SCRIPTED_LOOK 6 /* the op of a renewal with lease 0 in the log: it only looks */
#define SCRIPTED_TRACKS 32

struct scripted_request {   /* one request as it was submitted */
    rlock_request *request; /* NULL once it is answered or forgotten */
    char key[32];
    uint8_t op, flags;
    int64_t lease_ms, longest_ms;
    uint64_t token, writer, next;
    char id[40]; /* of the client whose token it is; "" = this one's */
    uint32_t permits;
    uint16_t fences;
    bool urgent; /* to be sent before what waits */
    int64_t at_us;
    bool forgotten;
};

enum scripted_kind {
    SCRIPTED_ANSWER,
    SCRIPTED_UP,
    SCRIPTED_DOWN,
    SCRIPTED_PUSHING,
    SCRIPTED_WOKEN,
    SCRIPTED_NOTIFIED
};

struct scripted_offer { /* something the store will tell the core */
    enum scripted_kind kind;
    int64_t due_us;
    uint64_t order;
    struct scripted_request *record;
    rlock_answer answer; /* of DOWN: fault and text */
    rlock_info info;     /* what answer.info points to, if there is one */
    unsigned what;
    const char *key;
    uint64_t token;
    const rlock_part *part; /* what UP, DOWN and PUSHING are about */
};

struct scripted {
    rlock_store store;
    struct virtual_loop *loop;
    rlock_client *client; /* NULL = closed */
    const rlock_store_events *events;
    void *owner;
    rlock_timer timer;
    rlock_io io; /* of a descriptor that only the loop knows */
    struct scripted_request log[SCRIPTED_REQUESTS];
    size_t count;
    struct scripted_offer turns[SCRIPTED_TURNS];
    size_t waiting;
    uint64_t orders;
    bool automatic[SCRIPTED_OPS]; /* answer this op at once with ... */
    rlock_answer answers[SCRIPTED_OPS];
    char words[64];     /* those of the answer that is being told */
    int64_t latency_us; /* ... that much later: how long a reconnect takes, say */
    const char *taken; /* acquires of this key are always answered "held by another for a minute" */
    const rlock_part *part; /* what is told from now on is about these keys; NULL = all */
    int open_status;        /* what open returns */
    rlock_config config;    /* as open was given it */
    const char *says;       /* submit, and an open that fails, log this; NULL: nothing */
    bool checks_by_hand;    /* a renewal with lease 0 is logged and answered like any other */
    bool unsent;            /* requests never leave: forget says so */
    unsigned opens, closes, flushes, watched; /* watched: how often a key was wanted */
    char watches[SCRIPTED_TRACKS][32];        /* the keys that are watched; an empty one is free */
    size_t unflushed;                         /* requests submitted since the last flush */
};

/* ------------------------------------------------------------------------------------------------
 * Answers.
 */

static inline rlock_answer scripted_plain(rlock_outcome outcome) {
    rlock_answer answer;
    memset(&answer, 0, sizeof answer);
    answer.outcome = outcome;
    answer.settled = true;
    answer.left_ms = -1;
    return answer;
}

static inline rlock_answer scripted_done(void) {
    return scripted_plain(RLOCK_OUTCOME_DONE);
}

static inline rlock_answer scripted_fenced(uint64_t fence) {
    rlock_answer answer = scripted_done();
    answer.fence = fence;
    return answer;
}

static inline rlock_answer scripted_held(int64_t left_ms) {
    rlock_answer answer = scripted_plain(RLOCK_OUTCOME_HELD);
    answer.left_ms = left_ms;
    return answer;
}

/* Whatever left and was not answered may still be executed; every other fault is an answer. */
static inline rlock_answer scripted_fault(rlock_fault fault, const char *text) {
    rlock_answer answer = scripted_plain(RLOCK_OUTCOME_FAULT);
    answer.fault = fault;
    answer.settled = fault != RLOCK_FAULT_UNKNOWN;
    answer.text = text;
    return answer;
}

static inline rlock_answer scripted_unsure(rlock_answer answer) {
    answer.settled = false;
    return answer;
}

/* ------------------------------------------------------------------------------------------------
 * Turns: what waits to be told, told by the timer.
 */

static inline void scripted_arm(struct scripted *self) {
    int64_t due_us = -1;
    size_t i;
    for (i = 0; i < self->waiting; i++) {
        if (due_us < 0 || self->turns[i].due_us < due_us) {
            due_us = self->turns[i].due_us;
        }
    }
    rlock_timer_set(self->client, &self->timer, due_us);
}

/* The clock of its client, of which only the library knows how it has stepped. */
static inline int64_t scripted_now_us(const struct scripted *self) {
    int64_t now_us = self->loop->now_us + self->loop->clock_off_us + self->client->stepped_us;
    int64_t known_us = rlock_client_now_us(self->client);
    return now_us > known_us ? now_us : known_us;
}

static inline struct scripted_offer *scripted_push(struct scripted *self, enum scripted_kind kind) {
    struct scripted_offer *turn = &self->turns[self->waiting];
    if (self->waiting == SCRIPTED_TURNS) {
        fail_msg("more than %d turns wait in the scripted store", SCRIPTED_TURNS);
    }
    if (self->client == NULL) {
        fail_msg("the scripted store is closed");
    }
    memset(turn, 0, sizeof *turn);
    turn->kind = kind;
    turn->due_us = scripted_now_us(self);
    turn->order = ++self->orders;
    turn->part = self->part;
    self->waiting++;
    scripted_arm(self);
    return turn;
}

static inline void scripted_tell(struct scripted *self, struct scripted_offer *turn) {
    rlock_request *request = turn->record != NULL ? turn->record->request : NULL;
    char *words = self->words;
    if (turn->answer.text != NULL) {
        snprintf(words, sizeof self->words, "%s", turn->answer.text);
        turn->answer.text = words;
    }
    if (turn->answer.info != NULL) {
        turn->answer.info = &turn->info;
        if (turn->info.token != NULL) {
            memcpy(words, turn->info.token, turn->info.token_len);
            turn->info.token = words;
        }
    }
    switch (turn->kind) {
    case SCRIPTED_ANSWER:
        turn->record->request = NULL;
        self->events->answered(self->owner, request, &turn->answer);
        break;
    case SCRIPTED_UP: self->events->up(self->owner, turn->part); break;
    case SCRIPTED_DOWN:
        self->events->down(self->owner, turn->part, turn->answer.fault, turn->answer.text);
        break;
    case SCRIPTED_PUSHING: self->events->pushing(self->owner, turn->part, turn->what); break;
    case SCRIPTED_WOKEN:
        self->events->woken(self->owner, turn->key, turn->key != NULL ? strlen(turn->key) : 0);
        break;
    case SCRIPTED_NOTIFIED:
        self->events->notified(self->owner, turn->key, strlen(turn->key), turn->token);
        break;
    }
    memset(words, '?', sizeof self->words - 1);
}

/* What is added while it tells waits for an entry of its own. */
static inline void scripted_tell_all(struct scripted *self) {
    uint64_t last = self->orders;
    size_t i;
    for (;;) {
        struct scripted_offer turn;
        size_t first = self->waiting;
        for (i = 0; i < self->waiting; i++) {
            if (self->turns[i].due_us <= rlock_client_now_us(self->client) &&
                self->turns[i].order <= last &&
                (first == self->waiting || self->turns[i].order < self->turns[first].order)) {
                first = i;
            }
        }
        if (first == self->waiting) {
            break;
        }
        turn = self->turns[first];
        self->turns[first] = self->turns[--self->waiting];
        scripted_tell(self, &turn);
        if (self->client == NULL) {
            return;
        }
    }
    scripted_arm(self);
}

static inline void scripted_fire(rlock_timer *timer) {
    scripted_tell_all(
        (struct scripted *)(void *)((char *)timer - offsetof(struct scripted, timer)));
}

static inline void scripted_ready(rlock_io *io, unsigned events) {
    SAME(events, RLOCK_IO_READ);
    scripted_tell_all((struct scripted *)(void *)((char *)io - offsetof(struct scripted, io)));
}

/* ------------------------------------------------------------------------------------------------
 * The store.
 */

static inline struct scripted *scripted_alive(void *state, const char *call) {
    struct scripted *self = (struct scripted *)state;
    if (self->client == NULL) {
        fail_msg("the store's %s was called after close", call);
    }
    return self;
}

static inline int scripted_open(const rlock_store *store, rlock_client *client,
                                const struct rlock_config *config, const rlock_store_events *events,
                                void *owner, void **state) {
    struct scripted *self = (struct scripted *)store->ctx;
    int status = self->open_status;
    self->config = *config;
    if (status != RLOCK_OK && self->says != NULL) {
        rlock_client_log(client, 1, self->says, NULL);
    }
    if (status == RLOCK_OK) {
        status = rlock_timer_add(client, &self->timer, scripted_fire);
    }
    if (status == RLOCK_OK) {
        self->client = client;
        self->events = events;
        self->owner = owner;
        self->opens++;
        *state = self;
    }
    return status;
}

static inline void scripted_close(void *state) {
    struct scripted *self = scripted_alive(state, "close");
    size_t i;
    for (i = 0; i < self->count; i++) {
        self->log[i].request = NULL;
    }
    rlock_timer_drop(self->client, &self->timer);
    self->waiting = 0;
    self->client = NULL;
    self->closes++;
}

/* The request that is not answered, or NULL. */
static inline struct scripted_request *scripted_find(struct scripted *self,
                                                     const rlock_request *request) {
    size_t i;
    for (i = 0; i < self->count && self->log[i].request != request; i++) {
    }
    return i < self->count ? &self->log[i] : NULL;
}

static inline void scripted_submit(void *state, rlock_request *request) {
    struct scripted *self = scripted_alive(state, "submit");
    struct scripted_request *record = &self->log[self->count];
    bool taken = request->op == RLOCK_OP_ACQUIRE && self->taken != NULL &&
                 request->key_len == strlen(self->taken) &&
                 memcmp(request->key, self->taken, request->key_len) == 0;
    bool look = request->op == RLOCK_OP_RENEW && request->lease_ms == 0;
    if (self->count == SCRIPTED_REQUESTS) {
        fail_msg("more than %d requests in one test", SCRIPTED_REQUESTS);
    }
    assert_null(scripted_find(self, request));
    BETWEEN(request->op, RLOCK_OP_ACQUIRE, RLOCK_OP_SET_PERMITS);
    memset(record, 0, sizeof *record);
    snprintf(record->key, sizeof record->key, "%.*s", (int)request->key_len, request->key);
    if (self->says != NULL) {
        rlock_client_log(self->client, 1, self->says, NULL);
    }
    record->request = request;
    record->op = request->op;
    record->flags = request->flags;
    record->lease_ms = request->lease_ms;
    record->longest_ms = request->longest_ms;
    record->token = request->token;
    snprintf(record->id, sizeof record->id, "%s", request->id != NULL ? request->id : "");
    record->permits = request->permits;
    record->fences = request->fences;
    record->writer = request->writer;
    record->urgent = request->due_us <= rlock_client_now_us(self->client);
    record->next = request->op == RLOCK_OP_RELEASE ? request->next : 0;
    record->at_us = self->loop->now_us;
    request->sent_us = rlock_client_now_us(self->client);
    self->count++;
    self->unflushed++;
    if (look && !self->checks_by_hand) {
        record->op = SCRIPTED_LOOK;
    }
    if (taken || record->op == SCRIPTED_LOOK || self->automatic[request->op]) {
        struct scripted_offer *turn = scripted_push(self, SCRIPTED_ANSWER);
        turn->record = record;
        turn->due_us += self->latency_us;
        scripted_arm(self);
        turn->answer = taken                          ? scripted_held(60000)
                       : self->automatic[request->op] ? self->answers[request->op]
                                                      : scripted_done();
        if (turn->answer.info != NULL) {
            turn->info = *turn->answer.info;
        }
    }
}

static inline bool scripted_forget(void *state, rlock_request *request) {
    struct scripted *self = scripted_alive(state, "forget");
    size_t i;
    for (i = 0; i < self->count && self->log[i].request != request; i++) {
    }
    if (i == self->count) {
        fail_msg("a request was forgotten that the store does not have");
    }
    self->log[i].request = NULL;
    self->log[i].forgotten = true; /* nothing in the request says so */
    {
        struct scripted_request *record = &self->log[i];
        for (i = 0; i < self->waiting;) {
            if (self->turns[i].record == record) {
                self->turns[i] = self->turns[--self->waiting];
            } else {
                i++;
            }
        }
    }
    return !self->unsent;
}

/* The place of a key that is watched, or of a free one for the empty key; none: one too many. */
static inline int scripted_track_slot(const struct scripted *self, const char *key) {
    int i = 0;
    while (i < SCRIPTED_TRACKS && strcmp(self->watches[i], key) != 0) {
        i++;
    }
    return i;
}

static inline bool scripted_tracks(const struct scripted *self, const char *key) {
    return scripted_track_slot(self, key) < SCRIPTED_TRACKS;
}

static inline int scripted_tracking(const struct scripted *self) {
    int i, count = 0;
    for (i = 0; i < SCRIPTED_TRACKS; i++) {
        count += self->watches[i][0] != 0 ? 1 : 0;
    }
    return count;
}

/* More keys than there are places for are not noted, nor are long ones told apart by their ends. */
static inline void scripted_track(void *state, const char *key, size_t key_len, bool on) {
    struct scripted *self = scripted_alive(state, "watch");
    char name[32];
    int at;
    assert_non_null(key);
    BETWEEN(key_len, 1, RLOCK_KEY_MAX);
    snprintf(name, sizeof name, "%.*s", (int)key_len, key);
    at = scripted_track_slot(self, name);
    self->watched += on ? 1 : 0;
    if (on && at == SCRIPTED_TRACKS) {
        at = scripted_track_slot(self, "");
    }
    if (at < SCRIPTED_TRACKS) {
        snprintf(self->watches[at], sizeof name, "%s", on ? name : "");
    }
}

static inline void scripted_flush(void *state) {
    struct scripted *self = scripted_alive(state, "flush");
    self->flushes++;
    self->unflushed = 0;
}

static inline void scripted_begin(struct scripted *self, struct virtual_loop *loop) {
    memset(self, 0, sizeof *self);
    self->loop = loop;
    self->store.ctx = self;
    self->store.open = scripted_open;
    self->store.close = scripted_close;
    self->store.submit = scripted_submit;
    self->store.forget = scripted_forget;
    self->store.track = scripted_track;
    self->store.flush = scripted_flush;
    self->store.can = RLOCK_STORE_STAYS | RLOCK_STORE_ADOPTS;
}

/* ------------------------------------------------------------------------------------------------
 * What a test asks of it.
 */

/* The oldest request of this kind that is not answered; NULL = none. */
static inline struct scripted_request *scripted_out(struct scripted *self, rlock_op op) {
    size_t i;
    for (i = 0; i < self->count; i++) {
        if (self->log[i].op == op && self->log[i].request != NULL) {
            return &self->log[i];
        }
    }
    return NULL;
}

static inline struct scripted_request *scripted_need(struct scripted *self, rlock_op op) {
    struct scripted_request *record = scripted_out(self, op);
    static const char *const names[SCRIPTED_OPS] = {"acquire", "renew", "release",
                                                    "inspect", "force", "set permits"};
    if (record == NULL) {
        fail_msg("the core asked for no %s", names[op]);
    }
    return record;
}

/* The latest request of this kind, answered or not; NULL = none. */
static inline struct scripted_request *scripted_last(struct scripted *self, rlock_op op) {
    size_t i;
    for (i = self->count; i > 0; i--) {
        if (self->log[i - 1].op == op) {
            return &self->log[i - 1];
        }
    }
    return NULL;
}

/* How many were ever submitted. */
static inline int scripted_asked(const struct scripted *self, rlock_op op) {
    size_t i;
    int count = 0;
    for (i = 0; i < self->count; i++) {
        count += self->log[i].op == op ? 1 : 0;
    }
    return count;
}

/* How many are not answered. */
static inline int scripted_pending(const struct scripted *self, rlock_op op) {
    size_t i;
    int count = 0;
    for (i = 0; i < self->count; i++) {
        count += self->log[i].op == op && self->log[i].request != NULL ? 1 : 0;
    }
    return count;
}

/* Answers one request in the next entry of the store. */
static inline void scripted_answer(struct scripted *self, struct scripted_request *record,
                                   rlock_answer answer) {
    struct scripted_offer *turn = scripted_push(self, SCRIPTED_ANSWER);
    assert_non_null(record->request);
    turn->record = record;
    turn->answer = answer;
    if (answer.info != NULL) {
        turn->info = *answer.info;
    }
}

/* Answers one request as a socket does, in an entry that is not a timer's. */
static inline void scripted_answer_by_io(struct scripted *self, struct scripted_request *record,
                                         rlock_answer answer) {
    self->io.client = self->client;
    self->io.ready = scripted_ready;
    SAME(rlock_io_watch(self->client, &self->io, SCRIPTED_FD, RLOCK_IO_READ), 0);
    scripted_answer(self, record, answer);
    rlock_timer_set(self->client, &self->timer, -1);
    virtual_ready(self->loop, SCRIPTED_FD, RLOCK_IO_READ);
    (void)rlock_io_watch(self->client, &self->io, SCRIPTED_FD, 0);
}

/* Answers the oldest of this kind and lets everything that follows from it happen. */
static inline void scripted_reply(struct scripted *self, rlock_op op, rlock_answer answer) {
    scripted_answer(self, scripted_need(self, op), answer);
    virtual_idle(self->loop);
}

/* From now on every request of this kind is answered so, in an entry that follows at once. */
static inline void scripted_always(struct scripted *self, rlock_op op, rlock_answer answer) {
    self->automatic[op] = true;
    self->answers[op] = answer;
}

/* Answers everything that is out, and from now on everything, with "done". */
static inline void scripted_settle(struct scripted *self) {
    size_t i, queued, count = self->count;
    int op;
    for (op = 0; op < SCRIPTED_OPS; op++) {
        scripted_always(self, (rlock_op)op, scripted_done());
    }
    for (i = 0; i < count; i++) {
        for (queued = 0; queued < self->waiting && self->turns[queued].record != &self->log[i];
             queued++) {
        }
        if (self->log[i].request != NULL && queued == self->waiting) {
            scripted_answer(self, &self->log[i], scripted_done());
        }
    }
    virtual_idle(self->loop);
}

static inline void scripted_up(struct scripted *self) {
    scripted_push(self, SCRIPTED_UP);
    virtual_idle(self->loop);
}

static inline void scripted_down(struct scripted *self, rlock_fault fault, const char *text) {
    scripted_push(self, SCRIPTED_DOWN)->answer = scripted_fault(fault, text);
    virtual_idle(self->loop);
}

/* What is pushed from now on: RLOCK_PUSH_... */
static inline void scripted_pushing(struct scripted *self, unsigned what) {
    scripted_push(self, SCRIPTED_PUSHING)->what = what;
    virtual_idle(self->loop);
}

/* NULL = any key may have changed. */
static inline void scripted_woken(struct scripted *self, const char *key) {
    scripted_push(self, SCRIPTED_WOKEN)->key = key;
    virtual_idle(self->loop);
}

static inline void scripted_notified(struct scripted *self, const char *key, uint64_t token) {
    struct scripted_offer *turn = scripted_push(self, SCRIPTED_NOTIFIED);
    turn->key = key;
    turn->token = token;
    virtual_idle(self->loop);
}

#endif /* TESTS_SCRIPTED_H */
