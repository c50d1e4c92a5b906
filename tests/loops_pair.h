/* loops_pair.h - a loop of the shape of nginx: part of loops.c.
 *
 * A descriptor has one callback for reading and one for writing, each switched on and off alone; an
 * error or a hang-up is a call of each. Timers count in milliseconds. What shall come behind the
 * next look is posted. Each change is followed by one call too many. */

#define PAIR_FDS 16
#define PAIR_CLIENTS 4

typedef struct pair_client {
    rlock_client *client; /* NULL = the place is free */
    int64_t due_ms;       /* -1 = no timer */
    bool next, posted;    /* to be called behind the next look; ... behind this one */
} pair_client;

typedef struct pair_fd {
    rlock_io *io; /* NULL = the place is free */
    int fd;
    unsigned wanted, owner; /* owner: changes with each descriptor in this place */
    bool changed;
} pair_fd;

static struct {
    pair_client clients[PAIR_CLIENTS];
    pair_fd fds[PAIR_FDS];
    unsigned owners;
} pair;

static int64_t pair_now_ms(void) {
    return clock_us() / 1000;
}

static void *pair_open(void *ctx, rlock_client *client) {
    int i;

    (void)ctx;
    for (i = 0; i < PAIR_CLIENTS && pair.clients[i].client != NULL; i++) {
    }
    assert_true(i < PAIR_CLIENTS);
    memset(&pair.clients[i], 0, sizeof pair.clients[i]);
    pair.clients[i].client = client;
    pair.clients[i].due_ms = -1;
    return &pair.clients[i];
}

static int pair_watch(void *state, rlock_io *io, int fd, unsigned events) {
    pair_fd *at = io->data;
    int i;

    (void)state;
    if (at == NULL && events != 0) {
        for (i = 0; i < PAIR_FDS && pair.fds[i].io != NULL; i++) {
        }
        assert_true(i < PAIR_FDS);
        at = io->data = &pair.fds[i];
        at->owner = ++pair.owners;
    }
    if (at != NULL) {
        at->io = events != 0 ? io : NULL;
        at->fd = fd;
        at->wanted = events;
        at->changed = true;
    }
    return 0;
}

static void pair_set_timer(void *state, int64_t delay_us) {
    pair_client *s = state;

    if (delay_us == 0 && (s->next || s->posted)) {
        return;
    }
    s->next = delay_us == 0;
    s->posted = false;
    s->due_ms = delay_us > 0 ? pair_now_ms() + (delay_us + 999) / 1000 + 1 : -1;
}

static void pair_close(void *state) {
    ((pair_client *)state)->client = NULL;
}

/* One callback of a descriptor, if it is the one that was looked at still. */
static void pair_call(pair_fd *at, unsigned owner, unsigned event) {
    if (at->io != NULL && at->owner == owner && (at->wanted & event) != 0) {
        rlock_on_io(at->io, event);
    }
}

static void pair_look(int most_ms) {
    struct pollfd fds[PAIR_FDS];
    unsigned owners[PAIR_FDS];
    bool changed[PAIR_FDS];
    int i;

    for (i = 0; i < PAIR_FDS; i++) {
        pair_fd *at = &pair.fds[i];
        fds[i].fd = at->io != NULL ? at->fd : -1;
        fds[i].events = (short)((at->wanted & RLOCK_IO_READ ? POLLIN : 0) |
                                (at->wanted & RLOCK_IO_WRITE ? POLLOUT : 0));
        fds[i].revents = 0;
        owners[i] = at->owner;
        changed[i] = at->changed;
        at->changed = false;
    }
    poll(fds, PAIR_FDS, most_ms);
    for (i = 0; i < PAIR_FDS; i++) {
        bool both = (fds[i].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
        if (both || changed[i] || (fds[i].revents & POLLIN)) {
            pair_call(&pair.fds[i], owners[i], RLOCK_IO_READ);
        }
        if (both || (fds[i].revents & POLLOUT)) {
            pair_call(&pair.fds[i], owners[i], RLOCK_IO_WRITE);
        }
    }
}

static void pair_run(void *on, int ms) {
    int64_t most_ms = ms, left_ms;
    int i;

    (void)on;
    for (i = 0; i < PAIR_CLIENTS; i++) {
        pair_client *s = &pair.clients[i];
        if (s->client != NULL && s->next) {
            s->next = false;
            s->posted = true;
            most_ms = 0;
        } else if (s->client != NULL && s->due_ms >= 0) {
            left_ms = s->due_ms - pair_now_ms();
            most_ms = left_ms < 0 ? 0 : left_ms < most_ms ? left_ms : most_ms;
        }
    }
    pair_look((int)most_ms);
    for (i = 0; i < PAIR_CLIENTS; i++) {
        pair_client *s = &pair.clients[i];
        if (s->client != NULL && (s->posted || (s->due_ms >= 0 && s->due_ms <= pair_now_ms()))) {
            s->posted = false;
            s->due_ms = -1;
            rlock_on_timer(s->client);
        }
    }
}

static void
contract_is_kept_by_a_loop_with_a_callback_for_reading_and_one_for_writing(void **state) {
    rlock_loop_check_options options;

    if (*state != &kinds[KINDS - 1]) {
        return;
    }
    memset(&options, 0, sizeof options);
    memset(&pair, 0, sizeof pair);
    options.loop.open = pair_open;
    options.loop.watch = pair_watch;
    options.loop.set_timer = pair_set_timer;
    options.loop.close = pair_close;
    options.run = pair_run;
    options.patience_ms = PATIENCE_US / 1000;
    assert_int_equal(checked(&options, "\nok 22 - two clients of one store take turns\n"), 0);
}
