/* Names on every loop: part of loops.c.
 *
 * The names that end in .test are answered here, in the place of the C library's resolver: the
 * helper threads of rlock_resolve.h and those of libuv come by alike. */

#include <arpa/inet.h>
#include <dlfcn.h>
#include <net/if.h>

/* The .test names: several addresses, more than are told, one that is a server's, one that is none
 * of the internet. */
static const char *const names_known[][13] = {
    {"several.test", "::1", "127.0.0.1", "fe80::7", NULL},
    {"many.test", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6",
     "10.0.0.7", "10.0.0.8", "10.0.0.9", "10.0.0.10", "10.0.0.11", NULL},
    {"server.test", "127.0.0.1", NULL},
    {"strange.test", "/a/socket", "127.0.0.1", NULL},
};
#define NAMES_TOLD_MAX 8 /* by each adapter */
#define NAMES_SCOPE 7    /* of the addresses that begin with fe80 */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t let_go;
    bool held;     /* whoever asks waits */
    int asking;    /* so many do */
    int unmasked;  /* so many were asked in a thread that signals may come to */
    int misguided; /* ... with other hints than wanted */
} resolver = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, 0, 0};

typedef struct name_found {
    struct addrinfo info; /* first */
    struct sockaddr_in6 address;
} name_found;

static char names_mark; /* what stands as the name of those made here */

static struct addrinfo *name_find(const char *text) {
    name_found *found = calloc(1, sizeof *found);
    struct sockaddr_in in;

    memset(&in, 0, sizeof in);
    found->info.ai_canonname = &names_mark;
    found->info.ai_socktype = SOCK_STREAM;
    found->info.ai_addr = (struct sockaddr *)(void *)&found->address;
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
        in.sin_family = AF_INET;
        memcpy(&found->address, &in, sizeof in);
        found->info.ai_addrlen = sizeof in;
    } else if (text[0] == '/') {
        found->address.sin6_family = AF_UNIX;
        found->info.ai_addrlen = sizeof found->address.sin6_family;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &found->address.sin6_addr), 1);
        found->address.sin6_family = AF_INET6;
        found->address.sin6_scope_id = strncmp(text, "fe80", 4) == 0 ? NAMES_SCOPE : 0;
        found->info.ai_addrlen = sizeof found->address;
    }
    found->info.ai_family = found->info.ai_addr->sa_family;
    return &found->info;
}

static void resolver_waits(const struct addrinfo *hints) {
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    pthread_mutex_lock(&resolver.lock);
    resolver.asking++;
    resolver.unmasked += !sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGPIPE);
    resolver.misguided += hints == NULL || hints->ai_flags != 0 || hints->ai_family != AF_UNSPEC ||
                          hints->ai_socktype != SOCK_STREAM;
    while (resolver.held) {
        pthread_cond_wait(&resolver.let_go, &resolver.lock);
    }
    resolver.asking--;
    pthread_mutex_unlock(&resolver.lock);
}

static int resolver_asking(void) {
    int n;

    pthread_mutex_lock(&resolver.lock);
    n = resolver.asking;
    pthread_mutex_unlock(&resolver.lock);
    return n;
}

static void resolver_hold(bool held) {
    pthread_mutex_lock(&resolver.lock);
    resolver.held = held;
    pthread_cond_broadcast(&resolver.let_go);
    pthread_mutex_unlock(&resolver.lock);
}

/* These two take the place of the C library's, also for libuv and hiredis. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    size_t i, j, len = node != NULL ? strlen(node) : 0;

    if (len < 5 || strcmp(node + len - 5, ".test") != 0) {
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "getaddrinfo");
        return real(node, service, hints, found);
    }
    resolver_waits(hints);
    for (i = 0; i < sizeof names_known / sizeof names_known[0]; i++) {
        if (strcmp(node, names_known[i][0]) == 0) {
            for (j = 1; names_known[i][j] != NULL; j++) {
                *found = name_find(names_known[i][j]);
                found = &(*found)->ai_next;
            }
            return 0;
        }
    }
    return EAI_NONAME;
}

void freeaddrinfo(struct addrinfo *found) {
    void (*real)(struct addrinfo *);

    if (found == NULL || found->ai_canonname != &names_mark) {
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "freeaddrinfo");
        real(found);
        return;
    }
    while (found != NULL) {
        struct addrinfo *next = found->ai_next;

        free(found);
        found = next;
    }
}

/* ------------------------------------------------------------------------------------------------
 * The adapters alone
 */

#define ASKERS 12

