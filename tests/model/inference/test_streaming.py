"""Tests of streams whose cache drops keys, against a mask over the whole text and against StreamingLLM.

With positions of the text, a stream equals the mask; with positions counted within the cache, it equals StreamingLLM.
Run: python -m pytest tests/model/inference/test_streaming.py
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

import unmask
from model import catalog
from model.atlas.unit import units_of_sample
from model.huggingface import adapter
from model.inference.streaming import MAX_CACHE_BYTES, has_chunks, ids_of, stream
from model.kv_cache import batch_of
from model.spec import MaskSpec, Stroke
from tests.model.huggingface import families
from tests.model.huggingface.more_families import OWN_CODE
from tests.model.inference.test_calls import load
from viz.inference import stream_sentence

SAMPLE = "\n".join(text for unit in units_of_sample() for text in unit.texts)
NO_LATER_SINKS = tuple(Stroke("block", row, row + 1, row, 2) for row in range(2))


def numbers(count: int, vocabulary: int = 55) -> tuple[int, ...]:
    return tuple(torch.randint(5, vocabulary, (count,), generator=torch.Generator().manual_seed(1)).tolist())


def test_dropped_keys_are_masked_keys() -> None:
    """Learned positions, a text within the context, one token per call, a sliding window with and without sinks."""
    story = catalog.load("story")
    ids = ids_of(story, SAMPLE, 120)
    found = stream(story, ids, window=20, sinks=3, step=1)
    for row, spec in enumerate((MaskSpec(sliding=20, sinks=3, drawn=NO_LATER_SINKS), MaskSpec(sliding=23))):
        alone = story.run(batch_of(story, ids), spec).losses(0).numpy()
        np.testing.assert_allclose(found.losses[row], alone, atol=1e-3)
    assert found.kept == [0, 1, 2, *range(100, 120)]
    assert not found.relative


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_a_short_text_is_the_beginning_of_a_long_one(count: int) -> None:
    """Learned positions are recognized as such for any number of tokens."""
    story = catalog.load("story")
    ids = ids_of(story, SAMPLE, 40)
    some, whole = (stream(story, part, window=3, sinks=1, step=1) for part in (ids[:count], ids))
    assert not some.relative
    np.testing.assert_allclose(some.losses, whole.losses[:, :count], atol=1e-4)


@pytest.mark.parametrize(("sinks", "step"), [(0, 1), (0, 7), (5, 4)])
def test_a_cache_for_all_tokens_changes_nothing(sinks: int, step: int) -> None:
    story = catalog.load("story")
    ids = ids_of(story, SAMPLE, 60)
    found = stream(story, ids, window=60, sinks=sinks, step=step)
    alone = story.run(batch_of(story, ids)).losses(0).numpy()
    for losses in found.losses:
        np.testing.assert_allclose(losses, alone, atol=1e-3)


def test_the_cache_stays_as_large_beyond_the_context() -> None:
    found = unmask.load("story").run("Once upon a time there was a cat.").streamed(600, window=28, sinks=4, step=7)
    config = catalog.load("story").network.config
    assert set(found.cache_bytes[5:]) <= {
        32 * 2 * config.layers * config.width * 4,
        28 * 2 * config.layers * config.width * 4,
    }
    assert max(found.cache_bytes) == 32 * 2 * config.layers * config.width * 4
    assert np.isfinite(found.losses[:, 1:]).all()
    assert not found.caches


def streaming_llm(network: torch.nn.Module, ids: tuple[int, ...], window: int, sinks: int) -> list[float]:
    """Return the losses of a Llama by StreamingLLM, which caches keys before rotation and rotates them by their
    position in the cache."""
    stack, losses = network.model, []
    caches: list[list[torch.Tensor]] = [[] for _ in stack.layers]
    for token, following in pairwise(ids):
        x = stack.embed_tokens(torch.tensor([[token]]))
        for layer, cache in zip(stack.layers, caches, strict=True):
            attention, normed = layer.self_attn, layer.input_layernorm(x)
            q, k, v = (
                project(normed).view(1, 1, -1, attention.head_dim).transpose(1, 2)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            cache.append((k, v))
            if len(cache) > sinks + window:
                del cache[sinks]
            keys, values = (torch.cat(some, dim=2) for some in zip(*cache, strict=True))
            cos, sin = stack.rotary_emb(x, torch.arange(len(cache))[None])
            _, keys = apply_rotary_pos_emb(keys, keys, cos, sin)
            q, _ = apply_rotary_pos_emb(q, q, cos[:, -1:], sin[:, -1:])
            attended = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
            x = x + attention.o_proj(attended.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits = network.lm_head(stack.norm(x))[0, 0]
        losses.append(float(F.cross_entropy(logits, torch.tensor(following))))
    return losses


DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}


def test_a_rotary_model_of_other_angles_beyond_its_context_reads_no_further(tmp_path: Path) -> None:
    config = hf.LlamaConfig(**families.GROUPED | {"max_position_embeddings": 32}, rope_parameters=DYNAMIC)
    llama = adapter.load(str(families.save("llama", tmp_path, config)))
    found = stream(llama, numbers(llama.context), window=6, sinks=2, step=1)
    assert found.relative
    for losses, sizes in zip(found.losses, ((6, 2), (8, 0)), strict=True):
        np.testing.assert_allclose(losses[1:], streaming_llm(llama.network, found.ids, *sizes), atol=1e-4)
    with pytest.raises(ValueError, match=f"expected at most {llama.context} tokens: beyond its context this model"):
        stream(llama, numbers(llama.context + 9), window=6, sinks=2, step=1)


@pytest.mark.parametrize("name", ["gptj", "codegen"])
def test_a_rotary_model_whose_angles_are_a_table_reads_no_further(name: str, tmp_path: Path) -> None:
    model = adapter.load(str(families.save(name, tmp_path, OWN_CODE[name])))
    assert stream(model, numbers(model.context), window=6, sinks=2, step=1).over
    with pytest.raises(ValueError, match=f"expected at most {model.context} tokens: beyond its context this model"):
        stream(model, numbers(model.context + 9), window=6, sinks=2, step=1)


@pytest.mark.parametrize(("name", "chunks"), [("llama4", True), ("llama", False), ("mistral", False), ("story", False)])
def test_which_models_have_chunks(name: str, chunks: bool, tmp_path: Path) -> None:
    if name == "llama4":
        sizes = {"intermediate_size_mlp": 48, "num_local_experts": 2, "attention_chunk_size": 5, "head_dim": 8}
        families.save(name, tmp_path, hf.Llama4TextConfig(**families.GROUPED | sizes))
    model = adapter.load(str(tmp_path)) if name == "llama4" else load(name, tmp_path)
    assert has_chunks(model) == chunks


def test_chunks_are_not_said_to_be_distances() -> None:
    story = catalog.load("story")
    found = replace(stream(story, ids_of(story, SAMPLE, 40), window=8, sinks=2), relative=True)
    sentences = {chunked: stream_sentence(found, story.context, chunked=chunked) for chunked in (False, True)}
    assert "only distances count" in sentences[False]
    assert "only distances count" not in sentences[True]
    assert "the chunks of its mask, are numbered by their places in the cache" in sentences[True]


def test_a_window_that_hides_the_sinks_is_said_to(tmp_path: Path) -> None:
    """Mistral's windows hide them in every layer, Gemma 3's do not; and only a window smaller than the cache does."""
    config = hf.MistralConfig(**families.WIDE, sliding_window=5)
    mistral, gemma = adapter.load(str(families.save("mistral", tmp_path, config))), load("gemma3", tmp_path / "gemma3")
    for model, sizes, hidden in (
        (mistral, {"window": 12, "sinks": 3}, 10),
        (mistral, {"window": 3, "sinks": 2}, 0),
        (mistral, {"window": 4, "sinks": 2}, 1),
        (gemma, {"window": 12, "sinks": 3}, 0),
    ):
        found = stream(model, numbers(40), step=1, **sizes)
        assert found.hidden == hidden
        assert not found.weights[:, :hidden].any()
        words = f"hides the first {hidden} of the 15 tokens in the cache from the newest one, all sinks among them."
        assert (words in stream_sentence(found, model.context, chunked=False)) == (hidden == 10)


@torch.inference_mode()
def test_rotary_positions_are_those_in_the_cache(tmp_path: Path) -> None:
    llama = load("llama", tmp_path)
    ids = numbers(80)
    found = stream(llama, ids, window=12, sinks=3, step=1)
    assert found.relative
    for losses, sizes in zip(found.losses, ((12, 3), (15, 0)), strict=True):
        np.testing.assert_allclose(losses[1:], streaming_llm(llama.network, ids, *sizes), atol=1e-4)


def test_learned_sinks_have_a_column_of_their_own(tmp_path: Path) -> None:
    found = stream(load("gpt_oss", tmp_path), numbers(50), window=12, sinks=3, step=4)
    assert found.learned
    assert found.weights.shape[1] == len(found.kept) + 1
    np.testing.assert_allclose(found.weights.sum(1), 1, atol=1e-5)
    story = catalog.load("story")
    assert not stream(story, ids_of(story, SAMPLE, 50), window=12, sinks=3).learned


@pytest.mark.parametrize("family", ["gemma3", "bloom", "gpt_neox", "opt"])
def test_families(family: str, tmp_path: Path) -> None:
    model = load(family, tmp_path)
    found = stream(model, numbers(60, 50), window=10, sinks=2, step=5)
    assert found.relative == (family != "opt")
    assert np.isfinite(found.losses[:, 1:]).all()
    assert len(set(found.cache_bytes[3:])) == 1


def test_parts_give_what_the_whole_gives() -> None:
    story = catalog.load("story")
    ids = ids_of(story, SAMPLE, 90)
    whole = stream(story, ids, window=20, sinks=2, step=5)
    part = stream(story, ids, window=20, sinks=2, step=5, seconds=0)
    assert part.done == 5
    while not part.over:
        part = stream(story, ids, window=20, sinks=2, step=5, so_far=part, seconds=0)
    np.testing.assert_array_equal(part.losses, whole.losses)


def test_ids_go_on_beyond_the_context_and_begin_again() -> None:
    story = catalog.load("story")
    ids = ids_of(story, SAMPLE, 900)
    start = story.tokenizer.start
    assert ids.count(start[0]) == 1
    again = ids.index(ids[1], 2, 900)
    assert ids_of(story, "Once upon a time", 9)[:5] == ids_of(story, "Once upon a time", 5)
    assert again > story.context


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"window": 300}, "expected a window from 1 to 252, got 300"),
        ({"window": 5, "step": 6}, "expected a number of tokens in a call from 1 to 5, got 6"),
        ({"sinks": -1}, "expected a number of sinks"),
        ({"tokens": 5000}, "expected a number of tokens from 2 to 4096, got 5000"),
    ],
)
def test_sizes_that_do_not_fit(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unmask.load("story").run("Once upon a time").streamed(**sizes)


def test_models_without_a_stream(tmp_path: Path) -> None:
    for name in ("qwen3_next", "falcon_h1"):
        with pytest.raises(ValueError, match="more state than keys and values"):
            stream(load(name, tmp_path / name), numbers(30), window=10, sinks=2, step=5)
    assert MAX_CACHE_BYTES < 100e6
