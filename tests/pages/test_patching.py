"""Activation patching on the Compare page, without a browser."""

import csv
import io
import json

import numpy as np
import pytest
import streamlit as st

from model.base import Model
from model.circuits.patching import Patch, PatchMetric, PatchPair
from model.inference.calls import continuation_ids
from model.masks import MaskSpec, Stroke
from tests.model.circuits.test_patching import head_effects, position_effects
from tests.pages.explore import array
from tests.pages.test_compare import Compare
from ui.circuits import patching
from ui.circuits.patching import PAIR
from ui.sidebar.models import FIRST
from viz.html import fixed

TEXTS = {name: PAIR[name] for name in ("text", "b_text", "differs", "patch_answer", "patch_instead")}


class Patching(Compare):
    def effects(self) -> np.ndarray:
        return array(self.figures()["patch_map"]["data"][0]["z"])


def pair(story: Model) -> tuple[PatchPair, PatchMetric]:
    a, b = (story.run(story.encode([PAIR[name]])) for name in ("text", "b_text"))
    ids = [continuation_ids(story, PAIR[name])[0][0] for name in ("patch_answer", "patch_instead")]
    return PatchPair(story, a, 0, b, 0), PatchMetric(b.batch.ids.shape[1] - 1, *ids)


def test_every_head_is_patched_into_b_and_the_other_way(story: Model) -> None:
    page = Patching(patching="true", **TEXTS)
    traces, metric = pair(story)
    expected = np.stack([head_effects(traces, metric, layer) for layer in range(6)])
    np.testing.assert_allclose(page.effects(), expected, atol=1e-4)
    a, b = traces.measured(metric)
    text = " ".join(page.boxes("markdown"))
    assert f"Measured in A: {a:.2f}, in B: {b:.2f}".replace("-", "−") in text
    page.set(patch_into="a")
    back = np.stack([head_effects(PatchPair(story, traces.b, 0, traces.a, 0), metric, layer) for layer in range(6)])
    np.testing.assert_allclose(page.effects(), back, atol=1e-4)
    assert page.url["patch_into"] == "a"


def test_positions_and_paths(story: Model) -> None:
    page = Patching(patching="true", patch_of="positions", **TEXTS)
    traces, metric = pair(story)
    expected = [position_effects(traces, metric, layer, 0, metric.query + 1) for layer in range(6)]
    np.testing.assert_allclose(page.effects(), expected, atol=1e-4)
    assert page.trace("patch_map", "effects")["x"][6] == "6: ·black"
    page.set(patch_of="v", layer=2, head=1)
    paths = [traces.path_effects(metric, (2, 1), "v", layer) for layer in (0, 1)]
    np.testing.assert_allclose(page.effects(), paths, atol=1e-4)
    page.set(layer=0)
    assert any("No layer comes before that of L0 H1" in text for text in page.boxes("info"))


def test_of_many_positions_it_is_said_which_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Only the last 5 of the 19 positions up to the query are compared: 14 to 18."
    page = Patching(patching="true", patch_of="positions", **TEXTS)
    assert page.effects().shape == (6, 19)
    assert "are compared" not in page.words()
    monkeypatch.setattr(patching, "MAX_POSITIONS", 5)
    page.run()
    assert page.effects().shape == (6, 5)
    assert any(words + " L" in text for text in page.boxes("markdown")), "right before the strongest of them"
    assert "are compared" not in page.set(patch_of="heads").words()


def test_a_position_stays_the_same_token_where_the_other_run_is_patched() -> None:
    """A's first line has padding before it, B's text has none."""
    rows = "The bird sang\nThe bird sang in the old wood near here"
    pair = {"text": rows, "b_text": "The king sang", "differs": "text", "pad": "left"}
    page = Patching(patching="true", patch_of="positions", patches="p1.2", **pair)
    label = lambda: page.widget("patches_chosen").format_func(page.value("patches_chosen")[0])  # noqa: E731
    assert label() == "L1 2: ·king"
    effects, start = page.effects(), page.trace("patch_map", "effects")["x"]
    page.set(patch_into="a")
    first = int(page.trace("patch_map", "effects")["x"][0].partition(":")[0])
    assert first > 0
    assert start[0].startswith("0: ")
    assert effects.shape == page.effects().shape == (6, 4)
    assert label() == f"L1 {first + 2}: ·bird"
    assert page.url["patches"] == "p1.2"
    (frame,) = page.figures()["patch_map"]["layout"]["shapes"]
    assert (frame["x0"], frame["y0"]) == (1.5, 0.5)
    page.set(patches_chosen=[])
    assert page["patches"] == ""
    assert not page.boxes("error")


