"""One server and one browser for all tests of this folder, and the page as a reader has it.

Chromium is the system's (/usr/bin/chromium, or `chromium` on the path), else playwright's own
(`python -m playwright install chromium`). Without either every test here fails and says so.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Route, sync_playwright

from tests.browser.explore import Explore

ROOT = Path(__file__).parents[2]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
START_SECONDS = 90


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running app. It has no network to use, and no error may be in its log at the end."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "log.txt"
    command = [
        sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true",
        "--server.address", "127.0.0.1", "--server.port", str(port),
    ]  # fmt: skip
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = _start(command, environment, output)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(address, process, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
    assert "Traceback" not in log.read_text(errors="replace"), log.read_text(errors="replace")[-3000:]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(playwright), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> dict[str, BrowserContext]:
    """One for each colour scheme, shared by the tests: the page's own files are fetched and compiled once."""
    return {scheme: browser.new_context(color_scheme=scheme) for scheme in ("light", "dark")}


@pytest.fixture
def watch(server: str) -> "Watch":
    """What the pages of a test ask for elsewhere than the server, and their errors."""
    return Watch(urlsplit(server).netloc)


@pytest.fixture
def visit(
    server: str, browser: Browser, contexts: dict[str, BrowserContext], watch: "Watch"
) -> Iterator[Callable[..., Explore]]:
    """visit(query="", width=1280, height=900, dark=False, fresh=False) -> the page, opened anew.

    fresh: in a browser that has never been here. After the test: no request may have left this machine, and the browser
    may have met no error.
    """
    pages: list[Page] = []

    def open_page(
        query: str = "", *, width: int = 1280, height: int = 900, dark: bool = False, fresh: bool = False
    ) -> Explore:
        context = browser.new_context() if fresh else contexts["dark" if dark else "light"]
        pages.append(context.new_page())
        pages[-1].set_viewport_size({"width": width, "height": height})
        watch.follow(pages[-1])
        return Explore(pages[-1], f"{server}/{query and '?' + query}")

    yield open_page
    for page in pages:
        (page if page.context in contexts.values() else page.context).close()
    assert not watch.elsewhere
    assert not watch.errors


class Watch:
    """The requests of pages to elsewhere than the server (never granted), and the errors they met."""

    def __init__(self, server: str) -> None:
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self._server = server

    def follow(self, page: Page) -> None:
        page.route(lambda url: not self._local(url), self._refuse)
        page.on("websocket", lambda socket: None if self._local(socket.url) else self.elsewhere.append(socket.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def _local(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.netloc == self._server or parts.scheme in ("data", "blob", "about")

    def _refuse(self, route: Route) -> None:
        self.elsewhere.append(route.request.url)
        route.abort()


def find_chromium(playwright: Playwright) -> str:
    """The path of a Chromium. Fails the test where there is none."""
    candidates = ("/usr/bin/chromium", shutil.which("chromium"), playwright.chromium.executable_path)
    for path in candidates:
        if path and Path(path).is_file():
            return path
    pytest.fail(f"no Chromium at {', '.join(filter(None, candidates))}: run `python -m playwright install chromium`")


def _start(command: list[str], environment: dict[str, str], output: IO[bytes]) -> subprocess.Popen:
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)


def _wait(address: str, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{address}/_stcore/health", timeout=2) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the app did not start within {START_SECONDS} seconds:\n{log.read_text(errors='replace')[-3000:]}")
