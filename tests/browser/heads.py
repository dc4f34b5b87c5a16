"""Page objects of Explore with the views of the chosen head, and of Export."""

from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator

from tests.browser.explore import POLLING, STATE, Explore

VIEWS = {  # name -> its value in the address, the element whose keys move the query, and the key that moves it one step
    "Tokens": ("tokens", ".st-key-head_tokens .text", "ArrowRight"),
    "Arcs": ("arcs", ".st-key-head_arcs .picture", "ArrowDown"),
    "Bars": ("bars", ".st-key-bars_of_query", "ArrowDown"),
    "Value × weight": ("carried", ".st-key-carried_of_query", "ArrowDown"),
    "Why this cell": ("why", ".st-key-why_of_query", "ArrowDown"),
    "Numbers": ("numbers", "[data-testid=stDataFrame] canvas", "ArrowDown"),
}
MOVED = """query => {
  const shapes = document.querySelector('.st-key-head_figure .js-plotly-plot')?.layout?.shapes ?? [];
  const framed = shapes.length === 1 && (shapes[0].y0 + shapes[0].y1) / 2 === query;
  return framed && new URLSearchParams(location.search).get('query') === String(query);
}"""
MAX_TABS = 90  # presses of Tab, enough to go around the page once


class Heads(Explore):
    """Explore, once it has settled; its state includes the view of the head."""

    STATE = STATE.replace(
        "location.search,",
        """location.search, document.querySelector('.st-key-head_tokens, .st-key-head_arcs')
            ?.querySelector('[data-testid=stBidiComponentIsolated]')?.shadowRoot?.querySelector('.view')?.innerText,
        document.querySelectorAll('[data-testid=stDataFrame], .st-key-head_bars, .st-key-why_strips').length,""",
    )

    @property
    def tokens(self) -> Locator:
        """The tokens of the text itself, without those of the pinned rows."""
        return self.page.locator(".st-key-head_tokens .tokens > .text .token")

    def lights(self, tokens: Locator | None = None) -> list[float]:
        """Return how strongly each token is highlighted, 0 to 1."""
        tokens = self.tokens if tokens is None else tokens
        return tokens.evaluate_all("all => all.map((one) => Number(one.style.getPropertyValue('--light')))")

    def titles(self) -> list[str]:
        """Return each token's tooltip about its cell."""
        return self.tokens.evaluate_all("all => all.map((one) => one.title)")

    def view(self, name: str) -> "Heads":
        """Choose a view, and wait for the page to change."""
        self.after(lambda: self.page.get_by_role("radio", name=name, exact=True).click())
        return self

    @property
    def query(self) -> int:
        """The query in the address."""
        return int(parse_qs(urlsplit(self.page.url).query)["query"][0])

    def framed(self) -> list[float]:
        """Return the rows that are framed in the large heatmap."""
        shapes = self.chart.evaluate("chart => (chart.layout.shapes ?? []).map((shape) => [shape.y0, shape.y1])")
        assert all(below - above == 1 for above, below in shapes)
        return [(above + below) / 2 for above, below in shapes]

    def move_to(self, query: int, key: str, do: Literal["press", "up"] = "press") -> "Heads":
        """Press or release a key, and wait until the address has this query and the large heatmap frames its row."""
        getattr(self.page.keyboard, do)(key)
        self.page.wait_for_function(MOVED, arg=query, polling=POLLING)
        return self

    def has_focus(self, element: Locator) -> bool:
        """Whether this element has the focus, or, for a table's canvas or the row of views, an element inside it."""
        return element.first.evaluate(
            """element => {
                 const holds = element.matches("canvas, .st-key-view");
                 for (let at = document.activeElement; at; at = at.shadowRoot?.activeElement) {
                   if (at === element || (holds && element.contains(at))) return true;
                 }
                 return false;
               }"""
        )

    def keeps_focus(self, element: Locator) -> bool:
        """Whether this element has the focus, at once or after it has been redrawn."""
        for _ in range(100):
            if self.has_focus(element):
                return True
            self.page.wait_for_timeout(POLLING)
        return False

    def tab_to(self, element: Locator, key: str = "Tab") -> "Heads":
        """Press Tab, or another key, until this element has the focus. Raises AssertionError after MAX_TABS presses."""
        for _ in range(MAX_TABS):
            if self.has_focus(element):
                return self
            self.page.keyboard.press(key)
        raise AssertionError(f"{MAX_TABS} times {key} do not lead to {element}")

    def hover_text(self, query: int, key: int) -> list[str]:
        """Return the lines of the heatmap's tooltip on a cell."""
        point: dict[str, Any] = self.chart.evaluate(
            """(chart, [q, k]) => {
                 const {xaxis, yaxis} = chart._fullLayout, box = chart.getBoundingClientRect();
                 return {x: box.x + xaxis._offset + xaxis.l2p(k), y: box.y + yaxis._offset + yaxis.l2p(q)};
               }""",
            [query, key],
        )
        self.page.mouse.move(point["x"] - 1, point["y"] - 1)
        self.page.mouse.move(point["x"], point["y"])
        label = self.page.locator(".hoverlayer .hovertext").first
        label.wait_for()
        return label.locator("tspan.line").all_text_contents()


class Taken(Explore):
    """The page Export."""

    PATH = "export"
    STATE = """() => {
      const app = document.querySelector('[data-testid=stApp]');
      const button = document.querySelector('[data-testid=stDownloadButton]');
      return app?.dataset.testScriptState === 'notRunning' && button ? location.search + button.innerText : null;
    }"""

    def file(self, name: str) -> bytes:
        """Return the file that the button of this name downloads."""
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=name, exact=True).click()
        return Path(download.value.path()).read_bytes()
