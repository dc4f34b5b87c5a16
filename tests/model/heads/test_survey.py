"""Tests of the survey of all heads: its numbers equal one head at a time, for any masks and blocks of queries."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model.base import Model
from model.heads import measures
from model.heads.survey import MAX_BYTES, SHARES, Survey, blocked_thumbnail, survey, thumbnail_size
from model.masks import MaskSpec, Stroke
from model.text import TokenBatch
from model.trace import Trace

SPECS = [
    MaskSpec(),
    MaskSpec(causal=False),
    MaskSpec(causal=False, padding=False),
    MaskSpec(sinks=2),
    MaskSpec(drawn=(Stroke("open", 1, 3, 2, 4),)),
    MaskSpec(causal=False, layers=(1,)),
    MaskSpec(sliding=2, layers=(1,), heads=(0, 2)),
]


@pytest.mark.parametrize("block_bytes", [1, 5 * 3 * 13 * 4, 2**25])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("row", [0, 1])
def test_each_head_is_measured_as_alone(
    tiny: Model, batch: TokenBatch, spec: MaskSpec, row: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.trace.BLOCK_BYTES", block_bytes)
    trace = tiny.run(batch)
    found, keep = survey(trace, row, spec), batch.keep[row]
    for layer in range(trace.num_layers):
        for head in range(trace.num_heads):
            weights = trace.weights(layer, head, row, spec)
            future, padding = measures.leak(weights, keep, keep)
            assert found.future[layer, head] == pytest.approx(float(future), abs=1e-6)
            assert found.padding[layer, head] == pytest.approx(float(padding), abs=1e-6)
            np.testing.assert_allclose(found.thumbnails[layer, head], weights.numpy(), rtol=0, atol=1e-6)
            blocked = found.blocked[layer, head if spec.heads else 0]
            np.testing.assert_array_equal(blocked, ~trace.allowed(layer, row, spec, head=head).numpy())


@pytest.mark.parametrize("heads", [(), (1,)])
def test_a_layers_survey_takes_the_place_of_another(tiny: Model, batch: TokenBatch, heads: tuple[int, ...]) -> None:
    trace = tiny.run(batch)
    standard, lifted = survey(trace, 1), survey(trace, 1, MaskSpec(causal=False, heads=heads))
    mixed, expected = standard.with_layer(1, lifted), survey(trace, 1, MaskSpec(causal=False, layers=(1,), heads=heads))
    for name in Survey.__dataclass_fields__:
        np.testing.assert_equal(getattr(mixed, name), getattr(expected, name), err_msg=name)
    assert not np.array_equal(mixed.thumbnails, standard.thumbnails)


@pytest.mark.parametrize(("layers", "heads"), [(6, 6), (12, 12), (48, 25), (100, 128)])
def test_thumbnails_stay_within_their_pixels(layers: int, heads: int) -> None:
    size = thumbnail_size(layers, heads)
    assert 4 <= size <= 64
    assert layers * heads * (size**2 + 4 * len(SHARES)) <= MAX_BYTES or size == 4
    assert thumbnail_size(12, 12) == 64


@pytest.mark.parametrize(
    ("shape", "small"), [((13, 13), (5, 5)), ((7, 29), (7, 11)), ((16, 16), (1, 1)), ((64, 64), (64, 64))]
)
def test_a_patch_is_blocked_where_all_of_it_is(shape: tuple[int, int], small: tuple[int, int]) -> None:
    blocked = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.8
    pooled = torch.nn.functional.adaptive_max_pool2d((~blocked).float()[None], small)[0]
    np.testing.assert_array_equal(blocked_thumbnail(blocked.numpy(), *small), pooled.numpy() == 0)


def test_what_looks_across_has_no_later_and_earlier(tiny: Model, batch: TokenBatch) -> None:
    trace = tiny.run(batch)
    context = trace.layers[0].context
    layers = tuple(replace(layer, context=replace(context, available=frozenset({"padding"}))) for layer in trace.layers)
    across: Trace = replace(trace, layers=layers)
    found = survey(across, 1)
    assert np.isnan(found.future).all()
    assert np.isfinite(found.padding).all()


def test_padding_is_no_earlier_copy_of_a_token_whatever_fills_it(tiny: Model, batch: TokenBatch) -> None:
    """A tokenizer without a padding token pads with an ordinary one: here one that occurs in the row's text."""
    row, ids = 1, batch.ids.clone()
    real = batch.real(row)
    ids[row, : real.start] = ids[row, real.start + 2]
    alone = survey(tiny.run(batch.without_padding(row)), 0).shares
    padded = survey(tiny.run(replace(batch, ids=ids)), row).shares
    for name in ("duplicate", "induction"):
        np.testing.assert_allclose(padded[name], alone[name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("text", "rare"),
    [
        ("the moon rose over the hill", {"duplicate", "induction"}),
        ("the moon rose over the hill, the moon rose over the hill", set()),
        ("so it", {"previous", "first", "itself", "duplicate", "induction"}),
    ],
)
def test_a_pattern_of_few_queries_marks_no_head(story: Model, text: str, rare: set[str]) -> None:
    found = survey(story.run(story.encode([text])))
    assert found.rare == rare
    assert {*found.marked} == {*SHARES} - rare
