/* The checker of tests/chaos.c: reads what the clients write down, record by record, and knows
 * what may not be. Its memory does not grow. */
#ifndef RLOCK_TESTS_CHAOS_CHECK_H
#define RLOCK_TESTS_CHAOS_CHECK_H

#include "chaos_world.h"

#define PAST 4096        /* ended holds of a key that a new one is compared with */
#define TAIL 50          /* records of a key that are printed with a violation */
#define BREAKS 64        /* remembered times at which an assumption was broken */
#define BREAK_US 6000000 /* an answer that was under way then may come this much later */
#define UNTOLD_US 500000
#define UNTOLD_TURNS 75
#define LATE_US 300000 /* greatest lateness of a loss, in turns that its holder had */
#define PRINTED 5      /* violations printed at length */

/* What is proved, one line of the result each. */
enum proof {
    PROOF_EXCLUSION,
    PROOF_TAKEN,
    PROOF_RESOURCE,
    PROOF_FENCES,
    PROOF_SERVED,
    PROOF_KEYS,
    PROOF_TOLD,
    PROOF_DELETED,
    PROOF_ONCE,
    PROOF_ALIVE,
    PROOF_FAULTS,
    PROOF_WORK,
    PROOFS
};

static const char *const proof_names[PROOFS] = {
    "no two hold together while the assumptions are kept",
    "no hold is taken away before its deadline while the assumptions are kept",
    "a fenced resource lets no stale writer undo what a newer one did",
    "fences rise in the order of the holds",
    "every waiter is served or told once the faults are over",
    "no key is left behind",
    "every holder is told of its loss in time",
    "a stranger's DEL or SET is told in time, as what it was",
    "each operation ends in one callback",
    "no client crashes, and each shuts down in good order",
    "every fault of the table was injected",
    "locks were held, handed over and lost meanwhile",
};

struct hold { /* what its holder believes, in its own words */
    int64_t start_us, end_us, deadline_us;
    uint64_t fence, turns; /* turns: of its process when the deadline was seen to be over */
    uint32_t hold;
    uint8_t slot, key, handle, open;
};

struct written {
    struct record record;
    int slot;
};

static struct hold open_holds[SLOTS][HANDLES];
static struct hold past[KEYS_MAX][PAST];
static struct written tails[KEYS_MAX][TAIL];
static uint64_t past_count[KEYS_MAX], tail_count[KEYS_MAX];
static int64_t breaks_us[BREAKS];
static uint64_t break_count;

static uint64_t violations[PROOFS], violation_count;
static uint64_t holds_count, handovers, endings[ENDINGS], refused_writes[2], overlaps[2];
static int64_t latest_us;
static int64_t started_us;

/* ---- telling ---- */

static inline const char *record_says(const struct record *r) {
    static const char *const kinds[] = {"acquired", "extended", "ended", "stale write refused",
                                        "WRONG"};
    static char text[64];

    snprintf(text, sizeof text, "%s (%d)", kinds[r->kind], r->why);
    return text;
}

static inline void tail_prints(int key) {
    uint64_t i = tail_count[key] > TAIL ? tail_count[key] - TAIL : 0;

    for (; i < tail_count[key]; i++) {
        const struct written *w = &tails[key][i % TAIL];

        printf("#   %12.6f client %d handle %2d hold %u fence %llu until %.6f: %s\n",
               (double)(w->record.at_us - started_us) / 1e6, w->slot, w->record.handle,
               w->record.hold, (unsigned long long)w->record.fence,
               (double)(w->record.deadline_us - started_us) / 1e6, record_says(&w->record));
    }
}

/* Key < 0: of no key. */
static inline void violated(enum proof proof, int key, const char *format, ...) {
    static bool printed[KEYS_MAX];
    va_list ap;

    violations[proof]++;
    if (violation_count++ >= PRINTED) {
        return;
    }
    printf("# VIOLATION (seed %llu, at %.3f s): %s\n#   ", (unsigned long long)world->seed,
           (double)(kit_now_us() - started_us) / 1e6, proof_names[proof]);
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    printf("\n");
    if (key >= 0 && !printed[key]) {
        printf(
            "# the last records of %s (why: 1 to 4 = reason of a loss, 10 released, 11 freed):\n",
            chaos_keys[key].name);
        printed[key] = true;
        tail_prints(key);
    }
    fflush(stdout);
}

