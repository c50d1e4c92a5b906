#!/usr/bin/python3
"""Leaders while their server is killed again and again: never two at a time, and soon one again.

    tests/failover.py build/examples/leader [SECONDS [sentinel|cluster|restarts]]

sentinel: a primary, two replicas and three Sentinels; every ten seconds the primary is killed, and started again as a
replica of the new one. cluster: three primaries with a replica each; the same is done to the node that has the leader's
key. Prints TAP, and how long each failover took: until the new primary was named, and until somebody led.

restarts: two servers, which are killed and started again without data every 20 seconds. The leaders at one of them have
quarantine_ms, those at the other have not: prints how often two led at a time, side by side.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import redis

from fixture import Node, Tap, dies_with_parent, until

LEADER = sys.argv[1]
SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 120
KIND = sys.argv[3] if len(sys.argv) > 3 else "sentinel"
PERIOD_S = 10
RESTART_S = 20
LEASE_MS = 1000  # of the example
AGAIN_S = 2.0  # a leader again so long after the failover
OLD_S = 12.0  # how long a primary that lives on after it was replaced may grant: docs/guarantees.md
NAME = "locks"


def now():
    """By the clock of the example."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Deployment:
    """What both have: nodes, one of which is the primary of the leader's key."""

    SETTINGS = ("--repl-diskless-sync-delay", "0")
    servants = ()

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="rlock-failover-")
        self.nodes = []
        self.deploy()
        until("a whole deployment", 30, self.ready)
        self.moves, self.stopped = [], False
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        """Notes when another primary is named: self.moves."""
        known = self.primary()
        while not self.stopped:
            port = self.primary()
            if port not in (known, None):
                self.moves.append(now())
                known = port
            time.sleep(0.05)

    def fail_over(self):
        """Kills the primary; returns when, and when another was named. The dead one comes back as a replica."""
        port = self.primary()
        node = next(n for n in self.nodes if n.port == port)
        killed = now()
        node.kill()
        until("another primary", 30, lambda: self.primary() not in (port, None))
        named = now()
        time.sleep(1)
        self.comes_back(node)
        return killed, named

    def stop(self):
        self.stopped = True
        for node in [*self.servants, *self.nodes]:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Sentinels(Deployment):
    def deploy(self):
        self.nodes.append(Node(*self.SETTINGS, folder=self.folder))
        first = self.nodes[0].port
        for _ in range(2):
            self.nodes.append(Node(*self.SETTINGS, "--replicaof", "127.0.0.1", str(first), folder=self.folder))
        self.servants = [
            Node("--sentinel", folder=self.folder, configuration=f"sentinel monitor {NAME} 127.0.0.1 {first} 2\n"
                 f"sentinel down-after-milliseconds {NAME} 1000\nsentinel failover-timeout {NAME} 3000\n")
            for _ in range(3)]

    def url(self):
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.servants)
        return f"redis+sentinel://{hosts}/{NAME}/0"

    def primary(self):
        """The port that Sentinel names."""
        for sentinel in self.servants:
            try:
                return int(sentinel.redis.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])
            except redis.RedisError:
                pass
        return None

    def ready(self):
        """True if a failover can begin: all agree, and each replica has all data and is known."""
        port = self.primary()
        try:
            for sentinel in self.servants:
                if int(sentinel.redis.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1]) != port:
                    return False
                if not str(sentinel.redis.execute_command("SENTINEL", "CKQUORUM", NAME)).count("OK 3 usable"):
                    return False
                replicas = sentinel.redis.execute_command("SENTINEL", "REPLICAS", NAME)
                states = [dict(zip(r[::2], r[1::2])) if isinstance(r, list) else r for r in replicas]
                words = [str({key: state[key] for key in state if "link-status" in str(key) or "flags" in str(key)})
                         for state in states]
                if len(words) != 2 or any("ok" not in w or "down" in w or "disconnected" in w for w in words):
                    return False
            return all(node.redis.info("replication").get("master_link_status", "up") == "up"
                       for node in self.nodes)
        except (redis.RedisError, TypeError, KeyError):
            return False

    def comes_back(self, node):
        node.start(*self.SETTINGS, "--replicaof", "127.0.0.1", str(self.primary()))


