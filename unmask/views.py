"""A report as the plain arrays that pictures are made of."""

import numpy as np

from model.obey.findings import Report
from model.obey.formats import VERDICTS
from viz.obey import LawRow, ObeyView


def view_of(report: Report) -> ObeyView:
    """What viz/obey draws. A report without a measured mask has one of nothing tried."""
    length, mask = report.length, report.mask
    nothing = np.zeros((length, length), bool)
    laws = [LawRow(one.name, one.verdict, one.amount, one.tolerance, one.words) for one in report.findings]
    return ObeyView(
        title=report.name,
        verdict=VERDICTS[report.exit_code],
        moved=np.full((length, length), np.nan) if mask is None else mask.moved,
        declared=nothing if mask is None else mask.declared,
        reaches=nothing if mask is None else mask.reaches,
        tokens=list(report.pieces),
        laws=laws,
    )
