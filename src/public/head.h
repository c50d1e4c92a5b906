/* What every part of the interface needs. */

#ifndef RLOCK_PUBLIC_HEAD_H
#define RLOCK_PUBLIC_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this file, as a text, and as a number that #if compares: 1,000,000 for each
 * major version, 1,000 for each minor one, 1 for each patch. */
#define RLOCK_VERSION "0.2.0"
#define RLOCK_VERSION_NUMBER 2000

/* The linkage of the public functions; define it yourself where that has to be another one. */
#ifndef RLOCK_API
#define RLOCK_API extern
#endif

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

/* A handle, and a client. Only the library looks into them: see >>lock-api and >>client-api. Since
 * ::rlock is a type, a C++ program cannot have a namespace of that name. */
typedef struct rlock rlock;
typedef struct rlock_client rlock_client;

#endif /* RLOCK_PUBLIC_HEAD_H */
