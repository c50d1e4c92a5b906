/* ------------------------------------------------------------------------------------------------
 * >>heap - due times in one binary heap; room is reserved ahead, so that setting one cannot fail
 */

#ifndef RLOCK_BASE_HEAP_H
#define RLOCK_BASE_HEAP_H

#include "public/head.h"
#include "public/store.h"
#include "base/platform.h"

#define RLOCK__HEAP_MIN 16u /* what is reserved first, and never given back */

typedef struct rlock__heap {
    rlock_timer **items; /* items[1] is due first; items[0] is not used */
    uint32_t count, room, reserved;
} rlock__heap;

/* Of those that are due at one time the one that was set in an earlier turn. */
static bool rlock__sooner(const rlock_timer *one, const rlock_timer *other) {
    return one->due_us < other->due_us ||
           (one->due_us == other->due_us && (int32_t)(one->iteration - other->iteration) < 0);
}

/* Gives it so much room, which is enough for what is in it. False: no memory. */
static bool rlock__heap_resize(rlock__heap *heap, uint32_t room) {
    rlock_timer **items = (rlock_timer **)RLOCK_MALLOC(room * sizeof *items);
    RLOCK_ASSERT(heap->reserved < room && heap->count <= heap->reserved);
    if (!items) {
        return false;
    }
    if (heap->items) {
        memcpy(items, heap->items, (heap->count + 1) * sizeof *items);
    }
    rlock__dealloc(heap->items);
    heap->items = items;
    heap->room = room;
    return true;
}

static bool rlock__heap_reserve(rlock__heap *heap) {
    RLOCK_ASSERT(heap->count <= heap->reserved);
    if (heap->reserved + 1 >= heap->room &&
        !rlock__heap_resize(heap, heap->room ? heap->room * 2 : RLOCK__HEAP_MIN)) {
        return false;
    }
    heap->reserved++;
    RLOCK_ASSERT(heap->reserved < heap->room);
    return true;
}

/* Gives room back that is not needed any more: not the last of it, since half is soon wanted again.
 * Without memory for less it stays. */
static void rlock__heap_unreserve(rlock__heap *heap) {
    RLOCK_ASSERT(heap->reserved && heap->count < heap->reserved);
    heap->reserved--;
    if (heap->room > RLOCK__HEAP_MIN && heap->reserved < heap->room / 4) {
        (void)rlock__heap_resize(heap, heap->room / 2);
    }
}

static void rlock__heap_put(rlock__heap *heap, uint32_t index, rlock_timer *timer) {
    RLOCK_ASSERT(index && index < heap->room);
    RLOCK_ASSERT(index <= heap->reserved);
    heap->items[index] = timer;
    timer->index = index;
}

static void rlock__heap_rise(rlock__heap *heap, uint32_t index) {
    rlock_timer *timer = heap->items[index];
    RLOCK_ASSERT(index && index <= heap->count);
    RLOCK_ASSERT(heap->count <= heap->reserved);
    while (index > 1 && rlock__sooner(timer, heap->items[index / 2])) {
        rlock__heap_put(heap, index, heap->items[index / 2]);
        index /= 2;
    }
    rlock__heap_put(heap, index, timer);
}

static void rlock__heap_sink(rlock__heap *heap, uint32_t index) {
    rlock_timer *timer = heap->items[index];
    RLOCK_ASSERT(index && index <= heap->count);
    RLOCK_ASSERT(heap->count <= heap->reserved);
    while (index * 2 <= heap->count) {
        uint32_t child = index * 2;
        if (child < heap->count && rlock__sooner(heap->items[child + 1], heap->items[child])) {
            child++;
        }
        if (!rlock__sooner(heap->items[child], timer)) {
            break;
        }
        rlock__heap_put(heap, index, heap->items[child]);
        index = child;
    }
    rlock__heap_put(heap, index, timer);
}

static void rlock__heap_stop(rlock__heap *heap, rlock_timer *timer) {
    uint32_t index = timer->index;
    rlock_timer *last;
    if (!index) {
        return;
    }
    timer->index = 0;
    RLOCK_ASSERT(index <= heap->count && heap->items[index] == timer);
    last = heap->items[heap->count--];
    if (last != timer) {
        rlock__heap_put(heap, index, last);
        rlock__heap_rise(heap, index);
        rlock__heap_sink(heap, last->index);
    }
}

static void rlock__heap_set(rlock__heap *heap, rlock_timer *timer, int64_t due_us) {
    RLOCK_ASSERT(due_us >= 0);
    RLOCK_ASSERT(timer->fire);
    if (timer->index) {
        timer->due_us = due_us;
        rlock__heap_rise(heap, timer->index);
        rlock__heap_sink(heap, timer->index);
    } else {
        RLOCK_ASSERT(heap->count < heap->reserved);
        timer->due_us = due_us;
        heap->count++;
        rlock__heap_put(heap, heap->count, timer);
        rlock__heap_rise(heap, heap->count);
        RLOCK_ASSERT(heap->items[timer->index] == timer);
        RLOCK_ASSERT(heap->items[1] == timer || !rlock__sooner(timer, heap->items[1]));
    }
}

#endif /* RLOCK_BASE_HEAP_H */
