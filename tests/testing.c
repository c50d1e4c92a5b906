/* testing.c - rlock_testing.h: what each of its commands does to a program
 *
 * What the kit says of a fault is what a real server says: the expectations of the faults are the
 * rows of tests/faults_server.h, where each is provoked for real. The last test puts the same
 * faults to a real server and to the kit, side by side.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "rlock_libuv.h"
#include "rlock_poll.h"
#include "server.h"

static int memory_lasts; /* the number of the allocation of the kit that fails; 0 = none does */

static void *zeroed(size_t count, size_t size) {
    return memory_lasts > 0 && --memory_lasts == 0 ? NULL : calloc(count, size);
}

#define calloc(count, size) zeroed(count, size)
#include "rlock_testing.h"
#undef calloc

#define TIMEOUT_MS 100 /* of a command */
#define WATCHDOG_MS 3000
#define HANDLES 16

struct owner { /* a handle, and what it was told */
    rlock *lock;
    int count[RLOCK_LOST + 1], status[RLOCK_LOST + 1];
    rlock_reason reason[RLOCK_LOST + 1];
    char text[RLOCK_LOST + 1][96];
    int64_t at_ms[RLOCK_LOST + 1];
    void (*react)(struct owner *o, const rlock_event *event);
};

static rlock_testing *t;
static rlock_client *client;
static struct owner owners[HANDLES];
static int owned, log_lines;
static char log_text[2048];

static void on_event(rlock *lock, const rlock_event *event, void *user) {
    struct owner *o = (struct owner *)user;
    assert_ptr_equal(lock, o->lock);
    o->count[event->kind]++;
    o->status[event->kind] = event->status;
    o->reason[event->kind] = event->reason;
    snprintf(o->text[event->kind], sizeof o->text[0], "%s", event->text ? event->text : "");
    o->at_ms[event->kind] = t != NULL ? rlock_testing_now_ms(t) : 0;
    if (o->react != NULL) {
        o->react(o, event);
    }
}

static void on_log(void *user, int level, const char *line) {
    (void)user, (void)level;
    log_lines++;
    snprintf(log_text + strlen(log_text), sizeof log_text - strlen(log_text), "%s\n", line);
}

static rlock_client *client_on(rlock_testing *process) {
    rlock_client *made;
    rlock_config config;
    memset(&config, 0, sizeof config);
    config.loop = rlock_testing_loop(process);
    config.store = rlock_testing_store(process);
    config.command_timeout_ms = TIMEOUT_MS;
    config.watchdog_lease_ms = WATCHDOG_MS;
    config.log = on_log;
    assert_int_equal(rlock_client_new(&made, &config), RLOCK_OK);
    return made;
}

static struct owner *owner_with(rlock_client *c, const rlock_options *options) {
    struct owner *o = &owners[owned++];
    rlock_options copy = *options;
    assert_true(owned <= HANDLES);
    memset(o, 0, sizeof *o);
    copy.on_lost = on_event;
    copy.user = o;
    assert_int_equal(rlock_new(&o->lock, c, &copy), RLOCK_OK);
    return o;
}

static struct owner *owner_of(rlock_client *c, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    return owner_with(c, &options);
}

static struct owner *owner_new(const char *key) {
    return owner_of(client, key);
}

static void acquire(struct owner *o, int64_t wait_ms, int64_t lease_ms) {
    assert_int_equal(rlock_acquire(o->lock, wait_ms, lease_ms, on_event, o), RLOCK_OK);
}

static struct owner *holder(const char *key, int64_t lease_ms) {
    struct owner *o = owner_new(key);
    acquire(o, 0, lease_ms);
    rlock_testing_pass(t, 1);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 1);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    return o;
}

/* A connection has to be there before the fault. */
static void connects(void) {
    struct owner *o = holder("first", 1000);
    assert_int_equal(rlock_release(o->lock, NULL, NULL), RLOCK_OK);
    rlock_testing_pass(t, 1);
}

static int setup(void **state) {
    (void)state;
    owned = log_lines = memory_lasts = 0;
    log_text[0] = '\0';
    t = rlock_testing_new(NULL);
    assert_non_null(t);
    client = client_on(t);
    return 0;
}

static int teardown(void **state) {
    int i;
    (void)state;
    for (i = 0; i < owned; i++) {
        rlock_free(owners[i].lock);
    }
    rlock_client_free(client);
    rlock_testing_free(t);
    t = NULL;
    return 0;
}

/* --- time --- */

static void time_passes_only_when_the_test_says_so(void **state) {
    int64_t start_ms = rlock_testing_now_ms(t);
    struct owner *o = owner_new("k");
    (void)state;
    acquire(o, 0, 1000);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 0);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 1);
    assert_int_equal(rlock_testing_now_ms(t), start_ms);
    assert_int_equal(rlock_remaining_ms(o->lock), 988); /* 1000 - 1 % - 2 */
    rlock_testing_pass(t, 980);
    assert_true(rlock_is_held(o->lock));
    rlock_testing_pass(t, 20);
    assert_int_equal(o->count[RLOCK_LOST], 1);
    assert_int_equal(o->at_ms[RLOCK_LOST], start_ms + 988);
    assert_int_equal(rlock_testing_now_ms(t), start_ms + 1000);
}

static void day_of_renewals_takes_no_time(void **state) {
    struct owner *o = holder("k", 0);
    rlock_stats stats;
    (void)state;
    rlock_testing_pass(t, 86400000);
    assert_true(rlock_is_held(o->lock));
    rlock_client_stats(client, &stats);
    assert_in_range(stats.renewed, 86400, 100000); /* a third of 3 s, and a tenth earlier */
}

struct timed {
    int fired;
    int64_t at_ms;
};

static void fire_timed(void *user) {
    struct timed *timed = (struct timed *)user;
    timed->fired++;
    timed->at_ms = rlock_testing_now_ms(t);
}

static void timers_of_the_program_fire_in_their_order(void **state) {
    struct timed timed[3] = {{0, 0}, {0, 0}, {0, 0}};
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    assert_int_equal(rlock_testing_after(t, 50, fire_timed, &timed[0]), RLOCK_OK);
    assert_int_equal(rlock_testing_after(t, 20, fire_timed, &timed[1]), RLOCK_OK);
    assert_int_equal(rlock_testing_after(t, 30, fire_timed, &timed[2]), RLOCK_OK);
    assert_int_equal(rlock_testing_pending(t), 3);
    rlock_testing_pass(t, 19);
    assert_int_equal(timed[0].fired + timed[1].fired + timed[2].fired, 0);
    rlock_testing_pass(t, 1);
    assert_int_equal(timed[1].fired, 1);
    assert_int_equal(rlock_testing_cancel(t, fire_timed, &timed[2]), 1);
    assert_int_equal(rlock_testing_cancel(t, fire_timed, &timed[2]), 0);
    rlock_testing_pass(t, 100);
    assert_int_equal(timed[0].at_ms, start_ms + 50);
    assert_int_equal(timed[1].fired, 1);
    assert_int_equal(timed[2].fired, 0);
    assert_int_equal(rlock_testing_pending(t), 0);
}

