/* moving.c - from Redis to PostgreSQL: what every store must do, on both at once; and the move
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include "../../stores/rlock_postgres.h"
#include "postgres.h"
#include "rlock_elect.h"
#include "rlock_poll.h"
#include "server.h"
#include "store.h"

static struct {
    struct server redis, postgres;
    redisContext *redis_hand; /* the administrator's */
    PGconn *postgres_hand;
    rlock_poll *loop;
    rlock_store *store, *both;
    size_t live; /* blocks, before a test */
} g;

/* --- the world --- */

static int64_t clock_us(void) {
    return RLOCK_NOW_US();
}

static void passes(int64_t ms) {
    int64_t end_us = clock_us() + ms * 1000;
    while (clock_us() < end_us) {
        if (!rlock_poll_once(g.loop, 0)) {
            usleep(200);
        }
    }
}

static int64_t redis_says(const char *command) {
    redisReply *reply = (redisReply *)redisCommand(g.redis_hand, command);
    int64_t value;
    assert_non_null(reply);
    value = reply->integer;
    freeReplyObject(reply);
    return value;
}

static void postgres_does(const char *statement) {
    PGresult *result = PQexec(g.postgres_hand, statement);
    assert_true(PQresultStatus(result) == PGRES_COMMAND_OK);
    PQclear(result);
}

static void begins(rlock_config *config) {
    rlock_config from, to;
    redis_says("FLUSHALL");
    IS(postgres_clears(g.postgres_hand), 0);
    g.live = virtual_memory.live;
    g.loop = rlock_poll_new();
    assert_non_null(g.loop);
    config->loop = rlock_poll_loop(g.loop);
    memset(&from, 0, sizeof from);
    memset(&to, 0, sizeof to);
    from.unix_path = g.redis.socket;
    IS(rlock_postgres_new(&g.store, g.postgres.url, 0), RLOCK_OK);
    to.store = g.store;
    IS(rlock_both_new(&g.both, &from, &to), RLOCK_OK);
    config->store = g.both;
}

static void ends_all(void) {
    rlock_both_free(g.both);
    rlock_postgres_free(g.store);
    rlock_poll_free(g.loop);
    IS(virtual_memory.live, g.live);
}

static const struct store_row moving = {
    "redis and postgres", begins, ends_all, passes, clock_us, true, false};

static int group_begins(void **state) {
    (void)state;
    row = &moving;
    if (server_start(&g.redis, NULL) != 0 || postgres_start(&g.postgres) != 0 ||
        postgres_installs(&g.postgres, "stores/rlock_postgres.sql") != 0) {
        return -1;
    }
    g.redis_hand = redisConnectUnix(g.redis.socket);
    g.postgres_hand = PQconnectdb(g.postgres.url);
    return g.redis_hand != NULL && !g.redis_hand->err && PQstatus(g.postgres_hand) == CONNECTION_OK
               ? 0
               : -1;
}

static int group_ends(void **state) {
    (void)state;
    redisFree(g.redis_hand);
    PQfinish(g.postgres_hand);
    server_stop(&g.redis);
    server_stop(&g.postgres);
    return 0;
}

/* --- the move --- */

enum { OLD, BOTH, NEW };

#define SERVICES 4
#define HANDLES 2 /* a service */
#define PHASE_MS 400

static struct service {
    int phase, grants;
    rlock_client *client;
    rlock *locks[HANDLES];
} services[SERVICES];

static uint64_t highest; /* fencing token, as a resource would know it */
static int grants[3];

static void service_asks(rlock *lock, struct service *service);

static void on_service(rlock *lock, const rlock_event *event, void *user) {
    struct service *service = (struct service *)user;
    int i, holders = 0;
    if (event->kind == RLOCK_ACQUIRED) {
        IS(event->status, RLOCK_OK);
        assert_true(event->fence > highest);
        highest = event->fence;
        for (i = 0; i < SERVICES * HANDLES; i++) {
            holders += rlock_is_held(services[i % SERVICES].locks[i / SERVICES]);
        }
        IS(holders, 1);
        grants[service->phase]++;
        service->grants++;
        IS(rlock_release(lock, on_service, service), RLOCK_OK);
    } else {
        IS(event->status, RLOCK_OK);
        service_asks(lock, service);
    }
}

static void service_asks(rlock *lock, struct service *service) {
    IS(rlock_acquire(lock, RLOCK_FOREVER, 0, on_service, service), RLOCK_OK);
}

static void service_begins(struct service *service, int phase) {
    rlock_config config = w.config;
    rlock_options options = want("k", RLOCK_KIND_MUTEX);
    int i;
    config.store = phase == OLD ? NULL : phase == BOTH ? g.both : g.store;
    config.unix_path = phase == OLD ? g.redis.socket : NULL;
    config.poll_ms = 0;
    service->phase = phase;
    service->grants = 0;
    IS(rlock_client_new(&service->client, &config), RLOCK_OK);
    for (i = 0; i < HANDLES; i++) {
        IS(rlock_new(&service->locks[i], service->client, &options), RLOCK_OK);
        service_asks(service->locks[i], service);
    }
}