/* ---- holds against each other ---- */

static inline void assumption_breaks(void) {
    breaks_us[break_count++ % BREAKS] = kit_now_us();
}

/* Whether something was broken between the two, or little before. */
static inline bool broken_between(int64_t from_us, int64_t to_us) {
    int i;

    for (i = 0; i < BREAKS; i++) {
        if (breaks_us[i] > from_us - BREAK_US && breaks_us[i] <= to_us) {
            return true;
        }
    }
    return false;
}

static inline void overlap_found(const struct hold *a, const struct hold *b) {
    const struct hold *first = a->start_us <= b->start_us ? a : b;
    int64_t end_us = a->end_us < b->end_us ? a->end_us : b->end_us;
    bool expected = chaos_keys[a->key].site == BROKEN && broken_between(first->start_us, end_us);

    overlaps[expected]++;
    if (!expected) {
        violated(PROOF_EXCLUSION, a->key,
                 "client %d hold %u fence %llu from %.6f to %.6f and client %d hold %u fence %llu "
                 "from %.6f to %.6f",
                 a->slot, a->hold, (unsigned long long)a->fence,
                 (double)(a->start_us - started_us) / 1e6, (double)(a->end_us - started_us) / 1e6,
                 b->slot, b->hold, (unsigned long long)b->fence,
                 (double)(b->start_us - started_us) / 1e6, (double)(b->end_us - started_us) / 1e6);
    }
}

static inline void compare_holds(const struct hold *a, const struct hold *b) {
    bool a_first = a->start_us <= b->start_us;

    if (a->start_us < b->end_us && b->start_us < a->end_us) {
        overlap_found(a, b);
    } else if (chaos_keys[a->key].site == KEPT && a->start_us != b->start_us &&
               (a_first ? a->fence >= b->fence : b->fence >= a->fence)) {
        violated(PROOF_FENCES, a->key, "fence %llu before %llu",
                 (unsigned long long)(a_first ? a : b)->fence,
                 (unsigned long long)(a_first ? b : a)->fence);
    }
}

static inline void hold_ends(struct hold *h, int64_t end_us, int why) {
    uint64_t i, count = past_count[h->key];

    h->open = 0;
    h->end_us = end_us < h->deadline_us ? end_us : h->deadline_us;
    if (h->end_us < h->start_us) {
        h->end_us = h->start_us;
    }
    endings[why]++;
    for (i = 0; i < count && i < PAST; i++) {
        compare_holds(&past[h->key][i], h);
    }
    if (count > 0 && past[h->key][(count - 1) % PAST].slot != h->slot) {
        handovers++;
    }
    past[h->key][count % PAST] = *h;
    past_count[h->key]++;
}

/* ---- records ---- */

static inline void on_acquired_record(int slot, const struct record *r) {
    struct hold *h = &open_holds[slot][r->handle];

    if (h->open || r->fence == 0) {
        violated(PROOF_ONCE, r->key, "client %d hold %u: %s", slot, r->hold,
                 h->open ? "granted twice" : "no fence");
    }
    memset(h, 0, sizeof *h);
    h->start_us = r->at_us;
    h->deadline_us = r->deadline_us;
    h->fence = r->fence;
    h->hold = r->hold;
    h->slot = (uint8_t)slot;
    h->key = r->key;
    h->handle = r->handle;
    h->open = 1;
    holds_count++;
}

