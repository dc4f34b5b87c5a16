"""Tests of the attention core: its laws, numbers easy to calculate, errors, and the classroom's MaskedSelfAttention.

Sizes are different primes (or, where heads share keys, different multiples), so that a swapped axis cannot pass.
"""

import math

import pytest
import torch
from torch import Tensor

from model.attention import MaskedSelfAttention, MultiHeadAttention, ScoreTerms, attend, attention_stages
from tests.tensors import assert_near

B, H, Q, K, D = 2, 3, 5, 7, 11
SOME = torch.rand(B, 1, Q, K, generator=torch.Generator().manual_seed(3)) < 0.6
SOME[0, 0, 2] = False  # a query that may attend to nothing
SOME[1, 0, 4] = True
BIAS = torch.randn(1, H, Q, K, generator=torch.Generator().manual_seed(4))
SINKS = torch.tensor([0.5, -1.0, 2.0])

ALLOWED = {
    "everything": None,
    "some": SOME,
    "the same for all rows": SOME[0],
    "keys alone": torch.tensor([True, False, True, True, False, True, False])[None, None, None, :],
    "each head its own": torch.rand(B, H, Q, K, generator=torch.Generator().manual_seed(5)) < 0.5,
    "nothing": torch.zeros(1, 1, Q, K, dtype=torch.bool),
}
TERMS = {
    "plain": ScoreTerms(),
    "soft-cap": ScoreTerms(softcap=1.5),
    "bias": ScoreTerms(bias=BIAS),
    "sinks": ScoreTerms(sinks=SINKS),
    "soft-cap and bias": ScoreTerms(softcap=1.5, bias=BIAS),
}


def some_qkv(*, queries: int = Q, heads: int = H, shared: int = H) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(B, heads, queries, D, generator=generator)
    k, v = (torch.randn(B, shared, K, D, generator=generator) for _ in range(2))
    return q, k, v


def by_the_book(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, terms: ScoreTerms, scale: float) -> Tensor:
    """Return the output of attention, computed one number at a time in double precision."""
    output = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, q.shape[:-1])).tolist():
        powers = {}
        for j in range(k.shape[2]):
            score = scale * sum(x * y for x, y in zip(q[b, h, i].tolist(), k[b, h, j].tolist(), strict=True))
            if terms.softcap is not None:
                score = terms.softcap * math.tanh(score / terms.softcap)
            if terms.bias is not None:
                score += float(terms.bias[0, h, i, j])
            if allowed[b, h, i, j]:
                powers[j] = math.exp(score)
        total = sum(powers.values()) + (0.0 if terms.sinks is None else math.exp(float(terms.sinks[h])))
        for j, power in powers.items():
            output[b, h, i] += power / total * v[b, h, j].double()
    return output


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS.keys())
@pytest.mark.parametrize("allowed", ALLOWED.values(), ids=ALLOWED.keys())
class TestLaws:
    def test_blocked_weights_are_exactly_zero(self, allowed: Tensor | None, terms: ScoreTerms) -> None:
        stages = attention_stages(*some_qkv(), allowed=allowed, terms=terms)
        open_cells = torch.ones(B, H, Q, K, dtype=torch.bool) if allowed is None else allowed.expand(B, H, Q, K)
        assert torch.equal(stages.weights > 0, open_cells)
        assert torch.equal(stages.masked == -torch.inf, ~open_cells)

    def test_rows_sum_to_one(self, allowed: Tensor | None, terms: ScoreTerms) -> None:
        stages = attention_stages(*some_qkv(), allowed=allowed, terms=terms)
        sums = stages.weights.sum(-1)
        looks = stages.masked.amax(-1) > -torch.inf
        if terms.sinks is None:
            assert_near(sums, looks.float(), 1e-6, "sums of rows, 0 where there is nothing to attend to")
        else:
            powers = stages.masked.double().exp().sum(-1)
            assert_near(sums, powers / (powers + SINKS.double().exp()[:, None]), 1e-6, "sums of rows beside a sink")

    def test_an_empty_row_gives_nought_and_finite_gradients(self, allowed: Tensor | None, terms: ScoreTerms) -> None:
        empty = torch.zeros(B, H, Q, dtype=torch.bool) if allowed is None else ~allowed.expand(B, H, Q, K).any(-1)
        for output_of in (attend, lambda *args, **more: attention_stages(*args, **more).output):
            q, k, v = (tensor.requires_grad_() for tensor in some_qkv())
            output = output_of(q, k, v, allowed, terms=terms)
            assert output.isfinite().all()
            assert torch.equal((output == 0).all(-1), empty)
            output.square().sum().backward()
            for name, tensor in (("q", q), ("k", k), ("v", v)):
                assert tensor.grad.isfinite().all(), f"the gradient of {name} through {output_of}"
            assert (q.grad[empty] == 0).all()

    def test_attend_equals_the_stages(self, allowed: Tensor | None, terms: ScoreTerms) -> None:
        q, k, v = some_qkv()
        for scale in (None, 0.17):
            stages = attention_stages(q, k, v, allowed, scale=scale, terms=terms)
            open_cells = torch.ones(B, H, Q, K, dtype=torch.bool) if allowed is None else allowed.expand(B, H, Q, K)
            book = by_the_book(q, k, v, open_cells, terms, D**-0.5 if scale is None else scale)
            assert_near(stages.output, book, 1e-5, "stages")
            assert_near(attend(q, k, v, allowed, scale=scale, terms=terms), stages.output, 1e-5, "attend")


