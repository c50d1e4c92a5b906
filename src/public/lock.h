/* ------------------------------------------------------------------------------------------------
 * >>lock-api - a handle, one would-be holder of one key, or of a set of keys
 */

#ifndef RLOCK_PUBLIC_LOCK_H
#define RLOCK_PUBLIC_LOCK_H

#include "public/head.h"
#include "public/store.h"

/* A wait without limit, and the limits of leases, keys and permits. */
#define RLOCK_FOREVER (-1)
#define RLOCK_LEASE_MIN_MS 10
#define RLOCK_LEASE_MAX_MS 86400000
#define RLOCK_KEY_MAX 65536
#define RLOCK_KEYS_MAX 128
#define RLOCK_TOKEN_MAX 80 /* bytes of the text of rlock_token, with its NUL */
#define RLOCK_PERMITS_MAX 1000000000

/* Which operation an event is about. */
typedef enum rlock_event_kind {
    RLOCK_ACQUIRED = 1,
    RLOCK_RENEWED,
    RLOCK_RELEASED,
    RLOCK_LOST
} rlock_event_kind;

/* Why a hold was lost. */
typedef enum rlock_reason {
    RLOCK_REASON_NONE = 0,
    RLOCK_REASON_EXPIRED, /* the local deadline came without a renewal, or max_hold_ms has passed */
    RLOCK_REASON_STOLEN,  /* another's token, or something that is not a lock, is at the key */
    RLOCK_REASON_DELETED, /* the key is gone; queued kinds: the hold in it is gone */
    RLOCK_REASON_CLOSED   /* the client was shut down during the hold: no fault */
} rlock_reason;

/* One word for a reason or a kind, in English, static: "expired", "semaphore"; "unknown" for any
 * other number. */
RLOCK_API const char *rlock_reason_str(rlock_reason reason);
RLOCK_API const char *rlock_kind_str(rlock_kind kind);

/* What a callback receives. */
typedef struct rlock_event {
    rlock_event_kind kind; /* which operation ended: read `status` to learn how */
    int status;            /* RLOCK_OK or an error; with RLOCK_LOST always RLOCK_ERR_LOST */
    rlock_reason reason;   /* of RLOCK_LOST, and of a release that found the hold lost */
    uint64_t fence;        /* fencing token of the hold, 0 if fencing is off */
    int64_t remaining_ms;  /* ACQUIRED or RENEWED with OK: the time until the local deadline. With
                              BUSY or TIMEOUT: what was left of the holder's lease when last heard,
                              at most 2147483647, -1 = unknown. Otherwise 0 */
    const char *text;      /* the words that belong to `status`, of the server or of what failed on
                              the way to it, or NULL; of RLOCK_LOST: the last fault since the lease
                              was granted or renewed, else what kept it from being renewed. At most
                              255 bytes, without control bytes and passwords: see
                              rlock_client_hide. Valid until the callback returns */
} rlock_event;

/* The local deadline of a hold, which any thread may read with rlock_still_held: see
 * options.deadline. All zeros: not held. Its members are the library's. */
typedef struct rlock_deadline {
    uint32_t count, high, low, latest, refuted;
} rlock_deadline;

/* Called once, when an operation has ended or a hold is lost. `user` is what was passed with it to
 * the call or in the options. */
typedef void rlock_callback(rlock *lock, const rlock_event *event, void *user);

/* Whether the watchdog renews a hold: options.watchdog. */
#define RLOCK_WATCHDOG_AUTO 0 /* on when acquired with lease_ms 0 */
#define RLOCK_WATCHDOG_ON 1
#define RLOCK_WATCHDOG_OFF 2

/* What a handle is made of. Each comment begins with the default, which zero stands for. Everything
 * is copied. */
