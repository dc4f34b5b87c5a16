"""The Mask Lab page without a browser: masks, their words, the layers they apply to, links, and a changing text."""

import re
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from model import catalog
from model.heads.view import MAX_CELLS
from model.masks import MaskSpec, Stroke
from tests.model.huggingface import more_families
from tests.model.huggingface.families import save
from tests.pages.explore import Explore, array
from tests.viz.packet import unpacked
from ui.sidebar.models import FIRST

TEXT = "Once upon a time, the cat sat on a mat, and the dog ran"
SECTIONS = ("effect", "reach", "steps", "fill", "code")


class Lab(Explore):
    """One user's page."""

    SCRIPT = "pages/mask_lab.py"

    def __init__(self, **query: str) -> None:
        super().__init__(**{"text": TEXT} | query)

    def turn_on(self, name: str, number: int | str | None = None) -> Self:
        """Switch a composed mask on, and set its number if given."""
        self.set(**{f"mask_{name}_on": True})
        return self if number is None else self.set(**{f"mask_{name}": number})

    def words(self, kind: str) -> str:
        """Return the paragraph of class `kind`, without its tags."""
        (found,) = [one for one in self.html() if f'class="{kind}"' in one]
        (text,) = re.findall(f'<p class="{kind}">(.*?)</p>', found)
        return re.sub("<.*?>", "", text)

    def draw(self, *strokes: Stroke) -> Self:
        """Set the drawing as if the canvas had sent it."""
        self.app.session_state.mask_drawn = strokes
        self.app.session_state.mask_drawn_on = True
        return self.run()


def test_sinks_that_open_later_tokens_are_said_to_though_causal_is_on() -> None:
    lab, note = Lab(masks=MaskSpec(sinks=1).to_json()), "The causal mask is on, but"
    assert not any(note in one for one in lab.boxes("caption")), "the first token is later than none"
    lab.set(mask_sinks=2)
    blocked = np.isnan(expected(MaskSpec(sinks=2)))
    assert np.argwhere(np.triu(~blocked, 1)).tolist() == [[0, 1]]
    assert any(
        f"{note} some later tokens are open because of sinks" in one and "(0) may attend to" in one
        for one in lab.boxes("caption")
    )
    lab.set(causal=False)
    assert not any(note in one for one in lab.boxes("caption"))


@pytest.mark.parametrize(("attention", "count"), [("encoder", 0), ("decoder", 1)])
def test_an_encoder_s_open_tokens_are_not_laid_to_a_causal_mask(folders: dict, attention: str, count: int) -> None:
    lab = Lab(model=folders["t5"], text="the cat sat on a mat", attention=attention, masks='{"prefix":3}')
    assert sum("The causal mask is on, but" in note for note in lab.notes()) == count


@pytest.mark.parametrize(
    ("given", "idle"),
    [
        ({"documents": "#"}, "documents split at “#”"),
        ({"sliding": 99, "documents": "#"}, "window of 99, documents split at “#”"),
        ({"causal": False, "prefix": 3, "sliding": 2}, ""),
        ({"causal": False, "prefix": 3}, "prefix of 3"),
        ({"block_causal": 4, "stride": 2}, "block-causal mask of 4"),
        ({"sliding": 1, "stride": 99}, "window of 1"),  # both block the same cells
        ({"prefix": 2, "sinks": 2}, "prefix of 2"),
        ({"drawn": (Stroke("block", 70, 1, 70, 1),), "sliding": 99}, "window of 99, drawing"),
        ({"drawn": (Stroke("block", 1, 2, 1, 3), Stroke("erase", 0, 0, 9, 9))}, "drawing"),
        ({"drawn": (Stroke("block", 2, 1, 2, 1),)}, ""),
        ({"sliding": 99, "layers": (2,)}, ""),  # in another layer than the one shown
    ],
)
def test_masks_that_change_nothing_are_noted_in_one_way(given: dict, idle: str) -> None:
    found = [note for note in Lab(masks=MaskSpec(**given).to_json()).notes() if "changing no cell" in note]
    assert [note.removeprefix(":material/info: ") for note in found] == (
        [f"On, but changing no cell of this row's real tokens in L4 H0: {idle}."] if idle else []
    )


def expected(spec: MaskSpec, layer: int = 4, head: int = 0) -> np.ndarray:
    """Return the weights of a head of the story model, NaN where blocked."""
    model = catalog.load("story")
    trace = model.run(model.encode([TEXT], "left"), spec)
    weights = trace.weights(layer, head).numpy()
    return np.where(trace.allowed(layer, head=head).numpy(), weights, np.nan)


