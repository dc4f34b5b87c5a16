"""Tests of the Mask Lab in Chromium: drawing, its effect on weights and links, and how the page fits windows."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from model.spec import MaskSpec, Stroke
from tests.browser.conftest import Watch
from tests.browser.lab import Lab
from viz.palette import MASK_COLOURS

Visit = Callable[..., Lab]
LINE = "The cat saw a dog and the cat ran"
FIRST, LAST = (5, 1), (7, 3)  # corners (query, key) of a rectangle of cells


MANY_MASKS = '{"causal":false,"documents":"t","stride":2,"prefix":3,"sinks":2}'


@pytest.fixture
def lab(visit: Visit) -> Callable[..., Lab]:
    def open_lab(**choices: str | int) -> Lab:
        return visit(urlencode({"text": LINE, "layer": 0, "head": 1} | choices), kind=Lab)

    return open_lab


def rectangle(size: int) -> np.ndarray:
    cells = np.zeros((size, size), bool)
    cells[FIRST[0] : LAST[0] + 1, FIRST[1] : LAST[1] + 1] = True
    return cells


def test_a_rectangle_changes_the_first_layer_in_its_rows_alone_and_a_later_one_from_there_on(lab: Callable) -> None:
    page = lab()
    before = {}
    for layer in (0, 3):
        if layer:
            page.choose("Layer", str(layer))
        before[layer] = page.weights()
    size = len(before[0])
    page.choose("Layer", "0").drag(FIRST, LAST)
    after = page.weights()
    np.testing.assert_array_equal(np.isnan(after), np.isnan(before[0]) | rectangle(size))
    rows = rectangle(size).any(1)
    np.testing.assert_array_equal(after[~rows], before[0][~rows])
    np.testing.assert_allclose(np.nansum(after, 1), 1, atol=1e-5)
    assert (np.nan_to_num(after[rows]) != np.nan_to_num(before[0][rows])).any(1).all()

    page.choose("Layer", "3")
    later = page.weights()
    np.testing.assert_array_equal(later[: FIRST[0]], before[3][: FIRST[0]])
    changed = np.abs(np.nan_to_num(later) - np.nan_to_num(before[3])).max(1)
    assert (changed[FIRST[0] :] > 1e-6).all(), f"rows from the rectangle on change by {changed[FIRST[0] :]}"


def test_a_stroke_over_tokens_and_a_click_on_a_word(lab: Callable) -> None:
    page = lab(text="Peter blew his whistle", by="words")  # <start>, four words, the last of two tokens
    before = page.weights()
    assert before.shape == (5, 5)
    page.drag((4, 2), (4, 2))
    assert np.isnan(page.weights()).sum() == 10, "one of its two tokens may still attend"
    page.drag((5, 2), (5, 2))
    assert np.isnan(page.weights()[4, 2])
    cells = page.chart.locator(".heatmaplayer image").last.bounding_box()
    page.after(lambda: page.page.mouse.click(cells["x"] + cells["width"] / 10, cells["y"] + cells["height"] * 0.9))
    assert parse_qs(urlsplit(page.page.url).query)["query"] == ["5"], "its last token"


def test_of_words_the_head_has_no_cell_of_the_mask_to_cross_and_no_query_that_keys_move(lab: Callable) -> None:
    page, cross = lab(text="Peter blew his whistle"), ".st-key-head_figure .cross"
    for by, shown in (("tokens", "block"), ("words", "none")):
        page.page.mouse.move(1, 1)
        if by == "words":
            page.after(lambda: page.page.get_by_role("radio", name="words").click())
        page.page.mouse.move(*page.point_of(4, 3))
        page.page.wait_for_function("canvas => canvas.maskEditor.cursor?.q === 4", arg=page.mask.element_handle())
        assert page.page.locator(
            ".st-key-one_head_figure:is([data-moves], [tabindex], [role=application])"
        ).count() == (by == "tokens")
        lines = page.page.locator(cross).evaluate_all("lines => lines.map((line) => line.style.display)")
        assert lines == [shown] * 2


def test_rows_are_level_where_nothing_can_be_drawn(lab: Callable) -> None:
    page = lab(masks='{"sliding":4,"layers":[4]}')
    assert not page.page.locator(".st-key-mask_canvas").get_by_text("Block", exact=True).is_visible()
    first = page.point_of(0, 0)[1]
    cells = page.chart.locator(".heatmaplayer image").last.bounding_box()
    assert first == pytest.approx(cells["y"] + cells["height"] / page.weights().shape[0] / 2, abs=2)


def test_strokes_are_taken_back_by_undo_by_clear_and_by_a_second_click(lab: Callable) -> None:
    page = lab()
    weights, tokens, before = page.weights(), page.next_tokens(), page.blocked()
    swatch = "label => getComputedStyle(label, '::before').backgroundColor"
    label = page.page.get_by_role("switch", name="Drawn", exact=True).locator("xpath=ancestor::label")
    colour = label.evaluate(swatch)
    page.drag(FIRST, LAST)
    assert label.evaluate(swatch) == colour == "rgb({}, {}, {})".format(*bytes.fromhex(MASK_COLOURS["drawn"][1:]))
    once = page.weights()
    page.drag((8, 8), (8, 8))
    assert page.blocked()[8, 8]
    page.press("Undo")
    np.testing.assert_array_equal(page.weights(), once)
    page.drag((6, 0), (6, 0)).press("Clear")
    np.testing.assert_array_equal(page.weights(), weights)
    assert page.next_tokens() == tokens
    page.press("Undo")
    assert page.blocked()[6, 0], "Clear can be undone"
    page.press("Clear").drag((4, 2), (4, 2))
    assert page.blocked()[4, 2] > before[4, 2]
    page.drag((4, 2), (4, 2))
    np.testing.assert_array_equal(page.weights(), weights)


def test_back_and_forward_take_strokes_off_the_canvas_and_put_them_on(visit: Visit) -> None:
    page = visit(urlencode({"text": LINE}), kind=Lab, anew=True)
    before = page.blocked()
    page.drag(FIRST, LAST)
    for move, cells, count in (
        (page.page.go_back, before, 0),
        (page.page.go_forward, before | rectangle(len(before)), 1),
    ):
        page.after(move)
        np.testing.assert_array_equal(page.blocked(), cells)
        assert page.mask.evaluate("canvas => canvas.maskEditor.strokes.length") == count


def test_back_and_forward_keep_a_drawing_that_is_too_long_for_a_link(visit: Visit) -> None:
    page = visit(urlencode({"text": LINE, "layer": 0, "section": "code"}), kind=Lab, anew=True)
    before, drawn = page.blocked(), MaskSpec(drawn=(Stroke("block", *FIRST, *LAST),) * 300).to_json().encode()
    mask = {"name": "mask.json", "mimeType": "application/json", "buffer": drawn}
    page.after(lambda: page.page.locator("input[type=file]").first.set_input_files(mask))
    cells, count = before | rectangle(len(before)), "canvas => canvas.maskEditor.strokes.length"
    np.testing.assert_array_equal(page.blocked(), cells)
    page.choose("Layer", "2")
    for move, layer in ((page.page.go_back, "0"), (page.page.go_forward, "2")):
        page.after(move)
        assert (page.shown("Layer"), page.mask.evaluate(count)) == (layer, 300)
        np.testing.assert_array_equal(page.blocked(), cells)
    page.press("Clear").choose("Layer", "1").after(page.page.go_back)
    assert (page.shown("Layer"), page.mask.evaluate(count)) == ("2", 0), "what was there last"


def test_a_row_a_column_and_a_cell_that_the_causal_mask_blocks_are_drawn(lab: Callable) -> None:
    page = lab()
    assert not page.page.get_by_role("button", name="Draw", exact=True).count(), "for fingers alone"
    page.take("Open").drag((2, 6), (2, 6))
    assert page.weights()[2, 6] > 0
    assert "drawn open, causal would block it" in page.why(2, 6)
    page.take("Block").drag((-1, 3), (-1, 3))
    assert page.blocked()[:, 3].all()
    page.drag((6, -1), (6, -1))
    assert page.blocked()[6].all()
    assert "nothing to attend to" in page.chart.inner_text()
    for key, row in (("r", 4), ("Enter", 5)):
        page.page.mouse.move(*page.point_of(row, -1))
        page.after(lambda key=key: page.page.keyboard.press(key))
        assert page.blocked()[row].all(), "the row that the pointer is beside"
    assert list(page.looks(1280, schemes=["dark"]))
    assert page.contrast(".annotation .bg", "fill") < 1.1, "the words have the ground of the theme before"


def test_a_drag_that_leaves_the_cells_ends_at_their_edge(lab: Callable) -> None:
    page = lab().toggle("Causal")
    page.drag((8, 2), (-1, 4)).drag((4, 7), (6, 11)).drag((1, -1), (2, 5))
    cells = np.zeros((10, 10), bool)
    cells[8:, 2:5] = cells[4:7, 7:] = cells[1:3] = True
    np.testing.assert_array_equal(page.blocked(), cells)


def test_what_is_drawn_over_a_drawing_that_is_switched_off_is_undone_down_to_it(lab: Callable) -> None:
    page = lab().drag(FIRST, LAST)
    below = page.blocked()
    page.toggle("Drawn").drag((8, 8), (8, 8))
    both = page.blocked()
    assert both[8, 8]
    assert both[FIRST]
    page.press("Undo")
    np.testing.assert_array_equal(page.blocked(), below)


def test_zooming_in_shows_that_part_of_the_mask_too_and_stays_when_a_mask_is_flipped(lab: Callable) -> None:
    page = lab(zoom="5-8,1-3")
    whole = ~np.tri(12, dtype=bool)
    assert page.blocked().shape == (4, 3)
    page.drag((1, 2), (2, 2))  # queries 6 and 7, key 3, counted from 0 in the text
    cells = np.zeros((4, 3), bool)
    cells[1:3, 2] = True
    np.testing.assert_array_equal(page.blocked(), whole[5:9, 1:4] | cells)
    assert "6: " in page.why(1, 2)
    assert "attends to 3: " in page.why(1, 2)
    page.toggle("Causal")
    np.testing.assert_array_equal(page.blocked(), cells)
    spec = MaskSpec.from_json(parse_qs(urlsplit(page.page.url).query)["masks"][0])
    assert [(one.query, one.key, one.last_query, one.last_key) for one in spec.drawn] == [(6, 3, 7, 3)]
    assert "zoom=5-8" in page.page.url


def test_every_blocked_cell_names_all_that_blocks_it(lab: Callable) -> None:
    page = lab(masks='{"sliding":3}').drag((1, 7), (1, 7))
    assert "blocked by causal, sliding and drawn" in page.why(1, 7)
    assert "blocked by sliding" in page.why(7, 1)
    assert page.why(4, 3).endswith("allowed")


def test_the_keyboard_draws_too(lab: Callable) -> None:
    page = lab()

    def draw() -> None:
        page.mask.focus()
        for key in ("ArrowDown",) * 3 + ("ArrowRight",) + ("Shift+ArrowDown", "Shift+ArrowRight", "Enter"):
            page.page.keyboard.press(key)

    page.after(draw)
    expected = np.triu(np.ones_like(page.blocked()), 1)
    expected[3:5, 1:3] = True
    np.testing.assert_array_equal(page.blocked(), expected)
    page.after(lambda: page.page.keyboard.press("u"))
    np.testing.assert_array_equal(page.blocked(), np.triu(np.ones_like(page.blocked()), 1))

    page.page.mouse.move(*page.point_of(2, 1))
    page.page.keyboard.press("Shift+ArrowDown")
    page.page.mouse.move(0, 0)  # off the canvas: the rectangle that was begun is discarded
    page.page.keyboard.press("ArrowDown")
    page.after(lambda: page.page.keyboard.press("Enter"))
    expected = np.triu(np.ones_like(expected), 1)
    expected[1, 0] = True
    np.testing.assert_array_equal(page.blocked(), expected)


def test_the_keyboard_chooses_the_query_on_the_mask_and_moves_it_on_the_head(lab: Callable) -> None:
    page = lab()
    cells = page.blocked()
    page.mask.focus()
    for _ in range(4):
        page.page.keyboard.press("ArrowDown")
    page.after(lambda: page.page.keyboard.press("q"))
    assert page.shown("Query").startswith("4: ")
    heatmap = page.page.locator(".st-key-one_head_figure")
    heatmap.focus()
    for query in ("5", "6"):
        page.after(lambda: page.page.keyboard.press("ArrowDown"))
        assert page.shown("Query").startswith(f"{query}: ")
        assert heatmap.evaluate("one => one === document.activeElement"), "the rerun took the keyboard"
    assert page.mask.evaluate("canvas => [canvas.maskEditor.mask.query, canvas.maskEditor.cursor.q]") == [6, 4]
    np.testing.assert_array_equal(page.blocked(), cells)


def test_on_a_phone_a_swipe_scrolls_and_draws_once_draw_is_pressed(server: str, browser: Browser, watch: Watch) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    watch.follow(context.new_page())
    page = Lab(context.pages[0], f"{server}/mask_lab?{urlencode({'text': LINE})}")
    main, draw = page.page.get_by_test_id("stMain"), page.page.get_by_role("button", name="Draw", exact=True)
    before, above = page.blocked(), main.evaluate("main => main.scrollTop")
    page.swipe(page.point_of(9, 1), up=90)
    page.page.wait_for_timeout(500)
    assert main.evaluate("main => main.scrollTop") > above
    assert page.mask.evaluate("canvas => canvas.maskEditor.strokes.length") == 0
    assert "attends to 1: " in page.page.locator(".st-key-mask_canvas .why").inner_text()
    draw.tap()
    above = main.evaluate("main => main.scrollTop")
    page.after(lambda: page.swipe(page.point_of(9, 1), up=60))
    drawn = page.blocked() & ~before
    assert drawn[:, 1].sum() == drawn.sum() > 1
    assert main.evaluate("main => main.scrollTop") == above
    strokes = "canvas => canvas.maskEditor.strokes.length"
    count = page.mask.evaluate(strokes)
    for distance in (0, 64):
        page.pinch(page.point_of(2, 1), page.point_of(8, 8), distance)
        assert page.mask.evaluate(strokes) == count, "two fingers draw nothing"
    page.page.wait_for_function("() => visualViewport.scale > 1.1")
    context.close()
    assert not watch.elsewhere
    assert not watch.errors


def test_nothing_is_cut_off(visit: Visit) -> None:
    masks = '{"sliding":4,"sinks":2,"documents":"dog","stride":2,"prefix":3}'
    page = visit(urlencode({"text": LINE, "masks": masks}), kind=Lab)
    for look in page.looks(1280, 1920, schemes=["light"]):
        assert not page.sticks_out(), look
        assert not page.cut_off(), look
        assert not page.overlaps([".st-key-mask_canvas", ".st-key-head_figure", ".counts", ".formula"]), look


@pytest.mark.parametrize("given", [{"causal": "false"}, {"masks": '{"drawn":[["open",4,14,4,14]]}'}])
def test_what_a_leak_does_takes_three_lines_at_most(visit: Visit, given: dict[str, str]) -> None:
    sentence = visit(urlencode(given | {"query": "4"}), kind=Lab).page.locator(".sentence").first
    height, line = sentence.evaluate("one => [one.offsetHeight, parseFloat(getComputedStyle(one).lineHeight)]")
    assert "leaked" in sentence.inner_text()
    assert "Mean loss" in sentence.inner_text()
    assert height < 3.5 * line


@pytest.mark.parametrize(("masks", "lang"), [("", "zh"), (MANY_MASKS, "en")])
def test_both_pictures_fit_a_projector_s_first_view_and_use_their_columns(visit: Visit, masks: str, lang: str) -> None:
    page = visit(urlencode({"masks": masks, "lang": lang}), kind=Lab, height=720)
    tokens = page.chart.locator(".xtick text").last.bounding_box()
    assert tokens["y"] + tokens["height"] <= 720
    page.page.mouse.move(*page.point_of(5, 2))
    assert page.page.locator(".st-key-mask_canvas .why").bounding_box()["y"] > 0, "nothing had to be scrolled"
    if masks:
        return
    last = page.mask.evaluate("canvas => canvas.maskEditor.mask.height") - 1
    for width, height in ((1280, 720), (1920, 1080)):
        assert list(page.looks(width, height=height, schemes=["light"]))
        first_cell, last_cell = page.point_of(0, 0), page.point_of(last, last)  # scrolls to the mask
        left, top, side = page.chart.evaluate("""chart => {
          const cells = chart.querySelector('.heatmaplayer image').getBoundingClientRect();
          return [cells.left, cells.top, cells.width];
        }""")
        assert side >= 0.245 * width
        assert first_cell[0] + side < left, "side by side"
        assert last_cell[0] - first_cell[0] == pytest.approx(side * last / (last + 1), abs=2), "cells of one size"
        assert first_cell[1] == pytest.approx(top + side / (last + 1) / 2, abs=2), "rows at one height"


def test_what_was_typed_in_a_section_is_there_when_it_is_come_back_to(lab: Callable) -> None:
    page = lab(section="hand")

    def section(name: str) -> None:
        page.after(lambda: page.page.locator("[class*=st-key-section]").get_by_text(name, exact=True).click())

    stages = page.page.locator(".stages")
    first = stages.inner_text()
    page.page.locator(".st-key-hand_q .dvn-scroller").click(position={"x": 100, "y": 50})  # the first number
    page.page.keyboard.press("Enter")
    number = page.page.locator("#portal input")
    number.fill("3")
    number.press("Enter")
    expect(stages).not_to_have_text(first, use_inner_text=True)
    edited = stages.inner_text()
    section("Name a mask")
    box = page.page.get_by_role("textbox", name="Mask", exact=True)
    box.fill("[[1,0],[1,1]]")
    box.press("Control+Enter")
    page.page.locator(".st-key-named").wait_for()
    section("Compute by hand")
    expect(stages).to_have_text(edited, use_inner_text=True)
    assert page.is_on("Causal mask")
    section("Name a mask")
    assert box.input_value() == "[[1,0],[1,1]]"


def test_rows_of_the_mask_are_level_with_those_of_the_head_beside_it_at_every_width(lab: Callable) -> None:
    page = lab(by="words")
    for look in page.looks(1280, 1024, schemes=["light"]):
        top = page.chart.locator(".nsewdrag").first.bounding_box()["y"]
        room = page.mask.evaluate("canvas => canvas.maskEditor.mask.room.t")
        assert top == pytest.approx(page.mask.bounding_box()["y"] + room, abs=1), look
