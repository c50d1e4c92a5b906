/* unit_fork.h - fork: the child is refused and does nothing, wherever it was forked
 *
 * The child must not jump out of a check: it exits with the number of the check that failed.
 */
#ifndef TESTS_UNIT_FORK_H
#define TESTS_UNIT_FORK_H

static int child_of_fork(struct owner *owner) {
    rlock_options options = options_for("new");
    rlock *lock = NULL, *mine = owner->lock;
    size_t requests = g.store.count, live = virtual_memory.live;
    int check = 1;
#if RLOCK__HAS_TOKENS
    char text[RLOCK_TOKEN_MAX];
#endif
#define CHILD(condition)    \
    do {                    \
        if (!(condition)) { \
            return check;   \
        }                   \
        check++;            \
    } while (0)
    CHILD(rlock_acquire(mine, 0, 0, owner_on_event, owner) == RLOCK_ERR_STATE);
    CHILD(rlock_renew(mine, 0, NULL, NULL) == RLOCK_ERR_STATE);
    CHILD(rlock_release(mine, NULL, NULL) == RLOCK_ERR_STATE);
    CHILD(rlock_cancel(mine) == RLOCK_ERR_STATE);
    CHILD(rlock_new(&lock, g.client, &options) == RLOCK_ERR_STATE);
    CHILD(lock == NULL);
    CHILD(rlock_inspect(g.client, &options, on_nothing_asked, NULL) == QUESTION(RLOCK_ERR_STATE));
    CHILD(rlock_queue_position(mine, on_nothing_asked, NULL) == RLOCK_ERR_STATE);
    CHILD(rlock_client_shutdown(g.client, 0, NULL, NULL) == RLOCK_ERR_STATE);
    CHILD(!rlock_is_held(mine));
    CHILD(rlock_remaining_ms(mine) == 0);
    CHILD(rlock_fence(mine) == 0);
    CHILD(rlock_hold_count(mine) == 0);
#if RLOCK__HAS_TOKENS
    CHILD(rlock_token(mine, text, sizeof text) == RLOCK_ERR_STATE && text[0] == 0);
#endif
    rlock_on_timer(g.client);
    rlock_free(mine);
    rlock_client_free(g.client);
    CHILD(g.store.count == requests);
    CHILD(g.store.closes == 0);
    CHILD(virtual_memory.live == live);
    CHILD(g.loop.callbacks == (uint64_t)owner->events);
#undef CHILD
    return 0;
}

