"""What padding did, in two HTML tables: each text against itself alone, and all ways to pad at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from i18n import N_, listed, say
from viz.html import amount, join, table, tag, td, th
from viz.numbers import Candidate, chance
from viz.padding.grid import PaddedText
from viz.palette import NOW, STANDARD

SIDES = {"left": N_("Left padding"), "right": N_("Right padding")}
MASKS = {
    "off": N_("no padding mask"),
    "keys": N_("padding mask on keys"),
    "both": N_("padding mask on keys and queries"),
}


@dataclass(frozen=True)
class Way:
    """One way to pad a batch, and what came of it.

    side "left" or "right"; mask "off", "keys" or "both"; positions "counted", "cells", or "own" of a model that takes
    none. apart: the largest difference of any text's logits from those of the text alone. others: how many texts go on
    with another token, None where no next token is predicted. correct: the difference is rounding.
    """

    side: str
    mask: str
    positions: str
    apart: float
    others: int | None
    correct: bool

    @property
    def key(self) -> str:
        """Of its button, and of the style that the button has."""
        return f"way_{self.side}_{self.mask}_{self.positions}"


def texts_table(texts: Sequence[PaddedText], tolerance: float) -> Markup:
    """For each text its length, its largest difference, and its next token alone, in the batch and at position -1."""
    guesses = texts[0].alone is not None
    trap = guesses and any(text.last < len(text.keep) - 1 for text in texts)
    titles = [say("sentence"), say("tokens"), say("largest difference")]
    titles += [say("next token alone"), say("in the batch")] if guesses else []
    titles += [say("read at position −1")] if trap else []
    rows = [[th(title, scope="col") for title in titles], *(_cells(text, tolerance, trap) for text in texts)]
    return STYLE + table(rows, "numbers texts")  # not shown


def way_label(way: Way, texts: int) -> str:
    """What came of a way, as the markdown of its button."""
    verdict = say("✓ correct") if way.correct else say("✗ wrong")
    label = f"**{verdict}** {amount(way.apart)}"
    if not way.others:
        return label
    return label + " · " + say("{others} of {texts} next tokens differ", others=way.others, texts=texts)


def choices(way: Way, cells: int) -> list[str]:
    """What is chosen: "Left padding", "no padding mask", "position ids 0…22"."""
    ids = say("position ids {which}", which=position_words(way.positions, cells))
    return [say(SIDES[way.side]), say(MASKS[way.mask]), ids]


def way_name(way: Way, cells: int) -> str:
    """Its choices as one phrase."""
    return listed(choices(way, cells))


def ways_style(ways: Sequence[Way]) -> str:
    """Style: the buttons of correct and wrong ways in their colours, the one shown framed."""
    colours = {True: f"{STANDARD}33", False: f"{NOW}40"}
    rules = [f".st-key-{way.key} button:is(*, :hover) {{ background: {colours[way.correct]}; }}" for way in ways]
    return f"<style>{WAYS}{''.join(rules)}</style>"


def position_words(positions: str, cells: int) -> str:
    """ "counted", "cells" or "own" as a reader says it, for rows of so many cells."""
    known = {"counted": say("from the mask"), "own": say("computed by the model")}
    return known.get(positions, f"0…{cells - 1}")


def side_label(side: str, positions: str, cells: int) -> str:
    """ "Left padding, ids 0…22", the name of a row of ways."""
    return say("{side}, ids {ids}", side=say(SIDES[side]), ids=position_words(positions, cells))


def _cells(text: PaddedText, tolerance: float, trap: bool) -> list[Markup]:
    ours = " " + say("(added)") if text.ours else ""
    padding = " + " + say("{count} padding", count=text.padding) if text.padding else ""
    kind, exact = "wrong" if text.largest > tolerance else "correct", f"{text.largest:.6g}"
    cells = [td(f"{text.number}{ours}"), td(f"{text.tokens}{padding}"), td(amount(text.largest), kind, title=exact)]
    if text.alone is None:
        return cells
    cells += [_candidate(text.alone, text.alone), _candidate(text.padded, text.alone)]
    if trap:
        same = td(say("the same cell"), "faint")
        cells.append(_candidate(text.at_end, text.alone) if text.padding else same)
    return cells


def _candidate(one: Candidate | None, expected: Candidate) -> Markup:
    if one is None:
        return td()
    token, share = tag("span", one.label, class_="token"), tag("span", chance(one.probability))
    return td(join((token, share), " "), "correct" if one.label == expected.label else "wrong")


WAYS = """
  .st-key-ways button { min-height: 3.4rem; padding: .2rem .4rem; color: inherit; border-color: transparent;
    transition: none; }
  .st-key-ways button p { color: inherit; }
  .st-key-ways button:hover { color: inherit; border-color: currentColor; }
  .st-key-ways button div, .st-key-ways button p { white-space: normal; overflow: visible; }
  .st-key-ways button p { font-size: .875rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
  .st-key-ways button strong { display: block; }
  .st-key-ways button[kind="primary"] { outline: 2px solid currentColor; outline-offset: -2px; }
  .st-key-ways $caption { margin-bottom: 0; }
  .st-key-ways $caption p { line-height: 1.25; margin: 0; }
"""
STYLE = Markup("""
<style>
  table.texts th { vertical-align: bottom; white-space: normal; line-height: 1.25; }
  table.texts td > span { display: inline-block; white-space: nowrap; vertical-align: bottom; }
  table.numbers.texts td { white-space: normal; }
  table.texts td.wrong { color: light-dark(#B03A37, #E8837F); font-weight: 600; }
  table.texts td.faint { opacity: .6; }
  table.texts td .token { white-space: pre; line-height: inherit; }
</style>
""")
