"""Tests that a user who continues before the server's answer arrives, as on a slow connection, loses no action."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from model.spec import MaskSpec
from tests.browser.explore import Explore
from tests.browser.heads import Heads
from tests.browser.lab import Lab
from tests.browser.slow_line import SlowLine
from tests.browser.test_mask_lab import LINE

Visit = Callable[..., Any]
CELLS = [(4, 0), (5, 1), (6, 2)]


def unheard(page: Explore, *actions: Callable[[], object]) -> None:
    """Run these in turn; the server answers each, but the page receives an answer only after the next action."""

    def act() -> None:
        with SlowLine(page.page) as line:
            for action in actions:
                action()
                line.wait()

    page.after(act)


def linked(page: Explore, choice: str) -> str:
    (value,) = parse_qs(urlsplit(page.page.url).query)[choice]
    return value


def flip(page: Explore) -> None:
    """Lift the causal mask."""
    switch = page.page.get_by_role("switch", name="Causal", exact=True)
    switch.locator("xpath=ancestor::label").click(position={"x": 18, "y": 10})


def strokes(page: Lab) -> list[Callable[[], object]]:
    return [lambda cell=cell: page.page.mouse.click(*page.point_of(*cell)) for cell in CELLS]


def drawn(page: Lab) -> list[tuple[int, int]]:
    return [(one.query, one.key) for one in MaskSpec.from_json(linked(page, "masks")).drawn]


def test_every_stroke_of_a_drawing_is_kept(visit: Visit) -> None:
    page = visit(urlencode({"text": LINE}), kind=Lab)
    unheard(page, *strokes(page))
    assert drawn(page) == CELLS
    assert all(page.blocked()[cell] for cell in CELLS)


def test_and_of_one_over_a_drawing_that_is_switched_off(visit: Visit) -> None:
    page = visit(urlencode({"text": LINE}), kind=Lab).drag((8, 8), (8, 8)).toggle("Drawn")
    unheard(page, *strokes(page))
    assert drawn(page) == [(8, 8), *CELLS]
    for _ in CELLS:
        page.press("Undo")
    assert drawn(page) == [(8, 8)]


def test_a_query_moved_by_keys_goes_on_from_where_they_led_and_stays_when_a_mask_is_flipped(visit: Visit) -> None:
    page = visit(urlencode({"text": LINE, "query": 8}))
    page.page.locator("[data-moves]").first.focus()
    up = [lambda: page.page.keyboard.press("ArrowUp")] * 3
    unheard(page, *up, lambda: flip(page))
    assert (linked(page, "query"), linked(page, "causal")) == ("5", "false")
    assert page.shown("Query").startswith("5: ")


def test_a_head_chosen_in_the_overview_stays_when_a_mask_is_flipped(visit: Visit) -> None:
    page = visit(urlencode({"text": LINE}))
    box = page.canvas.bounding_box()
    point = box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.2
    unheard(page, lambda: page.page.mouse.click(*point), lambda: flip(page))
    assert (linked(page, "layer"), linked(page, "head"), linked(page, "causal")) == ("0", "1", "false")
    assert (page.shown("Layer"), page.shown("Head")) == ("0", "1")


def test_a_picture_that_the_browser_drops_before_the_answer_arrives_is_sent_again(visit: Visit) -> None:
    """Streamlit's frontend removes a message after two runs without it; it asks for the next run before that."""
    page = visit(urlencode({"text": LINE})).toggle("Causal").toggle("Causal")
    point = page.canvas.bounding_box()["x"] + 60, page.canvas.bounding_box()["y"] + 30
    unheard(page, lambda: page.page.mouse.click(*point), lambda: flip(page))
    assert linked(page, "causal") == "false"
    assert page.page.get_by_test_id("stApp").get_attribute("data-test-connection-state") == "CONNECTED"


def test_every_token_that_is_pinned_stays_so(visit: Visit) -> None:
    page = visit(urlencode({"text": LINE, "view": "tokens", "query": 3}), kind=Heads)
    page.page.locator(".st-key-head_tokens .text").focus()
    keys = [
        lambda key=key: page.page.keyboard.press(key) for key in ("Enter", "ArrowRight", "Enter", "ArrowRight", "Enter")
    ]
    unheard(page, *keys)
    assert linked(page, "pins") == "3,4,5"
