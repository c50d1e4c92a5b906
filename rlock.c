/* The code of rlock.h in a file of its own: compiled once, and no other file has to define this. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
