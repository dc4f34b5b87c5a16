"""Rooms: class sessions in which phones follow a teacher's lesson step by step and answer its questions.

A room stores the step on the teacher's screen, as bytes that are made once, and each phone's choices, under a random
number that the phone has drawn. It stores no names and no texts from phones. A room has a random id of 128 bits, which
is all that a phone needs, and a secret that the teacher needs to change it. It expires two hours after it was opened,
or earlier if the server has no room left and neither its teacher nor a phone has made a request for a while.

Rooms are stored in this process's memory, or in a Redis that several replicas share (UNMASK_ROOMS).
"""

import hashlib
import hmac
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import Event, Lock, Thread
from time import monotonic, sleep, time
from typing import Any

from cachetools import TLRUCache

from i18n import N_, msg
from serving.result_cache import once
from serving.settings import Settings

SECONDS = 2 * 3600  # lifetime of a room
UNUSED = 600.0  # seconds without a request of its teacher or a phone after which a room may be closed for another
MAX_ROOMS, MAX_PHONES, MAX_STEPS = 100, 500, 200  # rooms of a server; phones and steps of a room
MAX_BYTES = 400_000  # of a step as it is sent to phones
PARTS = ("", ":phones", ":answers", ":asked")  # a room's keys: its name followed by each of these
MAX_NAMES = len(PARTS) * MAX_ROOMS + 1
LOG_SECONDS = 60.0  # between two lines of the log about the same type of error of Redis
SWEEP = 60.0  # seconds between two removals of expired mappings
PRESENT_SECONDS = 40.0  # seconds for which a phone counts as present after a request
ROOM = re.compile(r"[\w-]{22}", re.ASCII)  # 128 bits
ENDS = re.compile(rb"\d{1,12}")  # seconds since 1970
PHONE = re.compile(r"[\w-]{16,32}", re.ASCII)
STEP = re.compile(r"[\w-]{1,39}", re.ASCII)  # a step's name
FULL = N_("All {most} class sessions of this server are in use. The next one is free in at most {minutes} min.")
UNREACHABLE = msg("The storage of this server's class sessions does not respond. Try again in a minute.")
REFUSED = msg("The storage of this server's class sessions refuses requests. Ask whoever runs this server.")
GONE = msg("This class session has ended. Start a new one.")

served = Event()  # whether this process serves the phones' routes: serve.py does, app.py does not


@dataclass(frozen=True)
class RoomKey:
    """A teacher's credentials for a room. Phones have the id alone."""

    id: str
    secret: str


@dataclass(frozen=True)
class PhonePage:
    """The step that phones show. step: its name. choices: the number of possible answers, 0 while answers are closed.
    body: as sent to phones, gzipped JSON. version: a number that changes whenever a step is shown."""

    step: str
    choices: int
    body: bytes
    version: int = 0


@dataclass(frozen=True)
class RoomCounts:
    """The answers in a room. step: the name of the current step. phones: how many are present. counts: by a step's
    name, how often each choice was given. asked: by a step's name, the data stored with it by `show` and a `number`
    that says when it was first shown; in this order."""

    step: str
    phones: int
    counts: Mapping[str, Mapping[int, int]]
    asked: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Hash:
    """A mapping of bytes that expires. ends: when, in seconds since 1970."""

    ends: int
    values: dict[str, bytes]


