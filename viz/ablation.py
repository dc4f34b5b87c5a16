"""Effects of turning heads off: on one prediction, as a sentence; of every head, as a heatmap and a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup, escape

from i18n import N_, say, say_all, together
from model.heads.view import head_name
from viz.charts import layers_grid
from viz.html import signed, table, td, th, track
from viz.numbers import chance, head_count, layer_count
from viz.palette import NOW, STANDARD

NOTICED = 0.005  # nats; a smaller change does not show in a loss with two digits
LISTED = 10
MAX_NAMED = 8  # heads named in a sentence; if there are more, only their number is given
CHANGE = N_(
    "Turning {heads} off ({way}) changes the loss of “{target}” after “{query}” ({position}) by {nats} nats, and its "
    "probability from {before} to {after}."
)
LARGEST = N_("{head} matters most: it changes the loss by {nats} nats.")


@dataclass(frozen=True)
class PredictionTarget:
    """The prediction that is measured: token `target` after token `query`, which is at `position`. follows: whether the
    target is the token that follows in the text; otherwise it is the most likely one with all heads on."""

    target: str
    query: str
    position: int
    follows: bool


@dataclass(frozen=True, eq=False)
class EffectsView:
    """Effects of single heads. effects: float32 [L,H], the increase of the target's loss in nats with one head off; NaN
    where not measured yet. layers: the number of each in the network. off: the heads that the user has turned off."""

    effects: np.ndarray
    layers: Sequence[int]
    off: frozenset[tuple[int, int]]

    def name(self, layer: int, head: int) -> str:
        """Return the head's name: "L4 H0"."""
        return head_name(self.layers[layer], head)

    def ranked(self) -> list[tuple[int, int]]:
        """Return the measured heads, in order of decreasing effect: the largest increase of the loss first."""
        heads = [(layer, head) for layer, head in np.argwhere(~np.isnan(self.effects)).tolist()]
        return sorted(heads, key=lambda head: -self.effects[head])

    def strongest(self) -> tuple[int, int]:
        """Return the head with the largest absolute effect."""
        return max(self.ranked(), key=lambda head: abs(self.effects[head]))


def sentence(names: Sequence[str], way: str, prediction: PredictionTarget, before: float, after: float) -> str:
    """Say what turning heads off does, as HTML. names: of these heads. way: how they are turned off, in words. before,
    after: the target's log-probabilities with all heads and without these."""
    if not names:
        return say("No head is off. Choose heads above, or rank them all by their effect on this prediction.")
    heads = say_all(names) if len(names) <= MAX_NAMED else say("{count} heads", count=len(names))
    about = {"heads": heads, "way": way, "position": prediction.position, "nats": signed(before - after, 2)}
    about |= {"target": escape(prediction.target), "query": escape(prediction.query)}
    return say(CHANGE, **_chances(before, after), **about)


def _chances(before: float, after: float) -> dict[str, str]:
    """Write the two probabilities, with more digits if the loss changes but both would look the same."""
    pairs = [{"before": chance(math.exp(before), digits), "after": chance(math.exp(after), digits)}
             for digits in range(1, 5)]  # fmt: skip
    changed = abs(before - after) >= NOTICED
    return next((pair for pair in pairs if changed and pair["before"] != pair["after"]), pairs[0])


def target_description(target: PredictionTarget) -> str:
    """Say which token is measured, as Markdown without any text from the user."""
    return (
        say("the token that follows in the text") if target.follows else say("the most likely token with all heads on")
    )


def effects_figure(view: EffectsView, *, dark: bool) -> go.Figure:
    """Draw the effects as a heatmap of layers by heads; heads that are off are framed."""
    columns, rows = [f"H{head}" for head in range(view.effects.shape[1])], list(map(head_name, view.layers))
    return layers_grid(
        view.effects, rows, columns, view.off, say("%{text} off: %{z:+.3f} nats"), say("nats"), dark=dark
    )


def effects_table(view: EffectsView) -> Markup:
    """Return a table of the heads with the largest absolute effects, the largest increase of the loss first."""
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
    """Say which head has the largest effect and how many have little; "" before any is measured."""
    ranked = view.ranked()
    if not ranked:
        return ""
    sizes = np.array([abs(view.effects[head]) for head in ranked])
    strongest = view.strongest()
    measured = say("Turned off one at a time: {count} of {total} heads.", count=len(ranked), total=view.effects.size)
    if max(sizes) < NOTICED:
        return together([measured, say("None changes the loss by {least} nats or more.", least=NOTICED)])
    most = say(LARGEST, head=view.name(*strongest), nats=signed(float(view.effects[strongest]), 2))
    few = say("Heads that change it by less than 0.05: {count}.", count=int((sizes < 0.05).sum()))
    return together([measured, most, few])


def effects_alt(view: EffectsView) -> str:
    """Return alternative text for effects_figure."""
    layers, heads = view.effects.shape
    what = say("Effect of each head, {layers} by {heads}.", layers=layer_count(layers), heads=head_count(heads))
    return together([what, ranking_sentence(view)])
