"""The Generation page: text generated token by token; the key-value cache, the cost of steps, changes of old rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from i18n import N_, large, say, say_all, together
from viz.charts import LEGEND, MARGIN, SMALL_LABELS, bars, position_names, token_axis
from viz.heatmap import CachedFigure, Part, colour_range, figure, heat
from viz.html import filled, headings, join, number_rows, swatch, table, tag
from viz.numbers import chance as chance_words
from viz.numbers import number, percent
from viz.palette import ALLOWED, MASK_COLOURS, NOW, SEQUENTIAL_SCALE, STANDARD

if TYPE_CHECKING:  # these modules import torch
    from model.kv_cache import Cost
    from model.sampling import Sampling


@dataclass(frozen=True)
class Token:
    """A token of the text: its label and, if it was generated, its probability by the model (0 to 1) and whether the
    user chose it."""

    label: str
    probability: float | None = None
    by_hand: bool = False


@dataclass(frozen=True)
class Chance:
    """A candidate token: its id, its label, and its probability before and after the sampling settings, 0 to 1."""

    token: int
    label: str
    before: float
    after: float


@dataclass(frozen=True)
class WritingScene:
    """The state that the page's sentence describes.

    query, key: position and label of the chosen row and of the key with its largest weight, `weight`, in the head
    `name`, one of `heads`. index: of the chosen generated token, from 0; None for the next one. chosen: that
    token. left: how many tokens of the `vocabulary` may be sampled. sampling: how it is sampled.
    """

    name: str
    heads: int
    query: tuple[int, str]
    key: tuple[int, str]
    weight: float
    index: int | None
    chosen: Chance
    left: int
    vocabulary: int
    sampling: "Sampling"


def settings(sampling: "Sampling") -> tuple[str, ...]:
    """Describe the sampling settings that change the model's probabilities."""
    on = (
        (N_("temperature {value:g}"), sampling.temperature, 1),
        (N_("top-k {value:g}"), sampling.top_k, 0),
        (N_("top-p {value:g}"), sampling.top_p, 1),
    )
    return tuple(say(words, value=value) for words, value, off in on if value != off)


SAMPLED = N_("{before} by the model, {after} with {how} as set now, which leaves {left:,} of {vocabulary:,} tokens")
ROW = N_("Row {at} of {head}, “{label}”, puts {share} of its attention on “{seen}” (position {seen_at}).")
CHOSEN = N_(
    "There the next token was <b>“{token}”</b>: {chances}. Choose another to cut the text there and continue with it."
)
NEXT_TOKEN = N_(
    "The next token depends on the rows of every head ({heads:,} in all) and everything computed between them, not on "
    "this row alone: {drawn} <b>“{token}”</b>, {chances}."
)


def sentence(scene: WritingScene) -> Markup:
    """Say what to notice on the page."""
    (at, label), (seen_at, seen) = scene.query, scene.key
    about = {"head": scene.name, "label": label, "at": at, "seen": seen, "seen_at": seen_at}
    row = filled(say(ROW), share=percent(scene.weight), **about)
    before, after = chance_words(scene.chosen.before), percent(scene.chosen.after)
    chances = say("{before} by the model", before=before)
    if how := settings(scene.sampling):
        left = {"left": scene.left, "vocabulary": scene.vocabulary}
        chances = say(SAMPLED, before=before, after=after, how=say_all(how), **left)
    greedy, by_chance = N_("temperature 0 gives"), N_("temperature {temperature:g} and seed {seed} give")
    temperature, seed = scene.sampling.temperature, scene.sampling.seed
    drawn = say(by_chance if temperature else greedy, seed=seed, temperature=temperature)
    template = say(NEXT_TOKEN if scene.index is None else CHOSEN)
    named = {"heads": scene.heads, "drawn": drawn, "token": scene.chosen.label, "chances": chances}
    return Markup(together([row, filled(template, **named)]))


def text_html(tokens: Sequence[Token], newest: int) -> Markup:
    """Return the text so far: generated tokens are highlighted and have their probabilities in tooltips; position
    `newest` is framed."""
    pieces = join(_token(position, token, position == newest) for position, token in enumerate(tokens))
    return tag("div", tag("p", pieces, class_="writing", translate="no"), class_="writing-box")  # scrolled to its end


