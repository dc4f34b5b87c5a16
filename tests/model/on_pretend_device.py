"""What is measured on a run, on the CPU and on a device that is not there (tests/pretend_device.py).

`python -m tests.model.on_pretend_device FOLDER …` prints the largest difference for each model's folder.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from model import catalog, kv_cache
from model.atlas.unit import Unit, measure_unit
from model.base import Model
from model.bug_clinic.comparison import examine, masks_for
from model.circuits.ov_qk import composition, copying_scores, ov, qk
from model.errors import NotSupported
from model.hardware import Hardware
from model.heads.survey import changes, every_weight, survey
from model.heads.view import head_view, mask_view
from model.sampling import next_tokens, predictions
from model.spec import MaskSpec, stroke_of
from serving.settings import Settings

TEXTS = ["the cat sat on a mat and the cat sat on", "one big red ball"]
SPECS = (
    None,
    MaskSpec(causal=False),
    MaskSpec(sliding=3, padding_queries=True),
    MaskSpec(documents="mat", prefix=2, layers=(1,), heads=(0,)),
    MaskSpec(drawn=(stroke_of(["block", 5, 1, 6, 3]),)),
)


def measured(model: Model) -> list[np.ndarray]:
    """What pages and the Python API ask of a run."""
    found: list[Any] = []
    for pad_side, spec in product(("left", "right"), SPECS):
        batch = model.encode(TEXTS, pad_side)
        standard, trace = model.run(batch), model.run(batch, spec)
        found += [trace.logits.cpu(), every_weight(trace, 1), survey(trace, 1).thumbnails]
        found += list(survey(trace, 1).shares.values())
        view = head_view(trace, 1, trace.spec, 1, 2)
        found += [view.weights, *view.blocked.values(), changes(standard, trace, 1, 1).largest]
        mask_view(trace, 0, trace.spec, 0, 0)
        if model.kind != "encoder":
            found += [predictions(trace, 1, None, 3).losses, next_tokens(trace, 0, 2, 3).probabilities]
    with suppress(NotSupported):
        found += [ov(model, 1, 2).effects, qk(model, 1, 2).profile, composition(model), copying_scores(model)]
    found += _pages_of_one_text(model) if model.kind == "decoder" else ()
    return [np.nan_to_num(np.asarray(one, np.float32)) for one in found]


def _pages_of_one_text(model: Model) -> Iterator[Any]:
    tally = measure_unit(model, Unit(0, 0, 0, tuple(TEXTS)), model.standard, 20)
    yield from (tally.sums, tally.offsets, tally.key_weight, tally.query_peak)
    trace = model.run(model.encode(TEXTS[:1]), masks_for(model))
    for bug in ("query-axis", "targets"):
        yield examine(model, trace, 0, bug, 1).loss
    if kv_cache.network_of(model) is not None:
        ids = tuple(trace.batch.ids[0].tolist())
        both = kv_cache.compare(model, ids, 3)
        yield from (both.logits, both.probabilities, both.rows, both.cached, both.full, both.allowed)
        yield kv_cache.compare_in_float64(model, ids, 3).logits
        yield kv_cache.old_rows(model, ids, model.standard).logits
        yield kv_cache.measure(model, trace, 5).length


def main(folders: list[str]) -> None:
    from tests.pretend_device import pretended  # PyTorch knows the device from here on

    for folder in folders:
        settings = Settings(device="cpu", precision="float32")
        expected = measured(catalog.load(folder, settings=settings))
        where = Hardware("pretend:0")
        with pretended(), patch("model.hardware.choose_hardware", return_value=where):
            model = catalog.load(folder, settings=settings)
            assert str(next(model.network.parameters()).device) == "pretend:0"
            got = measured(model)
        pairs = zip(expected, got, strict=True)
        print(Path(folder).name, max(float(np.abs(one - other).max(initial=0)) for one, other in pairs))


if __name__ == "__main__":
    main(sys.argv[1:])
