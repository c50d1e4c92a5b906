/* rlock_loop_check.h on every loop, and what it says of a loop with a fault: part of loops.c.
 *
 * The faults are planted into rlock_poll.h from outside: in its hooks, in its run function, and
 * where it calls the library. */

typedef enum fault {
    NO_FAULT = 0,
    ZERO_TIMER_BEFORE_THE_POLL,
    ZERO_TIMER_IN_THE_SAME_TURN,
    TIMER_TWICE,
    ZERO_TIMER_PUT_OFF,
    TIMER_EARLY,
    TIMER_NOT_REPLACED,
    TIMER_LOST,
    TIMER_BY_CACHED_TIME,
    TIMER_NOT_STOPPED,
    TIMER_LATE,
    TIMER_IN_WHOLE_SECONDS,
    TIMER_ROUNDED_DOWN,
    CALLS_WITHOUT_END,
    IDLE_IGNORED,
    IDLE_FOR_EVER,
    IDLE_IS_DEAF,
    ONE_TIMER_FOR_ALL,
    ONE_CLIENT_ONLY,
    EDGE_TRIGGERED,
    CHANGE_IGNORED,
    DESCRIPTORS_MIXED_UP,
    READING_ONLY,
    HANG_UP_UNSEEN,
    ERROR_UNSEEN,
    FETCHED_EVENT_AFTER_FORGETTING,
    NUMBER_NEVER_AGAIN,
    TIMER_AFTER_CLOSE,
    CALL_FROM_A_HOOK,
    NAME_ANSWERED_INSIDE,
    NAME_ANSWERED_TWICE,
    NAME_NEVER_ANSWERED,
    NAME_ANSWERED_AFTER_CLOSE
} fault;

static struct {
    fault planted;
    rlock_loop good;
    void *first;  /* the state that was opened first */
    bool running; /* the loop's turn */
    bool closed;  /* a client is */
    bool deaf;
    int64_t turn_us;
    rlock_io *io;           /* the one that was watched, or told, or forgotten first */
    rlock_client *timer_of; /* to be called before or after the turn */
    rlock_name *name;
    bool gone[1024]; /* numbers of descriptors that were forgotten */
} faulty;

static void *faulty_open(void *ctx, rlock_client *client) {
    void *state;

    if (faulty.planted == ONE_CLIENT_ONLY && faulty.first != NULL) {
        return NULL;
    }
    state = faulty.good.open(ctx, client);
    faulty.first = faulty.first != NULL ? faulty.first : state;
    return state;
}

static int faulty_watch(void *state, rlock_io *io, int fd, unsigned events) {
    if (events == 0) {
        faulty.gone[fd] = true;
        faulty.io = faulty.planted == CALLS_WITHOUT_END ? NULL : faulty.io;
        if (faulty.planted == FETCHED_EVENT_AFTER_FORGETTING && faulty.running) {
            faulty.io = io;
        }
    } else if ((faulty.planted == DESCRIPTORS_MIXED_UP || faulty.planted == CALLS_WITHOUT_END) &&
               faulty.io == NULL) {
        faulty.io = io;
    } else if ((faulty.planted == NUMBER_NEVER_AGAIN && faulty.gone[fd]) ||
               (faulty.planted == CHANGE_IGNORED && io->data != NULL)) {
        return 0;
    }
    return faulty.good.watch(state, io, fd, events);
}

static void faulty_set_timer(void *state, int64_t delay_us) {
    rlock__poll_client *s = state;

    switch ((int)faulty.planted) {
    case ZERO_TIMER_BEFORE_THE_POLL:
    case ZERO_TIMER_IN_THE_SAME_TURN:
        if (delay_us == 0 && faulty.running == (faulty.planted == ZERO_TIMER_IN_THE_SAME_TURN)) {
            faulty.timer_of = s->client;
            return;
        }
        break;
    case ZERO_TIMER_PUT_OFF: faulty.good.set_timer(state, -1); break;
    case TIMER_EARLY: delay_us = delay_us > 0 ? delay_us / 4 * 3 : delay_us; break;
    case TIMER_NOT_REPLACED:
        if (s->due_us >= 0) {
            return;
        }
        break;
    case TIMER_LOST: delay_us = delay_us > 0 ? -1 : delay_us; break;
    case TIMER_BY_CACHED_TIME:
        if (delay_us > 0) {
            delay_us -= clock_us() - faulty.turn_us;
            delay_us = delay_us > 0 ? delay_us : 0;
        }
        break;
    case TIMER_NOT_STOPPED:
        if (delay_us < 0) {
            return;
        }
        break;
    case TIMER_LATE: delay_us += delay_us > 0 ? 50000 : 0; break;
    case TIMER_IN_WHOLE_SECONDS: delay_us = (delay_us + 999999) / 1000000 * 1000000; break;
    case TIMER_ROUNDED_DOWN: delay_us = delay_us / 1000 * 1000; break;
    case ONE_TIMER_FOR_ALL: state = faulty.first; break;
    case CALL_FROM_A_HOOK:
        if (delay_us == 0) {
            rlock_on_timer(s->client);
            return;
        }
        break;
    }
    faulty.good.set_timer(state, delay_us);
}

