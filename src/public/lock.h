/* ------------------------------------------------------------------------------------------------
 * >>lock-api - a handle: one owner of one key
 */

#ifndef RLOCK_PUBLIC_LOCK_H
#define RLOCK_PUBLIC_LOCK_H

#include "public/head.h"
#include "public/store.h"

#define RLOCK_FOREVER (-1)
#define RLOCK_LEASE_MIN_MS 10
#define RLOCK_LEASE_MAX_MS 86400000
#define RLOCK_KEY_MAX 65536
#define RLOCK_KEYS_MAX 128
#define RLOCK_PERMITS_MAX 1000000000

typedef enum rlock_event_kind {
    RLOCK_ACQUIRED = 1,
    RLOCK_RENEWED,
    RLOCK_RELEASED,
    RLOCK_LOST
} rlock_event_kind;

typedef enum rlock_reason {
    RLOCK_REASON_NONE = 0,
    RLOCK_REASON_EXPIRED, /* the local deadline came without a renewal, or max_hold_ms is over */
    RLOCK_REASON_STOLEN,  /* another's token, or something that is no lock, is at the key */
    RLOCK_REASON_DELETED, /* the key is gone; of a queued kind, the hold in it */
    RLOCK_REASON_CLOSED   /* the client was shut down under it */
} rlock_reason;

/* One word for a reason or a kind, in English, static: "expired", "semaphore"; "unknown" for any
 * other number. */
RLOCK_API const char *rlock_reason_str(rlock_reason reason);
RLOCK_API const char *rlock_kind_str(rlock_kind kind);

typedef struct rlock_event {
    rlock_event_kind kind; /* which operation ended: read `status` to learn how */
    int status;            /* RLOCK_OK or an error; of RLOCK_LOST: RLOCK_ERR_LOST */
    rlock_reason reason;   /* of RLOCK_LOST, and of a release that found the hold lost */
    uint64_t fence;        /* fencing token of the hold, 0 if off */
    int64_t remaining_ms;  /* ACQUIRED, RENEWED: until the local deadline. BUSY, TIMEOUT: of the
                              holder's lease as last known, -1 unknown. Else 0 */
    const char *text;      /* the words of the server, or of what failed on the way to it, or NULL;
                              of RLOCK_LOST: why there is no connection, if there is none. Until
                              the callback returns */
} rlock_event;

typedef void rlock_callback(rlock *lock, const rlock_event *event, void *user);

#define RLOCK_WATCHDOG_AUTO 0 /* on when acquired with lease_ms 0 */
#define RLOCK_WATCHDOG_ON 1
#define RLOCK_WATCHDOG_OFF 2

/* Zero = the default in the comment; everything is copied. */
typedef struct rlock_options {
    const char *key;         /* required, or keys; any bytes, at most RLOCK_KEY_MAX */
    size_t key_len;          /* 0 = strlen(key) */
    rlock_kind kind;         /* RLOCK_KIND_MUTEX */
    uint32_t permits;        /* required of a SEMAPHORE: how many there are; to RLOCK_PERMITS_MAX.
                                rlock_set_permits changes the number for all who use it */
    uint32_t weight;         /* 1: how many of them a hold takes, all or none */
    uint64_t owner;          /* 0: the handle is an owner by itself. Else a READ is granted at once
                                while a WRITE of the same client, key and owner is held: to step
                                down, acquire it and release the other. The other way round it
                                would wait for itself */
    const char *const *keys; /* none; several keys, instead of key: all or none, in one command,
                                with one lease and one fence. A MUTEX only */
    const size_t *key_lens;  /* NULL = their strlen */
    size_t key_count;        /* of keys, to RLOCK_KEYS_MAX, no two alike */
    bool fencing;            /* false: no fencing token */
    bool reentrant;          /* false: acquiring a held handle is RLOCK_ERR_STATE */
    int watchdog;            /* RLOCK_WATCHDOG_AUTO */
    int64_t max_hold_ms;     /* 0: no limit; after it the hold ends as EXPIRED, watchdog or not */
    rlock_callback *on_lost; /* none */
    void *user;              /* for on_lost */
} rlock_options;

/* Makes a handle, idle.
 * Errors: RLOCK_ERR_ARG (also, with a log line that says so: what the store cannot do; fencing or a
 * queued kind on a key with a `}` and no valid hash tag, beside which no other key can share its
 * cluster slot; a queued kind on a key that is called as the library calls one beside another:
 * docs/protocol.md), RLOCK_ERR_NOMEM, RLOCK_ERR_CLOSED (being shut down), RLOCK_ERR_STATE
 * (forked). */
RLOCK_API int rlock_new(rlock **out, rlock_client *client, const rlock_options *options);

/* Frees a handle in any state. Pending operations end without a callback, a hold is released in
 * the background. NULL is allowed. */
RLOCK_API void rlock_free(rlock *lock);

