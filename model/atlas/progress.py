"""The progress of an atlas: units are measured one by one, saved and resumed. Used by the page and the command."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from model import catalog
from model.atlas.result import Atlas, atlas_of
from model.atlas.tally import Tally
from model.atlas.unit import Unit, empty_tally, measure_unit
from model.base import Model
from model.files import write
from model.masks import MaskSpec
from serving import machine

Measure = Callable[[Unit, int], Tally]  # of a unit and the sample's bar: measure_unit with its other arguments
STATE = b"unmask atlas 1\n"  # the first bytes of a saved state


@dataclass
class AtlasProgress:
    """The tally so far. next_unit: for each source, the first unit that is not in the tally."""

    tally: Tally
    next_unit: dict[int, int] = field(default_factory=dict)

    def has(self, unit: Unit) -> bool:
        return unit.number < self.next_unit.get(unit.source, 0)

    def add(self, unit: Unit, tally: Tally) -> None:
        """Add a unit's tally; units of a source must come in order. Raises ValueError where one was left out."""
        expected = self.next_unit.get(unit.source, 0)
        if unit.number != expected:
            raise ValueError(f"expected unit {expected} of source {unit.source}, got {unit.number}")  # not shown
        self.tally.add(tally)
        self.next_unit[unit.source] = unit.number + 1


def measured(units: Iterable[Unit], progress: AtlasProgress, measure: Measure) -> Iterator[Unit]:
    """Measure the units that progress does not have yet, one after the other; yield each once it was added."""
    for unit in units:
        if not progress.has(unit):
            progress.add(unit, measure(unit, progress.tally.sample.bar))
            yield unit


def new_progress(model: Model, length: int) -> AtlasProgress:
    return AtlasProgress(empty_tally(model, length))


def atlas_from_progress(progress: AtlasProgress, model: Model) -> Atlas:
    """Return the atlas of what was measured so far."""
    return atlas_of(progress.tally, model.label, model.describe().layer_numbers.get(model.attentions[0], ()))


def about(model: Model, masks: MaskSpec, length: int, atlas: Atlas | None = None) -> dict[str, object]:
    """Return the content of the tables' metadata."""
    counted = {} if atlas is None else {"texts": atlas.texts, "rows": atlas.rows, "tokens": atlas.read}
    return {"model": model.name, "masks": json.loads(masks.to_json()), "longest_row": length, **counted}


def save(path: Path, settings: dict[str, object], progress: AtlasProgress) -> None:
    """Write the progress to a file atomically."""
    header = json.dumps({"settings": settings, "next_unit": list(progress.next_unit.items())}).encode()
    write(path, STATE + header + b"\n" + progress.tally.to_bytes())


def load(path: Path, settings: dict[str, object]) -> AtlasProgress:
    """Load saved progress. Raises ValueError for a damaged file, and for one of other settings."""
    data = path.read_bytes()
    try:
        if not data.startswith(STATE):
            raise ValueError("it does not begin as one")  # not shown
        header, _, tally = data.removeprefix(STATE).partition(b"\n")
        found = json.loads(header)
        differing = sorted(name for name in settings if found["settings"].get(name) != settings[name])
        progress = AtlasProgress(Tally.from_bytes(tally), dict(map(tuple, found["next_unit"])))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{path}: expected what an atlas has come to so far, got a damaged file ({error})"  # not shown
        raise ValueError(why) from None
    if differing:
        names = ", ".join(differing)
        why = f"{path} is of an atlas with other settings ({names}): delete it, or write with -o elsewhere"  # not shown
        raise ValueError(why)
    return progress


def measured_in_threads(
    model: Model, units: Iterable[Unit], masks: MaskSpec, length: int, progress: AtlasProgress
) -> Iterator[Unit]:
    """Run `measured`; for a small model with several units at a time, and a thread for each. On tensors this small, the
    threads of one unit mostly wait for each other."""

    def measure(unit: Unit, bar: int) -> Tally:
        return measure_unit(model, unit, masks, length, bar)

    if model.describe().parameters < machine.SMALL_MODEL_PARAMETERS:
        return _side_by_side(units, progress, measure, torch.get_num_threads())
    return measured(units, progress, measure)


def _side_by_side(units: Iterable[Unit], progress: AtlasProgress, measure: Measure, many: int) -> Iterator[Unit]:
    def alone(unit: Unit, bar: int) -> Tally:
        with machine.one_thread():
            return measure(unit, bar)

    left = (unit for unit in units if not progress.has(unit))
    in_hand: deque[tuple[Unit, Future[Tally]]] = deque()
    pool = ThreadPoolExecutor(many)
    try:
        while True:
            for unit in islice(left, many + 1 - len(in_hand)):  # one more, so that no worker waits
                in_hand.append((unit, pool.submit(alone, unit, progress.tally.sample.bar)))
            if not in_hand:
                return
            unit, tally = in_hand.popleft()
            progress.add(unit, tally.result())
            yield unit
    finally:
        pool.shutdown(cancel_futures=True)  # drops the units that are no longer needed


AT_ONCE = 256  # units sent to the cluster together: limits the texts in memory


def measured_on_ray(
    name: str, units: Iterable[Unit], masks: MaskSpec, length: int, progress: AtlasProgress, address: str
) -> Iterator[Unit]:
    """Run `measured` on a Ray cluster: Ray Data measures the units, this process adds them up in order. name: the
    model's; its files must be available to every worker. address: the cluster's, "" for one on this machine. Raises
    ValueError if Ray is not installed (requirements-ray.txt)."""
    if not address:
        machine.keep_ray_on_loopback()
    try:
        import ray
        import ray.data
    except ImportError:
        why = "--ray needs Ray Data, which is not installed here: pip install -r requirements-ray.txt"  # not shown
        raise ValueError(why) from None
    ray.init(address=address or None, ignore_reinit_error=True, log_to_driver=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    left = (unit for unit in units if not progress.has(unit))
    while some := list(islice(left, AT_ONCE)):
        bar = progress.tally.sample.bar
        jobs = ([one.source, one.number, one.first, one.texts, one.rows, length, bar] for one in some)
        items = [{"model": name, "masks": masks.to_json(), "job": json.dumps(job)} for job in jobs]
        results = ray.data.from_items(items, override_num_blocks=len(items)).map(_measure).iter_rows()
        for unit, row in zip(some, results, strict=True):
            progress.add(unit, Tally.from_bytes(row["tally"]))
            yield unit


def _measure(item: dict[str, Any]) -> dict[str, Any]:
    source, number, first, texts, rows, length, bar = json.loads(item["job"])
    unit = Unit(source, number, first, tuple(texts), tuple(map(tuple, rows)))
    tally = measure_unit(_model(item["model"]), unit, MaskSpec.from_json(item["masks"]), length, bar)
    return {"tally": tally.to_bytes()}


@lru_cache(maxsize=1)
def _model(name: str) -> Model:
    machine.keep_freed_memory()
    return catalog.load(name)
