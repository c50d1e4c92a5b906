/* torture.c - in every scenario every step fails in turn, once and from there on
 *
 *     torture                    every place: some minutes
 *     torture --slice N K        one place in K of each row, the N-th such share; N is below K
 *     torture --only TEXT        the scenarios with TEXT in their names
 *     torture --repeat SCENARIO STEP NTH ERRNO once|on    one place, with its trace
 *
 * A scenario is a short program on a world of its own (program.h). It runs without a failure first:
 * it must do what it is for, and the steps that it takes are counted: allocations, the loop's open
 * and watch, random bytes, sockets, connects, reads and writes. Then it runs again for each of them
 * and for each errno that a system gives there. What comes of it may differ, the contract may not:
 * the oracle of hands.h watches. What fails from one place on works again when the scenario is
 * over. Then everybody must be served or told, every client must be able to acquire and release, no
 * key may be left, shutdown must end, and all memory and all descriptors must be given back.
 *
 * A row of TAP is a scenario and a kind of step. It runs in a process of its own, so that a crash
 * is a finding like any other.
 */

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define RLOCK__FLIGHTS 8 /* the claims of a client here: a release asks for no memory */
#include "program.h"

#define FINDINGS 20 /* of one row, after which the rest of it is left out */
#define BEYOND 1    /* places behind the last one: there nothing fails, and nothing is different */
#define LONG_KEY 60000

/* What a scenario's world is like. */
enum {
    REDISSON = 1, /* the other wire */
    OLD = 2,      /* a server without client tracking */
    MEMORY = 4,   /* the store inside the process */
    SHAKEN = 8,   /* a password, a database and a name */
    FENCED = 16,
    NARROW = 32,  /* little goes through the network at a time */
    UNIX = 64,    /* clients connect to a Unix socket */
    LONG = 128,   /* keys that a window holds four of */
    LARGE = 256,  /* so many places that one errno must do for each */
    VALKEY = 512, /* a server that knows DELIFEQ */
    FAIR = 1024,  /* the first two keys are of this kind ... */
    SHARED = 2048,
    SEMAPHORE = 4096,
    SETS = 8192 /* ... or the first is always wanted with another */
};

struct scenario {
    const char *name;
    void (*run)(void);
    int world;
};

struct tally {                    /* of one run */
    uint64_t scenario[SIM_STEPS]; /* steps while the scenario itself runs */
    uint64_t all[SIM_STEPS];      /* and with all that comes behind it */
    uint64_t hash;
};

struct progress { /* of a row, shared with the process that runs it */
    struct tally plain;
    struct sim_failure failure;
    uint64_t at, runs, findings;
    uint64_t row_runs[SIM_STEPS]; /* where all rows run in one process */
    char text[200];
};

static struct progress *progress;
static const struct scenario *scenario;
static rlock_store *memory_store;
static int last_status[SIM_HANDS][RLOCK_LOST + 1], last_reason[SIM_HANDS];
static uint64_t log_lines, hiredis_live;

static void sim_failed(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(progress->text, sizeof progress->text, format, arguments);
    va_end(arguments);
    sim_trace("BROKEN: %s", progress->text);
    fflush(stdout);
    _exit(3);
}

/* ------------------------------------------------------------------------------------------------
 * What scenarios are written in. Once a step has failed, things may be missing: no client, no
 * handle, an operation refused. Then a scenario does with what it has whatever is left to do.
 */

/* The good outcome: asked for as long as nothing has failed. */
#define EXPECT(x)                                    \
    do {                                             \
        if (sim.failures == 0 && !(x)) {             \
            sim_failed("without a failure: %s", #x); \
        }                                            \
    } while (0)

static bool is(int world) {
    return (scenario->world & world) != 0;
}

static void run_ms(int64_t ms) {
    sim_run_until(sim.now_us + ms * 1000);
}

static void remember(struct hand *hand, const rlock_event *event) {
    last_status[hand->number][event->kind] = event->status;
    last_reason[hand->number] = (int)event->reason;
}

static void on_log(void *user, int level, const char *line) {
    (void)user;
    log_lines += level >= RLOCK_LOG_ERROR && line[0] != 0;
}

/* Two processes in turn; what fails once does not fail the second time. */
static struct actor *client(void) {
    struct sim_process *process = &sim.processes[is(MEMORY) ? 0 : oracle.actor_count % 2];
    struct actor *actor = NULL;
    rlock_config config;
    int tries;
    memset(&config, 0, sizeof config);
    config.watchdog_lease_ms = 300;
    config.command_timeout_ms = 100;
    config.poll_ms = 50;
    config.wire = is(REDISSON) ? RLOCK_WIRE_REDISSON : RLOCK_WIRE_STRING;
    config.client_name = is(SHAKEN) ? "torture" : NULL;
    config.username = is(SHAKEN) ? "default" : NULL;
    config.store = memory_store;
    config.log = on_log;
    for (tries = 0; tries < 2 && actor == NULL; tries++) {
        actor = actor_new(process, &sim.servers[0], config, is(UNIX));
    }
    return actor;
}

static struct hand *handle_with(struct actor *actor, int slot, rlock_options options) {
    struct slot *const slots[] = {&oracle.slots[slot], &oracle.slots[6]};
    struct hand *hand = NULL;
    int tries;
    options.fencing = is(FENCED);
    if (slots[0]->kind == SLOT_FAIR) {
        options.kind = RLOCK_KIND_FAIR;
    } else if (slots[0]->kind == SLOT_SEMAPHORE) {
        options.kind = RLOCK_KIND_SEMAPHORE;
        options.permits = (uint32_t)slots[0]->permits;
    }
    for (tries = 0; tries < 2 && actor != NULL && hand == NULL; tries++) {
        hand = hand_of(actor, slots, is(SETS) && slot == 0 ? 2 : 1, options);
    }
    if (hand != NULL) {
        hand->react = remember;
        last_status[hand->number][RLOCK_ACQUIRED] = last_status[hand->number][RLOCK_RELEASED] = 1;
        last_status[hand->number][RLOCK_RENEWED] = last_status[hand->number][RLOCK_LOST] = 1;
    }
    return hand;
}

static struct hand *handle(struct actor *actor, int slot) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    return handle_with(actor, slot, options);
}

static struct hand *reader_or_writer(struct actor *actor, rlock_kind kind) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.kind = kind;
    options.owner = 1;
    return handle_with(actor, 0, options);
}

static struct hand *permits(struct actor *actor, uint32_t weight) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.weight = weight;
    return handle_with(actor, 0, options);
}

static bool usable(const struct hand *hand) {
    return hand != NULL && !hand->gone;
}

/* What an operation ended with; 1 = it has not. */
static int told(const struct hand *hand, rlock_event_kind kind) {
    return hand != NULL ? last_status[hand->number][kind] : 1;
}

static bool is_pending(const struct hand *hand, rlock_event_kind kind) {
    return usable(hand) && !hand->actor->gone &&
           (kind == RLOCK_LOST ? hand->holds : hand->pending[kind] > 0);
}

static void until(const struct hand *hand, rlock_event_kind kind) {
    int64_t end_us = sim.now_us + 4000000;
    while (is_pending(hand, kind) && sim.now_us < end_us) {
        sim_run_until(sim.now_us + 500);
    }
}

static void ask(struct hand *hand, int64_t wait_ms, int64_t lease_ms) {
    if (usable(hand)) {
        last_status[hand->number][RLOCK_ACQUIRED] = 1;
        if (hand_acquire(hand, wait_ms, lease_ms) == RLOCK_ERR_NOMEM) {
            hand_acquire(hand, wait_ms, lease_ms);
        }
    }
}

static void take(struct hand *hand, int64_t lease_ms) {
    ask(hand, RLOCK_FOREVER, lease_ms);
    until(hand, RLOCK_ACQUIRED);
    EXPECT(hand->holds && told(hand, RLOCK_ACQUIRED) == RLOCK_OK);
}

static void let(struct hand *hand) {
    if (usable(hand)) {
        hand_release(hand);
    }
}

