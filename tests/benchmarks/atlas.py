"""Time of a head atlas ÷ that of its forward passes alone. The atlas includes reading, measuring and adding up, as in
its command. Both use all threads."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import torch

from model import catalog
from model.atlas.progress import measured_in_threads, new_progress
from model.atlas.unit import Unit, batch_of, batches, rows_of_unit, units_of_sample
from model.base import Model
from model.text import TokenBatch
from serving import machine
from tests.benchmarks.forward import interleaved
from tests.benchmarks.gpt2_small import random_model
from tests.benchmarks.report import Ratio

ROWS, TOKENS, REPETITIONS = 4, 256, 15
UNITS = 8  # the sample repeated: as many units as in a file of 100 KB
BAR = 1.3


def atlas() -> list[Ratio]:
    """Measure in a process of its own, which keeps freed memory, as that of the command does."""
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=machine.keep_freed_memory) as own:
        return own.submit(_ratios).result()


def _ratios() -> list[Ratio]:
    """Measure GPT-2 small's shape on full rows, and the story model on the sample, whose forward passes are short."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 600, (ROWS, TOKENS), generator=generator)
    full = Unit(0, 0, rows=tuple(map(tuple, ids.tolist())))
    large = random_model()
    large.label = str  # type: ignore[method-assign]  # it has no tokenizer
    (sample,) = units_of_sample()
    some = [replace(sample, number=number) for number in range(UNITS)]
    return [
        _ratio(f"an atlas ÷ its forward passes, GPT-2 small's shape, {TOKENS} tokens a row", large, [full]),
        _ratio("an atlas ÷ its forward passes, the story model on short texts", catalog.load("story"), some),
    ]


def _ratio(what: str, model: Model, units: list[Unit]) -> Ratio:
    """Return the ratio, with the times per unit in its detail."""
    some: list[TokenBatch] = []
    for unit in units:
        rows = [row for row in rows_of_unit(model, unit, TOKENS) if len(row.ids) > 1]
        some += [batch_of([rows[number] for number in numbers]) for numbers in batches(rows)]
    whole, forwards = interleaved(partial(_atlas, model, units), partial(_run, model, some), REPETITIONS)
    detail = (
        f"{1000 * whole / len(units):.0f} ms ÷ {1000 * forwards / len(units):.0f} ms for each of {len(units)} "
        f"{'unit' if len(units) == 1 else 'units'}, medians of {REPETITIONS}"
    )
    return Ratio(what, whole / forwards, BAR, detail)


def _atlas(model: Model, units: list[Unit]) -> None:
    for _ in measured_in_threads(model, units, model.standard, TOKENS, new_progress(model, TOKENS)):
        pass


@torch.inference_mode()
def _run(model: Model, some: list[TokenBatch]) -> None:
    for batch in some:
        model.run(batch)
