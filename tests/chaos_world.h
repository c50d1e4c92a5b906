/* What the processes of tests/chaos.c share: one piece of memory, in which each client writes down
 * its holds, guards the resources and learns what the director wants.
 *
 * Included after rlock.h. */
#ifndef RLOCK_TESTS_CHAOS_WORLD_H
#define RLOCK_TESTS_CHAOS_WORLD_H

#include "kit.h"

#include <sys/mman.h>

#define SLOTS 6   /* client processes */
#define PER_KEY 2 /* handles of one process for one key */
#define RING 8192 /* records that a client may be ahead of the checker */
#define LINES 4   /* of the proxy: two to each site, TCP and unix */
#define LEASE_MAX_MS 3000
#define PROBE_LEASE_MS 6000

/* KEPT never loses data and its clock is never set forward: there no two may hold together.
 * BROKEN may be hit by anything. */
enum site_name { KEPT, BROKEN, SITES };

static const struct chaos_key {
    const char *name;
    int site;
    rlock_wire wire;
    rlock_kind kind;
    uint32_t permits, weight; /* no two fit in at a time: the checker knows no other holds */
} chaos_keys[] = {
    {"kept:0", KEPT, RLOCK_WIRE_STRING, RLOCK_KIND_MUTEX, 0, 0},
    {"kept:1", KEPT, RLOCK_WIRE_STRING, RLOCK_KIND_MUTEX, 0, 0},
    {"kept:r", KEPT, RLOCK_WIRE_REDISSON, RLOCK_KIND_MUTEX, 0, 0},
    {"kept:f", KEPT, RLOCK_WIRE_STRING, RLOCK_KIND_FAIR, 0, 0},
    {"kept:s", KEPT, RLOCK_WIRE_STRING, RLOCK_KIND_SEMAPHORE, 3, 2},
    {"broken:0", BROKEN, RLOCK_WIRE_STRING, RLOCK_KIND_MUTEX, 0, 0},
    {"broken:1", BROKEN, RLOCK_WIRE_STRING, RLOCK_KIND_MUTEX, 0, 0},
    {"broken:r", BROKEN, RLOCK_WIRE_REDISSON, RLOCK_KIND_MUTEX, 0, 0},
    {"broken:f", BROKEN, RLOCK_WIRE_STRING, RLOCK_KIND_FAIR, 0, 0},
};

#define KEYS ((int)(sizeof chaos_keys / sizeof chaos_keys[0]))
#define KEYS_MAX 9
#define HANDLES (KEYS_MAX * PER_KEY)

/* ------------------------------------------------------------------------------------------------
 * What a client writes down
 */

enum record_kind {
    RECORD_ACQUIRED, /* until deadline_us, as rlock_remaining_ms said */
    RECORD_EXTENDED,
    RECORD_ENDED,   /* why: an rlock_reason, or one of enum ending */
    RECORD_REFUSED, /* a write that came too late; why: 1 = its holder was still valid after it */
    RECORD_WRONG    /* why: one of enum wrong */
};

enum ending { ENDING_RELEASED = 10, ENDING_FREED, ENDING_KILLED, ENDINGS };

enum wrong {
    WRONG_CALLBACK,  /* one that no operation was waiting for */
    WRONG_CALL,      /* a call that the state allows was refused */
    WRONG_UPDATE,    /* the resource took a write that did not know the one before */
    WRONG_SAME_FENCE /* two holds with one number */
};

static const char *const wrong_names[] = {
    "a callback that no operation was waiting for",
    "a call was refused that its state allows",
    "the resource took a write that did not know the one before",
    "two holds with the same fence",
};

struct record {
    int64_t at_us, deadline_us;
    uint64_t fence;
    uint32_t hold;   /* counted over all processes of the slot */
    int32_t late_us; /* of a loss: how long its holder ran behind the deadline */
    int32_t status;
    uint8_t kind, key, handle, why;
};

struct slot {
    /* The client writes. A record counts once `head` has passed it, so a kill tears none. */
    uint64_t head, turns;
    uint32_t holds, calm_seen, busy; /* busy: handles that are not idle */
    uint64_t operations[3];          /* ended: acquires, renewals, releases */
    uint64_t naps;
    char words[160]; /* the last line of its log */
    struct record ring[RING];
    /* The director writes. */
    uint64_t tail;
    uint32_t quit;
    uint32_t life; /* how many processes were here before */
};

/* Guarded by a file lock on its byte: the kernel gives that back for a process that is killed. */
struct resource {
    uint64_t highest, version, accepted, refused;
    uint32_t slot, hold; /* who wrote `highest` */
};

enum line_mode { LINE_PASS, LINE_SPLIT, LINE_DELAY, LINE_BLACK, LINE_LOSE };

struct line {
    uint32_t mode, delay_ms, cut; /* cut: its connections end whenever this changes */
    int32_t site, port;           /* port 0: at `path` */
    char path[96];
};

struct world {
    uint64_t seed;
    uint32_t calm;  /* odd: nothing new is begun; counts */
    uint32_t probe; /* counts; that slot takes the broken keys and keeps them */
    uint32_t probe_slot;
    uint32_t stop;
    int32_t port[SITES];
    uint32_t primary;          /* which server of BROKEN the proxy speaks to */
    char socket[SITES][2][96]; /* of the servers */
    struct line line[LINES];
    struct resource resource[KEYS_MAX];
    struct slot slot[SLOTS];
};

static struct world *world;
static int world_fd;

/* An anonymous file, so that a program started anew can map it again. */
static inline int world_open(int fd) {
    world_fd = fd >= 0 ? fd : memfd_create("chaos", 0);
    if (world_fd < 0 || (fd < 0 && ftruncate(world_fd, (off_t)sizeof *world) != 0)) {
        return -1;
    }
    world =
        (struct world *)mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
    return world == MAP_FAILED ? -1 : 0;
}

static inline uint32_t load32(const uint32_t *from) {
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

static inline void store32(uint32_t *to, uint32_t value) {
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------------------------------------
 * Dice
 */

static uint64_t dice_state;

static inline void dice_seed(uint64_t seed) {
    dice_state = seed * 2862933555777941757u + 3037000493u;
}

/* 0 to n - 1; splitmix64. */
static inline int64_t dice(int64_t n) {
    uint64_t z = dice_state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

static inline int64_t dice_between(int64_t low, int64_t high) {
    return low + dice(high - low + 1);
}

#endif