class Cluster(Deployment):
    PRIMARIES = 3

    SETTINGS = (*Deployment.SETTINGS, "--cluster-node-timeout", "1000")

    def deploy(self):
        count = 2 * self.PRIMARIES
        self.nodes = [Node(*self.SETTINGS, cluster=True, folder=self.folder) for _ in range(count)]
        self.slot = self.nodes[0].cluster("KEYSLOT", "leader")
        ids = [node.cluster("MYID") for node in self.nodes]
        for i, node in enumerate(self.nodes):
            node.cluster("SET-CONFIG-EPOCH", i + 1)
            node.cluster("MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus)
            if i < self.PRIMARIES:
                node.cluster("ADDSLOTSRANGE", 16384 * i // self.PRIMARIES, 16384 * (i + 1) // self.PRIMARIES - 1)
        for i in range(self.PRIMARIES, count):
            until("a primary to follow", 20, lambda i=i: self.follows(i, ids[i - self.PRIMARIES]))

    def follows(self, i, primary):
        try:
            return self.nodes[i].cluster("REPLICATE", primary)
        except redis.RedisError:
            return False

    def url(self):
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def primary(self):
        """The port of the node that has the slot, as one says that has it itself."""
        for node in self.nodes:
            try:
                info = str(node.cluster("INFO"))
                rows = node.cluster("SLOTS")
                port = next(int(row[2][1]) for row in rows if row[0] <= self.slot <= row[1])
                if port == node.port and "cluster_state:ok" in info:
                    return port
            except (redis.RedisError, StopIteration, OSError):
                pass
        return None

    def ready(self):
        """True if a failover can begin: all are content, know each other, and have all data."""
        try:
            for node in self.nodes:
                info = str(node.cluster("INFO"))
                if "cluster_state:ok" not in info or f"cluster_known_nodes:{len(self.nodes)}" not in info:
                    return False
                if node.redis.info("replication").get("master_link_status", "up") != "up":
                    return False
            roles = [node.redis.info("replication")["role"] for node in self.nodes]
            return roles.count("master") == self.PRIMARIES
        except (redis.RedisError, OSError):
            return False

    def comes_back(self, node):
        node.start()


class Leaders:
    """The example: `12.345 gateway 2 leads`; `12.845 gateway 2 steps down: expired`, when it had led last."""

    def __init__(self, url):
        self.lines, self.errors = [], []
        self.process = subprocess.Popen(
            [LEADER, str(SECONDS)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, RLOCK_URL=url), preexec_fn=dies_with_parent)
        self.readers = [threading.Thread(target=self.read, args=pair, daemon=True)
                        for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def read(stream, lines):
        for line in stream:
            lines.append(line.rstrip())

    def events(self):
        """[(when, gateway, leads)] in the order of time."""
        found = [re.match(r"([\d.]+) gateway (\d+) (leads$|steps down)", line) for line in list(self.lines)]
        return sorted((float(m[1]), int(m[2]), m[3] == "leads") for m in found if m)

    def lead_since(self, when):
        return [at for at, _, leads in self.events() if leads and at > when]


def overlaps(events):
    """Who began to lead before the one before had ended."""
    found, leaders = [], {}
    for at, gateway, leads in events:
        if leads:
            leaders[gateway] = at
        elif gateway in leaders:
            begun = leaders.pop(gateway)
            found += [(since, f"{since:.3f}: gateway {other} led for {at - since:.3f} s beside {gateway}")
                      for other, since in leaders.items() if since > begun]
    return found


def unasked(moves, kills):
    """When a primary was replaced that nobody had killed: it may go on to grant for as long as OLD_S."""
    first = [min((move for move in moves if move > killed), default=None) for killed in kills]
    return [move for move in moves if move not in first]


def restarts():
    """Two servers that forget, with and without a quarantine: how often two led at a time."""
    tap = Tap()
    folder = tempfile.mkdtemp(prefix="rlock-restarts-")
    nodes = [Node(folder=folder) for _ in range(2)]
    try:
        ways = [f"?quarantine_ms={LEASE_MS}", ""]
        leaders = [Leaders(f"redis://127.0.0.1:{node.port}{way}") for node, way in zip(nodes, ways)]
        for one in leaders:
            until("a first leader", 10, lambda one=one: one.lead_since(0))
        end, count, slow = now() + SECONDS - RESTART_S / 2 - 2, 0, []
        while now() < end:
            begun = now()
            time.sleep(RESTART_S / 2)
            killed = now()
            for node in nodes:
                node.kill()
                node.start()
            count += 1
            for one in leaders:
                until("a leader after the restart", 10, lambda one=one: one.lead_since(killed))
            slow.append([one.lead_since(killed)[0] - killed for one in leaders])
            time.sleep(max(0.0, begun + RESTART_S - now()))
        both = []
        for one in leaders:
            one.process.wait(timeout=30)
            for reader in one.readers:
                reader.join(5)
            both.append(overlaps(one.events()))
        tap.check(f"both servers were restarted without data {count} times", count >= 1)
        tap.check("with quarantine_ms never two lead at a time", not both[0], both[0])
        for words, found, place in (("with", both[0], 0), ("without", both[1], 1)):
            print(f"# {words} quarantine_ms: two at a time {len(found)} times in {count} restarts; "
                  f"led again after {statistics.median(s[place] for s in slow):.2f} s (median)")
    except AssertionError as error:
        tap.check("it goes on", False, error)
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return tap.ends()


def main():
    tap = Tap()
    deployment = Cluster() if KIND == "cluster" else Sentinels()
    try:
        leaders = Leaders(deployment.url())
        until("a first leader", 10, lambda: leaders.lead_since(0))
        rounds, kills = [], []
        end = now() + SECONDS - PERIOD_S
        while now() < end:
            begun = now()
            killed, named = deployment.fail_over()
            kills.append(killed)
            until("a leader after the failover", 20, lambda: leaders.lead_since(killed))
            rounds.append((named - killed, leaders.lead_since(killed)[0] - killed))
            print(f"# failover {len(rounds)}: named after {rounds[-1][0]:.2f} s, led after {rounds[-1][1]:.2f} s",
                  flush=True)
            until("a whole deployment", 30, deployment.ready)
            time.sleep(max(0.0, begun + PERIOD_S - now()))
        status = leaders.process.wait(timeout=30)
        for reader in leaders.readers:
            reader.join(5)
        events = leaders.events()
        led, lost = sum(e[2] for e in events), sum(not e[2] for e in events)
        late = [f"{named:.2f} s, led after {led:.2f} s" for named, led in rounds if led > named + AGAIN_S]
        tap.check(f"the primary was killed {len(rounds)} times", len(rounds) >= 1)
        strays = unasked(deployment.moves, kills)
        if strays:
            print(f"# {len(strays)} failovers that nobody asked for: this machine is too busy for its timeouts")
        both = [words for at, words in overlaps(events) if not any(0 < at - move + 2 < OLD_S for move in strays)]
        tap.check("never two lead at a time", not both, both)
        tap.check(f"somebody leads again within the failover's own time and {AGAIN_S:.0f} s", not late, late)
        tap.check("every loss is told", led == lost, f"{led} led, {lost} were told of the end")
        tap.check("it ends well", status == 0, (status, leaders.errors[-5:]))
        print(f"# named after {statistics.median(r[0] for r in rounds):.2f} s, led after "
              f"{statistics.median(r[1] for r in rounds):.2f} s (medians); "
              f"at most {max(r[0] for r in rounds):.2f} and {max(r[1] for r in rounds):.2f} s")
    except AssertionError as error:
        tap.check("it goes on", False, error)
    finally:
        deployment.stop()
    return tap.ends()


sys.exit(restarts() if KIND == "restarts" else main())
