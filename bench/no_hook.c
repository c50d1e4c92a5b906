/* bench/hook.c where the code of the hook is left out. */
#define RLOCK_MINIMAL
#define RLOCK_WITH_KINDS
#define RLOCK_WITH_URL
#define RLOCK_WITH_NAMES
#define RLOCK_WITH_TLS
#define RLOCK_WITH_SENTINEL
#define RLOCK_WITH_CLUSTER
#define RLOCK_WITH_REPLICAS
#define RLOCK_WITH_REDISSON
#define RLOCK_WITH_QUORUM
#define RLOCK_WITH_MEMORY
#define RLOCK_WITH_TEXTS
#include "hook.c"
