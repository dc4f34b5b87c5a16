"""Tests of the Images page in Chromium: words highlight patches and patches words, by pointer, keys and touch."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator

from tests.browser.explore import Explore

STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const canvas = [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')]
    .map((one) => one.shadowRoot?.querySelector('.images > canvas')).find(Boolean);
  if (app?.dataset.testScriptState !== 'notRunning' || !canvas?.viewer?.image.naturalWidth) return null;
  return JSON.stringify([location.search, canvas.toDataURL(), document.querySelector('.sentence')?.innerText]);
}"""

FEWER_PATCHES = """({ viewer: { page, take } }) => {
  const boxes = page.boxes.slice(0, 6), cells = (page.caption.length + 1) * boxes.length;
  take({ header: { ...page, boxes }, body: new Uint8Array(cells * (4 * page.heads.length + 1)) });
}"""


class Images(Explore):
    """The Images page, once it has settled."""

    PATH = "images"
    STATE = STATE

    def word(self, number: int) -> Locator:
        return self.page.locator(".images .caption button").nth(number)

    def why(self) -> str:
        return self.page.locator(".images .why").first.inner_text()

    def light(self, number: int) -> float:
        return self.word(number).evaluate("button => Number(button.style.getPropertyValue('--light'))")

    def picture(self) -> str:
        return self.page.locator(".images > canvas").evaluate("canvas => canvas.toDataURL()")

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the screen coordinates of a point of the picture; x and y are shares of its sides, 0 to 1."""
        canvas = self.page.locator(".images > canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        return box["x"] + x * box["width"], box["y"] + y * box["height"]

    def tap(self, x: float, y: float) -> None:
        """Touch a point of the picture; x and y are shares of its sides, 0 to 1."""
        across, down = self.at(x, y)
        touch = {"pointerType": "touch", "clientX": across, "clientY": down, "bubbles": True}
        for kind in ("pointerdown", "pointerleave"):
            self.page.locator(".images > canvas").dispatch_event(kind, touch)


@pytest.fixture
def images(visit: Callable) -> Callable[..., Images]:
    return lambda query="", **more: visit(query, kind=Images, **more)


def test_pointing_at_words_and_patches_lights_the_others(images: Callable[..., Images]) -> None:
    page = images("word=-1")
    plain = page.picture()
    page.word(3).hover()
    assert page.picture() != plain
    assert page.why().startswith("“square”")
    page.page.mouse.move(*page.at(0.25, 0.3))
    assert page.why().startswith("r1 c1")
    words = page.page.locator(".images .caption button").count()
    assert max(page.light(number) for number in range(words)) == pytest.approx(1)


def test_the_word_that_is_divided_by_itself_names_no_largest_patch(images: Callable[..., Images]) -> None:
    page = images("word=0&shown=relative")
    assert page.why().endswith("is written at the prompt word: its attention is divided by itself.")
    page.word(1).hover()
    assert "its attention over the prompt's is largest at" in page.why()


def test_the_picture_keeps_its_sides_in_a_window_that_becomes_higher(images: Callable[..., Images]) -> None:
    page = images("", height=720)
    box = "canvas => [canvas.offsetWidth, canvas.offsetHeight, canvas.width]"
    before, _, _ = page.page.locator(".images > canvas").evaluate(box)
    list(page.looks(1280, height=1000, schemes=["light"]))
    width, height, painted = page.page.locator(".images > canvas").evaluate(box)
    assert width > before
    assert (height, painted) == (width, width)


def test_a_patch_is_removed_by_keys_and_a_shape_placed_by_a_click(images: Callable[..., Images]) -> None:
    page = images("mode=remove")
    page.page.locator(".images > canvas").focus()
    for key in ("ArrowRight", "ArrowRight"):
        page.page.keyboard.press(key)
    page.after(lambda: page.page.keyboard.press("Enter"))
    assert "removed=1" in page.page.url
    page = images("mode=place&colour=green&shape=cross&size=small")
    page.after(lambda: page.page.mouse.click(*page.at(0.5, 0.9)))
    assert "cross-green-small-24-43" in page.page.url


def test_a_tap_lights_words_and_a_head_is_chosen(images: Callable[..., Images]) -> None:
    page = images("", width=390, height=844)
    page.tap(0.25, 0.3)
    assert page.why().startswith("r1 c1")
    page.after(lambda: page.page.locator(".images .every button").nth(0).click())
    assert "head=0" in page.page.url


def test_a_touched_patch_stays_lit_only_where_the_next_picture_has_it(images: Callable[..., Images]) -> None:
    page = images("", width=390, height=844)
    for y, start in ((0.98, "“"), (0.02, "r0 c2")):
        page.tap(0.4, y)
        page.page.locator(".images > canvas").evaluate(FEWER_PATCHES)
        assert page.why().startswith(start)
