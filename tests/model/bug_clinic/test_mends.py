"""Tests that run every wrong line and every mend of the page, in an attention written out line by line.

The lines of STEPS are a whole attention. A bug's lines replace one or two of them: with the mend, the output must be
the core's, empty rows included; with the wrong line, it must be that of the bug's own function, or its error. Sizes are
different primes.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import MultiHeadAttention, attend
from model.blocks import CrossBlock
from model.bug_clinic.bugs import BUGS, BY_KEY, AttentionCase, Bug, Crash, repeated
from tests.tensors import assert_near

B, H, T, D = 2, 3, 7, 5
W = H * D
KEEP = torch.tensor([[False, False, True, True, True, True, True], [True] * T])
ALLOWED = torch.ones(T, T, dtype=torch.bool).tril() & KEEP[:, None, None, :]

STEPS = {
    "width": "d = width // heads",
    "module": "self.output = nn.Linear(heads * d, width)",
    "weights of the module": "self.output.load_state_dict(trained.output.state_dict())",
    "project": "q, k, v = self.query(x), self.key(x), self.value(x)",
    "split": "q, k, v = (part.view(batch, -1, heads, d).transpose(1, 2) for part in (q, k, v))",
    "precision": "q, k, v = (part.to(dtype) for part in (q, k, v))",
    "causal": "causal = torch.ones(T, T, dtype=torch.bool).tril()",
    "allowed": "allowed = causal & keep[:, None, None, :]",
    "blocked": "mask = attn_mask = ~allowed",
    "for every head": "",
    "head by head": "",
    "scores": "scores = q @ k.transpose(-2, -1) / d ** 0.5",
    "fill": 'masked = scores.masked_fill(attn_mask, float("-inf"))',
    "softmax": "weights = masked.softmax(-1)",
    "empty": "weights = weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)",
    "sum": "context = weights @ v",
    "merge": "context = context.transpose(1, 2).reshape(batch, -1, heads * d)",
    "output": "out = self.output(context.float())",
}
REPLACED = {  # the steps that a bug's lines replace; a second line without a step of its own is run after the first
    "view": ("split", "merge"),
    "unprojected": ("project",),
    "float-width": ("width",),
    "narrow-output": ("module",),
    "scale-width": ("scores",),
    "scale-divided": ("scores",),
    "scale-none": ("scores",),
    "query-axis": ("softmax",),
    "after-softmax": ("softmax", "empty"),
    "in-place": ("fill",),
    "half-fill": ("fill", "softmax"),
    "half-added": ("fill", "softmax"),
    "inverted": ("fill",),
    "diagonal": ("causal",),
    "transposed": ("causal",),
    "wrong-axis": ("allowed",),
    "or": ("allowed",),
    "repeat": ("for every head",),
    "if-mask": ("fill",),
}
WITHOUT_A_NET = {"after-softmax", "half-fill", "half-added"}  # their mends handle empty rows themselves


@pytest.fixture
def trained() -> MultiHeadAttention:
    torch.manual_seed(3)
    return MultiHeadAttention(W, H)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, T, W, generator=torch.Generator().manual_seed(5))


def run(bug: Bug, lines: str, trained: MultiHeadAttention, x: Tensor) -> dict[str, Any]:
    """Return all variables of an attention run with these lines in place of its own."""
    steps, replaced = dict(STEPS), REPLACED[bug.key]
    parts = lines.splitlines()
    if len(parts) > len(replaced):
        parts = ["\n".join(parts)]
    steps |= dict(zip(replaced, parts, strict=True))
    if bug.key in WITHOUT_A_NET and "empty" not in replaced:
        steps["empty"] = ""
    if bug.key == "repeat":
        steps["blocked"] = "attn_mask = ~allowed[:, 0]  # [B,T,T]"
        steps["head by head"] = "attn_mask = attn_mask.view(batch, heads, T, T); allowed = ~attn_mask"
    if bug.key in {"inverted", "wrong-axis", "or", "diagonal", "transposed"} and lines == bug.wrong:
        steps["empty"] = "weights = weights.nan_to_num(0.0)"  # as the core treats an empty row
    self = SimpleNamespace(query=trained.query, key=trained.key, value=trained.value)
    names = {
        "self": self, "trained": trained, "x": x, "keep": KEEP, "batch": B, "heads": H, "width": W, "T": T,
        "dtype": bug.dtype, "torch": torch, "nn": nn,
    }  # fmt: skip
    with torch.no_grad():
        exec("\n".join(steps.values()), names)
    return names


def by_the_core(trained: MultiHeadAttention, x: Tensor) -> Tensor:
    with torch.no_grad():
        return trained.merge(attend(*trained.project(x, x, x), ALLOWED))


def by_the_bug(bug: Bug, trained: MultiHeadAttention, x: Tensor) -> Tensor:
    with torch.no_grad():
        inputs = x.view(B, T, H, D).transpose(1, 2)
        projected = trained.project(x, x, x)
        case = AttentionCase(*projected, ALLOWED, KEEP, inputs=inputs, masks=repeated(ALLOWED, H))
        return trained.merge(case.to(bug.dtype).run(bug.function).output.float())


@pytest.mark.parametrize("key", REPLACED)
class TestLines:
    def test_the_mend_gives_the_cores_output(self, key: str, trained: MultiHeadAttention, x: Tensor) -> None:
        bug = BY_KEY[key]
        tolerance = 1e-5 if bug.dtype == torch.float32 else 5e-3
        assert (~ALLOWED.any(-1)).any(), "no row with nothing to look at"
        assert_near(run(bug, bug.right, trained, x)["out"], by_the_core(trained, x), tolerance, key)

    def test_the_wrong_line_gives_what_the_bug_gives(self, key: str, trained: MultiHeadAttention, x: Tensor) -> None:
        bug = BY_KEY[key]
        try:
            expected = by_the_bug(bug, trained, x)
        except Crash:
            with pytest.raises((RuntimeError, TypeError)):
                run(bug, bug.wrong, trained, x)
            return
        found = run(bug, bug.wrong, trained, x)["out"]
        if key == "query-axis":  # a fully blocked column is NaN here, unlike in the bug's own function
            assert found.isnan().all(-1).any()
            return
        tolerance = 1e-5 if bug.dtype == torch.float32 else 5e-3
        assert_near(found, expected, tolerance, key)
        if key != "in-place":
            assert not torch.allclose(found, by_the_core(trained, x), atol=0.01, equal_nan=True)


def test_every_bug_is_run() -> None:
    elsewhere = {"one-module", "first-layer", "targets"}
    assert set(REPLACED) | elsewhere == {bug.key for bug in BUGS}


def test_masked_in_place_loses_the_scores_and_the_mend_keeps_them(trained: MultiHeadAttention, x: Tensor) -> None:
    bug = BY_KEY["in-place"]
    assert torch.equal(run(bug, bug.wrong, trained, x)["scores"].isneginf(), ~ALLOWED.expand(B, H, T, T))
    assert run(bug, bug.right, trained, x)["scores"].isfinite().all()


def test_without_its_second_line_the_mend_of_float16_gives_nan(trained: MultiHeadAttention, x: Tensor) -> None:
    """Shows that the test above can fail: an empty row needs the second line."""
    bug = BY_KEY["half-fill"]
    half_a_mend = bug.right.replace(".masked_fill(~allowed.any(-1, keepdim=True), 0.0)", "")
    assert run(bug, half_a_mend, trained, x)["out"].isnan().any()


def layers(lines: str) -> Callable[[Tensor], Tensor]:
    """Return the forward of a stack of two attention layers whose loop has these lines."""

    def forward(x: Tensor) -> Tensor:
        padding = KEEP[:, None, None, :].expand(B, 1, T, T)
        blocks = [lambda x, allowed: x + attend(x[:, None], x[:, None], x[:, None], allowed)[:, 0]] * 2
        names = {"x": x, "allowed": ALLOWED, "padding": padding, "blocks": blocks}
        exec(f"for number, block in enumerate(blocks):\n    {lines}", names)
        found = names["x"]
        assert isinstance(found, Tensor)
        return found

    return forward


def test_the_mask_in_every_layer(x: Tensor) -> None:
    bug, changed = BY_KEY["first-layer"], x.clone()
    changed[:, -1] *= -1
    right, wrong = layers(bug.right), layers(bug.wrong)
    assert torch.equal(right(x)[:, :-1], right(changed)[:, :-1])
    assert not torch.allclose(wrong(x)[1, :-1], wrong(changed)[1, :-1], atol=0.01)


def test_a_module_for_each_attention() -> None:
    """Two modules both keep the trained weights of a decoder's layer; a shared one keeps those loaded last."""
    torch.manual_seed(0)
    block, bug = CrossBlock(width=W, heads=H, mlp_width=4 * W, epsilon=1e-5), BY_KEY["one-module"]
    x = torch.randn(B, T, W)
    with torch.no_grad():
        expected = block.attention(x, ALLOWED)[0]
        for lines, right in ((bug.right, True), (bug.wrong, False)):
            self = SimpleNamespace()
            exec(lines, {"self": self, "MultiHeadAttention": MultiHeadAttention, "width": W, "heads": H})
            self.self_attention.load_state_dict(block.attention.state_dict())
            self.cross_attention.load_state_dict(block.context_attention.state_dict())
            found = self.self_attention(x, ALLOWED)[0]
            assert torch.allclose(found, expected, atol=1e-5) == right
            both = nn.ModuleList([self.self_attention, self.cross_attention])
            assert sum(part.numel() for part in both.parameters()) == (2 if right else 1) * 4 * (W * W + W)