/* Asks for the lock. wait_ms: 0 = try once (and give up after the command timeout if no server can
 * be asked), RLOCK_FOREVER, or how long to wait. lease_ms: 0 = the client's watchdog lease,
 * renewed every third of it until release; else 10 to 86400000, renewed only if the option says
 * so. `done` is required.
 * Ends as RLOCK_ACQUIRED with RLOCK_OK, _ERR_BUSY, _TIMEOUT, _CANCELED, _CLOSED, or as
 * FAULT x OPERATION says.
 * Errors: see STATE x CALL; RLOCK_ERR_ARG; RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_acquire(rlock *lock, int64_t wait_ms, int64_t lease_ms, rlock_callback *done,
                            void *user);

/* Renews the hold now, for lease_ms (0 = the lease it has), which is the lease of
 * the watchdog from then on. A shorter one lowers the local deadline at once, however it ends; the
 * server's time to live is never shortened.
 * Ends as RLOCK_RENEWED with RLOCK_OK, _ERR_LOST, _CANCELED (released meanwhile), or as
 * FAULT x OPERATION says; only with OK does the deadline move on. `done` may be NULL.
 * Errors: see STATE x CALL; RLOCK_ERR_ARG; RLOCK_ERR_NOMEM. */
RLOCK_API int rlock_renew(rlock *lock, int64_t lease_ms, rlock_callback *done, void *user);

/* Lets go: from the call on the handle claims nothing. Of a re-entrant hold the last release lets
 * go, the others end with RLOCK_OK and lower the count. `done` may be NULL.
 * Ends as RLOCK_RELEASED with RLOCK_OK, _ERR_NOT_HELD (the server no longer had it), _LOST (see
 * STATE x CALL), _UNKNOWN (no answer until the hold's deadline), or as FAULT x OPERATION says.
 * Errors: see STATE x CALL. Needs no memory. */
RLOCK_API int rlock_release(rlock *lock, rlock_callback *done, void *user);

/* Ends the pending acquire with RLOCK_ERR_CANCELED; what it may have got is given back.
 * Errors: see STATE x CALL. */
RLOCK_API int rlock_cancel(rlock *lock);

/* Held by this handle now, by the local deadline and a fresh clock. These ask nobody, and take
 * NULL. */
RLOCK_API bool rlock_is_held(const rlock *lock);

/* Milliseconds until the local deadline, rounded down; 0 if not held. */
RLOCK_API int64_t rlock_remaining_ms(const rlock *lock);

/* Fencing token of the hold: larger than that of every earlier hold of this key. 0 if not held or
 * off. */
RLOCK_API uint64_t rlock_fence(const rlock *lock);

/* How many releases the hold needs: 0 if not held, above 1 only with .reentrant. */
RLOCK_API int rlock_hold_count(const rlock *lock);

/* The key, with a NUL behind it; *len (may be NULL) is its length. Valid until rlock_free. Of
 * several keys the first; the others stand behind it, in the order of the options. */
RLOCK_API const char *rlock_key(const rlock *lock, size_t *len);

/* --- questions: about a key, of nobody's hold --- */

typedef void rlock_info_callback(rlock_client *client, const rlock_info *info, void *user);

/* Asks how the key of these options stands, as their kind; of what they say only key, key_len,
 * kind, permits and weight count. `done` is required, and is called once, unless the client is
 * freed first. One try: it ends by the command timeout at the latest. Nothing is owned by it.
 * Errors: RLOCK_ERR_ARG (as of rlock_new; several keys), _NOMEM, _STATE (forked), _CLOSED. */
RLOCK_API int rlock_inspect(rlock_client *client, const rlock_options *options,
                            rlock_info_callback *done, void *user);

/* For operators: takes every hold of the key away, whoever has it; who waits is served. Holders of
 * this library are told LOST, with RLOCK_REASON_DELETED, or STOLEN if another has it by then.
 * `done` (may be NULL) and errors: as above; info->holders says how many holds there were. */
RLOCK_API int rlock_force_release(rlock_client *client, const rlock_options *options,
                                  rlock_info_callback *done, void *user);

/* Changes how many permits a semaphore has, for all who use it, for a day, and for a day more from
 * each time that somebody gets one without waiting; 0 = what their options say. With fewer than are
 * out, none is granted until enough came back. `done` (may be NULL) and errors: as above. */
RLOCK_API int rlock_set_permits(rlock_client *client, const rlock_options *options,
                                uint32_t permits, rlock_info_callback *done, void *user);

/* Asks how many wait before a handle of a queued kind that is WAITING: info->position, 0 = it is
 * next; -1 if it does not stand in the line. `done` is required, and may come after rlock_free.
 * Errors: RLOCK_ERR_STATE (not waiting, no queued kind, forked), and as above. */
RLOCK_API int rlock_queue_position(const rlock *lock, rlock_info_callback *done, void *user);

#endif /* RLOCK_PUBLIC_LOCK_H */
