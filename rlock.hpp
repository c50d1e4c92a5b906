/* rlock.hpp - rlock.h in C++: handles that free themselves, any callable, co_await
 * SPDX-License-Identifier: MIT
 *
 *     using namespace std::chrono_literals;
 *     rlock_config config = {};
 *     config.loop = rlock_poll_loop(loop);            any adapter, as in C
 *     rlockpp::client client(config);
 *     rlockpp::lock lock(client, "stock:42", [](const rlockpp::result &lost) { stop(); });
 *
 *     lock.acquire(5s, [](rlockpp::hold hold) {       C++17: a callback
 *         if (!hold) { std::puts(hold.how().message().c_str()); }
 *     });                                             the destructor of the hold releases it
 *
 *     rlockpp::hold hold = co_await lock.acquire(5s); C++20: the same in a coroutine
 *
 * It needs C++17, and C++20 for co_await. One file of the program defines RLOCK_IMPLEMENTATION, as
 * rlock.h says; that file may be C, with -fexceptions, without which memory leaks where a callback
 * throws. The namespace is `rlockpp`, because `rlock` is a type in C, and so cannot be a namespace
 * in one program with it. docs/use-from-cpp.md has programs; adapters/rlock_asio.hpp is for Asio.
 *
 * What rlock.h says holds here too: one thread, for destructors too (that of a hold of Asio may be
 * on any), no callback inside a call, the table STATE x CALL, and what the statuses mean. `get()`
 * gives the C object for what has no name here, such as the questions. In addition:
 *
 * - Nothing throws but what you ask to: `or_throw()` throws an rlockpp::error. Only memory that
 *   cannot be had is a std::bad_alloc, thrown before anything has begun; no destructor needs any.
 * - A callable is moved in, called at most once (`lost` once for each loss), and destroyed after
 *   that, or when its lock or client is destroyed: what is pending ends without a call. It may
 *   destroy the lock and the client. What it throws comes out of the loop, and the client goes on.
 * - A call without a callable begins at once too, and returns a `pending`, which a coroutine may
 *   await then or later. A `pending` that is destroyed before its end, with its coroutine or
 *   without, hears of nothing: an acquire is then cancelled, other operations go on.
 * - A coroutine is resumed inside a callback. One that waits while its lock or client is destroyed
 *   is not resumed any more: shut the client down first, or destroy the coroutine.
 */

#ifndef RLOCK_HPP
#define RLOCK_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "rlock.hpp needs C++17: compile with -std=c++17, or use rlock.h, which needs C++11"
#endif

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#ifdef __cpp_impl_coroutine
#include <coroutine>
#endif
#ifdef __cpp_exceptions
#include <stdexcept>
#endif

#include "rlock.h"

namespace rlockpp {

/* Durations are whole milliseconds: 5s and 2min convert, 10us does not compile. */
using std::chrono::milliseconds;

/* To wait for as long as it takes. */
inline constexpr milliseconds forever{RLOCK_FOREVER};

#ifdef __cpp_exceptions
/* What or_throw throws; what() is result::message(). */
struct error : std::runtime_error {
    int status;
    error(int code, const std::string &words) : std::runtime_error(words), status(code) {
    }
};
#endif

/* How an operation ended, or a hold: the members of an rlock_event, with a copy of its text. */
struct result {
    int status;
    rlock_reason reason = RLOCK_REASON_NONE;
    std::uint64_t fence = 0;
    milliseconds remaining{0};
    std::string text; /* mostly empty */

    explicit result(int code = RLOCK_OK) noexcept : status(code) {
    }
    explicit result(const rlock_event &event) noexcept
        : status(event.status), reason(event.reason), fence(event.fence),
          remaining(event.remaining_ms) {
#ifdef __cpp_exceptions
        try {
            text = event.text != nullptr ? event.text : "";
        } catch (...) { /* without memory there is no text, but the end is reported */
        }
#else
        text = event.text != nullptr ? event.text : "";
#endif
    }

    /* True with RLOCK_OK. */
    explicit operator bool() const noexcept {
        return status == RLOCK_OK;
    }

