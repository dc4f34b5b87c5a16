"""Rooms: a class whose phones follow a teacher's lesson, step by step, and answer its questions.

A room keeps the step on the teacher's screen as bytes that were made once, and of each answer which choice it was,
under a number that the phone has drawn at random. No names, no texts of the phones. A room has a random id of 128 bits,
which is all that a phone needs, and a secret without which nothing in it is changed; two hours after it was opened it
is gone, and earlier where all places are taken and for a while neither a phone nor its teacher has looked at it.

Rooms lie in this process's memory, or in a Redis that several replicas share (UNMASK_ROOMS).
"""

import hashlib
import hmac
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from threading import Event, Lock, Thread
from time import sleep, time
from typing import Any

from cachetools import TLRUCache

from i18n import N_, msg
from serving.result_cache import once
from serving.settings import Settings

SECONDS = 2 * 3600  # that a room lasts
UNUSED = 600.0  # seconds without a look of its teacher or a phone after which a room gives way to another
MAX_ROOMS, MAX_PHONES, MAX_STEPS = 100, 500, 200  # of a server; of a room
MAX_BYTES = 400_000  # of a step as phones get it
PARTS = ("", ":phones", ":answers", ":asked")  # a room's keys: its name followed by each of these
MAX_NAMES = len(PARTS) * MAX_ROOMS + 1
SWEEP = 60.0  # seconds between two removals of what has ended
PRESENT_SECONDS = 40.0  # seconds for which a phone counts as here after it asked
ROOM = re.compile(r"[\w-]{22}", re.ASCII)  # 128 bits
PHONE = re.compile(r"[\w-]{16,32}", re.ASCII)
STEP = re.compile(r"[\w-]{1,39}", re.ASCII)  # a step's name
FULL = N_("All {most} class sessions of this server are in use. The next one is free in at most {minutes} min.")
UNREACHABLE = msg("The storage of this server's class sessions does not respond. Try again in a minute.")
GONE = msg("This class session has ended. Start a new one.")

served = Event()  # whether phones find the rooms of this process: serve.py has their addresses, app.py has not


@dataclass(frozen=True)
class RoomKey:
    """A room as its teacher has it. Phones know the id alone."""

    id: str
    secret: str


@dataclass(frozen=True)
class PhonePage:
    """What phones see. step: the name of the step that may be answered. choices: how many answers it has, 0 while none
    is taken. version: another one for every other step; body: as phones get it."""

    step: str
    choices: int
    body: bytes
    version: int = 0


@dataclass(frozen=True)
class RoomCounts:
    """step: the name of the one that is shown. phones: how many are here. counts: of each step by its name, how often
    each choice was given. asked: what was noted of each of these steps."""

    step: str
    phones: int
    counts: Mapping[str, Mapping[int, int]]
    asked: Mapping[str, Any]


@dataclass(frozen=True)
class Hash:
    """ends: when it is gone, in seconds since 1970."""

    ends: int
    values: dict[str, bytes]


class MemoryHashes:
    """Mappings of bytes by name, in this process. Each ends when whoever last put something into it said."""

    remote = False  # whether a call waits for a network

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._kept: TLRUCache[str, Hash] = TLRUCache(MAX_NAMES, lambda _, kept, __: kept.ends, timer=now)
        self._lock = Lock()
        Thread(target=self._expire, daemon=True).start()

    def put(self, name: str, values: Mapping[str, bytes], ends: int) -> None:
        with self._lock:
            kept = self._kept.get(name)
            self._kept[name] = Hash(ends, {**(kept.values if kept else {}), **values})

    def add(self, name: str, field: str, value: bytes, ends: int) -> bytes:
        """Set the field unless it is there, and return what is there."""
        with self._lock:
            return self._kept.setdefault(name, Hash(ends, {})).values.setdefault(field, value)

    def get(self, name: str, *fields: str) -> list[bytes | None]:
        found = self.all(name)
        return [found.get(field) for field in fields]

    def all(self, name: str) -> dict[str, bytes]:
        with self._lock:
            kept = self._kept.get(name)
            return {} if kept is None else dict(kept.values)

    def count(self, name: str) -> int:
        return len(self.all(name))

    def remove(self, name: str, *fields: str) -> None:
        with self._lock:
            if kept := self._kept.get(name):
                for field in fields:
                    kept.values.pop(field, None)

    def drop(self, *names: str) -> None:
        with self._lock:
            for name in names:
                self._kept.pop(name, None)

    def _expire(self) -> None:
        """Remove what has ended, even if nobody asks for it again."""
        while True:
            sleep(SWEEP)
            with self._lock:
                self._kept.expire()