@pytest.mark.parametrize(
    ("name", "number", "spec"),
    [
        ("sliding", 3, MaskSpec(sliding=3)),
        ("documents", ",", MaskSpec(documents=",")),
        ("sinks", 2, MaskSpec(sinks=2)),
    ],
)
def test_each_row_is_its_mask(name: str, number: int | str, spec: MaskSpec) -> None:
    page = Lab().turn_on(name, number)
    np.testing.assert_allclose(page.weights(), expected(spec), atol=1e-6)
    assert name in page.words("formula")
    assert MaskSpec.from_json(page.url["masks"]) == spec
    page.set(**{f"mask_{name}_on": False})
    np.testing.assert_allclose(page.weights(), expected(MaskSpec()), atol=1e-6)
    assert "masks" not in page.url


def test_all_together_and_their_formula() -> None:
    page = Lab().turn_on("sliding", 3).turn_on("sinks", 2).turn_on("documents", ",")
    page.draw(Stroke("block", 4, 0, 6, 1))
    spec = MaskSpec(sliding=3, sinks=2, documents=",", drawn=(Stroke("block", 4, 0, 6, 1),))
    np.testing.assert_allclose(page.weights(), expected(spec), atol=1e-6)
    assert page.words("formula").startswith("allowed = ((causal ∧ sliding ∧ documents) ∨ sinks) ∧ ¬drawn")


def test_the_counts_are_those_of_the_cells() -> None:
    page = Lab(text="Once upon a time\nThe cat", row="2")
    trace_blocked = np.isnan(page.weights())
    words = page.words("counts")
    assert words.startswith(f"Cells blocked: {trace_blocked.sum()} of {trace_blocked.size}. By mask: ")
    numbers = [int(number) for number in re.findall(r"(\d+) (?:causal|padding)", words.partition(";")[0])]
    assert sum(numbers) == trace_blocked.sum()
    assert "each mask on its own" in words


def test_where_the_masks_hold() -> None:
    page = Lab().turn_on("sliding", 2)
    page.set(mask_where="layers")
    page.set(mask_layers=[1, 4])
    np.testing.assert_allclose(page.weights(), expected(MaskSpec(sliding=2, layers=(1, 4))), atol=1e-6)
    page.set(layer=3)
    np.testing.assert_allclose(page.weights(), expected(MaskSpec(sliding=2, layers=(1, 4)), 3), atol=1e-6)
    page.set(mask_where="head")
    np.testing.assert_allclose(page.weights(), expected(MaskSpec(sliding=2, layers=(3,), heads=(0,)), 3), atol=1e-6)


def test_a_drawing_is_shown_in_the_layers_it_holds_in_alone() -> None:
    block = Stroke("block", 4, 0, 6, 1)
    page = Lab(masks=MaskSpec(drawn=(block,), layers=(2,)).to_json(), layer="2")
    header, _ = unpacked(page.packets()["unmask_mask"])
    assert header["strokes"] == [["block", 4, 0, 6, 1]]
    assert header["most"] > 0
    assert "drawn" in page.words("formula")
    assert "drawn" in page.words("counts")
    page.set(layer=4)
    header, _ = unpacked(page.packets()["unmask_mask"])
    assert (header["strokes"], header["below"], header["most"]) == ([], [], 0)
    assert "drawn" not in page.words("formula") + page.words("counts")
    assert MaskSpec.from_json(page.url["masks"]).drawn == (block,)  # kept for its own layer
    page.set(layer=2)
    assert "drawn" in page.words("formula")


LEAK = '{"drawn":[["open",4,14,4,14]]}'


def test_an_answer_that_gets_out_by_two_layers_is_found_and_its_loss_told() -> None:
    page = Lab(text=FIRST, masks=LEAK)
    sentence = page.words("sentence")
    assert sentence.startswith("Tokens that have leaked to the positions that must predict them: 5 to 14. ")
    assert "The loss of ·whist (5) goes from 5.84 to 0.87 nats" in sentence
    assert "in L0 ·whist (14) may attend to ·whist (5), in L1 ·silver (4) may attend to ·whist (14)" in sentence
    assert any(">5: ·whist<" in one and "5.84" in one for one in page.html()), "the table of answers"


