"""What the digits model expects of a picture, in numbers: HTML tables, and the loss of every pixel as a figure."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from i18n import say
from viz.heatmap import CachedFigure, colour_bar, finished
from viz.numbers import chance
from viz.palette import NOW, STANDARD, sequential
from viz.pixels.pictures import GREYS, LEVELS, SIDE


def level_table(now: np.ndarray, standard: np.ndarray, true: int, what: str, *, changed: bool) -> Markup:
    """How likely the model finds each grey level [8] of a pixel, the true one marked; one list unless changed.

    what: the table's title, which names the pixel.
    """
    both = [(say("now"), now, NOW), (say("standard"), standard, STANDARD)]
    lists = both if changed else [(say("expected"), standard, STANDARD)]
    head = Markup().join(Markup('<th colspan="2">{}</th>').format(name) for name, _, _ in lists)
    swatch = Markup('<span class="swatch" style="background:{};border:1px solid #888"></span>')
    marked = Markup("<b>{}</b>").format(say("{level} ← true", level=true))
    names = [marked if level == true else str(level) for level in range(LEVELS)]
    rows = Markup().join(
        Markup('<tr><td class="token">{}{}</td>{}</tr>').format(
            swatch.format(GREYS[level]),
            names[level],
            Markup().join(_bar(float(some[level]), colour) for _, some, colour in lists),
        )
        for level in range(LEVELS)
    )
    return Markup('<table class="numbers levels"><tr><th>{}</th>{}</tr>{}</table>').format(what, head, rows)


def share_table(rows: Sequence[tuple[str, str, str]], *, changed: bool) -> Markup:
    """(what, now, standard) a row; the standard column only where something is changed."""
    heads = (say("now"), say("standard")) if changed else ("",)
    title = Markup().join(Markup('<th class="number">{}</th>').format(head) for head in heads)
    body = Markup().join(
        Markup("<tr><td>{}</td>{}</tr>").format(
            what, Markup().join(Markup('<td class="number">{}</td>').format(value) for value in values[: len(heads)])
        )
        for what, *values in rows
    )
    table = Markup('<table class="numbers shares"><tr><th>{}</th>{}</tr>{}</table>')
    return table.format(say("measured"), title, body)


def loss_figure(now: np.ndarray, standard: np.ndarray, levels: Sequence[int], *, changed: bool) -> CachedFigure:
    """Nats a pixel [64] on the picture: one heatmap, or now and standard side by side on the same colours.

    levels: of each pixel.
    """
    shown = [(say("now"), now), (say("standard masks"), standard)] if changed else [("", standard)]
    most = max(float(values.max()) for _, values in shown)
    hover = say("<b>r%{y} c%{x}</b>: level %{customdata}<br>loss %{z:.2f} nats")
    figure = go.Figure(layout={"height": 250, "margin": {"l": 8, "r": 8, "t": 28, "b": 8}})
    for place, (name, values) in enumerate(shown):
        axis = "" if place == 0 else "2"
        figure.add_heatmap(
            z=values.reshape(SIDE, SIDE).astype(np.float32),
            customdata=np.reshape(levels, (SIDE, SIDE)),
            xaxis="x" + axis,
            yaxis="y" + axis,
            zmin=0,
            zmax=most,
            colorscale=sequential(),
            showscale=place == 0,
            colorbar=colour_bar(say("loss, nats")),
            name=name or say("standard"),
            xgap=1,
            ygap=1,
            hovertemplate=hover + "<extra></extra>",
        )
        span = [0, 1] if not changed else [[0, 0.48], [0.52, 1]][place]
        bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "", "constrain": "domain"}
        figure.update_layout(
            {
                "xaxis" + axis: bare | {"domain": span, "anchor": "y" + axis},
                "yaxis" + axis: bare | {"autorange": "reversed", "scaleanchor": "x" + axis, "anchor": "x" + axis},
            }
        )
        if name:
            figure.add_annotation(
                text=f"<b>{name}</b>", xref="paper", yref="paper", x=span[0], y=1, xanchor="left", yanchor="bottom",
                showarrow=False,
            )  # fmt: skip
    return finished(figure)


def class_table(chances: np.ndarray, told: int) -> Markup:
    """How likely each class [10] is for what is drawn, as bars; the one told to the model is marked."""
    marked = Markup("<b>{}</b>").format(say("{digit} ← told", digit=told))
    names = [marked if one == told else str(one) for one in range(len(chances))]
    rows = Markup().join(
        Markup('<tr><td class="token">{}</td>{}</tr>').format(name, _bar(float(share), STANDARD))
        for name, share in zip(names, chances, strict=True)
    )
    head = Markup('<tr><th>{}</th><th colspan="2">{}</th></tr>').format(
        say("class"), say("likely, given what is drawn")
    )
    return Markup('<table class="numbers classes">{}{}</table>').format(head, rows)


def _bar(share: float, colour: str) -> Markup:
    """A share, 0 to 1, as two cells: in words, and as a bar."""
    return Markup(
        '<td class="number">{}</td><td class="track"><div class="bar" style="width:{:.1f}%;background:{}"></div></td>'
    ).format(chance(share), share * 100, colour)
