"""Tests of the views of one head in Chromium: pointing sends no request, pins are kept, keys work, numbers agree."""

import csv
import io
import re
from collections.abc import Callable
from functools import partial
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.axe import violations
from tests.browser.explore import POLLING
from tests.browser.heads import MOVED, VIEWS, Heads, Taken
from viz.export import data
from viz.export.picture import NAMED
from viz.heads.cells import weight_text

Visit = Callable[..., Heads]
LINE = "The cat saw a dog and the cat ran"


@pytest.fixture
def heads(visit: Callable[..., Heads]) -> Visit:
    def open_page(height: int = 1500, **choices: str | int) -> Heads:
        return visit(urlencode({"text": LINE} | choices), kind=Heads, height=height)

    return open_page


def chosen(page: Heads, name: str) -> str | None:
    """Return a choice in the address, None if it is not there."""
    return parse_qs(urlsplit(page.page.url).query).get(name, [None])[0]


class TestTokens:
    def test_pointing_lights_the_others_and_asks_the_server_nothing_and_a_click_chooses_the_query(
        self, heads: Visit
    ) -> None:
        page = heads(layer=4, head=0)
        weights = page.weights()
        page.page.evaluate("window.sent = 0")
        requests: list[str] = []
        page.page.on("request", lambda request: requests.append(request.url))
        for query in (3, 7, 1):
            page.tokens.nth(query).hover()
            expected = [weight_text(weight) for weight in weights[query][: query + 1]]
            titles = page.titles()
            assert [title.rpartition(" ")[2] for title in titles[: query + 1]] == expected
            assert all(title.endswith("blocked by causal") for title in titles[query + 1 :])
            highlights = page.lights()
            assert highlights[query + 1 :] == [0] * (len(highlights) - query - 1)
            assert max(range(query + 1), key=highlights.__getitem__) == int(weights[query][: query + 1].argmax())
        page.page.wait_for_timeout(600)
        assert (page.page.evaluate("sent"), requests) == (0, [])

        def click() -> None:
            page.tokens.nth(4).click()  # highlights it before the server has answered
            page.page.wait_for_function(MOVED, arg=4, polling=POLLING)

        page.after(click)
        assert page.page.evaluate("sent") > 0, "a click is told, so frames are counted"
        assert chosen(page, "query") == "4"
        assert page.shown("Query").startswith("4: ")
        assert page.framed() == [4]
        blocked = page.tokens.evaluate_all("all => all.map((one) => one.classList.contains('blocked'))")
        hatched = page.tokens.evaluate_all("all => all.map((one) => one.style.backgroundImage.includes('url'))")
        assert blocked == hatched == [index > 4 for index in range(len(blocked))], "unlike those of small weight"

        page.after(lambda: page.page.get_by_role("button", name="is attended to by").click())
        page.tokens.nth(0).hover()
        assert [title.rpartition(" ")[2] for title in page.titles()] == [
            weight_text(weight) for weight in weights[:, 0]
        ]
        assert chosen(page, "towards") == "by"

        below = page.tokens.first.bounding_box()
        assert list(page.looks(1920, height=1080, schemes=["light"]))
        tokens_box, picture = page.tokens.first.bounding_box(), page.chart.locator(".heatmaplayer").first.bounding_box()
        assert below["x"] < 700
        assert tokens_box["x"] > picture["x"] + picture["width"], "the tokens lie on the heatmap"
        assert picture["y"] - 20 < tokens_box["y"] < picture["y"] + picture["height"]
        room = page.page.locator(".st-key-tokens_beside")
        assert room.evaluate("room => room.scrollHeight - room.clientHeight") == 0, "the table's button is whole"

    def test_pins_survive_a_change_of_head_and_come_back_with_the_link(self, heads: Visit) -> None:
        page = heads(layer=4, head=0)
        page.after(lambda: page.tokens.nth(3).click(modifiers=["Shift"]))
        page.after(lambda: page.tokens.nth(6).click(modifiers=["Shift"]))
        assert chosen(page, "pins") == "3,6"
        before = page.weights()
        page.choose("Head", "2")
        assert not (page.weights()[3, :4] == before[3, :4]).all()
        for number, query in enumerate((3, 6)):
            pinned = page.page.locator(".st-key-head_tokens .pin").nth(number).locator(".token")
            titles = pinned.evaluate_all("all => all.map((one) => one.title)")
            expected = [weight_text(weight) for weight in page.weights()[query][: query + 1]]
            assert [title.rpartition(" ")[2] for title in titles[: query + 1]] == expected
        again = heads(layer=4, head=0, pins="3,6")
        assert again.page.locator(".st-key-head_tokens .pin").count() == 2


