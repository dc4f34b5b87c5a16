"""A check of a model's mask: what really reaches what beside what is declared, and the laws one by one."""

import math
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from markupsafe import escape

from i18n import N_, say, say_count, together
from mask_check.findings import CheckReport
from mask_check.formats import verdict_of
from model.heads.view import HeadView
from viz.hatch import data_uri, hatch_png
from viz.heatmap import axes as axes_of
from viz.heatmap import axis_names, colour_bar, hatching, margin
from viz.palette import ALLOWED, MARK, TWO, table

LEFT, RIGHT = (0.0, 1 / TWO), (1 - 1 / TWO, 1.0)
NOTHING = {True: "#2a2d33", False: "#e4e6eb"}  # a cell that nothing reaches, in the dark and in the light
COLOURS = {
    N_("obeys"): "#009E73",
    N_("broken"): "#D55E00",
    N_("cannot tell"): "#E69F00",
    N_("does not apply"): "#8a8f98",
}
ORDER = ("broken", "cannot tell", "obeys", "does not apply")  # not shown
TITLES = N_("measured: what moves what"), N_("declared")
QUERY, KEY = N_("output that moves"), N_("token that is changed")
PLACES = {"output": "<b>%{y}</b>", "token": "<b>%{x}</b>"}  # of a sentence that plotly fills in
CELL = 9  # pixels of the small picture
MOST_NAMED = 12


@dataclass(frozen=True)
class CheckRow:
    """A law: what it asks, the verdict in one of COLOURS' words, the amount and what is tolerated, what was found, and
    how many open pairs are silent where that is what breaks it."""

    name: str
    verdict: str
    amount: float | None
    tolerance: float | None
    words: str
    silent: int = 0


@dataclass(frozen=True, eq=False)
class CheckView:
    """A check on T tokens.

    moved: float [T,T], how far output i (row) moves when token j (column) is changed; NaN where that was not tried.
    declared: bool [T,T], True = may reach. reaches: bool [T,T], moved by more than rounding. tokens: a label each.
    """

    title: str
    verdict: str
    moved: np.ndarray
    declared: np.ndarray
    reaches: np.ndarray
    tokens: list[str]
    laws: list[CheckRow]

    @property
    def leaks(self) -> np.ndarray:
        """bool [T,T]: reaches where that is declared closed."""
        return self.reaches & ~self.declared

    @property
    def silent(self) -> np.ndarray:
        """bool [T,T]: declared open, tried, and not seen to reach."""
        return self.declared & ~self.reaches & ~np.isnan(self.moved)


def view_of(report: CheckReport) -> CheckView:
    """A report as what is drawn. One without a measured mask has one of nothing tried."""
    length, mask = report.length, report.mask
    nothing = np.zeros((length, length), bool)
    return CheckView(
        title=report.name,
        verdict=verdict_of(report),
        moved=np.full((length, length), np.nan) if mask is None else mask.moved,
        declared=nothing if mask is None else mask.declared,
        reaches=nothing if mask is None else mask.reaches,
        tokens=list(report.pieces),
        laws=[
            CheckRow(one.name, one.verdict, one.amount, one.tolerance, one.words, one.silent) for one in report.findings
        ],
    )


def mask_figure(view: CheckView, *, dark: bool) -> go.Figure:
    """Left, what was measured; right, what is declared; cells that disagree are marked in both."""
    blank = np.zeros(view.moved.shape, np.float32)
    axes = HeadView(blank, blank, {}, view.tokens, view.tokens)
    figure = _empty_figure(view.tokens)
    _add_measured(figure, view, axes, dark=dark)
    _add_declared(figure, view.declared, axes, dark=dark, place="2")
    layout = axes_of(axes) | axes_of(axes, "2", tokens=False)
    layout["xaxis"] |= {"domain": LEFT, "title": {"text": say(KEY)}}
    layout["yaxis"] |= {"title": {"text": say(QUERY)}}
    layout["xaxis2"] |= {"domain": RIGHT, "matches": "x"}
    layout["yaxis2"] |= {"matches": "y"}
    figure.update_layout(layout)
    figure.layout.yaxis.scaleanchor = None  # two pictures of one size fill the width
    end = len(view.tokens) - 0.5
    figure.update_layout(xaxis_range=[-0.5, end], yaxis_range=[end, -0.5], yaxis_autorange=False)
    for text, x in zip(TITLES, (0.0, RIGHT[0]), strict=True):
        figure.add_annotation(text=f"<b>{say(text)}</b>", xref="paper", yref="paper", x=x, y=1, xanchor="left",
                              yanchor="bottom", showarrow=False)  # fmt: skip
    marked = ((view.leaks, "x", 8, "leak"), (view.silent, "circle-open", 6, "not seen"))  # not shown
    for cells, symbol, size, name in marked:
        _add_marks(figure, cells, axes, symbol, size, name)
    return figure


def _empty_figure(tokens: list[str]) -> go.Figure:
    layout = {"margin": margin(tokens, tokens) | {"autoexpand": False}, "hovermode": "closest", "showlegend": False}
    return go.Figure(layout=layout)


