/* faults_connecting.h - how a connection begins: handshakes, addresses, names */
#ifndef TESTS_FAULTS_CONNECTING_H
#define TESTS_FAULTS_CONNECTING_H

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

/* The server may refuse what a connection can do without. Another refusal ends the connection. */
static void refused_handshake_is_done_without_or_ends_the_connection(void **state) {
    static const struct {
        const char *command, *answer;
        int status;
    } rows[] = {
        {"CLIENT SETNAME", "-NOPERM no permissions\r\n", RLOCK_OK},
        {"CLIENT SETNAME", "-ERR unknown subcommand\r\n", RLOCK_OK},
        {"CLIENT SETNAME", "-ERR max number of clients reached\r\n", RLOCK_ERR_SERVER},
        {"CLIENT SETNAME", "-OOM command not allowed\r\n", RLOCK_ERR_SERVER},
        {"CLIENT SETNAME", "-unsupported command 'client'\r\n", RLOCK_OK},
        {"CLIENT SETNAME", "-NOAUTH Authentication required.\r\n", RLOCK_ERR_AUTH},
        {"CLIENT SETNAME", "-DENIED Redis is running in protected mode\r\n", RLOCK_ERR_AUTH},
        {"CLIENT ID", "-ERR unknown subcommand\r\n", RLOCK_OK},
        {"CLIENT ID", "-unsupported command 'client'\r\n", RLOCK_OK},
        {"CLIENT ID", "-\r\n", RLOCK_OK},
        {"INFO server", "-unsupported command 'info'\r\n", RLOCK_OK},
        {"INFO replication", "-unsupported command 'info'\r\n", RLOCK_OK},
        {"COMMAND", "-invalid request\r\n", RLOCK_OK},
        {"SELECT", "-unsupported command 'select'\r\n", RLOCK_ERR_SERVER},
        {"INFO server", "-NOPERM no permissions\r\n", RLOCK_OK},
        {"INFO replication", "-NOPERM no permissions\r\n", RLOCK_OK},
        {"INFO replication", "-LOADING the dataset\r\n", RLOCK_ERR_SERVER},
        {"INFO replication", "$5\r\nredis\r\n", RLOCK_OK},
        {"INFO replication", "$13\r\nrole:master\r\n\r\n", RLOCK_OK},
        {"INFO replication", "$12\r\nrole:slave\r\n\r\n", RLOCK_ERR_SERVER},
        {"INFO replication", ":1\r\n", RLOCK_ERR_CONN},
        {"INFO server", "-LOADING the dataset\r\n", RLOCK_ERR_SERVER},
        {"INFO server", "$5\r\nredis\r\n", RLOCK_OK},
        {"INFO server", "$12\r\nrun_id:01234\r\n", RLOCK_OK},
        {"INFO server", "+OK\r\n", RLOCK_ERR_CONN},
        {"COMMAND", "-NOPERM no permissions\r\n", RLOCK_OK},
        {"COMMAND", "*0\r\n", RLOCK_OK},
        {"COMMAND", "*1\r\n*0\r\n", RLOCK_OK},
        {"COMMAND", "+OK\r\n", RLOCK_ERR_CONN},
        {"SELECT", "-ERR DB index is out of range\r\n", RLOCK_ERR_SERVER},
    };
    size_t i, count = sizeof rows / sizeof rows[0];

    (void)state;
    for (i = 0; i < 2 * count; i++) {
        bool once = i >= count; /* to the command connection alone */
        const char *command = rows[i % count].command;
        rlock_config config;
        struct owner *o;
        int status;

        if (once && rows[i % count].status != RLOCK_OK) {
            continue;
        }
        stage_begins();
        stage_lies(command, rows[i % count].answer, true, once);
        config = stage_config(RLOCK_WIRE_STRING);
        config.client_name = "name";
        config.database = 3;
        o = owner_new(kit_client(&config), "k");
        status = stage_acquire(o, 0, 1000);
        if (status != rows[i % count].status || stage.told[0] == 0) {
            print_error("row %u: status %d\n", (unsigned)i, status);
        }
        assert_int_equal(status, rows[i % count].status);
        assert_true(stage.told[0] > 0);
        if (status == RLOCK_OK) {
            stage_runs(300);
            assert_int_equal(stage_is_pushing(), once || strcmp(command, "CLIENT ID") != 0);
        }
    }
}

