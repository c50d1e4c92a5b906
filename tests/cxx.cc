/* cxx.cc - rlock.hpp, on the loop of rlock_poll.h, on libuv and on Asio
 *
 * It is compiled as C++17, which has callbacks, and as C++20, which has co_await, and Asio here. In
 * C++17 tests/loops_asio.cc has Asio. */
#define RLOCK_IMPLEMENTATION
#include "rlock.hpp"

#include "rlock_libuv.h"
#include "rlock_loop_check.h"
#include "rlock_poll.h"

#ifdef __cpp_impl_coroutine
#include "rlock_asio.hpp"
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/co_spawn.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/strand.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
#include <atomic>
#include <stop_token>
#include <thread>
#endif

#include <functional>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <vector>

extern "C" {
#include <cmocka.h>
}

/* They take what converts to bool, if only where it is asked for. */
#undef assert_true
#undef assert_false
#define assert_true(c) _assert_true((c) ? 1 : 0, #c, __FILE__, __LINE__)
#define assert_false(c) _assert_true((c) ? 0 : 1, "!" #c, __FILE__, __LINE__)

RLOCK__C_CASTS_BEGIN
#include "server.h"
RLOCK__C_CASTS_END

using namespace std::chrono_literals;
using rlockpp::hold;
using rlockpp::result;

namespace {

/* ------------------------------------------------------------------------------------------------
 * The loops, seen alike
 */

struct world {
    virtual ~world() = default;
    virtual rlock_loop hooks() = 0;
    virtual void turn() = 0; /* of at most some 5 ms */
};

struct poll_world final : world {
    rlock_poll *loop = rlock_poll_new();
    ~poll_world() override {
        rlock_poll_free(loop);
    }
    rlock_loop hooks() override {
        return rlock_poll_loop(loop);
    }
    void turn() override {
        rlock_poll_once(loop, 5);
    }
};

struct uv_world final : world {
    uv_loop_t loop;
    uv_timer_t limit;
    uv_world() {
        uv_loop_init(&loop);
        uv_timer_init(&loop, &limit);
    }
    ~uv_world() override {
        uv_close(reinterpret_cast<uv_handle_t *>(&limit), nullptr);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&loop), 0);
    }
    rlock_loop hooks() override {
        return rlock_libuv_loop(&loop);
    }
    void turn() override {
        uv_timer_start(
            &limit, [](uv_timer_t *) {}, 5, 0);
        uv_run(&loop, UV_RUN_ONCE);
        uv_timer_stop(&limit);
    }
};

#ifdef __cpp_impl_coroutine

struct asio_world : world {
    asio::io_context io;
    rlock_loop hooks() override {
        return rlockpp::asio_loop(io);
    }
    void turn() override {
        io.restart();
        io.run_one_for(5ms);
    }
};

struct strand_world final : asio_world {
    asio::any_io_executor strand = asio::make_strand(io);
    rlock_loop hooks() override {
        return rlockpp::asio_loop(strand);
    }
};

#endif /* __cpp_impl_coroutine */

struct kind {
    const char *name;
    std::unique_ptr<world> (*make)();
};

template <class T> std::unique_ptr<world> made() {
    return std::make_unique<T>();
}

const kind kinds[] = {
    {"poll", made<poll_world>},
    {"libuv", made<uv_world>},
#ifdef __cpp_impl_coroutine
    {"asio", made<asio_world>},
    {"a strand of asio", made<strand_world>},
#endif
};

/* ------------------------------------------------------------------------------------------------
 * What each test has: a loop, a store in the process, a client, two locks of one key
 */

struct fixture {
    std::unique_ptr<world> loop;
    rlock_store *store = nullptr;
    std::vector<result> losses;
    std::optional<rlockpp::client> client;
    std::optional<rlockpp::lock> lock, rival;

    explicit fixture(const kind &of) : loop(of.make()) {
        assert_int_equal(rlock_memory_new(&store), RLOCK_OK);
        client.emplace(config());
        lock.emplace(*client, "key", [this](const result &how) { losses.push_back(how); });
        rival.emplace(*client, "key");
        assert_true(*client && *lock && *rival);
    }
    ~fixture() {
        lock.reset();
        rival.reset();
        client.reset();
        rlock_memory_free(store);
    }
    rlock_config config() const {
        rlock_config config = rlock_config();
        config.loop = loop->hooks();
        config.store = store;
        return config;
    }
    void until(const std::function<bool()> &done) const {
        auto limit = std::chrono::steady_clock::now() + 20s;
        while (!done()) {
            assert_true(std::chrono::steady_clock::now() < limit);
            loop->turn();
        }
    }
    void some_turns() const {
        for (int i = 0; i < 10; i++) {
            loop->turn();
        }
    }

    /* Whether nobody holds the key. */
    bool is_free() {
        std::optional<bool> free;
        rlockpp::lock other(*client, "key");
        assert_int_equal(other.acquire(0ms, [&](hold got) { free = bool(got); }), RLOCK_OK);
        until([&] { return free.has_value(); });
        return *free;
    }
};

/* For a test on every loop: the row of the table is the state. */
fixture *now;

int setup(void **state) {
    now = new fixture(*static_cast<const kind *>(*state));
    return 0;
}

int teardown(void **) {
    delete now;
    return 0;
}

/* ------------------------------------------------------------------------------------------------
 * Callbacks
 */

void hold_of_a_callback_is_released_at_its_end(void **) {
    int calls = 0;
    auto only_moved = std::make_unique<int>(7);
    assert_int_equal(now->lock->acquire(5s,
                                        [&, only_moved = std::move(only_moved)](hold got) {
                                            calls += *only_moved;
                                            assert_true(got);
                                            assert_true(got.held());
                                            assert_true(got.remaining() > 0ms);
                                        }),
                     RLOCK_OK);
    assert_int_equal(calls, 0); /* never inside the call */
    now->until([&] { return calls != 0; });
    assert_int_equal(calls, 7);
    now->until([] { return now->is_free(); });
    assert_int_equal(now->losses.size(), 0);
}

void hold_is_kept_for_as_long_as_somebody_has_it(void **) {
    std::vector<hold> kept;
    now->lock->acquire(5s, [&](hold got) { kept.push_back(std::move(got)); });
    now->until([&] { return !kept.empty(); });
    kept.reserve(10); /* which moves it */
    hold moved = std::move(kept[0]);
    assert_false(kept[0]);
    kept.clear();
    assert_true(moved.held());
    assert_false(now->is_free());
    moved = hold();
    assert_false(now->lock->held());
    now->until([] { return now->is_free(); });
}

