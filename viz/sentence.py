"""Sentences on what the page shows: a head, losses, the prediction, two heads compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, say, together
from model.atlas.result import MIN_QUERIES, NAMED
from model.heads.view import HeadView
from viz.html import filled
from viz.mask_styles import STYLES, mask_name
from viz.numbers import Candidate, LeakShares, chance, percent

NOTICED = 0.1  # nats; a smaller change of one token's loss is not counted
SEEN = 0.01  # nats; a smaller change may not show in a loss with two digits
MUCH = 0.25  # a share of attention large enough for a pattern
DIFFERENT = 0.005  # a weight's change that shows in two digits
ROUNDING = 1e-6  # differences of two weights up to this are rounding
LENGTHS = N_("A and B have different lengths ({a} and {b} cells): both are shown, without a difference.")
SAME = N_("No weight differs by {least} or more between A and B.")
MOST = N_("A and B differ most where “{query}” ({query_at}) attends to “{key}” ({key_at}): {a:.3f} in A, {b:.3f} in B.")
MOST_OF_REAL = N_(
    "Apart from padding, A and B differ most where “{query}” ({query_at}) attends to “{key}” ({key_at}): {a:.3f} in A, "
    "{b:.3f} in B."
)


def loss_words(now: np.ndarray, standard: np.ndarray, tokens: Sequence[str]) -> str:
    """Say how losses [T] in nats changed, as HTML; "" if none can be compared. NaN: a token without a loss.

    A change counts as none if both losses are shown as the same number."""
    change = np.abs(now - standard)
    if np.isnan(change).all():
        return ""
    before, after = ([round(float(loss), 2) for loss in losses] for losses in (standard, now))  # not -0.00
    seen = np.not_equal(before, after) & ~np.isnan(change)
    if not seen.any():
        mean = say("Mean loss: {mean:.2f} nats/token.", mean=np.nanmean(now))
        return together([mean, say("No token's loss changes by {least} nats or more.", least=SEEN)])
    largest = int(np.nanargmax(np.where(seen, change, np.nan)))
    losses = {"before": standard[largest], "after": now[largest]}
    words = N_("The largest change is that of {token}: {before:.2f} → {after:.2f}.")
    return together([count_words(now, standard), say(words, token=named(tokens[largest], largest), **losses)])


def count_words(now: np.ndarray, standard: np.ndarray) -> str:
    """Say how the mean of losses [T] changed, and for how many tokens they fell and rose. At least one is not NaN."""
    change = now - standard
    counts = {"worse": int((change > NOTICED).sum()), "better": int((change < -NOTICED).sum()), "nats": NOTICED}
    text = say("Tokens predicted better by more than {nats} nats: {better:,}; worse: {worse:,}.", **counts)
    return together([_mean_words(now, standard), text])


def _mean_words(now: np.ndarray, standard: np.ndarray) -> str:
    means = {"before": np.nanmean(standard), "after": np.nanmean(now)}
    return say("Mean loss: {before:.2f} → {after:.2f} nats/token.", **means)


def prediction_words(token: str, position: int, standard: Candidate, now: Candidate) -> Markup:
    """Say how the most likely next token after this position changed; "" if it and its probability stay the same."""
    before, after = chance(standard.probability), chance(now.probability)
    if standard.label == now.label and before == after:
        return Markup()
    words = say(
        "After {token} the most likely next token was <b>{standard}</b> ({before}) and is now <b>{now}</b> ({after})."
    )
    labels = {"standard": standard.label, "now": now.label}
    return filled(words, token=named(token, position), before=before, after=after, **labels)


def named(token: str, position: int) -> Markup:
    """Return a token and its position as HTML."""
    return Markup("<b>{}</b> ({})").format(token, position)


def some_loss_worsened(now: np.ndarray, standard: np.ndarray) -> bool:
    """Whether some token is predicted noticeably worse than under the masks that the model was trained with."""
    return bool(np.nanmax(now - standard, initial=-np.inf) > NOTICED)


@dataclass(frozen=True)
class HeadScene:
    """The facts about a head that its sentence is made from. Shares are 0 to 1, over the row's real tokens."""

    name: str  # the head's, "L3 H2"
    across: bool  # cross-attention
    can_be_causal: bool  # False: this attention has no causal mask, whatever the switch says
    causal: bool
    padding: bool
    lifted: tuple[str, ...]  # the model's own masks with a size that are off and would change cells here
    idle: tuple[str, ...]  # the same kind of masks, which would change no cell here
    standard_causal: bool  # whether the model was trained with a causal mask
    layer_only: bool
    only_attention: bool  # padding can affect real tokens only through attention
    has_padding: bool  # some keys of the row are padding
    padded_text: str  # the other text of an encoder-decoder, "source" or "target", if it has padding; else ""
    chat: bool  # the text is a chat, whose messages are one row
    pad_side: str
    leak: LeakShares
    previous: float  # share of the head's attention on the position before
    itself: float  # share on the query's own token
    first: float  # share on the first real token
    induction: float  # share on the token after the previous occurrence; NaN if no token repeats
    repeats: int  # the queries that induction is measured on
    tokens: int  # the row's real queries
    spread: float  # 2^(mean entropy): the number of equal weights that have this entropy


