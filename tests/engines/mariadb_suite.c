/* mariadb_suite.c - what every store must do, on MariaDB and on each loop: suite.h
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include "../../stores/rlock_mariadb.h"
#include "mariadb_kit.h"

#include "suite.h"
