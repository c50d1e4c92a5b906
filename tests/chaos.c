/* Real servers and real processes, while everything that can fail is made to fail.
 *
 *     chaos [SECONDS [SEED]]      30 seconds, a seed by the clock
 *
 * Six client processes fight for nine keys of two sites, straight and through a proxy. A director
 * (this process) draws faults by dice from the table in chaos_faults.h. In a storm they come one on
 * another; then all of them end, and in the calm everything must come to rest: every waiter
 * served, every key gone; and a hold that a stranger deletes must be told. Each client writes down
 * what it believes to hold, and the checker in chaos_check.h reads along.
 *
 * The seed repeats the order of the faults, not the moments at which they meet the clients. */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "chaos_client.h"
#include "chaos_faults.h"
#include "chaos_proxy.h"

#define TURN_US 20000
#define STORM_MIN_MS 8000
#define STORM_MAX_MS 14000
#define CALM_MS 6000   /* what the last calm is given, within the seconds asked for */
#define MEND_MS 30000  /* all faults end in that time, or the machine is too slow for this */
#define REST_MS 20000  /* longest lease, clock set back, back-off, a queue of waiters; generous */
#define SWEEP_MS 15000 /* longest lease, clock set back; generous */
#define SETTLE_MS 400  /* after which a hold is watched by push */
#define TOLD_MS 3000   /* a DEL is told: milliseconds by push, else a third of the lease */
#define TOO_MANY 20    /* violations: the run ends */

enum phase { STORM, MENDING, DRAINING, SWEEPING, TAKING, SETTLING, TELLING, OVER };

static enum phase phase;
static int64_t phase_us, finish_us, next_fault_us, last_storm_us;
static int64_t mended_us, slowest_rest_us, slowest_told_us;
static uint64_t calms, told_before;
static rlock_reason probed; /* what the holders of the probe must be told */

/* ------------------------------------------------------------------------------------------------
 * The calm
 */

static bool clients_rest(void) {
    uint32_t calm = load32(&world->calm);
    int i;

    for (i = 0; i < SLOTS; i++) {
        if (load32(&world->slot[i].calm_seen) != calm || load32(&world->slot[i].busy) != 0) {
            return false;
        }
    }
    return true;
}

/* Keys that are neither a fence's counter nor the director's; -1 = could not be asked. */
static int keys_left(enum site_name site, char *names, size_t size) {
    struct active at;
    redisReply *reply;
    size_t i;
    int left = 0;

    memset(&at, 0, sizeof at);
    at.victim = (int)site;
    names[0] = '\0';
    reply = hand_asks(primary_of(&at), "KEYS *");
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
        hand_done(reply);
        return -1;
    }
    for (i = 0; i < reply->elements; i++) {
        const char *key = reply->element[i]->str;

        if (strncmp(key, "rlock:", 6) != 0) {
            size_t len = strlen(names);

            snprintf(names + len, size - len, " %s", key);
            left++;
        }
    }
    freeReplyObject(reply);
    return left;
}

static void phase_becomes(enum phase next) {
    phase = next;
    phase_us = kit_now_us();
}

static bool phase_lasts_ms(int64_t ms) {
    return kit_now_us() - phase_us > ms * 1000;
}

static void storm_begins(void) {
    store32(&world->calm, world->calm + 1);
    next_fault_us = kit_now_us();
    sites[KEPT].stepped = false;
    last_storm_us = next_fault_us + dice_between(STORM_MIN_MS, STORM_MAX_MS) * 1000;
    if (last_storm_us > finish_us - CALM_MS * 1000) {
        last_storm_us = finish_us - CALM_MS * 1000;
    }
    phase_becomes(kit_now_us() >= finish_us - CALM_MS * 1000 ? OVER : STORM);
}

static void storm_goes_on(void) {
    int64_t now = kit_now_us();

    faults_end(false);
    if (now >= next_fault_us) {
        fault_by_dice();
        next_fault_us = now + dice_between(50, dealt_count < FAULTS ? 250 : 1000) * 1000;
    }
    if (now >= last_storm_us) {
        phase_becomes(MENDING);
    }
}

