"""Effects of padding as HTML: the batch as a grid, with padding textured according to its mask; each text compared with
the same text alone; and all ways to pad in one table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from i18n import N_, listed, say, say_all, together
from viz.html import amount, join, scrollable, table, tag, td, th
from viz.numbers import Candidate, chance
from viz.palette import MASK_COLOURS, NOW, STANDARD, rgba

CHARACTER, AROUND, TITLES = 7.7, 10, 110  # widths in pixels: a character, space around a token, row titles
GROUND = "light-dark(#FFFFFF, #14171C)"  # the page's colours, as in .streamlit/config.toml
LOGITS, STATES = N_("logits"), N_("last hidden states")  # compared values: states if a model has no logits
DIFFERENCE = {
    LOGITS: N_("Difference: the largest difference between the token's logits and those of the same sentence run "
               "alone; “=” means at most {most}: rounding."),
    STATES: N_("Difference: the largest difference between the token's last hidden states and those of the same "
               "sentence run alone; “=” means at most {most}: rounding."),
}  # fmt: skip
MASKED = {
    "off": N_("padding that the model reads like any token: no mask"),
    "keys": N_("padding that no token attends to"),
    "both": N_("padding that no token attends to and that attends to none"),
}


@dataclass(frozen=True)
class PaddedText:
    """One text of a padded batch, T cells wide, compared with the same text alone.

    number: from 1. ours: whether the page added it, not the user. pieces [T]: a label for each token. keep [T]: True =
    a real token. positions [T]: the position ids given to the model, () if it computes them itself. differences
    [T]: the largest |logit - logit alone|, NaN at padding. alone, padded: the next token of the text alone and in the
    batch; at_end: the prediction at the last cell, padding or not. All three are None if the model predicts none.
    """

    number: int
    ours: bool
    pieces: Sequence[str]
    keep: Sequence[bool]
    positions: Sequence[int]
    differences: Sequence[float]
    alone: Candidate | None
    padded: Candidate | None
    at_end: Candidate | None

    @property
    def tokens(self) -> int:
        """The number of real tokens."""
        return sum(self.keep)

    @property
    def padding(self) -> int:
        """The number of padding cells."""
        return len(self.keep) - self.tokens

    @property
    def last(self) -> int:
        """The cell of the last real token, which predicts the next one."""
        return max(cell for cell, real in enumerate(self.keep) if real)

    @property
    def largest(self) -> float:
        """The largest difference over the real tokens."""
        return max(one for one, real in zip(self.differences, self.keep, strict=True) if real)

    def next_token_differs(self) -> bool:
        """Whether the most likely next token differs from that of the text alone."""
        return self.alone is not None and self.padded is not None and self.alone.label != self.padded.label


def grid(texts: Sequence[PaddedText], mask: str, tolerance: float, what: str = LOGITS) -> str:
    """Return the batch as a grid under a padding mask "off", "keys" or "both". Differences up to `tolerance` are "=".

    If it is wider than the screen it scrolls, starting at the side without padding, where the rows are aligned. what:
    LOGITS or STATES.
    """
    head = [th(say("cell"), scope="row"), *(th(cell, scope="col") for cell in range(len(texts[0].pieces)))]
    most = max(text.largest for text in texts)
    rows = table([head, *(_row(text, mask, tolerance, most) for text in texts)], "padded")
    side = "padded right" if any(not text.keep[0] for text in texts) else "padded"  # not shown
    box = scrollable(rows, alt(texts, mask, tolerance), side)
    longest = (max(map(len, pieces)) for pieces in zip(*(text.pieces for text in texts), strict=True))
    width = TITLES + sum(count * CHARACTER + AROUND for count in longest)  # with tokens written horizontally
    rule = f"@container (min-width: {width:.0f}px) {{ table.padded td .t {{ writing-mode: horizontal-tb; }} }}"
    return f"{STYLE}<style>{rule}</style>{box}{_key(texts, mask, tolerance, what)}"


def alt(texts: Sequence[PaddedText], mask: str, tolerance: float) -> str:
    """Return alternative text for the grid."""
    padded = [text for text in texts if text.padding]
    widths = say_all([say("{count} of sentence {number}", count=one.padding, number=one.number) for one in padded])
    changed = [text for text in texts if text.largest > tolerance]
    where = listed(
        say("sentence {number} by up to {amount}", number=text.number, amount=amount(text.largest)) for text in changed
    )
    sizes = {"sentences": len(texts), "cells": len(texts[0].pieces)}
    return say("The batch: {sentences} sentences by {cells} cells. Cells of padding: {widths}: {masked}. Sentences "
               "that differ from their run alone: {where}.", **sizes, widths=widths or say("none"),
               masked=say(MASKED[mask]), where=where or say("none"))  # fmt: skip


def _row(text: PaddedText, mask: str, tolerance: float, most: float) -> list[Markup]:
    name = N_("sentence {number} (added)") if text.ours else N_("sentence {number}")
    position = say("position id") if text.positions else None
    head = th(_lines(say(name, number=text.number), position, say("difference")), scope="row")
    return [head, *(_cell(text, cell, mask, tolerance, most) for cell in range(len(text.pieces)))]


def _lines(token: str, position: object, difference: str) -> Markup:
    parts = [tag("span", token, class_="t"), tag("span", difference, class_="d")]
    return join(parts if position is None else [parts[0], tag("span", position, class_="p"), parts[1]])


def _cell(text: PaddedText, cell: int, mask: str, tolerance: float, most: float) -> Markup:
    token, position = text.pieces[cell], text.positions[cell] if text.positions else None
    if not text.keep[cell]:
        return td(_lines(token, position, ""), f"pad {mask}", title=say(MASKED[mask]))
    difference, read = text.differences[cell], " read" * (cell == text.last and text.padded is not None)
    away = say("differs by {amount} from the same token alone", amount=amount(difference))
    if difference <= tolerance:
        return td(_lines(token, position, "="), "same" + read, title=away)
    shade = rgba(NOW, 0.14 + 0.4 * (min(difference / most, 1.0) if math.isfinite(most) else 1.0))
    return td(_lines(token, position, amount(difference)), "apart" + read, style=f"background:{shade}", title=away)


def _key(texts: Sequence[PaddedText], mask: str, tolerance: float, what: str) -> str:
    parts = []
    if any(text.padding for text in texts):
        parts.append(f'<span class="padded swatch {mask}"></span>' + say("{name}.", name=say(MASKED[mask])))
    parts.append(say(DIFFERENCE[what], most=amount(tolerance)))
    if texts[0].padded is not None:
        parts.append(say("Underlined: each sentence's last token, where the next one is read."))
    return f'<p class="key">{together(parts)}</p>'


def _stripes(angle: int, alpha: float) -> str:
    colour = rgba(MASK_COLOURS["padding"], alpha)
    return f"repeating-linear-gradient({angle}deg,{colour} 0 2px,transparent 2px 6px)"


STYLE = f"""
<style>
  div.padded {{ container-type: inline-size; overflow-x: auto; padding-bottom: .4rem; }}
  div.padded.right {{ direction: rtl; }}
  table.padded {{ direction: ltr; }}
  div.padded.right table.padded {{ margin-left: 0; margin-right: auto; }}
  table.padded {{ border-collapse: separate; border-spacing: 2px; font-variant-numeric: tabular-nums; }}
  table.padded th {{ font-weight: 400; font-size: .75rem; opacity: .75; text-align: center; padding: 0 .15rem; }}
  table.padded th[scope=row] {{ text-align: right; white-space: nowrap; vertical-align: bottom; padding-right: .5rem;
    position: sticky; left: 0; z-index: 1; background: {GROUND}; opacity: 1; }}
  table.padded th .t {{ font-weight: 600; }}
  table.padded td {{ vertical-align: bottom; text-align: center; padding: .2rem .25rem .1rem; border-radius: 3px;
    background: rgba(128,128,128,.09); position: relative; min-width: 1.4rem; }}
  table.padded td .t {{ font-family: monospace; font-size: .85rem; unicode-bidi: isolate; white-space: pre;
    writing-mode: vertical-rl; margin: 0 auto; max-height: 8rem; overflow: hidden; }}
  table.padded span {{ display: block; line-height: 1.35; }}
  table.padded .p, table.padded .d {{ font-size: .75rem; min-height: 1.35em; white-space: nowrap; }}
  table.padded :is(.p, th .d, td.same .d) {{ opacity: .75; }}
  table.padded td.pad .t {{ opacity: .8; }}
  table.padded td.apart .p {{ opacity: 1; }}
  table.padded td.apart .d {{ font-weight: 600; }}
  table.padded td.read {{ box-shadow: inset 0 -2px 0 currentColor; }}
  table.padded td.pad.off, .padded.swatch.off {{ background: {MASK_COLOURS["padding"]}59; }}
  table.padded td.pad.keys, .padded.swatch.keys {{ background: {_stripes(45, 0.45)}; }}
  table.padded td.pad.both, .padded.swatch.both {{ background: {_stripes(45, 0.3)}, {_stripes(135, 0.3)}; }}
