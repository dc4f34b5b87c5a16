"""Tests of modules that leak in rows of some lengths only and have no configuration that says so."""

import pytest
import torch
from torch import Tensor

import unmask
from mask_check.check import check
from tests.mask_check.modules import SmallAttention


class LeaksIf(SmallAttention):
    """A decoder whose mask is one position too wide in rows of an odd, or an even, number of tokens above 64."""

    def __init__(self, odd: bool) -> None:
        super().__init__()
        self.odd = odd

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        length = len(allowed)
        wide = length > 64 and length % 2 == self.odd
        return super().weights(scores, torch.ones_like(allowed).tril(int(wide)))


@pytest.mark.parametrize("odd", [True, False])
def test_a_leak_in_rows_of_an_odd_number_of_tokens_is_found(odd: bool) -> None:
    report = check(LeaksIf(odd))
    assert [finding.law for finding in report.broken] == ["length"]
    assert f"in a row of {131 if odd else 520} tokens" in report.finding("length").words
    assert not odd or not unmask.checking._causal_report(LeaksIf(odd)).obeys
