"""Tests of unused parameters: an expert that no text is routed to is not one, nor is what is read through a step."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mask_check import parameters
from mask_check.check import check
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS
from tests.mask_check.modules import SmallAttention


class Routed(SmallAttention):
    """A decoder with a top-1 mixture of experts, its parts in a ModuleList or a ModuleDict.

    dead: the number of experts that the router never chooses. skipped: whether the last norm of its list is not run.
    """

    def __init__(self, experts: int, *, dead: int = 0, skipped: bool = False, named: bool = False) -> None:
        super().__init__()
        self.router, self.ffns = nn.Linear(32, experts), nn.ModuleList(nn.Linear(32, 32) for _ in range(experts))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        if named:
            self.ffns = nn.ModuleDict({f"ffn_{number}": part for number, part in enumerate(self.ffns)})
        with torch.no_grad():
            self.router.weight.mul_(3)
            self.router.bias[:dead] = -1000
        self.skipped = skipped

    def embed(self, ids: Tensor) -> Tensor:
        x = super().embed(ids)
        for norm in self.norms[: 2 if self.skipped else 3]:
            x = norm(x)
        gate, chosen = self.router(x).softmax(-1).max(-1)
        parts = self.ffns.values() if isinstance(self.ffns, nn.ModuleDict) else self.ffns
        for number, part in enumerate(parts):
            if bool((chosen == number).any()):
                x = x + (gate * (chosen == number))[..., None] * part(x)
        return x


class AllRun(Routed):
    """A Routed decoder that runs all experts but the first for every token, most of them times 0."""

    def embed(self, ids: Tensor) -> Tensor:
        x = self.norms[2](self.norms[1](self.norms[0](SmallAttention.embed(self, ids))))
        gate, chosen = self.router(x).softmax(-1).max(-1)
        for number in range(1, len(self.ffns)):
            x = x + (gate * (chosen == number))[..., None] * self.ffns[number](x)
        return x


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("experts", [8, 16])
def test_experts_that_one_row_is_not_routed_to_are_used(experts: int, named: bool) -> None:
    report = check(Routed(experts, named=named))
    assert report.obeys, report.broken
    assert report.finding("parameters").verdict == OBEYS, report.finding("parameters").words


@pytest.mark.parametrize(("experts", "dead"), [(8, 3), (3, 1), (64, 0)])
def test_experts_that_no_row_is_routed_to_may_be_used_by_others(experts: int, dead: int) -> None:
    report = check(Routed(experts, dead=dead))
    assert report.obeys, report.broken
    found = report.finding("parameters")
    assert found.verdict == CANNOT_TELL
    assert "ffns.0.weight" in found.words or experts == 64
    assert "other texts" in found.words


def test_an_unused_part_among_experts_is_found() -> None:
    found = check(Routed(8, dead=2, skipped=True)).finding("parameters")
    assert found.verdict == BROKEN
    assert "norms.2.weight, norms.2.bias." in found.words
    assert found.words.startswith("2 of ")


class Parts(SmallAttention):
    """A decoder that runs parts in lists after its embedding. kind: which parts, and how one of them is never run.

    "adapters": of two with ReLU, which many tokens leave at 0. "layers": of two layers of experts, chosen by the id.
    "deep": experts of two Linears each in a list of their own, chosen by the id; no id is of the last one.
    "shared_expert": an expert that all tokens should have.
    """

    def __init__(self, kind: str, bias: bool = False) -> None:
        super().__init__()
        del self.position  # so that a row of one token gives its outputs one value
        self.kind, size = kind, 2 if kind == "adapters" else 32
        if kind == "adapters":
            self.down = nn.ModuleList(nn.Linear(32, size, bias=bias) for _ in range(6))
            self.up = nn.ModuleList(nn.Linear(size, 32, bias=bias) for _ in range(6))
        elif kind == "shared_expert":
            self.shared_expert = nn.Linear(32, 32, bias=bias)
        else:
            outer, inner = (2, 8) if kind == "layers" else (8, 2)
            parts = [[nn.Linear(32, 32, bias=bias) for _ in range(inner)] for _ in range(outer)]
            self.parts = nn.ModuleList(map(nn.ModuleList, parts))

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        if self.kind == "adapters":
            for number in (0, 1, 2, 4, 5):
                x = x + self.up[number](self.down[number](x).relu())
        for expert in range(8 if self.kind == "layers" else 7 if self.kind == "deep" else 0):
            chosen = ids % (8 if self.kind == "layers" else 7) == expert
            parts = [self.parts[0][expert]] if self.kind == "layers" else self.parts[expert]
            if bool(chosen.any()):
                y = x
                for part in parts:
                    y = part(y).tanh()
                x = x + chosen[..., None] * y
        return x


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("kind", "weights", "biases"), [("adapters", 2, 2), ("layers", 8, 8), ("shared_expert", 1, 1), ("deep", 2, 2)]
)
def test_a_part_that_never_runs_is_told_from_an_expert(kind: str, weights: int, biases: int, bias: bool) -> None:
    found = check(Parts(kind, bias)).finding("parameters")
    assert found.verdict == (CANNOT_TELL if kind == "deep" else BROKEN), found.words
    assert found.words.startswith(f"{weights + bias * biases} of ")


def test_an_expert_that_is_never_run_is_counted_with_its_bias() -> None:
    found = check(AllRun(8)).finding("parameters")
    assert found.verdict == BROKEN
    assert found.words.startswith("2 of ")


def test_an_unused_part_outside_of_lists_takes_one_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    original = parameters._without_gradient
    monkeypatch.setattr(parameters, "_without_gradient", lambda *given: calls.append(given) or original(*given))
    assert check(Parts("shared_expert")).finding("parameters").verdict == BROKEN
    assert len(calls) == 1


class Then(nn.Module):
    """A linear layer between two functions."""

    def __init__(self, layer: nn.Linear, before: Callable[[Tensor], Tensor], after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.before, self.after = layer, before, after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.layer(self.before(x)))


def through(
    before: Callable[[Tensor], Tensor] = torch.clone, after: Callable[[Tensor], Tensor] = torch.clone
) -> SmallAttention:
    """Return a decoder that gives its states to one function before its head, and its logits to another after it."""
    module = SmallAttention()
    module.head = Then(module.head, before, after)  # type: ignore[assignment]
    return module


def step(x: Tensor) -> Tensor:
    return (x > 0).to(x)


def argmax(x: Tensor) -> Tensor:
    return nn.functional.one_hot(x.argmax(-1), x.shape[-1]).to(x)


@pytest.mark.parametrize(
    ("module", "count"),
    [
        (through(before=step), 6),  # all but the head's
        (through(after=lambda x: (8 * x).round() / 8), 5),  # a bias may have a gradient of 0
        (through(after=argmax), 8),
        (through(after=torch.detach), 8),
    ],
)
def test_parameters_are_not_called_unused_where_no_token_has_a_gradient(module: SmallAttention, count: int) -> None:
    report = check(module)
    found = report.finding("parameters")
    assert (found.verdict, report.obeys, report.exit_code) == (CANNOT_TELL, True, 0)
    assert found.words.startswith(f"{count} of 8 parameter tensors receive no gradient: ")
    assert "The embeddings of the tokens receive none either" in found.words
    assert report.finding("gradients").words == "every gradient is 0, even where the mask is open."
    derivative = report.finding("derivative")
    assert (derivative.verdict == CANNOT_TELL) == (count == 8)
    assert count < 8 or derivative.words.startswith("its outputs have no gradient")


def test_values_that_are_detached_before_the_head_are_found() -> None:
    assert [finding.law for finding in check(through(before=torch.detach)).broken] == ["derivative"]


def test_a_part_that_is_not_used_is_found_beside_a_step() -> None:
    class Gated(SmallAttention):
        def embed(self, ids: Tensor) -> Tensor:
            x = super().embed(ids)
            return x * step(x)

    module = Gated()
    module.unused = nn.Linear(3, 3)
    found = check(module).finding("parameters")
    assert found.verdict == BROKEN
    assert found.words.startswith("2 of 10 ")


class FrozenEmbeddings(SmallAttention):
    """A decoder that looks tokens and positions up in frozen tables, without gradients, and has a part that is not
    used."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding.requires_grad_(False)
        self.position.requires_grad_(False)
        self.unused = nn.Linear(3, 3)

    def embed(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            return super().embed(ids)


class SomeDetached(SmallAttention):
    """A decoder that detaches some of its outputs, and has a part that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 3)

    def forward(self, ids: Tensor) -> Tensor:
        found = super().forward(ids)
        detached = torch.arange(found.shape[1]) % 2 == 0
        return torch.where(detached[:, None], found.detach(), found)


@pytest.mark.parametrize("kind", [FrozenEmbeddings, SomeDetached])
def test_an_unused_part_is_found_where_tokens_lack_gradients_for_another_reason(kind: type[SmallAttention]) -> None:
    found = check(kind()).finding("parameters")
    assert (found.verdict, "unused.weight" in found.words) == (BROKEN, True)