def chance_html(chance: Chance, *, drawn: bool) -> Markup:
    """Return one candidate's two probabilities as numbers and bars, for the space beside its button. drawn: whether it
    was sampled."""
    pairs = ((chance.before, STANDARD), (chance.after, NOW))
    bars = [tag("span", class_="bar", style=f"width:{share * 100:.1f}%;background:{colour}") for share, colour in pairs]
    before, after = chance_words(chance.before), percent(chance.after)
    shares = (before, after if chance.after > 0 else say("excluded"))
    parts = [*(tag("span", share, class_="share") for share in shares), tag("span", join(bars), class_="bars")]
    title = say("{before} by the model, sampled with {after}", before=before, after=after)
    kind = "chance" + " gone" * (chance.after <= 0) + " drawn" * drawn  # not shown
    return tag("div", join(parts), class_=kind, title=title)


def chances_head(what: str) -> Markup:
    """Return the title above the columns of the candidates; its colours are those of the bars."""
    names = ((say("model"), STANDARD), (say("sampled with"), NOW))
    shares = [tag("span", swatch(colour) + name, class_="share") for name, colour in names]
    return tag("div", join([tag("b", what), *shares, tag("span", class_="bars")]), class_="chance head")  # not shown


def _token(position: int, token: Token, newest: bool) -> Markup:
    label = token.label
    shown = " " + label[1:] if label.startswith("·") and len(label) > 1 else label
    title, kind = f"{position}: {label}", "prompt"
    if token.probability is not None:
        kind, words = "written", N_("{token}, {chance} by the model")
        if token.by_hand:
            kind, words = "written by-hand", N_("{token}, {chance} by the model, chosen by you")  # not shown
        title = say(words, token=title, chance=chance_words(token.probability))
    return tag("span", shown, class_=kind + " newest" * newest, title=title) + Markup("<br>") * label.count("⏎")


COUNTED = N_(
    "The step to token {last:,} takes {full} multiply-adds (a multiplication and an addition each) without a cache and "
    "{cached} with it: {times:,.1f} times as many. From the first step to this one the step without a cache grew "
    "{full_growth:,.1f}-fold, the cached one {cached_growth:,.2f}-fold."
)
NOISY = N_(
    "The times measured here are too noisy: repeated runs of the same step differ as much as different steps do. The "
    "counts are the same on every machine."
)
MEASURED = N_(
    "Measured here, from {first:,} to {last:,} tokens a step without a cache goes from {begin:.1f} to {end:.1f} ms; a "
    "cached one takes {least:.1f} to {most:.1f} ms."
)
MAX_KEYS = 64  # largest number of columns of the cached row in a picture


