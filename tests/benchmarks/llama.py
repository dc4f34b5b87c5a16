"""The same for a model of Llama's shape that comes through transformers: 12 layers, 12 heads over 4 key-value heads."""

import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM

from model.huggingface import adapter
from model.settings import Settings
from model.text import TokenBatch
from tests.benchmarks.forward import interleaved
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
    """One pass with its trace and its logits ÷ Hugging Face's own with SDPA."""
    config = LlamaConfig(**SHAPE)
    config._attn_implementation = "sdpa"
    theirs = LlamaForCausalLM(config).eval()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        theirs.save_pretrained(folder)
        words = {f"w{number}": number for number in range(100)}
        Tokenizer(models.WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
        ours = adapter.from_folder(str(folder), folder, Settings(max_weights_gb=10))
    ids = torch.randint(SHAPE["vocab_size"], (1, TOKENS), generator=torch.Generator().manual_seed(0))
    batch = TokenBatch(ids, torch.ones(1, TOKENS, dtype=torch.bool), (("",) * TOKENS,))
    traced, plain = interleaved(
        lambda: ours.run(batch).logits, lambda: theirs(ids, use_cache=False).logits, REPETITIONS
    )
    detail = f"{1000 * traced:.0f} ms ÷ {1000 * plain:.0f} ms, medians of {REPETITIONS}"
    return [Ratio(f"traced ÷ plain SDPA forward of a Llama, {TOKENS} tokens", traced / plain, BAR, detail)]
