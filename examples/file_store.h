/* A store of one's own, whole: locks in the files of a folder, for the processes of one machine,
 * with no server. It has the mutex with one key, and fencing tokens: docs/writing-a-store.md.
 *
 *     file_store_new(&config.store, "/run/lock/shop");     before rlock_client_new
 *     file_store_free(config.store);                       after rlock_client_free
 *
 * Each key has a file, named by its bytes in hex, with one line: who holds it, since when, for how
 * long, and the last fencing token. Whoever changes a record has the flock of the file "lock",
 * writes the file "new" and renames it. So a process that is killed in between leaves the old
 * record, and the kernel takes its flock away. One that is stopped in between, which lasts for
 * microseconds, stops the others until it goes on or is killed; it makes no two holders.
 *
 * The clock is CLOCK_BOOTTIME: all processes of a machine read the same one, it goes on while the
 * machine sleeps, and nobody sets it, as people and NTP set the wall clock. What a time namespace
 * adds to it, /proc says, and is taken away: so /proc has to be there. It starts again with
 * each boot. So a record that begins after now is from an earlier boot, which its holder did not
 * survive; any other is believed for its lease. A power cut may take records away: that is why a
 * fencing token is at least the wall clock, in microseconds. */
#ifndef FILE_STORE_H
#define FILE_STORE_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/inotify.h>
#endif
#include "rlock.h"

#ifndef CLOCK_BOOTTIME
#define CLOCK_BOOTTIME CLOCK_MONOTONIC
#endif
#define FILE_KEY_MAX 120u   /* bytes; a name has twice as many, and room for 255 */
#define FILE_AGAIN_US 1000u /* within which the flock is tried again */

typedef struct file_record {
    char holder[64]; /* "-" = nobody */
    long long begin_us, lease_ms;
    unsigned long long fence; /* the last one that was given out */
} file_record;

typedef struct file_client { /* the store as one client sees it */
    rlock_client *client;
    const rlock_store_events *events;
    void *owner;
    rlock_timer timer;
    rlock_io io;         /* of the descriptor `notify` */
    rlock_link requests; /* submitted, and not answered */
    const char *path;
    int folder, lock, notify; /* descriptors */
    bool up, told;            /* told: each change is reported */
    int64_t added_us;         /* to the clock of this process */
    file_record record;       /* of the request that is being executed */
    rlock_info info;          /* what it is answered, if it is a question */
} file_client;

#define FILE_OF(at, type, member) ((type *)(void *)((char *)(at)-offsetof(type, member)))

