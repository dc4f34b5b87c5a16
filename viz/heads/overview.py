"""All heads of all layers as one packet of bytes for the overview component (components/overview.js); loss and head
patterns over training steps.

A pixel is one byte: 0 to 254 for a weight from 0 to 1, 255 where every cell of the patch is blocked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from i18n import N_, say
from viz.charts import LEGEND, scatter, upright
from viz.components import packed, words
from viz.hatch import ink
from viz.heads.tokens import COLOURS
from viz.heatmap import figure
from viz.palette import stops

BLOCKED = 255
CLEAR = 0.5  # a head with this share of its attention on a pattern gets the pattern's letter
TAGS = {"previous": "P", "first": "F", "itself": "S", "duplicate": "D", "induction": "I"}  # on a thumbnail
TITLES = {
    "previous": N_("previous token"),
    "first": N_("first token"),
    "itself": N_("itself"),
    "duplicate": N_("duplicate token"),
    "induction": N_("induction"),
    "future": N_("later tokens"),
    "padding": N_("padding"),
}
LOSS_COLOUR = "#8a8f98"
LOGGED = {"loss": (N_("training loss, as logged"), "solid"), "eval_loss": (N_("evaluation loss, as logged"), "dash")}


def overview_packet(
    thumbnails: np.ndarray,
    blocked: np.ndarray,
    *,
    layer: int,
    head: int,
    numbers: Sequence[int] = (),
    measures: Mapping[str, np.ndarray] | None = None,
    by: tuple[str, bool] | None = None,
) -> bytes:
    """Return a packet of all heads. thumbnails float [L,H,S,S'], weights from 0 to 1; blocked bool [L, H or 1, S, S'];
    layer and head: the chosen one.

    numbers: of each layer in the network, where they are not 0, 1, 2 …: some networks have layers without attention.
    measures: by their names in TITLES, shares from 0 to 1 [L,H], NaN where there is nothing to measure; those that are
    NaN or 0 everywhere are left out. by: the measure that dims heads, "" for none, and whether heads are sorted by it;
    None: the component keeps the user's choice.

    The packet's planes: the palette's 255 RGB triples, the pixels [L,H,S,S'], and each measure's [L,H], float32.
    """
    pixels = np.rint(np.sqrt(np.clip(thumbnails, 0, 1)) * 254).astype(np.uint8)
    pixels[np.broadcast_to(blocked, pixels.shape)] = BLOCKED
    layers, heads, tall, wide = pixels.shape
    some = {name: share for name, share in (measures or {}).items() if np.nan_to_num(share).any()}
    hatch = ink("causal", "#8c929ebf") | {"ground": "#8c929e29"}  # for all masks: thumbnails are too small for several
    header = {
        "layers": layers,
        "heads": heads,
        "tall": tall,
        "wide": wide,
        "layer": layer,
        "numbers": list(numbers) or list(range(layers)),
        "head": head,
        "hatch": hatch,
        "measures": [{"name": name, "title": say(TITLES[name]), "tag": TAGS.get(name, "")} for name in some],
        "clear": CLEAR,
        "by": by,
        "words": words("overview"),
    }
    shares = (np.clip(share, 0, 1).astype("<f4").tobytes() for share in some.values())
    return packed(header, stops(255).tobytes(), pixels.tobytes(), *shares)


def steps_figure(
    steps: Sequence[int],
    losses: np.ndarray,
    shares: Mapping[str, np.ndarray],
    now: int | None,
    logged: Mapping[str, Sequence[tuple[int, float]]] | None = None,
) -> go.Figure:
    """Draw losses [S] in nats and shares of one head [S] each, 0 to 1, by their names in TAGS, over training steps.
    now: the step shown. logged: the losses logged by the training itself, (step, loss) by the names in LOGGED."""
    names = [name for name in TAGS if np.isfinite(shares[name]).any()]
    parts = [
        scatter(list(steps), shares[name], say(TITLES[name]), "%{y:.2f}", mode="lines+markers", line={"color": colour})
        for name, colour in zip(names, COLOURS, strict=False)
    ]
    curves: list[tuple[Any, Any, str, str, str]] = []  # curves of losses
    if np.isfinite(losses).any():
        curves.append((steps, losses, N_("loss, nats/token"), "dot", "lines+markers"))
    for kind, pairs in (logged or {}).items():
        if pairs:
            at, of_training = zip(*pairs, strict=True)
            curves.append((at, of_training, *LOGGED[kind], "lines"))
    for x, y, name, dash, mode in curves:
        look = {"line": {"color": LOSS_COLOUR, "dash": dash}, "yaxis": "y2"}
        parts.append(scatter(list(x), list(y), say(name), "%{y:.2f}", mode=mode, **look))
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
        layout["shapes"] = [upright(now, width=1) | {"yref": "paper"}]
    return figure(parts, layout)
