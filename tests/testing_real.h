/* testing_real.h - the same faults, put to real servers and to those of rlock_testing.h: whatever a
 * program is told must be the same */
#ifndef TESTS_TESTING_REAL_H
#define TESTS_TESTING_REAL_H

#include <hiredis/hiredis.h>

#define ALIKE_TIMEOUT_MS 200

enum { ALIKE_TRIED, ALIKE_WAITED, ALIKE_RENEWED, ALIKE_WATCHED, ALIKE_RELEASED, ALIKE_HANDLES };
static const char *const alike_names[] = {"tried", "waited", "renewed", "watched", "released"};

struct alike_fault {
    const char *name, *begin; /* begin: what the administrator of a real server says */
    rlock_testing_condition condition;
    bool stops, hides; /* a real server is stopped, or its socket is */
};

static const struct alike_fault alike_faults[] = {
    {"down", "CLIENT KILL USER locker", RLOCK_TESTING_DOWN, false, true},
    {"silent", NULL, RLOCK_TESTING_SILENT, true, false},
    {"denied", "ACL SETUSER locker resetpass >other", RLOCK_TESTING_DENIED, false, false},
    {"full", "CONFIG SET maxmemory 1", RLOCK_TESTING_FULL, false, false},
};
#define ALIKE_FAULTS (sizeof alike_faults / sizeof *alike_faults)
#define ALIKE_WORLDS (2 * (ALIKE_FAULTS + 1)) /* and one where a thief is about */

struct alike { /* one fault, in one of the two */
    const struct alike_fault *fault;
    struct server server; /* a real one ... */
    redisContext *hand;   /* ... and its administrator */
    rlock_testing *t;     /* or NULL */
    rlock_client *client;
    struct owner owners[ALIKE_HANDLES];
};

static struct alike alikes[ALIKE_WORLDS];
static rlock_poll *alike_loop;

static void alike_says(const struct alike *a, const char *command) {
    redisReply *reply = (redisReply *)redisCommand(a->hand, command);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", command, reply->str);
    }
    freeReplyObject(reply);
}

static int64_t alike_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Time passes in all worlds. */
static void alike_runs(int64_t ms) {
    int64_t until_ms = alike_now_ms() + ms;
    size_t i;
    while (alike_now_ms() < until_ms) {
        rlock_poll_once(alike_loop, 5);
    }
    for (i = 0; i < ALIKE_WORLDS; i++) {
        if (alikes[i].t != NULL) {
            rlock_testing_pass(alikes[i].t, ms);
        }
    }
}

static void alike_makes(struct alike *a, const struct alike_fault *fault, bool real) {
    rlock_options options;
    rlock_config config;
    int i;
    a->fault = fault;
    memset(&config, 0, sizeof config);
    config.command_timeout_ms = ALIKE_TIMEOUT_MS;
    config.log = on_log;
    if (real) {
        assert_int_equal(server_start(&a->server, NULL), 0);
        a->hand = redisConnectUnix(a->server.socket);
        assert_true(a->hand != NULL && a->hand->err == 0);
        alike_says(a, "ACL SETUSER locker reset on >secret ~* &* +@all");
        config.loop = rlock_poll_loop(alike_loop);
        config.unix_path = a->server.socket;
        config.username = "locker";
        config.password = "secret";
    } else {
        a->t = rlock_testing_new(NULL);
        config.loop = rlock_testing_loop(a->t);
        config.store = rlock_testing_store(a->t);
    }
    assert_int_equal(rlock_client_new(&a->client, &config), RLOCK_OK);
    for (i = 0; i < ALIKE_HANDLES; i++) {
        struct owner *o = &a->owners[i];
        memset(&options, 0, sizeof options);
        options.key = alike_names[i];
        options.watchdog = i == ALIKE_WATCHED ? RLOCK_WATCHDOG_ON : RLOCK_WATCHDOG_AUTO;
        options.on_lost = on_event;
        options.user = o;
        assert_int_equal(rlock_new(&o->lock, a->client, &options), RLOCK_OK);
    }
}

static void alike_holds(struct alike *a) {
    int i;
    for (i = a->fault != NULL ? ALIKE_RENEWED : 0; i < ALIKE_HANDLES; i++) {
        acquire(&a->owners[i], 5000, a->fault == NULL || i == ALIKE_RENEWED ? 60000 : 1000);
    }
}

