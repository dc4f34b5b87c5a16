"""The words of the Cross-attention page: what was written, whether it is right, and what breaks. HTML."""

from dataclasses import dataclass
from datetime import date

from markupsafe import Markup

from i18n import ENGLISH, N_, language, say, together
from model.cross_attention.reading import Why
from model.cross_attention.written_dates import NO_DATE
from viz.cross_attention.alignment import Alignment
from viz.html import filled, join, paragraph, tag, td, th
from viz.numbers import chance, percent

LIFTED_SHARES = {
    "padding": N_("Without the <b>padding mask</b> the encoder and the decoder read padding characters: {share} of the "
                  "dates are written correctly, {usual} under the standard masks."),
    "shown": N_("Without the <b>causal mask</b> the decoder, shown the right answer as in training, can read the "
                "characters that it must predict. It never could in training: it gets {share} of them right, {usual} "
                "under the standard masks."),
    "alone": N_("When it writes by itself, there is nothing to the right of the newest character; only earlier "
                "characters now see later ones: {share} of the dates are written correctly, {usual} under the standard "
                "masks."),
}  # fmt: skip
RULES = N_("""
The model was trained on dates in English made by a generator, in {shapes} shapes: `3 March 2021`, `March 3rd, 2021`,
`the third of March '21`, `Wed 3-Mar-2021`, `3/3/2021`, `2021-03-03T10:15:00Z` …, in any case, alone, in sentences and
with typing errors, from 1900 to 2099. {held_out:,} days of these years never occurred in training: the table's held-out
dates are of those. A quarter of its training inputs were not dates; there it learned to write `{none}`.

- In numbers alone the **day** comes first (`3/4/2021` is the 3rd of April), but where it cannot (`12/25/2021`), and
  where a year of four digits comes first. Where both could be, the text has **two readings**: in training a quarter of
  such texts had the month first.
- A year of **two digits** is one of 1950 to 2049.
- The name of a **weekday** is ignored, even a wrong one; the name of a month may have one letter wrong.
- Without its day, its month or its year a date is **no date**, and so is a text with several.

Whether a text is a date, and which one, is decided here by a separate parser with the same rules, not by the model.
""")
STYLE = Markup("""<style>
div.breaks { overflow-x: auto; margin-bottom: 1rem; }
table.numbers.breaks th { white-space: nowrap; }
table.numbers.breaks .token { max-width: 12rem; }
table.numbers.breaks tr[aria-current] td { font-weight: 700; background: rgba(128,128,128,.14); }
</style>""")


@dataclass(frozen=True)
class BreakRow:
    """A row of the table: masks, what they make the model write for the reader's text, and shares from 0 to 1.

    judged: what `judgement` says of it. exact: of whole dates; characters, probability: shown the right answer.
    """

    masks: str
    wrote: str
    judged: str
    exact: float
    characters: float
    probability: float


def table(rows: list[BreakRow], now: str, count: int) -> Markup:
    """Every choice of masks, the one on screen framed."""
    several = filled(say("{count} held-out dates,<br>written by itself"), count=count)
    same = Markup(say("the same dates,<br>shown the right answer"))
    above = [th(), th(say("your text, written by itself"), colspan=2), th(several, "number"),
             th(same, "number", colspan=2)]  # fmt: skip
    head = [th(say("masks")), th(say("writes"), colspan=2), th(say("all correct"), "number"),
            th(say("characters correct"), "number"), th(say("mean probability"), "number")]  # fmt: skip
    parts = [tag("tr", join(above)), tag("tr", join(head))]
    for row in rows:
        shares = [td(percent(share), "number") for share in (row.exact, row.characters, row.probability)]
        cells = [td(say(row.masks)), td(row.wrote, "token"), td(row.judged, "judged"), *shares]
        parts.append(tag("tr", join(cells), **({"aria_current": "true"} if row.masks == now else {})))
    return tag("div", tag("table", join(parts), class_="numbers breaks"), class_="breaks") + STYLE  # not shown


def words(standard: BreakRow, padding: BreakRow, causal: BreakRow) -> Markup:
    """What the table says, in words: shares beside the standard masks'."""
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
    """A text and what was written for it.

    meant: the days that the text means by the rules: none, one, or two where day and month could be either, the one
    with the day first before the other. chances: of each of them as a whole answer. wrote: what the model wrote under
    the standard masks; chance: that answer's, as a whole. least: the smallest among its characters, and `at`, that
    character. lifted: "without the padding mask" or its like, "" where no mask is lifted; now: what it writes by itself
    then. why_none: of a text that means no day, what model/cross_attention/reading.py tells. Chances are from 0 to 1.
    """

    meant: tuple[date, ...]
    chances: tuple[float, ...]
    wrote: str
    chance: float
    least: float
    at: str
    lifted: str = ""
    now: str = ""
    why_none: tuple[Why, str] = ("nothing", "")


def verdict(answer: WrittenAnswer) -> Markup:
    """One paragraph: what was written, whether it is right, how sure the model is, and what lifted masks make of it."""
    sure = say(
        "This answer as a whole has a probability of {chance}; its least certain character is {at}, with {least}."
    )
    chances = {"chance": chance(answer.chance), "least": chance(answer.least)}
    said = [_judged(answer), filled(sure, at=answer.at, **chances)]
    if answer.lifted:
        words = say("{masks}, when it writes by itself, it writes <b>{wrote}</b>, {judged}.")
        now = {"wrote": answer.now or say("nothing"), "judged": judgement(answer.meant, answer.now)}
        said.append(filled(words, masks=say(answer.lifted).capitalize(), **now))
    return paragraph(Markup(together(said)))


def _judged(answer: WrittenAnswer) -> Markup:
    wrote = {"wrote": answer.wrote or say("nothing"), "judged": judgement(answer.meant, answer.wrote)}
    days = [_long(day) for day in answer.meant]
    if len(days) == 2:
        words = say(
            "Under the standard masks the model writes <b>{wrote}</b>, {judged}. The text could mean {one} or, the "
            "month first, {other}, and nothing in it says which: the model gives the two a probability of "
            "{chance_of_one} and {chance_of_other}."
        )
        chances = dict(zip(("chance_of_one", "chance_of_other"), map(chance, answer.chances), strict=True))
        return filled(words, one=days[0], other=days[1], **wrote, **chances)
    reason, word = answer.why_none
    why = say("the text means {day}", day=days[0]) if days else filled(say(NO_DATE_BECAUSE[reason]), word=word)
    return filled(say("Under the standard masks the model writes <b>{wrote}</b>, {judged}: {why}."), why=why, **wrote)


def judgement(meant: tuple[date, ...], wrote: str) -> str:
    """What the written is, after a comma: right or wrong, or which of two readings. meant: as in WrittenAnswer."""
    answers = [one.isoformat() for one in meant] or [NO_DATE]
    if wrote not in answers:
        return say("which is wrong")
    if len(answers) == 1:
        return say("which is correct")
    day_first = N_("which is the reading with the day first")
    return say(day_first if wrote == answers[0] else N_("which is the reading with the month first"))


def step_words(found: Alignment) -> Markup:
    """What the chosen step looks at."""
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


def _long(day: date) -> str:
    """As it is said: 3 March 2021."""
    if language() == ENGLISH:
        return f"{day.day} {day:%B} {day.year}"
    from babel.dates import format_date

    return format_date(day, "long", locale=language())
