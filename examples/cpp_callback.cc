/* How do I use it from C++17? The hold of a callback is released by its destructor. */
#include <cstdio>
#include <cstdlib>
#include <csignal>
#define RLOCK_IMPLEMENTATION
#include "rlock.hpp"
#include "rlock_poll.h"

using namespace std::chrono_literals;

int main() {
    bool released = false;
    std::signal(SIGPIPE, SIG_IGN); /* a closed socket is an error, not the end of the program */
    rlock_poll *loop = rlock_poll_new();
    rlock_config config = {};
    config.loop = rlock_poll_loop(loop);
    config.url = std::getenv("RLOCK_URL"); /* not set: 127.0.0.1, port 6379 */
    config.log = [](void *, int level, const char *line) {
        if (level <= RLOCK_LOG_WARNING) { /* INFO: a connection is ready */
            std::fprintf(stderr, "%s\n", line);
        }
    };
    {
        rlockpp::client client(config);
        rlockpp::lock lock(client, "stock:42", [&](const rlockpp::result &lost) {
            std::printf("lost: %s\n", rlock_reason_str(lost.reason));
            rlock_poll_stop(loop); /* stop the work: another may hold the lock now */
        });
        int status = lock.acquire(5s, [&](rlockpp::hold hold) {
            std::printf("acquired: %s\n", hold.how().message().c_str());
            if (!hold) {
                return rlock_poll_stop(loop);
            }
            /* here the work is done; or keep the hold, by std::move */
            hold.release([&](const rlockpp::result &how) {
                released = how.status == RLOCK_OK;
                std::printf("released: %s\n", how.message().c_str());
                rlock_poll_stop(loop);
            });
        });
        if (status == RLOCK_OK) {
            rlock_poll_run(loop);
        }
    }
    rlock_poll_free(loop);
    return released ? 0 : 1;
}

/* SPDX-License-Identifier: MIT */
