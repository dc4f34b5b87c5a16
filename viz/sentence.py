"""One sentence, in plain words, about what the reader is seeing."""

import math
from dataclasses import dataclass

from viz.numbers import Leak, percent

MUCH = 0.25  # a share of attention that makes a habit
INDUCTION = 0.5  # the share from which a head is called an induction head
LITTLE = 0.02  # a share of attention below which nobody would speak of a leak


@dataclass(frozen=True)
class Scene:
    """What the sentence is about. Shares are 0 to 1, over the row's real tokens."""

    name: str  # the head's, "L3 H2"
    across: bool  # a target looks at its source
    can_be_causal: bool  # False: no causal mask here, whatever the switch says
    causal: bool
    padding: bool
    window: bool  # False: the model has a window, and it is off
    chunk: bool  # False: the model attends within chunks, and that is off
    standard_causal: bool  # whether the model was trained with a causal mask
    layer_only: bool
    only_attention: bool  # the model has no other through which padding could come in
    has_padding: bool  # the row's keys hold some
    pad_side: str
    leak: Leak
    previous: float  # share of the head's attention on the position before
    itself: float  # on the query's own token
    first: float  # on the first real token
    induction: float  # on the token after the previous occurrence; NaN where nothing repeats
    spread: float  # over how many keys alike a row with the mean entropy would spread: 2^entropy


def sentence(scene: Scene) -> str:
    """What is seen, and what to try next."""
    if scene.causal == scene.standard_causal and scene.padding and scene.window and scene.chunk:
        return f"{_habit(scene)} {_next(scene)}"
    parts = [_causal(scene)] if scene.causal != scene.standard_causal else []
    if not scene.window:
        parts.append(
            f"Without its window, {scene.name} may look as far as the text goes, which it never could in training."
        )
    if not scene.chunk:
        parts.append(
            f"Without its chunks, {scene.name} may look back past the one that a token stands in, which it never could "
            "in training."
        )
    if not scene.padding:
        parts.append(_padding(scene))
    if scene.layer_only:
        layer = scene.name.split()[0]
        parts.append(
            f"Only {layer}'s weights are redone, from the standard run's queries and keys; the other layers and the "
            "predictions stay."
        )
    return " ".join(parts)


def _causal(scene: Scene) -> str:
    if not scene.can_be_causal:
        who = "the target always sees" if scene.across else "the encoder always reads"
        return f"The causal mask is not for this attention: {who} the whole source."
    if scene.causal:
        return f"With a causal mask that this model never had in training, {scene.name} can only look back."
    share = percent(scene.leak.future)
    but = "" if scene.leak.future >= LITTLE else "; other heads may look ahead more"
    return f"Without the causal mask, {share} of this head's attention goes to tokens that come later{but}."


def _padding(scene: Scene) -> str:
    if not scene.has_padding:
        return (
            "The padding mask is off, but this row has no padding: "
            "look at a shorter row, or add a second line of another length."
        )
    untouched = scene.only_attention or scene.layer_only
    if scene.pad_side == "right" and scene.causal and scene.can_be_causal and untouched:
        return (
            "The padding mask is off, and real tokens do not notice: with padding on the right, the causal mask "
            "already hides it from them. Only the padding's own rows change."
        )
    share = percent(scene.leak.padding)
    so = ": to tokens nobody wrote" if scene.leak.padding >= LITTLE else "; other heads may look there more"
    return f"Without the padding mask, {share} of this head's attention goes to padding{so}."


def _habit(scene: Scene) -> str:
    """The first habit that is strong enough; the commonest, looking at the first token, comes last."""
    habits = [
        (
            scene.induction,
            MUCH,
            f"Where a token came up before, {{}} of {{}}'s attention is on what followed it{_called(scene)}.",
        ),
        (scene.previous, MUCH, "{} of {}'s attention goes to the token just before."),
        (scene.itself, 0.5, "{} of {}'s attention stays on the token itself."),
        (scene.first, MUCH, "{} of {}'s attention rests on the first token."),
    ]
    for share, enough, words in habits:
        if share >= enough:  # never so for NaN
            return words.format(percent(share), scene.name)
    if math.isnan(scene.spread):
        return f"No token of this row looks at anything in {scene.name}."
    return f"{scene.name} spreads each row's attention as widely as {scene.spread:.1f} equal weights would."


def _called(scene: Scene) -> str:
    return ": an induction head" if scene.induction >= INDUCTION else ""


def _next(scene: Scene) -> str:
    if scene.across:
        return "Rows are the target's tokens, columns the source's: what each was written from."
    if not scene.can_be_causal:
        return "The encoder reads its whole text at once: every token may look at every other."
    if scene.standard_causal:
        return "Switch Causal off to let every token see what comes later."
    return "Switch Causal on to see what is left when no token can look ahead."