class MemoryHashes:
    """Mappings of bytes by name, stored in this process. Each expires at the `ends` that was last put."""

    remote = False  # whether a call waits for a network

    def __init__(self, now: Callable[[], float] = time) -> None:
        self._hashes: TLRUCache[str, Hash] = TLRUCache(MAX_NAMES, lambda _, entry, __: entry.ends, timer=now)
        self._lock = Lock()
        Thread(target=self._expire, daemon=True).start()

    def put(self, name: str, values: Mapping[str, bytes], ends: int) -> None:
        with self._lock:
            entry = self._hashes.get(name)
            self._hashes[name] = Hash(ends, {**(entry.values if entry else {}), **values})

    def add(
        self, name: str, field: str, value: bytes, ends: int, other: str, same: Mapping[str, bytes]
    ) -> bytes | None:
        """Set the field unless it exists, and return the value that it has then. If the mapping `other` does not have
        the values `same`, set nothing and return None; nobody changes it between this check and the write."""
        with self._lock:
            entry = self._hashes.get(other)
            if entry is None or not same.items() <= entry.values.items():
                return None
            return self._hashes.setdefault(name, Hash(ends, {})).values.setdefault(field, value)

    def get(self, name: str, *fields: str) -> list[bytes | None]:
        found = self.all(name)
        return [found.get(field) for field in fields]

    def all(self, name: str) -> dict[str, bytes]:
        with self._lock:
            entry = self._hashes.get(name)
            return {} if entry is None else dict(entry.values)

    def count(self, name: str) -> int:
        return len(self.all(name))

    def remove(self, name: str, *fields: str) -> None:
        with self._lock:
            if entry := self._hashes.get(name):
                for field in fields:
                    entry.values.pop(field, None)

    def drop(self, *names: str) -> None:
        with self._lock:
            for name in names:
                self._hashes.pop(name, None)

    def _expire(self) -> None:
        """Remove expired mappings, even if they are never requested again."""
        while True:
            sleep(SWEEP)
            with self._lock:
                self._hashes.expire()


class RedisHashes:
    """Mappings of bytes by name, stored in a Redis server, version 7 or later. url: redis://HOST:PORT, as for redis-py.
    While the server does not respond or refuses commands, methods print the error's type and raise OSError with a
    message for users."""

    remote = True

    def __init__(self, url: str) -> None:
        from redis import Redis, RedisError

        self._redis, self._error = Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5), RedisError
        self._log_again = dict[str, float]()  # by an error's type: when it may be printed again

    def put(self, name: str, values: Mapping[str, bytes], ends: int) -> None:
        self._do(("hset", name, None, None, dict(values)), ("expireat", name, ends))

    def add(
        self, name: str, field: str, value: bytes, ends: int, other: str, same: Mapping[str, bytes]
    ) -> bytes | None:
        key, watched = f"unmask:{name}", f"unmask:{other}"

        def check_and_add(together: Any) -> None:  # called again if `watched` changes before the commands are executed
            if together.hmget(watched, [*same]) == [*same.values()]:
                together.multi()
                together.hsetnx(key, field, value).expireat(key, ends, nx=True).hget(key, field)

        try:
            replies = self._redis.transaction(check_and_add, watched)
        except self._error as error:
            raise OSError(self._report(error)) from None
        return bytes(replies[-1]) if replies else None

    def get(self, name: str, *fields: str) -> list[bytes | None]:
        return list(self._do(("hmget", name, fields))[0])

    def all(self, name: str) -> dict[str, bytes]:
        return {field.decode(errors="replace"): value for field, value in self._do(("hgetall", name))[0].items()}

    def count(self, name: str) -> int:
        return int(self._do(("hlen", name))[0])

    def remove(self, name: str, *fields: str) -> None:
        if fields:
            self._do(("hdel", name, *fields))

    def drop(self, *names: str) -> None:
        for name in names:
            self._do(("delete", name))

    def check(self) -> None:
        """Write what no other client sees: a full Redis or a read-only replica, for example, answers PING as well."""
        self._do(("hset", "rooms", "check", b""), ("hdel", "rooms", "check"))

    def _do(self, *commands: tuple[Any, ...]) -> list[Any]:
        """Send commands (method, name, arguments …), several as a transaction, and return their replies."""
        try:
            # a full Redis accepts reads and deletions, but none within a transaction
            with self._redis.pipeline(transaction=len(commands) > 1) as together:
                for method, name, *arguments in commands:
                    getattr(together, method)(f"unmask:{name}", *arguments)
                return together.execute()
        except self._error as error:
            raise OSError(self._report(error)) from None

    def _report(self, error: Exception) -> str:
        """Print the type of redis-py's error, and return a sentence for users. The error's message is left out: it may
        quote a password or an answer."""
        from redis import AuthenticationError, ConnectionError, TimeoutError

        # to redis-py, an AuthenticationError is a ConnectionError
        refused = isinstance(error, AuthenticationError) or not isinstance(error, ConnectionError | TimeoutError)
        kind, now = type(error).__name__, monotonic()
        if now >= self._log_again.get(kind, now):
            self._log_again[kind] = now + LOG_SECONDS
            at = self._redis.get_connection_kwargs()
            where = f"{at.get('host', 'localhost')}:{at.get('port', 6379)}"  # not shown
            words = f"cannot be used ({kind}); class sessions fail until it can"  # not shown
            if refused:
                remedy = "it refuses commands: correct user, password or database, or its settings or data"  # not shown
            else:
                remedy = "start it, or correct the address"  # not shown
            print(f"UNMASK_ROOMS: the Redis at {where} {words}: {remedy}", file=sys.stderr, flush=True)
        return REFUSED if refused else UNREACHABLE


