/* world.h - processes, servers and the network between them, in one process and in simulated time
 *
 * The processes run the real rlock.h with the real hiredis on a loop of this file. The servers are
 * those of model.h. hiredis makes its own descriptors; connect, read, write and close on them are
 * answered here, so that every byte passes through a network that delays, splits and loses as the
 * weather says. Each process and each server has a clock of its own; nothing reads a real one, and
 * everything happens in one order that follows from the seed alone.
 *
 * One world at a time: sim_begin, then sim_run_until as often as wanted, then sim_end. What is
 * traced is what the hash is made of, so that two runs with one hash did the same things at the
 * same times.
 *
 * A program includes this file instead of rlock.h, and defines sim_failed(), which is told of
 * broken rules and does not return.
 */

#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model.h"
#include "rlock.h"

#define SIM_SERVERS 5
#define SIM_PROCESSES 6
#define SIM_SEATS 16
#define SIM_WATCHED 16
#define SIM_WATCHED_ALONE 4 /* of a client of one server */
#define SIM_FDS 1024
#define SIM_PORT 7000           /* of server 0; unix sockets are called sim-0, sim-1 ... */
#define SIM_ADDRESS 0x0a000001u /* of machine 0 of a deployment; they all have SIM_PORT */
#define SIM_SHARDS 3
#define SIM_SLOTS_MOVED 8
#define SIM_SENTINELS 3
#define SIM_SENTINEL 10  /* where the first of them is */
#define SIM_NAMES 8      /* that a client resolves at one time */
#define SIM_TURNS 500000 /* of one process, after which it is said to spin */

__attribute__((noreturn, format(printf, 1, 2))) static void sim_failed(const char *format, ...);

/* ------------------------------------------------------------------------------------------------
 * Dice.
 */

struct sim_dice {
    uint64_t state;
};

