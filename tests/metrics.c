/* metrics.c - rlock_metrics.h and rlock_trace.h: what their readers make of what they write
 *
 * A program in virtual time on the store inside the process is watched by both. The page is given
 * to Debian's promtool, which reads and judges it as Prometheus does, the trace to tests/trace.py.
 */

#define RLOCK_IMPLEMENTATION
#define RLOCK_NO_REDIS
#include "virtual.h"

#include "rlock_metrics.h"
#include "rlock_trace.h"

#include <sys/wait.h>
#include <unistd.h>

#define ODD \
    "q\"\\\n\x01 \xc3\xa9 \xff\xed\xa0\x80 \xf0\x9f\x94\x92" /* no JSON, no UTF-8, and some */
#define LONG_KEY \
    "0123456789012345678901234567890123456789012345678901234567890\xe2\x82\xac and more"

static struct {
    struct virtual_loop loop;
    rlock_store *store;
    rlock_config config;
    rlock_client *client, *other;
    rlock_metrics metrics;
    rlock_trace trace;
    FILE *file;
    char folder[64], page[4 * RLOCK_METRICS_ROOM], said[4096];
    int reports;
} g;

static char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", g.folder, name);
    return path;
}

/* A hook of the program's own, before both. */
static void on_report(void *user, const rlock_report *report) {
    assert_ptr_equal(user, &g);
    g.reports++;
    rlock_metrics_report(&g.metrics, report);
    if (g.file != NULL) {
        rlock_trace_report(&g.trace, report);
    }
}

