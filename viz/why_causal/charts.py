"""Figures of the twin models: their training, their loss on each token, and the effect of changing a later token.

Blue: trained with the causal mask; red: without. A dotted line, or an open point if it has a single value, is a run
under the other mask than in training.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, say
from model.heads.view import head_name
from viz.charts import MARGIN, SMALL_LABELS, bars, position_names, token_axis, upright
from viz.heatmap import CachedFigure, Part, figure, title
from viz.html import join, tag, td, th
from viz.numbers import percent
from viz.palette import NOW, STANDARD, rgba

WITH, WITHOUT, GREY = STANDARD, NOW, "#8a919c"
BELOW = {"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0}  # a legend where plotly's buttons do not cover it
ABOVE = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
GAP = 0.12  # between two rows of bars, as a share of the figure's height


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve. name: in the legend. x, y: its points. trained: with the mask. dotted: run under the other mask."""

    name: str
    x: Sequence[float] | Sequence[str] | np.ndarray
    y: Sequence[float] | np.ndarray
    trained: bool
    dotted: bool = False
    faint: bool = False


def loss_curves(lines: Sequence[Curve], *, unit: str, steps: int | None = None) -> CachedFigure:
    """Draw losses over training steps. unit: of the losses. steps: the end of the axis."""
    across: Part = {"title": {"text": say("training step")}, "rangemode": "tozero"}
    across |= {"range": [0, steps]} if steps else {}
    return _curves(lines, unit, {"height": 300, "xaxis": across, "legend": BELOW})


def token_losses(lines: Sequence[Curve], pieces: Sequence[str]) -> CachedFigure:
    """Draw the loss of every token under each combination. pieces [T]: a label for each token."""
    across = token_axis(pieces, 24, 0.7) | SMALL_LABELS | {"type": "category"}  # half the page wide
    lines = [replace(line, x=position_names(pieces)) for line in lines]
    return _curves(lines, say("nats"), {"height": 300, "xaxis": across, "legend": ABOVE})


def _curves(lines: Sequence[Curve], unit: str, layout: Part) -> CachedFigure:
    heights = {"title": {"text": say("loss, {unit}", unit=unit)}, "rangemode": "tozero"}
    common = {"margin": MARGIN | {"r": 24}, "hovermode": "x unified", "uirevision": "kept", "showlegend": True}
    curves: list[Part] = []
    for line in lines:
        y = np.asarray(line.y, np.float32)
        mode = "lines" if np.isfinite(y).sum() > 1 else "markers"  # a single point is drawn open instead of dotted
        edge, dash = {"color": colour(line.trained), "width": 1.8}, "dot" if line.dotted else "solid"
        marker = {"symbol": "circle-open" if line.dotted else "circle", "size": 8, "line": edge}
        curve = {"type": "scatter", "x": line.x, "y": y, "name": line.name, "mode": mode, "marker": marker}
        look = {"line": edge | {"dash": dash}, "opacity": 0.45 if line.faint else 1}
        curves.append(curve | look | {"hovertemplate": "%{y:.3f} " + unit})
    return figure(curves, common | {"yaxis": heights} | layout)


def change_bars(moved: dict[str, np.ndarray], pieces: Sequence[str], position: int) -> CachedFigure:
    """Draw how much logits change at each of T positions, as bars, for each name. position: of the changed token."""
    most = max(float(values.max()) for values in moved.values()) or 1.0
    count, tall = len(moved), (1 - GAP * (len(moved) - 1)) / len(moved)  # a row's share of the height
    colours = [WITHOUT if number < position else GREY for number in range(len(pieces))]
    hover = "%{customdata}<br>" + say("largest change") + " %{y:.3g}"
    names = position_names(pieces)
    line = upright(position, dash="dot", width=1.5, color=GREY)
    traces: list[Part] = []
    lines: list[Part] = []
    titles: list[Part] = []
    layout: Part = {"height": 330, "margin": MARGIN | {"r": 24, "t": 28}, "showlegend": False, "bargap": 0.15}
    layout |= {"shapes": lines, "annotations": titles}
    for row, (name, values) in enumerate(moved.items()):
        number = str(row + 1) if row else ""
        x, y, top = f"x{number}", f"y{number}", 1 - row * (tall + GAP)
        traces.append(bars(names, values, name, hover, colours) | {"customdata": names, "xaxis": x, "yaxis": y})
        lines.append(line | {"xref": x, "yref": f"{y} domain"})
        titles.append(title(name, 0, top) | {"font": {"size": 13}})
        below: Part = {"matches": f"x{count}", "showticklabels": False}
        if row == count - 1:
            below = token_axis(pieces, 48, 0.7) | SMALL_LABELS
        layout[f"xaxis{number}"] = below | {"anchor": y, "type": "category"}
        layout[f"yaxis{number}"] = {"anchor": x, "domain": [max(top - tall, 0), top], "range": [0, most * 1.06]}
    return figure(traces, layout)


