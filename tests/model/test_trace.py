"""Tests of what a run records: the laws of masks on a whole model, and everything recomputed from q, k and v.

The model is tiny and random: 2 layers, 3 heads of width 7, 283 ids, 151 positions.
"""

import dataclasses
from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from model import catalog, masks
from model.attention import NO_TERMS, ScoreTerms, attention_stages
from model.base import Model
from model.masks import MaskContext, MaskSpec
from model.text import TokenBatch
from model.trace import LayerRecord, Trace, target_losses
from tests.tensors import assert_near, largest_difference

TEXTS = ["the cat sat on the mat", "a cat", "the cat and the cat sat still on"]
SPECS = [MaskSpec(causal=causal, padding=padding) for causal, padding in product([True, False], repeat=2)]
SIDES = ["left", "right"]


def changed(batch: TokenBatch, position: int) -> TokenBatch:
    """Return the same batch with another token at one position of row 0."""
    ids = batch.ids.clone()
    ids[0, position] = (ids[0, position] + 1) % 257
    return dataclasses.replace(batch, ids=ids)


def heads_of(trace: Trace) -> list[tuple[int, int]]:
    return list(product(range(trace.num_layers), range(trace.num_heads)))


class TestMasksOnAWholeModel:
    @pytest.mark.parametrize("position", [1, 5, 8])
    def test_a_changed_token_changes_nothing_before_it(self, tiny: Model, position: int) -> None:
        batch = tiny.encode(TEXTS[2:])
        before, after = tiny.run(batch).logits[0], tiny.run(changed(batch, position)).logits[0]
        assert_near(after[:position], before[:position], 1e-5, f"logits before position {position}")
        assert (after[position:] - before[position:]).abs().amax(-1).min() > 1e-3


class TestThisLayerOnly:
    LIFTED = MaskSpec(causal=False)

    def test_another_mask_on_the_same_q_and_k(self, tiny: Model) -> None:
        trace = tiny.run(tiny.encode(TEXTS, "left"))
        for row, (layer, head) in product(range(len(TEXTS)), heads_of(trace)):
            record = trace.layers[layer]
            scores = record.q[row, head] @ record.k[row, head].T / 7**0.5
            scores[:, ~trace.batch.keep[row]] = -torch.inf
            found = trace.weights(layer, head, row, masks=self.LIFTED)
            assert_near(found, scores.softmax(-1), 1e-6, f"weights {layer}.{head} of row {row}")

    def test_looking_changes_nothing(self, tiny: Model) -> None:
        trace = tiny.run(tiny.encode(TEXTS, "left"))
        before = [trace.logits, trace.overview(), trace.weights(1, 2, 1), trace.losses(2)]
        trace.overview(masks=self.LIFTED)
        with torch.inference_mode():
            trace.stages(1, 2, 1, masks=self.LIFTED).weights.mul_(2)
            trace.overview().zero_()
            trace.allowed(1, 1).zero_()
        after = [trace.logits, trace.overview(), trace.weights(1, 2, 1), trace.losses(2)]
        for old, new in zip(before, after, strict=True):
            assert largest_difference(new, old) == 0


class TestStages:
    @pytest.mark.parametrize(
        ("layer", "head", "row", "message"),
        [
            (2, 0, 0, "layer from 0 to 1, got 2"),
            (-1, 0, 0, "layer from 0 to 1, got -1"),
            (0, 3, 0, "head from 0 to 2, got 3"),
            (0, 0, 3, "row from 0 to 2, got 3"),
            (0, 0, -1, "row from 0 to 2, got -1"),
        ],
    )
    def test_a_missing_head_is_refused(self, tiny: Model, layer: int, head: int, row: int, message: str) -> None:
        trace = tiny.run(tiny.encode(TEXTS))
        with pytest.raises(ValueError, match=message):
            trace.weights(layer, head, row)
        if head == 0:
            with pytest.raises(ValueError, match=message):
                trace.allowed(layer, row)


