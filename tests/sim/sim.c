/* sim.c - many seeds of program.h, and what came of them
 *
 *     sim --seeds N [--from S] [--jobs J]    N programs; tables of what happened in them
 *     sim --fresh N [--past P]               the same with N seeds that follow from the commit: the
 *                                            first ones, or those past the first P
 *     sim --again FILE                       the same with the seeds that a file names
 *     sim --seed S [--skip 3,5-9] [--plain M]  one of them, with its trace
 *     sim --written N                        the N-th world of written.h, with its trace
 *     sim                                    the seeds that belong to `make test`, as TAP
 *
 * --again, --seeds and --fresh may come together: they are run in this order. First of all come the
 * worlds of written.h.
 *
 * A seed that breaks a rule is made short: steps are left out, and the weather is made plain, for
 * as long as the same rule stays broken; what is left is printed with its trace. Every attempt has
 * a process of its own, so that a crash is a finding like any other.
 */

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "fresh.h"
#include "written.h"

#define JOBS 16
#define FOUND 64
#define SUITE_SEEDS 10000
#define SUITE_FRESH (SUITE_SEEDS / 4)
#define SUITE_AGAIN "tests/sim/seeds"
#define AGAIN 256

enum { PLAIN_WEATHER = 1, PLAIN_CALLBACKS = 2, PLAIN_CLOCKS = 4, PLAIN_ALL = 7 };

struct variant { /* of a seed: what is left out */
    uint64_t seed;
    bool skipped[PROGRAM_STEPS];
    int plain;
};

struct finding {
    uint64_t seed;
    char text[200];
};

struct plan { /* the seeds of a run: some that are named, some from 1 on, some that are fresh */
    uint64_t again[AGAIN], again_count;
    uint64_t from, count;
    uint64_t fresh_from, fresh_count, past; /* past: so many fresh seeds are left out before them */
};

struct job {              /* what a worker tells */
    uint64_t place, seed; /* under way: where in the plan, and which */
    uint64_t seeds, hash, simulated_us, findings;
    struct finding found[FOUND];
    uint64_t happened[ACTS], inside[2];
    __typeof__(seen) seen;
};

static struct job *jobs; /* shared with the workers */
static jmp_buf broken;
static char broken_text[200];

static void sim_failed(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(broken_text, sizeof broken_text, format, arguments);
    va_end(arguments);
    sim_trace("BROKEN: %s", broken_text);
    if (sim.child) {
        _exit(SIM_CHILD_BREAKS);
    }
    sim.running = false;
    longjmp(broken, 1);
}

/* ------------------------------------------------------------------------------------------------
 * One seed.
 */

static void simplify(const struct variant *variant) {
    int i;
    for (i = 0; i < program.step_count; i++) {
        program.steps[i].skipped = variant->skipped[i];
    }
    if (variant->plain & PLAIN_WEATHER) {
        int64_t latency_us = sim.weather.latency_us;
        memset(&sim.weather, 0, sizeof sim.weather);
        sim.weather.latency_us = latency_us;
        sim.weather.window = 1 << 20;
    }
    if (variant->plain & PLAIN_CALLBACKS) {
        program.families &= ~(unsigned)ABOUT_CALLBACKS;
    }
    for (i = 0; i < SIM_PROCESSES && (variant->plain & PLAIN_CLOCKS); i++) {
        sim.processes[i].clock.rate_ppm = 0;
    }
    for (i = 0; i < SIM_SERVERS && (variant->plain & PLAIN_CLOCKS); i++) {
        sim.servers[i].clock.rate_ppm = 0;
    }
}

/* Whether no rule was broken; else broken_text says which. */
static bool run_variant(const struct variant *variant, uint64_t *hash) {
    if (setjmp(broken) != 0) {
        return false;
    }
    program_draw(variant->seed, NULL, 0);
    simplify(variant);
    *hash = program_run();
    return true;
}

/* ------------------------------------------------------------------------------------------------
 * Making a failing seed short.
 */

/* The kind of a finding: its text without the numbers, names and times in it. */
static void kind_of(char *kind, const char *text) {
    for (; *text; text++) {
        if (strchr("0123456789abcdef-:", *text) == NULL) {
            *kind++ = *text;
        }
    }
    *kind = 0;
}

