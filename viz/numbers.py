"""The strip of numbers under the pictures: the masks' effects on the model, as HTML tables and a figure of losses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import zip_longest

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup

from i18n import say, say_count
from viz import palette
from viz.charts import LEGEND, position_names, scatter, token_axis
from viz.heatmap import LONGEST_TICK, figure
from viz.html import SUPERSCRIPT, fixed, headings, join, number_rows, power_of_ten, table, tag, td, th, track
from viz.palette import MASK_COLOURS, NOW, STANDARD, rgba

TOP = 10
MIN_TOP = 0.1  # nats: the loss axis reaches at least this far; a loss of 0.0003 is not worth zooming into
LOSS_LABEL = 10  # font size of the token labels in pixels
STRONGEST = 0.7  # opacity of the background of a share of 1


@dataclass(frozen=True)
class Candidate:
    """A candidate for the next token: its label and its probability, 0 to 1."""

    label: str
    probability: float


def next_token_table(
    now: Sequence[Candidate],
    standard: Sequence[Candidate],
    *,
    changed: bool,
    names: tuple[str, str] | None = None,
    colours: tuple[str, str] = (NOW, STANDARD),
) -> str:
    """Return a table of the most likely next tokens with their probabilities as bars: one list, or two if `changed`;
    these may differ in length, since one of two models may have a small vocabulary.

    names: of the two lists, in the user's language. colours: of the bars of both.
    """
    both = zip(names or _now_and_standard(), (now, standard), colours, strict=True)
    lists = list(both) if changed else [(say("next token"), standard, STANDARD)]
    head = [th(name, colspan=3) for name, _, _ in lists]
    nothing = tag("td", "", colspan=3)
    rows = zip_longest(*([_candidate(one, colour) for one in some] for _, some, colour in lists), fillvalue=nothing)
    return table([head, *rows], "numbers next")  # not shown


@dataclass(frozen=True)
class LeakShares:
    """Shares of attention, 0 to 1, on later tokens and on padding; NaN where no row attends to anything."""

    future: float
    padding: float


def leak_shares(future: np.ndarray, padding: np.ndarray, layer: int, head: int) -> tuple[LeakShares, LeakShares]:
    """Return the shares of one head, out of shares [L,H], and their means over all heads."""
    one = LeakShares(float(future[layer, head]), float(padding[layer, head]))
    return one, LeakShares(mean_share(future), mean_share(padding))


def leak_table(
    head: tuple[LeakShares, LeakShares], model: tuple[LeakShares, LeakShares], name: str, *, changed: bool
) -> str:
    """Return a table of leaks, one column unless `changed`. head, model: (now, standard). name: the head's, "L3 H2"."""
    rows = [
        (say("{head}: on later tokens", head=name), *(percent(leak.future) for leak in head)),
        (say("{head}: on padding", head=name), *(percent(leak.padding) for leak in head)),
        (say("all heads: on later tokens"), *(percent(leak.future) for leak in model)),
        (say("all heads: on padding"), *(percent(leak.padding) for leak in model)),
    ]
    return share_table(say("attention"), rows, changed=changed)


def share_table(title: str, rows: Sequence[Sequence[str]], *, changed: bool) -> Markup:
    """Return a table with a row for each (what, now, standard), without the last column unless `changed`."""
    shown = rows if changed else [row[:2] for row in rows]
    titles = _now_and_standard() if changed else ("",)
    return table([headings([title], titles), *number_rows(shown)], "numbers shares")  # not shown


def loss_figure(
    now: np.ndarray,
    standard: np.ndarray,
    pieces: Sequence[str],
    *,
    changed: bool,
    names: tuple[str, str] | None = None,
    first: int = 0,
) -> go.Figure:
    """Draw each token's loss in nats [T], NaN where there is none; pieces [T]. names: of both curves; if given, there
    is a legend even if only the second is drawn. first: the first piece's number."""
    named, names = changed or names is not None, names or _now_and_standard()
    series = [(names[0], now, NOW), (names[1], standard, STANDARD)] if changed else [(names[1], standard, STANDARD)]
    mode, hover = "lines+markers" if len(pieces) <= 128 else "lines", say("{loss} nats", loss="%{y:.2f}")
    curves = [
        scatter(position_names(pieces, first), values.astype(np.float32), name, hover, mode=mode, marker={"size": 4})
        | {"line": {"color": colour, "width": 1.5}, "hovertemplate": hover}
        for name, values, colour in series
    ]
    x_axis = token_axis(pieces, 30, first=first) | {"type": "category", "tickfont": {"size": LOSS_LABEL}}
    y_axis = {
        "title": {"text": say("loss, nats/token")},
        "rangemode": "tozero",
        "autorangeoptions": {"include": MIN_TOP},
        "exponentformat": "none",
    }
    # no automatic margins: plotly would draw twice to fit labels that it finds too large; "…" is as wide as two letters
    below = palette.margin((), [piece[: LONGEST_TICK + 1] for piece in pieces], LOSS_LABEL)["b"] - palette.TITLE
    margin = {"l": 60, "r": 12, "t": 33 if named else 8, "b": below, "autoexpand": False}
    look = {"height": 290, "hovermode": "x unified", "legend": LEGEND, "margin": margin, "showlegend": named}
    return figure(curves, look | {"xaxis": x_axis, "yaxis": y_axis})


