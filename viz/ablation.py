"""Heads turned off: what that does to one prediction, in a sentence; all heads' effects as a picture and a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup, escape

from i18n import N_, say, say_all, say_count, together
from model.heads.view import head_name
from viz.charts import both_sides, heat
from viz.heatmap import AXIS, colour_bar, figure
from viz.html import say_one, signed, table, td, th, track
from viz.numbers import chance
from viz.palette import MARK, NOW, STANDARD, diverging

NOTICED = 0.005  # nats: below that a loss is what it was, in two digits
ROW, LEAST, MOST = 26, 240, 620  # pixels of a layer, and of the picture
LISTED = 10
MOST_NAMED = 8  # heads in a sentence; more are counted
CHANGES = {  # of the loss, without some heads
    "none": N_("Turning {heads} off ({way}) changes the loss of “{target}” after “{query}” ({position}) by less than "
               "{least} nats."),
    "rise": N_("Turning {heads} off ({way}) raises the loss of “{target}” after “{query}” ({position}) by {nats:.2f} "
               "nats: {before} → {after}."),
    "fall": N_("Turning {heads} off ({way}) lowers the loss of “{target}” after “{query}” ({position}) by {nats:.2f} "
               "nats: {before} → {after}."),
}  # fmt: skip
LARGEST = {
    "rise": N_("Of {heads}, each turned off alone, {head} matters most: turning it off raises the loss by {nats:.2f} "
               "nats."),
    "fall": N_("Of {heads}, each turned off alone, {head} matters most: turning it off lowers the loss by {nats:.2f} "
               "nats."),
}  # fmt: skip


@dataclass(frozen=True)
class AskedPrediction:
    """The prediction that is asked about: the token (target) after the query, at its position. follows: whether it does
    follow in the text; else it is the likeliest with all heads on.
    """

    target: str
    query: str
    position: int
    follows: bool


@dataclass(frozen=True, eq=False)
class EffectsView:
    """effects: float32 [L,H], nats that the target's loss rises by with one head off; NaN where not measured yet.
    layers: the number of each in the network. off: the heads that are off above."""

    effects: np.ndarray
    layers: Sequence[int]
    off: frozenset[tuple[int, int]]

    def name(self, layer: int, head: int) -> str:
        """ "L4 H0"."""
        return head_name(self.layers[layer], head)

    def ranked(self) -> list[tuple[int, int]]:
        """The measured heads, the largest rise first."""
        heads = [(layer, head) for layer, head in np.argwhere(~np.isnan(self.effects)).tolist()]
        return sorted(heads, key=lambda head: -self.effects[head])


def sentence(names: Sequence[str], way: str, asked: AskedPrediction, before: float, after: float) -> str:
    """HTML. names: of the heads that are off. way: what that means, in words. before, after: the target's
    log-probabilities with all heads and without these."""
    if not names:
        return say("No head is off. Choose heads above, or rank them all by their effect on this prediction.")
    change = before - after
    heads = say_all(names) if len(names) <= MOST_NAMED else say("{count} heads", count=len(names))
    about = {"heads": heads, "way": way, "position": asked.position, "nats": abs(change), "least": NOTICED}
    about |= {"target": escape(asked.target), "query": escape(asked.query)}
    about |= {"before": chance(math.exp(before)), "after": chance(math.exp(after))}
    return say_one(CHANGES, "none" if abs(change) < NOTICED else "rise" if change > 0 else "fall", **about)


def what_is_asked(asked: AskedPrediction) -> str:
    """Which token the numbers are of, in markdown without what the reader typed."""
    if asked.follows:
        return say("the token that follows in the text")
    return say("the most likely token (all heads on)")


def effects_figure(view: EffectsView, *, dark: bool) -> go.Figure:
    """Layers by heads, the first layer on top; the heads that are off are framed. Colours go with the square root."""
    layers, heads = view.effects.shape
    reach = max(float(np.nanmax(np.abs(view.effects), initial=0.0)), 0.01)
    names = [[view.name(layer, head) for head in range(heads)] for layer in range(layers)]
    stops = [(float(at), colour) for at, colour in diverging(dark)]
    hover = say("%{text} off: %{z:+.3f} nats")
    trace = heat(
        view.effects, [f"H{head}" for head in range(heads)], list(map(head_name, view.layers)), "effects", hover
    )
    trace |= both_sides(reach, dark) | {
        "text": names,
        "xgap": 1,
        "ygap": 1,
        "colorbar": colour_bar(say("nats"), x=1.01),
    }
    trace["colorscale"] = [[0.5 + 2 * (at - 0.5) * abs(at - 0.5), colour] for at, colour in stops]
    axis = AXIS | {"tickfont": {"size": 11}}
    frame = {"type": "rect", "line": {"color": MARK, "width": 2}}
    frames = [
        frame | {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
        for layer, head in sorted(view.off)
    ]
    layout = {
        "height": min(max(ROW * layers + 60, LEAST), MOST),
        "margin": {"l": 50, "r": 70, "t": 8, "b": 32},
        "xaxis": axis | {"side": "bottom"},
        "yaxis": axis | {"autorange": "reversed"},
        "shapes": frames,
    }
    return figure([trace], layout)


def effects_table(view: EffectsView) -> Markup:
    """The heads with the largest effects either way, the largest rise first."""
    ranked = view.ranked()
    strongest = sorted(ranked, key=lambda head: -abs(view.effects[head]))[:LISTED]
    most = max((abs(view.effects[head]) for head in strongest), default=1.0) or 1.0
    rows = [[th(say("head off")), th(say("increase in the loss, nats"), colspan=2)]]
    for head in [head for head in ranked if head in strongest]:
        effect = float(view.effects[head])
        colour = NOW if effect > 0 else STANDARD
        rows.append([td(view.name(*head)), td(signed(effect), "number"), track(abs(effect) / most, colour)])
    return table(rows)


def ranking_sentence(view: EffectsView) -> str:
    """What of all heads stands out; "" before any was measured."""
    ranked = view.ranked()
    if not ranked:
        return ""
    sizes = np.array([abs(view.effects[place]) for place in ranked])
    strongest = ranked[int(sizes.argmax())]
    value = float(view.effects[strongest])
    whole = say_count("{count} head", "the {count} heads", len(ranked))
    if len(ranked) < view.effects.size:
        whole = say_count("the first head", "the first {count} heads", len(ranked))
    if abs(value) < NOTICED:
        return say("None of {heads}, turned off alone, changes it by {least} nats or more.", heads=whole, least=NOTICED)
    most = say_one(LARGEST, "rise" if value > 0 else "fall", heads=whole, head=view.name(*strongest), nats=abs(value))
    few = int((sizes < 0.05).sum())
    rest = say_count(
        "{count} of them changes it by less than 0.05.", "{count} of them change it by less than 0.05.", few
    )
    return together([most, rest]) if few else most


def effects_alt(view: EffectsView) -> str:
    """The picture for whoever cannot see it."""
    layers, heads = view.effects.shape
    what = say("Effect of each head, {layers} layers by {heads} heads.", layers=layers, heads=heads)
    return together([what, ranking_sentence(view)])
