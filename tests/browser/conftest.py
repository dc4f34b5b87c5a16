"""One server and one browser for all tests of this folder in one process, and the page as a reader has it.

Chromium is the system's (/usr/bin/chromium, or `chromium` on the path), else playwright's own
(`python -m playwright install chromium`). Without either every test here fails and says so.
"""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route

from tests.browser.explore import Explore
from tests.browser.running import chromium, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running app. It has no network to use, and no error may be in its log at the end."""
    folder = tmp_path_factory.mktemp("server")
    log = folder / "log.txt"
    with running("app.py", log, HF_HUB_OFFLINE="1", HF_HOME=str(folder), OMP_NUM_THREADS="1") as address:
        yield address
    assert "Traceback" not in log.read_text(errors="replace"), log.read_text(errors="replace")[-3000:]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


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
    """visit(query="", width=1280, height=900, dark=False, fresh=False, kind=Explore) -> the page, opened anew.

    fresh: in a browser that has never been here. After the test: no request may have left this machine, and the browser
    may have met no error.
    """
    pages: list[Page] = []

    def open_page(
        query: str = "",
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        fresh: bool = False,
        kind: type[Explore] = Explore,
    ) -> Explore:
        context = browser.new_context() if fresh else contexts["dark" if dark else "light"]
        pages.append(context.new_page())
        pages[-1].set_viewport_size({"width": width, "height": height})
        watch.follow(pages[-1])
        return kind(pages[-1], f"{server}/{kind.PATH}{query and '?' + query}")

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
        page.on("console", self._hear)

    def _hear(self, message: ConsoleMessage) -> None:
        # opened at a page of its own address, Streamlit first looks for its server below that address
        its_own = urlsplit(message.location["url"]).path.endswith(("/_stcore/health", "/_stcore/host-config"))
        if message.type == "error" and not its_own:
            self.errors.append(message.text)

    def _local(self, url: str) -> bool:
        parts = urlsplit(url)
        return parts.netloc == self._server or parts.scheme in ("data", "blob", "about")

    def _refuse(self, route: Route) -> None:
        self.elsewhere.append(route.request.url)
        route.abort()
