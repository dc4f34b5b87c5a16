"""Tests of Explore in Chromium, against the running app: what a user sees change, clicks, types and links to.

One server and one browser serve every test; tests/browser/conftest.py says which Chromium. Every test also fails when
the page sends a request to another machine, or when the browser logs an error.
"""

import re
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Watch
from tests.browser.explore import Explore
from viz.heatmap import colour_range
from viz.palette import sequential, stops

Visit = Callable[..., Explore]

LINE = "The cat saw a dog and the cat ran"
LINES = "Once upon a time\nThe little girl ran down the hill and over the bridge"
PARTS = [
    "h3",
    ".sentence",
    *(f".st-key-{key}" for key in ("causal", "padding", "scope", "layer_0", "head_0", "overview")),
]
PARTS += [".st-key-head_figure", "table.next", ".st-key-loss_figure", "table.numbers:not(.next)"]
WORDS = [
    *((words, "color") for words in (".sentence", ".key", "td.token", "th", "[data-testid=stCaptionContainer] p")),
    *((f".st-key-head_figure {words} text", "fill") for words in (".ytick", ".g-xtitle", ".g-ytitle", ".colorbar")),
]
NEAR = 3  # of 255: the browser and plotly round a colour differently


def query(**choices: str | int) -> str:
    return urlencode(choices)


def assert_colours(found: np.ndarray, expected: np.ndarray) -> None:
    """Assert that two arrays of colours, [..,3] with values 0 to 255, agree within NEAR."""
    difference = np.abs(found.astype(int) - expected.astype(int)).max()
    assert difference <= NEAR, f"a colour is {difference} of 255 away from its weight's"


def scale_colours(weights: np.ndarray, zmax: float) -> np.ndarray:
    """Return float [..,3]: the colours that plotly should give to these weights."""
    stops, colours = zip(*sequential(), strict=True)
    triples = np.array([[int(part) for part in re.findall(r"\d+", str(colour))] for colour in colours])
    return np.stack([np.interp(weights / zmax, stops, triples[:, part]) for part in range(3)], axis=-1)


class TestSwitches:
    @pytest.mark.parametrize(
        ("switch", "text", "parameter"), [("Causal", LINE, "causal"), ("Padding", LINES, "padding")]
    )
    def test_one_changes_every_picture_and_back(self, visit: Visit, switch: str, text: str, parameter: str) -> None:
        page = visit(query(text=text))
        weights, cells, thumbnails = page.weights(), page.cells(), page.thumbnails()
        tokens = page.next_tokens()

        page.toggle(switch)
        freed = np.isnan(weights) & ~np.isnan(page.weights())
        assert freed.sum() >= len(weights)
        assert_colours(page.cells()[freed], scale_colours(page.weights()[freed], self.shared_range(page)))
        moved = np.abs(page.cells()[freed].astype(int) - cells[freed]).max(-1)
        assert (moved > 20).mean() > 0.9, "a freed cell should look unlike a hatched one"
        small = thumbnail(page, *page.head(), len(weights))
        assert_colours(small[freed], palette_colours(page.weights()[freed]))
        assert page.next_tokens() != tokens
        assert re.search(r"[1-9]\d*\.\d%", page.leaks()), "no share that is not 0"
        assert not page.is_on(switch)
        assert parse_qs(urlsplit(page.page.url).query)[parameter] == ["false"]

        page.toggle(switch)
        np.testing.assert_array_equal(page.weights(), weights)
        np.testing.assert_array_equal(page.thumbnails(), thumbnails)
        assert page.next_tokens() == tokens

    @staticmethod
    def shared_range(page: Explore) -> float:
        """Return the colour range of both heatmaps, set by the largest weight of either."""
        largest = page.chart.evaluate(
            """chart => Math.max(...chart._fullData.filter(trace => trace.name === 'weights')
                 .flatMap(trace => Array.from(trace.z, row => Array.from(row)).flat().filter(z => !isNaN(z))))"""
        )
        return colour_range(np.array([largest], np.float32))


