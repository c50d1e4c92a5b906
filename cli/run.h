/* run.h - a command that runs while a lock is held: rlock KEY -- command, rlock elect
 *
 *     rlock            the client and its loop; what the user started, and signals
 *      └─ the keeper   looks at the deadline, which it shares with rlock; forks and reaps
 *          └─ the command, in a process group of its own, and what that starts
 *
 * No process of the command may run past the deadline. The keeper ends them in time for it if rlock
 * stands still, and at once if rlock is gone; rlock ends them if the keeper is gone or stands
 * still; the kernel ends the command itself if the keeper is gone. What leaves the group, or its
 * parent, is found as a descendant (Linux: both are subreapers).
 */
#ifndef RLOCK_CLI_RUN_H
#define RLOCK_CLI_RUN_H

#include <dirent.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli.h"
#include "password.h"
#include "show.h"

#ifdef CLOCK_BOOTTIME /* as RLOCK_NOW_US */
#define RUN_CLOCK CLOCK_BOOTTIME
#else
#define RUN_CLOCK CLOCK_MONOTONIC
#endif
#define RUN_LOOK SIGRTMIN    /* between rlock and the keeper: something happened */
#define RUN_BACK_OFF_MS 1000 /* elect: the pause before another start, then twice as long, ... */
#define RUN_BACK_OFF_MAX_MS 60000 /* ... at most this; a command that ran for longer begins anew */

/* What rlock and the keeper share. */
static struct run_page {
    rlock_deadline deadline; /* of the hold */
    volatile pid_t group;    /* of the command; 0 = not started, or nothing is in it any more */
    volatile int result;     /* the command's exit status; -N: signal N has ended it */
    volatile bool ended;     /* the command itself is gone; what it started may be there */
    volatile int stopped;    /* by this signal the command is stopped; 0 = it is not */
    volatile bool lost;      /* the deadline came near: the command was told to end */
    volatile bool not_run;   /* there is no such command, or it cannot be run */
    int64_t lease_ms;        /* what is had; another engine may give less than is asked for */
} * run_page;

static struct {
    rlock *lock;
    rlock_election *election; /* NULL = it runs once */
    uint64_t fence;
    pid_t rlock, keeper; /* the processes; 0 = there is none */
    int64_t end_us;      /* when the command is ended, whatever is renewed; 0 = not yet known */
    sigset_t mask;       /* the signals that were blocked before all this; those ignored */
    void (*ttou)(int);
    int tty;              /* the terminal; -1 = there is none */
    bool whole;           /* ... all three standard descriptors are it: no pipeline; ... */
    bool given;           /* ... it was given to the command; ... */
    struct termios modes; /* ... in these modes */
    bool typed;           /* ... and Ctrl-C there ended the command */
    sigset_t got;     /* the signals that rlock itself got: they were not typed at the command */
    bool leaves;      /* rlock is to end */
    int status;       /* ... with this */
    char cause[256];  /* why the hold was lost that the command ran under; "" = not known yet */
    bool owes;        /* ... is to be said when it is known */
    int64_t until_us; /* the end of --wait; 0 = it has not begun to wait */
    int64_t began_us, pause_ms;
    uint32_t failures; /* elect: of the command, in a row */
    int64_t given_ms;  /* the most that was left in this term */
    char **does;       /* what the keeper runs: the command, or the hook of --on-lead */
    bool term, ready;  /* elect: this one leads, and its command runs; --on-lead has succeeded */
    uint64_t led;      /* ... its fencing token */
    pid_t hook;        /* of --on-lost, which runs; 0 = it does not */
    ev_child child, hook_child;
    ev_timer watch, again, hook_end;
    ev_signal signals[9], look;
} run = {.pause_ms = RUN_BACK_OFF_MS};

/* What is passed on to the command. */
static const int run_signals[] = {SIGHUP,  SIGINT,   SIGQUIT, SIGTERM, SIGUSR1,
                                  SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};
enum { RUN_STOP = 7 }; /* SIGTSTP's place there */

/* ------------------------------------------------------------------------------------------------
 * Ending everything.
 */

/* Sends a signal to all descendants of a process that are there now, but not to the keeper. The
 * kernel lists the children of each thread (CONFIG_PROC_CHILDREN). First all of a list, then those
 * below: a child that ends a moment after it has made the next one is to be met alive. */
static void run_signal_below(pid_t pid, int number) {
    char path[64];
    struct dirent *thread;
    DIR *threads;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    threads = opendir(path);
    while (threads != NULL && (thread = readdir(threads)) != NULL) {
        FILE *children;
        int child, below;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)pid, thread->d_name);
        children = fopen(path, "re");
        for (below = 0; children != NULL && below < 2; below++) {
            while (fscanf(children, "%d", &child) == 1) {
                if (below) {
                    run_signal_below(child, number);
                } else if (child != run.keeper) {
                    kill(child, number);
                }
            }
            rewind(children);
        }
        if (children != NULL) {
            fclose(children);
        }
    }
    if (threads != NULL) {
        closedir(threads);
    }
}

/* Sends a signal to the command: to its group, and to what has left that if the group is empty, or
 * to end it: all below the keeper, and once that is gone below rlock. */
static void run_signal(int number) {
    pid_t group = run_page->group;
    bool empty = group == 0 || kill(-group, number) != 0;
    if (empty || number == SIGKILL) {
        run_signal_below(run.keeper != 0 ? run.keeper : getpid(), number);
    }
}

/* Ends all that the command is, at once. Returns in how many microseconds to do it again: what was
 * being made meanwhile is to go too. */
static int64_t run_kill(void) {
    run_signal(SIGKILL);
    return 5000;
}

