#!/usr/bin/python3
"""The program rlock as its users meet it: in scripts, in a terminal, as an election, and while everything fails.

    tests/cli.py build/cli/rlock build/tests/beat [NAME...]        the suite, or those tests whose names begin so
    tests/cli.py build/cli/rlock build/tests/beat chaos ROUNDS     so many faults

Prints TAP. Commands are tests/beat.c: each writes down every 2 ms that it runs, and a checker reads whether two ran at a
time. Assumed, as docs/guarantees.md has it: clocks run at the same rate; a server that is killed has its data when it is
back; nobody stops rlock and its keeper both, or kills both with -9 (then only the command itself is ended, by the kernel;
what that started is not). A lock that is stolen, deleted or forgotten is outside: there the test is how soon the command
is ended.

$RLOCK_REDIS_SERVER names another redis-server. $RLOCK_CLI_SCALE makes leases, and what is waited for, so many times
longer: for a machine that is busy, or a program with sanitizers.
"""

import concurrent.futures
import ctypes
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import redis

RLOCK, BEAT = (os.path.abspath(path) for path in sys.argv[1:3])
SCALE = float(os.environ.get("RLOCK_CLI_SCALE") or 1)
LEASE_S = 1.0 * SCALE
SOON_S = 5 * SCALE  # what takes milliseconds on a machine that is idle
LOST, BUSY, FAILED, NOT_RUN, NOT_FOUND = 123, 124, 125, 126, 127
LIBC = ctypes.CDLL(None)
PDEATHSIG, SUBREAPER = 1, 36  # of prctl


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def dies_with_parent():
    LIBC.prctl(PDEATHSIG, signal.SIGKILL)