class TestChoosingAHead:
    def test_a_click_on_a_thumbnail(self, visit: Visit) -> None:
        page = visit(query(text=LINE, layer=0, head=0))
        before, (layers, heads) = page.weights(), page.grid()
        page.canvas.hover(position=page.point_of(2, 1))
        name = page.page.locator(".st-key-overview [aria-live]")
        assert re.findall(r"\d+", name.inner_text().partition(":")[0]) == ["2", "1"]  # its pattern may follow
        assert page.head() == (0, 0), "pointing names a head and does not choose it"

        page.after(lambda: page.canvas.click(position=page.point_of(layers - 1, heads - 2)))
        assert page.head() == (layers - 1, heads - 2)
        assert f"L{layers - 1} H{heads - 2}" in page.page.locator("h3").inner_text()
        assert not np.array_equal(page.weights(), before, equal_nan=True)
        page.after(lambda: page.canvas.click(position=page.point_of(1, 2)))
        assert page.head() == (1, 2)

    def test_the_select_boxes_move_the_frame_of_the_overview_and_arrow_keys_choose(self, visit: Visit) -> None:
        page = visit(query(text=LINE, layer=0, head=0))
        weights, thumbnails = page.weights(), page.thumbnails()
        page.choose("Head", "3")
        moved = np.argwhere((page.thumbnails() != thumbnails).any(-1))
        left, right = page.point_of(0, 0)["x"], page.point_of(0, 3)["x"]
        assert moved[:, 0].max() < page.point_of(1, 0)["y"], "only the frame in the first row may change"
        assert moved[:, 1].min() < left < right < moved[:, 1].max()
        assert not np.array_equal(page.weights(), weights, equal_nan=True)

        def press(*keys: str) -> None:
            page.canvas.focus()
            for key in (*keys, "Enter"):
                page.page.keyboard.press(key)

        press("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowLeft")
        page.until(lambda: page.head() == (2, 2))
        press(*["ArrowUp"] * 4, *["ArrowLeft"] * 4)
        page.until(lambda: page.head() == (0, 0))  # arrow keys stop at the edge


class TestRoom:
    @pytest.mark.parametrize(("width", "height"), [(1280, 720), (1280, 1000), (1920, 1080)])
    def test_the_picture_keeps_its_size_when_compared(self, visit: Visit, width: int, height: int) -> None:
        page = visit(query(text=LINE), width=width, height=height)
        room = """chart => {
          const {xaxis, yaxis} = chart._fullLayout, box = chart.getBoundingClientRect();
          return [box.left + xaxis._offset, box.top + yaxis._offset, xaxis._length, yaxis._length];
        }"""
        alone = page.chart.evaluate(room)
        page.toggle("Causal")
        compared = page.chart.evaluate(room)
        assert compared == pytest.approx(alone, abs=1)
        _, top, wide, tall = alone
        assert wide == pytest.approx(tall, abs=1)
        assert wide >= min(0.45 * height, 0.27 * width)
        assert top + tall <= height
        small = page.chart.evaluate("chart => [2, 3].flatMap(n => [chart._fullLayout['xaxis' + n]._length, "
                                    "chart._fullLayout['yaxis' + n]._length])")  # fmt: skip
        assert small == pytest.approx([small[0]] * 4, abs=2)

    def test_on_a_phone_a_comparison_is_whole_and_what_takes_things_away_is_as_large_as_a_finger_needs(
        self, visit: Visit
    ) -> None:
        page = visit("causal=false&view=arcs&heads=1", width=360, height=844)
        room = page.page.locator(".st-key-pair_head_figure")
        assert room.evaluate("room => room.scrollWidth - room.clientWidth") <= 0, "its colour bars' numbers are seen"
        for button in (".st-key-start_close button", "[data-tag] button"):
            box = page.page.locator(button).last.bounding_box()
            assert min(box["width"], box["height"]) >= 24, button

    def test_what_to_try_takes_one_line_beside_a_scroll_bar_too(self, visit: Visit) -> None:
        page = visit(query(text=LINE), width=1274)  # 6 pixels for a scroll bar, which headless Chromium hides
        line = page.page.locator(".st-key-start > div")
        middles = [box["y"] + box["height"] / 2 for part in line.all() if (box := part.bounding_box())["height"]]
        assert len(middles) == 6
        assert middles == pytest.approx([middles[0]] * 6, abs=8)

    def test_an_example_is_read_after_a_click_on_the_page(self, visit: Visit) -> None:
        page = visit().toggle("Causal")
        box = page.page.get_by_role("textbox", name="Text, one sequence per line")
        before = box.input_value()
        page.choose("Examples", "A list")
        assert box.input_value() != before

    @pytest.mark.parametrize("held", [0, 80], ids=["tapped", "clicked"])  # ms; a tap alone opens no page in Streamlit
    @pytest.mark.parametrize("linked", ["", "The fox saw the hen."])
    def test_a_typed_text_is_kept_by_a_click_on_another_page_at_once(
        self, visit: Visit, linked: str, held: int
    ) -> None:
        page = visit(query(text=linked) if linked else "", anew=True)
        box = page.page.get_by_role("textbox", name="Text, one sequence per line")
        box.click()
        page.page.keyboard.press("Control+a")
        page.page.keyboard.type("A red hen sat.")
        page.page.get_by_role("link", name="Ablation").first.click(delay=held)
        if held:
            expect(page.page).to_have_url(re.compile("/ablation"))
        expect(page.page.get_by_role("heading", name="story · 6 tokens")).to_be_visible()
        expect(box).to_have_value("A red hen sat.")

    def test_a_typed_text_is_kept_where_the_next_page_is_asked_for_before_it_is_read(self, visit: Visit) -> None:
        """As on a busy machine: the server receives both messages before it runs the page for the first one."""
        page = visit("", anew=True)
        box = page.page.get_by_role("textbox", name="Text, one sequence per line")
        box.click()
        page.page.keyboard.press("Control+a")
        page.page.keyboard.type("A red hen sat.")
        page.page.evaluate(HOLD)
        page.page.get_by_role("link", name="Ablation").first.click(delay=80)
        page.page.wait_for_timeout(1000)
        assert page.page.evaluate("() => window.release()") > 1
        expect(page.page.get_by_role("heading", name="story · 6 tokens")).to_be_visible()
        expect(box).to_have_value("A red hen sat.")


