/* The row of Asio in tests/loops.c, which is C: the adapter as that suite needs it, its calls into
 * the library and its wishes for memory and threads redirected to the suite. */
#define rlock_on_io asio_heard_io
#define rlock_on_timer asio_heard_timer
#define rlock_on_resolved_all asio_heard_resolved_all
#include "rlock.hpp"

#include <netdb.h>
#include <new>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

extern "C" {
extern int asio_heard;
bool asio_refused(void);
void *asio_wish_malloc(size_t size);
void *asio_wish_calloc(size_t n, size_t size);
int asio_wish_pipe(int *ends);
int asio_wish_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                             void *arg);
}

#define malloc asio_wish_malloc
#define calloc asio_wish_calloc
#define pipe asio_wish_pipe
#define pthread_create asio_wish_pthread_create
#include "rlock_resolve.h"
#undef malloc
#undef calloc
#undef pipe
#undef pthread_create

#include "rlock_asio.hpp"

namespace {

/* What the hooks that may fail ask of `new` are wishes too. */
bool wishing;
rlock_loop plain;

void *wish_open(void *ctx, rlock_client *client) {
    wishing = true;
    void *state = plain.open(ctx, client);
    wishing = false;
    return state;
}

int wish_watch(void *state, rlock_io *io, int fd, unsigned events) {
    wishing = events != 0;
    int status = plain.watch(state, io, fd, events);
    wishing = false;
    return status;
}

struct world {
    asio::io_context io;
    asio::posix::stream_descriptor foreign{io};
    void (*ready)() = nullptr;
    void wait() {
        foreign.async_wait(foreign.wait_read, [this](const asio::error_code &failed) {
            if (!failed && ready != nullptr) {
                wait();
                ready();
            }
        });
    }
};

} /* namespace */

[[gnu::noinline]] void *operator new(std::size_t size) {
    void *memory = wishing && asio_refused() ? nullptr : malloc(size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

[[gnu::noinline]] void operator delete(void *memory) noexcept {
    free(memory);
}

[[gnu::noinline]] void operator delete(void *memory, std::size_t) noexcept {
    free(memory);
}

extern "C" {
void *asio_make(void);
rlock_loop asio_hooks(void *loop);
void asio_iterates(void *loop);
void asio_listen(void *loop, int fd, void (*ready)(void));
bool asio_runs_out(void *loop);
void asio_free_loop(void *loop);

void *asio_make(void) {
    return new world;
}

rlock_loop asio_hooks(void *loop) {
    rlock_loop hooks = plain = rlockpp::asio_loop(static_cast<world *>(loop)->io);
    hooks.open = wish_open;
    hooks.watch = wish_watch;
    return hooks;
}

/* Some handlers, up to one that calls the library. */
void asio_iterates(void *loop) {
    asio::io_context &io = static_cast<world *>(loop)->io;
    int heard = asio_heard;
    io.restart();
    if (io.run_one_for(std::chrono::milliseconds(50)) != 0) {
        for (int i = 0; i < 7 && asio_heard == heard && io.poll_one() != 0; i++) {
        }
    }
}

void asio_listen(void *loop, int fd, void (*ready)(void)) {
    world *it = static_cast<world *>(loop);
    it->ready = nullptr;
    if (it->foreign.is_open()) {
        it->foreign.release();
    }
    if (fd >= 0) {
        it->ready = ready;
        it->foreign.assign(fd);
        it->wait();
    }
}

bool asio_runs_out(void *loop) {
    asio::io_context &io = static_cast<world *>(loop)->io;
    io.restart();
    io.run_for(std::chrono::seconds(20));
    return io.stopped();
}

void asio_free_loop(void *loop) {
    delete static_cast<world *>(loop);
}
}
