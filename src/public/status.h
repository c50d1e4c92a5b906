/* ------------------------------------------------------------------------------------------------
 * >>status-codes - what calls return and events carry: 0 or negative
 */

#ifndef RLOCK_PUBLIC_STATUS_H
#define RLOCK_PUBLIC_STATUS_H

#include "public/head.h"

/* How a call or an operation ended. Only an acquire with wait_ms 0 ends with ERR_BUSY. With
 * ERR_SERVER event->text has the server's words. */
#define RLOCK_STATUS_MAP(X)                                                 \
    X(OK, 0, "ok")                                                          \
    X(ERR_BUSY, -1, "held by another")                                      \
    X(ERR_TIMEOUT, -2, "held by another for the whole wait")                \
    X(ERR_CANCELED, -3, "canceled")                                         \
    X(ERR_NOT_HELD, -4, "not held")                                         \
    X(ERR_LOST, -5, "lost before it was released")                          \
    X(ERR_UNKNOWN, -6, "not answered in time: the server may have done it") \
    X(ERR_CONN, -7, "the server was not reached")                           \
    X(ERR_AUTH, -8, "the user or a certificate is refused")                 \
    X(ERR_SERVER, -9, "the server answered with an error")                  \
    X(ERR_WRONG_TYPE, -10, "the key holds no lock, or one of another kind") \
    X(ERR_NOMEM, -11, "out of memory")                                      \
    X(ERR_ARG, -12, "bad argument")                                         \
    X(ERR_STATE, -13, "not allowed in this state")                          \
    X(ERR_CLOSED, -14, "the client is closed")

typedef enum rlock_status {
#define RLOCK_X(name, value, text) RLOCK_##name = value,
    RLOCK_STATUS_MAP(RLOCK_X)
#undef RLOCK_X
        RLOCK_STATUS_LAST = -14
} rlock_status;

/* Returns RLOCK_VERSION of the code that is linked, which may differ from that of the header where
 * the code is a library. It is static: do not free it. Any thread may call it. */
RLOCK_API const char *rlock_version(void);

/* Returns the text of a status, in English; "unknown status" for any other number. It is
 * static: do not free it. */
RLOCK_API const char *rlock_strerror(int status);

#endif /* RLOCK_PUBLIC_STATUS_H */
