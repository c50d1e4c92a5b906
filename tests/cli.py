#!/usr/bin/python3
"""The program rlock as its users meet it: in scripts, in a terminal, as an election, and while everything fails.

    tests/cli.py build/cli/rlock build/tests/beat [NAME...]        the suite, or those tests whose names begin so
    tests/cli.py build/cli/rlock build/tests/beat chaos ROUNDS     so many faults

Prints TAP. Commands are tests/beat.c: each writes down every 2 ms that it runs, and a checker reads whether two ran at a
time. Assumed, as docs/guarantees.md has it: clocks run at the same rate; a server that is killed has its data when it is
back; nobody stops rlock and its keeper both, or kills both with -9 (then only the command itself is ended, by the kernel;
what that started is not). A lock that is stolen, deleted or forgotten is outside: there the test is how soon the command
is ended.

Leases, and what is waited for, are as many times longer as the machine is slower than usual when the tests begin, or
$RLOCK_CLI_SCALE times, as for a program with sanitizers.
"""

import concurrent.futures
import datetime
import errno
import fcntl
import functools
import glob
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
import traceback

from fixture import (OVER, TESTS, NotApplicable, Redis, Tap, adopts_orphans, children, dies_with_parent, ends_when_told,
                     failure, hears_signals, now, send, slowness, state, test, until)

RLOCK, BEAT = (os.path.abspath(path) for path in sys.argv[1:3])
SCALE = float(os.environ.get("RLOCK_CLI_SCALE") or slowness())
LEASE_S = 1.0 * SCALE
SOON_S = 5 * SCALE  # what takes milliseconds on a machine that is idle
LOST, BUSY, FAILED, NOT_RUN, NOT_FOUND = 123, 124, 125, 126, 127
ROUNDS = int(([word for word in sys.argv[3:] if word.isdigit()] or [20])[0])  # the faults of the chaos
JOBS = 2 * (os.cpu_count() or 1)  # tests at a time


def runs(pid, log):
    """True if a process is there and beats into this log: its number may have become another's."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return f"{BEAT}\0{log}\0".encode() in file.read() + b"\0"
    except OSError:
        return False


def copy(program, path):
    """By a process of its own: what another thread starts meanwhile has no descriptor that writes it, and it can be run."""
    subprocess.run(["cp", program, path], check=True)


def ms(seconds):
    return f"{seconds * 1000:.0f}ms"


def patient(url, seconds):
    """The same server, which may take so long to answer a request. The URL of another engine cannot say that."""
    return f"{url}?command_timeout_ms={seconds * 1000:.0f}" if url.startswith("unix:") else url


class Server(Redis):
    """What it has written survives kill -9."""

    def __init__(self, folder):
        super().__init__("--appendonly", "yes", "--appendfsync", "no", folder=folder, seconds=30 * SCALE)


class Network:
    """Between a machine and the server, which is at a path or at (host, port): while it is cut, what it reads is gone."""

    def __init__(self, folder, server):
        self.server, self.cut, self.sockets = server, False, []
        self.slow = 0  # seconds that each answer takes
        self.late, self.late_until = None, 0  # these bytes, and how late all answers are after they were sent
        self.family = socket.AF_UNIX if isinstance(server.socket, str) else socket.AF_INET
        path = tempfile.mktemp(dir=folder, prefix="n")
        self.listener = socket.socket(self.family)
        self.listener.bind(path if self.family == socket.AF_UNIX else ("127.0.0.1", 0))
        self.listener.listen()
        self.url = "unix://" + path if self.family == socket.AF_UNIX else self.url_at(self.listener.getsockname()[1])
        threading.Thread(target=self.accept, daemon=True).start()

    def url_at(self, port):
        return getattr(self.server, "url_at", "http://127.0.0.1:%d".__mod__)(port)

    def accept(self):
        while True:
            try:
                near, far = self.listener.accept()[0], socket.socket(self.family)
            except OSError:
                return
            try:
                far.connect(self.server.socket)
            except OSError:
                near.close()
                far.close()
                continue
            self.sockets += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=(a, b, a is far), daemon=True).start()

    def pump(self, a, b, back):
        try:
            while data := a.recv(65536):
                if self.late and self.late[0] in data:
                    self.late_until, self.late = now() + self.late[1], None
                elif back:
                    time.sleep(max(self.slow, self.late_until - now()))
                if not self.cut:
                    b.sendall(data)
            if not self.cut:
                b.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        finally:
            a.close()

    def drop(self):
        sockets, self.sockets = self.sockets, []
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stop(self):
        self.listener.close()
        self.drop()


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

    def ends_with(self, status):
        ended = self.ends()
        assert ended == status, f"it ended with {ended}, not with {status}"

    def signal(self, number):
        self.process.send_signal(number)


class Place:
    """What a test has: a folder, a key, the common server, and all that it starts, which ends with it."""

    def __init__(self, name, folder, server):
        self.name, self.server = name, server
        self.folder = tempfile.mkdtemp(dir=folder, prefix="t")
        self.log, self.said = (os.path.join(self.folder, name) for name in ("beats", "stderr"))
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

    def says_with(self, arguments, variables):
        """The same with these variables alone of those that name servers."""
        env = {name: text for name, text in os.environ.items() if name not in ("RLOCK_URL", "RLOCK_QUORUM")}
        done = subprocess.run(arguments, env={**env, **variables}, capture_output=True, text=True, timeout=4 * SOON_S,
                              stdin=subprocess.DEVNULL, preexec_fn=dies_with_parent, check=False)
        return done.returncode, done.stdout, done.stderr

    def beats(self, *words, options=(), lease=LEASE_S, **more):
        """Starts a command that writes down when it runs."""
        with open(self.said, "ab") as said:
            more.setdefault("stderr", said)
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
        until("the end of all processes of the command", seconds, lambda: not any(runs(pid, self.log) for pid in run[2]))

    def told(self):
        """What the machines of a test that failed wrote on standard error."""
        if not os.path.exists(self.said):
            return ""
        with open(self.said, encoding="utf-8", errors="replace") as file:
            return "standard error:\n" + file.read()

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
                    thing.signal(signal.SIGCONT)
                thing.stop()


def in_a_namespace():
    """What begins a program as the first process of a namespace."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run(unshare + ["true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise NotApplicable("no namespaces")
    return unshare


def alone(function):
    """The test chooses numbers of processes. What is tested beside it would get numbers that were free only just now, and
    signals that were meant for others: it has a namespace of its own."""
    @functools.wraps(function)
    def begin(place):
        if os.getpid() == 1:
            return function(place)
        done = subprocess.run([*in_a_namespace(), sys.executable, __file__, RLOCK, BEAT, function.__name__],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=dies_with_parent,
                              check=False)
        skipped = re.search("^not applicable: .*?, (.*)", done.stdout, re.M)
        if skipped:
            raise NotApplicable(skipped[1])
        assert done.returncode == 0, done.stdout
    return begin


# ---- in scripts ----