static inline uint64_t sim_mix(uint64_t x) { /* splitmix64: neighbours become strangers */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t sim_random(struct sim_dice *dice) {
    dice->state += 0x9e3779b97f4a7c15u;
    return sim_mix(dice->state);
}

/* As if so many numbers had been drawn. */
static inline void sim_skip(struct sim_dice *dice, int count) {
    dice->state += 0x9e3779b97f4a7c15u * (uint64_t)count;
}

/* 0 to sides - 1. */
static inline int64_t sim_roll(struct sim_dice *dice, int64_t sides) {
    return (int64_t)(sim_random(dice) % (uint64_t)sides);
}

static inline bool sim_one_in(struct sim_dice *dice, int64_t n) {
    return n > 0 && sim_roll(dice, n) == 0;
}

/* ------------------------------------------------------------------------------------------------
 * What fails: one thing at a planned place, for torture, or many by dice, for the weather.
 */

enum sim_step {
    SIM_ALLOC,
    SIM_OPEN,    /* the loop's open */
    SIM_WATCH,   /* the loop's watch */
    SIM_ENTROPY, /* random bytes */
    SIM_SOCKET,
    SIM_CONNECT,
    SIM_CONNECTED, /* what the socket says when the connect is over */
    SIM_READ,
    SIM_WRITE,
    SIM_HIREDIS, /* an allocation of hiredis, where its version lets one see them */
    SIM_STEPS
};

struct sim_failure {
    enum sim_step step;
    uint64_t nth; /* counted from 1; 0 = nothing fails */
    int error;    /* errno */
    bool from_there_on;
};

/* What the network and the machines do to each message; a chance n means one in n, 0 never. */
struct sim_weather {
    int64_t latency_us; /* each message takes up to that long */
    int64_t slow_us;    /* one in eight takes up to that long */
    int64_t split;      /* chance of a message to arrive in pieces */
    int64_t split_us;   /* between two pieces */
    int64_t short_io;   /* chance of a read or write to move less than it could */
    int64_t late;       /* chance of a closed connection to deliver what was on its way late */
    int64_t late_us;    /* by up to that long */
    int64_t torn;       /* chance of a closed connection to lose a tail of it */
    int64_t no_memory;  /* chance of an allocation to fail */
    int64_t linger_us;  /* how long a loop is busy with other things between two turns */
    size_t window;      /* bytes that fit into a socket */
};

/* ------------------------------------------------------------------------------------------------
 * What there is.
 */

struct sim_clock {
    int64_t base_us;
    int64_t rate_ppm;
};

struct sim_piece {
    struct sim_piece *next;
    int64_t sent_us, at_us;
    size_t size; /* 0 = the end of the stream */
    char bytes[];
};

struct sim_pipe { /* one direction of a connection */
    struct sim_line *line;
    struct sim_piece *first, **last;
    int64_t last_us; /* bytes keep their order */
    size_t size;     /* on the way */
    bool dead;       /* swallows everything, tells nobody */
};

enum { SIM_CONNECTING, SIM_UP, SIM_REFUSED };

struct sim_line { /* one connection, from connect to the last byte */
    struct sim_line *next;
    int number, fd; /* -1 = the process has closed it */
    int state, error;
    struct sim_seat *seat; /* whose it was made for */
    char client_id[37];    /* also when the client is gone */
    struct sim_server *server;
    struct model_peer *peer; /* NULL = the server knows nothing of it (any more) */
    struct sim_pipe up, down;
    bool moved;      /* to the other machine of the two that are this server in turn */
    bool refused;    /* nobody is there */
    bool floating;   /* by an address that leads now here, now there */
    int64_t sent_us; /* when that was written which the server has read last */
    uint64_t asked;  /* bits of ASKs that were said here, in this passage of a slot ... */
    uint64_t past;   /* ... and in those before: see sim_ask_bit */
    int64_t wrote;   /* which write of the primary is the last that came by it */
    struct {         /* its WAIT */
        int64_t replicas, until_us, written; /* 0 replicas = there is none */
    } wait;
    char *inbox;
    size_t in, inbox_room;
    bool ended, reset; /* the process will read so */
};

struct sim_effect { /* a write on its way to a replica */
    struct sim_effect *next;
    struct model_effect *what;
    struct model_copy *all; /* instead: everything anew */
    uint64_t command;       /* of the primary; 0 = none */
    int64_t at_us;
    int64_t written; /* by the primary when it was sent */
};

struct sim_server { /* alone, or a machine of the one deployment */
    int number;
    bool follows;                     /* a replica of sim.primary */
    struct sim_effect *first, **last; /* what that did and this has not heard of yet */
    int64_t heard_us;                 /* when it hears of the last of that */
    int64_t has; /* so many writes of the primary; -1 = it begins anew, and is not counted */
    bool torn;   /* it hears of no later write, until it begins anew */
    bool was;    /* it was the primary, and has not begun anew yet */
    const struct sim_server *names; /* of a Sentinel: the primary, as it says */
    struct model *model;            /* to which its address leads */
    bool moved;                     /* the other machine is the primary */
    struct model *twin; /* its replica, on the connections of which it answers; NULL = none yet */
    struct sim_clock clock;
    int database;              /* that its clients use */
    const char *password;      /* that it asks for; NULL = none */
    const char *always_denied; /* a command that its users may not run; NULL = none */
    bool proxied;              /* a proxy stands before it, and takes only commands with keys */
    int64_t paused_until_us;
    bool stepped;    /* its clock was: it does not know since when it runs */
    int64_t back_us; /* by so much its clock was set back, all in all */
    bool unkilling;  /* for a while it did not say who a connection is, or did not end one */
    bool down;       /* refuses connections */
    bool cut;        /* nothing comes through: connects neither succeed nor fail */
};

struct sim_watched {
    rlock_io *io;
    int fd;
    unsigned events;
};

struct sim_name { /* being resolved */
    rlock_name *name;
    int64_t due_us; /* in true time */
    int place;      /* of one machine or Sentinel; -1 = the name of the deployment */
};

struct sim_seat { /* what open gives to a client */
    struct sim_process *process;
    rlock_client *client;
    bool open;
    bool idle;      /* it does not keep its loop from ending */
    int64_t due_us; /* by the clock of the process; -1 = no timer */
    struct sim_watched watched[SIM_WATCHED];
    struct sim_name names[SIM_NAMES];
};

struct sim_process {
    int number;
    struct sim_clock clock;
    int64_t paused_until_us;
    int64_t turn_us; /* when its loop looks next; -1 = not planned */
    uint64_t turns;
    bool inside;    /* it is on the stack: it cannot have a turn */
    int seat_count; /* that ever were open */
    struct sim_seat seats[SIM_SEATS];
};

struct sim_event {
    int64_t at_us;
    uint64_t order; /* of two at one time the one planned first comes first */
    void (*happen)(void *object);
    void *object;
};

struct sim_view {                  /* what a node of the cluster thinks */
    int shard_of[SIM_SLOTS_MOVED]; /* of the slots that move */
    int primary_of[SIM_SHARDS];
    int to[SIM_SLOTS_MOVED], from[SIM_SLOTS_MOVED]; /* one above the node; 0 = it stays */
    int names;                                      /* how it names nodes */
};

static struct {
    bool running, tracing;
    int64_t now_us; /* true time */
    uint64_t hash;
    struct sim_dice dice; /* of the network and of the loops */
    struct sim_weather weather;
    struct sim_failure failure;
    uint64_t steps[SIM_STEPS]; /* how often each was asked for */
    uint64_t failures;         /* how often it failed */
    struct sim_event *events;
    size_t event_count, event_room;
    uint64_t orders;
    struct sim_server servers[SIM_SERVERS];
    int server_count;
    struct sim_server *primary; /* all servers are one deployment; NULL = each is alone */
    int64_t lag_us;             /* a write takes up to that long to a replica */
    int64_t written;            /* how many writes the primaries did */
    uint64_t waits, unsynced;   /* WAITs; those that too few replicas ended */
    struct {
        bool on;
        unsigned slots[SIM_SLOTS_MOVED]; /* those of the keys */
        int slot_count;
        struct sim_view views[SIM_SERVERS];
        uint64_t moved, asks, again; /* how often MOVED, ASK and TRYAGAIN were said */
    } cluster;                       /* the servers are its nodes */
    struct sim_server sentinels[SIM_SENTINELS];
    int sentinel_count;
    bool announces;        /* names, not addresses */
    bool sentinels_named;  /* clients know them by names ... */
    int64_t hung_until_us; /* ... one of which is not answered before then ... */
    int hung;              /* ... that of this Sentinel */
    struct {
        struct sim_server *answer; /* whose address it is */
        bool floating;             /* the address stays, what is behind it changes */
        int64_t latency_us;        /* how long an answer takes, at most */
        int64_t gone_until_us;     /* it is answered with nothing */
        int64_t silent_until_us;   /* it is answered then */
        bool all;                  /* all machines have this name ... */
        int odd;                   /* ... and so many where nobody is */
        uint64_t told[3];          /* how often none, one and more were told */
    } name;
    struct sim_process processes[SIM_PROCESSES];
    int process_count;
    int watched; /* how many descriptors a client has at most, all of them in one world */
    struct sim_line *lines;
    int line_count;
    struct sim_line *by_fd[SIM_FDS];
    struct sim_seat *entered; /* whose library is on the stack ... */
    int64_t entered_us;       /* ... since when, by its clock */
    int64_t inner_until_us;   /* until when a process is stopped inside a callback; 0 = none is */
    size_t live;              /* blocks of rlock not freed */
    uint64_t forks;
    bool child; /* of a fork: the first thing that it does is ... */
    int deed;
    void (*after_entry)(struct sim_seat *seat);                           /* may be NULL */
    void (*serve)(struct sim_line *line, const char *bytes, size_t size); /* for the servers */
    void (*touched)(struct sim_server *server, struct sim_line *by, const char *key, size_t len);
} sim;

/* ------------------------------------------------------------------------------------------------
 * Trace and hash.
 */

static inline void sim_hash(const void *bytes, size_t size) { /* FNV-1a by eight bytes */
    const unsigned char *at = (const unsigned char *)bytes;
    while (size > 0) {
        uint64_t word = 0;
        size_t take = size < 8 ? size : 8, i;
        for (i = 0; i < take; i++) {
            word |= (uint64_t)at[i] << (8 * i);
        }
        sim.hash = (sim.hash ^ word) * 0x100000001b3u;
        sim.hash ^= sim.hash >> 29;
        at += take;
        size -= take;
    }
}

static inline void sim_note(int64_t a, int64_t b) {
    uint64_t both = sim_mix((uint64_t)a) ^ (uint64_t)b;
    sim.hash = (sim.hash ^ both) * 0x100000001b3u;
    sim.hash ^= sim.hash >> 29;
}

__attribute__((format(printf, 1, 2))) static inline void sim_trace(const char *format, ...) {
    va_list arguments;
    if (sim.tracing) {
        printf("%12.6f  ", (double)sim.now_us / 1e6);
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
        putchar('\n');
    }
}

/* ------------------------------------------------------------------------------------------------
 * Failing steps, memory and random bytes of the library.
 */

static inline bool sim_fails(enum sim_step step) {
    const struct sim_failure *failure = &sim.failure;
    uint64_t now = ++sim.steps[step];
    if (failure->nth == 0 || failure->step != step || now < failure->nth ||
        (now > failure->nth && !failure->from_there_on)) {
        return false;
    }
    sim.failures++;
    errno = failure->error;
    return true;
}

static inline void *sim_malloc(size_t size) {
    uint64_t *block;
    if (sim_fails(SIM_ALLOC) || sim_one_in(&sim.dice, sim.weather.no_memory)) {
        sim_note(-1, (int64_t)size);
        return NULL;
    }
    block = (uint64_t *)malloc(size + 16);
    if (block == NULL) {
        abort();
    }
    sim.live++;
    block[0] = size;
    memset(block + 2, 0xa5, size); /* nobody may count on zeroes */
    return block + 2;
}

static inline void sim_free(void *memory) {
    uint64_t *block = (uint64_t *)memory - 2;
    if (memory != NULL) {
        sim.live--;
        memset(memory, 0xdd, (size_t)block[0]); /* nor on what was freed */
        free(block);
    }
}

static inline int sim_entropy(void *buffer, size_t size) {
    size_t i;
    for (i = 0; i < size; i++) {
        ((unsigned char *)buffer)[i] = (unsigned char)sim_roll(&sim.dice, 256);
    }
    return sim_fails(SIM_ENTROPY) ? 0 : 1;
}

#define RLOCK_MALLOC(n) sim_malloc(n)
#define RLOCK_FREE(p) sim_free(p)
#define RLOCK_RANDOM(p, n) sim_entropy(p, n)
#ifndef RLOCK_ASSERT
#define RLOCK_ASSERT(x) ((x) ? (void)0 : sim_failed("rlock.h asserts " #x))
#endif
#define RLOCK__RING_MIN 2   /* so few holds stand in the ring of their client ... */
#define RLOCK__TICK_US 8192 /* ... and often in the same slot */
#ifndef RLOCK__FLIGHTS
#define RLOCK__FLIGHTS 2 /* so few are kept for requests */
#endif
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

/* ------------------------------------------------------------------------------------------------
 * Time.
 */

static inline int64_t sim_local_us(const struct sim_clock *clock) {
    return clock->base_us + sim.now_us + sim.now_us * clock->rate_ppm / 1000000;
}

/* The first true time at which a clock says so. */
static inline int64_t sim_true_us(const struct sim_clock *clock, int64_t local_us) {
    int64_t span_us = local_us - clock->base_us, guess_us;
    if (clock->rate_ppm == 0) {
        return span_us;
    }
    guess_us = (int64_t)((double)span_us / (1.0 + (double)clock->rate_ppm / 1e6)) - 2;
    while (guess_us + guess_us * clock->rate_ppm / 1000000 < span_us) {
        guess_us++;
    }
    return guess_us;
}

static inline bool sim_sooner(const struct sim_event *a, const struct sim_event *b) {
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static inline void sim_at(int64_t at_us, void (*happen)(void *object), void *object) {
    size_t i = sim.event_count++;
    struct sim_event event;
    event.at_us = at_us > sim.now_us ? at_us : sim.now_us;
    event.order = ++sim.orders;
    event.happen = happen;
    event.object = object;
    if (sim.event_count > sim.event_room) {
        sim.event_room = sim.event_count * 2;
        sim.events = (struct sim_event *)realloc(sim.events, sim.event_room * sizeof event);
    }
    for (; i > 0 && sim_sooner(&event, &sim.events[(i - 1) / 2]); i = (i - 1) / 2) {
        sim.events[i] = sim.events[(i - 1) / 2];
    }
    sim.events[i] = event;
}

static inline struct sim_event sim_next(void) {
    struct sim_event first = sim.events[0], last = sim.events[--sim.event_count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < sim.event_count) {
        if (child + 1 < sim.event_count && sim_sooner(&sim.events[child + 1], &sim.events[child])) {
            child++;
        }
        if (!sim_sooner(&sim.events[child], &last)) {
            break;
        }
        sim.events[i] = sim.events[child];
        i = child;
    }
    sim.events[i] = last;
    return first;
}

/* Also from inside a callback, whose process is then stopped for so long. */
static inline void sim_run_until(int64_t end_us) {
    while (sim.event_count > 0 && sim.events[0].at_us <= end_us) {
        struct sim_event event = sim_next();
        sim.now_us = event.at_us > sim.now_us ? event.at_us : sim.now_us;
        event.happen(event.object);
    }
    sim.now_us = end_us > sim.now_us ? end_us : sim.now_us;
}

/* ------------------------------------------------------------------------------------------------
 * Loops.
 */

static inline void sim_iteration(void *object);

static inline void sim_wake(struct sim_process *process, int64_t at_us) {
    if (process->turn_us < 0 || at_us < process->turn_us) {
        process->turn_us = at_us > sim.now_us ? at_us : sim.now_us;
        sim_at(process->turn_us, sim_iteration, process);
    }
}

static inline struct sim_line *sim_line_of(int fd) {
    return sim.running && fd >= 0 && fd < SIM_FDS ? sim.by_fd[fd] : NULL;
}

static inline bool sim_readable(const struct sim_line *line) {
    return line->state != SIM_CONNECTING && (line->in > 0 || line->ended || line->reset);
}

static inline bool sim_writable(const struct sim_line *line) {
    return line->state != SIM_CONNECTING && (line->up.size < sim.weather.window || line->reset);
}

/* What a loop would report: errors and ends as everything that is watched. */
static inline unsigned sim_events_of(const struct sim_watched *watched) {
    const struct sim_line *line = watched->io != NULL ? sim_line_of(watched->fd) : NULL;
    unsigned events = 0;
    if (line != NULL) {
        events |= sim_readable(line) ? RLOCK_IO_READ : 0;
        events |= sim_writable(line) ? RLOCK_IO_WRITE : 0;
        events |= line->reset || line->state == SIM_REFUSED ? RLOCK_IO_READ | RLOCK_IO_WRITE : 0;
    }
    return events & watched->events;
}

static inline void sim_enter(struct sim_seat *seat) {
    if (sim.entered != NULL && sim.entered->process == seat->process) {
        sim_failed("the loop calls the library while it is in the library");
    }
    sim.entered = seat;
    sim.entered_us = sim_local_us(&seat->process->clock);
}

/* ------------------------------------------------------------------------------------------------
 * A real fork, inside a callback. The child returns from it through the library, and ends when that
 * returns to its loop: nothing may have been sent, watched, armed, closed or called by then.
 */

enum sim_deed {
    SIM_CHILD_IS_STILL = 0,
    SIM_CHILD_SENDS,
    SIM_CHILD_READS,
    SIM_CHILD_CONNECTS,
    SIM_CHILD_CLOSES,
    SIM_CHILD_WATCHES,
    SIM_CHILD_ARMS,
    SIM_CHILD_CALLS_BACK,
    SIM_CHILD_ANSWERS,
    SIM_CHILD_BREAKS
};

static inline void sim_does(enum sim_deed deed) {
    if (sim.child && sim.deed == SIM_CHILD_IS_STILL) {
        sim.deed = (int)deed;
    }
}

/* Returns in both; the parent has waited for the child by then. */
static inline void sim_fork(void) {
    static const char *const deeds[] = {"is still", "sends",      "reads",        "connects",
                                        "closes",   "watches",    "arms a timer", "calls back",
                                        "answers",  "breaks down"};
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        sim.child = true;
        sim.tracing = false;
        return;
    }
    sim.forks += child > 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) {
        int deed = WIFEXITED(status) ? WEXITSTATUS(status) : SIM_CHILD_BREAKS;
        sim_failed("the child of a fork %s",
                   deeds[deed < SIM_CHILD_BREAKS ? deed : SIM_CHILD_BREAKS]);
    }
}