/* ------------------------------------------------------------------------------------------------
 * The deadline: what both look at.
 */

/* How long before the deadline the command is ended. */
static int64_t run_last_us(void) {
    return run_page->lease_ms < 400 ? 20000 : run_page->lease_ms * 1000 / 20;
}

/* How long before that it is asked to end: a quarter of the lease, or as --kill-after says, but
 * after a renewal is due, also where an engine has given less. */
static int64_t run_ask_us(void) {
    int64_t most_us = run_page->lease_ms * 1000 / 5 * 2, us = cli.kill_after_ms * 1000;
    if (cli.kill_after_ms < 0) {
        return run_page->lease_ms * 1000 / 4;
    }
    return us < most_us ? us : most_us;
}

/* Ends the command if the deadline is near: it is asked when three tenths of the lease are left,
 * and ended when a twentieth is, even if the hold was renewed in between: it may have undone
 * half of its work. Returns in how many microseconds to look again. */
static int64_t run_watch(void) {
    int64_t now_us = RLOCK_NOW_US(), next_us;
    int64_t end_us = rlock_deadline_us(&run_page->deadline) - run_last_us();
    int64_t ask_us = end_us - run_ask_us();
    if (!run_page->lost && now_us >= ask_us) {
        run_page->lost = true;
        run_signal(cli.lost_signal);
        run_signal(SIGCONT); /* if it is stopped it would not hear that */
    }
    next_us = run_page->lost ? end_us : ask_us;
    if (run.end_us != 0 && run.end_us < next_us) {
        next_us = run.end_us;
    } else if (run_page->lost) {
        run.end_us = next_us;
    }
    return now_us < next_us ? next_us - now_us : run_kill();
}

/* ------------------------------------------------------------------------------------------------
 * The command, and its keeper.
 */

/* True if a password is in a URL, or in one of several. Where that is in doubt there is one. */
static bool run_has_password(const char *urls) {
    const char *after = urls != NULL ? strstr(urls, "://") : NULL;
    const char *host = after != NULL ? strrchr(after, '@') : NULL;
    return (host != NULL && memchr(after + 3, ':', (size_t)(host - after - 3)) != NULL) ||
           (urls != NULL && strstr(urls, "password=") != NULL);
}

/* Takes the passwords of the lock out of the environment of the command. */
static void run_hide_passwords(void) {
    static const char *const names[] = {"RLOCK_URL", "RLOCK_QUORUM"};
    int i;
    for (i = 0; i < 2 && !cli.keep_env; i++) {
        if (run_has_password(getenv(names[i]))) {
            unsetenv(names[i]);
        }
    }
}

/* Returns what executes the text of a hook. */
static char **run_shell(const char *text) {
    static char *words[] = {(char *)"sh", (char *)"-c", NULL, NULL};
    words[2] = (char *)(uintptr_t)text;
    return words;
}

/* In place of a command that was left out: until a signal ends it. */
static void run_nothing(void) {
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    sigprocmask(SIG_SETMASK, &run.mask, NULL);
    for (;;) {
        pause();
    }
}

/* The command or a hook, in a process of its own: returns only by exec. */
static void run_command(pid_t parent) {
    char fence[32];
    size_t i;
    int status;
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a setuid program forgets that */
#endif
    if (getppid() != parent) {
        _exit(CLI_FAILED);
    }
    setpgid(0, 0);
    for (i = 0; i < sizeof run_signals / sizeof *run_signals; i++) {
        if (ev_is_active(&run.signals[i])) { /* else it is ignored, as by nohup */
            signal(run_signals[i], SIG_DFL);
        }
    }
    if (run.given) {
        tcsetpgrp(STDIN_FILENO, getpgrp());
    }
    signal(SIGTTOU, run.ttou);
    signal(SIGPIPE, cli.pipe);
    run_hide_passwords();
    setenv("RLOCK_KEY", cli.keys[0], 1);
    snprintf(fence, sizeof fence, "%llu", (unsigned long long)run.fence);
    if (run.fence != 0) {
        setenv("RLOCK_FENCE", fence, 1);
    } else {
        unsetenv("RLOCK_FENCE");
    }
    if (*run.does == NULL) {
        run_nothing();
    }
    sigprocmask(SIG_SETMASK, &run.mask, NULL);
    execvp(run.does[0], run.does);
    run_page->not_run = true;
    status = errno == ENOENT ? CLI_NOT_FOUND : CLI_NOT_RUN;
    cli_say("rlock: %s: %s\n", run.does[0], strerror(errno));
    cli_end_said();
    _exit(status);
}

/* Notes what became of the command, and passes a signal on to it. */
static void run_tend(pid_t command, int number) {
    size_t i;
    pid_t pid;
    int status;
    for (i = 0; i < sizeof run_signals / sizeof *run_signals; i++) {
        if (number == run_signals[i]) {
            run_signal(number);
        }
    }
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid == command && WIFSTOPPED(status)) {
            run_page->stopped = WSTOPSIG(status);
            if (getppid() == run.rlock) {
                kill(run.rlock, RUN_LOOK);
            }
        } else if (pid == command) {
            run_page->result = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
            run_page->ended = true;
            if (getppid() == run.rlock) {
                kill(run.rlock, RUN_LOOK);
            }
        }
    }
    if (pid < 0 && errno == ECHILD) {
        _exit(0);
    }
    if (run_page->group > 0 && kill(-run_page->group, 0) != 0 && errno == ESRCH) {
        run_page->group = 0; /* the number may become another's */
    }
}

/* Runs until the command and all that it started are gone. Its timer counts the time that the
 * machine is suspended. */
