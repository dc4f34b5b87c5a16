"""Activation patching: what each patch does to one prediction, as a heatmap, a ranked table and sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from i18n import N_, say, say_count, together
from viz.charts import layers_grid
from viz.heatmap import CachedFigure
from viz.html import fixed, signed, table, td, th, track
from viz.numbers import layer_count
from viz.palette import NOW, STANDARD, rgb

LISTED = 10
NOTICED = 0.005  # of the measured value: what rounds to 0 in two digits
LEAST_WAY = 0.5  # of the strongest effect: of a shorter way between the runs, shares would say nothing
BEFORE = N_("Measured in {given}: {there}, in {taking}: {here}.")
STRONGEST = N_("{patch} from {given} changes {taking} most: by {change}.")
AWAY = N_("{patch} from {given} changes {taking} most: by {change}, away from {given}.")
SHARE = N_("{patch} from {given} changes {taking} most: by {change}, {share} of the way to {given}.")


@dataclass(frozen=True, eq=False)
class PatchView:
    """values [R,C]: by how much the measured value rises with each patch; spread [R,C]: over pairs of texts, None for
    one pair. rows, columns: their names. chosen: those patched together. measured: the value of the run that
    activations are taken from, and of the one that they are put into; names: of both. unit: of all of these."""

    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    unit: str
    measured: tuple[float, float]
    names: tuple[str, str]
    spread: np.ndarray | None = None
    chosen: frozenset[tuple[int, int]] = frozenset()

    def ranked(self) -> list[tuple[int, int]]:
        """The strongest either way first."""
        return sorted(np.ndindex(self.values.shape), key=lambda place: -abs(self.values[place]))

    def name(self, place: tuple[int, int]) -> str:
        return f"{self.rows[place[0]]} {self.columns[place[1]]}"


def patch_figure(view: PatchView, *, dark: bool) -> CachedFigure:
    return layers_grid(view.values, view.rows, view.columns, view.chosen, "%{text}: %{z:+.3f}", view.unit, dark=dark)


def patch_table(view: PatchView) -> Markup:
    """The strongest, with what they are of the way from the one run to the other, where there is one."""
    strongest, way = view.ranked()[:LISTED], view.measured[0] - view.measured[1]
    most, given, taking = abs(float(view.values[strongest[0]])) or 1.0, *view.names
    spread = [th(say("± over pairs"), "number")] if view.spread is not None else []
    of_way = th(say("of {given} − {taking}", given=given, taking=taking), "number")
    rows = [[th(say("from {given}", given=given)), th(view.unit, colspan=2), *spread, of_way]]
    for place in strongest:
        value = float(view.values[place])
        bar = track(abs(value) / most, NOW if value > 0 else STANDARD)
        over = [] if view.spread is None else [td(fixed(float(view.spread[place]), 3), "number")]
        share = td(_percent(value / way) if abs(way) > LEAST_WAY * most else "–", "number")
        rows.append([td(view.name(place)), td(signed(value), "number"), bar, *over, share])
    return table(rows)


def patch_sentence(view: PatchView) -> str:
    """What was measured, and which patch does most."""
    strongest, names = view.ranked()[0], dict(zip(("given", "taking"), view.names, strict=True))
    way, value = view.measured[0] - view.measured[1], float(view.values[strongest])
    before = say(BEFORE, there=fixed(view.measured[0], 2), here=fixed(view.measured[1], 2), **names)
    if abs(value) < NOTICED:
        return together([before, say("No patch changes it by {least} or more.", least=NOTICED)])
    names |= {"patch": view.name(strongest), "change": signed(value, 2)}
    if abs(way) <= LEAST_WAY * abs(value):
        return together([before, say(STRONGEST, **names)])
    if value * way < 0:
        return together([before, say(AWAY, **names)])
    return together([before, say(SHARE, share=_percent(value / way), **names)])


def _percent(share: float) -> str:
    return f"{fixed(100 * share, 0)}%"


def patch_alt(view: PatchView) -> str:
    """The picture for whoever cannot see it."""
    rows, columns = view.values.shape
    across = say_count("{count} column", "{count} columns", columns)
    what = say("Effect of each patch, {rows} by {columns}.", rows=layer_count(rows), columns=across)
    return together([what, patch_sentence(view)])


def patch_grid(view: PatchView) -> Markup:
    """All of them as a table of numbers on their colours."""
    reach = max(float(np.abs(view.values).max()), NOTICED)
    rows = [[th(""), *(th(column, "number") for column in view.columns)]]
    for name, values in zip(view.rows, view.values.tolist(), strict=True):
        cells = [td(signed(value, 2), "number", style=_shade(value / reach)) for value in values]
        rows.append([th(name), *cells])
    return table(rows)


def _shade(share: float) -> str:
    colour = ",".join(map(str, rgb(NOW if share > 0 else STANDARD)))
    return f"background:rgba({colour},{0.6 * abs(share):.2f})"