class TestKeyboard:
    def test_it_alone_opens_every_view_and_moves_the_query_in_each(self, heads: Visit) -> None:
        page = heads(text=f"{LINE} down the hill and home again", query=0)
        keys = page.page.keyboard
        page.tab_to(page.page.locator(".st-key-pair_head_figure"))
        page.move_to(1, "ArrowDown").move_to(2, "ArrowDown")  # the rerun keeps the focus
        for name, (view, selector, key) in VIEWS.items():
            tab, element = page.page.get_by_role("radio", name=name, exact=True), page.page.locator(selector)
            if view != "tokens":
                page.tab_to(page.page.locator(".st-key-view"), "Shift+Tab").tab_to(tab, "ArrowRight")
                keys.press("Enter")
                page.page.wait_for_function("view => location.search.includes(`view=${view}`)", arg=view)
                element.first.wait_for(state="attached")
                assert page.keeps_focus(tab), f"the rerun took the keyboard from {name}"
            page.tab_to(element)
            page.move_to(page.query + 1, key)
            assert page.keeps_focus(element), f"the rerun took the keyboard from {name}"
            assert not violations(page, selector.split()[0]), name

    @pytest.mark.parametrize("view", ["tokens", "arcs", "carried"])
    def test_of_a_key_that_is_held_the_page_hears_once(self, heads: Visit, view: str) -> None:
        page = heads(query=2, view=view)
        _, selector, key = next(one for one in VIEWS.values() if one[0] == view)
        page.page.locator(selector).first.focus()
        page.page.evaluate("window.sent = 0")
        for _ in range(4):
            page.page.keyboard.down(key)
            page.page.wait_for_timeout(300)
        assert page.page.evaluate("sent") == 0
        page.move_to(6, key, "up")
        assert page.page.evaluate("sent") == 1

    def test_arrow_keys_move_the_query_and_enter_pins_it(self, heads: Visit) -> None:
        page = heads(query=2)
        page.page.locator(".st-key-head_tokens .tokens > .text").focus()
        for _ in range(3):
            page.page.keyboard.press("ArrowRight")
        page.after(lambda: page.page.keyboard.press("Enter"))
        page.until(lambda: (chosen(page, "query"), chosen(page, "pins")) == ("5", "5"))
        expect(page.page.locator(".st-key-head_tokens .tokens > .text").first).to_be_focused()


