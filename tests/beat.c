/* The command of the tests of the program rlock: it writes down when it ran.
 *
 *     beat LOG [WORD...]
 *
 * Every 2 ms each process of it appends a line to LOG: the time of CLOCK_BOOTTIME in microseconds,
 * read before the line is written; which run that is, which all processes of a run share; its
 * process id. The words, in this order, say how it behaves:
 *
 *     once FILE   ends at once, and writes nothing, if FILE is there; makes it when it ends
 *     ignore      ignores SIGTERM
 *     away        a second process beats too, in a session of its own
 *     leave MS    ends at once; a child beats on for so long
 *     forks       a third one goes away by a fork and a new session after each beat
 *     stop        stops itself after the first beat
 *     for MS      ends after so long, with status 7
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int file;
static char run[64];

static long long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void beat(void) {
    struct timespec pause = {0, 2000000};
    char line[128];
    int length = snprintf(line, sizeof line, "%lld %s %d\n", now_us(), run, (int)getpid());
    if (write(file, line, (size_t)length) != length) {
        _exit(1);
    }
    nanosleep(&pause, NULL);
}

static void beat_until(long long until_us) {
    while (now_us() < until_us) {
        beat();
    }
}

int main(int argc, char **argv) {
    const char *once = NULL, *fence = getenv("RLOCK_FENCE");
    long long until_us = now_us() + 60000000; /* no test is that long: nothing is left behind */
    int i, status = 0;
    if (argc < 2 || (file = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) < 0) {
        return 1;
    }
    snprintf(run, sizeof run, "%s.%d.%lld", fence ? fence : "0", (int)getpid(), now_us());
    for (i = 2; i < argc; i++) {
        if (strcmp(argv[i], "once") == 0) {
            once = argv[++i];
            if (access(once, F_OK) == 0) {
                return 0;
            }
        } else if (strcmp(argv[i], "ignore") == 0) {
            signal(SIGTERM, SIG_IGN);
        } else if (strcmp(argv[i], "away") == 0) {
            if (fork() == 0) {
                setsid();
                beat_until(until_us);
                _exit(0);
            }
        } else if (strcmp(argv[i], "leave") == 0) {
            until_us = now_us() + atoi(argv[++i]) * 1000;
            if (fork() != 0) {
                _exit(7);
            }
        } else if (strcmp(argv[i], "forks") == 0) {
            if (fork() == 0) {
                while (now_us() < until_us) {
                    setsid();
                    beat();
                    if (fork() != 0) {
                        _exit(0);
                    }
                }
                _exit(0);
            }
        } else if (strcmp(argv[i], "stop") == 0) {
            beat();
            raise(SIGSTOP);
        } else if (strcmp(argv[i], "for") == 0) {
            until_us = now_us() + atoi(argv[++i]) * 1000;
            status = 7;
        }
    }
    beat();
    beat_until(until_us);
    if (once) {
        return open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) < 0;
    }
    return status;
}
