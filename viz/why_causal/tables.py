"""The four combinations side by side, and every head's copy score, as HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from i18n import N_, say
from viz.numbers import percent
from viz.why_causal.charts import colour

STYLE = Markup("""<style>
.four { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .6rem; }
@media (max-width: 640px) { .four { grid-template-columns: minmax(0, 1fr); } }
.four .one { border: 1px solid rgba(128,128,128,.3); border-left-width: 4px; border-radius: 5px; padding: .4rem .7rem; }
.four .what { font-size: .875rem; margin: 0; }
.four .numbers { display: flex; flex-wrap: wrap; gap: 0 1.1rem; align-items: baseline; }
.four .number b { font-size: 1.3rem; }
.four .number { font-size: .82rem; white-space: nowrap; font-variant-numeric: tabular-nums; }
.four .written { font-family: monospace; font-size: .82rem; line-height: 1.35; overflow-wrap: anywhere;
  margin: .3rem 0 0; }
.four .given { opacity: .75; }
table.copies { border-collapse: separate; border-spacing: 3px; font-size: .82rem; font-variant-numeric: tabular-nums; }
table.copies th { font-weight: 500; opacity: .75; padding: 0 .3rem; text-align: left; }
table.copies td { padding: .22rem .45rem; border-radius: 3px; text-align: right; }
table.copies td.chosen { outline: 2px solid currentColor; }
</style>""")


HOW = {  # of a combination, by whether it was trained and is run with the mask
    (True, True): N_("trained <b>with</b> the mask, run <b>with</b>"),
    (True, False): N_("trained <b>with</b> the mask, run <b>without</b>"),
    (False, True): N_("trained <b>without</b> the mask, run <b>with</b>"),
    (False, False): N_("trained <b>without</b> the mask, run <b>without</b>"),
}


@dataclass(frozen=True)
class TwinCard:
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


def four(cards: Sequence[TwinCard]) -> Markup:
    """Two and two, as they come: a row for each training, a column for each run."""
    return Markup('{}<div class="four">{}</div>').format(STYLE, Markup().join(map(_card, cards)))


def copies(scores: np.ndarray, chosen: tuple[int, int] | None, *, blocked: bool) -> Markup:
    """Each head's copy score [L,H], 0 to 1, shaded by it; blocked: the mask leaves nobody the next token."""
    heads = Markup().join(Markup('<th scope="col">H{}</th>').format(head) for head in range(scores.shape[1]))
    rows = Markup().join(
        Markup('<tr><th scope="row">L{}</th>{}</tr>').format(
            layer, Markup().join(_copy(float(score), (layer, head) == chosen) for head, score in enumerate(row))
        )
        for layer, row in enumerate(scores)
    )
    note = Markup("<caption>{}</caption>").format(say("blocked: exactly 0 in every head")) if blocked else ""
    return Markup('{}<table class="copies">{}<tr><th scope="col">{}</th>{}</tr>{}</table>').format(
        STYLE, note, say("layer"), heads, rows
    )


def nats(loss: float) -> str:
    """15.402 -> "15.40"; 0.0312 -> "0.031"; 0.0004 and less -> "under 0.001"."""
    if loss >= 0.1:
        return f"{loss:.2f}"
    return f"{loss:.3f}" if loss >= 0.001 else say("under 0.001")


def _copy(score: float, chosen: bool) -> Markup:
    shade = min(max(score, 0.0), 1.0) * 0.45  # so that the number stands out on light and on dark ground
    return Markup('<td class="{}" style="background: rgba(230,159,0,{:.2f})">{}</td>').format(
        "chosen" if chosen else "", shade, percent(score)
    )


def _card(card: TwinCard) -> Markup:
    numbers = (
        Markup(say("<b>{loss}</b> nats a token")).format(loss=nats(card.loss)),
        Markup(say("<b>{share}</b> guessed right")).format(share=percent(card.accuracy)),
        Markup(say("<b>{different}</b> different tokens of the {tokens} it writes")).format(
            different=card.different, tokens=card.tokens
        ),
    )
    return Markup(
        '<div class="one" style="border-left-color:{}"><p class="what">{}</p><div class="numbers">{}</div>'
        '<p class="written" translate="no"><span class="given">{}</span>{}</p></div>'
    ).format(
        colour(card.trained),
        Markup(say(HOW[card.trained, card.run])),
        Markup().join(Markup('<span class="number">{}</span>').format(one) for one in numbers),
        _shown(card.given),
        _shown(card.written),
    )


def _shown(text: str) -> str:
    return text.replace("\n", "⏎")