/* Runs a variant in a process of its own; fills in what it found, "" = nothing. */
static void attempt(const struct variant *variant, char text[200], bool tracing) {
    int status;
    pid_t child;
    jobs[0].found[0].text[0] = 0;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        uint64_t hash = 0;
        sim.tracing = tracing;
        if (!tracing && freopen("/dev/null", "w", stderr) == NULL) {
            _exit(2);
        }
        if (!run_variant(variant, &hash)) {
            snprintf(jobs[0].found[0].text, 200, "%s", broken_text);
        }
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        snprintf(jobs[0].found[0].text, 200, "a crash");
    }
    snprintf(text, 200, "%s", jobs[0].found[0].text);
}

static bool still_broken(const struct variant *variant, const char *kind) {
    char text[200], other[200];
    attempt(variant, text, false);
    kind_of(other, text);
    return strcmp(kind, other) == 0;
}

/* Leaves out a run of steps, if the rule stays broken. */
static void without(struct variant *variant, const char *kind, int first, int count) {
    struct variant less = *variant;
    int i;
    bool any = false;
    for (i = first; i < first + count && i < PROGRAM_STEPS; i++) {
        any = any || !less.skipped[i];
        less.skipped[i] = true;
    }
    if (any && still_broken(&less, kind)) {
        *variant = less;
    }
}

static void make_short(struct variant *variant, const char *text) {
    char kind[200];
    int size, first, bit;
    kind_of(kind, text);
    for (bit = 1; bit < PLAIN_ALL; bit <<= 1) {
        struct variant plainer = *variant;
        plainer.plain |= bit;
        if (still_broken(&plainer, kind)) {
            *variant = plainer;
        }
    }
    for (size = PROGRAM_STEPS / 2; size > 0; size /= 2) {
        for (first = 0; first < PROGRAM_STEPS; first += size) {
            without(variant, kind, first, size);
        }
    }
}

static void print_how(const struct variant *variant) {
    const char *comma = " --skip ";
    int i;
    printf("repeat it with: sim --seed %llu", (unsigned long long)variant->seed);
    for (i = 0; i < PROGRAM_STEPS; i++) {
        int last = i;
        if (variant->skipped[i]) {
            while (last + 1 < PROGRAM_STEPS && variant->skipped[last + 1]) {
                last++;
            }
            printf(last > i ? "%s%d-%d" : "%s%d", comma, i, last);
            comma = ",";
            i = last;
        }
    }
    printf(variant->plain ? " --plain %d\n" : "\n", variant->plain);
}

static void explain(const struct finding *finding) {
    struct variant variant;
    char text[200];
    memset(&variant, 0, sizeof variant);
    variant.seed = finding->seed;
    printf("seed %llu: %s\n", (unsigned long long)finding->seed, finding->text);
    attempt(&variant, text, false);
    make_short(&variant, text);
    attempt(&variant, text, true);
    print_how(&variant);
}

/* ------------------------------------------------------------------------------------------------
 * Many seeds.
 */

static void add_finding(struct job *job, const char *text) {
    if (job->findings < FOUND) {
        job->found[job->findings].seed = job->seed;
        snprintf(job->found[job->findings].text, sizeof job->found[0].text, "%s", text);
    }
    job->findings++;
}

static uint64_t plan_count(const struct plan *plan) {
    return plan->again_count + plan->count + plan->fresh_count;
}

static uint64_t plan_seed(const struct plan *plan, uint64_t place) {
    if (place < plan->again_count) {
        return plan->again[place];
    }
    place -= plan->again_count;
    return place < plan->count ? plan->from + place : plan->fresh_from + place - plan->count;
}

static void plan_fresh(struct plan *plan, uint64_t count) {
    plan->fresh_count = count;
    plan->fresh_from = count > 0 ? fresh_from(1000000, 4000000000) : 0;
}

/* A line of the file begins with a seed, or with a #. */
static bool plan_again(struct plan *plan, const char *path) {
    FILE *file = fopen(path, "r");
    char line[512];
    while (file != NULL && fgets(line, sizeof line, file) != NULL && plan->again_count < AGAIN) {
        plan->again[plan->again_count] = strtoull(line, NULL, 10);
        plan->again_count += plan->again[plan->again_count] != 0;
    }
    if (file == NULL || fclose(file) != 0 || plan->again_count == AGAIN) {
        fprintf(stderr, "%s cannot be read, or names %d seeds and more\n", path, AGAIN);
        return false;
    }
    return true;
}

