"""Tests of what a head adds to the residual stream and of how its scores split, by the sums they must have.

They run a tiny random model whose sizes are all different primes or nearly so, under several masks; the references are
the network's own modules.
"""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from model.attribution.linearized_run import Stream
from model.attribution.score_split import TOP, additions, carried, direct_effect, effect_on_logits, score_split
from model.base import Model
from model.blocks import Block, positions_under
from model.decoder import DecoderModel
from model.errors import NotSupported
from model.masks import MaskSpec
from model.trace import Trace

LINES = ["the cat sat on the mat and the cat sat", "a cat sat"]
SPECS = [MaskSpec(), MaskSpec(causal=False), MaskSpec(padding=False), MaskSpec(sliding=3, sinks=1)]
SPEC_NAMES = ["standard", "no causal", "no padding", "window and sink"]
pytestmark = pytest.mark.filterwarnings("error")


def network(model: Model) -> tuple[DecoderModel, list[Block]]:
    assert isinstance(model, DecoderModel)
    return model, [cast(Block, block) for block in model.network.blocks]


def streams(model: Model, trace: Trace) -> list[Tensor]:
    """Return the input of each layer and the output of the last, [B,T,W], from the network's own modules."""
    decoder, blocks = network(model)
    batch = trace.batch
    x = decoder.network.token_embedding(batch.ids)
    x = x + decoder.network.position_embedding(positions_under(trace.spec, batch))
    found = [x]
    for block, record in zip(blocks, trace.layers, strict=True):
        found.append(block(found[-1], record.context.allowed(trace.spec))[0])
    return found


def stream(model: Model, trace: Trace, row: int, positions: list[int], layer: int) -> Stream:
    return model.frozen(trace, row).stream(positions, layer if layer < trace.num_layers else None)


@pytest.fixture(params=SPECS, ids=SPEC_NAMES)
def trace(request: pytest.FixtureRequest, tiny: Model) -> Trace:
    return tiny.run(tiny.encode(LINES, "left"), request.param)


class TestStream:
    @pytest.mark.parametrize("layers", [0, 1, 2])
    def test_its_sources_sum_to_what_the_network_has_there(self, tiny: Model, trace: Trace, layers: int) -> None:
        positions = [7, 4, 9]
        for row in range(2):
            found = stream(tiny, trace, row, positions, layers)
            expected = streams(tiny, trace)[layers][row, positions].double()
            torch.testing.assert_close(found.total, expected, atol=1e-5, rtol=1e-5)

    def test_it_names_every_head_and_mlp_before_the_layer_and_none_after(self, tiny: Model, trace: Trace) -> None:
        heads = [f"L0 H{head}" for head in range(tiny.num_heads)]
        assert stream(tiny, trace, 0, [3], 1).names == ("token", "position", *heads, "L0 MLP", "biases")
        assert stream(tiny, trace, 0, [3], 0).names == ("token", "position", "biases")

    def test_the_token_s_part_is_its_embedding(self, tiny: Model, trace: Trace) -> None:
        decoder, _ = network(tiny)
        part = stream(tiny, trace, 0, [5], 2).parts[0, 0]
        torch.testing.assert_close(part.float(), decoder.network.token_embedding(trace.batch.ids[0, 5]))


class TestAdditions:
    @pytest.mark.parametrize("layer", [0, 1])
    def test_together_they_are_the_attention_layer_s_output(self, tiny: Model, trace: Trace, layer: int) -> None:
        _, blocks = network(tiny)
        entering = streams(tiny, trace)[layer]
        block = blocks[layer]
        allowed = trace.layers[layer].context.allowed(trace.spec)
        expected = block.attention(block.attention_norm(entering), allowed)[0]
        for row, query in ((0, 9), (1, 8), (0, 2)):
            each = [
                additions(tiny.frozen(trace, row), trace, row, trace.spec, layer, head, query)
                for head in range(tiny.num_heads)
            ]
            found = torch.stack(each).sum((0, 1)) + block.attention.output.bias.double()
            torch.testing.assert_close(found, expected[row, query].double(), atol=1e-5, rtol=0)

    def test_a_blocked_key_adds_exactly_nothing(self, tiny: Model) -> None:
        trace = tiny.run(tiny.encode(LINES, "left"))
        blocked = ~trace.allowed(1, 1)[8]
        assert blocked.any()
        assert (additions(tiny.frozen(trace, 1), trace, 1, trace.spec, 1, 2, 8)[blocked] == 0).all()

    def test_other_masks_in_this_layer_alone_are_taken(self, tiny: Model) -> None:
        trace = tiny.run(tiny.encode(LINES, "left"))
        lifted = replace(trace.spec, causal=False, layers=(1,))
        later = additions(tiny.frozen(trace, 0), trace, 0, lifted, 1, 2, 3)[4:]
        assert (later.norm(dim=-1) > 0).all()


