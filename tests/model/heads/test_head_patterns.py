"""Tests of the attention shares of all heads at once, against calculated values and the measures of one head."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model import catalog
from model.base import Model
from model.heads import measures
from model.heads.survey import HEAD_PATTERNS, AttentionShares, survey
from model.masks import MaskSpec

LINES = ["the cat sat on the mat and the cat sat still on the mat", "a cat sat on a cat"]
SPECS = [MaskSpec(), MaskSpec(causal=False), MaskSpec(padding=False), MaskSpec(sliding=3)]


def test_by_hand(tiny: Model) -> None:
    """Five tokens a b c a b with causal weights: expected are the shares of queries 1 to 4."""
    batch = tiny.encode(["a"])
    trace = tiny.run(batch)
    ids = torch.tensor([[5, 7, 9, 5, 7]])
    keep = torch.ones(1, 5, dtype=torch.bool)
    batch = replace(batch, ids=ids, keep=keep, pieces=(("a", "b", "c", "a", "b"),))
    found = AttentionShares(replace(trace, batch=batch), 0, MaskSpec(causal=False))
    weights = torch.zeros(trace.num_heads, 5, 5)
    weights[0, :, 0] = 1.0  # a head that attends to the first token alone
    weights[1] = torch.tensor(
        [
            [1, 0, 0, 0, 0],
            [0.5, 0.5, 0, 0, 0],
            [0.1, 0.2, 0.7, 0, 0],
            [0, 0.4, 0.5, 0.1, 0],
            [0.25, 0.25, 0.25, 0.25, 0],
        ]
    )
    for some in (slice(0, 3), slice(3, 5)):
        found.add(1, some, weights[:, some])
    means = {name: share[1, 1] for name, share in found.means().items()}
    assert means["previous"] == pytest.approx((0.2 + 0.5 + 0.25) / 3)  # queries 2, 3, 4
    assert means["first"] == pytest.approx((0.5 + 0.1 + 0 + 0.25) / 4)
    assert means["itself"] == pytest.approx((0.5 + 0.7 + 0.1 + 0) / 4)
    assert means["duplicate"] == pytest.approx((0 + 0.25) / 2)
    assert means["induction"] == pytest.approx((0.4 + 0.25) / 2)
    of_first = {name: share[1, 0] for name, share in found.means().items()}
    assert of_first["first"] == 1
    assert of_first["duplicate"] == pytest.approx(1 / 2)  # query 3 on the earlier a
    assert all(np.isnan(share[0]).all() for share in found.means().values())


@pytest.mark.parametrize("spec", SPECS, ids=["standard", "no causal", "no padding", "window"])
@pytest.mark.parametrize("row", [0, 1])
def test_they_are_the_measures_of_each_head(tiny: Model, spec: MaskSpec, row: int) -> None:
    trace = tiny.run(tiny.encode(LINES, "left"), spec)
    found = survey(trace, row).shares
    real, begin = trace.batch.keep[row], trace.batch.real(row).start
    later, much_later = real.clone(), real.clone()
    later[begin] = False
    much_later[begin : begin + 2] = False
    for layer in range(trace.num_layers):
        for head in range(trace.num_heads):
            weights = trace.weights(layer, head, row)
            expected = {
                "previous": measures.previous_token(weights, much_later),
                "first": measures.key_share(weights, begin, later),
                "itself": measures.own_token(weights, later),
                "induction": measures.induction(weights, trace.batch.ids[row], later),
            }
            for name, value in expected.items():
                assert found[name][layer, head] == pytest.approx(float(value), abs=1e-6), name


def test_in_blocks_they_are_the_same(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tiny.run(tiny.encode(LINES, "left"), MaskSpec(causal=False))
    whole = survey(trace, 0).shares
    monkeypatch.setattr("model.trace.BLOCK_BYTES", 4 * trace.num_heads * trace.batch.ids.shape[1] * 3)
    for name, share in survey(trace, 0).shares.items():
        np.testing.assert_allclose(share, whole[name], atol=1e-6)


def test_where_nothing_repeats_nothing_is_said_of_repetition(tiny: Model) -> None:
    found = survey(tiny.run(tiny.encode(["the cat"])), 0).shares
    assert all(np.isnan(found[name]).all() for name in ("duplicate", "induction"))


def test_the_story_model_s_first_head_is_an_induction_head_and_nothing_else(story: Model) -> None:
    layer, head = catalog.first_head(story)
    text = "Peter blew his silver whistle twice, and Peter blew his silver whistle twice, and Peter blew his silver"
    found = survey(story.run(story.encode([text])), 0).shares
    assert [name for name in HEAD_PATTERNS if found[name][layer, head] >= 0.5] == ["induction"]
