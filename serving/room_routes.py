"""HTTP routes for the phones of a room: the room's page, its current step, and the phones' answers.

200 phones cost little: a phone requests the step by a long poll, which is answered when the step changes; all that wait
for the same room share one poll of its storage, and get the same bytes. What phones send is validated and bounded.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

from cachetools import LRUCache, TTLCache
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serving.rooms import MAX_PHONES, PHONE, ROOM, STEP, PhonePage, Rooms, served

POLL_SECONDS = 0.1  # seconds between two polls of a room's storage
PATIENCE = 25.0  # seconds until a long poll is answered by "not modified": less than proxies wait
WINDOW, MAX_REQUESTS = 10.0, 40  # rate limit: seconds, and requests of a phone within them
MAX_REMEMBERED = 20_000  # phones of all rooms whose requests are counted
THREADS = 8  # for calls that wait for Redis
LONGEST_ANSWER = 300  # bytes
BODY_SECONDS = 10.0  # in which an answer must have come
GZIP = {"Content-Encoding": "gzip"}  # compressed once, for all phones
NOT_KEPT = {"Cache-Control": "no-store"}
stopping = Event()  # set while the server is stopping, when it waits for all requests


def routes(rooms: Rooms, page: Callable[[str], bytes], base: str = "") -> list[Route]:
    """Return the routes. page: returns the document that a phone opens, as gzip, for an Accept-Language. base: the
    path before all of the app's, or ""."""
    served.set()
    phones, here = RoomPhones(rooms, page), "/".join(["", *filter(None, [base.strip("/")]), "room/{room}"])
    return [
        Route(here, phones.open),
        Route(f"{here}/step", phones.step),
        Route(f"{here}/answer", phones.answer, methods=["POST"]),
    ]


class RoomPhones:
    """Handlers of the phones' requests."""

    def __init__(self, rooms: Rooms, page: Callable[[str], bytes]) -> None:
        self._rooms, self._page = rooms, page
        self._threads = ThreadPoolExecutor(THREADS, "rooms")  # the event loop's own may all be busy with downloads
        self._polls: dict[tuple[str, int], asyncio.Task[int | None]] = {}
        self._waiting: Counter[str] = Counter()  # long polls by room
        self._bodies: TTLCache[str, PhonePage] = TTLCache(20, 60)  # the last step of a room, for a minute
        self._requests: LRUCache[tuple[str, int], int] = LRUCache(MAX_REMEMBERED)

    async def open(self, request: Request) -> Response:
        """Return the phones' page, the same for every room: its script reports a room that does not exist."""
        page = self._page(request.headers.get("Accept-Language", "")[:200])
        return Response(page, media_type="text/html", headers=NOT_KEPT | GZIP)

    async def step(self, request: Request) -> Response:
        """Return the current step; for a phone that has it (If-None-Match), wait for the next one, or return 304."""
        room, phone = request.path_params["room"], request.query_params.get("phone", "")
        if not ROOM.fullmatch(room) or not PHONE.fullmatch(phone):
            return Response(status_code=404)
        if self._rate_limited(phone) or self._waiting[room] >= 2 * MAX_PHONES:
            return Response(status_code=429, headers={"Retry-After": "5"})
        version = await self._ask(self._rooms.version, room)
        if version is not None and not await self._ask(self._rooms.register_phone, room, phone):
            return Response(status_code=403)
        if version is not None and request.headers.get("If-None-Match") == f'"{version}"':
            before, version = version, await self._next_version(room, version)
            if version == before:
                return Response(status_code=304)
        shown = self._bodies.get(room)  # read once for all phones
        if version is None or shown is None or shown.version != version:
            shown = None if version is None else await self._ask(self._rooms.shown, room)
            if shown is None:
                return Response(status_code=404)
            self._bodies[room] = shown
        headers = NOT_KEPT | {"ETag": f'"{shown.version}"'}
        if not shown.body:
            return Response(status_code=204, headers=headers)
        return Response(shown.body, media_type="application/json", headers=headers | GZIP)

    async def answer(self, request: Request) -> Response:
        """Store {phone, step, choice}; return the choice that counts, the phone's first; 409 if answers are closed."""
        try:
            vote = json.loads(await _body(request))
            room, phone, step, choice = request.path_params["room"], vote["phone"], vote["step"], vote["choice"]
            right = ROOM.fullmatch(room) and PHONE.fullmatch(phone) and STEP.fullmatch(step) and type(choice) is int
        except (ValueError, LookupError, TypeError, RecursionError, ClientDisconnect, TimeoutError):
            right = None
        if not right:
            return Response(status_code=400)
        if self._rate_limited(phone):
            return Response(status_code=429, headers={"Retry-After": "5"})
        counted = await self._ask(self._rooms.answer, room, phone, step, choice)
        return Response(status_code=409) if counted is None else JSONResponse(counted)

    async def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return function(*arguments), computed in a thread if it waits for Redis. 503 if that fails."""
        if not self._rooms.hashes.remote:
            return function(*arguments)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *arguments))
        except OSError:
            raise HTTPException(503) from None

    async def _next_version(self, room: str, version: int) -> int | None:
        """Wait for the room's version to change and return it; the same version after PATIENCE seconds."""
        key = room, version
        if key not in self._polls:
            self._polls[key] = asyncio.create_task(self._poll_version(*key))
            self._polls[key].add_done_callback(lambda _: self._polls.pop(key))
        self._waiting[room] += 1
        try:
            return await asyncio.shield(self._polls[key])
        finally:
            self._waiting[room] -= 1
            if not self._waiting[room]:
                del self._waiting[room]

    async def _poll_version(self, room: str, version: int) -> int | None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while (now := await self._ask(self._rooms.version, room)) == version and loop.time() < end:
            if stopping.is_set():
                break
            await asyncio.sleep(POLL_SECONDS)
        return now

    def _rate_limited(self, phone: str) -> bool:
        key = phone, int(asyncio.get_running_loop().time() / WINDOW)
        self._requests[key] = self._requests.get(key, 0) + 1
        return self._requests[key] > MAX_REQUESTS


async def _body(request: Request) -> bytes:
    """Return the request's body. Raises ValueError if it is longer than an answer can be, TimeoutError if it does not
    come."""
    found = b""
    async with asyncio.timeout(BODY_SECONDS):
        async for part in request.stream():
            found += part
            if len(found) > LONGEST_ANSWER:
                raise ValueError("expected an answer")  # not shown
    return found
