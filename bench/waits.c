/* What does config.replicas cost, by how far away the replica is? So many acquires a second, each
 * of a key of its own that is released at once, or as many as there are answers to: how many are
 * answered, and how long that takes. With a replica 1 ms and 20 ms away; with none, where each is
 * refused; and beside them without config.replicas. */
#include "bench.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define SLOTS 2048
#define ALL_IN_FLIGHT 1024

static struct server server;
static struct bench_samples times;

/* --- a replica that is far away: a process that passes on what it reads, that much later --- */

struct chunk {
    struct chunk *next;
    int64_t due_ns;
    ssize_t size;
    char bytes[16384];
};

struct way {
    int from, to;
    struct chunk *first, **last;
};

/* Reads what is there. False: this end is closed. */
static bool way_reads(struct way *way, int64_t delay_ns) {
    struct chunk *chunk = (struct chunk *)calloc(1, sizeof *chunk);

    if (chunk == NULL || (chunk->size = read(way->from, chunk->bytes, sizeof chunk->bytes)) <= 0) {
        free(chunk);
        return false;
    }
    chunk->due_ns = bench_now_ns() + delay_ns;
    *way->last = chunk;
    way->last = &chunk->next;
    return true;
}

static void way_writes(struct way *way) {
    while (way->first != NULL && way->first->due_ns <= bench_now_ns()) {
        struct chunk *chunk = way->first;
        ssize_t n, done = 0;

        while (done < chunk->size &&
               (n = write(way->to, chunk->bytes + done, (size_t)(chunk->size - done))) > 0) {
            done += n;
        }
        way->first = chunk->next;
        way->last = way->first == NULL ? &way->first : way->last;
        free(chunk);
    }
}

static void relay_runs(int from, int to, int64_t delay_ns) {
    struct way ways[2] = {{from, to, NULL, NULL}, {to, from, NULL, NULL}};
    struct pollfd asks[2] = {{from, POLLIN, 0}, {to, POLLIN, 0}};
    int i;

    ways[0].last = &ways[0].first;
    ways[1].last = &ways[1].first;
    for (;;) {
        int64_t wait_ns = INT64_MAX;
        struct timespec wait;

        for (i = 0; i < 2; i++) {
            if (ways[i].first != NULL && ways[i].first->due_ns - bench_now_ns() < wait_ns) {
                wait_ns = ways[i].first->due_ns - bench_now_ns();
            }
        }
        wait_ns = wait_ns < 0 ? 0 : wait_ns;
        wait.tv_sec = 0;
        wait.tv_nsec = (long)(wait_ns < 999999999 ? wait_ns : 999999999);
        if (ppoll(asks, 2, &wait, NULL) < 0) {
            return;
        }
        for (i = 0; i < 2; i++) {
            if (asks[i].revents != 0 && !way_reads(&ways[i], delay_ns)) {
                return;
            }
            way_writes(&ways[i]);
        }
    }
}

static int tcp_socket(struct sockaddr_in *at, int port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

    memset(at, 0, sizeof *at);
    at->sin_family = AF_INET;
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at->sin_port = htons((uint16_t)port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Starts a relay to the server, by which a round trip takes so long. It ends with this program. */
static pid_t relay_starts(int port, int64_t trip_ns) {
    struct sockaddr_in at;
    int door = tcp_socket(&at, port), one = 1;
    pid_t pid;

    if (bind(door, (struct sockaddr *)&at, sizeof at) != 0 || listen(door, 4) != 0) {
        bench_fail("no relay");
    }
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int from = accept(door, NULL, NULL), to = tcp_socket(&at, server.port);

            setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            if (connect(to, (struct sockaddr *)&at, sizeof at) == 0) {
                relay_runs(from, to, trip_ns / 2);
            }
            close(from);
            close(to);
        }
    }
    close(door);
    return pid;
}

/* --- acquires --- */

static struct slot {
    rlock *lock;
    int64_t start_ns;
    bool busy;
} slots[SLOTS];

static int running, next_slot, in_flight; /* in_flight: 0 = at a rate */
static bool stopping;
static uint64_t answered;
static int64_t ticking_ns, ticks_a_second, begun;

static void begins(struct slot *s);

static void ended(struct slot *s) {
    s->busy = false;
    running--;
    if (in_flight > 0 && !stopping) {
        begins(s);
    } else if (stopping && running == 0) {
        ev_break(EV_DEFAULT, EVBREAK_ALL);
    }
}