def test_a_change_that_lets_nothing_out_is_called_no_leak() -> None:
    sentence = Lab(text=FIRST).turn_on("sliding", 4).words("sentence")
    assert "leaked" not in sentence
    assert "Mean loss: " in sentence


def test_a_query_governs_its_next_token_its_loss_and_its_row_and_is_in_the_link() -> None:
    page = Lab(text=FIRST, masks=LEAK)
    assert "query" not in page.url
    last = page.candidates()
    page.set(query=4)
    assert page.url["query"] == "4"
    assert page.candidates() != last
    assert page.candidates()[0][0] == "·whist"
    (about,) = [one for one in page.html() if "What follows" in one]
    assert "·whist</b> (5): a loss of 0.87" in about
    assert "5.84 under the standard masks" in about
    assert [shape["x0"] for shape in page.figures()["loss_figure"]["layout"]["shapes"]] == [5]
    (frame,) = page.figures()["head_figure"]["layout"]["shapes"]
    assert (frame["y0"], frame["y1"]) == (3.5, 4.5)
    for section in ("reach", "steps"):
        page.set(section=section)
        assert any("·silver</b> (position 4)" in one for one in page.html())


def test_another_text_has_its_own_last_query_until_one_is_picked() -> None:
    page = Lab(text="a cat")
    page.type(TEXT)
    assert page.value("query") == len(page.names()) - 1
    assert "query" not in page.url


def test_of_a_long_text_the_part_that_the_query_is_in_is_drawn_on() -> None:
    page = Lab(text="the old mill by the river and " * 30)
    last = page.value("query")
    assert last > 2 * MAX_CELLS - 60
    for query, first in (
        (last, last + 1 - MAX_CELLS),
        (3, 0),
        (MAX_CELLS - 1, 0),
        (MAX_CELLS, last + 1 - MAX_CELLS),
    ):
        page.set(query=query)
        assert [int(name.split(":")[0]) for name in page.names()] == list(range(first, first + MAX_CELLS))
        assert f"Positions {first} to {first + MAX_CELLS - 1}:" in " ".join(page.boxes("caption"))
    page.set(positions=(40, last))
    assert page.names()[0].startswith("40: ")
    assert page.set(query=last - 1).names()[0].startswith(f"{last - MAX_CELLS}: ")


def test_a_drawing_is_switched_off_and_on_again_and_drawn_over() -> None:
    page = Lab(masks='{"drawn":[["block",4,0,6,1]]}')
    page.set(mask_drawn_on=False)
    np.testing.assert_allclose(page.weights(), expected(MaskSpec()), atol=1e-6)
    assert page.url["drawing"] == "false"  # the link keeps a drawing that is off
    page.set(mask_drawn_on=True)
    assert np.isnan(page.weights()[4:7, 0:2]).all()
    assert Lab().app.toggle(key="mask_drawn_on_0").disabled


def test_a_link_that_is_read_again_sets_the_canvas_s_drawing_anew() -> None:
    page = Lab()
    opened = page["mask_epoch"]
    page.app.session_state.mask_number = 1
    page.draw(Stroke("block", 4, 0, 6, 1))
    page.app.query_params.clear()  # as the browser does on Back
    page.app.query_params.update(text=TEXT)
    assert page.run()["mask_drawn"] == ()
    assert page["mask_epoch"] > opened, "the canvas would take it for a late answer"


def test_a_drawing_says_when_the_text_under_it_has_changed() -> None:
    page = Lab(masks='{"drawn":[["block",4,0,6,1]]}')
    assert not page.boxes("warning")
    page.type(TEXT.replace("cat", "dog"))
    assert page.boxes("warning")[0].endswith("under the drawn mask: its cells now cover other tokens.")
    keep = next(button for button in page.app.button if button.label == "Keep it")
    keep.click()
    assert not page.run().boxes("warning")
    assert np.isnan(page.weights()[4:7, 0:2]).all()
    page.type("The cat")
    assert page.boxes("warning")[0].endswith("is too short for any of its cells.")
    page.type(TEXT)
    page.press("Clear the drawing")
    assert not page.boxes("warning")
    assert not np.isnan(page.weights()[4:7, 0:2]).any()


def test_the_change_is_now_minus_standard() -> None:
    page = Lab().turn_on("sliding", 3)
    page.set(shown="change")
    (trace,) = [one for one in page.figures()["head_figure"]["data"] if one["name"] == "difference"]
    now, standard = (np.nan_to_num(expected(spec)) for spec in (MaskSpec(sliding=3), MaskSpec()))
    change = array(trace["z"])
    seen = ~np.isnan(change)
    np.testing.assert_allclose(change[seen], (now - standard)[seen], atol=1e-6)
    np.testing.assert_array_equal(seen, ~np.isnan(expected(MaskSpec())))