def sentence(scene: HeadScene) -> str:
    """Say which pattern or leak a head shows, and what to try next."""
    if scene.causal == scene.standard_causal and scene.padding and not scene.lifted + scene.idle:
        if scene.tokens == 1 and not scene.across:
            return say("This row has one token, which can attend only to itself: try a longer text.")
        return together([_head_pattern(scene), _next(scene)])
    parts = [_causal(scene)] if scene.causal != scene.standard_causal else []
    parts += [say(STYLES[name].lifted, head=scene.name) for name in scene.lifted]
    parts += [say(IDLE, mask=mask_name(name), head=scene.name) for name in scene.idle]
    parts += [] if scene.padding else [_padding(scene)]
    parts += [say(LAYER_ONLY, layer=scene.name.split()[0])] if scene.layer_only else []
    return together(parts)


IDLE = N_("The {mask} mask is off, which changes no cell of {head} in this row.")
SCOPES = {"model": N_("re-run the model"), "layer": N_("this layer only")}  # of a lifted mask
LAYER_ONLY = N_(
    "Only {layer}'s weights are recomputed, from the standard run's queries and keys; the other layers and the "
    "predictions do not change."
)
NO_PADDING = N_(
    "The padding mask is off, but this row has no padding: choose a shorter row, or add a second line of another "
    "length."
)
PADDED_TEXTS = {
    "source": N_("The padding mask is off. The target has no padding; the source has some, which encoder and "
                 "cross-attention see without the mask."),
    "target": N_("The padding mask is off. The source has no padding; the target has some, which decoder attention "
                 "can see without the mask."),
}  # fmt: skip
NO_PADDING_OF_CHAT = N_(
    "The padding mask is off, but chat messages are one row, which has no padding: turn Chat messages off and type "
    "lines of different lengths."
)
HIDDEN = N_(
    "The padding mask is off, but real tokens are not affected: with padding on the right, the causal mask already "
    "hides it from them. Only the padding's own rows change."
)
TO_PADDING = N_(
    "Without the padding mask, {share} of this head's attention goes to padding, which is not part of the text."
)
HEAD_PATTERNS = {
    "induction": N_("An induction head: where a token occurred before, {share} of {head}'s attention is on what "
                    "followed it then (queries whose token last occurred three or more tokens earlier: {queries})."),
    "followed": N_("Induction: where a token occurred before, {share} of {head}'s attention is on what followed it "
                   "then (queries whose token last occurred three or more tokens earlier: {queries})."),
    "previous": N_("{share} of {head}'s attention goes to the token just before."),
    "itself": N_("{share} of {head}'s attention stays on the token itself."),
    "first": N_("{share} of {head}'s attention goes to the first token."),
}  # fmt: skip


def _causal(scene: HeadScene) -> str:
    if not scene.can_be_causal:
        return say("The causal mask does not apply to this attention: its queries always see the whole source.")
    if scene.causal:
        words = N_("With a causal mask that this model never had in training, {head} cannot attend to later tokens.")
        return say(words, head=scene.name)
    if scene.tokens == 1 and not scene.across:
        return say("The causal mask is off, but this row has one token, and no later one: try a longer text.")
    share = percent(scene.leak.future)
    return say("Without the causal mask, {share} of this head's attention goes to later tokens.", share=share)