static void drop(struct hand *hand) {
    let(hand);
    until(hand, RLOCK_RELEASED);
    EXPECT(told(hand, RLOCK_RELEASED) == RLOCK_OK);
}

static void renew(struct hand *hand, int64_t lease_ms) {
    if (usable(hand)) {
        last_status[hand->number][RLOCK_RENEWED] = 1;
        hand_renew(hand, lease_ms);
        until(hand, RLOCK_RENEWED);
    }
}

static void cancel(struct hand *hand) {
    if (usable(hand)) {
        hand_cancel(hand);
        until(hand, RLOCK_ACQUIRED);
    }
}

static void stranger(int count, const char *a, const char *b, const char *c) {
    const char *words[3];
    words[0] = a;
    words[1] = b;
    words[2] = c;
    oracle_stranger(&sim.servers[0], count, words);
}

static uint64_t renewals(const struct hand *hand) {
    rlock_stats stats;
    rlock_client_stats(hand->actor->client, &stats);
    return stats.renewed;
}

/* Each open connection in the order of their making, the first is 0; NULL = not there. */
static struct sim_line *line_at(int place) {
    struct sim_line *line, *found = NULL;
    for (; place >= 0; place--) {
        struct sim_line *next = NULL;
        for (line = sim.lines; line != NULL && line != found; line = line->next) {
            next = line->fd >= 0 && line->state == SIM_UP ? line : next;
        }
        if (next == NULL) {
            return NULL;
        }
        found = next;
    }
    return found;
}

/* ------------------------------------------------------------------------------------------------
 * Scenarios.
 */

static void just_made(void) {
    struct actor *actor = client();
    struct hand *hand = handle(actor, 0);
    EXPECT(actor != NULL && hand != NULL);
    run_ms(10);
    if (usable(hand)) {
        hand_free(hand);
    }
}

static void once_and_again(void) {
    struct hand *hand = handle(client(), 0);
    take(hand, 400);
    EXPECT(rlock_remaining_ms(hand->lock) > 300);
    EXPECT((rlock_fence(hand->lock) != 0) == is(FENCED));
    drop(hand);
    ask(hand, 0, 400);
    until(hand, RLOCK_ACQUIRED);
    EXPECT(hand->holds);
    drop(hand);
}

static void exchange(struct hand *one, struct hand *other) {
    int64_t since_us;
    take(one, 2000);
    ask(other, RLOCK_FOREVER, 2000);
    run_ms(120);
    EXPECT(one->holds && !other->holds);
    since_us = sim.now_us;
    drop(one);
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds && sim.now_us - since_us < (is(OLD) && !is(REDISSON) ? 200000 : 20000));
    ask(one, RLOCK_FOREVER, 2000);
    run_ms(20);
    drop(other);
    until(one, RLOCK_ACQUIRED);
    EXPECT(one->holds);
    drop(one);
}

static void between_two(void) {
    struct hand *one = handle(client(), 0), *other = handle(client(), 0);
    exchange(one, other);
}

static void inside_one(void) {
    struct actor *actor = client();
    struct hand *one = handle(actor, 0), *other = handle(actor, 0);
    exchange(one, other);
}

/* Two readers share, a writer waits for both; it steps down to a reader, and another comes in. */
static void read_and_write(void) {
    struct actor *actor = client(), *another = client();
    struct hand *writer = reader_or_writer(actor, RLOCK_KIND_WRITE);
    struct hand *reader = reader_or_writer(actor, RLOCK_KIND_READ);
    struct hand *other = reader_or_writer(another, RLOCK_KIND_READ);
    take(reader, 2000);
    take(other, 2000);
    ask(writer, RLOCK_FOREVER, 2000);
    run_ms(120);
    EXPECT(reader->holds && other->holds && !writer->holds);
    drop(reader);
    drop(other);
    until(writer, RLOCK_ACQUIRED);
    EXPECT(writer->holds);
    ask(other, RLOCK_FOREVER, 2000);
    run_ms(10);
    take(reader, 2000);
    EXPECT(reader->holds && writer->holds && !other->holds);
    drop(writer);
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds && reader->holds);
    drop(reader);
    drop(other);
}

/* Of three permits: two holds, and one that waits for two at once, longer for the number. */
static void shared_out(void) {
    struct actor *actor = client(), *another = client();
    struct hand *one = permits(actor, 1), *other = permits(another, 2), *both = permits(actor, 2);
    int tries;
    take(one, 2000);
    take(other, 2000);
    ask(both, RLOCK_FOREVER, 2000);
    run_ms(120);
    EXPECT(!both->holds);
    for (tries = 0; tries < 2 && another != NULL; tries++) {
        actor_asks(another, &oracle.slots[0], RLOCK_OP_SET_PERMITS, 2, NULL);
        run_ms(20);
    }
    drop(one);
    run_ms(20);
    EXPECT(!both->holds && other->holds);
    drop(other);
    until(both, RLOCK_ACQUIRED);
    EXPECT(both->holds);
    drop(both);
}

static uint64_t answers(void) {
    uint64_t count = 0;
    int i;
    for (i = 0; i < oracle.question_count; i++) {
        count += oracle.questions[i].answered;
    }
    return count;
}

/* Everything is asked about a key that one has and another waits for, and it is taken by force. */
static void asked_about(void) {
    struct actor *actor = client(), *another = client();
    struct hand *hand = handle(actor, 0), *other = handle(another, 0);
    int i;
    take(hand, 2000);
    ask(other, RLOCK_FOREVER, 2000);
    run_ms(150);
    for (i = 0; i < 2 && another != NULL; i++) {
        actor_asks(another, &oracle.slots[i], RLOCK_OP_INSPECT, 0, NULL);
        if (usable(other)) {
            hand_asks(other, NULL);
        }
    }
    run_ms(120);
    EXPECT(answers() == (uint64_t)oracle.question_count);
    if (actor != NULL) {
        actor_asks(actor, &oracle.slots[0], RLOCK_OP_FORCE, 0, NULL);
    }
    until(other, RLOCK_ACQUIRED);
    run_ms(120);
    EXPECT(told(hand, RLOCK_LOST) == RLOCK_ERR_LOST);
    EXPECT(other->holds || told(other, RLOCK_LOST) == RLOCK_ERR_LOST); /* who shared lost too */
    if (actor != NULL) {
        actor_asks(actor, &oracle.slots[0], RLOCK_OP_INSPECT, 0, NULL);
        actor_free(actor); /* under a question */
    }
    if (other != NULL && other->holds) {
        drop(other);
    }
}

static uint64_t handed_on(const struct hand *hand) {
    rlock_stats stats;
    rlock_client_stats(hand->actor->client, &stats);
    return stats.handed_on;
}

/* A hold goes through three handles of a client, and then to another client's that waits. */
static void handed_on_inside(void) {
    struct actor *actor = client();
    struct hand *hands[3], *other = handle(client(), 0);
    int i;
    take(other, 2000);
    for (i = 0; i < 3; i++) {
        hands[i] = handle(actor, 0);
        ask(hands[i], RLOCK_FOREVER, 2000);
    }
    run_ms(120);
    drop(other);
    until(hands[0], RLOCK_ACQUIRED);
    EXPECT(hands[0]->holds);
    ask(other, RLOCK_FOREVER, 400);
    sim_run_until(sim.now_us + 3000);
    let(hands[0]);
    until(hands[1], RLOCK_ACQUIRED);
    EXPECT(hands[1]->holds && told(hands[0], RLOCK_RELEASED) == RLOCK_OK);
    EXPECT((rlock_fence(hands[1]->lock) != 0) == is(FENCED));
    let(hands[1]);
    cancel(hands[1]);
    if (usable(hands[1])) {
        hand_free(hands[1]); /* before it is told */
    }
    until(hands[2], RLOCK_ACQUIRED);
    EXPECT(hands[2]->holds && handed_on(hands[2]) == 2);
    drop(hands[2]);
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds);
    drop(other);
}

