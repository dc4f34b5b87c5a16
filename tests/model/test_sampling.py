"""Tests of how a token is drawn, with numbers easy to calculate, and against Hugging Face's own filters."""

import math

import pytest
import torch
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from model.sampling import MAX_WRITTEN, Continuation, Sampling, choose, distribution, draw, pick
from tests.tensors import assert_near

P = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)  # of three tokens; the likeliest has id 1
LOGITS = P.log()


def exactly(found: torch.Tensor, *expected: float) -> None:
    assert_near(found, torch.tensor(expected, dtype=torch.float64), 1e-12, "probabilities")


class TestFilters:
    def test_none_leaves_the_models_own_probabilities(self) -> None:
        exactly(distribution(LOGITS, Sampling()), 0.2, 0.5, 0.3)
        exactly(distribution(LOGITS + 7, Sampling()), 0.2, 0.5, 0.3)

    def test_temperature_divides_the_logits(self) -> None:
        exactly(
            distribution(LOGITS, Sampling(temperature=0.5)), 4 / 38, 25 / 38, 9 / 38
        )  # squared probabilities, normalized
        roots = P.sqrt()
        assert_near(distribution(LOGITS, Sampling(temperature=2)), roots / roots.sum(), 1e-12, "temperature 2")

    def test_temperature_0_leaves_the_likeliest_alone(self) -> None:
        exactly(distribution(LOGITS, Sampling(temperature=0)), 0, 1, 0)
        exactly(distribution(LOGITS, Sampling(temperature=0, top_k=3, top_p=0.99)), 0, 1, 0)
        exactly(distribution(LOGITS, Sampling(temperature=1e-300)), 0, 1, 0)

    @pytest.mark.parametrize(
        ("top_p", "expected"),
        [
            (0.0, (0, 1, 0)),
            (0.3, (0, 1, 0)),
            (0.5, (0, 1, 0)),  # exactly its mass, which is enough
            (0.51, (0, 5 / 8, 3 / 8)),
            (0.8, (0, 5 / 8, 3 / 8)),
            (0.81, (0.2, 0.5, 0.3)),
            (1.0, (0.2, 0.5, 0.3)),
        ],
    )
    def test_top_p_leaves_the_smallest_set_that_holds_the_mass(self, top_p: float, expected: tuple[float, ...]) -> None:
        exactly(distribution(LOGITS, Sampling(top_p=top_p)), *expected)
        assert_near(
            distribution(LOGITS.float(), Sampling(top_p=top_p)),
            distribution(LOGITS, Sampling(top_p=top_p)),
            1e-6,
            "from float32",
        )

    def test_the_order_is_temperature_then_top_k_then_top_p(self) -> None:
        # at temperature 0.5: 25, 9 and 4 of 38; the first alone holds 25/34 of what top-k 2 leaves, but 25/38 of all
        between = 0.7
        assert 25 / 38 < between < 25 / 34
        exactly(distribution(LOGITS, Sampling(temperature=0.5, top_k=2, top_p=between)), 0, 1, 0)
        exactly(distribution(LOGITS, Sampling(temperature=0.5, top_p=between)), 0, 25 / 34, 9 / 34)
        exactly(
            distribution(LOGITS, Sampling(top_k=2, top_p=between)), 0, 5 / 8, 3 / 8
        )  # without temperature, top-p keeps the second too

    def test_of_equal_tokens_the_lower_ids_come_first(self) -> None:
        same = torch.zeros(4)
        exactly(distribution(same, Sampling(temperature=0)), 1, 0, 0, 0)
        exactly(distribution(same, Sampling(top_k=3)), 1 / 3, 1 / 3, 1 / 3, 0)
        exactly(distribution(same, Sampling(top_p=0.5)), 0.5, 0.5, 0, 0)
        exactly(distribution(torch.tensor([0.0, 1, 1]), Sampling(top_k=1)), 0, 1, 0)

    def test_a_token_that_cannot_be_stays_out(self) -> None:
        exactly(distribution(torch.tensor([-math.inf, 0, 0]), Sampling(top_k=3, top_p=1)), 0, 0.5, 0.5)
        exactly(distribution(torch.tensor([1e30, 0.0]), Sampling()), 1, 0)

    @pytest.mark.parametrize(
        ("temperature", "top_k", "top_p"), [(0.7, 0, 1), (1.3, 7, 1), (0.9, 0, 0.8), (0.8, 9, 0.9)]
    )
    def test_agree_with_hugging_faces(self, temperature: float, top_k: int, top_p: float) -> None:
        logits = torch.randn(50, 97, generator=torch.Generator().manual_seed(0)) * 3
        scores = TemperatureLogitsWarper(temperature)(None, logits)
        scores = TopKLogitsWarper(top_k)(None, scores) if top_k else scores
        scores = TopPLogitsWarper(top_p)(None, scores) if top_p < 1 else scores
        ours = distribution(logits, Sampling(temperature, top_k, top_p))  # all rows at once
        assert torch.equal(ours > 0, scores > -math.inf)
        assert_near(ours, scores.double().softmax(-1), 1e-6, "probabilities")

    @pytest.mark.parametrize(
        "wrong",
        [{"temperature": -1.0}, {"temperature": math.nan}, {"temperature": math.inf}, {"top_k": -1}, {"top_k": 1.5},
         {"top_p": -0.1}, {"top_p": 1.1}, {"top_p": math.nan}],
    )  # fmt: skip
    def test_numbers_that_mean_nothing_are_refused(self, wrong: dict) -> None:
        with pytest.raises(ValueError, match="expected a t"):
            Sampling(**wrong)

    @pytest.mark.parametrize("logits", [[math.nan, 1.0], [-math.inf, -math.inf], [math.inf, 0.0], [], [[1.0, 2.0]]])
    def test_logits_that_are_none_are_refused(self, logits: list) -> None:
        with pytest.raises(ValueError, match="expected logits"):
            choose(torch.tensor(logits), Sampling())


