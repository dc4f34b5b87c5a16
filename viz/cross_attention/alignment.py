"""What an output was written from: source and output tokens, and lines between them as strong as the attention.

Sizes: S source tokens, N output tokens, which are the steps of writing.
"""

import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from i18n import N_, listed, say
from viz.charts import MARGIN, bars, position_names, scatter
from viz.heads.cells import weight_text
from viz.heatmap import LONGEST_TICK, CachedFigure, Part, figure
from viz.html import escaped, shortened, table, td, th
from viz.numbers import chance
from viz.palette import MASK_COLOURS, NOW, STANDARD, rgb

FAINTEST = 0.01  # a line fainter than this nobody sees
LINES_A_STEP = 12  # hundreds of faint lines over each other make a dark smear in some browsers
MOST_LABELS = 72  # of each text, in a picture as wide as the page
HEIGHT = 430  # pixels
PADDING_SIGN = "▢"
STEP = N_("step {step} writes <b>{output}</b>, {chance}<br>attends most to {position}: {token}, {weight}")


@dataclass(frozen=True, eq=False)
class Alignment:
    """Weights float32 [N,S], 0 to 1: row i is the source row of the step that wrote outputs[i].

    source [S], outputs [N]: labels. padding: bool [S], True = a source position that is padding. blocked: bool [N,S].
    probabilities [N]: of each output at its step, 0 to 1. step: the one that is looked at.
    """

    source: list[str]
    outputs: list[str]
    weights: np.ndarray
    padding: np.ndarray
    blocked: np.ndarray
    probabilities: np.ndarray
    step: int

    def heaviest(self, step: int | None = None) -> int:
        """The source position that a step (the one looked at, unless given) looks at most."""
        return int(self.weights[self.step if step is None else step].argmax())


def alignment_figure(found: Alignment) -> CachedFigure:
    """On top the chosen step's source row as bars, below it the source, the lines, and the outputs."""
    top = max(float(found.weights[found.step].max(initial=0.0)), 0.05)
    plain: Part = {"showgrid": False, "zeroline": False, "fixedrange": True}
    weights = {"domain": [0.68, 1], "range": [0, top * 1.08], "anchor": "x", "title": {"text": say("weight")}}
    axes = {
        "xaxis": plain | {"anchor": "y2", "range": [0, 1]} | _labels(found.source, None),
        "xaxis2": plain | {"anchor": "y", "range": [0, 1]} | _labels(found.outputs, found.step),
        "yaxis": {"domain": [0, 0.55], "range": [0, 1], "visible": False, "fixedrange": True},
        "yaxis2": plain | weights | {"nticks": 4},
    }
    order = sorted(range(len(found.outputs)), key=lambda step: step == found.step)  # the chosen step on top
    lines = [line for step in order for line in _lines_of(found, step)]
    look = {"height": HEIGHT, "margin": MARGIN, "showlegend": False, "bargap": 0.15, "shapes": lines}
    return figure([_row(found), _outputs(found)], axes | look)


def alignment_alt(found: Alignment) -> str:
    """The alignment for whoever cannot see it: what each output looks at most."""
    pairs = []
    for step, output in enumerate(found.outputs[:40]):
        key = found.heaviest(step)
        about = {"token": found.source[key], "position": key, "weight": found.weights[step, key]}
        pairs.append(say("{output} at {token} (position {position}, {weight:.2f})", output=output, **about))
    sizes = {"outputs": len(found.outputs), "tokens": len(found.source)}
    every = listed(pairs, N_("; "))
    return say("Alignment of {outputs} outputs with {tokens} source tokens. {pairs}", **sizes, pairs=every)


def written_strip(outputs: list[str], now: np.ndarray, standard: np.ndarray | None, step: int) -> Markup:
    """HTML: the outputs in boxes, below each its probability; where masks are lifted, now and under the standard ones.

    now, standard: [N], 0 to 1; standard None: nothing is lifted. The step that is looked at is framed.
    """
    framed = {"aria_current": "true", "style": f"outline:2px solid {NOW}; border-radius:3px"}
    boxes = [td(output, "token", **(framed if place == step else {})) for place, output in enumerate(outputs)]
    rows = [(say("probability"), now)] if standard is None else [(say("now"), now), (say("standard masks"), standard)]
    lines = [[th(say("writes")), *boxes], *([th(name), *map(_probability, row)] for name, row in rows)]
    return table(lines, "numbers written") + STRIP_STYLE  # not shown


