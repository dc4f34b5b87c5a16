"""Questions about a run. What may be answered, what of it is right, and why: computed from the run, never written down.

A new kind is one function in KINDS, and what is asked of it in ui/lessons. Losses are natural logarithms (nats).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from i18n import N_, msg
from lessons.answer import MOST_CHOICES, Answer, QuestionCase, QuestionSubject, mean_losses, one_of, share_answer
from lessons.image_steps import shape_shares
from lessons.number_questions import MORE_KINDS, NO_CHANGE
from lessons.statement import Statement
from model import mask_kinds
from model.base import Model
from model.heads.survey import survey
from model.images.captioner import PATCHES
from model.masks import MaskSpec
from model.trace import Trace

SAME = 1e-5  # of a weight: what float32 alone makes of a sum in another order
HEAD_PATTERNS = {  # each with what is said where it is the strongest
    "first": (N_("The first token"), N_("{head} gives {share:percent} of its attention to the first token.")),
    "previous": (N_("The previous token"), N_("{head} gives {share:percent} of its attention to the previous token.")),
    "itself": (
        N_("The token itself"),
        N_("{head} leaves {share:percent} of each token's attention on the token itself."),
    ),
    "induction": (
        N_("What followed the same token earlier"),
        N_("Where a token came up before, {head} gives {share:percent} of its attention to what followed it."),
    ),
}
MODELS = {  # by their own names; another's is said as it is
    "story": N_("The story model"),
    "dates": N_("The dates model"),
    "twin trained with the mask": N_("The model trained with the mask"),  # not shown: the names
    "twin trained without the mask": N_("The model trained without the mask"),  # not shown
}
LOSS_WORDS = (
    N_(
        "The mean loss goes down from {before:nats} to {after:nats} nats/token (perplexity {before:perplexity} → "
        "{after:perplexity})."
    ),
    N_(
        "The mean loss stays the same: {before:nats} nats/token before and {after:nats} now (perplexity "
        "{after:perplexity})."
    ),
    N_(
        "The mean loss goes up from {before:nats} to {after:nats} nats/token (perplexity {before:perplexity} → "
        "{after:perplexity})."
    ),
)
PREDICTED = 20  # most likely tokens that wrong answers are taken from


def answer(model: Model, trace: Trace, beside: Trace, beside_name: str, asked: QuestionSubject) -> Answer:
    """Raises ValueError for a run that the question cannot be asked of, saying what was expected."""
    return KINDS[asked.kind](QuestionCase(model, trace, beside, beside_name, asked))


def _loss(case: QuestionCase) -> Answer:
    before, after = case.loss(case.beside), case.loss(case.trace)
    right = 1 if abs(after - before) < NO_CHANGE else 2 * int(after > before)
    choices = [N_("It goes down."), N_("It stays the same."), N_("It goes up.")]
    return one_of(map(Statement, choices), right, Statement(LOSS_WORDS[right], {"before": before, "after": after}))


def _texts(case: QuestionCase) -> Answer:
    """On how many of the texts does the mean loss fall, on how many does it rise?"""
    before, after = mean_losses(case.beside), mean_losses(case.trace)
    if len(before) != len(after) or len(after) < 3 or np.isnan(before + after).any():
        raise ValueError(msg("expected at least three texts of two tokens or more, the same number in both runs"))
    changes, total = after - before, len(after)
    falls, rises = int((changes <= -NO_CHANGE).sum()), int((changes >= NO_CHANGE).sum())
    right = 0 if 2 * falls > total else 1 if 2 * rises > total else 2
    why = N_(
        "The mean loss goes down on {falls} of {total} texts and up on {rises}. Over all of them it changes by "
        "{change:change} nats/token."
    )
    choices = [N_("It goes down on most of them."), N_("It goes up on most of them."), N_("Neither.")]
    values = {"falls": falls, "rises": rises, "total": total, "change": float(changes.mean())}
    return one_of(map(Statement, choices), right, Statement(why, values))


def _lower(case: QuestionCase) -> Answer:
    """Which of the two models has the lower loss?"""
    one, other = case.loss(case.trace), case.loss(case.beside)
    right = 2 if abs(one - other) < NO_CHANGE else int(other < one)
    names = case.model.name, case.beside_name
    first, second = (Statement(MODELS.get(name, "{name}"), {"name": name}) for name in names)
    why = N_(
        "{one}: {first:nats} nats/token, perplexity {first:perplexity}. {other}: {second:nats} nats/token, "
        "perplexity {second:perplexity}."
    )
    values = {"one": first, "first": one, "other": second, "second": other}
    return one_of([first, second, Statement(N_("Neither: they are about the same."))], right, Statement(why, values))


def _looks(case: QuestionCase) -> Answer:
    """Which token does the query attend to most?"""
    query, weights = case.query, case.weights(case.trace)[case.query]
    seen = np.flatnonzero(case.allowed()[query])
    count = len(seen)
    if count < 2:
        raise ValueError(msg("expected a query that sees two tokens or more, got one that sees {count}", count=count))
    heaviest = [int(key) for key in np.argsort(-weights, kind="stable") if key in seen]
    usual = [key for key in (int(seen[0]), query - 1, query) if key in seen]
    keys = sorted(list(dict.fromkeys([heaviest[0], *usual, *heaviest]))[:MOST_CHOICES])
    why = Statement(
        N_("Of all tokens that {query} may attend to, it gives the most to {key}: {share:chance} of its attention."),
        {"query": case.token(query), "key": case.token(heaviest[0], key=True), "share": float(weights.max())},
    )
    return one_of([case.token(key, key=True) for key in keys], keys.index(heaviest[0]), why)


def _where(case: QuestionCase) -> Answer:
    """Which shape of the image does the query attend to most?"""
    if case.asked.image is None:
        raise ValueError(msg("expected a step with an image"))
    shares = shape_shares(case.weights(case.trace)[case.query, :PATCHES], case.asked.image)
    best = max(shares, key=lambda name: shares[name])
    why = (
        N_("{query} gives {share:percent} of its attention on the image to patches of the {shape}.")
        if best
        else N_("{query} gives {share:percent} of its attention on the image to patches that no shape touches.")
    )
    values = {"query": case.token(case.query), "share": shares[best], "shape": best}
    choices = [Statement(N_("The {shape}") if name else N_("None of the shapes"), {"shape": name}) for name in shares]
    return one_of(choices, list(shares).index(best), Statement(why, values))


def _sees(case: QuestionCase) -> Answer:
    """How many tokens may the query attend to?"""
    query, allowed = case.query, case.allowed()
    count, total = int(allowed[query].sum()), allowed.shape[1]
    guesses = [count, total, query, query + 1, count + 1, count - 1, count + 2]
    counts = sorted(list(dict.fromkeys(guess for guess in guesses if 0 <= guess <= total))[:MOST_CHOICES])
    why = Statement(
        N_("Open cells in the row of {query}: {count} of {total}; blocked: {blocked}."),
        {"query": case.token(query), "count": count, "total": total, "blocked": total - count},
    )
    return one_of([Statement("{count}", {"count": one}) for one in counts], counts.index(count), why)


def _next(case: QuestionCase) -> Answer:
    """Which token is the most likely after the query?"""
    row, last = case.asked.row, case.beside.queries.real(case.asked.row).stop - 1
    now, before = case.trace.next_token(row, case.query), case.beside.next_token(row, min(case.query, last))
    top = now.topk(PREDICTED)
    first, second = top.indices[:2].tolist()
    tokens = sorted(list(dict.fromkeys([first, int(before.argmax()), *top.indices.tolist()]))[:MOST_CHOICES])
    label = case.model.label
    values = {"query": case.token(case.query), "token": label(first), "share": float(top.values[0])}
    values |= {"other": label(second), "less": float(top.values[1])}
    why = N_("After {query} the model predicts “{token}” with {share:chance}; “{other}” is second, with {less:chance}.")
    choices = [Statement("{token}", {"token": label(token)}) for token in tokens]
    return one_of(choices, tokens.index(first), Statement(why, values))


def _row(case: QuestionCase) -> Answer:
    """Do the weights of the query's row change?"""
    query, one, other = case.query, case.weights(case.trace), case.weights(case.beside)
    if one.shape != other.shape:
        sizes = {"one": one.shape[1], "other": other.shape[1]}
        raise ValueError(msg("expected two runs with the same number of tokens, got {one} and {other}", **sizes))
    most = float(np.abs(one[query] - other[query]).max())
    right = int(most < SAME)
    why = (
        N_("They change: one weight in the row of {query} changes by {most:weight}."),
        N_("They do not: no weight in the row of {query} changes by more than 0.00001."),
    )
    choices = [N_("Some of them change."), N_("None of them changes.")]
    values = {"query": case.token(query), "most": most}
    return one_of(map(Statement, choices), right, Statement(why[right], values))


