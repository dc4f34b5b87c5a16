"""A test of a figure of the Serving page as CSV."""

import csv
import io

import numpy as np

from viz.charts import coloured_cells, of_tokens
from viz.export.chart import as_csv


def test_every_cell_has_the_whole_names_of_its_key_and_query() -> None:
    """The axis has room for some of the names only, and for their beginnings."""
    names = [f"Donaudampfschifffahrt<{index}>" for index in range(97)]
    figure = coloured_cells(np.zeros((97, 97), int), ["red"], ["call 1"], *of_tokens(names))
    lines = list(csv.DictReader(io.StringIO(as_csv(figure)[1:])))
    assert len(lines) == 97**2
    assert all((names[int(line["x"])], names[int(line["y"])]) == (line["x name"], line["y name"]) for line in lines)
