"""A head's weights as a table: the same four digits as everywhere, a mask's name where it blocks."""

import numpy as np
import pandas as pd

from model.language import say
from viz.heads.cells import around, weight_text
from viz.masks import mask_names
from viz.reasons import blocking
from viz.view import HeadView

MOST_ROWS = 64  # and columns


def shown(view: HeadView, part: tuple[int, int], query: int) -> HeadView:
    """What of a whole view the table holds: the query and what stands around it."""
    return around(view, part, query, MOST_ROWS)


def numbers_table(view: HeadView) -> pd.DataFrame:
    """Texts, a row for each query and a column for each key, named "position: token"."""
    cells = np.array([[weight_text(weight) for weight in row] for row in view.weights], object)
    for names, blocked in blocking(view):
        cells[blocked] = mask_names(names)
    queries = [f"{view.first + place}: {label}" for place, label in enumerate(view.queries)]
    keys = [f"{view.first_key + place}: {label}" for place, label in enumerate(view.keys)]
    return pd.DataFrame(cells, pd.Index(queries, name=say("query \\ key")), keys)