class TestCarried:
    def test_by_hand(self, tiny: Model) -> None:
        """Two keys with weights 3/4 and 1/4 and values of norms 5 and 13."""
        trace = tiny.run(tiny.encode(["a cat"]))
        record, size = trace.layers[0], trace.layers[0].q.shape[-1]
        q, k, v = (torch.zeros_like(part) for part in (record.q, record.k, record.v))
        q[0, 1, 1, 0], k[0, 1, 0, 0] = size**0.5, float(np.log(3))  # a score of ln 3 on key 0, 0 on key 1
        v[0, 1, 0, :2], v[0, 1, 1, :2] = torch.tensor([3.0, 4.0]), torch.tensor([-5.0, 12.0])
        by_hand = replace(trace, layers=(replace(record, q=q, k=k, v=v), trace.layers[1]))
        found = carried(tiny, by_hand, 0, MaskSpec(), 0, 1, 1)
        np.testing.assert_allclose(found.weights[:2], [0.75, 0.25], atol=1e-6)
        np.testing.assert_allclose(found.value_norms[:2], [5, 13], atol=1e-5)
        np.testing.assert_allclose(found.moved[:2], [3.75, 3.25], atol=1e-5)

    def test_what_is_added_is_its_additions_norm(self, tiny: Model, trace: Trace) -> None:
        found = carried(tiny, trace, 0, trace.spec, 1, 2, 9)
        each = additions(tiny.frozen(trace, 0), trace, 0, trace.spec, 1, 2, 9)
        assert found.added is not None
        np.testing.assert_allclose(found.added, each.norm(dim=-1).numpy(), atol=1e-6)
        assert found.output == pytest.approx(float(each.sum(0).norm()))
        np.testing.assert_allclose(found.weights, trace.weights(1, 2, 0)[9].numpy(), atol=1e-6)


class TestDirectEffect:
    def test_with_what_all_else_adds_it_makes_the_logits(self, tiny: Model, trace: Trace) -> None:
        decoder, _ = network(tiny)
        norm, unembed = decoder.network.norm, decoder.network.unembedding.weight.double()
        run, whole = tiny.frozen(trace, 0), stream(tiny, trace, 0, [9], tiny.num_layers)
        for layer, head in ((0, 1), (1, 2)):
            found = effect_on_logits(run, trace, 0, trace.spec, layer, head, 9)
            others = [index for index, name in enumerate(whole.names) if name != f"L{layer} H{head}"]
            rest = run.logits(9, whole.parts[others].sum(0))[0]
            logits = found + rest + norm.bias.double() @ unembed.T
            torch.testing.assert_close(logits.float(), trace.logits[0, 9], atol=1e-4, rtol=0)

    def test_it_lists_the_tokens_pushed_most_relative_to_the_mean(self, tiny: Model, trace: Trace) -> None:
        effect = effect_on_logits(tiny.frozen(trace, 0), trace, 0, trace.spec, 1, 0, 9).numpy()
        found = direct_effect(tiny, trace, 0, trace.spec, 1, 0, 9)
        assert len(found.up) == len(found.down) == TOP
        assert found.up[0] == (tiny.label(int(effect.argmax())), pytest.approx(effect.max() - effect.mean()))
        assert found.down[0] == (tiny.label(int(effect.argmin())), pytest.approx(effect.min() - effect.mean()))
        assert found.mean == pytest.approx(effect.mean())
        up, down = tiny.extremes(torch.tensor([0.5, -1.0, 0.0, 2.0]), TOP)
        assert (up, down) == (((tiny.label(3), 2.0), (tiny.label(0), 0.5)), ((tiny.label(1), -1.0),))


class TestScoreSplit:
    @pytest.mark.parametrize("layer", [0, 1])
    def test_the_terms_of_a_cell_sum_to_its_score(self, tiny: Model, trace: Trace, layer: int) -> None:
        scores = trace.stages(layer, 1, row=0).scaled
        for query, key in ((9, 4), (3, 3), (2, 8)):
            found = score_split(tiny, trace, 0, layer, 1, query, key)
            assert found.score == pytest.approx(float(scores[query, key]), abs=1e-5)
            assert found.by_dimension.sum() == pytest.approx(found.score)
            assert found.sources is not None
            assert found.terms.shape == (len(found.sources),) * 2
            assert found.terms.sum() == pytest.approx(found.score, abs=1e-5)

    def test_a_source_that_is_taken_away_takes_its_terms_along(self, tiny: Model) -> None:
        """A source's terms as query are what q loses without it, the norm's standard deviation held constant."""
        _, blocks = network(tiny)
        trace = tiny.run(tiny.encode(["the cat sat on the mat"]))
        found = score_split(tiny, trace, 0, 1, 2, 5, 1)
        assert found.terms is not None
        wrote = stream(tiny, trace, 0, [5], 1)
        index, norm = found.sources.index("L0 MLP"), blocks[1].attention_norm
        total, part = wrote.total[0], wrote.parts[index, 0]
        part = (part - part.mean()) / (total.var(unbiased=False) + norm.eps).sqrt() * norm.weight.double()
        width = len(found.q)
        lost = part @ blocks[1].attention.query.weight.double()[2 * width : 3 * width].T
        assert found.terms[index].sum() == pytest.approx(float(lost.numpy() @ found.k) * found.scale, abs=1e-5)

    def test_a_network_of_which_it_is_not_known_is_split_by_dimension_alone_and_says_why(self, tiny: Model) -> None:
        class Unknown(DecoderModel):
            frozen = Model.frozen

        trace = tiny.run(tiny.encode(["the cat sat"]))
        unknown = Unknown("Unknown", network(tiny)[0].network, None)
        found = score_split(unknown, trace, 0, 1, 1, 2, 0)
        assert (found.sources, found.terms) == (None, None)
        assert "Unknown: what its parts add" in found.why_not
        assert found.score == pytest.approx(float(trace.stages(1, 1).scaled[2, 0]), abs=1e-5)
        assert carried(unknown, trace, 0, trace.spec, 1, 1, 2).added is None
        with pytest.raises(NotSupported, match="not available"):
            direct_effect(unknown, trace, 0, trace.spec, 1, 1, 2)