</style>
"""


SIDES = {"left": N_("Left padding"), "right": N_("Right padding")}
MASKS = {
    "off": N_("no padding mask"),
    "keys": N_("padding mask on keys"),
    "both": N_("padding mask on keys and queries"),
}


@dataclass(frozen=True)
class Way:
    """One way to pad a batch, and its results.

    side "left" or "right"; mask "off", "keys" or "both"; positions "counted", "cells", or "own" of a model that accepts
    none. difference: the largest of any text's logits from those of the text alone. others: how many texts have
    another next token, None if none is predicted. correct: whether the difference is rounding.
    """

    side: str
    mask: str
    positions: str
    difference: float
    others: int | None
    correct: bool

    @property
    def key(self) -> str:
        """The widget key of its button, also used in the button's style."""
        return f"way_{self.side}_{self.mask}_{self.positions}"


def texts_table(texts: Sequence[PaddedText], tolerance: float) -> Markup:
    """Return a table of each text's length, largest difference and next token: alone, in the batch, at position -1."""
    guesses = texts[0].alone is not None
    trap = guesses and any(text.last < len(text.keep) - 1 for text in texts)
    titles = [say("sentence"), say("tokens"), say("largest difference")]
    titles += [say("next token alone"), say("in the batch")] if guesses else []
    titles += [say("read at position −1")] if trap else []
    rows = [[th(title, scope="col") for title in titles], *(_cells(text, tolerance, trap) for text in texts)]
    return TEXTS_STYLE + table(rows, "numbers texts")  # not shown