static void plan_print(const struct plan *plan) {
    if (plan->again_count > 0) {
        printf("%llu seeds that failed once\n", (unsigned long long)plan->again_count);
    }
    if (plan->fresh_count > 0) {
        printf("fresh seeds %llu..%llu, of this commit: sim --seeds %llu --from %llu\n",
               (unsigned long long)plan->fresh_from,
               (unsigned long long)(plan->fresh_from + plan->fresh_count - 1),
               (unsigned long long)plan->fresh_count, (unsigned long long)plan->fresh_from);
    }
}

static void work(struct job *job, const struct plan *plan, uint64_t stride) {
    struct variant variant;
    memset(&variant, 0, sizeof variant);
    for (; job->place < plan_count(plan); job->place += stride) {
        uint64_t hash = 0;
        variant.seed = job->seed = plan_seed(plan, job->place);
        if (!run_variant(&variant, &hash)) {
            add_finding(job, broken_text);
        }
        job->hash += sim_mix(hash ^ job->seed);
        job->simulated_us += (uint64_t)sim.now_us;
        job->seeds++;
        memcpy(job->happened, happened, sizeof happened);
        memcpy(job->inside, happened_inside, sizeof happened_inside);
        memcpy(&job->seen, &seen, sizeof seen);
    }
}

static pid_t start(struct job *job, const struct plan *plan, uint64_t stride) {
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        memcpy(happened, job->happened, sizeof happened); /* of a worker that crashed */
        memcpy(happened_inside, job->inside, sizeof happened_inside);
        memcpy(&seen, &job->seen, sizeof seen);
        work(job, plan, stride);
        _exit(0);
    }
    return child;
}

static void run_all(const struct plan *plan, int job_count) {
    pid_t workers[JOBS];
    int i, status;
    for (i = 0; i < job_count; i++) {
        jobs[i].place = (uint64_t)i;
        workers[i] = start(&jobs[i], plan, (uint64_t)job_count);
    }
    for (i = 0; i < job_count; i++) {
        while (waitpid(workers[i], &status, 0) == workers[i] && status != 0) {
            add_finding(&jobs[i], "a crash");
            jobs[i].seeds++;
            jobs[i].place += (uint64_t)job_count;
            workers[i] = start(&jobs[i], plan, (uint64_t)job_count);
        }
    }
    for (i = 1; i < job_count; i++) {
        uint64_t *to = (uint64_t *)&jobs[0].seen, *at = (uint64_t *)&jobs[i].seen;
        size_t k;
        for (k = 0; k < sizeof seen / sizeof *to; k++) {
            to[k] += at[k];
        }
        for (k = 0; k < ACTS; k++) {
            jobs[0].happened[k] += jobs[i].happened[k];
        }
        jobs[0].inside[0] += jobs[i].inside[0];
        jobs[0].inside[1] += jobs[i].inside[1];
        jobs[0].seeds += jobs[i].seeds;
        jobs[0].hash += jobs[i].hash;
        jobs[0].simulated_us += jobs[i].simulated_us;
        for (k = 0; k < jobs[i].findings && k < FOUND; k++) {
            jobs[0].seed = jobs[i].found[k].seed;
            add_finding(&jobs[0], jobs[i].found[k].text);
        }
    }
}

static void print_row(const char *name, uint64_t count) {
    printf("    %-44s %12llu\n", name, (unsigned long long)count);
}

/* What there is of the kinds beside the mutex: all of it must have happened, or the run proves less
 * than it says. */
