"""A figure of the Serving page for print and as CSV: coloured cells, bars, lines and points."""

from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.patches import Patch

from i18n import say
from viz.export.data import cell, csv_text
from viz.export.paper import EDGE, Paper, Sheet, sequential, tidy
from viz.heatmap import CachedFigure

LEFT, WIDE, TALL, RIGHT, BELOW = 1.1, 6.0, 4.4, 0.4, 0.9  # inches
LABEL = 6.5  # font size of a token in points
MAX_NAMES = 48  # largest number of labelled rows of a heatmap
DASHES = {"dash": "--", "dot": ":"}


def chart_picture(paper: Paper, make: Callable[[], CachedFigure]) -> Sheet:
    """Draw a figure's traces on one panel, and lines of a second y axis on a panel below. make: returns the figure, in
    the current language, which is that of the paper."""
    drawn = make()
    traces, layout = [one.to_plotly_json() for one in drawn.data], drawn.layout.to_plotly_json()
    second = any(trace.get("yaxis") == "y2" for trace in traces)
    scale = 0.4 * any(trace["type"] == "heatmap" and trace.get("showscale", True) for trace in traces)
    sheet = Sheet(paper, LEFT + WIDE + RIGHT + scale, TALL + BELOW + 1.6 * second)
    panels = {"y": sheet.panel(LEFT, 0, WIDE, TALL)}
    if second:
        panels["y2"] = sheet.panel(LEFT, TALL + 0.5, WIDE, 1.1)
        panels["y2"].sharex(panels["y"])
    series = [trace for trace in traces if trace["type"] == "bar"]
    for trace in traces:
        panel = panels[trace.get("yaxis", "y")]
        if trace["type"] == "heatmap":
            _heatmap(sheet, panel, trace)
        elif trace["type"] == "bar":
            x = np.arange(len(trace["x"])) + (series.index(trace) - (len(series) - 1) / 2) * 0.8 / len(series)
            panel.bar(x, trace["y"], 0.8 / len(series), color=trace["marker"]["color"], label=trace["name"])
            panel.set_xticks(range(len(trace["x"])), trace["x"])
        elif "text" in trace["mode"]:
            panel.scatter(trace["x"], trace["y"], s=40, zorder=2, c=list(trace["marker"]["color"]))
            for x, y, text in zip(trace["x"], trace["y"], trace["text"], strict=True):
                panel.text(
                    x, y, paper.said(unescape(text)) + "\n\n", ha="center", va="center", fontsize=8, parse_math=False
                )
        else:
            panel.plot(trace["x"], trace["y"], label=trace.get("name"), zorder=1, **_style(trace["line"]))
    for name, panel in panels.items():
        for shape in layout.get("shapes", ()):
            panel.axvline(shape["x0"], **_style(shape["line"]))
        _axes(paper, panel, layout, name.replace("y", "yaxis"))
        if panel.get_legend_handles_labels()[1]:
            panel.legend(fontsize=7, frameon=False)
    return sheet


def _style(line: dict[str, Any]) -> dict[str, Any]:
    """Convert a Plotly line's style to matplotlib's arguments."""
    return {
        "color": line["color"],
        "linewidth": line.get("width", 1.5),
        "linestyle": DASHES.get(str(line.get("dash")), "-"),
    }


