/* One suite for all loops: the same tests on libev, libuv, libevent and rlock_poll.h, and where
 * they are found on GLib, sd-event and uloop.
 *
 * libev brings functions with the names of libevent's own: link -levent_core before -lev.
 * The first half speaks to the adapters alone, as the library would: each promise of the loop
 * contract. The second half runs the library on them, with the store inside the process and with
 * a private server. */
#include "clustered.h"

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

/* The adapters call these instead of the library: they pass the call on, unless a test plays the
 * library. */
static void heard_io(rlock_io *io, unsigned events);
static void heard_timer(rlock_client *client);
static void heard_resolved_all(rlock_name *name, const struct sockaddr *const *addresses,
                               unsigned count);
#define rlock_on_io heard_io
#define rlock_on_timer heard_timer
#define rlock_on_resolved_all heard_resolved_all

/* And they ask for memory, or a loop for a watcher, through these: a test says which wish is
 * refused. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>
#ifdef HAVE_GLIB
#include <glib-unix.h>
#endif
#ifdef HAVE_SD_EVENT
#include <systemd/sd-event.h>
#endif
#ifdef HAVE_ULOOP
#include <libubox/uloop.h>
#endif

static bool refused(void);

static void *wish_malloc(size_t size) {
    return refused() ? NULL : malloc(size);
}

static void *wish_calloc(size_t n, size_t size) {
    return refused() ? NULL : calloc(n, size);
}

static void *wish_realloc(void *memory, size_t size) {
    return refused() ? NULL : realloc(memory, size);
}

static int wish_uv_poll_init(uv_loop_t *on, uv_poll_t *poll, int fd) {
    return refused() ? UV_EMFILE : uv_poll_init(on, poll, fd);
}

static int wish_uv_poll_start(uv_poll_t *poll, int events, uv_poll_cb call) {
    return refused() ? UV_EBADF : uv_poll_start(poll, events, call);
}

static int wish_uv_getaddrinfo(uv_loop_t *on, uv_getaddrinfo_t *request, uv_getaddrinfo_cb call,
                               const char *host, const char *service,
                               const struct addrinfo *hints) {
    return refused() ? UV_ENOMEM : uv_getaddrinfo(on, request, call, host, service, hints);
}

#ifdef HAVE_SD_EVENT
static int sd_sources; /* that the adapter made, and that are not freed yet */

static void sd_source_is_freed(void *data) {
    (void)data;
    sd_sources--;
}

static int sd_counted(int status, sd_event_source *const *source) {
    if (status >= 0) {
        sd_sources++;
        sd_event_source_set_destroy_callback(*source, sd_source_is_freed);
    }
    return status;
}

static int wish_sd_event_add_io(sd_event *event, sd_event_source **source, int fd, uint32_t events,
                                sd_event_io_handler_t call, void *data) {
    return refused() ? -ENOMEM
                     : sd_counted(sd_event_add_io(event, source, fd, events, call, data), source);
}

static int wish_sd_event_add_time(sd_event *event, sd_event_source **source, clockid_t which,
                                  uint64_t us, uint64_t accuracy, sd_event_time_handler_t call,
                                  void *data) {
    int status =
        refused() ? -ENOMEM : sd_event_add_time(event, source, which, us, accuracy, call, data);

    return sd_counted(status, source);
}
#endif

#ifdef HAVE_ULOOP
static int wish_uloop_fd_add(struct uloop_fd *fd, unsigned flags) {
    return refused() ? -1 : uloop_fd_add(fd, flags);
}
#endif

static int wish_pipe(int *ends) {
    return refused() ? -1 : pipe(ends);
}

/* The threads of rlock_resolve.h are counted until nothing of them is left. */
static int helpers;

typedef struct helper {
    void *(*run)(void *);
    void *arg;
} helper;

