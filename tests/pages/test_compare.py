"""The Compare page without a browser: other masks, another text, another model."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model import catalog
from model.base import Model
from model.masks import MaskSpec
from tests.apptest import charts
from tests.model.huggingface.families import save
from tests.pages.explore import Explore, array
from ui.compare import OTHER_TEXT, masks_for_model
from ui.heads import head
from ui.sidebar.chat import NOTE
from ui.sidebar.models import FIRST
from viz.palette import NOW, STANDARD

TEXT = "the cat sat on a mat and then it saw the cat"


class Compare(Explore):
    """One user's page."""

    SCRIPT = "pages/compare.py"

    def shown(self, key: str) -> np.ndarray:
        """Return float [Q,K] of A ("head_a"), B ("head_b") or B - A ("head_difference"), 0 where blocked."""
        (trace,) = [one for one in self.figures()[key]["data"] if one["name"] in ("weights", "difference")]
        return np.nan_to_num(array(trace["z"]))


def weights(model: Model, text: str, spec: MaskSpec, layer: int = 4, head: int = 0) -> np.ndarray:
    return model.run(model.encode([text]), spec).weights(layer, head).numpy()


def test_two_masks(story: Model) -> None:
    page = Compare()
    one, other = (weights(story, FIRST, MaskSpec(causal=causal)) for causal in (True, False))
    np.testing.assert_allclose(page.shown("head_a"), one, atol=1e-6)
    np.testing.assert_allclose(page.shown("head_b"), other, atol=1e-6)
    np.testing.assert_allclose(page.shown("head_difference"), other - one, atol=1e-6)
    ranges = [page.figures()[f"head_{key}"]["data"][-1]["zmax"] for key in "ab"]
    assert ranges[0] == ranges[1]
    assert page.sentence().startswith("A and B differ most where “·silver” (13) attends to “·whist” (5): 0.987 in A")
    (tokens,) = [one for one in page.html() if 'class="numbers next"' in one]
    first, second = re.findall(r"background: ?(#\w+)", tokens)[:2]
    assert (first, second) == (STANDARD, NOW), "B is what is changed"
    page.set(b_causal=True)
    assert page.sentence().startswith("No weight differs")
    assert page.url == {"b_off": ""}
    page.set(causal=False).set(layer=0, head=3)
    np.testing.assert_allclose(page.shown("head_a"), weights(story, FIRST, MaskSpec(causal=False), 0, 3), atol=1e-6)
    np.testing.assert_allclose(page.shown("head_b"), weights(story, FIRST, MaskSpec(), 0, 3), atol=1e-6)


@pytest.mark.parametrize("causal", ["true", "false"])
def test_b_differs_from_a_in_the_causal_mask_alone_until_its_masks_are_chosen(story: Model, causal: str) -> None:
    page = Compare(causal=causal, padding="false")
    assert [page[name] for name in ("b_causal", "b_padding")] == [causal == "false", False]
    assert np.abs(page.shown("head_difference")).max() > 0.1
    assert "b_off" not in page.url
    page.set(causal=causal == "false")
    assert page["b_causal"] == (causal == "true")
    page.set(causal=causal == "true").set(b_padding=True)
    assert page.url["b_off"] == ("causal" if causal == "true" else "")
    assert Compare(**page.url)["b_padding"]


def test_a_text_typed_on_a_page_that_came_without_it_is_in_no_address() -> None:
    page = Explore(text="The owl sat on the tree, and the owl sat")
    page.go("pages/compare.py").set(differs="text")
    assert page.url == {"text": page["text"], "differs": "text"}
    page.set(b_text="A private one")
    assert page.url == {"differs": "text"}
    page.go("app.py")
    assert page.url == {"text": page["text"]}


