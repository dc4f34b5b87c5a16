"""The Explore page with the built-in model, without a browser: what each choice changes; no input breaks the page."""

import re
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from streamlit.proto.WidgetStates_pb2 import WidgetState

from model import catalog
from model.base import Model
from model.masks import MaskSpec
from model.trace import Trace
from tests.apptest import charts
from tests.pages.explore import LINES, Explore, array, same
from ui.controls import OWN_TEXT
from ui.heads import head, overview
from ui.sidebar.models import EXAMPLES, FIRST
from ui.streamlit_internals import session
from viz.heads.overview import BLOCKED
from viz.heatmap import MAX_TICKS


def losses_computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the batch rows whose losses are computed from now on."""
    rows: list[int] = []
    compute = Trace.losses

    def losses(trace: Trace, row: int = 0) -> torch.Tensor:
        rows.append(row)
        return compute(trace, row)

    monkeypatch.setattr(Trace, "losses", losses)
    return rows


class TestFirstView:
    def test_is_not_empty_and_nothing_is_wrong(self, story: Model) -> None:
        page = Explore()
        tokens = story.encode([FIRST]).ids.shape[1]
        assert same(np.isnan(page.weights()), ~np.tri(tokens, dtype=bool))
        np.testing.assert_allclose(np.nansum(page.weights(), 1), 1, atol=1e-5)
        header, pixels = page.packet()
        assert pixels.shape[:2] == (header["layers"], header["heads"]) == (story.num_layers, story.num_heads)
        assert (header["layer"], header["head"]) == (page["layer"], page["head"]) == catalog.first_head(story)
        assert len(page.candidates()) == 10
        assert set(page.figures()) == {"head_figure", "loss_figure"}
        assert len(page.sentence()) > 40
        assert not page.boxes("error") + page.notes() + page.boxes("info")

    def test_shows_what_the_model_computes(self, story: Model) -> None:
        page = Explore(text=LINES, row="2", layer="2", head="1", causal="false", pad="right")
        batch = story.encode(LINES.split("\n"), "right")
        spec = MaskSpec(causal=False)
        weights = story.run(batch, spec).weights(2, 1, row=1).numpy()
        np.testing.assert_allclose(np.nan_to_num(page.weights()), weights, atol=1e-6)
        np.testing.assert_allclose(
            np.nan_to_num(page.weights("x2")), story.run(batch).weights(2, 1, row=1).numpy(), atol=1e-6
        )
        likeliest = story.run(batch, spec).next_token(1).argmax()
        assert page.candidates()[0][0] == story.label(int(likeliest))


class TestMasks:
    @pytest.mark.parametrize("name", ["causal", "padding"])
    def test_a_switch_changes_the_heatmap_the_overview_and_the_next_tokens_and_back(self, name: str) -> None:
        page = Explore(text=LINES, show_padding="true")
        weights, (_, pixels), candidates = page.weights(), page.packet(), page.candidates()
        page.set(**{name: False})
        assert np.isnan(weights).sum() > np.isnan(page.weights()).sum()
        assert (page.packet()[1] == BLOCKED).sum() < (pixels == BLOCKED).sum()
        assert page.candidates()[::2] != candidates
        assert page.candidates()[1::2] == candidates
        assert same(page.weights("x2"), weights)
        assert page.url[name] == "false"
        page.set(**{name: True})
        assert same(page.weights(), weights)
        assert page.candidates() == candidates
        assert name not in page.url

    def test_this_layer_only_keeps_the_models_run(self) -> None:
        rerun = Explore().set(causal=False)
        alone = Explore(scope="layer").set(causal=False)
        assert alone.candidates() == Explore().candidates(), "one column, in which nothing changes"
        assert rerun.candidates()[::2] != rerun.candidates()[1::2]
        assert not same(alone.weights(), rerun.weights())
        assert same(alone.weights("x2"), rerun.weights("x2"))

    def test_this_layer_only_compares_nothing_while_no_mask_is_off(self) -> None:
        rerun, alone = Explore(), Explore(scope="layer")
        assert alone.candidates() == rerun.candidates()
        curves = [charts(page.app)["loss_figure"]["figure"]["data"] for page in (rerun, alone)]
        assert len(curves[0]) == len(curves[1])

    def test_no_table_of_zeros_stands_there_while_no_mask_is_off(self) -> None:
        page = Explore()
        assert "numbers shares" not in " ".join(page.html())
        page.set(causal=False)
        assert len(page.leaks()) == 4

    @pytest.mark.parametrize("scope", ["model", "layer"])
    def test_the_sentences_share_is_the_tables(self, scope: str) -> None:
        page = Explore(text=LINES, causal="false", padding="false", scope=scope)
        (later, _), (padding, _) = page.leaks()[:2]
        assert later not in ("0%", padding)
        assert re.findall(r"(?:≤ )?[\d.]+%", page.sentence())[:2] == [later, padding]


class TestChoices:
    def test_select_boxes_choose_the_head(self) -> None:
        page = Explore()
        page.set(layer=1, head=2)
        assert (page.packet()[0]["layer"], page.packet()[0]["head"]) == (1, 2)
        assert same(page.weights(), Explore(layer="1", head="2").weights())
        assert "L1 H2" in "".join(one.value for one in page.app.markdown)
        assert (page.url["layer"], page.url["head"]) == ("1", "2")

    def test_another_query_has_its_own_next_tokens(self, story: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        text = "The old king rode down to the green river"
        page, losses = Explore(text=text), losses_computed(monkeypatch)
        page.set(query=3)
        likeliest = story.run(story.encode([text])).next_token(0, 3).argmax()
        assert page.candidates()[0][0] == story.label(int(likeliest))
        assert losses == [], "of a long text they take as long as a small run"

    def test_row_and_pad_side(self) -> None:
        page = Explore(text=LINES)
        assert "<pad>" not in page.labels(), "of a row that is mostly padding its own tokens are shown"
        page.set(show_padding_0=True)
        assert page.url["show_padding"] == "true"
        assert page.labels()[0] == "<pad>"
        assert page.labels()[-1] == "·time"
        page.set(pad="right")
        assert page.labels()[-1] == "<pad>"
        assert page.url["pad"] == "right"
        page.set(row=2)
        assert "<pad>" not in page.labels()
        assert "·girl" in page.labels()
        assert page.url["row"] == "2"

    def test_an_example_replaces_the_text(self) -> None:
        page = Explore(text="Something else")
        for name, text in EXAMPLES.items():
            page.set(example=name)
            assert page["text"] == page.app.text_area(key="text").value == text
            assert page["example"] is None, "the box is ready for the next"
            assert not page.notes()
        assert same(page.weights(), Explore(text=text).weights())

    def test_a_typed_text_that_an_example_replaced_can_be_chosen_again(self) -> None:
        page = Explore()
        page.set(example="A list")
        assert OWN_TEXT not in page.app.selectbox(key="example").options, "an example replaced an example"
        page.type("Something of my own").set(example="A pronoun")
        assert OWN_TEXT in page.app.selectbox(key="example").options
        assert page.set(example=OWN_TEXT)["text"] == "Something of my own"
        assert OWN_TEXT not in page.app.selectbox(key="example").options, "it is shown already"
        page.set(example="A list").type("Something else").set(example=OWN_TEXT)
        assert page["text"] == "Something of my own"
        assert page.set(example=OWN_TEXT)["text"] == "Something else"

    def test_a_typed_text_that_a_lesson_another_page_or_back_replaced_can_be_chosen_again(self) -> None:
        page = Explore(text="A link's").type("Something of my own").go("pages/lessons.py")
        page.app.query_params.update(text="A lesson's")
        assert page.go("app.py")["text"] == "A lesson's"
        page.set(example="A list")
        assert page.set(example=OWN_TEXT)["text"] == "Something of my own", "neither a lesson nor an example is"
        page.press("start_padding")
        assert page.set(example=OWN_TEXT)["text"] == "Something of my own"
        page.go("pages/head_atlas.py").press("atlas_open").go("app.py")
        assert page.set(example=OWN_TEXT)["text"] == "Something of my own"
        page.go("pages/compare.py").press("patch").set(b_causal=True).press("patch_pair")
        assert page.set(example=OWN_TEXT)["text"] == "Something of my own"
        page = Explore(text="A link's").type("Something else")
        page.app.query_params.update(text="A link's")  # as the browser does on Back
        page.run()
        assert page.set(example=OWN_TEXT)["text"] == "Something else"

    def test_part_of_a_long_text_is_shown_large_and_the_numbers_are_of_all_of_it(self) -> None:
        text = "the old mill by the river and " * 15
        page = Explore(text=text)
        whole, sentence = page.weights(), page.sentence()
        assert len(whole) > MAX_TICKS
        page.set(positions=(10, 30))
        assert same(page.weights(), whole[10:30, 10:30])
        assert [name.partition(":")[0] for name in page.names()] == [str(position) for position in range(10, 30)]
        assert page.sentence() == sentence
        assert same(Explore(**page.url | {"text": text}).weights(), page.weights())

    def test_a_typed_text_is_not_in_the_address_and_a_linked_one_stays(self) -> None:
        assert "text" not in Explore().type("Something private").url
        assert Explore(text="Something shared").set(causal=False).url["text"] == "Something shared"
        assert "text" not in Explore(text="Something shared").type("Something private").url


class TestHandEditedAddress:
    @pytest.mark.parametrize(
        ("query", "choice", "expected"),
        [
            ({"layer": "99"}, "layer", -1),
            ({"head": "99"}, "head", -1),
            ({"head": "-3"}, "head", 0),
            ({"layer": "abc"}, "layer", 4),
            ({"layer": "2.4"}, "layer", 2),
            ({"layer": "1e999"}, "layer", 4),
            ({"row": "7", "text": LINES}, "row", 2),
            ({"row": "0", "text": LINES}, "row", 1),
            ({"causal": "maybe"}, "causal", True),
            ({"pad": "middle", "text": LINES}, "pad", "left"),
        ],
    )
    def test_gives_the_nearest_view(self, story: Model, query: dict[str, str], choice: str, expected: object) -> None:
        page = Explore(**query)
        if expected == -1:
            expected = {"layer": story.num_layers, "head": story.num_heads}[choice] - 1
        assert page[choice] == expected
        assert len(page.weights()) > 1
        assert not page.boxes("error")

    def test_an_attention_of_another_model_shows_the_only_one(self) -> None:
        page = Explore(attention="cross")
        assert same(page.weights(), Explore().weights())
        assert not page.boxes("error")

    @pytest.mark.parametrize(("begin", "end"), [("500", "5"), ("-4", "nonsense"), ("9", "9")])
    def test_a_part_that_is_none_gives_one_that_is(self, begin: str, end: str) -> None:
        page = Explore(text="the old mill by the river and " * 15, begin=begin, end=end)
        assert len(page.weights()) >= 1


@pytest.mark.parametrize(("words", "expected"), [(90, ["all heads", "one head"]), (180, ["one head", "all heads"])])
def test_the_chosen_head_is_drawn_first(words: int, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of a short text are sent together: the browser draws one without waiting for the other."""
    drawn: list[str] = []

    def noted(name: str, call: Callable) -> Callable:
        return lambda *arguments, **named: (drawn.append(name), call(*arguments, **named))[1]

    monkeypatch.setattr(overview, "survey", noted("all heads", overview.survey))
    monkeypatch.setattr(head, "show", noted("one head", head.show))
    Explore(text="a horse went down " * (words // 4))
    assert drawn == expected


class TestTexts:
    @pytest.mark.parametrize("text", ["", " ", "\n\n \t\n"])
    def test_an_empty_one_says_what_to_type_and_draws_nothing(self, text: str) -> None:
        page = Explore().type(text)
        assert len(page.boxes("info")) == 1
        assert not page.figures()
        assert not page.app.get("bidi_component")
        page.type("Once upon a time")
        assert len(page.weights()) > 3

    @pytest.mark.parametrize(
        "text",
        [
            "\x00\x07\x1b[31m red \x7f\x85",
            "👩‍👩‍👧 👍🏽 🦊",
            "كان يا ما كان \u202eabc\u202c שלום",
            "e\u0301 \u200b\ufeff \u2028",
            "<script>alert(1)</script> <img src=x onerror=alert(1)>",
            "<|endoftext|> <pad> <start>",
            "**bold** [link](http://example.org) $x^2$ :red[x] :material/home:",
        ],
    )
    def test_an_odd_one_is_shown_as_text(self, story: Model, text: str) -> None:
        page = Explore()
        ours = page.scripts()
        page.type(text)
        assert page.scripts() == ours  # no other scripts, whatever is typed
        expected = story.encode([line for line in re.split(r"\r\n|\n|\r", text) if line.strip()]).pieces[0]
        assert [name.partition(": ")[2] for name in page.names()] == list(expected)
        assert len(page.weights()) == len(expected)
        assert "�" not in expected
        shown = "".join(page.html() + [one.value for one in page.app.markdown])
        assert not re.search(r"<(script|img)", shown)
        page.set(causal=False)
        assert not np.isnan(page.weights()).any()

    def test_a_too_long_one_says_the_limit_and_what_was_cut_and_shows_the_rest(self, story: Model) -> None:
        text = " ".join(f"word{number}" for number in range(story.context))
        (cut,) = story.encode([text]).cut
        assert cut
        page = Explore().type(text)
        (warning,) = page.notes()
        assert str(story.context) in warning
        assert f"{len(cut):,}" in warning
        assert " ".join(cut.split())[:30] in warning
        assert len(array(page.figures()["loss_figure"]["data"][0]["y"])) == story.context

    @pytest.mark.parametrize(("piece", "notes"), [("a", 1), ("狐", 2)])  # cut; cut, and in bytes
    def test_a_hundred_thousand_characters_are_answered_within_a_second(self, piece: str, notes: int) -> None:
        page = Explore()
        text = (piece * 100_000)[:100_000]
        begin = time.process_time()  # CPU time of this process: other processes do not count
        page.type(text)
        assert time.process_time() - begin < 1
        assert len(page.notes()) == notes

    def test_a_row_that_is_gone_gives_the_last_one(self) -> None:
        page = Explore(text="one\ntwo\nthree", row="3")
        assert page["row"] == 3
        page.type("one\ntwo")
        assert page["row"] == 2


def test_back_undoes_a_choice_and_keeps_the_text_that_was_typed() -> None:
    page = Explore().type("a text of my own, and more of it").set(causal=False).set(layer=2)
    assert page.app.query_params == {"layer": "2", "head": "0", "causal": "false"}
    page.app.query_params.clear()
    page.app.query_params["causal"] = "false"  # as the browser does on Back
    page.run()
    assert (page["causal"], page["layer"], page["text"]) == (False, 4, "a text of my own, and more of it")
    page.app.query_params.clear()
    page.run()
    assert (page["causal"], page["text"]) == (True, "a text of my own, and more of it")


def test_the_text_of_a_lost_session_is_there_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first run drew another text, the browser would send that one with the click that ends the run."""
    sent = [WidgetState(id=f"$$ID-{'0' * 64}-text", string_value="Peter lost his hat")]
    monkeypatch.setattr(session, "sent_widgets", lambda: sent)
    after: list[list[WidgetState]] = []
    monkeypatch.setattr(session, "rerun_with", after.append)
    page = Explore()
    assert page["text"] == "Peter lost his hat"
    assert after == [sent], "the browser's message again, once all is drawn"
    assert page.set(example="A list").set(example=OWN_TEXT)["text"] == "Peter lost his hat"
