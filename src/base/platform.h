/* ------------------------------------------------------------------------------------------------
 * >>platform - clock, random bytes, allocation; knows nothing of locks
 */

#ifndef RLOCK_BASE_PLATFORM_H
#define RLOCK_BASE_PLATFORM_H

#include "public/head.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__) && !defined(__ANDROID__) && defined(__has_include)
#if __has_include(<sys/random.h>)
#include <sys/random.h>
#endif
#endif

#if !defined CLOCK_MONOTONIC || !defined O_CLOEXEC
#error "rlock.h needs POSIX: compile with -D_POSIX_C_SOURCE=200809L or -std=gnu99"
#endif

#ifndef RLOCK_ASSERT
#if defined(__GNUC__) && defined(__OPTIMIZE_SIZE__) && !defined(NDEBUG) /* no text, no file */
#define RLOCK_ASSERT(x) ((x) ? (void)0 : __builtin_trap())
#else
#include <assert.h>
#define RLOCK_ASSERT(x) assert(x)
#endif
#endif

#if defined(RLOCK_MALLOC) != defined(RLOCK_FREE)
#error "define both of RLOCK_MALLOC and RLOCK_FREE, or neither"
#endif
#ifndef RLOCK_MALLOC
#define RLOCK_MALLOC(n) malloc(n)
#define RLOCK_FREE(p) free(p)
#endif

/* A function of several callers: where size counts, a call is less than a copy of it. */
#if defined(__GNUC__) && defined(__OPTIMIZE_SIZE__)
#define RLOCK__NOINLINE __attribute__((noinline))
#else
#define RLOCK__NOINLINE
#endif

/* What a macro stands for, as text. */
#define RLOCK__QUOTED(text) #text
#define RLOCK__QUOTE(macro) RLOCK__QUOTED(macro)

#define RLOCK__NEVER INT64_MAX
#define RLOCK__OF(pointer, type, member) \
    ((type *)(void *)((char *)(uintptr_t)(pointer)-offsetof(type, member))) /* of a const one too */

#ifndef RLOCK_NOW_US
#define RLOCK_NOW_US() rlock__system_now_us()
static int64_t rlock__system_now_us(void) {
    struct timespec now;
#ifdef CLOCK_BOOTTIME
    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0)
#endif
    {
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
#endif

#ifndef RLOCK_RANDOM
#define RLOCK_RANDOM(p, n) rlock__system_random(p, n)
/* An older kernel has the file alone; a chroot may not have it. */
static int rlock__system_random(void *bytes, size_t size) {
    ssize_t got = -1;
    int fd;
#ifdef GRND_NONBLOCK
    got = getrandom(bytes, size, GRND_NONBLOCK);
#endif
    if (got == (ssize_t)size) {
        return 1;
    }
    fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    got = fd < 0 ? -1 : read(fd, bytes, size);
    if (fd >= 0) {
        close(fd);
    }
    return got == (ssize_t)size;
}
#endif

/* Whether this process is the one that made a client, or a fork of it. Every call asks, so a page
 * that the kernel clears in the child says it, where there is such a thing; else getpid does. */
#if defined(MADV_WIPEONFORK) && defined(MAP_ANONYMOUS) && defined(__GNUC__)
/* What runs programs of another machine may say yes to every advice and do nothing (qemu-user 7.2).
 * Who knows this one refuses it for memory that is shared. */
static bool rlock__cleared_by_fork(void *map, size_t size) {
    void *shared = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool known = shared != MAP_FAILED && madvise(shared, size, MADV_WIPEONFORK) != 0;
    if (shared != MAP_FAILED) {
        munmap(shared, size);
    }
    return known && madvise(map, size, MADV_WIPEONFORK) == 0;
}

static uint32_t *rlock__process(void) {
    static uint32_t *page, processes;
    uint32_t *fresh;
    if (!page) { /* clients of several threads may be made at once */
        size_t size = (size_t)sysconf(_SC_PAGESIZE);
        void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fresh = map == MAP_FAILED ? NULL : (uint32_t *)map;
        if (fresh && (!rlock__cleared_by_fork(map, size) ||
                      !__sync_bool_compare_and_swap(&page, (uint32_t *)NULL, fresh))) {
            munmap(map, size);
        }
    }
    if (page && !*page) {
        __sync_bool_compare_and_swap(page, 0u, __sync_add_and_fetch(&processes, 1u));
    }
    return page;
}
#else
static uint32_t *rlock__process(void) {
    return NULL;
}
#endif

static void *rlock__alloc(size_t size) {
    void *memory = RLOCK_MALLOC(size);
    RLOCK_ASSERT(size > 0);
    if (memory) {
        memset(memory, 0, size);
    }
    return memory;
}

static void rlock__dealloc(void *memory) {
    if (memory) {
        RLOCK_FREE(memory);
    }
}

static char *rlock__copy(const char *text, size_t len) {
    char *copy = text ? (char *)RLOCK_MALLOC(len + 1) : NULL;
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = 0;
    }
    return copy;
}

RLOCK__NOINLINE static size_t rlock__length(const char *text) {
    return text ? strlen(text) : 0;
}

#if RLOCK__HAS_REDIS || RLOCK__HAS_QUORUM
/* Copies a text that may be NULL; *failed: there was no memory for it. */
static char *rlock__copy_text(const char *text, bool *failed) {
    char *copy = rlock__copy(text, rlock__length(text));
    *failed = *failed || (text && !copy);
    return copy;
}
#endif

#define RLOCK__LINE 256 /* bytes of a line of the log, with its NUL */

/* Appends words, if there are any, to the n bytes of a line; cuts what has no room. */
RLOCK__NOINLINE static size_t rlock__line_add(char *line, size_t n, const char *between,
                                              const char *words) {
    RLOCK_ASSERT(n < RLOCK__LINE);
    while (words && (*between || *words) && n < RLOCK__LINE - 1) {
        line[n++] = *between ? *between++ : *words++; /* a store may have written them */
    }
    line[n] = 0;
    return n;
}

/* Decimal digits of a number, without a NUL; returns how many (at most 20). */
static size_t rlock__digits(char *out, uint64_t number) {
    char digits[20];
    size_t n = 0;
    do {
        digits[sizeof digits - ++n] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    memcpy(out, digits + sizeof digits - n, n);
    return n;
}

/* Appends a number. */
static size_t rlock__line_number(char *line, size_t n, const char *between, int32_t value) {
    char number[22];
    size_t sign = value < 0;
    number[0] = '-';
    number[sign + rlock__digits(number + sign, (uint64_t)(sign ? -value : value))] = 0;
    return rlock__line_add(line, n, between, number);
}

static void rlock__hex(char *out, const void *bytes, size_t size) {
    const unsigned char *at = (const unsigned char *)bytes;
    while (size--) {
        *out++ = "0123456789abcdef"[*at >> 4];
        *out++ = "0123456789abcdef"[*at++ & 15];
    }
}

RLOCK__NOINLINE static int64_t rlock__min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

#endif /* RLOCK_BASE_PLATFORM_H */