class RedisHashes:
    """The same in a Redis server, version 7 or later. url: redis://HOST:PORT, as redis-py takes it. Raises OSError, a
    sentence, while it does not answer."""

    remote = True

    def __init__(self, url: str) -> None:
        from redis import Redis, RedisError

        self._redis, self._error = Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5), RedisError

    def put(self, name: str, values: Mapping[str, bytes], ends: int) -> None:
        self._do(("hset", name, None, None, dict(values)), ("expireat", name, ends))

    def add(self, name: str, field: str, value: bytes, ends: int) -> bytes:
        added = ("hsetnx", name, field, value), ("expireat", name, ends, True), ("hget", name, field)
        return bytes(self._do(*added)[-1])

    def get(self, name: str, *fields: str) -> list[bytes | None]:
        return list(self._do(("hmget", name, fields))[0])

    def all(self, name: str) -> dict[str, bytes]:
        return {field.decode(): value for field, value in self._do(("hgetall", name))[0].items()}

    def count(self, name: str) -> int:
        return int(self._do(("hlen", name))[0])

    def remove(self, name: str, *fields: str) -> None:
        self._do(*(("hdel", name, field) for field in fields))

    def drop(self, *names: str) -> None:
        self._do(*(("delete", name) for name in names))

    def problem(self) -> str:
        """Why the server cannot be used, for a log; "" if it answers. Not the error's words: a password may be quoted
        in them."""
        try:
            self._redis.ping()
        except self._error as error:
            at = self._redis.get_connection_kwargs()
            where = f"{at.get('host', 'localhost')}:{at.get('port', 6379)}"  # not shown
            return f"the Redis at {where} cannot be used ({type(error).__name__})"  # not shown
        return ""

    def _do(self, *commands: tuple[Any, ...]) -> list[Any]:
        """The answers to commands (method, name, arguments …), sent as one."""
        try:
            with self._redis.pipeline() as together:
                for method, name, *arguments in commands:
                    getattr(together, method)(f"unmask:{name}", *arguments)
                return together.execute()
        except self._error:
            raise OSError(UNREACHABLE) from None