static inline void sim_leave(struct sim_seat *seat) {
    if (sim.child) {
        _exit((int)sim.deed);
    }
    sim.entered = NULL;
    if (sim.after_entry != NULL) {
        sim.after_entry(seat);
    }
}

static inline bool sim_seat_stirred(const struct sim_seat *seat) {
    int i;
    for (i = 0; i < sim.watched && seat->open; i++) {
        if (sim_events_of(&seat->watched[i]) != 0) {
            return true;
        }
    }
    return false;
}

static inline void sim_seat_io(struct sim_seat *seat) {
    int first, i;
    if (!sim_seat_stirred(seat)) {
        sim_skip(&sim.dice, 1);
        return;
    }
    first = (int)sim_roll(&sim.dice, sim.watched);
    for (i = 0; i < sim.watched && seat->open; i++) {
        struct sim_watched *watched = &seat->watched[(first + i) % sim.watched];
        unsigned events = sim_events_of(watched);
        if (events != 0) {
            sim_note(seat->process->number, events);
            sim_enter(seat);
            rlock_on_io(watched->io, events);
            sim_leave(seat);
        }
    }
}

static inline int64_t sim_process_now_us(const struct sim_process *process) {
    return sim_local_us(&process->clock);
}

/* The addresses of a deployment: of its machines, of one that stays, of a machine that is gone and
 * refuses, and of one that says nothing. */
enum { SIM_STAYS = SIM_SERVERS, SIM_REFUSES, SIM_SAYS_NOTHING };

static inline void sim_address(struct sockaddr_in *address, int place) {
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_port = htons(1); /* it is not asked for */
    address->sin_addr.s_addr = htonl(SIM_ADDRESS + (uint32_t)place);
}

/* What a name is answered with; how many addresses. */
static inline unsigned sim_name_answers(struct sockaddr_in *addresses, int place) {
    static const int odd[] = {SIM_REFUSES, SIM_SAYS_NOTHING};
    unsigned count = 0, k;
    int i;
    if (sim.now_us < sim.name.gone_until_us) {
        return 0;
    }
    if (place >= 0) {
        sim_address(&addresses[0], place);
        return 1;
    }
    sim_address(&addresses[count++], sim.name.floating ? SIM_STAYS : sim.name.answer->number);
    for (i = 0; i < sim.server_count && sim.name.all; i++) {
        if (&sim.servers[i] != sim.name.answer || sim.name.floating) {
            sim_address(&addresses[count++], i);
        }
    }
    for (i = 0; i < sim.name.odd; i++) {
        sim_address(&addresses[count++], odd[sim_roll(&sim.dice, 2)]);
    }
    for (k = count; k > 1; k--) {
        struct sockaddr_in last = addresses[k - 1];
        int64_t at = sim_roll(&sim.dice, k);
        addresses[k - 1] = addresses[at];
        addresses[at] = last;
    }
    return count;
}

static inline void sim_seat_names(struct sim_seat *seat) {
    struct sockaddr_in addresses[SIM_SERVERS + 3];
    const struct sockaddr *list[SIM_SERVERS + 3];
    int i;
    for (i = 0; i < SIM_NAMES && seat->open; i++) {
        rlock_name *name = seat->names[i].name;
        unsigned count, k;
        if (name == NULL || seat->names[i].due_us > sim.now_us) {
            continue;
        }
        seat->names[i].name = NULL;
        count = sim_name_answers(addresses, seat->names[i].place);
        for (k = 0; k < count; k++) {
            list[k] = (const struct sockaddr *)(const void *)&addresses[k];
        }
        sim_note(seat->process->number, sim.name.answer->number);
        sim_trace("process %d is told of %u addresses, the first is %u", seat->process->number,
                  count, count > 0 ? ntohl(addresses[0].sin_addr.s_addr) - SIM_ADDRESS : 0);
        sim.name.told[count < 2 ? count : 2]++;
        sim_enter(seat);
        rlock_on_resolved_all(name, list, count);
        sim_leave(seat);
    }
}

/* When a seat wants its next turn; INT64_MAX = not on its own. */
static inline int64_t sim_seat_due_us(const struct sim_seat *seat) {
    int64_t due_us = INT64_MAX;
    int i;
    if (sim_seat_stirred(seat)) {
        return sim.now_us;
    }
    if (seat->open && seat->due_us >= 0) {
        due_us = sim_true_us(&seat->process->clock, seat->due_us);
    }
    for (i = 0; i < SIM_NAMES && seat->open; i++) {
        if (seat->names[i].name != NULL && seat->names[i].due_us < due_us) {
            due_us = seat->names[i].due_us;
        }
    }
    return due_us;
}

static inline void sim_iteration(void *object) {
    struct sim_process *process = (struct sim_process *)object;
    int64_t next_us = INT64_MAX;
    int i;
    if (process->turn_us != sim.now_us) {
        return; /* an earlier plan */
    }
    process->turn_us = -1;
    if (process->inside) {
        return; /* it will look when it comes back */
    }
    if (process->paused_until_us > sim.now_us) {
        sim_wake(process, process->paused_until_us);
        return;
    }
    if (++process->turns > SIM_TURNS) {
        sim_failed("process %d spins", process->number);
    }
    process->inside = true;
    for (i = 0; i < process->seat_count; i++) {
        sim_seat_io(&process->seats[i]);
    }
    sim_skip(&sim.dice, SIM_SEATS - i);
    for (i = 0; i < process->seat_count && sim.primary != NULL; i++) {
        sim_seat_names(&process->seats[i]);
    }
    for (i = 0; i < process->seat_count; i++) {
        struct sim_seat *seat = &process->seats[i];
        if (seat->open && seat->due_us >= 0 && seat->due_us <= sim_process_now_us(process)) {
            seat->due_us = -1;
            sim_note(process->number, -2);
            sim_enter(seat);
            rlock_on_timer(seat->client);
            sim_leave(seat);
        }
    }
    process->inside = false;
    for (i = 0; i < process->seat_count; i++) {
        int64_t due_us = sim_seat_due_us(&process->seats[i]);
        next_us = due_us < next_us ? due_us : next_us;
    }
    if (next_us != INT64_MAX) {
        int64_t rest_us = 1 + sim_roll(&sim.dice, sim.weather.linger_us + 1);
        sim_wake(process, next_us > sim.now_us ? next_us : sim.now_us + rest_us);
    }
}

/* Something happened to a descriptor of this process. */
static inline void sim_stir(struct sim_line *line) {
    if (line->fd >= 0 && line->seat != NULL) {
        sim_wake(line->seat->process, sim.now_us);
    }
}

static inline void *sim_hook_open(void *ctx, rlock_client *client) {
    struct sim_process *process = (struct sim_process *)ctx;
    int i;
    for (i = 0; i < SIM_SEATS && process->seats[i].open; i++) {
    }
    if (i == SIM_SEATS) {
        sim_failed("more than %d clients in one process", SIM_SEATS);
    }
    if (sim_fails(SIM_OPEN)) {
        return NULL;
    }
    memset(&process->seats[i], 0, sizeof process->seats[i]);
    process->seats[i].process = process;
    process->seats[i].client = client;
    process->seats[i].open = true;
    process->seat_count = i < process->seat_count ? process->seat_count : i + 1;
    process->seats[i].due_us = -1;
    return &process->seats[i];
}

static inline struct sim_seat *sim_hook_seat(void *state, const char *hook) {
    struct sim_seat *seat = (struct sim_seat *)state;
    if (!seat->open) {
        sim_failed("the loop's %s is called after close", hook);
    }
    return seat;
}

