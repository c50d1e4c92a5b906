/* bench/hook.c where the code of the hook is left out. */
#define RLOCK_NO_REPORTS
#include "hook.c"
