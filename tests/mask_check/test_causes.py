"""Tests that no wrong cause is named, on modules that read exactly what a mask allows."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mask_check.check import check
from mask_check.longer import quick_check
from tests.mask_check.modules import Mixer

ROW = torch.arange(24)
AHEAD = ROW - ROW[:, None]  # token minus output
CAUSAL, LAST = AHEAD <= 0, ROW >= 23


def words(judge: Callable, mask: Tensor) -> str:
    return judge(Mixer(mask.float() / mask.sum(-1, keepdim=True)), length=24, mask="causal").finding("reach").words


@pytest.mark.parametrize(
    "mask", [CAUSAL | LAST, CAUSAL & (AHEAD > -4) | LAST, CAUSAL | (ROW >= 22), (AHEAD == 0) | LAST]
)
def test_none_if_only_the_last_tokens_leak(mask: Tensor) -> None:
    for judge in (check, quick_check):
        assert "which its mask blocks" in words(judge, mask)
        assert "Likely cause" not in words(judge, mask)


@pytest.mark.parametrize("ahead", [19, 20, 21])
@pytest.mark.parametrize("back", [4, 24])
def test_a_wide_band_is_not_every_later_token(ahead: int, back: int) -> None:
    found = words(check, AHEAD.le(ahead) & AHEAD.gt(-back))
    assert f"Outputs read the next {ahead} tokens, and none after them. Likely cause: over all layers" in found
    assert "All later tokens are read" in words(check, AHEAD.gt(-back))
