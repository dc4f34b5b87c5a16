"""OV and QK circuits as tables, the distances that a head prefers as a curve, composition as arcs between heads; and
the effect of each activation patch on one prediction, as a heatmap, a ranked table and sentences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from i18n import N_, say, say_count, together
from model.heads.view import head_name
from viz.charts import MARGIN, layers_grid, scatter
from viz.figure_table import FigureTable, grid
from viz.heatmap import CachedFigure, figure
from viz.html import fixed, signed, table, td, th, track
from viz.numbers import layer_count, whole_percent
from viz.palette import NOW, STANDARD, rgba

if TYPE_CHECKING:  # this module imports torch
    from model.circuits.ov_qk import TokenEffects

PAIRS_LISTED, PATCHES_LISTED, ARCS, HEIGHT = 12, 10, 40, 430
NAMES = {"q": N_("Q-composition"), "k": N_("K-composition"), "v": N_("V-composition")}
NOTICED_SCORE = 0.5  # a smaller score changes a weight by less than a factor of 1.6
NOTICED_EFFECT = 0.005  # a smaller change of the measured value rounds to 0 in two digits
MIN_RUN_DIFFERENCE = (
    0.5  # times the strongest effect: if the runs differ by less, shares of their difference mean nothing
)
BEFORE = N_("Measured in {given}: {there}, in {taking}: {here}.")
STRONGEST = N_("{patch} from {given} changes {taking} most: by {change}.")
AWAY = N_("{patch} from {given} changes {taking} most: by {change}, away from {given}.")
SHARE = N_("{patch} from {given} changes {taking} most: by {change}, {share} of the way to {given}.")
Pair = tuple[int, int, int, int]  # layer and index of the reading head, then of the writing head


def circuit_table(tokens: "Sequence[TokenEffects]", what: str, largest: str, smallest: str) -> Markup:
    """Return a table of a circuit's effects for each token. what, largest, smallest: the columns' titles."""
    rows = [[th(what), th(largest), th(smallest)]]
    most = max((abs(value) for one in tokens for _, value in (*one.largest, *one.smallest)), default=0.0)
    digits = max(1 - math.floor(math.log10(most)), 1) if most else 1  # two significant digits of the largest
    for one in tokens:
        some = [
            ", ".join(f"{token} {signed(value, digits)}" for token, value in each)
            for each in (one.largest, one.smallest)
        ]
        rows.append([td(one.token, "token"), *(td(words, "wraps") for words in some)])
    return table(rows)


def profile_figure(profile: np.ndarray) -> CachedFigure:
    line = scatter(
        list(range(len(profile))), profile, "profile", "%{x}: %{y:+.3g}", mode="lines+markers", marker={"size": 4}
    )
    axes = {"xaxis": {"title": {"text": say("tokens back")}}, "yaxis": {"title": {"text": say("score")}}}
    return figure([line | {"line": {"color": STANDARD}}], axes | {"height": 230, "margin": MARGIN | {"t": 12}})


def profile_sentence(profile: np.ndarray) -> str:
    best = int(profile.argmax())
    if np.ptp(profile) < NOTICED_SCORE:
        return say("Position alone changes its scores by less than {least}.", least=NOTICED_SCORE)
    return say(
        "Position alone favours keys at distance {tokens}: {score}.",
        tokens=best,
        score=signed(float(profile[best]), 2),
    )


def strongest(found: np.ndarray, limit: int | None = None) -> list[Pair]:
    """Return the pairs of found [L,H,L,H] above what random matrices give, the strongest first. limit: of them."""
    values = found.ravel()
    indices = np.flatnonzero(values > 0)  # leaves NaN out
    if limit is not None and len(indices) > limit:  # faster than sorting all
        indices = indices[values[indices] >= np.partition(values[indices], -limit)[-limit]]
    indices = indices[np.argsort(-values[indices], kind="stable")][:limit]
    return [tuple(index) for index in np.transpose(np.unravel_index(indices, found.shape)).tolist()]


def arcs_figure(found: np.ndarray, layers: Sequence[int], chosen: tuple[int, int]) -> CachedFigure:
    """Draw heads as points, a column for each layer, and an arc from the writing to the reading head for the strongest
    pairs. layers: their numbers in the network. chosen: a head whose own strongest pairs have arcs too, in red."""
    own = np.zeros_like(found)
    own[chosen], own[:, :, *chosen] = found[chosen], found[:, :, *chosen]
    pairs = list(dict.fromkeys([*strongest(found, ARCS), *strongest(own, ARCS)]))
    heads = list(np.ndindex(found.shape[:2]))
    dots = scatter(
        [layer for layer, _ in heads],
        [head for _, head in heads],
        "heads",
        "%{text}",
        text=[head_name(layers[layer], head) for layer, head in heads],
        customdata=[list(head) for head in heads],
        marker={"size": 9, "color": [NOW if head == chosen else "#8a919c" for head in heads]},
    )
    most = found[pairs[0]] if pairs else 1.0
    arcs = [_arc(pair, float(found[pair] / most), chosen) for pair in reversed(pairs)]
    x = {"tickvals": list(range(len(layers))), "ticktext": [head_name(layer) for layer in layers], "zeroline": False}
    y = {"autorange": "reversed", "dtick": 1, "zeroline": False, "showgrid": False, "tickprefix": "H"}
    return figure([dots], {"height": HEIGHT, "margin": MARGIN, "xaxis": x, "yaxis": y, "shapes": arcs})


def arcs_words(found: np.ndarray) -> str:
    """Say which pairs have an arc; "" if all of them do."""
    if (count := int((found > 0).sum())) <= ARCS:
        return ""
    words = N_(
        "Arcs: the {most} strongest of {count:,} pairs above random matrices, and at most {most} of the chosen head."
    )
    return say(words, most=ARCS, count=count)


def _arc(pair: Pair, share: float, chosen: tuple[int, int]) -> dict:
    later, reads, earlier, wrote = pair
    bend = 0.15 * (later - earlier) + 0.25
    path = f"M {earlier},{wrote} Q {(earlier + later) / 2},{(wrote + reads) / 2 - bend} {later},{reads}"
    colour = NOW if chosen in (pair[:2], pair[2:]) else STANDARD
    return {
        "type": "path",
        "path": path,
        "layer": "below",
        "opacity": 0.2 + 0.7 * share,
        "line": {"color": colour, "width": 0.5 + 3.5 * share},
    }


def composition_table(found: np.ndarray, layers: Sequence[int]) -> Markup:
    pairs = strongest(found, PAIRS_LISTED)
    rows = [[th(say("reading head")), th(say("writing head")), th(say("composition"), colspan=2)]]
    for pair in pairs:
        later, reads, earlier, wrote = pair
        value = float(found[pair])
        names = [td(head_name(layers[later], reads)), td(head_name(layers[earlier], wrote))]
        rows.append([*names, td(fixed(value, 3), "number"), track(value / float(found[pairs[0]]), STANDARD)])
    return table(rows)


def composition_numbers(found: np.ndarray, layers: Sequence[int]) -> list[FigureTable]:
    """Return a table of every pair of found [L,H,L,H] above what random matrices give, the strongest first."""
    pairs = strongest(found)
    rows = [
        (head_name(layers[later], reads), head_name(layers[earlier], wrote), found[later, reads, earlier, wrote])
        for later, reads, earlier, wrote in pairs
    ]
    columns = [say("reading head"), say("writing head"), say("composition")]
    ranks = [str(rank) for rank in range(1, len(pairs) + 1)]
    return [grid(np.array(rows, object).reshape(-1, len(columns)), ranks, columns)]


def composition_sentence(found: np.ndarray, kind: str, layers: Sequence[int]) -> str:
    """Say which pair of heads in found [L,H,L,H] composes most strongly."""
    pairs = strongest(found, 1)
    if len(found) == 1:
        return say("It has one layer: no head comes before another.")
    if not pairs:
        return say("No head reads an earlier one by more than random matrices would.")
    later, reads, earlier, wrote = pairs[0]
    names = {"reader": head_name(layers[later], reads), "writer": head_name(layers[earlier], wrote)}
    words = N_("Strongest {kind}: {reader} reads the output of {writer}, {value} above random matrices.")
    return say(words, kind=say(NAMES[kind]), value=fixed(float(found[pairs[0]]), 3), **names)


@dataclass(frozen=True, eq=False)
class PatchView:
    """Effects of patches. values [R,C]: the increase of the measured value by each patch; spread [R,C]: of these over
    pairs of texts, None for one pair. rows, columns: their names. chosen: cells patched together. measured: the value
    in the run that activations are taken from, and in the run that they are patched into; names: of the two runs. unit:
    of all values. left_out: a sentence on the patches that are not compared, "" if all are."""

    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    unit: str
    measured: tuple[float, float]
    names: tuple[str, str]
    spread: np.ndarray | None = None
    chosen: frozenset[tuple[int, int]] = frozenset()
    left_out: str = ""

    def ranked(self) -> list[tuple[int, int]]:
        """Return all cells, the patch with the largest absolute effect first."""
        return sorted(np.ndindex(self.values.shape), key=lambda cell: -abs(self.values[cell]))

    def name(self, cell: tuple[int, int]) -> str:
        return f"{self.rows[cell[0]]} {self.columns[cell[1]]}"


def patch_figure(view: PatchView, *, dark: bool) -> CachedFigure:
    return layers_grid(view.values, view.rows, view.columns, view.chosen, "%{text}: %{z:+.3f}", view.unit, dark=dark)


def patch_table(view: PatchView) -> Markup:
    """Return a table of the strongest patches, also as shares of the runs' difference unless that is too small."""
    ranked, way = view.ranked()[:PATCHES_LISTED], view.measured[0] - view.measured[1]
    most, given, taking = abs(float(view.values[ranked[0]])) or 1.0, *view.names
    spread = [th(say("± over pairs"), "number")] if view.spread is not None else []
    of_way = th(say("of {given} − {taking}", given=given, taking=taking), "number")
    rows = [[th(say("from {given}", given=given)), th(view.unit, colspan=2), *spread, of_way]]
    for cell in ranked:
        value = float(view.values[cell])
        bar = track(abs(value) / most, NOW if value > 0 else STANDARD)
        over = [] if view.spread is None else [td(fixed(float(view.spread[cell]), 3), "number")]
        share = td(whole_percent(value / way) if abs(way) > MIN_RUN_DIFFERENCE * most else "–", "number")
        rows.append([td(view.name(cell)), td(signed(value), "number"), bar, *over, share])
    return table(rows)


