"""The Cross-attention page: the source tokens that outputs attend to, whether outputs are right, and lifted masks.

Sizes: S source tokens, N output tokens, one for each generation step.
"""

import math
from dataclasses import dataclass
from datetime import date

import numpy as np
from markupsafe import Markup

from i18n import ENGLISH, N_, language, listed, say, together
from model.cross_attention.reading import Why
from model.cross_attention.written_dates import NO_DATE
from viz.charts import MARGIN, bars, position_names, scatter
from viz.heads.cells import weight_text
from viz.heatmap import LONGEST_TICK, CachedFigure, Part, figure
from viz.html import escaped, filled, join, paragraph, scrollable, shortened, table, tag, td, th
from viz.numbers import chance, percent
from viz.palette import MASK_COLOURS, NOW, STANDARD, rgba

FAINTEST = 0.01  # a line fainter than this is invisible
MAX_LINES_PER_STEP = 12  # in some browsers hundreds of faint lines on top of each other look like one dark area
MAX_LABELS = 72  # largest number of labels of each text in a picture as wide as the page
HEIGHT = 430  # pixels
PADDING_SIGN = "▢"
STEP = N_("step {step} writes <b>{output}</b>, {chance}<br>attends most to {position}: {token}, {weight}")


@dataclass(frozen=True, eq=False)
class Alignment:
    """Cross-attention weights, float32 [N,S], 0 to 1: row i is that of the step that generated outputs[i].

    source [S], outputs [N]: labels. padding: bool [S], True = a source position that is padding. blocked: bool [N,S].
    probabilities [N]: of each output at its step, 0 to 1. step: the step that the user has chosen.
    """

    source: list[str]
    outputs: list[str]
    weights: np.ndarray
    padding: np.ndarray
    blocked: np.ndarray
    probabilities: np.ndarray
    step: int

    def heaviest(self, step: int | None = None) -> int:
        """Return the source position with the largest weight in a step, by default the chosen one."""
        return int(self.weights[self.step if step is None else step].argmax())


def alignment_figure(found: Alignment) -> CachedFigure:
    """Draw the chosen step's source row as bars, and below it lines from the source tokens to the outputs."""
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
    """Return alternative text for alignment_figure: what each output attends to most."""
    pairs = []
    for step, output in enumerate(found.outputs[:40]):
        key = found.heaviest(step)
        about = {"token": found.source[key], "position": key, "weight": found.weights[step, key]}
        pairs.append(say("{output} at {token} (position {position}, {weight:.2f})", output=output, **about))
    about = {"outputs": len(found.outputs), "tokens": len(found.source), "pairs": listed(pairs, N_("; "))}
    return say("Alignment of the outputs ({outputs}) with the source tokens ({tokens}). {pairs}", **about)


def outputs_table(outputs: list[str], now: np.ndarray, standard: np.ndarray | None, step: int) -> Markup:
    """Return the outputs in boxes, as HTML, each above its probability; if masks are lifted, also the standard one.

    now, standard: [N], 0 to 1; standard is None if no mask is lifted. step: the chosen one, which is framed.
    """
    framed = {"aria_current": "true", "style": f"outline:2px solid {NOW}; border-radius:3px"}
    boxes = [td(output, "token", **(framed if index == step else {})) for index, output in enumerate(outputs)]
    rows = [(say("probability"), now)] if standard is None else [(say("now"), now), (say("standard masks"), standard)]
    lines = [[th(say("writes")), *boxes]]
    for name, row in rows:
        lines.append([th(name), *(td(chance(one), "doubt" if one < 0.9 else "") for one in row.tolist())])
    about = say("The output and the probability of each token")
    return scrollable(table(lines, "numbers written"), about, "written") + STRIP_STYLE  # not shown


STRIP_STYLE = Markup("""<style>
div.written { overflow-x: auto; padding: 4px 2px 0; } /* room for the frame */
table.numbers.written { width: auto; }
table.numbers.written td { text-align: center; padding: .12rem .45rem; min-width: 2.6rem; }
table.numbers.written td.token { font-size: 1.25rem; border: 0; }
table.numbers.written td.doubt { font-weight: 700; background: rgba(240,163,94,.28); }
</style>""")


