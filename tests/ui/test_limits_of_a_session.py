"""Limits of one session on what all sessions share: memory for uploads, and threads for downloads."""

import asyncio
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.runtime import Runtime
from streamlit.runtime.backend_operation_handler import DeferredFileHandler
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

from tests.coroutines import finished
from ui import results
from ui.streamlit_internals.files import MAX_DOWNLOADS, MAX_MADE, MAX_UPLOADS

SESSIONS = {"here", "beside", *"abcdef"}


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the ids of the active sessions."""
    assert hasattr(Runtime, "is_active_session"), "Streamlit has changed: Runtime.is_active_session"
    active = set(SESSIONS)
    monkeypatch.setattr(Runtime, "_instance", SimpleNamespace(is_active_session=active.__contains__))
    return active


def test_a_session_keeps_its_latest_files_and_one_that_has_left_gets_none(sessions: set[str]) -> None:
    store = MemoryUploadedFileManager("")
    for number in range(9):
        file = UploadedFileRec(str(number), "a.txt", "text/plain", b"words")
        for session in SESSIONS:
            store.add_file(session, file)
        with pytest.raises(HTTPException):
            store.add_file("gone", file)
    assert {name: list(files) for name, files in store.file_storage.items()} == {key: list("5678") for key in SESSIONS}
    assert store.get_stats()["cache_memory_bytes"][0].byte_length == len(SESSIONS) * MAX_UPLOADS * len(b"words")


class Downloads:
    """Downloads whose files take until `go_on` is set."""

    def __init__(self) -> None:
        self.made, self.go_on = list[tuple[str, str]](), Event()
        self._handler = DeferredFileHandler(lambda: SimpleNamespace(execute_deferred=self._make))  # type: ignore[arg-type, return-value]

    def _make(self, file: str) -> str:
        self.made.append((file, results.session()))
        assert self.go_on.wait(20)
        return file

    def ask(self, session: str, file: str) -> asyncio.Task[Any]:
        request = BackMsg().backend_operation_request
        request.deferred_file.file_id = file
        return asyncio.create_task(self._handler.handle(request, session))  # as Streamlit does

    async def until_made(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.made) < count:
                await asyncio.sleep(0.01)


def test_a_session_that_asks_for_many_downloads_has_one_made_at_a_time(sessions: set[str]) -> None:
    async def visit() -> None:
        downloads = Downloads()
        many = [downloads.ask("here", str(number)) for number in range(50)]
        other = downloads.ask("beside", "other")
        await downloads.until_made(2)
        await asyncio.sleep(0.1)
        assert downloads.made == [("0", "here"), ("other", "beside")]
        downloads.go_on.set()
        assert (await other).deferred_file.url == "other"
        urls = [one.deferred_file.url for one in await asyncio.gather(*many)]
        assert urls == [*map(str, range(MAX_DOWNLOADS)), *[""] * (50 - MAX_DOWNLOADS)]
        assert (await downloads.ask("here", "later")).deferred_file.url == "later"

    finished(visit())


def test_downloads_that_wait_are_not_made_once_their_sessions_have_left(sessions: set[str]) -> None:
    async def visit() -> None:
        downloads = Downloads()
        requests = [downloads.ask(session, session) for session in "aabbccddeeff"]
        await downloads.until_made(MAX_MADE)
        sessions.clear()
        downloads.go_on.set()
        urls = [one.deferred_file.url for one in await asyncio.gather(*requests)]
        assert urls == ["a", "", "b", "", "c", "", "d", "", "", "", "", ""]
        assert len(downloads.made) == MAX_MADE

    finished(visit())
