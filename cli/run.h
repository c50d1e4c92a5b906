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
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli.h"

#define RUN_LOOK SIGRTMIN    /* between rlock and the keeper: something happened */
#define RUN_BACK_OFF_MS 1000 /* elect: the first pause before the command is started again, ... */
#define RUN_BACK_OFF_MAX_MS \
    60000 /* ... the longest, and how long a command runs well after which
                                     the pauses begin anew */

/* What rlock and the keeper share. */
static struct run_page {
    rlock_deadline deadline; /* of the hold */
    volatile pid_t group;    /* of the command; 0 = it was not started */
    volatile int result;     /* the exit status of the command, as a shell has it */
    volatile bool stopped;   /* the command is, by a signal */
    volatile bool lost;      /* it was told to end, since the deadline came near */
} * run_page;

static struct {
    rlock *lock;
    rlock_election *election; /* NULL = it runs once */
    uint64_t fence;
    pid_t rlock, keeper; /* the processes; 0 = there is none */
    bool tty;            /* the terminal is ours to give */
    bool leaves;         /* rlock is to end */
    int status;          /* ... with this */
    int64_t began_us, pause_ms;
    ev_child child;
    ev_timer watch, again, grace;
    ev_signal signals[8], look;
} run = {.pause_ms = RUN_BACK_OFF_MS};

static const int run_signals[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM,
                                  SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP};

/* ------------------------------------------------------------------------------------------------
 * Ending everything.
 */

/* The parent of a process; 0 = there is no such process. */
static pid_t run_parent_of(pid_t pid) {
    char path[32], line[512], *end;
    int parent = 0;
    FILE *stat;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    stat = fopen(path, "re");
    if (stat != NULL) {
        if (fgets(line, sizeof line, stat) != NULL && (end = strrchr(line, ')')) != NULL) {
            sscanf(end + 1, " %*c %d", &parent);
        }
        fclose(stat);
    }
    return parent;
}

static bool run_is_below(pid_t pid, pid_t root) {
    while (pid > 1 && pid != root) {
        pid = run_parent_of(pid);
    }
    return pid == root;
}

/* Sends a signal to all that the command is: its group, and all descendants but the keeper. */
static void run_signal(int number) {
    pid_t self = getpid();
    DIR *processes;
    struct dirent *entry;
    if (run_page->group > 0) {
        kill(-run_page->group, number);
    }
    if (number != SIGKILL || (processes = opendir("/proc")) == NULL) {
        return; /* who left the group is not asked */
    }
    while ((entry = readdir(processes)) != NULL) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid > 0 && pid != self && pid != run.keeper && run_is_below(pid, self)) {
            kill(pid, number);
        }
    }
    closedir(processes);
}

/* ------------------------------------------------------------------------------------------------
 * The deadline: what both look at.
 */

/* Ends the command at once; returns in how many microseconds to look again: until all that was
 * being made meanwhile is gone too. */
static int64_t run_kill(void) {
    run_signal(SIGKILL);
    return 5000;
}

/* Ends the command if the deadline is near: it is asked when three tenths of the lease are left,
 * and ended when a twentieth is. Returns in how many microseconds to look again. */
static int64_t run_watch(void) {
    int64_t lease_us = cli.lease_ms * 1000, last_us = lease_us / 20 < 20000 ? 20000 : lease_us / 20;
    int64_t left_us = rlock_deadline_us(&run_page->deadline) - RLOCK_NOW_US() - last_us;
    if (left_us <= 0) {
        run_page->lost = true;
        return run_kill();
    }
    if (left_us > lease_us / 4) {
        return left_us - lease_us / 4;
    }
    if (!run_page->lost) {
        run_page->lost = true;
        run_signal(SIGTERM);
        run_signal(SIGCONT); /* if it is stopped it would not hear that */
    }
    return left_us;
}

/* ------------------------------------------------------------------------------------------------
 * The command, and its keeper.
 */

