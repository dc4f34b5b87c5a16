"""Questions about a run: choices, correct answers and explanations are computed from the run, never written down.

A new kind is one function in KINDS, and the text of its question in ui/lessons. Losses are natural logarithms (nats).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from i18n import N_, msg
from lessons.answer import MAX_CHOICES, Answer, QuestionCase, QuestionSubject, number_answer, one_of, share_answer
from lessons.image_steps import shape_shares
from lessons.statement import MODELS, Statement
from model.base import Model
from model.heads.survey import survey
from model.heads.vectors import FOUR_TOKENS, FourTokensSteps, RunScores, four_token_steps, head_vectors
from model.images.captioner import PATCHES
from model.trace import Trace

SAME = 1e-5  # of a weight: the effect of summing in another order in float32
HEAD_PATTERNS = {  # each pattern's choice, and the sentence if it is the strongest
    "first": (N_("The first token"), N_("{head} gives {share:percent} of its attention to the first token.")),
    "previous": (N_("The previous token"), N_("{head} gives {share:percent} of its attention to the previous token.")),
    "itself": (
        N_("The token itself"),
        N_("{head} leaves {share:percent} of each token's attention on the token itself."),
    ),
    "induction": (
        N_("What followed the same token earlier"),
        N_(
            "Where a token last occurred three or more tokens earlier, {head} gives {share:percent} of its attention "
            "to what followed it."
        ),
    ),
}
NOTHING_SEEN = N_("expected a row whose tokens attend to something, got one where every cell is blocked")
NO_PADDING = N_("expected a row with padding, one of several lines that is not the longest, got a row without padding")
SEES_TOO_FEW = N_("expected a query that sees two tokens or more, got one that sees {count}")
SHARE_WORDS = {  # for no share, and for some
    "future": (
        N_("None of this head's attention goes to later tokens."),
        N_("{share:percent} of this head's attention goes to later tokens."),
    ),
    "padding": (
        N_("None of this head's attention goes to padding."),
        N_("{share:percent} of this head's attention goes to padding."),
    ),
}
LOSS_WORDS = (
    N_(
        "The mean loss goes down from {before:nats} to {after:nats} nats/token (perplexity {before:perplexity} → "
        "{after:perplexity})."
    ),
    N_(
        "The mean loss changes by less than 0.05 nats/token: {before:nats} before and {after:nats} now (perplexity "
        "{after:perplexity})."
    ),
    N_(
        "The mean loss goes up from {before:nats} to {after:nats} nats/token (perplexity {before:perplexity} → "
        "{after:perplexity})."
    ),
)
RISE = 0.05  # by how much a score must exceed the first run's for a head to count as formed
NO_CHANGE = 0.05  # nats/token: a smaller change of the mean loss is a choice of its own, which names this number
NO_FALL = 5e-5  # nats/token: less is not visible in the tables of losses, which have four decimals
NUMBERS = {"score": N_("The score"), "weight": N_("The weight"), "output": N_("The output's first number")}
BECOMES = (
    N_("They sum to 1, and no blocked key gets any weight."),
    N_("They sum to less than 1."),
    N_("A blocked key gets some weight."),
    N_("They are NaN."),
    N_("They are all 0."),
)
BECOME_WORDS = (
    N_("The weights add up to {weights} {equals} {total:decimal}."),
    N_("The weights add up to {weights} {equals} {total:decimal}; the blocked key “{token}” gets {weight:weight}."),
)
PATTERNS = {
    "previous": N_("{head} gives {share:percent} of its attention to the previous token, more than any other head."),
    "first": N_("{head} gives {share:percent} of its attention to the first token, more than any other head."),
    "induction": N_(
        "Where a token last occurred three or more tokens earlier, {head} gives {share:percent} of its attention to "
        "what followed it, more than any other head."
    ),
}
NORMS = (0.5, 1.0)  # upper ends of the choices, as shares of the mean of the others
NORM_CHOICES = (N_("Less than half as long"), N_("Half as long or more, but shorter"), N_("As long, or longer"))
PREDICTED = 20  # most likely tokens, from which wrong answers are taken


def answer(model: Model, trace: Trace, beside: Trace, beside_name: str, asked: QuestionSubject) -> Answer:
    """Return the answer to a question. Raises ValueError, with what was expected, for a run that does not fit it."""
    return KINDS[asked.kind](QuestionCase(model, trace, beside, beside_name, asked))


def _loss(case: QuestionCase) -> Answer:
    before, after = case.loss(case.beside), case.loss(case.trace)
    right = 1 if abs(after - before) < NO_CHANGE else 2 * int(after > before)
    choices = [N_("It goes down."), N_("It changes by less than 0.05 nats/token."), N_("It goes up.")]
    return one_of(map(Statement, choices), right, Statement(LOSS_WORDS[right], {"before": before, "after": after}))


def _texts(case: QuestionCase) -> Answer:
    """Answer whether the mean loss goes down, or up, on most of the texts."""
    changes = case.changes()
    total = len(changes)
    falls, rises = int((changes < -NO_FALL).sum()), int((changes > NO_FALL).sum())
    right = 0 if 2 * falls > total else 1 if 2 * rises > total else 2
    why = N_(
        "The mean loss goes down on {falls} of {total} texts and up on {rises}. Averaged over the texts, it "
        "changes by {change:change} nats/token."
    )
    choices = [N_("It goes down on most of them."), N_("It goes up on most of them."), N_("Neither.")]
    values = {"falls": falls, "rises": rises, "total": total, "change": float(changes.mean())}
    return one_of(map(Statement, choices), right, Statement(why, values))


def _lower(case: QuestionCase) -> Answer:
    """Answer which of the two models, or runs of one model, has the lower loss."""
    one, other = case.loss(case.trace), case.loss(case.beside)
    right = 2 if abs(one - other) < NO_CHANGE else int(other < one)
    names = case.model.name, case.beside_name
    first, second = (Statement(MODELS.get(name, "{name}"), {"name": name}) for name in names)
    if names[0] == names[1]:
        first, second = Statement(N_("now")), Statement(N_("before"))
    why = N_(
        "{one}: {first:nats} nats/token, perplexity {first:perplexity}. {other}: {second:nats} nats/token, "
        "perplexity {second:perplexity}."
    )
    values = {"one": first, "first": one, "other": second, "second": other}
    neither = Statement(N_("Neither: they differ by less than 0.05 nats/token."))
    return one_of([first, second, neither], right, Statement(why, values))


def _looks(case: QuestionCase) -> Answer:
    """Answer which token the query attends to most."""
    query, weights = case.query, case.weights(case.trace)[case.query]
    seen = np.flatnonzero(case.allowed()[query])
    count = len(seen)
    if count < 2:
        raise ValueError(msg(SEES_TOO_FEW, count=count))
    heaviest = [int(key) for key in np.argsort(-weights, kind="stable") if key in seen]
    usual = [key for key in (int(seen[0]), query - 1, query) if key in seen]
    keys = sorted(list(dict.fromkeys([heaviest[0], *usual, *heaviest]))[:MAX_CHOICES])
    why = Statement(
        N_("Of all tokens that {query} may attend to, it gives the most to {key}: {share:chance} of its attention."),
        {"query": case.token(query), "key": case.token(heaviest[0], case.trace.keys), "share": float(weights.max())},
    )
    return one_of([case.token(key, case.trace.keys) for key in keys], keys.index(heaviest[0]), why)


def _where(case: QuestionCase) -> Answer:
    """Answer which shape of the image the query attends to most."""
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
    """Answer how many tokens the query may attend to."""
    query, allowed = case.query, case.allowed()
    count, total = int(allowed[query].sum()), allowed.shape[1]
    guesses = [count, total, query, query + 1, count + 1, count - 1, count + 2]
    counts = sorted(list(dict.fromkeys(guess for guess in guesses if 0 <= guess <= total))[:MAX_CHOICES])
    why = Statement(
        N_("Open cells in the row of {query}: {count:count} of {total:count}; blocked: {blocked:count}."),
        {"query": case.token(query), "count": count, "total": total, "blocked": total - count},
    )
    return one_of([Statement("{count:count}", {"count": one}) for one in counts], counts.index(count), why)


def _next(case: QuestionCase) -> Answer:
    """Answer which token is the most likely after the query."""
    row, query, last = case.asked.row, case.predicting, case.beside.batch.real(case.asked.row).stop - 1
    now, before = case.trace.next_token(row, query), case.beside.next_token(row, min(query, last))
    top = now.topk(PREDICTED)
    first, second = top.indices[:2].tolist()
    tokens = sorted(list(dict.fromkeys([first, int(before.argmax()), *top.indices.tolist()]))[:MAX_CHOICES])
    label = case.model.label
    values = {"query": case.token(query, case.trace.batch), "token": label(first), "share": float(top.values[0])}
    values |= {"other": label(second), "less": float(top.values[1])}
    why = N_("After {query} the model predicts “{token}” with {share:chance}; “{other}” is second, with {less:chance}.")
    choices = [Statement("{token}", {"token": label(token)}) for token in tokens]
    return one_of(choices, tokens.index(first), Statement(why, values))


def _row(case: QuestionCase) -> Answer:
    """Answer whether the weights of the query's row change."""
    query, one, other = case.query, case.weights(case.trace), case.weights(case.beside)
    if one.shape != other.shape:
        sizes = {"one": one.shape[1], "other": other.shape[1]}
        raise ValueError(msg("expected two runs with the same number of tokens, got {one} and {other}", **sizes))
    change = float(np.abs(one[query] - other[query]).max())
    right = int(change < SAME)
    why = (
        N_("They change: one weight in the row of {query} changes by {most:weight}."),
        N_("They do not: no weight in the row of {query} changes by more than 0.00001."),
    )
    choices = [N_("Some of them change."), N_("None of them changes.")]
    values = {"query": case.token(query), "most": change}
    return one_of(map(Statement, choices), right, Statement(why[right], values))