def _head_pattern(case: QuestionCase) -> Answer:
    """What does the head attend to most?"""
    found = survey(case.trace, case.asked.row).shares
    shares = {name: float(found[name][case.asked.layer, case.asked.head]) for name in HEAD_PATTERNS}
    shares = {name: share for name, share in shares.items() if not np.isnan(share)}
    best = max(shares, key=lambda name: shares[name])
    name = case.head_name(case.asked.layer, case.asked.head)
    why = Statement(HEAD_PATTERNS[best][1], {"head": name, "share": shares[best]})
    return one_of([Statement(HEAD_PATTERNS[name][0]) for name in shares], list(shares).index(best), why)


def _share(case: QuestionCase, what: str, none: str, some: str) -> Answer:
    """How much of the head's attention goes there? none, some: what is said of a share of 0 and of another."""
    found = survey(case.trace, case.asked.row).shares[what]
    share = float(found[case.asked.layer, case.asked.head])
    if np.isnan(share):
        raise ValueError(msg("expected a row whose tokens attend to something, got one where every cell is blocked"))
    return share_answer(share, Statement(some if share > 0 else none, {"share": share}))


def _picture(case: QuestionCase) -> Answer:
    """Which of these masks made the picture? Right is each that blocks the same cells."""
    layer, row, head = case.asked.layer, case.asked.row, case.asked.head
    cells = case.allowed()
    made = [case.trace.allowed(layer, row, masks, head=head).numpy() for masks in case.asked.among]
    right = frozenset(place for place, one in enumerate(made) if np.array_equal(one, cells))
    if not right or len(right) == len(made):
        raise ValueError(msg("expected masks of which at least one made the picture and at least one did not"))
    why = {"masks": masks_on(case.trace.spec, case.trace), "blocked": int((~cells).sum()), "total": cells.size}
    sentence = N_("The picture was made with: {masks}. It blocks {blocked} of {total} cells.")
    return Answer(tuple(masks_on(masks, case.trace) for masks in case.asked.among), right, Statement(sentence, why))