/* A server is stopped only right before it is asked: nothing else may be under way by then. */
static void alike_begins(struct alike *a, bool stops) {
    char away[128];
    if (a->fault == NULL || a->fault->stops != stops) {
        return;
    }
    if (a->t != NULL) {
        rlock_testing_server(a->t, a->fault->condition);
        return;
    }
    if (a->fault->hides) {
        snprintf(away, sizeof away, "%s.away", a->server.socket);
        alike_says(a, a->fault->begin);
        assert_int_equal(rename(a->server.socket, away), 0);
    } else if (a->fault->stops) {
        server_pause(&a->server);
    } else {
        alike_says(a, a->fault->begin);
        if (a->fault->condition == RLOCK_TESTING_DENIED) {
            alike_says(a, "CLIENT KILL USER locker");
        }
    }
}

/* Every operation is put to the fault; where there is none, to a thief. */
static void alike_asks(struct alike *a) {
    struct owner *o = a->owners;
    if (a->fault != NULL) {
        acquire(&o[ALIKE_TRIED], 0, 1000);
        acquire(&o[ALIKE_WAITED], 600, 1000);
        assert_int_equal(rlock_renew(o[ALIKE_RENEWED].lock, 0, on_event, &o[ALIKE_RENEWED]), 0);
        assert_int_equal(rlock_release(o[ALIKE_RELEASED].lock, on_event, &o[ALIKE_RELEASED]), 0);
    } else if (a->t != NULL) {
        assert_int_equal(rlock_testing_steal(a->t, "tried"), RLOCK_OK);
        assert_int_equal(rlock_testing_delete(a->t, "waited"), RLOCK_OK);
        assert_int_equal(rlock_testing_steal(a->t, "renewed"), RLOCK_OK);
        assert_int_equal(rlock_testing_delete(a->t, "released"), RLOCK_OK);
    } else {
        alike_says(a, "SET tried other PX 30000");
        alike_says(a, "DEL waited");
        alike_says(a, "SET renewed other PX 30000");
        alike_says(a, "DEL released");
    }
    if (a->fault == NULL) {
        assert_int_equal(rlock_renew(o[ALIKE_RENEWED].lock, 0, on_event, &o[ALIKE_RENEWED]), 0);
        assert_int_equal(rlock_release(o[ALIKE_RELEASED].lock, on_event, &o[ALIKE_RELEASED]), 0);
    }
}

static void alike_ends(struct alike *a) {
    int i;
    if (a->t == NULL && a->fault != NULL && a->fault->stops) {
        server_resume(&a->server);
    }
    for (i = 0; i < ALIKE_HANDLES; i++) {
        rlock_free(a->owners[i].lock);
    }
    rlock_client_free(a->client);
    rlock_testing_free(a->t);
    if (a->t == NULL) {
        redisFree(a->hand);
        server_stop(&a->server);
    }
}

/* Says in `differs` what a program is told otherwise. */
static bool alike_compares(const struct alike *real, const struct alike *kit, char differs[256]) {
    const char *name = real->fault ? real->fault->name : "theft";
    bool words = real->fault != NULL && (real->fault->condition == RLOCK_TESTING_DENIED ||
                                         real->fault->condition == RLOCK_TESTING_FULL);
    int i, kind;
    for (i = 0; i < ALIKE_HANDLES; i++) {
        const struct owner *a = &real->owners[i], *b = &kit->owners[i];
        for (kind = RLOCK_ACQUIRED; kind <= RLOCK_LOST; kind++) {
            if (a->count[kind] != b->count[kind] || a->status[kind] != b->status[kind] ||
                a->reason[kind] != b->reason[kind]) {
                snprintf(differs, 256,
                         "%s, %s, kind %d: a real server %d times, status %d, reason %d; the kit "
                         "%d times, status %d, reason %d",
                         name, alike_names[i], kind, a->count[kind], a->status[kind],
                         (int)a->reason[kind], b->count[kind], b->status[kind],
                         (int)b->reason[kind]);
                return false;
            }
        }
        if (words && i == ALIKE_TRIED &&
            strcmp(a->text[RLOCK_ACQUIRED], b->text[RLOCK_ACQUIRED]) != 0) {
            snprintf(differs, 256, "%s: a real server says %.80s; the kit says %.80s", name,
                     a->text[RLOCK_ACQUIRED], b->text[RLOCK_ACQUIRED]);
            return false;
        }
    }
    return true;
}

