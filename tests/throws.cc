/* throws.cc - exceptions out of callbacks, on the loop of rlock_poll.h and the store in the
 * process, and on those of rlock_testing.h
 *
 * The implementation is compiled as C++ here, and once more as C with -fexceptions: throws-c.
 */

#ifdef IMPLEMENTED_IN_C
#define COUNTED 0 /* the sanitizer says what is leaked */
#else
#define COUNTED 1
#define RLOCK_IMPLEMENTATION
#define RLOCK_MALLOC(n) counted_malloc(n)
#define RLOCK_FREE(p) counted_free(p)
#endif
#define RLOCK_NO_REDIS

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

extern "C" {
#include <cmocka.h>
}

static long live; /* blocks of the library */

#if COUNTED
static void *counted_malloc(size_t size) {
    live++;
    return malloc(size);
}

static void counted_free(void *memory) {
    live--;
    free(memory);
}
#endif

#include "rlock_poll.h"
#include "rlock_testing.h"

#define KINDS (RLOCK_LOST + 2) /* those of events, a question, the end of a shutdown */
#define QUESTION (RLOCK_LOST + 1)
#define DONE (RLOCK_LOST + 2)

struct thrown {
    int kind;
};

/* Throws in the first callback of a kind, once what it does has been done. */
static struct {
    rlock_poll *loop;
    rlock_store *store;
    rlock_client *client;
    rlock *locks[3];
    int kind;        /* of the callback that throws; 0 = none does */
    int told[8];     /* callbacks by kind */
    bool frees;      /* it frees the client first */
    bool nests;      /* it runs the loop first, in which the next callback throws as well */
    int caught;      /* by who runs the loop */
    rlock *submits;  /* it acquires this one first */
    int granted_too; /* how often that was granted */
} t;

static void turn(void) {
    try {
        rlock_poll_once(t.loop, 20);
    } catch (const thrown &what) {
        assert_true(what.kind >= RLOCK_ACQUIRED && what.kind <= DONE);
        t.caught++;
    }
}

static void on_third(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    t.granted_too += event->kind == RLOCK_ACQUIRED && event->status == RLOCK_OK;
}

static void told(int kind) {
    t.told[kind]++;
    if (kind != t.kind) {
        return;
    }
    if (t.submits != NULL && kind != DONE) {
        assert_int_equal(rlock_acquire(t.submits, 0, 1000, on_third, NULL), RLOCK_OK);
    }
    t.submits = NULL;
    if (t.nests) {
        t.nests = false;
        turn();
        turn();
    }
    t.kind = 0;
    if (t.frees) {
        rlock_client_free(t.client);
        t.client = NULL;
    }
    throw thrown{kind};
}

static void on_event(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    told((int)event->kind);
}

static void on_info(rlock_client *client, const rlock_info *info, void *user) {
    (void)client, (void)user;
    assert_int_equal(info->status, RLOCK_OK);
    assert_true(info->token_len > 0); /* words of its own, which are not to be leaked */
    told(QUESTION);
}

static void on_done(rlock_client *client, int status, void *user) {
    (void)client, (void)status, (void)user;
    told(DONE);
}

static int begin(void **state) {
    static const char *const keys[] = {"first", "second", "third"};
    rlock_config config = rlock_config();
    (void)state;
    t.kind = t.caught = t.granted_too = 0;
    t.frees = t.nests = false;
    for (int i = 0; i < 8; i++) {
        t.told[i] = 0;
    }
    live = 0;
    t.loop = rlock_poll_new();
    assert_int_equal(rlock_memory_new(&t.store), RLOCK_OK);
    config.loop = rlock_poll_loop(t.loop);
    config.store = t.store;
    assert_int_equal(rlock_client_new(&t.client, &config), RLOCK_OK);
    for (int i = 0; i < 3; i++) {
        rlock_options options = rlock_options();
        options.key = keys[i];
        options.on_lost = on_event;
        assert_int_equal(rlock_new(&t.locks[i], t.client, &options), RLOCK_OK);
    }
    t.submits = t.locks[2];
    return 0;
}

static int end(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        rlock_free(t.locks[i]);
    }
    rlock_client_free(t.client);
    rlock_memory_free(t.store);
    rlock_poll_free(t.loop);
    assert_int_equal(live, 0);
    return 0;
}

static void iterates_until(int kind, int count) {
    for (int i = 0; i < 500 && t.told[kind] < count; i++) {
        turn();
    }
    assert_int_equal(t.told[kind], count);
}