static void run_keep(const sigset_t *all) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = RUN_LOOK};
    pid_t keeper = getpid(), command;
    timer_t timer;
    int fd;
    setpgid(0, 0);                  /* who stops rlock by its group does not stop this */
    for (fd = 3; fd < 1024; fd++) { /* the server's connection; what is the command's stays */
        if ((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) {
            close(fd);
        }
    }
#ifdef __linux__
    prctl(PR_SET_NAME, "keeper"); /* who ends all that is called rlock does not end this */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, RUN_LOOK);
#endif
    run_watch();
    if (run_page->lost) { /* all stood still meanwhile */
        _exit(0);
    }
    command = timer_create(RUN_CLOCK, &event, &timer) == 0 ? fork() : -1;
    if (command == 0) {
        run_command(keeper);
    }
    if (command < 0) {
        cli_say("rlock: fork: %s\n", strerror(errno));
        cli_end_said();
        _exit(0);
    }
    setpgid(command, command);
    run_page->group = command;
    for (;;) {
        int64_t us = getppid() == run.rlock ? run_watch() : run_kill(); /* it may be gone */
        struct itimerspec pause = {.it_value = {us / 1000000, us % 1000000 * 1000}};
        timer_settime(timer, 0, &pause, NULL);
        run_tend(command, sigwaitinfo(all, NULL));
    }
}

/* ------------------------------------------------------------------------------------------------
 * rlock's side.
 */

/* Tells systemd, or whoever set NOTIFY_SOCKET: see sd_notify(3). A receiver that is behind is
 * waited for only for so long: while the lock is held not at all. */
static void run_notify(const char *words, int patience_s) {
    struct timeval patience = {.tv_sec = patience_s};
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path != NULL ? strlen(path) : 0;
    int fd;
    if (length < 2 || length >= sizeof address.sun_path) {
        return;
    }
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') {
        address.sun_path[0] = 0;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        (void)sendto(fd, words, strlen(words), MSG_NOSIGNAL | (patience_s > 0 ? 0 : MSG_DONTWAIT),
                     (struct sockaddr *)&address,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
        close(fd);
    }
}

/* Says in one line that the lock was lost, and why: a job of cron has no other. */
static void run_say_lost(void) {
    const char *cause = run.cause[0] ? run.cause : "no renewal was answered in time";
    run.owes = false;
    cli_say("rlock: the lock of %s was lost: %s%s\n", cli.shown, cause,
            cli.command[0] != NULL ? "; the command was terminated" : "");
}

/* Notes why the hold was lost, or was about to be. */
static void run_note_cause(const rlock_event *event) {
    const char *what = event->reason == RLOCK_REASON_DELETED  ? "it was deleted at the server"
                       : event->reason == RLOCK_REASON_STOLEN ? "another client holds it"
                                                              : "";
    const char *words = event->text != NULL ? event->text : "";
    snprintf(run.cause, sizeof run.cause, "%s%s%s", what, what[0] && words[0] ? ": " : "", words);
}

