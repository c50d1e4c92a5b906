#!/usr/bin/python3
"""The program rlock with its locks in PostgreSQL, ZooKeeper or MariaDB: what tests/cli.py proves of it with Redis, on these.

    tests/engines/cli.py build/cli/rlock build/tests/beat postgres [NAME...]        the suite, or tests of these names
    tests/engines/cli.py build/cli/rlock build/tests/beat zookeeper chaos ROUNDS    so many faults

Prints TAP. The tests are those of tests/cli.py that know nothing of Redis, and those that stand here. The same is assumed,
and of ZooKeeper that its tick is what the URL says. Servers are private, in folders of their own, and end with this.
"""

import ctypes
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENGINE = sys.argv.pop(3)
sys.path.insert(0, os.path.join(ROOT, "tests"))

import cli  # noqa: E402 - it reads the arguments that are left
from cli import BUSY, FAILED, LEASE_S, LOST, SCALE, SOON_S, ms  # noqa: E402
from fixture import children, dies_with_parent, free_port, now, send, test, until  # noqa: E402

NOBODY = 65534
WITH = os.environ.get("WITH") or os.path.join(os.path.dirname(cli.BEAT), "engines/with")


def as_nobody():
    dies_with_parent()
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def owned(folder):
    """A server that does not run as root owns its folder, and reaches it."""
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    while not os.path.basename(folder).startswith("rlock-cli-"):
        folder = os.path.dirname(folder)
        os.chmod(folder, 0o711)


class Keys:
    """What tests ask a server itself: rlock inspect does."""

    def __init__(self, server):
        self.server = server

    def exists(self, key):
        return subprocess.run([cli.RLOCK, "--url", self.server.url, "inspect", key], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False, preexec_fn=dies_with_parent).returncode == 0


