/* storm.c - programs made up by dice, against the core and two stores, with an oracle beside them
 *
 * A seed is a program in virtual time: three clients and ten handles on two keys acquire, renew,
 * release, cancel, shut down and free as the dice say, from outside and from inside callbacks. The
 * store is the one inside the process, or a chaos server: it answers late, refuses, loses
 * connections with commands in them that are executed later, and has keys deleted and stolen.
 *
 * After every entry the oracle asks: does at most one handle hold each key, was it told so, does
 * the server say the same for at least as long, does each token at the server have somebody who
 * will let it go? Whenever the clock moves: was everybody told whose deadline has passed? At the
 * end: has every operation ended once, is nothing left at the server, was every block freed?
 * virtual.h checks the rest of the contract.
 *
 *     storm          every family of seeds, and in each some that were not run before
 *     storm SEED     that one seed, with a trace; a failure prints the seed
 */

#define RLOCK__RING_MIN 2 /* so few holds stand in the ring of their client */
#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#define RLOCK_ASSERT(x) assert_true(x) /* a broken invariant is a failed seed */
#include "fresh.h"
#include "virtual.h"

#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STORM_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define STORM_SANITIZED
#endif
#ifdef STORM_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

#define CLIENTS 3
#define HANDS 10
#define KEYS 2
#define SETTLE_MS 40000
#define SPINS 5000
#define FAMILY 1000000 /* so many seeds lie between the first ones of two families */

enum {
    MEMORY = 1,      /* the store inside the process instead of the chaos server */
    REFUSALS = 2,    /* commands are answered with faults */
    BREAKS = 4,      /* connections are lost and refused */
    TAMPERING = 8,   /* keys are deleted and stolen */
    STALLS = 16,     /* the program is busy or stopped for a while */
    NO_MEMORY = 32,  /* allocations fail */
    FREES = 64,      /* clients are freed */
    SHUTDOWNS = 128, /* clients are shut down */
    SLOW = 256,      /* commands and answers take up to 30 ms each, or under 1 ms */
    INSTANT = 512,   /* many take no time at all */
    REENTRANT = 1024,
    LIES = 2048 /* answers that no honest server gives */
};
#define WEATHER (STALLS | FREES | SHUTDOWNS | SLOW | INSTANT | REENTRANT)

static const char *const keys[KEYS] = {"a", "b{1}"};

struct seat { /* one client, or room for one */
    rlock_client *client;
    int64_t command_timeout_ms;
    bool shutting, shut;
};

struct hand { /* one handle, or room for one */
    struct owner *owner;
    struct seat *seat;
    int key;
    bool closed;  /* its client was freed */
    bool waiting; /* for an acquire of a handle that holds nothing */
    bool holds;   /* told ACQUIRED; neither told LOST nor asked to let go since */
    int count;
    int64_t acquire_by_us, release_by_us; /* when these must have ended; 0 = not under way */
};

static struct {
    const char *program;
    uint64_t first; /* and only seed, with a trace; 0 = all of them */
    bool running;
    uint64_t seed, dice;
    unsigned modes;
    bool settling; /* the storm is over: what is left must come to an end */
    struct virtual_loop loop;
    rlock_store *memory;
    struct seat seats[CLIENTS];
    struct hand hands[HANDS];
    uint64_t acquired, lost, released; /* by all seeds of a family */
} g;

static uint32_t roll(uint32_t sides) {
    return virtual_random(&g.dice) % sides;
}

static bool one_in(uint32_t n) {
    return roll(n) == 0;
}

static bool in(unsigned mode) {
    return (g.modes & mode) != 0 && !g.settling;
}

__attribute__((format(printf, 1, 2))) static void trace(const char *format, ...) {
    va_list arguments;
    if (g.first != 0) {
        printf("%10lld us  ", (long long)(g.loop.now_us - 1000000000));
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        putchar('\n');
    }
}

/* ------------------------------------------------------------------------------------------------
 * The hook config.on_event: half of the seeds have one, and what it is told adds up.
 */

enum { BOOK_IDLE, BOOK_WAITS, BOOK_HOLDS };

static struct book { /* what the hook of one client was told */
    const rlock_client *client;
    int state[VIRTUAL_OWNERS + 1]; /* by the numbers of its handles */
    int waiting, holding;
    int64_t last_us;
} books[VIRTUAL_CLIENTS + 1];
static int booked;

static void on_report(void *user, const rlock_report *report) {
    struct book *book = (struct book *)user;
    int *state = &book->state[report->handle], before = *state;
    BETWEEN(report->now_us, book->last_us, INT64_MAX);
    book->last_us = report->now_us;
    BETWEEN(report->handle, report->kind == RLOCK_REPORT_CLEANED ? 0 : 1, VIRTUAL_OWNERS);
    BETWEEN(report->span_us, 0, INT64_MAX);
    trace("  report: %s, handle %d: %s", rlock_report_str(report->kind), (int)report->handle,
          rlock_strerror(report->status));
    switch (report->kind) {
    case RLOCK_REPORT_ASKED:
        SAME(before, BOOK_IDLE);
        *state = BOOK_WAITS;
        break;
    case RLOCK_REPORT_GRANTED:
        SAME(before, BOOK_WAITS);
        BETWEEN(report->left_us, 1, INT64_MAX);
        *state = BOOK_HOLDS;
        break;
    case RLOCK_REPORT_FAILED:
        SAME(before, BOOK_WAITS);
        assert_true(report->status != RLOCK_OK);
        *state = BOOK_IDLE;
        break;
    case RLOCK_REPORT_RENEWED: SAME(before, BOOK_HOLDS); break;
    case RLOCK_REPORT_RELEASED:
    case RLOCK_REPORT_HANDED_ON:
    case RLOCK_REPORT_LOST:
        SAME(before, BOOK_HOLDS);
        *state = BOOK_IDLE;
        break;
    default: break;
    }
    book->waiting += (*state == BOOK_WAITS) - (before == BOOK_WAITS);
    book->holding += (*state == BOOK_HOLDS) - (before == BOOK_HOLDS);
}

