"""Latency with 200 phones in a class room and sixty users on other pages of the same server.

    python -m tests.benchmarks phones --minutes 10 --workers 2

The users are connected all the time, the class every second minute, so that the users' latency with the class is
compared with their own without it. The time of a step is from the teacher's click until a phone has the step.
"""

import asyncio
import gzip
import json
import os
import random
import re
import secrets
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import fmean, median
from time import monotonic, perf_counter
from urllib.parse import urlsplit

from tests.benchmarks.crowd import COMING, EXPLORE, TEXT_EVERY, THINKING, Server, _text, served
from tests.benchmarks.reader import Reader, Switch, visiting
from tests.benchmarks.report import Ratio, p95

PHONES, READERS = 200, 60
STEP_BAR, BESIDE_BAR = 1.0, 1.2
STEP_EVERY = 8.0  # seconds between two clicks of the teacher
POLL_SECONDS = 2.0  # seconds, as in ui/lessons/classroom.py
ANSWERING = 6.0  # in seconds: a phone answers after a random time, at most this long
PART = 60.0  # seconds of each part, with the class or without it
LATE = 3.0  # seconds after which a step counts as not received
TEACHER = Switch("lessons", "teach", link="lesson=causal_mask")
STEPS = 5  # of the teacher's lesson


@dataclass
class ClassRun:
    """The measurements. steps: seconds until each phone had each step. alone, with_class: seconds of the users' actions
    without and with the class. answers: number accepted. processor: cores that the server used in each part, by
    whether the class was connected."""

    steps: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    with_class: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    answers: int = 0
    processor: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    together: bool = False  # whether the class is connected


def two_hundred_phones(minutes: float | None, workers: int) -> list[Ratio]:
    run = asyncio.run(_measure(60 * (minutes or 10), workers))
    what = f"{PHONES} phones in a room, {READERS} readers elsewhere, {minutes or 10:g} minutes, {workers} workers"
    steps = f"{len(run.steps)} steps on phones, median {median(run.steps):.2f} s, {run.answers} answers"
    cores = f"{fmean(run.processor[True]):.2f} and {fmean(run.processor[False]):.2f} cores used by the server"
    actions = f"{1000 * fmean(run.with_class):.0f} ms ÷ {1000 * fmean(run.alone):.0f} ms, means of {len(run.with_class)} and {len(run.alone)} actions; p95 {p95(run.with_class):.2f} s and {p95(run.alone):.2f} s; {cores}"  # noqa: E501
    return [
        Ratio(f"{what}: p95 of a step, s", p95(run.steps), STEP_BAR, steps),
        Ratio(f"{what}: a reader's action ÷ alone", fmean(run.with_class) / fmean(run.alone), BESIDE_BAR, actions),
        Ratio(f"{what}: errors", len(run.errors), 0, "; ".join(sorted(set(run.errors))) or "none"),
    ]  # fmt: skip


async def _measure(seconds: float, workers: int) -> ClassRun:
    run = ClassRun()
    with served(workers) as server:
        end = monotonic() + COMING + seconds
        readers = [asyncio.ensure_future(_read(server, number, run, end)) for number in range(READERS)]
        await asyncio.sleep(COMING)
        while monotonic() < end - PART:
            for together in (False, True):
                run.together = together
                began, used, over = monotonic(), server.seconds_of_processor(), min(monotonic() + PART, end)
                await (_lesson(server, run, over) if together else asyncio.sleep(PART))
                run.processor[together].append((server.seconds_of_processor() - used) / (monotonic() - began))
            run.together = False
        await asyncio.gather(*readers)
    return run


async def _read(server: Server, number: int, run: ClassRun, end: float) -> None:
    """Run one user on Explore, who acts as in crowd.py."""
    chance = random.Random(number)
    await asyncio.sleep(COMING * chance.random())
    try:
        async with visiting(server.address, EXPLORE, _text(chance)) as reader:
            await reader.open()
            while monotonic() < end:
                await asyncio.sleep(THINKING * chance.uniform(0.5, 1.5))
                together = run.together
                took = await (reader.flip() if chance.randrange(TEXT_EVERY) else reader.type(_text(chance)))
                if together == run.together:
                    (run.with_class if together else run.alone).append(took)
    except Exception as error:  # noqa: BLE001 - counted as an error of the user
        run.errors.append(f"reader: {type(error).__name__}: {error}"[:300])


async def _lesson(server: Server, run: ClassRun, end: float) -> None:
    """Open a room as the teacher and show each step's answer and then the next step, while phones follow."""
    try:
        await _taught(server, run, end)
    except Exception as error:  # noqa: BLE001 - counted as an error of the teacher
        run.errors.append(f"teacher: {type(error).__name__}: {error}"[:300])