/* Who it goes to gives up before it is told. */
static void handed_on_in_vain(void) {
    struct actor *actor = client();
    struct hand *one = handle(actor, 0), *other = handle(actor, 0), *third = handle(client(), 0);
    take(one, 2000);
    ask(other, RLOCK_FOREVER, 2000);
    let(one);
    EXPECT(handed_on(one) == 1);
    cancel(other);
    EXPECT(told(other, RLOCK_ACQUIRED) == RLOCK_ERR_CANCELED);
    take(third, 400);
    drop(third);
    take(one, 2000);
    ask(other, RLOCK_FOREVER, 2000);
    let(one);
    if (usable(other)) {
        hand_free(other);
    }
    take(third, 400);
    drop(third);
}

static void waits_run_out(void) {
    struct hand *one = handle(client(), 0), *other = handle(client(), 0);
    take(one, 3000);
    ask(other, 200, 400);
    until(other, RLOCK_ACQUIRED);
    EXPECT(told(other, RLOCK_ACQUIRED) == RLOCK_ERR_TIMEOUT);
    ask(other, 0, 400);
    until(other, RLOCK_ACQUIRED);
    EXPECT(told(other, RLOCK_ACQUIRED) == RLOCK_ERR_BUSY);
    drop(one);
}

static void cancel_waiting(void) {
    struct actor *actor = client();
    struct hand *one = handle(client(), 0), *other = handle(actor, 0), *third = handle(actor, 0);
    take(one, 1000);
    ask(other, RLOCK_FOREVER, 400);
    ask(third, RLOCK_FOREVER, 400);
    run_ms(20);
    cancel(other);
    EXPECT(told(other, RLOCK_ACQUIRED) == RLOCK_ERR_CANCELED);
    drop(one);
    until(third, RLOCK_ACQUIRED);
    EXPECT(third->holds);
    drop(third);
}

static void cancel_in_flight(void) {
    struct actor *actor = client();
    struct hand *hand = handle(actor, 0), *other = handle(client(), 0);
    take(hand, 400);
    drop(hand);
    ask(hand, RLOCK_FOREVER, 3000);
    sim_run_until(sim.now_us + 20);
    cancel(hand);
    EXPECT(told(hand, RLOCK_ACQUIRED) == RLOCK_ERR_CANCELED);
    take(other, 400);
    EXPECT(!hand->holds && other->holds);
    drop(other);
}

static void watchdog(void) {
    struct hand *hand = handle(client(), 0);
    take(hand, 0);
    run_ms(1000);
    EXPECT(hand->holds && renewals(hand) >= 9);
    drop(hand);
}

/* Six holds of an age, renewed in one command; in between the server forgets the script, one is
 * let go while they are under way, and one key goes to somebody else. */
static void renewed_together(void) {
    struct actor *actor = client();
    struct hand *hands[6];
    int round, i;
    for (i = 0; i < 6; i++) {
        hands[i] = handle(actor, i);
        ask(hands[i], RLOCK_FOREVER, 500);
    }
    for (i = 0; i < 6; i++) {
        until(hands[i], RLOCK_ACQUIRED);
        EXPECT(hands[i]->holds);
    }
    for (round = 0; round < 4; round++) {
        uint64_t mgets = sim.servers[0].model->mgets;
        if (round == 1) {
            stranger(2, "SCRIPT", "FLUSH", NULL);
        } else if (round == 3) {
            stranger(3, "SET", oracle.slots[5].key, "a stranger");
        }
        for (i = 0; i < 6; i++) {
            if (usable(hands[i]) && hands[i]->holds && !is_pending(hands[i], RLOCK_RENEWED)) {
                last_status[hands[i]->number][RLOCK_RENEWED] = 1;
                hand_renew(hands[i], 500);
            }
        }
        if (round == 2) {
            sim_run_until(sim.now_us + 20);
            let(hands[2]);
        }
        for (i = 0; i < 6; i++) {
            until(hands[i], RLOCK_RENEWED);
            EXPECT(told(hands[i], RLOCK_RENEWED) == RLOCK_OK || i == 2 || (i == 5 && round == 3));
        }
        EXPECT(sim.servers[0].model->mgets == mgets + 1);
    }
    EXPECT(told(hands[2], RLOCK_RENEWED) == RLOCK_ERR_CANCELED);
    EXPECT(told(hands[5], RLOCK_RENEWED) == RLOCK_ERR_LOST);
    until(hands[5], RLOCK_LOST);
    EXPECT(last_reason[hands[5]->number] == RLOCK_REASON_STOLEN);
    stranger(2, "DEL", oracle.slots[5].key, NULL);
    for (i = 0; i < 5; i++) {
        if (i != 2) {
            drop(hands[i]);
        }
    }
}

static void by_hand(void) {
    struct hand *hand = handle(client(), 0);
    take(hand, 500);
    renew(hand, 2000);
    EXPECT(told(hand, RLOCK_RENEWED) == RLOCK_OK && rlock_remaining_ms(hand->lock) > 1500);
    run_ms(120);
    renew(hand, 200);
    EXPECT(told(hand, RLOCK_RENEWED) == RLOCK_OK && rlock_remaining_ms(hand->lock) <= 200);
    if (usable(hand) && hand->holds && !is_pending(hand, RLOCK_RENEWED)) {
        hand_renew(hand, 0); /* and a release while it is under way */
    }
    drop(hand);
    EXPECT(told(hand, RLOCK_RENEWED) == RLOCK_ERR_CANCELED);
}

static void nested(void) {
    struct hand *hand;
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.reentrant = true;
    hand = handle_with(client(), 0, options);
    take(hand, 400);
    take(hand, 400);
    take(hand, 900);
    EXPECT(rlock_hold_count(hand->lock) == 3 && rlock_remaining_ms(hand->lock) > 500);
    drop(hand);
    drop(hand);
    EXPECT(rlock_hold_count(hand->lock) == 1 && hand->holds);
    drop(hand);
    EXPECT(!hand->holds);
}

/* A waiter of another client takes it then. */
static void lost_to(const char *value, rlock_reason reason) {
    struct hand *hand = handle(client(), 0), *other = handle(client(), 0);
    take(hand, 0);
    ask(other, RLOCK_FOREVER, 400);
    run_ms(150);
    stranger(2, "DEL", oracle.slots[0].key, NULL);
    if (value != NULL) {
        stranger(3, "SET", oracle.slots[0].key, value);
    }
    until(hand, RLOCK_LOST);
    EXPECT(told(hand, RLOCK_LOST) == RLOCK_ERR_LOST);
    EXPECT(last_reason[hand->number] == (int)reason);
    stranger(2, "DEL", oracle.slots[0].key, NULL);
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds);
    drop(other);
}

/* By DELIFEQ, and by the script where that does not say enough. */
static void released_natively(void) {
    struct hand *hand = handle(client(), 0);
    uint64_t before = sim.servers[0].model->delifeqs;
    take(hand, 400);
    drop(hand);
    EXPECT(sim.servers[0].model->delifeqs == before + 1);
    take(hand, 400);
    stranger(2, "DEL", oracle.slots[0].key, NULL);
    let(hand);
    until(hand, RLOCK_RELEASED);
    EXPECT(told(hand, RLOCK_RELEASED) == RLOCK_ERR_NOT_HELD);
    EXPECT(last_reason[hand->number] == RLOCK_REASON_DELETED);
    take(hand, 400);
    stranger(3, "SET", oracle.slots[0].key, "a stranger");
    let(hand);
    until(hand, RLOCK_RELEASED);
    EXPECT(told(hand, RLOCK_RELEASED) == RLOCK_ERR_NOT_HELD);
    EXPECT(last_reason[hand->number] == RLOCK_REASON_STOLEN);
    stranger(2, "DEL", oracle.slots[0].key, NULL);
    take(hand, 400);
    drop(hand);
}

static void deleted(void) {
    struct hand *hand = handle(client(), 0);
    take(hand, 0);
    run_ms(150);
    stranger(2, "DEL", oracle.slots[0].key, NULL);
    until(hand, RLOCK_LOST);
    EXPECT(told(hand, RLOCK_LOST) == RLOCK_ERR_LOST);
    EXPECT(last_reason[hand->number] == RLOCK_REASON_DELETED);
    take(hand, 0);
    drop(hand);
}