def test_a_position_that_the_text_has_no_more_is_left_out() -> None:
    pair = {"text": "The bird sang in the wood", "b_text": "The king sang in the wood", "differs": "text"}
    page = Patching(patching="true", patch_of="positions", patches="p1.5", **pair)
    assert page.value("patches_chosen")
    page.type("The bird sang").set(b_text="The king sang")
    assert not page.boxes("error")
    assert page.effects().shape[1] == 4


def test_heads_and_layers_that_another_model_lacks_are_left_out() -> None:
    answers = {"patch_answer": "b", "patch_instead": "h"}
    page = Patching(patching="true", patches="h0.3,h5.3,a5.0,h0.9,a1.0", **TEXTS | answers)
    page.set(model="induction")
    assert not page.boxes("error")
    assert page.value("patches_chosen") == [Patch("head", 0, 3), Patch("layer", 1, 0)]


def test_which_tokens_are_measured_is_said() -> None:
    several = "Of an answer of several tokens, only the first is measured."
    page = Patching(patching="true", **TEXTS)
    assert "Measured: the logit of “·bird” minus that of “·horse”." in page.boxes("caption")
    page.set(patch_answer="bird", patch_instead="horse")  # without a space the first is several tokens
    assert f"Measured: the logit of “b” minus that of “horse”. {several}" in page.boxes("caption")
    page.set(patch_metric="probability")
    assert f"Measured: the log-probability of “b”. {several}" in page.boxes("caption")


def test_several_patches_run_together(story: Model) -> None:
    page = Patching(patching="true", patches="h0.3,p1.5,a0.0", patch_metric="probability", **TEXTS)
    page.set(patches_chosen=page.value("patches_chosen")[:2])
    traces, metric = pair(story)
    found, _ = traces.patched(PatchMetric(metric.query, metric.answer), [Patch("head", 0, 3), Patch("position", 1, 5)])
    assert any(f"B gives {fixed(found, 2)} instead" in text for text in page.boxes("markdown"))
    assert page.url["patches"] == "h0.3,p1.5"
    assert len(page.figures()["patch_map"]["layout"]["shapes"]) == 1


def test_masks_are_patched_and_what_cannot_be_is_said(story: Model) -> None:
    page = Patching(patching="true")
    batch = story.encode([FIRST])
    both = PatchPair(story, story.run(batch), 0, story.run(batch, MaskSpec(causal=False)), 0)
    metric = PatchMetric(batch.ids.shape[1] - 1, *both.likeliest(batch.ids.shape[1] - 1))
    expected = [head_effects(both, metric, layer) for layer in range(6)]
    np.testing.assert_allclose(page.effects(), expected, atol=1e-3)
    page.set(b_causal=True)
    assert any("A and B are the same run" in text for text in page.boxes("info"))
    assert not page.set(patch_of="pairs").boxes("info")  # pairs from a file have their own texts
    page.set(patch_of="heads", differs="text").set(b_text="Once upon a time")
    assert any("the same number of tokens in A and B: A has 23, B has 5" in text for text in page.boxes("info"))
    page.press("patch_pair")
    assert page.value("b_text") == PAIR["b_text"]
    assert page.effects().shape == (6, 7)
    page.set(patch_instead=" bird")
    assert any("expected two answers whose first tokens differ" in text for text in page.boxes("error"))