def _head_pattern(case: QuestionCase) -> Answer:
    """Answer what the head attends to most."""
    found = case.shares()
    shares = {name: found[name] for name in HEAD_PATTERNS if not np.isnan(found[name])}
    if not shares:
        raise ValueError(msg(NOTHING_SEEN))
    best = max(shares, key=lambda name: shares[name])
    name = case.head_name(case.asked.layer, case.asked.head)
    why = Statement(HEAD_PATTERNS[best][1], {"head": name, "share": shares[best]})
    return one_of([Statement(HEAD_PATTERNS[name][0]) for name in shares], list(shares).index(best), why)


def _share(case: QuestionCase) -> Answer:
    """Answer how much of the head's attention goes to later tokens, or to padding."""
    if case.asked.kind == "padding" and case.trace.keys.keep[case.asked.row].all():
        raise ValueError(msg(NO_PADDING))
    share = case.shares()[case.asked.kind]
    if np.isnan(share):
        raise ValueError(msg(NOTHING_SEEN))
    return share_answer(share, Statement(SHARE_WORDS[case.asked.kind][share > 0], {"share": share}))


def _picture(case: QuestionCase) -> Answer:
    """Answer which of these masks made the picture: each that blocks the same cells is correct."""
    layer, row, head = case.asked.layer, case.asked.row, case.asked.head
    cells = case.allowed()
    made = [case.trace.allowed(layer, row, masks, head=head).numpy() for masks in case.asked.among]
    right = frozenset(index for index, allowed in enumerate(made) if np.array_equal(allowed, cells))
    if not right or len(right) == len(made):
        raise ValueError(msg("expected masks of which at least one made the picture and at least one did not"))
    why = {"masks": case.masks_on(case.trace.spec), "blocked": int((~cells).sum()), "total": cells.size}
    sentence = N_("The picture was made with: {masks}. It blocks {blocked:count} of {total:count} cells.")
    return Answer(tuple(case.masks_on(masks) for masks in case.asked.among), right, Statement(sentence, why))


