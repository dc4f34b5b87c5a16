"""Tests of a padded batch against each text alone: which of the twelve ways to pad keep a text's logits."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model import catalog
from model import padding as padded
from model.base import Model
from model.masks import MaskSpec
from model.padding import CHOICES, PaddingChoice
from tests.model.huggingface.families import save
from tests.model.runs_alone import runs_alone
from tests.tensors import assert_near, largest_difference

STORY_LINES = [
    "Once upon a time",
    "The king said to his",
    "The little girl ran down the hill, over the bridge and home.",
]
TINY_LINES = [
    "the cat sat on the mat and still the cat",
    "the cat",
    "sat on the mat",
    "and",
    "a cat on a mat sat still",
]
LONG_LINES = [
    "the old king said " * 29,
    "and",
    "a fox ran down the hill " * 17,
]  # more tokens than are compared at once
RIGHT = {choice for choice in CHOICES if choice.side == "right"}
LEFT = {
    choice for choice in CHOICES if choice.side == "left" and choice.mask != "off" and choice.positions == "counted"
}
NAIVE = {choice for choice in CHOICES if choice.side == "left" and choice.mask != "off" and choice.positions == "cells"}
MASKED = {choice for choice in CHOICES if choice.mask != "off"}
TOLERANCE = 1e-4  # of a logit


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    root = tmp_path_factory.mktemp("families")
    return {name: catalog.load(str(save(name, root / name))) for name in ("llama", "bert", "roberta", "distilbert")}


def largest(
    model: Model, texts: list[str], causal: bool, choices: tuple[PaddingChoice, ...] = CHOICES
) -> dict[PaddingChoice, float]:
    """Return the largest difference of any text, for each choice."""
    by_themselves = runs_alone(model, texts, causal)
    return {one: max(padded.compare(model, texts, one, causal, *by_themselves).largest()) for one in choices}


def near(found: dict[PaddingChoice, float], tolerance: float = TOLERANCE) -> set[PaddingChoice]:
    return {choice for choice, difference in found.items() if difference <= tolerance}


def logits_by_hand(model: Model, text: str, causal: bool) -> Tensor:
    """Return the logits of a text alone, [n,V]."""
    return model.run(model.encode([text]), MaskSpec(causal=causal)).logits[0]


class TestWhichWaysAreCorrect:
    def test_there_are_twelve(self) -> None:
        assert len(set(CHOICES)) == len(CHOICES) == 12

    @pytest.mark.parametrize("lines", [STORY_LINES, TINY_LINES, ["🦊🦊 é", "a", "the 🦊 said"], LONG_LINES])
    def test_with_a_causal_mask(self, story: Model, lines: list[str]) -> None:
        found = largest(story, lines, causal=True)
        assert near(found) == RIGHT | LEFT
        assert min(found[choice] for choice in set(CHOICES) - RIGHT - LEFT) > 0.1

    def test_the_same_of_a_model_with_random_weights(self, tiny: Model) -> None:
        assert near(largest(tiny, TINY_LINES, causal=True)) == RIGHT | LEFT

    @pytest.mark.parametrize("lines", [STORY_LINES, TINY_LINES])
    def test_without_the_causal_mask(self, story: Model, tiny: Model, lines: list[str]) -> None:
        for model in (story, tiny):
            assert near(largest(model, lines, causal=False)) == (RIGHT & MASKED) | LEFT

    def test_rotary_positions_are_relative_so_naive_ones_do_no_harm(self, families: dict[str, Model]) -> None:
        found = largest(families["llama"], TINY_LINES, causal=True)
        assert near(found) == RIGHT | LEFT | NAIVE

    def test_an_encoder_needs_the_padding_mask_on_either_side(self, families: dict[str, Model]) -> None:
        assert near(largest(families["bert"], TINY_LINES, causal=False)) == (RIGHT & MASKED) | LEFT

    def test_a_model_that_counts_by_itself_refuses_naive_positions(self, families: dict[str, Model]) -> None:
        roberta = families["roberta"]
        assert not roberta.takes_positions
        counted = tuple(choice for choice in CHOICES if choice.positions == "counted")
        assert near(largest(roberta, TINY_LINES, False, counted)) == ((RIGHT & MASKED) | LEFT) & set(counted)
        with pytest.raises(ValueError, match="computes its own positions"):
            largest(roberta, TINY_LINES, False, (replace(counted[0], positions="cells"),))

    @pytest.mark.parametrize("name", ["llama", "bert", "distilbert"])
    def test_all_others_take_them(self, families: dict[str, Model], name: str) -> None:
        assert families[name].takes_positions

    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize("side", ["left", "right"])
    @pytest.mark.parametrize("positions", ["counted", "cells"])
    def test_masking_queries_changes_no_row(self, tiny: Model, side: str, positions: str, causal: bool) -> None:
        by_themselves = runs_alone(tiny, TINY_LINES, causal)
        both, keys = (
            padded.compare(tiny, TINY_LINES, PaddingChoice(side, mask, positions), causal, *by_themselves)
            for mask in ("both", "keys")
        )
        assert_near(both.apart.nan_to_num(-1), keys.apart.nan_to_num(-1), 1e-6, "keys and queries against keys")
        batch = tiny.encode(TINY_LINES, side)
        runs = [tiny.run(batch, PaddingChoice(side, mask, positions).spec(causal)).logits for mask in ("both", "keys")]
        assert_near(runs[0][batch.keep], runs[1][batch.keep], 1e-6, "real rows")
        padding = largest_difference(runs[0][~batch.keep], runs[1][~batch.keep])
        before_all = side == "left" and causal  # there padding can attend to padding alone, which masked keys block
        assert padding == 0 if before_all else padding > 0.01


class TestWhatIsReported:
    @pytest.mark.parametrize("choice", [CHOICES[0], CHOICES[6], CHOICES[7], CHOICES[10]])
    def test_the_differences_are_those_of_the_logits(self, story: Model, choice: PaddingChoice) -> None:
        by_themselves = runs_alone(story, STORY_LINES, True)
        found = padded.compare(story, STORY_LINES, choice, True, *by_themselves)
        batch = story.encode(STORY_LINES, choice.side)
        logits = story.run(batch, choice.spec(True)).logits
        for row, text in enumerate(STORY_LINES):
            real = batch.real(row)
            differences = (logits[row, real] - logits_by_hand(story, text, True)).abs().amax(-1)
            assert_near(found.apart[row, real], differences, 2e-5, text)
            assert found.largest()[row] == pytest.approx(float(differences.max()), abs=2e-5)
            probabilities = logits[row, real.stop - 1].softmax(-1)
            guess = found.guesses[row]
            assert guess.token == int(probabilities.argmax())
            assert guess.probability == pytest.approx(float(probabilities.max()), abs=1e-5)
            at_end = found.at_end[row]
            assert at_end.token == int(logits[row, -1].argmax())
        assert torch.equal(found.apart.isnan(), ~batch.keep)

    def test_alone_is_the_text_without_padding(self, story: Model) -> None:
        by_themselves = runs_alone(story, STORY_LINES, True)
        alone = padded.alone(story, *by_themselves)
        logits = [logits_by_hand(story, text, True) for text in STORY_LINES]
        assert alone.tolerance == pytest.approx(1e-4 * max(float(one.abs().max()) for one in logits), rel=1e-4)
        assert [guess and guess.token for guess in alone.guesses] == [int(one[-1].argmax()) for one in logits]

    def test_positions_are_those_that_the_model_was_given(self, tiny: Model) -> None:
        by_themselves = runs_alone(tiny, TINY_LINES, True)
        naive, counted = (
            padded.compare(tiny, TINY_LINES, PaddingChoice("left", "keys", kind), True, *by_themselves)
            for kind in ("cells", "counted")
        )
        for row in range(len(TINY_LINES)):
            cells = range(naive.batch.ids.shape[1])
            assert naive.positions[row].tolist() == list(cells)
            real = counted.batch.real(row)
            assert counted.positions[row, real].tolist() == list(range(real.stop - real.start))

    def test_an_encoder_guesses_no_next_token(self, families: dict[str, Model]) -> None:
        alone = padded.alone(families["bert"], *runs_alone(families["bert"], TINY_LINES, False))
        assert set(alone.guesses) == {None}
        assert alone.tolerance > 0

    def test_what_is_no_number_counts_as_infinitely_far(self) -> None:
        inf, nan = math.inf, math.nan
        found = torch.tensor([[1.0, nan], [-inf, 2.0], [inf, 0.0]])
        expected = torch.tensor([[1.0, 1.0], [-inf, 1.5], [-inf, 0.0]])
        assert padded._apart(found, expected).tolist() == [inf, 0.5, inf]


class TestWhatFits:
    def test_short_texts_stay_as_they_are(self, story: Model) -> None:
        assert padded.fitting(story, STORY_LINES) == STORY_LINES

    def test_at_most_eight(self, story: Model) -> None:
        lines = [f"line {number}" for number in range(11)]
        assert padded.fitting(story, lines) == lines[:8]

    def test_no_text_at_all(self, story: Model) -> None:
        assert padded.fitting(story, []) == []

    @pytest.mark.parametrize("text", ["word " * 500, "🦊" * 300, "a" * 5000, "é 漢字 " * 200])
    def test_a_long_text_is_cut_to_its_first_tokens(self, story: Model, text: str) -> None:
        (cut,) = padded.fitting(story, [text])
        assert text.startswith(cut)
        assert 120 <= story.encode([cut]).ids.shape[1] <= padded.MAX_TOKENS

    def test_a_closing_token_has_its_place(self, families: dict[str, Model]) -> None:
        bert = families["bert"]
        (cut,) = padded.fitting(bert, ["the cat " * 300])
        assert bert.encode([cut]).ids.shape[1] <= min(bert.context, padded.MAX_TOKENS)

    def test_a_text_without_a_token_is_an_error(self, story: Model) -> None:
        with pytest.raises(ValueError, match="expected text in every row"):
            padded.fitting(story, ["a", ""])
