"""Waiting for results on a real server: a user who requests something else meanwhile, or leaves, waits no longer."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from serving.result_cache import once
from tests.benchmarks.reader import Reader, Switch, visiting
from tests.browser.running import running
from tests.coroutines import finished

pytestmark = pytest.mark.slow  # starts servers

PAGE = Path(__file__).parent / "asking_page.py"
PATIENCE = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(str(PAGE), tmp_path_factory.mktemp("server") / "log", PYTHONPATH=str(PAGE.parents[2])) as address:
        yield address


def test_who_asks_for_something_else_does_not_wait_for_what_he_asked_before(server: str, tmp_path: Path) -> None:
    async def visit() -> str:
        async with visiting(server, Switch("", ""), str(tmp_path / "begun")) as reader:
            await send(reader)
            async with asyncio.timeout(PATIENCE):
                while not (tmp_path / "begun").exists():
                    await asyncio.sleep(0.05)
            reader._query = "text=quick"
            await send(reader)
            return await next_paragraph(reader)

    try:
        assert finished(visit()) == "waiting: 0"  # while the first job still runs
    finally:
        (tmp_path / "over").touch()


def test_a_reader_who_left_waits_no_more(server: str, tmp_path: Path) -> None:
    many = 8  # more than there are workers

    async def visit() -> None:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as readers:
            for number in range(many):
                readers.create_task(look_in(server, tmp_path / str(number)))
        async with asyncio.timeout(PATIENCE), visiting(server, Switch("", ""), "quick") as reader:
            await send(reader)
            while await next_paragraph(reader) != "waiting: 0":
                await asyncio.sleep(0.2)
                await send(reader)

    try:
        finished(visit())
        assert 0 < len(list(tmp_path.iterdir())) < many, "only those whose turn it was were begun"
    finally:
        (tmp_path / "over").touch()


async def look_in(server: str, mark: Path) -> None:
    """Send a request, and leave once a job of any user has begun."""
    async with visiting(server, Switch("", ""), str(mark)) as reader:
        await send(reader)
        while not any(mark.parent.iterdir()):
            await asyncio.sleep(0.05)


async def send(reader: Reader) -> None:
    await reader._socket.send(reader._message().SerializeToString())


async def next_paragraph(reader: Reader) -> str:
    """Return the next paragraph that the page draws."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = ForwardMsg.FromString(await reader._socket.recv())
            if answer.WhichOneof("type") == "delta" and answer.delta.new_element.WhichOneof("type") == "markdown":
                return answer.delta.new_element.markdown.body


def test_what_is_made_once_is_made_by_one_thread_and_again_where_it_failed() -> None:
    begun: list[int] = []

    @once
    def make() -> object:
        begun.append(len(begun))
        time.sleep(0.05)  # long enough for another thread to begin it too
        if len(begun) == 1:
            raise ValueError
        return object()

    with pytest.raises(ValueError):  # noqa: PT011 - the error raised above
        make()
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda _: make(), range(4)))) == 1
    assert begun == [0, 1]
