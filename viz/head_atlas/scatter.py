"""Every head as a point: two measures against each other, and a head's distances as bars."""

import math

import numpy as np

from i18n import say
from model.atlas.result import BINS, EVERY_MEASURE, FARTHEST, NAMES, OF_WEIGHTS, Atlas
from viz.charts import MARGIN, bars
from viz.charts import scatter as points
from viz.head_atlas.tables import called
from viz.heatmap import CachedFigure, Part, figure
from viz.palette import EVEN_SCALE, MARK, NOW

LABELLED = 4  # points with a name beside them, for each of the two measures
ROOM = (0.12, 0.05)  # that a label takes, in shares of the picture
GREY = "#8a919c"
DASHED = {"dash": "dot", "width": 1, "color": GREY}
HEIGHT, LOW = 470, 210
BIN_NAMES = [f"{low}" if low == high else f"{low}–{high}" if high < FARTHEST else f"{low}–" for low, high in BINS]


def scatter(atlas: Atlas, x: str, y: str, chosen: tuple[int, int]) -> CachedFigure:
    """x, y: names of measures. A point's customdata is its layer and head; a head that a measure counts nowhere for has
    no point."""
    across, up = atlas.measure(x), atlas.measure(y)
    places = measured(across, up)
    titles = say(EVERY_MEASURE[x].title), say(EVERY_MEASURE[y].title)
    first, last = min(atlas.numbers), max(*atlas.numbers, 1)
    ticks = {"tick0": first, "dtick": math.ceil((last - first) / 6) or 1}  # layers alone, and each once
    colours = {
        "color": [atlas.numbers[layer] for layer, _ in places],
        "cmin": first,
        "cmax": last,
        "colorscale": EVEN_SCALE,
        "colorbar": {"title": {"text": say("layer")}, "thickness": 12} | ticks,
    }
    named = [(f"<b>{atlas.name(place)}</b>", called(atlas, place)) for place in places]
    names = [say("{head}, {called}", head=name, called=kind) if kind else name for name, kind in named]
    plain = {"marker": {"opacity": 1}}
    hover = f"%{{text}}<br>{titles[0]} %{{x:.3f}}<br>{titles[1]} %{{y:.3f}}"
    marker = colours | {"size": 11, "line": {"width": 1, "color": GREY}}
    dots = _points("heads", places, across, up, marker, hover) | {
        "customdata": [list(place) for place in places],
        "text": names,
        "selected": plain,
        "unselected": plain,
    }
    beside = labelled(places, across, up, chosen)
    labels = _points("labels", beside, across, up, {"size": 15, "opacity": 0}) | {
        "mode": "markers+text",  # of markers that are not seen: text keeps off them
        "text": [atlas.name(place) for place in beside],
        "textposition": "top center",  # not shown
        "textfont": {"size": 11},
    }
    circle = {"size": 20, "symbol": "circle-open", "color": MARK, "line": {"width": 2.5}}
    ring = _points("chosen", [place for place in places if place == chosen], across, up, circle)
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
    name: str, places: list[tuple[int, ...]], across: np.ndarray, up: np.ndarray, marker: Part, hover: str = ""
) -> Part:
    """Heads by their two measures [L,H]."""
    x, y = ([float(values[place]) for place in places] for values in (across, up))
    return points(x, y, name, hover, marker=marker)


def distances(atlas: Atlas, layer: int, head: int) -> CachedFigure:
    """The head's attention by how far back the key is, as bars; dashes for an even head's."""
    names, evenly = distance_names(atlas), say("uniform attention over all allowed keys")
    shares, even = (values[: len(names)] for values in (atlas.spread[layer, head], atlas.even_spread[layer]))
    first = 0 if max(shares[0], even[0]) > 0 else 1  # no later token may be seen: no bar for them
    places = list(range(len(names) - first))
    heights = bars(places, shares[first:], "share", "%{customdata}: %{y:.1%}", NOW)
    heights["customdata"] = names[first:]
    dash = {"symbol": "line-ew-open", "size": 18, "color": GREY, "line": {"width": 2}}
    dashes = points(places, even[first:].astype(np.float32), "even", f"{evenly}: %{{y:.1%}}", marker=dash)
    ticks = {"tickmode": "array", "tickvals": places, "ticktext": names[first:], "title": {"text": say("tokens back")}}
    axes = {"xaxis": ticks, "yaxis": {"tickformat": ".0%", "rangemode": "tozero"}}
    return figure([heights, dashes], axes | {"height": LOW, "margin": MARGIN, "showlegend": False, "bargap": 0.25})


def distance_names(atlas: Atlas) -> list[str]:
    """Of the bars, as far back as any row goes."""
    bins = [name for name, even in zip(BIN_NAMES, atlas.even_spread[:, 2:].T, strict=True) if np.nanmax(even) > 0]
    return [say("later"), say("itself"), *bins]


def measured(across: np.ndarray, up: np.ndarray) -> list[tuple[int, ...]]:
    """The heads that have a point: both measures count somewhere for them."""
    return [place for place in np.ndindex(across.shape) if not np.isnan(across[place] + up[place])]


def labelled(
    places: list[tuple[int, ...]], across: np.ndarray, up: np.ndarray, chosen: tuple[int, int]
) -> list[tuple[int, ...]]:
    """Those that stand out, the chosen one and the largest of either measure, but for those whose labels would meet."""
    most = [sorted(places, key=lambda place: -values[place])[:LABELLED] for values in (up, across)]
    wide, tall = (float(np.nanmax(values) - np.nanmin(values)) or 1.0 for values in (across, up))
    found: list[tuple[int, ...]] = [one for one in places if one == chosen]
    for place in (one for some in most for one in some):
        apart = [(abs(across[place] - across[one]) / wide, abs(up[place] - up[one]) / tall) for one in found]
        if all(x > ROOM[0] or y > ROOM[1] for x, y in apart):
            found.append(place)
    return found


def axis_title(name: str) -> str:
    """A measure with its unit."""
    measure = EVERY_MEASURE[name]
    title = say(measure.title)
    return title if measure.unit in ("share", "") else say("{measure}, {unit}", measure=title, unit=say(measure.unit))


def axis_range(name: str, values: np.ndarray) -> list[float]:
    """From a little below 0 or the smallest, where a point has room, to beyond the largest."""
    known = values[~np.isnan(values)]
    least, most = min(known.min(initial=0.0), 0.0), known.max(initial=0.0)
    end = 1.05 if EVERY_MEASURE[name].unit == "share" and most > 0.5 else 1.12 * (most or 1.0)
    return [1.08 * least - 0.04 * end, end]


def even_at(atlas: Atlas, name: str) -> float | None:
    """What a measure is of an even head, None unless that is the same in every layer."""
    if name in OF_WEIGHTS:
        return None
    even = atlas.even[NAMES.index(name)]
    if np.isnan(even).any() or not math.isclose(even.min(), even.max(), rel_tol=1e-3, abs_tol=1e-6):
        return None
    return float(even.mean())
