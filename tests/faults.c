/* Every fault provoked for real: a server that refuses, stalls, dies or lies, and a network that
 * loses, cuts and delays.
 * The expectations are the cells of FAULT x OPERATION in rlock.h. */
#include <hiredis/async.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

static unsigned memory_lasts;    /* so many allocations from here on, and that one fails; 0 = all */
static bool memory_stays_out;    /* and those after it too */
static unsigned commands_last;   /* so many commands, and that one hiredis refuses; 0 = all */
static bool no_boottime;         /* a kernel without CLOCK_BOOTTIME */
static unsigned clocks_read[16]; /* by their numbers */
/* what a kernel gives a fork */
static enum pages { PAGES, NO_PAGES, NONE_SHARED, PAGES_STAY, PAGES_SAID, PAGES_RACE } pages;

static void *memory_get(size_t size) {
    static bool out;

    if (memory_lasts > 0) {
        out = --memory_lasts == 0;
    } else {
        out = out && memory_stays_out;
    }
    return out ? NULL : malloc(size);
}

static int clock_get(clockid_t id, struct timespec *now) {
    if (no_boottime && id == CLOCK_BOOTTIME) {
        return -1;
    }
    clocks_read[id]++;
    return clock_gettime(id, now);
}

static void *page_map(void *at, size_t size, int access, int flags, int fd, off_t offset);

/* Before Linux 4.14 a page is not cleared in a fork; qemu-user says that it will be, and is not. */
static int page_advise(void *at, size_t size, int advice) {
    return pages == PAGES_STAY ? -1 : pages == PAGES_SAID ? 0 : madvise(at, size, advice);
}

static bool peers_are_hidden; /* a connection that is reset has none */

static int peer_name(int fd, struct sockaddr *peer, socklen_t *len) {
    return peers_are_hidden ? -1 : getpeername(fd, peer, len);
}

/* hiredis refuses a command for which it gets no memory. */
static int command_add(redisAsyncContext *ac, redisCallbackFn *fn, void *data, const char *command,
                       size_t len) {
    bool refused = commands_last > 0 && --commands_last == 0;

    return refused ? REDIS_ERR : redisAsyncFormattedCommand(ac, fn, data, command, len);
}

#define RLOCK_MALLOC(n) memory_get(n)
#define RLOCK_FREE(p) free(p)
#define clock_gettime(id, now) clock_get(id, now)
#define redisAsyncFormattedCommand command_add
#define getpeername(fd, peer, len) peer_name(fd, peer, len)
#define mmap(at, size, access, flags, fd, offset) page_map(at, size, access, flags, fd, offset)
#define madvise(at, size, advice) page_advise(at, size, advice)
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#undef clock_gettime
#undef redisAsyncFormattedCommand
#undef getpeername
#undef mmap
#undef madvise