static struct {
    rlock_name name; /* first */
    int heard;
    unsigned count;
    char words[NAMES_TOLD_MAX * 64]; /* its addresses, each with a blank behind it */
} askers[ASKERS];

static void hear_name(rlock_name *name, const struct sockaddr *const *addresses, unsigned count) {
    size_t i = (size_t)((char *)name - (char *)askers) / sizeof askers[0];
    unsigned n;

    names_heard++;
    askers[i].heard++;
    askers[i].count = count;
    askers[i].words[0] = '\0';
    for (n = 0; n < count; n++) {
        socklen_t len = addresses[n]->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                           : sizeof(struct sockaddr_in6);
        char *end = askers[i].words + strlen(askers[i].words);

        assert_int_equal(getnameinfo(addresses[n], len, end, 62, NULL, 0, NI_NUMERICHOST), 0);
        strcat(end, " ");
    }
}

/* Loops that have no thread pool of their own. */
static bool by_helper_thread(void) {
    return strcmp(now_on->name, "libuv") != 0;
}

static int asks(void *asker, size_t i, const char *host) {
    memset(&askers[i], 0, sizeof askers[i]);
    askers[i].name.client = (rlock_client *)(void *)&a_client;
    askers[i].name.resolved = hear_name;
    return hooks.resolve(asker, &askers[i].name, host);
}

static void names_are_reported_with_their_addresses_in_order(void **state) {
    static const struct {
        const char *host, *words;
    } rows[] = {
        {"several.test", "::1 127.0.0.1 fe80::7%7 "},
        {"many.test", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.7 10.0.0.8 "},
        {"nowhere.test", ""},
        {"fe80::1%lo", "fe80::1%lo "},
    };
    size_t i;

    (void)state;
    resolver.unmasked = resolver.misguided = 0;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        names_heard = 0;
        assert_int_equal(asks(hooked, 0, rows[i].host), 0);
        assert_int_equal(names_heard, 0); /* never from inside the hook */
        UNTIL(names_heard > 0);
        assert_string_equal(askers[0].words, rows[i].words);
    }
    some_iterations(3);
    assert_int_equal(names_heard, 1);
    assert_int_equal(resolver.misguided, 0);
    assert_true(resolver.unmasked == 0 || !by_helper_thread());
}

