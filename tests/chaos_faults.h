/* The faults of tests/chaos.c: the servers and processes that they hit, and the table of them. */
#ifndef RLOCK_TESTS_CHAOS_FAULTS_H
#define RLOCK_TESTS_CHAOS_FAULTS_H

#include "chaos_check.h"

#include <glob.h>

#define ACTIVE 6

/* A site: one server, or a primary and a replica. One fault at a time. */
struct site {
    struct server server[2];
    int servers, primary;
    double clock; /* seconds that its wall clock is off */
    bool stepped; /* since the last calm */
    bool busy;
};

struct client {
    pid_t pid; /* 0 = none */
    bool busy;
};

static struct site sites[SITES];
static struct client clients[SLOTS];
static bool line_busy[LINES];
static pid_t proxy_pid;
static char faketime_library[128];

struct fault;

struct active {
    const struct fault *fault; /* NULL = free */
    int victim;
    int64_t due_us, for_us;
};

enum victim { VICTIM_CLIENT, VICTIM_LINE, VICTIM_KEPT, VICTIM_BROKEN, VICTIM_SITE };

struct fault {
    const char *name;
    int weight;
    enum victim victim;
    int min_ms, max_ms; /* how long it stays; 0 = it has no end */
    bool breaks;        /* an assumption: overlaps may follow */
    bool (*begin)(struct active *a);
    bool (*end)(struct active *a); /* false: not yet, ask again; NULL = it has no end */
};

/* ------------------------------------------------------------------------------------------------
 * Processes, and their wall clocks: a file that libfaketime reads at every look
 */

static inline void clock_file(char *path, size_t size, const char *of, int number) {
    snprintf(path, size, "%s/clock-%s%d", sites[KEPT].server[0].dir, of, number);
}

/* By renaming: never a moment without a time in it. */
static inline bool clock_is_set(const char *of, int number, double seconds) {
    char path[128], made[136];
    FILE *f;

    clock_file(path, sizeof path, of, number);
    snprintf(made, sizeof made, "%s.new", path);
    f = fopen(made, "w");
    if (f == NULL) {
        return false;
    }
    fprintf(f, "%+.3f\n", seconds);
    return fclose(f) == 0 && rename(made, path) == 0;
}

/* What is started now has that wall clock; its monotonic clocks stay real. NULL = the real one.
 * libc stands before the server's own allocator: jemalloc reads the clock while it sets itself up,
 * libfaketime allocates while it does, and the two would wait for each other. */
static inline void clock_for_children(const char *of, int number) {
    char path[128], preload[160];

    if (of == NULL) {
        unsetenv("LD_PRELOAD");
        return;
    }
    clock_file(path, sizeof path, of, number);
    snprintf(preload, sizeof preload, "%s libc.so.6", faketime_library);
    setenv("LD_PRELOAD", preload, 1);
    setenv("FAKETIME_TIMESTAMP_FILE", path, 1);
    setenv("FAKETIME_NO_CACHE", "1", 1);
    setenv("DONT_FAKE_MONOTONIC", "1", 1);
    setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
    setenv("NO_FAKE_STAT", "1", 1);
}

/* libfaketime names its shared memory after the process: one that is killed leaves it. */
static inline void process_is_swept(pid_t pid) {
    char path[64];

    snprintf(path, sizeof path, "/dev/shm/faketime_shm_%d", (int)pid);
    unlink(path);
    snprintf(path, sizeof path, "/dev/shm/sem.faketime_sem_%d", (int)pid);
    unlink(path);
}

/* The same program anew, in a role. */
static inline pid_t role_starts(const char *role, int number) {
    char fd[16], which[16];
    pid_t parent = getpid(), pid;

    snprintf(fd, sizeof fd, "%d", world_fd);
    snprintf(which, sizeof which, "%d", number);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            execl("/proc/self/exe", "chaos", role, fd, which, (char *)NULL);
        }
        _exit(127);
    }
    return pid;
}

static inline bool client_starts(int number) {
    struct slot *s = &world->slot[number];

    s->quit = 0;
    s->life++;
    store32(&s->calm_seen, 0);
    store32(&s->busy, HANDLES);
    clock_for_children("client", number);
    clients[number].pid = role_starts("client", number);
    clock_for_children(NULL, 0);
    return clients[number].pid > 0;
}

static inline bool server_runs(struct site *s, int which) {
    pid_t old = s->server[which].pid;
    bool up;

    clock_for_children("site", (int)(s - sites));
    up = server_restart(&s->server[which]) == 0;
    clock_for_children(NULL, 0);
    process_is_swept(old);
    if (!up) {
        violated(PROOF_ALIVE, -1, "a server did not come back");
    }
    return up;
}