/* By seeds and not by dice: a seed is the same program with the hook as without. */
static void book_open(rlock_config *config) {
    memset(&books[++booked], 0, sizeof *books);
    if (g.seed % 2 != 0) {
        config->on_event = on_report;
        config->event_user = &books[booked];
    }
}

static struct book *book_of(const rlock_client *client) {
    int i = booked;
    while (i > 0 && books[i].client != client) {
        i--;
    }
    return &books[i]; /* the first one is nobody's */
}

/* What the hook was told and what the handle says are the same. */
static void book_check(const rlock *lock, bool holds) {
    struct book *book = g.seed % 2 != 0 ? book_of(lock->gate->client) : NULL;
    if (book != NULL) {
        SAME(book->state[rlock__times_of(lock)->number] == BOOK_HOLDS, holds);
    }
}

/* A client is quiet, or is freed. */
static void book_close(const rlock_client *client, bool freed) {
    struct book *book = book_of(client);
    SAME(book->waiting, 0);
    SAME(book->holding, 0);
    book->client = freed ? NULL : book->client;
}

/* ------------------------------------------------------------------------------------------------
 * The chaos server.
 */

enum { UNUSED, CONNECTING, UP };

struct line {             /* the connection of one client */
    rlock_client *client; /* NULL: closed */
    const rlock_store_events *events;
    void *owner;
    rlock_timer timer;
    rlock_link queue; /* submitted, not sent */
    int number, state;
    int64_t connect_us, break_us, push_us; /* when that happens; 0 = not planned */
    int64_t last_us;                       /* one connection's commands are executed in order */
    bool pushing, watches[KEYS];
    int64_t wake_us[KEYS];
};

struct command { /* on its way, or executed and not answered */
    struct command *next;
    struct line *line;      /* NULL: the connection was lost or closed */
    rlock_request *request; /* NULL: nobody waits for the answer */
    int number, key, op;
    unsigned flags;
    uint64_t token;
    int64_t lease_ms, execute_us, answer_us;
    bool executed, late; /* late: executed although its connection was lost before */
    bool refused;
    rlock_answer answer;
};

static struct {
    struct line lines[VIRTUAL_CLIENTS + 1]; /* by their numbers, which begin with 1 */
    int count;
    struct command *commands; /* in the order in which they were sent */
    struct held {             /* one key */
        int number;           /* whose; 0 = a stranger's */
        uint64_t token, fence;
        int64_t expires_us;
        bool late; /* by a command that was executed late */
    } held[KEYS];
} server;

static void sooner(int64_t *due_us, int64_t at_us) {
    if (at_us > 0 && (*due_us < 0 || at_us < *due_us)) {
        *due_us = at_us;
    }
}

static void line_arm(struct line *line) {
    const struct command *command;
    int64_t due_us = -1;
    int key;
    if (line->state == CONNECTING) {
        sooner(&due_us, line->connect_us);
    } else if (line->state == UP) {
        sooner(&due_us, line->push_us);
        sooner(&due_us, line->break_us);
    }
    for (key = 0; key < KEYS; key++) {
        sooner(&due_us, line->wake_us[key]);
    }
    for (command = server.commands; command != NULL; command = command->next) {
        if (command->line == line && command->request != NULL) {
            sooner(&due_us, command->answer_us);
        }
    }
    rlock_timer_set(line->client, &line->timer, due_us);
}

static void key_changed(int key) {
    struct line *line;
    for (line = server.lines; line <= server.lines + server.count; line++) {
        if (line->client != NULL && line->watches[key] && line->pushing && line->state == UP &&
            line->wake_us[key] == 0) {
            line->wake_us[key] = g.loop.now_us + roll(500);
            line_arm(line);
        }
    }
}

static rlock_fault refusal(void) {
    static const rlock_fault faults[] = {RLOCK_FAULT_BUSY, RLOCK_FAULT_BUSY, RLOCK_FAULT_OTHER,
                                         RLOCK_FAULT_AUTH, RLOCK_FAULT_NOMEM};
    return faults[roll(sizeof faults / sizeof faults[0])];
}

/* Whether no other acquire with this token is still to be executed. */
static bool is_sure(const struct command *command) {
    const struct command *other;
    for (other = server.commands; other != NULL; other = other->next) {
        if (other != command && !other->executed && other->op == RLOCK_OP_ACQUIRE &&
            other->number == command->number && other->token == command->token) {
            return false;
        }
    }
    return true;
}

static void execute_acquire(struct command *command, struct held *held, bool there, bool ours) {
    int64_t until_us = command->execute_us + command->lease_ms * 1000;
    bool retry = (command->flags & RLOCK_REQUEST_RETRY) != 0;
    if (ours && !retry && command->request != NULL && !(g.modes & LIES)) {
        fail_msg("an acquire that is no retry finds its own token");
    }
    if (there && !(ours && retry)) {
        command->answer.outcome = RLOCK_OUTCOME_HELD;
        command->answer.left_ms = (held->expires_us - command->execute_us + 999) / 1000;
        return;
    }
    if (!ours || held->expires_us < until_us) {
        held->expires_us = until_us;
    }
    held->late = command->late || (ours && held->late);
    held->number = command->number;
    held->token = command->token;
    command->answer.fence = ++held->fence;
}