static void stolen(void) {
    lost_to("a stranger", RLOCK_REASON_STOLEN);
}

static void network_dead(void) {
    struct hand *hand = handle(client(), 0), *other = handle(client(), 1);
    take(hand, 0);
    run_ms(50);
    sim_server_cut(&sim.servers[0], true);
    ask(other, 500, 400);
    until(hand, RLOCK_LOST);
    EXPECT(told(hand, RLOCK_LOST) == RLOCK_ERR_LOST);
    EXPECT(last_reason[hand->number] == RLOCK_REASON_EXPIRED);
    until(other, RLOCK_ACQUIRED);
    EXPECT(told(other, RLOCK_ACQUIRED) == RLOCK_ERR_CONN);
    sim_server_cut(&sim.servers[0], false);
    take(hand, 0);
    drop(hand);
}

static void wrong_type(void) {
    struct hand *hand = handle(client(), 0);
    stranger(3, "LPUSH", oracle.slots[0].key, "something");
    ask(hand, RLOCK_FOREVER, 400);
    until(hand, RLOCK_ACQUIRED);
    EXPECT(told(hand, RLOCK_ACQUIRED) == RLOCK_ERR_WRONG_TYPE);
    stranger(2, "DEL", oracle.slots[0].key, NULL);
    take(hand, 0);
    stranger(2, "DEL", oracle.slots[0].key, NULL);
    stranger(3, "LPUSH", oracle.slots[0].key, "something");
    until(hand, RLOCK_LOST);
    EXPECT(last_reason[hand->number] == RLOCK_REASON_STOLEN);
    stranger(2, "DEL", oracle.slots[0].key, NULL);
}

static void restart(void) {
    struct hand *hand = handle(client(), 0), *other = handle(client(), 0);
    take(hand, 0);
    ask(other, RLOCK_FOREVER, 0);
    run_ms(50);
    sim_server_restart(&sim.servers[0], true, 30);
    run_ms(400);
    EXPECT(hand->holds && !other->holds);
    drop(hand);
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds);
    drop(other);
}

static void not_there_yet(void) {
    struct hand *hand = handle(client(), 0), *other = handle(client(), 1);
    sim_server_restart(&sim.servers[0], true, 200000);
    ask(hand, 0, 400);
    ask(other, RLOCK_FOREVER, 400);
    until(hand, RLOCK_ACQUIRED);
    EXPECT(told(hand, RLOCK_ACQUIRED) == RLOCK_ERR_CONN);
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds);
    drop(other);
}

static void no_script(void) {
    struct hand *hand = handle(client(), 0);
    take(hand, 400);
    renew(hand, 500);
    EXPECT(told(hand, RLOCK_RENEWED) == RLOCK_OK);
    stranger(2, "SCRIPT", "FLUSH", NULL);
    renew(hand, 600);
    EXPECT(told(hand, RLOCK_RENEWED) == RLOCK_OK);
    stranger(2, "SCRIPT", "FLUSH", NULL);
    drop(hand);
    stranger(2, "SCRIPT", "FLUSH", NULL);
    take(hand, 400);
    drop(hand);
}

static void refused_for_now(void) {
    struct hand *hand = handle(client(), 0), *other = handle(client(), 1);
    take(hand, 0);
    sim.servers[0].model->loading = true;
    ask(other, RLOCK_FOREVER, 400);
    run_ms(120);
    EXPECT(hand->holds && !other->holds);
    sim.servers[0].model->loading = false;
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds && hand->holds);
    drop(hand);
    drop(other);
}

/* An acquire that was sent and not answered: the connection it went out on is killed first. */
static void unsure(void) {
    struct hand *hand = handle(client(), 0), *other = handle(client(), 0);
    take(hand, 400);
    drop(hand);
    take(other, 400);
    drop(other);
    sim_server_pause(&sim.servers[0], 150000);
    ask(hand, RLOCK_FOREVER, 1000);
    until(hand, RLOCK_ACQUIRED);
    EXPECT(hand->holds);
    EXPECT(sim.line_count > 2);
    drop(hand);
    sim_server_pause(&sim.servers[0], 150000);
    ask(other, 0, 1000);
    until(other, RLOCK_ACQUIRED);
    EXPECT(told(other, RLOCK_ACQUIRED) == RLOCK_ERR_UNKNOWN);
    take(hand, 400);
    drop(hand);
}

static void release_over_a_reconnect(void) {
    struct hand *hand = handle(client(), 0);
    struct sim_line *line;
    take(hand, 2000);
    drop(hand); /* the server knows the script from here on */
    take(hand, 2000);
    for (line = sim.lines; line != NULL; line = line->next) {
        line->down.dead = true;
    }
    let(hand);
    until(hand, RLOCK_RELEASED);
    EXPECT(told(hand, RLOCK_RELEASED) == RLOCK_ERR_NOT_HELD);
    take(hand, 2000);
    for (line = sim.lines; line != NULL; line = line->next) {
        line->up.dead = line->down.dead = true;
    }
    drop(hand);
}

/* Each connection in turn, while one holds and another waits. */
static void cut_off(void (*how)(struct sim_line *line)) {
    struct hand *hand = handle(client(), 0), *other = handle(client(), 0);
    int i;
    take(hand, 0);
    ask(other, RLOCK_FOREVER, 400);
    run_ms(130);
    for (i = 0; i < 4; i++) {
        struct sim_line *line = line_at(i);
        EXPECT(line != NULL);
        if (line != NULL) {
            how(line);
        }
        run_ms(100);
    }
    EXPECT(hand->holds && !other->holds);
    drop(hand);
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds);
    drop(other);
}

static void end_line(struct sim_line *line) {
    if (line->peer != NULL) {
        model_leave(line->peer);
        sim_model_hang_up(line->server, line);
    }
}

static void half_open(struct sim_line *line) {
    line->up.dead = line->down.dead = true;
    sim_drop(&line->up);
}

static void ended(void) {
    cut_off(end_line);
}

static void was_reset(void) {
    cut_off(sim_reset);
}

static void gone_silent(void) {
    cut_off(half_open);
}

static void heartbeat(void) {
    struct hand *one = handle(client(), 0), *other = handle(client(), 0);
    take(one, 3000);
    ask(other, 1500, 400);
    until(other, RLOCK_ACQUIRED);
    EXPECT(told(other, RLOCK_ACQUIRED) == RLOCK_ERR_TIMEOUT);
    EXPECT(one->holds);
    drop(one);
}

/* A client with all one can have: holds, waiters for its own and for others' keys, a clean-up. */
static struct actor *busy_client(struct hand *hands[5]) {
    struct actor *actor = client();
    struct hand *other = handle(client(), 2);
    int i;
    for (i = 0; i < 5; i++) {
        hands[i] = handle(actor, i < 3 ? i : i == 3 ? 0 : 3);
    }
    take(other, 1500);
    take(hands[0], 400);
    take(hands[1], 0);
    ask(hands[2], RLOCK_FOREVER, 400); /* the other's */
    ask(hands[3], RLOCK_FOREVER, 400); /* our own */
    run_ms(120);
    ask(hands[4], RLOCK_FOREVER, 400);
    sim_run_until(sim.now_us + 20);
    cancel(hands[4]);
    EXPECT(hands[0]->holds && hands[1]->holds && other->holds);
    EXPECT(is_pending(hands[2], RLOCK_ACQUIRED) && is_pending(hands[3], RLOCK_ACQUIRED));
    return actor;
}

static void shut_down(void) {
    struct hand *hands[5];
    struct actor *actor = busy_client(hands);
    if (actor == NULL) {
        return;
    }
    actor_shutdown(actor, 500);
    run_ms(1000);
    if (!actor->done) {
        sim_failed("a shutdown does not end in its time");
    }
    EXPECT(actor->shutdown_status == RLOCK_OK);
    EXPECT(told(hands[0], RLOCK_LOST) == RLOCK_ERR_LOST);
    EXPECT(last_reason[hands[1]->number] == RLOCK_REASON_CLOSED);
    EXPECT(told(hands[2], RLOCK_ACQUIRED) == RLOCK_ERR_CLOSED);
    EXPECT(told(hands[3], RLOCK_ACQUIRED) == RLOCK_ERR_CLOSED);
}