class TestTargets:
    vocabulary = 11

    def loss(self, lines: str, logits: Tensor, ids: Tensor) -> Tensor:
        names: dict[str, Any] = {"F": F, "logits": logits, "ids": ids}
        exec(lines, names)
        return names["loss"]

    def test_the_mend_asks_for_the_next_token(self) -> None:
        ids = torch.tensor([[3, 1, 4]])
        bug, sure = BY_KEY["targets"], 100.0
        copies = sure * F.one_hot(ids, self.vocabulary).float()
        knows = sure * F.one_hot(torch.tensor([[1, 4, 0]]), self.vocabulary).float()
        assert float(self.loss(bug.wrong, copies, ids)) == pytest.approx(0, abs=1e-6)
        assert float(self.loss(bug.right, copies, ids)) == pytest.approx(sure, abs=1e-4)
        assert float(self.loss(bug.right, knows, ids)) == pytest.approx(0, abs=1e-6)

    def test_trained_on_the_wrong_ones_a_model_copies_its_input(self) -> None:
        """As the page states of training: even on random, unpredictable tokens the wrong loss falls to 0."""
        torch.manual_seed(1)
        ids = torch.randint(self.vocabulary, (64, T))
        reached = {}
        for lines in (BY_KEY["targets"].wrong, BY_KEY["targets"].right):
            torch.manual_seed(2)
            embed, attention = nn.Embedding(self.vocabulary, W), MultiHeadAttention(W, H)
            read = nn.Linear(W, self.vocabulary)
            parameters = [*embed.parameters(), *attention.parameters(), *read.parameters()]
            optimiser = torch.optim.Adam(parameters, 0.03)
            triangle = torch.ones(T, T, dtype=torch.bool).tril()
            for _ in range(60):
                states = embed(ids)
                logits = read(states + attention(states, triangle)[0])
                loss = self.loss(lines, logits, ids)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            reached[lines] = loss.item()
            last = torch.tensor([[5]])
            states = embed(last)
            copied = int(read(states + attention(states, None)[0]).argmax()) == 5
            assert copied or lines != BY_KEY["targets"].wrong
        assert reached[BY_KEY["targets"].wrong] < 0.05
        assert reached[BY_KEY["targets"].right] > 1  # it slowly memorizes these rows
