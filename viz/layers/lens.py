"""The logit lens as a table: a row a token, a column a layer, the likeliest next token in each cell."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from i18n import N_, listed, say
from model.heads.view import head_name
from viz.html import join, table, tag, td, th
from viz.numbers import chance
from viz.palette import MARK, NOW, ink_on
from viz.palette import table as palette

if TYPE_CHECKING:  # it imports torch
    from model.heads.logit_lens import LogitLens

CANDIDATES = "numbers lens-candidates"  # not shown: classes
SHADES = 32
ENDINGS = {1: N_("{rank:,}st"), 2: N_("{rank:,}nd"), 3: N_("{rank:,}rd")}


def column_names(readings: int) -> list[str]:
    """What the readings are of: "embedding", "L0", "L1" …; the last is the model's own output."""
    return [say("embedding"), *map(head_name, range(readings - 1))]


def lens_table(lens: "LogitLens", pieces: Sequence[str], query: int, standard: "LogitLens | None" = None) -> Markup:
    """pieces: a label for every position of the row. query: the position that is framed. standard: the same positions
    under the standard masks, whose other predictions are marked.
    """
    names = column_names(len(lens.ids))
    last = th(join((names[-1], tag("small", " " + say("the model")))), scope="col")
    rows = [tag("tr", join([*(th(name, scope="col") for name in (say("token"), *names[:-1])), last]))]
    for place in range(lens.ids.shape[1]):
        position = lens.first + place
        title = join((tag("small", position), " ", tag("span", pieces[position], class_="t", translate="no")))
        cells = [_cell(lens, reading, place, names[reading], standard) for reading in range(len(names))]
        chosen = {"class_": "chosen"} if position == query else {}
        rows.append(tag("tr", join((th(title, scope="row"), *cells)), **chosen))
    label = say("Logit lens: {tokens} tokens by {readings} readings, the most likely next token in each cell.",
                tokens=lens.ids.shape[1], readings=len(names))  # fmt: skip
    body = tag("table", join(rows), class_="lens")
    return Markup(STYLE) + tag("div", body, class_="lens", tabindex="0", role="region", aria_label=label)


def candidates_table(lens: "LogitLens", place: int) -> Markup:
    """One token's likeliest candidate after each layer, and how the token fares that follows in the text; where none
    follows, the next candidates."""
    follows = int(lens.next_ids[place])
    beside = say("next") if follows < 0 else say("“{token}”, the actual next token", token=lens.labels[follows])
    rows = []
    for reading, name in enumerate(column_names(len(lens.ids))):
        (label, share), *others = _candidates(lens, reading, place)
        nearest = (join((tag("code", other, translate="no"), chance(its)), " ") for other, its in others[:2])
        said: str = join(nearest, say(", "))
        if follows >= 0:
            said = listed(_of_next(lens, reading, place))
        rows.append([td(name), td(label, "token", translate="no"), td(chance(share), "number"), td(said, "wide")])
    head = [th(say("after")), th(say("most likely"), colspan=2), th(beside)]
    return table([head, *rows], CANDIDATES)


def key(*, compared: bool) -> Markup:
    """How to read the table."""
    mark = Markup('<span class="lens-mark {}"></span>{}')
    marks = [
        say("Colour: the probability of the token in the cell, brightness its square root."),
        mark.format("follows", say("the actual next token of the text.")),
    ]
    if compared:
        marks.append(mark.format("other", say("a different token than under the standard masks.")))
    return tag("p", Markup(" ").join(marks), class_="key")


def ordinal(rank: int) -> str:
    """1 -> "1st", 2 -> "2nd", 11 -> "11th", 1042 -> "1,042nd"."""
    if rank % 100 not in (11, 12, 13) and rank % 10 in ENDINGS:
        return say(ENDINGS[rank % 10], rank=rank)
    return say("{rank:,}th", rank=rank)


def _cell(lens: "LogitLens", reading: int, place: int, name: str, standard: "LogitLens | None") -> Markup:
    found = _candidates(lens, reading, place)
    label, share = found[0]
    top, follows = int(lens.ids[reading, place, 0]), int(lens.next_ids[place])
    parts = [f"{name}: " + listed(f"{one} {chance(probability)}" for one, probability in found)]
    if follows >= 0:
        share_of_next, rank = _of_next(lens, reading, place)
        next_one = {"token": lens.labels[follows], "chance": share_of_next, "rank": rank}
        parts.append(say("“{token}”, the actual next token: {chance}, {rank}", **next_one))
    marks = ["follows"] if top == follows else []
    if standard is not None and top != int(standard.ids[reading, place, 0]):
        marks.append("other")
        was, probability = _candidates(standard, reading, place)[0]
        parts.append(say("Standard masks: {token} {chance}", token=was, chance=chance(probability)))
    shade = round(min(max(share, 0.0), 1.0) ** 0.5 * (SHADES - 1))
    return td(label, " ".join([f"s{shade}", *marks]), title=say(". ").join(parts), translate="no")


def _candidates(lens: "LogitLens", reading: int, place: int) -> list[tuple[str, float]]:
    ids, shares = lens.ids[reading, place], lens.probabilities[reading, place]
    return [(lens.labels[int(one)], float(share)) for one, share in zip(ids, shares, strict=True)]


def _of_next(lens: "LogitLens", reading: int, place: int) -> tuple[str, str]:
    """The probability and the rank of the token that follows in the text."""
    return chance(float(lens.next_probabilities[reading, place])), ordinal(int(lens.next_ranks[reading, place]))


def _shades() -> str:
    colours = np.frombuffer(palette(SHADES), np.uint8).reshape(SHADES, 3).tolist()
    rules = []
    for shade, (red, green, blue) in enumerate(colours):
        look = f"{{ background: rgb({red},{green},{blue}); color: {ink_on(red, green, blue)}; }}"
        rules.append(f"table.lens td.s{shade} {look}")  # not shown
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
