/* store.h - what every store must do: one suite, run on each of them by tests/stores.c
 *
 * A row says how a store is made, what it supports, and how time passes. The tests of STORE_MUTEX
 * are for every store, those of STORE_FENCES and STORE_KINDS for those that support them.
 *
 * Most tests use three clients, each as in a process of its own. Those with `raw` in their name
 * speak to the store without the core above it.
 */

#ifndef TESTS_STORE_H
#define TESTS_STORE_H

struct store_row {
    const char *name;
    void (*begin)(rlock_config *config); /* sets the loop, and makes the store */
    void (*end)(void);                   /* after all clients are gone */
    void (*run_ms)(int64_t ms);
    int64_t (*now_us)(void);
    bool fences, kinds;
};

static const struct store_row *row;
static bool single_keys; /* several keys at once are refused, though there are kinds */
static bool untimed;     /* nobody can say how long another's lease runs: it is told as -1 */
static bool polled;      /* nothing is pushed: who waits polls, who holds finds out by renewing */
static bool cuts_untold; /* a lease that ends sooner than was said is found when it is asked for */

#define STORE_CLIENTS 3
#define STORE_HANDS 64
#define STORE_LEASE_MS 20000 /* longer than any test takes */
#define STORE_WATCHDOG_MS 1200
#define STORE_LIMIT_MS 5000

struct hand { /* a handle, and what it was told */
    rlock *lock;
    int count[RLOCK_LOST + 1], status[RLOCK_LOST + 1], order[RLOCK_LOST + 1];
    int64_t remaining_ms[RLOCK_LOST + 1];
    uint64_t fence[RLOCK_LOST + 1];
    rlock_reason reason;
    char text[64]; /* of the loss */
};

static struct {
    rlock_config config;
    rlock_client *clients[STORE_CLIENTS];
    struct hand hands[STORE_HANDS];
    int hand_count, order;
    char log_text[256];
} w;

/* Waits for what has to come, and fails if it does not: long before anything polls. */
#define EVENTUALLY(what)                                                    \
    do {                                                                    \
        int64_t end_us = row->now_us() + STORE_LIMIT_MS * 1000;             \
        while (!(what)) {                                                   \
            if (row->now_us() > end_us) {                                   \
                fail_msg("%s: it never happens that %s", row->name, #what); \
            }                                                               \
            row->run_ms(1);                                                 \
        }                                                                   \
    } while (0)

#define IS(actual, expected) assert_int_equal((int64_t)(actual), (int64_t)(expected))
#define WITHIN(actual, low, high) \
    assert_true((int64_t)(actual) >= (low) && (int64_t)(actual) <= (high))

/* What is left of a lease that has just begun. */
#define LEFT(actual)                                                       \
    do {                                                                   \
        int64_t least_ms = untimed ? -1 : STORE_LEASE_MS - STORE_LIMIT_MS; \
        WITHIN(actual, least_ms, STORE_LEASE_MS);                          \
    } while (0)

/* --- the world --- */

static void on_log_line(void *user, int level, const char *line) {
    (void)user, (void)level;
    snprintf(w.log_text, sizeof w.log_text, "%s", line);
}

/* What is on the loop, whichever it is. */
static struct {
    rlock_loop real;
    rlock_io *watched[64];
    int open, idle;
} on_loop;

static void *loop_opens(void *ctx, rlock_client *client) {
    void *state = on_loop.real.open(ctx, client);
    on_loop.open += state != NULL;
    return state;
}

static int loop_watches(void *state, rlock_io *io, int fd, unsigned events) {
    int i = 0, place = -1;
    for (i = 0; i < 64; i++) {
        if (on_loop.watched[i] == io) {
            place = i;
            break;
        }
        place = on_loop.watched[i] == NULL && place < 0 ? i : place;
    }
    assert_true(place >= 0);
    on_loop.watched[place] = events != 0 ? io : NULL;
    return on_loop.real.watch(state, io, fd, events);
}

static int loop_watched(void) {
    int i, count = 0;
    for (i = 0; i < 64; i++) {
        count += on_loop.watched[i] != NULL;
    }
    return count;
}

static void loop_closes(void *state) {
    on_loop.open--;
    on_loop.real.close(state);
}

static void loop_rests(void *state, bool idle) {
    on_loop.idle += idle ? 1 : -1;
    if (on_loop.real.idle != NULL) {
        on_loop.real.idle(state, idle);
    }
}

static int store_begins_with(int64_t command_timeout_ms) {
    int i;
    memset(&w, 0, sizeof w);
    w.config.watchdog_lease_ms = STORE_WATCHDOG_MS;
    w.config.poll_ms = polled ? 20 : 60000; /* a waiter that is not notified comes too late */
    w.config.command_timeout_ms = command_timeout_ms;
    w.config.log = on_log_line;
    row->begin(&w.config);
    memset(&on_loop, 0, sizeof on_loop);
    on_loop.real = w.config.loop;
    w.config.loop.open = loop_opens;
    w.config.loop.watch = loop_watches;
    w.config.loop.close = loop_closes;
    w.config.loop.idle = loop_rests;
    for (i = 0; i < STORE_CLIENTS; i++) {
        IS(rlock_client_new(&w.clients[i], &w.config), RLOCK_OK);
    }
    return 0;
}

static int store_begins(void **state) {
    (void)state;
    return store_begins_with(3 * STORE_LIMIT_MS); /* twice in it a waiter looks for its offer */
}

/* For what has to outlast an offer. */
static int store_begins_hastily(void **state) {
    (void)state;
    return store_begins_with(1000);
}

static void client_goes(int i) {
    rlock_client_free(w.clients[i]);
    w.clients[i] = NULL;
}

static int store_ends(void **state) {
    int i;
    (void)state;
    for (i = 0; i < w.hand_count; i++) {
        rlock_free(w.hands[i].lock);
    }
    row->run_ms(5);
    for (i = 0; i < STORE_CLIENTS; i++) {
        client_goes(i);
    }
    row->end();
    return 0;
}

static void on_hand(rlock *lock, const rlock_event *event, void *user) {
    struct hand *hand = (struct hand *)user;
    assert_ptr_equal(lock, hand->lock);
    hand->count[event->kind]++;
    hand->status[event->kind] = event->status;
    hand->order[event->kind] = ++w.order;
    hand->remaining_ms[event->kind] = event->remaining_ms;
    hand->fence[event->kind] = event->fence;
    hand->reason = event->reason;
    if (event->kind == RLOCK_LOST) {
        snprintf(hand->text, sizeof hand->text, "%s", event->text != NULL ? event->text : "");
    }
}

static rlock_options want(const char *key, rlock_kind kind) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    options.kind = kind;
    options.permits = kind == RLOCK_KIND_SEMAPHORE ? 2 : 0;
    options.fencing = row->fences && kind == RLOCK_KIND_MUTEX;
    return options;
}

static struct hand *hand_with(int client, const rlock_options *options) {
    struct hand *hand = &w.hands[w.hand_count++];
    rlock_options copy = *options;
    assert_true(w.hand_count <= STORE_HANDS);
    copy.on_lost = on_hand;
    copy.user = hand;
    IS(rlock_new(&hand->lock, w.clients[client], &copy), RLOCK_OK);
    return hand;
}

static struct hand *hand_of(int client, rlock_kind kind) {
    rlock_options options = want("k", kind);
    return hand_with(client, &options);
}

static struct hand *hand(int client, const char *key) {
    rlock_options options = want(key, RLOCK_KIND_MUTEX);
    return hand_with(client, &options);
}

static struct hand *permit(int client, uint32_t permits, uint32_t weight) {
    rlock_options options = want("k", RLOCK_KIND_SEMAPHORE);
    options.permits = permits;
    options.weight = weight;
    return hand_with(client, &options);
}

/* The keys of a set share a hash tag: a cluster takes no others. */
#define A "{set}a"
#define B "{set}b"
#define THIRD "{set}third"

static struct hand *hand_of_keys(int client, const char *a, const char *b) {
    rlock_options options = want(NULL, RLOCK_KIND_MUTEX);
    const char *keys[3];
    keys[0] = a, keys[1] = b, keys[2] = THIRD;
    options.keys = keys;
    options.key_count = 3;
    return hand_with(client, &options);
}

static bool holds(const struct hand *hand) {
    return rlock_is_held(hand->lock);
}

static void asks(struct hand *hand, int64_t wait_ms, int64_t lease_ms) {
    IS(rlock_acquire(hand->lock, wait_ms, lease_ms, on_hand, hand), RLOCK_OK);
}

static int ends(const struct hand *hand, rlock_event_kind kind, int before) {
    EVENTUALLY(hand->count[kind] > before);
    IS(hand->count[kind], before + 1);
    return hand->status[kind];
}

static int tried(struct hand *hand, int64_t wait_ms, int64_t lease_ms) {
    int before = hand->count[RLOCK_ACQUIRED];
    asks(hand, wait_ms, lease_ms);
    return ends(hand, RLOCK_ACQUIRED, before);
}