class TestAgreement:
    def test_a_cell_has_the_same_number_in_every_view(self, heads: Visit) -> None:
        query, key = 8, 3
        page = heads(layer=4, head=0, query=query, key=key)
        weight = page.weights()[query, key]
        text = weight_text(weight)
        (line,) = [line for line in page.hover_text(query, key) if line.startswith("weight")]
        assert line == f"weight {text}"
        assert page.titles()[key].endswith(f"weight {text}")
        page.page.get_by_role("button", name="Values").click()
        assert page.tokens.nth(key).locator("small").inner_text() == text

        page.view("Arcs")
        assert arc_tooltip(page, query, key).endswith(f"weight {text}")

        page.view("Bars")
        bars = page.page.locator(".st-key-head_bars .js-plotly-plot").evaluate(
            "chart => [chart.data[0].hovertemplate, Array.from(chart._fullData[0].y)]"
        )
        assert "%{y:.4f}" in bars[0]
        assert weight_text(bars[1][key]) == text

        page.view("Why this cell")
        assert f"Its weight is {text}" in page.page.locator(".key").all_inner_texts()[1]

        page.view("Value × weight")
        rows = page.page.locator("table.numbers").first.locator("tr").all_inner_texts()
        assert any(re.match(rf"{key}: \S+\s.*\b{re.escape(text)}\b", row.replace("\n", " ")) for row in rows)

        page.view("Numbers")
        cells = page.page.locator("[data-testid=stDataFrame] [role=gridcell]")
        cells.filter(has_text=text).first.wait_for(state="attached")

    def test_and_in_what_is_taken_away(self, heads: Visit, visit: Callable[..., Taken]) -> None:
        query, key = 8, 3
        shown = heads(layer=4, head=0).weights()
        export = partial(visit, kind=Taken)
        choices = urlencode({"text": LINE, "layer": 4, "head": 0, "query": query})
        page = export(f"{choices}&section=Numbers")
        for name in ("NPZ", "safetensors", "All heads, NPZ", "All heads, safetensors"):
            held = data.read(page.file(name)).heads[4, 0].weights
            np.testing.assert_array_equal(held, np.nan_to_num(shown.astype(np.float32)))
        lines = list(csv.DictReader(io.StringIO(page.file("CSV").decode("utf-8-sig"))))
        assert [float(np.float32(line["weight"])) for line in lines] == held.ravel().tolist()
        (line,) = (line for line in lines if (line["query"], line["key"]) == (str(query), str(key)))
        assert weight_text(np.float32(line["weight"])) == weight_text(shown[query, key])

        picture = export(f"{choices}&picture=tokens").file("SVG").decode()
        written = re.findall(r">(\d\.\d+)</text>", picture)
        assert written == [weight_text(weight) for weight in shown[query] if weight >= NAMED]


def test_an_arc_s_tooltip_is_its_cell_and_the_first_token_can_be_hidden(heads: Visit) -> None:
    page = heads(view="arcs", layer=4, head=0)
    weights = page.weights()
    paths = page.page.locator(".st-key-head_arcs path")
    cells = paths.evaluate_all("all => all.map((one) => [one.dataset.query, one.dataset.key].map(Number))")
    assert sorted(map(tuple, cells)) == sorted(
        (q, k) for q in range(len(weights)) for k in range(q + 1) if weights[q, k] >= 0.1
    )
    for query, key in cells[:3]:
        assert arc_tooltip(page, query, key).endswith(f"weight {weight_text(weights[query, key])}")
    first = page.page.locator(".st-key-head_arcs path[data-key='0']")
    assert first.count() > 0
    page.page.get_by_label("Hide the first token").check()
    assert first.count() == 0
    assert "nothing is renormalized" in page.page.locator(".st-key-head_arcs .said").first.inner_text()


def arc_tooltip(page: Heads, query: int, key: int) -> str:
    """Return the tooltip of a line, near its left end, where lines of different queries are apart."""
    path = page.page.locator(f".st-key-head_arcs path[data-query='{query}'][data-key='{key}']").first
    if not path.count():
        page.page.get_by_label("The smallest weight drawn").fill("-2")  # an exponent of ten
    path.scroll_into_view_if_needed()
    share = 0.06
    x, y = path.evaluate(
        """(path, share) => {
             const box = path.ownerSVGElement.getBoundingClientRect();
             const point = path.getPointAtLength(path.getTotalLength() * share);
             return [box.x + point.x, box.y + point.y];
           }""",
        share,
    )
    page.page.mouse.move(x - 1, y)
    page.page.mouse.move(x, y)
    return page.page.locator(".st-key-head_arcs .tip").inner_text()


def test_the_table_of_numbers_chooses_no_query_by_itself(heads: Visit) -> None:
    """Streamlit sends a table's selection again when its rows change, or when the page marks another cell."""
    page = heads(view="numbers")
    box = page.page.get_by_role("textbox", name="Text, one sequence per line")
    page.page.get_by_role("radio", name="magma", exact=True).click()
    for text in (LINE + " to the old house", LINE, LINE + " far away from the house and the old king"):
        page.page.wait_for_timeout(1000)
        assert (chosen(page, "query"), chosen(page, "key")) == (None, None)
        page.after(lambda words=text: (box.fill(words), box.press("Control+Enter")))
    page.page.wait_for_timeout(1000)
    assert (chosen(page, "query"), chosen(page, "key")) == (None, None)