class EngineServer:
    """A private server on a port of its own; what it has written survives kill -9."""

    def __init__(self, folder):
        self.port = free_port()
        self.socket = ("127.0.0.1", self.port)
        self.url = self.url_at(self.port)
        self.redis = Keys(self)
        self.folder = tempfile.mkdtemp(dir=folder, prefix="s")
        self.log = open(os.path.join(self.folder, "log"), "ab")
        self.prepare()
        self.start()

    def start(self):
        self.process = self.begin()
        until("a server", 60 * SCALE, self.answers)

    def all(self):
        return [self.process.pid] + children(self.process.pid)

    def signal(self, number):
        for pid in self.all():
            send(pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    stop = kill


class Postgres(EngineServer):
    """Its folder belongs to nobody where this is root: postgres refuses to run as root."""

    lock, template, env = threading.Lock(), None, dict(os.environ)

    @staticmethod
    def url_at(port):
        return f"postgres://me@127.0.0.1:{port}/postgres"

    @classmethod
    def program(cls, name):
        for place in ("/usr", os.path.join(ROOT, "build/postgres/usr")):
            found = glob.glob(f"{place}/lib/postgresql/[0-9]*/bin/{name}")
            if found:
                if place != "/usr":
                    cls.env["LD_LIBRARY_PATH"] = glob.glob(f"{place}/lib/*-linux-gnu*")[0]
                return max(found, key=lambda path: int(path.split("/")[-3]))
        raise FileNotFoundError(name)

    def runs(self, name, *arguments, **more):
        return subprocess.Popen([self.program(name), *arguments], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=self.log, stderr=self.log, preexec_fn=as_nobody, **more)

    def prepare(self):
        """The first one makes the data, and the others have a copy of it."""
        owned(self.folder)
        with Postgres.lock:
            if Postgres.template is None:
                assert self.runs("initdb", "-D", "data", "-A", "trust", "-U", "me", "--no-sync", "-E", "UTF8",
                                 "--locale=C").wait() == 0
                self.start()
                script = os.path.join(ROOT, "stores/rlock_postgres.sql")
                subprocess.run([self.program("psql"), "-q", "-X", "-v", "ON_ERROR_STOP=1", self.url, "-f", script],
                               env=self.env, stdout=self.log, stderr=self.log, check=True)
                self.process.send_signal(signal.SIGINT)
                self.process.wait()
                Postgres.template = os.path.join(self.folder, "template")
                subprocess.run(["cp", "-a", os.path.join(self.folder, "data"), Postgres.template], check=True)
            else:
                subprocess.run(["cp", "-a", Postgres.template, os.path.join(self.folder, "data")], check=True)

    def begin(self):
        return self.runs("postgres", "-D", "data", "-k", self.folder, "-p", str(self.port), "-c",
                         "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=60")

    def answers(self):
        """One that was killed leaves processes that end soon: until then the next one ends at once."""
        if self.process.poll() is not None:
            self.process = self.begin()
        return subprocess.run([self.program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], env=self.env,
                              check=False).returncode == 0


class ZooKeeper(EngineServer):
    """A tick of 100 ms: sessions are from 0.2 to 2 s long."""

    TICK_MS = 100
    JARS = ("zookeeper zookeeper-jute slf4j-api slf4j-nop netty-all metrics-core snappy-java jackson-core jackson-databind "
            "jackson-annotations commons-cli commons-io").split()

    @classmethod
    def url_at(cls, port):
        return f"zookeeper://127.0.0.1:{port}/locks?tick_ms={cls.TICK_MS}"

    def prepare(self):
        given = os.environ.get("RLOCK_ZOOKEEPER") or os.path.join(ROOT, "build/zookeeper/usr/share/java")
        self.path = ":".join(f"{folder}/{jar}.jar" for folder in ("/usr/share/java", given) for jar in self.JARS)
        with open(os.path.join(self.folder, "zoo.cfg"), "w", encoding="ascii") as file:
            file.write(f"tickTime={self.TICK_MS}\ndataDir={self.folder}/data\nclientPort={self.port}\n"
                       "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nextendedTypesEnabled=true\nforceSync=no\n")

    def begin(self):
        return subprocess.Popen(["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self.path,
                                 "org.apache.zookeeper.server.quorum.QuorumPeerMain", f"{self.folder}/zoo.cfg"],
                                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                preexec_fn=dies_with_parent)

    def answers(self):
        assert self.process.poll() is None, "the server did not start"
        try:
            with socket.create_connection(self.socket, 0.3) as asked:
                asked.sendall(b"srvr")
                words = b""
                while piece := asked.recv(4096):
                    words += piece
        except OSError:
            return False
        return b"Mode: " in words


class MariaDB(EngineServer):
    """The data is that which tests/engines/with has made: a database `shop` with the tables and a user."""

    lock, template = threading.Lock(), None

    @staticmethod
    def url_at(port):
        return f"mysql://app@127.0.0.1:{port}/shop"

    @staticmethod
    def on_the_wire(key):
        return key.encode().hex().encode()

    def prepare(self):
        """The first one has the data made, and all have a copy of it."""
        data = os.path.join(self.folder, "data")
        owned(self.folder)
        with MariaDB.lock:
            if MariaDB.template is None:
                made = os.path.join(self.folder, "template")
                ends = ('kill $ENGINE_PID; until grep -q "^State:.Z" /proc/$ENGINE_PID/status; do sleep 0.02; done; '
                        'exec cp -a "$ENGINE_DIR/data" "$0"')
                subprocess.run([os.path.abspath(WITH), "mariadb", "sh", "-c", ends, made], cwd=ROOT, stdout=self.log,
                               stderr=self.log, check=True)
                MariaDB.template = made
            subprocess.run(["cp", "-a", MariaDB.template, data], check=True)

    def begin(self):
        program = next(path for path in ("/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/libexec/mariadbd")
                       if os.path.exists(path))
        return subprocess.Popen(
            [program, "--no-defaults", f"--datadir={self.folder}/data", f"--socket={self.folder}/socket",
             f"--port={self.port}", "--bind-address=127.0.0.1", "--pid-file=pid", "--innodb-flush-log-at-trx-commit=2",
             "--innodb-buffer-pool-size=16M", "--skip-name-resolve", "--performance-schema=OFF", "--max-connections=100"],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=as_nobody)

    def answers(self):
        assert self.process.poll() is None, "the server did not start"
        try:
            with socket.create_connection(self.socket, 0.3) as asked:
                return b"MariaDB" in asked.recv(200)
        except OSError:
            return False


class Administrator:
    """A session of root, which blocks, by the library that rlock loads too."""

    def __init__(self, server):
        self.library = ctypes.CDLL("libmariadb.so.3")
        self.library.mysql_error.restype = ctypes.c_char_p
        self.library.mysql_init.restype = self.library.mysql_store_result.restype = ctypes.c_void_p
        self.hand = ctypes.c_void_p(self.library.mysql_init(None))
        path = f"{server.folder}/socket".encode()
        assert self.library.mysql_real_connect(self.hand, None, b"root", b"", b"shop", 0, path, ctypes.c_ulong(0)), self.error()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.mysql_close(self.hand)

    def error(self):
        return self.library.mysql_error(self.hand).decode()

    def runs(self, words):
        assert self.library.mysql_query(self.hand, words.encode()) == 0, (words, self.error())
        result = self.library.mysql_store_result(self.hand)
        if result:
            self.library.mysql_free_result(ctypes.c_void_p(result))


COMMON = """exit_status_is_that_of_the_command fence_is_written_into_a_file try_and_wait_end_with_124_and_the_next_one_gets_it
    rlock_is_killed rlock_is_stopped keeper_is_killed command_is_killed command_that_is_stopped_keeps_the_lock
    server_stops_and_goes_on server_is_killed_and_comes_back_with_its_data hold_survives_a_short_absence_of_the_server
    network_is_gone command_that_obeys_has_time_to_end_before_the_deadline keeper_stands_still_while_the_server_is_gone
    rlock_and_keeper_are_killed_together command_that_was_told_to_end_is_ended_though_the_server_is_back
    leader_that_cannot_run_its_command_leaves_the_lead another_leads_when_the_leader_is_killed
    leader_that_is_told_to_end_hands_over_at_once chaos_never_has_two_commands_at_a_time
    nightly_job_of_three_crontabs_is_done_once_a_night""".split()
OF_TABLES = """token_of_one_shell_is_renewed_in_a_second_and_released_in_a_third token_of_another_hold_takes_nothing_away
    at_least_so_long_others_wait_also_when_the_command_has_failed job_of_a_second_is_done_once_a_night_by_clocks_that_differ
    command_knows_its_key_and_a_fence_that_rises several_keys_are_had_together_or_not_at_all
    grant_that_comes_late_is_renewed_before_the_command_begins""".split()
WANTED = COMMON + (OF_TABLES if ENGINE != "zookeeper" else [])
cli.TESTS[:] = [function for function in cli.TESTS if function.__name__ in WANTED]
assert len(cli.TESTS) == len(WANTED)
OTHER = "redis://127.0.0.1:1" if ENGINE == "mariadb" else "zookeeper://127.0.0.1:1/" if ENGINE == "postgres" else "postgres://127.0.0.1:1/x"


@test
def kinds_hold_together_and_inspect_finds_them_out(place):
    hold = ("--", "sh", "-c", "echo; exec sleep 60")
    for first, second, third, shown in (
            (("read",), ("read",), ("write",), "write"),
            (("semaphore", "--permits", "2"), ("semaphore", "--permits", "2"), ("semaphore", "--permits", "2"), "semaphore")):
        key = place.key + shown
        holders = [place.rlock("--try", "--kind", *kind, key, *hold, stdout=subprocess.PIPE) for kind in (first, second)]
        for holder in holders:
            assert holder.process.stdout.readline() == b"\n", (first, second)
        permits = first[1:] if ENGINE == "zookeeper" else ()  # where they alone tell who holds and who waits
        code, out, err = place.says("--json", "inspect", *permits, key)
        told = json.loads(out)
        assert (code, told["key"], told["kind"], told["holders"]) == (0, key, shown, 2), (out, err)
        assert told["left_ms"] is None if ENGINE == "zookeeper" else 0 < told["left_ms"] <= 30000, told
        code, _, err = place.says("--try", "--kind", *third, key, "--", "true")
        assert code == BUSY, (third, code, err)
        for holder in holders:
            holder.signal(signal.SIGTERM)
            holder.ends()
        assert place.says("--try", "--kind", *third, key, "--", "true")[0] == 0
    code, out, err = place.says("inspect", place.key)
    assert code == 1 and "held by  free" in out, (code, out, err)


@test
def readers_that_come_first_to_a_new_key_at_the_same_moment_all_have_it(place):
    """A reader whose request takes longer than it may, on a busy machine, asks once more, and then has it."""
    def read(key):
        return place.rlock("-n", "--kind", "read", key, "--", "true", stderr=subprocess.PIPE, text=True)

    for turn in range(25):
        key = f"{place.key}{turn}"
        for machine in [read(key) for _ in range(6)]:
            _, err = machine.process.communicate(timeout=4 * SOON_S)
            if "statement timeout" in err or "was not reached" in err:
                machine = read(key)
                _, err = machine.process.communicate(timeout=4 * SOON_S)
            assert machine.process.returncode == 0, (turn, machine.process.returncode, err)


@test
def wrong_kind_is_reported(place):
    place.rlock("--kind", "fair", place.key, "--", "sleep", "60")
    until("the key", SOON_S, lambda: place.server.redis.exists(place.key))
    code, out, err = place.says("-n", place.key, "--", "echo", "ran")
    assert code == FAILED and out == "" and "--kind" in err, (code, out, err)


@test
def lock_that_is_taken_away_ends_the_command(place):
    """Long before the next renewal, which comes after a third of the lease. MariaDB tells nobody: there that renewal does.
    In ZooKeeper no lease is longer than the session, 2 s here: there it may be either."""
    lease = {"postgres": 60 * SCALE, "mariadb": 6 * SCALE, "zookeeper": LEASE_S}[ENGINE]
    machine = place.beats(*cli.FIERCE, lease=lease)
    place.began(1)
    time.sleep(0.5)  # holds older than 100 ms are watched
    at = now()
    code, out, err = place.says("force-release", place.key)
    assert code == 0 and "released; it was held by 1 holder" in out, (code, out, err)
    machine.ends_with(LOST)
    run = place.runs()[0]
    assert run[1] - at < SOON_S, run[1] - at
    place.all_gone(run, SOON_S)
    assert place.says("force-release", place.key)[0] == 1


if ENGINE == "zookeeper":

    @test
    def lock_that_ends_with_its_process_is_not_left(place):
        for arguments in (("acquire", "key"), ("release", "key", "token"), ("--at-least", "1s", "key", "--", "true")):
            code, out, err = place.says(*arguments)
            assert code == FAILED and out == "" and "not with ZooKeeper" in err, (arguments, code, out, err)


if ENGINE == "postgres":

    @test
    def row_that_somebody_locks_is_reported_as_the_cause_of_the_loss(place):
        server, key = place.server, place.key
        machine = place.rlock("--lease", ms(4 * LEASE_S), key, "--", "sleep", "100", stderr=subprocess.PIPE, text=True)
        until("the command", SOON_S, machine.command)
        session = place.popen([server.program("psql"), "-q", "-X", server.url, "-c", "BEGIN", "-c",
                               f"SELECT 'has it' FROM rlock.keys WHERE key = '{key}' FOR UPDATE", "-c",
                               "SELECT pg_sleep(100)"], stdout=subprocess.PIPE, text=True, env=server.env)
        until("the lock of the row", SOON_S, lambda: "has it" in session.process.stdout.readline())
        err = machine.process.communicate(timeout=4 * SOON_S)[1]
        assert machine.process.returncode == LOST, err
        wanted = f"rlock: the lock of {key} was lost: canceling statement due to .* timeout.*; the command was terminated\n"
        assert re.fullmatch(wanted, err), err


if ENGINE == "mariadb":

    @test
    def row_that_somebody_locks_is_reported_as_the_cause_of_the_loss(place):
        server, key = place.own_server(), place.key
        machine = place.rlock("--lease", ms(4 * LEASE_S), key, "--", "sleep", "100", stderr=subprocess.PIPE, text=True)
        until("the command", SOON_S, machine.command)
        with Administrator(server) as session:
            session.runs("BEGIN")
            session.runs(f"SELECT name FROM rlock_keys WHERE name = '{key}' FOR UPDATE")
            err = machine.process.communicate(timeout=4 * SOON_S)[1]
        assert machine.process.returncode == LOST, err
        wanted = f"rlock: the lock of {key} was lost: .*(timeout|max_statement_time) exceeded.*; the command was terminated\n"
        assert re.fullmatch(wanted, err), err


@test
def leader_whose_lead_is_taken_away_starts_again_when_it_leads_again(place):
    machine = place.rlock("elect", "--lease", ms(LEASE_S), place.key, "--", cli.BEAT, place.log, "ignore",
                          stderr=subprocess.DEVNULL)
    place.began(1)
    assert place.says("force-release", place.key)[0] == 0
    place.began(2)
    place.alone()
    machine.signal(signal.SIGTERM)


@test
def lock_that_could_not_be_released_is_reported(place):
    server, go = place.own_server(), os.path.join(place.folder, "go")
    machine = place.rlock(place.key, "--", "sh", "-c", f"echo; until [ -e {go} ]; do sleep 0.02; done; exit 4",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert machine.process.stdout.readline() == "\n"
    server.signal(signal.SIGSTOP)
    with open(go, "w", encoding="ascii"):
        pass
    _, err = machine.process.communicate(timeout=4 * SOON_S)
    assert machine.process.returncode == 4 and "not released" in err, (machine.process.returncode, err)


@test
def what_is_wrong_is_reported_with_its_cure(place):
    key, url = place.key, place.server.url
    rows = [(("ls",), "Redis only", url), (("top",), "Redis only", url), (("--cacert", "x", key, "--", "true"), "are for Redis", url),
            (("-w", "500ms", key, "--", "true"), "Is the server running?", OTHER),
            (("--quorum", f"{url},{url}x,{url}y", key, "--", "true"), "the scheme is not redis", url)]
    if ENGINE == "postgres":
        rows += [(("-n", key, "--", "true"), "is not installed in this database", url.replace("/postgres", "/template1")),
                 (("-n", key, "--", "true"), "role_that_is_not_there", url.replace("me@", "role_that_is_not_there@")),
                 ((key, "--", "true"), "value is not valid", url + "?pooler=perhaps"),
                 ((key, "--", "true"), "invalid URI query parameter", url + "?no_such=1")]
    elif ENGINE == "mariadb":
        rows += [(("-n", key, "--", "true"), "rlock_mariadb.sql", url.replace("/shop", "/no_such"))]
    else:
        rows += [((key, "--", "true"), "session_ms", url + "&session_ms=1"),
                 (("-k", "b" + key, key, "--", "true"), "one key", url)]
    for arguments, words, at in rows:
        code, out, err = place.says(*arguments, url=at)
        assert code == FAILED and out == "" and words in err, (arguments, at, code, out, err)
        assert all(len(line) < 300 for line in err.splitlines()), err


if ENGINE == "postgres":

    @test
    def server_that_refuses_for_now_is_not_said_to_be_away(place):
        server = place.own_server()
        psql = [server.program("psql"), "-q", "-X", server.url, "-c"]
        subprocess.run([*psql, "CREATE ROLE few LOGIN CONNECTION LIMIT 0"], env=server.env, check=True, preexec_fn=dies_with_parent)
        subprocess.run([*psql, "ALTER ROLE me SET default_transaction_read_only = on"], env=server.env, check=True,
                       preexec_fn=dies_with_parent)
        for url, words in ((server.url.replace("me@", "few@"), "too many connections"), (server.url, "read-only")):
            code, out, err = place.says("-n", place.key, "--", "true", url=url)
            assert code == FAILED and out == "" and words in err and "Is the server running" not in err, (code, out, err)


if ENGINE == "mariadb":

    @test
    def server_that_refuses_for_now_is_not_said_to_be_away(place):
        server = place.own_server()
        with Administrator(server) as session:
            session.runs("ALTER USER app@'%' WITH MAX_USER_CONNECTIONS 1")
            holder = place.rlock(place.key, "--", "sh", "-c", "echo; exec sleep 60", stdout=subprocess.PIPE)
            assert holder.process.stdout.readline() == b"\n"
            for words in ("max_user_connections", "read-only"):
                code, out, err = place.says("-n", "other", "--", "true")
                assert code == FAILED and out == "" and words in err and "Is the server running" not in err, (code, out, err)
                session.runs("ALTER USER app@'%' WITH MAX_USER_CONNECTIONS 0")
                session.runs("SET GLOBAL read_only = 1")


@test
def query_that_ls_names_is_that_of_the_document(place):
    document = {"postgres": "postgresql.md", "mariadb": "mariadb.md"}.get(ENGINE)
    _, _, err = place.says("ls")
    if document:
        with open(os.path.join(ROOT, "docs", document), encoding="utf-8") as text:
            assert err.strip().split("as the owner: ")[1] in text.read(), err
    else:
        assert "zkCli.sh" in err, err


if ENGINE == "postgres":

    @test
    def pooler_in_the_url_locks_without_a_session(place):
        pooled = place.server.url + "?pooler=yes"
        holder = place.beats(url=pooled)
        place.began(1)
        assert place.says("-n", place.key, "--", "true", url=pooled)[0] == BUSY
        waiter = place.beats("for", "20", url=pooled)
        time.sleep(0.1)
        holder.signal(signal.SIGTERM)
        waiter.ends_with(7)
        place.alone()

if ENGINE == "zookeeper":

    @test
    def lease_that_is_longer_than_any_session_is_shorter_and_safe(place):
        """Sessions are of 2 s at most: a lease of 10 s is one of 1.9 s, and the command begins all the same."""
        network = place.network()
        machine = place.beats(*cli.FIERCE, lease=10, url=network.url)
        place.began(1, 4 * SOON_S)
        at = now()
        network.cut = True
        machine.ends_with(LOST)
        assert place.runs()[0][1] - at < 2 * SCALE, place.runs()[0][1] - at

    @test
    def worker_is_not_started_again_in_a_term_that_is_running_out(place):
        """What is left of a term is no lease: a worker that ended because of the deadline waits for the next term."""
        network = place.network()
        machine = place.rlock("elect", "--lease", ms(LEASE_S), place.key, "--", cli.BEAT, place.log, url=network.url,
                              stderr=subprocess.DEVNULL)
        place.began(1)
        time.sleep(LEASE_S / 2)
        network.cut = True
        time.sleep(3 * LEASE_S)
        assert len(place.runs()) == 1, place.runs()
        network.cut = False
        place.began(2, 4 * SOON_S)
        place.alone()
        machine.signal(signal.SIGTERM)

    @test
    def lease_that_is_longer_than_the_timeout_of_a_silent_server_is_kept(place):
        machine = place.beats("for", str(int(3000 * SCALE)), lease=1.5)
        machine.ends_with(7)


def main():
    engines = {"postgres": Postgres, "zookeeper": ZooKeeper, "mariadb": MariaDB}
    if ENGINE == "zookeeper" and shutil.which("java") is None:
        sys.exit("no java: there can be no ZooKeeper")
    cli.Server = engines[ENGINE]
    cli.JOBS = 3
    cli.main()


main()