static void *run_helper(void *arg) {
    helper it = *(helper *)arg;

    free(arg);
    it.run(it.arg);
    __atomic_sub_fetch(&helpers, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int wish_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                               void *arg) {
    helper *it;

    if (refused()) {
        return EAGAIN;
    }
    it = malloc(sizeof *it);
    it->run = run;
    it->arg = arg;
    __atomic_add_fetch(&helpers, 1, __ATOMIC_SEQ_CST);
    return pthread_create(thread, how, run_helper, it);
}

#define malloc wish_malloc
#define calloc wish_calloc
#define realloc wish_realloc
#define uv_poll_init wish_uv_poll_init
#define uv_poll_start wish_uv_poll_start
#define uv_getaddrinfo wish_uv_getaddrinfo
#define pipe wish_pipe
#define pthread_create wish_pthread_create
#include "rlock_libev.h"
enum { LIBEV_READ = EV_READ }; /* libevent has macros of the same names, with other values */
#include <event2/event.h>

static struct event *wish_event_new(struct event_base *base, evutil_socket_t fd, short what,
                                    event_callback_fn call, void *arg) {
    return refused() ? NULL : event_new(base, fd, what, call, arg);
}

static int wish_event_add(struct event *event, const struct timeval *delay) {
    return refused() ? -1 : event_add(event, delay);
}

#define event_new wish_event_new
#define event_add wish_event_add
#include "rlock_libevent.h"
#include "rlock_libuv.h"
#include "rlock_poll.h"
#ifdef HAVE_GLIB
#include "rlock_glib.h"
#endif
#ifdef HAVE_SD_EVENT
#define sd_event_add_io wish_sd_event_add_io
#define sd_event_add_time wish_sd_event_add_time
#include "rlock_sd_event.h"
#undef sd_event_add_io
#undef sd_event_add_time
#endif
#ifdef HAVE_ULOOP
#define uloop_fd_add wish_uloop_fd_add
#include "rlock_uloop.h"
#undef uloop_fd_add
#endif
#undef malloc
#undef calloc
#undef realloc
#undef event_new
#undef event_add
#undef uv_poll_init
#undef uv_poll_start
#undef uv_getaddrinfo
#undef pipe
#undef pthread_create
#undef rlock_on_io
#undef rlock_on_timer
#undef rlock_on_resolved_all
#include "rlock_loop_check.h"

#ifndef PATIENCE_US
#define PATIENCE_US 20000000 /* what has not happened by then does not happen */
#endif
#define TURN_MS 20

static int64_t clock_us(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ------------------------------------------------------------------------------------------------
 * The loops, seen alike
 */

typedef struct kind {
    const char *name;
    void *(*make)(void);
    rlock_loop (*hooks)(void *loop);
    void (*turn)(void *loop); /* one turn, of at most some TURN_MS */
    void (*iteration_inside)(
        void *loop); /* ... inside of a callback; NULL = it must not be run there */
    void (*listen)(void *loop, int fd,
                   void (*ready)(void)); /* a descriptor of the program's own; -1 = no more */
    bool (*runs_out)(void *loop);        /* its own run function finds nothing left */
    bool (*alive)(void *loop); /* it would go on by itself; NULL = it does so in any case */
    void (*free)(void *loop);
} kind;

static void (*foreign_ready)(void);

static ev_timer ev_guard;
static ev_io ev_foreign;
static bool ev_guarded;

static void ev_on_guard(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)timer, (void)revents;
    ev_guarded = true;
    ev_break(loop, EVBREAK_ALL);
}

static void ev_on_foreign(struct ev_loop *loop, ev_io *io, int revents) {
    (void)loop, (void)io, (void)revents;
    foreign_ready();
}

static void *ev_make(void) {
    ev_init(&ev_foreign, ev_on_foreign);
    return ev_loop_new(EVFLAG_AUTO);
}

static rlock_loop ev_hooks(void *loop) {
    return rlock_libev_loop(loop);
}

static void ev_guarded_run(void *loop, double seconds, bool once) {
    ev_guarded = false;
    ev_timer_init(&ev_guard, ev_on_guard, seconds, 0.);
    ev_now_update(loop);
    ev_timer_start(loop, &ev_guard);
    if (!once) {
        ev_unref(loop);
    }
    ev_run(loop, once ? EVRUN_ONCE : 0);
    if (!once) {
        ev_ref(loop);
    }
    ev_timer_stop(loop, &ev_guard);
}

static void ev_iterates(void *loop) {
    ev_guarded_run(loop, TURN_MS * 1e-3, true);
}

static void ev_on_nothing(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop, (void)timer, (void)revents;
}

static void ev_iterates_inside(void *loop) {
    ev_timer limit;

    ev_timer_init(&limit, ev_on_nothing, TURN_MS * 1e-3, 0.);
    ev_now_update(loop);
    ev_timer_start(loop, &limit);
    ev_run(loop, EVRUN_ONCE);
    ev_timer_stop(loop, &limit);
}

static void ev_listen(void *loop, int fd, void (*ready)(void)) {
    ev_io_stop(loop, &ev_foreign);
    foreign_ready = ready;
    if (fd >= 0) {
        ev_io_set(&ev_foreign, fd, LIBEV_READ);
        ev_io_start(loop, &ev_foreign);
    }
}

static bool ev_runs_out(void *loop) {
    ev_guarded_run(loop, PATIENCE_US / 1e6, false);
    return !ev_guarded;
}

static bool ev_alive(void *loop) {
    return ev_run(loop, EVRUN_NOWAIT) != 0;
}

static void ev_free_loop(void *loop) {
    ev_loop_destroy(loop);
}

static uv_timer_t uv_guard;
static uv_poll_t *uv_foreign;
static bool uv_guarded;

static void uv_on_guard(uv_timer_t *timer) {
    uv_guarded = true;
    uv_stop(timer->loop);
}

static void uv_on_foreign(uv_poll_t *poll, int status, int events) {
    (void)poll, (void)status, (void)events;
    foreign_ready();
}

static void *uv_make(void) {
    uv_loop_t *loop = malloc(sizeof *loop);

    uv_loop_init(loop);
    uv_timer_init(loop, &uv_guard);
    return loop;
}

static rlock_loop uv_hooks(void *loop) {
    return rlock_libuv_loop(loop);
}

static void uv_iterates(void *loop) {
    uv_timer_start(&uv_guard, uv_on_guard, TURN_MS, 0);
    uv_run(loop, UV_RUN_ONCE);
    uv_timer_stop(&uv_guard);
}

static void uv_free_handle(uv_handle_t *handle) {
    free(handle);
}

static void uv_listen_to(void *loop, int fd, void (*ready)(void)) {
    if (uv_foreign != NULL) {
        uv_close((uv_handle_t *)uv_foreign, uv_free_handle);
        uv_foreign = NULL;
    }
    foreign_ready = ready;
    if (fd >= 0) {
        uv_foreign = malloc(sizeof *uv_foreign);
        uv_poll_init(loop, uv_foreign, fd);
        uv_poll_start(uv_foreign, UV_READABLE, uv_on_foreign);
    }
}

static bool uv_runs_out(void *loop) {
    uv_guarded = false;
    uv_update_time(loop);
    uv_timer_start(&uv_guard, uv_on_guard, PATIENCE_US / 1000, 0);
    uv_unref((uv_handle_t *)&uv_guard);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_ref((uv_handle_t *)&uv_guard);
    uv_timer_stop(&uv_guard);
    return !uv_guarded;
}

static bool uv_alive(void *loop) {
    uv_run(loop, UV_RUN_NOWAIT); /* what is being closed is alive until then */
    return uv_loop_alive(loop) != 0;
}

static void uv_free_loop(void *loop) {
    uv_close((uv_handle_t *)&uv_guard, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0); /* it refuses while a handle or a request is left */
    free(loop);
}

static struct event *le_foreign;

static void le_on_foreign(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what, (void)arg;
    foreign_ready();
}

static void *le_make(void) {
    struct event_config *config = event_config_new();
    struct event_base *base;

    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static rlock_loop le_hooks(void *loop) {
    return rlock_libevent_loop(loop);
}

static void le_iterates(void *loop) {
    const struct timeval guard = {0, TURN_MS * 1000};

    event_base_loopexit(loop, &guard);
    event_base_loop(loop, EVLOOP_ONCE);
}

static void le_listen(void *loop, int fd, void (*ready)(void)) {
    if (le_foreign != NULL) {
        event_free(le_foreign);
        le_foreign = NULL;
    }
    foreign_ready = ready;
    if (fd >= 0) {
        le_foreign = event_new(loop, fd, EV_READ | EV_PERSIST, le_on_foreign, NULL);
        event_add(le_foreign, NULL);
    }
}

static bool le_runs_out(void *loop) {
    int64_t limit_us = clock_us() + PATIENCE_US;

    while (clock_us() < limit_us) {
        if (event_base_loop(loop, EVLOOP_NONBLOCK) == 1) { /* no events are left */
            return true;
        }
    }
    return false;
}

static void le_free_loop(void *loop) {
    event_base_free(loop);
}

static rlock_io poll_foreign;

static void poll_on_foreign(rlock_io *io, unsigned events) {
    (void)io, (void)events;
    foreign_ready();
}

static void *poll_make(void) {
    memset(&poll_foreign, 0, sizeof poll_foreign);
    poll_foreign.ready = poll_on_foreign;
    return rlock_poll_new();
}

static rlock_loop poll_hooks(void *loop) {
    return rlock_poll_loop(loop);
}

static void poll_iterates(void *loop) {
    rlock_poll_once(loop, TURN_MS);
}

static void poll_listen(void *loop, int fd, void (*ready)(void)) {
    foreign_ready = ready;
    rlock_poll_watch(loop, &poll_foreign, fd, fd >= 0 ? RLOCK_IO_READ : 0);
}

static bool poll_runs_out(void *loop) {
    int64_t limit_us = clock_us() + PATIENCE_US;

    while (clock_us() < limit_us) {
        if (!rlock_poll_alive(loop)) {
            return !rlock_poll_once(loop, -1); /* without a limit it would wait for ever */
        }
        rlock_poll_once(loop, 10);
    }
    return false;
}

static bool poll_alive(void *loop) {
    return rlock_poll_alive(loop);
}

static void poll_free_loop(void *loop) {
    rlock_poll_free(loop);
}

#ifdef WITH_ASIO /* by loops_asio.cc: the others are not there */
void *asio_make(void);
rlock_loop asio_hooks(void *loop);
void asio_iterates(void *loop);
void asio_listen(void *loop, int fd, void (*ready)(void));
bool asio_runs_out(void *loop);
void asio_free_loop(void *loop);

extern int asio_heard; /* calls into the suite */
int asio_heard;
bool asio_refused(void);
void asio_heard_io(rlock_io *io, unsigned events);
void asio_heard_timer(rlock_client *client);
void *asio_wish_malloc(size_t size);
void *asio_wish_calloc(size_t n, size_t size);
int asio_wish_pipe(int *ends);
int asio_wish_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                             void *arg);

bool asio_refused(void) {
    return refused();
}

void asio_heard_io(rlock_io *io, unsigned events) {
    asio_heard++;
    heard_io(io, events);
}

void asio_heard_timer(rlock_client *client) {
    asio_heard++;
    heard_timer(client);
}

void *asio_wish_malloc(size_t size) {
    return wish_malloc(size);
}

void *asio_wish_calloc(size_t n, size_t size) {
    return wish_calloc(n, size);
}

int asio_wish_pipe(int *ends) {
    return wish_pipe(ends);
}

int asio_wish_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                             void *arg) {
    return wish_pthread_create(thread, how, run, arg);
}
#endif

#include "loops_more.h"

