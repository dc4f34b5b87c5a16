"""Bugs around the core: how heads are cut, what is projected, which module does it, and what the loss asks for.

The bugs run on what a trace holds. Where the wrong line stands before the core, its function undoes what came in
between: it lays the heads side by side again. Sizes: B rows, H heads, T positions, D head width, W = H·D.
"""

from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from i18n import N_
from model.attention import AttentionStages
from model.bug_clinic.case import AttentionCase, Bug


def split_without_transpose(case: AttentionCase) -> AttentionStages:
    """Heads cut and merged by view alone: what counts as one head's tokens are parts of few tokens."""
    stages = replace(case, q=_viewed(case.q), k=_viewed(case.k), v=_viewed(case.v)).stages()
    return replace(stages, output=_viewed_back(stages.output))


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


def _viewed(x: Tensor) -> Tensor:
    """Heads laid side by side, then cut wrongly: [B,H,T,D] -> [B,T,W] -> [B,H,T,D]."""
    return _side_by_side(x).reshape(x.shape)


def _viewed_back(x: Tensor) -> Tensor:
    """What the output projection then reads, cut rightly: [B,H,T,D] -> [B,T,W] -> [B,H,T,D]."""
    heads, length, width = x.shape[-3:]
    return x.reshape(*x.shape[:-3], length, heads, width).transpose(-3, -2)
