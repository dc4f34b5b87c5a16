"""Context managers that run the app as a separate process and a headless Chromium."""

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
    # 64 MB of new objects before garbage is collected: most of what a page allocates to draw itself is dead by then
    "--js-flags=--min-semi-space-size=64 --max-semi-space-size=64",
    # no host but this machine resolves. Playwright's own routes could refuse requests too, but a route disables the
    # cache: every page would then fetch, parse and compile all of Streamlit's scripts again
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]  # fmt: skip
START_SECONDS = 90


@contextmanager
def running(script: str, log: Path, port: int = 0, *, cwd: Path = ROOT, **environment: str) -> Iterator[str]:
    """Run `streamlit run script` on this machine; yield its address once it answers, and terminate it at the end.

    port: 0 for any free port. cwd: the directory to start it in.
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


def stack_traces(log: Path) -> str:
    """Return a server's log from its first stack trace on, "" if it has none. Records that are redacted by
    serving/logs.py have the lines of a stack trace, without the heading."""
    text = log.read_text(errors="replace")
    _, line, rest = text.partition('  File "')
    return line + rest


def free_port() -> int:
    """Return a free port of 127.0.0.1."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def chromium(flags: Sequence[str] = FLAGS) -> Iterator[Browser]:
    """Start a headless Chromium, yield it and close it. Raises RuntimeError if none is installed."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_find(playwright), args=list(flags))
        yield browser
        browser.close()


def _find(playwright: Playwright) -> str:
    candidates = ("/usr/bin/chromium", shutil.which("chromium"), playwright.chromium.executable_path)
    for path in candidates:
        if path and Path(path).is_file():
            return path
    paths = ", ".join(filter(None, candidates))
    raise RuntimeError(f"no Chromium at {paths}: run `python -m playwright install chromium`")


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