/* The last one is that of rlock_poll.h: what is tried on one loop only is tried on that. */
static const kind kinds[] = {
#ifdef WITH_ASIO
    {"asio", asio_make, asio_hooks, asio_iterates, asio_iterates, asio_listen, asio_runs_out, NULL,
     asio_free_loop},
#endif
    {"libev", ev_make, ev_hooks, ev_iterates, ev_iterates_inside, ev_listen, ev_runs_out, ev_alive,
     ev_free_loop},
    {"libuv", uv_make, uv_hooks, uv_iterates, NULL, uv_listen_to, uv_runs_out, uv_alive,
     uv_free_loop},
    {"libevent", le_make, le_hooks, le_iterates, NULL, le_listen, le_runs_out, NULL, le_free_loop},
#ifdef HAVE_GLIB
    {"glib", glib_make, glib_hooks, glib_iterates, glib_iterates, glib_listen, glib_runs_out, NULL,
     glib_free_loop},
#endif
#ifdef HAVE_SD_EVENT
    {"sd-event", sd_make, sd_hooks, sd_iterates, NULL, sd_listen, sd_runs_out, NULL, sd_free_loop},
#endif
#ifdef HAVE_ULOOP
    {"uloop", uloop_make, uloop_hooks, uloop_iterates, uloop_iterates, uloop_listen, uloop_runs_out,
     NULL, uloop_free_loop},
#endif
    {"poll", poll_make, poll_hooks, poll_iterates, poll_iterates, poll_listen, poll_runs_out,
     poll_alive, poll_free_loop},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* The loop under test. */
static const kind *now_on;
static void *loop;
static rlock_loop hooks;

static bool pass(bool done, int64_t *limit_us) {
    if (done) {
        return false;
    }
    *limit_us = *limit_us != 0 ? *limit_us : clock_us() + PATIENCE_US;
    assert_true(clock_us() < *limit_us);
    now_on->turn(loop);
    return true;
}

/* Turns until the condition holds; fails if it never does. */
#define UNTIL(condition)                        \
    do {                                        \
        int64_t limit_us_ = 0;                  \
        while (pass((condition), &limit_us_)) { \
        }                                       \
    } while (0)

static void some_iterations(int n) {
    while (n-- > 0) {
        now_on->turn(loop);
    }
}

/* ------------------------------------------------------------------------------------------------
 * The adapters alone. A test plays the library: it calls the hooks and hears what the loop calls.
 */

static bool playing;              /* a test plays the library */
static char trail[64];            /* who was called: t = timer, a and b = descriptors */
static unsigned trail_events[64]; /* and for a descriptor, with what */
static size_t trail_len;
static void (*then)(char who); /* what the library would do in the call */
static void *hooked;           /* the state of the hooks */
static rlock_io io_a, io_b;
static int pipe_a[2], pipe_b[2];
static int a_client; /* stands for a client: the adapters only pass it on */
static int names_heard;

static void heard(char who, unsigned events) {
    if (trail_len < sizeof trail - 1) {
        trail_events[trail_len] = events;
        trail[trail_len++] = who;
    }
    if (then != NULL) {
        then(who);
    }
}

static void faulty_io(rlock_io *io, unsigned events);
static void faulty_timer(rlock_client *client);

static void heard_io(rlock_io *io, unsigned events) {
    if (!playing) {
        faulty_io(io, events);
    } else if (io != &io_a && io != &io_b) {
        io->ready(io, events); /* of a name */
    } else {
        heard(io == &io_a ? 'a' : 'b', events);
    }
}

static void heard_timer(rlock_client *client) {
    if (!playing) {
        faulty_timer(client);
    } else {
        assert_ptr_equal(client, &a_client);
        heard('t', 0);
    }
}

static void heard_resolved_all(rlock_name *name, const struct sockaddr *const *addresses,
                               unsigned count) {
    if (!playing) {
        rlock_on_resolved_all(name, addresses, count);
    } else {
        name->resolved(name, addresses, count);
    }
}

static int setup(void **state) {
    now_on = *state;
    loop = now_on->make();
    hooks = now_on->hooks(loop);
    return loop == NULL || pipe(pipe_a) != 0 || pipe(pipe_b) != 0;
}

static void resolver_hold(bool held);

static bool helpers_end(void) {
    int64_t limit_us = clock_us() + PATIENCE_US;

    while (__atomic_load_n(&helpers, __ATOMIC_SEQ_CST) != 0 && clock_us() < limit_us) {
        server_sleep_ms(1);
    }
    return clock_us() < limit_us;
}

/* Every test ends here: whatever was done, the loop has nothing left and its run returns. */
static int teardown(void **state) {
    bool out;
    int i;

    (void)state;
    resolver_hold(false);
    now_on->listen(loop, -1, NULL);
    out = now_on->runs_out(loop);
    now_on->free(loop);
    for (i = 0; i < 2; i++) {
        close(pipe_a[i]);
        close(pipe_b[i]);
    }
    if (!out) {
        fprintf(stderr, "%s: something is left in the loop\n", now_on->name);
    }
    return !out || !helpers_end();
}

static int setup_alone(void **state) {
    memset(&io_a, 0, sizeof io_a);
    memset(&io_b, 0, sizeof io_b);
    io_a.client = io_b.client = (rlock_client *)(void *)&a_client;
    memset(trail, 0, sizeof trail);
    trail_len = 0;
    names_heard = 0;
    then = NULL;
    playing = true;
    if (setup(state) != 0) {
        return -1;
    }
    hooked = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
    return hooked == NULL;
}

static int teardown_alone(void **state) {
    size_t before = trail_len;
    int failed;

    then = NULL;
    hooks.watch(hooked, &io_a, pipe_a[0], 0);
    hooks.watch(hooked, &io_b, pipe_b[0], 0);
    hooks.close(hooked);
    failed = teardown(state);
    playing = false;
    return failed != 0 || trail_len != before; /* after close() nothing is called */
}

static void fill(const int *ends) {
    assert_int_equal(write(ends[1], "x", 1), 1);
}

static void drain(const int *ends) {
    char byte;

    assert_int_equal(read(ends[0], &byte, 1), 1);
}

static void zero_timer_in_its_own_callback(char who) {
    if (who == 't') {
        hooks.set_timer(hooked, 0);
    }
}

static void drain_what_is_ready(char who) {
    if (who != 't') {
        drain(who == 'a' ? pipe_a : pipe_b);
    }
}

static void zero_timer_comes_after_a_look(void **state) {
    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    assert_int_equal(hooks.watch(hooked, &io_b, pipe_b[0], RLOCK_IO_READ), 0);
    then = drain_what_is_ready;
    hooks.set_timer(hooked, 0);
    fill(pipe_a); /* behind the timer, and before the loop looks */
    fill(pipe_b);
    UNTIL(strchr(trail, 't') != NULL);
    assert_true(strcmp(trail, "abt") == 0 || strcmp(trail, "bat") == 0);
}

static void zero_timer_in_its_own_callback_lets_others_in(void **state) {
    const char *at;

    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    fill(pipe_a);
    then = zero_timer_in_its_own_callback;
    hooks.set_timer(hooked, 0);
    UNTIL(trail_len > 20);
    for (at = trail; at[1] != '\0'; at++) {
        assert_false(at[0] == 't' && at[1] == 't'); /* between two timers there was a look */
    }
    hooks.set_timer(hooked, -1);
}

static void zero_timer_and_a_byte(char who) {
    drain_what_is_ready(who);
    if (who == 'a') {
        hooks.set_timer(hooked, 0);
        fill(pipe_b);
    }
}

static void zero_timer_set_after_a_look_waits_for_the_next(void **state) {
    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    assert_int_equal(hooks.watch(hooked, &io_b, pipe_b[0], RLOCK_IO_READ), 0);
    then = zero_timer_and_a_byte;
    fill(pipe_a);
    UNTIL(strchr(trail, 't') != NULL);
    assert_string_equal(trail, "abt");
}

static void drains_and_turns(char who) {
    drain(who == 'a' ? pipe_a : pipe_b);
    if (who == 'a') {
        now_on->iteration_inside(loop);
    }
}

/* The look before was that of the turn around it: what it found is served already. */
static void descriptor_that_a_turn_inside_has_served_is_not_served_again(void **state) {
    (void)state;
    if (now_on->iteration_inside == NULL) {
        return;
    }
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    assert_int_equal(hooks.watch(hooked, &io_b, pipe_b[0], RLOCK_IO_READ), 0);
    then = drains_and_turns;
    fill(pipe_a);
    fill(pipe_b);
    UNTIL(trail_len >= 2);
    some_iterations(2);
    assert_true(strcmp(trail, "ab") == 0 || strcmp(trail, "ba") == 0);
}

static void zero_timer_from_io(char who) {
    if (who == 'a') {
        hooks.set_timer(hooked, 0);
    }
}

static void zero_timer_asked_for_in_every_turn_still_comes(void **state) {
    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    fill(pipe_a);
    then = zero_timer_from_io;
    UNTIL(strchr(trail, 't') != NULL);
    hooks.set_timer(hooked, -1);
}

static int ticks;

static void count_ticks(char who) {
    ticks += who == 't';
}

static void timer_is_not_early_and_not_twice(void **state) {
    int64_t since_us;

    (void)state;
    now_on->turn(loop); /* the loop has a cached time now, and it grows old */
    server_sleep_ms(60);
    since_us = clock_us();
    hooks.set_timer(hooked, 1); /* replaced */
    hooks.set_timer(hooked, 40001);
    UNTIL(trail_len > 0);
    assert_true(clock_us() - since_us >= 40001);
    some_iterations(3);
    assert_int_equal(trail_len, 1);
    then = count_ticks;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    fill(pipe_a); /* now the loop never sleeps, and looks at its clock all the time */
    for (ticks = 0; ticks < 40;) {
        int before = ticks;

        since_us = clock_us();
        hooks.set_timer(hooked, 1000);
        UNTIL(ticks > before);
        assert_true(clock_us() - since_us >= 1000);
    }
}

static void age_and_set(char who) {
    if (who == 'a') {
        drain(pipe_a);
        server_sleep_ms(
            60); /* the program computes: what the loop believes to be now is long past */
        hooks.set_timer(hooked, 40001);
        fill(pipe_b);
        then = NULL;
    }
}

static void timer_is_not_early_after_a_long_callback(void **state) {
    int64_t since_us;

    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    then = age_and_set;
    fill(pipe_a);
    since_us = clock_us();
    UNTIL(strchr(trail, 't') != NULL);
    assert_true(clock_us() - since_us >= 60000 + 40001);
}

static void timer_can_be_stopped(void **state) {
    (void)state;
    hooks.set_timer(hooked, 0);
    hooks.set_timer(hooked, -1);
    some_iterations(3);
    hooks.set_timer(hooked, 1000);
    hooks.set_timer(hooked, -1);
    some_iterations(3);
    assert_int_equal(trail_len, 0);
}

static void descriptor_is_level_triggered(void **state) {
    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    fill(pipe_a);
    UNTIL(trail_len >= 3); /* nobody reads, so it is told again */
    assert_int_equal(trail_events[0], RLOCK_IO_READ);
    drain(pipe_a);
    now_on->turn(loop);
    trail_len = 0;
    some_iterations(2);
    assert_int_equal(trail_len, 0);
}

static void what_is_watched_can_change(void **state) {
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(hooks.watch(hooked, &io_a, pair[0], RLOCK_IO_READ), 0);
    some_iterations(2);
    assert_int_equal(trail_len, 0);
    assert_int_equal(hooks.watch(hooked, &io_a, pair[0], RLOCK_IO_READ | RLOCK_IO_WRITE), 0);
    UNTIL(trail_len > 0);
    assert_int_equal(trail_events[0], RLOCK_IO_WRITE);
    assert_int_equal(hooks.watch(hooked, &io_a, pair[0], RLOCK_IO_READ), 0);
    trail_len = 0;
    some_iterations(2);
    assert_int_equal(trail_len, 0);
    fill((int[]){-1, pair[1]});
    UNTIL(trail_len > 0);
    assert_int_equal(trail_events[0], RLOCK_IO_READ);
    hooks.watch(hooked, &io_a, pair[0], 0);
    close(pair[0]);
    close(pair[1]);
}

/* libuv needs the descriptor to be taken out of the kernel's set before it is closed, and the
 * number to be free again. */
static void forgotten_descriptor_number_can_be_watched_again(void **state) {
    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    some_iterations(1);
    hooks.watch(hooked, &io_a, pipe_a[0], 0);
    assert_int_equal(dup2(pipe_b[0], pipe_a[0]), pipe_a[0]);
    assert_int_equal(hooks.watch(hooked, &io_b, pipe_a[0], RLOCK_IO_READ), 0);
    fill(pipe_b);
    UNTIL(trail_len > 0);
    assert_int_equal(trail[0], 'b');
    hooks.watch(hooked, &io_b, pipe_a[0], 0);
}

/* As inside a call of a database's library, which may close its socket and open another one. */
static void change_under_the_number(char who) {
    assert_int_equal(who, 'a');
    then = NULL;
    hooks.watch(hooked, &io_a, pipe_a[0], 0);
    assert_int_equal(dup2(pipe_b[0], pipe_a[0]), pipe_a[0]);
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
}

static void descriptor_that_changes_under_its_number_is_watched_again(void **state) {
    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    then = change_under_the_number;
    fill(pipe_a);
    UNTIL(trail_len > 0);
    some_iterations(3);
    assert_int_equal(trail_len, 1); /* what the other one had is gone with it */
    fill(pipe_b);
    UNTIL(trail_len > 1);
    assert_int_equal(trail[1], 'a');
}

static void forget_both(char who) {
    (void)who;
    hooks.watch(hooked, &io_a, pipe_a[0], 0);
    hooks.watch(hooked, &io_b, pipe_b[0], 0);
}

static void forgotten_descriptor_is_silent_even_if_fetched(void **state) {
    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    assert_int_equal(hooks.watch(hooked, &io_b, pipe_b[0], RLOCK_IO_READ), 0);
    fill(pipe_a);
    fill(pipe_b);
    then =
        forget_both; /* whichever comes first forgets the other, whose event was fetched with it */
    UNTIL(trail_len > 0);
    some_iterations(3);
    assert_int_equal(trail_len, 1);
    assert_int_not_equal(fcntl(pipe_a[0], F_GETFD), -1); /* it is the library's to close */
    assert_int_not_equal(fcntl(pipe_b[0], F_GETFD), -1);
}

static void hangup_and_error_are_everything_watched(void **state) {
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    close(pair[1]);
    assert_int_equal(hooks.watch(hooked, &io_a, pair[0], RLOCK_IO_READ | RLOCK_IO_WRITE), 0);
    UNTIL(trail_len >= 2); /* and again: it stays so until it is forgotten */
    assert_int_equal(trail_events[0], RLOCK_IO_READ | RLOCK_IO_WRITE);
    assert_int_equal(trail_events[1], RLOCK_IO_READ | RLOCK_IO_WRITE);
    hooks.watch(hooked, &io_a, pair[0], 0);
    close(pair[0]);
    trail_len = 0;

    close(pipe_b[0]); /* a pipe without a reader is in error */
    assert_int_equal(hooks.watch(hooked, &io_b, pipe_b[1], RLOCK_IO_READ | RLOCK_IO_WRITE), 0);
    UNTIL(trail_len >= 2);
    assert_int_equal(trail_events[0], RLOCK_IO_READ | RLOCK_IO_WRITE);
    assert_int_equal(trail_events[1], RLOCK_IO_READ | RLOCK_IO_WRITE);
    hooks.watch(hooked, &io_b, pipe_b[1], 0);
    pipe_b[0] = dup(pipe_b[1]);
}

static void close_and_open(char who) {
    (void)who;
    hooks.watch(hooked, &io_a, pipe_a[0], 0);
    hooks.watch(hooked, &io_b, pipe_b[0], 0);
    hooks.close(hooked);
    hooked = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
}

static void close_from_its_own_callbacks(void **state) {
    (void)state;
    then = close_and_open;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    assert_int_equal(hooks.watch(hooked, &io_b, pipe_b[0], RLOCK_IO_READ), 0);
    fill(pipe_a);
    fill(pipe_b);
    hooks.set_timer(hooked, 0);
    UNTIL(trail_len > 0);
    some_iterations(3);
    assert_int_equal(trail_len, 1); /* neither the other descriptor nor the timer */
    hooks.set_timer(hooked, 1000);
    UNTIL(trail_len == 2);
    hooks.set_timer(hooked, 0);
    UNTIL(trail_len == 3);
    some_iterations(3);
    assert_int_equal(trail_len, 3);
}

static void *second; /* the state of another client */

static void close_both(char who) {
    (void)who;
    hooks.close(hooked);
    hooks.close(second);
    hooked = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
}

static void close_of_others_from_a_callback(void **state) {
    (void)state;
    second = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
    assert_non_null(second);
    then = close_both;
    hooks.set_timer(hooked, 0);
    hooks.set_timer(second, 0); /* due in the same turn */
    UNTIL(trail_len > 0);
    then = NULL;
    some_iterations(3);
    assert_int_equal(trail_len, 1);
}

static int refuse_in; /* the how manyth wish from here on is refused; 0 = none */

static bool refused(void) {
    return refuse_in > 0 && --refuse_in == 0;
}

/* Refuses each wish of a call in turn, until the call has all that it wants. */
static bool refuse_next(int *n) {
    bool more = *n == 0 || refuse_in == 0;

    refuse_in = more ? ++*n : 0;
    return more;
}

static void open_without_memory_fails_and_leaves_nothing(void **state) {
    int n = 0, failed = 0;

    (void)state;
    while (refuse_next(&n)) {
        void *other = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);

        assert_int_equal(other == NULL, refuse_in == 0);
        failed += other == NULL;
        if (other != NULL) {
            hooks.close(other);
        }
    }
    assert_true(failed >= 1 || strcmp(now_on->name, "glib") == 0); /* which aborts the program */
}