static inline void server_dies(struct site *s, int which) {
    pid_t pid = s->server[which].pid;

    server_kill9(&s->server[which]);
    process_is_swept(pid);
}

/* ------------------------------------------------------------------------------------------------
 * The administrator's hand: never waits long
 */

static inline redisContext *hand_connects(const struct server *server) {
    struct timeval patience = {1, 0};
    redisContext *c = redisConnectUnixWithTimeout(server->socket, patience);

    if (c != NULL && c->err == 0 && redisSetTimeout(c, patience) == REDIS_OK) {
        return c;
    }
    if (c != NULL) {
        redisFree(c);
    }
    return NULL;
}

/* The reply, or NULL if there was none in time. Free it. */
static inline redisReply *hand_asks(const struct server *server, const char *format, ...) {
    redisContext *c = hand_connects(server);
    redisReply *reply = NULL;
    va_list ap;

    if (c == NULL) {
        return NULL;
    }
    va_start(ap, format);
    reply = (redisReply *)redisvCommand(c, format, ap);
    va_end(ap);
    redisFree(c);
    return reply;
}

/* True if it was answered, and not by an error. */
static inline bool hand_done(redisReply *reply) {
    bool done = reply != NULL && reply->type != REDIS_REPLY_ERROR;

    if (reply != NULL && !done) {
        printf("# the server said: %s\n", reply->str);
    }
    if (reply != NULL) {
        freeReplyObject(reply);
    }
    return done;
}

static inline const struct server *primary_of(const struct active *a) {
    return &sites[a->victim].server[sites[a->victim].primary];
}

#define ORDER(a, ...) hand_done(hand_asks(primary_of(a), __VA_ARGS__))

/* ------------------------------------------------------------------------------------------------
 * Clients
 */

static inline bool client_stops(struct active *a) {
    return kill(clients[a->victim].pid, SIGSTOP) == 0;
}

static inline bool client_goes_on(struct active *a) {
    return kill(clients[a->victim].pid, SIGCONT) == 0;
}

static inline bool client_dies(struct active *a) {
    struct client *c = &clients[a->victim];
    int64_t now = kit_now_us();

    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    process_is_swept(c->pid);
    c->pid = 0;
    slot_died(a->victim, now);
    return true;
}

static inline bool client_is_replaced(struct active *a) {
    return client_starts(a->victim);
}

static inline bool client_leaves(struct active *a) {
    store32(&world->slot[a->victim].quit, 1);
    return true;
}

/* Gone in good order and replaced; clients_are_reaped saw how it ended. */
static inline bool client_has_left(struct active *a) {
    if (clients[a->victim].pid == 0) {
        return client_starts(a->victim);
    }
    if (kit_now_us() > a->due_us + 10000000) {
        violated(PROOF_ALIVE, -1, "client %d does not end its shutdown", a->victim);
        client_dies(a);
    }
    return false;
}

static inline bool client_clock_steps(struct active *a) {
    double far = (double)dice_between(1, 30 * 86400), near = (double)dice_between(1, 5000) / 1000;

    return clock_is_set("client", a->victim, (dice(2) == 0 ? far : near) * (dice(2) == 0 ? -1 : 1));
}

/* ------------------------------------------------------------------------------------------------
 * Lines
 */

static inline bool line_turns(struct active *a, enum line_mode mode) {
    store32(&world->line[a->victim].delay_ms, (uint32_t)dice_between(20, dice(4) > 0 ? 150 : 700));
    store32(&world->line[a->victim].mode, mode);
    return true;
}

static inline bool line_splits(struct active *a) {
    return line_turns(a, LINE_SPLIT);
}

/* Every second time both lines of the site, so that the slow ones get a turn as well. */
static inline bool line_delays(struct active *a) {
    struct active other = *a;

    other.victim ^= 1;
    if (dice(2) == 0 && !line_busy[other.victim]) {
        line_turns(&other, LINE_DELAY);
    }
    return line_turns(a, LINE_DELAY);
}

static inline bool line_hurries(struct active *a) {
    struct active other = *a;

    other.victim ^= 1;
    if (!line_busy[other.victim]) {
        line_turns(&other, LINE_PASS);
    }
    return line_turns(a, LINE_PASS);
}

static inline bool line_swallows(struct active *a) {
    return line_turns(a, LINE_BLACK);
}

static inline bool line_loses(struct active *a) {
    return line_turns(a, LINE_LOSE);
}