def _padding(scene: HeadScene) -> str:
    after = scene.pad_side == "right" and scene.causal  # padding follows the real tokens of causal attention
    if not scene.has_padding and scene.padded_text:
        hidden = after and scene.padded_text == "target"
        return say(HIDDEN if hidden else PADDED_TEXTS[scene.padded_text])
    if not scene.has_padding:
        return say(NO_PADDING_OF_CHAT if scene.chat else NO_PADDING)
    untouched = scene.only_attention or scene.layer_only
    if after and scene.can_be_causal and untouched:
        return say(HIDDEN)
    return say(TO_PADDING, share=percent(scene.leak.padding))


def _head_pattern(scene: HeadScene) -> str:
    """Name the first pattern that is strong enough; the most common one, attending to the first token, comes last."""
    clear = scene.induction >= NAMED and scene.repeats >= MIN_QUERIES
    patterns = [
        (scene.induction, MUCH, "induction" if clear else "followed"),
        (scene.previous, MUCH, "previous"),
        (scene.itself, 0.5, "itself"),
        (scene.first, MUCH, "first"),
    ]
    for share, enough, pattern in patterns:
        if share >= enough:  # false for NaN
            return say(HEAD_PATTERNS[pattern], share=percent(share), head=scene.name, queries=scene.repeats)
    if math.isnan(scene.spread):
        return say("No token after the first attends to anything in {head}.", head=scene.name)
    words = N_("{head} spreads each row's attention as widely as {spread:.1f} equal weights would.")
    return say(words, head=scene.name, spread=scene.spread)


def _next(scene: HeadScene) -> str:
    if scene.across:
        return say("Rows are target tokens, columns are source tokens: what each target token was written from.")
    if not scene.can_be_causal:
        return say("The encoder reads its whole text at once: every token may attend to every other.")
    if scene.standard_causal:
        return say("Turn Causal off to let every token see later tokens.")
    return say("Turn Causal on to hide later tokens.")


def comparable(one: HeadView, other: HeadView) -> bool:
    """Whether a difference can be drawn: both have the same number of queries and of keys."""
    return one.weights.shape == other.weights.shape


def weights_sentence(one: HeadView, other: HeadView, real: Sequence[bool] | None = None) -> str:
    """Say where the weights of two heads differ most, or why they cannot be subtracted. HTML.

    real: [Q], True = no padding in either head; by default all. Padding is named only if no real query differs.
    """
    if not comparable(one, other):
        a, b = (f"{view.weights.shape[0]:,} × {view.weights.shape[1]:,}" for view in (one, other))
        return say(LENGTHS, a=a, b=b)
    change, rows = other.weights - one.weights, np.array([True] * len(one.weights) if real is None else real)
    if np.abs(change[rows]).max(initial=0) >= DIFFERENT:
        change = np.where(rows[:, None], change, 0)
    most = np.abs(change).max() - ROUNDING  # the first of equal cells: two cells of a row may change alike
    query, key = divmod(int(np.flatnonzero(np.abs(change) >= most)[0]), change.shape[1])
    if abs(change[query, key]) < DIFFERENT:
        return say(SAME, least=DIFFERENT)
    cell = {"query_at": _both(f"{one.first + query}", f"{other.first + query}")}
    cell |= {"key_at": _both(f"{one.first_key + key}", f"{other.first_key + key}")}
    cell |= {"query": escape(_both(one.queries[query], other.queries[query]))}
    cell |= {"key": escape(_both(one.keys[key], other.keys[key]))}
    padded = not rows.all() and rows[query]
    text = say(MOST_OF_REAL if padded else MOST, a=one.weights[query, key], b=other.weights[query, key], **cell)
    attend = (one.weights.max(1) > 0) & (other.weights.max(1) > 0)  # an empty row never agrees
    same = attend & rows & (one.weights.argmax(1) == other.weights.argmax(1))
    agreeing = N_("Queries that attend most to the same position in both: {same:,} of {queries:,}.")
    return together([text, say(agreeing, same=int(same.sum()), queries=int(rows.sum()))])


def prediction_sentence(one: Sequence[Candidate], other: Sequence[Candidate]) -> str:
    """Name the most likely next token of both, as HTML."""
    shares = {"a": chance(one[0].probability), "b": chance(other[0].probability)}
    tokens = {"one": escape(one[0].label), "other": escape(other[0].label)}
    return say("Next, A predicts “{one}” ({a}), B “{other}” ({b}).", **tokens, **shares)


def _both(one: str, other: str) -> str:
    return one if one == other else f"{one} / {other}"
