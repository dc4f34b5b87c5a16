"""What breaks when a mask is lifted: a table, what it says in words, and the rules by which it is judged. HTML."""

from dataclasses import dataclass

from markupsafe import Markup

from i18n import N_, say, together
from viz.numbers import percent

PADDING = (
    N_(
        "Without the <b>padding mask</b> the encoder and the decoder read characters that nobody wrote: {share} of the "
        "dates come out right, as with the standard masks."
    ),
    N_(
        "Without the <b>padding mask</b> the encoder and the decoder read characters that nobody wrote: {share} of the "
        "dates come out right instead of {usual}."
    ),
)
SHOWN = (
    N_(
        "Without the <b>causal mask</b> the decoder, shown the right answer as in training, may read the characters "
        "that it is asked for. It never could in training: it gets {share} of them right, as with the standard masks."
    ),
    N_(
        "Without the <b>causal mask</b> the decoder, shown the right answer as in training, may read the characters "
        "that it is asked for. It never could in training: it gets {share} of them right instead of {usual}."
    ),
)
ALONE = (
    N_(
        "Writing by itself there is nothing yet to the right of the newest character, only earlier characters now see "
        "later ones: {share} of the dates come out right, as with the standard masks."
    ),
    N_(
        "Writing by itself there is nothing yet to the right of the newest character, only earlier characters now see "
        "later ones: {share} of the dates come out right instead of {usual}."
    ),
)
RULES = N_("""
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
""")
STYLE = Markup("""<style>
div.breaks { overflow-x: auto; }
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
    body = Markup().join(
        Markup(
            '<tr{}><td>{}</td><td class="token">{}</td><td class="judged">{}</td><td class="number">{}</td>'
            '<td class="number">{}</td><td class="number">{}</td></tr>'
        ).format(
            Markup(' aria-current="true"') if row.masks == now else "", say(row.masks), row.wrote, row.judged,
            percent(row.exact), percent(row.characters), percent(row.probability),
        )
        for row in rows
    )  # fmt: skip
    return Markup(
        '<div class="breaks"><table class="numbers breaks"><tr><th></th><th colspan="2">{}</th>'
        '<th class="number">{}</th><th class="number" colspan="2">{}</th></tr>'
        '<tr><th>{}</th><th colspan="2">{}</th><th class="number">{}</th>'
        '<th class="number">{}</th><th class="number">{}</th></tr>{}</table></div>{}'
    ).format(
        say("your text, written by itself"),
        Markup(say("{count} held-out dates,<br>written by itself")).format(count=count),
        Markup(say("the same dates,<br>shown the right answer")),
        say("masks"), say("writes"), say("all right"), say("characters right"),
        say("mean probability"), body, STYLE,
    )  # fmt: skip


def words(standard: BreakRow, padding: BreakRow, causal: BreakRow) -> Markup:
    """What the table says, in words: shares beside the standard masks', or that they are the same."""
    return Markup("<p>{}</p><p>{}</p>").format(
        _said(PADDING, padding.exact, standard.exact),
        Markup(together([
            _said(SHOWN, causal.characters, standard.characters),
            _said(ALONE, causal.exact, standard.exact),
        ])),
    )  # fmt: skip


def _said(words: tuple[str, str], share: float, usual: float) -> Markup:
    """The first of the two where the shares are written alike."""
    same, other = words
    shares = {"share": percent(share), "usual": percent(usual)}
    chosen = same if shares["share"] == shares["usual"] else other
    return Markup(say(chosen)).format(**shares)
