/* postgres_examples.c - the examples that need PostgreSQL say what they should, on private servers
 */

#define RLOCK_IMPLEMENTATION
#include "virtual.h"

#include "postgres.h"
#include "server.h"

static struct server redis, postgres;
static char words[4096]; /* of the last program */

static int group_begins(void **state) {
    (void)state;
    return server_start(&redis, NULL) != 0 || postgres_start(&postgres) != 0 ||
                   postgres_installs(&postgres, "stores/rlock_postgres.sql") != 0
               ? -1
               : 0;
}

static int group_ends(void **state) {
    (void)state;
    server_stop(&redis);
    server_stop(&postgres);
    return 0;
}

/* Runs an example with these arguments; what it says is in `words`. */
static int runs(const char *name, const char *arguments) {
    const char *folder = getenv("RLOCK_EXAMPLES");
    char command[600];
    FILE *program;
    size_t n;
    snprintf(command, sizeof command, "timeout 100 %s/%s %s 2>&1",
             folder != NULL ? folder : "build/examples", name, arguments);
    program = popen(command, "r");
    assert_non_null(program);
    n = fread(words, 1, sizeof words - 1, program);
    words[n] = 0;
    print_message("%s", words);
    return pclose(program);
}

static void says(const char *what) {
    if (strstr(words, what) == NULL) {
        fail_msg("it does not say \"%s\"", what);
    }
}

static const char *both_urls(const char *option) {
    static char text[400];
    snprintf(text, sizeof text, "%s unix://%s %s", option, redis.socket, postgres.url);
    return text;
}

static void moving_is_without_two_holders(void **state) {
    (void)state;
    SAME(runs("moving", both_urls("")), 0);
    says("never two held, and fences rose");
}

static void moving_directly_has_two_holders(void **state) {
    int turn = 0;
    (void)state;
    /* On a busy machine no process may have a turn with Redis before all have moved. */
    while (runs("moving", both_urls("--directly")) != 0 && ++turn < 3) {
    }
    assert_true(turn < 3);
    says("TIMES TWO HELD");
}

static void version_refuses_the_late_and_says_what_it_costs(void **state) {
    char text[200];
    (void)state;
    snprintf(text, sizeof text, "%s 1", postgres.url);
    SAME(runs("version", text), 0);
    says("the lock alone       : A CHANGE IS LOST");
    says("the lock, checked    : the holder went on, was refused, and began again");
    says("SELECT ... FOR UPDATE: while the holder was stopped no other process could write");
    says("changes a second, all of one row");
    says("changes a second, each of its own row");
}

int main(int argc, char **argv) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(moving_is_without_two_holders),
        cmocka_unit_test(moving_directly_has_two_holders),
        cmocka_unit_test(version_refuses_the_late_and_says_what_it_costs),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("examples", tests, group_begins, group_ends);
}