static const struct {
    const char *name;
    uint64_t *count;
} of_kinds[] = {
    {"key of a mutex, where there are other kinds", &seen.slots[SLOT_MUTEX]},
    {"key of a fair lock", &seen.slots[SLOT_FAIR]},
    {"key of readers and writers", &seen.slots[SLOT_SHARED]},
    {"key of a semaphore", &seen.slots[SLOT_SEMAPHORE]},
    {"grant: mutex", &seen.granted[RLOCK_KIND_MUTEX]},
    {"grant: several keys", &seen.sets},
    {"grant: fair", &seen.granted[RLOCK_KIND_FAIR]},
    {"grant: read", &seen.granted[RLOCK_KIND_READ]},
    {"grant: write", &seen.granted[RLOCK_KIND_WRITE]},
    {"grant: semaphore", &seen.granted[RLOCK_KIND_SEMAPHORE]},
    {"reader beside its own writer", &seen.beside},
    {"... who waited in line when that was granted", &seen.stepped_down},
    {"acquires that wait for a release", &seen.followed},
    {"place in a line taken", &seen.lined},
    {"turn offered, and its client called", &seen.offered},
    {"turn taken", &seen.claimed},
    {"turn passed", &seen.turns},
    {"skipped in line: nobody heard the call", &seen.skipped},
    {"put out of the line: weighs too much now", &seen.dropped},
    {"place forgotten with its line", &seen.forgotten},
    {"hold taken away by force", &seen.forced},
    {"number of permits changed", &seen.permits},
    {"handle of another kind than its key", &seen.meetings},
    {"grant: as another kind than the key's", &seen.met},
    {"member that is not ours", &seen.strangers},
    {"line freed of what is not ours", &seen.expelled},
    {"fence counter that is not ours", &seen.odd_fences},
    {"server without memory, before Redis 7.0", &seen.full},
    {"question answered: how a key stands", &seen.asked[RLOCK_OP_INSPECT][0]},
    {"question answered: force", &seen.asked[RLOCK_OP_FORCE][0]},
    {"question answered: permits", &seen.asked[RLOCK_OP_SET_PERMITS][0]},
    {"question without an answer", &seen.unanswered},
    {"world whose servers are one quorum", &seen.quorums},
    {"grant: quorum", &seen.votes_granted},
    {"vote forgotten by its server", &seen.votes_lost},
    {"vote won back", &seen.votes_back},
    {"hold renewed with a minority of servers gone", &seen.thin},
    {"overlap after a quorum of votes was forgotten", &seen.votes_overlaps},
    {"fork inside a callback", &seen.forks},
    {"world of a primary and its replicas", &seen.deployments},
    {"name not found", &seen.told_none},
    {"world whose Sentinels have names", &seen.named},
    {"name with several addresses", &seen.told_more},
    {"promotion", &seen.promoted},
    {"... while the old primary goes on", &seen.split},
    {"write that was lost with a promotion", &seen.tails},
    {"write at an old primary", &seen.aside},
    {"world whose servers are one cluster", &seen.clusters},
    {"MOVED", &seen.moved},
    {"ASK", &seen.asks},
    {"TRYAGAIN", &seen.again},
    {"slot moved", &seen.arrived},
    {"node replaced", &seen.replaced},
    {"world whose replicas have what is held", &seen.synced},
    {"WAIT that ended with too few of them", &seen.unsynced},
    {"hold looked at after a promotion that it survives", &seen.saved},
    {"world with a quarantine", &seen.quarantines},
    {"hold whose server forgot it, in quarantine", &seen.guarded},
    {"renewal of what a clock set back made longer", &seen.cut},
    {"server behind a proxy that takes few commands", &seen.proxied},
};
#define OF_KINDS (sizeof of_kinds / sizeof of_kinds[0])

static uint64_t of_kind(size_t i) { /* of all workers */
    return *(uint64_t *)(void *)((char *)&jobs[0].seen +
                                 ((char *)of_kinds[i].count - (char *)&seen));
}

