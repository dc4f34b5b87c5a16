"""What padding did, in two HTML tables: each text against itself alone, and all ways to pad at once."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from viz.numbers import Candidate, percent
from viz.padding.grid import PaddedText, amount
from viz.palette import NOW, STANDARD

MASKS = {"off": "no padding mask", "keys": "mask on keys", "both": "mask on keys and queries"}


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


def texts_table(texts: Sequence[PaddedText], tolerance: float) -> str:
    """For each text its length, its largest difference, and its next token alone, in the batch and at position -1."""
    guesses = texts[0].alone is not None
    trap = guesses and any(text.last < len(text.keep) - 1 for text in texts)
    titles = ["sentence", "tokens", "largest difference"]
    titles += ["alone it goes on with", "in the batch"] if guesses else []
    titles += ["read at position −1"] if trap else []
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "".join(f"<tr>{_cells(text, tolerance, trap)}</tr>" for text in texts)
    return f'{STYLE}<table class="numbers texts"><tr>{head}</tr>{rows}</table>'


def ways_table(ways: Sequence[Way], shown: Way, texts: int, cells: int) -> str:
    """Every way at once: a row for each side and kind of position ids, a column for each mask; `shown` is framed."""
    lines = dict.fromkeys((way.side, way.positions) for way in ways)
    by_choice = {(way.side, way.positions, way.mask): way for way in ways}
    head = "".join(f'<th scope="col">{title}</th>' for title in MASKS.values())
    rows = "".join(
        f'<tr><th scope="row">{side} padding,<br><span>ids {position_words(positions, cells)}</span></th>'
        + "".join(_way(by_choice[side, positions, mask], shown, texts) for mask in MASKS)
        + "</tr>"
        for side, positions in lines
    )
    return f'{STYLE}<table class="numbers ways"><tr><th></th>{head}</tr>{rows}</table>'


def position_words(positions: str, cells: int) -> str:
    """ "counted", "cells" or "own" as a reader says it, for rows of so many cells."""
    return {"counted": "from the mask", "own": "of the model's own"}.get(positions, f"0…{cells - 1}")


def _cells(text: PaddedText, tolerance: float, trap: bool) -> str:
    ours = " (ours)" if text.ours else ""
    padding = f" + {text.padding} padding" if text.padding else ""
    wrong = text.largest > tolerance
    cells = (
        f"<td>{text.number}{ours}</td><td>{text.tokens}{padding}</td>"
        f'<td class="{"wrong" if wrong else "correct"}" title="{text.largest:.6g}">{amount(text.largest)}</td>'
    )
    if text.alone is None or text.padded is None:
        return cells
    cells += _candidate(text.alone, text.alone) + _candidate(text.padded, text.alone)
    if trap:
        cells += _candidate(text.at_end, text.alone) if text.padding else '<td class="faint">the same cell</td>'
    return cells


def _candidate(one: Candidate | None, expected: Candidate) -> str:
    if one is None:
        return "<td></td>"
    kind = "correct" if one.label == expected.label else "wrong"
    token = f'<span class="token">{html.escape(one.label)}</span>'
    return f'<td class="{kind}">{token} <span>{percent(one.probability)}</span></td>'


def _way(way: Way, shown: Way, texts: int) -> str:
    kind = "correct" if way.correct else "wrong"
    here = ' aria-current="true"' if way == shown else ""
    mark = "✓" if way.correct else "✗"
    others = f"<br>{way.others} of {texts} next tokens differ" if way.others else ""
    return (
        f'<td class="{kind}"{here} title="largest difference {way.apart:.6g}">'
        f"<b>{mark} {kind}</b><br>{amount(way.apart)}{others}</td>"
    )


STYLE = f"""
<style>
  table.ways th, table.texts th {{ vertical-align: bottom; white-space: normal; line-height: 1.25; }}
  table.ways th span, table.texts td > span {{ display: inline-block; white-space: nowrap; }}
  table.ways th[scope=row] {{ vertical-align: middle; }}
  table.numbers.ways td {{ border: 3px solid transparent; background-clip: padding-box; line-height: 1.35;
    border-radius: 6px; padding: .3rem .5rem; white-space: normal; }}
  table.numbers.ways td.correct {{ background-color: {STANDARD}33; }}
  table.numbers.ways td.wrong {{ background-color: {NOW}40; }}
  table.numbers.ways td[aria-current] {{ outline: 2px solid currentColor; outline-offset: -3px; }}
  table.numbers.texts td {{ white-space: normal; }}
  table.texts td.wrong {{ color: {NOW}; font-weight: 600; }}
  table.texts td.faint {{ opacity: .6; }}
  table.texts td > span {{ vertical-align: bottom; }}
  table.texts td .token {{ white-space: pre; line-height: inherit; }}
</style>
"""