static inline int sim_hook_watch(void *state, rlock_io *io, int fd, unsigned events) {
    struct sim_seat *seat = sim_hook_seat(state, "watch");
    int i, place = -1;
    sim_does(SIM_CHILD_WATCHES);
    for (i = 0; i < sim.watched; i++) {
        if (seat->watched[i].io == io || (seat->watched[i].io == NULL && place < 0)) {
            place = i;
        }
        if (seat->watched[i].io == io) {
            break;
        }
    }
    if (place < 0 || (events != 0 && sim_fails(SIM_WATCH))) {
        return -1;
    }
    seat->watched[place].io = events != 0 ? io : NULL;
    seat->watched[place].fd = fd;
    seat->watched[place].events = events;
    if (sim_events_of(&seat->watched[place]) != 0) {
        sim_wake(seat->process, sim.now_us + 1);
    }
    return 0;
}

static inline void sim_hook_set_timer(void *state, int64_t delay_us) {
    struct sim_seat *seat = sim_hook_seat(state, "set_timer");
    sim_does(SIM_CHILD_ARMS);
    seat->due_us = delay_us < 0 ? -1 : sim_process_now_us(seat->process) + delay_us;
    if (delay_us >= 0) {
        sim_wake(seat->process, sim_true_us(&seat->process->clock, seat->due_us));
    }
}

static inline int sim_hook_resolve(void *state, rlock_name *name, const char *host) {
    struct sim_seat *seat = sim_hook_seat(state, "resolve");
    int64_t due_us = sim.now_us + 1 + sim_roll(&sim.dice, sim.name.latency_us + 1);
    const char *number = strchr(host, '-'); /* of machine-0, or of sentinel-10 */
    int i;
    sim_does(SIM_CHILD_CONNECTS);
    for (i = 0; i < SIM_NAMES && seat->names[i].name != NULL; i++) {
    }
    if (i == SIM_NAMES) {
        sim_failed("a client resolves %d names at one time", SIM_NAMES);
    }
    seat->names[i].name = name;
    seat->names[i].place = number != NULL ? atoi(number + 1) : -1;
    seat->names[i].due_us = due_us > sim.name.silent_until_us ? due_us : sim.name.silent_until_us;
    if (seat->names[i].place == SIM_SENTINEL + sim.hung && due_us < sim.hung_until_us) {
        seat->names[i].due_us = sim.hung_until_us;
    }
    sim_wake(seat->process, seat->names[i].due_us);
    return 0;
}

/* The way of who knows by itself where the primary is. */
static inline redisAsyncContext *sim_hook_connect(void *user) {
    char text[24];
    (void)user;
    snprintf(text, sizeof text, "10.0.0.%d",
             1 + (sim.name.floating ? SIM_STAYS : sim.name.answer->number));
    return sim.now_us < sim.name.gone_until_us ? NULL : redisAsyncConnect(text, SIM_PORT);
}

static inline void sim_hook_close(void *state) {
    struct sim_seat *seat = sim_hook_seat(state, "close");
    int i;
    sim_does(SIM_CHILD_CLOSES);
    for (i = 0; i < SIM_WATCHED; i++) {
        if (seat->watched[i].io != NULL) {
            sim_failed("a descriptor is still watched at close");
        }
    }
    seat->open = false;
}

static inline void sim_hook_idle(void *state, bool idle) {
    struct sim_seat *seat = sim_hook_seat(state, "idle");
    if (seat->idle == idle) {
        sim_failed("the loop is told again that a client is %s", idle ? "idle" : "not idle");
    }
    seat->idle = idle;
}

static inline int64_t sim_hook_now_us(void *ctx) {
    return sim_process_now_us((struct sim_process *)ctx);
}

static inline rlock_loop sim_loop(struct sim_process *process) {
    rlock_loop loop;
    memset(&loop, 0, sizeof loop);
    loop.ctx = process;
    loop.open = sim_hook_open;
    loop.watch = sim_hook_watch;
    loop.set_timer = sim_hook_set_timer;
    loop.close = sim_hook_close;
    loop.idle = sim_hook_idle;
    loop.now_us = sim_hook_now_us;
    loop.resolve = sim.primary != NULL ? sim_hook_resolve : NULL;
    return loop;
}

/* Stops a process for a while: from inside one of its callbacks, or between two of them. Inside,
 * the others run on from here, so that one that stops in turn must go on before this one does. */
static inline void sim_pause(struct sim_process *process, int64_t for_us) {
    struct sim_seat *entered = sim.entered;
    int64_t entered_us = sim.entered_us;
    int64_t end_us = sim.now_us + for_us, outer_us = sim.inner_until_us;
    if (process->inside && outer_us > 0 && end_us > outer_us) {
        end_us = outer_us;
    }
    process->paused_until_us = end_us;
    sim_trace("process %d stops for %lld us", process->number, (long long)(end_us - sim.now_us));
    if (process->inside) {
        sim.inner_until_us = end_us;
        sim.entered = NULL;
        sim_run_until(end_us);
        sim.entered = entered;
        sim.entered_us = entered_us;
        sim.inner_until_us = outer_us;
    }
}

/* ------------------------------------------------------------------------------------------------
 * The network.
 */

static inline int64_t sim_latency_us(void) {
    bool slow = sim_one_in(&sim.dice, 8);
    return 1 + sim_roll(&sim.dice, (slow ? sim.weather.slow_us : sim.weather.latency_us) + 1);
}

static inline void sim_arrive_up(void *object);
static inline void sim_arrive_down(void *object);

static inline void sim_push(struct sim_pipe *pipe, const char *bytes, size_t size, int64_t at_us) {
    struct sim_piece *piece = (struct sim_piece *)malloc(sizeof *piece + size);
    pipe->last_us = at_us > pipe->last_us ? at_us : pipe->last_us;
    piece->next = NULL;
    piece->sent_us = sim.now_us;
    piece->at_us = pipe->last_us;
    piece->size = size;
    if (size > 0) {
        memcpy(piece->bytes, bytes, size);
    }
    *pipe->last = piece;
    pipe->last = &piece->next;
    pipe->size += size;
    sim_at(piece->at_us, pipe == &pipe->line->up ? sim_arrive_up : sim_arrive_down, pipe->line);
}

/* Size 0 ends the stream. */
static inline void sim_send(struct sim_pipe *pipe, const char *bytes, size_t size) {
    int64_t at_us = sim.now_us + sim_latency_us();
    if (pipe->dead) {
        return;
    }
    while (size > 1 && sim_one_in(&sim.dice, sim.weather.split)) {
        size_t part = 1 + (size_t)sim_roll(&sim.dice, (int64_t)size - 1);
        sim_push(pipe, bytes, part, at_us);
        bytes += part;
        size -= part;
        at_us += sim_roll(&sim.dice, sim.weather.split_us + 1);
    }
    sim_push(pipe, bytes, size, at_us);
}

/* The first piece, if it is due; the caller frees it. */
static inline struct sim_piece *sim_pull(struct sim_pipe *pipe) {
    struct sim_piece *piece = pipe->first;
    if (piece == NULL || piece->at_us > sim.now_us) {
        return NULL;
    }
    pipe->first = piece->next;
    if (pipe->first == NULL) {
        pipe->last = &pipe->first;
    }
    pipe->size -= piece->size;
    return piece;
}

static inline void sim_drop(struct sim_pipe *pipe) {
    while (pipe->first != NULL) {
        struct sim_piece *piece = pipe->first;
        pipe->first = piece->next;
        free(piece);
    }
    pipe->last = &pipe->first;
    pipe->size = 0;
}

static inline void sim_server_clock(struct sim_server *server) {
    server->model->wall_us = sim_local_us(&server->clock);
}

/* The replica has all that the primary has. */
static inline void sim_replicate(struct sim_server *server) {
    struct model_copy *copy = model_save(server->model);
    model_load(server->twin, copy);
    model_copy_free(copy);
    server->twin->wall_us = server->model->wall_us;
}

static inline void sim_arrive_up(void *object) {
    struct sim_line *line = (struct sim_line *)object;
    struct sim_server *server = line->server;
    struct sim_piece *piece;
    if (server->paused_until_us > sim.now_us && line->up.first != NULL) {
        sim_at(server->paused_until_us, sim_arrive_up, line);
        return;
    }
    piece = sim_pull(&line->up);
    if (piece == NULL) {
        return;
    }
    sim_note(line->number, (int64_t)piece->size);
    sim_hash(piece->bytes, piece->size);
    if (line->peer != NULL && !line->up.dead) {
        sim_server_clock(server);
        if (line->peer->model != server->model) {
            sim_replicate(server);
        }
        line->sent_us = piece->sent_us;
        if (piece->size > 0) {
            model_feed(line->peer, piece->bytes, piece->size);
        } else {
            model_leave(line->peer);
            line->peer = NULL;
        }
    }
    free(piece);
    sim_stir(line); /* there is room for more */
}

static inline void sim_arrive_down(void *object) {
    struct sim_line *line = (struct sim_line *)object;
    struct sim_piece *piece = sim_pull(&line->down);
    if (piece == NULL) {
        return;
    }
    sim_note(-line->number, (int64_t)piece->size);
    if (line->down.dead || line->fd < 0) {
        free(piece);
        return;
    }
    if (piece->size == 0) {
        line->ended = true;
    } else {
        if (line->in + piece->size > line->inbox_room) {
            line->inbox_room = (line->in + piece->size) * 2;
            line->inbox = (char *)realloc(line->inbox, line->inbox_room);
        }
        memcpy(line->inbox + line->in, piece->bytes, piece->size);
        line->in += piece->size;
    }
    free(piece);
    sim_stir(line);
}