static void mends(void) {
    if (faults_end(true) && site_is_sound(KEPT) && site_is_sound(BROKEN)) {
        store32(&world->calm, world->calm + 1);
        mended_us = kit_now_us();
        phase_becomes(DRAINING);
    } else if (phase_lasts_ms(MEND_MS)) {
        violated(PROOF_ALIVE, -1, "a fault could not be ended");
        phase_becomes(OVER);
    }
}

static void drains(void) {
    int i;

    if (clients_rest()) {
        phase_becomes(SWEEPING);
    } else if (phase_lasts_ms(REST_MS)) {
        for (i = 0; i < SLOTS; i++) {
            if (world->slot[i].busy != 0 || world->slot[i].calm_seen != world->calm) {
                violated(PROOF_SERVED, -1, "client %d: %u handles busy, %u turns; it said: %s", i,
                         world->slot[i].busy, (unsigned)world->slot[i].turns, world->slot[i].words);
            }
        }
        phase_becomes(SWEEPING);
    }
}

static void probe_begins(void) {
    probed = dice(2) == 0 ? RLOCK_REASON_DELETED : RLOCK_REASON_STOLEN;
    told_before = endings[probed];
    world->probe_slot = (uint32_t)dice(SLOTS);
    store32(&world->probe, world->probe + 1);
    phase_becomes(TAKING);
}

static void sweeps(void) {
    char names[2][256];
    int left[2];

    left[KEPT] = keys_left(KEPT, names[KEPT], sizeof names[KEPT]);
    left[BROKEN] = keys_left(BROKEN, names[BROKEN], sizeof names[BROKEN]);
    if (left[KEPT] == 0 && left[BROKEN] == 0) {
        int64_t rest_us = kit_now_us() - mended_us;

        slowest_rest_us = rest_us > slowest_rest_us ? rest_us : slowest_rest_us;
        calms++;
        probe_begins();
    } else if (phase_lasts_ms(SWEEP_MS)) {
        violated(PROOF_KEYS, -1, "%d + %d:%s%s", left[KEPT], left[BROKEN], names[KEPT],
                 names[BROKEN]);
        probe_begins();
    }
}

/* ------------------------------------------------------------------------------------------------
 * The probe: one client holds the broken keys, a stranger deletes or overwrites them
 */

static int probe_holds(void) {
    int k, held = 0;

    for (k = 0; k < HANDLES; k += PER_KEY) {
        held += open_holds[world->probe_slot][k].open;
    }
    return held;
}

static int broken_keys(void) {
    int k, n = 0;

    for (k = 0; k < KEYS; k++) {
        n += chaos_keys[k].site == BROKEN;
    }
    return n;
}

static bool strangers_do(const char *format) {
    struct active at;
    bool done = true;
    int k;

    memset(&at, 0, sizeof at);
    at.victim = BROKEN;
    assumption_breaks();
    for (k = 0; k < KEYS; k++) {
        if (chaos_keys[k].site == BROKEN) {
            done = ORDER(&at, format, chaos_keys[k].name) && done;
        }
    }
    return done;
}

static void probe_ends(void) {
    if (!strangers_do("DEL %s")) {
        violated(PROOF_DELETED, -1, "a server in peace did not take a DEL");
    }
    store32(&world->probe, world->probe + 1);
    storm_begins();
}

static void probe_strikes(void) {
    if (!strangers_do(probed == RLOCK_REASON_DELETED ? "DEL %s" : "SET %s stranger")) {
        violated(PROOF_DELETED, -1, "a server in peace did not take a DEL or SET");
    }
    phase_becomes(TELLING);
}

static void probe_is_told(void) {
    int64_t us = kit_now_us() - phase_us;

    if (probe_holds() == 0) {
        slowest_told_us = us > slowest_told_us ? us : slowest_told_us;
        if (endings[probed] != told_before + (uint64_t)broken_keys()) {
            violated(PROOF_DELETED, -1, "client %u was told something else", world->probe_slot);
        }
        probe_ends();
    } else if (phase_lasts_ms(TOLD_MS)) {
        violated(PROOF_DELETED, -1, "client %u: %d holds not told after %d ms", world->probe_slot,
                 probe_holds(), TOLD_MS);
        probe_ends();
    }
}

