"""The Ablation page without a browser: which heads are off and how, and the ranking of all heads."""

from types import SimpleNamespace

import numpy as np
import pytest

from model.base import Model
from model.decoder import DecoderModel
from model.heads.ablation import AblatedHeads, layer_effects, outcome
from model.masks import MaskSpec, Stroke
from tests.apptest import charts
from tests.pages.explore import Explore, array
from ui import ablation
from ui.sidebar.models import FIRST
from viz.html import signed

TEXT = "the cat sat on a mat and then it saw the cat"


class Ablation(Explore):
    """One user's page."""

    SCRIPT = "pages/ablation.py"

    def effects(self) -> np.ndarray:
        return array(self.figures()["effects"]["data"][0]["z"])

    def losses(self) -> list[np.ndarray]:
        return [array(curve["y"]) for curve in self.figures()["loss_figure"]["data"]]


@pytest.mark.parametrize("way", ["zero", "mean", "mask"])
def test_the_page_shows_what_the_model_computes(story: Model, way: str) -> None:
    page = Ablation(heads_off="4.0,0.3", way_off=way, query="11", mask_off="not_first")
    batch = story.encode([FIRST])
    own = MaskSpec(drawn=(Stroke("block", 0, 0, 999_999, 0),)) if way == "mask" else None
    off = AblatedHeads(((4, 0), (0, 3)), way, own)  # type: ignore[arg-type]
    target = int(batch.ids[0, 12])
    whole, without = (outcome(story, batch, MaskSpec(), 0, 11, one, target) for one in (AblatedHeads(()), off))
    change = whole.log_probability - without.log_probability
    about = f"changes the loss of “{whole.label}” after “·blew” (11) by {signed(change, 2)} nats"
    assert about in page.sentence()
    now, before = page.losses()
    np.testing.assert_allclose(now, without.losses, atol=1e-5)
    np.testing.assert_allclose(before, whole.losses, atol=1e-5)
    assert [token for token, _ in page.candidates()][1::2] == [
        label.replace("<", "&lt;").replace(">", "&gt;") for label, _ in whole.candidates
    ]


def test_it_begins_with_the_head_that_is_chosen_on_explore() -> None:
    page = Explore().set(layer=0, head=3).go("pages/ablation.py")
    assert page.value("heads_chosen") == [(0, 3)]
    assert Ablation(layer="0", head="3", heads_off="4.0").value("heads_chosen") == [(4, 0)]


def test_a_probability_is_said_once() -> None:
    assert "99.4%" in Ablation().sentence()
    assert "most likely next token" not in Ablation().sentence()
    assert "After ·blew (11) the most likely next token was" in Ablation(query="11", heads_off="4.0,0.3").sentence()


def test_no_head_off_shows_one_run() -> None:
    page = Ablation()
    assert charts(page.app)["loss_figure"]["alt"].endswith(" (heads off), 3.66 (all heads).")
    page.set(heads_chosen=[])
    assert charts(page.app)["loss_figure"]["alt"] == "Loss per token, mean 3.66 nats"
    assert (
        page.sentence().strip()
        == "No head is off. Choose heads above, or rank them all by their effect on this prediction."
    )
    assert len(page.losses()) == 1
    assert [one.value for one in page.app.caption if one.value.startswith("Loss per token")] == [
        "Loss per token, mean 3.66 nats"
    ]
    assert page.url["heads_off"] == ""
    assert Ablation(**page.url).value("heads_chosen") == []


def test_all_heads_on_is_a_run_that_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Ablation(text="the old dog ran to the sea and the cat ran too", heads_off="4.0")
    runs, run = [], DecoderModel.run
    monkeypatch.setattr(DecoderModel, "run", lambda *args: runs.append(args) or run(*args))
    page.set(query=3)
    assert "(3)" in page.sentence()
    assert all(edit is not None for *_, edit in runs), "of a long text a run takes seconds"


def test_every_head_is_ranked_and_the_strongest_can_be_turned_off(story: Model) -> None:
    page = Ablation()
    assert "effects" not in page.figures()
    page.press("rank")
    batch = story.encode([FIRST])
    query = batch.ids.shape[1] - 1
    target = outcome(story, batch, MaskSpec(), 0, query, AblatedHeads(())).target
    expected = [
        layer_effects(story, batch, MaskSpec(), 0, query, target, layer, AblatedHeads(())) for layer in range(6)
    ]
    np.testing.assert_allclose(page.effects(), np.stack(expected), atol=1e-5)
    layer, head = np.unravel_index(int(np.argmax(expected)), (6, 6))
    page.press("turn_first")
    assert page.value("heads_chosen") == [(layer, head)]
    assert page.sentence().startswith(f"Turning L{layer} H{head} off")
    assert page.url == {"heads_off": f"{layer}.{head}", "ranking": "true"}
    assert page.app.button(key="rank").label == "Close the ranking"  # also stops a running one
    page.press("rank")
    assert "effects" not in page.figures()