static inline void sim_model_send(void *ctx, void *user, const char *bytes, size_t size) {
    struct sim_line *line = (struct sim_line *)user;
    (void)ctx;
    sim_hash(bytes, size);
    sim_send(&line->down, bytes, size);
}

static inline void sim_model_hang_up(void *ctx, void *user) {
    struct sim_line *line = (struct sim_line *)user;
    (void)ctx;
    line->peer = NULL;
    sim_trace("server %d ends line %d", line->server->number, line->number);
    sim_send(&line->down, NULL, 0);
}

/* ---- replicas of the one primary ---- */

static inline void sim_effect_free(struct sim_effect *effect) {
    if (effect->what != NULL) {
        model_effect_free(effect->what);
    }
    model_copy_free(effect->all);
    free(effect);
}

/* Forgets what a replica has not heard of yet, but for the first `kept` writes, and what is of the
 * same command as the last of these. */
static inline void sim_effects_drop(struct sim_server *server, int kept) {
    struct sim_effect **at = &server->first;
    uint64_t command = 0;
    while (*at != NULL && (kept-- > 0 || (command != 0 && (*at)->command == command))) {
        command = (*at)->command;
        at = &(*at)->next;
    }
    while (*at != NULL) {
        struct sim_effect *effect = *at;
        *at = effect->next;
        sim_effect_free(effect);
    }
    server->last = at;
}

/* How many replicas have so many writes of a primary, in which they believe. */
static inline int64_t sim_have(const struct sim_server *primary, int64_t written) {
    int64_t count = 0;
    int i;
    for (i = 0; i < sim.server_count; i++) {
        const struct sim_server *server = &sim.servers[i];
        count +=
            primary == sim.primary && server->follows && !server->down && server->has >= written;
    }
    return count;
}

/* Answers a WAIT that enough replicas, or its time, have ended. */
static inline void sim_wait_ends(void *object) {
    struct sim_line *line = (struct sim_line *)object;
    struct sim_server *server = line->server;
    int64_t count = sim_have(server, line->wait.written), replicas = line->wait.replicas;
    if (line->peer == NULL || replicas == 0 ||
        (count < replicas && sim.now_us < line->wait.until_us)) {
        return;
    }
    if (server->paused_until_us > sim.now_us) {
        sim_at(server->paused_until_us, sim_wait_ends, line);
        return;
    }
    if (memmem(line->peer->in.at, line->peer->in.size, "\r\nWAIT\r\n", 8) != NULL) {
        sim_failed("line %d: a WAIT stands behind another one", line->number);
    }
    line->wait.replicas = 0;
    sim.unsynced += count < replicas;
    sim_trace("line %d: %lld of %lld replicas have it", line->number, (long long)count,
              (long long)replicas);
    sim_server_clock(server);
    model_waited(line->peer, count);
}

/* Of what was written by the same connection, as from Redis 7.2 on. */
static inline int64_t sim_model_wait(void *ctx, void *user, int64_t replicas, int64_t timeout_ms) {
    struct sim_server *server = (struct sim_server *)ctx;
    struct sim_line *line = (struct sim_line *)user;
    int64_t count = sim_have(server, line->wrote);
    sim.waits++;
    if (count >= replicas) {
        return count;
    }
    line->wait.replicas = replicas;
    line->wait.written = line->wrote;
    line->wait.until_us = timeout_ms > 0 ? sim.now_us + timeout_ms * 1000 : INT64_MAX;
    if (timeout_ms > 0) {
        sim_at(line->wait.until_us, sim_wait_ends, line);
    }
    return -1;
}

/* A replica hears of everything that was sent until then. */
static inline void sim_effects_hear(struct sim_server *server, int64_t until_us) {
    struct sim_line *line;
    int64_t had = server->has;
    while (server->first != NULL && server->first->at_us <= until_us) {
        struct sim_effect *effect = server->first;
        server->first = effect->next;
        server->last = server->first != NULL ? server->last : &server->first;
        sim_server_clock(server);
        if (effect->all != NULL) {
            model_sync(server->model, effect->all);
            model_follow(server->model, sim.primary->model);
            server->was = false;
        } else {
            model_effect_apply(server->model, effect->what);
        }
        server->has = effect->written;
        sim_effect_free(effect);
    }
    for (line = server->has > had ? sim.lines : NULL; line != NULL; line = line->next) {
        sim_wait_ends(line);
    }
}

static inline void sim_effects_arrive(void *object) {
    struct sim_server *server = (struct sim_server *)object;
    if (server->paused_until_us > sim.now_us) {
        sim_at(server->paused_until_us, sim_effects_arrive, server);
    } else {
        sim_effects_hear(server, sim.now_us);
    }
}

/* What one command does comes at one time, and all in order. */
static inline void sim_effect_send(struct sim_server *server, struct sim_effect *effect) {
    struct sim_effect *before =
        server->first != NULL ? (struct sim_effect *)(void *)((char *)server->last -
                                                              offsetof(struct sim_effect, next))
                              : NULL;
    if (before == NULL || before->command != effect->command) {
        int64_t at_us = sim.now_us + 1 + sim_roll(&sim.dice, sim.lag_us + 1);
        server->heard_us = at_us > server->heard_us ? at_us : server->heard_us;
        sim_at(server->heard_us, sim_effects_arrive, server);
    }
    effect->at_us = server->heard_us;
    effect->written = sim.written;
    *server->last = effect;
    server->last = &effect->next;
}

/* A replica begins anew with all that the primary has. */
static inline void sim_sync(struct sim_server *server) {
    struct sim_effect *effect;
    sim_effects_drop(server, 0);
    server->has = -1;
    server->torn = false;
    if (!sim.primary->down && !server->down) {
        effect = (struct sim_effect *)calloc(1, sizeof *effect);
        effect->all = model_save(sim.primary->model);
        sim_effect_send(server, effect);
    }
}

static inline void sim_sync_all(void) {
    int i;
    for (i = 0; i < sim.server_count; i++) {
        if (sim.servers[i].follows) {
            sim_sync(&sim.servers[i]);
        }
    }
}

/* A write of the primary is on its way to all that follow. */
static inline void sim_spread(const char *key, size_t len) {
    int i;
    sim.written++;
    for (i = 0; i < sim.server_count; i++) {
        struct sim_server *server = &sim.servers[i];
        if (server->follows && !server->down && !server->torn) {
            struct sim_effect *effect = (struct sim_effect *)calloc(1, sizeof *effect);
            effect->what = model_effect_of(sim.primary->model, server->database, key, len);
            effect->command = sim.primary->model->commands;
            sim_effect_send(server, effect);
        }
    }
}

static inline void sim_model_touched(void *ctx, void *by, const char *key, size_t len) {
    struct sim_server *server = (struct sim_server *)ctx;
    struct sim_line *line = (struct sim_line *)by;
    bool replica = line != NULL && line->peer != NULL && line->peer->model != server->model;
    if (server == sim.primary) {
        sim_spread(key, len);
        if (line != NULL) {
            line->wrote = sim.written;
        }
    }
    if (line != NULL && line->peer != NULL && line->peer->db != server->database) {
        return; /* a client that was lied to about SELECT: a key of the same name is another one */
    }
    if (sim.touched != NULL && !replica) {
        sim.touched(server, line, key, len);
    }
}

/* Both sides find their connection gone; what is on its way is lost. */
static inline void sim_reset(struct sim_line *line) {
    sim_trace("line %d is reset", line->number);
    sim_drop(&line->up);
    sim_drop(&line->down);
    line->up.dead = line->down.dead = line->reset = true;
    if (line->peer != NULL) {
        model_leave(line->peer);
        line->peer = NULL;
    }
    sim_stir(line);
}

static inline void sim_connected(void *object) {
    struct sim_line *line = (struct sim_line *)object;
    if (line->state != SIM_CONNECTING || line->fd < 0 || line->up.dead || line->server->cut) {
        return;
    }
    if (line->refused || line->server->down || sim_fails(SIM_CONNECTED)) {
        line->state = SIM_REFUSED;
        line->error = line->refused || line->server->down ? ECONNREFUSED : errno;
    } else {
        line->state = SIM_UP;
        sim_server_clock(line->server);
        line->peer = model_accept(line->server->model, line);
        line->moved = line->server->moved;
    }
    sim_note(line->number, line->state);
    sim_trace("line %d %s", line->number, line->state == SIM_UP ? "is up" : "is refused");
    sim_stir(line);
}

/* Whether an address is this one of a deployment. */
static inline bool sim_is_at(const struct sockaddr *address, int place) {
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
    return sim.primary != NULL && address->sa_family == AF_INET &&
           ntohl(in->sin_addr.s_addr) == SIM_ADDRESS + (uint32_t)place;
}

static inline struct sim_server *sim_server_at(const struct sockaddr *address) {
    int number = -1, i;
    for (i = 0; i < sim.sentinel_count; i++) {
        if (sim_is_at(address, SIM_SENTINEL + i)) {
            return &sim.sentinels[i];
        }
    }
    if (address->sa_family == AF_INET && sim.primary != NULL) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        number = (int)(ntohl(in->sin_addr.s_addr) - SIM_ADDRESS);
        number = number == SIM_STAYS ? sim.name.answer->number : number;
        number = number > SIM_STAYS ? sim.primary->number : number;
    } else if (address->sa_family == AF_INET) {
        number = ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port) - SIM_PORT;
    } else if (address->sa_family == AF_UNIX) {
        number = atoi(((const struct sockaddr_un *)(const void *)address)->sun_path + 4);
    }
    return number >= 0 && number < sim.server_count ? &sim.servers[number] : NULL;
}