/* Two callbacks of a kind that come in one turn; of a shutdown one, behind two of LOST. */
static void ask_for(int kind) {
    rlock_options options = rlock_options();
    options.key = "first";
    if (kind != RLOCK_ACQUIRED) {
        int64_t lease_ms = kind == RLOCK_LOST ? 20 : 10000;
        assert_int_equal(rlock_acquire(t.locks[0], 0, lease_ms, on_event, NULL), RLOCK_OK);
        assert_int_equal(rlock_acquire(t.locks[1], 0, lease_ms, on_event, NULL), RLOCK_OK);
        iterates_until(RLOCK_ACQUIRED, 2);
    }
    t.kind = kind;
    for (int i = 0; i < 2; i++) {
        switch (kind) {
        case RLOCK_ACQUIRED:
            assert_int_equal(rlock_acquire(t.locks[i], 0, 10000, on_event, NULL), RLOCK_OK);
            break;
        case RLOCK_RENEWED:
            assert_int_equal(rlock_renew(t.locks[i], 0, on_event, NULL), RLOCK_OK);
            break;
        case RLOCK_RELEASED:
            assert_int_equal(rlock_release(t.locks[i], on_event, NULL), RLOCK_OK);
            break;
        case RLOCK_LOST: break;
        case QUESTION:
            assert_int_equal(rlock_inspect(t.client, &options, on_info, NULL), RLOCK_OK);
            break;
        default:
            if (i == 0) {
                assert_int_equal(rlock_client_shutdown(t.client, 0, on_done, NULL), RLOCK_OK);
            }
        }
    }
}

static void after_an_exception_the_rest_comes_and_the_client_goes_on(void **state) {
    for (int kind = RLOCK_ACQUIRED; kind <= KINDS; kind++) {
        ask_for(kind);
        iterates_until(kind, kind == DONE ? 1 : 2);
        assert_int_equal(t.caught, 1);
        if (kind != DONE) {
            for (int i = 0; i < 100 && t.granted_too == 0; i++) {
                turn();
            }
            assert_int_equal(t.granted_too, 1); /* what it had submitted */
        }
        end(state);
        begin(state);
    }
}

static void exception_out_of_the_callback_that_freed_the_client_leaks_nothing(void **state) {
    for (int kind = RLOCK_ACQUIRED; kind <= KINDS; kind++) {
        ask_for(kind);
        t.frees = true;
        iterates_until(kind, 1);
        for (int i = 0; i < 3; i++) {
            turn();
        }
        assert_int_equal(t.caught, 1);
        assert_int_equal(t.told[kind], 1);
        assert_null(t.client);
        end(state);
        begin(state);
    }
}

/* The callbacks of the inner loop come out of it before the outer one throws. */
static void exceptions_out_of_a_loop_inside_a_callback_are_counted_right(void **state) {
    for (int kind = RLOCK_ACQUIRED; kind <= QUESTION; kind++) {
        ask_for(kind);
        t.nests = true;
        iterates_until(kind, 2);
        for (int i = 0; i < 100 && t.granted_too == 0; i++) {
            turn();
        }
        assert_int_equal(t.granted_too, 1);
        assert_int_equal(t.caught, 2);
        end(state);
        begin(state);
    }
}

/* After it the kit still knows whether it is called from a callback: a freeze dispatches what is
 * due. */
static void exception_passes_through_the_loop_of_the_kit(void **state) {
    rlock_testing *kit = rlock_testing_new(NULL);
    rlock_config config = rlock_config();
    rlock_options options = rlock_options();
    rlock_client *client;
    rlock *lock;
    (void)state;
    config.loop = rlock_testing_loop(kit);
    config.store = rlock_testing_store(kit);
    options.key = "first";
    options.on_lost = on_event;
    assert_int_equal(rlock_client_new(&client, &config), RLOCK_OK);
    assert_int_equal(rlock_new(&lock, client, &options), RLOCK_OK);
    assert_int_equal(rlock_acquire(lock, 0, 1000, on_event, NULL), RLOCK_OK);
    t.kind = RLOCK_ACQUIRED;
    t.submits = NULL;
    try {
        rlock_testing_pass(kit, 0);
    } catch (const thrown &what) {
        t.caught += what.kind == RLOCK_ACQUIRED;
    }
    assert_int_equal(t.caught, 1);
    assert_true(rlock_is_held(lock));
    rlock_testing_freeze(kit, 2000);
    assert_int_equal(t.told[RLOCK_LOST], 1);
    rlock_free(lock);
    rlock_client_free(client);
    rlock_testing_free(kit);
}

static int none(void **state) {
    (void)state;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(after_an_exception_the_rest_comes_and_the_client_goes_on,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            exception_out_of_the_callback_that_freed_the_client_leaks_nothing, begin, end),
        cmocka_unit_test_setup_teardown(
            exceptions_out_of_a_loop_inside_a_callback_are_counted_right, begin, end),
        cmocka_unit_test_setup_teardown(exception_passes_through_the_loop_of_the_kit, begin, end),
    };
    return cmocka_run_group_tests(tests, none, none);
}
