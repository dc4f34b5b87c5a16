"""The server's memory over many loads and evictions of models, while users are connected and come and go.

Two models stay in memory and four are asked for in turn, so that every load evicts one. For each load the user who
has been there longest leaves and a new one comes, who asks for the next model.
"""

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from statistics import median

from model import catalog, machine
from tests.benchmarks.crowd import EXPLORE, Server, served
from tests.benchmarks.reader import visiting
from tests.benchmarks.readers import own_text
from tests.benchmarks.report import Ratio

LOADS, USERS, MODELS, IN_MEMORY = 50, 20, 4, 2
ANSWERS, TRACES = 3 * 10**6, 10 * 10**6  # bytes: full after so many loads
WARM_UP = 10
BAR = 5  # % off the median
GONE = 1  # seconds until a session whose user left is dropped


def evictions() -> list[Ratio]:
    """Fifty loads beside twenty users."""
    megabytes = asyncio.run(_measure())
    later = megabytes[WARM_UP:]
    middle = median(later)
    off = max(abs(one / middle - 1) for one in later)
    tenths = ", ".join(f"{one:.0f}" for one in megabytes[9::10])
    detail = f"MB after each tenth load: {tenths}; from {min(later):.0f} to {max(later):.0f} after the first {WARM_UP}"
    return [Ratio(f"{LOADS} loads and evictions, {USERS} users: memory off its median, %", 100 * off, BAR, detail)]


async def _measure() -> list[float]:
    """MB after each load."""
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
    for number, name in zip(range(USERS + LOADS), cycle(names), strict=False):
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
