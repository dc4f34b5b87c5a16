"""Tests of rollout and flow, calculated from their definitions for three tokens, and of maps over heads under masks."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from model.base import Model
from model.heads import layers, reach
from model.heads.layers import flow, layer_maps, over_heads, token_flow
from model.masks import MaskSpec, Stroke
from model.text import TokenBatch

CAUSAL = np.array(  # two layers of mean attention over three tokens
    [[[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0]], [[1, 0, 0], [0, 1, 0], [0.2, 0.6, 0.2]]], np.float64
)
SPECS = [
    MaskSpec(),
    MaskSpec(causal=False),
    MaskSpec(causal=False, padding=False),
    MaskSpec(sliding=2),
    MaskSpec(drawn=(Stroke("block", 1, 0, 4, 3),), heads=(1,)),
    MaskSpec(causal=False, layers=(1,)),
    MaskSpec(causal=False, sliding=2, heads=(0,)),  # a window blocks later keys for head 0, causal for others
]


def test_rollout_by_hand_under_a_causal_mask() -> None:
    """Layer 0 with its residual: rows (1 0 0), (¼ ¾ 0), (0 ½ ½). Layer 1: (1 0 0), (0 1 0), (.1 .3 .6)."""
    found = layers.rollout(CAUSAL)
    np.testing.assert_allclose(found[0], [[1, 0, 0], [0.25, 0.75, 0], [0, 0.5, 0.5]], atol=1e-7)
    # .1·(1 0 0) + .3·(¼ ¾ 0) + .6·(0 ½ ½)
    np.testing.assert_allclose(found[1], [[1, 0, 0], [0.25, 0.75, 0], [0.175, 0.525, 0.3]], atol=1e-7)


def test_rollout_by_hand_without_one() -> None:
    every = np.array([[[0, 1, 0], [0, 0, 1], [1, 0, 0]]] * 2, np.float64)  # each attends to the next, in a ring
    np.testing.assert_allclose(layers.rollout(every)[0], [[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    np.testing.assert_allclose(layers.rollout(every)[1], [[0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]])


def test_a_row_that_looks_at_nothing_stays_itself_and_one_that_sums_to_less_is_scaled() -> None:
    mean = np.array([[[0, 0, 0], [0.5, 0.0, 0], [0, 0, 1]]], np.float64)
    np.testing.assert_allclose(layers.rollout(mean)[0], [[1, 0, 0], [1 / 3, 2 / 3, 0], [0, 0, 1]])


def test_flow_by_hand() -> None:
    """Flow from token 2 after layer 1, whose edges there are .1 to token 0, .3 to token 1 and .6 to itself.

    To token 0: .1, and through token 1 its edge's ¼. To 1: through 1 all of .3 (its edge is ¾), through 2 its edge's ½.
    To 2: through 2 alone, ½."""
    found = flow(CAUSAL, 2)
    np.testing.assert_allclose(found[0], [0, 0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(found[1], [0.1 + 0.25, 0.3 + 0.5, 0.5], atol=1e-6)


def test_flow_differs_from_rollout_as_the_paper_says() -> None:
    """Two paths of ½ each carry a flow of 1: rollout multiplies along a path, flow takes its narrowest edge."""
    mean = np.array([[[0, 1, 0], [0, 0, 1], [1, 0, 0]]] * 2, np.float64)
    np.testing.assert_allclose(flow(mean, 0)[1], [0.5, 1, 0.5], atol=1e-6)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("how", ["mean", "maximum"])
def test_over_heads_each_layer_is_its_heads_together(
    tiny: Model, batch: TokenBatch, spec: MaskSpec, row: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.trace.BLOCK_BYTES", 4 * 3 * 13 * 5)  # five queries at a time
    trace = tiny.run(batch)
    found = over_heads(trace, row, spec, how)  # type: ignore[arg-type]
    for layer in range(2):
        heads = torch.stack([trace.weights(layer, head, row, spec) for head in range(3)])
        expected = heads.mean(0) if how == "mean" else heads.amax(0)
        np.testing.assert_allclose(found[layer], expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("row", [0, 1])
def test_a_rollout_reaches_what_masks_let(tiny: Model, batch: TokenBatch, spec: MaskSpec, row: int) -> None:
    trace = tiny.run(batch, spec)
    found = layer_maps(trace, row, spec, "rollout")
    np.testing.assert_allclose(found.maps.sum(-1), 1, atol=1e-5)
    first = reach.reach(reach.layer_masks(trace, row, spec)).numpy()
    for layer in range(2):
        np.testing.assert_array_equal(
            found.maps[layer] > 0, (first > 0) & (first <= layer + 1) | np.eye(len(first), dtype=bool)
        )


@pytest.mark.parametrize("spec", SPECS)
def test_a_cell_is_blocked_where_it_is_so_for_every_head(tiny: Model, batch: TokenBatch, spec: MaskSpec) -> None:
    trace = tiny.run(batch)
    found = layer_maps(trace, 1, spec, "mean")
    for layer in range(2):
        allowed = torch.stack([trace.allowed(layer, 1, spec, head=head) for head in range(3)]).any(0).numpy()
        closed = np.any([np.zeros_like(allowed), *found.view(layer).blocked.values()], axis=0)
        np.testing.assert_array_equal(closed, ~allowed)
        for name, mask in found.view(layer).blocked.items():
            some = [trace.blocked_by(layer, 1, spec, head=head).get(name, torch.tensor(False)) for head in range(3)]
            np.testing.assert_array_equal(mask, torch.stack(torch.broadcast_tensors(*some)).any(0).numpy() & ~allowed)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("how", ["mean", "maximum", "rollout"])
def test_merged_heads_and_layers(
    tiny: Model, batch: TokenBatch, spec: MaskSpec, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads are merged before their mean or maximum, a rollout after it is computed on tokens; in query blocks."""
    monkeypatch.setattr("model.trace.BLOCK_BYTES", 4 * 3 * 13 * 5)
    edges = list(pairwise((0, 4, 5, batch.ids.shape[1] - 1, batch.ids.shape[1])))
    begins = np.array([begin for begin, _ in edges])
    monkeypatch.setattr(layers, "merge_groups", lambda *_: (begins, begins))
    trace = tiny.run(batch)

    def by_hand(weights: np.ndarray) -> list[list[float]]:
        """Return merged weights, with queries that attend to nothing left out of the mean."""
        looking = [[query for query in range(*rows) if weights[query].any()] for rows in edges]
        return [[weights[rows, a:b].sum() / max(len(rows), 1) for a, b in edges] for rows in looking]

    found = layer_maps(trace, 1, spec, how, "words")  # type: ignore[arg-type]
    for layer in range(2):
        heads = [trace.weights(layer, head, 1, spec).numpy() for head in range(3)]
        expected = np.mean if how == "mean" else np.max
        if how == "rollout":
            heads = [layers.rollout(over_heads(trace, 1, spec, "mean"))[layer]]
        np.testing.assert_allclose(found.maps[layer], expected([by_hand(one) for one in heads], 0), atol=1e-6)
        closed = np.any([np.zeros((4, 4), bool), *found.view(layer).blocked.values()], axis=0)
        allowed = torch.stack([trace.allowed(layer, 1, spec, head=head) for head in range(3)]).any(0).numpy()
        open_cells = [[allowed[a:b, c:d].any() for c, d in edges] for a, b in edges]
        np.testing.assert_array_equal(closed, ~np.array(open_cells) & (found.maps[layer] == 0))


