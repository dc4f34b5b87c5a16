"""Bugs of the mask: read the other way round, of another shape, of another sentence, or left out.

The functions are given the combined mask, bool, True = may attend; where the wrong line combines masks, its function
takes that apart. Sizes: B rows, H heads, Q = K = T positions.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from i18n import N_
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


MASKS = (
    Bug(
        key="inverted",
        title=N_("Inverted mask"),
        function=with_mask(torch.logical_not),
        wrong='masked = scores.masked_fill(mask == 0, float("-inf"))  # but in this mask 1 = blocked',
        right='masked = scores.masked_fill(mask == 1, float("-inf"))',
        signs=N_(
            "Tokens see exactly what they should not, and nothing else. PyTorch itself has both conventions: True is "
            "“may attend” in scaled_dot_product_attention, and “blocked” in MultiheadAttention's attn_mask."
        ),
        hint=N_("Where should the hatching be?"),
        law="blocked",
        needs=N_("a mask that blocks something"),
        tells="later",
    ),
    Bug(
        key="diagonal",
        title=N_("Causal triangle"),
        variant=N_("off by one"),
        function=with_mask(
            lambda allowed: allowed & ~torch.eye(*allowed.shape[-2:], dtype=torch.bool, device=allowed.device)
        ),
        wrong="causal = ~torch.ones(T, T, dtype=torch.bool).triu(diagonal=0)",
        right="causal = ~torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)",
        signs=N_("No token sees itself, and the first has no allowed key: a plain softmax makes its row NaN."),
        hint=N_("Look at the diagonal, and at the first row."),
        law="rows",
        needs=N_("at least one token"),
        tells="itself",
    ),
    Bug(
        key="transposed",
        title=N_("Causal triangle"),
        variant=N_("transposed"),
        function=with_parts(lambda order, real: order.mT & real),
        wrong="causal = torch.ones(T, T, dtype=torch.bool).triu()",
        right="causal = torch.ones(T, T, dtype=torch.bool).tril()",
        signs=N_(
            "Every token sees itself and later tokens, but no earlier ones: in training the model reads the answer, "
            "and in generation it has no context."
        ),
        hint=N_("Which triangle is hatched, and is the diagonal?"),
        law="causal",
        needs=N_("two tokens"),
        tells="later",
    ),
    Bug(
        key="first-layer",
        title=N_("Causal in the first layer only"),
        function=with_parts(lambda order, real: real),
        wrong="x = block(x, allowed if number == 0 else padding)",
        right="x = block(x, allowed)",
        signs=N_(
            "The first layer's heatmaps, which are usually inspected first, are correct. From the second layer on, "
            "later tokens are visible."
        ),
        hint=N_("Only one of the two masks is left."),
        law="causal",
        needs=N_("a second layer and two tokens"),
        first_layer=1,
        tells="later",
    ),
    Bug(
        key="wrong-axis",
        title=N_("Padding mask on the wrong axis"),
        function=with_parts(lambda order, real: order & real.mT),
        wrong="allowed = causal & keep[:, None, :, None]  # [B,1,T,1]",
        right="allowed = causal & keep[:, None, None, :]  # [B,1,1,T]",
        signs=N_(
            "Padding queries are masked, which has no useful effect, and real tokens still attend to padding: the "
            "same text gives a different output in another batch. With padding on the right, the causal mask hides "
            "the bug from real tokens."
        ),
        hint=N_("A padding mask blocks columns. What is blocked here?"),
        law="padded",
        needs=N_("padding in this row"),
        blames="padding",
        tells="padding",
    ),
    Bug(
        key="or",
        title=N_("Masks combined with “or”"),
        function=with_parts(lambda order, real: order | real),
        wrong="allowed = causal | keep[:, None, None, :]",
        right="allowed = causal & keep[:, None, None, :]",
        signs=N_(
            "The padding mask allows every real token, so later tokens are open; the causal mask allows all earlier "
            "cells, so padding on the left is open too. Little is blocked, and nothing fails."
        ),
        hint=N_("Count the hatched cells."),
        law="blocked",
        needs=N_("two tokens"),
        tells="later",
    ),
    Bug(
        key="repeat",
        title=N_("Masks repeated in the wrong order"),
        function=masks_of_other_rows,
        wrong="attn_mask = attn_mask.repeat(heads, 1, 1)  # [B,T,T]: rows 0, 1, 0, 1",
        right="attn_mask = attn_mask.repeat_interleave(heads, dim=0)  # rows 0, 0, 1, 1",
        signs=N_(
            "MultiheadAttention expects a mask for every head of the first row, then for every head of the second. "
            "With two rows, repeat gives the first, the second, the first, the second: some heads get the mask of "
            "another sentence. Every shape fits."
        ),
        hint=N_("Is this the padding of this sentence?"),
        law="padded",
        needs=N_("two rows of different lengths, and two heads"),
        blames="padding",
        tells="padding",
    ),
    Bug(
        key="if-mask",
        title=N_("“if attn_mask:”"),
        function=asked_as_a_truth,
        wrong='masked = scores\nif attn_mask: masked = scores.masked_fill(attn_mask, float("-inf"))',
        right='masked = scores\nif attn_mask is not None: masked = scores.masked_fill(attn_mask, float("-inf"))',
        signs=N_(
            "The intent is “if there is a mask”, but the code tests the truth value of the tensor, which is ambiguous "
            "with more than one element: the first call with a mask fails, while all tests without one pass."
        ),
        law="runs",
        needs=N_("a mask of more than one cell"),
    ),
)


def _order_and_real(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """A combined mask [.., T, T] as the order of tokens [.., T, T] and the real ones [.., 1, T].

    A key that no query may see is padding. In its column the order cannot be seen any more: there it is the causal
    triangle, where anything but padding is blocked at all.
    """
    real = allowed.any(-2, keepdim=True)
    if (allowed | ~real).all():
        return torch.ones_like(allowed), real
    return torch.where(real, allowed, torch.ones_like(allowed).tril()), real
