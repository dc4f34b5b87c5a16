"""Load of many users on the app as README starts it for a class: sixty of them, thirty for an hour, 200 idle ones.

    python -m tests.benchmarks class hour idle --minutes 10     instead of 10, 60 and 5

A user waits for about ten seconds, then flips a mask, or in one of four actions types another text. In the hour-long
run, users leave after some minutes and come back on another page. The server's caches are limited so that users fill
them in ten minutes: memory that grows after that is not due to a cache.
"""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from time import monotonic
from urllib.request import urlopen

import psutil
from prometheus_client.parser import text_string_to_metric_families

from serving import machine
from tests.benchmarks.page import WORDS
from tests.benchmarks.reader import Switch, visiting
from tests.benchmarks.report import Ratio, p95
from tests.browser.running import free_port, running

ANSWERS, TRACES = 40 * 10**6, 60 * 10**6  # bytes that the server and its workers may cache
THINKING, TEXT_EVERY, COMING = 10.0, 4, 20.0  # mean seconds between actions; one action in 4 is a text; s to arrive
STAY = 300.0  # mean seconds of a visit in the hour-long run
WARM_UP = 600.0  # seconds until caches are full
SAMPLE = 10.0  # seconds between two samples of the server's memory
P95_BAR, FLAT_BAR, IDLE_BAR, BESIDE_BAR = 1.5, 5, 400, 1.5  # s, % from the median, MB (2 per user), ÷ alone
EXPLORE = Switch("", "causal")
PAGES = (
    EXPLORE,
    Switch("mask_lab", "causal"),
    Switch("padding", "causal"),
    Switch("bug_clinic", "bug_on"),
    Switch("generation", "cache"),
)


@dataclass
class CrowdRun:
    """Results of all users: seconds of each flip and each new text, error messages, (seconds since the start, MB).

    processor: the CPU seconds of the server and its workers.
    """

    flips: list[float] = field(default_factory=list)
    texts: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    processor: float = 0.0

    @property
    def actions(self) -> list[float]:
        return self.flips + self.texts


@dataclass(frozen=True)
class Server:
    address: str
    metrics: int

    def memory(self) -> float:
        """Return the memory of the server and its workers in MB; shared memory counts once."""
        return self._metric("unmask_memory_bytes") / 1e6

    def seconds_of_processor(self) -> float:
        """Return the CPU seconds of the server, a child of this process, and its workers."""
        port = self.address.rpartition(":")[2]
        server = next(child for child in psutil.Process().children() if port in child.cmdline())
        return sum(sum(process.cpu_times()[:2]) for process in (server, *server.children(recursive=True)))

    def _metric(self, name: str) -> float:
        with urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        return sum(sample.value for family in families if family.name == name for sample in family.samples)


def class_of_sixty(minutes: float | None, workers: int) -> list[Ratio]:
    """Measure sixty users on Explore."""
    run = asyncio.run(_crowd(60, 60 * (minutes or 10), workers, pages=(EXPLORE,), stay=float("inf")))
    what = f"60 readers, {minutes or 10:g} minutes, {workers} workers"
    return [
        Ratio(f"{what}: p95 of a flip or a new text, s", p95(run.actions), P95_BAR, _actions_detail(run)),
        Ratio(f"{what}: errors", len(run.errors), 0, "; ".join(sorted(set(run.errors))) or "none"),
    ]


def hour_of_thirty(minutes: float | None, workers: int) -> list[Ratio]:
    """Measure thirty users on five pages."""
    run = asyncio.run(_crowd(30, 60 * (minutes or 60), workers, pages=PAGES, stay=STAY))
    what = f"30 readers, {minutes or 60:g} minutes, {workers} workers"
    later = _by_minute([one for one in run.memory if one[0] > WARM_UP] or run.memory)
    middle = median(later)
    off = max(abs(one / middle - 1) for one in later)
    megabytes = f"{min(later):.0f} to {max(later):.0f} MB, median {middle:.0f}, by the minute; at first {later[0]:.0f}, at last {later[-1]:.0f}"  # noqa: E501
    return [
        Ratio(f"{what}: memory after the first ten off its median, %", 100 * off, FLAT_BAR, megabytes),
        Ratio(f"{what}: p95 of a flip or a new text, s", p95(run.actions), P95_BAR, _actions_detail(run)),
        Ratio(f"{what}: errors", len(run.errors), 0, "; ".join(sorted(set(run.errors))) or "none"),
    ]


def two_hundred_idle(minutes: float | None, workers: int) -> list[Ratio]:
    """Measure 200 users who opened Explore and are idle, while one more flips."""
    return asyncio.run(_idle(200, 60 * (minutes or 5), workers))


@contextmanager
def served(workers: int, **others: str) -> Iterator[Server]:
    """Run the app as for a class. others: further environment variables."""
    metrics, memory = free_port(), machine.memory_bytes()
    environment = {
        "UNMASK_WORKERS": str(workers), "UNMASK_MODELS": "story,dates", "UNMASK_METRICS_PORT": str(metrics),
        "UNMASK_RESULTS_SHARE": str(ANSWERS / memory), "UNMASK_TRACES_SHARE": str(TRACES / memory),
    } | others  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, running("serve.py", Path(folder, "log"), **environment) as app:
        yield Server(app, metrics)


