/* A holder is stopped for longer than its lease, and goes on. Who keeps it from writing? A number
 * in the row, which each write checks; or SELECT ... FOR UPDATE. Both, and what each costs:
 *
 *     version POSTGRES_URL [SECONDS]
 *
 * The lock is in the same PostgreSQL; it may as well be in Redis. The processes have nothing else
 * to do: they ask for their data without a loop, and run that of the lock until it is had. */
#define _GNU_SOURCE 1 /* MAP_ANONYMOUS */
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define RLOCK_IMPLEMENTATION
#include "rlock.h"
#include "rlock_libev.h"
#include "stores/rlock_postgres.h"
#include "rows.h"

#define PROCESSES 4

enum { UNCHECKED, CHECKED, FOR_UPDATE }; /* the first two with the lock */

static struct page { int changes, stop; } volatile *page; /* of all processes */

static const char *url;
static int lease_ms = 500, patience_ms = 1000; /* for a row that somebody else has locked */
static rlock_store *store;                     /* of this process, as all that follows */
static rlock_client *client;
static rlock *lock;
static bool answered;
static int status;

static void must_be_ok(int is) {
    must(is == RLOCK_OK, rlock_strerror(is));
}

static void on_answer(rlock *which, const rlock_event *event, void *user) {
    (void)which, (void)user;
    status = event->status;
    answered = true;
}

/* Runs the loop until an acquire or a release has ended, or a loss is told. */
static int answer_to(int accepted) {
    must_be_ok(accepted);
    for (answered = false; !answered;) {
        ev_run(EV_DEFAULT, EVRUN_ONCE);
    }
    return status;
}

static void begin(int row, int way) {
    rlock_config config = {.loop = rlock_libev_loop(EV_DEFAULT)};
    rlock_options options = {.fencing = true, .on_lost = on_answer};
    char key[32];

    signal(SIGPIPE, SIG_IGN);
    alarm(60); /* should the parent be gone */
    rows_connect(url);
    ask("SET lock_timeout = %d", patience_ms);
    if (way != FOR_UPDATE) {
        snprintf(key, sizeof key, "account:%d", row);
        options.key = key;
        must_be_ok(rlock_postgres_new(&store, url, 0));
        config.store = store;
        must_be_ok(rlock_client_new(&client, &config));
        must_be_ok(rlock_new(&lock, client, &options));
    }
}

/* Adds 1 to a balance: reads it, works and writes it. False: it was refused. */
static bool change_with_lock(int row, bool check, void (*work)(void)) {
    const char *free_for_all = check ? "false" : "true";
    unsigned long long fence;
    long balance, written;

    must_be_ok(answer_to(rlock_acquire(lock, RLOCK_FOREVER, lease_ms, on_answer, NULL)));
    fence = rlock_fence(lock); /* if it is checked, nobody who held before can write from here on */
    balance = ask("UPDATE account SET fence = %llu WHERE id = %d AND (fence <= %llu OR %s) "
                  "RETURNING balance",
                  fence, row, fence, free_for_all);
    work();
    written = ask("UPDATE account SET balance = %ld WHERE id = %d AND (fence = %llu OR %s)",
                  balance + 1, row, fence, free_for_all);
    (void)answer_to(rlock_is_held(lock) ? rlock_release(lock, on_answer, NULL) : RLOCK_OK);
    return written == 1;
}

static bool change(int row, int way, void (*work)(void)) {
    long balance;

    if (way != FOR_UPDATE) {
        return change_with_lock(row, way == CHECKED, work);
    }
    ask("BEGIN");
    balance = ask("SELECT balance FROM account WHERE id = %d FOR UPDATE", row);
    if (balance >= 0) {
        work();
        ask("UPDATE account SET balance = %ld WHERE id = %d", balance + 1, row);
    }
    ask("COMMIT"); /* of nothing, if it was refused */
    return balance >= 0;
}

static void nothing(void) {
}

static void sleeps(void) {
    raise(SIGSTOP);
}

/* A process that changes the row, and in the middle stops if it is the sleeper. Its status is 2 if
 * it was refused; the sleeper begins again then. */