/* None, or while another thread makes its own. */
static void *page_map(void *at, size_t size, int access, int flags, int fd, off_t offset) {
    if (pages == PAGES_RACE) {
        pages = PAGES;
        rlock__process();
    }
    if (pages == NO_PAGES || (pages == NONE_SHARED && (flags & MAP_SHARED) != 0)) {
        return MAP_FAILED;
    }
    return mmap(at, size, access, flags, fd, offset);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kit.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#define TIMEOUT_MS 100   /* of a command, so that a dead server is noticed soon */
#define WATCHDOG_MS 2400 /* its third falls into every fault, and what is left outlives it */
#define FAULT_MS 900     /* how long a fault stays that comes and goes */

static struct server server;
static const rlock_wire wires[] = {RLOCK_WIRE_STRING, RLOCK_WIRE_REDISSON};

static rlock_client *client_with(const char *path, rlock_wire wire, int64_t timeout_ms) {
    rlock_config config = kit_config(&server);
    rlock_client *client;

    config.unix_path = path;
    config.wire = wire;
    config.username = "locker";
    config.password = "secret";
    config.command_timeout_ms = timeout_ms;
    config.watchdog_lease_ms = WATCHDOG_MS;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

static rlock_client *client_at(const char *path, rlock_wire wire) {
    return client_with(path, wire, TIMEOUT_MS);
}

static void user_may_do_everything(void) {
    tell(ask(&server, "ACL SETUSER locker reset on >secret ~* &* +@all"));
}

/* ------------------------------------------------------------------------------------------------
 * Faults that begin and end while the client lives: each is put to every operation
 */

struct fault {
    void (*begin)(void);
    void (*end)(void);
    const char *word;   /* in the server's text of a refused acquire, NULL = none */
    int try_status;     /* acquire with wait = 0; also the end of a wait that is too short */
    int renew_status;   /* by hand */
    int release_status; /* when the fault lasts beyond the hold's deadline */
    bool for_ever;      /* a waiter with RLOCK_FOREVER is not told, it goes on */
    bool or_down;       /* what is tried again may meet no connection at all */
};

static redisContext *busy_hand;

static void readonly_begins(void) {
    tell(ask(&server, "REPLICAOF 127.0.0.1 1"));
}

static void readonly_ends(void) {
    tell(ask(&server, "REPLICAOF NO ONE"));
}

static void no_replicas_begins(void) {
    tell(ask(&server, "CONFIG SET min-replicas-to-write 1"));
}

static void no_replicas_ends(void) {
    tell(ask(&server, "CONFIG SET min-replicas-to-write 0"));
}

static void memory_runs_out(void) {
    tell(ask(&server, "CONFIG SET maxmemory 1"));
}

static void memory_is_back(void) {
    tell(ask(&server, "CONFIG SET maxmemory 0"));
}

/* A script of another client that does not end: after lua-time-limit every other hears BUSY. */
static void busy_begins(void) {
    int done = 0;

    tell(ask(&server, "CONFIG SET lua-time-limit 10"));
    busy_hand = kit_connect(&server);
    redisAppendCommand(busy_hand, "EVAL %s 0", "while true do end");
    while (!done) {
        redisBufferWrite(busy_hand, &done);
    }
    do {
        server_sleep_ms(5);
    } while (strncmp(str(ask(&server, "PING")), "BUSY", 4) != 0);
}

static void busy_ends(void) {
    tell(ask(&server, "SCRIPT KILL"));
    while (strcmp(str(ask(&server, "PING")), "PONG") != 0) {
        server_sleep_ms(1);
    }
    redisFree(busy_hand);
    busy_hand = NULL;
}

/* Lets the clients see that their connections are gone: what is asked then was never sent. */
static void cut_is_seen(void) {
    tell(ask(&server, "CLIENT KILL USER locker"));
    kit_run(50);
}

static void permission_is_taken(void) {
    tell(ask(&server, "ACL SETUSER locker -set -eval -evalsha -pttl -get"));
}

/* Connections that are open stay logged in, so they are cut too. */
static void password_is_changed(void) {
    tell(ask(&server, "ACL SETUSER locker resetpass >other"));
    cut_is_seen();
}

static void server_freezes(void) {
    server_pause(&server);
}

static void server_thaws(void) {
    server_resume(&server);
}

static void connections_are_refused(void) {
    tell(ask(&server, "CONFIG SET maxclients 1"));
    cut_is_seen();
}

static void connections_are_let_in(void) {
    tell(ask(&server, "CONFIG SET maxclients 1000"));
}

static char moved_socket[128];

static void socket_vanishes(void) {
    snprintf(moved_socket, sizeof moved_socket, "%s.away", server.socket);
    assert_int_equal(rename(server.socket, moved_socket), 0);
    cut_is_seen();
}

static void socket_returns(void) {
    assert_int_equal(rename(moved_socket, server.socket), 0);
}

/* At the end of its time a try may be out just then: that one is not answered. */
static bool ended_with(const struct fault *f, int status, int expected) {
    return status == expected || status == RLOCK_ERR_UNKNOWN ||
           (f->or_down && status == RLOCK_ERR_CONN);
}

struct party { /* one wire's handles, one for each column of the table */
    struct owner *tried, *waited, *waiting, *renewed, *watched, *released;
};

static struct party party_of(rlock_wire wire) {
    rlock_client *client = client_at(server.socket, wire);
    const char *mark = wire == RLOCK_WIRE_STRING ? "s" : "h";
    struct party p;
    char key[32];

#define OF(name) (snprintf(key, sizeof key, "%s:" #name, mark), p.name = owner_new(client, key))
    OF(tried);
    OF(waited);
    OF(waiting);
    OF(renewed);
    OF(watched);
    OF(released);
#undef OF
    assert_int_equal(owner_acquire(p.renewed, 0, 20000), RLOCK_OK);
    assert_int_equal(owner_acquire(p.watched, 0, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(p.released, 0, 20000), RLOCK_OK);
    return p;
}

/* Every operation at once, so that all of them meet the fault in the same moment. */
static void party_asks(const struct party *p) {
    assert_int_equal(rlock_acquire(p->tried->lock, 0, 5000, owner_told, p->tried), RLOCK_OK);
    assert_int_equal(rlock_acquire(p->waited->lock, 300, 5000, owner_told, p->waited), RLOCK_OK);
    assert_int_equal(rlock_acquire(p->waiting->lock, RLOCK_FOREVER, 5000, owner_told, p->waiting),
                     RLOCK_OK);
    assert_int_equal(rlock_renew(p->renewed->lock, 0, owner_told, p->renewed), RLOCK_OK);
    assert_int_equal(rlock_release(p->released->lock, owner_told, p->released), RLOCK_OK);
}

static void party_is_told(const struct party *p, const struct fault *f) {
    assert_int_equal(owner_wait(p->tried, RLOCK_ACQUIRED, 2000), f->try_status);
    assert_false(rlock_is_held(p->tried->lock));
    if (f->word != NULL) {
        assert_true(strstr(p->tried->text[RLOCK_ACQUIRED], f->word) != NULL ||
                    (f->try_status == RLOCK_ERR_AUTH && strstr(kit_log_text, f->word) != NULL));
    }
    assert_true(ended_with(f, owner_wait(p->waited, RLOCK_ACQUIRED, 2000), f->try_status));
    assert_int_equal(owner_wait(p->renewed, RLOCK_RENEWED, 2000), f->renew_status);
    assert_true(rlock_is_held(p->renewed->lock));
}

static void party_recovers(const struct party *p, const struct fault *f) {
    if (!f->for_ever) {
        assert_int_equal(owner_wait(p->waiting, RLOCK_ACQUIRED, 0), f->try_status);
        assert_int_equal(
            rlock_acquire(p->waiting->lock, RLOCK_FOREVER, 5000, owner_told, p->waiting), RLOCK_OK);
    }
    assert_int_equal(owner_wait(p->waiting, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_int_not_equal(owner_wait(p->released, RLOCK_RELEASED, 5000), KIT_NOTHING);
    assert_true(p->released->status[RLOCK_RELEASED] == RLOCK_OK ||
                (f->or_down && p->released->status[RLOCK_RELEASED] == RLOCK_ERR_NOT_HELD));
    assert_int_equal(num(ask(&server, "EXISTS %s", rlock_key(p->released->lock, NULL))), 0);
    assert_true(key_goes(&server, rlock_key(p->tried->lock, NULL), 2000));
    assert_true(key_goes(&server, rlock_key(p->waited->lock, NULL), 2000));
}

/* The fault comes and goes: what is tried once is told, what may wait goes on afterwards. */
static void comes_and_goes(const struct fault *f) {
    struct party p[2];
    int64_t start;
    int i;

    for (i = 0; i < 2; i++) {
        p[i] = party_of(wires[i]);
    }
    kit_run(20); /* else a renewal has nothing to extend, and is right to succeed */
    start = kit_now_us();
    f->begin();
    party_asks(&p[0]);
    party_asks(&p[1]);
    party_is_told(&p[0], f);
    party_is_told(&p[1], f);
    kit_run(FAULT_MS - (kit_now_us() - start) / 1000);
    for (i = 0; i < 2; i++) {
        assert_int_equal(p[i].waiting->seen[RLOCK_ACQUIRED], f->for_ever ? 0 : 1);
        assert_int_equal(p[i].released->seen[RLOCK_RELEASED],
                         f->release_status == RLOCK_OK ? 1 : 0);
    }
    f->end();
    party_recovers(&p[0], f);
    party_recovers(&p[1], f);
    kit_run(WATCHDOG_MS + 200 - (kit_now_us() - start) / 1000);
    for (i = 0; i < 2; i++) {
        assert_true(rlock_is_held(p[i].watched->lock));
        assert_int_equal(p[i].watched->seen[RLOCK_LOST], 0);
    }
}

/* The fault stays: every hold and every release ends by the local deadline, and nothing is left
 * behind. */
static void stays(const struct fault *f) {
    rlock_client *client = client_at(server.socket, RLOCK_WIRE_STRING);
    rlock_options options;
    struct owner *watched, *released = owner_new(client, "released");
    int64_t start;

    memset(&options, 0, sizeof options);
    options.key = "watched";
    options.watchdog = RLOCK_WATCHDOG_ON;
    watched = owner_with(client, &options);
    assert_int_equal(owner_acquire(watched, 0, 900), RLOCK_OK);
    assert_int_equal(owner_acquire(released, 0, 900), RLOCK_OK);
    start = kit_now_us();
    f->begin();
    assert_int_equal(rlock_release(released->lock, owner_told, released), RLOCK_OK);
    if (f->renew_status != RLOCK_OK) {
        assert_int_equal(owner_wait(watched, RLOCK_LOST, 3000), RLOCK_ERR_LOST);
        assert_int_equal(watched->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
        assert_true(watched->at_us[RLOCK_LOST] - start <= 1000000);
    }
    assert_true(ended_with(f, owner_wait(released, RLOCK_RELEASED, 3000), f->release_status));
    assert_true(released->at_us[RLOCK_RELEASED] - start <= 1000000);
    f->end();
    if (f->renew_status == RLOCK_OK) {
        assert_int_equal(owner_release(watched), RLOCK_OK);
    }
    assert_true(key_goes(&server, "watched", 5000));
    assert_true(key_goes(&server, "released", 5000));
}

static void put_to_every_operation(const struct fault *f) {
    comes_and_goes(f);
    kit_reset();
    user_may_do_everything();
    stays(f);
}

#define REFUSED_FOR_NOW(test, begins, ends, says)                                  \
    static void test(void **state) {                                               \
        static const struct fault                                                  \
            f = {begins,           ends, says, RLOCK_ERR_SERVER, RLOCK_ERR_SERVER, \
                 RLOCK_ERR_SERVER, true, false};                                   \
        (void)state;                                                               \
        put_to_every_operation(&f);                                                \
    }

REFUSED_FOR_NOW(read_only_server, readonly_begins, readonly_ends, "READONLY")
REFUSED_FOR_NOW(server_without_replicas, no_replicas_begins, no_replicas_ends, "NOREPLICAS")
REFUSED_FOR_NOW(server_busy_with_a_script, busy_begins, busy_ends, "BUSY")

/* Out of memory a server still lets keys be extended and deleted. */
static void server_out_of_memory(void **state) {
    static const struct fault f = {memory_runs_out, memory_is_back, "OOM", RLOCK_ERR_SERVER,
                                   RLOCK_OK,        RLOCK_OK,       true,  false};

    (void)state;
    put_to_every_operation(&f);
}

static void permission_taken_in_mid_run(void **state) {
    static const struct fault f = {
        permission_is_taken, user_may_do_everything, "NOPERM", RLOCK_ERR_AUTH,
        RLOCK_ERR_AUTH,      RLOCK_ERR_AUTH,         false,    false};

    (void)state;
    put_to_every_operation(&f);
}

static void password_changed_in_mid_run(void **state) {
    static const struct fault f = {
        password_is_changed, user_may_do_everything, "WRONGPASS", RLOCK_ERR_AUTH,
        RLOCK_ERR_AUTH,      RLOCK_ERR_AUTH,         false,       false};

    (void)state;
    put_to_every_operation(&f);
}

static void server_stopped(void **state) {
    static const struct fault f = {server_freezes,    server_thaws,      NULL, RLOCK_ERR_UNKNOWN,
                                   RLOCK_ERR_UNKNOWN, RLOCK_ERR_UNKNOWN, true, true};

    (void)state;
    put_to_every_operation(&f);
}

static void server_unreachable(void **state) {
    static const struct fault f = {socket_vanishes, socket_returns, NULL, RLOCK_ERR_CONN,
                                   RLOCK_ERR_CONN,  RLOCK_ERR_CONN, true, false};

    (void)state;
    put_to_every_operation(&f);
}

static void server_with_too_many_clients(void **state) {
    static const struct fault f = {
        connections_are_refused, connections_are_let_in, "max number", RLOCK_ERR_SERVER,
        RLOCK_ERR_SERVER,        RLOCK_ERR_SERVER,       true,         false};

    (void)state;
    put_to_every_operation(&f);
}

/* Whether the refusal or the end of the connection is seen first must not matter. */
static void full_server_is_told_with_its_words_every_time(void **state) {
    int i;

    (void)state;
    connections_are_refused();
    for (i = 0; i < 20; i++) {
        struct owner *o = owner_new(client_at(server.socket, wires[i % 2]), "k");

        assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_SERVER);
        assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "max number"));
    }
}

/* ------------------------------------------------------------------------------------------------
 * Before the first connect
 */

static void never_connected(rlock_config *config, int expected) {
    rlock_client *client = kit_client(config);
    struct owner *tried = owner_new(client, "k"), *waited = owner_new(client, "k");
    int64_t start = kit_now_us();

    assert_int_equal(owner_acquire(tried, 0, 1000), expected);
    assert_int_equal(owner_acquire(waited, 300, 1000), expected);
    assert_true(kit_now_us() - start < 3000000);
    assert_int_equal(kit_stats(client).held, 0);
    assert_false(kit_stats(client).up);
}

static void missing_socket_is_no_connection(void **state) {
    rlock_config config = kit_config(&server);

    (void)state;
    config.unix_path = "/nonexistent/socket";
    never_connected(&config, RLOCK_ERR_CONN);
}

static void refused_port_is_no_connection(void **state) {
    rlock_config config = kit_config(&server);

    (void)state;
    config.unix_path = NULL;
    config.port = server_free_port();
    never_connected(&config, RLOCK_ERR_CONN);
}

static void silent_listener_is_no_connection(void **state) {
    rlock_config config = kit_config(&server);
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct owner *o;

    (void)state;
    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    snprintf(a.sun_path, sizeof a.sun_path, "%s/silent", server.dir);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    config.unix_path = a.sun_path;
    config.command_timeout_ms = TIMEOUT_MS;
    o = owner_new(kit_client(&config), "k");
    assert_int_not_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_in_range(-o->status[RLOCK_ACQUIRED], -RLOCK_ERR_UNKNOWN, -RLOCK_ERR_CONN);
    close(fd);
}

static void wrong_password_is_told(void **state) {
    rlock_config config = kit_config(&server);

    (void)state;
    config.username = "locker";
    config.password = "wrong";
    never_connected(&config, RLOCK_ERR_AUTH);
}

static void missing_password_is_told(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *o;

    (void)state;
    tell(ask(&server, "ACL SETUSER default resetpass >needed"));
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 3000), RLOCK_ERR_AUTH);
    tell(ask(&server, "ACL SETUSER default nopass"));
}

static void first_connect_is_retried_until_the_server_is_there(void **state) {
    rlock_client *client;
    struct owner *o;

    (void)state;
    socket_vanishes();
    client = client_at(server.socket, RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    assert_int_equal(rlock_acquire(o->lock, 10000, 1000, owner_told, o), RLOCK_OK);
    kit_run(500);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    socket_returns();
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
}

/* ------------------------------------------------------------------------------------------------
 * Something else at the key
 */

static void another_type_at_the_key(void **state) {
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_client *client = client_at(server.socket, wires[i]);
        struct owner *tried = owner_new(client, "list"), *waited = owner_new(client, "list");
        struct owner *renewed = owner_new(client, "a"), *watched = owner_new(client, "b");
        struct owner *released = owner_new(client, "c");

        tell(ask(&server, "RPUSH list x"));
        assert_int_equal(owner_acquire(tried, 0, 1000), RLOCK_ERR_WRONG_TYPE);
        assert_int_equal(rlock_acquire(waited->lock, RLOCK_FOREVER, 1000, owner_told, waited),
                         RLOCK_OK);
        assert_int_equal(owner_wait(waited, RLOCK_ACQUIRED, 2000), RLOCK_ERR_WRONG_TYPE);
        assert_int_equal(owner_acquire(renewed, 0, 60000), RLOCK_OK);
        assert_int_equal(owner_acquire(watched, 0, 0), RLOCK_OK);
        assert_int_equal(owner_acquire(released, 0, 60000), RLOCK_OK);
        tell(ask(&server, "DEL a b c"));
        tell(ask(&server, "RPUSH a x"));
        tell(ask(&server, "RPUSH b x"));
        tell(ask(&server, "RPUSH c x"));
        assert_int_equal(owner_release(released), RLOCK_ERR_NOT_HELD);
        assert_int_equal(owner_renew(renewed, 0), RLOCK_ERR_LOST);
        assert_int_equal(owner_wait(renewed, RLOCK_LOST, 1000), RLOCK_ERR_LOST);
        assert_int_equal(renewed->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
        assert_int_equal(owner_wait(watched, RLOCK_LOST, WATCHDOG_MS), RLOCK_ERR_LOST);
        assert_int_equal(watched->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
        assert_int_equal(num(ask(&server, "EXISTS list a b c")), 4);
        tell(ask(&server, "DEL list a b c"));
        kit_reset();
    }
}

/* ------------------------------------------------------------------------------------------------
 * The server dies, stalls, or loses its connections
 */

static void server_killed_without_data_tells_the_holder(void **state) {
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_config config = kit_config(&server);
        rlock_client *client;
        struct owner *held, *next;

        config.wire = wires[i];
        config.command_timeout_ms = TIMEOUT_MS;
        client = kit_client(&config);
        held = owner_new(client, "k");
        next = owner_new(client, "k");
        assert_int_equal(owner_acquire(held, 0, 60000), RLOCK_OK);
        assert_int_equal(rlock_acquire(next->lock, RLOCK_FOREVER, 5000, owner_told, next),
                         RLOCK_OK);
        kit_run(100);
        server_kill9(&server);
        kit_run(300);
        assert_true(rlock_is_held(held->lock)); /* nothing is known yet: the lease still stands */
        assert_int_equal(server_restart(&server), 0);
        assert_int_equal(owner_wait(held, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
        assert_true(held->reason[RLOCK_LOST] == RLOCK_REASON_DELETED ||
                    held->reason[RLOCK_LOST] == RLOCK_REASON_STOLEN);
        assert_int_equal(owner_wait(next, RLOCK_ACQUIRED, 5000), RLOCK_OK);
        assert_true(held->at_us[RLOCK_LOST] <= next->at_us[RLOCK_ACQUIRED]);
        kit_reset();
        kit_hand_drop();
        tell(ask(&server, "FLUSHALL"));
        user_may_do_everything();
    }
}

static void release_finds_its_server_again(void **state) {
    rlock_config config = kit_config(&server);
    struct owner *o;

    (void)state;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(o, 0, 20000), RLOCK_OK);
    server_kill9(&server);
    assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_OK);
    kit_run(300);
    assert_int_equal(o->seen[RLOCK_RELEASED], 0);
    assert_int_equal(server_restart(&server), 0);
    assert_int_equal(owner_wait(o, RLOCK_RELEASED, 5000), RLOCK_ERR_NOT_HELD);
    kit_hand_drop();
    user_may_do_everything();
}

static void server_stopped_for_3_s_ends_short_holds_and_spares_long_ones(void **state) {
    rlock_client *client = client_at(server.socket, RLOCK_WIRE_STRING);
    struct owner *brief = owner_new(client, "brief"), *lasting = owner_new(client, "lasting");
    struct owner *waiting = owner_new(client, "brief");
    int64_t start;

    (void)state;
    assert_int_equal(owner_acquire(lasting, 0, 20000), RLOCK_OK);
    assert_int_equal(owner_acquire(brief, 0, 1000), RLOCK_OK);
    start = kit_now_us();
    assert_int_equal(rlock_acquire(waiting->lock, RLOCK_FOREVER, 5000, owner_told, waiting),
                     RLOCK_OK);
    kit_run(100);
    server_pause(&server);
    kit_run(3000);
    assert_int_equal(brief->seen[RLOCK_LOST], 1);
    assert_int_equal(brief->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_true(brief->at_us[RLOCK_LOST] - start <= 1100000);
    assert_int_equal(waiting->seen[RLOCK_ACQUIRED], 0);
    server_resume(&server);
    assert_int_equal(owner_wait(waiting, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(rlock_is_held(lasting->lock));
    assert_int_equal(lasting->seen[RLOCK_LOST], 0);
    assert_int_equal(owner_renew(lasting, 0), RLOCK_OK);
}

static void all_connections_killed_in_every_state(void **state) {
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_client *client = client_at(server.socket, wires[i]);
        struct owner *idle = owner_new(client, "idle"), *held = owner_new(client, "held");
        struct owner *watched = owner_new(client, "watched"), *waiting = owner_new(client, "k");
        int round;

        assert_int_equal(owner_acquire(held, 0, 60000), RLOCK_OK);
        assert_int_equal(owner_acquire(watched, 0, 0), RLOCK_OK);
        tell(ask(&server, wires[i] == RLOCK_WIRE_STRING ? "SET k x PX 60000" : "HSET k x 1"));
        assert_int_equal(rlock_acquire(waiting->lock, RLOCK_FOREVER, 5000, owner_told, waiting),
                         RLOCK_OK);
        for (round = 0; round < 3; round++) {
            kit_run(300);
            assert_true(num(ask(&server, "CLIENT KILL USER locker")) >= 1);
            assert_int_equal(owner_acquire(idle, 3000, 5000), RLOCK_OK);
            assert_true(num(ask(&server, "CLIENT KILL USER locker")) >= 1);
            assert_int_equal(owner_release(idle), RLOCK_OK);
        }
        tell(ask(&server, "DEL k"));
        assert_int_equal(owner_wait(waiting, RLOCK_ACQUIRED, 3000), RLOCK_OK);
        assert_true(rlock_is_held(watched->lock));
        assert_int_equal(owner_renew(held, 0), RLOCK_OK);
        assert_int_equal(held->seen[RLOCK_LOST] + watched->seen[RLOCK_LOST], 0);
        kit_reset();
        tell(ask(&server, "FLUSHALL"));
    }
}

static void paused_clients_are_waited_for(void **state) {
    rlock_client *client = client_at(server.socket, RLOCK_WIRE_STRING);
    struct owner *held = owner_new(client, "held"), *o = owner_new(client, "k");

    (void)state;
    assert_int_equal(owner_acquire(held, 0, 0), RLOCK_OK);
    tell(ask(&server, "CLIENT PAUSE 1000 ALL"));
    assert_int_equal(owner_acquire(o, 5000, 5000), RLOCK_OK);
    assert_true(rlock_is_held(held->lock));
    assert_int_equal(owner_release(o), RLOCK_OK);
    assert_int_equal(owner_release(held), RLOCK_OK);
}

/* ------------------------------------------------------------------------------------------------
 * A proxy in a process of its own, told what to do through shared memory
 */

enum { PASS, SWALLOW_REPLIES, BLACK_HOLE, SPLIT, DELAY_50_MS, DELAY_200_MS, HOLD_BACK };

#define LINKS 16

/* Done once, then 0 again. cut: end every connection; where requests are held back, only the
 * client's half of it. deliver: send on what was held back. */
struct proxy {
    volatile int mode, cut, deliver;
    char path[128];
};

struct link {
    int side[2]; /* the client's, the server's */
    int lossy;   /* what was swallowed: it may never carry a byte again, as no TCP connection
                    has a hole in it */
    size_t held;
    char bytes[16384]; /* held back */
};

static struct proxy *proxy;
static pid_t proxy_pid; /* not shared: in the proxy itself it is 0 */

static int unix_socket(const char *path, int listening) {
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (listening ? bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 16) != 0
                  : connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Passes on what came from that side, as the mode wants it; false = this link is over. */
static int proxy_passes(struct link *l, int side) {
    char buffer[16384];
    ssize_t n = recv(l->side[side], buffer, sizeof buffer, 0), i;
    int to = l->side[!side];

    if (n <= 0) {
        return 0;
    }
    if (proxy->mode == BLACK_HOLE || (proxy->mode == SWALLOW_REPLIES && side == 1)) {
        l->lossy = 1;
        return 1;
    }
    if (l->lossy) {
        return 0;
    }
    if (proxy->mode == HOLD_BACK && side == 0 && l->held + (size_t)n <= sizeof l->bytes) {
        memcpy(l->bytes + l->held, buffer, (size_t)n);
        l->held += (size_t)n;
        return 1;
    }
    if (proxy->mode == DELAY_50_MS || proxy->mode == DELAY_200_MS) {
        server_sleep_ms(proxy->mode == DELAY_50_MS ? 50 : 200);
    }
    if (proxy->mode != SPLIT) {
        return send(to, buffer, (size_t)n, MSG_NOSIGNAL) == n;
    }
    for (i = 0; i < n; i++) {
        if (send(to, buffer + i, 1, MSG_NOSIGNAL) != 1) {
            return 0;
        }
        usleep(50);
    }
    return 1;
}

static void proxy_drops(struct link *l) {
    close(l->side[0]);
    close(l->side[1]);
    l->side[0] = l->side[1] = -1;
    l->held = 0;
}

static void proxy_cuts_link(struct link *l) {
    if (l->held > 0 && l->side[0] >= 0) {
        close(l->side[0]);
        l->side[0] = -1;
    } else if (l->held == 0) {
        proxy_drops(l);
    }
}

static void proxy_delivers(struct link *l) {
    if (l->held > 0 && send(l->side[1], l->bytes, l->held, MSG_NOSIGNAL) != (ssize_t)l->held) {
        proxy_drops(l);
    }
    l->held = 0;
}

static void proxy_accepts(struct link *l, int door) {
    l->side[0] = accept(door, NULL, NULL);
    l->side[1] = unix_socket(server.socket, 0);
    l->lossy = 0;
    if (l->side[1] < 0) {
        proxy_drops(l);
    }
}

static void proxy_serves(int door) {
    static struct link links[LINKS];
    int i;

    for (i = 0; i < LINKS; i++) {
        links[i].side[0] = links[i].side[1] = -1;
    }
    for (;;) {
        struct pollfd p[1 + 2 * LINKS];

        p[0].fd = door;
        p[0].events = POLLIN;
        for (i = 0; i < 2 * LINKS; i++) {
            p[1 + i].fd = links[i / 2].side[i % 2];
            p[1 + i].events = POLLIN;
            p[1 + i].revents = 0;
        }
        poll(p, 1 + 2 * LINKS, 5);
        for (i = 0; i < 2 * LINKS; i++) {
            struct link *l = &links[i / 2];

            if (l->side[i % 2] >= 0 && p[1 + i].revents != 0 && !proxy_passes(l, i % 2)) {
                proxy_drops(l);
            }
        }
        for (i = 0; i < LINKS; i++) {
            if (links[i].side[1] >= 0 && proxy->cut) {
                proxy_cuts_link(&links[i]);
            }
            if (links[i].side[1] >= 0 && proxy->deliver) {
                proxy_delivers(&links[i]);
            }
        }
        proxy->cut = proxy->deliver = 0;
        for (i = 0; (p[0].revents & POLLIN) && i < LINKS; i++) {
            if (links[i].side[1] < 0) {
                proxy_accepts(&links[i], door);
                break;
            }
        }
    }
}

static void proxy_starts(void) {
    pid_t parent = getpid();
    int door;

    proxy = (struct proxy *)mmap(NULL, sizeof *proxy, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(proxy->path, sizeof proxy->path, "%s/proxy", server.dir);
    door = unix_socket(proxy->path, 1);
    proxy_pid = fork();
    if (proxy_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            proxy_serves(door);
        }
        _exit(0);
    }
    close(door);
}

static void proxy_does(volatile int *what) {
    *what = 1;
    while (*what) {
        server_sleep_ms(1);
    }
}

static void proxy_cuts(void) {
    proxy_does(&proxy->cut);
}

static void proxy_delivers_late(void) {
    proxy_does(&proxy->deliver);
}

static void black_holed_holder_is_told_by_its_deadline(void **state) {
    struct owner *o[2];
    int64_t start = kit_now_us();
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_options options;

        memset(&options, 0, sizeof options);
        options.key = i == 0 ? "s" : "h";
        options.watchdog = RLOCK_WATCHDOG_ON;
        o[i] = owner_with(client_at(proxy->path, wires[i]), &options);
        assert_int_equal(owner_acquire(o[i], 0, 1500), RLOCK_OK);
    }
    kit_run(1000);
    proxy->mode = BLACK_HOLE;
    for (i = 0; i < 2; i++) {
        assert_int_equal(owner_wait(o[i], RLOCK_LOST, 5000), RLOCK_ERR_LOST);
        assert_int_equal(o[i]->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
        assert_true(o[i]->at_us[RLOCK_LOST] - start <=
                    2700000); /* renewed for the last time within the first second */
        assert_true(o[i]->at_us[RLOCK_LOST] - start > 1500000); /* and at least once */
    }
    proxy->mode = PASS;
    assert_true(key_goes(&server, "s", 3000));
    assert_true(key_goes(&server, "h", 3000));
}

static void black_holed_renewal_and_release_are_unknown(void **state) {
    struct owner *renewed = owner_new(client_at(proxy->path, RLOCK_WIRE_STRING), "renewed");
    struct owner *released = owner_new(client_at(proxy->path, RLOCK_WIRE_STRING), "released");

    (void)state;
    assert_int_equal(owner_acquire(renewed, 0, 1200), RLOCK_OK);
    assert_int_equal(owner_acquire(released, 0, 1200), RLOCK_OK);
    proxy->mode = BLACK_HOLE;
    assert_int_equal(owner_renew(renewed, 0), RLOCK_ERR_UNKNOWN);
    assert_true(rlock_is_held(renewed->lock));
    assert_int_equal(owner_release(released), RLOCK_ERR_UNKNOWN);
    assert_int_equal(owner_wait(renewed, RLOCK_LOST, 2000), RLOCK_ERR_LOST);
}

static void replies_split_at_every_byte_are_understood(void **state) {
    static const char key[] = "a\0b\r\n";
    size_t i;

    (void)state;
    proxy->mode = SPLIT;
    for (i = 0; i < 2; i++) {
        rlock_client *client = client_with(proxy->path, wires[i], 2000);
        rlock_options options;
        struct owner *a, *b;

        memset(&options, 0, sizeof options);
        options.key = key;
        options.key_len = sizeof key - 1;
        options.fencing = true;
        a = owner_with(client, &options);
        b = owner_with(client_with(proxy->path, wires[i], 2000), &options);
        assert_int_equal(owner_acquire(a, 5000, 60000), RLOCK_OK);
        assert_int_equal(rlock_acquire(b->lock, RLOCK_FOREVER, 60000, owner_told, b), RLOCK_OK);
        assert_int_equal(owner_renew(a, 0), RLOCK_OK);
        kit_run(300);
        assert_int_equal(b->seen[RLOCK_ACQUIRED], 0);
        assert_int_equal(owner_release(a), RLOCK_OK);
        assert_int_equal(owner_wait(b, RLOCK_ACQUIRED, 5000), RLOCK_OK);
        assert_true(b->fence[RLOCK_ACQUIRED] > a->fence[RLOCK_ACQUIRED]);
        assert_int_equal(owner_release(b), RLOCK_OK);
        assert_int_equal(kit_stats(client).faults, 0);
        kit_reset();
    }
}

static void validity_counts_from_the_sending(void **state) {
    rlock_client *client = client_with(proxy->path, RLOCK_WIRE_STRING, 2000);
    struct owner *o = owner_new(client, "k");

    (void)state;
    assert_int_equal(owner_acquire(o, 2000, 1000), RLOCK_OK); /* connected */
    assert_int_equal(owner_release(o), RLOCK_OK);
    proxy->mode = DELAY_50_MS; /* each way */
    assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
    assert_true(o->remaining_ms[RLOCK_ACQUIRED] <= 1000 - 100 - 10);
}

static void reply_after_its_own_deadline_is_refused(void **state) {
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *o = owner_new(client_with(proxy->path, wires[i], 2000), "k");

        proxy->mode = PASS;
        assert_int_equal(owner_acquire(o, 2000, 1000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
        proxy->mode = DELAY_200_MS;
        assert_int_not_equal(owner_acquire(o, 0, 100), RLOCK_OK);
        assert_false(rlock_is_held(o->lock));
        kit_reset();
    }
}

static void unanswered_acquire_is_retried_and_granted_once(void **state) {
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_client *client = client_at(proxy->path, wires[i]);
        struct owner *o = owner_new(client, "k");

        assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
        proxy->mode = SWALLOW_REPLIES;
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
        kit_run(50);
        assert_int_equal(num(ask(&server, "EXISTS k")), 1); /* done, and nobody knows */
        proxy->mode = PASS;
        proxy_cuts();
        assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 5000), RLOCK_OK);
        if (wires[i] == RLOCK_WIRE_REDISSON) {
            assert_string_equal(
                str(ask(&server, "EVAL %s 1 k", "return redis.call('hvals', KEYS[1])[1]")), "1");
        }
        kit_run(300);
        assert_true(rlock_is_held(o->lock));
        assert_int_equal(num(ask(&server, "EXISTS k")), 1);
        assert_int_equal(o->seen[RLOCK_ACQUIRED], 2);
        assert_int_equal(owner_release(o), RLOCK_OK);
        assert_int_equal(num(ask(&server, "EXISTS k")), 0);
        kit_reset();
    }
}

static void unanswered_try_is_unknown_and_cleaned_up(void **state) {
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_client *client = client_at(proxy->path, wires[i]);
        struct owner *o = owner_new(client, "k");

        assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
        assert_int_equal(owner_release(o), RLOCK_OK);
        proxy->mode = SWALLOW_REPLIES;
        assert_int_equal(owner_acquire(o, 0, 60000), RLOCK_ERR_UNKNOWN);
        assert_int_equal(num(ask(&server, "EXISTS k")), 1);
        proxy->mode = PASS;
        assert_true(key_goes(&server, "k", 5000));
        assert_true(kit_until(kit_is_clean, client, 5000));
        kit_reset();
    }
}

static void unanswered_release_is_sent_again(void **state) {
    rlock_client *client = client_at(proxy->path, RLOCK_WIRE_STRING);
    struct owner *o = owner_new(client, "k");

    (void)state;
    assert_int_equal(owner_acquire(o, 0, 20000), RLOCK_OK);
    proxy->mode = SWALLOW_REPLIES;
    assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_OK);
    kit_run(50);
    assert_int_equal(num(ask(&server, "EXISTS k")), 0);
    proxy->mode = PASS;
    proxy_cuts();
    assert_int_not_equal(owner_wait(o, RLOCK_RELEASED, 5000), KIT_NOTHING);
    assert_true(o->status[RLOCK_RELEASED] == RLOCK_OK ||
                o->status[RLOCK_RELEASED] == RLOCK_ERR_NOT_HELD);
}

/* Loses its connection over an acquire that stays on the way; ends UNKNOWN. */
static void acquire_is_held_back(struct owner *o) {
    proxy->mode = HOLD_BACK;
    assert_int_equal(rlock_acquire(o->lock, 0, 6000, owner_told, o), RLOCK_OK);
    kit_run(30);
    proxy_cuts();
    proxy->mode = PASS;
    assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 3000), RLOCK_ERR_UNKNOWN);
}

/* The end of one old connection says nothing of an older one. */
static void acquire_that_an_old_connection_still_carries_is_waited_for(void **state) {
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_client *client;
        struct owner *first, *second;

        tell(ask(&server, "ACL SETUSER locker -client|kill"));
        client = client_at(proxy->path, wires[i]);
        first = owner_new(client, "first");
        second = owner_new(client, "second");
        assert_int_equal(owner_acquire(first, 0, 1000), RLOCK_OK);
        assert_int_equal(owner_release(first), RLOCK_OK);
        acquire_is_held_back(first); /* the server is not allowed to end this connection */
        assert_int_equal(owner_acquire(second, 3000, 1000), RLOCK_OK);
        assert_int_equal(owner_release(second), RLOCK_OK);
        tell(ask(&server, "ACL SETUSER locker +client|kill"));
        acquire_is_held_back(second); /* but this one */
        assert_int_equal(owner_acquire(second, 3000, 1000), RLOCK_OK);
        assert_int_equal(owner_release(second), RLOCK_OK);
        kit_run(400); /* long enough to be told that there is no such token */
        assert_true(kit_stats(client).cleaning > 0);
        proxy_delivers_late();
        while (num(ask(&server, "EXISTS first")) == 0) {
            server_sleep_ms(1);
        }
        assert_true(key_goes(&server, "first", 3000));
        assert_int_equal(num(ask(&server, "EXISTS second")), 0);
        kit_reset();
    }
}

/* ------------------------------------------------------------------------------------------------
 * Servers that lie: honest ones but for one thing. They hold "taken" for another.
 */

struct lie {
    const char *command; /* where it lies, "" = at the connect, NULL = at every command */
    const char *answer;  /* what it says there, behind the honest answer ... */
    bool instead;        /* ... or instead of it */
    bool closes;         /* behind that */
    bool once;           /* and never again */
};

