"""Two runs compared head by head, every weight of a run, and weights that somebody else computed."""

import numpy as np
import pytest
import torch

from model.base import Model
from model.heads.survey import changes, every_weight, thumbnails, weights_from_attentions
from model.masks import MaskSpec

TEXT = "the cat sat on the mat and the cat sat still"


def test_every_weight_is_the_traces(tiny: Model) -> None:
    trace = tiny.run(tiny.encode([TEXT, "the cat"]), MaskSpec(causal=False))
    for row in (0, 1):
        found = every_weight(trace, row)
        assert found.shape[:2] == (2, 3)
        for layer in range(2):
            for head in range(3):
                np.testing.assert_allclose(found[layer, head], trace.weights(layer, head, row).numpy(), atol=1e-6)


def test_the_changes_of_every_head(tiny: Model) -> None:
    batch = tiny.encode([TEXT])
    one, other = tiny.run(batch), tiny.run(batch, MaskSpec(causal=False))
    found = changes(one, other, 0, 0)
    change = np.abs(every_weight(one, 0) - every_weight(other, 0))
    np.testing.assert_allclose(found.thumbnails, change, atol=1e-6)  # short enough for a pixel each
    np.testing.assert_allclose(found.largest, change.max((2, 3)), atol=1e-6)
    assert found.largest.min() > 0
    assert not changes(one, tiny.run(batch), 0, 0).largest.any()


def test_a_long_text_is_compared_in_patches(tiny: Model) -> None:
    batch = tiny.encode(["the cat sat on the mat and the cat sat still " * 20])
    found = changes(tiny.run(batch), tiny.run(batch, MaskSpec(causal=False)), 0, 0)
    assert found.thumbnails.shape == (2, 3, 64, 64)
    assert batch.ids.shape[1] > 64
    np.testing.assert_array_equal(found.largest, found.thumbnails.max((2, 3)))


def test_runs_of_other_tokens_are_not_compared(tiny: Model) -> None:
    one = tiny.run(tiny.encode([TEXT]))
    with pytest.raises(ValueError, match="same tokens, got different ones: use the same text and tokenizer"):
        changes(one, tiny.run(tiny.encode([TEXT.replace("cat", "mat")])), 0, 0)
    with pytest.raises(ValueError, match=r"same shape, got 2 × 3 × .*: run the same text with both .*numpy\(\)"):
        changes(one, tiny.run(tiny.encode(["the cat"])), 0, 0)


def test_given_weights_are_one_rows_in_float32() -> None:
    layers = [torch.rand(2, 3, 5, 7, dtype=torch.float64).softmax(-1).requires_grad_() for _ in range(4)]
    found = weights_from_attentions(tuple(layers), 1)
    assert (found.shape, found.dtype) == ((4, 3, 5, 7), np.float32)
    np.testing.assert_allclose(found[2], layers[2][1].detach().numpy(), atol=1e-7)
    np.testing.assert_array_equal(thumbnails(found), found)
    np.testing.assert_array_equal(weights_from_attentions([one.detach().numpy() for one in layers], 1), found)


def test_thumbnails_hold_the_largest_of_each_patch() -> None:
    weights = np.zeros((1, 2, 128, 192), np.float32)
    weights[0, 1, 5, 100] = 0.25
    small = thumbnails(weights)
    assert small.shape == (1, 2, 64, 64)
    assert small[0, 1, 2, 33] == 0.25
    assert np.count_nonzero(small) == 1
