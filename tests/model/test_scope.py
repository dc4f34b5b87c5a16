"""Tests of masks of every kind on a whole model: that a run uses the masks of its trace, and where masks hold.

The tiny model is random: 2 layers, 3 heads of width 7. The largest differences are printed at the end (-rP).
"""

import dataclasses
import random
from collections.abc import Iterator
from itertools import product

import pytest
import torch
from torch import Tensor

from model.base import Model
from model.blocks import positions_under
from model.masks import MaskSpec, Stroke
from model.spec import OFF
from model.text import TokenBatch
from model.trace import Trace
from tests.model.random_specs import random_spec
from tests.tensors import assert_near, largest_difference

TEXTS = ["the cat. sat on", "a cat", "the. cat and. the cat sat still"]
NOTHING_FOR_ONE = Stroke("block", 2, 0, 2, 10**6)  # the third token of each row may attend to nothing
KINDS = {
    "standard": MaskSpec(),
    "nothing": OFF,
    "padding queries": MaskSpec(causal=False, padding_queries=True),
    "sliding": MaskSpec(sliding=3),
    "stride": MaskSpec(stride=2),
    "dilated": MaskSpec(causal=False, sliding=5, stride=2),
    "documents": MaskSpec(documents=".", positions="documents"),
    "cells": MaskSpec(positions="cells"),
    "prefix": MaskSpec(prefix=5),
    "sinks": MaskSpec(sliding=2, sinks=2),
    "drawn": MaskSpec(drawn=(Stroke("open", 0, 0, 5, 5), NOTHING_FOR_ONE, Stroke("erase", 3, 0, 10**6, 10**6))),
    "in one layer": MaskSpec(sliding=3, drawn=(NOTHING_FOR_ONE,), layers=(1,)),
    "in one head": MaskSpec(causal=False, sinks=1, drawn=(NOTHING_FOR_ONE,), heads=(1,)),
    "in two heads of a layer": MaskSpec(documents=".", stride=2, layers=(0,), heads=(2, 0)),
}


@pytest.fixture(scope="module")
def largest() -> Iterator[dict[str, float]]:
    """Yield the largest differences by what was compared, and print them at the end."""
    found: dict[str, float] = {}
    yield found
    for name, difference in found.items():
        print(f"{name}: {difference:.1e}")


@pytest.fixture(params=["left", "right"])
def batch(request: pytest.FixtureRequest, tiny: Model) -> TokenBatch:
    return tiny.encode(TEXTS, request.param)


def heads_of(trace: Trace) -> Iterator[tuple[int, int, int]]:
    """Return every row, layer and head."""
    return product(range(len(trace.batch.ids)), range(trace.num_layers), range(trace.num_heads))


@torch.inference_mode()
def by_hand(model: Model, trace: Trace) -> tuple[Tensor, Tensor]:
    """Repeat the run with each attention a plain softmax under the trace's masks, head by head.

    Returns the logits [B,T,V] and the weights [L,B,H,T,T].
    """
    network, batch = model.network, trace.batch
    x = network.token_embedding(batch.ids) + network.position_embedding(positions_under(trace.spec, batch))
    every = []
    for layer, block in enumerate(network.blocks):
        inputs = block.attention_norm(x)
        q, k, v = block.attention.project(inputs, inputs, inputs)
        allowed = torch.stack(
            [
                torch.stack([trace.allowed(layer, row, head=head) for head in range(trace.num_heads)])
                for row in range(len(batch.ids))
            ]
        )  # [B,H,T,T]
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
        weights = torch.where(allowed.any(-1, keepdim=True), scores.softmax(-1), 0.0)
        every.append(weights)
        x = x + block.attention.merge(weights @ v)
        x = x + block.mlp_out(torch.nn.functional.gelu(block.mlp_in(block.mlp_norm(x)), approximate="tanh"))
    return network.logits(network.norm(x)), torch.stack(every)


def assert_a_run_is_what_its_trace_says(model: Model, trace: Trace, largest: dict[str, float], what: str) -> None:
    logits, weights = by_hand(model, trace)
    shown = torch.stack(
        [
            torch.stack(
                [
                    torch.stack([trace.weights(layer, head, row) for head in range(trace.num_heads)])
                    for row in range(len(trace.batch.ids))
                ]
            )
            for layer in range(trace.num_layers)
        ]
    )
    largest[f"{what}: logits"] = max(largest.get(f"{what}: logits", 0), largest_difference(trace.logits, logits))
    largest[f"{what}: weights"] = max(largest.get(f"{what}: weights", 0), largest_difference(shown, weights))
    assert_near(trace.logits, logits, 1e-4, f"logits under {trace.spec}")
    assert_near(shown, weights, 1e-5, f"weights under {trace.spec}")