static void print_tables(void) {
    static const char *const kinds[] = {"", "ACQUIRED", "RENEWED", "RELEASED"};
    static const char *const flavours[MODEL_FLAVOURS] = {"Redis 7.0", "Redis 5", "Redis 6",
                                                         "Valkey 9"};
    static const char *const reasons[] = {"", "EXPIRED", "STOLEN", "DELETED", "CLOSED"};
    char name[80];
    size_t i, kind;
    printf("what happened:\n");
    for (i = 0; i < ACTS; i++) {
        print_row(acts[i].name, jobs[0].happened[i]);
    }
    print_row("stop of a process inside a callback", jobs[0].inside[0]);
    print_row("call from inside a callback", jobs[0].inside[1]);
    print_row("overlap of void holds, told by their fences", jobs[0].seen.overlaps);
    print_row("hold handed on", jobs[0].seen.handed_on);
    print_row("... by who had renewed it by hand", jobs[0].seen.handed_renewed);
    print_row("key that was handed on, then given to others", jobs[0].seen.given);
    print_row("key that was handed on, then kept from them", jobs[0].seen.kept);
    for (i = 0; i < MODEL_FLAVOURS; i++) {
        snprintf(name, sizeof name, "server like %s", flavours[i]);
        print_row(name, jobs[0].seen.flavours[i]);
    }
    print_row("key deleted by DELIFEQ, or not", jobs[0].seen.delifeqs);
    print_row("renewals in a batch", jobs[0].seen.mgets);
    for (i = 0; i < OF_KINDS; i++) {
        print_row(of_kinds[i].name, of_kind(i));
    }
    printf("how it ended:\n");
    for (kind = RLOCK_ACQUIRED; kind <= RLOCK_RELEASED; kind++) {
        for (i = 0; i < 15; i++) {
            snprintf(name, sizeof name, "%s: %s", kinds[kind], rlock_strerror(-(int)i));
            if (jobs[0].seen.ended[kind][i] > 0) {
                print_row(name, jobs[0].seen.ended[kind][i]);
            }
        }
    }
    for (i = 1; i < sizeof reasons / sizeof *reasons; i++) {
        snprintf(name, sizeof name, "LOST: %s", reasons[i]);
        print_row(name, jobs[0].seen.lost[i]);
    }
}