/* Who holds goes on, and who waits does not; the drain ends when its time or the holds do. */
static void drained(void) {
    struct hand *hands[5];
    struct actor *actor = busy_client(hands);
    if (actor == NULL) {
        return;
    }
    actor_drain(actor, 700);
    run_ms(100);
    EXPECT(told(hands[2], RLOCK_ACQUIRED) == RLOCK_ERR_CLOSED);
    EXPECT(told(hands[3], RLOCK_ACQUIRED) == RLOCK_ERR_CLOSED);
    EXPECT(hands[1]->holds && !actor->done);
    drop(hands[1]);
    run_ms(1500);
    if (!actor->done) {
        sim_failed("a drain does not end in its time");
    }
    EXPECT(actor->shutdown_status == RLOCK_OK);
}

/* The password is another one from now on. A client that could not take it keeps the old one. */
static void new_password(void) {
    struct sim_server *server = &sim.servers[0];
    struct actor *actor = client();
    struct hand *hand = handle(actor, 0), *other = handle(actor, 1);
    struct sim_line *line;
    int status = RLOCK_ERR_NOMEM, tries;
    take(hand, 3000);
    server->password = server->model->password = "changed";
    for (tries = 0; tries < 2 && actor != NULL && status == RLOCK_ERR_NOMEM; tries++) {
        status = CALL(rlock_client_set_credentials(actor->client, "default", "changed"));
    }
    if (status != RLOCK_OK) {
        server->password = server->model->password = "secret";
    }
    EXPECT(status == RLOCK_OK);
    take(other, 400);
    drop(other);
    line = line_at(0);
    if (line != NULL) {
        sim_reset(line);
    }
    run_ms(300);
    take(other, 400);
    EXPECT(hand->holds);
    drop(other);
    drop(hand);
}

/* A handle beside those of the oracle, which knows nothing of a hold that goes on elsewhere. */
struct raw {
    rlock *lock;
    int count, status; /* of its last operation */
};

static void on_raw(rlock *lock, const rlock_event *event, void *user) {
    struct raw *raw = (struct raw *)user;
    if (oracle.calls > 0 || lock != raw->lock || (event->kind != RLOCK_LOST && raw->count > 0)) {
        sim_failed("a callback that may not come");
    }
    if (event->kind != RLOCK_LOST) {
        raw->count++;
        raw->status = event->status;
    }
}

static void raw_new(struct raw *raw, struct actor *actor) {
    rlock_options options;
    memset(raw, 0, sizeof *raw);
    memset(&options, 0, sizeof options);
    options.key = "given on";
    options.kind = is(FAIR) ? RLOCK_KIND_FAIR : RLOCK_KIND_MUTEX;
    options.fencing = is(FENCED);
    options.on_lost = on_raw;
    options.user = raw;
    if (actor != NULL && CALL(rlock_new(&raw->lock, actor->client, &options)) != RLOCK_OK) {
        raw->lock = NULL;
    }
}

/* Waits for the end of what was asked for; a call that is refused has ended. */
static bool raw_ends(struct raw *raw, int status) {
    int64_t end_us = sim.now_us + 4000000;
    raw->count = status == RLOCK_OK ? 0 : 1;
    raw->status = status;
    while (raw->count == 0 && sim.now_us < end_us) {
        sim_run_until(sim.now_us + 500);
    }
    if (raw->count == 0) {
        sim_failed("an operation does not end");
    }
    return raw->status == RLOCK_OK;
}

/* A hold goes on in another client, which lets it go; the next one stays for a while. */
static void given_on(void) {
    char token[RLOCK_TOKEN_MAX] = "";
    struct actor *actor = client();
    struct raw one, other;
    bool had = false;
    raw_new(&one, actor);
    raw_new(&other, client());
    if (one.lock != NULL && other.lock != NULL) {
        had = raw_ends(&one, CALL(rlock_acquire(one.lock, 0, 1000, on_raw, &one))) &&
              CALL(rlock_token(one.lock, token, sizeof token)) > 0 &&
              raw_ends(&other, CALL(rlock_adopt(other.lock, token, 1000, on_raw, &other)));
        EXPECT(had && rlock_is_held(other.lock));
        had = raw_ends(&other, CALL(rlock_release(other.lock, on_raw, &other)));
        EXPECT(had);
    }
    if (one.lock != NULL) {
        rlock_free(one.lock);
    }
    if (other.lock != NULL) {
        had = raw_ends(&other, CALL(rlock_acquire(other.lock, 2000, 1000, on_raw, &other))) &&
              raw_ends(&other, CALL(rlock_release_after(other.lock, 300, on_raw, &other)));
        EXPECT(had);
        had = raw_ends(&other, CALL(rlock_acquire(other.lock, 2000, 1000, on_raw, &other)));
        EXPECT(had);
        rlock_free(other.lock);
    }
}

/* Want of memory in the free itself keeps no key: what a release needs is there since its hold. */
static void free_for_good(struct actor *actor) {
    uint64_t before = sim.failures;
    bool short_of_memory;
    int i;
    actor_free(actor);
    short_of_memory = sim.failures > before && sim.failure.step == SIM_ALLOC;
    run_ms(5);
    for (i = 0; i < oracle.slot_count && (short_of_memory || sim.failures == 0); i++) {
        const struct token *there = oracle.slots[i].there;
        if (there != NULL && strncmp(there->text, actor->id, 36) == 0) {
            sim_failed("%s is still %s's, who was freed", oracle.slots[i].key, there->text);
        }
    }
}

static void client_freed(void) {
    struct hand *hands[5], *other;
    struct actor *actor = busy_client(hands);
    if (actor == NULL) {
        return;
    }
    free_for_good(actor);
    other = handle(client(), 0);
    ask(other, 100, 400);
    until(other, RLOCK_ACQUIRED);
    EXPECT(other->holds);
    drop(other);
}

static void freed_in_flight(void) {
    struct actor *actor = client();
    struct hand *hand = handle(actor, 0), *other = handle(actor, 1), *third = handle(actor, 0);
    ask(hand, RLOCK_FOREVER, 3000);
    take(other, 3000);
    ask(third, RLOCK_FOREVER, 400);
    until(hand, RLOCK_ACQUIRED);
    EXPECT(hand->holds);
    if (usable(hand)) {
        hand_free(hand);
    }
    until(third, RLOCK_ACQUIRED);
    EXPECT(third->holds);
    if (usable(third)) {
        hand_free(third);
    }
    hand = handle(actor, 0);
    ask(hand, RLOCK_FOREVER, 3000);
    sim_run_until(sim.now_us + 20);
    if (usable(hand)) {
        hand_free(hand);
    }
    third = handle(client(), 0);
    take(third, 400);
    drop(third);
    drop(other);
}

/* Three rounds from inside the callbacks, then the handle frees itself in its last one. */
static void go_round(struct hand *hand, const rlock_event *event) {
    remember(hand, event);
    if (oracle.settled) {
        return;
    }
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK) {
        hand_release(hand);
    } else if (event->kind == RLOCK_RELEASED && hand->watched) {
        hand->watched = false; /* the last round */
        hand_free(hand);
    } else if (event->kind == RLOCK_RELEASED) {
        hand->watched = true;
        hand_acquire(hand, RLOCK_FOREVER, 400);
    }
}

static void in_callbacks(void) {
    struct actor *actor = client();
    struct hand *one = handle(actor, 0), *other = handle(actor, 0);
    if (usable(one) && usable(other)) {
        one->react = other->react = go_round;
    }
    ask(one, RLOCK_FOREVER, 400);
    ask(other, RLOCK_FOREVER, 400);
    run_ms(200);
    EXPECT(one->gone && other->gone);
}

static void release_at_once(struct hand *hand, const rlock_event *event) {
    remember(hand, event);
    if (event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK && !oracle.settled) {
        hand_release(hand);
    }
}