static void run_on_shutdown(rlock_client *client, int status, void *user) {
    (void)client, (void)user;
    if (run.owes) {
        run_say_lost();
    }
    if (status != RLOCK_OK && run.began_us != 0 && !run_page->lost) {
        cli_say("rlock: %s: not released, the server does not answer: others wait %lld s\n",
                cli.shown, (long long)(cli.lease_ms + 999) / 1000);
    }
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

static void run_end_term(void);

/* Keeps the key for the rest of --at-least. The end of that is not waited for: it may be refused
 * now, though run_check_client has found that it can be. */
static void run_keep_key(void) {
    int status = rlock_release_after(run.lock, cli.at_least_ms, NULL, NULL);
    if (status != RLOCK_OK && rlock_is_held(run.lock)) {
        cli_say_status("--at-least has no effect", status, NULL);
        run.status = CLI_FAILED;
    }
}

/* Gives the lock back, or the wait up, and ends rlock with this status. */
static void run_leave(int status) {
    if (!run.leaves) {
        run.status = status;
    }
    run.leaves = true;
    ev_timer_stop(EV_DEFAULT, &run.again);
    if (run.keeper == 0) {
        run_end_term();
    }
    if (run.keeper == 0 && run.hook == 0) {
        if (cli.at_least_ms > 0 && run.began_us != 0 && !run_page->lost && !run_page->not_run) {
            run_keep_key();
        }
        rlock_client_shutdown(cli.client, 0, run_on_shutdown, NULL);
    }
}

/* Follows the links that a path ends with, to what may not be there yet. Returns NULL, or what is
 * wrong. */
static const char *run_follow(char path[PATH_MAX]) {
    char to[PATH_MAX], *name;
    int links = 0;
    ssize_t n;
    while ((n = readlink(path, to, sizeof to - 1)) >= 0) {
        to[n] = 0;
        name = strrchr(path, '/');
        name = name != NULL && to[0] != '/' ? name + 1 : path; /* from where the link is */
        if (++links > 40) {
            return strerror(ELOOP);
        }
        if ((size_t)(name - path) + (size_t)n >= PATH_MAX) {
            return strerror(ENAMETOOLONG);
        }
        memcpy(name, to, (size_t)n + 1);
    }
    return errno == EINVAL || errno == ENOENT ? NULL : strerror(errno);
}

/* Fills a file that was made just now, and closes it. Returns NULL, or what is wrong. */
static const char *run_fill(int fd, mode_t mode, const char *text) {
    size_t len = strlen(text);
    int wrong = 0;
    if (fchmod(fd, mode) != 0) {
        wrong = errno;
    } else {
        ssize_t n = write(fd, text, len);
        if (n < 0) {
            wrong = errno;
        } else if ((size_t)n < len) { /* what had no room; errno says nothing of that */
            wrong = ENOSPC;
        }
    }
    if (close(fd) != 0 && wrong == 0) {
        wrong = errno;
    }
    return wrong != 0 ? strerror(wrong) : NULL;
}

/* Writes the token into a new file, which takes the place of the one that is there: who reads it
 * meanwhile sees the last one or this one. Returns NULL, or what is wrong. */
static const char *run_replace(const char *path, const struct stat *old, const char *text) {
    char last[PATH_MAX], draft[PATH_MAX]; /* last: of a link what it leads to */
    const char *wrong = NULL;
    mode_t mask = umask(0);
    int fd;
    umask(mask);
    if (snprintf(last, sizeof last, "%s", path) >= (int)sizeof last) {
        return strerror(ENAMETOOLONG);
    }
    wrong = run_follow(last);
    if (wrong != NULL) {
        return wrong;
    }
    if (snprintf(draft, sizeof draft, "%s.XXXXXX", last) >= (int)sizeof draft) {
        return strerror(ENAMETOOLONG);
    }
    fd = mkostemp(draft, O_CLOEXEC);
    if (fd < 0) {
        return strerror(errno);
    }
    if (old != NULL) {
        (void)!fchown(fd, old->st_uid, old->st_gid);
    }
    wrong = run_fill(fd, old != NULL ? old->st_mode & 0777 : 0666 & ~mask, text);
    if (wrong == NULL && rename(draft, last) != 0) {
        wrong = strerror(errno);
    }
    if (wrong != NULL) {
        unlink(draft);
    }
    return wrong;
}

/* Returns the descriptor of the caller that a path names; -1: it names none. */
static int run_descriptor(const char *path) {
    static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    const char *digits = "";
    int i;
    for (i = 0; i < 3; i++) {
        if (strcmp(path, names[i]) == 0) {
            return i;
        }
    }
    for (i = 0; i < 2; i++) {
        size_t n = strlen(folders[i]);
        digits = strncmp(path, folders[i], n) == 0 ? path + n : digits;
    }
    i = strspn(digits, "0123456789") == strlen(digits) && strlen(digits) < 7 ? atoi(digits) : -1;
    return *digits == 0 || i < 0 || (fcntl(i, F_GETFD) & FD_CLOEXEC) != 0 ? -1 : i;
}

/* Writes it into what nothing can take the place of: a descriptor, where the last output ended; a
 * pipe, which is not waited for, or a device. */
static const char *run_put(const char *path, const char *text) {
    int its = run_descriptor(path), fd = its;
    const char *wrong = NULL;
    struct pollfd ready = {.fd = its, .events = POLLOUT};
    if (its < 0) {
        fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }
    errno = its >= 0 ? EAGAIN : errno;
    if (fd < 0 || (its >= 0 && poll(&ready, 1, 0) <= 0) ||
        write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        wrong = errno == ENXIO ? "no process reads this pipe" : strerror(errno);
    }
    if (its < 0 && fd >= 0) {
        close(fd);
    }
    return wrong;
}

/* Writes it in the way that what is there asks for. Returns NULL, or what is wrong. */
static const char *run_write(const char *path, const char *text) {
    struct stat old;
    bool exists = stat(path, &old) == 0;
    bool named = run_descriptor(path) >= 0 || strncmp(path, "/proc/", 6) == 0;
    return named || (exists && !S_ISREG(old.st_mode))
               ? run_put(path, text)
               : run_replace(path, exists ? &old : NULL, text);
}

static void run_write_fence(void) {
    const char *wrong;
    char text[32];
    if (cli.fence_file == NULL) {
        return;
    }
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)run.fence);
    wrong = run.fence == 0 ? "a quorum has no fencing tokens" : run_write(cli.fence_file, text);
    if (wrong != NULL) {
        cli_say("rlock: --fence-file %s: %s\n", cli.fence_file, wrong);
        run_leave(CLI_FAILED);
    }
}

/* ------------------------------------------------------------------------------------------------
 * The term of a leader: from before its command starts until the command has ended because the
 * lead is lost, is about to be, or is handed over. The hooks and the file of the state follow it.
 */