static const char *envoy_refuses(const struct stage_conn *conn, const struct words *words) {
    static char text[128];
    static const char *const knows[] = {"SET", "GET", "DEL", "EVAL", "EVALSHA", "PEXPIRE"};
    size_t i;

    (void)conn;
    for (i = 0; i < sizeof knows / sizeof knows[0]; i++) {
        if (strcmp(words->text[0], knows[i]) == 0) {
            return NULL;
        }
    }
    snprintf(text, sizeof text, "-unsupported command '%s'\r\n", words->text[0]);
    return text;
}

/* As Envoy's of before 2025. What it lacks is asked for once on a connection. */
static void proxy_that_refuses_in_its_own_words_serves(void **state) {
    rlock_options options;
    rlock_config config;
    rlock_client *client;
    struct owner *o, *waiter, *fair;

    (void)state;
    stage_begins();
    stage.script = envoy_refuses;
    config = stage_config(RLOCK_WIRE_STRING);
    config.client_name = "name";
    client = kit_client(&config);
    o = owner_new(client, "k");
    waiter = owner_new(client, "taken");
    memset(&options, 0, sizeof options);
    options.key = "taken";
    options.kind = RLOCK_KIND_FAIR;
    fair = owner_with(client, &options);
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 1000, owner_told, waiter),
                     RLOCK_OK);
    assert_int_equal(rlock_acquire(fair->lock, RLOCK_FOREVER, 1000, owner_told, fair), RLOCK_OK);
    stage_runs(30000);
    assert_true(kit_stats(client).up);
    assert_true(rlock_is_held(o->lock));
    assert_true(kit_stats(client).connects <= 3);
    assert_int_equal(stage_count("SUBSCRIBE"), 1);
    assert_int_equal(stage_renew(o, 60000), RLOCK_OK);
    assert_int_equal(stage_release(o), RLOCK_OK);
}

/* A replica that writes grants what its primary has not. Where INFO is refused HELLO tells it. */
static void role_is_told_by_hello_where_info_is_refused(void **state) {
    static const struct {
        const char *hello;
        int status;
    } rows[] = {
        {"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$4\r\nrole\r\n$7\r\nreplica\r\n", RLOCK_ERR_SERVER},
        {"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$4\r\nrole\r\n$6\r\nmaster\r\n", RLOCK_OK},
        {"*4\r\n:1\r\n:2\r\n$4\r\nrole\r\n$5\r\nslave\r\n", RLOCK_ERR_SERVER},
        {"*3\r\n$6\r\nserver\r\n:1\r\n$4\r\nrole\r\n", RLOCK_OK},
        {"-ERR unknown command 'HELLO'\r\n", RLOCK_OK},
        {"-LOADING the dataset\r\n", RLOCK_ERR_SERVER},
        {"+OK\r\n", RLOCK_ERR_CONN}};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("INFO", "-NOPERM this user has no permissions\r\n", true, false);
        stage_lies("HELLO", rows[i].hello, true, false);
        o = stage_owner(RLOCK_WIRE_STRING, "k");
        assert_int_equal(stage_acquire(o, 0, 1000), rows[i].status);
        assert_int_equal(stage.told[1], 1);
        assert_int_equal(stage_heard("SET"), rows[i].status == RLOCK_OK);
        assert_true(i != 0 || strstr(o->text[RLOCK_ACQUIRED], "is a replica") != NULL);
    }
}

/* It costs one round trip, however much it asks. */
static void handshake_leaves_together(void **state) {
    struct owner *o;
    int turns = 0;

    (void)state;
    stage_begins();
    o = stage_owner(RLOCK_WIRE_STRING, "k");
    assert_int_equal(rlock_acquire(o->lock, 0, 1000, owner_told, o), RLOCK_OK);
    while (stage.trail[0] == 0) {
        stage_iterates(stage.now_us + 1000);
        assert_true(++turns < 1000);
    }
    assert_string_equal(stage.trail, "CLIENT ID\nINFO replication\nINFO server\nCOMMAND INFO\n");
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
}

