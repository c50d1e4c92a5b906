/* rlock_asio.hpp - rlock.hpp on Asio
 * SPDX-License-Identifier: MIT
 *
 *     asio::io_context io;
 *     config.loop = rlockpp::asio_loop(io);
 *     rlockpp::client client(config);
 *     rlockpp::lock lock(client, "stock:42");
 *
 *     rlockpp::hold hold = co_await rlockpp::async_acquire(lock, 5s, asio::use_awaitable);
 *
 * It is for standalone Asio 1.18 or newer, and for Boost.Asio 1.74 or newer if RLOCK_BOOST_ASIO is
 * defined before the include. Link with -pthread: names are resolved by rlock_resolve.h, unless
 * RLOCK_NO_THREADS is defined. Everything of a client runs on one executor, whose handlers run one
 * at a time: that of an io_context that one thread runs, or a strand. Call the library from there
 * only, or while no thread runs it; locks and clients are destroyed there too.
 *
 * A hold that async_acquire gave, as one of use_future, may go to any thread, one at a time: there
 * it is moved, detached, asked for `if (hold)` and how(), and destroyed, upon which the loop
 * releases it. For held() and remaining() another thread has options.deadline and rlock_still_held.
 * A hold may outlive its lock and its loop, but none is destroyed while its loop is.
 *
 * Asio allocates for each wait, and for a hold that another thread destroys. A program that gets no
 * memory for one ends (std::terminate), as with libev; only a connection's first wait may fail.
 */

#ifndef RLOCK_ASIO_HPP
#define RLOCK_ASIO_HPP

#include "rlock.hpp"

#ifdef RLOCK_BOOST_ASIO
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/asio/version.hpp>
#define RLOCK__ASIO_CANCELS (BOOST_ASIO_VERSION >= 101900)
#else
#include <asio/any_io_executor.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/dispatch.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/system_executor.hpp>
#include <asio/version.hpp>
#define RLOCK__ASIO_CANCELS (ASIO_VERSION >= 101900)
#endif
#include <poll.h>

#include "rlock_resolve.h"

namespace rlockpp {

#ifdef RLOCK_BOOST_ASIO
namespace net = ::boost::asio;
using asio_error = ::boost::system::error_code;
#else
namespace net = ::asio;
using asio_error = ::asio::error_code;
#endif

namespace detail {

/* One client on one executor. Handlers that wait keep it; it keeps itself until `close`. */
struct asio_client {
    std::shared_ptr<asio_client> self;
    rlock_client *client; /* NULL = closed */
    net::any_io_executor executor;
    net::steady_timer timer;
    unsigned turn = 0; /* of the timer: a handler of an earlier one is silent */
    bool zero = false; /* the timer is armed with no delay */
    rlock_lookup *lookups = nullptr;

    asio_client(rlock_client *whose, const net::any_io_executor &on)
        : client(whose), executor(on), timer(on) {
    }
};

/* One descriptor. Handlers that wait keep it; it keeps itself until watch(0), when it releases
 * the descriptor, which Asio must not close. */
struct asio_watched {
    std::shared_ptr<asio_watched> self;
    rlock_io *io; /* NULL = forgotten: a handler that is queued already is silent */
    net::posix::stream_descriptor descriptor;
    unsigned wanted = 0, waiting = 0; /* for which events a wait is begun */

    asio_watched(rlock_io *whose, const net::any_io_executor &on) : io(whose), descriptor(on) {
    }

    /* What is ready now: level-triggered, and an error or a hang-up reports all watched events.
     * Asio reports read and write one by one, and maybe what is read by now. */
    unsigned ready() {
        pollfd fd = {descriptor.native_handle(), 0, 0};
        fd.events = static_cast<short>((wanted & RLOCK_IO_READ ? POLLIN : 0) |
                                       (wanted & RLOCK_IO_WRITE ? POLLOUT : 0));
        if (::poll(&fd, 1, 0) <= 0) {
            return 0;
        }
        return fd.revents & (POLLERR | POLLHUP | POLLNVAL)
                   ? wanted
                   : (fd.revents & POLLIN ? RLOCK_IO_READ : 0) |
                         (fd.revents & POLLOUT ? RLOCK_IO_WRITE : 0);
    }

    /* Waits for an event, if it is wanted and not waited for. */
    void wait(unsigned event) {
        if ((wanted & ~waiting & event) != 0) {
            descriptor.async_wait(event == RLOCK_IO_READ ? descriptor.wait_read
                                                         : descriptor.wait_write,
                                  [it = self, event](const asio_error &) { it->told(event); });
            waiting |= event;
        }
    }