static inline int sim_connect(int fd, const struct sockaddr *address) {
    struct sim_server *server = sim_server_at(address);
    struct sim_line *line = sim_line_of(fd);
    if (line != NULL) { /* hiredis 1.x asks so whether it is over */
        errno = line->state == SIM_CONNECTING ? EALREADY
                : line->state == SIM_UP       ? EISCONN
                                              : line->error;
        return -1;
    }
    sim_does(SIM_CHILD_CONNECTS);
    if (sim_fails(SIM_CONNECT)) {
        return -1;
    }
    if (server == NULL || fd >= SIM_FDS || (server->down && address->sa_family == AF_UNIX)) {
        errno = ECONNREFUSED;
        return -1;
    }
    line = (struct sim_line *)calloc(1, sizeof *line);
    line->number = ++sim.line_count;
    line->fd = fd;
    line->server = server;
    line->floating = sim_is_at(address, SIM_STAYS);
    line->refused = sim_is_at(address, SIM_REFUSES);
    line->up.dead = sim_is_at(address, SIM_SAYS_NOTHING);
    line->seat = sim.entered;
    line->up.line = line->down.line = line;
    line->up.last = &line->up.first;
    line->down.last = &line->down.first;
    if (sim.entered != NULL) {
        memcpy(line->client_id, rlock_client_id(sim.entered->client), sizeof line->client_id);
    }
    line->next = sim.lines;
    sim.lines = line;
    sim.by_fd[fd] = line;
    sim_trace("line %d: process %d connects to server %d", line->number,
              line->seat != NULL ? line->seat->process->number : -1, server->number);
    sim_at(sim.now_us + sim_latency_us(), sim_connected, line);
    errno = EINPROGRESS;
    return -1;
}

static inline ssize_t sim_write(struct sim_line *line, const char *bytes, size_t size) {
    size_t room = line->up.size < sim.weather.window ? sim.weather.window - line->up.size : 0;
    sim_does(SIM_CHILD_SENDS);
    if (sim_fails(SIM_WRITE)) {
        return -1;
    }
    if (line->reset || (line->ended && line->peer == NULL)) {
        errno = line->reset ? ECONNRESET : EPIPE;
        return -1;
    }
    size = size < room ? size : room;
    if (line->state != SIM_UP || size == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (sim_one_in(&sim.dice, sim.weather.short_io)) {
        size = 1 + (size_t)sim_roll(&sim.dice, (int64_t)size);
    }
    if (sim.serve != NULL) {
        sim.serve(line, bytes, size);
    } else {
        sim_send(&line->up, bytes, size);
    }
    return (ssize_t)size;
}

static inline ssize_t sim_read(struct sim_line *line, char *bytes, size_t size) {
    sim_does(SIM_CHILD_READS);
    if (sim_fails(SIM_READ)) {
        return -1;
    }
    size = size < line->in ? size : line->in;
    if (size == 0) {
        errno = line->reset ? ECONNRESET : EAGAIN;
        return !line->reset && line->ended ? 0 : -1;
    }
    if (sim_one_in(&sim.dice, sim.weather.short_io)) {
        size = 1 + (size_t)sim_roll(&sim.dice, (int64_t)size);
    }
    memcpy(bytes, line->inbox, size);
    line->in -= size;
    memmove(line->inbox, line->inbox + size, line->in);
    return (ssize_t)size;
}

/* From here on everything that is on the way up comes so much later. */
static inline void sim_delay(struct sim_line *line, int64_t extra_us) {
    struct sim_piece *piece;
    for (piece = line->up.first; piece != NULL; piece = piece->next) {
        piece->at_us += extra_us;
        sim_at(piece->at_us, sim_arrive_up, line);
    }
    line->up.last_us = (line->up.first != NULL ? line->up.last_us : sim.now_us) + extra_us;
    sim_trace("line %d: what is under way is late by %lld us", line->number, (long long)extra_us);
}

/* The process closed it. What it wrote is under way all the same: it may be executed, and late. */
static inline void sim_close(struct sim_line *line) {
    sim_does(SIM_CHILD_CLOSES);
    sim.by_fd[line->fd] = NULL;
    line->fd = -1;
    sim_trace("line %d is closed with %zu bytes under way", line->number, line->up.size);
    sim_drop(&line->down);
    if (line->state != SIM_UP) {
        return;
    }
    if (line->up.size > 0 && sim_one_in(&sim.dice, sim.weather.torn)) {
        sim_drop(&line->up);
    } else if (line->up.size > 0 && sim_one_in(&sim.dice, sim.weather.late)) {
        sim_delay(line, sim_roll(&sim.dice, sim.weather.late_us + 1));
    }
    sim_send(&line->up, NULL, 0);
}

/* What hiredis calls, under names that no header declares in another way. Descriptors that are not
 * ours go to the system. */

int sim_libc_socket(int domain, int type, int protocol) __asm__("socket");
int sim_libc_connect(int fd, const struct sockaddr *address, socklen_t length) __asm__("connect");
int sim_libc_getsockopt(int fd, int level, int option, void *value,
                        socklen_t *length) __asm__("getsockopt");
int sim_libc_getpeername(int fd, struct sockaddr *address,
                         socklen_t *length) __asm__("getpeername");
int sim_libc_poll(struct pollfd *fds, nfds_t count, int timeout_ms) __asm__("poll");
ssize_t sim_libc_read(int fd, void *bytes, size_t size) __asm__("read");
ssize_t sim_libc_recv(int fd, void *bytes, size_t size, int flags) __asm__("recv");
ssize_t sim_libc_write(int fd, const void *bytes, size_t size) __asm__("write");
ssize_t sim_libc_send(int fd, const void *bytes, size_t size, int flags) __asm__("send");
int sim_libc_close(int fd) __asm__("close");

int sim_libc_socket(int domain, int type, int protocol) {
    if (sim.running && sim_fails(SIM_SOCKET)) {
        return -1;
    }
    return (int)syscall(SYS_socket, domain, type, protocol);
}

int sim_libc_connect(int fd, const struct sockaddr *address, socklen_t length) {
    if (sim.running) {
        return sim_connect(fd, address);
    }
    return (int)syscall(SYS_connect, fd, address, length);
}

int sim_libc_getsockopt(int fd, int level, int option, void *value, socklen_t *length) {
    struct sim_line *line = sim_line_of(fd);
    if (line != NULL && level == SOL_SOCKET && option == SO_ERROR) {
        memcpy(value, &line->error, sizeof line->error);
        return 0;
    }
    return (int)syscall(SYS_getsockopt, fd, level, option, value, length);
}

int sim_libc_getpeername(int fd, struct sockaddr *address, socklen_t *length) {
    struct sim_line *line = sim_line_of(fd);
    struct sockaddr_in peer;
    if (line == NULL) {
        return (int)syscall(SYS_getpeername, fd, address, length);
    }
    memset(&peer, 0, sizeof peer);
    peer.sin_family = AF_INET;
    peer.sin_port = htons((uint16_t)(line->server->number + 1 + (line->moved ? SIM_SERVERS : 0)));
    if (line->floating) {
        peer.sin_port = htons(2 * SIM_SERVERS + 1);
    }
    memcpy(address, &peer, sizeof peer);
    *length = sizeof peer;
    return 0;
}

int sim_libc_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    struct sim_line *line = count == 1 ? sim_line_of(fds->fd) : NULL;
    if (line != NULL) {
        fds->revents = line->state == SIM_CONNECTING ? 0 : (short)(fds->events & POLLOUT);
        return fds->revents != 0;
    }
    return (int)syscall(SYS_poll, fds, count, timeout_ms);
}

ssize_t sim_libc_read(int fd, void *bytes, size_t size) {
    struct sim_line *line = sim_line_of(fd);
    return line != NULL ? sim_read(line, (char *)bytes, size)
                        : (ssize_t)syscall(SYS_read, fd, bytes, size);
}

ssize_t sim_libc_recv(int fd, void *bytes, size_t size, int flags) {
    struct sim_line *line = sim_line_of(fd);
    return line != NULL ? sim_read(line, (char *)bytes, size)
                        : (ssize_t)syscall(SYS_recvfrom, fd, bytes, size, flags, NULL, NULL);
}

ssize_t sim_libc_write(int fd, const void *bytes, size_t size) {
    struct sim_line *line = sim_line_of(fd);
    return line != NULL ? sim_write(line, (const char *)bytes, size)
                        : (ssize_t)syscall(SYS_write, fd, bytes, size);
}

ssize_t sim_libc_send(int fd, const void *bytes, size_t size, int flags) {
    struct sim_line *line = sim_line_of(fd);
    return line != NULL ? sim_write(line, (const char *)bytes, size)
                        : (ssize_t)syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
}

int sim_libc_close(int fd) {
    struct sim_line *line = sim_line_of(fd);
    if (line != NULL) {
        sim_close(line);
    }
    return (int)syscall(SYS_close, fd);
}

/* ------------------------------------------------------------------------------------------------
 * Servers.
 */

/* Active expiry, ten times a second as a server does it. */
static inline void sim_server_tick(void *object) {
    struct sim_server *server = (struct sim_server *)object;
    if (server->paused_until_us <= sim.now_us && !server->down) {
        sim_server_clock(server);
        model_tick(server->model);
    }
    sim_at(sim.now_us + 100000, sim_server_tick, server);
}

static inline void sim_server_up(void *object) {
    struct sim_server *server = (struct sim_server *)object;
    server->down = false;
    sim_trace("server %d is up", server->number);
    if (server == sim.primary) {
        sim_sync_all();
    } else if (server->follows) {
        sim_sync(server);
    }
}

