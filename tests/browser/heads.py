"""The row of views of the chosen head, as a reader's eyes and hands have it."""

from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator

from tests.browser.explore import POLLING, STATE, Explore

VIEWS = {  # of the head: in the address, what has the focus for keys that move the query, and the key of one step
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
MAX_TABS = 90  # presses of Tab that lead once around the page


class Heads(Explore):
    """Explore; what is settled counts the view of the head too."""

    STATE = STATE.replace(
        "location.search,",
        """location.search, document.querySelector('.st-key-head_tokens, .st-key-head_arcs')
            ?.querySelector('[data-testid=stBidiComponentIsolated]')?.shadowRoot?.querySelector('.view')?.innerText,
        document.querySelectorAll('[data-testid=stDataFrame], .st-key-head_bars, .st-key-why_strips').length,""",
    )

    @property
    def tokens(self) -> Locator:
        """The tokens of the text itself, without those of pins."""
        return self.page.locator(".st-key-head_tokens .tokens > .text .token")

    def lights(self, tokens: Locator | None = None) -> list[float]:
        """How strongly each token is lit, 0 to 1."""
        tokens = self.tokens if tokens is None else tokens
        return tokens.evaluate_all("all => all.map((one) => Number(one.style.getPropertyValue('--light')))")

    def titles(self) -> list[str]:
        """What each token says of its cell when pointed at."""
        return self.tokens.evaluate_all("all => all.map((one) => one.title)")

    def view(self, name: str) -> "Heads":
        """Choose a view."""
        self.after(lambda: self.page.get_by_role("radio", name=name, exact=True).click())
        return self

    @property
    def query(self) -> int:
        """The query, as the address has it."""
        return int(parse_qs(urlsplit(self.page.url).query)["query"][0])

    def framed(self) -> list[float]:
        """The rows that are framed in the large heatmap."""
        shapes = self.chart.evaluate("chart => (chart.layout.shapes ?? []).map((shape) => [shape.y0, shape.y1])")
        assert all(below - above == 1 for above, below in shapes)
        return [(above + below) / 2 for above, below in shapes]

    def move_to(self, query: int, key: str, do: Literal["press", "up"] = "press") -> "Heads":
        """Press a key or let it go, and wait until the address has this query and the large heatmap frames its row."""
        getattr(self.page.keyboard, do)(key)
        self.page.wait_for_function(MOVED, arg=query, polling=POLLING)
        return self

    def has_focus(self, place: Locator) -> bool:
        """Whether the keyboard is at this element; or in it, where it is a table or a row of buttons."""
        return place.first.evaluate(
            """place => {
                 const holds = place.matches("canvas, .st-key-view");
                 for (let at = document.activeElement; at; at = at.shadowRoot?.activeElement) {
                   if (at === place || (holds && place.contains(at))) return true;
                 }
                 return false;
               }"""
        )

    def keeps_focus(self, place: Locator) -> bool:
        """Whether the keyboard is there, at once or when what is there has been drawn anew."""
        for _ in range(100):
            if self.has_focus(place):
                return True
            self.page.wait_for_timeout(POLLING)
        return False

    def tab_to(self, place: Locator, key: str = "Tab") -> "Heads":
        """Press Tab, or another key, until the keyboard is there."""
        for _ in range(MAX_TABS):
            if self.has_focus(place):
                return self
            self.page.keyboard.press(key)
        raise AssertionError(f"{MAX_TABS} times {key} do not lead to {place}")

    def hover_text(self, query: int, key: int) -> list[str]:
        """The lines of the heatmap's tooltip on a cell."""
        place: dict[str, Any] = self.chart.evaluate(
            """(chart, [q, k]) => {
                 const {xaxis, yaxis} = chart._fullLayout, box = chart.getBoundingClientRect();
                 return {x: box.x + xaxis._offset + xaxis.l2p(k), y: box.y + yaxis._offset + yaxis.l2p(q)};
               }""",
            [query, key],
        )
        self.page.mouse.move(place["x"] - 1, place["y"] - 1)
        self.page.mouse.move(place["x"], place["y"])
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
        """What the button of this name gives."""
        with self.page.expect_download() as download:
            self.page.get_by_role("button", name=name, exact=True).click()
        return Path(download.value.path()).read_bytes()