typedef struct rlock_options {
    const char *key;         /* required, unless keys is set; any bytes, 1 to RLOCK_KEY_MAX */
    size_t key_len;          /* strlen(key) */
    rlock_kind kind;         /* RLOCK_KIND_MUTEX */
    uint32_t permits;        /* required with a SEMAPHORE, else 0; 1 to RLOCK_PERMITS_MAX; how many
                                permits the key has, unless rlock_set_permits says otherwise */
    uint32_t weight;         /* 1; 1 to permits, with a SEMAPHORE only; how many permits a hold
                                takes, all or none */
    uint64_t owner;          /* none; any number, with READ and WRITE only. While a WRITE is held, a
                                READ of the same client, key and owner is granted at once. So a
                                downgrade is possible: acquire the READ, then release the WRITE. An
                                upgrade is not: the WRITE would wait for your own READ */
    const char *const *keys; /* none; several keys, instead of key: all or none, in one command,
                                with one lease and one fencing token. With a MUTEX only */
    const size_t *key_lens;  /* the strlen of each of keys */
    size_t key_count;        /* the number of keys; to RLOCK_KEYS_MAX, no duplicates */
    bool fencing;            /* false: no fencing token */
    bool reentrant;          /* false: acquiring a held handle is RLOCK_ERR_STATE */
    int watchdog;            /* RLOCK_WATCHDOG_AUTO */
    int64_t max_hold_ms;     /* no limit; ms; then the hold ends as EXPIRED, watchdog or not */
    rlock_callback *on_lost; /* none; called once when a hold is lost */
    void *user;              /* for on_lost */

    /* What came after 0.1.0 stands here, so that initializers without names mean what they did. */

    int64_t watchdog_lease_ms; /* the client's; 10 to 86400000 ms; the lease that lease_ms 0 means
                                  for this handle: a dead holder is followed when it ends */

    /* None; zeroed by you, and yours until rlock_free or rlock_client_free has returned. While the
     * handle is HELD the library keeps the local deadline there, for threads that ask whether this
     * process still holds. */
    rlock_deadline *deadline;
} rlock_options;

/* Makes a handle, which is idle.
 * Errors: RLOCK_ERR_ARG, RLOCK_ERR_NOMEM, RLOCK_ERR_CLOSED (the client is being shut down),
 * RLOCK_ERR_STATE (a forked child). With RLOCK_ERR_ARG comes a log line that says why: which of the
 * options is not valid; or the store refuses them: it cannot do it; or fencing or a queued
 * kind is wanted on a key with a `}` and no hash tag {...}, next to which no other key can share
 * its cluster slot; or a queued kind is wanted on a key that is named like a key of the library's
 * own (docs/protocol.md, "Whose a key is"). */
RLOCK_API int rlock_new(rlock **out, rlock_client *client, const rlock_options *options);

/* Frees a handle in any state. Pending operations end without a callback, and a hold is released in
 * the background. NULL is allowed. In a forked child it does nothing. */
RLOCK_API void rlock_free(rlock *lock);

