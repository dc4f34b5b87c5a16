"""Tests of controls of every kind on every page, operated as a user does: the server accepts the values they send.

The server logs each value that it ignores; the fixture `server` checks the log at the end."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.test_every_page import KINDS, PATHS, Visit

SECTIONS = [
    'mask_lab?masks={"sliding":4,"prefix":2}', "mask_lab?section=hand", "layers?across=all", "circuits?section=weights",
    "serving?serving=tree", "serving?serving=streaming&stream_tokens=100", "serving?serving=cost",
    "compare?differs=masks",
]  # fmt: skip
MAX_CONTROLS = 2  # controls of each kind on a page
STILL = """() => document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'
  && !(window.sent > window.heard)"""


def step(control: Locator) -> None:
    control.press("ArrowUp")
    control.press("Enter")


def move(control: Locator) -> None:
    control.press("ArrowRight")


def pick(control: Locator) -> None:
    control.click()
    control.press("ArrowDown")
    control.press("Enter")
    control.press("Escape")


def fill(control: Locator) -> None:
    control.fill("3")
    control.press("Enter")


OPERATED: dict[str, Callable[[Locator], None]] = {
    "input[type=number]": step,
    "[role=slider]": move,
    "[data-testid=stMultiSelect] input": pick,
    "[data-testid=stSelectbox] input": pick,
    "[data-testid=stButtonGroup] [aria-checked=false]": Locator.click,
    "[role=radio]:not(:checked)": Locator.click,
    "input[type=text]:not([role=combobox])": fill,
    "label:has([role=switch])": Locator.click,
}


@pytest.mark.parametrize("address", [*PATHS, *SECTIONS])
def test_controls_do_what_the_page_sends(visit: Visit, address: str) -> None:
    path, _, query = address.partition("?")
    page = visit(query, kind=KINDS[path])
    for selector, operate in OPERATED.items():
        for index in range(MAX_CONTROLS):
            control = usable(page.page, selector, index)
            if control is not None:
                operate(control)
                page.page.wait_for_timeout(100)
                page.page.wait_for_function(STILL)
                assert not page.page.get_by_test_id("stException").count(), selector


def test_a_page_goes_on_after_a_run_that_ended_early(visit: Visit) -> None:
    """A rerun of its fragment alone draws what the run of the whole page did not, including the sidebar's links."""
    page = visit("differs=text", kind=KINDS["compare"]).page
    for key, text, seen in (
        ("b_text", "", page.get_by_text("expected a text for B")),
        ("text", "A cat sat down.", page.get_by_text("expected a text for B")),
        ("b_text", "A dog sat down.", page.locator(".js-plotly-plot").first),
    ):
        page.locator(f".st-key-{key} textarea").fill(text)
        page.locator(f".st-key-{key} textarea").press("Control+Enter")
        page.wait_for_timeout(300)
        page.wait_for_function(STILL)
        expect(seen).to_be_visible()


def usable(page: Page, selector: str, index: int) -> Locator | None:
    """Return the control number `index` in the main part of the page, None unless it is visible and enabled."""
    control = page.locator(f"[data-testid=stMain] {selector}").nth(index)
    return control if control.count() and control.is_visible() and control.is_enabled() else None
