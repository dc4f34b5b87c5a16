"""Tests that each kernel's documented output of a fully masked row is what that kernel returns here.

python -m pytest tests/model/mask_lab/test_empty_rows.py
"""

import pytest
import torch
import torch.nn.functional as F

from model.mask_lab.fills import DTYPES, KERNELS, _outcome, empty_rows


def test_softmax_of_nothing() -> None:
    found = empty_rows()
    assert found.keys() == KERNELS.keys()
    assert found["eager softmax, −∞"] == dict.fromkeys(DTYPES, "NaN")
    assert found["eager softmax, dtype minimum"] == dict.fromkeys(DTYPES, "uniform")
    nothing = torch.zeros(1, 1, 1, 3, dtype=torch.bool)
    q, v = torch.ones(1, 1, 1, 4), torch.tensor([[[[1.0], [2.0], [6.0]]]])
    default = F.scaled_dot_product_attention(q, torch.ones(1, 1, 3, 4), v, attn_mask=nothing)
    named = found["SDPA flash on CPU, boolean mask"]["float32"] or found["SDPA math, boolean mask"]["float32"]
    assert named == _outcome(default.flatten(), v[0, 0])


@pytest.mark.parametrize(
    ("output", "words"), [([float("nan")], "NaN"), ([0.0], "0"), ([3.0], "uniform"), ([2.0], "other")]
)
def test_outcomes(output: list[float], words: str) -> None:
    assert _outcome(torch.tensor(output), torch.tensor([[1.0], [2.0], [6.0]])) == words
