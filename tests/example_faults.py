#!/usr/bin/python3
"""The examples and recipes that people copy, while something goes wrong: each says so, and ends with the truth.

    tests/example_faults.py build/examples [NAME...]       all rows, or those whose names begin so

A row is a program, a fault, and what has to come of it. Each row has a server of its own; several run at a time. A fault
comes when the program works: when its key is held. Prints TAP.
"""

import concurrent.futures
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

from fixture import OVER, Redis, Tap, dies_with_parent, ends_when_told, failure, send, until

EXAMPLES = os.path.abspath(sys.argv[1])
JOBS = 3 * (os.cpu_count() or 1)  # rows at a time
PATIENCE_S = 40   # of all that takes seconds, on a machine that is busy
SOON = "?watchdog_lease_ms=1000"
LATER = "?watchdog_lease_ms=10000"  # a server that is replaced is found by then, also on a busy machine
OWN_LEASE = ("hello", "report", "watchdog", "cookbook/lead")  # these set it themselves


class Run:
    """A program with a server of its own. What it says, on both streams, goes into a file."""

    def __init__(self, folder, server, words, url=None, data=None, lease=SOON):
        self.folder, self.server = folder, server
        self.log = os.path.join(folder, "log")  # what a job of `once` writes
        self.said_in = os.path.join(folder, "said")
        environment = {**os.environ, "RLOCK_URL": url or server.url + lease * (words[0] not in OWN_LEASE), "LOG": self.log}
        environment.pop("RLOCK_DATA", None)
        if data:
            environment["RLOCK_DATA"] = data
        with open(self.said_in, "ab") as out:
            self.process = subprocess.Popen(
                [os.path.join(EXAMPLES, words[0]), *words[1:]], env=environment, cwd=folder,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=dies_with_parent)

    def said(self):
        with open(self.said_in, encoding="utf-8") as file:
            return file.read()

    def wait_for(self, words):
        """Waits for a pattern in what it says; it must not end before."""
        self.wait(f"{words!r}", lambda: re.search(words, self.said(), re.M))

    def wait(self, what, done):
        until(what, PATIENCE_S, lambda: done() or self.process.poll() is not None)
        assert done(), f"ended without {what}: {self.said()}"

    def works(self, key):
        self.wait(f"{key}", lambda: self.server.redis.exists(key))
        time.sleep(0.2)  # holds older than 100 ms are watched

    def ends(self, status, *words):
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"hangs; it said: {self.said()}") from None
        assert self.process.returncode == status, f"status {self.process.returncode}, not {status}: {self.said()}"
        for pattern in words:
            assert re.search(pattern, self.said(), re.M), f"no {pattern!r} in: {self.said()}"


# ---- faults: a function of the run; those that heal return how ----


def deleted(run):
    run.server.redis.delete(*(key for key in run.server.redis.keys() if not key.startswith(b"account")), "account:lock")


def disconnected(run):
    for kind in ("normal", "pubsub"):
        run.server.redis.client_kill_filter(_type=kind, skipme=True)


def full(run):
    run.server.redis.config_set("maxmemory", 1)


def full_for_a_while(run):
    full(run)
    time.sleep(2.5)
    run.server.redis.config_set("maxmemory", 0)


def restarted(run):
    """Without its data."""
    run.server.replace()


def stopped(run):
    run.server.signal(signal.SIGSTOP)


def stopped_for_a_lease(run):
    stopped(run)
    time.sleep(2.5)
    run.server.signal(signal.SIGCONT)


def terminated(run):
    send(run.process.pid, signal.SIGTERM)


def nothing(_):
    pass


# ---- the table ----

JOB = "once", "report", "monday", "sh", "-c"
WORKS = (*JOB, "sleep 2; echo ran >>$LOG")
# Its child would write after it, if that were not ended too.
LEAVES = (*JOB, "(sleep 4; echo survived >>$LOG) & sleep 3")

PROGRAMS = {  # words, the key that it holds when it works
    "hello": (("hello", "2"), "stock:42"),
    "own_loop": (("own_loop",), "own-loop"),
    "once": ((f"cookbook/{WORKS[0]}", *WORKS[1:]), "report"),
    "once leaves": ((f"cookbook/{LEAVES[0]}", *LEAVES[1:]), "report"),
    "keyed": (("cookbook/keyed", *["ann"] * 20), "ann"),
    "cache": (("cookbook/cache", "value", "3"), "answer"),
    "worker": (("cookbook/worker", "one", "10", "1"), "account:lock"),
    "graceful": (("cookbook/graceful",), "shift"),
    "lead": (("cookbook/lead",), "cookbook:leader"),
    "cares": (("cares",), "cares"),
    "cpp_callback": (("cpp_callback",), "stock:42"),
    "cpp_await": (("cpp_await",), "stock:42"),
    "cpp_asio": (("cpp_asio",), "stock:42"),
    "report": (("report", "archive"), "nightly"),
    "operator": (("operator",), "nightly-report"),
    "watchdog": (("watchdog",), "watchdog"),
}