static inline bool line_is_cut(struct active *a) {
    store32(&world->line[a->victim].cut, world->line[a->victim].cut + 1);
    return true;
}

/* What was swallowed is delivered late, or dies. */
static inline bool line_is_back(struct active *a) {
    if (world->line[a->victim].mode == LINE_LOSE || dice(2) == 0) {
        line_is_cut(a);
    }
    return line_turns(a, LINE_PASS);
}

/* ------------------------------------------------------------------------------------------------
 * Servers
 */

static inline bool server_stands_still(struct active *a) {
    server_pause(primary_of(a));
    return true;
}

static inline bool server_stands_up(struct active *a) {
    server_resume(primary_of(a));
    return true;
}

static inline bool server_is_killed(struct active *a) {
    struct site *s = &sites[a->victim];

    server_dies(s, s->primary);
    return true;
}

static inline bool server_is_back(struct active *a) {
    return server_runs(&sites[a->victim], sites[a->victim].primary);
}

/* The replica is cut off first, so that what the primary still takes is lost with it. */
static inline bool replica_is_promoted(struct active *a) {
    struct site *s = &sites[a->victim];

    return hand_done(hand_asks(&s->server[1 - s->primary], "REPLICAOF NO ONE"));
}

static inline bool primary_is_replaced(struct active *a) {
    struct site *s = &sites[a->victim];
    int old = s->primary, i;

    s->primary = 1 - old;
    store32(&world->primary, (uint32_t)s->primary);
    for (i = 0; i < LINES; i++) {
        world->line[i].cut += world->line[i].site == BROKEN;
    }
    if (dice(2) == 0) {
        server_dies(s, old);
        server_runs(s, old);
    }
    hand_done(hand_asks(&s->server[old], "REPLICAOF 127.0.0.1 %d", primary_of(a)->port));
    return true; /* one that stays alone will be promoted with old data: that is no worse */
}

/* Back only, and once before a calm: a lease lasts longer by as much. */
static inline bool server_clock_steps_back(struct active *a) {
    struct site *s = &sites[a->victim];

    if (s->stepped) {
        return false;
    }
    s->stepped = true;
    s->clock -= (double)dice_between(100, 2000) / 1000;
    return clock_is_set("site", a->victim, s->clock);
}

/* Never back: with a lost counter only the clock keeps the fences rising. */
static inline bool server_clock_steps_forward(struct active *a) {
    sites[a->victim].clock += (double)dice_between(300, 10000) / 1000;
    return clock_is_set("site", a->victim, sites[a->victim].clock);
}

static inline bool connections_are_killed(struct active *a) {
    bool done = dice(3) != 0 ? ORDER(a, "CLIENT KILL TYPE normal") : true;

    return ORDER(a, "CLIENT KILL TYPE pubsub") && done;
}

static inline bool clients_are_paused(struct active *a) {
    return ORDER(a, "CLIENT PAUSE %d %s", (int)(a->for_us / 1000), dice(2) == 0 ? "ALL" : "WRITE");
}

static inline bool server_answers_again(struct active *a) {
    return ORDER(a, "SET rlock:answers 1");
}

static inline bool scripts_are_flushed(struct active *a) {
    return ORDER(a, "SCRIPT FLUSH");
}

static inline bool command_is_denied(struct active *a) {
    static const char *const denied[] = {"-evalsha", "-set", "-pexpire", "-hset",
                                         "-del",     "-get", "-eval",    "-client"};

    return ORDER(a, "ACL SETUSER locker %s", denied[dice(8)]);
}

/* A connection that was refused tracking goes without push as long as it lasts. */
static inline bool commands_are_allowed(struct active *a) {
    return ORDER(a, "ACL SETUSER locker +@all") && ORDER(a, "CLIENT KILL USER locker");
}

static inline bool password_changes(struct active *a) {
    return ORDER(a, "ACL SETUSER locker resetpass >other") && ORDER(a, "CLIENT KILL USER locker");
}

static inline bool password_is_back(struct active *a) {
    return ORDER(a, "ACL SETUSER locker resetpass >secret");
}

static inline bool memory_is_full(struct active *a) {
    return ORDER(a, "CONFIG SET maxmemory 1");
}

static inline bool memory_is_back(struct active *a) {
    return ORDER(a, "CONFIG SET maxmemory 0");
}

static inline bool replicas_are_missing(struct active *a) {
    return ORDER(a, "CONFIG SET min-replicas-to-write 9");
}

static inline bool replicas_are_enough(struct active *a) {
    return ORDER(a, "CONFIG SET min-replicas-to-write 0");
}