def declared_figure(tokens: list[str], declared: np.ndarray, *, dark: bool) -> go.Figure:
    """What is known before anything is measured: bool [T,T], True = may reach."""
    blank = np.zeros(declared.shape, np.float32)
    axes = HeadView(blank, blank, {}, tokens, tokens)
    figure = _empty_figure(tokens)
    _add_declared(figure, declared, axes, dark=dark, place="")
    figure.update_layout(axes_of(axes))
    figure.update_layout(xaxis_title_text=say(KEY), yaxis_title_text=say(QUERY))
    figure.add_annotation(text=f"<b>{say(TITLES[1])}</b>", xref="paper", yref="paper", x=0, y=1, xanchor="left",
                          yanchor="bottom", showarrow=False)  # fmt: skip
    return figure


def laws_table(view: CheckView) -> str:
    """An HTML table: broken laws first, those that do not apply last."""
    rows = sorted(view.laws, key=lambda law: ORDER.index(law.verdict))
    body = "".join(
        f'<tr><td><span class="swatch" style="background:{COLOURS[law.verdict]}"></span>'
        f"{f'<b>{say(law.verdict)}</b>' if law.verdict == 'broken' else say(law.verdict)}</td>"
        f"<td>{escape(say(law.name))}</td>"
        f'<td class="number">{_silent(law.silent) or _amount(law.amount)}</td>'
        f'<td class="number">{_amount(law.tolerance)}</td>'
        f'<td style="white-space:normal;min-width:16rem">{escape(law.words)}</td></tr>'
        for law in rows
    )
    titles = {
        say("verdict"): "",
        say("property"): "",
        say("most"): "number",
        say("tolerated"): "number",
        say("found"): "",
    }
    head = f"<tr>{''.join(f'<th class={kind!r}>{title}</th>' for title, kind in titles.items())}</tr>"
    return f'<div style="overflow-x:auto" tabindex="0"><table class="numbers">{head}{body}</table></div>'


def named_pairs(view: CheckView) -> str:
    """HTML: the leaks by their tokens, "" where there is none."""
    pairs = np.argwhere(view.leaks)
    if not len(pairs):
        return ""
    named = say(", ").join(
        say("{row} “{output}” by {column} “{token}”", row=row, output=view.tokens[row].strip(),
            column=column, token=view.tokens[column].strip())
        for row, column in pairs[:MOST_NAMED].tolist()
    )  # fmt: skip
    if len(pairs) > MOST_NAMED:
        named = say("{named} and {count:,} more", named=named, count=len(pairs) - MOST_NAMED)
    told = say("Outputs moved by a token that their mask closes: {named}.", named=named)
    return f'<p class="key">{escape(told)}</p>'


def report_html(view: CheckView) -> str:
    """All of it without a script, for a notebook: the verdict, both masks as small pictures, the table."""
    pictures = "".join(
        f'<figure style="margin:0 1.5em 0 0"><figcaption>{say(title)}</figcaption>{picture}</figure>'
        for title, picture in zip(TITLES, (_small(view, view.reaches), _small(view, view.declared)), strict=True)
    )
    style = (
        "<style>.unmask td,.unmask th{text-align:left!important;padding:.15em .6em}"
        ".unmask .swatch{display:inline-block;width:.8em;height:.8em;margin-right:.35em}</style>"
    )
    return (
        f'<div class="unmask">{style}<p><b>{escape(view.title)}</b>: {escape(view.verdict)}</p>'
        f'<div style="display:flex">{pictures}</div>{named_pairs(view)}{laws_table(view)}</div>'
    )