def colour(trained: bool) -> str:
    """Return the colour of the model that was trained with the mask, or without it."""
    return WITH if trained else WITHOUT


STYLE = Markup("""<style>
.four { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .6rem; }
@media (max-width: 640px) { .four { grid-template-columns: minmax(0, 1fr); } }
.four .one { border: 1px solid rgba(128,128,128,.3); border-left-width: 4px; border-radius: 5px; padding: .4rem .7rem; }
.four .what { font-size: .875rem; margin: 0; }
.four .numbers { display: flex; flex-wrap: wrap; gap: 0 1.1rem; align-items: baseline; }
.four .number b { font-size: 1.3rem; }
.four .number { font-size: .82rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.four .written { font-family: monospace; font-size: .82rem; line-height: 1.35; overflow-wrap: anywhere;
  margin: .3rem 0 0; }
.four .given { opacity: .75; }
table.copies { border-collapse: separate; border-spacing: 3px; font-size: .82rem; font-variant-numeric: tabular-nums; }
table.copies th { font-weight: 500; opacity: .75; padding: 0 .3rem; text-align: left; }
table.copies td { padding: .22rem .45rem; border-radius: 3px; text-align: right; }
table.copies td.chosen { outline: 2px solid currentColor; }
</style>""")


HOW = {  # (trained with the mask, run with the mask) -> description
    (True, True): N_("trained <b>with</b> the mask, run <b>with</b>"),
    (True, False): N_("trained <b>with</b> the mask, run <b>without</b>"),
    (False, True): N_("trained <b>without</b> the mask, run <b>with</b>"),
    (False, False): N_("trained <b>without</b> the mask, run <b>without</b>"),
}


@dataclass(frozen=True)
class TwinCard:
    """One combination of training and run. loss: nats per token. accuracy: 0 to 1. given, written: a prompt and its
    continuation. different, tokens: the numbers of distinct and of all tokens that it wrote.
    """

    trained: bool
    run: bool
    loss: float
    accuracy: float
    given: str
    written: str
    different: int
    tokens: int


def four(cards: Sequence[TwinCard]) -> Markup:
    """Return four cards in a grid, in the given order: a row for each training, a column for each run."""
    return STYLE + tag("div", join(map(_card, cards)), class_="four")


def copies(scores: np.ndarray, chosen: tuple[int, int] | None) -> Markup:
    """Return a table of the heads' copy scores [L,H], 0 to 1, as shades. chosen: the cell to frame."""
    rows = [[th(say("layer"), scope="col"), *(th(f"H{head}", scope="col") for head in range(scores.shape[1]))]]
    for layer, row in enumerate(scores.tolist()):
        cells = [th(head_name(layer), scope="row")]
        for head, score in enumerate(row):
            shade = rgba("#E69F00", min(max(score, 0.0), 1.0) * 0.45)  # readable on light and dark pages
            kind = "chosen" if (layer, head) == chosen else ""
            cells.append(td(percent(score), kind, style=f"background: {shade}"))  # not shown
        rows.append(cells)
    return STYLE + tag("table", join(tag("tr", join(row)) for row in rows), class_="copies")


def nats(loss: float) -> str:
    """Write a loss: 15.402 -> "15.40"; 0.0312 -> "0.031"; 0.0004 and less -> "under 0.001"."""
    if loss >= 0.1:
        return f"{loss:.2f}"
    return f"{loss:.3f}" if loss >= 0.001 else say("under 0.001")


def _card(card: TwinCard) -> Markup:
    written = {"different": card.different, "tokens": card.tokens}
    numbers = (
        say("<b>{loss}</b> nats/token", loss=nats(card.loss)),
        say("<b>{share}</b> predicted correctly", share=escape(percent(card.accuracy))),
        say("<b>{different}</b> distinct of {tokens} generated tokens", **written),
    )
    text = tag("span", _shown(card.given), class_="given") + _shown(card.written)
    parts = (
        tag("p", Markup(say(HOW[card.trained, card.run])), class_="what"),
        tag("div", join(tag("span", Markup(one), class_="number") for one in numbers), class_="numbers"),
        tag("p", text, class_="written", translate="no"),
    )
    return tag("div", join(parts), class_="one", style=f"border-left-color:{colour(card.trained)}")


def _shown(text: str) -> str:
    return text.replace("\n", "⏎")
