/* faults_process.h - what befalls the process itself: it sleeps, forks, lacks memory */
#ifndef TESTS_FAULTS_PROCESS_H
#define TESTS_FAULTS_PROCESS_H

/* --- a process that slept --- */

/* Its timers fire before it reads: an answer that came in time counts, and the connection stays. */
static void answer_that_came_while_the_process_slept_is_taken(void **state) {
    rlock_client *client;
    struct owner *o, *other;

    (void)state;
    stage_begins();
    client = stage_client(RLOCK_WIRE_STRING);
    o = owner_new(client, "k");
    other = owner_new(client, "other");
    assert_int_equal(stage_acquire(o, 0, 60000), RLOCK_OK);
    stage_runs(5000); /* the key is tracked by now */
    assert_int_equal(rlock_renew(o->lock, 0, owner_told, o), RLOCK_OK);
    stage_fires();
    assert_true(stage_serves());
    stage.now_us += 2 * TIMEOUT_MS * 1000;
    stage_fires();
    stage_runs(1);
    assert_int_equal(o->seen[RLOCK_RENEWED], 1);
    assert_int_equal(o->status[RLOCK_RENEWED], RLOCK_OK);

    stage_lies("SET other", "", true, true); /* the same again, with another request unanswered */
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
    assert_int_equal(kit_stats(client).connects, 2); /* one of them is the push connection */
}

/* The connection was due to be given up before the release ended. The release is reported all the
 * same, and the clean-up is over, because no lease of it can be left. */
static void release_that_was_slept_over_ends_once(void **state) {
    const rlock__redis *redis;
    struct owner *o;

    (void)state;
    stage_begins();
    o = stage_owner(RLOCK_WIRE_STRING, "k");
    assert_int_equal(stage_acquire(o, 0, 3000), RLOCK_OK);
    redis = redis_of(kit_clients[0]);
    stage_lies("EVALSHA", "-BUSY Redis is busy\r\n", true, true);
    stage_lies("EVALSHA", "", true, true);
    assert_int_equal(rlock_release(o->lock, owner_told, o), RLOCK_OK);
    while (!redis->commands.doubted) {
        stage_iterates(stage.now_us + 1000);
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

/* A request of a callback is sent after it: the lease does not run while the callback does. */
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

/* Requests that wait to be sent leave in the order of their importance. */
static void renewal_near_its_deadline_goes_before_an_acquire(void **state) {
    rlock_client *client;
    struct owner *o, *other;
    rlock_config config;
    char *at;

    (void)state;
    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    config.command_timeout_ms = 60000; /* so long the acquire may wait */
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

static bool forked;

/* The child only returns, and ends in its iteration. It ends before the parent goes on: it has sent
 * nothing, and left the socket as it is. */
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
        stage.door = -1; /* so that the iteration knows */
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

/* hiredis is at work, finds more errors, and closes. */
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
        stage_iterates(stage.now_us + 1000);
        if (stage.door < 0) {
            _exit(0);
        }
    }
}

/* The socket was full: hiredis still has the rest, and would write it now. */
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
    forked = true; /* not yet: the connections are logged first */
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
    forked = false;
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

/* Connects, waits, holds, renews, releases and closes, with every wire and with channels. Whichever
 * of our allocations fails, each call and callback says OK or NOMEM, and everything ends. */
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
    memset(secret, 's', sizeof secret - 1); /* even the handshake needs more room */
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
    if (wire == RLOCK_WIRE_STRING) { /* it has the queued kinds */
        rlock_options in_queue;

        memset(&in_queue, 0, sizeof in_queue);
        in_queue.key = "taken";
        in_queue.kind = RLOCK_KIND_FAIR;
        line = owner_with(client, &in_queue);
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
    no_getrandom = true;
    status = rlock_client_new(&client, &config);
    no_getrandom = false;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, RLOCK_ERR_NOMEM);
    assert_null(client);
    assert_non_null(strstr(kit_log_text, "cannot create a client: Too many open files\n"));
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    rlock_client_free(client);
}

static void client_needs_no_file_for_random_bytes(void **state) {
    struct rlimit limit, none;
    rlock_config config;
    rlock_client *client = NULL;
    int status;

    (void)state;
    stage_begins();
    config = stage_config(RLOCK_WIRE_STRING);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    status = rlock_client_new(&client, &config);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, RLOCK_OK);
    rlock_client_free(client);
    no_getrandom = true; /* an older kernel has the file */
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

/* A fork is refused however the kernel tells it. This test has to be the first of the program. */
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

#endif /* TESTS_FAULTS_PROCESS_H */
