/* wires.h - a test that is the same on both wires of Redis is written once, and run on each
 *
 *     static void release_deletes_only_its_own_token(void **state) {
 *         rlock_wire wire = wire_of(state);
 *         struct owner *o = owner_new(client_on(wire), "k");
 *
 * and in the list of the suite's tests
 *
 *         ON_EACH_WIRE(release_deletes_only_its_own_token),
 *
 * The second run begins as the first one did: test_ends and test_begins of the suite stand between
 * them. A build without the wire of Redisson has no second run. Include it after the suite's
 * `server`.
 */
#ifndef TESTS_WIRES_H
#define TESTS_WIRES_H

#include "kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const rlock_wire wires[] = {
    RLOCK_WIRE_STRING,
#if RLOCK__HAS_REDISSON
    RLOCK_WIRE_REDISSON,
#endif
};

#define WIRES (sizeof wires / sizeof wires[0])

static int test_begins(void **state);
static int test_ends(void **state);

#define ON_EACH_WIRE(f) \
    { #f, on_each_wire, test_begins, test_ends, (void *)(uintptr_t)f }

static inline void on_each_wire(void **state) {
    CMUnitTestFunction test = (CMUnitTestFunction)(uintptr_t)*state;
    rlock_wire wire = wires[0];
    void *given = &wire;
    size_t i;

    test(&given);
    for (i = 1; i < WIRES; i++) {
        assert_int_equal(test_ends(state), 0);
        assert_int_equal(test_begins(state), 0);
        wire = wires[i];
        test(&given);
    }
}

/* Returns the wire that a test of ON_EACH_WIRE is run on. */
static inline rlock_wire wire_of(void **state) {
    assert_non_null(*state);
    return *(const rlock_wire *)*state;
}

static inline rlock_client *client_on(rlock_wire wire) {
    rlock_config config = kit_config(&server);
    rlock_client *client;

    config.wire = wire;
    client = kit_client(&config);
    assert_non_null(client);
    return client;
}

/* A lock of another program, as that wire has it. */
static inline void foreign_takes(rlock_wire wire, const char *key, int lease_ms) {
    if (wire == RLOCK_WIRE_STRING) {
        tell(ask(&server, "SET %s foreign PX %d", key, lease_ms));
    } else {
        tell(ask(&server, "HSET %s foreign:1 1", key));
        tell(ask(&server, "PEXPIRE %s %d", key, lease_ms));
    }
}

/* Its release, or a forced unlock: the string wire needs no word beside the DEL. */
static inline void foreign_deletes(rlock_wire wire, const char *key) {
    tell(ask(&server, "DEL %s", key));
    if (wire == RLOCK_WIRE_REDISSON) {
        tell(ask(&server, "PUBLISH redisson_lock__channel:{%s} 0", key));
    }
}

#endif /* TESTS_WIRES_H */
