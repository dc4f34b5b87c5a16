"""Tests of a room's Redis that cannot be used: what its operator finds in the log, what users are told, and that a
room can be ended nevertheless."""

from collections.abc import Iterator

import pytest
from redis import Redis

from serving import rooms
from serving.rooms import PhonePage, RedisHashes, Rooms
from tests.browser.running import free_port
from tests.serving.redis_server import FOUND, MISSING, redis_server

pytestmark = pytest.mark.skipif(not FOUND, reason=MISSING)
REFUSALS = {  # a type of redis-py's errors, and a command after which a Redis answers PING but refuses others with it
    "OutOfMemoryError": ("CONFIG", "SET", "maxmemory", "1"),
    "ReadOnlyError": ("REPLICAOF", "127.0.0.1", "1"),
    "NoPermissionError": ("ACL", "SETUSER", "default", "resetkeys", "~other:*"),
    "ResponseError": ("SET", "unmask:rooms", "a text of another application"),
}


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a Redis for one test, used by this server's rooms."""
    with redis_server() as found:
        used(found, monkeypatch)
        yield found


def used(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Rooms(RedisHashes(address))
    monkeypatch.setattr(rooms, "rooms", lambda: here)


def refuse(address: str, *command: str) -> None:
    with Redis.from_url(address) as redis:
        redis.execute_command(*command)
        redis.ping()


def test_a_redis_that_stores_rooms_is_not_reported_and_gets_no_data(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rooms.report_problem()
    assert capsys.readouterr().err == ""
    with Redis.from_url(address) as redis:
        assert redis.keys() == []


@pytest.mark.parametrize(("kind", "command"), REFUSALS.items())
def test_a_redis_that_refuses_commands_is_reported_at_start(
    address: str, kind: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(address, *command)
    rooms.report_problem()
    logged = capsys.readouterr().err
    at, words = address.removeprefix("redis://"), "class sessions fail until it can: it refuses commands: "
    assert logged.startswith(f"UNMASK_ROOMS: the Redis at {at} cannot be used ({kind}); {words}")
    assert logged.count("\n") == 1


@pytest.mark.parametrize(("kind", "command"), REFUSALS.items())
def test_a_redis_that_refuses_commands_later_is_logged_by_the_error_s_type(
    address: str, kind: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rooms.report_problem()
    refuse(address, *command)
    for seconds in (0.0, 1.0, 59.0, 60.0):
        monkeypatch.setattr(rooms, "monotonic", lambda now=seconds: now)
        with pytest.raises(OSError, match=r"refuses requests\. Ask whoever runs this server\.$"):
            rooms.rooms().open()
    logged = capsys.readouterr().err
    assert logged.count("\n") == logged.count(f"({kind})") == 2, "once a minute"


def test_a_redis_that_is_not_there_does_not_respond(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used(f"redis://me:secret@127.0.0.1:{free_port()}", monkeypatch)
    with pytest.raises(OSError, match="does not respond"):
        rooms.rooms().open()
    assert "cannot be used (ConnectionError)" in (logged := capsys.readouterr().err)
    assert "secret" not in logged


def test_a_password_that_is_wrong_is_refused_and_not_logged(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used(address.replace("//", "//me:secret@"), monkeypatch)
    rooms.report_problem()
    logged = capsys.readouterr().err
    assert "(AuthenticationError)" in logged
    assert "it refuses commands" in logged
    assert "secret" not in logged
    with pytest.raises(OSError, match="refuses requests"):
        rooms.rooms().open()


def test_a_room_that_fills_a_redis_can_be_ended(address: str) -> None:
    teacher = rooms.rooms()
    key = teacher.open()
    teacher.show(key, PhonePage("abc-1", 3, b"what?"), {"step": "One"})
    teacher.register_phone(key.id, "phone-ann-------")
    refuse(address, *REFUSALS["OutOfMemoryError"])
    with pytest.raises(OSError, match="refuses requests"):
        teacher.is_open(key)
    teacher.close(rooms.RoomKey(key.id, "guessed"))
    assert teacher.shown(key.id) is not None, "phones can still read"
    teacher.close(key)
    with Redis.from_url(address) as redis:
        assert redis.keys() == []


def test_fields_of_another_application_in_the_list_of_rooms_are_ignored(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "MAX_ROOMS", 1)
    foreign = {b"x": b"not a number", b"\xff\xfe": b"1", b"r" * 22: b"\xff", b"s" * 22: b"-1", b"t": b"9999999999"}
    with Redis.from_url(address) as redis:
        redis.hset("unmask:rooms", mapping=foreign)
        key = rooms.rooms().open()
        assert redis.hgetall("unmask:rooms").keys() == {*foreign, key.id.encode()}
    with pytest.raises(ValueError, match="All 1 class sessions"):
        rooms.rooms().open()