static void execute(struct command *command) {
    struct held *held = &server.held[command->key];
    bool there = held->expires_us > command->execute_us;
    bool ours = there && held->number == command->number && held->token == command->token;
    int64_t until_us = command->execute_us + command->lease_ms * 1000;
    command->executed = true;
    command->answer.settled = is_sure(command);
    command->answer.left_ms = -1;
    if (command->refused) {
        command->answer.outcome = RLOCK_OUTCOME_FAULT;
        command->answer.fault = refusal();
        command->answer.text = "refused";
    } else if (command->op == RLOCK_OP_ACQUIRE) {
        execute_acquire(command, held, there, ours);
    } else if (!ours) {
        command->answer.outcome = there ? RLOCK_OUTCOME_STOLEN : RLOCK_OUTCOME_GONE;
    } else if (command->op == RLOCK_OP_RELEASE) {
        held->expires_us = 0;
        key_changed(command->key);
    } else if (held->expires_us < until_us) {
        held->expires_us = until_us;
    }
    if (in(LIES) && one_in(3)) {
        command->answer.outcome = (rlock_outcome)roll(RLOCK_OUTCOME_FAULT + 1);
        command->answer.fault = (rlock_fault)roll(RLOCK_FAULT_OTHER + 1);
        command->answer.settled = one_in(2);
        command->answer.left_ms = one_in(4) ? INT64_MAX / 2000 : (int64_t)roll(100) - 1;
    }
    trace("  server: op %d of %d, token %d, key %d: %d, %lld ms left%s", command->op,
          command->number, (int)command->token, command->key, (int)command->answer.outcome,
          (long long)command->answer.left_ms, command->late ? ", late" : "");
}

static struct command *server_next(void) {
    struct command *command, *next = NULL;
    for (command = server.commands; command != NULL; command = command->next) {
        if (!command->executed && (next == NULL || command->execute_us < next->execute_us)) {
            next = command;
        }
    }
    return next;
}

/* Executes what is due, and forgets what nobody waits for. */
static void server_run(void) {
    struct command *next, **at = &server.commands;
    while ((next = server_next()) != NULL && next->execute_us <= g.loop.now_us) {
        execute(next);
    }
    while (*at != NULL) {
        struct command *command = *at;
        if (command->executed && command->request == NULL) {
            *at = command->next;
            free(command);
        } else {
            at = &command->next;
        }
    }
}

static int64_t some_delay_us(void) {
    uint32_t most = g.modes & SLOW ? 30000 : 800;
    if ((g.modes & INSTANT) && !one_in(3)) {
        return 0;
    }
    return 1 + roll(one_in(4) ? most : most / 8 + 1);
}

static void answer(struct line *line, struct command *command, const rlock_answer *answer) {
    rlock_request *request = command->request;
    command->request = NULL;
    line->events->answered(line->owner, request, answer);
}

/* The connection is lost: half of what is in it gets lost too, the rest is executed later. */
static void line_break(struct line *line) {
    struct command *command;
    rlock_answer lost;
    memset(&lost, 0, sizeof lost);
    lost.outcome = RLOCK_OUTCOME_FAULT;
    lost.fault = RLOCK_FAULT_UNKNOWN;
    lost.text = "lost";
    trace("  line %d breaks", line->number);
    line->state = CONNECTING;
    line->connect_us = g.loop.now_us + 1000 + roll(50000);
    line->break_us = line->push_us = line->last_us = 0;
    line->pushing = false;
    memset(line->wake_us, 0, sizeof line->wake_us);
    for (command = server.commands; command != NULL; command = command->next) {
        if (command->line == line) {
            command->line = NULL;
            if (!command->executed) {
                command->late = true;
                command->executed = one_in(2);
                command->execute_us = g.loop.now_us + roll(g.modes & SLOW ? 60000 : 3000);
            }
            if (command->request != NULL) {
                answer(line, command, &lost);
            }
        }
    }
    line->events->pushing(line->owner, NULL, false);
    line->events->down(line->owner, NULL, one_in(8) ? RLOCK_FAULT_BUSY : RLOCK_FAULT_DOWN, "down");
}

static void line_connect(struct line *line) {
    if (in(BREAKS) && one_in(3)) {
        trace("  line %d is refused", line->number);
        line->connect_us = g.loop.now_us + 1000 + roll(30000);
        line->events->down(line->owner, NULL, RLOCK_FAULT_DOWN, "refused");
        return;
    }
    trace("  line %d is up", line->number);
    line->state = UP;
    line->break_us = in(BREAKS) ? g.loop.now_us + 1 + roll(400000) : 0;
    line->push_us = g.settling || !one_in(4) ? g.loop.now_us + 1 + roll(20000) : 0;
    line->events->up(line->owner, NULL);
}

static void line_push(struct line *line) {
    line->pushing = !line->pushing;
    line->push_us = !g.settling && one_in(2) ? g.loop.now_us + 1 + roll(100000) : 0;
    trace("  line %d pushes: %d", line->number, (int)line->pushing);
    line->events->pushing(line->owner, NULL, line->pushing);
}

static void line_answer(struct line *line) {
    struct command *command, *next;
    do {
        next = NULL;
        for (command = server.commands; command != NULL; command = command->next) {
            if (command->line == line && command->request != NULL && command->executed &&
                command->answer_us <= g.loop.now_us &&
                (next == NULL || command->answer_us < next->answer_us)) {
                next = command;
            }
        }
        if (next != NULL) {
            answer(line, next, &next->answer);
        }
    } while (next != NULL);
}

