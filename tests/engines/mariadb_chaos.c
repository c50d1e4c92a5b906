/* mariadb_chaos.c - several processes lock the same keys in MariaDB while all goes wrong
 *
 * What happens is in chaos.h. The server's wall clock is not stepped, and its commits are durable
 * against its own death.
 */

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "../../stores/rlock_mariadb.h"
#include "mariadb_kit.h"

#include "chaos.h"
