"""Tests of bugs examined on real text, with the story model and tiny models, and of the game's puzzles."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model import catalog
from model.base import Model
from model.bug_clinic import comparison
from model.bug_clinic.bugs import BUGS, BY_KEY, AttentionCase, Bug
from model.bug_clinic.comparison import compare, examine, rerun, streams
from model.bug_clinic.spot import (
    CANDIDATES,
    FEATURES,
    INVISIBLE_BUGS,
    VISIBLE,
    Puzzle,
    difference,
    next_puzzle,
    puzzle,
    stages_of,
)
from model.trace import Trace
from tests.model.bug_clinic.texts import CRASHES, TEXT, UNSEEN, read
from tests.model.huggingface.families import ALL, save
from tests.model.huggingface.test_families import saved
from tests.tensors import assert_near

WORDS = "the cat sat on a mat and then it saw the cat"  # all in the tiny models' vocabulary
QUIET = {("first-layer", 0)}  # no bug here: the first layer has its mask
OWN_SCALE = {"gemma2", "t5"}  # their scale is not 1/√d


class TestText:
    def test_one_line_gets_a_longer_one_so_that_it_is_padded(self, story: Model, trace: Trace) -> None:
        assert comparison.prepare_text(story, TEXT) == comparison.Text((TEXT, f"{TEXT} {comparison.ADDED}"), 0, True)
        assert not trace.batch.keep[0].all()
        assert trace.batch.keep[1].all()

    def test_lines_of_different_length_stay_as_they_are(self, story: Model) -> None:
        assert comparison.prepare_text(story, "one\n\n" + TEXT) == comparison.Text(("one", TEXT), 0, False)

    @pytest.mark.parametrize("text", [TEXT * 9, "word " * 30_000, "猫" * 500, "😀" * 90, "x" * 100_000])
    def test_long_lines_are_cut_to_what_has_room(self, story: Model, text: str) -> None:
        found = comparison.prepare_text(story, text)
        tokens = story.encode([found.lines[0]]).ids.shape[1]
        assert comparison.MAX_TOKENS - 3 <= tokens <= comparison.MAX_TOKENS
        assert text.startswith(found.lines[0])
        assert (found.cut, found.added) == (1, True)

    @pytest.mark.parametrize("text", ["a", "😀", "<script>alert(1)</script>", "\ud83d", "a\nb\nc"])
    def test_short_and_strange_ones_get_padding_too(self, story: Model, text: str) -> None:
        keep = read(story, text).batch.keep
        assert not keep[0].all()


class TestRerun:
    @torch.inference_mode()
    def test_with_the_core_is_the_run(self, story: Model, trace: Trace) -> None:
        network = story.network
        assert network is not None
        for row in range(2):
            real = trace.batch.real(row)
            found = rerun(network, trace, row, lambda _: AttentionCase.stages)
            assert_near(found[0, real], trace.states[row, real], 1e-4, "states")
            *before, _ = streams(network, trace, row, lambda _: AttentionCase.stages)
            for layer, (block, x) in enumerate(zip(network.blocks, before, strict=True)):
                read = block.attention_norm(x)
                q = block.attention.project(read, read, read)[0][0]
                assert_near(q[:, real], trace.layers[layer].q[row][:, real], 1e-4, f"queries of layer {layer}")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.key)
class TestExamination:
    def test_names_the_law(self, story: Model, trace: Trace, bug: Bug) -> None:
        found = examine(story, trace, 0, bug.key, 4)
        wrong, right = found.verdicts[bug.law]
        assert wrong.broken
        assert wrong.amount > 100 * right.amount
        assert not any(verdict.broken for _, verdict in found.verdicts.values())

    def test_the_loss_with_the_bug_is_another(self, story: Model, trace: Trace, bug: Bug) -> None:
        wrong, right = examine(story, trace, 0, bug.key, 4).loss
        assert right == pytest.approx(trace.losses(0).nanmean().item(), abs=1e-5)
        if bug.key == "in-place":
            assert wrong == pytest.approx(right, abs=1e-4)
        elif bug.dtype == torch.float16 or bug.key in CRASHES:
            assert math.isnan(wrong)
        else:
            assert abs(wrong - right) > 0.001


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "gpt_oss", "bert", "t5", "bart", "deepseek_v32"])
def test_every_kind_of_attention_shows_every_bug_and_keeps_every_law(name: str, tmp_path: Path) -> None:
    model = catalog.load(str((save if name in ALL else saved)(name, tmp_path)))
    trace = read(model, WORDS)
    for bug in BUGS:
        for layer in (0, trace.num_layers - 1):
            pair, found = compare(model, trace, 0, bug.key, layer), examine(model, trace, 0, bug.key, layer)
            broken = {key: right.amount for key, (_, right) in found.verdicts.items() if right.broken}
            assert not broken, f"the right version in layer {layer}"
            caught = found.verdicts[bug.law][0].broken
            quiet = (bug.key, layer) in QUIET or (name, bug.key) == ("gpt_oss", "half-added")  # a sink is never blocked
            quiet |= name in OWN_SCALE and bug.law == "scaled"
            held = (name, bug.key) == ("gpt_oss", "diagonal")  # the first token gives its sink all its weight
            assert caught != (quiet or held), f"{bug.key} in layer {layer}"
            if name == "gpt_oss" and bug.key not in CRASHES:  # with its sink, any softmax of a row sums to 1
                assert found.verdicts["rows"][0].broken == (caught and bug.law == "rows")
            assert (float(pair.change().max()) > 0) == (not quiet and bug.key not in UNSEEN)
    assert puzzle(model, trace, 0, 1) is not None


def test_targets_that_are_not_shifted_by_hand(story: Model, trace: Trace) -> None:
    """The expected loss is that of the token at each position under the logits at the same position."""
    here = trace.batch.real(0)
    logs = trace.logits[0, here].double().log_softmax(-1)
    expected = torch.stack([-logs[position, token] for position, token in enumerate(trace.batch.ids[0, here])])
    assert len(expected) == 20
    mean = examine(story, trace, 0, "targets", 4).loss[0]
    assert mean == pytest.approx(float(expected.mean()), abs=5e-5)  # as 1e-3 in one of the 20 tokens


class TestWhereNoLaterTokenIsRead:
    """A loss may fall by chance, without a leak: the causal law tells the two cases apart."""

    @pytest.mark.parametrize("key", ["diagonal", "scale-width", "scale-divided", "wrong-axis", "first-layer"])
    def test_on_two_words(self, story: Model, key: str) -> None:
        found = examine(story, read(story, "Hello world"), 0, key, 4)
        assert found.loss[0] < found.loss[1], "this text no longer shows what the test is about"
        assert found.broken("causal") == found.broken("target") == (key == "first-layer")

    def test_on_a_sentence(self, story: Model) -> None:
        found = examine(story, read(story, "To be or not to be, that is the question."), 0, "diagonal", 4)
        assert found.loss[0] < found.loss[1]
        assert not found.broken("causal")


class TestPuzzles:
    @pytest.mark.slow
    def test_show_the_bug_and_tell_it_from_every_candidate(self, story: Model, trace: Trace) -> None:
        seen = Counter[str]()
        for number in range(150):
            question = puzzle(story, trace, 0, number)
            assert question.bug in question.candidates
            assert len({BY_KEY[key].title for key in question.candidates}) == CANDIDATES
            stages = {key: one.weights[question.head] for key, one in stages_of(story, trace, 0, question).items()}
            assert_near(stages[""], trace.weights(question.layer, question.head, 0), 1e-6, "right")
            for key in {"", *question.candidates} - {question.bug}:
                assert (stages[key] - stages[question.bug]).abs().max() >= VISIBLE
            seen[question.bug] += 1
        assert set(seen) == set(BY_KEY) - INVISIBLE_BUGS

    def test_follow_from_their_number(self, story: Model, trace: Trace) -> None:
        assert puzzle(story, trace, 0, 5) == puzzle(story, trace, 0, 5)
        assert len({replace(some, number=0) for some in (puzzle(story, trace, 0, n) for n in range(9)) if some}) > 5

    def test_the_next_one_is_of_another_bug(self, story: Model, trace: Trace) -> None:
        last: Puzzle | None = puzzle(story, trace, 0, 1)
        for _ in range(25):
            following_one = next_puzzle(story, trace, 0, last)
            assert following_one.number > last.number
            assert BY_KEY[following_one.bug].title != BY_KEY[last.bug].title
            last = following_one


class TestEvidence:
    """Three positions, the first of them padding."""

    keep = torch.tensor([False, True, True])
    weights = torch.tensor([[1.0, 0, 0], [0.25, 0.25, 0.5], [0, 0.25, 0.5]])

    @pytest.mark.parametrize(
        ("name", "value"),
        [("later", 0.5 / 1.5), ("padding", 0.25 / 1.75), ("sum", 0.75), ("itself", 0.375), ("largest", 0.5)],
    )
    def test_features(self, name: str, value: float) -> None:
        assert FEATURES[name](self.weights, self.keep) == pytest.approx(value)

    def test_the_first_feature_that_differs_plainly_else_the_cell_that_differs_most(self) -> None:
        other = self.weights.clone()
        other[1, 2], other[1, 1] = 0.15, 0.65
        found = difference(self.weights, other, self.keep, ("padding", "itself", "later"))
        assert (found.feature, found.one) == ("itself", pytest.approx(0.375))
        assert found.other == pytest.approx(0.575)
        found = difference(self.weights, other, self.keep, ("padding",))
        assert (found.feature, found.cell) == ("", (1, 1))
        assert (found.one, found.other) == (pytest.approx(0.25), pytest.approx(0.65))