#define LIARS 16

struct liar {
    const struct lie *lie;
    pid_t pid;
    volatile int connects, told;
    char path[128];
};

static struct liar *liars; /* shared with their processes */

#define LIAR_WORDS 6 /* the rest of a command does not matter */

struct words {
    size_t count;
    char text[LIAR_WORDS][64];
};

/* One command out of what was received; returns its length, 0 = it is not complete. */
static size_t liar_reads(const char *bytes, size_t len, struct words *words) {
    const char *at = bytes, *end = bytes + len;
    size_t i;

    for (i = 0; i == 0 || i <= words->count; i++) {
        const char *line = (const char *)memchr(at, '\n', (size_t)(end - at));
        size_t size;

        if (line == NULL) {
            return 0;
        }
        size = (size_t)atol(at + 1);
        at = line + 1;
        if (i == 0) {
            words->count = size;
            continue;
        }
        if ((size_t)(end - at) < size + 2) {
            return 0;
        }
        if (i <= LIAR_WORDS) {
            snprintf(words->text[i - 1], sizeof words->text[0], "%.*s", (int)size, at);
        }
        at += size + 2;
    }
    return (size_t)(at - bytes);
}

static bool liar_hears(const struct words *words, const char *command) {
    char both[130]; /* of a script in full its beginning is enough */
    size_t len = strlen(command);

    snprintf(both, sizeof both, "%s %s", words->text[0], words->text[1]);
    return strncmp(both, command, len < 60 ? len : 60) == 0;
}

/* Many renewals in one script. */
#define RENEW_MANY "EVALSHA " RLOCK__SHA_STRING_RENEW_MANY
#define RENEW_MANY_IN_FULL "EVAL " RLOCK__LUA_STRING_RENEW_MANY

static bool liar_hears_batch(const struct words *words) {
    return liar_hears(words, RENEW_MANY) || liar_hears(words, RENEW_MANY_IN_FULL);
}

/* What an honest server says, to a short key and for a short time. */
static const char *liar_is_honest(const struct words *words) {
    static char text[160];
    int count = words->count > 2 ? atoi(words->text[2]) : 0;

    if (liar_hears(words, "CLIENT ID")) {
        return ":7\r\n";
    }
    if (liar_hears(words, "INFO")) {
        return "$47\r\nrun_id:0123456789012345678901234567890123456789\r\n";
    }
    if (liar_hears(words, "COMMAND INFO")) {
        return "*1\r\n*-1\r\n";
    }
    if (liar_hears(words, "SET taken")) {
        return "$-1\r\n";
    }
    if (liar_hears_batch(words) && count > 0 && count <= RLOCK__BATCH) {
        int used = snprintf(text, sizeof text, "$%d\r\n", count);

        memset(text + used, '1', (size_t)count);
        strcpy(text + used + count, "\r\n");
        return text;
    }
    if (liar_hears(words, "DELIFEQ")) {
        return ":1\r\n";
    }
    if (liar_hears(words, "EVAL")) {
        return strcmp(words->text[3], "taken") == 0 ? ":60000\r\n" : ":1\r\n";
    }
    if (liar_hears(words, "SUBSCRIBE")) {
        snprintf(text, sizeof text, "*3\r\n$9\r\nsubscribe\r\n$%u\r\n%s\r\n:1\r\n",
                 (unsigned)strlen(words->text[1]), words->text[1]);
        return text;
    }
    return "+OK\r\n";
}

/* Says its lie, if this is the place, in one packet with the truth; false = and closes. */
static bool liar_lies(struct liar *liar, int fd, const char *honest, bool here) {
    const struct lie *lie = liar->lie;
    char text[512];

    here = here && (!lie->once || liar->told == 0);
    liar->told += here;
    snprintf(text, sizeof text, "%s%s", here && lie->instead ? "" : honest,
             here ? lie->answer : "");
    send(fd, text, strlen(text), MSG_NOSIGNAL);
    return !here || !lie->closes;
}

static void liar_talks(struct liar *liar, int fd) {
    const char *place = liar->lie->command;
    char buffer[16384];
    size_t len = 0, used;
    ssize_t n;
    struct words words;

    if (!liar_lies(liar, fd, "", place != NULL && *place == '\0')) {
        return;
    }
    while ((n = recv(fd, buffer + len, sizeof buffer - len, 0)) > 0) {
        len += (size_t)n;
        while (len > 0 && (used = liar_reads(buffer, len, &words)) > 0) {
            bool here = place == NULL || (*place != '\0' && liar_hears(&words, place));

            if (!liar_lies(liar, fd, liar_is_honest(&words), here)) {
                return;
            }
            memmove(buffer, buffer + used, len - used);
            len -= used;
        }
    }
}

static void liar_serves(struct liar *liar, int door) {
    signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int fd = accept(door, NULL, NULL);

        liar->connects++;
        if (fd >= 0 && fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            liar_talks(liar, fd);
            _exit(0);
        }
        close(fd);
    }
}

static void liars_start(const struct lie *lies, size_t count) {
    static unsigned number;
    pid_t parent = getpid();
    size_t i;

    if (liars == NULL) {
        liars = (struct liar *)mmap(NULL, LIARS * sizeof *liars, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    for (i = 0; i < count; i++) {
        struct liar *liar = &liars[i];
        int door;

        memset(liar, 0, sizeof *liar);
        liar->lie = &lies[i];
        snprintf(liar->path, sizeof liar->path, "%s/liar%u", server.dir, number++);
        door = unix_socket(liar->path, 1);
        liar->pid = fork();
        if (liar->pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent) {
                liar_serves(liar, door);
            }
            _exit(0);
        }
        close(door);
    }
}

static void liars_end(void) {
    size_t i;

    for (i = 0; liars != NULL && i < LIARS; i++) {
        if (liars[i].pid > 0) {
            kill(liars[i].pid, SIGKILL);
            waitpid(liars[i].pid, NULL, 0);
            liars[i].pid = 0;
        }
    }
}

static void lies_grant_nothing(void **state) {
    static const struct lie lies[] = {
        {NULL, "+WAT\r\n", true, false, false},
        {NULL, ":-7\r\n", true, false, false},
        {NULL, "$3\r\nabc\r\n", true, false, false},
        {NULL, "$0\r\n\r\n", true, false, false},
        {NULL, "*0\r\n", true, false, false},
        {NULL, "*-1\r\n", true, false, false},
        {NULL, "-\r\n", true, false, false},
        {NULL, "-ERR what\r\n", true, false, false},
        {NULL, "*1\r\n*1\r\n:1\r\n", true, false, false},
        {NULL, ":99999999999999999\r\n", true, false, false},
        {NULL, "@#!\r\n\r\n", true, false, false},
        {NULL, "*2\r\n$-1\r\n+OK\r\n", true, false, false},
        {NULL, "$-5\r\n", true, false, false},
        {NULL, "+\r\n", true, false, false},
        {NULL, "*9999999999\r\n", true, false, false},
    };
    size_t i, w, count = sizeof lies / sizeof lies[0];

    (void)state;
    liars_start(lies, count);
    for (i = 0; i < count; i++) {
        for (w = 0; w < 2; w++) {
            struct owner *o = owner_new(client_at(liars[i].path, wires[w]), "k");
            struct owner *fenced = owner_fenced(client_at(liars[i].path, wires[w]), "k");

            assert_int_not_equal(owner_acquire(o, 0, 1000), RLOCK_OK);
            assert_int_not_equal(owner_acquire(fenced, 100, 1000), RLOCK_OK);
            assert_int_not_equal(fenced->status[RLOCK_ACQUIRED], KIT_NOTHING);
            assert_false(rlock_is_held(o->lock));
            assert_false(rlock_is_held(fenced->lock));
            kit_reset();
        }
    }
}

static int asked_status;

static void asked_about(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    asked_status = info->status;
}

static int was_answered(void *arg) {
    (void)arg;
    return asked_status != KIT_NOTHING;
}

static void lies_answer_no_question(void **state) {
    static const struct lie lies[] = {
        {"EVALSHA", "+OK\r\n", true, false, false},
        {"EVALSHA", ":-1\r\n", true, false, false},
        {"EVALSHA", "*0\r\n", true, false, false},
        {"EVALSHA", "$-1\r\n", true, false, false},
        {"EVALSHA", "$0\r\n\r\n", true, false, false},
        {"EVALSHA", "$4\r\nnope\r\n", true, false, false},
        {"EVALSHA", "$6\r\n1 2 3 \r\n", true, false, false},
        {"EVALSHA", "$9\r\n1 2 3 4,5\r\n", true, false, false},
        {"EVALSHA", "$11\r\n1 -2 3 4 5 \r\n", true, false, false},
    };
    size_t i, count = sizeof lies / sizeof lies[0];
    int force;

    (void)state;
    liars_start(lies, count);
    for (i = 0; i < count * 2; i++) {
        rlock_client *client = client_at(liars[i / 2].path, RLOCK_WIRE_STRING);
        rlock_options options;

        force = i % 2 == 1;
        memset(&options, 0, sizeof options);
        options.key = "k";
        asked_status = KIT_NOTHING;
        assert_int_equal(force ? rlock_force_release(client, &options, asked_about, NULL)
                               : rlock_inspect(client, &options, asked_about, NULL),
                         RLOCK_OK);
        assert_true(kit_until(was_answered, NULL, 5000));
        assert_int_equal(asked_status, RLOCK_ERR_SERVER);
        assert_true(liars[i / 2].told > 0); /* it is not the greeting that failed */
        kit_reset();
    }
}

/* Everything that hiredis asserts, and every way to end at once: no crash, and no storm of
 * connects. Each connection is made again, but later each time. */
#define STORM 20

static void bad_servers_are_left_and_tried_again_later(const struct lie *lies, size_t count) {
    struct owner *tried[LIARS], *waited[LIARS];
    size_t i;

    liars_start(lies, count);
    for (i = 0; i < count; i++) {
        rlock_client *client = client_at(liars[i].path, RLOCK_WIRE_STRING);

        tried[i] = owner_new(client, "k");
        waited[i] = owner_new(client, "taken");
        assert_int_equal(rlock_acquire(tried[i]->lock, 0, 5000, owner_told, tried[i]), RLOCK_OK);
        assert_int_equal(rlock_acquire(waited[i]->lock, 500, 5000, owner_told, waited[i]),
                         RLOCK_OK);
    }
    kit_run(600);
    for (i = 0; i < count; i++) {
        int end = owner_wait(waited[i], RLOCK_ACQUIRED, 1000);
        bool well = tried[i]->seen[RLOCK_ACQUIRED] == 1 && end != RLOCK_OK && end != KIT_NOTHING &&
                    liars[i].connects >= 3 && liars[i].connects <= STORM &&
                    kit_stats(kit_clients[i]).faults >= 1;

        if (!well) {
            print_error("lie %u: %d connects, tried %d, waited %d\n", (unsigned)i,
                        liars[i].connects, tried[i]->status[RLOCK_ACQUIRED], end);
        }
        assert_true(well);
    }
}

static void reply_that_nobody_asked_for_ends_the_connection(void **state) {
    static const struct lie lies[] = {
        {"", "+OK POP3 ready\r\n", false, false, false},
        {"CLIENT ID", ":7\r\n", false, false, false},
        {"INFO", "$-1\r\n", false, false, false},
        {"EVALSHA", ":1\r\n", false, false, false},
        {"EVALSHA", "*0\r\n", false, false, false},
    };
    int i;

    (void)state;
    bad_servers_are_left_and_tried_again_later(lies, sizeof lies / sizeof lies[0]);
    for (i = 0; i < 3; i++) { /* while greeting: nothing was asked yet */
        int status = kit_owners[2 * i].status[RLOCK_ACQUIRED];

        assert_true(status == RLOCK_ERR_CONN || status == RLOCK_ERR_UNKNOWN);
    }
}

static void message_of_an_unknown_shape_ends_the_connection(void **state) {
    static const struct lie lies[] = {
        {"SUBSCRIBE", "*0\r\n", false, false, false},
        {"SUBSCRIBE", "*-1\r\n", false, false, false},
        {"SUBSCRIBE", "*2\r\n$4\r\npong\r\n:1\r\n", false, false, false},
        {"SUBSCRIBE", "*3\r\n:1\r\n:2\r\n:3\r\n", false, false, false},
        {"SUBSCRIBE", "*3\r\n*0\r\n*0\r\n*0\r\n", false, false, false},
        {"SUBSCRIBE", ":1\r\n", false, false, false},
        {"SUBSCRIBE", "+OK\r\n", false, false, false},
        {"SUBSCRIBE", "$-1\r\n", false, false, false},
        {"SUBSCRIBE", "-ERR what\r\n", false, false, false},
        {"SUBSCRIBE", "*0\r\n", true, false, false},
        {"SUBSCRIBE", "*3\r\n:1\r\n:2\r\n:3\r\n", true, false, false},
    };

    (void)state;
    bad_servers_are_left_and_tried_again_later(lies, sizeof lies / sizeof lies[0]);
}

/* A proxy that closes where it does not know a command is no server, and is told as such. */
static void proxy_that_closes_at_a_step_of_the_greeting_is_no_connection(void **state) {
    static const struct lie lies[] = {
        {"CLIENT ID", "", true, true, false},
        {"CLIENT ID", "-ERR unknown command\r\n", true, false, false}};
    struct owner *o;

    (void)state;
    liars_start(lies, 2);
    o = owner_new(client_at(liars[0].path, RLOCK_WIRE_STRING), "k");
    assert_int_equal(owner_acquire(o, 500, 1000), RLOCK_ERR_CONN);
    assert_true(liars[0].connects < 20);
    o = owner_new(client_at(liars[1].path, RLOCK_WIRE_STRING), "k"); /* one that says so is used */
    assert_int_equal(owner_acquire(o, 500, 1000), RLOCK_OK);
}

static void server_that_closes_at_once_is_not_stormed(void **state) {
    static const struct lie lies[] = {
        {"", "", false, true, false},
        {"INFO", "", false, true, false},
        {"CLIENT TRACKING", "", false, true, false},
        {"SUBSCRIBE", "", false, true, false},
        {"EVALSHA", "", false, true, false},
    };

    (void)state;
    bad_servers_are_left_and_tried_again_later(lies, sizeof lies / sizeof lies[0]);
}

/* How servers say it that are not the one of this machine. */
static void refusal_inside_a_script_is_told_in_every_dialect(void **state) {
    static const struct lie lies[] = {
        {"EVALSHA",
         "-ERR The user executing the script can't run this command or subcommand script: 1f, on "
         "@user_script:1.\r\n",
         true, false, false},
        {"EVALSHA",
         "-ERR ACL failure in script: User locker has no permissions to run the 'get' command "
         "script: 1f, on @user_script:1.\r\n",
         true, false, false},
        {"EVALSHA",
         "-NOPERM ACL failure in script: No permissions to access a key script: 1f, on "
         "@user_script:1.\r\n",
         true, false, false},
    };
    size_t i, w;

    (void)state;
    liars_start(lies, sizeof lies / sizeof lies[0]);
    for (i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        for (w = 0; w < 2; w++) {
            struct owner *o = owner_new(client_at(liars[i].path, wires[w]), "taken");

            assert_int_equal(owner_acquire(o, 0, 1000), RLOCK_ERR_AUTH);
            assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
            assert_int_equal(owner_wait(o, RLOCK_ACQUIRED, 3000), RLOCK_ERR_AUTH);
            assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "script"));
        }
    }
}

static void tracking_refused_for_a_moment_is_asked_for_again(void **state) {
    static const struct lie lies[] = {
        {"CLIENT TRACKING", "-BUSY Redis is busy running a script. Wait.\r\n", true, false, true},
        {"CLIENT TRACKING", "-LOADING Redis is loading the dataset in memory\r\n", true, false,
         true},
    };
    size_t i, w;

    (void)state;
    for (w = 0; w < 2; w++) {
        liars_start(lies, sizeof lies / sizeof lies[0]);
        for (i = 0; i < sizeof lies / sizeof lies[0]; i++) {
            rlock_client *client = client_at(liars[i].path, wires[w]);
            struct owner *o = owner_new(client, "taken");

            assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
            assert_true(kit_until(kit_is_pushing, client, 3000));
            assert_int_equal(liars[i].told, 1);
        }
        liars_end();
    }
}

/* ------------------------------------------------------------------------------------------------
 * A stage: the test plays the loop, its clock and the server, whose lies are as above. Nothing here
 * waits, and every run is the same.
 */

#define STAGE_CONNS 256
#define STAGE_FDS 4
#define STAGE_LIES 6

struct stage_conn {
    int fd; /* -1 = closed */
    bool watching;
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
    rlock_name *name; /* to be resolved */
    int names, door;
    char path[128], trail[4096]; /* the commands that were heard, two words of each */
    struct stage_conn conns[STAGE_CONNS];
    size_t count;
    struct lie lies[STAGE_LIES];
    int told[STAGE_LIES];
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
    stage.names++;
    return stage.resolve_status;
}

static const rlock_loop stage_loop = {&stage,      stage_open,   stage_watch,  stage_set_timer,
                                      stage_close, stage_now_us, stage_resolve};

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

