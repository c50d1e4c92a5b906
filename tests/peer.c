/* A holder for tests written in other languages: one handle, told what to do by lines on its
 * standard input.
 *
 *     peer URL string|redisson KEY
 *
 *     acquire WAIT_MS LEASE_MS     renew LEASE_MS     release     cancel     held     stats
 * quit
 *
 * It writes a line for every callback and for every call that was refused, with the time of
 * CLOCK_BOOTTIME:
 *
 *     MICROSECONDS acquired|renewed|released|lost STATUS REASON FENCE REMAINING_MS
 *     MICROSECONDS refused STATUS         MICROSECONDS held 0|1         MICROSECONDS stats
 * PUSHING COMMANDS
 */
#define RLOCK_IMPLEMENTATION
#include "rlock.h"

#include "rlock_poll.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static rlock_poll *loop;
static rlock_client *client;
static rlock *lock;
static char line[256];
static size_t line_len;

static long long now_us(void) {
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void on_event(rlock *l, const rlock_event *event, void *user) {
    static const char *const names[] = {"", "acquired", "renewed", "released", "lost"};

    (void)l, (void)user;
    printf("%lld %s %d %d %llu %lld\n", now_us(), names[event->kind], event->status,
           (int)event->reason, (unsigned long long)event->fence, (long long)event->remaining_ms);
}

static void obeys(const char *words) {
    long long a = 0, b = 0;
    int status = RLOCK_OK;

    if (sscanf(words, "acquire %lld %lld", &a, &b) == 2) {
        status = rlock_acquire(lock, a, b, on_event, NULL);
    } else if (sscanf(words, "renew %lld", &a) == 1) {
        status = rlock_renew(lock, a, on_event, NULL);
    } else if (strcmp(words, "release") == 0) {
        status = rlock_release(lock, on_event, NULL);
    } else if (strcmp(words, "cancel") == 0) {
        status = rlock_cancel(lock);
    } else if (strcmp(words, "held") == 0) {
        printf("%lld held %d\n", now_us(), rlock_is_held(lock));
    } else if (strcmp(words, "stats") == 0) {
        rlock_stats stats;

        rlock_client_stats(client, &stats);
        printf("%lld stats %d %llu\n", now_us(), stats.pushing, (unsigned long long)stats.commands);
    } else {
        rlock_poll_stop(loop);
    }
    if (status != RLOCK_OK) {
        printf("%lld refused %d\n", now_us(), status);
    }
}

static void on_input(rlock_io *io, unsigned events) {
    ssize_t n = read(0, line + line_len, sizeof line - 1 - line_len);
    char *end;

    (void)io, (void)events;
    if (n <= 0) {
        rlock_poll_stop(loop);
        return;
    }
    line_len += (size_t)n;
    line[line_len] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        obeys(line);
        line_len -= (size_t)(end + 1 - line);
        memmove(line, end + 1, line_len + 1);
    }
}

static void on_log(void *user, int level, const char *text) {
    (void)user, (void)level;
    fprintf(stderr, "peer: %s\n", text);
}

int main(int argc, char **argv) {
    rlock_config config;
    rlock_options options;
    rlock_io input;

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    memset(&config, 0, sizeof config);
    memset(&options, 0, sizeof options);
    memset(&input, 0, sizeof input);
    loop = rlock_poll_new();
    if (argc != 4 || loop == NULL) {
        fprintf(stderr, "peer URL string|redisson KEY\n");
        return 2;
    }
    config.loop = rlock_poll_loop(loop);
    config.url = argv[1];
    config.wire = strcmp(argv[2], "redisson") == 0 ? RLOCK_WIRE_REDISSON : RLOCK_WIRE_STRING;
    config.watchdog_lease_ms = 1500;
    config.log = on_log;
    options.key = argv[3];
    options.fencing = true;
    options.on_lost = on_event;
    input.ready = on_input;
    if (rlock_client_new(&client, &config) != RLOCK_OK ||
        rlock_new(&lock, client, &options) != RLOCK_OK ||
        rlock_poll_watch(loop, &input, 0, RLOCK_IO_READ) != 0) {
        return 2;
    }
    rlock_poll_run(loop);
    rlock_poll_watch(loop, &input, 0, 0);
    rlock_free(lock);
    rlock_client_free(client);
    rlock_poll_free(loop);
    return 0;
}