def cached_row_figure(cached: np.ndarray, full: np.ndarray, allowed: np.ndarray, keys: Sequence[str]) -> CachedFigure:
    """Compare one head's newest row from a cached step and from the full run, weights [K], under its mask, bool [K]. Of
    many keys it shows the last MAX_KEYS."""
    first = max(len(keys) - MAX_KEYS, 0)
    names = position_names(keys)[first:]
    unseen = np.full(len(names), np.nan)
    seen = np.stack([allowed[first:], unseen, unseen])
    weights = np.stack([unseen, cached[first:], full[first:]])
    lines = [say("mask [1, K]"), say("cached row"), say("full run's last row")]
    plain = {"zmin": 0, "showscale": False, "xgap": 1, "ygap": 4}
    mask = heat(seen, names, lines, "mask", "<b>%{x}</b> %{text}") | plain
    mask |= {"zmax": 1, "colorscale": [[0, MASK_COLOURS["causal"]], [1, ALLOWED]]}
    mask |= {"text": np.where(seen == 1, say("visible"), say("blocked"))}
    rows = heat(weights, names, lines, "weights", "<b>%{x}</b><br>%{y}: %{z:.6f}") | plain
    rows |= {"zmax": colour_range(cached, full), "colorscale": SEQUENTIAL_SCALE}
    heights = {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""}
    axes = {"xaxis": _keys(keys[first:]) | {"showgrid": False}, "yaxis": heights}
    return figure([mask, rows], {"height": 250, "margin": MARGIN} | axes)


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of steps: counted multiply-adds of those that read 1, 2, … tokens, and measured seconds of some. clear:
    whether the seconds differ by more than repeated measurements of one step."""

    counted_full: Sequence[int]
    counted_cached: Sequence[int]
    measured: "list[Cost]"
    clear: bool


def cost_figure(costs: Costs) -> CachedFigure:
    """Draw the counted multiply-adds of each step, and beside them the measured milliseconds as points."""
    counted = list(range(1, len(costs.counted_full) + 1))
    lengths = [cost.length for cost in costs.measured]
    series = (
        (say("without a cache"), NOW, costs.counted_full, [cost.full for cost in costs.measured]),
        (say("with the cache"), STANDARD, costs.counted_cached, [cost.cached for cost in costs.measured]),
    )
    curves: list[Part] = []
    for name, colour, adds, seconds in series:
        common = {"type": "scatter", "name": name, "legendgroup": name}
        line = {"x": counted, "y": [one / 1e6 for one in adds], "mode": "lines", "line": {"color": colour, "width": 3}}
        points = {"x": lengths, "y": [one * 1e3 for one in seconds], "xaxis": "x2", "yaxis": "y2"}
        points |= {"mode": "markers", "marker": {"color": colour, "size": 6}, "showlegend": False}
        curves.append(common | line | {"hovertemplate": "%{y:,.1f} " + say("million")})
        curves.append(common | points | {"hovertemplate": "%{y:.2f} " + say("ms")})
    title = {"text": say("tokens of the text after the step"), "standoff": 6}
    measured = say("milliseconds, measured") if costs.clear else say("milliseconds, measured (too noisy to tell)")
    axes = {
        "xaxis": {"domain": [0, 0.6], "title": title},
        "xaxis2": {"domain": [0.7, 1], "title": title, "anchor": "y2"},
        "yaxis": {"title": {"text": say("million multiply-adds, counted")}, "rangemode": "tozero"},
        "yaxis2": {"title": {"text": measured}, "rangemode": "tozero", "anchor": "x2"},
    }
    look = {"height": 340, "margin": MARGIN | {"t": 40}, "hovermode": "x unified", "legend": LEGEND}
    return figure(curves, axes | look)


def cost_sentence(costs: Costs) -> str:
    """Say how the costs with and without a cache grow."""
    last = len(costs.counted_full)
    full, cached = costs.counted_full[-1], costs.counted_cached[-1]
    steps = {"last": last, "full": large(full), "cached": large(cached), "times": full / cached}
    growth = {"full_growth": full / costs.counted_full[0], "cached_growth": cached / costs.counted_cached[0]}
    words = say(COUNTED, **steps, **growth)
    if not costs.measured:
        return words
    if not costs.clear:
        return together([words, say(NOISY)])
    first, last_one, cached_ones = costs.measured[0], costs.measured[-1], [cost.cached for cost in costs.measured]
    times = {"begin": first.full, "end": last_one.full, "least": min(cached_ones), "most": max(cached_ones)}
    measured = {name: seconds * 1e3 for name, seconds in times.items()}
    return together([words, say(MEASURED, first=first.length, last=last_one.length, **measured)])


def old_rows_figure(rows: np.ndarray, labels: Sequence[str], *, causal: bool) -> CachedFigure:
    """Draw, for each old row [T-1], the largest change of a weight when the newest token is added."""
    hover = say("old row <b>%{x}</b><br>a weight changes by up to %{y:.6f}")
    changes = bars(position_names(labels), rows, "change", hover, STANDARD if causal else NOW)
    top = max(float(rows.max(initial=0.0)) * 1.1, 0.01)
    heights = {"title": {"text": say("largest change of a weight")}, "range": [0, top]}
    return figure([changes], {"height": 260, "margin": MARGIN, "xaxis": _keys(labels), "yaxis": heights})


def _keys(labels: Sequence[str]) -> Part:
    return token_axis(labels, 40) | SMALL_LABELS | {"type": "category"}


def differences_table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> Markup:
    """Return a table of largest differences. head: the column names. rows: NaN where nothing could be measured."""
    body = number_rows((what, *("–" if one != one else number(one) for one in numbers)) for what, numbers in rows)
    return table([headings(head[:1], head[1:]), *body], "numbers differences")  # not shown
