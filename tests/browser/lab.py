"""Page object of the Mask Lab: what a user sees and does on the page."""

import numpy as np
from playwright.sync_api import Locator

from tests.browser.explore import Explore

STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const [chart, another] = document.querySelectorAll('.st-key-head_figure .js-plotly-plot');
  const mask = document.querySelector('.st-key-mask_canvas [data-testid=stBidiComponentIsolated]');
  const canvas = mask?.shadowRoot?.querySelector('canvas');
  if (app?.dataset.testScriptState !== 'notRunning' || !chart?._fullData || another) return null;
  if (!canvas?.maskEditor?.mask) return null;
  const {sent, mask: {number, epoch}} = canvas.maskEditor;
  if (number < sent) return null;  // the page has not heard of all that was drawn
  const text = (query) => [...document.querySelectorAll(query)].map((element) => element.innerText).join('|');
  return JSON.stringify([
    location.search, canvas.toDataURL(), chart._fullData.map((trace) => trace.z), number, epoch,
    text('table.numbers'), text('.formula'), text('.counts'), text('.sentence'), text('[data-testid=stAlert]'),
    text('[data-testid=stCode]'),
  ]);
}"""


class Lab(Explore):
    """The Mask Lab, once it has settled."""

    PATH = "mask_lab"
    STATE = STATE

    @property
    def mask(self) -> Locator:
        """The canvas with the composed mask."""
        return self.page.locator(".st-key-mask_canvas canvas")

    def point_of(self, query: int, key: int) -> tuple[float, float]:
        """Return the screen coordinates of a cell's centre; key -1: beside the row, query -1: below the column."""
        self.mask.scroll_into_view_if_needed()
        box = self.mask.bounding_box()
        size, margin = self.mask.evaluate("({maskEditor: {mask}}) => [Math.max(mask.height, mask.width), mask.room]")
        side = box["width"] - margin["l"] - margin["r"]
        x = margin["l"] / 2 if key < 0 else margin["l"] + (key + 0.5) * side / size
        y = margin["t"] + (side + 20 if query < 0 else (query + 0.5) * side / size)
        return box["x"] + x, box["y"] + y

    def drag(self, first: tuple[int, int], last: tuple[int, int]) -> "Lab":
        """Draw from one cell (query, key) to another, and wait for the page to change."""

        def stroke() -> None:
            self.page.mouse.move(*self.point_of(*first))
            self.page.mouse.down()
            self.page.mouse.move(*self.point_of(*last), steps=4)
            self.page.mouse.up()

        self.after(stroke)
        return self

    def press(self, name: str) -> "Lab":
        """Press a button of the canvas that changes the drawing, and wait for the page to change."""
        self.after(lambda: self.page.locator(".st-key-mask_canvas").get_by_text(name, exact=True).click())
        return self

    def take(self, tool: str) -> "Lab":
        """Choose the tool that the next strokes are drawn with."""
        self.page.locator(".st-key-mask_canvas").get_by_role("button", name=tool).click()
        return self

    def why(self, query: int, key: int) -> str:
        """Point at a cell and return the page's text about it."""
        self.page.mouse.move(*self.point_of(query, key))
        return self.page.locator(".st-key-mask_canvas .why").inner_text()

    def blocked(self) -> np.ndarray:
        """Return bool [T,T]: the cells without a weight in the head's heatmap."""
        return np.isnan(self.weights())