/* The connection is given up, and watch(0) follows; the next one is watched again. */
static void watch_that_fails_says_so_and_leaves_nothing(void **state) {
    int n = 0, failed = 0;

    (void)state;
    fill(pipe_a);
    while (refuse_next(&n)) {
        int status = hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ);

        assert_int_equal(status < 0, refuse_in == 0);
        if (status < 0) {
            failed++;
            some_iterations(2);
            assert_int_equal(trail_len, 0);
        } else {
            UNTIL(trail_len > 0);
        }
        assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], 0), 0);
    }
    assert_int_equal(failed > 0, strcmp(now_on->name, "poll") != 0 || n > 1);
}

/* With what libevent lacks, a timer comes too early, before the descriptors even; it does come. */
static void timer_cannot_be_refused(void **state) {
    int n = 0;

    (void)state;
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    while (refuse_next(&n)) {
        bool whole;

        fill(pipe_a);
        trail_len = 0;
        memset(trail, 0, sizeof trail);
        hooks.set_timer(hooked, 0);
        whole = refuse_in > 0;
        UNTIL(strchr(trail, 't') != NULL);
        assert_true(!whole || trail[0] == 'a');
        drain(pipe_a);
    }
}

static void stop_the_run(char who) {
    (void)who;
    rlock_poll_stop((rlock_poll *)loop);
}