def test_the_head_that_can_be_turned_off_is_the_one_that_is_named() -> None:
    text = "The cat sat by the old door. The dog sat by the old gate."
    page = Ablation(text=text, heads_off="4.0,2.1,5.2", way_off="mask", mask_off="ahead", ranking="true", query=9)
    assert page.effects().min() < -page.effects().max(), "the largest effect is a fall"
    layer, head = np.unravel_index(int(np.abs(page.effects()).argmax()), (6, 6))
    assert any(f"L{layer} H{head} matters most" in one.value for one in page.app.markdown)
    assert page.app.button(key="turn_first").label == f"Turn L{layer} H{head} off"


@pytest.mark.parametrize(
    ("heads", "way", "words"),
    [
        ("4.0", "mean", "(output set to its mean over this text)"),
        ("4.0,2.1", "mean", "(outputs set to their means over this text)"),
        ("4.0,2.1", "zero", "(outputs set to 0)"),
    ],
)
def test_the_sentence_says_what_one_head_or_several_give(heads: str, way: str, words: str) -> None:
    assert words in Ablation(heads_off=heads, way_off=way).sentence()


def test_the_masks_hold_for_both_runs(story: Model) -> None:
    page = Ablation(causal="false", heads_off="4.0")
    batch = story.encode([FIRST])
    np.testing.assert_allclose(page.losses()[1], story.run(batch, MaskSpec(causal=False)).losses().numpy(), atol=1e-5)
    page.set(way_off="mask")
    assert "also later tokens" not in page.app.selectbox(key="mask_off").options  # every query may attend to them


@pytest.mark.parametrize("written", ["9.9", "4.0.1"])
def test_a_link_s_heads_that_are_not_there_are_left_out(written: str) -> None:
    assert Ablation(heads_off=written).value("heads_chosen") == []


@pytest.mark.parametrize(
    ("written", "heads"),
    [("", []), ("4.0,0.3", [(4, 0), (0, 3)]), ("1.1,1.1", [(1, 1)]), ("1.2x3.4", [(1, 2), (3, 4)])],
)
def test_heads_are_read_as_they_are_written(
    written: str, heads: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ablation.read(written) == heads
    state = SimpleNamespace()
    monkeypatch.setattr(ablation.st, "session_state", state)
    ablation.turn_off(heads)
    assert ablation.read(state.heads_off) == heads


class TestOtherModels:
    def test_an_encoder_predicts_nothing(self, folders: dict[str, str]) -> None:
        assert "predicts no next token" in " ".join(Ablation(model=folders["bert"], text=TEXT).boxes("info"))

    def test_a_decoder_with_a_window(self, folders: dict[str, str]) -> None:
        page = Ablation(model=folders["mistral"], text=TEXT, ranking="true")
        assert page.effects().shape == (3, 4)
        assert np.isfinite(page.effects()).all()

    @pytest.mark.parametrize("attention", ["encoder", "decoder"])
    def test_an_encoder_decoder_s_two_stacks(self, folders: dict[str, str], attention: str) -> None:
        page = Ablation(model=folders["t5"], text=TEXT, target="on a mat", attention=attention, ranking="true")
        layers = 3 if attention == "encoder" else 2
        assert page.effects().shape == (layers, 4)
        assert (np.abs(page.effects()) > 1e-6).any()

    def test_a_model_whose_heads_cannot_be_turned_off_says_so(self) -> None:
        page = Ablation(model="dates", text="3 March 2021", heads_off="0.1")
        assert "the outputs of its heads cannot be changed here" in " ".join(page.boxes("error"))


@pytest.mark.parametrize(
    ("causal", "attention", "text"),
    [(True, "self", "last four"), (False, "self", "three positions"), (True, "encoder", "three positions")],
)
def test_a_window_that_reaches_ahead_is_not_called_the_last_tokens(causal: bool, attention: str, text: str) -> None:
    assert text in ablation.mask_name("near", MaskSpec(causal=causal), attention)
    window = ablation.own_mask("near", MaskSpec(causal=causal))
    assert (window.sliding, window.causal) == (4, causal)
