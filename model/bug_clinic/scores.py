"""Bugs between q·k and the weights: the scale, the softmax, and what is written into blocked cells.

Sizes: B rows, H heads, Q = K = T positions, D head width.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor

from i18n import N_
from model.attention import AttentionStages, attention_stages
from model.bug_clinic.case import Attention, Bug, Options
from model.bug_clinic.masks import whole

OVERFLOWING = -1e20  # the number that many write for "minus infinity"; float16 ends at -65504


def with_scale(scale_of: Callable[[int, int], float]) -> Attention:
    """Attention with a wrong scale. scale_of: from the number of heads and a head's width to the factor of q·k."""

    def attention(
        q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
    ) -> AttentionStages:
        return attention_stages(q, k, v, allowed, **(options | {"scale": scale_of(q.shape[-3], q.shape[-1])}))

    return attention


def softmax_over_queries(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """Softmax down the columns. A column that is blocked throughout gives 0, so that no NaN hides the rest."""
    stages = attention_stages(q, k, v, allowed, **options)
    weights = stages.masked.softmax(-2).nan_to_num(0.0)
    return replace(stages, weights=weights, output=_values(weights, v))


def masked_after_softmax(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """Softmax over everything, and only then blocked cells times 0."""
    stages = attention_stages(q, k, v, None, **options)
    weights = stages.weights * whole(q, k, allowed)
    return replace(stages, weights=weights, output=_values(weights, v))


def masked_in_place(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """-inf written into the scores themselves: the weights are right, and the scores gone for the next user."""
    stages = attention_stages(q, k, v, None, **options)
    stages.scaled.masked_fill_(~whole(q, k, allowed), -torch.inf)
    right = attention_stages(q, k, v, allowed, **options)
    return replace(right, scaled=stages.scaled)


def filled_with_too_much(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """-1e20 written into blocked cells. Raises RuntimeError in float16, which has no such number."""
    return attention_stages(q, k, v, allowed, **(options | {"fill": OVERFLOWING}))


def added_too_much(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """-1e20 added in blocked cells: -inf in float16, and a row of nothing else becomes NaN."""
    stages = attention_stages(q, k, v, None, **options)
    masked = stages.scaled + (1 - whole(q, k, allowed).to(q.dtype)) * OVERFLOWING
    weights = masked.softmax(-1)
    return replace(stages, masked=masked, weights=weights, output=_values(weights, v))


_NO_NAN = ".masked_fill(~allowed.any(-1, keepdim=True), 0.0)  # a row with nothing to look at gets 0"

SCORES = (
    Bug(
        key="scale-width",
        title=N_("Wrong scale"),
        variant=N_("model's width"),
        function=with_scale(lambda heads, width: (heads * width) ** -0.5),
        wrong="scores = q @ k.transpose(-2, -1) / width ** 0.5  # width = heads * d",
        right="scores = q @ k.transpose(-2, -1) / d ** 0.5",
        signs=N_(
            "Divided by √(heads · d) and not by √d: scores are √heads times too small, so every row is flatter than "
            "it should be. Nothing fails."
        ),
        hint=N_("Compare the brightest cell of a row with the others: is anything singled out?"),
        law="scaled",
        needs=N_("two heads and a token with two allowed keys"),
        tells="largest",
    ),
    Bug(
        key="scale-divided",
        title=N_("Wrong scale"),
        variant=N_("d / heads"),
        function=with_scale(lambda heads, width: (width / heads) ** -0.5),
        wrong="scores = q @ k.transpose(-2, -1) * (d / heads) ** -0.5  # d = width // heads already",
        right="scores = q @ k.transpose(-2, -1) * d ** -0.5",
        signs=N_(
            "The head's width d is divided by the number of heads once more. Scores are √heads times too large, so "
            "the strongest key of each row gets too much weight."
        ),
        hint=N_("Most rows have one bright cell and little else."),
        law="scaled",
        needs=N_("two heads and a token with two allowed keys"),
        tells="largest",
    ),
    Bug(
        key="scale-none",
        title=N_("Wrong scale"),
        variant=N_("not scaled"),
        function=with_scale(lambda heads, width: 1.0),
        wrong="scores = q @ k.transpose(-2, -1)",
        right="scores = q @ k.transpose(-2, -1) / d ** 0.5",
        signs=N_(
            "Scores are √d times too large, so the strongest key of each row gets too much weight, and the gradients "
            "of the others shrink: the wider the heads, the worse."
        ),
        hint=N_("Most rows have one bright cell and nothing else."),
        law="scaled",
        needs=N_("a model that scales its scores here, and a token with two allowed keys"),
        tells="largest",
    ),
    Bug(
        key="query-axis",
        title=N_("Softmax over the query axis"),
        function=softmax_over_queries,
        wrong="weights = masked.softmax(dim=-2)",
        right="weights = masked.softmax(dim=-1)",
        signs=N_(
            "Columns sum to 1, and rows do not: in the last column the last token is alone, so it gives itself a "
            "weight of 1. What a token gives to another depends on the tokens after it."
        ),
        hint=N_("Look at the last column: how many are there to share its weight?"),
        law="rows",
        needs=N_("two tokens"),
        tells="sum",
    ),
    Bug(
        key="after-softmax",
        title=N_("Mask multiplied after softmax"),
        function=masked_after_softmax,
        wrong="weights = scores.softmax(-1)\nweights = weights * allowed",
        right='weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)\nweights = weights' + _NO_NAN,
        signs=N_(
            "Blocked weights are 0, so the picture looks masked. But most rows sum to less than 1, and what is "
            "missing depends on later tokens: they are still in the softmax's denominator."
        ),
        hint=N_("Add up the first rows."),
        law="rows",
        needs=N_("a mask that blocks something"),
        tells="sum",
    ),
    Bug(
        key="in-place",
        title=N_("Masked in place"),
        function=masked_in_place,
        wrong='masked = scores.masked_fill_(~allowed, float("-inf"))',
        right='masked = scores.masked_fill(~allowed, float("-inf"))',
        signs=N_(
            "The weights are correct, but the scores themselves are lost: the in-place masked_fill_ writes −inf into "
            "them. Any later use, for another mask or a plot, reads −inf in every blocked cell."
        ),
        law="kept",
        needs=N_("a mask that blocks something"),
    ),
    Bug(
        key="half-fill",
        title=N_("−1e20 in float16"),
        variant="masked_fill",
        function=filled_with_too_much,
        wrong="masked = scores.masked_fill(~allowed, -1e20)  # scores are float16\nweights = masked.softmax(-1)",
        right='masked = scores.masked_fill(~allowed, float("-inf"))\nweights = masked.softmax(-1)' + _NO_NAN,
        signs=N_(
            "The smallest float16 value is −65,504, so PyTorch refuses to write −1e20. The same line works in "
            "float32, so it fails only once half precision is turned on."
        ),
        law="runs",
        needs=N_("a mask that blocks something"),
        dtype=torch.float16,
    ),
    Bug(
        key="half-added",
        title=N_("−1e20 in float16"),
        variant=N_("added"),
        function=added_too_much,
        wrong="masked = scores + (1 - allowed.to(scores.dtype)) * -1e20  # scores are float16\n"
        "weights = masked.softmax(-1)",
        right='masked = scores.masked_fill(~allowed, float("-inf"))\nweights = masked.softmax(-1)' + _NO_NAN,
        signs=N_(
            "No error is raised: −1e20 becomes −inf. The softmax of a fully blocked row, such as left padding, is "
            "then NaN. In the next layer 0 · NaN is NaN too, so every token's output becomes NaN."
        ),
        hint=N_("Look for rows of NaN."),
        law="empty",
        needs=N_("a fully blocked row: padding on the left"),
        dtype=torch.float16,
    ),
)


def _values(weights: Tensor, v: Tensor) -> Tensor:
    """weights [.., H, Q, K] @ v, whose heads may be shared."""
    return weights @ v.repeat_interleave(weights.shape[-3] // v.shape[-3], dim=-3)