static struct hand *held(struct hand *hand) {
    IS(tried(hand, 0, STORE_LEASE_MS), RLOCK_OK);
    assert_true(holds(hand));
    return hand;
}

static int released(struct hand *hand) {
    int before = hand->count[RLOCK_RELEASED];
    IS(rlock_release(hand->lock, on_hand, hand), RLOCK_OK);
    return ends(hand, RLOCK_RELEASED, before);
}

static void lets_go(struct hand *hand) {
    IS(released(hand), RLOCK_OK);
}

static int renewed(struct hand *hand, int64_t lease_ms) {
    int before = hand->count[RLOCK_RENEWED];
    IS(rlock_renew(hand->lock, lease_ms, on_hand, hand), RLOCK_OK);
    return ends(hand, RLOCK_RENEWED, before);
}

static bool pushes(int client) {
    rlock_stats stats;
    rlock_client_stats(w.clients[client], &stats);
    return stats.pushing || polled;
}

/* From here on it is told of what happens, where anybody is. */
static void listens(int client) {
    EVENTUALLY(polled || pushes(client));
}

/* The lease of one has run out, now that the other holds, and it was told so before. Who polls may
 * have asked just before the end: after a stall of the loop both are told in one turn, each by its
 * own client. */
static void lost_before(const struct hand *one, const struct hand *other) {
    assert_false(holds(one));
    EVENTUALLY(!polled || one->count[RLOCK_LOST] > 0);
    IS(one->count[RLOCK_LOST], 1);
    assert_true(polled || one->order[RLOCK_LOST] < other->order[RLOCK_ACQUIRED]);
}

/* Waits: it has asked, was refused, and is told of what happens. */
static struct hand *waits(int client, struct hand *hand) {
    asks(hand, RLOCK_FOREVER, STORE_LEASE_MS);
    listens(client);
    row->run_ms(30);
    IS(hand->count[RLOCK_ACQUIRED], 0);
    return hand;
}

/* --- questions --- */

static struct {
    int count;
    rlock_info info;
    char token[128];
} told;

static void on_told(rlock_client *client, const rlock_info *info, void *user) {
    assert_non_null(client);
    assert_ptr_equal(user, &told);
    told.count++;
    told.info = *info;
    snprintf(told.token, sizeof told.token, "%.*s", (int)info->token_len,
             info->token != NULL ? info->token : "");
}

static const rlock_info *answer_to(int status) {
    IS(status, RLOCK_OK);
    IS(told.count, 0);
    EVENTUALLY(told.count > 0);
    return &told.info;
}

static const rlock_info *inspected(int client, rlock_kind kind) {
    rlock_options options = want("k", kind);
    memset(&told, 0, sizeof told);
    return answer_to(rlock_inspect(w.clients[client], &options, on_told, &told));
}

static const rlock_info *forced(int client, rlock_kind kind) {
    rlock_options options = want("k", kind);
    memset(&told, 0, sizeof told);
    return answer_to(rlock_force_release(w.clients[client], &options, on_told, &told));
}

static const rlock_info *permits_set(int client, uint32_t permits) {
    rlock_options options = want("k", RLOCK_KIND_SEMAPHORE);
    memset(&told, 0, sizeof told);
    return answer_to(rlock_set_permits(w.clients[client], &options, permits, on_told, &told));
}

/* Waits in a queue: `before` others do already. */
static struct hand *queues(struct hand *hand, int client, rlock_kind kind, int before) {
    asks(hand, RLOCK_FOREVER, STORE_LEASE_MS);
    EVENTUALLY(inspected(client, kind)->waiters == before + 1);
    listens(client);
    row->run_ms(30);
    return hand;
}

/* ------------------------------------------------------------------------------------------------
 * The store without the core: a client whose store only opens the one that is tested.
 */

static struct {
    const rlock_store *store;
    rlock_client *client;
    void *state;
    bool up, open;
    int answers;
    rlock_answer last;
    rlock_store shell;
} raw;

static void raw_answered(void *owner, rlock_request *request, const rlock_answer *answer) {
    assert_ptr_equal(owner, &raw);
    assert_true(raw.up || answer->outcome != RLOCK_OUTCOME_DONE); /* raised before */
    WITHIN(request->sent_us, 1, rlock_client_clock_us(raw.client));
    raw.answers++;
    raw.last = *answer;
}
static void raw_up(void *owner, const rlock_part *part) {
    (void)owner, (void)part;
    raw.up = true;
}
static void raw_down(void *owner, const rlock_part *part, rlock_fault fault, const char *text) {
    (void)owner, (void)part, (void)fault, (void)text;
}
static void raw_pushing(void *owner, const rlock_part *part, unsigned what) {
    (void)owner, (void)part, (void)what;
}
static void raw_woken(void *owner, const char *key, size_t key_len) {
    (void)owner, (void)key, (void)key_len;
}
static void raw_called(void *owner, const char *key, size_t key_len, uint64_t token) {
    (void)owner, (void)key, (void)key_len, (void)token;
}

static const rlock_store_events raw_events = {raw_answered, raw_up,    raw_down,
                                              raw_pushing,  raw_woken, raw_called};

static int shell_open(const rlock_store *store, rlock_client *client, const rlock_config *config,
                      const rlock_store_events *events, void *owner, void **state) {
    (void)store, (void)events, (void)owner;
    raw.client = client;
    raw.open = true;
    *state = &raw;
    return raw.store->open(raw.store, client, config, &raw_events, &raw, &raw.state);
}

static void shell_close(void *state) {
    (void)state;
    if (raw.open) {
        raw.store->close(raw.state);
    }
    raw.open = false;
}

static void shell_flush(void *state) {
    (void)state;
    if (raw.open) {
        raw.store->flush(raw.state);
    }
}

static void raw_begins(void) {
    rlock_config config = w.config;
    memset(&raw, 0, sizeof raw);
    raw.store = rlock__store_of(&w.config);
    raw.shell.open = shell_open;
    raw.shell.close = shell_close;
    raw.shell.flush = shell_flush;
    config.store = &raw.shell;
    IS(rlock_client_new(&raw.client, &config), RLOCK_OK);
}

static rlock_request raw_request(rlock_op op, uint64_t token, int64_t lease_ms) {
    rlock_request request;
    memset(&request, 0, sizeof request);
    memset(&request.store, 0xa5, sizeof request.store); /* only `note` means something */
    request.store.note = 0;
    request.key = "k";
    request.key_len = 1;
    request.op = (uint8_t)op;
    request.flags = op == RLOCK_OP_ACQUIRE ? RLOCK_REQUEST_RETRY : 0;
    request.token = token;
    request.lease_ms = lease_ms;
    return request;
}

static rlock_outcome raw_outcome(rlock_op op, uint64_t token, int64_t lease_ms) {
    static rlock_request requests[64]; /* each stays where it is */
    static int used;
    rlock_request *request = &requests[used++ % 64];
    int before = raw.answers;
    *request = raw_request(op, token, lease_ms);
    raw.store->submit(raw.state, request);
    IS(raw.answers, before); /* never inside the call */
    raw.store->flush(raw.state);
    EVENTUALLY(raw.answers > before);
    IS(raw.answers, before + 1);
    return raw.last.outcome;
}

static void raw_answers_are_those_of_the_contract(void **state) {
    rlock_outcome again;
    (void)state;
    raw_begins();
    IS(raw_outcome(RLOCK_OP_RELEASE, 8, 0), RLOCK_OUTCOME_GONE);
    IS(raw_outcome(RLOCK_OP_RENEW, 8, 1000), RLOCK_OUTCOME_GONE);
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 8, STORE_LEASE_MS), RLOCK_OUTCOME_DONE);
    assert_true(raw.last.settled);
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 9, STORE_LEASE_MS), RLOCK_OUTCOME_HELD);
    LEFT(raw.last.left_ms);
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 8, STORE_LEASE_MS), RLOCK_OUTCOME_DONE); /* it is there */
    IS(raw_outcome(RLOCK_OP_RENEW, 9, STORE_LEASE_MS) == RLOCK_OUTCOME_DONE, false);
    IS(raw_outcome(RLOCK_OP_RELEASE, 9, 0) == RLOCK_OUTCOME_DONE, false);
    IS(raw_outcome(RLOCK_OP_RENEW, 8, 0), RLOCK_OUTCOME_DONE);
    IS(raw_outcome(RLOCK_OP_RENEW, 8, STORE_LEASE_MS), RLOCK_OUTCOME_DONE);
    IS(raw_outcome(RLOCK_OP_RELEASE, 8, 0), RLOCK_OUTCOME_DONE);
    assert_true(raw.last.settled);
    again = raw_outcome(RLOCK_OP_RELEASE, 8, 0); /* a quorum may still be at it */
    assert_true(again == RLOCK_OUTCOME_GONE || again == RLOCK_OUTCOME_DONE);
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 9, STORE_LEASE_MS), RLOCK_OUTCOME_DONE);
    rlock_client_free(raw.client);
}

