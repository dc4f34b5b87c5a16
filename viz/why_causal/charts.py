"""The twins as figures: their training, their loss on each token, what moves when a later token changes.

Blue is trained with the causal mask, red without; a dotted line, or an open point where there is but one,
is a run under the other mask than in training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.subplots import make_subplots

from i18n import N_, say
from model.heads.view import head_name
from viz.heatmap import CachedFigure, finished
from viz.html import escaped
from viz.numbers import percent
from viz.palette import NOW, STANDARD

WITH, WITHOUT = STANDARD, NOW
BELOW = {"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0}  # a legend where plotly's buttons do not cover it
ABOVE = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
MARGIN = {"l": 8, "r": 24, "t": 8, "b": 8}


@dataclass(frozen=True, eq=False)
class Curve:
    """One curve. name: what the legend says. x, y: its points. trained: with the mask. dotted: run under the other."""

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    trained: bool
    dotted: bool = False
    faint: bool = False


def loss_curves(lines: Sequence[Curve], *, unit: str, height: int = 330, steps: int | None = None) -> CachedFigure:
    """Losses over the steps of a training; unit is what they are counted in. steps: how far the axis goes."""
    return finished(_curves(lines, unit, height, steps))


def _curves(lines: Sequence[Curve], unit: str, height: int, steps: int | None) -> go.Figure:
    figure = go.Figure(layout={"height": height, "margin": MARGIN, "hovermode": "x unified", "uirevision": "kept"})
    for line in lines:
        figure.add_scatter(
            x=np.asarray(line.x, np.float32),
            y=np.asarray(line.y, np.float32),
            name=line.name,
            mode="lines" if np.isfinite(line.y).sum() > 1 else "markers",  # one point is no line
            opacity=0.45 if line.faint else 1,
            line={"color": colour(line.trained), "width": 1.8, "dash": "dot" if line.dotted else "solid"},
            marker=_point(line),
            hovertemplate="%{y:.3f} " + unit,
        )
    figure.update_xaxes(title={"text": say("training step")}, rangemode="tozero")
    if steps:
        figure.update_xaxes(range=[0, steps])
    figure.update_yaxes(title={"text": say("loss, {unit}", unit=unit)}, rangemode="tozero")
    figure.update_layout(legend=BELOW, showlegend=True)
    return figure


def _point(line: Curve) -> dict:
    """Where one point is all there is of a line: open instead of dotted."""
    edge = {"color": colour(line.trained), "width": 1.8}
    return {"symbol": "circle-open" if line.dotted else "circle", "size": 8, "line": edge}


def token_losses(lines: Sequence[Curve], pieces: Sequence[str]) -> CachedFigure:
    """The loss of every token under each combination; pieces [T], a label for each."""
    figure = _curves(lines, say("nats"), 300, None)
    figure.update_xaxes(title=None, **token_axis(pieces, 24))  # half the page wide
    figure.update_layout(legend=ABOVE)
    return finished(figure)


def change_bars(moved: dict[str, np.ndarray], pieces: Sequence[str], place: int) -> CachedFigure:
    """A row of bars for each name: how far the logits moved at each of T places; the token at `place` changed."""
    figure = make_subplots(len(moved), 1, shared_xaxes=True, vertical_spacing=0.12, subplot_titles=list(moved))
    most = max(float(values.max()) for values in moved.values()) or 1.0
    names = [f"{number}: {escaped(piece)}" for number, piece in enumerate(pieces)]
    for row, values in enumerate(moved.values(), 1):
        figure.add_bar(
            x=list(range(len(values))),
            y=values.astype(np.float32),
            customdata=names,
            marker={"color": [WITHOUT if number < place else "#8a919c" for number in range(len(values))]},
            hovertemplate="%{customdata}<br>" + say("largest change") + " %{y:.3g}<extra></extra>",
            row=row,
            col=1,
        )
        figure.add_vline(x=place, line={"dash": "dot", "width": 1.5, "color": "#8a919c"}, row=row, col=1)
    figure.update_yaxes(range=[0, most * 1.06])
    figure.update_xaxes(token_axis(pieces, 48), row=len(moved), col=1)
    figure.update_annotations(x=0, xanchor="left", font={"size": 13})
    figure.update_layout(height=330, margin=MARGIN | {"t": 28}, showlegend=False, bargap=0.15)
    return finished(figure)


def token_axis(pieces: Sequence[str], most: int) -> dict:
    """Numeric places with tokens for labels, so that a repeated token stands in each of its places. most: labels."""
    every = math.ceil(len(pieces) / most)
    return {
        "tickmode": "array",
        "tickvals": list(range(0, len(pieces), every)),
        "ticktext": [escaped(piece[:12]) for piece in pieces[::every]],
        "tickangle": -90,
        "tickfont": {"size": 10},
        "range": [-0.7, len(pieces) - 0.3],
    }


def colour(trained: bool) -> str:
    """Of everything about the model that was trained with the mask, or without."""
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


HOW = {  # of a combination, by whether it was trained and is run with the mask
    (True, True): N_("trained <b>with</b> the mask, run <b>with</b>"),
    (True, False): N_("trained <b>with</b> the mask, run <b>without</b>"),
    (False, True): N_("trained <b>without</b> the mask, run <b>with</b>"),
    (False, False): N_("trained <b>without</b> the mask, run <b>without</b>"),
}


@dataclass(frozen=True)
class TwinCard:
    """One combination. loss: nats a token. accuracy: 0 to 1. given, written: what it was given, and wrote on.

    different, tokens: how many different tokens there are among those it wrote, and how many it wrote.
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
    """Two and two, as they come: a row for each training, a column for each run."""
    return Markup('{}<div class="four">{}</div>').format(STYLE, Markup().join(map(_card, cards)))