    /* The status in words, and the text if there is one. */
    std::string message() const {
        return text.empty() ? rlock_strerror(status) : rlock_strerror(status) + (": " + text);
    }
#ifdef __cpp_exceptions
    void or_throw() const {
        if (status != RLOCK_OK) {
            throw error(status, message());
        }
    }
#endif
};

namespace detail {

struct core;
using core_ptr = std::shared_ptr<core>;

/* An operation that is not over. It belongs to its core, in a list of which it is a member. */
struct op {
    core *of = nullptr;
    op *next = nullptr, **link = nullptr;

    virtual ~op() = default;
    void unlink() noexcept {
        *link = next;
        if (next != nullptr) {
            next->link = link;
        }
    }
    virtual void end(const core_ptr &of, const result &how) = 0;
};

template <class F> struct op_of final : op {
    F call;
    explicit op_of(F &&done) : call(std::move(done)) {
    }
    void end(const core_ptr &from, const result &how) override {
        call(from, how);
    }
};

/* What stands behind a lock or a client, and stays where it is when these are moved. Holds know it
 * by weak pointers, callbacks keep it while they run. */
struct core : std::enable_shared_from_this<core> {
    rlock_client *client = nullptr; /* of the two one */
    rlock *lock = nullptr;
    int status = RLOCK_OK;  /* how it was made */
    std::uint64_t turn = 0; /* holds until now */
    op *ops = nullptr;
    std::unique_ptr<op> lost;

    /* Its operations end without a call. Their callables may destroy anything, so each is out of
     * the list before it goes. */
    void close() noexcept {
        rlock_free(std::exchange(lock, nullptr));
        rlock_client_free(std::exchange(client, nullptr));
        status = RLOCK_ERR_CLOSED;
        while (ops != nullptr) {
            std::unique_ptr<op> first(ops);
            first->unlink();
        }
    }
};

/* Out of the list before the call, which may destroy the core. */
inline void end(void *user, const result &how) {
    std::unique_ptr<op> self(static_cast<op *>(user));
    core_ptr of = self->of->shared_from_this();
    self->unlink();
    self->end(of, how);
}

inline void on_event(rlock *, const rlock_event *event, void *user) {
    end(user, result(*event));
}

inline void on_lost(rlock *, const rlock_event *event, void *user) {
    core_ptr of = static_cast<core *>(user)->shared_from_this();
    of->lost->end(of, result(*event));
}

inline void on_shutdown(rlock_client *, int status, void *user) {
    end(user, result(status));
}

/* A callable of a result, as an operation calls it. */
template <class F> auto told(F done) {
    return [done = std::move(done)](const core_ptr &, const result &how) mutable { done(how); };
}

/* Begins an operation: `call` gets what is to be its `user`. */
template <class F, class Call> int begin(const core_ptr &of, F done, Call call) {
    if (of == nullptr || of->status != RLOCK_OK) {
        return of == nullptr ? static_cast<int>(RLOCK_ERR_ARG) : of->status;
    }
    auto self = std::make_unique<op_of<F>>(std::move(done));
    int status = call(static_cast<void *>(static_cast<op *>(self.get())));
    if (status == RLOCK_OK) { /* from here on it is of the core, then of end() or close() */
        self->of = of.get();
        self->link = &of->ops;
        self->next = std::exchange(of->ops, self.get());
        if (self->next != nullptr) {
            self->next->link = &self->next;
        }
        static_cast<void>(self.release());
    }
    return status;
}

template <class F> int release(const core_ptr &of, F done) {
    return begin(of, told(std::move(done)),
                 [&](void *user) { return rlock_release(of->lock, on_event, user); });
}

/* On the thread of the loop: the core of a hold, unless its handle was acquired again, or freed. */
inline core_ptr held_by(const std::weak_ptr<core> &whose, std::uint64_t turn) noexcept {
    core_ptr of = whose.lock();
    return of != nullptr && of->lock != nullptr && of->turn == turn ? of : nullptr;
}

inline void let_go(const std::weak_ptr<core> &whose, std::uint64_t turn) {
    if (core_ptr of = held_by(whose, turn)) {
        rlock_release(of->lock, nullptr, nullptr);
    }
}

/* How a hold that may be destroyed on any thread has let_go called on that of its loop. */
using away = void (*)(void *ctx, std::weak_ptr<core> &&whose, std::uint64_t turn);
struct asio_home;

} /* namespace detail */

class hold;

/* An operation without a callable, which has begun. It cannot be moved. */
template <class T> class pending {
  public:
    pending(const pending &) = delete;
    pending &operator=(const pending &) = delete;
    ~pending() {
        if (at_ != nullptr) {
            std::exchange(at_, nullptr)->to = nullptr;
            if constexpr (std::is_same_v<T, hold>) { /* a grant on its way is released then */
                rlock_cancel(of_->lock);
            }
        }
    }

    /* True if it is over, or was refused at once. */
    bool done() const noexcept {
        return at_ == nullptr;
    }
#ifdef __cpp_impl_coroutine
    bool await_ready() const noexcept {
        return done();
    }
    void await_suspend(std::coroutine_handle<> waiter) noexcept {
        waiter_ = waiter.address();
        resume_ = [](void *frame) { std::coroutine_handle<>::from_address(frame).resume(); };
    }
#endif

    /* What co_await gives, once: how it ended. In C++17 to be called when it is done. */
    T await_resume() {
        return value_ ? std::move(*value_) : T(result(RLOCK_ERR_CLOSED));
    }

  private:
    friend class hold;
    friend class lock;
    friend class client;

    /* What is in the operation: it and the pending know each other until one of them ends. */
    struct relay {
        pending *to;
        explicit relay(pending *whom) : to(whom) {
            to->at_ = this;
        }
        relay(relay &&other) noexcept : to(std::exchange(other.to, nullptr)) {
            to->at_ = this;
        }
        ~relay() {
            if (to != nullptr) {
                to->at_ = nullptr;
            }
        }
        void operator()(T value) {
            if (pending *whom = std::exchange(to, nullptr)) {
                whom->at_ = nullptr;
                whom->value_.emplace(std::move(value));
                whom->resume_(whom->waiter_);
            }
        }
    };

    /* `start` begins the operation with the relay, and returns how that went. */
    template <class Start> pending(detail::core *of, Start start) : of_(of) {
        if (int status = start(relay(this))) {
            value_.emplace(result(status));
        }
    }

    detail::core *of_;
    relay *at_ = nullptr;
    std::optional<T> value_;
    void *waiter_ = nullptr;
    /* The same in C++17, so that files of both can be linked. */
    void (*resume_)(void *) = [](void *) {};
};

/* A hold, or why there is none. The destructor releases it in the background, unless it was lost
 * or its lock is gone, which released it. It is moved, never copied. */
class hold {
  public:
    hold() = default;
    explicit hold(const result &how) : how_(how) {
    }
    hold(hold &&) noexcept = default;
    hold &operator=(hold other) noexcept {
        std::swap(of_, other.of_);
        std::swap(turn_, other.turn_);
        std::swap(how_, other.how_);
        std::swap(away_, other.away_);
        std::swap(ctx_, other.ctx_);
        return *this;
    }
    ~hold() {
        if (away_ == nullptr) {
            detail::let_go(of_, turn_);
        } else if (!of_.expired()) {
            away_(ctx_, std::move(of_), turn_);
        }
    }