static bool is_lost(void *user) {
    return ((struct owner *)user)->count[RLOCK_LOST] > 0;
}

static void until_stops_at_the_callback_that_it_waits_for(void **state) {
    int64_t start_ms = rlock_testing_now_ms(t);
    struct owner *o = owner_new("k");
    (void)state;
    acquire(o, 0, 1000);
    assert_false(rlock_testing_until(t, is_lost, o, 900));
    assert_int_equal(rlock_testing_now_ms(t), start_ms + 900);
    assert_true(rlock_testing_until(t, is_lost, o, 900));
    assert_int_equal(rlock_testing_now_ms(t), start_ms + 988);
    assert_true(rlock_testing_until(t, is_lost, o, 900)); /* at once */
    assert_int_equal(rlock_testing_now_ms(t), start_ms + 988);
}

/* A job that comes every 100 ms, and takes longer than that. */
static void job_that_takes_too_long(void *user) {
    rlock_testing_after(t, 100, job_that_takes_too_long, user);
    ++*(int *)user;
    rlock_testing_freeze(t, 150);
}

static bool never(void *user) {
    (void)user;
    return false;
}

static void program_that_is_always_late_does_not_stop_the_test(void **state) {
    int64_t start_ms = rlock_testing_now_ms(t);
    int jobs = 0;
    (void)state;
    rlock_testing_after(t, 0, job_that_takes_too_long, &jobs);
    rlock_testing_pass(t, 1000);
    assert_int_equal(jobs, 8); /* at 0, 150, ..., 900; and what was due when that one returned */
    assert_in_range(rlock_testing_now_ms(t) - start_ms, 1000, 1000 + 2 * 150);
    assert_false(rlock_testing_until(t, never, NULL, 1000));
    assert_in_range(rlock_testing_now_ms(t) - start_ms, 2000, 2000 + 4 * 150);
    rlock_testing_freeze(t, 1000);
    assert_in_range(rlock_testing_now_ms(t) - start_ms, 3000, 3000 + 6 * 150);
}

static void time_without_an_end_is_a_hundred_years(void **state) {
    int64_t start_ms = rlock_testing_now_ms(t), years_ms = (int64_t)36525 * 86400000;
    struct timed timed = {0, 0};
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        assert_false(rlock_testing_until(t, never, NULL, INT64_MAX));
    }
    assert_int_equal(rlock_testing_now_ms(t) - start_ms, 3 * years_ms);
    assert_false(rlock_testing_until(t, never, NULL, INT64_MIN));
    assert_int_equal(rlock_testing_after(t, INT64_MAX, fire_timed, &timed), RLOCK_OK);
    rlock_testing_pass(t, INT64_MAX);
    assert_int_equal(timed.at_ms - start_ms, 4 * years_ms);
    rlock_testing_latency(t, INT64_MAX);
    acquire(owner_new("k"), 0, 0);
    rlock_testing_pass(t, 2 * TIMEOUT_MS);
    assert_int_equal(owners[0].status[RLOCK_ACQUIRED], RLOCK_ERR_CONN);
}

static void handles_that_are_left_are_counted(void **state) {
    rlock_client *second = client_on(t);
    struct owner *a = owner_new("a"), *b = owner_of(second, "b");
    (void)state;
    assert_int_equal(rlock_testing_handles(t), 2);
    rlock_free(b->lock);
    b->lock = NULL;
    assert_int_equal(rlock_testing_handles(t), 1);
    rlock_client_free(second);
    rlock_free(a->lock);
    a->lock = NULL;
    assert_int_equal(rlock_testing_handles(t), 0);
}

/* --- a process that is stopped, or killed --- */

static void frozen_process_is_notified_of_its_loss_when_it_goes_on(void **state) {
    struct owner *o = holder("k", 0);
    int64_t start_ms = rlock_testing_now_ms(t);
    struct timed timed = {0, 0};
    (void)state;
    rlock_testing_after(t, 10, fire_timed, &timed);
    rlock_testing_freeze(t, 2 * WATCHDOG_MS);
    assert_int_equal(timed.at_ms, start_ms + 2 * WATCHDOG_MS);
    assert_int_equal(o->count[RLOCK_LOST], 1);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_int_equal(o->at_ms[RLOCK_LOST], start_ms + 2 * WATCHDOG_MS);
}

static void short_freeze_costs_nothing(void **state) {
    struct owner *o = holder("k", 0);
    (void)state;
    rlock_testing_freeze(t, WATCHDOG_MS / 2);
    assert_int_equal(o->count[RLOCK_LOST], 0);
    rlock_testing_pass(t, 2 * WATCHDOG_MS);
    assert_true(rlock_is_held(o->lock));
}

/* The server has executed the renewal, and says so; but the deadline comes before the answer. */
static void expiry_comes_before_an_answer_that_waited_in_the_socket(void **state) {
    struct owner *o = holder("k", 1000);
    (void)state;
    rlock_testing_pass(t, 900);
    rlock_testing_latency(t, 10);
    assert_int_equal(rlock_renew(o->lock, 1000, on_event, o), RLOCK_OK);
    rlock_testing_pass(t, 1); /* it is sent, and executed */
    rlock_testing_freeze(t, 500);
    assert_int_equal(o->count[RLOCK_LOST], 1);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_int_equal(o->status[RLOCK_RENEWED], RLOCK_ERR_LOST);
}

static void
answer_that_waited_in_the_socket_is_read_before_the_connection_is_given_up(void **state) {
    struct owner *o = owner_new("k");
    rlock_stats stats;
    (void)state;
    connects();
    rlock_testing_latency(t, 10);
    acquire(o, RLOCK_FOREVER, 60000);
    rlock_testing_pass(t, 1);
    rlock_testing_freeze(t, 50 * TIMEOUT_MS);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 1);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    rlock_client_stats(client, &stats);
    assert_int_equal(stats.faults, 0);
    assert_int_equal(stats.connects, 1);
}