# program, fault while it works, status, what it says; of one that goes on, what it says again, before SIGTERM ends it
FAULTS = [
    ("hello", nothing, 0, "^released stock:42: ok$"),
    ("hello", deleted, 1, "^lost stock:42: deleted$"),
    ("hello", disconnected, 0, "^released stock:42: ok$"),
    ("hello", full, 0, "^released stock:42: ok$"),
    ("hello", restarted, 1, "^lost stock:42: deleted$"),
    ("own_loop", nothing, 0, "^released own-loop: ok$"),
    ("own_loop", deleted, 1, "^lost own-loop: deleted$"),
    ("own_loop", disconnected, 0, "^released own-loop: ok$"),
    ("own_loop", full, 0, "^released own-loop: ok$"),
    ("own_loop", restarted, 1, "^(lost own-loop: deleted|released own-loop: (?!ok))"),
    ("own_loop", stopped, 1, "^(lost own-loop: expired|released own-loop: (?!ok))"),
    ("once", nothing, 0, "^report of monday is done$"),
    ("once", deleted, 1, "^report: lock lost: deleted$", "^report of monday has failed$"),
    ("once", disconnected, 0, "^report of monday is done$"),
    ("once", full, 1, "^data: OOM", "^report of monday is done, but this could not be noted: it may run again$"),
    ("once", full_for_a_while, 0, "^data: OOM", "^report of monday is done$"),
    ("once", restarted, 1, "^report: lock lost: deleted$"),
    ("once", stopped_for_a_lease, 1, "^report: lock lost: expired$"),
    ("once leaves", deleted, 1, "^report: lock lost: deleted$"),
    ("once leaves", stopped_for_a_lease, 1, "^report: lock lost: expired$"),
    ("once leaves", terminated, 1, "^report of monday has failed$"),
    ("once leaves", nothing, 0, "^report of monday is done$"),
    ("keyed", nothing, 0, "^end ann"),
    ("keyed", deleted, 1, "^ann: "),
    ("keyed", disconnected, 0, "^end ann"),
    ("keyed", full, 0, "^end ann"),
    ("keyed", restarted, 1, "^ann: "),
    ("keyed", stopped_for_a_lease, 1, "^ann: "),
    ("cache", nothing, 0, "^3 of 3 answered, made 1 times$"),
    ("cache", deleted, 0, "^3 of 3 answered"),
    ("cache", disconnected, 0, "^3 of 3 answered"),
    ("cache", full, 0, "^3 of 3 answered"),
    ("cache", restarted, 0, "^3 of 3 answered"),
    ("worker", nothing, 0, "^one: the balance is 10$"),
    ("worker", deleted, 0, "^one: the balance is 10$"),
    ("worker", disconnected, 0, "^one: the balance is 10$"),
    ("worker", full, 1, "^data: OOM"),
    ("worker", restarted, 0, "^one: the balance is 10$"),
    ("worker", stopped, 1, "^data: Resource temporarily unavailable$"),
    ("graceful", terminated, 0, "^leaves: ok$"),
    ("graceful", deleted, 1, "^stops: deleted$", "^leaves: ok$"),
    ("graceful", restarted, 1, "^stops: deleted$", "^leaves: ok$"),
    ("graceful", stopped, 1, "^stops: expired$", "^leaves: no answer, its lease has to run out$"),
    ("report", nothing, 0, "^page 3 is written$"),
    ("report", deleted, 0, "^lost the lock: deleted$", "^page 3 is written$"),
    ("report", disconnected, 0, "^page 3 is written$"),
    ("report", full_for_a_while, 0, "^page 3 is written$"),
    ("report", restarted, 0, "^lost the lock: deleted$", "^page 3 is written$"),
]
GOES_ON = [  # until SIGTERM: what it says after the fault; its end
    ("graceful", disconnected, "^works$", 0, "^leaves: ok$"),
    ("graceful", full, "^works$", 0, "^leaves: ok$"),
    ("lead", nothing, "leads, fence", 0, "^leaves: ok$"),
    ("lead", deleted, r"steps down: deleted(?s:.)*leads, fence", 0, "^leaves: ok$"),
    ("lead", disconnected, "leads, fence", 0, "^leaves: ok$"),
    ("lead", restarted, r"steps down: deleted(?s:.)*leads, fence", 0, "^leaves: ok$"),
    ("lead", stopped_for_a_lease, r"steps down: expired(?s:.)*leads, fence", 0, "^leaves: ok$"),
    ("lead", stopped, "steps down: expired", 1, "^leaves: no answer, its lease has to run out$"),
]
WAITS = ("once", "keyed", "graceful", "lead", "report", "worker")  # for a server that is away, and then works
GIVES_UP = ("hello", "own_loop", "cares", "cpp_callback", "cpp_await", "cpp_asio")
USAGE = (("cookbook/once", "report", "monday"), ("cookbook/keyed",), ("cookbook/cache", "value"),
         ("cookbook/worker", "one"), ("report",))
