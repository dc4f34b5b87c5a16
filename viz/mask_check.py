"""Results of a mask check: the measured mask beside the declared one, and a table of the laws."""

import math

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, listed, say, say_count, together
from mask_check.findings import CANNOT_TELL, CheckReport, MeasuredMask, amount_text, verdict_of
from model.heads.view import HeadView
from viz.charts import NO_EFFECT_COLOUR, RIGHT, flat, scatter, two_masks, zero_weights_view
from viz.hatch import data_uri, hatch_png
from viz.heatmap import CachedFigure, Part, axis_names, cells, colour_bar, figure, hatching, margin, title
from viz.heatmap import axes as axes_of
from viz.html import headings, join, swatch, table, tag, td, th
from viz.palette import ALLOWED, LINEAR_SCALE, MARK

COLOURS = {
    N_("obeys"): "#009E73",
    N_("broken"): "#D55E00",
    N_("cannot tell"): "#E69F00",
    N_("does not apply"): "#8a8f98",
}
ORDER = ("broken", "cannot tell", "obeys", "does not apply")  # not shown
TITLES = N_("measured"), N_("declared")
QUERY, KEY = N_("output that changes"), N_("token that is changed")
PLACEHOLDERS = {"output": "<b>%{y}</b>", "token": "<b>%{x}</b>"}  # plotly's placeholders in a tooltip
CELL = 9  # pixels: a cell's side in the small pictures
MAX_NAMED = 12


def _mask_of(report: CheckReport) -> MeasuredMask:
    """Return the measured mask, or one without measurements if there is none."""
    nothing = np.zeros((report.length, report.length), bool)
    return report.mask or MeasuredMask(np.full(nothing.shape, np.nan), nothing, 0.0)


def mask_figure(report: CheckReport, *, dark: bool) -> CachedFigure:
    """Draw the measured mask on the left and the declared one on the right; cells that disagree are marked in both."""
    mask, axes = _mask_of(report), zero_weights_view({}, list(report.pieces))
    declared, images = _declared(mask.declared, axes, dark=dark, axis="2")
    names, marks = axis_names(axes), []
    marked = ((mask.leaks, "x", 8, "leak"), (mask.silent, "circle-open", 6, "not seen"))  # not shown
    for cells_of, symbol, size, name in marked:
        if cells_of.any():
            rows, columns = np.nonzero(cells_of)
            x, y = [names["x"][column] for column in columns], [names["y"][row] for row in rows]
            marker = {"symbol": symbol, "size": size, "color": MARK, "line": {"width": 1, "color": MARK}}
            mark = scatter(x, y, name, marker=marker)
            marks += [mark | {"xaxis": "x" + axis, "yaxis": "y" + axis} for axis in ("", "2")]
    layout = two_masks(axes)
    end = report.length - 0.5
    layout["xaxis"] |= {"title": {"text": say(KEY)}, "range": [-0.5, end]}
    layout["yaxis"] |= {"title": {"text": say(QUERY)}, "range": [end, -0.5], "autorange": False}
    titles = [title(f"<b>{say(text)}</b>", x, 1) for text, x in zip(TITLES, (0.0, RIGHT[0]), strict=True)]
    layout |= {"showlegend": False, "images": images, "annotations": titles}
    return figure([*_measured(mask, axes, dark=dark), *declared, *marks], layout)


def declared_figure(tokens: list[str], declared: np.ndarray, *, dark: bool) -> CachedFigure:
    """Draw the declared mask alone, before anything is measured: bool [T,T], True = may reach."""
    axes = zero_weights_view({}, tokens)
    traces, images = _declared(declared, axes, dark=dark, axis="")
    layout: Part = axes_of(axes) | {"margin": margin(tokens, tokens) | {"autoexpand": False}, "showlegend": False}
    layout["xaxis"]["title"]["text"], layout["yaxis"]["title"]["text"] = say(KEY), say(QUERY)
    return figure(traces, layout | {"images": images, "annotations": [title(f"<b>{say(TITLES[1])}</b>", 0, 1)]})


def laws_table(report: CheckReport) -> Markup:
    """Return an HTML table of the laws: broken ones first, those that do not apply last."""
    titles = headings((say("verdict"), say("property")), (say("most"), say("tolerated")))
    rows = [[*titles, th(say("found"))]]
    for law in sorted(report.findings, key=lambda law: ORDER.index(law.verdict)):
        verdict = tag("b", say(law.verdict)) if law.verdict == "broken" else say(law.verdict)
        most = _amount(law.amount)
        if law.silent:
            most = say_count("{count} pair without effect", "{count} pairs without effect", law.silent)
        numbers = [td(amount, "number") for amount in (most, _amount(law.tolerance))]
        found = td(say(law.words), style="white-space:normal;min-width:16rem")
        rows.append([td(join((swatch(COLOURS[law.verdict]), verdict))), td(say(law.name)), *numbers, found])
    return tag("div", table(rows), style="overflow-x:auto", tabindex="0")


def named_pairs(report: CheckReport) -> str:
    """Name the pairs of tokens that leak, as HTML; "" if there is none."""
    pairs = np.argwhere(_mask_of(report).leaks)
    if not len(pairs):
        return ""
    tokens = [token.strip() for token in report.pieces]
    named = listed(
        say("{column} “{token}” → {row} “{output}”", row=row, output=tokens[row], column=column, token=tokens[column])
        for row, column in pairs[:MAX_NAMED].tolist()
    )
    if len(pairs) > MAX_NAMED:
        named = say("{named} and {count:,} more", named=named, count=len(pairs) - MAX_NAMED)
    return tag("p", say("Outputs that change with a token that their mask blocks: {named}.", named=named), class_="key")