/* Makes the text of --state-file. The caller frees it; NULL = no memory. */
static char *run_state(void) {
    char host[256] = "", since[32], fence[32] = "null", *text = NULL;
    struct timespec now;
    struct tm utc;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return NULL;
    }
    (void)!gethostname(host, sizeof host - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    if (run.term && run.led != 0) {
        snprintf(fence, sizeof fence, "%llu", (unsigned long long)run.led);
    }
    fputs("{\"key\":\"", out);
    show_json_text(out, cli.keys[0], strlen(cli.keys[0]));
    fprintf(out, "\",\"leads\":%s,\"since\":\"%s.%03dZ\",\"fence\":%s,\"host\":\"",
            run.term ? "true" : "false", since, (int)(now.tv_nsec / 1000000), fence);
    show_json_text(out, host, strlen(host));
    fprintf(out, "\",\"pid\":%d}\n", (int)getpid());
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Writes --state-file, if it is asked for. Returns NULL, or what is wrong. */
static const char *run_write_state(void) {
    char *text = cli.state_file != NULL ? run_state() : NULL;
    const char *wrong = NULL;
    if (cli.state_file != NULL) {
        wrong = text != NULL ? run_write(cli.state_file, text) : strerror(ENOMEM);
    }
    free(text);
    return wrong;
}

/* Begins or ends a term. A file that cannot be written any more keeps nobody from leading. */
static void run_set_term(bool term) {
    const char *wrong;
    run.term = term;
    run.led = term ? run.fence : run.led;
    run.ready = cli.on_lead == NULL;
    wrong = run_write_state();
    if (wrong != NULL) {
        cli_say("rlock: --state-file %s: %s\n", cli.state_file, wrong);
    }
}

/* Starts the hook of --on-lost, without the terminal. */
static void run_start_hook(void) {
    pid_t parent = getpid();
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    run.does = run_shell(cli.on_lost);
    sigprocmask(SIG_SETMASK, &all, NULL);
    run.hook = fork();
    if (run.hook == 0) {
        cli_said.length = 0; /* rlock itself says that */
        cli_said.fd = 0;
        run.fence = run.led; /* it may lead again */
        run_command(parent);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (run.hook < 0) {
        run.hook = 0;
        cli_say("rlock: --on-lost: fork: %s\n", strerror(errno));
        return;
    }
    setpgid(run.hook, run.hook);
    ev_child_set(&run.hook_child, run.hook, 0);
    ev_child_start(EV_DEFAULT, &run.hook_child);
    ev_timer_set(&run.hook_end, (double)cli.grace_ms * 1e-3, 0);
    ev_timer_start(EV_DEFAULT, &run.hook_end);
}

/* Ends the term, if there is one: nothing of the command runs any more. */
static void run_end_term(void) {
    if (run.term) {
        run_set_term(false);
        if (cli.on_lost != NULL) {
            run_start_hook();
        }
    }
}

/* The hook takes too long: it keeps this one from leading again, and others if it hands over. */
static void run_on_hook_end(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop, (void)timer, (void)revents;
    cli_say("rlock: %s: --on-lost ran for longer than --grace and was terminated\n", cli.shown);
    kill(-run.hook, SIGKILL);
}

static void run_soon(double pause_s);

/* The hook of --on-lost has ended. */
static void run_on_hook(struct ev_loop *loop, ev_child *child, int revents) {
    bool late = !ev_is_active(&run.hook_end); /* run_on_hook_end has said so */
    (void)revents;
    ev_child_stop(loop, child);
    ev_timer_stop(loop, &run.hook_end);
    run.hook = 0;
    if (WIFEXITED(child->rstatus) && WEXITSTATUS(child->rstatus) != 0) {
        cli_say("rlock: %s: --on-lost failed with the status %d\n", cli.shown,
                WEXITSTATUS(child->rstatus));
    } else if (WIFSIGNALED(child->rstatus) && !late) {
        cli_say("rlock: %s: --on-lost was ended by signal %d\n", cli.shown,
                WTERMSIG(child->rstatus));
    }
    if (run.leaves) {
        run_leave(run.status);
        return;
    }
    run_soon(0);
}

/* True if the term is over: its command is not to start again before the next one. */
static bool run_is_over(void) {
    return run_page->lost || !rlock_elect_leads(run.election);
}

/* ------------------------------------------------------------------------------------------------
 * The command under the lock.
 */

/* True if the terminal is ours to give. Then its modes are noted. */
static bool run_is_in_front(void) {
    return run.tty >= 0 && tcgetpgrp(run.tty) == getpgrp() && tcgetattr(run.tty, &run.modes) == 0;
}

/* Starts the command: the lock is held. */
static void run_start(void) {
    sigset_t all, none;
    run_write_fence();
    if (run.owes) { /* it was renewed at last */
        run_say_lost();
    }
    if (run.leaves) {
        return;
    }
    if (run.election != NULL && !run.term) {
        run_set_term(true);
    }
    run.does = run.ready ? cli.command : run_shell(cli.on_lead);
    run_page->group = 0;
    run_page->result = CLI_FAILED;
    run_page->stopped = 0;
    run_page->ended = false;
    run_page->lost = false;
    run.cause[0] = 0;
    run.end_us = 0;
    sigemptyset(&run.got);
    run.rlock = getpid();
    run.given = run.whole && run_is_in_front();
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &all, NULL);
    run.keeper = fork();
    if (run.keeper == 0) {
        run.keeper = getpid();
        cli_said.length = 0; /* rlock itself says that */
        cli_said.fd = 0;
        run_keep(&all);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (run.keeper < 0) {
        run.keeper = 0;
        cli_say("rlock: fork: %s\n", strerror(errno));
        run_leave(CLI_FAILED);
        return;
    }
    run.began_us = RLOCK_NOW_US();
    cli.quiet = true;
    ev_child_set(&run.child, run.keeper, 0);
    ev_child_start(EV_DEFAULT, &run.child);
    ev_timer_set(&run.watch, 0.001, 0);
    ev_timer_start(EV_DEFAULT, &run.watch);
}

/* The keeper does this too; it may stand still. Then it is ended at the deadline, and what it kept
 * is rlock's. */
static void run_on_watch(struct ev_loop *loop, ev_timer *timer, int revents) {
    double pause_s = (double)run_watch() * 1e-6;
    (void)revents;
    if (run.end_us != 0 && RLOCK_NOW_US() > run.end_us + run_last_us()) {
        kill(run.keeper, SIGKILL);
    }
    ev_timer_set(timer, pause_s, 0);
    ev_timer_start(loop, timer);
}

/* Something is new: both look now. */
static void run_look(void) {
    if (run.keeper != 0) {
        kill(run.keeper, RUN_LOOK);
        ev_timer_stop(EV_DEFAULT, &run.watch);
        run_on_watch(EV_DEFAULT, &run.watch, 0);
    }
}

/* Passes a signal on to the command; the keeper does so if that is only about to begin, or has left
 * others behind. */
static void run_pass(int number) {
    pid_t group = run_page->group;
    if (group == 0 || kill(-group, number) != 0) {
        kill(run.keeper, number);
    }
}

static void run_soon(double pause_s) {
    ev_timer_stop(EV_DEFAULT, &run.again);
    ev_timer_set(&run.again, pause_s, 0);
    ev_timer_start(EV_DEFAULT, &run.again);
}

/* Starts the command if the lock is held; not yet, if the grant came so late, or so much of the
 * term is over, that the deadline is near before the next renewal: the command would be ended as it
 * begins. Where an engine may give less than was asked for, the most that was left counts as the
 * lease: at the grant, or after a renewal. */
static void run_on_again(struct ev_loop *loop, ev_timer *timer, int revents) {
    int64_t left_us = rlock_deadline_us(&run_page->deadline) - RLOCK_NOW_US();
    bool less = cli.engine != NULL && cli.engine->gives_less;
    (void)loop, (void)timer, (void)revents;
    if (run.hook != 0) { /* the last term ends first */
        return;
    }
    run.given_ms = left_us / 1000 > run.given_ms ? left_us / 1000 : run.given_ms;
    run_page->lease_ms = cli.lease_ms;
    if (less && run.given_ms >= CLI_LEASE_MIN_MS && run.given_ms < cli.lease_ms) {
        run_page->lease_ms = run.given_ms;
    }
    if (left_us > run_page->lease_ms * 1000 / 2) {
        run_start();
    } else if (left_us > 0) {
        run_soon((double)cli.lease_ms * 1e-3 / 50);
    }
}

/* Takes the terminal back from the command. */
static void run_take_terminal(void) {
    if (run.given) {
        tcsetpgrp(run.tty, getpgrp());
        run.given = false;
    }
}

/* The command itself is gone: the terminal is ours again, as it was. */
static void run_take_back(void) {
    if (run.given && run_page->result < 0) {
        tcsetattr(run.tty, TCSADRAIN, &run.modes);
        run.typed = (run_page->result == -SIGINT || run_page->result == -SIGQUIT) &&
                    !sigismember(&run.got, -run_page->result);
    }
    run_take_terminal();
}

/* The command has ended, and all that it started. */
static void run_on_child(struct ev_loop *loop, ev_child *child, int revents) {
    pid_t left;
    (void)revents;
    ev_child_stop(loop, child);
    ev_timer_stop(loop, &run.watch);
    run.keeper = 0;
    if (WIFSIGNALED(child->rstatus)) { /* what it kept is ours now */
        if (run.end_us == 0) {
            cli_say("rlock: the keeper was killed; the command is terminated\n");
        }
        do {
            usleep((useconds_t)run_kill() / 5);
            while ((left = waitpid(-1, NULL, WNOHANG)) > 0) {
            }
        } while (left == 0);
    }
    run_take_back();
    if (WIFSIGNALED(child->rstatus) && run.end_us == 0) {
        run_page->result = CLI_FAILED; /* also if the command itself had ended before */
    }
    run.owes = run_page->lost;
    if (run.owes && run.cause[0] != 0) {
        run_say_lost(); /* else the hold tells why, when it ends */
    }
    if (run.election == NULL || run.leaves || run.typed || run_page->not_run) {
        run_leave(run_page->lost ? CLI_LOST : run_page->result);
        return;
    }
    if (run_is_over()) {
        run_end_term();
    } else if (!run.ready && run_page->result == 0) { /* the hook of --on-lead succeeded */
        run.ready = true;
        run_soon(0);
        return;
    }
    if (RLOCK_NOW_US() - run.began_us > RUN_BACK_OFF_MAX_MS * 1000) {
        run.pause_ms = RUN_BACK_OFF_MS;
        run.failures = 0;
    }
    if (!run_page->lost) {
        run.failures = run_page->result != 0 ? run.failures + 1 : 0;
    }
    if (cli.give_up != 0 && run.failures >= cli.give_up) {
        cli_say("rlock: %s: the command failed %u times in a row; --give-up\n", cli.shown,
                (unsigned)run.failures);
        run_leave(run_page->result);
        return;
    }
    run_soon(run_page->lost ? 0 : (double)run.pause_ms * 1e-3);
    if (!run_page->lost) {
        run.pause_ms =
            run.pause_ms * 2 < RUN_BACK_OFF_MAX_MS ? run.pause_ms * 2 : RUN_BACK_OFF_MAX_MS;
    }
}

/* Lets the command go on; with the terminal if it has that, or is to get it. Whoever stopped rlock
 * may have taken the terminal meanwhile. */
static void run_go_on(bool gives) {
    run.given = !run_page->ended && run_page->group > 0 && run.tty >= 0 &&
                (tcgetpgrp(run.tty) == run_page->group ||
                 (gives && tcsetpgrp(run.tty, run_page->group) == 0));
    sigdelset(&run.got, SIGTSTP);
    run_pass(SIGCONT);
}

/* Stops rlock by SIGTSTP or SIGTTIN; with its whole job, a script for one, if the terminal has sent
 * that to the command alone. Where no shell could let it go on, the kernel does not stop rlock: no
 * SIGCONT is pending then, and the command goes on too. */
static void run_stop(int number, bool job) {
    bool heard = ev_is_active(&run.signals[RUN_STOP]); /* else it is ignored */
    sigset_t cont, pending;
    run_take_terminal();
    sigemptyset(&cont);
    sigaddset(&cont, SIGCONT);
    ev_signal_stop(EV_DEFAULT, &run.signals[RUN_STOP]);
    sigprocmask(SIG_BLOCK, &cont, NULL);
    kill(job ? 0 : getpid(), number);
    sigpending(&pending);
    sigprocmask(SIG_UNBLOCK, &cont, NULL);
    if (heard) {
        ev_signal_start(EV_DEFAULT, &run.signals[RUN_STOP]);
    }
    if (run.keeper != 0 && !sigismember(&pending, SIGCONT) &&
        (number == SIGTSTP || run_is_in_front())) {
        run_go_on(run.whole && run_is_in_front());
    }
}

/* The command was stopped. If it wants the terminal, and that is ours, it gets it (at once without
 * a pipeline: some programs, as top, hide that they want it); if it has got it meanwhile, it only
 * goes on. Else rlock stops too, with its job if a key did it, and goes on when the shell says so:
 * Ctrl-Z and fg. Meanwhile nothing is renewed; the keeper ends the command if that takes too long.
 * What was stopped by hand and has no terminal stays so, and the lock stays. */
static void run_on_stopped(int number) {
    bool wants = number == SIGTTIN || number == SIGTTOU;
    bool front = wants && run_is_in_front();
    if (wants && (front || run.given)) {
        run_go_on(front);
    } else if (wants) {
        run_stop(SIGTTIN, run.tty >= 0);
    } else if (number == SIGTSTP || (number != 0 && run.given)) {
        run_stop(SIGTSTP, run.given && !sigismember(&run.got, SIGTSTP));
    }
}

static void run_on_signal(struct ev_loop *loop, ev_signal *watcher, int revents) {
    int number = watcher->signum;
    bool ends = number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM;
    int64_t grace_us = RLOCK_NOW_US() + cli.grace_ms * 1000;
    (void)loop, (void)revents;
    if (number == RUN_LOOK) {
        int stopped = run_page->stopped;
        run_page->stopped = 0;
        if (run_page->ended) {
            run_take_back();
        } else if (run.keeper != 0) {
            run_on_stopped(stopped);
        }
    } else if (run.keeper != 0 && number == SIGCONT) {
        run_go_on(run.whole && run_is_in_front());
    } else if (run.keeper != 0) {
        sigaddset(&run.got, number);
        run_pass(number);
        if (ends) {
            run_pass(SIGCONT); /* who is stopped would not hear that */
        }
        if (number == SIGTSTP && run_page->ended) {
            run_stop(SIGTSTP, false);
        }
    } else if (number == SIGTSTP) {
        run_stop(SIGTSTP, false);
    } else if (ends && run.election == NULL) {
        run_leave(-number);
    }
    if (ends && run.election != NULL) {
        run_notify("STOPPING=1", 0);
        run_leave(0);
        run.end_us = run.end_us != 0 && run.end_us < grace_us ? run.end_us : grace_us;
        run_look();
    }
}

static void run_on_acquired(rlock *lock, const rlock_event *event, void *user);

/* Waits for the lock; once more if a grant came too late to begin, for what is left of --wait. */
static void run_acquire(void) {
    int64_t wait_ms = cli.wait_ms, now_us = RLOCK_NOW_US();
    int status = RLOCK_OK;
    if (wait_ms != RLOCK_FOREVER && run.until_us != 0) {
        wait_ms = (run.until_us - now_us) / 1000;
    }
    run.until_us = run.until_us != 0 ? run.until_us : now_us + wait_ms * 1000;
    if (wait_ms < 0 && cli.wait_ms != RLOCK_FOREVER) {
        run_leave(CLI_FAILED); /* why, is said at each loss */
    } else {
        status = rlock_acquire(run.lock, wait_ms, 0, run_on_acquired, NULL);
    }
    if (status != RLOCK_OK) { /* nobody will be called */
        cli_say_status(cli.shown, status, NULL);
        run_leave(CLI_FAILED);
    }
}

/* The hold is gone: the deadline with it. */
static void run_on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (run.keeper != 0 || run.owes) {
        run_note_cause(event);
        if (run.owes) {
            run_say_lost();
        }
    } else if (event->reason != RLOCK_REASON_CLOSED) {
        cli_say("rlock: %s: lost: %s%s%s\n", cli.shown, rlock_reason_str(event->reason),
                event->text != NULL ? ": " : "", event->text != NULL ? event->text : "");
    }
    run_look();
    if (run.keeper == 0 && run.lock != NULL && !run.leaves) { /* before the command began */
        if (event->reason == RLOCK_REASON_EXPIRED) {
            cli_say("       Do answers take longer than half of the lease? See --lease\n");
        }
        run_acquire();
    }
}

static void run_on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (event->status == RLOCK_OK) {
        run.fence = event->fence;
        run.given_ms = event->remaining_ms;
        run_soon(0);
    } else if (event->status == RLOCK_ERR_BUSY || event->status == RLOCK_ERR_TIMEOUT) {
        if (cli.verbose || isatty(STDERR_FILENO)) {
            cli_say("rlock: %s: %s\n", cli.shown, rlock_strerror(event->status));
        }
        run_leave(cli.busy_status);
    } else if (event->status == RLOCK_ERR_AUTH && password_look()) {
        run_acquire();
    } else if (event->status != RLOCK_ERR_CLOSED) {
        cli_say_status(cli.shown, event->status, event->text);
        run_leave(CLI_FAILED);
    }
}