static bool alike_once(char differs[256]) {
    bool same = true;
    size_t i;
    memset(alikes, 0, sizeof alikes);
    alike_loop = rlock_poll_new();
    for (i = 0; i < ALIKE_WORLDS; i++) {
        alike_makes(&alikes[i], i / 2 < ALIKE_FAULTS ? &alike_faults[i / 2] : NULL, i % 2 == 0);
    }
    for (i = 0; i < ALIKE_WORLDS; i++) {
        alike_holds(&alikes[i]);
    }
    alike_runs(250); /* a hold that is older than 100 ms is registered for push */
    for (i = 0; i < ALIKE_WORLDS; i++) {
        alike_begins(&alikes[i], false);
    }
    alike_runs(50); /* connections are seen to be gone */
    for (i = 0; i < ALIKE_WORLDS; i++) {
        alike_begins(&alikes[i], true);
    }
    for (i = 0; i < ALIKE_WORLDS; i++) {
        alike_asks(&alikes[i]);
    }
    alike_runs(1300); /* the deadlines pass */
    for (i = 0; same && i < ALIKE_WORLDS; i += 2) {
        same = alike_compares(&alikes[i], &alikes[i + 1], differs);
    }
    for (i = 0; i < ALIKE_WORLDS; i++) {
        alike_ends(&alikes[i]);
    }
    rlock_poll_free(alike_loop);
    return same;
}

/* Real time passes as the machine likes: a hold of a second may end before its server is stopped.
 * What differs for a reason differs each time. */
static void kit_says_of_each_fault_and_theft_what_a_real_server_says(void **state) {
    char differs[256] = "";
    int turn;
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    for (turn = 0; turn < 3; turn++) {
        if (alike_once(differs)) {
            return;
        }
        print_message("# turn %d: %s\n", turn, differs);
    }
    fail_msg("%s", differs);
}

/* --- a server without memory, and one who deletes, for each kind --- */

struct kind_row {
    const char *name;
    rlock_kind kind;
    bool fencing, two; /* two: keys */
    uint32_t permits;
};

static const struct kind_row kind_rows[] = {
    {"mutex", RLOCK_KIND_MUTEX, false, false, 0},   {"fenced", RLOCK_KIND_MUTEX, true, false, 0},
    {"two", RLOCK_KIND_MUTEX, false, true, 0},      {"fair", RLOCK_KIND_FAIR, false, false, 0},
    {"turn", RLOCK_KIND_FAIR, true, false, 0},      {"read", RLOCK_KIND_READ, false, false, 0},
    {"write", RLOCK_KIND_WRITE, false, false, 0},   {"full", RLOCK_KIND_SEMAPHORE, false, false, 1},
    {"room", RLOCK_KIND_SEMAPHORE, false, false, 2}};
#define KIND_ROWS ((int)(sizeof kind_rows / sizeof *kind_rows))

/* What is asked of a full server: the key is free, held, or held and then released. */
enum { FREE_TRIED, FREE_WAITED, HELD_TRIED, HELD_WAITED, LEFT_WAITED, ASKED };
static const char *const asked_names[] = {"free, tried", "free, waited for", "held, tried",
                                          "held, waited for", "released, waited for"};

static struct owner kind_holders[2][KIND_ROWS][ASKED], kind_askers[2][KIND_ROWS][ASKED];

static void kind_handle(struct owner *o, rlock_client *c, const struct kind_row *row, int asked) {
    char first[32], second[32];
    const char *keys[2] = {first, second};
    rlock_options options;
    memset(&options, 0, sizeof options);
    snprintf(first, sizeof first, "{%s:%d}", row->name, asked);
    snprintf(second, sizeof second, "{%s:%d}b", row->name, asked);
    options.kind = row->kind;
    options.key = row->two ? NULL : first;
    options.keys = row->two ? keys : NULL;
    options.key_count = row->two ? 2 : 0;
    options.permits = row->permits;
    options.fencing = row->fencing;
    options.on_lost = on_event;
    options.user = o;
    memset(o, 0, sizeof *o);
    assert_int_equal(rlock_new(&o->lock, c, &options), RLOCK_OK);
}

static void kinds_free(struct owner (*all)[ASKED]) {
    int i, k;
    for (i = 0; i < KIND_ROWS; i++) {
        for (k = 0; k < ASKED; k++) {
            rlock_free(all[i][k].lock);
            all[i][k].lock = NULL;
        }
    }
}