AWAY = "connection to .*: No such file or directory"


# ---- how each is run ----


def at_work(name, fault, status, *words):
    """While it works, a fault comes."""
    def run(folder, server):
        program, key = PROGRAMS[name]
        if fault is restarted:
            server.prepare()
        with_it = Run(folder, server, program, lease=LATER if fault is restarted else SOON)
        with_it.works(key)
        fault(with_it)
        with_it.ends(status, *words)
        if name == "once leaves":
            time.sleep(4.2)
            assert not os.path.exists(with_it.log), "what the job had started survived it"
        if name == "once" and status == 0:  # it is not run again in this period, by nobody
            Run(folder, server, program).ends(0, "^report of monday is done already$")
            with open(with_it.log, encoding="ascii") as log:
                assert log.read() == "ran\n"
    return f"{name}: {fault.__name__.replace('_', ' ')}", run


def goes_on(name, fault, again, status, *words):
    def run(folder, server):
        program, key = PROGRAMS[name]
        if fault is restarted:
            server.prepare()
        with_it = Run(folder, server, program)
        with_it.works(key)
        fault(with_it)
        with_it.wait_for(again)
        terminated(with_it)
        with_it.ends(status, *words)
    return f"{name}: {fault.__name__.replace('_', ' ')}, and goes on", run


def waits_for_a_server(name):
    def run(folder, server):
        program, key = PROGRAMS[name]
        server.kill()
        os.unlink(server.socket)
        with_it = Run(folder, server, program)
        with_it.wait_for(AWAY)
        server.start()
        if name in ("graceful", "lead"):
            with_it.works(key)
            terminated(with_it)
        with_it.ends(0)
    return f"{name}: says that no server is there, and works when one comes", run


def gives_up(name):
    def run(folder, server):
        server.kill()
        os.unlink(server.socket)
        Run(folder, server, PROGRAMS[name][0]).ends(1, "No such file or directory|the server was not reached")
    return f"{name}: says that no server is there, and fails", run


def full_from_the_start(name, status, words):
    def run(folder, server):
        server.redis.config_set("maxmemory", 1)
        Run(folder, server, PROGRAMS[name][0]).ends(status, words)
    return f"{name}: the server is full from the start", run


def quorum_without_servers(folder, server):
    Run(folder, server, ("quorum", server.url, "unix:///nowhere/a", "unix:///nowhere/b")).ends(1, "^acquired: the server was not reached")


def bad_url(name):
    def run(folder, server):
        with_it = Run(folder, server, PROGRAMS[name][0], url="nonsense://nowhere", data=server.url)
        with_it.process.wait(PATIENCE_S)
        assert with_it.process.returncode != 0, with_it.said()
        assert re.search("config.url|bad argument", with_it.said()), with_it.said()
    return f"{name}: says that its URL is wrong, and fails", run


def usage(words):
    def run(folder, server):
        Run(folder, server, words).ends(2, "^usage: ")
    return f"{os.path.basename(words[0])}: says how it is called", run


def data_is_silent(folder, server):
    with Redis(folder=folder) as data:
        data.signal(signal.SIGSTOP)
        Run(folder, server, PROGRAMS["once"][0], data=data.url).ends(1, "^data: ", "^report of monday was not started$")


def data_answers_after_the_lease(folder, server):
    """The question about the period blocks the loop, and its answer comes when the lock is held no more."""
    for turn in range(10):
        with Redis(folder=folder) as data:
            data.signal(signal.SIGSTOP)
            with_it = Run(folder, server, (*PROGRAMS["once"][0][:-1], "echo ran >>$LOG"), data=data.url,
                          lease="?watchdog_lease_ms=500")
            with_it.wait("the lock", lambda: server.redis.exists("report"))
            with_it.wait("the end of its lease", lambda: not server.redis.exists("report"))
            data.signal(signal.SIGCONT)
            with_it.process.wait(PATIENCE_S)
        assert not os.path.exists(with_it.log), "the job was started, and the lock was another's"
        if not re.search("^data: ", with_it.said(), re.M):
            break  # else this machine was too slow: it waits for a second, and the lease is half of that
        os.unlink(with_it.said_in)
        assert turn < 9, "the answer has never come in time"
    with_it.ends(1, "^report of monday was not started$")


