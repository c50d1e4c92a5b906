/* faults_stage.h - a stage: the test plays the loop, its clock and the server
 *
 * The server lies as those of faults_liars.h do. Nothing here waits, and every run is the same.
 */
#ifndef TESTS_FAULTS_STAGE_H
#define TESTS_FAULTS_STAGE_H

#define STAGE_CONNS 256
#define STAGE_FDS 32
#define STAGE_LIES 10
#define STAGE_NAMES 128

struct stage_conn {
    int fd;        /* -1 = closed */
    uint32_t home; /* the address that it was made to, on TCP */
    int port;
    bool watching, serves; /* it is the push connection; it is the command connection */
    int64_t blocked_us;    /* until then a WAIT is out; 0 = none is */
    size_t len;
    char bytes[16384];
};

static struct {
    int64_t now_us, due_us;
    rlock_client *client; /* NULL = closed */
    struct {
        rlock_io *io;
        int fd;
        unsigned events;
    } watched[STAGE_FDS];
    bool watch_fails;
    int resolve_status;
    rlock_name *name; /* to be resolved: the last one that was asked for */
    struct {
        rlock_name *name; /* NULL = answered by its host's name */
        char host[32];
    } asked[STAGE_NAMES]; /* all of them, in turn */
    int names, door;
    char path[128], trail[4096]; /* the commands that it received, two words of each */
    struct stage_conn conns[STAGE_CONNS];
    size_t count;
    struct lie lies[STAGE_LIES];
    int told[STAGE_LIES];
    const char *(*script)(const struct stage_conn *conn, const struct words *words); /* or NULL */
    bool maps;       /* it answers CLUSTER SLOTS too; else all are at the address that is asked */
    int64_t wait_us; /* how long a WAIT takes that is not answered at once; 0 = for ever */
    const char *wait_ends; /* its answer then */
} stage;

static void *stage_open(void *ctx, rlock_client *client) {
    assert_null(stage.client);
    stage.client = client;
    stage.due_us = -1;
    return ctx;
}

static int stage_watch(void *state, rlock_io *io, int fd, unsigned events) {
    size_t i = 0;

    (void)state;
    while (stage.watched[i].io != io && stage.watched[i].io != NULL) {
        i++;
        assert_true(i < STAGE_FDS);
    }
    if (events != 0 && stage.watch_fails) {
        return -1;
    }
    stage.watched[i].io = io;
    stage.watched[i].fd = events != 0 ? fd : -1;
    stage.watched[i].events = events;
    return 0;
}

static void stage_set_timer(void *state, int64_t delay_us) {
    (void)state;
    stage.due_us = delay_us < 0 ? -1 : stage.now_us + delay_us;
}

static void stage_close(void *state) {
    (void)state;
    stage.client = NULL;
    stage.due_us = -1;
    memset(stage.watched, 0, sizeof stage.watched);
}

static int64_t stage_now_us(void *ctx) {
    (void)ctx;
    return stage.now_us;
}

static int stage_resolve(void *state, rlock_name *name, const char *host) {
    (void)state;
    assert_non_null(host);
    stage.name = stage.resolve_status == 0 ? name : NULL;
    if (stage.names < STAGE_NAMES) {
        stage.asked[stage.names].name = stage.name;
        snprintf(stage.asked[stage.names].host, sizeof stage.asked[0].host, "%s", host);
    }
    stage.names++;
    return stage.resolve_status;
}

static const rlock_loop stage_loop = {&stage,      stage_open,   stage_watch,   stage_set_timer,
                                      stage_close, stage_now_us, stage_resolve, NULL};

/* Returns the name that was asked for this host and not answered, or NULL. */
static rlock_name *stage_takes_name(const char *host) {
    int i;

    for (i = 0; i < stage.names && i < STAGE_NAMES; i++) {
        rlock_name *name = stage.asked[i].name;

        if (name != NULL && strcmp(stage.asked[i].host, host) == 0) {
            stage.asked[i].name = NULL;
            stage.name = stage.name == name ? NULL : stage.name;
            return name;
        }
    }
    return NULL;
}