static void raw_renewal_never_shortens_a_lease(void **state) {
    (void)state;
    raw_begins();
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 8, STORE_LEASE_MS), RLOCK_OUTCOME_DONE);
    IS(raw_outcome(RLOCK_OP_RENEW, 8, 20), RLOCK_OUTCOME_DONE);
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 8, 20), RLOCK_OUTCOME_DONE);
    row->run_ms(100);
    IS(tried(hand(0, "k"), 0, 0), RLOCK_ERR_BUSY);
    rlock_client_free(raw.client);
}

static void raw_check_does_not_move_the_end_of_a_lease(void **state) {
    int64_t start_us, end_us;
    (void)state;
    raw_begins();
    start_us = row->now_us();
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 8, 300), RLOCK_OUTCOME_DONE);
    end_us = start_us;
    while (raw_outcome(RLOCK_OP_RENEW, 8, 0) == RLOCK_OUTCOME_DONE) {
        end_us = row->now_us();
        assert_true(end_us - start_us < 3000000);
        row->run_ms(10);
    }
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 9, 300), RLOCK_OUTCOME_DONE);
    rlock_client_free(raw.client);
}

/* Each names the longest lease of its token. They may come late, behind a renewal for longer. */
static void raw_checks_that_leave_together_cut_no_lease(void **state) {
    enum { KEYS = 3, SHORT_MS = 300 };
    static const char *const keys[KEYS] = {"k", "l", "m"};
    static rlock_request requests[3][KEYS];
    int turn, i;
    (void)state;
    raw_begins();
    for (turn = 0; turn < 3; turn++) {
        int before = raw.answers;
        for (i = 0; i < KEYS; i++) {
            rlock_request *request = &requests[turn][i];
            *request = raw_request(turn == 0 ? RLOCK_OP_ACQUIRE : RLOCK_OP_RENEW, 8 + (uint64_t)i,
                                   turn == 0 ? STORE_LEASE_MS : 0);
            request->key = keys[i];
            request->longest_ms = turn == 1 ? SHORT_MS : 0;
            raw.store->submit(raw.state, request);
            if (turn == 2) { /* each alone, to know which is gone */
                raw.store->flush(raw.state);
                EVENTUALLY(raw.answers == before + i + 1);
                IS(raw.last.outcome, RLOCK_OUTCOME_DONE);
            }
        }
        raw.store->flush(raw.state);
        EVENTUALLY(raw.answers == before + KEYS);
        IS(raw.last.outcome, RLOCK_OUTCOME_DONE);
        row->run_ms(turn == 1 ? 2 * SHORT_MS : 0);
    }
    rlock_client_free(raw.client);
}

static void raw_request_that_was_forgotten_before_it_left_is_not_executed(void **state) {
    rlock_request forgotten;
    (void)state;
    raw_begins();
    forgotten = raw_request(RLOCK_OP_ACQUIRE, 7, STORE_LEASE_MS);
    raw.store->submit(raw.state, &forgotten);
    if (!raw.store->forget(raw.state, &forgotten)) {
        memset(&forgotten, 0xa5, sizeof forgotten); /* it may go */
        IS(raw_outcome(RLOCK_OP_ACQUIRE, 8, STORE_LEASE_MS), RLOCK_OUTCOME_DONE);
    }
    rlock_client_free(raw.client);
}

static void raw_release_that_was_submitted_last_is_sent_by_close(void **state) {
    rlock_request last;
    (void)state;
    raw_begins();
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 8, STORE_LEASE_MS), RLOCK_OUTCOME_DONE);
    last = raw_request(RLOCK_OP_RELEASE, 8, 0);
    raw.store->submit(raw.state, &last);
    rlock_client_free(raw.client);
    IS(tried(hand(0, "k"), 2000, 0), RLOCK_OK);
}

#if RLOCK__HAS_TOKENS

static bool store_can(unsigned what) {
    return (rlock__store_of(&w.config)->can & what) == what;
}

static void raw_last_renewal_is_sent_by_close_and_cuts_the_lease(void **state) {
    rlock_request last;
    (void)state;
    if (!store_can(RLOCK_STORE_STAYS)) {
        return;
    }
    raw_begins();
    IS(raw_outcome(RLOCK_OP_ACQUIRE, 8, STORE_LEASE_MS), RLOCK_OUTCOME_DONE);
    last = raw_request(RLOCK_OP_RENEW, 8, 2000);
    last.longest_ms = 2000;
    last.flags = RLOCK_REQUEST_LAST;
    raw.store->submit(raw.state, &last);
    rlock_client_free(raw.client);
    IS(tried(hand(0, "k"), 0, 0), RLOCK_ERR_BUSY);
    IS(tried(hand(0, "k"), 4500, 0), RLOCK_OK);
}

#endif

/* ------------------------------------------------------------------------------------------------
 * The mutex with one key.
 */

static void one_holder_at_a_time_within_a_client_and_across_clients(void **state) {
    struct hand *first = held(hand(0, "k"));
    int i;
    (void)state;
    for (i = 0; i < STORE_CLIENTS; i++) {
        struct hand *other = hand(i, "k");
        IS(tried(other, 0, 0), RLOCK_ERR_BUSY);
        LEFT(other->remaining_ms[RLOCK_ACQUIRED]);
        assert_false(holds(other));
    }
    lets_go(first);
    IS(tried(hand(1, "k"), 0, 0), RLOCK_OK);
}

static void release_wakes_the_waiter_of_another_client(void **state) {
    struct hand *first = held(hand(0, "k")), *next = waits(1, hand(1, "k"));
    (void)state;
    row->run_ms(200);
    IS(next->count[RLOCK_ACQUIRED], 0);
    lets_go(first);
    EVENTUALLY(holds(next));
}

static void release_wakes_the_waiter_of_the_same_client(void **state) {
    struct hand *first = held(hand(0, "k")), *next = waits(0, hand(0, "k"));
    (void)state;
    row->run_ms(200); /* too old for a local hand-over */
    lets_go(first);
    EVENTUALLY(holds(next));
}

static void waiters_of_a_client_are_served_in_order(void **state) {
    struct hand *line[6];
    int i;
    (void)state;
    line[0] = held(hand(0, "k"));
    for (i = 1; i < 6; i++) {
        line[i] = waits(0, hand(0, "k"));
    }
    for (i = 0; i < 5; i++) {
        IS(line[i + 1]->count[RLOCK_ACQUIRED], 0);
        lets_go(line[i]);
        EVENTUALLY(holds(line[i + 1]));
    }
}

static void every_waiter_of_every_client_is_served(void **state) {
    struct hand *hands[12], *one;
    int i, turn;
    (void)state;
    for (i = 0; i < 12; i++) {
        hands[i] = hand(i % STORE_CLIENTS, "k");
        asks(hands[i], RLOCK_FOREVER, STORE_LEASE_MS);
    }
    for (turn = 0; turn < 12; turn++) {
        one = NULL;
        EVENTUALLY((i = (i + 1) % 12, holds(hands[i])));
        one = hands[i];
        row->run_ms(10);
        for (i = 0; i < 12; i++) {
            assert_true(hands[i] == one || !holds(hands[i]));
        }
        lets_go(one);
    }
}

static void keys_are_independent_and_binary(void **state) {
    static const char *const keys[] = {"a\0b", "a\0c", "a", "A", "a/../b", "\xff\x01 \n"};
    static const size_t lengths[] = {3, 3, 1, 1, 6, 4};
    rlock_options options = want("", RLOCK_KIND_MUTEX);
    int i;
    (void)state;
    for (i = 0; i < 12; i++) {
        options.key = keys[i % 6];
        options.key_len = lengths[i % 6];
        IS(tried(hand_with(i % 2, &options), 0, STORE_LEASE_MS), i < 6 ? RLOCK_OK : RLOCK_ERR_BUSY);
    }
}

static void wait_ends_as_timeout_and_the_queue_goes_on(void **state) {
    struct hand *first = held(hand(0, "k")), *gives_up = hand(1, "k"), *stays = hand(1, "k");
    (void)state;
    IS(tried(gives_up, 0, STORE_LEASE_MS), RLOCK_ERR_BUSY); /* its client is connected */
    asks(gives_up, 500, STORE_LEASE_MS);
    waits(1, stays);
    IS(ends(gives_up, RLOCK_ACQUIRED, 1), RLOCK_ERR_TIMEOUT);
    LEFT(gives_up->remaining_ms[RLOCK_ACQUIRED]);
    row->run_ms(50);
    lets_go(first);
    EVENTUALLY(holds(stays));
}