static void service_ends(struct service *service) {
    int i;
    for (i = 0; i < HANDLES; i++) {
        rlock_free(service->locks[i]);
        service->locks[i] = NULL;
    }
    row->run_ms(5);
    rlock_client_free(service->client);
}

/* All lock the same key without a pause, and begin anew one by one. */
static void services_move_and_never_two_hold(void **state) {
    int i, restarts;
    (void)state;
    for (i = 0; i < SERVICES; i++) {
        service_begins(&services[i], OLD);
    }
    for (restarts = 0; restarts <= 2 * SERVICES; restarts++) {
        for (i = 0; i < SERVICES; i++) {
            EVENTUALLY(services[i].grants > 2); /* each has its turn, beside the others' phase */
            services[i].grants = 0;
        }
        row->run_ms(PHASE_MS);
        if (restarts < 2 * SERVICES) {
            struct service *service = &services[restarts % SERVICES];
            int phase = service->phase + 1;
            service_ends(service);
            service_begins(service, phase);
        }
    }
    for (i = 0; i < SERVICES; i++) {
        IS(services[i].phase, NEW);
        service_ends(&services[i]);
    }
    for (i = 0; i < 3; i++) {
        WITHIN(grants[i], 50, 10000000);
    }
    IS(redis_says("EXISTS k"), 0);
}

/* The new one's clock may be behind by more than one request can reserve. */
static void fences_rise_from_the_last_of_the_old_one(void **state) {
    struct hand *one = hand(0, "k");
    uint64_t before;
    (void)state;
    held(one);
    before = rlock_fence(one->lock);
    lets_go(one);
    redis_says("INCRBY rlock:{k}:fence 300000"); /* as if its clock were 0.3 s ahead */
    held(one);
    assert_true(rlock_fence(one->lock) > before + 300000);
    before = rlock_fence(one->lock);
    lets_go(one);
    postgres_does("UPDATE rlock.keys SET fence = fence + 500000");
    held(one);
    assert_true(rlock_fence(one->lock) > before + 400000);
    lets_go(one);
    postgres_does("UPDATE rlock.keys SET fence = fence + 60000000");
    IS(tried(one, 0, STORE_LEASE_MS), RLOCK_ERR_SERVER);
}

/* --- one of them fails --- */

static void hold_that_one_of_them_loses_is_lost(void **state) {
    struct hand *one = hand(0, "k"), *other = hand(1, "k2");
    (void)state;
    held(one);
    held(other);
    row->run_ms(300);
    redis_says("DEL k");
    EVENTUALLY(one->count[RLOCK_LOST] == 1);
    IS(one->reason, RLOCK_REASON_DELETED);
    postgres_does("UPDATE rlock.keys SET ends = '-infinity', token = '' WHERE key = 'k2'");
    IS(renewed(other, STORE_LEASE_MS), RLOCK_ERR_LOST);
    IS(tried(hand(2, "k"), STORE_LIMIT_MS, 0), RLOCK_OK); /* the other half was given back */
    IS(tried(hand(2, "k2"), STORE_LIMIT_MS, 0), RLOCK_OK);
}

/* Whoever still has only Redis goes on. */
static void without_postgres_nobody_takes_redis_from_those_before(void **state) {
    struct hand *one = hand(0, "k");
    (void)state;
    lets_go(held(one));
    server_ends(&g.postgres, SIGQUIT);
    EVENTUALLY(tried(one, 0, 0) == RLOCK_ERR_CONN);
    asks(one, RLOCK_FOREVER, STORE_LEASE_MS);
    row->run_ms(300);
    IS(redis_says("EXISTS k"), 0);
    IS(postgres_continue(&g.postgres), 0);
    PQreset(g.postgres_hand);
    EVENTUALLY(holds(one));
    IS(redis_says("EXISTS k"), 1);
}

static void without_redis_nothing_is_held_and_then_again(void **state) {
    struct hand *one = hand(0, "k"), *next = hand(1, "k");
    (void)state;
    IS(tried(one, 0, 0), RLOCK_OK); /* the watchdog renews it */
    server_pause(&g.redis);
    EVENTUALLY(one->count[RLOCK_LOST] == 1);
    IS(one->reason, RLOCK_REASON_EXPIRED);
    asks(next, RLOCK_FOREVER, STORE_LEASE_MS);
    row->run_ms(300);
    assert_false(holds(next));
    server_resume(&g.redis);
    EVENTUALLY(holds(next));
}

static int hastily(void **state) {
    return store_begins_hastily(state);
}

#define HASTY(name) cmocka_unit_test_setup_teardown(name, hastily, store_ends)

/* With one argument, the tests of that name. */
int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        STORE_MUTEX,
        STORE_FENCES,
        STORE_TEST(services_move_and_never_two_hold),
        STORE_TEST(fences_rise_from_the_last_of_the_old_one),
        STORE_TEST(hold_that_one_of_them_loses_is_lost),
        HASTY(without_postgres_nobody_takes_redis_from_those_before),
        HASTY(without_redis_nothing_is_held_and_then_again)};
    static const struct CMUnitTest others[] = {STORE_KINDS}; /* that both do not have */
    (void)others;
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("moving", tests, group_begins, group_ends);
}
