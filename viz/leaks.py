"""The leak of every head: in a table, in a line each."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from i18n import say
from viz.html import table, tag
from viz.numbers import percent
from viz.palette import MASK_COLOURS, rgb

STRONGEST = 0.7  # the opacity of a share of 1


def leak_grid(shares: np.ndarray, names: Sequence[Sequence[str]], what: str) -> Markup:
    """HTML: shares [L,H] of attention, 0 to 1, that goes to what; a row for each layer. "" where none is known."""
    if np.isnan(shares).all():
        return Markup()
    title = tag("h2", say("Attention on {what}", what=what))
    if not np.nansum(shares):
        return title + tag("p", say("None, in any head."))
    colour = ",".join(map(str, rgb(MASK_COLOURS["causal"])))
    rows = [
        [
            tag("th", row[0].split()[0]),
            *(
                tag("td", percent(share), class_="number", title=name,
                    style=f"background:rgba({colour},{STRONGEST * np.nan_to_num(share):.3f})")
                for name, share in zip(row, some.tolist(), strict=True)
            ),
        ]
        for row, some in zip(names, shares, strict=True)
    ]  # fmt: skip
    heads = [tag("th", ""), *(tag("th", name.split()[1], class_="number") for name in names[0])]
    return title + table([heads, *rows])


def leak_notes(future: np.ndarray, padding: np.ndarray) -> list[list[str]]:
    """For each head of [L,H] a line, which leaves out what is not known."""
    return [
        [_note(later, pads) for later, pads in zip(*some, strict=True)]
        for some in zip(future.tolist(), padding.tolist(), strict=True)
    ]


def _note(later: float, pads: float) -> str:
    shares = {"later": percent(later), "padding": percent(pads)}
    if np.isnan(later):
        return "" if np.isnan(pads) else say("Of its attention {padding} on padding.", **shares)
    if np.isnan(pads):
        return say("Of its attention {later} on later tokens.", **shares)
    return say("Of its attention {later} on later tokens and {padding} on padding.", **shares)


def mean_share(shares: np.ndarray) -> float:
    """Of all heads that have one; NaN where none has."""
    return float("nan") if np.isnan(shares).all() else float(np.nanmean(shares))
