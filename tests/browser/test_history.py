"""Tests of Back, Forward, and clicks and zooms on the large heatmap, in Chromium."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlencode, urljoin

import numpy as np
import pytest
from playwright.sync_api import Error, Page

from tests.benchmarks.page import SETTLED
from tests.browser.explore import Explore
from tests.browser.test_every_page import KINDS

Visit = Callable[..., Explore]
LINE = "Once upon a time there was"
OPENED = urlencode({"text": LINE, "layer": 2, "head": 3})


def test_back_and_forward_undo_and_redo_choices(visit: Visit) -> None:
    page = visit(OPENED, anew=True)
    first = page.weights()
    lifted = page.toggle("Causal").weights()
    assert not np.array_equal(first, lifted, equal_nan=True)
    other = page.choose("Head", "4").weights()
    page.page.go_back()
    wait_for(page, lifted)
    assert page.shown("Head") == "3"
    page.page.go_back()
    wait_for(page, first)
    assert page.is_on("Causal")
    page.page.go_forward()
    wait_for(page, lifted)
    page.page.go_forward()
    wait_for(page, other)
    assert not page.is_on("Causal")
    assert page.page.get_by_role("textbox", name="Text, one sequence per line").input_value() == LINE


def test_forward_brings_a_typed_text_again_after_a_link_with_another(visit: Visit) -> None:
    page = visit(OPENED, anew=True)
    first, box = page.weights(), page.page.get_by_role("textbox", name="Text, one sequence per line")
    box.fill("A red hen sat.")
    page.after(lambda: box.press("Control+Enter"))
    typed = page.weights()
    assert typed.shape != first.shape
    page.page.go_back()
    wait_for(page, first)
    assert box.input_value() == LINE
    page.page.go_forward()
    wait_for(page, typed)
    assert box.input_value() == "A red hen sat."


def test_back_leaves_a_page_at_the_first_press(visit: Visit) -> None:
    opened = visit(OPENED, anew=True).page  # tests reuse this tab, and a history has 50 entries at most
    page = Explore(opened.context.new_page(), opened.url).page
    before = page.evaluate("history.length")
    page.locator(".st-key-nav a", has_text="Mask Lab").click()
    page.wait_for_function("() => location.pathname === '/mask_lab' && location.search.includes('head=3')")
    assert page.evaluate("history.length") == before + 1
    page.go_back()
    page.wait_for_function("() => document.title.endsWith('Explore') && location.search.includes('head=3')")
    page.close()


@pytest.mark.parametrize("address", ["/bug_clinic", "/?layer=99&head=1"])
def test_back_leaves_a_page_that_wrote_its_address_at_the_first_press(visit: Visit, address: str) -> None:
    """On a warm server Streamlit writes the address before it draws the first element."""
    with opened(visit, address) as page:
        page.wait_for_function("() => location.search.includes('layer=') && !location.search.includes('99')")
        page.go_back()
        page.wait_for_url("about:blank")


def test_back_goes_a_step_of_a_lesson_back_whatever_was_answered(visit: Visit) -> None:
    with opened(visit, "/lessons?lesson=causal_mask&step=2") as page:
        page.locator(".st-key-answer_0 button").click()
        page.wait_for_function("() => location.search.includes('answers=2-')")
        page.locator(".st-key-next button").click()
        page.wait_for_function("() => location.search.includes('step=3')")
        page.go_back()
        page.wait_for_function("() => location.search.includes('step=2')")
        page.go_back()
        page.wait_for_url("about:blank")


@contextmanager
def opened(visit: Visit, address: str) -> Iterator[Page]:
    """Yield a new tab that went from an empty page to an address of this server. It is closed afterwards: it would hide
    the tab of the next tests, and nothing is drawn in a hidden tab."""
    known = visit(OPENED, anew=True).page
    page = known.context.new_page()
    try:
        page.goto(urljoin(known.url, address))
        page.wait_for_function(SETTLED)
        page.wait_for_function("() => window.pushAddress")  # set by history.js, which runs after the address is written
        yield page
    finally:
        page.close()


def test_a_link_to_explore_opens_it_in_a_new_tab_too(visit: Visit) -> None:
    page = visit("", kind=KINDS["mask_lab"]).page
    with page.context.expect_page() as opened:
        page.locator(".st-key-nav a", has_text="Explore").click(button="middle")
    opened.value.wait_for_function("() => document.title.endsWith('Explore') && location.pathname === '/'")
    opened.value.close()


def test_a_click_on_a_cell_chooses_its_query(visit: Visit) -> None:
    page = visit(OPENED, anew=True)
    before = page.page.locator("table.next").inner_text()
    page.after(lambda: click(page, row=3, column=1))
    assert page.shown("Query").startswith("3:")
    assert "query=3" in page.page.url
    assert page.page.locator("table.next").inner_text() != before
    page.toggle("Causal")
    assert page.shown("Query").startswith("3:"), "the chart is another after a flip; its clicks are heard as well"
    page.after(lambda: click(page, row=5, column=0))
    assert page.shown("Query").startswith("5:")


def wait_for(page: Explore, weights: np.ndarray) -> None:
    """Wait until the large heatmap shows these weights: the address changes before the page does."""
    for _ in range(240):
        with suppress(Error):  # the chart is being replaced
            if np.array_equal(page.weights(), weights, equal_nan=True):
                return
        page.page.wait_for_timeout(250)
    np.testing.assert_array_equal(page.weights(), weights)


def click(page: Explore, row: int, column: int) -> None:
    """Click the centre of a cell of the large heatmap."""
    point = page.chart.evaluate(
        "(chart, [row, column]) => { const { xaxis, yaxis } = chart._fullLayout;"
        " return { x: xaxis._offset + xaxis.l2p(column), y: yaxis._offset + yaxis.l2p(row) }; }",
        [row, column],
    )
    page.chart.click(position=point)


def test_zooming_in_shows_that_part_alone_and_stays_when_a_mask_is_flipped(visit: Visit) -> None:
    page = visit(OPENED, anew=True)
    whole = page.weights()
    page.after(lambda: drag(page, (3, 1), (5, 3)))
    part = page.weights()
    np.testing.assert_array_equal(part, whole[3:6, 1:4])
    assert "zoom=3-5%2C1-3" in page.page.url
    lifted = page.toggle("Causal").weights()
    assert lifted.shape == part.shape
    assert not np.isnan(lifted).any()
    page.after(lambda: page.page.get_by_role("button", name="Show all").click())
    assert page.weights().shape == whole.shape


def drag(page: Explore, begin: tuple[int, int], end: tuple[int, int]) -> None:
    """Drag from within one cell (row, column) of the large heatmap to within another."""
    box = page.chart.bounding_box()
    assert box is not None
    corners = page.chart.evaluate(
        "(chart, cells) => cells.map(([row, column]) => { const { xaxis, yaxis } = chart._fullLayout;"
        " return [xaxis._offset + xaxis.l2p(column), yaxis._offset + yaxis.l2p(row)]; })",
        [list(begin), list(end)],
    )
    (left, top), (right, bottom) = corners
    page.page.mouse.move(box["x"] + left, box["y"] + top)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + right, box["y"] + bottom, steps=7)
    page.page.mouse.up()
