"""The words of the Cross-attention page: what was written, whether it is right, and what breaks. HTML."""

import html
from dataclasses import dataclass
from datetime import date

from viz.cross_attention.alignment import Alignment, chance
from viz.numbers import percent


@dataclass(frozen=True)
class Answer:
    """A text and what was written for it.

    meant: the day that the text means by the generator's rules, None where it is no date by them. wrote: what the
    model wrote under the standard masks; day: the day of the calendar that this is, or None. least: the smallest
    probability among its characters, and `at`, that character. lifted: "without the padding mask" or its like, ""
    where no mask is lifted; now: what it writes by itself then.
    """

    text: str
    meant: date | None
    wrote: str
    day: date | None
    least: float
    at: str
    lifted: str = ""
    now: str = ""
    now_day: date | None = None


def verdict(answer: Answer) -> str:
    """One paragraph: what was written, whether it is right, and what lifted masks make of it."""
    wrote = f"<b>{html.escape(answer.wrote) or 'nothing'}</b>"
    if answer.meant is not None and answer.wrote == answer.meant.isoformat():
        words = f"The model writes {wrote}, which is right: the text means {_long(answer.meant)}."
    elif answer.meant is not None:
        words = f"The model writes {wrote}, which is wrong: the text means {_long(answer.meant)}."
    else:
        words = (
            "This text is no date from 1900 to 2099 by the rules below, and the model cannot say so: "
            f"it writes {wrote}, {_calendar(answer.day)}."
        )
    words += f" Its least certain character is {html.escape(answer.at)}, with {chance(answer.least)}."
    if answer.lifted:
        words += f" {answer.lifted.capitalize()}, writing by itself, it writes "
        words += (
            "the same."
            if answer.now == answer.wrote
            else f"<b>{html.escape(answer.now) or 'nothing'}</b>, {_calendar(answer.now_day)}."
        )
    return f'<p class="sentence">{words}</p>'


def step_words(found: Alignment) -> str:
    """What the chosen step looks at."""
    heavy, row = found.heaviest(), found.weights[found.step]
    output = html.escape(found.outputs[found.step])
    if not row.any():
        return f'<p class="key">Step {found.step + 1} writes <b>{output}</b> and has nothing to attend to.</p>'
    on_padding = float(row[found.padding].sum())
    padded = f" {percent(on_padding)} of the row is on padding." if found.padding.any() else ""
    return (
        f'<p class="key">Step {found.step + 1} writes <b>{output}</b> with '
        f"{chance(float(found.probabilities[found.step]))} and looks most at "
        f"<b>{html.escape(found.source[heavy])}</b> (position {heavy}), with a weight of {row[heavy]:.2f}.{padded}</p>"
    )


@dataclass(frozen=True)
class Breaks:
    """A row of the table: masks, what they make the model write for the reader's text, and shares from 0 to 1."""

    masks: str
    wrote: str
    day: date | None
    exact: float
    characters: float
    probability: float


def breaks_table(rows: list[Breaks], now: str, count: int) -> str:
    """Every choice of masks, the one on screen framed."""
    body = "".join(
        f"<tr{_current(row.masks == now)}><td>{html.escape(row.masks)}</td>"
        f'<td class="token">{html.escape(row.wrote)}</td><td>{"yes" if row.day else "no"}</td>'
        f'<td class="number">{chance(row.exact)}</td><td class="number">{chance(row.characters)}</td>'
        f'<td class="number">{chance(row.probability)}</td></tr>'
        for row in rows
    )
    return (
        '<table class="numbers breaks"><tr><th></th><th colspan="2">your text, written by itself</th>'
        f'<th class="number">{count} held-out dates,<br>written by itself</th>'
        '<th class="number" colspan="2">the same dates,<br>shown the right answer</th></tr>'
        '<tr><th>masks</th><th>writes</th><th>a day of the calendar</th><th class="number">all right</th>'
        '<th class="number">characters right</th><th class="number">mean probability</th></tr>'
        f"{body}</table>{BREAKS_STYLE}"
    )


BREAKS_STYLE = """<style>
table.numbers.breaks .token { max-width: 12rem; }
table.numbers.breaks tr[aria-current] td { font-weight: 700; background: rgba(128,128,128,.14); }
</style>"""


def breaks_words(standard: Breaks, padding: Breaks, causal: Breaks) -> str:
    """What the table says, in words."""
    return (
        f"<p>Without the <b>padding mask</b> the encoder and the decoder read characters that nobody wrote: "
        f"{chance(padding.exact)} of the dates come out right instead of {chance(standard.exact)}.</p>"
        f"<p>Without the <b>causal mask</b> the decoder, shown the right answer as in training, reads the characters "
        f"that it is asked for. It never could in training, and it gets {chance(causal.characters)} of them right "
        f"instead of {chance(standard.characters)}. Writing by itself there is nothing yet to the right of the newest "
        f"character, only earlier characters now see later ones: {chance(causal.exact)} of the dates come out right, "
        f"{chance(standard.exact)} with the mask.</p>"
    )


RULES = """
The model was trained on dates in English made by a generator, in {shapes} shapes: `3 March 2021`, `March 3rd, 2021`,
`the third of March '21`, `Wed 3-Mar-2021`, `3/3/2021`, `2021.03.03` …, in any case, sometimes with spaces too many,
from 1900 to 2099. {held_out:,} days of these years never occurred in training: the table's held-out dates are of those.

- Numbers alone are **day, month, year** (`3/4/2021` is the 3rd of April), unless a year of four digits comes first.
- A year of **two digits** is one of 1950 to 2049.
- The name of a **weekday** says nothing, even a wrong one.

Whether a text is a date, and which, is decided here by a reader of our own for the same rules, not by the model.
"""


def _long(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"


def _calendar(day: date | None) -> str:
    return "which is no day of the calendar" if day is None else f"a day of the calendar ({_long(day)})"


def _current(chosen: bool) -> str:
    return ' aria-current="true"' if chosen else ""