/* A CLIENT ID has a meaning in one process of the server only. */
static void lost_connection_is_killed_only_where_the_server_is_known_to_be_the_same(void **state) {
    static const char *const infos[] = {
        "$47\r\nrun_id:0123456789012345678901234567890123456789\r\n", "$5\r\nredis\r\n",
        "$12\r\nrun_id:01234\r\n"};
    size_t i;

    (void)state;
    for (i = 0; i < 3; i++) {
        struct owner *o;

        stage_begins();
        stage_lies("INFO server", infos[i], true, false);
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
    stage_lies("INFO server", refusal, true, false);
    assert_int_equal(stage_acquire(stage_owner(RLOCK_WIRE_STRING, "k"), 0, 1000), RLOCK_ERR_SERVER);
    line = strstr(kit_log_text, ": OOM xxx");
    assert_non_null(line);
    assert_int_equal(strcspn(line, "\n"), 2 + 127);
    kit_reset();

    memset(host, 'h', sizeof host);
    host[sizeof host - 1] = '\0';
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = host;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_int_equal(strcspn(kit_log_text, "\n"), 255);
    kit_log_text[0] = '\0';
    stage_begins();
    rlock_client_log(stage_client(RLOCK_WIRE_STRING), RLOCK_LOG_INFO, host,
                     "no room is left for this");
    assert_int_equal(strcspn(kit_log_text, "\n"), 255);
}

/* The loop did not run yet: a write that fails finds it out first. */
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

/* --- connecting, names, the loop --- */

/* Makes a port whose queue is full: connects to it are neither accepted nor refused. */
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
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "cannot resolve"));
}

/* Without its @host a URL has the password there: redis://shop:54321. */
static void port_of_a_name_that_is_not_found_is_not_shown(void **state) {
    rlock_config config;
    struct owner *o;

    (void)state;
    stage_begins();
    stage.resolve_status = -1;
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.url = clustered() ? NULL : "redis://shop:54321";
    config.host = clustered() ? "shop" : NULL;
    config.port = clustered() ? 54321 : 0;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(stage_acquire(o, 0, 1000), RLOCK_ERR_CONN);
    assert_non_null(strstr(kit_log_text, "connection to shop: the loop cannot resolve"));
    assert_null(strstr(kit_log_text, "54321"));
}

/* One name is resolved at a time. The waiters are told that it takes long; a late answer is
 * used. */
static void name_that_takes_long_is_reported_and_waited_for(void **state) {
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

    memset(&other, 0, sizeof other); /* an address of an unknown family */
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
    rlock_on_resolved(name, (struct sockaddr *)&in6); /* an answer without a question */
    assert_int_equal(stage.watched[0].events, 0);     /* it causes no connect */
    assert_int_equal(kit_stats(client).faults, names);
    assert_int_equal(o->seen[RLOCK_ACQUIRED], 1); /* it waits on */
}

static void told_and_frees_the_client(rlock *lock, const rlock_event *event, void *user) {
    owner_told(lock, event, user);
    rlock_client_free(kit_clients[0]);
    kit_clients[0] = NULL;
}

/* Events that were due before the answer are reported first; their callbacks may do everything. */
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
    stage.now_us += 30000; /* the loop was busy: the timer is late */
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

/* The scope names the interface: without it another machine may answer, or none. */
static void address_of_version_6_keeps_its_scope(void **state) {
    rlock__address address;
    rlock_config config;
    struct owner *o;
    char text[RLOCK__ADDRESS_MAX];

    (void)state;
    memset(&address, 0, sizeof address);
    address.in6.sin6_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, "fe80::1:2", &address.in6.sin6_addr), 1);
    rlock__address_text(&address, text);
    assert_string_equal(text, "fe80::1:2");
    address.in6.sin6_scope_id = 4294967295u;
    rlock__address_text(&address, text);
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

/* A path that is cut short could be that of another server. */
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
    assert_int_equal(rlock_quorum_new(&store, &config, 1), RLOCK_OK);
    config.store = store;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    rlock_quorum_free(store);
    config.store = NULL;
    path[107] = '\0';
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
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], "cannot watch"));
    stage.watch_fails = false;
    assert_int_equal(stage_acquire(o, 5000, 1000), RLOCK_OK);
}