/* So many handles of one client ask at once; each lets go as soon as it holds. */
static void crowd(int count) {
    struct actor *actor = client();
    struct hand *hands[200];
    int i;
    for (i = 0; i < count; i++) {
        hands[i] = handle(actor, i % SIM_SLOTS);
        if (hands[i] != NULL) {
            hands[i]->react = release_at_once;
        }
        ask(hands[i], RLOCK_FOREVER, 2000);
    }
    for (i = 0; i < count; i++) {
        until(hands[i], RLOCK_ACQUIRED);
        until(hands[i], RLOCK_RELEASED);
        EXPECT(told(hands[i], RLOCK_RELEASED) == RLOCK_OK);
    }
}

static void two_hundred(void) {
    crowd(200);
}

static void one_a_key(void) {
    crowd(SIM_SLOTS);
}

static const struct scenario scenarios[] = {
    {"made and freed", just_made, 0},
    {"acquire and release", once_and_again, 0},
    {"acquire and release, fenced", once_and_again, FENCED},
    {"acquire and release, Redisson", once_and_again, REDISSON | FENCED},
    {"acquire and release, AUTH, SELECT and a name", once_and_again, SHAKEN},
    {"acquire and release, Unix socket, in pieces", once_and_again, UNIX | NARROW},
    {"acquire and release, memory", once_and_again, MEMORY | FENCED},
    {"hand-over", between_two, 0},
    {"hand-over, Redisson", between_two, REDISSON},
    {"hand-over, polling", between_two, OLD},
    {"hand-over, Redisson's channels", between_two, OLD | REDISSON},
    {"hand-over, AUTH, SELECT and a name", between_two, SHAKEN | FENCED},
    {"hand-over, in pieces", between_two, NARROW},
    {"hand-over, memory", between_two, MEMORY},
    {"hand-over inside one client", inside_one, 0},
    {"hand-over inside one client, memory", inside_one, MEMORY},
    {"handed on inside one client", handed_on_inside, 0},
    {"handed on inside one client, fenced", handed_on_inside, FENCED},
    {"handed on inside one client, Redisson", handed_on_inside, REDISSON},
    {"handed on inside one client, memory", handed_on_inside, MEMORY | FENCED},
    {"handed on in vain", handed_on_in_vain, 0},
    {"handed on in vain, memory", handed_on_in_vain, MEMORY},
    {"waits run out", waits_run_out, 0},
    {"waits run out, memory", waits_run_out, MEMORY},
    {"cancel of a waiter", cancel_waiting, 0},
    {"cancel of a waiter, memory", cancel_waiting, MEMORY},
    {"cancel in flight", cancel_in_flight, 0},
    {"watchdog over three leases", watchdog, 0},
    {"watchdog over three leases, Redisson", watchdog, REDISSON},
    {"watchdog over three leases, memory", watchdog, MEMORY},
    {"renewals in a batch", renewed_together, 0},
    {"renewals in a batch, in pieces", renewed_together, NARROW},
    {"renewals by hand", by_hand, 0},
    {"renewals by hand, Redisson", by_hand, REDISSON},
    {"renewals by hand, memory", by_hand, MEMORY},
    {"nested holds", nested, 0},
    {"nested holds, memory", nested, MEMORY},
    {"release by DELIFEQ", released_natively, VALKEY},
    {"hand-over, DELIFEQ", between_two, VALKEY},
    {"free of a client, DELIFEQ", client_freed, VALKEY},
    {"loss by DEL", deleted, 0},
    {"loss by theft", stolen, 0},
    {"loss by the deadline, network dead", network_dead, 0},
    {"key of another type", wrong_type, 0},
    {"server restarts", restart, 0},
    {"server restarts, Redisson", restart, REDISSON},
    {"server not there yet", not_there_yet, 0},
    {"server not there yet, Unix socket", not_there_yet, UNIX},
    {"scripts forgotten", no_script, FENCED},
    {"scripts forgotten, Redisson", no_script, REDISSON},
    {"commands refused for now", refused_for_now, 0},
    {"unsure acquire, CLIENT KILL", unsure, 0},
    {"release over a reconnect", release_over_a_reconnect, 0},
    {"connections ended", ended, 0},
    {"connections reset", was_reset, 0},
    {"connections silent", gone_silent, 0},
    {"heartbeats", heartbeat, 0},
    {"shutdown", shut_down, 0},
    {"shutdown, memory", shut_down, MEMORY},
    {"drain", drained, 0},
    {"drain, memory", drained, MEMORY},
    {"new password", new_password, SHAKEN},
    {"new password, in pieces", new_password, SHAKEN | NARROW},
    {"adoption, and a hold that stays", given_on, FENCED},
    {"adoption, and a hold that stays, Redisson", given_on, REDISSON},
    {"adoption, and a hold that stays, fair", given_on, FAIR},
    {"free of a client", client_freed, 0},
    {"free of a client, Redisson", client_freed, REDISSON},
    {"free of a client, memory", client_freed, MEMORY},
    {"free in flight", freed_in_flight, 0},
    {"free in flight, memory", freed_in_flight, MEMORY},
    {"hand-over, fair", between_two, FAIR | FENCED},
    {"hand-over, fair, polling", between_two, FAIR | OLD},
    {"hand-over, fair, in pieces", between_two, FAIR | NARROW},
    {"hand-over inside one client, fair", inside_one, FAIR},
    {"waits run out, fair", waits_run_out, FAIR},
    {"cancel of a waiter, fair", cancel_waiting, FAIR},
    {"cancel in flight, fair", cancel_in_flight, FAIR},
    {"watchdog over three leases, fair", watchdog, FAIR},
    {"scripts forgotten, fair", no_script, FAIR | FENCED},
    {"server restarts, fair", restart, FAIR},
    {"connections reset, fair", was_reset, FAIR},
    {"shutdown, fair", shut_down, FAIR},
    {"free of a client, fair", client_freed, FAIR},
    {"free in flight, fair", freed_in_flight, FAIR},
    {"readers and writers", read_and_write, SHARED},
    {"readers and writers, fenced", read_and_write, SHARED | FENCED},
    {"readers and writers, polling", read_and_write, SHARED | OLD},
    {"semaphore", shared_out, SEMAPHORE},
    {"semaphore, fenced", shared_out, SEMAPHORE | FENCED},
    {"semaphore, polling", shared_out, SEMAPHORE | OLD},
    {"hand-over, several keys", between_two, SETS | FENCED},
    {"hand-over inside one client, several keys", inside_one, SETS},
    {"watchdog over three leases, several keys", watchdog, SETS},
    {"loss by DEL, several keys", deleted, SETS},
    {"scripts forgotten, several keys", no_script, SETS | FENCED},
    {"free of a client, several keys", client_freed, SETS},
    {"questions", asked_about, 0},
    {"questions, fair", asked_about, FAIR},
    {"questions, semaphore", asked_about, SEMAPHORE},
    {"calls in callbacks", in_callbacks, 0},
    {"calls in callbacks, fair", in_callbacks, FAIR},
    {"long keys, window full", one_a_key, LONG},
    {"long keys, window full, Redisson", one_a_key, LONG | REDISSON},
    {"200 handles", two_hundred, LARGE},
};
#define SCENARIOS (sizeof scenarios / sizeof *scenarios)

/* ------------------------------------------------------------------------------------------------
 * What fails, and how.
 */

struct kind {
    const char *name, *every; /* on the command line; in a row */
    struct {
        int error;
        bool once_only; /* a socket that says so for ever while it is ready is none */
    } errors[8];        /* ended by 0; a step without errno has one 0 */
};

