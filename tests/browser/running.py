"""The app as a process of its own, and a Chromium to look at it."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import Browser, Playwright, sync_playwright

ROOT = Path(__file__).parents[2]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    # 64 MB of new objects before they are looked through: what a page makes to draw itself is mostly garbage by then
    "--js-flags=--min-semi-space-size=64 --max-semi-space-size=64",
    # nothing but this machine is found. Playwright's own routes would refuse too, but whoever has one has no cache:
    # every page then fetches, parses and compiles all of Streamlit's scripts again
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]  # fmt: skip
START_SECONDS = 90


@contextmanager
def running(script: str, log: Path, port: int = 0, *, cwd: Path = ROOT, **environment: str) -> Iterator[str]:
    """`streamlit run script` on this machine; gives its address once it answers, ends it at the end. port: 0 for any.
    cwd: where it is started.

    Raises RuntimeError with the end of its log when it does not start.
    """
    port = port or free_port()
    command = [
        sys.executable, "-m", "streamlit", "run", script, "--server.headless", "true",
        "--server.address", "127.0.0.1", "--server.port", str(port),
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=os.environ | environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """Of this machine's own address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def chromium(flags: Sequence[str] = FLAGS) -> Iterator[Browser]:
    """A Chromium without a window. Raises RuntimeError where there is none."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_find(playwright), args=list(flags))
        yield browser
        browser.close()


def _find(playwright: Playwright) -> str:
    candidates = ("/usr/bin/chromium", shutil.which("chromium"), playwright.chromium.executable_path)
    for path in candidates:
        if path and Path(path).is_file():
            return path
    tried = ", ".join(filter(None, candidates))
    raise RuntimeError(f"no Chromium at {tried}: run `python -m playwright install chromium`")


def _wait(address: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{address}/_stcore/health", timeout=2) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(
        f"{log.name}: no start within {START_SECONDS} seconds:\n{log.read_text(errors='replace')[-3000:]}"
    )
