/* ------------------------------------------------------------------------------------------------
 * >>reports - what happens to the handles and connections of a client, for one hook
 */

#ifndef RLOCK_PUBLIC_REPORT_H
#define RLOCK_PUBLIC_REPORT_H

#include "public/head.h"
#include "public/lock.h"

/* What config.on_event is called with. An event says how an operation of one handle ended; reports
 * bring what happens in all of them to one place in a program: adapters/rlock_metrics.h counts, and
 * adapters/rlock_trace.h draws.
 *
 * Of each handle they come in this order: ASKED, then GRANTED or FAILED; after GRANTED any number
 * of RENEWED, then one of RELEASED, HANDED_ON and LOST; LET_GO comes after RELEASED, unless the
 * handle was freed. So of each client, and at any time, ASKED = GRANTED + FAILED + those that wait,
 * and GRANTED = RELEASED + HANDED_ON + LOST + those that hold. Freeing a handle or a client
 * reports the end of what it ends, too. In a forked child nothing is reported. */
typedef enum rlock_report_kind {
    RLOCK_REPORT_ASKED = 1, /* an acquire began: it was accepted, or the release that it follows
                               has ended. Not reported for a held re-entrant handle */
    RLOCK_REPORT_GRANTED,   /* the callback of the acquire is about to get RLOCK_OK */
    RLOCK_REPORT_FAILED,    /* an acquire ended without a hold */
    RLOCK_REPORT_RENEWED,   /* a renewal succeeded, by hand or by the watchdog */
    RLOCK_REPORT_RELEASED,  /* a hold ended: its handle was released or freed */
    RLOCK_REPORT_HANDED_ON, /* a hold ended: it goes to this client's next waiter, without the
                               server (config.handovers) */
    RLOCK_REPORT_LOST,      /* a hold ended: it was lost. on_lost is called after that, unless the
                               handle is released or freed in between */
    RLOCK_REPORT_LET_GO,    /* the release has ended, with the status that its callback gets */
    RLOCK_REPORT_CLEANED,   /* a token that no operation waits for is gone from the server */
    RLOCK_REPORT_CONNECTED, /* a connection can be used */
    RLOCK_REPORT_DISCONNECTED, /* a connection ended, or an attempt to connect; also if the client
                                  itself closes it, and when it is freed */
    RLOCK_REPORT_REFUSED       /* a connection that is in use refused new credentials, and goes on
                                  as it was */
} rlock_report_kind;

/* All that it points to, except lock, is valid until the hook returns. Microseconds are those of
 * the client's clock; of now_us only differences mean something. */
typedef struct rlock_report {
    rlock_report_kind kind;
    int status;          /* FAILED, LET_GO: how it ended; LOST: RLOCK_ERR_LOST; else RLOCK_OK. A
                            handle or client that is freed fails with RLOCK_ERR_CLOSED */
    rlock_reason reason; /* LOST */
    int64_t now_us;      /* when it happened */
    int64_t span_us;     /* GRANTED, FAILED: since ASKED. RELEASED, HANDED_ON, LOST: since GRANTED.
                            LET_GO: since RELEASED. RENEWED: from when it was due, or was asked for
                            by hand, to its answer. DISCONNECTED: since CONNECTED. Else 0 */
    int64_t left_us;     /* GRANTED, RELEASED, HANDED_ON, LOST: until the local deadline, 0 if it
                            has passed. RENEWED: until the deadline before. Else 0 */
    int64_t hand_us;     /* GRANTED by a local hand-over: since the HANDED_ON; else -1 */
    uint64_t fence;      /* GRANTED to LOST: the fencing token of the hold, 0 if there is none */
    const char *key;     /* the first key of the handle, then a NUL; NULL of a connection */
    size_t key_len;
    const rlock *lock;     /* identifies the handle: do not call anything with it, it may be freed
                              already. NULL of CLEANED and of a connection */
    uint32_t handle;       /* the number of the handle, from 1 in each client; 0 if lock is NULL */
    const char *client_id; /* 36 characters, of which the lines of the log have the first eight */
    const char *link;      /* of a connection: "commands", "push" or "Sentinel"; else NULL */
    const char *where;     /* of a connection: "127.0.0.1:6379", or the path of a socket; NULL if
                              config.connect made it, and of all others */
    int64_t begun_us; /* when the first acquire of the handle began, by now_us; 0 if lock is NULL */
    const char *text; /* FAILED, LET_GO, LOST: as the event has it. DISCONNECTED: why. REFUSED: the
                         server's words. Or NULL */
} rlock_report;

/* One word for a report, in English, static: "granted", "handed on"; "unknown" for any other
 * number, and without the part REPORTS. */
RLOCK_API const char *rlock_report_str(rlock_report_kind kind);

#endif /* RLOCK_PUBLIC_REPORT_H */
