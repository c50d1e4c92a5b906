/* How do I use it on Asio? An acquire takes a completion token, as every operation of Asio does;
 * what goes wrong is thrown here, because or_throw() asks for it. Needs C++20 for co_await. */
#include <cstdio>
#include <cstdlib>
#include <csignal>
#include <asio.hpp>
#define RLOCK_IMPLEMENTATION
#include "rlock_asio.hpp"

using namespace std::chrono_literals;

static asio::awaitable<void> work(rlockpp::client &client) {
    rlockpp::lock lock(client, "stock:42");
    auto hold = (co_await rlockpp::async_acquire(lock, 5s, asio::use_awaitable)).or_throw();
    std::puts("acquired");
    asio::steady_timer timer(co_await asio::this_coro::executor, 100ms);
    co_await timer.async_wait(asio::use_awaitable); /* the work; the watchdog renews the hold */
    std::printf("held now: %s\n", hold.held() ? "yes" : "no");
    rlockpp::result how = co_await rlockpp::async_release(lock, asio::use_awaitable);
    std::printf("released: %s\n", how.message().c_str());
}

int main() {
    int failed = 1;
    std::signal(SIGPIPE, SIG_IGN);
    asio::io_context io;
    rlock_config config = {};
    config.loop = rlockpp::asio_loop(io);
    config.url = std::getenv("RLOCK_URL");
    rlockpp::client client(config);
    asio::co_spawn(io, work(client), [&](std::exception_ptr thrown) {
        try {
            if (thrown) {
                std::rethrow_exception(thrown);
            }
            failed = 0;
        } catch (const rlockpp::error &error) {
            std::printf("cannot acquire: %s\n", error.what());
        }
        io.stop(); /* the connection of the client would keep it running */
    });
    io.run();
    return failed;
}

/* SPDX-License-Identifier: MIT */
