"""What one query carries from each key, for print, beside its weights."""

import numpy as np

from i18n import say
from model.attribution.parts import Carried
from viz.export.bars import key_bars
from viz.export.paper import Paper, Sheet
from viz.heads.arcs import COLOURS
from viz.view import HeadView


def carried_picture(paper: Paper, row: HeadView, found: Carried) -> Sheet:
    """Each measure in shares of its sum over all keys. row: of the query, [1,K], those keys of found that are shown."""
    measures = [(say("weight"), found.weights), (say("weight × |v|"), found.moved)]
    if found.added is not None:
        measures.append((say("adds"), found.added))
    shown = slice(row.first_key, row.first_key + len(row.keys))
    series = [(name, _shares(values)[shown], colour) for (name, values), colour in zip(measures, COLOURS, strict=False)]
    return key_bars(paper, row, series, say("share of the sum"))


def _shares(values: np.ndarray) -> np.ndarray:
    total = values.sum(dtype=np.float64)
    return values / total if total else np.zeros(len(values))