static void stage_says(struct stage_conn *conn, const char *text) {
    assert_int_equal(send(conn->fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void stage_hangs_up(struct stage_conn *conn) {
    close(conn->fd);
    conn->fd = -1;
}

/* The newest connection that has said SUBSCRIBE, or has not. */
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

/* Who gives up its place in the line: without a fence the operation is behind two keys. */
static bool stage_hears_leave(const struct words *words) {
    return liar_hears(words, "EVALSHA " RLOCK__SHA_LINE) && strcmp(words->text[2], "2") == 0 &&
           strcmp(words->text[3], "taken") == 0 && strcmp(words->text[5], "2") == 0;
}

/* Of the scripts too: granted without a fence, or with one. */
static const char *stage_is_honest(const struct words *words) {
    bool acquire = strncmp(words->text[1], RLOCK__SHA_STRING_ACQUIRE, 40) == 0 ||
                   strncmp(words->text[1], RLOCK__SHA_REDISSON_ACQUIRE, 40) == 0;

    if (liar_hears(words, "EVALSHA") && acquire && strcmp(words->text[3], "taken") != 0) {
        return strcmp(words->text[2], "2") == 0 ? "$16\r\n1763710000000000\r\n" : "$1\r\n0\r\n";
    }
    if (stage_hears_leave(words)) {
        return ":-1\r\n";
    }
    return liar_hears(words, "CLIENT KILL") ? ":1\r\n" : liar_is_honest(words);
}

static void stage_hears(struct stage_conn *conn, const struct words *words) {
    char text[512];
    size_t i;

    conn->watching = conn->watching || liar_hears(words, "SUBSCRIBE");
    snprintf(text, sizeof text, "%s %s\n", words->text[0], words->text[1]);
    if (strlen(stage.trail) + strlen(text) < sizeof stage.trail) {
        strcat(stage.trail, text);
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
}

/* The server's turn: true if there was anything to do. */
static bool stage_serves(void) {
    bool moved = false;
    size_t i, used;
    ssize_t n;
    int fd;

    while ((fd = accept(stage.door, NULL, NULL)) >= 0) {
        assert_true(stage.count < STAGE_CONNS);
        memset(&stage.conns[stage.count], 0, sizeof stage.conns[0]);
        stage.conns[stage.count++].fd = fd;
        moved = true;
    }
    for (i = 0; i < stage.count; i++) {
        struct stage_conn *conn = &stage.conns[i];
        struct words words;

        while (conn->fd >= 0 && (n = recv(conn->fd, conn->bytes + conn->len,
                                          sizeof conn->bytes - conn->len, MSG_DONTWAIT)) >= 0) {
            moved = true;
            if (n == 0) {
                stage_hangs_up(conn);
                break;
            }
            conn->len += (size_t)n;
            memset(&words, 0, sizeof words);
            while (conn->len > 0 && (used = liar_reads(conn->bytes, conn->len, &words)) > 0) {
                conn->len -= used;
                memmove(conn->bytes, conn->bytes + used, conn->len);
                stage_hears(conn, &words);
                memset(&words, 0, sizeof words);
            }
        }
    }
    return moved;
}

/* The loop's look at the descriptors. */
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

/* One turn of everything; false: nothing is left to be done until then, and the clock stands
 * there. */
static bool stage_turns(int64_t until_us) {
    bool moved = stage_serves();

    moved = stage_looks() || moved;
    if (stage.client != NULL && stage.due_us >= 0 && stage.due_us <= stage.now_us) {
        stage_fires();
        moved = true;
    }
    if (!moved) {
        bool due = stage.due_us >= 0 && stage.due_us <= until_us;

        stage.now_us = due ? stage.due_us : until_us;
        return due;
    }
    return true;
}

static void stage_runs(int64_t ms) {
    int64_t until_us = stage.now_us + ms * 1000;
    int turns = 0;

    while (stage_turns(until_us)) {
        assert_true(++turns < 100000); /* it spins */
    }
}

static int stage_wait(struct owner *o, rlock_event_kind kind, int64_t limit_ms) {
    int64_t until_us = stage.now_us + limit_ms * 1000;
    struct kit_wish w;
    int turns = 0;

    w.o = o;
    w.kind = (int)kind;
    while (!kit_granted(&w) && stage_turns(until_us)) {
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

/* --- how a connection begins --- */

static struct owner *stage_owner(rlock_wire wire, const char *key) {
    return owner_new(stage_client(wire), key);
}

static void password_alone_is_sent_alone(void **state) {
    rlock_config config;
    rlock_client *client;

    (void)state;
    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    config.password = "secret";
    client = kit_client(&config);
    assert_non_null(client);
    assert_int_equal(stage_acquire(owner_new(client, "k"), 0, 1000), RLOCK_OK);
    assert_true(strncmp(stage.trail, "AUTH secret\n", 12) == 0);
}

/* What a connection can do without may be refused; what it cannot, or not now, ends it. */
static void refused_greeting_is_done_without_or_ends_the_connection(void **state) {
    static const struct {
        const char *command, *answer;
        int status;
    } rows[] = {
        {"CLIENT SETNAME", "-NOPERM no permissions\r\n", RLOCK_OK},
        {"CLIENT SETNAME", "-ERR unknown subcommand\r\n", RLOCK_OK},
        {"CLIENT SETNAME", "-ERR max number of clients reached\r\n", RLOCK_ERR_SERVER},
        {"CLIENT SETNAME", "-OOM command not allowed\r\n", RLOCK_ERR_SERVER},
        {"CLIENT ID", "-ERR unknown subcommand\r\n", RLOCK_OK},
        {"INFO", "-NOPERM no permissions\r\n", RLOCK_OK},
        {"INFO", "-LOADING the dataset\r\n", RLOCK_ERR_SERVER},
        {"INFO", "$5\r\nredis\r\n", RLOCK_OK},
        {"INFO", "$12\r\nrun_id:01234\r\n", RLOCK_OK},
        {"INFO", "+OK\r\n", RLOCK_ERR_CONN},
        {"COMMAND", "-NOPERM no permissions\r\n", RLOCK_OK},
        {"COMMAND", "*0\r\n", RLOCK_OK},
        {"COMMAND", "*1\r\n*0\r\n", RLOCK_OK},
        {"COMMAND", "+OK\r\n", RLOCK_ERR_CONN},
        {"SELECT", "-ERR DB index is out of range\r\n", RLOCK_ERR_SERVER},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_config config;
        struct owner *o;
        int status;

        stage_begins();
        stage_lies(rows[i].command, rows[i].answer, true, false);
        config = stage_config(RLOCK_WIRE_STRING);
        config.client_name = "name";
        config.database = 3;
        o = owner_new(kit_client(&config), "k");
        status = stage_acquire(o, 0, 1000);
        if (status != rows[i].status || stage.told[0] == 0) {
            print_error("row %u: status %d\n", (unsigned)i, status);
        }
        assert_int_equal(status, rows[i].status);
        assert_true(stage.told[0] > 0);
    }
}

/* A CLIENT ID means something in one process of the server only. */
static void lost_connection_is_killed_only_where_the_server_is_known_to_be_the_same(void **state) {
    static const char *const infos[] = {
        "$47\r\nrun_id:0123456789012345678901234567890123456789\r\n", "$5\r\nredis\r\n",
        "$12\r\nrun_id:01234\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("INFO", infos[i], true, false);
        stage_lies("SET", "", true, true);
        o = stage_owner(RLOCK_WIRE_STRING, "k");
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_UNKNOWN);
        stage_runs(5000);
        assert_int_equal(stage_heard("CLIENT KILL"), i == 0);
        assert_int_equal(kit_stats(kit_clients[0]).connects, 2);
    }
}

static void long_words_are_cut(void **state) {
    char refusal[400], host[400];
    rlock_config config;
    rlock_client *client = NULL;
    const char *line;

    (void)state;
    stage_begins();
    memset(refusal, 'x', sizeof refusal);
    memcpy(refusal, "-OOM ", 5);
    memcpy(refusal + 300, "\r\n", 3);
    stage_lies("INFO", refusal, true, false);
    assert_int_equal(stage_acquire(stage_owner(RLOCK_WIRE_STRING, "k"), 0, 1000), RLOCK_ERR_SERVER);
    line = strstr(kit_log_text, "connection: OOM xxx");
    assert_non_null(line);
    assert_int_equal(strcspn(line, "\n"), 12 + 127);
    kit_reset();

    memset(host, 'h', sizeof host);
    host[sizeof host - 1] = '\0';
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.host = host;
    config.loop.resolve = NULL;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_int_equal(strcspn(kit_log_text, "\n"), 255);
    kit_log_text[0] = '\0';
    stage_begins();
    rlock__log(stage_client(RLOCK_WIRE_STRING), RLOCK_LOG_INFO, host, "no room is left for this");
    assert_int_equal(strcspn(kit_log_text, "\n"), 255);
}

/* The loop did not look yet: the first to learn of it is a write that fails. */
static void server_that_left_is_quoted_though_a_write_found_out(void **state) {
    static const struct {
        const char *words, *told;
        int status;
    } rows[] = {
        {"-ERR max number of clients reached\r\n", "ERR max number of clients reached",
         RLOCK_ERR_UNKNOWN},
        {"+bye\r\n", "Broken pipe", RLOCK_ERR_UNKNOWN},
        {"", "Broken pipe", RLOCK_ERR_UNKNOWN},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct owner *o;

        stage_begins();
        o = stage_owner(RLOCK_WIRE_STRING, "k");
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_OK);
        assert_int_equal(stage_release(o), RLOCK_OK);
        stage_says(stage_conn(false), rows[i].words);
        stage_hangs_up(stage_conn(false));
        assert_int_equal(rlock_acquire(o->lock, 0, 1000, owner_told, o), RLOCK_OK);
        stage_fires();
        assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), rows[i].status);
        assert_non_null(strstr(kit_log_text, rows[i].told));
        assert_int_equal(kit_stats(kit_clients[0]).faults, 1);
        stage_runs(2000);
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_OK);
    }
}

/* --- replies that no honest server gives, each to the one command --- */

enum { LIE_ACQUIRE, LIE_FENCED, LIE_RENEW, LIE_RELEASE };

static void wrong_reply_is_no_answer_and_ends_the_connection(void **state) {
    static const struct {
        int to;
        rlock_wire wire;
        const char *answer;
    } rows[] = {
        {LIE_ACQUIRE, RLOCK_WIRE_STRING, "+NO\r\n"},
        {LIE_ACQUIRE, RLOCK_WIRE_STRING, ":1\r\n"},
        {LIE_ACQUIRE, RLOCK_WIRE_REDISSON, "$1\r\n5\r\n"}, /* a fence, and none was wanted */
        {LIE_ACQUIRE, RLOCK_WIRE_REDISSON, "$-1\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "$1\r\n0\r\n"}, /* none, and one was */
        {LIE_FENCED, RLOCK_WIRE_STRING, "$0\r\n\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "$3\r\n1a3\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "$3\r\n1/3\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "$20\r\n12345678901234567890\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, ":-2\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, ":9223372036854775807\r\n"},
        {LIE_FENCED, RLOCK_WIRE_STRING, "+OK\r\n"},
        {LIE_RENEW, RLOCK_WIRE_STRING, ":2\r\n"},
        {LIE_RENEW, RLOCK_WIRE_STRING, ":-2\r\n"},
        {LIE_RENEW, RLOCK_WIRE_REDISSON, "$-1\r\n"},
        {LIE_RELEASE, RLOCK_WIRE_STRING, ":2\r\n"},
        {LIE_RELEASE, RLOCK_WIRE_REDISSON, "$1\r\n1\r\n"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool plain = rows[i].to == LIE_ACQUIRE && rows[i].wire == RLOCK_WIRE_STRING;
        rlock_client *client;
        struct owner *o;
        int status = RLOCK_OK;

        stage_begins();
        client = stage_client(rows[i].wire);
        o = rows[i].to == LIE_FENCED ? owner_fenced(client, "k") : owner_new(client, "k");
        if (rows[i].to >= LIE_RENEW) {
            assert_int_equal(stage_acquire(o, 0, 3000), RLOCK_OK);
        }
        stage_lies(plain ? "SET" : "EVALSHA", rows[i].answer, true, true);
        switch (rows[i].to) {
        case LIE_RENEW: status = stage_renew(o, 0); break;
        case LIE_RELEASE: status = stage_release(o); break;
        default: status = stage_acquire(o, 0, 3000);
        }
        if (stage.told[0] != 1 ||
            status != (rows[i].to == LIE_RELEASE ? RLOCK_OK : RLOCK_ERR_SERVER)) {
            print_error("row %u: status %d\n", (unsigned)i, status);
        }
        assert_int_equal(stage.told[0], 1);
        /* a release goes on, and the honest answer to its second try is the one that counts */
        assert_int_equal(status, rows[i].to == LIE_RELEASE ? RLOCK_OK : RLOCK_ERR_SERVER);
        assert_int_equal(rlock_is_held(o->lock), rows[i].to == LIE_RENEW);
        assert_int_equal(kit_stats(client).faults, 1);
    }
}

/* Of a queued kind a plus behind the fence says who is next; of a mutex it is no fence at all. */
static void fence_of_a_queued_kind_is_as_exact_and_may_have_its_mark(void **state) {
    static const struct {
        rlock_kind kind;
        bool fenced;
        const char *answer;
        int64_t fence; /* -1: it is no answer */
    } rows[] = {
        {RLOCK_KIND_FAIR, false, "$1\r\n0\r\n", 0},
        {RLOCK_KIND_FAIR, false, "$2\r\n0+\r\n", 0},
        {RLOCK_KIND_FAIR, true, "$2\r\n17\r\n", 17},
        {RLOCK_KIND_FAIR, true, "$3\r\n17+\r\n", 17},
        {RLOCK_KIND_FAIR, false, "$0\r\n\r\n", -1},
        {RLOCK_KIND_FAIR, false, "$1\r\n+\r\n", -1},
        {RLOCK_KIND_FAIR, true, "$3\r\n1++\r\n", -1},
        {RLOCK_KIND_FAIR, true, "$3\r\n1+7\r\n", -1},
        {RLOCK_KIND_FAIR, true, "$2\r\n0+\r\n", -1},
        {RLOCK_KIND_FAIR, false, "$3\r\n17+\r\n", -1},
        {RLOCK_KIND_MUTEX, true, "$3\r\n17+\r\n", -1},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_options options;
        struct owner *o;
        bool granted = rows[i].fence >= 0;
        int status;

        stage_begins();
        stage_lies("EVALSHA", rows[i].answer, true, true);
        memset(&options, 0, sizeof options);
        options.key = "k";
        options.kind = rows[i].kind;
        options.fencing = rows[i].fenced;
        o = owner_with(stage_client(RLOCK_WIRE_STRING), &options);
        status = stage_acquire(o, 0, 1000);
        if (status != (granted ? RLOCK_OK : RLOCK_ERR_SERVER)) {
            print_error("row %u: status %d\n", (unsigned)i, status);
        }
        assert_int_equal(status, granted ? RLOCK_OK : RLOCK_ERR_SERVER);
        assert_int_equal(rlock_fence(o->lock), granted ? rows[i].fence : 0);
        assert_int_equal(kit_stats(kit_clients[0]).faults, !granted);
    }
}

static void server_that_never_knows_a_script_is_not_asked_for_ever(void **state) {
    struct owner *o;
    int commands;

    (void)state;
    stage_begins();
    stage_lies("EVAL", "-NOSCRIPT No matching script.\r\n", true, false);
    o = stage_owner(RLOCK_WIRE_REDISSON, "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_SERVER);
    commands = stage.told[0];
    assert_int_equal(commands,
                     2); /* by its SHA-1, and in full; nothing is there to be cleaned up */
}

/* --- many renewals in one command --- */

#define BATCH 3

static struct owner *batch[BATCH];
static char batch_keys[BATCH][6000];

/* Three holds of a client, their keys so long, and their renewals under way in one command. */
static rlock_client *batch_aged(size_t key_len, int64_t last_lease_ms, int64_t age_ms) {
    rlock_options options;
    rlock_client *client;
    int i;

    stage_begins();
    client = stage_client(RLOCK_WIRE_STRING);
    memset(&options, 0, sizeof options);
    options.key_len = key_len;
    for (i = 0; i < BATCH; i++) {
        memset(batch_keys[i], 'a' + i, sizeof batch_keys[i]);
        options.key = batch_keys[i];
        batch[i] = owner_with(client, &options);
        assert_int_equal(stage_acquire(batch[i], 0, 1000), RLOCK_OK);
    }
    stage_runs(age_ms);
    stage.trail[0] = '\0';
    for (i = 0; i < BATCH; i++) {
        assert_int_equal(rlock_renew(batch[i]->lock, i == BATCH - 1 ? last_lease_ms : 3000,
                                     owner_told, batch[i]),
                         RLOCK_OK);
    }
    return client;
}

static rlock_client *batch_of(size_t key_len, int64_t last_lease_ms) {
    return batch_aged(key_len, last_lease_ms, 0);
}

/* How often a command was heard. */
static int stage_count(const char *command) {
    const char *at = stage.trail;
    int count = 0;

    while ((at = strstr(at, command)) != NULL) {
        count++;
        at++;
    }
    return count;
}

#define RENEW_ALONE "EVALSHA " RLOCK__SHA_STRING_RENEW "\n"

/* Each of them ends like this, and is held; a lease is longer only where all was well. */
static void batch_ends(int status) {
    int i;

    for (i = 0; i < BATCH; i++) {
        assert_int_equal(stage_wait(batch[i], RLOCK_RENEWED, 2000), status);
        assert_int_equal(batch[i]->seen[RLOCK_RENEWED], 1);
        assert_true(rlock_is_held(batch[i]->lock));
        assert_int_equal(rlock_remaining_ms(batch[i]->lock) > 1000, status == RLOCK_OK);
    }
}

static void renewals_of_a_batch_are_as_exact_as_alone(void **state) {
    static const struct {
        const char *answer;
        bool once;
        int status, alone, faults;
        bool batches; /* from then on */
    } rows[] = {
        {"$3\r\n111\r\n", true, RLOCK_OK, 0, 0, true},
        {"$3\r\n101\r\n", true, RLOCK_OK, 1, 0, true},
        {"$3\r\n000\r\n", true, RLOCK_OK, 3, 0, true},
        {"$3\r\n1x2\r\n", true, RLOCK_OK, 2, 0, true},
        {"-NOSCRIPT No matching script.\r\n", true, RLOCK_OK, 0, 0, true},
        {"-ERR Unsupported option GT script: f_1\r\n", false, RLOCK_OK, 3, 0, false},
        {"-NOPERM this user has no permissions\r\n", false, RLOCK_OK, 3, 0, false},
        {"-BUSY Redis is busy running a script.\r\n", true, RLOCK_ERR_SERVER, 0, 0, true},
        {"-OOM command not allowed\r\n", true, RLOCK_ERR_SERVER, 0, 0, true},
        {"$2\r\n11\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {"$4\r\n1111\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {"+111\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {"$-1\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {":1\r\n", true, RLOCK_ERR_SERVER, 0, 1, true}, /* the answer to something else */
        {":0\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {":-1\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
        {"*1\r\n$3\r\n111\r\n", true, RLOCK_ERR_SERVER, 0, 1, true},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_client *client = batch_of(10, 3000);
        int k, again;

        stage_lies(RENEW_MANY, rows[i].answer, true, rows[i].once);
        batch_ends(rows[i].status);
        assert_int_equal(stage.told[0], 1);
        assert_int_equal(stage_count(RENEW_ALONE), rows[i].alone);
        assert_int_equal(kit_stats(client).faults, rows[i].faults);
        stage_runs(200); /* there is a connection again */
        again = stage_count(RENEW_ALONE);
        for (k = 0; k < BATCH; k++) {
            assert_int_equal(rlock_renew(batch[k]->lock, 3000, owner_told, batch[k]), RLOCK_OK);
        }
        for (k = 0; k < BATCH; k++) {
            assert_int_equal(stage_wait(batch[k], RLOCK_RENEWED, 2000), RLOCK_OK);
        }
        assert_int_equal(stage_count(RENEW_ALONE) - again, rows[i].batches ? 0 : BATCH);
    }
}

static void batch_that_the_server_never_knows_is_not_asked_for_ever(void **state) {
    (void)state;
    batch_of(10, 3000);
    stage_lies(RENEW_MANY, "-NOSCRIPT No matching script.\r\n", true, false);
    stage_lies(RENEW_MANY_IN_FULL, "-NOSCRIPT No matching script.\r\n", true, false);
    batch_ends(RLOCK_OK);
    assert_int_equal(stage.told[0] + stage.told[1], 2);
    assert_int_equal(stage_count(RENEW_ALONE), BATCH);
}

static void batch_without_an_answer_is_unknown_for_each(void **state) {
    (void)state;
    batch_aged(10, 3000, 150); /* they are watched by now */
    stage_lies(RENEW_MANY, "", true, true);
    batch_ends(RLOCK_ERR_UNKNOWN);
    stage_runs(400);
    assert_true(rlock_remaining_ms(batch[0]->lock) > 0); /* it was looked at when it was back */
}

/* What goes with others has the same lease, and keys that are not too long together. */
static void batch_has_room_for_what_is_alike(void **state) {
    (void)state;
    batch_of(10, 3000);
    batch_ends(RLOCK_OK);
    assert_int_equal(stage_count(RENEW_MANY), 1);
    assert_int_equal(stage_count(RENEW_ALONE), 0);
    batch_of(10, 4000);
    batch_ends(RLOCK_OK);
    assert_int_equal(stage_count(RENEW_MANY), 1);
    assert_int_equal(stage_count(RENEW_ALONE), 1);
    batch_of(sizeof batch_keys[0], 3000); /* two of them */
    batch_ends(RLOCK_OK);
    assert_int_equal(stage_count(RENEW_MANY), 1);
    assert_int_equal(stage_count(RENEW_ALONE), 1);
}

/* Its place stays empty, and the answers to the others find whose they are. */
static void renewal_that_is_forgotten_leaves_its_batch_in_order(void **state) {
    int gone;

    (void)state;
    for (gone = 0; gone < BATCH; gone++) {
        int i;

        batch_of(10, 3000);
        stage_lies(RENEW_MANY,
                   gone == 0   ? "$3\r\n011\r\n"
                   : gone == 1 ? "$3\r\n101\r\n"
                               : "$3\r\n110\r\n",
                   true, true);
        stage_fires(); /* it is written */
        assert_int_equal(rlock_release(batch[gone]->lock, owner_told, batch[gone]), RLOCK_OK);
        stage_runs(50);
        for (i = 0; i < BATCH; i++) {
            assert_int_equal(batch[i]->seen[RLOCK_RENEWED], 1);
            assert_int_equal(batch[i]->status[RLOCK_RENEWED],
                             i == gone ? RLOCK_ERR_CANCELED : RLOCK_OK);
            assert_int_equal(rlock_is_held(batch[i]->lock), i != gone);
        }
        assert_int_equal(batch[gone]->status[RLOCK_RELEASED], RLOCK_OK);
        assert_int_equal(stage_count(RENEW_ALONE), 0);
    }
}

static void batch_outlives_its_handles_and_its_client(void **state) {
    int i;

    (void)state;
    batch_of(10, 3000);
    stage_fires();
    for (i = 0; i < BATCH; i++) {
        rlock_free(batch[i]->lock);
        batch[i]->lock = NULL;
    }
    stage_runs(50);
    assert_int_equal(kit_stats(kit_clients[0]).cleaning, 0);
    batch_of(10, 3000);
    stage_fires();
    rlock_client_free(kit_clients[0]);
    kit_clients[0] = NULL;
    for (i = 0; i < BATCH; i++) {
        assert_int_equal(batch[i]->seen[RLOCK_RENEWED], 0);
    }
}

static void batch_for_which_there_is_no_memory_goes_alone_or_ends(void **state) {
    unsigned what;

    (void)state;
    batch_of(10, 3000);
    commands_last = 1;
    stage_fires();
    batch_ends(RLOCK_ERR_NOMEM);
    for (what = 1; what <= 2; what++) {
        batch_aged(10, 3000, 50); /* before the looks, which would have needed both */
        memory_lasts = what; /* its text, or the list of its requests: the next two have both */
        stage_fires();
        assert_int_equal(memory_lasts, 0);
        batch_ends(RLOCK_OK);
        assert_int_equal(stage_count(RENEW_ALONE), 1);
        assert_int_equal(stage_count(RENEW_MANY), 1);
    }
}

/* Where there is no memory any more, holds are renewed as before. */
static void batch_needs_no_memory_that_was_not_there_before(void **state) {
    struct owner *many[5];
    rlock_options options;
    rlock_client *client;
    int i;

    (void)state;
    client = batch_of(10, 3000);
    batch_ends(RLOCK_OK);
    for (i = 0; i < BATCH; i++) {
        assert_int_equal(stage_release(batch[i]), RLOCK_OK);
    }
    memset(&options, 0, sizeof options);
    options.key = batch_keys[0];
    for (i = 0; i < 5; i++) {
        options.key_len = (size_t)(3200 - i); /* other keys */
        many[i] = owner_with(client, &options);
        assert_int_equal(stage_acquire(many[i], 0, 0), RLOCK_OK);
    }
    memory_lasts = 1;
    memory_stays_out = true;
    stage.trail[0] = '\0';
    stage_hangs_up(stage_conn(false)); /* all are renewed when it is back */
    stage_runs(60000);
    for (i = 0; i < 5; i++) {
        assert_int_equal(many[i]->seen[RLOCK_LOST], 0);
        assert_true(rlock_is_held(many[i]->lock));
    }
    assert_true(stage_count(RENEW_MANY) > 0);
}

/* --- a release by one command of the server, where there is one --- */

#define RELEASE "EVALSHA " RLOCK__SHA_STRING_RELEASE

static void release_by_one_command_is_as_exact_as_by_script(void **state) {
    static const struct {
        const char *answer, *script;
        int status;
        rlock_reason reason;
        int faults;
        bool again; /* it is used from then on */
    } rows[] = {
        {":1\r\n", NULL, RLOCK_OK, RLOCK_REASON_NONE, 0, true},
        {":0\r\n", ":0\r\n", RLOCK_ERR_NOT_HELD, RLOCK_REASON_STOLEN, 0, true},
        {":0\r\n", ":-1\r\n", RLOCK_ERR_NOT_HELD, RLOCK_REASON_DELETED, 0, true},
        {":0\r\n", "-NOSCRIPT No matching script.\r\n", RLOCK_OK, RLOCK_REASON_NONE, 0, true},
        {"-NOPERM this user has no permissions\r\n", ":1\r\n", RLOCK_OK, RLOCK_REASON_NONE, 0,
         false},
        {"-WRONGTYPE Operation against a key\r\n", "-WRONGTYPE Operation against a key\r\n",
         RLOCK_ERR_NOT_HELD, RLOCK_REASON_STOLEN, 0, true},
        {"-BUSY Redis is busy\r\n", ":1\r\n", RLOCK_OK, RLOCK_REASON_NONE, 0, true},
        {"-ERR unknown command\r\n", ":1\r\n", RLOCK_OK, RLOCK_REASON_NONE, 0, true},
        {":2\r\n", NULL, RLOCK_OK, RLOCK_REASON_NONE, 1, true},
        {"+OK\r\n", NULL, RLOCK_OK, RLOCK_REASON_NONE, 1, true},
        {"$1\r\n1\r\n", NULL, RLOCK_OK, RLOCK_REASON_NONE, 1, true},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct owner *o;
        int before;

        stage_begins();
        stage_lies("DELIFEQ", rows[i].answer, true, true);
        stage_lies("COMMAND INFO", "*1\r\n*1\r\n$7\r\ndelifeq\r\n", true, false);
        if (rows[i].script != NULL) {
            stage_lies(RELEASE, rows[i].script, true, true);
        }
        o = stage_owner(RLOCK_WIRE_STRING, "k");
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_OK);
        assert_int_equal(stage_release(o), rows[i].status);
        assert_int_equal(o->reason[RLOCK_RELEASED], rows[i].reason);
        assert_int_equal(stage_count(RELEASE), rows[i].script != NULL);
        assert_int_equal(kit_stats(kit_clients[0]).faults, rows[i].faults);
        before = stage_count("DELIFEQ");
        assert_int_equal(stage_acquire(o, 1000, 1000), RLOCK_OK);
        assert_int_equal(stage_release(o), RLOCK_OK);
        assert_int_equal(stage_count("DELIFEQ") - before, rows[i].again);
    }
}

/* The second one was sent before the first was refused; that it worked changes nothing. */
static void release_by_one_command_is_given_up_for_good_by_a_refusal(void **state) {
    struct owner *o[2];
    int i;

    (void)state;
    stage_begins();
    stage_lies("DELIFEQ", "-NOPERM this user has no permissions\r\n", true, true);
    stage_lies("COMMAND INFO", "*1\r\n*1\r\n$7\r\ndelifeq\r\n", true, false);
    o[0] = stage_owner(RLOCK_WIRE_STRING, "k");
    o[1] = owner_new(kit_clients[0], "l");
    for (i = 0; i < 2; i++) {
        assert_int_equal(stage_acquire(o[i], 0, 1000), RLOCK_OK);
    }
    for (i = 0; i < 2; i++) {
        assert_int_equal(rlock_release(o[i]->lock, owner_told, o[i]), RLOCK_OK);
    }
    for (i = 0; i < 2; i++) {
        assert_int_equal(stage_wait(o[i], RLOCK_RELEASED, 60000), RLOCK_OK);
    }
    assert_int_equal(stage_count("DELIFEQ"), 2);
    assert_int_equal(stage_count(RELEASE), 1);
    assert_int_equal(stage_acquire(o[0], 0, 1000), RLOCK_OK);
    assert_int_equal(stage_release(o[0]), RLOCK_OK);
    assert_int_equal(stage_count("DELIFEQ"), 2);
    assert_int_equal(stage_count(RELEASE), 2);
}

/* The next server may not have it. */
static void release_by_one_command_is_known_of_a_connection_only(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("COMMAND INFO", "*1\r\n*1\r\n$7\r\ndelifeq\r\n", true, true);
    o = stage_owner(RLOCK_WIRE_STRING, "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_OK);
    assert_int_equal(stage_release(o), RLOCK_OK);
    assert_int_equal(stage_count("DELIFEQ"), 1);
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_OK);
    stage_hangs_up(stage_conn(false));
    assert_int_equal(stage_release(o), RLOCK_OK);
    assert_int_equal(stage_count("DELIFEQ"), 1);
    assert_int_equal(stage_count(RELEASE), 1);
}

/* --- connecting, names, the loop --- */

/* A port whose queue is full: connects to it are neither accepted nor refused. */
static int deaf_door(int *port, int *filler) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    int i, door = socket(AF_INET, SOCK_STREAM, 0);

    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(bind(door, (struct sockaddr *)&a, len) == 0 && listen(door, 0) == 0 &&
                getsockname(door, (struct sockaddr *)&a, &len) == 0);
    for (i = 0; i < 2; i++) {
        filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(filler[i], (struct sockaddr *)&a, len);
    }
    *port = ntohs(a.sin_port);
    return door;
}

static void connect_that_hangs_ends_after_the_command_timeout(void **state) {
    int port, filler[2], door = deaf_door(&port, filler);
    int64_t begun_us;
    rlock_config config;
    struct owner *o;

    (void)state;
    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.port = port;
    o = owner_new(kit_client(&config), "k");
    begun_us = stage.now_us;
    assert_int_equal(rlock_acquire(o->lock, 500, 1000, owner_told, o), RLOCK_OK);
    stage_runs(TIMEOUT_MS / 2);
    rlock_on_io(stage.watched[0].io, RLOCK_IO_READ | RLOCK_IO_WRITE); /* a loop may do so */
    assert_int_equal(kit_stats(kit_clients[0]).connects + kit_stats(kit_clients[0]).faults, 0);
    stage_runs(TIMEOUT_MS);
    assert_int_equal(kit_stats(kit_clients[0]).faults, 1);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_ERR_CONN);
    assert_int_equal(stage.now_us - begun_us, 500000);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "no answer while connecting"));
    kit_reset();
    close(filler[0]);
    close(filler[1]);
    close(door);
}

static rlock_client *named_client(int port) {
    rlock_config config = stage_config(RLOCK_WIRE_STRING);
    rlock_client *client;

    config.unix_path = NULL;
    config.host = "lock.example";
    config.port = port;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

static void name_answers(const struct sockaddr *address) {
    rlock_name *name = stage.name;

    assert_non_null(name);
    stage.name = NULL;
    rlock_on_resolved(name, address);
}

static void name_that_the_loop_refuses_to_resolve_is_no_connection(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage.resolve_status = -1;
    o = owner_new(named_client(1), "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_CONN);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "does not resolve"));
}

/* One question at a time; the waiters hear that the answer takes long; it is used when it comes. */
static void name_that_takes_long_is_told_and_waited_for(void **state) {
    struct sockaddr_in6 in6;
    struct sockaddr other;
    rlock_client *client;
    struct owner *o;
    rlock_name *name;
    int names;

    (void)state;
    stage_begins();
    client = named_client(1);
    o = owner_new(client, "k");
    assert_int_equal(stage_acquire(o, 2 * TIMEOUT_MS, 1000), RLOCK_ERR_CONN);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "not resolved"));
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    stage_runs(10 * TIMEOUT_MS);
    assert_int_equal(stage.names, 1);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 1);

    memset(&other, 0, sizeof other); /* an address of no kind that there is */
    other.sa_family = AF_UNIX;
    name = stage.name;
    name_answers(&other);
    assert_non_null(strstr(kit_log_text, "not found"));
    names = stage.names;
    stage_runs(5000);
    assert_true(stage.names > names);

    memset(&in6, 0, sizeof in6);
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = in6addr_loopback;
    names = kit_stats(client).faults > 0 ? (int)kit_stats(client).faults : 0;
    name_answers((struct sockaddr *)&in6); /* nobody listens there */
    stage_runs(0);
    assert_true((int)kit_stats(client).faults > names);
    names = (int)kit_stats(client).faults;
    rlock_on_resolved(name, (struct sockaddr *)&in6); /* once more, and nobody has asked */
    assert_int_equal(stage.watched[0].events, 0);     /* it connects to nothing */
    assert_int_equal(kit_stats(client).faults, names);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 1); /* it waits on */
}

static void told_and_frees_the_client(rlock *lock, const rlock_event *event, void *user) {
    owner_told(lock, event, user);
    rlock_client_free(kit_clients[0]);
    kit_clients[0] = NULL;
}

/* What was due before the answer is told first, and may do everything. */
static void client_may_be_freed_by_a_callback_when_its_name_is_answered(void **state) {
    struct sockaddr_in in;
    struct owner *o;

    (void)state;
    memset(&in, 0, sizeof in);
    in.sin_family = AF_INET;
    stage_begins();
    o = owner_new(named_client(1), "k");
    assert_int_equal(rlock_acquire(o->lock, 20, 1000, told_and_frees_the_client, o), RLOCK_OK);
    stage_runs(10);
    assert_non_null(stage.name);
    stage.now_us += 30000; /* the loop was busy: its timer is late */
    name_answers((struct sockaddr *)&in);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 1);
    assert_null(stage.client);
}

