"""More kinds of questions: about numbers that may be typed, about heads, about a row of four tokens and about a series
of runs. See questions.KINDS."""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np

from i18n import N_, msg
from lessons.answer import MOST_CHOICES, Answer, QuestionCase, mean_losses, one_of, share_answer
from lessons.statement import Statement
from model.heads.survey import survey
from model.heads.vectors import TOKENS, FourTokensSteps, RunScores, four_token_steps, head_vectors

RISE = 0.05  # of a score over that of the first run: then a head counts as begun
NO_CHANGE = 0.05  # nats/token: a smaller change of the mean loss is said to be none
NUMBERS = {"score": N_("The score"), "weight": N_("The weight"), "output": N_("The output's first number")}
BECOMES = (
    N_("They sum to 1, and no blocked key gets any weight."),
    N_("They sum to less than 1."),
    N_("A blocked key gets some weight."),
    N_("They are NaN."),
    N_("They are all 0."),
)
BECOME_WORDS = N_("The weights add up to {weights} = {total:decimal}.")
PATTERNS = {
    "previous": N_("{head} gives {share:percent} of its attention to the previous token, more than any other head."),
    "first": N_("{head} gives {share:percent} of its attention to the first token, more than any other head."),
    "induction": N_(
        "{head} gives {share:percent} of its attention to what followed the same token earlier, more than any other "
        "head."
    ),
}
NORMS = (0.5, 1.0)  # of the mean of the others, where the choices end
NORM_CHOICES = (N_("Less than half as long"), N_("Half as long or more, but shorter"), N_("As long, or longer"))


def _number(right: float, others: Iterable[float], within: float, form: str, why: Statement) -> Answer:
    """A number that may be typed; offered instead: it and others that are further from it and from each other."""
    offered = [right]
    for other in others:
        apart = min(abs(other - one) for one in offered) > max(2 * within, 0.005)
        if apart and len(offered) < MOST_CHOICES:
            offered.append(other)
    places = sorted(range(len(offered)), key=lambda place: offered[place])
    choices = tuple(Statement(form, {"number": offered[place]}) for place in places)
    return Answer(choices, frozenset([places.index(0)]), why, right, within)