def _how_many(case: QuestionCase) -> Answer:
    """Answer on how many of the texts the mean loss goes down."""
    changes = case.changes()
    falls, total = int((changes < -NO_FALL).sum()), len(changes)
    why = Statement(N_("The mean loss goes down on {falls} of {total} texts."), {"falls": falls, "total": total})
    others = [total - falls, total // 2, 0, total, total // 4]
    return number_answer(falls, others, case.asked.within, "{number}", why)


def _weight(case: QuestionCase) -> Answer:
    """Answer how much of the query's attention goes to the key of the question."""
    query, key = case.query, case.asked.key
    if key >= len(case.trace.keys.pieces[case.asked.row]):
        raise ValueError(msg("expected a key of the text, got {key}", key=key))
    weight = float(case.weights(case.trace)[query, key])
    if case.allowed()[query].sum() == 1 and weight > 1 - SAME:  # with a learned sink it would be less
        raise ValueError(msg(SEES_TOO_FEW, count=1))
    values = {"query": case.token(query), "key": case.token(key, case.trace.keys), "share": weight}
    return share_answer(weight, Statement(N_("{query} gives {share:percent} of its attention to {key}."), values))


def _which_head(case: QuestionCase) -> Answer:
    """Answer which head follows the pattern most. The choices are that head, and some of other layers and positions."""
    shares = survey(case.trace, case.asked.row).shares[case.asked.pattern]
    best, size = int(shares.argmax()), shares.size
    if (shares < shares.flat[best]).sum() < size - 1:  # NaN where a head cannot follow it
        raise ValueError(msg("expected a text on which one head follows the pattern more than every other"))
    offered = sorted({(best + turn * (size // MAX_CHOICES) + turn) % size for turn in range(MAX_CHOICES)})
    names = [case.head_name(*divmod(index, shares.shape[1])) for index in offered]
    right = offered.index(best)
    why = Statement(PATTERNS[case.asked.pattern], {"head": names[right], "share": float(shares.flat[best])})
    return one_of([Statement("{head}", {"head": name}) for name in names], right, why)


def _norm(case: QuestionCase) -> Answer:
    """Answer how long the first token's value vector is, compared with the mean of the others."""
    case.check_length()
    norms = head_vectors(case.trace, case.asked.row, case.asked.layer, case.asked.head).norms
    real = case.trace.keys.real(case.asked.row)
    first, others = float(norms[real.start]), float(norms[real.start + 1 : real.stop].mean())
    why = N_(
        "The value of the first token has a length of {first:weight}, the others one of {others:weight} on average."
    )
    right = sum(first / others >= end for end in NORMS)
    return one_of(map(Statement, NORM_CHOICES), right, Statement(why, {"first": first, "others": others}))


def _steps(case: QuestionCase) -> FourTokensSteps:
    if case.asked.numbers is None:
        raise ValueError(msg("expected a step with `numbers`"))
    return four_token_steps(case.asked.numbers)


def _typed(case: QuestionCase) -> Answer:
    """Answer with a score, a weight or the output's first number of the row of four tokens."""
    steps, key, what = _steps(case), case.asked.key, case.asked.of
    found = {"score": steps.masked, "weight": steps.weights, "output": steps.output[:1]}
    all_of = {name: [float(one) for one in numbers] for name, numbers in found.items()}
    right = all_of[what][0 if what == "output" else key]
    if not np.isfinite(right):
        raise ValueError(msg("expected a number, got {number}", number="NaN" if np.isnan(right) else "−∞"))
    others = [*all_of[what], *(steps.raw.tolist() if what == "score" else (0.5, 0.25, 1.0, 0.0, 2.0))]
    values = {"what": Statement(NUMBERS[what]), "token": FOUR_TOKENS[key], "number": right}
    of_token = N_("{what} of “{token}” is {number:decimal}.")
    why = Statement(N_("{what} is {number:decimal}.") if what == "output" else of_token, values)
    finite = (other for other in others if np.isfinite(other))
    within = max(case.asked.within, 0.005)  # two decimal places are asked for
    return number_answer(right, finite, within, "{number:decimal}", why)


def _becomes(case: QuestionCase) -> Answer:
    """Answer what becomes of the weights of the row of four tokens: each choice that holds is correct."""
    steps = _steps(case)
    nan = bool(np.isnan(steps.weights).any())
    leaked = np.where(steps.allowed | nan, 0, steps.weights)
    blocked = int(leaked.argmax())
    holds = (steps.total < 0.995, bool(leaked.any()), nan, not steps.weights.any())
    right = frozenset(index for index, one in enumerate(holds, 1) if one) or frozenset([0])
    weights = tuple(Statement("{one:decimal}", {"one": float(one)}) for one in steps.weights)
    exact = f"{sum(round(float(one), 2) for one in steps.weights):.2f}" == f"{steps.total:.2f}"
    values = {"weights": weights, "equals": "=" if exact else "≈", "total": steps.total}  # as they are printed
    values |= {"token": FOUR_TOKENS[blocked], "weight": float(leaked[blocked])}
    return Answer(tuple(map(Statement, BECOMES)), right, Statement(BECOME_WORDS[holds[1]], values))


def _series(case: QuestionCase) -> tuple[Sequence[int], Sequence[RunScores]]:
    """Return the training steps of the runs that the lesson's step shows, and the scores of each."""
    if len(case.asked.series) < MAX_CHOICES:
        raise ValueError(msg("expected a step with show: training"))
    steps, scores = zip(*case.asked.series, strict=True)
    return steps, scores


def _earlier(case: QuestionCase) -> Answer:
    """Answer which score rises first, by RISE: that of the previous-token head or that of the induction head."""
    steps, scores = _series(case)
    previous, induction = (
        next((step for step, value in zip(steps, values, strict=True) if value > values[0] + RISE), None)
        for values in ([score.previous for score in scores], [score.induction for score in scores])
    )
    if previous is None or induction is None:
        raise ValueError(msg("expected masks under which both scores rise by {least} in the training", least=RISE))
    right = 2 if previous == induction else int(induction < previous)
    why = N_("The previous-token score has risen by {least} at step {one}, the induction score at step {other}.")
    choices = [N_("The previous-token score"), N_("The induction score"), N_("Both at the same step")]
    values = {"least": RISE, "one": previous, "other": induction}
    return one_of(map(Statement, choices), right, Statement(why, values))


def _steepest(case: QuestionCase) -> Answer:
    """Answer in which quarter of the series the loss falls fastest, from one training step to the next."""
    steps, scores = _series(case)
    losses = [score.loss for score in scores]
    begin = int(np.argmin(np.diff(losses) / np.diff(steps)))
    ends = np.linspace(0, len(steps) - 1, MAX_CHOICES + 1).astype(int).tolist()
    parts = [{"one": steps[first], "other": steps[last]} for first, last in pairwise(ends)]
    why = N_("It falls fastest from step {one} to step {other}: by {fall:nats} nats/token.")
    values = {"one": steps[begin], "other": steps[begin + 1], "fall": losses[begin] - losses[begin + 1]}
    right = sum(last <= begin for last in ends[1:])
    choices = [Statement(N_("From step {one} to step {other}"), part) for part in parts]
    return one_of(choices, right, Statement(why, values))


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
    "future": _share,
    "padding": _share,
    "picture": _picture,
    "how_many": _how_many,
    "weight": _weight,
    "which_head": _which_head,
    "norm": _norm,
    "number": _typed,
    "becomes": _becomes,
    "earlier": _earlier,
    "steepest": _steepest,
}
COMPARING = frozenset({"loss", "texts", "how_many", "lower", "row"})  # kinds that need the step's `beside`
ABOUT_A_QUERY = frozenset({"looks", "where", "sees", "next", "row", "weight"})  # kinds about one highlighted token
# the run shown until the question is answered, for `picture` without its masks' names; for other kinds, tokens alone
BEFORE_ANSWER = {"picture": "now"} | dict.fromkeys(("loss", "texts", "how_many", "row", "future", "padding"), "beside")
