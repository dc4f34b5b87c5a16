"""What the digits model expects of a picture, in numbers: HTML tables, and the loss of every pixel as a figure."""

import html
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from viz.heatmap import colour_bar
from viz.numbers import percent
from viz.palette import NOW, STANDARD, sequential
from viz.pixels.pictures import GREYS, LEVELS, SIDE


def level_table(now: np.ndarray, standard: np.ndarray, true: int, what: str, *, changed: bool) -> str:
    """How likely the model finds each grey level [8] of a pixel, the true one marked; one list unless changed.

    what: the table's title, which names the pixel.
    """
    lists = [("now", now, NOW), ("standard", standard, STANDARD)] if changed else [("expected", standard, STANDARD)]
    head = "".join(f'<th colspan="2">{name}</th>' for name, _, _ in lists)
    rows = []
    for level in range(LEVELS):
        swatch = f'<span class="swatch" style="background:{GREYS[level]};border:1px solid #888"></span>'
        name = f"<b>{level} ← true</b>" if level == true else str(level)
        cells = "".join(
            f'<td class="number">{percent(float(some[level]))}</td><td class="track">'
            f'<div class="bar" style="width:{float(some[level]) * 100:.1f}%;background:{colour}"></div></td>'
            for _, some, colour in lists
        )
        rows.append(f'<tr><td class="token">{swatch}{name}</td>{cells}</tr>')
    return f'<table class="numbers levels"><tr><th>{html.escape(what)}</th>{head}</tr>{"".join(rows)}</table>'


def share_table(rows: Sequence[tuple[str, str, str]], *, changed: bool) -> str:
    """(what, now, standard) a row; the standard column only where something is changed."""
    heads = ("now", "standard") if changed else ("",)
    title = "".join(f'<th class="number">{head}</th>' for head in heads)
    body = "".join(
        f"<tr><td>{html.escape(what)}</td>"
        + "".join(f'<td class="number">{value}</td>' for value in values[: len(heads)])
        + "</tr>"
        for what, *values in rows
    )
    return f'<table class="numbers shares"><tr><th>measured</th>{title}</tr>{body}</table>'


def loss_figure(now: np.ndarray, standard: np.ndarray, levels: np.ndarray, *, changed: bool) -> go.Figure:
    """Nats a pixel [64] on the picture: one heatmap, or now and standard side by side on the same colours."""
    shown = [("now", now), ("standard masks", standard)] if changed else [("", standard)]
    most = max(float(values.max()) for _, values in shown)
    figure = go.Figure(layout={"height": 250, "margin": {"l": 8, "r": 8, "t": 28, "b": 8}})
    for place, (name, values) in enumerate(shown):
        axis = "" if place == 0 else "2"
        figure.add_heatmap(
            z=values.reshape(SIDE, SIDE).astype(np.float32),
            customdata=levels.reshape(SIDE, SIDE),
            xaxis="x" + axis,
            yaxis="y" + axis,
            zmin=0,
            zmax=most,
            colorscale=sequential(),
            showscale=place == 0,
            colorbar=colour_bar("loss, nats"),
            name=name or "standard",
            xgap=1,
            ygap=1,
            hovertemplate="<b>r%{y} c%{x}</b>: level %{customdata}<br>loss %{z:.2f} nats<extra></extra>",
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
    return figure


def class_table(chances: np.ndarray, told: int) -> str:
    """How likely each class [10] is for what is drawn, as bars; the one told to the model is marked."""
    rows = "".join(
        f'<tr><td class="token">{f"<b>{one} ← told</b>" if one == told else one}</td>'
        f'<td class="number">{percent(float(chance))}</td><td class="track">'
        f'<div class="bar" style="width:{float(chance) * 100:.1f}%;background:{STANDARD}"></div></td></tr>'
        for one, chance in enumerate(chances)
    )
    head = '<tr><th>class</th><th colspan="2">likely, given what is drawn</th></tr>'
    return f'<table class="numbers classes">{head}{rows}</table>'
