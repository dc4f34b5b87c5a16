"""The words of the Cross-attention page: what was written, whether it is right, and what breaks. HTML."""

from dataclasses import dataclass
from datetime import date

from markupsafe import Markup

from model.cross_attention.answers import NO_DATE, SURE
from viz.cross_attention.alignment import Alignment
from viz.numbers import chance, percent


@dataclass(frozen=True)
class Answer:
    """A text and what was written for it.

    meant: the days that the text means by the rules: none, one, or two where day and month could be either, the one
    with the day first before the other. chances: of each of them as a whole answer. wrote: what the model wrote under
    the standard masks; day: the day of the calendar that this is, or None; chance: that answer's, as a whole. least:
    the smallest among its characters, and `at`, that character. lifted: "without the padding mask" or its like, ""
    where no mask is lifted; now: what it writes by itself then. Chances are probabilities, 0 to 1.
    """

    meant: tuple[date, ...]
    chances: tuple[float, ...]
    wrote: str
    day: date | None
    chance: float
    least: float
    at: str
    lifted: str = ""
    now: str = ""
    now_day: date | None = None


def verdict(answer: Answer) -> Markup:
    """One paragraph: what was written, whether it is right, how sure the model is, and what lifted masks make of it."""
    words = _two_readings(answer) if len(answer.meant) == 2 else _judged(answer)
    least = chance(answer.least)
    if least == chance(1):
        words += Markup(" Every character has a probability of {}.").format(least)
    else:
        words += Markup(" Its least certain character is {}, with {}.").format(answer.at, least)
    if answer.lifted:
        words += f" {answer.lifted.capitalize()}, writing by itself, it writes "
        if answer.now == answer.wrote:
            words += "the same."
        else:
            now = judgement(answer.meant, answer.now, answer.now_day)
            words += Markup("<b>{}</b>, which is {}.").format(answer.now or "nothing", now)
    return Markup('<p class="sentence">{}</p>').format(words)


def _writes(answer: Answer) -> Markup:
    who = "Under the standard masks the model" if answer.lifted else "The model"
    return Markup("{} writes <b>{}</b>").format(who, answer.wrote or "nothing")


def _judged(answer: Answer) -> Markup:
    judged = judgement(answer.meant, answer.wrote, answer.day)
    nothing = "by the rules below the text names no single day"
    means = f"the text means {_long(answer.meant[0])}" if answer.meant else nothing
    words = Markup("{}, which is {}: {}.").format(_writes(answer), judged, means)
    if answer.chance < SURE:
        words += Markup(" It is unsure: this answer as a whole has a probability of {}.").format(chance(answer.chance))
    return words


def _two_readings(answer: Answer) -> Markup:
    judged = judgement(answer.meant, answer.wrote, answer.day)
    return Markup(
        "{}, which is {}. The text could mean {} or, the month first, {}, and nothing in it says which: the model "
        "gives the two a probability of {} and {}."
    ).format(_writes(answer), judged, *map(_long, answer.meant), *map(chance, answer.chances))


def judgement(meant: tuple[date, ...], wrote: str, day: date | None) -> str:
    """What the written is: right or wrong, or which of two readings.

    meant: the days that the text means, as in Answer. day: the one that was written, None where it is none.
    """
    answers = [one.isoformat() for one in meant] or [NO_DATE]
    if wrote in answers:
        first = ("the reading with the day first", "the reading with the month first")
        return first[answers.index(wrote)] if len(answers) == 2 else "right"
    return "wrong" if day is not None or wrote == NO_DATE else "wrong, and no day of the calendar"


def step_words(found: Alignment) -> Markup:
    """What the chosen step looks at."""
    heavy, row = found.heaviest(), found.weights[found.step]
    step, output = found.step + 1, found.outputs[found.step]
    if not row.any():
        words = Markup("Step {} writes <b>{}</b> and has nothing to attend to.").format(step, output)
        return Markup('<p class="key">{}</p>').format(words)
    words = Markup(
        "Step {} writes <b>{}</b> with {} and looks most at <b>{}</b> (position {}), with a weight of {:.2f}."
    ).format(step, output, chance(float(found.probabilities[found.step])), found.source[heavy], heavy, row[heavy])
    if found.padding.any():
        words += f" {percent(float(row[found.padding].sum()))} of the row is on padding."
    return Markup('<p class="key">{}</p>').format(words)