class TestUnderEveryMask:
    @pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
    def spec(self, request: pytest.FixtureRequest) -> MaskSpec:
        return request.param

    def test_a_run_attends_under_what_its_trace_says(
        self, tiny: Model, batch: TokenBatch, spec: MaskSpec, largest: dict[str, float]
    ) -> None:
        assert_a_run_is_what_its_trace_says(tiny, tiny.run(batch, spec), largest, "tiny")

    def test_blocked_weights_are_zero(self, tiny: Model, batch: TokenBatch, spec: MaskSpec) -> None:
        trace = tiny.run(batch, spec)
        assert not trace.logits.isnan().any()
        for row, layer, head in heads_of(trace):
            weights, allowed = trace.weights(layer, head, row), trace.allowed(layer, row, head=head)
            assert torch.equal(weights > 0, allowed)
            assert_near(weights.sum(-1), allowed.any(-1).float(), 1e-5, "sums of rows, 0 for an empty row")

    def test_all_that_a_trace_says_of_a_head_agrees(self, tiny: Model, batch: TokenBatch, spec: MaskSpec) -> None:
        trace = tiny.run(batch, spec)
        for row in range(len(TEXTS)):
            overview = trace.overview(row, 64)
            blocks = {layer: weights for layer, _, weights in trace.blocks(row)}
            for layer, head in product(range(trace.num_layers), range(trace.num_heads)):
                weights = trace.weights(layer, head, row)
                assert torch.equal(trace.stages(layer, head, row).weights, weights)
                assert torch.equal(
                    trace.stages(layer, head, row).masked.isfinite(), trace.allowed(layer, row, head=head)
                )
                assert_near(overview[layer, head], weights, 1e-6, "overview")
                assert_near(blocks[layer][head], weights, 1e-6, "blocks")
                blocked = trace.blocked_by(layer, row, head=head).values()
                nowhere = torch.zeros(weights.shape, dtype=torch.bool)
                assert torch.equal(~sum(blocked, nowhere), trace.allowed(layer, row, head=head))

    def test_the_first_layer_is_as_in_a_run(self, tiny: Model, batch: TokenBatch, spec: MaskSpec) -> None:
        positions = MaskSpec(positions=spec.positions, documents=spec.documents)
        usual, run = tiny.run(batch, positions), tiny.run(batch, spec)
        for row, head in product(range(len(TEXTS)), range(3)):
            assert_near(usual.weights(0, head, row, spec), run.weights(0, head, row), 0, "weights of the first layer")
            assert torch.equal(usual.allowed(0, row, spec, head=head), run.allowed(0, row, head=head))
            assert usual.blocked_by(0, row, spec, head=head).keys() == run.blocked_by(0, row, head=head).keys()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_masks(tiny: Model, batch: TokenBatch, seed: int, largest: dict[str, float]) -> None:
    chance = random.Random(seed)
    for _ in range(15):
        spec = random_spec(chance, layers=(0, 1), heads=(0, 1, 2))
        assert_a_run_is_what_its_trace_says(tiny, tiny.run(batch, spec), largest, "tiny, any masks")


def test_a_token_with_nothing_to_attend_to_still_has_logits(tiny: Model) -> None:
    trace = tiny.run(tiny.encode(TEXTS[:1]), MaskSpec(drawn=(Stroke("block", 0, 0, 10**6, 10**6),)))
    assert not trace.allowed(0).any()
    assert (trace.weights(1, 2) == 0).all()
    assert (trace.stages(1, 2).output == 0).all()
    assert (trace.overview() == 0).all()
    assert not trace.logits.isnan().any()
    assert float(trace.next_token().sum()) == pytest.approx(1, abs=1e-5)