static void address_of_version_6_needs_no_resolver(void **state) {
    rlock_config config;
    struct owner *o;

    (void)state;
    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.host = "::1";
    config.port = server_free_port();
    config.loop.resolve = NULL;
    o = owner_new(kit_client(&config), "k");
    assert_non_null(o);
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_CONN);
}

/* The scope says by which interface: without it another machine may answer, or none. */
static void address_of_version_6_keeps_its_scope(void **state) {
    struct sockaddr_in6 in6;
    rlock_config config;
    struct owner *o;
    char text[RLOCK__ADDRESS_MAX];

    (void)state;
    memset(&in6, 0, sizeof in6);
    in6.sin6_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, "fe80::1:2", &in6.sin6_addr), 1);
    rlock__address_text((struct sockaddr *)&in6, text);
    assert_string_equal(text, "fe80::1:2");
    in6.sin6_scope_id = 4294967295u;
    rlock__address_text((struct sockaddr *)&in6, text);
    assert_string_equal(text, "fe80::1:2%4294967295");

    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.host = "::1%1";
    config.port = server_free_port();
    config.loop.resolve = NULL;
    o = owner_new(kit_client(&config), "k");
    assert_non_null(o);
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_CONN);
    assert_null(rlock__numeric("1.2.3.4%1"));
    assert_null(rlock__numeric("%1"));
}

/* Cut, it would be the path of another server. */
static void path_that_is_too_long_for_a_socket_is_refused(void **state) {
    char path[109];
    rlock_config config;
    rlock_client *client = NULL;
    rlock_store *store = NULL;

    (void)state;
    stage_begins();
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[108] = '\0';
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = path;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_null(client);
    assert_non_null(strstr(kit_log_text, "unix_path"));
    assert_int_equal(rlock_quorum_new(&store, &config, 1), RLOCK_ERR_ARG);
    assert_null(store);
    path[107] = '\0';
    assert_int_equal(rlock_quorum_new(&store, &config, 1), RLOCK_OK);
    rlock_quorum_free(store);
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    rlock_client_free(client);
}

static void descriptor_that_the_loop_does_not_watch_is_no_connection(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    o = stage_owner(RLOCK_WIRE_STRING, "k");
    stage.watch_fails = true;
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_CONN);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "does not watch"));
    stage.watch_fails = false;
    assert_int_equal(stage_acquire(o, 5000, 1000), RLOCK_OK);
}

/* --- a process that slept --- */

/* Its timers fire before it reads: what came in time is taken, the connection is kept. */
static void answer_that_came_while_the_process_slept_is_taken(void **state) {
    rlock_client *client;
    struct owner *o, *other;

    (void)state;
    stage_begins();
    client = stage_client(RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    other = owner_new(client, "other");
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    stage_runs(5000); /* it is watched by now */
    assert_int_equal(rlock_renew(o->lock, 0, owner_told, o), RLOCK_OK);
    stage_fires();
    assert_true(stage_serves());
    stage.now_us += 2 * TIMEOUT_MS * 1000;
    stage_fires();
    stage_runs(1);
    assert_int_equal(o->seen[RLOCK_RENEWED], 1);
    assert_int_equal(o->status[RLOCK_RENEWED], RLOCK_OK);

    stage_lies("SET other", "", true, true); /* the same, and another answer is not there yet */
    assert_int_equal(rlock_renew(o->lock, 0, owner_told, o), RLOCK_OK);
    assert_int_equal(rlock_acquire(other->lock, 5000, 1000, owner_told, other), RLOCK_OK);
    stage_fires();
    assert_true(stage_serves());
    stage.now_us += 2 * TIMEOUT_MS * 1000;
    stage_fires();
    stage_runs(1);
    assert_int_equal(o->seen[RLOCK_RENEWED], 2);
    assert_int_equal(o->status[RLOCK_RENEWED], RLOCK_OK);
    assert_int_equal(kit_stats(client).faults, 0);
    stage_says(stage_conn(false), "+OK\r\n");
    assert_int_equal(stage_wait(other, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    assert_int_equal(kit_stats(client).connects, 2); /* one of them watches */
}

/* The look at the connection was due before the end of the release: that one is told all the same,
 * and the clean-up is over, because no lease of it can be left. */
static void release_that_was_slept_over_ends_once(void **state) {
    const rlock__redis *redis;
    struct owner *o;

    (void)state;
    stage_begins();
    o = stage_owner(RLOCK_WIRE_STRING, "k");
    redis = (const rlock__redis *)kit_clients[0]->store_state;
    assert_int_equal(stage_acquire(o, 0, 3000), RLOCK_OK);
    stage_lies("EVALSHA", "-BUSY Redis is busy\r\n", true, true);
    stage_lies("EVALSHA", "", true, true);
    assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_OK);
    while (!redis->commands.doubted) {
        stage_turns(stage.now_us + 1000);
    }
    stage.now_us += 20000000;
    stage_fires();
    assert_int_equal(stage_wait(o, RLOCK_RELEASED, 1000), RLOCK_ERR_UNKNOWN);
    stage_runs(5000);
    assert_int_equal(o->seen[RLOCK_RELEASED], 1);
    assert_int_equal(kit_stats(kit_clients[0]).cleaning, 0);
}

static void asks_and_takes_long(rlock *lock, const rlock_event *event, void *user) {
    struct owner *other = (struct owner *)user;

    (void)lock;
    assert_int_equal(event->status, RLOCK_OK);
    assert_int_equal(rlock_acquire(other->lock, 0, 50, owner_told, other), RLOCK_OK);
    stage.now_us += 60000; /* longer than that lease */
}

/* What a callback asks for leaves behind it: a lease does not run while the callback does. */
static void lease_asked_for_in_a_long_callback_counts_from_its_end(void **state) {
    rlock_client *client;
    struct owner *o, *other;

    (void)state;
    stage_begins();
    client = stage_client(RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    other = owner_new(client, "other");
    assert_int_equal(rlock_acquire(o->lock, 0, 1000, asks_and_takes_long, other), RLOCK_OK);
    assert_int_equal(stage_wait(other, RLOCK_ACQUIRED, 60000), RLOCK_OK);
    assert_true(rlock_is_held(other->lock));
}

/* What waits in line leaves in the order of what is at stake. */
static void renewal_near_its_deadline_goes_before_an_acquire(void **state) {
    rlock_client *client;
    struct owner *o, *other;
    rlock_config config;
    char *at;

    (void)state;
    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    config.command_timeout_ms = 60000; /* that is how long the acquire may wait */
    config.watchdog_lease_ms = 3000;
    client = kit_client(&config);
    o = owner_new(client, "k");
    other = owner_new(client, "other");
    assert_int_equal(stage_acquire(o, 0, 0), RLOCK_OK);
    stage_runs(850); /* its renewal is due soon */
    stage.now_us += 150000;
    stage.trail[0] = '\0';
    assert_int_equal(rlock_acquire(other->lock, 0, 1000, owner_told, other), RLOCK_OK);
    assert_int_equal(stage_wait(other, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    at = strstr(stage.trail, "EVALSHA");
    assert_non_null(at);
    assert_true(at < strstr(stage.trail, "SET other"));
}

/* --- being told that a key changed --- */

static struct owner *stage_waiter(rlock_wire wire) {
    struct owner *o = stage_owner(wire, "taken");

    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    return o;
}

static bool stage_is_pushing(void) {
    return kit_stats(kit_clients[0]).pushing;
}

/* Until the first lie was told, and no further: what a waiter asks next is answered again. */
static void stage_until_told(void) {
    int turns;

    for (turns = 0; turns < 100 && stage.told[0] == 0; turns++) {
        stage_turns(stage.now_us + 1000);
    }
    assert_int_equal(stage.told[0], 1);
}

static void tracking_is_asked_for_again_however_it_failed(void **state) {
    static const char *const answers[] = {
        "", /* none: the answer to the next command comes in its place */
        ":1\r\n", "-ERR The client ID you want redirect to does not exist\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        stage_begins();
        stage_lies("CLIENT TRACKING", answers[i], true, true);
        stage_waiter(RLOCK_WIRE_STRING);
        stage_runs(5000);
        assert_int_equal(stage.told[0], 1);
        assert_true(stage_is_pushing());
        assert_int_equal(kit_stats(kit_clients[0]).faults, 1 + (i < 2));
    }
}

static void client_may_be_freed_while_its_tracking_is_not_answered(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "", true, true);
    o = stage_waiter(RLOCK_WIRE_STRING);
    stage_until_told();
    rlock_client_free(kit_clients[--kit_client_count]);
    assert_null(stage.client);
    stage_runs(10 * TIMEOUT_MS);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_ERR_CLOSED);
}

static void process_that_slept_over_an_unanswered_tracking_recovers(void **state) {
    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "", true, true);
    stage_waiter(RLOCK_WIRE_STRING);
    stage_until_told();
    stage.now_us += 20 * TIMEOUT_MS * 1000;
    stage_fires();
    stage_runs(3000);
    assert_true(stage_is_pushing());
}

/* The watching connection goes while its registration is under way; the answer, yes or no, comes
 * for one that is not there any more. */
static void tracking_answered_for_a_connection_that_went_is_none(void **state) {
    static const char *const answers[] = {"+OK\r\n", "-ERR unknown command\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct stage_conn *watcher;

        stage_begins();
        stage_lies("CLIENT TRACKING", "", true, true);
        stage_waiter(RLOCK_WIRE_STRING);
        stage_until_told();
        watcher = &stage.conns[stage.count - 1];
        stage_hangs_up(watcher);
        while (stage_looks()) {
        }
        stage_says(&stage.conns[0], answers[i]);
        stage_runs(TIMEOUT_MS / 2);
        assert_false(i == 1 && stage_is_pushing());
        stage_runs(3000);
        assert_int_equal(stage_is_pushing(), i == 0);
        stage_lies("EVALSHA", "$1\r\n0\r\n", true, false); /* pushed or polled for, it comes */
        stage_lies("SET taken", "+OK\r\n", true, false);
        stage_says(&stage.conns[0], "");
        assert_int_equal(stage_wait(&kit_owners[0], RLOCK_ACQUIRED, 11000), RLOCK_OK);
    }
}

/* Without CLIENT ID no message can be sent anywhere: channels where the wire has them, or asking
 * again and again. */
static void server_that_hides_client_ids_is_polled_or_listened_to(void **state) {
    size_t w;

    (void)state;
    for (w = 0; w < 2; w++) {
        stage_begins();
        stage_lies("CLIENT ID", "-NOPERM no permissions\r\n", true, false);
        stage_waiter(wires[w]);
        stage_runs(3000);
        assert_false(stage_heard("CLIENT TRACKING"));
        assert_int_equal(stage_heard("SUBSCRIBE"), wires[w] == RLOCK_WIRE_REDISSON);
        assert_int_equal(stage_is_pushing(), wires[w] == RLOCK_WIRE_REDISSON);
        stage_lies("EVALSHA", "$1\r\n0\r\n", true, false);
        stage_lies("SET taken", "+OK\r\n", true, false);
        assert_int_equal(stage_wait(&kit_owners[0], RLOCK_ACQUIRED, 11000), RLOCK_OK);
    }
}

static int count_tries(void) {
    const char *at = stage.trail;
    int n = 0;

    while ((at = strstr(at, "EVALSHA")) != NULL) {
        at++;
        n++;
    }
    return n;
}

static void say_message(const char *kind, const char *channel, const char *payload) {
    char text[256];

    snprintf(text, sizeof text, "*3\r\n$%u\r\n%s\r\n$%u\r\n%s\r\n%s", (unsigned)strlen(kind), kind,
             (unsigned)strlen(channel), channel, payload);
    stage_says(stage_conn(true), text);
    stage.trail[0] = '\0';
    stage_runs(1);
}

static void messages_of_tracking_wake_only_whom_they_name(void **state) {
    static const struct {
        const char *kind, *channel, *payload;
        bool wakes;
    } rows[] = {
        {"message", "__redis__:invalidate", "*1\r\n$5\r\ntaken\r\n", true},
        {"message", "__redis__:invalidate", "*2\r\n$1\r\nx\r\n$5\r\ntaken\r\n", true},
        {"message", "__redis__:invalidate", "*-1\r\n", true},
        {"message", "__redis__:invalidate", "$-1\r\n", true},
        {"message", "__redis__:invalidate", "*1\r\n$5\r\nother\r\n", false},
        {"message", "__redis__:invalidate", "*0\r\n", false},
        {"message", "__redis__:invalidate", "*2\r\n:5\r\n$-1\r\n", false},
        {"message", "__redis__:invalidate", ":5\r\n", false},
        {"message", "another channel that is very long", "$-1\r\n", false},
        {"subscribe", "__redis__:invalidate", ":1\r\n", false}, /* nobody asked for it */
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stage_begins();
        stage_waiter(RLOCK_WIRE_STRING);
        stage_runs(2000);
        assert_true(stage_is_pushing());
        say_message(rows[i].kind, rows[i].channel, rows[i].payload);
        if ((count_tries() > 0) != rows[i].wakes) {
            print_error("row %u\n", (unsigned)i);
        }
        assert_int_equal(count_tries() > 0, rows[i].wakes);
        assert_true(stage_is_pushing());
    }
}

#define CHANNEL "redisson_lock__channel:"

static void messages_of_channels_wake_only_whom_they_name(void **state) {
    static const struct {
        const char *name;
        bool wakes;
    } rows[] = {{"{taken}", true}, {"taken", true},    {"{taken", false}, {"t", false},
                {"{}", false},     {"{other}", false}, {"", false}};
    char channel[64], subscribe[128];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stage_begins();
        stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
        stage_waiter(RLOCK_WIRE_REDISSON);
        stage_runs(2000);
        assert_true(stage_is_pushing());
        snprintf(channel, sizeof channel, CHANNEL "%s", rows[i].name);
        snprintf(subscribe, sizeof subscribe, "SUBSCRIBE %s", channel);
        say_message("message", channel, "$1\r\n0\r\n");
        /* hiredis knows the channels that were asked for, and passes on nothing else */
        assert_int_equal(count_tries() > 0, rows[i].wakes && i == 0);
    }
}

/* A second key is waited for before the first answer to SUBSCRIBE: both are listened to. */
static void key_that_is_wanted_before_channels_work_is_listened_to_later(void **state) {
    struct owner *first, *second;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
    stage_lies("SUBSCRIBE", "", true, true);
    stage_lies("EVALSHA", ":60000\r\n", true, false); /* everything is taken */
    first = stage_waiter(RLOCK_WIRE_REDISSON);
    stage_runs(TIMEOUT_MS / 2);
    assert_int_equal(stage.told[1], 1);
    second = owner_new(kit_clients[0], "second");
    assert_int_equal(rlock_acquire(second->lock, RLOCK_FOREVER, 1000, owner_told, second),
                     RLOCK_OK);
    stage_runs(5000);
    assert_true(stage_is_pushing());
    assert_true(stage_heard("SUBSCRIBE " CHANNEL "{taken}"));
    assert_true(stage_heard("SUBSCRIBE " CHANNEL "{second}"));
    assert_int_equal(first->seen[RLOCK_ACQUIRED] + second->seen[RLOCK_ACQUIRED], 0);
}

/* --- being called --- */

/* Waits in the line for "taken", and was told so. */
static struct owner *stage_in_line(rlock_client *client) {
    struct owner *o;
    rlock_options options;

    memset(&options, 0, sizeof options);
    options.key = "taken";
    options.kind = RLOCK_KIND_FAIR;
    o = owner_with(client, &options);
    assert_non_null(o);
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    return o;
}

static bool stage_is_called(void) {
    return (kit_clients[0]->pushing & RLOCK_PUSH_CALLS) != 0;
}

static const char *own_channel(void) {
    static char name[64];

    snprintf(name, sizeof name, "rlock:%s", rlock_client_id(kit_clients[0]));
    return name;
}

/* Everything is granted from now on: polling is enough to be told so. */
static void stage_grants(struct owner *o) {
    stage_lies("EVALSHA", "$1\r\n0\r\n", true, false);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 11000), RLOCK_OK);
}