def _centres(count: int) -> np.ndarray:
    """Return the centres of `count` equal parts of the range from 0 to 1."""
    return (np.arange(count) + 0.5) / count


def _lines_of(found: Alignment, step: int) -> list[Part]:
    """Return the lines of the largest weights of a step; their opacity is the weight."""
    row, chosen = found.weights[step], step == found.step
    above, below = _centres(len(found.source)), _centres(len(found.outputs))
    heaviest = np.argsort(-row, kind="stable")[:MAX_LINES_PER_STEP]
    colour, width = (NOW, 3) if chosen else (STANDARD, 2)
    ends = {"type": "line", "xref": "x", "yref": "y", "y0": 1, "x1": float(below[step]), "y1": 0}
    return [
        ends | {"x0": float(above[key]), "line": {"width": width, "color": rgba(colour, min(row[key], 1.0))}}
        for key in heaviest[row[heaviest] >= FAINTEST]
    ]


def _row(found: Alignment) -> Part:
    weights, blocked = found.weights[found.step], found.blocked[found.step]
    colours = [MASK_COLOURS["padding"] if pad else NOW for pad in found.padding]
    padding, halted = say(" (padding)"), say("blocked")
    texts = [
        f"{name}{padding if pad else ''}<br>{halted if stop else say('weight {weight}', weight=weight_text(weight))}"
        for name, pad, stop, weight in zip(position_names(found.source), found.padding, blocked, weights, strict=True)
    ]
    row = bars(_centres(len(found.source)), weights, "source row", "%{customdata}", colours)  # not shown
    return row | {"customdata": texts, "width": 0.85 / len(found.source), "xaxis": "x", "yaxis": "y2"}


def _outputs(found: Alignment) -> Part:
    """Return a point above each output whose tooltip has its probability and what it attends to most."""
    texts = []
    for step, output in enumerate(found.outputs):
        key = found.heaviest(step)
        looks = {"position": key, "token": escaped(found.source[key]), "weight": weight_text(found.weights[step, key])}
        about = {"output": escaped(output), "chance": escaped(chance(float(found.probabilities[step])))}
        texts.append(say(STEP, step=step + 1, **about, **looks))
    marker = {"size": 9, "color": [NOW if step == found.step else STANDARD for step in range(len(texts))]}
    points = scatter(_centres(len(texts)), np.zeros(len(texts), np.float32), "outputs", "%{customdata}", marker=marker)
    return points | {"cliponaxis": False, "customdata": texts, "xaxis": "x2", "yaxis": "y"}


def _labels(labels: list[str], chosen: int | None) -> Part:
    centres = _centres(len(labels))
    every = math.ceil(len(labels) / MAX_LABELS)
    shown = [index for index in range(len(labels)) if index % every == 0 or index == chosen]
    letters = all(len(label) <= 2 for label in labels)
    short = letters or len(labels) <= 12
    texts = [escaped(shortened(labels[index], LONGEST_TICK)) for index in shown]
    if chosen is not None:
        texts[shown.index(chosen)] = f"<b>{texts[shown.index(chosen)]}</b>"
    return {
        "tickmode": "array",
        "tickvals": [float(centres[index]) for index in shown],
        "ticktext": texts,
        "tickangle": 0 if short else -90,
        # on a phone twelve labels of "<end>" in 14 pixels fit
        "tickfont": {"size": (16 if letters else 14) if len(labels) <= 40 and short else 12},
        "ticks": "",
        "automargin": True,
    }


