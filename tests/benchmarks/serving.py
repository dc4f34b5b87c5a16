"""Long tasks of the Serving page: streaming 4,096 tokens through 12 × 12 heads; blocks of a mask of 32,768 tokens."""

import time
import tracemalloc
from statistics import median

import torch

from model.inference.cost import cost
from model.inference.streaming import stream
from tests.benchmarks.gpt2_small import CONFIG, random_batch, random_model
from tests.benchmarks.memory import tensor_bytes
from tests.benchmarks.report import Ratio

TOKENS, PART = 4096, 512
SIZES = {"window": 252, "sinks": 4, "step": 64}
LONG, BLOCK, STRIDED = 32_768, 16, {"causal": True, "stride": 4}
FIRST_BAR, MEMORY_BAR, SECONDS_BAR, MEGABYTES_BAR, TURNS = 6, 1.02, 1, 200, 3


def streams_and_costs() -> list[Ratio]:
    return [*_stream(), *_cost()]


def _stream() -> list[Ratio]:
    """Measure the first part ÷ a forward pass of as many tokens; memory near the end ÷ after PART tokens."""
    model, ids = random_model(), random_batch(TOKENS).ids[0].tolist()
    plain = random_batch(SIZES["step"])
    forwards, firsts = [], []
    for _ in range(TURNS):
        began = time.perf_counter()
        with torch.inference_mode():
            model.readout(model.run(plain).states)
        forwards.append(time.perf_counter() - began)
        began = time.perf_counter()
        stream(model, ids, **SIZES, seconds=0)
        firsts.append(time.perf_counter() - began)
    first, forward = median(firsts[1:]), median(forwards[1:])
    before, held, began, found = tensor_bytes(), {}, time.perf_counter(), None
    while found is None or not found.over:
        found = stream(model, ids, **SIZES, so_far=found, seconds=0)
        if found.done in (PART, TOKENS - SIZES["step"]):
            held[found.done] = tensor_bytes() - before
    took = time.perf_counter() - began
    early, late = held.values()
    heads = f"{CONFIG.layers} × {CONFIG.heads} heads"
    return [
        Ratio(f"streaming through {heads}: first part ÷ forward pass of its {SIZES['step']} tokens", first / forward,
              FIRST_BAR, f"{1000 * first:.0f} ms ÷ {1000 * forward:.0f} ms, medians of {TURNS - 1}"),
        Ratio(f"streaming {TOKENS:,} tokens through {heads}: memory of the caches at the end ÷ after {PART} tokens",
              late / early, MEMORY_BAR, f"{late / 1e6:.1f} MB ÷ {early / 1e6:.1f} MB, {took:.0f} s in all"),
    ]  # fmt: skip


def _cost() -> list[Ratio]:
    seconds = []
    for _ in range(TURNS):
        began = time.perf_counter()
        cost(STRIDED, LONG, BLOCK)
        seconds.append(time.perf_counter() - began)
    tracemalloc.start()
    cost(STRIDED, LONG, BLOCK)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    what = f"blocks of {BLOCK} of a strided causal mask of {LONG:,} tokens"
    detail = f"{LONG // BLOCK:,} × {LONG // BLOCK:,} blocks, median of {TURNS}"
    return [
        Ratio(f"{what}, s", median(seconds), SECONDS_BAR, detail),
        Ratio(f"{what}, peak memory, MB", peak, MEGABYTES_BAR, "by tracemalloc"),
    ]
