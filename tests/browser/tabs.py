"""Tabs that tests hand on to each other: to load all of Streamlit's scripts takes more than what a page does with them.

Between two tests a tab rests: what the one before had on the screen is gone, and it is connected to the server as a
reader of whom that knows nothing, and who says nothing until a page is opened. From there a page opens by its address,
as it does in a new tab; what the address does not say is as it is for anybody who comes.
"""

from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Browser, Error, Page

RESTING_PLACE = "lessons?lesson=none"  # another page than the next: Streamlit then takes all of it away. It has little
BLANK = "about:blank"
SIZE = {"width": 1280, "height": 900}
NARROW = 900  # of a window, in pixels: the sidebar is closed
PATIENCE = 20_000  # ms; a tab that does not come to rest by then is loaded anew
LOOKS = 40  # ms between two
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
    """Those that no test uses now. Each has a browser to itself: of two in one, that in the background is slow to hear
    of the mouse."""

    def __init__(self, browser: Browser, server: str) -> None:
        self._browser = browser
        self._server = server
        self._idle: list[Page] = []

    def take(self) -> Page:
        """One to open pages in."""
        if self._idle:
            return self._idle.pop()
        page = self._browser.new_context(viewport=SIZE).new_page()
        page.add_init_script(NEW_READER)
        return page

    def give_back(self, page: Page, *, resting: bool) -> None:
        """For the next test. resting: whether that may find it without a load."""
        page.mouse.move(1, 1)  # what the mouse is left on, the next page would take as pointed at
        page.evaluate("localStorage.clear(); sessionStorage.clear()")  # Streamlit keeps there how the sidebar stands
        if not (resting and self._comes_to_rest(page)):
            page.goto(BLANK)  # its session on the server ends
            page.context.clear_cookies()
        self._idle.append(page)

    def _comes_to_rest(self, page: Page) -> bool:
        size = page.viewport_size
        if _is_there(page, RESTING_PLACE) or size is None or size["width"] < NARROW:
            return False
        page.set_viewport_size(SIZE)
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        try:
            _move(page, f"{self._server}/{RESTING_PLACE}", timeout=PATIENCE)
            page.evaluate(LEAVE)
        except Error:
            return False
        return True


def arrive(page: Page, address: str) -> None:
    """Open an address: from where the tab rests, or by a load where it does not."""
    if page.url == BLANK or _is_there(page, address):
        page.goto(address)
        return
    page.wait_for_function(CONNECTED, polling=LOOKS)
    _move(page, address)


def _is_there(page: Page, address: str) -> bool:
    """Whether it shows that page now, of which something would be left."""
    return urlsplit(urljoin(page.url, address)).path == urlsplit(page.url).path


def _move(page: Page, address: str, timeout: float | None = None) -> None:
    """To another page, as Back and Forward do, and wait until it is drawn."""
    title = page.title()
    page.evaluate(MOVE, address)
    page.wait_for_function(ANOTHER, arg=title, timeout=timeout, polling=LOOKS)