static void canceled_waiter_gets_nothing_and_the_next_one_does(void **state) {
    struct hand *first = held(hand(0, "k")), *head = waits(1, hand(1, "k"));
    struct hand *next = waits(1, hand(1, "k"));
    (void)state;
    IS(rlock_cancel(head->lock), RLOCK_OK);
    lets_go(first);
    EVENTUALLY(holds(next));
    IS(head->status[RLOCK_ACQUIRED], RLOCK_ERR_CANCELED);
}

static void cancel_before_the_answer_leaves_no_lock_behind(void **state) {
    struct hand *one = hand(0, "k");
    (void)state;
    asks(one, RLOCK_FOREVER, STORE_LEASE_MS);
    IS(rlock_cancel(one->lock), RLOCK_OK);
    IS(ends(one, RLOCK_ACQUIRED, 0), RLOCK_ERR_CANCELED);
    IS(tried(hand(1, "k"), 2000, 0), RLOCK_OK);
}

static void lease_that_runs_out_is_lost_before_another_gets_the_key(void **state) {
    struct hand *first = hand(0, "k"), *next = hand(1, "k");
    (void)state;
    IS(tried(first, 0, 300), RLOCK_OK);
    asks(next, RLOCK_FOREVER, STORE_LEASE_MS);
    EVENTUALLY(holds(next));
    lost_before(first, next);
    IS(first->reason, RLOCK_REASON_EXPIRED);
    if (row->fences) {
        assert_true(rlock_fence(next->lock) > first->fence[RLOCK_ACQUIRED]);
    }
}

static void watchdog_keeps_a_hold_beyond_its_lease(void **state) {
    struct hand *first = hand(0, "k"), *next;
    int i;
    (void)state;
    IS(tried(first, 0, 0), RLOCK_OK);
    next = waits(1, hand(1, "k"));
    for (i = 0; i < 2 * STORE_WATCHDOG_MS / 20; i++) {
        row->run_ms(20);
        assert_true(holds(first));
        IS(next->count[RLOCK_ACQUIRED], 0);
    }
    lets_go(first);
    EVENTUALLY(holds(next));
}

static void renewal_by_hand_keeps_the_key(void **state) {
    struct hand *first = hand(0, "k"), *next = hand(1, "k");
    (void)state;
    IS(tried(first, 0, 800), RLOCK_OK);
    asks(next, RLOCK_FOREVER, STORE_LEASE_MS);
    IS(renewed(first, 2500), RLOCK_OK);
    row->run_ms(1200);
    assert_true(holds(first));
    IS(next->count[RLOCK_ACQUIRED], 0);
    EVENTUALLY(holds(next));
    lost_before(first, next);
}

static void freed_client_gives_what_it_held_to_others(void **state) {
    struct hand *first = held(hand(0, "k")), *next = waits(1, hand(1, "k"));
    (void)state;
    client_goes(0);
    EVENTUALLY(holds(next));
    IS(first->count[RLOCK_LOST], 0);
}

static void freed_handle_gives_the_key_to_others(void **state) {
    struct hand *first = held(hand(0, "k")), *next = waits(1, hand(1, "k"));
    (void)state;
    rlock_free(first->lock);
    first->lock = NULL;
    EVENTUALLY(holds(next));
}

static const rlock_kind all_kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR, RLOCK_KIND_WRITE,
                                       RLOCK_KIND_READ, RLOCK_KIND_SEMAPHORE};

static int kind_count(void) {
    return row->kinds ? 5 : 1;
}

static void inspect_says_who_holds_and_for_how_long(void **state) {
    static const int64_t permits[5][2] = {
        {1, 0}, {1, 0}, {RLOCK_PERMITS_MAX, 0}, {RLOCK_PERMITS_MAX, RLOCK_PERMITS_MAX - 1}, {2, 1}};
    int i;
    (void)state;
    for (i = 0; i < kind_count(); i++) {
        struct hand *one = hand_of(0, all_kinds[i]), *next = hand_of(1, all_kinds[i]);
        const rlock_info *is = inspected(1, all_kinds[i]);
        IS(is->status, RLOCK_OK);
        IS(is->holders + is->left_ms, 0);
        IS(is->waiters, i == 0 ? -1 : 0);
        IS(is->permits, permits[i][0]);
        assert_null(is->token);
        held(one);
        is = inspected(1, all_kinds[i]);
        IS(is->holders, 1);
        LEFT(is->left_ms);
        IS(is->position, -1);
        IS(is->permits, permits[i][1]);
        if (is->token != NULL) {
            assert_memory_equal(told.token, rlock_client_id(w.clients[0]), 36);
            IS(told.token[36], ':');
        }
        if (permits[i][1] > 0) {
            IS(tried(next, 0, 2 * STORE_LEASE_MS), RLOCK_OK);
            is = inspected(2, all_kinds[i]);
            IS(is->holders, 2);
            assert_true(untimed || is->left_ms > STORE_LEASE_MS); /* of the last one */
            lets_go(next);
        }
        lets_go(one);
        IS(inspected(2, all_kinds[i])->holders, 0);
    }
}

static void forced_release_is_reported_to_the_holders_and_serves_the_waiters(void **state) {
    int i;
    (void)state;
    for (i = 0; i < kind_count(); i++) {
        bool shared = i >= 3;
        int64_t lease_ms = polled ? 0 : STORE_LEASE_MS; /* 0: the watchdog renews it */
        struct hand *first = hand_of(0, all_kinds[i]), *second = hand_of(1, all_kinds[i]);
        struct hand *next = hand_of(2, all_kinds[i]);
        IS(tried(first, 0, lease_ms), RLOCK_OK);
        if (shared) {
            IS(tried(second, 0, lease_ms), RLOCK_OK);
        }
        listens(0);
        listens(shared);
        row->run_ms(200); /* a hold that is older than 100 ms is watched */
        if (all_kinds[i] != RLOCK_KIND_READ) {
            asks(next, RLOCK_FOREVER, STORE_LEASE_MS);
            row->run_ms(50);
        }
        IS(forced(2, all_kinds[i])->status, RLOCK_OK);
        IS(told.info.holders, 1 + shared);
        if (polled) { /* nobody tells them */
            IS(rlock_renew(first->lock, 0, on_hand, first), RLOCK_OK);
            IS(rlock_renew(second->lock, 0, on_hand, second),
               shared ? RLOCK_OK : RLOCK_ERR_NOT_HELD);
        }
        EVENTUALLY(first->count[RLOCK_LOST] == 1 && second->count[RLOCK_LOST] == shared);
        assert_true(first->reason == RLOCK_REASON_DELETED || first->reason == RLOCK_REASON_STOLEN);
        assert_string_equal(first->text, "");
        if (all_kinds[i] != RLOCK_KIND_READ) {
            EVENTUALLY(holds(next));
            lets_go(next);
        }
        IS(forced(2, all_kinds[i])->holders, 0);
    }
}

#if RLOCK__HAS_TOKENS

static int left_after(struct hand *hand, int64_t ms) {
    int before = hand->count[RLOCK_RELEASED];
    IS(rlock_release_after(hand->lock, ms, on_hand, hand), RLOCK_OK);
    return ends(hand, RLOCK_RELEASED, before);
}

static int adopts(struct hand *hand, const char *token) {
    int before = hand->count[RLOCK_ACQUIRED];
    IS(rlock_adopt(hand->lock, token, STORE_LEASE_MS, on_hand, hand), RLOCK_OK);
    return ends(hand, RLOCK_ACQUIRED, before);
}

/* The waiter was told of a lease of 20 s, and hears of the cut, where anybody is told. */
static void key_that_is_left_is_free_when_its_time_is_over(void **state) {
    int i;
    (void)state;
    for (i = 0; i < kind_count() && i < 3; i++) {
        struct hand *first = held(hand_of(0, all_kinds[i])), *next = hand_of(1, all_kinds[i]);
        bool told_of_cuts =
            i == 0 && !cuts_untold; /* in a queue it is found when it is asked for */
        int64_t from_us = row->now_us();
        if (!store_can(RLOCK_STORE_STAYS)) {
            IS(rlock_release_after(first->lock, 2000, on_hand, first), RLOCK_ERR_ARG);
            assert_non_null(strstr(w.log_text, "rlock_release_after"));
            lets_go(first);
            continue;
        }
        if (told_of_cuts) {
            waits(1, next);
        }
        IS(left_after(first, 2000), RLOCK_OK);
        assert_false(holds(first));
        if (!told_of_cuts) {
            asks(next, RLOCK_FOREVER, STORE_LEASE_MS);
        }
        EVENTUALLY(holds(next));
        assert_true(row->now_us() - from_us >= 1900000);
        lets_go(next);
    }
}

/* A token of which the number is another one. */
static const char *another_token(const char *token) {
    static char text[RLOCK_TOKEN_MAX];
    snprintf(text, sizeof text, "%.37s987654%s", token, strchr(token + 37, ':'));
    return text;
}

