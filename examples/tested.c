/* How do I test that my program bears a lost lock, a dead server, a frozen process? With the loop
 * and the server of rlock_testing.h, in milliseconds: here the program of report.h, on two
 * machines. Neither a server nor hiredis is needed. */
#include <stdio.h>
#define RLOCK_NO_REDIS
#define RLOCK_IMPLEMENTATION
#include "rlock_testing.h"
#include "report.h"

typedef struct machine {
    rlock_testing *t;
    report program;
    int done, blocks_ms;
    char said[256]; /* the last lines */
} machine;

static machine one, two;
static int archived[REPORT_PAGES + 1]; /* how often each page was written */
static uint64_t last_fence;
static int failed;

#define CHECK(that) (void)((that) || (printf("# line %d: %s\n", __LINE__, #that), failed = 1))

/* ---- the outside of the program ---- */

static void fire(void *program) {
    report_tick((report *)program);
}

static void set_timer(void *ctx, int64_t ms) {
    machine *m = (machine *)ctx;
    rlock_testing_cancel(m->t, fire, &m->program);
    if (ms >= 0) {
        rlock_testing_after(m->t, ms, fire, &m->program);
    }
}

static int pages(void *ctx) {
    int page = 0;
    (void)ctx;
    while (page < REPORT_PAGES && archived[page + 1]) {
        page++;
    }
    return page;
}

static bool write_page(void *ctx, int page, uint64_t fence) {
    rlock_testing_freeze(((machine *)ctx)->t, ((machine *)ctx)->blocks_ms); /* the disk is slow */
    if (fence < last_fence) {
        return false;
    }
    last_fence = fence;
    archived[page]++;
    return true;
}

static void say(void *ctx, const char *line) {
    machine *m = (machine *)ctx;
    size_t len = strlen(m->said);
    snprintf(m->said + len, sizeof m->said - len, "%s\n", line);
}

static void done(void *ctx) {
    ((machine *)ctx)->done++;
}

/* ---- the machines ---- */

static void boots(machine *m, rlock_testing *beside) {
    report_world world = {.ctx = m,
                          .set_timer = set_timer,
                          .pages = pages,
                          .write_page = write_page,
                          .say = say,
                          .done = done};
    memset(m, 0, sizeof *m);
    m->t = rlock_testing_new(beside);
    world.config.loop = rlock_testing_loop(m->t);
    world.config.store = rlock_testing_store(m->t);
    CHECK(report_start(&m->program, &world) == RLOCK_OK);
}

static void shuts(machine *m) {
    if (m->t) {
        report_stop(&m->program);
        CHECK(rlock_testing_pending(m->t) == 0);
        rlock_testing_free(m->t);
        m->t = NULL;
    }
}

/* The report is complete, and each page was written once. */
static bool is_written_once(void) {
    return archived[1] == 1 && archived[2] == 1 && archived[3] == 1;
}

/* ---- what may happen in a night ---- */

static void good_night(void) {
    rlock_testing_pass(one.t, 1000);
    CHECK(one.done && is_written_once());
    CHECK(rlock_testing_holders(one.t, "nightly") == 0);
}

static void server_is_down_at_the_start(void) {
    rlock_testing_server(one.t, RLOCK_TESTING_DOWN);
    rlock_testing_pass(one.t, 3600000);
    CHECK(pages(NULL) == 0 && strcmp(one.said, "") == 0); /* it waits, and is quiet about it */
    rlock_testing_server(one.t, RLOCK_TESTING_UP);
    rlock_testing_pass(one.t, 2000);
    CHECK(one.done && is_written_once());
}

static void lock_is_stolen_in_the_middle(void) {
    rlock_testing_pass(one.t, 300);
    CHECK(pages(NULL) == 1);
    CHECK(rlock_testing_steal(one.t, "nightly") == RLOCK_OK);
    rlock_testing_pass(one.t, 1000);
    CHECK(strcmp(one.said, "page 1 is written\nlost the lock: stolen\n") == 0);
    CHECK(pages(NULL) == 1);
    CHECK(rlock_testing_let_go(one.t, "nightly") == RLOCK_OK);
    rlock_testing_pass(one.t, 1000);
    CHECK(one.done && is_written_once());
}

