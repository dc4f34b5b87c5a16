"""Tests of OV and QK circuits and composition, against whole V × V matrices and against the circuit of `by_hand`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

from model.base import Model
from model.circuits.ov_qk import composition, composition_of_layer, copying_scores, ov, qk, strongest_reads
from model.circuits.weights import weights_of
from model.decoder import DecoderModel
from model.errors import NotSupported
from model.huggingface import adapter
from serving.settings import Settings
from tests.model.circuits.by_hand import CONTEXT, INDUCTION, PREVIOUS, WORDS
from tests.model.huggingface import families
from tests.model.huggingface.family import Family

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 2.0, "original_max_position_embeddings": 24}
LOADED = ("llama", "mistral", "qwen2", "mixtral", "gpt2")


def test_the_induction_head_copies_and_the_previous_token_head_looks_one_back(known: DecoderModel) -> None:
    scores = copying_scores(known)
    assert scores[INDUCTION] > 0.95
    assert np.isnan(scores[PREVIOUS])  # its output is read by the next layer alone
    assert ov(known, *PREVIOUS).silent
    assert np.abs(scores[:, 1]).max() < 0.5
    found = ov(known, *INDUCTION)
    assert all(one.largest[0][0] == one.token for one in found.tokens)
    assert found.copying == pytest.approx(scores[INDUCTION], abs=1e-5)
    profiles = np.array([[qk(known, layer, head).profile for head in (0, 1)] for layer in (0, 1)])
    assert profiles[PREVIOUS].argmax() == 1
    assert profiles[PREVIOUS][1] > 10
    profiles[PREVIOUS] = 0
    assert np.abs(profiles).max() < 0.5
    assert profiles.shape[-1] == CONTEXT // 2


def test_composition_finds_the_path_into_the_keys_and_no_other(known: DecoderModel) -> None:
    found = composition(known)
    assert found.shape == (3, 2, 2, 2, 2)
    strongest = np.unravel_index(np.nanargmax(found), found.shape)
    assert strongest == (1, *INDUCTION, *PREVIOUS)
    rest = found.copy()
    rest[strongest] = np.nan
    shared = len(WORDS) ** -0.5 - len(weights_of(known).moments(0).mean) ** -0.5  # one direction per token is shared
    assert found[strongest] == pytest.approx(shared, abs=0.01)
    assert np.nanmax(rest) < shared / 3
    assert np.isnan(found[:, 0]).all()
    assert np.isnan(found[:, 1, :, 1]).all()


def test_the_factors_are_the_whole_matrices(tiny: DecoderModel) -> None:
    network, layer, head = tiny.network, 1, 2
    block, width = network.blocks[layer], 7
    some = slice(head * width, (head + 1) * width)
    tokens, position = network.token_embedding.weight[:277], network.position_embedding.weight.mean(0)
    embedded = (network.blocks[0].feed_forward(tokens + position) - position).double()  # input of a head of layer 1
    position_variance = network.position_embedding.weight.double().var(-1, unbiased=False).mean()
    deviation = (embedded.var(-1, unbiased=False) + position_variance + 1e-5).sqrt()[:, None]
    x = (embedded - embedded.mean(-1, keepdim=True)) / deviation * block.attention_norm.weight.double()
    attention = block.attention
    moved = x @ attention.value.weight[some].double().T @ attention.output.weight[:, some].double().T
    moved = (moved - moved.mean(-1, keepdim=True)) * network.norm.weight.double()
    whole = moved @ network.unembedding.weight[:277].double().T
    whole = whole - whole.mean(-1, keepdim=True)
    found = ov(tiny, layer, head, [5, 11, 3])
    np.testing.assert_allclose(found.effects, whole[[5, 11, 3]].detach(), atol=1e-3, rtol=1e-4)
    values = torch.linalg.eigvals(whole)
    assert found.copying == pytest.approx(float(values.real.sum() / values.abs().sum()), abs=1e-3)
    assert found.tokens[1].largest[0][1] == pytest.approx(float(whole[11].max()), rel=1e-4)
    assert found.tokens[1].smallest[0][0] == tiny.label(int(whole[11].argmin()))

    biased = x + block.attention_norm.bias.double()
    q, k = (biased @ part.weight[some].double().T + part.bias[some] for part in (attention.query, attention.key))
    scores = q @ k.T / width**0.5
    scores = scores - scores.mean(-1, keepdim=True)
    strongest = scores.std(-1).topk(8).indices.tolist()
    found_qk = qk(tiny, layer, head)
    np.testing.assert_allclose(found_qk.effects, scores[strongest].detach(), atol=1e-3, rtol=1e-3)
    assert [one.token for one in found_qk.tokens] == [tiny.label(token) for token in strongest]


def test_composition_is_that_of_the_whole_matrices(tiny: DecoderModel) -> None:
    first, second = (weights_of(tiny).layer(number) for number in (0, 1))
    found = composition_of_layer(tiny, 1)
    for later, earlier in ((0, 2), (2, 1)):
        written = first.o[earlier] @ first.v[earlier]
        scores = second.q[later].T @ second.k[later]
        for kind, read in enumerate((scores.T, scores, second.o[later] @ second.v[later])):
            whole = (read @ written).norm() / (read.norm() * written.norm())
            assert found[kind, later, 0, earlier] == pytest.approx(float(whole) - 21**-0.5, abs=1e-5)


@pytest.mark.parametrize("name", LOADED)
def test_weights_of_transformers_are_those_of_its_runs(name: str, family: Callable[[str], Family]) -> None:
    """On the first token of a text, q and v are the weights applied to its embedding."""
    model = family(name).ours
    weights = weights_of(model)
    trace = model.run(model.encode(["cat"]))
    token = int(trace.batch.ids[0, 0])
    own, record = weights.layer(0), trace.layers[0]
    for head in range(model.num_heads):
        made = weights.read_by(own.v[own.shared(head)], 0)[token]
        if weights.positions is None:  # no rotation at position 0
            bias = model.network.model.layers[0].self_attn.v_proj.bias  # type: ignore[union-attr]
            made = made if bias is None else made + bias.unflatten(0, (-1, len(made)))[own.shared(head)]
            np.testing.assert_allclose(record.v[0, own.shared(head), 0], made.detach(), atol=1e-5)
            q = weights.read_by(own.q[head], 0)[token] + own.q_bias[head]
            np.testing.assert_allclose(record.q[0, head, 0], q, atol=1e-5)
            assert own.scale == record.factor
    assert np.isfinite(composition(model)[:, 2, :, :2]).all()
    assert copying_scores(model)[1, 3] == pytest.approx(ov(model, 1, 3).copying, abs=1e-4)


def test_a_rotary_profile_is_the_score_at_that_distance(family: Callable[[str], Family]) -> None:
    model = family("llama").ours
    weights = weights_of(model)
    own = weights.layer(0)
    q = (weights.read_by(own.q[3], 0) + own.q_bias[3]).mean(0) * own.scale
    k = weights.read_by(own.k[1], 0).mean(0)
    rotate = weights.turned
    assert rotate is not None
    turned = [rotate(x.expand(9, -1)) for x in (q, k)]
    found = qk(model, 0, 3).profile
    assert len(found) == model.context == 47
    for far, near in ((8, 5), (7, 7), (6, 1)):
        assert found[far - near] - found[0] == pytest.approx(float(turned[0][far] @ turned[1][near] - q @ k), abs=1e-5)


@pytest.mark.parametrize("name", ["mistral", "qwen2", "mixtral"])
def test_a_rotary_profile_ends_with_the_window_of_its_layer(name: str, family: Callable[[str], Family]) -> None:
    model = family(name).ours
    trace = model.run(model.encode(["cat " * 9]))
    for layer in range(model.num_layers):
        seen = int(trace.allowed(layer)[-1].sum())
        found = qk(model, layer, 3).profile
        assert len(found) == (model.context if seen == trace.batch.ids.shape[1] else seen)
        assert found.mean() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("rope", [None, YARN])
def test_rotary_keys_at_a_distance_have_the_scores_of_a_run(
    rope: dict | None, tmp_path: Path, tiny: DecoderModel
) -> None:
    families.save("llama", tmp_path, hf.LlamaConfig(**families.WIDE, rope_parameters=rope))
    model = adapter.load(str(tmp_path), settings=Settings())
    trace = model.run(model.encode(["cat cat cat cat mat"]))
    ids, position = trace.batch.ids[0].tolist(), trace.batch.real(0).stop - 1
    found = qk(model, 0, 3, [ids[position]], distance=3).effects[0]
    raw = trace.stages(0, 3).scaled[position]  # in the first layer, whose input is the embedding alone
    both = [model.run(model.encode([text])).stages(0, 3).scaled[position, position - 3] for text in (
        "cat cat cat cat mat", "cat sat cat cat mat")]  # fmt: skip
    other = model.encode(["cat sat cat cat mat"]).ids[0, position - 3]
    assert ids[position - 3] != int(other)
    assert found[ids[position - 3]] - found[other] == pytest.approx(float(both[0] - both[1]), abs=1e-5)
    assert float(raw[position - 3]) == pytest.approx(float(both[0]), abs=1e-6)
    with pytest.raises(ValueError, match="expected a distance of 0"):
        qk(tiny, 0, 0, distance=1)


@pytest.mark.parametrize("switch", [{"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True}])
def test_scores_have_the_scale_of_a_run(switch: dict, tmp_path: Path) -> None:
    families.save("gpt2", tmp_path, hf.GPT2Config(**families.DECODERS["gpt2"].to_diff_dict() | switch))
    model = adapter.load(str(tmp_path), settings=Settings())
    records = model.run(model.encode(["cat"])).layers
    assert [weights_of(model).layer(layer).scale for layer in range(3)] == [record.factor for record in records]


def test_others_are_refused(family: Callable[[str], Family], tiny: Model) -> None:
    for name in ("gemma2", "bert", "t5"):
        with pytest.raises(NotSupported, match="decoders built like Llama"):
            weights_of(family(name).ours)
    with pytest.raises(ValueError, match="head"):
        ov(tiny, 0, 3)
    with pytest.raises(ValueError, match=r"ids from 0 to 276, got 277"):
        qk(tiny, 0, 0, [277])


def test_tokens_asked_for(known: DecoderModel) -> None:
    found = ov(known, *INDUCTION, [WORDS.index("x"), WORDS.index("p")])
    assert [one.token for one in found.tokens] == ["x", "p"]
    assert found.effects.shape == (2, len(WORDS))


def test_measures_of_the_atlas(known: DecoderModel) -> None:
    reads = strongest_reads(known)
    assert np.isnan(reads[0]).all()
    assert reads[INDUCTION] == np.nanmax(composition(known)[1])


def test_weights_whose_products_overflow_have_no_score() -> None:
    """LAPACK may end the process on NaN; such weights must not."""
    network = families.random_network("gpt2")
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=families.word_tokenizer("<s> $A"))
    model = adapter.from_network(network, tokenizer)
    with torch.no_grad():
        for block in network.transformer.h[1:]:
            for weight in (block.attn.c_attn.weight, block.attn.c_proj.weight):
                weight.mul_(1e25)
    scores = copying_scores(model)
    assert np.isfinite(scores[0]).all()
    assert np.isnan(scores[1:]).all()
    assert np.isnan(ov(model, 1, 0).copying)
    assert not ov(model, 1, 0).silent
    composition(model)