/* What must have happened at least once, or the run proves less than it says. */
static const char *missing(void) {
    size_t i;
    for (i = 0; i < ACTS; i++) {
        if (jobs[0].happened[i] == 0) {
            return acts[i].name;
        }
    }
    for (i = 0; i < OF_KINDS; i++) {
        if (of_kind(i) == 0) {
            return of_kinds[i].name;
        }
    }
    for (i = RLOCK_REASON_EXPIRED; i <= RLOCK_REASON_CLOSED; i++) {
        if (jobs[0].seen.lost[i] == 0) {
            return "a reason of LOST";
        }
    }
    for (i = 0; i < MODEL_FLAVOURS; i++) {
        if (jobs[0].seen.flavours[i] == 0) {
            return "a flavour of servers";
        }
    }
    if (jobs[0].seen.delifeqs == 0 || jobs[0].seen.handed_on == 0 || jobs[0].seen.mgets == 0) {
        return "a fast path";
    }
    return jobs[0].inside[0] == 0 || jobs[0].inside[1] == 0 ? "something in a callback" : NULL;
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* A world of written.h. */
static bool run_written(size_t number) {
    if (setjmp(broken) != 0) {
        return false;
    }
    written[number].run();
    return true;
}

/* In a process of its own; whether it is as written. */
static bool written_is_so(size_t number) {
    int status = 0;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        bool fine = run_written(number);
        if (!fine) {
            printf("%s: %s\n", written[number].name, broken_text);
        }
        fflush(stdout);
        _exit(fine ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

/* Whether all of them are. A suite prints their rows of TAP, the first with this number; else what
 * fails is printed. */
static bool all_written(int number) {
    bool fine = true;
    size_t i;
    for (i = 0; i < WRITTEN_WORLDS; i++) {
        bool so = written_is_so(i);
        if (number > 0 || !so) {
            printf("%s %d - %s\n", so ? "ok" : "not ok", number + (int)i, written[i].name);
        }
        fine = fine && so;
    }
    return fine;
}

static int report(const struct plan *plan, int job_count) {
    double seconds;
    plan_print(plan);
    run_all(plan, job_count);
    seconds = cpu_seconds();
    print_tables();
    printf("%.1f hours simulated in %.1f seconds of one core\n",
           (double)jobs[0].simulated_us / 3.6e9, seconds);
    if (jobs[0].findings > 0) {
        struct finding first = jobs[0].found[0];
        uint64_t i;
        for (i = 0; i < jobs[0].findings && i < FOUND; i++) {
            printf("seed %llu: %s\n", (unsigned long long)jobs[0].found[i].seed,
                   jobs[0].found[i].text);
        }
        explain(&first);
    }
    printf("%llu seeds, %llu violations, %.0f seeds/s, hash %016llx\n",
           (unsigned long long)jobs[0].seeds, (unsigned long long)jobs[0].findings,
           (double)jobs[0].seeds / seconds, (unsigned long long)jobs[0].hash);
    return jobs[0].findings > 0;
}

static int suite(struct plan *plan, int job_count) {
    int status;
    const char *lacks;
    bool gives, so;
    struct variant variant;
    uint64_t once = 0, again = 1;
    if (!plan_again(plan, SUITE_AGAIN)) {
        return 2;
    }
    plan->count = SUITE_SEEDS;
    plan_fresh(plan, SUITE_FRESH);
    status = report(plan, job_count);
    lacks = missing();
    gives = 4 * jobs[0].seen.kept < jobs[0].seen.kept + jobs[0].seen.given;
    memset(&variant, 0, sizeof variant);
    variant.seed = 1;
    run_variant(&variant, &once);
    run_variant(&variant, &again);
    printf("%s 1 - no rule is broken in %llu seeds\n", status == 0 ? "ok" : "not ok",
           (unsigned long long)plan_count(plan));
    printf("%s 2 - every fault and every loss happens in them%s%s\n",
           lacks == NULL ? "ok" : "not ok", lacks != NULL ? ", but not: " : "",
           lacks != NULL ? lacks : "");
    printf("%s 3 - a seed has the same trace twice\n", once == again ? "ok" : "not ok");
    printf("%s 4 - who hands on gives way to the others\n", gives ? "ok" : "not ok");
    so = all_written(5);
    printf("1..%d\n", 4 + (int)WRITTEN_WORLDS);
    return status != 0 || lacks != NULL || once != again || !gives || !so;
}

/* ------------------------------------------------------------------------------------------------
 * The command line.
 */

static void read_skips(struct variant *variant, const char *text) {
    while (*text) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (*end == '-') {
            last = strtol(end + 1, &end, 10);
        }
        for (; first <= last && first >= 0 && first < PROGRAM_STEPS; first++) {
            variant->skipped[first] = true;
        }
        text = *end == ',' ? end + 1 : "";
    }
}

static int one(const struct variant *variant) {
    uint64_t hash = 0;
    bool fine;
    sim.tracing = true;
    fine = run_variant(variant, &hash);
    printf("seed %llu: %s, hash %016llx\n", (unsigned long long)variant->seed,
           fine ? "no rule is broken" : broken_text, (unsigned long long)hash);
    return fine ? 0 : 1;
}

int main(int argc, char **argv) {
    struct variant variant;
    struct plan plan;
    int job_count = (int)sysconf(_SC_NPROCESSORS_ONLN), i;
    memset(&variant, 0, sizeof variant);
    memset(&plan, 0, sizeof plan);
    plan.from = 1;
    jobs = (struct job *)mmap(NULL, sizeof *jobs * JOBS, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (i = 1; i + 1 < argc; i += 2) {
        uint64_t number = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seeds") == 0) {
            plan.count = number;
        } else if (strcmp(argv[i], "--from") == 0) {
            plan.from = number;
        } else if (strcmp(argv[i], "--fresh") == 0) {
            plan_fresh(&plan, number);
        } else if (strcmp(argv[i], "--past") == 0) {
            plan.past = number;
        } else if (strcmp(argv[i], "--again") == 0 && plan_again(&plan, argv[i + 1])) {
            continue;
        } else if (strcmp(argv[i], "--jobs") == 0) {
            job_count = (int)number;
        } else if (strcmp(argv[i], "--seed") == 0) {
            variant.seed = number;
        } else if (strcmp(argv[i], "--written") == 0 && number - 1 < WRITTEN_WORLDS) {
            sim.tracing = true;
            return !run_written((size_t)number - 1);
        } else if (strcmp(argv[i], "--skip") == 0) {
            read_skips(&variant, argv[i + 1]);
        } else if (strcmp(argv[i], "--plain") == 0) {
            variant.plain = (int)number;
        } else {
            break;
        }
    }
    if (i < argc || jobs == MAP_FAILED) {
        fprintf(stderr,
                "usage: sim [--again FILE] [--seeds N [--from S]] [--fresh N [--past P]] [--jobs J]"
                " | sim --seed S [--skip LIST]\n");
        return 2;
    }
    plan.fresh_from += plan.past;
    job_count = job_count < 1 ? 1 : job_count > JOBS ? JOBS : job_count;
    if (variant.seed != 0) {
        return one(&variant);
    }
    if (plan_count(&plan) == 0) {
        return suite(&plan, job_count);
    }
    return all_written(0) ? report(&plan, job_count) : 1;
}