void callback_of_a_result_leaves_the_hold_to_the_lock(void **) {
    int got = 0, renewed = 0, released = 0;
    now->lock->acquire(5s, 10s, [&](const result &how) { got += bool(how); });
    now->until([&] { return got != 0; });
    assert_true(now->lock->held());
    now->lock->renew(20s, [&](const result &how) {
        renewed++;
        assert_true(how);
        assert_true(how.remaining > 15s);
    });
    now->until([&] { return renewed != 0; });
    now->lock->release([&](const result &how) { released += bool(how); });
    assert_false(now->lock->held());
    now->until([&] { return released != 0; });
    assert_true(now->is_free());
}

void detached_hold_is_left_to_the_lock(void **) {
    int got = 0;
    now->lock->acquire(5s, [&](hold mine) {
        mine.detach();
        got++;
    });
    now->until([&] { return got != 0; });
    now->some_turns();
    assert_true(now->lock->held());
}

void acquire_that_fails_says_how(void **) {
    hold first, second, third;
    int ended = 0;
    now->lock->acquire(5s, [&](hold got) { first = std::move(got); });
    now->until([&] { return bool(first); });
    now->rival->acquire(0ms, [&](hold got) {
        second = std::move(got);
        ended++;
    });
    now->until([&] { return ended == 1; });
    assert_false(second);
    assert_false(second.held());
    assert_int_equal(second.how().status, RLOCK_ERR_BUSY);
    assert_true(second.how().remaining > 10s);
    assert_string_equal(second.how().message().c_str(), rlock_strerror(RLOCK_ERR_BUSY));
    now->rival->acquire(20ms, [&](hold got) {
        third = std::move(got);
        ended++;
    });
    now->until([&] { return ended == 2; });
    assert_int_equal(third.how().status, RLOCK_ERR_TIMEOUT);
    int thrown = 0;
    try {
        std::move(third).or_throw();
    } catch (const rlockpp::error &error) {
        thrown = error.status;
        assert_string_equal(error.what(), rlock_strerror(RLOCK_ERR_TIMEOUT));
    }
    assert_int_equal(thrown, RLOCK_ERR_TIMEOUT);
    hold still = std::move(first).or_throw();
    assert_true(still.held());
}

/* A call that is refused returns why, and its callable is not called. */
void call_that_is_refused_returns_why(void **) {
    int calls = 0;
    auto count = [&](const result &) { calls++; };
    assert_int_equal(now->lock->release(count), RLOCK_ERR_NOT_HELD);
    assert_int_equal(now->lock->cancel(), RLOCK_ERR_STATE);
    assert_int_equal(now->lock->acquire(-7ms, count), RLOCK_ERR_ARG);
    assert_int_equal(now->lock->acquire(5s, count), RLOCK_OK);
    assert_int_equal(now->lock->acquire(5s, count), RLOCK_ERR_STATE);
    rlockpp::lock away = std::move(*now->lock);
    assert_int_equal(now->lock->acquire(5s, count), RLOCK_ERR_ARG); /* it was moved from */
    assert_int_equal(now->lock->status(), RLOCK_ERR_ARG);
    rlockpp::client gone = rlockpp::client(now->config()), client = std::move(gone);
    assert_int_equal(rlockpp::lock(gone, "key").acquire(5s, count), RLOCK_ERR_ARG);
    now->until([&] { return calls != 0; });
    assert_int_equal(calls, 1);
    assert_true(away.held());
    hold none;
    assert_int_equal(none.release(count), RLOCK_ERR_NOT_HELD);
    assert_int_equal(none.how().status, RLOCK_ERR_NOT_HELD);
}

void what_cannot_be_made_says_why_in_each_call(void **) {
    rlock_config config = now->config();
    config.drift_permille = 7000;
    rlockpp::client client(config);
    assert_false(client);
    assert_int_equal(client.status(), RLOCK_ERR_ARG);
    rlockpp::lock lock(client, "key");
    assert_int_equal(lock.status(), RLOCK_ERR_ARG);
    assert_int_equal(lock.acquire(0ms, [](hold) {}), RLOCK_ERR_ARG);
    assert_false(lock.held());
    assert_int_equal(rlockpp::lock(*now->client, "").status(), RLOCK_ERR_ARG);
    assert_int_equal(rlockpp::lock(*now->client, std::string_view()).status(), RLOCK_ERR_ARG);
    int thrown = 0;
    try {
        client.or_throw();
    } catch (const rlockpp::error &error) {
        thrown = error.status;
    }
    assert_int_equal(thrown, RLOCK_ERR_ARG);
    auto early = lock.acquire(0ms);
    assert_true(early.done());
    assert_int_equal(early.await_resume().how().status, RLOCK_ERR_ARG);
}

void key_is_as_long_as_its_view(void **) {
    rlockpp::lock part(*now->client, std::string_view("key of another", 3));
    size_t len = 0;
    assert_string_equal(rlock_key(part.get(), &len), "key");
    assert_int_equal(len, 3);
}

/* ------------------------------------------------------------------------------------------------
 * Loss
 */

void loss_is_reported_and_its_hold_is_none_any_more(void **) {
    hold mine;
    now->lock->acquire(5s, 20ms, [&](hold got) { mine = std::move(got); });
    now->until([&] { return !now->losses.empty(); });
    assert_int_equal(now->losses[0].status, RLOCK_ERR_LOST);
    assert_int_equal(now->losses[0].reason, RLOCK_REASON_EXPIRED);
    assert_false(mine.held());
    assert_true(mine.remaining() == 0ms);
    now->some_turns();
    assert_int_equal(now->losses.size(), 1);
}

void on_lost_of_the_options_is_called_where_there_is_no_callable(void **) {
    static int lost;
    rlock_options options = rlock_options();
    options.key = "other";
    options.user = &lost;
    options.on_lost = [](rlock *, const rlock_event *, void *user) { ++*static_cast<int *>(user); };
    lost = 0;
    rlockpp::lock lock(*now->client, options);
    lock.acquire(5s, 20ms, [](const result &) {});
    now->until([] { return lost != 0; });
}

/* The destructor of a hold that was lost does not release the next hold of its handle. */
void hold_of_before_does_not_release_the_next(void **) {
    std::optional<hold> before, next;
    now->lock->acquire(5s, 20ms, [&](hold got) { before.emplace(std::move(got)); });
    now->until([&] { return !now->losses.empty(); });
    now->lock->acquire(5s, [&](hold got) { next.emplace(std::move(got)); });
    now->until([&] { return next.has_value(); });
    assert_false(*before);
    assert_int_equal(before->release([](const result &) {}), RLOCK_ERR_NOT_HELD);
    before.reset();
    assert_true(next->held());
    assert_false(now->is_free());
}