static void line_fire(rlock_timer *timer) {
    struct line *line = RLOCK__OF(timer, struct line, timer);
    int64_t now_us = g.loop.now_us;
    int key;
    server_run();
    if (line->state == CONNECTING && line->connect_us <= now_us) {
        line_connect(line);
    }
    if (line->state == UP && line->push_us != 0 && line->push_us <= now_us) {
        line_push(line);
    }
    if (line->state == UP && line->break_us != 0 && line->break_us <= now_us) {
        line->break_us = 0;
        if (in(BREAKS)) {
            line_break(line);
        }
    }
    line_answer(line);
    for (key = 0; key < KEYS; key++) {
        if (line->wake_us[key] != 0 && line->wake_us[key] <= now_us) {
            const char *name = one_in(20) ? NULL : keys[key];
            line->wake_us[key] = 0;
            line->events->woken(line->owner, name, name != NULL ? strlen(name) : 0);
        }
    }
    line_arm(line);
}

static int chaos_open(const rlock_store *store, rlock_client *client,
                      const struct rlock_config *config, const rlock_store_events *events,
                      void *owner, void **state) {
    struct line *line = &server.lines[server.count + 1];
    (void)store;
    (void)config;
    if (rlock_timer_add(client, &line->timer, line_fire) != RLOCK_OK) {
        return RLOCK_ERR_NOMEM;
    }
    line->client = client;
    line->events = events;
    line->owner = owner;
    line->number = ++server.count;
    line->queue.next = line->queue.prev = &line->queue;
    *state = line;
    return RLOCK_OK;
}

static int key_of(const char *key) { /* they begin with a, b ... */
    BETWEEN(key[0], 'a', 'a' + KEYS - 1);
    return key[0] - 'a';
}

static void unqueue(rlock_request *request) {
    request->store.link.prev->next = request->store.link.next;
    request->store.link.next->prev = request->store.link.prev;
}

static void line_send(struct line *line, rlock_request *request) {
    struct command *command = (struct command *)calloc(1, sizeof *command), **at;
    assert_non_null(command);
    unqueue(request);
    request->store.stage = 2;
    request->sent_us = g.loop.now_us;
    command->line = line;
    command->request = request;
    command->number = line->number;
    command->key = key_of(request->key);
    command->op = request->op;
    command->flags = request->flags;
    command->token = request->token;
    command->lease_ms = request->lease_ms;
    command->execute_us = g.loop.now_us + some_delay_us();
    if (command->execute_us <= line->last_us) {
        command->execute_us = line->last_us + 1;
    }
    line->last_us = command->execute_us;
    command->answer_us = command->execute_us + some_delay_us();
    command->refused = in(REFUSALS) && one_in(5);
    for (at = &server.commands; *at != NULL; at = &(*at)->next) {
    }
    *at = command;
}

static void chaos_flush(void *state) {
    struct line *line = (struct line *)state;
    while (line->state == UP && line->queue.next != &line->queue) {
        line_send(line, RLOCK__OF(line->queue.next, rlock_request, store.link));
    }
    line_arm(line);
}

static void chaos_submit(void *state, rlock_request *request) {
    struct line *line = (struct line *)state;
    trace("  line %d: submit op %d, token %d, lease %lld", line->number, request->op,
          (int)request->token, (long long)request->lease_ms);
    request->store.stage = 1;
    request->store.link.prev = line->queue.prev;
    request->store.link.next = &line->queue;
    line->queue.prev->next = &request->store.link;
    line->queue.prev = &request->store.link;
    if (line->state == UNUSED) {
        line->state = CONNECTING;
        line->connect_us = g.loop.now_us + 1 + roll(3000);
        line_arm(line);
    }
}

static bool chaos_forget(void *state, rlock_request *request) {
    struct command *command;
    (void)state;
    BETWEEN(request->store.stage, 1, 2);
    if (request->store.stage == 1) {
        unqueue(request);
        return false;
    }
    for (command = server.commands; command != NULL && command->request != request;
         command = command->next) {
    }
    assert_non_null(command);
    command->request = NULL;
    return true;
}

static void chaos_watch(void *state, const char *key, size_t key_len, bool on) {
    (void)key_len;
    ((struct line *)state)->watches[key_of(key)] = on;
}

static void chaos_close(void *state) {
    struct line *line = (struct line *)state;
    struct command *command;
    chaos_flush(line); /* what was submitted is sent, releases above all */
    while (line->queue.next != &line->queue) {
        unqueue(RLOCK__OF(line->queue.next, rlock_request, store.link));
    }
    for (command = server.commands; command != NULL; command = command->next) {
        if (command->line == line) {
            command->line = NULL;
            command->request = NULL;
        }
    }
    rlock_timer_drop(line->client, &line->timer);
    line->client = NULL;
}

static const rlock_store chaos = {NULL,         chaos_open,  chaos_close, chaos_submit,
                                  chaos_forget, chaos_watch, chaos_flush, NULL,
                                  NULL,         0,           NULL};

static void tamper(void) {
    int key = (int)roll(KEYS);
    struct held *held = &server.held[key];
    server_run();
    if (one_in(2)) {
        trace("DEL %s", keys[key]);
        held->expires_us = 0;
    } else {
        trace("a stranger takes %s", keys[key]);
        held->expires_us = g.loop.now_us + 1000 + roll(50000);
        held->number = 0;
    }
    key_changed(key);
}

/* ------------------------------------------------------------------------------------------------
 * The oracle.
 */

/* The only look inside the library: whether a claim of the client still knows the token. */
static bool somebody_knows(rlock_client *client, int key, uint64_t token) {
    rlock__item *item = rlock__map_find(&client->gates, keys[key], strlen(keys[key]));
    rlock__gate *gate = item != NULL ? rlock__gate_at(item) : NULL;
    int i;
    for (i = 0; i < 2 && gate != NULL; i++) {
        rlock_link *lists[2] = {gate->waiters != NULL ? &gate->waiters->list : NULL, &gate->claims};
        rlock_link *list = lists[i], *at;
        for (at = list != NULL ? list->next : NULL; at != list; at = at->next) {
            if (RLOCK__OF(at, rlock__claim, link)->token == token) {
                return true;
            }
        }
    }
    return false;
}

