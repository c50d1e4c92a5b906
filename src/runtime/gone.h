/* ------------------------------------------------------------------------------------------------
 * >>gone - when a token that is let go is surely gone: one rule, for claims and for votes
 */

#ifndef RLOCK_RUNTIME_GONE_H
#define RLOCK_RUNTIME_GONE_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"

/* True if an acquire that failed may have been executed all the same, or may be yet. */
static bool rlock__may_exist(const rlock_answer *answer) {
    RLOCK_ASSERT(answer->outcome == RLOCK_OUTCOME_FAULT);
    return answer->fault == RLOCK_FAULT_UNKNOWN ||
           (answer->fault == RLOCK_FAULT_OTHER && !answer->undone);
}

/* Returns how long to wait before a token is released once more: the longer, the longer its lease
 * may keep the key. */
static int64_t rlock__clean_up_pause_us(int64_t lease_ms) {
    RLOCK_ASSERT(lease_ms >= 0);
    return rlock__min(lease_ms < 200 ? 10000 : lease_ms * 50, 500000);
}

/* A release was answered. True: the token is gone for good. Either the server says so, or the time
 * is over in which an acquire of this token could arrive and last. It counts from an answer of the
 * server, to *over_us (0 = it does not count), and from anew after a connection that failed: a
 * server that stood still may execute then what lies in its sockets. */
RLOCK__NOINLINE static bool rlock__surely_gone(const rlock_answer *answer, int64_t *over_us,
                                               int64_t now_us, int64_t longest_ms,
                                               int64_t timeout_ms) {
    bool fault = answer->outcome == RLOCK_OUTCOME_FAULT && answer->fault != RLOCK_FAULT_TYPE;
    bool heard =
        !fault || (answer->fault != RLOCK_FAULT_UNKNOWN && answer->fault != RLOCK_FAULT_DOWN);
    RLOCK_ASSERT(longest_ms >= 0 && timeout_ms > 0);
    RLOCK_ASSERT(*over_us >= 0);
    if ((!fault && answer->settled) || (heard && *over_us && *over_us <= now_us)) {
        return true;
    }
    if (!heard) {
        *over_us = 0;
    } else if (!*over_us) {
        *over_us = now_us + (longest_ms + timeout_ms) * 1000;
    }
    return false;
}

#endif /* RLOCK_RUNTIME_GONE_H */
