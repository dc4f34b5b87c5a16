"""Time of a run that records a trace, with its logits, ÷ that of Hugging Face's plain forward pass with SDPA."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from model.text import TokenBatch
from tests.benchmarks.gpt2_small import random_batch, random_model
from tests.benchmarks.report import Ratio

REPETITIONS = {128: 15, 512: 9, 1024: 7}
BAR = 1.05


@torch.inference_mode()
def traced_forward() -> list[Ratio]:
    ours = random_model()
    config = GPT2Config()
    config._attn_implementation = "sdpa"
    theirs = GPT2LMHeadModel(config).eval()

    def run_ours(batch: TokenBatch) -> object:
        return ours.run(batch).logits

    def run_theirs(batch: TokenBatch) -> object:
        return theirs(batch.ids, use_cache=False).logits

    ratios = []
    for tokens, repetitions in REPETITIONS.items():
        batch = random_batch(tokens)
        traced, plain = interleaved(partial(run_ours, batch), partial(run_theirs, batch), repetitions)
        detail = f"{1000 * traced:.0f} ms ÷ {1000 * plain:.0f} ms, medians of {repetitions}"
        ratios.append(Ratio(f"traced forward ÷ plain SDPA forward, {tokens} tokens", traced / plain, BAR, detail))
    return ratios


def interleaved(one: Callable[[], object], other: Callable[[], object], repetitions: int) -> tuple[float, float]:
    """Return the median seconds of each. They alternate in changing order, so that a slow minute slows both."""
    times: dict[Callable[[], object], list[float]] = {one: [], other: []}
    for job in (one, other):  # the first run allocates memory that later runs reuse
        job()
    for turn in range(repetitions):
        for job in (one, other) if turn % 2 else (other, one):
            began = time.perf_counter()
            job()
            times[job].append(time.perf_counter() - began)
    return median(times[one]), median(times[other])