static int open_descriptors(void) {
    int fd, n = 0;

    for (fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

/* The thread is left behind, and nothing else: no descriptor, no memory, no signal. */
static void name_is_not_reported_after_close(void **state) {
    int before = open_descriptors();

    (void)state;
    signal(SIGPIPE, SIG_DFL);
    resolver_hold(true);
    assert_int_equal(asks(hooked, 0, "several.test"), 0);
    assert_int_equal(asks(hooked, 1, "nowhere.test"), 0);
    UNTIL(resolver_asking() == 2);
    hooks.close(hooked);
    some_iterations(3);
    resolver_hold(false);
    assert_true(helpers_end());
    assert_true(now_on->runs_out(loop));
    assert_int_equal(names_heard, 0);
    signal(SIGPIPE, SIG_IGN);
    hooked = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
    assert_int_equal(open_descriptors(), before);
}

/* The answer is there, and the loop has not looked yet. */
static void name_that_is_answered_is_not_reported_after_close(void **state) {
    int before = open_descriptors();

    (void)state;
    assert_int_equal(asks(hooked, 0, "several.test"), 0);
    assert_true(helpers_end());
    hooks.close(hooked);
    assert_true(now_on->runs_out(loop));
    assert_int_equal(names_heard, 0);
    hooked = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
    assert_int_equal(open_descriptors(), before);
}

/* Two answers are there. Who hears the first closes both, which takes back what was fetched. */
static void *opened[ASKERS];

static void hear_name_and_close(rlock_name *name, const struct sockaddr *const *addresses,
                                unsigned count) {
    (void)name, (void)addresses, (void)count;
    names_heard++;
    hooks.close(opened[0]);
    hooks.close(opened[1]);
}

static void name_that_is_reported_may_close_all(void **state) {
    int before = open_descriptors();
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        opened[i] = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
        assert_int_equal(asks(opened[i], i, "several.test"), 0);
        askers[i].name.resolved = hear_name_and_close;
    }
    assert_true(helpers_end());
    UNTIL(names_heard > 0);
    some_iterations(3);
    assert_int_equal(names_heard, 1);
    assert_int_equal(open_descriptors(), before);
}

static void names_are_asked_for_at_once(void **state) {
    int before = open_descriptors();
    size_t i;

    (void)state;
    resolver_hold(true);
    for (i = 0; i < ASKERS; i++) {
        opened[i] = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
        assert_int_equal(asks(opened[i], i, i % 3 == 0 ? "nowhere.test" : "several.test"), 0);
    }
    UNTIL(resolver_asking() >= (by_helper_thread() ? ASKERS : 2));
    hooks.close(opened[1]);
    hooks.close(opened[ASKERS - 1]);
    some_iterations(2);
    assert_int_equal(names_heard, 0);
    resolver_hold(false);
    UNTIL(names_heard == ASKERS - 2);
    some_iterations(2);
    for (i = 0; i < ASKERS; i++) {
        bool closed = i == 1 || i == ASKERS - 1;

        assert_int_equal(askers[i].heard, !closed);
        assert_int_equal(askers[i].count, closed || i % 3 == 0 ? 0 : 3);
        if (!closed) {
            hooks.close(opened[i]);
        }
    }
    assert_true(helpers_end());
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(names_heard, ASKERS - 2);
}

static void name_without_memory_is_refused_and_not_heard_of(void **state) {
    int before = open_descriptors(), n = 0, failed = 0;

    (void)state;
    while (refuse_next(&n)) {
        int status = asks(hooked, 0, "several.test");

        assert_int_equal(status < 0, refuse_in == 0);
        failed += status < 0;
        if (status == 0) {
            UNTIL(names_heard == 1);
        }
        assert_true(helpers_end());
        assert_int_equal(open_descriptors(), before);
    }
    some_iterations(2);
    assert_int_equal(names_heard, 1);
    assert_true(failed >= (by_helper_thread() ? 4 : 1));
}

/* ------------------------------------------------------------------------------------------------
 * A loop of one's own: rlock_resolve.h alone
 */

static rlock_io *watched_io; /* by the loop of one's own */
static int watched_fd;

static int watch_one(void *state, rlock_io *io, int fd, unsigned events) {
    assert_ptr_equal(state, &watched_fd);
    watched_io = events != 0 ? io : NULL;
    watched_fd = fd;
    return 0;
}

static void one_asks(rlock_lookup **lookups, const char *host) {
    resolver_hold(true);
    asks(hooked, 0, "nowhere.test"); /* fills in the name, and is forgotten */
    hooks.close(hooked);
    hooked = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
    assert_int_equal(rlock_resolve(lookups, watch_one, &watched_fd, &askers[0].name, host), 0);
}

static void one_is_answered(void) {
    struct pollfd answer;

    resolver_hold(false);
    answer.fd = watched_fd;
    answer.events = POLLIN;
    assert_int_equal(poll(&answer, 1, PATIENCE_US / 1000), 1);
    watched_io->ready(watched_io, RLOCK_IO_READ);
}

static void lookup_bears_calls_that_come_too_early(void **state) {
    rlock_lookup *lookups = NULL;
    int before = open_descriptors();

    if (*state != &kinds[KINDS - 1]) {
        return;
    }
    one_asks(&lookups, "several.test");
    assert_int_equal(fcntl(watched_fd, F_GETFD), FD_CLOEXEC);
    watched_io->ready(watched_io, RLOCK_IO_READ);
    assert_non_null(watched_io);
    assert_int_equal(names_heard, 0);
    one_is_answered();
    assert_null(watched_io);
    assert_null(lookups);
    assert_int_equal(names_heard, 1);
    assert_int_equal(askers[0].count, 3);
    rlock_resolve_forget(&lookups);
    assert_true(helpers_end());
    assert_int_equal(open_descriptors(), before);
}

static void lookup_passes_over_what_is_no_address_of_the_internet(void **state) {
    rlock_lookup *lookups = NULL;

    if (*state != &kinds[KINDS - 1]) {
        return;
    }
    one_asks(&lookups, "strange.test");
    one_is_answered();
    assert_null(lookups);
    assert_int_equal(names_heard, 1);
    assert_string_equal(askers[0].words, "127.0.0.1 ");
    assert_true(helpers_end());
}

/* The other end is closed, or the descriptor is none to read from. */
static void lookup_that_hears_nothing_has_no_addresses(void **state) {
    int before = open_descriptors(), end;

    if (*state != &kinds[KINDS - 1]) {
        return;
    }
    for (end = 0; end < 2; end++) {
        rlock_lookup *lookups = NULL;
        int ends[2];

        names_heard = 0;
        one_asks(&lookups, "several.test");
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(dup2(ends[end], watched_fd), watched_fd);
        close(ends[0]);
        close(ends[1]);
        watched_io->ready(watched_io, RLOCK_IO_READ);
        assert_null(lookups);
        assert_int_equal(names_heard, 1);
        assert_int_equal(askers[0].count, 0);
        resolver_hold(false);
        assert_true(helpers_end());
        assert_int_equal(open_descriptors(), before);
    }
}

/* ------------------------------------------------------------------------------------------------
 * The library on each loop
 */

/* The thread waits for the resolver, and for nothing else: a program may end meanwhile. Tried on
 * the first loop: once libuv was used, it waits at the exit for threads that a child has not. */
static void program_may_end_under_a_name(void **state) {
    int status = -1;
    pid_t child;

    if (*state != &kinds[0]) {
        return;
    }
    fflush(NULL);
    child = fork();
    if (child == 0) {
        void *own = now_on->make(), *asker;

        signal(SIGSEGV, SIG_DFL); /* else the child would go on with the next test */
        hooks = now_on->hooks(own);
        asker = hooks.open(hooks.ctx, (rlock_client *)(void *)&a_client);
        resolver_hold(true);
        status = asks(asker, 0, "several.test");
        while (status == 0 && resolver_asking() == 0) {
            server_sleep_ms(1);
        }
        hooks.close(asker);
        now_on->free(own);
        exit(status == 0 ? 7 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 7 << 8);
}

static rlock_client *new_client_of_a_name(const char *host) {
    rlock_config config;
    rlock_client *client = NULL;

    memset(&config, 0, sizeof config);
    config.loop = hooks;
    config.host = host;
    config.port = server.port;
    config = clustered_config(&config);
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    return client;
}

static void server_is_found_by_its_name(void **state) {
    rlock_client *client = new_client_of_a_name("server.test");
    rlock *lock = new_lock(client, "named", NULL);
    note got = {0};

    (void)state;
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0);
    assert_int_equal(got.status, RLOCK_OK);
    rlock_free(lock);
    rlock_client_free(client);
}

static void name_that_is_not_found_is_no_connection(void **state) {
    rlock_client *client = new_client_of_a_name("nowhere.test");
    rlock *lock = new_lock(client, "named", NULL);
    note got = {0};

    (void)state;
    assert_int_equal(rlock_acquire(lock, 0, 0, take_note, &got), RLOCK_OK);
    UNTIL(got.count > 0);
    assert_int_equal(got.status, RLOCK_ERR_CONN);
    rlock_free(lock);
    rlock_client_free(client);
}

/* What a child does has no effect on its parent, whose name is still asked for. */
static void fork_during_a_name_lookup_harms_no_process(void **state) {
    rlock_client *client = new_client_of_a_name("server.test");
    rlock *lock = new_lock(client, "named", NULL);
    note got = {0};
    int status = -1;
    pid_t child;

    (void)state;
    resolver_hold(true);
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL(resolver_asking() == 1);
    child = fork();
    if (child == 0) {
        rlock_free(lock);
        rlock_client_free(client);
        _exit(got.count);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    some_iterations(2);
    assert_int_equal(got.count, 0);
    resolver_hold(false);
    UNTIL(got.count > 0);
    assert_int_equal(got.status, RLOCK_OK);
    rlock_free(lock);
    rlock_client_free(client);
}

static void client_is_freed_under_a_name(void **state) {
    rlock_client *client;
    rlock *lock;
    note got = {0};
    int before;

    (void)state;
    rlock_client_free(new_client(memory, 0)); /* a loop may keep what the first timer has cost */
    before = open_descriptors();
    client = new_client_of_a_name("server.test");
    lock = new_lock(client, "named", NULL);
    resolver_hold(true);
    assert_int_equal(rlock_acquire(lock, RLOCK_FOREVER, 0, take_note, &got), RLOCK_OK);
    UNTIL(resolver_asking() == 1);
    rlock_client_free(client);
    rlock_free(lock);
    some_iterations(2);
    resolver_hold(false);
    assert_true(helpers_end());
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(got.count, 0);
}

static void free_the_client(rlock *lock, const rlock_event *event, void *user) {
    rlock_client **client = user;

    assert_int_equal(event->status, RLOCK_ERR_CONN);
    rlock_free(lock);
    rlock_client_free(*client);
    *client = NULL;
}

/* In the dispatch in which the name is told. */
static void client_is_freed_because_of_a_name(void **state) {
    rlock_client *client = new_client_of_a_name("nowhere.test");
    rlock *lock = new_lock(client, "named", NULL);

    (void)state;
    assert_int_equal(rlock_acquire(lock, 0, 0, free_the_client, &client), RLOCK_OK);
    UNTIL(client == NULL);
}
