/* faults_server.h - a real server that refuses, stalls, loses its connections, dies */
#ifndef TESTS_FAULTS_SERVER_H
#define TESTS_FAULTS_SERVER_H

/* ------------------------------------------------------------------------------------------------
 * Faults that begin and end while the client lives: each is put to every operation
 */

struct fault {
    void (*begin)(void);
    void (*end)(void);
    const char *word;   /* in the server's text of a refused acquire, NULL = none */
    int try_status;     /* acquire with wait = 0; also the end of a wait that is too short */
    int renew_status;   /* by hand */
    int release_status; /* the end of a release when the fault outlasts the hold's deadline */
    bool for_ever;      /* a waiter with RLOCK_FOREVER goes on waiting */
    bool or_down;       /* a retry may find no connection at all */
};

static redisContext *busy_hand;

static void readonly_begins(void) {
    tell(ask(&server, "REPLICAOF 127.0.0.1 1"));
}

static void readonly_ends(void) {
    if (!clustered()) {
        tell(ask(&server, "REPLICAOF NO ONE"));
    }
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

/* Another client's script does not end: after lua-time-limit the server answers BUSY. */
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

/* Lets the clients see that their connections are gone: later requests are never sent. */
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

/* When its wait ends an attempt may be in flight: that one is not answered. */
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

/* Starts every operation at once, so that all meet the fault at the same moment. */
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

/* The fault comes and goes: a single try is told of it, an operation that may wait goes on. */
static void comes_and_goes(const struct fault *f) {
    struct party p[2];
    int64_t start;
    int i;

    for (i = 0; i < 2; i++) {
        p[i] = party_of(wires[i]);
    }
    kit_run(20); /* else a renewal extends nothing, and rightly succeeds */
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
 * behind. The watched hold is granted last, so that no renewal of it is on the way. */
static void stays(const struct fault *f) {
    rlock_client *client = client_at(server.socket, RLOCK_WIRE_STRING);
    rlock_options options;
    struct owner *watched, *released = owner_new(client, "released");
    int64_t watched_until_us, released_until_us;

    memset(&options, 0, sizeof options);
    options.key = "watched";
    options.watchdog = RLOCK_WATCHDOG_ON;
    watched = owner_with(client, &options);
    assert_int_equal(owner_acquire(released, 0, 900), RLOCK_OK);
    released_until_us = owner_deadline_us(released);
    assert_int_equal(owner_acquire(watched, 0, 900), RLOCK_OK);
    watched_until_us = owner_deadline_us(watched);
    assert_in_range(released->remaining_ms[RLOCK_ACQUIRED], 1, 900);
    assert_in_range(watched->remaining_ms[RLOCK_ACQUIRED], 1, 900);
    f->begin();
    assert_int_equal(rlock_release(released->lock, owner_told, released), RLOCK_OK);
    if (f->renew_status != RLOCK_OK) {
        assert_int_equal(owner_wait(watched, RLOCK_LOST, 3000), RLOCK_ERR_LOST);
        assert_int_equal(watched->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
        assert_in_range(watched->at_us[RLOCK_LOST], watched_until_us - 1000,
                        watched_until_us + KIT_LATE_US);
    }
    assert_true(ended_with(f, owner_wait(released, RLOCK_RELEASED, 3000), f->release_status));
    assert_true(released->at_us[RLOCK_RELEASED] <= released_until_us + KIT_LATE_US);
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

REFUSED_FOR_NOW(read_only_server_refuses_for_now, readonly_begins, readonly_ends, "READONLY")
REFUSED_FOR_NOW(server_without_replicas_refuses_for_now, no_replicas_begins, no_replicas_ends,
                "NOREPLICAS")
REFUSED_FOR_NOW(server_busy_with_a_script_refuses_for_now, busy_begins, busy_ends, "BUSY")

/* A server without memory still extends and deletes keys. */
static void server_out_of_memory_refuses_acquires_alone(void **state) {
    static const struct fault f = {memory_runs_out, memory_is_back, "OOM", RLOCK_ERR_SERVER,
                                   RLOCK_OK,        RLOCK_OK,       true,  false};

    (void)state;
    put_to_every_operation(&f);
}

static void permission_taken_in_mid_run_is_reported(void **state) {
    static const struct fault f = {
        permission_is_taken, user_may_do_everything, "NOPERM", RLOCK_ERR_AUTH,
        RLOCK_ERR_AUTH,      RLOCK_ERR_AUTH,         false,    false};

    (void)state;
    put_to_every_operation(&f);
}

static void password_changed_in_mid_run_is_reported(void **state) {
    static const struct fault f = {
        password_is_changed, user_may_do_everything, "WRONGPASS", RLOCK_ERR_AUTH,
        RLOCK_ERR_AUTH,      RLOCK_ERR_AUTH,         false,       false};

    (void)state;
    put_to_every_operation(&f);
}

static void stopped_server_makes_each_operation_unknown(void **state) {
    static const struct fault f = {server_freezes,    server_thaws,      NULL, RLOCK_ERR_UNKNOWN,
                                   RLOCK_ERR_UNKNOWN, RLOCK_ERR_UNKNOWN, true, true};

    (void)state;
    put_to_every_operation(&f);
}

static void unreachable_server_is_no_connection(void **state) {
    static const struct fault f = {socket_vanishes, socket_returns, NULL, RLOCK_ERR_CONN,
                                   RLOCK_ERR_CONN,  RLOCK_ERR_CONN, true, false};

    (void)state;
    put_to_every_operation(&f);
}

static void server_with_too_many_clients_refuses_for_now(void **state) {
    static const struct fault f = {
        connections_are_refused, connections_are_let_in, "max number", RLOCK_ERR_SERVER,
        RLOCK_ERR_SERVER,        RLOCK_ERR_SERVER,       true,         false};

    (void)state;
    put_to_every_operation(&f);
}

/* It must not matter whether the client sees the refusal or the end of the connection first. */
static void full_server_is_reported_with_its_words_every_time(void **state) {
    int i;

    (void)state;
    connections_are_refused();
    for (i = 0; i < 20; i++) {
        rlock_client *client = client_with(server.socket, wires[i % 2], PATIENCE_MS);
        struct owner *o = owner_new(client, "k");

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

static void wrong_password_is_reported(void **state) {
    rlock_config config = kit_config(&server);

    (void)state;
    config.username = "locker";
    config.password = "wrong";
    never_connected(&config, RLOCK_ERR_AUTH);
}

static void missing_password_is_reported(void **state) {
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
 * A value of another type at the key
 */

/* Keys of one slot, that of "a". */
#define B "bgqh"
#define C "cd62"
#define LIST "listpb"

static void key_of_another_type_is_refused_or_lost_and_left_alone(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_with(server.socket, wire, PATIENCE_MS);
    struct owner *tried = owner_new(client, LIST), *waited = owner_new(client, LIST);
    struct owner *renewed = owner_new(client, "a"), *watched = owner_new(client, B);
    struct owner *released = owner_new(client, C);

    tell(ask(&server, "RPUSH " LIST " x"));
    assert_int_equal(owner_acquire(tried, 0, 1000), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(rlock_acquire(waited->lock, RLOCK_FOREVER, 1000, owner_told, waited),
                     RLOCK_OK);
    assert_int_equal(owner_wait(waited, RLOCK_ACQUIRED, 2000), RLOCK_ERR_WRONG_TYPE);
    assert_int_equal(owner_acquire(renewed, 0, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(watched, 0, 0), RLOCK_OK);
    assert_int_equal(owner_acquire(released, 0, 60000), RLOCK_OK);
    tell(ask(&server, "DEL a " B " " C));
    tell(ask(&server, "RPUSH a x"));
    tell(ask(&server, "RPUSH " B " x"));
    tell(ask(&server, "RPUSH " C " x"));
    assert_int_equal(owner_release(released), RLOCK_ERR_NOT_HELD);
    assert_int_equal(owner_renew(renewed, 0), RLOCK_ERR_LOST);
    assert_int_equal(owner_wait(renewed, RLOCK_LOST, 1000), RLOCK_ERR_LOST);
    assert_int_equal(renewed->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    assert_int_equal(owner_wait(watched, RLOCK_LOST, WATCHDOG_MS), RLOCK_ERR_LOST);
    assert_int_equal(watched->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    assert_int_equal(num(ask(&server, "EXISTS a " LIST " " B " " C)), 4);
}

/* ------------------------------------------------------------------------------------------------
 * The server dies, stalls, or loses its connections
 */

static void server_killed_without_data_notifies_the_holder(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_config config = kit_config(&server);
    rlock_client *client;
    struct owner *held, *next;

    config.wire = wire;
    config.command_timeout_ms = TIMEOUT_MS;
    client = kit_client(&config);
    held = owner_new(client, "k");
    next = owner_new(client, "k");
    assert_int_equal(owner_acquire(held, 0, 60000), RLOCK_OK);
    assert_int_equal(rlock_acquire(next->lock, RLOCK_FOREVER, 5000, owner_told, next), RLOCK_OK);
    kit_run(100);
    server_kill9(&server);
    kit_run(300);
    assert_true(rlock_is_held(held->lock)); /* nothing is known yet: the lease still runs */
    assert_int_equal(server_restart(&server), 0);
    assert_int_equal(owner_wait(held, RLOCK_LOST, 5000), RLOCK_ERR_LOST);
    assert_true(held->reason[RLOCK_LOST] == RLOCK_REASON_DELETED ||
                held->reason[RLOCK_LOST] == RLOCK_REASON_STOLEN);
    assert_int_equal(owner_wait(next, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(held->at_us[RLOCK_LOST] <= next->at_us[RLOCK_ACQUIRED]);
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
    int64_t until_us;

    (void)state;
    assert_int_equal(owner_acquire(lasting, 0, 20000), RLOCK_OK);
    assert_int_equal(owner_acquire(brief, 0, 1000), RLOCK_OK);
    until_us = owner_deadline_us(brief);
    assert_in_range(brief->remaining_ms[RLOCK_ACQUIRED], 1, 1000);
    assert_int_equal(rlock_acquire(waiting->lock, RLOCK_FOREVER, 5000, owner_told, waiting),
                     RLOCK_OK);
    kit_run(100);
    server_pause(&server);
    kit_run(3000);
    assert_int_equal(brief->seen[RLOCK_LOST], 1);
    assert_int_equal(brief->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_in_range(brief->at_us[RLOCK_LOST], until_us - 1000, until_us + KIT_LATE_US);
    assert_int_equal(waiting->seen[RLOCK_ACQUIRED], 0);
    server_resume(&server);
    assert_int_equal(owner_wait(waiting, RLOCK_ACQUIRED, 5000), RLOCK_OK);
    assert_true(rlock_is_held(lasting->lock));
    assert_int_equal(lasting->seen[RLOCK_LOST], 0);
    assert_int_equal(owner_renew(lasting, 0), RLOCK_OK);
}

static void connections_may_be_killed_in_every_state(void **state) {
    rlock_wire wire = wire_of(state);
    rlock_client *client = client_at(server.socket, wire);
    struct owner *idle = owner_new(client, "idle"), *held = owner_new(client, "held");
    struct owner *watched = owner_new(client, "watched"), *waiting = owner_new(client, "k");
    int round;

    assert_int_equal(owner_acquire(held, 0, 60000), RLOCK_OK);
    assert_int_equal(owner_acquire(watched, 0, 0), RLOCK_OK);
    tell(ask(&server, wire == RLOCK_WIRE_STRING ? "SET k x PX 60000" : "HSET k x 1"));
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
 * LOADING: the server reads its data set slowly
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

#endif /* TESTS_FAULTS_SERVER_H */