/* Makes a server on TCP, whose name can be resolved. Returns its port. */
static int stage_on_address(uint32_t address) {
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    int now = 1; /* an answer that the kernel keeps back comes late in the time of the stage */

    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(address);
    close(stage.door);
    stage.door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(stage.door, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now);
    assert_true(bind(stage.door, (struct sockaddr *)&a, len) == 0 && listen(stage.door, 16) == 0 &&
                getsockname(stage.door, (struct sockaddr *)&a, &len) == 0);
    return ntohs(a.sin_port);
}

static int stage_on_tcp(void) {
    return stage_on_address(INADDR_LOOPBACK);
}

static void name_is(uint32_t address) {
    struct sockaddr_in in;

    memset(&in, 0, sizeof in);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(address);
    name_answers((struct sockaddr *)&in);
}

/* Answers the question for this host, which may be an older one. */
static void host_is(const char *host, uint32_t address) {
    rlock_name *name = stage_takes_name(host);

    assert_non_null(name);
    stage.name = name;
    name_is(address);
}

/* A name may stand for many servers: the push connection does not resolve it again. */
static void push_connection_goes_where_the_other_went(void **state) {
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
    stage_hangs_up(&stage.conns[1]); /* the push connection alone: to the same server again */
    stage_runs(3 * TIMEOUT_MS);
    assert_int_equal(stage.names, 1);
    assert_true(stage_is_pushing());
    stage_hangs_up(&stage.conns[0]); /* both were lost: the name is resolved once for the two */
    stage_runs(3000);
    assert_int_equal(stage.names, 2);
    name_is(INADDR_LOOPBACK);
    for (turns = 0; turns < 100 && !kit_stats(client).pushing; turns++) {
        stage_runs(10);
    }
    assert_true(kit_stats(client).up && kit_stats(client).pushing);
    assert_int_equal(stage.names, 2);
}

/* A connect after a late answer hangs: it is given up like any other. */
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
    assert_non_null(strstr(kit_log_text, ": no answer while connecting"));
    kit_reset(); /* the sanitizer counts the contexts */
    close(filler[0]);
    close(filler[1]);
    close(door);
}

/* --- several addresses of one name --- */

#define WALK_TIMEOUT_MS 1500

/* Addresses of this machine: the stage listens on the first; nobody does on the others. */
#define GOOD INADDR_LOOPBACK
#define SHUT (INADDR_LOOPBACK + 1)
#define DEAF (INADDR_LOOPBACK + 2)

static void names_are(const uint32_t *addresses, unsigned count) {
    struct sockaddr_in in[12];
    const struct sockaddr *list[12];
    rlock_name *name = stage.name;
    unsigned i;

    assert_non_null(name);
    assert_true(count <= 12);
    memset(in, 0, sizeof in);
    for (i = 0; i < count; i++) {
        in[i].sin_family = AF_INET;
        in[i].sin_addr.s_addr = htonl(addresses[i]);
        list[i] = (struct sockaddr *)&in[i];
    }
    stage.name = NULL;
    rlock_on_resolved_all(name, list, count);
}