static inline void on_ended_record(int slot, const struct record *r) {
    struct hold *h = &open_holds[slot][r->handle];
    bool broken = chaos_keys[r->key].site == BROKEN && broken_between(h->start_us, r->at_us);

    if (!h->open || h->hold != r->hold) {
        violated(PROOF_ONCE, r->key, "client %d hold %u ended twice", slot, r->hold);
        return;
    }
    latest_us = r->late_us > latest_us ? r->late_us : latest_us;
    if (r->late_us > LATE_US) {
        violated(PROOF_TOLD, r->key, "client %d hold %u: over for %.3f s, and not told", slot,
                 r->hold, (double)r->late_us / 1e6);
    }
    if ((r->why == RLOCK_REASON_STOLEN || r->why == RLOCK_REASON_DELETED) && !broken) {
        violated(PROOF_TAKEN, r->key, "client %d hold %u was told %s", slot, r->hold,
                 r->why == RLOCK_REASON_STOLEN ? "STOLEN" : "DELETED");
    }
    hold_ends(h, r->at_us, r->why);
}

static inline void on_refused_record(int slot, const struct record *r) {
    const struct hold *h = &open_holds[slot][r->handle];

    refused_writes[chaos_keys[r->key].site]++;
    if (r->why != 0 &&
        !(chaos_keys[r->key].site == BROKEN && broken_between(h->start_us, r->at_us))) {
        violated(PROOF_EXCLUSION, r->key,
                 "client %d hold %u was still valid when the resource had seen a newer one", slot,
                 r->hold);
    }
}

static inline void on_record(int slot, const struct record *r) {
    struct hold *h = &open_holds[slot][r->handle];
    struct written *w = &tails[r->key][tail_count[r->key]++ % TAIL];

    w->record = *r;
    w->slot = slot;
    switch ((enum record_kind)r->kind) {
    case RECORD_ACQUIRED: on_acquired_record(slot, r); break;
    case RECORD_EXTENDED:
        h->deadline_us = r->deadline_us;
        h->turns = 0;
        break;
    case RECORD_ENDED: on_ended_record(slot, r); break;
    case RECORD_REFUSED: on_refused_record(slot, r); break;
    case RECORD_WRONG:
        violated(r->why < WRONG_UPDATE ? PROOF_ONCE : PROOF_RESOURCE, r->key,
                 "client %d handle %d hold %u: %s", slot, r->handle, r->hold, wrong_names[r->why]);
        break;
    }
}

/* ---- reading ---- */

static inline void slot_is_read(int slot) {
    struct slot *s = &world->slot[slot];
    uint64_t head = __atomic_load_n(&s->head, __ATOMIC_ACQUIRE);

    while (s->tail < head) {
        on_record(slot, &s->ring[s->tail % RING]);
        __atomic_store_n(&s->tail, s->tail + 1, __ATOMIC_RELEASE);
    }
}

/* A hold that is over, while its process has had turn after turn. */
static inline void hold_is_watched(struct hold *h, int64_t now_us) {
    uint64_t turns = __atomic_load_n(&world->slot[h->slot].turns, __ATOMIC_ACQUIRE);

    if (!h->open || now_us < h->deadline_us + UNTOLD_US) {
        return;
    }
    if (h->turns == 0) {
        h->turns = turns;
    } else if (turns > h->turns + UNTOLD_TURNS) {
        violated(PROOF_TOLD, h->key, "client %d hold %u: not told in %llu turns after its deadline",
                 h->slot, h->hold, (unsigned long long)(turns - h->turns));
        h->deadline_us = now_us; /* once is enough */
        h->turns = 0;
    }
}

static inline void check_reads(void) {
    int64_t now_us = kit_now_us();
    int i, k;

    for (i = 0; i < SLOTS; i++) {
        slot_is_read(i);
        for (k = 0; k < HANDLES; k++) {
            hold_is_watched(&open_holds[i][k], now_us);
        }
    }
}

/* The process is gone: what it held ended then, or at its deadline before. */
static inline void slot_died(int slot, int64_t at_us) {
    int k;

    slot_is_read(slot);
    for (k = 0; k < HANDLES; k++) {
        if (open_holds[slot][k].open) {
            hold_ends(&open_holds[slot][k], at_us, ENDING_KILLED);
        }
    }
}

#endif