/* The command, in a process of its own: returns only by exec. */
static void run_command(pid_t keeper, const sigset_t *before) {
    char fence[32];
    size_t i;
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a setuid program forgets that */
#endif
    if (getppid() != keeper) {
        _exit(CLI_FAILED);
    }
    setpgid(0, 0);
    if (run.tty) {
        tcsetpgrp(STDIN_FILENO, getpgrp());
    }
    for (i = 0; i < sizeof run_signals / sizeof *run_signals; i++) {
        signal(run_signals[i], SIG_DFL);
    }
    signal(SIGTTOU, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    setenv("RLOCK_KEY", cli.keys[0], 1);
    snprintf(fence, sizeof fence, "%llu", (unsigned long long)run.fence);
    if (run.fence != 0) {
        setenv("RLOCK_FENCE", fence, 1);
    } else {
        unsetenv("RLOCK_FENCE");
    }
    sigprocmask(SIG_SETMASK, before, NULL);
    execvp(cli.command[0], cli.command);
    fprintf(stderr, "rlock: %s: %s\n", cli.command[0], strerror(errno));
    _exit(errno == ENOENT ? CLI_NOT_FOUND : CLI_NOT_RUN);
}

static int run_status_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_SIGNAL + WTERMSIG(status);
}

/* Runs until the command and all that it started are gone. */
static void run_keep(const sigset_t *all, const sigset_t *before) {
    pid_t keeper = getpid(), command, pid;
    int status, fd;
    setpgid(0, 0);                  /* who stops rlock by its group does not stop this */
    for (fd = 3; fd < 1024; fd++) { /* the server's connection; what is the command's stays */
        if ((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0) {
            close(fd);
        }
    }
#ifdef __linux__
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, RUN_LOOK);
#endif
    command = fork();
    if (command == 0) {
        run_command(keeper, before);
    }
    if (command < 0) {
        _exit(CLI_FAILED);
    }
    setpgid(command, command);
    run_page->group = command;
    for (;;) {
        int64_t us = getppid() == run.rlock ? run_watch() : run_kill(); /* it may be gone */
        struct timespec pause = {us / 1000000, us % 1000000 * 1000};
        sigtimedwait(all, NULL, &pause);
        while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
            if (pid == command && WIFSTOPPED(status)) {
                run_page->stopped = true;
                kill(run.rlock, RUN_LOOK);
            } else if (pid == command) {
                run_page->result = run_status_of(status);
            }
        }
        if (pid < 0 && errno == ECHILD) {
            _exit(0);
        }
    }
}

/* ------------------------------------------------------------------------------------------------
 * rlock's side.
 */

/* Tells systemd, or whoever set NOTIFY_SOCKET: see sd_notify(3). */
static void run_notify(const char *words) {
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
        (void)sendto(fd, words, strlen(words), MSG_NOSIGNAL, (struct sockaddr *)&address,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
        close(fd);
    }
}

static void run_on_shutdown(rlock_client *client, int status, void *user) {
    (void)client, (void)status, (void)user;
    ev_break(EV_DEFAULT, EVBREAK_ALL);
}

/* Gives the lock back, or the wait up, and ends rlock with this status. */
static void run_leave(int status) {
    if (!run.leaves) {
        run.status = status;
    }
    run.leaves = true;
    ev_timer_stop(EV_DEFAULT, &run.again);
    if (run.keeper == 0) {
        rlock_client_shutdown(cli.client, 0, run_on_shutdown, NULL);
    }
}

static void run_write_fence(void) {
    FILE *file = cli.fence_file != NULL && run.fence != 0 ? fopen(cli.fence_file, "we") : NULL;
    if (cli.fence_file != NULL &&
        (file == NULL || fprintf(file, "%llu\n", (unsigned long long)run.fence) < 0 ||
         fclose(file) != 0)) {
        fprintf(stderr, "rlock: --fence-file %s: %s\n", cli.fence_file,
                run.fence == 0 ? "a quorum has no fencing tokens" : strerror(errno));
        run_leave(CLI_FAILED);
    }
}