static void probe_takes(void) {
    if (probe_holds() == broken_keys()) {
        phase_becomes(SETTLING);
    } else if (phase_lasts_ms(REST_MS)) {
        violated(PROOF_SERVED, -1, "client %u got only %d free keys", world->probe_slot,
                 probe_holds());
        probe_ends();
    }
}

/* ------------------------------------------------------------------------------------------------
 * Processes that end
 */

static void client_ended(int number, int code) {
    bool in_order = (world->slot[number].quit || world->stop) && code == 0;

    process_is_swept(clients[number].pid);
    clients[number].pid = 0;
    slot_died(number, kit_now_us());
    if (!in_order) {
        violated(PROOF_ALIVE, -1, "client %d ended with status 0x%x; it said: %s", number,
                 (unsigned)code, world->slot[number].words);
        if (!world->stop && !clients[number].busy) {
            client_starts(number);
        }
    }
}

static int clients_are_reaped(void) {
    int i, code, left = 0;

    for (i = 0; i < SLOTS; i++) {
        if (clients[i].pid > 0 && waitpid(clients[i].pid, &code, WNOHANG) == clients[i].pid) {
            client_ended(i, code);
        }
        left += clients[i].pid > 0;
    }
    return left;
}

static void servers_are_watched(void) {
    int i, k;

    for (i = 0; i < SITES; i++) {
        for (k = 0; k < sites[i].servers; k++) {
            struct server *s = &sites[i].server[k];

            if (s->pid > 0 && waitpid(s->pid, NULL, WNOHANG) == s->pid) {
                violated(PROOF_ALIVE, -1, "a server ended by itself");
                s->pid = 0;
                server_runs(&sites[i], k);
            }
        }
    }
}

static void director_turns(void) {
    switch (phase) {
    case STORM: storm_goes_on(); break;
    case MENDING: mends(); break;
    case DRAINING: drains(); break;
    case SWEEPING: sweeps(); break;
    case TAKING: probe_takes(); break;
    case SETTLING:
        if (phase_lasts_ms(SETTLE_MS)) {
            probe_strikes();
        }
        break;
    case TELLING: probe_is_told(); break;
    case OVER: break;
    }
}

/* ------------------------------------------------------------------------------------------------
 * Set up and end
 */

/* Where Debian, Fedora, Alpine and others put it. */
static bool finds_faketime(void) {
    static const char *const places[] = {"/usr/lib/*/faketime/libfaketime.so.1",
                                         "/usr/lib*/faketime/libfaketime.so.1",
                                         "/usr/local/lib/faketime/libfaketime.so.1"};
    glob_t found;
    size_t i;

    for (i = 0; i < sizeof places / sizeof places[0] && faketime_library[0] == '\0'; i++) {
        if (glob(places[i], 0, NULL, &found) == 0) {
            snprintf(faketime_library, sizeof faketime_library, "%s", found.gl_pathv[0]);
            globfree(&found);
        }
    }
    return faketime_library[0] != '\0';
}

/* A high hz: what is over goes at once, and its waiters are there before a holder who overstays. */
#define COMMON                                                                              \
    "--loglevel", "warning", "--hz", "200", "--enable-debug-command", "yes",                \
        "--repl-diskless-sync-delay", "0", "--user", "locker", "on", ">secret", "~*", "&*", \
        "+@all"

/* Ended from outside: what libfaketime left of processes that are killed is swept as well. */
static void on_signal(int number) {
    int i;

    for (i = 0; i < SLOTS; i++) {
        if (clients[i].pid > 0) {
            kill(clients[i].pid, SIGKILL);
            process_is_swept(clients[i].pid);
        }
    }
    for (i = 0; i < SITES; i++) {
        process_is_swept(sites[i].server[0].pid);
        process_is_swept(sites[i].server[1].pid);
    }
    server_on_signal(number);
}