HOLD = """() => {
  const send = WebSocket.prototype.send;
  window.queued = [];
  WebSocket.prototype.send = function (data) { queued.push(() => send.call(this, data)); };
  window.release = () => { WebSocket.prototype.send = send; queued.forEach((one) => one()); return queued.length; };
}"""


class TestLinks:
    def test_a_typed_text_is_in_no_address_until_it_is_asked_for(self, visit: Visit) -> None:
        page = visit()
        text = "A fox & a hen = two\nthe <b>fox</b> + 50 % ?"
        box = page.page.get_by_role("textbox", name="Text, one sequence per line")
        page.after(lambda: (box.fill(text), box.press("Control+Enter")))
        page.toggle("Causal")
        address = parse_qs(urlsplit(page.page.url).query)
        assert "text" not in address
        assert address["causal"] == ["false"]

        page.page.get_by_text("Link to this view", exact=True).click()
        page.page.locator("code", has_text="http").nth(1).wait_for()
        links = [found for found in page.page.locator("code").all_inner_texts() if found.startswith("http")]
        assert len(links) == 2
        assert [("text" in parse_qs(urlsplit(link).query)) for link in links] == [False, True]
        weights = page.weights()
        again = visit(urlsplit(links[1]).query, fresh=True)
        assert again.page.get_by_role("textbox", name="Text, one sequence per line").input_value() == text
        np.testing.assert_array_equal(again.weights(), weights)