class TestLayers:
    TEXT = "One day. A cat sat on the mat. It was red."

    @pytest.mark.parametrize("layer", [0, 2, 5])
    def test_only_its_layer_is_under_the_mask(self, story: Model, layer: int) -> None:
        batch = story.encode([self.TEXT])
        usual, run = story.run(batch), story.run(batch, MaskSpec(sliding=2, layers=(layer,)))
        near = story.run(batch, MaskSpec(sliding=2)).allowed(0)
        assert largest_difference(usual.allowed(0).float(), near.float()) == 1
        for other in range(story.num_layers):
            assert torch.equal(run.allowed(other), near if other == layer else usual.allowed(0))
            assert ("sliding" in run.blocked_by(other)) == (other == layer)
            same_inputs = other <= layer
            assert torch.equal(run.layers[other].q, usual.layers[other].q) == same_inputs
            assert torch.equal(run.layers[other].v, usual.layers[other].v) == same_inputs
            difference = max(
                largest_difference(run.weights(other, head), usual.weights(other, head)) for head in range(6)
            )
            assert difference == 0 if other < layer else difference > 1e-3
        assert largest_difference(run.logits, usual.logits) > 1e-3


class TestHeads:
    @pytest.mark.parametrize("heads", [(1,), (2, 0)])
    def test_only_its_heads_are_under_the_mask(self, tiny: Model, batch: TokenBatch, heads: tuple[int, ...]) -> None:
        usual, run = tiny.run(batch), tiny.run(batch, MaskSpec(causal=False, heads=heads))
        assert torch.equal(usual.layers[0].q, run.layers[0].q)
        for row, layer, head in heads_of(run):
            ahead = float(run.weights(layer, head, row)[run.batch.real(row)].triu(run.batch.real(row).start + 1).sum())
            assert (ahead > 0.1) == (head in heads)
            assert ("causal" in run.blocked_by(layer, row, head=head)) == (head not in heads)
            if layer == 0:
                difference = largest_difference(run.weights(0, head, row), usual.weights(0, head, row))
                assert difference > 1e-3 if head in heads else difference == 0
        assert largest_difference(run.layers[1].q, usual.layers[1].q) > 1e-3