/* Killed, and started again after a while, with or without what it knew. */
static inline void sim_server_restart(struct sim_server *server, bool keep, int64_t down_us) {
    struct sim_line *line;
    server->down = true;
    server->paused_until_us = 0;
    sim_effects_drop(server, 0);
    sim_trace("server %d is killed, %s its data", server->number, keep ? "with" : "without");
    for (line = sim.lines; line != NULL; line = line->next) {
        bool replica = line->peer != NULL && line->peer->model != server->model;
        if (line->server == server && !replica) {
            sim_drop(&line->up); /* nobody reads it any more */
            line->up.dead = line->state == SIM_UP;
        }
    }
    sim_server_clock(server);
    model_restart(server->model, keep);
    sim_at(sim.now_us + down_us, sim_server_up, server);
}

/* The network to a server goes dead: existing connections for ever, new ones until it is back. */
static inline void sim_server_cut(struct sim_server *server, bool cut) {
    struct sim_line *line;
    server->cut = cut;
    sim_trace("the network to server %d is %s", server->number, cut ? "dead" : "back");
    for (line = sim.lines; line != NULL && cut; line = line->next) {
        if (line->server == server) {
            line->up.dead = line->down.dead = true;
            sim_drop(&line->up);
            sim_drop(&line->down);
        }
    }
}

static inline void sim_server_pause(struct sim_server *server, int64_t for_us) {
    sim_trace("server %d stops for %lld us", server->number, (long long)for_us);
    server->paused_until_us = sim.now_us + for_us;
}

/* The replica takes over, with all of the data, and the address leads to it; who was the primary
 * is its replica from now on, and ends no connection. Both as often as wanted. */
static inline void sim_server_switch(struct sim_server *server, uint64_t id) {
    struct model *was = server->model;
    sim_server_clock(server);
    if (server->twin == NULL) {
        server->twin = model_new(&was->hooks, id);
    }
    sim_replicate(server);
    server->model = server->twin;
    server->twin = was;
    server->model->flavour = was->flavour;
    server->model->password = was->password;
    memcpy(server->model->denied, was->denied, sizeof was->denied);
    server->model->scripts_run = was->scripts_run + 1;
    server->model->started_us = was->started_us; /* it began as a replica, long ago */
    server->model->readonly = false;
    was->readonly = true;
    model_follow(server->model, was);
    model_promote(server->model);
    model_follow(was, server->model);
    server->moved = !server->moved;
    sim_trace("server %d: its replica takes over", server->number);
}

/* The wall clock of a server is set back: all that ends by it ends as much later. */
static inline void sim_server_set_back(struct sim_server *server, int64_t by_us) {
    server->clock.base_us -= by_us;
    server->back_us += by_us;
    server->stepped = true;
    sim_server_clock(server);
    sim_trace("the clock of server %d is set back by %lld us", server->number, (long long)by_us);
}

/* Whether the script that runs at a server is one that renews. */
static inline bool sim_renews(const struct sim_server *server) {
    const char *running = server->model->script;
    size_t row;
    if (running == NULL) {
        return false;
    }
    for (row = 0; row < sizeof rlock__scripts / sizeof *rlock__scripts; row++) {
        if (memcmp(rlock__scripts[row][RLOCK_OP_RENEW], running, RLOCK__SHA) == 0) {
            return true;
        }
    }
    return memcmp(rlock__lua_string_renew_many, running, RLOCK__SHA) == 0;
}

/* ---- the machines of one deployment ---- */

/* All servers become one: the first is the primary, the others follow, and one name leads to it. */
static inline void sim_deploy(void) {
    int i;
    sim.primary = sim.name.answer = &sim.servers[0];
    for (i = 1; i < sim.server_count; i++) {
        sim.servers[i].follows = true;
        model_follow(sim.servers[i].model, sim.primary->model);
    }
}

/* Clients may wait until replicas have what they wrote. */
static inline void sim_deploy_waits(void) {
    int i;
    for (i = 0; i < sim.server_count; i++) {
        sim.servers[i].model->wait = sim_model_wait;
    }
}

/* Which machine a Sentinel names, NULL = none, and how new that is. */
static inline void sim_sentinel_names(struct sim_server *sentinel, const struct sim_server *server,
                                      int64_t epoch) {
    static const char *const hosts[2][SIM_SERVERS] = {
        {"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"},
        {"machine-0", "machine-1", "machine-2", "machine-3", "machine-4"}};
    sentinel->model->primary_host =
        server != NULL ? hosts[sim.announces ? 1 : 0][server->number] : NULL;
    sentinel->names = server;
    sentinel->model->primary_port = SIM_PORT;
    sentinel->model->config_epoch = epoch;
    sim_trace("Sentinel %d names server %d, epoch %lld", sentinel->number,
              server != NULL ? server->number : -1, (long long)epoch);
}

static inline void sim_sentinels(int count, uint64_t seed) {
    int i;
    for (i = 0; i < count; i++) {
        struct sim_server *sentinel = &sim.sentinels[i];
        struct model_hooks hooks = {sentinel, sim_model_send, sim_model_hang_up, NULL};
        sentinel->number = SIM_SENTINEL + i;
        sentinel->last = &sentinel->first;
        sentinel->clock = sim.primary->clock;
        sentinel->model = model_new(&hooks, seed + (uint64_t)i);
        sentinel->model->watches = "locks";
        sim_sentinel_names(sentinel, sim.primary, 0);
    }
    sim.sentinel_count = count;
}

/* Whether a server may be unable to end an old connection, or to say which one that is. */
static inline bool sim_unkilling(const struct sim_server *server) {
    const char *denied = server->always_denied;
    return server->unkilling || server->proxied ||
           (denied != NULL && (strcmp(denied, "info") == 0 || strcmp(denied, "client|kill") == 0));
}

/* Whether this machine was the primary, and goes on as if it still were. */
static inline bool sim_is_old(const struct sim_server *server) {
    return sim.primary != NULL && server != sim.primary && !server->follows;
}

/* A replica becomes the primary with what it has. Who was it knows nothing of that. */
static inline void sim_promote(struct sim_server *server) {
    struct sim_server *was = sim.primary;
    sim_effects_drop(server, 0);
    sim_server_clock(server);
    server->follows = server->model->readonly = server->torn = server->was = false;
    server->model->scripts_run = was->model->scripts_run + 1;
    model_promote(server->model);
    sim.primary = server;
    sim_trace("server %d is the primary, server %d was", server->number, was->number);
    sim_sync_all();
}

/* Who was the primary follows, and begins anew; its connections end, or stay. */
static inline void sim_demote(struct sim_server *server, bool ends) {
    struct sim_line *line;
    sim_trace("server %d follows server %d", server->number, sim.primary->number);
    server->follows = server->model->readonly = server->was = true;
    for (line = sim.lines; line != NULL; line = line->next) {
        bool blocked = line->peer != NULL && line->peer->blocked;
        if (line->server == server && line->peer != NULL && (ends || blocked)) {
            model_leave(line->peer);
            sim_model_hang_up(server, line);
        }
    }
    sim_sync(server);
}

/* ---- the nodes of one cluster ---- */

/* Where a node thinks that a slot is: the number of its primary. */
static inline int sim_slot_at(const struct sim_view *view, unsigned slot) {
    int shard = (int)(slot * SIM_SHARDS / RLOCK__SLOTS), i;
    for (i = 0; i < sim.cluster.slot_count; i++) {
        shard = sim.cluster.slots[i] == slot ? view->shard_of[i] : shard;
    }
    return view->primary_of[shard];
}

/* The place of a slot among those that move; -1 = it does not. */
static inline int sim_slot_place(unsigned slot) {
    int i = sim.cluster.slot_count;
    while (--i >= 0 && sim.cluster.slots[i] != slot) {
    }
    return i;
}

/* How a node names another one: by its address, not at all, or by `?`. */
static inline const char *sim_node_host(const struct sim_server *says) {
    static const char *const hosts[] = {"127.0.0.1", "", "", "?"};
    return hosts[sim.cluster.views[says->number].names];
}

/* Whether the slot of a key that a node does not have is moving away from it. */
static inline bool sim_key_leaves(const struct sim_server *server, const char *key, size_t len) {
    const struct sim_view *view = &sim.cluster.views[server->number];
    unsigned slot = rlock__key_slot(key, len);
    int place = sim_slot_place(slot);
    struct model_value value;
    return place >= 0 && sim_slot_at(view, slot) == server->number && view->to[place] > 0 &&
           !model_get(server->model, 0, key, len, &value);
}

/* Of an ASK to a node, for a slot. */
static inline uint64_t sim_ask_bit(int server, int place) {
    return (uint64_t)1 << (server * SIM_SLOTS_MOVED + place);
}

/* A slot begins to go to a node, key by key: who was sent there before comes for what is over. */
static inline void sim_asks_pass(int server, int place) {
    struct sim_line *line;
    for (line = sim.lines; line != NULL; line = line->next) {
        line->past |= line->asked & sim_ask_bit(server, place);
        line->asked &= ~sim_ask_bit(server, place);
    }
}

/* Whether a client comes to a node by an ASK of an earlier passage of the slot: the node that the
 * slot leaves now has such a key, so it did not say ASK. A real node serves that client beside the
 * key, since it cannot tell, nor can the client: no lock is safe where a slot leaves a node and
 * comes back while an ASK is under way, and this world does without that. */