class TestDrawing:
    def test_gives_the_probabilities_before_and_after_the_filters(self) -> None:
        choice = choose(LOGITS, Sampling(temperature=0.5, top_k=2))
        exactly(choice.before, 0.2, 0.5, 0.3)
        exactly(choice.after, 0, 25 / 34, 9 / 34)
        assert choice.left == 2

    def test_a_token_comes_as_often_as_its_probability_says(self) -> None:
        drawn = torch.tensor([draw(LOGITS, Sampling(seed=5), position).token for position in range(5_000)])
        shares = drawn.bincount(minlength=3) / len(drawn)
        assert_near(shares.double(), P, 0.025, "shares of 5,000 draws")  # three standard deviations are 0.021

    def test_a_token_is_where_the_summed_probability_passes_the_number(self) -> None:
        numbers = torch.tensor([0.0, 0.49, 0.5, 0.79, 0.81, 1.0])  # the likeliest first: 0.5, then 0.3, then 0.2
        assert pick(P.repeat(6, 1), numbers).tolist() == [1, 1, 2, 2, 0, 0]
        assert pick(torch.tensor([0.0, 1.0, 0.0]).repeat(6, 1), numbers).tolist() == [1] * 6

    def test_a_batch_is_drawn_row_by_row(self) -> None:
        logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(2))
        how, numbers = Sampling(0.7, 4, 0.9), torch.linspace(0, 1, 7)
        alone = [int(pick(distribution(row, how), number)) for row, number in zip(logits, numbers, strict=True)]
        assert pick(distribution(logits, how), numbers).tolist() == alone
        assert len(set(alone)) > 2

    def test_temperature_0_is_greedy_whatever_the_seed(self) -> None:
        assert {draw(LOGITS, Sampling(0.0, seed=seed), 4).token for seed in range(20)} == {1}

    def test_depends_on_seed_and_position_alone(self) -> None:
        flat = torch.zeros(1_000)
        drawn = {(seed, at): draw(flat, Sampling(seed=seed), at).token for seed in range(8) for at in range(8)}
        again = {key: draw(flat, Sampling(seed=key[0]), key[1]).token for key in reversed(list(drawn))}
        assert drawn == again
        assert len(set(drawn.values())) > 55  # 64 draws of 1,000 tokens: hardly any twice
        assert drawn[1, 2] != drawn[2, 1]


class TestPath:
    path = Continuation((1, 2), (3, 4, 5), (False, True, False))

    def test_grows_and_shrinks(self) -> None:
        assert self.path.ids == (1, 2, 3, 4, 5)
        assert self.path.plus(6).ids == (1, 2, 3, 4, 5, 6)
        assert self.path.cut(2) == Continuation((1, 2), (3, 4), (False, True))
        assert self.path.cut(0) == Continuation((1, 2))

    def test_another_token_cuts_what_follows(self) -> None:
        assert self.path.instead(1, 9) == Continuation((1, 2), (3, 9), (False, True))
        assert self.path.instead(0, 9) == Continuation((1, 2), (9,), (True,))
        assert self.path.instead(3, 9) == self.path.plus(9, by_hand=True)

    def test_has_room_up_to_the_context_and_the_most_of_a_page(self) -> None:
        assert self.path.room(5) == 0
        assert self.path.room(7) == 2
        assert self.path.room(10_000) == MAX_WRITTEN - 3
        assert self.path.room(3) == 0