/* Starts the command: the lock is held. */
static void run_start(uint64_t fence) {
    sigset_t all, before;
    run.fence = fence;
    run_write_fence();
    if (run.leaves) {
        return;
    }
    run_page->group = 0;
    run_page->result = CLI_FAILED;
    run_page->stopped = run_page->lost = false;
    run.rlock = getpid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    run.keeper = fork();
    if (run.keeper == 0) {
        run.keeper = getpid();
        run_keep(&all, &before);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (run.keeper < 0) {
        run.keeper = 0;
        fprintf(stderr, "rlock: fork: %s\n", strerror(errno));
        run_leave(CLI_FAILED);
        return;
    }
    run.began_us = RLOCK_NOW_US();
    ev_child_set(&run.child, run.keeper, 0);
    ev_child_start(EV_DEFAULT, &run.child);
    ev_timer_set(&run.watch, 0.001, 0);
    ev_timer_start(EV_DEFAULT, &run.watch);
}

/* The keeper does this too; it may stand still. */
static void run_on_watch(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)revents;
    ev_timer_set(timer, (double)run_watch() * 1e-6, 0);
    ev_timer_start(loop, timer);
}

static void run_on_grace(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop, (void)timer, (void)revents;
    run_signal(SIGKILL);
}

static void run_on_again(struct ev_loop *loop, ev_timer *timer, int revents) {
    (void)loop, (void)timer, (void)revents;
    if (rlock_elect_leads(run.election) && run.keeper == 0) {
        run_start(rlock_elect_fence(run.election));
    }
}

/* The command has ended, and all that it started. */
static void run_on_child(struct ev_loop *loop, ev_child *child, int revents) {
    (void)revents;
    ev_child_stop(loop, child);
    ev_timer_stop(loop, &run.watch);
    ev_timer_stop(loop, &run.grace);
    if (WIFSIGNALED(child->rstatus)) { /* what it kept is ours now */
        fprintf(stderr, "rlock: its keeper was killed; the command is ended\n");
        do {
            run_kill();
            while (waitpid(-1, NULL, WNOHANG) > 0) {
            }
            usleep(1000);
        } while (waitpid(-1, NULL, WNOHANG) >= 0);
    }
    run.keeper = 0;
    if (run.tty) {
        tcsetpgrp(STDIN_FILENO, getpgrp());
    }
    if (run_page->lost) {
        fprintf(stderr, "rlock: the lock of %s was lost; the command was ended\n", cli.keys[0]);
    }
    if (run.election == NULL || run.leaves) {
        run_leave(run_page->lost ? CLI_LOST : run_page->result);
        return;
    }
    if (RLOCK_NOW_US() - run.began_us > RUN_BACK_OFF_MAX_MS * 1000) {
        run.pause_ms = RUN_BACK_OFF_MS;
    }
    ev_timer_set(&run.again, run_page->lost ? 0 : (double)run.pause_ms * 1e-3, 0);
    ev_timer_start(loop, &run.again);
    run.pause_ms = run.pause_ms * 2 < RUN_BACK_OFF_MAX_MS ? run.pause_ms * 2 : RUN_BACK_OFF_MAX_MS;
}

/* Stops rlock as the command was stopped, and goes on when that is to: Ctrl-Z and fg. Meanwhile
 * nothing is renewed; the keeper ends the command if that takes too long. */
static void run_stop(void) {
    bool front;
    if (run.tty) {
        tcsetpgrp(STDIN_FILENO, getpgrp());
    }
    kill(getpid(), SIGSTOP);
    front = run.tty && tcgetpgrp(STDIN_FILENO) == getpgrp();
    run_page->stopped = false;
    if (run.keeper != 0 && run_page->group > 0) {
        if (front) {
            tcsetpgrp(STDIN_FILENO, run_page->group);
        }
        kill(-run_page->group, SIGCONT);
    }
}

static void run_on_signal(struct ev_loop *loop, ev_signal *watcher, int revents) {
    int number = watcher->signum;
    bool ends = number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM;
    (void)revents;
    if (number == RUN_LOOK) {
        if (run.tty && run_page->stopped) {
            run_stop();
        }
        return;
    }
    if (run.keeper != 0 && run_page->group > 0) {
        kill(-run_page->group, number);
    }
    if (number == SIGTSTP) {
        run_stop();
    } else if (ends && run.election != NULL) {
        run_notify("STOPPING=1");
        run_leave(0);
        ev_timer_set(&run.grace, (double)cli.grace_ms * 1e-3, 0.1);
        ev_timer_start(loop, &run.grace);
    } else if (ends && run.keeper == 0) {
        run_leave(CLI_SIGNAL + number);
    }
}