static inline bool sim_ask_is_past(const struct sim_server *server, const struct sim_line *by,
                                   int place, int count, const struct model_arg *keys) {
    struct sim_server *from = &sim.servers[sim.cluster.views[server->number].from[place] - 1];
    const struct sim_line *line;
    struct model_value value;
    bool there = false, past = false;
    int i;
    sim_server_clock(from);
    for (i = 0; i < count; i++) {
        there = there || model_get(from->model, 0, keys[i].at, keys[i].size, &value);
    }
    for (line = sim.lines; line != NULL && there; line = line->next) {
        past = past || (strcmp(line->client_id, by->client_id) == 0 &&
                        (line->past & sim_ask_bit(server->number, place)) != 0);
    }
    return past;
}

/* Returns why a node does not run a command with these keys, as a real one does; NULL: it does. */
static inline const char *sim_model_route(void *ctx, void *user, bool asking, int count,
                                          const struct model_arg *keys) {
    static char text[80];
    const struct sim_server *server = (const struct sim_server *)ctx;
    struct sim_line *by = (struct sim_line *)user;
    const struct sim_view *view = &sim.cluster.views[server->number];
    unsigned slot = rlock__key_slot(keys[0].at, keys[0].size);
    int place = sim_slot_place(slot), at = sim_slot_at(view, slot), missing = 0, i;
    int to = place >= 0 && at == server->number ? view->to[place] - 1 : -1;
    struct model_value value;
    for (i = 0; i < count; i++) {
        if (rlock__key_slot(keys[i].at, keys[i].size) != slot) {
            return "CROSSSLOT Keys in request don't hash to the same slot";
        }
        missing += !model_get(server->model, 0, keys[i].at, keys[i].size, &value);
    }
    if (to >= 0 && missing > 0) {
        sim.cluster.asks += missing == count;
        sim.cluster.again += missing < count;
        by->asked |= missing == count ? sim_ask_bit(to, place) : 0;
        snprintf(text, sizeof text, "ASK %u %s:%d", slot, sim_node_host(server), SIM_PORT + to);
        return missing < count ? "TRYAGAIN Multiple keys request during rehashing of slot" : text;
    }
    if (place >= 0 && view->from[place] && asking &&
        !sim_ask_is_past(server, by, place, count, keys)) {
        sim.cluster.again += count > 1 && missing > 0;
        return count > 1 && missing > 0 ? "TRYAGAIN Multiple keys request during rehashing of slot"
                                        : NULL;
    }
    if (at != server->number) {
        sim.cluster.moved++;
        snprintf(text, sizeof text, "MOVED %u %s:%d", slot, sim_node_host(server), SIM_PORT + at);
        return text;
    }
    return NULL;
}

static inline void sim_put_slots(const struct sim_server *server, struct model_bytes *out,
                                 unsigned from, unsigned to, int at) {
    static const char *const odd[] = {"127.0.0.1", NULL, "", "?"};
    const char *host = odd[sim.cluster.views[server->number].names];
    model__put_count(out, '*', 3);
    model__put_count(out, ':', from);
    model__put_count(out, ':', to);
    model__put_count(out, '*', 4);
    if (host != NULL) {
        model__put_word(out, host);
    } else {
        model__put_null(out);
    }
    model__put_count(out, ':', SIM_PORT + at);
    model__put_word(out, sim.servers[at].model->run_id);
    model__put_count(out, '*', host != NULL && host[0] == '?' ? 2 : 0);
    if (host != NULL && host[0] == '?') {
        model__put_word(out, "ip");
        model__put_word(out, "127.0.0.1");
    }
}

/* CLUSTER SLOTS, as a node sees it: the ranges, and what moves in rows of their own. */
static inline void sim_model_slots(void *ctx, struct model_bytes *out) {
    const struct sim_server *server = (const struct sim_server *)ctx;
    const struct sim_view *view = &sim.cluster.views[server->number];
    unsigned from[2 * SIM_SLOTS_MOVED + SIM_SHARDS], count = 0, slot, k;
    for (slot = 0; slot < RLOCK__SLOTS; slot++) {
        bool edge = slot == 0 || sim_slot_place(slot) >= 0 || sim_slot_place(slot - 1) >= 0 ||
                    slot * SIM_SHARDS / RLOCK__SLOTS != (slot - 1) * SIM_SHARDS / RLOCK__SLOTS;
        if (edge) {
            from[count++] = slot;
        }
    }
    model__put_count(out, '*', count);
    for (k = 0; k < count; k++) {
        sim_put_slots(server, out, from[k], k + 1 < count ? from[k + 1] - 1 : RLOCK__SLOTS - 1,
                      sim_slot_at(view, from[k]));
    }
}

/* What one node publishes all of them deliver. */
static inline void sim_model_spread(void *ctx, struct model_arg channel, struct model_arg text) {
    char words[3][128];
    const char *const argv[] = {words[0], words[1], words[2]};
    int i;
    snprintf(words[0], 128, "PUBLISH");
    snprintf(words[1], 128, "%.*s", (int)channel.size, channel.at);
    snprintf(words[2], 128, "%.*s", (int)text.size, text.at);
    for (i = 0; i < sim.server_count; i++) {
        if (&sim.servers[i] != ctx && !sim.servers[i].down) {
            sim_server_clock(&sim.servers[i]);
            model_call(sim.servers[i].model, 0, 3, argv);
        }
    }
}

/* All servers become one cluster: the first are primaries, the others stand by. */
static inline void sim_cluster_begin(void) {
    int i, k;
    sim.cluster.on = true;
    sim.watched = SIM_WATCHED;
    for (i = 0; i < sim.server_count; i++) {
        struct model *m = sim.servers[i].model;
        m->route = sim_model_route;
        m->slots = sim_model_slots;
        m->spread = sim_model_spread;
        for (k = 0; k < SIM_SHARDS; k++) {
            sim.cluster.views[i].primary_of[k] = k;
        }
        for (k = 0; k < sim.cluster.slot_count; k++) {
            sim.cluster.views[i].shard_of[k] =
                (int)(sim.cluster.slots[k] * SIM_SHARDS / RLOCK__SLOTS);
        }
    }
}

/* A key goes over to another node, with its time to live. What is there already stays. */
static inline void sim_key_moves(struct sim_server *from, struct sim_server *to, const char *key,
                                 size_t len) {
    struct model_effect *there = (struct model_effect *)calloc(1, sizeof *there);
    struct model_effect *here = model_effect_of(from->model, 0, key, len);
    struct model_value value;
    sim_server_clock(from);
    sim_server_clock(to);
    if (model_get(from->model, 0, key, len, &value) && !model_get(to->model, 0, key, len, &value)) {
        model_effect_apply(to->model, here);
    }
    model__assign(&there->name, key, len);
    model_effect_apply(from->model, there);
    model_effect_free(there);
    model_effect_free(here);
}

/* A stranger's command; its reply. */
static inline const char *sim_stranger(struct sim_server *server, int count,
                                       const char *const words[]) {
    sim_server_clock(server);
    return model_call(server->model, server->database, count, words);
}

/* ------------------------------------------------------------------------------------------------
 * A world.
 */

static inline void sim_begin(uint64_t seed, int servers, int processes) {
    bool tracing = sim.tracing;
    struct sim_event *events = sim.events;
    size_t room = sim.event_room;
    int i;
    memset(&sim, 0, sizeof sim);
    sim.tracing = tracing;
    sim.events = events;
    sim.event_room = room;
    sim.running = true;
    sim.hash = sim_mix(seed);
    sim.dice.state = sim_mix(seed ^ 0x5157);
    sim.now_us = 1000000;
    sim.weather.latency_us = 200;
    sim.weather.slow_us = 400;
    sim.weather.window = 1 << 20;
    sim.server_count = servers;
    sim.process_count = processes;
    sim.watched = SIM_WATCHED_ALONE;
    for (i = 0; i < servers; i++) {
        struct model_hooks hooks = {&sim.servers[i], sim_model_send, sim_model_hang_up,
                                    sim_model_touched};
        sim.servers[i].number = i;
        sim.servers[i].last = &sim.servers[i].first;
        sim.servers[i].model = model_new(&hooks, seed * SIM_SERVERS + (uint64_t)i);
        sim.servers[i].clock.base_us = 1700000000000000 + i * 1000000;
        sim_server_clock(&sim.servers[i]);
        sim_at(sim.now_us + 100000, sim_server_tick, &sim.servers[i]);
    }
    for (i = 0; i < processes; i++) {
        sim.processes[i].number = i;
        sim.processes[i].turn_us = -1;
        sim.processes[i].clock.base_us = (i + 1) * INT64_C(1000000000);
    }
}

/* Every client is freed by now. */
static inline void sim_end(void) {
    int i;
    for (i = 0; i < sim.server_count; i++) {
        sim_effects_drop(&sim.servers[i], 0);
        model_free(sim.servers[i].model);
        if (sim.servers[i].twin != NULL) {
            model_free(sim.servers[i].twin);
        }
    }
    for (i = 0; i < sim.sentinel_count; i++) {
        model_free(sim.sentinels[i].model);
    }
    while (sim.lines != NULL) {
        struct sim_line *line = sim.lines;
        sim.lines = line->next;
        if (line->fd >= 0) {
            sim_failed("line %d is still open at the end", line->number);
        }
        sim_drop(&line->up);
        sim_drop(&line->down);
        free(line->inbox);
        free(line);
    }
    if (sim.live != 0) {
        sim_failed("%zu blocks are not freed", sim.live);
    }
    sim.running = false;
    sim.event_count = 0;
}

#endif /* SIM_WORLD_H */
