"""Attention with a bug in it, and all bugs: what is said of each is in bugs.toml.

Bugs of the mask: read the other way round, of another shape, of another sentence, or left out. They are given the
combined mask, bool, True = may attend; where the wrong line combines masks, its function takes that apart. Bugs between
q·k and the weights: the scale, the softmax, and what is written into blocked cells; and around them: how heads are cut,
what is projected, which module does it, and what the loss asks for.

Sizes: B rows, H heads, Q = K = T positions, D head width, W = H·D.
"""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import AttentionStages
from model.bug_clinic.case import Attention, AttentionCase, Bug


def with_mask(change: Callable[[Tensor], Tensor]) -> Attention:
    """Attention under a wrong mask. change: from the right mask to the wrong one."""
    return lambda case: replace(case, allowed=change(case.allowed)).stages()


def with_parts(join: Callable[[Tensor, Tensor], Tensor]) -> Attention:
    """Attention under a mask joined wrongly, of the order of tokens [.., T, T] and the real ones [.., 1, T]."""
    return with_mask(lambda allowed: join(*_order_and_real(allowed)))


def masks_of_other_rows(case: AttentionCase) -> AttentionStages:
    """Each head under the mask that `repeat` gives it; under its own in a batch of one."""
    return case.stages() if case.masks is None else replace(case, allowed=case.masks).stages()


def repeated(masks: Tensor, heads: int) -> Tensor:
    """What `repeat` lays out for [B,1,T,T] masks, read as PyTorch reads it, head after head: bool [B,H,T,T]."""
    rows, _, queries, keys = masks.shape
    return masks[:, 0].repeat(heads, 1, 1).view(rows, heads, queries, keys)


def row_repeated(row: int, head: int, rows: int, heads: int) -> int:
    """Whose mask a head of a row gets from `repeat`."""
    return (row * heads + head) % rows


def asked_as_a_truth(case: AttentionCase) -> AttentionStages:
    """Whether there is a mask asked of its cells. Raises RuntimeError for a mask of more than one."""
    return case.stages() if ~case.allowed else case.unmasked().stages()