class Rooms:
    """All rooms of a server."""

    def __init__(self, hashes: MemoryHashes | RedisHashes) -> None:
        self.hashes = hashes

    def open(self) -> RoomKey:
        """A new room. Where there are as many as there may be, one that has been unused for longest gives way. Raises
        ValueError while all are in use."""
        key, now = RoomKey(secrets.token_urlsafe(16), secrets.token_urlsafe(16)), time()
        end = int(now) + SECONDS
        self.hashes.put("rooms", {key.id: b"%d" % end}, end)  # and then counted: others may open one at the same time
        while len(ends := self._ends(now)) > MAX_ROOMS:
            unused = self._unused({*ends} - {key.id}, len(ends) - MAX_ROOMS)
            self._end(*unused or [key.id])
            if not unused:
                minutes = max(round((min(ends.values()) - now) / 60), 1)
                raise ValueError(msg(FULL, most=MAX_ROOMS, minutes=minutes))
        nothing = {"secret": _digest(key.secret), "version": b"0", "step": b"", "choices": b"0", "body": b""}
        self.hashes.put(f"room:{key.id}", nothing | {"ends": b"%d" % end, "looked": b"%d" % now}, end)
        return key

    def close(self, key: RoomKey) -> None:
        """Delete the room and all that is stored of it."""
        if self.is_open(key):
            self._end(key.id)

    def _ends(self, now: float) -> dict[str, int]:
        """When each room ends; those that have ended leave the list."""
        ends = {room: int(last) for room, last in self.hashes.all("rooms").items()}
        self.hashes.remove("rooms", *(room for room, last in ends.items() if last <= now))
        return {room: last for room, last in ends.items() if last > now}

    def _end(self, *rooms: str) -> None:
        self.hashes.remove("rooms", *rooms)  # first: who finds nothing of a room finds its place free
        self.hashes.drop(*(f"room:{room}{part}" for room in rooms for part in PARTS))

    def _unused(self, rooms: Iterable[str], most: int) -> list[str]:
        """At most so many of these rooms, which neither a teacher nor a phone has looked at for a while: first those
        that their teachers left first."""
        looked = [(self.hashes.get(f"room:{room}", "looked")[0], room) for room in rooms]
        long_ago = sorted((int(last), room) for last, room in looked if last and int(last) <= time() - UNUSED)
        return list(islice((room for _, room in long_ago if not self._phones(room, UNUSED)), most))

    def _phones(self, room: str, seconds: float) -> int:
        """How many phones have asked for its step within so many seconds."""
        since = time() - seconds
        return sum(int(seen) > since for seen in self.hashes.all(f"room:{room}:phones").values())

    def is_open(self, key: RoomKey) -> bool:
        """Whether the room exists and this is its secret: then it notes that its teacher has looked."""
        name = f"room:{key.id}"
        secret, ends = self.hashes.get(name, "secret", "ends") if ROOM.fullmatch(key.id) else (None, None)
        if secret is None or not hmac.compare_digest(secret, _digest(key.secret)):
            return False
        self.hashes.put(name, {"looked": b"%d" % time()}, int(ends or 0))
        return True

    def show(self, key: RoomKey, shown: PhonePage, asked: Any = None) -> None:
        """Show a step on all phones. asked: plain data to note with it. Raises ValueError for a room that has ended and
        for a step that is too large."""
        if not self.is_open(key):
            raise ValueError(GONE)
        if len(shown.body) > MAX_BYTES:
            words = N_("This step is too large for phones: {size:,} bytes, at most {most:,}. Shorten its text.")
            raise ValueError(msg(words, size=len(shown.body), most=MAX_BYTES))
        fields = {"step": shown.step.encode(), "choices": b"%d" % shown.choices, "body": shown.body}
        (ends,) = self.hashes.get(f"room:{key.id}", "ends")
        self.hashes.put(f"room:{key.id}", fields | {"version": b"%d" % secrets.randbits(48)}, int(ends or 0))
        if asked is not None and self.hashes.count(f"room:{key.id}:asked") < MAX_STEPS:
            self.hashes.put(f"room:{key.id}:asked", {shown.step: json.dumps(asked).encode()}, int(ends or 0))

    def version(self, room: str) -> int | None:
        """The version of the step that is shown; None if there is no such room."""
        (found,) = self.hashes.get(f"room:{room}", "version")
        return None if found is None else int(found)

    def shown(self, room: str) -> PhonePage | None:
        """What phones see; None if there is no such room."""
        step, choices, body, version = self.hashes.get(f"room:{room}", "step", "choices", "body", "version")
        if step is None or choices is None or body is None or version is None:
            return None
        return PhonePage(step.decode(), int(choices), body, int(version))

    def register_phone(self, room: str, phone: str) -> bool:
        """Note that the phone is here; False for one that finds no room."""
        name, now = f"room:{room}:phones", b"%d" % time()
        (ends,) = self.hashes.get(f"room:{room}", "ends")
        if ends is None:
            return False
        if self.hashes.get(name, phone) == [None] and self.hashes.count(name) >= MAX_PHONES:
            gone = self._absent_phone(room)
            if gone is None:
                return False
            self.hashes.remove(name, gone)
        self.hashes.put(name, {phone: now}, int(ends))
        return True

    def _absent_phone(self, room: str) -> str | None:
        """A phone that is not here any more and has answered nothing, if there is one."""
        since = time() - PRESENT_SECONDS
        gone = [phone for phone, seen in self.hashes.all(f"room:{room}:phones").items() if int(seen) < since]
        if not gone:
            return None
        gave = {field.partition(" ")[2] for field in self.hashes.all(f"room:{room}:answers")}
        return next((phone for phone in gone if phone not in gave), None)

    def answer(self, room: str, phone: str, step: str, choice: int) -> int | None:
        """Take a phone's answer to the step that is shown. The choice that counts, which is its first; None while no
        answers are taken."""
        open_step, choices, ends = self.hashes.get(f"room:{room}", "step", "choices", "ends")
        if step.encode() != open_step or not 0 <= choice < int(choices or 0):
            return None
        if self.hashes.get(f"room:{room}:phones", phone) == [None]:
            return None  # who has not come does not answer: so answers are bounded too
        return int(self.hashes.add(f"room:{room}:answers", f"{step} {phone}", b"%d" % choice, int(ends or 0)))

    def tally(self, room: str) -> RoomCounts:
        counts = dict[str, dict[int, int]]()
        for field, choice in self.hashes.all(f"room:{room}:answers").items():
            of_step = counts.setdefault(field.partition(" ")[0], {})
            of_step[int(choice)] = of_step.get(int(choice), 0) + 1
        asked = {step: json.loads(note) for step, note in self.hashes.all(f"room:{room}:asked").items()}
        (step,) = self.hashes.get(f"room:{room}", "step")
        return RoomCounts((step or b"").decode(), self._phones(room, PRESENT_SECONDS), counts, asked)


@once
def rooms() -> Rooms:
    """The rooms of this server."""
    url = Settings.from_environment().rooms
    return Rooms(RedisHashes(url) if url else MemoryHashes())


def report_problem() -> None:
    """Print why the Redis of this server's rooms cannot be used, if it cannot."""
    hashes = rooms().hashes
    if isinstance(hashes, RedisHashes) and (problem := hashes.problem()):
        words = "class sessions fail until it can: start it, or correct the address"  # not shown
        print(f"UNMASK_ROOMS: {problem}; {words}", file=sys.stderr, flush=True)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
