"""Tabs that tests reuse: loading all of Streamlit's scripts takes longer than what a page does with them.

Between two tests a tab rests: nothing of the earlier test is on the screen, and the tab is connected to the server in a
new session that sends nothing until a page is opened. From there a page opens by its address, as it does in a new tab;
whatever the address does not set has its default.
"""

from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Browser, Error, Page

RESTING_PAGE = "lessons?lesson=none"  # a small page, and not the next test's: Streamlit then removes all of it
BLANK = "about:blank"
SIZE = {"width": 1280, "height": 900}
NARROW = 900  # pixels; in a narrower window the sidebar is closed
PATIENCE = 20_000  # ms; a tab that does not come to rest by then is reloaded
LOOKS = 40  # ms between two polls
NEW_READER = """
  window.WebSocket = class extends WebSocket {
    constructor(address, protocols) {
      super(address, protocols.slice(0, 2));  // a third one would name the session to go on with
      window.connection = this;
      super.addEventListener("message", () => { window.heard = window.sent; });
    }
    addEventListener(kind, listener) {
      super.addEventListener(kind, kind !== "message" ? listener : (event) => {
        if (window.held) window.held.push(() => listener(event));
        else listener(event);
      });
    }
    send(frame) {
      if (window.silent) return;
      window.sent = (window.sent ?? 0) + 1;
      super.send(frame);
    }
  };
"""
MOVE = """address => {
  window.silent = false;
  history.pushState({}, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
ANOTHER = """title => document.title !== title
  && document.querySelector("[data-testid=stApp]").dataset.testScriptState === "notRunning\""""
LEAVE = """() => {
  window.silent = true;
  localStorage.clear();  // the page Lessons has kept answers there
  window.left = connection;
  connection.close();
}"""
CONNECTED = """() => connection !== left && connection.readyState === WebSocket.OPEN
  && document.querySelector("[data-testid=stApp]").dataset.testConnectionState === 'CONNECTED'"""


class Tabs:
    """The tabs that no test uses now. Each has its own browser context: of two tabs in one context, the tab in the
    background receives mouse events late."""

    def __init__(self, browser: Browser, server: str) -> None:
        self._browser = browser
        self._server = server
        self._idle: list[Page] = []

    def take(self) -> Page:
        """Return a tab to open pages in: an idle one if there is one, else a new one."""
        if self._idle:
            return self._idle.pop()
        page = self._browser.new_context(viewport=SIZE).new_page()
        page.add_init_script(NEW_READER)
        return page

    def give_back(self, page: Page, *, resting: bool) -> None:
        """Return a tab after a test. resting: whether the next test may use it without a page load."""
        page.mouse.move(1, 1)  # else whatever the next page has under the mouse would be hovered
        page.evaluate("localStorage.clear(); sessionStorage.clear()")  # Streamlit stores the sidebar's state there
        if not (resting and self._comes_to_rest(page)):
            page.goto(BLANK)  # ends its session on the server
            page.context.clear_cookies()
        self._idle.append(page)

    def _comes_to_rest(self, page: Page) -> bool:
        size = page.viewport_size
        if _is_there(page, RESTING_PAGE) or size is None or size["width"] < NARROW:
            return False
        page.set_viewport_size(SIZE)
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        try:
            _move(page, f"{self._server}/{RESTING_PAGE}", timeout=PATIENCE)
            page.evaluate(LEAVE)
        except Error:
            return False
        return True


def arrive(page: Page, address: str) -> None:
    """Open an address: by navigation within the app if the tab rests, else by a page load."""
    if page.url == BLANK or _is_there(page, address):
        page.goto(address)
        return
    page.wait_for_function(CONNECTED, polling=LOOKS)
    _move(page, address)


def _is_there(page: Page, address: str) -> bool:
    """Whether the tab shows the page of this address already, so that parts of it would be kept."""
    return urlsplit(urljoin(page.url, address)).path == urlsplit(page.url).path


def _move(page: Page, address: str, timeout: float | None = None) -> None:
    """Navigate to another page, as Back and Forward do, and wait until it is drawn."""
    title = page.title()
    page.evaluate(MOVE, address)
    page.wait_for_function(ANOTHER, arg=title, timeout=timeout, polling=LOOKS)