def masks_on(masks: MaskSpec, trace: Trace) -> Statement:
    """The names of the masks that are on, of those that this attention can have."""
    on = trace.layers[0].context.on(replace(masks, layers=(), heads=()))
    named = [Statement(mask_kinds.KINDS[name].phrase, {"size": size}) for name, size in on.items()]
    if masks.drawn:
        named.append(Statement(N_("drawn by hand")))
    return Statement("{masks}", {"masks": tuple(named)}) if named else Statement(N_("no mask"))


KINDS: Mapping[str, Callable[[QuestionCase], Answer]] = {
    "loss": _loss,
    "texts": _texts,
    "lower": _lower,
    "looks": _looks,
    "where": _where,
    "sees": _sees,
    "next": _next,
    "row": _row,
    "habit": _head_pattern,
    "future": partial(
        _share,
        what="future",
        none=N_("None of this head's attention goes to tokens that come later."),
        some=N_("{share:percent} of this head's attention goes to tokens that come later."),
    ),
    "padding": partial(
        _share,
        what="padding",
        none=N_("None of this head's attention goes to padding."),
        some=N_("{share:percent} of this head's attention goes to padding."),
    ),
    "picture": _picture,
    **MORE_KINDS,
}
COMPARING = frozenset({"loss", "texts", "how_many", "lower", "row"})  # with the step's `beside`
ABOUT_A_QUERY = frozenset({"looks", "where", "sees", "next", "row", "weight"})  # a token is highlighted
# which run is shown until the question is answered, for `picture` without its masks' names; else its tokens alone
BEFORE = {"picture": "now"} | dict.fromkeys(("loss", "texts", "how_many", "row", "future", "padding"), "beside")