static void process_is_frozen_while_it_holds(void) {
    boots(&two, one.t);
    rlock_testing_pass(one.t, 300);
    rlock_testing_freeze(one.t, 60000);
    CHECK(two.done && is_written_once());
    CHECK(strcmp(one.said, "page 1 is written\nlost the lock: expired\n") == 0);
    rlock_testing_pass(one.t, 1000);
    CHECK(one.done && is_written_once());
}

static void process_is_frozen_while_it_writes(void) {
    one.blocks_ms = 60000; /* rlock_is_held was asked before: only the fencing token helps */
    boots(&two, one.t);
    rlock_testing_pass(one.t, 300);
    CHECK(strcmp(one.said, "page 1 is refused\nlost the lock: expired\n") == 0);
    CHECK(two.done && is_written_once());
}

static void network_is_cut_while_it_holds(void) {
    boots(&two, one.t);
    rlock_testing_pass(one.t, 300);
    rlock_testing_server(one.t, RLOCK_TESTING_SILENT);
    rlock_testing_pass(one.t, 60000);
    CHECK(two.done && is_written_once());
    rlock_testing_server(one.t, RLOCK_TESTING_UP);
    rlock_testing_pass(one.t, 2000);
    CHECK(one.done && is_written_once());
}

static void answer_to_the_acquire_is_lost(void) {
    rlock_testing_drop_answers(one.t, 1);
    rlock_testing_pass(one.t, 2000);
    CHECK(one.done && is_written_once());
}

static void password_is_wrong_until_it_is_mended(void) {
    rlock_testing_server(one.t, RLOCK_TESTING_DENIED);
    rlock_testing_pass(one.t, 5000);
    CHECK(strcmp(one.said, "cannot acquire: the user or a certificate is refused\n") == 0);
    rlock_testing_server(one.t, RLOCK_TESTING_UP);
    rlock_testing_pass(one.t, 10000);
    CHECK(one.done && is_written_once());
}

static void another_holds_it_and_dies(void) {
    CHECK(rlock_testing_hold(one.t, "nightly", 30000) == RLOCK_OK);
    rlock_testing_pass(one.t, 29000);
    CHECK(pages(NULL) == 0);
    rlock_testing_pass(one.t, 3000);
    CHECK(one.done && is_written_once());
}

static void holder_dies(void) {
    boots(&two, one.t);
    rlock_testing_pass(one.t, 300);
    rlock_testing_kill(one.t);
    rlock_testing_pass(one.t, 2 * REPORT_LEASE_MS);
    CHECK(two.done && is_written_once());
}

/* ---- all of them ---- */

static void run(const char *name, void (*night)(void)) {
    static int number;
    int before = failed;
    failed = 0;
    memset(archived, 0, sizeof archived);
    last_fence = 0;
    boots(&one, NULL);
    night();
    shuts(&two);
    shuts(&one);
    printf("%s %d - %s\n", failed ? "not ok" : "ok", ++number, name);
    failed |= before;
}

#define RUN(night) run(#night, night)

int main(void) {
    RUN(good_night);
    RUN(server_is_down_at_the_start);
    RUN(lock_is_stolen_in_the_middle);
    RUN(process_is_frozen_while_it_holds);
    RUN(process_is_frozen_while_it_writes);
    RUN(network_is_cut_while_it_holds);
    RUN(answer_to_the_acquire_is_lost);
    RUN(password_is_wrong_until_it_is_mended);
    RUN(another_holds_it_and_dies);
    RUN(holder_dies);
    puts("1..10");
    return failed;
}

/* SPDX-License-Identifier: MIT */