/* Acquires the lock, and reports to `done`, which is required.
 * wait_ms: 0 = one attempt, which ends by the command timeout at the latest; RLOCK_FOREVER; else
 * how many milliseconds to wait. lease_ms: 0 = the watchdog lease of the options, else that of the
 * client, which the watchdog renews every third of it until the release, unless options.watchdog is
 * OFF; 10 to 86400000 = this lease, which nothing renews unless options.watchdog is ON:
 * it ends as LOST, EXPIRED, if you neither release nor rlock_renew it before.
 * If the holder's process dies, others get the lock when the lease ends: with lease_ms 0 and the
 * default configuration that is up to 30 s later.
 * Ends as RLOCK_ACQUIRED with RLOCK_OK, RLOCK_ERR_BUSY (wait_ms was 0, and another holds it),
 * RLOCK_ERR_TIMEOUT (another held it for the whole wait), RLOCK_ERR_CANCELED, RLOCK_ERR_CLOSED
 * (rlock_client_shutdown), or by a fault: RLOCK_ERR_CONN, _UNKNOWN, _AUTH, _SERVER, _WRONG_TYPE or
 * _NOMEM. On a held re-entrant handle also with RLOCK_ERR_LOST. On a handle that is being released
 * it begins when the release has ended.
 * Errors: RLOCK_ERR_STATE (an acquire is pending; it is held without .reentrant; its hold is lost,
 * and on_lost was not called yet; a longer lease is asked for while a renewal is pending; a forked
 * child), RLOCK_ERR_CLOSED (the client was freed or
 * is being shut down), RLOCK_ERR_ARG (lock or done is NULL, a number is out of range),
 * RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_acquire(rlock *lock, int64_t wait_ms, int64_t lease_ms, rlock_callback *done,
                            void *user);

/* Renews the hold now for lease_ms (0 = the lease that it has), which is the lease of the watchdog
 * from then on. A shorter lease lowers the local deadline at once, however the renewal ends; the
 * server's time to live stays, unless it is above every lease that this hold was asked for. After a
 * renewal that was not answered a longer lease is granted only as the longest one before: see
 * remaining_ms. `done` may be NULL.
 * Ends as RLOCK_RENEWED with RLOCK_OK, RLOCK_ERR_LOST, RLOCK_ERR_CANCELED (released meanwhile), or
 * by a fault: RLOCK_ERR_CONN, _UNKNOWN, _AUTH, _SERVER or _NOMEM. Only RLOCK_OK moves the deadline
 * on; after a fault the hold lasts until the old one.
 * Errors: RLOCK_ERR_NOT_HELD (the handle is idle), RLOCK_ERR_LOST (its hold is lost),
 * RLOCK_ERR_STATE (it is waiting or releasing; another renewal is pending; a forked child),
 * RLOCK_ERR_CLOSED (the client was freed), RLOCK_ERR_ARG (lock is NULL, lease_ms is out of range),
 * RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_renew(rlock *lock, int64_t lease_ms, rlock_callback *done, void *user);

/* Releases the hold: from this call on the handle claims nothing. A hold that was acquired n times
 * (.reentrant) needs n releases: all but the last end with RLOCK_OK and lower the hold count.
 * `done` may be NULL.
 * Ends as RLOCK_RELEASED with RLOCK_OK, RLOCK_ERR_NOT_HELD (the server no longer had it),
 * RLOCK_ERR_LOST (it was lost, and on_lost was not called yet: it will not be called),
 * RLOCK_ERR_UNKNOWN (no answer until the hold's deadline), or by a fault that lasted until then:
 * RLOCK_ERR_CONN, _AUTH, _SERVER or _NOMEM. After UNKNOWN or a fault the release is repeated in the
 * background.
 * Errors: RLOCK_ERR_NOT_HELD (the handle is idle), RLOCK_ERR_STATE (it is waiting or releasing; a
 * forked child), RLOCK_ERR_CLOSED (the client was freed), RLOCK_ERR_ARG (lock is NULL). It needs no
 * memory. */
RLOCK_API int rlock_release(rlock *lock, rlock_callback *done, void *user);

#if RLOCK__HAS_TOKENS
/* Releases the hold, and keeps the key locked for the rest of `ms`, counted from the callback that
 * granted this hold. Until then no client gets it, even without this process. So a job that takes a
 * second is not repeated by a machine whose clock is late. ms: 0 to 86400000, at most
 * config.quarantine_ms. If nothing is left of it, this is rlock_release. It is one renewal, for the
 * rest, which also cuts a longer lease; from this call on the handle claims nothing. With
 * .reentrant only the last release counts. `done` may be NULL.
 * Ends as RLOCK_RELEASED, with what rlock_release ends with; with RLOCK_ERR_UNKNOWN also if an
 * earlier renewal was not answered, by one server of a quorum too: it may come late and shorten the
 * time. After a fault the renewal is repeated in the background, and when `ms` have passed, the
 * release.
 * Errors: those of rlock_release; RLOCK_ERR_ARG (ms is out of range; the store does not
 * support it, as ZooKeeper and rlock_both_new, which the log says). */
RLOCK_API int rlock_release_after(rlock *lock, int64_t ms, rlock_callback *done, void *user);

