"""Time of a traced run of a Llama from transformers ÷ its plain forward: 12 layers, 12 heads, 4 key-value heads."""

import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM

from model.base import Model
from model.huggingface import adapter
from serving.settings import Settings
from tests.benchmarks.forward import interleaved
from tests.benchmarks.gpt2_small import random_batch
from tests.benchmarks.report import Ratio

TOKENS, REPETITIONS, BAR = 512, 11, 1.10
SHAPE = {
    "vocab_size": 32_000,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "intermediate_size": 2048,
    "max_position_embeddings": 1024,
}


@torch.inference_mode()
def traced_llama() -> list[Ratio]:
    """Measure a forward pass with trace and logits ÷ Hugging Face's own with SDPA."""
    with tempfile.TemporaryDirectory() as path:
        theirs = save(SHAPE, Path(path))
        ours = loaded(Path(path))
    batch = random_batch(TOKENS, 0, SHAPE["vocab_size"])
    traced, plain = interleaved(
        lambda: ours.run(batch).logits, lambda: theirs(batch.ids, use_cache=False).logits, REPETITIONS
    )
    detail = f"{1000 * traced:.0f} ms ÷ {1000 * plain:.0f} ms, medians of {REPETITIONS}"
    return [Ratio(f"traced ÷ plain SDPA forward of a Llama, {TOKENS} tokens", traced / plain, BAR, detail)]


def save(shape: dict[str, int], folder: Path) -> LlamaForCausalLM:
    """Return a Llama of this shape with random weights; save it and a tokenizer of 100 words to the folder."""
    config = LlamaConfig(**shape)
    config._attn_implementation = "sdpa"
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    vocabulary = {f"w{number}": number for number in range(100)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="w0")).save(str(folder / "tokenizer.json"))
    return model


def loaded(folder: Path) -> Model:
    return adapter.from_folder(str(folder), folder, Settings(max_weights_gb=10))
