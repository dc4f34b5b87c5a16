"""The parts of a question about a run, and its answer. Losses are natural logarithms (nats)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from i18n import N_, msg
from lessons.statement import OTHER, Statement
from model.base import Model
from model.heads.survey import survey
from model.heads.vectors import FourTokens, RunScores
from model.heads.view import head_name
from model.mask_kinds import KINDS
from model.masks import MaskSpec
from model.text import TokenBatch
from model.trace import Trace

MAX_CHOICES = 4
SHARES = (0.0, 0.1, 0.5)  # the upper ends of the choices for a share
SHARE_CHOICES = (N_("None at all"), N_("Up to 10%"), N_("10 to 50%"), N_("More than half"))


@dataclass(frozen=True)
class QuestionSubject:
    """The subject of a question. row: from 0. query: a position, None for the row's last token. among: for `picture`.

    key, pattern, within, of: as in the step's question (lessons/lesson.py). numbers: the step's row of four tokens.
    series: the scores over the training that the step shows, by training step. image: for `where`, a scene
    (Scene.text).
    """

    kind: str
    row: int
    layer: int
    head: int
    query: int | None = None
    among: tuple[MaskSpec, ...] = ()
    key: int = 0
    pattern: str = ""
    within: float = 0.0
    of: str = ""
    numbers: FourTokens | None = None
    series: tuple[tuple[int, RunScores], ...] = ()
    image: str | None = None


@dataclass(frozen=True)
class Answer:
    """An answer and its choices. right: the indices of the correct ones. why: the explanation, in one sentence.

    number: the correct number, if one may be typed; within: how far from it still counts as correct. Where nothing can
    be typed the choices are offered.
    """

    choices: tuple[Statement, ...]
    right: frozenset[int]
    why: Statement
    number: float | None = None
    within: float = 0.0

    def offered(self) -> "Answer":
        """Return this answer without the number, for where nothing can be typed: its tolerance is not shown then."""
        return replace(self, number=None)

    def typed(self, number: float) -> int:
        """Return the index of the choice that a typed number stands for; OTHER for a wrong number."""
        close = self.number is not None and abs(number - self.number) <= self.within + 1e-9
        return next(iter(self.right)) if close else OTHER


@dataclass(frozen=True, eq=False)
class QuestionCase:
    """A question with its run, and the run that this is compared with."""

    model: Model
    trace: Trace
    beside: Trace
    beside_name: str
    asked: QuestionSubject

    @property
    def query(self) -> int:
        """The position asked about. Raises ValueError for one that the row does not have."""
        query, last = self.asked.query, len(self.trace.queries.pieces[self.asked.row]) - 1
        if query is None:
            return self.trace.queries.real(self.asked.row).stop - 1
        if query > last:
            raise ValueError(msg("expected a query from 0 to {last}, got {query}", last=last, query=query))
        return query

    def head_name(self, layer: int, head: int) -> str:
        """Return the head's name, with the network's own number of the layer."""
        return head_name(self.model.describe().layer_number(self.trace.name, layer), head)

    def weights(self, trace: Trace) -> np.ndarray:
        return trace.weights(self.asked.layer, self.asked.head, self.asked.row).numpy()

    def allowed(self) -> np.ndarray:
        return self.trace.allowed(self.asked.layer, self.asked.row, head=self.asked.head).numpy()

    @property
    def predicting(self) -> int:
        """The position whose next token is predicted: the query, or the last one if queries are of another text."""
        batch = self.trace.batch
        return self.query if self.trace.queries is batch else batch.real(self.asked.row).stop - 1

    def token(self, position: int, of: TokenBatch | None = None) -> Statement:
        """Return a token of the row with its position. of: its batch, the queries' by default."""
        pieces = (of or self.trace.queries).pieces[self.asked.row]
        return Statement(N_("“{token}” at {position}"), {"position": position, "token": pieces[position]})

    def masks_on(self, masks: MaskSpec) -> Statement:
        """Return the names of the masks that are on in the question's head, out of those that it can have."""
        context, head = self.trace.layers[self.asked.layer].context, self.asked.head
        on = context.on(masks, head)
        named = [Statement(KINDS[name].phrase, {"size": size}) for name, size in on.items()]
        if masks.at(context.layer, head, context.standard).drawn:
            named.append(Statement(N_("drawn by hand")))
        return Statement("{masks}", {"masks": tuple(named)}) if named else Statement(N_("no mask"))

    def shares(self) -> dict[str, float]:
        """Return the head's share of attention, 0 to 1, by each of SHARES. Raises ValueError for an attention from one
        text to another and for a text of one token, of which only "padding" is known."""
        if self.asked.kind != "padding":
            if self.trace.queries is not self.trace.keys:
                raise ValueError(msg("expected an attention of a text to itself"))
            self.check_length()
        found = survey(self.trace, self.asked.row).shares
        return {name: float(share[self.asked.layer, self.asked.head]) for name, share in found.items()}

    def check_length(self) -> None:
        """Check the text's length. Raises ValueError for a text of one token."""
        if self.trace.keys.keep[self.asked.row].sum() < 2:
            raise ValueError(msg("expected texts of at least two tokens, found none"))

    def loss(self, trace: Trace) -> float:
        """Return the mean of the row's losses. Raises ValueError if there are none."""
        loss = float(mean_losses(trace)[self.asked.row])
        if np.isnan(loss):
            raise ValueError(msg("expected a text of at least two tokens, for a loss"))
        return loss

    def changes(self) -> np.ndarray:
        """Return by how much the mean loss of each text changes. Raises ValueError for fewer than three texts."""
        before, after = mean_losses(self.beside), mean_losses(self.trace)
        if len(before) != len(after) or len(after) < 3 or np.isnan(before + after).any():
            raise ValueError(msg("expected at least three texts of two tokens or more, the same number in both runs"))
        return after - before


def mean_losses(trace: Trace) -> np.ndarray:
    """Return the mean loss of each row, float [rows], in nats/token; NaN for a row of one token."""
    each = (trace.losses(row).numpy() for row in range(len(trace.queries.pieces)))
    return np.array([np.nan if np.isnan(losses).all() else np.nanmean(losses) for losses in each], np.float64)


def one_of(choices: Iterable[Statement], right: int, why: Statement) -> Answer:
    return Answer(tuple(choices), frozenset([right]), why)


def share_answer(share: float, why: Statement) -> Answer:
    """Return the answer out of SHARE_CHOICES for a share, 0 to 1."""
    return one_of(map(Statement, SHARE_CHOICES), sum(share > end for end in SHARES), why)


def number_answer(right: float, others: Iterable[float], within: float, form: str, why: Statement) -> Answer:
    """Return an answer by a number that may be typed. Its choices are the number and others, far enough from it and
    from each other. Raises ValueError if none of them counts as wrong."""
    others, offered = [*others], [right]
    for distance in (max(2 * within, 0.005), max(within + 1e-9, 0.005)):  # nearer ones if there are no others
        for other in others if len(offered) == 1 else ():
            if min(abs(other - one) for one in offered) > distance and len(offered) < MAX_CHOICES:
                offered.append(other)
    if len(offered) == 1:
        raise ValueError(msg("expected other numbers that count as wrong, found none: give a smaller `within`"))
    order = sorted(range(len(offered)), key=lambda index: offered[index])
    choices = tuple(Statement(form, {"number": offered[index]}) for index in order)
    return Answer(choices, frozenset([order.index(0)]), why, right, within)
