"""Attention as people get it wrong. Each bug is a function with the core's signature (`attention_stages`).

The bugs run on what a trace holds. Where the wrong line of code stands before the core, its function undoes what came
in between: it lays the heads side by side again, or takes the combined mask apart.
Sizes: B rows, H heads, Q = K = T positions, D head width. True in a mask means "may attend".
"""

from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from model.attention import AttentionStages, ScoreTerms, attention_stages
from model.bug_clinic.laws import Attention

OVERFLOWING = -1e20  # the number that many write for "minus infinity"; float16 ends at -65504


class Options(TypedDict, total=False):
    """What the core takes by name."""

    scale: float | None
    fill: float
    terms: ScoreTerms


def split_without_transpose(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """1. Heads cut by view(batch · heads, -1, d): what counts as one head's tokens are parts of few tokens."""
    stages = attention_stages(_viewed(q), _viewed(k), _viewed(v), allowed, **options)
    return replace(stages, output=_viewed_back(stages.output))


def unprojected(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    *,
    inputs: Tensor | None = None,
    **options: Unpack[Options],
) -> AttentionStages:
    """2. The projections are declared and never called: the layer's inputs are queries, keys and values at once.

    inputs [B,H,T,D]: what the layer reads, cut into heads; where that is not known, q stands in for it.
    """
    x = q if inputs is None else inputs
    return attention_stages(x, x, x, allowed, **options)


def scaled_by_model_width(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """3a. Divided by the root of the model's width, not of the head's."""
    return attention_stages(q, k, v, allowed, **(options | {"scale": (q.shape[-3] * q.shape[-1]) ** -0.5}))


def scaled_by_divided_width(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """3b. The head's width divided by the number of heads once more."""
    return attention_stages(q, k, v, allowed, **(options | {"scale": (q.shape[-1] / q.shape[-3]) ** -0.5}))


def not_scaled(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]) -> AttentionStages:
    """3c. Not divided by anything."""
    return attention_stages(q, k, v, allowed, **(options | {"scale": 1.0}))


def inverted_mask(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """4. A mask whose 1 means "blocked" read as one whose 1 means "allowed"."""
    return attention_stages(q, k, v, ~_whole(q, k, allowed), **options)


def triangle_without_diagonal(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """5a. The triangle off by one: a token cannot see itself."""
    itself = torch.eye(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    return attention_stages(q, k, v, _whole(q, k, allowed) & ~itself, **options)


def triangle_transposed(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """5b. The other triangle: a token sees itself and what comes later."""
    order, real = _taken_apart(_whole(q, k, allowed))
    return attention_stages(q, k, v, order.transpose(-2, -1) & real, **options)


def masked_after_softmax(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """6. Softmax over everything, and only then blocked cells times 0."""
    stages = attention_stages(q, k, v, None, **options)
    weights = stages.weights * _whole(q, k, allowed)
    return replace(stages, weights=weights, output=_values(weights, v))


def filled_with_too_much(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """7a. -1e20 written into blocked cells. Raises RuntimeError in float16, which has no such number."""
    return attention_stages(q, k, v, allowed, **(options | {"fill": OVERFLOWING}))


def added_too_much(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """7b. -1e20 added in blocked cells: -inf in float16, and a row of nothing else becomes NaN."""
    stages = attention_stages(q, k, v, None, **options)
    masked = stages.scaled + (1 - _whole(q, k, allowed).to(q.dtype)) * OVERFLOWING
    weights = masked.softmax(-1)
    return replace(stages, masked=masked, weights=weights, output=_values(weights, v))


def padding_on_the_wrong_axis(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """8. The padding mask as [B,1,T,1]: padding looks at nobody, and everybody may look at padding."""
    order, real = _taken_apart(_whole(q, k, allowed))
    return attention_stages(q, k, v, order & real.transpose(-2, -1), **options)


def masks_joined_by_or(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """9. Allowed where one mask allows it, not where all do."""
    order, real = _taken_apart(_whole(q, k, allowed))
    return attention_stages(q, k, v, order | real, **options)


def softmax_over_queries(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """10. Softmax down the columns. A column that is blocked throughout gives 0, so that no NaN hides the rest."""
    stages = attention_stages(q, k, v, allowed, **options)
    weights = stages.masked.softmax(-2).nan_to_num(0.0)
    return replace(stages, weights=weights, output=_values(weights, v))


def masked_in_place(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """11. -inf written into the scores themselves: the weights are right, and the scores gone for the next user."""
    stages = attention_stages(q, k, v, None, **options)
    stages.scaled.masked_fill_(~_whole(q, k, allowed), -torch.inf)
    right = attention_stages(q, k, v, allowed, **options)
    return replace(right, scaled=stages.scaled)


def causal_mask_forgotten(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]
) -> AttentionStages:
    """12. What layers after the first do when only the first is given the causal mask: padding alone is blocked."""
    _, real = _taken_apart(_whole(q, k, allowed))
    return attention_stages(q, k, v, real, **options)


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A bug, its cure, and what to say of it. Bugs of one number are variants of each other.

    wrong, right: a line of code each. signs: what gives it away. hint: a nudge for who looks at its heatmap alone.
    law: the one of laws.LAWS that tells it best. blames: the mask that the cells it blocks wrongly are put down to.
    needs: what a text or model must have for the bug to do anything. dtype: the precision in which it shows.
    first_layer: the first layer that has it. second_use: it shows when the scores are used again, without a mask.
    """

    key: str
    number: int
    title: str
    variant: str = ""
    function: Attention
    wrong: str
    right: str
    signs: str
    hint: str
    law: str
    needs: str
    blames: str = "causal"
    dtype: torch.dtype = torch.float32
    first_layer: int = 0
    second_use: bool = False

    @property
    def name(self) -> str:
        """The title, with the variant where there are several."""
        return f"{self.title}: {self.variant}" if self.variant else self.title


_A_CHOICE = "a token that has more than one to look at"
_MASK = 'scores.masked_fill({}, float("-inf"))'

BUGS = (
    Bug(
        key="view",
        number=1,
        title="Heads split by view",
        function=split_without_transpose,
        wrong="q = self.query(x).view(batch * heads, -1, d)",
        right="q = self.query(x).view(batch, -1, heads, d).transpose(1, 2)",
        signs="Without a transpose every shape still fits, so nothing complains. But a head no longer has a part of "
        "every token, it has every part of a few tokens: it sees one stretch of the text, and what goes into one head "
        "comes out of another.",
        hint="Ask whose numbers stand in row 1: those of token 1, or another part of token 0?",
        law="heads",
        needs="two heads and two tokens",
    ),
    Bug(
        key="unprojected",
        number=2,
        title="q, k, v never projected",
        function=unprojected,
        wrong="q, k, v = split(x), split(x), split(x)  # self.query, self.key, self.value: declared, not called",
        right="q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))",
        signs="The projections are declared and never called. Before the mask the scores are symmetric, and most "
        "tokens like themselves and their repetitions best. After training, the three projections still hold the "
        "numbers they started with.",
        hint="Who looks at whom says nothing about what was learned: see how much stays on a token itself.",
        law="projected",
        needs=_A_CHOICE,
    ),
    Bug(
        key="scale-width",
        number=3,
        title="Wrong scale",
        variant="model's width",
        function=scaled_by_model_width,
        wrong="scores = q @ k.transpose(-2, -1) / width ** 0.5  # width = heads * d",
        right="scores = q @ k.transpose(-2, -1) / d ** 0.5",
        signs="Divided by √(heads · d) and not by √d. Scores are too small, so every row is flatter than it should be. "
        "Nothing fails, and in training the loss still falls, only less far.",
        hint="Compare the brightest cell with the dullest one of its row: nobody is singled out.",
        law="scaled",
        needs="two heads and a token that has more than one to look at",
    ),
    Bug(
        key="scale-divided",
        number=3,
        title="Wrong scale",
        variant="d / heads",
        function=scaled_by_divided_width,
        wrong="scores = q @ k.transpose(-2, -1) * (d / heads) ** -0.5  # d = width // heads already",
        right="scores = q @ k.transpose(-2, -1) * d ** -0.5",
        signs="The head's width d is divided by the heads once more. Scores are √heads times too large, so the "
        "strongest key of each row takes more than its share.",
        hint="Most rows have one bright cell and little else.",
        law="scaled",
        needs="two heads and a token that has more than one to look at",
    ),
    Bug(
        key="scale-none",
        number=3,
        title="Wrong scale",
        variant="none",
        function=not_scaled,
        wrong="scores = q @ k.transpose(-2, -1)",
        right="scores = q @ k.transpose(-2, -1) / d ** 0.5",
        signs="Scores grow with √d, softmax hands nearly all to one key, and the gradients of all others vanish: "
        "training stalls, sooner in wider heads.",
        hint="Most rows have one bright cell and nothing else.",
        law="scaled",
        needs="a model that scales its scores in this place, and a token that has more than one to look at",
    ),
    Bug(
        key="inverted",
        number=4,
        title="Mask read the other way round",
        function=inverted_mask,
        wrong=f"scores = {_MASK.format('mask == 0')}  # but in this mask 1 = blocked",
        right=f"scores = {_MASK.format('mask == 1')}",
        signs="Tokens see exactly what they should not. In training the loss drops to almost nothing within minutes, "
        "and generated text is rubbish. PyTorch itself has both conventions: True is “may attend” in "
        "scaled_dot_product_attention and “blocked” in MultiheadAttention's attn_mask.",
        hint="Where should the hatching be?",
        law="blocked",
        needs="a mask that blocks something",
    ),
    Bug(
        key="diagonal",
        number=5,
        title="Causal triangle",
        variant="off by one",
        function=triangle_without_diagonal,
        wrong="blocked = torch.ones(T, T, dtype=torch.bool).triu(diagonal=0)",
        right="blocked = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)",
        signs="No token sees itself, and the first has nothing to look at: without care its row is NaN.",
        hint="Look at the diagonal, and at the first row.",
        law="rows",
        needs="nothing but a token",
    ),
    Bug(
        key="transposed",
        number=5,
        title="Causal triangle",
        variant="transposed",
        function=triangle_transposed,
        wrong="allowed = torch.ones(T, T, dtype=torch.bool).triu()",
        right="allowed = torch.ones(T, T, dtype=torch.bool).tril()",
        signs="Every token sees itself and the future, and nothing that came before. In training the loss drops to "
        "almost nothing, and generated text is rubbish.",
        hint="Which triangle is hatched, and is the diagonal?",
        law="causal",
        needs="two tokens",
    ),
    Bug(
        key="after-softmax",
        number=6,
        title="Mask multiplied after softmax",
        function=masked_after_softmax,
        wrong="weights = scores.softmax(-1) * allowed",
        right=f"weights = {_MASK.format('~allowed')}.softmax(-1)",
        signs="Blocked weights are 0, so the picture looks masked. But rows sum to less than 1, the early ones most, "
        "and what is missing depends on the future: it leaks through the denominator.",
        hint="Add up the first rows.",
        law="rows",
        needs="a mask that blocks something",
    ),
    Bug(
        key="half-fill",
        number=7,
        title="−1e20 in float16",
        variant="masked_fill",
        function=filled_with_too_much,
        wrong="scores = scores.masked_fill(~allowed, -1e20)  # scores are float16",
        right=f"scores = {_MASK.format('~allowed')}  # and weights 0 for a row that is blocked throughout",
        signs="float16 ends at −65504. PyTorch refuses to write −1e20 into it; in float32 the same line works, so it "
        "fails on the day somebody turns on half precision.",
        hint="",
        law="same",
        needs="nothing but float16",
        dtype=torch.float16,
    ),
    Bug(
        key="half-added",
        number=7,
        title="−1e20 in float16",
        variant="added",
        function=added_too_much,
        wrong="scores = scores + (1 - allowed.to(scores.dtype)) * -1e20  # scores are float16",
        right=f"scores = {_MASK.format('~allowed')}  # and weights 0 for a row that is blocked throughout",
        signs="Nothing complains: −1e20 becomes −inf. A row that is blocked throughout, like padding on the left, is "
        "then softmax of nothing but −inf: NaN. In the next layer 0 · NaN is NaN too, and so is every token.",
        hint="Look for rows without a number.",
        law="empty",
        needs="a row that is blocked throughout: padding on the left",
        dtype=torch.float16,
    ),
    Bug(
        key="wrong-axis",
        number=8,
        title="Padding mask on the wrong axis",
        function=padding_on_the_wrong_axis,
        wrong="allowed = causal & keep[:, None, :, None]  # [N,1,L,1]",
        right="allowed = causal & keep[:, None, None, :]  # [N,1,1,L]",
        signs="Padding looks at nobody, which helps nobody, and real tokens look at padding. The same text gives "
        "another output in another batch. With padding on the right the causal mask hides the bug from real tokens.",
        hint="A padding mask blocks columns. What is blocked here?",
        law="padded",
        needs="padding in this row",
        blames="padding",
    ),
    Bug(
        key="or",
        number=9,
        title="Masks joined by or",
        function=masks_joined_by_or,
        wrong="allowed = causal | keep[:, None, None, :]",
        right="allowed = causal & keep[:, None, None, :]",
        signs="Every real token is allowed by the padding mask, so the future is open; every earlier padding is "
        "allowed by the causal mask. Little is blocked, nothing fails, and in training the loss gets too good to be "
        "true.",
        hint="Count the hatched cells.",
        law="blocked",
        needs="two tokens",
    ),
    Bug(
        key="query-axis",
        number=10,
        title="Softmax over the query axis",
        function=softmax_over_queries,
        wrong="weights = scores.softmax(dim=-2)",
        right="weights = scores.softmax(dim=-1)",
        signs="Columns sum to 1, and rows do not: the last token, alone in its column, gives itself all of it. What a "
        "token gets depends on the tokens after it.",
        hint="Look at the last column: how many are there to share its weight?",
        law="rows",
        needs="two tokens",
    ),
    Bug(
        key="in-place",
        number=11,
        title="Masked in place",
        function=masked_in_place,
        wrong='masked = scores.masked_fill_(~allowed, float("-inf"))',
        right=f"masked = {_MASK.format('~allowed')}",
        signs="These weights are right. It is whoever uses the scores next who gets −inf: a second mask, a plot, a "
        "comparison without the mask. Shown is that second use, which asks for no mask at all.",
        hint="",
        law="kept",
        needs="a mask that blocks something",
        second_use=True,
    ),
    Bug(
        key="first-layer",
        number=12,
        title="Causal in the first layer only",
        function=causal_mask_forgotten,
        wrong="x = block(x, allowed if number == 0 else padding)",
        right="x = block(x, allowed)",
        signs="The first layer's heatmap, which is the one that people look at, is right. From the second on the "
        "future is open, and one layer is enough for the model to read the answer.",
        hint="Only one of the two masks is left.",
        law="causal",
        needs="a second layer and two tokens",
        first_layer=1,
    ),
)
NUMBERS = {bug.number: bug.title for bug in BUGS}
BY_KEY = {bug.key: bug for bug in BUGS}


def used_again(stages: AttentionStages, v: Tensor) -> AttentionStages:
    """What the next user gets who takes the scores that an attention left, and asks for no mask."""
    weights = stages.scaled.softmax(-1).nan_to_num(0.0)
    return replace(stages, masked=stages.scaled, weights=weights, output=_values(weights, v))


def as_shown(bug: Bug, stages: AttentionStages, v: Tensor) -> AttentionStages:
    """The stages where the bug, or its right version, shows."""
    return used_again(stages, v) if bug.second_use else stages


def stretch(head: int, heads: int, length: int) -> tuple[int, int]:
    """The first and the last token that bug 1 lets a head see."""
    return head * length // heads, ((head + 1) * length - 1) // heads


def _whole(q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
    """The mask with both of its axes, [.., Q, K]."""
    if allowed is None:
        allowed = torch.ones(1, 1, dtype=torch.bool, device=q.device)
    return allowed.expand(*allowed.shape[:-2], q.shape[-2], k.shape[-2])


def _taken_apart(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """A combined mask [.., T, T] as the order of tokens [.., T, T] and the real ones [.., 1, T].

    A key that no query may see is padding. In its column the order cannot be seen any more: there it is the causal
    triangle, where anything but padding is blocked at all.
    """
    real = allowed.any(-2, keepdim=True)
    if (allowed | ~real).all():
        return torch.ones_like(allowed), real
    return torch.where(real, allowed, torch.ones_like(allowed).tril()), real


def _viewed(x: Tensor) -> Tensor:
    """Heads laid side by side, as the projection gives them, then cut wrongly: [B,H,T,D] -> [B,T,H·D] -> [B,H,T,D]."""
    return x.transpose(-3, -2).reshape(x.shape)


def _viewed_back(x: Tensor) -> Tensor:
    """What the output projection then reads, cut rightly: [B,H,T,D] -> [B,T,H·D] -> [B,H,T,D]."""
    heads, length, width = x.shape[-3:]
    return x.reshape(*x.shape[:-3], length, heads, width).transpose(-3, -2)


def _values(weights: Tensor, v: Tensor) -> Tensor:
    """weights [.., H, Q, K] @ v, whose heads may be shared."""
    return weights @ v.repeat_interleave(weights.shape[-3] // v.shape[-3], dim=-3)