/* Makes DEAF neither accept nor refuse at this port. */
static void deaf_begins(int port, int *fds) {
    struct sockaddr_in a;
    int i;

    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_port = htons((uint16_t)port);
    a.sin_addr.s_addr = htonl(DEAF);
    for (i = 0; i < 3; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        assert_true(fds[i] >= 0);
    }
    assert_int_equal(bind(fds[0], (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fds[0], 0), 0);
    connect(fds[1], (struct sockaddr *)&a, sizeof a);
    connect(fds[2], (struct sockaddr *)&a, sizeof a);
}

static void deaf_ends(const int *fds) {
    int i;

    kit_reset(); /* the sanitizer counts the contexts */
    for (i = 0; i < 3; i++) {
        close(fds[i]);
    }
}

/* Begins an acquire that waits, of a client whose name is asked for already. */
static struct owner *walker(int port) {
    rlock_config config = stage_config(RLOCK_WIRE_STRING);
    struct owner *o;

    config.unix_path = NULL;
    config.host = "lock.example";
    config.port = port;
    config.command_timeout_ms = WALK_TIMEOUT_MS;
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    assert_non_null(stage.name);
    return o;
}

/* Runs until the name is asked for again; returns how long that took. */
static int64_t until_asked_again_ms(void) {
    int64_t begun_us = stage.now_us;
    int turns = 0;

    while (stage.name == NULL) {
        stage_iterates(stage.now_us + 1000);
        assert_true(++turns < 100000);
    }
    return (stage.now_us - begun_us) / 1000;
}

/* A connection that begins is watched for when it may be written to. */
static void until_dialled(void) {
    int turns = 0;
    bool dialled = false;
    size_t i;

    while (!dialled) {
        assert_true(++turns < 100000);
        stage_iterates(stage.now_us + 1000);
        for (i = 0; i < STAGE_FDS; i++) {
            dialled = dialled || (stage.watched[i].events & RLOCK_IO_WRITE);
        }
    }
}

static void address_that_refuses_is_followed_by_the_next_at_once(void **state) {
    static const uint32_t list[] = {SHUT, SHUT, SHUT, GOOD};
    rlock_client *client;
    struct owner *o;
    int64_t begun_us;

    (void)state;
    stage_begins();
    o = walker(stage_on_tcp());
    client = kit_clients[0];
    begun_us = stage.now_us;
    names_are(list, 4);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    assert_int_equal(stage.now_us, begun_us);
    assert_int_equal(stage.names, 1);
    assert_int_equal(kit_stats(client).connects, 1);
    assert_int_equal(kit_stats(client).faults, 0);
    assert_null(strstr(kit_log_text, "refused"));
}

/* A name that stands for eight addresses or more is walked along eight of them. */
static void addresses_that_all_refuse_are_one_failure(void **state) {
    static const uint32_t list[] = {SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, GOOD};
    rlock_client *client;
    int i;

    (void)state;
    stage_begins();
    walker(stage_on_tcp());
    client = kit_clients[0];
    for (i = 1; i <= 3; i++) {
        names_are(list, 9);
        until_asked_again_ms();
        assert_int_equal(stage.names, i + 1);
        assert_int_equal(kit_stats(client).faults, i);
        assert_int_equal(kit_stats(client).connects, 0);
    }
    assert_non_null(strstr(kit_log_text, "lock.example:"));
    assert_non_null(strstr(kit_log_text, ": failure 2: Connection refused"));
}

/* The reasons of the addresses differ; that of the last one is told, and counts as the same. */
static void address_that_is_silent_is_followed_by_the_next_after_a_moment(void **state) {
    static const uint32_t list[] = {DEAF, GOOD};
    int port, fds[3];
    rlock_client *client;
    struct owner *o;
    int64_t begun_us;

    (void)state;
    stage_begins();
    port = stage_on_tcp();
    deaf_begins(port, fds);
    o = walker(port);
    client = kit_clients[0];
    begun_us = stage.now_us;
    names_are(list, 2);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    assert_int_equal(stage.now_us - begun_us, RLOCK__PATIENCE_MS * 1000);
    assert_int_equal(kit_stats(client).faults, 0);
    rlock_release(o->lock, owner_told, o);
    stage_hangs_up(stage_conn(false)); /* a new attempt: the patience is the same again */
    until_asked_again_ms();
    begun_us = stage.now_us;
    names_are(list, 2);
    stage_runs(RLOCK__PATIENCE_MS - 1);
    assert_false(kit_stats(client).up);
    stage_runs(2);
    assert_true(kit_stats(client).up);
    deaf_ends(fds);
}

/* One that is slow and good must not be given up for ever; the last one has the whole time. */
static void patience_with_a_silent_address_grows_up_to_the_command_timeout(void **state) {
    static const uint32_t first[] = {DEAF, SHUT}, last[] = {SHUT, DEAF};
    static const int64_t took_ms[] = {250, 500, 1000, WALK_TIMEOUT_MS, WALK_TIMEOUT_MS};
    int port, fds[3];
    size_t i;

    (void)state;
    stage_begins();
    port = stage_on_tcp();
    deaf_begins(port, fds);
    walker(port);
    for (i = 0; i < 5; i++) {
        int64_t ms;

        names_are(first, 2);
        ms = until_asked_again_ms();
        assert_true(ms >= took_ms[i] && ms <= took_ms[i] + 1000); /* and the back-off */
    }
    kit_reset();
    stage_begins();
    port = stage_on_tcp();
    deaf_ends(fds);
    deaf_begins(port, fds);
    walker(port);
    names_are(last, 2);
    assert_true(until_asked_again_ms() >= WALK_TIMEOUT_MS);
    deaf_ends(fds);
}

/* Who does not wait is told when one command timeout has passed, though the walk goes on. */
static void walk_that_takes_long_is_reported_on_its_way(void **state) {
    static const uint32_t list[] = {DEAF, DEAF, DEAF, DEAF, DEAF, DEAF, DEAF, GOOD};
    int port, fds[3];
    struct owner *o, *tried;
    int64_t begun_us;

    (void)state;
    stage_begins();
    port = stage_on_tcp();
    deaf_begins(port, fds);
    o = walker(port);
    tried = owner_new(kit_clients[0], "tried");
    assert_int_equal(rlock_acquire(tried->lock, 0, 1000, owner_told, tried), RLOCK_OK);
    begun_us = stage.now_us;
    names_are(list, 8);
    assert_int_equal(stage_wait(tried, RLOCK_ACQUIRED, 9000), RLOCK_ERR_CONN);
    assert_int_equal(stage.now_us - begun_us, WALK_TIMEOUT_MS * 1000);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 9000), RLOCK_OK);
    assert_int_equal(stage.names, 1);
    deaf_ends(fds);
}

