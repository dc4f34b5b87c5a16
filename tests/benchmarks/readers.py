"""Latency of mask flips with many users at once, and their memory: a page of the app ÷ a bare one with two charts."""

import asyncio
import random
import tempfile
from pathlib import Path
from statistics import median

import psutil

from tests.benchmarks.page import WORDS
from tests.benchmarks.reader import Reader, Switch, visiting
from tests.benchmarks.report import Ratio, p95
from tests.browser.running import running

BARE = Path(__file__).parent / "bare_page.py"
BARE_SWITCH = Switch("", "causal")
SWITCHES = {
    "explore": Switch("", "causal"),
    "mask_lab": Switch("mask_lab", "causal"),
    "padding": Switch("padding", "causal"),
    "bug_clinic": Switch("bug_clinic", "bug_on"),
    "why_causal": Switch("why_causal", "why_run", ("run without", "run with the mask"), "step=2"),
    "generation": Switch("generation", "cache"),
    "cross_attention": Switch("cross_attention", "cross_causal"),
    "images": Switch("images", "images_mask", ("prefix", "causal")),
    "pixels": Switch("pixels", "pixels_causal"),
    "layers": Switch("layers", "causal"),
    "ablation": Switch("ablation", "causal"),
    "compare": Switch("compare", "b_causal", (False, True)),
    "head_atlas": Switch("head_atlas", "atlas_section", ("Where it is strongest", "Find heads")),
    "export": Switch("export", "causal"),
    "serving": Switch("serving", "align", ("bottom right", "top left (wrong)")),
    "mask_check": Switch("mask_check", "what", ("A model", "A sample module")),
}
FLIPS = 25  # of one user, after a few that warm up both servers
READERS, SECONDS, THINKING = 30, 45, 3.0  # users, seconds, mean seconds between two flips
MANY, TURNS = 50, 3  # users whose memory is measured, and flips of each
ONE_BAR, P95_BAR, MEMORY_BAR = 3.5, 8, 100


def readers(page: str) -> list[Ratio]:
    """Measure one user's flip, the 95th percentile with 30 users, and the memory of 50."""
    return asyncio.run(_measure(page))


async def _measure(name: str) -> list[Ratio]:
    switch = SWITCHES[name]
    with (
        tempfile.TemporaryDirectory() as folder,
        running("app.py", Path(folder, "app")) as app,
        running(str(BARE), Path(folder, "bare"), STREAMLIT_RUNNER_POST_SCRIPT_GC="false") as bare,
    ):
        one, floor = await _in_turns(app, switch, bare)
        before = _memory(app)
        grown = await _memory_of_many(app, switch) - before
        floor_late = p95(await _side_by_side(bare, BARE_SWITCH))
        late = p95(await _side_by_side(app, switch))
    flips = f"{1000 * one:.0f} ms ÷ {1000 * floor:.0f} ms, medians of {FLIPS}"
    crowd = f"{late:.2f} s ÷ {floor_late:.2f} s, a flip every {THINKING:.0f} s"
    megabytes = f"{before:.0f} MB with one, {before + grown:.0f} MB with {MANY} more"
    return [
        Ratio(f"{name}: a reader's flip ÷ a bare page's", one / floor, ONE_BAR, flips),
        Ratio(f"{name}: {READERS} readers' p95 ÷ a bare page's", late / floor_late, P95_BAR, crowd),
        Ratio(f"{name}: memory of {MANY} readers, MB", grown, MEMORY_BAR, megabytes),
    ]


async def _in_turns(app: str, switch: Switch, bare: str) -> tuple[float, float]:
    """Return the median seconds of one user's flips on each, alternately, so that a slow minute slows both."""
    ours, theirs = [], []
    async with visiting(app, switch, own_text(0)) as reader, visiting(bare, BARE_SWITCH, own_text(0)) as other:
        await reader.open()
        await other.open()
        for _ in range(FLIPS + 4):
            ours.append(await reader.flip())
            theirs.append(await other.flip())
    return median(ours[4:]), median(theirs[4:])


async def _side_by_side(address: str, switch: Switch) -> list[float]:
    """Return the seconds of all flips of users who arrive one by one and then flip until the time is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS

    async def visit(number: int) -> list[float]:
        generator = random.Random(number)
        await asyncio.sleep(number * 10 / READERS)
        async with visiting(address, switch, own_text(number)) as reader:
            await reader.open()
            flips = []
            while loop.time() < end:
                await asyncio.sleep(THINKING * generator.uniform(0.5, 1.5))
                flips.append(await reader.flip())
        return flips

    return [flip for flips in await asyncio.gather(*map(visit, range(READERS))) for flip in flips]


async def _memory_of_many(address: str, switch: Switch) -> float:
    """Return the server's memory, MB, while MANY users are connected and each has flipped a few times."""
    there, over = asyncio.Barrier(MANY + 1), asyncio.Event()

    async def visit(number: int) -> None:
        async with visiting(address, switch, own_text(1000 + number)) as reader:
            await _flip_often(reader)
            await there.wait()
            await over.wait()

    visits = asyncio.gather(*map(visit, range(MANY)))
    arrived = asyncio.ensure_future(there.wait())
    await asyncio.wait([visits, arrived], return_when=asyncio.FIRST_COMPLETED)  # visits end first only if one fails
    taken = _memory(address)
    over.set()
    await visits
    return taken


async def _flip_often(reader: Reader) -> None:
    await reader.open()
    for _ in range(TURNS):
        await reader.flip()


def _memory(address: str) -> float:
    """Return the memory in MB of the server at this address, a child of this process, and of its own children."""
    port = address.rpartition(":")[2]
    server = next(child for child in psutil.Process().children() if port in child.cmdline())
    return sum(process.memory_info().rss for process in (server, *server.children(recursive=True))) / 1e6


def own_text(number: int) -> str:
    """Return a text that differs for each user."""
    return " ".join(random.Random(number).choices(WORDS.split(), k=16))
