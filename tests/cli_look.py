#!/usr/bin/python3
"""rlock inspect, force-release, ls and top, on real servers.

    tests/cli_look.py build/cli/rlock [NAME]

Prints TAP.
"""

import fcntl
import fnmatch
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from fixture import TESTS, Node, Redis, dies_with_parent, ends_when_told, free_port, hears_signals, run_on, state, test, until

RLOCK = sys.argv[1]
ME = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
OTHER = "9b2de1aa-7c1e-4c8f-8f3a-5d0d8a3f1c77"
FAILED = 125  # CLI_FAILED
SOON_S = 5  # a busy machine; what is pushed comes within milliseconds
WRITER = 1000000000
KEYS = ["key", "kind", "holders", "holder", "left_ms", "waiters", "permits", "fence", "description"]
MORE = ("key_hex", "holder_hex", "who", "untold")


def environment(url):
    return {**os.environ, "RLOCK_URL": url, "TERM": "xterm"}


def run(url, *arguments, seconds=20):
    """Runs it to its end: (status, what it printed, what it complained of)."""
    done = subprocess.run([RLOCK, *arguments], env=environment(url), stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=seconds)
    return done.returncode, done.stdout, done.stderr.decode()


def ask(url, *arguments, status=0):
    """What it says in JSON: a list of objects."""
    got, out, err = run(url, arguments[0], "--json", *arguments[1:])
    assert got == status, f"{arguments}: status {got}: {err}"
    objects = [json.loads(line) for line in out.splitlines()]
    assert all([name for name in o if name not in MORE] == KEYS for o in objects), objects
    return objects