/* Of rlock_poll.h alone: the other loops have a run function of their own. */
static void poll_runs_until_it_is_stopped_or_has_nothing_left(void **state) {
    if (*state != &kinds[KINDS - 1]) {
        return;
    }
    then = stop_the_run;
    hooks.set_timer(hooked, 0);
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    rlock_poll_run((rlock_poll *)loop);
    assert_string_equal(trail, "t"); /* a descriptor is still watched */
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], 0), 0);
    then = NULL;
    hooks.set_timer(hooked, 0);
    rlock_poll_run((rlock_poll *)loop);
    assert_string_equal(trail, "tt");
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], RLOCK_IO_READ), 0);
    hooks.idle(hooked, true);
    rlock_poll_run((rlock_poll *)loop); /* a client that is idle is nothing to wait for */
    hooks.idle(hooked, false);
    assert_int_equal(hooks.watch(hooked, &io_a, pipe_a[0], 0), 0);
    assert_string_equal(trail, "tt");
}

/* ------------------------------------------------------------------------------------------------
 * The library on each loop
 */

static struct server server;
static rlock_store *memory;

typedef struct note { /* what an owner was told */
    int count, kind, status, reason;
} note;

static void take_note(rlock *lock, const rlock_event *event, void *user) {
    note *n = user;

    (void)lock;
    n->count++;
    n->kind = (int)event->kind;
    n->status = event->status;
    n->reason = (int)event->reason;
}

static void note_shutdown(rlock_client *client, int status, void *user) {
    (void)client;
    ((note *)user)->count++;
    ((note *)user)->status = status;
}

static rlock_client *new_client(const rlock_store *store, int64_t watchdog_ms) {
    rlock_config config;
    rlock_client *client = NULL;

    memset(&config, 0, sizeof config);
    config.loop = hooks;
    config.unix_path = server.socket;
    config.store = store;
    config.watchdog_lease_ms = watchdog_ms;
    config = clustered_config(&config);
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    return client;
}

static rlock *new_lock(rlock_client *client, const char *key, note *lost) {
    rlock_options options;
    rlock *lock = NULL;

    memset(&options, 0, sizeof options);
    options.key = key;
    options.on_lost = lost != NULL ? take_note : NULL;
    options.user = lost;
    assert_int_equal(rlock_new(&lock, client, &options), RLOCK_OK);
    return lock;
}

static int setup_library(void **state) {
    char reply[16];

    server_cli(&server, reply, sizeof reply, "FLUSHALL");
    return setup(state) != 0 || rlock_memory_new(&memory) != RLOCK_OK;
}

static int teardown_library(void **state) {
    int failed = teardown(state);

    rlock_memory_free(memory);
    return failed;
}

static void round_trip(const rlock_store *store) {
    rlock_client *client = new_client(store, 0);
    rlock_client *other = new_client(store, 0);
    note got = {0}, renewed = {0}, released = {0}, lost = {0}, refused = {0};
    rlock *lock = new_lock(client, "round", &lost);
    rlock *rival = new_lock(other, "round", NULL);

    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    assert_int_equal(got.count, 0); /* never inside a call */
    UNTIL(got.count > 0);
    assert_int_equal(got.status, RLOCK_OK);
    assert_true(rlock_is_held(lock));
    assert_int_equal(rlock_renew(lock, 0, take_note, &renewed), RLOCK_OK);
    UNTIL(renewed.count > 0);
    assert_int_equal(renewed.status, RLOCK_OK);
    assert_int_equal(rlock_acquire(rival, 0, 0, take_note, &refused), RLOCK_OK);
    UNTIL(refused.count > 0);
    assert_int_equal(refused.status, RLOCK_ERR_BUSY);
    assert_int_equal(rlock_release(lock, take_note, &released), RLOCK_OK);
    assert_false(rlock_is_held(lock));
    UNTIL(released.count > 0);
    assert_int_equal(released.status, RLOCK_OK);
    refused.count = 0;
    assert_int_equal(rlock_acquire(rival, 0, 0, take_note, &refused), RLOCK_OK);
    UNTIL(refused.count > 0);
    assert_int_equal(refused.status, RLOCK_OK);
    assert_int_equal(got.count + renewed.count + released.count + refused.count, 4);
    assert_int_equal(lost.count, 0);
    rlock_free(lock);
    rlock_free(rival);
    rlock_client_free(client);
    rlock_client_free(other);
}

static void round_trip_in_memory(void **state) {
    (void)state;
    round_trip(memory);
}

static void round_trip_on_redis(void **state) {
    (void)state;
    round_trip(NULL);
}

#define CROWD 8

static rlock *inside[CROWD];
static int insiders;

static void enter(rlock *lock, const rlock_event *event, void *user) {
    (void)user;
    assert_int_equal(event->status, RLOCK_OK);
    inside[insiders++] = lock;
}

static void several_clients_take_turns(void **state) {
    rlock_client *clients[CROWD];
    rlock *locks[CROWD];
    note released = {0};
    int i;

    (void)state;
    insiders = 0;
    for (i = 0; i < CROWD; i++) {
        clients[i] =
            new_client(i < 2 ? memory : NULL, 0); /* two of them keep their locks elsewhere */
        locks[i] = new_lock(clients[i], i < 2 ? "apart" : "together", NULL);
    }
    assert_int_equal(rlock_acquire(locks[0], RLOCK_FOREVER, 0, enter, NULL), RLOCK_OK);
    UNTIL(insiders == 1);
    insiders = 0;
    for (i = 2; i < CROWD; i++) {
        assert_int_equal(rlock_acquire(locks[i], RLOCK_FOREVER, 0, enter, NULL), RLOCK_OK);
    }
    for (i = 2; i < CROWD; i++) {
        UNTIL(insiders > 0);
        some_iterations(3);
        assert_int_equal(insiders, 1);
        insiders = 0;
        assert_int_equal(rlock_release(inside[0], take_note, &released), RLOCK_OK);
    }
    UNTIL(released.count == CROWD - 2);
    assert_true(rlock_is_held(locks[0]));
    for (i = 0; i < CROWD; i++) {
        rlock_client_free(clients[i]);
        rlock_free(locks[i]);
    }
}

/* A lock that is taken, and let go, in a loop that is run inside of a callback. */
static struct {
    rlock *lock;
    note got, released, beside;
    int64_t limit_us;
} within;

static void iterate_until(const int *count) {
    while (*count == 0 && clock_us() < within.limit_us) {
        now_on->iteration_inside(loop);
    }
}

static void run_inside(rlock *lock, const rlock_event *event, void *user) {
    take_note(lock, event, user);
    (void)rlock_acquire(within.lock, RLOCK_FOREVER, 0, take_note, &within.got);
    iterate_until(&within.got.count);
    (void)rlock_release(within.lock, take_note, &within.released);
    iterate_until(&within.released.count);
    iterate_until(&within.beside.count);
}

static void loop_that_is_run_inside_a_callback_goes_on(void **state) {
    const rlock_store *stores[2];
    int i;

    (void)state;
    stores[0] = memory;
    stores[1] = NULL;
    for (i = 0; i < 2 && now_on->iteration_inside != NULL; i++) {
        rlock_client *client = new_client(stores[i], 0);
        rlock *first = new_lock(client, "first", NULL), *beside = new_lock(client, "beside", NULL);
        note outer = {0};

        memset(&within, 0, sizeof within);
        within.lock = new_lock(client, "within", NULL);
        within.limit_us = clock_us() + PATIENCE_US / 2;
        assert_int_equal(rlock_acquire(first, RLOCK_FOREVER, 0, run_inside, &outer), RLOCK_OK);
        assert_int_equal(rlock_acquire(beside, RLOCK_FOREVER, 0, take_note, &within.beside),
                         RLOCK_OK);
        UNTIL(outer.count > 0);
        assert_true(clock_us() < within.limit_us);
        assert_int_equal(within.got.status, RLOCK_OK);
        assert_int_equal(within.released.status, RLOCK_OK);
        assert_int_equal(within.beside.status, RLOCK_OK);
        assert_int_equal(outer.count + within.got.count + within.released.count, 3);
        rlock_free(first);
        rlock_free(beside);
        rlock_free(within.lock);
        rlock_client_free(client);
    }
}

