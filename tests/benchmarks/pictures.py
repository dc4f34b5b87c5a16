"""Time until a page's first figure ÷ that of Explore: from the start of the process, which has to import torch and
load a model, and from a visit to a server that others have visited, for a text that is new to it."""

import asyncio
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from tests.benchmarks.reader import Switch, visiting
from tests.benchmarks.readers import SWITCHES, own_text
from tests.benchmarks.report import Ratio
from tests.browser.running import running

TURNS, VISITS, BAR = 3, 10, 1.3
COLD, WARM = "app start → first picture", "a visit → first picture"
Times = dict[str, dict[str, list[float]]]


def first_pictures() -> list[Ratio]:
    """Measure every page in turn, each on a server of its own."""
    times: Times = {COLD: defaultdict(list), WARM: defaultdict(list)}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            for name, switch in SWITCHES.items():
                asyncio.run(_open(name, switch, Path(folder, "log"), times))
    return [_ratio(what, name, some) for what, some in times.items() for name in SWITCHES if name != "explore"]


async def _open(name: str, switch: Switch, log: Path, times: Times) -> None:
    began = time.perf_counter()
    with running("app.py", log) as address:
        async with visiting(address, switch, own_text(0)) as reader:
            started = time.perf_counter() - began
            times[COLD][name].append(started + await reader.first_picture())
        for number in range(1, VISITS + 1):
            async with visiting(address, switch, own_text(number)) as reader:
                times[WARM][name].append(await reader.first_picture())


def _ratio(what: str, name: str, some: dict[str, list[float]]) -> Ratio:
    one, explore = median(some[name]), median(some["explore"])
    detail = f"{1000 * one:,.0f} ms ÷ {1000 * explore:,.0f} ms, medians of {len(some[name])}"
    return Ratio(f"{what} of {name} ÷ Explore's", one / explore, BAR, detail)