static void on_released(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)event;
    ended((struct slot *)user);
}

static void on_acquired(rlock *lock, const rlock_event *event, void *user) {
    struct slot *s = (struct slot *)user;

    answered++;
    bench_sample(&times, bench_now_ns() - s->start_ns);
    if (event->status == RLOCK_OK) {
        rlock_release(lock, on_released, user);
    } else if (event->status == RLOCK_ERR_SERVER) { /* too few replicas */
        ended(s);
    } else {
        bench_fail(rlock_strerror(event->status));
    }
}

static void begins(struct slot *s) {
    s->busy = true;
    s->start_ns = bench_now_ns();
    running++;
    rlock_acquire(s->lock, 0, 0, on_acquired, s);
}

/* Begins as many as are due: a loop that was late catches up. */
static void on_tick(struct ev_loop *loop, ev_timer *timer, int revents) {
    int64_t due = (bench_now_ns() - ticking_ns) * ticks_a_second / 1000000000;

    (void)loop, (void)timer, (void)revents;
    for (; begun < due; begun++) {
        next_slot = (next_slot + 1) % SLOTS;
        if (!slots[next_slot].busy) {
            begins(&slots[next_slot]);
        }
    }
}

/* Measures at a rate; 0 = as many as are answered. */
static void measure(const char *what, int rate, double seconds) {
    rlock_client *client = bench_client(&server, false, 0);
    ev_timer tick;
    int64_t start_ns;
    char key[24];
    int i;

    stopping = false;
    in_flight = rate > 0 ? 0 : ALL_IN_FLIGHT;
    for (i = 0; i < SLOTS; i++) {
        snprintf(key, sizeof key, "bench:%014d", i);
        slots[i].lock = bench_lock(client, key, NULL, NULL);
    }
    for (i = 0; i < in_flight; i++) {
        begins(&slots[i]);
    }
    ev_timer_init(&tick, on_tick, 0., rate > 0 ? 1. / rate : 1.);
    ticking_ns = bench_now_ns();
    ticks_a_second = rate;
    begun = 0;
    if (rate > 0) {
        ev_timer_start(EV_DEFAULT, &tick);
    }
    bench_run(0.6); /* longer than two WAITs that no replica answers */
    answered = times.count = 0;
    start_ns = bench_now_ns();
    bench_run(seconds);
    bench_line(what, "rate", (double)answered * 1e9 / (double)(bench_now_ns() - start_ns), "1/s");
    bench_sort(&times);
    bench_line(what, "p50", bench_percentile(&times, 50), "us");
    bench_line(what, "p99", bench_percentile(&times, 99), "us");
    stopping = true;
    ev_timer_stop(EV_DEFAULT, &tick);
    if (running > 0) {
        ev_run(EV_DEFAULT, 0);
    }
    for (i = 0; i < SLOTS; i++) {
        rlock_free(slots[i].lock);
    }
    rlock_client_free(client);
}

static void at_each_rate(const char *replica) {
    static const int rates[] = {100, 1000, 0};
    double seconds = bench_quick ? 0.4 : 2.;
    char what[64];
    size_t i;

    for (i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        snprintf(what, sizeof what, rates[i] > 0 ? "waits.%s.%d" : "waits.%s.all", replica,
                 rates[i]);
        measure(what, rates[i], seconds);
    }
}

static void with_a_replica_away(const char *name, int64_t trip_ns) {
    static struct server replica;
    int port = server_free_port(), tries;
    pid_t relay = relay_starts(port, trip_ns);
    char text[4096] = "";

    bench_server(&replica);
    server_cli(&replica, text, sizeof text, "REPLICAOF 127.0.0.1 %d", port);
    for (tries = 0; strstr(text, "master_link_status:up") == NULL; tries++) {
        if (tries == 400) {
            bench_fail("the replica does not follow");
        }
        server_sleep_ms(50);
        server_cli(&replica, text, sizeof text, "INFO replication");
    }
    at_each_rate(name);
    server_stop(&replica);
    kill(relay, SIGKILL);
    waitpid(relay, NULL, 0);
}

int main(int argc, char **argv) {
    bench_arguments(argc, argv);
    bench_server(&server);
    at_each_rate("off");
    bench_replicas = 1;
    at_each_rate("none");
    with_a_replica_away("1ms", 1000000);
    with_a_replica_away("20ms", 20000000);
    server_stop(&server);
    return 0;
}