/* The hold is gone: the deadline with it. */
static void run_on_lost(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (event->reason != RLOCK_REASON_CLOSED) {
        fprintf(stderr, "rlock: %s: lost: %s%s%s\n", cli.keys[0], rlock_reason_str(event->reason),
                event->text != NULL ? ": " : "", event->text != NULL ? event->text : "");
    }
    if (run.keeper != 0) {
        run_watch();
    }
}

static void run_on_acquired(rlock *lock, const rlock_event *event, void *user) {
    (void)lock, (void)user;
    if (event->status == RLOCK_OK) {
        run_start(event->fence);
    } else if (event->status == RLOCK_ERR_BUSY || event->status == RLOCK_ERR_TIMEOUT) {
        if (cli.verbose || isatty(STDERR_FILENO)) {
            fprintf(stderr, "rlock: %s: %s\n", cli.keys[0], rlock_strerror(event->status));
        }
        run_leave(CLI_BUSY);
    } else if (event->status != RLOCK_ERR_CLOSED) {
        cli_say_status(cli.keys[0], event->status, event->text);
        run_leave(CLI_FAILED);
    }
}

static void run_on_lead(rlock_election *election, const rlock_event *event, void *user) {
    (void)election, (void)user;
    run_notify("STATUS=leads");
    if (run.keeper == 0) { /* else the command of the last term is still ending: run_on_again */
        ev_timer_stop(EV_DEFAULT, &run.again);
        run_start(event->fence);
    }
}

static void run_on_step_down(rlock_election *election, const rlock_event *event, void *user) {
    (void)election;
    run_notify("STATUS=stands by");
    run_on_lost(NULL, event, user);
}

/* Runs the command under the lock, once or as often as it leads. */
static int run_main(bool elects) {
    rlock_options options = cli_options();
    size_t i;
    int status;
    run_page = (struct run_page *)mmap(NULL, sizeof *run_page, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run_page == MAP_FAILED) {
        cli_fail(CLI_FAILED, NULL, "mmap: %s", strerror(errno));
    }
    run.tty = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
    signal(SIGTTOU, SIG_IGN); /* else whoever takes the terminal back is stopped */
#ifdef __linux__
    prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
    for (i = 0; i < sizeof run_signals / sizeof *run_signals; i++) {
        ev_signal_init(&run.signals[i], run_on_signal, run_signals[i]);
        ev_signal_start(EV_DEFAULT, &run.signals[i]);
    }
    ev_signal_init(&run.look, run_on_signal, RUN_LOOK);
    ev_signal_start(EV_DEFAULT, &run.look);
    ev_child_init(&run.child, run_on_child, 0, 0);
    ev_timer_init(&run.watch, run_on_watch, 0, 0);
    ev_timer_init(&run.again, run_on_again, 0, 0);
    ev_timer_init(&run.grace, run_on_grace, 0, 0);
    cli_connect(NULL);
    options.fencing = cli.members == NULL;
    options.deadline = &run_page->deadline;
    if (elects) {
        status =
            rlock_elect(&run.election, cli.client, &options, run_on_lead, run_on_step_down, NULL);
        run_notify("READY=1\nSTATUS=stands by");
    } else {
        options.on_lost = run_on_lost;
        status = rlock_new(&run.lock, cli.client, &options);
        if (status == RLOCK_OK) {
            status = rlock_acquire(run.lock, cli.wait_ms, 0, run_on_acquired, NULL);
        }
    }
    if (status != RLOCK_OK) {
        cli_fail_status("the lock's key or options", status, NULL);
    }
    ev_run(EV_DEFAULT, 0);
    rlock_elect_free(run.election);
    rlock_free(run.lock);
    cli_disconnect();
    return run.status;
}

#endif /* RLOCK_CLI_RUN_H */