static void hold_goes_on_in_the_client_that_has_its_token(void **state) {
    int i;
    (void)state;
    for (i = 0; i < kind_count(); i++) {
        struct hand *giver = held(hand_of(i > 0, all_kinds[i]));
        struct hand *taker = hand_of(2, all_kinds[i]), *other = hand_of(2, all_kinds[i]);
        uint64_t fence = rlock_fence(giver->lock);
        char token[RLOCK_TOKEN_MAX];
        int length = rlock_token(giver->lock, token, sizeof token);
        if (!store_can(RLOCK_STORE_ADOPTS)) {
            IS(length, RLOCK_ERR_ARG);
            snprintf(token, sizeof token, "01234567-89ab-cdef-0123-456789abcdef:17:1");
            IS(rlock_adopt(taker->lock, token, 0, on_hand, taker), RLOCK_ERR_ARG);
            lets_go(giver);
            continue;
        }
        IS(length, strlen(token));
        IS(left_after(giver, 60000), RLOCK_OK);
        if (i == 0) {
            client_goes(0);
        }
        IS(adopts(other, another_token(token)), RLOCK_ERR_NOT_HELD);
        IS(adopts(taker, token), RLOCK_OK);
        assert_true(holds(taker));
        assert_true(rlock_fence(taker->lock) == fence);
        IS(inspected(1, all_kinds[i])->holders, 1);
        IS(strncmp(told.token, token, told.info.token_len), 0); /* also of a client that is gone */
        assert_true(told.info.token_len > 0);
        IS(renewed(taker, STORE_LEASE_MS), RLOCK_OK);
        lets_go(taker);
        IS(taker->count[RLOCK_LOST], 0);
        IS(adopts(taker, token), RLOCK_ERR_NOT_HELD);
        IS(tried(other, 0, STORE_LEASE_MS), RLOCK_OK);
        IS(adopts(taker, token), RLOCK_ERR_NOT_HELD);
        assert_true(holds(other));
        lets_go(other);
    }
}

/* In one loop iteration, which a store may make one command of. */
static void adopted_and_own_holds_are_renewed_together(void **state) {
    static const char *const keys[] = {"b", "c", "d"};
    struct hand *hands[4];
    char token[RLOCK_TOKEN_MAX];
    int i;
    (void)state;
    if (!store_can(RLOCK_STORE_ADOPTS)) {
        return;
    }
    hands[3] = held(hand(2, "a"));
    for (i = 0; i < 3; i++) {
        struct hand *giver = held(hand(i % 2, keys[i]));
        assert_true(rlock_token(giver->lock, token, sizeof token) > 0);
        IS(left_after(giver, 60000), RLOCK_OK);
        hands[i] = hand(2, keys[i]);
        IS(adopts(hands[i], token), RLOCK_OK);
    }
    for (i = 0; i < 4; i++) {
        IS(rlock_renew(hands[i]->lock, STORE_LEASE_MS, on_hand, hands[i]), RLOCK_OK);
    }
    for (i = 0; i < 4; i++) {
        IS(ends(hands[i], RLOCK_RENEWED, 0), RLOCK_OK);
        assert_true(holds(hands[i]));
    }
}

static void several_keys_go_on_in_the_client_that_has_their_token(void **state) {
    struct hand *giver, *taker, *other;
    char token[RLOCK_TOKEN_MAX];
    (void)state;
    if (!row->kinds || single_keys || !store_can(RLOCK_STORE_ADOPTS)) {
        return;
    }
    giver = held(hand_of_keys(0, A, B));
    taker = hand_of_keys(1, A, B);
    other = hand(2, B);
    assert_true(rlock_token(giver->lock, token, sizeof token) > 0);
    IS(left_after(giver, 60000), RLOCK_OK);
    IS(adopts(taker, token), RLOCK_OK);
    IS(tried(other, 0, STORE_LEASE_MS), RLOCK_ERR_BUSY);
    lets_go(taker);
    held(other);
    IS(adopts(taker, token), RLOCK_ERR_NOT_HELD);
    assert_true(holds(other));
}

#endif /* RLOCK__HAS_TOKENS */

static void hold_that_expires_says_why(void **state) {
    rlock_options options = want("limited", RLOCK_KIND_MUTEX);
    struct hand *limited, *alone = hand(1, "alone");
    (void)state;
    options.max_hold_ms = 300;
    limited = hand_with(0, &options);
    IS(tried(limited, 0, 0), RLOCK_OK);
    IS(tried(alone, 0, 200), RLOCK_OK);
    EVENTUALLY(limited->count[RLOCK_LOST] == 1 && alone->count[RLOCK_LOST] == 1);
    IS(limited->reason, RLOCK_REASON_EXPIRED);
    assert_string_equal(limited->text, "max_hold_ms has passed");
    IS(alone->reason, RLOCK_REASON_EXPIRED);
    assert_string_equal(alone->text, ""); /* nothing was to renew it */
}

static bool refused_with_a_word(const rlock_options *options) {
    rlock *lock = NULL;
    int status;
    w.log_text[0] = 0;
    status = rlock_new(&lock, w.clients[0], options);
    rlock_free(lock);
    return status == RLOCK_ERR_ARG && w.log_text[0] != 0;
}

static void what_the_store_cannot_do_is_refused_with_a_word(void **state) {
    static const char *const keys[] = {A, B};
    rlock_options options = want("k", RLOCK_KIND_MUTEX);
    int i;
    (void)state;
    options.fencing = true;
    IS(refused_with_a_word(&options), !row->fences);
    for (i = 1; i < 5; i++) {
        options = want("k", all_kinds[i]);
        IS(refused_with_a_word(&options), !row->kinds);
    }
    options = want(NULL, RLOCK_KIND_MUTEX);
    options.keys = keys;
    options.key_count = 2;
    IS(refused_with_a_word(&options), !row->kinds || single_keys);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, store_begins, store_ends)
#define STORE_HASTY_TEST(name) \
    cmocka_unit_test_setup_teardown(name, store_begins_hastily, store_ends)

struct standing { /* an election, and when it was told what */
    rlock_election *election;
    int lead, step_down, done;
};

static void on_standing_lead(rlock_election *election, const rlock_event *event, void *user) {
    struct standing *standing = (struct standing *)user;
    (void)event;
    assert_true(rlock_elect_leads(election));
    standing->lead = ++w.order;
}

static void on_standing_step_down(rlock_election *election, const rlock_event *event, void *user) {
    struct standing *standing = (struct standing *)user;
    (void)event;
    assert_false(rlock_elect_leads(election));
    standing->step_down = ++w.order;
}

static void on_standing_done(rlock_election *election, const rlock_event *event, void *user) {
    struct standing *standing = (struct standing *)user;
    (void)election;
    IS(event->status, RLOCK_OK);
    standing->done = ++w.order;
}

/* By a resignation, by a shutdown, by a free: the one before has stepped down by then. */
static void lead_goes_from_one_client_to_the_next(void **state) {
    struct standing all[STORE_CLIENTS];
    rlock_options options = want("k", RLOCK_KIND_MUTEX);
    int i;
    (void)state;
    memset(all, 0, sizeof all);
    for (i = 0; i < STORE_CLIENTS; i++) {
        IS(rlock_elect(&all[i].election, w.clients[i], &options, on_standing_lead,
                       on_standing_step_down, &all[i]),
           RLOCK_OK);
        EVENTUALLY(all[0].lead > 0);
        row->run_ms(50); /* it waits, and not before the one before it */
        IS(all[i].lead, i == 0);
    }
    IS(rlock_elect_resign(all[0].election, on_standing_done, &all[0]), RLOCK_OK);
    EVENTUALLY(all[1].lead + all[2].lead > 0 && all[0].done > 0);
    i = all[1].lead > 0 ? 1 : 2;
    assert_true(all[0].step_down > 0 && all[0].step_down < all[i].lead);
    assert_true(rlock_elect_leads(all[i].election));
    IS(all[3 - i].lead, 0);
    IS(rlock_client_shutdown(w.clients[i], 0, NULL, NULL), RLOCK_OK);
    EVENTUALLY(all[3 - i].lead > 0);
    assert_true(all[i].step_down > 0 && all[i].step_down < all[3 - i].lead);
    for (i = 0; i < STORE_CLIENTS; i++) {
        rlock_elect_free(all[i].election);
    }
    IS(tried(hand(0, "k"), STORE_LIMIT_MS, STORE_LEASE_MS), RLOCK_OK);
}

static void on_end(rlock_client *client, int status, void *user) {
    (void)client;
    IS(status, RLOCK_OK);
    ++*(int *)user;
}

