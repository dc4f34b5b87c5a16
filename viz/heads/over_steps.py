"""Loss and head patterns over the steps of a training."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from i18n import N_, say
from viz.charts import LEGEND, scatter
from viz.heads.arcs import COLOURS
from viz.heads.overview import TAGS, TITLES
from viz.heatmap import figure

LOSS_COLOUR = "#8a8f98"
LOGGED = {"loss": (N_("training loss, as logged"), "solid"), "eval_loss": (N_("evaluation loss, as logged"), "dash")}


def steps_figure(
    steps: Sequence[int],
    losses: np.ndarray,
    shares: Mapping[str, np.ndarray],
    now: int | None,
    logged: Mapping[str, Sequence[tuple[int, float]]] | None = None,
) -> go.Figure:
    """losses [S] in nats, shares of one head [S] each, 0 to 1, by their names; now: the step that is shown. logged:
    what the training itself logged, (step, loss) by the names in LOGGED."""
    names = [name for name in TAGS if np.isfinite(shares[name]).any()]
    parts = [
        scatter(list(steps), shares[name], say(TITLES[name]), "%{y:.2f}", mode="lines+markers", line={"color": colour})
        for name, colour in zip(names, COLOURS, strict=False)
    ]
    if np.isfinite(losses).any():
        look = {"line": {"color": LOSS_COLOUR, "dash": "dot"}, "yaxis": "y2"}
        parts.append(scatter(list(steps), losses, say("loss, nats/token"), "%{y:.2f}", mode="lines+markers", **look))
    for name, pairs in (logged or {}).items():
        if pairs:
            at, of_training = zip(*pairs, strict=True)
            look = {"line": {"color": LOSS_COLOUR, "dash": LOGGED[name][1]}, "yaxis": "y2"}
            parts.append(scatter(list(at), list(of_training), say(LOGGED[name][0]), "%{y:.2f}", mode="lines", **look))
    layout = {
        "xaxis": {"title": {"text": say("training step")}},
        "yaxis": {"title": {"text": say("share of attention")}, "range": [0, 1.02]},
        "yaxis2": {
            "title": {"text": say("loss, nats/token")},
            "overlaying": "y", "side": "right", "rangemode": "tozero", "showgrid": False,
        },
        "height": 320, "hovermode": "x unified", "legend": LEGEND, "showlegend": True,
        "margin": {"l": 60, "r": 60, "t": 40, "b": 50},
    }  # fmt: skip
    if now is not None:
        line = {"type": "line", "x0": now, "x1": now, "y0": 0, "y1": 1, "yref": "paper", "line": {"width": 1}}
        layout["shapes"] = [line]
    return figure(parts, layout)
