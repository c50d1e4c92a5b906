/* ------------------------------------------------------------------------------------------------
 * >>report - what the hook config.on_event is told
 */

#ifndef RLOCK_LOCK_REPORT_H
#define RLOCK_LOCK_REPORT_H

#include "public/head.h"
#include "public/status.h"
#include "public/store.h"
#include "public/lock.h"
#include "public/report.h"
#include "base/platform.h"
#include "base/foreign.h"
#include "runtime/client.h"
#include "lock/claim.h"

/* What a handle has behind its rlock__more, if its client has the hook. */
typedef struct rlock__times {
    int64_t since_us;    /* when its acquire was asked for, or its hold was granted */
    int64_t due_us;      /* when the next renewal is due, or was */
    int64_t handed_us;   /* when the hold that it is told of next was handed to it */
    int64_t released_us; /* when its last hold was released */
    int64_t begun_us;    /* when its first acquire was asked for */
    uint32_t number;
} rlock__times;

/* True if somebody is told: all that reports cost without a hook. */
static bool rlock__reports(const rlock_client *client) {
    return RLOCK__HAS_REPORTS && client->on_event;
}

static rlock__times *rlock__times_of(const rlock *lock) {
    RLOCK_ASSERT(rlock__reports(lock->gate->client) && lock->more);
    return (rlock__times *)(void *)(lock->more + 1);
}

static void rlock__report_send(const rlock_client *client, rlock_report *report) {
    RLOCK_ASSERT(client->on_event);
    report->now_us = client->now_us;
    report->client_id = client->id;
    client->on_event(client->event_user, report);
}

/* Fills in the times, and notes those that a later report needs. */
static void rlock__report_times(rlock_report *report, const rlock__claim *claim) {
    rlock__times *times = rlock__times_of(claim->lock);
    int64_t now_us = claim->lock->gate->client->now_us;
    int64_t left_us = claim->until_us > now_us ? claim->until_us - now_us : 0;
    bool ends = report->kind >= RLOCK_REPORT_RELEASED && report->kind <= RLOCK_REPORT_LOST;
    RLOCK_ASSERT(report->kind >= RLOCK_REPORT_ASKED && report->kind < RLOCK_REPORT_CLEANED);
    report->hand_us = -1;
    if (report->kind == RLOCK_REPORT_ASKED) {
        times->since_us = now_us;
        times->begun_us = times->begun_us ? times->begun_us : now_us;
    }
    report->begun_us = times->begun_us;
    if (report->kind == RLOCK_REPORT_ASKED) {
        return;
    }
    report->span_us = now_us - times->since_us;
    if (report->kind == RLOCK_REPORT_LET_GO) {
        report->span_us = now_us - times->released_us;
    } else if (report->kind == RLOCK_REPORT_RENEWED) {
        report->span_us = now_us > times->due_us ? now_us - times->due_us : 0;
    } else if (report->kind == RLOCK_REPORT_GRANTED) {
        times->since_us = now_us;
        report->hand_us = claim->yields ? now_us - times->handed_us : -1;
    } else if (ends) {
        times->released_us = now_us;
    }
    if (ends || report->kind == RLOCK_REPORT_GRANTED || report->kind == RLOCK_REPORT_RENEWED) {
        report->left_us = left_us;
        report->fence = claim->fence;
    }
}

/* Tells the hook what happens to a claim; NOINLINE, behind one branch. */
RLOCK__NOINLINE static void rlock__report_tell(const rlock__claim *claim, rlock_report_kind kind,
                                               int status, rlock_reason reason) {
    const rlock *lock = claim->lock;
    const rlock_client *client = lock->gate->client;
    rlock_report report;
    bool untold = kind == RLOCK_REPORT_RENEWED && lock->ready.event; /* of its grant, so far */
    if (untold || rlock__forked(client)) {                           /* by a hook, before */
        return;
    }
    memset(&report, 0, sizeof report);
    report.kind = kind;
    report.status = status;
    report.reason = reason;
    report.key = lock->gate->item.key;
    report.key_len = lock->gate->item.key_len;
    report.hand_us = -1;
    if (kind != RLOCK_REPORT_CLEANED) { /* of which its handle knows nothing any more */
        report.lock = lock;
        report.handle = rlock__times_of(lock)->number;
        report.text = status != RLOCK_OK && rlock__handle_of(claim) ? lock->more->text : NULL;
        rlock__report_times(&report, claim);
    }
    rlock__report_send(client, &report);
}

static void rlock__report(const rlock__claim *claim, rlock_report_kind kind, int status) {
    if (rlock__reports(claim->lock->gate->client)) {
        rlock__report_tell(claim, kind, status, RLOCK_REASON_NONE);
    }
}

/* A hold is lost: the words of its event are known already. */
static void rlock__report_lost(const rlock__claim *claim, rlock_reason reason) {
    if (rlock__reports(claim->lock->gate->client)) {
        rlock__report_tell(claim, RLOCK_REPORT_LOST, RLOCK_ERR_LOST, reason);
    }
}

/* A hold is handed on to that waiter. */
static void rlock__report_handed(const rlock__claim *held, const rlock__claim *next) {
    const rlock_client *client = held->lock->gate->client;
    RLOCK_ASSERT(held->lock != next->lock && held->phase == RLOCK__HOLDING);
    if (rlock__reports(client)) {
        rlock__times_of(next->lock)->handed_us = client->now_us;
        rlock__report_tell(held, RLOCK_REPORT_HANDED_ON, RLOCK_OK, RLOCK_REASON_NONE);
    }
}

/* The next renewal of a hold is planned; `sooner`: one leaves now, perhaps before it is due. */
static void rlock__report_due(const rlock__claim *claim, int64_t due_us, bool sooner) {
    RLOCK_ASSERT(due_us >= 0);
    if (rlock__reports(claim->lock->gate->client)) {
        rlock__times *times = rlock__times_of(claim->lock);
        times->due_us = sooner ? rlock__min(times->due_us, due_us) : due_us;
    }
}

void rlock_client_report(const rlock_client *client, const rlock_report *report) {
    rlock_report copy = *report;
    char where[RLOCK__LINE], text[RLOCK__LINE];
    if (rlock__reports(client) && !rlock__forked(client)) {
        rlock__line_foreign(client->secrets, where, 0, "", report->where);
        rlock__line_foreign(client->secrets, text, 0, "", report->text);
        copy.where = report->where ? where : NULL;
        copy.text = report->text ? text : NULL;
        copy.hand_us = -1;
        rlock__report_send(client, &copy);
    }
}

#endif /* RLOCK_LOCK_REPORT_H */