/* Whoever may publish on the channel can say anything there: a number, a colon, the key. */
static void message_that_is_no_call_calls_nobody(void **state) {
    static const struct {
        const char *before, *behind; /* the number */
        bool number;
        bool called; /* somebody, */
        bool calls;  /* and the one who waits */
    } rows[] = {
        {"", ":taken", true, true, true},    {"", ":other", true, true, false},
        {"1", ":taken", true, true, false},  {"", ":", true, true, false},
        {"", ";taken", true, false, false},  {"", "", true, false, false},
        {"x", ":taken", true, false, false}, {"", ":taken", false, false, false},
        {"", "taken", false, false, false},  {"", "", false, false, false},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char call[64], number[24] = "", payload[96];
        struct owner *o;
        uint64_t woken;

        stage_begins();
        o = stage_in_line(stage_client(RLOCK_WIRE_STRING));
        stage_runs(2000);
        assert_true(stage_is_called());
        if (rows[i].number) {
            snprintf(number, sizeof number, "%llu", (unsigned long long)o->lock->claim->token);
        }
        snprintf(call, sizeof call, "%s%s%s", rows[i].before, number, rows[i].behind);
        snprintf(payload, sizeof payload, "$%u\r\n%s\r\n", (unsigned)strlen(call), call);
        woken = kit_stats(kit_clients[0]).woken;
        say_message("message", own_channel(), payload);
        if ((count_tries() > 0) != rows[i].calls) {
            print_error("row %u\n", (unsigned)i);
        }
        assert_int_equal(count_tries() > 0, rows[i].calls);
        assert_int_equal(kit_stats(kit_clients[0]).woken - woken, rows[i].called);
        assert_true(stage_is_called());
    }
}

/* As long as ours, but with another prefix, or of another client. */
static void subscription_to_a_channel_that_is_not_ours_ends_the_connection(void **state) {
    static char reply[128];
    int way;

    (void)state;
    for (way = 0; way < 2; way++) {
        char channel[64];

        stage_begins();
        stage_lies("SUBSCRIBE rlock:", reply, true, true);
        stage_in_line(stage_client(RLOCK_WIRE_STRING));
        snprintf(channel, sizeof channel, "%s", own_channel());
        channel[way == 0 ? 0 : strlen(channel) - 1] = 'x';
        snprintf(reply, sizeof reply, "*3\r\n$9\r\nsubscribe\r\n$%u\r\n%s\r\n:2\r\n",
                 (unsigned)strlen(channel), channel);
        stage_until_told();
        stage_looks();
        assert_false(stage_is_called());
        stage_runs(3000);
        assert_non_null(strstr(kit_log_text, "watching connection: a reply that nobody asked for"));
        assert_int_equal(stage.told[0], 1);
        assert_true(stage_is_called()); /* the next one is honest */
    }
}

/* An ACL may allow the one channel and not the other. What is refused is asked for again only on
 * the next connection; who waits for it polls. */
static void
who_may_not_listen_to_its_own_channel_is_told_of_changes_and_polls_for_its_turn(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("SUBSCRIBE rlock:", "-NOPERM this user has no permissions\r\n", true, false);
    stage_waiter(RLOCK_WIRE_STRING);
    o = stage_in_line(kit_clients[0]);
    stage_runs(3000);
    assert_int_equal(kit_clients[0]->pushing, RLOCK_PUSH_CHANGES);
    assert_int_equal(stage.told[0], 1);
    stage_hangs_up(stage_conn(true));
    stage_runs(3000);
    assert_int_equal(kit_clients[0]->pushing, RLOCK_PUSH_CHANGES);
    assert_int_equal(stage.told[0], 1);
    stage_hangs_up(stage_conn(false));
    stage_runs(3000);
    assert_int_equal(kit_clients[0]->pushing, RLOCK_PUSH_CHANGES);
    assert_int_equal(stage.told[0], 2);
    stage_grants(o);
}

static void who_may_not_listen_to_changes_polls_for_its_turn_and_is_called_neither(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("SUBSCRIBE __redis__:invalidate", "-NOPERM this user has no permissions\r\n", true,
               false);
    stage_waiter(RLOCK_WIRE_STRING);
    o = stage_in_line(kit_clients[0]);
    stage_runs(3000);
    assert_int_equal(kit_clients[0]->pushing, 0);
    assert_int_equal(stage.told[0], 1);
    assert_false(stage_heard("SUBSCRIBE rlock:"));
    stage_grants(o);
}

/* Before Redis 7 the reason stands inside the words of the script. */
static void error_inside_a_script_is_what_it_says_inside(void **state) {
    static const struct {
        const char *answer;
        int status;
    } rows[] = {
        {"-ERR Error running script (call to f_1f): @user_script:1: WRONGTYPE Operation against a "
         "key\r\n",
         RLOCK_ERR_WRONG_TYPE},
        {"-ERR Error running script (call to f_1f): @user_script:1: NOPERM this user\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR Error running script (call to f_1f): @user_script:1: OOM command not allowed\r\n",
         RLOCK_ERR_SERVER},
        {"-ERR Error running script (call to f_1f): WRONG\r\n", RLOCK_ERR_SERVER},
        {"-ERR Error running script: NOPERM\r\n", RLOCK_ERR_SERVER},
        {"-ERR Error running script (call to f_1f): @user_script:1\r\n", RLOCK_ERR_SERVER},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stage_begins();
        stage_lies("EVALSHA", rows[i].answer, true, false);
        assert_int_equal(stage_acquire(stage_owner(RLOCK_WIRE_REDISSON, "k"), 0, 1000),
                         rows[i].status);
    }
}

/* Whoever names users and keys decides nothing. */
static void name_of_a_user_or_a_key_is_no_code(void **state) {
    static const struct {
        const char *answer;
        int status;
    } rows[] = {
        {"-ERR The user executing the script can't access the READONLY key script: 1f, on "
         "@user_script:1.\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR ACL failure in script: User ROOMS has no permissions to run the 'get' command "
         "script: 1f, on @user_script:1.\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR ACL failure in script: User OOM has no permissions to access the 'MOVED' key "
         "script: 1f, on @user_script:1.\r\n",
         RLOCK_ERR_AUTH},
        {"-NOPERM User script:OOM has no permissions to run the 'evalsha' command\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: The user "
         "executing the script can't access the OOM key\r\n",
         RLOCK_ERR_AUTH},
        {"-ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: -NOPERM "
         "OOM\r\n",
         RLOCK_ERR_AUTH},
        {"-WRONGTYPE the key script:READONLY\r\n", RLOCK_ERR_WRONG_TYPE},
        {"-\r\n", RLOCK_ERR_SERVER},
        {"-1.\r\n", RLOCK_ERR_SERVER},
        {"-WRONGTYPE: a proxy says\r\n", RLOCK_ERR_WRONG_TYPE},
        {"-WRONGTYPE[1]\r\n", RLOCK_ERR_WRONG_TYPE},
        {"-WRONGTYPE{1}\r\n", RLOCK_ERR_WRONG_TYPE},
        {"-WRONGTYPE2\r\n", RLOCK_ERR_SERVER},
        {"-WRONGTYPES\r\n", RLOCK_ERR_SERVER},
        {"-WRONGTYPEs\r\n", RLOCK_ERR_SERVER},
        {"-WRONGTYPE_\r\n", RLOCK_ERR_SERVER},
        {"-BUSYKEY Target key name already exists.\r\n", RLOCK_ERR_SERVER},
        {"-ERR unknown command 'EVALSHA', with args beginning with: 'WRONGTYPE' 'script' "
         "'NOPERM'\r\n",
         RLOCK_ERR_SERVER},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status;

        stage_begins();
        stage_lies("EVALSHA", rows[i].answer, true, false);
        status = stage_acquire(stage_owner(RLOCK_WIRE_REDISSON, "k"), 0, 1000);
        if (status != rows[i].status) {
            print_error("row %u: status %d\n", (unsigned)i, status);
        }
        assert_int_equal(status, rows[i].status);
    }
}

/* Nor on the real server, whose words are its own: inside a script, and before it. */
static void users_and_keys_with_the_names_of_codes_are_told_as_any_other(void **state) {
    static const char *const names[] = {"ROOMS:script", "OOM:script", "READONLY:script",
                                        "MOVED:script"};
    static const char *const rules[] = {"-get -hexists -set", "-eval -evalsha -set"};
    size_t i, r, w;

    (void)state;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (r = 0; r < 2; r++) {
            char rule[128];

            snprintf(rule, sizeof rule, "ACL SETUSER %s reset on >secret ~* &* +@all %s", names[i],
                     rules[r]);
            tell(ask(&server, rule));
            for (w = 0; w < 2; w++) {
                rlock_config config = kit_config(&server);
                struct owner *o;

                config.username = names[i];
                config.password = "secret";
                config.wire = wires[w];
                o = owner_new(kit_client(&config), names[(i + 1) % 4]);
                assert_int_equal(owner_acquire(o, 1000, 1000), RLOCK_ERR_AUTH);
            }
        }
        tell(ask(&server, "ACL DELUSER %s", names[i]));
    }
}

/* A server on TCP, so that its name can be resolved; gives its port. */
static int stage_on_tcp(void) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;

    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    close(stage.door);
    stage.door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(bind(stage.door, (struct sockaddr *)&a, len) == 0 && listen(stage.door, 16) == 0 &&
                getsockname(stage.door, (struct sockaddr *)&a, &len) == 0);
    return ntohs(a.sin_port);
}

static void name_is(uint32_t address) {
    struct sockaddr_in in;

    memset(&in, 0, sizeof in);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(address);
    name_answers((struct sockaddr *)&in);
}

/* A name may stand for many servers: the watching connection does not ask for itself. */
static void watching_connection_goes_where_the_other_went(void **state) {
    rlock_client *client;
    struct owner *o;
    int turns;

    (void)state;
    stage_begins();
    client = named_client(stage_on_tcp());
    o = owner_new(client, "taken");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    name_is(INADDR_LOOPBACK);
    stage_runs(3 * TIMEOUT_MS);
    assert_int_equal(stage.names, 1);
    assert_true(stage_is_pushing());
    stage_hangs_up(&stage.conns[1]); /* the watching one alone: to the same server once more */
    stage_runs(3 * TIMEOUT_MS);
    assert_int_equal(stage.names, 1);
    assert_true(stage_is_pushing());
    stage_hangs_up(&stage.conns[0]); /* both: once more for the two of them */
    stage_runs(3000);
    assert_int_equal(stage.names, 2);
    name_is(INADDR_LOOPBACK);
    for (turns = 0; turns < 100 && !kit_stats(client).pushing; turns++) {
        stage_runs(10);
    }
    assert_true(kit_stats(client).up && kit_stats(client).pushing);
    assert_int_equal(stage.names, 2);
}

/* The channel of a key with a brace is the key itself, however short. */
static void message_of_a_short_channel_wakes(void **state) {
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
    stage_lies("EVALSHA", ":60000\r\n", true, false);
    o = stage_owner(RLOCK_WIRE_REDISSON, "{a");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    stage_runs(2000);
    assert_true(stage_is_pushing());
    say_message("message", CHANNEL "{a", "$1\r\n0\r\n");
    assert_true(count_tries() > 0);
}

/* Instead of the answer to SUBSCRIBE, and for the channel that was meant. */
static void server_that_unsubscribes_us_is_polled(void **state) {
    static char reply[128];
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
    stage_lies("SUBSCRIBE", reply, true, false);
    o = stage_waiter(RLOCK_WIRE_REDISSON);
    snprintf(reply, sizeof reply, "*3\r\n$11\r\nunsubscribe\r\n$61\r\n" CHANNEL "{%s}\r\n:0\r\n",
             rlock_client_id(kit_clients[0]));
    stage_runs(2000);
    assert_true(stage.told[1] > 0);
    assert_false(stage_is_pushing());
    stage_lies("EVALSHA", "$1\r\n0\r\n", true, false);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 11000), RLOCK_OK);
}

/* On such messages hiredis asserts, or would take the channel for one that was asked for. */
static void message_that_answers_no_subscription_ends_the_connection(void **state) {
    static const struct {
        rlock_wire wire; /* Redisson's: without tracking, by channels */
        const char *reply;
    } rows[] = {
        {RLOCK_WIRE_STRING,
         "*3\r\n$11\r\nunsubscribe\r\n$20\r\n__redis__:invalidate\r\n$1\r\nx\r\n"},
        {RLOCK_WIRE_STRING, "*3\r\n$11\r\nUNSUBSCRIBE\r\n$20\r\n__redis__:invalidate\r\n*0\r\n"},
        {RLOCK_WIRE_STRING, "*3\r\n$9\r\nsubscribe\r\n$20\r\n__redis__:invalidate\r\n$1\r\nx\r\n"},
        {RLOCK_WIRE_STRING, "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n"},
        {RLOCK_WIRE_REDISSON, "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n"},
        {RLOCK_WIRE_REDISSON,
         "*3\r\n$9\r\nsubscribe\r\n$31\r\nanother channel as long as ours\r\n:1\r\n"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stage_begins();
        stage_lies("SUBSCRIBE", rows[i].reply, true, true);
        if (rows[i].wire == RLOCK_WIRE_REDISSON) {
            stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
        }
        stage_waiter(rows[i].wire);
        stage_runs(3000);
        assert_non_null(strstr(kit_log_text, "watching connection: "));
        assert_int_equal(stage.told[0], 1);
        assert_true(stage_is_pushing()); /* the next one is honest */
    }
}

static void head_of_a_huge_array_ends_the_connection(void **state) {
    static const char *const heads[] = {"*65537\r\n", "*2147483647\r\n", "*2\r\n*65537\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("EVALSHA", heads[i], true, true);
        o = stage_owner(RLOCK_WIRE_REDISSON, "k");
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_UNKNOWN);
        assert_non_null(strstr(kit_log_text, "connection: a reply that nobody asked for"));
        assert_int_equal(stage_acquire(o, 5000, 1000), RLOCK_OK);
    }
}