def test_layers_under_the_same_masks_share_them(tiny: Model, batch: TokenBatch) -> None:
    found = layer_maps(tiny.run(batch), 1, MaskSpec(), "mean")
    assert found.blocked[0]["causal"] is found.blocked[1]["causal"]
    side = batch.ids.shape[1]
    assert found.nbytes() == 2 * side * side * 4 + 2 * side * side  # maps, and two masks


def test_flow_of_a_run_stays_behind_the_mask(tiny: Model, batch: TokenBatch) -> None:
    trace = tiny.run(batch)
    query = batch.real(0).start + 3
    found = token_flow(trace, 0, MaskSpec(), query)
    assert found.shape == (2, batch.ids.shape[1])
    assert (found[:, query + 1 :] == 0).all()
    assert (found[:, batch.real(0).start : query + 1] > 0).all()
    assert found.max() <= 1


def test_a_text_too_long_is_refused(tiny: Model, batch: TokenBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, side = tiny.run(batch), batch.ids.shape[1]
    monkeypatch.setattr(layers, "MAX_BYTES", 2 * 7 * 7 * 4)
    monkeypatch.setattr(layers, "MAX_FLOW", 4 * 5**3 + 1)
    with pytest.raises(ValueError, match=f"at most 7 tokens over all 2 layers, got {side}: shorten the text"):
        layer_maps(trace, 0, MaskSpec(), "mean")
    with pytest.raises(ValueError, match=f"at most 5 tokens for attention flow over 2 layers, got {side}: .*rollout"):
        token_flow(trace, 0, MaskSpec(), 1)
