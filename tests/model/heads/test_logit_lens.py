"""Tests of the logit lens: its last reading is the model's prediction, the others equal its modules one by one."""

import numpy as np
import pytest
import torch

from model.base import Model
from model.decoder import DecoderModel
from model.heads.layers import LogitLens, logit_lens
from model.masks import MaskSpec
from model.text import TokenBatch

SPECS = [MaskSpec(), MaskSpec(causal=False), MaskSpec(causal=False, padding=False), MaskSpec(sliding=3, layers=(0,))]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("row", [0, 1])
def test_the_last_reading_is_the_model_s_own(tiny: Model, batch: TokenBatch, spec: MaskSpec, row: int) -> None:
    found = logit_lens(tiny, batch, spec, row, range(batch.ids.shape[1]))
    shares = tiny.run(batch, spec).logits[row].softmax(-1)
    top = shares.topk(5)
    np.testing.assert_allclose(found.probabilities[-1], top.values.numpy(), atol=1e-5)
    np.testing.assert_array_equal(found.ids[-1], top.indices.numpy())


def test_each_reading_is_norm_and_unembedding(tiny: DecoderModel, batch: TokenBatch) -> None:
    network = tiny.network
    found = logit_lens(tiny, batch, MaskSpec(), 0, range(2, 9))
    with torch.inference_mode():
        x = network.token_embedding(batch.ids[:1]) + network.position_embedding(torch.arange(batch.ids.shape[1]))
        for reading in range(3):
            shares = network.logits(network.norm(x))[0, 2:9].softmax(-1)
            np.testing.assert_allclose(found.probabilities[reading], shares.topk(5).values.numpy(), atol=1e-6)
            for position in range(7):
                follows = int(batch.ids[0, 2 + position + 1])
                assert found.next_ids[position] == follows
                share = float(shares[position, follows])
                assert found.next_probabilities[reading, position] == pytest.approx(share, abs=1e-6)
                assert found.next_ranks[reading, position] == 1 + int((shares[position] > share).sum())
            if reading < 2:
                x = network.blocks[reading](x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril())[0]
    assert found.labels[int(found.ids[0, 0, 0])] == tiny.label(int(found.ids[0, 0, 0]))


def test_a_rank_is_exact_where_probabilities_are_rounded_to_0(
    tiny: DecoderModel, batch: TokenBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    readout = tiny.readout
    monkeypatch.setattr(type(tiny), "readout", lambda _, states: readout(states) * 1000)
    plain = logit_lens(tiny, batch, MaskSpec(), 0, range(2, 9))
    assert (plain.next_probabilities == 0).any()
    monkeypatch.undo()
    np.testing.assert_array_equal(plain.next_ranks, logit_lens(tiny, batch, MaskSpec(), 0, range(2, 9)).next_ranks)


def test_nothing_follows_the_last_token_or_padding(tiny: Model, batch: TokenBatch) -> None:
    found = logit_lens(tiny, batch, MaskSpec(), 1, range(batch.ids.shape[1]))
    real = batch.real(1)
    assert real.start > 0
    inside = np.zeros(batch.ids.shape[1], bool)
    inside[real.start : real.stop - 1] = True
    np.testing.assert_array_equal(found.next_ids >= 0, inside)
    np.testing.assert_array_equal(~np.isnan(found.next_probabilities), np.stack([inside] * 3))
    np.testing.assert_array_equal(found.next_ranks > 0, np.stack([inside] * 3))


@pytest.mark.parametrize(
    ("tops", "settled"), [([7, 7, 7, 7], 0), ([1, 2, 3, 7], 3), ([7, 2, 7, 7], 2), ([7, 7, 7, 2], 3), ([7], 0)]
)
def test_a_prediction_is_settled_once_it_stays_on_top(tops: list[int], settled: int) -> None:
    ids = np.array(tops).reshape(-1, 1, 1)
    nothing = np.zeros(0)
    assert LogitLens(ids, nothing, nothing, nothing, nothing, {}).settled(0) == settled


@pytest.mark.parametrize("count", [0, 129])
def test_no_position_and_too_many_are_refused(tiny: Model, batch: TokenBatch, count: int) -> None:
    with pytest.raises(ValueError, match=f"expected 1 to 128 positions, got {count}"):
        logit_lens(tiny, batch, MaskSpec(), 0, range(count))