def _now_and_standard() -> tuple[str, str]:
    return say("now"), say("standard")


def number(value: float) -> str:
    """Write three digits of a number, or a power of ten if it is tiny: 7.97, 0.125, 4,110, 1 × 10⁻⁶, 0; "NaN" for ∞."""
    if not math.isfinite(value):
        return "NaN"
    if value == 0:
        return "0"
    if value < 0.0005:
        return power_of_ten(value, 1)
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def layer_count(count: int) -> str:
    return say_count("{count} layer", "{count} layers", count)


def head_count(count: int) -> str:
    return say_count("{count} head", "{count} heads", count)


def query_count(count: int) -> str:
    return say_count("{count} query", "{count} queries", count)


def key_count(count: int) -> str:
    return say_count("{count} key", "{count} keys", count)


def token_count(count: int) -> str:
    return say_count("{count} token", "{count} tokens", count)


def whole_percent(share: float) -> str:
    """Write a share that is round, or only roughly known, as a whole percentage: 0.5 -> "50%"."""
    return f"{fixed(100 * share, 0)}%"


def percent(share: float, digits: int = 1) -> str:
    """Write a share to a tenth of a percent: 0.4132 -> "41.3%"; NaN -> "–". digits: after the point.

    A share that is not exactly 0 or 1 is never written as 0% or 100%: 0.0004 -> "<0.1%", 0.9996 -> ">99.9%".
    """
    step = Decimal(10) ** -digits
    if math.isnan(share):
        return "–"
    if share <= 0 or share >= 1:
        return "0%" if share <= 0 else "100%"
    if share < float(step) / 200:
        return f"<{step}%"
    tenths = Decimal(float(share) * 100).quantize(step, ROUND_HALF_UP)  # ties as in a browser's toFixed(1)
    return f"{tenths}%" if share < 1 - float(step) / 200 else f">{100 - step}%"


def chance(probability: float, digits: int = 1) -> str:
    """Write a token's probability, never as exactly 0 or 1: a softmax gives these only by float32 rounding."""
    return percent(min(max(probability, 1e-9), 1 - 1e-9), digits)


def perplexity(nats: float) -> str:
    """Write exp of a mean loss in nats: 2.5 -> "12", 0.05 -> "1.05", 40 -> "10¹⁷"."""
    if nats > 20:
        return f"10{str(round(nats / math.log(10))).translate(SUPERSCRIPT)}"
    found = math.exp(nats)
    if found < 1.1:
        return f"{found:.3g}"
    if found < 10:
        return f"{found:.1f}".removesuffix(".0")
    step = 10 ** max(math.floor(math.log10(found)) - 1, 0)
    return f"{round(found / step) * step:,}"


def _candidate(one: Candidate, colour: str) -> Markup:
    return join((td(one.label, "token"), td(chance(one.probability), "number"), track(one.probability, colour)))


def leak_grid(shares: np.ndarray, names: Sequence[Sequence[str]], what: str) -> Markup:
    """Return a table of shares of attention [L,H], 0 to 1, on `what`, with a row for each layer; "" if all are NaN.
    names [L][H]: of the heads."""
    if np.isnan(shares).all():
        return Markup()
    title = tag("h2", say("Attention on {what}", what=what))
    if not np.nansum(shares):
        return title + tag("p", say("None, in any head."))
    rows = [headings([""], (name.split()[1] for name in names[0]))]
    for row, some in zip(names, shares.tolist(), strict=True):
        cells = [th(row[0].split()[0])]
        for name, share in zip(row, some, strict=True):
            shade = rgba(MASK_COLOURS["causal"], STRONGEST * float(np.nan_to_num(share)))
            cells.append(td(percent(share), "number", title=name, style=f"background:{shade}"))
        rows.append(cells)
    return title + table(rows)


def leak_notes(future: np.ndarray, padding: np.ndarray) -> list[list[str]]:
    """Describe the leaks of each head of [L,H] in a line; "" where they are NaN."""
    return [list(map(_note, *some)) for some in zip(future.tolist(), padding.tolist(), strict=True)]


def _note(later: float, padding: float) -> str:
    if math.isnan(later) and math.isnan(padding):
        return ""
    shares = {"later": percent(later), "padding": percent(padding)}
    return say("Share of the head's attention on later tokens: {later}; on padding: {padding}.", **shares)


def mean_share(shares: np.ndarray) -> float:
    """Return the mean share over the heads that have one; NaN if none has."""
    return float("nan") if np.isnan(shares).all() else float(np.nanmean(shares))