static const struct kind kinds[SIM_STEPS] = {
    {"alloc", "every allocation", {{0, false}}},
    {"open", "the loop's every open", {{0, false}}},
    {"watch", "the loop's every watch", {{0, false}}},
    {"entropy", "every draw of random bytes", {{0, false}}},
    {"socket", "every socket", {{EMFILE, false}, {ENOBUFS, false}, {EAFNOSUPPORT, false}}},
    {"connect",
     "every connect",
     {{ECONNREFUSED, false},
      {ENETUNREACH, false},
      {EHOSTUNREACH, false},
      {EADDRNOTAVAIL, false},
      {EAGAIN, false},
      {EINTR, false},
      {ETIMEDOUT, false}}},
    {"connected",
     "every connect's result",
     {{ECONNREFUSED, false}, {ETIMEDOUT, false}, {EHOSTUNREACH, false}, {ECONNRESET, false}}},
    {"read",
     "every read",
     {{ECONNRESET, false},
      {ETIMEDOUT, false},
      {ENOTCONN, false},
      {EIO, false},
      {ENOMEM, false},
      {EINTR, true},
      {EAGAIN, true}}},
    {"write",
     "every write",
     {{EPIPE, false},
      {ECONNRESET, false},
      {ENOBUFS, false},
      {EHOSTUNREACH, false},
      {EIO, false},
      {EINTR, true},
      {EAGAIN, true}}},
    {"hiredis", "every allocation of hiredis", {{0, false}}},
};

#if HIREDIS_MAJOR >= 1
/* hiredis 1.x goes on with a SUBSCRIBE for whose callback it had no memory, and aborts or crashes
 * when the answer comes (dictReplace in redisAsyncAppendCmdLen of async.c is not checked). Nothing
 * outside can know: allocations inside the call that sends a SUBSCRIBE do not fail. */
static bool subscribing;
static int (*real_command)(redisAsyncContext *, redisCallbackFn *, void *, const char *, size_t);

static bool hiredis_fails(void) {
    return sim.running && !subscribing && sim_fails(SIM_HIREDIS);
}

int redisAsyncFormattedCommand(redisAsyncContext *ac, redisCallbackFn *fn, void *data,
                               const char *text, size_t size) {
    int status;
    subscribing = memmem(text, size, "\r\nSUBSCRIBE\r\n", 13) != NULL;
    status = real_command(ac, fn, data, text, size);
    subscribing = false;
    return status;
}

static void *hiredis_malloc(size_t size) {
    void *memory = hiredis_fails() ? NULL : malloc(size);
    hiredis_live += memory != NULL;
    return memory;
}

static void *hiredis_calloc(size_t count, size_t size) {
    void *memory = hiredis_fails() ? NULL : calloc(count, size);
    hiredis_live += memory != NULL;
    return memory;
}

static void *hiredis_realloc(void *old, size_t size) {
    void *memory = hiredis_fails() ? NULL : realloc(old, size);
    hiredis_live += memory != NULL && old == NULL;
    return memory;
}

static void hiredis_free(void *memory) {
    hiredis_live -= memory != NULL;
    free(memory);
}

static char *hiredis_strdup(const char *text) {
    char *copy = (char *)hiredis_malloc(strlen(text) + 1);
    return copy != NULL ? strcpy(copy, text) : NULL;
}

static void hook_hiredis(void) {
    hiredisAllocFuncs hooks = {hiredis_malloc, hiredis_calloc, hiredis_realloc, hiredis_strdup,
                               hiredis_free};
    hiredisSetAllocators(&hooks);
    *(void **)&real_command = dlsym(RTLD_NEXT, "redisAsyncFormattedCommand");
}
#else
static void hook_hiredis(void) {
    printf("# hiredis %d.%d.%d takes no allocator: its own allocations are not failed\n",
           HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}
#endif

/* ------------------------------------------------------------------------------------------------
 * One run.
 */

/* Bytes that are not freed, but for what a world keeps for the next one. */
extern size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t heap_in_use(void) {
    return __sanitizer_get_current_allocated_bytes != NULL
               ? __sanitizer_get_current_allocated_bytes() -
                     sim.event_room * sizeof(struct sim_event)
               : 0;
}

/* The lowest descriptor that is free: one that is forgotten takes its place. */
static int lowest_free_fd(void) {
    int fd = (int)syscall(SYS_dup, 1);
    syscall(SYS_close, fd);
    return fd;
}

static void make_world(void) {
    static const char *const keys[SIM_SLOTS] = {"a", "b{1}", "{c}:d", "e", "f", "g", "h", "i"};
    static char long_keys[SIM_SLOTS][LONG_KEY + 1];
    struct sim_server *server = &sim.servers[0];
    int i;
    for (i = 0; i < SIM_SLOTS; i++) {
        memset(long_keys[i], 'a' + i, LONG_KEY);
        slot_new(server, is(LONG) ? long_keys[i] : keys[i]);
    }
    for (i = 0; i < 2; i++) {
        struct slot *slot = &oracle.slots[i];
        slot->kind = is(FAIR)        ? SLOT_FAIR
                     : is(SHARED)    ? SLOT_SHARED
                     : is(SEMAPHORE) ? SLOT_SEMAPHORE
                                     : SLOT_MUTEX;
        slot->permits = is(FAIR) ? 1 : is(SEMAPHORE) ? 3 : 1000000000;
        slot->in_force = slot->permits;
    }
    server->model->flavour = is(OLD) ? MODEL_REDIS_5 : is(VALKEY) ? MODEL_VALKEY_9 : MODEL_REDIS_7;
    if (is(SHAKEN)) {
        server->database = 3;
        server->password = server->model->password = "secret";
    }
    if (is(NARROW)) {
        sim.weather.window = 300;
        sim.weather.split = sim.weather.short_io = 2;
        sim.weather.split_us = 50;
    }
    program.most_lease_ms = 3000;
    oracle.blind = is(MEMORY);
    for (i = 0; i < 2 && is(MEMORY) && memory_store == NULL; i++) {
        int status = rlock_memory_new(&memory_store);
        if ((status == RLOCK_OK) != (memory_store != NULL) ||
            (status != RLOCK_OK && status != RLOCK_ERR_NOMEM)) {
            sim_failed("no store: %s", rlock_strerror(status));
        }
    }
}

/* Whoever is there can acquire and release; a failure that is still to come may hit that too. */
static void go_on(void) {
    int count = oracle.actor_count, i, tries;
    for (i = 0; i < count; i++) {
        struct actor *actor = &oracle.actors[i];
        struct hand *hand = actor->gone || actor->closing ? NULL : handle(actor, SIM_SLOTS - 1);
        for (tries = 0; hand != NULL && tries < 2 && told(hand, RLOCK_ACQUIRED) != RLOCK_OK;
             tries++) {
            ask(hand, RLOCK_FOREVER, 1000);
            program_settle();
        }
        if (!actor->gone && !actor->closing && told(hand, RLOCK_RELEASED) > RLOCK_OK) {
            sim_failed("a client does not go on");
        }
    }
}

/* A client that is freed has one write for what it holds. If that failed, the lease ends it. */
static void forgive(void *failures_before) {
    int i;
    for (i = 0; i < oracle.slot_count && sim.failures > *(const uint64_t *)failures_before &&
                sim.failure.step != SIM_ALLOC;
         i++) {
        int k;
        oracle.slots[i].keeper[0] = 0;
        for (k = 0; k < oracle.slots[i].member_count; k++) {
            oracle.slots[i].members[k]->kept = false;
        }
    }
}

static void run(const struct sim_failure *failure, struct tally *tally) {
    size_t heap = heap_in_use();
    int fd = lowest_free_fd();
    uint64_t failures;
    memset(&program, 0, sizeof program);
    sim_begin(1, 1, 2);
    oracle_begin();
    sim.failure = *failure;
    make_world();
    if (!is(MEMORY) || memory_store != NULL) {
        scenario->run();
    }
    memcpy(tally->scenario, sim.steps, sizeof sim.steps);
    if (sim.failure.from_there_on) {
        sim.failure.nth = 0;
    }
    program_heal();
    program_settle();
    go_on();
    program_cleaned();
    failures = sim.failures;
    sim_at(sim.now_us + 9000000, forgive, &failures); /* in the last second of it */
    program_close();
    rlock_memory_free(memory_store);
    memory_store = NULL;
    memcpy(tally->all, sim.steps, sizeof sim.steps);
    tally->hash = sim.hash;
    sim_end();
    if (lowest_free_fd() != fd) {
        sim_failed("a descriptor is not closed");
    }
    if (hiredis_live != 0) {
        sim_failed("%llu blocks of hiredis are not freed", (unsigned long long)hiredis_live);
    }
    if (heap_in_use() != heap) {
        sim_failed("%zd bytes are not freed", (ssize_t)(heap_in_use() - heap));
    }
}

/* ------------------------------------------------------------------------------------------------
 * A row: all places of one kind in one scenario. They are numbered: those that fail once, then
 * those that fail from there on, both for each errno.
 */

static uint64_t places_of(enum sim_step step, bool on) {
    return on ? progress->plain.scenario[step] : progress->plain.all[step];
}

static bool place(enum sim_step step, uint64_t number, struct sim_failure *failure) {
    size_t i, on;
    for (i = 0; i < 8 && (i == 0 || (kinds[step].errors[i].error != 0 && !is(LARGE))); i++) {
        for (on = 0; on < (kinds[step].errors[i].once_only ? 1 : 2); on++) {
            uint64_t count = places_of(step, on != 0) + BEYOND;
            if (number < count) {
                failure->step = step;
                failure->nth = number + 1;
                failure->error = kinds[step].errors[i].error;
                failure->from_there_on = on != 0;
                return true;
            }
            number -= count;
        }
    }
    return false;
}

/* Fails there what shall fail; where nothing is left to fail, nothing may be different. */
static void run_place(const struct sim_failure *failure) {
    struct tally tally;
    bool beyond = failure->nth > places_of(failure->step, failure->from_there_on);
    progress->failure = *failure;
    run(failure, &tally);
    if (!beyond && sim.failures == 0) {
        sim_failed("nothing failed");
    }
    if (beyond && tally.hash != progress->plain.hash && sim.failures == 0) {
        sim_failed("without a failure it was different the second time");
    }
    progress->runs++;
}

struct slice {
    uint64_t number, of;
};

static bool in_slice(const struct slice *slice, uint64_t salt, uint64_t number) {
    return sim_mix(salt ^ number) % slice->of == slice->number;
}

/* In a process of its own, from progress->at on. */
static void run_places(enum sim_step step, const struct slice *slice) {
    uint64_t salt = sim_mix((uint64_t)(scenario - scenarios) * SIM_STEPS + (uint64_t)step);
    struct sim_failure failure;
    while (place(step, progress->at, &failure)) {
        uint64_t number = progress->at++;
        if (in_slice(slice, salt, number) || number == salt % places_of(step, false)) {
            run_place(&failure);
        }
    }
}

static void print_finding(void) {
    const struct sim_failure *failure = &progress->failure;
    printf("# %s\n", progress->text);
    printf("#   repeat it with: torture --repeat '%s' %s %llu %d %s\n", scenario->name,
           kinds[failure->step].name, (unsigned long long)failure->nth, failure->error,
           failure->from_there_on ? "on" : "once");
}

/* Runs `what` in a process of its own; false = it found something, which is printed. */
static bool in_child(void (*what)(enum sim_step step, const struct slice *slice),
                     enum sim_step step, const struct slice *slice) {
    int status;
    pid_t child;
    progress->text[0] = 0;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        what(step, slice);
        exit(0); /* the leak checker looks then */
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return true;
    }
    if (progress->text[0] == 0) {
        snprintf(progress->text, sizeof progress->text, "a crash, or a leak");
    }
    progress->findings++;
    print_finding();
    return false;
}

