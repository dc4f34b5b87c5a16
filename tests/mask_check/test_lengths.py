"""Tests of modules that take, or leak in, rows of some lengths only, mostly without a configuration that says so."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import unmask
from mask_check.check import check
from mask_check.findings import CannotCheck
from mask_check.sample_networks import SmallConfig
from tests.mask_check.modules import SmallAttention


class Takes(SmallAttention):
    """A module that refuses rows of other lengths than those for which `takes` is true."""

    def __init__(self, takes: Callable[[int], bool]) -> None:
        super().__init__()
        self.takes = takes

    def forward(self, input_ids: Tensor) -> Tensor:
        assert self.takes(input_ids.shape[1])
        return super().forward(input_ids)


@pytest.mark.parametrize(
    ("takes", "longer", "quick"),
    [
        (lambda length: length % 8 == 0, (128, 520), 48),
        (lambda length: length % 2 == 0, (130, 520), 130),
        (lambda length: length >= 8, (130, 520), 130),
    ],
)
def test_a_module_that_takes_whole_blocks_or_no_few_tokens_is_checked(
    takes: Callable[[int], bool], longer: tuple[int, ...], quick: int
) -> None:
    report = check(Takes(takes))
    assert (report.obeys, report.length, report.longer) == (True, 24, longer)
    report = unmask.assert_causal(Takes(takes))
    assert (report.obeys, report.length) == (True, quick)


def test_a_module_of_one_length_is_said_to_need_it() -> None:
    module = Takes(lambda length: length == 32)
    words = r"on \d\d tokens: .*If it takes rows .* length= in Python, --length on the command line"
    for asks in (check, unmask.assert_causal):
        with pytest.raises(CannotCheck, match=words):
            asks(module)
        assert asks(module, length=32).obeys


class LeaksIf(SmallAttention):
    """A decoder whose mask is one position too wide in rows of an odd, or an even, number of tokens above 64."""

    def __init__(self, odd: bool) -> None:
        super().__init__()
        self.odd = odd

    def weights(self, scores: Tensor, allowed: Tensor) -> Tensor:
        length = len(allowed)
        wide = length > 64 and length % 2 == self.odd
        return super().weights(scores, torch.ones_like(allowed).tril(int(wide)))


@pytest.mark.parametrize(("odd", "context"), [(False, None), (False, 160), (True, 160), (False, 512), (True, 512)])
def test_a_leak_in_rows_of_an_odd_or_an_even_number_of_tokens_is_found(odd: bool, context: int | None) -> None:
    module = LeaksIf(odd)
    if context:
        module.config = SmallConfig(vocab_size=50, max_position_embeddings=context)
    report = check(module)
    assert [finding.law for finding in report.broken] == ["length"]
    assert ("in a row of 130 tokens" in report.finding("length").words) != odd