static bool servers_start(void) {
    static const char *kept[] = {COMMON,   "--appendonly",
                                 "yes",    "--appendfsync",
                                 "always", "--auto-aof-rewrite-min-size",
                                 "4mb",    NULL};
    static const char *lossy[] = {COMMON, NULL};
    struct active second;
    int i, k;

    sites[KEPT].servers = 1;
    sites[BROKEN].servers = 2;
    for (i = 0; i < SITES; i++) {
        for (k = 0; k < sites[i].servers; k++) {
            struct server *s = &sites[i].server[k];

            s->port = server_free_port();
            if (server_start(s, i == KEPT ? kept : lossy) != 0 || !clock_is_set("site", i, 0) ||
                !server_runs(&sites[i], k)) {
                return false;
            }
            memcpy(world->socket[i][k], s->socket, sizeof s->socket);
        }
        world->port[i] = sites[i].server[0].port;
    }
    memset(&second, 0, sizeof second);
    second.victim = BROKEN;
    return hand_done(
        hand_asks(&sites[BROKEN].server[1], "REPLICAOF 127.0.0.1 %d", primary_of(&second)->port));
}

static bool clients_start(void) {
    int i;

    for (i = 0; i < LINES; i++) {
        world->line[i].site = i / 2;
        world->line[i].port = i % 2 == 0 ? server_free_port() : 0;
        snprintf(world->line[i].path, sizeof world->line[i].path, "%.80s/line%d",
                 sites[BROKEN].server[0].dir, i);
    }
    proxy_pid = role_starts("proxy", 0);
    for (i = 0; i < SLOTS; i++) {
        if (!clock_is_set("client", i, 0) || !client_starts(i)) {
            return false;
        }
    }
    return proxy_pid > 0;
}

