"""Bugs examined on real text: by the model that ships, and by a tiny one of every family; and the game's puzzles.

python -m pytest tests/model/bug_clinic/test_clinic.py
"""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from model import catalog
from model.attention import attention_stages
from model.base import Model, tokenize
from model.bug_clinic import clinic
from model.bug_clinic.bugs import BUGS, BY_KEY, Bug
from model.bug_clinic.spot import CANDIDATES, NOT_TO_SEE, VISIBLE, puzzle, shown
from model.masks import MaskSpec
from model.trace import Trace
from tests.model.huggingface.families import ALL, save
from tests.near import assert_near

TEXT = "The old woman gave the princess a cake, and the princess gave the old woman a cake."
WORDS = "the cat sat on a mat and then it saw the cat"  # of the tiny models' vocabulary
QUIET = {("first-layer", 0)}  # where a bug is not: in the first layer the mask is there


@pytest.fixture(scope="module")
def trace(story: Model) -> Trace:
    return read(story, TEXT)


def read(model: Model, text: str, pad_side: str = "left") -> Trace:
    lines = clinic.prepared(model, text)
    reading = tokenize(model, "\n".join(lines.lines), pad_side, clinic.targets_for(model, lines))
    return model.run(reading.batch, clinic.masks_for(model)).select(clinic.attention_for(model))


class TestText:
    def test_one_line_gets_a_longer_one_so_that_it_is_padded(self, story: Model, trace: Trace) -> None:
        assert clinic.prepared(story, TEXT) == clinic.Text((TEXT, f"{TEXT} {clinic.ADDED}"), 0, True)
        assert not trace.batch.keep[0].all()
        assert trace.batch.keep[1].all()

    def test_lines_of_different_length_stay_as_they_are(self, story: Model) -> None:
        assert clinic.prepared(story, "one\n\n" + TEXT) == clinic.Text(("one", TEXT), 0, False)

    @pytest.mark.parametrize("text", [TEXT * 9, "word " * 30_000, "猫" * 500, "😀" * 90, "x" * 100_000])
    def test_long_lines_are_cut_to_what_has_room(self, story: Model, text: str) -> None:
        found = clinic.prepared(story, text)
        tokens = story.encode([found.lines[0]]).ids.shape[1]
        assert clinic.MOST_TOKENS - 3 <= tokens <= clinic.MOST_TOKENS
        assert text.startswith(found.lines[0])
        assert (found.cut, found.added) == (1, True)

    @pytest.mark.parametrize("text", ["a", "😀", "<script>alert(1)</script>", "\ud83d", "a\nb\nc"])
    def test_short_and_strange_ones_get_padding_too(self, story: Model, text: str) -> None:
        keep = read(story, text).batch.keep
        assert not keep[0].all()


class TestRerun:
    def test_with_the_core_is_the_run(self, story: Model, trace: Trace) -> None:
        network = story.network
        assert network is not None
        for row in range(2):
            run = clinic.rerun(network, trace, row, lambda _: attention_stages)
            real = trace.batch.real(row)
            assert_near(run.states[0, real], trace.states[row, real], 1e-4, "states")
            for layer, (block, inputs) in enumerate(zip(network.blocks, run.inputs, strict=True)):
                q = block.attention.project(inputs, inputs, inputs)[0][0]
                assert_near(q[:, real], trace.layers[layer].q[row][:, real], 1e-4, f"queries of layer {layer}")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.key)