class Rooms:
    """All rooms of a server."""

    def __init__(self, hashes: MemoryHashes | RedisHashes) -> None:
        self.hashes = hashes

    def open(self) -> RoomKey:
        """Open a new room. If there are MAX_ROOMS already, the one that has been unused for longest is closed. Raises
        ValueError while all are in use."""
        key, now = RoomKey(secrets.token_urlsafe(16), secrets.token_urlsafe(16)), time()
        end = int(now) + SECONDS
        self.hashes.put("rooms", {key.id: b"%d" % end}, end)  # counted afterwards: others may open one concurrently
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
        """Delete the room and all its data."""
        if self._expiry(key) is not None:  # without `is_open`, whose write a full Redis refuses
            self._end(key.id)

    def _ends(self, now: float) -> dict[str, int]:
        """Return when each room expires, and remove expired ones from the list."""
        found = self.hashes.all("rooms").items()
        ends = {room: int(last) for room, last in found if ROOM.fullmatch(room) and ENDS.fullmatch(last)}
        self.hashes.remove("rooms", *(room for room, last in ends.items() if last <= now))
        return {room: last for room, last in ends.items() if last > now}

    def _end(self, *rooms: str) -> None:
        self.hashes.remove("rooms", *rooms)  # first: a room without data must no longer be counted
        self.hashes.drop(*(f"room:{room}{part}" for room in rooms for part in PARTS))

    def _unused(self, rooms: Iterable[str], most: int) -> list[str]:
        """Return up to `most` of these rooms for which no teacher or phone has made a request for UNUSED seconds, in
        the order of their teachers' last requests."""
        looked = [(self.hashes.get(f"room:{room}", "looked")[0], room) for room in rooms]
        long_ago = sorted((int(last), room) for last, room in looked if last and int(last) <= time() - UNUSED)
        return list(islice((room for _, room in long_ago if not self._phones(room, UNUSED)), most))

    def _phones(self, room: str, seconds: float) -> int:
        """Return how many phones have requested the room's step within the last `seconds`."""
        since = time() - seconds
        return sum(int(seen) > since for seen in self.hashes.all(f"room:{room}:phones").values())

    def is_open(self, key: RoomKey) -> bool:
        """Whether the room exists and this is its secret. If so, the time is stored as its teacher's last request."""
        end = self._expiry(key)
        if end is None:
            return False
        self.hashes.put(f"room:{key.id}", {"looked": b"%d" % time()}, end)
        return True

    def _expiry(self, key: RoomKey) -> int | None:
        """Return when the room expires; None if it does not exist or this is not its secret."""
        secret, end = self.hashes.get(f"room:{key.id}", "secret", "ends") if ROOM.fullmatch(key.id) else (None, None)
        if secret is None or not hmac.compare_digest(secret, _digest(key.secret)):
            return None
        return int(end or 0)

    def show(self, key: RoomKey, shown: PhonePage, asked: Mapping[str, Any] | None = None) -> None:
        """Show a step on all phones. asked: plain data to store with it, for up to MAX_STEPS steps; further steps take
        no answers. Raises ValueError for a room that has ended and for a step that is too large."""
        if not self.is_open(key):
            raise ValueError(GONE)
        if len(shown.body) > MAX_BYTES:
            words = N_("This step is too large for phones: {size:,} bytes, at most {most:,}. Shorten its text.")
            raise ValueError(msg(words, size=len(shown.body), most=MAX_BYTES))
        name, notes = f"room:{key.id}", f"room:{key.id}:asked"
        (before,), number = self.hashes.get(notes, shown.step), self.hashes.count(notes)
        full = before is None and number >= MAX_STEPS
        choices = 0 if full else shown.choices
        fields = {"step": shown.step.encode(), "choices": b"%d" % choices, "body": shown.body}
        (ends,) = self.hashes.get(name, "ends")
        if asked is not None and not full:  # first, so that no one sees the step without its note
            number = number if before is None else json.loads(before).get("number", 0)
            note = json.dumps({**asked, "number": number}).encode()
            self.hashes.put(notes, {shown.step: note}, int(ends or 0))
        self.hashes.put(name, fields | {"version": b"%d" % secrets.randbits(48)}, int(ends or 0))

    def close_answers(self, key: RoomKey) -> None:
        """Accept no more answers to the current step: those in `tally` are final until it is shown again."""
        end = self._expiry(key)
        if end is not None:
            self.hashes.put(f"room:{key.id}", {"choices": b"0"}, end)

    def version(self, room: str) -> int | None:
        """Return the version of the current step; None if there is no such room."""
        (found,) = self.hashes.get(f"room:{room}", "version")
        return None if found is None else int(found)

    def shown(self, room: str) -> PhonePage | None:
        """Return the current step; None if there is no such room."""
        step, choices, body, version = self.hashes.get(f"room:{room}", "step", "choices", "body", "version")
        if step is None or choices is None or body is None or version is None:
            return None
        return PhonePage(step.decode(), int(choices), body, int(version))

    def register_phone(self, room: str, phone: str) -> bool:
        """Record a phone as present. Returns False if the room does not exist or is full."""
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
        """Return a phone that is no longer present and has answered nothing, if there is one."""
        since = time() - PRESENT_SECONDS
        gone = [phone for phone, seen in self.hashes.all(f"room:{room}:phones").items() if int(seen) < since]
        if not gone:
            return None
        gave = {field.partition(" ")[2] for field in self.hashes.all(f"room:{room}:answers")}
        return next((phone for phone in gone if phone not in gave), None)

    def answer(self, room: str, phone: str, step: str, choice: int) -> int | None:
        """Store a phone's answer to the current step. Returns the choice that counts, the phone's first; None if the
        answer is not accepted."""
        open_step, choices, ends = self.hashes.get(f"room:{room}", "step", "choices", "ends")
        if step.encode() != open_step or not 0 <= choice < int(choices or 0):
            return None
        if self.hashes.get(f"room:{room}:phones", phone) == [None]:
            return None  # only phones recorded by `register_phone` may answer
        still_open, answers = {"step": step.encode(), "choices": choices or b"0"}, f"room:{room}:answers"
        given = f"{step} {phone}", b"%d" % choice, int(ends or 0)
        counted = self.hashes.add(answers, *given, f"room:{room}", still_open)
        return None if counted is None else int(counted)

    def tally(self, room: str) -> RoomCounts:
        counts = dict[str, dict[int, int]]()
        for field, choice in self.hashes.all(f"room:{room}:answers").items():
            of_step = counts.setdefault(field.partition(" ")[0], {})
            of_step[int(choice)] = of_step.get(int(choice), 0) + 1
        notes = {step: json.loads(note) for step, note in self.hashes.all(f"room:{room}:asked").items()}
        # Redis returns them in any order; those stored by an earlier version of Unmask have no number
        asked = dict(sorted(notes.items(), key=lambda note: note[1].get("number", 0)))
        (step,) = self.hashes.get(f"room:{room}", "step")
        return RoomCounts((step or b"").decode(), self._phones(room, PRESENT_SECONDS), counts, asked)


@once
def rooms() -> Rooms:
    """Return the rooms of this server, stored as the settings say."""
    url = Settings.from_environment().rooms
    return Rooms(RedisHashes(url) if url else MemoryHashes())


def report_problem() -> None:
    """Print why the Redis of this server's rooms cannot be used, if it cannot."""
    hashes = rooms().hashes
    if isinstance(hashes, RedisHashes):
        with suppress(OSError):  # printed
            hashes.check()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
