#!/usr/bin/python3
"""rlock beside flock(1) and `etcdctl lock`: what becomes of the command, and how soon the next one begins.

    bench/cli.py build/cli/rlock build/tests/beat > bench/cli.md

Two commands that write down every 2 ms that they run want the same lock, both with a lease of 2 s where there is one. Then
something happens to the first. $ETCD and $ETCDCTL name the programs of etcd; without them their column is left out. All
servers are this program's own.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import cli  # noqa: E402  the network and the log of the tests
import fixture  # noqa: E402

LEASE_S = 2
LONG_S = 12  # what has not happened by then does not happen
ROUNDS = 20  # of what is timed


class Etcd:
    """A server of one node, in its own folder."""

    def __init__(self, folder):
        self.folder = tempfile.mkdtemp(dir=folder, prefix="e")
        self.socket = ("127.0.0.1", fixture.free_port())
        self.url, self.peer = "http://%s:%d" % self.socket, "http://127.0.0.1:%d" % fixture.free_port()
        self.start()

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [ETCD, "--data-dir", os.path.join(self.folder, "data"), "--listen-client-urls", self.url,
                 "--advertise-client-urls", self.url, "--listen-peer-urls", self.peer, "--initial-advertise-peer-urls",
                 self.peer, "--initial-cluster", "default=" + self.peer],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=fixture.dies_with_parent)
        fixture.until("etcd", 30, lambda: subprocess.run(
            [ETCDCTL, "--endpoints", self.url, "endpoint", "health"], env=dict(os.environ, ETCDCTL_API="3"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0)

    def stop(self):
        self.process.kill()
        self.process.wait()


ETCD, ETCDCTL = (os.environ.get(name.upper()) or shutil.which(name) for name in ("etcd", "etcdctl"))


def with_rlock(place, url, command):
    return [cli.RLOCK, "--url", url, "--lease", f"{LEASE_S}s", place.key, "--", *command]


def with_flock(place, _, command):
    return ["flock", os.path.join(place.folder, "file"), *command]


def with_etcd(place, url, command):
    return [ETCDCTL, "--endpoints", url, "lock", f"--ttl={LEASE_S}", place.key, *command]


TOOLS = {"`rlock`": (with_rlock, cli.Server), "`flock`": (with_flock, None)}
if ETCD and ETCDCTL:
    TOOLS["`etcdctl lock`"] = (with_etcd, Etcd)


def versions():
    return ", ".join(subprocess.run(words, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0].replace(" Version:", "")
                     for words in ([cli.RLOCK, "--version"], ["flock", "--version"], [ETCD, "--version"]) if words[0])


def of_command(place):
    return max((pid for pid in place.runs()[0][2]), default=0)


def server_is_killed(_, network, first, server):
    server.stop()


def cut(_, network, first, server):
    network.cut = True


FAULTS = {
    "the program is killed with -9": lambda place, network, first, server: first.process.kill(),
    "the program is stopped (`kill -STOP`)": lambda place, network, first, server: first.signal(signal.SIGSTOP),
    "the program gets SIGTERM": lambda place, network, first, server: first.signal(signal.SIGTERM),
    "the command is killed with -9": lambda place, network, first, server: fixture.send(of_command(place), signal.SIGKILL),
    "the command is stopped": lambda place, network, first, server: fixture.send(of_command(place), signal.SIGSTOP),
    "the first one's network is gone": cut,
    "the server is killed": server_is_killed,
}


def one_case(folder, tool, fault):
    """What became of it: words for the table."""
    make, kind = TOOLS[tool]
    server = kind(folder) if kind else None
    if server is None and fault in (cut, server_is_killed):
        return "-"
    place = cli.Place("k", folder, server)
    try:
        network = cli.Network(place.folder, server) if server else None
        env = {"ETCDCTL_API": "3"}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env, "url": "none"}
        first = place.popen(make(place, network.url if server else None, [cli.BEAT, place.log]), **quiet)
        place.began(1)
        place.popen(make(place, server.url if server else None, [cli.BEAT, place.log, "for", "200"]), **quiet)
        time.sleep(LEASE_S * 0.75)
        at = fixture.now()
        fault(place, network, first, server)
        deadline = at + LONG_S
        while fixture.now() < deadline and len(place.runs()) < 2:
            time.sleep(0.01)
        time.sleep(0.3)
        found = place.runs()
        lives = cli.runs(max(found[0][2]), place.log) and fixture.state(max(found[0][2])) != "T"
        words = "runs on" if lives else f"ended after {max(0, found[0][1] - at):.2f} s"
        if fault is FAULTS["the command is stopped"]:
            words = "stays stopped" if cli.runs(max(found[0][2]), place.log) else words
        words += f"; next after {found[1][0] - at:.2f} s" if len(found) > 1 else "; no next"
        return words + (" **both run**" if len(found) > 1 and place.overlap() > 0 else "")
    finally:
        for run in place.runs():
            for pid in run[2]:
                if cli.runs(pid, place.log):
                    fixture.send(pid, signal.SIGKILL)
        place.close()
        if network:
            network.stop()
        if server:
            server.stop()


def timed(folder, tool):
    """Milliseconds: the median of a free lock around `true`, and from the end of one command to the start of the next."""
    make, kind = TOOLS[tool]
    server = kind(folder) if kind else None
    place = cli.Place("k", folder, server)
    env = dict(os.environ, ETCDCTL_API="3")
    url = server.url if server else None
    free, next_one = [], []
    try:
        for _ in range(ROUNDS):
            start = fixture.now()
            subprocess.run(make(place, url, ["true"]), env=env, check=True, stdout=subprocess.DEVNULL)
            free.append(fixture.now() - start)
        quiet = {"stdout": subprocess.DEVNULL, "env": {"ETCDCTL_API": "3"}, "url": "none"}
        for i in range(ROUNDS):
            place.log = os.path.join(place.folder, f"beats{i}")
            one = place.popen(make(place, url, [cli.BEAT, place.log, "for", "300"]), **quiet)
            place.began(1)
            place.popen(make(place, url, [cli.BEAT, place.log, "for", "10"]), **quiet).ends(30)
            one.ends(30)
            first, second = place.runs()
            next_one.append(second[0] - first[1])
    finally:
        place.close()
        if server:
            server.stop()
    return [f"{sorted(times)[ROUNDS // 2] * 1000:.0f} ms" for times in (free, next_one)]


def main():
    folder = tempfile.mkdtemp(prefix="rlock-bench-")
    fixture.adopts_orphans()
    try:
        print("# rlock beside flock and etcdctl lock\n")
        print(f"What `bench/cli.py` measured, with leases of {LEASE_S} s. Times count from what happens; \"runs on\" and \"no next\": for")
        print(f"{LONG_S} s. **both run**: two commands at a time. {versions()}.\n")
        print("| what happens | " + " | ".join(TOOLS) + " |")
        print("|---" * (len(TOOLS) + 1) + "|", flush=True)
        for name, fault in FAULTS.items():
            print(f"| {name} | " + " | ".join(one_case(folder, tool, fault) for tool in TOOLS) + " |", flush=True)
        rows = [timed(folder, tool) for tool in TOOLS]
        for i, name in enumerate(("a free lock around `true`", "from the end of one to the start of the next")):
            print(f"| {name} | " + " | ".join(row[i] for row in rows) + " |", flush=True)
        print("""
What is promised. `flock`: the kernel frees the lock when the last process that has the file open is gone: never two
commands on one machine, and a command that hangs or is stopped keeps the others out for ever. `etcdctl lock`: the key is
gone when the lease has ended; the command is not told, nor ended. `rlock`: the command and all that it started are ended
before the lease is, by SIGTERM, then SIGKILL, also if the program itself is killed or stopped. None of them bears a pause
of all its processes at a time; `etcdctl lock` and `rlock` have a fencing token for that (the key's revision, `RLOCK_FENCE`).""")
        print("\nThe commands, each with `beat` for what runs:\n")
        place = cli.Place("nightly", folder, None)
        for make, _ in TOOLS.values():
            words = make(place, "URL", ["beat"])
            print("    " + " ".join([os.path.basename(words[0]), *(os.path.basename(word) for word in words[1:])]))
    finally:
        cli.end_all()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