LIFTED_SHARES = {
    "padding": N_("Without the <b>padding mask</b> the encoder and the decoder read padding characters: {share} of the "
                  "dates are written correctly, {usual} under the standard masks."),
    "shown": N_("Without the <b>causal mask</b> the decoder, shown the right answer as in training, can read the "
                "characters that it must predict. It never could in training: it gets {share} of them right, {usual} "
                "under the standard masks."),
    "alone": N_("When it writes on its own, there is nothing to the right of the newest character; only earlier "
                "characters now see later ones: {share} of the dates are written correctly, {usual} under the "
                "standard masks."),
}  # fmt: skip
RULES = N_("""
The model was trained on dates in English made by a generator, in {shapes} shapes: `3 March 2021`, `March 3rd, 2021`,
`the third of March '21`, `Wed 3-Mar-2021`, `3/3/2021`, `2021-03-03T10:15:00Z` …, in any case, alone, in sentences and
with typing errors, from 1900 to 2099. {held_out:,} days of these years never occurred in training: the table's held-out
dates are of those. A quarter of its training inputs were not dates; there it learned to write `{none}`.

- In all-numeric dates the **day** comes first (`3/4/2021` is the 3rd of April), unless it cannot (`12/25/2021`) or a
  four-digit year comes first. Where both orders are possible, the text has **two readings**: in training a quarter of
  such texts had the month first. Eight digits in a row are year, month, day (`20210303`); numbers with only spaces
  between them need a four-digit year.
- A **two-digit** year is one of 1950 to 2049.
- The name of a **weekday** is ignored, even a wrong one; the name of a month may have one letter wrong.
- Without its day, its month or its year a date is **no date**, and so is a text with several, of which training had
  none.

Whether a text is a date, and which one, is decided here by a separate parser with the same rules, not by the model.
""")
STYLE = Markup("""<style>
div.breaks { overflow-x: auto; margin-bottom: 1rem; }
table.numbers.breaks th { white-space: nowrap; }
table.numbers.breaks .token { max-width: 12rem; }
table.numbers.breaks tr[aria-current] td { font-weight: 700; background: rgba(128,128,128,.14); }
</style>""")


@dataclass(frozen=True)
class MaskChoiceRow:
    """A row of the table: masks, what the model writes under them, `judgement` of that, and shares from 0 to 1.

    exact: of dates that are correct when generated. Shown the right answer (teacher forcing): characters, of those that
    are the model's most likely ones; probability, the mean over all characters.
    """

    masks: str
    wrote: str
    judged: str
    exact: float
    characters: float
    probability: float


def mask_choices_table(rows: list[MaskChoiceRow], now: str, count: int) -> Markup:
    """Return a table of all choices of masks, with the current one marked. now: its masks. count: of held-out dates."""
    several = filled(say("{count} held-out dates,<br>generated"), count=count)
    same = Markup(say("the same dates,<br>shown the right answer"))
    above = [th(), th(say("your text, generated"), colspan=2), th(several, "number"), th(same, "number", colspan=2)]
    shown = map(say, (N_("all correct"), N_("characters correct"), N_("mean probability")))
    head = [th(say("masks")), th(say("writes"), colspan=2), *(th(name, "number") for name in shown)]
    parts = [tag("tr", join(above)), tag("tr", join(head))]
    for row in rows:
        shares = [td(percent(share), "number") for share in (row.exact, row.characters, row.probability)]
        cells = [td(say(row.masks)), td(row.wrote, "token"), td(row.judged, "judged"), *shares]
        parts.append(tag("tr", join(cells), **({"aria_current": "true"} if row.masks == now else {})))
    body = tag("table", join(parts), class_="numbers breaks")  # not shown
    return scrollable(body, say("What breaks when a mask is off"), "breaks") + STYLE  # not shown


def lifted_words(standard: MaskChoiceRow, padding: MaskChoiceRow, causal: MaskChoiceRow) -> Markup:
    """Compare the shares with a mask lifted with those under the standard masks, in sentences."""
    lifted = {
        "padding": (padding.exact, standard.exact),
        "shown": (causal.characters, standard.characters),
        "alone": (causal.exact, standard.exact),
    }
    return join(
        tag("p", filled(say(LIFTED_SHARES[what]), share=percent(share), usual=percent(usual)))
        for what, (share, usual) in lifted.items()
    )


NO_DATE_BECAUSE: dict[Why, str] = {
    "several": N_("by the rules below it is not a date, because the text names several days"),
    "years": N_("the day is outside the years 1900 to 2099, and by the rules below it is not a date"),
    "calendar": N_("the calendar has no such day"),
    "month": N_("“{word}” is not the English name of a month, and only English dates are dates by the rules below"),
    "letters": N_("the text has letters that are not English ({word}), and only English dates are dates by the rules "
                  "below"),
    "nothing": N_("by the rules below the text names no single day"),
}  # fmt: skip


