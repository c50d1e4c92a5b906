/* Every fault provoked for real: a server that refuses, stalls, dies or lies, and a network that
 * loses, cuts and delays.
 * The expectations are the cells of FAULT x OPERATION in rlock.h. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kit.h"

#include <poll.h>
#include <sys/mman.h>

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
    char bytes[4096]; /* held back */
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
    char both[130];

    snprintf(both, sizeof both, "%s %s", words->text[0], words->text[1]);
    return strncmp(both, command, strlen(command)) == 0;
}

/* What an honest server says, to a short key and for a short time. */
static const char *liar_is_honest(const struct words *words) {
    static char text[160];

    if (liar_hears(words, "CLIENT ID")) {
        return ":7\r\n";
    }
    if (liar_hears(words, "INFO")) {
        return "$47\r\nrun_id:0123456789012345678901234567890123456789\r\n";
    }
    if (liar_hears(words, "SET taken")) {
        return "$-1\r\n";
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
 * LOADING: the server reads a data set slowly
 */

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
    kill(proxy_pid, SIGKILL);
    waitpid(proxy_pid, NULL, 0);
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
    kit_reset();
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
        TEST(reply_that_nobody_asked_for_ends_the_connection),
        TEST(message_of_an_unknown_shape_ends_the_connection),
        TEST(server_that_closes_at_once_is_not_stormed),
        TEST(refusal_inside_a_script_is_told_in_every_dialect),
        TEST(tracking_refused_for_a_moment_is_asked_for_again),
        TEST(loading_server_is_waited_for),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("faults", tests, group_begins, group_ends);
}
