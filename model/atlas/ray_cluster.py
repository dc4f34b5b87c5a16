"""The same atlas on a Ray cluster: Ray Data measures the units, this process adds them up in their order.

Ray is no requirement of the app: requirements-ray.txt has it. The model's files must be where every
worker finds them, under the same name; the texts are read here.
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from model import catalog
from model.atlas.progress import AtlasProgress
from model.atlas.tally import Tally
from model.atlas.texts import Unit
from model.atlas.unit import measure_unit
from model.base import Model
from model.masks import MaskSpec
from serving import machine

AT_ONCE = 256  # units handed to the cluster together: what there is of texts in memory


def measured(
    name: str, units: Iterable[Unit], masks: MaskSpec, length: int, progress: AtlasProgress, address: str
) -> Iterator[Unit]:
    """As atlas_progress.measured. name: the model's. address: the cluster's, "" for one on this machine.

    Raises ValueError where Ray is not installed.
    """
    if not address:
        machine.keep_ray_on_loopback()
    ray = _ray()
    ray.init(address=address or None, ignore_reinit_error=True, log_to_driver=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    left = (unit for unit in units if not progress.has(unit))
    while some := list(islice(left, AT_ONCE)):
        items = [_item(name, unit, masks, length, progress.tally.sample.bar) for unit in some]
        results = ray.data.from_items(items, override_num_blocks=len(items)).map(_measure).iter_rows()
        for unit, row in zip(some, results, strict=True):
            progress.add(unit, Tally.from_bytes(row["tally"]))
            yield unit


def _item(name: str, unit: Unit, masks: MaskSpec, length: int, bar: int) -> dict[str, Any]:
    job = [unit.source, unit.number, unit.first, unit.texts, unit.rows, length, bar]
    return {"model": name, "masks": masks.to_json(), "job": json.dumps(job)}


def _measure(item: dict[str, Any]) -> dict[str, Any]:
    """On a worker."""
    source, number, first, texts, rows, length, bar = json.loads(item["job"])
    unit = Unit(source, number, first, tuple(texts), tuple(map(tuple, rows)))
    tally = measure_unit(_model(item["model"]), unit, MaskSpec.from_json(item["masks"]), length, bar)
    return {"tally": tally.to_bytes()}


@lru_cache(maxsize=1)
def _model(name: str) -> Model:
    machine.keep_freed_memory()
    return catalog.load(name)


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise ValueError(
            "--ray needs Ray Data, which is not installed here: pip install -r requirements-ray.txt"
        ) from None
    return ray