    /* True if it was granted, and was neither released nor moved from. It may be lost by now; one
     * of Asio, of which any thread may ask this, is then true until its lock is destroyed. */
    explicit operator bool() const noexcept {
        return away_ == nullptr ? mine() != nullptr : !of_.expired();
    }

    /* True if it is held now, by its local deadline and a fresh clock. */
    bool held() const noexcept {
        detail::core_ptr of = mine();
        return of != nullptr && rlock_is_held(of->lock);
    }
    milliseconds remaining() const noexcept {
        detail::core_ptr of = mine();
        return milliseconds(of != nullptr ? rlock_remaining_ms(of->lock) : 0);
    }

    /* How the acquire ended. */
    const result &how() const noexcept {
        return how_;
    }
#ifdef __cpp_exceptions
    /* auto hold = (co_await lock.acquire(5s)).or_throw(); */
    hold or_throw() && {
        how_.or_throw();
        return std::move(*this);
    }
#endif

    /* Releases it now, and says how that ended: rlock_release. RLOCK_ERR_NOT_HELD if it is not held
     * by this object. */
    template <class F> int release(F done) {
        detail::core_ptr of = mine();
        int status = of != nullptr ? detail::release(of, std::move(done))
                                   : static_cast<int>(RLOCK_ERR_NOT_HELD);
        of_.reset();
        return status;
    }
    pending<result> release() {
        return pending<result>(nullptr, [&](auto to) { return release(std::move(to)); });
    }

