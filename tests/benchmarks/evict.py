"""Stability of the server's memory over many loads and evictions of models, while users connect and leave.

At most two models are in memory and four are requested in turn, so that every load evicts one. For each load the user
who has been connected longest leaves, and a new user requests the next model.
"""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from statistics import fmean, median

from model import catalog
from serving import machine
from tests.benchmarks.crowd import EXPLORE, Server, served
from tests.benchmarks.reader import visiting
from tests.benchmarks.readers import own_text
from tests.benchmarks.report import Ratio

LOADS, USERS, MODELS, IN_MEMORY = 50, 20, 4, 2
ANSWERS, TRACES = 3 * 10**6, 10 * 10**6  # bytes of the two caches: full at the end of the warm-up
WARM_UP = 10  # loads before the measured ones
BAR = 5  # % from the median, for means of ten loads: a closed session is freed by the next garbage collection
GONE = 1  # seconds until the session of a user who left is removed


def evictions() -> list[Ratio]:
    """Measure fifty loads while twenty users are connected."""
    megabytes = asyncio.run(_measure())
    tens = [fmean(megabytes[first : first + 10]) for first in range(WARM_UP, WARM_UP + LOADS, 10)]
    middle = median(tens)
    off = max(abs(one / middle - 1) for one in tens)
    detail = f"means of ten loads each: {', '.join(f'{one:.0f}' for one in tens)} MB"
    return [Ratio(f"{LOADS} loads and evictions, {USERS} users: memory off its median, %", 100 * off, BAR, detail)]


async def _measure() -> list[float]:
    """Return the server's memory after each load, in MB."""
    with tempfile.TemporaryDirectory() as folder:
        names = [str(shutil.copytree(catalog.fetch("story"), Path(folder, str(one)))) for one in range(MODELS)]
        environment = {
            "UNMASK_MODELS": ",".join(["story", *names]), "UNMASK_MODELS_IN_MEMORY": str(IN_MEMORY),
            "UNMASK_RESULTS_SHARE": str(ANSWERS / machine.memory_bytes()),
            "UNMASK_TRACES_SHARE": str(TRACES / machine.memory_bytes()),
            "STREAMLIT_SERVER_DISCONNECTED_SESSION_TTL": str(GONE),
        }  # fmt: skip
        with served(0, **environment) as server:
            return await _loads(server, names)


async def _loads(server: Server, names: list[str]) -> list[float]:
    there: list[AsyncExitStack] = []
    megabytes = []
    for number, name in zip(range(USERS + WARM_UP + LOADS), cycle(names), strict=False):
        if len(there) == USERS:
            await there.pop(0).aclose()
        user = AsyncExitStack()
        there.append(user)
        reader = await user.enter_async_context(visiting(server.address, EXPLORE, own_text(number), model=name))
        await reader.open()
        await reader.flip()
        if number >= USERS:
            megabytes.append(await asyncio.to_thread(server.memory))
    for user in there:
        await user.aclose()
    return megabytes
