/* Loops that not every machine has: part of loops.c. The Makefile says which are there: HAVE_GLIB,
 * HAVE_SD_EVENT, HAVE_ULOOP. */

#ifdef HAVE_GLIB

static GSource *glib_foreign;

static gboolean glib_on_foreign(gint fd, GIOCondition found, gpointer data) {
    (void)fd, (void)found, (void)data;
    foreign_ready();
    return G_SOURCE_CONTINUE;
}

static gboolean glib_on_nothing(gpointer data) {
    (void)data;
    return G_SOURCE_CONTINUE;
}

static void *glib_make(void) {
    return g_main_context_new();
}

static rlock_loop glib_hooks(void *loop) {
    return rlock_glib_loop(loop);
}

static void glib_end_source(GSource *source) {
    g_source_destroy(source);
    g_source_unref(source);
}

/* Returns the number of this source, which is above that of all before it. */
static guint glib_guarded_run(void *loop, guint ms) {
    GSource *guard = g_timeout_source_new(ms);
    guint number;

    g_source_set_callback(guard, glib_on_nothing, NULL, NULL);
    number = g_source_attach(guard, loop);
    g_main_context_iteration(loop, TRUE);
    glib_end_source(guard);
    return number;
}

static void glib_iterates(void *loop) {
    glib_guarded_run(loop, TURN_MS);
}

static void glib_listen(void *loop, int fd, void (*ready)(void)) {
    if (glib_foreign != NULL) {
        glib_end_source(glib_foreign);
        glib_foreign = NULL;
    }
    foreign_ready = ready;
    if (fd >= 0) {
        glib_foreign = g_unix_fd_source_new(fd, G_IO_IN);
        g_source_set_callback(glib_foreign, G_SOURCE_FUNC(glib_on_foreign), NULL, NULL);
        g_source_attach(glib_foreign, loop);
    }
}

static bool glib_runs_out(void *loop) {
    int64_t limit_us = clock_us() + PATIENCE_US;

    while (clock_us() < limit_us) {
        guint end = glib_guarded_run(loop, 10), i, left = 0;

        for (i = 1; i < end; i++) {
            left += g_main_context_find_source_by_id(loop, i) != NULL;
        }
        if (left == 0) {
            return true;
        }
    }
    return false;
}

static void glib_free_loop(void *loop) {
    g_main_context_unref(loop);
}

#endif

#ifdef HAVE_SD_EVENT

static sd_event_source *sd_foreign;

static int sd_on_foreign(sd_event_source *source, int fd, uint32_t found, void *data) {
    (void)source, (void)fd, (void)found, (void)data;
    foreign_ready();
    return 0;
}

static void *sd_make(void) {
    sd_event *event = NULL;

    return sd_event_new(&event) < 0 ? NULL : event;
}

static rlock_loop sd_hooks(void *loop) {
    return rlock_sd_event_loop(loop);
}

static void sd_iterates(void *loop) {
    assert_true(sd_event_run(loop, TURN_MS * 1000) >= 0);
}

static void sd_listen(void *loop, int fd, void (*ready)(void)) {
    sd_foreign = sd_event_source_disable_unref(sd_foreign);
    foreign_ready = ready;
    if (fd >= 0) {
        assert_true(sd_event_add_io(loop, &sd_foreign, fd, EPOLLIN, sd_on_foreign, NULL) >= 0);
    }
}

static bool sd_runs_out(void *loop) {
    int64_t limit_us = clock_us() + PATIENCE_US;

    while (sd_sources > 0 && clock_us() < limit_us) {
        assert_true(sd_event_run(loop, 10000) >= 0);
    }
    return sd_sources == 0;
}

static void sd_free_loop(void *loop) {
    sd_event_unref(loop);
}

#endif

#ifdef HAVE_ULOOP

static struct uloop_fd uloop_foreign;
static int uloop_fds; /* that are watched */

static void uloop_on_foreign(struct uloop_fd *fd, unsigned found) {
    (void)fd, (void)found;
    foreign_ready();
}

static void uloop_count(struct uloop_fd *fd, unsigned flags) {
    uloop_fds += flags != 0 && !fd->registered;
    uloop_fds -= flags == 0;
}

static void *uloop_make(void) {
    uloop_handle_sigchld = false; /* the children are the tests' */
    if (uloop_init() != 0) {
        return NULL;
    }
    uloop_fds = 0;
    uloop_fd_set_cb = uloop_count;
    uloop_foreign.cb = uloop_on_foreign;
    return &uloop_foreign;
}

static rlock_loop uloop_hooks(void *loop) {
    (void)loop;
    return rlock_uloop_loop();
}

static void uloop_iterates(void *loop) {
    (void)loop;
    uloop_run_timeout(TURN_MS);
}

static void uloop_listen(void *loop, int fd, void (*ready)(void)) {
    (void)loop;
    uloop_fd_delete(&uloop_foreign);
    foreign_ready = ready;
    if (fd >= 0) {
        uloop_foreign.fd = fd;
        uloop_fd_add(&uloop_foreign, ULOOP_READ | ULOOP_BLOCKING);
    }
}

static bool uloop_runs_out(void *loop) {
    int64_t limit_us = clock_us() + PATIENCE_US;

    (void)loop;
    while ((uloop_fds > 0 || uloop_get_next_timeout() >= 0) && clock_us() < limit_us) {
        uloop_run_timeout(10);
    }
    return uloop_fds == 0 && uloop_get_next_timeout() < 0;
}

static void uloop_free_loop(void *loop) {
    (void)loop;
    uloop_fd_set_cb = NULL;
    uloop_done();
    signal(SIGPIPE, SIG_IGN); /* uloop gave it back its default */
}

#endif