/* Writes the text that proves the hold, with a NUL, into a buffer of RLOCK_TOKEN_MAX bytes, or
 * fewer. Returns its length. Any program that knows it can renew and release the hold: keep it as
 * you keep a password. It is not a fencing token; it contains one.
 * Errors: RLOCK_ERR_NOT_HELD, RLOCK_ERR_ARG (lock or buffer is NULL, the buffer is too small; the
 * store does not support it: see rlock_adopt), RLOCK_ERR_STATE (a forked child). */
RLOCK_API int rlock_token(const rlock *lock, char *buffer, size_t size);

/* Makes an idle handle the holder of a hold of another handle, of any process, of which `token` is
 * the text of rlock_token. That handle must no longer hold it: rlock_release_after has ended with
 * RLOCK_OK, or its process has died. The options must be those of that handle: key, kind,
 * permits, weight. It is one renewal for lease_ms, which is as in rlock_acquire; so it does not
 * take a free key, and does not wait. From then on the hold is like any other: `on_lost`, the
 * watchdog, rlock_renew, rlock_release. Its fencing token is that of `token`, also without
 * options.fencing. `done` is required.
 * Ends as RLOCK_ACQUIRED with RLOCK_OK, RLOCK_ERR_NOT_HELD (the key is free, or has another token),
 * RLOCK_ERR_CANCELED, RLOCK_ERR_CLOSED, or by a fault, as an acquire with wait_ms 0. Without
 * RLOCK_OK the key is left as it is: nothing is released.
 * Errors: RLOCK_ERR_STATE (the handle is not idle; a forked child), RLOCK_ERR_CLOSED (the client
 * was freed or is being shut down), RLOCK_ERR_ARG (an argument is NULL; `token` is not such a
 * text, or has no fencing token, and options.fencing wants one; lease_ms is out of range; the store
 * does not support it, as ZooKeeper, a quorum and rlock_both_new, which the log says),
 * RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_adopt(rlock *lock, const char *token, int64_t lease_ms, rlock_callback *done,
                          void *user);
#endif

/* Ends the pending acquire with RLOCK_ERR_CANCELED. If the server has granted the lock by then, or
 * grants it later, the library releases it in the background.
 * Errors: RLOCK_ERR_STATE (the handle is not waiting, or this is a forked child), RLOCK_ERR_CLOSED
 * (the client was freed), RLOCK_ERR_ARG (lock is NULL). */
RLOCK_API int rlock_cancel(rlock *lock);

/* True if this handle holds the lock now, by its local deadline and a fresh clock. It sends
 * nothing. False for NULL and in a forked child. */
RLOCK_API bool rlock_is_held(const rlock *lock);

/* Returns the milliseconds until the local deadline, rounded down; 0 if not held. It sends
 * nothing, and takes NULL. */
RLOCK_API int64_t rlock_remaining_ms(const rlock *lock);

/* True if the hold of options.deadline is held now, by its local deadline and a fresh
 * RLOCK_NOW_US. Any thread may ask, at any time, also in a callback; nothing is locked. It becomes
 * false inside rlock_release, before on_lost is called, and when the deadline has passed, even if
 * the thread of the loop is stopped. It is false, too, once that clock shows an earlier time than
 * any asker or the loop has seen, until the hold is renewed. False for NULL. With a loop.now_us of
 * your own compare that with rlock_deadline_us, which returns the deadline by that clock, 0 = not
 * held. A forked child may not call it: it would see its parent's hold. */
RLOCK_API bool rlock_still_held(const rlock_deadline *deadline);
RLOCK_API int64_t rlock_deadline_us(const rlock_deadline *deadline);

/* Returns the fencing token of the hold, larger than that of every earlier hold of this key; 0 if
 * not held, or without options.fencing (but see rlock_adopt). It sends nothing, and takes NULL. */
RLOCK_API uint64_t rlock_fence(const rlock *lock);

/* Returns how many releases the hold needs: 0 if not held, above 1 only with .reentrant. It sends
 * nothing, and takes NULL. */
RLOCK_API int rlock_hold_count(const rlock *lock);