/* One holds, one waits, one finishes. */
static void ended_shutdown_and_ended_drain_leave_nothing_on_the_loop(void **state) {
    struct hand *first = hand(0, "k"), *second = hand(1, "k"), *third = hand(2, "other");
    int ended = 0;
    (void)state;
    IS(tried(first, 0, STORE_LEASE_MS), RLOCK_OK);
    IS(tried(third, 0, STORE_LEASE_MS), RLOCK_OK);
    asks(second, RLOCK_FOREVER, STORE_LEASE_MS);
    row->run_ms(20);
    IS(rlock_client_shutdown(w.clients[1], STORE_LIMIT_MS, on_end, &ended), RLOCK_OK);
    EVENTUALLY(ended == 1);
    IS(second->status[RLOCK_ACQUIRED], RLOCK_ERR_CLOSED);
    IS(on_loop.open, 2);
    IS(rlock_client_drain(w.clients[2], 0, on_end, &ended), RLOCK_OK);
    row->run_ms(20);
    assert_true(rlock_is_held(third->lock));
    IS(released(third), RLOCK_OK);
    EVENTUALLY(ended == 2);
    IS(rlock_client_shutdown(w.clients[0], STORE_LIMIT_MS, on_end, &ended), RLOCK_OK);
    EVENTUALLY(ended == 3);
    IS(first->reason, RLOCK_REASON_CLOSED);
    IS(on_loop.open, 0);
    IS(loop_watched(), 0);
}

/* And is told to keep it again. */
static void client_does_not_keep_its_loop_when_nothing_is_held_or_waited_for(void **state) {
    struct hand *first = hand(0, "k"), *second = hand(1, "k");
    (void)state;
    IS(on_loop.idle, STORE_CLIENTS);
    IS(tried(first, 0, STORE_LEASE_MS), RLOCK_OK);
    IS(on_loop.idle, STORE_CLIENTS - 1);
    asks(second, RLOCK_FOREVER, STORE_LEASE_MS);
    row->run_ms(20);
    IS(on_loop.idle, STORE_CLIENTS - 2);
    IS(released(first), RLOCK_OK);
    EVENTUALLY(second->count[RLOCK_ACQUIRED] == 1 && on_loop.idle == STORE_CLIENTS - 1);
    IS(released(second), RLOCK_OK);
    EVENTUALLY(on_loop.idle == STORE_CLIENTS);
}

#if RLOCK__HAS_TOKENS
#define STORE_TOKENS                                                    \
    , STORE_TEST(raw_last_renewal_is_sent_by_close_and_cuts_the_lease), \
        STORE_TEST(key_that_is_left_is_free_when_its_time_is_over),     \
        STORE_TEST(hold_goes_on_in_the_client_that_has_its_token),      \
        STORE_TEST(adopted_and_own_holds_are_renewed_together),         \
        STORE_TEST(several_keys_go_on_in_the_client_that_has_their_token)
#else
#define STORE_TOKENS
#endif

#define STORE_MUTEX                                                                   \
    STORE_TEST(raw_answers_are_those_of_the_contract),                                \
        STORE_TEST(raw_renewal_never_shortens_a_lease),                               \
        STORE_TEST(raw_check_does_not_move_the_end_of_a_lease),                       \
        STORE_TEST(raw_checks_that_leave_together_cut_no_lease),                      \
        STORE_TEST(raw_request_that_was_forgotten_before_it_left_is_not_executed),    \
        STORE_TEST(raw_release_that_was_submitted_last_is_sent_by_close),             \
        STORE_TEST(ended_shutdown_and_ended_drain_leave_nothing_on_the_loop),         \
        STORE_TEST(client_does_not_keep_its_loop_when_nothing_is_held_or_waited_for), \
        STORE_TEST(one_holder_at_a_time_within_a_client_and_across_clients),          \
        STORE_TEST(release_wakes_the_waiter_of_another_client),                       \
        STORE_TEST(release_wakes_the_waiter_of_the_same_client),                      \
        STORE_TEST(waiters_of_a_client_are_served_in_order),                          \
        STORE_TEST(every_waiter_of_every_client_is_served),                           \
        STORE_TEST(keys_are_independent_and_binary),                                  \
        STORE_TEST(wait_ends_as_timeout_and_the_queue_goes_on),                       \
        STORE_TEST(canceled_waiter_gets_nothing_and_the_next_one_does),               \
        STORE_TEST(cancel_before_the_answer_leaves_no_lock_behind),                   \
        STORE_TEST(lease_that_runs_out_is_lost_before_another_gets_the_key),          \
        STORE_TEST(watchdog_keeps_a_hold_beyond_its_lease),                           \
        STORE_TEST(renewal_by_hand_keeps_the_key),                                    \
        STORE_TEST(freed_client_gives_what_it_held_to_others),                        \
        STORE_TEST(freed_handle_gives_the_key_to_others),                             \
        STORE_TEST(lead_goes_from_one_client_to_the_next),                            \
        STORE_TEST(inspect_says_who_holds_and_for_how_long),                          \
        STORE_TEST(forced_release_is_reported_to_the_holders_and_serves_the_waiters), \
        STORE_TEST(hold_that_expires_says_why),                                       \
        STORE_TEST(what_the_store_cannot_do_is_refused_with_a_word) STORE_TOKENS

/* ------------------------------------------------------------------------------------------------
 * Fencing tokens.
 */

static void fences_rise_over_releases_expiries_and_clients(void **state) {
    struct hand *hands[STORE_CLIENTS];
    uint64_t last = 0;
    int i, turn;
    (void)state;
    for (i = 0; i < STORE_CLIENTS; i++) {
        hands[i] = hand(i, "k");
    }
    for (turn = 0; turn < 12; turn++) {
        struct hand *one = hands[turn * 7 % STORE_CLIENTS];
        int lost = one->count[RLOCK_LOST];
        IS(tried(one, 3000, turn % 3 == 2 ? 200 : STORE_LEASE_MS), RLOCK_OK);
        assert_true(one->fence[RLOCK_ACQUIRED] > last);
        last = one->fence[RLOCK_ACQUIRED];
        if (turn % 3 != 2) {
            assert_true(rlock_fence(one->lock) == last);
            lets_go(one);
        } else {
            EVENTUALLY(one->count[RLOCK_LOST] > lost);
            row->run_ms(30);
        }
        assert_true(rlock_fence(one->lock) == 0);
    }
}

static void fences_rise_over_local_hand_overs(void **state) {
    struct hand *hands[4];
    int i;
    (void)state;
    hands[0] = held(hand(0, "k"));
    for (i = 1; i < 3; i++) {
        hands[i] = hand(0, "k");
        asks(hands[i], RLOCK_FOREVER, STORE_LEASE_MS);
    }
    hands[3] = hand(1, "k");
    for (i = 0; i < 3; i++) {
        EVENTUALLY(holds(hands[i]));
        lets_go(hands[i]);
    }
    held(hands[3]);
    for (i = 1; i < 4; i++) {
        assert_true(hands[i]->fence[RLOCK_ACQUIRED] > hands[i - 1]->fence[RLOCK_ACQUIRED]);
    }
}

static void raw_fences_that_were_reserved_are_given_only_once(void **state) {
    rlock_request several;
    uint64_t first, count;
    struct hand *after;
    (void)state;
    raw_begins();
    several = raw_request(RLOCK_OP_ACQUIRE, 8, STORE_LEASE_MS);
    several.fences = 1000;
    raw.store->submit(raw.state, &several);
    raw.store->flush(raw.state);
    EVENTUALLY(raw.answers > 0);
    IS(raw.last.outcome, RLOCK_OUTCOME_DONE);
    first = raw.last.fence;
    count = raw.last.fences ? raw.last.fences : several.fences;
    assert_true(first > 0);
    IS(raw_outcome(RLOCK_OP_RELEASE, 8, 0), RLOCK_OUTCOME_DONE);
    after = held(hand(1, "k"));
    assert_true(after->fence[RLOCK_ACQUIRED] >= first + count);
    rlock_client_free(raw.client);
}

#define STORE_FENCES                                            \
    STORE_TEST(fences_rise_over_releases_expiries_and_clients), \
        STORE_TEST(fences_rise_over_local_hand_overs),          \
        STORE_TEST(raw_fences_that_were_reserved_are_given_only_once)

/* ------------------------------------------------------------------------------------------------
 * Several keys.
 */

static inline void several_keys_are_taken_all_or_none(void **state) {
    struct hand *one = held(hand(0, B)), *set = hand_of_keys(1, A, B);
    (void)state;
    IS(tried(set, 0, STORE_LEASE_MS), RLOCK_ERR_BUSY);
    lets_go(held(hand(2, A))); /* was not taken */
    asks(set, RLOCK_FOREVER, 1200);
    listens(1);
    row->run_ms(50);
    lets_go(one);
    EVENTUALLY(holds(set));
    IS(tried(one, 0, 0), RLOCK_ERR_BUSY);
    IS(tried(hand(2, THIRD), 0, 0), RLOCK_ERR_BUSY);
    IS(renewed(set, STORE_LEASE_MS), RLOCK_OK);
    row->run_ms(1400);
    assert_true(holds(set));
    IS(tried(one, 0, 0), RLOCK_ERR_BUSY);
    lets_go(set);
    IS(tried(one, 0, STORE_LEASE_MS), RLOCK_OK);
    held(hand(2, THIRD));
}

