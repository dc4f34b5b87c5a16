"""Tests of bugs compared with the right version, on real text, mostly with the story model."""

from dataclasses import replace
from pathlib import Path
from weakref import ref

import pytest
import torch

from model import catalog
from model.attention import ScoreTerms
from model.base import Model
from model.bug_clinic.bugs import BUGS, BY_KEY, Bug
from model.bug_clinic.comparison import compare, examine, right_of, row_of, trial_of
from model.masks import MaskSpec
from model.trace import Trace
from tests.model.bug_clinic.texts import CRASHES, TEXT, UNSEEN, read
from tests.model.huggingface.families import save
from tests.tensors import assert_near


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.key)
class TestComparison:
    def test_shows_how_much_the_output_changes(self, story: Model, trace: Trace, bug: Bug) -> None:
        found = compare(story, trace, 0, bug.key, 4)
        assert (float(found.change().max()) > 0.1) == (bug.key not in UNSEEN)
        assert bool(found.error) == (bug.key in CRASHES)
        assert found.shows_in_heatmap() == (bug.key not in CRASHES | UNSEEN)
        assert found.exact == (bug.key != "one-module")

    def test_the_right_side_is_what_the_trace_holds(self, story: Model, trace: Trace, bug: Bug) -> None:
        found = compare(story, trace, 0, bug.key, 3)
        tolerance = 1e-6 if bug.dtype == torch.float32 else 5e-3
        for head in range(trace.num_heads):
            assert_near(found.right.weights[head], trace.weights(3, head, 0), tolerance, f"head {head}")


def test_the_causal_mask_in_the_first_layer_only_is_a_run_of_its_own(story: Model, trace: Trace) -> None:
    bug = BY_KEY["first-layer"]
    run = story.run(trace.batch, MaskSpec(causal=False, layers=(1, 2, 3, 4, 5)))
    found = compare(story, trace, 0, bug.key, 4)
    assert_near(found.wrong.weights[2], run.weights(4, 2, 0), 1e-5, "weights")
    assert examine(story, trace, 0, bug.key, 4).loss[0] == pytest.approx(run.losses(0).nanmean().item(), abs=1e-5)
    first = compare(story, trace, 0, bug.key, 0)
    assert float(first.change().max()) == 0


def test_in_later_layers_padding_alone_is_masked_whatever_window_a_model_has(tmp_path: Path) -> None:
    """As in the bug's line of code; the heatmaps are those of the run whose loss is shown."""
    model = catalog.load(str(save("mistral", tmp_path / "mistral")))
    trace = read(model, "the cat sat on a mat and then it saw the cat")
    keep = trace.batch.keep[0]
    for layer in range(1, trace.num_layers):
        own = trace.allowed(layer, 0, MaskSpec(causal=False, padding=False))
        assert not own.all(), "a window that blocks something"
        found = compare(model, trace, 0, "first-layer", layer)
        run = trial_of(model, trace, BY_KEY["first-layer"], layer, 0).buggy
        assert torch.equal(run.allowed(layer, 0), keep.expand(len(keep), -1))
        assert torch.equal(run.allowed(0, 0), trace.allowed(0, 0))
        for head in range(trace.num_heads):
            assert_near(found.wrong.weights[head], run.weights(layer, head, 0), 1e-5, f"layer {layer}, head {head}")
        assert examine(model, trace, 0, "first-layer", layer).loss[0] == run.losses(0).nanmean().item()


@pytest.mark.parametrize("key", ["wrong-axis", "or"])
def test_padding_that_is_open_is_open_as_far_as_the_window_reaches(key: str, tmp_path: Path) -> None:
    model = catalog.load(str(save("mistral", tmp_path / "mistral")))
    trace = read(model, "the cat sat on a mat and then it saw the cat")
    keep, position = trace.batch.keep[0], torch.arange(trace.batch.keep.shape[1])
    assert not keep[:4].any(), "more padding than the window of 3 reaches over"
    back = position[:, None] - position
    order = (back >= 0) & (back < 3)
    opened = order & keep[:, None] if key == "wrong-axis" else order | keep
    for head in range(trace.num_heads):
        assert torch.equal(compare(model, trace, 0, key, 1).wrong.masked[head] > -torch.inf, opened)


def test_sinks_of_each_query_are_those_of_the_row(story: Model, trace: Trace) -> None:
    sinks = torch.randn(*trace.layers[3].q.shape[:3], 1, generator=torch.Generator().manual_seed(5))
    run = replace(trace, layers=tuple(replace(one, terms=ScoreTerms(sinks=sinks)) for one in trace.layers))
    for row in (0, 1):
        found = compare(story, run, row, "diagonal", 3)
        for head in range(run.num_heads):
            assert_near(found.right.weights[head], run.weights(3, head, row), 1e-6, f"row {row}, head {head}")
        assert not any(right.broken for _, right in examine(story, run, row, "diagonal", 3).verdicts.values())


def test_what_is_shown_does_not_depend_on_what_was_asked_before(story: Model, trace: Trace) -> None:
    """The newest trial is cached with its run, and replaced for another bug, layer or row."""
    requests = [("view", 4, 0), ("diagonal", 4, 0), ("diagonal", 3, 0), ("diagonal", 3, 1), ("first-layer", 3, 1)]
    for key, layer, row in requests * 2:
        cached, anew = (compare(story, run, row, key, layer) for run in (trace, read(story, TEXT)))
        assert torch.equal(cached.wrong.weights, anew.wrong.weights), (key, layer, row)
        assert torch.equal(cached.right.weights, anew.right.weights), (key, layer, row)


class TestTheRightVersion:
    """The right version, shared by all bugs examined in a layer."""

    def test_no_bug_changes_it(self, story: Model, trace: Trace) -> None:
        own = read(story, TEXT)
        for bug in BUGS:
            shared = right_of(story, trace, bug.dtype, 4, 0)
            compare(story, trace, 0, bug.key, 4)
            examine(story, trace, 0, bug.key, 4)
            assert shared is right_of(story, trace, bug.dtype, 4, 0)
            anew = right_of(story, own, bug.dtype, 4, 0)  # a run that no bug was given
            for name in ("q", "k", "v", "allowed", "keep"):
                assert torch.equal(getattr(shared.case, name), getattr(anew.case, name)), name
            assert torch.equal(row_of(shared.stages).weights, row_of(anew.stages).weights)
            assert repr(shared.verdicts) == repr(anew.verdicts)  # as text, since NaN is unequal to itself

    def test_is_that_of_the_layer_the_row_and_the_number_type_asked_for(self, story: Model, trace: Trace) -> None:
        for key, layer, row in [("view", 4, 0), ("view", 3, 0), ("half-fill", 3, 0), ("unprojected", 4, 0)]:
            found = right_of(story, trace, BY_KEY[key].dtype, layer, row).case
            assert found.q.dtype == BY_KEY[key].dtype
            expected = trace.layers[layer].q[row : row + 1].to(found.q.dtype)
            assert torch.equal(found.q, expected.reshape(found.q.shape))

    def test_goes_with_its_run(self, story: Model) -> None:
        run = read(story, "a run that nobody else has")
        for bug in (BUGS[0], BY_KEY["first-layer"]):  # first-layer has a whole run of its own
            examine(story, run, 0, bug.key, 1)
        gone = ref(run)
        del run
        assert gone() is None
