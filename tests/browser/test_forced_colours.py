"""Tests in a browser that forces its own colours, as Windows' contrast themes do: colours with a meaning stay."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import unmask
from tests.browser.explore import Explore
from tests.browser.test_every_page import KINDS

Visit = Callable[..., Explore]
FILLS = """selectors => {
  const roots = [document, ...[...document.querySelectorAll('*')].map(one => one.shadowRoot).filter(Boolean)];
  const fill = (one, pseudo) => { const { backgroundColor, backgroundImage } = getComputedStyle(one, pseudo);
    return `${backgroundColor} ${backgroundImage}`; };
  return Object.fromEntries(selectors.map((selector) => {
    const [name, pseudo] = selector.split('::');
    return [selector, roots.flatMap(root => [...root.querySelectorAll(name)].map(one => fill(one, pseudo)))];
  }));
}"""
SWITCH = "[data-testid=stCheckbox] label > div:first-of-type"
EXPLORE = (".tokens .token", "p.key .swatch", ".bar", ".st-key-causal label::before", SWITCH)
REPORT = (".tokens .token", ".bar", ".losses span")


def fills(page: Page, selectors: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what fills the elements of each selector."""
    page.wait_for_timeout(500)  # transitions of colours
    found: dict[str, list[str]] = page.evaluate(FILLS, list(selectors))
    assert all(found.values())
    return found


@pytest.mark.parametrize(
    ("path", "selectors"),
    [("", EXPLORE), ("padding", ("table.padded td", ".padded.swatch", ".st-key-causal label::before"))],
)
def test_colours_of_a_page(visit: Visit, path: str, selectors: tuple[str, ...]) -> None:
    page = visit("", kind=KINDS[path], anew=True).page
    given = fills(page, selectors)
    assert len(set(given[selectors[0]])) > 2
    page.emulate_media(forced_colors="active")
    assert fills(page, selectors) == given


def test_colours_of_a_report(browser: Browser, tmp_path: Path) -> None:
    path = unmask.report(unmask.load("story").run("Peter lost his hat.")).save(tmp_path / "report.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.locator(".tokens .token").first.wait_for()
    given = fills(page, REPORT)
    assert min(len(set(given[selector])) for selector in (".tokens .token", ".losses span")) > 2
    page.emulate_media(forced_colors="active")
    assert fills(page, REPORT) == given
    page.close()