void nested_holds_are_released_one_by_one(void **) {
    rlock_options options = rlock_options();
    options.key = "key";
    options.reentrant = true;
    rlockpp::lock lock(*now->client, options);
    std::optional<hold> outer, inner;
    lock.acquire(5s, [&](hold got) { outer.emplace(std::move(got)); });
    now->until([&] { return outer.has_value(); });
    lock.acquire(5s, [&](hold got) { inner.emplace(std::move(got)); });
    now->until([&] { return inner.has_value(); });
    assert_true(outer->held() && inner->held());
    assert_int_equal(rlock_hold_count(lock.get()), 2);
    inner.reset();
    assert_true(outer->held());
    now->some_turns();
    assert_false(now->is_free());
    outer.reset();
    now->until([] { return now->is_free(); });
}

void key_that_is_left_is_not_free(void **) {
    hold mine;
    int told = 0;
    now->lock->acquire(5s, [&](hold got) { mine = std::move(got); });
    now->until([&] { return bool(mine); });
    assert_int_equal(mine.release_after(-1ms, [&](const result &) { told += 7; }), RLOCK_ERR_ARG);
    assert_true(mine.held());
    assert_int_equal(mine.release_after(60s, [&](const result &how) { told += bool(how); }),
                     RLOCK_OK);
    assert_false(mine.held());
    assert_int_equal(mine.release_after(60s, [&](const result &) { told += 7; }),
                     RLOCK_ERR_NOT_HELD);
    now->until([&] { return told == 1; });
    assert_false(now->is_free());
}

void hold_goes_to_the_lock_that_has_its_token(void **) {
    hold mine, next;
    std::string token;
    int told = 0;
    assert_true(mine.token().empty());
    now->lock->acquire(5s, [&](hold got) { mine = std::move(got); });
    now->until([&] { return bool(mine); });
    token = mine.token();
    assert_false(token.empty());
    assert_int_equal(mine.release_after(60s, [&](const result &how) { told += bool(how); }),
                     RLOCK_OK);
    now->until([&] { return told == 1; });
    assert_int_equal(now->rival->adopt("no token", 5s, [](hold) {}), RLOCK_ERR_ARG);
    assert_int_equal(now->rival->adopt(token, 5s, [&](hold got) { next = std::move(got); }),
                     RLOCK_OK);
    now->until([&] { return bool(next); });
    assert_true(next.held());
    assert_string_equal(next.token().c_str(), token.c_str());
    next = hold();
    now->until([] { return now->is_free(); });
    now->rival->adopt(token, 5s, [&](const result &how) {
        assert_int_equal(how.status, RLOCK_ERR_NOT_HELD);
        told++;
    });
    now->until([&] { return told == 2; });
}

/* ------------------------------------------------------------------------------------------------
 * Ends
 */

/* Destroyed while it waits: the callable is not called, and is destroyed at once. */
void destroyed_lock_ends_what_is_pending_without_a_call(void **) {
    auto witness = std::make_shared<int>(0);
    hold first;
    now->rival->acquire(5s, [&](hold got) { first = std::move(got); });
    now->until([&] { return bool(first); });
    now->lock->acquire(rlockpp::forever, [witness](hold) { ++*witness; });
    now->some_turns();
    assert_int_equal(witness.use_count(), 2);
    now->lock.reset();
    assert_int_equal(witness.use_count(), 1);
    first = hold();
    now->some_turns();
    assert_int_equal(*witness, 0);
}

void destroyed_client_ends_what_is_pending_without_a_call(void **) {
    auto witness = std::make_shared<int>(0);
    hold mine;
    now->lock->acquire(5s, [&](hold got) { mine = std::move(got); });
    now->until([&] { return bool(mine); });
    mine.release([witness](const result &) { ++*witness; });
    now->client->shutdown(0ms, [witness](const result &) { ++*witness; });
    now->client.reset();
    assert_int_equal(witness.use_count(), 2); /* that of the release is the lock's */
    assert_int_equal(now->lock->acquire(0ms, [](hold) {}), RLOCK_ERR_CLOSED);
    now->some_turns();
    now->lock.reset();
    assert_int_equal(*witness, 0);
    assert_int_equal(witness.use_count(), 1);
    now->client.emplace(now->config());
}

/* In each kind of callback, the lock first and then the client. */
void callbacks_may_destroy_all(void **) {
    for (int at = 0; at < 4; at++) {
        int ended = 0;
        std::optional<rlockpp::client> client(now->config());
        std::optional<rlockpp::lock> lock;
        hold mine;
        auto destroy = [&] {
            lock.reset();
            client.reset();
            ended++;
        };
        lock.emplace(*client, "other", [&, canary = 7](const result &) {
            destroy();
            assert_int_equal(canary, 7); /* the callable is there until its end */
        });
        lock->acquire(5s, at == 1 ? 20ms : 0ms, [&](hold got) {
            mine = std::move(got);
            if (at == 0) {
                destroy();
            }
        });
        now->until([&] { return ended != 0 || mine; });
        if (at == 2) {
            mine.release([&, canary = 7](const result &) {
                destroy();
                assert_int_equal(canary, 7);
            });
        } else if (at == 3) {
            client->shutdown(0ms, [&](const result &how) {
                assert_true(how);
                if (client) {
                    destroy();
                }
            });
        }
        now->until([&] { return ended != 0; });
        now->some_turns();
        assert_int_equal(ended, 1);
        assert_false(mine);
    }
}

void what_a_callback_throws_comes_out_of_the_loop_and_the_client_goes_on(void **) {
    struct thrown {};
    hold mine;
    int caught = 0, released = 0;
    auto turns = [&](const std::function<bool()> &done) {
        now->until([&] {
            try {
                now->loop->turn();
            } catch (const thrown &) {
                caught++;
            }
            return done();
        });
    };
    now->lock->acquire(5s, [&](hold got) {
        mine = std::move(got);
        throw thrown();
    });
    turns([&] { return caught == 1; });
    assert_true(mine.held());
    mine.release([&](const result &how) {
        released += bool(how);
        throw thrown();
    });
    turns([&] { return caught == 2; });
    assert_int_equal(released, 1);
    now->lock->acquire(5s, [&](hold) { throw thrown(); }); /* its hold is released on the way */
    turns([&] { return caught == 3; });
    assert_true(now->is_free());
}

void locks_and_clients_can_be_moved_under_their_operations(void **) {
    hold mine;
    int closed = 0;
    now->lock->acquire(5s, [&](hold got) { mine = std::move(got); });
    std::vector<rlockpp::lock> locks;
    locks.push_back(std::move(*now->lock));
    std::vector<rlockpp::client> clients;
    clients.push_back(std::move(*now->client));
    now->until([&] { return bool(mine); });
    assert_true(locks[0].held());
    locks[0] = rlockpp::lock(clients[0], "other"); /* the former is freed, and its hold released */
    assert_false(mine);
    clients[0].shutdown(0ms, [&](const result &how) { closed += bool(how); });
    now->until([&] { return closed != 0; });
    locks.clear();
    *now->client = rlockpp::client(now->config());
    clients.clear();
    assert_true(now->is_free());
}

