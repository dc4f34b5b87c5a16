"""Views alone, in a page without Streamlit: keys, focus, pins, and where lines begin."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, expect

import unmask
from model.heads.view import cropped
from tests.browser.test_alone import TEXT, in_base64, open_widgets
from unmask.runs import Run
from viz.components import FOLDER
from viz.heads.tokens import least_line, tokens_packet
from viz.saved.standalone import Canvas


@pytest.fixture(scope="module")
def run() -> Run:
    return unmask.load("story").run(TEXT)


def takes(place: Locator, **key: Any) -> bool:
    """Whether a view takes a key for itself, so that the browser does nothing with it."""
    prevented: bool = place.evaluate(
        """(place, key) => {
          const event = new KeyboardEvent("keydown", { ...key, bubbles: true, composed: true, cancelable: true });
          place.dispatchEvent(event);
          return event.defaultPrevented;
        }""",
        key,
    )
    return prevented


@pytest.mark.parametrize("view", ["overview", "heatmap", "mask", "pixels"])
def test_a_browser_s_shortcut_is_not_a_key_of_a_picture(view: str, run: Run, browser: Browser, tmp_path: Path) -> None:
    three = unmask.digit([place % 8 for place in range(64)], 3)
    shown = {
        "overview": run.heads(),
        "heatmap": run.head(4, 0),
        "mask": run.mask(4, 0),
        "pixels": three.pixels(1, 1, 20),
    }
    page = browser.new_page()
    open_widgets(page, tmp_path / "widget.html", shown[view].canvas())
    canvas = page.locator("canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile("."))
    page.wait_for_timeout(300)
    for key in ("r", "c", "u", "q", "ArrowLeft", "Enter"):
        for held in ("ctrlKey", "metaKey", "altKey"):
            assert not takes(canvas, key=key, **{held: True}), (key, held)
    assert page.evaluate("saved.length") == 0
    assert takes(canvas, key="ArrowDown")
    assert takes(canvas, key="z", ctrlKey=True) == (view == "mask")
    page.close()


def test_what_is_pinned_is_what_the_button_names(run: Run, browser: Browser, tmp_path: Path) -> None:
    """Where the query is not in the part that is shown."""
    part = cropped(run.head(4, 0).view, (2, 9), (0, 9))
    last = len(run.labels) - 1
    page = browser.new_page()
    open_widgets(
        page,
        tmp_path / "widget.html",
        Canvas("tokens", tokens_packet(part, name="L4 H0", query=last, among=(2, 9))),
    )
    page.get_by_role("button", name=re.compile("^Pin 8: ")).click()
    assert page.evaluate("saved.at(-1)") == ["pins", "8"]
    expect(page.get_by_role("button", name=re.compile("^Unpin 8: ")).first).to_be_visible()
    page.locator(".text").first.press("Enter")
    assert page.evaluate("saved.at(-1)") == ["pins", ""]
    page.close()


@pytest.mark.parametrize(("view", "control"), [("arcs", "input[type=range]"), ("tokens", ".tools button >> nth=1")])
def test_a_control_keeps_the_focus_when_the_page_answers(
    view: str, control: str, run: Run, browser: Browser, tmp_path: Path
) -> None:
    shown = {"arcs": run.arcs(4, [0]), "tokens": run.tokens(4, 0)}[view].canvas()
    page = browser.new_page()
    open_widgets(page, tmp_path / "widget.html", shown)
    page.locator(control).focus()
    before = page.locator(control).element_handle()
    page.evaluate("text => models[0].update(text)", in_base64(shown.packet))
    page.wait_for_function("one => !one.isConnected", arg=before)
    expect(page.locator(control)).to_be_focused()
    page.close()


def test_lines_begin_at_the_same_weight_as_in_python(browser: Browser) -> None:
    text = (FOLDER / "live_views.js").read_text(encoding="utf-8")
    parts = [re.search(rf"^{begin}.*?{end}", text, re.DOTALL | re.MULTILINE) for begin, end in PARTS]
    of = "\n".join(part[0] for part in parts if part)
    page, draw = browser.new_page(), np.random.default_rng(0)
    for rows in (1, 2, 7, 15, 31):
        even = np.full((rows, rows), 1 / rows)
        for weights in (even, *(draw.dirichlet(np.full(rows, spread), rows) for spread in (9, 1, 0.01))):
            given = weights.astype(np.float32)
            found = page.evaluate(
                f"([weights, rows]) => {{ {of} return leastLine(new Float32Array(weights), rows); }}",
                [given.ravel().tolist(), rows],
            )
            assert found == pytest.approx(least_line(SimpleNamespace(weights=given, queries=["a"] * rows)), rel=1e-6)
    page.close()


PARTS = (("const LEAST_LINE = ", "$"), ("function leastLine", "^}"))
