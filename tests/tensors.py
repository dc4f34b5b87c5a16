"""Comparisons of tensors with a reference; a failure's message contains the largest difference."""

import torch
from torch import Tensor


def assert_near(found: Tensor, expected: Tensor, tolerance: float, what: str = "") -> None:
    """Assert that the shapes are equal, the tensors not empty, no element differs by more than `most`, or by NaN."""
    assert found.shape == expected.shape, f"{what}: shape {list(found.shape)}, expected {list(expected.shape)}"
    assert found.numel() > 0, f"{what}: nothing to compare"
    difference = largest_difference(found, expected)
    assert difference <= tolerance, f"{what}: the largest difference is {difference:.3g}, allowed {tolerance:.3g}"


def largest_difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest |found - expected|, infinite if one is infinite or NaN and the other is not the same."""
    found, expected = found.detach().cpu(), expected.detach().cpu()
    same = (found == expected) | (found.isnan() & expected.isnan())
    difference = (found.double() - expected.double()).abs()
    difference = torch.where(difference.isnan(), torch.inf, difference).masked_fill(same, 0.0)
    return float(difference.max())