static void watchdog_outlives_the_lease(void **state) {
    rlock_client *client = new_client(NULL, 900);
    note got = {0}, lost = {0};
    rlock *lock = new_lock(client, "alive", &lost);
    rlock_stats stats;
    char reply[128];

    (void)state;
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL((rlock_client_stats(client, &stats), stats.renewed >= 7)); /* more than two leases */
    assert_true(rlock_is_held(lock));
    assert_int_equal(lost.count, 0);
    server_cli(&server, reply, sizeof reply, "EXISTS alive");
    assert_non_null(strchr(reply, '1'));
    rlock_free(lock);
    rlock_client_free(client);
}

static void deleted_key_is_reported_before_the_deadline(void **state) {
    rlock_client *client = new_client(NULL, 3000);
    note got = {0}, lost = {0};
    rlock *lock = new_lock(client, "deleted", &lost);
    int64_t since_us = clock_us();
    char reply[128];

    (void)state;
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0);
    assert_int_equal(got.status, RLOCK_OK);
    server_cli(&server, reply, sizeof reply, "DEL deleted");
    UNTIL(lost.count > 0);
    assert_true(clock_us() - since_us < 3000000);
    assert_int_equal(lost.status, RLOCK_ERR_LOST);
    assert_int_equal(lost.reason, RLOCK_REASON_DELETED);
    assert_false(rlock_is_held(lock));
    rlock_free(lock);
    rlock_client_free(client);
}

static void deadline_is_reported_with_a_frozen_server(void **state) {
    rlock_client *client = new_client(NULL, 300);
    note got = {0}, lost = {0};
    rlock *lock = new_lock(client, "frozen", &lost);

    (void)state;
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0);
    assert_int_equal(got.status, RLOCK_OK);
    server_pause(&server);
    UNTIL(lost.count > 0);
    server_resume(&server);
    assert_int_equal(lost.reason, RLOCK_REASON_EXPIRED);
    rlock_free(lock);
    rlock_client_free(client);
}

static void try_with(const rlock_config *config, int status) {
    rlock_config its = clustered_config(config);
    rlock_client *client = NULL;
    note got = {0};
    rlock *lock;

    assert_int_equal(rlock_client_new(&client, &its), RLOCK_OK);
    lock = new_lock(client, "try", NULL);
    assert_int_equal(rlock_acquire(lock, 0, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0);
    assert_int_equal(got.status, status);
    rlock_free(lock);
    rlock_client_free(client);
}

static void refused_connection_is_reported(void **state) {
    rlock_config config;

    (void)state;
    memset(&config, 0, sizeof config);
    config.loop = hooks;
    config.port = server_free_port();
    try_with(&config, RLOCK_ERR_CONN);
    config.port = server.port; /* the same way, with somebody at the other end */
    try_with(&config, RLOCK_OK);
    config.unix_path = "/nonexistent/socket";
    try_with(&config, RLOCK_ERR_CONN);
}

/* Each kind of callback frees the client, or the lock, while another lock of the client waits for
 * the same key. */
enum { IN_SHUTDOWN = RLOCK_LOST + 1 };

static rlock_client *doomed_client;
static rlock *doomed_lock;
static bool free_client;
static int told;

static void free_something(void) {
    told++;
    if (free_client) {
        rlock_client_free(doomed_client);
        doomed_client = NULL;
    } else {
        rlock_free(doomed_lock);
        doomed_lock = NULL;
    }
}

static void free_on_event(rlock *lock, const rlock_event *event, void *user) {
    (void)event;
    assert_ptr_equal(lock, doomed_lock);
    assert_ptr_equal(user, &told);
    free_something();
}

static void free_on_shutdown(rlock_client *client, int status, void *user) {
    (void)status, (void)user;
    assert_ptr_equal(client, doomed_client);
    free_something();
}

static void provoke(int callback, note *got) {
    bool on_acquired = callback == RLOCK_ACQUIRED;

    assert_int_equal(rlock_acquire(doomed_lock, RLOCK_FOREVER, callback == RLOCK_LOST ? 50 : 0,
                                   on_acquired ? free_on_event : take_note,
                                   on_acquired ? (void *)&told : (void *)got),
                     RLOCK_OK);
    if (callback == RLOCK_RENEWED || callback == RLOCK_RELEASED || callback == IN_SHUTDOWN) {
        UNTIL(got->count > 0);
    }
    if (callback == RLOCK_RENEWED) {
        assert_int_equal(rlock_renew(doomed_lock, 0, free_on_event, &told), RLOCK_OK);
    } else if (callback == RLOCK_RELEASED) {
        assert_int_equal(rlock_release(doomed_lock, free_on_event, &told), RLOCK_OK);
    } else if (callback == IN_SHUTDOWN) {
        assert_int_equal(rlock_client_shutdown(doomed_client, 0, free_on_shutdown, NULL), RLOCK_OK);
    }
}

static void free_in_callback(const rlock_store *store, int callback, bool client_too) {
    rlock_options options;
    note got = {0}, waiting = {0};
    rlock *bystander;

    doomed_client = new_client(store, 0);
    memset(&options, 0, sizeof options);
    options.key = "doomed";
    options.on_lost = callback == RLOCK_LOST ? free_on_event : NULL;
    options.user = &told;
    assert_int_equal(rlock_new(&doomed_lock, doomed_client, &options), RLOCK_OK);
    bystander = new_lock(doomed_client, "doomed", NULL);
    free_client = client_too;
    told = 0;
    provoke(callback, &got);
    if (callback != IN_SHUTDOWN) { /* behind the first in the queue */
        assert_int_equal(rlock_acquire(bystander, RLOCK_FOREVER, 0, take_note, &waiting), RLOCK_OK);
    }
    UNTIL(told > 0);
    if (!client_too && callback != IN_SHUTDOWN) {
        UNTIL(waiting.count > 0); /* life goes on, and what was held was given back */
        assert_int_equal(waiting.status, RLOCK_OK);
    }
    some_iterations(3);
    assert_int_equal(told, 1);
    assert_int_equal(waiting.count, client_too || callback == IN_SHUTDOWN ? 0 : 1);
    rlock_free(doomed_lock);
    rlock_free(bystander);
    rlock_client_free(doomed_client);
    assert_true(now_on->runs_out(loop));
}

static void free_in_every_callback(const rlock_store *store) {
    int callback;

    for (callback = RLOCK_ACQUIRED; callback <= IN_SHUTDOWN; callback++) {
        free_in_callback(store, callback, true);
        free_in_callback(store, callback, false);
    }
}

static void frees_in_every_callback_in_memory(void **state) {
    (void)state;
    free_in_every_callback(memory);
}

static void frees_in_every_callback_on_redis(void **state) {
    (void)state;
    free_in_every_callback(NULL);
}

static void shutdown_ends(void **state) {
    rlock_client *client = new_client(NULL, 0);
    note got = {0}, lost = {0}, done = {0};
    rlock *lock = new_lock(client, "shutdown", &lost);
    char reply[128];

    (void)state;
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0);
    assert_int_equal(rlock_client_shutdown(client, 0, note_shutdown, &done), RLOCK_OK);
    UNTIL(done.count > 0);
    assert_int_equal(done.status, RLOCK_OK);
    assert_int_equal(lost.reason, RLOCK_REASON_CLOSED);
    server_cli(&server, reply, sizeof reply, "EXISTS shutdown");
    assert_non_null(strchr(reply, '0'));
    assert_true(now_on->runs_out(loop)); /* nothing of the client is left, and it is not freed */
    rlock_client_free(client);
    rlock_free(lock);
}

/* As a worker that is to end when its last request has: the client stays connected, and is served
 * as long as something else keeps the loop. */