/* Its answer is not waited for. */
static inline bool server_sleeps(struct active *a) {
    redisContext *c = hand_connects(primary_of(a));
    int done = 0;

    if (c == NULL) {
        return false;
    }
    redisAppendCommand(c, "DEBUG SLEEP %f", (double)a->for_us / 1e6);
    while (!done && redisBufferWrite(c, &done) == REDIS_OK) {
    }
    redisFree(c);
    return done != 0;
}

static inline const char *any_broken_key(void) {
    int k = (int)dice(KEYS);

    while (chaos_keys[k].site != BROKEN) {
        k = (k + 1) % KEYS;
    }
    return chaos_keys[k].name;
}

static inline bool key_is_deleted(struct active *a) {
    return ORDER(a, "DEL %s", any_broken_key());
}

static inline bool key_is_a_list(struct active *a) {
    const char *key = any_broken_key();

    return ORDER(a, "EVAL %s 1 %s", "redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'x')",
                 key);
}

static inline bool lists_are_gone(struct active *a) {
    bool done = true;
    int k;

    for (k = 0; k < KEYS; k++) {
        if (chaos_keys[k].site == BROKEN) {
            done = ORDER(a, "EVAL %s 1 %s",
                         "if redis.call('TYPE', KEYS[1]).ok == 'list' then "
                         "redis.call('DEL', KEYS[1]) end",
                         chaos_keys[k].name) &&
                   done;
        }
    }
    return done;
}

/* Once more what each end did: an order that was not answered in time may come behind its end. */
static inline bool site_is_sound(int site) {
    struct active a;

    memset(&a, 0, sizeof a);
    a.victim = site;
    return ORDER(&a, "ACL SETUSER locker resetpass >secret +@all") && memory_is_back(&a) &&
           replicas_are_enough(&a) && lists_are_gone(&a) && ORDER(&a, "REPLICAOF NO ONE");
}

/* ------------------------------------------------------------------------------------------------
 * The table
 */

static const struct fault faults[] = {
    {"client stopped (SIGSTOP)", 6, VICTIM_CLIENT, 100, 5000, false, client_stops, client_goes_on},
    {"client killed (SIGKILL)", 5, VICTIM_CLIENT, 10, 1000, false, client_dies, client_is_replaced},
    {"client shut down, another started", 2, VICTIM_CLIENT, 10, 1000, false, client_leaves,
     client_has_left},
    {"client's wall clock stepped", 7, VICTIM_CLIENT, 0, 0, false, client_clock_steps, NULL},
    {"line split at every byte", 4, VICTIM_LINE, 300, 4000, false, line_splits, line_is_back},
    {"line slow", 14, VICTIM_LINE, 1000, 6000, false, line_delays, line_hurries},
    {"line a black hole", 4, VICTIM_LINE, 100, 5000, false, line_swallows, line_is_back},
    {"line loses answers, then is cut", 4, VICTIM_LINE, 50, 1500, false, line_loses, line_is_back},
    {"line cut", 4, VICTIM_LINE, 0, 0, false, line_is_cut, NULL},
    {"server stopped (SIGSTOP)", 6, VICTIM_SITE, 100, 5000, false, server_stands_still,
     server_stands_up},
    {"server killed, restarted with its data", 4, VICTIM_KEPT, 10, 1500, false, server_is_killed,
     server_is_back},
    {"server killed, restarted without data", 3, VICTIM_BROKEN, 10, 1500, true, server_is_killed,
     server_is_back},
    {"replica promoted, lost tail", 4, VICTIM_BROKEN, 10, 600, true, replica_is_promoted,
     primary_is_replaced},
    {"server's wall clock set back", 3, VICTIM_KEPT, 0, 0, false, server_clock_steps_back, NULL},
    {"server's wall clock set forward", 3, VICTIM_BROKEN, 0, 0, true, server_clock_steps_forward,
     NULL},
    {"connections killed (CLIENT KILL)", 4, VICTIM_SITE, 0, 0, false, connections_are_killed, NULL},
    {"clients paused (CLIENT PAUSE)", 3, VICTIM_SITE, 100, 2000, false, clients_are_paused,
     server_answers_again},
    {"scripts flushed (SCRIPT FLUSH)", 4, VICTIM_SITE, 0, 0, false, scripts_are_flushed, NULL},
    {"command denied (ACL)", 4, VICTIM_SITE, 100, 1500, false, command_is_denied,
     commands_are_allowed},
    {"password changed and back (ACL)", 2, VICTIM_SITE, 100, 1500, false, password_changes,
     password_is_back},
    {"server out of memory (maxmemory 1)", 3, VICTIM_SITE, 100, 1500, false, memory_is_full,
     memory_is_back},
    {"replicas missing", 2, VICTIM_SITE, 100, 1500, false, replicas_are_missing,
     replicas_are_enough},
    {"server asleep (DEBUG SLEEP)", 3, VICTIM_SITE, 100, 2000, false, server_sleeps,
     server_answers_again},
    {"key deleted by a stranger", 6, VICTIM_BROKEN, 0, 0, true, key_is_deleted, NULL},
    {"key made a list by a stranger", 3, VICTIM_BROKEN, 50, 500, true, key_is_a_list,
     lists_are_gone},
};

