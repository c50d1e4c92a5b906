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

struct redisAsyncContext;
struct sockaddr;

typedef struct rlock rlock;
typedef struct rlock_client rlock_client;

#endif /* RLOCK_PUBLIC_HEAD_H */
