#!/usr/bin/python3
"""redis-py's Lock at the work that rlock.c, redlock.js and semaphore.js do too. It asks every 100 ms, its default.

peer.py SOCKET pairs IN_FLIGHT SECONDS            uncontended acquire and release, each worker on a key of its own
peer.py SOCKET waiters COUNT SECONDS once|again   all on one key, nothing done under it; after its turn a waiter
                                                  is gone, or comes back at once
peer.py SOCKET memory COUNT                       resident bytes a held lock, when as many are held already
peer.py SOCKET obey                               reads acquire, release; answers when it had it, when it let go

Each prints `name value unit`. One thread and one connection a worker: asyncio is slower here.
"""

import gc
import os
import resource
import sys
import threading
import time

import redis

WARM_S = 0.5
LEASE_S = 30

def connect(socket):
    return redis.Redis(unix_socket_path=socket, single_connection_client=True)


def say(name, value, unit):
    print(name, value, unit, flush=True)


def cpu_us():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e6


def rss():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fails(args):
    sys.excepthook(args.exc_type, args.exc_value, args.exc_traceback)
    os._exit(1)


def run(target, count):
    threading.excepthook = fails
    for i in range(count):
        threading.Thread(target=target, args=(i,), daemon=True).start()


def pairs(socket, in_flight, seconds):
    done = [0] * in_flight

    def worker(i):
        lock = connect(socket).lock(f"pairs:{i}", timeout=LEASE_S)
        while True:
            lock.acquire()
            lock.release()
            done[i] += 1

    run(worker, in_flight)
    time.sleep(WARM_S)
    done_then, cpu_then, then = sum(done), cpu_us(), time.monotonic()
    time.sleep(seconds)
    count = sum(done) - done_then
    say("pairs", count / (time.monotonic() - then), "1/s")
    say("cpu", (cpu_us() - cpu_then) / count, "us/pair")


class Waiters:
    def __init__(self, socket, count, again):
        self.socket, self.count, self.again = socket, count, again
        self.since = [0.0] * count  # it waits since; 0 = not now
        self.turns = [0] * count
        self.sections = self.handovers = self.served = self.held = 0
        self.longest = 0.0
        self.last = -1
        self.ready = threading.Barrier(count + 1)
        self.finished = threading.Event()
        self.reporting = threading.Lock()

    def waiter(self, i):
        lock = connect(self.socket).lock("one", timeout=LEASE_S)
        self.ready.wait()
        while True:
            self.since[i] = time.monotonic()
            lock.acquire()
            self.section(i, time.monotonic())
            lock.release()
            if not self.again:
                break
        if self.served == self.count:
            self.finished.set()

    def section(self, i, now):
        if now > self.deadline:
            self.report()  # the main thread may wait long for its turn among so many
        self.held += 1
        assert self.held == 1, "two holders"
        self.longest = max(self.longest, now - self.since[i])
        self.since[i] = 0.0
        self.sections += 1
        self.handovers += self.last != i
        self.last = i
        self.served += self.turns[i] == 0
        self.turns[i] += 1
        self.held -= 1

    def measure(self, seconds):
        self.deadline = float("inf")
        run(self.waiter, self.count)
        self.ready.wait()
        self.start = time.monotonic()
        self.deadline = self.start + seconds
        self.finished.wait(seconds)
        self.report()

    def report(self):
        self.reporting.acquire()  # once
        now = time.monotonic()
        longest = max([self.longest] + [now - since for since in self.since if since])
        elapsed = now - self.start
        say("sections", self.sections / elapsed, "1/s")
        say("handovers", self.handovers / elapsed, "1/s")
        say("elapsed", elapsed, "s")
        say("served", self.served, f"of_{self.count}")
        say("longest", longest * 1000, "ms")
        os._exit(0)


def memory(socket, count):
    client = connect(socket)
    locks = [None] * (2 * count)

    def hold(first, upto):
        for i in range(first, upto):
            locks[i] = client.lock(f"memory:{i}", timeout=LEASE_S)
            locks[i].acquire()

    hold(0, count)
    before = rss()
    hold(count, 2 * count)
    say("memory", (rss() - before) / count, "bytes/lock")


def obey(socket):
    lock = connect(socket).lock("one", timeout=LEASE_S)
    for line in sys.stdin:
        word, then = line.strip(), time.monotonic_ns()
        getattr(lock, word)()
        say(word, then if word == "release" else time.monotonic_ns(), "ns")


def main(socket, what, *args):
    threading.stack_size(256 * 1024)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if what == "pairs":
        pairs(socket, int(args[0]), float(args[1]))
    elif what == "waiters":
        Waiters(socket, int(args[0]), args[2] == "again").measure(float(args[1]))
    elif what == "memory":
        memory(socket, int(args[0]))
    else:
        obey(socket)
    os._exit(0)  # threads that wait still


main(*sys.argv[1:])