/* Tells systemd that the loop turns, as often as WatchdogSec= wants: see sd_watchdog_enabled(3). */
static void run_on_watchdog(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop, (void)timer, (void)revents;
    run_notify("WATCHDOG=1", 0);
}

static void run_watch_loop(void) {
    static ev_timer timer;
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    double pause_s = usec != NULL ? atof(usec) * 1e-6 / 2 : 0;
    if (pause_s > 0 && (pid == NULL || atoll(pid) == getpid())) {
        ev_timer_init(&timer, run_on_watchdog, 0, pause_s);
        ev_timer_start(EV_DEFAULT, &timer);
    }
}

static void run_on_lead(rlock_election *election, const rlock_event *event, void *user) {
    (void)election, (void)user;
    run_notify("STATUS=leads", 0);
    run.fence = event->fence;
    run.given_ms = event->remaining_ms;
    if (run.keeper == 0 && run.hook == 0) { /* else the last term is still ending */
        run_soon(0);
    }
}

static void run_on_step_down(rlock_election *election, const rlock_event *event, void *user) {
    (void)election;
    run_notify("STATUS=stands by", 0);
    run_on_lost(NULL, event, user);
    if (run.keeper == 0) { /* in a pause of its command */
        run_end_term();
    }
}

/* Warns at the start if what the command leaves behind cannot be found: it would not be ended. */
static void run_check_system(void) {
#ifdef __linux__
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    if (access(path, R_OK) != 0) {
        cli_say("rlock: %s: %s; if the lock is lost, processes that left the command's process "
                "group keep running: mount /proc\n",
                path, strerror(errno));
    }
#endif
}

