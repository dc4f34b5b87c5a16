"""The logit lens as a table: a row a token, a column a layer, the likeliest next token in each cell."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from viz.html import join, table, tag
from viz.numbers import chance
from viz.palette import MARK, NOW, SEQUENTIAL, rgb

if TYPE_CHECKING:  # it imports torch
    from model.heads.logit_lens import LogitLens

CANDIDATES = "numbers lens-candidates"  # classes
SHADES = 32
DARK_INK, LIGHT_INK = "#101418", "#ffffff"


def column_names(readings: int) -> list[str]:
    """What the readings are of: "embedding", "L0", "L1" …; the last is the model's own output."""
    return ["embedding", *(f"L{layer}" for layer in range(readings - 1))]


def lens_table(lens: "LogitLens", pieces: Sequence[str], query: int, standard: "LogitLens | None" = None) -> Markup:
    """pieces: a label for every position of the row. query: the position that is framed. standard: the same positions
    under the standard masks, whose other predictions are marked.
    """
    names = column_names(len(lens.ids))
    last = tag("th", join((names[-1], tag("small", " the model"))), scope="col")
    head = [tag("th", "token", scope="col"), *(tag("th", name, scope="col") for name in names[:-1]), last]
    rows = []
    for place in range(lens.ids.shape[1]):
        position = lens.first + place
        title = join((tag("small", position), " ", tag("span", pieces[position], class_="t")))
        cells = [_cell(lens, reading, place, names[reading], standard) for reading in range(len(names))]
        chosen = {"class_": "chosen"} if position == query else {}
        rows.append(tag("tr", join((tag("th", title, scope="row"), *cells)), **chosen))
    body = tag("table", join((tag("tr", join(head)), *rows)), class_="lens")
    label = f"Logit lens: {lens.ids.shape[1]} tokens by {len(names)} readings, the likeliest next token in each cell."
    return Markup(STYLE) + tag("div", body, class_="lens", tabindex="0", role="region", aria_label=label)


def candidates_table(lens: "LogitLens", place: int) -> Markup:
    """One token's likeliest candidate after each layer, and how the token fares that follows in the text; where none
    follows, the next candidates."""
    follows = int(lens.next_ids[place])
    beside = "next" if follows < 0 else f"“{lens.labels[follows]}”, which follows"
    rows = []
    for reading, name in enumerate(column_names(len(lens.ids))):
        first, *others = _candidates(lens, reading, place)
        said = ", ".join(f"{label} {chance(share)}" for label, share in others[:2])
        if follows >= 0:
            share, rank = float(lens.next_probabilities[reading, place]), int(lens.next_ranks[reading, place])
            said = f"{chance(share)}, {ordinal(rank)}"
        cells = [
            tag("td", name),
            tag("td", first[0], class_="token"),
            tag("td", chance(first[1]), class_="number"),
            tag("td", said, class_="wide"),
        ]
        rows.append(cells)
    return table([[tag("th", "after"), tag("th", "likeliest", colspan=2), tag("th", beside)], *rows], CANDIDATES)


def key(*, compared: bool) -> str:
    """HTML: how to read the table."""
    marks = ["Colour: the probability of the token in the cell, brightness its square root.",
             '<span class="lens-mark follows"></span>the token that does follow in the text.']  # fmt: skip
    if compared:
        marks.append('<span class="lens-mark other"></span>another token than under the standard masks.')
    return f'<p class="key">{" ".join(marks)}</p>'


def ordinal(rank: int) -> str:
    """1 -> "1st", 2 -> "2nd", 11 -> "11th", 1042 -> "1,042nd"."""
    ending = "th" if rank % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank:,}{ending}"


def _cell(lens: "LogitLens", reading: int, place: int, name: str, standard: "LogitLens | None") -> Markup:
    found = _candidates(lens, reading, place)
    label, share = found[0]
    top, follows = int(lens.ids[reading, place, 0]), int(lens.next_ids[place])
    said = f"{name}: " + ", ".join(f"{one} {chance(probability)}" for one, probability in found)
    if follows >= 0:
        probability, rank = float(lens.next_probabilities[reading, place]), int(lens.next_ranks[reading, place])
        said += f". “{lens.labels[follows]}”, which follows: {chance(probability)}, {ordinal(rank)}"
    marks = ["follows"] if top == follows else []
    if standard is not None and top != int(standard.ids[reading, place, 0]):
        marks.append("other")
        was, probability = _candidates(standard, reading, place)[0]
        said += f". Standard masks: {was} {chance(probability)}"
    return tag("td", label, class_=" ".join([f"s{_shade(share)}", *marks]), title=said)


def _candidates(lens: "LogitLens", reading: int, place: int) -> list[tuple[str, float]]:
    ids, shares = lens.ids[reading, place], lens.probabilities[reading, place]
    return [(lens.labels[int(one)], float(share)) for one, share in zip(ids, shares, strict=True)]


def _shade(share: float) -> int:
    return round(float(np.sqrt(min(max(share, 0.0), 1.0))) * (SHADES - 1))


def _shades() -> str:
    """A style for each shade of the palette, with ink that is read on it."""
    rules = []
    for shade in range(SHADES):
        at = shade / (SHADES - 1) * (len(SEQUENTIAL) - 1)
        low = min(int(at), len(SEQUENTIAL) - 2)
        ends = zip(rgb(SEQUENTIAL[low]), rgb(SEQUENTIAL[low + 1]), strict=True)
        red, green, blue = (round(one + (other - one) * (at - low)) for one, other in ends)
        ink = DARK_INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else LIGHT_INK
        rules.append(f"table.lens td.s{shade} {{ background: rgb({red},{green},{blue}); color: {ink}; }}")
    return "\n  ".join(rules)


STYLE = f"""
<style>
  div.lens {{ overflow: auto; max-height: max(24rem, calc(100dvh - 19rem)); }}
  table.lens {{ border-collapse: separate; border-spacing: 2px; font-size: .85rem; width: 100%; }}
  table.lens th {{ font-weight: 600; text-align: left; padding: .1rem .4rem; white-space: nowrap; }}
  table.lens th small {{ font-weight: 400; opacity: .7; }}
  table.lens tr:first-child th {{ position: sticky; top: 0; z-index: 1; background: light-dark(#FFFFFF, #14171C); }}
  table.lens th[scope=row] {{ position: sticky; left: 0; background: light-dark(#FFFFFF, #14171C); font-weight: 400; }}
  table.lens .t, table.lens td {{ font-family: monospace; unicode-bidi: isolate; }}
  table.lens td {{ padding: .1rem .4rem; border-radius: 3px; max-width: 9rem; overflow: hidden; white-space: nowrap;
    text-overflow: ellipsis; min-width: 4rem; cursor: default; }}
  table.lens tr.chosen th[scope=row] {{ box-shadow: inset 3px 0 0 {MARK}; font-weight: 600; }}
  table.lens tr.chosen td {{ outline: 1.5px solid {MARK}; }}
  table.lens td.follows {{ text-decoration: underline; text-underline-offset: 3px; font-weight: 700; }}
  table.lens td.other {{ border-left: 5px dashed {NOW}; }}
  .lens-mark {{ display: inline-block; margin: 0 .35em 0 .8em; width: 1em; }}
  .lens-mark.follows {{ border-bottom: 2px solid currentColor; height: .8em; }}
  .lens-mark.other {{ border-left: 5px dashed {NOW}; height: .9em; width: .3em; vertical-align: -.1em; }}
  table.lens-candidates td.wide {{ white-space: normal; width: 45%; }}
  {_shades()}
</style>
"""