def test_heads_that_share_keys_equal_heads_with_copies_of_them() -> None:
    q, k, v = some_qkv(heads=6, shared=2)
    copied_k, copied_v = (tensor[:, [0, 0, 0, 1, 1, 1]] for tensor in (k, v))
    own = attention_stages(q, copied_k, copied_v, SOME)
    shared = attention_stages(q, k, v, SOME)
    for name in ("raw", "weights", "output"):
        assert_near(getattr(shared, name), getattr(own, name), 1e-6, name)
    for terms in (ScoreTerms(), ScoreTerms(softcap=2.0)):
        expected = attention_stages(q, copied_k, copied_v, SOME, terms=terms).output
        assert_near(attend(q, k, v, SOME, terms=terms), expected, 1e-5, "attend")


def test_a_causal_mask_takes_the_fast_path_and_gives_the_same() -> None:
    q, k, v = some_qkv(queries=K)
    allowed = torch.ones(K, K, dtype=torch.bool).tril()
    expected = attention_stages(q, k, v, allowed).output
    assert_near(attend(q, k, v, allowed[None, None]), expected, 1e-5, "causal")
    almost = allowed.clone()
    almost[3, 1] = False  # one cell away from causal: the causal kernel must not be used
    assert_near(attend(q, k, v, almost), attention_stages(q, k, v, almost).output, 1e-5, "almost causal")
    several = torch.stack([allowed, almost])[:, None]
    assert_near(attend(q, k, v, several), attention_stages(q, k, v, several).output, 1e-5, "one mask a row")


def test_numbers_that_can_be_checked_by_hand() -> None:
    """The width is 4, so the scale is 1/2. The scaled scores are 0, ln 3 and ln 12: weights of 1, 3 and 12 of 16."""
    q = torch.tensor([[[2.0, 0, 0, 0]]])
    k = torch.tensor([[[0.0, 9, 9, 9], [math.log(3), 7, 0, 0], [math.log(12), 0, 5, 0]]])
    v = torch.tensor([[[16.0, 0, 0, 0], [0, 16, 0, 0], [0, 0, 16, 1]]])
    everything = attention_stages(q, k, v, None)
    assert_near(everything.raw, torch.tensor([[[0, 2 * math.log(3), 2 * math.log(12)]]]), 1e-6, "raw")
    assert_near(everything.scaled, torch.tensor([[[0, math.log(3), math.log(12)]]]), 1e-6, "scaled")
    assert_near(everything.weights, torch.tensor([[[1, 3, 12]]]) / 16, 1e-6, "weights")
    assert_near(everything.output, torch.tensor([[[1.0, 3, 12, 0.75]]]), 1e-5, "output")
    two = attention_stages(q, k, v, torch.tensor([True, True, False]))
    assert_near(two.weights, torch.tensor([[[0.25, 0.75, 0]]]), 1e-6, "weights without the third key")
    assert_near(two.output, torch.tensor([[[4.0, 12, 0, 0]]]), 1e-5, "output without the third key")
    with_sink = attention_stages(q, k, v, None, terms=ScoreTerms(sinks=torch.tensor([math.log(16)])))
    assert_near(with_sink.weights, torch.tensor([[[1, 3, 12]]]) / 32, 1e-6, "half of the row goes to the sink")


def test_a_finite_fill_is_a_score_like_any_other() -> None:
    q = torch.tensor([[[1.0]]])
    k = torch.tensor([[[0.0], [5.0]]])
    v = torch.tensor([[[1.0], [0.0]]])
    second_blocked = torch.tensor([True, False])
    leaky = attention_stages(q, k, v, second_blocked, fill=math.log(3))
    assert_near(leaky.masked, torch.tensor([[[0, math.log(3)]]]), 1e-6, "masked")
    assert_near(leaky.weights, torch.tensor([[[0.25, 0.75]]]), 1e-6, "weights")
    nothing = attention_stages(q, k, v, torch.tensor([False, False]), fill=-1e4)
    assert_near(nothing.weights, torch.tensor([[[0.5, 0.5]]]), 1e-6, "a row with nothing allowed becomes uniform")
    assert attention_stages(q, k, v, torch.tensor([False, False])).weights.tolist() == [[[0.0, 0.0]]]


