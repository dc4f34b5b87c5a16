"""Measures of heads over many texts: a scatter plot of all heads by two measures, and bars of one head's distances; as
HTML, its tokens, its examples by decile and a list of ranked heads."""

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, listed, say, say_all, together
from model.atlas import result
from model.atlas.result import BINS, EVERY_MEASURE, FARTHEST, NAMES, OF_WEIGHTS, Atlas
from viz.charts import MARGIN, bars
from viz.charts import scatter as points
from viz.heads.cells import weight_text
from viz.heatmap import CachedFigure, Part, figure
from viz.html import filled, join, paragraph, table, tag, td, th, track
from viz.numbers import percent, whole_percent
from viz.palette import LINEAR_SCALE, MARK, NOW, rgba

LABELLED = 4  # largest number of labelled points for each of the two measures
ROOM = (0.12, 0.05)  # width and height of a label, as shares of the picture's
GREY = "#8a919c"
DASHED = {"dash": "dot", "width": 1, "color": GREY}
HEIGHT, LOW = 470, 210
BIN_NAMES = [f"{low}" if low == high else f"{low}–{high}" if high < FARTHEST else f"{low}–" for low, high in BINS]


def scatter(atlas: Atlas, x: str, y: str, chosen: tuple[int, int]) -> CachedFigure:
    """Draw all heads as a scatter plot. x, y: names of measures. A point's customdata is its layer and head; a head
    without a value of a measure has no point."""
    across, up = atlas.measure(x), atlas.measure(y)
    heads = measured(across, up)
    titles = say(EVERY_MEASURE[x].title), say(EVERY_MEASURE[y].title)
    first, last = min(atlas.numbers), max(*atlas.numbers, 1)
    ticks = {"tick0": first, "dtick": math.ceil((last - first) / 6) or 1}  # whole layers only
    colours = {
        "color": [atlas.numbers[layer] for layer, _ in heads],
        "cmin": first,
        "cmax": last,
        "colorscale": LINEAR_SCALE,
        "colorbar": {"title": {"text": say("layer")}, "thickness": 12} | ticks,
    }
    named = [(f"<b>{atlas.name(head)}</b>", called(atlas, head)) for head in heads]
    names = [say("{head}, {called}", head=name, called=kind) if kind else name for name, kind in named]
    hover = f"%{{text}}<br>{titles[0]} %{{x:.3f}}<br>{titles[1]} %{{y:.3f}}"
    marker = colours | {"size": 11, "line": {"width": 1, "color": GREY}}
    dots = _points("heads", heads, across, up, marker, hover) | {
        "customdata": [list(head) for head in heads],
        "text": names,
    }
    to_label = labelled(heads, across, up, chosen)
    labels = _points("labels", to_label, across, up, {"size": 15, "opacity": 0}) | {
        "mode": "markers+text",  # invisible markers keep the text at a distance
        "text": [atlas.name(head) for head in to_label],
        "textposition": "top center",  # not shown
        "textfont": {"size": 11},
    }
    circle = {"size": 20, "symbol": "circle-open", "color": MARK, "line": {"width": 2.5}}
    ring = _points("chosen", [head for head in heads if head == chosen], across, up, circle)
    layout: Part = {"height": HEIGHT, "margin": MARGIN | {"t": 12}, "showlegend": False, "uirevision": f"{x} {y}"}
    layout["shapes"] = []
    for kind, other, name, values in (("x", "y", x, across), ("y", "x", y, up)):
        title, ends = {"text": axis_title(name)}, axis_range(name, values)
        layout[f"{kind}axis"] = {"title": title, "range": ends, "zeroline": False}
        if (at := even_at(atlas, name)) is not None:
            line = {f"{kind}0": at, f"{kind}1": at, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
            layout["shapes"].append({"type": "line", "line": DASHED, "layer": "below"} | line)
    return figure([ring, dots, labels], layout)


def _points(
    name: str, heads: list[tuple[int, ...]], across: np.ndarray, up: np.ndarray, marker: Part, hover: str = ""
) -> Part:
    """Return a scatter trace of these heads by two measures [L,H]."""
    x, y = ([float(values[head]) for head in heads] for values in (across, up))
    return points(x, y, name, hover, marker=marker)


def distances(atlas: Atlas, layer: int, head: int) -> CachedFigure:
    """Draw the head's attention by distance as bars, and uniform attention as dashes."""
    names, evenly = distance_names(atlas), say("uniform attention over all allowed keys")
    shares, even = (values[: len(names)] for values in (atlas.spread[layer, head], atlas.even_spread[layer]))
    first = 0 if max(shares[0], even[0]) > 0 else 1  # no bar for later tokens if all are blocked
    x = list(range(len(names) - first))
    heights = bars(x, shares[first:], "share", "%{customdata}: %{y:.1%}", NOW)
    heights["customdata"] = names[first:]
    dash = {"symbol": "line-ew-open", "size": 18, "color": GREY, "line": {"width": 2}}
    dashes = points(x, even[first:].astype(np.float32), "even", f"{evenly}: %{{y:.1%}}", marker=dash)
    ticks = {"tickmode": "array", "tickvals": x, "ticktext": names[first:], "title": {"text": say("tokens back")}}
    axes = {"xaxis": ticks, "yaxis": {"tickformat": ".0%", "rangemode": "tozero"}}
    return figure([heights, dashes], axes | {"height": LOW, "margin": MARGIN, "showlegend": False, "bargap": 0.25})


def distance_names(atlas: Atlas) -> list[str]:
    """Return the names of the bars, up to the largest distance in any row."""
    bins = [name for name, even in zip(BIN_NAMES, atlas.even_spread[:, 2:].T, strict=True) if np.nanmax(even) > 0]
    return [say("later"), say("itself"), *bins]


def measured(across: np.ndarray, up: np.ndarray) -> list[tuple[int, ...]]:
    """Return the heads that have a point: those with a value of both measures."""
    return [head for head in np.ndindex(across.shape) if not np.isnan(across[head] + up[head])]


def labelled(
    heads: list[tuple[int, ...]], across: np.ndarray, up: np.ndarray, chosen: tuple[int, int]
) -> list[tuple[int, ...]]:
    """Return the heads to label: the chosen one and the largest by either measure, unless labels would overlap."""
    largest = [sorted(heads, key=lambda head: -values[head])[:LABELLED] for values in (up, across)]
    wide, tall = (float(np.nanmax(values) - np.nanmin(values)) or 1.0 for values in (across, up))
    shown: list[tuple[int, ...]] = [head for head in heads if head == chosen]
    for head in (head for some in largest for head in some):
        differences = [(abs(across[head] - across[other]) / wide, abs(up[head] - up[other]) / tall) for other in shown]
        if all(x > ROOM[0] or y > ROOM[1] for x, y in differences):
            shown.append(head)
    return shown


def axis_title(name: str) -> str:
    """Return the title of a measure's axis, with its unit."""
    measure = EVERY_MEASURE[name]
    title = say(measure.title)
    return title if measure.unit in ("share", "") else say("{measure}, {unit}", measure=title, unit=say(measure.unit))


def axis_range(name: str, values: np.ndarray) -> list[float]:
    """Return the range of an axis: from a little below 0 or the smallest value to a little above the largest."""
    known = values[~np.isnan(values)]
    least, most = min(known.min(initial=0.0), 0.0), known.max(initial=0.0)
    end = 1.05 if EVERY_MEASURE[name].unit == "share" and most > 0.5 else 1.12 * (most or 1.0)
    return [1.08 * least - 0.04 * end, end]


def even_at(atlas: Atlas, name: str) -> float | None:
    """Return a measure's value for uniform attention; None unless it is the same in every layer."""
    if name in OF_WEIGHTS:
        return None
    even = atlas.even[NAMES.index(name)]
    if np.isnan(even).any() or not math.isclose(even.min(), even.max(), rel_tol=1e-3, abs_tol=1e-6):
        return None
    return float(even.mean())


def dotted(atlas: Atlas, x: str, y: str) -> str:
    """Explain the dotted lines of the scatter plot; "" if it has none."""
    even = any(even_at(atlas, name) is not None for name in (x, y))
    return say("Dotted: the value for uniform attention over all allowed keys.") if even else ""


MAX_LISTED = 8  # largest number of heads listed for each pattern
NAMED_INDICES = [index for index, measure in enumerate(result.MEASURES.values()) if measure.names_heads]
NO_INDUCTION = N_("None matches induction on these texts; try Random, where all tokens occur twice.")


def amount(name: str, value: float) -> str:
    """Write a measure's value with its unit: "41.3%", "3.2 tokens", "1.5 bits"."""
    unit = result.MEASURES[name].unit
    if unit == "share":
        return percent(value)
    if value != value:
        return "–"
    return say("{value:.1f} tokens", value=value) if unit == result.TOKENS else say("{value:.1f} bits", value=value)


def called(atlas: result.Atlas, head: tuple[int, ...]) -> str:
    """Return the names of all patterns that the head matches; "" for most heads."""
    return listed(say(result.MEASURES[name].title) for name in atlas.named(*head))


def summary(atlas: result.Atlas, *, random: bool) -> Markup:
    """Say which patterns heads match. random: whether the texts were random tokens."""
    named = {head: atlas.named(*head) for head in np.ndindex(atlas.layers, atlas.heads)}
    parts = []
    for name in result.MEASURES:
        values = atlas.measure(name)
        heads = sorted((head for head in named if name in named[head]), key=lambda head: -values[head])
        if not heads:
            continue
        some = listed(atlas.name(head) for head in heads[:MAX_LISTED])
        if len(heads) > MAX_LISTED:
            some = say("{listed} and {count} more", listed=some, count=len(heads) - MAX_LISTED)
        parts.append(filled(say("{kind} {heads}"), kind=tag("b", say(result.MEASURES[name].title)), heads=some))
    every = join(parts, say("; ")) or say("none")
    sentences = [filled(say("Heads that match a pattern, out of {total}: {kinds}."), total=len(named), kinds=every)]
    index = max(NAMED_INDICES, key=lambda measure: atlas.counts[measure].max())
    if (queries := int(atlas.counts[index].max())) < result.MIN_QUERIES:
        sentences.append(escape(_too_few(queries, index)))
    elif not (random or any("induction" in names for names in named.values())):
        sentences.append(escape(say(NO_INDUCTION)))
    return paragraph(Markup(together(sentences)))


def naming() -> str:
    """Explain when a head matches a pattern."""
    return say(
        "A head matches a pattern ({patterns}) if it puts at least {share} of its attention on that kind of token "
        "(over at least {least} queries that have one), and at least {times:g} times what uniform attention would.",
        patterns=listed(say(one.title) for one in result.MEASURES.values() if one.names_heads),
        share=whole_percent(result.NAMED), least=result.MIN_QUERIES, times=result.MIN_UNIFORM_RATIO,
    )  # fmt: skip


def cut(atlas: result.Atlas, length: int) -> str:
    """Say that some texts were longer than a row of `length` tokens; "" if none was."""
    if atlas.rows <= atlas.texts:
        return ""
    return say("A text of more than {length} tokens is cut into rows of {length}: there are {rows:,}.", length=length,
               rows=atlas.rows)  # fmt: skip


def head_sentence(atlas: result.Atlas, layer: int, head: int) -> Markup:
    """Say what the chosen head does, compared with uniform attention."""
    names = atlas.named(layer, head)
    name = tag("b", atlas.name((layer, head)))
    if names:
        measures = listed((_against(atlas, one, layer, head) for one in names), N_("; "))
        kinds = say_all([say(result.MEASURES[one].title) for one in names])
        return paragraph(filled(say("{head} matches {names}: {measures}."), head=name, names=kinds, measures=measures))
    shares = [one for one in result.NAMES if result.MEASURES[one].names_heads and atlas.measure(one)[layer, head] > 0]
    if not shares:
        return paragraph(filled(say("{head} has nothing that could be measured in these texts."), head=name))
    best = max(shares, key=lambda one: atlas.measure(one)[layer, head])
    words = say("{head} matches no pattern here. Of the patterns, the largest share: {measure}.")
    sentences = [filled(words, head=name, measure=_against(atlas, best, layer, head))]
    index = result.NAMES.index(best)
    queries, large = (
        int(atlas.counts[index, layer]),
        max(result.NAMED, result.MIN_UNIFORM_RATIO * atlas.even[index, layer]),
    )
    if queries < result.MIN_QUERIES and atlas.measure(best)[layer, head] >= large:
        sentences.append(escape(_too_few(queries, index)))
    return paragraph(Markup(together(sentences)))


def tokens() -> str:
    """Explain the two tables of tokens."""
    return say(
        "Most attended to: the tokens that get most of the head's attention, as shares of the total. Sharpest queries: "
        "the mean of the largest weight on one token, excluding the first of the row; only tokens that occur at least "
        "{times} times.",
        times=result.MIN_SEEN,
    )


def no_token() -> str:
    """Say why the second table of tokens is empty."""
    return say("No token occurred {times} times with more than one allowed key.", times=result.MIN_SEEN)


def _too_few(queries: int, index: int) -> str:
    """Say why a head that seems to match a pattern has no name. index: the pattern's index in NAMES."""
    words = N_("A match needs {least} queries with such a token, and these texts have {count} for “{pattern}”.")
    pattern = say(result.MEASURES[result.NAMES[index]].title)
    return say(words, least=result.MIN_QUERIES, count=queries, pattern=pattern)


def _against(atlas: result.Atlas, name: str, layer: int, head: int) -> str:
    mean, even = atlas.measure(name)[layer, head], atlas.even[result.NAMES.index(name), layer]
    values = {"mean": amount(name, float(mean)), "even": amount(name, float(even))}
    return say("{measure} {mean}, uniform attention {even}", measure=say(result.MEASURES[name].title), **values)


OTHER_TENTH = N_("Decile {number}")
TENTHS = {10: N_("Strongest decile"), 1: N_("Weakest decile")}
BEFORE, AFTER = 16, 5  # tokens shown before and after an example's query
STYLE = """<style>
  .deciles { font-size: .9rem; line-height: 1.75; }
  .deciles h4 { margin: .7rem 0 .1rem; font-size: .85rem; font-weight: 600; opacity: .8; padding: 0; }
  .deciles p { margin: 0 0 .2rem; overflow-wrap: anywhere; }
  .deciles .query { outline: 2px solid MARK; border-radius: 3px; padding: 0 .1em; }
  .deciles .key { border-radius: 3px; padding: 0 .1em; }
  .deciles .value { font-variant-numeric: tabular-nums; opacity: .75; margin-right: .6em; }
  .deciles .far { opacity: .6; }
</style>""".replace("MARK", MARK)


def tokens_table(tokens: Sequence[result.TokenShare], what: str, none: str = "") -> Markup:
    """Return a table of tokens with a share each. what: the heading. none: the sentence shown if there is no token."""
    most = max((one.share for one in tokens), default=1.0) or 1.0
    head = [th(what, colspan=3), th(say("times"), "number")]
    rows = []
    for one in tokens:
        share = [td(percent(one.share), "number"), track(one.share / most, NOW)]
        rows.append([td(one.token, "token"), *share, td(f"{one.count:,}", "number")])
    return table([head, *(rows or [[td(none, colspan=4, style="white-space:normal")]])])


def ranked_table(heads: Sequence[tuple[str, float, str]], what: str) -> Markup:
    """Return a table of ranked heads: name, weight, and the patterns that each matches."""
    head = [th(say("head")), th(what, colspan=2), th(say("pattern"))]
    rows = [[td(name), td(percent(share), "number"), track(share, NOW), td(called)] for name, share, called in heads]
    return table([head, *rows])


def deciles_html(deciles: Sequence[result.Decile], name: str) -> Markup:
    """Return each decile with its examples, the strongest first. name: of the measure."""
    parts = [Markup(STYLE)]
    for decile in deciles:
        low, high = amount(name, decile.low), amount(name, decile.high)
        between = low if low == high else say("{low} to {high}", low=low, high=high)
        tenth = say(TENTHS.get(decile.number, OTHER_TENTH), number=decile.number)
        words = say("{tenth}: {between} (queries: {count})", tenth=tenth, between=between, count=decile.queries)
        parts.append(tag("h4", words))
        parts += [_example(one, name) for one in decile.examples]
    return tag("div", join(parts), class_="deciles")


def _example(one: result.Example, name: str) -> Markup:
    begin, end = max(one.query - BEFORE, 0), min(one.query + AFTER + 1, len(one.pieces))
    weights, gap = dict(one.keys), tag("span", " … ", class_="far")
    far = {key for key in weights if weights[key] >= 0.1}
    parts, last = [tag("span", amount(name, one.value), class_="value")], -1
    for position in sorted(far | set(range(begin, end))):  # without the causal mask, far keys follow the query too
        parts += [gap] * (position > last + 1) + [_piece(one, position, weights)]
        last = position
    return tag("p", join(parts + [gap] * (last + 1 < len(one.pieces))))


def _piece(one: result.Example, position: int, weights: dict[int, float]) -> Markup:
    text = one.pieces[position].replace("·", " ")
    classes = ["query"] * (position == one.query) + ["key"] * (position in weights)
    if not classes:
        return Markup("{}").format(text)
    written: dict[str, object] = {"class_": " ".join(classes)}
    if position in weights:
        written["style"] = f"background:{rgba(NOW, min(weights[position] ** 0.5, 1) * 0.75)}"
        written["title"] = say("weight {weight}", weight=weight_text(weights[position]))
    lead = " " if text.startswith(" ") else ""
    return Markup(lead) + tag("span", text.removeprefix(" ") or " ", **written)