@test
def exit_status_is_that_of_the_command(place):
    for script, status in (("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)):
        code = place.popen(["sh", "-c", '"$0" "$1" -- sh -c "$2"; exit $?', RLOCK, place.key, script],
                           stderr=subprocess.DEVNULL).ends()
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
def server_without_tls_is_spoken_to_without_reading_the_systems_certificates(place):
    pipe = os.path.join(place.folder, "certificates")  # whoever opens it waits for a writer
    os.mkfifo(pipe)
    for parameters in ("", "?wire=redisson"):  # which has the letters of rediss in it
        code, out, err = place.says(place.key, "--", "echo", "ran", url=place.server.url + parameters,
                                    env={"SSL_CERT_FILE": pipe})
        assert (code, out) == (0, "ran\n"), (code, out, err)


@test
def server_that_refuses_is_not_said_to_be_away(place):
    full, replica = place.own_server(), place.own_server()
    full.redis.config_set("maxclients", 1)  # which that connection is
    replica.redis.replicaof("127.0.0.1", 1)
    for server, words in ((full, "max number of clients reached"), (replica, "replica")):
        code, out, err = place.says("-n", place.key, "--", "echo", "ran", url=server.url)
        assert (code, out) == (FAILED, "") and words in err and "Is the server running" not in err, (code, out, err)
    replica.kill()
    code, out, err = place.says("-n", place.key, "--", "echo", "ran", url=replica.url)
    assert (code, out) == (FAILED, "") and "Is the server running" in err, (code, out, err)


@test
def fence_is_written_into_a_file(place):
    path = os.path.join(place.folder, "fence")
    code, out, _ = place.says("--fence-file", path, place.key, "--", "sh", "-c", f'cat {path}; echo "$RLOCK_FENCE"')
    assert code == 0 and len(set(out.split())) == 1 and len(out.split()) == 2, out
    code, out, err = place.says("--fence-file", "/no/such/folder/file", place.key, "--", "echo", "ran")
    assert code == FAILED and out == "" and "--fence-file" in err, (code, out, err)


@test
def fence_file_is_replaced_so_that_a_reader_sees_a_whole_number(place):
    path, link = os.path.join(place.folder, "fence"), os.path.join(place.folder, "link")
    os.symlink("fence", link)
    assert place.says("--fence-file", path, place.key, "--", "true")[0] == 0
    os.chmod(path, 0o640)
    with open(path, encoding="ascii") as early:
        assert place.says("--fence-file", link, place.key, "--", "true")[0] == 0
        first = early.read()  # what was opened before is not written into
    with open(path, encoding="ascii") as file:
        assert int(file.read()) > int(first)
    assert os.path.islink(link) and os.stat(path).st_mode & 0o777 == 0o640
    assert sorted(os.listdir(place.folder)) == ["fence", "link"]


@test
def fence_file_that_is_a_pipe_is_written_if_it_is_read_and_is_reported_if_not(place):
    path = os.path.join(place.folder, "pipe")
    os.mkfifo(path)
    code, out, err = place.says("--fence-file", path, place.key, "--", "echo", "ran")
    assert code == FAILED and out == "" and "no process reads" in err, (code, out, err)
    assert not place.server.redis.exists(place.key)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    code, out, err = place.says("--fence-file", path, place.key, "--", "sh", "-c", 'echo "$RLOCK_FENCE"')
    assert code == 0 and os.read(reader, 100).decode() == out, (code, out, err)
    os.close(reader)
    code, out, _ = place.says("--fence-file", "/dev/stdout", place.key, "--", "sh", "-c", 'echo "$RLOCK_FENCE"')
    assert code == 0 and len(out.split()) == 2 and len(set(out.split())) == 1, out


@test
def fence_file_that_is_a_link_is_written_where_it_leads_also_to_what_is_not_there_yet(place):
    os.mkdir(os.path.join(place.folder, "there"))
    link, between, file = (os.path.join(place.folder, name) for name in ("link", "there/between", "file"))
    os.symlink("there/between", link)
    os.symlink("../file", between)
    assert place.says("--fence-file", link, place.key, "--", "true")[0] == 0
    with open(file, encoding="ascii") as written:
        assert int(written.read()) > 0
    assert os.path.islink(link) and os.path.islink(between) and not os.path.islink(file)
    loop = os.path.join(place.folder, "loop")
    os.symlink("loop", loop)
    code, out, err = place.says("--fence-file", loop, place.key, "--", "echo", "ran")
    assert code == FAILED and out == "" and "symbolic links" in err, (code, out, err)
    assert os.path.islink(loop) and sorted(os.listdir(place.folder)) == ["file", "link", "loop", "there"]


@test
def fence_file_that_is_a_descriptor_is_written_after_what_is_there(place):
    path, words = os.path.join(place.folder, "log"), ("sh", "-c", 'echo "$RLOCK_FENCE"')
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        with open(path, "w", encoding="ascii") as log:
            log.write("before\n")
        with open(path, "a", encoding="ascii") as log:
            place.rlock("--fence-file", name, place.key, "--", *words, stdout=log).ends_with(0)
        with open(path, encoding="ascii") as log:
            lines = log.read().split()
        assert len(lines) == 3 and lines[0] == "before" and lines[1] == lines[2], (name, lines)
    ours, its = socket.socketpair()  # as standard output is under systemd
    with ours, its:
        place.rlock("--fence-file", "/dev/stdout", place.key, "--", "true", stdout=its).ends_with(0)
        assert int(ours.recv(100)) > 0


def full(read, write):
    """Nobody reads it, and a write would wait."""
    os.set_blocking(write, False)
    try:
        while os.write(write, b"x" * 65536):
            pass
    except BlockingIOError:
        pass
    os.set_blocking(write, True)
    return read, write


@test
def standard_error_that_nobody_reads_stops_nothing(place):
    for read, write in (full(*os.pipe()), full(*(pipe.detach() for pipe in socket.socketpair()))):
        machine = place.rlock("-v", place.key, "--", "echo", "ran", stderr=write, stdout=subprocess.PIPE)
        out, _ = machine.process.communicate(timeout=SOON_S)
        assert (machine.process.returncode, out) == (0, b"ran\n")
        place.log += "x"
        machine = place.beats(options=("-v",), stderr=write)
        place.began(1)
        place.server.redis.delete(place.key)
        machine.ends_with(LOST)
        place.rlock(place.key, "--", "/no/such/command", stderr=write).ends_with(NOT_FOUND)
        os.close(read)
        os.close(write)


@test
def slow_reader_of_standard_error_gets_all(place):
    read, write = full(*os.pipe())
    machine = place.rlock(place.key, "--", "/no/such/command", stderr=write)
    os.close(write)
    until("the command", SOON_S, lambda: state(machine.pid) in ("Z", None) or children(machine.pid))
    text = b""
    while data := os.read(read, 65536):
        text += data
    os.close(read)
    machine.ends_with(NOT_FOUND)
    assert b"/no/such/command: No such file" in text, text.lstrip(b"x")


@test
def try_and_wait_end_with_124_and_the_next_one_gets_it(place):
    holder = place.beats()
    place.began(1)
    start = now()
    assert place.says("--try", place.key, "--", "echo", "ran")[:2] == (BUSY, "")
    assert place.says("--wait", ms(SCALE), place.key, "--", "echo", "ran")[:2] == (BUSY, "")
    assert now() - start >= SCALE
    waiter = place.beats("for", "20", options=("--wait", "1h"))
    time.sleep(0.1)
    holder.signal(signal.SIGTERM)
    holder.ends_with(-signal.SIGTERM)
    waiter.ends_with(7)
    place.alone()


@test
def several_keys_are_had_together_or_not_at_all(place):
    place.rlock("b" + place.key, "--", "sleep", "60")
    until("the key", SOON_S, lambda: place.server.redis.exists("b" + place.key))
    assert place.says("-n", "-k", "b" + place.key, place.key, "--", "true")[0] == BUSY
    assert not place.server.redis.exists(place.key)
    assert place.says("-n", "-k", "c" + place.key, place.key, "--", "true")[0] == 0


# ---- in steps ----


@test
def token_of_one_shell_is_renewed_in_a_second_and_released_in_a_third(place):
    for kind in ((), ("--kind", "fair"), ("--kind", "semaphore", "--permits", "1"), ("-k", "also" + place.key)):
        key = place.key + "-".join(kind)
        code, token, err = place.says("acquire", "--lease", "1h", *kind, key)
        assert code == 0 and re.fullmatch(r"[0-9a-f-]{36}:\d+:[1-9]\d*\n", token) and not err, (kind, code, token, err)
        assert place.says("--try", *kind, key, "--", "true")[0] == BUSY, kind
        assert place.says("acquire", "--try", *kind, key)[:2] == (BUSY, ""), kind
        code, out, err = place.says("renew", "--lease", "2h", "--json", *kind, key, token.strip())
        assert code == 0, (kind, err)
        assert json.loads(out) == {"key": key, "token": token.strip(), "fence": int(token.split(":")[2]), "lease_ms": 7200000}
        assert place.says("renew", "--lease", "10s", *kind, key, token.strip())[:2] == (0, ""), kind
        left_ms = json.loads(place.says("--json", "inspect", *kind[:4], key)[1])["left_ms"] if "-k" not in kind else 7000000
        assert left_ms > 3600000, (kind, left_ms)  # a shorter lease than it has makes it no shorter
        assert place.says("--try", *kind, key, "--", "true")[0] == BUSY, kind
        assert place.says("release", *kind, key, token.strip()) == (0, "", ""), kind
        assert place.says("--try", *kind, key, "--", "true")[0] == 0, kind
        for step in ("renew", "release"):
            code, out, err = place.says(step, *kind, key, token.strip())
            assert (code, out) == (LOST, "") and "not held with this token" in err, (kind, step, code, out, err)
        assert place.says("--try", *kind, key, "--", "true")[0] == 0, kind


@test
def key_that_begins_with_a_hyphen_is_taken_by_each_subcommand_that_takes_one(place):
    key = "-" + place.key
    token = place.says("acquire", "--lease", "1h", "-k", key)[1].strip()
    assert place.says("renew", "-k", key, token)[0] == 0
    code, out, err = place.says("inspect", "--json", "-k", key)
    assert code == 0 and json.loads(out)["key"] == key, (code, out, err)
    assert place.says("release", "-k", key, token) == (0, "", "") and not place.server.redis.exists(key)
    assert place.says("acquire", "-k", key)[0] == 0 and place.says("force-release", "-k", key)[0] == 0
    for arguments, words in ((("inspect", "-k", key, "another"), "takes one key"), (("release", "-k", key), "the token")):
        code, out, err = place.says(*arguments)
        assert code == FAILED and out == "" and words in err, (arguments, code, out, err)


@test
def token_of_another_hold_takes_nothing_away(place):
    token = place.says("acquire", "--lease", "1h", place.key)[1].strip()
    other = re.sub(":[0-9]+:", ":999:", token)
    for step in ("renew", "release"):
        code, _, err = place.says(step, place.key, other)
        assert code == LOST and "not held with this token" in err, (step, code, err)
    assert place.says("--try", place.key, "--", "true")[0] == BUSY
    assert place.says("release", place.key, token)[0] == 0


@test
def steps_that_are_asked_for_wrongly_are_reported(place):
    for arguments, words in ((("renew", "key"), "a key and the token"), (("release", "key", "no token"), "not a token"),
                             (("acquire", "key", "word"), "takes one key"), (("release",), "which key"),
                             (("--at-least", "1s", "acquire", "key"), "--at-least: not with"),
                             (("--quorum", "unix:///a,unix:///b", "acquire", "key"), "acquire: not with a quorum")):
        code, out, err = place.says_with([RLOCK, *arguments], {"RLOCK_URL": place.server.url} if "--quorum" not in arguments else {})
        assert code == FAILED and out == "" and words in err, (arguments, code, out, err)
    assert place.says("release", "--", "echo", "made")[:2] == (0, "made\n")  # a key of this name


@test
def token_that_nobody_can_read_is_released(place):
    with open("/dev/full", "wb") as full_one:
        machine = place.rlock("acquire", place.key, stdout=full_one, stderr=subprocess.PIPE)
        err = machine.process.communicate(timeout=4 * SOON_S)[1].decode()
    assert machine.process.returncode == FAILED and "is released" in err, err
    assert place.says("--try", place.key, "--", "true")[0] == 0
    code, _, err = place.says_with(["sh", "-c", 'exec "$0" acquire "$1" >&-', RLOCK, place.key], {"RLOCK_URL": place.server.url})
    assert code == FAILED and "is released" in err, (code, err)
    assert place.says("--try", place.key, "--", "true")[0] == 0


@test
def token_whose_lease_is_over_releases_nothing_of_the_next_holder(place):
    token = place.says("acquire", "--lease", ms(SCALE), place.key)[1].strip()
    until("its end", 4 * SOON_S, lambda: place.says("--try", place.key, "--", "true")[0] == 0)
    next_one = place.says("acquire", "--lease", "1h", place.key)[1].strip()
    code, out, err = place.says("release", place.key, token)
    assert (code, out) == (LOST, "") and "not held with this token" in err, (code, out, err)
    assert place.says("release", place.key, next_one)[0] == 0


@test
def acquire_that_is_ended_while_it_waits_leaves_nothing(place):
    token = place.says("acquire", "--lease", "1h", place.key)[1].strip()
    waiter = place.rlock("acquire", "--lease", "1h", place.key, stdout=subprocess.PIPE)
    time.sleep(0.3)
    waiter.signal(signal.SIGTERM)
    waiter.ends_with(-signal.SIGTERM)
    assert place.says("release", place.key, token)[0] == 0
    assert place.says("--try", place.key, "--", "true")[0] == 0


@test
def at_least_so_long_others_wait_also_when_the_command_has_failed(place):
    for status in (0, 3):
        at = now()
        assert place.says("--at-least", ms(2 * SCALE), place.key, "--", "sh", "-c", f"exit {status}")[0] == status
        ended = now()
        assert place.says("--try", place.key, "--", "true")[0] == BUSY or ended - at > 2 * SCALE
        assert place.says("--wait", "1h", place.key, "--", "true")[0] == 0
        assert now() - at >= 2 * SCALE, now() - at
    for command, status in (("/no/such/command", NOT_FOUND), ("true", 0)):
        least = "1h" if status else "0"
        assert place.says("--at-least", least, place.key, "--", command)[0] == status
        assert place.says("--try", place.key, "--", "true")[0] == 0, command


@test
def at_least_above_the_quarantine_of_the_url_is_refused_before_the_command_runs(place):
    url = place.own_server().url + "?quarantine_ms=2000"
    arguments = ("-l", "1s", place.key, "--", "echo", "ran")
    code, out, err = place.says("--at-least", "2001ms", *arguments, url=url)
    assert code == FAILED and out == "" and "--at-least 2001 ms" in err and "Set quarantine_ms" in err, (code, out, err)
    assert place.says("--at-least", "2s", *arguments, url=url)[:2] == (0, "ran\n")  # as long as it is allowed


@test
def job_of_a_second_is_done_once_a_night_by_clocks_that_differ(place):
    """Three crontabs, whose clocks are up to 500 ms apart, and a job that takes no time: --at-least is three times that."""
    for night in range(20):
        place.log = os.path.join(place.folder, f"night{night}")
        key, start, machines = f"{place.key}{night}", now(), []
        for at in sorted(random.uniform(0, 0.5) for _ in range(3)):
            time.sleep(max(0, start + at - now()))
            machines.append(place.rlock("--try", "--at-least", ms(5 * SCALE), key, "--", "sh", "-c", 'echo >>"$BEAT_LOG"'))
        late = now() - start > 4 * SCALE  # the machine stood still: it says nothing
        statuses = sorted(machine.ends() for machine in machines)
        with open(place.log, encoding="ascii") as file:
            done = len(file.readlines())
        assert late or (done == 1 and statuses == [0, BUSY, BUSY]), (night, done, statuses)


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
    servers[0].kill()
    options = ("--quorum", urls, "--lease", ms(LEASE_S))
    code, out, err = place.says(*options, place.key, "--", "sh", "-c", 'echo "fence=$RLOCK_FENCE"')
    assert code == 0 and out == "fence=\n", (code, out, err)
    servers[1].kill()
    code, _, err = place.says("--wait", "300ms", *options, place.key, "--", "true")
    assert code == FAILED and err, (code, err)


@test
def password_stands_on_no_command_line_and_the_command_does_not_get_it(place):
    server, path = place.own_server(), os.path.join(place.folder, "url")
    server.redis.config_set("requirepass", "se:cret")
    url = f"unix://:se:cret@{server.socket}"
    env = "env | grep -E '^RLOCK_(URL|QUORUM)=' || echo none"
    with open(path, "w", encoding="ascii") as file:
        file.write(url + "\n")
    for options, variables, got in (
            ((), {"RLOCK_URL": url}, "none"), (("--keep-env",), {"RLOCK_URL": url}, "RLOCK_URL=" + url),
            (("--url-file", path), {"RLOCK_URL": "unix:///no/socket"}, "RLOCK_URL=unix:///no/socket"),
            (("--url-file", path), {"RLOCK_QUORUM": f"{url},{url}1,{url}2"}, "none")):
        code, out, err = place.says_with([RLOCK, *options, place.key, "--", "sh", "-c", env], variables)
        assert (code, out) == (0, got + "\n"), (options, variables, code, out, err)
    user = "unix://app@/no/socket"  # there is no password in it
    code, out, err = place.says_with([RLOCK, "--url-file", path, place.key, "--", "sh", "-c", env], {"RLOCK_URL": user})
    assert (code, out) == (0, f"RLOCK_URL={user}\n"), (code, out, err)


@test
def quorum_is_named_by_a_variable_or_a_file(place):
    servers = [Server(place.folder) for _ in range(3)]
    place.things += servers
    path, urls = os.path.join(place.folder, "urls"), [server.url for server in servers]
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(urls) + "\r\n\n")
    for options, variables in ((), {"RLOCK_QUORUM": ",".join(urls)}), (("--url-file", path), {}):
        code, out, err = place.says_with([RLOCK, *options, place.key, "--", "sh", "-c", 'echo "fence=$RLOCK_FENCE"'], variables)
        assert (code, out) == (0, "fence=\n"), (options, code, out, err)
    wrong = {"RLOCK_QUORUM": ",".join(urls), "RLOCK_URL": urls[0]}
    code, out, err = place.says_with([RLOCK, place.key, "--", "echo", "ran"], wrong)
    assert code == FAILED and out == "" and "both set" in err, (code, out, err)
    assert place.says_with([RLOCK, "--url", urls[0], place.key, "--", "echo", "ran"], wrong)[:2] == (0, "ran\n")
    for text, words in (("", "no URL"), (None, "No such file")):
        path = os.path.join(place.folder, "wrong")
        if text is not None:
            open(path, "w", encoding="ascii").close()
        code, _, err = place.says_with([RLOCK, "--url-file", path, place.key, "--", "true"], {})
        assert code == FAILED and words in err, (code, err)
        if text is not None:
            os.unlink(path)
    twice = ["redis://:secret@a", "redis://b", "redis://:secret@a"]
    code, _, err = place.says_with([RLOCK, place.key, "--", "true"], {"RLOCK_QUORUM": ",".join(twice)})
    assert code == FAILED and "1 and 3" in err and "secret" not in err, (code, err)


@test
def what_is_wrong_in_a_file_of_urls_is_reported_with_its_name(place):
    path = os.path.join(place.folder, "urls")
    for text, words in (("http://secret", "config.url"), ("redis://u:secret@a\n" * 3, "servers 1 and 2 have the same URL"),
                        ("".join(f"redis://h{i}\n" for i in range(16)), "bad argument"), ("redis://u:sec\0ret@a", "NUL"),
                        ("\n" * 65536 + place.server.url, "65536 bytes")):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        code, out, err = place.says_with([RLOCK, "--url-file", path, place.key, "--", "echo", "ran"], {})
        assert code == FAILED and out == "" and words in err and f"--url-file {path}: " in err, (words, code, out, err)
        assert "RLOCK_URL" not in err and "secret" not in err, err
    with open(path, "w", encoding="ascii") as file:
        file.write("\n" * (65536 - len(place.server.url)) + place.server.url)
    assert place.says_with([RLOCK, "--url-file", path, place.key, "--", "echo", "ran"], {})[:2] == (0, "ran\n")


def job_has(server, password):
    server.redis.execute_command("ACL", "SETUSER", "job", "on", "resetpass", ">" + password, "~*", "&*", "+@all")


def says_now(path, text):
    """Another text in a file, which nobody sees half written."""
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(path + ".new", path)


def connections(server):
    return [int(client["id"]) for client in server.redis.client_list() if client["user"] == "job"]


def is_cut_and_comes_again(server):
    before = max(connections(server))
    server.redis.execute_command("CLIENT", "KILL", "USER", "job")
    until("another connection", 4 * SOON_S, lambda: connections(server) and max(connections(server)) > before)


@test
def password_that_changes_in_its_file_keeps_the_lock(place):
    server, path = place.own_server(), os.path.join(place.folder, "secret")
    for number, (option, text, url) in enumerate((("--password-file", "%s\r\n", f"unix://job@{server.socket}"),
                                                  ("--url-file", f"unix://job:%s@{server.socket}\n", None))):
        key = place.key + str(number)
        job_has(server, "first")
        says_now(path, text % "first")
        with open(place.said, "ab") as said:
            machine = place.rlock("-v", option, path, "--lease", ms(20 * LEASE_S), key, "--", "sleep", "100", url=url,
                                  stderr=said)
        until("the command", SOON_S, machine.command)
        token = server.redis.get(key)
        for password in ("second", "thi%72d" if option == "--url-file" else "third"):
            before = place.told().count("new credentials are accepted")
            job_has(server, password.replace("%72", "r"))
            says_now(path, text % password)
            until("the new password", 4 * SOON_S,
                  lambda before=before: place.told().count("new credentials are accepted") > before)
            is_cut_and_comes_again(server)
        assert server.redis.get(key) == token and token
        assert machine.command()
        machine.signal(signal.SIGTERM)
        machine.ends()
        assert not server.redis.exists(key)


@test
def who_waits_with_a_password_that_was_changed_reads_the_file_again(place):
    server, path = place.own_server(), os.path.join(place.folder, "secret")
    job_has(server, "first")
    says_now(path, "first")
    server.redis.set(place.key, "another's")
    waiter = place.rlock("--password-file", path, place.key, "--", "true", url=f"unix://job@{server.socket}")
    until("the waiter", SOON_S, lambda: connections(server))
    job_has(server, "second")
    says_now(path, "second")
    is_cut_and_comes_again(server)
    server.redis.delete(place.key)
    waiter.ends_with(0)


@test
def password_of_a_pipe_is_read_once_and_stops_nothing(place):
    server, pipe = place.own_server(), os.path.join(place.folder, "pipe")
    job_has(server, "first")
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f'echo first >"{pipe}"'], preexec_fn=dies_with_parent)
    machine = place.rlock("--password-file", pipe, "--lease", ms(LEASE_S), place.key, "--", "sleep", "100",
                          url=f"unix://job@{server.socket}")
    until("the command", SOON_S, machine.command)
    assert writer.wait(SOON_S) == 0
    is_cut_and_comes_again(server)  # nobody writes to the pipe any more
    before = server.redis.pttl(place.key)
    until("a renewal", 4 * SOON_S, lambda: server.redis.pttl(place.key) > before)
    assert machine.command()


