"""The same atlas of a small model: several units in hand, and a thread for each.

On tensors this small the threads of one unit mostly wait for each other: with a unit each, they do not.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import torch

from model.atlas import progress as atlas_progress
from model.atlas.progress import AtlasProgress
from model.atlas.tally import Tally
from model.atlas.texts import Unit
from model.atlas.unit import measure_unit
from model.base import Model
from model.masks import MaskSpec
from serving import machine


def measured(
    model: Model, units: Iterable[Unit], masks: MaskSpec, length: int, progress: AtlasProgress
) -> Iterator[Unit]:
    """As atlas_progress.measured: added in their order, one unit after the other for a model that is not small."""

    def measure(unit: Unit, bar: int) -> Tally:
        return measure_unit(model, unit, masks, length, bar)

    if model.describe().parameters < machine.FEW:
        return _side_by_side(units, progress, measure, torch.get_num_threads())
    return atlas_progress.measured(units, progress, measure)


def _side_by_side(
    units: Iterable[Unit], progress: AtlasProgress, measure: atlas_progress.Measure, many: int
) -> Iterator[Unit]:
    def alone(unit: Unit, bar: int) -> Tally:
        with machine.one_thread():
            return measure(unit, bar)

    left = (unit for unit in units if not progress.has(unit))
    in_hand: deque[tuple[Unit, Future[Tally]]] = deque()
    pool = ThreadPoolExecutor(many)
    try:
        while True:
            for unit in islice(left, many + 1 - len(in_hand)):  # one more: who is done with one has the next
                in_hand.append((unit, pool.submit(alone, unit, progress.tally.sample.bar)))
            if not in_hand:
                return
            unit, tally = in_hand.popleft()
            progress.add(unit, tally.result())
            yield unit
    finally:
        pool.shutdown(cancel_futures=True)  # those that nobody waits for any more