/* Cut short by a shutdown it is told so, and the shutdown is told apart. */
void drain_waits_for_the_holder_and_may_be_cut_short(void **) {
    for (int cut = 0; cut < 2; cut++) {
        rlockpp::client client(now->config());
        rlock_options options = rlock_options();
        options.key = "drained";
        rlockpp::lock lock(client, options);
        hold mine;
        int drained = 1, closed = 1; /* no status is above 0 */
        lock.acquire(5s, [&](hold got) { mine = std::move(got); });
        now->until([&] { return bool(mine); });
        assert_int_equal(client.drain(0ms, [&](const result &how) { drained = how.status; }),
                         RLOCK_OK);
        now->some_turns();
        assert_true(mine.held());
        assert_int_equal(drained, 1);
        if (cut) {
            client.shutdown(1s, [&](const result &how) { closed = how.status; });
            now->until([&] { return closed != 1; });
            assert_int_equal(closed, RLOCK_OK);
        } else {
            mine = hold();
            now->until([&] { return drained != 1; });
        }
        assert_int_equal(drained, cut ? RLOCK_ERR_CANCELED : RLOCK_OK);
        assert_false(mine.held());
    }
}

/* The store of these tests asks for no password: it says so, and nothing is lost by that. */
void credentials_reach_the_store_of_the_client(void **) {
    static int calls;
    static std::string user, password;
    rlock_store store = *now->config().store;
    calls = 0;
    store.set_credentials = [](void *, bool sentinels, const char *its, const char *word) {
        calls += sentinels ? 100 : 1;
        user = its != nullptr ? its : "-";
        password = word != nullptr ? word : "-";
        return static_cast<int>(RLOCK_OK);
    };
    rlock_config config = now->config();
    config.store = &store;
    rlockpp::client client(config);
    assert_int_equal(client.set_credentials("shop", "secret"), RLOCK_OK);
    assert_string_equal(user.c_str(), "shop");
    assert_string_equal(password.c_str(), "secret");
    assert_int_equal(client.set_sentinel_credentials(nullptr, nullptr), RLOCK_OK);
    assert_string_equal(user.c_str(), "-");
    assert_int_equal(calls, 101);
    assert_int_equal(now->client->set_credentials(nullptr, "secret"), RLOCK_ERR_ARG);
}

void shutdown_notifies_the_holder_and_the_waiter(void **) {
    hold mine;
    result waited;
    int closed = 0;
    now->lock->acquire(5s, [&](hold got) { mine = std::move(got); });
    now->until([&] { return bool(mine); });
    now->rival->acquire(rlockpp::forever, [&](const result &how) { waited = how; });
    now->client->shutdown(1s, [&](const result &how) { closed += bool(how); });
    now->until([&] { return closed != 0; });
    assert_int_equal(waited.status, RLOCK_ERR_CLOSED);
    assert_int_equal(now->losses.size(), 1);
    assert_int_equal(now->losses[0].reason, RLOCK_REASON_CLOSED);
    assert_false(mine.held());
    now->client.emplace(now->config());
}

/* ------------------------------------------------------------------------------------------------
 * Operations without a callable
 */

void pending_can_be_asked_whether_it_is_done(void **) {
    auto first = now->lock->acquire(5s);
    assert_false(first.done());
    now->until([&] { return first.done(); });
    assert_true(now->lock->held());
    hold mine = first.await_resume();
    assert_true(mine.held());
    auto end = mine.release();
    now->until([&] { return end.done(); });
    assert_true(end.await_resume());
    auto again = mine.release();
    assert_true(again.done());
    assert_int_equal(again.await_resume().status, RLOCK_ERR_NOT_HELD);
}

void pending_that_nobody_takes_releases_what_it_got(void **) {
    {
        auto first = now->lock->acquire(5s);
        now->until([&] { return first.done(); });
        assert_true(now->lock->held());
    }
    assert_false(now->lock->held());
    now->until([] { return now->is_free(); });
}

void pending_that_is_destroyed_cancels_its_acquire(void **) {
    hold mine;
    rlock_stats stats;
    now->lock->acquire(5s, [&](hold got) { mine = std::move(got); });
    now->until([&] { return bool(mine); });
    {
        auto waits = now->rival->acquire();
        now->some_turns();
        rlock_client_stats(now->client->get(), &stats);
        assert_int_equal(stats.waiting, 1);
    }
    now->some_turns();
    rlock_client_stats(now->client->get(), &stats);
    assert_int_equal(stats.waiting, 0);
    mine = hold();
    now->until([] { return now->is_free(); });
    { auto at_once = now->rival->acquire(); } /* before anything of it was sent */
    now->some_turns();
    assert_true(now->is_free());
}

void pending_outlives_its_lock(void **) {
    auto waits = now->lock->acquire();
    now->lock.reset();
    now->some_turns();
    assert_true(waits.done());
    assert_int_equal(waits.await_resume().how().status, RLOCK_ERR_CLOSED);
}

/* The acquire waits for the release before it: there is no pause to be kept. */
void handle_that_is_being_released_is_acquired_again(void **) {
    int turns = 0;
    std::function<void()> once_more = [&] {
        assert_int_equal(now->lock->acquire(5s,
                                            [&](hold got) {
                                                assert_true(got.held());
                                                got = hold(); /* released */
                                                if (++turns < 5) {
                                                    once_more();
                                                }
                                            }),
                         RLOCK_OK);
    };
    once_more();
    now->until([&] { return turns == 5; });
    now->until([] { return now->is_free(); });
}

/* ------------------------------------------------------------------------------------------------
 * Coroutines
 */

#ifdef __cpp_impl_coroutine