static void faulty_idle(void *state, bool idle) {
    rlock__poll_client *s = state;

    if (faulty.planted == IDLE_IS_DEAF && idle) {
        faulty.good.set_timer(state, -1);
        faulty.deaf = true;
    }
    if (faulty.planted != IDLE_IGNORED && (idle || faulty.planted != IDLE_FOR_EVER)) {
        faulty.good.idle(s, idle);
    }
}

static int faulty_resolve(void *state, rlock_name *name, const char *host) {
    switch ((int)faulty.planted) {
    case NAME_ANSWERED_INSIDE: rlock_on_resolved_all(name, NULL, 0); return 0;
    case NAME_ANSWERED_TWICE:
    case NAME_ANSWERED_AFTER_CLOSE: faulty.name = name; return 0;
    case NAME_NEVER_ANSWERED: return 0;
    default: return faulty.good.resolve(state, name, host);
    }
}

static void faulty_close(void *state) {
    rlock__poll_client *s = state;

    if (faulty.planted == TIMER_AFTER_CLOSE && s->due_us >= 0) {
        faulty.timer_of = s->client;
    }
    faulty.closed = true;
    faulty.good.close(state);
}

static void faulty_io(rlock_io *io, unsigned events) {
    size_t place = (size_t)(uintptr_t)io->data - 1;
    int found = faulty.planted != NO_FAULT && io->data != NULL
                    ? ((rlock_poll *)loop)->fds[place].revents
                    : 0;

    if ((faulty.planted == EDGE_TRIGGERED && faulty.io == io) || faulty.deaf ||
        (faulty.planted == HANG_UP_UNSEEN && (found & POLLHUP)) ||
        (faulty.planted == ERROR_UNSEEN && (found & POLLERR))) {
        return;
    }
    if (faulty.planted == DESCRIPTORS_MIXED_UP) {
        io = faulty.io;
    } else if (faulty.planted == READING_ONLY && (events & RLOCK_IO_READ)) {
        events = RLOCK_IO_READ;
    } else if (faulty.planted == EDGE_TRIGGERED) {
        faulty.io = io;
    }
    rlock_on_io(io, events);
}

static void faulty_timer(rlock_client *client) {
    rlock_on_timer(client);
    if (faulty.planted == TIMER_TWICE) {
        rlock_on_timer(client);
    }
}

static void faulty_timer_now(void) {
    rlock_client *client = faulty.timer_of;

    faulty.timer_of = NULL;
    if (client != NULL) {
        rlock_on_timer(client);
    }
}

static void faulty_run(void *on, int ms) {
    if (faulty.planted == ZERO_TIMER_BEFORE_THE_POLL) {
        faulty_timer_now();
    }
    faulty.turn_us = clock_us();
    faulty.running = true;
    rlock_poll_once(on, ms);
    faulty.running = false;
    if (faulty.planted != ZERO_TIMER_BEFORE_THE_POLL) {
        faulty_timer_now();
    }
    if (faulty.planted == CALLS_WITHOUT_END && faulty.io != NULL) {
        rlock_on_io(faulty.io, RLOCK_IO_READ);
    }
    if (faulty.planted == FETCHED_EVENT_AFTER_FORGETTING && faulty.io != NULL) {
        rlock_on_io(faulty.io, RLOCK_IO_READ);
        faulty.io = NULL;
    }
    if (faulty.name != NULL && (faulty.closed || faulty.planted == NAME_ANSWERED_TWICE)) {
        rlock_on_resolved_all(faulty.name, NULL, 0);
        rlock_on_resolved_all(faulty.name, NULL, 0);
        faulty.name = NULL;
    }
}

static bool faulty_alive(void *on) {
    return rlock_poll_alive(on);
}

static void check_runs(void *on, int ms) {
    (void)ms;
    now_on->turn(on);
}

/* Runs one check, or all (0). Fails unless it says these words. */
static int checked(const rlock_loop_check_options *options, const char *words) {
    char *text = NULL, *line;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    int failed;

    assert_non_null(out);
    failed = rlock_loop_check(options, out);
    fclose(out);
    if (strstr(text, words) == NULL) {
        fprintf(stderr, "%s: this should have said %s:\n", now_on->name, words);
        for (line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
            fprintf(stderr, "# %s\n", line); /* its checks are no tests of this program */
        }
        failed = -1;
    }
    free(text);
    return failed;
}

static void contract_is_kept_by_rlock_loop_check(void **state) {
    rlock_loop_check_options options;

    (void)state;
    memset(&options, 0, sizeof options);
    options.loop = hooks;
    options.run = check_runs;
    options.alive = now_on->alive;
    options.user = loop;
    options.patience_ms = PATIENCE_US / 1000;
    assert_int_equal(hooks.idle != NULL, now_on->alive != NULL);
    assert_int_equal(
        checked(
            &options,
            now_on->alive != NULL
                ? "\nok 24 - an idle client is served, and does not keep the loop running\n1..24\n"
                : "# SKIP there is no hook idle, or no options.alive\n"
                  "1..24\n"),
        0);
}