def _add_measured(figure: go.Figure, view: CheckView, axes: HeadView, *, dark: bool) -> None:
    tried = ~np.isnan(view.moved)
    finite = np.where(np.isfinite(view.moved), view.moved, 1.0)
    size = np.where(view.reaches, np.log10(np.maximum(finite, 1e-30)), np.nan)
    low, high = (float(np.nanmin(size)), float(np.nanmax(size))) if view.reaches.any() else (-1.0, 0.0)
    low, high = math.floor(low), max(math.ceil(high), math.floor(low) + 1)
    ticks = list(range(low, high + 1, max(1, (high - low) // 6)))
    figure.add_heatmap(
        z=size.astype(np.float32),
        **axis_names(axes),
        zmin=low,
        zmax=high,
        colorscale=_scale(),
        colorbar=colour_bar(say("moves by"), x=1, xanchor="left", xpad=8, y=1, yanchor="top", ypad=0,
                            tickvals=ticks, ticktext=[f"1e{tick}" for tick in ticks]),
        customdata=view.moved,
        hovertemplate=_hover(say("{output} moves by {amount}<br>when {token} is changed", **PLACES,
                                  amount="%{customdata:.3g}")),
        hoverongaps=False,
        name="measured",
    )  # fmt: skip
    still = tried & ~view.reaches
    words = _hover(say("{output} does not move<br>when {token} is changed", **PLACES))
    _add_flat(figure, still, axes, NOTHING[dark], "still", words, "")


def _add_declared(figure: go.Figure, declared: np.ndarray, axes: HeadView, *, dark: bool, place: str) -> None:
    closed = ~declared
    words = _hover(say("{output} is declared to see {token}", **PLACES))
    _add_flat(figure, declared, axes, ALLOWED, "open", words, place)
    if closed.any():
        later = np.triu(np.ones_like(closed), 1)
        masks = {"causal": closed & later, "window": closed & ~later}
        figure.update_layout(images=hatching(masks, dark=dark, place=place))
        words = _hover(say("{output} is declared not to see {token}", **PLACES))
        _add_flat(figure, closed, axes, "rgba(0,0,0,0)", "closed", words, place)


def _add_flat(
    figure: go.Figure, cells: np.ndarray, axes: HeadView, colour: str, name: str, words: str, place: str
) -> None:
    """Cells of one colour."""
    if not cells.any():
        return
    figure.add_heatmap(
        z=np.where(cells, 0.0, np.nan).astype(np.float32),
        **axis_names(axes),
        xaxis="x" + place,
        yaxis="y" + place,
        colorscale=[[0, colour], [1, colour]],
        showscale=False,
        hovertemplate=words,
        hoverongaps=False,
        name=name,
    )


def _add_marks(figure: go.Figure, cells: np.ndarray, axes: HeadView, symbol: str, size: int, name: str) -> None:
    """A mark on each of these cells, in both pictures."""
    if not cells.any():
        return
    names = axis_names(axes)
    rows, columns = np.nonzero(cells)
    for place in ("", "2"):
        figure.add_scatter(
            x=[names["x"][column] for column in columns],
            y=[names["y"][row] for row in rows],
            xaxis="x" + place,
            yaxis="y" + place,
            mode="markers",
            marker={"symbol": symbol, "size": size, "color": MARK, "line": {"width": 1, "color": MARK}},
            hoverinfo="skip",
            name=name,
        )


def _scale() -> list[list[float | str]]:
    """The sequential palette, evenly."""
    stops = table(17)
    return [[step / 16, f"rgb{tuple(stops[3 * step : 3 * step + 3])}"] for step in range(17)]


def _small(view: CheckView, open_cells: np.ndarray) -> str:
    """[T,T] as an SVG: open cells filled, closed ones hatched, those that disagree marked."""
    rows, columns = open_cells.shape
    png = data_uri(hatch_png({"causal": ~open_cells}, dark=False))
    filled = "".join(
        f'<rect x="{column * CELL}" y="{row * CELL}" width="{CELL}" height="{CELL}" fill="{ALLOWED}"/>'
        for row, column in np.argwhere(open_cells).tolist()
    )
    marks = "".join(
        f'<rect x="{column * CELL + 2}" y="{row * CELL + 2}" width="{CELL - 4}" height="{CELL - 4}" fill="{MARK}"/>'
        for row, column in np.argwhere(view.leaks).tolist()
    )
    size = f'width="{columns * CELL}" height="{rows * CELL}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><image href="{png}" {size} '
        f'style="image-rendering:pixelated"/>{filled}{marks}</svg>'
    )


def _silent(count: int) -> str:
    return say_count("{count} silent pair", "{count} silent pairs", count) if count else ""


def _amount(amount: float | None) -> str:
    if amount is None:
        return "–"
    return "NaN" if not math.isfinite(amount) else "0" if amount == 0 else f"{amount:.2g}"


def _hover(words: str) -> str:
    return f"{words}<extra></extra>"


def sentence(view: CheckView) -> str:
    """HTML: what to notice."""
    by = {verdict: [law for law in view.laws if law.verdict == verdict] for verdict in COLOURS}
    broken, unsure = by["broken"], by["cannot tell"]
    if broken:
        said = [_capitalised(broken[0].words)]
        if len(broken) > 1:
            said.append(say("{count} properties are violated in all.", count=len(broken)))
        return _paragraph(view, said)
    closed = int((~view.declared & ~np.isnan(view.moved)).sum())
    opened = view.declared & ~np.isnan(view.moved) & ~np.eye(len(view.declared), dtype=bool)
    said = []
    if closed:
        said.append(say_count("Nothing passed through the {count} pair that its mask closes.",
                              "Nothing passed through the {count} pairs that its mask closes.", closed))  # fmt: skip
    if opened.any():
        said.append(say_count(
            "Something passed through {through:,} of the {count} pair of two tokens that it opens.",
            "Something passed through {through:,} of the {count} pairs of two tokens that it opens.",
            int(opened.sum()), through=int((opened & view.reaches).sum()),
        ))  # fmt: skip
    if unsure:
        said.append(say_count("{count} check cannot tell.", "{count} checks cannot tell.", len(unsure)))
    return _paragraph(view, said)


def _paragraph(view: CheckView, said: list[str]) -> str:
    words = together([f"<b>{escape(view.verdict)}</b>", escape(together(said))])
    return f'<p class="sentence">{words}</p>'


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]