static pid_t starts(int way, bool sleeper) {
    pid_t pid = fork();
    bool changed;

    if (pid == 0) {
        begin(0, way);
        changed = change(0, way, sleeper ? sleeps : nothing);
        must(changed || !sleeper || change(0, way, nothing), "refused twice");
        exit(changed ? 0 : 2);
    }
    return pid;
}

static bool refused(pid_t pid) {
    int is;
    waitpid(pid, &is, 0);
    must(WIFEXITED(is) && WEXITSTATUS(is) != 1, "a process has failed");
    return WEXITSTATUS(is) == 2;
}

/* One stops in the middle of its change, another one comes, the first goes on. Returns how many
 * changes are lost. */
static int stops_and_goes_on(int way, const char *name) {
    bool sleeper, other;
    pid_t pid;
    int is, lost;

    ask("UPDATE account SET balance = 0, fence = 0");
    pid = starts(way, true);
    waitpid(pid, &is, WUNTRACED);
    other = refused(starts(way, false));
    kill(pid, SIGCONT);
    sleeper = refused(pid);
    lost = 2 - other - (int)ask("SELECT balance FROM account WHERE id = 0");
    printf("%s: %s\n", name,
           lost      ? "A CHANGE IS LOST: the holder went on, and wrote what it had before"
           : sleeper ? "the holder went on, was refused, and began again"
           : other   ? "while the holder was stopped no other process could write"
                     : "nothing happened");
    return lost;
}

/* Returns how many changes all processes make in a second, of one row or each of its own; 0: the
 * table has another number of them. However busy the machine is, nobody is refused. */
static double rate(int way, bool one_row, int seconds) {
    int i;

    ask("UPDATE account SET balance = 0, fence = 0");
    page->changes = page->stop = 0;
    for (i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            lease_ms = patience_ms = 30000;
            for (begin(one_row ? 0 : i, way); !page->stop;) {
                must(change(one_row ? 0 : i, way, nothing), "refused");
                __sync_add_and_fetch(&page->changes, 1);
            }
            exit(0);
        }
    }
    for (i = 0; page->changes == 0 && i < 30000; i++) {
        usleep(1000); /* until the first change */
    }
    sleep((unsigned)seconds);
    page->stop = 1;
    for (i = 0; i < PROCESSES; i++) {
        must(!refused(-1), "a process was refused");
    }
    return ask("SELECT sum(balance) FROM account") == page->changes
               ? (double)page->changes / seconds
               : 0;
}

int main(int argc, char **argv) {
    int seconds = argc > 2 ? atoi(argv[2]) : 3, one_row, bad;

    must(argc > 1 && seconds > 0, "see its first lines");
    setvbuf(stdout, NULL, _IOLBF, 0); /* nothing is left to be said twice, by a forked child */
    url = argv[1];
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(page != MAP_FAILED, "out of memory");
    rows_connect(url);
    ask("SET client_min_messages = warning");
    ask("CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, balance bigint, fence bigint)");
    ask("INSERT INTO account SELECT generate_series(0, %d), 0, 0 ON CONFLICT DO NOTHING",
        PROCESSES - 1);
    bad = stops_and_goes_on(UNCHECKED, "the lock alone       ") != 1;
    bad += stops_and_goes_on(CHECKED, "the lock, checked    ");
    bad += stops_and_goes_on(FOR_UPDATE, "SELECT ... FOR UPDATE");
    for (one_row = 1; one_row >= 0; one_row--) {
        double checked = rate(CHECKED, one_row, seconds);
        double for_update = rate(FOR_UPDATE, one_row, seconds);
        bad += checked <= 0 || for_update <= 0;
        printf("changes a second, %s: %.2f of those with FOR UPDATE\n",
               one_row ? "all of one row      " : "each of its own row ", checked / for_update);
    }
    puts("round trips a change: 4 (acquire, read, write, release), and 4 with FOR UPDATE\n"
         "commits a change: 4, or 2 with the lock in Redis, and 1 with FOR UPDATE\n"
         "connections: 1 more for all locks of a process; with FOR UPDATE 1 for each holder, in\n"
         "an open transaction for as long as it works, which keeps VACUUM from cleaning");
    PQfinish(rows_connection);
    return bad != 0;
}

/* SPDX-License-Identifier: MIT */