static void stage_lies(const char *command, const char *answer, bool instead, bool once) {
    size_t i = 0;

    while (stage.lies[i].command != NULL) {
        i++;
        assert_true(i < STAGE_LIES);
    }
    stage.lies[i].command = command;
    stage.lies[i].answer = answer;
    stage.lies[i].instead = instead;
    stage.lies[i].once = once;
}

/* The answer to a WAIT that is out is one of these. */
static void stage_says(struct stage_conn *conn, const char *text) {
    conn->blocked_us = 0;
    assert_int_equal(send(conn->fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void stage_hangs_up(struct stage_conn *conn) {
    close(conn->fd);
    conn->fd = -1;
}

/* Returns the newest connection that has sent SUBSCRIBE, or that has not. */
static struct stage_conn *stage_conn(bool watching) {
    size_t i;

    for (i = stage.count; i > 0; i--) {
        if (stage.conns[i - 1].fd >= 0 && stage.conns[i - 1].watching == watching) {
            return &stage.conns[i - 1];
        }
    }
    fail_msg("no such connection");
    return NULL;
}

/* True if a waiter leaves the queue; without fencing the operation follows two keys. */
static bool stage_hears_leave(const struct words *words) {
    return liar_hears(words, by_sha(rlock__lua_queue)) && strcmp(words->text[2], "2") == 0 &&
           strcmp(words->text[3], "taken") == 0 && strcmp(words->text[5], "2") == 0;
}

/* Returns what an honest server says to the scripts too: granted, with a fencing token or
 * without. */
static const char *stage_is_honest(const struct words *words) {
    bool acquire = liar_hears(words, by_sha(rlock__lua_string_acquire)) ||
                   liar_hears(words, by_sha(rlock__lua_redisson_acquire));

    if (acquire && strcmp(words->text[3], "taken") != 0) {
        return strcmp(words->text[2], "2") == 0 ? "$16\r\n1763710000000000\r\n" : "$1\r\n0\r\n";
    }
    if (stage_hears_leave(words)) {
        return ":-1\r\n";
    }
    return liar_hears(words, "CLIENT KILL") ? ":1\r\n" : liar_is_honest(words);
}

/* A WAIT that is not answered blocks its connection, as at a real server. */
static void stage_blocks(struct stage_conn *conn, const struct words *words, const char *answer) {
    if (liar_hears(words, "WAIT") && *answer == '\0') {
        conn->blocked_us = stage.wait_us > 0 ? stage.now_us + stage.wait_us : INT64_MAX;
    }
}

/* Returns when the next WAIT ends. */
static int64_t stage_unblocks_us(void) {
    int64_t next_us = INT64_MAX;
    size_t i;

    for (i = 0; i < stage.count; i++) {
        const struct stage_conn *conn = &stage.conns[i];

        if (conn->fd >= 0 && conn->blocked_us > 0 && conn->blocked_us < next_us) {
            next_us = conn->blocked_us;
        }
    }
    return next_us;
}

static void stage_hears(struct stage_conn *conn, const struct words *words) {
    const char *scripted;
    char text[512];
    size_t i;

    conn->serves = conn->serves || liar_hears(words, "INFO replication");
    conn->watching = conn->watching || liar_hears(words, "SUBSCRIBE") ||
                     (liar_hears(words, "INFO server") && !conn->serves);
    snprintf(text, sizeof text, "%s %s\n", words->text[0], words->text[1]);
    if (!stage.maps && liar_hears(words, "CLUSTER SLOTS")) {
        scripted = liar_has_slots(conn->port);
    } else {
        scripted = stage.script != NULL ? stage.script(conn, words) : NULL;
    }
    if (!liar_hears(words, "CLUSTER SLOTS") &&
        strlen(stage.trail) + strlen(text) < sizeof stage.trail) {
        strcat(stage.trail, text);
    }
    if (scripted != NULL) {
        if (*scripted != '\0') {
            stage_says(conn, scripted);
        }
        stage_blocks(conn, words, scripted);
        return;
    }
    snprintf(text, sizeof text, "%s", stage_is_honest(words));
    for (i = 0; i < STAGE_LIES; i++) {
        const struct lie *lie = &stage.lies[i];

        if (lie->command != NULL && liar_hears(words, lie->command) &&
            !(lie->once && stage.told[i] > 0)) {
            stage.told[i]++;
            snprintf(text, sizeof text, "%s%s", lie->instead ? "" : stage_is_honest(words),
                     lie->answer);
            break;
        }
    }
    stage_says(conn, text);
    stage_blocks(conn, words, text);
}

/* Handles what was read, for as long as no WAIT is out. */
static void stage_reads(struct stage_conn *conn) {
    struct words words;
    size_t used;

    if (conn->blocked_us > 0 && conn->blocked_us <= stage.now_us) {
        stage_says(conn, stage.wait_ends);
    }
    memset(&words, 0, sizeof words);
    while (conn->blocked_us == 0 && conn->len > 0 &&
           (used = liar_reads(conn->bytes, conn->len, &words)) > 0) {
        conn->len -= used;
        memmove(conn->bytes, conn->bytes + used, conn->len);
        stage_hears(conn, &words);
        memset(&words, 0, sizeof words);
    }
}

/* Lets the server work. True if there was anything to do. */
static bool stage_serves(void) {
    bool moved = false;
    struct sockaddr_in home; /* on a socket of another family it means nothing */
    socklen_t len = sizeof home;
    size_t i;
    ssize_t n;
    int fd;

    while ((fd = accept(stage.door, NULL, NULL)) >= 0) {
        assert_true(stage.count < STAGE_CONNS);
        memset(&stage.conns[stage.count], 0, sizeof stage.conns[0]);
        getsockname(fd, (struct sockaddr *)&home, &len);
        stage.conns[stage.count].home = ntohl(home.sin_addr.s_addr);
        stage.conns[stage.count].port =
            home.sin_family == AF_INET ? ntohs(home.sin_port) : clustered_port();
        stage.conns[stage.count++].fd = fd;
        moved = true;
    }
    for (i = 0; i < stage.count; i++) {
        struct stage_conn *conn = &stage.conns[i];

        if (conn->fd >= 0) {
            size_t before = conn->len;

            stage_reads(conn);
            moved = moved || conn->len != before;
        }
        while (conn->fd >= 0 && conn->len < sizeof conn->bytes &&
               (n = recv(conn->fd, conn->bytes + conn->len, sizeof conn->bytes - conn->len,
                         MSG_DONTWAIT)) >= 0) {
            moved = true;
            if (n == 0) {
                stage_hangs_up(conn);
                break;
            }
            conn->len += (size_t)n;
            stage_reads(conn);
        }
    }
    return moved;
}

/* Lets the loop handle what is ready on its descriptors. */
static bool stage_looks(void) {
    bool moved = false;
    size_t i;

    for (i = 0; i < STAGE_FDS; i++) {
        struct pollfd ask;

        ask.fd = stage.watched[i].events != 0 ? stage.watched[i].fd : -1;
        ask.events = (short)((stage.watched[i].events & RLOCK_IO_READ ? POLLIN : 0) |
                             (stage.watched[i].events & RLOCK_IO_WRITE ? POLLOUT : 0));
        ask.revents = 0;
        if (poll(&ask, 1, 0) > 0) {
            unsigned events = (ask.revents & (POLLERR | POLLHUP) ? stage.watched[i].events : 0) |
                              (ask.revents & POLLIN ? RLOCK_IO_READ : 0) |
                              (ask.revents & POLLOUT ? RLOCK_IO_WRITE : 0);

            moved = true;
            rlock_on_io(stage.watched[i].io, events);
        }
    }
    return moved;
}

static void stage_fires(void) {
    stage.due_us = -1;
    rlock_on_timer(stage.client);
}

/* Runs everything once. False if nothing is left to do until that time; the clock is there then. */
static bool stage_iterates(int64_t until_us) {
    bool moved = stage_serves();

    moved = stage_looks() || moved;
    if (stage.client != NULL && stage.due_us >= 0 && stage.due_us <= stage.now_us) {
        stage_fires();
        moved = true;
    }
    if (!moved) {
        int64_t next_us = stage_unblocks_us();
        bool due;

        if (stage.client != NULL && stage.due_us >= 0 && stage.due_us < next_us) {
            next_us = stage.due_us;
        }
        due = next_us <= until_us;
        stage.now_us = due ? next_us : until_us;
        return due;
    }
    return true;
}

static void stage_runs(int64_t ms) {
    int64_t until_us = stage.now_us + ms * 1000;
    int turns = 0;

    while (stage_iterates(until_us)) {
        assert_true(++turns < 100000); /* it spins */
    }
}

static int stage_wait(struct owner *o, rlock_event_kind kind, int64_t limit_ms) {
    int64_t until_us = stage.now_us + limit_ms * 1000;
    struct kit_wish w;
    int turns = 0;

    w.o = o;
    w.kind = (int)kind;
    while (!kit_granted(&w) && stage_iterates(until_us)) {
        assert_true(++turns < 100000);
    }
    if (!kit_granted(&w)) {
        return KIT_NOTHING;
    }
    o->taken[kind]++;
    return o->status[kind];
}

static int stage_acquire(struct owner *o, int64_t wait_ms, int64_t lease_ms) {
    int status = rlock_acquire(o->lock, wait_ms, lease_ms, owner_told, o);

    return status != RLOCK_OK ? status : stage_wait(o, RLOCK_ACQUIRED, 60000);
}

static int stage_renew(struct owner *o, int64_t lease_ms) {
    int status = rlock_renew(o->lock, lease_ms, owner_told, o);

    return status != RLOCK_OK ? status : stage_wait(o, RLOCK_RENEWED, 60000);
}

static int stage_release(struct owner *o) {
    int status = rlock_release(o->lock, owner_told, o);

    return status != RLOCK_OK ? status : stage_wait(o, RLOCK_RELEASED, 60000);
}

static bool stage_heard(const char *command) {
    return strstr(stage.trail, command) != NULL;
}

static void stage_ends(void) {
    size_t i;

    for (i = 0; i < stage.count; i++) {
        if (stage.conns[i].fd >= 0) {
            close(stage.conns[i].fd);
        }
    }
    if (stage.path[0] != '\0') {
        close(stage.door);
    }
    memset(&stage, 0, sizeof stage);
}

static void stage_begins(void) {
    static unsigned number;

    kit_reset();
    stage_ends();
    snprintf(stage.path, sizeof stage.path, "%s/stage%u", server.dir, number++);
    stage.door = unix_socket(stage.path, 1);
    fcntl(stage.door, F_SETFL, O_NONBLOCK);
    stage.now_us = 1000000000;
}

static rlock_config stage_config(rlock_wire wire) {
    rlock_config config = kit_config(&server);

    config.loop = stage_loop;
    config.unix_path = stage.path;
    config.wire = wire;
    config.command_timeout_ms = TIMEOUT_MS;
    return config;
}

static rlock_client *stage_client(rlock_wire wire) {
    rlock_config config = stage_config(wire);
    rlock_client *client = kit_client(&config);

    assert_non_null(client);
    return client;
}

static struct owner *stage_owner(rlock_wire wire, const char *key) {
    return owner_new(stage_client(wire), key);
}

/* Returns how often a command was received. */
static int stage_count(const char *command) {
    const char *at = stage.trail;
    int count = 0;

    while ((at = strstr(at, command)) != NULL) {
        count++;
        at++;
    }
    return count;
}

static bool stage_is_pushing(void) {
    return kit_stats(kit_clients[0]).pushing;
}

#endif /* TESTS_FAULTS_STAGE_H */