static int64_t file_clock_us(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* What the time namespace of this process adds to its clock; 0 where there are none. */
static int64_t file_added_us(void) {
    const char *clock = CLOCK_BOOTTIME == CLOCK_MONOTONIC ? "monotonic" : "boottime";
    FILE *offsets = fopen("/proc/self/timens_offsets", "r");
    long long seconds, nanoseconds, added_us = 0;
    char name[16];
    while (offsets && fscanf(offsets, "%15s %lld %lld", name, &seconds, &nanoseconds) == 3) {
        added_us = strcmp(name, clock) == 0 ? seconds * 1000000 + nanoseconds / 1000 : added_us;
    }
    if (offsets) {
        fclose(offsets);
    }
    return added_us;
}

static int64_t file_left_us(const file_record *record, int64_t now_us) {
    int64_t end_us = record->begin_us + record->lease_ms * 1000;
    bool held = strcmp(record->holder, "-") != 0 && record->begin_us <= now_us && now_us < end_us;
    return held ? end_us - now_us : 0;
}

static void file_name(char *name, const char *key, size_t key_len) {
    size_t i;
    for (i = 0; i < key_len; i++) {
        snprintf(name + 2 * i, 3, "%02x", (unsigned)(unsigned char)key[i]);
    }
}

/* The key of a file's name, and its length; 0: it is the name of no key. */
static size_t file_key(char *key, const char *name) {
    size_t len = strspn(name, "0123456789abcdef"), i;
    unsigned byte;
    for (i = 0; !name[len] && 2 * i < len && i < FILE_KEY_MAX; i++) {
        key[i] = sscanf(name + 2 * i, "%2x", &byte) == 1 ? (char)byte : 0;
    }
    return i;
}

/* False, with errno: it cannot be read, or (EINVAL) it is no record. */
static bool file_read(file_client *files, const char *name) {
    file_record *record = &files->record;
    int fd = openat(files->folder, name, O_RDONLY | O_CLOEXEC);
    char text[256] = "", end = 0;
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    int error = errno;
    memset(record, 0, sizeof *record);
    strcpy(record->holder, "-");
    close(fd);
    if ((fd < 0 && error == ENOENT) || n == 0) {
        return true; /* never used, or emptied by a power cut */
    }
    errno = n < 0 ? error : EINVAL;
    return sscanf(text, "rlock 1 %63s %lld %lld %llu%c", record->holder, &record->begin_us,
                  &record->lease_ms, &record->fence, &end) == 5 &&
           end == '\n' && record->begin_us >= 0 && record->lease_ms >= 0 &&
           record->lease_ms <= RLOCK_LEASE_MAX_MS;
}

/* False, with errno: nothing was changed. */
static bool file_write(const file_client *files, const char *name) {
    const file_record *record = &files->record;
    char text[256];
    int n = snprintf(text, sizeof text, "rlock 1 %s %lld %lld %llu\n", record->holder,
                     record->begin_us, record->lease_ms, record->fence);
    int fd = openat(files->folder, "new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return false;
    }
    n -= (int)write(fd, text, (size_t)n);
    close(fd);
    return n == 0 && renameat(files->folder, "new", files->folder, name) == 0;
}

static void file_fault(rlock_answer *answer) {
    bool refused = errno == EACCES || errno == EPERM || errno == EROFS, full = errno == ENOSPC;
    answer->outcome = RLOCK_OUTCOME_FAULT;
    answer->fault = refused ? RLOCK_FAULT_AUTH : full ? RLOCK_FAULT_BUSY : RLOCK_FAULT_OTHER;
    answer->fault = errno == EINVAL ? RLOCK_FAULT_TYPE : answer->fault;
    answer->undone = true;
    answer->text = strerror(errno);
}

static void file_tell(file_client *files, rlock_answer *answer, int64_t left_us) {
    rlock_info *info = &files->info;
    memset(info, 0, sizeof *info);
    info->holders = left_us > 0;
    info->left_ms = (left_us + 999) / 1000;
    info->permits = left_us == 0;
    info->waiters = info->position = -1;
    info->token = left_us > 0 ? files->record.holder : NULL;
    info->token_len = left_us > 0 ? strlen(files->record.holder) : 0;
    answer->info = info;
}

/* One step that nothing can come between: this process has the flock. */
static void file_execute(file_client *files, rlock_request *request, rlock_answer *answer) {
    bool acquire = request->op == RLOCK_OP_ACQUIRE, question = request->op >= RLOCK_OP_INSPECT;
    bool check = request->op == RLOCK_OP_RENEW && request->lease_ms == 0, mine;
    char name[2 * FILE_KEY_MAX + 1], token[64];
    int64_t now_us, left_us;
    memset(answer, 0, sizeof *answer);
    answer->settled = true; /* nothing can arrive late: no request ever leaves this process */
    file_name(name, request->key, request->key_len);
    snprintf(token, sizeof token, "%s:%llu", rlock_client_id(files->client),
             (unsigned long long)request->token);
    request->sent_us = rlock_client_clock_us(files->client); /* before the lease can begin */
    if (!file_read(files, name)) {
        file_fault(answer);
        return;
    }
    now_us = file_clock_us(CLOCK_BOOTTIME) - files->added_us;
    left_us = file_left_us(&files->record, now_us);
    mine = left_us > 0 && strcmp(files->record.holder, token) == 0;
    if (question) {
        file_tell(files, answer, left_us);
    } else if (acquire && left_us > 0 && !mine) {
        answer->outcome = RLOCK_OUTCOME_HELD;
        answer->left_ms = (left_us + 999) / 1000;
        answer->watched = files->told;
    } else if (!acquire && !mine) {
        answer->outcome = left_us > 0 ? RLOCK_OUTCOME_STOLEN : RLOCK_OUTCOME_GONE;
    }
    if (answer->outcome != RLOCK_OUTCOME_DONE || request->op == RLOCK_OP_INSPECT || check) {
        return; /* nothing changes */
    }
    strcpy(files->record.holder, request->op == RLOCK_OP_RELEASE || question ? "-" : token);
    if (request->op < RLOCK_OP_RELEASE && request->lease_ms * 1000 > left_us) {
        files->record.begin_us = now_us; /* else no time to live becomes shorter */
        files->record.lease_ms = request->lease_ms;
    }
    if (acquire && request->fences) {
        uint64_t clock_us = (uint64_t)file_clock_us(CLOCK_REALTIME), next = files->record.fence + 1;
        answer->fence = next > clock_us ? next : clock_us;
        files->record.fence = answer->fence + request->fences - 1;
    }
    if (!file_write(files, name)) {
        file_fault(answer);
    }
}

#ifdef __linux__
/* A file has a new name: reports that its key changed. */
static void file_ready(rlock_io *io, unsigned events) {
    file_client *files = FILE_OF(io, file_client, io);
    char buffer[4096], key[FILE_KEY_MAX];
    struct inotify_event event;
    size_t len;
    ssize_t n, at;
    (void)events;
    while ((n = read(files->notify, buffer, sizeof buffer)) > 0) {
        for (at = 0; at < n; at += (ssize_t)(sizeof event + event.len)) {
            memcpy(&event, buffer + at, sizeof event);
            len = event.len ? file_key(key, buffer + at + sizeof event) : 0;
            if (event.mask & IN_Q_OVERFLOW) {
                files->events->woken(files->owner, NULL, 0); /* which one, nobody knows */
            } else if (len) {
                files->events->woken(files->owner, key, len);
            }
        }
    }
}

static void file_listen(file_client *files) {
    files->io.ready = file_ready;
    files->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    files->told = inotify_add_watch(files->notify, files->path, IN_MOVED_TO) >= 0 &&
                  rlock_io_watch(files->client, &files->io, files->notify, RLOCK_IO_READ) == 0;
    if (files->told) {
        files->events->pushing(files->owner, NULL, RLOCK_PUSH_CHANGES);
    }
}
#else
static void file_listen(file_client *files) {
    (void)files; /* pushing is never reported: the core polls */
}
#endif

/* Takes a request off the list. It did not leave, so it is not executed. */
static bool file_forget(void *state, rlock_request *request) {
    (void)state;
    request->store.link.prev->next = request->store.link.next;
    request->store.link.next->prev = request->store.link.prev;
    return false;
}

/* The flock is not waited for: who has it has it for microseconds, unless it is stopped. */
static void file_fire(rlock_timer *timer) {
    file_client *files = FILE_OF(timer, file_client, timer);
    if (!files->up) { /* the first request is there: for this another store connects */
        files->up = true;
        files->events->up(files->owner, NULL);
        file_listen(files);
    }
    if (flock(files->lock, LOCK_EX | LOCK_NB) != 0) {
        int64_t pause_us = (int64_t)(rlock_client_random(files->client) % FILE_AGAIN_US);
        rlock_timer_set(files->client, timer, rlock_client_now_us(files->client) + pause_us);
        return;
    }
    while (files->requests.next != &files->requests) {
        rlock_request *request = FILE_OF(files->requests.next, rlock_request, store.link);
        rlock_answer answer;
        file_forget(files, request);
        file_execute(files, request, &answer);
        files->events->answered(files->owner, request, &answer);
    }
    flock(files->lock, LOCK_UN);
}

static void file_submit(void *state, rlock_request *request) {
    file_client *files = (file_client *)state;
    rlock_link *link = &request->store.link;
    link->prev = files->requests.prev;
    link->next = &files->requests;
    link->prev->next = link->next->prev = link;
    rlock_timer_set(files->client, &files->timer, 0);
}

static void file_watch(void *state, const char *key, size_t key_len, bool on) {
    (void)state, (void)key, (void)key_len, (void)on; /* the whole folder is watched */
}

static void file_flush(void *state) {
    (void)state; /* the timer does it */
}

static const char *file_refuses(void *state, const char *key, size_t key_len,
                                const rlock_terms *terms, bool fencing) {
    (void)state, (void)key, (void)fencing;
    return terms                    ? "locks in files are mutexes with one key"
           : key_len > FILE_KEY_MAX ? "a key is too long for the name of a file"
                                    : NULL;
}

static void file_close(void *state) {
    file_client *files = (file_client *)state;
    while (files->requests.next != &files->requests) { /* the last ones: releases */
        rlock_request *request = FILE_OF(files->requests.next, rlock_request, store.link);
        rlock_answer answer;
        file_forget(files, request);
        if (request->op == RLOCK_OP_RELEASE && flock(files->lock, LOCK_EX | LOCK_NB) == 0) {
            file_execute(files, request, &answer);
        }
    }
    rlock_io_watch(files->client, &files->io, files->notify, 0);
    close(files->notify); /* of one that is not open the kernel says no */
    close(files->lock);   /* which ends the flock */
    close(files->folder);
    rlock_timer_drop(files->client, &files->timer);
    free(files);
}

static int file_open(const rlock_store *store, rlock_client *client,
                     const struct rlock_config *config, const rlock_store_events *events,
                     void *owner, void **state) {
    file_client *files = (file_client *)calloc(1, sizeof *files);
    (void)config;
    if (!files || rlock_timer_add(client, &files->timer, file_fire) != RLOCK_OK) {
        free(files);
        return RLOCK_ERR_NOMEM;
    }
    files->client = client;
    files->events = events;
    files->owner = owner;
    files->requests.prev = files->requests.next = &files->requests;
    files->notify = -1;
    files->added_us = file_added_us();
    files->path = (const char *)store->ctx;
    files->folder = open(files->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    files->lock = openat(files->folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (files->lock < 0) {
        rlock_client_log(client, RLOCK_LOG_ERROR, "no folder for locks", files->path);
        file_close(files);
        return RLOCK_ERR_ARG;
    }
    *state = files;
    return RLOCK_OK;
}

/* Makes a store of the files in a folder, which has to be there. 0, or RLOCK_ERR_NOMEM. */
static int file_store_new(rlock_store **out, const char *folder) {
    static const rlock_store functions = {NULL,        file_open,  file_close, file_submit,
                                          file_forget, file_watch, file_flush, file_refuses,
                                          NULL,        0,          NULL};
    rlock_store *store = (rlock_store *)calloc(1, sizeof *store + strlen(folder) + 1);
    *out = store;
    if (!store) {
        return RLOCK_ERR_NOMEM;
    }
    *store = functions;
    store->ctx = strcpy((char *)(store + 1), folder);
    return RLOCK_OK;
}

static void file_store_free(rlock_store *store) {
    free(store);
}

#endif

/* SPDX-License-Identifier: MIT */