def report_html(report: CheckReport) -> str:
    """Return the report as HTML without a script, for a notebook: verdict, both masks as small pictures, the table."""
    mask = _mask_of(report)
    pictures = "".join(
        f'<figure style="margin:0 1.5em 0 0"><figcaption>{say(title)}</figcaption>{_small(mask, cells)}</figure>'
        for title, cells in zip(TITLES, (mask.reaches, mask.declared), strict=True)
    )
    style = (
        "<style>.unmask td,.unmask th{text-align:left!important;padding:.15em .6em}"
        ".unmask .swatch{display:inline-block;width:.8em;height:.8em;margin-right:.35em}</style>"
    )
    return (
        f'<div class="unmask">{style}<p><b>{escape(report.name)}</b>: {escape(verdict_of(report))}</p>'
        f'<div style="display:flex">{pictures}</div>{named_pairs(report)}{laws_table(report)}</div>'
    )


def _measured(mask: MeasuredMask, axes: HeadView, *, dark: bool) -> list[Part]:
    """Return traces of how far each output changes, on a logarithmic scale, and of outputs that do not change."""
    finite = np.where(np.isfinite(mask.moved), mask.moved, 1.0)
    size = np.where(mask.reaches, np.log10(np.maximum(finite, 1e-30)), np.nan)
    low, high = (float(np.nanmin(size)), float(np.nanmax(size))) if mask.reaches.any() else (-1.0, 0.0)
    low, high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
    ticks = list(range(low, high + 1, max(1, (high - low) // 6)))
    labels = {"tickvals": ticks, "ticktext": [f"1e{tick}" for tick in ticks]}
    words = say("{output} changes by {amount}<br>when {token} is changed", **PLACEHOLDERS, amount="%{hovertext}")
    amounts = zip(mask.moved.tolist(), mask.reaches.tolist(), strict=True)
    measured = cells(axes, size, "measured", words) | {
        "zmin": low,
        "zmax": high,
        "colorscale": LINEAR_SCALE,
        "colorbar": colour_bar(say("changes by"), x=1, xanchor="left", xpad=8, y=1, yanchor="top", ypad=0, **labels),
        "hovertext": [[f"{one:.3g}" if shown else "" for one, shown in zip(*row, strict=True)] for row in amounts],
    }
    still = ~np.isnan(mask.moved) & ~mask.reaches
    words = say("{output} does not change<br>when {token} is changed", **PLACEHOLDERS)
    return [measured, flat(axes, still, NO_EFFECT_COLOUR[dark], "still", words)] if still.any() else [measured]


def _declared(declared: np.ndarray, axes: HeadView, *, dark: bool, axis: str) -> tuple[list[Part], list[Part]]:
    later = np.triu(np.ones_like(declared), 1)
    hatched = hatching({"causal": ~declared & later, "window": ~declared & ~later}, dark=dark, axis=axis)
    kinds = (
        (declared, ALLOWED, "open", say("{output} is declared to see {token}", **PLACEHOLDERS)),
        (~declared, "rgba(0,0,0,0)", "closed", say("{output} is declared not to see {token}", **PLACEHOLDERS)),
    )
    traces = [flat(axes, shown, colour, name, words, axis) for shown, colour, name, words in kinds if shown.any()]
    return traces, hatched


def _small(mask: MeasuredMask, open_cells: np.ndarray) -> str:
    """Return an SVG of a mask [T,T]: open cells filled, others hatched, leaks marked."""
    rows, columns = open_cells.shape
    size = {"width": columns * CELL, "height": rows * CELL}
    png = data_uri(hatch_png({"causal": ~open_cells}, dark=False))
    parts = [tag("image", href=png, style="image-rendering:pixelated", **size)]
    for cells_of, colour, edge in ((open_cells, ALLOWED, 0), (mask.leaks, MARK, 2)):
        side = {"width": CELL - 2 * edge, "height": CELL - 2 * edge, "fill": colour}
        indices = np.argwhere(cells_of).tolist()
        parts += [tag("rect", x=column * CELL + edge, y=row * CELL + edge, **side) for row, column in indices]
    return tag("svg", join(parts), xmlns="http://www.w3.org/2000/svg", **size)


def _amount(amount: float | None) -> str:
    return "–" if amount is None else amount_text(amount)


def sentence(report: CheckReport) -> str:
    """Say what the check found, as HTML."""
    broken = report.broken
    if broken:
        found = say(broken[0].words)
        parts = [found if "_" in found.split(" ")[0] else found[:1].upper() + found[1:]]  # names in code stay the same
        if len(broken) > 1:
            parts.append(say("{count} properties are violated in all.", count=len(broken)))
    else:
        parts = _passed(_mask_of(report))
        unsure = sum(law.verdict == CANNOT_TELL for law in report.findings)
        parts += [say("Checks that cannot tell: {count}.", count=unsure)] if unsure else []
    return tag("p", Markup(together([tag("b", say(verdict_of(report))), escape(together(parts))])), class_="sentence")


def _passed(mask: MeasuredMask) -> list[str]:
    """Say for how many of the tested pairs of two different tokens an effect was measured."""
    pairs = mask.measured[None] & ~np.eye(len(mask.declared), dtype=bool)
    closed, opened = pairs & ~mask.declared, pairs & mask.declared
    parts = []
    if closed.any():
        words = N_("Pairs of tokens that its mask blocks: {count:,}; no effect measured.")
        parts.append(say(words, count=int(closed.sum())))
    if opened.any():
        through = int((opened & mask.reaches).sum())
        words = N_("Pairs of tokens that it allows: {count:,}; effect measured in {through:,} of them.")
        parts.append(say(words, count=int(opened.sum()), through=through))
    return parts
