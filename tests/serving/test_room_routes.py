"""Tests of the HTTP requests of a room's phones: one poll of the storage for all waiting, invalid requests refused."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient, Response
from starlette.applications import Starlette

from serving import room_routes
from serving.rooms import MemoryHashes, PhonePage, RoomKey, Rooms
from tests.coroutines import finished

PHONES = [f"phone{number:0>20}" for number in range(7)]


class Class:
    """A room with phones."""

    def __init__(self) -> None:
        self.hashes = CountedHashes()
        self.rooms = Rooms(self.hashes)
        self.key: RoomKey = self.rooms.open()
        app = Starlette(
            routes=room_routes.routes(self.rooms, lambda accepted: gzip.compress(f"<p>{accepted}".encode()), "app")
        )
        self.client = AsyncClient(transport=ASGITransport(app), base_url=f"http://school/app/room/{self.key.id}")

    def show(self, step: str, choices: int = 3) -> None:
        self.rooms.show(self.key, PhonePage(step, choices, gzip.compress(json.dumps({"name": step}).encode())))

    async def step(self, phone: str = PHONES[0], tag: str = "") -> Response:
        return await self.client.get("/step", params={"phone": phone}, headers={"If-None-Match": tag} if tag else {})

    async def answer(self, **answer: Any) -> int:
        return (await self.client.post("/answer", json=answer)).status_code


class CountedHashes(MemoryHashes):
    """Hashes that count how often the body of a step was read."""

    bodies = 0

    def get(self, name: str, *fields: str) -> list[bytes | None]:
        self.bodies += "body" in fields
        return super().get(name, *fields)


def test_all_phones_that_wait_get_the_next_step_from_one_look() -> None:
    async def visit() -> None:
        room = Class()
        room.show("a-1")
        first = await room.step()
        assert (first.status_code, first.json()) == (200, {"name": "a-1"})
        waiting = [asyncio.ensure_future(room.step(phone, first.headers["ETag"])) for phone in PHONES]
        await asyncio.sleep(0.3)
        assert not any(one.done() for one in waiting)
        before = room.hashes.bodies
        room.show("a-2")
        found = await asyncio.gather(*waiting)
        assert [one.json() for one in found] == [{"name": "a-2"}] * len(PHONES)
        assert len({one.headers["ETag"] for one in found} | {first.headers["ETag"]}) == 2
        assert room.hashes.bodies == before + 1
        late = await room.step("a-phone-that-is-late")
        assert late.json() == {"name": "a-2"}
        assert room.rooms.tally(room.key.id).phones == len(PHONES) + 1

    finished(visit())


def test_a_phone_hears_that_nothing_is_new_and_that_the_room_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_routes, "PATIENCE", 0.2)

    async def visit() -> None:
        room = Class()
        assert (await room.step()).status_code == 204  # no step is shown yet
        room.show("a-1")
        tag = (await room.step()).headers["ETag"]
        assert (await room.step(tag=tag)).status_code == 304
        waiting = asyncio.ensure_future(room.step(tag=tag))
        await asyncio.sleep(0.05)
        room.rooms.close(room.key)
        assert (await waiting).status_code == 404
        assert (await room.step()).status_code == 404

    finished(visit())


def test_an_answer_is_a_number_of_a_phone_that_is_there() -> None:
    async def visit() -> None:
        room, phone = Class(), PHONES[0]
        room.show("a-1")
        await room.step(phone)
        right: dict[str, Any] = {"phone": phone, "step": "a-1", "choice": 1}
        for change in (
            {"phone": [phone]},
            {"phone": "<b>" * 9},
            {"step": "a" * 400},
            {"step": []},
            {"step": {}},
            {"choice": "1"},
            {"choice": True},
        ):
            assert await room.answer(**right | change) == 400
        assert await room.answer(phone=phone) == 400
        lone = json.dumps(right | {"step": "\ud800"})
        for body in (b"[" * 299, lone.encode()):
            assert (await room.client.post("/answer", content=body)).status_code == 400
        for choice in (2, 1):  # the second request is as after a confirmation that was lost
            response = await room.client.post("/answer", json=right | {"choice": choice})
            assert (response.status_code, response.json()) == (200, 2)
        assert room.rooms.tally(room.key.id).counts == {"a-1": {2: 1}}
        room.show("a-2")
        assert await room.answer(**right) == 409
        assert (await room.client.get("/step", params={"phone": "short"})).status_code == 404
        assert (await room.client.get("http://school/app/room/x/step", params={"phone": phone})).status_code == 404

    finished(visit())


def test_an_answer_that_is_never_whole_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_routes, "BODY_SECONDS", 0.1)

    async def half() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    async def visit() -> None:
        answer = await asyncio.wait_for(Class().client.post("/answer", content=half()), 20)
        assert answer.status_code == 400

    finished(visit())


def test_a_phone_that_asks_too_often_and_a_full_room_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_routes, "MAX_REQUESTS", 5)
    monkeypatch.setattr("serving.rooms.MAX_PHONES", 1)

    async def visit() -> None:
        room = Class()
        room.show("a-1")
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 1.0)
        assert [(await room.step()).status_code for _ in range(6)] == [200] * 5 + [429]
        assert await room.answer(phone=PHONES[0], step="a-1", choice=1) == 429
        assert (await room.step(PHONES[1])).status_code == 403

    finished(visit())


def test_phones_with_redis_do_not_wait_for_the_downloads_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CountedHashes, "remote", True)

    async def visit() -> None:
        room, made = Class(), Event()
        room.show("a-1")
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        download = asyncio.ensure_future(asyncio.to_thread(made.wait, 20))  # as Streamlit prepares a download
        assert (await asyncio.wait_for(room.step(), 5)).status_code == 200
        assert not download.done()
        made.set()

    finished(visit())


def test_the_page_is_the_same_for_every_room_and_is_not_kept() -> None:
    async def visit() -> None:
        room = Class()
        page = await room.client.get(f"http://school/app/room/{room.key.id}", headers={"Accept-Language": "zh-CN"})
        assert (page.text, page.headers["Cache-Control"]) == ("<p>zh-CN", "no-store")

    finished(visit())


def test_phones_that_wait_do_not_delay_the_end_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = Event()
    monkeypatch.setattr(room_routes, "stopping", stopping)

    async def visit() -> None:
        room = Class()
        room.show("a-1")
        tag = (await room.step()).headers["ETag"]
        waiting = asyncio.ensure_future(room.step(tag=tag))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        stopping.set()
        assert (await asyncio.wait_for(waiting, 5)).status_code == 304

    finished(visit())