static void callback_that_blocks(struct owner *o, const rlock_event *event) {
    if (event->kind == RLOCK_ACQUIRED) {
        rlock_testing_freeze(t, 5000);
        assert_int_equal(o->count[RLOCK_LOST], 0); /* nothing is told inside of a callback */
        assert_false(rlock_is_held(o->lock));
    }
}

static void callback_that_blocks_delays_all_of_its_process(void **state) {
    struct owner *o = owner_new("k");
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    o->react = callback_that_blocks;
    acquire(o, 0, 0);
    rlock_testing_pass(t, 10);
    assert_int_equal(rlock_testing_now_ms(t), start_ms + 5000);
    assert_int_equal(o->count[RLOCK_LOST], 1);
    assert_int_equal(o->at_ms[RLOCK_LOST], start_ms + 5000);
}

static void other_process_goes_on_while_one_is_frozen(void **state) {
    rlock_testing *two = rlock_testing_new(t);
    rlock_client *other = client_on(two);
    struct owner *a = holder("k", 0), *b = owner_of(other, "k");
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    acquire(b, RLOCK_FOREVER, 0);
    rlock_testing_pass(t, 100);
    assert_int_equal(b->count[RLOCK_ACQUIRED], 0);
    rlock_testing_freeze(t, 10000);
    assert_int_equal(a->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
    assert_int_equal(b->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(b->count[RLOCK_ACQUIRED], 1);
    assert_in_range(b->at_ms[RLOCK_ACQUIRED] - start_ms, WATCHDOG_MS - 2, WATCHDOG_MS + 100);
    assert_true(rlock_is_held(b->lock));
    rlock_free(b->lock);
    b->lock = NULL;
    rlock_client_free(other);
    rlock_testing_free(two);
}

static void killed_process_keeps_its_key_until_the_lease_is_over(void **state) {
    rlock_testing *two = rlock_testing_new(t);
    rlock_client *other = client_on(two);
    struct owner *a = owner_of(other, "k"), *b = owner_new("k");
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    acquire(a, 0, 0);
    rlock_testing_pass(t, 1);
    acquire(b, RLOCK_FOREVER, 0);
    rlock_testing_kill(two);
    rlock_testing_kill(two);
    rlock_testing_server(two, RLOCK_TESTING_UP); /* which brings nobody back */
    rlock_free(a->lock);                         /* no release reaches the server */
    a->lock = NULL;
    rlock_client_free(other);
    rlock_testing_free(two);
    rlock_testing_pass(t, WATCHDOG_MS - 10);
    assert_int_equal(b->count[RLOCK_ACQUIRED], 0);
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
    rlock_testing_pass(t, 1000);
    assert_int_equal(b->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_in_range(b->at_ms[RLOCK_ACQUIRED] - start_ms, WATCHDOG_MS, WATCHDOG_MS + 100);
}

/* --- faults, by the rows of tests/faults_server.h --- */

struct fault {
    rlock_testing_condition condition;
    const char *words; /* in the text of a refused acquire */
    int try_status, renew_status, release_status;
    bool waits_on; /* a waiter with RLOCK_FOREVER goes on waiting */
    bool keeps;    /* the watchdog renews all the same */
};

static const struct fault faults[] = {
    {RLOCK_TESTING_DOWN, "refused", RLOCK_ERR_CONN, RLOCK_ERR_CONN, RLOCK_ERR_CONN, true, false},
    {RLOCK_TESTING_SILENT, "", RLOCK_ERR_UNKNOWN, RLOCK_ERR_UNKNOWN, RLOCK_ERR_UNKNOWN, true,
     false},
    {RLOCK_TESTING_DENIED, "WRONGPASS", RLOCK_ERR_AUTH, RLOCK_ERR_AUTH, RLOCK_ERR_AUTH, false,
     false},
    {RLOCK_TESTING_FULL, "OOM", RLOCK_ERR_SERVER, RLOCK_OK, RLOCK_OK, true, true}};

static const struct fault *fault_of(void **state) {
    return (const struct fault *)*state;
}

static const struct fault *begins(void **state) {
    rlock_testing_server(t, fault_of(state)->condition);
    if (fault_of(state)->condition != RLOCK_TESTING_SILENT) {
        rlock_testing_pass(t, 50); /* the clients see that their connections are gone */
    }
    return fault_of(state);
}

static void fault_ends_an_attempt(void **state) {
    struct owner *o = owner_new("k");
    const struct fault *f;
    connects();
    f = begins(state);
    acquire(o, 0, 60000);
    rlock_testing_pass(t, 3 * TIMEOUT_MS);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 1);
    assert_int_equal(o->status[RLOCK_ACQUIRED], f->try_status);
    assert_non_null(strstr(o->text[RLOCK_ACQUIRED], f->words));
    assert_int_equal(rlock_testing_holders(t, "k"), 0);
}

static void fault_ends_a_wait_that_is_too_short(void **state) {
    struct owner *o = owner_new("k");
    const struct fault *f;
    connects();
    f = begins(state);
    acquire(o, 900, 60000);
    rlock_testing_pass(t, 1000);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 1);
    assert_int_equal(o->status[RLOCK_ACQUIRED], f->try_status);
}

static void fault_ends_a_renewal_by_hand(void **state) {
    struct owner *o = holder("k", 60000);
    const struct fault *f = begins(state);
    assert_int_equal(rlock_renew(o->lock, 0, on_event, o), RLOCK_OK);
    rlock_testing_pass(t, 1100); /* the next attempt to connect tells, after a second */
    assert_int_equal(o->count[RLOCK_RENEWED], 1);
    assert_int_equal(o->status[RLOCK_RENEWED], f->renew_status);
    assert_true(rlock_is_held(o->lock));
}

static void fault_that_lasts_ends_the_hold_at_its_deadline(void **state) {
    struct owner *o = holder("k", 0);
    const struct fault *f = begins(state);
    int64_t left_ms = rlock_remaining_ms(o->lock), start_ms = rlock_testing_now_ms(t);
    rlock_testing_pass(t, 2 * WATCHDOG_MS);
    assert_int_equal(o->count[RLOCK_LOST], f->keeps ? 0 : 1);
    if (!f->keeps) {
        assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_EXPIRED);
        assert_in_range(o->at_ms[RLOCK_LOST] - start_ms, left_ms, left_ms + 1);
        assert_int_not_equal(o->text[RLOCK_LOST][0], '\0'); /* why there is no connection */
    }
}