static void idle_client_does_not_keep_a_loop_that_ends_by_itself(void **state) {
    rlock_client *client = new_client(NULL, 0);
    rlock *lock = new_lock(client, "idle", NULL);
    note got = {0}, gone = {0};
    rlock_stats now;

    (void)state;
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0);
    assert_true(now_on->alive == NULL || now_on->alive(loop));
    assert_int_equal(rlock_release(lock, take_note, &gone), RLOCK_OK);
    UNTIL(gone.count > 0);
    rlock_client_stats(client, &now);
    assert_true(now.up);
    assert_true(now_on->alive == NULL || now_on->runs_out(loop));
    got.count = 0;
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0); /* it is as connected as before */
    assert_int_equal(got.status, RLOCK_OK);
    rlock_client_free(client);
    rlock_free(lock);
}

/* A program that never rests. */
static int rounds;
static bool resting;
static int foreign_at;

static void busy_acquired(rlock *lock, const rlock_event *event, void *user);

static void busy_released(rlock *lock, const rlock_event *event, void *user) {
    assert_int_equal(event->status, RLOCK_OK);
    if (!resting) {
        assert_int_equal(rlock_acquire(lock, 0, 0, busy_acquired, user), RLOCK_OK);
    }
}

static void busy_acquired(rlock *lock, const rlock_event *event, void *user) {
    assert_int_equal(event->status, RLOCK_OK);
    rounds++;
    assert_int_equal(rlock_release(lock, busy_released, user), RLOCK_OK);
}

static void serve_foreign(void) {
    drain(pipe_a);
    foreign_at = rounds;
}

static void be_busy(const rlock_store *store) {
    rlock_client *client = new_client(store, 0);
    rlock *lock = new_lock(client, "busy", NULL);
    int before;

    rounds = 0;
    resting = false;
    foreign_at = -1;
    assert_int_equal(rlock_acquire(lock, 0, 0, busy_acquired, NULL), RLOCK_OK);
    UNTIL(rounds >= 10);
    now_on->listen(loop, pipe_a[0], serve_foreign);
    fill(pipe_a);
    before = rounds;
    UNTIL(foreign_at >= 0);
    assert_true(foreign_at - before <= 20);
    before = rounds;
    UNTIL(rounds >= before + 10); /* and the busy one goes on */
    resting = true;
    rlock_free(lock);
    rlock_client_free(client);
}

static void busy_program_lets_a_descriptor_in_memory(void **state) {
    (void)state;
    be_busy(memory);
}

static void busy_program_lets_a_descriptor_on_redis(void **state) {
    (void)state;
    be_busy(NULL);
}

/* The other way round: a descriptor that is always ready, whose owner asks the library for
 * something in every turn. */
static rlock *asked;
static note answered;

static void ask_again(void) {
    if (rlock_acquire(asked, 0, 0, take_note, &answered) == RLOCK_OK) {
        assert_int_equal(rlock_cancel(asked), RLOCK_OK);
    }
}

static void busy_descriptor_lets_the_library_in(void **state) {
    rlock_client *client = new_client(memory, 0);
    rlock *lock = new_lock(client, "wanted", NULL);
    note got = {0};

    (void)state;
    asked = new_lock(client, "asked", NULL);
    memset(&answered, 0, sizeof answered);
    now_on->listen(loop, pipe_a[0], ask_again);
    fill(pipe_a); /* and never read */
    assert_int_equal(rlock_acquire(lock, 0, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0 && answered.count >= 10);
    assert_int_equal(got.status, RLOCK_OK);
    assert_int_equal(answered.status, RLOCK_ERR_CANCELED);
    rlock_free(lock);
    rlock_free(asked);
    rlock_client_free(client);
}

/* ---- the other kinds ---- */

static rlock_info told_info;
static int infos;

static void take_info(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    told_info = *info;
    infos++;
}

static rlock_options of_kind(rlock_kind wanted) {
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = "kind";
    options.kind = wanted;
    options.permits = wanted == RLOCK_KIND_SEMAPHORE ? 2 : 0;
    return options;
}

static rlock *kind_lock(rlock_client *client, rlock_kind wanted, note *lost) {
    rlock_options options = of_kind(wanted);
    rlock *lock = NULL;

    options.on_lost = lost != NULL ? take_note : NULL;
    options.user = lost;
    assert_int_equal(rlock_new(&lock, client, &options), RLOCK_OK);
    return lock;
}

static void gets(rlock *lock) {
    note got = {0};

    assert_int_equal(rlock_acquire(lock, 0, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0);
    assert_int_equal(got.status, RLOCK_OK);
}

static void lets_go(rlock *lock) {
    note released = {0};

    assert_int_equal(rlock_release(lock, take_note, &released), RLOCK_OK);
    UNTIL(released.count > 0);
    assert_int_equal(released.status, RLOCK_OK);
}

/* Asks for ever, and returns when it stands in the line behind so many. */
static void stands_behind(rlock *lock, int before, note *got) {
    memset(got, 0, sizeof *got);
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, got), RLOCK_OK);
    do {
        infos = 0;
        assert_int_equal(rlock_queue_position(lock, take_info, NULL), RLOCK_OK);
        UNTIL(infos > 0);
        assert_int_equal(told_info.status, RLOCK_OK);
    } while (told_info.position < 0);
    assert_int_equal(told_info.position, before);
    assert_int_equal(got->count, 0);
}

static void fair_serves_in_the_order_of_asking(void **state) {
    rlock_client *clients[2] = {new_client(NULL, 0), new_client(NULL, 0)};
    rlock *holder = kind_lock(clients[0], RLOCK_KIND_FAIR, NULL), *locks[CROWD];
    note got[CROWD];
    int i;

    (void)state;
    gets(holder);
    for (i = 0; i < CROWD; i++) {
        locks[i] = kind_lock(clients[i % 3 == 0], RLOCK_KIND_FAIR, NULL);
        stands_behind(locks[i], i, &got[i]);
    }
    lets_go(holder);
    for (i = 0; i < CROWD; i++) {
        UNTIL(got[i].count > 0);
        assert_int_equal(got[i].status, RLOCK_OK);
        assert_true(i + 1 == CROWD || got[i + 1].count == 0);
        lets_go(locks[i]);
    }
    for (i = 0; i < CROWD; i++) {
        rlock_free(locks[i]);
    }
    rlock_free(holder);
    rlock_client_free(clients[0]);
    rlock_client_free(clients[1]);
}

static void readers_share_and_a_writer_is_alone(void **state) {
    rlock_client *clients[2] = {new_client(NULL, 0), new_client(NULL, 0)};
    rlock *one = kind_lock(clients[0], RLOCK_KIND_READ, NULL);
    rlock *two = kind_lock(clients[1], RLOCK_KIND_READ, NULL);
    rlock *late = kind_lock(clients[0], RLOCK_KIND_READ, NULL);
    rlock *writer = kind_lock(clients[1], RLOCK_KIND_WRITE, NULL);
    note wrote, read_late;

    (void)state;
    gets(one);
    gets(two);
    stands_behind(writer, 0, &wrote);
    stands_behind(late, 1, &read_late);
    lets_go(one);
    some_iterations(3);
    assert_int_equal(wrote.count, 0);
    lets_go(two);
    UNTIL(wrote.count > 0);
    assert_int_equal(wrote.status, RLOCK_OK);
    some_iterations(3);
    assert_int_equal(read_late.count, 0);
    lets_go(writer);
    UNTIL(read_late.count > 0);
    assert_int_equal(read_late.status, RLOCK_OK);
    rlock_free(one);
    rlock_free(two);
    rlock_free(late);
    rlock_free(writer);
    rlock_client_free(clients[0]);
    rlock_client_free(clients[1]);
}

static void semaphore_gives_out_what_it_has(void **state) {
    rlock_client *clients[2] = {new_client(NULL, 0), new_client(NULL, 0)};
    rlock *locks[4];
    note got[4];
    int i;

    (void)state;
    for (i = 0; i < 4; i++) {
        locks[i] = kind_lock(clients[i % 2], RLOCK_KIND_SEMAPHORE, NULL);
    }
    gets(locks[0]);
    gets(locks[1]);
    stands_behind(locks[2], 0, &got[2]);
    stands_behind(locks[3], 1, &got[3]);
    for (i = 2; i < 4; i++) {
        lets_go(locks[i - 2]);
        UNTIL(got[i].count > 0);
        assert_int_equal(got[i].status, RLOCK_OK);
        some_iterations(2);
        assert_true(i == 3 || got[3].count == 0);
    }
    for (i = 0; i < 4; i++) {
        assert_int_equal(rlock_is_held(locks[i]), i >= 2);
        rlock_free(locks[i]);
    }
    rlock_client_free(clients[0]);
    rlock_client_free(clients[1]);
}

