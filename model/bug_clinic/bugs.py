"""Attention with a bug, the cases that it is tried on, and all bugs; bugs.toml describes each of them.

Bugs of the mask (inverted, of another shape or text, missing) get the combined mask, bool, True = may attend. Others
are between q·k and the weights: the scale, the softmax, what is written into blocked cells; or around them: how heads
are split, what is projected, by which module, what the loss compares with. Sizes: B rows, H heads, Q = K = T positions,
D head width, W = H·D.
"""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from i18n import msg
from model.attention import NO_TERMS, AttentionStages, ScoreTerms, attention_stages

Attention = Callable[["AttentionCase"], AttentionStages]


OVERFLOWING = -1e20  # a common substitute for minus infinity; float16 ends at -65504


class Crash(Exception):
    """An attention that PyTorch refuses to compute, with PyTorch's message."""


@dataclass(frozen=True, eq=False)
class AttentionCase:
    """One layer of one run, in which the queries are all positions, and the keys too.

    q [B,H,T,D]; k and v [B,Hkv,T,D]; allowed bool [B,1,T,T]; keep bool [B,T], True = a real token. scale, terms: as for
    attention_stages. ahead: how far after a position the token is that it must predict. For bugs, None if not
    available: inputs [B,H,T,D]: the layer's inputs before its projections, split into heads. others: q, k and v of
    another attention's projections. masks: bool [B,H,T,T], what each head gets of a mask that `repeat` laid out for all
    heads. order: bool [B,1,T,T], the mask without padding's.
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
    order: Tensor | None = None
    ahead: int = 1

    @property
    def has_usual_scale(self) -> bool:
        """Whether scores are divided by √D: some models have another scale."""
        return self.scale is None or math.isclose(self.scale, self.q.shape[-1] ** -0.5, rel_tol=1e-6)

    def stages(self, fill: float = -torch.inf) -> AttentionStages:
        return attention_stages(self.q, self.k, self.v, self.allowed, scale=self.scale, fill=fill, terms=self.terms)

    def run(self, attention: Attention) -> AttentionStages:
        """Run the attention on this case. Raises Crash if PyTorch refuses to compute it."""
        try:
            return attention(self)
        except (RuntimeError, TypeError) as error:  # TypeError: a size that is no whole number
            raise Crash(str(error).strip()) from error

    def unmasked(self) -> "AttentionCase":
        return replace(self, allowed=torch.ones_like(self.allowed))

    def to(self, dtype: torch.dtype) -> "AttentionCase":
        """Return the case with its numbers in another precision."""
        bias, sinks = (None if term is None else term.to(dtype) for term in (self.terms.bias, self.terms.sinks))
        terms = ScoreTerms(self.terms.softcap, bias, sinks)
        return replace(self._map_tensors(lambda numbers: numbers.to(dtype)), terms=terms)

    def text_alone(self, row: int) -> "AttentionCase":
        """Return one row without its padding, in a batch of its own: there is no other mask to confuse with its own."""
        some, one = self.real(row), slice(row, row + 1)
        return replace(
            self._map_tensors(lambda numbers: numbers[one, :, some]),
            allowed=self.allowed[one, :, some, some],
            keep=self.keep[one, some],
            terms=terms_of(self.terms, one, some),
            masks=None,
            order=None,
        )

    def copies(self, row: int, count: int) -> "AttentionCase":
        """Return the case with one row repeated."""

        def repeated(tensor: Tensor) -> Tensor:
            return tensor[row : row + 1].expand(count, *tensor.shape[1:])

        return replace(
            self._map_tensors(repeated),
            allowed=repeated(self.allowed),
            keep=repeated(self.keep),
            terms=terms_of(self.terms, slice(row, row + 1)),
            masks=None if self.masks is None else repeated(self.masks),
            order=None if self.order is None else repeated(self.order),
        )

    def with_negated(self, where: tuple[Tensor | slice | int, ...]) -> "AttentionCase":
        """Return the case with other numbers at an index into [B,H,T,D]: those there with their signs reversed."""

        def negated(numbers: Tensor) -> Tensor:
            result = numbers.clone()
            result[where] = -result[where]
            return result

        return self._map_tensors(negated)

    def real(self, row: int) -> slice:
        """Return the slice of the row's real tokens."""
        where = self.keep[row].nonzero()
        return slice(int(where[0]), int(where[-1]) + 1)

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "AttentionCase":
        inputs = None if self.inputs is None else change(self.inputs)
        others = None if self.others is None else tuple(map(change, self.others))
        return replace(self, q=change(self.q), k=change(self.k), v=change(self.v), inputs=inputs, others=others)