static bool on_the_way(int number) {
    const struct command *command;
    for (command = server.commands; command != NULL; command = command->next) {
        if (command->number == number && !command->executed) {
            return true;
        }
    }
    return false;
}

/* Each token at the server has somebody who will let it go; a client that was freed while it was
 * connected left none. What was executed late, after that, runs out with its lease. */
static void check_token(int key) {
    const struct held *held = &server.held[key];
    const struct line *line = &server.lines[held->number];
    bool forgotten = false;
    if (line->client != NULL) {
        forgotten = !somebody_knows(line->client, key, held->token);
    } else if (line->state == UP && !(g.modes & REFUSALS)) {
        forgotten = !held->late && !on_the_way(held->number);
    }
    if (forgotten && held->expires_us > g.loop.now_us) {
        fail_msg("nobody lets go of token %d of %d, key %d", (int)held->token, held->number, key);
    }
}

static void check_server(const struct hand *hand) {
    const struct held *held = &server.held[hand->key];
    int64_t until_us = g.loop.now_us + rlock_remaining_ms(hand->owner->lock) * 1000;
    assert_ptr_equal(server.lines[held->number].client, hand->seat->client);
    BETWEEN(held->expires_us, until_us, INT64_MAX);
}

static void check_holders(void) {
    bool honest = !(g.modes & (MEMORY | TAMPERING));
    int i, holders[KEYS] = {0, 0};
    server_run();
    for (i = 0; i < HANDS; i++) {
        struct hand *hand = &g.hands[i];
        if (hand->owner == NULL || !rlock_is_held(hand->owner->lock)) {
            continue;
        }
        assert_true(hand->holds); /* it claims what it was told, no more */
        book_check(hand->owner->lock, true);
        if (++holders[hand->key] > 1 && !(g.modes & TAMPERING)) {
            fail_msg("two holders of key %d", hand->key);
        }
        if (honest) {
            check_server(hand);
        }
    }
    for (i = 0; i < KEYS && honest; i++) {
        check_token(i);
    }
}