@pytest.mark.parametrize("output_of", [attend, attention_stages])
@pytest.mark.parametrize(
    ("shapes", "allowed", "message"),
    [
        (((3, 5, 11), (3, 7, 13), (3, 7, 11)), None, r"\[3, 7, 13\]"),
        (((3, 5, 11), (3, 7, 11), (3, 2, 11)), None, r"\[3, 2, 11\]"),
        (((3, 5, 11), (2, 7, 11), (2, 7, 11)), None, "divides 3 query heads, got 2 key and 2 value heads"),
        (((6, 5, 11), (3, 7, 11), (2, 7, 11)), None, "got 3 key and 2 value heads"),
        (((3, 5, 11), (3, 7, 11), (3, 7, 11)), torch.ones(5, 7), "boolean mask .*got torch.float32"),
        (((3, 5, 11), (3, 7, 11), (3, 7, 11)), torch.ones(7, 5) > 0, r"broadcasts to \[3, 5, 7\], got \[7, 5\]"),
        (((3, 5, 11), (3, 7, 11), (3, 7, 11)), torch.ones(2, 3, 5, 7) > 0, r"got \[2, 3, 5, 7\]"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_expected_and_got(
    output_of: object, shapes: tuple[tuple[int, ...], ...], allowed: Tensor | None, message: str
) -> None:
    assert callable(output_of)
    with pytest.raises(ValueError, match=message):
        output_of(*(torch.zeros(shape) for shape in shapes), allowed)


def pytorchs_own(attention: MultiHeadAttention, width: int) -> torch.nn.MultiheadAttention:
    """Return torch.nn.MultiheadAttention with the same weights."""
    reference = torch.nn.MultiheadAttention(width, attention.heads, batch_first=True)
    parts = (attention.query, attention.key, attention.value)
    reference.load_state_dict(
        {
            "in_proj_weight": torch.cat([part.weight for part in parts]),
            "in_proj_bias": torch.cat([part.bias for part in parts]),
            "out_proj.weight": attention.output.weight,
            "out_proj.bias": attention.output.bias,
        }
    )
    return reference


class TestMaskedSelfAttention:
    def test_the_classroom_case(self) -> None:
        torch.manual_seed(0)
        attention, x = MaskedSelfAttention(512, 8), torch.randn(32, 10, 512)
        mask = torch.ones(10, 10).tril()[None, None]
        out, weights = attention(x, x, x, mask)
        assert out.shape == (32, 10, 512)
        assert weights.shape == (32, 8, 10, 10)
        above = torch.ones(10, 10, dtype=torch.bool).triu(1)
        assert (weights[:, :, above] == 0).all()
        assert (weights[:, :, ~above] > 0).all()
        blocked = ~torch.ones(10, 10, dtype=torch.bool).tril()
        expected = pytorchs_own(attention, 512)(x, x, x, attn_mask=blocked, average_attn_weights=False)
        assert_near(out, expected[0], 1e-5, "out")
        assert_near(weights, expected[1], 1e-5, "weights")

    def test_it_is_called_with_values_keys_query_in_this_order(self) -> None:
        torch.manual_seed(0)
        attention = MaskedSelfAttention(D * H, H)
        values, keys, query = torch.randn(B, K, D * H), torch.randn(B, K, D * H), torch.randn(B, Q, D * H)
        allowed = SOME | (torch.arange(K) == 0)  # PyTorch's own module gives NaN for an empty row
        out, weights = attention(values, keys, query, allowed)
        blocked = ~allowed.expand(B, H, Q, K).flatten(0, 1)
        expected = pytorchs_own(attention, D * H)(query, keys, values, attn_mask=blocked, average_attn_weights=False)
        assert_near(out, expected[0], 1e-5, "out")
        assert_near(weights, expected[1], 1e-5, "weights")

    def test_masks_of_noughts_and_ones_and_of_booleans_are_the_same(self) -> None:
        torch.manual_seed(0)
        attention, x = MaskedSelfAttention(D * H, H), torch.randn(B, Q, D * H)
        allowed = torch.ones(Q, Q, dtype=torch.bool).tril()[None, None]
        outs = [attention(x, x, x, mask)[1] for mask in (allowed, allowed.float(), allowed.long())]
        assert torch.equal(outs[0], outs[1])
        assert torch.equal(outs[0], outs[2])
        assert not torch.equal(outs[0], attention(x, x, x, None)[1])


def test_cross_attention_looks_at_its_source() -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(D * H, H)
    x, source = torch.randn(B, Q, D * H), torch.randn(B, K, D * H)
    out, (q, k, v) = attention(x, None, source)
    assert (q.shape, k.shape, v.shape) == ((B, H, Q, D), (B, H, K, D), (B, H, K, D))
    expected, _ = pytorchs_own(attention, D * H)(x, source, source)
    assert_near(out, expected, 1e-5, "cross-attention")


@pytest.mark.parametrize(("width", "heads"), [(11, 3), (11, 0)])
def test_a_width_that_heads_do_not_divide_is_refused(width: int, heads: int) -> None:
    with pytest.raises(ValueError, match=f"got width {width} and {heads} heads"):
        MultiHeadAttention(width, heads)