static void fault_that_lasts_ends_a_release_at_the_deadline(void **state) {
    struct owner *o = holder("k", 1000);
    const struct fault *f = begins(state);
    int64_t left_ms = rlock_remaining_ms(o->lock), start_ms = rlock_testing_now_ms(t);
    assert_int_equal(rlock_release(o->lock, on_event, o), RLOCK_OK);
    rlock_testing_pass(t, 2000);
    assert_int_equal(o->count[RLOCK_RELEASED], 1);
    assert_int_equal(o->status[RLOCK_RELEASED], f->release_status);
    if (f->release_status != RLOCK_OK) {
        assert_in_range(o->at_ms[RLOCK_RELEASED] - start_ms, left_ms, left_ms + 1);
    }
}

static void fault_that_ends_is_outlived(void **state) {
    struct owner *held = holder("held", 0), *waits = owner_new("k");
    const struct fault *f = begins(state);
    acquire(waits, RLOCK_FOREVER, 0);
    rlock_testing_pass(t, WATCHDOG_MS / 2);
    assert_int_equal(waits->count[RLOCK_ACQUIRED], f->waits_on ? 0 : 1);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    rlock_testing_pass(t, WATCHDOG_MS);
    assert_int_equal(held->count[RLOCK_LOST], 0);
    assert_true(rlock_is_held(held->lock));
    assert_int_equal(waits->count[RLOCK_ACQUIRED], 1);
    assert_int_equal(waits->status[RLOCK_ACQUIRED], f->waits_on ? RLOCK_OK : RLOCK_ERR_AUTH);
}

static void server_that_is_down_from_the_start_is_found_when_it_comes(void **state) {
    struct owner *o = owner_new("k"), *tried = owner_new("k");
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    rlock_testing_server(t, RLOCK_TESTING_DOWN);
    acquire(tried, 0, 1000);
    acquire(o, RLOCK_FOREVER, 0);
    rlock_testing_pass(t, 3600000);
    assert_int_equal(tried->status[RLOCK_ACQUIRED], RLOCK_ERR_CONN);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 0);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    rlock_testing_pass(t, 2000);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_in_range(o->at_ms[RLOCK_ACQUIRED] - start_ms, 3600000, 3601000);
    assert_non_null(strstr(log_text, ": connection to the test's server: Connection refused\n"));
    assert_int_equal(log_lines, 2); /* it is ready, in the end */
}

static void silent_server_does_not_let_anyone_in(void **state) {
    struct owner *o = owner_new("k");
    (void)state;
    rlock_testing_server(t, RLOCK_TESTING_SILENT);
    acquire(o, 0, 1000);
    rlock_testing_pass(t, 2 * TIMEOUT_MS);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_CONN);
}

static void attempt_to_connect_outlives_a_short_silence(void **state) {
    struct owner *o = owner_new("k");
    int64_t start_ms = rlock_testing_now_ms(t);
    rlock_stats stats;
    (void)state;
    rlock_testing_server(t, RLOCK_TESTING_SILENT);
    acquire(o, 5000, 0);
    rlock_testing_pass(t, TIMEOUT_MS / 2);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    rlock_testing_pass(t, TIMEOUT_MS);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(o->at_ms[RLOCK_ACQUIRED], start_ms + TIMEOUT_MS / 2);
    rlock_client_stats(client, &stats);
    assert_int_equal(stats.faults, 0);
}

/* The pauses between the attempts grow to a second, and begin anew after a connection that lasted.
 */
static void connection_that_lasted_is_made_again_at_once(void **state) {
    struct owner *o = holder("k", 60000);
    rlock_stats stats;
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        rlock_testing_server(t, RLOCK_TESTING_DOWN);
        rlock_testing_pass(t, 2000);
        rlock_testing_server(t, RLOCK_TESTING_UP);
        rlock_testing_pass(t, 2000);
    }
    rlock_testing_server(t, RLOCK_TESTING_DOWN);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    rlock_testing_pass(t, 0);
    rlock_client_stats(client, &stats);
    assert_true(stats.up);
    assert_int_equal(stats.connects, 4);
    assert_int_equal(o->count[RLOCK_LOST], 0);
}

static void silence_that_is_short_is_only_a_delay(void **state) {
    struct owner *o = owner_new("k");
    rlock_stats stats;
    (void)state;
    connects();
    rlock_testing_server(t, RLOCK_TESTING_SILENT);
    acquire(o, 0, 1000);
    rlock_testing_pass(t, TIMEOUT_MS / 2);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 0);
    assert_int_equal(rlock_testing_holders(t, "k"), 0);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    rlock_client_stats(client, &stats);
    assert_int_equal(stats.connects, 1);
}

static void silence_cuts_off_what_is_pushed_too(void **state) {
    struct owner *o = holder("k", 60000);
    (void)state;
    rlock_testing_server(t, RLOCK_TESTING_SILENT);
    assert_int_equal(rlock_testing_steal(t, "k"), RLOCK_OK);
    rlock_testing_pass(t, 1000);
    assert_int_equal(o->count[RLOCK_LOST], 0);
    assert_true(rlock_is_held(o->lock)); /* nobody could tell it: see the guarantees */
    rlock_testing_server(t, RLOCK_TESTING_UP);
    rlock_testing_pass(t, 2000);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
}

static void answer_that_takes_longer_than_the_command_timeout_is_none(void **state) {
    struct owner *o = owner_new("k");
    int64_t start_ms = rlock_testing_now_ms(t);
    rlock_stats stats;
    (void)state;
    connects();
    rlock_testing_latency(t, TIMEOUT_MS - 10);
    acquire(o, 0, 60000);
    rlock_testing_pass(t, TIMEOUT_MS);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(o->at_ms[RLOCK_ACQUIRED] - start_ms, 2 + TIMEOUT_MS - 10);
    rlock_testing_latency(t, TIMEOUT_MS + 10);
    assert_int_equal(rlock_renew(o->lock, 0, on_event, o), RLOCK_OK);
    rlock_testing_pass(t, 2 * TIMEOUT_MS);
    assert_int_equal(o->status[RLOCK_RENEWED], RLOCK_ERR_UNKNOWN);
    rlock_client_stats(client, &stats);
    assert_in_range(stats.faults, 1, 3);
    assert_true(rlock_is_held(o->lock));
}

static void connecting_takes_the_latency_too(void **state) {
    struct owner *o = owner_new("k");
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    rlock_testing_latency(t, 40);
    acquire(o, 0, 60000);
    rlock_testing_pass(t, TIMEOUT_MS);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(o->at_ms[RLOCK_ACQUIRED], start_ms + 40 + 40);
}