static void run_plain(enum sim_step step, const struct slice *slice) {
    struct sim_failure none;
    (void)step;
    (void)slice;
    memset(&none, 0, sizeof none);
    run(&none, &progress->plain);
}

/* ------------------------------------------------------------------------------------------------
 * All rows.
 */

static struct {
    int rows, bad;
    uint64_t runs, allocations[2]; /* ours, hiredis' */
} total;

static void print_row(enum sim_step step) {
    total.rows++;
    total.bad += progress->findings > 0;
    total.runs += progress->runs;
    if (progress->findings > 0) {
        printf("not ");
    }
    printf("ok %d - %s: %s fails, once and from there on (%llu places, %llu runs)\n", total.rows,
           scenario->name, kinds[step].every, (unsigned long long)progress->plain.all[step],
           (unsigned long long)progress->runs);
}

static void run_row(enum sim_step step, const struct slice *slice) {
    progress->at = progress->runs = progress->findings = 0;
    while (!in_child(run_places, step, slice) && progress->findings < FINDINGS) {
    }
    print_row(step);
}

/* All rows of a scenario in one process: to fork, and to look for leaks, takes longer than a row of
 * a small slice. */
static void run_rows(enum sim_step step, const struct slice *slice) {
    for (step = (enum sim_step)0; step < SIM_STEPS; step = (enum sim_step)(step + 1)) {
        progress->at = progress->runs = 0;
        if (progress->plain.all[step] > 0) {
            run_places(step, slice);
        }
        progress->row_runs[step] = progress->runs;
    }
}

/* If something is found in one of them, each runs again, in a process of its own. */
static void run_scenario(const struct slice *slice) {
    int step, bad = total.bad;
    bool fine;
    memset(progress, 0, sizeof *progress);
    if (!in_child(run_plain, SIM_ALLOC, slice)) {
        total.rows++;
        total.bad++;
        printf("not ok %d - %s: it does what it is for\n", total.rows, scenario->name);
        return;
    }
    total.allocations[0] += progress->plain.all[SIM_ALLOC];
    total.allocations[1] += progress->plain.all[SIM_HIREDIS];
    fine = in_child(run_rows, SIM_ALLOC, slice);
    for (step = 0; step < SIM_STEPS; step++) {
        if (progress->plain.all[step] > 0 && fine) {
            progress->runs = progress->row_runs[step];
            print_row((enum sim_step)step);
        } else if (progress->plain.all[step] > 0) {
            run_row((enum sim_step)step, slice);
        }
    }
    if (!fine && bad == total.bad) {
        total.rows++;
        total.bad++;
        printf("not ok %d - %s: all rows in one process\n", total.rows, scenario->name);
    }
}

static int repeat(char **words) {
    struct sim_failure failure;
    struct tally tally;
    int step;
    memset(&failure, 0, sizeof failure);
    for (step = 0; step < SIM_STEPS && strcmp(kinds[step].name, words[1]) != 0; step++) {
    }
    for (scenario = scenarios; scenario < scenarios + SCENARIOS; scenario++) {
        if (strcmp(scenario->name, words[0]) == 0 && step < SIM_STEPS) {
            failure.step = (enum sim_step)step;
            failure.nth = strtoull(words[2], NULL, 10);
            failure.error = atoi(words[3]);
            failure.from_there_on = strcmp(words[4], "on") == 0;
            sim.tracing = true;
            run(&failure, &tally);
            printf("no rule is broken, %llu failures\n", (unsigned long long)sim.failures);
            return 0;
        }
    }
    fprintf(stderr, "torture: no such scenario or step\n");
    return 2;
}

int main(int argc, char **argv) {
    struct slice slice = {0, 1};
    const char *only = "";
    size_t i;
    progress = (struct progress *)mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    hook_hiredis();
    if (argc == 7 && strcmp(argv[1], "--repeat") == 0) {
        return repeat(argv + 2);
    }
    if (argc == 4 && strcmp(argv[1], "--slice") == 0) {
        slice.number = strtoull(argv[2], NULL, 10);
        slice.of = strtoull(argv[3], NULL, 10);
    } else if (argc == 3 && strcmp(argv[1], "--only") == 0) {
        only = argv[2];
    } else if (argc > 1) {
        slice.of = 0;
    }
    if (progress == MAP_FAILED || slice.number >= slice.of) {
        fprintf(stderr, "usage: torture [--slice N K | --only TEXT | --repeat SCENARIO STEP NTH "
                        "ERRNO once|on]\n");
        return 2;
    }
    for (i = 0; i < SCENARIOS; i++) {
        scenario = &scenarios[i];
        if (strstr(scenario->name, only) != NULL) {
            run_scenario(&slice);
        }
    }
    printf("# %llu runs; a plain run of each has %llu allocations of rlock, %llu of hiredis\n",
           (unsigned long long)total.runs, (unsigned long long)total.allocations[0],
           (unsigned long long)total.allocations[1]);
    printf("1..%d\n", total.rows);
    return total.bad > 0 || total.rows == 0;
}