def until(what, seconds, done):
    deadline = now() + seconds
    while True:
        value = done()
        if value:
            return value
        if now() > deadline:
            raise AssertionError(f"not within {seconds:.1f} s: {what}")
        time.sleep(0.005)


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def state(pid):
    """R, S, T (stopped), Z, ..., or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def runs(pid):
    return state(pid) not in (None, "Z", "X")


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def ms(seconds):
    return f"{seconds * 1000:.0f}ms"


class Server:
    """A private server on a unix socket in its own folder; what it has written survives kill -9."""

    def __init__(self, folder):
        self.folder = tempfile.mkdtemp(dir=folder, prefix="s")
        self.socket = os.path.join(self.folder, "s")
        self.url = "unix://" + self.socket
        self.start()

    def start(self):
        program = os.environ.get("RLOCK_REDIS_SERVER") or "redis-server"
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [program, "--daemonize", "no", "--port", "0", "--dir", self.folder, "--unixsocket", self.socket,
                 "--save", "", "--appendonly", "yes", "--appendfsync", "no"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=dies_with_parent)
        self.redis = redis.Redis(unix_socket_path=self.socket)
        until("a server", 30 * SCALE, self.answers)

    def answers(self):
        assert self.process.poll() is None, "the server did not start"
        try:
            return self.redis.ping()
        except redis.RedisError:
            return False

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Network:
    """Between a machine and the server: while it is cut, what it reads is gone."""

    def __init__(self, folder, server):
        self.server, self.cut, self.sockets = server, False, []
        self.path = tempfile.mktemp(dir=folder, prefix="n")
        self.url = "unix://" + self.path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, far = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
            except OSError:
                return
            try:
                far.connect(self.server.socket)
            except OSError:
                near.close()
                continue
            self.sockets += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=(a, b), daemon=True).start()

    def pump(self, a, b):
        try:
            while data := a.recv(65536):
                if not self.cut:
                    b.sendall(data)
            if not self.cut:
                b.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        finally:
            a.close()

    def stop(self):
        self.listener.close()
        for each in self.sockets:
            each.close()


class Machine:
    """One rlock, which was started."""

    def __init__(self, process):
        self.process, self.pid = process, process.pid

    def keeper(self):
        return (children(self.pid) or [0])[0]

    def command(self):
        keeper = self.keeper()
        return (children(keeper) or [0])[0] if keeper else 0

    def ends(self, seconds=None):
        return self.process.wait(seconds or SOON_S)

    def signal(self, number):
        self.process.send_signal(number)


class Place:
    """What a test has: a folder, a key, the common server, and all that it starts, which ends with it."""

    def __init__(self, name, folder, server):
        self.name, self.server = name, server
        self.folder = tempfile.mkdtemp(dir=folder, prefix="t")
        self.log = os.path.join(self.folder, "beats")
        self.key = name
        self.things = []

    def own_server(self):
        self.server = Server(self.folder)
        self.things.append(self.server)
        return self.server

    def network(self):
        self.things.append(Network(self.folder, self.server))
        return self.things[-1]

    def popen(self, arguments, url=None, **more):
        env = dict(os.environ, RLOCK_URL=url or self.server.url, BEAT_LOG=self.log, **more.pop("env", {}))
        before = more.pop("before", lambda: None)

        def begin():
            dies_with_parent()
            before()

        more.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen(arguments, env=env, preexec_fn=begin, start_new_session=True, **more)
        self.things.append(process)
        return Machine(process)

    def rlock(self, *arguments, **more):
        return self.popen([RLOCK, *arguments], **more)

    def says(self, *arguments, **more):
        """Runs rlock to its end: exit status, standard output, standard error."""
        machine = self.rlock(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        out, err = machine.process.communicate(timeout=4 * SOON_S)
        return machine.process.returncode, out, err

    def beats(self, *words, options=(), lease=LEASE_S, **more):
        """Starts a command that writes down when it runs."""
        more.setdefault("stderr", subprocess.DEVNULL)
        return self.rlock("--lease", ms(lease), *options, self.key, "--", BEAT, self.log, *words, **more)

    def runs(self):
        """Of each run of the command: when it began and was last seen, its processes; in their order."""
        found = {}
        try:
            with open(self.log, encoding="ascii") as file:
                lines = file.read().split("\n")[:-1]
        except FileNotFoundError:
            lines = []
        for line in lines:
            at, name, pid = line.split()
            at = int(at) / 1e6
            run = found.setdefault(name, [at, at, set()])
            run[0], run[1] = min(run[0], at), max(run[1], at)
            run[2].add(int(pid))
        return sorted(found.values(), key=lambda run: run[0])

    def began(self, count, seconds=None):
        return until(f"{count} runs of the command", seconds or SOON_S,
                     lambda: len(self.runs()) >= count and self.runs())

    def overlap(self):
        """The longest time that two runs ran together: below 0 if none did."""
        worst, last = -1e9, -1e9
        for first, end, _ in self.runs():
            worst, last = max(worst, last - first), max(last, end)
        return worst

    def alone(self):
        assert self.overlap() <= 0, f"two commands at a time, for {self.overlap() * 1000:.1f} ms"

    def all_gone(self, run, seconds):
        until("the end of all processes of the command", seconds, lambda: not any(map(runs, run[2])))

    def close(self):
        for thing in self.things:
            if isinstance(thing, subprocess.Popen):
                if thing.poll() is None:
                    send(thing.pid, signal.SIGCONT)
                    keeper = (children(thing.pid) or [0])[0]
                    thing.kill()
                    if keeper:
                        send(keeper, signal.SIGCONT)
                    thing.wait()
                for pipe in (thing.stdin, thing.stdout, thing.stderr):
                    if pipe:
                        pipe.close()
        for thing in self.things:
            if not isinstance(thing, subprocess.Popen):
                if isinstance(thing, Server):
                    send(thing.process.pid, signal.SIGCONT)
                thing.stop()


TESTS = []


def test(function):
    TESTS.append(function)
    return function


class NotApplicable(Exception):
    pass


# ---- in scripts ----


@test
def exit_status_is_that_of_the_command(place):
    for script, status in (("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)):
        code = place.popen(["sh", "-c", '"$0" "$1" -- sh -c "$2"; exit $?', RLOCK, place.key, script]).ends()
        assert code == status, (script, code)
    assert place.says(place.key, "--", "/no/such/command")[0] == NOT_FOUND
    code, _, err = place.says(place.key, "--", place.folder)
    assert code == NOT_RUN and "ermission denied" in err, (code, err)
    assert not place.server.redis.exists(place.key)


@test
def command_knows_its_key_and_a_fence_that_rises(place):
    fences = []
    for _ in range(3):
        code, out, _ = place.says("-k", "other", place.key, "--", "sh", "-c", 'echo "$RLOCK_KEY $RLOCK_FENCE"')
        key, fence = out.split()
        assert code == 0 and key == place.key
        fences.append(int(fence))
    assert fences[0] < fences[1] < fences[2], fences


@test
def fence_is_written_into_a_file(place):
    path = os.path.join(place.folder, "fence")
    code, out, _ = place.says("--fence-file", path, place.key, "--", "sh", "-c", f'cat {path}; echo "$RLOCK_FENCE"')
    assert code == 0 and len(set(out.split())) == 1 and len(out.split()) == 2, out
    code, out, err = place.says("--fence-file", "/no/such/folder/file", place.key, "--", "echo", "ran")
    assert code == FAILED and out == "" and "--fence-file" in err, (code, out, err)


@test
def try_and_wait_end_with_124_and_the_next_one_gets_it(place):
    holder = place.beats()
    place.began(1)
    start = now()
    assert place.says("--try", place.key, "--", "echo", "ran")[:2] == (BUSY, "")
    assert place.says("--wait", "300ms", place.key, "--", "echo", "ran")[:2] == (BUSY, "")
    assert now() - start >= 0.3
    waiter = place.beats("for", "20", options=("--wait", "1h"))
    time.sleep(0.1)
    holder.signal(signal.SIGTERM)
    assert holder.ends() == -signal.SIGTERM or holder.process.returncode == 143
    assert waiter.ends() == 7
    place.alone()


@test
def several_keys_are_had_together_or_not_at_all(place):
    place.rlock("b" + place.key, "--", "sleep", "60")
    until("the key", SOON_S, lambda: place.server.redis.exists("b" + place.key))
    assert place.says("-n", "-k", "b" + place.key, place.key, "--", "true")[0] == BUSY
    assert not place.server.redis.exists(place.key)
    assert place.says("-n", "-k", "c" + place.key, place.key, "--", "true")[0] == 0


@test
def kinds_hold_together_as_they_should(place):
    r, hold = place.server.redis, ("--", "sh", "-c", "echo; exec sleep 60")
    for first, second, third in ((("read",), ("read",), ("write",)),
                                 (("semaphore", "--permits", "2"), ("semaphore", "--permits", "2"),
                                  ("semaphore", "--permits", "2")),
                                 (("semaphore", "--permits", "3", "--weight", "2"),
                                  ("semaphore", "--permits", "3"), ("semaphore", "--permits", "3"))):
        key = place.key + str(len(place.things))
        holders = [place.rlock("--try", "--kind", *kind, key, *hold, stdout=subprocess.PIPE) for kind in (first, second)]
        for holder in holders:
            assert holder.process.stdout.readline() == b"\n", (first, second)
        code, _, err = place.says("--try", "--kind", *third, key, "--", "true")
        assert code == BUSY, (third, code, err)
        for holder in holders:
            holder.signal(signal.SIGTERM)
            holder.ends()
        assert place.says("--try", "--kind", *third, key, "--", "true")[0] == 0
    code, _, err = place.says("--kind", "fair", place.key, "--", "true")
    assert code == 0, err
    r.set("s" + place.key, "1")
    code, _, err = place.says("--kind", "fair", "s" + place.key, "--", "true")
    assert code == FAILED and "--kind" in err, (code, err)


@test
def quorum_of_three_servers_bears_the_loss_of_one(place):
    servers = [Server(place.folder) for _ in range(3)]
    place.things += servers
    urls = ",".join(server.url for server in servers)
    servers[0].stop()
    options = ("--quorum", urls, "--lease", ms(LEASE_S))
    code, out, err = place.says(*options, place.key, "--", "sh", "-c", 'echo "fence=$RLOCK_FENCE"')
    assert code == 0 and out == "fence=\n", (code, out, err)
    servers[1].stop()
    code, _, err = place.says("--wait", "300ms", *options, place.key, "--", "true")
    assert code == FAILED and err, (code, err)


@test
def each_wrong_option_is_told_with_its_cure(place):
    key = place.key
    for arguments, words in (
            ((), "which key"), ((key,), "which command"), ((key, "--"), "which command"),
            (("--bogus", key, "--", "true"), "bogus"), (("--wait",), "requires an argument"),
            (("--wait", "soon", key, "--", "true"), "not a duration"), (("-l", "1ms", key, "--", "true"), "--lease 1ms"),
            (("--lease", "2d", key, "--", "true"), "--lease 2d"), (("--kind", "big", key, "--", "true"), "mutex, fair"),
            (("--permits", "0", key, "--", "true"), "--permits 0"), (("--weight", "x", key, "--", "true"), "--weight x"),
            (("--url", "http://x", key, "--", "true"), "url"), (("--quorum", ",", key, "--", "true"), "three"),
            (("--weight", "2", key, "--", "true"), ""), (("--url", "unix:///no/socket", "-n", key, "--", "true"), "RLOCK_URL"),
            (("-w", "200ms", "--url", "redis://127.0.0.1:1", key, "--", "true"), "RLOCK_URL")):
        code, out, err = place.says(*arguments)
        assert code == FAILED and out == "" and err and words in err, (arguments, code, out, err)
        assert all(len(line) < 200 for line in err.splitlines()), err
    for word in ("--help", "--version"):
        code, out, err = place.says(word)
        assert code == 0 and "rlock" in out and err == "", (word, code, out, err)


@test
def descriptors_pass_through(place):
    read, write = os.pipe()
    machine = place.rlock(place.key, "--", "bash", "-c", f"cat; echo err >&2; echo more >&{write}; exit 5",
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(write,))
    os.close(write)
    out, err = machine.process.communicate(b"in\0put", timeout=2 * SOON_S)
    assert (machine.process.returncode, out, err) == (5, b"in\0put", b"err\n")
    assert os.read(read, 100) == b"more\n" and os.read(read, 100) == b""
    os.close(read)
    fds = place.says(place.key, "--", "sh", "-c", "ls /proc/$$/fd")[1].split()
    assert set(fds) <= {"0", "1", "2", "3", "10", "255"}, fds


@test
def lock_stays_until_what_the_command_left_is_gone(place):
    left = place.beats("leave", str(int(500 * SCALE)))
    place.began(1)
    other = place.beats("for", "10")
    assert left.ends() == 7 and other.ends() == 7
    place.alone()
    run = place.runs()[0]
    assert run[1] - run[0] > 0.4 * SCALE, run


@test
def signals_are_passed_on(place):
    names = ("HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "TERM")
    script = "".join(f'trap "echo {name}" {name}; ' for name in names) + "echo ready; while :; do sleep 0.02; done"
    machine = place.rlock(place.key, "--", "sh", "-c", script, stdout=subprocess.PIPE, text=True)
    assert machine.process.stdout.readline() == "ready\n"
    for name in names:
        machine.signal(getattr(signal, "SIG" + name))
        assert machine.process.stdout.readline() == name + "\n"
    assert machine.process.poll() is None


@test
def who_is_ended_while_it_waits_leaves_nothing_at_the_server(place):
    r = place.server.redis
    for kind in ("mutex", "fair"):
        key = place.key + kind
        holder = place.rlock("--kind", kind, key, "--", "sh", "-c", "echo; exec sleep 60", stdout=subprocess.PIPE)
        holder.process.stdout.readline()

        def kept():
            return sorted(name for name in r.keys("*" + key + "*"))

        before, clients = kept(), len(r.client_list())
        waiter = place.rlock("--kind", kind, key, "--", "echo", "ran", stdout=subprocess.PIPE)
        until("its connection", SOON_S, lambda: len(r.client_list()) > clients)
        if kind == "fair":
            until("the queue", SOON_S, lambda: kept() != before)
        waiter.signal(signal.SIGTERM)
        assert waiter.ends() in (-signal.SIGTERM, 143) and waiter.process.stdout.read() == b""
        until("the waiter is gone", SOON_S, lambda: kept() == before)


# ---- faults ----

FIERCE = ("ignore", "away", "forks")


class Fault:
    """A machine whose command does all to live on, another one that waits, and what happens between them."""

    def __init__(self, place, *words, url=None):
        self.place = place
        self.one = place.beats(*words, url=url)
        place.began(1)
        want = 1 + ("away" in words) + ("forks" in words)
        until("its processes", SOON_S, lambda: len(place.runs()[0][2]) >= want)
        self.keeper, self.command = self.one.keeper(), self.one.command()
        self.two = place.beats("for", "20")
        time.sleep(0.1)
        self.at = now()

    def over(self, within, next_within):
        """All processes of the first have ended within a time from the fault, and the second ran, later."""
        try:
            assert self.two.ends(next_within + SOON_S) == 7
            runs_of = self.place.runs()
            took = runs_of[1][0] - self.at
            assert took <= next_within, f"the next one began after {took:.3f} s"
            assert runs_of[0][1] - self.at <= within, f"the command lived for {runs_of[0][1] - self.at:.3f} s"
            self.place.all_gone(runs_of[0], SOON_S)
        finally:
            self.place.alone()


# What is done; how long the command may live on, and how long until the next one runs, in leases and seconds.
@test
def rlock_is_killed(place):
    for words in ((), FIERCE):
        place.log += "x"
        fault = Fault(place, *words)
        fault.one.signal(signal.SIGKILL)
        fault.over(LEASE_S, LEASE_S + SCALE)


@test
def rlock_is_stopped(place):
    fault = Fault(place, *FIERCE)
    fault.one.signal(signal.SIGSTOP)
    fault.over(LEASE_S, LEASE_S + SCALE)
    fault.one.signal(signal.SIGCONT)
    assert fault.one.ends() == LOST


@test
def keeper_is_killed(place):
    fault = Fault(place, *FIERCE)
    send(fault.keeper, signal.SIGKILL)
    assert fault.one.ends() == FAILED
    fault.over(LEASE_S, LEASE_S + SCALE)


@test
def command_is_killed(place):
    fault = Fault(place)
    send(fault.command, signal.SIGKILL)
    assert fault.one.ends() in (-signal.SIGKILL, 137)
    fault.over(SOON_S, SOON_S)


@test
def command_that_is_stopped_keeps_the_lock(place):
    fault = Fault(place)
    send(fault.command, signal.SIGSTOP)
    time.sleep(2 * LEASE_S)
    assert len(place.runs()) == 1
    send(fault.command, signal.SIGCONT)
    at = now()
    until("a beat", SOON_S, lambda: place.runs()[0][1] > at)
    fault.one.signal(signal.SIGTERM)
    fault.over(SOON_S + 2 * LEASE_S, SOON_S + 2 * LEASE_S)


@test
def server_stops_and_goes_on(place):
    server = place.own_server()
    fault = Fault(place, *FIERCE)
    server.signal(signal.SIGSTOP)
    assert fault.one.ends() == LOST
    place.all_gone(place.runs()[0], SOON_S)
    server.signal(signal.SIGCONT)
    fault.over(LEASE_S, LEASE_S + SOON_S)


@test
def server_is_killed_and_comes_back_with_its_data(place):
    server = place.own_server()
    fault = Fault(place, *FIERCE)
    server.stop()
    assert fault.one.ends() == LOST
    server.start()
    fault.over(LEASE_S, LEASE_S + 2 * SOON_S)


@test
def hold_survives_a_short_absence_of_the_server(place):
    server = place.own_server()
    fault = Fault(place)
    server.signal(signal.SIGSTOP)
    time.sleep(0.15 * LEASE_S)
    server.signal(signal.SIGCONT)
    time.sleep(1.2 * LEASE_S)
    assert len(place.runs()) == 1 and fault.one.process.poll() is None


@test
def network_is_gone(place):
    network = place.network()
    fault = Fault(place, *FIERCE, url=network.url)
    network.cut = True
    assert fault.one.ends() == LOST
    fault.over(LEASE_S, LEASE_S + SCALE)


@test
def command_that_obeys_has_time_to_end_before_the_deadline(place):
    network = place.network()
    code = 'trap "echo asked; exit 9" TERM; echo ready; while :; do sleep 0.02; done'
    machine = place.rlock("--lease", ms(2 * LEASE_S), place.key, "--", "sh", "-c", code, url=network.url,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert machine.process.stdout.readline() == "ready\n"
    network.cut = True
    out, err = machine.process.communicate(timeout=2 * SOON_S)
    assert out == "asked\n" and machine.process.returncode == LOST and "lost" in err, (out, err)


@test
def lock_is_stolen_deleted_or_forgotten(place):
    for how in ("stolen", "deleted", "forgotten"):
        server = place.own_server()
        place.log += "x"
        machine = place.beats(*FIERCE)
        place.began(1)
        time.sleep(1.1)  # a push connection is made by then
        at = now()
        if how == "stolen":
            server.redis.set(place.key, "mine")
        elif how == "deleted":
            server.redis.delete(place.key)
        else:
            server.stop()
            for name in os.listdir(server.folder):
                if name.startswith("append"):
                    shutil.rmtree(os.path.join(server.folder, name), ignore_errors=True)
            server.start()
            server.redis.set(place.key, "mine")
        assert machine.ends() == LOST, how
        run = place.runs()[0]
        assert run[1] - at < (LEASE_S if how == "forgotten" else 0.5 * SCALE), (how, run[1] - at)
        place.all_gone(run, SOON_S)
        if how != "deleted":
            assert server.redis.get(place.key) == b"mine"


# ---- all of it ----


def run_one(function, folder, server):
    place = Place(function.__name__, folder, server)
    try:
        function(place)
        return None
    except NotApplicable as reason:
        return reason
    except Exception as error:  # a failed test must not hide the others
        return "".join(traceback.format_exception(error))
    finally:
        place.close()


def end_all():
    """Nothing that a test started lives on: who is left is a child of this process, which is a subreaper."""
    deadline = now() + 10
    while now() < deadline:
        left = children(os.getpid())
        if not left:
            return
        for pid in left:
            send(pid, signal.SIGKILL)
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
        time.sleep(0.01)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started goes too
    LIBC.prctl(SUBREAPER, 1)
    names = tuple(sys.argv[3:])
    wanted = [function for function in TESTS if not names or function.__name__.startswith(names)]
    folder = tempfile.mkdtemp(prefix="rlock-cli-")
    failed = 0
    pool = concurrent.futures.ThreadPoolExecutor(8)
    try:
        server = Server(folder)
        print(f"1..{len(wanted)}", flush=True)
        started = [pool.submit(run_one, function, folder, server) for function in wanted]
        for number, (function, future) in enumerate(zip(wanted, started), 1):
            result = future.result()
            if isinstance(result, NotApplicable):
                print(f"not applicable: {function.__name__}, {result}")
                result = None
            failed += result is not None
            print(f"{'not ok' if result else 'ok'} {number} - {function.__name__}", flush=True)
            for line in (result or "").splitlines():
                print("#", line, flush=True)
        server.stop()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_all()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
