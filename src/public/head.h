/* What every part of the interface needs. */

#ifndef RLOCK_PUBLIC_HEAD_H
#define RLOCK_PUBLIC_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RLOCK_VERSION "0.1.0"

#ifndef RLOCK_API
#define RLOCK_API extern
#endif

/* Around code that is C++ too, but casts as C does: for the adapters. */
#if defined(__cplusplus) && defined(__GNUC__)
#define RLOCK__C_CASTS_BEGIN \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"")
#define RLOCK__C_CASTS_END _Pragma("GCC diagnostic pop")
#else
#define RLOCK__C_CASTS_BEGIN
#define RLOCK__C_CASTS_END
#endif

struct redisAsyncContext;
struct sockaddr;

typedef struct rlock rlock;
typedef struct rlock_client rlock_client;

#endif /* RLOCK_PUBLIC_HEAD_H */
