/* proxy.h - a network that loses, cuts, splits and delays: a proxy
 *
 * It is a process of its own, which is told what to do through shared memory. Where it listens and
 * what it leads to are paths of unix sockets, or 127.0.0.1:PORT.
 */
#ifndef TESTS_PROXY_H
#define TESTS_PROXY_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "private.h"

enum { PASS, SWALLOW_REPLIES, BLACK_HOLE, SPLIT, DELAY_50_MS, DELAY_200_MS, HOLD_BACK };

#define LINKS 16

/* Each is done once and then 0 again. cut: end every connection; while requests are held back, only
 * the client's half. deliver: send on what was held back. */
struct proxy {
    volatile int mode, cut, deliver;
    char path[192], to[192]; /* where it listens, and what it leads to */
};

struct link {
    int side[2]; /* the client's, the server's */
    int lossy;   /* what was swallowed: it may never carry a byte again, as no TCP connection
                    has a hole in it */
    size_t held;
    char bytes[16384]; /* held back */
};

static struct proxy *proxy;
static pid_t proxy_pid; /* not shared: in the proxy itself it is 0 */

static inline int unix_socket(const char *path, int listening) {
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    snprintf(a.sun_path, sizeof a.sun_path, "%.107s", path);
    if (listening ? bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 16) != 0
                  : connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Passes on what came from that side, as the mode says. False if this link has ended. */
static inline int proxy_passes(struct link *l, int side) {
    char buffer[16384];
    ssize_t n = recv(l->side[side], buffer, sizeof buffer, 0), i;
    int to = l->side[!side];

    if (n <= 0) {
        return 0;
    }
    if (proxy->mode == BLACK_HOLE || (proxy->mode == SWALLOW_REPLIES && side == 1)) {
        l->lossy = 1;
        return 1;
    }
    if (l->lossy) {
        return 0;
    }
    if (proxy->mode == HOLD_BACK && side == 0 && l->held + (size_t)n <= sizeof l->bytes) {
        memcpy(l->bytes + l->held, buffer, (size_t)n);
        l->held += (size_t)n;
        return 1;
    }
    if (proxy->mode == DELAY_50_MS || proxy->mode == DELAY_200_MS) {
        server_sleep_ms(proxy->mode == DELAY_50_MS ? 50 : 200);
    }
    if (proxy->mode != SPLIT) {
        return send(to, buffer, (size_t)n, MSG_NOSIGNAL) == n;
    }
    for (i = 0; i < n; i++) {
        if (send(to, buffer + i, 1, MSG_NOSIGNAL) != 1) {
            return 0;
        }
        usleep(50);
    }
    return 1;
}

static inline void proxy_drops(struct link *l) {
    close(l->side[0]);
    close(l->side[1]);
    l->side[0] = l->side[1] = -1;
    l->held = 0;
}

static inline void proxy_cuts_link(struct link *l) {
    if (l->held > 0 && l->side[0] >= 0) {
        close(l->side[0]);
        l->side[0] = -1;
    } else if (l->held == 0) {
        proxy_drops(l);
    }
}

static inline void proxy_delivers(struct link *l) {
    if (l->held > 0 && send(l->side[1], l->bytes, l->held, MSG_NOSIGNAL) != (ssize_t)l->held) {
        proxy_drops(l);
    }
    l->held = 0;
}

static inline int proxy_socket(const char *address, int listening) {
    static const char host[] = "127.0.0.1:";
    struct sockaddr_in a;
    int fd, on = 1;

    if (strncmp(address, host, sizeof host - 1) != 0) {
        return unix_socket(address, listening);
    }
    fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons((uint16_t)atoi(address + sizeof host - 1));
    if (listening ? bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 16) != 0
                  : connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static inline void proxy_accepts(struct link *l, int door) {
    l->side[0] = accept(door, NULL, NULL);
    l->side[1] = proxy_socket(proxy->to, 0);
    l->lossy = 0;
    if (l->side[1] < 0) {
        proxy_drops(l);
    }
}

static inline void proxy_serves(int door) {
    static struct link links[LINKS];
    int i;

    for (i = 0; i < LINKS; i++) {
        links[i].side[0] = links[i].side[1] = -1;
    }
    for (;;) {
        struct pollfd p[1 + 2 * LINKS];

        p[0].fd = door;
        p[0].events = POLLIN;
        for (i = 0; i < 2 * LINKS; i++) {
            p[1 + i].fd = links[i / 2].side[i % 2];
            p[1 + i].events = POLLIN;
            p[1 + i].revents = 0;
        }
        poll(p, 1 + 2 * LINKS, 5);
        for (i = 0; i < 2 * LINKS; i++) {
            struct link *l = &links[i / 2];

            if (l->side[i % 2] >= 0 && p[1 + i].revents != 0 && !proxy_passes(l, i % 2)) {
                proxy_drops(l);
            }
        }
        for (i = 0; i < LINKS; i++) {
            if (links[i].side[1] >= 0 && proxy->cut) {
                proxy_cuts_link(&links[i]);
            }
            if (links[i].side[1] >= 0 && proxy->deliver) {
                proxy_delivers(&links[i]);
            }
        }
        proxy->cut = proxy->deliver = 0;
        for (i = 0; (p[0].revents & POLLIN) && i < LINKS; i++) {
            if (links[i].side[1] < 0) {
                proxy_accepts(&links[i], door);
                break;
            }
        }
    }
}

static inline void proxy_starts(const char *path, const char *to) {
    pid_t parent = getpid();
    int door;

    proxy = (struct proxy *)mmap(NULL, sizeof *proxy, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(proxy->path, sizeof proxy->path, "%.107s", path);
    snprintf(proxy->to, sizeof proxy->to, "%s", to);
    door = proxy_socket(proxy->path, 1);
    proxy_pid = fork();
    if (proxy_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            proxy_serves(door);
        }
        _exit(0);
    }
    close(door);
}

static inline void proxy_does(volatile int *what) {
    *what = 1;
    while (*what) {
        server_sleep_ms(1);
    }
}

static inline void proxy_cuts(void) {
    proxy_does(&proxy->cut);
}

static inline void proxy_delivers_late(void) {
    proxy_does(&proxy->deliver);
}

#endif