/* Another address has the same users. */
static void refused_password_is_reported_without_trying_other_addresses(void **state) {
    static const uint32_t list[] = {GOOD, SHUT};
    rlock_config config;
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("AUTH", "-WRONGPASS invalid username-password pair\r\n", true, false);
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.host = "lock.example";
    config.port = stage_on_tcp();
    config.password = "wrong";
    o = owner_new(kit_client(&config), "k");
    assert_int_equal(rlock_acquire(o->lock, 0, 1000, owner_told, o), RLOCK_OK);
    stage_runs(0);
    names_are(list, 2);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_ERR_AUTH);
    assert_non_null(strstr(kit_log_text, "WRONGPASS"));
}

/* A server that ends the handshake, as one that is being started, is passed over too. */
static void server_that_is_not_ready_is_followed_by_the_next(void **state) {
    static const uint32_t list[] = {GOOD, GOOD};
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("INFO server", "-LOADING Redis is loading the dataset in memory\r\n", true, true);
    o = walker(stage_on_tcp());
    names_are(list, 2);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    assert_int_equal(kit_stats(kit_clients[0]).connects, 2);
    assert_int_equal(kit_stats(kit_clients[0]).faults, 0);
}

/* A name may stand for a primary and its replicas. */
static void replica_is_followed_by_the_next(void **state) {
    static const uint32_t list[] = {GOOD, GOOD, SHUT};
    struct owner *o;

    (void)state;
    stage_begins();
    stage_lies("INFO replication", "$12\r\nrole:slave\r\n\r\n", true, true);
    o = walker(stage_on_tcp());
    names_are(list, 3);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    assert_int_equal(kit_stats(kit_clients[0]).connects, 2);
    assert_int_equal(stage_count("SET"), 1);
}