def _order_and_real(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """A combined mask [.., T, T] as the order of tokens [.., T, T] and the real ones [.., 1, T].

    A key that no query may see is padding. In its column the order cannot be seen any more: there it is the causal
    triangle, where anything but padding is blocked at all.
    """
    real = allowed.any(-2, keepdim=True)
    if (allowed | ~real).all():
        return torch.ones_like(allowed), real
    return torch.where(real, allowed, torch.ones_like(allowed).tril()), real


OVERFLOWING = -1e20  # the number that many write for "minus infinity"; float16 ends at -65504


def with_scale(scale_of: Callable[[int, int], float]) -> Attention:
    """Attention with a wrong scale. scale_of: from the number of heads and a head's width to the factor of q·k."""
    return lambda case: replace(case, scale=scale_of(case.q.shape[-3], case.q.shape[-1])).stages()


def softmax_over_queries(case: AttentionCase) -> AttentionStages:
    """Softmax down the columns. A column that is blocked throughout gives 0, so that no NaN hides the rest."""
    stages = case.stages()
    return _with_weights(stages, stages.masked.softmax(-2).nan_to_num(0.0), case)


def masked_after_softmax(case: AttentionCase) -> AttentionStages:
    """Softmax over everything, and only then blocked cells times 0."""
    stages = case.unmasked().stages()
    return _with_weights(stages, stages.weights * case.allowed, case)


def masked_in_place(case: AttentionCase) -> AttentionStages:
    """-inf written into the scores themselves: the weights are right, and the scores gone for the next user."""
    stages = case.stages()
    return replace(stages, scaled=stages.scaled.masked_fill_(~case.allowed, -torch.inf))


def filled_with_too_much(case: AttentionCase) -> AttentionStages:
    """-1e20 written into blocked cells. Raises RuntimeError in float16, which has no such number."""
    return case.stages(fill=OVERFLOWING)


def added_too_much(case: AttentionCase) -> AttentionStages:
    """-1e20 added in blocked cells: -inf in float16, and a row of nothing else becomes NaN."""
    stages = case.unmasked().stages()
    masked = stages.scaled + (1 - case.allowed.to(case.q.dtype)) * OVERFLOWING
    return _with_weights(replace(stages, masked=masked), masked.softmax(-1), case)


def _with_weights(stages: AttentionStages, weights: Tensor, case: AttentionCase) -> AttentionStages:
    """The same with other weights [.., H, Q, K], and the output that they give."""
    values = case.v.repeat_interleave(weights.shape[-3] // case.v.shape[-3], dim=-3)
    return replace(stages, weights=weights, output=weights @ values)


# Around the core: the bugs run on what a trace holds. Where the wrong line stands before the core, its function undoes
# what came in between: it lays the heads side by side again.


def split_without_transpose(case: AttentionCase) -> AttentionStages:
    """Heads cut and merged by view alone: what counts as one head's tokens are parts of few tokens."""
    q, k, v = (_side_by_side(part).reshape(part.shape) for part in (case.q, case.k, case.v))  # cut wrongly
    stages = replace(case, q=q, k=k, v=v).stages()
    *rows, heads, length, width = stages.output.shape  # as it is cut rightly for the output projection:
    return replace(stages, output=stages.output.reshape(*rows, length, heads, width).transpose(-3, -2))


def part_at(head: int, place: int, heads: int, length: int) -> tuple[int, int]:
    """The token, and which part of it, in row or column `place` of a head that was cut by view alone."""
    return divmod(head * length + place, heads)


def stretch(head: int, heads: int, length: int) -> tuple[int, int]:
    """The first and the last token that a head cut by view alone sees."""
    return part_at(head, 0, heads, length)[0], part_at(head, length - 1, heads, length)[0]


def unprojected(case: AttentionCase) -> AttentionStages:
    """The layer's inputs are queries, keys and values at once; where they are not known, q stands in for them."""
    x = case.q if case.inputs is None else case.inputs
    return replace(case, q=x, k=x, v=x).stages()


def fractional_width(case: AttentionCase) -> AttentionStages:
    """A head's width as a quotient: no size for a view. Raises TypeError."""
    x, heads = _side_by_side(case.q), case.q.shape[-3]
    d: Any = x.shape[-1] / heads
    return replace(case, q=x.view(*x.shape[:-1], heads, d).transpose(-3, -2)).stages()


def output_of_one_head(case: AttentionCase) -> AttentionStages:
    """An output layer that reads one head's width. Raises RuntimeError where there are several heads."""
    stages = case.stages()
    context = _side_by_side(stages.output)  # [B,T,W]
    F.linear(context, context.new_zeros(context.shape[-1], case.v.shape[-1]))
    return stages


def one_module(case: AttentionCase) -> AttentionStages:
    """Another attention's module does this one's work too: its own q, k and v are nowhere."""
    q, k, v = case.others or (case.q, case.k, case.v)
    return replace(case, q=q, k=k, v=v).stages()


def _side_by_side(x: Tensor) -> Tensor:
    """[B,H,T,D] -> [B,T,W], as the projection gives it."""
    return x.transpose(-3, -2).flatten(-2)


def without_diagonal(allowed: Tensor) -> Tensor:
    """A mask that closes each token to itself too."""
    return allowed & ~torch.eye(*allowed.shape[-2:], dtype=torch.bool, device=allowed.device)


FUNCTIONS: dict[str, Attention] = {  # of a bug that lies outside of attention none
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
    "half-fill": filled_with_too_much,
    "half-added": added_too_much,
    "inverted": with_mask(torch.logical_not),
    "diagonal": with_mask(without_diagonal),
    "transposed": with_parts(lambda order, real: order.mT & real),
    "first-layer": with_parts(lambda order, real: real),
    "wrong-axis": with_parts(lambda order, real: order & real.mT),
    "or": with_parts(lambda order, real: order | real),
    "repeat": masks_of_other_rows,
    "if-mask": asked_as_a_truth,
}


def _bug(key: str, about: dict[str, Any]) -> Bug:
    dtype = getattr(torch, about.pop("dtype", "float32"))
    return Bug(key=key, function=FUNCTIONS.get(key, AttentionCase.stages), dtype=dtype, **about)


_ABOUT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
BY_KEY = {key: _bug(key, about) for key, about in _ABOUT.items()}
BUGS = tuple(BY_KEY.values())
TITLES = tuple(dict.fromkeys(bug.title for bug in BUGS))