class TestOutOfRange:
    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            (MaskSpec(layers=(2,)), r"layers: expected numbers from 0 to 1, got \(2,\)"),
            (MaskSpec(layers=(0, 7)), r"layers: expected numbers from 0 to 1, got \(0, 7\)"),
            (MaskSpec(heads=(3,)), r"heads: expected numbers from 0 to 2, got \(3,\)"),
            (MaskSpec(layers=(1,), heads=(10**6,)), r"heads: expected numbers from 0 to 2, got \(1000000,\)"),
        ],
    )
    def test_a_layer_that_is_not_there_is_refused(self, tiny: Model, spec: MaskSpec, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            tiny.run(tiny.encode(TEXTS), spec)

    def test_a_head_that_is_not_there_has_no_masks(self, tiny: Model) -> None:
        trace = tiny.run(tiny.encode(TEXTS))
        for ask in (trace.allowed, trace.blocked_by):
            with pytest.raises(ValueError, match="expected a head from 0 to 2, got 3"):
                ask(0, head=3)


def batch_of(keep: str, text: str = "", ends: tuple[int, ...] = ()) -> TokenBatch:
    """Return a batch of one row from a drawing: x = a real token."""
    real = torch.tensor([[cell == "x" for cell in keep]])
    return TokenBatch(torch.zeros(real.shape, dtype=torch.long), real, (), texts=(text,), ends=(ends,))


class TestPositions:
    """Positions of 7 cells, where "." ends the second and the fifth real token."""

    NO_PADDING = batch_of("xxxxxxx", "a.bc.de", (1, 2, 3, 4, 5, 6, 7))
    LEFT = batch_of("..xxxxx", "a.bc.", (0, 0, 1, 2, 3, 4, 5))
    RIGHT = batch_of("xxxxx..", "a.bc.", (1, 2, 3, 4, 5, 5, 5))

    @pytest.mark.parametrize(
        ("spec", "batch", "expected"),
        [
            (MaskSpec(), NO_PADDING, [0, 1, 2, 3, 4, 5, 6]),
            (MaskSpec(), LEFT, [0, 0, 0, 1, 2, 3, 4]),
            (MaskSpec(), RIGHT, [0, 1, 2, 3, 4, 4, 4]),
            (MaskSpec(positions="cells"), NO_PADDING, [0, 1, 2, 3, 4, 5, 6]),
            (MaskSpec(positions="cells"), LEFT, [0, 1, 2, 3, 4, 5, 6]),
            (MaskSpec(positions="cells"), RIGHT, [0, 1, 2, 3, 4, 5, 6]),
            (MaskSpec(positions="documents", documents="."), NO_PADDING, [0, 1, 0, 1, 2, 0, 1]),
            (MaskSpec(positions="documents", documents="."), LEFT, [0, 0, 0, 1, 0, 1, 2]),
            (MaskSpec(positions="documents", documents="."), RIGHT, [0, 1, 0, 1, 2, 2, 2]),
            (MaskSpec(positions="documents", documents=","), LEFT, [0, 0, 0, 1, 2, 3, 4]),
            (MaskSpec(positions="documents"), LEFT, [0, 0, 0, 1, 2, 3, 4]),
            (MaskSpec(documents="."), LEFT, [0, 0, 0, 1, 2, 3, 4]),
        ],
    )
    def test_by_hand(self, spec: MaskSpec, batch: TokenBatch, expected: list[int]) -> None:
        assert positions_under(spec, batch).tolist() == [expected]

    @pytest.mark.parametrize("text", ["a......b", "a ............... b"])
    def test_more_separators_than_tokens(self, story: Model, text: str) -> None:
        batch = story.encode([text])
        spec = MaskSpec(documents=".", positions="documents")
        numbers, positions = batch.split(".")[0].tolist(), positions_under(spec, batch)[0].tolist()
        starts = [index for index, number in enumerate(numbers) if number not in numbers[:index]]
        assert positions == [index - max(start for start in starts if start <= index) for index in range(len(numbers))]
        assert not story.run(batch, spec).logits.isnan().any()

    def test_it_is_that_position_that_the_model_reads(self, tiny: Model) -> None:
        left = tiny.encode(TEXTS, "left")
        row, here = 1, left.real(1)
        cells = tiny.run(left, MaskSpec(positions="cells")).logits[row, here]
        counted = tiny.run(left).logits[row, here]
        alone = tiny.encode(TEXTS[1:2])
        with torch.inference_mode():
            states, _ = tiny.network(alone.ids, torch.arange(here.start, here.stop)[None], tiny.run(alone).allowed(0))
        assert_near(cells, tiny.readout(states)[0], 1e-4, "behind as many cells of padding")
        assert largest_difference(cells, counted) > 1e-3


class TestPackedDocuments:
    TEXT = "Once upon a time there was a cat. The dog saw it. It sat"
    PACKED = MaskSpec(documents=".", positions="documents")

    @staticmethod
    def alone(story: Model, batch: TokenBatch, number: int, row: int = 0) -> tuple[slice, Trace]:
        """Return where a document is in the row, and a run of it alone; only the first has the start token."""
        where = ((batch.split(".")[row] == number) & batch.keep[row]).nonzero()[:, 0]
        here = slice(int(where[0]), int(where[-1]) + 1)
        ids = batch.ids[row : row + 1, here]
        return here, story.run(TokenBatch(ids, torch.ones_like(ids, dtype=torch.bool), ()))

    @pytest.mark.parametrize("number", [0, 1, 2])
    @pytest.mark.parametrize("pad_side", ["left", "right"])
    def test_each_is_as_if_it_were_alone(
        self, story: Model, number: int, pad_side: str, largest: dict[str, float]
    ) -> None:
        batch = story.encode([self.TEXT, self.TEXT + " on the mat and was very happy"], pad_side)
        packed = story.run(batch, self.PACKED)
        here, alone = self.alone(story, batch, number)
        found = largest_difference(packed.logits[0, here], alone.logits[0])
        largest["packed documents: logits"] = max(largest.get("packed documents: logits", 0), found)
        assert_near(packed.logits[0, here], alone.logits[0], 1e-4, f"logits of document {number}")
        for layer, head in product(range(story.num_layers), range(story.num_heads)):
            weights = packed.weights(layer, head)
            assert_near(weights[here, here], alone.weights(layer, head), 1e-5, f"weights {layer}.{head}")
            assert float(weights[here].sum()) == pytest.approx(float(weights[here, here].sum()))

    @pytest.mark.parametrize(
        "spec",
        [MaskSpec(documents="."), dataclasses.replace(PACKED, documents=","), MaskSpec(positions="documents")],
        ids=["positions that go on", "another separator", "no separator"],
    )
    def test_otherwise_the_second_is_not(self, story: Model, spec: MaskSpec) -> None:
        batch = story.encode([self.TEXT])
        here, alone = self.alone(story, batch, 1)
        assert largest_difference(story.run(batch, spec).logits[0, here], alone.logits[0]) > 0.1