/* The connect that a late answer allows hangs: it is given up like any other. */
static void name_that_was_answered_late_and_led_nowhere_is_given_up(void **state) {
    int deaf, filler[2], door = deaf_door(&deaf, filler);
    struct owner *o;

    (void)state;
    stage_begins();
    o = owner_new(named_client(deaf), "taken");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    stage_runs(5 * TIMEOUT_MS);
    name_is(INADDR_LOOPBACK);
    stage_runs(2 * TIMEOUT_MS);
    assert_non_null(strstr(kit_log_text, "connection: no answer while connecting"));
    kit_reset(); /* the sanitizer counts the contexts */
    close(filler[0]);
    close(filler[1]);
    close(door);
}

static bool forked;

/* The child only returns, and ends in its turn; what it did has happened before the parent goes on:
 * it has sent nothing, and left the socket as it is. */
static void log_that_forks(void *user, int level, const char *line) {
    struct linger linger;
    socklen_t len = sizeof linger;
    int code = -1, bytes = -1;
    pid_t pid;

    kit_log(user, level, line);
    if (forked) {
        return;
    }
    forked = true;
    pid = fork();
    if (pid == 0) {
        stage.door = -1; /* for the turn to know */
        return;
    }
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    assert_int_equal(ioctl(stage.conns[0].fd, FIONREAD, &bytes), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(getsockopt(stage.watched[0].fd, SOL_SOCKET, SO_LINGER, (char *)&linger, &len),
                     0);
    assert_int_equal(linger.l_onoff, 0);
}

/* hiredis is at work, and finds more that is wrong: it closes. */
static void child_that_returns_to_hiredis_closes_nothing(void **state) {
    rlock_config config;
    rlock_client *client;
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("CLIENT SETNAME", "-NOPERM no\r\nnonsense\r\n", true, true);
    forked = false;
    config = stage_config(RLOCK_WIRE_STRING);
    config.client_name = "name";
    config.log = log_that_forks;
    client = kit_client(&config);
    o = owner_new(client, "k");
    assert_int_equal(rlock_acquire(o->lock, 0, 1000, owner_told, o), RLOCK_OK);
    while (!forked) {
        stage_turns(stage.now_us + 1000);
        if (stage.door < 0) {
            _exit(0);
        }
    }
}

/* The socket was full: the rest waits in hiredis, which would write it now. */
static void child_that_returns_to_hiredis_writes_nothing(void **state) {
    static char key[3000], bytes[16384];
    rlock_options options;
    rlock_config config;
    rlock_client *client;
    struct owner *o;
    int i, small = 1;

    (void)state;
    stage_begins();
    stage_lies("CLIENT TRACKING", "", true, true);
    forked = false;
    config = stage_config(RLOCK_WIRE_STRING);
    config.log = log_that_forks;
    client = kit_client(&config);
    o = owner_new(client, "taken");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
    stage_until_told();
    assert_int_equal(
        setsockopt(stage.watched[0].fd, SOL_SOCKET, SO_SNDBUF, (char *)&small, sizeof small), 0);
    memset(&options, 0, sizeof options);
    options.key = key;
    options.key_len = sizeof key;
    for (i = 0; i < 10; i++) {
        memset(key, 'a' + i, sizeof key);
        o = owner_with(client, &options);
        assert_int_equal(rlock_acquire(o->lock, 0, 1000, owner_told, o), RLOCK_OK);
    }
    stage_fires();
    assert_int_equal(stage.watched[0].events, RLOCK_IO_READ | RLOCK_IO_WRITE);
    while (recv(stage.conns[0].fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    stage_says(&stage.conns[0], "-ERR unknown command\r\n"); /* to the tracking: it is logged */
    stage_looks();
    if (stage.door < 0) {
        _exit(0);
    }
    assert_true(forked);
}

/* --- what the process lacks --- */

static void ok_or_short(int status) {
    assert_true(status == RLOCK_OK || status == RLOCK_ERR_NOMEM);
}

/* With every wire, and with channels: connect, wait, hold, renew, release, close. Whatever
 * allocation of ours fails, each call and callback says OK or NOMEM, and everything ends. */
static void memory_scenario(rlock_wire wire, bool channels) {
    char long_key[3000], secret[400] = "";
    rlock_config config = stage_config(wire);
    struct owner *o, *waiter, *line = NULL;
    rlock_options options;
    rlock_client *client = NULL;
    int status;

    memset(long_key, 'k', sizeof long_key);
    memset(&options, 0, sizeof options);
    options.key = long_key;
    options.key_len = sizeof long_key; /* the buffer of commands has to grow */
    options.fencing = true;
    if (channels) {
        stage_lies("CLIENT TRACKING", "-ERR unknown command\r\n", true, false);
    }
    memset(secret, 's', sizeof secret - 1); /* already the greeting needs more room */
    config.username = config.client_name = "n";
    config.password = secret;
    status = rlock_client_new(&client, &config);
    ok_or_short(status);
    if (status != RLOCK_OK) {
        return;
    }
    kit_clients[kit_client_count++] = client;
    waiter = owner_new(client, "taken");
    if (waiter != NULL) {
        ok_or_short(rlock_acquire(waiter->lock, RLOCK_FOREVER, 1000, owner_told, waiter));
    }
    if (wire == RLOCK_WIRE_STRING) { /* there are lines there */
        rlock_options in_line;

        memset(&in_line, 0, sizeof in_line);
        in_line.key = "taken";
        in_line.kind = RLOCK_KIND_FAIR;
        line = owner_with(client, &in_line);
        if (line != NULL) {
            ok_or_short(rlock_acquire(line->lock, RLOCK_FOREVER, 1000, owner_told, line));
        }
    }
    stage_runs(1000);
    o = owner_with(client, &options);
    if (o != NULL) {
        status = stage_acquire(o, 0, 3000);
        if (status == RLOCK_OK) {
            ok_or_short(stage_renew(o, 0));
            assert_int_equal(stage_release(o), RLOCK_OK);
        } else {
            assert_true(status == RLOCK_ERR_NOMEM || status == RLOCK_ERR_CONN ||
                        status == RLOCK_ERR_UNKNOWN);
        }
    }
    stage_runs(5000);
    if (waiter != NULL && waiter->seen[RLOCK_ACQUIRED] != 0) {
        assert_int_equal(waiter->status[RLOCK_ACQUIRED], RLOCK_ERR_NOMEM);
    }
    if (line != NULL && line->seen[RLOCK_ACQUIRED] != 0) {
        assert_int_equal(line->status[RLOCK_ACQUIRED], RLOCK_ERR_NOMEM);
    }
    assert_int_equal(kit_stats(client).cleaning, 0);
}

static void every_failing_allocation_is_survived_on_redis(void **state) {
    int way;

    (void)state;
    for (way = 0; way < 6; way++) {
        unsigned n = 0;

        do {
            stage_begins();
            memory_lasts = ++n;
            memory_stays_out = way >= 3;
            memory_scenario(way % 3 == 0 ? RLOCK_WIRE_STRING : RLOCK_WIRE_REDISSON, way % 3 == 2);
            memory_stays_out = false;
            kit_reset();
            assert_true(n < 1000);
        } while (memory_lasts == 0);
        assert_true(n > 10);
        memory_lasts = 0;
    }
}

static void every_command_that_hiredis_refuses_is_survived(void **state) {
    int way;

    (void)state;
    for (way = 0; way < 3; way++) {
        unsigned n = 0;

        do {
            stage_begins();
            commands_last = ++n;
            memory_scenario(way == 0 ? RLOCK_WIRE_STRING : RLOCK_WIRE_REDISSON, way == 2);
            kit_reset();
            assert_true(n < 1000);
        } while (commands_last == 0);
        assert_true(n > 10);
        commands_last = 0;
    }
}

static void client_without_random_bytes_is_refused(void **state) {
    struct rlimit limit, none;
    rlock_config config;
    rlock_client *client = NULL;
    int status;

    (void)state;
    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0; /* no descriptor to open /dev/urandom with */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    status = rlock_client_new(&client, &config);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, RLOCK_ERR_NOMEM);
    assert_null(client);
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    rlock_client_free(client);
}

static void kernel_without_boottime_gets_the_monotonic_clock(void **state) {
    rlock_config config;
    struct owner *o;

    (void)state;
    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    config.loop.now_us = NULL;
    no_boottime = true;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_true(rlock_remaining_ms(o->lock) > 50000);
    assert_true(clocks_read[CLOCK_MONOTONIC] > 0);
    no_boottime = false;
}

/* ------------------------------------------------------------------------------------------------
 * LOADING: the server reads a data set slowly
 */

/* A fork is refused however the kernel tells it. The first test: what is found out once stays. */
static void fork_is_seen_whatever_the_kernel_can_do(void **state) {
    static const enum pages ways[] = {NO_PAGES,   NONE_SHARED, PAGES_STAY,
                                      PAGES_SAID, PAGES_RACE,  PAGES};
    int way, k;

    (void)state;
    for (way = 0; way < 6; way++) {
        rlock_client *client, *late = NULL;
        int code = -1;
        pid_t pid;

        pages = ways[way];
        for (k = 0; k < 2; k++) {
            stage_begins();
            client = stage_client(RLOCK_WIRE_STRING);
        }
        assert_int_equal(client->process != NULL, way >= 4);
        pid = fork();
        if (pid == 0) {
            rlock_config config = kit_config(&server);
            bool good = rlock_client_shutdown(client, 0, NULL, NULL) == RLOCK_ERR_STATE;

            good = good && rlock_client_new(&late, &config) == RLOCK_OK;
            good = good && rlock_client_shutdown(late, 0, NULL, NULL) == RLOCK_OK;
            good = good && rlock_client_shutdown(client, 0, NULL, NULL) == RLOCK_ERR_STATE;
            rlock_client_free(late);
            _exit(good ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &code, 0), pid);
        assert_int_equal(code, 0);
        assert_int_equal(stage_acquire(owner_new(client, "k"), 0, 1000), RLOCK_OK);
    }
}

static struct server loader;

static int is_loading(void) {
    int loading;
    redisContext *c = kit_connect(&loader);
    redisReply *reply = (redisReply *)redisCommand(c, "PING");

    loading =
        reply != NULL && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "LOADING", 7) == 0;
    if (reply != NULL) {
        freeReplyObject(reply);
    }
    redisFree(c);
    return loading;
}

static void loading_server_is_waited_for(void **state) {
    const char *args[] = {"--enable-debug-command", "yes",
                          "--loading-process-events-interval-bytes", "1024", NULL};
    redisContext *reloading;
    rlock_config config;
    struct owner *tried, *waiting;
    int done = 0;

    (void)state;
    if (server_start(&loader, args) != 0) {
        server_stop(&loader);
        args[0] = NULL; /* a server older than 7.0 does not know the switch, and does not need it */
        assert_int_equal(server_start(&loader, args), 0);
    }
    tell(ask(&loader, "DEBUG POPULATE 400 filler 100"));
    tell(ask(&loader, "CONFIG SET key-load-delay 2500"));
    config = kit_config(&loader);
    tried = owner_new(kit_client(&config), "k");
    waiting = owner_new(kit_client(&config), "k");
    assert_int_equal(owner_acquire(tried, 0, 20000), RLOCK_OK);
    assert_int_equal(owner_release(tried), RLOCK_OK);
    reloading = kit_connect(&loader);
    redisAppendCommand(reloading, "DEBUG RELOAD");
    while (!done) {
        redisBufferWrite(reloading, &done);
    }
    while (!is_loading()) {
        server_sleep_ms(1);
    }
    assert_int_equal(owner_acquire(tried, 0, 1000), RLOCK_ERR_SERVER);
    assert_non_null(strstr(tried->text[RLOCK_ACQUIRED], "LOADING"));
    assert_int_equal(owner_acquire(waiting, 10000, 1000), RLOCK_OK);
    redisFree(reloading);
    kit_reset();
    kit_hand_drop();
    server_stop(&loader);
}

/* --- requests that were surely not executed --- */

static struct server odd; /* a server of another kind */

static int shutdown_status;

static void on_shutdown(rlock_client *client, int status, void *user) {
    (void)client, (void)user;
    shutdown_status = status;
}

static int is_shut(void *arg) {
    (void)arg;
    return shutdown_status != KIT_NOTHING;
}

/* Fails `tries` times with these words, and nothing is left: no command follows, and it ends. */
static void fails_and_leaves_nothing(rlock_client *client, struct owner *o, const char *words) {
    int i, tries = 20;
    uint64_t commands;

    for (i = 0; i < tries; i++) {
        assert_int_equal(owner_acquire(o, i % 2 != 0 ? 100 : 0, 0), RLOCK_ERR_SERVER);
        assert_non_null(strstr(o->text[RLOCK_ACQUIRED], words));
    }
    assert_int_equal(kit_stats(client).cleaning, 0);
    commands = kit_stats(client).commands;
    assert_true(commands <= (uint64_t)tries * 3 + 8);
    kit_run(1200);
    assert_true(kit_stats(client).commands <= commands + 2);
    shutdown_status = KIT_NOTHING;
    assert_int_equal(rlock_client_shutdown(client, 1000, on_shutdown, NULL), RLOCK_OK);
    assert_true(kit_until(is_shut, NULL, 3000));
    assert_int_equal(shutdown_status, RLOCK_OK);
}

static int slots_are_served(void *arg) {
    (void)arg;
    return strstr(str(ask(&odd, "CLUSTER INFO")), "cluster_state:ok") != NULL;
}

static void odd_server_ends(void) {
    kit_reset();
    kit_hand_drop();
    server_stop(&odd);
}

static void keys_of_two_slots_are_refused_and_leave_nothing(void **state) {
    const char *args[] = {"--cluster-enabled", "yes", NULL};
    const char *keys[] = {"{a}", "{b}"};
    rlock_options options;
    rlock_config config;
    rlock_client *client;

    (void)state;
    odd.port = 20000 + (int)(getpid() % 10000); /* the bus of the cluster is 10000 above it */
    assert_int_equal(server_start(&odd, args), 0);
    tell(ask(&odd, "CLUSTER ADDSLOTSRANGE 0 16383"));
    assert_true(kit_until(slots_are_served, NULL, 10000));
    config = kit_config(&odd);
    client = kit_client(&config);
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 2;
    fails_and_leaves_nothing(client, owner_with(client, &options), "CROSSSLOT");
    odd.port = 0;
    odd_server_ends();
}

static void command_that_the_server_does_not_know_leaves_nothing(void **state) {
    static const char *const names[][2] = {{"EVALSHA", "unknown command"},
                                           {"EVAL", "unknown command"},
                                           {"SET", "unknown command"},
                                           {"HSET", "called from script"}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *args[] = {"--rename-command", names[i][0], "", NULL};
        rlock_config config;
        rlock_client *client;

        assert_int_equal(server_start(&odd, args), 0);
        config = kit_config(&odd);
        config.wire = strcmp(names[i][0], "SET") == 0 ? RLOCK_WIRE_STRING : RLOCK_WIRE_REDISSON;
        client = kit_client(&config);
        fails_and_leaves_nothing(client, owner_new(client, "k"), names[i][1]);
        odd_server_ends();
    }
}

/* Of the queued kinds too, whose script may have given a place before it fails: not this way. */
static void script_that_the_server_never_runs_leaves_no_place(void **state) {
    static const char *const answers[] = {"-NOSCRIPT No matching script. Please use EVAL.\r\n",
                                          "-ERR unknown command 'EVAL'\r\n",
                                          "-ERR wrong number of arguments for 'eval' command\r\n"};
    static const rlock_kind kinds[] = {RLOCK_KIND_MUTEX, RLOCK_KIND_FAIR};
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        for (k = 0; k < 2; k++) {
            rlock_options options;
            struct owner *o;

            stage_begins();
            stage_lies("EVAL", answers[i], true, false);
            memset(&options, 0, sizeof options);
            options.key = "k";
            options.kind = kinds[k];
            options.fencing = true;
            o = owner_with(stage_client(RLOCK_WIRE_STRING), &options);
            assert_int_equal(stage_acquire(o, 0, 30000), RLOCK_ERR_SERVER);
            stage_runs(5000);
            assert_int_equal(stage.told[0], i == 0 ? 2 : 1);
            assert_int_equal(kit_stats(kit_clients[0]).cleaning, 0);
        }
    }
}

/* Words that nobody knows, as a proxy may have of its own: it may have been executed. */
static void words_that_are_not_known_may_stand_for_anything(void **state) {
    static const char *const answers[] = {
        "-ERR Connection timed out\r\n",
        "-ERR Connection timed out for 'k, on @user_script:1.'\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        stage_begins();
        stage_lies("SET", answers[i], true, false);
        assert_int_equal(stage_acquire(stage_owner(RLOCK_WIRE_STRING, "k"), 0, 1000),
                         RLOCK_ERR_SERVER);
        stage_runs(0);
        assert_true(stage_heard("EVALSHA " RLOCK__SHA_STRING_RELEASE));
    }
}

/* What the script of the queued kinds says in the middle may come behind a place in the line. */
static void error_inside_the_script_of_a_line_is_cleaned_up_behind(void **state) {
    static const char *const answers[] = {
        "-ERR user_script:1: attempt to compare nil script: 1f, on @user_script:1.\r\n",
        "-ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: Unknown Redis "
        "command called from Lua script\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_options options;
        struct owner *o;

        stage_begins();
        stage_lies("EVAL", answers[i], true, true);
        memset(&options, 0, sizeof options);
        options.key = "taken";
        options.kind = RLOCK_KIND_FAIR;
        o = owner_with(stage_client(RLOCK_WIRE_STRING), &options);
        assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_SERVER);
        stage_runs(0);
        assert_int_equal(stage_count("EVALSHA"), 2); /* the try, and the release */
    }
}

/* --- which server it is --- */

/* Another process than that of the honest server. */
#define THERE "run_id:9876543210987654321098765432109876543210"
#define THERE_ANEW "run_id:1029384756102938475610293847561029384756"

/* Of what was sent to a process that died nothing comes late; but another one that answers may as
 * well be another server behind the same address, and the first one comes back. */
static void only_a_restart_makes_sure_that_nothing_comes_late(void **state) {
    static const struct {
        const char *info; /* of the second connection */
        bool elsewhere, hidden;
        int cleaning;
    } rows[] = {
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", false, false, 0},
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", true, false, 1},
        {"$68\r\n" THERE "\r\nuptime_in_seconds:0\r\n", false, true, 1},
        {"$71\r\n" THERE "\r\nuptime_in_seconds:5000\r\n", false, false, 1},
        {"$69\r\n" THERE "\r\nuptime_in_seconds:-5\r\n", false, false, 1},
        {"$47\r\n" THERE "\r\n", false, false, 1},
    };
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rlock_client *client;
        struct owner *o;

        stage_begins();
        stage_lies("SET", "", true, true);
        peers_are_hidden = rows[i].hidden;
        stage_lies("INFO", "", false, true); /* the truth, once; ... */
        stage_lies("INFO", rows[i].info, true, true);
        client = stage_client(RLOCK_WIRE_STRING);
        o = owner_new(client, "k");
        assert_int_equal(rlock_acquire(o->lock, 0, 5000, owner_told, o), RLOCK_OK);
        while (stage.told[0] == 0) {
            stage_turns(stage.now_us + 1000);
        }
        if (rows[i].elsewhere) {
            ((rlock__redis *)client->store_state)->peer.ss_family = AF_INET;
        }
        stage_runs(2000);
        assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
        assert_int_equal(kit_stats(client).connects, 2);
        if ((int)kit_stats(client).cleaning != rows[i].cleaning) {
            print_error("row %u\n", (unsigned)i);
        }
        assert_int_equal(kit_stats(client).cleaning, rows[i].cleaning);
        stage_hangs_up(&stage.conns[1]); /* ... and then the first one again */
        stage_runs(1000);
        assert_int_equal(kit_stats(client).connects, 3);
        assert_int_equal(kit_stats(client).cleaning, rows[i].cleaning);
        stage_runs(5000); /* the longest lease and a command timeout: now it is over */
        assert_int_equal(kit_stats(client).cleaning, 0);
        assert_false(stage_heard("CLIENT KILL"));
        peers_are_hidden = false;
    }
}

/* A restart of the second server says nothing of what was sent to the first one, even where no
 * connection to the second was ever ready. */
