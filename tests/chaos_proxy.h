/* The proxy of tests/chaos.c, a process of its own: lines to the servers that pass on, split
 * at every byte, delay, swallow, lose and cut, as the shared memory says. */
#ifndef RLOCK_TESTS_CHAOS_PROXY_H
#define RLOCK_TESTS_CHAOS_PROXY_H

#include "chaos_world.h"

#include <netinet/tcp.h>
#include <poll.h>

#define PIPES 192

struct way { /* one direction; what was read is written before more is read */
    char data[16384];
    size_t from, len;
    int64_t due_us;
    bool ended;
};

struct proxied {
    int fd[2]; /* the client's, the server's; negative = this place is free */
    int line;
    bool lossy; /* replies were lost: no later one may take their place */
    struct way way[2];
};

static struct proxied pipes[PIPES];
static int listeners[LINES];
static uint32_t cuts_done[LINES];

static inline int proxy_listens(struct line *line) {
    struct sockaddr_un path;
    struct sockaddr_in port;
    int fd = socket(line->port != 0 ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

    memset(&path, 0, sizeof path);
    memset(&port, 0, sizeof port);
    path.sun_family = AF_UNIX;
    memcpy(path.sun_path, line->path, sizeof line->path);
    port.sin_family = AF_INET;
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    port.sin_port = htons((uint16_t)line->port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 ||
        (line->port != 0 ? bind(fd, (struct sockaddr *)&port, sizeof port)
                         : bind(fd, (struct sockaddr *)&path, sizeof path)) != 0 ||
        listen(fd, 64) != 0) {
        perror("proxy");
        return -1;
    }
    return fd;
}

static inline int proxy_dials(int site) {
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    uint32_t which = site == BROKEN ? load32(&world->primary) : 0;

    memset(&a, 0, sizeof a);
    a.sun_family = AF_UNIX;
    memcpy(a.sun_path, world->socket[site][which], sizeof world->socket[site][which]);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A server that cannot be reached: the client's connection ends at once. */
static inline void proxy_accepts(int line) {
    int fd = accept4(listeners[line], NULL, NULL, SOCK_NONBLOCK), up, i, one = 1;

    if (fd < 0) {
        return;
    }
    for (i = 0; i < PIPES && pipes[i].fd[0] >= 0; i++) {
    }
    up = i < PIPES ? proxy_dials(world->line[line].site) : -1;
    if (up < 0) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    memset(&pipes[i], 0, sizeof pipes[i]);
    pipes[i].fd[0] = fd;
    pipes[i].fd[1] = up;
    pipes[i].line = line;
}

/* Every second time by a reset. */
static inline void proxied_ends(struct proxied *p) {
    struct linger hard = {1, 0};

    if (dice(2) == 0) {
        setsockopt(p->fd[0], SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    close(p->fd[0]);
    close(p->fd[1]);
    p->fd[0] = p->fd[1] = -1;
}

/* False: the pipe has ended. What a client sent before it closed still reaches the server. */
static inline bool way_moves(struct proxied *p, int w, int64_t now_us) {
    const struct line *line = &world->line[p->line];
    struct way *way = &p->way[w];
    uint32_t mode = load32(&line->mode);
    int64_t turn_bytes = mode == LINE_SPLIT ? 1 + dice(12) : (int64_t)sizeof way->data;
    ssize_t n;

    if (mode == LINE_BLACK) {
        return true;
    }
    if (way->len == 0 && !way->ended) {
        n = read(p->fd[w], way->data, sizeof way->data);
        way->ended = n == 0 || (n < 0 && errno != EAGAIN);
        way->from = 0;
        p->lossy = p->lossy || (mode == LINE_LOSE && w == 1 && n > 0);
        way->len = n > 0 && !(p->lossy && w == 1) ? (size_t)n : 0;
        way->due_us = now_us + (mode == LINE_DELAY ? (int64_t)load32(&line->delay_ms) * 1000 : 0);
    }
    while (way->len > 0 && way->due_us <= now_us && turn_bytes > 0) {
        n = send(p->fd[!w], way->data + way->from, mode == LINE_SPLIT ? 1 : way->len, MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN;
        }
        way->from += (size_t)n;
        way->len -= (size_t)n;
        turn_bytes -= n;
    }
    return !way->ended || way->len > 0;
}

/* How long to sleep: what is kept back is looked at every millisecond. */
static inline int proxy_looks(struct pollfd *at, nfds_t *count) {
    int i, w, sleep_ms = 20;

    *count = LINES;
    for (i = 0; i < LINES; i++) {
        at[i].fd = listeners[i];
        at[i].events = POLLIN;
    }
    for (i = 0; i < PIPES; i++) {
        bool black = pipes[i].fd[0] >= 0 && load32(&world->line[pipes[i].line].mode) == LINE_BLACK;

        for (w = 0; w < 2 && pipes[i].fd[0] >= 0 && !black; w++) {
            if (pipes[i].way[w].len > 0) {
                sleep_ms = 1;
            } else if (!pipes[i].way[w].ended) {
                at[*count].fd = pipes[i].fd[w];
                at[(*count)++].events = POLLIN;
            }
        }
    }
    return sleep_ms;
}

static inline int proxy_runs(void) {
    static struct pollfd at[LINES + 2 * PIPES];
    uint32_t cut[LINES];
    nfds_t count;
    int i;

    dice_seed(world->seed + 1000);
    for (i = 0; i < PIPES; i++) {
        pipes[i].fd[0] = -1;
    }
    for (i = 0; i < LINES; i++) {
        listeners[i] = proxy_listens(&world->line[i]);
        if (listeners[i] < 0) {
            return 2;
        }
    }
    while (!load32(&world->stop)) {
        int sleep_ms = proxy_looks(at, &count);
        int64_t now_us;

        poll(at, count, sleep_ms);
        now_us = kit_now_us();
        for (i = 0; i < LINES; i++) {
            cut[i] = load32(&world->line[i].cut);
        }
        for (i = 0; i < PIPES; i++) {
            struct proxied *p = &pipes[i];

            if (p->fd[0] >= 0 && (cuts_done[p->line] != cut[p->line] || !way_moves(p, 0, now_us) ||
                                  !way_moves(p, 1, now_us))) {
                proxied_ends(p);
            }
        }
        for (i = 0; i < LINES; i++) {
            cuts_done[i] = cut[i];
            if (at[i].revents & POLLIN) {
                proxy_accepts(i);
            }
        }
    }
    return 0;
}

#endif