static int setup(void **state) {
    const char *tmp = getenv("TMPDIR");

    (void)state;
    memset(&g, 0, sizeof g);
    snprintf(g.folder, sizeof g.folder, "%s/rlock-metrics-XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(g.folder));
    virtual_begin(&g.loop);
    rlock_metrics_init(&g.metrics, NULL);
    SAME(rlock_memory_new(&g.store), RLOCK_OK);
    g.config.loop = virtual_hooks(&g.loop);
    g.config.store = g.store;
    g.config.watchdog_lease_ms = 3000;
    g.config.on_event = on_report;
    g.config.event_user = &g;
    SAME(rlock_client_new(&g.client, &g.config), RLOCK_OK);
    SAME(rlock_client_new(&g.other, &g.config), RLOCK_OK);
    return 0;
}

static void end_program(void) {
    virtual_free_owners(&g.loop);
    virtual_run_ms(&g.loop, 100);
    virtual_client_free(&g.loop, g.client);
    virtual_client_free(&g.loop, g.other);
    g.client = g.other = NULL;
}

static int teardown(void **state) {
    (void)state;
    if (!virtual_torn(&g.loop)) {
        end_program();
        rlock_memory_free(g.store);
        virtual_end(&g.loop);
    }
    unlink(path_of("page"));
    unlink(path_of("trace.json"));
    unlink(path_of("said"));
    rmdir(g.folder);
    return 0;
}

/* ------------------------------------------------------------------------------------------------
 * What a page says, and what a program says to a file.
 */

static size_t page_of(const rlock_metrics *metrics, size_t count) {
    size_t length = rlock_metrics_write(metrics, count, g.page, sizeof g.page);
    BETWEEN(length, 1, sizeof g.page - 1);
    SAME(strlen(g.page), length);
    return length;
}

/* The page has this line, once. */
static void has(const char *line) {
    char whole[256];
    const char *at;
    snprintf(whole, sizeof whole, "\n%s\n", line);
    at = strstr(g.page, whole);
    if (at == NULL || strstr(at + 1, whole) != NULL) {
        fail_msg("the page has not, or twice, the line %s", line);
    }
}

/* Runs a command; what it said is in g.said. Returns its exit status. */
static int run(const char *command) {
    char line[512];
    FILE *said;
    size_t n;
    int status;
    snprintf(line, sizeof line, "%s >%s/said 2>&1", command, g.folder);
    status = system(line);
    said = fopen(path_of("said"), "r");
    assert_non_null(said);
    n = fread(g.said, 1, sizeof g.said - 1, said);
    g.said[n] = 0;
    fclose(said);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What promtool says of the page, as of what a program gives to Prometheus. */
static int promtool(void) {
    char command[128];
    FILE *page = fopen(path_of("page"), "w");
    assert_non_null(page);
    fputs(g.page, page);
    fclose(page);
    snprintf(command, sizeof command, "promtool check metrics <%s", path_of("page"));
    return run(command);
}

static void prometheus_has_nothing_to_say(void) {
    int status = promtool();
    if (status != 0 || g.said[0] != 0) {
        fail_msg("promtool, which ends with %d: %s", status, g.said);
    }
}

/* ------------------------------------------------------------------------------------------------
 * A program: three hold one key in turn, one by a local hand-over; one is refused, one loses.
 */

static struct owner *owner_of(rlock_client *client, const char *key) {
    rlock_options options;
    memset(&options, 0, sizeof options);
    options.key = key;
    return owner_new(&g.loop, client, &options);
}

static void program(void) {
    struct owner *first = owner_of(g.client, ODD), *second = owner_of(g.client, ODD);
    struct owner *other = owner_of(g.other, ODD), *longest = owner_of(g.client, LONG_KEY);
    rlock_report report;
    rlock_options options;
    SAME(owner_acquire(first, RLOCK_FOREVER, 0), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(owner_acquire(second, RLOCK_FOREVER, 0), RLOCK_OK);
    SAME(owner_acquire(other, RLOCK_FOREVER, 0), RLOCK_OK);
    virtual_run_ms(&g.loop, 15);
    SAME(owner_release(first), RLOCK_OK); /* young enough to be handed on */
    virtual_stall(&g.loop, 2000);
    virtual_idle(&g.loop);
    assert_true(rlock_is_held(second->lock));
    virtual_run_ms(&g.loop, 3000); /* the watchdog renews it */
    SAME(owner_acquire(first, 0, 0), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(first->seen[RLOCK_ACQUIRED].status, RLOCK_ERR_BUSY);
    SAME(owner_release(second), RLOCK_OK);
    virtual_run_ms(&g.loop, 1000);
    assert_true(rlock_is_held(other->lock));
    memset(&options, 0, sizeof options);
    options.key = ODD;
    SAME(rlock_force_release(g.client, &options, NULL, NULL), RLOCK_OK);
    virtual_run_ms(&g.loop, 200);
    SAME(other->seen[RLOCK_LOST].reason, RLOCK_REASON_DELETED);
    SAME(owner_acquire(longest, RLOCK_FOREVER, 500), RLOCK_OK);
    virtual_run_ms(&g.loop, 1000);
    SAME(longest->seen[RLOCK_LOST].reason, RLOCK_REASON_EXPIRED);
    SAME(owner_acquire(longest, RLOCK_FOREVER, 500), RLOCK_OK);
    virtual_idle(&g.loop); /* and is freed as it holds */
    memset(&report, 0, sizeof report);
    report.kind = RLOCK_REPORT_DISCONNECTED;
    report.link = "commands";
    report.where = "[::1]:6379";
    report.text = "Connection \"reset\"";
    rlock_client_report(g.client, &report);
}

static void program_is_counted_as_it_ran(void **state) {
    (void)state;
    program();
    page_of(&g.metrics, 1);
    has("rlock_acquires_total{result=\"ok\"} 5");
    has("rlock_acquires_total{result=\"busy\"} 1");
    has("rlock_acquires_total{result=\"closed\"} 0");
    has("rlock_releases_total{result=\"ok\"} 1");
    has("rlock_releases_total{result=\"not_held\"} 0");
    has("rlock_losses_total{reason=\"expired\"} 1");
    has("rlock_losses_total{reason=\"deleted\"} 1");
    has("rlock_losses_total{reason=\"stolen\"} 0");
    has("rlock_wait_seconds_count 5");
    has("rlock_wait_seconds_bucket{le=\"0.0001\"} 3");
    has("rlock_wait_seconds_bucket{le=\"0.05\"} 4"); /* 17 ms by hand-over */
    has("rlock_wait_seconds_bucket{le=\"5\"} 5");    /* until another client let go */
    has("rlock_wait_seconds_bucket{le=\"+Inf\"} 5");
    has("rlock_hold_seconds_count 4");
    has("rlock_hand_over_seconds_count 1");
    has("rlock_hand_over_seconds_sum 0.002000");
    has("rlock_hand_over_seconds_bucket{le=\"0.001\"} 0");
    has("rlock_hand_over_seconds_bucket{le=\"0.005\"} 1");
    has("rlock_holds 1");
    has("rlock_waiters 0");
    has("rlock_least_left_seconds 0.000000");
    has("rlock_disconnects_total 1");
    has("rlock_connects_total 0");
    assert_true(g.metrics.renewals.counts[0] + g.metrics.renewals.counts[1] > 2);
    end_program();
    page_of(&g.metrics, 1);
    has("rlock_holds 0");
    has("rlock_hold_seconds_count 5");
}

/* docs/operate.md: the alarm is on losses for any other reason. */
static void shutdown_raises_only_the_losses_that_say_closed(void **state) {
    static const char name[] = "\nrlock_losses_total{reason=\"";
    struct owner *holds = owner_of(g.client, "k");
    const char *at;
    int others = 0;

    (void)state;
    SAME(owner_acquire(holds, RLOCK_FOREVER, 0), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(rlock_client_shutdown(g.client, 1000, NULL, NULL), RLOCK_OK);
    virtual_run_ms(&g.loop, 1000);
    SAME(holds->seen[RLOCK_LOST].reason, RLOCK_REASON_CLOSED);
    page_of(&g.metrics, 1);
    has("rlock_losses_total{reason=\"closed\"} 1");
    for (at = strstr(g.page, name); at != NULL; at = strstr(at + 1, name)) {
        if (strncmp(at + sizeof name - 1, "closed", 6) != 0) {
            assert_memory_equal(strchr(at, '}'), "} 0\n", 4);
            others++;
        }
    }
    SAME(others, 3);
}

static void page_is_one_that_prometheus_reads(void **state) {
    char *line;
    (void)state;
    page_of(&g.metrics, 1); /* of a program that has done nothing */
    assert_null(strstr(g.page, "\nrlock_least_left_seconds "));
    prometheus_has_nothing_to_say();
    program();
    page_of(&g.metrics, 1);
    prometheus_has_nothing_to_say();
    line = strstr(g.page, "\nrlock_holds ");
    memcpy(line, "\nrlock holds ", 13); /* it can say something */
    assert_true(promtool() != 0 && g.said[0] != 0);
    page_of(&g.metrics, 1);
    line = strstr(g.page, "rlock_holds gauge");
    memcpy(line, "rlock_holds count", 17);
    assert_true(promtool() != 0 && g.said[0] != 0);
}

static void several_metrics_are_one_page_with_a_label_each(void **state) {
    static rlock_metrics all[3];
    (void)state;
    program();
    all[0] = all[1] = all[2] = g.metrics;
    all[0].name = "stock";
    all[1].name = "a \"b\" \\ c\nd \xc3\xa9";
    all[2].name = "third";
    page_of(all, 3);
    prometheus_has_nothing_to_say();
    has("rlock_holds{client=\"stock\"} 1");
    has("rlock_holds{client=\"a \\\"b\\\" \\\\ c\\nd \xc3\xa9\"} 1");
    has("rlock_losses_total{client=\"third\",reason=\"expired\"} 1");
    has("rlock_wait_seconds_bucket{client=\"stock\",le=\"+Inf\"} 5");
    has("# TYPE rlock_wait_seconds histogram");
}

static void page_without_room_is_cut_and_says_what_it_needs(void **state) {
    char small[100];
    size_t length;
    (void)state;
    program();
    length = page_of(&g.metrics, 1);
    SAME(rlock_metrics_write(&g.metrics, 1, NULL, 0), length);
    memset(small, 'x', sizeof small);
    SAME(rlock_metrics_write(&g.metrics, 1, small, sizeof small - 1), length);
    SAME(strlen(small), sizeof small - 2);
    SAME(small[sizeof small - 1], 'x');
    SAME(strncmp(small, g.page, sizeof small - 2), 0);
    SAME(rlock_metrics_write(&g.metrics, 1, g.page, length + 1), length);
    SAME(strlen(g.page), length);
}

static void page_of_the_largest_numbers_fits_its_room(void **state) {
    static rlock_metrics largest;
    static char name[65];
    int64_t *at = (int64_t *)(void *)&largest.waits;
    size_t i, count = (sizeof largest - offsetof(rlock_metrics, waits)) / sizeof *at;
    (void)state;
    for (i = 0; i < count; i++) {
        at[i] = INT64_MAX / 100;
    }
    memset(name, '"', sizeof name - 1);
    largest.name = name;
    BETWEEN(page_of(&largest, 1), RLOCK_METRICS_ROOM / 2, RLOCK_METRICS_ROOM - 1);
    prometheus_has_nothing_to_say();
}

static void status_that_is_none_of_rlocks_stays_inside_the_tables(void **state) {
    static const int odd[] = {1, INT32_MIN};
    rlock_report report;
    int i;
    (void)state;
    memset(&report, 0, sizeof report);
    report.kind = RLOCK_REPORT_FAILED;
    for (i = 0; i < 2; i++) {
        report.status = odd[i];
        rlock_metrics_report(&g.metrics, &report);
        SAME(g.metrics.acquires[0], i + 1);
    }
}

static void holds_once(struct owner *owner, int64_t for_ms) {
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    virtual_run_ms(&g.loop, for_ms);
    SAME(owner_release(owner), RLOCK_OK);
    virtual_idle(&g.loop);
}

/* A bad moment does not stay on the page for ever, nor does it go before it was read. */
static void least_time_left_is_that_of_the_last_minutes(void **state) {
    struct owner *owner = owner_of(g.client, "key");
    int i, minutes = 0;
    (void)state;
    holds_once(owner, 600);
    for (i = 0; i < 60 && g.metrics.least_left_us < 500000; i++, minutes++) {
        BETWEEN(g.metrics.least_left_us, 380000, 390000);
        virtual_run_ms(&g.loop, 60000);
        holds_once(owner, 1);
    }
    BETWEEN(minutes, 5, 11);
    BETWEEN(g.metrics.least_left_us, 980000, 990000);
    holds_once(owner, 600);
    BETWEEN(g.metrics.least_left_us, 380000, 390000);
    virtual_run_ms(&g.loop, 11 * 60000);
    holds_once(owner, 1); /* the first after a long time */
    BETWEEN(g.metrics.least_left_us, 980000, 990000);
}

static void least_time_left_is_that_of_the_worst_hold_since_it_was_forgotten(void **state) {
    struct owner *owner = owner_of(g.client, "key");
    (void)state;
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    virtual_run_ms(&g.loop, 600);
    SAME(owner_release(owner), RLOCK_OK);
    BETWEEN(g.metrics.least_left_us, 380000, 390000);
    virtual_idle(&g.loop);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(owner_release(owner), RLOCK_OK);
    BETWEEN(g.metrics.least_left_us, 380000, 390000);
    g.metrics.least_left_us = -1;
    virtual_idle(&g.loop);
    SAME(owner_acquire(owner, 0, 1000), RLOCK_OK);
    virtual_idle(&g.loop);
    SAME(owner_release(owner), RLOCK_OK);
    BETWEEN(g.metrics.least_left_us, 980000, 990000);
}

/* ------------------------------------------------------------------------------------------------
 * The trace.
 */

static void begin_trace(void) {
    g.file = fopen(path_of("trace.json"), "w");
    assert_non_null(g.file);
    rlock_trace_to(&g.trace, g.file);
}

static int read_trace(void) {
    char command[160];
    rlock_trace_end(&g.trace);
    if (g.file != NULL) {
        SAME(fclose(g.file), 0);
        g.file = NULL;
    }
    snprintf(command, sizeof command, "/usr/bin/python3 tests/trace.py %s", path_of("trace.json"));
    return run(command);
}

static void said_has(const char *line) {
    if (strstr(g.said, line) == NULL) {
        fail_msg("tests/trace.py does not say \"%s\" but: %s", line, g.said);
    }
}

static void trace_is_read_and_its_slices_nest(void **state) {
    (void)state;
    begin_trace();
    program();
    end_program();
    if (read_trace() != 0) {
        fail_msg("%s", g.said);
    }
    said_has("B wait 6\n");
    said_has("E wait 6\n");
    said_has("B hold 5\n");
    said_has("E hold 5\n");
    said_has("B hand-over 1\n");
    said_has("i handed on 1\n");
    said_has("i lost 2\n");
    said_has("i failed 1\n");
    said_has("i let go 1\n");
    said_has("i renewed ");
    said_has("i disconnected 1\n");
    said_has("track 'client'\n");
    said_has("track 'q\"\\\\\\n\\x01 \\xe9 \\xff\\xed\\xa0\\x80 \\U0001f512 (1)'\n");
    said_has("6789012345678901234567890\\u20ac... (3)'\n"); /* cut behind a character */
}

static void count_grants(rlock *lock, const rlock_event *event, void *user) {
    (void)lock;
    *(int *)user += event->status == RLOCK_OK;
}

/* Ten times as many as the trace could remember. */
static void each_track_is_named_once_however_many_there_are(void **state) {
    static rlock *many[10 * RLOCK__TRACE_NAMES];
    struct owner *older = owner_of(g.client, "older");
    int count = (int)(sizeof many / sizeof many[0]), i, granted = 0;
    rlock_options options;
    (void)state;
    memset(&options, 0, sizeof options);
    options.key = "many";
    holds_once(older, 1);
    begin_trace();
    for (i = 0; i < 3 * count; i++) {
        rlock **one = &many[i % count];
        if (*one == NULL) {
            SAME(rlock_new(one, g.client, &options), RLOCK_OK);
        }
        SAME(rlock_acquire(*one, 0, 1000, count_grants, &granted), RLOCK_OK);
        virtual_run_ms(&g.loop, 1);
        SAME(rlock_release(*one, NULL, NULL), RLOCK_OK);
        virtual_run_ms(&g.loop, 1);
    }
    SAME(granted, 3 * count);
    holds_once(older, 1); /* it was there before the trace */
    for (i = 0; i < count; i++) {
        rlock_free(many[i]);
        many[i] = NULL;
    }
    if (read_trace() != 0) {
        fail_msg("%s", g.said);
    }
}

static void trace_that_is_wrong_is_not_read(void **state) {
    (void)state;
    begin_trace();
    program(); /* one holds still */
    assert_true(read_trace() != 0);
    said_has("a begin without its end");
}

/* What is no UTF-8 in a key stands as \u00XX: too short, too long for what it says, a surrogate,
 * above the last character, cut off, a second byte that is none. */
static void any_bytes_of_a_key_are_text_in_a_trace(void **state) {
    static const char *const texts[][2] = {
        {"plain", "plain"},
        {"\"\\", "\\\"\\\\"},
        {"a\nb\x7f", "a\\u000ab\\u007f"},
        {"\xc3\xa9", "\xc3\xa9"},
        {"\xe2\x82\xac", "\xe2\x82\xac"},
        {"\xe0\xa0\x80", "\xe0\xa0\x80"},
        {"\xed\x9f\xbf", "\xed\x9f\xbf"},
        {"\xf0\x90\x80\x80", "\xf0\x90\x80\x80"},
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"\x80", "\\u0080"},
        {"\xc1\xbf", "\\u00c1\\u00bf"},
        {"\xc3", "\\u00c3"},
        {"\xc3x", "\\u00c3x"},
        {"\xe0", "\\u00e0"},
        {"\xe0\x9f\xbf", "\\u00e0\\u009f\\u00bf"},
        {"\xed", "\\u00ed"},
        {"\xed\xa0\x80", "\\u00ed\\u00a0\\u0080"},
        {"\xe2\x82", "\\u00e2\\u0082"},
        {"\xf0", "\\u00f0"},
        {"\xf0\x8f\xbf\xbf", "\\u00f0\\u008f\\u00bf\\u00bf"},
        {"\xf4", "\\u00f4"},
        {"\xf4\x90\x80\x80", "\\u00f4\\u0090\\u0080\\u0080"},
        {"\xf5\x80", "\\u00f5\\u0080"},
    };
    char out[RLOCK__TRACE_LINE], key[RLOCK__TRACE_TEXT + 2];
    size_t i;
    (void)state;
    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        rlock__trace_quote(out, texts[i][0], strlen(texts[i][0]));
        assert_string_equal(out, texts[i][1]);
    }
    memset(key, 'k', sizeof key); /* a character that does not fit is left out whole */
    memcpy(key + RLOCK__TRACE_TEXT - 1, "\xc3\xa9", 2);
    rlock__trace_quote(out, key, sizeof key);
    SAME(strlen(out), RLOCK__TRACE_TEXT - 1 + 3);
    assert_string_equal(out + RLOCK__TRACE_TEXT - 1, "...");
}

static void nothing_is_written_after_the_end_of_a_trace(void **state) {
    long length;
    (void)state;
    begin_trace();
    rlock_trace_end(&g.trace);
    length = ftell(g.file);
    program();
    rlock_trace_end(&g.trace);
    SAME(ftell(g.file), length);
    SAME(read_trace(), 0); /* an empty array is one */
    assert_string_equal(g.said, "");
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        CASE(program_is_counted_as_it_ran),
        CASE(shutdown_raises_only_the_losses_that_say_closed),
        CASE(page_is_one_that_prometheus_reads),
        CASE(several_metrics_are_one_page_with_a_label_each),
        CASE(page_without_room_is_cut_and_says_what_it_needs),
        CASE(page_of_the_largest_numbers_fits_its_room),
        CASE(status_that_is_none_of_rlocks_stays_inside_the_tables),
        CASE(least_time_left_is_that_of_the_last_minutes),
        CASE(least_time_left_is_that_of_the_worst_hold_since_it_was_forgotten),
        CASE(trace_is_read_and_its_slices_nest),
        CASE(each_track_is_named_once_however_many_there_are),
        CASE(trace_that_is_wrong_is_not_read),
        CASE(any_bytes_of_a_key_are_text_in_a_trace),
        CASE(nothing_is_written_after_the_end_of_a_trace),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