/* Everything due was done: whose deadline is past was told, what must have ended has. */
static void check_told(void) {
    int i;
    for (i = 0; i < HANDS; i++) {
        const struct hand *hand = &g.hands[i];
        if (hand->owner == NULL || hand->closed) {
            continue;
        }
        if (hand->holds && !rlock_is_held(hand->owner->lock)) {
            fail_msg("the deadline of hand %d has passed, and it was not told", i);
        }
        if (g.modes & STALLS) {
            continue;
        }
        if (hand->acquire_by_us != 0 && hand->acquire_by_us < g.loop.now_us) {
            fail_msg("the acquire of hand %d ends too late", i);
        }
        if (hand->release_by_us != 0 && hand->release_by_us < g.loop.now_us) {
            fail_msg("the release of hand %d ends too late", i);
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * What the program does.
 */

static void act(void);

/* What a callback does: as a rule nothing, at times a lot, and at times it takes long. */
static void work(void) {
    int n;
    for (n = (int)roll(4) - 1; n > 0 && !g.settling; n--) {
        act();
    }
    if (in(STALLS) && one_in(20)) {
        virtual_stall(&g.loop, roll(30000));
    }
}

#define BIT(status) (1u << -(RLOCK_##status))
#define FAULT_BITS \
    (BIT(ERR_UNKNOWN) | BIT(ERR_CONN) | BIT(ERR_AUTH) | BIT(ERR_SERVER) | BIT(ERR_NOMEM))

/* How each kind of event may end, as the header says. */
static const unsigned ends[RLOCK_LOST + 1] = {
    0,
    BIT(OK) | BIT(ERR_BUSY) | BIT(ERR_TIMEOUT) | BIT(ERR_CANCELED) | BIT(ERR_CLOSED) |
        BIT(ERR_LOST) | BIT(ERR_WRONG_TYPE) | FAULT_BITS,
    BIT(OK) | BIT(ERR_LOST) | BIT(ERR_CANCELED) | FAULT_BITS,
    BIT(OK) | BIT(ERR_NOT_HELD) | BIT(ERR_LOST) | FAULT_BITS,
    BIT(ERR_LOST),
};

static void on_acquired(struct hand *hand, const rlock_event *event) {
    if (event->status == RLOCK_OK) {
        SAME(hand->holds, !hand->waiting); /* it is either new or nested */
        hand->count = hand->waiting ? 1 : hand->count + 1;
        hand->holds = true;
        SAME(rlock_hold_count(hand->owner->lock), hand->count);
        book_check(hand->owner->lock, true);
        g.acquired++;
    } else if (hand->waiting) {
        assert_true(event->status != RLOCK_ERR_LOST);
    }
    /* One that was to follow a release, and was canceled, may be told when the next one waits. */
    if (event->status == RLOCK_OK || hand->owner->pending[RLOCK_ACQUIRED] == 0) {
        hand->waiting = false;
        hand->acquire_by_us = 0;
    }
}

static void on_lost(struct hand *hand, const rlock_event *event) {
    assert_true(hand->holds); /* not after its release was asked for */
    assert_false(rlock_is_held(hand->owner->lock));
    book_check(hand->owner->lock, false);
    assert_true(event->reason != RLOCK_REASON_NONE);
    if (!(g.modes & TAMPERING)) {
        assert_true(event->reason == RLOCK_REASON_EXPIRED || event->reason == RLOCK_REASON_CLOSED);
    }
    hand->holds = false;
    g.lost++;
}

static void on_event(struct owner *owner, const rlock_event *event) {
    struct hand *hand = (struct hand *)owner->context;
    trace("hand %d is told kind %d: %s, reason %d", (int)(hand - g.hands), (int)event->kind,
          rlock_strerror(event->status), (int)event->reason);
    BETWEEN(event->status, RLOCK_STATUS_LAST, RLOCK_OK);
    if (!(ends[event->kind] & (1u << -event->status))) {
        fail_msg("kind %d ends with %s", (int)event->kind, rlock_strerror(event->status));
    }
    switch (event->kind) {
    case RLOCK_ACQUIRED: on_acquired(hand, event); break;
    case RLOCK_RENEWED: assert_true(event->status != RLOCK_OK || rlock_is_held(owner->lock)); break;
    case RLOCK_RELEASED:
        hand->release_by_us = owner->pending[RLOCK_RELEASED] == 0 ? 0 : hand->release_by_us;
        owner->holding = hand->holds; /* a nested release may end when the deadline is past */
        g.released += event->status == RLOCK_OK ? 1 : 0;
        break;
    case RLOCK_LOST: on_lost(hand, event); break;
    }
    work();
}

static void on_shutdown(rlock_client *client, int status, void *user) {
    struct seat *seat = (struct seat *)user;
    int i;
    trace("client %d is shut down: %s", (int)(seat - g.seats), rlock_strerror(status));
    assert_ptr_equal(client, seat->client);
    assert_true(g.loop.entered && virtual_depth == 0);
    assert_true(seat->shutting && !seat->shut);
    assert_true(status == RLOCK_OK || status == RLOCK_ERR_TIMEOUT);
    seat->shut = true;
    for (i = 0; i < HANDS && status == RLOCK_OK; i++) {
        const struct hand *hand = &g.hands[i];
        if (hand->owner != NULL && hand->seat == seat && !hand->closed) {
            SAME(owner_pending(hand->owner), 0);
            assert_false(hand->holds);
        }
    }
    work();
}

/* A call may say what its state allows, and that memory is out when it is. */
static void called(const struct hand *hand, const char *what, int64_t ms, int status) {
    bool closed = hand->closed || hand->seat->shutting;
    trace("hand %d %s, %lld ms: %s", (int)(hand - g.hands), what, (long long)ms,
          rlock_strerror(status));
    if (status != RLOCK_OK && status != RLOCK_ERR_STATE && status != RLOCK_ERR_NOT_HELD &&
        status != RLOCK_ERR_LOST && !(status == RLOCK_ERR_CLOSED && closed) &&
        !(status == RLOCK_ERR_NOMEM && in(NO_MEMORY))) {
        fail_msg("a call says %s", rlock_strerror(status));
    }
}

static void make_client(struct seat *seat) {
    rlock_config config;
    int status;
    if (g.loop.opened == VIRTUAL_CLIENTS) {
        return;
    }
    memset(&config, 0, sizeof config);
    config.loop = virtual_hooks(&g.loop);
    config.store = g.modes & MEMORY ? g.memory : &chaos;
    config.poll_ms = one_in(3) ? 1 + roll(20) : 0;
    config.command_timeout_ms = one_in(2) ? 50 + roll(300) : 0;
    config.watchdog_lease_ms = one_in(8) ? 10 : 30 + roll(500);
    config.drift_permille = one_in(3) ? 1 + (int)roll(500) : 0;
    book_open(&config);
    memset(seat, 0, sizeof *seat);
    seat->command_timeout_ms = config.command_timeout_ms != 0 ? config.command_timeout_ms : 1000;
    status = rlock_client_new(&seat->client, &config);
    books[booked].client = seat->client;
    booked -= status == RLOCK_OK ? 0 : 1;
    assert_true(status == RLOCK_OK || (status == RLOCK_ERR_NOMEM && in(NO_MEMORY)));
}

static void free_client(struct seat *seat) {
    rlock_client *client = seat->client;
    int i;
    trace("client %d is freed", (int)(seat - g.seats));
    for (i = 0; i < HANDS; i++) {
        struct hand *hand = &g.hands[i];
        if (hand->owner != NULL && hand->seat == seat && !hand->closed) {
            hand->closed = true;
            hand->holds = hand->waiting = false;
        }
    }
    memset(seat, 0, sizeof *seat);
    virtual_client_free(&g.loop, client);
    if (client != NULL) {
        book_close(client, true);
    }
}

static void free_hand(struct hand *hand) {
    struct owner *owner = hand->owner;
    trace("hand %d is freed", (int)(hand - g.hands));
    hand->owner = NULL;
    owner_free(owner);
}

static void make_hand(struct hand *hand) {
    struct seat *seat = &g.seats[roll(CLIENTS)];
    rlock_options options;
    int status;
    if (seat->client == NULL) {
        if (one_in(4)) {
            make_client(seat);
        }
        return;
    }
    if (g.loop.owned == VIRTUAL_OWNERS) {
        return;
    }
    memset(hand, 0, sizeof *hand);
    memset(&options, 0, sizeof options);
    hand->seat = seat;
    hand->key = (int)roll(KEYS);
    options.key = keys[hand->key];
    options.reentrant = in(REENTRANT) && one_in(2);
    options.watchdog = (int)roll(RLOCK_WATCHDOG_OFF + 1);
    options.fencing = one_in(2);
    options.max_hold_ms = one_in(4) ? 1 + roll(500) : 0;
    hand->owner = owner_attempt(&g.loop, seat->client, &options, &status);
    called(hand, hand->key == 0 ? "is made on key 0" : "is made on key 1", 0, status);
    if (hand->owner != NULL) {
        hand->owner->react = on_event;
        hand->owner->context = hand;
    }
}

static const int64_t leases_ms[] = {0, 0, 10, 20, 50, 100, 300, 1000};

static int64_t some_lease_ms(void) {
    return leases_ms[roll(sizeof leases_ms / sizeof leases_ms[0])];
}

static void acquire(struct hand *hand) {
    int64_t lease_ms = some_lease_ms(), now_us = g.loop.now_us;
    int64_t wait_ms = one_in(3) ? 0 : one_in(2) ? RLOCK_FOREVER : (int64_t)roll(400);
    int status = owner_acquire(hand->owner, wait_ms, lease_ms);
    called(hand, wait_ms == 0 ? "tries" : "acquires", lease_ms, status);
    if (status == RLOCK_OK && !hand->holds) {
        hand->waiting = true;
        if (wait_ms >= 0) {
            hand->acquire_by_us =
                now_us + 1000 * (wait_ms != 0 ? wait_ms : hand->seat->command_timeout_ms);
        }
    }
}

static void renew(struct hand *hand) {
    int64_t lease_ms = some_lease_ms();
    int status = one_in(5) ? rlock_renew(hand->owner->lock, lease_ms, NULL, NULL)
                           : owner_renew(hand->owner, lease_ms);
    called(hand, "renews", lease_ms, status);
    assert_true(status != RLOCK_OK || hand->holds);
}

static void release(struct hand *hand) {
    rlock *lock = hand->owner->lock;
    int64_t by_us = g.loop.now_us + 1000 * (1 + rlock_remaining_ms(lock));
    bool last = rlock_hold_count(lock) <= 1, silent = one_in(5);
    int status = silent ? rlock_release(lock, NULL, NULL) : owner_release(hand->owner);
    called(hand, "releases", 0, status);
    SAME(status == RLOCK_OK, hand->holds); /* who was told that it holds can let go */
    if (status == RLOCK_OK) {
        hand->count--;
        hand->holds = !last;
        hand->release_by_us = last && !silent ? by_us : hand->release_by_us;
    }
}

static void shut_down(struct seat *seat) {
    int status =
        rlock_client_shutdown(seat->client, one_in(2) ? 1 + roll(500) : 0, on_shutdown, seat);
    trace("client %d shuts down: %s", (int)(seat - g.seats), rlock_strerror(status));
    SAME(status, seat->shutting ? RLOCK_ERR_STATE : RLOCK_OK);
    seat->shutting = true;
}

/* One thing that a program may do at any time. */
static void act(void) {
    struct hand *hand = &g.hands[roll(HANDS)];
    uint32_t what = roll(100);
    if (hand->owner == NULL) {
        make_hand(hand);
    } else if (what < 40) {
        acquire(hand);
    } else if (what < 50) {
        renew(hand);
    } else if (what < 72) {
        release(hand);
    } else if (what < 82) {
        called(hand, "cancels", 0, owner_cancel(hand->owner));
    } else if (what < 88) {
        free_hand(hand);
    } else if (what < 91 && in(TAMPERING)) {
        tamper();
    } else if (what < 92 && in(FREES) && !hand->closed && (hand->seat->shut || one_in(3))) {
        free_client(hand->seat);
    } else if (what < 93 && in(SHUTDOWNS) && !hand->closed && one_in(2)) {
        shut_down(hand->seat);
    }
}

/* ------------------------------------------------------------------------------------------------
 * One seed.
 */

/* Everything that is due by then, in order: commands of the server, timers of the clients. */
static void pump(int64_t until_us) {
    int spins = 0;
    for (;;) {
        struct virtual_state *state = virtual_earliest(&g.loop, until_us);
        struct command *command = server_next();
        int64_t next_us = state != NULL ? state->due_us : INT64_MAX;
        if (command != NULL && command->execute_us < next_us) {
            next_us = command->execute_us;
        }
        if (next_us > until_us) {
            break;
        }
        if (next_us > g.loop.now_us) {
            check_told();
            g.loop.now_us = next_us;
            spins = 0;
        } else if (++spins > SPINS) {
            fail_msg("one zero timer after the other");
        }
        if (command != NULL && command->execute_us <= next_us) {
            server_run();
        } else {
            virtual_iteration(&g.loop, until_us);
        }
        check_holders();
    }
    if (g.loop.now_us < until_us) {
        check_told();
        g.loop.now_us = until_us;
    }
}

static void storm(void) {
    int steps, n;
    for (steps = 50 + (int)roll(400); steps > 0; steps--) {
        if ((g.modes & NO_MEMORY) && virtual_memory.fail_at == 0) {
            virtual_memory.fail_at = 1 + roll(60);
        }
        for (n = (int)roll(3); n > 0; n--) {
            act();
            check_holders();
        }
        if (in(STALLS) && one_in(15)) {
            virtual_stall(&g.loop, roll(one_in(5) ? 2000000 : 20000));
        }
        pump(g.loop.now_us + roll(one_in(3) ? 100000 : 5000));
    }
}

static bool quiet(void) {
    bool quiet = true;
    int i;
    for (i = 0; i < HANDS; i++) {
        const struct hand *hand = &g.hands[i];
        quiet = quiet && (hand->owner == NULL || hand->closed ||
                          (!hand->holds && owner_pending(hand->owner) == 0));
    }
    for (i = 0; i < CLIENTS; i++) {
        rlock_stats stats;
        rlock_client_stats(g.seats[i].client, &stats);
        quiet = quiet && stats.held + stats.waiting + stats.cleaning == 0 &&
                g.seats[i].shutting == g.seats[i].shut;
    }
    return quiet;
}

/* The storm is over, everybody lets go: all that was begun ends, and nothing is left. */
static void settle(void) {
    int64_t end_us = g.loop.now_us + SETTLE_MS * 1000;
    int i;
    trace("the storm is over");
    g.settling = true;
    virtual_memory.fail_at = 0;
    while (!quiet()) {
        for (i = 0; i < HANDS; i++) {
            if (g.hands[i].owner != NULL && g.hands[i].holds) {
                release(&g.hands[i]);
            }
        }
        pump(g.loop.now_us + 5000);
        if (g.loop.now_us > end_us) {
            fail_msg("something was begun and never ended");
        }
    }
    pump(g.loop.now_us + 100000); /* what is still on its way to the server */
    assert_true(quiet());
    check_holders();
    for (i = 0; i < CLIENTS; i++) {
        if (g.seats[i].client != NULL) {
            book_close(g.seats[i].client, false);
        }
    }
}

static void free_everything(void) {
    bool clients_first = one_in(2);
    int i, round;
    for (round = 0; round < 2; round++) {
        for (i = 0; i < CLIENTS; i++) {
            if (g.seats[i].client != NULL && (clients_first || round == 1)) {
                free_client(&g.seats[i]);
            }
        }
        for (i = 0; i < HANDS; i++) {
            if (g.hands[i].owner != NULL) {
                free_hand(&g.hands[i]);
            }
        }
    }
    rlock_memory_free(g.memory);
    g.loop.now_us += 1000000;
    server_run();
    assert_null(server.commands);
    virtual_end(&g.loop);
}

/* ------------------------------------------------------------------------------------------------
 * Families of seeds.
 */

static const struct family {
    const char *name;
    unsigned always, maybe;
    uint64_t seeds;
} families[] = {
    {"promises hold on the store inside the process", MEMORY, WEATHER, 1000},
    {"promises hold on a server that answers late", 0, WEATHER, 1000},
    {"promises hold when connections are lost and commands are refused", BREAKS, REFUSALS | WEATHER,
     1500},
    {"promises hold when keys are deleted and stolen", TAMPERING, BREAKS | REFUSALS | WEATHER,
     1000},
    {"promises hold when allocations fail", NO_MEMORY,
     MEMORY | TAMPERING | BREAKS | REFUSALS | WEATHER, 1000},
    {"every operation ends once whatever a dishonest server answers", LIES | TAMPERING,
     NO_MEMORY | BREAKS | REFUSALS | WEATHER, 1000},
};

#define FAMILIES (sizeof families / sizeof families[0])

static void run_seed(const struct family *family, uint64_t seed) {
    int i;
    g.running = true;
    g.seed = seed;
    g.dice = seed * UINT64_C(0x9e3779b97f4a7c15) + 7;
    g.settling = false;
    memset(g.seats, 0, sizeof g.seats);
    memset(g.hands, 0, sizeof g.hands);
    memset(&server, 0, sizeof server);
    booked = 0;
    virtual_begin(&g.loop);
    virtual_seed = seed;
    g.modes = family->always | ((roll(1u << 16) & family->maybe));
    g.memory = NULL;
    trace("seed %llu: %s, modes %u", (unsigned long long)seed, family->name, g.modes);
    if (g.modes & MEMORY) {
        SAME(rlock_memory_new(&g.memory), RLOCK_OK);
    }
    for (i = 0; i < CLIENTS; i++) {
        make_client(&g.seats[i]);
    }
    storm();
    settle();
    free_everything();
    g.running = false;
}

static void promises_hold_for_each_seed_of_a_family(void **state) {
    const struct family *family = (const struct family *)*state;
    uint64_t base = (uint64_t)(family - families) * FAMILY;
    uint64_t i, first = g.first != 0 ? g.first : 1 + base, fresh, count = family->seeds;
    g.acquired = g.lost = g.released = 0;
    for (i = 0; i < (g.first != 0 ? 1 : count); i++) {
        run_seed(family, first + i);
    }
    if (g.first == 0) {
        fresh = base + fresh_from(count + 1, FAMILY - 2 * count);
        print_message("fresh seeds %llu..%llu, of this commit\n", (unsigned long long)fresh,
                      (unsigned long long)(fresh + count / 4 - 1));
        for (; i < count + count / 4; i++) {
            run_seed(family, fresh + i - count);
        }
    }
    print_message("%llu seeds: %llu acquired, %llu released, %llu lost\n", (unsigned long long)i,
                  (unsigned long long)g.acquired, (unsigned long long)g.released,
                  (unsigned long long)g.lost);
    if (g.first == 0) { /* it was a storm */
        assert_true(g.acquired > i && g.released > i && g.lost > i);
    }
}

static void print_seed(void) {
    if (g.running) {
        g.running = false;
        fprintf(stderr, "the failing seed is %llu, to see it again: %s %llu\n",
                (unsigned long long)g.seed, g.program, (unsigned long long)g.seed);
    }
}

static int teardown(void **state) {
    (void)state;
    print_seed();
    return 0;
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[FAMILIES];
    size_t i, only;
    g.program = argv[0];
    g.first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    only = g.first < FAMILIES * FAMILY ? (size_t)(g.first / FAMILY) : 0;
#ifdef STORM_SANITIZED
    __sanitizer_set_death_callback(print_seed); /* bad memory does not end as a failed test */
#endif
    for (i = 0; i < FAMILIES; i++) {
        tests[i].name = families[i].name;
        tests[i].test_func = promises_hold_for_each_seed_of_a_family;
        tests[i].teardown_func = teardown;
        tests[i].initial_state = (void *)(uintptr_t)&families[i];
    }
    if (_cmocka_run_group_tests("storm", g.first != 0 ? &tests[only] : tests,
                                g.first != 0 ? 1 : FAMILIES, NULL, NULL) != 0) {
        fflush(stdout);
        _exit(1); /* a failed seed leaves everything where it was: no report of leaks */
    }
    return 0;
}