static void everything_ends(void) {
    int64_t limit_us = kit_now_us() + REST_MS * 1000;
    int i, k;

    store32(&world->calm, world->calm | 1);
    store32(&world->stop, 1);
    faults_end(true);
    while (clients_are_reaped() > 0 && kit_now_us() < limit_us) {
        check_reads();
        server_sleep_ms(10);
    }
    for (i = 0; i < SLOTS; i++) {
        if (clients[i].pid > 0) {
            violated(PROOF_ALIVE, -1, "client %d does not end", i);
            kill(clients[i].pid, SIGKILL);
            waitpid(clients[i].pid, NULL, 0);
            process_is_swept(clients[i].pid);
        }
    }
    waitpid(proxy_pid, NULL, 0);
    for (i = 0; i < SITES; i++) {
        for (k = 0; k < sites[i].servers; k++) {
            server_dies(&sites[i], k);
            server_stop(&sites[i].server[k]);
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * What came out
 */

static uint64_t lost_count(void) {
    return endings[RLOCK_REASON_EXPIRED] + endings[RLOCK_REASON_STOLEN] +
           endings[RLOCK_REASON_DELETED] + endings[RLOCK_REASON_CLOSED];
}

static void progress_prints(void) {
    uint64_t injected = 0;
    int i;

    for (i = 0; i < FAULTS; i++) {
        injected += fault_counts[i];
    }
    printf("# %5.1f min: %llu holds, %llu lost, %llu faults, %llu calms; overlaps: %llu expected, "
           "%llu not\n",
           (double)(kit_now_us() - started_us) / 6e7, (unsigned long long)holds_count,
           (unsigned long long)lost_count(), (unsigned long long)injected,
           (unsigned long long)calms, (unsigned long long)overlaps[1],
           (unsigned long long)overlaps[0]);
}

static void row(const char *name, uint64_t count) {
    printf("# %-54s %10llu\n", name, (unsigned long long)count);
}

static void faults_print(void) {
    int i;

    printf("#\n# faults (* breaks an assumption)\n");
    for (i = 0; i < FAULTS; i++) {
        char name[64];

        snprintf(name, sizeof name, "%s%s", faults[i].name, faults[i].breaks ? " *" : "");
        row(name, fault_counts[i]);
    }
    row("calms", calms);
}

static void figures_print(void) {
    uint64_t accepted = 0, naps = 0, operations[3] = {0, 0, 0};
    int i, k;

    for (i = 0; i < KEYS; i++) {
        accepted += world->resource[i].accepted;
    }
    for (i = 0; i < SLOTS; i++) {
        naps += world->slot[i].naps;
        for (k = 0; k < 3; k++) {
            operations[k] += world->slot[i].operations[k];
        }
    }
    printf("#\n# what came of them\n");
    row("acquires ended", operations[0]);
    row("renewals by hand ended", operations[1]);
    row("releases ended", operations[2]);
    row("holds", holds_count);
    row("hand-overs between processes", handovers);
    row("holds released", endings[ENDING_RELEASED]);
    row("holds whose handle was freed", endings[ENDING_FREED]);
    row("holds whose process was killed", endings[ENDING_KILLED]);
    row("holds lost: EXPIRED", endings[RLOCK_REASON_EXPIRED]);
    row("holds lost: STOLEN", endings[RLOCK_REASON_STOLEN]);
    row("holds lost: DELETED", endings[RLOCK_REASON_DELETED]);
    row("holds lost: CLOSED", endings[RLOCK_REASON_CLOSED]);
    row("writes accepted by the resources", accepted);
    row("naps between the look and the write", naps);
    row("stale writes refused, assumptions kept", refused_writes[KEPT]);
    row("stale writes refused, assumptions broken", refused_writes[BROKEN]);
    row("overlaps, expected where an assumption was broken", overlaps[1]);
    row("overlaps, not expected", overlaps[0]);
    printf("# greatest lateness of LOST %.1f ms, slowest coming to rest %.1f s, slowest telling of "
           "a DEL or SET %.1f ms\n",
           (double)latest_us / 1e3, (double)slowest_rest_us / 1e6, (double)slowest_told_us / 1e3);
}

/* TAP, and the number of those that failed. */
static int results_print(int seconds) {
    int i, failed = 0;

    for (i = 0; i < FAULTS; i++) {
        if (fault_counts[i] == 0) {
            violated(PROOF_FAULTS, -1, "not once: %s", faults[i].name);
        }
    }
    if (handovers == 0 || endings[RLOCK_REASON_EXPIRED] == 0 || calms == 0) {
        violated(PROOF_WORK, -1, "%llu hand-overs", (unsigned long long)handovers);
    }
    faults_print();
    figures_print();
    printf("1..%d\n", PROOFS);
    for (i = 0; i < PROOFS; i++) {
        printf("%s %d - %s\n", violations[i] == 0 ? "ok" : "not ok", i + 1, proof_names[i]);
        failed += violations[i] != 0;
    }
    printf("# seed %llu, %d s: %llu violations\n", (unsigned long long)world->seed, seconds,
           (unsigned long long)violation_count);
    return failed;
}

static int directs(int seconds, uint64_t seed) {
    int64_t minute_us;

    if (!finds_faketime()) {
        fprintf(stderr, "chaos: there is no libfaketime.so.1 (package faketime)\n");
        return 1;
    }
    started_us = minute_us = kit_now_us();
    finish_us = started_us + seconds * (int64_t)1000000;
    world->seed = seed;
    world->calm = 1;
    dice_seed(seed);
    faults_are_shuffled();
    printf("# chaos: %d s, seed %llu\n", seconds, (unsigned long long)seed);
    if (!servers_start() || !clients_start()) {
        fprintf(stderr, "chaos: could not start\n");
        return 1;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    signal(SIGHUP, on_signal);
    storm_begins();
    while (phase != OVER && violation_count < TOO_MANY) {
        check_reads();
        clients_are_reaped();
        servers_are_watched();
        director_turns();
        if (kit_now_us() - minute_us >= 60000000) {
            minute_us += 60000000;
            progress_prints();
        }
        server_sleep_ms(TURN_US / 1000);
    }
    everything_ends();
    return results_print(seconds) != 0;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 30;

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 4 && world_open(atoi(argv[2])) == 0) {
        return strcmp(argv[1], "client") == 0 ? client_runs(atoi(argv[3])) : proxy_runs();
    }
    if (argc > 3 || seconds < 10) {
        fprintf(stderr, "chaos [SECONDS [SEED]]     at least 10 seconds\n");
        return 2;
    }
    if (world_open(-1) != 0) {
        perror("chaos");
        return 1;
    }
    return directs(seconds, argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL));
}