/* Each check finds a fault, and says which. */
static void planted_faults_are_found_by_rlock_loop_check(void **state) {
    static const struct {
        fault planted;
        int check;
        const char *why;
    } rows[] = {
        {ZERO_TIMER_BEFORE_THE_POLL, 1, "before descriptors that a poll"},
        {ZERO_TIMER_IN_THE_SAME_TURN, 2, "before a descriptor that a poll"},
        {TIMER_TWICE, 3, "twice without a poll"},
        {ZERO_TIMER_PUT_OFF, 4, "in each turn never fires"},
        {TIMER_EARLY, 5, "fires early"},
        {TIMER_NOT_REPLACED, 5, "fires early"},
        {TIMER_LOST, 5, "does not fire"},
        {TIMER_TWICE, 5, "more than once"},
        {TIMER_BY_CACHED_TIME, 6, "fires early"},
        {TIMER_NOT_STOPPED, 7, "though it was stopped"},
        {ONE_TIMER_FOR_ALL, 8, "second client's timer does not fire"},
        {TIMER_AFTER_CLOSE, 8, "a closed client's timer fires"},
        {ONE_CLIENT_ONLY, 8, "open failed for a second client"},
        {EDGE_TRIGGERED, 9, "not reported again"},
        {CHANGE_IGNORED, 10, "RLOCK_IO_WRITE is not reported"},
        {CALLS_WITHOUT_END, 9, "though nothing can be read"},
        {CALLS_WITHOUT_END, 10, "though nothing can be read"},
        {DESCRIPTORS_MIXED_UP, 11, "another one instead"},
        {READING_ONLY, 12, "only one of them"},
        {HANG_UP_UNSEEN, 13, "the descriptor is not reported, or only once"},
        {READING_ONLY, 13, "only a part of the watched events"},
        {ERROR_UNSEEN, 14, "the descriptor is not reported, or only once"},
        {FETCHED_EVENT_AFTER_FORGETTING, 15, "after watch(0)"},
        {NUMBER_NEVER_AGAIN, 16, "it is not reported"},
        {TIMER_AFTER_CLOSE, 17, "after close"},
        {TIMER_AFTER_CLOSE, 18, "after close"},
        {CALL_FROM_A_HOOK, 19, "from inside a hook"},
        {NAME_ANSWERED_INSIDE, 20, "from inside the hook"},
        {NAME_ANSWERED_TWICE, 20, "more than once"},
        {NAME_NEVER_ANSWERED, 20, "it is not answered"},
        {NAME_ANSWERED_AFTER_CLOSE, 21, "it is answered after close"},
        {ONE_CLIENT_ONLY, 22, "rlock_client_new, rlock_new or rlock_acquire failed"},
        {TIMER_LATE, 23, "more than 10 ms too late"},
        {TIMER_IN_WHOLE_SECONDS, 23, "much too late"},
        {TIMER_ROUNDED_DOWN, 23, "fires early"},
        {IDLE_IGNORED, 24, "of an idle client keeps the loop"},
        {IDLE_FOR_EVER, 24, "no longer idle does not keep the loop"},
        {IDLE_IS_DEAF, 24, "is not served"},
    };
    rlock_loop_check_options options;
    size_t i;
    int wrong = 0, turn;

    if (*state != &kinds[KINDS - 1]) {
        return;
    }
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(&options, 0, sizeof options);
        memset(&faulty, 0, sizeof faulty);
        faulty.planted = rows[i].planted;
        faulty.good = hooks;
        options.loop = hooks;
        options.loop.open = faulty_open;
        options.loop.watch = faulty_watch;
        options.loop.set_timer = faulty_set_timer;
        options.loop.resolve = faulty_resolve;
        options.loop.close = faulty_close;
        options.loop.idle = faulty_idle;
        options.run = faulty_run;
        options.alive = faulty_alive;
        options.user = loop;
        options.patience_ms = 300;
        options.only = rows[i].check;
        /* A busy machine calls a timer late that would have fired early. */
        for (turn = 0; turn < 3 && checked(&options, rows[i].why) != 1; turn++) {
        }
        wrong += turn == 3;
    }
    faulty.planted = NO_FAULT;
    assert_int_equal(wrong, 0);
}

static void missing_hook_is_reported_by_rlock_loop_check(void **state) {
    rlock_loop_check_options options;

    if (*state != &kinds[KINDS - 1]) {
        return;
    }
    memset(&options, 0, sizeof options);
    options.loop = hooks;
    options.user = loop;
    assert_int_equal(checked(&options, "Bail out!"), 1);
    options.run = check_runs;
    options.loop.set_timer = NULL;
    assert_int_equal(checked(&options, "Bail out!"), 1);
    options.loop = hooks;
    options.loop.resolve = NULL;
    options.only = 20;
    assert_int_equal(checked(&options, "# SKIP there is no hook resolve"), 0);
}
