"""Limits on the files that a session uploads and downloads."""

import asyncio
import sys
from contextvars import ContextVar
from functools import cache
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException
from streamlit import runtime
from streamlit.proto.BackMsg_pb2 import BackendOperationRequest
from streamlit.proto.ForwardMsg_pb2 import BackendOperationResponse
from streamlit.runtime import memory_media_file_storage
from streamlit.runtime.backend_operation_handler import DeferredFileHandler
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

# Relies on: the name of the cookie without which Streamlit refuses uploads.
XSRF_COOKIE = "_streamlit_xsrf"
MAX_UPLOADS = 4  # per session: a page has at most two uploaders, each for one file, which a new one replaces
MAX_DOWNLOADS = 20  # per session, being made or waiting
MAX_MADE = 4  # downloads at a time, over all sessions: fewer than asyncio.to_thread has threads
download_of = ContextVar[str]("download_of", default="")  # the session whose download is being made


@cache
def limit_uploads() -> None:
    """Patch Streamlit to keep only a session's latest files, and none if the session ended during the upload.

    Streamlit keeps whatever is sent to its upload URL, whether or not the page has an uploader.
    Relies on: the method `MemoryUploadedFileManager.add_file`, which is replaced, `file_storage` and `remove_file`; and
    `Runtime.is_active_session`.
    """
    add = MemoryUploadedFileManager.add_file

    def add_to_few(self: MemoryUploadedFileManager, session_id: str, file: UploadedFileRec) -> None:
        if not runtime.get_instance().is_active_session(session_id):
            raise HTTPException(400)  # after the session's end, nothing would ever remove it
        add(self, session_id, file)
        for old in list(self.file_storage[session_id])[:-MAX_UPLOADS]:
            self.remove_file(session_id, old)

    MemoryUploadedFileManager.add_file = add_to_few  # type: ignore[method-assign]  # Streamlit has no hook for it


@cache
def serialize_downloads() -> None:
    """Patch Streamlit to make a session's downloads one after another, and none after its browser has left.

    Streamlit makes each in one of the few threads that all sessions share, first come, first served: the downloads of
    one session would block all others.
    Relies on: the method `DeferredFileHandler.handle`, which is replaced, its being called in a task of its own, and
    asyncio.to_thread in it; and `Runtime.is_active_session`.
    """
    handle = DeferredFileHandler.handle
    turns, any_turn = WeakValueDictionary[str, _Turn](), asyncio.Semaphore(MAX_MADE)  # per session; over all sessions

    async def handle_in_turn(
        self: DeferredFileHandler, request: BackendOperationRequest, session_id: str
    ) -> BackendOperationResponse:
        turn = turns.setdefault(session_id, _Turn())
        if turn.asked < MAX_DOWNLOADS:
            turn.asked += 1
            try:
                async with turn, any_turn:
                    if runtime.get_instance().is_active_session(session_id):
                        download_of.set(session_id)
                        return await handle(self, request, session_id)
            finally:
                turn.asked -= 1
        return BackendOperationResponse(request_id=request.request_id, error_msg="not made")  # not shown

    DeferredFileHandler.handle = handle_in_turn  # type: ignore[method-assign]  # Streamlit has no hook for it


class _Turn(asyncio.Lock):
    asked = 0


@cache
def hash_whole_downloads() -> None:
    """Patch Streamlit to name each file that it serves by a hash of all its bytes.

    Streamlit hashes three samples of a file of more than 1 MiB. Of two files with the same samples, such as the masks
    of two users, it would serve the older one to both.
    Relies on: the constant `memory_media_file_storage._PARTIAL_HASH_THRESHOLD`, which is replaced.
    """
    memory_media_file_storage._PARTIAL_HASH_THRESHOLD = sys.maxsize  # type: ignore[misc]  # Streamlit has no option