    /* It waits again before the call, which may run the loop, throw, or forget the descriptor. */
    void told(unsigned event) {
        waiting &= ~event;
        if (io == nullptr) {
            return;
        }
        unsigned events = ready();
        [&]() noexcept { wait(event); }();
        if (events != 0) {
            rlock_on_io(io, events);
        }
    }
};

/* Without memory the two hooks that may fail do. */
inline void *asio_open(const net::any_io_executor &executor, rlock_client *client) {
    try {
        auto s = std::make_shared<asio_client>(client, executor);
        s->self = s;
        return s.get();
    } catch (const std::exception &) {
        return nullptr;
    }
}

inline void *asio_open_context(void *ctx, rlock_client *client) {
    return asio_open(static_cast<net::io_context *>(ctx)->get_executor(), client);
}

inline void *asio_open_executor(void *ctx, rlock_client *client) {
    return asio_open(*static_cast<net::any_io_executor *>(ctx), client);
}

inline void asio_forget(rlock_io *io) noexcept {
    if (auto *it = static_cast<asio_watched *>(io->data)) {
        auto last = std::move(it->self);
        it->io = nullptr;
        it->descriptor.release();
        io->data = nullptr;
    }
}

inline int asio_watch(void *state, rlock_io *io, int fd, unsigned events) {
    if (events == 0) {
        asio_forget(io);
        return 0;
    }
    try {
        auto *it = static_cast<asio_watched *>(io->data);
        if (it == nullptr) {
            auto *s = static_cast<asio_client *>(state);
            auto fresh = std::make_shared<asio_watched>(io, s->executor);
            fresh->descriptor.assign(fd);
            fresh->self = fresh;
            io->data = it = fresh.get();
        }
        it->wanted = events;
        it->wait(RLOCK_IO_READ);
        it->wait(RLOCK_IO_WRITE);
        return 0;
    } catch (const std::exception &) {
        asio_forget(io);
        return -1;
    }
}

/* Asio looks for timers that are due behind the descriptors of the same look, so a delay of 0
 * fires after them in the next one. */
inline void asio_set_timer(void *state, int64_t delay_us) noexcept {
    auto *s = static_cast<asio_client *>(state);
    if (delay_us == 0 && s->zero) {
        return; /* it keeps its turn: else setting it in every turn would put it off without end */
    }
    s->zero = delay_us == 0;
    s->turn++;
    if (delay_us < 0) {
        s->timer.cancel();
        return;
    }
    s->timer.expires_after(std::chrono::microseconds(delay_us));
    s->timer.async_wait([s = s->self, turn = s->turn](const asio_error &) {
        if (s->client != nullptr && s->turn == turn) {
            s->zero = false;
            rlock_on_timer(s->client);
        }
    });
}

inline int asio_resolve(void *state, rlock_name *name, const char *host) noexcept {
    auto *s = static_cast<asio_client *>(state);
    return rlock_resolve(&s->lookups, asio_watch, state, name, host);
}

inline void asio_close(void *state) noexcept {
    auto s = std::move(static_cast<asio_client *>(state)->self);
    rlock_resolve_forget(&s->lookups);
    s->client = nullptr;
    s->timer.cancel();
}

inline rlock_loop asio_hooks(void *ctx, void *(*open)(void *ctx, rlock_client *client)) {
    rlock_loop hooks = rlock_loop();
    hooks.ctx = ctx;
    hooks.open = open;
    hooks.watch = asio_watch;
    hooks.set_timer = asio_set_timer;
    hooks.close = asio_close;
    hooks.resolve = RLOCK_RESOLVES ? asio_resolve : nullptr;
    return hooks;
}

} /* namespace detail */

/* The loop to put into rlock_config. The context, or the executor that stands at that address, must
 * outlive the clients and locks on it. */
inline rlock_loop asio_loop(net::io_context &context) {
    return detail::asio_hooks(&context, detail::asio_open_context);
}
inline rlock_loop asio_loop(net::any_io_executor &executor) {
    return detail::asio_hooks(&executor, detail::asio_open_executor);
}

namespace detail {

inline net::any_io_executor asio_on(net::io_context *context) {
    return context->get_executor();
}
inline net::any_io_executor asio_on(net::any_io_executor *executor) {
    return *executor;
}

/* Where there is no loop of Asio, a call is refused: its handler hears of it somewhere. */
inline net::any_io_executor asio_executor(const rlock_loop &loop) {
    return loop.open == asio_open_context ? asio_on(static_cast<net::io_context *>(loop.ctx))
           : loop.open == asio_open_executor
               ? asio_on(static_cast<net::any_io_executor *>(loop.ctx))
               : net::any_io_executor(net::system_executor());
}

/* Gives a hold what it needs to be destroyed on any thread. */
struct asio_home {
    template <class On>
    static void let_go_on(void *ctx, std::weak_ptr<core> &&whose, std::uint64_t turn) noexcept {
        net::dispatch(asio_on(static_cast<On *>(ctx)),
                      [whose = std::move(whose), turn] { let_go(whose, turn); });
    }
    static hold of(hold got, const rlock_loop &loop) {
        got.away_ = loop.open == asio_open_context    ? let_go_on<net::io_context>
                    : loop.open == asio_open_executor ? let_go_on<net::any_io_executor>
                                                      : nullptr;
        got.ctx_ = loop.ctx;
        return got;
    }
};

/* A handler, called once on its own executor, or destroyed with the operation. */
template <class Handler> struct asio_completion {
    Handler handler;
    net::associated_executor_t<Handler, net::any_io_executor> executor;
    net::executor_work_guard<decltype(executor)> work;

    asio_completion(Handler &&whose, const net::any_io_executor &on)
        : handler(std::move(whose)), executor(net::get_associated_executor(handler, on)),
          work(executor) {
    }
    template <class T> void operator()(T value) {
#if RLOCK__ASIO_CANCELS
        net::get_associated_cancellation_slot(handler).clear();
#endif
        net::dispatch(executor, [handler = std::move(handler), value = std::move(value)]() mutable {
            std::move(handler)(std::move(value));
        });
    }
};

/* Begins an operation with a completion token. A lazy one begins it later, so only then is looked
 * at what the lock is; the slot of an acquire cancels no other one that its handle has. */
template <class T, class On, class Token, class Start>
auto asio_begin(On &whose, Token &&token, Start start) {
    return net::async_initiate<Token, void(T)>(
        [&whose](auto handler, Start begin) {
            net::any_io_executor on = asio_executor(whose.loop());
            auto done =
                std::make_shared<asio_completion<decltype(handler)>>(std::move(handler), on);
#if RLOCK__ASIO_CANCELS
            auto slot = net::get_associated_cancellation_slot(done->handler);
            rlock *lock = nullptr;
            if constexpr (std::is_same_v<T, hold>) {
                lock = whose.get();
            }
            if (lock != nullptr && slot.is_connected()) {
                slot.assign([alive = std::weak_ptr<void>(done), lock](net::cancellation_type) {
                    if (!alive.expired()) {
                        rlock_cancel(lock);
                    }
                });
            }
#endif
            if (int status = begin([done](T value) { (*done)(std::move(value)); })) {
#if RLOCK__ASIO_CANCELS
                slot.clear();
#endif
                net::post(on, [done, status] { (*done)(T(result(status))); });
            }
        },
        token, std::move(start));
}

} /* namespace detail */

/* Acquires the lock as lock::acquire does, whose client has an asio_loop. The completion token
 * (a callback, use_future, use_awaitable and so on) gets a rlockpp::hold: void(hold). The handler
 * runs on its associated executor, else on that of the loop, and never inside this call. Its
 * cancellation slot (Asio 1.19) cancels the acquire, which then ends with RLOCK_ERR_CANCELED. If
 * the lock is destroyed before, the handler is destroyed without a call. A lazy token takes the
 * lock as it is when the operation begins. One that was moved from gives RLOCK_ERR_ARG. */
template <class Token>
auto async_acquire(lock &on, milliseconds wait, milliseconds lease, Token &&token) {
    return detail::asio_begin<hold>(on, std::forward<Token>(token), [&on, wait, lease](auto done) {
        return on.acquire(wait, lease, [done = std::move(done), loop = on.loop()](hold got) {
            done(detail::asio_home::of(std::move(got), loop));
        });
    });
}
template <class Token> auto async_acquire(lock &on, milliseconds wait, Token &&token) {
    return async_acquire(on, wait, milliseconds(0), std::forward<Token>(token));
}

/* The same for lock::release, and for client::shutdown and ::drain: void(result). */
template <class Token> auto async_release(lock &on, Token &&token) {
    return detail::asio_begin<result>(on, std::forward<Token>(token),
                                      [&on](auto done) { return on.release(std::move(done)); });
}
template <class Token> auto async_shutdown(client &on, milliseconds timeout, Token &&token) {
    return detail::asio_begin<result>(on, std::forward<Token>(token), [&on, timeout](auto done) {
        return on.shutdown(timeout, std::move(done));
    });
}
template <class Token> auto async_drain(client &on, milliseconds limit, Token &&token) {
    return detail::asio_begin<result>(
        on.loop(), nullptr, std::forward<Token>(token),
        [&on, limit](auto done) { return on.drain(limit, std::move(done)); });
}

} /* namespace rlockpp */

#undef RLOCK__ASIO_CANCELS

#endif /* RLOCK_ASIO_HPP */

/*
 * Copyright (c) 2026 the rlock authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
