/* zookeeper_suite.c - what every store must do, on ZooKeeper and on each loop: suite.h
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include "../../stores/rlock_zookeeper.h"
#include "zookeeper_kit.h"

#include "suite.h"
