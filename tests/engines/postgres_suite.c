/* postgres_suite.c - what every store must do, on PostgreSQL and on each loop: suite.h
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include "../../stores/rlock_postgres.h"
#include "postgres_kit.h"

#include "suite.h"