def _heatmap(sheet: Sheet, panel: Any, trace: dict[str, Any]) -> None:
    numbers = np.ma.masked_invalid(np.asarray(trace["z"], np.float64))
    if trace.get("showscale", True):
        image = panel.imshow(numbers, cmap=sequential(), norm=PowerNorm(0.5, 0, 1), aspect="auto", interpolation="none")
        cax = sheet.panel(LEFT + WIDE + 0.1, 0, 0.12, TALL)
        sheet.figure.colorbar(image, cax=cax).set_label(trace["colorbar"]["title"]["text"], fontsize=8)
        cax.tick_params(labelsize=7)
        shown = range(0, len(numbers), -(-len(numbers) // MAX_NAMES))
        panel.set_yticks(shown, [trace["y"][row] for row in shown], fontsize=LABEL, parse_math=False)
        return
    colours = [_colour(colour) for _, colour in trace["colorscale"][::2]]
    panel.imshow(numbers, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5, interpolation="none")
    names: dict[Any, dict[str, None]] = {}  # colour -> names, as an ordered set
    for row, words in zip(numbers.filled(-1).astype(int), trace["hovertext"], strict=True):
        for number, word in zip(row, words, strict=True):
            if number >= 0:
                names.setdefault(colours[number], {})[word] = None
    patches = [Patch(color=colour, label=_listed([*some])) for colour, some in names.items()]
    look: dict[str, Any] = {"bbox_to_anchor": sheet.at(EDGE, 0), "bbox_transform": sheet.figure.transFigure}
    panel.legend(handles=patches, fontsize=7, frameon=False, loc=3, ncols=4, **look)


def _listed(names: list[str]) -> str:
    return say(", ").join(names if len(names) <= 3 else [*names[:2], "…"])


def _colour(colour: str) -> Any:
    """Convert a Plotly colour to one that matplotlib accepts."""
    if not colour.startswith("rgba"):
        return colour
    red, green, blue, alpha = map(float, colour[5:-1].split(","))
    return red / 255, green / 255, blue / 255, alpha


def _axes(paper: Paper, panel: Any, layout: dict[str, Any], y: str) -> None:
    titles = [layout.get(axis, {}).get("title", {}).get("text", "") for axis in ("xaxis", y)]
    tidy(panel, *titles)
    if layout.get(y, {}).get("visible") is False:
        panel.set_axis_off()
    for axis, put in (("xaxis", panel.set_xticks), (y, panel.set_yticks)):
        found = layout.get(axis, {})
        if "tickvals" in found:
            turned = {"rotation": 90} if axis == "xaxis" else {}
            names = [paper.said(unescape(text)) for text in found["ticktext"]]
            put(found["tickvals"], names, fontsize=LABEL, parse_math=False, **turned)
        elif found.get("showticklabels") is False:
            put([])
    if "range" in layout.get("xaxis", {}):
        panel.set_xlim(layout["xaxis"]["range"])
    reversed_axis = layout.get(y, {}).get("range", [0, 1])
    if reversed_axis[0] > reversed_axis[1]:
        panel.set_ylim(*reversed_axis)


def as_csv(drawn: CachedFigure) -> str:
    """Write a CSV line for each cell, bar or point: its series, its coordinates, and its value or name."""
    return csv_text(_lines(drawn))


def _lines(drawn: CachedFigure) -> Iterator[tuple[object, ...]]:
    yield "series", "x", "x name", "y", "y name", "value"  # not shown
    layout = drawn.layout.to_plotly_json()
    across, down = (dict(enumerate(layout.get(axis, {}).get("categoryarray", ()))) for axis in ("xaxis", "yaxis"))
    for trace in (one.to_plotly_json() for one in drawn.data):
        name = cell(trace.get("name", ""))
        if trace["type"] != "heatmap":
            values = [unescape(text) for text in trace.get("text", [""] * len(trace["x"]))]
            triples = zip(trace["x"], trace["y"], values, strict=True)
            yield from ((name, x, "", y, "", cell(value)) for x, y, value in triples)
            continue
        down |= dict(enumerate(trace.get("y", ())))
        first, step = trace.get("x0", 0), trace.get("dx", 1)  # the first position, and positions per cell
        for row, values in enumerate(trace.get("hovertext", np.asarray(trace["z"]).tolist())):
            at = first + row * step, cell(down.get(row * step, ""))
            yield from (
                (name, first + column * step, cell(across.get(column * step, "")), *at, value)
                for column, value in enumerate(values)
                if value != ""
            )