@dataclass(frozen=True)
class WrittenAnswer:
    """A text and what the model wrote for it. Probabilities are from 0 to 1.

    meant: the days that the text may mean by the rules: none, one, or two if day and month can be swapped, with the
    day-first reading first. chances: the probability of each as a whole answer. wrote: the answer under the standard
    masks; chance: its probability; least: the smallest probability of its characters; at: that character. lifted:
    "without the padding mask" or similar, "" if no mask is lifted; now: what the model writes then. no_date_reason: why
    the text means no day, from model/cross_attention/reading.py.
    """

    meant: tuple[date, ...]
    chances: tuple[float, ...]
    wrote: str
    chance: float
    least: float
    at: str
    lifted: str = ""
    now: str = ""
    no_date_reason: tuple[Why, str] = ("nothing", "")


def verdict(answer: WrittenAnswer) -> Markup:
    """Say in a paragraph what was written, whether it is right, its probability, and the answer with masks lifted."""
    sure = say(
        "This answer as a whole has a probability of {chance}; its least certain character is {at}, with {least}."
    )
    chances = {"chance": chance(answer.chance), "least": chance(answer.least)}
    parts = [_judged(answer), filled(sure, at=answer.at, **chances)]
    if answer.lifted:
        words = say("{masks}, when it writes on its own, it writes <b>{wrote}</b>, {judged}.")
        now = {"wrote": answer.now or say("nothing"), "judged": judgement(answer.meant, answer.now)}
        parts.append(filled(words, masks=say(answer.lifted).capitalize(), **now))
    return paragraph(Markup(together(parts)))


def _judged(answer: WrittenAnswer) -> Markup:
    wrote = {"wrote": answer.wrote or say("nothing"), "judged": judgement(answer.meant, answer.wrote)}
    days = [_day_text(day) for day in answer.meant]
    if len(days) == 2:
        words = say(
            "Under the standard masks the model writes <b>{wrote}</b>, {judged}. The text could mean {one} or, the "
            "month first, {other}, and nothing in it says which: the model gives the two a probability of "
            "{chance_of_one} and {chance_of_other}."
        )
        chances = dict(zip(("chance_of_one", "chance_of_other"), map(chance, answer.chances), strict=True))
        return filled(words, one=days[0], other=days[1], **wrote, **chances)
    reason, word = answer.no_date_reason
    why = say("the text means {day}", day=days[0]) if days else filled(say(NO_DATE_BECAUSE[reason]), word=word)
    return filled(say("Under the standard masks the model writes <b>{wrote}</b>, {judged}: {why}."), why=why, **wrote)


def judgement(meant: tuple[date, ...], wrote: str) -> str:
    """Say in a clause whether the answer is right, wrong, or one of two readings. meant: as in WrittenAnswer."""
    answers = [one.isoformat() for one in meant] or [NO_DATE]
    if wrote not in answers:
        return say("which is wrong")
    if len(answers) == 1:
        return say("which is correct")
    day_first = N_("which is the reading with the day first")
    return say(day_first if wrote == answers[0] else N_("which is the reading with the month first"))


def step_words(found: Alignment) -> Markup:
    """Say what the chosen step attends to."""
    heavy, row = found.heaviest(), found.weights[found.step]
    about = {"step": found.step + 1, "output": found.outputs[found.step]}
    if not row.any():
        words = say("Step {step} writes <b>{output}</b> and has nothing to attend to.")
        return paragraph(filled(words, **about), "key")
    looks = say(
        "Step {step} writes <b>{output}</b> with {chance} and attends most to <b>{token}</b> (position {position}), "
        "with a weight of {weight:.2f}."
    )
    key = {"token": found.source[heavy], "position": heavy, "weight": row[heavy]}
    words = filled(looks, chance=chance(float(found.probabilities[found.step])), **about, **key)
    padding = filled(say("{share} of the row is on padding."), share=percent(float(row[found.padding].sum())))
    return paragraph(Markup(together([words, padding])), "key")


def _day_text(day: date) -> str:
    """Write a date in the user's language: 3 March 2021."""
    if language() == ENGLISH:
        return f"{day.day} {day:%B} {day.year}"
    from babel.dates import format_date

    return format_date(day, "long", locale=language())