/* What an earlier process has left in --state-file is no longer true. */
static void run_begin_state(void) {
    const char *wrong = run_write_state();
    if (wrong != NULL) {
        cli_fail(CLI_FAILED, "The folder must exist and be writable: rlock replaces the file there",
                 "--state-file %s: %s", cli.state_file, wrong);
    }
    run.ready = cli.on_lead == NULL;
}

/* Refuses a drift with which no command could run: it begins only with more than half of the lease
 * left, and a renewal is to be answered before it is asked to end. For the network a twentieth of
 * the lease is added to each. An engine that gives less counts what is left as the lease. */
static void run_check_drift(void) {
    int64_t lease_us = cli.lease_ms * 1000, spare_us = lease_us / 20;
    int64_t left_us = cli_left_us(lease_us), third_us = lease_us / 3;
    int64_t renew_us = left_us / 2 < third_us ? left_us / 2 : third_us;
    bool begins = left_us > lease_us / 2 + spare_us;
    bool lasts = left_us - run_last_us() - run_ask_us() > renew_us + spare_us;
    if ((!begins || !lasts) && (cli.engine == NULL || !cli.engine->gives_less)) {
        cli_fail(CLI_FAILED, "Set drift_permille in the URL to at most 100",
                 "drift_permille in the URL leaves %lld ms of the lease: no command can run",
                 (long long)left_us / 1000);
    }
}

