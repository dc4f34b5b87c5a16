"""Tests of the keys with the largest weights of sampled queries, on weights whose order is known."""

import numpy as np
import torch

from model.atlas.batch import SampledQueries
from model.atlas.result import NAMES, atlas_of
from model.atlas.tally import Tally

ROWS, HEADS, QUERIES, KEYS = 2, 3, 5, 7


def test_the_heaviest_keys_come_first_and_of_equals_the_first_key() -> None:
    """Of two blocks of queries, the first sees fewer keys than are kept."""
    weights = torch.rand(ROWS, HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(0))
    weights[1, 2, 3] = torch.tensor([0.125, 0.25, 0.125, 0.25, 0.0, 0.25, 0.0])
    weights[0, 1, 1, :3] = torch.tensor([0.0, 1.0, 0.0])
    chosen = SampledQueries(torch.tensor([[1, 3], [0, 1], [0, 4]]), layers=1, heads=HEADS)
    for queries, seen in ((slice(0, 2), 3), (slice(2, QUERIES), KEYS)):
        some = weights[:, :, queries, :seen].contiguous()
        values = some[..., 0].expand(len(NAMES), -1, -1, -1).contiguous()
        chosen.add(0, queries, some, values, torch.ones(len(NAMES), ROWS, values.shape[-1], dtype=torch.bool))
    sample = chosen.sample()
    assert sample.keys[0, 0, 2].tolist() == [1, 3, 5, 0, 2]
    assert sample.weights[0, 0, 2].tolist() == [0.25, 0.25, 0.25, 0.125, 0.125]
    assert sample.keys[1, 0, 1].tolist() == [1, -1, -1, -1, -1]
    assert sample.weights[1, 0, 1].tolist() == [1, 0, 0, 0, 0]
    expected = weights[0, :, 4].numpy()
    order = np.argsort(-expected, axis=-1, kind="stable")[:, :5]
    assert (sample.keys[2, 0] == order).all()
    assert (sample.weights[2, 0] == np.take_along_axis(expected, order, -1)).all()
    assert (sample.values[2, :, 0] == expected[:, 0]).all()


def test_a_measure_that_does_not_count_is_nan() -> None:
    weights = torch.full((ROWS, HEADS, QUERIES, KEYS), 1 / KEYS)
    counted = torch.ones(len(NAMES), ROWS, QUERIES, dtype=torch.bool)
    counted[4, 1, 2] = False
    chosen = SampledQueries(torch.tensor([[1, 2], [1, 3]]), layers=1, heads=HEADS)
    chosen.add(0, slice(0, QUERIES), weights, torch.zeros(len(NAMES), ROWS, HEADS, QUERIES), counted)
    values = chosen.sample().values  # [S,M,L,H]
    assert np.isnan(values[0, 4]).all()
    assert np.isnan(values).sum() == HEADS


def test_an_atlas_stays_as_it_is_while_its_tally_grows() -> None:
    tally, more = (Tally.empty(len(NAMES), 1, HEADS, KEYS) for _ in range(2))
    atlas = atlas_of(tally, str)
    before = {name: value.copy() for name, value in vars(atlas).items() if isinstance(value, np.ndarray)}
    for name in ("sums", "counts", "uniform", "offsets", "cells", "even"):
        getattr(more, name)[...] = 1
    tally.add(more)
    assert len(before) > 8
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(atlas, name), value, err_msg=name)
