/* ------------------------------------------------------------------------------------------------
 * >>deadline - the deadline of a hold, for other threads to read
 */

#ifndef RLOCK_LOCK_DEADLINE_H
#define RLOCK_LOCK_DEADLINE_H

#include "public/head.h"
#include "public/lock.h"
#include "base/platform.h"

/* Time in one word, which comes round: of two such times the later is known for 25 days. */
static uint32_t rlock__clock_mark(int64_t us) {
    return (uint32_t)((uint64_t)us >> 10);
}

/* Two words with a count that is odd while they change: no machine needs a lock for that, also one
 * that has no atomic access to 64 bits. One thread writes. */
static void rlock__deadline_set(rlock_deadline *deadline, int64_t until_us, int64_t now_us) {
    uint32_t count = deadline->count + 1;
    __atomic_store_n(&deadline->latest, rlock__clock_mark(now_us), __ATOMIC_RELAXED);
    __atomic_store_n(&deadline->count, count, __ATOMIC_RELAXED);
    __atomic_store_n(&deadline->high, (uint32_t)((uint64_t)until_us >> 32), __ATOMIC_RELEASE);
    __atomic_store_n(&deadline->low, (uint32_t)((uint64_t)until_us & UINT32_MAX), __ATOMIC_RELEASE);
    __atomic_store_n(&deadline->count, count + 1, __ATOMIC_RELEASE);
}

/* Returns the deadline, 0 = not held. *of: the count of this one, which no later one has. */
static int64_t rlock__deadline_get(const rlock_deadline *deadline, uint32_t *of) {
    int tries;
    for (tries = 0; deadline && tries < 1000; tries++) { /* the writer may be stopped for long */
        uint32_t count = __atomic_load_n(&deadline->count, __ATOMIC_ACQUIRE);
        uint32_t high = __atomic_load_n(&deadline->high, __ATOMIC_ACQUIRE);
        uint32_t low = __atomic_load_n(&deadline->low, __ATOMIC_ACQUIRE);
        uint32_t changed = count ^ __atomic_load_n(&deadline->count, __ATOMIC_RELAXED);
        if (!(changed | count % 2)) {
            *of = count;
            return (int64_t)((uint64_t)high << 32 | low);
        }
    }
    return 0;
}

int64_t rlock_deadline_us(const rlock_deadline *deadline) {
    uint32_t of;
    return rlock__deadline_get(deadline, &of);
}

/* A clock that has gone back since anybody looked says nothing of a deadline, also when it has come
 * up with that time again: nobody knows how long ago that was. Who looks notes it, as the thread of
 * the loop may be stopped: it reads what was noted before its own clock. */
bool rlock_still_held(const rlock_deadline *deadline) {
    uint32_t of, seen, now;
    int64_t until_us = rlock__deadline_get(deadline, &of), now_us;
    rlock_deadline *noted = (rlock_deadline *)(uintptr_t)deadline;
    if (!until_us || __atomic_load_n(&noted->refuted, __ATOMIC_ACQUIRE) == of) {
        return false;
    }
    seen = __atomic_load_n(&noted->latest, __ATOMIC_ACQUIRE);
    now_us = RLOCK_NOW_US();
    now = rlock__clock_mark(now_us);
    if (now - seen > UINT32_MAX / 2) {
        __atomic_store_n(&noted->refuted, of, __ATOMIC_RELEASE);
        return false;
    }
    if (now != seen) {
        __atomic_store_n(&noted->latest, now, __ATOMIC_RELEASE);
    }
    return now_us < until_us;
}

#endif /* RLOCK_LOCK_DEADLINE_H */