def terms_of(terms: ScoreTerms, rows: slice, some: slice = slice(None)) -> ScoreTerms:
    """Return the terms of some rows of the batch, which may share a bias, and of some of their positions."""
    bias, sinks = terms.bias, terms.sinks
    if bias is not None:
        bias = (bias if len(bias) == 1 else bias[rows])[:, :, some, some]
    if sinks is not None and sinks.ndim > 1:
        sinks = sinks[rows, :, some]
    return ScoreTerms(terms.softcap, bias, sinks)


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A bug, its fix, and its description. Bugs of one title are variants of each other.

    function: attention with the bug; the right one if the bug is outside of attention.
    wrong, right: lines of code, as many of the one as of the other. signs: its symptoms.
    hint: a hint for users who see only its heatmap; empty if its heatmap shows nothing.
    law: the one of laws.LAWS that detects it best. blames: the mask that wrongly blocked cells are attributed to.
    needs: what a text or model must have for the bug to have an effect. dtype: the precision in which it shows.
    first_layer: the first layer that has it. ahead: how far ahead of a position its loss takes the target.
    tells: the one of spot.FEATURES that its heatmap shows best; empty if none does.
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

    def on(self, case: AttentionCase) -> AttentionStages:
        """Run the attention with the bug in the precision in which it shows, float32 in and out."""
        if self.dtype == torch.float32:
            return self.function(case)
        stages = self.function(case.to(self.dtype))
        return AttentionStages(**{name: part.float() for name, part in vars(stages).items()})

    def stages(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> AttentionStages:
        """Run `on` these alone: q [B,H,T,D], k and v [B,Hkv,T,D], allowed bool, broadcastable to [B,1,T,T]."""
        mask = allowed.expand(len(q), 1, q.shape[2], k.shape[2])
        return self.on(AttentionCase(q, k, v, mask, torch.ones(len(q), k.shape[2], dtype=torch.bool)))


def with_mask(change: Callable[[Tensor], Tensor]) -> Attention:
    """Return attention under a wrong mask. change: maps the right mask to the wrong one."""
    return lambda case: replace(case, allowed=change(case.allowed)).stages()


def with_parts(join: Callable[[Tensor, Tensor], Tensor]) -> Attention:
    """Return attention under a mask joined wrongly from the tokens' order [.., T, T] and the real ones [.., 1, T]."""

    def attention(case: AttentionCase) -> AttentionStages:
        real, order = case.allowed.any(-2, keepdim=True), case.order  # a key blocked for every query is padding
        if order is None:
            order = torch.ones_like(case.allowed)
            if not (case.allowed | ~real).all():
                order = torch.where(real, case.allowed, order.tril())  # padding's columns do not show the order
        return replace(case, allowed=join(order, real)).stages()

    return attention


def repeated(masks: Tensor, heads: int) -> Tensor:
    """Return the wrong result of `repeat` on [B,1,T,T] masks, in PyTorch's order, head after head: bool [B,H,T,T]."""
    rows, _, queries, keys = masks.shape
    return masks[:, 0].repeat(heads, 1, 1).view(rows, heads, queries, keys)


def row_repeated(row: int, head: int, rows: int, heads: int) -> int:
    """Return the row whose mask a head of a row gets from `repeat`."""
    return (row * heads + head) % rows


def with_scale(scale_of: Callable[[int, int], float]) -> Attention:
    """Return attention with a wrong scale instead of the usual one; another scale stays. scale_of: maps the number of
    heads and a head's width to the factor of q·k."""

    def scale(case: AttentionCase) -> float | None:
        return scale_of(case.q.shape[-3], case.q.shape[-1]) if case.has_usual_scale else case.scale

    return lambda case: replace(case, scale=scale(case)).stages()


def masked_in_place(case: AttentionCase) -> AttentionStages:
    """Write -inf into the scores themselves: the weights are right, but the scores are lost for further use."""
    stages = case.stages()
    return replace(stages, scaled=stages.scaled.masked_fill_(~case.allowed, -torch.inf))


def softmax_over_queries(case: AttentionCase) -> AttentionStages:
    stages = case.stages()  # a fully blocked column gives 0, so that no NaN hides the rest
    return _with_weights(stages, stages.masked.softmax(-2).nan_to_num(0.0), case)


def masked_after_softmax(case: AttentionCase) -> AttentionStages:
    stages = case.unmasked().stages()
    return _with_weights(stages, stages.weights * case.allowed, case)


def overflowing_fill_added(case: AttentionCase) -> AttentionStages:
    """Add -1e20 in blocked cells: -inf in float16, so a fully blocked row becomes NaN."""
    if case.terms.sinks is not None:  # never blocked: with a sink no row is empty
        return case.stages()
    stages = case.unmasked().stages()
    masked = stages.scaled + (1 - case.allowed.to(case.q.dtype)) * OVERFLOWING
    return _with_weights(replace(stages, masked=masked), masked.softmax(-1), case)


def _with_weights(stages: AttentionStages, weights: Tensor, case: AttentionCase) -> AttentionStages:
    values = case.v.repeat_interleave(weights.shape[-3] // case.v.shape[-3], dim=-3)
    return replace(stages, weights=weights, output=weights @ values)


# Bugs around the core run on what a trace holds. If the wrong line comes before the core, the function first undoes
# what came in between: it lays the heads side by side again.


def split_without_transpose(case: AttentionCase) -> AttentionStages:
    """Split and merge heads by view alone: what counts as one head's tokens are parts of few tokens."""
    q, k, v = (_side_by_side(part).reshape(part.shape) for part in (case.q, case.k, case.v))  # split wrongly
    stages = replace(case, q=q, k=k, v=v).stages()
    *rows, heads, length, width = stages.output.shape  # as it is split rightly for the output projection:
    return replace(stages, output=stages.output.reshape(*rows, length, heads, width).transpose(-3, -2))


def token_in_view_split(head: int, index: int, heads: int, length: int) -> tuple[int, int]:
    """Return the token, and which part of it, in row or column `index` of a head split by view alone. heads: of the
    queries for a row; of the keys, which several heads may share, for a column."""
    return divmod(head * length + index, heads)


def stretch(head: int, heads: int, length: int) -> tuple[int, int]:
    """Return the first and the last token that a head split by view alone sees. head, heads: of the keys."""
    return token_in_view_split(head, 0, heads, length)[0], token_in_view_split(head, length - 1, heads, length)[0]


def unprojected(case: AttentionCase) -> AttentionStages:
    """Use the layer's inputs as queries, keys and values; if they are not available, q stands in for them."""
    x = case.q if case.inputs is None else case.inputs
    v = F.pad(x, (0, case.v.shape[-1] - x.shape[-1]))  # cropped where values are narrower (multi-head latent attention)
    return replace(case, q=x, k=x, v=v).stages()


def fractional_width(case: AttentionCase) -> AttentionStages:
    """Use a quotient as a head's width, which is no size for a view. Raises TypeError."""
    x, heads = _side_by_side(case.q), case.q.shape[-3]
    d: Any = x.shape[-1] / heads
    return replace(case, q=x.view(*x.shape[:-1], heads, d).transpose(-3, -2)).stages()


def output_of_one_head(case: AttentionCase) -> AttentionStages:
    """Apply an output layer with one head's width as its input. Raises RuntimeError if there are several heads."""
    stages = case.stages()
    context = _side_by_side(stages.output)  # [B,T,W]
    F.linear(context, context.new_zeros(context.shape[-1], case.v.shape[-1]))
    return stages


def one_module(case: AttentionCase) -> AttentionStages:
    """Use another attention's module for this one too: its own q, k and v are never computed."""
    q, k, v = case.others or (case.q, case.k, case.v)
    return replace(case, q=q, k=k, v=v).stages()


def _side_by_side(x: Tensor) -> Tensor:
    """Concatenate heads as the projection gives them: [B,H,T,D] -> [B,T,W]."""
    return x.transpose(-3, -2).flatten(-2)


FUNCTIONS: dict[str, Attention] = {  # none for a bug outside of attention
    "view": split_without_transpose,
    "unprojected": unprojected,
    "float-width": fractional_width,
    "narrow-output": output_of_one_head,
    "one-module": one_module,
    "scale-width": with_scale(lambda heads, width: (heads * width) ** -0.5),
    "scale-divided": with_scale(lambda heads, width: (width / heads) ** -0.5),
    "scale-none": with_scale(lambda heads, width: 1.0),
    "query-axis": softmax_over_queries,
    "after-softmax": masked_after_softmax,
    "in-place": masked_in_place,
    "half-fill": lambda case: case.stages(fill=OVERFLOWING),  # a RuntimeError in float16, which has no such number
    "half-added": overflowing_fill_added,
    "inverted": with_mask(torch.logical_not),
    "diagonal": with_mask(lambda allowed: allowed & ~torch.eye(*allowed.shape[-2:], dtype=torch.bool)),
    "transposed": with_parts(lambda order, real: order.mT & real),
    "first-layer": with_parts(lambda order, real: real),
    "wrong-axis": with_parts(lambda order, real: order & real.mT),
    "or": with_parts(lambda order, real: order | real),
    # each head gets the mask that `repeat` gives it; its own in a batch of one
    "repeat": lambda case: case.stages() if case.masks is None else replace(case, allowed=case.masks).stages(),
    # tests the mask's cells, not whether there is a mask: a RuntimeError for more than one cell
    "if-mask": lambda case: case.stages() if ~case.allowed else case.unmasked().stages(),
}


_ABOUT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
BY_KEY = {
    key: Bug(
        key=key,
        function=FUNCTIONS.get(key, AttentionCase.stages),
        dtype=getattr(torch, about.pop("dtype", "float32")),
        **about,
    )
    for key, about in _ABOUT.items()
}
BUGS = tuple(BY_KEY.values())
TITLES = tuple(dict.fromkeys(bug.title for bug in BUGS))
