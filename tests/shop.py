#!/usr/bin/python3
"""The sale of examples/shop/, by HTTP and live events, and then in a browser.

    tests/shop.py build/examples/shop/shop
    tests/shop.py build/examples/shop/shop --screenshot FILE    only makes the picture of the README

The browser is a Chromium without a window, driven through a pipe. Where there is none ($RLOCK_CHROMIUM, chromium,
chromium-browser, google-chrome), its tests are named as not applicable, and not counted. Prints TAP.
"""

import base64
import collections
import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import zlib

from fixture import Tap, children, dies_with_parent, hears_signals, state, until

PROGRAM = sys.argv[1]
STOCK, BUYERS = 80, 300
PATIENCE_S = 60  # an end for what does not come; nothing is expected to take so long
PATHS = ("/rush", "/reset", "/freeze", "/kill", "/stop-redis", "/buy")

tap = Tap()


def all_ended(processes):
    return all(state(process) in (None, "Z") for process in processes)


def sockets_of(process):
    found, folder = set(), f"/proc/{process}/fd/"
    for name in os.listdir(folder):
        try:
            found.add(os.readlink(folder + name))
        except FileNotFoundError:
            pass  # it was closed meanwhile
    return {name for name in found if name.startswith("socket:")}


class Shop:
    """A shop, and the live events that it tells."""

    open = []

    def __init__(self, *options, url=""):
        self.tmp = tempfile.mkdtemp(prefix="rlock-shop-test-")
        self.open.append(self)
        self.log = open(os.path.join(self.tmp, "log"), "w+b")
        self.process = subprocess.Popen(
            [PROGRAM, "--stock", str(STOCK), "--buyers", str(BUYERS), *options], stdout=subprocess.PIPE,
            stderr=self.log, env={**os.environ, "RLOCK_URL": url, "TMPDIR": self.tmp}, preexec_fn=dies_with_parent)
        said = self.process.stdout.readline().decode()
        assert said.startswith("The shop is open: http://"), said + self.words()
        self.address = said.split("//")[1].strip().strip("/")
        self.news, self.lines, self.state = threading.Condition(), [], None
        threading.Thread(target=self.listen, daemon=True).start()
        self.wait("its first state", lambda: self.state and self.state["server"] == "up" and self.state["sale"])

    def words(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def listen(self):
        try:
            stream = http.client.HTTPConnection(self.address)
            stream.request("GET", "/events")
            response, kind = stream.getresponse(), "state"
            while line := response.readline():
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    with self.news:
                        if kind == "line":
                            self.lines.append(json.loads(line[6:]))
                        else:
                            self.state = json.loads(line[6:])
                        kind = "state"
                        self.news.notify_all()
        except (OSError, http.client.HTTPException):
            pass  # the shop was closed

    def wait(self, what, done):
        with self.news:
            assert self.news.wait_for(done, PATIENCE_S), f"never: {what}; {self.state} {self.lines} {self.words()}"

    def wait_line(self, pattern, since=0):
        """Returns the groups of the first line of the log since then that matches."""
        found = []

        def look():
            found[:] = [m for line in self.lines[since:] if (m := re.search(pattern, line["text"]))]
            return found

        self.wait(pattern, look)
        return found[0].groups()

    def ask(self, method, path, headers=None):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text.strip(), response.headers

    def post(self, path):
        status, text, _ = self.ask("POST", path)
        assert status == 200, f"{path}: {status} {text}"
        return text

    def rush(self, lock):
        """Begins a rush. Returns where in the log it began."""
        since = len(self.lines)
        self.post(f"/rush?lock={lock}")
        return since

    def locked_rush(self):
        """Begins a rush with the lock. Returns when somebody holds it."""
        sale, since = self.state["sale"], self.rush(1)
        self.wait("a holder", lambda: self.state["sale"] > sale and self.state["holder"] > 0)
        return since

    def is_of_a_worker(self, name):
        """True if this word of the state describes a worker that lives."""
        words = re.fullmatch(r"the shop, worker \d, pid (\d+)", self.state[name])
        return words is not None and int(words.group(1)) in self.family()

    def verdicts(self, since):
        return [line for line in self.lines[since:] if line["kind"] in ("over", "exact")]

    def verdict(self, since):
        self.wait("the end of the rush", lambda: self.verdicts(since) and not self.state["running"])
        return self.verdicts(since)[0]

    def is_exact(self, since):
        verdict = self.verdict(since)
        assert verdict["text"] == f"With the lock: {STOCK} sold of {STOCK}, 0 left: exact", verdict
        self.wait("the same in its state",
                  lambda: (self.state["sold"], self.state["left"], self.state["over"]) == (STOCK, 0, 0))

    def family(self):
        return children(self.process.pid)

    def close(self, number=signal.SIGTERM):
        """Ends it, and sees that nothing is left of it: no process, no file."""
        family = self.family()
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        assert self.process.returncode == 0, f"exit status {self.process.returncode}: {self.words()}"
        until("the end of its processes", PATIENCE_S, lambda: all_ended(family))
        assert os.listdir(self.tmp) == ["log"], os.listdir(self.tmp)
        self.remove()

    def remove(self):
        self.open.remove(self)
        self.process.kill()  # nothing is left to kill, unless a test failed
        self.process.wait()
        self.process.stdout.close()
        self.log.close()
        shutil.rmtree(self.tmp, ignore_errors=True)


# --- by HTTP and live events ---


def serves_page(shop):
    status, page, headers = shop.ask("GET", "/")
    assert status == 200 and page.startswith("<!DOCTYPE html>") and page.endswith("</html>"), page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    found = re.findall(r"""https?:|//[a-z]+\.|(?:src|href)=["'](?!data:)""", page)
    assert not found, found


def refuses(shop):
    for path in PATHS:
        assert shop.ask("GET", path)[0] == 405, path
        assert shop.ask("POST", path, {"Origin": "http://elsewhere.invalid"})[0] == 403, path
    status, text, _ = shop.ask("POST", "/freeze")
    assert status == 409 and text.startswith("No worker holds the lock"), text
    assert shop.ask("GET", "/nowhere")[0] == 404


def raw(shop, text):
    """What it answers to bytes, to the end of the connection or of its first answer."""
    host, port = shop.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_S) as wire:
        answer = b""
        try:
            wire.sendall(text)
            while b"\r\n\r\n" not in answer and (piece := wire.recv(65536)):
                answer += piece
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has closed the connection
    return answer