static inline void several_keys_exclude_single_ones_of_the_same_client(void **state) {
    struct hand *set = held(hand_of_keys(0, A, B)), *one = waits(0, hand(0, THIRD));
    (void)state;
    row->run_ms(200);
    IS(one->count[RLOCK_ACQUIRED], 0);
    lets_go(set);
    EVENTUALLY(holds(one));
}

static inline void overlapping_sets_in_any_order_do_not_deadlock(void **state) {
    struct hand *sets[2];
    int i, turn, fewest = 0;
    (void)state;
    sets[0] = hand_of_keys(0, A, B);
    sets[1] = hand_of_keys(1, B, A);
    asks(sets[0], RLOCK_FOREVER, STORE_LEASE_MS);
    asks(sets[1], RLOCK_FOREVER, STORE_LEASE_MS);
    /* Who polls may come too late each time, but not once nobody else asks. Of those that are told
     * each has it again and again; a busy machine may serve one of them many times in a row. */
    for (turn = 0; turn < 30 || (!polled && fewest < 3); turn++) {
        assert_true(turn < 120);
        EVENTUALLY(holds(sets[0]) || holds(sets[1]));
        i = holds(sets[0]) ? 0 : 1;
        assert_false(holds(sets[1 - i]));
        lets_go(sets[i]);
        fewest = sets[1 - i]->count[RLOCK_RELEASED] < sets[i]->count[RLOCK_RELEASED]
                     ? sets[1 - i]->count[RLOCK_RELEASED]
                     : sets[i]->count[RLOCK_RELEASED];
        asks(sets[i], RLOCK_FOREVER, STORE_LEASE_MS);
    }
    EVENTUALLY(holds(sets[0]) || holds(sets[1]));
    i = holds(sets[0]) ? 0 : 1;
    lets_go(sets[i]);
    EVENTUALLY(holds(sets[1 - i]));
}

static inline void one_fence_for_all_is_above_those_of_each(void **state) {
    struct hand *one = held(hand(0, B)), *set = hand_of_keys(1, A, B), *after;
    (void)state;
    lets_go(one);
    held(set);
    assert_true(rlock_fence(set->lock) > one->fence[RLOCK_ACQUIRED]);
    lets_go(set);
    after = held(hand(2, THIRD));
    assert_true(rlock_fence(after->lock) > set->fence[RLOCK_ACQUIRED]);
}

/* ------------------------------------------------------------------------------------------------
 * The queued kinds.
 */

static void fair_grants_in_the_order_of_asking_across_clients(void **state) {
    struct hand *line[8];
    int i;
    (void)state;
    line[0] = held(hand_of(0, RLOCK_KIND_FAIR));
    for (i = 1; i < 8; i++) {
        line[i] = queues(hand_of(i % 3, RLOCK_KIND_FAIR), i % 3, RLOCK_KIND_FAIR, i - 1);
    }
    for (i = 1; i < 8; i++) {
        lets_go(line[i - 1]);
        EVENTUALLY(holds(line[i]));
        assert_true(i == 7 || line[i + 1]->count[RLOCK_ACQUIRED] == 0);
    }
}

static void fair_acquire_without_a_wait_does_not_join_the_queue(void **state) {
    struct hand *first = held(hand_of(0, RLOCK_KIND_FAIR)), *once = hand_of(1, RLOCK_KIND_FAIR);
    struct hand *line;
    (void)state;
    IS(tried(once, 0, 0), RLOCK_ERR_BUSY);
    LEFT(once->remaining_ms[RLOCK_ACQUIRED]);
    IS(inspected(1, RLOCK_KIND_FAIR)->waiters, 0);
    line = queues(hand_of(2, RLOCK_KIND_FAIR), 2, RLOCK_KIND_FAIR, 0);
    IS(tried(once, 0, 0), RLOCK_ERR_BUSY);
    lets_go(first);
    EVENTUALLY(holds(line));
    lets_go(line);
    IS(tried(once, 0, 0), RLOCK_OK);
}

static void fair_waiter_that_leaves_the_queue_is_skipped(void **state) {
    struct hand *first = held(hand_of(0, RLOCK_KIND_FAIR)), *line[4];
    int i;
    (void)state;
    IS(tried(hand_of(1, RLOCK_KIND_FAIR), 0, STORE_LEASE_MS), RLOCK_ERR_BUSY); /* it is connected */
    for (i = 0; i < 3; i++) {
        line[i] = hand_of(1, RLOCK_KIND_FAIR);
        asks(line[i], i == 0 ? 300 : RLOCK_FOREVER, STORE_LEASE_MS);
        row->run_ms(20);
    }
    line[3] = hand_of(2, RLOCK_KIND_FAIR);
    asks(line[3], RLOCK_FOREVER, STORE_LEASE_MS);
    IS(ends(line[0], RLOCK_ACQUIRED, 0), RLOCK_ERR_TIMEOUT);
    IS(rlock_cancel(line[1]->lock), RLOCK_OK);
    rlock_free(line[2]->lock);
    line[2]->lock = NULL;
    EVENTUALLY(inspected(2, RLOCK_KIND_FAIR)->waiters == 1);
    lets_go(first);
    EVENTUALLY(holds(line[3]));
}

static void fair_holder_that_lets_its_lease_end_is_followed(void **state) {
    struct hand *dies = hand_of(0, RLOCK_KIND_FAIR), *next = hand_of(1, RLOCK_KIND_FAIR);
    (void)state;
    IS(tried(dies, 0, 300), RLOCK_OK);
    asks(next, RLOCK_FOREVER, STORE_LEASE_MS);
    EVENTUALLY(holds(next));
    lost_before(dies, next);
}

static void fair_fences_rise_and_renewals_extend(void **state) {
    rlock_options options = want("k", RLOCK_KIND_FAIR);
    struct hand *a, *b;
    (void)state;
    options.fencing = true;
    a = hand_with(0, &options), b = hand_with(1, &options);
    IS(tried(a, 0, 800), RLOCK_OK);
    IS(renewed(a, STORE_LEASE_MS), RLOCK_OK);
    queues(b, 1, RLOCK_KIND_FAIR, 0);
    row->run_ms(1000);
    assert_true(holds(a));
    lets_go(a);
    EVENTUALLY(holds(b));
    assert_true(rlock_fence(b->lock) > a->fence[RLOCK_ACQUIRED]);
}

static void readers_share_and_a_writer_waits_for_all(void **state) {
    struct hand *readers[3], *writer = hand_of(1, RLOCK_KIND_WRITE);
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        readers[i] = held(hand_of(i, RLOCK_KIND_READ));
    }
    IS(tried(writer, 0, 0), RLOCK_ERR_BUSY);
    asks(writer, RLOCK_FOREVER, STORE_LEASE_MS);
    for (i = 0; i < 3; i++) {
        row->run_ms(30);
        assert_false(holds(writer));
        lets_go(readers[i]);
    }
    EVENTUALLY(holds(writer));
    IS(tried(readers[0], 0, 0), RLOCK_ERR_BUSY);
    lets_go(writer);
    IS(tried(readers[0], 0, 0), RLOCK_OK);
}

static void waiting_writer_is_before_readers_that_come_later(void **state) {
    struct hand *first = held(hand_of(0, RLOCK_KIND_READ));
    struct hand *w1 = queues(hand_of(1, RLOCK_KIND_WRITE), 1, RLOCK_KIND_WRITE, 0);
    struct hand *r1 = queues(hand_of(0, RLOCK_KIND_READ), 0, RLOCK_KIND_READ, 1);
    struct hand *r2 = queues(hand_of(2, RLOCK_KIND_READ), 2, RLOCK_KIND_READ, 2);
    struct hand *w2 = queues(hand_of(0, RLOCK_KIND_WRITE), 0, RLOCK_KIND_WRITE, 3);
    (void)state;
    IS(tried(hand_of(2, RLOCK_KIND_READ), 0, 0), RLOCK_ERR_BUSY);
    lets_go(first);
    EVENTUALLY(holds(w1));
    assert_true(!holds(r1) && !holds(r2));
    lets_go(w1);
    EVENTUALLY(holds(r1) && holds(r2));
    assert_false(holds(w2));
    lets_go(r1);
    row->run_ms(30);
    assert_false(holds(w2));
    lets_go(r2);
    EVENTUALLY(holds(w2));
}

static void writer_steps_down_to_its_own_read_lock(void **state) {
    rlock_options write = want("k", RLOCK_KIND_WRITE), read = want("k", RLOCK_KIND_READ);
    struct hand *writer, *mine, *other, *elsewhere, *next;
    (void)state;
    write.owner = read.owner = 7;
    writer = held(hand_with(0, &write));
    mine = hand_with(0, &read);
    elsewhere = hand_with(1, &read);
    other = hand_of(0, RLOCK_KIND_READ);
    next = queues(hand_of(2, RLOCK_KIND_WRITE), 2, RLOCK_KIND_WRITE, 0);
    IS(tried(other, 0, 0), RLOCK_ERR_BUSY);
    IS(tried(elsewhere, 0, 0), RLOCK_ERR_BUSY);
    held(mine);
    lets_go(writer);
    row->run_ms(50);
    assert_true(holds(mine) && !holds(next));
    lets_go(mine);
    EVENTUALLY(holds(next));
}

