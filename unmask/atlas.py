"""All heads of a model measured over texts, in Python: model.atlas(texts)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from i18n import say_count
from model.atlas import progress
from model.atlas.result import NAMES
from model.atlas.table import measures_table
from model.atlas.unit import check, in_units, row_length
from model.base import Model
from model.heads.view import head_name
from model.masks import MaskSpec
from unmask.pictures import Picture
from viz.heads.atlas import amount, called, summary
from viz.html import table, td, th
from viz.numbers import head_count, token_count
from viz.saved.standalone import page

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AtlasPicture(Picture):
    """A picture of an atlas. Its numbers: float [M,L,H], a measure of every head, by `names`. view: the Atlas."""

    names: tuple[str, ...] = NAMES

    def to_dataframe(self) -> "pd.DataFrame":
        """Return a row for each head: layer, head, its label, and every measure."""
        return measures_table(self.view)


def atlas(model: Model, texts: Sequence[str], masks: MaskSpec) -> AtlasPicture:
    """Measure every head over these texts. Raises what `check` raises, and ValueError if no text has two tokens."""
    check(model, masks)
    length = row_length(model)
    begun = progress.new_progress(model, length)
    for _ in progress.measured_in_threads(model, in_units(iter(texts)), masks, length, begun):
        pass
    found = progress.atlas_from_progress(begun, model)
    if not found.rows:
        raise ValueError("expected a text of at least two tokens, got none")
    numbers = np.stack([found.measure(name) for name in NAMES])
    texts = say_count("{count} text", "{count} texts", found.texts)
    line = f"{model.name}: {found.layers} × {head_count(found.heads)} over {texts}, {token_count(found.read)}"

    def html() -> str:
        rows = [[th("head"), th("called"), *(th(name, "number") for name in NAMES)]]
        for head in np.ndindex(found.layers, found.heads):
            shown = [td(amount(name, float(found.measure(name)[head])), "number") for name in NAMES]
            rows.append([th(head_name(found.numbers[head[0]], head[1])), td(called(found, head)), *shown])
        return page(line, [summary(found, random=False), table(rows)])

    return AtlasPicture(line, found, numbers, html)
