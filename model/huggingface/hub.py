"""Access to a Hub repository's files: from the local cache without a network, or downloaded with progress.

No request has an access token: users can choose only public repositories. Without a network the Hub's client waits 25
seconds or more, so a short request is made first. It also waits forever for a server that sends a byte now and then, so
downloads run in a thread.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TypeVar

from httpx2 import HTTPError  # the error of the Hub client's own requests
from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm.auto import tqdm

from i18n import N_, msg
from model.errors import NotAvailable, Stopped, first_line

REACH_SECONDS = 1.5
PATIENCE = 30.0  # most seconds between two chunks of a download
POLL_SECONDS = 0.2  # between two calls of progress while no chunk arrives
constants.DOWNLOAD_CHUNK_SIZE = 2**18  # bytes; its default of 10 MB may take longer than PATIENCE
constants.HF_HUB_DISABLE_XET = True  # hf_xet reports from its own thread: an exception would not stop it

Progress = Callable[[str, int, int], None]  # (file name, bytes so far, bytes in all)
Answer = TypeVar("Answer")
NO_SUCH_FILES = N_("{repo} has no {files} that Unmask can read ({why}). Choose another repository.")
INTERRUPTED = N_("The download of {repo} was interrupted ({why}). Try again: complete files are kept.")
STALLED = N_(
    "The download of {repo} was stopped: no data arrived from the Hub for {seconds:g} seconds. Try again: complete "
    "files are kept."
)
OFFLINE = N_(
    "{repo} is not on this machine, and HF_HUB_OFFLINE is set. To get it, go online once and choose it again, or run: "
    "hf download {repo}. Files already in the Hugging Face cache are found without a network."
)
GATED = N_(
    "{repo} is gated, and no Hugging Face access token is sent. Accept its terms on the Hub, then get it with: hf "
    "auth login, and hf download {repo}. Files in the Hugging Face cache are found."
)
NO_REPOSITORY = N_(
    "The Hub has no public model {repo}. Check the spelling; get a private one with: hf auth login, and hf download "
    "{repo}."
)
REFUSED = N_(
    "{repo} is not on this machine, and the Hub did not send it ({why}). Try again in a few minutes, or choose another "
    "model."
)
UNREACHABLE = N_(
    "{repo} is not on this machine, and the Hub cannot be reached ({why}). To get it, go online once and choose it "
    "again, or run: hf download {repo}. Files already in the Hugging Face cache are found without a network."
)


def cached(repo: str, files: tuple[str, ...] = ("config.json",)) -> Path | None:
    """Return the folder of the local cache that has all of these files, or None. Uses no network."""
    paths = [try_to_load_from_cache(repo, name) for name in files]
    folders = {Path(path).parent for path in paths if isinstance(path, str)}
    return folders.pop() if len(folders) == 1 and all(isinstance(path, str) for path in paths) else None


def listing(repo: str, inside: str = "") -> dict[str, int]:
    """Return the files in a repository's root, or in its folder `inside` ("name/"), name -> bytes. Raises NotAvailable
    within two seconds."""
    api = HfApi(token=False)
    info = _request(repo, "config.json", lambda: api.model_info(repo, files_metadata=True, timeout=REACH_SECONDS))
    files = {file.rfilename: file.size or 0 for file in info.siblings or []}
    here = {file.removeprefix(inside): size for file, size in files.items() if file.startswith(inside)}
    return {file: size for file, size in here.items() if "/" not in file}


def download(repo: str, files: tuple[str, ...], progress: Progress | None = None) -> Path:
    """Return the folder with these files, from the cache or the Hub.

    progress: called as bytes arrive, and now and then while none do; an exception that it raises stops the download.
    Raises NotAvailable within two seconds if the Hub cannot be reached or has no such file, within PATIENCE if the
    download stalls.
    """
    folder = cached(repo, files)
    if folder is not None:
        return folder
    _request(
        repo, files[0], lambda: get_hf_file_metadata(hf_hub_url(repo, files[0]), timeout=REACH_SECONDS, token=False)
    )
    try:
        return _download_in_thread(repo, files, progress or (lambda *_: None))
    except NotAvailable:
        raise
    except RemoteEntryNotFoundError as error:
        raise NotAvailable(msg(NO_SUCH_FILES, repo=repo, files=", ".join(files), why=first_line(error))) from None
    except (HTTPError, OSError) as error:
        raise NotAvailable(msg(INTERRUPTED, repo=repo, why=first_line(error))) from None


def _download_in_thread(repo: str, files: tuple[str, ...], progress: Progress) -> Path:
    """Download files in a thread, which waits for a reply after each progress report, and return their folder."""
    reports: SimpleQueue[tuple[str, int, int] | None] = SimpleQueue()
    replies: SimpleQueue[bool] = SimpleQueue()
    arrived: Future[Path] = Future()

    def report(*far: str | int) -> None:
        reports.put(far)  # type: ignore[arg-type]
        if not replies.get():
            replies.put(False)  # the reply to every later report
            raise Stopped

    def fetch() -> None:
        try:
            paths = [hf_hub_download(repo, name, tqdm_class=_reporter(name, report), token=False) for name in files]
            arrived.set_result(Path(paths[-1]).parent)
        except BaseException as error:  # noqa: BLE001 - the caller raises it again
            arrived.set_exception(error)
        reports.put(None)

    Thread(target=fetch, daemon=True).start()
    far, moved = (files[0], 0, 0), monotonic()
    try:
        while not arrived.done():
            try:
                far, moved = reports.get(timeout=POLL_SECONDS) or far, monotonic()
            except Empty:
                progress(*far)
            else:
                progress(*far)
                replies.put(True)
            if monotonic() - moved > PATIENCE:
                raise NotAvailable(msg(STALLED, repo=repo, seconds=PATIENCE))
        return arrived.result()
    finally:
        replies.put(False)


def _request(repo: str, name: str, request: Callable[[], Answer]) -> Answer:
    """Return the answer to one request, made in a thread: resolving a host name has no time limit otherwise."""
    if constants.HF_HUB_OFFLINE:
        raise NotAvailable(msg(OFFLINE, repo=repo))
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(request).result(REACH_SECONDS)
    except GatedRepoError:
        raise NotAvailable(msg(GATED, repo=repo)) from None
    except RepositoryNotFoundError:
        raise NotAvailable(msg(NO_REPOSITORY, repo=repo)) from None
    except EntryNotFoundError:
        why = msg("{repo} has no file {file}: choose a repository that has one.", repo=repo, file=name)
        raise NotAvailable(why) from None
    except HfHubHTTPError as error:
        raise NotAvailable(msg(REFUSED, repo=repo, why=first_line(error))) from None
    except Exception as error:  # noqa: BLE001 - a network may fail in any way
        raise NotAvailable(msg(UNREACHABLE, repo=repo, why=first_line(error))) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _reporter(name: str, progress: Callable[..., None]) -> type[tqdm]:
    class Reporter(tqdm):  # type: ignore[misc]  # tqdm brings no types
        def __init__(self, *args: object, **options: object) -> None:
            options["disable"] = False
            options["file"] = StringIO()  # nothing is printed
            options.pop("name", None)
            super().__init__(*args, **options)

        def update(self, n: float | None = 1) -> bool | None:
            shown: bool | None = super().update(n)
            progress(name, int(self.n), int(self.total or 0))
            return shown

    return Reporter
