"""Time of patching every head ÷ as many forward passes, and time and memory of the OV and QK circuits of every head.

The model has GPT-2 small's shape and random weights, on which neither time nor memory depends.
"""

import gc
import time
from concurrent.futures import ThreadPoolExecutor, wait

import psutil
import torch
from tokenizers import Tokenizer, models

from model.circuits.ov_qk import ov, qk
from model.circuits.patching import Patch, PatchMetric, PatchPair
from model.decoder import DecoderModel
from model.text import BatchTokenizer
from tests.benchmarks.forward import interleaved
from tests.benchmarks.gpt2_small import CONFIG, random_batch, random_model
from tests.benchmarks.report import Ratio

TOKENS, FORWARDS, REPETITIONS = 30, 24, 3
MAX_SECONDS, MAX_BYTES = 60, 1e9


@torch.inference_mode()
def circuits() -> list[Ratio]:
    model = _with_tokens(random_model())
    return [*_weights_alone(model), _patching(model)]


def _with_tokens(model: DecoderModel) -> DecoderModel:
    """Return the network with a tokenizer that has a token for each id, since circuits name tokens."""
    tokenizer = Tokenizer(models.WordLevel({str(number): number for number in range(CONFIG.vocabulary)}, "0"))
    return DecoderModel("random", model.network, BatchTokenizer(tokenizer, CONFIG.context, pad=0))


def _weights_alone(model: DecoderModel) -> list[Ratio]:
    gc.collect()
    process, began, used = psutil.Process(), time.perf_counter(), time.process_time()
    before = peak = process.memory_info().rss
    for layer in range(CONFIG.layers):
        for head in range(CONFIG.heads):
            with ThreadPoolExecutor(1) as thread:
                work = thread.submit(_both, model, layer, head)
                while not work.done():
                    peak = max(peak, process.memory_info().rss)
                    wait([work], 0.01)
                work.result()
    seconds, used = time.perf_counter() - began, time.process_time() - used
    what = f"OV and QK circuits of {CONFIG.layers * CONFIG.heads} heads"
    return [
        Ratio(f"{what} ÷ {MAX_SECONDS} s", seconds / MAX_SECONDS, 1, f"{seconds:.0f} s, {used:.0f} s of processors"),
        Ratio(
            f"{what}, memory beside the model ÷ 1 GB",
            (peak - before) / MAX_BYTES,
            1,
            f"{(peak - before) / 1e6:.0f} MB; the process {peak / 1e6:.0f} MB",
        ),
    ]


def _patching(model: DecoderModel) -> Ratio:
    a, b = (model.run(random_batch(TOKENS, seed)) for seed in (0, 1))
    pair, metric, one = PatchPair(model, a, 0, b, 0), PatchMetric(TOKENS - 1, 11, 7), random_batch(TOKENS)

    def forwards() -> None:
        for _ in range(FORWARDS):
            model.readout(model.run(one).states[:, -1])

    def patches() -> None:
        for layer in range(CONFIG.layers):
            pair.effects(metric, [[Patch("head", layer, head)] for head in range(CONFIG.heads)])

    heads = CONFIG.layers * CONFIG.heads
    patched, plain = interleaved(patches, forwards, REPETITIONS)
    plain *= heads / FORWARDS
    detail = (
        f"{patched:.1f} s ÷ {plain:.1f} s, medians of {REPETITIONS}; {FORWARDS} forwards, times {heads / FORWARDS:g}"
    )
    return Ratio(f"patching {heads} heads ÷ as many forwards, {TOKENS} tokens", patched / plain, 1.2, detail)


def _both(model: DecoderModel, layer: int, head: int) -> None:
    ov(model, layer, head)
    qk(model, layer, head)