/* Two clients of a real server and two of the kit: alikes[0] and [1], [2] and [3]. */
static void kinds_begin(void) {
    int i, k, w;
    signal(SIGPIPE, SIG_IGN);
    memset(alikes, 0, sizeof alikes);
    alike_loop = rlock_poll_new();
    for (w = 0; w < 4; w++) {
        struct alike *a = &alikes[w];
        rlock_config config;
        memset(&config, 0, sizeof config);
        config.command_timeout_ms = ALIKE_TIMEOUT_MS;
        config.watchdog_lease_ms = 5000; /* renewed after 1.5 s at the earliest */
        config.log = on_log;
        if (w == 0) {
            assert_int_equal(server_start(&a->server, NULL), 0);
            a->hand = redisConnectUnix(a->server.socket);
            assert_true(a->hand != NULL && a->hand->err == 0);
        }
        if (w >= 2) {
            a->t = rlock_testing_new(alikes[2].t);
        }
        config.loop = w < 2 ? rlock_poll_loop(alike_loop) : rlock_testing_loop(a->t);
        config.store = w < 2 ? NULL : rlock_testing_store(a->t);
        config.unix_path = w < 2 ? alikes[0].server.socket : NULL;
        assert_int_equal(rlock_client_new(&a->client, &config), RLOCK_OK);
    }
    for (w = 0; w < 2; w++) {
        for (i = 0; i < KIND_ROWS; i++) {
            for (k = 0; k < ASKED; k++) {
                kind_handle(&kind_holders[w][i][k], alikes[2 * w].client, &kind_rows[i], k);
                kind_handle(&kind_askers[w][i][k], alikes[2 * w + 1].client, &kind_rows[i], k);
            }
        }
    }
}

/* Time passes on the real server and in the kit, which has one clock. */
static void kinds_run(int64_t ms) {
    int64_t until_ms = alike_now_ms() + ms;
    while (alike_now_ms() < until_ms) {
        rlock_poll_once(alike_loop, 5);
    }
    rlock_testing_pass(alikes[2].t, ms);
}

/* Lets time pass until these have had so many ends of acquires, of each row: first to last. */
static void kinds_ended(struct owner (*all)[KIND_ROWS][ASKED], int first, int last, int times) {
    int64_t until_ms = alike_now_ms() + 20000;
    int i, k, w, left = 1;
    while (left > 0) {
        kinds_run(20);
        for (left = 0, w = 0; w < 2; w++) {
            for (i = 0; i < KIND_ROWS; i++) {
                for (k = first; k <= last; k++) {
                    left += all[w][i][k].count[RLOCK_ACQUIRED] < times;
                }
            }
        }
        assert_true(alike_now_ms() < until_ms);
    }
}

static void kinds_end(void) {
    int w;
    for (w = 0; w < 2; w++) {
        kinds_free(kind_holders[w]);
        kinds_free(kind_askers[w]);
    }
    for (w = 0; w < 4; w++) {
        rlock_client_free(alikes[w].client);
    }
    rlock_testing_free(alikes[3].t);
    rlock_testing_free(alikes[2].t);
    redisFree(alikes[0].hand);
    server_stop(&alikes[0].server);
    rlock_poll_free(alike_loop);
}

/* An attempt at a real server may be out just when the wait ends: then nothing is known, and it is
 * asked once more. */
static void kinds_again_if_unknown(void) {
    int i, k, tries;
    for (tries = 0; tries < 3; tries++) {
        for (i = 0; i < KIND_ROWS; i++) {
            for (k = FREE_TRIED; k <= HELD_WAITED; k++) {
                struct owner *one = &kind_askers[0][i][k];
                if (one->status[RLOCK_ACQUIRED] == RLOCK_ERR_UNKNOWN) {
                    one->count[RLOCK_ACQUIRED] = 0;
                    acquire(one, k == FREE_TRIED || k == HELD_TRIED ? 0 : 500, 60000);
                }
            }
        }
        kinds_ended(kind_askers, FREE_TRIED, HELD_WAITED, 1);
    }
}