    /* Releases it, and keeps the key locked until this time after the grant: rlock_release_after.
     * After an error it stays held. */
    template <class F> int release_after(milliseconds time, F done) {
        detail::core_ptr of = mine();
        int status = RLOCK_ERR_NOT_HELD;
        if (of != nullptr) {
            status = detail::begin(of, detail::told(std::move(done)), [&](void *user) {
                return rlock_release_after(of->lock, time.count(), detail::on_event, user);
            });
        }
        if (status == RLOCK_OK) {
            of_.reset();
        }
        return status;
    }
    pending<result> release_after(milliseconds time) {
        return pending<result>(nullptr,
                               [&](auto to) { return release_after(time, std::move(to)); });
    }

    /* What another process adopts it by: rlock_token. Empty if it is not held, or cannot be. */
    std::string token() const {
        char text[RLOCK_TOKEN_MAX];
        detail::core_ptr of = mine();
        return of != nullptr && rlock_token(of->lock, text, sizeof text) > 0 ? text : "";
    }

    /* Leaves it to the lock: from now on nothing but lock.release() releases it. */
    void detach() noexcept {
        of_.reset();
    }

  private:
    friend class lock;
    friend struct detail::asio_home;
    hold(const detail::core_ptr &of, const result &how) : of_(of), turn_(of->turn), how_(how) {
    }

    detail::core_ptr mine() const noexcept {
        return detail::held_by(of_, turn_);
    }

    std::weak_ptr<detail::core> of_;
    std::uint64_t turn_ = 0;
    result how_{RLOCK_ERR_NOT_HELD};
    detail::away away_ = nullptr; /* NULL = it is destroyed on the thread of its loop */
    void *ctx_ = nullptr;
};

namespace detail {

/* What a client and a lock have in common: they are moved, and closed at the end. */
class owner {
  public:
    owner(owner &&) noexcept = default;
    owner &operator=(owner other) noexcept {
        std::swap(of_, other.of_);
        std::swap(loop_, other.loop_);
        return *this;
    }
    ~owner() {
        if (core_ptr of = std::move(of_)) {
            of->close();
        }
    }

    /* RLOCK_OK if it could be made; else why not, which each call on it returns too. */
    int status() const noexcept {
        return of_ != nullptr ? of_->status : static_cast<int>(RLOCK_ERR_ARG);
    }
    explicit operator bool() const noexcept {
        return status() == RLOCK_OK;
    }
#ifdef __cpp_exceptions
    void or_throw() const {
        result(status()).or_throw();
    }
#endif
    /* config.loop of the client; what was moved from still knows it */
    rlock_loop loop() const noexcept {
        return loop_;
    }

  protected:
    explicit owner(const rlock_loop &loop) : of_(std::make_shared<core>()), loop_(loop) {
    }
    core_ptr of_;
    rlock_loop loop_;
};

} /* namespace detail */

/* A client: rlock_client_new, and rlock_client_free at the end. */
class client : public detail::owner {
  public:
    explicit client(const rlock_config &config) : owner(config.loop) {
        of_->status = rlock_client_new(&of_->client, &config);
    }
    rlock_client *get() const noexcept {
        return of_ != nullptr ? of_->client : nullptr;
    }

#if RLOCK__HAS_CREDENTIALS
    /* rlock_client_set_credentials, and that of Sentinels: both texts may be NULL. */
    int set_credentials(const char *username, const char *password) {
        return get() ? rlock_client_set_credentials(get(), username, password) : status();
    }
    int set_sentinel_credentials(const char *username, const char *password) {
        return get() ? rlock_client_set_sentinel_credentials(get(), username, password) : status();
    }
#endif

    /* rlock_client_shutdown; done(const result &). */
    template <class F> int shutdown(milliseconds timeout, F done) {
        return detail::begin(of_, detail::told(std::move(done)), [&](void *user) {
            return rlock_client_shutdown(of_->client, timeout.count(), detail::on_shutdown, user);
        });
    }
    pending<result> shutdown(milliseconds timeout = milliseconds(0)) {
        return pending<result>(nullptr, [&](auto to) { return shutdown(timeout, std::move(to)); });
    }

