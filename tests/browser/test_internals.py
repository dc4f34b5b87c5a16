"""Tests that the undocumented parts of Streamlit's and plotly's pages exist and mean what the app assumes."""

from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, TimeoutError, expect

from tests.browser.explore import Explore
from tests.browser.heads import Heads
from tests.browser.running import ROOT, running
from tests.browser.test_every_page import KINDS
from ui.markdown import WORD_JOINER
from ui.streamlit_internals.selectors import SELECTORS
from viz.components import source

Visit = Callable[..., Any]
TEXT = "The cat sat on the mat and then it saw a big red ball"
USED = {  # page -> the selectors that its style sheet uses
    "": "block_container button_group caption checkbox column element header html layout_wrapper main markdown "
    "page_link page_link_anchor plot plot_buttons plot_shapes sidebar sidebar_content sidebar_header "
    "vertical_block widget_label",
    "mask_lab": "code number_input text_input",
    "padding": "empty primary_button",
}
LINKS = {"mask_lab": 'lang=en&masks={"sliding":4,"documents":"dog"}&section=code'}  # queries that show all of these
MISSING = "selectors => Object.keys(selectors).filter((name) => !document.querySelector(selectors[name]))"


def broken(part: str) -> str:
    names = "streamlit {}, or the plotly.js that it brings, has changed a part that we rely on: {}"
    return names.format(version("streamlit"), part)


def missing(page: Explore, names: str) -> list[str]:
    """Return the names whose selector finds nothing even after the last part of the page has had time to be drawn."""
    selectors = {name: SELECTORS[name] for name in names.split()}
    with suppress(TimeoutError):
        page.page.wait_for_function(f"selectors => !({MISSING})(selectors).length", arg=selectors, timeout=20_000)
    return page.page.evaluate(MISSING, selectors)


@pytest.mark.parametrize("path", USED)
def test_every_selector_finds_something_on_a_page_that_uses_it(visit: Visit, path: str) -> None:
    page = visit(LINKS.get(path, "lang=en"), kind=KINDS[path])
    assert missing(page, USED[path]) == [], broken("SELECTORS of ui/streamlit_internals/selectors.py")


def test_the_button_of_a_closed_sidebar_and_the_choice_of_several_are_found(visit: Visit) -> None:
    page = visit("lang=en&view=arcs&heads=1", kind=KINDS[""], width=390)
    assert missing(page, "expand_sidebar multiselect") == [], broken("SELECTORS of ui/streamlit_internals/selectors.py")
    assert {*" ".join(USED.values()).split(), "expand_sidebar", "multiselect"} == set(SELECTORS)


SHOWN = """import sys
sys.path.insert(0, {root!r})
import streamlit as st
from ui.markdown import escaped
for text in {texts!r}:
    st.button(escaped(text), key=text)
"""
TYPED = [
    "->", "<-", "a <-> b", "--", "a --- b", ">=", "x <= y ~= z", ":dog:", ":+1: and :material/home:", ":streamlit:",
    ":red[x]", "12:30:45", "- a", "# b", "*c* _d_ `e` $f$ [g](h) <i> ![j](k) &amp; \\l",
]  # fmt: skip


def test_a_text_of_somebody_is_shown_as_it_is(browser: Browser, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(SHOWN.format(root=str(ROOT), texts=TYPED), encoding="utf-8")
    with running(str(script), tmp_path / "log.txt") as address:
        page = browser.new_page()
        page.goto(address)
        buttons = page.locator("[data-testid=stMain] button")
        expect(buttons).to_have_count(len(TYPED))
        assert [text.replace(WORD_JOINER, "") for text in buttons.all_inner_texts()] == TYPED
        page.close()


def test_where_the_cells_of_a_heatmap_are_is_read_from_what_plotly_documents(visit: Visit) -> None:
    """Compared with plotly's own numbers: for all cells, which form a square, and for a part that does not."""
    for zoom in ("", "&zoom=2-9,1-4"):
        assert_axes(visit(f"text={TEXT}{zoom}", kind=Explore))


def assert_axes(page: Explore) -> None:
    found = page.chart.evaluate(
        "chart => {"
        + source("plot_axes.js")
        + """return ["x", "y"].map((letter) => {
               const [own, theirs] = [axisOf(chart, letter), chart._fullLayout[`${letter}axis`]];
               return [[own.start, own.length, own.at(-0.5), own.at(2), own.names()],
                       [theirs._offset, theirs._length, theirs.l2p(-0.5), theirs.l2p(2), theirs._categories]];
             }); }"""
    )
    for own, theirs in found:
        part = broken(
            "layout.margin, width, height, domain and range, from which viz/components/plot_axes.js works out places"
        )
        assert own[:4] == pytest.approx(theirs[:4], abs=1), part
        assert own[4] == theirs[4], part
        assert own[1] > 100


def test_tick_labels_are_measured_without_laying_out_the_page(visit: Visit) -> None:
    page, part = visit(f"text={TEXT}&view=bars", kind=Heads), broken("tickLabels of viz/components/plotly_internals.js")
    for key in ("head_figure", "head_bars"):
        labels, length, size = page.page.locator(f".st-key-{key} .js-plotly-plot").evaluate(
            f"chart => {{ {source('plotly_internals.js')}"
            "const {labels, length, size} = tickLabels(chart, 'xaxis'); return [labels.length, length, size]; }"
        )
        assert labels > 5, part
        assert length > 100, part
        assert 6 < size < 30, part