async def _crowd(readers: int, seconds: float, workers: int, *, pages: tuple[Switch, ...], stay: float) -> CrowdRun:
    run = CrowdRun()
    with served(workers) as server:
        end, used = monotonic() + seconds, server.seconds_of_processor()
        async with _watched(server, run):
            await asyncio.gather(*(_read(server, number, run, end, pages, stay) for number in range(readers)))
        run.processor = server.seconds_of_processor() - used
    return run


async def _read(server: Server, number: int, run: CrowdRun, end: float, pages: tuple[Switch, ...], stay: float) -> None:
    """Run one user, who comes back until the end."""
    chance = random.Random(number)
    await asyncio.sleep(COMING * chance.random())
    while monotonic() < end:
        leaves = min(end, monotonic() + stay * chance.uniform(0.5, 1.5))
        try:
            async with visiting(server.address, chance.choice(pages), _text(chance)) as reader:
                await reader.open()
                while monotonic() < leaves:
                    await asyncio.sleep(THINKING * chance.uniform(0.5, 1.5))
                    if chance.randrange(TEXT_EVERY):
                        run.flips.append(await reader.flip())
                    else:
                        run.texts.append(await reader.type(_text(chance)))
        except Exception as error:  # noqa: BLE001 - counted as an error of the user
            run.errors.append(f"{type(error).__name__}: {error}"[:300])
            await asyncio.sleep(THINKING)


async def _idle(readers: int, seconds: float, workers: int) -> list[Ratio]:
    chance, over = random.Random(0), asyncio.Event()
    with served(workers) as server:
        before, alone = await _flips(server)
        there = asyncio.Barrier(readers + 1)

        async def look(number: int) -> None:
            await asyncio.sleep(number * COMING / 20)
            async with visiting(server.address, EXPLORE, _text(chance)) as reader:
                await reader.open()
                await there.wait()
                await over.wait()

        looking = asyncio.gather(*map(look, range(readers)))
        arrived = asyncio.ensure_future(there.wait())
        await asyncio.wait([looking, arrived], return_when=asyncio.FIRST_COMPLETED)  # `looking` only if one fails
        began, used = monotonic(), server.seconds_of_processor()
        await asyncio.sleep(seconds)
        busy = (server.seconds_of_processor() - used) / (monotonic() - began)
        memory, loaded = await _flips(server)
        over.set()
        await looking
    what = f"{readers} connected and idle"
    megabytes = f"{before:.0f} MB with one reader, {memory:.0f} MB with {readers}; {100 * busy:.1f}% of a core"
    flips = f"{1000 * loaded:.0f} ms ÷ {1000 * alone:.0f} ms, medians of {IDLE_FLIPS}"
    return [
        Ratio(f"{what}: memory, MB", memory - before, IDLE_BAR, megabytes),
        Ratio(f"{what}: one more reader's flip ÷ alone", loaded / alone, BESIDE_BAR, flips),
    ]


IDLE_FLIPS = 20


async def _flips(server: Server) -> tuple[float, float]:
    """Return the server's memory in MB, and the median seconds of one user's flips."""
    async with visiting(server.address, EXPLORE, _text(random.Random(1))) as reader:
        await reader.open()
        took = [await reader.flip() for _ in range(IDLE_FLIPS)]
        return await asyncio.to_thread(server.memory), median(took)


@asynccontextmanager
async def _watched(server: Server, run: CrowdRun) -> AsyncIterator[None]:
    """Sample the server's memory until the end."""
    began = monotonic()

    async def look() -> None:
        while True:
            with suppress(OSError):
                run.memory.append((monotonic() - began, await asyncio.to_thread(server.memory)))
            await asyncio.sleep(SAMPLE)

    looking = asyncio.ensure_future(look())
    try:
        yield
    finally:
        looking.cancel()


def _by_minute(samples: list[tuple[float, float]]) -> list[float]:
    minutes: dict[int, list[float]] = {}
    for seconds, megabytes in samples:
        minutes.setdefault(int(seconds // 60), []).append(megabytes)
    return [fmean(some) for some in minutes.values()]


def _actions_detail(run: CrowdRun) -> str:
    flips, texts = run.flips, run.texts
    return (
        f"{len(flips)} flips, median {median(flips):.2f} s, p95 {p95(flips):.2f} s; "
        f"{len(texts)} new texts, {median(texts):.2f} s and {p95(texts):.2f} s; "
        f"{1000 * run.processor / len(run.actions):.0f} ms of a core each"
    )


def _text(chance: random.Random) -> str:
    """Return a text of one or two lines."""
    lines = (" ".join(chance.choices(WORDS.split(), k=chance.randint(8, 40))) for _ in range(chance.choice((1, 1, 2))))
    return "\n".join(lines)