static void server_that_is_too_far_away_is_not_connected_to(void **state) {
    struct owner *o = owner_new("k");
    (void)state;
    rlock_testing_latency(t, TIMEOUT_MS + 10);
    acquire(o, 0, 60000);
    rlock_testing_pass(t, 3 * TIMEOUT_MS);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_CONN);
    rlock_testing_latency(t, 10);
    acquire(o, RLOCK_FOREVER, 60000);
    rlock_testing_pass(t, 1000);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
}

/* --- answers that are lost --- */

static void lost_answer_of_an_attempt_leaves_nothing_behind(void **state) {
    struct owner *o = owner_new("k");
    (void)state;
    connects();
    rlock_testing_drop_answers(t, 1);
    acquire(o, 0, 60000);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
    rlock_testing_pass(t, 1000);
    assert_int_equal(rlock_testing_holders(t, "k"), 0);
}

/* It holds the key already, and is granted what it has: nobody else was in between. */
static void lost_answer_of_a_waiter_is_asked_for_again(void **state) {
    struct owner *o = owner_new("k");
    rlock_stats stats;
    (void)state;
    connects();
    rlock_testing_drop_answers(t, 1);
    acquire(o, 5000, 60000);
    rlock_testing_pass(t, 1000);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
    rlock_client_stats(client, &stats);
    assert_int_equal(stats.connects, 2);
}

static void request_whose_answer_is_lost_was_executed(void **state) {
    struct owner *o = owner_new("k");
    (void)state;
    connects();
    rlock_testing_latency(t, 40);
    rlock_testing_drop_answers(t, 1);
    acquire(o, 0, 60000);
    rlock_testing_pass(t, 10);
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
    assert_int_equal(o->count[RLOCK_ACQUIRED], 0);
    rlock_testing_pass(t, 1000);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_UNKNOWN);
    assert_int_equal(rlock_testing_holders(t, "k"), 0);
}

static void lost_answer_of_a_release_ends_as_not_held(void **state) {
    struct owner *o = holder("k", 60000);
    (void)state;
    rlock_testing_drop_answers(t, 1);
    assert_int_equal(rlock_release(o->lock, on_event, o), RLOCK_OK);
    rlock_testing_pass(t, 5000);
    assert_int_equal(o->status[RLOCK_RELEASED], RLOCK_ERR_NOT_HELD);
    assert_int_equal(rlock_testing_holders(t, "k"), 0);
}

/* --- others --- */

static void stolen_lock_is_reported_at_once(void **state) {
    struct owner *o = holder("k", 0);
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    assert_int_equal(rlock_testing_steal(t, "k"), RLOCK_OK);
    assert_int_equal(o->count[RLOCK_LOST], 0); /* never inside of a call */
    rlock_testing_pass(t, 100);
    assert_int_equal(o->count[RLOCK_LOST], 1);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    assert_int_equal(o->at_ms[RLOCK_LOST], start_ms);
    acquire(o, 0, 0);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_BUSY);
    assert_int_equal(rlock_testing_let_go(t, "k"), RLOCK_OK);
    acquire(o, 0, 0);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
}

/* What a silent server has not executed yet comes before: it forces the rival's own hold, which the
 * rival is notified of. What the test does is done all the same when the call returns. */
static void steal_behind_a_forced_release_is_done_when_it_returns(void **state) {
    rlock_options options;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    (void)holder("other", 0); /* connected */
    assert_int_equal(rlock_testing_hold(t, "k", 60000), RLOCK_OK);
    rlock_testing_server(t, RLOCK_TESTING_SILENT);
    assert_int_equal(rlock_force_release(client, &options, NULL, NULL), RLOCK_OK);
    rlock_testing_pass(t, 10);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    assert_int_equal(rlock_testing_steal(t, "k"), RLOCK_OK);
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
    rlock_testing_pass(t, 10);
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
}

static void release_of_a_stolen_lock_takes_nothing_from_the_thief(void **state) {
    struct owner *o = holder("k", 0);
    (void)state;
    assert_int_equal(rlock_testing_steal(t, "k"), RLOCK_OK);
    assert_int_equal(rlock_release(o->lock, on_event, o), RLOCK_OK);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->status[RLOCK_RELEASED], RLOCK_ERR_NOT_HELD);
    assert_int_equal(o->reason[RLOCK_RELEASED], RLOCK_REASON_STOLEN);
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
}

static void deleted_key_is_reported_as_deleted(void **state) {
    struct owner *o = holder("k", 0);
    (void)state;
    assert_int_equal(rlock_testing_delete(t, "k"), RLOCK_OK);
    assert_int_equal(rlock_testing_delete(t, "k"), RLOCK_ERR_NOT_HELD);
    rlock_testing_pass(t, 100);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
}