static void kit_says_of_a_full_server_what_a_real_one_says_of_each_kind(void **state) {
    int i, k, w;
    (void)state;
    kinds_begin();
    for (w = 0; w < 2; w++) {
        for (i = 0; i < KIND_ROWS; i++) {
            for (k = HELD_TRIED; k < ASKED; k++) {
                acquire(&kind_holders[w][i][k], 5000, 60000);
            }
            acquire(&kind_askers[w][i][FREE_TRIED], 5000, 1000); /* so it is connected */
        }
    }
    kinds_ended(kind_holders, HELD_TRIED, LEFT_WAITED, 1);
    kinds_ended(kind_askers, FREE_TRIED, FREE_TRIED, 1);
    for (w = 0; w < 2; w++) {
        for (i = 0; i < KIND_ROWS; i++) {
            for (k = HELD_TRIED; k < ASKED; k++) {
                assert_int_equal(kind_holders[w][i][k].status[RLOCK_ACQUIRED], RLOCK_OK);
            }
            kind_askers[w][i][FREE_TRIED].count[RLOCK_ACQUIRED] = 0;
            (void)rlock_release(kind_askers[w][i][FREE_TRIED].lock, NULL, NULL);
        }
    }
    kinds_run(100);
    alike_says(&alikes[0], "CONFIG SET maxmemory 1");
    rlock_testing_server(alikes[2].t, RLOCK_TESTING_FULL);
    rlock_testing_server(alikes[3].t, RLOCK_TESTING_FULL);
    for (w = 0; w < 2; w++) {
        for (i = 0; i < KIND_ROWS; i++) {
            for (k = 0; k < ASKED; k++) {
                acquire(&kind_askers[w][i][k],
                        k == FREE_TRIED || k == HELD_TRIED ? 0
                        : k == LEFT_WAITED                 ? 2500
                                                           : 500,
                        60000);
            }
        }
    }
    kinds_ended(kind_askers, FREE_TRIED, HELD_WAITED, 1);
    kinds_again_if_unknown();
    for (w = 0; w < 2; w++) {
        for (i = 0; i < KIND_ROWS; i++) {
            (void)rlock_release(kind_holders[w][i][LEFT_WAITED].lock, NULL, NULL);
        }
    }
    kinds_ended(kind_askers, LEFT_WAITED, LEFT_WAITED, 1);
    for (i = 0; i < KIND_ROWS; i++) {
        for (k = 0; k < ASKED; k++) {
            int real = kind_askers[0][i][k].status[RLOCK_ACQUIRED];
            int kit = kind_askers[1][i][k].status[RLOCK_ACQUIRED];
            if (real != kit) {
                fail_msg("%s, %s: a real server: %s; the kit: %s", kind_rows[i].name,
                         asked_names[k], rlock_strerror(real), rlock_strerror(kit));
            }
        }
    }
    kinds_end();
}

/* Not by another client of rlock, which notifies: by DEL. A hold of two keys loses its second. */
static void kit_says_of_a_deleted_key_what_a_real_server_says_of_each_kind(void **state) {
    char key[64];
    int i, k, w, round;
    (void)state;
    kinds_begin();
    for (w = 0; w < 2; w++) {
        for (i = 0; i < KIND_ROWS; i++) {
            acquire(&kind_holders[w][i][0], 5000, 0);
        }
    }
    kinds_ended(kind_holders, FREE_TRIED, FREE_TRIED, 1);
    kinds_run(300); /* a hold that is older than 100 ms is registered for push */
    for (i = 0; i < KIND_ROWS; i++) {
        snprintf(key, sizeof key, "DEL {%s:0}%s", kind_rows[i].name, kind_rows[i].two ? "b" : "");
        alike_says(&alikes[0], key);
        assert_int_equal(rlock_testing_delete(alikes[3].t, key + 4), RLOCK_OK);
    }
    for (round = 0; round < 2; round++) { /* before the next renewal, and after it */
        kinds_run(round == 0 ? 600 : 1400);
        for (i = 0; i < KIND_ROWS; i++) {
            const struct owner *real = &kind_holders[0][i][0], *kit = &kind_holders[1][i][0];
            k = round > 0 ||
                (kind_rows[i].kind != RLOCK_KIND_READ && kind_rows[i].kind != RLOCK_KIND_SEMAPHORE);
            if (real->count[RLOCK_LOST] != k || kit->count[RLOCK_LOST] != k ||
                real->reason[RLOCK_LOST] != kit->reason[RLOCK_LOST]) {
                fail_msg("%s, look %d: a real server %d times, reason %d; the kit %d times, "
                         "reason %d",
                         kind_rows[i].name, round, real->count[RLOCK_LOST],
                         (int)real->reason[RLOCK_LOST], kit->count[RLOCK_LOST],
                         (int)kit->reason[RLOCK_LOST]);
            }
        }
    }
    kinds_end();
}

#endif /* TESTS_TESTING_REAL_H */
