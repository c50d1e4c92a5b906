#!/usr/bin/python3
"""The module of examples/nginx/ in a real nginx of four workers, before a real Redis and a server of its own.

    tests/nginx.py build/examples/nginx/ngx_http_rlock_module.so [TEST...]

nginx is the one in build/nginx, where tools/setup put it, or the system's; $RLOCK_NGINX names another. What a locked
location protects is a counter in a file, which the upstream server here reads, and writes a moment later. Prints TAP.
"""

import collections
import concurrent.futures
import http.client
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from urllib.parse import quote

from fixture import TESTS, Redis, Tap, children, dies_with_parent, ends_when_told, now, send, state, test, until

MODULE = os.path.abspath(sys.argv[1])
UNPACKED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build/nginx/usr/sbin/nginx")
WORKERS, LEASE_S = 4, 2
PATIENCE_S = 40  # an end for what does not come; nothing is expected to take so long
THINKS_S = 0.002  # between reading the counter and writing it


def nginx_program():
    return os.environ.get("RLOCK_NGINX") or (UNPACKED if os.path.exists(UNPACKED) else "/usr/sbin/nginx")


class Upstream(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers /count, /echo and /slow. Each request is on a connection of its own, as nginx proxies."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder):
        self.counter = os.path.join(folder, "counter")
        self.write(0)
        self.guard = threading.Lock()
        self.inside = self.overlaps = self.executed = 0
        self.slow = collections.Counter()  # what became of the requests for /slow, and how many there were
        self.go = threading.Event()        # those for /slow are answered
        super().__init__(os.path.join(folder, "upstream"), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass  # nginx went away

    def read(self):
        with open(self.counter, encoding="ascii") as file:
            return int(file.read())

    def write(self, value):
        with open(self.counter, "w", encoding="ascii") as file:
            file.write(str(value))

    def count(self):
        """Not atomic: two at a time lose one."""
        with self.guard:
            self.overlaps += self.inside
            self.inside += 1
            value = self.read()
        time.sleep(THINKS_S)
        with self.guard:
            self.write(value + 1)
            self.executed += 1
            self.inside -= 1


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        words = self.rfile.readline().split()
        if len(words) != 3:
            return
        while self.rfile.readline().strip():
            pass
        path = words[1].decode()
        if path.startswith("/count"):
            self.server.count()
        elif path.startswith("/slow"):
            self.wait()
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def wait(self):
        """Until it may answer, or until nginx has closed the connection."""
        slow = self.server.slow
        slow["begun"] += 1
        self.connection.settimeout(0.01)
        while not self.server.go.is_set():
            try:
                if not self.connection.recv(1):
                    slow["given up"] += 1
                    return
            except TimeoutError:
                pass
        slow["answered"] += 1


class Client(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


Said = collections.namedtuple("Said", "status body leads pid")
CLOSED = Said(0, b"", None, None)  # nginx closed the connection and said nothing

LOCATIONS = """
    location /count { rlock counter; rlock_wait 30s; rlock_lease 2s; proxy_pass http://upstream; }
    location /slow { rlock $arg_key; rlock_lease 2s; rlock_wait 30s; proxy_pass http://upstream; }
    location /now { rlock $arg_key; rlock_wait 0; proxy_pass http://upstream/echo; }
    location /status { stub_status; }
    location /who { proxy_pass http://upstream/echo; }
"""
LONG = "location /long { rlock $arg_key; rlock_lease 1h; rlock_wait 30s; proxy_pass http://upstream/slow; }"


class Nginx:
    """One with its own folder, and an upstream server."""

    def __init__(self, redis, locations=LOCATIONS, *, main="", http="rlock_elect leader;", events="", parameters=""):
        self.clients = []  # of all requests
        self.folder = tempfile.mkdtemp(prefix="rlock-nginx-")
        self.socket = os.path.join(self.folder, "socket")
        self.upstream = Upstream(self.folder)
        for name in ("body", "proxy", "fastcgi", "uwsgi", "scgi"):
            os.mkdir(os.path.join(self.folder, name))
        paths = "".join(f"{'client_' * (name == 'body')}{name}_temp_path {self.folder}/{name}; "
                        for name in ("body", "proxy", "fastcgi", "uwsgi", "scgi"))
        server = f'rlock_server "{redis.url}?watchdog_lease_ms={LEASE_S * 1000}{parameters}";' if redis else ""
        with open(os.path.join(self.folder, "nginx.conf"), "w", encoding="ascii") as file:
            file.write(f"""
load_module {MODULE};
{main}
daemon off; worker_processes {WORKERS}; pid {self.folder}/pid; error_log {self.folder}/error.log info;
{"user root;" if os.geteuid() == 0 else ""}
events {{ worker_connections 256; {events} }}
http {{
    {paths}
    log_format status "$status $request_uri";
    access_log {self.folder}/access.log status;
    upstream upstream {{ server unix:{self.folder}/upstream; }}
    {server}
    {http}
    add_header X-Leads $rlock_leads;
    add_header X-Pid $pid;
    server {{
        listen unix:{self.socket} backlog=512;
        root {self.folder};
        {locations}
    }}
}}
""")
        self.process = None

    def run(self, *words, **more):
        return subprocess.Popen([nginx_program(), "-p", self.folder, "-c", "nginx.conf", *words],
                                stdin=subprocess.DEVNULL, preexec_fn=dies_with_parent, **more)

    def __enter__(self):
        with open(os.path.join(self.folder, "said"), "ab") as out:
            self.process = self.run(stdout=out, stderr=out)
        until("nginx", PATIENCE_S, self.begun)
        return self

    def begun(self):
        assert self.process.poll() is None, f"nginx did not start: {self.words('said')}"
        return os.path.exists(self.socket) and len(self.workers()) == WORKERS

    def __exit__(self, failed, *_):
        workers = self.workers()
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in workers:
            if state(pid) not in (None, "Z"):
                send(pid, signal.SIGKILL)
        self.upstream.shutdown()
        self.upstream.server_close()
        faults = self.faults()
        shutil.rmtree(self.folder, ignore_errors=True)
        assert failed or not faults, faults

    def workers(self):
        return [pid for pid in children(self.process.pid) if state(pid) not in (None, "Z")]

    def words(self, name="error.log"):
        with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def faults(self):
        """Lines of the log that nobody wants; that a worker was killed is told as an alert too."""
        return [line for line in self.words().splitlines()
                if re.search(r"\[(emerg|alert|crit)\]", line) and "exited on signal 9" not in line]

    def open(self, path):
        """A request that was sent; its answer is not read."""
        client = Client(self.socket)
        self.clients.append(client)
        client.request("GET", path)
        return client

    def hear(self, client):
        try:
            answer = client.getresponse()
            return Said(answer.status, answer.read(), answer.getheader("X-Leads"), int(answer.getheader("X-Pid", 0)))
        except (http.client.HTTPException, ConnectionError):
            return CLOSED
        finally:
            client.close()

    def get(self, path):
        try:
            return self.hear(self.open(path))
        except ConnectionError:
            return CLOSED

    def hold(self, key, path="/slow"):
        """A request that has the lock, and stands still."""
        begun = self.upstream.slow["begun"]
        client = self.open(f"{path}?key={key}")
        until("a request that is served", PATIENCE_S, lambda: self.upstream.slow["begun"] > begun)
        return client

    def stands(self, path):
        """A request that waits for its lock: nginx is at work on it."""
        out = sum(client.sock is not None for client in self.clients)
        until("an end of what was answered", PATIENCE_S, lambda: self.at_work() <= out + 1)  # with the one that asks
        before = self.at_work()
        client = self.open(path)
        until("a request that stands", PATIENCE_S, lambda: self.at_work() > before)
        return client

    def at_work(self):
        """How many requests nginx has, this one included."""
        return int(re.search(rb"Writing: (\d+)", self.get("/status").body).group(1))

    def given_up(self):
        return self.upstream.slow["given up"]

    def logged(self, line):
        return line in self.words("access.log").splitlines()


class Load:
    """Requests for /count, from several threads, until told otherwise."""

    def __init__(self, nginx, threads=12):
        self.nginx, self.stop = nginx, threading.Event()
        self.heard = collections.Counter()
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)
        self.futures = [self.pool.submit(self.ask) for _ in range(threads)]

    def ask(self):
        while not self.stop.is_set():
            said = self.nginx.get("/count")
            self.heard[said.status] += 1
            if said.status != 200:
                time.sleep(0.01)

    def goes_on(self, more=50):
        """Waits until so many more were counted."""
        counted = self.nginx.upstream.executed
        until("more that are counted", PATIENCE_S, lambda: self.nginx.upstream.executed >= counted + more)

    def ends(self):
        self.stop.set()
        for future in self.futures:
            future.result(PATIENCE_S)
        self.pool.shutdown()
        upstream = self.nginx.upstream
        until("the last one", PATIENCE_S, lambda: upstream.inside == 0)
        assert upstream.overlaps == 0, f"{upstream.overlaps} were at work beside another"
        assert upstream.read() == upstream.executed, f"{upstream.read()} counted of {upstream.executed}"
        assert self.heard[200] <= upstream.executed, (self.heard, upstream.executed)


def leader(nginx, but=()):
    """Asks until a worker says that it leads."""
    def led():
        said = nginx.get("/who")
        return said.pid if said.leads == "1" and said.pid not in but else None
    return until("a leader", PATIENCE_S, led)


def nothing_is_left(r):
    """Keys go with their holders, at the latest after a lease. The mark of a quarantine stays."""
    until("no key at the server", PATIENCE_S, lambda: set(r.keys()) <= {b"rlock:quarantine"})


# ---- the loop ----


def loop_is_checked(redis, mutex):
    check = os.path.join(os.path.dirname(MODULE), "ngx_rlock_check_module.so")
    with tempfile.NamedTemporaryFile() as out:
        os.environ["NGX_RLOCK_CHECK"] = out.name
        try:
            with Nginx(redis, http="", main=f"load_module {check}; env NGX_RLOCK_CHECK;", events=f"accept_mutex {mutex};"):
                until("the last check", PATIENCE_S, lambda: b"\nfailed " in open(out.name, "rb").read())
        finally:
            del os.environ["NGX_RLOCK_CHECK"]
        said = out.read().decode()
    assert "\nfailed 0\n" in said and "SKIP" not in said, said
    assert len(re.findall(r"^ok \d+ - ", said, re.M)) == int(re.search(r"^1\.\.(\d+)$", said, re.M).group(1)) > 20, said


@test
def loop_contract_is_kept_inside_a_worker(redis, _):
    loop_is_checked(redis, "off")


@test
def loop_contract_is_kept_where_what_is_ready_is_posted(redis, _):
    loop_is_checked(redis, "on")


@test
def module_defines_no_symbol_of_rlock_for_others(*_):
    """Another module in the same nginx may have a version of its own."""
    found = subprocess.run(["nm", "-D", "--defined-only", MODULE], stdout=subprocess.PIPE, text=True, check=True,
                           preexec_fn=dies_with_parent).stdout.split()[2::3]
    assert "ngx_modules" in found, found  # it is the table that nginx looks for
    assert not [name for name in found if name.startswith("rlock")], found


# ---- a request ----


@test
def one_request_at_a_time_has_the_key(redis, r):
    more = """
    location /locked { rlock $arg_key; rlock_wait 0; rlock_busy 423; proxy_pass http://upstream/echo; }
    location /off/ { rlock $arg_key; location /off/inside { rlock off; proxy_pass http://upstream/echo; } }
    """
    with Nginx(redis, LOCATIONS + more) as nginx:
        client = nginx.hold("a")
        assert r.exists("a")
        assert nginx.get("/now?key=a").status == 503
        assert nginx.get("/locked?key=a").status == 423
        assert nginx.get("/off/inside?key=a").status == 200
        assert nginx.get("/now?key=b").status == 200
        assert nginx.get("/now").status == 200, "an empty key is no lock"
        waits = nginx.stands("/slow?key=a")
        assert nginx.upstream.slow["begun"] == 1
        nginx.upstream.go.set()
        assert nginx.hear(client).status == 200 and nginx.hear(waits).status == 200
        until("the release", PATIENCE_S, lambda: not r.exists("a"))
        assert nginx.get("/now?key=a").status == 200
        nothing_but_the_leader(r)


def nothing_but_the_leader(r):
    until("no key but the leader's", PATIENCE_S, lambda: set(r.keys()) <= {b"leader"})


@test
def client_that_goes_away_gives_up_what_it_holds_and_what_it_waits_for(redis, r):
    with Nginx(redis) as nginx:
        holds, waits = nginx.hold("a"), nginx.stands("/slow?key=a")
        waits.close()
        until("499 in the log", PATIENCE_S, lambda: nginx.logged("499 /slow?key=a"))
        holds.close()
        until("a request that is given up", PATIENCE_S, lambda: nginx.given_up() == 1)
        until("the release", PATIENCE_S, lambda: not r.exists("a"))
        nginx.upstream.go.set()
        assert nginx.get("/slow?key=a").status == 200
        assert nginx.upstream.slow["begun"] == 2, "who went away while it waited was served"


@test
def request_whose_hold_is_lost_is_ended(redis, r):
    with Nginx(redis) as nginx:
        client = nginx.hold("a")
        r.delete("a")
        assert nginx.hear(client) == CLOSED
        until("a request that is given up", PATIENCE_S, lambda: nginx.given_up() == 1)
        until("503 in the log", PATIENCE_S, lambda: nginx.logged("503 /slow?key=a"))
        assert 'rlock "a" is lost: deleted' in nginx.words()


@test
def no_client_forges_a_line_of_the_log_by_its_key(redis, r):
    more = """
    location /busy { rlock $uri; rlock_wait 0; proxy_pass http://upstream/echo; }
    location /held { rlock $uri; proxy_pass http://upstream/slow; }
    """
    forged = '\n2026/11/28 00:00:00 [info] 1#1: forged \x1b[31m\x7f"\\'
    shown = r"\x0A2026/11/28 00:00:00 [info] 1#1: forged \x1B[31m\x7F\x22\x5C"
    with Nginx(redis, LOCATIONS + more) as nginx:
        r.set("/busy" + forged, "another")
        assert nginx.get("/busy" + quote(forged)).status == 503
        r.lpush("/held" + forged, "no lock")
        assert nginx.get("/held" + quote(forged)).status == 503
        r.delete("/held" + forged)
        client = nginx.open("/held" + quote(forged))
        until("a request that is served", PATIENCE_S, lambda: nginx.upstream.slow["begun"] > 0)
        r.delete("/held" + forged)
        assert nginx.hear(client) == CLOSED
        said = nginx.words()
        for line in (f'rlock "/busy{shown}" is busy', f'rlock "/held{shown}" cannot be acquired', f'rlock "/held{shown}" is lost'):
            assert line in said, (line, said)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]|^2026/11/28 00:00:00", said, re.M), said
        r.delete("/busy" + forged)


@test
def server_that_is_away_is_waited_for(redis, _):
    with Nginx(redis) as nginx:
        assert nginx.get("/now?key=b").status == 200
        holds = nginx.hold("a")
        redis.signal(signal.SIGSTOP)
        waits = nginx.stands("/slow?key=c")
        assert nginx.get("/now?key=b").status == 503
        assert 'rlock "b" cannot be acquired: ' in nginx.words()
        assert nginx.hear(holds) == CLOSED, "it holds for longer than a lease"
        assert 'rlock "a" is lost: expired' in nginx.words()
        redis.signal(signal.SIGCONT)
        nginx.upstream.go.set()
        assert nginx.hear(waits).status == 200


@test
def redirects_and_subrequests_share_the_lock_of_their_request(redis, r):
    more = """
    location /first { rlock $arg_key; try_files /nothing @second; }
    location @second { rlock $arg_key; proxy_pass http://upstream; }
    location /asks { auth_request /asked; rlock k; proxy_pass http://upstream/echo; }
    location = /asked { rlock k; proxy_pass http://upstream/echo; }
    location /parts { ssi on; ssi_types *; }
    location /part { rlock k; proxy_pass http://upstream/echo; }
    location /polite { rlock k; rlock_wait 0; error_page 503 /sorry; proxy_pass http://upstream/echo; }
    location /sorry { rlock off; proxy_pass http://upstream/echo; }
    """
    with Nginx(redis, LOCATIONS + more) as nginx:
        with open(os.path.join(nginx.folder, "parts"), "w", encoding="ascii") as file:
            file.write('<!--# include virtual="/part?1" --><!--# include virtual="/part?2" -->')
        for path, body in (("/first?key=k", b"ok"), ("/asks", b"ok"), ("/parts", b"okok"), ("/polite", b"ok")):
            assert nginx.get(path)[:2] == (200, body), path
            until("the release", PATIENCE_S, lambda: not r.exists("k"))
        client = nginx.hold("k")
        waits = [nginx.stands(path) for path in ("/first?key=k", "/asks", "/parts")]
        assert nginx.get("/polite")[:2] == (503, b"ok")
        nginx.upstream.go.set()
        assert nginx.hear(client).status == 200
        assert [nginx.hear(client)[:2] for client in waits] == [(200, b"ok"), (200, b"ok"), (200, b"okok")]


@test
def who_is_refused_takes_no_lock_and_nobody_goes_round_it(redis, _):
    more = """
    location /denied { rlock k; deny all; proxy_pass http://upstream/echo; }
    location /any { rlock k; rlock_wait 0; satisfy any; allow all; proxy_pass http://upstream/echo; }
    """
    with Nginx(redis, LOCATIONS + more) as nginx:
        assert nginx.get("/any").status == 200
        client = nginx.hold("k")
        assert nginx.get("/denied").status == 403
        assert nginx.get("/any").status == 503
        nginx.upstream.go.set()
        assert nginx.hear(client).status == 200


@test
def mistakes_in_the_configuration_are_reported_before_it_runs(redis, _):
    short = "rlock_server redis://h?watchdog_lease_ms=5000&quarantine_ms=5000;"
    rows = (
        (None, "rlock k;", "", 'need a "rlock_server"'),
        (None, "", "rlock_elect k;", 'need a "rlock_server"'),
        (redis, "", 'rlock_elect "";', 'the key of "rlock_elect" is empty'),
        (redis, "rlock a; rlock b;", "", '"rlock" directive is duplicate'),
        (redis, "rlock a; rlock_lease 1ms;", "", '"rlock_lease" must be between'),
        (redis, "rlock a; rlock_busy 200;", "", "value must be between 400 and 599"),
        (None, "rlock a; rlock_lease 6s;", short, '"rlock_lease" 6000ms is too long'),
        (None, "rlock a;", short + "rlock_lease 5001ms;", '"rlock_lease" 5001ms is too long'),
        (None, "", "rlock_server redis://:secret@localhost:x;", "port"),
        (None, "", "rlock_server nonsense://host;", "url"),
    )
    for server, location, more, words in rows:
        nginx = Nginx(server, f"location / {{ {location} }}", http=more)
        process = nginx.run("-t", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = process.communicate(timeout=PATIENCE_S)[0].decode()
        nginx.upstream.server_close()
        shutil.rmtree(nginx.folder)
        assert process.returncode == 1 and words in said and "nginx.conf:" in said, (location, more, said)
        assert "secret" not in said, said


# ---- the life of workers ----


@test
def one_worker_leads_and_another_soon_after_it_is_killed(redis, _):
    with Nginx(redis) as nginx:
        led = []
        for _ in range(2):
            led.append(leader(nginx, but=led))
            assert led[-1] in nginx.workers()
            said = [nginx.get("/who") for _ in range(100)]
            assert {one.pid for one in said if one.leads == "1"} <= {led[-1]}, "two lead"
            os.kill(led[-1], signal.SIGKILL)
            killed = now()
            leader(nginx, but=led)
            assert now() - killed < 10 * LEASE_S


@test
def leader_that_is_told_to_quit_resigns_at_once(redis, r):
    with Nginx(redis) as nginx:
        first = leader(nginx)
        client = nginx.hold("a")  # perhaps in that worker, which then goes on to serve it
        token = r.get("leader")
        nginx.process.send_signal(signal.SIGHUP)
        until("another leader", PATIENCE_S, lambda: r.get("leader") not in (None, token))
        assert leader(nginx, but=[first]) != first
        nginx.upstream.go.set()
        assert nginx.hear(client).status == 200
        until("the end of the old workers", PATIENCE_S, lambda: len(nginx.workers()) == WORKERS)


@test
def reload_loses_no_request(redis, r):
    with Nginx(redis) as nginx:
        load = Load(nginx)
        for _ in range(3):
            load.goes_on()
            old = nginx.workers()
            nginx.process.send_signal(signal.SIGHUP)
            until("new workers, and no old one", PATIENCE_S,
                  lambda: len(nginx.workers()) == WORKERS and not set(old) & set(nginx.workers()))
        load.goes_on()
        load.ends()
        assert set(load.heard) == {200}, load.heard
        nginx.process.send_signal(signal.SIGQUIT)
        assert nginx.process.wait(PATIENCE_S) == 0
        nothing_is_left(r)


@test
def counter_is_exact_while_workers_are_killed_and_the_server_stops_and_forgets(_, __):
    # A server that was started anew and has forgotten grants nothing for as long as a lease: quarantine_ms.
    with Redis() as redis, Nginx(redis, parameters=f"&quarantine_ms={LEASE_S * 1000}") as nginx:
        load = Load(nginx)
        load.goes_on()
        os.kill(leader(nginx), signal.SIGKILL)
        load.goes_on()
        redis.signal(signal.SIGSTOP)
        time.sleep(1.5 * LEASE_S)  # no event tells that the holds ended
        redis.signal(signal.SIGCONT)
        load.goes_on()
        os.kill(nginx.workers()[0], signal.SIGKILL)
        nginx.process.send_signal(signal.SIGHUP)
        load.goes_on()
        redis.kill()
        redis.start()
        load.goes_on()
        for pid in nginx.workers()[:2]:
            send(pid, signal.SIGKILL)
        load.goes_on()
        leader(nginx)
        load.ends()
        assert load.heard[200] > 200, load.heard
        nginx.process.send_signal(signal.SIGQUIT)
        assert nginx.process.wait(PATIENCE_S) == 0
        nothing_is_left(redis.redis)


def ends_without_a_server(number):
    """Long before the lease does. What was written before the end is read when the server goes on."""
    with Redis() as redis, Nginx(redis, LOCATIONS + LONG) as nginx:
        leader(nginx)
        assert nginx.get("/now?key=b").status == 200
        until("a release, for which the server has got its script", PATIENCE_S, lambda: not redis.redis.exists("b"))
        client = nginx.hold("a", "/long")
        redis.signal(signal.SIGSTOP)
        nginx.process.send_signal(number)
        nginx.upstream.go.set()
        nginx.hear(client)
        assert nginx.process.wait(PATIENCE_S) == 0
        redis.signal(signal.SIGCONT)
        nothing_is_left(redis.redis)


@test
def quitting_is_not_kept_up_by_a_server_that_is_away(_, __):
    ends_without_a_server(signal.SIGQUIT)


@test
def terminating_is_not_kept_up_by_a_server_that_is_away(_, __):
    ends_without_a_server(signal.SIGTERM)


def main():
    ends_when_told()
    tests = [function for function in TESTS if len(sys.argv) < 3 or function.__name__ in sys.argv[2:]]
    tap = Tap(len(tests))
    for function in tests:
        with Redis() as redis:
            began = now()
            tap.run(function.__name__, function, redis, redis.redis)
            print(f"# {now() - began:.1f} s", flush=True)
    return tap.ends()


sys.exit(main())
