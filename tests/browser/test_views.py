"""Tests of single views on a page without Streamlit: keys, focus, pins, touch, and where lines and steps begin."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, expect

import unmask
from lessons.reading import read
from model.heads.view import HeadView, cropped
from tests.browser.test_alone import TEXT, in_base64, open_widgets
from unmask.runs import Run
from viz.components import FOLDER, source
from viz.hatch import picture_uri
from viz.heads.tokens import arcs_packet, least_line, tokens_packet
from viz.html import shortened
from viz.images import images_packet
from viz.saved.standalone import Canvas


@pytest.fixture(scope="module")
def run() -> Run:
    return unmask.load("story").run(TEXT)


def takes(view: Locator, **key: Any) -> bool:
    """Whether a view handles a key itself and prevents the browser's own action."""
    prevented: bool = view.evaluate(
        """(view, key) => {
          const event = new KeyboardEvent("keydown", { ...key, bubbles: true, composed: true, cancelable: true });
          view.dispatchEvent(event);
          return event.defaultPrevented;
        }""",
        key,
    )
    return prevented


def test_a_name_is_cut_by_its_width_and_between_characters(browser: Browser) -> None:
    page = browser.new_page()
    labels = ["a" * 12, "a" * 13, "小猫看见了那", "a小猫看见了那只", "🙂" * 7]
    found = page.evaluate(
        f"labels => {{ {source('packet.js')}\nreturn labels.map((label) => axisLabel(label, 3, 1)); }}", labels
    )
    assert found == [shortened(label, 12) for label in labels]
    assert found[-1] == "🙂" * 5 + "…"
    page.close()


@pytest.mark.parametrize("view", ["overview", "heatmap", "mask", "pixels"])
def test_a_browser_s_shortcut_is_not_a_key_of_a_picture(view: str, run: Run, browser: Browser, tmp_path: Path) -> None:
    three = unmask.digit([index % 8 for index in range(64)], 3)
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
    """Where the query is outside the part that is shown."""
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


def test_what_a_key_says_of_the_queries_goes_when_it_is_left(browser: Browser, tmp_path: Path) -> None:
    """For a cross-attention whose source ends in padding."""
    padding = np.array([[False, False, False, True]] * 3)
    weights = np.where(padding, 0, np.float32(1 / 3))
    view = HeadView(weights, weights, {"padding": padding}, ["q0", "q1", "q2"], ["k0", "k1", "k2", "<pad>"])
    packet = tokens_packet(view, name="L0 H0", query=1, among=(0, 3), across=True)
    page = browser.new_page()
    open_widgets(page, tmp_path / "widget.html", Canvas("tokens", packet))
    queries, keys = (page.get_by_role("listbox").nth(number) for number in (0, 1))
    looks = "list => list.innerHTML"
    page.get_by_role("button", name="Values").click()
    page.mouse.move(0, 0)
    first = queries.evaluate(looks)
    for number in (3, 0):
        keys.get_by_role("option").nth(number).hover()
        assert queries.evaluate(looks) != first
        page.mouse.move(0, 0)
        assert queries.locator(".blocked").count() == 0
        assert queries.locator("small").all_inner_texts() == ["", "", ""]
        titles = queries.get_by_role("option").evaluate_all("all => all.map((one) => one.title)")
        assert titles == ["", "", ""]
    page.close()


def test_lines_are_lit_again_once_others_are_drawn(browser: Browser, tmp_path: Path) -> None:
    """After one was touched, which stays highlighted."""
    weights, none = np.float32([[1, 0, 0], [0.5, 0.5, 0], [0.3, 0.3, 0.4]]), np.zeros((3, 3), bool)
    view = HeadView(weights, weights, {"causal": none}, ["a", "b", "c"], ["a", "b", "c"])
    packet = arcs_packet([view], ["L0 H0"], query=1, among=(0, 3), first_token=0)
    page = browser.new_page()
    open_widgets(page, tmp_path / "widget.html", Canvas("arcs", packet))
    lines, picture = page.locator(".lines"), page.locator(".picture")
    opacities = "all => all.map((one) => Number(one.getAttribute('opacity')))"
    expect(lines.locator("path")).to_have_count(6)
    first, box = lines.locator("path").evaluate_all(opacities), lines.bounding_box()
    assert min(first) > 0.15
    tap = {"pointerType": "touch", "clientX": box["x"] + box["width"] / 2, "clientY": box["y"] + 10, "bubbles": True}
    lines.dispatch_event("pointerdown", tap)
    picture.dispatch_event("pointerleave", {"pointerType": "touch"})
    assert lines.locator("path").evaluate_all(opacities) == [1, *[0.04] * 5]
    expect(page.locator(".tip")).to_be_visible()
    page.get_by_role("slider").fill("-0.95")
    assert lines.locator("path").evaluate_all(opacities) == first
    expect(page.locator(".tip")).to_be_hidden()
    page.close()


def test_keys_come_to_the_last_row_of_tokens_which_is_shorter(browser: Browser, tmp_path: Path) -> None:
    boxes = tuple((at % 5 / 5, at // 5 / 2, at % 5 / 5 + 0.2, at // 5 / 2 + 0.5) for at in range(7))
    even, none = np.full((1, 1, 1, 7), 1 / 7, np.float32), np.zeros((1, 7), bool)
    about = {"picture": picture_uri(np.zeros((2, 5, 4), np.uint8)), "smooth": False, "head": 0, "word": 0}
    names, caption = [str(at) for at in range(7)], {"names": [str(at) for at in range(7)], "changed": [False]}
    packet = images_packet(("cat",), np.ones(1), even, none, None, boxes, (), "remove", **about, **caption)
    page = browser.new_page()
    open_widgets(page, tmp_path / "widget.html", Canvas("images", packet))
    canvas, found = page.locator("canvas").first, []
    expect(canvas).to_have_attribute("aria-label", re.compile("7 patches"))
    canvas.focus()
    for key in ("Right", "Right", "Down", "Right", "Up", "Right", "Right", "Down"):
        page.keyboard.press(f"Arrow{key}")
        page.keyboard.press("Enter")
        found.append(page.evaluate("saved.at(-1)[1]"))
    assert [names[at] for at in found] == ["0", "1", "6", "6", "1", "2", "3", "6"]
    page.close()


STEPS = """---
title: T
aim: A
minutes: 1
text: x
## a note to myself
---

## One

~~~ run
text: |
  ```
  ## no step
~~~

one

## Two

```run
```

````
``` python
## no step
```
````
two
"""


def test_the_step_at_the_cursor_is_the_one_that_python_reads(browser: Browser) -> None:
    text = (FOLDER / "editor.js").read_text(encoding="utf-8")
    parts = [re.search(rf"^{begin}.*?{end}", text, re.DOTALL | re.MULTILINE) for begin, end in STEP_PARTS]
    of = "\n".join(part[0] for part in parts if part)
    page = browser.new_page()
    snippets = ["title", "a note", "One", "no step", "one", "Two", "python", "two"]
    found = [page.evaluate(f"([text, at]) => {{ {of} return stepAt(text, at); }}", [STEPS, STEPS.index(snippet) + 5])
             for snippet in snippets]  # fmt: skip
    assert found == [1, 1, 1, 1, 1, 2, 2, 2]
    assert [step.title for step in read(STEPS).steps] == ["One", "Two"]
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


STEP_PARTS = (("const BLOCK", "$"), ("function stepAt", "^}"))
PARTS = (("const MIN_LINE = ", "$"), ("function leastLine", "^}"))