/* Refuses at the start what the URL's settings leave no room for: the command may be one that
 * cannot be undone. */
static void run_check_client(void) {
    int64_t most_ms = cli_most_ms();
    run_check_drift();
    if (cli.at_least_ms > most_ms) {
        cli_fail(CLI_FAILED, "Set quarantine_ms to at least that in the URL of each client",
                 "--at-least %lld ms: more than the quarantine_ms of the URL, %lld ms",
                 (long long)cli.at_least_ms, (long long)most_ms);
    }
}

/* Runs the command under the lock, once or as often as it leads. */
static int run_main(bool elects) {
    rlock_options options = cli_options();
    struct sigaction before;
    sigset_t none;
    size_t i;
    int status;
    run_page = (struct run_page *)mmap(NULL, sizeof *run_page, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run_page == MAP_FAILED) {
        cli_fail(CLI_FAILED, NULL, "mmap: %s", strerror(errno));
    }
    run_check_system();
    run_page->lease_ms = cli.lease_ms;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, &run.mask);
    run.tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    run.whole = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    run.ttou = signal(SIGTTOU, SIG_IGN); /* else whoever takes the terminal back is stopped */
#ifdef __linux__
    prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
    for (i = 0; i < sizeof run_signals / sizeof *run_signals; i++) {
        ev_signal_init(&run.signals[i], run_on_signal, run_signals[i]);
        if (sigaction(run_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            ev_signal_start(EV_DEFAULT, &run.signals[i]);
        }
    }
    ev_signal_init(&run.look, run_on_signal, RUN_LOOK);
    ev_signal_start(EV_DEFAULT, &run.look);
    ev_child_init(&run.child, run_on_child, 0, 0);
    ev_timer_init(&run.watch, run_on_watch, 0, 0);
    ev_timer_init(&run.again, run_on_again, 0, 0);
    ev_child_init(&run.hook_child, run_on_hook, 0, 0);
    ev_timer_init(&run.hook_end, run_on_hook_end, 0, 0);
    run_begin_state();
    cli_connect(NULL);
    run_check_client();
    password_begins();
    options.fencing = cli.members == NULL;
    options.deadline = &run_page->deadline;
    if (elects) {
        status =
            rlock_elect(&run.election, cli.client, &options, run_on_lead, run_on_step_down, NULL);
        if (status == RLOCK_OK) {
            run_notify("READY=1\nSTATUS=stands by", 1);
            run_watch_loop();
        }
    } else {
        options.on_lost = run_on_lost;
        status = rlock_new(&run.lock, cli.client, &options);
        if (status == RLOCK_OK) {
            run_acquire();
        }
    }
    if (status != RLOCK_OK) {
        cli_fail_status("the lock's key or options", status, NULL);
    }
    ev_run(EV_DEFAULT, 0);
    rlock_elect_free(run.election);
    rlock_free(run.lock);
    cli_disconnect();
    if (run.status < 0) { /* so do shells know whether to go on after Ctrl-C */
#ifdef __linux__
        prctl(PR_SET_DUMPABLE, 0); /* one core file is enough */
#endif
        cli_end_said();
        signal(-run.status, SIG_DFL);
        kill(run.typed ? 0 : getpid(),
             -run.status); /* the job, a script for one, did not hear it */
        return CLI_SIGNAL - run.status;
    }
    return run.status;
}

#endif /* RLOCK_CLI_RUN_H */
