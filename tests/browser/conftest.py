"""Fixtures of the browser tests: one server and one browser per test process, and pages as a user has them.

Chromium is the system's (/usr/bin/chromium, or `chromium` on the path), else playwright's own
(`python -m playwright install chromium`). Without either, every test here fails with a message that says so.
"""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, WebSocket, expect

from tests.browser.explore import TIMEOUT, Explore
from tests.browser.running import chromium, running, stack_traces
from tests.browser.tabs import BLANK, NARROW, Tabs, arrive

expect.set_options(timeout=TIMEOUT)  # playwright's default of 5 seconds is too short while other tests run in parallel


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the running app, which is offline; at the end, check its log.

    The log must contain neither an error nor a notice that the server ignored a value sent by a control."""
    folder = tmp_path_factory.mktemp("server")
    log = folder / "log.txt"
    with running("app.py", log, HF_HUB_OFFLINE="1", HF_HOME=str(folder), OMP_NUM_THREADS="1") as address:
        yield address
    assert not stack_traces(log)
    assert "streamlit_internals" not in log.read_text(errors="replace"), "a value of a control was ignored"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def tabs(browser: Browser, server: str) -> Tabs:
    return Tabs(browser, server)


@pytest.fixture
def watch(server: str) -> "Watch":
    """Return a watch of the requests of a test's pages to other hosts than the server, and of their errors."""
    return Watch(urlsplit(server).netloc)


@pytest.fixture
def visit(server: str, tabs: Tabs, watch: "Watch") -> Iterator[Callable[..., Explore]]:
    """Yield a function that opens a page in a new session and returns it as an object of class `kind`.

    anew: load the whole page, for tests of what is shown while it loads, and for tests that leave something behind that
    outlives the page's content. Dark windows, and windows too narrow for the sidebar, start differently and are loaded
    too. fresh: load without the earlier user's cookie, in the tab that the test opened last, if any: another tab would
    fetch all scripts again. After the test: no request may have left this machine, and the browser may have logged no
    error.
    """
    used: dict[Page, bool] = {}  # page -> whether it may rest after the test, see tabs.py

    def open_page(
        query: str = "",
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        anew: bool = False,
        fresh: bool = False,
        kind: type[Explore] = Explore,
    ) -> Explore:
        page = list(used)[-1] if fresh and used else tabs.take()
        if page not in used:
            watch.follow(page)
        used[page] = not anew and width >= NARROW
        if anew or fresh or dark or width < NARROW:
            page.goto(BLANK)
        if fresh:
            page.context.clear_cookies()
        # reduced motion: no animation to wait for, and none of its frames to draw
        scheme = "dark" if dark else "light"
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce", forced_colors="none")
        page.set_viewport_size({"width": width, "height": height})
        return kind(page, f"{server}/{kind.PATH}{query and '?' + query}", arrive)

    yield open_page
    for page, resting in used.items():
        watch.leave(page)
        tabs.give_back(page, resting=resting)
    assert not watch.elsewhere
    assert not watch.errors


class Watch:
    """The requests of pages to other hosts than the server, and the errors of pages."""

    def __init__(self, server: str) -> None:
        self.elsewhere: list[str] = []
        self.errors: list[str] = []
        self._server = server
        self._handlers: dict = {
            "request": self._asks,
            "websocket": self._connects,
            "pageerror": lambda error: self.errors.append(str(error)),
            "console": self._hear,
        }

    def follow(self, page: Page) -> None:
        for event, handler in self._handlers.items():
            page.on(event, handler)

    def leave(self, page: Page) -> None:
        for event, handler in self._handlers.items():
            page.remove_listener(event, handler)

    def _asks(self, request: Request) -> None:
        if self._is_elsewhere(request.url):
            self.elsewhere.append(request.url)

    def _connects(self, socket: WebSocket) -> None:
        if self._is_elsewhere(socket.url):
            self.elsewhere.append(socket.url)

    def _hear(self, message: ConsoleMessage) -> None:
        # opened at a subpage's URL, Streamlit first looks for its server below that URL, which logs an error
        its_own = urlsplit(message.location["url"]).path.endswith(("/_stcore/health", "/_stcore/host-config"))
        if message.type == "error" and not its_own:
            self.errors.append(message.text)

    def _is_elsewhere(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.netloc != self._server and parts.scheme not in ("data", "blob", "about")
