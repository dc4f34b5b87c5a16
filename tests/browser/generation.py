"""Page object of Generation: what a user sees and does on the page."""

import io

from PIL import Image
from playwright.sync_api import Locator

from tests.browser.explore import Explore

STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const head = document.querySelector('.st-key-head_figure [data-testid=stBidiComponentIsolated]');
  const canvas = head?.shadowRoot?.querySelector('canvas');
  if (app?.dataset.testScriptState !== 'notRunning' || !canvas?.dataset.rows) return null;
  const text = (query) => [...document.querySelectorAll(query)].map((element) => element.innerText).join('|');
  return JSON.stringify([
    location.search, canvas.toDataURL(), text('p.writing'), text('.sentence'),
    text('button'), text('table.numbers'),
  ]);
}"""


class Generation(Explore):
    """The Generation page, once it has settled."""

    PATH = "generation"
    STATE = STATE

    def press(self, key: str) -> "Generation":
        """Press a button that changes the text or the section, by its key, and wait for the change."""
        self.after(lambda: self.page.locator(f".st-key-{key} button").click())
        return self

    def play(self) -> None:
        """Press Play without waiting for the page to settle, which it does not while it plays."""
        self.page.get_by_role("button", name="Play").click()
        self.page.get_by_role("button", name="Pause").wait_for()

    def pause(self, key: str = "") -> "Generation":
        """Pause, by a click or by pressing `key` on the focused element, and wait until the page has settled."""
        if key:
            self.page.keyboard.press(key)
        else:
            self.page.get_by_role("button", name="Pause").click()
        self.page.get_by_role("button", name="Play").wait_for()
        self._state = self._settled()
        return self

    def written(self) -> list[str]:
        """Return the tokens after the prompt, as shown."""
        return self.page.locator("p.writing .written").all_inner_texts()

    @property
    def heatmap(self) -> Locator:
        return self.page.locator(".st-key-head_figure canvas")

    def rows(self) -> int:
        """Return the number of rows of the heatmap on the screen."""
        return int(self.heatmap.get_attribute("data-rows") or 0)

    def colours(self) -> int:
        """Return the number of different colours within the heatmap's box, on a screenshot taken now."""
        picture = Image.open(io.BytesIO(self.page.screenshot(clip=self.heatmap.bounding_box()))).convert("RGB")
        return len(picture.getcolors(picture.width * picture.height))