@test
def what_is_wrong_with_a_password_file_is_reported_and_the_password_is_not(place):
    server, path = place.own_server(), os.path.join(place.folder, "secret")
    url, missing = f"unix://job@{server.socket}", os.path.join(place.folder, "missing")
    job_has(server, "hunter2")
    for text, its_url, words in (("", url, "it is empty"), ("\n\n", url, "it is empty"), ("a\0b", url, "NUL"),
                                 ("x" * 65537, url, "65536 bytes"), ("hunter3", url, "WRONGPASS"),
                                 ("hunter2", f"unix://job:hunter2@{server.socket}", "the URL also contains a password"),
                                 (None, url, "No such file")):
        if text is not None:
            says_now(path, text)
        for what in ((place.key, "--", "echo", "ran"), ("inspect", place.key), ("ls",)):
            code, out, err = place.says("--password-file", path if text is not None else missing, *what, url=its_url)
            assert code == FAILED and out == "" and words in err and "hunter" not in err, (text, what, code, out, err)
    says_now(path, "hunter2\n")
    for what in ((place.key, "--", "echo", "ran"), ("ls",)):
        assert place.says("--password-file", path, *what, url=url)[::2] == (0, ""), what
    machine = place.rlock("--password-file", path, place.key, "--", "sleep", "100", url=url, stderr=subprocess.PIPE, text=True)
    until("the command", SOON_S, machine.command)
    says_now(path, "")
    assert machine.process.stderr.readline() == f"rlock: --password-file {path}: it is empty\n"
    is_cut_and_comes_again(server)  # with the former one
    assert machine.command()


@test
def file_of_urls_that_changes_in_more_than_its_password_is_reported(place):
    server, path = place.own_server(), os.path.join(place.folder, "urls")
    job_has(server, "first")
    says_now(path, f"unix://job:first@{server.socket}\n")
    machine = place.rlock("--url-file", path, place.key, "--", "sleep", "100", stderr=subprocess.PIPE, text=True)
    until("the command", SOON_S, machine.command)
    says_now(path, f"unix://job:second@{server.socket}0\n")
    said = machine.process.stderr.readline()
    assert said.startswith(f"rlock: --url-file {path}: more than the password") and "second" not in said, said
    assert machine.command()


@test
def each_wrong_option_is_reported_with_its_cure(place):
    key = place.key
    for arguments, words in (
            ((), "which key"), ((key,), "which command"), ((key, "--"), "which command"),
            (("--bogus", key, "--", "true"), "bogus"), (("--wait",), "requires an argument"),
            (("--wait", "soon", key, "--", "true"), "not a duration"), (("-l", "1ms", key, "--", "true"), "--lease 1ms"),
            (("--lease", "2d", key, "--", "true"), "--lease 2d"), (("--kind", "big", key, "--", "true"), "mutex, fair"),
            (("--permits", "0", key, "--", "true"), "--permits 0"), (("--weight", "x", key, "--", "true"), "--weight x"),
            (("--url", "http://x", key, "--", "true"), "url"), (("--quorum", ",", key, "--", "true"), "three"),
            (("--weight", "2", key, "--", "true"), ""), (("--grace", "1s", key, "--", "true"), "--grace: not with"),
            (("elect", "-n", key, "--", "true"), "--try: not with rlock elect"), (("--url", "", key, "--", "true"), "empty"),
            (("--quorum", "redis://a,redis://b,redis://a", key, "--", "true"), "servers 1 and 3 have the same URL"), (("--url", "unix:///no/socket", "-n", key, "--", "true"), "RLOCK_URL"),
            (("-w", "200ms", "--url", "redis://127.0.0.1:1", key, "--", "true"), "RLOCK_URL")):
        code, out, err = place.says(*arguments)
        assert code == FAILED and out == "" and err and words in err, (arguments, code, out, err)
        assert all(len(line) < 200 for line in err.splitlines()), err
    for word in ("--help", "--version"):
        code, out, err = place.says(word)
        assert code == 0 and "rlock" in out and err == "", (word, code, out, err)


@test
def no_byte_of_a_key_that_a_terminal_would_obey_is_in_what_is_said(place):
    key = "k\x1b[31m\r\nrlock: forged\x7f\\" + place.key
    shown = "k\\x1b[31m\\x0d\\x0arlock: forged\\x7f\\\\" + place.key
    redis = place.server.redis
    token = place.says("acquire", "-l", "1h", key)[1].strip()
    said = [place.says("-v", "-n", key, "--", "true"), place.says("-v", "-n", "acquire", key)]  # it is held
    other = re.sub(":[0-9]+:", ":999:", token)
    said += [place.says("release", key, other), place.says("--kind", "fair", key, "--", "true")]
    redis.delete(key)
    redis.hset(key, "a", "b")
    said += [place.says("inspect", key), place.says("-n", key, "--", "true")]  # it is no lock
    redis.delete(key)
    hook = ("--give-up", "1", "--on-lost", "exit 3")
    said += [place.says("elect", *hook, key, "--", "false")]
    machine = place.rlock("-l", ms(LEASE_S), key, "--", "sh", "-c", "echo began; exec sleep 60",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert machine.process.stdout.readline() == "began\n"
    redis.delete(key)
    said.append((LOST, "", machine.process.stderr.read()))
    for each in said:
        assert shown in each[2] and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", each[2]), each
        assert all(re.match("rlock: |       ", line) and "rlock: forged" not in line[:13] for line in each[2].splitlines()), each
    long_key = "x" * 60000  # what is said of it is cut, not left out
    redis.hset(long_key, "a", "b")
    err = place.says("inspect", long_key)[2]
    assert "x" * 900 in err and "no lock" in err and len(err) < 1500, err


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
    left.ends_with(7)
    other.ends_with(7)
    place.alone()
    run = place.runs()[0]
    assert run[1] - run[0] > 0.4 * SCALE, run


@test
def signals_are_passed_on(place):
    names = ("HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "TERM")
    script = "".join(f'trap "echo {name}" {name}; ' for name in names) + "echo ready; while :; do sleep 0.02; done"
    machine = place.rlock(place.key, "--", "sh", "-c", script, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
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
        waiter.ends_with(-signal.SIGTERM)
        assert waiter.process.stdout.read() == b""
        until("the waiter is gone", SOON_S, lambda: kept() == before)


@test
def signals_before_the_command_began_are_not_lost(place):
    started = []
    for i in range(20):
        machine = place.rlock("--kind", "semaphore", "--permits", "99", place.key, "--", "sleep", "60")
        started.append(machine)
        until("the grant", SOON_S, lambda: machine.process.poll() is not None or children(machine.pid))
        time.sleep(i * 0.0001)
        machine.signal(signal.SIGTERM)
    for machine in started:
        machine.ends_with(-signal.SIGTERM)


@test
def what_is_ignored_stays_ignored_as_nohup_has_it(place):
    machine = place.rlock(place.key, "--", "sh", "-c", "kill -HUP $$; kill -PIPE $$; echo lives; exec sleep 60", stdout=subprocess.PIPE,
                          text=True, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), restore_signals=False)
    assert machine.process.stdout.readline() == "lives\n"  # this program ignores SIGPIPE
    machine.signal(signal.SIGHUP)
    time.sleep(0.1)
    assert machine.process.poll() is None
    machine.signal(signal.SIGTERM)
    machine.ends_with(-signal.SIGTERM)
    code = place.says(place.key, "--", "sh", "-c", "kill -PIPE $$")[0]
    assert code == -signal.SIGPIPE, code


@test
def signals_that_were_blocked_do_not_block_rlock(place):
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM, signal.SIGRTMIN})

    code, out, _ = place.says(place.key, "--", "grep", "SigBlk", "/proc/self/status", before=block)
    assert code == 0 and int(out.split()[1], 16) == 1 << 16 | 1 << 14 | 1 << (signal.SIGRTMIN - 1), out