class TestExamination:
    def test_names_the_law_and_how_much_the_output_changes(self, story: Model, trace: Trace, bug: Bug) -> None:
        found = clinic.examine(story, trace, bug, 4, 0)
        wrong, right = found.verdicts[bug.law]
        assert wrong.broken
        assert wrong.amount > 100 * right.amount
        assert not any(verdict.broken for _, verdict in found.verdicts.values())
        assert float(found.difference().max()) > 0.1
        assert bool(found.error) == (bug.key == "half-fill")
        assert found.exact

    def test_the_right_side_is_what_the_trace_holds(self, story: Model, trace: Trace, bug: Bug) -> None:
        found = clinic.examine(story, trace, bug, 3, 0)
        if not bug.second_use:
            most = 1e-6 if bug.dtype == torch.float32 else 5e-3
            for head in range(trace.num_heads):
                assert_near(found.right.weights[head], trace.weights(3, head, 0), most, f"head {head}")

    def test_the_loss_with_the_bug_is_another_but_where_its_weights_are_right(
        self, story: Model, trace: Trace, bug: Bug
    ) -> None:
        wrong, right = clinic.examine(story, trace, bug, 4, 0).loss
        assert right == pytest.approx(trace.losses(0).nanmean().item(), abs=1e-5)
        if bug.key == "in-place":
            assert wrong == pytest.approx(right, abs=1e-4)
        elif bug.dtype == torch.float16:
            assert math.isnan(wrong)
        else:
            assert abs(wrong - right) > 0.001


def test_the_causal_mask_in_the_first_layer_only_is_a_run_of_its_own(story: Model, trace: Trace) -> None:
    bug = BY_KEY["first-layer"]
    run = story.run(trace.batch, MaskSpec(causal=False, layers=(1, 2, 3, 4, 5)))
    found = clinic.examine(story, trace, bug, 4, 0)
    assert found.wrong is not None
    assert_near(found.wrong.weights[2], run.weights(4, 2, 0), 1e-5, "weights")
    assert found.loss[0] == pytest.approx(run.losses(0).nanmean().item(), abs=1e-5)
    first = clinic.examine(story, trace, bug, 0, 0)
    assert float(first.difference().max()) == 0


@pytest.mark.parametrize("name", ALL)
def test_every_family_shows_every_bug_and_keeps_every_law(name: str, tmp_path: Path) -> None:
    model = catalog.load(str(save(name, tmp_path / name)))
    trace = read(model, WORDS)
    for bug in BUGS:
        for layer in range(trace.num_layers):
            found = clinic.examine(model, trace, bug, layer, 0)
            broken = {key: right.amount for key, (_, right) in found.verdicts.items() if right.broken}
            assert not broken, f"the right version in layer {layer}"
            caught = found.verdicts[bug.law][0].broken
            assert caught == ((bug.key, layer) not in QUIET), f"{bug.key} in layer {layer}"
            scaled_before = bug.key == "scale-none" and trace.layers[layer].scale == 1.0
            assert (float(found.difference().max()) > 0) == (caught and not scaled_before)
    assert puzzle(model, trace, 0, 1) is not None


class TestPuzzles:
    def test_show_the_bug_and_tell_it_from_every_candidate(self, story: Model, trace: Trace) -> None:
        last, seen = "", Counter[str]()
        for number in range(150):
            asked = puzzle(story, trace, 0, number, last)
            assert asked is not None
            assert not last or BY_KEY[asked.bug].number != BY_KEY[last].number
            assert asked.bug in asked.candidates
            assert len({BY_KEY[key].number for key in asked.candidates}) == CANDIDATES
            wrong, right = (stages.weights[asked.head] for stages in shown(story, trace, 0, asked))
            assert (wrong - right).abs().max() >= VISIBLE
            case = clinic.case_of(story, trace, asked.layer, 0)
            for key in set(asked.candidates) - {asked.bug}:
                other = case.run(BY_KEY[key].function).weights[0, asked.head]
                assert (wrong - other).abs().max() >= VISIBLE
            seen[asked.bug] += 1
            last = asked.bug
        assert set(seen) == set(BY_KEY) - NOT_TO_SEE

    def test_follow_from_their_number(self, story: Model, trace: Trace) -> None:
        assert puzzle(story, trace, 0, 5) == puzzle(story, trace, 0, 5)
        assert len({puzzle(story, trace, 0, number) for number in range(9)}) > 5