static void key_that_another_holds_is_waited_for(void **state) {
    struct owner *tried = owner_new("k"), *waits = owner_new("k"), *late = owner_new("k");
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    assert_int_equal(rlock_testing_hold(t, "k", 10000), RLOCK_OK);
    assert_int_equal(rlock_testing_hold(t, "k", 10000), RLOCK_ERR_BUSY);
    acquire(tried, 0, 0);
    acquire(late, 2000, 0);
    acquire(waits, RLOCK_FOREVER, 0);
    rlock_testing_pass(t, 9000);
    assert_int_equal(tried->status[RLOCK_ACQUIRED], RLOCK_ERR_BUSY);
    assert_int_equal(late->status[RLOCK_ACQUIRED], RLOCK_ERR_TIMEOUT);
    assert_int_equal(waits->count[RLOCK_ACQUIRED], 0);
    rlock_testing_pass(t, 2000); /* it dies: its lease is over */
    assert_int_equal(waits->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_in_range(waits->at_ms[RLOCK_ACQUIRED] - start_ms, 10000, 10100);
    assert_int_equal(rlock_testing_let_go(t, "k"), RLOCK_ERR_NOT_HELD);
}

static void key_that_another_releases_is_acquired_at_once(void **state) {
    struct owner *o = owner_new("k");
    int64_t start_ms = rlock_testing_now_ms(t);
    (void)state;
    assert_int_equal(rlock_testing_hold(t, "k", 60000), RLOCK_OK);
    acquire(o, RLOCK_FOREVER, 0);
    rlock_testing_pass(t, 1500);
    assert_int_equal(rlock_testing_let_go(t, "k"), RLOCK_OK);
    rlock_testing_pass(t, 100);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(o->at_ms[RLOCK_ACQUIRED], start_ms + 1500);
}

static void others_know_the_kind_of_the_key(void **state) {
    rlock_options options;
    struct owner *reads, *sems, *fair, *set;
    const char *keys[2] = {"one", "two"};
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "r";
    options.kind = RLOCK_KIND_READ;
    reads = owner_with(client, &options);
    options.key = "s";
    options.kind = RLOCK_KIND_SEMAPHORE;
    options.permits = 3;
    sems = owner_with(client, &options);
    options.key = "f";
    options.permits = 0;
    options.kind = RLOCK_KIND_FAIR;
    fair = owner_with(client, &options);
    options.key = NULL;
    options.kind = RLOCK_KIND_MUTEX;
    options.keys = keys;
    options.key_count = 2;
    set = owner_with(client, &options);
    acquire(reads, 0, 0);
    acquire(sems, 0, 0);
    acquire(fair, 0, 0);
    acquire(set, 0, 0);
    rlock_testing_pass(t, 0);
    assert_int_equal(rlock_testing_hold(t, "s", 1000), RLOCK_ERR_BUSY);
    assert_int_equal(rlock_testing_steal(t, "r"), RLOCK_OK);
    assert_int_equal(rlock_testing_steal(t, "s"), RLOCK_OK);
    assert_int_equal(rlock_testing_delete(t, "f"), RLOCK_OK);
    assert_int_equal(rlock_testing_steal(t, "two"), RLOCK_OK);
    rlock_testing_pass(t, 100);
    assert_int_equal(reads->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    assert_int_equal(sems->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    assert_int_equal(fair->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    assert_int_equal(set->reason[RLOCK_LOST], RLOCK_REASON_STOLEN);
    assert_int_equal(rlock_testing_holders(t, "one"), 0); /* the rest of a set is given back */
    acquire(sems, 0, 0);
    rlock_testing_pass(t, 0);
    assert_int_equal(sems->status[RLOCK_ACQUIRED], RLOCK_ERR_BUSY);
    owner_new("s"); /* the last handle made for the key is a mutex now */
    assert_int_equal(rlock_testing_hold(t, "s", 1000), RLOCK_ERR_WRONG_TYPE);
}

static void full_server_says_of_several_keys_that_one_of_them_is_held(void **state) {
    const char *keys[3] = {"one", "second", "last"};
    rlock_options options;
    struct owner *set;
    (void)state;
    memset(&options, 0, sizeof options);
    options.keys = keys;
    options.key_count = 3;
    set = owner_with(client, &options);
    assert_int_equal(rlock_testing_hold(t, "last", 60000), RLOCK_OK);
    rlock_testing_server(t, RLOCK_TESTING_FULL);
    acquire(set, 0, 1000);
    rlock_testing_pass(t, 1);
    assert_int_equal(set->status[RLOCK_ACQUIRED], RLOCK_ERR_BUSY);
    assert_int_equal(rlock_testing_let_go(t, "last"), RLOCK_OK);
    acquire(set, 0, 1000);
    rlock_testing_pass(t, 1);
    assert_int_equal(set->status[RLOCK_ACQUIRED], RLOCK_ERR_SERVER);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    acquire(set, 0, 1000);
    rlock_testing_pass(t, 1);
    assert_int_equal(set->status[RLOCK_ACQUIRED], RLOCK_OK);
    assert_int_equal(rlock_testing_holders(t, "one") + rlock_testing_holders(t, "second"), 2);
}

static void waiters_of_a_queue_are_served_in_their_order(void **state) {
    rlock_options options;
    struct owner *o[3];
    int i, k;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "f";
    options.kind = RLOCK_KIND_FAIR;
    for (i = 0; i < 3; i++) {
        o[i] = owner_with(client, &options);
    }
    assert_int_equal(rlock_testing_hold(t, "f", 60000), RLOCK_OK);
    for (i = 0; i < 3; i++) {
        acquire(o[i], RLOCK_FOREVER, 0);
        rlock_testing_pass(t, 10);
    }
    assert_int_equal(rlock_testing_let_go(t, "f"), RLOCK_OK);
    for (i = 0; i < 3; i++) {
        rlock_testing_pass(t, 10);
        for (k = 0; k < 3; k++) {
            assert_int_equal(o[k]->count[RLOCK_ACQUIRED], k <= i);
        }
        assert_int_equal(rlock_release(o[i]->lock, on_event, o[i]), RLOCK_OK);
    }
}

/* What a real server does when nobody hears its notification: docs/guarantees.md, "The queue". */
static void waiter_whose_client_is_gone_is_passed_over(void **state) {
    static const char *const keys[] = {"down", "denied", "killed"};
    rlock_options options;
    int i;
    (void)state;
    memset(&options, 0, sizeof options);
    options.kind = RLOCK_KIND_FAIR;
    for (i = 0; i < 3; i++) {
        rlock_testing *two = rlock_testing_new(t);
        rlock_client *other = client_on(two);
        struct owner *gone, *next;
        int64_t start_ms;
        options.key = keys[i];
        gone = owner_with(other, &options);
        next = owner_with(client, &options);
        assert_int_equal(rlock_testing_hold(t, keys[i], 60000), RLOCK_OK);
        acquire(gone, RLOCK_FOREVER, 0);
        rlock_testing_pass(t, 10);
        acquire(next, RLOCK_FOREVER, 0);
        rlock_testing_pass(t, 10);
        if (i == 2) {
            rlock_testing_kill(two);
        } else {
            rlock_testing_server(two, i == 0 ? RLOCK_TESTING_DOWN : RLOCK_TESTING_DENIED);
        }
        start_ms = rlock_testing_now_ms(t);
        assert_int_equal(rlock_testing_let_go(t, keys[i]), RLOCK_OK);
        rlock_testing_pass(t, TIMEOUT_MS / 2);
        assert_int_equal(next->count[RLOCK_ACQUIRED], 1);
        assert_int_equal(next->at_ms[RLOCK_ACQUIRED], start_ms);
        assert_int_equal(rlock_release(next->lock, NULL, NULL), RLOCK_OK);
        rlock_testing_server(two, RLOCK_TESTING_UP);
        rlock_testing_pass(t, 1500);
        assert_int_equal(gone->count[RLOCK_ACQUIRED], i < 2);
        assert_int_equal(gone->status[RLOCK_ACQUIRED], i == 1 ? RLOCK_ERR_AUTH : RLOCK_OK);
        rlock_free(gone->lock);
        gone->lock = NULL;
        rlock_client_free(other);
        rlock_testing_free(two);
    }
}

static void commands_that_mean_nothing_are_refused(void **state) {
    (void)state;
    assert_int_equal(rlock_testing_hold(t, "k", 9), RLOCK_ERR_ARG);
    assert_int_equal(rlock_testing_hold(t, "k", 86400001), RLOCK_ERR_ARG);
    assert_int_equal(rlock_testing_hold(t, "", 1000), RLOCK_ERR_ARG);
    assert_int_equal(rlock_testing_steal(t, NULL), RLOCK_ERR_ARG);
    assert_int_equal(rlock_testing_let_go(t, "k"), RLOCK_ERR_NOT_HELD);
    assert_int_equal(rlock_testing_holders(t, "k"), 0);
    assert_int_equal(rlock_testing_steal(t, "k"), RLOCK_OK); /* a free key is taken too */
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
    rlock_testing_free(NULL);
}

static void store_needs_the_loop_of_its_process(void **state) {
    rlock_testing *two = rlock_testing_new(t);
    rlock_client *none = NULL;
    rlock_config config;
    (void)state;
    memset(&config, 0, sizeof config);
    config.loop = rlock_testing_loop(two);
    config.store = rlock_testing_store(t);
    config.log = on_log;
    assert_int_equal(rlock_client_new(&none, &config), RLOCK_ERR_ARG);
    assert_null(none);
    assert_non_null(strstr(log_text, "rlock_testing_store needs rlock_testing_loop"));
    rlock_testing_free(two);
}

static void faults_of_one_process_are_not_those_of_another(void **state) {
    rlock_testing *two = rlock_testing_new(t);
    rlock_client *other = client_on(two);
    struct owner *a = owner_new("a"), *b = owner_of(other, "b");
    (void)state;
    rlock_testing_server(t, RLOCK_TESTING_DOWN);
    acquire(a, 0, 0);
    acquire(b, 0, 0);
    rlock_testing_pass(t, 100);
    assert_int_equal(a->status[RLOCK_ACQUIRED], RLOCK_ERR_CONN);
    assert_int_equal(b->status[RLOCK_ACQUIRED], RLOCK_OK);
    rlock_free(b->lock);
    b->lock = NULL;
    rlock_client_free(other);
    assert_int_equal(rlock_testing_holders(t, "b"), 0);
    rlock_testing_free(two);
}

static void told_shutdown(rlock_client *c, int status, void *user) {
    (void)c;
    *(int *)user = status;
}

static void shutdown_releases_all_or_says_that_it_could_not(void **state) {
    struct owner *o = holder("k", 0);
    int status = 1;
    (void)state;
    rlock_testing_server(t, RLOCK_TESTING_SILENT);
    assert_int_equal(rlock_client_shutdown(client, 1000, told_shutdown, &status), RLOCK_OK);
    rlock_testing_pass(t, 999);
    assert_int_equal(status, 1);
    rlock_testing_pass(t, 1);
    assert_int_equal(status, RLOCK_ERR_TIMEOUT);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_CLOSED);
    assert_int_equal(rlock_testing_holders(t, "k"), 1);
}

/* --- what a program may do meanwhile --- */

/* The server executes what nobody waits for any more; it is released. */
static void canceled_acquire_that_is_executed_late_is_released(void **state) {
    struct owner *o = owner_new("k");
    (void)state;
    connects();
    rlock_testing_server(t, RLOCK_TESTING_SILENT);
    acquire(o, 5000, 60000);
    rlock_testing_pass(t, 10);
    assert_int_equal(rlock_cancel(o->lock), RLOCK_OK);
    rlock_testing_pass(t, 10);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_CANCELED);
    rlock_testing_server(t, RLOCK_TESTING_UP);
    assert_int_equal(rlock_testing_holders(t, "k"), 0); /* the release came right after it */
    rlock_testing_pass(t, 10);
    assert_int_equal(rlock_testing_holders(t, "k"), 0);
}

static void on_info(rlock_client *c, const rlock_info *info, void *user) {
    (void)c;
    *(rlock_info *)user = *info;
    assert_true(info->token == NULL || strlen(info->token) == info->token_len);
}

static void questions_are_answered_by_the_server_too(void **state) {
    rlock_options options;
    rlock_info info;
    struct owner *o = holder("k", 60000);
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "k";
    assert_int_equal(rlock_inspect(client, &options, on_info, &info), RLOCK_OK);
    rlock_testing_pass(t, 0);
    assert_int_equal(info.status, RLOCK_OK);
    assert_int_equal(info.holders, 1);
    assert_true(info.token_len > 36);
    assert_int_equal(rlock_force_release(client, &options, on_info, &info), RLOCK_OK);
    rlock_testing_pass(t, 0);
    assert_int_equal(info.holders, 1);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->reason[RLOCK_LOST], RLOCK_REASON_DELETED);
    options.key = "s";
    options.kind = RLOCK_KIND_SEMAPHORE;
    options.permits = 5;
    rlock_testing_server(t, RLOCK_TESTING_FULL);
    assert_int_equal(rlock_set_permits(client, &options, 3, on_info, &info), RLOCK_OK);
    rlock_testing_pass(t, 0);
    assert_int_equal(info.status, RLOCK_ERR_SERVER);
}

static void callback_that_frees(struct owner *o, const rlock_event *event) {
    (void)o, (void)event;
    rlock_client_free(client);
    client = NULL;
}

static void client_may_be_freed_in_every_condition(void **state) {
    int condition, inside, latency;
    for (condition = RLOCK_TESTING_UP; condition <= RLOCK_TESTING_FULL; condition++) {
        for (inside = 0; inside < 2; inside++) {
            for (latency = 0; latency < 20; latency += 10) {
                struct owner *held = holder("held", 500), *waits = owner_new("waits");
                assert_int_equal(rlock_testing_hold(t, "waits", 60000), RLOCK_OK);
                acquire(waits, RLOCK_FOREVER, 0);
                rlock_testing_latency(t, latency);
                rlock_testing_pass(t, 1);
                held->react = inside ? callback_that_frees : NULL;
                rlock_testing_server(t, (rlock_testing_condition)condition);
                assert_int_equal(rlock_renew(held->lock, 0, on_event, held), RLOCK_OK);
                rlock_testing_pass(t, inside ? 1000 : 1);
                assert_int_equal(client == NULL, inside);
                teardown(state);
                setup(state);
            }
        }
    }
}

static void kit_without_memory_says_so(void **state) {
    struct owner *o = owner_new("k"), *waits = owner_new("w");
    rlock_testing *other;
    rlock_client *none;
    rlock_config config;
    struct timed timed = {0, 0};
    int i;
    (void)state;
    for (i = 1; i < 4; i++) {
        memory_lasts = i;
        other = rlock_testing_new(NULL);
        assert_true((other == NULL) == (memory_lasts == 0));
        memory_lasts = 0;
        rlock_testing_free(other);
    }
    for (i = 1; i < 3; i++) {
        memset(&config, 0, sizeof config);
        config.loop = rlock_testing_loop(t);
        config.store = rlock_testing_store(t);
        memory_lasts = i;
        assert_int_equal(rlock_client_new(&none, &config), RLOCK_ERR_NOMEM);
        assert_null(none);
    }
    memory_lasts = 1;
    assert_int_equal(rlock_testing_after(t, 1, fire_timed, &timed), RLOCK_ERR_NOMEM);
    memory_lasts = 1;
    assert_int_equal(rlock_testing_hold(t, "other", 1000), RLOCK_ERR_NOMEM);
    memory_lasts = 1;
    acquire(o, RLOCK_FOREVER, 0);
    assert_int_equal(memory_lasts, 0);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_ERR_NOMEM);
    acquire(o, RLOCK_FOREVER, 0);
    rlock_testing_pass(t, 0);
    assert_int_equal(o->status[RLOCK_ACQUIRED], RLOCK_OK);
    memory_lasts = 1;
    acquire(waits, RLOCK_FOREVER, 0); /* and taken back before it was refused */
    rlock_free(waits->lock);
    waits->lock = NULL;
    rlock_testing_pass(t, 0);
    assert_int_equal(rlock_testing_holders(t, "w"), 0);
}