@dataclass(frozen=True)
class Breaks:
    """A row of the table: masks, what they make the model write for the reader's text, and shares from 0 to 1.

    judged: what `judgement` says of it. exact: of whole dates; characters, probability: shown the right answer.
    """

    masks: str
    wrote: str
    judged: str
    exact: float
    characters: float
    probability: float


def breaks_table(rows: list[Breaks], now: str, count: int) -> Markup:
    """Every choice of masks, the one on screen framed."""
    body = Markup().join(
        Markup(
            '<tr{}><td>{}</td><td class="token">{}</td><td class="judged">{}</td><td class="number">{}</td>'
            '<td class="number">{}</td><td class="number">{}</td></tr>'
        ).format(
            Markup(' aria-current="true"') if row.masks == now else "", row.masks, row.wrote, row.judged,
            percent(row.exact), percent(row.characters), percent(row.probability),
        )
        for row in rows
    )  # fmt: skip
    return Markup(
        '<div class="breaks"><table class="numbers breaks"><tr><th></th><th colspan="2">your text, written by '
        'itself</th><th class="number">{} held-out dates,<br>written by itself</th>'
        '<th class="number" colspan="2">the same dates,<br>shown the right answer</th></tr>'
        '<tr><th>masks</th><th>writes</th><th>which is</th><th class="number">all right</th>'
        '<th class="number">characters right</th><th class="number">mean probability</th></tr>{}</table></div>{}'
    ).format(count, body, BREAKS_STYLE)


BREAKS_STYLE = Markup("""<style>
div.breaks { overflow-x: auto; }
table.numbers.breaks .token { max-width: 12rem; }
table.numbers.breaks tr[aria-current] td { font-weight: 700; background: rgba(128,128,128,.14); }
</style>""")


def breaks_words(standard: Breaks, padding: Breaks, causal: Breaks) -> Markup:
    """What the table says, in words."""
    return Markup("<p>{}</p><p>{} {}</p>").format(
        _padding_words(standard, padding), _shown_words(standard, causal), _alone_words(standard, causal)
    )


def _padding_words(standard: Breaks, padding: Breaks) -> Markup:
    return Markup(
        "Without the <b>padding mask</b> the encoder and the decoder read characters that nobody wrote: {} of the "
        "dates come out right{}."
    ).format(percent(padding.exact), _compared(padding.exact, standard.exact))


def _shown_words(standard: Breaks, causal: Breaks) -> Markup:
    return Markup(
        "Without the <b>causal mask</b> the decoder, shown the right answer as in training, may read the characters "
        "that it is asked for. It never could in training: it gets {} of them right{}."
    ).format(percent(causal.characters), _compared(causal.characters, standard.characters))


def _alone_words(standard: Breaks, causal: Breaks) -> str:
    return (
        "Writing by itself there is nothing yet to the right of the newest character, only earlier characters now see "
        f"later ones: {percent(causal.exact)} of the dates come out right{_compared(causal.exact, standard.exact)}."
    )


def _compared(now: float, standard: float) -> str:
    """Beside the standard masks' share; where both are written alike, that nothing changed."""
    usual = percent(standard)
    return ", as with the standard masks" if percent(now) == usual else f" instead of {usual}"


RULES = """
The model was trained on dates in English made by a generator, in {shapes} shapes: `3 March 2021`, `March 3rd, 2021`,
`the third of March '21`, `Wed 3-Mar-2021`, `3/3/2021`, `2021-03-03T10:15:00Z` …, in any case, alone, in sentences and
with typing errors, from 1900 to 2099. {held_out:,} days of these years never occurred in training: the table's held-out
dates are of those. A quarter of what it read was no date; for that it learned to write `{none}`.

- In numbers alone the **day** comes first (`3/4/2021` is the 3rd of April), but where it cannot (`12/25/2021`), and
  where a year of four digits comes first. Where both could be, the text has **two readings**: in training a quarter of
  such texts had the month first.
- A year of **two digits** is one of 1950 to 2049.
- The name of a **weekday** says nothing, even a wrong one; the name of a month may have one letter wrong.
- Without its day, its month or its year a date is **no date**, and so is a text with several.

Whether a text is a date, and which, is decided here by a reader of our own for the same rules, not by the model.
"""


def _long(day: date) -> str:
    return f"{day.day} {day:%B} {day.year}"