static void restart_of_another_server_makes_nothing_sure(void **state) {
    rlock_client *client;
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("SET", "", true, true);
    stage_lies("INFO", "", false, true); /* the truth, once; another server; and that one anew */
    stage_lies("INFO", "$71\r\n" THERE "\r\nuptime_in_seconds:5000\r\n", true, true);
    stage_lies("INFO", "$68\r\n" THERE_ANEW "\r\nuptime_in_seconds:0\r\n", true, true);
    stage_lies("COMMAND", "", false, true);
    stage_lies("COMMAND", "-LOADING Redis is loading the dataset in memory\r\n", true, true);
    client = stage_client(RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    assert_int_equal(rlock_acquire(o->lock, 0, 5000, owner_told, o), RLOCK_OK);
    while (stage.told[0] == 0) {
        stage_turns(stage.now_us + 1000);
    }
    stage_runs(2500);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
    assert_int_equal(kit_stats(client).connects, 3);
    assert_true(stage_heard("EVALSHA " RLOCK__SHA_STRING_RELEASE));
    assert_int_equal(kit_stats(client).cleaning, 1);
    stage_runs(6000); /* the longest lease and a command timeout: now it is over */
    assert_int_equal(kit_stats(client).cleaning, 0);
}

/* What was open before is settled by time; the next loss is by a kill again. */
static void address_that_moved_once_does_not_hinder_later_kills(void **state) {
    rlock_client *client;
    struct owner *o;
    int i;

    (void)state;
    stage_begins();
    stage_lies("SET", "", true, true);
    stage_lies("INFO", "", false, true);
    stage_lies("INFO", "$47\r\n" THERE "\r\n", true, false);
    client = stage_client(RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_UNKNOWN);
    stage_runs(3000);
    assert_int_equal(kit_stats(client).cleaning, 0);
    for (i = 0; i < 2; i++) {
        stage.told[0] = 0; /* its answer is lost again */
        stage.trail[0] = '\0';
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_ERR_UNKNOWN);
        stage_runs(1000);
        assert_true(stage_heard("CLIENT KILL"));
        assert_int_equal(kit_stats(client).cleaning, 0);
    }
}

/* Executed late, behind the answer to the next one, these would take what others got meanwhile. */
static void unanswered_change_by_an_operator_is_killed_before_anything_else(void **state) {
    int change;

    (void)state;
    for (change = 0; change < 3; change++) {
        rlock_options options;
        rlock_client *client;

        stage_begins();
        stage_lies("EVALSHA", "", true, true);
        client = stage_client(RLOCK_WIRE_STRING);
        memset(&options, 0, sizeof options);
        options.key = "k";
        options.kind = change == 1 ? RLOCK_KIND_SEMAPHORE : RLOCK_KIND_MUTEX;
        options.permits = change == 1 ? 3 : 0;
        asked_status = KIT_NOTHING;
        assert_int_equal(change == 0   ? rlock_force_release(client, &options, asked_about, NULL)
                         : change == 1 ? rlock_set_permits(client, &options, 5, asked_about, NULL)
                                       : rlock_inspect(client, &options, asked_about, NULL),
                         RLOCK_OK);
        stage_runs(3 * TIMEOUT_MS);
        assert_int_equal(asked_status, RLOCK_ERR_UNKNOWN);
        assert_int_equal(stage_heard("CLIENT KILL"), change < 2);
    }
}

/* Behind an address with several servers the watching connection may reach another one, where its
 * id names nobody, or a stranger. */
static void watching_connection_at_another_server_is_not_used(void **state) {
    (void)state;
    stage_begins();
    stage_lies("INFO", "", false, true);
    stage_lies("INFO", "$47\r\n" THERE "\r\n", true, true);
    stage_lies("INFO", "$47\r\n" THERE "\r\n", true, true);
    stage_waiter(RLOCK_WIRE_STRING);
    while (stage.told[2] == 0) {
        stage_turns(stage.now_us + 1000);
        assert_false(stage_is_pushing());
        assert_false(stage_heard("CLIENT TRACKING"));
    }
    stage_runs(1000);
    assert_true(stage_is_pushing());
    assert_int_equal(kit_stats(kit_clients[0]).connects, 4);
    assert_true(kit_stats(kit_clients[0]).up);
}

/* --- servers that are not, or no longer, the right one --- */

#define READ_ONLY "-READONLY You can't write against a read only replica.\r\n"
#define MOVED_AWAY "-MOVED 7 127.0.0.1:7001\r\n"

/* Each dialect, and each that no longer leads: the address is asked for anew, at once. */
static void server_that_may_not_write_is_left(void **state) {
    static const char *const answers[] = {
        READ_ONLY,
        "-READONLY You can't write against a read only replica. script: 1f, on @user_script:1.\r\n",
        "-ERR Error running script (call to f_1f): @user_script:1: @user_script: 1: -READONLY You "
        "can't write against a read only replica. \r\n",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
        MOVED_AWAY};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("EVALSHA", answers[i], true, true);
        o = stage_owner(RLOCK_WIRE_REDISSON, "k");
        assert_int_equal(stage_acquire(o, 5000, 1000), RLOCK_OK);
        assert_int_equal(kit_stats(kit_clients[0]).connects, 2);
        assert_int_equal(stage.told[0], 1);
        assert_false(stage_heard("CLIENT KILL")); /* all was answered */
    }
}

static void server_that_refuses_for_now_is_kept(void **state) {
    static const char *const answers[] = {"-OOM command not allowed\r\n", "-TRYAGAIN Multiple\r\n",
                                          "-ASK 7 127.0.0.1:7001\r\n", "-READONLYISH no\r\n",
                                          "-ERR the key READONLY MOVED\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        stage_begins();
        stage_lies("EVALSHA", answers[i], true, true);
        assert_int_equal(stage_acquire(stage_owner(RLOCK_WIRE_REDISSON, "k"), 0, 1000),
                         RLOCK_ERR_SERVER);
        stage_runs(3000);
        assert_int_equal(kit_stats(kit_clients[0]).connects, 1);
    }
}

/* What was sent with it is answered first; what has no answer may have been done. */
static void answers_behind_a_refusal_to_write_are_read(void **state) {
    struct owner *refused, *granted, *unknown, *later;
    rlock_client *client;
    int answered;

    (void)state;
    for (answered = 0; answered < 2; answered++) {
        stage_begins();
        stage_lies("SET refused", READ_ONLY, true, true);
        stage_lies("SET unknown", "", answered == 0, true);
        client = stage_client(RLOCK_WIRE_STRING);
        assert_int_equal(stage_acquire(owner_new(client, "first"), 0, 60000), RLOCK_OK);
        stage_runs(2000);
        refused = owner_new(client, "refused");
        granted = owner_new(client, "granted");
        unknown = owner_new(client, "unknown");
        assert_int_equal(rlock_acquire(refused->lock, 0, 60000, owner_told, refused), RLOCK_OK);
        assert_int_equal(rlock_acquire(granted->lock, 0, 60000, owner_told, granted), RLOCK_OK);
        assert_int_equal(rlock_acquire(unknown->lock, 0, 60000, owner_told, unknown), RLOCK_OK);
        assert_int_equal(stage_wait(refused, RLOCK_ACQUIRED, 10), RLOCK_ERR_SERVER);
        assert_int_equal(stage_wait(granted, RLOCK_ACQUIRED, 10), RLOCK_OK);
        later = owner_new(client, "later"); /* goes to the next server, whatever is still out */
        assert_int_equal(rlock_acquire(later->lock, 5000, 60000, owner_told, later), RLOCK_OK);
        assert_int_equal(stage_wait(unknown, RLOCK_ACQUIRED, 2000),
                         answered ? RLOCK_OK : RLOCK_ERR_UNKNOWN);
        assert_int_equal(stage_wait(later, RLOCK_ACQUIRED, 2000), RLOCK_OK);
        assert_int_equal(kit_stats(client).connects, 4); /* two each time */
        assert_int_equal(stage_heard("CLIENT KILL"), !answered);
        assert_true(rlock_is_held(granted->lock));
    }
}

/* A server that is nothing else is asked for anew once a second at most. */
static void servers_that_never_write_are_not_stormed(void **state) {
    static const char *const answers[] = {READ_ONLY, MOVED_AWAY};
    size_t i;

    (void)state;
    for (i = 0; i < 2; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("EVAL", answers[i], true, false);
        o = stage_owner(RLOCK_WIRE_REDISSON, "k");
        assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 1000, owner_told, o), RLOCK_OK);
        stage_runs(20000);
        assert_true(kit_stats(kit_clients[0]).connects >= 10);
        assert_true(kit_stats(kit_clients[0]).connects <= 42);
        assert_int_equal(o->seen[RLOCK_ACQUIRED], 0);
    }
}

/* Of some keys a node of a cluster is the right one: those are not disturbed by the others. */
static void node_that_serves_other_keys_is_seldom_left(void **state) {
    struct owner *far, *near;
    rlock_client *client;
    int i;

    (void)state;
    stage_begins();
    stage_lies("SET far", MOVED_AWAY, true, false);
    client = stage_client(RLOCK_WIRE_STRING);
    far = owner_new(client, "far");
    near = owner_new(client, "near");
    for (i = 0; i < 100; i++) {
        assert_int_equal(stage_acquire(near, 2000, 1000), RLOCK_OK);
        assert_int_equal(stage_release(near), RLOCK_OK);
        assert_int_equal(stage_acquire(far, 0, 1000), RLOCK_ERR_SERVER);
        stage_runs(300);
    }
    assert_true(kit_stats(client).connects >= 3);
    assert_true(kit_stats(client).connects <= 6);
}

static const struct server *leads; /* where the hook connects */

static redisAsyncContext *connect_to_who_leads(void *user) {
    (void)user;
    return redisAsyncConnectUnix(leads->socket);
}

static int is_in_step(void *arg) {
    (void)arg;
    return strstr(str(ask(&odd, "INFO replication")), "master_link_status:up") != NULL;
}

static int has_both(void *arg) {
    (void)arg;
    return num(ask(&odd, "EXISTS held watched")) == 2;
}

static int renews(void *arg) {
    return owner_renew((struct owner *)arg, 0) == RLOCK_OK;
}

/* No connection is closed by the server, and nothing is told: an operator made another one lead. */
static void primary_that_was_demoted_is_left_by_all(void **state) {
    rlock_config config;
    rlock_client *holds, *waits;
    struct owner *held, *watched, *waiter;
    static struct server primary;

    (void)state;
    primary.port = server_free_port();
    assert_int_equal(server_start(&primary, NULL), 0);
    odd.port = server_free_port();
    assert_int_equal(server_start(&odd, NULL), 0);
    tell(ask(&odd, "CONFIG SET repl-diskless-sync-delay 0"));
    tell(ask(&primary, "CONFIG SET repl-diskless-sync-delay 0"));
    tell(ask(&odd, "REPLICAOF 127.0.0.1 %d", primary.port));
    assert_true(kit_until(is_in_step, NULL, 10000));
    leads = &primary;
    config = kit_config(&primary);
    config.connect = connect_to_who_leads;
    config.watchdog_lease_ms = 3000;
    holds = kit_client(&config);
    waits = kit_client(&config);
    held = owner_new(holds, "held");
    watched = owner_new(holds, "watched");
    waiter = owner_new(waits, "held");
    assert_int_equal(owner_acquire(held, 0, 20000), RLOCK_OK);
    assert_int_equal(owner_acquire(watched, 0, 0), RLOCK_OK);
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 20000, owner_told, waiter),
                     RLOCK_OK);
    assert_true(kit_until(kit_is_pushing, holds, 3000));
    assert_true(kit_until(kit_is_pushing, waits, 3000));
    assert_true(kit_until(has_both, NULL, 10000)); /* what is not copied is lost */
    tell(ask(&odd, "REPLICAOF NO ONE"));
    tell(ask(&primary, "REPLICAOF 127.0.0.1 %d", odd.port));
    leads = &odd;
    assert_true(kit_until(renews, held, 15000));
    assert_true(kit_until(kit_is_pushing, holds, 3000));
    kit_run(3500); /* longer than the lease: the watchdog renews at the new one */
    assert_true(rlock_is_held(watched->lock));
    assert_true(num(ask(&odd, "PTTL watched")) > 1500);
    assert_int_equal(owner_release(held), RLOCK_OK);
    assert_int_equal(owner_wait(waiter, RLOCK_ACQUIRED, 12000), RLOCK_OK);
    assert_string_equal(str(ask(&odd, "TYPE held")), "string");
    kit_run(200); /* it is registered for push */
    tell(ask(&odd, "DEL watched"));
    assert_int_equal(owner_wait(watched, RLOCK_LOST, 500), RLOCK_ERR_LOST);
    assert_int_equal(watched->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    odd_server_ends();
    odd.port = 0;
    server_stop(&primary);
}

/* ---- the group ---- */

static int group_begins(void **state) {
    (void)state;
    if (server_start(&server, NULL) != 0 || kit_open() != 0) {
        return -1;
    }
    proxy_starts();
    return 0;
}

static int group_ends(void **state) {
    (void)state;
    if (proxy_pid > 0) { /* without a server there is none, and 0 is everybody around */
        kill(proxy_pid, SIGKILL);
        waitpid(proxy_pid, NULL, 0);
    }
    kit_close();
    kit_hand_drop();
    server_stop(&server);
    return 0;
}

static int test_begins(void **state) {
    (void)state;
    proxy->mode = PASS;
    proxy_cuts(); /* it may still be asleep over the last test's bytes */
    tell(ask(&server, "FLUSHALL"));
    user_may_do_everything();
    return 0;
}

/* Undoes whatever a failed test has left. */
static int test_ends(void **state) {
    (void)state;
    server_resume(&server);
    if (server.pid == 0 && server_restart(&server) != 0) {
        return -1;
    }
    if (busy_hand != NULL) {
        busy_ends();
    }
    if (access(server.socket, F_OK) != 0) {
        socket_returns();
    }
    memory_lasts = commands_last = 0;
    memory_stays_out = no_boottime = false;
    pages = PAGES;
    kit_reset();
    stage_ends();
    liars_end();
    proxy->mode = PASS;
    readonly_ends();
    no_replicas_ends();
    memory_is_back();
    connections_are_let_in();
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, test_begins, test_ends)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(fork_is_seen_whatever_the_kernel_can_do),
        TEST(missing_socket_is_no_connection),
        TEST(refused_port_is_no_connection),
        TEST(silent_listener_is_no_connection),
        TEST(wrong_password_is_told),
        TEST(missing_password_is_told),
        TEST(first_connect_is_retried_until_the_server_is_there),
        TEST(read_only_server),
        TEST(server_without_replicas),
        TEST(server_busy_with_a_script),
        TEST(server_out_of_memory),
        TEST(permission_taken_in_mid_run),
        TEST(password_changed_in_mid_run),
        TEST(server_stopped),
        TEST(server_unreachable),
        TEST(server_with_too_many_clients),
        TEST(full_server_is_told_with_its_words_every_time),
        TEST(another_type_at_the_key),
        TEST(server_killed_without_data_tells_the_holder),
        TEST(release_finds_its_server_again),
        TEST(server_stopped_for_3_s_ends_short_holds_and_spares_long_ones),
        TEST(all_connections_killed_in_every_state),
        TEST(paused_clients_are_waited_for),
        TEST(black_holed_holder_is_told_by_its_deadline),
        TEST(black_holed_renewal_and_release_are_unknown),
        TEST(replies_split_at_every_byte_are_understood),
        TEST(validity_counts_from_the_sending),
        TEST(reply_after_its_own_deadline_is_refused),
        TEST(unanswered_acquire_is_retried_and_granted_once),
        TEST(unanswered_try_is_unknown_and_cleaned_up),
        TEST(unanswered_release_is_sent_again),
        TEST(acquire_that_an_old_connection_still_carries_is_waited_for),
        TEST(lies_grant_nothing),
        TEST(lies_answer_no_question),
        TEST(reply_that_nobody_asked_for_ends_the_connection),
        TEST(message_of_an_unknown_shape_ends_the_connection),
        TEST(proxy_that_closes_at_a_step_of_the_greeting_is_no_connection),
        TEST(server_that_closes_at_once_is_not_stormed),
        TEST(refusal_inside_a_script_is_told_in_every_dialect),
        TEST(tracking_refused_for_a_moment_is_asked_for_again),
        TEST(password_alone_is_sent_alone),
        TEST(refused_greeting_is_done_without_or_ends_the_connection),
        TEST(lost_connection_is_killed_only_where_the_server_is_known_to_be_the_same),
        TEST(long_words_are_cut),
        TEST(server_that_left_is_quoted_though_a_write_found_out),
        TEST(wrong_reply_is_no_answer_and_ends_the_connection),
        TEST(fence_of_a_queued_kind_is_as_exact_and_may_have_its_mark),
        TEST(server_that_never_knows_a_script_is_not_asked_for_ever),
        TEST(renewals_of_a_batch_are_as_exact_as_alone),
        TEST(batch_that_the_server_never_knows_is_not_asked_for_ever),
        TEST(batch_without_an_answer_is_unknown_for_each),
        TEST(batch_has_room_for_what_is_alike),
        TEST(renewal_that_is_forgotten_leaves_its_batch_in_order),
        TEST(batch_outlives_its_handles_and_its_client),
        TEST(batch_for_which_there_is_no_memory_goes_alone_or_ends),
        TEST(batch_needs_no_memory_that_was_not_there_before),
        TEST(release_by_one_command_is_as_exact_as_by_script),
        TEST(release_by_one_command_is_given_up_for_good_by_a_refusal),
        TEST(release_by_one_command_is_known_of_a_connection_only),
        TEST(connect_that_hangs_ends_after_the_command_timeout),
        TEST(name_that_the_loop_refuses_to_resolve_is_no_connection),
        TEST(name_that_takes_long_is_told_and_waited_for),
        TEST(client_may_be_freed_by_a_callback_when_its_name_is_answered),
        TEST(address_of_version_6_needs_no_resolver),
        TEST(address_of_version_6_keeps_its_scope),
        TEST(path_that_is_too_long_for_a_socket_is_refused),
        TEST(descriptor_that_the_loop_does_not_watch_is_no_connection),
        TEST(answer_that_came_while_the_process_slept_is_taken),
        TEST(release_that_was_slept_over_ends_once),
        TEST(lease_asked_for_in_a_long_callback_counts_from_its_end),
        TEST(renewal_near_its_deadline_goes_before_an_acquire),
        TEST(tracking_is_asked_for_again_however_it_failed),
        TEST(client_may_be_freed_while_its_tracking_is_not_answered),
        TEST(process_that_slept_over_an_unanswered_tracking_recovers),
        TEST(tracking_answered_for_a_connection_that_went_is_none),
        TEST(server_that_hides_client_ids_is_polled_or_listened_to),
        TEST(messages_of_tracking_wake_only_whom_they_name),
        TEST(messages_of_channels_wake_only_whom_they_name),
        TEST(key_that_is_wanted_before_channels_work_is_listened_to_later),
        TEST(every_failing_allocation_is_survived_on_redis),
        TEST(every_command_that_hiredis_refuses_is_survived),
        TEST(client_without_random_bytes_is_refused),
        TEST(kernel_without_boottime_gets_the_monotonic_clock),
        TEST(message_that_is_no_call_calls_nobody),
        TEST(subscription_to_a_channel_that_is_not_ours_ends_the_connection),
        TEST(who_may_not_listen_to_its_own_channel_is_told_of_changes_and_polls_for_its_turn),
        TEST(who_may_not_listen_to_changes_polls_for_its_turn_and_is_called_neither),
        TEST(error_inside_a_script_is_what_it_says_inside),
        TEST(watching_connection_goes_where_the_other_went),
        TEST(message_of_a_short_channel_wakes),
        TEST(server_that_unsubscribes_us_is_polled),
        TEST(message_that_answers_no_subscription_ends_the_connection),
        TEST(head_of_a_huge_array_ends_the_connection),
        TEST(name_that_was_answered_late_and_led_nowhere_is_given_up),
        TEST(child_that_returns_to_hiredis_closes_nothing),
        TEST(child_that_returns_to_hiredis_writes_nothing),
        TEST(loading_server_is_waited_for),
        TEST(name_of_a_user_or_a_key_is_no_code),
        TEST(users_and_keys_with_the_names_of_codes_are_told_as_any_other),
        TEST(keys_of_two_slots_are_refused_and_leave_nothing),
        TEST(command_that_the_server_does_not_know_leaves_nothing),
        TEST(script_that_the_server_never_runs_leaves_no_place),
        TEST(words_that_are_not_known_may_stand_for_anything),
        TEST(error_inside_the_script_of_a_line_is_cleaned_up_behind),
        TEST(only_a_restart_makes_sure_that_nothing_comes_late),
        TEST(restart_of_another_server_makes_nothing_sure),
        TEST(address_that_moved_once_does_not_hinder_later_kills),
        TEST(unanswered_change_by_an_operator_is_killed_before_anything_else),
        TEST(watching_connection_at_another_server_is_not_used),
        TEST(server_that_may_not_write_is_left),
        TEST(server_that_refuses_for_now_is_kept),
        TEST(answers_behind_a_refusal_to_write_are_read),
        TEST(servers_that_never_write_are_not_stormed),
        TEST(node_that_serves_other_keys_is_seldom_left),
        TEST(primary_that_was_demoted_is_left_by_all),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("faults", tests, group_begins, group_ends);
}
