"""The views of the chosen head on Explore, without a browser: each view for each kind of model, and the link."""

import html
import json
import re

import numpy as np
import pytest

from model.attribution.score_split import carried
from model.base import Model
from tests.pages.explore import LINES, Explore, array
from tests.viz.packet import unpacked
from ui.heads.views import VIEWS
from viz.heads.cells import weight_text

KEYS = {"bars": ["application"], "carried": ["group"], "why": ["group"]}  # ARIA roles of the views' key handlers


def texts(page: Explore) -> str:
    """Return all text in captions and in HTML."""
    return html.unescape(" ".join([*page.html(), *(one.value for one in page.app.caption)]))


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("choices", [{"causal": "false", "scope": "layer"}, {"causal": "false", "padding": "false"}])
def test_every_view_is_drawn_under_any_masks_and_stands_in_the_link(view: str, choices: dict[str, str]) -> None:
    page = Explore(text=LINES, view=view, query="7", pins="3,5", **choices)
    assert not page.boxes("error")
    assert page.url.get("view", "tokens") == view
    assert (page.url["query"], page.url["pins"]) == ("7", "3,5")
    assert "nan" not in texts(page).lower()


def test_only_the_chosen_view_is_sent() -> None:
    page = Explore()
    for view in ("arcs", "bars", "carried", "why", "numbers"):
        page.set(view=view)
        sent = set(page.packets()) & {"unmask_tokens", "unmask_arcs"}
        assert sent == ({"unmask_arcs"} if view == "arcs" else set())
        assert ("head_bars" in page.figures()) == (view == "bars")
        assert ("why_strips" in page.figures()) == (view == "why")
        assert len(page.app.dataframe) == (view == "numbers")


OTHERS = [("t5", "cross")]
OTHERS += [(family, "self") for family in ("bert", "gemma2", "gpt_oss")]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "attention"), OTHERS)
def test_other_networks_show_every_view(folders: dict[str, str], family: str, attention: str) -> None:
    text, target = "the cat sat on a mat and then it saw the cat", "a big cat and a ball"
    page = Explore(model=folders[family], text=text, attention=attention, query="3", target=target)
    assert page["model"] == "another", "the folder gave way to the story model"
    why_not = {"t5": "It is an encoder-decoder", "bert": "Its layers do more than add to the residual stream"}
    for view in VIEWS:
        page.set(view=view)
        assert not page.boxes("error")
        stated = any(why in texts(page) for why in why_not.values())
        assert stated == (view in ("carried", "why") and family in why_not)
        assert any("what wrote the query" in one for one in page.html()) == (view == "why" and family not in why_not)
        assert any("pushes up" in one for one in page.html()) == (view == "carried" and family not in why_not)
        assert "nan" not in texts(page).lower()


class TestKeys:
    @pytest.mark.parametrize("view", VIEWS)
    def test_they_move_the_query_among_what_is_shown_and_no_hidden_padding(self, view: str) -> None:
        page = Explore(text=LINES, row="1", pad="left", view=view)
        rows = next(trace["y"] for trace in page.figures()["head_figure"]["data"] if trace["name"] == "weights")
        first, last = (int(rows[index].partition(":")[0]) for index in (0, -1))
        assert first > 0
        moves = [json.loads(one.proto.json) for one in page.app.get("bidi_component") if one.proto.json]
        moves = [one for one in moves if "among" in one]
        assert [one["role"] for one in moves] == ["application", *KEYS.get(view, [])]
        assert all(one["labels"][last - one["first"]] == rows[-1].partition(": ")[2] for one in moves)
        sent = [unpacked(packet)[0] for name, packet in page.packets().items() if name[7:] == view]
        assert [one["among"] for one in (*moves, *sent)] == [[first, last + 1]] * (
            1 + (view not in ("numbers", "span"))
        )


@pytest.mark.parametrize(("zoom", "queries"), [("10-20,5-15", "0-4"), ("3-20,0-4", "3-4")])
def test_queries_of_a_zoom_that_the_text_has_not_are_left_out(zoom: str, queries: str) -> None:
    page = Explore(text="Once upon a time", view="span", zoom=zoom)
    assert not page.app.error
    assert queries in [one.value.replace("–", "-") for one in page.app.text_input]


def test_as_many_single_queries_as_a_line_has_words() -> None:
    page = Explore(text="Once upon a time there was a king and a queen in a wood", view="span")
    typed = "0,1,2,3,5,6,7,8,9"
    next(one for one in page.app.text_input if one.label == "Queries").set_value(typed).run()
    assert page["span"] == typed
    assert not any("Expected up to" in one.value for one in page.app.caption)


@pytest.mark.parametrize("typed", ["99", "3-1", "0-5", "all"])
def test_queries_that_are_not_there_are_refused(typed: str) -> None:
    page = Explore(text="Once upon a time", view="span")
    before = next(one for one in page.app.text_input if one.label == "Queries")
    before.set_value(typed).run()
    assert f"Expected up to 32 positions or ranges from 0 to 4, such as 3-7 or 2,5,9, got “{typed}”." in [
        one.value for one in page.app.caption
    ]
    assert page["span"] is None
    next(one for one in page.app.text_input if one.label == "Queries").set_value("1-3").run()
    assert page["span"] == "1-3"
    assert not any("Expected up to" in one.value for one in page.app.caption)


