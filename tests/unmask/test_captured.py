"""Tests of attention captured from modules and TransformerLens. Run: python -m pytest tests/unmask/test_captured.py"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import unmask
from unmask import captured

BATCH, TOKENS, HEADS, WIDTH = 2, 5, 3, 4


class Net(nn.Module):
    """A network with an attention call of its own, a layer of torch's, and attention that returns its weights."""

    def __init__(self) -> None:
        super().__init__()
        size = HEADS * WIDTH
        self.embed, self.project = nn.Embedding(11, size), nn.Linear(size, 3 * size)
        self.layer = nn.TransformerEncoderLayer(size, HEADS, 17, batch_first=True)
        self.attention = nn.MultiheadAttention(size, HEADS, batch_first=True)
        self.weights: Tensor | None = None

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        q, k, v = (some.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for some in self.project(x).chunk(3, -1))
        bias = -torch.arange(float(TOKENS)).expand(TOKENS, TOKENS)
        bias = bias.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf)
        x = x + F.scaled_dot_product_attention(q, k, v, bias, scale=0.3).transpose(1, 2).flatten(2)
        x = self.layer(x)
        x, self.weights = self.attention(x, x, x, attn_mask=torch.eye(TOKENS).bool(), average_attn_weights=False)
        return x


def test_what_every_call_computed() -> None:
    torch.manual_seed(0)
    net, ids = Net(), torch.tensor([[1, 2, 3, 4, 5], [2, 3, 4, 5, 6]])
    found = unmask.capture(net, ids, tokens=list("abcde"), row=1)
    assert found.numpy().shape == (3, HEADS, TOKENS, TOKENS)
    np.testing.assert_allclose(found.numpy().sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(found.numpy()[2], net.weights[1].detach(), atol=1e-6)
    assert set(found.head(0, 1).blocked) == {"causal"}
    assert not found.head(1, 1).blocked
    np.testing.assert_array_equal(found.head(2, 1).blocked["drawn"], np.eye(TOKENS, dtype=bool))
    scores = found.q(0) @ found.k(0).swapaxes(1, 2) * 0.3 - np.arange(TOKENS)
    seen = np.tril(np.ones((TOKENS, TOKENS), bool))
    np.testing.assert_allclose(found.head(0, 2).scaled[seen], scores[2][seen], atol=1e-5)
    assert net.training
    assert torch.backends.mha.get_fastpath_enabled()
    assert "<iframe" in found._repr_html_()
    assert found.head(0, 0, by="words").view.keys == list("abcde")
    np.testing.assert_allclose(unmask.capture(net, ids[1].tolist()).numpy(), found.numpy(), atol=1e-6)


def test_grouped_queries_and_calls_of_another_shape() -> None:
    class Grouped(nn.Module):
        def forward(self, x: Tensor) -> None:
            q, k = x.view(1, 7, 4, 5).transpose(1, 2), x.view(1, 7, 4, 5).transpose(1, 2)[:, :2]
            for _ in range(2):
                F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
            F.scaled_dot_product_attention(q[:, :, :3], k, k, enable_gqa=True)

    found = unmask.capture(Grouped(), torch.randn(1, 7, 20))
    assert found.numpy().shape == (2, 4, 7, 7)
    assert found.k(1).shape == (2, 7, 5)
    assert "2 of 3 attention calls" in repr(found)
    assert set(found.head(1, 3).blocked) == {"causal"}


@pytest.mark.parametrize(
    ("query", "key"),
    [((2, 3), (1, 3)), ((1, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (2, 3)), ((2,), (1,)), ((1,), (2,))],
)
def test_rows_and_heads_that_torch_broadcasts(query: tuple[int, ...], key: tuple[int, ...]) -> None:
    class Broadcast(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, k)

    module, q, k = Broadcast(), torch.randn(*query, TOKENS, WIDTH), torch.randn(*key, TOKENS, WIDTH)
    output = module(q, k)
    for row in range(2):
        found = unmask.capture(module, q, k, row=row)
        given = (found.numpy()[0] @ found.v(0)).reshape(output[row].shape)
        np.testing.assert_allclose(given, output[row], atol=1e-5)


def test_calls_of_three_axes_are_rows_of_one_head_or_with_grouped_queries_heads() -> None:
    class Own(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, k, enable_gqa=len(k) < len(q))

    q, k = torch.randn(4, TOKENS, WIDTH), torch.randn(2, TOKENS, WIDTH)
    rows, heads = unmask.capture(Own(), q, q, row=3), unmask.capture(Own(), q, k)
    assert "row 3 of 4 in calls of three axes: 1 layer × 1 head" in repr(rows)
    assert "Own: 1 layer × 4 heads" in repr(heads)
    values = np.repeat(np.stack([heads.v(0)[0], heads.v(0)[-1]]), 2, axis=0)
    np.testing.assert_allclose(heads.numpy()[0] @ values, Own()(q, k), atol=1e-5)


@pytest.mark.parametrize(("make", "last"), [(causal_lower_right, 4), (causal_upper_left, 0)])
def test_causal_masks_of_torch_which_hold_no_numbers(make: Callable[[int, int], Any], last: int) -> None:
    q, k = torch.randn(2, 3, 3, 4), torch.randn(2, 3, 7, 4)

    class Own(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, k, attn_mask=make(3, 7))

    found = unmask.capture(Own(), q, k, row=1)
    closed = torch.arange(7) > torch.arange(3)[:, None] + last
    expected = (q[1] @ k[1].mT / 2).masked_fill(closed, -math.inf).softmax(-1)
    assert np.abs(found.numpy()[0] - expected.numpy()).max() < 1e-6
    assert (found.closed == closed.numpy()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("masked", [-1e4, -1e9, torch.finfo(torch.float64).min])
def test_masks_that_add_up_and_rows_that_all_are_masked_are_as_torch_sees_them(
    masked: float, dtype: torch.dtype
) -> None:
    """Padding on the left and the causal mask are numbers that are added up, as in many models."""
    lowest = torch.finfo(dtype).min
    later = torch.zeros(TOKENS, TOKENS, dtype=torch.float64).masked_fill(
        torch.ones(TOKENS, TOKENS).triu(1).bool(), masked
    )
    padding = torch.zeros(TOKENS, dtype=torch.float64)
    padding[:2] = masked
    bias = (later + padding).clamp(min=lowest).to(dtype)

    class Padded(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            self.out = F.scaled_dot_product_attention(q, q, q, bias)
            return self.out

    net, given = Padded(), torch.randn(1, HEADS, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = unmask.capture(net, given)
    rounding = {torch.float32: 1e-6, torch.float64: 1e-6}.get(dtype, 0.02)
    np.testing.assert_allclose(found.numpy()[0] @ given[0].float().numpy(), net.out[0].float(), atol=rounding)
    if lowest <= 2 * masked and masked > -1e300:  # twice `masked` is another number
        twice = np.arange(TOKENS) == 1
        assert (found.closed[0][:, 0] == twice).all()


@pytest.mark.parametrize("masked", [-1e9, torch.finfo(torch.float32).min])
def test_a_query_whose_every_key_is_masked_by_a_number_attends_to_all(masked: float) -> None:
    """In torch this follows from padding on the left with a mask that adds a number."""
    bias = torch.zeros(TOKENS, TOKENS).masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), masked)
    bias[:, :2] = masked

    class Padded(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            self.out = F.scaled_dot_product_attention(q, q, q, bias)
            return self.out

    net, given = Padded(), torch.randn(1, HEADS, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))
    weights = unmask.capture(net, given).numpy()[0]
    np.testing.assert_allclose(weights @ given[0].numpy(), net.out[0], atol=1e-6)
    np.testing.assert_allclose(weights[:, :2], 1 / TOKENS, atol=1e-6)
    assert not weights[:, 2:, :2].any()


@pytest.mark.parametrize("need", [True, False])
def test_multihead_attention_takes_is_causal_for_a_mask_only_without_weights(need: bool) -> None:
    """The references are torch's own output and weights."""
    later = torch.ones(TOKENS, TOKENS).triu(1).bool()
    window = later | torch.ones(TOKENS, TOKENS).tril(-2).bool()

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(HEADS * WIDTH, HEADS, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            some = {"need_weights": need, "average_attn_weights": False}
            self.out, self.weights = self.attention(x, x, x, attn_mask=window, is_causal=True, **some)
            return self.out

    torch.manual_seed(0)
    net = Own()
    found = unmask.capture(net, torch.randn(1, TOKENS, HEADS * WIDTH), tokens=(one for one in "abcde"))
    mixed = torch.from_numpy(found.numpy()[0] @ found.v(0)).transpose(0, 1).flatten(1)
    np.testing.assert_allclose(net.attention.out_proj(mixed).detach(), net.out[0].detach(), atol=1e-6)
    assert (found.closed == (window if need else later).numpy()).all()
    if need:
        np.testing.assert_allclose(found.numpy()[0], net.weights[0].detach(), atol=1e-6)
    assert found.queries == found.keys == list("abcde")


@pytest.mark.parametrize(("count", "words"), [(0, "one token or more, got none"), (3, "weights from 0 to 1")])
def test_no_tokens_and_no_numbers_are_a_sentence(count: int, words: str) -> None:
    net = nn.MultiheadAttention(HEADS * WIDTH, HEADS, batch_first=True)
    x = torch.full((1, count, HEADS * WIDTH), torch.nan)
    with pytest.raises(ValueError, match=words):
        unmask.capture(net, x, x, x)


def test_at_a_glance_each_head_has_its_own_blocked_cells() -> None:
    """The mask of a captured call differs between heads, and the masks of a run apply to some heads."""

    class PerHead(nn.Module):
        def forward(self, q: Tensor, mask: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    masks = torch.rand(3, TOKENS, TOKENS, generator=torch.Generator().manual_seed(4)) < 0.6
    found = unmask.capture(PerHead(), torch.randn(1, 3, TOKENS, WIDTH), masks)
    np.testing.assert_array_equal(found.glance()[1][0], ~masks.numpy())
    run = unmask.load("story").run("the cat sat", masks={"sliding": 1, "causal": False, "heads": [2], "layers": [1]})
    thumbnails, blocked = run.glance()
    np.testing.assert_array_equal(blocked, thumbnails == 0)
    assert run.title.endswith(", sliding mask in H2 of L1, causal mask elsewhere")


def test_what_cannot_be_captured_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.ones(1, TOKENS, dtype=torch.long)
    with pytest.raises(ValueError, match="Embedding made none"):
        unmask.capture(nn.Embedding(3, 3), ids)
    with pytest.raises(ValueError, match="expected 5 labels, got 2"):
        unmask.capture(Net(), ids, tokens=["a", "b"])
    with pytest.raises(ValueError, match="expected a row from 0 to 0"):
        unmask.capture(Net(), ids, row=1)
    monkeypatch.setattr(captured, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="take a shorter text"):
        unmask.capture(Net(), ids)
    monkeypatch.setattr(captured, "MAX_BYTES", 10**9)
    monkeypatch.setattr(captured, "MAX_CALLS", 2)
    with pytest.raises(ValueError, match="expected at most 2 attention calls"):
        unmask.capture(Net(), ids)


def cache(layers: tuple[int, ...], *, scores: bool) -> dict[str, Tensor]:
    torch.manual_seed(1)
    found = {"hook_embed": torch.zeros(1)}
    for layer in layers:
        q, k, v = (torch.randn(BATCH, TOKENS, HEADS, WIDTH) for _ in range(3))
        masked = torch.einsum("bqhd,bkhd->bhqk", q, k) / WIDTH**0.5
        masked = masked.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf)
        each = {"q": q, "k": k, "v": v, "pattern": masked.softmax(-1)} | ({"attn_scores": masked} if scores else {})
        found |= {f"blocks.{layer}.attn.hook_{name}": some for name, some in each.items()}
    return found


@pytest.mark.parametrize("scores", [False, True])
def test_a_cache_of_transformer_lens(scores: bool) -> None:
    given = cache((0, 1), scores=scores)
    found = unmask.from_transformer_lens(given, list("abcde"), row=1)
    np.testing.assert_array_equal(found.numpy()[1], given["blocks.1.attn.hook_pattern"][1])
    np.testing.assert_array_equal(found.q(1)[2], given["blocks.1.attn.hook_q"][1, :, 2])
    assert found.v(0).shape == (HEADS, TOKENS, WIDTH)
    blocked = found.head(0, 2).blocked
    np.testing.assert_array_equal(blocked["causal"], np.triu(np.ones((TOKENS, TOKENS), bool), 1))
    assert "<iframe" in found.head(1, 2)._repr_html_()


def test_of_some_layers_each_keeps_its_number() -> None:
    found = unmask.from_transformer_lens(cache((3, 11), scores=False))
    assert found.head(1, 0).name == "L11 H0"
    with pytest.raises(ValueError, match="found none"):
        unmask.from_transformer_lens({"hook_embed": torch.zeros(1)})
    pattern, name = torch.full((HEADS, 2, 2), 0.5), "blocks.{}.attn.hook_pattern".format
    for wrong, words in (
        ({name(0): "x"}, r"expected blocks.0.attn.hook_pattern of three axes, .*, got str"),
        ({name(0): 5}, r"expected blocks.0.attn.hook_pattern of three axes, .*, got int"),
        ({name(0): pattern[0]}, r"expected blocks.0.attn.hook_pattern of three axes, .*, got \[2, 2\]"),
        ({name(0): pattern, name(1): pattern[:1]}, r"expected one shape \[H,Q,K\] for the patterns of all layers"),
        ({name(0): 9 * pattern}, "expected weights from 0 to 1, after the softmax"),
    ):
        with pytest.raises(ValueError, match=words):
            unmask.from_transformer_lens(wrong)
    weights_alone = {name: some for name, some in cache((0,), scores=False).items() if name.endswith("pattern")}
    with pytest.raises(ValueError, match="expected q of layer 0"):
        unmask.from_transformer_lens(weights_alone).q(0)


def test_a_cache_of_a_call_after_others_looks_at_earlier_keys() -> None:
    """There are two queries and five keys: query 0 is not key 0's token."""
    pattern = torch.softmax(torch.randn(1, 2, 2, 5), -1)
    assert unmask.from_transformer_lens({"blocks.0.attn.hook_pattern": pattern}).across
    assert not unmask.from_transformer_lens({"blocks.0.attn.hook_pattern": pattern[..., :2, :2]}).across
