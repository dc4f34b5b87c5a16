"""Memory that a trace keeps ÷ the memory that the attention weights of all heads would take."""

import gc
import tracemalloc

from torch import Tensor

from tests.benchmarks.gpt2_small import CONFIG, random_batch, random_model
from tests.benchmarks.report import Ratio

TOKENS = 1024
BAR = 0.25


def trace_memory() -> list[Ratio]:
    model, batch = random_model(), random_batch(TOKENS)
    model.run(random_batch(8))  # memory that the first run of a process leaves does not belong to the trace
    tensors_before = tensor_bytes()
    tracemalloc.start()
    trace = model.run(batch)
    objects = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    held = tensor_bytes() - tensors_before + objects
    assert trace.nbytes() <= held  # the trace is alive, and counted
    weights = 4 * CONFIG.layers * CONFIG.heads * TOKENS**2
    detail = f"{held / 1e6:.0f} MB ÷ {weights / 1e6:.0f} MB"
    return [Ratio(f"memory a {TOKENS}-token trace adds ÷ all attention weights", held / weights, BAR, detail)]


def tensor_bytes() -> int:
    """Return the memory of all tensors alive in this process in bytes, each storage counted once."""
    gc.collect()
    storages = [item.untyped_storage() for item in gc.get_objects() if issubclass(type(item), Tensor)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