class TestTheLook:
    def test_light_and_dark_show_the_same_weights_and_can_be_read(self, visit: Visit) -> None:
        weights, colours, grounds, faint = [], [], [], []
        for dark in (False, True):
            page = visit(query(text=LINE), dark=dark, fresh=dark)
            weights.append(page.weights())
            blocked = np.isnan(weights[-1])
            patches = page.cells(reach=4).astype(int)  # [Q,K,9,9,3]
            colours.append(patches[~blocked][:, 4, 4])
            spread = (patches.max((2, 3)) - patches.min((2, 3))).max(-1)
            assert spread[blocked].min() > 40, "blocked cells are told from weights by their texture"
            assert spread[~blocked].max() <= NEAR
            grounds.append(patches[blocked].mean())
            faint += [
                (dark, words, style, contrast)
                for words, style in WORDS
                if (contrast := page.contrast(words, style)) < 4.5  # WCAG's level AA
            ]
        np.testing.assert_array_equal(*weights)
        np.testing.assert_array_equal(*colours)
        assert grounds[0] > 150 > 100 > grounds[1]
        assert not faint

    def test_at_1280_pixels_nothing_is_cut_off_or_overlaps(self, visit: Visit) -> None:
        page = visit(query(text=LINES))
        for parts in (PARTS[:-1], PARTS):  # the table of shares exists only with a mask off
            for look in page.looks(1280, schemes=["light"]):
                assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), look
                assert not page.sticks_out(), look
                assert not page.overlaps(parts), look
                assert not page.cut_off(), look
            page.toggle("Causal")

    def test_every_chart_says_in_words_what_it_shows_and_a_flip_draws_each_once_in_its_place(
        self, visit: Visit
    ) -> None:
        page = visit(query(text=LINE, layer=2, head=1))
        charts = page.page.locator(".chart")
        labels = [chart.get_attribute("aria-label") or "" for chart in charts.all()]
        assert len(labels) == page.page.locator(".js-plotly-plot").count() == 2
        weights = page.weights()
        assert "L2 H1" in labels[0]
        assert f"{np.nanmax(weights):.2f}" in labels[0]
        assert str(len(weights)) in labels[0]
        assert len(labels[1]) > 20
        assert page.grid() == (len(page.options("Layer")), len(page.options("Head")))
        assert page.page.locator("img:not([alt])").count() == 0
        page.page.evaluate("""() => {
          const react = Plotly.react;
          window.charts = [...document.querySelectorAll('.chart')];
          window.drawn = [];
          Plotly.react = (chart, ...given) => { drawn.push(charts.indexOf(chart)); return react(chart, ...given); };
        }""")
        page.toggle("Causal")
        assert page.page.evaluate("drawn") == [0, 1]

    def test_text_that_looks_like_html_is_text(self, visit: Visit) -> None:
        text = "<script>window.hit=1</script> <img src=x onerror=window.hit=1> <s> </p>"
        page = visit(query(text=text))
        page.toggle("Causal")
        assert page.page.evaluate("window.hit === undefined")
        labels = page.page.locator(".st-key-head_figure .ytick text").all_text_contents()
        assert "".join(labels).replace("·", " ").endswith(text)


class TestTheWatch:
    def test_a_request_to_elsewhere_is_seen_and_refused_and_an_error_is_seen(self, visit: Visit, watch: Watch) -> None:
        page = visit(query(text=LINE)).page
        fetched = page.evaluate("fetch('http://192.0.2.1/font.woff2').then(() => 'came', () => 'refused')")
        assert fetched == "refused"
        assert watch.elsewhere == ["http://192.0.2.1/font.woff2"]
        page.evaluate("console.error('seen')")
        assert watch.errors[-1] == "seen"
        watch.elsewhere.clear()
        watch.errors.clear()


def palette_colours(weights: np.ndarray) -> np.ndarray:
    """Return uint8 [..,3]: the overview's colours for these weights; brightness is the square root of the weight."""
    palette = stops(255)
    return palette[np.rint(np.sqrt(weights) * 254).astype(int)]


def thumbnail(page: Explore, layer: int, head: int, tokens: int) -> np.ndarray:
    """Return uint8 [T,T,3]: the colours at the centres of a thumbnail's cells, one for each weight of a short text."""
    gap = 3
    pixels, middle = page.thumbnails(), page.point_of(layer, head)
    size = page.point_of(0, 1)["x"] - page.point_of(0, 0)["x"]
    steps = (np.arange(tokens) + 0.5) / tokens * (size - gap) - size / 2
    rows, columns = ((middle[axis] + steps).astype(int) for axis in "yx")
    return pixels[np.ix_(rows, columns)][..., :3]