    /* rlock_client_drain; done(const result &). */
    template <class F> int drain(milliseconds limit, F done) {
        return detail::begin(of_, detail::told(std::move(done)), [&](void *user) {
            return rlock_client_drain(of_->client, limit.count(), detail::on_shutdown, user);
        });
    }
    pending<result> drain(milliseconds limit = milliseconds(0)) {
        return pending<result>(nullptr, [&](auto to) { return drain(limit, std::move(to)); });
    }
};

/* A handle: rlock_new, and rlock_free at the end, which releases its hold. */
class lock : public detail::owner {
  public:
    /* lost(const result &) is called when a hold is lost. Without it the on_lost of the options
     * is, with their user. */
    template <class Lost = std::nullptr_t>
    lock(const client &on, rlock_options options, Lost lost = nullptr) : owner(on.loop()) {
        if constexpr (!std::is_null_pointer_v<Lost>) {
            auto call = detail::told(std::move(lost));
            of_->lost = std::make_unique<detail::op_of<decltype(call)>>(std::move(call));
            options.on_lost = detail::on_lost;
            options.user = of_.get();
        }
        of_->status = on ? rlock_new(&of_->lock, on.get(), &options) : on.status();
    }
    template <class Lost = std::nullptr_t>
    lock(const client &on, std::string_view key, Lost lost = nullptr)
        : lock(on, of_key(key), std::move(lost)) {
    }
    rlock *get() const noexcept {
        return of_ != nullptr ? of_->lock : nullptr;
    }

    /* rlock_acquire. done(hold), or done(const result &), which leaves the hold to the lock. */
    template <class F> int acquire(milliseconds wait, milliseconds lease, F done) {
        return detail::begin(of_, granted(std::move(done)), [&](void *user) {
            return rlock_acquire(of_->lock, wait.count(), lease.count(), detail::on_event, user);
        });
    }
    template <class F, std::enable_if_t<!std::is_convertible_v<F, milliseconds>, int> = 0>
    int acquire(milliseconds wait, F done) {
        return acquire(wait, milliseconds(0), std::move(done));
    }
    [[nodiscard]] pending<hold> acquire(milliseconds wait = forever,
                                        milliseconds lease = milliseconds(0)) {
        return pending<hold>(of_.get(),
                             [&](auto to) { return acquire(wait, lease, std::move(to)); });
    }

    /* rlock_adopt, of what hold::token() gave; done as that of acquire. */
    template <class F> int adopt(const std::string &token, milliseconds lease, F done) {
        return detail::begin(of_, granted(std::move(done)), [&](void *user) {
            return rlock_adopt(of_->lock, token.c_str(), lease.count(), detail::on_event, user);
        });
    }
    [[nodiscard]] pending<hold> adopt(const std::string &token,
                                      milliseconds lease = milliseconds(0)) {
        return pending<hold>(of_.get(),
                             [&](auto to) { return adopt(token, lease, std::move(to)); });
    }

    /* rlock_cancel */
    int cancel() noexcept {
        return rlock_cancel(get());
    }

    /* rlock_renew and rlock_release; done(const result &). */
    template <class F> int renew(milliseconds lease, F done) {
        return detail::begin(of_, detail::told(std::move(done)), [&](void *user) {
            return rlock_renew(of_->lock, lease.count(), detail::on_event, user);
        });
    }
    pending<result> renew(milliseconds lease = milliseconds(0)) {
        return pending<result>(nullptr, [&](auto to) { return renew(lease, std::move(to)); });
    }
    template <class F> int release(F done) {
        return detail::release(of_, std::move(done));
    }
    pending<result> release() {
        return pending<result>(nullptr, [&](auto to) { return release(std::move(to)); });
    }

    bool held() const noexcept {
        return rlock_is_held(get());
    }

  private:
    /* What ends an acquire, as `done` wants it. */
    template <class F> static auto granted(F done) {
        return [done = std::move(done)](const detail::core_ptr &of, const result &how) mutable {
            of->turn += how && rlock_hold_count(of->lock) <= 1; /* a nested one is the same */
            if constexpr (std::is_invocable_v<F &, hold>) {
                done(how ? hold(of, how) : hold(how));
            } else {
                done(how);
            }
        };
    }

    static rlock_options of_key(std::string_view key) {
        rlock_options options = rlock_options();
        options.key = key.empty() ? "" : key.data(); /* which is refused */
        options.key_len = key.size();
        return options;
    }
};

} /* namespace rlockpp */

#endif /* RLOCK_HPP */

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