static void reader_in_line_comes_beside_its_writer(void **state) {
    rlock_options write = want("k", RLOCK_KIND_WRITE), read = want("k", RLOCK_KIND_READ);
    struct hand *first = held(hand_of(1, RLOCK_KIND_WRITE)), *writer, *reader, *last;
    (void)state;
    write.owner = read.owner = 7;
    writer = queues(hand_with(0, &write), 0, RLOCK_KIND_WRITE, 0);
    reader = queues(hand_with(0, &read), 0, RLOCK_KIND_READ, 1);
    last = queues(hand_of(2, RLOCK_KIND_WRITE), 2, RLOCK_KIND_WRITE, 2);
    lets_go(first);
    EVENTUALLY(holds(writer) && holds(reader));
    IS(inspected(1, RLOCK_KIND_READ)->waiters, 1); /* it stands there no more */
    lets_go(writer);
    row->run_ms(1100); /* longer than an offer */
    assert_true(holds(reader) && !holds(last));
    lets_go(reader);
    EVENTUALLY(holds(last));
}

static void semaphore_gives_out_no_more_than_there_are(void **state) {
    struct hand *a = held(permit(0, 2, 0)), *b = held(permit(1, 2, 0)), *c = permit(2, 2, 0), *d;
    (void)state;
    IS(tried(c, 0, 0), RLOCK_ERR_BUSY);
    asks(c, RLOCK_FOREVER, STORE_LEASE_MS);
    EVENTUALLY(inspected(0, RLOCK_KIND_SEMAPHORE)->waiters == 1);
    d = queues(permit(0, 2, 0), 0, RLOCK_KIND_SEMAPHORE, 1);
    lets_go(b);
    EVENTUALLY(holds(c));
    row->run_ms(30);
    assert_false(holds(d));
    lets_go(a);
    EVENTUALLY(holds(d));
}

static void heavy_one_waits_for_all_it_weighs_and_is_not_starved(void **state) {
    struct hand *a = held(permit(0, 3, 0)), *b = held(permit(1, 3, 0)), *heavy = permit(2, 3, 3);
    struct hand *late = permit(0, 3, 0);
    (void)state;
    queues(heavy, 2, RLOCK_KIND_SEMAPHORE, 0);
    queues(late, 0, RLOCK_KIND_SEMAPHORE, 1);
    lets_go(a);
    row->run_ms(1500); /* longer than an offer */
    assert_false(holds(heavy) || holds(late));
    lets_go(b);
    EVENTUALLY(holds(heavy));
    assert_false(holds(late));
    lets_go(heavy);
    EVENTUALLY(holds(late));
}

static void permits_of_the_dead_come_back_by_themselves(void **state) {
    struct hand *dies = permit(0, 1, 0), *next = permit(1, 1, 0);
    (void)state;
    IS(tried(dies, 0, 300), RLOCK_OK);
    asks(next, RLOCK_FOREVER, STORE_LEASE_MS);
    EVENTUALLY(holds(next));
    lost_before(dies, next);
}

static void number_of_permits_changes_while_in_use(void **state) {
    struct hand *a = held(permit(0, 2, 0)), *b = held(permit(1, 2, 0));
    struct hand *c = queues(permit(2, 2, 0), 2, RLOCK_KIND_SEMAPHORE, 0);
    struct hand *d = queues(permit(0, 2, 0), 0, RLOCK_KIND_SEMAPHORE, 1);
    (void)state;
    IS(permits_set(0, 3)->status, RLOCK_OK);
    EVENTUALLY(holds(c));
    assert_false(holds(d));
    IS(inspected(1, RLOCK_KIND_SEMAPHORE)->permits, 0);
    IS(permits_set(0, 1)->status, RLOCK_OK);
    lets_go(a);
    lets_go(b);
    row->run_ms(50);
    assert_false(holds(d));
    lets_go(c);
    EVENTUALLY(holds(d));
    IS(tried(a, 0, 0), RLOCK_ERR_BUSY);
    IS(permits_set(0, 0)->status, RLOCK_OK); /* as the options say, again */
    IS(tried(a, 0, STORE_LEASE_MS), RLOCK_OK);
    IS(tried(b, 0, STORE_LEASE_MS), RLOCK_ERR_BUSY);
}

static void queue_position_counts_who_is_before(void **state) {
    struct hand *line[4];
    int i;
    (void)state;
    line[0] = held(hand_of(1, RLOCK_KIND_FAIR));
    IS(rlock_queue_position(line[0]->lock, on_told, &told), RLOCK_ERR_STATE);
    for (i = 1; i < 4; i++) {
        line[i] = queues(hand_of(i % 2, RLOCK_KIND_FAIR), i % 2, RLOCK_KIND_FAIR, i - 1);
    }
    for (i = 1; i < 4; i++) {
        memset(&told, 0, sizeof told);
        IS(answer_to(rlock_queue_position(line[i]->lock, on_told, &told))->status, RLOCK_OK);
        IS(told.info.position, i - 1);
        IS(told.info.waiters, 3);
    }
}

static bool hold_together(rlock_kind a, rlock_kind b) {
    return a == b && (a == RLOCK_KIND_READ || a == RLOCK_KIND_SEMAPHORE);
}

static bool belong_together(rlock_kind a, rlock_kind b) {
    bool rw = (a == RLOCK_KIND_READ || a == RLOCK_KIND_WRITE) &&
              (b == RLOCK_KIND_READ || b == RLOCK_KIND_WRITE);
    return a == b || rw;
}

static void kinds_that_do_not_belong_together_are_of_the_wrong_type(void **state) {
    int i, k;
    (void)state;
    for (i = 0; i < 5; i++) {
        struct hand *holder = held(hand_of(0, all_kinds[i]));
        for (k = 0; k < 5; k++) {
            struct hand *other = hand_of(1, all_kinds[k]);
            if (!belong_together(all_kinds[i], all_kinds[k])) {
                IS(tried(other, 0, 0), RLOCK_ERR_WRONG_TYPE);
                IS(tried(other, RLOCK_FOREVER, 0), RLOCK_ERR_WRONG_TYPE);
                IS(inspected(1, all_kinds[k])->status, RLOCK_ERR_WRONG_TYPE);
                IS(forced(1, all_kinds[k])->status, RLOCK_ERR_WRONG_TYPE);
                if (all_kinds[k] == RLOCK_KIND_SEMAPHORE) {
                    IS(permits_set(1, 7)->status, RLOCK_ERR_WRONG_TYPE);
                }
            } else if (hold_together(all_kinds[i], all_kinds[k])) {
                IS(tried(other, 0, 0), RLOCK_OK);
                lets_go(other);
            } else {
                IS(tried(other, 0, 0), RLOCK_ERR_BUSY);
            }
            rlock_free(other->lock);
            other->lock = NULL;
        }
        assert_true(holds(holder));
        IS(inspected(1, all_kinds[i])->holders, 1);
        lets_go(holder);
    }
}

#define STORE_KEYS                                                       \
    STORE_TEST(several_keys_are_taken_all_or_none),                      \
        STORE_TEST(several_keys_exclude_single_ones_of_the_same_client), \
        STORE_TEST(overlapping_sets_in_any_order_do_not_deadlock),       \
        STORE_TEST(one_fence_for_all_is_above_those_of_each)

#define STORE_KINDS                                                             \
    STORE_TEST(fair_grants_in_the_order_of_asking_across_clients),              \
        STORE_TEST(fair_acquire_without_a_wait_does_not_join_the_queue),        \
        STORE_TEST(fair_waiter_that_leaves_the_queue_is_skipped),               \
        STORE_TEST(fair_holder_that_lets_its_lease_end_is_followed),            \
        STORE_TEST(fair_fences_rise_and_renewals_extend),                       \
        STORE_TEST(readers_share_and_a_writer_waits_for_all),                   \
        STORE_TEST(waiting_writer_is_before_readers_that_come_later),           \
        STORE_TEST(writer_steps_down_to_its_own_read_lock),                     \
        STORE_HASTY_TEST(reader_in_line_comes_beside_its_writer),               \
        STORE_TEST(semaphore_gives_out_no_more_than_there_are),                 \
        STORE_HASTY_TEST(heavy_one_waits_for_all_it_weighs_and_is_not_starved), \
        STORE_TEST(permits_of_the_dead_come_back_by_themselves),                \
        STORE_TEST(number_of_permits_changes_while_in_use),                     \
        STORE_TEST(queue_position_counts_who_is_before),                        \
        STORE_TEST(kinds_that_do_not_belong_together_are_of_the_wrong_type)

#endif /* TESTS_STORE_H */
