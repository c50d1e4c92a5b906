/* ------------------------------------------------------------------------------------------------
 * >>list - doubly linked lists inside the things they link; an unlinked link points to itself
 */

#ifndef RLOCK_BASE_LIST_H
#define RLOCK_BASE_LIST_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"

static void rlock__list_init(rlock_link *list) {
    list->prev = list->next = list;
}

static bool rlock__list_empty(const rlock_link *list) {
    return list->next == list;
}

static void rlock__list_remove(rlock_link *link) {
    RLOCK_ASSERT(link->prev->next == link && link->next->prev == link);
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = link;
}

RLOCK__NOINLINE static void rlock__list_append(rlock_link *list, rlock_link *link) {
    RLOCK_ASSERT(list->prev->next == list && list->next->prev == list);
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

/* The first thing on a list, or NULL. */
#define RLOCK__FIRST(list, type, member) \
    (rlock__list_empty(list) ? (type *)NULL : RLOCK__OF((list)->next, type, member))

/* Everything in `from` goes to the end of `list`. */
RLOCK__NOINLINE static void rlock__list_move(rlock_link *list, rlock_link *from) {
    RLOCK_ASSERT(list != from);
    RLOCK_ASSERT(from->prev->next == from && list->prev->next == list);
    if (from->next != from) {
        from->next->prev = list->prev;
        list->prev->next = from->next;
        from->prev->next = list;
        list->prev = from->prev;
        from->prev = from->next = from;
    }
}

#endif /* RLOCK_BASE_LIST_H */
