"""Tests of a run's predictions: the likeliest tokens, also of a vocabulary smaller than asked for."""

import numpy as np
import pytest
import torch

from model.sampling import predictions

CHANCES = torch.tensor([0.1, 0.3, 0.05, 0.25, 0.2, 0.02, 0.08])


class Run:
    """Stand-in for a run of two tokens, as far as predictions need it."""

    def next_token(self, row: int, query: int | None) -> torch.Tensor:
        return CHANCES

    def losses(self, row: int) -> torch.Tensor:
        return torch.tensor([torch.nan, 2.0])


@pytest.mark.parametrize(("count", "tokens"), [(3, [1, 3, 4]), (10, [1, 3, 4, 0, 6, 2, 5])])
def test_of_a_small_vocabulary_there_are_no_more_than_all(count: int, tokens: list[int]) -> None:
    found = predictions(Run(), 0, None, count)  # type: ignore[arg-type]
    assert found.tokens.tolist() == tokens
    np.testing.assert_array_equal(found.probabilities, CHANCES[tokens].numpy())