/* --- a test that cannot go on --- */

static void spins(void *user) {
    rlock_testing_after((rlock_testing *)user, 0, spins, user);
}

static void leaves_a_client(void) {
    rlock_testing_free(t);
}

static void never_rests(void) {
    spins(t);
    rlock_testing_pass(t, 1);
}

/* Returns the signal that ended the process which did that, whose words are kept. */
static int signal_of(void (*does)(void), char *words, size_t size) {
    int ends[2], status;
    ssize_t n;
    pid_t pid;
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], 2);
        does();
        _exit(0);
    }
    close(ends[1]);
    n = read(ends[0], words, size - 1);
    words[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void hopeless_test_is_ended_with_a_word(void **state) {
    char words[256];
    (void)state;
    assert_int_equal(signal_of(leaves_a_client, words, sizeof words), SIGABRT);
    assert_non_null(strstr(words, "rlock_testing: a client is left"));
    assert_int_equal(signal_of(never_rests, words, sizeof words), SIGABRT);
    assert_non_null(strstr(words, "rlock_testing: the program never comes to rest"));
}

#include "testing_real.h"

#include "testing_loops.h"

/* --- the group --- */

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* cmocka has one state for the fixture and the test, so each fault has its own fixture. */
#define FAULT(name, i, word) \
    { #name " (" word ")", name, setup, teardown, (void *)(uintptr_t)(const void *)&faults[i] }
#define EACH_FAULT(name)                                                        \
    FAULT(name, 0, "down"), FAULT(name, 1, "silent"), FAULT(name, 2, "denied"), \
        FAULT(name, 3, "full")

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(time_passes_only_when_the_test_says_so),
        TEST(day_of_renewals_takes_no_time),
        TEST(timers_of_the_program_fire_in_their_order),
        TEST(until_stops_at_the_callback_that_it_waits_for),
        TEST(program_that_is_always_late_does_not_stop_the_test),
        TEST(time_without_an_end_is_a_hundred_years),
        TEST(handles_that_are_left_are_counted),
        TEST(frozen_process_is_notified_of_its_loss_when_it_goes_on),
        TEST(short_freeze_costs_nothing),
        TEST(expiry_comes_before_an_answer_that_waited_in_the_socket),
        TEST(answer_that_waited_in_the_socket_is_read_before_the_connection_is_given_up),
        TEST(callback_that_blocks_delays_all_of_its_process),
        TEST(other_process_goes_on_while_one_is_frozen),
        TEST(killed_process_keeps_its_key_until_the_lease_is_over),
        EACH_FAULT(fault_ends_an_attempt),
        EACH_FAULT(fault_ends_a_wait_that_is_too_short),
        EACH_FAULT(fault_ends_a_renewal_by_hand),
        EACH_FAULT(fault_that_lasts_ends_the_hold_at_its_deadline),
        EACH_FAULT(fault_that_lasts_ends_a_release_at_the_deadline),
        EACH_FAULT(fault_that_ends_is_outlived),
        TEST(server_that_is_down_from_the_start_is_found_when_it_comes),
        TEST(silent_server_does_not_let_anyone_in),
        TEST(attempt_to_connect_outlives_a_short_silence),
        TEST(connection_that_lasted_is_made_again_at_once),
        TEST(silence_that_is_short_is_only_a_delay),
        TEST(silence_cuts_off_what_is_pushed_too),
        TEST(answer_that_takes_longer_than_the_command_timeout_is_none),
        TEST(connecting_takes_the_latency_too),
        TEST(server_that_is_too_far_away_is_not_connected_to),
        TEST(lost_answer_of_an_attempt_leaves_nothing_behind),
        TEST(lost_answer_of_a_waiter_is_asked_for_again),
        TEST(request_whose_answer_is_lost_was_executed),
        TEST(lost_answer_of_a_release_ends_as_not_held),
        TEST(stolen_lock_is_reported_at_once),
        TEST(steal_behind_a_forced_release_is_done_when_it_returns),
        TEST(release_of_a_stolen_lock_takes_nothing_from_the_thief),
        TEST(deleted_key_is_reported_as_deleted),
        TEST(key_that_another_holds_is_waited_for),
        TEST(key_that_another_releases_is_acquired_at_once),
        TEST(others_know_the_kind_of_the_key),
        TEST(full_server_says_of_several_keys_that_one_of_them_is_held),
        TEST(waiters_of_a_queue_are_served_in_their_order),
        TEST(waiter_whose_client_is_gone_is_passed_over),
        TEST(commands_that_mean_nothing_are_refused),
        TEST(store_needs_the_loop_of_its_process),
        TEST(faults_of_one_process_are_not_those_of_another),
        TEST(shutdown_releases_all_or_says_that_it_could_not),
        TEST(canceled_acquire_that_is_executed_late_is_released),
        TEST(questions_are_answered_by_the_server_too),
        TEST(client_may_be_freed_in_every_condition),
        TEST(kit_without_memory_says_so),
        TEST(hopeless_test_is_ended_with_a_word),
        LIVE_TESTS,
        cmocka_unit_test(kit_says_of_each_fault_and_theft_what_a_real_server_says),
        cmocka_unit_test(kit_says_of_a_full_server_what_a_real_one_says_of_each_kind),
        cmocka_unit_test(kit_says_of_a_deleted_key_what_a_real_server_says_of_each_kind),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
