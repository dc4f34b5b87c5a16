"""The Generation page as a reader's eyes and hands have it."""

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
    """The page at its address, once it has settled."""

    PATH = "generation"
    STATE = STATE

    def press(self, key: str) -> "Generation":
        """A button that changes the text or the section, by its key."""
        self.after(lambda: self.page.locator(f".st-key-{key} button").click())
        return self

    def play(self) -> None:
        """Begin, and do not wait: nothing comes to rest now."""
        self.page.get_by_role("button", name="Play").click()
        self.page.get_by_role("button", name="Pause").wait_for()

    def pause(self, key: str = "") -> "Generation":
        """End, by a click or by a key that is pressed on what has the focus, and wait until the page is still."""
        if key:
            self.page.keyboard.press(key)
        else:
            self.page.get_by_role("button", name="Pause").click()
        self.page.get_by_role("button", name="Play").wait_for()
        self._state = self._settled()
        return self

    def written(self) -> list[str]:
        """The tokens after the prompt, as they are shown."""
        return self.page.locator("p.writing .written").all_inner_texts()

    @property
    def heatmap(self) -> Locator:
        return self.page.locator(".st-key-head_figure canvas")

    def rows(self) -> int:
        """How many rows the heatmap has on the screen."""
        return int(self.heatmap.get_attribute("data-rows") or 0)

    def colours(self) -> int:
        """How many different colours there are where the heatmap is, on a screenshot of what is on the screen now."""
        picture = Image.open(io.BytesIO(self.page.screenshot(clip=self.heatmap.bounding_box()))).convert("RGB")
        return len(picture.getcolors(picture.width * picture.height))