def way_label(way: Way, texts: int) -> str:
    """Return a way's result as Markdown, the label of its button. texts: their number."""
    verdict = say("✓ correct") if way.correct else say("✗ wrong")
    label = f"**{verdict}** {amount(way.difference)}"
    if not way.others:
        return label
    return label + " · " + say("{others} of {texts} next tokens differ", others=way.others, texts=texts)


def choices(way: Way, cells: int) -> list[str]:
    """Return a way's settings: "Left padding", "no padding mask", "position ids 0…22". cells: of a row."""
    ids = say("position ids {which}", which=position_words(way.positions, cells))
    return [say(SIDES[way.side]), say(MASKS[way.mask]), ids]


def way_name(way: Way, cells: int) -> str:
    """Return a way's settings as one phrase. cells: of a row."""
    return listed(choices(way, cells))


def ways_style(ways: Sequence[Way]) -> str:
    """Return CSS that colours the buttons of correct and wrong ways and frames the one shown."""
    colours = {True: f"{STANDARD}33", False: f"{NOW}40"}
    rules = [f".st-key-{way.key} button:is(*, :hover) {{ background: {colours[way.correct]}; }}" for way in ways]
    return f"<style>{WAYS}{''.join(rules)}</style>"


def position_words(positions: str, cells: int) -> str:
    """Describe the position ids "counted", "cells" or "own" of rows of `cells` cells."""
    known = {"counted": say("from the mask"), "own": say("computed by the model")}
    return known.get(positions, f"0…{cells - 1}")


def side_label(side: str, positions: str, cells: int) -> str:
    """Return the name of a row of ways: "Left padding, ids 0…22"."""
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
TEXTS_STYLE = Markup("""
<style>
  table.texts th { vertical-align: bottom; white-space: normal; line-height: 1.25; }
  table.texts td > span { display: inline-block; white-space: nowrap; vertical-align: bottom; }
  table.numbers.texts td { white-space: normal; }
  table.texts td.wrong { color: light-dark(#B03A37, #E8837F); font-weight: 600; }
  table.texts td.faint { opacity: .6; }
  table.texts td .token { white-space: pre; line-height: inherit; }
</style>
""")
