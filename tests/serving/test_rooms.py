"""Tests of a class's room, stored in this process's memory and in a Redis shared by two replicas.

The same rules for both: with the room's id alone, a phone changes nothing but its own answers; an answer counts once,
and only while its question is open; all sizes are bounded; nothing remains of a room that has ended.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Barrier, Thread, get_ident
from time import sleep, time
from typing import Any

import pytest
from redis.client import Pipeline

from serving import rooms
from serving.rooms import MemoryHashes, PhonePage, RedisHashes, RoomKey, Rooms
from tests.serving.redis_server import FOUND, MISSING, redis_server

ANN, BEN, CARL = (f"phone-{name:-<12}" for name in ("ann", "ben", "carl"))
QUESTION = PhonePage("abc-1", 3, b"what?")


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with redis_server() as address:
        yield address


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.skipif(not FOUND, reason=MISSING))])
def both(request: pytest.FixtureRequest) -> Iterator[tuple[Rooms, Rooms]]:
    """Yield the rooms of the teacher's server and those of the phones' server: two servers where there is a Redis."""
    if request.param == "memory":
        one = Rooms(MemoryHashes())
        yield one, one
        return
    address = request.getfixturevalue("redis")
    teacher, phones = (Rooms(RedisHashes(address)) for _ in range(2))
    yield teacher, phones
    teacher.hashes.drop("rooms")


def register_phone(phones: Rooms, room: str, *names: str) -> None:
    assert all(phones.register_phone(room, name) for name in names)


def test_a_phone_sees_the_step_and_the_teacher_its_answer(both: tuple[Rooms, Rooms]) -> None:
    teacher, phones = both
    key = teacher.open()
    assert re.fullmatch("[A-Za-z0-9_-]{22}", key.id)  # 128 bits
    before = phones.version(key.id)
    teacher.show(key, QUESTION, {"step": "One"})
    shown = phones.shown(key.id)
    assert (shown.step, shown.choices, shown.body) == ("abc-1", 3, b"what?")
    assert shown.version == phones.version(key.id) != before
    register_phone(phones, key.id, ANN, BEN, CARL)
    assert [phones.answer(key.id, name, "abc-1", one) for name, one in ((ANN, 2), (BEN, 2), (CARL, 0))] == [2, 2, 0]
    found = teacher.tally(key.id)
    assert (found.step, found.phones) == ("abc-1", 3)
    assert (found.counts, found.asked) == ({"abc-1": {2: 2, 0: 1}}, {"abc-1": {"step": "One", "number": 0}})


def test_an_answer_counts_once_and_while_its_question_is_open(both: tuple[Rooms, Rooms]) -> None:
    teacher, phones = both
    key = teacher.open()
    register_phone(phones, key.id, ANN, BEN)
    assert phones.answer(key.id, ANN, "abc-1", 0) is None  # no step is shown yet
    teacher.show(key, QUESTION)
    assert phones.answer(key.id, CARL, "abc-1", 0) is None  # Carl has not joined
    assert phones.answer(key.id, ANN, "abc-2", 0) is None
    assert phones.answer(key.id, ANN, "abc-1", 3) is None
    assert phones.answer(key.id, ANN, "abc-1", -1) is None
    # repeated where the confirmation was lost on the way: the answer is the choice that was counted
    assert [phones.answer(key.id, ANN, "abc-1", choice) for choice in (0, 0, 1, 0)] == [0] * 4
    teacher.show(key, PhonePage("abc-1", 0, b"that!"))
    assert phones.answer(key.id, BEN, "abc-1", 1) is None
    assert teacher.tally(key.id).counts == {"abc-1": {0: 1}}


CLOSINGS: dict[str, Callable[[Rooms, RoomKey], None]] = {
    "answers are closed": lambda teacher, key: teacher.close_answers(key),
    "the answer is shown": lambda teacher, key: teacher.show(key, PhonePage("abc-1", 0, b"that!")),
    "the next step is shown": lambda teacher, key: teacher.show(key, PhonePage("abc-2", 3, b"and?")),
    "the session is ended": lambda teacher, key: teacher.close(key),
}


def before(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, once: Callable[[], None]) -> None:
    """Call `once` right before the next call of the method."""
    whole = getattr(kind, method)

    def call(*given: Any) -> Any:
        monkeypatch.setattr(kind, method, whole)
        once()
        return whole(*given)

    monkeypatch.setattr(kind, method, call)


@pytest.mark.parametrize("closing", CLOSINGS)
def test_an_answer_that_arrives_while_its_question_is_closed_is_refused(
    both: tuple[Rooms, Rooms], monkeypatch: pytest.MonkeyPatch, closing: str
) -> None:
    """The teacher's server closes it after the phones' server has read that it is open."""
    teacher, phones = both
    for kind, method in ((type(phones.hashes), "add"), *([(Pipeline, "multi")] * phones.hashes.remote)):
        key = teacher.open()
        teacher.show(key, QUESTION, {})
        register_phone(phones, key.id, ANN, BEN)
        before(monkeypatch, kind, method, lambda: teacher.is_open(key))  # noqa: B023
        assert phones.answer(key.id, ANN, "abc-1", 2) == 2, "the teacher's page only looked"
        before(monkeypatch, kind, method, lambda: CLOSINGS[closing](teacher, key))  # noqa: B023
        assert phones.answer(key.id, BEN, "abc-1", 2) is None
        assert teacher.tally(key.id).counts == ({} if closing == "the session is ended" else {"abc-1": {2: 1}})


def test_only_the_teacher_closes_answers_and_showing_the_question_again_opens_them(both: tuple[Rooms, Rooms]) -> None:
    teacher, phones = both
    key = teacher.open()
    teacher.show(key, QUESTION)
    register_phone(phones, key.id, ANN, BEN, CARL)
    phones.close_answers(RoomKey(key.id, "guessed"))
    assert phones.answer(key.id, ANN, "abc-1", 0) == 0
    teacher.close_answers(key)
    assert phones.answer(key.id, BEN, "abc-1", 0) is None
    assert phones.shown(key.id).body == b"what?"
    teacher.show(key, QUESTION)
    assert phones.answer(key.id, BEN, "abc-1", 0) == 0


def test_steps_are_in_the_order_in_which_they_were_first_shown(both: tuple[Rooms, Rooms]) -> None:
    teacher, _ = both
    key, steps = teacher.open(), [f"5f883e24-{number}" for number in (3, 1, 2, *range(4, 13))]
    question = "How many tokens may the last one attend to? " * 3  # Redis keeps the order of short values alone
    for revealed, shown in ((False, steps), (True, reversed(steps))):
        for step in shown:
            teacher.show(key, PhonePage(step, 3, b""), {"question": question, "revealed": revealed})
    asked = teacher.tally(key.id).asked
    assert list(asked) == steps
    assert all(one["revealed"] for one in asked.values())


def test_steps_that_an_earlier_version_stored_without_a_number_come_first(both: tuple[Rooms, Rooms]) -> None:
    teacher, _ = both
    key = teacher.open()
    teacher.hashes.put(f"room:{key.id}:asked", {f"old-{n}": b'{"revealed": false}' for n in "12"}, int(time()) + 60)
    for step in ("new-1", "old-2", "new-2"):
        teacher.show(key, PhonePage(step, 3, b""), {"revealed": True})
    *earlier, one, two = teacher.tally(key.id).asked.items()
    assert dict(earlier)["old-1"] == {"revealed": False}
    assert dict(earlier)["old-2"]["revealed"]
    assert [one[0], two[0]] == ["new-1", "new-2"]


def test_only_the_teacher_s_secret_changes_what_is_shown(both: tuple[Rooms, Rooms]) -> None:
    teacher, phones = both
    key = teacher.open()
    teacher.show(key, QUESTION)
    for wrong in (RoomKey(key.id, "guessed"), RoomKey(key.id, ""), RoomKey("nothing", key.secret)):
        assert not phones.is_open(wrong)
        with pytest.raises(ValueError, match="has ended"):
            phones.show(wrong, PhonePage("x", 1, b"mine"))
        phones.close(wrong)
    shown = phones.shown(key.id)
    assert shown.body == b"what?"


def test_nothing_is_left_of_a_room_that_was_closed(both: tuple[Rooms, Rooms]) -> None:
    teacher, phones = both
    key = teacher.open()
    teacher.show(key, QUESTION, {})
    register_phone(phones, key.id, ANN)
    phones.answer(key.id, ANN, "abc-1", 1)
    teacher.close(key)
    assert phones.version(key.id) is None
    assert phones.shown(key.id) is None
    assert not [part for part in rooms.PARTS if phones.hashes.all(f"room:{key.id}{part}")]
    assert key.id not in phones.hashes.all("rooms")
    with pytest.raises(ValueError, match="has ended"):
        teacher.show(key, QUESTION)


def test_rooms_and_phones_and_steps_are_bounded(both: tuple[Rooms, Rooms], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("MAX_ROOMS", 2), ("MAX_PHONES", 2), ("MAX_STEPS", 1), ("MAX_BYTES", 5)):
        monkeypatch.setattr(rooms, name, limit)
    teacher, phones = both
    key, _ = teacher.open(), teacher.open()
    with pytest.raises(ValueError, match=r"All 2 class sessions .* in at most 120 min"):
        teacher.open()
    register_phone(phones, key.id, ANN, BEN, ANN)
    assert not phones.register_phone(key.id, CARL)
    with pytest.raises(ValueError, match="6 bytes, at most 5"):
        teacher.show(key, PhonePage("abc-1", 3, b"larger"))
    for step, counted in (("abc-1", 2), ("abc-2", None), ("abc-1", 2)):
        teacher.show(key, PhonePage(step, 3, b""), {"counted": counted})
        assert phones.shown(key.id).step == step
        assert phones.answer(key.id, ANN, step, 2) == counted, "an answer that no file would show"
    teacher.show(key, PhonePage("abc-1", 0, b""), {"revealed": True})
    assert teacher.tally(key.id).asked == {"abc-1": {"revealed": True, "number": 0}}
    teacher.close(key)
    teacher.open()


def test_a_phone_that_left_without_an_answer_gives_its_place_to_another(
    both: tuple[Rooms, Rooms], monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, phones = both
    monkeypatch.setattr(rooms, "MAX_PHONES", 2)
    key, now = teacher.open(), time()
    teacher.show(key, QUESTION)
    register_phone(phones, key.id, ANN, BEN)
    assert phones.answer(key.id, ANN, "abc-1", 1) == 1
    assert not phones.register_phone(key.id, CARL), "both are here"
    monkeypatch.setattr(rooms, "time", lambda: now + rooms.PRESENT_SECONDS + 2)
    register_phone(phones, key.id, CARL)
    assert not phones.register_phone(key.id, BEN), "Ann has answered, Carl is here"
    assert phones.answer(key.id, ANN, "abc-1", 0) == 1
    assert teacher.tally(key.id).phones == 1


@pytest.mark.parametrize(("limit", "unused"), [(1, 0), (2, 0), (2, 2)])
def test_rooms_that_are_opened_at_once_are_bounded_and_all_are_counted(
    both: tuple[Rooms, Rooms], monkeypatch: pytest.MonkeyPatch, limit: int, unused: int
) -> None:
    monkeypatch.setattr(rooms, "MAX_ROOMS", limit)
    for _ in range(unused):
        both[0].open()
    monkeypatch.setattr(rooms, "time", lambda: time() + rooms.UNUSED + 1)
    both_have_read, opened, have_read = Barrier(2, timeout=30), list[RoomKey](), set[int]()
    for kind in (MemoryHashes, RedisHashes):

        def read(self: Any, name: str, given: Any = kind.all) -> dict[str, bytes]:
            found: dict[str, bytes] = given(self, name)
            if name == "rooms" and get_ident() not in have_read:
                have_read.add(get_ident())
                both_have_read.wait()
            return found

        monkeypatch.setattr(kind, "all", read)

    def open_one(server: Rooms) -> None:
        with suppress(ValueError):
            opened.append(server.open())

    threads = [Thread(target=open_one, args=(server,)) for server in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert set(both[0].hashes.all("rooms")) == {key.id for key in opened}
    assert len(opened) in ({0, 1} if limit == 1 else {2 - bool(unused), 2})  # fewer: each found the other


def test_of_rooms_that_nobody_looks_at_that_which_its_teacher_left_first_gives_way_to_a_new_one(
    both: tuple[Rooms, Rooms], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "MAX_ROOMS", 3)
    begin, now = time(), [time()]
    monkeypatch.setattr(rooms, "time", lambda: now[0])
    teacher, phones = both

    def opened(after: float) -> RoomKey:
        now[0] = begin + after
        return teacher.open()

    joined, kept, left = opened(0), opened(1), opened(10)
    register_phone(phones, joined.id, ANN, BEN)
    now[0] = begin + 300
    register_phone(phones, joined.id, ANN)
    assert teacher.is_open(kept), "its teacher's page looks"
    assert not phones.is_open(RoomKey(left.id, "guessed")), "who has the id alone keeps no room"
    with pytest.raises(ValueError, match="All 3 class sessions"):
        opened(rooms.UNUSED)
    fourth = opened(rooms.UNUSED + 11)
    now[0] = begin + 700
    register_phone(phones, joined.id, ANN)
    assert not [part for part in rooms.PARTS if phones.hashes.all(f"room:{left.id}{part}")]
    assert set(phones.hashes.all("rooms")) == {joined.id, kept.id, fourth.id}
    fifth = opened(rooms.UNUSED + 301)
    assert set(phones.hashes.all("rooms")) == {joined.id, fourth.id, fifth.id}
    sixth = opened(rooms.UNUSED + 699)
    assert set(phones.hashes.all("rooms")) == {joined.id, fifth.id, sixth.id}, "Ann may answer"
    seventh = opened(rooms.UNUSED + 701)
    assert set(phones.hashes.all("rooms")) == {fifth.id, sixth.id, seventh.id}, "phones that came once keep no room"


def test_a_room_that_has_ended_leaves_the_list_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time()]
    monkeypatch.setattr(rooms, "time", lambda: now[0])
    teacher = Rooms(MemoryHashes(lambda: now[0]))
    teacher.open()
    now[0] += 7100
    second = teacher.open()
    now[0] += 101
    third = teacher.open()
    assert set(teacher.hashes.all("rooms")) == {second.id, third.id}


def test_all_of_a_room_is_gone_two_hours_after_it_was_opened(
    both: tuple[Rooms, Rooms], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes what was stored late in its lifetime."""
    teacher, now = both[0], [time()]
    if isinstance(teacher.hashes, MemoryHashes):
        monkeypatch.setattr(rooms, "SWEEP", 0.01)
        monkeypatch.setattr(rooms, "time", lambda: now[0])
        teacher = Rooms(MemoryHashes(lambda: now[0]))
    key = teacher.open()
    now[0] += 7100
    if isinstance(teacher.hashes, RedisHashes):  # Redis expires keys by its own clock
        sleep(1.1)
    teacher.show(key, QUESTION, {})
    register_phone(teacher, key.id, ANN)
    assert teacher.answer(key.id, ANN, "abc-1", 1) == 1
    names = [f"room:{key.id}{part}" for part in rooms.PARTS]
    assert all(map(teacher.hashes.count, names))
    if isinstance(teacher.hashes, RedisHashes):
        ends = {teacher.hashes._redis.expiretime(f"unmask:{name}") for name in names}
        assert len(ends) == 1
        assert 7200 - 60 < ends.pop() - time() <= 7200
        return
    now[0] += 101
    for _ in range(500):
        if not teacher.hashes._hashes._Cache__data:
            break
        sleep(0.01)
    assert not teacher.hashes._hashes._Cache__data, "kept although nobody asked"
    assert teacher.version(key.id) is None
    assert not teacher.is_open(key)
    assert not teacher.register_phone(key.id, BEN)
