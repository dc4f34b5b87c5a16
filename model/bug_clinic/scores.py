"""Bugs between q·k and the weights: the scale, the softmax, and what is written into blocked cells; and around them:
how heads are cut, what is projected, which module does it, and what the loss asks for.

Sizes: B rows, H heads, Q = K = T positions, D head width, W = H·D.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from i18n import N_
from model.attention import AttentionStages
from model.bug_clinic.case import Attention, AttentionCase, Bug

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


AROUND = (
    Bug(
        key="view",
        title=N_("Heads split by view"),
        function=split_without_transpose,
        wrong="q, k, v = (part.view(batch, heads, -1, d) for part in (q, k, v))\n"
        "context = context.view(batch, -1, heads * d)",
        right="q, k, v = (part.view(batch, -1, heads, d).transpose(1, 2) for part in (q, k, v))\n"
        "context = context.transpose(1, 2).reshape(batch, -1, heads * d)",
        signs=N_(
            "Without a transpose every shape still fits, so no error is raised. A head should get one part of every "
            "token; here it gets consecutive parts, all those of one token before those of the next, so it sees only "
            "about T / heads consecutive tokens of the T."
        ),
        hint=N_("Which numbers are in row 1: those of token 1, or another part of token 0?"),
        law="heads",
        needs=N_("two heads and two tokens"),
    ),
    Bug(
        key="unprojected",
        title=N_("q, k, v never projected"),
        function=unprojected,
        wrong="q, k, v = x, x, x  # self.query, self.key and self.value: declared, not called",
        right="q, k, v = self.query(x), self.key(x), self.value(x)",
        signs=N_(
            "The projections are declared but never called. Before the mask the scores are symmetric: token i scores "
            "token j as j scores i. In training the three projections never change."
        ),
        hint=N_(
            "Without projections, nothing learned decides which token attends to which. How much weight stays on a "
            "token itself and on similar tokens?"
        ),
        law="projected",
        needs=N_("a token with two allowed keys"),
        tells="itself",
    ),
    Bug(
        key="float-width",
        title=N_("A head width that is not an integer"),
        function=fractional_width,
        wrong="d = width / heads",
        right="d = width // heads",
        signs=N_(
            "In Python 3, / returns a float even if the division is exact. Tensor sizes must be integers, so the "
            "first reshape fails."
        ),
        law="runs",
        needs=N_("nothing"),
    ),
    Bug(
        key="narrow-output",
        title=N_("Output layer as wide as one head"),
        function=output_of_one_head,
        wrong="self.output = nn.Linear(d, width)",
        right="self.output = nn.Linear(heads * d, width)",
        signs=N_(
            "The output layer reads the concatenated heads, heads · d numbers per token. Built for the d numbers of "
            "one head, it fails at the first run; with a single head the same line works."
        ),
        law="runs",
        needs=N_("two heads"),
    ),
    Bug(
        key="one-module",
        title=N_("One module for self- and cross-attention"),
        function=one_module,
        wrong="self.self_attention = MultiHeadAttention(width, heads)\nself.cross_attention = self.self_attention",
        right="self.self_attention = MultiHeadAttention(width, heads)\n"
        "self.cross_attention = MultiHeadAttention(width, heads)",
        signs=N_(
            "Two names share one set of weights: training one attention changes the other. Every shape fits; the only "
            "sign is a parameter count that is too low."
        ),
        hint=N_("Is this a head that does one job, or does it look as if its queries and keys were made for another?"),
        law="projected",
        needs=N_("a second attention whose module is used here, and a token with two allowed keys"),
    ),
)
TARGETS = Bug(
    key="targets",
    title=N_("Targets not shifted"),
    wrong="loss = F.cross_entropy(logits.flatten(0, 1), ids.flatten())",
    right="loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())",
    signs=N_(
        "The attention and the causal mask are correct, but the target at each position is the current token, which "
        "the model can see. A model trained this way copies its input: its loss falls to almost 0, and it generates "
        "its last token again and again."
    ),
    law="target",
    needs=N_("two tokens"),
    ahead=0,
)


def _side_by_side(x: Tensor) -> Tensor:
    """[B,H,T,D] -> [B,T,W], as the projection gives it."""
    return x.transpose(-3, -2).flatten(-2)
