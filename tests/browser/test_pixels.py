"""Tests of the Pixels page in Chromium: a click on a pixel, a head and a drawing change what is shown."""

from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator

from tests.browser.conftest import Watch
from tests.browser.explore import Explore

SIDE = 8
STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const canvases = [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')]
    .map((one) => one.shadowRoot?.querySelector('canvas'));
  const easels = canvases.map((one) => one?.pixelEditor);
  const gallery = document.querySelector('.gallery');
  if (app?.dataset.testScriptState !== 'notRunning' || easels.some((one) => !one?.page)) return null;
  if (!easels.length && !gallery) return null;
  if (easels.some((one) => one.waiting || one.page.number < one.sent)) return null;  // the page has not answered yet
  const text = (query) => [...document.querySelectorAll(query)].map((element) => element.innerText).join('|');
  return JSON.stringify([
    location.search, canvases.map((one) => one.toDataURL()), gallery?.innerHTML, text('table.numbers'),
    text('.sentence'),
  ]);
}"""


class Pixels(Explore):
    """The Pixels page, once it has settled."""

    PATH = "pixels"
    STATE = STATE

    def canvas_of(self, key: str) -> Locator:
        """Return one of the canvases by its key."""
        return self.page.locator(f".st-key-pixels_{key} canvas")

    def point_of(self, key: str, pixel: int) -> tuple[float, float]:
        """Return the screen coordinates of the centre of a pixel of a large picture."""
        canvas = self.canvas_of(key)
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        unit = (box["width"] - 2) / SIDE
        row, column = divmod(pixel, SIDE)
        return box["x"] + 1 + (column + 0.5) * unit, box["y"] + 1 + (0.9 + row + 0.5) * unit

    def click(self, key: str, pixel: int) -> "Pixels":
        """Click a pixel, and wait for the page to change."""
        self.after(lambda: self.page.mouse.click(*self.point_of(key, pixel)))
        return self

    def blocked(self) -> int:
        """Return the number of hatched cells of the large picture."""
        return self.canvas_of("picture").evaluate("canvas => canvas.pixelEditor.page.blocked.filter(Boolean).length")

    def levels(self) -> np.ndarray:
        """Return the levels of the drawing on its canvas."""
        return np.array(self.canvas_of("canvas").evaluate("canvas => canvas.pixelEditor.page.levels"))

    def sentence_text(self) -> str:
        return self.page.locator(".sentence").inner_text()


@pytest.fixture
def pixels(visit: Callable) -> Callable[..., Pixels]:
    return lambda query="", **more: visit(query, kind=Pixels, **more)


def test_a_click_on_a_pixel_changes_the_pictures_and_the_future(pixels: Callable) -> None:
    page = pixels("pixel=35")
    assert page.blocked() == 28
    before = [page.canvas_of(key).evaluate("canvas => canvas.toDataURL()") for key in ("picture", "heads")]
    page.click("picture", 12)
    after = [page.canvas_of(key).evaluate("canvas => canvas.toDataURL()") for key in ("picture", "heads")]
    assert page.blocked() == 51
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert "from r1 c4" in page.sentence_text()
    assert "pixel=12" in page.page.url
    page.page.mouse.move(*page.point_of("picture", 30))
    assert page.page.locator(".st-key-pixels_picture .why").inner_text().endswith("blocked by causal")


def test_the_keyboard_picks_pixels_and_heads(pixels: Callable) -> None:
    page = pixels("pixel=10&layer=0&head=0")

    def walk(key: str, *keys: str) -> Callable[[], None]:
        def press() -> None:
            page.canvas_of(key).focus()
            for pressed in keys:
                page.page.keyboard.press(pressed)

        return press

    page.after(walk("picture", "ArrowDown", "ArrowRight", "Enter"))
    assert "from r2 c3" in page.sentence_text()
    page.after(walk("heads", "ArrowDown", "ArrowRight", "ArrowRight", "Enter"))
    assert "L1 H2" in page.sentence_text()


def test_what_is_drawn_is_what_the_model_goes_on_from(pixels: Callable) -> None:
    page = pixels("part=finish&rows=4")
    page.after(lambda: page.page.locator(".st-key-pixels_canvas").get_by_text("Clear", exact=True).click())
    assert not page.levels().any()

    def stroke() -> None:
        page.page.mouse.move(*page.point_of("canvas", 10))
        page.page.mouse.down()
        page.page.mouse.move(*page.point_of("canvas", 13), steps=6)
        page.page.mouse.up()

    page.after(stroke)
    assert page.levels().nonzero()[0].tolist() == [10, 11, 12, 13]
    assert set(page.levels()[10:14]) == {7}
    page.click("canvas", 11)
    assert page.levels()[11] == 0
    page.page.mouse.click(*page.point_of("canvas", 40))  # below the line: a pixel that the model draws
    assert page.levels()[40] == 0


def test_on_a_phone_a_swipe_scrolls_and_a_tap_picks(server: str, browser: Browser, watch: Watch) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    watch.follow(context.new_page())
    page = Pixels(context.pages[0], f"{server}/pixels?layer=0&head=0&pixel=35")
    for key, pixel in (("heads", 45), ("picture", 45)):
        main, point = page.page.get_by_test_id("stMain"), page.point_of(key, pixel)
        above, url = main.evaluate("main => main.scrollTop"), page.page.url
        page.swipe(point, up=90)
        page.page.wait_for_timeout(500)
        assert main.evaluate("main => main.scrollTop") > above, key
        assert page.page.url == url, key
        page.after(lambda key=key, pixel=pixel: page.page.touchscreen.tap(*page.point_of(key, pixel)))
        page.until(lambda url=url: page.page.url != url)
    context.close()
    assert not watch.errors


@pytest.mark.parametrize("query", ["causal=False", "part=write&count=50", "part=finish"])
def test_nothing_is_cut_off(pixels: Callable, query: str) -> None:
    page = pixels(query)
    assert [(look, page.cut_off()) for look in page.looks(1280) if page.sticks_out() or page.cut_off()] == []