/* It runs at once; its end, or the program, destroys the frame. */
struct task {
    struct promise_type {
        std::exception_ptr thrown;
        task get_return_object() {
            return task{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_never initial_suspend() noexcept {
            return {};
        }
        std::suspend_always final_suspend() noexcept {
            return {};
        }
        void return_void() {
        }
        void unhandled_exception() {
            thrown = std::current_exception();
        }
    };
    std::coroutine_handle<promise_type> frame;

    explicit task(std::coroutine_handle<promise_type> whose) : frame(whose) {
    }
    task(task &&other) noexcept : frame(std::exchange(other.frame, nullptr)) {
    }
    ~task() {
        if (frame) {
            frame.destroy();
        }
    }
    bool done() const {
        return frame.done();
    }
};

/* What a coroutine finds wrong is asserted outside of it. */
task works(rlockpp::lock &lock, int times, int &right) {
    for (int i = 0; i < times; i++) {
        hold mine = co_await lock.acquire(5s);
        right += mine && mine.held();
    }
}

void coroutine_acquires_works_and_acquires_again(void **) {
    int right = 0;
    task worker = works(*now->lock, 5, right);
    assert_false(worker.done());
    now->until([&] { return worker.done(); });
    assert_int_equal(right, 5);
    now->until([] { return now->is_free(); });
}

void coroutines_take_turns(void **) {
    int right = 0, others = 0;
    task one = works(*now->lock, 20, right);
    task two = works(*now->rival, 20, others);
    now->until([&] { return one.done() && two.done(); });
    assert_int_equal(right, 20);
    assert_int_equal(others, 20);
}

task renews_and_releases(rlockpp::lock &lock, int &right) {
    hold mine = (co_await lock.acquire(5s, 10s)).or_throw();
    result renewed = co_await lock.renew(20s);
    right += bool(renewed) && mine.remaining() > 15s;
    auto end = mine.release(); /* it has begun */
    right += !mine.held();
    result released = co_await end;
    right += bool(released);
    right += (co_await mine.release()).status == RLOCK_ERR_NOT_HELD; /* at once */
}

void coroutine_renews_and_releases(void **) {
    int right = 0;
    task worker = renews_and_releases(*now->lock, right);
    now->until([&] { return worker.done(); });
    assert_int_equal(right, 4);
    assert_true(now->is_free());
}

task takes(rlockpp::pending<hold> &over, int &right) {
    right += over.done();
    right += (co_await over).held();
}

void pending_is_awaited_when_it_is_over(void **) {
    int right = 0;
    auto first = now->lock->acquire(5s);
    now->until([&] { return first.done(); });
    task taker = takes(first, right);
    assert_true(taker.done());
    assert_int_equal(right, 2);
    assert_true(now->is_free());
}

task or_throws(rlockpp::lock &lock, int &status) {
    try {
        hold mine = (co_await lock.acquire(0ms)).or_throw();
    } catch (const rlockpp::error &error) {
        status = error.status;
    }
}

void error_is_thrown_in_the_coroutine_that_wants_it(void **) {
    int status = 0;
    hold first;
    now->rival->acquire(5s, [&](hold got) { first = std::move(got); });
    now->until([&] { return bool(first); });
    task worker = or_throws(*now->lock, status);
    now->until([&] { return worker.done(); });
    assert_int_equal(status, RLOCK_ERR_BUSY);
}

void destroyed_coroutine_cancels_its_acquire(void **) {
    int right = 0;
    hold first;
    rlock_stats stats;
    now->rival->acquire(5s, [&](hold got) { first = std::move(got); });
    now->until([&] { return bool(first); });
    {
        task worker = works(*now->lock, 1, right);
        now->some_turns();
        assert_false(worker.done());
    }
    now->some_turns();
    rlock_client_stats(now->client->get(), &stats);
    assert_int_equal(stats.waiting, 0);
    first = hold();
    now->some_turns();
    assert_int_equal(right, 0);
    assert_true(now->is_free());
}

task works_with_its_own(std::optional<rlockpp::client> &client, int &right) {
    rlockpp::lock lock(*client, "key");
    hold mine = co_await lock.acquire(5s);
    right += mine.held();
    co_await lock.acquire(5s); /* refused: it is held */
    client.reset();            /* in a callback */
    right += !mine.held();
}

void coroutine_may_destroy_all(void **) {
    int right = 0;
    std::optional<rlockpp::client> client(now->config());
    task worker = works_with_its_own(client, right);
    now->until([&] { return worker.done(); });
    assert_int_equal(right, 2);
    now->until([] { return now->is_free(); });
}

/* The program may destroy the frame of a coroutine that holds, which releases. */
task works_for_ever(rlockpp::lock &lock, rlockpp::lock &never) {
    hold mine = co_await lock.acquire(5s);
    co_await never.acquire(rlockpp::forever);
}

void destroyed_coroutine_releases_its_hold(void **) {
    std::optional<rlockpp::lock> blocked(std::in_place, *now->client, "other"),
        never(std::in_place, *now->client, "other");
    blocked->acquire(5s, [](const result &) {});
    {
        task worker = works_for_ever(*now->lock, *never);
        now->until([] { return now->lock->held(); });
        now->some_turns();
        assert_false(now->is_free());
    }
    now->until([] { return now->is_free(); });
}

task waits(rlockpp::lock &lock, std::stop_token token, int &status) {
    std::stop_callback stop(token, [&] { lock.cancel(); });
    status = (co_await lock.acquire()).how().status;
}

void stop_token_cancels_an_acquire(void **) {
    int status = 0;
    hold first;
    std::stop_source source;
    now->rival->acquire(5s, [&](hold got) { first = std::move(got); });
    now->until([&] { return bool(first); });
    task waiter = waits(*now->lock, source.get_token(), status);
    now->some_turns();
    assert_false(waiter.done());
    source.request_stop();
    assert_false(waiter.done()); /* never inside the call */
    now->until([&] { return waiter.done(); });
    assert_int_equal(status, RLOCK_ERR_CANCELED);
}

task waits_for_the_end(rlockpp::client &client, rlockpp::lock &lock, int &right) {
    hold mine = co_await lock.acquire(5s);
    right += bool(co_await client.shutdown(1s));
    right += !mine.held();
    right += (co_await lock.acquire()).how().status == RLOCK_ERR_CLOSED;
}

void coroutine_waits_for_the_end_of_its_client(void **) {
    int right = 0;
    task worker = waits_for_the_end(*now->client, *now->lock, right);
    now->until([&] { return worker.done(); });
    assert_int_equal(right, 3);
    now->client.emplace(now->config());
}

/* ------------------------------------------------------------------------------------------------
 * Completion tokens of Asio
 */

asio::io_context &context() {
    return static_cast<asio_world &>(*now->loop).io;
}

void token_may_be_a_callback_or_a_future(void **) {
    hold mine;
    int ended = 0;
    auto only_moved = std::make_unique<int>(7);
    rlockpp::async_acquire(*now->lock, 5s, [&, only_moved = std::move(only_moved)](hold got) {
        mine = std::move(got);
        ended += *only_moved;
    });
    assert_int_equal(ended, 0);
    now->until([&] { return ended == 7; });
    assert_true(mine.held());
    std::future<hold> busy = rlockpp::async_acquire(*now->rival, 0ms, 1s, asio::use_future);
    now->until([&] { return busy.wait_for(0s) == std::future_status::ready; });
    assert_int_equal(busy.get().how().status, RLOCK_ERR_BUSY);
    std::future<result> released = rlockpp::async_release(*now->lock, asio::use_future);
    now->until([&] { return released.wait_for(0s) == std::future_status::ready; });
    assert_true(released.get());
    std::future<result> closed = rlockpp::async_shutdown(*now->client, 1s, asio::use_future);
    now->until([&] { return closed.wait_for(0s) == std::future_status::ready; });
    assert_true(closed.get());
    now->client.emplace(now->config());
}

void handler_of_a_refused_acquire_is_called_later(void **) {
    int status = 0, inside = 0;
    asio::post(context(), [&] { /* where a handler could be called at once */
                                rlockpp::async_acquire(
                                    *now->lock, -7ms, [&](hold got) { status = got.how().status; });
                                inside = status;
    });
    now->until([&] { return status != 0; });
    assert_int_equal(inside, 0);
    assert_int_equal(status, RLOCK_ERR_ARG);
}

void handler_runs_on_its_own_executor(void **) {
    asio::io_context other;
    int ended = 0, refused = 0;
    rlockpp::async_acquire(*now->lock, 5s, asio::bind_executor(other, [&](hold) { ended++; }));
    rlockpp::async_acquire(*now->lock, 5s, asio::bind_executor(other, [&](hold) { refused++; }));
    now->until([] { return now->lock->held(); });
    now->some_turns();
    assert_int_equal(ended + refused, 0);
    other.run(); /* it was kept from running out */
    assert_int_equal(ended, 1);
    assert_int_equal(refused, 1);
    now->until([] { return now->is_free(); });
}

void handler_of_a_destroyed_lock_is_destroyed(void **) {
    auto witness = std::make_shared<int>(0);
    rlockpp::async_acquire(*now->lock, 5s, [witness](hold) { ++*witness; });
    std::future<hold> broken = rlockpp::async_acquire(*now->rival, 5s, asio::use_future);
    now->lock.reset();
    now->rival.reset();
    assert_int_equal(witness.use_count(), 1);
    now->some_turns();
    assert_int_equal(*witness, 0);
    int thrown = 0;
    try {
        broken.get();
    } catch (const std::future_error &) {
        thrown++;
    }
    assert_int_equal(thrown, 1);
}

void cancellation_slot_cancels_the_acquire(void **) {
    hold first;
    int status = 0;
    asio::cancellation_signal signal;
    now->rival->acquire(5s, [&](hold got) { first = std::move(got); });
    now->until([&] { return bool(first); });
    rlockpp::async_acquire(
        *now->lock, rlockpp::forever,
        asio::bind_cancellation_slot(signal.slot(), [&](hold got) { status = got.how().status; }));
    now->some_turns();
    assert_int_equal(status, 0);
    signal.emit(asio::cancellation_type::terminal);
    assert_int_equal(status, 0);
    now->until([&] { return status != 0; });
    assert_int_equal(status, RLOCK_ERR_CANCELED);
    assert_false(signal.slot().has_handler());
    std::optional<rlockpp::lock> gone(std::in_place, *now->client, "key");
    rlockpp::async_acquire(*gone, rlockpp::forever,
                           asio::bind_cancellation_slot(signal.slot(), [](hold) {}));
    gone.reset();
    signal.emit(asio::cancellation_type::terminal); /* there is nothing to be cancelled any more */
}

void what_a_handler_throws_comes_out_of_the_context(void **) {
    struct thrown {};
    int caught = 0;
    rlockpp::async_acquire(*now->lock, 5s, [](hold) { throw thrown(); });
    for (int i = 0; i < 1000 && caught == 0; i++) {
        try {
            now->loop->turn();
        } catch (const thrown &) {
            caught++;
        }
    }
    assert_int_equal(caught, 1);
    now->until([] { return now->is_free(); });
}

void context_runs_out_when_the_client_is_gone(void **) {
    hold mine;
    now->lock->acquire(5s, [&](hold got) { mine = std::move(got); });
    now->until([&] { return bool(mine); });
    now->lock.reset();
    now->rival.reset();
    now->client.reset();
    context().restart();
    context().run_for(20s);
    assert_true(context().stopped());
}

/* By the check for anybody's loop. */
void loop_keeps_its_contract(void **) {
    char *words = nullptr;
    std::size_t size = 0;
    FILE *out = open_memstream(&words, &size);
    rlock_loop_check_options options = rlock_loop_check_options();
    options.loop = now->loop->hooks();
    options.user = static_cast<asio_world *>(now->loop.get());
    options.run = [](void *user, int ms) {
        asio::io_context &io = static_cast<asio_world *>(user)->io;
        io.restart();
        io.run_for(std::chrono::milliseconds(ms));
    };
    int failed = rlock_loop_check(&options, out);
    std::fclose(out);
    if (failed != 0) {
        print_error("%s", words);
    }
    std::free(words);
    assert_int_equal(failed, 0);
}

/* Two threads run the context: the strand keeps what is the library's to one at a time. */
void strand_keeps_two_threads_apart(void **) {
    asio::thread_pool pool(2);
    asio::any_io_executor strand = asio::make_strand(pool);
    std::promise<int> finished;
    rlock_config config = now->config();
    config.loop = rlockpp::asio_loop(strand);
    std::optional<rlockpp::client> client;
    std::optional<rlockpp::lock> lock;
    int turns = 0;
    std::function<void()> once_more = [&] {
        rlockpp::async_acquire(*lock, 5s, [&](hold got) {
            if (!got || ++turns == 200) {
                got = hold();
                lock.reset();
                client.reset();
                finished.set_value(turns);
                return;
            }
            got.release([&](const result &) { once_more(); });
        });
    };
    asio::post(strand, [&] {
        client.emplace(config);
        lock.emplace(*client, "other");
        once_more();
    });
    assert_int_equal(finished.get_future().get(), 200);
    pool.join();
}

/* Its destructor, and `if (hold)`, are on the thread that called get(). */
void hold_of_a_future_is_destroyed_on_another_thread(void **) {
    asio::any_io_executor on = rlockpp::detail::asio_executor(now->lock->loop());
    auto work = asio::make_work_guard(context());
    context().restart();
    std::thread runs([] { context().run(); });
    int granted = 0;
    for (int i = 0; i < 100; i++) {
        auto acquire = [] { return rlockpp::async_acquire(*now->lock, 5s, asio::use_future); };
        std::future<hold> future = asio::post(on, asio::use_future(acquire)).get();
        hold got = future.get(), moved = std::move(got);
        granted += !got && moved && moved.how(); /* and each is free for the next */
    }
    work.reset();
    asio::post(on, asio::use_future([] { now->client->shutdown(0ms, [](const result &) {}); }))
        .get();
    runs.join();
    now->client.emplace(now->config());
    assert_int_equal(granted, 100);
    assert_int_equal(now->losses.size(), 0); /* the last was released before the shutdown */
    assert_true(now->is_free());
}

/* As one that main has after io.run(): a later run releases it, and the end of its lock does. */
void hold_that_is_destroyed_while_no_thread_runs_the_loop_is_released_by_it(void **) {
    std::future<hold> future = rlockpp::async_acquire(*now->lock, 5s, asio::use_future);
    now->until([&] { return future.wait_for(0s) == std::future_status::ready; });
    { hold gone = future.get(); }
    now->until([] { return !now->lock->held(); });
    now->until([] { return now->is_free(); });
    future = rlockpp::async_acquire(*now->lock, 5s, asio::use_future);
    now->until([&] { return future.wait_for(0s) == std::future_status::ready; });
    hold after = future.get();
    now->lock.reset();
    assert_false(after);
    now->until([] { return now->is_free(); });
}

void async_acquire_of_a_lock_that_was_moved_from_is_refused(void **) {
    rlockpp::lock moved = std::move(*now->lock);
    rlockpp::client client = std::move(*now->client);
    std::atomic<std::thread::id> told_on{};
    auto acquired = rlockpp::async_acquire(*now->lock, 5s, asio::use_future);
    auto released = rlockpp::async_release(*now->lock, asio::use_future);
    rlockpp::async_acquire(*now->lock, 5s, [&](hold) { told_on = std::this_thread::get_id(); });
    now->until([&] { return told_on.load() == std::this_thread::get_id(); });
    auto closed = rlockpp::async_shutdown(*now->client, 1s, asio::use_future);
    now->until([&] { return closed.wait_for(0s) == std::future_status::ready; });
    assert_int_equal(acquired.get().how().status, RLOCK_ERR_ARG);
    assert_int_equal(released.get().status, RLOCK_ERR_ARG);
    assert_int_equal(closed.get().status, RLOCK_ERR_ARG);
    *now->client = std::move(client);
}

void async_acquire_without_a_loop_is_refused(void **) {
    rlockpp::client client((rlock_config()));
    rlockpp::lock lock(client, "key");
    assert_int_equal(rlockpp::async_acquire(lock, 5s, asio::use_future).get().how().status,
                     RLOCK_ERR_ARG);
}

asio::awaitable<int> begins_late(asio::awaitable<hold> late) {
    co_await asio::this_coro::throw_if_cancelled(false);
    hold got = co_await std::move(late);
    co_return got.how().status;
}

/* use_awaitable is a lazy token. The lock is another one when the coroutine runs, and the slot of
 * the acquire cancels that. */
void lazy_acquire_takes_the_lock_as_it_is_when_it_begins(void **) {
    hold first;
    int status = 0;
    asio::cancellation_signal signal;
    now->rival->acquire(5s, [&](hold got) { first = std::move(got); });
    now->until([&] { return bool(first); });
    auto late = rlockpp::async_acquire(*now->lock, rlockpp::forever, asio::use_awaitable);
    *now->lock = rlockpp::lock(*now->client, "key");
    asio::co_spawn(context(), begins_late(std::move(late)),
                   asio::bind_cancellation_slot(
                       signal.slot(), [&](const std::exception_ptr &, int how) { status = how; }));
    now->some_turns();
    assert_int_equal(status, 0);
    signal.emit(asio::cancellation_type::terminal);
    now->until([&] { return status != 0; });
    assert_int_equal(status, RLOCK_ERR_CANCELED);
}

void cancelling_a_refused_acquire_cancels_no_other(void **) {
    int refused = 0;
    hold first;
    std::optional<hold> got;
    asio::cancellation_signal signal;
    now->rival->acquire(5s, [&](hold mine) { first = std::move(mine); });
    now->until([&] { return bool(first); });
    rlockpp::async_acquire(*now->lock, rlockpp::forever, [&](hold mine) { got = std::move(mine); });
    rlockpp::async_acquire(*now->lock, rlockpp::forever,
                           asio::bind_cancellation_slot(
                               signal.slot(), [&](hold none) { refused = none.how().status; }));
    signal.emit(asio::cancellation_type::terminal);
    now->until([&] { return refused != 0; });
    assert_int_equal(refused, RLOCK_ERR_STATE);
    first = hold();
    now->until([&] { return got.has_value(); });
    assert_true(got->held());
}

asio::awaitable<void> awaits(int &right) {
    for (int i = 0; i < 5; i++) {
        hold mine = co_await rlockpp::async_acquire(*now->lock, 5s, asio::use_awaitable);
        right += mine.held();
    }
    hold last = co_await rlockpp::async_acquire(*now->lock, 5s, asio::use_awaitable);
    right += bool(co_await rlockpp::async_release(*now->lock, asio::use_awaitable));
}

void token_may_be_use_awaitable(void **) {
    int right = 0;
    bool done = false;
    asio::co_spawn(context(), awaits(right), [&](const std::exception_ptr &thrown) {
        assert_true(thrown == nullptr);
        done = true;
    });
    now->until([&] { return done; });
    assert_int_equal(right, 6);
}

asio::awaitable<int> waits_to_be_cancelled() {
    co_await asio::this_coro::throw_if_cancelled(false);
    hold got = co_await rlockpp::async_acquire(*now->lock, rlockpp::forever, asio::use_awaitable);
    co_return got.how().status;
}

void cancelled_coroutine_of_asio_cancels_its_acquire(void **) {
    hold first;
    int status = 0;
    asio::cancellation_signal signal;
    now->rival->acquire(5s, [&](hold got) { first = std::move(got); });
    now->until([&] { return bool(first); });
    asio::co_spawn(context(), waits_to_be_cancelled(),
                   asio::bind_cancellation_slot(
                       signal.slot(), [&](const std::exception_ptr &, int how) { status = how; }));
    now->some_turns();
    assert_int_equal(status, 0);
    signal.emit(asio::cancellation_type::terminal);
    now->until([&] { return status != 0; });
    assert_int_equal(status, RLOCK_ERR_CANCELED);
}

#endif /* __cpp_impl_coroutine */

/* ------------------------------------------------------------------------------------------------
 * On a real server
 */

server redis;

int setup_server(void **) {
    signal(SIGPIPE, SIG_IGN);
    return server_start(&redis, nullptr);
}

int teardown_server(void **) {
    server_stop(&redis);
    return 0;
}

void server_has_the_lock_and_tells_of_its_loss(void **) {
    std::optional<hold> mine;
    std::vector<result> losses;
    char reply[64];
    rlock_config config = rlock_config();
    config.loop = now->loop->hooks();
    config.unix_path = redis.socket;
    rlockpp::client client(config);
    rlock_options options = rlock_options();
    options.key = "on the server";
    options.fencing = true;
    rlockpp::lock lock(client, options, [&](const result &how) { losses.push_back(how); });
    for (std::uint64_t last = 0, i = 0; i < 3; i++) {
        mine.reset();
        lock.acquire(5s, [&](hold got) { mine.emplace(std::move(got)); });
        now->until([&] { return mine.has_value(); });
        assert_true(mine->held());
        assert_true(mine->how().fence > last);
        last = mine->how().fence;
    }
    server_cli(&redis, reply, sizeof reply, "DEL 'on the server'");
    assert_string_equal(reply, "1");
    now->until([&] { return !losses.empty(); });
    assert_int_equal(losses[0].reason, RLOCK_REASON_DELETED);
    assert_false(mine->held());
    server_cli(&redis, reply, sizeof reply, "LPUSH 'on the server' x");
    mine.reset();
    lock.acquire(5s, [&](hold got) { mine.emplace(std::move(got)); });
    now->until([&] { return mine.has_value(); });
    assert_int_equal(mine->how().status, RLOCK_ERR_WRONG_TYPE);
    assert_false(mine->how().text.empty()); /* the words of the server outlive the callback */
    assert_true(mine->how().message().find(mine->how().text) != std::string::npos);
    server_cli(&redis, reply, sizeof reply, "DEL 'on the server'");
}

#define ROW(name, from, to) \
    { #name, name, from, to }

struct row {
    const char *name;
    CMUnitTestFunction run;
    std::size_t from, to; /* the loops on which it runs */
};

const std::size_t all = sizeof kinds / sizeof kinds[0];
const row rows[] = {
    ROW(hold_of_a_callback_is_released_at_its_end, 0, all),
    ROW(hold_is_kept_for_as_long_as_somebody_has_it, 0, all),
    ROW(callback_of_a_result_leaves_the_hold_to_the_lock, 0, all),
    ROW(detached_hold_is_left_to_the_lock, 0, all),
    ROW(acquire_that_fails_says_how, 0, all),
    ROW(call_that_is_refused_returns_why, 0, all),
    ROW(what_cannot_be_made_says_why_in_each_call, 0, 1),
    ROW(key_is_as_long_as_its_view, 0, 1),
    ROW(loss_is_reported_and_its_hold_is_none_any_more, 0, all),
    ROW(on_lost_of_the_options_is_called_where_there_is_no_callable, 0, 1),
    ROW(hold_of_before_does_not_release_the_next, 0, all),
    ROW(nested_holds_are_released_one_by_one, 0, all),
    ROW(key_that_is_left_is_not_free, 0, all),
    ROW(hold_goes_to_the_lock_that_has_its_token, 0, all),
    ROW(destroyed_lock_ends_what_is_pending_without_a_call, 0, all),
    ROW(destroyed_client_ends_what_is_pending_without_a_call, 0, all),
    ROW(callbacks_may_destroy_all, 0, all),
    ROW(what_a_callback_throws_comes_out_of_the_loop_and_the_client_goes_on, 0, 1),
    ROW(what_a_callback_throws_comes_out_of_the_loop_and_the_client_goes_on, 2, all),
    ROW(locks_and_clients_can_be_moved_under_their_operations, 0, all),
    ROW(shutdown_notifies_the_holder_and_the_waiter, 0, all),
    ROW(drain_waits_for_the_holder_and_may_be_cut_short, 0, all),
    ROW(credentials_reach_the_store_of_the_client, 0, all),
    ROW(pending_can_be_asked_whether_it_is_done, 0, all),
    ROW(pending_that_nobody_takes_releases_what_it_got, 0, all),
    ROW(pending_that_is_destroyed_cancels_its_acquire, 0, all),
    ROW(pending_outlives_its_lock, 0, all),
    ROW(handle_that_is_being_released_is_acquired_again, 0, all),
#ifdef __cpp_impl_coroutine
    ROW(coroutine_acquires_works_and_acquires_again, 0, all),
    ROW(coroutines_take_turns, 0, all),
    ROW(coroutine_renews_and_releases, 0, all),
    ROW(pending_is_awaited_when_it_is_over, 0, all),
    ROW(error_is_thrown_in_the_coroutine_that_wants_it, 0, all),
    ROW(destroyed_coroutine_cancels_its_acquire, 0, all),
    ROW(coroutine_may_destroy_all, 0, all),
    ROW(destroyed_coroutine_releases_its_hold, 0, all),
    ROW(stop_token_cancels_an_acquire, 0, all),
    ROW(coroutine_waits_for_the_end_of_its_client, 0, all),
    ROW(token_may_be_use_awaitable, 2, all),
    ROW(cancelled_coroutine_of_asio_cancels_its_acquire, 2, all),
    ROW(token_may_be_a_callback_or_a_future, 2, all),
    ROW(handler_of_a_refused_acquire_is_called_later, 2, all),
    ROW(handler_runs_on_its_own_executor, 2, all),
    ROW(handler_of_a_destroyed_lock_is_destroyed, 2, all),
    ROW(cancellation_slot_cancels_the_acquire, 2, all),
    ROW(what_a_handler_throws_comes_out_of_the_context, 2, all),
    ROW(context_runs_out_when_the_client_is_gone, 2, all),
    ROW(loop_keeps_its_contract, 3, all),
    ROW(strand_keeps_two_threads_apart, 2, 3),
    ROW(hold_of_a_future_is_destroyed_on_another_thread, 2, all),
    ROW(hold_that_is_destroyed_while_no_thread_runs_the_loop_is_released_by_it, 2, all),
    ROW(async_acquire_of_a_lock_that_was_moved_from_is_refused, 2, all),
    ROW(async_acquire_without_a_loop_is_refused, 2, 3),
    ROW(lazy_acquire_takes_the_lock_as_it_is_when_it_begins, 2, all),
    ROW(cancelling_a_refused_acquire_cancels_no_other, 2, all),
#endif
    ROW(server_has_the_lock_and_tells_of_its_loss, 0, all),
};

} /* namespace */

/* cxx [PATTERN]: all, or the tests whose names match, as in 'asio: *future*'. */
int main(int argc, char **argv) {
    std::vector<CMUnitTest> tests;
    std::vector<std::string> names;
    names.reserve(all * (sizeof rows / sizeof rows[0]));
    for (std::size_t on = 0; on < all; on++) {
        for (const row &each : rows) {
            if (on < each.from || on >= each.to) {
                continue;
            }
            names.push_back(std::string(kinds[on].name) + ": " + each.name);
            tests.push_back(
                {names.back().c_str(), each.run, setup, teardown, const_cast<kind *>(&kinds[on])});
        }
    }
    cmocka_set_test_filter(argc > 1 ? argv[1] : nullptr);
    return _cmocka_run_group_tests("cxx", tests.data(), tests.size(), setup_server,
                                   teardown_server);
}
