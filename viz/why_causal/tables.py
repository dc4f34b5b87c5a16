"""The four combinations side by side, and every head's copy score, as HTML."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from viz.numbers import percent
from viz.why_causal.charts import colour

STYLE = """<style>
.four { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .6rem; }
.four .one { border: 1px solid rgba(128,128,128,.3); border-left-width: 4px; border-radius: 5px; padding: .4rem .7rem; }
.four .what { font-size: .875rem; margin: 0; }
.four .numbers { display: flex; flex-wrap: wrap; gap: 0 1.1rem; align-items: baseline; }
.four .number b { font-size: 1.3rem; }
.four .number { font-size: .82rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.four .written { font-family: monospace; font-size: .82rem; line-height: 1.35; overflow-wrap: anywhere;
  margin: .3rem 0 0; }
.four .given { opacity: .6; }
table.copies { border-collapse: separate; border-spacing: 3px; font-size: .82rem; font-variant-numeric: tabular-nums; }
table.copies th { font-weight: 500; opacity: .75; padding: 0 .3rem; text-align: left; }
table.copies td { padding: .22rem .45rem; border-radius: 3px; text-align: right; }
table.copies td.chosen { outline: 2px solid currentColor; }
</style>"""


@dataclass(frozen=True)
class Card:
    """One combination. loss: nats a token. accuracy: 0 to 1. given, written: what it was given, and wrote on.

    different, tokens: how many different tokens there are among those it wrote, and how many it wrote.
    """

    trained: bool
    run: bool
    loss: float
    accuracy: float
    given: str
    written: str
    different: int
    tokens: int


def four(cards: Sequence[Card]) -> str:
    """Two and two, as they come: a row for each training, a column for each run."""
    return f'{STYLE}<div class="four">{"".join(map(_card, cards))}</div>'


def copies(scores: np.ndarray, chosen: tuple[int, int] | None, *, blocked: bool) -> str:
    """Each head's copy score [L,H], 0 to 1, shaded by it; blocked: the mask leaves nobody the next token."""
    heads = "".join(f'<th scope="col">H{head}</th>' for head in range(scores.shape[1]))
    rows = ""
    for layer, row in enumerate(scores):
        cells = "".join(_copy(score, (layer, head) == chosen) for head, score in enumerate(row))
        rows += f'<tr><th scope="row">L{layer}</th>{cells}</tr>'
    note = "<caption>blocked: exactly 0 in every head</caption>" if blocked else ""
    return f'{STYLE}<table class="copies">{note}<tr><th scope="col">layer</th>{heads}</tr>{rows}</table>'


def nats(loss: float) -> str:
    """15.402 -> "15.40"; 0.0312 -> "0.031"; 0.0004 and less -> "under 0.001"."""
    if loss >= 0.1:
        return f"{loss:.2f}"
    return f"{loss:.3f}" if loss >= 0.001 else "under 0.001"


def _copy(score: float, chosen: bool) -> str:
    ground = f"background: rgba(230,159,0,{min(max(score, 0.0), 1.0) * 0.75:.2f})"
    return f'<td class="{"chosen" if chosen else ""}" style="{ground}">{percent(float(score))}</td>'


def _card(card: Card) -> str:
    written = f'<span class="given">{_shown(card.given)}</span>{_shown(card.written)}'
    return (
        f'<div class="one" style="border-left-color:{colour(card.trained)}">'
        f'<p class="what">trained <b>{_word(card.trained)}</b> the mask, run <b>{_word(card.run)}</b></p>'
        f'<div class="numbers"><span class="number"><b>{nats(card.loss)}</b> nats a token</span>'
        f'<span class="number"><b>{percent(card.accuracy)}</b> guessed right</span>'
        f'<span class="number"><b>{card.different}</b> different tokens of the {card.tokens} it writes</span></div>'
        f'<p class="written">{written}</p></div>'
    )


def _shown(text: str) -> str:
    return html.escape(text.replace("\n", "⏎"))


def _word(causal: bool) -> str:
    return "with" if causal else "without"
