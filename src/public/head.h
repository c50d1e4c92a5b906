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

/* The parts. By default all are there; RLOCK_MINIMAL leaves out those that are not asked for by an
 * RLOCK_WITH_... of their own: see CONFIGURATION MACROS. Each is 1 or 0 from here on. */

#if defined(RLOCK_NO_KINDS) || defined(RLOCK_NO_URL) || defined(RLOCK_NO_SENTINEL) || \
    defined(RLOCK_NO_CLUSTER) || defined(RLOCK_NO_REPORTS)
#error "RLOCK_NO_KINDS, _URL, _SENTINEL, _CLUSTER, _REPORTS became RLOCK_MINIMAL and RLOCK_WITH_..."
#endif

#ifdef RLOCK_NO_REDIS
#define RLOCK__HAS_REDIS 0
#else
#define RLOCK__HAS_REDIS 1
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_KINDS)
#define RLOCK__HAS_KINDS 1
#else
#define RLOCK__HAS_KINDS 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_QUORUM)
#define RLOCK__HAS_QUORUM 1
#else
#define RLOCK__HAS_QUORUM 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_MEMORY)
#define RLOCK__HAS_MEMORY 1
#else
#define RLOCK__HAS_MEMORY 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_REPORTS)
#define RLOCK__HAS_REPORTS 1
#else
#define RLOCK__HAS_REPORTS 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_DESCRIPTIONS))
#define RLOCK__HAS_DESCRIPTIONS 1
#else
#define RLOCK__HAS_DESCRIPTIONS 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_TOKENS)
#define RLOCK__HAS_TOKENS 1
#else
#define RLOCK__HAS_TOKENS 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_CREDENTIALS)
#define RLOCK__HAS_CREDENTIALS 1
#else
#define RLOCK__HAS_CREDENTIALS 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_URL))
#define RLOCK__HAS_URL 1
#else
#define RLOCK__HAS_URL 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_SENTINEL))
#define RLOCK__HAS_SENTINEL 1
#else
#define RLOCK__HAS_SENTINEL 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_CLUSTER))
#define RLOCK__HAS_CLUSTER 1
#else
#define RLOCK__HAS_CLUSTER 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_REPLICAS))
#define RLOCK__HAS_REPLICAS 1
#else
#define RLOCK__HAS_REPLICAS 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_REDISSON))
#define RLOCK__HAS_REDISSON 1
#else
#define RLOCK__HAS_REDISSON 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_NAMES))
#define RLOCK__HAS_NAMES 1
#else
#define RLOCK__HAS_NAMES 0
#endif

#if RLOCK__HAS_REDIS && (!defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_TLS))
#define RLOCK__HAS_TLS 1
#else
#define RLOCK__HAS_TLS 0
#endif

#if !defined(RLOCK_MINIMAL) || defined(RLOCK_WITH_TEXTS)
#define RLOCK__HAS_TEXTS 1
#define RLOCK__TEXT(text) text
#define RLOCK__NEEDS(setting, macro) setting " needs " macro
#else
#define RLOCK__HAS_TEXTS 0
#define RLOCK__TEXT(text) ""
#define RLOCK__NEEDS(setting, macro) macro
#endif

/* The linkage of the public functions; define it yourself if you need another one. */
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