def _how_many(case: QuestionCase) -> Answer:
    """On how many of the texts does the mean loss fall?"""
    before, after = mean_losses(case.beside), mean_losses(case.trace)
    if len(before) != len(after) or np.isnan(before + after).any():
        raise ValueError(msg("expected texts of two tokens or more, the same number in both runs"))
    falls, total = int((after - before <= -NO_CHANGE).sum()), len(after)
    why = Statement(N_("The mean loss goes down on {falls} of {total} texts."), {"falls": falls, "total": total})
    others = [total - falls, total // 2, 0, total, total // 4]
    return _number(falls, others, case.asked.within, "{number}", why)


def _weight(case: QuestionCase) -> Answer:
    """How much of the query's attention does the key of the question get?"""
    query, key = case.query, case.asked.key
    if key >= len(case.trace.keys.pieces[case.asked.row]):
        raise ValueError(msg("expected a key of the text, got {key}", key=key))
    weight = float(case.weights(case.trace)[query, key])
    values = {"query": case.token(query), "key": case.token(key, key=True), "share": weight}
    return share_answer(weight, Statement(N_("{query} gives {share:percent} of its attention to {key}."), values))


def _which_head(case: QuestionCase) -> Answer:
    """Which of these heads follows the pattern most? Offered: the best, and of other layers and heads some in turn."""
    shares = survey(case.trace, case.asked.row).shares[case.asked.pattern]
    if np.isnan(shares).any():
        raise ValueError(msg("expected a text on which every head can follow the pattern"))
    best, size = int(shares.argmax()), shares.size
    offered = sorted({(best + turn * (size // MOST_CHOICES) + turn) % size for turn in range(MOST_CHOICES)})
    names = [case.head_name(*divmod(one, shares.shape[1])) for one in offered]
    right = offered.index(best)
    why = Statement(PATTERNS[case.asked.pattern], {"head": names[right], "share": float(shares.flat[best])})
    return one_of([Statement("{head}", {"head": name}) for name in names], right, why)


def _norm(case: QuestionCase) -> Answer:
    """How long is the first token's value vector, beside the mean of the others?"""
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
    """A score, a weight or the output's first number of the row of four tokens."""
    steps, key, what = _steps(case), case.asked.key, case.asked.of
    found = {"score": steps.scaled, "weight": steps.weights, "output": steps.output[:1]}
    all_of = {name: [float(one) for one in numbers] for name, numbers in found.items()}
    right = all_of[what][0 if what == "output" else key]
    if not np.isfinite(right):
        raise ValueError(msg("expected a number, got one that is NaN"))
    others = [*all_of[what], *(steps.raw.tolist() if what == "score" else (0.5, 0.25, 1.0, 0.0, 2.0))]
    values = {"what": Statement(NUMBERS[what]), "token": TOKENS[key], "number": right}
    of_token = N_("{what} of “{token}” is {number:decimal}.")
    why = Statement(N_("{what} is {number:decimal}.") if what == "output" else of_token, values)
    finite = (other for other in others if np.isfinite(other))
    return _number(right, finite, case.asked.within, "{number:decimal}", why)


def _becomes(case: QuestionCase) -> Answer:
    """What becomes of the weights of the row of four tokens?"""
    steps = _steps(case)
    weights = tuple(Statement("{one:decimal}", {"one": float(one)}) for one in steps.weights)
    why = Statement(BECOME_WORDS, {"weights": weights, "total": steps.total})
    return one_of(map(Statement, BECOMES), becomes(steps), why)


def becomes(steps: FourTokensSteps) -> int:
    """Which of BECOMES the weights are."""
    if np.isnan(steps.weights).any():
        return 3
    if not steps.weights.any():
        return 4
    if steps.weights[~steps.allowed].any():
        return 2
    return int(steps.total < 0.995)


def _series(case: QuestionCase) -> tuple[list[int], list[RunScores]]:
    """The training steps of the runs that the step goes over, and the scores of each."""
    if len(case.asked.series) < MOST_CHOICES:
        raise ValueError(msg("expected a step with show: training"))
    steps, scores = zip(*case.asked.series, strict=True)
    return list(steps), list(scores)


def _earlier(case: QuestionCase) -> Answer:
    """Which score rises first, by RISE: that of the previous-token head or that of the induction head?"""
    steps, scores = _series(case)
    previous, induction = (
        next((step for step, one in zip(steps, some, strict=True) if one > some[0] + RISE), steps[-1])
        for some in ([one.previous for one in scores], [one.induction for one in scores])
    )
    right = 2 if previous == induction else int(induction < previous)
    why = N_("The previous-token score has risen by {least} at step {one}, the induction score at step {other}.")
    choices = [N_("The previous-token score"), N_("The induction score"), N_("Both at the same step")]
    values = {"least": RISE, "one": previous, "other": induction}
    return one_of(map(Statement, choices), right, Statement(why, values))


def _steepest(case: QuestionCase) -> Answer:
    """In which quarter of the series does the loss fall fastest?"""
    steps, scores = _series(case)
    ends = np.linspace(0, len(steps) - 1, MOST_CHOICES + 1).astype(int).tolist()
    parts = [{"one": steps[begin], "other": steps[end]} for begin, end in pairwise(ends)]
    falls = [scores[begin].loss - scores[end].loss for begin, end in pairwise(ends)]
    right = int(np.argmax([fall / (part["other"] - part["one"]) for fall, part in zip(falls, parts, strict=True)]))
    why = N_(
        "From step {one} to step {other} it falls by {fall:nats} nats/token: more per step than in any other part."
    )
    choices = [Statement(N_("From step {one} to step {other}"), part) for part in parts]
    return one_of(choices, right, Statement(why, parts[right] | {"fall": falls[right]}))


MORE_KINDS: Mapping[str, Callable[[QuestionCase], Answer]] = {
    "how_many": _how_many,
    "weight": _weight,
    "which_head": _which_head,
    "norm": _norm,
    "number": _typed,
    "becomes": _becomes,
    "earlier": _earlier,
    "steepest": _steepest,
}
