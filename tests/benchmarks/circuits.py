"""Activation patching of every head ÷ as many forward passes; the OV and QK circuits of every head, in time and memory.

Random weights of GPT-2 small's shape: neither depends on what they are.
"""

import resource
import time

import torch
from tokenizers import Tokenizer, models

from model.circuits.ov_qk import ov, qk
from model.circuits.patching import Asked, head_effects
from model.decoder import DecoderModel
from model.text import BatchTokenizer
from tests.benchmarks.forward import interleaved
from tests.benchmarks.gpt2_small import CONFIG, random_batch, random_model
from tests.benchmarks.report import Ratio

TOKENS, FORWARDS, REPETITIONS = 30, 24, 3
MOST_SECONDS, MOST_BYTES = 60, 1e9


@torch.inference_mode()
def circuits() -> list[Ratio]:
    model = _with_tokens(random_model())
    return [*_weights_alone(model), _patching(model)]  # in this order: the peak of memory is the process's


def _with_tokens(model: DecoderModel) -> DecoderModel:
    """The same network with a token for each id: circuits name them."""
    words = Tokenizer(models.WordLevel({str(number): number for number in range(CONFIG.vocabulary)}, "0"))
    return DecoderModel("random", model.network, BatchTokenizer(words, CONFIG.context, pad=0))


def _weights_alone(model: DecoderModel) -> list[Ratio]:
    model.network.logits(model.network.embed(torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long)))
    before, began = _peak(), time.perf_counter()
    for layer in range(CONFIG.layers):
        for head in range(CONFIG.heads):
            ov(model, layer, head)
            qk(model, layer, head)
    seconds, peak = time.perf_counter() - began, _peak()
    what = f"OV and QK circuits of {CONFIG.layers * CONFIG.heads} heads"
    return [
        Ratio(f"{what} ÷ {MOST_SECONDS} s", seconds / MOST_SECONDS, 1, f"{seconds:.0f} s"),
        Ratio(f"{what}, memory beside the model ÷ 1 GB", (peak - before) / MOST_BYTES, 1,
              f"{(peak - before) / 1e6:.0f} MB; the process {peak / 1e6:.0f} MB"),
    ]  # fmt: skip


def _patching(model: DecoderModel) -> Ratio:
    a, b = (model.run(random_batch(TOKENS, seed)) for seed in (0, 1))
    asked, one = Asked(TOKENS - 1, 11, 7), random_batch(TOKENS)

    def forwards() -> None:
        for _ in range(FORWARDS):
            model.readout(model.run(one).states[:, -1])

    def patches() -> None:
        for layer in range(CONFIG.layers):
            head_effects(model, a, 0, b, 0, asked, layer)

    heads = CONFIG.layers * CONFIG.heads
    patched, plain = interleaved(patches, forwards, REPETITIONS)
    plain *= heads / FORWARDS
    detail = f"{patched:.1f} s ÷ {plain:.1f} s, medians of {REPETITIONS}; {FORWARDS} forwards, times {heads / FORWARDS:g}"
    return Ratio(f"patching {heads} heads ÷ as many forwards, {TOKENS} tokens", patched / plain, 1.2, detail)


def _peak() -> int:
    """The most memory that this process has held, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
