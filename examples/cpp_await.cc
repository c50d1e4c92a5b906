/* How do I use it from coroutines, on any loop? Two workers take turns; the hold of each is
 * released at the end of its block. Needs C++20. */
#include <cstdio>
#include <cstdlib>
#include <csignal>
#include <exception>
#define RLOCK_IMPLEMENTATION
#include "rlock.hpp"
#include "rlock_poll.h"

using namespace std::chrono_literals;

/* The least a coroutine needs: any task type does. This one begins at once and frees itself. */
struct task {
    struct promise_type {
        task get_return_object() {
            return {};
        }
        std::suspend_never initial_suspend() {
            return {};
        }
        std::suspend_never final_suspend() noexcept {
            return {};
        }
        void return_void() {
        }
        void unhandled_exception() {
            std::terminate();
        }
    };
};

static rlock_poll *loop;
static int working = 2, worked;

static task work(rlockpp::client &client, const char *name) {
    rlockpp::lock lock(client, "stock:42");
    for (int i = 0; i < 3; i++) {
        rlockpp::hold hold = co_await lock.acquire(5s);
        if (!hold) {
            std::printf("%s: %s\n", name, hold.how().message().c_str());
            break;
        }
        std::printf("%s: works\n", name);
        worked++;
    } /* here it is released, and the next acquire waits for that */
    if (--working == 0) {
        rlock_poll_stop(loop);
    }
}

int main() {
    std::signal(SIGPIPE, SIG_IGN);
    loop = rlock_poll_new();
    rlock_config config = {};
    config.loop = rlock_poll_loop(loop);
    config.url = std::getenv("RLOCK_URL");
    {
        rlockpp::client client(config);
        work(client, "A");
        work(client, "B");
        rlock_poll_run(loop);
    }
    rlock_poll_free(loop);
    return worked == 6 ? 0 : 1;
}

/* SPDX-License-Identifier: MIT */