def at_once(calls):
    """What each of these functions returns. They wait for servers and clocks, not for each other."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]


class Top:
    """rlock top with lines: what it prints, as it comes."""

    def __init__(self, url, *arguments, before=lambda: None):
        def begin():
            dies_with_parent()
            before()

        self.process = subprocess.Popen([RLOCK, "top", *arguments], env=environment(url), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=begin)
        self.rest = b""

    def line(self, seconds=SOON_S):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            assert ready, "no line"
            more = os.read(self.process.stdout.fileno(), 65536)
            assert more, "it has ended"
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def hears(self, key, holders):
        told = json.loads(self.line())
        assert (told["key"], told["holders"]) == (key, holders), told
        return told

    def is_quiet(self, seconds):
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        assert not ready and not self.rest, self.rest + os.read(self.process.stdout.fileno(), 65536)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Screen:
    """rlock in a terminal of its own, of so many lines and columns."""

    def __init__(self, url, *arguments, lines=10, columns=80, **more):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            dies_with_parent()
            time.sleep(0.1)  # the size comes first
            os.execve(RLOCK, [RLOCK, *arguments], {**environment(url), **more})
        self.size(lines, columns)
        self.text = ""
        self.status = None

    def size(self, lines, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        try:
            more = os.read(self.fd, 65536) if ready else b""
        except OSError:  # it has ended
            more = b""
        self.text += more.decode(errors="replace")
        return more

    def shows(self, pattern, seconds=SOON_S):
        """Waits for something that was not on the screen when this was last called."""
        deadline = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.text, re.S)
            if found:
                self.text = self.text[found.end():]
                return found
            assert time.monotonic() < deadline, f"{pattern} is not in {self.text[-500:]!r}"
            self.read(0.1)

    def type(self, text):
        os.write(self.fd, text.encode())

    def ends(self, seconds=SOON_S):
        """All that it shows until it ends, and its status."""
        deadline = time.monotonic() + seconds
        while self.status is None:
            assert time.monotonic() < deadline, "it does not end"
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        while self.read(0):
            pass
        return self.status, self.text

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


# ---- locks, as docs/protocol.md has them ----


def now_ms():
    return int(time.time() * 1000)


def mutex(r, key, number=1, ms=60000, client=ME):
    r.set(key, f"{client}:{number}", px=ms)


def queued(r, key, holders, waiters=(), ms=60000):
    """holders: (number, weight, letter); waiters: the same, with an order of arrival."""
    for number, weight, letter in holders:
        ends = now_ms() + ms
        r.zadd(key, {f"{ME}:{number}:{weight}{letter}": -ends if weight > 1 or letter == "f" else ends})
        r.pexpire(key, ms)
    for place, number, weight, letter in waiters:
        r.zadd(f"rlock:{{{key}}}:queue", {f"{OTHER}:{number}:{weight}{letter}": place})


def one_of_each(r):
    mutex(r, "m")
    r.set("rlock:{m}:fence", "1700000000000001")
    r.hset("java", f"{ME}:1", 1)
    r.pexpire("java", 60000)
    queued(r, "fair", [(1, 1, "f")], [(1, 2, 1, "f"), (2, 3, 1, "f")])
    queued(r, "read", [(1, 1, "w"), (2, 1, "w"), (3, 1, "w")], [(1, 4, WRITER, "w")])
    queued(r, "write", [(1, WRITER, "w")])
    queued(r, "semaphore", [(1, 2, "s"), (2, 1, "s")], [(1.5, 3, 2, "s")])
    queued(r, "set", [(1, 1, "s")])
    r.zadd("set", {"permits:7": "-inf"})
    # what is no lock of ours
    r.set("text", "hello")
    r.set("long", "x" * 100000)
    r.set("redis-py", "0123456789abcdef0123456789abcdef", px=60000)
    r.hset("person", "name", "Ada")
    r.hset("map", mapping={f"{ME}:1": 1, "mode": "read"})
    r.zadd("scores", {"Ada": 5, f"{ME}:1": 6})
    r.rpush("list", 1)
    r.sadd("members", 1)
    r.xadd("stream", {"a": 1})
    r.set("rlock:quarantine", "0 0 0")


STANDS = {  # kind, holders, waiters, permits, fence
    "m": ("mutex", 1, None, None, 1700000000000001),
    "java": ("mutex", 1, None, None, None),
    "fair": ("fair", 1, 2, None, None),
    "read": ("read", 3, 1, None, None),
    "write": ("write", 1, 0, None, None),
    "semaphore": ("semaphore", 2, 1, None, None),
    "set": ("semaphore", 1, 0, 6, None),
}


def is_as_it_stands(told):
    assert (told["kind"], told["holders"], told["waiters"], told["permits"], told["fence"]) == STANDS[told["key"]], told
    assert told["holder"] == ME and 40000 < told["left_ms"] <= 60000, told


# ---- ls and inspect ----


@test
def ls_finds_each_kind_of_lock_and_nothing_else(server, r):
    one_of_each(r)
    told = ask(server.url, "ls")
    assert [t["key"] for t in told] == sorted(STANDS), told
    for t in told:
        is_as_it_stands(t)


@test
def ls_prints_a_line_each_and_escapes_what_a_terminal_would_obey(server, r):
    mutex(r, b"a\x1b[31m\n", ms=50000)
    r.set("rlock:{" + "a\x1b[31m\n" + "}:fence", "12")
    status, out, _ = run(server.url, "ls")
    assert status == 0
    assert re.fullmatch(rb"a\\x1b\[31m\\x0a +mutex +" + ME.encode() + rb" +(49|50)\.\ds +- +12\n", out), out
    r.flushall()
    keys = {b"\x00\xff": "\x00\ufffd", "ä€😀ÿ".encode(): "ä€😀ÿ", b'"\\\n\x7f': '"\\\n\x7f', b"\xc3": "\ufffd",
            b"\xed\xa0\x80": "\ufffd" * 3, b"\xc2\x85": "\x85", b"\xf8\x88\x80\x80": "\ufffd" * 4}
    for key in keys:
        mutex(r, key)
    assert sorted(t["key"] for t in ask(server.url, "ls")) == sorted(keys.values())


@test
def no_two_keys_are_shown_alike_and_none_turns_the_line(server, r):
    keys = [b"\xff", "\u00ff".encode(), b"\xfe", b"a\x1b", b"a\\x1b", b"a\\\\x1b", "a\u202eb".encode(), "a\u200bb".encode(), b"ab",
            "\U000e0041".encode()]
    for key in keys:
        mutex(r, key)
    told = ask(server.url, "ls")
    shown = {(t["key"], t.get("key_hex")) for t in told}
    assert len(shown) == len(keys), shown
    assert {bytes.fromhex(t["key_hex"]) if "key_hex" in t else t["key"].encode() for t in told} == set(keys)
    assert sorted(t["key_hex"] for t in told if "key_hex" in t) == ["fe", "ff"]
    _, out, _ = run(server.url, "ls")
    lines = out.decode().splitlines()
    assert len({line.split()[0] for line in lines}) == len(keys), lines
    _, json, _ = run(server.url, "ls", "--json")
    for text in (out.decode(), json.decode()):
        assert not set("\x1b\u202e\u200b\U000e0041") & set(text), text
    r.flushall()
    r.set("k", b"\xff" * 3, px=20000)  # what another library wrote
    assert ask(server.url, "inspect", "k")[0]["holder_hex"] == "ffffff"


@test
def ls_takes_patterns_as_the_server_has_them(server, r):
    for key in ["stock:1", "stock:2", "stock:12", "other"]:
        mutex(r, key)
    assert [t["key"] for t in ask(server.url, "ls", "stock:1")] == ["stock:1"]
    assert sorted(t["key"] for t in ask(server.url, "ls", "stock:?")) == ["stock:1", "stock:2"]
    assert sorted(t["key"] for t in ask(server.url, "ls", "[st]*2")) == ["stock:12", "stock:2"]
    assert ask(server.url, "ls", "nothing*") == []


@test
def ls_reads_a_hundred_thousand_foreign_keys_by_scan_alone(server, r):
    r.execute_command("DEBUG", "POPULATE", 100000)
    mutex(r, "needle")
    r.config_resetstat()
    assert [t["key"] for t in ask(server.url, "ls")] == ["needle"]
    sent = r.info("commandstats")
    assert "cmdstat_keys" not in sent and sent["cmdstat_scan"]["calls"] >= 100


@test
def inspect_finds_the_kind_by_itself(server, r):
    one_of_each(r)
    for key in STANDS:
        is_as_it_stands(ask(server.url, "inspect", key)[0])
    assert ask(server.url, "inspect", "--permits", "5", "semaphore")[0]["permits"] == 2
    status, out, _ = run(server.url, "inspect", "set")
    assert status == 0 and re.fullmatch(
        rf"set\n  held by  {ME}\n  kind     semaphore\n  left     \S+s\n  waiters  0\n  fence    -\n"
        rf"  permits  6 left\n".encode(), out), out
    told = ask(server.url, "inspect", "redis-py")[0]
    assert (told["kind"], told["holder"]) == ("mutex", "0123456789abcdef0123456789abcdef")


@test
def inspect_tells_a_free_key_by_its_status(server, r):
    free = {"key": "k", "kind": None, "holders": 0, "holder": None, "left_ms": None, "waiters": None,
            "permits": None, "fence": None, "description": None, "who": [], "untold": None}
    told = ask(server.url, "inspect", "k", status=1)[0]
    assert told == free, told
    r.zadd("rlock:{k}:queue", {f"{OTHER}:1:1f": 1})  # nobody holds, one waits
    told = ask(server.url, "inspect", "k", status=1)[0]
    assert (told["kind"], told["waiters"]) == ("fair", 1)


@test
def inspect_of_what_is_no_lock_fails_with_words(server, r):
    one_of_each(r)
    for arguments in [["scores"], ["person"], ["list"], ["--kind", "fair", "m"]]:
        status, out, err = run(server.url, "inspect", *arguments)
        assert status == FAILED and out == b"" and "no lock, or one of another kind" in err, err


# ---- who holds, in words ----


class Job:
    """rlock with a command that runs until it is ended."""

    def __init__(self, url, *arguments):
        self.process = subprocess.Popen([RLOCK, *arguments, "--", "sleep", "60"], env=environment(url),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        preexec_fn=dies_with_parent)
        self.words = f"{socket.gethostname()[:60]}, pid {self.process.pid}, sleep"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()


def held(r, key):
    until(f"{key} is held", SOON_S, lambda: r.exists(key))


@test
def a_job_is_shown_with_its_host_its_number_and_its_command(server, r):
    with Job(server.url, "k") as job:
        held(r, "k")
        told = ask(server.url, "inspect", "k")[0]
        assert told["description"] == job.words and told["untold"] is None, told
        assert [(who["holder"], who["description"]) for who in told["who"]] == [(told["holder"], job.words)], told
        _, out, _ = run(server.url, "inspect", "k")
        assert f"\n  holder   {told['holder']}: {job.words}\n" in out.decode(), out
        told = ask(server.url, "ls")[0]
        assert told["description"] == job.words and "who" not in told, told
        _, out, _ = run(server.url, "ls")
        assert f" {told['holder'][:8]} {job.words} " in out.decode(), out
        with Top(server.url, "--json") as top:
            assert top.hears("k", 1)["description"] == job.words
        with Screen(server.url, "top", lines=5, columns=160) as screen:
            screen.shows(re.escape(f"{told['holder'][:8]} {job.words}"[:36]))


@test
def top_shows_the_words_of_each_next_holder(server, r):
    mutex(r, "k")
    with Top(server.url, "--json") as top:
        assert top.hears("k", 1)["description"] is None
        r.delete("k")
        top.hears("k", 0)
        with Job(server.url, "--description", "the next one", "k"):
            assert top.hears("k", 1)["description"] == "the next one"
            with Job(server.url, "--description", "another", "l"):
                assert top.hears("l", 1)["description"] == "another"


@test
def waiters_are_listed_in_their_order_and_holders_without_words_too(server, r):
    with Job(server.url, "--kind", "fair", "--description", "first", "k"):
        held(r, "k")
        with Job(server.url, "--kind", "fair", "--description", "second", "k"):
            until("it waits", SOON_S, lambda: r.zcard("rlock:{k}:queue") == 1)
            r.zadd("rlock:{k}:queue", {f"{OTHER}:1:1f": 99})
            who = ask(server.url, "inspect", "k")[0]["who"]
            assert [w["description"] for w in who] == ["first", "second", None], who
            assert ["holder" in w for w in who] == [True, False, False] and who[2]["waiter"] == OTHER, who
            _, out, _ = run(server.url, "inspect", "k")
            assert f"\n  waiter   {OTHER}: not connected, or without a description\n" in out.decode(), out


@test
def name_of_a_foreign_connection_never_reaches_a_terminal(server, r):
    mutex(r, "k")
    r.client_setname(f"rlock:{ME}:%1b%5b31mred%0a%e2%80%ae")
    for arguments in (["inspect", "k"], ["ls"], ["inspect", "--json", "k"], ["ls", "--json"]):
        status, out, _ = run(server.url, *arguments)
        assert status == 0 and b"31mred" in out and b"x1b" in out, out
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]|\xe2\x80\xae", out), out
    r.client_setname("")


@test
def user_who_may_not_list_clients_sees_the_rest_and_why(server, r):
    r.execute_command("ACL", "SETUSER", "blind", "on", ">x", "~*", "&*", "+@all", "-client|list")
    url = f"unix://blind:x@{server.socket}"
    with Job(server.url, "k"):
        held(r, "k")
        told = ask(url, "inspect", "k")[0]
        assert told["description"] is None and "NOPERM" in told["untold"] and len(told["who"]) == 1, told
        _, out, _ = run(url, "inspect", "k")
        assert "\n  who      NOPERM" in out.decode(), out
        status, out, err = run(url, "ls", "--json")
        assert status == 0 and json.loads(out)["description"] is None and err == "", err
        _, _, err = run(url, "ls", "-v")
        assert "no descriptions: NOPERM" in err, err


@test
def description_that_is_none_is_refused_and_a_name_of_the_url_is_kept(server, r):
    for words in ("", "x" * 129, "a\nb"):
        status, _, err = run(server.url, "--description", words, "k", "--", "true")
        assert status == FAILED and "config.description: expected 1 to 128 bytes" in err, err
    status, _, err = run(server.url, "ls", "--description", "x")
    assert status == FAILED and "--description: not with rlock ls" in err, err
    with Job(server.url + ("&" if "?" in server.url else "?") + "client_name=billing", "k"):
        held(r, "k")
        assert "billing" in [client["name"] for client in r.client_list()]
        assert ask(server.url, "inspect", "k")[0]["description"] is None


@test
def user_without_the_right_to_a_name_is_warned_of_nothing(server, r):
    r.execute_command("ACL", "SETUSER", "unnamed", "on", ">x", "~*", "&*", "+@all", "-client|setname")
    status, _, err = run(f"unix://unnamed:x@{server.socket}", "k", "--", "true")
    assert (status, err) == (0, ""), err


# ---- force-release ----


@test
def force_release_takes_each_kind_and_nothing_else(server, r):
    one_of_each(r)
    before = set(r.keys())
    for key in STANDS:
        told = ask(server.url, "force-release", key)[0]
        assert (told["kind"], told["holders"], told["holder"]) == (STANDS[key][0], STANDS[key][1], ME), told
        assert not any(ME in str(holder) for holder in r.zrange(key, 0, -1))
        if key != "semaphore":  # its waiter, who cannot be notified, has an offer now
            assert ask(server.url, "inspect", key, status=1)[0]["holders"] == 0
            ask(server.url, "force-release", key, status=1)
    gone = {key.decode() for key in before - set(r.keys())}
    assert gone <= set(STANDS) | {"rlock:{fair}:queue", "rlock:{read}:queue", "rlock:{semaphore}:queue"}, gone
    mutex(r, "k")
    assert run(server.url, "force-release", "k")[:2] == (0, f"k: released; it was held by {ME}\n".encode())
    assert run(server.url, "force-release", "k")[:2] == (1, b"k: nothing to release: free\n")


@test
def force_release_wakes_the_waiters_of_redisson(server, r):
    r.hset("java", f"{ME}:1", 1)
    ear = r.pubsub(ignore_subscribe_messages=True)
    ear.subscribe("redisson_lock__channel:{java}")
    ear.get_message(timeout=1)
    ask(server.url, "force-release", "java")
    assert until("a message", SOON_S, lambda: ear.get_message(timeout=0.1))["data"] == b"0"
    ear.close()


@test
def force_release_of_a_semaphore_serves_no_more_than_held(server, r):
    queued(r, "s", [(1, 1, "s"), (2, 1, "s")], [(i + 0.5, i, 1, "s") for i in range(10, 15)])
    ask(server.url, "force-release", "s")
    assert r.zcard("s") == 2 and r.zcard("rlock:{s}:queue") == 3


# ---- servers ----


@test
def urls_with_passwords_users_and_databases_lead_there(server, r):
    port = free_port()
    secret = "p%40%3A%2f%25w"
    with Redis("--requirepass", "p@:/%w", port=port) as locked:
        own = locked.connect(password="p@:/%w", db=1)
        own.execute_command("ACL", "SETUSER", "ops:1", "on", ">two words", "~*", "&*", "+@read", "+@connection",
                            "+@scripting", "+@pubsub", "+time")
        mutex(own, "one")
        for url in [f"redis://:{secret}@127.0.0.1:{port}/1", f"redis://:{secret}@localhost:{port}?db=1",
                    f"unix://:{secret}@{locked.socket}?db=1", f"redis://ops%3A1:two%20words@127.0.0.1:{port}/1"]:
            assert [t["key"] for t in ask(url, "ls")] == ["one"], url
            assert ask(url, "inspect", "one")[0]["holders"] == 1
            with Top(url, "--json") as top:
                top.hears("one", 1)
        status, _, err = run(f"redis://:wrong@127.0.0.1:{port}/1", "ls")
        assert status == FAILED and "WRONGPASS" in err, err


@test
def what_takes_no_lease_works_with_a_quarantine_that_is_shorter_than_the_default_one(server, r):
    url = server.url + "?quarantine_ms=3000"
    for key in ("a", "b"):
        mutex(r, key)
    assert [t["key"] for t in ask(url, "ls")] == ["a", "b"]
    assert ask(url, "inspect", "a")[0]["holder"] == ME
    with Top(url, "--json", "a") as top:
        top.hears("a", 1)
    assert ask(url, "force-release", "a")[0]["holders"] == 1
    assert run(url, "release", "b", f"{ME}:1:0")[0] == 0 and not r.exists("b")


@test
def a_user_who_may_only_use_some_keys_sees_these(server, r):
    r.execute_command("ACL", "SETUSER", "few", "on", ">x", "~stock:*", "&*", "+@all")
    mutex(r, "stock:1")
    mutex(r, "other")
    url = f"unix://few:x@{server.socket}"
    assert [t["key"] for t in ask(url, "ls")] == ["stock:1"]
    assert ask(url, "inspect", "stock:1")[0]["kind"] == "mutex"
    status, _, err = run(url, "inspect", "other")
    assert status == FAILED and "NOPERM" in err, err
    r.execute_command("ACL", "SETUSER", "poor", "on", ">x", "~*", "&*", "+@all", "-scan")
    status, _, err = run(f"unix://poor:x@{server.socket}", "ls")
    assert status == FAILED and "scan" in err and "+@read" in err, err


@test
def a_server_that_is_away_ends_it_when_the_wait_is_over(server, r):
    url = f"redis://127.0.0.1:{free_port()}"

    def away(command):
        start = time.monotonic()
        status, _, err = run(url, command[0], "--wait", "700ms", *command[1:])
        assert status == FAILED and "not reached" in err and "refused" in err and "--url" in err, err
        assert 0.5 < time.monotonic() - start < 5

    def mute(command):
        status, _, err = run(silent.url, command[0], "--wait", "1500ms", *command[1:])
        assert status == FAILED and "rlock: " in err, err

    with Redis() as silent:
        os.kill(silent.process.pid, signal.SIGSTOP)
        at_once([lambda c=c: away(c) for c in (["inspect", "k"], ["force-release", "k"], ["ls"], ["top"])] +
                [lambda c=c: mute(c) for c in (["inspect", "k"], ["ls"])])
    assert run(url, "ls", "--wait", "0")[0] == FAILED


@test
def a_server_that_comes_back_is_waited_for(server, r):
    port = free_port()
    process = subprocess.Popen([RLOCK, "ls", "--json"], env=environment(f"redis://127.0.0.1:{port}"),
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=dies_with_parent)
    time.sleep(0.6)
    with Redis(port=port) as late:
        assert late.process.poll() is None
        assert process.wait(10) == 0
        process.stdout.close()


@test
def a_quorum_is_inspected_and_not_listed(server, r):
    servers = [server] + [Redis() for _ in range(2)]
    try:
        for s in servers:
            mutex(s.connect(), "q")
        urls = ",".join(s.url for s in servers)
        assert ask(server.url, "inspect", "--quorum", urls, "q")[0]["holders"] == 1
        assert ask(server.url, "force-release", "--quorum", urls, "q")[0]["holders"] == 1
        assert sum(s.connect().get("q") is None for s in servers) >= 2
        for command in ["ls", "top"]:
            status, _, err = run(server.url, command, "--quorum", urls)
            assert status == FAILED and "--url" in err, err
    finally:
        for s in servers[1:]:
            s.stop()


@test
def a_sentinel_leads_to_the_primary(server, r):
    with Node() as primary:
        with Node("--sentinel", configuration=f"sentinel monitor locks 127.0.0.1 {primary.port} 1\n") as sentinel:
            mutex(primary.connect(db=2), "k")
            url = f"redis+sentinel://127.0.0.1:{sentinel.port}/locks/2"
            assert [t["key"] for t in ask(url, "ls")] == ["k"]
            assert ask(url, "inspect", "k")[0]["holders"] == 1


class Cluster:
    """Three masters, each with a third of the slots."""

    def __init__(self):
        self.nodes = []
        try:
            for i in range(3):
                self.nodes.append(Node(cluster=True))
                self.nodes[i].cluster("SET-CONFIG-EPOCH", i + 1)
                self.nodes[i].cluster("ADDSLOTSRANGE", 16384 * i // 3, 16384 * (i + 1) // 3 - 1)
            for node in self.nodes[1:]:
                node.cluster("MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus)
            until("a whole cluster", 30, lambda: all(self.whole(node) for node in self.nodes))
        except BaseException:
            self.stop()
            raise
        self.url = f"redis+cluster://127.0.0.1:{self.nodes[1].port}"

    @staticmethod
    def whole(node):
        info = str(node.cluster("INFO"))
        return "cluster_state:ok" in info and "cluster_known_nodes:3" in info

    def at(self, key):
        """The node of a key."""
        slot = self.nodes[0].cluster("KEYSLOT", key)
        return next(node.connect() for i, node in enumerate(self.nodes) if slot < 16384 * (i + 1) // 3)

    def stop(self):
        for node in self.nodes:
            node.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


@test
def a_cluster_is_looked_at_as_a_whole(server, r):
    keys = [f"k{i}" for i in range(12)] + ["{a}:1", "a}b"]
    with Cluster() as cluster:
        for key in keys:
            mutex(cluster.at(key), key)
        queued(cluster.at("f"), "f", [(1, 1, "f")])
        cluster.at("f").zadd("rlock:{f}:queue", {f"{OTHER}:1:1f": 1})
        told = ask(cluster.url, "ls")
        assert sorted(t["key"] for t in told) == sorted(keys + ["f"])
        assert [t["waiters"] for t in told if t["key"] == "f"] == [1]

        def goes(key):
            assert ask(cluster.url, "inspect", key)[0]["holders"] == 1
            ask(cluster.url, "force-release", key)

        at_once([lambda key=key: goes(key) for key in keys[:4] + ["f"]])
        with Top(cluster.url, "--json", "new*") as top:
            time.sleep(1)
            for key in ["new1", "new2", "new3", "new4", "new5"]:
                mutex(cluster.at(key), key)
                top.hears(key, 1)


@test
def a_token_of_one_shell_is_renewed_and_released_in_others_on_a_cluster(server, r):
    with Cluster() as cluster:
        for key, kind in (("k0", ()), ("k1", ("--kind", "fair")), ("{a}:1", ("-k", "{a}:2")), ("k3", ())):
            code, token, err = run(cluster.url, "acquire", "--lease", "1h", *kind, key)
            assert code == 0, (key, err)
            for step in ("renew", "release"):
                assert run(cluster.url, "--try", *kind, key, "--", "true")[0] == 124, (key, step)
                assert run(cluster.url, step, *kind, key, token.strip()) == (0, b"", ""), (key, step)
            assert run(cluster.url, "renew", *kind, key, token.strip())[0] == 123, key
            assert run(cluster.url, "--try", "--at-least", "1h", *kind, key, "--", "true")[0] == 0, key
            assert run(cluster.url, "--try", *kind, key, "--", "true")[0] == 124, key


@test
def a_lock_whose_slot_moves_is_followed(server, r):
    with Cluster() as cluster:
        slot = cluster.nodes[0].cluster("KEYSLOT", "k")
        old = next(i for i in range(3) if slot < 16384 * (i + 1) // 3)
        new = (old + 1) % 3
        say = [node.connect().execute_command for node in cluster.nodes]
        ids = [say[i]("CLUSTER", "MYID") for i in range(3)]
        mutex(cluster.nodes[old].connect(), "k")
        with Top(cluster.url, "--json") as top:
            top.hears("k", 1)
            say[new]("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[old])
            say[old]("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[new])
            say[old]("MIGRATE", "127.0.0.1", cluster.nodes[new].port, "k", 0, 1000)
            top.is_quiet(0.5)
            assert [t["key"] for t in ask(cluster.url, "ls")] == ["k"]
            assert ask(cluster.url, "inspect", "k")[0]["holders"] == 1
            for i in [new, old, 3 - new - old]:
                say[i]("CLUSTER", "SETSLOT", slot, "NODE", ids[new])
            top.is_quiet(0.5)
            cluster.nodes[new].connect().delete("k")
            top.hears("k", 0)


AWAY = "127.9.9.9"  # where nobody is


@test
def addresses_that_nodes_announce_are_mapped(server, r):
    with Cluster() as cluster:
        for node in cluster.nodes:
            node.connect().config_set("cluster-announce-hostname", AWAY)
            node.connect().config_set("cluster-preferred-endpoint-type", "hostname")
        until("all are announced so", 20, lambda: all(
            str(node.cluster("SLOTS")).count(f"b'{AWAY}', ") >= 3 for node in cluster.nodes))
        keys = [f"k{i}" for i in range(6)]
        for key in keys:
            mutex(cluster.at(key), key)
        maps = [f"{AWAY}:{node.port}=127.0.0.1:{node.port}" for node in cluster.nodes]
        options = [word for one in maps for word in ("--map", one)]
        status, _, err = run(cluster.url, "ls", "--wait", "1s")
        assert status == FAILED and AWAY in err, err
        assert sorted(t["key"] for t in ask(cluster.url, "ls", *options)) == keys
        assert sorted(t["key"] for t in ask(cluster.url, "ls", "--map", ",".join(maps))) == keys
        for key in keys:
            assert ask(cluster.url, "inspect", *options, key)[0]["holders"] == 1
        done = subprocess.run([RLOCK, "new", "--", "true"], env={**environment(cluster.url), "RLOCK_MAP": ",".join(maps)},
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        assert done.returncode == 0, done.stderr


@test
def a_map_that_is_none_is_refused_with_its_form(server, r):
    for text in ("", "a", "a=b", "a:1", "a:1=b", "a=b:1", "a:1=b:0", "a:1=b:65536", "a:1=b:1x", "a:1=b:1,", "::1:1=a:1",
                 "a:1=" + "b" * 300 + ":1"):
        status, _, err = run(server.url, "--map", text, "k", "--", "true")
        assert status == FAILED and f"--map {text}: expected FROM=TO, each like host:6379" in err, (text, err)
    status, _, err = run(server.url, "--map", "[::1]:6379=host.example:1", "--map", "a:1=b:2,c:3=d:4", "k", "--", "true")
    assert (status, err) == (0, ""), err


# ---- top ----


@test
def top_prints_each_change_and_no_renewal(server, r):
    mutex(r, "a")
    with Top(server.url, "--json") as top:
        top.hears("a", 1)
        r.pexpire("a", 50000)
        r.set("foreign", 1)
        top.is_quiet(0.5)
        mutex(r, "b", client=OTHER)
        assert top.hears("b", 1)["holder"] == OTHER
        r.delete("a")
        assert top.hears("a", 0)["kind"] == "mutex"
        mutex(r, "b", number=2)
        assert top.hears("b", 1)["holder"] == ME
        r.flushall()
        top.hears("b", 0)


@test
def top_tells_of_waiters_and_fences_next_to_a_lock(server, r):
    for pattern in ["*", "q*", "rlock*"]:
        r.flushall()
        key = "rlocked" if pattern == "rlock*" else "q:1"
        with Top(server.url, "--json", pattern) as top:
            until("a push connection", SOON_S, lambda: len(r.client_list(_type="pubsub")) == 1)
            time.sleep(0.3)
            queued(r, key, [(1, 1, "f")])
            top.hears(key, 1)
            queued(r, key, [], [(1, 7, 1, "f")])
            assert top.hears(key, 1)["waiters"] == 1
            r.set(f"rlock:{{{key}}}:fence", 77)
            assert top.hears(key, 1)["fence"] == 77


@test
def top_notices_leases_that_end_by_themselves(server, r):
    ends = now_ms()
    r.zadd("s", {f"{ME}:1:1s": ends + 700, f"{ME}:2:1s": ends + 1500, f"{ME}:3:1s": ends + 60000})
    mutex(r, "short", ms=1000)
    with Top(server.url, "--json") as top:
        first = sorted([json.loads(top.line()) for _ in range(2)], key=lambda told: told["key"])
        assert [(told["key"], told["holders"]) for told in first] == [("s", 3), ("short", 1)], first
        rest = [(told["key"], told["holders"]) for told in [json.loads(top.line()) for _ in range(3)]]
        assert rest == [("s", 2), ("short", 0), ("s", 1)], rest


@test
def top_asks_for_nothing_but_what_changed(server, r):
    for i in range(200):
        mutex(r, f"k{i}")
    with Top(server.url, "--json") as top:
        for _ in range(200):
            top.line()
        time.sleep(0.3)
        r.config_resetstat()
        mutex(r, "one")
        top.hears("one", 1)
        time.sleep(1.5)
        sent = r.info("commandstats")
        assert "cmdstat_scan" not in sent and "cmdstat_keys" not in sent
        assert sent["cmdstat_evalsha"]["calls"] == 1, sent


@test
def top_polls_where_tracking_is_refused_and_says_so(server, r):
    r.execute_command("ACL", "SETUSER", "deaf", "on", ">x", "~*", "&*", "+@all", "-client|tracking")
    url = f"unix://deaf:x@{server.socket}"
    with Top(url, "--json") as top:
        time.sleep(0.3)
        mutex(r, "a")
        top.hears("a", 1)
        r.delete("a")
        top.hears("a", 0)
    with Screen(url, "top", columns=200) as screen:
        screen.shows("polled once a second: .*client\\|tracking")


@test
def top_ends_when_nobody_reads_any_more(server, r):
    mutex(r, "a")
    with Top(server.url) as top:
        assert top.line().startswith("a ")
        top.process.stdout.close()
        assert top.process.wait(5) == 0
        top.process.stdout = open(os.devnull, "rb")


@test
def top_goes_on_after_its_connections_were_killed(server, r):
    mutex(r, "a")
    with Top(server.url, "--json") as top:
        top.hears("a", 1)
        mutex(r, "b")
        top.hears("b", 1)
        for client in r.client_list():
            if client["id"] != str(r.client_id()):
                r.execute_command("CLIENT", "KILL", "ID", client["id"])
        r.delete("a")
        assert top.hears("a", 0)
        mutex(r, "c")
        top.hears("c", 1)


@test
def top_ends_when_the_server_stays_away(server, r):
    with Redis() as other:
        mutex(other.connect(), "a")
        with Top(other.url, "--json", "--wait", "1s") as top:
            top.hears("a", 1)
            other.process.kill()
            assert top.process.wait(10) == FAILED


@test
def top_ignores_what_it_was_started_to_ignore_as_nohup_has_it(server, r):
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    with Top(server.url, "--json", before=lambda: [signal.signal(number, signal.SIG_IGN) for number in numbers]) as top:
        mutex(r, "a")
        top.hears("a", 1)
        for number in numbers:
            top.process.send_signal(number)
        r.delete("a")
        top.hears("a", 0)
        top.process.terminate()
        assert top.process.wait(SOON_S) == 0


@test
def top_whose_reader_is_slow_outlives_a_window_that_is_resized(server, r):
    count = 1000
    for i in range(count):
        mutex(r, f"k{i:04}")
    with Top(server.url, "--json") as top:
        waiting = lambda: struct.unpack("i", fcntl.ioctl(top.process.stdout, termios.FIONREAD, b"\0" * 4))[0]
        until("a full pipe", SOON_S, lambda: waiting() > 61440 and state(top.process.pid) == "S")
        top.process.send_signal(signal.SIGWINCH)
        assert len({json.loads(top.line())["key"] for _ in range(count)}) == count


@test
def inspect_ends_with_its_status_also_if_nobody_reads(server, r):
    mutex(r, "held")
    for key, status in (("held", 0), ("free", 1)):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([RLOCK, "inspect", key], env=environment(server.url), stdin=subprocess.DEVNULL,
                              stdout=writer, stderr=subprocess.DEVNULL, timeout=20, check=False)
        os.close(writer)
        assert done.returncode == status, (key, done.returncode)


ENTER, LEAVE = r"\x1b\[\?1049h", r"\x1b\[\?1049l"


@test
def top_shows_a_table_and_gives_the_terminal_back(server, r):
    one_of_each(r)
    with Screen(server.url, "top", lines=20, columns=140) as screen:
        before = termios.tcgetattr(screen.fd)
        screen.shows(ENTER)
        screen.shows(r"\*  \S+socket: 7 locks, 4 waiting; updated by push")
        screen.shows(r"KEY +KIND +HELD-BY +LEFT +WAITERS +FENCE")
        screen.shows(rf"fair +fair +{ME} +\d+s +2 +-")
        mutex(r, "zzz", client=OTHER)
        screen.shows(rf"zzz +mutex +{OTHER} +(1m00|59)s", 1)
        screen.shows(rf"zzz +mutex +{OTHER} +58s")
        screen.type("q")
        status, text = screen.ends()
        assert status == 0 and re.search(r"\x1b\[\?25h" + LEAVE + "$", text), (status, text[-100:])
        after = termios.tcgetattr(screen.fd)
        assert after[3] == before[3] | after[3] & 0 and after[3] & termios.ECHO and after[3] & termios.ICANON


@test
def top_says_that_the_server_does_not_answer(server, r):
    with Redis() as other:
        mutex(other.connect(), "k")
        with Screen(other.url, "top", "--wait", "20s", columns=200) as screen:
            screen.shows("1 locks, .*updated by push")
            os.kill(other.process.pid, signal.SIGSTOP)
            screen.shows("1 locks, .*not up to date: .*no answer", 10)
            os.kill(other.process.pid, signal.SIGCONT)
            screen.shows("1 locks, .*updated by push", 10)


@test
def top_fits_the_window(server, r):
    for i in range(30):
        mutex(r, f"k{i:02}" + "x" * 100)
    with Screen(server.url, "top", lines=8, columns=70) as screen:
        screen.shows("30 locks")
        time.sleep(0.5)
        screen.read(0.1)
        screen.text = ""
        screen.size(12, 90)
        time.sleep(0.5)
        screen.type("q")
        _, text = screen.ends()
        drawn = re.findall(r"\x1b\[(\d+);1H\x1b\[K((?:\x1b\[\d*m|[^\x1b])*)", text)
        assert drawn and max(int(line) for line, _ in drawn) == 12, drawn
        assert max(len(re.sub(r"\x1b\[\d*m", "", words)) for _, words in drawn) <= 90


@test
def top_gives_the_terminal_back_when_it_is_ended_or_fails(server, r):
    with Redis() as other:
        for number in [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP]:
            with Screen(other.url, "top") as screen:
                screen.shows("updated by push")
                os.kill(screen.pid, number)
                status, text = screen.ends()
                assert status == 0 and re.search(LEAVE, text)
        with Screen(other.url, "top", "--wait", "1s") as screen:
            screen.shows("updated by push")
            other.process.kill()
            status, text = screen.ends(10)
            assert status == FAILED and re.search(LEAVE + ".*rlock: ", text, re.S), text[-300:]


@test
def each_connection_speaks_tls_and_looks_at_the_certificate(server, r):
    key, cert, port = os.path.join(server.folder, "tls.key"), os.path.join(server.folder, "tls.crt"), free_port()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert,
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with Redis("--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
                "--tls-auth-clients", "no") as other:
        url, ca = f"rediss://127.0.0.1:{port}", ("--cacert", cert)
        mutex(other.connect(), "k")
        assert [told["key"] for told in ask(url, "ls", *ca)] == ["k"]
        assert ask(url, "inspect", *ca, "k")[0]["holder"] == ME
        with Top(url, "--json", *ca) as top:
            top.hears("k", 1)
            assert run(url, "force-release", *ca, "k")[0] == 0
            top.hears("k", 0)
        assert run(url, "--try", *ca, "k", "--", "echo", "ran")[:2] == (0, b"ran\n")
        status, _, err = run(url, "ls", "--wait", "300ms")  # nobody says who signed it
        assert status == FAILED and "certificate" in err, err


@test
def colours_are_for_terminals_that_want_them(server, r):
    mutex(r, "k")
    colour = r"\x1b\[\d+m"
    with Screen(server.url, "ls", columns=90) as screen:
        text = screen.ends()[1]
        assert re.search(colour, text)
        assert [len(line) for line in re.sub(r"\x1b\[\d*m", "", text).splitlines()] == [90, 90], text
    with Screen(server.url, "ls", NO_COLOR="1") as screen:
        text = screen.ends()[1]
        assert "KEY" in text and not re.search(colour, text)
    assert b"\x1b" not in run(server.url, "ls")[1]


SECRET = "s3cret-of-the-shop"
REPEATED = f"-ERR unknown \x1b[2J'AUTH', with args beginning with: 'shop' '{SECRET}' \x07{SECRET}\x7f\r\n".encode()


class Repeater:
    """Stands before a server, and answers one command, or all, with an error that repeats the password, or with others: the
    last of them again and again."""

    def __init__(self, path, command, *answers):
        self.path = path
        self.command = command  # its first words; "" = all
        self.answers = answers or (REPEATED,)
        self.said = 0
        self.door = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://:{SECRET}@127.0.0.1:{self.door.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, client.makefile("rb") as asks, socket.socket(socket.AF_UNIX) as server, \
                server.makefile("rb") as answers:
            try:
                server.connect(self.path)
                while True:
                    raw, words = self.read(asks)
                    if b" ".join(words[:2]).decode(errors="replace").startswith(self.command):
                        self.said += 1
                        client.sendall(self.answers[min(self.said, len(self.answers)) - 1])
                    elif words[0] == b"AUTH":
                        client.sendall(b"+OK\r\n")
                    else:
                        server.sendall(raw)
                        client.sendall(self.read(answers)[0])
            except (OSError, EOFError):
                pass

    def read(self, stream):
        """One value as its bytes, and the texts that are in it."""
        line = stream.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        kind, count = line[:1], line[1:-2]
        if kind == b"$" and int(count) >= 0:
            text = stream.read(int(count) + 2)
            return line + text, [text[:-2]]
        parts = [self.read(stream) for _ in range(int(count))] if kind == b"*" else []
        return line + b"".join(raw for raw, _ in parts), [word for _, words in parts for word in words]


@test
def an_answer_of_a_shape_that_no_server_gives_ends_it_with_words(server, r):
    mutex(r, "k")
    rest = b":1\r\n" * 7
    lies = {"EVALSHA": (b"+OK\r\n", b":1\r\n", b"$-1\r\n", b"*0\r\n", b"*9\r\n" + b":1\r\n" * 9, b"*3\r\n$5\r\nmutex\r\n$0\r\n\r\n:1\r\n",
                        b"*9\r\n$-1\r\n$0\r\n\r\n" + rest, b"*9\r\n$3\r\nodd\r\n$2\r\nab\r\n" + rest),
            "SCRIPT LOAD": (b":1\r\n", b"*0\r\n"),
            "SCAN": (b"*1\r\n$1\r\n0\r\n", b"*2\r\n:7\r\n*0\r\n", b"*2\r\n$1\r\n0\r\n:5\r\n", b"*2\r\n$1\r\n0\r\n*1\r\n:5\r\n", b"+OK\r\n"),
            "SUBSCRIBE": (b"*3\r\n:1\r\n:2\r\n:3\r\n", b"*2\r\n$7\r\nmessage\r\n$1\r\na\r\n", b":1\r\n",
                          b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n*1\r\n:1\r\n")}

    def ends(command, lie, words):
        liar = Repeater(server.socket, command, lie)
        status, _, err = run(liar.url, "--wait", "300ms", *words)
        liar.door.close()
        assert status == FAILED and "unexpected reply" in err and liar.said > 0, (command, lie, words, status, err)

    which = {"EVALSHA": (["ls"], ["top"], ["inspect", "k"]), "SCRIPT LOAD": (["ls"],), "SCAN": (["ls"], ["top"]), "SUBSCRIBE": (["top"],)}
    at_once([lambda command=command, lie=lie, words=words: ends(command, lie, words)
             for command in lies for lie in lies[command] for words in which[command]])


@test
def a_list_of_masters_that_no_cluster_gives_ends_it_with_words(server, r):
    for lie in (b"*1\r\n:1\r\n", b"+OK\r\n", b"*1\r\n*2\r\n:0\r\n:1\r\n", b"*1\r\n*3\r\n:0\r\n:1\r\n:2\r\n",
                b"*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n", b"*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n"):
        liar = Repeater(server.socket, "CLUSTER SLOTS")
        port = liar.door.getsockname()[1]
        good = f"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$1\r\nx\r\n"
        liar.answers = (good.encode(), lie)  # to the client, and to what looks
        status, _, err = run(liar.url.replace("redis:", "redis+cluster:"), "--wait", "0", "ls")
        liar.door.close()
        assert status == FAILED and "unexpected reply" in err and liar.said > 1, (lie, status, err, liar.said)


@test
def what_a_server_repeats_is_printed_without_the_password(server, r):
    steps = ["", "AUTH", "CLIENT ID", "INFO replication", "INFO server", "SELECT", "SCRIPT LOAD", "EVALSHA", "EVAL",
             "SCAN", "CLIENT LIST"]
    commands = (["k", "--", "true"], ["-v", "-n", "free", "--", "true"], ["inspect", "k"], ["force-release", "gone"],
                ["ls"], ["ls", "--json"])
    r.set("k", "x" * 36, px=60000)
    for step in steps:
        repeater = Repeater(server.socket, step)

        def prints(words, url=repeater.url):
            done = subprocess.run([RLOCK, "--wait", "100ms", *words], env=environment(url), stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=20)
            return done.stdout + done.stderr

        printed = b"".join(at_once([lambda words=words: prints(words) for words in commands]))
        assert repeater.said > 0, step
        assert SECRET[:6].encode() not in printed, (step, printed)
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", printed), (step, printed)
        assert b"***" in printed or step in ("CLIENT ID", "INFO replication"), (step, printed)
        repeater.door.close()


def main():
    ends_when_told()
    hears_signals()
    wanted = [function for function in TESTS if len(sys.argv) < 3 or fnmatch.fnmatch(function.__name__, sys.argv[2])]
    with Redis("--enable-debug-command", "yes") as server:
        return run_on(server, wanted)


if __name__ == "__main__":
    sys.exit(main())