def copies(scores: np.ndarray, chosen: tuple[int, int] | None, *, blocked: bool) -> Markup:
    """Each head's copy score [L,H], 0 to 1, shaded by it; blocked: the mask leaves nobody the next token."""
    heads = Markup().join(Markup('<th scope="col">H{}</th>').format(head) for head in range(scores.shape[1]))
    rows = Markup().join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            head_name(layer),
            Markup().join(_copy(float(score), (layer, head) == chosen) for head, score in enumerate(row)),
        )
        for layer, row in enumerate(scores)
    )
    note = Markup("<caption>{}</caption>").format(say("blocked: exactly 0 in every head")) if blocked else ""
    return Markup('{}<table class="copies">{}<tr><th scope="col">{}</th>{}</tr>{}</table>').format(
        STYLE, note, say("layer"), heads, rows
    )


def nats(loss: float) -> str:
    """15.402 -> "15.40"; 0.0312 -> "0.031"; 0.0004 and less -> "under 0.001"."""
    if loss >= 0.1:
        return f"{loss:.2f}"
    return f"{loss:.3f}" if loss >= 0.001 else say("under 0.001")


def _copy(score: float, chosen: bool) -> Markup:
    shade = min(max(score, 0.0), 1.0) * 0.45  # so that the number stands out on light and on dark ground
    return Markup('<td class="{}" style="background: rgba(230,159,0,{:.2f})">{}</td>').format(
        "chosen" if chosen else "", shade, percent(score)
    )


def _card(card: TwinCard) -> Markup:
    numbers = (
        Markup(say("<b>{loss}</b> nats/token")).format(loss=nats(card.loss)),
        Markup(say("<b>{share}</b> predicted correctly")).format(share=percent(card.accuracy)),
        Markup(say("<b>{different}</b> distinct tokens among the {tokens} generated")).format(
            different=card.different, tokens=card.tokens
        ),
    )
    return Markup(
        '<div class="one" style="border-left-color:{}"><p class="what">{}</p><div class="numbers">{}</div>'
        '<p class="written" translate="no"><span class="given">{}</span>{}</p></div>'
    ).format(
        colour(card.trained),
        Markup(say(HOW[card.trained, card.run])),
        Markup().join(Markup('<span class="number">{}</span>').format(one) for one in numbers),
        _shown(card.given),
        _shown(card.written),
    )


def _shown(text: str) -> str:
    return text.replace("\n", "⏎")
