/* loops.h - four loops, as a suite of stores runs on them
 *
 * libev brings functions with the names of libevent's own: link -levent_core before -lev.
 */

#ifndef TESTS_ENGINES_LOOPS_H
#define TESTS_ENGINES_LOOPS_H

#include "rlock_libev.h"
#include "rlock_libevent.h"
#include "rlock_libuv.h"
#include "rlock_poll.h"

struct loop_row {
    const char *name;
    void *(*make)(void);
    rlock_loop (*hooks)(void *loop);
    bool (*turn)(void *loop); /* without waiting; true: something was ready */
    void (*end)(void *loop);
};

static void *poll_make(void) {
    return rlock_poll_new();
}

static rlock_loop poll_hooks(void *loop) {
    return rlock_poll_loop((rlock_poll *)loop);
}

static bool poll_turn(void *loop) {
    return rlock_poll_once((rlock_poll *)loop, 0);
}

static void poll_end(void *loop) {
    rlock_poll_free((rlock_poll *)loop);
}

static void *ev_make(void) {
    return ev_loop_new(EVFLAG_AUTO);
}

static rlock_loop ev_hooks(void *loop) {
    return rlock_libev_loop((struct ev_loop *)loop);
}

static bool ev_turn(void *loop) {
    ev_run((struct ev_loop *)loop, EVRUN_NOWAIT);
    return false;
}

static void ev_end(void *loop) {
    ev_loop_destroy((struct ev_loop *)loop);
}

static uv_prepare_t uv_alive; /* uv_run does nothing on a loop that only idle clients are on */

static void uv_on_alive(uv_prepare_t *handle) {
    (void)handle;
}

static void *uv_make(void) {
    uv_loop_t *loop = (uv_loop_t *)malloc(sizeof *loop);
    assert_int_equal(uv_loop_init(loop), 0);
    uv_prepare_init(loop, &uv_alive);
    uv_prepare_start(&uv_alive, uv_on_alive);
    return loop;
}

static rlock_loop uv_hooks(void *loop) {
    return rlock_libuv_loop((uv_loop_t *)loop);
}

static bool uv_turn(void *loop) {
    uv_run((uv_loop_t *)loop, UV_RUN_NOWAIT);
    return false;
}

static void uv_end(void *loop) {
    uv_close((uv_handle_t *)&uv_alive, NULL);
    uv_run((uv_loop_t *)loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close((uv_loop_t *)loop), 0);
    free(loop);
}

static void *event_make(void) {
    return event_base_new();
}

static rlock_loop event_hooks(void *loop) {
    return rlock_libevent_loop((struct event_base *)loop);
}

static bool event_turn(void *loop) {
    event_base_loop((struct event_base *)loop, EVLOOP_NONBLOCK);
    return false;
}

static void event_end(void *loop) {
    event_base_free((struct event_base *)loop);
}

static const struct loop_row loops[] = {
    {"poll", poll_make, poll_hooks, poll_turn, poll_end},
    {"libev", ev_make, ev_hooks, ev_turn, ev_end},
    {"libuv", uv_make, uv_hooks, uv_turn, uv_end},
    {"libevent", event_make, event_hooks, event_turn, event_end}};

static const struct loop_row *loop_kind;
static void *loop;

static int64_t loop_clock(void) {
    return RLOCK_NOW_US();
}

static void loop_passes(int64_t ms) {
    int64_t end_us = loop_clock() + ms * 1000;
    while (loop_clock() < end_us) {
        if (!loop_kind->turn(loop)) {
            usleep(200);
        }
    }
}

#endif