STRIP_STYLE = Markup("""<style>
table.numbers.written { width: auto; max-width: 100%; display: block; overflow-x: auto;
  padding-top: 4px; }
table.numbers.written td { text-align: center; padding: .12rem .45rem; min-width: 2.6rem; }
table.numbers.written td.token { font-size: 1.25rem; border: 0; }
table.numbers.written td.doubt { font-weight: 700; background: rgba(240,163,94,.28); }
</style>""")


def _places(count: int) -> np.ndarray:
    """The middles of so many equal parts of 0 to 1."""
    return (np.arange(count) + 0.5) / count


def _lines_of(found: Alignment, step: int) -> list[Part]:
    """The heaviest lines of a step, as opaque as the weight is large."""
    row, chosen = found.weights[step], step == found.step
    above, below = _places(len(found.source)), _places(len(found.outputs))
    heaviest = np.argsort(-row, kind="stable")[:LINES_A_STEP]
    colour = ",".join(map(str, rgb(NOW if chosen else STANDARD)))
    ends = {"type": "line", "xref": "x", "yref": "y", "y0": 1, "x1": float(below[step]), "y1": 0}
    width = 3 if chosen else 2
    return [
        ends | {"x0": float(above[key]), "line": {"width": width, "color": f"rgba({colour},{min(row[key], 1.0):.4f})"}}
        for key in heaviest[row[heaviest] >= FAINTEST]
    ]


def _row(found: Alignment) -> Part:
    weights, blocked = found.weights[found.step], found.blocked[found.step]
    colours = [MASK_COLOURS["padding"] if pad else NOW for pad in found.padding]
    padding, halted = say(" (padding)"), say("blocked")
    said = [
        f"{name}{padding if pad else ''}<br>{halted if stop else say('weight {weight}', weight=weight_text(weight))}"
        for name, pad, stop, weight in zip(position_names(found.source), found.padding, blocked, weights, strict=True)
    ]
    row = bars(_places(len(found.source)), weights, "source row", "%{customdata}", colours)  # not shown
    return row | {"customdata": said, "width": 0.85 / len(found.source), "xaxis": "x", "yaxis": "y2"}


def _outputs(found: Alignment) -> Part:
    """A place to point at above each output: its probability, and what it looks at most."""
    said = []
    for step, output in enumerate(found.outputs):
        key = found.heaviest(step)
        looks = {"position": key, "token": escaped(found.source[key]), "weight": weight_text(found.weights[step, key])}
        about = {"output": escaped(output), "chance": escaped(chance(float(found.probabilities[step])))}
        said.append(say(STEP, step=step + 1, **about, **looks))
    marker = {"size": 9, "color": [NOW if step == found.step else STANDARD for step in range(len(said))]}
    points = scatter(_places(len(said)), np.zeros(len(said), np.float32), "outputs", "%{customdata}", marker=marker)
    return points | {"cliponaxis": False, "customdata": said, "xaxis": "x2", "yaxis": "y"}


def _labels(labels: list[str], chosen: int | None) -> Part:
    places = _places(len(labels))
    every = math.ceil(len(labels) / MOST_LABELS)
    shown = [place for place in range(len(labels)) if place % every == 0 or place == chosen]
    short = all(len(label) <= 2 for label in labels) or len(labels) <= 12
    texts = [escaped(shortened(labels[place], LONGEST_TICK)) for place in shown]
    if chosen is not None:
        texts[shown.index(chosen)] = f"<b>{texts[shown.index(chosen)]}</b>"
    return {
        "tickmode": "array",
        "tickvals": [float(places[place]) for place in shown],
        "ticktext": texts,
        "tickangle": 0 if short else -90,
        "tickfont": {"size": 16 if len(labels) <= 40 and short else 12},
        "ticks": "",
        "automargin": True,
    }


def _probability(one: float) -> Markup:
    return td(chance(float(one)), "doubt" if one < 0.9 else "")