/* Where a name server is away the lock must not be. A late answer harms nothing. */
static void last_good_address_serves_while_the_resolver_fails(void **state) {
    static const uint32_t list[] = {SHUT, GOOD}, wrong[] = {SHUT};
    rlock_client *client;
    rlock_name *late;
    struct owner *o, *waiter;
    int names;

    (void)state;
    stage_begins();
    o = walker(stage_on_tcp());
    client = kit_clients[0];
    names_are(list, 2);
    assert_int_equal(stage_wait(o, RLOCK_ACQUIRED, 1000), RLOCK_OK);
    stage_runs(2000);
    waiter = owner_new(client, "taken");
    assert_int_equal(rlock_acquire(waiter->lock, RLOCK_FOREVER, 1000, owner_told, waiter),
                     RLOCK_OK);
    stage_runs(1000);
    assert_true(kit_stats(client).pushing); /* this connection goes to the second address too */

    stage_hangs_up(stage_conn(false)); /* no address is found */
    until_asked_again_ms();
    names_are(list, 0);
    stage_runs(1000);
    assert_true(kit_stats(client).up);

    stage.resolve_status = -1; /* the resolver refuses */
    names = stage.names;
    stage_hangs_up(stage_conn(false));
    stage_runs(1000);
    assert_true(stage.names > names);
    assert_true(kit_stats(client).up);

    stage.resolve_status = 0; /* the resolver is silent for ever */
    stage_hangs_up(stage_conn(false));
    until_asked_again_ms();
    late = stage.name;
    stage_runs(WALK_TIMEOUT_MS - 1);
    assert_false(kit_stats(client).up);
    stage_runs(2);
    assert_true(kit_stats(client).up);
    stage_runs(1000);
    names = stage.names;
    stage_hangs_up(stage_conn(false)); /* the question is still out: it is not asked twice */
    stage_runs(WALK_TIMEOUT_MS + 1000);
    assert_true(kit_stats(client).up);
    assert_int_equal(stage.names, names);
    assert_ptr_equal(stage.name, late);
    names_are(wrong, 1);
    stage_runs(1000);
    assert_true(kit_stats(client).up && kit_stats(client).pushing);
    stage_hangs_up(stage_conn(false)); /* the answer comes while that address is dialled */
    until_asked_again_ms();
    names = stage.names;
    until_dialled();
    names_are(wrong, 1);
    stage_runs(1000);
    assert_true(kit_stats(client).up);
    assert_int_equal(stage.names, names);
    assert_true(rlock_is_held(o->lock));
    stage_hangs_up(stage_conn(false)); /* from now on it is asked again */
    until_asked_again_ms();
    names_are(list, 2);
    stage_runs(1000);
    assert_true(kit_stats(client).up);
}

/* No address of version 6 is as long. */
static void host_that_is_longer_than_an_address_is_a_name(void **state) {
    rlock_config config;
    rlock_client *client = NULL;
    char host[61];

    (void)state;
    stage_begins();
    memset(host, 'a', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    config = stage_config(RLOCK_WIRE_STRING);
    config.unix_path = NULL;
    config.host = host;
    config.loop.resolve = NULL;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_ERR_ARG);
    assert_non_null(strstr(kit_log_text, "a host name needs loop.resolve"));
}

/* It stands for ::1 too where this machine has that. */
static void localhost_is_reached_whatever_version_6_is_here(void **state) {
    enum sixes way;

    (void)state;
    for (way = NO_SIX; way <= SIX; way++) {
        rlock_config config;
        struct owner *o;

        stage_begins();
        sixes = way;
        config = stage_config(RLOCK_WIRE_STRING);
        config.unix_path = NULL;
        config.host = "localhost";
        config.port = stage_on_tcp();
        o = owner_new(kit_client(&config), "k");
        assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
        assert_int_equal(redis_of(kit_clients[0])->endpoint.count, way == SIX ? 2 : 1);
        assert_int_equal(stage.names, 0);
    }
}

/* Wherever memory fails once, the attempt is refused or made again. */
static void name_is_asked_for_again_after_a_lack_of_memory(void **state) {
    unsigned n = 0;
    bool ended;

    (void)state;
    do {
        struct owner *o;
        int port, i;

        stage_begins();
        port = stage_on_tcp();
        o = owner_new(named_client(port), "k");
        memory_lasts = ++n;
        rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o);
        stage_runs(10);
        ended = memory_lasts > 0;
        memory_lasts = 0;
        for (i = 0; i < 20 && !rlock_is_held(o->lock); i++) { /* refused, it may ask again */
            rlock_acquire(o->lock, RLOCK_FOREVER, 60000, owner_told, o);
            stage_runs(100);
            if (stage.name != NULL) {
                name_is(INADDR_LOOPBACK);
            }
        }
        assert_true(rlock_is_held(o->lock));
    } while (!ended);
    assert_true(n > 3);
}

#endif /* TESTS_FAULTS_CONNECTING_H */
