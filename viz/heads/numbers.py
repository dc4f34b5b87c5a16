"""A head's weights as a table: the same four digits as everywhere, a mask's name where it blocks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from i18n import say
from viz.heads.cells import around, weight_text
from viz.mask_styles import mask_names
from viz.reasons import blocking
from viz.view import HeadView

MOST_ROWS = 64  # and columns
STEP = 32  # queries from one part of a long text to the next: one that moves by one moves in the table, not the table


def shown(view: HeadView, part: tuple[int, int], query: int) -> HeadView:
    """What of a whole view the table holds: the query and what stands around it."""
    steps = (query - part[0] + STEP // 2) // STEP
    return around(view, part, part[0] + steps * STEP, MOST_ROWS)


def numbers_table(view: HeadView) -> pd.DataFrame:
    """Texts, a row for each query and a column for each key, named "position: token"."""
    cells = np.array([[weight_text(weight) for weight in row] for row in view.weights], object)
    for names, blocked in blocking(view):
        cells[blocked] = mask_names(names)
    queries = pd.Index(_names(view.queries, view.first), name=say("query \\ key"))
    return pd.DataFrame(cells, queries, key_names(view))


def key_names(view: HeadView) -> list[str]:
    """The names of its columns."""
    return _names(view.keys, view.first_key)


def _names(labels: Sequence[str], first: int) -> list[str]:
    return [f"{first + place}: {label}" for place, label in enumerate(labels)]