static void after_fork_the_child_is_refused_and_sends_nothing(void **state) {
    int row, status = 0;
    (void)state;
    for (row = IDLE; row < CLOSED; row++) {
        struct owner *owner;
        pid_t child;
        g.loop.callbacks = 0;
        owner = bring_to(row);
        child = fork();
        if (child == 0) {
            _exit(child_of_fork(owner));
        }
        assert_true(child > 0);
        SAME(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) != 0) {
            fail_msg("in %s, check %d of the child failed", state_names[row], WEXITSTATUS(status));
        }
        scripted_settle(&g.store); /* the parent goes on */
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        SAME(owner_pending(owner), 0);
        owner_free(owner);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

static pid_t timer_child = -1;
static int names_resolved;

static void timer_forks(rlock_timer *timer) {
    (void)timer;
    timer_child = fork();
}

static void count_name(rlock_name *name, const struct sockaddr *const *addresses, unsigned count) {
    (void)name, (void)addresses, (void)count;
    names_resolved++;
}

/* A store's timers that are due are fired before a name is reported. */
static void child_that_returns_from_a_timer_it_forked_in_hears_of_no_name(void **state) {
    rlock_timer timer;
    rlock_name name;
    int status = -1;
    (void)state;
    memset(&timer, 0, sizeof timer);
    memset(&name, 0, sizeof name);
    name.client = g.client;
    name.resolved = count_name;
    names_resolved = 0;
    SAME(rlock_timer_add(g.client, &timer, timer_forks), RLOCK_OK);
    rlock_timer_set(g.client, &timer, now_us());
    rlock_on_resolved(&name, NULL);
    if (timer_child == 0) {
        _exit(names_resolved);
    }
    SAME(waitpid(timer_child, &status, 0), timer_child);
    SAME(status, 0);
    SAME(names_resolved, 1);
    rlock_timer_drop(g.client, &timer);
}

static void on_resolved_in_child(rlock_name *name, const struct sockaddr *const *addresses,
                                 unsigned count) {
    (void)name, (void)addresses, (void)count;
    io_events |= RLOCK_IO_WRITE;
}

static int child_hears_nothing(struct owner *owner) {
    rlock_stats now;
    rlock_io io;
    rlock_name name;
    memset(&io, 0, sizeof io);
    memset(&name, 0, sizeof name);
    io.client = name.client = g.client;
    io.ready = on_ready;
    io.watched = RLOCK_IO_READ;
    name.resolved = on_resolved_in_child;
    io_events = 0;
    rlock_on_io(&io, RLOCK_IO_READ);
    rlock_on_resolved(&name, NULL);
    if (io_events != 0) {
        return 1;
    }
    memset(&now, 0xff, sizeof now);
    rlock_client_stats(g.client, &now);
    if (now.acquired != 0 || now.up) {
        return 2;
    }
    return owner_acquire(owner, 0, 0) == RLOCK_ERR_STATE ? 0 : 3;
}

static void after_fork_the_child_hears_no_event_and_nests_nothing(void **state) {
    rlock_options options = options_for("key");
    struct owner *owner;
    int status = 0;
    pid_t child;
    (void)state;
    options.reentrant = true;
    owner = handle_with(&options);
    grant(owner, 10000);
    child = fork();
    if (child == 0) {
        _exit(child_hears_nothing(owner));
    }
    assert_true(child > 0);
    SAME(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    SAME(WEXITSTATUS(status), 0);
    SAME(owner_acquire(owner, 0, 0), RLOCK_OK); /* in the parent it nests */
    idle();
    SAME(rlock_hold_count(owner->lock), 2);
}

/* A child may make clients of its own. Its parent's clients stay refused to it; in a child of the
 * child both are refused. */
static int child_with_a_client_of_its_own(struct owner *owner) {
    rlock_options options = options_for("key");
    rlock_client *own = NULL;
    rlock *lock = NULL;
    int status = 0;
    pid_t grandchild;
    if (rlock_client_new(&own, &g.config) != RLOCK_OK ||
        rlock_new(&lock, own, &options) != RLOCK_OK ||
        rlock_acquire(lock, 0, 1000, owner_on_event, owner) != RLOCK_OK) {
        return 1;
    }
    if (rlock_is_held(owner->lock) || owner_release(owner) != RLOCK_ERR_STATE) {
        return 2;
    }
    grandchild = fork();
    if (grandchild == 0) {
        if (rlock_client_new(&own, &g.config) != RLOCK_OK) {
            _exit(3);
        }
        _exit(rlock_cancel(lock) == RLOCK_ERR_STATE && !rlock_is_held(owner->lock) ? 0 : 4);
    }
    if (waitpid(grandchild, &status, 0) != grandchild || !WIFEXITED(status)) {
        return 5;
    }
    return WEXITSTATUS(status);
}

static void after_fork_a_client_of_the_childs_own_brings_none_of_the_parents_back(void **state) {
    struct owner *owner = holder("key", 10000);
    int status = 0;
    pid_t child;
    (void)state;
    child = fork();
    if (child == 0) {
        _exit(child_with_a_client_of_its_own(owner));
    }
    assert_true(child > 0);
    SAME(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    SAME(WEXITSTATUS(status), 0);
    assert_true(rlock_is_held(owner->lock));
}

/* ------------------------------------------------------------------------------------------------
 * Fork. The child only returns from the callback; what it does then is the library's.
 */

static struct {
    bool done; /* only the first callback forks */
    pid_t child;
    size_t requests, live;
    uint64_t callbacks, orders;
    unsigned flushes;
} forked;

static void fork_here(void) {
    if (!forked.done) {
        forked.done = true;
        forked.child = fork();
        forked.requests = g.store.count;
        forked.live = virtual_memory.live;
        forked.callbacks = g.loop.callbacks;
        forked.orders = g.loop.orders;
        forked.flushes = g.store.flushes;
    }
}

static void submit_and_fork(struct owner *owner, const rlock_event *event) {
    struct owner *third = (struct owner *)owner->context;
    (void)event;
    if (!forked.done) {
        SAME(owner_acquire(third, RLOCK_FOREVER, 1000), RLOCK_OK);
        fork_here();
    }
}

static void info_and_fork(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)info;
    g.loop.callbacks++;
    if (!forked.done) {
        SAME(owner_acquire((struct owner *)user, RLOCK_FOREVER, 1000), RLOCK_OK);
        fork_here();
    }
}

static void done_and_fork(rlock_client *client, int status, void *user) {
    on_done(client, status, user);
    fork_here();
}

/* Causes two events of one kind in one dispatch; the callback of the first one forks. */
static void fork_in(int kind, struct owner *first, struct owner *second, struct owner *third) {
    rlock_options options = options_for("asked");
    int i;
    if (kind != RLOCK_ACQUIRED) {
        grant(first, 10000);
        grant(second, 10000);
    }
    first->react = second->react = kind <= RLOCK_LOST ? submit_and_fork : NULL;
    first->context = second->context = third;
    memset(&forked, 0, sizeof forked);
    for (i = 0; i < 2; i++) {
        struct owner *owner = i == 0 ? first : second;
        switch (kind) {
        case RLOCK_ACQUIRED: SAME(owner_acquire(owner, 0, 10000), RLOCK_OK); break;
        case RLOCK_RENEWED: SAME(owner_renew(owner, 10000), RLOCK_OK); break;
        case RLOCK_RELEASED: SAME(owner_release(owner), RLOCK_OK); break;
        case RLOCK_LOST: break;
        case RLOCK_LOST + 1:
            SAME(rlock_inspect(g.client, &options, info_and_fork, third), RLOCK_OK);
            break;
        default:
            if (i == 0) {
                SAME(rlock_client_shutdown(g.client, 1000, done_and_fork, &g), RLOCK_OK);
            }
        }
    }
    if (kind == RLOCK_LOST) {
        stall_ms(20000);
    }
    scripted_settle(&g.store);
    memset(g.store.automatic, 0, sizeof g.store.automatic);
}

/* What the child did until the loop's iteration ended, as bits; 0 = nothing. */
static int child_went_on(void) {
    int check = 0;
    check |= g.store.count != forked.requests ? 1 : 0;
    check |= g.store.flushes != forked.flushes ? 2 : 0;
    check |= g.loop.callbacks != forked.callbacks ? 4 : 0;
    check |= g.loop.orders != forked.orders ? 8 : 0;
    check |= virtual_memory.live > forked.live ? 16 : 0;
    return check;
}

static void child_that_returns_from_the_callback_it_forked_in_does_nothing(void **state) {
    static const char *const names[] = {"",     "acquired", "renewed",      "released",
                                        "lost", "info",     "shutdown done"};
    int kind, status = 0;
    (void)state;
    for (kind = RLOCK_ACQUIRED; kind <= RLOCK_LOST + 2;
         kind += RLOCK__HAS_KINDS || kind != RLOCK_LOST ? 1 : 2) { /* else nobody asks */
        struct owner *first = handle("first"), *second = handle("second"), *third = handle("third");
        uint64_t callbacks = g.loop.callbacks;
        fork_in(kind, first, second, third);
        if (forked.done && forked.child == 0) {
            _exit(child_went_on());
        }
        assert_true(forked.done && forked.child > 0);
        SAME(waitpid(forked.child, &status, 0), forked.child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) != 0) {
            fail_msg("in the callback of %s: checks %d of the child failed", names[kind],
                     WEXITSTATUS(status));
        }
        scripted_settle(&g.store); /* all of it is reported to the parent */
        memset(g.store.automatic, 0, sizeof g.store.automatic);
        BETWEEN(g.loop.callbacks - callbacks, kind <= RLOCK_LOST + 1 ? 3 : 1, 8);
        owner_free(first);
        owner_free(second);
        owner_free(third);
        scripted_settle(&g.store);
        memset(g.store.automatic, 0, sizeof g.store.automatic);
    }
}

static void timer_that_forks(rlock_timer *timer) {
    (void)timer;
    fork_here();
}

static void timer_of_the_child(rlock_timer *timer) {
    (void)timer;
    g.store.flushes++; /* as if this timer sent something */
}

/* A store may call the user's hooks, as the Redis store calls `connect`. */
static void child_that_returns_from_a_hook_it_forked_in_does_nothing(void **state) {
    struct owner *owner = holder("key", 10000);
    rlock_timer first, second;
    int status = 0;
    (void)state;
    SAME(rlock_timer_add(g.client, &first, timer_that_forks), RLOCK_OK);
    SAME(rlock_timer_add(g.client, &second, timer_of_the_child), RLOCK_OK);
    memset(&forked, 0, sizeof forked);
    SAME(owner_release(owner), RLOCK_OK);
    rlock_timer_set(g.client, &first, now_us());
    rlock_timer_set(g.client, &second, now_us() + 1);
    stall_ms(1);
    assert_true(virtual_iteration(&g.loop, now_us()));
    if (forked.done && forked.child == 0) {
        _exit(child_went_on());
    }
    SAME(waitpid(forked.child, &status, 0), forked.child);
    assert_true(WIFEXITED(status));
    SAME(WEXITSTATUS(status), 0);
    BETWEEN(g.store.flushes - forked.flushes, 2, 3);
    rlock_timer_drop(g.client, &first);
    rlock_timer_drop(g.client, &second);
}

/* A store that is closed reports its connections to on_event, which may fork. */
static void close_that_forks(void *state) {
    fork_here();
    if (forked.child > 0) {
        scripted_close(state);
    }
}

static void child_of_the_close_at_the_end_of_a_shutdown_is_not_notified_of_it(void **state) {
    int status = 0;
    (void)state;
    memset(&forked, 0, sizeof forked);
    g.store.store.close = close_that_forks;
    SAME(rlock_client_shutdown(g.client, 1000, on_done, &g), RLOCK_OK);
    idle();
    if (forked.done && forked.child == 0) {
        _exit(child_went_on() | (g.done_count ? 32 : 0));
    }
    assert_true(forked.done && forked.child > 0);
    SAME(waitpid(forked.child, &status, 0), forked.child);
    assert_true(WIFEXITED(status));
    SAME(WEXITSTATUS(status), 0);
    SAME(g.done_count, 1);
    SAME(g.done_status, RLOCK_OK);
}

#endif /* TESTS_UNIT_FORK_H */
