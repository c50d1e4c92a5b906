/* The implementation, compiled once: the programs beside it only include rlock.h. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
