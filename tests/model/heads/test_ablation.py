"""Tests of heads turned off, against runs in which a head's output is removed by other means."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model.base import Model
from model.blocks import positions_under
from model.decoder import DecoderModel
from model.heads.ablation import AblatedHeads, layer_effects, next_token_id, outcome
from model.masks import MaskSpec, Stroke
from model.text import TokenBatch

NOTHING = (Stroke("block", 0, 0, 200, 200),)
ON = AblatedHeads(())


def log_probability(model: Model, batch: TokenBatch, spec: MaskSpec, row: int, query: int, target: int) -> float:
    trace = model.run(batch, spec)
    return float(trace.logits[row, query].log_softmax(-1)[target])


def test_no_head_off_is_the_run_itself(tiny: Model, batch: TokenBatch) -> None:
    trace = tiny.run(batch)
    for row in (0, 1):
        query = batch.real(row).stop - 2
        found = outcome(tiny, batch, MaskSpec(), row, query, ON, next_token_id(batch, row, query))
        np.testing.assert_allclose(found.losses, trace.losses(row).numpy(), atol=1e-5)
        assert found.log_probability == pytest.approx(-float(trace.losses(row)[query + 1]), abs=1e-5)
        assert [one for _, one in found.candidates] == pytest.approx(
            trace.next_token(row, query).topk(10).values.tolist(), abs=1e-6
        )


def test_a_head_that_gives_nothing_is_one_that_may_look_at_nothing(tiny: Model, batch: TokenBatch) -> None:
    for layer, head in ((0, 2), (1, 0)):
        off = AblatedHeads(((layer, head),))
        found = outcome(tiny, batch, MaskSpec(), 0, 5, off, 11)
        blind = MaskSpec(drawn=NOTHING, layers=(layer,), heads=(head,))
        assert found.log_probability == pytest.approx(log_probability(tiny, batch, blind, 0, 5, 11), abs=1e-5)
        assert abs(found.log_probability - outcome(tiny, batch, MaskSpec(), 0, 5, ON, 11).log_probability) > 1e-5


@pytest.mark.parametrize(
    "alone", [MaskSpec(causal=False), MaskSpec(sliding=1), MaskSpec(drawn=(Stroke("block", 0, 0, 200, 0),))]
)
def test_a_mask_for_one_head_is_a_scoped_run(tiny: Model, batch: TokenBatch, alone: MaskSpec) -> None:
    off = AblatedHeads(((1, 1),), "mask", alone)
    found = outcome(tiny, batch, MaskSpec(), 1, batch.real(1).stop - 1, off, 7)
    scoped = replace(alone, layers=(1,), heads=(1,))
    expected = log_probability(tiny, batch, scoped, 1, batch.real(1).stop - 1, 7)
    assert found.log_probability == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("spec", [MaskSpec(), MaskSpec(causal=False)])
@pytest.mark.parametrize("way", ["zero", "mean"])
def test_several_heads_off_by_hand(tiny: DecoderModel, batch: TokenBatch, way: str, spec: MaskSpec) -> None:
    """Heads 0 and 2 of layer 0 and head 1 of layer 1, in the padded row, against the network's modules one by one."""
    off = AblatedHeads(((0, 0), (0, 2), (1, 1)), way)  # type: ignore[arg-type]
    row = batch.rows([1])
    trace, network, keep = tiny.run(row, spec), tiny.network, row.keep[0]
    with torch.inference_mode():
        x = network.token_embedding(row.ids) + network.position_embedding(positions_under(spec, row))
        for layer, block in enumerate(network.blocks):
            q, k, v = block.attention.project(*[block.attention_norm(x)] * 3)
            allowed = trace.allowed(layer)
            weights = (q @ k.transpose(-2, -1) / 7**0.5).masked_fill(~allowed, float("-inf")).softmax(-1)
            output = weights.nan_to_num() @ v
            for at, head in off.heads:
                if at == layer:
                    output[0, head] = 0 if way == "zero" else output[0, head][keep].mean(0)
            x = block.feed_forward(x + block.attention.merge(output))
        expected = network.logits(network.norm(x))[0].log_softmax(-1)
    position = row.real(0).stop - 1
    found = outcome(tiny, batch, spec, 1, position, off)
    assert found.target == int(expected[position].argmax())
    assert found.log_probability == pytest.approx(float(expected[position].max()), abs=1e-5)
    ids = row.ids[0]
    losses = [-float(expected[at - 1, ids[at]]) for at in range(row.real(0).start + 1, row.real(0).stop)]
    np.testing.assert_allclose(found.losses[row.real(0).start + 1 : row.real(0).stop], losses, atol=1e-5)


@pytest.mark.parametrize(
    "way", [AblatedHeads(()), AblatedHeads((), "mean"), AblatedHeads((), "mask", MaskSpec(sliding=2))]
)
@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_a_layer_s_effects_are_those_of_each_head_alone(
    tiny: Model, batch: TokenBatch, way: AblatedHeads, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "most_cells", at_a_time * batch.ids.shape[1])
    before = outcome(tiny, batch, MaskSpec(), 0, 6, ON, 5).log_probability
    for layer in range(2):
        found = layer_effects(tiny, batch, MaskSpec(), 0, 6, 5, layer, way)
        alone = [outcome(tiny, batch, MaskSpec(), 0, 6, replace(way, heads=((layer, head),)), 5) for head in range(3)]
        np.testing.assert_allclose(found, [before - one.log_probability for one in alone], atol=1e-5)
        assert len(set(found.round(7).tolist())) == 3


def test_what_follows_a_query(batch: TokenBatch) -> None:
    real = batch.real(1)
    assert next_token_id(batch, 1, real.start) == int(batch.ids[1, real.start + 1])
    assert next_token_id(batch, 1, real.stop - 1) is None
    assert real.start > 0
    assert next_token_id(batch, 1, real.start - 1) is None


def test_the_story_model_loses_its_induction_with_the_head_its_card_names(story: Model) -> None:
    batch = story.encode(["Peter blew his silver whistle twice, and Peter blew his silver"])
    query = batch.real(0).stop - 1
    whole = outcome(story, batch, MaskSpec(), 0, query, ON)
    assert whole.label == "·whist"
    effects = [layer_effects(story, batch, MaskSpec(), 0, query, whole.target, 4, ON)]
    assert np.argmax(effects) in (0, 1)


def test_a_head_that_is_not_there_is_refused(tiny: Model, batch: TokenBatch) -> None:
    for head in ((2, 0), (0, 3), (-1, 0)):
        with pytest.raises(ValueError, match=r"the 2 × 3 of attention 'self', got L"):
            outcome(tiny, batch, MaskSpec(), 0, 1, AblatedHeads((head,)))
    with pytest.raises(ValueError, match="expected a mask"):
        AblatedHeads((), "mask")
    with pytest.raises(ValueError, match="expected a mask"):
        AblatedHeads((), "zero", MaskSpec())