@test
def closed_descriptors_stay_closed_and_become_no_connection(place):
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        script = f'"$0" -v "$1" -- sh -c "ls -l /proc/\\$\\$/fd >$2" {closed}; echo $?'
        path = os.path.join(place.folder, "fds")
        machine = place.popen(["sh", "-c", script, RLOCK, place.key, path], stdout=subprocess.PIPE, text=True)
        assert machine.process.stdout.read() == "0\n", closed
        with open(path, encoding="ascii") as file:
            assert "socket" not in file.read()
    machine = place.popen(["sh", "-c", f'exec "$0" "$1" -- /no/such/command <&- >&- 2>&-', RLOCK, place.key])
    machine.ends_with(NOT_FOUND)


@test
@alone
def group_number_of_another_is_not_signalled(place):
    """The command ends and leaves a process that went away; its number becomes that of another's group."""
    script = f'echo $$; setsid "$0" "$1" leave 60000 & while ! [ -s "$1" ]; do sleep 0.01; done'
    machine = place.rlock("--lease", ms(LEASE_S), place.key, "--", "sh", "-c", script, BEAT, place.log, stdout=subprocess.PIPE)
    group = int(machine.process.stdout.readline())
    place.began(1)
    until("its end", SOON_S, lambda: state(group) is None)
    try:
        with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
            file.write(str(group - 1))
    except OSError as error:
        raise NotApplicable(str(error)) from error
    other = place.popen(["sleep", "60"])
    assert other.pid == group, (other.pid, group)
    place.server.redis.set(place.key, "stolen")
    machine.ends_with(LOST)
    place.all_gone(place.runs()[0], SOON_S)
    assert other.process.poll() is None


@test
def what_the_command_left_gets_signals_when_it_is_alone(place):
    script = 'echo $$; setsid "$0" "$1" & while ! [ -s "$1" ]; do sleep 0.01; done'
    machine = place.rlock(place.key, "--", "sh", "-c", script, BEAT, place.log, stdout=subprocess.PIPE)
    command = int(machine.process.stdout.readline())
    until("its end", SOON_S, lambda: state(command) is None)
    machine.signal(signal.SIGTERM)
    machine.ends_with(0)  # as the command ended
    place.all_gone(place.runs()[0], SOON_S)


@test
def command_that_cannot_be_made_is_reported(place):
    if os.geteuid() != 0:
        raise NotApplicable("it takes another user, who has no processes")
    for folder in (os.path.dirname(place.folder), os.path.dirname(place.server.socket)):
        os.chmod(folder, 0o755)
    os.chmod(place.server.socket, 0o777)
    program = os.path.join(place.folder, "rlock")
    copy(RLOCK, program)
    os.chmod(place.folder, 0o755)
    for most in (1, 2):
        def few():
            os.setgid(65534)
            os.setuid(60000)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

        machine = place.popen([program, place.key, "--", "true"], before=few, stderr=subprocess.PIPE, text=True,
                              env={"ASAN_OPTIONS": "detect_leaks=0"})
        err = machine.process.communicate(timeout=SOON_S)[1]
        assert machine.process.returncode == FAILED and "fork: Resource" in err, (most, machine.process.returncode, err)
        until("the release", SOON_S, lambda: not place.server.redis.exists(place.key))