/* Returns the key, followed by a NUL; *len (len may be NULL) is its length. Of several keys it is
 * the first; the others follow it in the order of the options, each with its NUL. Valid until
 * rlock_free. NULL if lock is NULL or in a forked child. */
RLOCK_API const char *rlock_key(const rlock *lock, size_t *len);

/* --- questions: about a key, independent of any hold --- */

/* Called once with the state of a key, or why that is not known: info->status. */
typedef void rlock_info_callback(rlock_client *client, const rlock_info *info, void *user);

/* Reports the state of the key of these options; only their key, key_len, kind, permits and weight
 * count. `done` is required. It is called once, by the command timeout at the latest, unless the
 * client is freed first; info->status says how the question ended.
 * Errors: RLOCK_ERR_ARG (an argument is NULL; options that rlock_new refuses; several keys),
 * RLOCK_ERR_NOMEM, RLOCK_ERR_STATE (a forked child), RLOCK_ERR_CLOSED (being shut down). */
RLOCK_API int rlock_inspect(rlock_client *client, const rlock_options *options,
                            rlock_info_callback *done, void *user);

/* The same as rlock_inspect, and lists the holders and the waiters of the key: info->who. Redis, a
 * cluster and a quorum of it list them; with other stores info->untold says that they do not. No
 * server knows the waiters of a MUTEX. The server is asked for the names of its connections (CLIENT
 * LIST), which costs it more with more connections; if it refuses that, info->untold has its words,
 * and the list has no descriptions. Any client can name its connection as it likes: a description
 * is a hint.
 * Errors: those of rlock_inspect; RLOCK_ERR_ARG without RLOCK_WITH_DESCRIPTIONS. */
RLOCK_API int rlock_describe(rlock_client *client, const rlock_options *options,
                             rlock_info_callback *done, void *user);

/* For operators: removes every hold of the key, of any client; the next waiters are served. LOST
 * is reported to the holders that use this library, with RLOCK_REASON_DELETED, or STOLEN if another
 * holds the key by then. `done` may be NULL. It is called once, by the command timeout at the
 * latest, unless the client is freed first; info->holders is how many holds there were.
 * Errors: RLOCK_ERR_ARG (client or options is NULL; options that rlock_new refuses; several keys),
 * RLOCK_ERR_NOMEM, RLOCK_ERR_STATE (a forked child), RLOCK_ERR_CLOSED (being shut down). */
RLOCK_API int rlock_force_release(rlock_client *client, const rlock_options *options,
                                  rlock_info_callback *done, void *user);

/* Sets the number of permits of a semaphore for all clients; 0 = what the options of each say. It
 * lasts 24 h from now and from each grant that did not have to wait; in ZooKeeper until another one
 * is set. If the new number is below the permits in use, no hold is revoked, and none is granted
 * until enough permits return. `done` may be NULL. It is called once, by the command timeout at the
 * latest, unless the client is freed first; info->status says how it ended.
 * Errors: RLOCK_ERR_ARG (client or options is NULL; options that rlock_new refuses, or of another
 * kind; permits is above RLOCK_PERMITS_MAX), RLOCK_ERR_NOMEM, RLOCK_ERR_STATE (a forked child),
 * RLOCK_ERR_CLOSED (being shut down). */
RLOCK_API int rlock_set_permits(rlock_client *client, const rlock_options *options,
                                uint32_t permits, rlock_info_callback *done, void *user);

/* Reports how many waiters are ahead of a handle of a queued kind that is WAITING: info->position,
 * 0 = it is next, -1 = it is not in the queue. `done` is required. It is called once, by the
 * command timeout at the latest, unless the client is freed first; it may be called after
 * rlock_free.
 * Errors: RLOCK_ERR_STATE (not waiting; not a queued kind; a forked child), RLOCK_ERR_ARG (lock or
 * done is NULL), RLOCK_ERR_NOMEM, RLOCK_ERR_CLOSED (the client was freed or is being shut down). */
RLOCK_API int rlock_queue_position(const rlock *lock, rlock_info_callback *done, void *user);

#endif /* RLOCK_PUBLIC_LOCK_H */