async def _taught(server: Server, run: ClassRun, end: float) -> None:
    async with visiting(server.address, TEACHER, "") as teacher:
        await teacher.open()
        await teacher.press("teach")
        (room,) = {found[0] for code in teacher.codes if (found := re.search(r"/room/[\w-]{22}", code))}
        phones = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, server.address, room, stdin=PIPE, stdout=PIPE
        )
        assert phones.stdin
        assert phones.stdout
        await phones.stdout.readline()  # all phones are connected
        clicks = []
        for key in ["reveal", "next"] * STEPS:
            await _wait(teacher, STEP_EVERY)
            if monotonic() > end:
                break
            clicks.append(perf_counter())
            await teacher.press(key)
        await _wait(teacher, LATE)
        phones.stdin.close()
        measured = json.loads(await phones.stdout.read())
    run.answers += measured["answers"]
    run.errors += measured["errors"]
    for _, *steps in measured["steps"]:  # the first is the step shown when the phone joined
        run.steps += [step - click for step, click in zip(steps, clicks, strict=False)]
        run.errors += ["a step has not come"] * abs(len(clicks) - len(steps))


async def _wait(teacher: Reader, seconds: float) -> None:
    """Wait this long, while the teacher's page polls the answers."""
    end = monotonic() + seconds
    while monotonic() < end:
        await asyncio.sleep(POLL_SECONDS)
        await teacher.tick()


async def _follow(address: str, room: str) -> None:
    """Run the phones, in a process of low priority: it gets the processor time that the server and users leave."""
    os.nice(10)
    run = ClassRun()
    phones = [Phone(address, room, number, run) for number in range(PHONES)]
    following = [asyncio.ensure_future(phone.follow()) for phone in phones]
    while not all(phone.steps for phone in phones) and not run.errors:
        await asyncio.sleep(0.1)
    print("all are there", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in following:
        task.cancel()
    print(json.dumps({"steps": [phone.steps for phone in phones], "answers": run.answers, "errors": run.errors}))


class Phone:
    """A phone without a browser, with the requests of viz/components/phone.js. steps: perf_counter when each came."""

    parsed: dict[str, dict] = {}  # noqa: RUF012 - by tag: one phone reads for all, for they share the machine with the server

    def __init__(self, address: str, room: str, number: int, run: ClassRun) -> None:
        self._host, self._room, self._run = urlsplit(address), room, run
        self._chance, self._name = random.Random(number), secrets.token_hex(16)
        self.tag, self.steps = "", list[float]()

    async def follow(self) -> None:
        await asyncio.sleep(2 * self._chance.random())
        try:
            async with self._line() as line:
                await _ask(line, f"GET {self._room}", "")
                while True:
                    path = f"{self._room}/step?phone={self._name}"
                    status, tag, body = await _ask(
                        line, f"GET {path}", f"If-None-Match: {self.tag}\r\n" * bool(self.tag)
                    )
                    if status == 200:
                        self.steps.append(perf_counter())
                        self.tag = tag
                        asking = self.parsed.setdefault(tag, {}) or self.parsed[tag]
                        if not asking:
                            asking.update(json.loads(gzip.decompress(body)))
                        if "data-choice" in asking["html"] and "said" not in asking:
                            await self._answer(asking["name"])
                    elif status not in (204, 304):
                        raise RuntimeError(f"phone: {status}")
        except Exception as error:  # noqa: BLE001 - counted as an error of the phone
            self._run.errors.append(f"phone: {type(error).__name__}: {error}"[:300])

    async def _answer(self, step: str) -> None:
        """Answer after a while, over a connection of its own, as browsers do while another request waits."""

        async def later() -> None:
            await asyncio.sleep(ANSWERING * self._chance.random())
            body = json.dumps({"phone": self._name, "step": step, "choice": self._chance.randrange(2)})
            async with self._line() as line:
                status, _, _ = await _ask(line, f"POST {self._room}/answer", "", body)
            if status == 200:
                self._run.answers += 1
            else:
                self._run.errors.append(f"answer: {status}")

        self._answering = asyncio.ensure_future(later())

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        line = await asyncio.open_connection(self._host.hostname, self._host.port)
        try:
            yield line
        finally:
            line[1].close()


async def _ask(
    line: tuple[asyncio.StreamReader, asyncio.StreamWriter], what: str, headers: str, body: str = ""
) -> tuple[int, str, bytes]:
    """Send a request; return the response's status, ETag and body."""
    reader, writer = line
    length = f"Content-Length: {len(body)}\r\n" * bool(body)
    writer.write(f"{what} HTTP/1.1\r\nHost: class\r\n{headers}{length}\r\n{body}".encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    found = re.search(r"content-length: (\d+)", head)
    tag = re.search(r"etag: (\S+)", head)
    return int(head[9:12]), tag[1] if tag else "", await reader.readexactly(int(found[1]) if found else 0)


if __name__ == "__main__":
    asyncio.run(_follow(*sys.argv[1:]))