def shutdown_is_not_answered(folder, server):
    with_it = Run(folder, server, ("cookbook/graceful",), url=server.url)
    with_it.works("shift")
    stopped(with_it)
    terminated(with_it)
    with_it.ends(1, "^leaves: no answer, its lease has to run out$")


def value_cannot_be_written(folder, server):
    Run(folder, server, ("cookbook/cache", "nowhere/value", "2")).ends(1, "nowhere/value.*: No such file")


def value_is_not_put_in_its_place(folder, server):
    os.makedirs(os.path.join(folder, "value", "old"))  # a folder is where the value has to be
    Run(folder, server, ("cookbook/cache", "value", "2")).ends(1, "value.*: Is a directory$", "^0 of 2 answered, made 0 times$")
    assert os.listdir(os.path.join(folder, "value")) == ["old"]
    assert [name for name in os.listdir(folder) if name.startswith("value")] == ["value"], "a draft is left"


def value_has_no_room(folder, server):
    """As on a full disk, which is reported when the file is closed: what it says goes through a pipe."""
    def no_file_grows():
        dies_with_parent()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    old = os.path.join(folder, "value")
    with open(old, "wb"):
        pass  # there is one, of no use
    before = os.stat(old)
    done = subprocess.run([os.path.join(EXAMPLES, "cookbook/cache"), "value", "2"], cwd=folder, stdin=subprocess.DEVNULL,
                          env={**os.environ, "RLOCK_URL": server.url + SOON}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, preexec_fn=no_file_grows, check=False)
    assert done.returncode == 1 and "0 of 2 answered, made 0 times\n" in done.stdout, done
    assert re.search("^value.*: File too large$", done.stdout, re.M), done
    after = os.stat(old)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns), "the old value was replaced"
    assert [name for name in os.listdir(folder) if name.startswith("value")] == ["value"], "a draft is left"


def draft_is_of_one_process(folder, server):
    os.mkdir(os.path.join(folder, "value.answer"))  # as if another process had it, on another machine
    Run(folder, server, ("cookbook/cache", "value", "2")).ends(0, "^2 of 2 answered, made 1 times$")
    assert sorted(name for name in os.listdir(folder) if name.startswith("value")) == ["value", "value.answer"]


def rows():
    yield from (at_work(*row) for row in FAULTS)
    yield from (goes_on(*row) for row in GOES_ON)
    yield from (waits_for_a_server(name) for name in WAITS)
    yield from (gives_up(name) for name in GIVES_UP)
    yield "quorum: too few servers are there", quorum_without_servers
    yield full_from_the_start("hello", 1, "OOM")
    yield full_from_the_start("own_loop", 1, "^acquired own-loop: the server")
    yield full_from_the_start("cares", 1, "^acquired cares: the server")
    yield full_from_the_start("cache", 0, "^makes it without the lock: ")
    yield full_from_the_start("operator", 1, "^A has failed$")
    yield from (bad_url(name) for name in PROGRAMS if name != "once leaves")
    yield from (usage(words) for words in USAGE)
    yield "once: the server of its data is silent", data_is_silent
    yield "once: the server of its data answers after the lease", data_answers_after_the_lease
    yield "graceful: the server does not answer its shutdown", shutdown_is_not_answered
    yield "cache: the value cannot be written", value_cannot_be_written
    yield "cache: the value cannot be put in its place", value_is_not_put_in_its_place
    yield "cache: the disk is full", value_has_no_room
    yield "cache: the draft of a value is of one process", draft_is_of_one_process


def run_row(run):
    if OVER.is_set():
        return "not run"
    with tempfile.TemporaryDirectory(prefix="rlock-") as folder, Redis(folder=folder) as server:
        return failure(run, folder, server)


def main():
    ends_when_told()
    chosen = [(name, run) for name, run in rows()
              if len(sys.argv) < 3 or any(name.startswith(word) for word in sys.argv[2:])]
    tap = Tap(len(chosen))
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        try:
            for (name, _), why in zip(chosen, pool.map(run_row, (run for _, run in chosen))):
                tap.result(name, why)
        except BaseException:
            OVER.set()
            raise
    return tap.ends()


sys.exit(main())