class TestTokens:
    def test_it_is_sent_the_head_that_the_heatmap_shows(self) -> None:
        page = Explore(layer="2", head="1")
        header, body = unpacked(page.packets()["unmask_tokens"])
        size = len(header["queries"])
        weights = body[: 4 * size * size].view("<f4").reshape(size, size)
        np.testing.assert_array_equal(weights, np.nan_to_num(page.weights()))
        assert header["name"] == "L2 H1"
        assert header["query"] == size - 1

    @pytest.mark.parametrize(("pins", "valid"), [("3,x", []), ("", []), ("1,2,3,4,5,6,7,8,9", []), ("4", [4])])
    def test_pins_that_make_no_sense_are_none(self, pins: str, valid: list[int]) -> None:
        header, _ = unpacked(Explore(pins=pins).packets()["unmask_tokens"])
        assert header["pins"] == valid

    def test_of_a_long_text_a_part_around_the_query_is_sent_and_it_says_so(self) -> None:
        page = Explore(text="the old mill by the river and " * 30, query="100")
        header, _ = unpacked(page.packets()["unmask_tokens"])
        assert len(header["queries"]) == 128
        assert header["first"] <= 100 < header["first"] + 128
        assert "of the query's weight lies outside" in texts(page)


class TestBars:
    def test_the_bars_are_the_query_s_row_standard_beside_current(self) -> None:
        page = Explore(view="bars", query="6", causal="false")
        now, standard = (array(trace["y"]) for trace in page.figures()["head_bars"]["data"][:2])
        np.testing.assert_array_equal(now, page.weights()[6])
        np.testing.assert_allclose(np.nan_to_num(standard), np.nan_to_num(page.weights("x2")[6]))
        assert "has moved compared with the standard masks" in texts(page)


class TestCarried:
    def test_its_table_has_the_model_s_numbers(self, story: Model) -> None:
        page = Explore(text=LINES, row="2", view="carried", layer="3", head="2", query="9", pad="right")
        trace = story.run(story.encode(LINES.split("\n"), "right"))
        found = carried(story, trace, 1, trace.spec, 3, 2, 9)
        assert found.added is not None
        (table,) = [one for one in page.html() if "weight × |v|" in one]
        for key in range(5):
            row = re.search(rf">{key}: .*?</tr>", table)
            for text in (weight_text(found.weights[key]), f"{found.moved[key]:.3f}", f"{found.added[key]:.3f}"):
                assert text in row[0]
        assert any("pushes up" in one for one in page.html())


class TestWhy:
    def test_the_terms_shown_sum_to_the_score_shown(self) -> None:
        page = Explore(view="why", query="12", key="5")
        (table,) = [one for one in map(html.unescape, page.html()) if "the query's</th>" in one]
        numbers = [float(text.replace("−", "-")) for text in re.findall(r'class="number">([+−]?[\d.]+)</td>', table)]
        *terms, score = numbers
        assert sum(terms) == pytest.approx(score, abs=0.01)
        assert f"is {'+' if score > 0 else '−'}{abs(score):.3f}" in texts(page)

    def test_a_blocked_cell_has_a_score_and_says_what_blocks_it(self) -> None:
        assert "Blocked by causal: the score has no effect." in texts(Explore(view="why", query="3", key="9"))

    def test_until_a_key_is_chosen_it_is_the_heaviest(self) -> None:
        page = Explore(view="why", query="6")
        assert page.value("key") == int(np.nanargmax(page.weights()[6]))


class TestNumbers:
    def test_the_table_is_the_heatmap_and_blocked_cells_name_their_mask(self) -> None:
        page = Explore(view="numbers")
        table, weights = page.app.dataframe[0].value, page.weights()
        for query, row in enumerate(weights):
            expected = ["causal" if np.isnan(weight) else weight_text(weight) for weight in row]
            assert table.iloc[query].tolist() == expected

    def test_the_colours_act_on_the_heatmap_and_its_bar_says_so(self) -> None:
        plain = Explore().figures()["head_figure"]["data"]
        page = Explore(view="numbers", palette="magma", colours_to="one", brightness="linear")
        (before,), (after,) = (
            [one for one in data if one["name"] == "weights"] for data in (plain, page.figures()["head_figure"]["data"])
        )
        assert (before["colorbar"]["title"]["text"], after["colorbar"]["title"]["text"]) == ("weight", "weight, linear")
        assert after["zmax"] == 1
        assert before["colorscale"] != after["colorscale"]
        np.testing.assert_allclose([stop for stop, _ in after["colorscale"]], np.linspace(0, 1, 33))
        assert "Colours run from 0 to 1.00; brightness is the weight." in texts(page)
        again = next(one for one in Explore().figures()["head_figure"]["data"] if one["name"] == "weights")
        assert again["colorscale"] == before["colorscale"], "one reader's colours are another's"