@test
def first_process_of_a_container_ends_all(place):
    unshare = in_a_namespace()
    machine = place.popen([*unshare, RLOCK, "--lease", ms(LEASE_S), place.key, "--", "sh", "-c",
                           '"$0" "$1" leave 60000; exec "$0" "$1" away', BEAT, place.log], stderr=subprocess.PIPE)
    place.began(2)
    place.server.redis.set(place.key, "stolen")
    assert machine.ends() == LOST, machine.process.stderr.read()
    ended = now()
    time.sleep(0.1)
    assert all(run[1] < ended for run in place.runs())
    machine = place.popen([*unshare, RLOCK, "c" + place.key, "--", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
    machine.process.stdout.readline()
    send(children(machine.pid)[0], signal.SIGTERM)
    machine.ends_with(143)


@test
def checker_sees_two_commands_at_a_time(place):
    shared = ("--kind", "semaphore", "--permits", "2")
    place.beats(options=shared)
    place.began(1)
    place.beats("for", "30", options=shared).ends_with(7)
    assert place.overlap() > 0


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
            status = self.two.ends(next_within + SOON_S)
            assert status == 7, f"the next one ended with {status}"
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
    fault.one.ends_with(LOST)


@test
def keeper_is_killed(place):
    fault = Fault(place, *FIERCE)
    send(fault.keeper, signal.SIGKILL)
    fault.one.ends_with(FAILED)
    fault.over(LEASE_S, LEASE_S + SCALE)


@test
def keeper_that_is_killed_after_the_command_ended_is_reported_too(place):
    machine = place.rlock(place.key, "--", "sh", "-c", 'setsid "$0" "$1" & while ! [ -s "$1" ]; do sleep 0.01; done',
                          BEAT, place.log, stderr=subprocess.PIPE, text=True)
    place.began(1)
    run = place.runs()[0]
    until("that the command has ended", SOON_S, lambda: set(children(machine.keeper())) <= run[2])
    send(machine.keeper(), signal.SIGKILL)
    machine.ends_with(FAILED)
    assert "keeper was killed" in machine.process.stderr.read()
    place.all_gone(run, SOON_S)


@test
def system_without_proc_is_reported_at_the_start(place):
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        raise NotApplicable("no namespaces")
    script = 'mount -t tmpfs none /proc && exec "$0" "$1" -- echo ran'
    machine = place.popen(["unshare", "--mount", "sh", "-c", script, RLOCK, place.key], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    out, err = machine.process.communicate(timeout=SOON_S)
    assert machine.process.returncode == 0 and out == "ran\n" and "mount /proc" in err, (out, err)


@test
def command_is_killed(place):
    fault = Fault(place)
    send(fault.command, signal.SIGKILL)
    fault.one.ends_with(-signal.SIGKILL)
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
    send(fault.command, signal.SIGSTOP)
    fault.one.signal(signal.SIGTERM)
    fault.one.ends_with(-signal.SIGTERM)
    fault.over(2 * SOON_S + 2 * LEASE_S, 2 * SOON_S + 2 * LEASE_S)


@test
def grant_that_comes_late_is_renewed_before_the_command_begins(place):
    network = place.network()
    url = patient(network.url, LEASE_S)
    lease = 1.0 if url == network.url else LEASE_S  # not longer than the time that a request may take
    place.beats("for", "1").ends_with(7)  # from here on the server knows the scripts
    network.late = (getattr(place.server, "on_the_wire", str.encode)(place.key), 0.6 * lease)
    place.log += "x"
    machine = place.beats("for", "30", lease=lease, url=url)
    machine.ends_with(7)
    assert network.late is None


@test
def lease_that_is_too_short_for_the_network_is_reported(place):
    network = place.network()
    network.slow = 0.15
    code, out, err = place.says("--lease", "200ms", "--wait", "3s", place.key, "--", "echo", "ran", url=network.url)
    assert code == FAILED and out == "" and "See --lease" in err, (code, out, err)


@test
def drift_of_the_url_that_leaves_no_time_for_a_renewal_is_refused_at_the_start(place):
    def says(drift, *options):
        arguments = (*options, "-l", ms(LEASE_S), place.key, "--", "sh", "-c", f"echo ran; sleep {LEASE_S}")
        return place.says(*arguments, url=f"{place.server.url}?drift_permille={drift}")

    most = f"{round(LEASE_S * 1000) * 2 // 5}ms"
    for drift, *options in ((370,), (500,), (500, "--kill-after", "0"), (200, "--kill-after", most)):
        code, out, err = says(drift, *options)
        assert code == FAILED and out == "" and "drift_permille" in err and "Set drift" in err, (drift, options, code, out, err)
    for drift, *options in ((200,), (100, "--kill-after", most)):
        assert says(drift, *options)[:2] == (0, "ran\n"), (drift, options)


@test
def lock_that_could_not_be_released_is_reported(place):
    server = place.own_server()
    code, _, err = place.says(place.key, "--", "sh", "-c", f"kill -STOP {server.process.pid}; exit 4")
    assert code == 4 and "not released" in err, (code, err)


@test
def server_stops_and_goes_on(place):
    server = place.own_server()
    fault = Fault(place, *FIERCE)
    server.signal(signal.SIGSTOP)
    fault.at = now()  # what it answered until then counts
    fault.one.ends_with(LOST)
    place.all_gone(place.runs()[0], SOON_S)
    server.signal(signal.SIGCONT)
    fault.over(LEASE_S, LEASE_S + SOON_S)


@test
def server_is_killed_and_comes_back_with_its_data(place):
    server = place.own_server()
    fault = Fault(place, *FIERCE)
    server.kill()
    fault.one.ends_with(LOST)
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
    fault.one.ends_with(LOST)
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
    """A server that is there tells it, long before the next renewal, which comes after a third of the lease."""
    for how in ("stolen", "deleted", "forgotten"):
        server = place.own_server()
        place.log += "x"
        machine = place.beats(*FIERCE, lease=LEASE_S if how == "forgotten" else 60 * SCALE)
        place.began(1)
        time.sleep(1.1)  # a push connection is made by then
        at = now()
        if how == "stolen":
            server.redis.set(place.key, "mine")
        elif how == "deleted":
            server.redis.delete(place.key)
        else:
            server.kill()
            for name in os.listdir(server.folder):
                if name.startswith("append"):
                    shutil.rmtree(os.path.join(server.folder, name), ignore_errors=True)
            server.start()
            server.redis.set(place.key, "mine")
        assert machine.ends() == LOST, how
        run = place.runs()[0]
        assert run[1] - at < (LEASE_S if how == "forgotten" else SOON_S), (how, run[1] - at)
        place.all_gone(run, SOON_S)
        if how != "deleted":
            assert server.redis.get(place.key) == b"mine"


def stopped_for_longer_than_the_lease(_, machine, __):
    command = machine.command()
    machine.signal(signal.SIGSTOP)
    until("the end of the command", 4 * SOON_S, lambda: state(command) is None)
    time.sleep(0.5 * LEASE_S)
    machine.signal(signal.SIGCONT)


def asks_for_a_password(server, _, __):
    server.redis.config_set("requirepass", "another")
    server.connect(password="another").client_kill_filter(_type="normal", skipme=True)


LOSSES = (  # what happens to the server or to rlock; the lease; what the one line says of it
    ("hangs", lambda server, *_: server.signal(signal.SIGSTOP), 4, "the server does not answer"),
    ("killed", lambda server, *_: server.kill(), 2, "Connection refused|No such file or directory"),
    ("deleted", lambda server, _, key: server.redis.delete(key), 2, "it was deleted at the server"),
    ("stolen", lambda server, _, key: server.redis.set(key, "mine"), 2, "another client holds it"),
    ("no-lock", lambda server, _, key: server.redis.pipeline().delete(key).lpush(key, 1).execute(), 2,
     "another client holds it: WRONGTYPE .*"),
    ("password", asks_for_a_password, 2, "NOAUTH .*"),
    ("replica", lambda server, *_: server.redis.slaveof("127.0.0.1", 1), 2, "(.*READONLY .*|the server is a replica.*)"),
    ("short", lambda server, *_: server.signal(signal.SIGSTOP), 1 / SCALE,  # shorter than what a request may take
     "no renewal was answered in time"),
    ("stopped", stopped_for_longer_than_the_lease, 1, "no renewal was sent: the process or its event loop stalled"),
)


def line_of_a_loss(place, elects, what, happens, leases, cause):
    """One loss, on a server of its own. An election goes on, and has other lines after the first."""
    server = Server(place.folder)
    place.things.append(server)
    machine = place.rlock(*elects, "--lease", ms(leases * LEASE_S), what, "--", "sleep", "100", url=server.url,
                          stderr=subprocess.PIPE, text=True)
    until("the command", SOON_S, machine.command)
    happens(server, machine, what)
    if elects:
        said = machine.process.stderr.readline()
        machine.signal(signal.SIGKILL)
    else:
        said = machine.process.communicate(timeout=4 * SOON_S)[1]
        assert machine.process.returncode == LOST, (what, said)
    wanted = f"rlock: the lock of {what} was lost: (?:{cause}); the command was terminated\n"
    assert re.fullmatch(wanted, said), (elects, what, said)


@test
def one_line_tells_why_the_lock_was_lost(place):
    cases = [(elects, *loss) for elects in ((), ("elect",)) for loss in LOSSES]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for done in [pool.submit(line_of_a_loss, place, *case) for case in cases]:
            done.result()


@test
def command_that_leads_a_session_or_stops_itself_is_ended_too(place):
    network = place.network()
    started = [place.rlock("--lease", ms(LEASE_S), place.key + str(i), "--", *before, BEAT, place.log, *words, url=network.url)
               for i, (before, words) in enumerate(((("setsid",), ()), ((), ("stop",)), ((), ("ignore", "stop"))))]
    place.began(len(started))
    network.cut = True
    at = now()
    for machine in started:
        machine.ends_with(LOST)
    assert all(run[1] - at <= LEASE_S for run in place.runs())


@test
def keeper_stands_still_while_the_server_is_gone(place):
    network = place.network()
    fault = Fault(place, *FIERCE, url=network.url)
    send(fault.keeper, signal.SIGSTOP)
    network.cut = True
    fault.at = now()
    fault.one.ends_with(LOST)
    fault.over(LEASE_S, LEASE_S + SCALE)


@test
def rlock_and_keeper_are_killed_together(place):
    """Nobody is left to end what the command started; the kernel ends the command."""
    fault = Fault(place, "ignore")
    for pid in (fault.keeper, fault.one.pid):
        send(pid, signal.SIGKILL)
    fault.over(LEASE_S, LEASE_S + SCALE)


@test
def hundreds_that_went_away_are_ended_in_time(place):
    network = place.network()
    script = 'i=0; while [ $i -lt 300 ]; do setsid "$0" 77777 & i=$((i + 1)); done; wait'
    sleep = os.path.join(place.folder, "sleep")
    copy(shutil.which("sleep"), sleep)
    machine = place.rlock("--lease", ms(2 * LEASE_S), place.key, "--", "sh", "-c", script, sleep, url=network.url)

    def those():
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    found += [path] if file.read().startswith(sleep.encode()) else []
            except OSError:
                pass
        return found

    until("300 processes", 4 * SOON_S, lambda: len(those()) >= 300)
    time.sleep(0.3)
    network.cut = True
    time.sleep(2 * LEASE_S)
    assert not those()
    machine.ends_with(LOST)


@test
def command_that_was_told_to_end_is_ended_though_the_server_is_back(place):
    server, lease = place.own_server(), 4 * SCALE
    machine = place.beats("ignore", lease=lease)
    place.began(1)
    time.sleep(0.4 * lease)  # renewed at a third
    at = now()
    server.signal(signal.SIGSTOP)
    time.sleep(0.8 * lease)  # asked at 0.93 of it after the renewal of a third at the latest: at 0.63 from here
    server.signal(signal.SIGCONT)
    machine.ends_with(LOST)
    run = place.runs()[0]
    assert run[1] - at <= lease, run[1] - at


# ---- in a terminal ----


class Terminal:
    """A pseudo terminal, and who leads its session: an interactive shell, or what is named."""

    PROMPT = "@@ "

    def __init__(self, place, *arguments):
        self.master, slave = os.openpty()
        self.text = ""

        def control():
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        command = list(arguments) or ["bash", "--norc", "--noprofile", "--noediting", "-i"]
        self.machine = place.popen(command, stdin=slave, stdout=slave, stderr=slave, before=control,
                                   env={"PS1": self.PROMPT, "RLOCK": RLOCK, "K": place.key, "BEAT": BEAT, "LANG": "C"})
        os.close(slave)
        place.things.append(self)
        if not arguments:
            self.hears(self.PROMPT)
            self.runs("stty -echo")

    def say(self, text):
        os.write(self.master, text.encode())

    def hears(self, words, seconds=None):
        deadline = now() + (seconds or SOON_S)
        while words not in self.text:
            left = deadline - now()
            assert left > 0, f"no {words!r} in {self.text!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    self.text += os.read(self.master, 4096).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"the terminal is closed, no {words!r} in {self.text!r}") from None
        before, _, self.text = self.text.partition(words)
        return before

    def runs(self, line):
        self.say(line + "\n")
        return self.hears(self.PROMPT)

    def stop(self):
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"


@test
def command_reads_the_terminal_which_is_given_back(place):
    t = Terminal(place)
    for script in ("echo ready; read x; echo got $x; exit 3", "echo ready; read x </dev/tty; echo got $x; exit 3"):
        t.say(f"$RLOCK $K -- sh -c '{script}'\n")
        t.hears("ready")
        t.say("hello\n")
        t.hears("got hello")
        t.hears(t.PROMPT)
        assert "3" in t.runs("echo $?")
    t.say("$RLOCK $K -- bash --norc -i\n")  # it insists on being in the foreground
    t.hears(t.PROMPT)
    assert "42" in t.runs("echo $((6 * 7)); sleep 0.01")
    t.runs("exit")
    t.say("$RLOCK $K -- $RLOCK 2$K -- sh -c 'echo ready; read x; echo got $x'\n")
    t.hears("ready")
    t.say("twice\n")
    t.hears("got twice")
    t.hears(t.PROMPT)
    assert "t" in t.runs("[ -t 0 ] && echo t")


@test
def ctrl_c_ends_the_command_and_a_loop_around_it(place):
    t = Terminal(place)
    for reads in ("", "read x; "):
        t.say(f"for i in 1 2 3; do $RLOCK $K -- sh -c 'echo ready; {reads}exec sleep 60'; done\n")
        t.hears("ready")
        if reads:
            t.say("x\n")
            time.sleep(0.1 * SCALE)
        t.say(CTRL_C)
        assert "ready" not in t.hears(t.PROMPT)
        assert "130" in t.runs("echo $?")
    t.say("bash -c 'for i in 1 2 3; do $RLOCK $K -- sh -c \"echo ready; exec sleep 60\"; done'\n")
    t.hears("ready")
    t.say(CTRL_C)
    assert "ready" not in t.hears(t.PROMPT)
    t.runs("$RLOCK $K -- sleep 60 &")
    until("a hold", SOON_S, lambda: place.server.redis.exists(place.key))
    t.say("$RLOCK $K -- true\n")  # Ctrl-C while it waits
    time.sleep(0.3 * SCALE)
    t.say(CTRL_C)
    t.hears(t.PROMPT)
    assert "130" in t.runs("echo $?")
    t.say("$RLOCK elect 2$K -- sh -c 'echo ready; exec sleep 60'\n")
    t.hears("ready")
    t.say(CTRL_C)
    assert "ready" not in t.hears(t.PROMPT)
    assert "130" in t.runs("echo $?")


@test
def ctrl_z_stops_and_fg_goes_on(place):
    t = Terminal(place)
    t.say(f"$RLOCK --lease {ms(6 * SCALE)} $K -- $BEAT {place.log}\n")
    place.began(1)
    t.say(CTRL_Z)
    t.hears("Stopped")
    t.hears(t.PROMPT)
    last = place.runs()[0][1]
    assert place.server.redis.exists(place.key)
    t.runs("sleep 0.1")
    assert place.runs()[0][1] == last
    t.say("fg\n")
    until("a beat", SOON_S, lambda: place.runs()[0][1] > last)
    t.say(CTRL_C)
    t.hears(t.PROMPT)
    t.say(f"$RLOCK --lease {ms(6 * SCALE)} $K -- bash -c 'echo ready; read x; echo got $x; read x; echo got $x; exit 4'\n")
    t.hears("ready")
    t.say("one\n")
    t.hears("got one")
    t.say(CTRL_Z)
    t.hears("Stopped")
    t.hears(t.PROMPT)
    t.runs("true")
    t.say("fg\n")
    t.hears("RLOCK")
    t.say("two\n")
    t.hears("got two")
    t.hears(t.PROMPT)
    assert "4" in t.runs("echo $?")


@test
def command_that_is_stopped_beyond_the_lease_is_ended(place):
    t = Terminal(place)
    t.say(f"$RLOCK --lease {ms(LEASE_S)} $K -- $BEAT {place.log}\n")
    place.began(1)
    t.say(CTRL_Z)
    t.hears("Stopped")
    t.hears(t.PROMPT)
    other = place.beats("for", "20")
    other.ends_with(7)
    place.alone()
    place.all_gone(place.runs()[0], SOON_S)
    t.say("fg\n")
    t.hears("lost")
    t.hears(t.PROMPT)
    assert str(LOST) in t.runs("echo $?")


@test
def pipeline_keeps_the_terminal_for_its_other_end(place):
    t = Terminal(place)
    t.say("$RLOCK $K -- sh -c 'echo data; sleep 0.2' | sh -c 'read x; echo got $x; read y </dev/tty; echo got $y'\n")
    t.hears("got data")
    t.say("typed\n")
    t.hears("got typed")
    t.hears(t.PROMPT)


@test
def command_in_the_background_stops_when_it_reads_and_goes_on_in_the_foreground(place):
    t = Terminal(place)
    t.runs("$RLOCK $K -- sh -c 'read x; echo got $x' &")
    until("the stop", SOON_S, lambda: "Stopped" in t.runs("jobs; sleep 0.05"))
    t.say("fg\n")
    time.sleep(0.1 * SCALE)
    t.say("hello\n")
    t.hears("got hello")
    t.hears(t.PROMPT)


@test
def leader_of_a_session_is_not_stopped_for_ever(place):
    t = Terminal(place, RLOCK, place.key, "--", "sh", "-c", "echo ready; read x; echo got $x; while :; do read x; echo again $x; done")
    t.hears("ready")
    t.say(CTRL_Z)
    t.say("hello\n")
    t.hears("got hello")
    t.say(CTRL_Z)
    t.say("more\n")
    t.hears("again more")
    t.say(CTRL_C)
    t.machine.ends_with(-signal.SIGINT)


@test
def command_that_stops_itself_for_want_of_the_terminal_has_it(place):
    t = Terminal(place)
    script = ("import os, signal, termios; signal.signal(signal.SIGTTOU, lambda *_: os.kill(os.getpid(), signal.SIGSTOP)); "
              "signal.signal(signal.SIGCONT, lambda *_: (termios.tcsetattr(0, 0, termios.tcgetattr(0)), print(\"again\"))); "
              "termios.tcsetattr(0, 0, termios.tcgetattr(0)); print(\"set\"); input()")
    t.say(f"$RLOCK --lease {ms(6 * SCALE)} $K -- {sys.executable} -c '{script}'\n")
    t.hears("set")
    t.say(CTRL_Z)
    t.hears("Stopped")
    t.hears(t.PROMPT)
    t.say("fg\n")
    t.hears("again")
    t.say("\n")
    t.hears(t.PROMPT)


@test
def shell_keeps_its_terminal_when_rlock_was_stopped_by_hand(place):
    t = Terminal(place)
    script = "echo ready; sleep 0.5; read x; echo got $x"  # a read that has begun would take what is for the shell
    t.say(f"$RLOCK $K -- sh -c '{script}'\n")
    t.hears("ready")
    send(children(t.machine.pid)[0], signal.SIGSTOP)
    t.hears("Stopped")
    t.hears(t.PROMPT)
    t.say("fg\n")
    t.hears("RLOCK")
    t.say("hello\n")
    t.hears("got hello")  # it has the terminal again
    t.hears(t.PROMPT)
    t.say("$RLOCK $K -- sleep 0.5\n")
    until("the command", SOON_S, lambda: children(t.machine.pid) and place.server.redis.exists(place.key))
    time.sleep(0.1 * SCALE)
    send(children(t.machine.pid)[0], signal.SIGSTOP)
    t.hears("Stopped")
    t.hears(t.PROMPT)
    t.runs("bg")
    until("the end", SOON_S, lambda: not place.server.redis.exists(place.key))
    assert "42" in t.runs("echo $((6 * 7))")  # the shell did not read the end of its terminal


@test
def what_a_command_left_does_not_keep_the_terminal(place):
    t = Terminal(place)
    for leaves in ("setsid sleep 60", "sleep 60", "(sleep 0.1; exec setsid sleep 60)"):  # the last leaves the group unseen
        t.say(f"$RLOCK $K -- sh -c '{leaves} & echo ready'\n")
        t.hears("ready")
        until("the terminal is rlock's", SOON_S, lambda: os.tcgetpgrp(t.master) == children(t.machine.pid)[0])
        t.say(CTRL_Z)
        t.hears("Stopped")
        t.hears(t.PROMPT)
        t.runs("kill %%")  # a shell's job in the background ignores Ctrl-C
        t.runs("wait")


@test
def ctrl_z_in_a_script_that_leads_its_session_stops_nothing(place):
    script = '"$RLOCK" "$K" -- sh -c "echo ready; while read x; do echo got \\$x; done"; echo after'
    t = Terminal(place, "bash", "-c", script)
    t.hears("ready")
    t.say(CTRL_Z)
    time.sleep(0.1 * SCALE)
    t.say("two\n")
    t.hears("got two")
    t.say(CTRL_D)
    t.hears("after")


@test
def command_that_stops_itself_on_a_terminal_stops_the_job(place):
    t = Terminal(place)
    t.say("$RLOCK $K -- sh -c 'echo ready; kill -STOP $$; echo on'\n")
    t.hears("Stopped")
    t.hears(t.PROMPT)
    t.say("fg\n")
    t.hears("on")
    t.hears(t.PROMPT)


@test
def sigtstp_to_one_rlock_stops_nothing_else_of_its_job(place):
    """A job of a shell in which one rlock waits, and another one runs a command, which has no terminal."""
    script = ('"$0" "$1" -- sleep 60 & echo $!; "$0" "$1" -- sleep 60 & echo $!; "$0" "2$1" -- "$2" "$3" & echo $!; '
              "sleep 60 & echo $!; wait")
    shell = place.popen(["bash", "-c", f"set -m; sh -c '{script}' \"$@\" & wait; wait", "bash", RLOCK, place.key, BEAT,
                         place.log], stdout=subprocess.PIPE, text=True)
    one, two, runner, other = (int(shell.process.stdout.readline()) for _ in range(4))
    place.began(1)
    until("one that holds", SOON_S, lambda: children(one) or children(two))
    waiter = two if children(one) else one
    job = children(shell.pid) + [one, two, runner, other]
    for stopped in (waiter, runner):
        until("that all sleep", SOON_S, lambda: [state(pid) for pid in job] == ["S"] * len(job))
        send(stopped, signal.SIGTSTP)
        until("the stop", SOON_S, lambda: state(stopped) == "T")
        time.sleep(0.05)
        assert [state(pid) for pid in job].count("T") == 1, [state(pid) for pid in job]
        send(stopped, signal.SIGCONT)
        until("that it goes on", SOON_S, lambda: state(stopped) != "T")
    at = now()
    until("a beat", SOON_S, lambda: place.runs()[0][1] > at)


@test
def signal_to_one_rlock_of_a_script_in_a_terminal_goes_to_no_other_process(place):
    t = Terminal(place)
    path = os.path.join(place.folder, "script")
    with open(path, "w", encoding="ascii") as file:
        file.write('"$RLOCK" "$K" -- sh -c "echo ready; exec sleep 60"\necho ended "$?"\nread x\necho got "$x"\n')
    t.say(f"bash {path}\n")
    t.hears("ready")
    job = children(t.machine.pid)[0]
    rlock = children(job)[0]
    send(rlock, signal.SIGTSTP)
    until("the stop", SOON_S, lambda: state(rlock) == "T")
    time.sleep(0.05)
    assert state(job) == "S"
    send(rlock, signal.SIGCONT)
    until("that it goes on", SOON_S, lambda: state(rlock) != "T")
    send(rlock, signal.SIGINT)
    t.hears("ended 130")  # the script had no Ctrl-C
    t.say("more\n")
    t.hears("got more")
    t.hears(t.PROMPT)


@test
def hangup_of_the_terminal_ends_the_command(place):
    t = Terminal(place)
    t.say(f"$RLOCK $K -- $BEAT {place.log}\n")
    place.began(1)
    t.stop()
    place.all_gone(place.runs()[0], SOON_S)
    until("the release", SOON_S, lambda: not place.server.redis.exists(place.key))


@test
def table_of_top_gives_the_terminal_back_while_it_is_stopped(place):
    enter, leave = "\x1b[?1049h", "\x1b[?1049l"
    t = Terminal(place)
    t.runs("export TERM=xterm")
    t.say("$RLOCK top\n")
    t.hears(enter)
    t.hears("FENCE")  # the heading, however many locks there are
    for stops in (lambda: t.say(CTRL_Z), lambda: send(children(t.machine.pid)[0], signal.SIGTSTP)):
        stops()
        t.hears(leave)
        t.hears("Stopped")
        t.hears(t.PROMPT)
        assert "icanon" in t.runs("stty -a").replace("-icanon", "")
        t.say("fg\n")
        t.hears(enter)
        t.hears("FENCE")
    top = children(t.machine.pid)[0]
    send(top, signal.SIGSTOP)  # nobody hears that
    t.hears("Stopped")
    t.hears(t.PROMPT)
    t.say("kill %%; wait\n")
    t.hears(leave)
    until("its end", SOON_S, lambda: state(top) in ("Z", None))


@test
def busy_status_is_that_of_who_finds_it_held(place):
    place.server.redis.set(place.key, "somebody", px=60000)
    for options, status in (((), BUSY), (("--busy-status", "0"), 0), (("--busy-status", "75"), 75)):
        assert place.says("-n", *options, place.key, "--", "echo", "ran")[:2] == (status, ""), (options, status)
    place.server.redis.delete(place.key)
    assert place.says("-n", "--busy-status", "75", place.key, "--", "sh", "-c", "exit 3")[0] == 3
    for options, words in ((("--busy-status", "256"), "--busy-status 256: not a number from 0 to 255"),
                           (("elect", "--busy-status", "1"), "--busy-status: not with rlock elect"),
                           (("--on-lead", "true"), "--on-lead: not with rlock KEY"), (("--on-lost", "true"), "--on-lost: not with"),
                           (("--state-file", "f"), "--state-file: not with rlock KEY"),
                           (("--give-up", "2"), "--give-up: not with rlock KEY"),
                           (("--on-lost-signal", "STOP"), "--on-lost-signal STOP: no such signal"),
                           (("-l", "10s", "--kill-after", "5s"), "--kill-after 5000 ms: more than two fifths")):
        code, out, err = place.says(*options, place.key, "--", "echo", "ran")
        assert (code, out) == (FAILED, "") and words in err, (options, code, out, err)


@test
def command_of_a_lost_lock_is_asked_by_its_signal_and_killed_after(place):
    server = place.own_server()
    lease_s, asks = 3 * SCALE, "trap 'echo asked; echo $EPOCHREALTIME' USR1; echo $$; while :; do sleep 0.01; done"
    for name, after_s in (("USR1", 1.0 * SCALE), ("SIGUSR1", 0.3 * SCALE)):
        machine = place.rlock("--lease", ms(lease_s), "--on-lost-signal", name, "--kill-after", ms(after_s), place.key, "--",
                              "bash", "-c", asks, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        command = int(machine.process.stdout.readline())
        server.signal(signal.SIGSTOP)
        assert machine.process.stdout.readline() == "asked\n"
        asked = float(machine.process.stdout.readline())
        until("its end", 2 * SOON_S, lambda: state(command) in ("Z", None))
        took_s = time.time() - asked
        server.signal(signal.SIGCONT)
        machine.ends_with(LOST)
        assert after_s * 0.8 <= took_s <= after_s + 0.5 * SCALE, (name, after_s, took_s)
        assert "was lost" in machine.process.stderr.read()
        until("its end at the server", SOON_S, lambda: not server.redis.exists(place.key))


# ---- elections ----


@test
def leader_gives_up_after_so_many_failures_in_a_row(place):
    script = 'echo x >>"$0"; n=$(wc -l <"$0"); [ "$n" = 2 ] && exit 0; exit 7'
    code, out, err = place.says("elect", "--give-up", "2", place.key, "--", "sh", "-c", script, place.log)
    with open(place.log, encoding="ascii") as file:
        assert len(file.readlines()) == 4, (code, out, err)  # a success between them begins the count anew
    assert code == 7 and "failed 2 times in a row" in err, (code, out, err)
    assert not place.server.redis.exists(place.key)


@test
def systemd_hears_that_an_election_is_alive(place):
    path = os.path.join(place.folder, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(path)
        ear.settimeout(SOON_S)
        machine = place.rlock("elect", place.key, "--", "sleep", "60", env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"})
        heard = [ear.recv(1000) for _ in range(8)]
        assert heard.count(b"WATCHDOG=1") >= 4 and heard[0].startswith(b"READY=1"), heard
        machine.signal(signal.SIGTERM)
        machine.ends_with(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:  # that of another process is not told
        os.unlink(path)
        ear.bind(path)
        ear.settimeout(0.5 * SCALE)
        machine = place.rlock("elect", place.key, "--", "sleep", "60",
                              env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"})
        heard = []
        try:
            while True:
                heard.append(ear.recv(1000))
        except TimeoutError:
            pass
        assert heard and b"WATCHDOG=1" not in heard, heard
        machine.signal(signal.SIGTERM)
        machine.ends_with(0)


@test
def leader_whose_command_ends_starts_it_again_later_and_later(place):
    machine = place.rlock("elect", place.key, "--", BEAT, place.log, "for", "10", stderr=subprocess.DEVNULL)
    runs_of = place.began(3, 4 + 3 * SOON_S)
    pauses = [runs_of[i + 1][0] - runs_of[i][1] for i in range(2)]
    assert pauses[0] >= 0.9 and pauses[1] >= 1.9, pauses
    machine.signal(signal.SIGTERM)
    machine.ends_with(0)


@test
def leader_that_cannot_run_its_command_leaves_the_lead(place):
    for command, status in (("/no/such/program", NOT_FOUND), ("/etc/passwd", NOT_RUN)):
        code, out, err = place.says("elect", place.key, "--", command)
        assert code == status and command in err, (code, out, err)
        assert not place.server.redis.exists(place.key)
    machine = place.rlock("elect", place.key, "--", "sh", "-c", '"$0" "$1" for 10; exit 127', BEAT, place.log)
    place.began(2, 4 + 3 * SOON_S)  # that status was the command's own
    machine.signal(signal.SIGTERM)
    machine.ends_with(0)


@test
def subcommand_may_come_after_options(place):
    code, out, err = place.says("--lease", "5s", "elect", place.key, "--", "/no/such/program")
    assert code == NOT_FOUND, (code, out, err)
    code, out, err = place.says("-n", "-k", "elect", "--", "sh", "-c", "echo $RLOCK_KEY")
    assert (code, out) == (0, "elect\n"), (code, out, err)


@test
def another_leads_when_the_leader_is_killed(place):
    options = ("elect", "--lease", ms(LEASE_S))
    one = place.rlock(*options, place.key, "--", BEAT, place.log, *FIERCE, stderr=subprocess.DEVNULL)
    place.began(1)
    two = place.rlock(*options, place.key, "--", BEAT, place.log, stderr=subprocess.DEVNULL)
    time.sleep(0.2)
    at = now()
    one.signal(signal.SIGKILL)
    first, second = place.began(2)
    assert second[0] - at <= LEASE_S + SCALE, second[0] - at
    place.alone()
    two.signal(signal.SIGTERM)
    two.ends_with(0)


@test
def leader_that_is_told_to_end_hands_over_at_once(place):
    command = ("--", "sh", "-c", 'trap "echo asked >&2; exit 1" TERM; "$0" "$1" & wait; wait', BEAT, place.log)
    one = place.rlock("elect", place.key, *command, stderr=subprocess.PIPE, text=True)
    place.began(1)
    two = place.rlock("elect", place.key, "--", BEAT, place.log)
    time.sleep(0.2)
    at = now()
    one.signal(signal.SIGTERM)
    one.ends_with(0)
    assert "asked" in one.process.stderr.read()
    assert place.began(2)[1][0] - at < SCALE
    place.alone()
    waits = place.rlock("elect", place.key, "--", BEAT, place.log)
    time.sleep(0.2)
    waits.signal(signal.SIGTERM)
    waits.ends_with(0)
    two.signal(signal.SIGTERM)
    two.ends_with(0)


@test
def command_of_a_leader_that_ignores_sigterm_is_ended_after_its_grace(place):
    machine = place.rlock("elect", "--grace", ms(SCALE), place.key, "--", BEAT, place.log, *FIERCE, stderr=subprocess.DEVNULL)
    place.began(1)
    at = now()
    for _ in range(3):
        machine.signal(signal.SIGTERM)
        time.sleep(0.02)
    machine.ends_with(0)
    run = place.runs()[0]
    assert SCALE * 0.9 <= run[1] - at <= 2 * SCALE, run[1] - at
    place.all_gone(run, SOON_S)
    assert not place.server.redis.exists(place.key)


@test
def leader_that_loses_its_lead_starts_again_when_it_leads_again(place):
    server = place.own_server()
    machine = place.rlock("elect", "--lease", ms(LEASE_S), place.key, "--", BEAT, place.log, "ignore", stderr=subprocess.DEVNULL)
    place.began(1)
    server.signal(signal.SIGSTOP)
    time.sleep(1.2 * LEASE_S)
    place.all_gone(place.runs()[0], SOON_S)
    server.signal(signal.SIGCONT)
    place.began(2)
    server.redis.set(place.key, "stolen", px=int(100 * SCALE))
    place.began(3)
    place.alone()
    assert machine.process.poll() is None
    send(machine.keeper(), signal.SIGKILL)
    place.began(4)
    place.alone()


@test
def leader_does_not_wait_for_the_reader_of_notify_socket(place):
    path = os.path.join(place.folder, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
        ear.bind(path)
        mouth.setblocking(False)
        try:
            while True:
                mouth.sendto(b"nobody reads this", path)
        except BlockingIOError:
            pass
        leader = place.rlock("elect", place.key, "--", BEAT, place.log, env={"NOTIFY_SOCKET": path})
        place.began(1)
        leader.signal(signal.SIGTERM)
        leader.ends_with(0)


@test
def systemd_is_notified_if_notify_socket_is_set(place):
    path = os.path.join(place.folder, "notify")
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(path)
    ear.settimeout(SOON_S)
    machine = place.rlock("elect", place.key, "--", "sleep", "60", env={"NOTIFY_SOCKET": path})
    assert ear.recv(1000).startswith(b"READY=1\n")
    assert ear.recv(1000) == b"STATUS=leads"
    machine.signal(signal.SIGTERM)
    assert ear.recv(1000) == b"STOPPING=1"
    machine.ends_with(0)
    ear.close()


class Diary:
    """What the hooks and the command of a leader write down: a word, and the fencing token of the term."""

    def __init__(self, place):
        self.path = os.path.join(place.folder, "diary")

    def hook(self, word, then=""):
        return f'echo "{word} $RLOCK_FENCE" >>{self.path}; {then}'

    def command(self, then="exec sleep 60"):
        return ("--", "sh", "-c", self.hook("works", then))

    def lines(self):
        try:
            with open(self.path, encoding="ascii") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def words(self):
        return [line.split()[0] for line in self.lines()]

    def says(self, *words):
        until(f"{words} in the diary", 2 * SOON_S, lambda: self.words()[:len(words)] == list(words))


@test
def hooks_run_before_and_after_the_command_of_a_leader_and_before_it_hands_over(place):
    diary = Diary(place)
    held = f'"$RLOCK" inspect "$RLOCK_KEY" >{place.folder}/held'
    machine = place.rlock("elect", "--on-lead", diary.hook("leads"), "--on-lost", diary.hook("lost", held), place.key,
                          *diary.command(), env={"RLOCK": RLOCK}, stderr=subprocess.PIPE, text=True)
    diary.says("leads", "works")
    machine.signal(signal.SIGTERM)
    machine.ends_with(0)
    lines = diary.lines()
    fence = lines[0].split()[1]
    assert int(fence) > 0 and lines == [f"leads {fence}", f"works {fence}", f"lost {fence}"], lines
    assert not place.server.redis.exists(place.key)
    assert machine.process.stderr.read() == ""  # its own exit status says that the key was held


@test
def hooks_run_once_a_term_and_the_command_as_often_as_it_ends(place):
    diary = Diary(place)
    place.own_server()
    place.rlock("elect", "--on-lead", diary.hook("leads"), "--on-lost", diary.hook("lost"), place.key,
                *diary.command(f"[ $(grep -c works {diary.path}) != 1 ] && exec sleep 60; exit 7"), stderr=subprocess.DEVNULL)
    diary.says("leads", "works", "works")
    place.server.redis.set(place.key, "stolen", px=int(100 * SCALE))
    diary.says("leads", "works", "works", "lost", "leads", "works")
    fences = [int(line.split()[1]) for line in diary.lines()]
    assert fences[:4] == [fences[0]] * 4 and fences[4] == fences[5] > fences[0], fences


@test
def term_that_is_lost_in_a_pause_of_the_command_ends_with_its_hook(place):
    diary = Diary(place)
    place.own_server()
    place.rlock("elect", "--on-lost", diary.hook("lost"), place.key, *diary.command("exit 7"), stderr=subprocess.DEVNULL)
    diary.says("works", "works")  # the next pause is of two seconds
    place.server.redis.set(place.key, "stolen", px=int(100 * SCALE))
    diary.says("works", "works", "lost", "works")


@test
def hook_that_hangs_after_a_loss_delays_only_the_next_term(place):
    server = place.own_server()
    machine = place.rlock("elect", "--grace", ms(2 * SCALE), "--on-lost", "exec sleep 60", place.key, "--", BEAT, place.log, *FIERCE,
                          stderr=subprocess.PIPE, text=True)
    place.began(1)
    at = now()
    server.redis.set(place.key, "stolen", px=int(100 * SCALE))
    place.all_gone(place.runs()[0], SCALE)
    assert place.began(2)[1][0] - at >= 1.9 * SCALE
    place.alone()
    machine.signal(signal.SIGTERM)
    machine.ends_with(0)
    said = machine.process.stderr.read()
    assert said.count("--on-lost ran for longer than --grace and was terminated") == 2, said


@test
def renewal_that_comes_too_late_for_the_command_begins_a_term_after_the_hook(place):
    server = place.own_server()
    place.rlock("elect", "--lease", ms(4 * LEASE_S), "--grace", ms(2 * SCALE), "--on-lost", "exec sleep 60", place.key, "--", BEAT,
                place.log, stderr=subprocess.DEVNULL)
    place.began(1)
    server.signal(signal.SIGSTOP)
    place.all_gone(place.runs()[0], 4 * LEASE_S + SOON_S)  # it was asked to end
    server.signal(signal.SIGCONT)
    first, second = place.began(2)[:2]
    assert second[0] - first[1] >= 1.9 * SCALE, second[0] - first[1]
    place.alone()


@test
def hook_before_the_command_is_ended_with_the_lease_as_the_command_is(place):
    server = place.own_server()
    diary = Diary(place)
    place.rlock("elect", "--lease", ms(LEASE_S), "--on-lead", f"exec {BEAT} {place.log} ignore", "--on-lost", diary.hook("lost"),
                place.key, *diary.command(), stderr=subprocess.DEVNULL)
    place.began(1)
    at = now()
    server.signal(signal.SIGSTOP)
    place.all_gone(place.runs()[0], LEASE_S + SOON_S)
    assert place.runs()[0][1] - at <= LEASE_S, place.runs()[0][1] - at
    diary.says("lost")
    server.signal(signal.SIGCONT)
    place.began(2)
    place.alone()
    assert diary.words() == ["lost"], diary.lines()


@test
def hook_that_fails_keeps_the_command_from_starting_and_counts_as_its_failure(place):
    diary = Diary(place)
    code, out, err = place.says("elect", "--give-up", "2", "--on-lead", diary.hook("leads", "exit 3"), "--on-lost",
                                diary.hook("lost", "exit 4"), place.key, *diary.command())
    assert diary.words() == ["leads", "leads", "lost"], diary.lines()
    assert code == 3 and "failed 2 times in a row" in err and "--on-lost failed with the status 4" in err, (code, out, err)
    assert not place.server.redis.exists(place.key)


@test
def hook_after_a_term_that_was_ended_by_a_signal_is_reported(place):
    for hook, words in (("exit 3", "failed with the status 3"), ("kill -SEGV $$", f"was ended by signal {int(signal.SIGSEGV)}")):
        err = place.says("elect", "--give-up", "1", "--on-lost", hook, place.key, "--", "false")[2]
        assert f"rlock: {place.key}: --on-lost {words}\n" in err, err
    err = place.says("elect", "--grace", "0", "--give-up", "1", "--on-lost", "sleep 60", place.key, "--", "false")[2]
    assert "was terminated" in err and "was ended by" not in err, err


@test
def leader_without_a_command_ends_its_term_before_another_leads(place):
    diary = Diary(place)
    network = place.network()
    hooks = [("--lease", ms(LEASE_S), "--on-lead", diary.hook(f"{name}-leads"), "--on-lost", diary.hook(f"{name}-lost"), place.key)
             for name in ("one", "two")]
    one = place.rlock("elect", *hooks[0], url=network.url, stderr=subprocess.PIPE, text=True)
    diary.says("one-leads")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
        one.signal(number)
    two = place.rlock("elect", *hooks[1])
    time.sleep(0.2)
    network.cut = True
    diary.says("one-leads", "one-lost", "two-leads")
    network.cut = False
    network.drop()
    two.signal(signal.SIGTERM)
    two.ends_with(0)
    diary.says("one-leads", "one-lost", "two-leads", "two-lost", "one-leads")
    one.signal(signal.SIGTERM)
    one.ends_with(0)
    said = one.process.stderr.read()
    assert "was lost" in said and "the command" not in said, said


@test
def state_file_says_who_leads_and_since_when(place):
    server = place.own_server()
    path, key, seen = os.path.join(place.folder, "state"), 'a "key"', []
    with open(path, "w", encoding="ascii") as file:
        file.write("what another one has left")
    os.chmod(path, 0o640)
    server.redis.set(key, "another", px=int(300 * SCALE))
    machine = place.rlock("elect", "--state-file", path, key, "--", "sh", "-c", f"cat {path}; exec sleep 60",
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def state_is(leads):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if not seen and not text.startswith("{"):
            return None  # it has not begun
        seen.append(json.loads(text))  # it is whole, always
        return seen[-1]["leads"] == leads and seen[-1]

    first = until("an election that waits", SOON_S, lambda: state_is(False))
    leads = until("a leader", SOON_S, lambda: state_is(True))
    assert json.loads(machine.process.stdout.readline()) == leads  # before the command begins
    server.redis.set(key, "stolen", px=int(1000 * SCALE))
    lost = until("a loss", SOON_S, lambda: state_is(False))
    again = until("a leader", SOON_S, lambda: state_is(True))
    machine.signal(signal.SIGTERM)
    machine.ends_with(0)
    ended = state_is(False)
    states = [first, leads, lost, again, ended]
    for each in states:
        assert list(each) == ["key", "leads", "since", "fence", "host", "pid"], each
        assert (each["key"], each["host"], each["pid"]) == (key, socket.gethostname(), machine.pid), each
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["since"]), each
    since = [datetime.datetime.fromisoformat(each["since"].replace("Z", "+00:00")).timestamp() for each in states]
    assert since == sorted(since) and len(set(since)) == 5 and abs(time.time() - since[-1]) < 4 * SOON_S, since
    assert [each["fence"] for each in (first, lost, ended)] == [None] * 3, states
    assert 0 < leads["fence"] < again["fence"], states
    assert os.stat(path).st_mode & 0o777 == 0o640
    assert not glob.glob(path + ".*"), os.listdir(place.folder)  # no draft is left


@test
def state_file_that_cannot_be_written_is_an_error_at_the_start(place):
    for path in (os.path.join(place.folder, "no", "state"), place.folder):
        code, out, err = place.says("elect", "--state-file", path, place.key, "--", "echo", "ran")
        assert code == FAILED and out == "" and f"--state-file {path}: " in err, (code, out, err)
    folder = os.path.join(place.folder, "goes")
    os.mkdir(folder)
    machine = place.rlock("elect", "--state-file", os.path.join(folder, "state"), place.key, "--", BEAT, place.log,
                          stderr=subprocess.PIPE, text=True)
    place.began(1)
    shutil.rmtree(folder)  # later it keeps nobody from leading
    place.server.redis.set(place.key, "stolen", px=int(100 * SCALE))
    place.began(2)
    machine.signal(signal.SIGTERM)
    machine.ends_with(0)
    assert "--state-file" in machine.process.stderr.read()


@test
def file_that_finds_the_disk_full_is_said_so_and_costs_no_descriptor(place):
    """A limit of the size stands for the disk: what is above is not written, and the rest is."""
    def fills(pid, room):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    server = place.own_server()
    path = os.path.join(place.folder, "state")
    hears = {"before": lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)}
    machine = place.rlock("elect", "-l", ms(LEASE_S), "--state-file", path, place.key, "--", "sh", "-c", "echo began; exec sleep 60",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **hears)
    assert machine.process.stdout.readline() == "began\n"
    with open(path, encoding="ascii") as file:
        state_before = file.read()
    for room in (8, 0):  # a short write, and one that fails
        fills(machine.pid, room)
        server.redis.delete(place.key)  # the term ends, and another begins: two states
        assert machine.process.stdout.readline() == "began\n"
        said = [line for line in (machine.process.stderr.readline() for _ in range(3)) if "--state-file" in line]
        words = os.strerror(errno.ENOSPC if room else errno.EFBIG)
        assert said == [f"rlock: --state-file {path}: {words}\n"] * 2, said
    is_open = [os.readlink(name) for name in glob.glob(f"/proc/{machine.pid}/fd/*")]
    assert is_open and not any(path in name for name in is_open), is_open
    with open(path, encoding="ascii") as file:
        assert file.read() == state_before
    assert not glob.glob(path + ".*"), os.listdir(place.folder)  # no draft is left


# ---- chaos, and a month ----


def cut_off(place, machine, network):
    network.cut = True
    time.sleep(random.uniform(0, 2) * CHAOS_LEASE_S)
    network.cut = False
    network.drop()  # what was swallowed is missing from the connections


def paused(pid, least=0.0):
    if pid:
        send(pid, signal.SIGSTOP)
        time.sleep(random.uniform(least, 2) * CHAOS_LEASE_S)
        send(pid, signal.SIGCONT)


def server_paused(server, least=0.0):
    server.signal(signal.SIGSTOP)
    time.sleep(random.uniform(least, 2) * CHAOS_LEASE_S)
    server.signal(signal.SIGCONT)


def keeper_paused_and_cut_off(place, machine, network):
    keeper = machine.keeper()
    if keeper:
        send(keeper, signal.SIGSTOP)
        cut_off(place, machine, network)
        send(keeper, signal.SIGCONT)


def server_killed(place, machine, network):
    place.server.kill()
    time.sleep(random.uniform(0, 1) * CHAOS_LEASE_S)
    place.server.start()


CHAOS_LEASE_S = 0.4 * SCALE
CHAOS = {
    "rlock killed": lambda place, machine, network: send(machine.pid, signal.SIGKILL),
    "rlock stopped": lambda place, machine, network: paused(machine.pid),
    "keeper killed": lambda place, machine, network: send(machine.keeper(), signal.SIGKILL),
    "keeper stopped": lambda place, machine, network: paused(machine.keeper()),
    "keeper stopped, network gone": keeper_paused_and_cut_off,
    "command killed": lambda place, machine, network: send(machine.command(), signal.SIGKILL),
    "command stopped": lambda place, machine, network: paused(machine.command()),
    "rlock ended": lambda place, machine, network: send(machine.pid, signal.SIGTERM),
    "network gone": cut_off,
    "connections closed": lambda place, machine, network: network.drop(),
    "server stopped": lambda place, machine, network: server_paused(place.server),
    "server killed": server_killed,
}


class Loop(threading.Thread):
    """A machine that runs rlock again and again, over a network of its own."""

    def __init__(self, place, dice):
        super().__init__(daemon=True)
        self.place, self.dice, self.network = place, dice, place.network()
        self.current, self.over, self.statuses = None, False, {}
        self.start()

    def run(self):
        while not self.over:
            words = [word for word in FIERCE if self.dice.random() < 0.4]
            length = str(int(self.dice.uniform(20, 600) * SCALE))
            self.current = self.place.beats("for", length, *words, url=self.network.url, lease=CHAOS_LEASE_S)
            status = self.current.process.wait()
            self.statuses[status] = self.statuses.get(status, 0) + 1


@test
def chaos_never_has_two_commands_at_a_time(place):
    seed = int(os.environ.get("RLOCK_CLI_SEED") or random.randrange(1 << 32))
    dice = random.Random(seed)
    place.own_server()
    loops = [Loop(place, random.Random(seed + i)) for i in range(3)]
    done = dict.fromkeys(CHAOS, 0)
    until("a hold", SOON_S, lambda: any(loop.current and loop.current.command() for loop in loops))
    for _ in range(ROUNDS):
        time.sleep(dice.uniform(0, 0.3) * SCALE)
        loop = next((loop for loop in loops if loop.current.command()), loops[0]) if dice.random() < 0.8 else dice.choice(loops)
        kind = dice.choice(list(CHAOS))
        CHAOS[kind](place, loop.current, loop.network)
        done[kind] += 1
    for loop in loops:
        loop.over = True
    for loop in loops:
        loop.join(4 * SOON_S)
        assert not loop.is_alive(), "a machine hangs"
    runs_of, statuses = place.runs(), {}
    for loop in loops:
        for status, count in loop.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    print(f"# chaos: {len(runs_of)} holds, {sum(done.values())} faults, greatest overlap {place.overlap() * 1000:.1f} ms, "
          f"seed {seed}", flush=True)
    print(f"# {', '.join(f'{name}: {count}' for name, count in done.items())}; exit statuses {statuses}", flush=True)
    place.alone()
    assert set(statuses) <= {7, LOST, FAILED, -signal.SIGKILL, -signal.SIGTERM}, statuses
    assert len(runs_of) >= ROUNDS / 4
    until("the end of all", SOON_S, lambda: not any(runs(pid, place.log) for run in runs_of for pid in run[2]))


def power_lost(machine):
    """All processes of a machine end at once."""
    found, new = [], [machine.pid]
    while new:
        found += new
        new = [child for pid in new for child in children(pid)]
    for pid in found:
        send(pid, signal.SIGSTOP)
    for pid in found + [child for pid in found for child in children(pid)]:
        send(pid, signal.SIGKILL)


@test
def nightly_job_of_three_crontabs_is_done_once_a_night(place):
    """A simulated month. Each machine has the line `0 0 * * * rlock --wait 1h nightly -- job`, and a clock of its own: its
    midnight is up to 60 ms before or after that of the others. The job knows what it did, as a job that may be begun twice
    has to: it ends at once if the night's file is there, and makes that as its last act. The day after a night begins when
    its three lines have ended. In 18 of 30 nights there is a fault while the job runs."""
    server = place.own_server()
    faults = ["", "", "rlock killed", "machine killed", "server stopped", "server killed", "network gone"]
    completed = begun = 0
    slowest = 0.0
    for night in range(30):
        fault = faults[night % len(faults)]
        place.log = os.path.join(place.folder, f"night{night}")
        mark = os.path.join(place.folder, f"done{night}")
        networks = [place.network() for _ in range(3)]
        midnights = sorted((random.uniform(0, 0.12) * SCALE, network) for network in networks)
        start, machines = now(), {}
        for at, network in midnights:
            time.sleep(max(0, start + at - now()))
            machines[network] = place.beats("once", mark, "for", str(int(150 * SCALE)), url=network.url,
                                            options=("--wait", "1h"), lease=CHAOS_LEASE_S)
        if fault:
            place.began(1)
            holder = next((pair for pair in machines.items() if pair[1].command()), None)
            at = now()
            if holder is None:
                pass  # the job was quick
            elif fault == "rlock killed":
                holder[1].signal(signal.SIGKILL)
            elif fault == "machine killed":
                power_lost(holder[1])
            elif fault == "network gone":
                holder[0].cut = True
            elif fault == "server stopped":
                server_paused(server, 1)
            else:
                server.kill()
                server.start()
        for machine in machines.values():
            machine.ends(4 * SOON_S)
        runs_of = place.runs()
        if fault.endswith("killed") and fault != "server killed" and len(runs_of) > 1:
            slowest = max(slowest, runs_of[1][0] - at)
            assert runs_of[1][0] - at <= CHAOS_LEASE_S + SCALE, (fault, runs_of[1][0] - at)
        place.alone()
        statuses = [machine.process.returncode for machine in machines.values()]
        assert os.path.exists(mark) and 1 not in statuses, (night, fault, statuses)
        begun += len(runs_of)
        completed += 1
    print(f"# month: {completed} nights, done once in each, never two at a time; begun {begun} times; after kill -9 the next "
          f"began within {slowest:.2f} s (lease {CHAOS_LEASE_S:.1f} s)", flush=True)


# ---- all of it ----


def run_one(function, folder, server):
    place = Place(function.__name__, folder, server)
    try:
        why = failure(function, place)
        return why and why + place.told()
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
    ends_when_told()
    hears_signals()
    adopts_orphans()
    names = tuple(word for word in sys.argv[3:] if not word.isdigit())
    wanted = [function for function in TESTS if not names or function.__name__.startswith(names)]
    folder = tempfile.mkdtemp(prefix="rlock-cli-")
    pool = concurrent.futures.ThreadPoolExecutor(JOBS)
    print(f"# leases and limits are {SCALE:.1f} times as long as usual", flush=True)
    tap = Tap(len(wanted))
    try:
        server = Server(folder)
        started = [pool.submit(run_one, function, folder, server) for function in wanted]
        for function, future in zip(wanted, started):
            tap.result(function.__name__, future.result())
    except Exception:
        traceback.print_exc()
    finally:
        OVER.set()
        end_all()
        while os.path.exists(folder):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(tap.ends())  # tests that run yet are not waited for: what they start dies with this process


if __name__ == "__main__":
    main()
