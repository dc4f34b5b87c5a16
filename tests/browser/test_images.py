"""The Images page in a real Chromium: words light patches, patches light words, by pointer, keys and touch."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator

from tests.browser.axe import serious
from tests.browser.explore import Explore
from tests.model.huggingface import image_families

STATE = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  const canvas = [...document.querySelectorAll('[data-testid=stBidiComponentIsolated]')]
    .map((one) => one.shadowRoot?.querySelector('.images > canvas')).find(Boolean);
  if (app?.dataset.testScriptState !== 'notRunning' || !canvas?.viewer?.image.naturalWidth) return null;
  return JSON.stringify([location.search, canvas.toDataURL(), document.querySelector('.sentence')?.innerText]);
}"""


class Images(Explore):
    """The page at its address, once it has settled."""

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
        """A point of the picture, in shares of its sides, on the screen."""
        canvas = self.page.locator(".images > canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        assert box is not None
        return box["x"] + x * box["width"], box["y"] + y * box["height"]


class AnotherModel(Images):
    """With the sidebar's box for an image, and nothing to see until there is one."""

    STATE = """() => {
      const app = document.querySelector('[data-testid=stApp]');
      const box = document.querySelector('input[type=file]');
      return app?.dataset.testScriptState === 'notRunning' && box ? location.search : null;
    }"""


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
    x, y = page.at(0.25, 0.3)
    tap = {"pointerType": "touch", "clientX": x, "clientY": y, "bubbles": True}
    page.page.locator(".images > canvas").dispatch_event("pointerdown", tap)
    page.page.locator(".images > canvas").dispatch_event("pointerleave", tap)
    assert page.why().startswith("r1 c1")
    page.after(lambda: page.page.locator(".images .every button").nth(0).click())
    assert "head=0" in page.page.url


def test_another_model_reads_an_upload_and_axe_finds_nothing(
    visit: Callable[..., AnotherModel], tmp_path: Path
) -> None:
    folder = image_families.save("idefics3", tmp_path)
    image_families.picture(120, 80).save(tmp_path / "image.png")
    page = visit(f"source=upload&model={quote(str(folder))}&shown=relative", kind=AnotherModel)
    page.page.locator("input[type=file]").set_input_files(tmp_path / "image.png")
    page.page.locator(".images > canvas").nth(1).wait_for()  # its tiles, and the whole image once more
    page.page.locator(".images .caption button").first.hover()
    assert "over the neutral prompt's" in page.why()
    page.page.locator(".images > canvas").first.hover(position={"x": 9, "y": 9})
    assert page.why().startswith("▦")
    assert [serious(page, others=look == "1280 light") for look in page.looks(1280)] == [[], []]