def patch_sentence(view: PatchView) -> str:
    """Say what was measured, and which patch has the largest effect."""
    largest, names = view.ranked()[0], dict(zip(("given", "taking"), view.names, strict=True))
    way, value = view.measured[0] - view.measured[1], float(view.values[largest])
    before = say(BEFORE, there=fixed(view.measured[0], 2), here=fixed(view.measured[1], 2), **names)
    before = together(filter(None, [before, view.left_out]))
    if abs(value) < NOTICED_EFFECT:
        return together([before, say("No patch changes it by {least} or more.", least=NOTICED_EFFECT)])
    names |= {"patch": view.name(largest), "change": signed(value, 2)}
    if abs(way) <= MIN_RUN_DIFFERENCE * abs(value):
        return together([before, say(STRONGEST, **names)])
    if value * way < 0:
        return together([before, say(AWAY, **names)])
    return together([before, say(SHARE, share=whole_percent(value / way), **names)])


def patch_alt(view: PatchView) -> str:
    """Return alternative text for patch_figure."""
    rows, columns = view.values.shape
    across = say_count("{count} column", "{count} columns", columns)
    what = say("Effect of each patch, {rows} by {columns}.", rows=layer_count(rows), columns=across)
    return together([what, patch_sentence(view)])


def patch_grid(view: PatchView) -> Markup:
    """Return a table of all patches, each number on a background of its colour."""
    reach = max(float(np.abs(view.values).max()), NOTICED_EFFECT)
    rows = [[th(""), *(th(column, "number") for column in view.columns)]]
    for name, values in zip(view.rows, view.values.tolist(), strict=True):
        colours = [rgba(NOW if value > 0 else STANDARD, 0.6 * abs(value / reach)) for value in values]
        cells = zip(values, colours, strict=True)
        rows.append([th(name), *(td(signed(value, 2), "number", style=f"background:{ink}") for value, ink in cells)])
    return table(rows)
