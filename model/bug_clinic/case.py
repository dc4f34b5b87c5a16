"""What an attention is tried on: one layer of one run, whole or changed in one place.

Sizes: B rows, H heads, T positions, D head width.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from i18n import msg
from model.attention import NO_TERMS, AttentionStages, ScoreTerms, attention_stages

Attention = Callable[["AttentionCase"], AttentionStages]


class Crash(Exception):
    """An attention that PyTorch refuses to compute, in PyTorch's words."""


@dataclass(frozen=True, eq=False)
class AttentionCase:
    """One layer of one run, every position looking at every position.

    q [B,H,T,D]; k and v [B,Hkv,T,D]; allowed bool [B,1,T,T]; keep bool [B,T], True = a real token.
    scale, terms: as the core takes them. ahead: how far after a position the token stands that it is to predict.

    For the bugs that take something else in the place of q, k, v or the mask; None where it is not known:
    inputs [B,H,T,D]: what the layer read before its projections, cut into heads. others: q, k and v of another
    attention's projections. masks: bool [B,H,T,T], what each head gets of a mask that `repeat` laid out for all heads.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    allowed: Tensor
    keep: Tensor
    scale: float | None = None
    terms: ScoreTerms = NO_TERMS
    inputs: Tensor | None = None
    others: tuple[Tensor, ...] | None = None
    masks: Tensor | None = None
    ahead: int = 1

    def stages(self, fill: float = -torch.inf) -> AttentionStages:
        """The right attention."""
        return attention_stages(self.q, self.k, self.v, self.allowed, scale=self.scale, fill=fill, terms=self.terms)

    def run(self, attention: Attention) -> AttentionStages:
        """The attention on this case. Raises Crash where PyTorch refuses to compute it."""
        try:
            return attention(self)
        except (RuntimeError, TypeError) as error:  # TypeError: a size that is no whole number
            raise Crash(str(error).strip()) from error

    def unmasked(self) -> "AttentionCase":
        return replace(self, allowed=torch.ones_like(self.allowed))

    def to(self, dtype: torch.dtype) -> "AttentionCase":
        """The same numbers in another precision."""
        bias, sinks = (None if term is None else term.to(dtype) for term in (self.terms.bias, self.terms.sinks))
        terms = ScoreTerms(self.terms.softcap, bias, sinks)
        return replace(self._of_numbers(lambda numbers: numbers.to(dtype)), terms=terms)

    def text_alone(self, row: int) -> "AttentionCase":
        """One row without its padding, in a batch of its own: nothing to mix its mask up with."""
        some, one = self.real(row), slice(row, row + 1)
        bias = bias_of(self.terms, one)
        return replace(
            self._of_numbers(lambda numbers: numbers[one, :, some]),
            allowed=self.allowed[one, :, some, some],
            keep=self.keep[one, some],
            terms=replace(self.terms, bias=None if bias is None else bias[:, :, some, some]),
            masks=None,
        )

    def copies(self, row: int, count: int) -> "AttentionCase":
        """The same row several times."""

        def repeated(tensor: Tensor) -> Tensor:
            return tensor[row : row + 1].expand(count, *tensor.shape[1:])

        return replace(
            self._of_numbers(repeated),
            allowed=repeated(self.allowed),
            keep=repeated(self.keep),
            terms=replace(self.terms, bias=bias_of(self.terms, slice(row, row + 1))),
            masks=None if self.masks is None else repeated(self.masks),
        )

    def turned(self, where: tuple[Tensor | slice | int, ...]) -> "AttentionCase":
        """Other numbers at an index into [B,H,T,D]: all of them there with their signs reversed."""

        def negated(numbers: Tensor) -> Tensor:
            result = numbers.clone()
            result[where] = -result[where]
            return result

        return self._of_numbers(negated)

    def real(self, row: int) -> slice:
        """Where the row's real tokens are."""
        where = self.keep[row].nonzero()
        return slice(int(where[0]), int(where[-1]) + 1)

    def _of_numbers(self, change: Callable[[Tensor], Tensor]) -> "AttentionCase":
        """q, k, v and what may take their place, changed alike."""
        inputs = None if self.inputs is None else change(self.inputs)
        others = None if self.others is None else tuple(map(change, self.others))
        return replace(self, q=change(self.q), k=change(self.k), v=change(self.v), inputs=inputs, others=others)


def bias_of(terms: ScoreTerms, rows: slice) -> Tensor | None:
    """The position bias of some rows of the batch, which may share one."""
    return terms.bias if terms.bias is None or len(terms.bias) == 1 else terms.bias[rows]


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A bug, its mend, and what to say of it. Bugs of one title are variants of each other.

    function: attention with the bug; the right one where the bug lies outside of attention.
    wrong, right: the lines of code, as many of the one as of the other. signs: what gives it away.
    hint: a nudge for who looks at its heatmap alone; empty where its heatmap shows nothing.
    law: the one of laws.LAWS that tells it best. blames: the mask that the cells it blocks wrongly are put down to.
    needs: what a text or model must have for the bug to do anything. dtype: the precision in which it shows.
    first_layer: the first layer that has it. ahead: how far ahead of a position its loss takes the target.
    tells: the one of evidence.FEATURES that its heatmap shows best; empty where none does.
    """

    key: str
    title: str
    variant: str = ""
    function: Attention = AttentionCase.stages
    wrong: str
    right: str
    signs: str
    hint: str = ""
    law: str
    needs: str
    blames: str = "causal"
    dtype: torch.dtype = torch.float32
    first_layer: int = 0
    ahead: int = 1
    tells: str = ""

    @property
    def name(self) -> str:
        title = msg(self.title)
        return msg("{title}: {variant}", title=title, variant=msg(self.variant)) if self.variant else title

    def case(self, right: AttentionCase) -> AttentionCase:
        """What a right case is with this bug outside of attention."""
        return replace(right, ahead=self.ahead)

    def on(self, case: AttentionCase) -> AttentionStages:
        """The attention with the bug in the precision in which it shows, float32 in and out."""
        if self.dtype == torch.float32:
            return self.function(case)
        stages = self.function(case.to(self.dtype))
        return AttentionStages(**{name: part.float() for name, part in vars(stages).items()})

    def stages(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> AttentionStages:
        """`on` these alone: q [B,H,T,D], k and v [B,Hkv,T,D], allowed bool, broadcastable to [B,1,T,T]."""
        mask = allowed.expand(len(q), 1, q.shape[2], k.shape[2])
        return self.on(AttentionCase(q, k, v, mask, torch.ones(len(q), k.shape[2], dtype=torch.bool)))