def refuses_what_no_page_of_its_own_asks(shop):
    """A page whose name was made to point here, a request that two programs may read differently, endless headers."""
    sale = shop.state["sale"]
    for host in ("elsewhere.invalid", f"elsewhere.invalid:{shop.address.rsplit(':', 1)[1]}", "127.0.0.1.elsewhere.invalid"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert shop.ask("POST", "/rush?lock=1", headers)[0] == 403, host
        assert shop.ask("GET", "/events", headers)[0] == 403, host
    for twice in (f"Host: {shop.address}\r\nHost: elsewhere.invalid\r\n",
                  f"Host: {shop.address}\r\nContent-Length: 0\r\nContent-Length: 5\r\n",
                  f"Host: {shop.address}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                  f"Host: {shop.address}\r\nOrigin: http://{shop.address}\r\nOrigin: http://elsewhere.invalid\r\n"):
        answer = raw(shop, f"POST /rush?lock=1 HTTP/1.1\r\n{twice}\r\n0\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400 "), (twice, answer)
    many = b"".join(b"X-%d: %s\r\n" % (n, b"x" * 100) for n in range(10000))
    answer = raw(shop, b"GET / HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (shop.address.encode(), many))
    assert not answer.startswith(b"HTTP/1.1 200"), answer[:200]
    for name in ("localhost", "127.0.0.1", "127.1.2.3"):
        assert shop.ask("GET", "/", {"Host": f"{name}:1"})[0] == 200, name
    assert shop.state["sale"] == sale, shop.state


def oversells(shop):
    verdict = shop.verdict(shop.rush(0))
    assert re.fullmatch(rf"Without the lock: \d+ sold of {STOCK}: OVERSOLD BY \d+", verdict["text"]), verdict
    assert shop.state["over"] > 0 and shop.state["sold"] == STOCK + shop.state["over"], shop.state


def sells_exactly(shop):
    before = sum(worker["holds"] for worker in shop.state["workers"])
    shop.is_exact(shop.rush(1))
    assert sum(worker["holds"] for worker in shop.state["workers"]) - before >= BUYERS, shop.state
    status, text, _ = shop.ask("POST", "/buy?lock=1")
    assert (status, text) == (410, "sold out")


def sells_one(shop):
    shop.post("/reset")
    shop.wait("a full shelf", lambda: shop.state["left"] == STOCK and not shop.state["running"])
    assert shop.post("/buy?lock=1") == "sold" and shop.post("/buy?lock=0") == "sold"
    shop.wait("two are sold", lambda: shop.state["sold"] == 2 and shop.state["left"] == STOCK - 2)


def frozen_is_refused(shop):
    since = shop.rush(1)
    shop.post("/freeze")
    frozen, = shop.wait_line(r"Worker (\d) is frozen .*, between its last look at the lock and its write", since)
    shop.wait("its state", lambda: shop.state["workers"][int(frozen) - 1]["state"] == "frozen")
    other, = shop.wait_line(r"Worker (\d) holds the lock now", since)
    assert other != frozen
    shop.wait("who holds it, in words", lambda: shop.is_of_a_worker("holds"))
    shop.wait_line(rf"Worker {frozen} goes on", since)
    lost, = shop.wait_line(rf"Worker {frozen} is notified: LOST, expired\. Its token was (\d+)", since)
    refused, newest = shop.wait_line(rf"late write of worker {frozen} is REFUSED: its token (\d+) .* than (\d+)", since)
    assert refused == lost and int(refused) < int(newest)
    shop.is_exact(since)


def late_write_harms_no_later_sale(shop):
    since = shop.rush(1)
    shop.post("/freeze")
    frozen, = shop.wait_line(r"Worker (\d) is frozen", since)
    shop.post("/reset")
    shop.wait_line(rf"Worker {frozen} is notified: LOST", since)
    shop.wait("all idle", lambda: all(worker["state"] == "idle" for worker in shop.state["workers"]))
    assert (shop.state["sold"], shop.state["left"]) == (0, STOCK), shop.state


def killed_is_replaced(shop):
    before = set(shop.family())
    since = shop.rush(1)
    shop.post("/kill")
    dead, = shop.wait_line(r"Worker (\d) died while it held the lock", since)
    shop.wait_line(rf"Worker {dead} was replaced", since)
    shop.wait_line(r"Worker \d holds the lock now; no worker acquired it for", since)
    shop.is_exact(since)
    after = set(shop.family())
    assert len(before - after) == 1 and len(after - before) == 1, (before, after)


def killed_without_rush_is_replaced(shop):
    since = len(shop.lines)
    shop.post("/kill")
    dead, = shop.wait_line(r"Worker (\d) died$", since)
    shop.wait_line(rf"Worker {dead} was replaced", since)
    until("workers have no socket of the front", PATIENCE_S,
          lambda: not any(sockets_of(shop.process.pid) & sockets_of(worker) for worker in shop.family()))


def stopped_redis_loses_nothing(shop):
    """Now and then it is stopped just between two holds: then there is nobody to lose one."""
    for _ in range(10):
        since = shop.locked_rush()
        shop.post("/stop-redis")
        assert shop.ask("POST", "/stop-redis")[0] == 409
        shop.wait("its state", lambda: shop.state["server"] == "stopped")
        shop.wait_line(r"Redis goes on", since)
        shop.is_exact(since)
        assert shop.state["server"] == "up", shop.state
        if shop.state["lost"]:
            shop.wait_line(r"Worker \d is notified: LOST, expired", since)
            return
    raise AssertionError("no loss was told")


def page_connects_anew(shop):
    """A page that lost its connection gets the lines that it missed, and no other."""
    assert len(shop.lines) > 2
    stream = http.client.HTTPConnection(shop.address, timeout=PATIENCE_S)
    stream.request("GET", "/events", headers={"Last-Event-ID": str(len(shop.lines) - 1)})
    response, seen = stream.getresponse(), []
    while not (line := response.readline()).startswith(b"data: {\"sale\""):
        seen += [line] if line.startswith(b"data: ") else []
    stream.close()
    assert [json.loads(line[6:]) for line in seen] == shop.lines[-1:], seen


def closes(signal_number):
    shop = Shop()
    shop.rush(1)
    shop.post("/freeze")
    shop.wait_line("is frozen")
    shop.close(signal_number)


def fair_is_exact():
    """Whether anybody comes before the frozen worker wakes is up to the queue: see the shop's README."""
    shop = Shop("--fair")
    since = shop.rush(1)
    shop.post("/freeze")
    shop.wait("who waits, in words", lambda: shop.is_of_a_worker("waits"))
    shop.wait_line(r"Worker \d is notified: LOST, expired", since)
    shop.is_exact(since)
    shop.wait("nobody", lambda: not shop.state["holds"] and not shop.state["waits"])
    shop.close()


def leaves_nothing_when_killed():
    shop = Shop()
    family = shop.family()
    assert len(family) == 5, family
    shop.process.kill()
    shop.process.wait()
    until("the end of its processes", PATIENCE_S, lambda: all_ended(family))
    shop.remove()


def uses_servers_of_others():
    with subprocess.Popen(["tools/with-server", "sh", "-c", "echo $RLOCK_URL; read wait"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as server:
        url = server.stdout.readline().decode().strip()
        shop = Shop(url=url)
        assert len(shop.family()) == 4 and not shop.state["ours"]
        status, text, _ = shop.ask("POST", "/stop-redis")
        assert status == 409 and "not the shop's own" in text, text
        shop.is_exact(shop.rush(1))
        shop.close()
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(url[len("unix://"):])
            other.sendall(b"KEYS rlock-shop:*\r\n")
            said = other.recv(4096)
        assert said == b"*0\r\n" or b"lock" in said and not re.search(rb"rlock-shop:\d", said), said
        server.stdin.close()
    assert server.returncode is not None


# --- in a browser ---


def find_chromium():
    for name in (os.environ.get("RLOCK_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """A Chromium without a window, with one page. It reads commands from descriptor 3 and answers on 4."""

    def __init__(self, program):
        self.home = tempfile.mkdtemp(prefix="rlock-chromium-")
        command, self.answers = os.pipe(), os.pipe()
        self.log = open(os.path.join(self.home, "log"), "wb")

        def pipes():
            # Above 4 first: one of the ends may be 3 or 4 itself.
            read, write = (os.dup2(fd, high) for fd, high in ((command[0], 103), (self.answers[1], 104)))
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
             "--hide-scrollbars", "--user-data-dir=" + self.home, "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, "HOME": self.home}, start_new_session=True)
        os.close(command[0])
        os.close(self.answers[1])
        self.to, self.back = command[1], os.fdopen(self.answers[0], "rb")
        self.news, self.replies, self.events, self.ended = threading.Condition(), {}, [], False
        self.count, self.session = 0, None
        threading.Thread(target=self.listen, daemon=True).start()
        page = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"][0]
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def listen(self):
        rest = b""
        while data := self.back.read1(65536):
            *whole, rest = (rest + data).split(b"\0")
            with self.news:
                for message in map(json.loads, whole):
                    if "id" in message:
                        self.replies[message["id"]] = message
                    else:
                        self.events.append(message)
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def call(self, method, **parameters):
        self.count += 1
        mine = self.count
        message = {"id": mine, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        with self.news:
            self.news.wait_for(lambda: mine in self.replies or self.ended, PATIENCE_S)
            assert mine in self.replies, f"no answer of the browser to {method}; its words are in {self.log.name}"
            reply = self.replies.pop(mine)
        assert "error" not in reply, f"{method}: {reply}"
        return reply["result"]

    def value(self, expression):
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def until(self, expression):
        until(expression, PATIENCE_S, lambda: self.value(expression))

    def text(self, name):
        return self.value(f"document.getElementById('{name}').textContent")

    def press(self, key):
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {" ": "Space"}.get(key, key)
        virtual = {"Enter": 13, " ": 32, "Tab": 9}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=virtual,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def focus_by_tab(self, name):
        for _ in range(20):
            self.press("Tab")
            if self.value("document.activeElement.id") == name:
                return
        raise AssertionError("Tab does not reach " + name)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self):
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)  # a session of its own: it and its helpers alone
            self.process.wait()
        os.close(self.to)
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)


def page_opens(browser, shop):
    browser.call("Page.navigate", url=f"http://{shop.address}/")
    browser.until("document.querySelectorAll('#workers li').length === 4")
    # Each text that the page showed: what is shown for a moment may be gone when it is looked for.
    browser.value("""seen = [];
        new MutationObserver(changes => changes.forEach(change => seen.push(change.target.textContent)))
            .observe(document.querySelector('main'), {childList: true, characterData: true, subtree: true});""")
    assert browser.text("left") == str(STOCK) and browser.text("holder") == "nobody"


def keyboard_oversells(browser, shop):
    browser.focus_by_tab("without")
    outline = browser.value("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is not seen: " + outline
    browser.press("Enter")
    browser.until("/OVERSOLD BY/.test(document.getElementById('verdict').textContent)")
    browser.until("Number(document.getElementById('over').textContent) > 0")
    assert browser.value("document.getElementById('verdict').className") == "bad", "it is not marked"
    shop.wait("the same in its state", lambda: shop.state["over"] > 0)


def keyboard_sells_exactly(browser, shop):
    browser.focus_by_tab("with")
    browser.press(" ")
    browser.until("seen.some(text => /^worker \\d$/.test(text))")
    browser.until("/: exact$/.test(document.getElementById('verdict').textContent)")
    browser.until(f"document.getElementById('sold').textContent === '{STOCK}'")
    assert browser.text("over") == "0"


def keyboard_freezes(browser, shop):
    browser.until("document.getElementById('with').getAttribute('aria-disabled') === 'false'")
    assert browser.value("document.getElementById('freeze').getAttribute('aria-disabled')") == "true"
    browser.focus_by_tab("freeze")
    browser.value("document.getElementById('with').click()")
    browser.until("document.getElementById('freeze').getAttribute('aria-disabled') === 'false'")
    browser.press("Enter")
    browser.until("seen.includes('frozen, and believes that it holds the lock')")
    browser.until("document.querySelector('#log .lost') !== null && document.querySelector('#log .refused') !== null")
    browser.until("/: exact$/.test(document.getElementById('verdict').textContent)")


def disabled_says_why(browser, shop):
    browser.until("document.getElementById('freeze').getAttribute('aria-disabled') === 'true'")
    browser.value("document.getElementById('freeze').click()")
    browser.until("/No worker holds the lock/.test(document.getElementById('log').textContent)")


def fits_phone(browser, shop):
    for width in (320, 360, 412):
        browser.size(width, 740, phone=True)
        assert browser.value("document.documentElement.scrollWidth") <= width, width
        low = browser.value("Math.min(...[...document.querySelectorAll('button')].map(b => b.offsetHeight))")
        assert low >= 44, f"a button is {low} pixels high"
    browser.call("Emulation.clearDeviceMetricsOverride")


# The worst contrast between a text and what is behind it, by WCAG 2, and that text.
CONTRAST = """(() => {
    const parse = c => c.match(/[\\d.]+/g).map(Number);
    const light = c => parse(c).slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 :
        ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (parse(c)[3] !== 0) return c; } return 'rgb(255, 255, 255)'; };
    let worst = [99, ''];
    for (const e of document.querySelectorAll('body *')) {
        if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
        const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
        if ((a + .05) / (b + .05) < worst[0]) worst = [(a + .05) / (b + .05), e.textContent.slice(0, 40)];
    }
    return worst;
})()"""


def readable_in(browser, scheme):
    browser.scheme(scheme)
    ratio, text = browser.value(CONTRAST)
    assert ratio >= 4.5, f"{ratio:.1f}: {text}"
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", paper)[0]) < 128) == (scheme == "dark"), paper


def fetches_nothing_else(browser, shop):
    urls = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert urls and all(url.startswith((f"http://{shop.address}/", "data:")) for url in urls), urls
    errors = [e["params"] for e in browser.events if e["method"] == "Runtime.exceptionThrown" or
              e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error" and
              "409" not in e["params"]["entry"]["text"]]
    assert not errors, errors


BROWSER_TESTS = [
    ("the page opens in a browser, and shows the shelf and the workers", page_opens),
    ("by keyboard alone: a rush without the lock, and the page says by how many it is oversold", keyboard_oversells),
    ("by keyboard alone: a rush with the lock, the page shows who holds it, and that the sale is exact",
     keyboard_sells_exactly),
    ("by keyboard alone: the holder is frozen; the page tells the loss and the write that is refused",
     keyboard_freezes),
    ("a button that cannot be used says why in the log", disabled_says_why),
    ("on a phone nothing is cut off, and every button can be hit", fits_phone),
    ("every text can be read in a light scheme", lambda browser, shop: readable_in(browser, "light")),
    ("every text can be read in a dark scheme", lambda browser, shop: readable_in(browser, "dark")),
    ("the page fetches nothing from elsewhere, and has no error", fetches_nothing_else),
]


def browse():
    program = find_chromium()
    if program is None:
        for name, _ in BROWSER_TESTS:
            print(f"not applicable: {name}, there is no Chromium")
        return
    browser = shop = None
    try:
        shop, browser = Shop(), Browser(program)
        for name, test in BROWSER_TESTS:
            tap.run(name, test, browser, shop)
    finally:
        if browser:
            browser.close()
        if shop:
            tap.run("the shop closes while a browser is there", shop.close)


def rows_of(png):
    """The pixels of a PNG as Chromium writes it: 8 bits, not interlaced."""
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, height, _, colours = struct.unpack(">IIBB", png[at + 8:at + 18])
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += length + 12
    data, size, rows = zlib.decompress(data), {2: 3, 6: 4}[colours], []
    above = bytes(width * size)
    for y in range(height):
        how, row = data[y * (width * size + 1)], bytearray(data[y * (width * size + 1) + 1:(y + 1) * (width * size + 1)])
        for x in range(len(row) if how else 0):
            left, up, both = (row[x - size], above[x], above[x - size]) if x >= size else (0, above[x], 0)
            near = min((left, up, both), key=lambda value: abs(left + up - both - value))
            row[x] = row[x] + (0, left, up, (left + up) // 2, near)[how] & 255
        rows.append([bytes(row[x:x + 3]) for x in range(0, len(row), size)])
        above = row
    return rows


def with_palette(png):
    """The same picture in its 128 most frequent colours, which is a third of the bytes."""
    rows = rows_of(png)
    palette = [colour for colour, _ in collections.Counter(sum(rows, [])).most_common(128)]
    places = {colour: place for place, colour in enumerate(palette)}

    def place(colour):
        if colour not in places:
            near = min(palette, key=lambda other: sum((a - b) ** 2 for a, b in zip(colour, other)))
            places[colour] = places[near]
        return places[colour]

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + bytes(map(place, row)) for row in rows)
    return (png[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)) +
            chunk(b"PLTE", b"".join(palette)) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b""))


def make_picture(file):
    """An oversold sale in the log, then one with the lock, whose frozen holder was refused."""
    shop, browser = Shop("--stock", "400", "--buyers", "1600"), Browser(find_chromium())
    browser.size(1000, 940)
    browser.call("Page.navigate", url=f"http://{shop.address}/")
    shop.verdict(shop.rush(0))
    since = shop.locked_rush()
    shop.wait("some are sold", lambda: shop.state["sold"] > 60)
    shop.post("/freeze")
    shop.wait_line("is REFUSED", since)
    shop.wait("a little later", lambda: shop.state["sold"] > 150)
    with open(file, "wb") as out:
        out.write(with_palette(browser.picture()))
    browser.close()
    shop.close()


def main():
    if "--screenshot" in sys.argv:
        make_picture(sys.argv[sys.argv.index("--screenshot") + 1])
        return 0
    hears_signals()
    shop = Shop()
    tap.run("one page, which names no address of elsewhere", serves_page, shop)
    tap.run("what is not for it, the shop refuses: GET, another site's page, nobody to freeze", refuses, shop)
    tap.run("it refuses a page whose name points here, two lengths, endless headers", refuses_what_no_page_of_its_own_asks, shop)
    tap.run("without the lock the sale is oversold", oversells, shop)
    tap.run("with the lock it is exact", sells_exactly, shop)
    tap.run("one buyer alone, with the lock and without, by HTTP", sells_one, shop)
    tap.run("a frozen holder: the loss is told, its late write refused, the sale exact", frozen_is_refused, shop)
    tap.run("a frozen holder's late write harms no later sale", late_write_harms_no_later_sale, shop)
    tap.run("a killed holder is replaced, and the sale is exact", killed_is_replaced, shop)
    tap.run("a worker that is killed without a rush is replaced", killed_without_rush_is_replaced, shop)
    tap.run("Redis is stopped for two seconds: the loss is told, the sale exact", stopped_redis_loses_nothing, shop)
    tap.run("a page that connects anew hears only what it missed", page_connects_anew, shop)
    tap.run("SIGTERM closes the shop", shop.close)
    tap.run("with a fair lock too the sale is exact, though the holder is frozen", fair_is_exact)
    tap.run("SIGINT closes it too, also with a frozen worker", closes, signal.SIGINT)
    tap.run("SIGHUP closes it too: its terminal is gone", closes, signal.SIGHUP)
    tap.run("when the shop is killed, its workers and its server end", leaves_nothing_when_killed)
    tap.run("a server of others is used, and neither stopped nor ended", uses_servers_of_others)
    browse()
    for shop in list(Shop.open):
        shop.remove()
    return tap.ends()


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    sys.exit(main())