static void several_keys_are_all_or_none(void **state) {
    static const char *const keys[] = {"one", "twoss"}; /* of one slot */
    rlock_client *client = new_client(NULL, 0), *other = new_client(NULL, 0);
    rlock *two = new_lock(other, "twoss", NULL), *both = NULL;
    rlock_options options;
    note refused = {0}, got = {0};
    char reply[16];

    (void)state;
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 2;
    assert_int_equal(rlock_new(&both, client, &options), RLOCK_OK);
    gets(two);
    assert_int_equal(rlock_acquire(both, 0, 0, take_note, &refused), RLOCK_OK);
    UNTIL(refused.count > 0);
    assert_int_equal(refused.status, RLOCK_ERR_BUSY);
    server_cli(&server, reply, sizeof reply, "EXISTS one twoss");
    assert_string_equal(reply, "1");
    assert_int_equal(rlock_acquire(both, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    some_iterations(3);
    assert_int_equal(got.count, 0);
    lets_go(two);
    UNTIL(got.count > 0);
    assert_int_equal(got.status, RLOCK_OK);
    server_cli(&server, reply, sizeof reply, "EXISTS one twoss");
    assert_string_equal(reply, "2");
    lets_go(both);
    server_cli(&server, reply, sizeof reply, "EXISTS one twoss");
    assert_string_equal(reply, "0");
    rlock_free(two);
    rlock_free(both);
    rlock_client_free(client);
    rlock_client_free(other);
}

static void questions_are_answered_and_force_is_reported(void **state) {
    rlock_options options = of_kind(RLOCK_KIND_SEMAPHORE);
    rlock_client *client = new_client(NULL, 0), *asker = new_client(NULL, 0);
    note lost = {0};
    rlock *lock = kind_lock(client, RLOCK_KIND_SEMAPHORE, &lost);
    rlock_stats now;

    (void)state;
    gets(lock);
    UNTIL((rlock_client_stats(client, &now), now.pushing));
    infos = 0;
    assert_int_equal(rlock_inspect(asker, &options, take_info, NULL), RLOCK_OK);
    assert_int_equal(infos, 0); /* never inside a call */
    UNTIL(infos > 0);
    assert_int_equal(told_info.status, RLOCK_OK);
    assert_int_equal(told_info.holders, 1);
    assert_int_equal(told_info.permits, 1);
    assert_int_equal(rlock_force_release(asker, &options, NULL, NULL), RLOCK_OK);
    UNTIL(lost.count > 0);
    assert_int_equal(lost.reason, RLOCK_REASON_DELETED);
    infos = 0;
    assert_int_equal(rlock_inspect(asker, &options, take_info, NULL), RLOCK_OK);
    UNTIL(infos > 0);
    assert_int_equal(told_info.holders, 0);
    assert_int_equal(rlock_inspect(asker, &options, take_info, NULL), RLOCK_OK);
    rlock_client_free(asker); /* under a question: it is not answered any more */
    some_iterations(3);
    assert_int_equal(infos, 1);
    rlock_free(lock);
    rlock_client_free(client);
}

#include "loops_names.h"

#include "loops_check.h"
#include "loops_pair.h"

/* ------------------------------------------------------------------------------------------------
 * Every test on every loop
 */

#define ALONE(name) \
    { #name, name, setup_alone, teardown_alone, NULL }
#define LIBRARY(name) \
    { #name, name, setup_library, teardown_library, NULL }

static const struct CMUnitTest each[] = {
    ALONE(zero_timer_comes_after_a_look),
    ALONE(zero_timer_set_after_a_look_waits_for_the_next),
    ALONE(zero_timer_in_its_own_callback_lets_others_in),
    ALONE(zero_timer_asked_for_in_every_turn_still_comes),
    ALONE(timer_is_not_early_and_not_twice),
    ALONE(timer_is_not_early_after_a_long_callback),
    ALONE(timer_can_be_stopped),
    ALONE(descriptor_is_level_triggered),
    ALONE(descriptor_that_a_turn_inside_has_served_is_not_served_again),
    ALONE(what_is_watched_can_change),
    ALONE(forgotten_descriptor_number_can_be_watched_again),
    ALONE(descriptor_that_changes_under_its_number_is_watched_again),
    ALONE(forgotten_descriptor_is_silent_even_if_fetched),
    ALONE(hangup_and_error_are_everything_watched),
    ALONE(close_from_its_own_callbacks),
    ALONE(close_of_others_from_a_callback),
    ALONE(open_without_memory_fails_and_leaves_nothing),
    ALONE(watch_that_fails_says_so_and_leaves_nothing),
    ALONE(timer_cannot_be_refused),
    ALONE(names_are_reported_with_their_addresses_in_order),
    ALONE(name_is_not_reported_after_close),
    ALONE(name_that_is_answered_is_not_reported_after_close),
    ALONE(name_that_is_reported_may_close_all),
    ALONE(names_are_asked_for_at_once),
    ALONE(name_without_memory_is_refused_and_not_heard_of),
    ALONE(lookup_bears_calls_that_come_too_early),
    ALONE(lookup_passes_over_what_is_no_address_of_the_internet),
    ALONE(lookup_that_hears_nothing_has_no_addresses),
    ALONE(program_may_end_under_a_name),
    ALONE(poll_runs_until_it_is_stopped_or_has_nothing_left),
    LIBRARY(round_trip_in_memory),
    LIBRARY(round_trip_on_redis),
    LIBRARY(server_is_found_by_its_name),
    LIBRARY(name_that_is_not_found_is_no_connection),
    LIBRARY(fork_during_a_name_lookup_harms_no_process),
    LIBRARY(client_is_freed_under_a_name),
    LIBRARY(client_is_freed_because_of_a_name),
    LIBRARY(several_clients_take_turns),
    LIBRARY(loop_that_is_run_inside_a_callback_goes_on),
    LIBRARY(watchdog_outlives_the_lease),
    LIBRARY(deleted_key_is_reported_before_the_deadline),
    LIBRARY(deadline_is_reported_with_a_frozen_server),
    LIBRARY(refused_connection_is_reported),
    LIBRARY(frees_in_every_callback_in_memory),
    LIBRARY(frees_in_every_callback_on_redis),
    LIBRARY(shutdown_ends),
    LIBRARY(idle_client_does_not_keep_a_loop_that_ends_by_itself),
    LIBRARY(busy_program_lets_a_descriptor_in_memory),
    LIBRARY(busy_program_lets_a_descriptor_on_redis),
    LIBRARY(busy_descriptor_lets_the_library_in),
    LIBRARY(fair_serves_in_the_order_of_asking),
    LIBRARY(readers_share_and_a_writer_is_alone),
    LIBRARY(semaphore_gives_out_what_it_has),
    LIBRARY(several_keys_are_all_or_none),
    LIBRARY(questions_are_answered_and_force_is_reported),
    LIBRARY(contract_is_kept_by_rlock_loop_check),
    LIBRARY(planted_faults_are_found_by_rlock_loop_check),
    LIBRARY(missing_hook_is_reported_by_rlock_loop_check),
    LIBRARY(contract_is_kept_by_a_loop_with_a_callback_for_reading_and_one_for_writing),
};
#define EACH (sizeof each / sizeof each[0])

static int start_server(void **state) {
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    server.port = server_free_port();
    return server_start(&server, NULL);
}

static int stop_server(void **state) {
    (void)state;
    server_stop(&server);
    return 0;
}

/* loops [PATTERN]: all, or the tests whose names match, as in 'libuv: *timer*'. */
int main(int argc, char **argv) {
    static const struct clustered_skip skipped[] = {
        {"*: *_in_memory", "no server is in it"},
        {"*: *_by_rlock_loop_check", "no server is in it"},
        {NULL, NULL},
    };
    static struct CMUnitTest tests[KINDS * EACH];
    static char names[KINDS * EACH][96];
    size_t i, n = 0;

    for (i = 0; i < KINDS * EACH; i++) {
        if (clustered() && each[i % EACH].setup_func == setup_alone) {
            continue; /* of the adapters alone */
        }
        tests[n] = each[i % EACH];
        tests[n].initial_state = (void *)(uintptr_t)&kinds[i / EACH];
        snprintf(names[n], sizeof names[n], "%s: %s", kinds[i / EACH].name, each[i % EACH].name);
        tests[n].name = names[n];
        n++;
    }
    return clustered_run("loops", tests, n, skipped, start_server, stop_server,
                         argc > 1 ? argv[1] : NULL);
}