def test_two_texts(story: Model) -> None:
    page = Compare(differs="text")
    expected = weights(story, OTHER_TEXT, MaskSpec())
    np.testing.assert_allclose(page.shown("head_b"), expected, atol=1e-6)
    assert "“·blew / ·lost” (11)" in page.sentence()
    page.set(b_text="Once upon a time")
    assert next(one for one in page.boxes("caption") if one.startswith("After")).endswith("after “·time” (4) in B.")
    page.set(query=2)
    assert any("(2) in A, after “·upon” (2) in B" in one for one in page.boxes("caption"))
    assert "head_difference" not in page.figures()
    assert "different lengths" in page.sentence()
    assert page.url == {"differs": "text", "query": "2"}  # a link has no text unless requested
    page.set(text="a", b_text="b")
    assert "0.994 in A, 0.989 in B" in page.sentence()
    page.set(b_text="the cat sat\nthe dog")
    assert ":material/info: B: Only the first line of B's text is read." in page.boxes("caption")
    page.set(b_text="the cat sat " * 100)
    assert any("B: story reads at most 256 tokens here. Row 1" in one for one in page.boxes("caption"))
    page.set(b_text=" ")
    assert "expected a text for B, got none" in " ".join(page.boxes("error"))


@pytest.mark.parametrize("query", [{"differs": "head"}, {"differs": "text", "b_text": '<i>"A" & B</i>'}])
def test_alternative_texts_are_no_html(query: dict[str, str]) -> None:
    page = Compare(text="<i>'A' & B</i>", **query)
    alts = [chart["alt"] for chart in charts(page.app).values()]
    assert any("<" in alt for alt in alts)
    assert not any("&lt;" in alt or "&amp;" in alt or "&#" in alt for alt in alts)


def test_the_framed_row_of_b_is_the_one_whose_next_token_is_shown() -> None:
    padded = {"text": "the cat sat\nthe cat sat on the mat and saw a dog", "pad": "left"}
    page = Compare(differs="text", b_text="a dog ran to the big house", **padded)
    assert not any(page.figures()[key]["layout"].get("shapes") for key in ("head_a", "head_b"))
    page.set(query=10)
    (caption,) = [one for one in page.boxes("caption") if one.startswith("After")]
    assert caption == "After “·cat” (10) in A, after “·dog” (2) in B."
    for key in ("head_a", "head_b"):
        (frame,) = page.figures()[key]["layout"]["shapes"]
        assert (frame["y0"], frame["y1"]) == (1.5, 2.5)
    page.set(b_text="the dog ran")
    found = re.search(r"\((\d+) / (\d+)\) attends to “.*?” \((\d+) / (\d+)\)", page.sentence())
    assert found
    query, b_query, key, b_key = map(int, found.groups())
    assert query - b_query == key - b_key == 8, "A is padded by eight"
    trace = page.figures()["head_difference"]["data"][-1]
    assert any("·cat / ·dog" in label for label in trace["y"])