class TestOverview:
    @staticmethod
    def pooled(weights: Tensor, tall: int, wide: int) -> Tensor:
        """Return the largest weight of each patch, one by one; patches at uneven borders share a row or column."""
        queries, keys = weights.shape
        thumbnail = torch.empty(tall, wide)
        for i, j in product(range(tall), range(wide)):
            rows = slice(i * queries // tall, -(-(i + 1) * queries // tall))
            columns = slice(j * keys // wide, -(-(j + 1) * keys // wide))
            thumbnail[i, j] = weights[rows, columns].max()
        return thumbnail

    @pytest.mark.parametrize("block_bytes", [1, 4 * 3 * 100 * 7, 2**25])
    @pytest.mark.parametrize("size", [1, 5, 12, 64])
    def test_thumbnails_are_the_largest_weight_of_each_patch_whatever_the_blocks(
        self, tiny: Model, monkeypatch: pytest.MonkeyPatch, size: int, block_bytes: int
    ) -> None:
        monkeypatch.setattr("model.trace.BLOCK_BYTES", block_bytes)
        trace = tiny.run(tiny.encode(TEXTS, "left"))
        length = trace.batch.ids.shape[1]
        side = min(length, size)
        for row, spec in ((1, None), (0, MaskSpec(causal=False, padding=False))):
            overview = trace.overview(row, size, spec)
            assert overview.shape == (2, 3, side, side)
            for layer, head in heads_of(trace):
                expected = self.pooled(trace.weights(layer, head, row, spec), side, side)
                assert_near(overview[layer, head], expected, 1e-6, f"thumbnail {layer}.{head}")

    @pytest.mark.parametrize("block_bytes", [1, 4 * 3 * 23 * 7, 2**25])
    def test_blocks_are_every_weight_once(self, tiny: Model, monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
        monkeypatch.setattr("model.trace.BLOCK_BYTES", block_bytes)
        trace = tiny.run(tiny.encode(TEXTS, "left"))
        length = trace.batch.ids.shape[1]
        whole = torch.full((2, 3, length, length), torch.nan)
        for layer, queries, weights in trace.blocks(row=1):
            assert 4 * weights.numel() <= max(block_bytes, 4 * 3 * length)  # at least one query
            assert whole[layer, :, queries].isnan().all()
            whole[layer, :, queries] = weights
        for layer, head in heads_of(trace):
            assert_near(whole[layer, head], trace.weights(layer, head, 1), 1e-6, f"weights {layer}.{head}")

    def test_shared_masks_are_built_once(self, tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("model.trace.BLOCK_BYTES", 1)  # one query per block
        trace = tiny.run(tiny.encode(TEXTS, "left"))
        built: list[int] = []
        cells_of = masks.cells_of
        monkeypatch.setattr(masks, "cells_of", lambda *of: built.append(1) or cells_of(*of))
        assert sum(1 for _ in trace.blocks()) == trace.num_layers * trace.batch.ids.shape[1]
        assert len(built) == 1

    def test_a_rectangular_attention_is_cut_to_each_side(self) -> None:
        record = other_record(queries=13, keys=29)
        overview = trace_of(record).overview(1, size=17)
        assert overview.shape == (1, 6, 13, 17)
        weights = trace_of(record).weights(0, 4, 1)
        assert_near(overview[0, 4], self.pooled(weights, 13, 17), 1e-6, "a rectangular thumbnail")


class TestWhatTheModelSays:
    @pytest.mark.parametrize("pad_side", SIDES)
    @pytest.mark.parametrize("spec", SPECS)
    def test_next_token_and_losses_are_those_of_the_logits(self, tiny: Model, spec: MaskSpec, pad_side: str) -> None:
        trace = tiny.run(tiny.encode(TEXTS, pad_side), spec)
        for row in range(len(TEXTS)):
            log_p = trace.logits[row].double().log_softmax(-1)
            real = trace.batch.keep[row].nonzero()[:, 0].tolist()
            assert_near(trace.next_token(row), log_p[real[-1]].exp(), 1e-5, "next token")
            expected = torch.full(trace.batch.keep[row].shape, torch.nan)
            for before, position in pairwise(real):
                expected[position] = -log_p[before, trace.batch.ids[row, position]]
            assert_near(trace.losses(row), expected, 1e-5, "losses")

    def test_losses_of_a_text_longer_than_one_block_of_positions(self, tiny: Model) -> None:
        trace = tiny.run(tiny.encode(["the cat sat on a mat still and " * 40]))
        assert trace.batch.ids.shape[1] == tiny.context == 151
        log_p = trace.logits[0, :-1].log_softmax(-1)
        expected = -log_p.gather(1, trace.batch.ids[0, 1:, None])[:, 0]
        assert_near(trace.losses()[1:], expected, 1e-5, "losses")

    def test_a_certain_target_has_a_loss_of_0_and_not_of_minus_0(self) -> None:
        losses = target_losses(torch.tensor([[200.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 0]))
        assert losses[0] == 0
        assert not losses.signbit().any()
        model = catalog.load("dates")
        text = model.encode(["12 Nov 1999"], targets=["1999-11-12"])
        found = model.run(text).losses()[1:]
        assert (found == 0).any()
        assert not found.signbit().any()

    def test_a_single_token_has_no_loss(self, tiny: Model) -> None:
        ids = torch.tensor([[7]])
        trace = tiny.run(TokenBatch(ids, torch.ones(1, 1, dtype=torch.bool), (("g",),)))
        assert trace.losses().isnan().tolist() == [True]
        assert float(trace.next_token().sum()) == pytest.approx(1, abs=1e-5)
        assert trace.overview().tolist() == [[[[1.0]]] * 3] * 2


class TestMemory:
    def test_a_trace_grows_with_the_text_not_with_its_square(self, tiny: Model) -> None:
        keep = torch.ones(1, 120, dtype=torch.bool)
        ids = torch.arange(120)[None]
        whole = tiny.run(TokenBatch(ids, keep, ()))
        half = tiny.run(TokenBatch(ids[:, :60], keep[:, :60], ()))
        assert whole.nbytes() == 2 * half.nbytes()
        assert whole.nbytes() == 4 * 120 * 21 * (3 * 2 + 1)  # float32: q, k, v of two layers and the last states

    def test_it_holds_no_memory_beyond_what_it_counts(self, tiny: Model) -> None:
        trace = tiny.run(tiny.encode(TEXTS, "left"))
        tensors = [trace.states, *(tensor for layer in trace.layers for tensor in (layer.q, layer.k, layer.v))]
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
        assert sum(storages.values()) == trace.nbytes()


def other_record(
    queries: int = 13, keys: int = 13, *, window: int | None = None, terms: ScoreTerms = NO_TERMS
) -> LayerRecord:
    """Return an attention unlike GPT-2's: 6 query heads over 2 key-value heads, and a scale of its own."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 6, queries, 5, generator=generator)
    k, v = (torch.randn(3, 2, keys, 5, generator=generator) for _ in range(2))
    keep = torch.arange(keys) < torch.tensor([[keys], [keys - 4], [keys - 1]])
    available = frozenset({"padding"} if queries != keys else {"causal", "padding", "window"})
    context = MaskContext(keep, queries, 6, available=available, sizes={"window": window} if window else {})
    return LayerRecord(q, k, v, context, scale=0.3, terms=terms)


def trace_of(record: LayerRecord) -> Trace:
    """Return a trace of this attention alone."""
    rows, _, queries, _ = record.q.shape
    batch = TokenBatch(torch.zeros(rows, queries, dtype=torch.long), torch.ones(rows, queries, dtype=torch.bool), ())
    return Trace(batch, MaskSpec(), (record,), torch.zeros(rows, queries, 1), lambda states: states)


class TestOtherAttentions:
    TERMS = (
        ScoreTerms(),
        ScoreTerms(softcap=0.7),
        ScoreTerms(bias=torch.randn(1, 6, 13, 13, generator=torch.Generator().manual_seed(1))),
        ScoreTerms(bias=torch.randn(3, 1, 13, 13, generator=torch.Generator().manual_seed(1))),
        ScoreTerms(sinks=torch.tensor([0.1, 2.0, -1.0, 0.5, 3.0, 0.0])),
    )

    @pytest.mark.parametrize("terms", TERMS, ids=["plain", "soft-cap", "bias of heads", "bias of rows", "sinks"])
    @pytest.mark.parametrize("window", [None, 4])
    def test_every_head_of_every_row_is_that_of_the_whole(self, terms: ScoreTerms, window: int | None) -> None:
        record = other_record(terms=terms, window=window)
        trace = trace_of(record)
        for row in range(3):
            expected = attention_stages(
                record.q, record.k, record.v, trace.allowed(0, row), scale=record.scale, terms=terms
            )
            for head, name in product(range(6), ("raw", "scaled", "masked", "weights", "output")):
                found = getattr(trace.stages(0, head, row), name)
                assert_near(found, getattr(expected, name)[row, head], 1e-5, f"{name} of head {head}, row {row}")

    def test_half_precision_is_looked_at_in_full(self) -> None:
        record = other_record()
        half = dataclasses.replace(record, q=record.q.half(), k=record.k.half(), v=record.v.half())
        found, expected = trace_of(half).stages(0, 4, 1), trace_of(record).stages(0, 4, 1)
        assert found.weights.dtype == torch.float32
        assert_near(found.weights, expected.weights, 5e-3, "weights from float16")
        assert_near(found.weights.sum(-1), torch.ones(13), 1e-6, "sums of rows")