#define FAULTS ((int)(sizeof faults / sizeof faults[0]))

static struct active active[ACTIVE];
static uint64_t fault_counts[FAULTS];
static int dealt[FAULTS]; /* each once, before the dice by weight */
static int dealt_count;

/* Where a victim's mark stands: one fault at a time each. */
static inline bool *victim_mark(const struct fault *f, int victim) {
    return f->victim == VICTIM_CLIENT ? &clients[victim].busy
           : f->victim == VICTIM_LINE ? &line_busy[victim]
                                      : &sites[victim].busy;
}

static inline int victim_by_dice(const struct fault *f) {
    switch (f->victim) {
    case VICTIM_CLIENT: return (int)dice(SLOTS);
    case VICTIM_LINE: return (int)dice(LINES);
    case VICTIM_SITE: return (int)dice(SITES);
    case VICTIM_KEPT: return KEPT;
    case VICTIM_BROKEN: return BROKEN;
    }
    return 0;
}

static inline bool fault_begins(const struct fault *f) {
    int victim = victim_by_dice(f), i;
    bool *mark = victim_mark(f, victim), begun;
    bool dealing = dealt_count < FAULTS; /* short ones, so that a short run has them all */
    int64_t max_ms = !dealing && dice(3) == 0 ? f->max_ms : f->min_ms + (f->max_ms - f->min_ms) / 4;

    for (i = 0; i < ACTIVE && active[i].fault != NULL; i++) {
    }
    if (i == ACTIVE || *mark || (f->victim == VICTIM_CLIENT && clients[victim].pid == 0)) {
        return false;
    }
    active[i].victim = victim;
    active[i].for_us = f->end != NULL ? dice_between(f->min_ms, max_ms) * 1000 : 0;
    if (f->breaks) {
        assumption_breaks();
    }
    begun = f->begin(&active[i]);
    if (f->breaks) {
        assumption_breaks();
    }
    fault_counts[f - faults] += begun;
    if (f->end != NULL) { /* also if it has not begun: an order not answered may yet be obeyed */
        active[i].fault = f;
        active[i].due_us = kit_now_us() + (begun ? active[i].for_us : 0);
        *mark = true;
    }
    return begun;
}

/* Ends what is due; with `all` everything. True: none is left. */
static inline bool faults_end(bool all) {
    int64_t now = kit_now_us();
    int i, left = 0;

    for (i = 0; i < ACTIVE; i++) {
        struct active *a = &active[i];

        if (a->fault != NULL && all && a->due_us > now) {
            a->due_us = now;
        }
        if (a->fault != NULL && a->due_us <= now) {
            if (a->fault->breaks) {
                assumption_breaks();
            }
            if (a->fault->end(a)) {
                if (a->fault->breaks) {
                    assumption_breaks();
                }
                *victim_mark(a->fault, a->victim) = false;
                a->fault = NULL;
            }
        }
        left += a->fault != NULL;
    }
    return left == 0;
}

/* First every fault once, in an order by dice; one whose victim is not free waits. */
static inline void fault_by_dice(void) {
    int i, sum = 0, place;

    if (dealt_count < FAULTS) {
        for (i = dealt_count; i < FAULTS; i++) {
            if (fault_begins(&faults[dealt[i]])) {
                place = dealt[i];
                dealt[i] = dealt[dealt_count];
                dealt[dealt_count++] = place;
                return;
            }
        }
        return;
    }
    for (i = 0; i < FAULTS; i++) {
        sum += faults[i].weight;
    }
    place = (int)dice(sum);
    for (i = 0; place >= faults[i].weight; i++) {
        place -= faults[i].weight;
    }
    fault_begins(&faults[i]);
}

static inline void faults_are_shuffled(void) {
    int i;

    for (i = 0; i < FAULTS; i++) {
        int other = (int)dice(i + 1);

        dealt[i] = dealt[other];
        dealt[other] = i;
    }
}

#endif