def test_a_click_on_b_chooses_the_row_of_the_same_number_in_a(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers, chosen, show = {}, [], head.show
    monkeypatch.setattr(
        head, "show", lambda *of, **how: (handlers.update({how["key"]: how.get("on_pick")}), show(*of, **how))
    )
    Compare(differs="text", text="the cat sat\nthe cat sat on the mat and saw a dog", b_text="the dog ran")
    monkeypatch.setattr(head, "choose_query", lambda row, _: chosen.append(row))
    assert handlers.pop("head_a") is None  # the default: a click chooses A's own row
    for pick in handlers.values():
        pick(2, 1)
        pick(0, 1)
    assert chosen == [10, 8, 10, 8], "A is padded by eight"


def test_a_row_of_padding_in_one_text_is_the_same_row_in_b(monkeypatch: pytest.MonkeyPatch) -> None:
    picks, show = [], head.show
    monkeypatch.setattr(head, "show", lambda *of, **how: (picks.append(how.get("on_pick")), show(*of, **how)))
    padded = {"text": "The cat ran home to the king\nHi", "row": "2", "query": "1"}
    for differs in ({"b_off": "padding"}, {"differs": "head", "padding": "false"}):
        page = Compare(**padded, **differs)
        assert "After “<pad>” (1) in A, after “<pad>” (1) in B." in page.boxes("caption")
        frames = [page.figures()[key]["layout"]["shapes"][0] for key in ("head_a", "head_b")]
        assert [(frame["y0"], frame["y1"]) for frame in frames] == [(0.5, 1.5)] * 2
    monkeypatch.setattr(head, "choose_query", lambda row, _: row)
    assert {pick(2, 1) for pick in picks if pick} == {2}


def test_a_row_of_several_is_compared_without_its_padding() -> None:
    page = Compare(text="the cat\nthe cat sat on the mat and saw a dog")
    assert page.shown("head_a").shape == page.shown("head_b").shape == (3, 3)


def test_two_models(folders: dict[str, str]) -> None:
    page = Compare(model=folders["gpt2"], differs="model", b_model=folders["mistral"], text=TEXT, layer="2", head="3")
    one, other = (catalog.load(folders[name]) for name in ("gpt2", "mistral"))
    np.testing.assert_allclose(page.shown("head_a"), weights(one, TEXT, MaskSpec(), 2, 3), atol=1e-5)
    other_weights = weights(other, TEXT, MaskSpec(), 2, 3)
    np.testing.assert_allclose(page.shown("head_b"), other_weights, atol=1e-5)
    assert ("head_difference" in page.figures()) == (page.shown("head_a").shape == other_weights.shape)


def test_b_reads_chat_messages_where_a_does(folders: dict[str, str], tmp_path: Path) -> None:
    folder = save("llama", tmp_path / "llama")
    (folder / "chat_template.jinja").write_text("{% for one in messages %}{{ one.content }} so {% endfor %}")
    text = "user: the cat sat\nassistant: on a mat"
    for differs in ({"differs": "text", "b_text": text}, {"differs": "model", "b_model": str(folder)}):
        page = Compare(model=str(folder), text=text, chat="true", **differs)
        one, other = (page.figures()[key]["data"][-1]["y"] for key in ("head_a", "head_b"))
        assert one == other
        assert len(one) == 8, "the cat sat so on a mat so"
        assert not page.boxes("info")
    page = Compare(model=str(folder), text=text, chat="true", differs="model", b_model=folders["mistral"])
    assert f":material/info: B: {NOTE}" in page.boxes("caption")


def test_b_s_model_has_a_head_of_its_own(folders: dict[str, str], story: Model) -> None:
    page = Compare(differs="model", b_model=folders["gpt2"], text=TEXT, layer="5", head="5")
    other = catalog.load(folders["gpt2"])
    assert (page["layer"], page["head"]) == (5, 5)
    np.testing.assert_allclose(page.shown("head_a"), weights(story, TEXT, MaskSpec(), 5, 5), atol=1e-5)
    np.testing.assert_allclose(page.shown("head_b"), weights(other, TEXT, MaskSpec(), 2, 3), atol=1e-5)  # nearest head
    page.set(b_layer=0, b_head=1)
    np.testing.assert_allclose(page.shown("head_b"), weights(other, TEXT, MaskSpec(), 0, 1), atol=1e-5)
    assert (page.url["b_layer"], page.url["b_head"]) == ("0", "1")
    titles = [one.value for one in page.app.main.markdown if one.value.startswith("#### ")]
    assert [title[-5:] for title in titles[:2]] == ["L5 H5", "L0 H1"]


def test_two_heads_of_one_model(story: Model) -> None:
    page = Compare(differs="head", text=TEXT, layer="4", head="0", causal="false", b_off="padding")
    one, other = (weights(story, TEXT, MaskSpec(causal=False), 4, head) for head in (0, 1))
    np.testing.assert_allclose(page.shown("head_b"), other, atol=1e-6)  # B is the next head, under A's masks
    np.testing.assert_allclose(page.shown("head_difference"), other - one, atol=1e-6)
    assert page.sentence().startswith("A and B differ most where")
    page.set(b_layer=2, b_head=0)
    np.testing.assert_allclose(page.shown("head_b"), weights(story, TEXT, MaskSpec(causal=False), 2, 0), atol=1e-6)
    page.set(b_layer=4)
    assert page.sentence().startswith("No weight differs")


@pytest.mark.parametrize("side", ["left", "right"])
def test_one_text_under_two_padding_masks_has_a_difference(story: Model, side: str) -> None:
    rows = ["the cat", "the cat sat on the mat and saw a dog"]
    page = Compare(text="\n".join(rows), b_off="padding", pad=side)
    batch = story.encode(rows, side)
    one, other = (story.run(batch, MaskSpec(padding=on)).weights(4, 0).numpy() for on in (True, False))
    np.testing.assert_allclose(page.shown("head_difference"), other - one, atol=1e-6)
    assert "different lengths" not in page.sentence()


def test_models_without_an_attention_in_common_say_so(folders: dict[str, str]) -> None:
    page = Compare(differs="model", b_model=folders["t5"], text=TEXT)
    assert "no attention of the same kind" in " ".join(page.boxes("info"))


def test_an_encoder_beside_a_decoder_predicts_nothing(folders: dict[str, str]) -> None:
    page = Compare(model=folders["bert"], differs="model", b_model=folders["gpt2"], text=TEXT)
    assert page.shown("head_a").shape[0] == page.shown("head_b").shape[0] + 2  # BERT adds two special tokens
    assert not [one for one in page.html() if 'class="numbers next"' in one]


@pytest.mark.parametrize(
    ("one", "other", "switched", "causal"),
    [("bert", "gpt2", {}, True), ("bert", "gpt2", {"causal": True}, True), ("gpt2", "bert", {}, False),
     ("gpt2", "mistral", {"causal": False}, False), ("bert", "bert", {"causal": True}, True)],
)  # fmt: skip
def test_b_s_model_has_the_masks_that_a_switched_and_else_its_own(
    folders: dict[str, str], one: str, other: str, switched: dict[str, bool], causal: bool
) -> None:
    a, b = (catalog.load(folders[name]) for name in (one, other))
    assert masks_for_model(replace(a.standard, **switched), a, b) == replace(b.standard, causal=causal)


def test_a_model_that_cannot_be_had_is_a_sentence() -> None:
    page = Compare(differs="model", b_model="/no/such/folder")
    assert "/no/such/folder" in " ".join(page.boxes("error"))


def test_a_link_to_a_model_for_b_that_is_not_offered_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_MODELS", "story,dates")
    (warning,) = Compare(differs="model", b_model="gpt2").boxes("warning")
    assert warning == "The link names the model gpt2, which is not available here. Choose one of story, dates."
    assert not Compare(differs="model").boxes("warning")


def test_forward_brings_two_typed_texts_again_and_back_those_of_the_link() -> None:
    page = (
        Compare(differs="text", text="the cat sat", b_text="the dog sat").type("a red hen ran").set(b_text="a cow ran")
    )
    assert page.app.query_params == {"differs": "text"}
    page.app.query_params.update(text="the cat sat", b_text="the dog sat")  # as the browser does on Back …
    page.run()
    assert (page["text"], page["b_text"]) == ("the cat sat", "the dog sat")
    del page.app.query_params["text"], page.app.query_params["b_text"]  # … and Forward
    page.run()
    assert (page["text"], page["b_text"]) == ("a red hen ran", "a cow ran")


def test_padding_that_only_one_side_masks_is_neither_counted_nor_named(story: Model) -> None:
    rows = ["Alice looked at the rabbit.", "A red hen sat."]
    page = Compare(text="\n".join(rows), row="2", b_off="padding")
    assert len(page.shown("head_b")) == story.encode(rows).ids.shape[1]
    assert "“&lt;pad&gt;” (0) attends" not in page.sentence()
    assert f" of {story.encode(rows[1:]).ids.shape[1]}." in page.sentence()