def test_pairs_from_a_file(story: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[io.BytesIO | None] = [None]
    monkeypatch.setattr(st, "file_uploader", lambda *_, **__: sent[0])
    page = Patching(patching="true", patch_of="pairs", **TEXTS)
    other = ("She saw the red ball and the blue hat. The red", "She saw the blue ball and the red hat. The red")
    rows = [
        ("a", "b", "answer", "instead_of"),
        (TEXTS["text"], TEXTS["b_text"], " bird", " horse"),
        (*other, " ball", " hat"),
    ]
    file = io.StringIO()
    csv.writer(file).writerows(rows)
    sent[0] = io.BytesIO(file.getvalue().encode())
    page.run()
    each = []
    for a, b, *answers in rows[1:]:
        runs = [story.run(story.encode([text])) for text in (a, b)]
        ids = [continuation_ids(story, one)[0][0] for one in answers]
        metric = PatchMetric(runs[1].batch.ids.shape[1] - 1, *ids)
        each.append([head_effects(PatchPair(story, runs[0], 0, runs[1], 0), metric, layer) for layer in range(6)])
    np.testing.assert_allclose(page.effects(), np.mean(each, 0), atol=1e-4)
    assert any("± over pairs" in one for one in page.html())


def test_a_knockout_is_a_mask_in_the_mask_lab() -> None:
    page = Patching(patching="true", **TEXTS)
    for query in (9, 5):  # the second with the Mask Lab's choices from the first
        page.set(query=query).press("patch_knockout")
        assert (page["page"], page["mask_where"]) == ("Mask Lab", "head")
        ((kind, *cells),) = json.loads(page["masks"])["drawn"]
        assert (kind, cells[0]) == ("block", query)
        assert page["mask_drawn"] == (Stroke("block", *cells),)
        page.go("pages/compare.py")


def test_which_masks_other_heads_get_in_a_knockout_is_said_where_it_matters() -> None:
    text = "all other heads get the model's own"
    page = Patching(patching="true", **TEXTS)
    assert not any(text in one.value for one in page.app.caption)
    page = Patching(patching="true", causal="false", b_causal="false", **TEXTS)
    assert any(text in one.value for one in page.app.caption)
    masks = json.loads(page.press("patch_knockout")["masks"])
    assert (masks["causal"], masks["layers"], masks["heads"]) == (False, [page["layer"]], [page["head"]])


def test_a_knockout_is_of_a_token_where_the_head_attends_most_to_padding(story: Model) -> None:
    rows = ["Hi there", "The cat sat on the old mat and ran home again"]
    batch = story.encode(rows, "left")
    run, real = story.run(batch, MaskSpec(padding=False)), batch.real(0)
    row = run.weights(5, 5)[real.stop - 1]
    assert not batch.keep[0, int(row.argmax())]
    where = {"pad": "left", "padding": "false", "layer": "5", "head": "5", "row": "1"}
    page = Patching(text="\n".join(rows), patching="true", **where)
    drawn = json.loads(page.press("patch_knockout")["masks"])["drawn"]
    query, key = real.stop - 1 - real.start, int(row[real].argmax())
    assert drawn == [["block", query, key, query, key]]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("a,b\n1,2\n", "expected a CSV file"),
        ('a,b,answer,instead_of\n"one\ntwo",one two,c,d\n', "expected a CSV file"),
        (
            "a,b,answer,instead_of\nthe cat,the cat sat,a,the\n",
            "pair 1: Activation patching needs the same number of tokens in A and B: A has 3, B has 4",
        ),
        (
            "a,b,answer,instead_of\nthe cat,the dog,a,the\nthe cat,the dog,a,a\n",
            "pair 2: expected two answers whose first tokens differ",
        ),
        (f"a,b,answer,instead_of\n{300 * 'the '},{300 * 'the '},a,the\n", "pair 1: expected texts of at most 256"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused(monkeypatch: pytest.MonkeyPatch, rows: str, problem: str) -> None:
    monkeypatch.setattr(st, "file_uploader", lambda *_, **__: io.BytesIO(rows.encode()))
    page = Patching(patching="true", patch_of="pairs", **TEXTS)
    assert any(problem in text for text in page.boxes("error")), page.boxes("error")
