#!/usr/bin/python3
"""Both wires against their other speakers: redis-py's Lock, and Redisson's lock as its scripts state it.

    tests/interop.py build/tests/peer

Prints TAP.
"""

import queue
import statistics
import subprocess
import sys
import threading
import time
import uuid

from redis.exceptions import LockError, LockNotOwnedError

from fixture import TESTS, Redis, dies_with_parent, ends_when_told, now, run_on, test, until

PEER = sys.argv[1]
OK, BUSY, TIMEOUT, NOT_HELD, LOST = 0, -1, -2, -4, -5
EXPIRED, STOLEN, DELETED = 1, 2, 3
FOREVER = -1
ROUNDS = 9
BOUND_S = 0.020  # the median of the rounds must be woken, or told, within this


class Event:
    def __init__(self, line):
        at, self.kind, *numbers = line.split()
        self.at = int(at) / 1e6
        self.numbers = [int(n) for n in numbers]
        self.status = self.numbers[0]
        self.reason = self.numbers[1] if len(numbers) > 1 else 0
        self.fence = self.numbers[2] if len(numbers) > 2 else 0


class Peer:
    """One handle of rlock.h in a process of its own."""

    def __init__(self, server, wire, key):
        self.process = subprocess.Popen([PEER, "unix://" + server.socket, wire, key], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1,
                                        preexec_fn=dies_with_parent)
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(Event(line))

    def say(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def hears(self, kind, seconds=5):
        event = self.lines.get(timeout=seconds)
        assert event.kind == kind, f"{event.kind} {event.numbers} instead of {kind}"
        return event

    def quiet(self, seconds):
        try:
            event = self.lines.get(timeout=seconds)
        except queue.Empty:
            return True
        raise AssertionError(f"unexpected: {event.kind} {event.numbers}")

    def acquire(self, wait=0, lease=60000):
        self.say(f"acquire {wait} {lease}")
        return self.hears("acquired", 5 if wait < 0 else 5 + wait / 1000)

    def renew(self, lease):
        self.say(f"renew {lease}")
        return self.hears("renewed")

    def release(self):
        self.say("release")
        return self.hears("released")

    def is_held(self):
        self.say("held")
        return self.hears("held").status == 1

    def waits(self, lease=60000):
        """Starts to wait for ever, and is registered for pushes when this returns."""
        self.say(f"acquire {FOREVER} {lease}")
        until("a push connection", 5, self.is_pushed)
        self.quiet(0.15)

    def is_pushed(self):
        self.say("stats")
        return self.hears("stats").status == 1

    def ends(self):
        self.process.stdin.close()
        self.process.wait(10)


class RedissonModel:
    """Redisson's lock by what its scripts do: a hash of owner and count, a channel, and the message 0."""

    TRY = """
        local free = redis.call('exists', KEYS[1]) == 0
        if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
            redis.call('hincrby', KEYS[1], ARGV[2], 1)
            redis.call('pexpire', KEYS[1], ARGV[1])
            return nil
        end
        return redis.call('pttl', KEYS[1])"""
    LET_GO = """
        if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
        if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
            redis.call('pexpire', KEYS[1], ARGV[2])
            return 0
        end
        redis.call('del', KEYS[1])
        redis.call('publish', KEYS[2], ARGV[1])
        return 1"""
    EXTEND = """
        if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
        redis.call('pexpire', KEYS[1], ARGV[1])
        return 1"""

    def __init__(self, server, name):
        self.redis = server.connect()
        self.name = name
        self.channel = "redisson_lock__channel:" + (name if "{" in name else "{" + name + "}")
        self.owner = f"{uuid.uuid4()}:1"

    def attempt(self, lease=60000):
        """None = got it, else the milliseconds left."""
        return self.redis.eval(self.TRY, 1, self.name, lease, self.owner)

    def unlock(self, lease=60000):
        return self.redis.eval(self.LET_GO, 2, self.name, self.channel, "0", lease, self.owner)

    def renew(self, lease):
        return self.redis.eval(self.EXTEND, 1, self.name, lease, self.owner)

    def force_unlock(self):
        self.redis.delete(self.name)
        self.redis.publish(self.channel, "0")

    def lock(self, seconds):
        """Try, subscribe, try again, then wait for messages: when it got the lock, and what it heard."""
        ear = self.redis.pubsub(ignore_subscribe_messages=True)
        heard, deadline = [], now() + seconds
        ear.subscribe(self.channel)
        try:
            while self.attempt() is not None:
                message = ear.get_message(timeout=deadline - now())
                while message is None and now() < deadline:
                    message = ear.get_message(timeout=max(0.001, deadline - now()))
                assert message is not None, "nobody woke it"
                heard.append(message["data"])
            return now(), heard
        finally:
            ear.close()


# ---- redis-py ----


@test
def redis_py_excludes_rlock(server, r):
    theirs, ours = r.lock("k", timeout=60), Peer(server, "string", "k")
    assert theirs.acquire(blocking=False)
    token = r.get("k")
    assert ours.acquire().status == BUSY
    assert ours.acquire(wait=300).status == TIMEOUT
    assert r.get("k") == token
    theirs.release()
    assert ours.acquire().status == OK
    ours.ends()


@test
def rlock_excludes_redis_py(server, r):
    theirs, ours = r.lock("k", timeout=60), Peer(server, "string", "k")
    assert ours.acquire().status == OK
    token = r.get("k")
    assert not theirs.acquire(blocking=False)
    assert not r.lock("k", timeout=60).acquire(blocking_timeout=0.3)
    assert r.get("k") == token and theirs.locked() and not theirs.owned()
    assert ours.release().status == OK
    assert theirs.acquire(blocking=False)
    theirs.release()
    ours.ends()


@test
def release_by_redis_py_wakes_rlock_within_20_ms(server, r):
    ours, took = Peer(server, "string", "k"), []
    for _ in range(ROUNDS):
        theirs = r.lock("k", timeout=60)
        assert theirs.acquire(blocking=False)
        ours.waits()
        start = now()
        theirs.release()
        event = ours.hears("acquired")
        assert event.status == OK
        took.append(event.at - start)
        assert ours.release().status == OK
    assert statistics.median(took) <= BOUND_S, took
    ours.ends()


@test
def redis_py_gets_the_lock_when_rlock_releases(server, r):
    ours, got = Peer(server, "string", "k"), []
    assert ours.acquire().status == OK
    theirs = server.connect().lock("k", timeout=60, sleep=0.01, thread_local=False)
    waiter = threading.Thread(target=lambda: got.append((theirs.acquire(blocking_timeout=5), now())))
    waiter.start()
    time.sleep(0.2)
    assert not got
    start = now()
    assert ours.release().status == OK
    waiter.join()
    assert got[0][0] and got[0][1] - start < 0.2  # its own sleep is 10 ms
    theirs.release()
    ours.ends()


@test
def redis_py_neither_extends_nor_frees_what_rlock_holds(server, r):
    ours, theirs = Peer(server, "string", "k"), r.lock("k", timeout=0.1)
    assert theirs.acquire(blocking=False)
    time.sleep(0.15)
    assert ours.acquire(lease=20000).status == OK
    token = r.get("k")
    for attempt in (lambda: theirs.extend(100), theirs.reacquire, theirs.release):
        try:
            attempt()
        except (LockNotOwnedError, LockError):
            pass
        else:
            raise AssertionError("a lock was touched by one who had lost it")
    assert r.get("k") == token and 15000 < r.pttl("k") <= 20000
    assert ours.is_held()
    ours.ends()


@test
def rlock_waits_while_redis_py_extends_and_reacquires(server, r):
    ours, theirs = Peer(server, "string", "k"), r.lock("k", timeout=0.5)
    assert theirs.acquire(blocking=False)
    ours.waits()
    for _ in range(3):
        theirs.extend(0.5)
        assert ours.quiet(0.2)
        theirs.reacquire()
        assert ours.quiet(0.2)
    theirs.release()
    assert ours.hears("acquired").status == OK
    ours.ends()


@test
def lock_of_redis_py_without_end_is_waited_for(server, r):
    ours, theirs = Peer(server, "string", "k"), r.lock("k", timeout=None)
    assert theirs.acquire(blocking=False)
    assert r.pttl("k") == -1
    assert ours.acquire().status == BUSY
    ours.waits()
    assert ours.quiet(0.5)
    theirs.release()
    assert ours.hears("acquired").status == OK
    assert r.pttl("k") > 0
    ours.ends()


@test
def lock_of_redis_py_that_runs_out_goes_to_rlock(server, r):
    ours, theirs = Peer(server, "string", "k"), r.lock("k", timeout=0.5)
    start = now()
    assert theirs.acquire(blocking=False)
    ours.waits()
    event = ours.hears("acquired")
    assert 0.49 <= event.at - start <= 0.8
    try:
        theirs.release()
    except LockNotOwnedError:
        pass
    else:
        raise AssertionError("a late release was let through")
    assert ours.is_held() and r.exists("k")
    ours.ends()


@test
def deletion_by_hand_notifies_an_rlock_holder_within_20_ms(server, r):
    took = []
    for i in range(3):
        ours = Peer(server, "string", f"k{i}")
        assert ours.acquire().status == OK
        time.sleep(1.1)
        start = now()
        r.delete(f"k{i}")
        event = ours.hears("lost")
        assert event.reason == DELETED
        took.append(event.at - start)
        ours.ends()
    assert statistics.median(took) <= BOUND_S, took


@test
def lock_taken_by_redis_py_after_a_deletion_is_reported_as_loss(server, r):
    ours = Peer(server, "string", "k")
    assert ours.acquire(lease=0).status == OK  # the watchdog looks every half second
    pipe = r.pipeline()
    pipe.delete("k").set("k", "theirs", px=60000).execute()
    event = ours.hears("lost")
    assert event.reason == STOLEN
    assert r.get("k") == b"theirs" and r.pttl("k") > 50000
    ours.ends()


# ---- Redisson, by its scripts ----


@test
def redisson_excludes_rlock(server, r):
    theirs, ours = RedissonModel(server, "k"), Peer(server, "redisson", "k")
    assert theirs.attempt() is None
    before = r.hgetall("k")
    assert ours.acquire().status == BUSY
    assert ours.acquire(wait=300).status == TIMEOUT
    assert r.hgetall("k") == before
    assert theirs.unlock() == 1
    assert ours.acquire().status == OK
    ours.ends()


@test
def rlock_excludes_redisson(server, r):
    theirs, ours = RedissonModel(server, "k"), Peer(server, "redisson", "k")
    assert ours.acquire(lease=20000).status == OK
    fields = r.hgetall("k")
    assert len(fields) == 1 and list(fields.values()) == [b"1"]
    left = theirs.attempt()
    assert left is not None and 15000 < left <= 20000
    assert theirs.unlock() is None and theirs.renew(60000) == 0
    assert r.hgetall("k") == fields and r.pttl("k") <= 20000
    assert ours.release().status == OK
    assert theirs.attempt() is None
    ours.ends()


@test
def release_by_redisson_wakes_rlock_within_20_ms(server, r):
    theirs, ours, took = RedissonModel(server, "k"), Peer(server, "redisson", "k"), []
    for _ in range(ROUNDS):
        assert theirs.attempt() is None
        ours.waits()
        start = now()
        assert theirs.unlock() == 1
        event = ours.hears("acquired")
        assert event.status == OK
        took.append(event.at - start)
        assert ours.release().status == OK
    assert statistics.median(took) <= BOUND_S, took
    ours.ends()


@test
def release_by_rlock_wakes_redisson_with_0_within_20_ms(server, r):
    theirs, ours, took = RedissonModel(server, "k"), Peer(server, "redisson", "k"), []
    for _ in range(ROUNDS):
        got = []
        assert ours.acquire().status == OK
        waiter = threading.Thread(target=lambda: got.append(theirs.lock(5)))
        waiter.start()
        time.sleep(0.15)
        assert not got
        start = now()
        assert ours.release().status == OK
        waiter.join()
        at, heard = got[0]
        assert heard == [b"0"], heard
        took.append(at - start)
        assert theirs.unlock() == 1
    assert statistics.median(took) <= BOUND_S, took
    ours.ends()


@test
def watchdog_of_redisson_keeps_rlock_waiting(server, r):
    theirs, ours = RedissonModel(server, "k"), Peer(server, "redisson", "k")
    assert theirs.attempt(500) is None
    ours.waits()
    for _ in range(8):
        assert ours.quiet(0.15)
        assert theirs.renew(500) == 1
    assert theirs.unlock() == 1
    assert ours.hears("acquired").status == OK
    ours.ends()


@test
def watchdog_of_rlock_keeps_redisson_out(server, r):
    theirs, ours = RedissonModel(server, "k"), Peer(server, "redisson", "k")
    assert ours.acquire(lease=0).status == OK  # 1.5 s
    for _ in range(10):
        assert theirs.attempt() is not None
        time.sleep(0.25)
    assert ours.release().status == OK
    assert theirs.attempt() is None
    ours.ends()


@test
def forced_unlock_by_redisson_notifies_the_rlock_holder_within_20_ms(server, r):
    took = []
    for i in range(3):
        theirs, ours = RedissonModel(server, f"k{i}"), Peer(server, "redisson", f"k{i}")
        assert ours.acquire().status == OK
        time.sleep(1.1)
        start = now()
        theirs.force_unlock()
        event = ours.hears("lost")
        assert event.reason == DELETED
        took.append(event.at - start)
        assert not ours.is_held()
        ours.ends()
    assert statistics.median(took) <= BOUND_S, took


@test
def counts_of_a_reentrant_redisson_hold_are_untouched(server, r):
    theirs, ours = RedissonModel(server, "k"), Peer(server, "redisson", "k")
    for _ in range(3):
        assert theirs.attempt() is None
    ours.waits()
    assert r.hgetall("k") == {theirs.owner.encode(): b"3"}
    for _ in range(2):
        assert theirs.unlock() == 0
        assert ours.quiet(0.1)
    assert r.hgetall("k") == {theirs.owner.encode(): b"1"}
    assert theirs.unlock() == 1
    assert ours.hears("acquired").status == OK
    ours.ends()


@test
def expired_redisson_lock_goes_to_rlock_unannounced(server, r):
    theirs, ours = RedissonModel(server, "k"), Peer(server, "redisson", "k")
    start = now()
    assert theirs.attempt(500) is None
    ours.waits()
    event = ours.hears("acquired")
    assert 0.49 <= event.at - start <= 0.8
    assert theirs.unlock() is None
    assert ours.is_held()
    ours.ends()


@test
def wake_up_of_everybody_is_understood(server, r):
    theirs, ours = RedissonModel(server, "k"), Peer(server, "redisson", "k")
    assert theirs.attempt() is None
    ours.waits()
    r.publish(theirs.channel, "1")  # a hint, and a wrong one
    assert ours.quiet(0.2)
    r.delete("k")
    r.publish(theirs.channel, "1")
    assert ours.hears("acquired").status == OK
    ours.ends()


@test
def each_wire_refuses_the_others_lock(server, r):
    string, redisson = Peer(server, "string", "k"), Peer(server, "redisson", "k")
    assert string.acquire().status == OK
    assert redisson.acquire().status == -10  # RLOCK_ERR_WRONG_TYPE
    assert string.release().status == OK
    assert redisson.acquire().status == OK
    assert string.acquire().status == -10
    assert redisson.release().status == OK
    string.ends()
    redisson.ends()


def main():
    ends_when_told()
    with Redis() as server:
        return run_on(server, TESTS)


if __name__ == "__main__":
    sys.exit(main())
