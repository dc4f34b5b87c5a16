"""What one session may take of what all share: memory for uploads."""

from types import SimpleNamespace

import pytest
from starlette.exceptions import HTTPException
from streamlit.runtime import Runtime
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

from ui.streamlit_internals import MOST_UPLOADS

HERE = {"here", "beside", *"abcdef"}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The sessions that are there."""
    assert hasattr(Runtime, "is_active_session"), "Streamlit has changed: Runtime.is_active_session"
    sessions = set(HERE)
    monkeypatch.setattr(Runtime, "_instance", SimpleNamespace(is_active_session=sessions.__contains__))
    return sessions


def test_a_session_keeps_its_latest_files_and_one_that_has_left_gets_none(here: set[str]) -> None:
    kept = MemoryUploadedFileManager("")
    for number in range(9):
        file = UploadedFileRec(str(number), "a.txt", "text/plain", b"words")
        for session in HERE:
            kept.add_file(session, file)
        with pytest.raises(HTTPException):
            kept.add_file("gone", file)
    assert {name: list(files) for name, files in kept.file_storage.items()} == {key: list("5678") for key in HERE}
    assert kept.get_stats()["cache_memory_bytes"][0].byte_length == len(HERE) * MOST_UPLOADS * len(b"words")