@pytest.mark.parametrize(
    "masks",
    ['{"sliding":"wide"}', "not JSON", '{"![x](https://example.org/a.png)":1}'],
)
def test_a_link_with_nonsense_is_a_sentence_and_a_page_as_it_was_trained(masks: str) -> None:
    page = Lab(masks=masks)
    assert "could not be read" in page.boxes("warning")[0]
    assert not any("![x](" in box.value for box in page.app.warning), "a link's words are no markdown"
    np.testing.assert_allclose(page.weights(), expected(MaskSpec()), atol=1e-6)


@pytest.mark.parametrize("masks", ['{"heads":[1]}', '{"positions":"cells","sliding":3}'])
def test_a_mask_that_the_page_has_no_controls_for_is_refused_and_said(masks: str) -> None:
    page = Lab(masks=masks)
    assert "could not be read" in page.boxes("warning")[0]
    np.testing.assert_allclose(page.weights(), expected(MaskSpec()), atol=1e-6)


SHOWS = {  # section -> whether a page has what only that section shows
    "effect": lambda page: "loss_figure" in page.figures(),
    "reach": lambda page: "reach_figure" in page.figures(),
    "steps": lambda page: "steps_figure" in page.figures(),
    "fill": lambda page: any("bfloat16" in one for one in page.html()),
    "code": lambda page: any("scaled_dot_product_attention" in code.value for code in page.app.code),
}


def shown(page: Lab, section: str) -> list[str]:
    """Open a section; return the sections whose contents are then on the page."""
    page.set(section=section)
    return [name for name, there in SHOWS.items() if there(page)]


@pytest.mark.parametrize("text", [TEXT, "🙂 <script>alert(1)</script>\nand two more words"])
def test_every_section_of_every_text(text: str) -> None:
    page = Lab(text=text, masks='{"sliding":3,"sinks":1,"drawn":[["block",1,0,1,1]]}')
    for section in SECTIONS:
        assert shown(page, section) == [section]
        assert not any("<script" in one for one in page.html())


@pytest.mark.parametrize("family", ["bert", "t5", "gpt_oss"])
def test_other_models(folders: dict[str, str], family: str) -> None:
    page = Lab(model=folders[family], text="the cat sat on a mat and the cat saw")
    page.turn_on("sliding", 3).turn_on("sinks", 1)
    last = np.isnan(page.weights())[-1]
    assert last[1:-3].all(), "what is three or more positions back"
    assert not last[0], "the sink"
    for section in SECTIONS:
        assert shown(page, section) == ([] if (family, section) == ("bert", "effect") else [section])


def test_a_link_keeps_a_causal_mask_that_an_encoder_was_not_trained_with(folders: dict[str, str]) -> None:
    """Its masks are then those of a MaskSpec with all defaults."""
    link = {"model": folders["bert"], "text": "the cat sat on a mat"}
    page = Lab(**link)
    assert page["causal"] is False
    page.set(causal=True)
    again = Lab(**link | {name: page.app.query_params[name] for name in page.app.query_params})
    assert again["causal"] is True


def test_what_was_lifted_in_explore_is_lifted_here_and_the_other_way_round() -> None:
    page = Lab().set(causal=False)
    page.app.switch_page("app.py")
    assert page.run()["causal"] is False
    page.app.switch_page("pages/mask_lab.py")
    page.run().turn_on("sliding", 4)
    page.go("app.py")
    page.app.switch_page("pages/mask_lab.py")
    assert page.run()["mask_sliding"] == 4
    assert page["mask_sliding_on"]


def test_a_layer_has_the_number_that_it_has_in_the_network(tmp_path: Path) -> None:
    """Only the middle one of this model's three layers has attention: its head is L1 H0 wherever it is named."""
    page = Lab(model=str(save("lfm2", tmp_path / "lfm2", more_families.ALL["lfm2"])))
    for section in SECTIONS:
        page.set(section=section)
        text = " ".join([*page.html(), *(one.value for kind in ("caption", "info") for one in page.app.get(kind))])
        assert "L0" not in text, section
        assert ("L1" in text) == (section in ("reach", "fill")), section
        assert ("Only attention is counted" in text) == (section == "reach")
