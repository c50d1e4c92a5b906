"""What the tests in Python share: private servers, a wait that has a limit, TAP.

$RLOCK_REDIS_SERVER names another redis-server.
"""

import ctypes
import glob
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import redis

PDEATHSIG, SUBREAPER = 1, 36  # of prctl
LIBC = ctypes.CDLL(None)
OVER = threading.Event()  # nothing is to be started any more


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def until(what, seconds, done):
    """Waits until done() is true, and returns it."""
    deadline = now() + seconds
    while True:
        value = done()
        if value:
            return value
        if now() > deadline:
            raise AssertionError(f"not within {seconds:.1f} s: {what}")
        time.sleep(0.005)


def slowness():
    """How many times longer than usual this machine takes to start a process now: 1 to 3."""
    usual_s, count = 0.005, 100
    start = now()
    for _ in range(count):
        subprocess.run(["true"], check=True)
    return min(max(1.0, (now() - start) / count / usual_s), 3.0)


# ---- processes ----


def dies_with_parent():
    """For preexec_fn: the process ends when the thread that starts it does."""
    if OVER.is_set():
        os._exit(1)
    LIBC.prctl(PDEATHSIG, signal.SIGKILL)


def adopts_orphans():
    """What a descendant of this process leaves behind becomes a child of it."""
    LIBC.prctl(SUBREAPER, 1)


def ends_when_told():
    """SIGTERM is an exception from now on, so that what is to be cleaned up is."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def hears_signals():
    """A shell lets a job in the background ignore some signals, and the programs that it starts keep to that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)


def send(pid, number):
    """To a process that may be gone; 0 is none, not this one's group."""
    if pid > 0:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def children(pid):
    """Of all its threads."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path, encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return found


def state(pid):
    """R, S, T (stopped), Z, ..., or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


# ---- servers ----


GIVEN = set()  # ports that a server is about to use


def free_port():
    """A port that is not used now. The kernel chooses it for no connection: a server that is killed gets it again."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in GIVEN:
            GIVEN.add(port)
            return port


class Redis:
    """A private server in its own folder, on a unix socket there and, where it is given one, on a port of 127.0.0.1."""

    PATIENCE_S = None  # how long an answer to self.redis may take

    def __init__(self, *arguments, folder=None, port=0, configuration=None, seconds=20):
        self.folder = tempfile.mkdtemp(prefix="rlock-", dir=folder)
        self.socket = os.path.join(self.folder, "socket")
        self.url = "unix://" + self.socket
        self.port, self.seconds, self.arguments = port, seconds, arguments
        self.process, self.next, self.file = None, None, []
        if configuration is not None:
            self.file = [os.path.join(self.folder, "configuration")]
            with open(self.file[0], "w", encoding="ascii") as file:
                file.write(configuration)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self, *arguments):
        """Starts it; again, after kill(), with its data. Other arguments than the first time may be given then."""
        self.arguments = arguments or self.arguments
        log = os.path.join(self.folder, "log")
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                [os.environ.get("RLOCK_REDIS_SERVER") or "redis-server", *self.file, "--daemonize", "no",
                 "--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", self.socket, "--dir", self.folder,
                 "--save", "", "--appendonly", "no", *self.arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=dies_with_parent)
        self.redis = self.connect(socket_timeout=self.PATIENCE_S)
        until("a server", self.seconds, self.answers)

    def answers(self):
        if self.process.poll() is not None:
            with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
                raise AssertionError("the server did not start: " + "".join(log.readlines()[-3:]))
        try:
            return self.redis.ping()
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def connect(self, **options):
        return redis.Redis(unix_socket_path=self.socket, **options)

    def signal(self, number):
        send(self.process.pid, number)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def prepare(self):
        """Starts the server, without the data, that takes the place of this one in replace()."""
        self.next = Redis(folder=self.folder)

    def replace(self):
        """At once: how long a server takes to start does not matter."""
        self.kill()
        os.rename(self.next.socket, self.socket)
        self.process, self.next = self.next.process, None
        self.redis = self.connect(socket_timeout=self.PATIENCE_S)

    def stop(self):
        self.kill()
        if self.next:
            self.next.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Node(Redis):
    """One of several, with a port of its own; with `cluster`, as a node of one."""

    PATIENCE_S = 2

    def __init__(self, *arguments, cluster=False, **more):
        self.bus = free_port()
        node = ("--cluster-enabled", "yes", "--cluster-port", str(self.bus)) if cluster else ()
        super().__init__(*arguments, *node, port=free_port(), **more)

    def cluster(self, *words):
        """What it says to CLUSTER, as it was sent."""
        connection = self.redis.connection_pool.get_connection("CLUSTER")
        try:
            connection.send_command("CLUSTER", *words)
            return connection.read_response()
        finally:
            self.redis.connection_pool.release(connection)


# ---- TAP ----


TESTS = []


def test(function):
    """Its name is the name of the function."""
    TESTS.append(function)
    return function


class NotApplicable(Exception):
    """What this system cannot do: the test is named, with the reason."""


class Tap:
    """Prints each result as it comes. How many there are is printed first if it is known, else by ends()."""

    def __init__(self, planned=None):
        self.planned, self.count, self.failed = planned, 0, 0
        if planned is not None:
            print(f"1..{planned}", flush=True)

    def result(self, name, why=None):
        """None is a success; why it failed is printed as comments."""
        self.count += 1
        self.failed += why is not None
        print(f"{'ok' if why is None else 'not ok'} {self.count} - {name}", flush=True)
        for line in str(why).splitlines() if why is not None else ():
            print("#", line, flush=True)

    def check(self, name, ok, why=""):
        self.result(name, None if ok else why)

    def run(self, name, function, *arguments):
        """Runs a test; a failed one must not hide the others."""
        self.result(name, failure(function, *arguments))

    def ends(self):
        """Returns the exit status."""
        if self.planned is None:
            print(f"1..{self.count}", flush=True)
        return int(self.failed > 0 or self.count != (self.planned or self.count))


def failure(function, *arguments):
    """Runs a test: None, or why it failed."""
    try:
        function(*arguments)
    except NotApplicable as reason:
        print(f"not applicable: {function.__name__}, {reason}", flush=True)
    except Exception as error:
        return "".join(traceback.format_exception(error))
    return None


def run_on(server, tests):
    """Runs tests on one server, which is empty before each of them. Returns the exit status."""
    tap = Tap(len(tests))
    for function in tests:
        r = server.connect()
        r.flushall()
        tap.run(function.__name__, function, server, r)
    return tap.ends()
